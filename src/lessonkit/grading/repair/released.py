"""What was released: an assignment's cells, as the gradebook and the released notebook have them."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import nbformat
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook
from nbgrader.api import Gradebook
from nbgrader.preprocessors import ClearHiddenTests, ClearMarkScheme

from lessonkit.course import Course
from lessonkit.exercises.variation import answer_cell, check_cell
from lessonkit.grading.repair.reading import MAX_CELLS, OURS
from lessonkit.grading.submission.check_cells import PREFIX


@dataclass(frozen=True, eq=False)
class ReleasedCell:
    """A cell of the release. One without a name is unknown to the gradebook: a text between the others."""

    name: str
    cell_type: str
    source: str
    checksum: str | None = None
    locked: bool = False
    grade: bool = False
    solution: bool = False
    task: bool = False
    points: float | None = None

    @property
    def is_answer(self) -> bool:
        """Whether the learner writes code here."""
        return self.solution and self.cell_type == "code"

    @property
    def is_check(self) -> bool:
        return self.grade and not self.solution and self.cell_type == "code"

    @property
    def is_setup(self) -> bool:
        """Whether this is given code that the answers build on."""
        return self.cell_type == "code" and not (self.grade or self.solution)

    @cached_property
    def names(self) -> frozenset[str]:
        """What an answer has to define."""
        return defined(self.source) if self.is_answer else frozenset()

    @cached_property
    def shown(self) -> str:
        """The source as the learner was given it: the gradebook's has the hidden tests."""
        node = self.node()
        for step in (ClearHiddenTests(enforce_metadata=False), ClearMarkScheme(enforce_metadata=False)):
            step.preprocess_cell(node, {}, 0)
        return node.source

    def untouched(self, source: str) -> bool:
        return plain(source) in (plain(self.shown), plain(self.source))

    def metadata(self) -> dict[str, Any]:
        """nbgrader's metadata of this cell."""
        meta = {
            "schema_version": 3,
            "grade_id": self.name,
            "grade": self.grade,
            "solution": self.solution,
            "locked": self.locked,
            "task": self.task,
            "cell_type": self.cell_type,
            "checksum": self.checksum,
        }
        return meta | ({} if self.points is None else {"points": self.points})

    def node(self, source: str | None = None) -> NotebookNode:
        """The cell as it was released, or with another source."""
        make = new_code_cell if self.cell_type == "code" else new_markdown_cell
        cell = make(self.source if source is None else source, metadata={"deletable": False})
        if not self.solution:
            cell.metadata["editable"] = False
        cell.metadata["nbgrader"] = NotebookNode(self.metadata())
        cell.id = self.name[:64]
        return cell


@dataclass(frozen=True)
class Released:
    """A released notebook: its cells in order, those without a name only if the released file is at hand."""

    assignment: str
    notebook: str
    outline: tuple[ReleasedCell, ...]
    kernelspec: dict[str, Any]

    @cached_property
    def cells(self) -> tuple[ReleasedCell, ...]:
        """The cells that the gradebook knows."""
        return tuple(cell for cell in self.outline if cell.name)

    @classmethod
    def load(cls, db_url: str, notebook: str, assignment: str, release: str | Path | None = None) -> Released:
        """What the gradebook knows; `release` is the released file. MissingEntry if the gradebook does not know it.

        Kept in memory while that file stays as it is: nbgrader writes it whenever it changes the gradebook's cells.
        """
        if release is None or not Path(release).is_file():
            return _load(db_url, notebook, assignment)
        return _load_once(db_url, notebook, assignment, str(release), Path(release).stat().st_mtime_ns)


    @classmethod
    def of_notebook(cls, assignment: str, name: str, notebook: NotebookNode) -> Released:
        """What a released notebook itself says, without the gradebook: of several cells of a name, the first.

        It has no hidden tests, and what a learner has changed in it counts as given.
        """
        seen: set[str] = set()
        outline = []
        for node in notebook.cells:
            named, meta = label(node) or "", node.metadata.get("nbgrader", {})
            if named in seen:
                continue
            seen |= {named} - {""}
            outline.append(
                ReleasedCell(
                    named,
                    node.cell_type,
                    node.source,
                    meta.get("checksum"),
                    bool(meta.get("locked")),
                    bool(meta.get("grade")),
                    bool(meta.get("solution")),
                    bool(meta.get("task")),
                    float(meta["points"]) if "points" in meta else None,
                )
            )
        return cls(assignment, name, tuple(outline), dict(notebook.metadata.get("kernelspec", {})))


