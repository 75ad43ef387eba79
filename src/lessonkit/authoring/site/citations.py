"""The book's references: a page of all that the course cites, and links to it where the notebooks link to the paper."""

import re
from collections.abc import Mapping

from docutils import nodes
from sphinx.transforms.post_transforms import SphinxPostTransform

from lessonkit.authoring.references import Reference, read

MARKER = re.compile(r"^<!-- references -->$", re.MULTILINE)  # a line of its own: elsewhere it is only spoken of
PAGE = "docs/references.md"
FILE = "docs/references.bib"
LINK = re.compile(r"\[(?P<words>[^\[\]]+)\]\((?P<url>https?://[^)\s]+)\)")
ANCHOR = re.compile(r"(?:^|/)references\.html#([\w.-]+)$")


def led(text: str, references: Mapping[str, Reference], page: str) -> str:
    """Markdown whose links of the form *authors, year* lead to `page`, the book's; others still lead to the paper."""
    by_url = {it.url: it for it in references.values() if it.url}

    def lead(link: re.Match[str]) -> str:
        it = by_url.get(link["url"])
        if it is None or link["words"].replace("\n", " ") not in (it.label, it.year):
            return link[0]
        return f"[{link['words']}]({page}#{it.key})"

    text = LINK.sub(lead, text)
    for it in references.values():
        if not it.url:
            text = re.sub(rf"(?<!\[)\b{re.escape(it.label)}\b", f"[{it.label}]({page}#{it.key})", text)
    return text


def filled(text: str, references: Mapping[str, Reference], lectures: Mapping[str, str]) -> str:
    """The page with its list. `lectures` are the texts of the lectures by their links from the page, *04* first."""
    entries = []
    for it in sorted(references.values(), key=lambda it: (it.label.casefold(), it.title)):
        said = ", ".join(f"[{link[0]}]({link[1]})" for link in _citing(it, lectures))
        where = f" Cited in {said}." if said else ""
        title = f"[{it.title}]({it.url})" if it.url else f"*{it.title}*"
        line = it.entry.replace(it.title, title, 1)
        entries.append(f"{{#{it.key} .reference}}\n{line}{where}\n")
    return MARKER.sub(lambda _: "\n".join(entries), text)


def _citing(it: Reference, lectures: Mapping[str, str]) -> list[tuple[str, str]]:
    words = [it.url] if it.url else [it.label, f"*{it.title}*", f"{it.names} ({it.year})", f"({it.year})"]
    return [
        (re.sub(r".*/(\d\d)_.*", r"lecture \1", path), path)
        for path, text in lectures.items()
        if any(each in text for each in words) and it.authors[0] in text
    ]


class Hovers(SphinxPostTransform):
    """A link to a reference says what it is: the script of the pages shows it beside the link."""

    default_priority = 900  # the links are resolved

    def run(self, **kwargs) -> None:
        path = self.env.srcdir / FILE
        references = read(path) if path.is_file() else {}
        by_url = {it.url: it for it in references.values() if it.url}
        if self.env.docname == PAGE.removesuffix(".md"):
            return
        for link in self.document.findall(nodes.reference):
            uri = link.get("refuri", "")
            found = ANCHOR.search(uri)
            it = references.get(found[1]) if found else by_url.get(uri)
            if it is not None:
                link["classes"].append("cite")
                link["reftitle"] = it.entry
