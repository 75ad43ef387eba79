"""Which line the class stumbles over: each wrong answer is searched for the line at which it goes wrong.

The answers and all changes of them run in the sandbox, and nowhere else. Answers that are the same but for names,
comments and layout are searched once, those of most students first. What a search came to is kept in
`grading/<assignment>/lines/`, under a hash of the code, and read the next time.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
import signal
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nbformat
from nbgrader.apps.baseapp import NbGrader

from commandkit.errors import CommandError
from commandkit.files import write_whole
from commandkit.interrupts import DeferredInterrupt
from lessonkit.course import course_of
from lessonkit.exercises.exercise import Exercise
from lessonkit.exercises.repair import SECONDS
from lessonkit.grading.engine import pool
from lessonkit.grading.engine.grade import LISTEN_SECONDS, Stage, cores, silent
from lessonkit.grading.engine.preprocessors import ExecuteOrReplay
from lessonkit.grading.report.results import Results, Row
from lessonkit.grading.report.similarity import LONGEST, Form, bare_line, normal_form
from lessonkit.grading.submission.check_cells import PREFIX
from lessonkit.grading.submission.execution import Job, versions
from lessonkit.grading.submission.records import grading_folder

SETUP = 5.0  # seconds that a cell above the answer may take
LATE = 10.0  # seconds after the end of all the time, and what has not come back is left


@dataclass(frozen=True)
class Line:
    """A line at which an answer goes wrong, the piece of it, and who wrote it."""

    text: str
    piece: str
    rows: tuple[Row, ...]

    @property
    def is_all(self) -> bool:
        """Whether the piece is all that the line computes."""
        return self.piece in (self.text, self.text.removeprefix("return "), self.text.partition(" = ")[2])


@dataclass(frozen=True)
class Stumbling:
    """The lines of an exercise, those of most students first; who wrote wrong answers in which no line was found."""

    exercise: str
    lines: tuple[Line, ...]
    nothing: tuple[tuple[Row, ...], ...]  # of each such answer
    left: tuple[tuple[Row, ...], ...]  # of each that was not searched to the end of its own time


@dataclass(frozen=True, eq=False)
class Wrong:
    """A wrong answer, and all who wrote it: the notebook that is run is the first one's."""

    exercise: Exercise
    form: Form
    rows: tuple[Row, ...]


def stumbling(
    app: NbGrader, results: Results, exercises: Sequence[Exercise], seconds: float, stage: Stage = silent
) -> list[Stumbling]:
    """The lines that the class stumbles over, as far as they can be found in so many seconds, or until Ctrl-C.

    CommandError where there is no sandbox.
    """
    how = pool.how_to_execute()
    if how != "bubblewrap":
        raise CommandError("there is no sandbox for students' code on this machine")
    answers = wrong_answers(results, exercises)
    kept = Kept(grading_folder(Path(app.coursedir.root).resolve(), results.assignment) / "lines", app)
    found = {wrong: result for wrong in answers if (result := kept.get(wrong)) is not None}
    missing = [wrong for wrong in answers if wrong not in found]
    if missing:
        tick = stage("wrong answers searched", len(missing))
        with contextlib.chdir(app.coursedir.root):
            for wrong, result in _searched(app, results, missing, how, seconds):
                tick()
                found[wrong] = result
                if result["place"] or result["complete"] or result["whole"]:
                    kept.put(wrong, result)
    return [_stumbling(exercise, answers, found) for exercise in exercises
            if any(wrong.exercise is exercise for wrong in answers)]  # fmt: skip


def wrong_answers(results: Results, exercises: Sequence[Exercise]) -> list[Wrong]:
    """The answers that were written and lost points, those of most students first, and the exercises in turn."""
    answers: list[tuple[int, Wrong]] = []
    for exercise in exercises:
        found: dict[str, tuple[Form, list[Row]]] = {}
        released = results.released.get(exercise.name)
        if released is None or exercise.metric:  # what is measured trains for long
            continue
        for row in results.rows:
            verdict, code = row.verdicts.get(exercise.name), row.answers.get(exercise.name, "")
            if not verdict or verdict["points"] >= verdict["out_of"] or len(code) > LONGEST:
                continue
            form = normal_form(code, released.source)
            if form.tokens and verdict["problem"] != "not written":
                found.setdefault(form.text, (form, []))[1].append(row)
        answers += enumerate(Wrong(exercise, form, tuple(rows)) for form, rows in found.values())
    return [wrong for _, wrong in sorted(answers, key=lambda answer: (-len(answer[1].rows), answer[0]))]


