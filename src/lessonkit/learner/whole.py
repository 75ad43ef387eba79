"""Every check of one notebook, repaired as a submission is, in a process and a kernel of their own.

    python -m lessonkit.learner.whole PACKAGE_OF_THE_LESSONS NOTEBOOK

prints JSON, a line each time a cell ends, and the result as the last.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellTimeoutError, DeadKernelError
from nbformat import NotebookNode

from lessonkit.course import Course, load
from lessonkit.grading.repair.cells import belongs, repair
from lessonkit.grading.repair.reading import MAX_BYTES, Unreadable, read, read_bytes
from lessonkit.grading.repair.released import Released, label
from lessonkit.grading.submission.check_cells import exercise_of, is_extra, verdict_of, why_none

CELL_TIMEOUT = 900  # seconds; a learner can stop it


def assignment_in(course: Course, notebook: NotebookNode) -> str | None:
    """The assignment whose checks or answers the notebook holds; None if it holds none."""
    for name in filter(None, map(label, notebook.cells)):
        exercise = name.removeprefix("check-")
        if course.is_exercise(exercise):
            return course.assignment_of(exercise)
    return None


def released(course: Course, assignment: str, notebook: NotebookNode) -> Released:
    """The assignment as it was given out: the course's own copy where it is at hand, else what the notebook says."""
    path = course.root / course.lesson(assignment).assignment_notebook if course.root else None
    checks = set(filter(None, map(exercise_of, notebook.cells)))
    whole = checks <= {exercise.name for exercise in course.exercises_of(assignment)}  # an exam is of several
    if path is not None and path.is_file() and whole:
        try:
            return Released.of_notebook(assignment, path.stem, nbformat.read(path, as_version=4))
        except ValueError:
            pass
    return Released.of_notebook(assignment, assignment, notebook)


def repaired(course: Course, path: Path) -> tuple[str | None, NotebookNode, list[str]]:
    """A notebook's assignment, if it is one, the notebook as the grader would run it, and what was done. Unreadable."""
    notebook, notes = read(read_bytes(path, limit=5 * MAX_BYTES))  # widgets and pictures: nothing is sent here
    assignment = assignment_in(course, notebook)
    if assignment is None:
        return None, notebook, []
    given = released(course, assignment, notebook)
    if belongs(notebook, given):
        notes += repair(notebook, given)
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
    return assignment, notebook, notes


class Ended(Exception):
    """A cell after which no other can run; the message says which, and what it did."""


def execute(notebook: NotebookNode, folder: Path, on_cell: Callable[[int], object] = lambda count: None) -> None:
    """Run a notebook from the top in a kernel of its own; errors stay in their cells, and the rest runs. Ended."""
    count, running = 0, ""

    def started(cell: NotebookNode, **_: Any) -> None:
        nonlocal running
        running = _first_line(cell)

    def ended(**_: Any) -> None:
        nonlocal count
        count += 1
        on_cell(count)

    environment = os.environ | {"NBGRADER_EXECUTION": "validate", "TQDM_DISABLE": "1"}
    environment.pop("JPY_SESSION_NAME", None)
    with tempfile.TemporaryFile("w+") as log:
        client = NotebookClient(
            notebook,
            kernel_name="python3",
            timeout=CELL_TIMEOUT,
            allow_errors=True,
            extra_arguments=["--log-level=ERROR"],
            resources={"metadata": {"path": str(folder)}},
            record_timing=False,
            coalesce_streams=True,
            on_cell_start=started,
            on_cell_executed=ended,
        )
        try:
            client.execute(env=environment, stderr=log)
        except DeadKernelError:
            # After exit() some more cells may run.
            raise Ended(f"Python ended in the cell `{running}` or above it: is there an exit() or quit()?") from None
        except CellTimeoutError:
            minutes = f"more than {CELL_TIMEOUT // 60} minutes"
            raise Ended(f"the cell `{running}` ran for {minutes}: does it end?") from None


