"""A course's folder and what is built there: a source, its notebook, and whether the one is still the other's."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from tqdm import tqdm

from commandkit.commands import typed
from commandkit.errors import CommandError, require_extra
from commandkit.files import write_whole
from lessonkit.authoring import numbering, references
from lessonkit.authoring.source import Citable, Source, read
from lessonkit.course import Course, Lesson, course_of, folder_of

with require_extra(typed("build"), "dev"):
    import nbformat
    from nbformat.notebooknode import NotebookNode

    from lessonkit.authoring.execute import execute, full_marks, is_check, outputs_hash
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

    def lecture(self, lesson: Lesson) -> "Target":
        return Target(self, lesson, is_assignment=False)

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
