"""`lessonkit release`: what a student gets, as a folder or as one zip file."""

import argparse
import shutil
import tempfile
import zipfile
from collections.abc import Collection, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from importlib.resources import files
from pathlib import Path

from commandkit.errors import CommandError
from commandkit.files import replace
from lessonkit.authoring import solutions
from lessonkit.authoring.build import drifts
from lessonkit.authoring.checkout import Checkout, open_course
from lessonkit.course import FOLDER, Course
from lessonkit.exercises.exam import FILE, Exam, moment

# A learner's Makefile and README are others than the course's own.
OWN = files("lessonkit.authoring") / "student"
COPIED = ("START.md", "LICENSE", "LICENSE-texts", "constraints.txt", "environment.yml", "pyproject.toml")
PAGES = ("docs/notation.md",)  # of docs/, what lectures link to; a course may do without
FOLDERS = ("lectures", "assignments", "src")
Files = Iterable[tuple[str, bytes]]
# Of the notebooks, the assignments' with their mark schemes; and what an exam may ask.
SOURCES = ("assignment.py", "lecture.py", "questions.py")


def contents(
    checkout: Checkout, solved: Collection[str] = (), exam: Exam | None = None
) -> Iterator[tuple[str, bytes]]:
    """The files of a release, in the order of their names: (path in it, what it holds).

    Lectures, assignments, the package, what it takes to install it, and the table of notation. Of the solutions only
    those of the assignments in `solved`, and not the notebooks' sources, which hold them all; nothing hidden, and
    nothing that Python wrote. With an `exam` the checks are its checks.
    """
    held = {file.name: file.read_bytes() for file in OWN.iterdir() if file.is_file()}
    held |= {name: (checkout.root / name).read_bytes() for name in COPIED}
    held |= {name: (checkout.root / name).read_bytes() for name in PAGES if (checkout.root / name).is_file()}
    for folder in (*FOLDERS, *(f"solutions/{assignment}" for assignment in solved)):
        for path in (checkout.root / folder).rglob("*"):
            relative = path.relative_to(checkout.root)
            hidden = any(part.startswith((".", "__pycache__")) for part in relative.parts)
            source = path.name in SOURCES and FOLDER.fullmatch(path.parent.name)
            if path.is_file() and not hidden and not source:
                held[relative.as_posix()] = path.read_bytes()
    package = checkout.packages[checkout.course.package].relative_to(checkout.root).as_posix()
    held.pop(f"{package}/{FILE}", None)
    if exam:
        held[f"{package}/{FILE}"] = exam.text().encode()
    yield from sorted(held.items())


def release(checkout: Checkout, to: Path, solved: Collection[str] = (), exam: Exam | None = None) -> int:
    """Write the release to `to`, a zip file if it is called so, else a folder; return how many files are in it.

    It is written whole or not at all; the same course gives the same bytes. Raises CommandError for a folder that holds
    something already, or a place that cannot be written to.
    """
    to = to.absolute()
    files = contents(checkout, solved, exam)
    try:
        to.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=to.parent, prefix=f".{to.name}-") as scratch:
            made = Path(scratch, checkout.course.distribution)
            if to.suffix == ".zip":
                count = _zip(checkout.course.distribution, files, made)
            else:
                if to.is_dir() and any(to.iterdir()):
                    raise CommandError(f"{to} is not empty: name a folder that is, or that is not there yet")
                count = _folder(files, made)
                if to.is_dir():
                    to.rmdir()
            replace(made, to)
    except OSError as error:
        raise CommandError(f"{to}: cannot be written: {error.strerror or error}") from error
    return count


def _zip(top: str, files: Files, made: Path) -> int:
    count = 0
    with zipfile.ZipFile(made, "w") as archive:
        for name, data in files:
            # Dated 1980, so that the same files make the same archive.
            entry = zipfile.ZipInfo(f"{top}/{name}")
            entry.compress_type, entry.external_attr = zipfile.ZIP_DEFLATED, 0o644 << 16
            archive.writestr(entry, data)
            count += 1
    return count


def _folder(files: Files, made: Path) -> int:
    count = 0
    for name, data in files:
        path = made / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        count += 1
    shutil.copymode(made.parent.parent, made)  # that of a temporary folder is private
    return count


def exam_of(course: Course, text: str | None, assignments: Sequence[str]) -> Exam | None:
    """The exam that the command line asks for. CommandError for a time that is none, or past, or for no assignment."""
    if text is None:
        if assignments:
            raise CommandError("--exam says of which assignments: say until when, --exam-until 2026-12-01T12:00+01:00")
        return None
    try:
        exam = Exam(moment(text), tuple(solutions.known(course, each) for each in assignments))
    except (ValueError, OverflowError):
        raise CommandError(f"--exam-until: {text!r} is no time; write it as 2026-12-01T12:00+01:00") from None
    if exam.until < datetime.now(UTC):
        raise CommandError(f"--exam-until: {text} is past; the exam would never have been")
    return exam


EXAMPLES = """
PROGRAM release --to course.zip
PROGRAM release --to course.zip --solutions-until a05
PROGRAM release --to exam.zip --exam a09 --exam-until 2026-12-01T12:00+01:00
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--to", type=Path, required=True, metavar="DIR|FILE.zip", help="an empty folder, or a zip file")
    solutions.add_arguments(parser)
    parser.add_argument("--exam-until", metavar="TIME", help="until then checks say right or wrong, and give no hints")
    parser.add_argument("--exam", action="append", default=[], metavar="aNN",
                        help="only this assignment's checks (may be given again; default: all)")  # fmt: skip


def main(args: argparse.Namespace) -> int:
    checkout = open_course(Path.cwd())
    exam = exam_of(checkout.course, args.exam_until, args.exam)
    solved = solutions.chosen(args, checkout) or []
    if found := next(drifts(checkout, checkout.targets()), None):
        path, problem, mend = found
        raise CommandError(f"{path} {problem}\n    mend: {mend}")
    count = release(checkout, args.to, solved, exam)
    said = f"with the solutions of {', '.join(solved)}" if solved else "no solutions"
    print(f"{args.to}: {count} files, {said}")
    if exam:
        of = ", ".join(exam.assignments) or "all assignments"
        print(f"an exam {exam.end} for {of}: checks say right or wrong, and give no hints")
    return 0
