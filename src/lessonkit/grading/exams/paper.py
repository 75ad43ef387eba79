"""What an exam asks: exercises in variations and questions of the bank, drawn by a seed; its notebook and its sheet."""

from __future__ import annotations

import ast
import copy
import random
import re
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import nbformat
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

from commandkit.errors import CommandError
from lessonkit.course import Course
from lessonkit.exercises.variation import answer_cell, check_cell
from lessonkit.grading.submission.check_cells import PREFIX, grading

if TYPE_CHECKING:
    from lessonkit.exercises.exercise import Exercise

OURS = "lessonkit"  # the key of a notebook's metadata
CODING = 2 / 3  # of the points, at most
LETTERS = "ABCDEFGH"
MARKED = re.compile(r"( *### BEGIN SOLUTION\n).*?( *### END SOLUTION)", re.DOTALL)
HEADING = re.compile(r"^## (?:\d+ · |Extension · )?(.*)$", re.MULTILINE)


@dataclass(frozen=True)
class Paper:
    """An exam: its tasks, each a variation of an exercise, and the questions of its sheet, in their order."""

    name: str
    lessons: Sequence[str]
    seed: int
    tasks: Sequence[Exercise]
    questions: Sequence[Any]

    @property
    def coding(self) -> float:
        return sum(task.out_of for task in self.tasks)

    @property
    def points(self) -> float:
        return self.coding + sum(question.points for question in self.questions)

    @property
    def minutes(self) -> float:
        return sum(task.minutes for task in self.tasks) + sum(question.minutes for question in self.questions)

    @property
    def title(self) -> str:
        first, last, several = self.lessons[0], self.lessons[-1], len(self.lessons)
        together = several > 1 and several == int(last) - int(first) + 1
        named = f"{first} to {last}" if together else ", ".join(self.lessons)
        return f"Exam on lesson{'s' * (several > 1)} {named}"

    def variations(self) -> dict[str, str]:
        """The variation that is asked, by exercise."""
        return {task.name: task.varied.name for task in self.tasks if task.varied}


def drawn(
    course: Course,
    lessons: Sequence[str],
    points: int,
    seed: int,
    bank: Sequence[Any],
    name: str,
    coding: float = CODING,
) -> Paper:
    """An exam worth exactly so many points, of which the share `coding` at most for exercises, at most one a lesson.

    `bank` are the questions to draw from: none that is about an exercise of the exam, and few of one lesson where
    there are others. CommandError where the lessons have not enough of either.
    """
    lots = random.Random(f"exam/{seed}")
    tasks = list(_tasks(course, lessons, coding * points, lots))
    left = points - sum(task.out_of for task in tasks)
    chosen = _questions(bank, [task.name for task in tasks], left, lots)
    if missing := left - sum(question.points for question in chosen):
        what = f"{missing:g} points too few in the question bank, beside {points - left:g} of exercises"
        raise CommandError(f"lessons {', '.join(lessons)}: {what}; ask for fewer points, or for more lessons")
    tasks.sort(key=lambda task: course.assignment_of(task.name))
    chosen.sort(key=lambda question: question.lesson)
    return Paper(name, lessons, seed, tasks, chosen)


def _tasks(course: Course, lessons: Sequence[str], most: float, lots: random.Random) -> Iterator[Exercise]:
    """A variation of an exercise of each lesson, in an order that is drawn, as long as there are points."""
    left = most
    for lesson in lots.sample(list(lessons), len(lessons)):
        assignment = f"a{lesson}"
        exercises = course.exercises_of(assignment) if assignment in course.assignments() else []
        fitting = [e for e in exercises if e.variations and not e.extra and e.out_of <= left and e.out_of % 1 == 0]
        if fitting:
            chosen = lots.choice(fitting)
            left -= chosen.out_of
            yield lots.choice([*chosen.variations.values()])


def _questions(bank: Sequence[Any], tasks: Sequence[str], points: float, lots: random.Random) -> list[Any]:
    """Questions worth so many points, or fewer: one of each lesson after the other.

    One that is made of an exercise's mistakes shows code of its solution, and begins with its name. So there is one
    such question of an exercise, and none where the exercise is a task.
    """
    shown = set(tasks)
    by_lesson: dict[str, list[Any]] = {}
    for question in lots.sample(list(bank), len(bank)):
        exercise = question.name.partition("-")[0] if question.generated else ""
        if exercise not in shown:
            by_lesson.setdefault(question.lesson, []).append(question)
        shown |= {exercise} - {""}
    rounds = [question for i in range(len(bank)) for group in by_lesson.values() for question in group[i : i + 1]]
    chosen: list[Any] = []
    for question in rounds:
        if question.points <= points:
            chosen.append(question)
            points -= question.points
    return chosen


