"""`lessonkit grade aNN`: execute a class's submissions on all cores or on a cluster, then let nbgrader grade them."""

from __future__ import annotations

import argparse
import contextlib
import errno
import glob
import hashlib
import json
import os
import shlex
import signal
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, wait
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from commandkit.commands import typed
from commandkit.errors import CommandError, require_extra
from commandkit.files import locked
from commandkit.interrupts import DeferredInterrupt

with require_extra(typed("grade"), "grading"):
    import nbformat
    from nbformat import NotebookNode
    from nbgrader.api import Assignment
    from nbgrader.apps.baseapp import NbGrader
    from nbgrader.converters import Autograde
    from nbgrader.converters.base import NbGraderException
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        ProgressColumn,
        Task,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )
    from rich.text import Text
    from sqlalchemy.exc import OperationalError

    from lessonkit.course import course_of
    from lessonkit.grading.engine import pool as workers
    from lessonkit.grading.engine.cluster import NoWorkersLeft
    from lessonkit.grading.engine.pool import how_to_execute
    from lessonkit.grading.engine.preprocessors import ExecuteOrReplay
    from lessonkit.grading.gradebook.nbgrader_app import Log, application, assignment_of, environment, find_course
    from lessonkit.grading.gradebook.patches import speedups
    from lessonkit.grading.repair.exporter import unreadable
    from lessonkit.grading.repair.folder import is_text, prepare, shown
    from lessonkit.grading.submission.check_cells import PREFIX
    from lessonkit.grading.submission.execution import (
        KERNEL,
        Cache,
        Execution,
        Job,
        cache_key,
        checked,
        load_or_draw_seeds,
        quarantined,
        versions,
    )
    from lessonkit.grading.submission.lateness import EXTENSIONS, extensions_of
    from lessonkit.grading.submission.records import grading_folder, records_of
    from lessonkit.grading.submission.variations import FILE as VARIATIONS


FULL = ("No space left on device", "database or disk is full", "Disk quota exceeded")  # as the system and SQLite say it
DISK = (errno.ENOSPC, errno.EDQUOT, errno.EROFS)  # whatever fails with one of these, the rest will, too
READ_ONLY = "attempt to write a readonly database"
LOCKED = "another program holds the gradebook: when it is done, call this again; it goes on from here"


@dataclass
class Outcome:
    """What a run has done, student by student."""

    graded: list[str] = field(default_factory=list)
    executed: list[str] = field(default_factory=list)  # of them, those that were not replayed from the cache
    unchanged: list[str] = field(default_factory=list)  # graded before, and nothing has changed since
    quarantined: dict[str, str] = field(default_factory=dict)  # 0 points, because it could not be executed, and why
    failed: dict[str, str] = field(default_factory=dict)  # and why
    strangers: list[str] = field(default_factory=list)  # who has an extension, and is nobody we know
    how: str = ""


@dataclass
class Submission:
    """A student's notebooks on their way: what is to be executed of each, by cache key, and what is not yet."""

    student: str
    jobs: dict[str, Job]
    missing: list[str]

