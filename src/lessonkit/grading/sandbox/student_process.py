"""The learner's process: it runs the cells with IPython's own shell, and calls the answers that it is asked to call.

It decides nothing and knows no right answer. Everything that it says is data to the worker, which trusts none of it.
"""

from __future__ import annotations

import builtins
import contextlib
import functools
import importlib
import importlib.abc
import importlib.machinery
import os
import socket
import sys
import threading
import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from IPython.core.displayhook import DisplayHook
from IPython.core.displaypub import DisplayPublisher
from IPython.core.interactiveshell import InteractiveShell
from torch import Tensor
from traitlets import Type
from traitlets.config import Config

from lessonkit.exercises.local_runner import AspectFailed, Guard, LocalRunner, in_words
from lessonkit.grading.sandbox.protocol import Channel, ConnectionClosed, tensors_in
from lessonkit.grading.sandbox.remote_autograd import Calls, attached
from lessonkit.kernel import CALLS

INPUT = "nobody is there to type an answer to input() while the notebook is graded"


class Hook(DisplayHook):
    """Sends the value of a cell's last line."""

    say: Callable[..., None]

    def write_output_prompt(self) -> None:
        pass

    def write_format_data(self, format_dict: dict, md_dict: dict | None = None) -> None:
        fields = {"metadata": _json(md_dict or {}), "count": self.prompt_count}
        try:
            self.say("result", data=_json(format_dict), **fields)
        except ValueError as error:
            self.say("result", data={"text/plain": f"(not shown: {error})"}, **fields)

    def finish_displayhook(self) -> None:
        pass


class Publisher(DisplayPublisher):
    """Sends what `display` shows."""

    say: Callable[..., None]

    def publish(self, data: Any, metadata: Any = None, source: Any = None, *, transient: Any = None,
                update: bool = False, **other: Any) -> None:  # fmt: skip
        name = (transient or {}).get("display_id")
        fields = {"data": _json(data), "metadata": _json(metadata or {}), "name": name and str(name)}
        try:
            self.say("update" if update else "display", **fields)
        except ValueError as error:
            self.say("display", data={"text/plain": f"(not shown: {error})"}, metadata={}, name=None)

    def clear_output(self, wait: bool = False) -> None:
        self.say("clear", wait=bool(wait))


class Shell(InteractiveShell):
    """IPython's shell, which sends what a notebook would show."""

    say: Callable[..., None]
    displayhook_class = Type(Hook)
    display_pub_class = Type(Publisher)
    system = InteractiveShell.system_raw  # IPython's usual way needs a terminal, and there is none

    def enable_gui(self, gui: Any = None) -> None:
        """There are no windows here."""

    def _showtraceback(self, etype: type, evalue: BaseException, stb: list[str]) -> None:
        self.say("error", name=str(etype.__name__), value=_string(evalue), traceback=[str(line) for line in stb])

    def ask_exit(self) -> None:
        raise SystemExit("exit")


class Printed:
    """Stands in for sys.stdout or sys.stderr."""

    encoding, errors, closed = "utf-8", "replace", False

    def __init__(self, name: str, say: Callable[..., None], descriptor: int) -> None:
        self.name, self._say, self._descriptor = f"<{name}>", say, descriptor
        self._stream = name

    def write(self, text: str) -> int:
        if not isinstance(text, str):
            raise TypeError(f"write() argument must be str, not {type(text).__name__}")
        for start in range(0, len(text), 100_000):
            self._say("stream", name=self._stream, text=str(text[start : start + 100_000]))
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.write(line)

    def flush(self) -> None:
        pass

    def isatty(self) -> bool:
        return False

    def readable(self) -> bool:
        return False

    def writable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return False

    def fileno(self) -> int:
        return self._descriptor


