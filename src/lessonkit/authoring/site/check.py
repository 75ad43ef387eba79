"""What must be true of the built pages: links lead somewhere, pictures have words, nothing is loaded from elsewhere."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

from lessonkit.authoring.site.bar import SLIDES

LOADED_BY_CSS = re.compile(r"""(?:url\(|@import)\s*["']?((?:https?:)?//[^"')\s]+)""")
LOADS = {("script", "src"), ("img", "src"), ("iframe", "src"), ("source", "src"), ("link", "href")}


@dataclass
class Page(HTMLParser):
    """The links, names and pictures of one page."""

    links: list[tuple[str, bool]] = field(default_factory=list)  # target, and whether the page loads it by itself
    names: set[str] = field(default_factory=set)
    without_words: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        given = dict(attributes)
        self.names |= {value for name in ("id", "name") if (value := given.get(name))}
        for name in ("href", "src"):
            if value := given.get(name):
                # rel="canonical", "next", "search" only name an address.
                named = tag == "link" and given.get("rel") not in ("stylesheet", "preload", "icon", "shortcut icon")
                self.links.append((value, (tag, name) in LOADS and not named))
        if tag == "img" and not (given.get("alt") or "").strip() and given.get("role") != "presentation":
            self.without_words.append((given.get("src") or "")[:80])


def faults(site: Path) -> Iterator[str]:
    """A line for each fault of the built site: the page, and what is wrong there."""
    built = sorted(site.rglob("*.html"))
    pages = {path: _read(path) for path in built if path.relative_to(site).parts[0] not in ("_static", SLIDES)}
    for path, page in pages.items():
        here = path.relative_to(site).as_posix()
        for picture in page.without_words:
            yield f"{here}: a picture without alt text: {picture}"
        for link, loaded in dict.fromkeys(page.links):
            address = urlsplit(link)
            if address.scheme or address.netloc:
                if loaded and address.scheme != "data":
                    yield f"{here}: loads from elsewhere: {link[:80]}"
                continue
            target = (path.parent / unquote(address.path)).resolve() if address.path else path
            if not target.is_file():
                yield f"{here}: a link to nothing: {link}"
            elif address.fragment and target in pages and unquote(address.fragment) not in pages[target].names:
                yield f"{here}: a link to a place that the page does not have: {link}"
    for path in sorted(site.rglob("*.css")):
        for address in LOADED_BY_CSS.findall(path.read_text(encoding="utf-8")):
            yield f"{path.relative_to(site).as_posix()}: loads from elsewhere: {address[:80]}"


def _read(path: Path) -> Page:
    page = Page()
    page.feed(path.read_text(encoding="utf-8"))
    return page