EXAMPLES = """
PROGRAM grade a03
PROGRAM grade a03 --student=ada --force
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("assignment", help="such as a03")
    parser.add_argument("--student", action="append", metavar="ID", help="only this student (may be given again)")
    parser.add_argument("--force", action="store_true", help="execute and grade anew what was graded already")
    parser.add_argument("--workers", type=int, metavar="N", help="submissions at a time (default: one for each core)")
    parser.add_argument("--cluster", metavar="tcp://…", help="execute on the workers of this Dask scheduler")
    parser.add_argument("--unsafe", action="store_true", help="run students' code without a sandbox, if there is none")
    parser.add_argument("--course", type=Path, default=Path(), metavar="DIR", help="the course's folder (here)")


def main(args: argparse.Namespace) -> int:
    """Grade; 1 if a submission could not be executed or graded. CommandError where nothing can be."""
    if args.workers is not None and args.workers < 1:
        raise CommandError(f"--workers: got {args.workers}, expected at least 1")
    course = find_course(args.course)
    console = Console(highlight=False)
    began = time.monotonic()
    with progress_bar(console) as stage:
        outcome = grade(
            course,
            args.assignment,
            students=args.student,
            force=args.force,
            n_workers=args.workers or cores(),
            cluster=args.cluster,
            unsafe=args.unsafe,
            stage=stage,
        )
    for line in summary(outcome, args.assignment, time.monotonic() - began):
        console.print(line, markup=False, soft_wrap=True)  # some of it is to be copied
    return 1 if outcome.failed or outcome.quarantined else 0


PATIENCE = 10.0  # seconds that others wait for a submission; it is then put off until they are done
MOST_SLOW = 5  # a class in which more are slow than this, and than are not, is slow: then nobody is put off
LISTEN_SECONDS = 0.2  # how long a Ctrl-C may wait while nothing comes back from the workers

Execute = Callable[[Job, float | None], Future[Execution]]  # what may take how long while others wait
Stage = Callable[[str, int], Callable[[], None]]  # (what, of how many) -> call after each


def silent(what: str, of: int) -> Callable[[], None]:
    return lambda: None


def grade(
    course: Path,
    assignment: str,
    *,
    students: Sequence[str] | None = None,
    force: bool = False,
    n_workers: int = 1,
    cluster: str | None = None,
    unsafe: bool = False,
    stage: Stage = silent,
) -> Outcome:
    """Grade an assignment of the course in the folder `course`. CommandError where nothing can be graded.

    Whatever is stopped in the middle, by Ctrl-C or by a power cut, goes on from there when it is called again.
    """
    folder = grading_folder(course, assignment)
    log = Log(folder / "grade.log")
    app = application(course, "autograde", f"--assignment={assignment}", log=log)
    if unsafe:
        app.config.ExecuteOrReplay.unsafe = True
    try:
        autograding = environment(NBGRADER_EXECUTION="autograde")
        with warnings.catch_warnings(), contextlib.chdir(course), autograding, speedups():
            warnings.simplefilter("ignore")  # SQLAlchemy's, about nbgrader's use of it
            with assignment_of(app.coursedir, assignment):
                folder.mkdir(parents=True, exist_ok=True)
            with locked(folder / "grade.lock", wait=False):
                log.path.unlink(missing_ok=True)  # of the run before
                run = Grading(app, assignment, force, log, stage)
                return run.grade(run.submissions(students), n_workers, cluster)
    except BlockingIOError:
        raise CommandError(f"{assignment} is being graded already by another `{typed('grade')}`: wait for it") from None
    except PermissionError as error:
        raise CommandError(f"{error}: grading writes into the course's folder") from None
    except OperationalError as error:
        raise CommandError(f"{app.coursedir.db_url}: {error.orig}: {LOCKED}") from error
    except OSError as error:
        if error.errno not in DISK:
            raise
        raise CommandError(f"{error}: mend that and call it again; it goes on from here") from error


class Grading:
    """One run over an assignment's submissions. It works in the course's folder."""

    def __init__(self, app: NbGrader, assignment: str, force: bool, log: Log, stage: Stage) -> None:
        self.app, self.assignment, self.force, self.log, self.stage = app, assignment, force, log, stage
        self.course = course_of(app.config).package
        self.folder = grading_folder(Path(), assignment)
        self.records, self.cache = records_of(Path(), assignment), Cache(self.folder / "executions")
        self.step = ExecuteOrReplay(parent=app)
        self.how = how_to_execute(self.step.unsafe)
        self.outcome = Outcome(how=self.how)
        self.converter = Replay(coursedir=app.coursedir, parent=app)
        source = app.coursedir.format_path(app.coursedir.source_directory, ".", assignment)
        self.given = Path(source)
        release = Path(app.coursedir.format_path(app.coursedir.release_directory, ".", assignment))
        self._common = _digest_of([self.given, release, Path("nbgrader_config.py"), Path(__file__).parents[1]])
        with assignment_of(app.coursedir, assignment) as (gradebook, found):
            self._gradebook, self._submitted, checks = _known(found)
            self._notebooks = {notebook.name for notebook in found.notebooks}
            self._duedate, self._extensions = found.duedate, extensions_of(app.coursedir, gradebook)
            self._students = {student.id for student in gradebook.students}
        self._attempts: Counter[str] = Counter()  # of these cache keys, if they were cut off
        self._quarantined: dict[str, str] = {}  # and why
        self._fresh: set[str] = set()  # begun in this run
        self._running: dict[Future, tuple[str, list[Submission]]] = {}  # a cache key, and who waits for it
        self._put_off: list[str] = []  # students whose submissions are executed when the others are done
        self._slow: set[str] = set()  # cache keys of what was put off
        self._others_wait = False  # somebody has not been begun yet
        self._suspects: list[Submission] = []  # something was cut off while they were executed: each waits to be alone
        load_or_draw_seeds(self.folder, checks)  # they are part of the state, from the first submission on

    def submissions(self, students: Sequence[str] | None) -> list[str]:
        """Who has submitted, of the students asked for. CommandError for one who has not."""
        coursedir = self.app.coursedir
        prepare(coursedir, self.assignment)
        folders = glob.glob(coursedir.format_path(coursedir.submitted_directory, "*", self.assignment))
        place = coursedir.format_path(coursedir.submitted_directory, "\0", self.assignment).split("\0")
        found = sorted(folder.removeprefix(place[0]).removesuffix(place[1]) for folder in folders)
        hidden = {*glob.glob(place[0] + ".*" + place[1], include_hidden=True)}
        for folder in sorted(hidden):
            self.outcome.failed[shown(folder)] = "its name begins with a dot: rename it, or it is passed over"
        for student in [student for student in found if not is_text(student) or "\n" in student]:
            why = "is no text (UTF-8)" if not is_text(student) else "has two lines, which nbgrader does not find"
            self.outcome.failed[shown(student)] = f"the folder's name {why}: rename it"
            found.remove(student)
        if self._extensions:
            known = {*found, *self._students}
            self.outcome.strangers = [who for who in self._extensions.students(self.assignment) if who not in known]
            for student in found:  # now, and not in the middle: one that ends before the due date is an error
                self._extensions.of(student, self.assignment, self._duedate)
        unknown = sorted(set(students or ()) - set(found))
        if unknown:
            raise CommandError(f"nothing was submitted for {self.assignment} by {', '.join(unknown)}")
        if not found:
            raise CommandError(f"nothing was submitted for {self.assignment}: run `nbgrader collect` first")
        return [student for student in found if students is None or student in students]

    def grade(self, students: Sequence[str], n_workers: int, cluster: str | None) -> Outcome:
        """Execute ahead, as many at a time as there are workers, and grade each as soon as it is executed."""
        if cluster is not None and self.how == KERNEL:
            raise CommandError("--cluster: no sandbox here to execute a submission in again: grade on Linux")
        for record in map(self.records.of, students):
            self._attempts |= Counter(record["attempts"])  # of each the most
            self._quarantined |= record["quarantined"]
        self._tick = self.stage(f"grade {self.assignment}", len(students))
        run = workers.run if cluster is None else workers.run_elsewhere
        # Where Ctrl-C is ignored, as in a script's background, it stays so.
        heard = () if signal.getsignal(signal.SIGINT) is signal.SIG_IGN else (signal.SIGINT,)
        executing = _executor(n_workers, cluster)
        with self._taking_back(), executing as (executor, width), DeferredInterrupt(heard) as interrupt:

            def execute(job: Job, patience: float | None) -> Future[Execution]:
                job = {**job, "versions": versions(self.course)}
                if patience is not None:
                    job["patience"] = patience
                return executor.submit(run, self.assignment, self.how, job)

            def take_what_is_done(alone: bool = False) -> None:
                for done in wait(self._running, LISTEN_SECONDS, FIRST_COMPLETED).done:
                    interrupt.stop()
                    self._take(done, alone)
                interrupt.stop()

            to_read = list(reversed(students))
            while True:
                while len(self._running) < 2 * width() and (to_read or self._put_off):
                    interrupt.stop()
                    student = to_read.pop() if to_read else self._put_off.pop(0)
                    self._others_wait = bool(to_read)
                    with self._problems(student):
                        self._begin(student, execute)
                if not self._running:
                    break
                take_what_is_done()
            self._others_wait = False
            for submission in self._suspects:
                with self._problems(submission.student):
                    for key in self._missing(submission.jobs):  # without what another had the same of
                        self._execute(submission, key, execute)
                        while self._running:
                            take_what_is_done(alone=True)
                    if submission.student not in self.outcome.failed:
                        self._replay(submission)
        return self.outcome

    def _begin(self, student: str, execute: Execute) -> None:
        """Have executed what there is to execute of a submission; grade it at once where that is nothing."""
        if not self.force and self._graded_as(student) == self._state(student):
            self.outcome.unchanged.append(student)
            self._tick()
            return
        submission = self._read(student)
        if self._others_wait and not self._slow.isdisjoint(submission.missing):  # the same as another's
            self._put_off.append(student)
            return
        running = {key for key, _ in self._running.values()}  # counted, and not cut off
        if any(self._attempts[key] for key in submission.missing if key not in running):
            self._suspects.append(submission)
            return
        for key in submission.missing:
            self._execute(submission, key, execute)
        if not submission.missing:
            self._replay(submission)

    def _execute(self, submission: Submission, key: str, execute: Execute) -> None:
        """Have a job executed, or wait with those for whom it is being executed."""
        for running, waiting in self._running.values():
            if running == key:
                waiting.append(submission)
                return
        self._fresh.add(key)
        attempts = self._attempts[key]
        if attempts > workers.MAX_ATTEMPTS:  # the first time it had company
            done: Future[Execution] = Future()
            reason = f"quarantined after {attempts} attempts, in each of which grading was cut off"
            done.set_result(quarantined(submission.jobs[key], reason, self.how))
        else:
            self._count(submission, key, attempts + 1)
            is_slow_class = len(self._slow) > max(MOST_SLOW, len(self.outcome.executed))
            patient = key in self._slow or is_slow_class or not self._others_wait
            done = execute(submission.jobs[key], None if patient else PATIENCE)
        self._running[done] = key, [submission]

    def _take(self, done: Future[Execution], alone: bool) -> None:
        """Keep what came out of a job, and grade those who need nothing else; or have it tried again, alone."""
        key, waiting = self._running[done]
        job = waiting[0].jobs[key]
        with self._problems(*[submission.student for submission in waiting]):
            try:
                execution = checked(done.result(), len(job["cells"]))
            except workers.PutOff:
                self._count(waiting[0], key, 0)
                self._slow.add(key)
                self._put_off += [one.student for one in waiting if one.student not in self._put_off]
                return
            except NoWorkersLeft:  # the attempt counts
                raise
            except workers.WorkerLost as error:
                if not alone:
                    self._suspects += [submission for submission in waiting if submission not in self._suspects]
                    return
                reason = f"quarantined after {self._attempts[key]} attempts: {error}"
                execution = quarantined(job, reason, self.how)
            except BaseException:
                self._count(waiting[0], key, 0)
                raise
            finally:
                del self._running[done]
            if execution.get("quarantined"):
                self._quarantined[key] = str(execution["ended"])
            else:
                self.cache.put(key, execution)
                if waiting[0].student not in self.outcome.executed:
                    self.outcome.executed.append(waiting[0].student)
            del self._attempts[key]
        for submission in waiting:
            if submission.student not in self.outcome.failed:
                submission.missing.remove(key)
                if not submission.missing and not alone:
                    with self._problems(submission.student):
                        self._replay(submission)

    def _count(self, submission: Submission, key: str, attempts: int) -> None:
        """Note how often a job was begun and not finished, the present time included."""
        self._attempts[key] = attempts
        with self.records.changing(submission.student) as record:
            record["attempts"] = {**record["attempts"], key: attempts}
            if not attempts:
                del record["attempts"][key]

    @contextlib.contextmanager
    def _taking_back(self) -> Iterator[None]:
        """Only a run that is cut off leaves an attempt behind: one that ends by itself, if by Ctrl-C, takes it back."""
        try:
            yield
        except NoWorkersLeft:
            raise  # what was being executed may have ended all workers
        except BaseException:
            with contextlib.suppress(OSError):
                for key, (first, *_) in self._running.values():
                    self._count(first, key, max(0, self._attempts[key] - 1))
            raise

    def _read(self, student: str) -> Submission:
        """A student's notebooks, without those that cannot be read, which are graded without being executed."""
        self.log.errors.clear()
        coursedir, jobs = self.app.coursedir, {}
        folder = Path(coursedir.format_path(coursedir.submitted_directory, student, self.assignment))
        but = {self.given / name for name in self.converter.exclude_overwriting.get(self.assignment, [])}
        for notebook in sorted(folder.glob("*.ipynb")):
            if notebook.stem in self._notebooks:  # nbgrader skips what else there is
                sanitised = self.converter.sanitise(str(notebook))
                if not unreadable(sanitised):
                    job = self.step.job(sanitised, self.assignment, [folder, self.given], student, but)
                    jobs[cache_key(job, self.how)] = job
        return Submission(student, jobs, self._missing(jobs))

    def _missing(self, jobs: Mapping[str, Job]) -> list[str]:
        return [key for key, job in jobs.items() if not self._is_kept(key, job)]

    def _is_kept(self, key: str, job: Job) -> bool:
        """Whether it was executed, or is quarantined. In a run that is forced, that is forgotten once."""
        if self.force and key not in self._fresh:
            self.cache.forget(key)
            self._quarantined.pop(key, None)
        if self.how == KERNEL:
            self._fresh.add(key)
            return True  # nbgrader executes it
        if self.cache.get(key, len(job["cells"])) is None:
            return key in self._quarantined
        self._quarantined.pop(key, None)  # nbgrader has executed it since
        return True

    def _replay(self, submission: Submission) -> None:
        """Let nbgrader grade one student, from what is in the cache. NbGraderException if it cannot."""
        student = submission.student
        state = self._state(student)
        why = {key: self._quarantined[key] for key in submission.jobs if key in self._quarantined}
        with self.records.changing(student) as record:
            record["attempts"], record["quarantined"], record["notebooks"], record["graded"] = {}, why, {}, None
        self.converter.quarantined = {
            key: quarantined(submission.jobs[key], reason, self.how) for key, reason in why.items()
        }
        self.log.errors.clear()
        try:
            self.app.coursedir.student_id, self.converter.student = glob.escape(student), student
            self.converter.force = True
            self.converter.start()
        finally:
            self.app.coursedir.student_id = "*"
        if why:
            self.outcome.quarantined[student] = next(iter(why.values()))
        else:
            with self.records.changing(student) as record:
                record["graded"] = state
            self.outcome.graded.append(student)
        self._tick()

    def _state(self, student: str) -> str:
        """A hash of all that decides a student's grade: what was submitted, the course's side of it, the package."""
        coursedir = self.app.coursedir
        folder = Path(coursedir.format_path(coursedir.submitted_directory, student, self.assignment))
        course = [self._common, self._gradebook, _digest_of([self.folder / "seeds.json", self.folder / VARIATIONS])]
        content = [_digest_of([folder]), course, versions(self.course), self.how, str(self.app.config.ExecuteOrReplay)]
        if self._extensions:
            content.append(str(self._extensions.of(student, self.assignment, self._duedate)))
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()

    def _graded_as(self, student: str) -> str | None:
        """The state in which a student was graded last, if the result is still there."""
        coursedir = self.app.coursedir
        result = Path(coursedir.format_path(coursedir.autograded_directory, student, self.assignment))
        there = any(result.glob("*.ipynb")) and student in self._submitted
        return self.records.of(student)["graded"] if there else None

    @contextlib.contextmanager
    def _problems(self, *students: str) -> Iterator[None]:
        """A submission's trouble is its own, and that of those who handed in the same."""
        try:
            yield
        except (CommandError, KeyboardInterrupt):
            raise
        except Exception as error:
            if isinstance(error, OSError) and error.errno in DISK:
                raise
            words = f"{type(error).__name__}: {error}"
            if any(full in said for said in [words, *self.log.errors] for full in FULL):
                raise CommandError("the disk is full: make room and call it again; it goes on from here") from error
            if any(READ_ONLY in said for said in [words, *self.log.errors]):
                raise CommandError(f"{READ_ONLY}: {self.app.coursedir.db_url}: grading writes into it") from error
            if any("database is locked" in said for said in [words, *self.log.errors]):
                raise CommandError(f"{self.app.coursedir.db_url}: database is locked: {LOCKED}") from error
            if isinstance(error, NbGraderException) and self.log.errors:  # it says no more than that there was one
                told = next((said for said in self.log.errors if "Traceback" in said), self.log.errors[0])
                words = f"{told.strip().splitlines()[-1]} (see {self.log.path})"
            for student in students:
                if student not in self.outcome.failed:
                    self.outcome.failed[student] = words
                    self._tick()


