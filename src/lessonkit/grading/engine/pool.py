"""Workers, as the main process holds them: processes that execute jobs, each submission in a sandbox."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import select
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from commandkit.errors import CommandError
from lessonkit.grading.sandbox.limits import Limits
from lessonkit.grading.submission.execution import KERNEL, Execution, Job, quarantined, versions

START_TIMEOUT, ANSWER_TIMEOUT = 120, 60  # seconds to start, and seconds above a submission's own limit
CLEANUP_TIMEOUT = 5  # seconds
MAX_ATTEMPTS = 3
VARIABLES = (
    "PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "PYTHONPATH", "LD_LIBRARY_PATH", "SYSTEMROOT", "ATTNCOURSE_DATA"
)  # fmt: skip


class WorkerLost(Exception):
    """The worker died, or did not answer, while it executed a job."""


class WorkerNotStarted(WorkerLost):
    """Nothing of the submission has run, because of the machine: the submission is not to blame."""


class PutOff(Exception):
    """The job's `patience` was over before the job was done. The worker is well."""


class Cancelled(Exception):
    """The work was ended on purpose, by `end`."""


@functools.cache
def how_to_execute(unsafe: bool = False) -> str:
    """The best that this machine has: "bubblewrap", or "kernel" on macOS and Windows, without a sandbox.

    On a Linux that allows no sandbox, "none" if the instructor said `unsafe`, otherwise CommandError.
    """
    if sys.platform != "linux":
        return KERNEL
    from lessonkit.grading.sandbox import linux as walls

    reason = walls.why_not()
    if reason is None:
        return "bubblewrap"
    if unsafe:
        return "none"
    raise CommandError(
        f"there can be no sandbox for students' code on this machine: {reason}. Mend that, or grade "
        "on another machine. If you trust every submission, --unsafe grades without a sandbox: a submission can "
        "then read and write whatever you can, the gradebook too"
    )


class Worker:
    """A worker process for one assignment. For one thread at a time; `kill` may be called from any."""

    def __init__(self, course: str, assignment: str, how: str) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="lessonkit-"))  # for its temporary files, however it ends
        self._folder.chmod(0o711)  # in the sandbox, root is nobody
        self._jobs, theirs = socket.socketpair()  # a pipe could not be ended from another thread
        self._process = subprocess.Popen(
            [sys.executable, "-m", "lessonkit.grading.sandbox.observer", course, assignment, how, str(self._folder)],
            stdin=theirs.fileno(),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            # One thread: OpenMP's threads would not survive the fork. And no more of the main process's variables than
            # it takes: they may hold passwords, and what a process has had in its memory a fork of it can find.
            env={name: os.environ[name] for name in VARIABLES if name in os.environ} | {"OMP_NUM_THREADS": "1"},
            start_new_session=True,  # Ctrl-C is the main process's to handle
        )
        theirs.close()
        self._buffer = bytearray()
        self._said = bytearray()

    def start(self) -> None:
        """Wait until it can take a job. Raises WorkerNotStarted."""
        try:
            self._line(START_TIMEOUT)
        except WorkerLost as error:
            raise WorkerNotStarted(str(error)) from None

    def execute(self, job: Job) -> Execution:
        """What comes out of a job. Raises WorkerLost, and PutOff."""
        self._jobs.settimeout(ANSWER_TIMEOUT)
        try:
            self._jobs.sendall(json.dumps(job).encode() + b"\n")
        except OSError as error:
            raise WorkerLost(f"the worker is gone: {error}") from None
        execution = self._line(Limits.of(job["limits"]).notebook_seconds + ANSWER_TIMEOUT)
        if "cannot" in execution:
            raise WorkerNotStarted(str(execution["cannot"]))
        if "put off" in execution:
            raise PutOff
        return execution

    def kill(self) -> None:
        """End the worker, and every process of its submissions."""
        with contextlib.suppress(OSError):
            self._jobs.shutdown(socket.SHUT_RDWR)  # it then cleans up, in the middle of a job too
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(CLEANUP_TIMEOUT)
        self._process.kill()
        self._process.wait()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _line(self, seconds: float) -> Any:
        assert self._process.stdout and self._process.stderr
        until = time.monotonic() + seconds
        out, err = self._process.stdout.fileno(), self._process.stderr.fileno()
        while b"\n" not in self._buffer:
            ready = select.select([out, err], [], [], max(0.0, until - time.monotonic()))[0]
            if not ready:
                raise WorkerLost(f"the worker gave no answer for {seconds:.0f} seconds")
            if err in ready:
                piece = os.read(err, 1 << 16)
                self._said = (self._said + piece)[-4000:]
            if out in ready:
                piece = os.read(out, 1 << 20)
                if not piece:
                    raise WorkerLost(f"the worker died (exit code {self._process.wait()}): {self._last_words()}")
                self._buffer += piece
        line, _, rest = self._buffer.partition(b"\n")
        self._buffer = bytearray(rest)
        return json.loads(line)

    def _last_words(self) -> str:
        lines = self._said.decode(errors="replace").strip().splitlines()
        return lines[-1] if lines else "it said nothing"


