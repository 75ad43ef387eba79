"""Whatever cuts grading off, where and how often: after it is called again, everybody has the points that they should.

Each test disturbs a run and compares all grades, comments and shown scores with those of an undisturbed one that
executed one submission after another, under the same seeds.
"""

import contextlib
import errno
import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
import time
import traceback
from datetime import datetime
from functools import partial
from pathlib import Path

import nbformat
import pytest
from nbgrader import api
from nbgrader.api import Gradebook
from nbgrader.apps.api import NbGraderAPI
from nbgrader.converters import Autograde
from nbgrader.preprocessors import SaveAutoGrades
from small_class import (
    ASSIGNMENT,
    NOTEBOOK,
    STUDENTS,
    WRONG,
    attempts,
    command,
    grades,
    make_course,
    record,
    ungraded,
)

from attncourse_lessons.cli import main
from commandkit.errors import CommandError
from lessonkit.grading.engine import grade as engine
from lessonkit.grading.engine import pool as workers
from lessonkit.grading.engine import preprocessors
from lessonkit.grading.engine.cluster import NoWorkersLeft
from lessonkit.grading.engine.grade import grade, summary
from lessonkit.grading.engine.preprocessors import SaveExtras
from lessonkit.grading.gradebook.nbgrader_app import Log, application, nbgrader, own_settings
from lessonkit.grading.report.results import read_log
from lessonkit.grading.submission import execution
from lessonkit.grading.submission.execution import cache_key, not_run

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="submissions are executed by our own workers on Linux"),
    pytest.mark.filterwarnings("ignore::sqlalchemy.exc.SAWarning"),
]
EXECUTED = sorted(set(STUDENTS) - {"empty"})  # an empty file is graded without


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """A course that was graded one submission after another; and its grades."""
    with own_settings(tmp_path_factory.mktemp("settings")):
        course = make_course(tmp_path_factory.mktemp("class") / "course")
        outcome = grade(course, ASSIGNMENT, n_workers=1)
        assert sorted(outcome.executed) == EXECUTED
        yield course, grades(course)


@pytest.fixture
def course(undisturbed, tmp_path):
    """The same course, not yet graded."""
    return ungraded(undisturbed[0], tmp_path)


@pytest.fixture
def executed(undisturbed, tmp_path):
    """The same course, not yet graded, but everything is executed already."""
    return ungraded(undisturbed[0], tmp_path, keep="executions")


@pytest.fixture
def remembered(undisturbed, monkeypatch):
    """Makes workers remember from the undisturbed run what comes out of a job: a second later, it would be the same."""
    return lambda: monkeypatch.setattr(workers, "execute", lambda assignment, how, job: known(undisturbed[0], how, job))


def known(course, how, job):
    """The record that a course has of a job."""
    key = cache_key({name: job[name] for name in job if name not in ("versions", "patience")}, how)
    return json.loads((place(course) / "executions" / f"{key}.json").read_text())


def place(course):
    return course / "grading" / ASSIGNMENT


def until(true, what, seconds=120):
    """Wait for an event that can only be looked for."""
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, f"waited in vain for {what}"
        time.sleep(0.01)


@contextlib.contextmanager
def dawdling(course):
    """The class with a last submission that takes half a minute: what a test does to the others it does in time."""
    late = course / "submitted" / "zzz" / ASSIGNMENT
    shutil.copytree(course / "submitted" / EXECUTED[0] / ASSIGNMENT, late)
    path = late / f"{NOTEBOOK}.ipynb"
    notebook = nbformat.read(path, as_version=4)
    notebook.cells.insert(0, nbformat.v4.new_code_cell("import time\ntime.sleep(25)"))
    nbformat.write(notebook, path)
    yield
    shutil.rmtree(late.parent)


def family(pid):
    """All processes that descend from one, itself included."""
    found = [pid]
    for each in found:
        for children in Path(f"/proc/{each}/task").glob("*/children"):
            found += map(int, children.read_text().split())
    return found


def alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


