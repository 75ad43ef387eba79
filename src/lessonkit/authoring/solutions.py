"""Which solutions the students may have: none, those up to an assignment, or those whose due date is past."""

import argparse
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

from commandkit.commands import typed
from commandkit.errors import CommandError, require_extra
from lessonkit.authoring.checkout import Checkout
from lessonkit.course import Course
from lessonkit.kernel import UnknownName


def add_arguments(parser: argparse.ArgumentParser) -> argparse._MutuallyExclusiveGroup:
    """Options for a command; the group that they are in, for one more."""
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--solutions-until", metavar="aNN", help="with the solutions up to this assignment's")
    words = "with the solutions of the assignments whose due date in the gradebook is past"
    which.add_argument("--solutions-due", action="store_true", help=words)
    return which


def chosen(args: argparse.Namespace, checkout: Checkout) -> list[str] | None:
    """The assignments whose solutions are asked for; None if nothing is said of them. CommandError."""
    if args.solutions_until:
        return until(checkout.course, args.solutions_until)
    return due(checkout.root, checkout.course) if args.solutions_due else None


def until(course: Course, last: str) -> list[str]:
    """The assignments up to this one. CommandError where there is none of this name."""
    return [each for each in course.assignments() if each <= known(course, last)]


def due(root: Path, course: Course) -> list[str]:
    """The assignments whose due date in the gradebook is past. CommandError where there is no gradebook."""
    with require_extra(typed("release --solutions-due"), "grading"):
        from nbgrader.api import Gradebook, MissingEntry

        from lessonkit.grading.gradebook.nbgrader_app import application
    coursedir = application(root, "db", "assignment", "list").coursedir
    path = coursedir.db_url.removeprefix("sqlite:///")
    if coursedir.db_url.startswith("sqlite") and not Path(path).is_file():
        instead = "name the last assignment, --solutions-until a05"
        raise CommandError(f"there is no gradebook at {path}, and due dates stand there: {instead}")
    found = []
    with Gradebook(coursedir.db_url, coursedir.course_id) as gradebook:
        for assignment in course.assignments():
            with suppress(MissingEntry):
                date = gradebook.find_assignment(assignment).duedate  # nbgrader keeps them in UTC
                if date is not None and date.replace(tzinfo=UTC) < datetime.now(UTC):
                    found.append(assignment)
    return found


def known(course: Course, assignment: str) -> str:
    """The assignment's name. CommandError where there is none of this name."""
    try:
        return course.lesson(assignment).assignment
    except UnknownName as error:
        raise CommandError(str(error)) from None
