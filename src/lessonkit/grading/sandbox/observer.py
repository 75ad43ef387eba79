"""The trusted worker: has each submission run in a process of its own in the sandbox, and looks at its answers.

`python -m lessonkit.grading.sandbox.observer COURSE a03 bubblewrap FOLDER` reads jobs from stdin and writes executions
to stdout, a line of JSON each; `lessonkit.grading.submission.execution` says what they hold.

Only this process holds the course's reference answers. It looks at a learner's answer by asking the learner's process
to call it, and takes nothing but plain arrays. When the check's cell has run, it judges what it has seen. A job that
asks `where` a wrong answer is wrong is `where.py`'s: what comes out of it is no execution.
"""

from __future__ import annotations

import base64
import contextlib
import functools
import json
import math
import os
import resource
import select
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from lessonkit.course import load
from lessonkit.exercises.local_runner import LONGEST_NAME, MOST_PARAMETERS, AspectFailed, Problem, in_words, kind_of
from lessonkit.grading.sandbox import linux as walls
from lessonkit.grading.sandbox.limits import Limits
from lessonkit.grading.sandbox.outputs import Outputs, count_of
from lessonkit.grading.sandbox.protocol import Channel, ConnectionClosed, ProtocolError, tensors_in
from lessonkit.grading.sandbox.remote_autograd import Calls, attached

if TYPE_CHECKING:
    from lessonkit.exercises.exercise import Aspect, Exercise
    from lessonkit.exercises.observe import Observation
    from lessonkit.grading.sandbox.forkserver import ForkServer, Started
    from lessonkit.grading.submission.execution import ExecutedCell, Execution

KINDS = ("not written", "raised", "wrong type", "forbidden", "unusable")  # of a Problem
INTERRUPT_TIMEOUT = 2.0  # seconds that an interrupted cell has to come to its end
SEND_TIMEOUT = 10.0  # seconds that the process has to read what is sent to it
MAX_CALLBACK_NUMBERS = 1 << 17  # numbers that a function handed to an answer is called with
MANY = "had as many processes as it may have"
MAX_NUMBERS = 1 << 20  # of a reply: its tensors meet others here, and what comes of that must fit into the memory


class LimitExceeded(BaseException):
    """A limit was reached, and the process must end."""


class TimeLimitExceeded(BaseException):
    """The cell's time was up while its answer was asked."""


class Aborted(BaseException):
    """The cell came to its end while its answer was looked at."""


class PutOff(BaseException):
    """The submission takes longer than others shall wait for it: it is to be executed when they are done."""