def _load(db_url: str, notebook: str, assignment: str, release: str | None = None, changed: int = 0) -> Released:
    with Gradebook(db_url) as gradebook:
        source = gradebook.find_notebook(notebook, assignment)
        points = {cell.name: float(cell.max_score) for cell in (*source.grade_cells, *source.task_cells)}
        grades, solutions, tasks = (
            {cell.name for cell in kind} for kind in (source.grade_cells, source.solution_cells, source.task_cells)
        )
        cells = {
            cell.name: ReleasedCell(
                cell.name,
                cell.cell_type,
                cell.source or "",
                cell.checksum,
                cell.locked,
                cell.name in grades,
                cell.name in solutions,
                cell.name in tasks,
                points.get(cell.name),
            )
            for cell in source.source_cells
        }
        kernelspec = json.loads(source.kernelspec) if source.kernelspec else {}
    outline = tuple(cells.values())
    try:
        given = nbformat.read(release, as_version=4).cells if release else []
    except (OSError, ValueError):
        given = []
    if sorted(filter(None, map(label, given))) == sorted(cells):
        texts = (ReleasedCell("", cell.cell_type, cell.source) for cell in given)
        outline = tuple(cells.get(label(cell) or "", text) for cell, text in zip(given, texts, strict=True))
    return Released(assignment, notebook, outline, kernelspec or {})


_load_once = lru_cache(maxsize=8)(_load)


def varied(released: Released, course: Course, variations: Mapping[str, str]) -> Released:
    """The release as a student got it who was given these variations, by exercise: other cells to answer and to check.

    A cell in which a variation's words find no place stays as it is: the course's text has changed since.
    """
    outline = list(released.outline)
    for number, cell in enumerate(outline):
        name = cell.name.removeprefix(PREFIX)
        if name in variations and cell.is_answer:
            with suppress(ValueError, LookupError):
                source = answer_cell(cell.source, course.exercise(name, variations[name]))
                outline[number] = replace(cell, source=source)
        elif name in variations and cell.is_check:
            outline[number] = replace(cell, source=check_cell(cell.source, name, variations[name]))
    return replace(released, outline=tuple(outline))


def unanswered(reason: str, released: Released) -> NotebookNode:
    """The assignment's graded and answerable cells, as they were released, under the reason."""
    heading = new_markdown_cell(f"**This submission could not be graded**: {reason}.", id="reason")
    return new_notebook(
        cells=[heading, *(cell.node() for cell in released.cells)],
        metadata={"kernelspec": released.kernelspec, OURS: {"unreadable": reason}},
    )


def label(cell: NotebookNode) -> str | None:
    meta = cell.metadata.get("nbgrader")
    name = meta.get("grade_id") if isinstance(meta, dict) else None
    return name if isinstance(name, str) and name else None


@lru_cache(maxsize=2 * MAX_CELLS)
def defined(source: str) -> frozenset[str]:
    """Names that code defines at its top level. Read line by line: it need not be valid, and parsing may crash."""
    blocks = re.findall(r"^(?:async[ \t]+)?(?:def|class)[ \t]+(\w+)", source, re.MULTILINE)
    return frozenset(blocks) | frozenset(re.findall(r"^(\w+)[ \t]*(?::[^=\n]*)?=(?!=)", source, re.MULTILINE))


@lru_cache(maxsize=2 * MAX_CELLS)
def plain(source: str) -> str:
    """Source without what an editor may change by itself: trailing blanks."""
    return "\n".join(line.rstrip() for line in source.strip().split("\n"))
