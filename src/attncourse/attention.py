"""Attention itself: scores, masks, the softmax that respects them, the weighted average, and many heads of it."""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from attncourse._checks import (
    check_at_least,
    check_boolean,
    check_dropout,
    check_heads,
    check_mask,
    check_one_value_a_key,
    check_rows,
    check_shape,
    check_vectors,
    check_widths,
    min_max,
    values_are_cheap_to_read,
)
from attncourse.positions import RoPE, ShawRelative

# How well each query matches each key: (*batch, n_query, d_query), (*batch, n_key, d_key) -> (*batch, n_query, n_key).
Score = Callable[[Tensor, Tensor], Tensor]


def dot_score(
    query: Float[Tensor, "*batch n_query d_k"], key: Float[Tensor, "*batch n_key d_k"]
) -> Float[Tensor, "*batch n_query n_key"]:
    """q · k. Raises ValueError where the widths differ. Luong et al. 2015, section 3.1 ("dot")."""
    check_widths(query, key)
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
        check_widths(query, key, *self.weight.shape)
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
        check_widths(query, key, self.query.in_features, self.key.in_features)
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
    check_mask(mask, scores)
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
    Raises ValueError where shapes do not fit, TypeError for a mask that is not boolean, a score that is no function, or
    vectors of different types. Vaswani et al. 2017, equation 1.
    """
    check_vectors(query=query, key=key, value=value)
    for name, x in (("key", key), ("value", value)):
        mixed = x.dtype != query.dtype and not torch.is_autocast_enabled(query.device.type)
        if mixed or not x.is_floating_point():
            raise TypeError(f"{name}: got {x.dtype} beside a query of {query.dtype}, expected one floating-point type")
    if isinstance(score, type) or not callable(score):
        raise TypeError(f"score: got {score!r}, expected a score function: dot_score, BilinearScore(d_query, d_key), …")
    check_one_value_a_key(key, value)
    scores = score(query, key)                                    # (*batch, n_query, n_key)
    weights = masked_softmax(scores, mask)                        # (*batch, n_query, n_key)
    return weights @ value, weights                               # (*batch, n_query, d_v)


def lengths_to_mask(
    lengths: Int[Tensor, " batch"] | Sequence[int], n: int, least: int = 0
) -> Bool[Tensor, "batch {n}"]:
    """Which of `n` positions hold a real token: True up to each sequence's length, False in the padding after it.

    Raises ValueError for a length outside `least`..n. (Lengths on a GPU are not looked at, which would mean waiting for
    it, nor are they in a compiled graph.)

    >>> lengths_to_mask([3, 1], 3)
    tensor([[ True,  True,  True],
            [ True, False, False]])
    """
    if lengths is None:
        raise ValueError("lengths: got None, expected whole numbers of shape (batch,)")
    lengths = torch.as_tensor(lengths)
    if lengths.ndim != 1 or lengths.is_floating_point() or lengths.dtype == torch.bool:
        got = f"{lengths.dtype} of shape {tuple(lengths.shape)}"
        raise ValueError(f"lengths: got {got}, expected whole numbers of shape (batch,)")
    if (found := min_max(lengths)) and not least <= found[0] <= found[1] <= n:
        raise ValueError(f"lengths: got {lengths.tolist()}, expected each within {least}..{n}, the padded length")
    return torch.arange(n, device=lengths.device) < lengths.unsqueeze(-1)         # (batch, n)


def masked_mean(
    values: Float[Tensor, "*batch n d"], mask: Bool[Tensor, "*#batch n"]
) -> Float[Tensor, "*batch d"]:
    """The mean of the positions where `mask` is True; what stands in the others, NaN too, changes nothing.

    Where the mask allows no position the mean is zeros, and so is its gradient: never NaN. With True everywhere this is
    attention with equal weights. Raises TypeError for a mask that is not boolean, ValueError for one that does not fit.

    >>> stars = torch.tensor([[[5.0], [0.0]], [[4.0], [2.0]]])
    >>> masked_mean(stars, lengths_to_mask([1, 2], 2))
    tensor([[5.],
            [3.]])
    """
    check_vectors(values=values)
    check_boolean("mask", mask, "a position counts")
    try:
        mask = mask.expand(values.shape[:-1])
    except RuntimeError:
        got, expected = tuple(mask.shape), tuple(values.shape[:-1])
        raise ValueError(f"mask: got shape {got}, expected {expected}, one for each vector of values") from None
    total = values.masked_fill(~mask.unsqueeze(-1), 0.0).sum(dim=-2)              # (*batch, d)
    return total / mask.sum(dim=-1, keepdim=True).clamp(min=1)                    # (*batch, d)


def causal_mask(
    n: int, n_key: int | None = None, device: torch.device | str | None = None
) -> Bool[Tensor, "{n} n_key"]:
    """Position i may attend to j ≤ i: itself and its past, never its future.

    With `n_key` more keys than queries, the queries are the last `n` of the `n_key` positions, as when the keys of
    earlier tokens are cached. Raises ValueError for fewer keys than queries, or a negative number of them.

    >>> causal_mask(2, n_key=3)
    tensor([[ True,  True, False],
            [ True,  True,  True]])
    """
    n_key = n if n_key is None else n_key
    if isinstance(n, Tensor | float):
        raise TypeError(f"n: got {type(n).__name__}, expected a whole number, such as x.shape[1]")
    if n < 0:
        raise ValueError(f"n: got {n}, expected at least 0")
    if n_key < n:
        raise ValueError(f"n_key: got {n_key} for {n} queries, expected at least as many keys as queries")
    return torch.ones(n, n_key, dtype=torch.bool, device=device).tril(n_key - n)  # (n, n_key)


def window_mask(
    n: int, window: int, n_key: int | None = None, device: torch.device | str | None = None
) -> Bool[Tensor, "n n_key"]:
    """Query i may attend to the keys that are fewer than `window` positions away, on either side.

    The last query stands at the last key, as in `causal_mask`; with both, a row holds the `window` newest keys, its
    own included (Mistral 7B's `sliding_window`; Jiang et al. 2023, section 2). It is `sliding_window(window - 1)` of
    `attncourse.efficient`. Raises ValueError for a window below 1.

    >>> window_mask(2, window=2, n_key=4).int()
    tensor([[0, 1, 1, 1],
            [0, 0, 1, 1]], dtype=torch.int32)
    """
    check_at_least(1, window=window)
    n_key = n if n_key is None else n_key
    near = torch.ones(n, n_key, dtype=torch.bool, device=device)              # (n, n_key)
    return near.triu(n_key - n - window + 1).tril(n_key - n + window - 1)


def combine_masks(*masks: Bool[Tensor, "*_"] | None) -> Bool[Tensor, "*_"] | None:
    """Attend only where every mask allows it. They broadcast against each other; None allows everything.

    A padding mask (batch, n_key) goes in as mask[:, None, :], a causal one as it is.
    Raises TypeError for a mask that is not boolean, ValueError for masks that do not broadcast.

    >>> combine_masks(causal_mask(2), lengths_to_mask([2, 1], 2)[:, None, :])
    tensor([[[ True, False],
             [ True,  True]],
    <BLANKLINE>
            [[ True, False],
             [ True, False]]])
    """
    combined: Tensor | None = None
    for mask in masks:
        if mask is None:
            continue
        check_boolean("mask", mask, "a query may attend")
        try:
            combined = mask if combined is None else combined & mask
        except RuntimeError:
            shapes = " and ".join(str(tuple(each.shape)) for each in masks if each is not None)
            raise ValueError(f"masks: got shapes {shapes}, expected ones that broadcast") from None
    return combined


class KeyValueCache:
    """The keys and values of the tokens read so far, so that the next token costs one row of them and not all again.

    It grows by doubling, so n tokens cost O(n) copies. With a `window` it forgets what no later token may attend to:
    it keeps window - 1 tokens, in memory for at most 2 · window, and a step costs the same however long the text.
    For decoding only: raises ValueError for tensors that ask for gradients (decode under `torch.no_grad()`), or a
    window below 1.
    """

    def __init__(self, window: int | None = None) -> None:
        if window is not None:
            check_at_least(1, window=window)
        self.window = window
        self.length = 0
        """How many tokens have been read, those that are forgotten included."""
        self._key: Tensor | None = None                           # (batch, n_kv_heads, capacity, d_head)
        self._value: Tensor | None = None
        self._end = 0                                             # how many rows of these are in use

    @property
    def n_kept(self) -> int:
        """How many of the tokens read the next one may attend to, beside itself."""
        return self.length if self.window is None else min(self.length, self.window - 1)

    def append(
        self, key: Float[Tensor, "batch n_kv_heads n d_head"], value: Float[Tensor, "batch n_kv_heads n d_head"]
    ) -> tuple[Float[Tensor, "batch n_kv_heads n_key d_head"], Float[Tensor, "batch n_kv_heads n_key d_head"]]:
        """Put the new ones after those that are kept; returns the keys and values of both.

        Raises ValueError for another batch, number of heads, width or type than those that are there.
        """
        self._check(key, value)
        if torch.is_grad_enabled() and (key.requires_grad or value.requires_grad):
            raise ValueError("cache: got keys that ask for gradients, expected decoding under torch.no_grad()")
        return self.put(key, value)

    def put(self, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """`append`, which trusts whoever calls."""
        n, n_kept = key.shape[2], self.n_kept
        if self._key is None or self._value is None or self._end + n > self._key.shape[2]:
            self._key, self._value = self._moved(self._key, key), self._moved(self._value, value)
            self._end = n_kept
        start, self._end = self._end - n_kept, self._end + n
        self._key[:, :, self._end - n : self._end] = key
        self._value[:, :, self._end - n : self._end] = value
        self.length += n
        return self._key[:, :, start : self._end], self._value[:, :, start : self._end]

    def _moved(self, old: Tensor | None, new: Tensor) -> Tensor:
        """What is kept, in front of a place for the new ones and for as many again."""
        n_kept, n = self.n_kept, new.shape[2]
        capacity = max(16, n) if old is None else 2 * (n_kept + n)  # a prompt, which comes at once, fits exactly
        moved = new.new_empty(*new.shape[:2], capacity, new.shape[3])
        if old is not None:
            moved[:, :, :n_kept] = old[:, :, self._end - n_kept : self._end]
        return moved

    @property
    def contents(self) -> tuple[Tensor, Tensor]:
        """The keys and values that are kept, each (batch, n_kv_heads, n_kept, d_head)."""
        if self._key is None or self._value is None:
            raise ValueError("cache: got an empty one, expected one to which something has been appended")
        kept = slice(self._end - self.n_kept, self._end)
        return self._key[:, :, kept], self._value[:, :, kept]

    def _check(self, key: Tensor, value: Tensor) -> None:
        check_shape("key", key, "batch n_kv_heads n d_head")
        if value.shape != key.shape or value.dtype != key.dtype:
            got = f"{value.dtype} of shape {tuple(value.shape)}"
            raise ValueError(f"value: got {got}, expected the key's, {key.dtype} of shape {tuple(key.shape)}")
        if self._key is not None:
            batch, n_kv_heads, _, d_head = self._key.shape
            check_shape("key", key, "batch n_kv_heads n d_head", batch=batch, n_kv_heads=n_kv_heads, d_head=d_head)
            if key.dtype != self._key.dtype:
                raise ValueError(f"key: got {key.dtype}, expected {self._key.dtype}, as is stored")

    @property
    def n_bytes(self) -> int:
        """What the keys and values that are kept take: 2 · batch · n_kv_heads · n_kept · d_head numbers."""
        return sum(tensor.numel() * tensor.element_size() for tensor in self.contents) if self.length else 0

    def select(self, rows: Int[Tensor, " n"]) -> None:
        """Keep these rows of the batch, in this order; a row may be kept more than once.

        Raises ValueError for a row that is not there, TypeError for rows that are not whole numbers.
        """
        if self._key is not None and self._value is not None:
            check_rows(rows, self._key.shape[0])
            self._key, self._value = self._key.index_select(0, rows), self._value.index_select(0, rows)


class KeyValues(NamedTuple):
    """What a memory offers to one cross-attention, projected once for all the steps that will look at it."""

    key: Float[Tensor, "batch n_kv_heads n_key d_head"]
    value: Float[Tensor, "batch n_kv_heads n_key d_head"]

    @property
    def n_bytes(self) -> int:
        """2 · batch · n_kv_heads · n_key · d_head numbers."""
        return sum(tensor.numel() * tensor.element_size() for tensor in self)

    def select(self, rows: Int[Tensor, " n"]) -> "KeyValues":
        """These rows of the batch, in this order; a row may come more than once. Raises as `KeyValueCache.select`."""
        check_rows(rows, self.key.shape[0])
        return KeyValues(self.key.index_select(0, rows), self.value.index_select(0, rows))


class MultiHeadAttention(nn.Module):
    """Several attentions side by side, each in its own small space, and one projection that joins what they found.

        head_h = attend(x W_q, m W_k, m W_v),   output = [head_1; …; head_n] W_o

    m is x itself (self-attention) or a memory (cross-attention). Vaswani et al. 2017, section 3.2.2.

    * `n_kv_heads` < `n_heads`: groups of query heads share keys and values (Ainslie et al. 2023); 1 is multi-query
      attention (Shazeer 2019).
    * `d_head` need not be d_model / n_heads.  `scale` multiplies the scores; 1 / √d_head unless given.
    * `rope` turns queries and keys by their positions, `relative` adds Shaw's terms, and with a `window` a query sees
      only the keys fewer than `window` positions away (`window_mask`): all three for self-attention alone.

    Raises ValueError for heads that do not divide, or a window below 1.
    """

    def __init__(
        self,
        d_model: int,
        n_heads: int,
        n_kv_heads: int | None = None,
        d_head: int | None = None,
        bias: bool = True,
        dropout: float = 0.0,
        scale: float | None = None,
        rope: RoPE | None = None,
        relative: ShawRelative | None = None,
        window: int | None = None,
    ):
        super().__init__()
        n_kv_heads = n_heads if n_kv_heads is None else n_kv_heads
        check_at_least(1, d_model=d_model, n_heads=n_heads, n_kv_heads=n_kv_heads)
        if window is not None:
            check_at_least(1, window=window)
        check_heads(d_model, n_heads, n_kv_heads, d_head)
        check_dropout(dropout=dropout)
        d_head = d_model // n_heads if d_head is None else d_head
        check_at_least(1, d_head=d_head)
        self.n_heads, self.n_kv_heads, self.d_head = n_heads, n_kv_heads, d_head
        self.scale = 1 / math.sqrt(d_head) if scale is None else scale
        self.dropout = dropout
        self.rope, self.relative, self.window = rope, relative, window
        self.query = nn.Linear(d_model, n_heads * d_head, bias=bias)
        self.key = nn.Linear(d_model, n_kv_heads * d_head, bias=bias)
        self.value = nn.Linear(d_model, n_kv_heads * d_head, bias=bias)
        self.output = nn.Linear(n_heads * d_head, d_model, bias=bias)

    def forward(
        self,
        x: Float[Tensor, "batch n_query d_model"],
        memory: Float[Tensor, "batch n_key d_model"] | KeyValues | None = None,
        mask: Bool[Tensor, "*#batch #n_query n_key"] | None = None,
        causal: bool = False,
        bias: Float[Tensor, "n_heads n_query n_key"] | None = None,
        cache: KeyValueCache | None = None,
        weights: list[Tensor] | None = None,
    ) -> Float[Tensor, "batch n_query d_model"]:
        """x asks; `memory` answers (or its `keys_values`), or x itself where there is none.

        * `mask` is True where a query may attend: (n_query, n_key), (batch, n_query, n_key) or one for each head,
          (batch, n_heads, n_query, n_key), each axis but the last may be 1. A query that may attend to nothing gets
          zeros (and the output's bias). `causal` forbids the future on top of it. A padding mask (batch, n_key) goes in
          as mask[:, None, :]; by itself it would be taken for (n_query, n_key) where the sizes happen to agree.
        * `bias` is added to the scaled scores (T5's positions).
        * `cache`: a self-attention appends its keys and values to it and attends to all that are in it. `n_key` counts
          what the cache keeps and the new ones; a cache with a window keeps no more than its layer's window needs.
        * `weights`: a list, to which this call's weights are appended, (batch, n_heads, n_query, n_key), after dropout
          in training. Without it nothing of that size is kept: torch's fused attention does the work.

        Raises ValueError where shapes do not fit, for a cache beside a memory, one that forgets what the layer's window
        still sees, or a causal mask of the opposite sense (True = forbidden); TypeError for a mask that is not boolean,
        or a bias that is.
        """
        self._check_sequences(x, memory, cache, weights)
        query = self._split(self.query(x), self.n_heads)                  # (batch, n_heads, n_query, d_head)
        key, value = memory if isinstance(memory, KeyValues) else self.keys_values(x if memory is None else memory)
        if memory is None and self.rope is not None:
            start = 0 if cache is None else cache.length
            query, key = self.rope(query, start), self.rope(key, start)
        if cache is not None:
            key, value = cache.append(key, value)                         # (batch, n_kv_heads, n_key, d_head)
        mask = self._check_pairs(mask, bias, query, key, of_itself=memory is None)
        if memory is None and self.window is not None and key.shape[-2] > self.window:
            mask = combine_masks(mask, window_mask(query.shape[-2], self.window, key.shape[-2], query.device))
        if query.shape[-2] == 1:                                          # the newest token has no future
            causal = False
        if weights is None and self.relative is None:
            output = self._fused(query, key, value, mask, causal, bias)   # (batch, n_heads, n_query, d_head)
        else:
            output = self._spelled_out(query, key, value, mask, causal, bias, weights)
        return self.output(output.transpose(1, 2).flatten(2))             # (batch, n_query, d_model)

    def keys_values(self, memory: Float[Tensor, "batch n_key d_model"]) -> KeyValues:
        """What `memory` offers: `forward` takes it in the memory's place, and need not project it at every step."""
        check_shape("memory", memory, "batch n d_model", d_model=self.query.in_features)
        return KeyValues(
            self._split(self.key(memory), self.n_kv_heads), self._split(self.value(memory), self.n_kv_heads)
        )

    def _split(self, x: Tensor, n_heads: int) -> Float[Tensor, "batch {n_heads} n d_head"]:
        return x.unflatten(-1, (n_heads, self.d_head)).transpose(1, 2)    # (batch, n_heads, n, d_head)

    def _fused(self, query, key, value, mask, causal, bias):
        """Torch's kernel, which keeps no scores, and knows by itself a causal mask that nothing is added to."""
        if causal and not (mask is None and bias is None and query.shape[-2] == key.shape[-2]):
            mask, causal = _without_future(mask, query, key), False
        return F.scaled_dot_product_attention(
            query,
            key,
            value,
            attn_mask=mask if bias is None else _add_mask(bias, mask),
            is_causal=causal,
            dropout_p=self.dropout if self.training else 0.0,
            scale=self.scale,
            enable_gqa=self.n_kv_heads < self.n_heads,
        )                                                                 # (batch, n_heads, n_query, d_head)

    def _spelled_out(self, query, key, value, mask, causal, bias, weights):
        """`attend`, where the weights are wanted, or terms that the fused kernel does not know."""
        if causal:
            mask = _without_future(mask, query, key)
        start = key.shape[-2] - query.shape[-2]
        key, value = (x.repeat_interleave(self.n_heads // self.n_kv_heads, dim=1) for x in (key, value))
        scores = query @ key.mT                                           # (batch, n_heads, n_query, n_key)
        if self.relative is not None:
            scores = scores + self.relative.scores(query, key.shape[-2], start)
        scores = scores * self.scale
        if bias is not None:
            scores = scores + bias
        alpha = F.dropout(masked_softmax(scores, mask), self.dropout, self.training)
        if weights is not None:
            weights.append(alpha)
        output = alpha @ value                                            # (batch, n_heads, n_query, d_head)
        return output if self.relative is None else output + self.relative.output(alpha, start)

    def _check_sequences(self, x, memory, cache, weights) -> None:
        d_model = self.query.in_features
        check_shape("x", x, "batch n d_model", d_model=d_model)
        if isinstance(memory, KeyValues):
            axes, sizes = "batch n_kv_heads n_key d_head", {"n_kv_heads": self.n_kv_heads, "d_head": self.d_head}
            check_shape("memory", memory.key, axes, batch=x.shape[0], **sizes)
            check_shape("memory", memory.value, axes, batch=x.shape[0], n_key=memory.key.shape[2], **sizes)
        elif memory is not None:
            check_shape("memory", memory, "batch n d_model", d_model=d_model, batch=x.shape[0])
        if cache is not None and cache.window is not None and (self.window is None or cache.window < self.window):
            raise ValueError(f"cache: got a window of {cache.window}, expected the layer's, {self.window}, or more")
        if memory is not None and cache is not None:
            raise ValueError("cache: got one beside a memory, expected None (`keys_values` projects a memory once)")
        if weights is not None and not isinstance(weights, list):
            raise TypeError(f"weights: got {type(weights).__name__}, expected a list, to which they will be appended")

    def _check_pairs(self, mask, bias, query, key, of_itself: bool) -> Tensor | None:
        """The mask, with an axis for the heads."""
        n_query, n_key = query.shape[-2], key.shape[-2]
        if bias is not None:
            check_shape("bias", bias, "n_heads n_query n_key", n_heads=self.n_heads, n_query=n_query, n_key=n_key)
            if not bias.is_floating_point():
                raise TypeError(f"bias: got {bias.dtype}, expected numbers to add to the scores (or `mask`)")
        if mask is None:
            return None
        return _check_head_mask(mask, (query.shape[0], self.n_heads, n_query, n_key), of_itself)


def _without_future(mask: Tensor | None, query: Tensor, key: Tensor) -> Tensor | None:
    return combine_masks(causal_mask(query.shape[-2], key.shape[-2], query.device), mask)


def _check_head_mask(mask: Tensor, shape: tuple[int, int, int, int], of_itself: bool) -> Tensor:
    """The mask with an axis for the heads, if it fits (batch, n_heads, n_query, n_key)."""
    check_boolean("mask", mask, "a query may attend")
    batch, _, n_query, n_key = shape
    headed = mask.unsqueeze(1) if mask.ndim == 3 else mask
    fits = all(got in (1, want) for got, want in zip(headed.shape[::-1], shape[::-1], strict=False))
    if not 2 <= mask.ndim <= 4 or not fits or headed.shape[-1] != n_key:
        raise ValueError(
            f"mask: got shape {tuple(mask.shape)}, expected (n_query, n_key) or (batch, n_query, n_key), here "
            f"{(n_query, n_key)} or {(batch, n_query, n_key)}; a padding mask (batch, n_key) becomes mask[:, None, :]"
        )
    if of_itself and values_are_cheap_to_read(mask) and n_query == n_key > 1 and mask.shape[-2] == n_query:
        first = headed[(0,) * (headed.ndim - 2)]                                      # (n_query, n_key)
        if first.diagonal(1).all() and not first.tril().any():
            raise ValueError(
                "mask: got one in which each token may attend to its future alone, expected True where a query may "
                "attend (nn.MultiheadAttention's masks have the opposite sense: use ~mask)"
            )
    return headed


def _add_mask(bias: Tensor, mask: Tensor | None) -> Tensor:
    return bias if mask is None else bias.masked_fill(~mask, -math.inf)
