"""Bringing a submitted notebook back to the assignment's cells, and saying what was done.

The truth is the gradebook: the cells that `nbgrader generate_assignment` put there. What the learner wrote keeps its
order, for that is the order in which it ran; only the cells that were given to them move.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nbformat import NotebookNode
from nbformat.v4 import new_code_cell
from nbgrader.api import Gradebook
from nbgrader.preprocessors import NbGraderPreprocessor

from lessonkit.course import course_of
from lessonkit.exercises.variation import variation_in
from lessonkit.grading.repair.reading import OURS, give_ids
from lessonkit.grading.repair.released import Released, ReleasedCell, defined, label, plain, unanswered, varied
from lessonkit.grading.submission.records import grading_folder
from lessonkit.grading.submission.variations import variations_in
from lessonkit.mimetype import VERDICT

WRITTEN_BY_GRADING = ("unreadable", "placeholder", "repairs", "flags")
NOT_EXECUTED = {"skip-execution", "raises-exception"}


class Repair(NbGraderPreprocessor):
    """The first step of sanitising: from here on, a notebook has each of the assignment's cells exactly once."""

    def preprocess(self, nb: NotebookNode, resources: Any) -> tuple[NotebookNode, Any]:
        where, read_as = resources["nbgrader"], resources.get(OURS) or {}
        notes, reason, signs = list(read_as.get("notes", ())), read_as.get("unreadable"), []
        if reason is None:
            released = Released.load(where["db_url"], where["notebook"], where["assignment"], read_as.get("release"))
            # nbgrader works in the course's folder.
            given = variations_in(grading_folder(Path(), where["assignment"])).of(where["student"])
            if given:
                released = varied(released, course_of(self.config), given)
            if belongs(nb, released):
                signs = signs_of_tampering(nb, released)
                notes += repair(nb, released)
            else:
                reason = _foreign(nb, where["db_url"], released)
                nb = unanswered(reason, released)
        before = nb.metadata.get(OURS)
        ours = {k: v for k, v in before.items() if k not in WRITTEN_BY_GRADING} if isinstance(before, dict) else {}
        said = {"unreadable": reason, "repairs": notes, "flags": signs}
        ours |= {key: value for key, value in said.items() if value}
        if ours or before is not None:
            nb.metadata[OURS] = ours
        for sentence in (*notes, *signs):
            self.log.warning("%s: %s", where["student"], sentence)
        return nb, resources


# ------------------------------------------------------------------------------------------- whose cell is it: matching


@dataclass(eq=False)
class _Piece:
    """A cell of a submission, and which of the released cells it is; None for one that the learner added."""

    node: NotebookNode
    given: ReleasedCell | None = None
    how: str = ""  # it was recognised, if not by its name

    @property
    def defined(self) -> frozenset[str]:
        """The names that its code defines, also if it has become a text. A text that quotes code defines nothing."""
        quotes = self.node.cell_type == "markdown" and "```" in self.node.source
        return frozenset() if quotes else defined(self.node.source)

    @property
    def written(self) -> bool:
        """Whether it holds more than what was released."""
        return bool(self.node.source.strip()) and not (self.given and self.given.untouched(self.node.source))

    @property
    def answers(self) -> bool:
        """Whether it is written, and defines what it should."""
        return self.written and not (self.given and self.given.names and not self.given.names & self.defined)

    @property
    def moves(self) -> bool:
        """Whether it goes where the release has it: given cells do, what the learner wrote and texts stay."""
        return bool(self.given and self.given.name and not self.given.is_answer)


def belongs(notebook: NotebookNode, released: Released) -> bool:
    """Whether the notebook holds an answer or a check of this assignment, whatever has become of it."""
    return any(piece.given and (piece.given.is_check or piece.given.solution) for piece in _pieces(notebook, released))


def _pieces(notebook: NotebookNode, released: Released) -> list[_Piece]:
    pieces = [_Piece(node) for node in notebook.cells]
    _recognise(pieces, released)
    return pieces


