"""A widget that a script draws in the browser: it needs no kernel, and is where the reader left it on a re-run."""

import base64
import json
from contextlib import suppress
from html import escape
from pathlib import Path
from typing import Any, NamedTuple

import anywidget
from IPython import get_ipython
from matplotlib.figure import Figure
from traitlets import TraitError

from attncourse.viz.style import picture

HOST = Path(__file__).with_suffix(".js")


class LiveWidget(anywidget.AnyWidget):
    """What it shows is in its traits, so that a saved notebook moves without a kernel; a subclass says its `still`.

    A subclass names its script and its style sheet: `_esm = Path(__file__).with_suffix(".js")`, `_css` likewise; and in
    `kept` the traits that the reader moves.
    """

    kept: tuple[str, ...]

    def __init__(self, **values: Any):
        super().__init__(**values)
        _take_up(self)

    def still(self) -> tuple[Figure, str]:
        """The picture of how it stands now, and the words that say what it shows."""
        raise NotImplementedError

    def _repr_mimebundle_(self, include=None, exclude=None, **kwargs):
        """The widget, and beside it a picture and words that are the same at every run (no memory address)."""
        data, metadata = picture(*self.still())
        widget = super()._repr_mimebundle_(**kwargs)
        return (widget[0] if widget else {}) | data, metadata

    def page(self, title: str = "") -> str:
        """The widget as it stands, as a web page of its own that needs no kernel, no server and no network."""
        state = self.get_state()
        packed = {name: base64.b64encode(value).decode() for name, value in state.items() if isinstance(value, bytes)}
        told = {name: value for name, value in state.items() if name not in (*packed, "layout")}
        buffers = [{"path": [name], "encoding": "base64", "data": data} for name, data in packed.items()]
        title = escape(title or type(self).__name__.replace("_", " "))
        # "</" would end the element that the JSON stands in.
        kept = json.dumps({"state": {"widget": {"state": told, "buffers": buffers}}}).replace("</", "<\\/")
        return (
            '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
            '<meta name="viewport" content="width=device-width, initial-scale=1">'
            '<meta name="color-scheme" content="light dark">'
            f"<title>{title}</title></head>\n<body><main>\n"
            f'<script type="application/vnd.jupyter.widget-state+json">{kept}</script>\n'
            '<script type="application/vnd.jupyter.widget-view+json">{"model_id": "widget"}</script>\n'
            f"</main>\n<script>\n{HOST.read_text(encoding='utf-8')}</script></body></html>\n"
        )


# A cell that is run again builds its widgets anew, and the reader's are lost


class _Run(NamedTuple):
    """The widgets that one run of a cell has built, in order, each with how it started; and those of the run before."""

    request: str
    built: list[tuple[LiveWidget, dict[str, Any]]]
    before: list[tuple[LiveWidget, dict[str, Any]]]


_runs: dict[str, _Run] = {}


def _take_up(widget: LiveWidget) -> None:
    """Move a new widget to where the reader left the one that this cell built before, in this kernel, in its place.

    What starts elsewhere than it did stays there: whoever edits a cell's start means it. So does what cannot stand
    where it was left. JupyterLab tells the kernel which cell it runs; a notebook that is executed to be built or tested
    does not, and shows all widgets at their start.
    """
    message: dict[str, Any] = getattr(get_ipython(), "get_parent", dict)()
    cell = message.get("metadata", {}).get("cellId")
    if not cell:
        return
    request, last = message["header"]["msg_id"], _runs.get(cell)
    if last is None or last.request != request:
        _runs[cell] = _Run(request, [], last.built if last else [])
    _, built, before = _runs[cell]
    start = {name: getattr(widget, name) for name in widget.kept}
    old, old_start = before[len(built)] if len(built) < len(before) else (None, {})
    built.append((widget, start))
    for name, value in start.items():
        if name in old_start and old_start[name] == value:
            with suppress(TraitError, ValueError):
                setattr(widget, name, getattr(old, name))
