"""Bringing a submitted notebook back to the assignment's cells, and saying what was done.

The truth is the gradebook: the cells that `nbgrader generate_assignment` put there. What the learner wrote keeps its
order, for that is the order in which it ran; only the cells that were given to them move.
"""

from __future__ import annotations

import difflib
import json
import re
import stat
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import nbformat
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook
from nbformat.v4.rwbase import rejoin_lines, strip_transient
from nbgrader.api import Gradebook
from nbgrader.preprocessors import ClearHiddenTests, ClearMarkScheme, NbGraderPreprocessor

from attncourse._mimetype import VERDICT

DAMAGED = "the submitted file is damaged or not a notebook"
MAX_BYTES = 20_000_000
MAX_DEPTH = 100  # of lists in dictionaries in lists; a notebook has about ten
MAX_COMPARED = 200  # cells without a name that are compared with what is missing
SIMILAR = 0.6  # difflib's ratio
OURS = "attncourse"  # the key of a notebook's metadata
WRITTEN_BY_GRADING = ("unreadable", "placeholder", "repairs", "flags")
NOT_EXECUTED = {"skip-execution", "raises-exception"}

MAGIC = {
    b"PK\x03\x04": "a zip archive",
    b"PK\x05\x06": "a zip archive",
    b"\x1f\x8b": "a gzip archive",
    b"%PDF": "a PDF file",
    b"<!": "a web page",
    b"<html": "a web page",
}


class Unreadable(Exception):
    """A submission cannot be graded; the message says why, to the learner."""


def repairs(notebook: NotebookNode) -> list[str]:
    """What was repaired in this submission before it was graded, a sentence each. For innocent damage."""
    return _remembered(notebook, "repairs")


def flags(notebook: NotebookNode) -> list[str]:
    """What somebody seems to have tampered with in this submission, a sentence each. See `signs_of_tampering`."""
    return _remembered(notebook, "flags")


def remember(notebook: NotebookNode, **values: Any) -> None:
    """Put what grading has to say into the notebook's metadata; what a learner put in its place goes."""
    before = notebook.metadata.get(OURS)
    ours = {key: value for key, value in before.items() if key not in WRITTEN_BY_GRADING} if _is_dict(before) else {}
    ours |= {key: value for key, value in values.items() if value}
    if ours or before is not None:
        notebook.metadata[OURS] = ours


class Repair(NbGraderPreprocessor):
    """The first step of sanitising: from here on, a notebook has each of the assignment's cells exactly once."""

    def preprocess(self, nb: NotebookNode, resources: Any) -> tuple[NotebookNode, Any]:
        where, read_as = resources["nbgrader"], resources.get("attncourse") or {}
        notes, reason, signs = list(read_as.get("notes", ())), read_as.get("unreadable"), []
        if reason is None:
            released = Released.load(where["db_url"], where["notebook"], where["assignment"], read_as.get("release"))
            try:
                if not belongs(nb, released):
                    raise Unreadable(_foreign(nb, where["db_url"], released))
                signs = signs_of_tampering(nb, released)
                notes += repair(nb, released)
            except Unreadable as error:
                reason = str(error)
                nb = unanswered(reason, released)
        remember(nb, unreadable=reason, repairs=notes, flags=signs)
        for sentence in (*notes, *signs):
            self.log.warning("%s: %s", where["student"], sentence)
        return nb, resources


# --------------------------------------------------------------------------------------------- from bytes to a notebook


def read_bytes(path: Path, limit: int = MAX_BYTES) -> bytes:
    """A submitted file's bytes. Unreadable, and not opened, if it is no ordinary file or larger than `limit` bytes."""
    try:
        found = path.lstat()
        if not stat.S_ISREG(found.st_mode):
            raise Unreadable(f"{kind_of(found.st_mode)} was handed in in place of the notebook")
        if found.st_size > limit:
            size, most = f"{found.st_size / 1e6:,.0f}", f"{limit / 1e6:g}"
            raise Unreadable(f"the submitted file has {size} MB, and {most} MB are allowed: clear its outputs")
        return path.read_bytes()
    except OSError as error:
        raise Unreadable(f"the submitted file cannot be opened: {error.strerror}") from None


def kind_of(mode: int) -> str:
    """What a file is, with an article."""
    kinds: dict[Callable[[int], bool], str] = {
        stat.S_ISREG: "a file",
        stat.S_ISLNK: "a symbolic link",
        stat.S_ISDIR: "a folder",
        stat.S_ISFIFO: "a named pipe",
        stat.S_ISSOCK: "a socket",
    }
    return next((name for test, name in kinds.items() if test(mode)), "a device")


