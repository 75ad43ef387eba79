"""One call of an answer, as a check made it: what went in, what came out, and what should have come out."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from lessonkit.exercises.difference import close
from lessonkit.exercises.exercise import Aspect, Exercise
from lessonkit.exercises.judge import judge
from lessonkit.exercises.local_runner import Guard, LocalRunner, kind_of
from lessonkit.exercises.nested import each_tensor
from lessonkit.exercises.observe import Answer, Draw, observe

ENTRIES = 40  # a tensor of more is shown by its shape alone
_NUMBERS = (Tensor, int, float)


@dataclass(frozen=True)
class Case:
    """A call with which an aspect failed, to look into: `case.answer(*case.arguments.values())` makes it again.

    `arguments` are the inputs by name, `got` what the answer returned on them (None if it raised), `expected` what the
    reference returns; `returns` names it. `answer` is the learner's function, or the module that the check built, with
    its weights.
    """

    exercise: str
    aspect: str
    message: str
    answer: Any
    arguments: dict[str, Any]
    returns: tuple[str, ...]
    got: Any
    expected: Any

    def __repr__(self) -> str:
        lines = [f"{self.exercise}, “{self.aspect}”: {self.message}"]
        lines += [f"  {name} = {_shown(value)}" for name, value in self.arguments.items()]
        for verb, result in (("got", self.got), ("expected", self.expected)):
            several = len(self.returns) > 1 and isinstance(result, tuple | list) and len(result) == len(self.returns)
            named = zip(self.returns, result, strict=True) if several else [(", ".join(self.returns), result)]
            lines += [f"  {verb} {name}: {_shown(value)}" for name, value in named]
        if _equal(self.got, self.expected):
            lines.append("  The two agree here: what fails is what becomes of them later, or of the arguments.")
        return "\n".join(lines)


def failing_case(exercise: Exercise, answer: Any, seeds: tuple[int, ...], aspect: str | None = None) -> Case | None:
    """The first call that shows what is wrong with `answer`, in its first failing aspect or in the one named.

    None if nothing is wrong, or the answer could not be called at all. Raises LookupError for an unknown aspect.
    """
    known = [each.name for each in exercise.aspects]
    if aspect is not None and aspect not in known:
        raise LookupError(f"{exercise.name} has no aspect {aspect!r}; its aspects are: {', '.join(known)}")
    for seed in seeds:
        verdict = judge(exercise, observe(exercise, answer, seed), seed, name=False)
        for line, each in zip(verdict.aspects, exercise.aspects, strict=True):
            if not line.ok and aspect in (None, each.name):
                return _case(exercise, answer, each, seed, line.message)
    return None


def _case(exercise: Exercise, answer: Any, aspect: Aspect, seed: int, message: str) -> Case | None:
    theirs = _calls(exercise, answer, aspect, seed, exercise.forbidden)
    right = _calls(exercise, exercise.reference, aspect, seed, ())
    pairs = list(zip(theirs, right, strict=False))
    if not pairs:
        return None
    mine, wanted = next((pair for pair in pairs if not _equal(pair[0].result, pair[1].result)), pairs[-1])
    names = exercise.arguments
    named = {names[i] if i < len(names) else f"argument {i + 1}": value for i, value in enumerate(mine.arguments)}
    return Case(exercise.name, aspect.name, message, mine.function, named, exercise.returns, mine.result, wanted.result)


@dataclass
class _Call:
    function: Any
    arguments: tuple
    result: Any = None


class _Recorder:
    """A runner that keeps every call."""

    def __init__(self, runner: LocalRunner, calls: list[_Call]) -> None:
        self.runner, self.calls, self.written = runner, calls, runner.written

    def call(self, arguments: tuple) -> Any:
        call = _Call(self.runner.function, tuple(map(_kept, arguments)))
        self.calls.append(call)
        result = self.runner.call(arguments)
        call.result = _kept(result)
        return result

    def build(self, sizes: tuple) -> _Recorder:
        return _Recorder(self.runner.build(sizes), self.calls)

    def parameters(self) -> dict[str, Tensor]:
        return self.runner.parameters()

    def fill(self, values: Mapping[str, Tensor]) -> None:
        self.runner.fill(values)

    def isolated_rng(self, seed: int) -> AbstractContextManager[None]:
        return self.runner.isolated_rng(seed)


def _calls(exercise: Exercise, answer: Any, aspect: Aspect, seed: int, forbidden: tuple[str, ...]) -> list[_Call]:
    """The calls that the aspect makes, up to the one that fails."""
    calls: list[_Call] = []
    runner = _Recorder(LocalRunner(answer, Guard(forbidden)), calls)
    draw = Draw(seed, f"{exercise.name}/{aspect.name}")
    try:
        with runner.isolated_rng(draw.child("answer").generator.initial_seed()):
            aspect.probe(Answer(runner, exercise), draw)
    except Exception:  # the card has told it
        pass
    return calls


def _kept(value: Any) -> Any:
    """A copy, down to the tensors, that nothing written later can change."""
    return each_tensor(lambda x: x.detach().clone().requires_grad_(x.requires_grad and x.is_leaf), value)


def _equal(one: Any, other: Any) -> bool:
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(map(_equal, one, other))
    if isinstance(one, _NUMBERS) and isinstance(other, _NUMBERS):
        left, right = (torch.as_tensor(value).detach().cpu().to(torch.float64).numpy() for value in (one, other))
        return close(left, right)
    return type(one) is type(other) and bool(one == other)


def _shown(value: Any) -> str:
    if isinstance(value, Tensor):
        shape = f"a tensor {tuple(value.shape)}"
        if value.numel() > ENTRIES:
            return shape
        text = str(value.detach())
        return f"{shape}:\n{textwrap.indent(text, '    ')}" if value.ndim > 1 else f"{shape}: {text}"
    if value is None:
        return "nothing"
    text = repr(value)
    return text if isinstance(value, str | int | float | list | dict) and len(text) <= 200 else kind_of(value)
