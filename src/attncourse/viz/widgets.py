"""Things a reader learns from by moving them, each with a still picture for where widgets do not run."""

import base64
import math
from collections.abc import Callable, Mapping, Sequence
from html import escape
from io import BytesIO
from itertools import product
from pathlib import Path
from typing import Any

import traitlets
from matplotlib.figure import Figure
from PIL import Image

from attncourse.viz.figures import alignment_figure, as_weights, describe
from attncourse.viz.live_widget import LiveWidget
from attncourse.viz.style import figure, png

PAGE_INCHES = 9.5
MOST_FRAMES = 120  # each stands in the saved notebook, some 20 kB of it


class Frames(LiveWidget):
    """HTML for every setting of some controls, of which one is shown. The last control's values lie side by side."""

    _esm = Path(__file__).with_suffix(".js")
    _css = Path(__file__).with_suffix(".css")
    kept = ("chosen",)

    controls: traitlets.List = traitlets.List().tag(sync=True)
    """Of each its name, its labels, and whether it is a slider, {"name": …, "labels": […], "slider": …}, or buttons."""
    frames = traitlets.List(traitlets.Unicode()).tag(sync=True)
    chosen = traitlets.List(traitlets.Unicode()).tag(sync=True)
    """A label of each control."""

    @traitlets.validate("chosen")
    def _check_chosen(self, proposal):
        labels = [control["labels"] for control in self.controls]
        if tuple(proposal["value"]) not in product(*labels):
            raise ValueError(f"chosen: got {proposal['value']}, expected one of each of {labels}")
        return proposal["value"]


class explore(Frames):
    """A picture for every setting of one or two controls: all drawn beforehand, so it moves without a kernel too.

    `draw(**values)` returns a figure and the words that say what it shows. `controls` gives for each of its arguments
    the values to choose from: a slider where they are numbers, a row of buttons where they are names. `start` says
    where the controls stand at first, and with them the still picture; the middle where it says nothing. `still` are
    settings to show in the still picture, where one cannot say what moving shows. `names` are the words beside the
    controls, where the argument's name is not enough.

    >>> explore(draw_lookup, temperature=[0.1, 1, 10], start={"temperature": 1})  # doctest: +SKIP

    Raises TypeError for less than one or more than two controls, ValueError for a control without values or with two
    that look the same, for a start or a still that is none of them, and for more settings than a notebook should hold.
    """

    def __init__(
        self,
        draw: Callable[..., tuple[Figure, str]],
        start: Mapping[str, Any] | None = None,
        names: Mapping[str, str] | None = None,
        still: Sequence[Mapping[str, Any]] = (),
        **controls: Sequence[Any],
    ):
        values = {name: list(given) for name, given in controls.items()}
        at = _start(values, start or {})
        shown = [_start(values, {**(start or {}), **setting}, "still") for setting in still]
        if not 1 <= len(values) <= 2:
            raise TypeError(f"controls: got {len(values)}, expected one or two")
        labels = {name: [_label(value) for value in given] for name, given in values.items()}
        for name, said in labels.items():
            if len({*said}) < len(said):
                raise ValueError(f"{name}: got {said}, expected values that look different")
        super().__init__(
            controls=[
                {
                    "name": (names or {}).get(name, name.replace("_", " ")),
                    "labels": labels[name],
                    "slider": all(isinstance(value, int | float) for value in given),
                }
                for name, given in values.items()
            ],
            chosen=[labels[name][at[name]] for name in values],
        )
        kept = [[labels[name][place[name]] for name in values] for place in shown] or [self.chosen]
        frames, drawn = [], {}
        for setting in product(*values.values()):
            frame = draw(**dict(zip(values, setting, strict=True)))
            if (said := list(map(_label, setting))) in kept:
                drawn[tuple(said)] = frame
            frames.append(_picture(*frame))
        self.frames = frames
        self._still = [drawn[tuple(said)] for said in kept]

    def still(self) -> tuple[Figure, str]:
        """The picture of where it stood when it was built, or of the settings that were asked for, on one sheet."""
        return self._still[0] if len(self._still) == 1 else _sheet(self._still)


