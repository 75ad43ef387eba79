"""Aspects about gradients: is one cut, NaN, or wrong by itself?"""

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from lessonkit.exercises.observe import Draw, gradients

CUT, RIGHT, NAN, WRONG = range(4)


def way_back(output: Tensor, right: Tensor, inputs: list[Tensor], draw: Draw) -> Tensor:
    """For each input what arrives there from `output`: RIGHT, or nothing (CUT), NaN, or a gradient that is WRONG.

    Only where `output` is what it should be, `right`, must its gradient be, too: a mistake in the values is not to be
    paid for twice. An input at which nothing should arrive says CUT of a right answer, too.
    """
    found = gradients(output, inputs, draw)
    kinds = torch.where(found.abs().amax(dim=1) > 1e-5, RIGHT, CUT)
    kinds = kinds.where(found.isfinite().all(dim=1), NAN)
    if output.shape == right.shape and torch.allclose(output.double(), right.double(), rtol=1e-4, atol=1e-5):
        wanted = gradients(right, inputs, draw)
        apart = (found - wanted).norm(dim=1) > 1e-2 * wanted.norm(dim=1) + 1e-5
        kinds = torch.where((kinds == RIGHT) & apart, WRONG, kinds)
    return kinds


def explain_way_back(*inputs: str) -> Callable[[np.ndarray, np.ndarray], str]:
    """For `way_back`: says at which inputs what is wrong."""

    def explain(got: np.ndarray, expected: np.ndarray) -> str:
        told = []
        for kind, words in (
            (CUT, "no gradient reaches {}"),
            (NAN, "the gradient at {} is NaN: on the way back something is 0/0, ∞ − ∞ or 0 · ∞, and mending the "
                  "output afterwards does not mend that"),
            (WRONG, "the output is right, and the gradient at {} is not: a part of its way back is cut off"),
        ):  # fmt: skip
            rows = zip(inputs, got, expected, strict=True)
            names = [f"`{name}`" for name, seen, right in rows if seen == kind != right]
            if names:
                told.append(words.format(" and ".join(names)))
        return "; ".join(told) or "a gradient arrives where none belongs"

    return explain