# --------------------------------------------------------------------------------------------------------- the notebook


def notebook(paper: Paper, course: Course, built: Path) -> NotebookNode:
    """The exam's notebook with its solutions, as nbgrader takes it; `built` has the assignments' own, with theirs.

    CommandError where one of them is not there, or not as the variations have it.
    """
    sources = {task.name: _source(course, task.name, built) for task in paper.tasks}
    cells = [new_markdown_cell(_opening(paper)), new_code_cell(_imports([*sources.values()], course.library))]
    cells[1].metadata["nbgrader"] = {"schema_version": 3, "grade_id": "given-imports", "grade": False,
                                     "solution": False, "locked": True, "task": False}  # fmt: skip
    for number, task in enumerate(paper.tasks, start=1):
        source = sources[task.name]
        try:
            cells += _task(number, task, source)
        except ValueError as error:
            raise CommandError(f"{error}: build the assignment first") from None
    for number, cell in enumerate(cells):
        cell.id = grading(cell).get("grade_id") or f"exam-{number}"
    made = new_notebook(cells=cells, metadata=copy.deepcopy(next(iter(sources.values())).metadata))
    made.metadata[OURS] = {"exam": paper.name}
    return made


def _source(course: Course, exercise: str, built: Path) -> NotebookNode:
    lesson = course.lesson(course.assignment_of(exercise))
    path = built.joinpath(*Path(lesson.assignment_notebook).parts[1:])
    try:
        return nbformat.read(path, as_version=4)
    except (OSError, ValueError) as error:
        raise CommandError(f"{path}: the assignment's solutions cannot be read ({type(error).__name__})") from None


def _task(number: int, task: Exercise, source: NotebookNode) -> Iterator[NotebookNode]:
    """What is asked, the cell to answer in, and its check."""
    assert task.varied
    places = {grading(cell).get("grade_id"): place for place, cell in enumerate(source.cells)}
    above = "\n\n".join(c.source for c in source.cells[: places[task.name]] if c.cell_type == "markdown")
    heading = [*HEADING.finditer(above)][-1]  # of the exercise; what stands before belongs to the one before
    paragraphs = above[heading.end() :].strip().split("\n\n")  # but for those about cells that are not here
    about, said = heading[1], "\n\n".join(text for text in paragraphs if not re.search(r"\bcells?\b", text))
    yield new_markdown_cell(
        f"## {number} · {about} ({task.out_of:g} points, about {task.minutes} minutes)\n\n{said}\n\n"
        f"**Here something is changed.** {task.varied.asks} Where the text above says otherwise, this holds."
    )
    for name in (task.name, f"{PREFIX}{task.name}"):
        cell = copy.deepcopy(source.cells[places[name]])
        cell.outputs, cell.execution_count = [], None
        if name == task.name:
            cell.source = answer_cell(_solved(cell.source, task.solution_body), task)
        else:
            cell.source = check_cell(cell.source, task.name, task.varied.name)
        yield cell


def _solved(source: str, body: str) -> str:
    """An answer's cell with another solution between the markers."""
    return MARKED.sub(lambda found: f"{found[1]}{textwrap.indent(body, '    ')}\n{found[2]}", source, count=1)


def _imports(sources: Sequence[NotebookNode], library: Sequence[str]) -> str:
    """The imports with which the assignments begin, but the library's; that of the checks as the first has it."""
    checks, modules = "", {"torch": None}
    names: dict[str | None, set[str]] = {}
    for source in sources:
        cell = next(cell for cell in source.cells if cell.cell_type == "code")
        for statement in ast.parse(cell.source).body:
            if isinstance(statement, ast.Try):
                checks = checks or ast.get_source_segment(cell.source, statement) or ""
            elif isinstance(statement, ast.Import):
                modules |= {ast.unparse(alias): None for alias in statement.names}
            elif isinstance(statement, ast.ImportFrom) and (statement.module or "").partition(".")[0] not in library:
                names.setdefault(statement.module, set()).update(ast.unparse(alias) for alias in statement.names)
    plain = [f"import {module}" for module in sorted(modules)]
    plain += sorted(f"from {module} import {', '.join(sorted(found))}" for module, found in names.items())
    return "\n".join([checks, "", *plain]).strip()


