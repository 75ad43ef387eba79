"""Reading submissions: what cannot be read becomes a notebook that says so, and is graded as such."""

from __future__ import annotations

import json
from typing import Any

import nbformat
from nbconvert.exporters import NotebookExporter
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook
from nbgrader.api import Gradebook, SourceCell

DAMAGED = "the submitted file is damaged or not a notebook"


def unreadable(notebook: NotebookNode) -> str | None:
    """Why the submission behind this notebook could not be read; None if it could."""
    ours = notebook.metadata.get("attncourse")
    reason = ours.get("unreadable") if isinstance(ours, dict) else None
    return reason if isinstance(reason, str) else None


class SubmissionExporter(NotebookExporter):
    """Reads a submitted notebook. One that cannot be read comes out as the assignment's graded cells, unanswered.

    The submitted file is left as it is.
    """

    def from_file(self, file_stream: Any, resources: Any = None, **kw: Any) -> Any:
        notebook = None
        try:
            text = file_stream.read().removeprefix("\ufeff")  # some editors put a byte order mark first
            reason = _damage(text)
            notebook = None if reason else nbformat.reads(text, as_version=4)
        except Exception as error:
            reason = f"{DAMAGED}: {(str(error) or repr(error)).splitlines()[0]}"
        if reason:
            self.log.warning("Cannot read %s: %s", resources["metadata"]["name"], reason)
            notebook = _unanswered(reason, resources["nbgrader"])
        return self.from_notebook_node(notebook, resources=resources, **kw)


def _damage(text: str) -> str | None:
    """What is wrong with the text of a notebook, where it is one of the usual things."""
    if not text.strip():
        return "the submitted file is empty"
    if any(line.startswith("<<<<<<< ") for line in text.splitlines()):
        return "the submitted file holds git's merge markers (<<<<<<<), so it is no notebook any more"
    try:
        content = json.loads(text)
    except ValueError as error:
        return f"{DAMAGED}: {error}"
    if not (isinstance(content, dict) and "nbformat" in content):
        return "the submitted file is JSON, but not a notebook"
    return None


def _unanswered(reason: str, where: dict[str, str]) -> NotebookNode:
    """The assignment's graded and answerable cells, as they were released, under the reason."""
    with Gradebook(where["db_url"]) as gradebook:
        source = gradebook.find_notebook(where["notebook"], where["assignment"])
        grades = {cell.name: cell.max_score for cell in source.grade_cells}
        solutions = {cell.name for cell in source.solution_cells}
        cells = [_cell(cell, grades, solutions) for cell in source.source_cells]
        kernelspec = json.loads(source.kernelspec) if source.kernelspec else {}
    heading = new_markdown_cell(f"**This submission could not be graded**: {reason}.")
    return new_notebook(
        cells=[heading, *cells], metadata={"kernelspec": kernelspec, "attncourse": {"unreadable": reason}}
    )


def _cell(source: SourceCell, grades: dict[str, float], solutions: set[str]) -> NotebookNode:
    make = new_code_cell if source.cell_type == "code" else new_markdown_cell
    meta = {
        "schema_version": 3,
        "grade_id": source.name,
        "grade": source.name in grades,
        "solution": source.name in solutions,
        "locked": source.locked,
        "task": False,
        "cell_type": source.cell_type,
        "checksum": source.checksum,
    }
    if source.name in grades:
        meta["points"] = grades[source.name]
    return make(source=source.source, metadata={"nbgrader": meta})