class Replay(Autograde):
    """nbgrader's Autograde, which does not sanitise again what was sanitised to be executed."""

    def __init__(self, **traits: Any) -> None:
        super().__init__(**traits)
        self.student = ""
        self.quarantined: dict[str, Execution] = {}  # by cache key: what ExecuteOrReplay shall not execute
        self._texts: dict[str, tuple[str, Any]] = {}

    def init_notebooks(self) -> None:
        """One student's. nbgrader takes the brackets in a student's id for a pattern."""
        folder = self._format_source(self.coursedir.assignment_id, self.student)
        self.assignments = {folder: sorted(map(str, Path(folder).glob("*.ipynb")))}
        self.notebooks: list[str] = []

    def init_single_notebook_resources(self, notebook_filename: str) -> dict[str, Any]:
        resources = super().init_single_notebook_resources(notebook_filename)
        return {**resources, "lessonkit_quarantined": self.quarantined}

    def sanitise(self, path: str) -> NotebookNode:
        """A submitted notebook as it is executed: without outputs, repaired, its checks and locked cells restored."""
        self.exporter = self.exporter_class(parent=self, config=self.config)
        self._init_preprocessors()
        self._texts[path] = self.exporter.from_filename(path, resources=self.init_single_notebook_resources(path))
        return nbformat.reads(self._texts[path][0], as_version=4)

    def convert_single_notebook(self, notebook_filename: str) -> None:
        sanitised = self._texts.pop(notebook_filename, None)
        if sanitised is None:
            return super().convert_single_notebook(notebook_filename)
        self.write_single_notebook(*sanitised)
        self._sanitizing = False
        self._init_preprocessors()
        try:
            super(Autograde, self).convert_single_notebook(
                os.path.join(self.writer.build_directory, os.path.basename(notebook_filename))
            )
        finally:
            self._sanitizing = True