def _stumbling(
    exercise: Exercise, answers: Sequence[Wrong], found: Mapping[Wrong, Mapping[str, Any]]
) -> Stumbling:
    """An exercise's lines: those that differ in names, comments and layout alone are one."""
    own = [wrong for wrong in answers if wrong.exercise is exercise]
    lines: dict[Any, tuple[str, str, list[Row]]] = {}
    for wrong in own:
        place = found[wrong]["place"] if wrong in found else None
        if place:
            key = tuple(bare_line(place[part], wrong.form.names) for part in ("text", "piece"))
            lines.setdefault(key, (place["text"], place["piece"], []))[2].extend(wrong.rows)
    searched = [wrong for wrong in own if wrong in found and (found[wrong]["complete"] or found[wrong]["whole"])]
    return Stumbling(
        exercise.name,
        tuple(sorted((Line(*line[:2], tuple(line[2])) for line in lines.values()), key=lambda line: -len(line.rows))),
        tuple(wrong.rows for wrong in searched if not found[wrong]["place"]),
        tuple(wrong.rows for wrong in own if wrong not in searched and not (wrong in found and found[wrong]["place"])),
    )


class Kept:
    """What searches came to, one file each, by the answer's code and all that searches in it."""

    def __init__(self, folder: Path, app: NbGrader) -> None:
        self.folder, self.versions = folder, versions(course_of(app.config).package)

    def get(self, wrong: Wrong) -> dict[str, Any] | None:
        """None where there is none, or its file is damaged."""
        with contextlib.suppress(OSError, ValueError, RecursionError):
            found = json.loads(self._path(wrong).read_text(encoding="utf-8"))
            return found if _is_result(found) else None
        return None

    def put(self, wrong: Wrong, result: Mapping[str, Any]) -> None:
        write_whole(self._path(wrong), json.dumps(result))

    def _path(self, wrong: Wrong) -> Path:
        content = json.dumps([wrong.exercise.name, wrong.form.text, self.versions])
        return self.folder / f"{hashlib.sha256(content.encode(errors='replace')).hexdigest()}.json"


def _is_result(found: Any) -> bool:
    if not isinstance(found, dict) or not found.keys() >= {"place", "complete", "whole"}:
        return False
    place = found["place"]
    is_place = isinstance(place, dict) and all(isinstance(place.get(part), str) for part in ("text", "piece"))
    return place is None or is_place


# ----------------------------------------------------------------------------------------------------------- the search


def _searched(
    app: NbGrader, results: Results, answers: Sequence[Wrong], how: str, seconds: float
) -> Iterator[tuple[Wrong, dict[str, Any]]]:
    """What the search in each answer comes to, as it comes, until the time is up or Ctrl-C."""
    until = time.monotonic() + seconds
    step = ExecuteOrReplay(parent=app)

    def search(wrong: Wrong) -> dict[str, Any] | None:
        left = min(SECONDS, until - time.monotonic())
        job = _job(step, results, wrong, left) if left > 0 else None
        try:
            return {**pool.execute(results.assignment, how, job), "whole": left == SECONDS} if job else None
        except pool.Cancelled:
            return None
        except pool.WorkerLost:
            return {"place": None, "complete": False, "whole": False}

    heard = () if signal.getsignal(signal.SIGINT) is signal.SIG_IGN else (signal.SIGINT,)
    executor = ThreadPoolExecutor(min(cores(), len(answers)))
    try:
        with DeferredInterrupt(heard) as interrupt:
            running: dict[Future, Wrong] = {executor.submit(search, wrong): wrong for wrong in answers}
            while running and not interrupt.requested and time.monotonic() < until + LATE:
                for done in wait(running, LISTEN_SECONDS, FIRST_COMPLETED).done:
                    wrong, result = running.pop(done), done.result()
                    if result is not None:
                        yield wrong, result
    finally:
        executor.shutdown(wait=False, cancel_futures=True)
        pool.end()
        executor.shutdown()


def _job(step: ExecuteOrReplay, results: Results, wrong: Wrong, seconds: float) -> Job | None:
    """What a worker needs to search an answer: the cells above its check, and no check. None if they cannot be had."""
    row, name = wrong.rows[0], wrong.exercise.name
    column = next((column for column in results.columns if column.grade_id == f"{PREFIX}{name}"), None)
    path = next((path for path in row.notebooks if column and path.stem == column.notebook), None)
    try:
        if path is None:
            return None
        notebook = nbformat.read(path, as_version=4)
        job = step.job(notebook, results.assignment, [path.parent], row.student)
    except (OSError, ValueError, nbformat.reader.NotJSONError):
        return None
    place = next((i for i, cell in enumerate(job["cells"]) if cell["exercise"] == name), None)
    if place is None:
        return None
    return {
        **job,
        "cells": [cell for cell in job["cells"][:place] if cell["exercise"] is None],
        "limits": {**job["limits"], "cell_seconds": SETUP, "notebook_seconds": seconds},
        "where": {
            "exercise": name,
            "variation": job["cells"][place]["variation"],
            "answer": _checked(job["cells"][place]["source"], name),
            "seconds": seconds,
        },
    }


def _checked(source: str, name: str) -> str:
    """What an exercise's check cell hands over: the answer is not always called as the exercise is."""
    found = re.search(rf"""check\(["']{re.escape(name)}["'],\s*(\w+)""", source)
    return found[1] if found else name
