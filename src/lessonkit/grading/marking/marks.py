"""Points and comments in nbgrader's gradebook: read for a question, and changed only if nobody else has meanwhile."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Container, Iterator
from dataclasses import asdict, dataclass
from typing import Any

from nbgrader.api import (
    Assignment,
    Comment,
    Course,
    Grade,
    Gradebook,
    GradeCell,
    MissingEntry,
    Notebook,
    SolutionCell,
    Student,
    SubmittedAssignment,
    SubmittedNotebook,
)
from nbgrader.coursedir import CourseDirectory
from sqlalchemy import and_, text, update
from sqlalchemy.exc import OperationalError

from commandkit.errors import CommandError

LONGEST = 10_000  # characters of a comment
MOST_POINTS = 1e9


@dataclass(frozen=True)
class Mark:
    """What the gradebook says of an answer.

    `points` is None where nobody has marked it. `is_automatic`: nbgrader gave the points, to an empty answer.
    `again`: it was marked, and has been graded again since then, so that nbgrader asks for another look.
    """

    points: float | None
    comment: str = ""
    is_automatic: bool = False
    again: bool = False

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class Entry:
    """An answer's place in the gradebook: its grade's id, and whose it is."""

    grade: str
    student: str
    name: str
    mark: Mark


class Changed(Exception):
    """Somebody has changed meanwhile what was to be changed; `now` is what the gradebook says."""

    def __init__(self, now: Mark) -> None:
        super().__init__("it was changed meanwhile")
        self.now = now


class NoMark(ValueError):
    """This cannot be a mark, or there is no such answer; the message says why."""


@contextlib.contextmanager
def opened(coursedir: CourseDirectory) -> Iterator[Gradebook]:
    """The course's gradebook, which must be there. CommandError, in a line, where it is locked or cannot be written."""
    with errors_in_a_line(coursedir), Gradebook(coursedir.db_url, coursedir.course_id) as gradebook:
        yield gradebook