class Process:
    """The state of one learner's process: its shell, and the objects that the worker may ask for."""

    def __init__(self, connection: socket.socket) -> None:
        self.channel = Channel(connection)
        self.main = threading.get_ident()
        self.objects: list[LocalRunner] = []  # the answer under the check, and the modules that it built
        self.calls = Calls()
        self.channel.make_callable = lambda number: RemoteCallable(self, number)
        self.left_out: list[str] = []  # files that had no room

    def serve(self, course: str, packages: Sequence[str], hidden: Sequence[str]) -> None:
        """Run cells until the worker has gone."""
        sys.stdout, sys.stderr = Printed("stdout", self.say, 1), Printed("stderr", self.say, 2)  # type: ignore[assignment]
        builtins.input = _no_input
        sys.path.insert(1, "")  # as in a kernel, the files beside the notebook; but the course's package before them
        install(self, course, packages, hidden)
        os.register_at_fork(after_in_child=self._leave)
        shell = make_shell()
        for part in (Hook, Publisher, Shell):
            part.say = staticmethod(self.say)  # type: ignore[attr-defined, assignment]
        with contextlib.suppress(ConnectionClosed, OSError):
            self.say("ready")
            while True:
                with contextlib.suppress(KeyboardInterrupt):  # it may come when the cell has ended already
                    kind, fields = self.channel.receive()
                    if kind == "file" and not _written(**fields):
                        self.left_out.append(str(fields["path"]))
                    elif kind == "run":  # else a request that came when its cell had been interrupted
                        self._say_what_is_left_out()
                        if fields["checks"]:
                            shell.user_ns["check"] = Check(self)  # a learner may have used the name for something else
                        try:
                            shell.run_cell(fields["source"], store_history=True)
                        finally:
                            self.say("done", count=shell.execution_count - 1)

    def say(self, kind: str, **fields: Any) -> None:
        self.channel.send(kind, **fields)

    def _say_what_is_left_out(self) -> None:
        if self.left_out:
            names = f"{', '.join(self.left_out[:5])}{' and more' if len(self.left_out) > 5 else ''}"
            print(f"{len(self.left_out)} of your files have no room where this is graded: {names}", file=sys.stderr)
            self.left_out.clear()

    def _leave(self) -> None:
        """In a process that a cell has forked: the worker hears only what comes from the first."""
        self.channel.socket.close()
        sys.stdout, sys.stderr = (open(number, "w", buffering=1, closefd=False) for number in (1, 2))  # noqa: SIM115

    def check(self, name: str, answer: Any, seeds: Any = None) -> Judged:
        """In place of the course's own `check`: the worker looks at the answer. The points are decided elsewhere."""
        if threading.get_ident() != self.main:
            raise RuntimeError("check() must be called from the notebook's own cell")
        if self.objects:
            raise RuntimeError("check() must not be called from an answer that is being checked")
        self.say("check", name=str(name))
        try:
            with contextlib.ExitStack() as undo:
                while self._answer_to_request(answer, undo):
                    pass
        finally:
            self.objects, self.calls = [], Calls()
        return Judged(str(name))

    def _answer_to_request(self, answer: Any, undo: contextlib.ExitStack) -> bool:
        """Do what the worker asks next; False if it has seen enough."""
        kind, fields = self.channel.receive()
        if kind == "enough":
            return False
        try:
            self.say("reply", value=getattr(self, f"_{kind}")(answer, undo, **fields))
        except AspectFailed as failed:
            problem = failed.problem
            self.say("problem", kind_=problem.kind, detail=problem.detail[:2000], where=problem.where[:500])
        except (Exception, SystemExit) as error:
            self.say("problem", kind_="unusable", detail=in_words(error)[:2000], where="")
        return True

    # The worker's requests.

    def _begin(self, answer: Any, undo: contextlib.ExitStack, seed: int, forbidden: list[str]) -> None:
        undo.close()
        self.objects, self.calls = [LocalRunner(answer, _guard(tuple(forbidden)))], Calls()
        undo.enter_context(self.objects[0].isolated_rng(seed))

    def _call(self, answer: Any, undo: Any, target: int, arguments: tuple) -> tuple[Any, int, str]:
        runner = self.objects[target]
        runner.written.clear()
        result = runner.call(arguments)
        ends = [*tensors_in(arguments), *(runner.parameters().values() if target else ())]
        return *self.calls.add(ends, result), "".join(runner.written[:1])

    def _back(self, answer: Any, undo: Any, call: int, gradients: list[Tensor | None]) -> list[Tensor | None]:
        return self.calls.back(call, gradients)

    def _build(self, answer: Any, undo: Any, sizes: tuple) -> tuple[int, dict[str, Tensor]]:
        self.objects.append(self.objects[0].build(sizes))
        return len(self.objects) - 1, self.objects[-1].parameters()

    def _fill(self, answer: Any, undo: Any, target: int, values: dict[str, Tensor]) -> None:
        self.objects[target].fill(values)


