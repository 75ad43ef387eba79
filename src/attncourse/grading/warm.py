"""Kernels that start warm: forked from a process that has imported torch and the checks already. Linux only.

Each submission still has a process of its own. `python -m attncourse.grading.warm` is the process that forks.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
from threading import Lock
from typing import Any

from jupyter_client.manager import AsyncKernelManager
from jupyter_client.provisioning import LocalProvisioner

LAUNCHER = [sys.executable, "-m", "ipykernel_launcher"]


def available() -> bool:
    """Whether this system can start kernels warm."""
    return sys.platform == "linux" and hasattr(os, "pidfd_open")


class Zygote:
    """The process that forks kernels, as its client sees it. Its kernels die with it."""

    def __init__(self) -> None:
        # One thread: OpenMP's threads would not survive the fork.
        self._process = subprocess.Popen(
            [sys.executable, "-m", __name__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            start_new_session=True,  # Ctrl-C is the head's to handle
        )
        self._lock = Lock()

    def fork(self, arguments: list[str], env: dict[str, str], cwd: str) -> int:
        """Start a kernel; return its process id. OSError if the zygote is gone."""
        with self._lock:
            assert self._process.stdin and self._process.stdout
            self._process.stdin.write(json.dumps([arguments, env, cwd]) + "\n")
            self._process.stdin.flush()
            answer = self._process.stdout.readline()
        if not answer:
            raise OSError("the process that starts kernels has ended")
        return int(answer)

    def close(self) -> None:
        """End the zygote and every kernel that it forked."""
        assert self._process.stdin and self._process.stdout
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()


class WarmKernelManager(AsyncKernelManager):
    """Starts kernels from `zygote` (set on a subclass, see `manager_of`)."""

    zygote: Zygote

    def __init__(self, **traits: Any) -> None:
        super().__init__(**traits)
        self.provisioner = _Forked(parent=self, kernel_spec=self.kernel_spec)


def manager_of(zygote: Zygote) -> type[WarmKernelManager]:
    """The kernel manager class whose kernels come from this zygote."""
    return type("WarmKernelManager", (WarmKernelManager,), {"zygote": zygote})


class _Forked(LocalProvisioner):
    process: Any

    async def launch_kernel(self, cmd: list[str], **kwargs: Any) -> Any:
        if cmd[: len(LAUNCHER)] != LAUNCHER:  # another language, or another environment
            return await super().launch_kernel(cmd, **kwargs)
        cwd = kwargs.get("cwd") or os.getcwd()
        manager: Any = self.parent
        self.pid = self.pgid = manager.zygote.fork(cmd[len(LAUNCHER) :], kwargs["env"], str(cwd))
        self.process = _Process(self.pid)
        return self.connection_info


class _Process:
    """As much of subprocess.Popen as a provisioner uses, for a process that is not our child."""

    stdin = stdout = stderr = None

    def __init__(self, pid: int) -> None:
        self.pid = pid
        try:
            self._fd: int | None = os.pidfd_open(pid)
        except ProcessLookupError:
            self._fd = None

    def poll(self) -> int | None:
        """None while it runs, then 1: its exit status is known to the zygote alone, and nobody asks."""
        if self._fd is not None and not select.select([self._fd], [], [], 0)[0]:
            return None
        return 1

    def wait(self) -> int:
        if self._fd is not None:
            select.select([self._fd], [], [])
            os.close(self._fd)
            self._fd = None
        return 1

    def send_signal(self, number: int) -> None:
        if self._fd is not None:
            signal.pidfd_send_signal(self._fd, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)


def serve() -> None:
    """Read orders from stdin, a line each; fork; answer with the process id."""
    import ipykernel.kernelapp

    from attncourse import exercises

    for assignment in exercises.assignments():
        for exercise in exercises.of(assignment):
            # The first check pays for late imports of torch's; a wrong answer's, for observing every misconception.
            for seeds in (exercises.VISIBLE_SEEDS, exercises.hidden_seeds(exercise.name)):
                exercises.check(exercise.name, exercise.misconceptions[0].answer, seeds)
    del sys.path[0]  # this process's folder: a kernel has its own
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the system buries the kernels
    for line in sys.stdin:
        arguments, env, cwd = json.loads(line)
        pid = os.fork()
        if pid == 0:
            _become_kernel(ipykernel.kernelapp.IPKernelApp, arguments, env, cwd)
        print(pid, flush=True)


def _become_kernel(app: Any, arguments: list[str], env: dict[str, str], cwd: str) -> None:
    """Never returns."""
    import numpy
    import torch

    try:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.setsid()
        os.chdir(cwd)
        os.environ.clear()
        os.environ.update(env, JPY_PARENT_PID=str(os.getppid()))
        null = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(null, stream)
        numpy.random.seed()  # as in a fresh process: from the system's noise;
        torch.seed()  # Python's own generator does it by itself
        sys.argv = ["ipykernel_launcher", *arguments]
        app.launch_instance(argv=arguments)
    finally:
        os._exit(0)


if __name__ == "__main__":
    serve()
