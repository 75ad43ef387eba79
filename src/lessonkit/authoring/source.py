"""Read a notebook's text source and expand its shorthand into nbgrader's metadata."""

import ast
import hashlib
import io
import os
import re
import textwrap
import tokenize
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

from commandkit.commands import typed
from commandkit.errors import CommandError, require_extra
from lessonkit.authoring import numbering
from lessonkit.authoring.numbering import Place
from lessonkit.authoring.references import Reference, cited
from lessonkit.course import Course, Lesson, hidden_seeds

with require_extra(typed("build"), "dev"):
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
FOR_TESTS = ("erratum", "teaches")  # for the course's own tests and tables. The notebook does not keep it
CAPTION = "caption"  # the tag of the text below a figure
FOLDED = "hide-input"  # a cell's tag: the web book folds it
OF_WRITTEN = ("points", "minutes", "difficulty")
KNOWN = {*SHORTHAND, *FOR_TESTS, *OF_WRITTEN, "tags", "jupyter", "slideshow", "editable", "deletable"}


# What the build puts its own text in the place of.
MARKERS = re.compile(r"^ *### (BEGIN|END) SOLUTION\n?", re.MULTILINE)
SOLUTION = re.compile(r"^( *)\.\.\.  # solution$", re.MULTILINE)
TABLE = "{exercises}"
LINK = re.compile(r"\]\(@([a-z0-9_]+)(/assignment)?\)")
WHOLE = """## Before you hand in: check all of it

Run the last cell. It runs this whole notebook once more, as it is saved and from the top, in a process of its own, so
that nothing depends on a cell that you have since deleted. It says what each check would give if you handed it in now,
and takes about as long as running all cells. The button *Validate* does the same."""
SLIDE = "slide"  # `# %% [raw] slide`: a slide of the lecture's deck, which its notebook does not show
COUNTED = ("no question", "a question", "two questions", "three questions", "four questions", "five questions")


@dataclass(frozen=True)
class SlideText:
    """A slide as it is written. It stands before the cell `before` of the notebook."""

    text: str
    line: int
    before: int


@dataclass(frozen=True)
class Source:
    """One text source, expanded: the notebook without outputs, and the line of the source where each cell starts."""

    path: Path
    notebook: NotebookNode
    lines: tuple[int, ...]
    tree: ast.Module
    slides: tuple[SlideText, ...] = ()

    def where(self, cell: int, line: int = 0) -> str:
        """`path:line` of a cell's marker, or of a line of its text (from 1)."""
        return f"{self.path}:{self.lines[cell] + line}"


class SourceError(CommandError):
    """A source that the build does not understand; the message starts with file and line."""


@dataclass(frozen=True)
class Citable:
    """What the texts of a course may refer to: papers by key, figures and formulas by name."""

    references: Mapping[str, Reference] = field(default_factory=dict)
    places: Mapping[str, Place] = field(default_factory=dict)


def read(
    path: Path, shown: Path, course: Course, lesson: Lesson, assignment: bool, citable: Citable | None = None
) -> Source:
    """The source at `path`, which messages call `shown`, and which refers to what is `citable`. Raises SourceError.

    It is the `assignment` of the lesson, whose exercises give solutions, points and minutes, or its lecture, which may
    have no exercises. What the source leaves to the build is put in: numbers of lessons, solutions, the table of
    exercises, the lesson's own modules by their whole names.
    """
    text = course.source_text(lesson, path)
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
    expand = _Expansion(shown, course, lesson, assignment, citable or Citable())
    for cell, line in zip(cells, lines, strict=True):
        expand(cell, line)
    expand.finish()
    lines = tuple(expand.lines)
    if expand.cells[0].cell_type == "markdown":
        said = f"<!-- Built from {shown.as_posix()}: edit that file, not this one. -->"
        expand.cells[0].source = f"{said}\n{expand.cells[0].source}"
    starts = (*expand.lines, *(lines[-1] for _ in expand.cells[len(expand.lines) :]))  # what the build adds at the end
    notebook = new_notebook(cells=_identified(expand.cells), metadata=NOTEBOOK_METADATA)
    return Source(shown, notebook, starts, tree, tuple(expand.slides))