# ----------------------------------------------------------------------------------------------------- the main process


def forked(function, *arguments):
    """Call a function in a fork of this process: how it ended, as subprocess has it."""
    pid = os.fork()
    if pid == 0:
        try:
            code = function(*arguments)
        except BaseException:
            traceback.print_exc()
            code = 99
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def dying(course, owner, name, when, call, *words):
    """Grade, and die as by a power cut "before" or "after" the nth call of owner.name."""
    function, calls = getattr(owner, name), []

    def deadly(*arguments, **named):
        calls.append(1)
        if len(calls) == call and when == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        result = function(*arguments, **named)
        if len(calls) == call:
            os.kill(os.getpid(), signal.SIGKILL)
        return result

    setattr(owner, name, deadly)
    return main(["grade", ASSIGNMENT, f"--course={course}", "--workers=1", *words])


# What nbgrader and we write for a student, in this order.
WRITES = [
    (SaveAutoGrades, "preprocess", "before", 2),
    (SaveAutoGrades, "preprocess", "after", 1),
    (SaveExtras, "preprocess", "after", 1),
    (preprocessors, "log_of", "before", 2),
    (Autograde, "write_single_notebook", "before", 1),
    (Autograde, "write_single_notebook", "after", 1),
    (Autograde, "convert_notebooks", "after", 1),
    (os, "replace", "before", 4),
    (os, "replace", "after", 5),
]


def test_a_main_process_that_dies_wherever_it_writes_loses_nothing(undisturbed, executed):
    for where in WRITES:
        assert forked(dying, executed, *where) == -signal.SIGKILL, where
    outcome = grade(executed, ASSIGNMENT)
    assert not outcome.failed and not outcome.executed and outcome.graded
    assert grades(executed) == undisturbed[1]


@pytest.mark.slow
def test_a_main_process_killed_while_it_executes_leaves_no_process_and_loses_nothing(undisturbed, course, remembered):
    words, process = command(course, "--workers=1")
    with dawdling(course), subprocess.Popen(words, **process, stdout=subprocess.DEVNULL) as main_process:
        until(lambda: list(place(course).glob("executions/*.json")), "the first execution")
        theirs = family(main_process.pid)
        main_process.kill()
    assert len(theirs) > 1
    until(lambda: not any(map(alive, theirs)), "the end of the killed process's workers")
    remembered()
    outcome = grade(course, ASSIGNMENT)
    assert not outcome.failed and grades(course) == undisturbed[1]
    assert not attempts(course)


@pytest.mark.slow
def test_ctrl_c_ends_with_130_leaves_no_process_and_loses_nothing(undisturbed, course, remembered):
    words, process = command(course, "--workers=1")
    streams = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE}
    with dawdling(course), subprocess.Popen(words, **process, **streams) as main_process:
        until(lambda: list(place(course).glob("executions/*.json")), "the first execution")
        theirs = family(main_process.pid)
        main_process.send_signal(signal.SIGINT)
        assert (main_process.communicate(timeout=120)[1].strip(), main_process.returncode) == ("stopped", 130)
    until(lambda: not any(map(alive, theirs)), "the end of its workers")
    assert not attempts(course)  # nobody is a suspect
    kept = len(list(place(course).glob("executions/*.json")))
    remembered()
    outcome = grade(course, ASSIGNMENT)
    assert len(outcome.executed) == len(EXECUTED) - kept and grades(course) == undisturbed[1]


def test_a_ctrl_c_that_python_forgets_stops_the_run_all_the_same(course):
    """As in a callback of the garbage collector: what it raises there is printed and dropped."""

    class Dropped:
        def __del__(self):
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.1)

    ticks = []

    def tick():
        ticks.append(Dropped())
        ticks.clear()

    with pytest.raises(KeyboardInterrupt):
        grade(course, ASSIGNMENT, n_workers=1, stage=lambda what, of: tick)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_of_two_main_processes_the_second_says_so_and_the_first_is_undisturbed(undisturbed, executed, capfd):
    ends = []

    def tick():
        if not ends:
            ends.append(forked(main, ["grade", ASSIGNMENT, f"--course={executed}"]))

    outcome = grade(executed, ASSIGNMENT, stage=lambda what, of: tick)
    assert ends == [1]
    assert f"error: {ASSIGNMENT} is being graded already by another `attncourse grade`" in capfd.readouterr().err
    assert not outcome.failed and grades(executed) == undisturbed[1]


