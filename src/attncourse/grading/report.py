"""`attncourse report aNN`: the class as a table, student by exercise, with the misconceptions named."""

from __future__ import annotations

import argparse
from pathlib import Path

from attncourse._needs import needs

with needs("attncourse report", "grading"):
    from rich.columns import Columns
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from attncourse.grading.course import application, find_course
    from attncourse.grading.results import Column, Results, Row, read_results


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("assignment", help="such as a03")
    parser.add_argument(
        "--course", type=Path, default=Path(), metavar="DIR", help="the course's folder (default: here)"
    )


def main(args: argparse.Namespace) -> int:
    """Print the table; the exit status is 0 whatever the grades are. CommandError where there is nothing to show."""
    coursedir = application(find_course(args.course), "autograde").coursedir
    show(read_results(coursedir, args.assignment), Console(highlight=False))
    return 0


def show(results: Results, console: Console) -> None:
    """Print the results: a table that fits the terminal, or one line a student where the output is not a terminal."""
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
    table.add_column("what went wrong", ratio=1)
    for row in results.rows:
        points = [_points(row, column) for column in results.columns]
        table.add_row(row.name, *points, Text(f"{row.total:g}", "bold"), Text(why(row, results)))
    console.print(table)
    waiting = [
        c.name for c in results.columns if any(r.submitted and r.points[c.grade_id] is None for r in results.rows)
    ]
    if waiting:
        console.print(
            f"…  waits to be marked by hand, in the formgrader, and counts 0 until then: {', '.join(waiting)}"
        )


def why(row: Row, results: Results) -> str:
    """What cost a student points, in a few words for each exercise."""
    if not row.submitted:
        return "nothing submitted"
    if row.unreadable:
        return row.unreadable
    reasons: dict[str, list[str]] = {}
    for exercise, verdict in row.verdicts.items():
        if verdict["points"] < verdict["out_of"] or verdict["problem"]:
            reasons.setdefault(_reason(verdict), []).append(exercise)
    return "; ".join(
        reason if len(exercises) == len(row.verdicts) > 1 else f"{', '.join(exercises)}: {reason}"
        for reason, exercises in reasons.items()
    )


def _reason(verdict: dict) -> str:
    if verdict["misconceptions"]:
        return " + ".join(verdict["misconceptions"])
    wrong = [aspect for aspect in verdict["aspects"] if not aspect["ok"]]
    if verdict["problem"] and wrong:  # the same thing stopped every aspect
        return verdict["problem"] if verdict["problem"] == "not written" else wrong[0]["message"]
    return verdict["problem"] or "wrong: " + ", ".join(aspect["name"] for aspect in wrong)


def _worth(column: Column) -> str:
    return f"{column.out_of:g}" if column.out_of else "extra"


def _points(row: Row, column: Column) -> Text:
    points = row.points.get(column.grade_id)
    if points is None:
        return Text("…" if row.submitted else "-", "dim")
    if column.out_of == 0:
        return Text(f"+{points:g}", "green" if points else "dim")
    return Text(f"{points:g}", "green" if points >= column.out_of else "yellow" if points else "red")
