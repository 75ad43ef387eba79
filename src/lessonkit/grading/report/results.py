"""What a class got: points from the gradebook, reasons from the autograded notebooks, facts from the engine."""

from __future__ import annotations

import glob
import itertools
import math
import os
import statistics
import unicodedata
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import nbformat
from nbformat import NotebookNode
from nbgrader.api import Assignment, Grade, Gradebook, MissingEntry
from nbgrader.coursedir import CourseDirectory
from nbgrader.utils import parse_utc

from lessonkit.grading.gradebook.nbgrader_app import assignment_of
from lessonkit.grading.repair.exporter import unreadable
from lessonkit.grading.submission.answers import BEGIN, solutions
from lessonkit.grading.submission.check_cells import PREFIX, exercise_of, grading, verdict_of
from lessonkit.grading.submission.lateness import Extensions, Times, duration, extensions_of, times, written
from lessonkit.grading.submission.records import Record, records_of
from lessonkit.grading.submission.run_log import together

# Sandboxes that are none: there, what a student's code wrote could stand for its marks.
UNSAFE = ("none", "kernel")
NOT_GRADED = "handed in, not graded yet"
AGAIN = "handed in again since it was graded"


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


@dataclass(frozen=True)
class RunLog:
    """What the engine noted while it graded a submission; None where it noted nothing. `cells` are (name, seconds)."""

    seconds: float | None = None
    peak_mb: float | None = None
    ended: str | None = None
    repairs: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()
    suspicious: tuple[str, ...] = ()
    sandbox: str | None = None
    cells: tuple[tuple[str, float], ...] = ()


@dataclass
class Row:
    """One student's result. `points` is None where a written answer waits to be marked, or nothing was graded.

    `total` is of what is marked so far.
    """

    student: str
    name: str
    points: dict[str, float | None] = field(default_factory=dict)
    empty: set[str] = field(default_factory=set)  # written answers with 0 points that nobody had to give
    total: float = 0.0
    penalty: float = 0.0  # for handing in late: already taken off the total
    verdicts: dict[str, dict[str, Any]] = field(default_factory=dict)  # by exercise, see `Verdict.as_dict`
    unreadable: str | None = None
    submitted: bool = True
    ungraded: str | None = None  # why what was handed in, or the newest of it, has no grade
    times: Times = field(default_factory=Times)
    archive: str | None = None  # the archive that the notebook was in
    log: RunLog | None = None  # None: not graded by `lessonkit grade`
    repairs: list[str] = field(default_factory=list)
    tampering: list[str] = field(default_factory=list)
    answers: dict[str, str] = field(default_factory=dict)  # grade id -> the cell that the student wrote in
    notebooks: list[Path] = field(default_factory=list)  # autograded
    pages: list[Path] = field(default_factory=list)  # feedback

    @property
    def waiting(self) -> bool:
        """Whether a person has something to mark."""
        return self.submitted and None in self.points.values()

    @property
    def late(self) -> timedelta:
        """By how much it was handed in late; nothing where it was in time, or where that is not known."""
        return self.times.late or timedelta()


@dataclass(frozen=True)
class Released:
    """A cell to answer in, as students got it, and the model answer where the course's source has one."""

    source: str
    code: bool = True
    model: str = ""


@dataclass(frozen=True)
class Results:
    """`released` are the cells that students answer in, by grade id; `words` is the text around them.

    `due` is when the class had to hand in, and `strangers` have an extension, but are not in the gradebook.
    """

    assignment: str
    columns: Sequence[Column]
    rows: Sequence[Row]
    out_of: float
    released: Mapping[str, Released] = field(default_factory=dict)
    words: str = ""
    due: datetime | None = None
    strangers: Sequence[str] = ()

    def waiting(self, row: Row) -> list[Column]:
        """What of a student's submission waits to be marked by hand."""
        return [column for column in self.columns if row.submitted and row.points.get(column.grade_id) is None]

    def out_of_so_far(self, row: Row) -> float:
        """What could be had of what is marked so far: `row.total` is out of this."""
        return self.out_of - sum(column.out_of for column in self.waiting(row))

    def comparable(self) -> tuple[dict[str, float], float, list[Column]]:
        """Totals that can be compared, as they are over what is marked of everybody who has handed in.

        By student; what could be had; and what is left out, because it waits to be marked for somebody.
        """
        left_out = [c for c in self.columns if any(c in self.waiting(row) for row in self.rows)]
        ids = {column.grade_id for column in self.columns} - {column.grade_id for column in left_out}
        totals = {
            row.student: max(0.0, sum(row.points.get(name) or 0.0 for name in ids) - row.penalty)
            for row in self.rows
            if row.submitted
        }
        return totals, self.out_of - sum(column.out_of for column in left_out), left_out


