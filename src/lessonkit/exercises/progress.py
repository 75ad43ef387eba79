"""How far a learner has come: the points of their own checks, kept on their own machine and nowhere else."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from html import escape
from pathlib import Path
from typing import NamedTuple

from platformdirs import user_data_path

from commandkit.files import write_whole
from lessonkit.exercises.exercise import Exercise
from lessonkit.exercises.verdict import Verdict

PLACE = "LESSONKIT_PROGRESS"


class Reached(NamedTuple):
    """What the last check of an exercise gave, and the best one."""

    last: float
    best: float


class Progress:
    """The points by exercise, as a table. Made by a course's `progress()`."""

    def __init__(self, course: str, assignments: dict[str, list[Exercise]]):
        self.place = place(course)
        self.rows = {name: [(each, read(course, each)) for each in of] for name, of in assignments.items()}

    def __repr__(self) -> str:
        lines = []
        for assignment, rows in self.rows.items():
            lines.append(f"{assignment}  {self._bar(rows)}  {self._score(rows)}")
            lines += [f"     {exercise.name:<28}{_said(exercise, reached)}" for exercise, reached in rows if reached]
        return "\n".join([*lines, "", f"Kept in {self.place}; delete it to begin anew."])

    def _repr_html_(self) -> str:
        parts = []
        for assignment, rows in self.rows.items():
            each = "".join(
                f"<tr style='background:none'><td style='text-align:left'><code>{escape(exercise.name)}</code></td>"
                f"<td style='text-align:left'>{_said(exercise, reached)}</td></tr>"
                for exercise, reached in rows
            )
            parts.append(
                f"<details><summary><strong>{assignment}</strong> <span aria-hidden='true' style='color:#0072B2'>"
                f"{self._bar(rows)}</span> {self._score(rows)}</summary><table>{each}</table></details>"
            )
        kept = f"<p style='opacity:0.75'>Kept in <code>{escape(str(self.place))}</code>; delete it to begin anew.</p>"
        return "".join(parts) + kept

    @staticmethod
    def _counted(rows) -> tuple[float, float]:
        """Points and what there is to get; extra points count where there are some, and are not asked for."""
        points = sum(reached.last for _, reached in rows if reached)
        return points, sum(exercise.out_of for exercise, _ in rows if not exercise.extra)

    def _score(self, rows) -> str:
        points, out_of = self._counted(rows)
        return f"{points:g} of {out_of:g} points"

    def _bar(self, rows) -> str:
        points, out_of = self._counted(rows)
        full = min(10, int(10 * points / out_of)) if out_of else 0
        return "█" * full + "░" * (10 - full)


def _said(exercise: Exercise, reached: Reached | None) -> str:
    if reached is None:
        return "not checked yet"
    before = f" (was {reached.best:g})" if reached.best > reached.last else ""
    return f"{reached.last:g} of {exercise.out_of:g}{' extra' if exercise.extra else ''}{before}"


def place(course: str) -> Path:
    """The folder for a course: what $LESSONKIT_PROGRESS names, else one among the user's own data."""
    return Path(os.environ[PLACE]) if os.environ.get(PLACE) else user_data_path(course) / "progress"


def read(course: str, exercise: Exercise) -> Reached | None:
    """What was kept of the exercise; None if nothing was, or it cannot be read."""
    try:
        kept = json.loads((place(course) / f"{exercise.name}.json").read_text("utf-8"))
        return Reached(float(kept["last"]), float(kept["best"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def keep(course: str, exercise: Exercise, verdict: Verdict) -> None:
    """Write down what a check gave: a file for each exercise, so that two notebooks at once lose nothing.

    Never an error: a check must not fail because a disk is full.
    """
    before = read(course, exercise)
    best = max(verdict.points, before.best if before else 0.0)
    with contextlib.suppress(OSError):
        content = json.dumps({"last": verdict.points, "best": best})
        write_whole(place(course) / f"{exercise.name}.json", content)


def wanted() -> bool:
    """Whether a learner is at work: in a notebook's kernel, not in a script, nor where somebody grades or builds."""
    if os.environ.get("NBGRADER_EXECUTION") == "autograde" or os.environ.get(PLACE) == "":
        return False
    ipython = sys.modules.get("IPython")
    return hasattr(ipython.get_ipython(), "kernel") if ipython else False
