"""Where a learner's answer lives: run it, watch it, and say in plain words what went wrong.

Nothing here knows a right answer, or what is being looked at: it runs in the learner's kernel, and in the sandbox.
"""

from __future__ import annotations

import builtins
import importlib
import inspect
import linecache
import re
import sys
import traceback
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, FrameType, ModuleType
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from lessonkit.exercises.nested import each_tensor
from lessonkit.kernel import did_you_mean

_TORCH = str(Path(torch.__file__).parent)

# What torch says, cut short where its advice leads astray here; and what to do instead.
_ADVICE = {
    "Can't call numpy() on Tensor that requires grad": ": stay with tensor operations, numpy passes no gradient on",
    "modified by an inplace operation": ": make new tensors, and do not write into those that others came from",
    "before Module.__init__() call": ": `__init__` must begin with `super().__init__()`",
}
# Torch's words for these; beside them the shapes of what came in help more than anything.
MOST_PARAMETERS, LONGEST_NAME = 1_000, 200  # of a module that a check looks at; characters
SHAPES_DO_NOT_MEET = ("shapes cannot be multiplied", "must match the size of tensor", "Expected size for first two",
                      "is invalid for input of size", "Sizes of tensors must match", "size mismatch, got input",
                      "inconsistent tensor size", "does not broadcast with previously")  # fmt: skip


@dataclass(frozen=True)
class Problem:
    """Why an aspect has no value: the kind of thing that happened, its details, and the learner's line where it did."""

    kind: str  # "not written", "raised", "wrong type", "forbidden" or "unusable"; a judge adds "written"
    detail: str = ""
    where: str = ""


class AspectFailed(Exception):
    """Ends the watching of one aspect, carrying the problem."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.detail)
        self.problem = problem


@dataclass(frozen=True)
class Opaque:
    """Stands for an object of the learner's that is no plain data, where it was not to come along."""

    kind: str  # "a list of 3", "a Module"


class Runner(Protocol):
    """Runs a learner's function, class or module, wherever it lives. Every method raises AspectFailed."""

    written: list[str]  # what is to be said of each call that wrote into its arguments, which are copies

    def call(self, arguments: tuple) -> Any:
        """What the answer returns."""

    def build(self, sizes: tuple) -> Runner:
        """The module that the answer, a class, makes of these sizes."""

    def parameters(self) -> dict[str, Tensor]:
        """The module's parameters by name, to take gradients at."""

    def fill(self, values: Mapping[str, Tensor]) -> None:
        """Give every parameter of the module a value."""

    def isolated_rng(self, seed: int) -> AbstractContextManager[None]:
        """Seeds the answer's random numbers, and gives the learner's own state back afterwards."""


def _unchanged(copy: Any, value: Any) -> bool:
    if isinstance(value, Tensor):
        return isinstance(copy, Tensor) and value.shape == copy.shape and _equal(value, copy)
    if isinstance(value, dict):
        return value.keys() == copy.keys() and all(_unchanged(copy[key], item) for key, item in value.items())
    if isinstance(value, list | tuple):
        return type(value) is type(copy) and len(value) == len(copy) and all(map(_unchanged, copy, value))
    return value is copy or bool(value == copy)


def _equal(a: Tensor, b: Tensor) -> bool:
    """NaN equals NaN."""
    return torch.equal(a, b) or bool(((a == b) | ((a != a) & (b != b))).all())


