"""The book's glossary: a table in docs/glossary.md, a page of definitions in the book, links at a term's first use.

A row is `| term; other names | what it means | our image | lecture |`. The first name is the one that the page lists.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from docutils import nodes
from sphinx import addnodes
from sphinx.transforms.post_transforms import SphinxPostTransform

FILE = "glossary.json"  # what the extension reads
ROW = re.compile(r"^\|(?! *(?:term;|-)) *([^|]+?) *\| *([^|]+?) *\| *([^|]*?) *\| *([^|]*?) *\|$", re.MULTILINE)
TABLE = re.compile(r"^\| term.*?(?=^(?!\|)|\Z)", re.MULTILINE | re.DOTALL)
NOT_IN = (
    nodes.title, nodes.reference, nodes.literal, nodes.literal_block, nodes.math, nodes.math_block, nodes.raw,
    nodes.comment, addnodes.pending_xref, addnodes.download_reference,
)  # fmt: skip
CODE = ("cell_code", "cell_code_output", "mime_bundle")
OF = "lectures/"  # the pages that link their terms
ANCHOR = re.compile(r"(?:^|/)glossary\.html#term-")


@dataclass(frozen=True)
class Term:
    """A term, its other names, its meaning, our image of it, and a Markdown link to the lecture that introduces it."""

    name: str
    others: tuple[str, ...]
    meaning: str
    image: str
    lecture: str

    @property
    def names(self) -> tuple[str, ...]:
        return (self.name, *self.others)


def terms(text: str) -> Iterator[Term]:
    """The terms of a page's table."""
    for row in ROW.finditer(text):
        name, *others = (each.strip() for each in row[1].split(";"))
        yield Term(name, tuple(others), row[2], row[3], row[4])


def page(text: str) -> str:
    """The page with a list of definitions in the place of its table."""
    found = sorted(terms(text), key=lambda term: term.name.casefold())
    entries = []
    for term in found:
        image = f" *Our image:* {term.image}." if term.image else ""
        names = "\n".join(term.names)
        entries.append(f"{names}\n  {term.meaning}.{image} Introduced in {term.lecture}.\n")
    listed = ":::{glossary}\n" + "\n".join(entries) + ":::\n"
    return TABLE.sub(lambda _: listed, text, count=1)


def keep(text: str, folder: Path) -> None:
    """Write the terms of the page where the extension reads them."""
    (folder / FILE).write_text(json.dumps([asdict(term) for term in terms(text)]), encoding="utf-8")


def _kept(folder: Path) -> list[Term]:
    path = folder / FILE
    rows = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else []
    return [Term(**row | {"others": tuple(row["others"])}) for row in rows]


class FirstUses(SphinxPostTransform):
    """A term's first use on a lecture's page links to the glossary."""

    default_priority = 5  # before links are resolved

    def run(self, **kwargs) -> None:
        if not self.env.docname.startswith(OF):
            return
        left = {name.casefold(): (name, term.name) for term in _kept(Path(self.env.srcdir)) for name in term.names}
        if not left:
            return
        longest_first = "|".join(re.escape(name) for name in sorted(left, key=len, reverse=True))
        pattern = re.compile(rf"(?<![\w-])(?:{longest_first})(?:s|es)?(?![\w-])", re.IGNORECASE)
        for text in [*self.document.findall(nodes.Text)]:
            if not _inside(text):
                self._link(text, pattern, left)

    def _link(self, text: nodes.Text, pattern: re.Pattern[str], left: dict[str, tuple[str, str]]) -> None:
        made: list[nodes.Node] = []
        end = 0
        for found in pattern.finditer(text):
            said = found[0]
            key = next((k for k in (said.casefold(), said.casefold()[:-1], said.casefold()[:-2]) if k in left), None)
            if key is None or (_spelled(left[key][0]) and not said.startswith(left[key][0])):
                continue
            term = left[key][1]
            for name in [name for name, (_, of) in left.items() if of == term]:
                del left[name]
            link = addnodes.pending_xref(
                "", nodes.inline("", said), refdomain="std", reftype="term", reftarget=term, refexplicit=True,
                refdoc=self.env.docname, refwarn=True,
            )  # fmt: skip
            made += [nodes.Text(text[end : found.start()]), link]
            end = found.end()
        if made:
            text.parent.replace(text, [*made, nodes.Text(text[end:])])


class Meanings(SphinxPostTransform):
    """A link to the glossary says what the term means."""

    default_priority = 900

    def run(self, **kwargs) -> None:
        meanings = {term.name.casefold(): term.meaning for term in _kept(Path(self.env.srcdir))}
        for link in self.document.findall(nodes.reference):
            if ANCHOR.search(link.get("refuri", "")) and (target := link.get("refuri").rpartition("#term-")[2]):
                link["classes"].append("term")
                name = target.replace("-", " ").casefold()
                link["reftitle"] = next(
                    (said for term, said in meanings.items() if re.sub(r"\W+", " ", term) == name), ""
                )


def _spelled(name: str) -> bool:
    """Whether a name means something only as it is spelled: *ALiBi*, *MLA*."""
    return any(letter.isupper() for letter in name)


def _inside(node: nodes.Node) -> bool:
    while (node := node.parent) is not None:
        if isinstance(node, NOT_IN):
            return True
        if isinstance(node, nodes.Element) and node.get("nb_element") in CODE:
            return True
    return False
