"""Numbers of figures and formulas, *Figure 4.2* and *(4.1)*: the second figure and the first formula of lesson 04.

In a source, a code cell ends with its caption, and a formula that others refer to with its name:

    #| caption: Who attends to whom. Rows ask,
    #|   columns answer.
    #| label: who-to-whom

    $$ A = ... $$ (eq:attention)

`[@fig:who-to-whom]` and `[@eq:attention]` refer to them, from any lesson.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from commandkit.errors import CommandError
from lessonkit.course import Course, Lesson

OPTIONS = re.compile(
    r"^#\| caption: (?P<caption>.*(?:\n#\|   .*)*)(?:\n#\| label: (?P<label>[a-z][a-z0-9-]*))?\n?", re.MULTILINE
)
FORMULA = re.compile(r"\$\$(?P<formula>(?:(?!\$\$).)*?)\s*\$\$ \(eq:(?P<label>[a-z][a-z0-9-]*)\)", re.DOTALL)
REFERENCE = re.compile(r"\[@(?P<kind>fig|eq):(?P<label>[a-z][a-z0-9-]*)\]")
KINDS = {"fig": "figure", "eq": "equation"}


@dataclass(frozen=True)
class Place:
    """Where a figure or formula is: the lesson, and which of its kind there."""

    kind: str  # fig or eq
    lesson: Lesson
    count: int

    @property
    def number(self) -> str:
        return f"{int(self.lesson.number)}.{self.count}"

    @property
    def anchor(self) -> str:
        return f"{KINDS[self.kind]}-{self.number.replace('.', '-')}"

    @property
    def words(self) -> str:
        return f"Figure {self.number}" if self.kind == "fig" else f"({self.number})"


def places(course: Course) -> dict[str, Place]:
    """Every figure and formula of the lectures that has a name, as `fig:name` and `eq:name`.

    Raises CommandError where two have one name.
    """
    found: dict[str, Place] = {}
    for lesson in course.lessons:
        path = lesson.folder / "lecture.py"
        if not path.is_file():
            continue
        for kind, label, count in named(path.read_text(encoding="utf-8")):
            if (name := f"{kind}:{label}") in found:
                raise CommandError(f"{path}: a second {name}; the first is in lesson {found[name].lesson.number}")
            found[name] = Place(kind, lesson, count)
    return found


def named(text: str) -> Iterator[tuple[str, str, int]]:
    """Of a source's text, each named figure and formula: its kind, its name, and its count there."""
    for count, options in enumerate(OPTIONS.finditer(text), start=1):
        if options["label"]:
            yield "fig", options["label"], count
    plain = re.sub(r"^# ?", "", text, flags=re.MULTILINE)
    for count, formula in enumerate(FORMULA.finditer(plain), start=1):
        yield "eq", formula["label"], count


def captioned(code: str) -> tuple[str, str | None]:
    """A code cell's text without its caption, and the caption."""
    options = OPTIONS.search(code)
    if options is None:
        return code, None
    caption = re.sub(r"\n#\|\s+", " ", options["caption"])
    return (code[: options.start()] + code[options.end() :]).rstrip("\n"), caption


def caption(words: str, place: Place) -> str:
    """The text cell that stands below a figure."""
    return f'<a id="{place.anchor}"></a>**{place.words}.** {words}'


def numbered(text: str, known: Mapping[str, Place]) -> str:
    """Markdown in which each named formula has its number, and a place that a link can lead to."""

    def tag(found: re.Match[str]) -> str:
        place = known.get(f"eq:{found['label']}")
        if place is None:
            raise ValueError(f"eq:{found['label']}: only a lecture's formulas have numbers")
        return f'<a id="{place.anchor}"></a>\n\n$${found["formula"].rstrip()} \\tag{{{place.number}}}$$'

    return FORMULA.sub(tag, text)


def referred(text: str, known: Mapping[str, Place], here: Lesson, path: str) -> str:
    """Markdown with links in the place of references. `path` leads from its notebook to the lectures' folder.

    ValueError for a name that there is not.
    """

    def link(found: re.Match[str]) -> str:
        name = f"{found['kind']}:{found['label']}"
        if name not in known:
            raise ValueError(f"[@{name}] is no figure or formula of a lecture")
        place = known[name]
        page = "" if place.lesson == here and not path else path + place.lesson.lecture_notebook.rpartition("/")[2]
        return f"[{place.words}]({page}#{place.anchor})"

    return REFERENCE.sub(link, text)