def summary(outcome: Outcome, assignment: str, seconds: float) -> list[str]:
    """What to tell the instructor."""
    n = len(outcome.graded)
    none = "none graded" if outcome.failed or outcome.quarantined else "nothing to do"
    lines = [f"{n} graded in {seconds:.0f} s ({60 * n / max(seconds, 1e-9):.0f} a minute)" if n else none]
    if outcome.unchanged:
        lines[0] += f", {len(outcome.unchanged)} unchanged since they were graded (--force grades them anew)"
    if outcome.how in ("none", KERNEL):
        lines.append("without a sandbox: what the submissions did to these grades, only they know")
    lines += [f"not graded: {student}: {why}" for student, why in outcome.failed.items()]
    lines += [f"{EXTENSIONS}: nobody is called {student} here: is it a slip?" for student in outcome.strangers]
    lines += [f"0 points: {student}: {why}" for student, why in outcome.quarantined.items()]
    if outcome.quarantined:
        again = " ".join(f"--student {shlex.quote(student)}" for student in outcome.quarantined)
        lines.append(f"look at what it does, and try it again with: {typed('grade')} {assignment} --force {again}")
    return [*lines, f"{typed('report')} {assignment} shows the class; the formgrader, in jupyter lab, each submission"]


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _known(found: Assignment) -> tuple[str, set[str], list[str]]:
    """Of an assignment in the gradebook: its due date and cells, as text; who has a submission in it; its exercises."""
    cells = [(cell.name, cell.source, cell.checksum) for notebook in found.notebooks for cell in notebook.source_cells]
    points = [(cell.name, cell.max_score) for notebook in found.notebooks for cell in notebook.grade_cells]
    submitted = {submission.student_id for submission in found.submissions}
    checks = [name.removeprefix(PREFIX) for name, _ in points if name.startswith(PREFIX)]
    return str((found.duedate, sorted(map(str, cells)), sorted(points))), submitted, checks


