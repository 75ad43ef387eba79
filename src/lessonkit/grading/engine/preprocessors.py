"""The steps of `nbgrader autograde` that are ours: execution with points from verdicts, and extra credit."""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from nbclient.exceptions import CellTimeoutError, DeadKernelError
from nbformat import NotebookNode
from nbformat.v4 import new_output
from nbgrader.api import Gradebook
from nbgrader.coursedir import CourseDirectory
from nbgrader.preprocessors import Execute, NbGraderPreprocessor
from traitlets import Bool, Float, Integer, default

from lessonkit.course import Course, course_of
from lessonkit.exercises.variation import check_cell
from lessonkit.grading.engine import pool
from lessonkit.grading.engine.pool import how_to_execute
from lessonkit.grading.repair.exporter import unreadable
from lessonkit.grading.sandbox.limits import Limits
from lessonkit.grading.submission.check_cells import (
    NOT_RUN,
    TIMEOUT,
    ended_early,
    exercise_of,
    grading,
    is_autograded,
    is_extra,
    verdict_of,
    why_none,
    zero,
)
from lessonkit.grading.submission.execution import (
    KERNEL,
    Cache,
    ExecutedCell,
    Execution,
    Job,
    cache_key,
    job_of,
    load_or_draw_seeds,
    show_outputs,
)
from lessonkit.grading.submission.lateness import extensions_of, grant
from lessonkit.grading.submission.records import grading_folder, records_of
from lessonkit.grading.submission.run_log import log_of, nothing
from lessonkit.grading.submission.variations import variations_in
from lessonkit.mimetype import VERDICT

Step = tuple[NotebookNode, Any]


