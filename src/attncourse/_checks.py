"""What comes in at a door: each check names the argument, what came, and what was expected."""

import numbers
from collections.abc import Sequence

import torch
from torch import Tensor


def check_tensor(name: str, x: Tensor, such_as: str) -> None:
    if not isinstance(x, Tensor):
        raise TypeError(f"{name}: got {type(x).__name__}, expected a tensor such as {such_as}")


def check_shape(name: str, x: Tensor, axes: str, **sizes: int) -> None:
    """`axes` names them in order, as in "batch n_source"; a first "*batch" stands for any number of axes.

    `sizes` says how long some of them must be. Raises TypeError for what is no tensor, else ValueError.
    """
    if not isinstance(x, Tensor):
        raise TypeError(f"{name}: got {type(x).__name__}, expected a tensor ({', '.join(axes.split())})")
    names = axes.split()
    open_ended = names[0].startswith("*")
    trailing = names[open_ended:]
    before = x.ndim - len(trailing)
    fits = before >= 0 if open_ended else before == 0
    if not fits or any(x.shape[before + trailing.index(axis)] != size for axis, size in sizes.items()):
        expected = ", ".join(f"{axis} = {sizes[axis]}" if axis in sizes else axis for axis in names)
        raise ValueError(f"{name}: got shape {tuple(x.shape)}, expected ({expected})")


def check_whole(name: str, x: Tensor, axes: str, **sizes: int) -> None:
    """The shape, as `check_shape`, and whole numbers: TypeError for others."""
    check_shape(name, x, axes, **sizes)
    if x.is_floating_point() or x.dtype == torch.bool:
        raise TypeError(f"{name}: got {x.dtype}, expected whole numbers")


def check_tokens(name: str, tokens: Tensor, vocabulary: int, **sizes: int) -> None:
    """(batch, n) tokens, at least one, each in the vocabulary.

    Which tokens they are is looked at on the CPU alone: on a GPU that would mean waiting for it, and compiled it would
    break the graph.
    """
    check_whole(name, tokens, "batch n", **sizes)
    if not tokens.numel():
        raise ValueError(f"{name}: got shape {tuple(tokens.shape)}, expected at least one token")
    if tokens.device.type == "cpu" and not torch.compiler.is_compiling():
        least, most = (int(bound) for bound in tokens.aminmax())
        if least < 0 or most >= vocabulary:
            raise ValueError(f"{name}: got tokens {least}..{most}, expected each within 0..{vocabulary - 1}")


def check_rows(rows: Tensor, batch: int) -> None:
    """(n,) indices of a batch; which they are is looked at where `check_tokens` looks."""
    check_whole("rows", rows, "n")
    if rows.numel() and rows.device.type == "cpu" and not torch.compiler.is_compiling():
        least, most = (int(bound) for bound in rows.aminmax())
        if least < 0 or most >= batch:
            raise ValueError(f"rows: got {least}..{most}, expected each within 0..{batch - 1}")


def check_boolean(name: str, x: Tensor, true_means: str) -> None:
    """Raises TypeError for what is no boolean tensor."""
    if not isinstance(x, Tensor) or x.dtype != torch.bool:
        got = x.dtype if isinstance(x, Tensor) else type(x).__name__
        raise TypeError(f"{name}: got {got}, expected torch.bool with True where {true_means}")


def check_one_of(name: str, got: str, allowed: Sequence[str]) -> None:
    if got not in allowed:
        raise ValueError(f"{name}: got {got!r}, expected one of {', '.join(map(repr, allowed))}")


def check_at_least(low: int, **named: int) -> None:
    for name, got in named.items():
        if not isinstance(got, numbers.Integral) or isinstance(got, bool):
            raise ValueError(f"{name}: got {got!r}, expected a whole number")
        if got < low:
            raise ValueError(f"{name}: got {got}, expected at least {low}")


def check_dropout(**named: float) -> None:
    for name, p in named.items():
        if not 0 <= p < 1:
            raise ValueError(f"{name}: got {p}, expected a probability from 0 to below 1")
