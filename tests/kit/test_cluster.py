"""A class graded by a Dask scheduler and its workers: processes of their own, each in a folder of its own."""

import contextlib
import os
import socket
import subprocess
import sys
import time
from concurrent.futures import Future
from pathlib import Path

import pytest
from small_class import ASSIGNMENT, STUDENTS, attempts, grades, make_course, ungraded

from commandkit.errors import CommandError
from lessonkit.grading.engine import cluster
from lessonkit.grading.engine import pool as workers
from lessonkit.grading.engine.grade import grade
from lessonkit.grading.gradebook.nbgrader_app import own_settings
from lessonkit.grading.submission.execution import checked

pytest.importorskip("distributed")
pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="a cluster's machines run Linux"),
    pytest.mark.filterwarnings("ignore::sqlalchemy.exc.SAWarning"),
]
DASK = {"DASK_DISTRIBUTED__ADMIN__LOW_LEVEL_LOG_LENGTH": "0", "OMP_NUM_THREADS": "1"}


def until(true, what, seconds=120):
    """Wait for an event that can only be looked for."""
    end = time.monotonic() + seconds
    while not (found := true()):
        assert time.monotonic() < end, f"waited in vain for {what}"
        time.sleep(0.02)
    return found


class Machines:
    """A scheduler and its workers. Each has its own folder, and nothing in common but the loopback."""

    def __init__(self, folder):
        self.folder, self.processes = folder, []
        self.scheduler, self.address = self.start_scheduler()

    def start_scheduler(self):
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        process = self._start("dask_scheduler", "--host=127.0.0.1", f"--port={port}", "--no-show")

        def listens():
            assert process.poll() is None, self.said()
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
                return True

        until(listens, "the scheduler")
        return process, f"tcp://127.0.0.1:{port}"

    def start_worker(self, *words, **environment):
        """A worker with one thread and, unless `words` say otherwise, no nanny, that has joined the scheduler."""
        known = set(self.workers())
        process = self._start("dask_worker", self.address, "--no-nanny", "--nthreads=1", *words, **environment)
        until(lambda: set(self.workers()) - known, f"a worker: {self.said()}")
        return process

    def workers(self):
        from distributed import Client

        with Client(self.address, set_as_default=False) as client:
            return client.nthreads()

    def _start(self, program, *words, **environment):
        folder = self.folder / f"{program}-{len(self.processes)}"
        folder.mkdir()
        process = subprocess.Popen(
            [sys.executable, "-m", f"distributed.cli.{program}", "--no-dashboard", *words],
            cwd=folder, env={**os.environ, **DASK, **environment}, stdin=subprocess.DEVNULL,
            stdout=(folder / "log").open("w"), stderr=subprocess.STDOUT,
        )  # fmt: skip
        self.processes.append(process)
        return process

    def said(self):
        return "\n".join(path.read_text()[-2000:] for path in self.folder.glob("*/log"))

    def close(self):
        for process in self.processes:
            process.kill()
            process.wait()


@pytest.fixture(scope="module")
def machines(tmp_path_factory):
    """A scheduler and two workers."""
    found = Machines(tmp_path_factory.mktemp("machines"))
    try:
        found.start_worker()
        found.start_worker()
        yield found
    finally:
        found.close()


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """A course that was graded here, one submission after another; and its grades."""
    with own_settings(tmp_path_factory.mktemp("settings")):
        course = make_course(tmp_path_factory.mktemp("class") / "course")
        grade(course, ASSIGNMENT)
        yield course, grades(course)


def watched(after_each):
    """A stage that calls `after_each` with the number of students that are done."""
    done = []

    def tick():
        done.append(1)
        after_each(len(done))

    return lambda what, of: tick


def sandbox_workers(pid):
    """The ids of the sandbox workers that a Dask worker has started."""
    children = Path(f"/proc/{pid}/task").glob("*/children")
    return [int(child) for task in children for child in task.read_text().split()]


def alive(pid):
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


@pytest.mark.slow
def test_a_cluster_gives_the_grades_that_this_machine_gives(undisturbed, machines, tmp_path):
    course = ungraded(undisturbed[0], tmp_path)
    outcome = grade(course, ASSIGNMENT, cluster=machines.address)
    assert not outcome.failed and sorted(outcome.executed) == sorted(set(STUDENTS) - {"empty"})
    assert grades(course) == undisturbed[1]


@pytest.mark.slow
def test_workers_that_die_and_others_that_join_cost_nobody_a_point(undisturbed, machines, tmp_path):
    course = ungraded(undisturbed[0], tmp_path)
    first = [process for process in machines.processes if process is not machines.scheduler]
    theirs = [pid for process in first for pid in sandbox_workers(process.pid)]

    def after_each(done):
        if done == 2:
            for process in first:
                process.kill()
            machines.start_worker()

    outcome = grade(course, ASSIGNMENT, cluster=machines.address, stage=watched(after_each))
    assert not outcome.failed and grades(course) == undisturbed[1]
    assert theirs
    until(lambda: not any(map(alive, theirs)), "the end of the processes that the dead workers had started")


@pytest.mark.slow
def test_a_worker_with_another_version_is_an_error_that_names_it(undisturbed, machines, tmp_path, monkeypatch):
    course = ungraded(undisturbed[0], tmp_path)
    ours = {**workers.versions("attncourse_lessons"), "torch": "2.0"}
    monkeypatch.setattr("lessonkit.grading.engine.grade.versions", lambda course: ours)
    with pytest.raises(CommandError, match=r"tcp://127\.0\.0\.1:\d+ \(.+\).*torch 2\.13.*torch 2\.0.*install the same"):
        grade(course, ASSIGNMENT, cluster=machines.address)
    assert not list((course / "grading").rglob("executions/*")) and not attempts(course)


