"""Attention itself: scores, masks, the softmax that respects them, and the weighted average."""

import math
from collections.abc import Callable, Sequence

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

# How well each query matches each key: (*batch, n_query, d_query), (*batch, n_key, d_key) -> (*batch, n_query, n_key).
Score = Callable[[Tensor, Tensor], Tensor]


def dot_score(
    query: Float[Tensor, "*batch n_query d_k"], key: Float[Tensor, "*batch n_key d_k"]
) -> Float[Tensor, "*batch n_query n_key"]:
    """q · k. Raises ValueError where the widths differ. Luong et al. 2015, section 3.1 ("dot")."""
    _check_widths(query, key)
    return query @ key.mT                                         # (*batch, n_query, n_key)


def scaled_dot_score(
    query: Float[Tensor, "*batch n_query d_k"], key: Float[Tensor, "*batch n_key d_k"]
) -> Float[Tensor, "*batch n_query n_key"]:
    """q · k / √d_k: the variance of the scores no longer grows with the width.

    Raises ValueError where the widths differ. Vaswani et al. 2017, section 3.2.1.
    """
    return dot_score(query, key) / math.sqrt(query.shape[-1])     # (*batch, n_query, n_key)


class BilinearScore(nn.Module):
    """qᵀ W k with a learned W: query and key may differ in width. Luong et al. 2015, section 3.1 ("general")."""

    def __init__(self, d_query: int, d_key: int):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(d_query, d_key))
        nn.init.xavier_uniform_(self.weight)

    def forward(
        self, query: Float[Tensor, "*batch n_query d_query"], key: Float[Tensor, "*batch n_key d_key"]
    ) -> Float[Tensor, "*batch n_query n_key"]:
        _check_widths(query, key, *self.weight.shape)
        return query @ self.weight @ key.mT                       # (*batch, n_query, n_key)


class AdditiveScore(nn.Module):
    """vᵀ tanh(W q + U k): a small network with one hidden layer. Bahdanau et al. 2015, appendix A.1.2."""

    def __init__(self, d_query: int, d_key: int, d_attention: int):
        super().__init__()
        self.query = nn.Linear(d_query, d_attention, bias=False)
        self.key = nn.Linear(d_key, d_attention, bias=False)
        self.v = nn.Linear(d_attention, 1, bias=False)

    def forward(
        self, query: Float[Tensor, "*batch n_query d_query"], key: Float[Tensor, "*batch n_key d_key"]
    ) -> Float[Tensor, "*batch n_query n_key"]:
        _check_widths(query, key, self.query.in_features, self.key.in_features)
        query = self.query(query).unsqueeze(-2)                   # (*batch, n_query, 1, d_attention)
        key = self.key(key).unsqueeze(-3)                         # (*batch, 1, n_key, d_attention)
        return self.v(torch.tanh(query + key)).squeeze(-1)        # (*batch, n_query, n_key)


def masked_softmax(
    scores: Float[Tensor, "*batch n_query n_key"],
    mask: Bool[Tensor, "*#batch #n_query n_key"] | None = None,
) -> Float[Tensor, "*batch n_query n_key"]:
    """Softmax over the keys that `mask` allows (True = may attend); exactly zero elsewhere.

    A row that allows nothing is all zeros, and so is its gradient: never NaN.
    Raises TypeError for a mask that is not boolean, ValueError for one that does not broadcast to the scores.
    """
    if mask is None:
        return scores.softmax(dim=-1)
    _check_mask(mask, scores)
    # The lowest finite number, not −inf: a row of −inf alone would give 0/0, forward and backward.
    lowest = torch.finfo(scores.dtype).min
    return scores.masked_fill(~mask, lowest).softmax(dim=-1).masked_fill(~mask, 0.0)


