"""`lessonkit build`: make the notebooks from the lessons' sources, or say which are not what their source builds to."""

import argparse
import hashlib
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from tqdm import tqdm

from commandkit.commands import typed
from commandkit.errors import CommandError, require_extra
from commandkit.files import write_whole
from lessonkit.authoring import numbering, pages, references
from lessonkit.authoring.source import Citable, Source, read
from lessonkit.course import Course, Lesson, course_of, folder_of

with require_extra(typed("build"), "dev"):
    import nbformat
    from nbformat.notebooknode import NotebookNode

    from lessonkit.authoring.execute import execute, full_marks, is_check, outputs_hash
    from lessonkit.authoring.generate import generate, holds_work
    from lessonkit.authoring.imports import files_imported


OURS = "lessonkit"  # the key of a notebook's metadata


@dataclass(frozen=True)
class Checkout:
    """A course's folder: its lessons lie below src/, and what is built of them beside it."""

    root: Path
    course: Course

    @cached_property
    def packages(self) -> dict[str, Path]:
        """Where the packages are that a notebook's outputs may depend on."""
        names = (*self.course.library, self.course.package, "lessonkit")
        here = {name: self.root / "src" / name for name in names}
        return {name: here[name] if here[name].is_dir() else folder_of(name) for name in names}

    @cached_property
    def references(self) -> dict[str, references.Reference]:
        """What the course cites."""
        path = self.root / "docs" / "references.bib"
        return references.read(path) if path.is_file() else {}

    @cached_property
    def citable(self) -> Citable:
        return Citable(self.references, numbering.places(self.course))

    def targets(self) -> list["Target"]:
        """A target for each text source: the assignments first, because they are quick."""
        return [
            Target(self, lesson, assignment)
            for assignment in (True, False)
            for lesson in self.course.lessons
            if (lesson.folder / f"{'assignment' if assignment else 'lecture'}.py").is_file()
        ]


@dataclass(frozen=True)
class Target:
    """One text source, a lesson's assignment or its lecture, and the notebook it builds to."""

    checkout: Checkout
    lesson: Lesson
    is_assignment: bool

    @property
    def name(self) -> str:
        return f"{self.lesson.assignment if self.is_assignment else self.lesson.number}_{self.lesson.name}"

    @property
    def assignment(self) -> str | None:
        """`a03`, or None for a lecture."""
        return self.lesson.assignment if self.is_assignment else None

    @property
    def path(self) -> Path:
        """The source, as seen from the course's folder."""
        path = self.lesson.folder / ("assignment.py" if self.is_assignment else "lecture.py")
        return path.resolve().relative_to(self.checkout.root.resolve())

    @property
    def built(self) -> Path:
        """The notebook, as seen from the course's folder."""
        if self.is_assignment:
            return Path("solutions", *Path(self.lesson.assignment_notebook).parts[1:])
        return Path(self.lesson.lecture_notebook)

    @cached_property
    def source(self) -> Source:
        path = self.checkout.root / self.path
        return read(
            path, self.path, self.checkout.course, self.lesson, self.is_assignment, self.checkout.citable
        )

    def built_from(self) -> dict[str, str]:
        """The packages' files that the notebook imports, and a hash of each: a change makes its outputs stale."""
        packages = self.checkout.packages
        also: tuple[str, ...] = ()
        if self.is_assignment:
            # `check` finds an exercise by its name, so that no import of it can be read.
            exercises = f"{self.checkout.course.package}.{self.lesson.module}.exercises"
            also = exercises, *(f"lessonkit.exercises.{module}" for module in ("judge", "observe", "verdict"))
        files = files_imported(self.source.tree, packages, also)
        return {
            file.relative_to(packages[name].parent).as_posix(): _hash(file)
            for file in files
            for name in packages
            if file.is_relative_to(packages[name])
        }

    def drift(self) -> str | None:
        """The first way in which the built notebook is not what its source builds to; None if it is."""
        path = self.checkout.root / self.built
        if not path.exists():
            return "is missing"
        try:
            notebook = nbformat.read(path, as_version=4)
        except (ValueError, nbformat.reader.NotJSONError) as error:
            return f"cannot be read ({type(error).__name__})"
        cells, expected = notebook.cells, self.source.notebook.cells
        for number, (cell, wanted) in enumerate(zip(cells, expected, strict=False)):
            if any(cell.get(key) != wanted[key] for key in ("id", "cell_type", "source", "metadata")):
                return f"differs at cell {number + 1} ({self.source.where(number)})"
        if len(cells) != len(expected):
            return f"has {len(cells)} cells, its source {len(expected)}"
        return self._drift_of_metadata(notebook) or _drift_of_outputs(notebook)

    def _drift_of_metadata(self, notebook: NotebookNode) -> str | None:
        metadata = {name: value for name, value in notebook.metadata.items() if name != "widgets"}
        record = metadata.pop(OURS, {})
        if metadata != self.source.notebook.metadata:
            return "has other metadata than a built notebook"
        ran_with, now = record.get("built_from", {}), self.built_from()
        changed = sorted(file for file in ran_with.keys() | now.keys() if ran_with.get(file) != now.get(file))
        if changed:
            return f"is stale: {', '.join(changed)} changed after it ran"
        return None

    def build(self, bar: tqdm) -> None:
        """Execute and write the notebook. Nothing is written unless all of it succeeds."""
        folder = self.checkout.root / self.built.parent
        folder.mkdir(parents=True, exist_ok=True)
        built_from = self.built_from()
        notebook = execute(self.source, folder, self.checkout.root, on_cell=bar.update)
        notebook.metadata[OURS] = {"built_from": built_from, "outputs": outputs_hash(notebook)}
        nbformat.validate(notebook)
        write_whole(self.checkout.root / self.built, nbformat.writes(notebook) + "\n")