@contextlib.contextmanager
def errors_in_a_line(coursedir: CourseDirectory) -> Iterator[None]:
    """The database's errors inside the block become a CommandError."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # SQLAlchemy's, about nbgrader's use of it
            yield
    except OperationalError as error:
        raise CommandError(_why(coursedir.db_url, str(error.orig))) from None


def _why(url: str, said: str) -> str:
    where = url.removeprefix("sqlite:///")
    if "locked" in said or "busy" in said:
        return f"the gradebook {where} is locked: another program is writing into it; try again when it has ended"
    if "readonly" in said or "unable to open" in said:
        return f"the gradebook {where} cannot be written: look at who may write it and its folder ({said})"
    return f"the gradebook {where}: {said}"


def begin_to_write(gradebook: Gradebook) -> None:
    """Let nobody else write until the next commit or rollback. OperationalError where that is not possible."""
    if gradebook.engine.dialect.name == "sqlite":
        gradebook.db.execute(text("BEGIN IMMEDIATE"))


def try_to_write(gradebook: Gradebook) -> None:
    """Write what is there already, and take it back. OperationalError where nothing can be written."""
    begin_to_write(gradebook)
    gradebook.db.execute(update(Course).values(id=Course.id))
    gradebook.db.rollback()


def entries(gradebook: Gradebook, assignment: str, notebook: str, name: str) -> list[Entry]:
    """The answers to a question that the gradebook knows, in no order."""
    rows = (
        gradebook.db.query(Grade, Comment, Student)
        .join(GradeCell, GradeCell.id == Grade.cell_id)
        .join(SubmittedNotebook, SubmittedNotebook.id == Grade.notebook_id)
        .join(SubmittedAssignment, SubmittedAssignment.id == SubmittedNotebook.assignment_id)
        .join(Student, Student.id == SubmittedAssignment.student_id)
        .join(Notebook, Notebook.id == SubmittedNotebook.notebook_id)
        .join(Assignment, Assignment.id == Notebook.assignment_id)
        .outerjoin(SolutionCell, and_(SolutionCell.notebook_id == Notebook.id, SolutionCell.name == GradeCell.name))
        .outerjoin(Comment, and_(Comment.cell_id == SolutionCell.id, Comment.notebook_id == SubmittedNotebook.id))
        .filter(Assignment.name == assignment, Notebook.name == notebook, GradeCell.name == name)
    )
    return [
        Entry(grade.id, one.id, " ".join(filter(None, (one.first_name, one.last_name))), _mark(grade, comment))
        for grade, comment, one in rows
    ]


def change(
    gradebook: Gradebook, grade_id: str, cells: Container[tuple[str, str, str]], seen: Mark, wanted: dict[str, Any]
) -> Mark:
    """Write `wanted`, points or a comment or both, over what was `seen`; what the gradebook says afterwards.

    Points that are None take a mark away. `cells` are those that may be marked: (assignment, notebook, name).
    Raises Changed, and writes nothing, where the gradebook says something else than what was seen, and than what is
    wanted; NoMark where that is no mark.
    """
    wanted = _checked(wanted)
    gradebook.db.rollback()
    try:
        begin_to_write(gradebook)
        grade = gradebook.db.query(Grade).filter(Grade.id == grade_id).with_for_update().one_or_none()
        if grade is None or (grade.assignment.name, grade.notebook.name, grade.name) not in cells:
            raise NoMark("there is no such answer in the gradebook any more: load the page anew")
        comment = _comment_of(gradebook, grade)
        now = _mark(grade, comment)
        if "points" in wanted and not (now.points == wanted["points"] and not now.again and not now.is_automatic):
            if (now.points, now.is_automatic, now.again) != (seen.points, seen.is_automatic, seen.again):
                raise Changed(now)
            points = wanted["points"]
            if points is not None and not 0 <= points <= grade.max_score:
                raise NoMark(f"{points:g} points: there are 0 to {grade.max_score:g}")
            grade.manual_score = points
            grade.needs_manual_grade = points is None and grade.auto_score is None
        if "comment" in wanted and now.comment != wanted["comment"]:
            if now.comment != seen.comment:
                raise Changed(now)
            if comment is None:
                raise NoMark("nbgrader has no place for a comment on this cell")
            comment.manual_comment = wanted["comment"] or None
        gradebook.db.flush()
        after = _mark(grade, comment)
        gradebook.db.commit()
        return after
    except BaseException:
        gradebook.db.rollback()
        raise


def _checked(wanted: dict[str, Any]) -> dict[str, Any]:
    """The parts of a mark that are to be changed, of their types. NoMark."""
    if not wanted or wanted.keys() - {"points", "comment"}:
        raise NoMark("a mark is points, a comment, or both")
    points, comment = wanted.get("points"), wanted.get("comment", "")
    is_number = isinstance(points, int | float) and not isinstance(points, bool)
    if points is not None and not (is_number and -MOST_POINTS <= points <= MOST_POINTS):  # which NaN is not, either
        raise NoMark(f"{points!r} is no number of points")
    if not isinstance(comment, str) or len(comment) > LONGEST or "\0" in comment:
        raise NoMark(f"a comment is a text of up to {LONGEST} characters")
    return wanted


def _comment_of(gradebook: Gradebook, grade: Grade) -> Comment | None:
    with contextlib.suppress(MissingEntry):
        return gradebook.find_comment(grade.name, grade.notebook.name, grade.assignment.name, grade.student.id)
    return None


def _mark(grade: Grade, comment: Comment | None) -> Mark:
    said = (comment.manual_comment if comment else None) or ""
    if grade.manual_score is not None:
        return Mark(float(grade.manual_score), said, again=bool(grade.needs_manual_grade))
    if grade.auto_score is not None and not grade.needs_manual_grade:
        return Mark(float(grade.auto_score), said, is_automatic=True)
    return Mark(None, said)
