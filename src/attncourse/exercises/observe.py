"""Run a learner's answer and write down, in plain data, what it did.

This half of a check knows no right answer: it can run where the reference must not be, such as a sandbox.
"""

from __future__ import annotations

import hashlib
import importlib
import inspect
import linecache
import sys
import traceback
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, FrameType, ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

if TYPE_CHECKING:
    from attncourse.exercises.core import Exercise

# Of every tensor that came back, and of every parameter: its name, its shape and its number type.
Shapes = tuple[tuple[str, tuple[int, ...], str], ...]

_TORCH = str(Path(torch.__file__).parent)

# What torch says, cut short where its advice leads astray here; and what to do instead.
_ADVICE = {
    "Can't call numpy() on Tensor that requires grad": ": stay with tensor operations, numpy passes no gradient on",
    "modified by an inplace operation": ": make new tensors, and do not write into those that others came from",
    "before Module.__init__() call": ": `__init__` must begin with `super().__init__()`",
}


@dataclass(frozen=True)
class Problem:
    """Why an aspect has no value: the kind of thing that happened, its details, and the learner's line where it did."""

    kind: str  # "not written", "raised", "wrong type", "changed its input", "forbidden" or "unusable"
    detail: str = ""
    where: str = ""


@dataclass(frozen=True)
class Observation:
    """What one aspect showed: an array or a problem, and the shapes of everything the answer returned on the way."""

    value: np.ndarray | None
    problem: Problem | None
    shapes: Shapes


class Stop(Exception):
    """Ends the watching of one aspect, carrying the problem."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.detail)
        self.problem = problem


class Draw:
    """Random inputs for one aspect of one exercise. The same seed and label give the same inputs on every machine."""

    def __init__(self, seed: int, label: str) -> None:
        self.seed, self.label = seed, label
        digest = hashlib.sha256(f"{seed}/{label}".encode()).digest()
        self.generator = torch.Generator().manual_seed(int.from_bytes(digest[:7], "big"))

    def sizes(self, count: int, low: int, high: int) -> list[int]:
        """`count` different whole numbers from `low` to `high`: no two axes may be confused by being equal."""
        return (low + torch.randperm(high - low + 1, generator=self.generator)[:count]).tolist()

    def normal(self, *shape: int) -> Tensor:
        return torch.randn(*shape, generator=self.generator, dtype=torch.float32)

    def uniform(self, *shape: int) -> Tensor:
        return torch.rand(*shape, generator=self.generator, dtype=torch.float32)

    def integers(self, high: int, *shape: int) -> Tensor:
        """Whole numbers from 0 to `high` - 1."""
        return torch.randint(high, shape, generator=self.generator)

    def padding_mask(self, batch: int, n: int) -> Tensor:
        """(batch, n), True where there is a word. The first row is full, the second is padded, none is empty."""
        lengths = 1 + self.integers(n, batch)
        lengths[0] = n
        lengths[1:2].clamp_(max=n - 1)
        return torch.arange(n) < lengths[:, None]

    def child(self, name: str) -> Draw:
        """A stream of its own for `name`, the same whatever was drawn before."""
        return Draw(self.seed, f"{self.label}/{name}")


class Answer:
    """A learner's function, watched: what it raises, returns, changes and calls is noticed and put in words."""

    def __init__(self, function: Any, returns: tuple[str, ...], guard: Guard, shapes: list | None = None) -> None:
        self.function, self.returns, self.guard = function, returns, guard
        self.shapes: list[tuple[str, tuple[int, ...], str]] = [] if shapes is None else shapes

    def __call__(self, *arguments: Any) -> Any:
        """The answer's result on `arguments`: a tensor, or a tuple of as many tensors as the exercise names."""
        if not callable(self.function):
            raise Stop(Problem("wrong type", f"got {_kind_of(self.function)} where the function itself is wanted"))
        before = [a.clone() if isinstance(a, Tensor) else None for a in arguments]
        result = self._run(arguments)
        for position, (argument, copy) in enumerate(zip(arguments, before, strict=True), start=1):
            if copy is not None and not (argument.shape == copy.shape and torch.equal(argument, copy)):
                name = _argument_name(self.function, position)
                raise Stop(Problem("changed its input", f"it writes into {name}: work on a copy, or on new tensors"))
        tensors = (result,) if len(self.returns) == 1 else result
        if len(self.returns) > 1 and not (isinstance(result, tuple | list) and len(result) == len(self.returns)):
            wanted = f"{len(self.returns)} tensors ({', '.join(self.returns)})"
            raise Stop(Problem("wrong type", f"returned {_kind_of(result)}, expected {wanted}"))
        for name, tensor in zip(self.returns, tensors, strict=True):
            if not isinstance(tensor, Tensor):
                reminder = ": is a `return` missing?" if tensor is None else ""
                raise Stop(Problem("wrong type", f"{name}: returned {_kind_of(tensor)}, expected a tensor{reminder}"))
            self.shapes.append(_described(name, tensor))
        return result if len(self.returns) == 1 else tuple(result)

    def build(self, draw: Draw, *sizes: int) -> Answer:
        """Make the learner's module and give every parameter a drawn value: its answer then depends on nothing else."""
        if isinstance(self.function, nn.Module):
            got = f"got an object of the class {type(self.function).__name__}"
            raise Stop(Problem("wrong type", f"{got}: hand over the class itself, without brackets"))
        if not (isinstance(self.function, type) and issubclass(self.function, nn.Module)):
            raise Stop(Problem("wrong type", f"got {_kind_of(self.function)} where the class itself is wanted"))
        module = self._run(sizes)
        with torch.no_grad():
            for name, parameter in sorted(module.named_parameters()):
                self.shapes.append(_described(f"the parameter {name}", parameter))
                parameter.copy_(draw.child(name).normal(*parameter.shape) / 2)
        return Answer(module.eval(), self.returns, self.guard, self.shapes)

    def _run(self, arguments: tuple) -> Any:
        result = None
        with self.guard.watch() as refused:
            try:
                result = self.function(*arguments)
            except NotImplementedError:
                raise Stop(Problem("not written")) from None
            except (Exception, SystemExit) as error:
                if not refused:
                    raise Stop(Problem("raised", _words(error), _where(error, self.function))) from None
        if refused:  # also when the answer caught the refusal
            raise Stop(Problem("forbidden", refused[0]))
        return result


