"""A deck as a web page for reveal.js, and as a notebook for the tools that know JupyterLab's slide types."""

import base64
import html
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from commandkit.commands import typed
from commandkit.errors import require_extra
from lessonkit.authoring import widgets
from lessonkit.authoring.deck import Part, Slide

with require_extra(typed("slides"), "site"):
    from markdown_it import MarkdownIt
    from mdit_py_plugins.dollarmath import dollarmath_plugin
    from nbformat.notebooknode import NotebookNode
    from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook
    from pygments import highlight
    from pygments.formatters import HtmlFormatter
    from pygments.lexers import get_lexer_by_name

HERE = Path(__file__).parent
# A page beside which there are no lectures has no links to them.
LOCAL_LINK = re.compile(r"(?<!!)\[([^\]]+)\]\((?!https?:)[^)]*\)")

ROOM = 1168, 560  # of a slide, below its title


def _math(tex: str, options: dict) -> str:
    tex = html.escape(tex.strip())
    if options["display_mode"]:
        return rf"<span class='math display'>\[{tex}\]</span>"
    return rf"<span class='math'>\({tex}\)</span>"


def _highlighted(code: str, language: str, _: str = "") -> str:
    return highlight(code, get_lexer_by_name(language or "text"), HtmlFormatter(nowrap=True))


MARKDOWN = (
    MarkdownIt("commonmark", {"html": True, "highlight": _highlighted})
    .enable("table")
    .use(dollarmath_plugin, double_inline=True, renderer=_math)
)


@dataclass
class Page:
    """The page of the deck `slides`, and the pictures that lie beside it."""

    slides: Sequence[Slide]
    widgets: dict  # the notebook's saved widgets, by id
    pictures: dict[str, bytes] = field(default_factory=dict)

    def html(self) -> str:
        body = "\n".join(self._slide(slide, first=not number) for number, slide in enumerate(self.slides))
        used = set(re.findall(r'"model_id": ?"(\w+)"', body))
        scripts = ""
        if used:
            kept = json.dumps({"state": {name: self.widgets[name] for name in sorted(used)}}).replace("</", "<\\/")
            scripts = f'<script type="{widgets.STATE}">{kept}</script>\n'
            scripts += '<script defer src="../_deck/widgets.js"></script>\n'
        return (HERE / "page.html").read_text("utf-8").format(
            title=html.escape(self.slides[0].title), body=body, scripts=scripts
        )

    def _slide(self, slide: Slide, first: bool) -> str:
        columns: dict[int, list[Part]] = {}
        for part in slide.parts:
            columns.setdefault(part.column, []).append(part)
        inside = ""
        for parts in columns.values():
            wide = " pictured" * any(part.kind in ("figure", "output") for part in parts)
            inside += f'<div class="column{wide}">{"".join(map(self._part, parts))}</div>'
        notes = markdown(spoken("\n\n".join(slide.notes)))
        level, title = ("h1", titled(slide.title)) if first else ("h2", inline(slide.title))
        return (
            f'<section data-timing="{slide.seconds}"><div class="slide{" opening" * first}"><{level}>{title}</{level}>'
            f'<div class="body columns-{len(columns)}">{inside}</div></div>\n'
            f'<aside class="notes">{notes}</aside></section>'
        )

    def _part(self, part: Part) -> str:
        step = f' fragment" data-fragment-index="{part.step}' if part.step else ""
        if part.kind == "text":
            return f'<div class="text{step}">{markdown(part.text)}</div>'
        if part.kind == "code":
            assert part.cell is not None
            code = _highlighted(part.cell.source, "python")
            return f'<div class="fit printed{step}"><pre class="code" tabindex="0">{code}</pre></div>'
        shown = "".join(self._output(output, step) for output in part.outputs)
        return f'<div class="row">{shown}</div>' if side_by_side(part.outputs) else shown

    def _output(self, output: NotebookNode, step: str) -> str:
        data = output.get("data", {})
        if widgets.VIEW in data:
            view = f'<script type="{widgets.VIEW}">{json.dumps(data[widgets.VIEW])}</script>'
            return f'<div class="fit live{step}"><div>{view}</div></div>'
        if "image/png" in data:
            sizes = output.get("metadata", {}).get("image/png", {})
            name = f"figure-{len(self.pictures) + 1}.png"
            self.pictures[name] = base64.b64decode(data["image/png"])
            room = f"--w: {sizes.get('width', 600)}px; --h: {sizes.get('height', 400)}px"
            alt = html.escape(data.get("text/plain", "").strip())
            return f'<div class="picture{step}"><img src="{name}" alt="{alt}" style="{room}"></div>'
        if "text/html" in data:
            said = re.sub(r'<a [^>]*href="(?!https?:)[^"]*"[^>]*>(.*?)</a>', r"\1", data["text/html"], flags=re.DOTALL)
            return f'<div class="fit live{step}"><div>{said}</div></div>'
        said = output.text if output.output_type == "stream" else data.get("text/plain", "")
        return f'<div class="fit printed{step}"><pre tabindex="0">{html.escape(said.rstrip())}</pre></div>'