def _drift_of_outputs(notebook: NotebookNode) -> str | None:
    count = 0
    for number, cell in enumerate(notebook.cells, start=1):
        if cell.cell_type != "code" or not cell.source.strip():
            continue
        count += 1
        if cell.execution_count != count:
            return f"was not executed in order (cell {number})"
        if any(o.output_type == "error" or o.get("name") == "stderr" for o in cell.outputs):
            return f"shows an error (cell {number})"
        if is_check(cell) and (problem := full_marks(cell)):
            return f"has a wrong answer (cell {number}): {problem}"
    if notebook.metadata.get(OURS, {}).get("outputs") != outputs_hash(notebook):
        return "has outputs that the build did not make"
    return None


def drifts(checkout: Checkout, targets: Sequence[Target]) -> Iterator[tuple[Path, str, str]]:
    """Each notebook that is not what its source builds to: its path, what is wrong, the command that mends it."""
    for target in targets:
        mend = typed(f"build {target.name}")
        if problem := target.drift():
            # The assignment is generated from this notebook: whatever it holds now, the same command makes it anew.
            yield target.built, problem, mend
        elif target.assignment:
            for path in _stale_files(checkout, target.assignment):
                problem = "differs from its generation" if (checkout.root / path).exists() else "is missing"
                yield path, problem, mend


def orphans(checkout: Checkout) -> Iterator[tuple[Path, str, str]]:
    """Notebooks that have no source, as `drifts` gives them. They are the author's to delete."""
    targets = checkout.targets()
    known = {target.built for target in targets}
    known |= {Path("assignments", *target.built.parts[1:]) for target in targets if target.assignment}
    for folder in ("lectures", "solutions", "assignments"):
        for path in sorted((checkout.root / folder).rglob("*.ipynb")):
            relative = path.relative_to(checkout.root)
            hidden = any(part.startswith(".") for part in relative.parts)
            if relative not in known and not hidden and not _is_exam(path):
                yield relative, "has no source among the lessons", f"rm {relative}"


def _is_exam(path: Path) -> bool:
    """Whether the command `exam` has made this notebook."""
    try:
        return "exam" in nbformat.read(path, as_version=4).metadata.get(OURS, {})
    except (OSError, ValueError):
        return False


def _stale_files(checkout: Checkout, assignment: str) -> dict[Path, bytes]:
    """The files of assignments/aNN that are not what nbgrader generates, with what they should hold."""
    folder = Path("assignments", assignment)
    generated = {folder / name: data for name, data in generate(checkout.root, assignment).items()}
    return {path: data for path, data in generated.items() if not _holds(checkout.root / path, data)}


