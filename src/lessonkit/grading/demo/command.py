"""`lessonkit demo`: a made-up class goes through nbgrader's whole loop, and must get the grades that it should."""

from __future__ import annotations

import argparse
import csv
import shutil
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from commandkit.commands import typed
from commandkit.errors import CommandError, require_extra

STARTED = time.monotonic()  # before the imports that take seconds

with require_extra(typed("demo"), "grading"):
    import nbformat
    from nbgrader.utils import rmtree
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    from lessonkit.course import Course, course_of
    from lessonkit.grading.engine.grade import Stage, cores, grade
    from lessonkit.grading.gradebook.nbgrader_app import CONFIG, Log, application, find_course, nbgrader, own_settings
    from lessonkit.grading.handback.command import give_back
    from lessonkit.grading.report.command import show, write_report
    from lessonkit.grading.report.results import Results, read_results, telling
    from lessonkit.grading.submission.answers import answer, solutions

if TYPE_CHECKING:
    from lessonkit.grading.demo.example_class import Student

TELLING = 12  # students in the table that is printed
MARK = ".lessonkit-demo"  # a folder with this file in it is ours to delete
CONFIG_HERE = """

from pathlib import Path

# What follows is the demo's own: an exchange inside its folder, one user who submits for everybody.
c.Exchange.root = str(Path(__file__).parent / "exchange")
c.ExchangeCollect.check_owner = False
"""

EXAMPLES = """
PROGRAM demo
PROGRAM demo a06 --to elsewhere
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("assignment", nargs="?", help="such as a03 (default: the course's choice)")
    parser.add_argument("--to", type=Path, metavar="DIR", help="where to put the demo's course (default: demo)")


def main(args: argparse.Namespace) -> int:
    """Make the class, grade it, show it; 1 if a grade is not what it should be. CommandError if it cannot be made."""
    course = find_course(Path())
    if (course / MARK).exists():
        course = find_course(course.parent)
    root = (args.to or course / "demo").resolve()
    chosen = course_of(application(course, "autograde").config)
    assignment = args.assignment or chosen.demo
    if assignment not in chosen.assignments():
        raise CommandError(f"there is no assignment {assignment!r}; there are: {', '.join(chosen.assignments())}")
    prepare(root, course, assignment)
    console = Console(highlight=False)
    with _progress(console) as stage:
        results, wrong = grade_class(root, chosen, assignment, stage)
    console.print()
    show(results, console, telling(results, TELLING))
    print(f"\n{len(results.rows)} submissions in {time.monotonic() - STARTED:.0f} s\n\n{_places(root, assignment)}")
    for line in wrong:
        print(f"not as it should be: {line}", file=sys.stderr)
    return 1 if wrong else 0


def prepare(root: Path, course: Path, assignment: str) -> None:
    """Make a course in `root` with the config and the solutions of `course`. A demo that was there is deleted."""
    source = course / "solutions" / assignment
    if not any(source.glob("*.ipynb")):
        raise CommandError(f"there is no notebook in {source}: run `{typed('build')}` first")
    if root.exists() and not (root / MARK).exists() and (not root.is_dir() or any(root.iterdir())):
        raise CommandError(f"{root} holds something else than a demo: choose another place with --to DIR")
    if root.exists():
        rmtree(root)
    root.mkdir(parents=True)
    (root / MARK).touch()
    shutil.copytree(source, root / "solutions" / assignment)
    config = (course / CONFIG).read_text(encoding="utf-8")
    (root / CONFIG).write_text(config + CONFIG_HERE, encoding="utf-8")


def grade_class(
    root: Path, course: Course, assignment: str, stage: Stage, one_in: int = 1
) -> tuple[Results, list[str]]:
    """Take the example class through nbgrader's loop in `root`: its results, and what is wrong with them.

    With `one_in` it is a smaller one (see `make_class`).
    """
    from lessonkit.grading.demo.example_class import discrepancies, make_class
    from lessonkit.grading.report.similarity import similar

    log = Log(root / "nbgrader.log")
    with own_settings(root / ".settings"), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # SQLAlchemy's, about nbgrader's use of it

        def run(*words: str, where: Path = root, what: str = "", of: int = 1, each: str = "") -> None:
            """An nbgrader command; the stage moves on with each message that starts with `each`."""
            tick = stage(what, of) if what else lambda: None
            log.watch = lambda message: tick() if each and message.startswith(each) else None
            nbgrader(where, *words, log=log)
            if not each:
                tick()

        run("generate_assignment", assignment, what="nbgrader generate_assignment")
        source = _only_notebook(root / "solutions" / assignment)
        exercises = course.exercises_of(assignment)  # torch with them
        students = make_class(exercises, solutions(nbformat.read(source, as_version=4)), one_in)
        n = len(students)
        _write_roster(root / "roster.csv", students)
        run("db", "student", "import", "roster.csv")
        if _exchange():
            (root / "exchange").mkdir(mode=0o777)
            run("release_assignment", assignment)
        tick = stage("fetch, answer, submit", n)
        for student in students:
            _hand_in(root, assignment, student, source, run)
            tick()
        if _exchange():
            run("collect", assignment, what="nbgrader collect", of=n, each="Collecting submission")
        app = application(root, "autograde", f"--assignment={assignment}", log=log)
        outcome = grade(root, assignment, n_workers=cores(), stage=stage)
        returned = give_back(root, assignment, release=_exchange(), stage=stage)
        exporter = "--exporter=lessonkit.grading.handback.export.ExercisePoints"
        run("export", "--to=grades.csv", exporter, what="nbgrader export")
        run("export", "--to=grades-nbgrader.csv")
        results = read_results(app.coursedir, assignment)
        tick = stage("the report", 1)
        write_report(root / "grading" / assignment / "report.html", results, exercises, similar(results, exercises))
        tick()
    failed = [f"{student}: {why}" for student, why in outcome.failed.items()]
    failed += [f"{person.id}: no feedback: {why}" for person, why in (returned.failed | returned.to_send).items()]
    return results, failed + discrepancies(results, students, exercises) + _missing(root, assignment, students)


def _hand_in(root: Path, assignment: str, student: Student, source: Path, run: Callable[..., None]) -> None:
    """What a student does: fetch the assignment, fill in answers, submit."""
    home = root / "students" / student.id
    folder = home / assignment
    home.mkdir(parents=True)
    exchange = (f"--Exchange.root={root / 'exchange'}", f"--course={application(root, 'list').coursedir.course_id}")
    if _exchange():
        run("fetch_assignment", assignment, *exchange, where=home)
    else:
        shutil.copytree(root / "assignments" / assignment, folder)
    notebook = folder / source.name
    if student.answers is None:
        notebook.write_bytes(b"")
    elif student.answers:
        release = nbformat.read(notebook, as_version=4)
        nbformat.write(answer(nbformat.read(source, as_version=4), release, student.answers), notebook)
    if _exchange():
        run("submit", assignment, *exchange, f"--student={student.id}", where=home)
    else:
        shutil.copytree(folder, root / "submitted" / student.id / assignment)


def _exchange() -> bool:
    """nbgrader's exchange does not work on Windows: there the files are copied."""
    return sys.platform != "win32"