class Run:
    """One submission from its first cell to its last, and what came out of it."""

    def __init__(self, job: Mapping[str, Any], start: Callable[[], Started], limits: Limits) -> None:
        self.job, self.start, self.limits = job, start, limits
        self.process = start()
        self.outputs = Outputs()
        self.ended: str | None = None
        self.hung = False  # the present cell could not be interrupted, and its process had to be ended
        self.peak_bytes = 0
        self.current: Mapping[str, Any] = {}
        self.observations: list[Mapping[str, Observation]] | None = None
        self.looked = False  # at the present cell's answer; it is done once
        self.callback_calls = Calls()  # of functions that were handed to the answer
        self.began = time.monotonic()
        self.until = 0.0  # when the present cell must have ended
        self._look_again, self._looked_at = 0.0, 0.0  # when memory was counted exactly, and how much it seemed to be
        self.put_off_at = self.began + job.get("patience", math.inf)

    def close(self) -> None:
        self.process.close()

    def execution(self) -> Execution:
        """Run all cells, and judge the answers. PutOff if the job's `patience` is over before that."""
        cells: list[ExecutedCell] = []
        ran: list[Mapping[str, Any]] = []  # what a new process would have to run again
        self._prepare()
        self.began = time.monotonic()
        for cell in self.job["cells"]:
            before = time.monotonic()
            count = None
            self._begin(cell)
            if self.ended is not None:
                self.outputs.stop("NotRun", f"not run, because {self.ended}")
            elif not cell["skip"]:
                count = self._cell(cell)
                if self.hung:
                    self._start_again(ran, f"`{cell['grade_id']}`" if cell["grade_id"] else "a cell")
                elif cell["exercise"] is None:
                    ran.append(cell)
            outputs, done = self.outputs.end(), time.monotonic()
            verdict = None if self.observations is None else self._verdict(cell, self.observations)
            self.began += time.monotonic() - done  # the submission has not taken this time
            cells.append({"count": count, "outputs": outputs, "seconds": round(done - before, 3), "verdict": verdict})
        self.process.kill()
        return {
            "cells": cells,
            "ended": self.ended,
            "flags": self.outputs.flags,
            "seconds": round(time.monotonic() - self.began, 3),
            "peak_mb": round(self.peak_bytes / 2**20),
        }

    def _begin(self, cell: Mapping[str, Any]) -> None:
        self.current, self.observations, self.looked, self.hung = cell, None, False, False
        self.outputs.begin()

    def _start_again(self, ran: Sequence[Mapping[str, Any]], where: str) -> None:
        """After a cell that could not be interrupted: a new process, in which the cells before it are run again.

        What they show is known. It takes of the time that the notebook has.
        """
        self.outputs.flags.append(f"could not be interrupted in {where}: the rest was run without it, in a new process")
        self.process.close()
        self.process = self.start()
        kept, self.outputs = self.outputs, Outputs()
        self._prepare()
        for cell in ran:
            if self.ended is None:
                self._begin(cell)
                self._cell(cell)
            if self.hung:
                self.ended = self.ended or "the Python process could not be interrupted when it was started again"
        self.outputs, self.hung, self.observations = kept, False, None

    def _verdict(self, cell: Mapping[str, Any], observations: Sequence[Mapping[str, Observation]]) -> dict[str, Any]:
        """The verdict on what was seen of an answer, one for each seed, as the data of an output."""
        from lessonkit.exercises.judge import judge_on_seeds

        exercise = self._exercise(cell)
        seeds = self.job["seeds"][exercise.name][: exercise.seeds]
        return judge_on_seeds(exercise, observations, seeds)._repr_mimebundle_()

    def _exercise(self, cell: Mapping[str, Any]) -> Exercise:
        """What a check's cell checks: the job says of which variation, and nothing in the notebook does."""
        return load(self.job["course"]).exercise(cell["exercise"], cell.get("variation"))

    def _prepare(self) -> None:
        """Wait until the process is there, and put the submission's files beside the notebook."""
        self.channel = Channel(self.process.connection, SEND_TIMEOUT)
        self.until = time.monotonic() + 60
        try:
            self._receive("ready")
        except (TimeoutError, LimitExceeded, ConnectionClosed, ProtocolError) as error:
            # Nothing of the submission has run: it is not to blame.
            raise RuntimeError(f"a process for a submission was lost before it was ready: {error!r}") from None
        with self._endings("while its files were written"):
            for path, content in self.job["files"].items():
                data = np.frombuffer(base64.b64decode(content), np.uint8)
                self.channel.send("file", path=path, data=torch.from_numpy(data.copy()))

    def _cell(self, cell: Mapping[str, Any]) -> int | None:
        """Run one cell; its execution count, if it came to its end."""
        now = time.monotonic()
        left = self.began + self.limits.notebook_seconds - now
        self.until = now + min(self.limits.cell_seconds, max(left, 0.0))
        whole = left < self.limits.cell_seconds
        name = f"`{cell['grade_id']}`" if cell["grade_id"] else "a cell above"
        with self._endings(f"in {name}"):
            try:
                self.channel.send("run", source=cell["source"], checks=cell["exercise"] is not None)
                return self._done()
            except ValueError as error:
                self.outputs.stop("NotRun", f"not run, because the cell is {error}")
                return None
            except Aborted:  # an error that no check may catch, such as KeyboardInterrupt
                return None
            except (TimeoutError, TimeLimitExceeded):
                self.outputs.stop("CellTimeoutError", self._overtime(whole))
                return self._interrupt(whole)
        return None

    def _overtime(self, whole: bool) -> str:
        if whole:
            return f"stopped: all cells together took more than {self.limits.notebook_seconds:g} seconds"
        return f"stopped after {self.limits.cell_seconds:g} seconds: is there a loop that does not end?"

    def _interrupt(self, whole: bool) -> int | None:
        """Interrupt the cell as a person would, and end what it has started; if that does not help, the process."""
        self.outputs.silent = self.looked = True
        self.observations = None
        self.process.interrupt()
        self.until = time.monotonic() + INTERRUPT_TIMEOUT
        count = None
        try:
            count = self._done()
            walls.end_descendants(self.process.pid)
        except (TimeoutError, LimitExceeded):
            self.hung = not whole
        if whole:
            self.ended = f"all cells together took more than {self.limits.notebook_seconds:g} seconds"
        if whole or self.hung:
            self.process.kill()
        return count

    @contextmanager
    def _endings(self, where: str) -> Iterator[None]:
        """What the end of the process means for the cell that ran, and for those after it."""
        try:
            yield
        except LimitExceeded as over:
            why = str(over)
        except ConnectionClosed:
            why = f"the Python process died ({self.process.how_it_ended()})"
        except ProtocolError:
            why = "the Python process tampered with its connection to the grader"
            self.outputs.flags.append("tampered with the connection to the grader")
        else:
            return
        self.observations = None
        self.process.kill()
        self.outputs.drain(self.process.descriptors)
        self.outputs.stop("NotRun", f"{why} before this cell was done")
        self.ended = self.ended or f"{why} {where}"

    # ------------------------------------------------------------------------------------------- talking to the process

    def _done(self) -> int | None:
        """Wait until the cell is done; its execution count."""
        count = self._receive("done").get("count")
        self.outputs.drain(self.process.descriptors)
        return count_of(count)

    def _receive(self, *wanted: str) -> dict[str, Any]:
        """The next message of a wanted kind; what is shown on the way goes into the outputs."""
        while True:
            kind, content = self.channel.receive(self.until, self._watch, self.process.descriptors)
            if kind in wanted:
                return {**content, "kind": kind}
            if kind == "done":
                raise Aborted
            if kind == "check":
                self._check(str(content.get("name")))
            elif self.outputs.silent and kind in ("reply", "problem", "callback"):
                continue  # it was on its way when the cell was interrupted
            elif kind == "callback" and "reply" in wanted:
                self._answer_callback(content)
            else:
                try:
                    taken = self.outputs.take(kind, content)
                except Exception as error:
                    raise ProtocolError(f"a message with the wrong content: {error}") from None
                if not taken:
                    raise ProtocolError(f"an unexpected {kind[:20]}")

    def _watch(self) -> None:
        self.outputs.drain(self.process.descriptors)
        count, resident = walls.processes_of(self.process.pid)
        self.peak_bytes = max(self.peak_bytes, resident)
        if count >= self.limits.processes and MANY not in self.outputs.flags:
            self.outputs.flags.append(MANY)
        if count > self.limits.processes + walls.SPARE_PROCESSES:  # where root is root's alone the system does not look
            raise LimitExceeded(f"the Python process started more than {self.limits.processes} processes and was ended")
        if time.monotonic() > self.put_off_at:
            raise PutOff
        most = self.limits.memory_mb * 2**20 * 1.25
        now = time.monotonic()
        if resident > most and (now > self._look_again or resident > self._looked_at + most / 4):
            exact = walls.processes_of(self.process.pid, exact=True)[1]
            # For many processes this takes long, and the cell waits: a tenth of the time, unless there is far more.
            self._look_again, self._looked_at = time.monotonic() + 10 * (time.monotonic() - now), resident
            if exact > most:
                raise LimitExceeded(
                    f"the Python process took more than {self.limits.memory_mb} MB of memory and was ended"
                )

    def _check(self, name: str) -> None:
        """Look at the answer, if this is the cell that checks it and the first time that it asks."""
        from lessonkit.exercises.observe import observe_through

        if name == self.current["exercise"] and name in self.job["seeds"] and not self.looked:
            self.looked = True
            exercise = self._exercise(self.current)
            runner = RemoteRunner(self._ask, exercise.forbidden)
            self.channel.callbacks, self.callback_calls = [], Calls()
            seeds = self.job["seeds"][name][: exercise.seeds]
            self.observations = [observe_through(runner, exercise, seed) for seed in seeds]
            self.channel.callbacks = None
        self.channel.send("enough")

    def _answer_callback(self, content: Mapping[str, Any]) -> None:
        """Call a function that was handed to the answer, or go back through such a call, for the learner's process."""
        try:
            value = self._call_back(**content)
        except Exception as error:  # the answer called it with something that it does not take
            self.channel.send("raised", detail=in_words(error)[:2000])
        else:
            self.channel.send("returned", value=value)

    def _call_back(self, request: str, number: int = 0, arguments: Any = (), call: int = 0, gradients: Any = ()) -> Any:
        if sum(tensor.numel() for tensor in tensors_in([arguments, gradients])) > MAX_CALLBACK_NUMBERS:
            raise ValueError("more numbers than it takes")
        if request == "back":
            return self.callback_calls.back(call, gradients)
        assert self.channel.callbacks is not None
        return self.callback_calls.add(tensors_in(arguments), self.channel.callbacks[number](*arguments))

    def _ask(self, request: str, **content: Any) -> Any:
        """The process's reply to a request. Raises AspectFailed with the problem that it reports."""
        try:
            self.channel.send(request, **content)
            reply = self._receive("reply", "problem")
        except TimeoutError:
            raise TimeLimitExceeded from None
        if reply["kind"] == "problem":
            kind, detail, where = (str(reply.get(key, "")) for key in ("kind_", "detail", "where"))
            raise AspectFailed(Problem(kind if kind in KINDS else "unusable", detail[:2000], where[:500]))
        value = reply.get("value")
        count = sum(tensor.numel() for tensor in tensors_in(value))
        if count > MAX_NUMBERS:
            raise AspectFailed(Problem("unusable", f"{count} numbers, which is too many"))
        return value


