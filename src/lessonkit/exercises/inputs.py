"""Inputs for an aspect on which its known mistakes show, so that no point hangs on a lucky draw."""

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from lessonkit.exercises.difference import close
from lessonkit.exercises.exercise import Exercise
from lessonkit.exercises.observe import Draw

ATTEMPTS = 2000


@lru_cache(maxsize=256)
def told_apart(exercise: Exercise, aspect: str, seed: int, make: Callable[[Draw], Any], look: Callable) -> Any:
    """Inputs on which the mistakes that the aspect is to catch show, and no others: drawn until that is so.

    `make` draws the inputs, `look(answer, inputs)` is what the aspect shows of an answer.
    AssertionError where `ATTEMPTS` draws give none: one in fifty is enough that this never happens.
    """
    codes = exercise.misconceptions + exercise.variants
    draw = Draw(seed, f"{exercise.name}/{aspect}/inputs")
    for attempt in range(ATTEMPTS):
        inputs = make(draw.child(str(attempt)))
        right = look(exercise.reference, inputs)
        if all(_differs(_seen(look, code.answer, inputs), right) == (aspect in code.fails) for code in codes):
            return inputs
    raise AssertionError(f"{exercise.name}: no inputs for {aspect!r} tell its mistakes apart")


def _seen(look: Callable, answer: Callable, inputs: Any) -> Tensor:
    try:
        return look(answer, inputs)
    except Exception:
        return torch.tensor(math.nan)


def _differs(seen: Tensor, right: Tensor) -> bool:
    return not close(seen.numpy(), right.numpy())
