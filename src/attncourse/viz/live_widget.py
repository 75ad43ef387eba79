"""A widget that a script draws in the browser, with a still picture for where scripts do not run."""

import base64
import json
from html import escape
from pathlib import Path

import anywidget
from matplotlib.figure import Figure

from attncourse.viz.style import picture

HOST = Path(__file__).with_suffix(".js")


class LiveWidget(anywidget.AnyWidget):
    """What it shows is in its traits, so that a saved notebook moves without a kernel; a subclass says its `still`.

    A subclass names its script and its style sheet: `_esm = Path(__file__).with_suffix(".js")`, `_css` likewise.
    """

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
        state = {name: value for name, value in self.get_state().items() if not name.startswith("_")}
        told = {
            name: {"base64": base64.b64encode(value).decode()} if isinstance(value, bytes) else value
            for name, value in state.items()
            if name not in ("layout", "tabbable", "tooltip")
        }
        # "</" would end the element that the JSON stands in.
        title = escape(title or type(self).__name__.replace("_", " "))
        data = json.dumps({"script": str(self._esm), "state": told}).replace("</", "<\\/")
        return (
            '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
            '<meta name="viewport" content="width=device-width, initial-scale=1">'
            '<meta name="color-scheme" content="light dark">'
            f"<title>{title}</title>\n<style>{self._css}</style></head>\n"
            f'<body><main id="widget"></main>\n<script type="application/json" id="data">{data}</script>\n'
            f'<script type="module">\n{HOST.read_text(encoding="utf-8")}</script></body></html>\n'
        )