class Trials(Run):
    """A learner's process in which changed answers are defined and called, one after the other."""

    def __init__(self, job: Mapping[str, Any], start: Callable[[], Started], limits: Limits) -> None:
        super().__init__(job, start, limits)
        self._looking: Callable[[], None] | None = None

    def prepare(self, seconds: float) -> None:
        """Run the job's cells."""
        self.limits = replace(self.limits, notebook_seconds=seconds)
        self._prepare()
        self.began = time.monotonic()
        for cell in self.job["cells"]:
            self._begin(cell)
            if self.ended is None and not cell["skip"]:
                self._cell(cell)
                self._end_if_hung()

    def trial(self, source: str, looking: Callable[[], None], seconds: float) -> bool:
        """Run code that checks an answer, and look when it does; whether it got as far. `ended` says if all ends here.

        What is looked at may have `seconds`, as has the code around it.
        """
        self.outputs.begin()
        self.looked, self._looking, self._seconds = False, looking, seconds
        self.until = time.monotonic() + seconds
        with self._endings("while changes were tried"), contextlib.suppress(Aborted):
            try:
                self.channel.send("run", source=source, checks=True)
                self._done()
            except ValueError:  # more than can be sent
                pass
            except (TimeoutError, TimeLimitExceeded):
                asked = self.looked
                self._interrupt(whole=False)
                self._end_if_hung()
                return asked
        return self.looked

    def _end_if_hung(self) -> None:
        if self.hung:
            self.ended = self.ended or "the Python process could not be interrupted"

    def observed(self, exercise: Exercise, aspect: Aspect, seed: int, seconds: float, guarded: bool) -> Observation:
        """What one aspect shows of the answer that is looked at."""
        from lessonkit.exercises.observe import observe_aspect

        self.until = time.monotonic() + seconds
        self.channel.callbacks, self.callback_calls = [], Calls()
        runner = RemoteRunner(self._ask, exercise.forbidden if guarded else ())
        return observe_aspect(runner, exercise, aspect, seed)

    def value_of(self, seconds: float) -> Any:
        """What the answer that is looked at returns on nothing."""
        self.until = time.monotonic() + seconds
        runner = RemoteRunner(self._ask, ())
        with runner.isolated_rng(0):
            return runner.call(())

    def _check(self, name: str) -> None:
        if self._looking is not None and not self.looked:
            self.looked = True
            self._looking()
            self.channel.callbacks = None
            self.until = time.monotonic() + self._seconds
        self.channel.send("enough")


