"""Things a reader learns from by moving them, each with a still picture for where widgets do not run."""

import base64
from collections.abc import Callable, Mapping, Sequence
from html import escape
from typing import Any

import ipywidgets as widgets
from matplotlib.figure import Figure

from attncourse.viz.figures import alignment_figure, as_matrix, describe
from attncourse.viz.style import BLUE, GREY, PALE, picture, png

MOST_FRAMES = 120  # each stands in the saved notebook, some 20 kB of it


class explore(widgets.VBox):
    """A picture for every setting of one or two controls: all drawn beforehand, so it moves without a kernel too.

    `draw(**values)` returns a figure and the words that say what it shows. `controls` gives for each of its arguments
    the values to choose from: a slider where they are numbers, a row of buttons where they are names. `start` says
    where the controls stand at first, and with them the still picture; the middle where it says nothing. `names` are
    the words beside the controls, where the argument's name is not enough.

    >>> explore(draw_lookup, temperature=[0.1, 1, 10], start={"temperature": 1})  # doctest: +SKIP

    Raises TypeError for less than one or more than two controls, ValueError for a control without values, for a start
    that is none of them, and for more settings than a notebook should hold.
    """

    def __init__(
        self,
        draw: Callable[..., tuple[Figure, str]],
        start: Mapping[str, Any] | None = None,
        names: Mapping[str, str] | None = None,
        **controls: Sequence[Any],
    ):
        values = {name: list(given) for name, given in controls.items()}
        at = _start(values, start or {})
        if not 1 <= len(values) <= 2:
            raise TypeError(f"controls: got {len(values)}, expected one or two")
        *outer, (inner, inner_values) = values.items()
        handles = {
            name: _control((names or {}).get(name, name.replace("_", " ")), given, at[name])
            for name, given in values.items()
        }
        self._still: tuple[Figure, str]
        rows = []
        for first in outer[0][1] if outer else [None]:
            frames = []
            for second in inner_values:
                setting = {inner: second} | ({outer[0][0]: first} if outer else {})
                frame = draw(**setting)
                if all(values[name].index(value) == at[name] for name, value in setting.items()):
                    self._still = frame
                frames.append(widgets.HTML(_picture(*frame)))
            row = widgets.Stack(frames, selected_index=at[inner])
            widgets.jslink((handles[inner], "index"), (row, "selected_index"))
            rows.append(row)
        if outer:
            name = outer[0][0]
            pages = widgets.Stack(rows, selected_index=at[name])
            widgets.jslink((handles[name], "index"), (pages, "selected_index"))
            rows = [pages]
        super().__init__([*handles.values(), *rows])

    def _repr_mimebundle_(self, include=None, exclude=None, **kwargs):
        """The widget, and beside it a picture and words that are the same at every run (no memory address)."""
        figure, words = self._still
        data, metadata = picture(figure, words)
        return super()._repr_mimebundle_(**kwargs) | data, metadata


def _start(values: Mapping[str, list], start: Mapping[str, Any]) -> dict[str, int]:
    """Where each control stands at first, as an index."""
    for name, given in values.items():
        if not given:
            raise ValueError(f"{name}: got no values, expected at least one")
    for name, value in start.items():
        if name not in values or value not in values[name]:
            raise ValueError(f"start: got {name} = {value!r}, expected one of the values that the control has")
    settings = 1
    for given in values.values():
        settings *= len(given)
    if settings > MOST_FRAMES:
        raise ValueError(f"controls: got {settings} settings, expected at most {MOST_FRAMES}: each is a picture")
    return {name: given.index(start[name]) if name in start else len(given) // 2 for name, given in values.items()}


def _control(name: str, values: list, index: int) -> widgets.Widget:
    options = [(f"{value:g}" if isinstance(value, float) else str(value), i) for i, value in enumerate(values)]
    look = {"style": {"description_width": "initial"}, "layout": {"width": "28em"}}
    if all(isinstance(value, int | float) for value in values):
        return widgets.SelectionSlider(
            options=options, index=index, description=name, tooltip=name, continuous_update=True, **look
        )
    return widgets.ToggleButtons(options=options, index=index, description=name, style={"description_width": "initial"})


def _picture(figure: Figure, words: str) -> str:
    """A figure as HTML. In 64 colours, which nobody sees: frames are many."""
    if not words.strip():
        raise ValueError("draw: got no words, expected a sentence that says what the figure shows")
    width = round(figure.get_size_inches()[0] * 96)
    image = base64.b64encode(png(figure, colours=64)).decode()
    return f'<img src="data:image/png;base64,{image}" width="{width}" style="max-width:100%" alt="{escape(words)}">'


class step_through(widgets.VBox):
    """A slider over the target's tokens, and beneath it a bar for each source token: how much that step looks at it.

    `weights` (n_target, n_source). Slider and bars are linked in the browser, so the widget moves without a kernel too.
    Where widgets do not run at all, the saved heatmap shows every step at once.
    Raises ValueError where the shape does not fit the tokens.
    """

    def __init__(self, weights, source: Sequence[str], target: Sequence[str]):
        self._weights, self._source, self._target = as_matrix(weights, target, source), list(source), list(target)
        slider = widgets.SelectionSlider(
            options=[(f"{step}: {token}", step) for step, token in enumerate(target, start=1)],
            description="Target token",
            tooltip="Which target token is being written",
            continuous_update=True,
            style={"description_width": "initial"},
            layout={"width": "28em"},
        )
        steps = widgets.Stack([widgets.HTML(self._step(step)) for step in range(len(target))], selected_index=0)
        widgets.jslink((slider, "index"), (steps, "selected_index"))
        super().__init__([slider, steps])

    def _step(self, step: int) -> str:
        """What is written so far, and where this step looks: a table, which a screen reader can read."""
        written = " ".join(map(escape, self._target[:step]))
        rows = "".join(
            f'<tr><th scope="row" style="text-align:right;font-weight:normal;padding:0 .8em">{escape(token)}</th>'
            f'<td style="width:20em"><div style="width:{100 * weight:.1f}%;height:1em;background:{BLUE}"></div></td>'
            f'<td style="padding:0 .8em;font-variant-numeric:tabular-nums">{weight:.2f}</td></tr>'
            for token, weight in zip(self._source, self._weights[step], strict=True)
        )
        return (
            f'<p style="margin:.4em .8em"><span style="color:{GREY}">{written}</span> '
            f'<b style="border-bottom:2px solid {BLUE}">{escape(self._target[step])}</b> looks at</p>'
            f'<table aria-label="Weights of step {step + 1}, {escape(self._target[step])}" '
            f'style="border-left:1px solid {PALE};border-collapse:collapse">{rows}</table>'
        )

    def _repr_mimebundle_(self, include=None, exclude=None, **kwargs):
        """The widget, and beside it a picture and words that are the same at every run (no memory address)."""
        words = f"Attention step by step. {describe(self._weights, self._source, self._target)}"
        drawn = alignment_figure(self._weights, self._source, self._target)
        data, metadata = picture(drawn, words)
        return super()._repr_mimebundle_(**kwargs) | data, metadata