def _sheet(frames: Sequence[tuple[Figure, str]]) -> tuple[Figure, str]:
    """Frames of one size on one sheet, in rows as wide as a page, with the words of all."""
    width, height = frames[0][0].get_size_inches()
    columns = min(len(frames), max(1, int(PAGE_INCHES // width)))
    rows = math.ceil(len(frames) / columns)
    sheet, _ = figure(columns * width, rows * height)
    sheet.clear()
    sheet.set_layout_engine(None)
    for place, (frame, _) in enumerate(frames):
        row, column = divmod(place, columns)
        ax = sheet.add_axes((column / columns, 1 - (row + 1) / rows, 1 / columns, 1 / rows))
        ax.imshow(Image.open(BytesIO(png(frame))).convert("RGB"), aspect="auto", interpolation="nearest")
        ax.set_axis_off()
    return sheet, " ".join(words for _, words in frames)


def _start(values: Mapping[str, list], start: Mapping[str, Any], argument: str = "start") -> dict[str, int]:
    """Where each control stands at first, as an index."""
    for name, given in values.items():
        if not given:
            raise ValueError(f"{name}: got no values, expected at least one")
    for name, value in start.items():
        if name not in values or value not in values[name]:
            raise ValueError(f"{argument}: got {name} = {value!r}, expected one of the values that the control has")
    if (settings := math.prod(map(len, values.values()))) > MOST_FRAMES:
        raise ValueError(f"controls: got {settings} settings, expected at most {MOST_FRAMES}: each is a picture")
    return {name: given.index(start[name]) if name in start else len(given) // 2 for name, given in values.items()}


def _label(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _picture(figure: Figure, words: str) -> str:
    """A figure as HTML. In 128 colours, which nobody sees: frames are many."""
    if not words.strip():
        raise ValueError("draw: got no words, expected a sentence that says what the figure shows")
    width, height = (round(96 * inches) for inches in figure.get_size_inches())
    image = base64.b64encode(png(figure, colours=128)).decode()
    return f'<img src="data:image/png;base64,{image}" width="{width}" height="{height}" alt="{escape(words)}">'


class step_through(Frames):
    """A slider over the target's tokens, and beneath it a bar for each source token: how much that step looks at it.

    `weights` (n_target, n_source). It moves without a kernel too; where widgets do not run at all, the saved heatmap
    shows every step at once. Raises ValueError as `alignment_heatmap` does.
    """

    def __init__(self, weights, source: Sequence[str], target: Sequence[str]):
        self._weights, self._source, self._target = as_weights(weights, target, source), list(source), list(target)
        labels = [f"{step}: {token}" for step, token in enumerate(target, start=1)]
        super().__init__(
            controls=[{"name": "Target token", "labels": labels, "slider": True}],
            frames=[self._step(step) for step in range(len(target))],
            chosen=labels[:1],
        )

    def _step(self, step: int) -> str:
        """What is written so far, and where this step looks: a table, which a screen reader can read."""
        written = " ".join(map(escape, self._target[:step]))
        rows = "".join(
            f'<tr><th scope="row">{escape(token)}</th>'
            f'<td class="ex-bar"><div style="width:{100 * weight:.1f}%"></div></td><td>{weight:.2f}</td></tr>'
            for token, weight in zip(self._source, self._weights[step], strict=True)
        )
        now = escape(self._target[step])
        table = f'<table aria-label="Weights of step {step + 1}, {now}">{rows}</table>'
        return f"<p>{written} <b>{now}</b> looks at</p>{table}"

    def still(self) -> tuple[Figure, str]:
        """A heatmap of all steps."""
        words = f"Attention step by step. {describe(self._weights, self._source, self._target)}"
        return alignment_figure(self._weights, self._source, self._target), words
