"""Which lesson teaches which idea of the decks: the table docs/coverage.md, made of the marks in the lectures.

    python -m attncourse_lessons.coverage           says whether the file is what the marks say
    python -m attncourse_lessons.coverage --write   writes it
"""

import re
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

import jupytext

from attncourse_lessons import course
from attncourse_lessons.slides.ideas import BY_LETTER, IDEAS, LEFT_OUT

FILE = "docs/coverage.md"
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
HEAD = """# What of the decks is taught where

The course grew from five decks. This table says for each idea of theirs which section teaches it. It is made of marks
in the lectures' sources (`# %% [markdown] teaches="…"`) by `python -m attncourse_lessons.coverage --write`; a test
holds both together.

| | deck |
|---|---|
"""


class Place(NamedTuple):
    """A section of a lecture."""

    lesson: str
    section: str


def places(lecture: str, lesson: str) -> dict[str, Place]:
    """Where a lecture, the text of its source, teaches what it is marked with.

    A mark is about the section in which its cell ends, or, as "idea @ Scores", about another of the cell's.

    >>> places('# %% [markdown]\\n# ## Scores\\n\\n# %% teaches="dot products"\\n1 + 1\\n', "lookup")
    {'dot products': Place(lesson='lookup', section='Scores')}
    """
    found: dict[str, Place] = {}
    section = ""
    for cell in jupytext.reads(lecture, fmt="py:percent").cells:
        if cell.cell_type == "markdown":
            section = (HEADING.findall(cell.source) or [section])[-1]
        for name in filter(None, cell.metadata.get("teaches", "").split("; ")):
            name, _, within = name.partition(" @ ")
            titles = [title for title in HEADING.findall(cell.source) if within and title.startswith(within)]
            found.setdefault(name, Place(lesson, *titles or [section]))
    return found


@cache
def taught() -> dict[str, list[Place]]:
    """The sections that are marked with an idea, by its name, in the order of the course."""
    found: dict[str, list[Place]] = {}
    for lesson in course.lessons:
        for name, place in places((lesson.folder / "lecture.py").read_text(encoding="utf-8"), lesson.name).items():
            found.setdefault(name, []).append(place)
    return found


def table() -> str:
    """The text of docs/coverage.md."""
    numbers = {lesson.name: lesson.number for lesson in course.lessons}
    where = taught()
    lines = [HEAD + "\n".join(f"| {letter} | {deck} |" for letter, deck in BY_LETTER.items()), ""]
    lines += ["| idea | decks | taught in |", "|---|---|---|"]
    for idea in IDEAS:
        said = "; ".join(f"{numbers[place.lesson]} *{place.section}*" for place in where.get(idea.name, []))
        lines.append(f"| {idea.name} | {' '.join(idea.letters)} | {said or f'nowhere: {LEFT_OUT[idea.name]}'} |")
    return "\n".join(lines) + "\n"


def main(argv: Sequence[str] | None = None) -> int:
    file = Path(__file__).parents[2] / FILE
    if "--write" in (sys.argv[1:] if argv is None else argv):
        file.write_text(table(), encoding="utf-8")
    same = file.exists() and file.read_text(encoding="utf-8") == table()
    print(f"{FILE} is what the marks say" if same else f"{FILE} is not what the marks say: write it with --write")
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main())
