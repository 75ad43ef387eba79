"""What is left to do for a person, and about whom: what the report says first."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from commandkit.commands import typed
from lessonkit.grading.report.results import Flag, Results, Row, flags

if TYPE_CHECKING:
    from lessonkit.grading.report.similarity import Pair


@dataclass(frozen=True)
class Task:
    """Something to do, and about whom, with a word on each. `kind` is its short name."""

    kind: str
    what: str
    advice: str
    about: tuple[tuple[Row, str], ...]

    @property
    def urgent(self) -> bool:
        """Whether a grade is missing, or may be wrong."""
        return self.kind in ("ungraded", "unreadable", "tampering")

    @property
    def rows(self) -> tuple[Row, ...]:
        """Whom it is about, each once."""
        return tuple({row.student: row for row, _ in self.about}.values())


def tasks(results: Results, pairs: Sequence[Pair] = ()) -> list[Task]:
    """What there is to do, the most urgent first; nothing that is done."""
    noted: dict[str, list[Flag]] = {}
    for flag in flags(results):
        noted.setdefault(flag.kind, []).append(flag)

    def flagged(kind: str) -> Iterable[tuple[Row, str]]:
        return ((flag.row, flag.text) for flag in noted.get(kind, []))

    def each(says: Callable[[Row], str]) -> Iterable[tuple[Row, str]]:
        return ((row, text) for row in results.rows if (text := says(row)))

    alike = [(row, f"{pair.first.name} and {pair.other}: {'; '.join(pair.evidence)}")
             for pair in pairs for row in (pair.first, pair.second) if row]  # fmt: skip
    grade = typed(f"grade {results.assignment}")
    found: list[tuple[str, str, str, Iterable[tuple[Row, str]]]] = [
        ("ungraded", "Not graded", f"`{grade}` grades what is new; for who is quarantined, look first, then "
         f"`{grade} --force --student ID`.", each(lambda row: row.ungraded or "")),
        ("unreadable", "Could not be read", "0 points until they hand in again: write to them.",
         flagged("could not be read")),
        ("tampering", "Signs of tampering", "Read these submissions.", flagged("signs of tampering")),
        ("reading", "Worth reading", "Answers with a name that an answer has no use for: read them.",
         flagged("worth reading")),
        ("similar", "Nearly identical", "Look at them side by side, below, and ask.", alike),
        ("limit", "Reached a limit", f"If the machine was busy: `{grade} --force --student ID`.",
         flagged("reached a limit")),
        ("late", "Late", "Decide what that costs; extensions are given in `extensions.csv`.",
         flagged("handed in late")),
        ("waiting", "To be marked",
         f"`{typed('mark')} {results.assignment}`, or the formgrader; until then it is in no total.",
         each(lambda row: ", ".join(column.name for column in results.waiting(row)))),
        ("missing", "Nothing handed in", "Ask whether they need anything.",
         each(lambda row: "" if row.submitted or row.ungraded else "nothing handed in")),
    ]  # fmt: skip
    made = [Task(kind, what, advice, tuple(about)) for kind, what, advice, about in found]
    return [task for task in made if task.about]
