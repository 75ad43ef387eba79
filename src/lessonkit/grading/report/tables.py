"""The report as tables for a spreadsheet or a program, in CSV that no spreadsheet runs."""

from __future__ import annotations

import csv
import errno
import io
import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from commandkit.errors import CommandError
from commandkit.files import write_whole
from lessonkit.grading.report.items import Item, fulfilled, item_analysis
from lessonkit.grading.report.results import Results, flags, mistakes, why
from lessonkit.grading.report.term import Recurring, TermRow
from lessonkit.grading.report.totals import so_far

Table = list[list[object]]

SPREADSHEET = "utf-8-sig"  # the mark at the start tells spreadsheets that the file is UTF-8

# A spreadsheet runs a cell that starts with one of these signs, in any of their widths, also after spaces, quotes and
# signs that cannot be seen. Semicolon, tab and line break count as starts: with other settings, they begin a new cell.
_UNSEEN = r"[\s\"'“”‘’«»\u00ad\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff]*"
_FORMULA = re.compile(rf"^(?=[\t\r\n])|(?:^|(?<=[;\t\r\n]))(?={_UNSEEN}[=+\-@＝＋－＠﹦﹢﹣﹫−])")
_NUMBER = re.compile(r"[+-]?[0-9]+([.,][0-9]+)?")


def defused(value: object) -> object:
    """A cell that no spreadsheet takes for a formula: text gets an apostrophe before what would start one.

    Numbers stay, negative ones too, also those in a text.
    """
    if value is None or isinstance(value, int | float):
        return "" if value is None else value
    text = str(value)
    return text if _NUMBER.fullmatch(text) else _FORMULA.sub("'", text)


def write(path: Path, rows: Iterable[Iterable[object]], encoding: str = SPREADSHEET, delimiter: str = ",") -> None:
    """Write a CSV file whole or not at all: when it fails, the file that was there stays. CommandError if it fails."""
    table = io.StringIO(newline="")
    try:
        if not path.parent.is_dir():  # a slip of the pen: such a folder is not made
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
        csv.writer(table, delimiter=delimiter).writerows(rows)
        # "replace": half a surrogate pair, which a notebook may hold, has no place in UTF-8.
        write_whole(path, table.getvalue().encode(encoding, errors="replace"))
    except OSError as error:
        raise CommandError(f"cannot write {path}: {error.strerror or error}") from None


def safe(rows: Iterable[Iterable[object]]) -> Table:
    """A table of which every cell is defused."""
    return [[defused(cell) for cell in row] for row in rows]


def students_table(results: Results) -> Table:
    """One row a student: points by exercise, the total so far, what to know, and 1 or 0 for each aspect.

    A cell is empty where nothing is marked, or there is no verdict.
    """
    columns = results.columns
    aspects = [(item.exercise, item.aspect) for item in item_analysis(results) if item.aspect]
    noted: dict[str, list[str]] = {}
    for flag in flags(results):
        noted.setdefault(flag.row.student, []).append(f"{flag.kind}: {flag.text}")
    held: dict[str, list[str]] = {}
    for mistake in mistakes(results):
        for row in mistake.rows:
            held.setdefault(row.student, []).append(f"{mistake.name} ({mistake.exercise})")
    table: Table = [
        ["student_id", "name", *(column.name for column in columns), "total_so_far", "out_of_so_far", "out_of",
         "handed_in", "due", "hours_late", "not_marked_yet", "what_went_wrong", "misconceptions", "notes",
         *(f"{exercise}: {aspect}" for exercise, aspect in aspects)]
    ]  # fmt: skip
    for row in results.rows:
        total = so_far(row, results)
        right = {exercise: fulfilled(row, exercise) for exercise in row.verdicts if not row.unreadable}
        table.append([
            row.student, row.name, *(row.points.get(column.grade_id) for column in columns),
            *((total.points, total.out_of) if total else ("", "")), results.out_of,
            *(f"{time:%Y-%m-%d %H:%M:%S}" if time else "" for time in (row.times.handed_in, row.times.due)),
            round(row.late.total_seconds() / 3600, 2) if row.times.late is not None else "",
            "; ".join(column.name for column in results.waiting(row)), why(row, results),
            "; ".join(held.get(row.student, [])), "; ".join(noted.get(row.student, [])),
            *(int(aspect in right[exercise]) if exercise in right else "" for exercise, aspect in aspects),
        ])  # fmt: skip
    return safe(table)


def aspects_table(term: Sequence[Results]) -> Table:
    """One row an aspect, with its item analysis; a written answer has no aspect."""
    table: Table = [["assignment", "exercise", "aspect", "points", "n", "difficulty", "discrimination"]]
    for results in term:
        for item in item_analysis(results):
            table.append([results.assignment, item.exercise, item.aspect, item.points, item.n, *_rounded(item)])
    return safe(table)


def _rounded(item: Item) -> list[object]:
    return [None if value is None else round(value, 4) for value in (item.difficulty, item.discrimination)]


def term_table(term: Sequence[Results], rows: Sequence[TermRow]) -> Table:
    """One row a student: the total of each assignment and of all that was handed in and is marked."""
    names = [results.assignment for results in term]
    table: Table = [
        ["student_id", "name", *(words for name in names for words in (name, f"{name} out_of_so_far")),
         "handed_in", "total_so_far", "out_of_so_far"]
    ]  # fmt: skip
    for row in rows:
        totals = [row.totals.get(name) for name in names]
        cells = [cell for total in totals for cell in ((total.points, total.out_of) if total else (None, None))]
        table.append([row.student, row.name, *cells, len(row.totals), row.total.points, row.total.out_of])
    return safe(table)


def misconceptions_table(found: Sequence[Recurring]) -> Table:
    """One row for each misconception and each assignment in which it could be seen."""
    table: Table = [["misconception", "exercises", "assignment", "students", "judged", "change", "who"]]
    for one in found:
        for held in one.seen:
            who = "; ".join(sorted(held.holders))
            table.append([one.name, "; ".join(one.exercises), held.assignment, len(held.holders), len(held.judged),
                          one.change, who])  # fmt: skip
    return safe(table)
