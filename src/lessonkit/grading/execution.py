"""What there is to execute of a submission, the hash of all that can change what comes out, and what came out."""

from __future__ import annotations

import base64
import contextlib
import functools
import hashlib
import importlib.metadata
import json
import platform
import secrets
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from nbformat import NotebookNode, from_dict

from commandkit.errors import CommandError
from commandkit.files import write_whole
from lessonkit.course import folder_of, load
from lessonkit.grading.check_cells import exercise_of, grading

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

Job = dict[str, Any]
Record = dict[str, Any]
NUMBER = (int, float)
FIELDS: dict[str, tuple[Any, str]] = {  # of a record
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
) -> Job:
    """What a worker needs to execute a notebook of the course, as JSON data.

    Of files in several folders the last one counts.

    Without the names that nbgrader ignores, and without the files `but`. What the learner wrote in words is left out:
    editing it must not execute anything again.
    """
    cells = [
        {
            "source": cell.source,
            "grade_id": grading(cell).get("grade_id"),
            "exercise": exercise_of(cell),
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
        "seeds": dict(seeds),
        "limits": dict(limits),
    }


def fingerprint(job: Job, how: str) -> str:
    """A hash over a job, the environment and how it is executed."""
    content = {"job": job, "environment": environment(job["course"]), "how": how}
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


@functools.cache
def environment(course: str) -> dict[str, str]:
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


def replay(notebook: NotebookNode, record: Record) -> None:
    """Give a notebook the outputs of an execution of the same cells, in place."""
    for cell, executed in zip(_code(notebook), record["cells"], strict=True):
        cell.execution_count, cell.outputs = executed["count"], [from_dict(output) for output in executed["outputs"]]
    notebook.metadata.update(from_dict({"language_info": LANGUAGE, **record.get("metadata", {})}))


def not_run(job: Job, reason: str) -> Record:
    """The record of a job whose cells could not be run at all."""
    error = {"output_type": "error", "ename": "NotRun", "evalue": reason, "traceback": [reason]}
    cells = [{"count": None, "outputs": [error], "seconds": 0.0, "observations": None} for _ in job["cells"]]
    return {"cells": cells, "ended": reason, "flags": [reason], "seconds": 0.0, "peak_mb": 0}


def set_aside(job: Job, reason: str, how: str) -> Record:
    """The record of a job that is not tried again by itself: it is shown, and not kept."""
    return {**not_run(job, reason), "sandbox": how, "set_aside": True}


def checked(record: Any, n_cells: int | None = None) -> Record:
    """The record, if it is one (of `n_cells` cells). ValueError says what is not as it must be."""
    if not isinstance(record, dict):
        raise ValueError(f"a record is a dict, got {type(record).__name__}")
    for name, (kinds, said) in FIELDS.items():
        if name not in record or not isinstance(record[name], kinds) or isinstance(record[name], bool):
            raise ValueError(f"a record's {name!r} must be {said}")
    if not all(isinstance(flag, str) for flag in record["flags"]):
        raise ValueError("a record's 'flags' must be a list of texts")
    if n_cells is not None and len(record["cells"]) != n_cells:
        raise ValueError(f"a record of {len(record['cells'])} cells, expected {n_cells}")
    for cell in record["cells"]:
        if not (
            isinstance(cell, dict)
            and isinstance(cell.get("count", ""), int | None)
            and isinstance(cell.get("seconds"), int | float)
            and isinstance(cell.get("observations", ""), list | None)
            and isinstance(cell.get("outputs"), list)
            and all(isinstance(output, dict) and output.get("output_type") in OUTPUTS for output in cell["outputs"])
        ):
            raise ValueError("a record's cell must have a count, seconds, observations and outputs of a notebook's")
    return record


class Cache:
    """A folder of records, one file each. Any number of processes may read and write it at once."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def get(self, key: str, n_cells: int) -> Record | None:
        """The record of a job of `n_cells`, or None where there is none or its file is damaged."""
        try:
            return checked(json.loads(self._path(key).read_text(encoding="utf-8")), n_cells)
        except (OSError, ValueError, RecursionError):
            return None

    def put(self, key: str, record: Record) -> None:
        """Keep a record: it is either there whole or not at all."""
        write_whole(self._path(key), json.dumps(record))

    def forget(self, key: str) -> None:
        self._path(key).unlink(missing_ok=True)

    def _path(self, key: str) -> Path:
        return self.folder / f"{key}.json"


def seeds_of(folder: Path, exercises: Sequence[str]) -> dict[str, list[int]]:
    """The seeds that decide an assignment's points: drawn when they are first asked for, and kept in `folder`.

    Three for each exercise, because sizes are drawn too: a mistake that one set of sizes hides shows on another.
    They are no secret once grades are out, but whoever knows them before can fit an answer to them.
    """
    path = folder / "seeds.json"
    kept = _seeds_in(path)
    missing = [name for name in exercises if name not in kept]
    if missing:
        with lock(folder / "seeds.lock"):  # of two processes that draw at once, the second takes what the first drew
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


@contextlib.contextmanager
def lock(path: Path, wait: bool = True) -> Iterator[None]:
    """Hold a lock, which the system gives back when this process ends. BlockingIOError if held and not waited for."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+") as file:
        _lock(file, wait)
        yield


def _lock(file: Any, wait: bool) -> None:
    try:
        import fcntl
    except ImportError:  # Windows
        import msvcrt

        try:
            msvcrt.locking(file.fileno(), msvcrt.LK_LOCK if wait else msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined]
        except OSError as error:
            raise BlockingIOError(str(error)) from None
    else:
        fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))


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
