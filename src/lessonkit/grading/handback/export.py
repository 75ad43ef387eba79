"""nbgrader's export plugins of this course: quoted CSV, safe to open in a spreadsheet.

    nbgrader export --exporter=lessonkit.grading.handback.export.ExercisePoints   each exercise's points, for people
    nbgrader export --exporter=lessonkit.grading.handback.export.Canvas           totals, for Canvas's gradebook
    nbgrader export --exporter=lessonkit.grading.handback.export.Moodle           totals and reasons, for Moodle's

Each takes nbgrader's `--to`, `--assignment` and `--student`. A score is the total after extra credit and late penalty.
It is empty, not 0, where nothing was handed in, or a person has something to mark yet.
"""

from __future__ import annotations

import csv
import io
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

from nbgrader.api import Gradebook
from nbgrader.plugins import ExportPlugin
from traitlets import Dict, Enum, Unicode

from commandkit.errors import CommandError
from lessonkit.grading.report.results import Results, Row, in_order, read_results, why
from lessonkit.grading.report.tables import SPREADSHEET, defused, write

# Of a line: what comes before the points of the exercises, and what comes after.
WHO = ("assignment", "student_id", "last_name", "first_name")
SUM = ("total", "out_of", "total_so_far", "out_of_so_far", "not_marked_yet", "handed_in", "due", "hours_late",
       "what_went_wrong")  # fmt: skip

_NUMBER = re.compile(r"[+-]?[0-9]+([.,][0-9]+)?")
# With no bracket, pipe, quote or exclamation mark, nothing can be called; at worst the cell shows #NAME?.
_HARMLESS_ID = re.compile(r"[@+-]?[\w.@+-]*")
_POSTING = re.compile(r"\s*(Muted|Manual Posting.*)?\s*", re.IGNORECASE)  # Canvas's line on what is not shown yet


class _Export(ExportPlugin):
    """What the exports share: which assignments, which students, where to, and errors without a traceback."""

    default_to = "grades.csv"
    encoding = SPREADSHEET
    delimiter = ","

    def export(self, gradebook: Gradebook) -> None:
        try:
            names = [str(name) for name in self.assignment] or [assignment.name for assignment in gradebook.assignments]
            results = [read_results(self.parent.coursedir, name) for name in names]
            people = {student.id: student for student in gradebook.students}
            wanted = {str(student) for student in self.student}
            if wanted - people.keys():
                raise CommandError(f"no such student in the gradebook: {', '.join(sorted(wanted - people.keys()))}")
            ordered = sorted(people.items(), key=lambda item: in_order(item[1]))
            people = {who: person for who, person in ordered if not wanted or who in wanted}
            path = Path(self.to or self.default_to)
            self.log.info("Exporting grades to %s", path)
            write(path, self.table(results, people), self.encoding, self.delimiter)
        except CommandError as error:
            self.log.error("%s", error)
            sys.exit(1)

    def table(self, results: Sequence[Results], people: Mapping[str, Any]) -> list[list[object]]:
        """The lines of the file. `people` are nbgrader's students by id."""
        raise NotImplementedError

    def tell(self, what: str, who: Iterable[str]) -> None:
        """Warn about students, by name."""
        names = list(who)
        if names:
            self.log.warning("%s: %s", what, "; ".join(names))


class ExercisePoints(_Export):
    """One line for each student and assignment. A cell is empty where no points were given, or not yet.

    The total is empty until all is marked; until then there is the total so far. Times are UTC. How late a submission
    was is empty where that is not known.
    """

    def table(self, results: Sequence[Results], people: Mapping[str, Any]) -> list[list[object]]:
        graded = list(dict.fromkeys(_heading(result, c.name) for result in results for c in result.columns))
        table: list[list[object]] = [[*WHO, *graded, *SUM]]
        for result in results:
            for row in result.rows:
                if row.student not in people:
                    continue
                points = {_heading(result, c.name): row.points.get(c.grade_id) for c in result.columns}
                person = people[row.student]
                about = (result.assignment, row.student, person.last_name, person.first_name)
                table.append([*about, *(points.get(heading) for heading in graded), *_sum(row, result)])
        return [[defused(cell) for cell in line] for line in table]


def _sum(row: Row, result: Results) -> list[object]:
    """The columns of SUM."""
    known = row.submitted
    waiting = ", ".join(column.name for column in result.waiting(row))
    late = row.times.late
    return [
        row.total if known and not waiting else None,
        result.out_of,
        row.total if known else None,
        result.out_of_so_far(row) if known else None,
        waiting,
        f"{row.times.handed_in:%Y-%m-%d %H:%M:%S}" if row.times.handed_in else None,
        f"{row.times.due:%Y-%m-%d %H:%M:%S}" if row.times.due else None,
        None if late is None else round(late.total_seconds() / 3600, 2),
        why(row, result),
    ]


