"""`attncourse build`: make the notebooks from src/notebooks, or say which are not what their source builds to."""

import argparse
import hashlib
import os
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from tqdm import tqdm

from attncourse._needs import CommandError, needs
from attncourse.authoring.source import Exercises, Source, read

with needs("attncourse build", "dev"):
    import nbformat
    from nbformat.notebooknode import NotebookNode

    from attncourse.authoring.execute import execute, full_marks, is_check, outputs_hash
    from attncourse.authoring.generate import generate, holds_work
    from attncourse.authoring.imports import files_imported


@dataclass(frozen=True)
class Course:
    """A course's folder, with src/notebooks in it. `exercises` gives the points of the solutions' exercises."""

    root: Path
    exercises: Exercises

    @property
    def package(self) -> Path:
        return self.root / "src" / "attncourse"

    def targets(self) -> list["Target"]:
        """A target for each text source: the solutions first, because they are quick."""
        sources = self.root / "src" / "notebooks"
        return [
            Target(self, path.relative_to(self.root))
            for folder in ("solutions", "lectures")
            for path in sorted((sources / folder).glob("*.py"))
        ]


@dataclass(frozen=True)
class Target:
    """One text source and the notebook it builds to. Paths are relative to the course's root."""

    course: Course
    path: Path

    @property
    def name(self) -> str:
        return self.path.stem

    @property
    def assignment(self) -> str | None:
        """`a03` for a solution, None for a lecture."""
        return self.name.partition("_")[0] if self.path.parent.name == "solutions" else None

    @property
    def built(self) -> Path:
        return Path("solutions", self.assignment, f"{self.name}.ipynb") if self.assignment else Path(
            "lectures", f"{self.name}.ipynb"
        )

    @cached_property
    def source(self) -> Source:
        exercises = self.course.exercises if self.assignment else None
        return read(self.course.root / self.path, self.path, exercises, self.assignment)

    def built_from(self) -> dict[str, str]:
        """The package's files that the notebook imports, and a hash of each: a change makes its outputs stale."""
        also: tuple[str, ...] = ()
        if self.assignment:
            # The core finds an assignment's module by its name, so that no import of it can be read.
            modules = (self.course.package / "exercises").glob(f"{self.assignment}_*.py")
            also = "attncourse.exercises", *(f"attncourse.exercises.{module.stem}" for module in modules)
        return {
            file.relative_to(self.course.package.parent).as_posix(): _hash(file)
            for file in files_imported(self.source.tree, self.course.package, also)
        }

    def drift(self) -> str | None:
        """The first way in which the built notebook is not what its source builds to; None if it is."""
        path = self.course.root / self.built
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
        record = metadata.pop("attncourse", {})
        if metadata != self.source.notebook.metadata:
            return "has other metadata than a built notebook"
        ran_with, now = record.get("built_from", {}), self.built_from()
        changed = sorted(file for file in ran_with.keys() | now.keys() if ran_with.get(file) != now.get(file))
        if changed:
            return f"is stale: {', '.join(changed)} changed after it ran"
        return None

    def build(self, bar: tqdm) -> None:
        """Execute and write the notebook. Nothing is written unless all of it succeeds."""
        folder = self.course.root / self.built.parent
        folder.mkdir(parents=True, exist_ok=True)
        built_from = self.built_from()
        notebook = execute(self.source, folder, self.course.package, on_cell=bar.update)
        notebook.metadata["attncourse"] = {"built_from": built_from, "outputs": outputs_hash(notebook)}
        nbformat.validate(notebook)
        _write(self.course.root / self.built, (nbformat.writes(notebook) + "\n").encode())


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
    if notebook.metadata.get("attncourse", {}).get("outputs") != outputs_hash(notebook):
        return "has outputs that the build did not make"
    return None


def drifts(course: Course, targets: Sequence[Target]) -> Iterator[tuple[Path, str, str]]:
    """Each notebook that is not what its source builds to: its path, what is wrong, the command that mends it."""
    for target in targets:
        mend = f"attncourse build {target.name}"
        if problem := target.drift():
            # The assignment is generated from this notebook: whatever it holds now, the same command makes it anew.
            yield target.built, problem, mend
        elif target.assignment:
            for path in _stale_files(course, target.assignment):
                problem = "differs from its generation" if (course.root / path).exists() else "is missing"
                yield path, problem, mend