def build(checkout: Checkout, targets: Sequence[Target], force: bool = False) -> int:
    """Build what is not as its source says, or with `force` everything; return how many files were written.

    Raises CommandError at the first that fails; the notebooks before it are done, and it keeps its old self.
    """
    for target in targets:
        _ = target.source  # a slip in the last one shows before the first runs
    written = 0
    for target in targets:
        if force or target.drift():
            start = time.perf_counter()
            cells = sum(bool(c.cell_type == "code" and c.source.strip()) for c in target.source.notebook.cells)
            with tqdm(total=cells, desc=str(target.built), unit="cell", leave=False, disable=None) as bar:
                target.build(bar)
            print(f"{target.built}  {time.perf_counter() - start:.1f} s", flush=True)
            written += 1
        if target.assignment:
            written += _release(checkout, target.assignment, force)
    return written


def _release(checkout: Checkout, assignment: str, force: bool) -> int:
    stale = _stale_files(checkout, assignment)
    for path in stale:
        existing = checkout.root / path
        if path.suffix == ".ipynb" and existing.exists() and not force and holds_work(nbformat.read(existing, 4)):
            raise CommandError(
                f"{path} holds somebody's work: copy it elsewhere, then run {typed('build')} --force {assignment}"
            )
    for path, data in stale.items():
        write_whole(checkout.root / path, data)
        print(path, flush=True)
    return len(stale)


def _holds(path: Path, data: bytes) -> bool:
    # A clone on Windows may have its line ends converted.
    return path.is_file() and path.read_bytes().replace(b"\r\n", b"\n") == data.replace(b"\r\n", b"\n")


def _hash(path: Path) -> str:
    return hashlib.sha256(path.read_bytes().replace(b"\r\n", b"\n")).hexdigest()[:16]


def choose(checkout: Checkout, names: Sequence[str]) -> list[Target]:
    """The targets that `names` mean: `03_cross_attention`, `03`, `a03` or a path; all of them for no name."""
    targets = checkout.targets()
    chosen = []
    for name in names:
        stem = Path(name).stem
        found = [target for target in targets if stem in (target.name, target.name.partition("_")[0])]
        if not found:
            known = ", ".join(target.name for target in targets) or "none, there is no lesson yet"
            raise CommandError(f"no notebook {name!r}; the notebooks are: {known}")
        chosen += found
    return chosen if names else targets


def open_course(root: Path) -> Checkout:
    """The course in the folder `root`. CommandError if there is none, or its installed package is another one's."""
    if not (root / "nbgrader_config.py").is_file():
        raise CommandError(
            f"no course here (looked for nbgrader_config.py in {root}): run it in the folder that holds pyproject.toml"
        )
    with require_extra(typed("build"), "dev"):
        from lessonkit.grading.gradebook.nbgrader_app import application
    course = course_of(application(root, "generate_assignment").config)
    if not course.folder.resolve().is_relative_to(root.resolve()):
        raise CommandError(
            f"the {course.package} that is installed is the one in {course.folder}, not this folder's: "
            "run pip install -e . here"
        )
    return Checkout(root, course)

EXAMPLES = """
PROGRAM build               # what is not as its source says
PROGRAM build a03           # one assignment; 03 is its lecture
PROGRAM build --check       # execute nothing, list what is out of date
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("names", nargs="*", metavar="NAME", help="03_cross_attention, 03, a03 (default: all of them)")
    parser.add_argument("--check", action="store_true", help="execute nothing; list notebooks that are out of date")
    parser.add_argument("--force", action="store_true", help="execute all again; overwrite answers in assignments")


def _pages(checkout: Checkout) -> Iterator[tuple[Path, str, str]]:
    for page, _ in pages.stale(checkout.root, checkout.course):
        yield page, "has tables that are not what the lessons say", typed("build")


def main(args: argparse.Namespace) -> int:
    checkout = open_course(Path.cwd())
    targets = choose(checkout, args.names)
    if args.check:
        found = [*drifts(checkout, targets), *(orphans(checkout) if not args.names else []), *_pages(checkout)]
        for path, problem, mend in found:
            print(f"{path} {problem}\n    mend: {mend}")
        if not found:
            print(f"every notebook is what its source builds to (sources: {len(targets)})")
        return 1 if found else 0
    start = time.perf_counter()
    written = build(checkout, targets, args.force)
    for page, text in pages.stale(checkout.root, checkout.course):
        write_whole(checkout.root / page, text)
        print(page)
        written += 1
    print(f"sources: {len(targets)}, files written: {written}, seconds: {time.perf_counter() - start:.1f}")
    return 0
