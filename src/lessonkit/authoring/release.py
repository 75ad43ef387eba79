"""`lessonkit release`: what a student gets, as a folder or as one zip file."""

import argparse
import shutil
import tempfile
import zipfile
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path

from commandkit.errors import CommandError
from commandkit.files import replace
from lessonkit.authoring.build import Checkout, drifts, open_course
from lessonkit.course import FOLDER

# A learner's Makefile and README are others than the course's own.
OWN = files("lessonkit.authoring") / "student"
COPIED = ("START.md", "LICENSE", "LICENSE-texts", "constraints.txt", "environment.yml", "pyproject.toml")
PAGES = ("docs/notation.md",)  # of docs/, what lectures link to; a course may do without
FOLDERS = ("lectures", "assignments", "src")
SOURCES = ("assignment.py", "lecture.py")  # of the notebooks: the assignments' hold mark schemes


def contents(checkout: Checkout) -> Iterator[tuple[str, bytes]]:
    """The files of a release, in the order of their names: (path in it, what it holds).

    Lectures, assignments, the package, what it takes to install it, and the table of notation. Not the solutions, nor
    the notebooks' sources, which hold them; nothing hidden, and nothing that Python wrote.
    """
    held = {file.name: file.read_bytes() for file in OWN.iterdir() if file.is_file()}
    held |= {name: (checkout.root / name).read_bytes() for name in COPIED}
    held |= {name: (checkout.root / name).read_bytes() for name in PAGES if (checkout.root / name).is_file()}
    for folder in FOLDERS:
        for path in (checkout.root / folder).rglob("*"):
            relative = path.relative_to(checkout.root)
            hidden = any(part.startswith((".", "__pycache__")) for part in relative.parts)
            source = path.name in SOURCES and FOLDER.fullmatch(path.parent.name)
            if path.is_file() and not hidden and not source:
                held[relative.as_posix()] = path.read_bytes()
    yield from sorted(held.items())


def release(checkout: Checkout, to: Path) -> int:
    """Write the release to `to`, a zip file if it is called so, else a folder; return how many files are in it.

    It is written whole or not at all; the same course gives the same bytes. Raises CommandError for a folder that holds
    something already, or a place that cannot be written to.
    """
    to = to.absolute()
    try:
        to.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=to.parent, prefix=f".{to.name}-") as scratch:
            made = Path(scratch, checkout.course.distribution)
            if to.suffix == ".zip":
                count = _zip(checkout, made)
            else:
                if to.is_dir() and any(to.iterdir()):
                    raise CommandError(f"{to} is not empty: name a folder that is, or that is not there yet")
                count = _folder(checkout, made)
                if to.is_dir():
                    to.rmdir()
            replace(made, to)
    except OSError as error:
        raise CommandError(f"{to}: cannot be written: {error.strerror or error}") from error
    return count


def _zip(checkout: Checkout, made: Path) -> int:
    count = 0
    with zipfile.ZipFile(made, "w") as archive:
        for name, data in contents(checkout):
            # Dated 1980, so that the same files make the same archive.
            entry = zipfile.ZipInfo(f"{checkout.course.distribution}/{name}")
            entry.compress_type, entry.external_attr = zipfile.ZIP_DEFLATED, 0o644 << 16
            archive.writestr(entry, data)
            count += 1
    return count


def _folder(checkout: Checkout, made: Path) -> int:
    count = 0
    for name, data in contents(checkout):
        path = made / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        count += 1
    shutil.copymode(made.parent.parent, made)  # that of a temporary folder is private
    return count

EXAMPLES = """
PROGRAM release --to course.zip
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--to", type=Path, required=True, metavar="DIR|FILE.zip", help="an empty folder, or a zip file")


def main(args: argparse.Namespace) -> int:
    checkout = open_course(Path.cwd())
    if found := next(drifts(checkout, checkout.targets()), None):
        path, problem, mend = found
        raise CommandError(f"{path} {problem}\n    mend: {mend}")
    count = release(checkout, args.to)
    print(f"{args.to}: {count} files, no solutions")
    return 0