class LocalRunner:
    """A runner in this process."""

    def __init__(self, function: Any, guard: Guard, written: list[str] | None = None) -> None:
        self.function, self.guard = function, guard
        self.written = [] if written is None else written

    def call(self, arguments: tuple) -> Any:
        if not callable(self.function):
            raise AspectFailed(
                Problem("wrong type", f"got {kind_of(self.function)} where the function itself is wanted")
            )
        # Copies, so that writing spoils nothing else of what is seen; gradients find their way back through them.
        copies = [each_tensor(Tensor.clone, argument) for argument in arguments]
        result = self._run(tuple(self.guard.let(a) if callable(a) else a for a in copies))
        for position, (copy, argument) in enumerate(zip(copies, arguments, strict=True), start=1):
            if not _unchanged(copy, argument):
                name = _argument_name(self.function, position)
                self.written.append(f"it writes into {name}: work on a copy, or on new tensors")
        return result

    def build(self, sizes: tuple) -> LocalRunner:
        if isinstance(self.function, nn.Module):
            got = f"got an object of the class {type(self.function).__name__}"
            raise AspectFailed(Problem("wrong type", f"{got}: hand over the class itself, without brackets"))
        if not (isinstance(self.function, type) and issubclass(self.function, nn.Module)):
            raise AspectFailed(Problem("wrong type", f"got {kind_of(self.function)} where the class itself is wanted"))
        made = LocalRunner(self._run(sizes).eval(), self.guard, self.written)
        names = made.parameters()
        if len(names) > MOST_PARAMETERS:
            raise AspectFailed(Problem("unusable", f"the module has {len(names):,} parameters, each a tensor"))
        if longest := max((name for name in names if len(name) > LONGEST_NAME), key=len, default=""):
            raise AspectFailed(Problem("unusable", f"the name of a parameter has {len(longest):,} characters"))
        return made

    def parameters(self) -> dict[str, Tensor]:
        return dict(self.function.named_parameters())

    def fill(self, values: Mapping[str, Tensor]) -> None:
        with torch.no_grad():
            for name, parameter in self.parameters().items():
                parameter.copy_(values[name])

    @contextmanager
    def isolated_rng(self, seed: int) -> Iterator[None]:
        """Seeds torch for the answer and gives the learner's random state back; one thread, as the inputs are tiny.

        (On a busy machine, threads that wait for each other made a check of 0.1 s last 2 s.)
        """
        threads = torch.get_num_threads()
        with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a warning is no mistake, but nbgrader gives 0 for anything on stderr
            torch.default_generator.manual_seed(seed)  # torch.manual_seed asks every GPU: a third of a check
            torch.set_num_threads(1)
            try:
                yield
            finally:
                torch.set_num_threads(threads)

    def _run(self, arguments: tuple) -> Any:
        result = None
        with self.guard.watch() as refused:
            try:
                result = self.function(*arguments)
            except NotImplementedError:
                raise AspectFailed(Problem("not written")) from None
            except (Exception, SystemExit) as error:
                if not refused:
                    raise AspectFailed(self._why(error, arguments)) from None
        if refused:  # also when the answer caught the refusal
            raise AspectFailed(Problem("forbidden", refused[0]))
        return result

    def _why(self, error: BaseException, arguments: tuple) -> Problem:
        """What an answer's error means."""
        where = where_in(error, self.function)
        shapes = ""
        if isinstance(error, RuntimeError) and any(words in str(error) for words in SHAPES_DO_NOT_MEET):
            named = enumerate(arguments, start=1)
            tensors = [(position, argument) for position, argument in named if isinstance(argument, Tensor)]
            given = [(_argument_name(self.function, place), tuple(x.shape)) for place, x in tensors]
            axes = _axes_in_words(self.function)
            named_sizes = _sizes_in_words(given, axes)
            shapes = ", ".join(f"{name} is {shape}{_as_named(shape, axes.get(name))}" for name, shape in given)
            if said := which_axes(str(error), named_sizes):
                shapes = f"{said}; {shapes}"
        return Problem("raised", in_words(error).removesuffix(".") + (f"; {shapes}" if shapes else ""), where)


def which_axes(message: str, names: Mapping[int, str]) -> str | None:
    """Which axes do not meet, of torch's words for it; `names` are those of the sizes, where that is clear."""

    def size(text: str) -> str:
        return f"{text} ({names[int(text)]})" if int(text) in names else text

    if found := re.search(r"cannot be multiplied \((\d+)x(\d+) and (\d+)x(\d+)\)", message):
        _, left, right, columns = found.groups()
    elif found := re.search(r"size mismatch, got input \(\d+\), mat \(\d+x(\d+)\), vec \((\d+)\)", message):
        only = size(found[2])
        return f"`@` pairs the last axis on its left, {size(found[1])}, with the one axis on its right, {only}"
    elif found := re.search(r"expected tensor \[(\d+)\] and src \[(\d+)\]", message):
        return f"`@` of two vectors needs equal lengths, and {size(found[1])} meets {size(found[2])}"
    elif found := re.search(r"einsum\(\): subscript (\w+) has size (\d+) .* previously seen size (\d+)", message):
        return f"the letter {found[1]} stands for an axis of {size(found[3])} and for one of {size(found[2])}"
    elif found := re.search(r"batch2 tensor to be: \[(\d+), (\d+)\] but got: \[(\d+), (\d+)\]", message):
        left, right, columns = found[2], found[4], ""
        if found[1] != found[3]:
            return f"`@` needs the same first axis on both sides, and {size(found[1])} meets {size(found[3])}"
    elif found := re.search(r"tensor a \((\d+)\) must match .* tensor b \((\d+)\) at non-singleton .* (\d+)", message):
        return f"axis {found[3]} is {size(found[1])} in one and {size(found[2])} in the other"
    else:
        return None
    said = f"`@` pairs the last axis on its left, {size(left)}, with the last but one on its right, {size(right)}"
    return f"{said}; both end in {left}: `.mT` exchanges the last two axes" if left == columns else said


