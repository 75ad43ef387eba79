"""Pages that are light and can be read on a phone: what Sphinx and its theme wrote, changed in a few places."""

import base64
import hashlib
import re
import struct
from collections.abc import Collection
from pathlib import Path
from typing import NamedTuple

from nbformat.notebooknode import NotebookNode

from lessonkit.authoring.site import dark

SMALLEST = 9.0     # CSS pixels: the least that the letters of a picture may be on a phone
USUAL_TEXT = 32 / 3  # 8 points, of a picture that does not say it
TEXT_OF_PNG = "Smallest text"  # the note in a PNG: how high its smallest letters are at full size, in CSS pixels

IMAGE = re.compile(r"<img [^>]*>")
IN_WIDGET = re.compile(r'<img src=\\"data:image/png;base64,(?P<data>[\w+/=]+)\\" width=\\"(?P<width>\d+)\\"(?! style)')
WIDGET_STATE = re.compile(r'<script type="application/vnd\.jupyter\.widget-state\+json">.*?</script>', re.DOTALL)
SRC, WIDTH = re.compile(r' src="([^"]+)"'), re.compile(r' width="(\d+)')
ICONS_BY_SCRIPT = re.compile(r'\s*<script [^>]*src="[^"]*scripts/fontawesome\.js[^"]*"></script>')
ICON_RULE = re.compile(r'(?P<names>\.fa-[\w-]+(?:,\.fa-[\w-]+)*)\{--fa:"[^}]*\}')
# A picture with links over it: they lie where its frame has them, so that one is as wide.
LINKED = re.compile(r'(<div style="position:relative;)(max-width:\d+px"><img [^>]*style="(min-width:\d+px;))')
EMPTY_HEADER = re.compile(r"<th( [^>]*)?>\s*(?:<p>\s*</p>)?\s*</th>")
STYLES = "_static/styles/pydata-sphinx-theme.css"
# Rules for code, and the spans that they are for: a third of a lecture's page are spans around names and brackets.
CODE_STYLES = "_static/pygments.css"
CODE_RULE = re.compile(r'html\[data-theme="(?P<theme>\w+)"\] \.highlight (?:\.(?P<kind>\w+) )?\{(?P<looks>[^}]*)\}')
CODE_SPAN = re.compile(r'<span class="(?P<kind>\w+)">(?P<text>[^<]*)</span>')


class Weight(NamedTuple):
    """Bytes that a browser reads for a page, not compressed."""

    first: int     # to show it: the page without its widgets, style sheets, scripts, the fonts of icons and formulas
    pictures: int  # as they come into sight
    widgets: int


def fold_setup(notebook: NotebookNode) -> None:
    """Fold the first code cell where it imports: nobody reads it first. The button says how long it is."""
    cell = next((cell for cell in notebook.cells if cell.cell_type == "code"), None)
    if cell is None or not re.search(r"^\s*(?:import|from)\s", cell.source, re.MULTILINE):
        return
    count = len(cell.source.strip().splitlines())
    lines = f"{count} line{'s' * (count > 1)}"
    cell.metadata["tags"] = [*{*cell.metadata.get("tags", []), "hide-input"}]
    cell.metadata["mystnb"] = {
        "code_prompt_show": f"Show the setup ({lines})",
        "code_prompt_hide": f"Hide the setup ({lines})",
    }


def finish(site: Path) -> None:
    """Change the pages below `site`.

    Pictures are read as they come into sight, and are not shown so small that their letters could not be read: where a
    phone is narrower they scroll in a box. Icons come from the theme's font and not from its script, which is 1.6 MB.
    A picture of a notebook has a twin in the dark palette. An empty cell at the head of a table is no header. What code
    shows as plain text has no markup.
    """
    plain = _plain(site)
    for path in sorted(site.rglob("*.html")):
        page = path.read_text(encoding="utf-8")
        state = WIDGET_STATE.search(page)
        head, widgets, rest = (page[: state.start()], state[0], page[state.end() :]) if state else (page, "", "")
        changed = _page(head, path, site, plain) + IN_WIDGET.sub(_in_widget, widgets) + _page(rest, path, site, plain)
        if changed != page:
            path.write_text(changed, encoding="utf-8")
    styles = site / STYLES
    if styles.is_file():
        used = _icons(site)
        rules = styles.read_text(encoding="utf-8")
        styles.write_text(
            ICON_RULE.sub(lambda rule: rule[0] if used & {*re.findall(r"fa-[\w-]+", rule["names"])} else "", rules),
            encoding="utf-8",
        )


def _plain(site: Path) -> set[str]:
    """The kinds of code that have the colour of all code, in each theme, and nothing else."""
    styles = site / CODE_STYLES
    rules = [*CODE_RULE.finditer(styles.read_text(encoding="utf-8"))] if styles.is_file() else []
    colours = {rule["theme"]: re.search(r"(?<!-)color: *[^;\s]+", rule["looks"]) for rule in rules if not rule["kind"]}
    usual = {theme: colour and colour[0] for theme, colour in colours.items()}
    kinds = {rule["kind"] for rule in rules if rule["kind"]}
    return kinds - {rule["kind"] for rule in rules if rule["looks"].strip(" ;") != usual.get(rule["theme"])}


