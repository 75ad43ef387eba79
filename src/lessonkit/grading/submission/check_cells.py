"""What an executed check cell says: its verdict, or why there is none."""

from __future__ import annotations

import math
import re
from html import escape
from typing import Any

from nbformat import NotebookNode
from nbformat.v4 import new_output

from lessonkit.mimetype import VERDICT

PREFIX = "check-"  # of a check cell's grade id, then the exercise

# The `ename` of errors that no code raised: of a cell that did not run to its end, and of one that was interrupted.
NOT_RUN, TIMEOUT = "NotRun", "CellTimeoutError"


def grading(cell: NotebookNode) -> dict[str, Any]:
    """nbgrader's metadata of a cell, empty if it has none."""
    return cell.metadata.get("nbgrader") or {}


def is_autograded(cell: NotebookNode) -> bool:
    """Whether nbgrader scores this cell by its outputs."""
    meta = grading(cell)
    return cell.cell_type == "code" and bool(meta.get("grade")) and not meta.get("solution")


def exercise_of(cell: NotebookNode) -> str | None:
    """The exercise that an autograded cell checks; None if it is not one of the course's check cells."""
    grade_id = str(grading(cell).get("grade_id", ""))
    return grade_id.removeprefix(PREFIX) if is_autograded(cell) and grade_id.startswith(PREFIX) else None


def is_extra(cell: NotebookNode) -> bool:
    """Whether a check cell is worth extra credit only: nbgrader's own points for it are then 0."""
    return float(grading(cell)["points"]) == 0


def verdict_of(cell: NotebookNode) -> dict[str, Any] | None:
    """The verdict (see `Verdict.as_dict`) that is a check cell's value, if it is one of this exercise in these points.

    What was displayed on the way does not count, and of several values only the last.
    """
    values = [output for output in cell.get("outputs", []) if output.output_type == "execute_result"]
    verdict = values[-1].data.get(VERDICT) if values else None
    if not isinstance(verdict, dict) or verdict.get("exercise") != exercise_of(cell):
        return None
    points = verdict.get("points")
    if isinstance(points, bool) or not isinstance(points, int | float) or not math.isfinite(points):
        return None
    if points < 0 or not (is_extra(cell) or points <= float(grading(cell)["points"])):
        return None
    return verdict


def why_none(cell: NotebookNode, answer: NotebookNode | None) -> str | None:
    """Why an executed check cell has no verdict to go by, for the learner; None if it has one.

    `answer` is the cell that holds the learner's code. What a cell showed before it was stopped counts for nothing.
    """
    error = _last_error(cell)
    if error is None:
        return None if verdict_of(cell) else "the check cell ran, but gave no verdict"
    if error.ename in (NOT_RUN, TIMEOUT):
        return error.evalue
    first = _last_error(answer)
    if error.ename == "NameError" and first is not None:
        return f"the answer's cell stopped with {_words(first)}"
    return f"the check stopped with {_words(error)}"


def ended_early(cell: NotebookNode) -> bool:
    """Whether an executed cell did not get to its own end, nor to an error of its own."""
    error = _last_error(cell)
    return error is not None and error.ename in (NOT_RUN, TIMEOUT)


def zero(cell: NotebookNode, reason: str) -> NotebookNode:
    """The value to give to a check cell without a verdict: 0 points, and the reason where the card would be."""
    exercise, out_of = exercise_of(cell) or "", float(grading(cell)["points"])
    score = f"0 of {out_of:g} points" if out_of else "0 extra points"
    card = (
        "<div style='border-left:4px solid #D55E00; padding:0.3em 0 0.4em 0.9em; margin:0.3em 0'>"
        f"<strong><code>{escape(exercise)}</code></strong> &nbsp; {score}"
        f"<p style='margin:0.4em 0 0; max-width:46em'>No points: {escape(reason)}.</p></div>"
    )
    verdict: dict[str, Any] = {
        "exercise": exercise,
        "points": 0.0,
        "out_of": out_of,
        "extra": is_extra(cell),
        "aspects": [],
        "misconceptions": [],
        "problem": reason,
    }
    return new_output("execute_result", {"text/html": card, "text/plain": "0", VERDICT: verdict}, execution_count=None)


def _last_error(cell: NotebookNode | None) -> NotebookNode | None:
    outputs = cell.get("outputs", []) if cell else []
    return next((output for output in reversed(outputs) if output.output_type == "error"), None)


def _words(error: NotebookNode) -> str:
    value = re.sub(r"\([^()]*, (line \d+)\)$", r"(\1)", str(error.evalue))  # no name of a temporary file
    return f"{error.ename}: {value}" if value else str(error.ename)
