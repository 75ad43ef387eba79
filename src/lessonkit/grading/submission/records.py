"""Where each submission stands: one file a student in `grading/<assignment>/records/`, written whole or not at all.

Whatever is known of a submission is in its record, and nowhere else, but for two things that are not ours to judge:
what was executed is in `executions/`, a cache that may be deleted, and what was taken out of a submission's folder is
in `originals/`. Students whose work is the same share an execution; a record is nobody else's.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypedDict, cast

from commandkit.files import locked, write_whole


class Repaired(TypedDict):
    """What was done to a submission's folder, a sentence each, so that doing it again does nothing.

    `files` are those that were there afterwards, None while it is not finished; `placed` are the notebooks that we put
    there, by their hash; `instead` says what stood in the place of a notebook; `archive` is the one that the notebook
    was in.
    """

    files: dict[str, str] | None
    placed: dict[str, str]
    notes: list[str]
    instead: dict[str, str]
    archive: str | None


class Record(TypedDict):
    """All of a submission. Executions go by their cache keys: how often each was cut off, and why it is not retried."""

    repaired: Repaired
    attempts: dict[str, int]
    quarantined: dict[str, str]
    notebooks: dict[str, dict[str, Any]]  # what was noticed while each was graded, see `run_log`
    graded: str | None  # a hash of all that decided the grade; None: it is to be graded
    feedback: str | None  # a hash of all that its feedback pages were made of; None: they are to be made


class Records:
    """The records of an assignment, in `folder`. Any number of processes may read and change them at once."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def of(self, student: str) -> Record:
        """A student's record; an empty one where there is none, or its file is damaged."""
        record = _empty()
        with contextlib.suppress(OSError, ValueError, RecursionError):
            found = json.loads(self._path(student).read_text(encoding="utf-8"))
            if isinstance(found, dict) and isinstance(found.get("repaired"), dict):
                found["repaired"].setdefault("archive", None)  # of a version that did not know these
                found.setdefault("feedback", None)
            if _has_the_types_of(record, found):
                record = {**record, **found}  # type: ignore[typeddict-item]
        return record

    @contextlib.contextmanager
    def changing(self, student: str) -> Iterator[Record]:
        """A student's record, to change; what it is at the end of the block is kept, if the block does not raise."""
        with locked(self.folder.parent / "records.lock"):
            record = self.of(student)
            before = json.dumps(record)
            yield record
            after = json.dumps(record)
            if after != before or not self._path(student).is_file():
                write_whole(self._path(student), after)

    def _path(self, student: str) -> Path:
        return self.folder / f"{student}.json"


def grading_folder(course: Path, assignment: str) -> Path:
    """What grading an assignment makes, of the course in the folder `course`."""
    return course / "grading" / assignment


def records_of(course: Path, assignment: str) -> Records:
    """The records of an assignment of the course in the folder `course`."""
    return Records(grading_folder(course, assignment) / "records")


def _empty() -> Record:
    repaired: Repaired = {"files": None, "placed": {}, "notes": [], "instead": {}, "archive": None}
    return {"repaired": repaired, "attempts": {}, "quarantined": {}, "notebooks": {}, "graded": None, "feedback": None}


def _has_the_types_of(empty: Record, found: Any) -> bool:
    def is_map(value: Any, *kinds: type) -> bool:
        return isinstance(value, dict) and all(isinstance(each, kinds) for each in value.values())

    if not isinstance(found, dict) or found.keys() != empty.keys():
        return False
    repaired = cast(Any, found["repaired"])
    return (
        isinstance(repaired, dict)
        and repaired.keys() == empty["repaired"].keys()
        and (repaired["files"] is None or is_map(repaired["files"], str))
        and is_map(repaired["placed"], str)
        and is_map(repaired["instead"], str)
        and isinstance(repaired["archive"], str | None)
        and isinstance(repaired["notes"], list)
        and all(isinstance(note, str) for note in repaired["notes"])
        and is_map(found["attempts"], int)
        and is_map(found["quarantined"], str)
        and is_map(found["notebooks"], dict)
        and isinstance(found["graded"], str | None)
        and isinstance(found["feedback"], str | None)
    )
