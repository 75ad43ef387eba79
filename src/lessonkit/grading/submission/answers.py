"""Submissions made from the notebooks: a release whose stubs are replaced by code, as a learner replaces them."""

from __future__ import annotations

import copy
import textwrap
from collections.abc import Mapping

from nbformat import NotebookNode

BEGIN, END = "BEGIN SOLUTION", "END SOLUTION"


def solutions(source: NotebookNode) -> dict[str, str]:
    """What stands between the solution markers of each cell of a solutions notebook, dedented, by grade id.

    Of a class whose methods have their markers each: all of them, from the first `def` on.
    """
    return {_grade_id(cell): _between_markers(cell) for cell in source.cells if BEGIN in cell.source}


def answer(source: NotebookNode, release: NotebookNode, answers: Mapping[str, str]) -> NotebookNode:
    """The release with `answers` (grade id -> code or text) where it has stubs; the other cells as released.

    An answer takes the place that the solution has in the `source`, at that indentation.
    Raises LookupError for an answer to a cell that is in one of the notebooks only.
    """
    notebook = copy.deepcopy(release)
    cells = {_grade_id(cell): cell for cell in notebook.cells}
    originals = {_grade_id(cell): cell for cell in source.cells if BEGIN in cell.source}
    for name, text in answers.items():
        if name not in cells or name not in originals:
            raise LookupError(f"no cell {name!r} to answer; there are {', '.join(originals)}")
        before, indent, after = _around_markers(originals[name])
        cells[name].source = "\n".join([*before, textwrap.indent(text, indent), *after])
    return notebook


def _grade_id(cell: NotebookNode) -> str:
    return cell.metadata.get("nbgrader", {}).get("grade_id", "")


def _place(lines: list[str]) -> tuple[int, int]:
    """From which line to which an answer goes: from the first marker to the last, methods' own lines with them."""
    begins = [i for i, line in enumerate(lines) if BEGIN in line]
    first, last = begins[0], max(i for i, line in enumerate(lines) if END in line)
    if len(begins) > 1:  # of each method
        first = max((i for i in range(first) if lines[i].lstrip().startswith("def ")), default=first)
    return first, last


def _around_markers(cell: NotebookNode) -> tuple[list[str], str, list[str]]:
    """The lines before an answer's place, that place's indentation, the lines after it."""
    lines = cell.source.split("\n")
    first, last = _place(lines)
    indent = lines[first][: len(lines[first]) - len(lines[first].lstrip())]
    return lines[:first], indent, lines[last + 1 :]


def _between_markers(cell: NotebookNode) -> str:
    lines = cell.source.split("\n")
    first, last = _place(lines)
    inside = lines[first : last + 1]
    return textwrap.dedent("\n".join(line for line in inside if BEGIN not in line and END not in line))