def _digest_of(paths: Sequence[Path]) -> str:
    """A hash over the files at and below these paths. Links count as what they say."""
    total = hashlib.sha256()
    for top in paths:
        for path in sorted([top, *top.rglob("*")]) if top.is_dir() else [top]:
            if path.is_symlink():
                content = os.fsencode(os.readlink(path))
            elif path.is_file() and path.suffix != ".pyc":
                with path.open("rb") as file:
                    content = hashlib.file_digest(file, "sha256").digest()
            else:
                continue
            total.update(os.fsencode(path) + b"\0" + hashlib.sha256(content).digest())
    return total.hexdigest()


@contextlib.contextmanager
def _executor(n_workers: int, cluster: str | None) -> Iterator[tuple[Executor, Callable[[], int]]]:
    """Where jobs are executed, and how many at a time just now."""
    if cluster is not None:
        from lessonkit.grading.engine.cluster import executor

        with executor(cluster) as found:
            yield found
        return
    from concurrent.futures import ThreadPoolExecutor

    pool = ThreadPoolExecutor(n_workers)
    try:
        yield pool, lambda: n_workers
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
        workers.end()
        pool.shutdown()


class _Rate(ProgressColumn):
    def render(self, task: Task) -> Text:
        return Text(f"{60 * task.speed:.0f}/min" if task.speed else "")