# ---------------------------------------------------------------------------------------------------------- the workers


@pytest.mark.slow
def test_workers_that_are_killed_cost_nobody_a_point(undisturbed, course):
    killed = []

    def tick():
        if not killed:
            for worker in list(workers._all):
                worker._process.kill()
                killed.append(worker)

    outcome = grade(course, ASSIGNMENT, stage=lambda what, of: tick)
    assert killed and not outcome.failed and grades(course) == undisturbed[1]


@pytest.mark.slow
def test_a_worker_that_stands_still_is_replaced(undisturbed, course, monkeypatch):
    execute, stopped = workers.Worker.execute, []
    monkeypatch.setattr(workers, "CLEANUP_TIMEOUT", 0.1)

    def stopping(self, job):
        if stopped:
            return execute(self, job)
        stopped.append(self)
        os.kill(self._process.pid, signal.SIGSTOP)
        with monkeypatch.context() as brief:
            brief.setattr(workers, "ANSWER_TIMEOUT", 0.5)
            return execute(self, {**job, "limits": {**job["limits"], "notebook_seconds": 0.1}})

    monkeypatch.setattr(workers.Worker, "execute", stopping)
    outcome = grade(course, ASSIGNMENT, students=["honest"])
    assert stopped[0] not in workers._all and not alive(stopped[0]._process.pid)
    assert outcome.executed == ["honest"] and grades(course)["honest"] == undisturbed[1]["honest"]


def test_a_submission_that_takes_its_worker_with_it_is_quarantined_and_the_others_are_graded(
    undisturbed, course, monkeypatch, remembered
):
    tries = []

    def execute(assignment, how, job):
        if is_poison(job):
            tries.append(1)
            raise workers.WorkerLost("the worker died (exit code -9): it said nothing")
        return known(undisturbed[0], how, job)

    monkeypatch.setattr(workers, "execute", execute)
    outcome = grade(course, ASSIGNMENT, n_workers=2)
    assert len(tries) == workers.MAX_ATTEMPTS and not outcome.failed and "wrong" not in outcome.graded
    said = summary(outcome, ASSIGNMENT, 1.0)
    assert any("wrong: quarantined after 3 attempts" in line and "exit code -9" in line for line in said)
    assert any(line.endswith(f"attncourse grade {ASSIGNMENT} --force --student wrong") for line in said)
    found = grades(course)
    assert json.loads(found.pop("wrong"))[0] == 0
    assert found == {student: got for student, got in undisturbed[1].items() if student != "wrong"}
    flags = record(course, "wrong")["notebooks"][NOTEBOOK]["flags"]
    assert any("quarantined after 3 attempts" in flag and "exit code -9" in flag for flag in flags)
    assert main(["grade", ASSIGNMENT, f"--course={course}"]) == 1
    assert len(tries) == workers.MAX_ATTEMPTS  # it was named, and not tried
    remembered()
    outcome = grade(course, ASSIGNMENT, students=["wrong"], force=True)
    assert outcome.graded == ["wrong"] and grades(course) == undisturbed[1]
    assert main(["grade", ASSIGNMENT, f"--course={course}"]) == 0


def test_what_was_quarantined_is_graded_once_nbgrader_has_executed_it(undisturbed, course, monkeypatch, remembered):
    def lost(assignment, how, job):
        raise workers.WorkerLost("the worker died")

    monkeypatch.setattr(workers, "execute", lost)
    assert "wrong" in grade(course, ASSIGNMENT, students=["wrong"]).quarantined
    remembered()
    nbgrader(course, "autograde", ASSIGNMENT, "--force", "--student=wrong", log=Log(course / "log"))
    assert grades(course)["wrong"] == undisturbed[1]["wrong"]
    outcome = grade(course, ASSIGNMENT, students=["wrong"])
    assert not outcome.quarantined and not outcome.executed
    assert not record(course, "wrong")["quarantined"]


