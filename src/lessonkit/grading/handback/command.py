"""`lessonkit feedback aNN`: a page for each student, given back through nbgrader's exchange as far as that reaches."""

from __future__ import annotations

import argparse
import contextlib
import glob
import hashlib
import json
import os
import time
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from commandkit.commands import typed
from commandkit.errors import CommandError, require_extra
from commandkit.files import locked

with require_extra(typed("feedback"), "grading"):
    from nbgrader.apps.baseapp import NbGrader
    from nbgrader.auth import Authenticator
    from nbgrader.converters import GenerateFeedback
    from nbgrader.converters.base import NbGraderException
    from nbgrader.coursedir import CourseDirectory
    from nbgrader.exchange import ExchangeFactory
    from nbgrader.exchange.default import ExchangeReleaseFeedback
    from nbgrader.utils import check_directory
    from rich.console import Console

    from lessonkit.grading.engine.grade import Stage, progress_bar, silent
    from lessonkit.grading.gradebook.nbgrader_app import Log, application, assignment_of, find_course
    from lessonkit.grading.gradebook.patches import VERSION, speedups
    from lessonkit.grading.handback.export import defused, write
    from lessonkit.grading.handback.feedback import when
    from lessonkit.grading.report.results import in_order, waits
    from lessonkit.grading.submission.check_cells import PREFIX
    from lessonkit.grading.submission.lateness import extensions_of, times
    from lessonkit.grading.submission.records import grading_folder, records_of

NAMES = 8  # students named in a line; the file names all
FROM_THE_EXCHANGE = ("submission_secret.txt", "timestamp.txt")  # nbgrader puts them beside what it collects
NO_SECRET = "their submission has no secret of the exchange's"
TO_SEND = "to_send.csv"

EXAMPLES = """
PROGRAM feedback a03
PROGRAM feedback a03 --student=ada
PROGRAM feedback a03 --no-release
"""


@dataclass(frozen=True)
class Person:
    """A student who has been graded."""

    id: str
    first_name: str
    last_name: str
    email: str
    state: str = field(default="", compare=False)  # a hash of all that the pages are made of

    @property
    def name(self) -> str:
        name = " ".join(filter(None, (self.first_name, self.last_name)))
        return f"{name} ({self.id})" if name else self.id


@dataclass
class Outcome:
    """What a run has done. Who has a page and is in `released` or `to_send`, or in `failed`."""

    pages: dict[Person, list[Path]] = field(default_factory=dict)
    unchanged: int = 0  # students whose pages are as they would be made now
    released: list[Person] = field(default_factory=list)
    to_send: dict[Person, str] = field(default_factory=dict)  # and why the exchange does not reach them
    failed: dict[Person, str] = field(default_factory=dict)  # who has no page, and why
    waiting: Counter[str] = field(default_factory=Counter)  # what a person has to mark yet, and of how many students
    ungraded: list[str] = field(default_factory=list)  # who has handed in and is not graded
    listed: Path | None = None  # the file that lists `to_send`


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("assignment", help="such as a03")
    parser.add_argument("--student", action="append", metavar="ID", help="only this student (may be given again)")
    parser.add_argument("--no-release", action="store_true", help="make the pages, and put none into the exchange")
    parser.add_argument("--course", type=Path, default=Path(), metavar="DIR", help="the course's folder (here)")


def main(args: argparse.Namespace) -> int:
    """Make the pages and give them back; 1 if one could not be made. CommandError where none can be."""
    course, console, began = find_course(args.course), Console(highlight=False), time.monotonic()
    with progress_bar(console) as stage:
        outcome = give_back(
            course, args.assignment, students=args.student, release=not args.no_release, stage=stage
        )
    for line in summary(outcome, args.assignment, time.monotonic() - began):
        console.print(line, markup=False, soft_wrap=True)
    return 1 if outcome.failed else 0


def give_back(
    course: Path,
    assignment: str,
    *,
    students: Sequence[str] | None = None,
    release: bool = True,
    stage: Stage = silent,
) -> Outcome:
    """Make the feedback pages of all who are graded, and put them into the exchange for those it reaches.

    Pages that would come out as they are stay. CommandError where nothing can be made: nobody is graded, or grading is
    under way.
    """
    folder = grading_folder(course, assignment)
    log = Log(folder / "feedback.log")
    with warnings.catch_warnings(), contextlib.chdir(course), speedups():
        warnings.simplefilter("ignore")  # SQLAlchemy's, about nbgrader's use of it
        app = application(course, "generate_feedback", f"--assignment={assignment}", log=log)
        outcome = Outcome()
        people = _graded(app.coursedir, assignment, students, outcome)
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with locked(folder / "grade.lock", wait=False):
                log.path.unlink(missing_ok=True)  # of the run before
                _make(app, people, log, outcome, stage(f"feedback {assignment}", len(people)))
                if release:
                    _release(course, assignment, log, outcome)
        except BlockingIOError:
            raise CommandError(f"{assignment} is being graded just now: wait until that is done") from None
        except OSError as error:
            raise CommandError(f"{error}: feedback is written into the course's folder") from error
        if release:
            outcome.listed = _list(folder / TO_SEND, course, outcome)
    return outcome


