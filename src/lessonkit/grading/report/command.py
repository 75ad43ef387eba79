"""`lessonkit report aNN`: the class as a table, what it got wrong and who to talk to, and the same as a page.

Of several assignments, or of none in particular, it is the term: totals, and which misconceptions come, stay and go.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from commandkit.commands import typed
from commandkit.errors import CommandError, require_extra
from commandkit.files import write_whole

with require_extra(typed("report"), "grading"):
    from rich.columns import Columns
    from rich.console import Console
    from rich.padding import Padding
    from rich.table import Table
    from rich.text import Text

    from lessonkit.course import course_of
    from lessonkit.grading.gradebook.nbgrader_app import application, find_course, graded_assignments
    from lessonkit.grading.report import tables
    from lessonkit.grading.report.items import item_analysis
    from lessonkit.grading.report.page import (
        LINES,
        NO_LOG,
        UNSAFE_NOTE,
        flat,
        full_share,
        page,
        percent,
        some,
        term_page,
        without_line,
    )
    from lessonkit.grading.report.results import (
        OUTLIER_RULE,
        Column,
        Distribution,
        Results,
        Row,
        distribution,
        flags,
        late_cell,
        leaderboards,
        mistakes,
        outliers,
        read_results,
        total_cell,
        unsafe,
        why,
    )
    from lessonkit.grading.report.term import recurring, term_rows
    from lessonkit.grading.report.todo import tasks
    from lessonkit.grading.report.totals import comparable, spread_of
    from lessonkit.grading.submission.lateness import EXTENSIONS, written
    from lessonkit.grading.submission.records import grading_folder

if TYPE_CHECKING:
    from nbgrader.apps.baseapp import NbGrader

    from lessonkit.course import Course
    from lessonkit.exercises.exercise import Exercise
    from lessonkit.grading.report.lines import Line, Stumbling
    from lessonkit.grading.report.similarity import Pair
    from lessonkit.grading.report.term import Recurring, TermRow

WHERE_SECONDS = 60.0
# Lines of the terminal; those that it stumbles over are of an exercise.
MISTAKES, FLAGS, PAIRS, PLACES, ASPECTS, STUMBLES = 15, 30, 10, 20, 5, 5

EXAMPLES = """
PROGRAM report a03
PROGRAM report            # the term: all that is graded
PROGRAM report a02 a03 a04
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "assignments", nargs="*", metavar="assignment", help="such as a03; none, or several: totals over the term"
    )
    parser.add_argument(
        "--course", type=Path, default=Path(), metavar="DIR", help="the course's folder (default: here)"
    )
    what = parser.add_mutually_exclusive_group()
    what.add_argument(
        "--html", type=Path, metavar="FILE",
        help="where to write the page, with its tables as CSV beside it (default: grading/<assignment>/report.html)",
    )  # fmt: skip
    what.add_argument("--brief", action="store_true", help="print the table alone, and write no page")
    parser.add_argument("--names", action="store_true", help="name the students in the leaderboard")
    parser.add_argument(
        "--where", action="store_true", help="look for the lines that the class stumbles over (runs wrong answers)"
    )
    parser.add_argument(
        "--where-seconds", type=float, default=WHERE_SECONDS, metavar="N",
        help=f"how long to look for them (default: {WHERE_SECONDS:g}; Ctrl-C keeps what was found)",
    )  # fmt: skip


def main(args: argparse.Namespace) -> int:
    """Print the report and write the page; the exit status is 0 whatever the grades are.

    CommandError where there is nothing to show, or the page cannot be written.
    """
    if args.where and (args.brief or args.where_seconds <= 0):
        raise CommandError("--where goes with more than no time, and not with --brief")
    app = application(find_course(args.course), "autograde")
    console = Console(highlight=False, soft_wrap=not sys.stdout.isatty())
    if len(args.assignments) != 1:
        if args.where or args.names:
            raise CommandError("--where and --names go with one assignment")
        return _term(app, args, console)
    (assignment,) = args.assignments
    results = read_results(app.coursedir, assignment)
    warn(results, console)
    show(results, console)
    if args.brief:
        return 0
    # torch comes with the exercises: a second in which nothing could be shown
    exercises = _exercises(course_of(app.config), results)
    from lessonkit.grading.report.similarity import similar

    pairs = similar(results, exercises)
    lines = _lines(app, results, exercises, args.where_seconds, console) if args.where else []
    show_class(results, exercises, pairs, console, lines, named=args.names)
    path = (args.html or grading_folder(Path(app.coursedir.root), assignment) / "report.html").resolve()
    write_report(path, results, exercises, pairs, lines, named=args.names)
    console.print(Text(f"\nthe page: {_from_here(path)}"))
    return 0


