"""A course's folder, and nbgrader's own commands run on it from Python."""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Callable, Iterator
from pathlib import Path

from nbgrader.api import Assignment, Gradebook, MissingEntry
from nbgrader.apps import NbGraderApp
from nbgrader.apps.baseapp import NbGrader
from nbgrader.coursedir import CourseDirectory
from tornado.log import LogFormatter

from commandkit.commands import typed
from commandkit.errors import CommandError

CONFIG = "nbgrader_config.py"


def find_course(start: Path) -> Path:
    """The nearest folder, from `start` up, that holds an nbgrader_config.py. CommandError if there is none."""
    if not start.is_dir():
        raise CommandError(f"there is no folder {start}")
    for folder in (start.resolve(), *start.resolve().parents):
        if (folder / CONFIG).is_file():
            return folder
    raise CommandError(f"there is no course in {start} or above it ({CONFIG} is missing): cd into the course's folder")


@contextlib.contextmanager
def assignment_of(coursedir: CourseDirectory, name: str) -> Iterator[tuple[Gradebook, Assignment]]:
    """The course's gradebook, open, and an assignment in it. CommandError if there is none."""
    source = Path(coursedir.format_path(coursedir.source_directory, ".", name))
    first = f"run `nbgrader generate_assignment {name} --force` first"  # forced, because the release is there already
    _require_gradebook(coursedir, first)
    with Gradebook(coursedir.db_url, coursedir.course_id) as gradebook:
        try:
            found = gradebook.find_assignment(name)
        except MissingEntry:
            known = ", ".join(sorted(a.name for a in gradebook.assignments)) or "none"
            what = f"there is no assignment {name!r} in the gradebook (there: {known})"
            raise CommandError(f"{what}: {first}" if source.is_dir() else what) from None
        yield gradebook, found


def graded_assignments(coursedir: CourseDirectory) -> list[str]:
    """The assignments of which the gradebook has a submission. CommandError if there is none."""
    grade = f"grade one first, such as `{typed('grade a03')}`"
    _require_gradebook(coursedir, grade)
    with Gradebook(coursedir.db_url, coursedir.course_id) as gradebook:
        found = [str(assignment.name) for assignment in gradebook.assignments if assignment.num_submissions]
    if not found:
        raise CommandError(f"no assignment is graded: {grade}")
    return found


def _require_gradebook(coursedir: CourseDirectory, first: str) -> None:
    path = coursedir.db_url.removeprefix("sqlite:///")
    if coursedir.db_url.startswith("sqlite") and not Path(path).is_file():
        raise CommandError(f"there is no gradebook at {path}: {first}")


class Log(logging.Handler):
    """Writes what nbgrader says into a file, and hands each message on to `watch`."""

    def __init__(self, path: Path) -> None:
        super().__init__(logging.INFO)
        self.path = path
        self.setFormatter(LogFormatter(fmt="[%(name)s | %(levelname)s] %(message)s", color=False))
        self.watch: Callable[[str], None] = lambda message: None
        self.errors: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        message = record.getMessage()
        if record.levelno >= logging.ERROR:
            self.errors.append(message)
        # Opened anew each time: every command configures logging, which closes all handlers there are.
        with self.path.open("a", encoding="utf-8") as file:
            file.write(self.format(record) + "\n")
        self.watch(message)


def application(folder: Path, *words: str, log: Log | None = None) -> NbGrader:
    """nbgrader's application for a command (`"autograde", "a03"`), with the config that it finds in `folder`."""
    kind, rest = NbGraderApp, list(words)
    while rest and isinstance(kind.subcommands, dict) and rest[0] in kind.subcommands:
        kind = kind.subcommands[rest.pop(0)][0]
    quiet = {
        "handlers": {"log": {"()": lambda: log or logging.NullHandler()}},
        "loggers": {kind.__name__: {"handlers": ["log"]}},
    }
    app = kind(logging_config=quiet)
    with contextlib.chdir(folder):
        app.initialize(rest)
    return app


def nbgrader(folder: Path, *words: str, log: Log) -> None:
    """Run an nbgrader command as if typed in `folder`. CommandError, with what it complained of, if it fails."""
    log.errors.clear()
    app = application(folder, *words, log=log)
    with contextlib.chdir(folder):
        try:
            app.start()
        except SystemExit as stop:
            if stop.code:
                why = log.errors[0] if log.errors else f"exit status {stop.code}"
                raise CommandError(f"nbgrader {' '.join(words)}: {why} (the whole log: {log.path})") from None


@contextlib.contextmanager
def own_settings(folder: Path) -> Iterator[None]:
    """Keep Jupyter's and IPython's settings, caches and history in `folder`, away from the user's own."""
    places = ("JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR", "IPYTHONDIR")
    folder.mkdir(parents=True, exist_ok=True)
    with environment(**{name: str(folder / name.lower()) for name in places}):
        yield


@contextlib.contextmanager
def environment(**values: str) -> Iterator[None]:
    """Set environment variables, and put back what was there."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
