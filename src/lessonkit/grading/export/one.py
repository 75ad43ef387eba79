"""One submission, graded as `grade` does it, without a gradebook: repaired, executed by a worker, judged by it."""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nbformat import NotebookNode

from commandkit.errors import CommandError
from lessonkit.exercises.exercise import Exercise
from lessonkit.grading.engine import pool
from lessonkit.grading.export.bundle import Settings
from lessonkit.grading.repair.cells import belongs, repair
from lessonkit.grading.repair.reading import Unreadable, read, read_bytes
from lessonkit.grading.repair.released import Released, label
from lessonkit.grading.submission.check_cells import verdict_of, why_none
from lessonkit.grading.submission.execution import job_of, show_outputs

IGNORED = (".*", "__pycache__", "*.pyc")  # of what lies beside a notebook: a repository's own folders above all
MOST_NOTEBOOKS = 50  # that are looked at


@dataclass(frozen=True)
class Line:
    """One aspect of one exercise, with the card's words about it."""

    exercise: str
    aspect: str
    ok: bool
    out_of: float
    extra: bool
    words: str

    @property
    def points(self) -> float:
        return self.out_of if self.ok else 0.0


@dataclass(frozen=True)
class Graded:
    """What a submission got. Where it could not be graded, `problem` says why, and every line has no points."""

    assignment: str
    lines: tuple[Line, ...]
    by_hand: dict[str, float]  # the written questions, and what they are worth
    problem: str | None = None
    repairs: tuple[str, ...] = ()
    metrics: dict[str, float] = field(default_factory=dict)  # what answers are ranked by
    sandbox: str = ""
    seconds: float = 0.0

    @property
    def points(self) -> float:
        """With the extra ones."""
        return sum(line.points for line in self.lines)

    @property
    def out_of(self) -> float:
        return sum(line.out_of for line in self.lines if not line.extra)

    @property
    def told(self) -> str:
        """`20 of 26 points by checks, 3 extra`."""
        extra = sum(line.points for line in self.lines if line.extra)
        return f"{self.points - extra:g} of {self.out_of:g} points by checks" + (f", {extra:g} extra" if extra else "")

    @property
    def complete(self) -> bool:
        """Whether there is nothing left to get right, extensions aside."""
        return all(line.ok for line in self.lines if not line.extra)


def how_here() -> str:
    """The strongest walls that this machine has: "bubblewrap", or another user's process, which takes root.

    CommandError where there is neither: a submission must not run as the user who writes its points.
    """
    if sys.platform == "linux":
        from lessonkit.grading.sandbox import linux as walls

        reason = walls.why_not()
        if reason is None:
            return "bubblewrap"
        if os.geteuid() == 0:
            return "user"
        raise CommandError(f"no sandbox for students' code here ({reason}), and no other user to run it as: be root")
    raise CommandError("an autograder runs on Linux")


def grade_one(settings: Settings, released: Released, submission: Path, how: str) -> Graded:
    """Grade the notebook in the folder `submission`. CommandError, or WorkerLost, where it is not to blame."""
    try:
        notebook, path, notes = found_in(submission, settings.notebook, released)
    except Unreadable as reason:
        return _nothing(settings, released, str(reason), how)
    notes += repair(notebook, released)
    _restore(notebook, released)
    sources = [cell.source for cell in notebook.cells if cell.cell_type == "code"]
    seeds = settings.seeds(hashlib.sha256(json.dumps(sources).encode()).hexdigest())
    job = job_of(settings.course, notebook, [path.parent], seeds, settings.limits, IGNORED)
    execution = pool.run(settings.assignment, how, job)
    judged = show_outputs(notebook, execution)
    cells = {label(cell): cell for cell in notebook.cells if label(cell)}
    lines: list[Line] = []
    metrics: dict[str, float] = {}
    for exercise in settings.lessons.exercises_of(settings.assignment):
        check = cells.get(f"check-{exercise.name}")
        verdict = verdict_of(check) if check is not None and label(check) in judged else None
        if check is None or verdict is None:
            why = "its check is not in the release" if check is None else why_none(check, cells.get(exercise.name))
            lines += _without_points(exercise, why or "the check gave no verdict")
            continue
        lines += _lines(exercise, verdict)
        if metric := verdict.get("metric"):
            metrics[metric["name"]] = float(metric["value"])
    return Graded(
        settings.assignment, tuple(lines), _by_hand(released), None, tuple(notes), metrics, how,
        float(execution["seconds"] or 0.0),
    )  # fmt: skip


def found_in(folder: Path, name: str, released: Released) -> tuple[NotebookNode, Path, list[str]]:
    """The assignment's notebook in a folder: of its name, else the only one that holds a cell of it. Unreadable.

    With it where it lies, and what was repaired to read it.
    """
    paths = []
    for path in sorted(folder.rglob("*.ipynb")):
        inside = path.relative_to(folder)
        if path.is_file() and not path.is_symlink() and not any(part.startswith(".") for part in inside.parts):
            paths.append(path)
    named = [path for path in paths if path.name == name]
    fitting, why = [], f"there is no notebook in what was handed in: hand in {name}"
    for path in (named or paths)[:MOST_NOTEBOOKS]:
        try:
            notebook, notes = read(read_bytes(path))
        except Unreadable as reason:
            why = f"{path.name}: {reason}"
            continue
        if belongs(notebook, released):
            fitting.append((notebook, path, notes))
        else:
            why = f"{path.name} holds none of the cells of {released.notebook}: is it another assignment's?"
    if len(fitting) > 1:
        several = ", ".join(path.relative_to(folder).as_posix() for _, path, _ in fitting)
        raise Unreadable(f"there are {len(fitting)} notebooks of this assignment ({several}): hand in one")
    if not fitting:
        raise Unreadable(why)
    return fitting[0]


def _restore(notebook: NotebookNode, released: Released) -> None:
    """Put back the text of given cells, as nbgrader does from its gradebook, and clear what the notebook shows."""
    given = {cell.name: cell for cell in released.cells}
    for cell in notebook.cells:
        known = given.get(label(cell) or "")
        if known and (known.locked or known.is_check):
            cell.source = known.source
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None


def _lines(exercise: Exercise, verdict: dict[str, Any]) -> Iterator[Line]:
    """The aspects' lines; what the card says below them stands with the first that is wrong."""
    hints = {code.name: code.hint for code in exercise.misconceptions}
    named = [f"This is what “{name}” gives. {hints.get(name, '')}".strip() for name in verdict["misconceptions"]]
    for aspect in verdict["aspects"]:
        said = [aspect["message"]]
        if not aspect["ok"]:
            said, named = [*said, *named], []
        yield Line(
            exercise.name, aspect["name"], aspect["ok"], float(aspect["out_of"]), exercise.extra, "\n\n".join(said)
        )


def _without_points(exercise: Exercise, why: str) -> list[Line]:
    return [
        Line(exercise.name, aspect.name, False, float(aspect.points), exercise.extra, why)
        for aspect in exercise.aspects
    ]


def _nothing(settings: Settings, released: Released, why: str, how: str) -> Graded:
    exercises = settings.lessons.exercises_of(settings.assignment)
    lines = [line for exercise in exercises for line in _without_points(exercise, "the submission could not be graded")]
    return Graded(settings.assignment, tuple(lines), _by_hand(released), why, sandbox=how)


def _by_hand(released: Released) -> dict[str, float]:
    return {cell.name: cell.points or 0.0 for cell in released.cells if cell.grade and cell.solution}