def _axes_in_words(function: Any) -> dict[str, tuple[str, ...]]:
    """The axes' names that the answer's docstring gives its arguments: `keys: (n, d)`."""
    function = type(function).forward if isinstance(function, nn.Module) else function
    text = getattr(function, "__doc__", None) or ""
    found = re.findall(r"(\w+(?:, \w+)*):\s*\(([^()]*)\)", text)
    return {f"`{name}`": tuple(axis.strip() for axis in axes.split(",") if axis.strip())
            for names, axes in found for name in names.split(", ")}  # fmt: skip


def _sizes_in_words(
    given: Iterable[tuple[str, tuple[int, ...]]], axes: Mapping[str, tuple[str, ...]]
) -> dict[int, str]:
    """What a size is called, where it has one name alone."""
    found: dict[int, set[str]] = {}
    for name, shape in given:
        if len(shape) == len(axes.get(name, ())):
            for size, axis in zip(shape, axes[name], strict=True):
                found.setdefault(size, set()).add(axis)
    return {size: words.pop() for size, words in found.items() if len(words) == 1}


def _as_named(shape: tuple[int, ...], axes: tuple[str, ...] | None) -> str:
    return f" = ({', '.join(axes)})" if axes and len(axes) == len(shape) else ""


def kind_of(value: Any) -> str:
    """A value's type as one would say it: "a list of 3", "None"."""
    if isinstance(value, Opaque):
        return value.kind
    if value is None:
        return "None"
    if isinstance(value, tuple | list):
        return f"a {type(value).__name__} of {len(value)}"
    name = type(value).__name__
    return f"{'an' if name[0].lower() in 'aeiou' or name == 'ndarray' else 'a'} {name}"


def in_words(error: BaseException) -> str:
    """The error's kind and first line, with torch's advice replaced where it leads astray here."""
    words = f"{type(error).__name__}: {error}".strip().removesuffix(":").splitlines()[0] + _meant(error)
    for start, advice in _ADVICE.items():
        if start in words:
            return words[: words.index(start) + len(start)] + advice
    return words


def _meant(error: BaseException) -> str:
    """" Did you mean …?", where a name is not there and another one like it is."""
    last = error.__traceback__
    while last and last.tb_next:
        last = last.tb_next
    known: Iterable[str] = ()
    match error:
        case NameError(name=str(name)) if last:
            known = {*last.tb_frame.f_locals, *last.tb_frame.f_globals, *vars(builtins)}
        case AttributeError(name=str(name), obj=thing) if thing is not None:
            with suppress(Exception):  # a learner's object may answer as it likes
                known = dir(thing)
        case _:
            return ""
    meant = did_you_mean(name, (word for word in known if not word.startswith("_")), alike=0.7)
    return f".{meant}" if meant else ""


def _code(function: Any) -> CodeType | None:
    if isinstance(function, nn.Module):
        function = type(function).forward
    elif isinstance(function, type):
        function = function.__init__  # type: ignore[misc]
    code = getattr(inspect.unwrap(function), "__code__", None)
    return None if code is None or code.co_filename.startswith(_TORCH) else code


def _argument_name(function: Any, position: int) -> str:
    written = type(function).forward if isinstance(function, nn.Module) else function
    given, code = getattr(written, "__signature__", None), _code(function)  # a slip's is said, as it is compiled late
    names = tuple(given.parameters) if given else code.co_varnames[: code.co_argcount] if code else ()
    names = names[1:] if isinstance(function, nn.Module) else names
    return f"`{names[position - 1]}`" if position <= len(names) else f"argument {position}"