# -------------------------------------------------------------------------------------------------------------- reading


def read_results(coursedir: CourseDirectory, assignment: str) -> Results:
    """The results of an assignment of a course. CommandError if the gradebook does not know it."""
    with assignment_of(coursedir, assignment) as (gradebook, found):
        columns = _columns(found)
        released, words = _released(coursedir, found)
        extensions = extensions_of(coursedir, gradebook)
        students = sorted(gradebook.students, key=in_order)
        rows = [_row(gradebook, coursedir, assignment, columns, extensions, student) for student in students]
        rows = _with_ungraded(rows, coursedir, assignment)
        extended = extensions.students(assignment) if extensions else []
        strangers = sorted({*extended} - {row.student for row in rows})
        return Results(
            assignment, columns, rows, float(found.max_score), released, words, found.duedate, strangers
        )


def in_order(student: Any) -> tuple[str, str, str]:
    """A key that sorts nbgrader's students by family name, or by id where there is none; accents do not count."""

    def plain(text: str | None) -> str:
        letters = unicodedata.normalize("NFKD", text or "").casefold()
        return "".join(letter for letter in letters if not unicodedata.combining(letter))

    return plain(student.last_name or student.id), plain(student.first_name), plain(student.id)


def waits(grade: Grade) -> bool:
    """Whether a graded cell waits for a person's mark. nbgrader counts it as 0 until then."""
    return grade.manual_score is None and bool(grade.needs_manual_grade)


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


def _released(coursedir: CourseDirectory, assignment: Assignment) -> tuple[dict[str, Released], str]:
    """The cells to answer in, by grade id, and the text of the other cells, where the course's source is at hand."""
    released, words = {}, []
    for notebook in assignment.notebooks:
        folder = coursedir.format_path(coursedir.source_directory, ".", assignment.name)
        source = _notebook(Path(folder) / f"{notebook.name}.ipynb")
        models = solutions(source) if source else {}
        words += [cell.source for cell in source.cells if BEGIN not in cell.source] if source else []
        answers = {cell.name for cell in notebook.solution_cells}
        for cell in notebook.source_cells:
            if cell.name in answers:
                text, code = cell.source or "", cell.cell_type == "code"
                released[cell.name] = Released(text, code, models.get(cell.name, ""))
    return released, "\n\n".join(words)


def _row(
    gradebook: Gradebook,
    coursedir: CourseDirectory,
    assignment: str,
    columns: Sequence[Column],
    extensions: Extensions | None,
    student: Any,
) -> Row:
    name = " ".join(part for part in (student.first_name, student.last_name) if part)
    row = Row(student.id, name or student.id)
    try:
        submission = gradebook.find_submission(assignment, student.id)
    except MissingEntry:
        row.submitted = False
        return row
    row.penalty = float(submission.late_submission_penalty or 0)
    row.total = max(0.0, float(submission.score) - row.penalty)
    row.times = times(submission, extensions)
    record = records_of(Path(coursedir.root), assignment).of(student.id)
    row.archive = record["repaired"]["archive"]
    row.log = read_log(record)
    if row.log:
        row.repairs += row.log.repairs
    grades: dict[tuple[str, str], Grade] = {}
    for notebook in submission.notebooks:
        grades |= {(notebook.name, grade.name): grade for grade in notebook.grades}
        _read_notebook(coursedir, assignment, notebook.name, row)
    for column in columns:
        grade = grades.get((column.notebook, column.grade_id))
        row.points[column.grade_id] = None if grade is None or waits(grade) else float(grade.score)
        if grade is not None and column.written and grade.manual_score is None and not waits(grade) and not grade.score:
            row.empty.add(column.grade_id)
    return row