def _only_notebook(folder: Path) -> Path:
    (path,) = folder.glob("*.ipynb")
    return path


def _write_roster(path: Path, students: Sequence[Student]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["id", "first_name", "last_name"])
        writer.writerows([student.id, student.first, student.last] for student in students)


def _missing(root: Path, assignment: str, students: Sequence[Student]) -> list[str]:
    """Students without a feedback page."""
    pages = {path.parent.parent.name for path in root.glob(f"feedback/*/{assignment}/*.html")}
    return [f"{student.id} has no feedback page" for student in students if student.id not in pages]


def _places(root: Path, assignment: str) -> str:
    where = root.relative_to(Path.cwd()) if root.is_relative_to(Path.cwd()) else root
    return "\n".join(
        f"{what:<16}{where / path}"
        for what, path in (
            ("gradebook", "gradebook.db"),
            ("feedback pages", f"feedback/*/{assignment}/*.html"),
            ("grades", "grades.csv  (nbgrader's own export: grades-nbgrader.csv)"),
            ("nbgrader's log", "nbgrader.log"),
            ("the report", f"grading/{assignment}/report.html"),
        )
    )


@contextmanager
def _progress(console: Console) -> Iterator[Stage]:
    """One bar for each stage of the loop; one line, where the output is not a terminal."""
    if not console.is_terminal:

        def announce(what: str, of: int) -> Callable[[], None]:
            print(f"{what} ({of})", flush=True)
            return lambda: None

        yield announce
        return
    columns = (TextColumn("{task.description:<28}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console) as progress:

        def stage(what: str, of: int) -> Callable[[], None]:
            task = progress.add_task(what, total=of)
            return lambda: progress.advance(task)

        yield stage
