"""The term: totals over several assignments, and which misconceptions come, stay and go."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from lessonkit.grading.report.items import NOT_WRITTEN
from lessonkit.grading.report.results import Results
from lessonkit.grading.report.totals import Total, comparable, so_far

if TYPE_CHECKING:
    from lessonkit.exercises.exercise import Exercise

NOTHING = Total(0.0, 0.0)
CHANGED = 0.05  # a change less likely than this by chance is called one


@dataclass
class TermRow:
    """A student over the term: by assignment the total so far, of what was handed in."""

    student: str
    name: str
    totals: dict[str, Total] = field(default_factory=dict)
    comparable: Total = NOTHING  # of what is marked of everybody

    @property
    def total(self) -> Total:
        """Of all that was handed in and is marked."""
        return sum(self.totals.values(), NOTHING)


@dataclass(frozen=True)
class Held:
    """Who holds a misconception in one assignment, and whose answers could have shown it, both by student."""

    assignment: str
    holders: frozenset[str]
    judged: frozenset[str]


@dataclass(frozen=True)
class Recurring:
    """A misconception over the term: the assignments in which it could be seen, in their order.

    `change` compares the first and the last of them: "fewer", "more", "no clear change"; "" where there is only one.
    """

    name: str
    exercises: tuple[str, ...]
    seen: tuple[Held, ...]
    rows: tuple[TermRow, ...]  # who holds it in any of them
    change: str

    def of(self, assignment: str) -> Held | None:
        return next((held for held in self.seen if held.assignment == assignment), None)


def term_rows(term: Sequence[Results]) -> list[TermRow]:
    """One row a student, in the order of the assignments' rows."""
    found: dict[str, TermRow] = {}
    for results in term:
        among_all = comparable(results)
        for row in results.rows:
            one = found.setdefault(row.student, TermRow(row.student, row.name))
            if total := so_far(row, results):
                one.totals[results.assignment] = total
                one.comparable += among_all[row.student]
    return list(found.values())


def recurring(term: Sequence[Results], exercises: Mapping[str, Sequence[Exercise]]) -> list[Recurring]:
    """The misconceptions of the term, those of most students first. `exercises` are the course's, by assignment.

    One name is one misconception, in whichever exercise it comes. It could be seen in an answer that was written to an
    exercise that knows it.
    """
    knowing: dict[str, dict[str, set[str]]] = {}  # name -> assignment -> exercises
    for results in term:
        for exercise in exercises.get(results.assignment, ()):
            for misconception in exercise.misconceptions:
                knowing.setdefault(misconception.name, {}).setdefault(results.assignment, set()).add(exercise.name)
        for row in results.rows:  # where the course does not know it any more
            for name, verdict in row.verdicts.items():
                for held in verdict["misconceptions"]:
                    knowing.setdefault(held, {}).setdefault(results.assignment, set()).add(name)
    people = {row.student: row for row in term_rows(term)}
    found = []
    for name, where in knowing.items():
        seen = [_held(results, name, where[results.assignment]) for results in term if results.assignment in where]
        seen = [held for held in seen if held.judged]
        holders = frozenset[str]().union(*(held.holders for held in seen))
        if holders:
            rows = tuple(row for student, row in people.items() if student in holders)
            known = dict.fromkeys(exercise for held in seen for exercise in sorted(where[held.assignment]))
            found.append(Recurring(name, tuple(known), tuple(seen), rows, _change(seen)))
    return sorted(found, key=lambda one: -len(one.rows))


def _held(results: Results, name: str, exercises: set[str]) -> Held:
    answers = [
        (row.student, verdict)
        for row in results.rows
        for exercise, verdict in row.verdicts.items()
        if exercise in exercises and verdict["problem"] != NOT_WRITTEN
    ]
    return Held(
        results.assignment,
        frozenset(student for student, verdict in answers if name in verdict["misconceptions"]),
        frozenset(student for student, _ in answers),
    )


def _change(seen: Sequence[Held]) -> str:
    """By the sign test (McNemar's, exact): of the students judged in both, those who hold it in one of them only."""
    if len(seen) < 2:
        return ""
    first, last = seen[0], seen[-1]
    both = first.judged & last.judged
    lost, gained = len(both & (first.holders - last.holders)), len(both & (last.holders - first.holders))
    if sign_test(lost, gained) >= CHANGED:
        return "no clear change"
    return "fewer" if lost > gained else "more"


def sign_test(one: int, other: int) -> float:
    """How likely so unequal a split, or a more unequal one, is where both sides are equally likely."""
    n = one + other
    tail = sum(math.comb(n, k) for k in range(min(one, other) + 1))
    return min(1.0, 2 * tail / 2**n)