def test_what_takes_a_clusters_workers_with_it_is_tried_again_alone_and_then_quarantined(
    undisturbed, course, monkeypatch
):
    tries = []

    def run(assignment, how, job):
        if is_poison(job):
            tries.append(1)
            raise workers.WorkerLost("the cluster's workers that executed it died")
        return known(undisturbed[0], how, job)

    monkeypatch.setattr(workers, "run", run)
    outcome = grade(course, ASSIGNMENT, n_workers=4)
    assert len(tries) == 2 and "wrong" in outcome.quarantined
    found = grades(course)
    assert json.loads(found.pop("wrong"))[0] == 0
    assert found == {student: got for student, got in undisturbed[1].items() if student != "wrong"}


def test_what_leaves_no_worker_of_a_cluster_alive_is_in_the_end_quarantined(undisturbed, course, monkeypatch):
    def run(assignment, how, job):
        if is_poison(job):
            raise NoWorkersLeft("no worker is left")
        return known(undisturbed[0], how, job)

    monkeypatch.setattr(workers, "run", run)
    for _ in range(1 + workers.MAX_ATTEMPTS):
        with pytest.raises(CommandError, match="no worker is left"):
            grade(course, ASSIGNMENT, n_workers=4)
    outcome = grade(course, ASSIGNMENT, n_workers=4)
    assert list(outcome.quarantined) == ["wrong"] and not outcome.failed


@pytest.mark.slow
def test_a_submission_that_ends_the_main_process_is_quarantined_and_its_neighbours_are_not(undisturbed, course):
    def run(assignment, how, job):
        if is_poison(job):
            os.kill(os.getpid(), signal.SIGKILL)
        return known(undisturbed[0], how, job)

    def main_process():
        workers.run = run
        return main(["grade", ASSIGNMENT, f"--course={course}", "--workers=4"])

    ends = [forked(main_process) for _ in range(2 + workers.MAX_ATTEMPTS)]
    assert ends == [-signal.SIGKILL] * (1 + workers.MAX_ATTEMPTS) + [1]
    found = grades(course)
    assert json.loads(found.pop("wrong"))[0] == 0
    assert found == {student: got for student, got in undisturbed[1].items() if student != "wrong"}


def slow(*words):
    """In place of executing: it remembers, and while others wait it puts off jobs with one of these words."""

    def execute(course, begun):
        def run(assignment, how, job):
            is_slow = any(word in cell["source"] for cell in job["cells"] for word in words)
            begun.append((is_slow, job.get("patience")))
            if is_slow and "patience" in job:
                raise workers.PutOff
            return known(course, how, job)

        return run

    return execute


@pytest.mark.parametrize("n_workers", [1, 3])
def test_a_slow_submission_waits_until_the_others_are_done(undisturbed, course, monkeypatch, n_workers):
    begun = []
    monkeypatch.setattr(workers, "execute", slow("os._exit(3)")(undisturbed[0], begun))
    order = []
    outcome = grade(course, ASSIGNMENT, n_workers=n_workers, stage=lambda what, of: lambda: order.append(1))
    assert (True, engine.PATIENCE) in begun and begun[-1] == (True, None)
    assert sum(is_slow for is_slow, _ in begun) == 2 and len(order) == len(STUDENTS)
    assert not outcome.failed and grades(course) == undisturbed[1] and not attempts(course)


def test_in_a_slow_class_nobody_is_put_off_for_long(undisturbed, course, monkeypatch):
    begun = []
    monkeypatch.setattr(engine, "MOST_SLOW", 1)
    monkeypatch.setattr(workers, "execute", slow("")(undisturbed[0], begun))
    outcome = grade(course, ASSIGNMENT, n_workers=1)
    assert 2 <= sum(patience is not None for _, patience in begun) <= 4
    assert not outcome.failed and grades(course) == undisturbed[1] and not attempts(course)


