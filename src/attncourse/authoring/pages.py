"""`python -m attncourse.authoring.pages`: the tables of START.md and docs/instructors.md, counted, not typed."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import nbformat

from attncourse import exercises
from attncourse._needs import CommandError

# Seven weeks of the fourteen lectures: from the lookup to a trained translator, by the shortest way.
SHORT = (("00", "02"), ("03",), ("04", "05"), ("06", "07"), ("08",), ("09",), ("10",))


@dataclass(frozen=True)
class Unit:
    """A lecture and its assignment. Paths are from the course's folder, minutes a learner's, by our estimate."""

    number: str
    lecture: str
    title: str
    reading: int  # minutes
    assignment: str
    task: str
    working: int  # minutes, with the written questions and without the extension
    checked: float  # points that the checks give, without extra credit
    marked: float  # points that a person gives
    extra: float


def units(root: Path) -> list[Unit]:
    """Every lecture of the course at `root` with its assignment, in order.

    Raises CommandError where a lecture does not open with its title and its minutes, or has not one assignment, whose
    table says how long its written questions take.
    """
    found = []
    for path in sorted(root.glob("lectures/*.ipynb")):
        number = path.name[:2]
        start = nbformat.read(path, 4).cells[0].source
        heading = re.match(rf"# Lecture {number} · ([^:\n]+)", start)
        minutes = re.search(r"^\*About (\d+) minutes", start, re.MULTILINE)
        notebooks = sorted(root.glob(f"assignments/a{number}/*.ipynb"))
        if heading is None or minutes is None or len(notebooks) != 1:
            raise CommandError(f"{path}: starts with no title and minutes, or has not one assignment")
        cells = nbformat.read(notebooks[0], 4).cells
        writing = re.search(r"^\|.* to answer in words \| [●○]+ \| (\d+) \|", cells[0].source, re.MULTILINE)
        if writing is None:
            raise CommandError(f"{notebooks[0]}: its table has no row of questions to answer in words")
        grades = [cell.metadata.nbgrader for cell in cells if "nbgrader" in cell.metadata]
        tasks = exercises.of(f"a{number}")
        found.append(
            Unit(
                number=number,
                lecture=path.relative_to(root).as_posix(),
                title=heading[1].strip(),
                reading=int(minutes[1]),
                assignment=notebooks[0].relative_to(root).as_posix(),
                task=cells[0].source.splitlines()[0].partition(" · ")[2],
                working=sum(task.minutes for task in tasks if not task.extra) + int(writing[1]),
                checked=sum(task.out_of for task in tasks if not task.extra),
                marked=sum(grade.points for grade in grades if grade.grade and grade.solution),
                extra=sum(task.out_of for task in tasks if task.extra),
            )
        )
    return found


def start(course: Sequence[Unit]) -> str:
    """The learner's table: each lecture with its assignment, to click on."""
    rows = (
        (
            unit.number,
            f"[{unit.title}]({unit.lecture})",
            unit.reading,
            f"[{unit.task}]({unit.assignment})",
            unit.working,
            f"{unit.checked + unit.marked:g}",
        )
        for unit in course
    )
    return _table(("", "lecture", "minutes", "assignment", "minutes", "points"), rows)


def calendar(course: Sequence[Unit]) -> str:
    """A term of as many weeks as there are lectures."""
    return _weeks([[unit] for unit in course])


def short(course: Sequence[Unit]) -> str:
    """A term of seven weeks."""
    by_number = {unit.number: unit for unit in course}
    return _weeks([[by_number[number] for number in week] for week in SHORT])


def _weeks(weeks: Sequence[Sequence[Unit]]) -> str:
    def row(name: object, group: Sequence[Unit], lectures: str, assignments: str) -> tuple[object, ...]:
        points = (sum(getattr(unit, kind) for unit in group) for kind in ("checked", "marked", "extra"))
        reading, working = (sum(getattr(unit, kind) for unit in group) for kind in ("reading", "working"))
        return name, lectures, reading, assignments, working, *(f"{worth:g}" for worth in points)

    rows = [
        row(
            number,
            group,
            "; ".join(f"[{unit.number} {unit.title}](../{unit.lecture})" for unit in group),
            ", ".join(f"[a{unit.number}](../{unit.assignment})" for unit in group),
        )
        for number, group in enumerate(weeks, start=1)
    ]
    rows.append(row("all", [unit for group in weeks for unit in group], "", ""))
    heads = ("week", "lecture", "minutes", "assignment", "minutes", "points by checks", "by hand", "extra")
    return _table(heads, rows)


def _table(heads: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join("| " + " | ".join(map(str, line)) + " |" for line in lines)


# Each page's tables, by the name that is in the comments around it.
PAGES = {"START.md": {"lectures": start}, "docs/instructors.md": {"calendar": calendar, "short": short}}


def filled(root: Path, page: str) -> str:
    """The text of a page with its tables as they should be. CommandError where a table has no place in it."""
    text = (root / page).read_text(encoding="utf-8")
    course = units(root)
    for name, table in PAGES[page].items():
        before, after = f"<!-- {name}: made by python -m attncourse.authoring.pages -->", f"<!-- /{name} -->"
        places = re.findall(f"{re.escape(before)}\n.*?{after}", text, re.DOTALL)
        if len(places) != 1:
            raise CommandError(f"{page} has no single place for the table {name!r}, between {before} and {after}")
        text = text.replace(places[0], f"{before}\n\n{table(course)}\n\n{after}")
    return text


if __name__ == "__main__":
    for page in PAGES:
        made = filled(Path(), page)
        Path(page).write_text(made, encoding="utf-8")