def write_report(
    path: Path,
    results: Results,
    exercises: Sequence[Exercise],
    pairs: Sequence[Pair],
    lines: Sequence[Stumbling] = (),
    named: bool = False,
) -> None:
    """Write an assignment's page, and its tables as CSV beside it. CommandError if that cannot be done."""
    files = {
        path.with_name(f"{path.stem}-students.csv"): tables.students_table(results),
        path.with_name(f"{path.stem}-aspects.csv"): tables.aspects_table([results]),
    }
    write(path, page(results, exercises, pairs, path.parent, lines, named=named, files=[*files]))
    for file, table in files.items():
        tables.write(file, table)


def _term(app: NbGrader, args: argparse.Namespace, console: Console) -> int:
    """The report on several assignments: those that are named, or all of which something is graded."""
    course, root = course_of(app.config), Path(app.coursedir.root)
    known = course.assignments()
    order = {name: place for place, name in enumerate(known)}
    graded = sorted(graded_assignments(app.coursedir), key=lambda name: (order.get(name, len(order)), name))
    term = [read_results(app.coursedir, name) for name in dict.fromkeys(args.assignments or graded)]
    rows = term_rows(term)
    _show_term(term, rows, console)
    if args.brief:
        return 0
    found = recurring(term, {results.assignment: _exercises(course, results) for results in term})
    lasting = [one for one in found if len(one.seen) > 1]
    if lasting:
        console.print("", Text("misconceptions that more than one assignment can show", "bold"), sep="\n")
        for line in _first(MISTAKES, [_line(f"{len(one.rows)} ×", one.name, _over(one)) for one in lasting]):
            console.print(Padding(line, (0, 0, 0, 2)))
    path = (args.html or root / "grading" / "report.html").resolve()
    files = {
        path.with_name(f"{path.stem}-students.csv"): tables.term_table(term, rows),
        path.with_name(f"{path.stem}-aspects.csv"): tables.aspects_table(term),
        path.with_name(f"{path.stem}-misconceptions.csv"): tables.misconceptions_table(found),
    }
    pages = {one.assignment: grading_folder(root, one.assignment).resolve() / "report.html" for one in term}
    there = {assignment: page for assignment, page in pages.items() if page.is_file()}
    write(path, term_page(term, rows, found, path.parent, there, files=[*files]))
    for file, table in files.items():
        tables.write(file, table)
    console.print(Text(f"\nthe page: {_from_here(path)}"))
    return 0