def _with_ungraded(rows: Sequence[Row], coursedir: CourseDirectory, assignment: str) -> list[Row]:
    """The rows, and one for whoever has handed in and is not in the gradebook, with what has no grade noted."""
    handed_in = _handed_in(coursedir, assignment)
    records = records_of(Path(coursedir.root), assignment)
    for row in rows:
        folder = handed_in.pop(row.student, None)
        if not row.submitted:
            row.ungraded = NOT_GRADED if folder else None
        elif stopped := records.of(row.student)["quarantined"]:
            row.ungraded = next(iter(stopped.values()))
        elif folder and row.times.handed_in and (now := _timestamp(folder)):
            row.ungraded = AGAIN if now > row.times.handed_in else None
    new = (Row(student, student, submitted=False, ungraded=NOT_GRADED) for student in sorted(handed_in))
    return [*rows, *new]


def _handed_in(coursedir: CourseDirectory, assignment: str) -> dict[str, Path]:
    """The folders of those who have handed in, by student."""
    before, after = coursedir.format_path(coursedir.submitted_directory, "\0", assignment).split("\0")
    folders = glob.glob(f"{glob.escape(before)}*{glob.escape(after)}")
    return {path.removeprefix(before).removesuffix(after): Path(path) for path in folders if os.path.isdir(path)}


def _timestamp(folder: Path) -> datetime | None:
    """When a submission was handed in, as nbgrader notes it; None where that is not known."""
    try:
        with (folder / "timestamp.txt").open(encoding="utf-8") as file:
            return parse_utc(file.read(100).strip())
    except (OSError, ValueError, OverflowError):
        return None


def _read_notebook(coursedir: CourseDirectory, assignment: str, notebook: str, row: Row) -> None:
    """Add what an autograded notebook says to the row, and where it and its feedback page are."""
    page = Path(coursedir.format_path(coursedir.feedback_directory, row.student, assignment)) / f"{notebook}.html"
    row.pages += [page] if page.is_file() else []
    path = Path(coursedir.format_path(coursedir.autograded_directory, row.student, assignment)) / f"{notebook}.ipynb"
    autograded = _notebook(path)
    if autograded is None:
        return  # graded elsewhere: there are points, no reasons
    row.notebooks.append(path)
    row.unreadable = unreadable(autograded) or row.unreadable
    ours = autograded.metadata.get("lessonkit")
    if isinstance(ours, dict):
        row.repairs += [text for text in _strings(ours.get("repairs")) if text not in row.repairs]
        row.tampering += [text for text in _strings(ours.get("flags")) if text not in row.tampering]
    for cell in autograded.cells:
        exercise, verdict = exercise_of(cell), verdict_of(cell)
        if exercise and verdict:
            row.verdicts[exercise] = _well_formed(verdict)
        if grading(cell).get("solution") and grading(cell).get("grade_id"):
            row.answers[str(grading(cell)["grade_id"])] = cell.source


def _notebook(path: Path) -> NotebookNode | None:
    try:
        return nbformat.read(path, as_version=4)
    except (OSError, ValueError, nbformat.reader.NotJSONError):
        return None


def _well_formed(verdict: Mapping[str, Any]) -> dict[str, Any]:
    """A verdict with every part there and of its type: where there was no sandbox, a student may have written it."""
    aspects = verdict.get("aspects")
    return {
        **verdict,
        "out_of": number(verdict.get("out_of")) or 0.0,
        "aspects": [
            {
                **aspect,
                "name": str(aspect.get("name", "")),
                "ok": aspect.get("ok") is True,
                "message": str(aspect.get("message", "")),
            }
            for aspect in (aspects if isinstance(aspects, list) else [])
            if isinstance(aspect, dict)
        ],
        "misconceptions": list(_strings(verdict.get("misconceptions"))),
        "metric": _metric(verdict.get("metric")),
        "problem": str(verdict["problem"]) if verdict.get("problem") else None,
    }


