"""When a submission was due, and how late it was: nbgrader's due dates, with extensions from a file of the course's.

`extensions.csv` lies in the course's folder. Its first line names its columns: `student`, `assignment`, and `until`
(such as `2026-11-22 18:00 UTC`) or `hours` (after the due date), or both, of which a line fills one. Where the file is
there it holds all extensions; without it those that are in the gradebook count. Times are UTC without a time zone, as
nbgrader keeps them.
"""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from dateutil import tz
from nbgrader.api import Gradebook, SubmittedAssignment
from nbgrader.coursedir import CourseDirectory

from commandkit.errors import CommandError

EXTENSIONS = "extensions.csv"
MOST_HOURS = 24 * 366.0
EXAMPLE = "student,assignment,until, and below it ada,a03,2026-11-22 18:00 UTC"


@dataclass(frozen=True)
class Times:
    """When a submission was handed in, and when it had to be, the extension included; None where that is not known."""

    handed_in: datetime | None = None
    due: datetime | None = None
    extended: timedelta = timedelta()

    @property
    def late(self) -> timedelta | None:
        """By how much it was late, nothing if it was in time; None where that is not known."""
        if self.handed_in is None or self.due is None:
            return None
        return max(timedelta(), self.handed_in - self.due)


class Extensions:
    """What `extensions.csv` says: by student and assignment, until when, or how long after the due date."""

    def __init__(self, lines: Mapping[tuple[str, str], datetime | timedelta]) -> None:
        self._lines = dict(lines)

    def of(self, student: str, assignment: str, duedate: datetime | None) -> timedelta | None:
        """A student's extension; None if there is none, or nothing to extend.

        CommandError if it ends before the due date.
        """
        given = self._lines.get((student, assignment))
        if given is None or duedate is None:
            return None
        if isinstance(given, timedelta):
            return given
        if given < duedate:
            raise CommandError(
                f"{EXTENSIONS}: {student} has until {written(given)} for {assignment}, "
                f"which is due later, {written(duedate)}"
            )
        return given - duedate

    def students(self, assignment: str) -> list[str]:
        """Who has an extension for an assignment."""
        return sorted(student for student, name in self._lines if name == assignment)


def extensions_of(coursedir: CourseDirectory, gradebook: Gradebook) -> Extensions | None:
    """The extensions in the course's file; None if it has none. CommandError if the file is not as it must be."""
    path = Path(coursedir.root) / EXTENSIONS
    if not path.exists():
        return None
    source = Path(coursedir.format_path(coursedir.source_directory, ".", "any")).parent
    folders = {folder.name for folder in source.iterdir()} if source.is_dir() else set()
    return read_extensions(path, {assignment.name for assignment in gradebook.assignments} | folders)


def read_extensions(path: Path, assignments: Collection[str]) -> Extensions:
    """The extensions in a CSV file, of a course with these assignments. CommandError if it is not as it must be."""
    try:
        text = path.read_bytes().decode("utf-8-sig")
        delimiter = max(",;\t", key=text.partition("\n")[0].count)
        lines = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
        table = [(lines.line_num, [cell.strip() for cell in line]) for line in lines]
    except OSError as error:
        raise CommandError(f"cannot read {path}: {error.strerror or error}") from None
    except (UnicodeDecodeError, csv.Error) as error:
        raise CommandError(f"{path} is no CSV file in UTF-8 ({error}): save it as one") from None
    table = [(number, line) for number, line in table if any(line)]
    header = [name.casefold() for name in table[0][1]] if table else []
    wanted = {"student", "assignment", "until", "hours"}
    if not {"student", "assignment"} <= set(header) <= wanted or len(set(header)) < max(3, len(header)):
        raise CommandError(
            f"{path}: the first line must name the columns student, assignment, and until or hours "
            f"(such as: {EXAMPLE}); it says: {', '.join(header) or 'nothing'}"
        )
    found: dict[tuple[str, str], datetime | timedelta] = {}
    for number, line in table[1:]:
        try:
            who, given = _line(dict(zip(header, line, strict=True)) if len(line) == len(header) else {}, assignments)
            if who in found:
                raise ValueError(f"{who[0]} has an extension for {who[1]} already")
        except ValueError as error:
            raise CommandError(f"{path}, line {number}: {error}") from None
        found[who] = given
    return Extensions(found)