class _Expansion:
    """Goes through the cells in order, because a check needs its exercise before it."""

    def __init__(self, shown: Path, course: Course, lesson: Lesson, assignment: bool, citable: Citable) -> None:
        self.shown, self.course, self.lesson, self.assignment = shown, course, lesson, assignment
        self.citable = citable
        self.cells: list[NotebookNode] = []
        self.lines: list[int] = []                                    # where each cell starts
        self.figures = 0                                              # that have a caption
        self.slides: list[SlideText] = []
        self.seen: dict[str, int] = {}                                # grade id -> its line
        self.unchecked: dict[str, tuple[int, Any]] = {}               # exercise -> its line and itself
        self.set: list[Any] = []                                      # exercises, in their order
        self.questions: list[dict[str, Any]] = []                     # to answer in words: points, minutes, difficulty
        self.line = 0

    def fail(self, problem: str, line: int | None = None) -> NoReturn:
        raise SourceError(f"{self.shown}:{line or self.line}: {problem}")

    def __call__(self, cell: NotebookNode, line: int) -> None:
        self.line = line
        given = {name: value for name, value in cell.metadata.items() if name != "lines_to_next_cell"}
        if given.get("title") == "locked":                            # `# %% locked` is a title to jupytext
            given["locked"] = given.pop("title") == "locked"
        kinds = [name for name in SHORTHAND if given.get(name)]
        unknown = given.keys() - KNOWN - ({"title"} if cell.cell_type == "raw" else set())
        if unknown or len(kinds) > 1 or (not {*OF_WRITTEN}.isdisjoint(given) and kinds != ["written"]):
            self.fail(
                f'not understood after # %%: {", ".join(sorted(unknown or given))}; a cell is one of exercise="name", '
                'check="name", written="name" points=2 minutes=10 difficulty=2, locked'
            )
        if cell.cell_type == "raw" and given == {"title": SLIDE} and not self.assignment:
            self.slides.append(SlideText(self._referred(cell), line, before=len(self.cells)))
            return
        if cell.cell_type not in ("code", "markdown"):
            self.fail(f"a {cell.cell_type} cell: write code, [markdown], or in a lecture [raw] slide")
        new_cell = new_code_cell if cell.cell_type == "code" else new_markdown_cell
        plain = {name: value for name, value in given.items() if name not in (*SHORTHAND, *FOR_TESTS, *OF_WRITTEN)}
        if FOLDED in plain.get("tags", []):
            _fold(plain)
        cell.source, caption = numbering.captioned(cell.source)
        new = new_cell(source=self._referred(cell), metadata=plain)
        if kinds:
            expand = getattr(self, f"_{kinds[0]}")
            expand(new, given[kinds[0]], given)
        elif re.search(r"### (BEGIN|END) (SOLUTION|HIDDEN TESTS)", cell.source):
            self.fail("a solution or hidden test outside an exercise, check or written cell would be released")
        self._append(new)
        if caption is not None:
            self.figures += 1
            words = numbering.caption(caption, Place("fig", self.lesson, self.figures))
            below = new_markdown_cell(source=words, metadata={"tags": [CAPTION]})
            below.source = self._referred(below)
            self._append(below)

    def _append(self, cell: NotebookNode) -> None:
        self.cells.append(cell)
        self.lines.append(self.line)

    def _referred(self, cell: NotebookNode) -> str:
        """The cell's text, with numbers and paths in the place of references to lessons."""
        if cell.cell_type == "code":
            return re.sub(r"(?<=[Ll]ecture )@\w+", lambda match: self._numbers(match[0]), cell.source)
        parts = re.split(r"(^```.*?^```|`[^`\n]+`)", cell.source, flags=re.DOTALL | re.MULTILINE)
        try:
            parts[::2] = [cited(part, self.citable.references) for part in parts[::2]]
            folder = os.path.dirname(self.lesson.lecture_notebook)
            up = f"{os.path.relpath(folder, os.path.dirname(self.lesson.assignment_notebook))}/".replace(os.sep, "/")
            known = self.citable.places
            parts[::2] = [
                numbering.referred(part, known, self.lesson, up if self.assignment else "") for part in parts[::2]
            ]
            text = "".join(part if i % 2 else self._numbers(LINK.sub(self._link, part)) for i, part in enumerate(parts))
            return numbering.numbered(text, known)
        except ValueError as error:
            self.fail(str(error))

    def _numbers(self, text: str) -> str:
        try:
            return self.course.referred(text)
        except ValueError as error:
            self.fail(str(error))

    def _link(self, match: re.Match[str]) -> str:
        lesson = next((lesson for lesson in self.course.lessons if lesson.name == match[1]), None)
        if lesson is None:
            self.fail(f"a link to @{match[1]}, which is no lesson")
        target = lesson.assignment_notebook if match[2] else lesson.lecture_notebook
        here = self.lesson.assignment_notebook if self.assignment else self.lesson.lecture_notebook
        return f"]({os.path.relpath(target, os.path.dirname(here)).replace(os.sep, '/')})"

    def finish(self) -> None:
        for name, (line, _) in self.unchecked.items():
            self.fail(f'exercise "{name}" has no check: add # %% check="{name}" after it', line)
        if not self.assignment:  # a lecture begins with its imports, which nobody reads first
            setup = next((cell for cell in self.cells if cell.cell_type == "code"), None)
            if setup is not None and re.search(r"^\s*(?:import|from)\s", setup.source, re.MULTILINE):
                _fold(setup.metadata)
        for cell in self.cells:
            if cell.cell_type == "markdown" and TABLE in cell.source:
                cell.source = cell.source.replace(TABLE, self._table())
        if self.set:
            call = f"from {self._package()} import check_all\n\ncheck_all()"
            self.cells += [new_markdown_cell(WHOLE), new_code_cell(call)]

    def _package(self) -> str:
        """Where the notebook has its `check` from."""
        imported = re.compile(r"^\s*from (\w+) import [^\n]*\bcheck\b", re.MULTILINE)
        found = next(filter(None, (imported.search(cell.source) for cell in self.cells)), None)
        return found[1] if found else self.course.package

    def _table(self) -> str:
        """What there is to do, in what time and for how many points."""

        def dots(difficulty: int) -> str:
            return "●" * difficulty + "○" * (3 - difficulty)

        rows = ["| | exercise | difficulty | minutes | points |", "|---|---|---|---|---|"]
        for number, each in enumerate((e for e in self.set if not e.extra), start=1):
            rows.append(f"| {number} | `{each.name}` | {dots(each.difficulty)} | {each.minutes} | {each.out_of:g} |")
        if self.questions:
            minutes, points = (sum(question[what] for question in self.questions) for what in ("minutes", "points"))
            hardest = max(question["difficulty"] for question in self.questions)
            what = f"{COUNTED[len(self.questions)]} to answer in words"
            rows.append(f"| | {what} | {dots(hardest)} | {minutes} | {points:g} |")
        for each in (e for e in self.set if e.extra):
            worth = f"{each.minutes} | {each.out_of:g} extra"
            rows.append(f"| + | `{each.name}`, an extension | {dots(each.difficulty)} | {worth} |")
        return "\n".join(rows)

    def _exercise(self, cell: NotebookNode, name: str, given: dict[str, Any]) -> None:
        self._needs_code(cell)
        exercise = self._registered(name)
        places, bodies = SOLUTION.findall(cell.source), iter(exercise.solution_bodies)
        if len(places) != len(exercise.solution_bodies):
            lines = "one line" if len(exercise.solution_bodies) == 1 else f"{len(exercise.solution_bodies)} lines"
            self.fail(f'exercise "{name}" needs {lines} `...  # solution`, where the exercise\'s own solution goes')

        def answer(match: re.Match[str]) -> str:
            return textwrap.indent(f"### BEGIN SOLUTION\n{next(bodies)}\n### END SOLUTION", match[1])

        cell.source = SOLUTION.sub(answer, cell.source)
        self._grade(cell, name, solution=True)
        self.set.append(exercise)
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
        for what in OF_WRITTEN:
            value = given.get(what)
            if isinstance(value, bool) or not isinstance(value, int | float) or value < 0:
                example = f'# %% [markdown] written="{name}" points=2 minutes=10 difficulty=2'
                self.fail(f'written cell "{name}" needs its {what}: {example}')
        self.questions.append(given)
        # Without markers nbgrader would clear the whole cell.
        self._needs_solution(cell, f'written cell "{name}"')
        self._grade(cell, name, solution=True, points=given["points"])

    def _locked(self, cell: NotebookNode, value: Any, given: dict[str, Any]) -> None:
        if value is not True:
            self.fail("locked takes no value: write # %% locked")
        # The text names the cell, so that the id outlives edits elsewhere.
        name = f"given-{_digest(cell)}"
        self._grade(cell, name + "-2" * (name in self.seen), locked=True)

    def _registered(self, name: str) -> Any:
        if not self.assignment:
            self.fail(f'exercise "{name}" in a lecture: exercises belong in assignment.py')
        known = {exercise.name: exercise for exercise in self.course.exercises_of(self.lesson.assignment)}
        if name not in known:
            self.fail(f'exercise "{name}" is not one of {self.lesson.name}: {", ".join(known) or "it has none"}')
        return known[name]

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


def _fold(metadata: dict[str, Any]) -> None:
    """Fold a cell's code, in the web book and in JupyterLab."""
    tags = metadata.get("tags", [])
    metadata["tags"] = tags if FOLDED in tags else [*tags, FOLDED]
    metadata["jupyter"] = {"source_hidden": True}


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