def lines(course: Course, assignment: str, notebook: NotebookNode) -> list[dict[str, Any]]:
    """What an executed notebook's checks say, and the questions that a person marks, as `overview.Line` has them."""
    found, cells = [], {label(cell): cell for cell in notebook.cells if label(cell)}
    stub = "Your answer here."
    for cell in notebook.cells:
        exercise, meta = exercise_of(cell), cell.metadata.get("nbgrader", {})
        if exercise:
            answer = cells.get(exercise)
            verdict = verdict_of(cell)
            points = float(verdict["points"]) if verdict else 0.0
            out_of = course.exercise(exercise).out_of if course.is_exercise(exercise) else float(meta["points"])
            problem = _first_problem(verdict) if verdict else (why_none(cell, answer) or "")
            where = answer.id if answer else cell.id
            found.append(_line(exercise, where, points, out_of, is_extra(cell), problem))
        elif meta.get("grade") and meta.get("solution"):
            empty = not cell.source.strip() or cell.source.strip().strip("*") == stub
            problem = "not answered" if empty else ""
            found.append(_line(label(cell) or "", cell.id, None, meta["points"], False, problem))
    return found


def _line(name: str, cell: str, points: float | None, out_of: float, extra: bool, problem: str) -> dict[str, Any]:
    return {"name": name, "cell": cell, "points": points, "out_of": out_of, "extra": extra, "problem": problem}


def _first_problem(verdict: Mapping[str, Any]) -> str:
    wrong = next((aspect for aspect in verdict["aspects"] if not aspect["ok"]), None)
    if wrong is None:
        return ""
    if verdict["problem"] == "not written":
        return "not written yet"
    named = f" (“{verdict['misconceptions'][0]}”)" if verdict["misconceptions"] else ""
    return f"{wrong['name']}: {wrong['message']}{named}"


def stopped(notebook: NotebookNode) -> list[str]:
    """The errors of cells that are neither a check nor an answer: where the notebook would stop a reader."""
    told = []
    for cell in notebook.cells:
        meta = cell.metadata.get("nbgrader", {})
        if cell.cell_type == "code" and not (meta.get("grade") or meta.get("solution")):
            told += [f"`{_first_line(cell)}`, {o.ename}" for o in cell.outputs if o.output_type == "error"]
    return told


def _first_line(cell: NotebookNode) -> str:
    return (cell.source.strip().splitlines() or [""])[0][:50]


def whole(course: Course, path: Path, on_cell: Callable[[int, int], object] = lambda count, of: None) -> dict[str, Any]:
    """All that `Overview` shows of a notebook's file; {"refused": why} where it is none of the course's assignments."""
    start = time.monotonic()
    saved = time.strftime("%H:%M:%S", time.localtime(path.stat().st_mtime))
    try:
        assignment, notebook, notes = repaired(course, path)
    except Unreadable as error:
        return {"refused": f"{path.name}: {error}"}
    if assignment is None:
        return {"refused": f"{path.name} holds no check: it is none of the course's assignments"}
    of = sum(bool(cell.cell_type == "code" and cell.source.strip()) for cell in notebook.cells)
    try:
        execute(notebook, path.parent, lambda count: on_cell(min(count, of), of))
    except Ended as error:
        return {"refused": f"{path.name}: {error}"}
    return {
        "lines": lines(course, assignment, notebook),
        "repairs": notes,
        "errors": stopped(notebook),
        "saved": saved,
        "seconds": time.monotonic() - start,
    }


def main(course: str, notebook: str) -> None:
    # What a library prints must not come between the lines.
    with os.fdopen(os.dup(1), "w", encoding="utf-8") as out:
        os.dup2(2, 1)

        def say(said: Mapping[str, Any]) -> None:
            print(json.dumps(said), file=out, flush=True)

        say(whole(load(course), Path(notebook), lambda count, of: say({"cell": count, "of": of})))


if __name__ == "__main__":
    main(*sys.argv[1:])
