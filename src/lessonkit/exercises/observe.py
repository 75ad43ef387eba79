"""Look at what a learner's answer does on drawn inputs, and write it down in plain data.

This half of a check compares nothing, and it needs no more of the answer than what `answering.Runner` gives: the answer
may live in another process.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from lessonkit.exercises.local_runner import AspectFailed, Guard, LocalRunner, Problem, Runner, in_words, kind_of

if TYPE_CHECKING:
    from lessonkit.exercises.exercise import Aspect, Exercise

LARGEST = 4096  # numbers of an input that is kept beside what came back
# Of every tensor that came back, and of every parameter: its name, its shape and its number type.
Shapes = tuple[tuple[str, tuple[int, ...], str], ...]
PARAMETER = "the parameter "


@dataclass(frozen=True)
class Observation:
    """What one aspect showed: an array or a problem, and the shapes of everything the answer returned on the way."""

    value: np.ndarray | None
    problem: Problem | None
    shapes: Shapes
    metric: float | None = None  # what the aspect measured, for a leaderboard
    inputs: Mapping[str, np.ndarray] = field(default_factory=dict)  # of the last call, by the answer's names for them
    written: str | None = None  # what is to be said of an input that was written into


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
    """A learner's answer as an aspect sees it: called like a function; what comes back is checked and put in words."""

    def __init__(
        self,
        runner: Runner,
        exercise: Exercise,
        shapes: list | None = None,
        inputs: dict[str, Any] | None = None,
        sizes: tuple = (),
    ) -> None:
        self.runner, self.exercise, self.sizes = runner, exercise, sizes
        self.inputs = {} if inputs is None else inputs  # of the last call, and what a module was made with
        self.shapes: list[tuple[str, tuple[int, ...], str]] = [] if shapes is None else shapes
        self.metric: float | None = None

    def __call__(self, *arguments: Any) -> Any:
        """The answer's result on `arguments`: a tensor, a tuple of as many tensors as the exercise names, or lists."""
        returns = self.exercise.returns
        self.inputs |= dict(zip(self.exercise.arguments, arguments, strict=False))
        result = self.runner.call(arguments)
        if self.exercise.lists:
            return _as_lists(returns[0], result)
        tensors = (result,) if len(returns) == 1 else result
        if len(returns) > 1 and not (isinstance(result, tuple | list) and len(result) == len(returns)):
            kinds = "numbers" if self.exercise.numbers else "tensors"
            wanted = f"{len(returns)} {kinds} ({', '.join(returns)})"
            raise AspectFailed(Problem("wrong type", f"returned {kind_of(result)}, expected {wanted}"))
        if self.exercise.numbers:
            tensors = tuple(_as_tensor(tensor) for tensor in tensors)
        if self.exercise.truths:
            tensors = tuple(torch.tensor(bool(t)) if isinstance(t, bool | np.bool_) else t for t in tensors)
        for name, tensor in zip(returns, tensors, strict=True):
            if not isinstance(tensor, Tensor):
                reminder = ": is a `return` missing?" if tensor is None else ""
                number = "a number" if len(returns) == 1 else "a number or a tensor"
                kind = "True or False" if self.exercise.truths else number if self.exercise.numbers else "a tensor"
                raise AspectFailed(
                    Problem("wrong type", f"{name}: returned {kind_of(tensor)}, expected {kind}{reminder}")
                )
            self.shapes.append(_described(name, tensor))
        return tensors[0] if len(returns) == 1 else tuple(tensors)

    def measure(self, number: float) -> None:
        """Tell the number by which answers to this exercise are ranked."""
        self.metric = float(number)

    def build(self, draw: Draw, *sizes: int, fill: bool = True) -> Answer:
        """Make the learner's module and give every parameter a drawn value: its answer then depends on nothing else.

        Without `fill` it keeps the values that its own `__init__` has given it.
        """
        runner = self.runner.build(sizes)
        values = {}
        for name, parameter in sorted(runner.parameters().items()):
            self.shapes.append(_described(f"{PARAMETER}{name}", parameter))
            values[name] = draw.child(name).normal(*parameter.shape) / 2
        if fill:
            runner.fill(values)
        self.inputs |= dict(zip(self.exercise.size_names, sizes, strict=False))
        return Answer(runner, self.exercise, self.shapes, self.inputs, sizes)

    @property
    def parameters(self) -> dict[str, Tensor]:
        """All that the module which `build` made can learn, by name; what is used twice, once."""
        return self.runner.parameters()

    def parameter(self, name: str) -> Tensor:
        """A parameter of the module that `build` made, to take a gradient at."""
        try:
            return self.parameters[name]
        except KeyError:
            raise AspectFailed(Problem("unusable", f"there is no parameter {name}")) from None

    @cached_property
    def reference_with_same_weights(self) -> nn.Module:
        """The course's own module with the parameters of what `build` made: to go on from the answer's values.

        A parameter that the answer's module lacks is NaN: only what depends on it is lost.
        """
        module = self.exercise.reference(*self.sizes)
        given = self.runner.parameters()
        with torch.no_grad():
            for name, parameter in module.named_parameters():
                fits = name in given and given[name].shape == parameter.shape
                parameter.copy_(given[name] if fits else torch.full_like(parameter, torch.nan))
        return module.eval()