# ---------------------------------------------------------------------------------------------------- Canvas and Moodle


class _LMS(_Export):
    """Totals for a learning management system, with a file that it exported or without."""

    gradebook = Unicode(
        "", help="CSV file that the system exported: who is there, and in which column. Empty: write a fresh file."
    ).tag(config=True)

    # What identifies a student must come through unchanged: with another id, the system would find nobody, or somebody
    # else. Names are for people to read, so they are defused. An id that a spreadsheet would run has no safe form: its
    # line is left out, and told.
    system: str
    ids: tuple[str, ...]

    def table(self, results: Sequence[Results], people: Mapping[str, Any]) -> list[list[object]]:
        self.rows = {(result.assignment, row.student): row for result in results for row in result.rows}
        none = [who for who in people if all(self.score(result, who) is None for result in results)]
        self.tell("No score yet", (_name(people[who]) for who in none))
        if not self.gradebook:
            return self.fresh(results, people)
        return self.filled(_read(Path(self.gradebook)), results, people)

    def fresh(self, results: Sequence[Results], people: Mapping[str, Any]) -> list[list[object]]:
        raise NotImplementedError

    def filled(self, file: _File, results: Sequence[Results], people: Mapping[str, Any]) -> list[list[object]]:
        raise NotImplementedError

    def score(self, result: Results, who: str | None) -> float | None:
        """A student's total; None where nothing was handed in, or something waits to be marked."""
        row = self.rows.get((result.assignment, who or ""))
        return row.total if row and row.submitted and not row.waiting else None

    def paired(self, file: _File, people: Mapping[str, Any]) -> list[str | None]:
        """For each line of the system's file, which of nbgrader's students it is. Who has no partner is told.

        CommandError where a line could be two students, or two lines are one.
        """
        keys: dict[str, set[str]] = {}
        for who, person in people.items():
            for key in filter(None, (who, person.email, person.lms_user_id)):
                keys.setdefault(_key(key), set()).add(who)
        found: list[str | None] = []  # one for each line
        for line in file.students:
            meant = {who for i in file.places(self.ids) for who in keys.get(_key(line[i]), ())}
            if len(meant) > 1 or meant & set(found):
                names = ", ".join(_name(people[who]) for who in sorted(meant))
                raise CommandError(
                    f"{file.path}: cannot tell whose line {file.name(line)!r} is ({names}): "
                    "two students, or two lines, have the same id or email address"
                )
            found.append(meant.pop() if meant else None)
        strangers = [file.name(line) for line, who in zip(file.students, found, strict=True) if who is None]
        if not self.student:
            self.tell(f"In {self.system}'s file, but not in nbgrader's gradebook", strangers)
        missing = [_name(person) for who, person in people.items() if who not in found]
        self.tell(f"In nbgrader's gradebook, but not in {self.system}'s file, so not in this one", missing)
        return found

    def usable(self, who: str, ids: Iterable[str]) -> bool:
        """Whether a line can be written with these ids as they are; if not, that is told."""
        bad = [text for text in ids if defused(text) != text and not _HARMLESS_ID.fullmatch(text)]
        self.tell(f"Left out, because a spreadsheet would run the id {bad[:1]}", [who] if bad else [])
        return not bad