def read_log(record: Record) -> RunLog | None:
    """What a submission's record says of its grading; None where it was not graded, or the record is odd."""
    try:
        noted = together(list(record["notebooks"].values()))
    except (TypeError, ValueError):
        return None
    if not record["notebooks"]:
        return None
    return RunLog(
        number(noted["seconds"]),
        number(noted["peak_mb"]),
        str(noted["ended"]) if noted["ended"] else None,
        _strings(noted["repairs"]),
        _strings(noted["flags"]),
        _strings(noted["suspicious"]),
        noted["sandbox"] if isinstance(noted["sandbox"], str) else None,
        tuple(
            (str(cell.get("grade_id") or f"cell {place}"), number(cell.get("seconds")) or 0.0)
            for place, cell in enumerate(noted["cells"], start=1)
            if isinstance(cell, dict)
        ),
    )


def _strings(value: Any) -> tuple[str, ...]:
    return tuple(item for item in value if isinstance(item, str)) if isinstance(value, list) else ()


def _metric(value: Any) -> dict[str, Any] | None:
    """The name and the number of a leaderboard; None where there is none, or it is odd."""
    found = number(value.get("value")) if isinstance(value, dict) else None
    return None if found is None else {"name": str(value.get("name", "")), "value": found}


def number(value: Any) -> float | None:
    """A finite number as it is; None for anything else."""
    usable = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    return float(value) if usable else None


# ------------------------------------------------------------------------------------------------- the class as a whole


@dataclass(frozen=True)
class Distribution:
    """The points of one exercise. `bars` are (points, students), from none to all; None where nobody has a mark."""

    column: Column
    bars: tuple[tuple[str, int], ...]
    mean: float | None
    out_of: float  # for extra credit: what the exercise gives
    full: int  # students with all the points
    marked: int
    waiting: int
    missed: tuple[tuple[str, int], ...]  # aspects, the most often missed first
    unwritten: int


@dataclass(frozen=True)
class Mistake:
    """A misconception, and who holds it."""

    exercise: str
    name: str
    rows: tuple[Row, ...]


@dataclass(frozen=True)
class Place:
    """A place of a leaderboard, counted from 1, and who shares it."""

    number: int
    value: float
    rows: tuple[Row, ...]


@dataclass(frozen=True)
class Leaderboard:
    """What an exercise's metric was for each answer, the best first."""

    exercise: str
    metric: str
    places: tuple[Place, ...]


@dataclass(frozen=True)
class Flag:
    """Something about a submission that a person should see."""

    kind: str
    row: Row
    text: str


@dataclass(frozen=True)
class Outlier:
    """A submission that took far more of something than the class: `limit` is where that begins."""

    what: str
    unit: str
    row: Row
    value: float
    median: float
    limit: float
    where: str = ""

    def amount(self, value: float) -> str:
        """A value with its unit."""
        return f"{value:.0f} {self.unit}" if value >= 100 else f"{value:.2g} {self.unit}"


# An outlier lies beyond the third quartile by three interquartile ranges (Tukey's "far out"), is at least double the
# median, and more than it by an amount that matters. Fewer values than MANY show no quartiles.
OUTLIER_RULE = (
    "beyond the third quartile plus three times the interquartile range, at least double the median, "
    "and at least 2 s or 100 MB above it; judged in classes of ten submissions or more"
)
MANY = 10
MATTERS = {"time": 2.0, "memory": 100.0}


def marks_of(results: Results, column: Column) -> list[tuple[Row, float]]:
    """The marks of one exercise, of the students who handed in.

    While a written answer waits for its mark, the 0 of one that was left empty or could not be read is left out: where
    those are all the marks there are, they would read as the class's.
    """
    rows = [row for row in results.rows if row.submitted]
    waiting = any(row.points.get(column.grade_id) is None for row in rows)
    return [
        (row, mark)
        for row in rows
        if (mark := row.points.get(column.grade_id)) is not None and not (waiting and column.grade_id in row.empty)
    ]


