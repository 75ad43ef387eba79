"""`lessonkit export`: an autograder of an assignment, for a class that lives on Gradescope or on GitHub."""

from __future__ import annotations

import argparse
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

from commandkit.errors import CommandError
from commandkit.files import replace
from lessonkit.grading.export.bundle import SCRIPTS, Settings, contents, settings_of
from lessonkit.grading.gradebook.nbgrader_app import find_course

EXAMPLES = """
PROGRAM export gradescope a03
PROGRAM export github-classroom a03 --to template
PROGRAM export classroom50 a03 --to autograders/a03
"""
VISIBILITIES = ("visible", "after_due_date", "after_published", "hidden")
WHERE = ("gradescope", "github-classroom", "classroom50")
INSIDE = ".github/autograder"  # of a student's repository
EXECUTABLE = (".sh", "run_autograder", "check")
Files = Iterator[tuple[str, bytes]]


def gradescope(bundle: Files, settings: Settings, notebook: Path) -> Files:
    """What lies in the zip: https://gradescope-autograders.readthedocs.io/en/latest/specs/ (File hierarchy)."""
    yield "run_autograder", (SCRIPTS / "run_autograder").read_bytes()
    yield from bundle


def github(bundle: Files, settings: Settings, notebook: Path) -> Files:
    """A repository for each student to begin with: the notebook, a workflow of GitHub Actions, what it runs."""
    yield settings.notebook, notebook.read_bytes()
    workflow = (SCRIPTS / "classroom.yml").read_text("utf-8").replace("ASSIGNMENT", settings.assignment)
    yield ".github/workflows/classroom.yml", workflow.encode()
    yield f"{INSIDE}/check", (SCRIPTS / "check").read_bytes()
    yield from ((f"{INSIDE}/{name}", data) for name, data in bundle)


def classroom50(bundle: Files, settings: Settings, notebook: Path) -> Files:
    """The folder `autograders/ASSIGNMENT` of a classroom's repository."""
    yield "autograder.py", (SCRIPTS / "autograder.py.txt").read_bytes()
    yield from bundle


def export(root: Path, where: str, assignment: str, to: Path | None = None, visibility: str = "visible") -> Path:
    """Write the autograder, whole or not at all; return where. CommandError for what cannot be exported or written."""
    settings, notebook = settings_of(root, assignment, visibility)
    make = {"gradescope": gradescope, "github-classroom": github, "classroom50": classroom50}[where]
    files = make(contents(root, settings, notebook), settings, notebook)
    to = (to or Path(f"{assignment}-{where}{'.zip' if where == 'gradescope' else ''}")).absolute()
    try:
        if to.is_dir() and (where == "gradescope" or any(to.iterdir())):
            raise CommandError(f"{to} is a folder that {'is no zip' if where == 'gradescope' else 'is not empty'}: "
                               "name another place")  # fmt: skip
        to.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=to.parent, prefix=f".{to.name}-") as scratch:
            made = Path(scratch, "made")
            (_zip if where == "gradescope" else _folder)(made, files)
            if to.is_dir():
                to.rmdir()
            replace(made, to)
    except OSError as error:
        raise CommandError(f"{to}: cannot be written: {error.strerror or error}") from error
    return to


def _zip(made: Path, files: Files) -> None:
    with zipfile.ZipFile(made, "w") as archive:
        for name, data in files:
            entry = zipfile.ZipInfo(name)  # dated 1980: the same course gives the same zip
            entry.compress_type, entry.external_attr = zipfile.ZIP_DEFLATED, _mode(name) << 16
            archive.writestr(entry, data)
    made.chmod(0o600)  # it holds what the seeds are made of


def _folder(made: Path, files: Files) -> None:
    made.mkdir(mode=0o755)
    for name, data in files:
        path = made / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        path.chmod(_mode(name))


def _mode(name: str) -> int:
    return 0o755 if name.endswith(EXECUTABLE) else 0o644


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("where", choices=WHERE, help="where the class lives")
    parser.add_argument("assignment", help="such as a03")
    parser.add_argument("--to", type=Path, metavar="PLACE", help="a zip for Gradescope, an empty folder for the others")
    words = "when students see the tests on Gradescope (default: visible, that is, at once)"
    parser.add_argument("--visibility", choices=VISIBILITIES, default="visible", help=words)
    parser.add_argument("--course", type=Path, default=Path(), metavar="DIR", help="the course's folder (here)")


def main(args: argparse.Namespace) -> int:
    made = export(find_course(args.course), args.where, args.assignment, args.to, args.visibility)
    print(made)
    return 0
