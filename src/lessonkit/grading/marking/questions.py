"""What there is to mark: an assignment's written questions with their mark schemes, and the answers to them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import nbformat
from nbformat import NotebookNode
from nbgrader.api import Assignment
from nbgrader.coursedir import CourseDirectory

from lessonkit.grading.submission.answers import solutions

LARGEST = 50_000_000  # bytes of a notebook that is read


@dataclass(frozen=True)
class Question:
    """A cell that is marked by hand. `text` and `scheme` are Markdown, empty where the course's source is not here."""

    notebook: str
    name: str  # its grade id
    out_of: float
    is_code: bool
    text: str
    scheme: str
    released: str  # what stood in the cell when students got it


@dataclass(frozen=True)
class Written:
    """What stands in a student's cell; `source` is None where it cannot be read."""

    source: str | None
    attachments: Mapping[str, Any]

    @cached_property
    def digest(self) -> str:
        """What tells it from another answer: a student may hand in anew while somebody marks."""
        return hashlib.sha256(json.dumps([self.source, self.attachments]).encode()).hexdigest()[:16]

    @cached_property
    def words(self) -> str:
        return (self.source or "").strip()


def written_questions(coursedir: CourseDirectory, assignment: Assignment) -> list[Question]:
    """The questions of an assignment that a person marks, in the order of its notebooks.

    These are the cells in which students write and which earn points themselves. (nbgrader's task cells, whose answers
    stand anywhere in the notebook, are the formgrader's.)
    """
    found = []
    for notebook in assignment.notebooks:
        released = {cell.name: cell for cell in notebook.source_cells}
        place = {name: i for i, name in enumerate(released)}
        answered = {cell.name for cell in notebook.solution_cells}
        graded = [cell for cell in notebook.grade_cells if cell.name in answered]
        source = _source(coursedir, assignment.name, notebook.name)
        schemes = solutions(source) if source else {}
        for cell in sorted(graded, key=lambda cell: place.get(cell.name, len(place))):
            found.append(
                Question(
                    notebook.name,
                    cell.name,
                    float(cell.max_score),
                    cell.cell_type == "code",
                    _text_above(source, cell.name) if source else "",
                    schemes.get(cell.name, ""),
                    (released[cell.name].source or "") if cell.name in released else "",
                )
            )
    return found


def written(path: Path, name: str) -> Written:
    """What an autograded notebook has in the cell called `name`. It is a student's, so it may be anything."""
    try:
        # Not nbformat, which takes a hundred times as long for a class, to see whether all other cells are in order.
        cells = json.loads(path.read_bytes())["cells"] if path.stat().st_size <= LARGEST else []
        for cell in cells:
            if _grade_id(cell) == name:
                source = cell.get("source", "")
                text = source if isinstance(source, str) else "".join(map(str, source))
                attachments = cell.get("attachments")
                return Written(text, attachments if isinstance(attachments, dict) else {})
    except (OSError, ValueError, LookupError, TypeError, RecursionError):
        pass
    return Written(None, {})


def _grade_id(cell: Any) -> str | None:
    metadata = cell.get("metadata") if isinstance(cell, dict) else None
    marks = metadata.get("nbgrader") if isinstance(metadata, dict) else None
    return marks.get("grade_id") if isinstance(marks, dict) else None


def _source(coursedir: CourseDirectory, assignment: str, notebook: str) -> NotebookNode | None:
    folder = coursedir.format_path(coursedir.source_directory, ".", assignment)
    try:
        return nbformat.read(Path(folder) / f"{notebook}.ipynb", as_version=4)
    except (OSError, ValueError, nbformat.reader.NotJSONError):
        return None


def _text_above(source: NotebookNode, name: str) -> str:
    """The cell above the one to answer in: there the question stands."""
    above = ""
    for cell in source.cells:
        if _grade_id(cell) == name:
            return above
        above = cell.source if cell.cell_type == "markdown" else ""
    return ""
