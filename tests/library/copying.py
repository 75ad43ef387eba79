"""Someone else's weights put into our modules, and the question whether the two then compute the same."""

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor, nn

TOLERANCE = {torch.float64: 1e-10, torch.float32: 1e-5}


class Pair(NamedTuple):
    """A parameter of ours and theirs that says the same; `view` lays theirs, or its gradient, out as ours is."""

    ours: Tensor
    theirs: Tensor
    view: Callable[[Tensor], Tensor] = lambda t: t


def same(*modules: tuple[nn.Module, nn.Module]) -> Iterator[Pair]:
    """Pairs of (ours, theirs) whose parameters go by the same names."""
    for ours, theirs in modules:
        for name, parameter in ours.named_parameters():
            yield Pair(parameter, theirs.get_parameter(name))


def slices(
    *ours: nn.Linear, weight: Tensor, bias: Tensor | None, transposed: bool = False
) -> Iterator[Pair]:
    """Our linear layers, which they keep in one matrix, one below the other."""

    def piece(i: int, whole: Tensor) -> Tensor:
        return (whole.T if transposed and whole.ndim == 2 else whole).chunk(len(ours))[i]

    for i, linear in enumerate(ours):
        yield Pair(linear.weight, weight, partial(piece, i))
        if bias is not None:
            yield Pair(linear.bias, bias, partial(piece, i))


def randomise(module: nn.Module) -> None:
    """No bias is zero and no norm's weight is one, so none can be forgotten unseen."""
    for parameter in module.parameters():
        if parameter.requires_grad:
            nn.init.normal_(parameter, std=parameter.shape[-1] ** -0.5 if parameter.ndim > 1 else 1.0)


def copy_weights(ours: nn.Module, theirs: nn.Module, pairs: Iterable[Pair]) -> list[Pair]:
    """Random weights for theirs, the same for ours. No parameter of either may be left out."""
    pairs = list(pairs)
    assert {id(pair.ours) for pair in pairs} == {id(parameter) for parameter in ours.parameters()}
    assert {id(pair.theirs) for pair in pairs} == {id(parameter) for parameter in theirs.parameters()}
    randomise(theirs)
    with torch.no_grad():
        for pair in pairs:
            assert pair.ours.shape == pair.view(pair.theirs).shape
            pair.ours.copy_(pair.view(pair.theirs))
    return pairs


def assert_close(ours: Tensor, theirs: Tensor, what: str = "output") -> None:
    """Within the dtype's tolerance of theirs, or of the largest number in it where that is above 1."""
    assert ours.dtype == theirs.dtype
    largest = max(1.0, float(theirs.detach().abs().max()))
    atol = TOLERANCE[theirs.dtype] * largest
    torch.testing.assert_close(ours, theirs, rtol=0, atol=atol, msg=lambda words: f"{what}: {words}")


def assert_same(
    ours: Callable[..., Tensor], theirs: Callable[..., Tensor], *inputs: Tensor, pairs: Iterable[Pair] = ()
) -> None:
    """The two give one output, and one gradient at every input and at every pair of parameters that they learn."""
    learned = [pair for pair in pairs if pair.theirs.requires_grad]
    left, right = ([x.clone().requires_grad_() for x in inputs] for _ in range(2))
    output, expected = ours(*left), theirs(*right)
    assert_close(output, expected)
    downstream = torch.randn_like(expected) / expected.shape[-1] ** 0.5
    # Not backward(), which would add both up where the two share their parameters.
    got = torch.autograd.grad(output, [*left, *(pair.ours for pair in learned)], downstream)
    want = torch.autograd.grad(expected, [*right, *(pair.theirs for pair in learned)], downstream)
    views = [lambda t: t for _ in inputs] + [pair.view for pair in learned]
    for i, (mine, its, view) in enumerate(zip(got, want, views, strict=True)):
        assert_close(mine, view(its), f"gradient {i}, of shape {tuple(mine.shape)}")
