"""Attention that costs less than n²: sparse patterns, a window, low rank, running sums, and exact in tiles."""

import functools
import math
import operator
import warnings
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Shaped
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn.functional import pad, relu

from attncourse._checks import (
    check_at_least,
    check_boolean,
    check_mask,
    check_one_value_a_key,
    check_shape,
    check_vectors,
    check_widths,
)
from attncourse.attention import attend

# Who may attend to whom, as torch's flex_attention asks: (batch, head, query_index, key_index) -> True where allowed.
# The indices are tensors that broadcast. Queries and keys are each counted from 0.
Pattern = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]


# Patterns


def causal() -> Pattern:
    """Position i may attend to j ≤ i.

    >>> dense_mask(causal(), 3).int()
    tensor([[1, 0, 0],
            [1, 1, 0],
            [1, 1, 1]], dtype=torch.int32)
    """
    return lambda batch, head, query_index, key_index: key_index <= query_index


def sliding_window(width: int, causal: bool = False) -> Pattern:
    """Position i may attend to itself and the `width` positions on each side; with `causal`, only to those before.

    So a row holds 2·width + 1 keys (width + 1 if causal), and Longformer's window size w is 2·width.
    Raises ValueError for a negative width. Beltagy et al. 2020, section 3.1.

    >>> dense_mask(sliding_window(1), 5).int()
    tensor([[1, 1, 0, 0, 0],
            [1, 1, 1, 0, 0],
            [0, 1, 1, 1, 0],
            [0, 0, 1, 1, 1],
            [0, 0, 0, 1, 1]], dtype=torch.int32)
    """
    return dilated(width, 1, causal)


def dilated(width: int, dilation: int, causal: bool = False) -> Pattern:
    """A window with gaps: itself and `width` positions on each side, each `dilation` apart. Beltagy et al. 2020, 3.1.

    Raises ValueError for a negative width or a dilation below 1.

    >>> dense_mask(dilated(1, dilation=2), 5).int()
    tensor([[1, 0, 1, 0, 0],
            [0, 1, 0, 1, 0],
            [1, 0, 1, 0, 1],
            [0, 1, 0, 1, 0],
            [0, 0, 1, 0, 1]], dtype=torch.int32)
    """
    check_at_least(0, width=width)
    check_at_least(1, dilation=dilation)

    def pattern(batch, head, query_index, key_index):
        behind = query_index - key_index
        near = behind.abs() <= width * dilation
        if dilation > 1:
            near = near & (behind.abs() % dilation == 0)
        return near & (behind >= 0) if causal else near

    return pattern


def global_tokens(tokens: int | Sequence[int]) -> Pattern:
    """Some tokens attend to all and are attended by all: the first `tokens`, or those at the indices given.

    Raises ValueError for a negative number or index. Beltagy et al. 2020, section 3.1.

    >>> dense_mask(global_tokens([1]), 4).int()
    tensor([[0, 1, 0, 0],
            [1, 1, 1, 1],
            [0, 1, 0, 0],
            [0, 1, 0, 0]], dtype=torch.int32)
    """
    if isinstance(tokens, int):
        check_at_least(0, tokens=tokens)
        return lambda batch, head, query_index, key_index: (query_index < tokens) | (key_index < tokens)
    indices = tuple(tokens)
    for token in indices:
        check_at_least(0, tokens=token)

    def pattern(batch, head, query_index, key_index):
        allowed = (query_index < 0) | (key_index < 0)             # nowhere, yet of the right shape
        for token in indices:
            allowed = allowed | (query_index == token) | (key_index == token)
        return allowed

    return pattern