def attend(
    query: Float[Tensor, "*batch n_query d_query"],
    key: Float[Tensor, "*batch n_key d_key"],
    value: Float[Tensor, "*batch n_key d_v"],
    mask: Bool[Tensor, "*#batch #n_query n_key"] | None = None,
    score: Score = scaled_dot_score,
) -> tuple[Float[Tensor, "*batch n_query d_v"], Float[Tensor, "*batch n_query n_key"]]:
    """Average the values, weighted by how well each query matches each key; returns (output, weights).

    `mask` is True where a query may attend. A query that may attend to nothing returns zeros.
    `score` is any of the score functions above.
    Raises ValueError where shapes do not fit, TypeError for a mask that is not boolean.
    Vaswani et al. 2017, equation 1.
    """
    _check_vectors(query=query, key=key, value=value)
    if value.shape[-2] != key.shape[-2]:
        raise ValueError(f"value: got {value.shape[-2]} values for {key.shape[-2]} keys, expected one for each key")
    scores = score(query, key)                                    # (*batch, n_query, n_key)
    weights = masked_softmax(scores, mask)                        # (*batch, n_query, n_key)
    return weights @ value, weights                               # (*batch, n_query, d_v)


def lengths_to_mask(lengths: Int[Tensor, " batch"] | Sequence[int], n: int) -> Bool[Tensor, "batch {n}"]:
    """Which of `n` positions hold a real token: True up to each sequence's length, False in the padding after it.

    Raises ValueError for a length outside 0..n.
    """
    lengths = torch.as_tensor(lengths)
    if lengths.ndim != 1 or lengths.is_floating_point():
        got = f"{lengths.dtype} of shape {tuple(lengths.shape)}"
        raise ValueError(f"lengths: got {got}, expected whole numbers of shape (batch,)")
    if lengths.numel() and not 0 <= int(lengths.min()) <= int(lengths.max()) <= n:
        raise ValueError(f"lengths: got {lengths.tolist()}, expected each within 0..{n}, the padded length n")
    return torch.arange(n, device=lengths.device) < lengths.unsqueeze(-1)         # (batch, n)


def causal_mask(n: int, device: torch.device | str | None = None) -> Bool[Tensor, "{n} {n}"]:
    """Position i may attend to j ≤ i: itself and its past, never its future."""
    return torch.ones(n, n, dtype=torch.bool, device=device).tril()               # (n, n)


def _check_vectors(**named: Tensor) -> None:
    for name, x in named.items():
        if not isinstance(x, Tensor):
            raise TypeError(f"{name}: got {type(x).__name__}, expected a tensor (*batch, n, d)")
        if x.ndim < 2:
            raise ValueError(f"{name}: got shape {tuple(x.shape)}, expected (*batch, n, d)")


def _check_widths(query: Tensor, key: Tensor, d_query: int | None = None, d_key: int | None = None) -> None:
    """Widths must equal the declared ones, or each other where none are declared."""
    _check_vectors(query=query, key=key)
    if d_query is None and query.shape[-1] != key.shape[-1]:
        raise ValueError(
            f"key: got width {key.shape[-1]} against a query of width {query.shape[-1]}, expected equal widths "
            "(BilinearScore and AdditiveScore take unequal ones)"
        )
    for name, x, width in (("query", query, d_query), ("key", key, d_key)):
        if width is not None and x.shape[-1] != width:
            raise ValueError(f"{name}: got width {x.shape[-1]}, expected {width}, as the score function was built")


def _check_mask(mask: Tensor, scores: Tensor) -> None:
    if not isinstance(mask, Tensor) or mask.dtype != torch.bool:
        got = mask.dtype if isinstance(mask, Tensor) else type(mask).__name__
        raise TypeError(f"mask: got {got}, expected torch.bool with True where a query may attend")
    try:
        mask.expand(scores.shape)  # torch.broadcast_shapes would ask the same, but its first call imports sympy: 0.4 s
    except RuntimeError:
        raise ValueError(
            f"mask: got shape {tuple(mask.shape)}, expected one that broadcasts to the scores' {tuple(scores.shape)}; "
            "a padding mask (batch, n_key) becomes mask[:, None, :]"
        ) from None