class Canvas(_LMS):
    """Totals for Canvas. Its import (Grades, Import) shows every change before it is made.

    The usual way: in Canvas, export the entire gradebook; run this exporter with `--Canvas.gradebook=FILE`, or
    `c.Canvas.gradebook = "FILE"` in the config; import what it writes. A line is a student's whose id, email address or
    LMS id in nbgrader is the line's SIS User ID, SIS Login ID or Integration ID. A column is an assignment's if that is
    its title: `a03 (4711)` is a03. Else name it: `c.Canvas.columns = {"a03": "Homework 3 (4711)"}`.

    The result holds the columns about the student and those of the assignments, and no others, so that what changed in
    Canvas since is not set back. A score that nbgrader does not have, and "EX" (excused), stay as they were in Canvas.

    A fresh file gives nbgrader's student id as the SIS Login ID. In the import dialog, match each assignment and each
    student that Canvas does not find with its own. There, an empty cell removes a score that Canvas already has.
    """

    default_to = "grades-canvas.csv"
    encoding = "utf-8"  # Canvas takes a mark at the start for a part of the first heading
    system = "Canvas"
    ids = ("SIS User ID", "SIS Login ID", "Integration ID")
    names = ("Student", "LastName", "FirstName", "Section")

    columns = Dict(help="Canvas's heading of an assignment's column, by the assignment's name.").tag(config=True)

    def fresh(self, results: Sequence[Results], people: Mapping[str, Any]) -> list[list[object]]:
        titles = [self.columns.get(result.assignment, result.assignment) for result in results]
        worth = [_number(result.out_of) for result in results]
        table: list[list[object]] = [["Student", "ID", "SIS User ID", "SIS Login ID", "Section", *titles]]
        table.append(["    Points Possible", "", "", "", "", *worth])
        for who, person in people.items():
            if self.usable(_name(person), [who]):
                name = ", ".join(filter(None, (person.last_name, person.first_name))) or who
                table.append([defused(name), "", "", who, "", *(_number(self.score(r, who)) for r in results)])
        return table

    def filled(self, file: _File, results: Sequence[Results], people: Mapping[str, Any]) -> list[list[object]]:
        if not {"ID", "Section"} <= set(file.header):
            raise CommandError(f"{file.path} is no gradebook of Canvas's: it has no columns ID and Section")
        about = file.header.index("Section") + 1
        columns = {place: result for result in results if (place := self._column(file, result, about))}
        if not columns:
            raise CommandError(f"no assignment is a column of {file.path}: name the columns with c.Canvas.columns")
        kept = [*range(about), *columns]
        table: list[list[object]] = [[file.header[i] for i in kept]]
        table += [cells for line in file.notes if any(cells := [line[i] for i in kept])]
        excused = []
        for line, who in zip(file.students, self.paired(file, people), strict=True):
            for i, result in columns.items():
                score = self.score(result, who)
                if score is not None and line[i].strip() in ("EX", "N/A"):
                    excused.append(f"{file.name(line)}, {result.assignment}")
                elif score is not None:
                    line[i] = _number(score)
            display = file.places(self.names)
            if self.usable(file.name(line), (line[i] for i in range(about) if i not in display)):
                table.append([defused(line[i]) if i in display else line[i] for i in kept])
        self.tell("Excused, or not assigned, in Canvas, and left so", excused)
        self.delimiter = file.delimiter
        return table

    def _column(self, file: _File, result: Results, about: int) -> int | None:
        """The place of an assignment's column, after those `about` the student. None if Canvas has none."""
        wanted = self.columns.get(result.assignment, result.assignment)
        headings = dict(list(enumerate(file.header))[about:])
        titles = {i: re.sub(r" \(\d+\)$", "", heading) for i, heading in headings.items()}
        found = [i for i, heading in headings.items() if heading == wanted]
        found = found or [i for i, title in titles.items() if _key(title) == _key(wanted)]
        if len(found) != 1 and (found or self.assignment or result.assignment in self.columns):
            there = ", ".join(headings[i] for i in headings if headings[i] != titles[i]) or "none"
            raise CommandError(
                f"{file.path} has {len(found)} columns {wanted!r}, not 1: "
                f"say which it is with c.Canvas.columns = {{{result.assignment!r}: ...}} (there: {there})"
            )
        if not found:
            self.log.warning("%s is no column of %s: left out", wanted, file.path)
            return None
        for line in file.notes:
            worth = line[found[0]].strip().replace(",", ".")
            if "Points Possible" in line[0] and _NUMBER.fullmatch(worth) and float(worth) != result.out_of:
                self.log.warning("%s: %s points in Canvas, %g in nbgrader", wanted, worth, result.out_of)
        return found[0]