def _recognise(pieces: Sequence[_Piece], released: Released) -> None:
    """Say of each cell what it is, the surest sign first; several may be the same one."""
    by_name = {cell.name: cell for cell in released.cells}
    answers = frozenset().union(*(cell.names for cell in released.cells))

    def is_another(piece: _Piece, given: ReleasedCell) -> bool:
        """A name or an id can be copied with its cell; what the code defines knows better."""
        return bool(given.names and piece.defined & answers and not piece.defined & given.names)

    for piece in pieces:
        given = by_name.get(label(piece.node) or "")
        if piece.given is None and given and not is_another(piece, given):
            piece.given = given
    signs: dict[str, Callable[[_Piece, ReleasedCell], bool]] = {
        "by its id": lambda piece, given: piece.node.id == given.name and not is_another(piece, given),
        "by what it defines": lambda piece, given: bool(given.names & piece.defined),
        "by its text": lambda piece, given: given.untouched(piece.node.source) and bool(given.source.strip()),
    }
    for how, sign in signs.items():
        for given in _open(pieces, released):
            found = [piece for piece in pieces if piece.given is None and sign(piece, given)]
            found = [piece for piece in found if piece.node.cell_type == given.cell_type] or found
            for piece in found if given.is_answer else found[:1]:
                piece.given, piece.how = given, how
    for piece in pieces:  # a copy of the stub below the answer would undo it
        if piece.given is None and piece.defined & answers:
            piece.given = next((g for g in released.cells if g.names and g.untouched(piece.node.source)), None)


def _open(pieces: Sequence[_Piece], released: Released) -> list[ReleasedCell]:
    """The missing cells, and the answers of which only the stub is there."""
    there = {piece.given for piece in pieces if piece.given and (not piece.given.solution or piece.written)}
    return [cell for cell in released.outline if cell not in there]


def _place(pieces: Sequence[_Piece], released: Released, given: ReleasedCell) -> int:
    """Where a cell belongs: after what stands before it in the release; a check also after the answer's helpers."""
    at = {piece.given: i for i, piece in reversed([*enumerate(pieces)])}
    before = released.outline[: released.outline.index(given)]
    place = next((at[cell] + 1 for cell in reversed(before) if cell in at), 0)
    while given.is_check and place < len(pieces) and pieces[place].given is None:
        place += 1
    return place


# ------------------------------------------------------------------------------------------------------------ tampering


def signs_of_tampering(notebook: NotebookNode, released: Released) -> list[str]:
    """What in a submission, as it came, is not as a learner leaves it by accident: a short sentence for each.

    Nothing of it has an effect: nbgrader restores given cells, points come from the gradebook, outputs are cleared.
    """
    signs = []
    ours = notebook.metadata.get(OURS)
    forged = [key for key in WRITTEN_BY_GRADING if isinstance(ours, dict) and key in ours]
    if forged:
        signs.append(f"the notebook's metadata held what only grading writes: {', '.join(forged)}")
    for piece in _pieces(notebook, released):
        given = piece.given
        if given is None or not given.name:
            continue
        what = f"the {'check' if given.is_check else 'given'} cell `{given.name}`"
        if given.is_check and (asked := variation_in(piece.node.source)) != variation_in(given.source):
            which = f"the variation “{asked[:64]}”" if asked else "no variation"
            signs.append(f"{what} asks {which}, as somebody else's does")
        elif given.locked and not given.untouched(piece.node.source):
            signs.append(f"{what} was edited")
        elif given.shown != given.source and plain(piece.node.source) == plain(given.source):
            signs.append(f"{what} came with its hidden tests")
        signs += [f"the cell `{given.name}` {change}" for change in _changes(piece.node, given)]
        if given.is_check and (claim := _claim(piece.node, given)):
            signs.append(f"{what} came with a stored verdict of {claim}")
    return list(dict.fromkeys(signs))


def _changes(node: NotebookNode, given: ReleasedCell) -> Iterator[str]:
    """How the values in a cell's metadata differ from the released ones, of those that have the right type."""
    meta = node.metadata.get("nbgrader")
    if not isinstance(meta, dict):
        return
    points = meta.get("points")
    if given.points is not None and type(points) in (int, float) and points != given.points:
        yield f"said that it is worth {points:g} points; it is worth {given.points:g}"
    for key in ("grade", "solution", "locked", "task"):
        if isinstance(meta.get(key), bool) and meta[key] != getattr(given, key):
            yield f"said {key}={meta[key]}; it was released with {key}={getattr(given, key)}"


def _claim(node: NotebookNode, given: ReleasedCell) -> str | None:
    """What a stored verdict claims that no check of this cell can have said."""
    for output in node.get("outputs", []):
        verdict = output.get("data", {}).get(VERDICT)
        if not isinstance(verdict, dict):
            continue
        points, exercise = verdict.get("points"), verdict.get("exercise")
        if isinstance(exercise, str) and not given.name.endswith(exercise):
            return f"another exercise ({exercise[:64]})"
        if isinstance(points, int | float) and given.points and not 0 <= points <= given.points:
            return f"{points:g} of {given.points:g} points"
    return None


