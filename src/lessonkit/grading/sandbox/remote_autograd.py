"""Gradients that find their way through a call that the other process makes or has asked for: what both sides need."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from lessonkit.exercises.local_runner import AspectFailed, Problem
from lessonkit.exercises.nested import each_tensor
from lessonkit.grading.sandbox.protocol import tensors_in


class Calls:
    """What this side has computed for the other: of each call, what went in and what came out, to go back later."""

    def __init__(self) -> None:
        self._calls: list[tuple[list[Tensor], list[Tensor]]] = []

    def add(self, ends: list[Tensor], result: Any) -> tuple[Any, int]:
        """What to reply: the result, and the number under which `back` finds this call."""
        self._calls.append((ends, tensors_in(result)))
        return result, len(self._calls) - 1

    def back(self, call: int, gradients: Sequence[Tensor | None]) -> list[Tensor | None]:
        """The gradients at what went into a call, from those at what came out of it."""
        ends, outputs = self._calls[call]
        wanted = [end for end in ends if end.requires_grad]
        found: Iterator[Tensor | None] = iter(())
        with torch.enable_grad():                                 # this may be asked in the middle of a way back
            # torch would take the gradients at the outputs as they are, but imports sympy for it.
            ways = [(o * g).sum() for o, g in zip(outputs, gradients, strict=True) if g is not None and o.requires_grad]
            if ways and wanted:
                found = iter(torch.autograd.grad(torch.stack(ways).sum(), wanted, retain_graph=True, allow_unused=True))
        return [next(found, None) if end.requires_grad else None for end in ends]


def attached(result: Any, number: Any, ends: list[Tensor], back: Callable[..., Any]) -> Any:
    """The result of the other side's call, with a way back to the `ends`, which `back(call=…, gradients=…)` goes."""
    outputs = tensors_in(result)
    if not (any(output.requires_grad for output in outputs) and any(end.requires_grad for end in ends)):
        return result

    def go_back(gradients: tuple[Tensor | None, ...]) -> list[Tensor | None]:
        found = back(call=number, gradients=[g if g is None else g.detach() for g in gradients])
        if not isinstance(found, list) or len(found) != len(ends):
            raise AspectFailed(Problem("unusable", "the gradients that came back are not one for each input"))
        for gradient, end in zip(found, ends, strict=True):
            if gradient is not None and not (isinstance(gradient, Tensor) and gradient.shape == end.shape):
                raise AspectFailed(Problem("unusable", "a gradient that came back has not the shape of its input"))
        return [g if g is None else g.detach().to(e.dtype) for g, e in zip(found, ends, strict=True)]

    handed = iter(_Attach.apply(go_back, len(outputs), *outputs, *ends))
    return each_tensor(lambda _: next(handed), result)


class _Attach(torch.autograd.Function):
    """Hands `outputs` on; on the way back it asks the other process for the gradients at the `ends`."""

    @staticmethod
    def forward(ctx: Any, back: Callable, count: int, *tensors: Tensor) -> tuple[Tensor, ...]:
        ctx.back, ctx.count = back, count
        ctx.set_materialize_grads(False)
        handed = tuple(tensor.detach().clone() for tensor in tensors[:count])
        ctx.mark_non_differentiable(
            *(h for h, t in zip(handed, tensors[:count], strict=True) if not t.requires_grad)
        )
        return handed

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple:
        return (None, None, *([None] * ctx.count), *ctx.back(gradients))