def test_nobody_is_put_off_for_whom_nobody_waits(undisturbed, course, monkeypatch):
    begun = []
    monkeypatch.setattr(workers, "execute", slow("")(undisturbed[0], begun))
    grade(course, ASSIGNMENT, students=["honest"])
    assert begun == [(True, None)]


def test_a_worker_that_cannot_start_is_nobodys_fault(course, monkeypatch):
    monkeypatch.setattr(workers.sys, "executable", "/bin/false")
    with pytest.raises(CommandError, match="no worker could be started: the worker died"):
        grade(course, ASSIGNMENT)
    assert not list(place(course).glob("executions/*")) and not attempts(course)


def test_a_submissions_process_that_cannot_start_is_nobodys_fault(course, monkeypatch):
    start = workers.Worker.start

    def start_and_lose_the_fork_server(self):
        start(self)
        for fork_server in family(self._process.pid)[1:]:
            os.kill(fork_server, signal.SIGKILL)

    monkeypatch.setattr(workers.Worker, "start", start_and_lose_the_fork_server)
    monkeypatch.setattr(workers, "MAX_ATTEMPTS", 1)
    with pytest.raises(CommandError, match=r"no worker could be started: \w+Error"):
        grade(course, ASSIGNMENT, students=["honest"])
    assert not list(place(course).glob("executions/*")) and not attempts(course)
    assert not list(course.glob("autograded/*"))


def is_poison(job):
    return any(WRONG.misconceptions[0].body.strip().splitlines()[-1] in cell["source"] for cell in job["cells"])


# ----------------------------------------------------------------------------------------------- how often, and what of


@pytest.fixture
def runs(undisturbed, monkeypatch):
    """The threads in which something was executed, if only from memory: ahead of nbgrader it is not this one."""
    threads = []

    def run(assignment, how, job):
        threads.append(threading.current_thread())
        job = {**job, "files": {}, "left_out": {}}
        return known(undisturbed[0], how, job)

    monkeypatch.setattr(workers, "run", run)
    return threads


def test_of_identical_submissions_one_is_executed_also_when_it_is_forced(undisturbed, course, runs):
    for name in ("twin-1", "twin-2", "twin-3"):
        shutil.copytree(course / "submitted" / "honest", course / "submitted" / name)
    twins = ["honest", "twin-1", "twin-2", "twin-3"]
    for force in (False, True):
        runs.clear()
        outcome = grade(course, ASSIGNMENT, students=twins, force=force, n_workers=1)
        assert len(runs) == len(outcome.executed) == 1 and sorted(outcome.graded) == twins
        found = grades(course)
        assert {found[name] for name in twins} == {undisturbed[1]["honest"]}
        assert not attempts(course)