def random_keys(
    n_query: int, n_key: int, n_random: int, seed: int = 0, device: torch.device | str | None = None
) -> Pattern:
    """Each of `n_query` queries may attend to `n_random` of the `n_key` keys, drawn once, without repeats, from `seed`.

    `device` is where the pattern will be asked. Raises ValueError for more keys than there are, IndexError when asked
    about a query past `n_query`. Zaheer et al. 2020, section 2.

    >>> dense_mask(random_keys(4, 6, n_random=2, seed=0), 4, 6).sum(-1)
    tensor([2, 2, 2, 2])
    """
    check_at_least(1, n_query=n_query, n_key=n_key)
    check_at_least(0, n_random=n_random)
    if n_random > n_key:
        raise ValueError(f"n_random: got {n_random}, expected at most n_key = {n_key}")
    generator = torch.Generator().manual_seed(seed)
    drawn = [torch.randperm(n_key, generator=generator)[:n_random] for _ in range(n_query)]
    table = torch.stack(drawn).to(device)                         # (n_query, n_random)

    def pattern(batch, head, query_index, key_index):
        allowed = (query_index < 0) | (key_index < 0)
        # One comparison a column, not `.any(-1)`: with a reduction in the pattern, the kernel that torch 2.13 compiles
        # for the CPU returns wrong numbers and says nothing.
        for column in range(n_random):
            allowed = allowed | (table[query_index, column] == key_index)
        return allowed

    return pattern


def any_of(*patterns: Pattern) -> Pattern:
    """Allowed where any of the patterns allows it. Raises ValueError for none.

    >>> dense_mask(any_of(sliding_window(0), global_tokens(1)), 3).int()
    tensor([[1, 1, 1],
            [1, 1, 0],
            [1, 0, 1]], dtype=torch.int32)
    """
    return _combine(operator.or_, patterns)


def all_of(*patterns: Pattern) -> Pattern:
    """Allowed where all of the patterns allow it. Raises ValueError for none.

    >>> dense_mask(all_of(causal(), global_tokens(1)), 3).int()
    tensor([[1, 0, 0],
            [1, 0, 0],
            [1, 0, 0]], dtype=torch.int32)
    """
    return _combine(operator.and_, patterns)


def longformer(width: int, n_global: int | Sequence[int], dilation: int = 1) -> Pattern:
    """A (dilated) window and global tokens. Raises ValueError as those do. Beltagy et al. 2020, section 3.1."""
    return any_of(dilated(width, dilation), global_tokens(n_global))


def bigbird(
    n: int, width: int, n_global: int | Sequence[int], n_random: int, seed: int = 0,
    device: torch.device | str | None = None,
) -> Pattern:
    """A window, global tokens, and random keys for each of the `n` queries.

    Here token by token; the paper's implementation draws blocks. Raises ValueError as those do.
    Zaheer et al. 2020, section 2.

    >>> mask = dense_mask(bigbird(64, width=1, n_global=2, n_random=2), 64)
    >>> f"{mask.float().mean():.2f} of the pairs"
    '0.13 of the pairs'
    """
    return any_of(sliding_window(width), global_tokens(n_global), random_keys(n, n, n_random, seed, device))


def receptive_field(mask: Bool[Tensor, "n n"], layers: int) -> Bool[Tensor, "n n"]:
    """Whom each position has heard of after so many layers under the mask: row i is True at those whom i hears of.

    Each layer passes on what its keys have heard, and a residual connection keeps what a position had: with no layers
    it knows itself. Raises TypeError for a mask that is not boolean, ValueError for one not square or layers < 0.

    >>> receptive_field(dense_mask(sliding_window(1), 7), layers=2)[0].int()
    tensor([1, 1, 1, 0, 0, 0, 0], dtype=torch.int32)
    """
    check_boolean("mask", mask, "a query may attend")
    check_shape("mask", mask, "n n")
    if mask.shape[0] != mask.shape[1]:
        raise ValueError(f"mask: got shape {tuple(mask.shape)}, expected a square one: a sequence looks at itself")
    check_at_least(0, layers=layers)
    step = mask.float() + torch.eye(len(mask), device=mask.device)                    # (n, n)
    heard = torch.eye(len(mask), device=mask.device)
    for _ in range(layers):
        heard = (step @ heard > 0).float()
    return heard > 0


def dense_mask(
    pattern: Pattern, n_query: int, n_key: int | None = None, device: torch.device | str | None = None
) -> Bool[Tensor, "{n_query} n_key"]:
    """The pattern written out, to draw, to count, or to give to `attend`. `n_key` is `n_query` unless given.

    Raises TypeError for a pattern that does not answer with booleans, ValueError for one that asks for a single truth
    value (`and` for &).
    """
    n_key = n_query if n_key is None else n_key
    any_batch = any_head = torch.zeros((), dtype=torch.long, device=device)
    query_index = torch.arange(n_query, device=device).unsqueeze(-1)                  # (n_query, 1)
    key_index = torch.arange(n_key, device=device)                                    # (n_key,)
    try:
        mask = pattern(any_batch, any_head, query_index, key_index)
    except RuntimeError as error:
        if "Boolean value of Tensor" not in str(error):
            raise
        raise ValueError(
            "pattern: got one that wants a single truth value, expected &, | and ~ in place of `and`, `or`, `not` and "
            "of chains such as 0 <= i - j < 2"
        ) from None
    check_boolean("pattern", mask, "a query may attend")
    return mask.expand(n_query, n_key)                                                # (n_query, n_key)