# ------------------------------------------------------------------------------------------------------------ repairing


def repair(notebook: NotebookNode, released: Released) -> list[str]:
    """Bring a valid notebook to the released cells, once each and each check after its answer, in place.

    Returns what was done, a sentence each; empty if the notebook was in order.
    """
    notes: list[str] = []
    pieces = _keep_edits(_pieces(notebook, released), notes)
    _recognise(pieces, released)
    _find_written_answers(pieces, released)
    for given in released.cells:
        _keep_one(pieces, given, notes)
    for piece in pieces:
        _restore(piece, notes)
    _put_back(pieces, released, notes)
    notebook.cells = [piece.node for piece in _in_order(pieces, released, notes)]
    give_ids(sorted(notebook.cells, key=lambda cell: cell.id != label(cell)))
    _restore_kernel(notebook, released, notes)
    return list(dict.fromkeys(notes))


def _keep_edits(pieces: Sequence[_Piece], notes: list[str]) -> list[_Piece]:
    """What a learner wrote into a given code cell, which nbgrader will restore, gets a cell of its own beside it."""
    out = []
    for piece in pieces:
        out.append(piece)
        given, source = piece.given, piece.node.source
        if given is None or not (given.locked and given.cell_type == "code" and piece.written):
            continue
        if given.is_check and not piece.defined:
            continue
        piece.node.source = given.source
        out.insert(len(out) - given.is_check, _Piece(new_code_cell(source, id="theirs")))
        notes.append(f"code that was written into the given cell `{given.name}` was kept in a cell beside it")
    return out


def _find_written_answers(pieces: Sequence[_Piece], released: Released) -> None:
    """Take a text of the learner's own for a written answer that is missing. A person marks it, and will see."""
    if released.outline == released.cells:
        return  # given texts cannot be told from the learner's
    for given in _open(pieces, released):
        if not given.solution or given.is_answer:
            continue
        texts = [p for p in pieces if p.given is None and p.node.cell_type != "code" and p.written]
        after = pieces[_place(pieces, released, given) :]
        end = next((i for i, piece in enumerate(after) if piece.given not in (None, given)), len(after))
        near = [piece for piece in after[:end] if piece in texts]
        if any(piece.given is given for piece in pieces):
            texts = near  # what stands elsewhere may be a note
        for piece in sorted(near or texts, key=lambda piece: len(piece.node.source))[-1:]:
            piece.given, piece.how = given, "by its place"


def _keep_one(pieces: list[_Piece], given: ReleasedCell, notes: list[str]) -> None:
    """Of all cells that are this one let one be it. Others stay if they hold anything of their own."""
    mine = [piece for piece in pieces if piece.given is given]
    if not mine:
        return
    if given.solution:
        keep = sorted(mine, key=lambda piece: (piece.answers, piece.written))[-1]
    else:
        keep = next((piece for piece in mine if piece.node.id == given.name), mine[0])
    dropped = {piece for piece in mine if piece is not keep and not piece.written}
    pieces[:] = [piece for piece in pieces if piece not in dropped]
    for piece in mine:
        if piece is not keep:
            piece.given = None
            piece.node.metadata.pop("nbgrader", None)
    if len(mine) > 1:
        times = "twice" if len(mine) == 2 else f"{len(mine)} times"
        kept = "one was kept"
        if given.names and keep.answers:
            kept = f"the last one that defines {' and '.join(sorted(given.names))} was kept as the answer"
        notes.append(f"the cell `{given.name}` was there {times}: {kept}")
    elif keep.how:
        notes.append(f"the cell `{given.name}` had another name, or none: recognised {keep.how}")