def orphans(course: Course) -> Iterator[tuple[Path, str, str]]:
    """Notebooks that have no source, as `drifts` gives them. They are the author's to delete."""
    targets = course.targets()
    known = {target.built for target in targets}
    known |= {Path("assignments", *target.built.parts[1:]) for target in targets if target.assignment}
    for folder in ("lectures", "solutions", "assignments"):
        for path in sorted((course.root / folder).rglob("*.ipynb")):
            relative = path.relative_to(course.root)
            if relative not in known and not any(part.startswith(".") for part in relative.parts):
                yield relative, "has no source in src/notebooks", f"rm {relative}"


def _stale_files(course: Course, assignment: str) -> dict[Path, bytes]:
    """The files of assignments/aNN that are not what nbgrader generates, with what they should hold."""
    folder = Path("assignments", assignment)
    generated = {folder / name: data for name, data in generate(course.root, assignment).items()}
    return {path: data for path, data in generated.items() if not _holds(course.root / path, data)}


def build(course: Course, targets: Sequence[Target], force: bool = False) -> int:
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
            written += _release(course, target.assignment, force)
    return written


def _release(course: Course, assignment: str, force: bool) -> int:
    stale = _stale_files(course, assignment)
    for path in stale:
        existing = course.root / path
        if path.suffix == ".ipynb" and existing.exists() and not force and holds_work(nbformat.read(existing, 4)):
            raise CommandError(
                f"{path} holds somebody's work: copy it elsewhere, then run attncourse build --force {assignment}"
            )
    for path, data in stale.items():
        _write(course.root / path, data)
        print(path, flush=True)
    return len(stale)


def _write(path: Path, data: bytes) -> None:
    """Write a file whole or not at all: whoever reads it, or stops us, finds the old one or the new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, scratch = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        os.chmod(scratch, 0o644)                                      # mkstemp's files are private
        os.replace(scratch, path)
    except BaseException:
        os.unlink(scratch)
        raise


def _holds(path: Path, data: bytes) -> bool:
    # A clone on Windows may have its line ends converted.
    return path.is_file() and path.read_bytes().replace(b"\r\n", b"\n") == data.replace(b"\r\n", b"\n")


def _hash(path: Path) -> str:
    return hashlib.sha256(path.read_bytes().replace(b"\r\n", b"\n")).hexdigest()[:16]


def choose(course: Course, names: Sequence[str]) -> list[Target]:
    """The targets that `names` mean: `03_cross_attention`, `03`, `a03` or a path; all of them for no name."""
    targets = course.targets()
    chosen = []
    for name in names:
        stem = Path(name).stem
        found = [target for target in targets if stem in (target.name, target.name.partition("_")[0])]
        if not found:
            known = ", ".join(target.name for target in targets) or "none, src/notebooks is empty"
            raise CommandError(f"no notebook {name!r}; the notebooks are: {known}")
        chosen += found
    return chosen if names else targets


def open_course(root: Path) -> Course:
    """The course at `root` with the package's exercises. CommandError if there is none, or this package is another."""
    if not (root / "src" / "notebooks").is_dir():
        raise CommandError(
            f"no course here (looked for src/notebooks in {root}): run it in the folder that holds pyproject.toml"
        )
    with needs("attncourse build", "dev"):
        from attncourse import exercises
    course = Course(root, exercises)
    ours = Path(exercises.__file__).resolve().parent.parent
    if ours != course.package.resolve():
        raise CommandError(f"this attncourse is the one in {ours}, not this folder's: run pip install -e . here")
    return course


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("names", nargs="*", metavar="NAME", help="03_cross_attention, 03, a03 (default: all of them)")
    parser.add_argument("--check", action="store_true", help="execute nothing; list notebooks that are out of date")
    parser.add_argument("--force", action="store_true", help="execute all again; overwrite answers in assignments")


def main(args: argparse.Namespace) -> int:
    course = open_course(Path.cwd())
    targets = choose(course, args.names)
    if args.check:
        found = [*drifts(course, targets), *(orphans(course) if not args.names else [])]
        for path, problem, mend in found:
            print(f"{path} {problem}\n    mend: {mend}")
        if not found:
            print(f"every notebook is what its source builds to (sources: {len(targets)})")
        return 1 if found else 0
    start = time.perf_counter()
    written = build(course, targets, args.force)
    print(f"sources: {len(targets)}, files written: {written}, seconds: {time.perf_counter() - start:.1f}")
    return 0