# Any pattern, in torch's own kernel


@functools.lru_cache(maxsize=32)
def block_mask(pattern: Pattern, n_query: int, n_key: int, device: torch.device | str = "cpu"):
    """Which blocks of 128 × 128 hold nothing, something, everything: torch's BlockMask, remembered by pattern and size.

    Building it writes the mask out once, n_query · n_key booleans; what is kept is a list of blocks.
    """
    from torch.nn.attention.flex_attention import create_block_mask

    return create_block_mask(pattern, None, None, n_query, n_key, device=device)


def flex_attend(
    query: Float[Tensor, "batch n_heads n_query d_k"],
    key: Float[Tensor, "batch n_heads n_key d_k"],
    value: Float[Tensor, "batch n_heads n_key d_v"],
    pattern: Pattern,
) -> Float[Tensor, "batch n_heads n_query d_v"]:
    """`attend` under a pattern, in a kernel that torch's flex_attention compiles for it and that skips empty blocks.

    In float32 and 16 bits it runs on CUDA, and on the CPU in the forward direction alone, with a C++ compiler at hand.
    The first call with a pattern compiles, for some ten seconds on a CPU; keep the pattern and pass the same one again.
    Elsewhere (gradients on the CPU, float64, Metal; or nothing compiles, then with a warning) the mask is written out
    and `attend` gives the same answer, in n_query · n_key memory. A query that may attend to nothing returns zeros
    either way. The pattern must be the same for every batch element and head.

    Raises ValueError where shapes do not fit. Dong et al. 2024.
    """
    _check_qkv(query, key, value)
    check_shape("query", query, "batch n_heads n_query d_k")
    n_query, n_key = query.shape[-2], key.shape[-2]
    gradients = torch.is_grad_enabled() and any(x.requires_grad for x in (query, key, value))
    kernel = query.device.type == "cuda" or (query.device.type == "cpu" and not gradients)
    if kernel and query.dtype != torch.float64:
        if not gradients:                                         # the CPU refuses a leaf that could ask for gradients
            query, key, value = query.detach(), key.detach(), value.detach()
        from torch._dynamo.exc import TorchDynamoException

        try:
            return _flex_attention()(query, key, value, block_mask=block_mask(pattern, n_query, n_key, query.device))
        except TorchDynamoException as error:
            reason = str(error).strip().splitlines()[0]
            warnings.warn(f"flex_attention does not compile here, so attend does the work: {reason}", stacklevel=2)
    mask = dense_mask(pattern, n_query, n_key, query.device)
    return attend(_wide(query), _wide(key), _wide(value), mask)[0].to(query.dtype)


@functools.cache
def _flex_attention():
    from torch.nn.attention.flex_attention import flex_attention

    # Past torch's own limit, 8 patterns, it would run uncompiled.
    return torch.compile(flex_attention, recompile_limit=64)  # type: ignore[call-overload]  # the stubs lag behind


# A window, in plain tensor operations