def _graded(
    coursedir: CourseDirectory, assignment: str, students: Sequence[str] | None, outcome: Outcome
) -> list[Person]:
    """Who is graded, in order, of those asked for; and what waits to be marked. CommandError if that is nobody."""
    with assignment_of(coursedir, assignment) as (gradebook, found):
        extensions = extensions_of(coursedir, gradebook)
        common = _digest([Path(__file__).parent, Path("nbgrader_config.py")]) + VERSION
        place = coursedir.format_path(coursedir.autograded_directory, "\0", assignment).split("\0")
        graded = {
            submission.student.id: submission
            for submission in found.submissions
            if any(Path(place[0] + submission.student.id + place[1]).glob("*.ipynb"))
        }
        place = coursedir.format_path(coursedir.submitted_directory, "\0", assignment).split("\0")
        handed_in = {path.removeprefix(place[0]).removesuffix(place[1]) for path in glob.glob("*".join(place))}
        unknown = sorted(set(students or ()) - graded.keys())
        if unknown:
            raise CommandError(f"{assignment}: not graded: {', '.join(unknown)}")
        if not graded:
            raise CommandError(f"nobody is graded for {assignment}: run `{typed('grade')} {assignment}` first")
        outcome.ungraded = sorted(handed_in - graded.keys()) if students is None else []
        chosen = [s for s in graded.values() if students is None or s.student.id in students]
        for submission in chosen:
            names = {g.name for notebook in submission.notebooks for g in notebook.grades if waits(g)}
            outcome.waiting.update(name.removeprefix(PREFIX) for name in names)
        people = []
        for submission in sorted(chosen, key=lambda submission: in_order(submission.student)):
            folder = Path(coursedir.format_path(coursedir.autograded_directory, submission.student.id, assignment))
            marks = [
                (
                    notebook.name,
                    notebook.late_submission_penalty,
                    sorted((grade.name, grade.score, waits(grade)) for grade in notebook.grades),
                    sorted((comment.name, comment.comment or "") for comment in notebook.comments),
                )
                for notebook in submission.notebooks
            ]
            made_of = [common, _digest([folder]), when(times(submission, extensions)), marks]
            state = hashlib.sha256(json.dumps(made_of).encode()).hexdigest()
            who = submission.student
            people.append(Person(who.id, who.first_name or "", who.last_name or "", who.email or "", state))
        return people


def _digest(paths: Sequence[Path]) -> str:
    """A hash over the files at and below these paths."""
    total = hashlib.sha256()
    for top in paths:
        for path in sorted([top, *top.rglob("*")]):
            if path.is_file() and path.suffix != ".pyc":
                with path.open("rb") as file:
                    total.update(os.fsencode(path.name) + b"\0" + hashlib.file_digest(file, "sha256").digest())
    return total.hexdigest()


class _Pages(GenerateFeedback):
    """nbgrader's GenerateFeedback for the students in `people`. nbgrader takes brackets in an id for a pattern."""

    people: Sequence[Person] = ()
    tick: Callable[[], None]
    made: set[str]  # whose pages are there, whole

    def init_notebooks(self) -> None:
        self.notebooks: list[str] = []
        folders = (self._format_source(self.coursedir.assignment_id, person.id) for person in self.people)
        self.assignments = {folder: sorted(glob.glob(glob.escape(folder) + "/*.ipynb")) for folder in folders}

    def init_destination(self, assignment_id: str, student_id: str) -> bool:
        self.tick()
        return super().init_destination(assignment_id, student_id)

    def set_permissions(self, assignment_id: str, student_id: str) -> None:
        super().set_permissions(assignment_id, student_id)
        self.made.add(student_id)  # it is nbgrader's last step for a student