def test_files_that_nbgrader_leaves_behind_do_not_make_it_execute_again(course, runs):
    folder = course / "submitted" / "honest" / ASSIGNMENT
    for name in ("__pycache__/helper.cpython-311.pyc", "stray.pyc", ".ipynb_checkpoints/notes.txt", "data.csv"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text("1, 2")
    (course / "solutions" / ASSIGNMENT / "table.csv").write_text("3, 4")
    grade(course, ASSIGNMENT, students=["honest"])
    assert len(runs) == 1
    with (course / "nbgrader_config.py").open("a") as config:
        config.write("c.CourseDirectory.ignore = ['d*.csv']\n")
        config.write(f"c.Autograde.exclude_overwriting = {{{ASSIGNMENT!r}: ['table.csv']}}\n")
    grade(course, ASSIGNMENT, students=["honest"], force=True)
    assert len(runs) == 2


def test_a_file_too_large_to_go_along_is_named(course, runs, monkeypatch):
    (course / "submitted" / "honest" / ASSIGNMENT / "data.bin").write_bytes(bytes(2 << 20))
    monkeypatch.setattr(execution, "MAX_FILE_MB", 1)
    grade(course, ASSIGNMENT, students=["honest"])
    flags = record(course, "honest")["notebooks"][NOTEBOOK]["flags"]
    assert any("`data.bin` (2 MB) was not there" in flag for flag in flags) and len(runs) == 1


def test_every_notebook_of_an_assignment_is_executed_ahead_and_noted(course, runs):
    second = f"{NOTEBOOK}_2"
    for folder in (course / "solutions" / ASSIGNMENT, *(course / "submitted").glob(f"*/{ASSIGNMENT}")):
        shutil.copy(folder / f"{NOTEBOOK}.ipynb", folder / f"{second}.ipynb")
    nbgrader(course, "generate_assignment", ASSIGNMENT, "--force", log=Log(course / "log"))
    theirs = course / "submitted" / "honest" / ASSIGNMENT
    shutil.copy(course / "submitted" / "wrong" / ASSIGNMENT / f"{NOTEBOOK}.ipynb", theirs / f"{second}.ipynb")
    (theirs / "Untitled.ipynb").write_text("{")
    outcome = grade(course, ASSIGNMENT, students=["honest"])
    assert len(runs) == 2 and threading.main_thread() not in runs and outcome.executed == ["honest"]

    def logs():
        found = record(course, "honest")
        return read_log(found), [found["notebooks"][name] for name in (NOTEBOOK, second)]

    both, (one, two) = logs()
    assert both.seconds == pytest.approx(one["seconds"] + two["seconds"])
    assert len(both.cells) == len(one["cells"]) + len(two["cells"])
    (theirs / f"{second}.ipynb").write_text("")
    assert grade(course, ASSIGNMENT).graded.count("honest") == 1
    both, (one, two) = logs()
    assert both.seconds == one["seconds"] and two["seconds"] is None and not two["cells"]


@pytest.mark.parametrize("button", [True, False], ids=["the formgrader's button", "nbgrader's command"])
def test_a_submission_without_a_notebook_gets_a_row_before_attncourse_has_seen_it(course, button):
    folder = course / "submitted" / "zipped" / ASSIGNMENT
    folder.mkdir(parents=True)
    (folder / "work.zip").write_bytes(b"PK")
    if button:
        app = application(course, "formgrade")
        assert NbGraderAPI(app.coursedir, parent=app).autograde(ASSIGNMENT, "zipped")["success"]
    else:
        nbgrader(course, "autograde", ASSIGNMENT, "--student=zipped", log=Log(course / "log"))
    points, _, comments, _ = json.loads(grades(course)["zipped"])
    assert points == 0 and any("an archive was handed in" in (comment or "") for _, comment in comments)


# ------------------------------------------------------------------------------------------------------------ the files


def test_torn_files_are_made_anew(undisturbed, executed, remembered):
    remembered()

    def torn(path, number):
        whole = path.read_bytes()
        path.write_bytes([whole[: len(whole) // 2], b"", bytes(len(whole)), b"\xff" * 9, b"[]", b"{}"][number % 6])

    kept = sorted(place(executed).glob("executions/*.json"))
    for number, path in enumerate(kept):
        torn(path, number)
    outcome = grade(executed, ASSIGNMENT)
    assert sorted(outcome.executed) == EXECUTED and grades(executed) == undisturbed[1]
    for number, path in enumerate(sorted(place(executed).glob("records/*"))):
        torn(path, number)
    outcome = grade(executed, ASSIGNMENT)
    assert sorted(outcome.graded) == list(STUDENTS) and grades(executed) == undisturbed[1]


@pytest.mark.parametrize("number", [errno.EACCES, errno.EIO])
def test_an_error_with_one_students_files_is_theirs_alone(undisturbed, executed, monkeypatch, number):
    failing_for(monkeypatch, "honest", OSError(number, os.strerror(number), "its notebook"))
    outcome = grade(executed, ASSIGNMENT)
    assert list(outcome.failed) == ["honest"] and os.strerror(number) in outcome.failed["honest"]
    others = {student: got for student, got in undisturbed[1].items() if student != "honest"}
    assert sorted(outcome.graded) == sorted(others)
    assert {student: got for student, got in grades(executed).items() if student != "honest"} == others


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EROFS])
def test_a_disk_that_takes_nothing_more_ends_the_run(executed, monkeypatch, number):
    failing_for(monkeypatch, "crashes", OSError(number, os.strerror(number), "its notebook"))
    with pytest.raises(CommandError, match="goes on from here"):
        grade(executed, ASSIGNMENT, students=["crashes", "honest"])
    assert not list(executed.glob("autograded/*"))


def test_a_gradebook_that_another_program_holds_ends_the_run_in_a_line_and_loses_nothing(
    undisturbed, executed, monkeypatch
):
    monkeypatch.setattr(api, "create_engine", partial(api.create_engine, connect_args={"timeout": 0.1}))
    holder = sqlite3.connect(executed / "gradebook.db", isolation_level=None)
    holder.execute("BEGIN EXCLUSIVE")  # from the start
    with pytest.raises(CommandError, match="database is locked: another program holds the gradebook"):
        grade(executed, ASSIGNMENT)
    holder.execute("ROLLBACK")

    def hold(*arguments):
        if not holder.in_transaction:
            holder.execute("BEGIN EXCLUSIVE")
        return read(*arguments)

    read = engine.Replay.sanitise
    with monkeypatch.context() as patched:
        patched.setattr(engine.Replay, "sanitise", hold)  # in the middle
        with pytest.raises(CommandError, match="database is locked: another program holds the gradebook"):
            grade(executed, ASSIGNMENT)
    holder.close()
    assert sorted(grade(executed, ASSIGNMENT).graded) == list(STUDENTS) and grades(executed) == undisturbed[1]


def test_folders_that_cannot_be_graded_are_named_and_the_others_are_graded(undisturbed, executed):
    for name in (b".hidden", b"bad\xff\xe9"):
        shutil.copytree(executed / "submitted" / "honest", executed / "submitted" / os.fsdecode(name))
    outcome = grade(executed, ASSIGNMENT)
    assert len(outcome.failed) == 2
    assert any(".hidden" in folder and "begins with a dot" in why for folder, why in outcome.failed.items())
    assert outcome.failed["bad\ufffd\ufffd"] == "the folder's name is no text (UTF-8): rename it"
    assert sorted(outcome.graded) == list(STUDENTS) and grades(executed) == undisturbed[1]
    assert all(line.encode() for line in summary(outcome, ASSIGNMENT, 1.0))


def failing_for(monkeypatch, student, error):
    """Let reading this student's submission fail."""
    read = engine.Replay.sanitise

    def sanitise(self, path):
        if Path(path).parts[-3] == student:
            raise error
        return read(self, path)

    monkeypatch.setattr(engine.Replay, "sanitise", sanitise)


@pytest.fixture
def small_disk(tmp_path):
    """A disk of 32 MB, mounted at a folder: only root may."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=32m", "none", folder], capture_output=True)
    if mounted.returncode:
        pytest.skip(f"no disk can be mounted here: {mounted.stderr.decode().strip()}")
    yield folder
    subprocess.run(["umount", "--lazy", folder], check=True)


@pytest.mark.slow
def test_a_full_disk_is_an_error_that_says_so_and_loses_nothing(undisturbed, small_disk):
    course = ungraded(undisturbed[0], small_disk, keep="executions")
    filler, full = small_disk / "filler", 0
    for free in (0, 64, 300, 600):  # KB: it is at another place each time that the disk is full
        free_now = os.statvfs(small_disk).f_bavail * os.statvfs(small_disk).f_frsize
        filler.write_bytes(bytes(max(0, free_now - (free << 10))))
        with contextlib.suppress(CommandError):
            grade(course, ASSIGNMENT)
            break
        full += 1
        filler.unlink()
    filler.unlink(missing_ok=True)
    assert full >= 2
    outcome = grade(course, ASSIGNMENT)
    assert not outcome.failed and grades(course) == undisturbed[1]


# ------------------------------------------------------------------------------------------------- what decides a grade


@pytest.fixture(scope="module")
def settled(undisturbed, tmp_path_factory):
    """A course for changes, one after another."""
    return ungraded(undisturbed[0], tmp_path_factory.mktemp("settled"), keep="executions")


@pytest.fixture
def again(settled, monkeypatch):
    """Grades one student of it again, after a run in which nothing had changed."""
    monkeypatch.setattr(workers, "execute", lambda assignment, how, job: not_run(job, "why", how))

    def again():
        return grade(settled, ASSIGNMENT, students=["honest"])

    again()
    outcome = again()
    assert (outcome.graded, outcome.unchanged, outcome.failed) == ([], ["honest"], {})
    return again


def appended(name, text="\n"):
    def change(course, *_):
        with (course / name).open("a") as file:
            file.write(text)

    return change


def in_gradebook(write):
    def change(course, *_):
        with Gradebook(f"sqlite:///{course / 'gradebook.db'}") as gradebook:
            write(gradebook, gradebook.find_assignment(ASSIGNMENT).notebooks[0])
            gradebook.db.commit()

    return change


def other_seeds(course, *_):
    path = place(course) / "seeds.json"
    seeds = json.loads(path.read_text())
    path.write_text(json.dumps({name: [seed + 1 for seed in drawn] for name, drawn in seeds.items()}))


def limits_in_the_instructors_own_settings(course, monkeypatch, folder):
    monkeypatch.setenv("JUPYTER_CONFIG_DIR", str(folder))
    (folder / "nbgrader_config.py").write_text("c.ExecuteOrReplay.memory_mb = 1234\n")


def other_points(gradebook, notebook):
    answers = {cell.name for cell in notebook.solution_cells}
    next(cell for cell in notebook.grade_cells if cell.name in answers).max_score += 1  # one graded by hand


def other_source(gradebook, notebook):
    next(cell for cell in notebook.source_cells if not cell.locked).source += "\n"


DUE = datetime(2026, 1, 1)
CHANGES = {
    "the solution": appended(f"solutions/{ASSIGNMENT}/{NOTEBOOK}.ipynb"),
    "the release": appended(f"assignments/{ASSIGNMENT}/{NOTEBOOK}.ipynb"),
    "a file beside the release": appended(f"assignments/{ASSIGNMENT}/data.txt"),
    "the due date": in_gradebook(lambda book, _: book.update_or_create_assignment(ASSIGNMENT, duedate=DUE)),
    "the points of a cell": in_gradebook(other_points),
    "the source of a cell": in_gradebook(other_source),
    "a deleted row": in_gradebook(lambda book, _: book.remove_submission(ASSIGNMENT, "honest")),
    "the seeds": other_seeds,
    "the config": appended("nbgrader_config.py", "c.ExecuteOrReplay.home_mb = 65\n"),
    "the limits": limits_in_the_instructors_own_settings,
    "the package": lambda _, monkeypatch, __: monkeypatch.setattr(engine, "versions", lambda course: {course: "next"}),
    "the submission": appended(f"submitted/honest/{ASSIGNMENT}/{NOTEBOOK}.ipynb"),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_what_decides_a_grade_has_changed_and_it_is_graded_again(settled, again, monkeypatch, tmp_path, change):
    change(settled, monkeypatch, tmp_path)
    outcome = again()
    assert (outcome.graded, outcome.unchanged, outcome.failed) == (["honest"], [], {})


def test_how_points_are_given_has_changed_and_they_are_given_again(settled, monkeypatch, tmp_path, request):
    source = shutil.copytree(Path(engine.__file__).parents[1], tmp_path / "grading")
    monkeypatch.setattr(engine, "__file__", str(source / "engine" / "grade.py"))
    again = request.getfixturevalue("again")
    appended("submission/check_cells.py")(source)
    assert again().graded == ["honest"]
