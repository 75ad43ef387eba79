"""Read a notebook's text source and expand its shorthand into nbgrader's metadata."""

import ast
import hashlib
import io
import re
import tokenize
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn, Protocol

from attncourse._needs import CommandError, needs
from attncourse.exercises import hidden_seeds

with needs("attncourse build", "dev"):
    import jupytext
    from nbformat.notebooknode import NotebookNode
    from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

# The same on every machine: what a kernel reports names its Python's patch version.
NOTEBOOK_METADATA = {
    "kernelspec": {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"},
    "language_info": {
        "codemirror_mode": {"name": "ipython", "version": 3},
        "file_extension": ".py",
        "mimetype": "text/x-python",
        "name": "python",
        "nbconvert_exporter": "python",
        "pygments_lexer": "ipython3",
    },
}
SHORTHAND = ("exercise", "check", "written", "locked")
FOR_TESTS = ("erratum",)  # on a lecture's box: which of `attncourse.errata` it shows. The notebook does not keep it
KNOWN = {*SHORTHAND, *FOR_TESTS, "points", "tags", "jupyter", "slideshow", "editable", "deletable"}


class Exercises(Protocol):
    """Where points come from: `attncourse.exercises`, or a test's own."""

    def get(self, name: str) -> Any:
        """The exercise of that name (.out_of, .extra). LookupError, which lists the known names."""

    def of(self, assignment: str) -> Any:
        """The exercises of an assignment (.name), in order. LookupError if there is no such assignment."""


@dataclass(frozen=True)
class Source:
    """One text source, expanded: the notebook without outputs, and the line of the source where each cell starts."""

    path: Path
    notebook: NotebookNode
    lines: tuple[int, ...]
    tree: ast.Module

    def where(self, cell: int, line: int = 0) -> str:
        """`path:line` of a cell's marker, or of a line of its text (from 1)."""
        return f"{self.path}:{self.lines[cell] + line}"


class SourceError(CommandError):
    """A source that the build does not understand; the message starts with file and line."""


def read(path: Path, shown: Path, exercises: Exercises | None, assignment: str | None = None) -> Source:
    """The source at `path`, which messages call `shown`. Raises SourceError.

    `exercises` gives the points; None where the notebook may have no exercises (a lecture).
    Every exercise of the notebook must belong to `assignment`.
    """
    text = path.read_text(encoding="utf-8")
    try:
        tree = compile(text, str(shown), "exec", ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    except SyntaxError as error:
        raise SourceError(f"{shown}:{error.lineno}: {error.msg}") from None
    # A marker inside a string is no marker: ask the tokenizer, as jupytext does in its way.
    lines = tuple(
        token.start[0]
        for token in tokenize.generate_tokens(io.StringIO(text).readline)
        if token.type == tokenize.COMMENT and token.start[1] == 0 and re.match(r"# ?%%(\s|$)", token.string)
    )
    cells = jupytext.reads(text, fmt="py:percent").cells
    if len(cells) != len(lines):
        raise SourceError(f"{shown}:1: the first line must start a cell (# %%), and each cell must start with # %%")
    expand = _Expansion(shown, exercises, assignment)
    for cell, line in zip(cells, lines, strict=True):
        expand(cell, line)
    expand.finish()
    return Source(shown, new_notebook(cells=_identified(expand.cells), metadata=NOTEBOOK_METADATA), lines, tree)


class _Expansion:
    """Goes through the cells in order, because a check needs its exercise before it."""

    def __init__(self, shown: Path, exercises: Exercises | None, assignment: str | None) -> None:
        self.shown, self.exercises, self.assignment = shown, exercises, assignment
        self.cells: list[NotebookNode] = []
        self.seen: dict[str, int] = {}                                # grade id -> its line
        self.unchecked: dict[str, tuple[int, Any]] = {}               # exercise -> its line and itself
        self.line = 0

    def fail(self, problem: str, line: int | None = None) -> NoReturn:
        raise SourceError(f"{self.shown}:{line or self.line}: {problem}")

    def __call__(self, cell: NotebookNode, line: int) -> None:
        self.line = line
        given = {name: value for name, value in cell.metadata.items() if name != "lines_to_next_cell"}
        if given.get("title") == "locked":                            # `# %% locked` is a title to jupytext
            given["locked"] = given.pop("title") == "locked"
        kinds = [name for name in SHORTHAND if given.get(name)]
        unknown = given.keys() - KNOWN
        if unknown or len(kinds) > 1 or ("points" in given and kinds != ["written"]):
            self.fail(
                f'not understood after # %%: {", ".join(sorted(unknown or given))}; a cell is one of exercise="name", '
                'check="name", written="name" points=2, locked'
            )
        if cell.cell_type not in ("code", "markdown"):
            self.fail(f"a {cell.cell_type} cell: write code or [markdown]")
        new_cell = new_code_cell if cell.cell_type == "code" else new_markdown_cell
        plain = {name: value for name, value in given.items() if name not in (*SHORTHAND, *FOR_TESTS, "points")}
        new = new_cell(source=cell.source, metadata=plain)
        if kinds:
            expand = getattr(self, f"_{kinds[0]}")
            expand(new, given[kinds[0]], given)
        elif re.search(r"### (BEGIN|END) (SOLUTION|HIDDEN TESTS)", cell.source):
            self.fail("a solution or hidden test outside an exercise, check or written cell would be released")
        self.cells.append(new)

    def finish(self) -> None:
        for name, (line, _) in self.unchecked.items():
            self.fail(f'exercise "{name}" has no check: add # %% check="{name}" after it', line)

    def _exercise(self, cell: NotebookNode, name: str, given: dict[str, Any]) -> None:
        self._needs_code(cell)
        self._needs_solution(cell, f'exercise "{name}"')
        exercise = self._registered(name)
        self._grade(cell, name, solution=True)
        self.unchecked[name] = self.line, exercise

    def _check(self, cell: NotebookNode, name: str, given: dict[str, Any]) -> None:
        self._needs_code(cell)
        if f"check-{name}" in self.seen:
            self.fail(f'a second check of "{name}" (the first: line {self.seen[f"check-{name}"]})')
        if name not in self.unchecked:
            self.fail(f'check="{name}" without # %% exercise="{name}" before it')
        _, exercise = self.unchecked.pop(name)
        call = self._check_call(cell, name)
        cell.source += (
            f"\n### BEGIN HIDDEN TESTS\n{call.rstrip()[:-1]}, seeds={hidden_seeds(name)})\n### END HIDDEN TESTS"
        )
        self._grade(cell, f"check-{name}", locked=True, points=0 if exercise.extra else exercise.out_of)

    def _written(self, cell: NotebookNode, name: str, given: dict[str, Any]) -> None:
        points = given.get("points")
        if isinstance(points, bool) or not isinstance(points, int | float) or points < 0:
            self.fail(f'written cell "{name}" needs its points: # %% [markdown] written="{name}" points=2')
        # Without markers nbgrader would clear the whole cell.
        self._needs_solution(cell, f'written cell "{name}"')
        self._grade(cell, name, solution=True, points=points)

    def _locked(self, cell: NotebookNode, value: Any, given: dict[str, Any]) -> None:
        if value is not True:
            self.fail("locked takes no value: write # %% locked")
        # The text names the cell, so that the id outlives edits elsewhere.
        name = f"given-{_digest(cell)}"
        self._grade(cell, name + "-2" * (name in self.seen), locked=True)

    def _registered(self, name: str) -> Any:
        if self.exercises is None:
            self.fail(f'exercise "{name}" in a lecture: exercises belong in src/notebooks/solutions')
        try:
            exercise = self.exercises.get(name)
            if self.assignment and name not in [other.name for other in self.exercises.of(self.assignment)]:
                self.fail(f'exercise "{name}" is not one of {self.assignment}')
        except LookupError as error:
            self.fail(str(error.args[0]))
        return exercise

    def _needs_code(self, cell: NotebookNode) -> None:
        if cell.cell_type != "code":
            self.fail("an exercise or check is a code cell: no [markdown]")

    def _needs_solution(self, cell: NotebookNode, what: str) -> None:
        markers = re.findall(r"### (BEGIN|END) SOLUTION", cell.source)
        if not markers or markers != ["BEGIN", "END"] * (len(markers) // 2):
            self.fail(f"{what} needs its answer between ### BEGIN SOLUTION and ### END SOLUTION")

    def _check_call(self, cell: NotebookNode, name: str) -> str:
        """The text of the cell's last statement, which must be check("name", answer)."""
        body = ast.parse(cell.source).body
        match body[-1] if body else None:
            case ast.Expr(ast.Call(ast.Name("check"), [ast.Constant(value), _], []) as call) if value == name:
                return ast.get_source_segment(cell.source, call) or ""
        self.fail(f'a check cell ends with check("{name}", {name})')

    def _grade(
        self,
        cell: NotebookNode,
        grade_id: str,
        solution: bool = False,
        locked: bool = False,
        points: float | None = None,
    ) -> None:
        if not isinstance(grade_id, str) or not re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", grade_id):
            self.fail(f"{grade_id!r} is no name for a cell: at most 64 letters, digits, - and _")
        if grade_id in self.seen:
            self.fail(f'a second cell "{grade_id}" (the first: line {self.seen[grade_id]})')
        self.seen[grade_id] = self.line
        cell.metadata["nbgrader"] = {
            "schema_version": 3,
            "grade_id": grade_id,
            "grade": points is not None,
            "solution": solution,
            "locked": locked,
            "task": False,
        }
        if points is not None:
            cell.metadata["nbgrader"]["points"] = points


def _identified(cells: list[NotebookNode]) -> list[NotebookNode]:
    """Give each cell an id that an edit of another cell does not change: its grade id, or a hash of what it says."""
    times: Counter[str] = Counter()
    for cell in cells:
        if "nbgrader" in cell.metadata:
            cell.id = cell.metadata["nbgrader"]["grade_id"]
            continue
        digest = _digest(cell)
        times[digest] += 1
        cell.id = digest if times[digest] == 1 else f"{digest}-{times[digest]}"
    return cells


def _digest(cell: NotebookNode) -> str:
    return hashlib.sha256(f"{cell.cell_type}\n{cell.source}".encode()).hexdigest()[:12]