def distribution(results: Results, column: Column) -> Distribution:
    """How the points of one exercise are spread over the students who handed in."""
    rows = [row for row in results.rows if row.submitted]
    marks = [mark for _, mark in marks_of(results, column)]
    verdicts = [row.verdicts[column.name] for row in rows if column.name in row.verdicts]
    out_of = column.out_of or max([0.0, *marks, *(verdict["out_of"] for verdict in verdicts)])
    written = [verdict for verdict in verdicts if verdict["problem"] != "not written"]
    missed = Counter(a["name"] for verdict in written for a in verdict["aspects"] if not a["ok"])
    return Distribution(
        column,
        _bars(marks, out_of),
        statistics.fmean(marks) if marks else None,
        out_of,
        sum(mark >= out_of for mark in marks),
        len(marks),
        sum(row.points.get(column.grade_id) is None for row in rows),
        tuple(missed.most_common()),
        len(verdicts) - len(written),
    )


def _bars(marks: Sequence[float], out_of: float) -> tuple[tuple[str, int], ...]:
    """One bar for each mark that there can be; for each tenth of the points where those would be too many."""
    top = max([out_of, *marks])
    for step in (1.0, 0.5):
        if top <= 12 * step and all(mark % step == 0 for mark in [top, *marks]) and min([0.0, *marks]) == 0:
            counts = Counter(marks)
            return tuple((f"{i * step:g}", counts[i * step]) for i in range(int(top / step) + 1))
    if top <= 0:
        return (("0", len(marks)),) if marks else ()
    bins = Counter(min(9, max(0, int(10 * mark / top))) for mark in marks)
    return tuple((f"{i * top / 10:.3g}–{(i + 1) * top / 10:.3g}", bins[i]) for i in range(10))


def leaderboards(results: Results) -> list[Leaderboard]:
    """A leaderboard for each exercise whose answers were measured, the best first; equals share a place."""
    boards: dict[tuple[str, str], list[tuple[float, Row]]] = {}
    for row in results.rows:
        for exercise, verdict in row.verdicts.items():
            if metric := verdict.get("metric"):
                boards.setdefault((exercise, metric["name"]), []).append((metric["value"], row))
    found = []
    for (exercise, metric), entries in boards.items():
        values = sorted({value for value, _ in entries}, reverse=True)
        places = [
            Place(1 + sum(other > value for other, _ in entries), value, tuple(r for v, r in entries if v == value))
            for value in values
        ]
        found.append(Leaderboard(exercise, metric, tuple(places)))
    return found


def mistakes(results: Results) -> list[Mistake]:
    """The misconceptions of a class, the most frequent first."""
    holders: dict[tuple[str, str], list[Row]] = {}
    for row in results.rows:
        for exercise, verdict in row.verdicts.items():
            for name in dict.fromkeys(verdict["misconceptions"]):
                holders.setdefault((exercise, name), []).append(row)
    found = [Mistake(exercise, name, tuple(rows)) for (exercise, name), rows in holders.items()]
    return sorted(found, key=lambda mistake: -len(mistake.rows))


def flags(results: Results) -> list[Flag]:
    """What a person should see, by kind: signs of tampering, limits reached, what could not be read, repairs."""
    kinds: list[tuple[str, Any]] = [
        ("signs of tampering", lambda row: row.tampering),
        ("reached a limit", lambda row: _limits(row.log)),
        ("worth reading", lambda row: row.log.suspicious if row.log else []),
        ("could not be read", lambda row: [row.unreadable] if row.unreadable else []),
        ("handed in late", lambda row: [late_words(row)] if row.late else []),
        ("handed in as an archive", lambda row: [f"`{row.archive}`, with the notebook in it"] if row.archive else []),
        ("repaired", lambda row: row.repairs),
    ]
    return [Flag(kind, row, text) for kind, texts in kinds for row in results.rows for text in texts(row)]


def _limits(log: RunLog | None) -> list[str]:
    """What a submission was cut off at."""
    return [] if log is None else list(dict.fromkeys([*([log.ended] if log.ended else []), *log.flags]))


