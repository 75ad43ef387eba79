"""Totals: how a class spreads over what is marked of everybody, in an assignment or over the term."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from lessonkit.grading.report.results import Results, Row

BINS = 10


@dataclass(frozen=True)
class Total:
    """Points, and what could be had. Extra credit can make it more, a late penalty less."""

    points: float
    out_of: float

    def __add__(self, other: Total) -> Total:
        return Total(self.points + other.points, self.out_of + other.out_of)

    @property
    def share(self) -> float | None:
        return self.points / self.out_of if self.out_of else None


@dataclass(frozen=True)
class Totals:
    """How the totals of a class are spread, as shares of what could be had. `bars` are (percent, students)."""

    shares: tuple[float, ...]
    bars: tuple[tuple[str, int], ...]

    @property
    def median(self) -> float | None:
        return statistics.median(self.shares) if self.shares else None


def so_far(row: Row, results: Results) -> Total | None:
    """A student's total of what is marked of their own submission. None where nothing is graded."""
    return Total(row.total, results.out_of_so_far(row)) if row.submitted else None


def comparable(results: Results) -> dict[str, Total]:
    """Totals of what is marked of everybody, by student, without those of whom nothing is graded."""
    totals, out_of, _ = results.comparable()
    return {student: Total(points, out_of) for student, points in totals.items()}


def spread_of(totals: Iterable[Total]) -> Totals:
    """How totals are spread; without those of which nothing is marked."""
    shares = sorted(share for total in totals if (share := total.share) is not None)
    return Totals(tuple(shares), _bars(shares))


def _bars(shares: Sequence[float]) -> tuple[tuple[str, int], ...]:
    """One bar for each tenth, without its upper end, which only the last one has; above 100 % there is one more."""
    width = 100 // BINS
    labels = [f"{i * width}–{(i + 1) * width}" for i in range(BINS)] + [">100"]
    places = Counter(BINS if share > 1 else min(BINS - 1, max(0, int(share * BINS))) for share in shares)
    return tuple((label, places[i]) for i, label in enumerate(labels) if i < BINS or places[i]) if shares else ()