class Moodle(_LMS):
    """Totals, and what went wrong, for Moodle. Grades, Import, "CSV file": encoding UTF-8, separator comma.

    In the preview, "Identify user by": map from "ID number" to "ID number". Where nbgrader's student ids are Moodle's
    usernames, or the ids in Moodle are not nbgrader's: `c.Moodle.match = "Username"` or `"Email address"`, and map from
    and to these. "Grade item mappings": `a03` to the assignment, `a03 feedback` to "Feedback for" it, the rest to
    "Ignore". Feedback mapped without the points removes the points. Points above the item's maximum are cut by Moodle.

    Moodle stops at the first student whom it does not know. So give it Moodle's own file (Grades, Export, "Plain text
    file"; or the list of participants): `c.Moodle.gradebook = "FILE"`. The result then has the students who are in it,
    with the ids as they are there; a student is matched by ID number, username or email address. Export that file in
    English, whose headings are those named here.

    A student without a score has no line: Moodle would take the empty cell for a grade that was taken back.
    """

    default_to = "grades-moodle.csv"
    encoding = "utf-8-sig"  # Moodle takes the mark away
    system = "Moodle"
    ids = ("ID number", "Username", "Email address")

    match = Enum(ids, "ID number", help="The column that the import identifies students by.").tag(config=True)

    def fresh(self, results: Sequence[Results], people: Mapping[str, Any]) -> list[list[object]]:
        first = "ID number" if self.match == "Email address" else self.match
        lines = {who: [who, person.email or ""] for who, person in people.items()}
        return self._lines(lines, [first, "Email address"], results, people)

    def filled(self, file: _File, results: Sequence[Results], people: Mapping[str, Any]) -> list[list[object]]:
        if self.match not in file.header:
            there = ", ".join(file.header)
            raise CommandError(f"{file.path} has no column {self.match!r}: set c.Moodle.match (there: {there})")
        places = file.places(self.ids)
        pairs = zip(self.paired(file, people), file.students, strict=True)
        lines = {who: [line[i] for i in places] for who, line in pairs if who is not None}
        return self._lines(lines, [file.header[i] for i in places], results, people)

    def _lines(
        self,
        lines: Mapping[str, Sequence[str]],
        ids: Sequence[str],
        results: Sequence[Results],
        people: Mapping[str, Any],
    ) -> list[list[object]]:
        scored = [who for who in lines if any(self.score(result, who) is not None for result in results)]
        key = {who: lines[who][ids.index(self.match)].strip() for who in scored}
        # A line that names nobody would go to the student of the line before it; "0" is nobody, too.
        self.tell(f"Left out, without {self.match}", (_name(people[who]) for who in scored if key[who] in ("", "0")))
        table: list[list[object]] = [["First name", "Last name", *ids]]
        for result in results:
            table[0] += [result.assignment, f"{result.assignment} feedback"]
        for who in scored:
            same = [_name(people[other]) for other in scored if key[other] == key[who]]
            if key[who] in ("", "0") or not self.usable(_name(people[who]), lines[who]):
                continue
            if len(same) > 1:
                raise CommandError(f"Moodle cannot tell {', '.join(same)} apart: their {self.match} is the same")
            line = [_for_php(people[who].first_name), _for_php(people[who].last_name), *lines[who]]
            for result in results:
                score = self.score(result, who)
                # Moodle reads feedback as HTML, and would swallow what is in angle brackets.
                words = escape(why(self.rows[result.assignment, who], result), quote=False) if score is not None else ""
                line += [_number(score), _for_php(words)]
            table.append(line)
        return table


@dataclass
class _File:
    """A CSV file of an LMS's. `notes` are the lines under the heading that are no students."""

    path: Path
    delimiter: str
    header: list[str]
    notes: list[list[str]]
    students: list[list[str]]

    def places(self, headings: Sequence[str]) -> list[int]:
        return [i for i, heading in enumerate(self.header) if heading in headings]

    def name(self, line: Sequence[str]) -> str:
        """Whom a line is about, for people to read."""
        names = ("Student", "FirstName", "First name", "LastName", "Last name", "Full name", "Surname")
        name = " ".join(line[i] for i in self.places(names) if line[i]) or next(filter(None, line), "")
        return " ".join(name.split())


def _read(path: Path) -> _File:
    """CommandError if it cannot be read."""
    try:
        text = path.read_bytes().decode("utf-8-sig")
        delimiter = max(",;\t", key=text.partition("\n")[0].count)
        lines = [line for line in csv.reader(io.StringIO(text, newline=""), delimiter=delimiter) if any(line)]
    except OSError as error:
        raise CommandError(f"cannot read {path}: {error.strerror or error}") from None
    except (UnicodeDecodeError, csv.Error) as error:
        raise CommandError(f"{path} is no CSV file in UTF-8 ({error}): export it again, and do not edit it") from None
    if not lines:
        raise CommandError(f"{path} is empty")
    header, *lines = lines
    header = [heading.strip() for heading in header]
    if any(len(line) > len(header) for line in lines):
        raise CommandError(f"{path} has lines with more cells than its heading: export it again, and do not edit it")
    lines = [line + [""] * (len(header) - len(line)) for line in lines]
    notes = ["Points Possible" in line[0] or all(_POSTING.fullmatch(cell) for cell in line) for line in lines]
    students = [line for line, note in zip(lines, notes, strict=True) if not note]
    return _File(path, delimiter, header, [line for line, note in zip(lines, notes, strict=True) if note], students)


def _heading(result: Results, column: str) -> str:
    return f"{result.assignment} {column}"


def _key(text: str) -> str:
    return text.strip().casefold()


def _name(person: Any) -> str:
    name = " ".join(" ".join(filter(None, (person.first_name, person.last_name))).split())
    return f"{name} ({person.id})" if name else person.id


def _number(score: float | None) -> str:
    return "" if score is None else f"{score:.10g}"


def _for_php(text: str | None) -> object:
    """Text for people, defused; and PHP takes a backslash before a quotation mark as a sign to go on."""
    return re.sub(r'\\(?="|\Z)', r"\\ ", str(defused(text)))