@pytest.mark.slow
def test_a_worker_that_lacks_a_module_is_told_what_to_install(machines):
    def function(): ...

    function.__module__, function.__qualname__ = "not_installed", "function"
    with (
        cluster.executor(machines.address) as (executor, _),
        pytest.raises(CommandError, match=r"no not_installed: install"),
    ):
        executor.submit(function).result()


@pytest.mark.slow
def test_work_that_takes_its_worker_with_it_is_lost(tmp_path, monkeypatch):
    monkeypatch.setitem(DASK, "DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES", "0")
    machines = Machines(tmp_path)
    try:
        machines.start_worker()
        with (
            cluster.executor(machines.address) as (executor, _),
            pytest.raises(workers.WorkerLost, match="that executed it died"),
        ):
            executor.submit(os._exit, 1).result()
    finally:
        machines.close()


@pytest.mark.slow
def test_work_for_which_no_worker_is_left_ends_with_an_error(machines, monkeypatch):
    monkeypatch.setattr(cluster, "EMPTY_SECONDS", 0)
    with cluster.executor(machines.address) as (executor, _):
        slow = executor.submit(time.sleep, 600)
        for process in machines.processes:
            if process is not machines.scheduler:
                process.kill()
        with pytest.raises(CommandError, match="no worker is left"):
            slow.result(60)


@pytest.mark.slow
def test_a_scheduler_without_workers_is_an_error_that_says_how_to_start_some(machines):
    until(lambda: not machines.workers(), "the scheduler to notice that the workers are gone")
    with pytest.raises(CommandError, match=f"no workers: start `dask worker {machines.address}`"), cluster.executor(
        machines.address
    ):
        raise AssertionError("there is nothing to execute with")


@pytest.mark.slow
def test_a_scheduler_that_dies_loses_nothing_that_was_graded(undisturbed, machines, tmp_path):
    course = ungraded(undisturbed[0], tmp_path)
    machines.start_worker()

    def after_each(done):
        if done == 2:
            machines.scheduler.kill()

    with pytest.raises(CommandError, match=f"the scheduler at {machines.address} was lost"):
        grade(course, ASSIGNMENT, cluster=machines.address, stage=watched(after_each))
    assert not list((course / "grading").rglob("tries/*"))  # nobody is a suspect
    with pytest.raises(CommandError, match=f"no Dask scheduler can be reached at {machines.address}"):
        grade(course, ASSIGNMENT, cluster=machines.address)
    outcome = grade(course, ASSIGNMENT)
    assert len(outcome.unchanged) >= 2 and grades(course) == undisturbed[1]


def test_what_is_put_off_on_another_machine_is_put_off_here(monkeypatch):
    def runs(*arguments):
        raise workers.PutOff

    monkeypatch.setattr(workers, "run_elsewhere", runs)
    answer = Future()
    answer.set_result(cluster.on_node("lessonkit.grading.engine.pool:run_elsewhere", "[]"))
    with pytest.raises(workers.PutOff):
        cluster._result(answer)


@pytest.mark.parametrize("address", ["nonsense", "tcp://127.0.0.1", "tcp://127.0.0.1:x", "smoke://127.0.0.1:1"])
def test_an_address_that_is_none_is_an_error(address):
    with pytest.raises(CommandError, match=address), cluster.executor(address):
        raise AssertionError("there is no such cluster")


def test_something_else_that_listens_there_is_an_error(monkeypatch):
    monkeypatch.setattr(cluster, "CONNECT_SECONDS", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"tcp://127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(CommandError, match=f"{address} .no answer"), cluster.executor(address):
            raise AssertionError("there is no such cluster")


def test_a_machine_without_a_sandbox_refuses(monkeypatch):
    monkeypatch.setattr(workers, "how_to_execute", lambda unsafe: workers.KERNEL)
    with pytest.raises(CommandError, match="no sandbox"):
        workers.run_elsewhere(ASSIGNMENT, "bubblewrap", {})


CELL = {"count": 1, "outputs": [], "seconds": 0.1, "verdict": None}
EXECUTION = {"cells": [CELL], "ended": None, "flags": [], "seconds": 0.1, "peak_mb": 1, "sandbox": "bubblewrap"}
NOT_EXECUTIONS = [
    None,
    [],
    "text",
    {},
    {**EXECUTION, "cells": []},
    {**EXECUTION, "cells": [CELL, CELL]},
    {**EXECUTION, "cells": {"0": CELL}},
    {**EXECUTION, "cells": [None]},
    {**EXECUTION, "cells": [{**CELL, "outputs": [{"output_type": "magic"}]}]},
    {**EXECUTION, "cells": [{**CELL, "outputs": ["text"]}]},
    {**EXECUTION, "cells": [{**CELL, "verdict": []}]},
    {**EXECUTION, "cells": [{name: CELL[name] for name in ("count", "outputs", "seconds")}]},
    {**EXECUTION, "seconds": "long"},
    {**EXECUTION, "peak_mb": True},
    {**EXECUTION, "flags": [1]},
    {**EXECUTION, "ended": 3},
    {name: EXECUTION[name] for name in EXECUTION if name != "sandbox"},
]


def test_an_execution_is_believed_only_if_it_is_one():
    assert checked(EXECUTION, 1) is EXECUTION
    for wrong in NOT_EXECUTIONS:
        with pytest.raises(ValueError):
            checked(wrong, 1)