def times(submission: SubmittedAssignment, extensions: Extensions | None) -> Times:
    """When a submission in the gradebook was handed in and due."""
    due = submission.assignment.duedate
    if due is None:
        return Times(submission.timestamp)
    if extensions is None:
        extended = submission.extension
    else:
        extended = extensions.of(submission.student.id, submission.assignment.name, due)
    extended = extended or timedelta()
    return Times(submission.timestamp, due + extended, extended)


def grant(gradebook: Gradebook, submission: SubmittedAssignment, extensions: Extensions | None) -> None:
    """Put an extension of the course's file where nbgrader looks for it when it takes points off for being late."""
    if extensions is not None:
        due = submission.assignment.duedate
        submission.extension = extensions.of(submission.student.id, submission.assignment.name, due)
        gradebook.db.commit()


def duration(time: timedelta) -> str:
    """Such as "1 d 17 h": the two largest units, and no more than that has passed."""
    seconds = int(time.total_seconds())
    parts = [(seconds // 86400, "d"), (seconds // 3600 % 24, "h"), (seconds // 60 % 60, "min"), (seconds % 60, "s")]
    first = next((i for i, (n, _) in enumerate(parts) if n), len(parts) - 1)
    shown = [f"{n} {unit}" for n, unit in parts[first : first + 2] if n and (unit != "s" or first == 3)]
    return " ".join(shown) or "0 s"


def written(time: datetime) -> str:
    """A time as people read it."""
    return f"{time:%Y-%m-%d %H:%M} UTC"


def _line(cells: Mapping[str, str], assignments: Collection[str]) -> tuple[tuple[str, str], datetime | timedelta]:
    """One line of the file. ValueError if it is not as it must be."""
    if not cells:
        raise ValueError("it has not as many cells as the first line")
    student, assignment = cells["student"], cells["assignment"]
    until, hours = cells.get("until", ""), cells.get("hours", "")
    if not student:
        raise ValueError("it names no student")
    if assignment not in assignments:
        raise ValueError(f"there is no assignment {assignment!r} (there: {', '.join(sorted(assignments)) or 'none'})")
    if bool(until) == bool(hours):
        raise ValueError(f"{student} needs one of until and hours, and has {'both' if until else 'neither'}")
    return (student, assignment), _until(until) if until else _hours(hours)


def _hours(text: str) -> timedelta:
    try:
        hours = float(text.replace(",", "."))
    except ValueError:
        hours = math.nan
    if not 0 < hours <= MOST_HOURS:
        raise ValueError(f"hours: got {text!r}, expected a number above 0 and at most {MOST_HOURS:g}")
    return timedelta(hours=hours)


def _until(text: str) -> datetime:
    """A time as UTC. A day alone is refused: its first minute is not what anybody means."""
    expected = f"until: got {text!r}, expected a day and a time, such as 2026-11-22 18:00 UTC"
    match = re.fullmatch(r"(\d{4}-\d\d-\d\d)[ T](\d\d:\d\d(?::\d\d)?) ?(Z|[+-]\d\d:?\d\d|[A-Za-z][\w/+-]*)?", text)
    if match is None:
        raise ValueError(expected)
    day, clock, zone = match.groups()
    try:
        if zone and zone[0] in "+-":
            return datetime.fromisoformat(f"{day}T{clock}{zone}").astimezone(UTC).replace(tzinfo=None)
        time = datetime.fromisoformat(f"{day}T{clock}")
    except (ValueError, OverflowError):
        raise ValueError(expected) from None
    if zone in (None, "Z", "UTC", "GMT"):
        return time
    known = tz.gettz(zone)
    if known is None:
        raise ValueError(f"until: {zone!r} is no time zone that is known here: use UTC, +01:00 or Europe/Berlin")
    return time.replace(tzinfo=known).astimezone(UTC).replace(tzinfo=None)