def where_in(error: BaseException, function: Any) -> str:
    """The learner's own line where it happened: the last frame in the file (the cell) that holds the answer."""
    code = _code(function)
    file = getattr(function, "file", code.co_filename if code else None)  # a slip's text is compiled late
    lines = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == file]
    if not lines:
        return ""
    frame = lines[-1]
    source = linecache.getline(frame.filename, frame.lineno or 0).strip()
    return f"line {frame.lineno}: {source}" if source else f"line {frame.lineno}"


class Guard:
    """Stops calls to forbidden dotted names, however they are reached: aliases, methods and helper functions included.

    A name may be a function, a class or a whole module. LookupError for a name that stands for nothing.
    """

    def __init__(self, forbidden: tuple[str, ...]) -> None:
        self.targets = {name: _resolve(name) for name in forbidden}
        self.inside = {name: _full_name(target) + "." for name, target in self.targets.items()}
        # Every call that the answer makes is looked at, torch's own too: most must cost no more than a look-up.
        self.last_names = {getattr(target, "__name__", name) for name, target in self.targets.items()}
        self.codes: dict[int, tuple[CodeType, str | None]] = {}  # by id; the code itself is kept, so that it stays its
        self.watching = True

    @contextmanager
    def watch(self) -> Iterator[list[str]]:
        """Raises PermissionError inside the guarded code at a forbidden call; yields the list of what was called."""
        refused: list[str] = []

        def profile(frame: FrameType, event: str, argument: Any) -> None:
            found = self._find(frame, event, argument)
            if found is not None:
                refused.append(found)
                raise PermissionError(f"{found} may not be used here")

        if not self.targets:
            yield refused
            return
        previous = sys.getprofile()
        sys.setprofile(profile)
        try:
            with _Calls(self, refused):
                yield refused
        finally:  # cProfile sets a profiler that only it can set again
            sys.setprofile(previous if callable(previous) else None)

    def let(self, function: Callable) -> Callable:
        """A function of the check's own, handed to the answer: it may call what the answer may not."""

        def allowed(*arguments: Any, **named: Any) -> Any:
            watching, profile = self.watching, sys.getprofile()
            self.watching = False
            sys.setprofile(None)
            try:
                with torch._C.DisableTorchFunction():  # a third of what a small function takes
                    return function(*arguments, **named)
            finally:
                self.watching = watching
                sys.setprofile(profile)

        return allowed

    def _find(self, frame: FrameType, event: str, argument: Any) -> str | None:
        if event == "call":
            code = frame.f_code
            if id(code) not in self.codes:
                called = f"{frame.f_globals.get('__name__')}.{code.co_qualname}."
                found = next((name for name, prefix in self.inside.items() if called.startswith(prefix)), None)
                self.codes[id(code)] = code, found
            return self.codes[id(code)][1]
        if event == "c_call" and argument.__name__ in self.last_names:
            method = getattr(type(getattr(argument, "__self__", None)), argument.__name__, None)
            return next((name for name, target in self.targets.items() if target is argument or target is method), None)
        return None


class _Calls(TorchFunctionMode):
    """Refuses forbidden functions of torch's also where compiled code calls them, which no profiler sees."""

    def __init__(self, guard: Guard, refused: list[str]) -> None:
        super().__init__()
        targets = guard.targets.items()
        self.guard = guard
        self.names = {id(target): name for name, target in targets if not isinstance(target, type | ModuleType)}
        self.refused = refused

    def __torch_function__(self, function: Any, types: Any, args: tuple = (), kwargs: Any = None) -> Any:
        name = self.names.get(id(function))
        if name is not None and self.guard.watching:
            self.refused.append(name)
            raise PermissionError(f"{name} may not be used here")
        return function(*args, **(kwargs or {}))


def _resolve(name: str) -> Any:
    parts = name.split(".")
    for cut in range(len(parts), 0, -1):
        try:
            found: Any = importlib.import_module(".".join(parts[:cut]))
        except ModuleNotFoundError:
            continue
        for part in parts[cut:]:
            found = getattr(found, part, None)
        if found is not None:
            return found
    raise LookupError(f"nothing is called {name!r}: check the exercise's `forbidden`")


def _full_name(target: Any) -> str:
    if isinstance(target, ModuleType):
        return target.__name__
    owner = getattr(target, "__objclass__", None)  # a method of a C class knows its class, not its module
    return f"{owner.__module__ if owner else target.__module__}.{target.__qualname__}"
