"""A variation of an exercise: the same task with one thing changed, so that a known answer to it is a wrong one.

It is an `Exercise` of the same name, with the same aspects and points, made by `Exercise.variation`. Whoever answers it
is told so in the answer's cell, and the check's call names it. Here are the words of these two cells.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lessonkit.exercises.exercise import Exercise

LEFT_OUT = "the variation left out"  # the misconception of who answers the exercise as everybody knows it
WIDTH = 92
QUOTES = '"""'  # of the docstring, which is the contract
Tensors = tuple[Any, ...]


@dataclass(frozen=True)
class Variation:
    """What is changed: `asks` says it to a learner, `contract` in the answer's cell, {piece of its text: another}."""

    name: str
    asks: str
    contract: Mapping[str, str] = field(default_factory=dict)


class Turned:
    """An answer to a variation, called as the exercise's own aspects call one.

    `given` makes of their arguments those that the variation asks for, `back` of what then comes back what they expect.
    """

    def __init__(self, answer: Any, given: Callable[..., Tensors] | None, back: Callable[[Any], Any] | None) -> None:
        self._answer, self._given, self._back = answer, given, back

    def __call__(self, *arguments: Any) -> Any:
        result = self._answer(*(self._given(*arguments) if self._given else arguments))
        return self._back(result) if self._back else result

    def __getattr__(self, name: str) -> Any:
        return getattr(self._answer, name)


def answer_cell(source: str, exercise: Exercise) -> str:
    """An exercise's cell as it asks for a variation. ValueError where a piece of the contract is not there once."""
    variation = exercise.varied
    assert variation is not None
    for piece, other in variation.contract.items():
        if (times := source.count(piece)) != 1:
            raise ValueError(f"{exercise.name}, {variation.name!r}: {piece!r} is {times} times in its cell")
        source = source.replace(piece, other)
    said = f"Your variation: {variation.asks} Where anything else says otherwise, this holds."
    begin, _, rest = source.partition(QUOTES)
    contract, _, body = rest.partition(QUOTES)
    indent = re.findall(r"^ *", begin, re.MULTILINE)[-1]
    paragraph = textwrap.fill(said, WIDTH, initial_indent=indent, subsequent_indent=indent)
    return f"{begin}{QUOTES}{contract.rstrip()}\n\n{paragraph}\n{indent}{QUOTES}{body}"


def check_cell(source: str, exercise: str, variation: str) -> str:
    """A check's cell whose calls name the variation."""
    call = re.compile(rf"""check\((["']){re.escape(exercise)}\1,\s*\w+(?=[,)])""")
    return source if "variation=" in source else call.sub(rf'\g<0>, variation="{variation}"', source)


def variation_in(source: str) -> str:
    """The variation that a check's cell names; nothing where it names none."""
    found = re.search(r"""variation=(["'])(.*?)\1""", source)
    return found[2] if found else ""