def observe(exercise: Exercise, answer: Any, seed: int, *, trusted: bool = False) -> dict[str, Observation]:
    """What `answer` does on the inputs of `seed`, aspect by aspect, as plain data.

    A problem in one aspect leaves the others alone. `trusted` is for the course's own code, which may call the names
    that the exercise forbids. The learner's random state is left as it was.
    """
    runner = LocalRunner(answer, Guard(() if trusted else exercise.forbidden))
    return observe_through(runner, exercise, seed)


def observe_through(runner: Runner, exercise: Exercise, seed: int) -> dict[str, Observation]:
    """`observe`, of an answer that may live in another process: only what it returns is looked at."""
    return {aspect.name: observe_aspect(runner, exercise, aspect, seed) for aspect in exercise.aspects}


def observe_aspect(runner: Runner, exercise: Exercise, aspect: Aspect, seed: int) -> Observation:
    """What one aspect shows of the answer on `seed`."""
    watched = Answer(runner, exercise)
    value, problem = None, None
    runner.written.clear()
    try:
        draw = Draw(seed, f"{exercise.name}/{aspect.name}")
        with runner.isolated_rng(draw.child("answer").generator.initial_seed()):  # it must not give away the seed
            value = _plain(aspect.probe(watched, draw))
    except AspectFailed as failed:
        problem = failed.problem
    except Exception as error:  # the answer ran, and what it returned does not fit what is asked of it
        problem = Problem("unusable", in_words(error))
    inputs = {name: torch.as_tensor(x) for name, x in watched.inputs.items() if isinstance(x, Tensor | int | float)}
    kept = {name: _plain(tensor) for name, tensor in inputs.items() if tensor.numel() <= LARGEST}
    written = next(iter(runner.written), None)
    return Observation(value, problem, tuple(watched.shapes), watched.metric, kept, written)


def require_variation(tensor: Tensor) -> Tensor:
    """The tensor, for an aspect that shows that something is *not* there, or does *not* change.

    An answer that returns the same number everywhere would pass such an aspect without having done anything.
    """
    if tensor.numel() > 1 and bool((tensor == tensor.flatten()[0]).all()):
        raise AspectFailed(Problem("unusable", "it is the same number everywhere"))
    return tensor


def apart(one: Tensor, other: Tensor) -> Tensor:
    """By how much two results differ that should be equal; 0 where that is no more than rounding.

    Rounding grows with the numbers: of an answer whose numbers are too large for another reason, an aspect that they
    are the same twice must not say that they move.
    """
    difference = one - other
    largest = torch.nan_to_num(other.detach(), 0.0, 0.0, 0.0).abs().max() if other.numel() else 0.0
    return torch.where(difference.abs() <= 1e-5 * max(1.0, float(largest)), 0.0, difference)


