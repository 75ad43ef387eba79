"""What there is to execute of a notebook, the hash of all that can change what comes out, and what came out.

A job and an execution are JSON data: they go to a worker and come back from it, perhaps on another machine.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import importlib.metadata
import json
import platform
import secrets
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypedDict

from nbformat import NotebookNode, from_dict
from nbformat.v4 import new_output

from commandkit.errors import CommandError
from commandkit.files import locked, write_whole
from lessonkit.course import folder_of, load
from lessonkit.grading.submission.check_cells import exercise_of, grading
from lessonkit.mimetype import VERDICT

KERNEL = "kernel"  # how submissions are executed where there is no sandbox: in a Jupyter kernel
# nbgrader puts these beside a submission; no cell depends on them.
BOOKKEEPING = {"timestamp.txt", "submission_secret.txt"}
MAX_FILE_MB = 50  # of a file beside the notebook; a larger one stays behind
LANGUAGE = {
    "name": "python",
    "version": platform.python_version(),
    "mimetype": "text/x-python",
    "file_extension": ".py",
    "pygments_lexer": "ipython3",
    "nbconvert_exporter": "python",
    "codemirror_mode": {"name": "ipython", "version": 3},
}


class JobCell(TypedDict):
    """A code cell to execute: the exercise that it checks, if it checks one, and which variation, if it is one."""

    source: str
    grade_id: str | None
    exercise: str | None
    variation: str | None
    skip: bool


class Job(TypedDict, total=False):
    """What a worker needs to execute a notebook: `files` beside it in base64, by name; seeds by exercise."""

    course: str
    cells: list[JobCell]
    files: dict[str, str]
    left_out: dict[str, int]  # bytes of files that are too large to go along
    seeds: dict[str, list[int]]
    limits: dict[str, float]
    versions: dict[str, str]  # of what the main process has installed
    patience: float  # seconds after which it is put off, because others wait
    where: dict[str, Any]  # not to execute, but to find the line at fault: see `sandbox/where.py`


class ExecutedCell(TypedDict):
    """What a cell showed; of a check cell in a sandbox the verdict, as the data of an output by its mimetype."""

    count: int | None
    outputs: list[dict[str, Any]]
    seconds: float
    verdict: dict[str, Any] | None


class Execution(TypedDict, total=False):
    """What came out of a job. `ended` says why no further cell could run, None if all did."""

    cells: list[ExecutedCell]
    ended: str | None
    flags: list[str]
    seconds: float | None
    peak_mb: float | None
    sandbox: str | None
    metadata: dict[str, Any]
    quarantined: bool  # nothing was executed, and it is not tried again by itself


NUMBER = (int, float)
FIELDS: dict[str, tuple[Any, str]] = {  # of an execution
    "cells": (list, "a list"),
    "ended": ((str, type(None)), "a text or null"),
    "flags": (list, "a list of texts"),
    "seconds": (NUMBER, "a number"),
    "peak_mb": ((*NUMBER, type(None)), "a number or null"),
    "sandbox": (str, "a text"),
}
OUTPUTS = {"stream", "display_data", "execute_result", "error"}


def job_of(
    course: str,
    notebook: NotebookNode,
    folders: Sequence[Path],
    seeds: Mapping[str, Sequence[int]],
    limits: Mapping[str, float],
    ignore: Sequence[str] = (),
    but: Collection[Path] = (),
    variations: Mapping[str, str] = {},
) -> Job:
    """What a worker needs to execute a notebook of the course, as JSON data.

    Of files in several folders the last one counts. `variations` are those that the student was given, by exercise.

    Without the names that nbgrader ignores, and without the files `but`. What the learner wrote in words is left out:
    editing it must not execute anything again.
    """
    cells: list[JobCell] = [
        {
            "source": cell.source,
            "grade_id": grading(cell).get("grade_id"),
            "exercise": exercise_of(cell),
            "variation": variations.get(exercise_of(cell) or ""),
            "skip": "skip-execution" in cell.metadata.get("tags", []),
        }
        for cell in _code(notebook)
    ]
    paths = {name: path for folder in folders for name, path in _files(folder, ignore) if path not in but}
    large = {name: path.stat().st_size for name, path in paths.items() if path.stat().st_size > MAX_FILE_MB << 20}
    files = {
        name: base64.b64encode(path.read_bytes()).decode() for name, path in paths.items() if name not in large
    }
    return {
        "course": course,
        "cells": cells,
        "files": files,
        "left_out": large,
        "seeds": {name: list(drawn) for name, drawn in seeds.items()},
        "limits": dict(limits),
    }


def cache_key(job: Job, how: str) -> str:
    """A hash over a job, what is installed, and how it is executed."""
    content = {"job": job, "versions": versions(job["course"]), "how": how}
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


@functools.cache
def versions(course: str) -> dict[str, str]:
    """What a result depends on outside the notebook: versions, and what executes and observes it.

    That is the course's library, its exercises, the kit's exercises and its sandbox.
    """
    found = load(course)
    kit = folder_of("lessonkit")
    files = [*(kit / "exercises").rglob("*.py"), *(kit / "grading" / "sandbox").rglob("*.py")]
    files += [path for lesson in found.lessons for path in (lesson.folder / "exercises").rglob("*.py")]
    files += [path for library in found.library for path in folder_of(library).rglob("*.py")]
    source = hashlib.sha256()
    for path in sorted(files):
        source.update(f"{'/'.join(path.parts[-3:])} {hashlib.sha256(path.read_bytes()).hexdigest()}\n".encode())
    return {
        "python": platform.python_version(),
        "torch": importlib.metadata.version("torch"),
        course: source.hexdigest(),
    }


def show_outputs(notebook: NotebookNode, execution: Execution) -> set[str]:
    """Give a notebook the outputs of an execution of the same cells, in place; the grade ids of those judged.

    A verdict becomes a check cell's value. No other counts that comes out of a sandbox: what the notebook shows as
    one, the learner's code has shown.
    """
    sandboxed, judged = execution["sandbox"] != KERNEL, set()
    for cell, executed in zip(_code(notebook), execution["cells"], strict=True):
        cell.execution_count, cell.outputs = executed["count"], [from_dict(output) for output in executed["outputs"]]
        for output in cell.outputs if sandboxed else ():
            output.get("data", {}).pop(VERDICT, None)
        if executed["verdict"]:
            data = from_dict(executed["verdict"])
            cell.outputs.append(new_output("execute_result", data, execution_count=cell.execution_count))
            judged.add(grading(cell)["grade_id"])
    notebook.metadata.update(from_dict({"language_info": LANGUAGE, **execution.get("metadata", {})}))
    return judged


def not_run(job: Job, reason: str, how: str) -> Execution:
    """The execution of a job whose cells could not be run at all."""
    error = {"output_type": "error", "ename": "NotRun", "evalue": reason, "traceback": [reason]}
    cells: list[ExecutedCell] = [
        {"count": None, "outputs": [error], "seconds": 0.0, "verdict": None} for _ in job["cells"]
    ]
    return {"cells": cells, "ended": reason, "flags": [reason], "seconds": 0.0, "peak_mb": 0, "sandbox": how}


def quarantined(job: Job, reason: str, how: str) -> Execution:
    """The execution of a job that is not tried again by itself: it is shown, and not kept."""
    return {**not_run(job, reason, how), "quarantined": True}


def checked(execution: Any, n_cells: int | None = None) -> Execution:
    """The execution, if it is one (of `n_cells` cells). ValueError says what is not as it must be."""
    if not isinstance(execution, dict):
        raise ValueError(f"an execution is a dict, got {type(execution).__name__}")
    for name, (kinds, expected) in FIELDS.items():
        if name not in execution or not isinstance(execution[name], kinds) or isinstance(execution[name], bool):
            raise ValueError(f"an execution's {name!r} must be {expected}")
    if not all(isinstance(flag, str) for flag in execution["flags"]):
        raise ValueError("an execution's 'flags' must be a list of texts")
    if n_cells is not None and len(execution["cells"]) != n_cells:
        raise ValueError(f"an execution of {len(execution['cells'])} cells, expected {n_cells}")
    for cell in execution["cells"]:
        if not (
            isinstance(cell, dict)
            and isinstance(cell.get("count", ""), int | None)
            and isinstance(cell.get("seconds"), int | float)
            and isinstance(cell.get("verdict", ""), dict | None)
            and isinstance(cell.get("outputs"), list)
            and all(isinstance(output, dict) and output.get("output_type") in OUTPUTS for output in cell["outputs"])
        ):
            raise ValueError("an executed cell must have a count, seconds, a verdict and a notebook's outputs")
    return execution  # type: ignore[return-value]


class Cache:
    """A folder of executions, one file each. Any number of processes may read and write it at once."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def get(self, key: str, n_cells: int) -> Execution | None:
        """The execution of a job of `n_cells`, or None where there is none or its file is damaged."""
        try:
            return checked(json.loads(self._path(key).read_text(encoding="utf-8")), n_cells)
        except (OSError, ValueError, RecursionError):
            return None

    def put(self, key: str, execution: Execution) -> None:
        """Keep an execution: it is either there whole or not at all."""
        write_whole(self._path(key), json.dumps(execution))

    def forget(self, key: str) -> None:
        self._path(key).unlink(missing_ok=True)

    def _path(self, key: str) -> Path:
        return self.folder / f"{key}.json"