def _restore(piece: _Piece, notes: list[str]) -> None:
    """Give a cell the type and the metadata of the released one; others have none of nbgrader's."""
    node, given = piece.node, piece.given
    if given is None or not given.name:
        meta = node.metadata.pop("nbgrader", None)
        if isinstance(meta, dict) and (meta.get("grade") or meta.get("solution") or meta.get("locked")):
            notes.append("a cell of the learner's own was marked as one of the assignment's: it is not graded")
        return
    if node.cell_type != given.cell_type:
        notes.append(f"the cell `{given.name}` was changed from {given.cell_type} to {node.cell_type}: changed back")
        piece.node = given.node(node.source)
        return
    tags = node.metadata.get("tags", [])
    if NOT_EXECUTED & set(tags):
        node.metadata["tags"] = [tag for tag in tags if tag not in NOT_EXECUTED]
        notes.append(f"the cell `{given.name}` was tagged not to be executed: the tag was removed")
    meta, right = node.metadata.get("nbgrader"), given.metadata()
    if not isinstance(meta, dict) or {**meta, "checksum": ""} != {**right, "checksum": ""}:
        node.metadata["nbgrader"] = NotebookNode(right)
        if not piece.how:
            notes.append(f"the cell `{given.name}` had other metadata than it was released with: restored")


def _put_back(pieces: list[_Piece], released: Released, notes: list[str]) -> None:
    """Add the cells that are missing."""
    for given in released.cells:
        mine = next((piece for piece in pieces if piece.given is given), None)
        if mine and (mine.written or not given.names):
            continue
        elsewhere = [p.given.name for p in pieces if p.given not in (None, given) and given.names & p.defined]
        source = given.source
        if elsewhere:  # the stub would overwrite it
            source = f"# {', '.join(sorted(given.names))}: written in the cell `{elsewhere[-1]}`."
            notes.append(f"the answer to `{given.name}` stood in the cell `{elsewhere[-1]}`")
        elif mine:
            continue
        else:
            notes.append(f"the cell `{given.name}` was missing: put back as it was released")
        if mine:
            mine.node.source = source
        else:
            pieces.insert(_place(pieces, released, given), _Piece(given.node(source), given, how="put back"))


def _in_order(pieces: Sequence[_Piece], released: Released, notes: list[str]) -> list[_Piece]:
    """The cells, with those that move in the release's order: a check after its answer, setups before every answer."""
    stay = [piece for piece in pieces if not piece.moves]
    gaps: list[list[_Piece]] = [[] for _ in range(len(stay) + 1)]  # what comes before each of those, and at the end
    answers = {piece.given: i for i, piece in enumerate(stay) if piece.given}
    lowest = {True: 0, False: 0}
    for at, given in enumerate(released.cells):
        if given.is_answer:
            continue
        piece = next(piece for piece in pieces if piece.given is given)
        following = [answers[cell] for cell in released.cells[at + 1 :] if cell in answers]
        first = max([lowest[given.is_setup], *(answers[cell] + 1 for cell in released.cells[:at] if cell in answers)])
        if given.is_setup:  # answers build on it: better too early than too late
            last = min(following, default=len(stay))
            first = min(first, last)
        else:
            last = min((i for i in following if i >= first), default=len(stay))
        place = sum(not other.moves for other in pieces[: pieces.index(piece)])
        if not first <= place <= last:
            place = min(max(_place(stay, released, given), first), last)
            if piece.how != "put back":
                notes.append(f"the cell `{given.name}` was moved: put back where the release has it")
        gaps[place].append(piece)
        lowest[given.is_setup] = max(lowest[given.is_setup], place)
    return [piece for gap, after in zip(gaps, [*([p] for p in stay), []], strict=True) for piece in (*gap, *after)]


def _restore_kernel(notebook: NotebookNode, released: Released, notes: list[str]) -> None:
    """nbgrader restores the kernelspec, but neither says so nor restores the language of the cells."""
    meta, language = notebook.metadata, released.kernelspec.get("language", "python")
    said = meta.get("kernelspec", {}).get("language", language), meta.get("language_info", {}).get("name", language)
    other = [name for name in said if name not in (language, "ipython")]
    if other:
        notes.append(f"the notebook was set to another language ({str(other[0])[:20]}): set to {language}")
        meta["kernelspec"] = NotebookNode(released.kernelspec)
        meta.pop("language_info", None)  # execution writes it anew


def _foreign(notebook: NotebookNode, db_url: str, released: Released) -> str:
    """Why a notebook with none of the assignment's cells is not graded."""
    labels = set(filter(None, map(label, notebook.cells)))
    with Gradebook(db_url) as gradebook:
        for assignment in gradebook.assignments:
            for other in assignment.notebooks:
                if labels & {cell.name for cell in (*other.grade_cells, *other.solution_cells)}:
                    return f"this is the notebook {other.name} of assignment {assignment.name}, handed in by mistake"
    return f"the submitted notebook holds none of the cells of {released.notebook}: is it another one?"
