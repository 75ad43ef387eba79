"""What an exercise is: aspects to look at, a reference, named misconceptions, other right answers."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

Look = Callable[[Any, Any], Any]  # (the watched answer, a draw of inputs) -> the tensor that shows the aspect
Explain = Callable[[Any, Any], str | None]  # (got, expected) -> words, or None for the usual ones


@dataclass(frozen=True)
class Aspect:
    """One thing an answer must get right.

    `look` runs the answer on drawn inputs and returns the tensor that shows it. `meaning` is what the learner reads
    when it is right; `explain(got, expected)` may put a wrong array into better words than "these numbers differ".
    """

    name: str
    points: float
    look: Look
    meaning: str
    explain: Explain | None = None


@dataclass(frozen=True)
class Code:
    """An answer that the course knows: a misconception, which fails some aspects, or another style: none."""

    name: str
    answer: Any
    hint: str
    body: str
    fails: tuple[str, ...] = ()


Misconception: TypeAlias = Code
Alternative: TypeAlias = Code


@dataclass(eq=False)  # compared and hashed by identity: what an exercise shows is cached
class Exercise:
    """A named exercise. Aspects, misconceptions and alternatives are added by decorators, in the order they are shown.

    `reference` is a function, or a module class whose `forward` the learner writes; `returns` names the tensors that
    come back; with `numbers` a plain number may come back in a tensor's place, with `truths` a plain True or False.
    With `lists` a list of lists of whole numbers or of texts comes back, and the aspect makes a tensor of it.
    `extra` exercises earn extra credit: their points count on top of the assignment's.
    """

    name: str
    reference: Any
    returns: tuple[str, ...]
    difficulty: int
    minutes: int
    hints: tuple[str, ...]
    forbidden: tuple[str, ...] = ()
    extra: bool = False
    numbers: bool = False
    truths: bool = False
    lists: bool = False
    aspects: list[Aspect] = field(default_factory=list)
    misconceptions: list[Misconception] = field(default_factory=list)
    variants: list[Misconception] = field(default_factory=list)  # other codes of the same misconceptions
    alternatives: list[Alternative] = field(default_factory=list)

    @property
    def out_of(self) -> float:
        """All the points that the aspects are worth together."""
        return float(sum(aspect.points for aspect in self.aspects))

    def aspect(self, name: str, points: float, explain: Explain | None = None) -> Callable[[Look], Look]:
        """Add an aspect. The docstring says in a few words what is true of a right answer."""

        def add(look: Look) -> Look:
            self.aspects.append(Aspect(name, points, look, _words(look), explain))
            return look

        return add

    def misconception(self, name: str, fails: tuple[str, ...]) -> Callable[[Callable], Callable]:
        """Add a wrong answer that learners really give, the aspects that it fails, and a docstring that teaches."""

        def add(function: Callable) -> Callable:
            self.misconceptions.append(self._mistake(name, function, fails))
            return function

        return add

    def variant(self, *names: str, fails: tuple[str, ...]) -> Callable[[Callable], Callable]:
        """Add another code for the misconception of that name; for several, if it holds several at once.

        The misconceptions' hints are what the learner reads; the docstring says what is different here.
        """

        def add(function: Callable) -> Callable:
            code = self._mistake(names[0], function, fails)
            known = {misconception.name: misconception for misconception in self.misconceptions}
            self.variants += [replace(code, name=name, hint=known[name].hint) for name in names]
            return function

        return add

    def alternative(self, name: str) -> Callable[[Callable], Callable]:
        """Add a right answer in another style: it must earn every point."""

        def add(function: Callable) -> Callable:
            self.alternatives.append(self._code(name, function, ()))
            return function

        return add

    def _mistake(self, name: str, function: Callable, fails: tuple[str, ...]) -> Misconception:
        if not fails or set(fails) - {aspect.name for aspect in self.aspects}:
            raise ValueError(f"{self.name}: misconception {name!r} must fail known aspects, got {fails}")
        return self._code(name, function, fails)

    def _code(self, name: str, function: Callable, fails: tuple[str, ...]) -> Code:
        answer: Any = function
        if isinstance(self.reference, type):
            answer = type(self.name, (self.reference,), {"forward": function})
        return Code(name, answer, _words(function), _body(function), fails)


def _words(function: Callable) -> str:
    """The docstring as one paragraph."""
    if not function.__doc__:
        raise ValueError(f"{function.__qualname__} needs a docstring: learners read it")
    return " ".join(inspect.cleandoc(function.__doc__).split())


def _body(function: Callable) -> str:
    """The function's statements as text, without signature and docstring: fit for between the solution's markers."""
    source = textwrap.dedent(inspect.getsource(function))
    definition = ast.parse(source).body[0]
    assert isinstance(definition, ast.FunctionDef)
    after_docstring = definition.body[0].end_lineno
    return textwrap.dedent("\n".join(source.splitlines()[after_docstring:])).strip("\n")