def _show_term(term: Sequence[Results], rows: Sequence[TermRow], console: Console) -> None:
    """Print the totals of the term, a line a student."""
    table = Table(box=None, header_style="bold", pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("student")
    for results in term:
        table.add_column(f"{results.assignment} ({results.out_of:g})", justify="right", no_wrap=True)
    table.add_column("total so far", justify="right", no_wrap=True)
    for row in rows:
        totals = [row.totals.get(results.assignment) for results in term]
        table.add_row(
            Text(flat(row.name)),
            *("-" if total is None else f"{total.points:g}" for total in totals),
            Text(f"{row.total.points:g} of {row.total.out_of:g} ({percent(row.total.share)})", "bold"),
        )
    console.print(table)


def _over(one: Recurring) -> str:
    counts = ", ".join(f"{held.assignment} {len(held.holders)} of {len(held.judged)}" for held in one.seen)
    return f": {counts}; {one.change}"


def _exercises(course: Course, results: Results) -> Sequence[Exercise]:
    """Those of an assignment; of one of the instructor's own, such as an exam, those that it checks."""
    if results.assignment in course.assignments():
        return course.exercises_of(results.assignment)
    names = [column.name for column in results.columns if not column.written]
    return [course.exercise(name) for name in names if course.is_exercise(name)]


def _from_here(path: Path) -> Path:
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path


def _lines(
    app: NbGrader, results: Results, exercises: Sequence[Exercise], seconds: float, console: Console
) -> list[Stumbling]:
    """The lines that the class stumbles over; none, and a word why, where students' code cannot be run."""
    from lessonkit.grading.engine.grade import progress_bar
    from lessonkit.grading.report.lines import stumbling

    try:
        with progress_bar(console) as stage:
            return stumbling(app, results, exercises, seconds, stage)
    except CommandError as error:
        console.print(Text(f"No lines are looked for: {error}"))
        return []


def write(path: Path, text: str) -> None:
    """Write a file whole, or not at all. CommandError if that cannot be done."""
    try:
        write_whole(path, text.encode(errors="replace"))
    except OSError as error:
        reason = error.strerror or error
        raise CommandError(f"cannot write {path}: {reason} (choose another place with --html FILE)") from None


# ------------------------------------------------------------------------------------------------------------ the table


def show(results: Results, console: Console, rows: Sequence[Row] | None = None) -> None:
    """Print the results: a table that fits the terminal, or one line a student where the output is not a terminal.

    Of all students, or of those in `rows`.
    """
    rows = results.rows if rows is None else rows
    if not console.is_terminal:
        console = Console(file=console.file, width=10_000, highlight=False)
    else:
        names = [f"{number} {column.name}" for number, column in enumerate(results.columns, start=1)]
        console.print(Columns([Text(f"{results.assignment}, {len(results.rows)} students:", "bold"), *names]), "")
    table = Table(box=None, header_style="bold", pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("student")
    for number, column in enumerate(results.columns, start=1):
        heading = f"{number}\n{_worth(column)}" if console.is_terminal else f"{column.name} ({_worth(column)})"
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column(
        f"total\n{results.out_of:g}" if console.is_terminal else f"total ({results.out_of:g})", justify="right"
    )
    if results.due:
        table.add_column("late", justify="right")
    table.add_column("what went wrong", ratio=1)
    for row in rows:
        points = [_points(row, column) for column in results.columns]
        reason = Text(flat(why(row, results)))
        late = [Text(late_cell(row))] if results.due else []
        table.add_row(Text(flat(row.name)), *points, Text(total_cell(row, results), "bold"), *late, reason)
    console.print(table)
    if len(rows) < len(results.rows):
        console.print(f"{len(rows)} of {len(results.rows)} students; the page has all of them")
    waiting = [
        c.name for c in results.columns if any(r.submitted and r.points[c.grade_id] is None for r in results.rows)
    ]
    if waiting:
        console.print(
            f"…  waits to be marked by hand (`mark`); totals leave it out until then: {', '.join(waiting)}"
        )
    unknown = sum(row.submitted and row.times.handed_in is None for row in results.rows)
    if results.due:
        console.print(f"due {written(results.due)}" + (f"; ?  no time is known of {unknown}" if unknown else ""))
    for student in results.strangers:
        console.print(Text(f"{EXTENSIONS}: nobody is called {flat(student)} here: is it a slip?"))


def _worth(column: Column) -> str:
    return f"{column.out_of:g}" if column.out_of else "extra"


def _points(row: Row, column: Column) -> Text:
    points = row.points.get(column.grade_id)
    if points is None:
        return Text("…" if row.submitted else "-", "dim")
    if column.out_of == 0:
        return Text(f"+{points:g}", "green" if points else "dim")
    return Text(f"{points:g}", "green" if points >= column.out_of else "yellow" if points else "red")


# ------------------------------------------------------------------------------------------------------------ the class


def warn(results: Results, console: Console) -> None:
    """Say first what matters most: that marks could have been written by students' code."""
    rows = unsafe(results)
    if rows:
        which = "all submissions" if len(rows) == sum(row.submitted for row in results.rows) else _who(rows)
        console.print(Text(f"Graded without a sandbox: {which}. {UNSAFE_NOTE}\n", "bold"))


def show_class(
    results: Results,
    exercises: Sequence[Exercise],
    pairs: Sequence[Pair],
    console: Console,
    stumbling: Sequence[Stumbling] = (),
    named: bool = False,
) -> None:
    """Print what the class as a whole shows, each part only where it has something to say.

    A leaderboard says who is where if it is to be `named`.
    """
    for heading, lines in _parts(results, exercises, pairs, stumbling, _bar_characters(console), named):
        lines = list(lines)
        if lines:
            console.print("", Text(heading, "bold"), sep="\n")
            for line in lines:
                console.print(Padding(line, (0, 0, 0, 2)) if console.is_terminal else Text("  ") + line)


def _parts(
    results: Results,
    exercises: Sequence[Exercise],
    pairs: Sequence[Pair],
    stumbling: Sequence[Stumbling],
    bars: str,
    named: bool,
) -> Iterator[tuple[str, Iterable[Text]]]:
    """The headings of the report, and the lines under each."""
    known = [d for d in (distribution(results, column) for column in results.columns) if d.marked]
    width = max((len(d.column.name) for d in known), default=0)
    spread = spread_of(comparable(results).values())
    totals = [Text(f"0 {_drawn(spread.bars, bars)} 100 %  median {percent(spread.median)}")] if spread.bars else []
    yield "totals (bars: students, in percent of what is marked of everybody)", totals
    yield "points (bars: students, from no points to all)", [_spread(d, width, bars) for d in known]
    negative = [item for item in item_analysis(results) if item.negative]
    yield (
        "those who do well elsewhere fulfil this less often: look at the check or the question",
        _first(ASPECTS, [_line("", item.aspect or item.exercise, f"({item.exercise})") for item in negative]),
    )
    for board in leaderboards(results):
        yield (
            f"leaderboard: {board.exercise} ({board.metric})",
            _first(
                PLACES,
                [
                    Text(f"{p.number:>3}.  {p.value:.4g}  {_who(p.rows) if named else '█' * len(p.rows)}")
                    for p in board.places
                ],
            ),
        )
    hints = {(e.name, m.name): f"\n    {first_sentence(m.hint)}" for e in exercises for m in e.misconceptions}
    yield (
        "misconceptions: who to talk to",
        _first(
            MISTAKES,
            [
                _line(f"{len(m.rows)} ×", m.name, f"({m.exercise}): {_who(m.rows)}")
                + Text(hints.get((m.exercise, m.name), ""))
                for m in mistakes(results)
            ],
        ),
    )
    yield LINES, [text for one in stumbling for text in _stumbling(one)]
    yield "flags", _first(FLAGS, [_line(f"{f.kind},", f.row.name, f": {f.text}") for f in flags(results)])
    far = [
        _line(f"{o.what},", o.row.name, f": {o.amount(o.value)} where the median is {o.amount(o.median)} {o.where}")
        for o in outliers(results)
    ]
    yield "far more time or memory than the class", [*far, Text(f"({OUTLIER_RULE})", "dim")] if far else []
    alike = [_line("", f"{pair.first.name} and {pair.other}", f": {'; '.join(pair.evidence)}") for pair in pairs]
    yield "nearly identical: look at them side by side, on the page", _first(PAIRS, alike)
    handed_in = [row for row in results.rows if row.submitted]
    unknown = [row for row in handed_in if row.log is None]
    of_whom = "" if len(unknown) == len(handed_in) else f"of {_who(unknown)}: "
    yield "not known", [Text(f"{of_whom}{NO_LOG}")] if unknown else []
    yield "to do", [_line(f"{len(t.rows)} ×", t.what.lower(), f": {some(t.rows)}") for t in tasks(results, pairs)]


def _stumbling(one: Stumbling) -> list[Text]:
    """The lines of an exercise, and how many answers have none."""
    shown = [
        _line(f"{len(line.rows)} ×", line.text, f"({one.exercise}{_at(line)}): {_who(line.rows)}")
        for line in one.lines
    ]
    rest = "; ".join(without_line(one))
    return [*_first(STUMBLES, shown), *([Text(f"{one.exercise}: {rest}", "dim")] if rest else [])]


def _at(line: Line) -> str:
    return "" if line.is_all else f", at {line.piece}"


def _line(kind: str, bold: str, rest: str) -> Text:
    space = "" if rest.startswith(":") else " "
    return Text.assemble(f"{kind} " if kind else "", (flat(bold), "bold"), f"{space}{flat(rest)}")


def _first(n: int, lines: Sequence[Text]) -> list[Text]:
    more = [Text(f"and {len(lines) - n} more: see the page", "dim")] if len(lines) > n else []
    return [*lines[:n], *more]


def _spread(spread: Distribution, width: int, bars: str) -> Text:
    """A line of bars, one for each mark that there can be."""
    line = _drawn(spread.bars, bars)
    low, high = spread.bars[0][0].split("–")[0], spread.bars[-1][0].split("–")[-1]
    missed = f"; most often missed: {spread.missed[0][0]} ({spread.missed[0][1]})" if spread.missed else ""
    drawn = f"{low} {line} {high}"
    return Text(f"{spread.column.name:<{width}}  {drawn:<16} mean {spread.mean:.3g}, {full_share(spread)}{missed}")


def _drawn(counts: Sequence[tuple[str, int]], bars: str) -> str:
    most = max(count for _, count in counts)
    return "".join(bars[-(-count * (len(bars) - 1) // most)] for _, count in counts)


def _bar_characters(console: Console) -> str:
    """From nothing to all; the blocks where the output's encoding has them."""
    blocks = "·▁▂▃▄▅▆▇█"
    try:
        blocks.encode(console.encoding)
    except (UnicodeEncodeError, LookupError):
        return ".:-=+*#%@"
    return blocks


def _who(rows: Sequence[Row]) -> str:
    return flat(some(rows))


def first_sentence(text: str) -> str:
    """Up to the first full stop that ends a sentence."""
    end = next((i for i in range(len(text)) if text[i] in ".?" and text[i + 1 : i + 2] in ("", " ")), len(text))
    return text[: end + 1]