def read(data: bytes) -> tuple[NotebookNode, list[str]]:
    """A submitted file as a valid notebook of format 4.5, and what was repaired for that. Unreadable if it is none."""
    if not data.strip(b"\0 \t\r\n"):
        raise Unreadable("the submitted file is empty")
    for start, kind in MAGIC.items():
        if data.lstrip().startswith(start):
            raise Unreadable(f"the submitted file is {kind}, not a notebook: hand in the notebook itself")
    notes: list[str] = []
    content = _parse(_decode(data, notes))
    if not (_is_dict(content) and isinstance(content.get("cells", content.get("worksheets")), list)):
        raise Unreadable("the submitted file is JSON, but not a notebook")
    content = _clean(content, notes)
    try:
        notebook = _version_4(content, notes)
        _shape(notebook, notes)
    except (Unreadable, MemoryError):
        raise
    except Exception as error:
        raise Unreadable(f"{DAMAGED}: {_first_line(error)}") from None
    placeholder = (notebook.metadata.get(OURS) or {}).get("placeholder")
    if isinstance(placeholder, str):  # put there by `intake`, where there was no notebook
        raise Unreadable(placeholder)
    return notebook, list(dict.fromkeys(notes))


def _decode(data: bytes, notes: list[str]) -> str:
    encoding: str = json.detect_encoding(data)
    try:
        text = data.decode(encoding)
    except UnicodeDecodeError:
        encoding, text = "cp1252", data.decode("cp1252", "replace")  # an old Windows editor, or not a text at all
    if encoding == "utf-8-sig":
        notes.append("the file began with a byte order mark")
    elif encoding != "utf-8":
        notes.append(f"the file was saved as {encoding.upper()}, and notebooks are UTF-8")
    return text


def _parse(text: str) -> Any:
    try:
        return json.loads(text)
    except RecursionError:
        raise Unreadable(f"{DAMAGED}: it is nested deeper than any notebook") from None
    except ValueError as error:
        lines = text.split("\n")
        marked = [n for n, line in enumerate(lines, 1) if re.match(r"<{7} |={7}\s*$|>{7} ", line)]
        if any(line.startswith("<<<<<<< ") for line in lines):
            where = ", ".join(map(str, marked[:9])) + (" and more" if len(marked) > 9 else "")
            raise Unreadable(
                f"the submitted file holds git's merge markers (in lines {where}), so it is no notebook any more"
            ) from None
        why = _first_line(error)
        if isinstance(error, json.JSONDecodeError) and (error.pos >= len(text.rstrip()) or "Unterminated" in error.msg):
            why = f"it breaks off in line {error.lineno}"
        raise Unreadable(f"{DAMAGED}: {why}") from None


def _clean(value: Any, notes: list[str], depth: int = 0) -> Any:
    """The same content with text that can be written to a file again. Unreadable if it is nested too deep."""
    if depth > MAX_DEPTH:
        raise Unreadable(f"{DAMAGED}: it is nested deeper than any notebook")
    if isinstance(value, str):
        if not value.isascii() and (text := re.sub("[\ud800-\udfff]", "\ufffd", value)) != value:
            notes.append("halves of characters (lone surrogates) were replaced")
            return text
        return value
    if isinstance(value, list):
        return [_clean(item, notes, depth + 1) for item in value]
    if isinstance(value, dict):
        return {_clean(key, notes): _clean(item, notes, depth + 1) for key, item in value.items()}
    return value


def _version_4(content: dict[str, Any], notes: list[str]) -> NotebookNode:
    version = content.get("nbformat")
    if "cells" in content:
        if version != 4:
            notes.append(f"the notebook said that its format is {str(version)[:20]!r}; it is 4")
        return nbformat.from_dict(content)
    old = version if version in (1, 2, 3) else 3
    notes.append(f"the notebook was in the old format {old}: converted")
    notebook = nbformat.reads(json.dumps({"metadata": {}, **content, "nbformat": old}), as_version=4)
    notebook.nbformat_minor = 4  # its ids were drawn at random just now
    for cell in notebook.cells:
        cell.pop("id", None)
    return notebook