def _opening(paper: Paper) -> str:
    tasks = enumerate(paper.tasks, start=1)
    rows = [f"| {number} | `{task.name}` | {task.minutes} | {task.out_of:g} |" for number, task in tasks]
    return "\n".join([
        f"# {paper.title}: the notebook", "",
        f"{paper.coding:g} of {paper.points:g} points. You know these exercises in another form: read what is asked "
        "here. A check below each answer says whether it is right; points are given by aspect, on other numbers, when "
        "the notebook is graded. What an exercise forbids elsewhere is forbidden here.", "",
        "| | exercise | minutes | points |", "|---|---|---|---|", *rows,
    ])  # fmt: skip


# ------------------------------------------------------------------------------------------------------------ the sheet


def sheet(paper: Paper) -> str:
    """The questions, as Markdown, to be answered on paper."""
    of = sum(question.points for question in paper.questions)
    parts = [
        f"# {paper.title}: the sheet",
        f"Name: ______________________________ &nbsp; {of} of {paper.points:g} points",
        "One option of each question is right. Mark its letter.",
    ]
    for number, question in enumerate(paper.questions, start=1):
        parts.append(f"## Question {number} ({_points(question.points)})\n\n{question.prompt}\n\n{_options(question)}")
    return "\n\n".join(parts) + "\n"


def mark_scheme(paper: Paper) -> str:
    """For who marks: the solutions, the points by aspect, the mistakes that the checks know, the right options."""
    parts = [
        f"# {paper.title}: mark scheme",
        f"Seed {paper.seed}, {paper.points:g} points, about {paper.minutes:g} minutes. Not for students.",
        f"## The notebook ({paper.coding:g} points)",
        "The checks give these points. Each aspect counts for itself.",
    ]
    for number, task in enumerate(paper.tasks, start=1):
        assert task.varied
        aspects = [f"| {a.name} | {a.meaning} | {a.points:g} |" for a in task.aspects]
        known = "; ".join(dict.fromkeys(mistake.name for mistake in task.misconceptions))
        parts += [
            f"### {number} · {task.name}: {task.varied.name} ({task.out_of:g} points)",
            task.varied.asks,
            f"```python\n{task.solution_body}\n```",
            "\n".join(["| aspect | what is true of a right answer | points |", "|---|---|---|", *aspects]),
            f"Known mistakes: {known}.",
        ]
    if paper.questions:
        parts += ["## The sheet", f"All letters: {_letters(paper)}"]
    for number, question in enumerate(paper.questions, start=1):
        told = [f"### Question {number}, lesson {question.lesson}: {_letter(question)} ({_points(question.points)})"]
        told += [f"- {'**' if option.right else ''}{letter}{'**' if option.right else ''}: {option.reason}"
                 for letter, option in zip(LETTERS, question.options, strict=False)]  # fmt: skip
        parts.append(told[0] + "\n\n" + "\n".join(told[1:]))
    return "\n\n".join(parts) + "\n"


def _points(points: float) -> str:
    return f"{points:g} point{'s' * (points != 1)}"


def _letter(question: Any) -> str:
    return next(letter for letter, option in zip(LETTERS, question.options, strict=False) if option.right)


def _letters(paper: Paper) -> str:
    return " ".join(f"{number}{_letter(question)}" for number, question in enumerate(paper.questions, start=1))


def _options(question: Any) -> str:
    lines = []
    for letter, option in zip(LETTERS, question.options, strict=False):
        inside = re.sub(r"\n(?=.)", "\n  ", option.text)
        apart = "\n\n  " if "\n" in inside else " "
        lines.append(f"- ☐ {letter}.{apart}{inside}")
    return "\n".join(lines)


def page(markdown: str) -> str:
    """A page to print, which needs nothing else."""
    from markdown_it import MarkdownIt

    title = markdown.partition("\n")[0].lstrip("# ")
    body = MarkdownIt("commonmark").enable("table").render(markdown)
    return (
        f"<!doctype html>\n<html lang='en'><head><meta charset='utf-8'><title>{title}</title>\n<style>{STYLE}"
        f"</style></head>\n<body>\n{body}</body></html>\n"
    )


STYLE = """
body { font: 11pt/1.45 Georgia, serif; max-width: 46rem; margin: 2rem auto; padding: 0 1rem; color: #111;
       background: #fff }
h1, h2, h3 { font-family: system-ui, sans-serif; line-height: 1.2 } h1 { font-size: 1.5em } h2 { font-size: 1.15em }
h3 { font-size: 1em } h2, h3 { break-after: avoid } pre, li, table { break-inside: avoid }
pre { background: #f4f4f4; padding: .6em .8em; overflow-x: auto; font-size: .85em; white-space: pre-wrap }
ul { list-style: none; padding-left: .5em } li { margin: .3em 0 } table { border-collapse: collapse }
th, td { border: 1px solid #999; padding: .2em .5em; text-align: left }
@page { margin: 18mm }
"""
