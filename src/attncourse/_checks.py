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


def values_are_cheap_to_read(x: Tensor) -> bool:
    """Whether the numbers in x may be looked at: on a GPU that means waiting, it breaks a graph, and vmap refuses."""
    inside = torch.compiler.is_compiling() or torch._C._functorch.is_functorch_wrapped_tensor(x)      # of vmap, grad
    return x.device.type == "cpu" and not inside


def min_max(x: Tensor) -> tuple[int, int] | None:
    """The least and the largest of whole numbers; None where there are none, or they may not be looked at."""
    if not x.numel() or not values_are_cheap_to_read(x):
        return None
    least, most = x.aminmax()
    return int(least), int(most)


def check_tokens(name: str, tokens: Tensor, vocab_size: int, **sizes: int) -> None:
    """(batch, n) tokens, at least one, each in the vocabulary where they may be looked at."""
    check_whole(name, tokens, "batch n", **sizes)
    if not tokens.numel():
        raise ValueError(f"{name}: got shape {tuple(tokens.shape)}, expected at least one token")
    if (found := min_max(tokens)) and not 0 <= found[0] <= found[1] < vocab_size:
        raise ValueError(f"{name}: got tokens {found[0]}..{found[1]}, expected each within 0..{vocab_size - 1}")


def check_rows(rows: Tensor, batch: int) -> None:
    """(n,) indices of a batch, each in it where they may be looked at."""
    check_whole("rows", rows, "n")
    if (found := min_max(rows)) and not 0 <= found[0] <= found[1] < batch:
        raise ValueError(f"rows: got {found[0]}..{found[1]}, expected each within 0..{batch - 1}")


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


def check_heads(d_model: int, n_heads: int, n_kv_heads: int, d_head: int | None) -> None:
    """Heads share out d_model unless their width is given, and groups share out the heads."""
    if d_head is None and d_model % n_heads:
        raise ValueError(f"n_heads: got {n_heads}, expected a divisor of d_model = {d_model} (or give d_head)")
    if n_heads % n_kv_heads:
        raise ValueError(f"n_kv_heads: got {n_kv_heads}, expected a divisor of n_heads = {n_heads}")


def check_vectors(**named: Tensor) -> None:
    for name, x in named.items():
        if not isinstance(x, Tensor):
            raise TypeError(f"{name}: got {type(x).__name__}, expected a tensor (*batch, n, d)")
        if x.ndim < 2:
            raise ValueError(f"{name}: got shape {tuple(x.shape)}, expected (*batch, n, d)")


def check_widths(query: Tensor, key: Tensor, d_query: int | None = None, d_key: int | None = None) -> None:
    """Widths must equal the declared ones, or each other where none are declared."""
    check_vectors(query=query, key=key)
    if d_query is None and query.shape[-1] != key.shape[-1]:
        raise ValueError(
            f"key: got width {key.shape[-1]} against a query of width {query.shape[-1]}, expected equal widths "
            "(BilinearScore and AdditiveScore take unequal ones)"
        )
    for name, x, width in (("query", query, d_query), ("key", key, d_key)):
        if width is not None and x.shape[-1] != width:
            raise ValueError(f"{name}: got width {x.shape[-1]}, expected {width}, as the score function was built")


def check_mask(mask: Tensor, scores: Tensor) -> None:
    check_boolean("mask", mask, "a query may attend")
    try:
        mask.expand(scores.shape)  # torch.broadcast_shapes would ask the same, but its first call imports sympy: 0.4 s
    except RuntimeError:
        raise ValueError(
            f"mask: got shape {tuple(mask.shape)}, expected one that broadcasts to the scores' {tuple(scores.shape)}; "
            "a padding mask (batch, n_key) becomes mask[:, None, :]"
        ) from None


def check_one_value_a_key(key: Tensor, value: Tensor) -> None:
    if value.shape[-2] != key.shape[-2]:
        raise ValueError(f"value: got {value.shape[-2]} values for {key.shape[-2]} keys, expected one for each key")