def gradients(output: Tensor, inputs: list[Tensor], draw: Draw) -> Tensor:
    """The gradient of a drawn combination of `output` at `inputs`: a row for each, filled up with zeros.

    Zeros, too, where none arrives.
    """
    loss = (output * draw.child("direction").normal(*output.shape)).sum()
    found: Iterable[Tensor] = map(torch.zeros_like, inputs)
    if loss.requires_grad:
        found = torch.autograd.grad(loss, inputs, retain_graph=True, materialize_grads=True)
    return nn.utils.rnn.pad_sequence([gradient.flatten() for gradient in found], batch_first=True)


def gradient_reaches(output: Tensor, inputs: list[Tensor], draw: Draw) -> Tensor:
    """For each input whether a gradient arrives there: numbers, no NaN, and more than rounding leaves."""
    found = gradients(output, inputs, draw)
    return torch.stack([row.isfinite().all() & (row.abs().max() > 1e-5) for row in found])


def sizes_by_part(parameters: Mapping[str, Tensor], parts: Iterable[str]) -> Tensor:
    """How many numbers each part of a module learns, in the order of `parts`; "norm" stands for "norm.weight", too."""
    sizes = dict.fromkeys(parts, 0)
    for name, parameter in parameters.items():
        part = name.split(".")[0]
        if part in sizes:
            sizes[part] += parameter.numel()
    return torch.tensor(list(sizes.values()))


def explain_sizes(parts: Sequence[str]) -> Callable[[np.ndarray, np.ndarray], str]:
    """Which parts have another size than expected: an aspect's `explain`, for `sizes_by_part`."""

    def explain(got: np.ndarray, expected: np.ndarray) -> str:
        rows = zip(parts, got, expected, strict=True)
        wrong = [(part, int(a), int(b)) for part, a, b in rows if a != b]
        return "; ".join(f"`{part}` has {a:,} parameters, expected {b:,}" for part, a, b in wrong)

    return explain


def _plain(value: Tensor) -> np.ndarray:
    """A float64, int64 or bool array: widening loses nothing, and no learner's object survives it."""
    value = value.detach().cpu()
    if value.dtype == torch.bool:
        return value.numpy().copy()
    return value.to(torch.float64 if value.is_floating_point() else torch.int64).numpy().copy()


def _as_tensor(value: Any) -> Any:
    """A plain number, numpy's too, as a tensor; anything else as it is."""
    if isinstance(value, float | np.floating):
        return torch.tensor(float(value), dtype=torch.float64)
    plain = isinstance(value, int | np.integer) and not isinstance(value, bool)
    return torch.tensor(int(value)) if plain else value


def _as_lists(name: str, value: Any) -> list[list]:
    """A list of lists of whole numbers or texts, plain ones: tuples and tensors of whole numbers are lists, too."""
    reminder = ": is a `return` missing?" if value is None else ""
    if not isinstance(value, list | tuple):
        raise AspectFailed(
            Problem("wrong type", f"{name}: returned {kind_of(value)}, expected a list of lists{reminder}")
        )
    lists: list[list] = []
    for i, row in enumerate(value):
        row = row.tolist() if isinstance(row, Tensor) and row.ndim == 1 else row
        if not isinstance(row, list | tuple):
            raise AspectFailed(Problem("wrong type", f"{name}: item {i} is {kind_of(row)}, expected a list"))
        lists.append([])
        for item in row:
            whole = isinstance(item, Tensor) and item.ndim == 0 and not item.is_floating_point()
            item = item.item() if whole or isinstance(item, np.integer) else item
            if isinstance(item, bool) or not isinstance(item, int | str):
                what = f"{kind_of(item)} in item {i}, expected whole numbers or texts"
                raise AspectFailed(Problem("wrong type", f"{name}: returned {what}"))
            lists[-1].append(item)
    return lists


def _described(name: str, tensor: Tensor) -> tuple[str, tuple[int, ...], str]:
    return name, tuple(tensor.shape), str(tensor.dtype).removeprefix("torch.")