class RemoteRunner:
    """A runner (see `lessonkit.exercises.local_runner.Runner`) of an answer in the learner's process.

    Gradients find their way through its calls, and a function among the arguments stays here: the learner's process
    asks for what it returns.
    """

    def __init__(
        self,
        ask: Callable[..., Any],
        forbidden: tuple[str, ...],
        target: int = 0,
        leaves: Mapping[str, Tensor] = {},
        written: list[str] | None = None,
    ) -> None:
        self._ask, self.forbidden, self.target, self.leaves = ask, forbidden, target, dict(leaves)
        self.written = [] if written is None else written

    @contextmanager
    def isolated_rng(self, seed: int) -> Iterator[None]:
        self._ask("begin", seed=seed, forbidden=list(self.forbidden))
        yield

    def call(self, arguments: tuple) -> Any:
        ends = [*tensors_in(arguments), *self.leaves.values()]
        reply = self._ask("call", target=self.target, arguments=arguments)
        if not (isinstance(reply, tuple) and len(reply) == 3 and isinstance(reply[2], str)):
            raise ProtocolError("a call's reply must be its result, its number, and what it wrote into")
        result, number, written = reply
        if written:
            self.written.append(written[:2000])
        return attached(result, number, ends, functools.partial(self._ask, "back"))

    def build(self, sizes: tuple) -> RemoteRunner:
        reply = self._ask("build", sizes=tuple(sizes))
        target, parameters = reply if isinstance(reply, tuple) and len(reply) == 2 else (None, None)
        if type(target) is not int or not isinstance(parameters, dict) or len(parameters) > MOST_PARAMETERS:
            raise ProtocolError("a module's reply must be its number and its parameters")
        leaves = {}
        for name, parameter in parameters.items():
            if len(str(name)) > LONGEST_NAME or not (isinstance(name, str) and isinstance(parameter, Tensor)):
                raise AspectFailed(Problem("unusable", f"the parameter {str(name)[:100]} is {kind_of(parameter)}"))
            leaves[name] = parameter.detach().requires_grad_(parameter.dtype.is_floating_point)
        return RemoteRunner(self._ask, self.forbidden, target, leaves, self.written)

    def parameters(self) -> dict[str, Tensor]:
        return self.leaves

    def fill(self, values: Mapping[str, Tensor]) -> None:
        with torch.no_grad():
            for name, leaf in self.leaves.items():
                leaf.copy_(values[name])
        self._ask("fill", target=self.target, values=dict(values))