_here = threading.local()
_all: dict[Worker, None] = {}  # of every thread, to end them
_ends = 0  # how often all were ended


def execute(assignment: str, how: str, job: Job) -> Execution:
    """Execute a job in this thread's own worker, which is started when it is first needed.

    Raises WorkerLost, PutOff, and Cancelled when `end` was called.
    CommandError if this machine's package is not the one that the job was made with.
    """
    here = versions(job["course"])
    if job.get("versions", here) != here:
        raise CommandError(f"it has {_in_short(here)}, the main process has {_in_short(job['versions'])}: "
                           "install the same on both")  # fmt: skip
    ends = _ends
    wanted = job["course"], assignment, how
    worker, for_whom = getattr(_here, "worker", (None, None))
    try:
        if worker is None or for_whom != wanted or worker not in _all:
            if worker is not None:
                _end(worker)
            worker = Worker(*wanted)
            _all[worker] = None
            _here.worker = (worker, wanted)
            if _ends != ends:
                raise Cancelled
            worker.start()
        return worker.execute(job)
    except PutOff:
        raise
    except BaseException:
        _end(worker)
        if _ends != ends:
            raise Cancelled from None
        raise


def run(assignment: str, how: str, job: Job) -> Execution:
    """`execute`, and again if the worker was lost. After `MAX_ATTEMPTS` the job is quarantined: no cell of it has run.

    Raises PutOff, Cancelled, and CommandError where it is not the job's fault.
    """
    for _ in range(MAX_ATTEMPTS):
        try:
            return execute(assignment, how, job)
        except WorkerLost as error:
            lost = error
    if isinstance(lost, WorkerNotStarted):
        raise CommandError(f"no worker could be started: {lost}")
    reason = f"quarantined after {MAX_ATTEMPTS} attempts, in which the grading process was lost: {lost}"
    return quarantined(job, reason, how)


def run_elsewhere(assignment: str, how: str, job: Job) -> Execution:
    """`run` on another machine than the main process's, in the sandbox that this one has. All that a cluster executes.

    CommandError if it has none, unless the main process's `how` is to do without.
    """
    here = how_to_execute(unsafe=how == "none")
    if here == KERNEL:
        raise CommandError("it has no sandbox for students' code: a cluster's machines must run Linux")
    return run(assignment, here, job)


def end() -> None:
    """End all of this process's workers, and what they execute."""
    global _ends
    _ends += 1
    for worker in list(_all):
        _end(worker)


def _end(worker: Worker | None) -> None:
    if worker is not None:
        _all.pop(worker, None)
        worker.kill()


def _in_short(found: dict[str, str]) -> str:
    """Short, for a person: the package's hash is cut."""
    return ", ".join(f"{name} {version[:14]}" for name, version in found.items())