class ExecuteOrReplay(Execute):
    """In the place of nbgrader's Execute: has the cells run by a worker, in a sandbox, or replays what it has kept.

    A check cell gets the points of its verdict, and nothing else counts. On macOS and Windows, where there is no
    sandbox, the cells run in a kernel, and the checks judge in it.
    """

    unsafe = Bool(False, help="Run students' code without a sandbox where this machine has none.").tag(config=True)
    notebook_timeout = Float(Limits.notebook_seconds, help="Seconds for all of a notebook's cells.").tag(config=True)
    memory_mb = Integer(Limits.memory_mb, help="Memory of each of a submission's processes.").tag(config=True)
    processes = Integer(Limits.processes, help="Processes and threads that it may have at a time.").tag(config=True)
    home_mb = Integer(Limits.home_mb, help="Size of the folder that a submission may write to.").tag(config=True)
    keep = Bool(True, help="Keep executions, and replay them when nothing that matters has changed.").tag(config=True)

    @default("timeout")
    def _timeout_default(self) -> int:
        return int(Limits.cell_seconds)

    @default("error_on_timeout")
    def _error_on_timeout_default(self) -> dict[str, Any]:
        words = f"stopped after {self.timeout} seconds: is there a loop that does not end?"
        return {"ename": TIMEOUT, "evalue": words, "traceback": [words]}

    def preprocess(self, nb: NotebookNode, resources: Any = None, km: Any = None) -> Step:
        where = resources["nbgrader"]
        job, execution = nothing()
        judged: set[str] = set()
        if not unreadable(nb):
            job = self.job(nb, where["assignment"], [Path(resources["metadata"]["path"])], where["student"])
            execution = self._execution(nb, resources, km, job)
            judged = show_outputs(nb, execution)
        score(nb, judged)
        # nbgrader works in the course's folder.
        with records_of(Path(), where["assignment"]).changing(where["student"]) as record:
            record["notebooks"][where["notebook"]] = log_of(nb, job, execution, course_of(self.config))
        return nb, resources

    def _execution(self, nb: NotebookNode, resources: Any, km: Any, job: Job) -> Execution:
        """What is kept of this job, or what now comes out of it."""
        where, how = resources["nbgrader"], how_to_execute(self.unsafe)
        key, cache = cache_key(job, how), Cache(grading_folder(Path(), where["assignment"]) / "executions")
        execution = resources.get("lessonkit_quarantined", {}).get(key)
        if execution is None and self.keep:
            execution = cache.get(key, len(job["cells"]))
        if execution is None:
            in_a_kernel = how == KERNEL
            execution = self._in_a_kernel(nb, resources, km) if in_a_kernel else pool.run(where["assignment"], how, job)
            if self.keep and not execution.get("quarantined"):
                cache.put(key, execution)
        return execution

    @property
    def limits(self) -> dict[str, float]:
        """What a submission may use, as data of a job."""
        return {
            "cell_seconds": float(self.timeout if self.timeout and self.timeout > 0 else self.notebook_timeout),
            "notebook_seconds": self.notebook_timeout,
            "memory_mb": self.memory_mb,
            "processes": self.processes,
            "home_mb": self.home_mb,
        }

    def job(
        self, nb: NotebookNode, assignment: str, folders: Sequence[Path], student: str, but: Collection[Path] = ()
    ) -> Job:
        """What a worker needs to execute a student's sanitised notebook; of files in several folders the last counts.

        Without the files `but`, and without those that nbgrader ignores. Where the student was given variations, the
        notebook's checks name them from here on.
        """
        course = course_of(self.config)
        known = course.all_exercises()  # what else looks like a check has no verdict to get
        checks = [name for name in map(exercise_of, nb.cells) if name in known]
        folder = grading_folder(Path(), assignment)
        seeds, ignore = load_or_draw_seeds(folder, checks), CourseDirectory(config=self.config).ignore
        given = variations_in(folder).of(student)
        for cell in nb.cells:
            if (name := exercise_of(cell)) in given:
                cell.source = check_cell(cell.source, name, given[name])
        return job_of(course.package, nb, folders, seeds, self.limits, ignore, but, given)

    def _in_a_kernel(self, nb: NotebookNode, resources: Any, km: Any) -> Execution:
        """What comes out in a Jupyter kernel. When a cell kills it, the cells before keep their outputs."""
        self._stopped: str | None = None  # why no further cell can run
        self._seconds: dict[int, float] = {}
        began = time.monotonic()
        super().preprocess(nb, resources, km)
        cells: list[ExecutedCell] = [
            {
                "count": cell.execution_count,
                "outputs": cell.outputs,
                "seconds": self._seconds.get(index, 0.0),
                "verdict": None,
            }
            for index, cell in enumerate(nb.cells)
            if cell.cell_type == "code"
        ]
        metadata = {name: nb.metadata[name] for name in ("language_info", "widgets") if name in nb.metadata}
        seconds = round(time.monotonic() - began, 3)
        return {"cells": cells, "ended": self._stopped, "flags": [], "seconds": seconds, "peak_mb": None,
                "sandbox": KERNEL, "metadata": metadata}  # fmt: skip

    def setup_kernel(self, **kwargs: Any) -> Any:
        # One thread: small tensors gain nothing from more, and threads that wait for busy cores lose a lot.
        return super().setup_kernel(env={"OMP_NUM_THREADS": "1", **os.environ}, **kwargs)

    def preprocess_cell(self, cell: NotebookNode, resources: Any, index: int) -> Step:
        if cell.cell_type != "code":
            return cell, resources
        if self._stopped is not None:
            cell.execution_count, cell.outputs = None, [_not_run(f"not run, because {self._stopped}")]
            return cell, resources
        before = time.monotonic()
        try:
            return super().preprocess_cell(cell, resources, index)
        except DeadKernelError:
            why, reason = "the Python process died", "the Python process died before this cell was done"
        except CellTimeoutError:
            why, reason = "the Python process could not be interrupted", self.error_on_timeout["evalue"]
        finally:
            self._seconds[index] = round(time.monotonic() - before, 3)
        cell.outputs.append(_not_run(reason))
        self._stopped = f"{why} in `{grading(cell).get('grade_id') or 'a cell above'}`"
        return cell, resources