def sliding_window_attend(
    query: Float[Tensor, "*batch n d_k"],
    key: Float[Tensor, "*batch n d_k"],
    value: Float[Tensor, "*batch n d_v"],
    width: int,
    causal: bool = False,
    n_global: int = 0,
) -> Float[Tensor, "*batch n d_v"]:
    """`attend` under `sliding_window(width, causal)` in O(n · width) time and memory, forward and backward.

    The queries are cut into blocks of `width`, so that a block's window lies within three blocks of keys: the one
    before, its own, and the one after (none after, if causal). The first `n_global` tokens attend to all and are
    attended by all; if causal, by all that come later.

    Raises ValueError for a negative width, queries and keys of different number, or shapes that do not fit.
    Beltagy et al. 2020, section 3.1.
    """
    check_at_least(0, width=width, n_global=n_global)
    _check_qkv(query, key, value)
    n, dtype = query.shape[-2], query.dtype
    if key.shape[-2] != n:
        raise ValueError(f"key: got {key.shape[-2]} keys for {n} queries, expected as many (one sequence, one window)")
    query, key, value = _wide(query), _wide(key), _wide(value)
    n_global = min(n_global, n)
    block = max(1, min(width, n))
    n_blocks, reach = max(1, -(-n // block)), 2 if causal else 3

    def in_reach(x: Tensor) -> Tensor:
        """For each block of queries: the global tokens, then the blocks of x that its window touches."""
        padded = pad(x, (0, 0, block, (n_blocks + reach - 2) * block - n))
        near = padded.unfold(-2, reach * block, block).mT         # (*batch, n_blocks, reach · block, d)
        if not n_global:
            return near
        everywhere = x[..., None, :n_global, :].expand(*near.shape[:-2], n_global, x.shape[-1])
        return torch.cat([everywhere, near], dim=-2)              # (*batch, n_blocks, n_global + reach · block, d)

    start = block * torch.arange(n_blocks, device=query.device)[:, None, None]        # (n_blocks, 1, 1)
    i = start + torch.arange(block, device=query.device)[:, None]                     # (n_blocks, block, 1)
    j = start - block + torch.arange(reach * block, device=query.device)              # (n_blocks, 1, reach · block)
    # A global token among the neighbours too would be counted twice, so there it is left out.
    mask = sliding_window(width, causal)(i, i, i, j) & (j >= n_global) & (j < n)      # (n_blocks, block, reach · block)
    if n_global:
        first = torch.arange(n_global, device=query.device)
        seen = (first <= i) | (not causal)                                            # (n_blocks, block, n_global)
        mask = torch.cat([seen, mask], dim=-1)

    blocks = pad(query, (0, 0, 0, n_blocks * block - n))                              # (*batch, n_blocks · block, d_k)
    blocks = blocks.unflatten(-2, (n_blocks, block))                                  # (*batch, n_blocks, block, d_k)
    output, _ = attend(blocks, in_reach(key), in_reach(value), mask)                  # (*batch, n_blocks, block, d_v)
    output = output.flatten(-3, -2)[..., :n, :]                                       # (*batch, n, d_v)
    if n_global and not causal:
        looks_everywhere, _ = attend(query[..., :n_global, :], key, value)            # (*batch, n_global, d_v)
        output = torch.cat([looks_everywhere, output[..., n_global:, :]], dim=-2)
    return output.to(dtype)


# Low rank


def linformer_attend(
    query: Float[Tensor, "*batch n_query d_k"],
    key: Float[Tensor, "*batch n_key d_k"],
    value: Float[Tensor, "*batch n_key d_v"],
    E: Float[Tensor, "k n_max"],
    F: Float[Tensor, "k n_max"],
    mask: Bool[Tensor, "*#batch n_key"] | None = None,
) -> Float[Tensor, "*batch n_query d_v"]:
    """Attend to k mixtures of the keys in place of the keys: attend(Q, E K, F V). O(n · k) time and memory.

    `mask` is True where there is a key; the others are zeroed before they are mixed, for after it is too late. A
    sequence shorter than n_max uses the first columns of E and F. It cannot be causal: each mixture holds the future.

    Raises ValueError for more keys than n_max or shapes that do not fit, TypeError for a mask that is not boolean.
    Wang et al. 2020, section 4.
    """
    _check_qkv(query, key, value)
    n_key, dtype = key.shape[-2], query.dtype
    for name, projection in (("E", E), ("F", F)):
        if projection.ndim != 2 or projection.shape != E.shape:
            raise ValueError(f"{name}: got shape {tuple(projection.shape)}, expected (k, n_max), the same for E and F")
    if n_key > E.shape[-1]:
        raise ValueError(f"key: got {n_key} keys, expected at most n_max = {E.shape[-1]}, the columns of E and F")
    E, F, query, key, value = (_wide(x) for x in (E, F, query, key, value))
    if mask is not None:
        missing = ~_check_key_mask(mask, key).unsqueeze(-1)                           # (*batch, n_key, 1)
        key, value = key.masked_fill(missing, 0.0), value.masked_fill(missing, 0.0)
    mixed_keys = E[:, :n_key] @ key                                                   # (*batch, k, d_k)
    mixed_values = F[:, :n_key] @ value                                               # (*batch, k, d_v)
    return attend(query, mixed_keys, mixed_values)[0].to(dtype)


class LinformerAttention(nn.Module):
    """Multi-head self-attention whose keys and values are mixed down to k along the length, by learned E and F.

    All heads share E and F. It cannot be causal (see `linformer_attend`).
    Raises ValueError for heads that do not divide d_model, or sequences longer than n_max. Wang et al. 2020, section 4.
    """

    def __init__(self, d_model: int, n_heads: int, n_max: int, k: int, bias: bool = True):
        super().__init__()
        check_at_least(1, d_model=d_model, n_heads=n_heads, n_max=n_max, k=k)
        if d_model % n_heads:
            raise ValueError(f"n_heads: got {n_heads}, expected a divisor of d_model = {d_model}")
        self.n_heads = n_heads
        self.query, self.key, self.value, self.output = (nn.Linear(d_model, d_model, bias=bias) for _ in range(4))
        self.E, self.F = nn.Parameter(torch.empty(k, n_max)), nn.Parameter(torch.empty(k, n_max))
        nn.init.xavier_uniform_(self.E)
        nn.init.xavier_uniform_(self.F)

    def forward(
        self, x: Float[Tensor, "batch n d_model"], mask: Bool[Tensor, "batch n"] | None = None
    ) -> Float[Tensor, "batch n d_model"]:
        """`mask` is True where there is a token (`lengths_to_mask` makes one)."""
        d_model = self.query.in_features
        check_shape("x", x, "batch n d_model", d_model=d_model)
        query, key, value = (
            project(x).unflatten(-1, (self.n_heads, -1)).transpose(1, 2)              # (batch, n_heads, n, d_head)
            for project in (self.query, self.key, self.value)
        )
        if mask is not None:
            mask = _check_key_mask(mask, x).unsqueeze(1)                              # (batch, 1, n)
        output = linformer_attend(query, key, value, self.E, self.F, mask)
        return self.output(output.transpose(1, 2).flatten(2))                         # (batch, n, d_model)


# Running sums


def linear_attend(
    query: Float[Tensor, "*batch n_query d_k"],
    key: Float[Tensor, "*batch n_key d_k"],
    value: Float[Tensor, "*batch n_key d_v"],
    mask: Bool[Tensor, "*#batch n_key"] | None = None,
    causal: bool = False,
    chunk: int = 64,
) -> Float[Tensor, "*batch n_query d_v"]:
    """φ(Q) (φ(K)ᵀ V), each row divided by the sum of its weights, with φ(x) = elu(x) + 1 in place of the softmax.

    No n_query × n_key matrix: O(n) time and memory. `mask` is True where there is a key; with none, the output is zero.
    With `causal` the queries are the last n_query of the n_key positions; within a `chunk` the weights are written out,
    and the sums over the chunks before are carried on.

    Raises ValueError where shapes do not fit, TypeError for a mask that is not boolean.
    Katharopoulos et al. 2020, sections 3.2 and 3.3.
    """
    _check_qkv(query, key, value)
    check_at_least(1, chunk=chunk)
    n_query, n_key, dtype = query.shape[-2], key.shape[-2], query.dtype
    query, key, value = _features(query), _features(key), _wide(value)
    if mask is not None:
        key = key.masked_fill(~_check_key_mask(mask, key).unsqueeze(-1), 0.0)
    # A column of ones after the values: whatever sums the values sums the weights too.
    value = pad(value, (0, 1), value=1.0)                                             # (*batch, n_key, d_v + 1)
    if not causal:
        return _divide(query @ (key.mT @ value)).to(dtype)                            # (*batch, n_query, d_v)

    _check_causal(n_query, n_key)
    n_chunks = -(-n_key // chunk)
    after = n_chunks * chunk - n_key
    query, key, value = (
        pad(x, (0, 0, n_key - x.shape[-2], after)).unflatten(-2, (n_chunks, chunk)) for x in (query, key, value)
    )                                                                                 # (*batch, n_chunks, chunk, d)
    sums = (key.mT @ value).cumsum(dim=-3)                                            # (*batch, n_chunks, d_k, d_v + 1)
    past = pad(sums[..., :-1, :, :], (0, 0, 0, 0, 1, 0))                              # of the chunks before
    total = query @ past + (query @ key.mT).tril() @ value        # (*batch, n_chunks, chunk, d_v + 1)
    total = total.flatten(-3, -2)[..., n_key - n_query : n_key, :]                    # (*batch, n_query, d_v + 1)
    return _divide(total).to(dtype)                                                   # (*batch, n_query, d_v)


class LinearState(NamedTuple):
    """All that linear attention remembers of the past: its size does not grow with it."""

    s: Float[Tensor, "*batch d_k d_v"]
    z: Float[Tensor, "*batch d_k"]


def linear_attend_step(
    query: Float[Tensor, "*batch d_k"],
    key: Float[Tensor, "*batch d_k"],
    value: Float[Tensor, "*batch d_v"],
    state: LinearState | None = None,
) -> tuple[Float[Tensor, "*batch d_v"], LinearState]:
    """Causal linear attention as an RNN: one position in, its output and the next state out. None starts it.

        s ← s + φ(k) vᵀ,   z ← z + φ(k),   output = φ(q) s / (φ(q) · z)

    Raises ValueError where widths differ. Katharopoulos et al. 2020, section 3.4.
    """
    if query.shape != key.shape or value.shape[:-1] != key.shape[:-1]:
        got = f"{tuple(query.shape)}, {tuple(key.shape)} and {tuple(value.shape)}"
        raise ValueError(f"query, key, value: got shapes {got}, expected (*batch, d_k) twice and (*batch, d_v)")
    dtype = query.dtype
    query, key, value = _features(query), _features(key), _wide(value)
    s = key.unsqueeze(-1) * value.unsqueeze(-2)                                       # (*batch, d_k, d_v)
    state = LinearState(s, key) if state is None else LinearState(state.s + s, state.z + key)
    summed = (query.unsqueeze(-2) @ state.s).squeeze(-2)                              # (*batch, d_v)
    weight = (query * state.z).sum(dim=-1, keepdim=True)                              # (*batch, 1)
    return _divide(torch.cat([summed, weight], dim=-1)).to(dtype), state              # (*batch, d_v)


def _features(x: Tensor) -> Tensor:
    """φ(x) = elu(x) + 1, a positive number for each: eˣ below zero, where adding the 1 in the end would cancel it."""
    x = _wide(x)
    return x.clamp(max=0).exp() + relu(x)


def _divide(total: Float[Tensor, "*rows d_v_1"]) -> Float[Tensor, "*rows d_v"]:
    """What was summed, over the sum of its weights, which stands in the last column. Nothing over nothing is zero."""
    summed, weight = total[..., :-1], total[..., -1:]
    return summed / weight.masked_fill(weight == 0, 1.0)


# Exact attention, a tile at a time


def online_softmax(chunks: Iterable[Float[Tensor, "*batch n_chunk"]]) -> Float[Tensor, "*batch n"]:
    """Softmax of scores that come in chunks, with one look at each to know the largest and the sum.

    A row of −∞ alone gives zeros. Raises ValueError for no chunks. Milakov and Gimelshein 2018, algorithm 3.

    >>> scores = torch.tensor([1.0, 3.0, 2.0, 5.0])
    >>> torch.allclose(online_softmax(scores.split(2)), scores.softmax(-1))
    True
    """
    chunks = list(chunks)
    if not chunks:
        raise ValueError("chunks: got none, expected at least one")
    largest = torch.full_like(chunks[0][..., :1], -math.inf)                          # (*batch, 1)
    total = torch.zeros_like(largest)                                                 # (*batch, 1)
    for scores in chunks:
        largest, total = online_softmax_step(scores, largest, total)
    largest, total = _finite(largest), total.masked_fill(total == 0, 1.0)
    return torch.cat([(scores - largest).exp() / total for scores in chunks], dim=-1)


def online_softmax_step(
    scores: Float[Tensor, "*batch n_chunk"], largest: Float[Tensor, "*batch 1"], total: Float[Tensor, "*batch 1"]
) -> tuple[Float[Tensor, "*batch 1"], Float[Tensor, "*batch 1"]]:
    """One more chunk: the largest score so far, and the sum so far of exp(score − largest).

        m′ = max(m, s_1, …),   ℓ′ = ℓ · exp(m − m′) + Σ_j exp(s_j − m′)

    Begin with −∞ and 0. Scores of −∞ count nothing, also in a chunk that has no others.
    Raises ValueError where shapes do not fit. Milakov and Gimelshein 2018, algorithm 3.

    >>> state = torch.tensor([-math.inf]), torch.tensor([0.0])
    >>> for chunk in torch.tensor([1.0, 3.0, 2.0, 5.0]).split(2):
    ...     state = online_softmax_step(chunk, *state)
    >>> torch.allclose(state[0] + state[1].log(), torch.tensor([1.0, 3.0, 2.0, 5.0]).logsumexp(-1))
    True
    """
    expected = (*scores.shape[:-1], 1)
    for name, x in (("largest", largest), ("total", total)):
        if x.shape != expected:
            raise ValueError(f"{name}: got shape {tuple(x.shape)}, expected {expected}: one number for each row")
    largest_so_far = torch.maximum(largest, scores.amax(dim=-1, keepdim=True))        # (*batch, 1)
    base = _finite(largest_so_far)
    return largest_so_far, total * (largest - base).exp() + (scores - base).exp().sum(dim=-1, keepdim=True)


def _finite(largest: Tensor) -> Tensor:
    """Where nothing but −∞ has come, the lowest number that is one: −∞ − (−∞) would be NaN."""
    return largest.clamp(min=torch.finfo(largest.dtype).min)


def tiled_attend(
    query: Float[Tensor, "*batch n_query d_k"],
    key: Float[Tensor, "*batch n_key d_k"],
    value: Float[Tensor, "*batch n_key d_v"],
    mask: Bool[Tensor, "*#batch #n_query n_key"] | None = None,
    causal: bool = False,
    tile: int = 128,
) -> Float[Tensor, "*batch n_query d_v"]:
    """`attend`, exactly, but the weights exist for `tile` keys at a time: O(n · tile) memory, and still O(n²) time.

    Forward, this is `online_softmax` with the output scaled along. Backward, the weights are computed again, tile by
    tile, from the log of each row's sum; there is no second derivative. With `causal` the queries are the last n_query
    of the n_key positions.

    Raises ValueError where shapes do not fit or tile < 1, TypeError for a mask that is not boolean.
    Dao et al. 2022, algorithms 1 and 4; they cut the queries into tiles as well, for a GPU's fast memory.
    """
    _check_qkv(query, key, value)
    check_at_least(1, tile=tile)
    if causal:
        _check_causal(query.shape[-2], key.shape[-2])
    if mask is not None:
        shape = (*query.shape[:-1], key.shape[-2])
        check_mask(mask, query.new_empty(()).expand(shape))      # an expanded number: the shape without the memory
        mask = mask.expand(shape)
    # Autocast would make 16 bits of the sums that are kept in 32, and on the way forward alone.
    with torch.autocast(query.device.type, enabled=False):
        return _Tiled.apply(query, key, value, mask, causal, tile)


class _Tiled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, query, key, value, mask, causal, tile):
        q = _wide(query) / math.sqrt(query.shape[-1])
        output = q.new_zeros(*query.shape[:-1], value.shape[-1])                      # (*batch, n_query, d_v)
        # The lowest finite number, not −inf, for the same reason as in masked_softmax.
        largest = q.new_full((*query.shape[:-1], 1), torch.finfo(q.dtype).min)        # (*batch, n_query, 1)
        total = torch.zeros_like(largest)                                             # (*batch, n_query, 1)
        for rows, keys, scores in _tiles(q, key, mask, causal, tile):
            largest_so_far = torch.maximum(largest[rows], scores.amax(dim=-1, keepdim=True))
            weights = (scores - largest_so_far).exp_()            # (*batch, rows, tile), to be divided at the end
            shrink = (largest[rows] - largest_so_far).exp_()
            total[rows] = total[rows] * shrink + weights.sum(dim=-1, keepdim=True)
            output[rows] = output[rows] * shrink + weights @ _wide(value[keys])
            largest[rows] = largest_so_far
        empty = total == 0
        output = (output / total.masked_fill(empty, 1.0)).to(query.dtype)
        # A row that may attend to nothing gets +inf: exp(score − inf) is then a weight of zero in the backward pass.
        log_sum = (largest + total.log()).masked_fill(empty, math.inf)                # (*batch, n_query, 1)
        ctx.save_for_backward(query, key, value, mask, output, log_sum)
        ctx.causal, ctx.tile = causal, tile
        return output

    @staticmethod
    @once_differentiable
    def backward(ctx, d_output):
        query, key, value, mask, output, log_sum = ctx.saved_tensors
        scale = 1 / math.sqrt(query.shape[-1])
        q, d_output = _wide(query) * scale, _wide(d_output)
        # Softmax's gradient subtracts each row's mean of dP under P. That mean is dO · O, which needs no weights.
        delta = (d_output * output).sum(dim=-1, keepdim=True)                         # (*batch, n_query, 1)
        d_query = torch.zeros_like(q)
        d_key, d_value = torch.zeros_like(key), torch.zeros_like(value)
        for rows, keys, scores in _tiles(q, key, mask, ctx.causal, ctx.tile):
            weights = (scores - log_sum[rows]).exp_()                                 # (*batch, rows, tile)
            d_value[keys] = (weights.mT @ d_output[rows]).to(value.dtype)
            d_scores = (d_output[rows] @ _wide(value[keys]).mT).sub_(delta[rows]).mul_(weights)
            d_key[keys] = (d_scores.mT @ q[rows]).to(key.dtype)
            d_query[rows] += d_scores @ _wide(key[keys])
        return (d_query * scale).to(query.dtype), d_key, d_value, None, None, None


def _tiles(q: Tensor, key: Tensor, mask: Tensor | None, causal: bool, tile: int):
    """For each tile of keys: the rows that may see it, where its keys are, and the scores (*batch, rows, tile)."""
    n_query, n_key = q.shape[-2], key.shape[-2]
    before = n_key - n_query                                      # if causal: the keys that come before the first query
    for start in range(0, n_key, tile):
        columns = slice(start, min(start + tile, n_key))
        # Nobody before the tile's first key sees any of it: half of the work.
        first = max(0, start - before) if causal else 0
        rows, keys = (..., slice(first, None), slice(None)), (..., columns, slice(None))
        scores = q[rows] @ _wide(key[keys]).mT                    # (*batch, n_query - first, tile)
        if mask is not None:
            scores.masked_fill_(~mask[..., first:, columns], -math.inf)
        if causal:
            i = before + torch.arange(first, n_query, device=q.device).unsqueeze(-1)
            j = torch.arange(columns.start, columns.stop, device=q.device)
            scores.masked_fill_(j > i, -math.inf)
        yield rows, keys, scores


# What the mechanisms share


def _wide(x: Tensor) -> Tensor:
    """Sums of many 16-bit numbers are kept in 32."""
    return x.float() if x.dtype in (torch.float16, torch.bfloat16) else x


def _combine(operation: Callable[[Tensor, Tensor], Tensor], patterns: tuple[Pattern, ...]) -> Pattern:
    if not patterns:
        raise ValueError("patterns: got none, expected at least one")

    def pattern(batch, head, query_index, key_index):
        return functools.reduce(operation, [each(batch, head, query_index, key_index) for each in patterns])

    return pattern


def _check_qkv(query: Tensor, key: Tensor, value: Tensor) -> None:
    check_widths(query, key)
    check_vectors(value=value)
    check_one_value_a_key(key, value)
    for name, x in (("key", key), ("value", value)):
        if x.shape[:-2] != query.shape[:-2]:
            got, expected = tuple(x.shape[:-2]), tuple(query.shape[:-2])
            raise ValueError(f"{name}: got the batch axes {got}, expected {expected}, as the query has")


def _check_causal(n_query: int, n_key: int) -> None:
    if n_key < n_query:
        raise ValueError(f"key: got {n_key} keys for {n_query} causal queries, expected at least as many keys")


def _check_key_mask(mask: Tensor, key: Shaped[Tensor, "*batch n_key d"]) -> Bool[Tensor, "*batch n_key"]:
    """The mask, expanded to one answer a key."""
    check_boolean("mask", mask, "there is a key")
    try:
        return mask.expand(key.shape[:-1])
    except RuntimeError:
        got, expected = tuple(mask.shape), tuple(key.shape[:-1])
        raise ValueError(f"mask: got shape {got}, expected one that broadcasts to the keys' {expected}") from None
