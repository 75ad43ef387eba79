"""Item analysis: how many fulfil each aspect, and whether those who do are those who do well in all the rest.

Difficulty is the share of students who fulfil an aspect: the higher, the easier. Discrimination is the correlation with
the rest score, the points of all other aspects (Henrysson, Correction of item-total correlations in item analysis,
Psychometrika 28, 1963). An aspect is fulfilled or not, so that is a point-biserial correlation. For a written answer
both are computed on its share of the points.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from lessonkit.grading.report.results import Results, Row, marks_of, number

# With fewer students a correlation is not shown: of 30 that have nothing to do with each other, its standard error is
# 1 / sqrt(29) = 0.19.
ENOUGH = 30
NOT_WRITTEN = "not written"


@dataclass(frozen=True)
class Item:
    """One aspect of an exercise, or a written answer, whose `aspect` is empty; `n` students were judged in it.

    `discrimination` is None where there are too few of them, or nothing varies.
    """

    exercise: str
    aspect: str
    points: float
    n: int
    difficulty: float | None
    discrimination: float | None

    @property
    def negative(self) -> bool:
        """Whether those who did well elsewhere fulfil it less often, by more than two standard errors of no relation.

        Then the check or the question may be at fault.
        """
        return self.discrimination is not None and self.discrimination < -2 / math.sqrt(self.n - 1)


def item_analysis(results: Results) -> list[Item]:
    """Every aspect and every written answer, in the order of the assignment.

    It is about the submissions that could be read and in which every exercise was judged. An exercise that was not
    written fulfils nothing; an extension that was not tried says nothing, and extensions are in nobody's rest score. A
    written answer that waits to be marked is left out, and written answers are in nobody's rest score, since they may
    be unmarked.
    """
    required = {column.name for column in results.columns if column.out_of and not column.written}
    judged = [row for row in results.rows if not row.unreadable]
    rows = [row for row in judged if required and required <= row.verdicts.keys()]
    earned = {row.student: sum(sum(marks.values()) for marks in _marks(row, required).values()) for row in rows}
    found = []
    for column in results.columns:
        if column.written:
            marks = [(row, mark) for row, mark in marks_of(results, column) if row.student in earned]
            if column.out_of:
                shares = [mark / column.out_of for _, mark in marks]
                rest = [earned[row.student] for row, _ in marks]
                found.append(_item(column.name, "", column.out_of, shares, rest))
            continue
        tried = [row for row in rows if column.name in row.verdicts and (column.out_of or _written(row, column.name))]
        for aspect, points in _aspects(tried, column.name).items():
            ok = [aspect in fulfilled(row, column.name) for row in tried]
            own = points if column.out_of else 0.0
            rest = [earned[row.student] - own * right for row, right in zip(tried, ok, strict=True)]
            found.append(_item(column.name, aspect, points, [float(right) for right in ok], rest))
    return found


def fulfilled(row: Row, exercise: str) -> set[str]:
    """The aspects of an exercise that a student's answer fulfils."""
    return {aspect["name"] for aspect in row.verdicts[exercise]["aspects"] if aspect["ok"]}


def _marks(row: Row, exercises: set[str]) -> dict[str, dict[str, float]]:
    """What each aspect of these exercises earned."""
    return {
        name: {a["name"]: number(a.get("out_of")) or 0.0 for a in row.verdicts[name]["aspects"] if a["ok"]}
        for name in exercises
    }


def _aspects(rows: Sequence[Row], exercise: str) -> dict[str, float]:
    """The aspects of an exercise, and what each is worth."""
    return {a["name"]: number(a.get("out_of")) or 0.0 for row in rows for a in row.verdicts[exercise]["aspects"]}


def _written(row: Row, exercise: str) -> bool:
    return row.verdicts[exercise]["problem"] != NOT_WRITTEN


def _item(exercise: str, aspect: str, points: float, shares: Sequence[float], rest: Sequence[float]) -> Item:
    mean = statistics.fmean(shares) if shares else None
    return Item(exercise, aspect, points, len(shares), mean, _discrimination(shares, rest))


def _discrimination(shares: Sequence[float], rest: Sequence[float]) -> float | None:
    if len(shares) < ENOUGH or len(set(shares)) == 1 or len(set(rest)) == 1:
        return None
    return statistics.correlation(shares, rest)