def score(nb: NotebookNode, judged: Collection[str] = ()) -> None:
    """Put each verdict's points where nbgrader looks for a cell's score: in its first output.

    `judged` are the grade ids of cells whose verdict is a worker's; another's must be of its exercise, in its points.
    A check cell without a verdict gets 0 and a reason. What else was printed stays, below it, and costs nothing.
    """
    answers = {grading(cell).get("grade_id"): cell for cell in nb.cells}
    for cell in nb.cells:
        exercise = exercise_of(cell)
        if exercise is not None:
            trusted = grading(cell)["grade_id"] in judged
            _put_score_first(cell, unreadable(nb) or (None if trusted else why_none(cell, answers.get(exercise))))
        elif is_autograded(cell):
            # A test of the instructor's own: nbgrader's rule, except that a warning is no failure.
            for output in cell.outputs:
                if output.output_type == "stream":
                    output.name = "stdout"


class SaveExtras(NbGraderPreprocessor):
    """After SaveAutoGrades: write extra credit, and why a submission could not be read, into the gradebook.

    The extra credit of a check cell worth 0 points is this step's to write; other cells' is the marker's.
    """

    def preprocess(self, nb: NotebookNode, resources: Any) -> Step:
        extras = [cell for cell in nb.cells if exercise_of(cell) and is_extra(cell)]
        reason = unreadable(nb)
        if not extras and not reason:
            return nb, resources
        where = resources["nbgrader"]
        place = (where["notebook"], where["assignment"], where["student"])
        with Gradebook(where["db_url"]) as gradebook:
            for cell in extras:
                grade = gradebook.find_grade(grading(cell)["grade_id"], *place)
                grade.extra_credit = _extra_points(course_of(self.config), cell)
            for cell in nb.cells if reason else []:
                if grading(cell).get("solution"):
                    gradebook.find_comment(grading(cell)["grade_id"], *place).auto_comment = reason
            gradebook.db.commit()
        return nb, resources


class GrantExtension(NbGraderPreprocessor):
    """Before AssignLatePenalties: put a student's extension, of the course's extensions.csv, into the gradebook."""

    def preprocess(self, nb: NotebookNode, resources: Any) -> Step:
        where = resources["nbgrader"]
        coursedir = CourseDirectory(config=self.config)
        with Gradebook(where["db_url"], coursedir.course_id) as gradebook:
            submission = gradebook.find_submission(where["assignment"], where["student"])
            grant(gradebook, submission, extensions_of(coursedir, gradebook))
        return nb, resources


def _put_score_first(cell: NotebookNode, reason: str | None) -> None:
    """Make the verdict, or 0 with the `reason` that there is none, the cell's first output and its only value."""
    if reason is None:
        last = max(i for i, output in enumerate(cell.outputs) if output.output_type == "execute_result")
        value = cell.outputs.pop(last)
        points = value.data[VERDICT]["points"]
        value.data["text/plain"] = "0" if is_extra(cell) else f"{points:g}"
    else:
        value = zero(cell, reason)
    others = [] if ended_early(cell) else cell.outputs  # the card says already why it ended
    for output in others:
        if output.output_type == "execute_result":  # printed by the learner's code: shown, not scored
            output.output_type = "display_data"
            del output["execution_count"]
        elif output.output_type == "error":  # its traceback would quote the hidden check
            output.traceback = [f"{output.ename}: {output.evalue}"]
    cell.outputs = [value, *others]


def _extra_points(course: Course, cell: NotebookNode) -> float:
    verdict = verdict_of(cell)
    return min(verdict["points"], course.exercise(verdict["exercise"]).out_of) if verdict else 0.0


def _not_run(reason: str) -> NotebookNode:
    return new_output("error", ename=NOT_RUN, evalue=reason, traceback=[reason])
