"""What an autograder takes with it: the course's packages, the released notebook, and what was decided here."""

from __future__ import annotations

import hashlib
import hmac
import json
import secrets
import tomllib
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from importlib.resources import files
from pathlib import Path

from commandkit.commands import typed
from commandkit.errors import CommandError, require_extra
from commandkit.files import locked, write_whole
from lessonkit.course import FOLDER, Course, course_of, folder_of, load
from lessonkit.kernel import UnknownName

with require_extra(typed("export"), "grading"):
    import nbformat

    from lessonkit.grading.engine.preprocessors import ExecuteOrReplay
    from lessonkit.grading.gradebook.nbgrader_app import application
    from lessonkit.grading.repair.released import Released
    from lessonkit.grading.sandbox.visible_package import packages_of
    from lessonkit.grading.submission.records import grading_folder

SETTINGS, NOTEBOOK = "autograder.json", "assignment.ipynb"  # their names in a bundle
SCRIPTS = files("lessonkit.grading.export") / "scripts"
NOT_TAKEN = ("assignment.py", "lecture.py")  # of a lesson's folder: they hold mark schemes, and no check needs them
EXTRA = "grading"  # of the course's pyproject.toml: what grading needs


@dataclass(frozen=True)
class Settings:
    """What an autograder goes by, as data: written where it is exported, read where it grades."""

    course: str  # the package of its lessons
    assignment: str
    notebook: str  # the name of its file
    secret: str  # of which a submission's seeds are made
    limits: dict[str, float]
    visibility: str = "visible"

    @property
    def lessons(self) -> Course:
        return load(self.course)

    def seeds(self, submission: str) -> dict[str, list[int]]:
        """Three seeds for each exercise: the same for the same submission, and not to be foreseen.

        Here students hand in as often as they like, and read the card each time: with the same numbers for everybody,
        an answer could be fitted to them.
        """
        return {
            exercise.name: [self._seed(f"{submission}/{exercise.name}/{number}") for number in range(3)]
            for exercise in self.lessons.exercises_of(self.assignment)
        }

    def _seed(self, of: str) -> int:
        digest = hmac.new(bytes.fromhex(self.secret), of.encode(), hashlib.sha256).digest()
        return int.from_bytes(digest[:16], "big")


def settings_of(root: Path, assignment: str, visibility: str = "visible") -> tuple[Settings, Path]:
    """What is decided for an assignment of the course in `root`, and its released notebook. CommandError."""
    app = application(root, "autograde", f"--assignment={assignment}")
    course = course_of(app.config)
    try:
        lesson = course.lesson(assignment)
    except UnknownName as error:
        raise CommandError(str(error)) from None
    if assignment not in course.assignments():
        raise CommandError(f"{assignment} has no exercises: there is nothing that an autograder could check")
    release = root / app.coursedir.format_path(app.coursedir.release_directory, ".", assignment)
    notebook = release / Path(lesson.assignment_notebook).name
    if not notebook.is_file():
        raise CommandError(f"{notebook} is missing: run `nbgrader generate_assignment {assignment} --force` first")
    limits = ExecuteOrReplay(parent=app).limits
    secret = _secret(grading_folder(root, assignment))
    return Settings(course.package, assignment, notebook.name, secret, limits, visibility), notebook


def _secret(folder: Path) -> str:
    """Drawn once for an assignment, and kept, so that an autograder that is made again gives the same marks."""
    path = folder / "export_secret"
    with locked(folder / "seeds.lock"):
        if not path.is_file():
            write_whole(path, secrets.token_hex(32), mode=0o600)
        return path.read_text().strip()


def contents(root: Path, settings: Settings, notebook: Path) -> Iterator[tuple[str, bytes]]:
    """The files of a bundle: (path in it, what it holds). CommandError where the course's folder lacks one."""
    yield SETTINGS, json.dumps(asdict(settings), indent=1).encode()
    yield NOTEBOOK, notebook.read_bytes()
    yield "requirements.txt", "".join(f"{line}\n" for line in _requirements(root)).encode()
    yield "constraints.txt", _of_the_course(root, "constraints.txt")
    yield "setup.sh", _script("setup.sh")
    for package in packages_of(settings.lessons):
        folder = folder_of(package)
        for path in sorted(folder.rglob("*")):
            inside = path.relative_to(folder)
            source = path.name in NOT_TAKEN and FOLDER.fullmatch(path.parent.name)
            hidden = any(part.startswith((".", "__pycache__")) for part in inside.parts)
            if path.is_file() and not source and not hidden:
                yield f"src/{package}/{inside.as_posix()}", path.read_bytes()


def _requirements(root: Path) -> list[str]:
    """What pip must install: the packages themselves come along as source, out of a submission's sight."""
    project = tomllib.loads(_of_the_course(root, "pyproject.toml").decode("utf-8"))["project"]
    return [*project.get("dependencies", []), *project.get("optional-dependencies", {}).get(EXTRA, [])]


def _of_the_course(root: Path, name: str) -> bytes:
    try:
        return (root / name).read_bytes()
    except OSError as error:
        raise CommandError(f"{root / name}: {error.strerror}: an autograder installs by it") from None


def _script(name: str) -> bytes:
    return (SCRIPTS / name).read_bytes()


def opened(folder: Path) -> tuple[Settings, Released]:
    """A bundle's settings, and the notebook that was released. CommandError where the folder is none."""
    try:
        settings = Settings(**json.loads((folder / SETTINGS).read_text("utf-8")))
        notebook = nbformat.read(folder / NOTEBOOK, as_version=4)
    except (OSError, ValueError, TypeError) as error:
        raise CommandError(f"{folder} holds no autograder: {error}") from None
    return settings, Released.of_notebook(settings.assignment, Path(settings.notebook).stem, notebook)
