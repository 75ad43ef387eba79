"""Whatever cuts grading off, where and how often: after it is called again, everybody has the points that they should.

Each test disturbs a run and compares all grades, comments and shown scores with those of an undisturbed one that
executed one submission after another, under the same seeds.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
import traceback
from pathlib import Path

import pytest
from nbgrader.converters import Autograde
from nbgrader.preprocessors import SaveAutoGrades
from small_class import ASSIGNMENT, STUDENTS, WRONG, command, grades, make_course, ungraded

from attncourse._needs import CommandError
from attncourse.cli import main
from attncourse.grading import preprocessors, workers
from attncourse.grading.course import own_settings
from attncourse.grading.execution import fingerprint
from attncourse.grading.grade import grade
from attncourse.grading.preprocessors import SaveExtras

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
    key = fingerprint({name: job[name] for name in job if name != "environment"}, how)
    return json.loads((place(course) / "executions" / f"{key}.json").read_text())


def place(course):
    return course / "grading" / ASSIGNMENT


def until(true, what, seconds=120):
    """Wait for an event that can only be looked for."""
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, f"waited in vain for {what}"
        time.sleep(0.01)


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


# ------------------------------------------------------------------------------------------------------------- the head


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
    (preprocessors, "write_facts", "before", 2),
    (Autograde, "write_single_notebook", "before", 1),
    (Autograde, "write_single_notebook", "after", 1),
    (Autograde, "convert_notebooks", "after", 1),
    (os, "replace", "before", 4),
    (os, "replace", "after", 5),
]


def test_a_head_that_dies_wherever_it_writes_loses_nothing(undisturbed, executed):
    for where in WRITES:
        assert forked(dying, executed, *where) == -signal.SIGKILL, where
    outcome = grade(executed, ASSIGNMENT)
    assert not outcome.failed and not outcome.executed and outcome.graded
    assert grades(executed) == undisturbed[1]


def test_a_head_that_is_killed_while_it_executes_leaves_no_process_and_loses_nothing(undisturbed, course, remembered):
    words, process = command(course, "--workers=1")
    with subprocess.Popen(words, **process, stdout=subprocess.DEVNULL) as head:
        until(lambda: list(place(course).glob("executions/*.json")), "the first execution")
        theirs = family(head.pid)
        head.kill()
    assert len(theirs) > 1
    until(lambda: not any(map(alive, theirs)), "the end of the killed head's workers")
    remembered()
    outcome = grade(course, ASSIGNMENT)
    assert not outcome.failed and grades(course) == undisturbed[1]
    assert not list(place(course).glob("tries/*"))


def test_ctrl_c_ends_with_130_leaves_no_process_and_loses_nothing(undisturbed, course, remembered):
    words, process = command(course, "--workers=1")
    with subprocess.Popen(words, **process, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as head:
        until(lambda: list(place(course).glob("executions/*.json")), "the first execution")
        theirs = family(head.pid)
        head.send_signal(signal.SIGINT)
        assert head.communicate(timeout=120)[1].strip() == "stopped" and head.returncode == 130
    until(lambda: not any(map(alive, theirs)), "the end of its workers")
    assert not list(place(course).glob("tries/*"))  # nobody is a suspect
    kept = len(list(place(course).glob("executions/*.json")))
    remembered()
    outcome = grade(course, ASSIGNMENT)
    assert len(outcome.executed) == len(EXECUTED) - kept and grades(course) == undisturbed[1]


def test_of_two_heads_the_second_says_so_and_the_first_is_undisturbed(undisturbed, executed, capfd):
    ends = []

    def tick():
        if not ends:
            ends.append(forked(main, ["grade", ASSIGNMENT, f"--course={executed}"]))

    outcome = grade(executed, ASSIGNMENT, stage=lambda what, of: tick)
    assert ends == [1]
    assert f"error: {ASSIGNMENT} is being graded already by another `attncourse grade`" in capfd.readouterr().err
    assert not outcome.failed and grades(executed) == undisturbed[1]


# ---------------------------------------------------------------------------------------------------------- the workers


def test_workers_that_are_killed_cost_nobody_a_point(undisturbed, course):
    killed = []

    def tick():
        if not killed:
            for worker in list(workers._all):
                worker._process.kill()
                killed.append(worker)

    outcome = grade(course, ASSIGNMENT, stage=lambda what, of: tick)
    assert killed and not outcome.failed and grades(course) == undisturbed[1]


def test_a_worker_that_stands_still_is_replaced(undisturbed, course, monkeypatch):
    execute, stopped = workers.Worker.execute, []
    monkeypatch.setattr(workers, "CLEAN_SECONDS", 0.1)

    def stopping(self, job):
        if stopped:
            return execute(self, job)
        stopped.append(self)
        os.kill(self._process.pid, signal.SIGSTOP)
        with monkeypatch.context() as brief:
            brief.setattr(workers, "PATIENCE", 0.5)
            return execute(self, {**job, "limits": {**job["limits"], "notebook_seconds": 0.1}})

    monkeypatch.setattr(workers.Worker, "execute", stopping)
    outcome = grade(course, ASSIGNMENT, students=["honest"])
    assert stopped[0] not in workers._all and not alive(stopped[0]._process.pid)
    assert outcome.executed == ["honest"] and grades(course)["honest"] == undisturbed[1]["honest"]


def test_a_submission_that_takes_its_worker_with_it_is_set_aside_and_the_others_are_graded(
    undisturbed, course, monkeypatch, remembered
):
    tries = []

    def execute(assignment, how, job):
        if is_poison(job):
            tries.append(1)
            raise workers.Lost("the worker died (exit code -9): it said nothing")
        return known(undisturbed[0], how, job)

    monkeypatch.setattr(workers, "execute", execute)
    outcome = grade(course, ASSIGNMENT, n_workers=2)
    assert len(tries) == workers.TRIES and not outcome.failed
    found = grades(course)
    assert json.loads(found.pop("wrong"))[0] == 0
    assert found == {student: got for student, got in undisturbed[1].items() if student != "wrong"}
    facts = json.loads((place(course) / "facts" / "wrong.json").read_text())
    assert any("set aside after 3 tries" in flag and "exit code -9" in flag for flag in facts["flags"])
    remembered()
    grade(course, ASSIGNMENT, students=["wrong"], force=True)
    assert grades(course) == undisturbed[1]


def test_a_submission_that_takes_the_head_with_it_is_set_aside_and_its_neighbours_are_not(undisturbed, course):
    def run(assignment, how, job):
        if is_poison(job):
            os.kill(os.getpid(), signal.SIGKILL)
        return known(undisturbed[0], how, job)

    def head():
        workers.run = run
        return main(["grade", ASSIGNMENT, f"--course={course}", "--workers=4"])

    ends = [forked(head) for _ in range(2 + workers.TRIES)]
    assert ends == [-signal.SIGKILL] * (1 + workers.TRIES) + [0]
    found = grades(course)
    assert json.loads(found.pop("wrong"))[0] == 0
    assert found == {student: got for student, got in undisturbed[1].items() if student != "wrong"}


def test_a_worker_that_cannot_start_is_nobodys_fault(course, monkeypatch):
    monkeypatch.setattr(workers.sys, "executable", "/bin/false")
    with pytest.raises(CommandError, match="no worker could be started: the worker died"):
        grade(course, ASSIGNMENT)
    assert not list(place(course).glob("executions/*")) and not list(place(course).glob("tries/*"))


def is_poison(job):
    return any(WRONG.misconceptions[0].body.strip().splitlines()[-1] in cell["source"] for cell in job["cells"])


# ------------------------------------------------------------------------------------------------------------ the files


def test_torn_files_are_made_anew(undisturbed, executed, remembered):
    remembered()

    def torn(path, number):
        whole = path.read_bytes()
        path.write_bytes([whole[: len(whole) // 2], b"", bytes(len(whole)), b"\xff" * 9, b"[]", b"{}"][number % 6])

    kept = sorted(place(executed).glob("executions/*.json"))
    for number, path in enumerate(kept):
        torn(path, number)
    for path in kept:
        (place(executed) / "tries").mkdir(exist_ok=True)
        (place(executed) / "tries" / path.stem).write_bytes(b"\xff")
    outcome = grade(executed, ASSIGNMENT)
    assert sorted(outcome.executed) == EXECUTED and grades(executed) == undisturbed[1]
    for number, path in enumerate(sorted(place(executed).glob("graded/*"))):
        torn(path, number)
    for number, path in enumerate(sorted(place(executed).glob("facts/*"))):
        torn(path, number)
    outcome = grade(executed, ASSIGNMENT)
    assert sorted(outcome.graded) == list(STUDENTS) and grades(executed) == undisturbed[1]


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