def _shape(notebook: NotebookNode, notes: list[str]) -> None:
    """Make a notebook valid, in place."""
    minor = notebook.get("nbformat_minor")
    if not (isinstance(minor, int) and 0 <= minor <= 5) or isinstance(minor, bool):
        notes.append("the notebook's format had no minor version, or an impossible one")
        minor = 5
    notebook.nbformat, notebook.nbformat_minor = 4, 5
    if not _is_dict(notebook.get("metadata")):
        notes.append("the notebook had no metadata")
        notebook.metadata = NotebookNode()
    _shape_metadata(notebook.metadata, notes)
    cells = [cell for cell in notebook.cells if _is_dict(cell)]
    if len(cells) < len(notebook.cells):
        notes.append("what was no cell was left out")
    notebook.cells = cells
    for cell in cells:
        _shape_cell(cell, notes)
    _shape_ids(cells, notes if minor >= 5 else [])
    try:
        nbformat.validate(notebook)
    except nbformat.ValidationError:
        notes.append("stored outputs or metadata had not the form of a notebook's: left out")
        notebook.metadata = NotebookNode({key: notebook.metadata[key] for key in (OURS,) if key in notebook.metadata})
        notebook.cells = [_bare(cell) for cell in cells]
        nbformat.validate(notebook)
    strip_transient(rejoin_lines(notebook))


def _shape_metadata(metadata: NotebookNode, notes: list[str]) -> None:
    needed = {"kernelspec": ("name", "display_name"), "language_info": ("name",)}
    for key, parts in needed.items():
        value = metadata.get(key)
        if value is not None and not (_is_dict(value) and all(isinstance(value.get(part), str) for part in parts)):
            notes.append(f"the notebook's {key} was damaged")
            del metadata[key]
    if not isinstance(metadata.get("language", ""), str):  # nbconvert stumbles over it
        del metadata["language"]


def _shape_cell(cell: NotebookNode, notes: list[str]) -> None:
    wrong = False
    if cell.get("cell_type") not in ("code", "markdown", "raw"):
        cell.cell_type, wrong = "code" if "outputs" in cell else "markdown", True
    source = cell.get("source")
    if isinstance(source, list) and all(isinstance(line, str) for line in source):
        source = "".join(source)
    if not isinstance(source, str):
        source, wrong = "" if source is None else str(source), True
    cell.source = source
    if "\r" in source:
        cell.source = source.replace("\r\n", "\n").replace("\r", "\n")
        notes.append("lines ended as on Windows or an old Mac")
    if not _is_dict(cell.get("metadata")):
        cell.metadata, wrong = NotebookNode(), True
    if cell.cell_type == "code":
        count = cell.setdefault("execution_count", None)
        if isinstance(count, bool) or not isinstance(count, int | None):
            cell.execution_count, wrong = None, True
        if not isinstance(cell.setdefault("outputs", []), list):
            cell.outputs, wrong = [], True
    else:
        wrong |= any([cell.pop(key, None) is not None for key in ("outputs", "execution_count")])
    if wrong:
        notes.append("cells of a wrong form were put right")