def main(package: str, assignment: str, kind: str, folder: str) -> None:
    """Serve jobs until stdin ends. `folder` takes temporary files.

    `kind` is "bubblewrap", "user" (another user without namespaces, for a container that forbids them) or "none".
    """
    from lessonkit.grading.sandbox.forkserver import ForkServer

    os.environ["OMP_NUM_THREADS"] = "1"
    torch.set_num_threads(1)
    tempfile.tempdir = folder
    jobs, answers = sys.stdin, os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever else prints must not be taken for an answer
    course = load(package)
    data = os.environ.get("ATTNCOURSE_DATA")
    # Before this process knows any answer.
    fork_server = ForkServer(course, assignment, kind, [Path(data)] if data else [])
    if assignment in course.assignments():  # one of the instructor's own has none
        course.exercises_of(assignment)
    # Tensors that a learner's process sent are added and multiplied here: a shape chosen to fill the memory must not.
    most = _data_bytes() + (2 << 30)
    resource.setrlimit(resource.RLIMIT_DATA, (most, most))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the main process's to handle
    threading.Thread(target=_end_with_the_main_process, args=(fork_server, folder), daemon=True).start()
    with contextlib.closing(fork_server):
        print(json.dumps({"ready": kind}), file=answers, flush=True)
        for line in jobs:
            job = json.loads(line)
            limits = Limits.of(job["limits"])
            try:
                if "where" in job:
                    from lessonkit.grading.sandbox.where import searched

                    answer = searched(job, functools.partial(_trials, job, fork_server, limits))
                else:
                    with contextlib.closing(Run(job, functools.partial(fork_server.start, limits), limits)) as run:
                        answer = {**run.execution(), "sandbox": kind}
            except PutOff:
                answer = {"put off": True}
            except (RuntimeError, OSError) as error:  # the machine's fault
                answer = {"cannot": f"{type(error).__name__}: {error}"}
            print(json.dumps(answer), file=answers, flush=True)
    shutil.rmtree(folder, ignore_errors=True)


def _trials(job: Mapping[str, Any], fork_server: ForkServer, limits: Limits) -> Trials:
    return Trials(job, functools.partial(fork_server.start, limits), limits)


def _data_bytes() -> int:
    """The private memory that this process has asked for so far."""
    status = Path("/proc/self/status").read_text()
    return 1024 * int(status.partition("VmData:")[2].split()[0])


def _end_with_the_main_process(fork_server: ForkServer, folder: str) -> None:
    """End this process and its submission when nobody holds the other end of stdin, in the middle of a job too."""
    hung_up = select.poll()
    hung_up.register(sys.stdin.fileno(), 0)
    hung_up.poll()
    fork_server.abandon()
    shutil.rmtree(folder, ignore_errors=True)
    os._exit(1)


if __name__ == "__main__":
    main(*sys.argv[1:])