class RemoteCallable:
    """Stands for a function that the check hands to the answer: the worker has it, and is asked for what it returns."""

    def __init__(self, process: Process, number: int) -> None:
        self._process, self._number = process, number

    def __call__(self, *arguments: Any) -> Any:
        result, number = self._ask("call", number=self._number, arguments=arguments)
        return attached(result, number, tensors_in(arguments), functools.partial(self._ask, "back"))

    def _ask(self, request: str, **content: Any) -> Any:
        process = self._process
        if not process.objects or threading.get_ident() != process.main:
            raise RuntimeError("this function is only there while the check that handed it over calls the answer")
        process.say("callback", request=request, **content)
        kind, fields = process.channel.receive()
        if kind != "returned":
            raise ValueError(str(fields.get("detail")))
        return fields["value"]


class Judged:
    """What `check` returns here."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return f"{self.name}: the answer has been looked at"

    def _ipython_display_(self) -> None:
        """Nothing: what was found is shown in its place."""


def make_shell() -> Shell:
    """The shell that a notebook's cells run in, as in a kernel, but without history on disk. It is made only once."""
    config = Config()
    config.HistoryManager.enabled = False
    config.InteractiveShell.cache_size = 1000
    config.InteractiveShell.xmode = "Context"
    return Shell.instance(config=config)


def install(process: Process, course: str, packages: Sequence[str], hidden: Sequence[str]) -> None:
    """Put this process's `check` in the place of the course's, and refuse to import what a learner must build."""
    for name in [name for name in sys.modules if name.partition(".")[0] in packages]:
        del sys.modules[name]
    stand_in = types.ModuleType(course, "What is here of the checks while a notebook is graded.")
    here = {**dict.fromkeys(CALLS, _nothing), "check": Check(process), "solved": _not_here}
    vars(stand_in).update(here)
    sys.modules[course] = stand_in
    sys.meta_path.insert(0, Hidden(hidden))


class Hidden(importlib.abc.MetaPathFinder):
    """Says why some of the course's own modules are not there."""

    def __init__(self, names: Sequence[str]) -> None:
        self.names = tuple(names)

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> importlib.machinery.ModuleSpec | None:
        if any(name == hidden or name.startswith(f"{hidden}.") for hidden in self.names):
            raise ModuleNotFoundError(f"{name} may not be used in this assignment: write what it asks for", name=name)
        return None


def _written(path: str, data: Tensor) -> bool:
    """Put one of the submission's files into the working folder; False, and nothing there, if it has no room."""
    try:
        os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
        with open(path, "wb") as file:
            file.write(data.numpy().tobytes())
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(path)
        return False
    return True


def _no_input(prompt: object = "", /) -> str:
    raise EOFError(INPUT)


class Check:
    """What a notebook calls `check`, while it is graded."""

    def __init__(self, process: Process) -> None:
        self._process = process

    def __call__(self, name: str, answer: Any = None, seeds: Any = None, variation: Any = None) -> Judged:
        return self._process.check(name, answer, seeds)

    def case(self, *asked: Any) -> None:
        """A failing call is for the learner's own notebook."""

    where = case


def _nothing(*asked: Any) -> None:
    """Hints, points so far and the check of the whole are for the learner's own notebook."""


def _not_here(name: str) -> bool:
    """A cell that uses an answer is for the learner's own notebook."""
    return False


@functools.cache
def _guard(forbidden: tuple[str, ...]) -> Guard:
    """A guard against those of the names that stand for something here: the course's own modules do not."""
    found: list[str] = []
    for name in forbidden:
        with contextlib.suppress(LookupError, ImportError):
            found += Guard((name,)).targets
    return Guard(tuple(found))


def _json(bundle: Mapping) -> dict[str, Any]:
    """A bundle of representations with nothing in it but text and JSON; bytes (pictures) as base64 text."""
    import base64

    def plain(value: Any) -> Any:
        if isinstance(value, bytes):
            return base64.b64encode(value).decode()
        if value is None or isinstance(value, bool | int | float | str):
            return value
        if isinstance(value, Mapping):
            return {str(key): plain(item) for key, item in value.items()}
        if isinstance(value, tuple | list):
            return [plain(item) for item in value]
        return str(value)

    return {str(kind): plain(value) for kind, value in bundle.items()}


def _string(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:
        return f"<{type(error).__name__} whose text cannot be had>"
