"""Things a reader learns from by moving them, each with a still picture for where widgets do not run."""

import base64
from collections.abc import Sequence
from html import escape

import ipywidgets as widgets

from attncourse.viz.figures import alignment_figure, as_matrix, describe
from attncourse.viz.style import BLUE, GREY, PALE, figure_metadata, png


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
        data = dict(super()._repr_mimebundle_(**kwargs))
        data |= {"text/plain": words, "image/png": base64.b64encode(png(drawn)).decode()}
        return data, figure_metadata(drawn, words)