def side_by_side(outputs: Sequence[NotebookNode]) -> bool:
    """Whether these are several pictures that are larger beside each other than below each other."""
    sizes = [output.get("metadata", {}).get("image/png", {}) for output in outputs]
    if len(sizes) < 2 or not all("width" in size for size in sizes):
        return False
    wide, high = [size["width"] for size in sizes], [size["height"] for size in sizes]
    return min(ROOM[0] / sum(wide), ROOM[1] / max(high)) > min(ROOM[0] / max(wide), ROOM[1] / sum(high))


def markdown(text: str) -> str:
    return MARKDOWN.render(LOCAL_LINK.sub(r"\1", text))


def inline(text: str) -> str:
    return MARKDOWN.renderInline(LOCAL_LINK.sub(r"\1", text))


def titled(title: str) -> str:
    """`Lecture 04 · Self-attention: every token asks` over three lines."""
    number, _, name = title.rpartition(" · ")
    name, _, more = name.partition(": ")
    return f"<small>{inline(number)}</small>{inline(name)}" + (f"<em>{inline(more)}</em>" if more else "")


def spoken(text: str) -> str:
    """Notes have no folds, and no headings that a slide's own could be taken for."""
    text = re.sub(r"</?details>|\n?^# .*$", "", text, flags=re.MULTILINE)
    text = re.sub(r"<summary>(.*?)</summary>", r"**\1:** ", text)
    return re.sub(r"^#+ (.*)$", r"**\1**", text, flags=re.MULTILINE)


def notebook(slides: Sequence[Slide], built: NotebookNode) -> NotebookNode:
    """The deck as a notebook whose cells have JupyterLab's slide types: what nbconvert and RISE show."""
    cells = [cell for slide in slides for cell in _cells(slide)]
    for number, cell in enumerate(cells):
        cell.id = f"slide-{number}"
    return new_notebook(cells=cells, metadata={**built.metadata, "rise": {"scroll": True}})


def _cells(slide: Slide) -> Iterator[NotebookNode]:
    kind, step, head = "slide", 0, f"## {slide.title}\n\n"
    for part in slide.parts or [Part("text", 0, 0)]:
        if part.step > step:
            kind = "fragment"
        step = part.step
        types = {"slideshow": {"slide_type": kind}}
        if part.kind == "text" or head:
            yield new_markdown_cell(head + LOCAL_LINK.sub(r"\1", part.text), metadata=types)
            types = {"slideshow": {"slide_type": "-"}}
        if part.cell is not None:
            hidden = {"tags": ["hide-input", "remove-input"], "jupyter": {"source_hidden": True}}
            metadata = types if part.kind == "code" else {**types, **hidden}
            yield new_code_cell(part.cell.source, outputs=list(part.outputs), metadata=metadata)
        kind, head = "-", ""
    if slide.notes:
        said = LOCAL_LINK.sub(r"\1", spoken("\n\n".join(slide.notes)))
        yield new_markdown_cell(said, metadata={"slideshow": {"slide_type": "notes"}})
