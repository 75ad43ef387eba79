"""The steps of `nbgrader autograde` that are ours: execution, points from verdicts, extra credit."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

from nbclient.exceptions import CellTimeoutError, DeadKernelError
from nbformat import NotebookNode
from nbformat.v4 import new_output
from nbgrader.api import Gradebook
from nbgrader.preprocessors import ClearHiddenTests, Execute, NbGraderPreprocessor
from traitlets import List, Unicode, default

from attncourse._mimetype import VERDICT
from attncourse.grading import execution
from attncourse.grading.exporter import unreadable
from attncourse.grading.verdicts import (
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

Step = tuple[NotebookNode, Any]


class ExecuteOrReplay(Execute):
    """nbgrader's Execute, which also survives the death of the kernel, and does not execute twice what it has kept.

    When a cell kills the kernel, or does not stop when interrupted, the cells before it keep their outputs and those
    after it get an error that says why they did not run.
    """

    cache = Unicode(
        "", help="Folder of executions to replay, and to add to. Empty: execute every time, and keep nothing."
    ).tag(config=True)

    @default("error_on_timeout")
    def _error_on_timeout_default(self) -> dict[str, Any]:
        words = f"stopped after {self.timeout} seconds: is there a loop that does not end?"
        return {"ename": TIMEOUT, "evalue": words, "traceback": [words]}

    def preprocess(self, nb: NotebookNode, resources: Any = None, km: Any = None) -> Step:
        if unreadable(nb):
            return nb, resources
        if not self.cache:
            return self._execute(nb, resources, km)
        folder = Path((resources.get("metadata") or {}).get("path") or ".")
        kept = execution.Cache(Path(self.cache))
        key = execution.fingerprint(nb, folder, {"timeout": self.timeout})
        executed = kept.get(key)
        if executed is not None:
            execution.replay(nb, executed)
            return nb, resources
        nb, resources = self._execute(nb, resources, km)
        # What ended badly may have had bad neighbours (memory, a busy machine): the next time it gets another chance.
        if self._stopped is None and not any(ended_early(cell) for cell in nb.cells):
            kept.put(key, execution.record(nb))
        return nb, resources

    def kill(self) -> None:
        """End the kernel, from another thread."""
        if self.km is not None and self.km.has_kernel:
            os.kill(self.km.provisioner.pid, signal.SIGTERM if os.name == "nt" else signal.SIGKILL)

    def setup_kernel(self, **kwargs: Any) -> Any:
        # One thread: small tensors gain nothing from more, and threads that wait for busy cores lose a lot.
        return super().setup_kernel(env={"OMP_NUM_THREADS": "1", **os.environ}, **kwargs)

    def _execute(self, nb: NotebookNode, resources: Any, km: Any) -> Step:
        self._stopped: str | None = None  # why no further cell can run
        return super().preprocess(nb, resources, km)

    def preprocess_cell(self, cell: NotebookNode, resources: Any, index: int) -> Step:
        if cell.cell_type != "code":
            return cell, resources
        if self._stopped is not None:
            cell.execution_count, cell.outputs = None, [_not_run(f"not run, because {self._stopped}")]
            return cell, resources
        try:
            return super().preprocess_cell(cell, resources, index)
        except DeadKernelError:
            why, reason = "the Python process died", "the Python process died before this cell was done"
        except CellTimeoutError:
            why, reason = "the Python process could not be interrupted", self.error_on_timeout["evalue"]
        cell.outputs.append(_not_run(reason))
        self._stopped = f"{why} in `{grading(cell).get('grade_id') or 'a cell above'}`"
        return cell, resources


class ScoreByVerdict(NbGraderPreprocessor):
    """Put the verdict's points where nbgrader looks for a cell's score: in its first output.

    A check cell without a verdict gets 0 and a reason. What else was printed stays, below it, and costs nothing.
    """

    def preprocess(self, nb: NotebookNode, resources: Any) -> Step:
        answers = {grading(cell).get("grade_id"): cell for cell in nb.cells}
        for cell in nb.cells:
            exercise = exercise_of(cell)
            if exercise is not None:
                _put_score_first(cell, unreadable(nb) or why_none(cell, answers.get(exercise)))
            elif is_autograded(cell):
                # A test of the instructor's own: nbgrader's rule, except that a warning is no failure.
                for output in cell.outputs:
                    if output.output_type == "stream":
                        output.name = "stdout"
        return nb, resources


class HideHiddenTests(ClearHiddenTests):
    """In feedback: the card of a hidden check without its call, whose seeds would let an answer be made to measure."""

    display_data_priority: List = List().tag(config=True)  # the HTML exporter sets it for every step


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
                grade.extra_credit = _extra_points(cell)
            for cell in nb.cells if reason else []:
                if grading(cell).get("solution"):
                    gradebook.find_comment(grading(cell)["grade_id"], *place).auto_comment = reason
            gradebook.db.commit()
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


def _extra_points(cell: NotebookNode) -> float:
    from attncourse import exercises  # torch with it: only where there is extra credit

    verdict = verdict_of(cell)
    return min(verdict["points"], exercises.get(verdict["exercise"]).out_of) if verdict else 0.0


def _not_run(reason: str) -> NotebookNode:
    return new_output("error", ename=NOT_RUN, evalue=reason, traceback=[reason])