def _page(page: str, path: Path, site: Path, plain: Collection[str]) -> str:
    page = ICONS_BY_SCRIPT.sub("", page)
    page = CODE_SPAN.sub(lambda span: span["text"] if span["kind"] in plain else span[0], page)
    page = EMPTY_HEADER.sub(lambda cell: f"<td{cell[1] or ''}></td>", page)
    page = IMAGE.sub(lambda image: _image(image[0], path, site), page)
    return LINKED.sub(r"\1\3\2", page)


def _image(image: str, path: Path, site: Path) -> str:
    """A picture that is read late; one of a notebook, in a box and with its least width."""
    if "loading=" in image or (src := SRC.search(image)) is None:
        return image
    if src[1].startswith("data:image/png;base64,"):  # a page is read whole before it is shown: a file is not
        data = base64.b64decode(src[1].partition(",")[2])
        file = site / "_images" / f"{hashlib.sha256(data).hexdigest()}.png"
        file.parent.mkdir(exist_ok=True)
        file.write_bytes(data)
        image = image.replace(src[0], f' src="{"../" * (len(path.relative_to(site).parts) - 1)}_images/{file.name}"')
    else:
        file = (path.parent / src[1]).resolve()
    image = image.replace("<img ", '<img loading="lazy" decoding="async" ', 1)
    width = WIDTH.search(image)
    if file.suffix != ".png" or not file.is_file() or width is None:
        return image
    least = _least_width(int(width[1]), text_size(file.read_bytes()))
    if ' style="' in image:
        image = image.replace(' style="', f' style="min-width:{least}px;', 1)
    else:
        image = image.replace("<img ", f'<img style="min-width:{least}px" ', 1)
    image = _in_two_palettes(image, file)
    return f'<span class="wide">{image}</span>' if "max-width" not in image else image


def _in_two_palettes(image: str, file: Path) -> str:
    """The picture as it was drawn, and beside it its twin for dark pages: a browser loads the one that it shows."""
    twin = file.with_suffix(f".{dark.MARK}.png")
    if not twin.is_file():
        twin.write_bytes(dark.dark_png(file.read_bytes()))
    light, night = (
        re.sub(r' class="([^"]*)"', rf' class="\1 {name}"', image) if ' class="' in image
        else image.replace("<img ", f'<img class="{name}" ', 1)
        for name in ("in-light", "in-dark")
    )  # fmt: skip
    return light + night.replace(f"{file.name}\"", f"{twin.name}\"")


def _in_widget(image: re.Match) -> str:
    head = base64.b64decode(image["data"][:4000])
    least = _least_width(int(image["width"]), text_size(head))
    return f'{image[0]} style=\\"min-width:{least}px\\"'


def _least_width(width: int, letters: float) -> int:
    """The least width of a picture, of which the letters are so high at its full width."""
    return min(width, round(width * SMALLEST / letters))


def text_size(png: bytes) -> float:
    """How high the smallest letters of a PNG are at full size, in CSS pixels: as its note says, or usually."""
    at = 8
    while at + 8 <= len(png):
        length, kind = struct.unpack(">I4s", png[at : at + 8])
        if kind == b"IDAT":
            break
        if kind == b"tEXt":
            name, _, value = png[at + 8 : at + 8 + length].partition(b"\0")
            if name.decode("latin-1") == TEXT_OF_PNG:
                return float(value)
        at += 12 + length
    return USUAL_TEXT


def _icons(site: Path) -> set[str]:
    """The icons' names on pages and in scripts."""
    sources = [*site.rglob("*.html"), *site.glob("_static/**/*.js")]
    texts = (path.read_text(encoding="utf-8") for path in sources if path.name != "fontawesome.js")
    return {name for text in texts for name in re.findall(r"\bfa-[a-z][\w-]*", text)}


def weigh(site: Path, name: str) -> Weight:
    """What a browser reads for the page `name`, as it lies on the disk."""
    path = site / name
    page = path.read_text(encoding="utf-8")
    state = WIDGET_STATE.search(page)
    widgets = len(state[0].encode()) if state else 0
    if state:
        page = page.replace(state[0], "")
    files = set()
    for tag in re.findall(r"<(?:script|link) [^>]*>", page):
        address = re.search(r' (?:src|href)="([^"?#]+)', tag)
        if address and (tag.startswith("<script") or 'rel="stylesheet"' in tag) and "://" not in address[1]:
            files.add((path.parent / address[1]).resolve())
    fonts = [site / "_static" / "vendor/fontawesome/webfonts/fa-solid-900.woff2"]
    fonts += [site / "_static/formulas.woff"] if "<math" in page else []
    shown = (tag for tag in IMAGE.findall(page) if "in-dark" not in tag)  # of two palettes a browser reads one
    pictures = {(path.parent / src).resolve() for tag in shown for src in SRC.findall(tag)}
    size = sum(file.stat().st_size for file in (*files, *fonts) if file.is_file())
    return Weight(
        first=len(page.encode()) + size,
        pictures=sum(file.stat().st_size for file in pictures if file.is_file()),
        widgets=widgets,
    )
