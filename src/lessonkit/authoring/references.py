"""What a course cites: `docs/references.bib`, and what `[@key]` in the text of a source becomes."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from commandkit.errors import CommandError

ENTRY = re.compile(r"^@(\w+)\{([\w:.-]+),\n(.*?)^\}", re.MULTILINE | re.DOTALL)
FIELD = re.compile(r"^ *(\w+) *= *\{(.*)\},?$")
# `[@key]`, `[@key, section 3]`, `[-@key]` where the text says the names, `[+@key]` in a list for reading. What is
# followed by a parenthesis is a link to a lesson.
CITATION = re.compile(r"\[(?P<form>[-+]?)@(?P<key>[a-z][\w.-]*\d[\w.-]*)(?P<where>,[^\]]*)?\](?!\()")
VENUES = ("journal", "booktitle", "publisher", "institution", "school", "howpublished")


@dataclass(frozen=True)
class Reference:
    """A paper, a book or a page. `authors` are family names; the list is cut after the first where it was long."""

    key: str
    authors: tuple[str, ...]
    cut: bool
    title: str
    venue: str
    year: str
    url: str

    @property
    def names(self) -> str:
        """How a sentence calls the authors: *Gu and Dao*, *Vaswani et al.*"""
        if self.cut or len(self.authors) > 2:
            return f"{self.authors[0]} et al."
        return " and ".join(self.authors)

    @property
    def label(self) -> str:
        return f"{self.names}, {self.year}"

    @property
    def entry(self) -> str:
        """All of it, as a line of text."""
        names = ", ".join(self.authors) + (" et al" if self.cut else "")
        end = "" if self.title.endswith("?") else "."
        return f"{names}. {self.title}{end} {self.venue}, {self.year}."


def read(path: Path) -> dict[str, Reference]:
    """The references of a BibTeX file that has a field a line, by key. Raises CommandError with file and line."""
    text = path.read_text(encoding="utf-8")
    found: dict[str, Reference] = {}
    for entry in ENTRY.finditer(text):
        key, line = entry[2], text.count("\n", 0, entry.start()) + 1
        fields = {field[1].lower(): field[2] for row in entry[3].splitlines() if (field := FIELD.match(row))}
        if missing := {"author", "title", "year"} - fields.keys():
            raise CommandError(f"{path}:{line}: {key} has no {', '.join(sorted(missing))}")
        if key in found:
            raise CommandError(f"{path}:{line}: a second {key}")
        if not CITATION.fullmatch(f"[@{key}]"):
            raise CommandError(f"{path}:{line}: {key} cannot be cited: a key is a small letter, more, and a year")
        people = [person for person in fields["author"].split(" and ") if person != "others"]
        found[key] = Reference(
            key=key,
            authors=tuple(person.partition(",")[0].strip("{}") for person in people),
            cut=fields["author"].endswith(" and others"),
            title=fields["title"],
            venue=next((fields[name] for name in VENUES if name in fields), ""),
            year=fields["year"],
            url=fields.get("url", ""),
        )
    if len(found) != text.count("\n@") + text.startswith("@"):
        raise CommandError(f"{path}: an entry that is not understood (a field a line, and }} on a line of its own)")
    return found


def cited(text: str, references: Mapping[str, Reference]) -> str:
    """Markdown with links in the place of its citations. ValueError for a key that `references` does not have."""

    def link(found: re.Match[str]) -> str:
        if found["key"] not in references:
            raise ValueError(f"[@{found['key']}] is no entry of docs/references.bib")
        it = references[found["key"]]
        where = found["where"] or ""
        if found["form"] == "+":
            return f"{it.names}, {_linked(f'*{it.title}*', it.url)} ({it.year}{where})"
        return _linked(it.year if found["form"] == "-" else it.label, it.url) + where

    return CITATION.sub(link, text)


def keys(text: str) -> Iterator[str]:
    """The keys that a source cites, in order."""
    return (found["key"] for found in CITATION.finditer(text))


def _linked(words: str, url: str) -> str:
    return f"[{words}]({url})" if url else words