def _make(app: NbGrader, people: Sequence[Person], log: Log, outcome: Outcome, tick: Callable[[], None]) -> None:
    """Make the pages; one that cannot be made is nobody else's trouble."""
    pages, records = _Pages(coursedir=app.coursedir, parent=app), records_of(Path(), app.coursedir.assignment_id)

    def there(person: Person) -> list[Path]:
        folder = Path(pages._format_dest(app.coursedir.assignment_id, person.id))
        return sorted(path.resolve() for path in folder.glob("*.html"))

    fresh = {person for person in people if records.of(person.id)["feedback"] == person.state and there(person)}
    outcome.unchanged = len(fresh)
    for _ in fresh:
        tick()
    pages.people = [person for person in people if person not in fresh]
    pages.tick, pages.made, pages.force = tick, set(), True
    with contextlib.suppress(NbGraderException):  # says no more than that there was one: `log` has what it was
        pages.start()
    for person in people:
        source = pages._format_source(app.coursedir.assignment_id, person.id)
        if person in fresh or person.id in pages.made:
            outcome.pages[person] = there(person)
            with records.changing(person.id) as record:
                record["feedback"] = person.state
        else:
            told = [log.errors[i + 1 : i + 2] for i, said in enumerate(log.errors) if said.endswith(f": {source}")]
            words = "".join(told[0]).strip().splitlines() if told else log.errors[:1]
            outcome.failed[person] = f"{words[-1] if words else 'nothing was made'} (see {log.path})"


def _release(course: Path, assignment: str, log: Log, outcome: Outcome) -> None:
    """Put the pages into the exchange, student by student: whom it does not reach stops nobody else's."""
    app = application(course, "release_feedback", f"--assignment={assignment}", log=log)
    coursedir, make = app.coursedir, ExchangeFactory(parent=app).ReleaseFeedback
    exchange = make(coursedir=coursedir, authenticator=Authenticator(parent=app), parent=app)
    default = isinstance(exchange, ExchangeReleaseFeedback)
    if default and not (coursedir.groupshared or check_directory(exchange.root, write=True, execute=True)):
        outcome.to_send = dict.fromkeys(outcome.pages, f"there is no exchange at {exchange.root}")
        return
    for person, pages in outcome.pages.items():
        if default and not all((pages[0].parent / name).is_file() for name in FROM_THE_EXCHANGE):
            outcome.to_send[person] = NO_SECRET
            continue
        log.errors.clear()
        coursedir.student_id = glob.escape(person.id)
        try:
            exchange.start()
        except Exception as error:  # whatever an exchange raises
            outcome.to_send[person] = " ".join((log.errors or [f"{type(error).__name__}: {error}"])[-1].split())
        else:
            outcome.released.append(person)


def _list(path: Path, course: Path, outcome: Outcome) -> Path | None:
    """Write down which pages are for the instructor to send, for a mail merge; None if there are none."""
    if not outcome.to_send:
        path.unlink(missing_ok=True)
        return None
    rows = [["student_id", "last_name", "first_name", "email", "page", "reason"]]
    for person, reason in outcome.to_send.items():
        about = [person.id, person.last_name, person.first_name, person.email]
        rows += [[*about, page.relative_to(course.resolve()).as_posix(), reason] for page in outcome.pages[person]]
    write(path, [[defused(cell) for cell in row] for row in rows], "utf-8-sig")
    return path


def summary(outcome: Outcome, assignment: str, seconds: float) -> list[str]:
    """What to tell the instructor."""
    n = len(outcome.pages) - outcome.unchanged
    lines = [f"pages made of {n} student{'s' if n != 1 else ''} in {seconds:.0f} s: feedback/STUDENT/{assignment}/"]
    if outcome.unchanged:
        lines[0] += f"; {outcome.unchanged} unchanged"
    if outcome.waiting:
        which = ", ".join(f"{name} ({count})" for name, count in outcome.waiting.items())
        lines.append(f"not marked yet, which the pages say, and leave out of their totals: {which}")
    if outcome.released:
        lines.append(f"released through the exchange: {len(outcome.released)}")
    for reason, count in Counter(outcome.to_send.values()).most_common():
        people = [person.name for person, why in outcome.to_send.items() if why == reason]
        lines.append(f"for you to send: {count}, as {reason}: {_names(people)}")
    if outcome.listed:
        here = outcome.listed.relative_to(Path.cwd()) if outcome.listed.is_relative_to(Path.cwd()) else outcome.listed
        lines.append(f"all pages to send, with addresses: {here}")
    lines += [f"no page: {person.name}: {why}" for person, why in outcome.failed.items()]
    if outcome.ungraded:
        lines.append(
            f"handed in and not graded: {_names(outcome.ungraded)}: `{typed('grade')} {assignment}`, and this again"
        )
    return lines


def _names(names: Sequence[str]) -> str:
    return ", ".join(names[:NAMES]) + (f" and {len(names) - NAMES} more" if len(names) > NAMES else "")
