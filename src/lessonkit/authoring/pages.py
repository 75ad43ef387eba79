"""The tables of a course's pages, counted and not typed: in README.md, START.md, docs/*.md, where a marker asks for it.

A marker is a pair of comments, and between them the build puts the table:

    <!-- table: lessons -->     each lesson with its assignment, to click on
    <!-- table: questions -->   each lesson with the question that its package's docstring asks
    <!-- table: built: …        what a learner builds, a line each: `a layer | masking many_heads | what it needs`
    <!-- table: hours: masking -->   a lecture for whoever gives it: minute by minute, what to ask and to set
    <!-- table: weeks -->       a term, a lesson a week; or `weeks: order masking, training`: two weeks of these lessons
    <!-- /table -->
"""

import ast
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import nbformat

from commandkit.errors import CommandError
from lessonkit.authoring.checkout import Checkout, Target
from lessonkit.authoring.deck import first_slides
from lessonkit.authoring.teaching import Section, rows, sections
from lessonkit.course import Lesson
from lessonkit.exercises.drill import cards

MARKER = re.compile(
    r"(?P<before><!-- table: (?P<what>\w+)(?::\s(?P<rest>[^>]*?))?\s-->)\n.*?(?P<after><!-- /table -->)", re.DOTALL
)


@dataclass(frozen=True)
class Unit:
    """A lesson in figures. Paths are from the course's folder, minutes a learner's, by our estimate."""

    target: Target  # the lecture
    title: str
    question: str
    reading: int  # minutes
    task: str
    working: int  # minutes, with the written questions and without the extension
    checked: float  # points that the checks give, without extra credit
    marked: float  # points that a person gives
    extra: float

    @property
    def lesson(self) -> Lesson:
        return self.target.lesson

    @property
    def number(self) -> str:
        return self.lesson.number

    @property
    def lecture(self) -> str:
        return self.lesson.lecture_notebook

    @property
    def assignment(self) -> str:
        return self.lesson.assignment_notebook

    def sections(self) -> list[Section]:
        """The lecture's sections, for whoever gives it."""
        checkout = self.target.checkout
        exercises = checkout.course.exercises_of(self.lesson.assignment)
        cells = _cells(checkout.root / self.lecture)
        return sections(cells, self.reading, exercises, first_slides(self.target.source))

    def drills(self) -> dict[str, int]:
        """How many drills there are, by exercise."""
        asked = cards(self.target.checkout.course, [self.lesson.assignment])
        return {card.name: len(card.questions) for card in asked}


def units(checkout: Checkout) -> list[Unit]:
    """Every lesson of the course, as its notebooks and its exercises have it, in order.

    Raises CommandError where a notebook is missing, or a lecture does not open with its title and its minutes.
    """
    found = []
    for lesson in checkout.course.lessons:
        lecture = _cells(checkout.root / lesson.lecture_notebook)
        heading = re.search(rf"^# Lecture {lesson.number} · ([^:\n]+)", lecture[0].source, re.MULTILINE)
        minutes = re.search(r"^\*About (\d+) minutes", lecture[0].source, re.MULTILINE)
        if heading is None or minutes is None:
            raise CommandError(f"{lesson.lecture_notebook}: starts with no title and minutes")
        cells = _cells(checkout.root / lesson.assignment_notebook)
        writing = re.search(r"^\|.* to answer in words \| [●○]+ \| (\d+) \|", cells[0].source, re.MULTILINE)
        task = re.search(r"^# .*? · (.*)$", cells[0].source, re.MULTILINE)
        grades = [cell.metadata.nbgrader for cell in cells if "nbgrader" in cell.metadata]
        exercises = checkout.course.exercises_of(lesson.assignment)
        found.append(
            Unit(
                target=checkout.lecture(lesson),
                title=heading[1].strip(),
                question=_docstring(lesson.folder / "__init__.py"),
                reading=int(minutes[1]),
                task=task[1] if task else lesson.assignment,
                working=sum(each.minutes for each in exercises if not each.extra) + (int(writing[1]) if writing else 0),
                checked=sum(each.out_of for each in exercises if not each.extra),
                marked=sum(grade.points for grade in grades if grade.grade and grade.solution),
                extra=sum(each.out_of for each in exercises if each.extra),
            )
        )
    return found


def _docstring(module: Path) -> str:
    return ast.get_docstring(ast.parse(module.read_text(encoding="utf-8"))) or ""


def _cells(notebook: Path) -> list[nbformat.NotebookNode]:
    if not notebook.is_file():
        raise CommandError(f"there is no {notebook}: build it first")
    return nbformat.read(notebook, 4).cells


def stale(checkout: Checkout) -> Iterator[tuple[Path, str]]:
    """The pages whose tables are not what the lessons say, each with the text that it should have.

    CommandError for a marker that asks for what there is not.
    """
    root = checkout.root
    counted: list[Unit] = []
    for page in sorted([*root.glob("*.md"), *root.glob("docs/*.md")]):
        text = page.read_text(encoding="utf-8")
        if MARKER.search(text):
            counted = counted or units(checkout)
            if (made := filled(text, counted, page.relative_to(root))) != text:
                yield page.relative_to(root), made


