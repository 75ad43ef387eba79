"""What a page of Markdown shows of the course itself, made when the book is built: widgets that move, cards.

A line `<!-- show: package.module:function -->` is where the function's results stand, each as a notebook would show it.
"""

import json
import re
from base64 import b64encode
from html import escape
from importlib import import_module
from typing import Any

from commandkit.commands import typed
from commandkit.errors import CommandError, require_extra
from lessonkit.authoring import widgets

with require_extra(typed("site"), "site"):
    from IPython.core.formatters import DisplayFormatter
    from ipywidgets.embed import dependency_state

MARKER = re.compile(r"^<!-- show: (?P<module>[\w.]+):(?P<function>\w+) -->$", re.MULTILINE)


def filled(text: str, static: str) -> str:
    """A page's Markdown with what its markers ask for; `static` leads from the page to the folder _static.

    Raises CommandError for a function that there is not, or a result that no page can show.
    """
    state: dict[str, Any] = {}

    def show(marker: re.Match[str]) -> str:
        try:
            results = getattr(import_module(marker["module"]), marker["function"])()
        except (ImportError, AttributeError) as error:
            raise CommandError(f"{marker[0]}: there is no such function ({error})") from error
        results = results if isinstance(results, list) else [results]
        parts = [_one(result, f"{marker['function']}-{i}", state) for i, result in enumerate(results)]
        return _raw(f'<div class="shown" data-shown="{marker["function"]}">', *parts, "</div>")

    text = MARKER.sub(show, text)
    if not state:
        return text
    kept = f'<script type="{widgets.STATE}">{_json({"version_major": 2, "version_minor": 0, "state": state})}</script>'
    return f'{text}\n\n{_raw(kept, f"""<script src="{static}/widgets.js" defer></script>""")}\n'


def _one(result: Any, name: str, state: dict[str, Any]) -> str:
    """One result as HTML; a widget's state goes into `state`, as `name`."""
    data, metadata = DisplayFormatter().format(result)
    if "image/png" in data:
        words = escape(metadata["image/png"].get("alt") or data["text/plain"])
        width = metadata["image/png"].get("width", "")
        image = f'<img src="data:image/png;base64,{_base64(data["image/png"])}" width="{width}" alt="{words}">'
        if widgets.VIEW not in data:
            return f'<div class="cell_output">{image}</div>'
        state[name] = dependency_state(result, drop_defaults=False)[result.model_id]
        view = _json({"version_major": 2, "version_minor": 0, "model_id": name})
        live = f'<script type="{widgets.VIEW}">{view}</script>'
        return f'<div class="cell_output"><div class="still">{image}</div>{live}</div>'
    if "text/html" in data:
        return f'<div class="cell_output"><div class="output text_html">{data["text/html"]}</div></div>'
    raise CommandError(f"{type(result).__name__}: no page can show it: it has neither a picture nor HTML")


def _base64(data: Any) -> str:
    return b64encode(data).decode() if isinstance(data, bytes) else str(data).strip()


def _json(value: Any) -> str:
    # "</" would end the element that it stands in.
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).replace("</", "<\\/")


def _raw(*lines: str) -> str:
    return "\n".join(("````{raw} html", *lines, "````"))