def load_or_draw_seeds(folder: Path, exercises: Sequence[str]) -> dict[str, list[int]]:
    """The seeds that decide an assignment's points: drawn when they are first asked for, and kept in `folder`.

    Three for each exercise, because sizes are drawn too: a mistake that one set of sizes hides shows on another.
    They are no secret once grades are out, but whoever knows them before can fit an answer to them.
    """
    path = folder / "seeds.json"
    kept = _seeds_in(path)
    missing = [name for name in exercises if name not in kept]
    if missing:
        with locked(folder / "seeds.lock"):  # of two processes that draw at once, the second takes what the first drew
            kept = _seeds_in(path)
            drawn = {name: [secrets.randbits(128) for _ in range(3)] for name in exercises if name not in kept}
            kept |= drawn
            write_whole(path, json.dumps(kept, indent=1), mode=0o600)
    return {name: kept[name] for name in exercises}


def _seeds_in(path: Path) -> dict[str, list[int]]:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except ValueError as error:  # new ones would give other marks than those that students have
        raise CommandError(
            f"{path} is damaged ({error}): put back a copy of it, or delete it and grade everybody anew"
        ) from None


def _files(folder: Path, ignore: Sequence[str]) -> Iterator[tuple[str, Path]]:
    """The files beside a notebook, with their names below the folder: those that nbgrader copies. No link is followed.

    Both ways to a job, ahead of nbgrader and from it, must find the same, or it is executed twice.
    """
    from nbgrader.utils import find_all_files  # a Jupyter server with it, which a cluster's machines have no use for

    for path in map(Path, sorted(find_all_files(str(folder), [*ignore, "*.ipynb"]))):
        if path.is_file() and not path.is_symlink() and path.name not in BOOKKEEPING and path.suffix != ".ipynb":
            yield path.relative_to(folder).as_posix(), path


def _code(notebook: NotebookNode) -> list[NotebookNode]:
    return [cell for cell in notebook.cells if cell.cell_type == "code"]