def filled(text: str, course: Sequence[Unit], page: Path) -> str:
    """The text of a page with its tables as they should be."""

    def table(marker: re.Match[str]) -> str:
        if marker["what"] not in TABLES:
            raise CommandError(f"{page}: no table is called {marker['what']!r}; there are: {', '.join(TABLES)}")
        made = TABLES[marker["what"]](course, marker["rest"] or "", page)
        return f"{marker['before']}\n\n{made}\n\n{marker['after']}"

    return MARKER.sub(table, text)


def _link(words: str, target: str, page: Path) -> str:
    return f"[{words}]({os.path.relpath(target, page.parent).replace(os.sep, '/')})"


def _lessons(course: Sequence[Unit], rest: str, page: Path) -> str:
    rows = (
        (
            unit.number,
            _link(unit.title, unit.lecture, page),
            unit.reading,
            _link(unit.task, unit.assignment, page),
            unit.working,
            *(f"{points:g}" for points in (unit.checked, unit.marked, unit.extra)),
        )
        for unit in course
    )
    heads = ("", "lecture", "minutes", "assignment", "minutes", "points by checks", "by hand", "extra")
    return _table(heads, rows)


def _questions(course: Sequence[Unit], rest: str, page: Path) -> str:
    rows = ((unit.number, _link(unit.title, unit.lecture, page), unit.question, unit.reading) for unit in course)
    return _table(("", "lecture", "its question", "minutes"), rows)


def _hours(course: Sequence[Unit], rest: str, page: Path) -> str:
    unit = next((unit for unit in course if unit.lesson.name == rest.strip()), None)
    if unit is None:
        names = ", ".join(unit.lesson.name for unit in course)
        raise CommandError(f"{page}: {rest.strip()!r} is no lesson; the lessons are: {names}")
    heads = ("minute", "slide", "section", "ask the class", "then set", "where they stumble")
    lecture, task = _link(unit.title, unit.lecture, page), _link(unit.lesson.assignment, unit.assignment, page)
    opening = f"{lecture}, {unit.reading} minutes; {task}, {unit.working} minutes."
    return f"{opening}\n\n{_table(heads, rows(unit.sections(), unit.drills()))}"


def _built(course: Sequence[Unit], rest: str, page: Path) -> str:
    lines = [[part.strip() for part in line.split("|")] for line in rest.strip().splitlines()]
    if wrong := next((line for line in lines if len(line) != 3), None):
        raise CommandError(f"{page}: {' | '.join(wrong)!r} is no line of what is built: `what | its lessons | needs`")
    rows: list[tuple[object, ...]] = []
    groups = _groups(course, [names.split() for _, names, _ in lines], page)
    for (what, _, needs), group in zip(lines, groups, strict=True):
        lessons = ", ".join(_link(unit.number, unit.lecture, page) for unit in group)
        rows.append((what, lessons, *_in_hours(group), needs))
    rows.append(("all of it", "", *_in_hours([unit for group in groups for unit in group]), ""))
    return _table(("you build", "lessons", "to read", "to do", "you need"), rows)


def _in_hours(group: Sequence[Unit]) -> tuple[str, str]:
    """How long the lectures of these lessons take, and how long their assignments."""
    reading, working = _sums(group, "reading", "working")
    return f"{reading / 60:.1f}\u00a0h", f"{working / 60:.1f}\u00a0h"


def _sums(group: Sequence[Unit], *kinds: str) -> list[float]:
    return [sum(getattr(unit, kind) for unit in group) for kind in kinds]


def _groups(course: Sequence[Unit], chosen: Iterable[Sequence[str]], page: Path) -> list[list[Unit]]:
    """The lessons of these names. CommandError for a name that is no lesson's."""
    by_name = {unit.lesson.name: unit for unit in course}
    chosen = list(chosen)
    if unknown := [name for group in chosen for name in group if name not in by_name]:
        raise CommandError(f"{page}: {unknown[0]!r} is no lesson; the lessons are: {', '.join(by_name)}")
    return [[by_name[name] for name in group] for group in chosen]


def _weeks(course: Sequence[Unit], rest: str, page: Path) -> str:
    chosen = [week.split() for week in rest.split(",")] if rest else [[unit.lesson.name] for unit in course]
    weeks = _groups(course, chosen, page)

    def row(name: object, group: Sequence[Unit], lectures: str, assignments: str) -> tuple[object, ...]:
        reading, working, *points = _sums(group, "reading", "working", "checked", "marked", "extra")
        return name, lectures, reading, assignments, working, *(f"{worth:g}" for worth in points)

    rows = [
        row(
            number,
            group,
            "; ".join(_link(f"{unit.number} {unit.title}", unit.lecture, page) for unit in group),
            ", ".join(_link(unit.lesson.assignment, unit.assignment, page) for unit in group),
        )
        for number, group in enumerate(weeks, start=1)
    ]
    rows.append(row("all", [unit for group in weeks for unit in group], "", ""))
    heads = ("week", "lecture", "minutes", "assignment", "minutes", "points by checks", "by hand", "extra")
    return _table(heads, rows)


def _table(heads: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join("| " + " | ".join(map(str, line)) + " |" for line in lines)


TABLES = {"lessons": _lessons, "questions": _questions, "hours": _hours, "weeks": _weeks, "built": _built}