@contextlib.contextmanager
def progress_bar(console: Console) -> Iterator[Stage]:
    """A bar with rate and time left; where the output is no terminal, a line now and then."""
    if not console.is_terminal:
        yield lambda what, of: _Lines(what, of).tick
        return
    columns = (
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), _Rate(), TimeElapsedColumn(),
        TextColumn("left"), TimeRemainingColumn(),
    )  # fmt: skip
    with Progress(*columns, console=console, speed_estimate_period=120) as progress:

        def stage(what: str, of: int) -> Callable[[], None]:
            task = progress.add_task(what, total=of)
            return lambda: progress.advance(task)

        yield stage


class _Lines:
    """Progress for a log file: a line at the start, and one every ten seconds."""

    def __init__(self, what: str, of: int) -> None:
        self.what, self.of, self.n = what, of, 0
        self.began = self.said = time.monotonic()
        print(f"{what}: {of}", flush=True)

    def tick(self) -> None:
        self.n += 1
        now = time.monotonic()
        if now - self.said > 10:
            self.said = now
            rate = self.n / (now - self.began)
            print(f"{self.what}: {self.n} of {self.of}, {60 * rate:.0f}/min, {(self.of - self.n) / rate:.0f} s left",
                  flush=True, file=sys.stdout)  # fmt: skip
