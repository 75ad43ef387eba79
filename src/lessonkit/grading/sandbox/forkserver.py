"""The process that learners' processes are forked from: it has imported torch and IPython, and no reference answer."""

from __future__ import annotations

import contextlib
import functools
import gc
import importlib
import json
import os
import select
import shutil
import signal
import socket
import sys
import tempfile
from collections.abc import Callable, Collection, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, NoReturn

import torch

from lessonkit.course import Course, folder_of
from lessonkit.grading.sandbox import student_process as child
from lessonkit.grading.sandbox.limits import Limits
from lessonkit.grading.sandbox.visible_package import build_view, imported_by_cells, packages_of

ENVIRONMENT = {
    "NBGRADER_EXECUTION": "autograde",
    "MPLBACKEND": "module://matplotlib_inline.backend_inline",
    "OMP_NUM_THREADS": "1",  # one core a submission: small tensors gain nothing from more
    "CUDA_VISIBLE_DEVICES": "",
    "PYTHONNOUSERSITE": "1",
    "PIP_RETRIES": "0",  # there is no network to try again
    "PIP_DISABLE_PIP_VERSION_CHECK": "1",
    **{name: os.environ[name] for name in ("ATTNCOURSE_DATA",) if name in os.environ},
}


class Started:
    """A learner's process, as the worker holds it. `descriptors` give what it writes past Python.

    `wait` returns its exit code when it and all that it has started have ended; minus a signal's number if one did it.
    """

    def __init__(
        self, connection: socket.socket, descriptors: Sequence[int], pid: int, wait: Callable[[], int]
    ) -> None:
        self.connection, self.descriptors, self.pid, self._wait = connection, descriptors, pid, functools.cache(wait)
        self._handle: int | None = None
        with contextlib.suppress(ProcessLookupError):  # it has ended already
            self._handle = os.pidfd_open(pid)  # stays with this process when its number is given to another
        for descriptor in descriptors:
            os.set_blocking(descriptor, False)

    def interrupt(self) -> None:
        """As Ctrl-C does: KeyboardInterrupt in the running cell."""
        self._signal(signal.SIGINT)

    def kill(self) -> None:
        """End it and everything that it has started."""
        self._signal(signal.SIGKILL)
        self._wait()

    def how_it_ended(self) -> str:
        """In words. When its connection is closed it has ended, or is about to; or it has closed it by itself."""
        if self._handle is not None and not select.select([self._handle], [], [], 1)[0]:
            return "it closed its connection to the grader"
        code = self._wait()
        if code >= 0:
            return f"it ended itself with exit code {code}"
        known: dict[int, str] = {
            signal.SIGSEGV: "segmentation fault",
            signal.SIGKILL: "killed, as the system does when memory runs out",
            signal.SIGXCPU: "its processor time was used up",
            signal.SIGXFSZ: "it wrote too large a file",
        }
        return known.get(-code) or signal.strsignal(-code) or f"signal {-code}"

    def close(self) -> None:
        self.kill()
        if self._handle is not None:
            os.close(self._handle)
        self.connection.close()
        for descriptor in self.descriptors:
            os.close(descriptor)

    def _signal(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            if self._handle is not None:
                signal.pidfd_send_signal(self._handle, number)


class ForkServer:
    """The worker's end. Make it before the worker imports anything that a learner must not see: it is a fork of it."""

    def __init__(self, course: Course, assignment: str, sandbox: str, readable: Sequence[Path] = ()) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="lessonkit-"))
        self.hidden = build_view(course, assignment, self._folder)
        self._folder.chmod(0o755)
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._pid = os.fork()
        if self._pid == 0:
            try:
                self._control.close()
                serve(theirs, self._folder, course, assignment, self.hidden, sandbox, readable)
            except BaseException as error:  # say it to the worker, which says it to the person
                with contextlib.suppress(OSError):
                    theirs.send(json.dumps({"error": f"{type(error).__name__}: {error}"[:900]}).encode())
            finally:
                os._exit(0)
        theirs.close()
        self._receive()

    def start(self, limits: Limits) -> Started:
        """A new learner's process. RuntimeError if none can be had."""
        ours, theirs = socket.socketpair()
        pipes = [os.pipe() for _ in ("stdout", "stderr")]
        given = [theirs.fileno(), *(write for _, write in pipes)]
        try:
            socket.send_fds(self._control, [json.dumps(asdict(limits)).encode()], given)
            pid = int(self._receive()["pid"])
        finally:
            theirs.close()
            for _, write in pipes:
                os.close(write)
        return Started(ours, [read for read, _ in pipes], pid, lambda: int(self._receive()["code"]))

    def close(self) -> None:
        """End the fork server, and with it whatever it has started."""
        self._control.close()
        os.waitpid(self._pid, 0)
        shutil.rmtree(self._folder, ignore_errors=True)

    def abandon(self) -> None:
        """End it with all that it has started, whatever they do. From any thread."""
        from lessonkit.grading.sandbox import linux as walls

        for pid in walls.family(self._pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        shutil.rmtree(self._folder, ignore_errors=True)

    def _receive(self) -> dict[str, Any]:
        answer = json.loads(self._control.recv(10_000) or b'{"error": "it has ended"}')
        if "error" in answer:
            raise RuntimeError(f"no process for a submission can be started: {answer['error']}")
        return answer


def serve(
    control: socket.socket,
    view: Path,
    course: Course,
    assignment: str,
    hidden: Sequence[str],
    sandbox: str,
    readable: Sequence[Path],
) -> None:
    """In the fork server: fork a process for each order, say its number, and say how it ended."""
    from lessonkit.grading.sandbox import linux as walls

    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.setsid()  # Ctrl-C is the main process's to handle
    if sandbox == "user":
        walls.own_the_orphans()
    _warm_up()
    ours = {str(folder_of(package).parent) for package in packages_of(course)}  # out of sight in the sandbox
    _show_only(view, away=ours)
    _import_ahead(course, imported_by_cells(course, assignment))
    if sandbox == "bubblewrap":
        walls.enter_namespaces(view, readable, hidden=[Path.cwd()])
        _show_only(Path(walls.COURSE), away={str(view)})
    gc.collect()
    gc.freeze()  # a collection in a fork would write to every page that the two share
    control.send(b'{"pid": 0}')
    while True:
        order, descriptors, *_ = socket.recv_fds(control, 10_000, 3)
        if not order:
            return
        limits = Limits(**json.loads(order))
        if sandbox == "bubblewrap":
            here, outside = walls.fork_child(limits, keep=descriptors, environment=ENVIRONMENT)
        else:
            home = tempfile.mkdtemp(prefix="lessonkit-")
            here = outside = os.fork()
        if here == 0:
            if sandbox == "user":
                _become_another_user(limits, descriptors, home)
            _become_child(descriptors, course, hidden, home if sandbox == "none" else None)
        for descriptor in descriptors:
            os.close(descriptor)
        control.send(json.dumps({"pid": outside}).encode())
        code = os.waitstatus_to_exitcode(os.waitpid(here, 0)[1])
        if sandbox != "bubblewrap":
            with contextlib.suppress(ProcessLookupError):
                os.killpg(here, signal.SIGKILL)  # what it has left behind
            if sandbox == "user":
                walls.end_children()
            shutil.rmtree(home, ignore_errors=True)
        control.send(json.dumps({"code": code}).encode())


def _become_another_user(limits: Limits, keep: Sequence[int], home: str) -> None:
    """Give up what can be given up without namespaces; this process is root's until here. It ends where it cannot."""
    from lessonkit.grading.sandbox import linux as walls

    try:
        os.setsid()
        os.setgroups([])
        os.chown(home, walls.ID, walls.ID)
        walls.drop_privileges(limits, keep, ENVIRONMENT, home)
    except BaseException:  # it must never run a submission as root
        os._exit(1)


def _become_child(
    descriptors: Sequence[int], course: Course, hidden: Sequence[str], home: str | None
) -> NoReturn:
    """`home` is its working folder where no sandbox has given it one."""
    try:
        connection, *streams = descriptors
        null = os.open(os.devnull, os.O_RDONLY)
        for number, descriptor in enumerate([null, *streams]):
            os.dup2(descriptor, number)
            os.close(descriptor)
        if home is not None:
            from lessonkit.grading.sandbox import linux as walls

            walls.close_files({connection})  # the worker's own line to whoever asked it is among them
            os.setsid()
            os.environ.update(ENVIRONMENT, IPYTHONDIR=home)
            os.chdir(home)
        child.Process(socket.socket(fileno=connection)).serve(course.package, packages_of(course), hidden)
    finally:
        os._exit(0)


def _warm_up() -> None:
    """Pay once for what torch and IPython import when they are first used."""
    with tempfile.TemporaryDirectory() as folder:
        os.environ["IPYTHONDIR"] = folder
        child.make_shell().run_cell("None", silent=True)
        del os.environ["IPYTHONDIR"]
    cell, state = torch.nn.GRUCell(2, 2), torch.zeros(1, 2, requires_grad=True)
    token = torch.nn.Embedding(2, 2)(torch.zeros(1, dtype=torch.int64))
    torch.autograd.grad(torch.cat([cell(token, state), token]).softmax(-1).sum(), [state, cell.weight_ih])
    with torch.random.fork_rng(devices=[]):
        torch.einsum("ij,kj->ik", torch.randn(2, 2), torch.randn(2, 2)).masked_fill(torch.eye(2) > 0, -torch.inf)


def _import_ahead(course: Course, names: Collection[str]) -> None:
    """Import what the assignment's own cells do, from the view, so that a fork has what this needs of other packages.

    The course's own modules are imported anew in each fork, where some are hidden. What is there of matplotlib then
    has its fonts, which it could not keep in a fork's folder.
    """
    for name in [name for name in sys.modules if name.partition(".")[0] in course.library]:
        del sys.modules[name]
    os.environ["MPLBACKEND"] = ENVIRONMENT["MPLBACKEND"]  # which matplotlib reads when it is imported
    for name in sorted(names):
        with contextlib.suppress(ImportError):  # a name in a module, or what is hidden
            importlib.import_module(name)
    if "matplotlib" in sys.modules:
        importlib.import_module("matplotlib.font_manager")


def _show_only(view: Path, away: set[str]) -> None:
    """Import the course's packages from the view from now on, and not from where they are installed: `away`."""
    away = away | {"", os.getcwd(), str(Path(__file__).parent)}
    sys.path[:] = [str(view), *(path for path in sys.path if path not in away or path.endswith("-packages"))]
    sys.meta_path[:] = [finder for finder in sys.meta_path if "editable" not in getattr(finder, "__module__", "")]
    sys.path_importer_cache.clear()