def why(row: Row, results: Results) -> str:
    """What cost a student points, in a few words for each exercise."""
    if not row.submitted:
        return row.ungraded or "nothing submitted"
    if row.unreadable:
        return row.unreadable
    reasons: dict[str, list[str]] = {}
    tried = {name: verdict for name, verdict in row.verdicts.items() if not _untried_extra(name, verdict, results)}
    for exercise, verdict in tried.items():
        if verdict["points"] < verdict["out_of"] or verdict["problem"]:
            reasons.setdefault(_reason(verdict), []).append(exercise)
    said = [
        reason if len(exercises) == len(tried) > 1 else f"{', '.join(exercises)}: {reason}"
        for reason, exercises in reasons.items()
    ]
    return "; ".join([*said, *([f"handed in late: {row.penalty:g} points off"] if row.penalty else [])])


def late_words(row: Row) -> str:
    """How late a submission was, and when it was due."""
    times, extended = row.times, f", {duration(row.times.extended)} of extension included" if row.times.extended else ""
    return f"{duration(row.late)} late, due {written(times.due)}{extended}" if times.due and row.late else ""


def late_cell(row: Row) -> str:
    """How late, for a table: "?" where a submission's time is not known, nothing where it was in time."""
    if row.late:
        return duration(row.late)
    return "?" if row.submitted and row.times.late is None else ""


def total_cell(row: Row, results: Results) -> str:
    """A total for a table: "18 of 26" where something waits to be marked, and "-" where nothing was handed in."""
    if not row.submitted:
        return "-"
    return f"{row.total:g} of {results.out_of_so_far(row):g}" if row.waiting else f"{row.total:g}"


def _untried_extra(exercise: str, verdict: Mapping[str, Any], results: Results) -> bool:
    """Whether this is an exercise for extra credit that the student left alone: no mistake, then."""
    extra = {column.name for column in results.columns if column.out_of == 0}
    return exercise in extra and verdict["problem"] == "not written"


def _reason(verdict: dict) -> str:
    if verdict["misconceptions"]:
        return " + ".join(verdict["misconceptions"])
    wrong = [aspect for aspect in verdict["aspects"] if not aspect["ok"]]
    if verdict["problem"] and wrong:  # the same thing stopped every aspect
        return verdict["problem"] if verdict["problem"] == "not written" else wrong[0]["message"]
    return verdict["problem"] or "wrong: " + ", ".join(aspect["name"] for aspect in wrong)


def unsafe(results: Results) -> list[Row]:
    """The submissions that were graded where their own code could have written the marks."""
    return [row for row in results.rows if row.log and row.log.sandbox in UNSAFE]


def telling(results: Results, n: int) -> list[Row]:
    """At most `n` rows that show what there is: one for each kind of result, and then more of each in turn."""
    kinds: dict[object, list[Row]] = {}
    for row in results.rows:
        lost = (
            (exercise, verdict["problem"] or bool(verdict["misconceptions"]))
            for exercise, verdict in row.verdicts.items()
            if verdict["points"] < verdict["out_of"]
        )
        kinds.setdefault((row.submitted, bool(row.unreadable), *lost), []).append(row)
    in_turn = [row for rows in itertools.zip_longest(*kinds.values()) for row in rows if row is not None]
    chosen = {row.student for row in in_turn[:n]}
    return [row for row in results.rows if row.student in chosen]


def outliers(results: Results) -> list[Outlier]:
    """The submissions that took far more time or memory than the class (see OUTLIER_RULE), the furthest out first."""
    found = []
    for what, unit, name in (("time", "s", "seconds"), ("memory", "MB", "peak_mb")):
        known = [(row, value) for row in results.rows if (value := getattr(row.log, name, None)) is not None]
        if len(known) < MANY:
            continue
        first, median, third = statistics.quantiles([value for _, value in known], n=4, method="inclusive")
        limit = max(third + 3 * (third - first), 2 * median, median + MATTERS[what])
        far = sorted(((row, value) for row, value in known if value > limit), key=lambda pair: -pair[1])
        found += [
            Outlier(what, unit, row, value, median, limit, _slowest(row) if what == "time" else "")
            for row, value in far
        ]
    return found


def _slowest(row: Row) -> str:
    """The cell that took most of a submission's time, if one did."""
    cells = row.log.cells if row.log else ()
    name, seconds = max(cells, key=lambda cell: cell[1], default=("", 0.0))
    return f"({seconds:.1f} s of it in {name})" if cells and 2 * seconds > sum(s for _, s in cells) else ""
