"""A notebook as HTML for paper: no folds, no buttons, no widgets, and code as it stands on the page."""

import html
import posixpath
import re
from pathlib import Path, PurePosixPath

from commandkit.commands import typed
from commandkit.errors import require_extra

with require_extra(typed("print"), "print"):
    from bs4 import BeautifulSoup, Tag
    from markdown_it import MarkdownIt
    from mdit_py_plugins.anchors import anchors_plugin
    from mdit_py_plugins.dollarmath import dollarmath_plugin
    from nbformat.notebooknode import NotebookNode
    from pygments import highlight
    from pygments.formatters import HtmlFormatter
    from pygments.lexers import PythonLexer

    from lessonkit.authoring.site import npm

# What the web book folds: setup, and assertions that guard our continuous integration.
FOLDED = "hide-input"
CAPTION = "caption"  # the tag of a text cell below a figure
LOOK = HtmlFormatter(style="a11y-light", cssclass="code")
MATHJAX = PurePosixPath(npm.MATHJAX.file).name
# A box is known by its first words, as in the web book.
BOXES = {"On the slide": "mistake", "A common mistake": "mistake", "Check yourself": "check-yourself"}


def math(content: str, options: dict) -> str:
    """A formula as MathJax finds it, inside of an element of the class `math`."""
    left, right = (r"\[", r"\]") if options["display_mode"] else (r"\(", r"\)")
    return f"{left}{html.escape(content, quote=False)}{right}"


def parser() -> MarkdownIt:
    """The Markdown of the web book (MyST's): CommonMark with tables, formulas between dollars, names for headings."""
    found = MarkdownIt("commonmark").enable("table")
    return found.use(dollarmath_plugin, double_inline=True, renderer=math).use(anchors_plugin, max_level=3)


def soup(text: str) -> BeautifulSoup:
    return BeautifulSoup(text, "html.parser")


def markdown(text: str) -> BeautifulSoup:
    """Markdown as a tree, its boxes with a class."""
    tree = soup(parser().render(re.sub(r"\A<!-- Built from .*? -->\n", "", text)))
    for box in tree.find_all("blockquote"):
        words = box.get_text().strip()
        box["class"] = next((look for start, look in BOXES.items() if words.startswith(start)), "quotation")
    for fold in tree.find_all("details"):  # in raw HTML MathJax looks only where it is told to
        fold["class"] = " ".join([*fold.get_attribute_list("class"), "math-inside"])
    return tree


def body(notebook: NotebookNode) -> BeautifulSoup:
    """All cells of a notebook, one `div.cell` each; a cell that the web book folds shows its outputs alone."""
    cells = []
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            looks = " ".join(["cell", "words", *({CAPTION} & {*cell.metadata.get("tags", [])})])
            cells.append(f'<div class="{looks}">{markdown(cell.source)}</div>')
        elif cell.cell_type == "code":
            shown = "" if FOLDED in cell.metadata.get("tags", []) else highlight(cell.source, PythonLexer(), LOOK)
            said = "".join(map(output, cell.get("outputs", [])))
            if shown or said:
                cells.append(f'<div class="cell">{shown}{said}</div>')
    return soup("".join(cells))


def output(given: NotebookNode) -> str:
    """What a cell printed or showed, as HTML. Of several forms a picture is what paper can show best."""
    if given.output_type == "stream":
        return f'<pre class="said">{html.escape(given.text)}</pre>'
    data = given.get("data", {})
    if "image/png" in data:
        size = given.get("metadata", {}).get("image/png", {})
        words = html.escape(data.get("text/plain", ""))
        width = f' style="max-width: min(100%, {size["width"]}px)"' if "width" in size else ""
        picture = data["image/png"].replace("\n", "")
        return f'<figure><img src="data:image/png;base64,{picture}" alt="{words}"{width}></figure>'
    if "text/html" in data and "<audio" not in data["text/html"]:
        return f'<div class="shown">{data["text/html"]}</div>'
    return f'<pre class="said">{html.escape(data["text/plain"])}</pre>' if "text/plain" in data else ""


def relink(tree: Tag, page: str, chapters: dict[str, str], prefix: str) -> None:
    """Give the places of a page (its path in the course's folder) names of their own; links lead to them.

    `chapters` says which name a page of the course has in this book. What is not in it is no link on paper.
    """
    names = {}
    for number, each in enumerate(tree.find_all(id=True), start=1):
        names[each["id"]] = f"{prefix}-{number}"  # of letters that every PDF can write
        each["id"] = names[each["id"]]
    here = PurePosixPath(page).parent.as_posix()
    for link in tree.find_all("a", href=True):
        address, _, anchor = str(link["href"]).partition("#")
        if re.match(r"[a-z]+:", address) or "page" in link.get_attribute_list("class"):
            continue
        if not address and anchor in names:
            link["href"] = f"#{names[anchor]}"
        elif (target := posixpath.normpath(posixpath.join(here, address))) in chapters and address:
            link["href"] = f"#{chapters[target]}"
        else:
            link.unwrap()


def title_of(fold: Tag) -> str:
    """What is written on a fold."""
    summary = fold.find("summary")
    return summary.get_text().strip() if summary else ""


def inside(fold: Tag) -> str:
    """The HTML of what a fold hides."""
    return "".join(str(child) for child in fold.children if getattr(child, "name", None) != "summary")


def style(name: str, size: str) -> str:
    """The style sheet `name` of this room, with what all have, for paper of a size such as A4."""
    sheets = [(Path(__file__).parent / each).read_text(encoding="utf-8") for each in ("paper.css", name)]
    return "\n".join([f"@page {{ size: {size}; }}", *sheets])


def document(title: str, style: str, content: str) -> str:
    """A whole page of HTML, to lie beside MathJax's script."""
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{html.escape(title)}</title>
<style>{LOOK.get_style_defs(".code")}
{style}</style>
<script>MathJax = {{
  tex: {{inlineMath: [["\\\\(", "\\\\)"], ["$", "$"]]}},
  options: {{ignoreHtmlClass: "paper", processHtmlClass: "math|math-inside", enableMenu: false,
             menuOptions: {{settings: {{assistiveMml: false}}}}}},
  svg: {{fontCache: "global"}}
}};</script><script src="{MATHJAX}"></script></head>
<body class="paper">{content}</body></html>
"""
