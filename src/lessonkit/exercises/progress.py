"""How far a learner has come: the points of their own checks, kept on their own machine and nowhere else."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import NamedTuple

from platformdirs import user_data_path

from commandkit.files import write_whole
from lessonkit import kernel
from lessonkit.exercises.exercise import Exercise
from lessonkit.exercises.verdict import Verdict

PLACE = kernel.QUIET


class Reached(NamedTuple):
    """What the last check of an exercise gave, and the best one, which counts."""

    last: float
    best: float


class Count(NamedTuple):
    """Points of an assignment: by checks, with what there is to get; what a person gives; extra ones."""

    points: float
    out_of: float
    by_hand: float | None
    extra: float

    def __str__(self) -> str:
        hand = f", {self.by_hand:g} by hand" if self.by_hand else ""
        extra = f", {self.extra:g} extra" if self.extra else ""
        return f"{self.points:g} of {self.out_of:g} by checks{hand}{extra}"


class Notebooks(NamedTuple):
    """Where a lesson's lecture and assignment lie in the course's folder, and the lesson's number."""

    number: str
    lecture: str
    assignment: str


Rows = Sequence[tuple[Exercise, Reached | None]]


class Progress:
    """The points by exercise, as a table. Made by a course's `progress()`.

    `tasks` has each assignment's exercises, and the points that a person gives in it; below `root`, if it is known,
    lie the notebooks of its `lessons`.
    """

    def __init__(
        self,
        course: str,
        tasks: Mapping[str, tuple[Sequence[Exercise], float | None]],
        lessons: Mapping[str, Notebooks] | None = None,
        root: Path | None = None,
    ) -> None:
        self.place = place(course)
        self.rows: dict[str, Rows] = {}
        for name, (exercises, _) in tasks.items():
            self.rows[name] = [(each, read(course, each)) for each in exercises]
        self.counts = {name: count(self.rows[name], by_hand) for name, (_, by_hand) in tasks.items()}
        self.lessons, self.root = lessons or {}, root
        last = {name: max((_when(course, each) for each, _ in rows), default=0.0) for name, rows in self.rows.items()}
        self.current = max(last, key=lambda name: last[name])

    @property
    def next(self) -> str:
        """What to do now, in a sentence: an exercise of the assignment at work, or the lesson after it."""
        if left := [each for each, reached in self.rows[self.current] if not each.extra and not _full(each, reached)]:
            return f"Next: `{left[0].name}` in {self.current}."
        names = list(self.rows)
        after = [name for name in names[names.index(self.current) + 1 :] + names if self._open(name)]
        if not after:
            return "Every check has given all its points."
        lesson = self.lessons.get(after[0])
        return f"{self.current} is done. Next: {f'lecture {lesson.number}, then ' if lesson else ''}{after[0]}."

    def _open(self, name: str) -> bool:
        return any(not each.extra and not _full(each, reached) for each, reached in self.rows[name])

    def __repr__(self) -> str:
        lines = []
        for assignment, rows in self.rows.items():
            lines.append(f"{assignment}  {self._bar(assignment)}  {self.counts[assignment]}")
            lines += [f"     {exercise.name:<28}{_said(exercise, reached)}" for exercise, reached in rows if reached]
        kept = f"Kept in {self.place}; delete it to begin anew."
        return "\n".join([*lines, "", self.next.replace("`", ""), kept])

    def _repr_html_(self) -> str:
        parts = []
        for assignment, rows in self.rows.items():
            each = "".join(
                f"<tr style='background:none'><td style='text-align:left'><code>{escape(exercise.name)}</code></td>"
                f"<td style='text-align:left'>{_said(exercise, reached)}</td></tr>"
                for exercise, reached in rows
            )
            at_work = " open" if assignment == self.current else ""
            parts.append(
                f"<details{at_work}><summary><strong>{assignment}</strong> <span aria-hidden='true' "
                f"style='color:#0072B2'>{self._bar(assignment)}</span> {self.counts[assignment]}</summary>"
                f"<table>{each}</table>{self._links(assignment) if at_work else ''}</details>"
            )
        told = escape(self.next)
        while "`" in told:
            told = told.replace("`", "<code>", 1).replace("`", "</code>", 1)
        kept = f"<p style='opacity:0.75'>Kept in <code>{escape(str(self.place))}</code>; delete it to begin anew.</p>"
        return "".join(parts) + f"<p>{told}</p>{kept}"

    def _links(self, assignment: str) -> str:
        """Its lecture and its notebook, to click on, where the notebook that shows this lies beside them."""
        lesson, here = self.lessons.get(assignment), Path.cwd()
        if lesson is None or self.root is None or not here.is_relative_to(self.root):
            return ""
        work = self.root / "work"
        base = work if here.is_relative_to(work) else self.root
        paths = {f"lecture {lesson.number}": lesson.lecture, assignment: lesson.assignment}
        from_here = {what: Path(os.path.relpath(base / path, here)).as_posix() for what, path in paths.items()}
        links = [f"<a href='{path}'>{what}</a>" for what, path in from_here.items()]
        return f"<p>Open {' or '.join(links)}.</p>"

    def _bar(self, assignment: str) -> str:
        counted = self.counts[assignment]
        full = min(10, int(10 * counted.points / counted.out_of)) if counted.out_of else 0
        return "█" * full + "░" * (10 - full)


def count(rows: Rows, by_hand: float | None) -> Count:
    """The points of an assignment: the best check of each exercise counts."""

    def best(extra: bool) -> float:
        return sum(reached.best for exercise, reached in rows if reached and exercise.extra == extra)

    return Count(best(False), sum(each.out_of for each, _ in rows if not each.extra), by_hand, best(True))


def _full(exercise: Exercise, reached: Reached | None) -> bool:
    return reached is not None and reached.best >= exercise.out_of


def _said(exercise: Exercise, reached: Reached | None) -> str:
    if reached is None:
        return "not checked yet"
    last = f" (the last check: {reached.last:g})" if reached.last < reached.best else ""
    return f"{reached.best:g} of {exercise.out_of:g}{' extra' if exercise.extra else ''}{last}"


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


def _when(course: str, exercise: Exercise) -> float:
    with contextlib.suppress(OSError):
        return (place(course) / f"{exercise.name}.json").stat().st_mtime
    return 0.0


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
    return kernel.kernel_shell() is not None