def observe(exercise: Exercise, answer: Any, seed: int, *, trusted: bool = False) -> dict[str, Observation]:
    """What `answer` does on the inputs of `seed`, aspect by aspect, as plain data.

    A problem in one aspect leaves the others alone. `trusted` is for the course's own code, which may call the names
    that the exercise forbids. The learner's random state is left as it was.
    """
    observations = {}
    guard = Guard(() if trusted else exercise.forbidden)
    for aspect in exercise.aspects:
        watched = Answer(answer, exercise.returns, guard)
        value, problem = None, None
        with _undisturbed(seed):
            try:
                value = _plain(aspect.look(watched, Draw(seed, f"{exercise.name}/{aspect.name}")))
            except Stop as stop:
                problem = stop.problem
            except Exception as error:  # the answer ran, and what it returned does not fit what is asked of it
                problem = Problem("unusable", _words(error))
        observations[aspect.name] = Observation(value, problem, tuple(watched.shapes))
    return observations


@contextmanager
def _undisturbed(seed: int) -> Iterator[None]:
    """Seeds torch for the answer and gives the learner's random state back; one thread, as the inputs are tiny.

    (On a busy machine, threads that wait for each other made a check of 0.1 s last 2 s.)
    """
    threads = torch.get_num_threads()
    with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a warning is no mistake, but nbgrader gives 0 for anything on stderr
        torch.manual_seed(seed)
        torch.set_num_threads(1)
        try:
            yield
        finally:
            torch.set_num_threads(threads)


def gradients(output: Tensor, inputs: list[Tensor], draw: Draw) -> Tensor:
    """The gradient of a drawn combination of `output` at `inputs`: a row for each, filled up with zeros.

    Zeros, too, where none arrives.
    """
    loss = (output * draw.child("direction").normal(*output.shape)).sum()
    found: Iterable[Tensor] = map(torch.zeros_like, inputs)
    if loss.requires_grad:
        found = torch.autograd.grad(loss, inputs, retain_graph=True, materialize_grads=True)
    return nn.utils.rnn.pad_sequence([gradient.flatten() for gradient in found], batch_first=True)


def _plain(value: Tensor) -> np.ndarray:
    """A float64, int64 or bool array: widening loses nothing, and no learner's object survives it."""
    value = value.detach().cpu()
    if value.dtype == torch.bool:
        return value.numpy().copy()
    return value.to(torch.float64 if value.is_floating_point() else torch.int64).numpy().copy()


def _kind_of(value: Any) -> str:
    if value is None:
        return "None"
    if isinstance(value, tuple | list):
        return f"a {type(value).__name__} of {len(value)}"
    name = type(value).__name__
    return f"{'an' if name[0].lower() in 'aeiou' or name == 'ndarray' else 'a'} {name}"


def _described(name: str, tensor: Tensor) -> tuple[str, tuple[int, ...], str]:
    return name, tuple(tensor.shape), str(tensor.dtype).removeprefix("torch.")


def _words(error: BaseException) -> str:
    """The error's kind and first line, with torch's advice replaced where it leads astray here."""
    words = f"{type(error).__name__}: {error}".strip().removesuffix(":").splitlines()[0]
    for start, advice in _ADVICE.items():
        if start in words:
            return words[: words.index(start) + len(start)] + advice
    return words


def _code(function: Any) -> CodeType | None:
    if isinstance(function, nn.Module):
        function = type(function).forward
    elif isinstance(function, type):
        function = function.__init__  # type: ignore[misc]
    code = getattr(inspect.unwrap(function), "__code__", None)
    return None if code is None or code.co_filename.startswith(_TORCH) else code


def _argument_name(function: Any, position: int) -> str:
    code = _code(function)
    names = code.co_varnames[: code.co_argcount] if code else ()
    names = names[1:] if isinstance(function, nn.Module) else names
    return f"`{names[position - 1]}`" if position <= len(names) else f"argument {position}"


def _where(error: BaseException, function: Any) -> str:
    """The learner's own line where it happened: the last frame in the file (the cell) that holds the answer."""
    code = _code(function)
    lines = [f for f in traceback.extract_tb(error.__traceback__) if code and f.filename == code.co_filename]
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
            yield refused
        finally:  # cProfile sets a profiler that only it can set again
            sys.setprofile(previous if callable(previous) else None)

    def _find(self, frame: FrameType, event: str, argument: Any) -> str | None:
        if event == "call":
            called = f"{frame.f_globals.get('__name__')}.{frame.f_code.co_qualname}."
            return next((name for name, prefix in self.inside.items() if called.startswith(prefix)), None)
        if event == "c_call":
            method = getattr(type(getattr(argument, "__self__", None)), getattr(argument, "__name__", ""), None)
            return next((name for name, target in self.targets.items() if target is argument or target is method), None)
        return None


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