def _shape_ids(cells: Sequence[NotebookNode], notes: list[str]) -> None:
    """Give each cell an id of its own; the first of several keeps it."""
    seen: set[str] = set()
    for cell in cells:
        name = cell.get("id")
        if not (isinstance(name, str) and re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", name)) or name in seen:
            notes.append("ids of cells were missing, or there twice")
            cell.pop("id", None)
        else:
            seen.add(name)
    for number, cell in enumerate(cells):
        if "id" not in cell:
            cell.id = _free_id(f"cell-{number}", seen)
            seen.add(cell.id)


def _bare(cell: NotebookNode) -> NotebookNode:
    kept = {key: cell.metadata[key] for key in ("nbgrader",) if key in cell.metadata}
    bare = NotebookNode(cell_type=cell.cell_type, id=cell.id, metadata=NotebookNode(kept), source=cell.source)
    if cell.cell_type == "code":
        bare |= {"outputs": [], "execution_count": None}
    return bare


# ---------------------------------------------------------------------------------------------------- what was released


@dataclass(frozen=True)
class ReleasedCell:
    """A cell that the gradebook knows."""

    name: str
    cell_type: str
    source: str
    checksum: str | None
    locked: bool
    grade: bool
    solution: bool
    task: bool
    points: float | None

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
        return _defined(self.source) if self.is_answer else frozenset()

    @cached_property
    def shown(self) -> str:
        """The source as the learner was given it: the gradebook's has the hidden tests."""
        step = ClearMarkScheme() if self.task else ClearHiddenTests()
        return step.preprocess_cell(self.node(), {}, 0)[0].source if self.task or self.grade else self.source

    def untouched(self, source: str) -> bool:
        return _plain(source) in (_plain(self.shown), _plain(self.source))

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

    def node(self, **values: Any) -> NotebookNode:
        """The cell as it was released."""
        make = new_code_cell if self.cell_type == "code" else new_markdown_cell
        cell = make(**{"source": self.source, "metadata": {"deletable": False}} | values)
        if not self.solution:
            cell.metadata["editable"] = False
        cell.metadata["nbgrader"] = NotebookNode(self.metadata())
        cell.id = self.name[:64]
        return cell


@dataclass(frozen=True)
class Released:
    """A released notebook: the cells that the gradebook knows, and in `outline` the texts between them, if at hand."""

    assignment: str
    notebook: str
    cells: tuple[ReleasedCell, ...]
    outline: tuple[ReleasedCell | str, ...]
    kernelspec: dict[str, Any]

    @classmethod
    def load(cls, db_url: str, notebook: str, assignment: str, release: str | Path | None = None) -> Released:
        """What the gradebook knows; `release` is the released file. MissingEntry if the gradebook does not know it."""
        with Gradebook(db_url) as gradebook:
            source = gradebook.find_notebook(notebook, assignment)
            points = {cell.name: float(cell.max_score) for cell in (*source.grade_cells, *source.task_cells)}
            grades, tasks = {cell.name for cell in source.grade_cells}, {cell.name for cell in source.task_cells}
            solutions = {cell.name for cell in source.solution_cells}
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
        if sorted(filter(None, map(_label, given))) == sorted(cells):
            outline = tuple(cells.get(_label(cell) or "", cell.source) for cell in given)
        in_order = tuple(entry for entry in outline if isinstance(entry, ReleasedCell))
        return cls(assignment, notebook, in_order, outline, kernelspec or {})

    def find(self, name: str | None) -> ReleasedCell | None:
        return next((cell for cell in self.cells if cell.name == name), None)


def unanswered(reason: str, released: Released) -> NotebookNode:
    """The assignment's graded and answerable cells, as they were released, under the reason."""
    heading = new_markdown_cell(f"**This submission could not be graded**: {reason}.", id="reason")
    return new_notebook(
        cells=[heading, *(cell.node(metadata={}) for cell in released.cells)],
        metadata={"kernelspec": released.kernelspec, OURS: {"unreadable": reason}},
    )


# ------------------------------------------------------------------------------------------- whose cell is it: matching


@dataclass(eq=False)
class _Piece:
    """A cell of a submission, and which of the released cells it is."""

    node: NotebookNode
    given: ReleasedCell | None = None
    how: str = ""  # it was recognised, if not by its name
    text: int | None = None  # its place in the outline, if it is a given text between the graded cells

    @property
    def own(self) -> bool:
        """Whether the learner added this cell."""
        return self.given is None and self.text is None

    @property
    def defined(self) -> frozenset[str]:
        """The names that its code defines; a text that quotes code defines nothing."""
        return frozenset() if self.node.cell_type == "markdown" and not self.given else _defined(self.node.source)

    @property
    def answers(self) -> bool:
        """Whether it holds more than what was released, and defines what it should."""
        return self.written and (not self.given or not self.given.names or bool(self.given.names & self.defined))

    @property
    def written(self) -> bool:
        return bool(self.node.source.strip()) and not (self.given and self.given.untouched(self.node.source))


def belongs(notebook: NotebookNode, released: Released) -> bool:
    """Whether the notebook holds an answer or a check of this assignment, whatever has become of it."""
    pieces = [_Piece(node) for node in notebook.cells]
    _recognise_surely(pieces, released)
    return any(piece.given and (piece.given.is_check or piece.given.solution) for piece in pieces)


def _recognise(cells: Sequence[NotebookNode], released: Released) -> list[_Piece]:
    """Say of each cell what it is; several may be the same one."""
    pieces = [_Piece(node) for node in cells]
    _recognise_surely(pieces, released)
    for given in _missing(pieces, released):
        strangers = [piece for piece in pieces if piece.own and piece.node.cell_type == given.cell_type == "code"]
        likeness = {piece: _likeness(piece, given) for piece in strangers[:MAX_COMPARED]}
        for piece in sorted(likeness, key=lambda piece: -likeness[piece]):
            if likeness[piece] < SIMILAR:
                break
            if all(_likeness(piece, other) <= likeness[piece] for other in released.cells if other is not given):
                piece.given, piece.how = given, "by its likeness to what was released"
                break
    _recognise_texts(pieces, released)
    for given in _open(pieces, released):
        for piece in pieces:  # code in a cell that has become text
            if piece.own and piece.node.cell_type == "markdown" and given.names & _defined(piece.node.source):
                piece.given, piece.how = given, "by what it defines"
    for given in _missing(pieces, released):
        near = [p for p in _between(pieces, released, given) if p.node.cell_type == given.cell_type]
        if given.is_answer and len(near) == 1:
            near[0].given, near[0].how = given, "by its place"
    return pieces


def _recognise_surely(pieces: Sequence[_Piece], released: Released) -> None:
    for piece in pieces:
        given = released.find(_label(piece.node))
        # A name that was swapped with another answer's: the code knows better.
        others = [cell for cell in released.cells if cell is not given and cell.names & piece.defined]
        if given and not (given.names and piece.written and others and not given.names & piece.defined):
            piece.given = given
    by: dict[str, Callable[[_Piece, ReleasedCell], bool]] = {
        "by its id": lambda p, g: p.node.id == g.name and not (p.defined and g.names and not g.names & p.defined),
        "by what it defines": lambda p, g: bool(g.names & p.defined),
        "by its text": lambda p, g: g.untouched(p.node.source) and bool(g.source.strip()),
    }
    for how, test in by.items():
        for given in _open(pieces, released):
            found = [piece for piece in pieces if piece.given is None and test(piece, given)]
            for piece in found if given.is_answer else found[:1]:
                piece.given, piece.how = given, how
    for piece in pieces:  # a copy of the stub below the answer would undo it
        if piece.given is None and piece.defined:
            piece.given = next((g for g in released.cells if g.names and g.untouched(piece.node.source)), None)


def _recognise_texts(pieces: Sequence[_Piece], released: Released) -> None:
    free = [piece for piece in pieces if piece.given is None]
    for place, text in enumerate(released.outline):
        if isinstance(text, str):
            piece = next((p for p in free if p.text is None and _plain(p.node.source) == _plain(text)), None)
            if piece:
                piece.text = place


def _between(pieces: Sequence[_Piece], released: Released, given: ReleasedCell) -> list[_Piece]:
    """The learner's own cells between what stood before a released cell and what stood behind it."""
    at = released.outline.index(given)
    places = {_place(piece, released): i for i, piece in reversed([*enumerate(pieces)])}
    before = next((places[place] for place in range(at - 1, -1, -1) if place in places), -1)
    behind = (places[place] for place in range(at + 1, len(released.outline)) if place in places)
    end = next((i for i in behind if i > before), len(pieces))
    return [piece for piece in pieces[before + 1 : end] if piece.own and piece.node.source.strip()]


def _missing(pieces: Sequence[_Piece], released: Released) -> list[ReleasedCell]:
    there = {piece.given for piece in pieces}
    return [cell for cell in released.cells if cell not in there]


def _open(pieces: Sequence[_Piece], released: Released) -> list[ReleasedCell]:
    """The missing cells, and the answers of which only the stub is there."""
    there = {piece.given for piece in pieces if piece.given and (piece.written or not piece.given.solution)}
    return [cell for cell in released.cells if cell not in there]


def _place(piece: _Piece, released: Released) -> int | None:
    return released.outline.index(piece.given) if piece.given else piece.text


def _likeness(piece: _Piece, given: ReleasedCell) -> float:
    matcher = difflib.SequenceMatcher(None, _plain(given.shown)[:2000], _plain(piece.node.source)[:2000])
    bounds = (matcher.real_quick_ratio(), matcher.quick_ratio())
    return matcher.ratio() if min(bounds) >= SIMILAR else 0.0


# ------------------------------------------------------------------------------------------------------------ tampering


def signs_of_tampering(notebook: NotebookNode, released: Released) -> list[str]:
    """What in a submission, as it came, is not as a learner leaves it by accident: a short sentence for each.

    Nothing of it has an effect: nbgrader restores given cells, points come from the gradebook, outputs are cleared.
    """
    signs = []
    ours = notebook.metadata.get(OURS)
    forged = [key for key in WRITTEN_BY_GRADING if _is_dict(ours) and key in ours]
    if forged:
        signs.append(f"the notebook's metadata held what only grading writes: {', '.join(forged)}")
    for piece in _recognise(notebook.cells, released):
        given = piece.given
        if given is None:
            continue
        what = f"the {'check' if given.is_check else 'given'} cell `{given.name}`"
        if given.locked and not given.untouched(piece.node.source):
            signs.append(f"{what} was edited")
        elif given.shown != given.source and _plain(piece.node.source) == _plain(given.source):
            signs.append(f"{what} came with its hidden tests")
        meta = piece.node.metadata.get("nbgrader")
        if _is_dict(meta):
            signs += [f"the cell `{given.name}` {change}" for change in _changes(meta, given)]
        if given.is_check and (shown := _boast(piece.node, given)):
            signs.append(f"{what} came with a stored verdict of {shown}")
    return list(dict.fromkeys(signs))


def _changes(meta: dict[str, Any], given: ReleasedCell) -> Iterator[str]:
    """How the values in a cell's metadata differ from the released ones, of those that have the right type."""
    points = meta.get("points")
    if given.points is not None and type(points) in (int, float) and points != given.points:
        yield f"said that it is worth {points:g} points; it is worth {given.points:g}"
    for key in ("grade", "solution", "locked", "task"):
        if isinstance(meta.get(key), bool) and meta[key] != getattr(given, key):
            yield f"said {key}={meta[key]}; it was released with {key}={getattr(given, key)}"


def _boast(node: NotebookNode, given: ReleasedCell) -> str | None:
    """What a stored verdict claims that no check of this cell can have said."""
    for output in node.get("outputs", []):
        verdict = output.get("data", {}).get(VERDICT)
        if not _is_dict(verdict):
            continue
        points, exercise = verdict.get("points"), verdict.get("exercise")
        if isinstance(exercise, str) and not given.name.endswith(exercise):
            return f"another exercise ({exercise[:64]})"
        if isinstance(points, int | float) and given.points and not 0 <= points <= given.points:
            return f"{points:g} of {given.points:g} points"
    return None


# ------------------------------------------------------------------------------------------------------------ repairing


def repair(notebook: NotebookNode, released: Released) -> list[str]:
    """Bring a valid notebook to the released cells, once each and each check behind its answer, in place.

    Returns what was done, a sentence each; empty if the notebook was in order.
    """
    notes: list[str] = []
    pieces = _recognise(notebook.cells, released)
    pieces = _keep_edits(pieces, notes)
    for given in released.cells:
        _keep_one(pieces, given, released, notes)
    for piece in pieces:
        _restore(piece, notes)
    _put_back(pieces, released, notes)
    notebook.cells = [piece.node for piece in _in_order(pieces, released, notes)]
    _ids_of_their_own(notebook.cells)
    _restore_kernel(notebook, released, notes)
    return list(dict.fromkeys(notes))


def _keep_edits(pieces: list[_Piece], notes: list[str]) -> list[_Piece]:
    """What a learner wrote into a given cell, which nbgrader will restore, gets a cell of its own beside it."""
    out = []
    for piece in pieces:
        given, source = piece.given, piece.node.source
        lines = {line.strip() for line in given.source.split("\n")} if given else set()
        new = [line for line in source.split("\n") if line.strip() and line.strip() not in lines]
        wanted = piece.defined if given and given.is_check else new
        if given is None or not given.locked or given.cell_type != "code" or given.untouched(source) or not wanted:
            out.append(piece)
            continue
        notes.append(f"code that was written into the given cell `{given.name}` was kept in a cell beside it")
        theirs = _Piece(new_code_cell(source, id="theirs"))
        piece.node.source = given.source
        out += [theirs, piece] if given.is_check else [piece, theirs]
    return out


def _keep_one(pieces: list[_Piece], given: ReleasedCell, released: Released, notes: list[str]) -> None:
    """Of all cells that are this one, or could be, let one be it. Others stay if they hold anything of their own."""
    mine = [piece for piece in pieces if piece.given is given]
    good = [piece for piece in mine if piece.answers]
    if given.solution and not good:
        good = _elsewhere(pieces, given, released)
        if good:
            good[-1].how = "in another cell"
    written = [piece for piece in mine if piece.written]
    if given.solution:
        keep = next(reversed(good or written or mine[:1]), None)
    else:
        keep = next((piece for piece in mine if piece.node.id == given.name), next(iter(mine), None))
    for piece in mine:
        if piece is not keep:
            if given.untouched(piece.node.source) or not piece.node.source.strip():
                pieces.remove(piece)
            piece.given = None
            piece.node.metadata.pop("nbgrader", None)
    if keep is None:
        return
    keep.given = given
    if len(mine) > 1:
        times = "twice" if len(mine) == 2 else f"{len(mine)} times"
        which = f"the last one that defines {' and '.join(sorted(given.names))}" if given.names and good else "one"
        kept = " as the answer" if given.solution else ""
        notes.append(f"the cell `{given.name}` was there {times}: {which} was kept{kept}")
    elif keep.how == "in another cell":
        notes.append(f"the answer to `{given.name}` stood in another cell, which is now the one that is graded")
    elif keep.how:
        label = _label(keep.node)
        called = f"was called `{label[:64]}`" if label else "had lost its name"
        notes.append(f"the cell `{given.name}` {called}: recognised {keep.how}")


def _elsewhere(pieces: Sequence[_Piece], given: ReleasedCell, released: Released) -> list[_Piece]:
    """The learner's own cells that hold the answer to a cell that does not."""
    if given.is_answer:
        return [p for p in pieces if p.own and given.names & p.defined and not given.untouched(p.node.source)]
    if len(released.outline) == len(released.cells):
        return []  # given texts cannot be told from the learner's
    texts = [piece for piece in pieces if piece.own and piece.node.cell_type != "code" and piece.node.source.strip()]
    near = [piece for piece in _between(pieces, released, given) if piece in texts]
    if near or any(piece.given is given for piece in pieces):
        return near
    return sorted(texts, key=lambda piece: len(piece.node.source))  # the longest; a person marks it, and will see


def _restore(piece: _Piece, notes: list[str]) -> None:
    """Give a cell the type and the metadata of the released one; a cell of the learner's own has none of nbgrader's."""
    node, given = piece.node, piece.given
    meta = node.metadata.get("nbgrader")
    if given is None:
        if "nbgrader" in node.metadata:
            del node.metadata["nbgrader"]
            if _is_dict(meta) and (meta.get("grade") or meta.get("solution") or meta.get("locked")):
                notes.append("a cell of the learner's own was marked as one of the assignment's: it is not graded")
        return
    if node.cell_type != given.cell_type:
        notes.append(f"the cell `{given.name}` was changed from {given.cell_type} to {node.cell_type}: changed back")
        _retype(node, given.cell_type)
    tags = node.metadata.get("tags", [])
    if NOT_EXECUTED & set(tags):
        node.metadata["tags"] = [tag for tag in tags if tag not in NOT_EXECUTED]
        notes.append(f"the cell `{given.name}` was tagged not to be executed: the tag was removed")
    right = given.metadata()
    if not _same(meta, right):
        if not piece.how and not _well_formed(meta, right):
            notes.append(f"the cell `{given.name}` had damaged metadata: restored")
        node.metadata["nbgrader"] = NotebookNode(right)


def _same(meta: Any, right: dict[str, Any]) -> bool:
    if not _well_formed(meta, right):
        return False
    return all(meta.get(key, right[key]) == right[key] for key in right if key != "checksum")


def _well_formed(meta: Any, right: dict[str, Any]) -> bool:
    """Whether metadata has what nbgrader needs, each of the right type, and nothing that it does not know."""
    needed = {"schema_version", "grade_id", "grade", "solution", "locked"} | ({"points"} & right.keys())
    if not _is_dict(meta) or not needed <= meta.keys() <= right.keys() | {"points"} or meta["schema_version"] != 3:
        return False
    number = type(meta.get("points")) in (int, float) and meta["points"] >= 0
    kinds = [type(meta[key]) is type(right[key]) for key in meta if key not in ("points", "checksum")]
    checksum = meta.get("checksum", "0" * 32)
    return all(kinds) and (number or "points" not in meta) and isinstance(checksum, str) and len(checksum) == 32


def _retype(node: NotebookNode, cell_type: str) -> None:
    node.cell_type = cell_type
    for key in ("outputs", "execution_count") if cell_type != "code" else ("attachments",):
        node.pop(key, None)
    if cell_type == "code":
        node.outputs, node.execution_count = [], None


def _put_back(pieces: list[_Piece], released: Released, notes: list[str]) -> None:
    """Add the cells that are missing; the answers' places are found here, the given cells' by `_in_order`."""
    for given in released.cells:
        mine = next((piece for piece in pieces if piece.given is given), None)
        elsewhere = [p for p in pieces if p.given not in (None, given) and given.names & p.defined]
        if mine is not None and (mine.written or not elsewhere or not mine.node.source.strip()):
            continue
        source = given.source
        if elsewhere:  # the stub would overwrite it
            there = elsewhere[-1].given
            assert there is not None
            source = f"# {', '.join(sorted(given.names))}: written in the cell `{there.name}`."
            notes.append(f"the answer to `{given.name}` stood in the cell `{there.name}`")
        else:
            notes.append(f"the cell `{given.name}` was missing: put back as it was released")
        if mine is not None:
            mine.node.source = source
            continue
        new = _Piece(given.node(source=source), given, how="put back")
        at = _behind_predecessor(pieces, released, given) if given.is_answer else len(pieces)
        pieces.insert(at, new)


def _behind_predecessor(pieces: Sequence[_Piece], released: Released, given: ReleasedCell) -> int:
    """The index right behind the nearest cell that stood before this one in the release; 0 if there is none."""
    places = {_place(piece, released): i for i, piece in enumerate(pieces)}
    at = released.outline.index(given)
    return next((places[place] + 1 for place in range(at - 1, -1, -1) if place in places), 0)


def _in_order(pieces: Sequence[_Piece], released: Released, notes: list[str]) -> list[_Piece]:
    """The cells with the given ones where they can be: in the release's order, each check behind its answer.

    The learner's cells (answers, and what they added) and the texts between keep their order.
    """
    theirs = [piece for piece in pieces if piece.given is None or piece.given.is_answer]
    answers = {piece.given: i for i, piece in enumerate(theirs) if piece.given}
    gaps: dict[int, list[_Piece]] = {}  # before which of `theirs` a given cell goes
    lowest = setups = 0
    for at, given in enumerate(released.cells):
        piece = next((piece for piece in pieces if piece.given is given), None)
        if piece is None or given.is_answer:
            continue
        behind = max((answers[cell] + 1 for cell in released.cells[:at] if cell in answers), default=0)
        following = [answers[cell] for cell in released.cells[at + 1 :] if cell in answers]
        if given.is_setup:  # answers build on it: better too early than too late
            last = min(following, default=len(theirs))
            first = min(max(setups, behind), last)
        else:
            first = max(lowest, behind)
            last = min((i for i in following if i >= first), default=len(theirs))
        before = pieces[: pieces.index(piece)]
        place = sum(other.given is None or other.given.is_answer for other in before)
        if piece.how == "put back" or not first <= place <= last:
            if piece.how != "put back":
                notes.append(f"the cell `{given.name}` was moved: put back where the release has it")
            place = min(max(_behind_predecessor(theirs, released, given), first), last)
            while given.is_check and place < last and theirs[place].own:
                place += 1  # helpers for the answer
        gaps.setdefault(place, []).append(piece)
        lowest = max(lowest, place)
        setups = max(setups, place) if given.is_setup else setups
    out = []
    for i in range(len(theirs) + 1):
        out += [*gaps.get(i, []), *theirs[i : i + 1]]
    return out


def _ids_of_their_own(cells: Sequence[NotebookNode]) -> None:
    """A released cell keeps its name as its id, if it has it; of the others the first."""
    seen: set[str] = set()
    for cell in sorted(cells, key=lambda cell: cell.id != _label(cell)):
        cell.id = _free_id(cell.id, seen)
        seen.add(cell.id)


def _restore_kernel(notebook: NotebookNode, released: Released, notes: list[str]) -> None:
    right, meta = released.kernelspec, notebook.metadata
    if not right:
        return
    language = right.get("language", "python")
    if meta.get("kernelspec", {}).get("language", language if "kernelspec" in meta else None) != language:
        notes.append(f"the notebook had no kernel, or one of another language: set to {right.get('name')}")
        meta["kernelspec"] = NotebookNode(right)
    if meta.get("language_info", {}).get("name", language) not in (language, "ipython"):
        notes.append("the notebook said that its language is another one")
        del meta["language_info"]  # execution writes it anew


def _foreign(notebook: NotebookNode, db_url: str, released: Released) -> str:
    """Why a notebook with none of the assignment's cells is not graded."""
    labels = set(filter(None, map(_label, notebook.cells)))
    with Gradebook(db_url) as gradebook:
        for assignment in gradebook.assignments:
            for other in assignment.notebooks:
                if labels & {cell.name for cell in (*other.grade_cells, *other.solution_cells)}:
                    return f"this is the notebook {other.name} of assignment {assignment.name}, handed in by mistake"
    return f"the submitted notebook holds none of the cells of {released.notebook}: is it another one?"


# ---------------------------------------------------------------------------------------------------------------- words


def _label(cell: NotebookNode) -> str | None:
    meta = cell.metadata.get("nbgrader")
    name = meta.get("grade_id") if _is_dict(meta) else None
    return name if isinstance(name, str) and name else None


@lru_cache(maxsize=1000)
def _defined(source: str) -> frozenset[str]:
    """Names that code defines at its top level. Read line by line: it need not be valid, and parsing may crash."""
    blocks = re.findall(r"^(?:async[ \t]+)?(?:def|class)[ \t]+(\w+)", source, re.MULTILINE)
    return frozenset(blocks) | frozenset(re.findall(r"^(\w+)[ \t]*(?::[^=\n]*)?=(?!=)", source, re.MULTILINE))


def _plain(source: str) -> str:
    """Source without what an editor may change by itself: trailing blanks."""
    return "\n".join(line.rstrip() for line in source.strip().split("\n"))


def _free_id(wanted: str, taken: set[str]) -> str:
    names = [wanted]
    while names[-1] in taken:
        names.append(f"{wanted[:50]}-{len(names) + 1}")
    return names[-1]


def _remembered(notebook: NotebookNode, key: str) -> list[str]:
    ours = notebook.metadata.get(OURS)
    found = ours.get(key) if _is_dict(ours) else None
    return [line for line in found if isinstance(line, str)] if isinstance(found, list) else []


def _first_line(error: Exception) -> str:
    return (str(error) or repr(error)).splitlines()[0][:200]


def _is_dict(value: Any) -> bool:
    return isinstance(value, dict)
