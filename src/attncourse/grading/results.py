"""What a class got: points from the gradebook, reasons from the autograded notebooks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import nbformat
from nbgrader.api import Assignment, Grade, Gradebook, MissingEntry
from nbgrader.coursedir import CourseDirectory

from attncourse._needs import CommandError
from attncourse.grading.exporter import unreadable
from attncourse.grading.verdicts import PREFIX, exercise_of, verdict_of


@dataclass(frozen=True)
class Column:
    """A graded cell: a check, or a written answer that a person marks. `out_of` is 0 for extra credit."""

    notebook: str
    grade_id: str
    out_of: float
    written: bool

    @property
    def name(self) -> str:
        return self.grade_id.removeprefix(PREFIX)


@dataclass
class Row:
    """One student's result. `points` is None where a written answer waits to be marked, or nothing was graded."""

    student: str
    name: str
    points: dict[str, float | None] = field(default_factory=dict)
    total: float = 0.0
    verdicts: dict[str, dict[str, Any]] = field(default_factory=dict)  # by exercise, see `Verdict.as_dict`
    unreadable: str | None = None
    submitted: bool = True


@dataclass(frozen=True)
class Results:
    assignment: str
    columns: Sequence[Column]
    rows: Sequence[Row]
    out_of: float


def read_results(coursedir: CourseDirectory, assignment: str) -> Results:
    """The results of an assignment of a course. CommandError if the gradebook does not know it."""
    path = coursedir.db_url.removeprefix("sqlite:///")
    if coursedir.db_url.startswith("sqlite") and not Path(path).is_file():
        raise CommandError(f"there is no gradebook at {path}: run `nbgrader generate_assignment {assignment}` first")
    with Gradebook(coursedir.db_url, coursedir.course_id) as gradebook:
        try:
            found = gradebook.find_assignment(assignment)
        except MissingEntry:
            known = ", ".join(sorted(a.name for a in gradebook.assignments)) or "none"
            raise CommandError(f"there is no assignment {assignment!r} in the gradebook (there: {known})") from None
        columns = _columns(found)
        rows = [_row(gradebook, coursedir, assignment, columns, student) for student in gradebook.students]
        return Results(assignment, columns, rows, float(found.max_score))


def _columns(assignment: Assignment) -> list[Column]:
    """The graded cells of an assignment, in the order of its notebooks."""
    columns = []
    for notebook in assignment.notebooks:
        place = {cell.name: i for i, cell in enumerate(notebook.source_cells)}
        solutions = {cell.name for cell in notebook.solution_cells}
        graded = [*notebook.grade_cells, *notebook.task_cells]
        for cell in sorted(graded, key=lambda cell: place.get(cell.name, len(place))):
            written = cell.name in solutions or cell.cell_type != "code"
            columns.append(Column(notebook.name, cell.name, float(cell.max_score), written))
    return columns


def _row(
    gradebook: Gradebook, coursedir: CourseDirectory, assignment: str, columns: Sequence[Column], student: Any
) -> Row:
    name = " ".join(part for part in (student.first_name, student.last_name) if part)
    row = Row(student.id, name or student.id)
    try:
        submission = gradebook.find_submission(assignment, student.id)
    except MissingEntry:
        row.submitted = False
        return row
    row.total = max(0.0, float(submission.score) - float(submission.late_submission_penalty or 0))
    grades: dict[tuple[str, str], Grade] = {}
    for notebook in submission.notebooks:
        grades |= {(notebook.name, grade.name): grade for grade in notebook.grades}
        _read_verdicts(coursedir, assignment, notebook.name, row)
    for column in columns:
        grade = grades.get((column.notebook, column.grade_id))
        waiting = grade is None or (grade.manual_score is None and grade.needs_manual_grade)
        row.points[column.grade_id] = None if grade is None or waiting else float(grade.score)
    return row


def _read_verdicts(coursedir: CourseDirectory, assignment: str, notebook: str, row: Row) -> None:
    folder = coursedir.format_path(coursedir.autograded_directory, row.student, assignment)
    try:
        autograded = nbformat.read(Path(folder) / f"{notebook}.ipynb", as_version=4)
    except (OSError, ValueError, nbformat.reader.NotJSONError):
        return  # graded elsewhere: there are points, no reasons
    row.unreadable = unreadable(autograded) or row.unreadable
    for cell in autograded.cells:
        exercise, verdict = exercise_of(cell), verdict_of(cell)
        if exercise and verdict:
            row.verdicts[exercise] = verdict
