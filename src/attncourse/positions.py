"""Ways to tell a model where a token is: added to the embedding, added to the scores, or turned into query and key."""

import math
from collections.abc import Callable
from typing import Literal, get_args

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from attncourse._checks import check_at_least, check_one_of, check_shape, check_tensor

RotationStyle = Literal["half", "interleaved"]


def integer(positions: Int[Tensor, "*n"], d_model: int) -> Float[Tensor, "*n {d_model}"]:
    """The position itself in every column: the naive scheme. It has no bound, and soon drowns the embedding.

    A LayerNorm straight after it takes it away again: it subtracts what all columns have in common. Raises TypeError
    for what is no tensor.

    >>> integer(torch.arange(3), 2).tolist()
    [[0.0, 0.0], [1.0, 1.0], [2.0, 2.0]]
    """
    check_tensor("positions", positions, "torch.arange(n)")
    return positions.unsqueeze(-1).expand(*positions.shape, d_model).to(torch.get_default_dtype())  # (*n, d_model)


def binary(positions: Int[Tensor, "*n"], d_model: int) -> Float[Tensor, "*n {d_model}"]:
    """The position's binary digits, lowest first: bounded, and each column flips half as often as the one before.

    Raises TypeError for positions that are not whole numbers, ValueError for one that `d_model` digits do not hold.

    >>> binary(torch.tensor([1, 6]), 3).tolist()
    [[1.0, 0.0, 0.0], [0.0, 1.0, 1.0]]
    """
    check_tensor("positions", positions, "torch.arange(n)")
    if positions.is_floating_point():
        raise TypeError(f"positions: got {positions.dtype}, expected whole numbers")
    if not torch.compiler.is_compiling() and positions.numel():
        low, high, most = int(positions.min()), int(positions.max()), 2**d_model - 1
        if low < 0 or high > most:
            raise ValueError(f"positions: got {low}..{high}, expected 0..{most}, what d_model = {d_model} digits hold")
    # A shift by the whole width of the number or more is undefined; every digit from the 63rd on is 0.
    digit = torch.arange(d_model, device=positions.device).clamp(max=63)
    return (positions.long().unsqueeze(-1) >> digit & 1).to(torch.get_default_dtype())             # (*n, d_model)


def sinusoidal(positions: Int[Tensor, "*n"], d_model: int, base: float = 10000.0) -> Float[Tensor, "*n {d_model}"]:
    """Sines and cosines of the position, each pair of columns slower than the one before.

        PE(p, 2i)     = sin(p / base^(2i / d_model))
        PE(p, 2i + 1) = cos(p / base^(2i / d_model))

    Raises ValueError for an odd `d_model`. Vaswani et al. 2017, section 3.5.

    >>> sinusoidal(torch.tensor([0]), 4).tolist()
    [[0.0, 1.0, 0.0, 1.0]]
    """
    return _sinusoidal(positions, d_model, base).to(torch.get_default_dtype())


def _sinusoidal(positions: Tensor, d_model: int, base: float = 10000.0) -> Tensor:
    angles = _angles(positions, d_model, base, name="d_model")                        # (*n, d_model/2)
    return torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(-2)              # (*n, d_model)


def shift_matrix(k: int, d_model: int, base: float = 10000.0) -> Float[Tensor, "{d_model} {d_model}"]:
    """The matrix that moves every sinusoidal position vector, a row, on by k positions: PE(p + k) = PE(p) M_k.

    Pair i of the columns is turned by k / base^(2i / d_model), whatever p is; a negative k moves back. (Written for
    columns, M_k PE(p), it is the transpose.) Raises ValueError for an odd `d_model`, or a k that is no whole number.
    Vaswani et al. 2017, section 3.5, say that there is one.

    >>> shift_matrix(0, 4).tolist() == torch.eye(4).tolist()
    True
    """
    if isinstance(k, bool) or not isinstance(k, int):
        raise ValueError(f"k: got {k!r}, expected a whole number of positions")
    angles = _angles(torch.tensor(k), d_model, base, name="d_model")                  # (d_model/2,)
    cos, sin = angles.cos(), angles.sin()
    turns = torch.stack([torch.stack([cos, -sin], dim=-1), torch.stack([sin, cos], dim=-1)], dim=-2)
    return torch.block_diag(*turns).to(torch.get_default_dtype())                     # turns (d_model/2, 2, 2)


TABLES = {"integer": integer, "binary": binary, "sinusoidal": _sinusoidal}


class LearnedPositions(nn.Module):
    """A learned vector for each position. Gehring et al. 2017, section 3.1; Vaswani et al. 2017, table 3, row E."""

    def __init__(self, max_length: int, d_model: int):
        super().__init__()
        self.table = nn.Parameter(torch.empty(max_length, d_model))
        nn.init.normal_(self.table, std=0.02)

    def forward(self, n: int, start: int = 0) -> Float[Tensor, "{n} d_model"]:
        """Rows start to start + n − 1. Raises ValueError where they are not all in the table."""
        _check_rows(n, start, self.table.shape[0])
        return self.table[start : start + n]                      # (n, d_model)


class _Computed(nn.Module):
    """Tables that are computed, not learned: they follow their module to its device, but keep their own precision."""

    _tables: tuple[str, ...]

    def _compute(self) -> dict[str, Tensor]:
        """The tables, in float64 on the CPU."""
        raise NotImplementedError

    def _tabulate(self, device: torch.device, dtype: torch.dtype) -> None:
        self.dtype = dtype
        # float64, so that .double() finds every digit; Apple's MPS has no float64, and cannot run such a model either.
        stored = torch.float32 if device.type == "mps" else torch.float64
        for name, table in self._compute().items():
            self.register_buffer(name, table.to(stored).to(device), persistent=False)

    def _apply(self, fn, recurse=True):
        # torch would round the tables with the parameters at .bfloat16(), for good, and lose them at .to_empty().
        like = fn(torch.empty(0, device=getattr(self, self._tables[0]).device, dtype=self.dtype))
        for name in self._tables:
            del self._buffers[name]
        super()._apply(fn, recurse)
        self._tabulate(like.device, like.dtype)
        return self


class FixedPositions(_Computed):
    """The vectors of `max_length` positions by a formula above, as a table with the interface of `LearnedPositions`.

    `scheme` is "integer", "binary" or "sinusoidal". Raises ValueError for another, and what its formula raises.
    """

    _tables = ("table",)
    table: Tensor

    def __init__(self, scheme: str, max_length: int, d_model: int):
        super().__init__()
        check_one_of("scheme", scheme, tuple(TABLES))
        self.scheme, self.max_length, self.d_model = scheme, max_length, d_model
        self._tabulate(torch.get_default_device(), torch.get_default_dtype())

    def _compute(self) -> dict[str, Tensor]:
        return {"table": TABLES[self.scheme](torch.arange(self.max_length, device="cpu"), self.d_model)}

    def forward(self, n: int, start: int = 0) -> Float[Tensor, "{n} d_model"]:
        """Rows start to start + n − 1, in the module's dtype. Raises ValueError where they are not all in the table."""
        _check_rows(n, start, self.max_length)
        return self.table[start : start + n].to(self.dtype)       # (n, d_model)


def make_table(scheme: str, max_length: int, d_model: int) -> nn.Module | None:
    """What is added to the embedding under this scheme; None where nothing is ("none", "rope", "shaw", "bucketed")."""
    if scheme == "learned":
        return LearnedPositions(max_length, d_model)
    return FixedPositions(scheme, max_length, d_model) if scheme in TABLES else None


def relative_index(
    n_query: int, n_key: int, max_distance: int, start: int = 0, device: torch.device | str | None = None
) -> Int[Tensor, "{n_query} {n_key}"]:
    """clip(j − i, −k, k) + k: which of 2k + 1 distances key j has from query i, where query row 0 stands at `start`.

    Raises ValueError for a `max_distance` (k) below 0. Shaw et al. 2018, section 3.2, counted from 0.

    >>> relative_index(3, 3, max_distance=1).tolist()
    [[1, 2, 2], [0, 1, 2], [0, 0, 1]]
    """
    check_at_least(0, max_distance=max_distance)
    distance = _distance(n_query, n_key, start, device)           # (n_query, n_key)
    return distance.clamp(-max_distance, max_distance) + max_distance


class ShawRelative(nn.Module):
    """A learned vector for each distance up to k, one table for the keys and one for the values; all heads share them.

        e_ij = (q_i · k_j + q_i · a^K_ij) / √d_head,    o_i = Σ_j α_ij (v_j + a^V_ij)

    `scores` and `output` give the second term of each, without the scale. Neither builds the a_ij of every pair:
    there are only 2k + 1 different ones. Raises ValueError for a `max_distance` (k) below 0.
    Shaw et al. 2018, equations 3 and 4.
    """

    def __init__(self, max_distance: int, d_head: int):
        super().__init__()
        check_at_least(0, max_distance=max_distance)
        self.max_distance = max_distance
        self.key = nn.Parameter(torch.empty(2 * max_distance + 1, d_head))
        self.value = nn.Parameter(torch.empty(2 * max_distance + 1, d_head))
        nn.init.xavier_uniform_(self.key)
        nn.init.xavier_uniform_(self.value)

    def scores(
        self, query: Float[Tensor, "*batch n_query d_head"], n_key: int, start: int = 0
    ) -> Float[Tensor, "*batch n_query {n_key}"]:
        """q_i · a^K_ij, to add to q_i · k_j before the scale. Raises ValueError for a query of another width."""
        check_shape("query", query, "*batch n_query d_head", d_head=self.key.shape[1])
        index = relative_index(query.shape[-2], n_key, self.max_distance, start, query.device)     # (n_query, n_key)
        by_distance = query @ self.key.T                                              # (*batch, n_query, 2k + 1)
        return by_distance.gather(-1, index.expand(*query.shape[:-1], n_key))         # (*batch, n_query, n_key)

    def output(
        self, weights: Float[Tensor, "*batch n_query n_key"], start: int = 0
    ) -> Float[Tensor, "*batch n_query d_head"]:
        """Σ_j α_ij a^V_ij, to add to Σ_j α_ij v_j."""
        n_query, n_key = weights.shape[-2:]
        index = relative_index(n_query, n_key, self.max_distance, start, weights.device)           # (n_query, n_key)
        by_distance = weights.new_zeros(*weights.shape[:-1], len(self.value))         # (*batch, n_query, 2k + 1)
        by_distance = by_distance.scatter_add(-1, index.expand(weights.shape), weights)
        return by_distance @ self.value                                               # (*batch, n_query, d_head)


class BucketedBias(nn.Module):
    """One learned number for each head and bucket of distances, added to the scores; T5 shares it between layers.

    Half of the buckets hold one distance each; the other half grow logarithmically up to `max_distance`, and the last
    takes all beyond. `bidirectional` gives the past and the future half of the buckets each; else all of the future
    is distance 0, and is left to the causal mask.
    Raises ValueError for too few buckets, or a `max_distance` that they count one by one. Raffel et al. 2020,
    section 2.1, and the code they released.
    """

    def __init__(self, n_heads: int, n_buckets: int = 32, max_distance: int = 128, bidirectional: bool = True):
        super().__init__()
        one_way = n_buckets // 2 if bidirectional else n_buckets
        if one_way < 2:
            raise ValueError(f"n_buckets: got {n_buckets}, expected at least {4 if bidirectional else 2}")
        if max_distance <= one_way // 2:
            raise ValueError(f"max_distance: got {max_distance}, expected more than {one_way // 2}, the exact buckets")
        self.one_way, self.max_distance, self.bidirectional = one_way, max_distance, bidirectional
        self.bias = nn.Embedding(n_buckets, n_heads)
        nn.init.normal_(self.bias.weight, std=0.02)

    def buckets(self, distance: Int[Tensor, "*n"]) -> Int[Tensor, "*n"]:
        """Which bucket the distance j − i of a key from a query falls in."""
        exact = self.one_way // 2
        past = distance.abs() if self.bidirectional else (-distance).clamp(min=0)
        far = (past.clamp(min=exact).float() / exact).log() / math.log(self.max_distance / exact)  # 1 at max_distance
        far = (exact + (far * (self.one_way - exact)).long()).clamp(max=self.one_way - 1)
        bucket = torch.where(past < exact, past, far)
        return bucket + self.one_way * (distance > 0) if self.bidirectional else bucket

    def forward(self, n_query: int, n_key: int, start: int = 0) -> Float[Tensor, "n_heads {n_query} {n_key}"]:
        """The bias for n_query queries, the first of them at position `start`, over keys 0..n_key."""
        distance = _distance(n_query, n_key, start, self.bias.weight.device)          # (n_query, n_key)
        # Contiguous, as each sequence of the batch reads it again, key by key: adding it is then a fifth faster.
        return self.bias(self.buckets(distance)).permute(2, 0, 1).contiguous()        # (n_heads, n_query, n_key)


def rope_angles(positions: Int[Tensor, "*n"], d_head: int, base: float = 10000.0) -> Float[Tensor, "*n {d_head}/2"]:
    """p · base^(−2i / d_head): the angle by which position p turns pair i of the columns, in radians.

    In float64: rounded to float32, an angle near 10 000 would be off by up to 0.0005.
    Raises ValueError for an odd `d_head`. Su et al. 2021, section 3.2.2.

    >>> rope_angles(torch.arange(3), 4).tolist()
    [[0.0, 0.0], [1.0, 0.01], [2.0, 0.02]]
    """
    return _angles(positions, d_head, base, name="d_head")


def rotate(
    x: Float[Tensor, "*batch n d_head"], angles: Float[Tensor, "n d_head/2"], style: RotationStyle = "half"
) -> Float[Tensor, "*batch n d_head"]:
    """Turn each pair of columns of row p by the angles of row p: (a, b) -> (a cos θ − b sin θ, a sin θ + b cos θ).

    `style` says which columns are pair i:

    * "interleaved": 2i and 2i + 1, as in the paper and in GPT-J;
    * "half": i and i + d_head/2, as in GPT-NeoX and in the Llama code of transformers.

    The two are the same up to a fixed permutation of the columns, and a dot product does not see a permutation that
    query and key share. Weights trained with one style are wrong for the other, until their columns are permuted.
    The angles may stay on the CPU, where float64 is to be had. Raises ValueError for another style, or angles of
    another shape than (n, d_head/2). Su et al. 2021, section 3.4.2.

    >>> rotate(torch.tensor([[1.0, 0.0]]), torch.tensor([[math.pi / 2]])).round().tolist()
    [[-0.0, 1.0]]
    """
    check_one_of("style", style, get_args(RotationStyle))
    expected = (x.shape[-2], x.shape[-1] / 2)
    if angles.shape != expected:
        raise ValueError(f"angles: got shape {tuple(angles.shape)}, expected (n, d_head/2) = {expected}")
    return _turn(x, angles.cos(), angles.sin(), style)


class RoPE(_Computed):
    """Rotary positions: turn query and key by their positions, and q · k depends on their distance alone.

    The cosines and sines of positions 0 to max_length − 1 are computed once.
    Raises ValueError for an odd `d_head` or an unknown `style` (see `rotate`). Su et al. 2021.
    """

    _tables = ("cos", "sin")
    cos: Tensor
    sin: Tensor

    def __init__(self, d_head: int, max_length: int, base: float = 10000.0, style: RotationStyle = "half"):
        super().__init__()
        check_one_of("style", style, get_args(RotationStyle))
        self.d_head, self.max_length, self.base, self.style = d_head, max_length, base, style
        self._tabulate(torch.get_default_device(), torch.get_default_dtype())

    def _compute(self) -> dict[str, Tensor]:
        angles = rope_angles(torch.arange(self.max_length, device="cpu"), self.d_head, self.base)
        return {"cos": angles.cos(), "sin": angles.sin()}         # (max_length, d_head/2) each

    def forward(self, x: Float[Tensor, "*batch n d_head"], start: int = 0) -> Float[Tensor, "*batch n d_head"]:
        """Turn n rows, the first of which stands at position `start`.

        Raises ValueError for positions of `max_length` or more, and for another width.
        """
        check_shape("x", x, "*batch n d_head", d_head=self.d_head)
        n = x.shape[-2]
        _check_rows(n, start, self.max_length)
        return _turn(x, self.cos[start : start + n], self.sin[start : start + n], self.style)

    def at(self, position: int, like: Tensor) -> Callable[[Tensor], Tensor]:
        """`forward` of one row that stands at `position`, prepared for all layers of a model of states like these."""
        _check_rows(1, position, self.max_length)
        cos, sin = _in_pairs(self.cos[position], self.sin[position], like, self.style)
        return lambda x: _turned(x, cos, sin, self.style)


def sinusoidal_2d(
    height: int, width: int, d_model: int, base: float = 10000.0, device: torch.device | str | None = None
) -> Float[Tensor, "{height}*{width} {d_model}"]:
    """Where a patch of an image is, row by row: half of the columns tell its row, the other half its column.

    Raises ValueError for a `d_model` that 4 does not divide. Carion et al. 2020, appendix.
    """
    return grid_sinusoids(height, width, d_model, base).to(device, torch.get_default_dtype())


def grid_sinusoids(height: int, width: int, d_model: int, base: float = 10000.0) -> Tensor:
    """`sinusoidal_2d` in float64, for tables."""
    _check_fours("d_model", d_model)
    row, column = _grid(height, width)
    return torch.cat([_sinusoidal(row, d_model // 2, base), _sinusoidal(column, d_model // 2, base)], dim=-1)


def rope_angles_2d(
    height: int, width: int, d_head: int, base: float = 10000.0
) -> Float[Tensor, "{height}*{width} {d_head}/2"]:
    """Angles for `rotate` over the patches of an image: half of the pairs turn by the row, the others by the column.

    Raises ValueError for a `d_head` that 4 does not divide.
    """
    _check_fours("d_head", d_head)
    row, column = _grid(height, width)
    return torch.cat([rope_angles(row, d_head // 2, base), rope_angles(column, d_head // 2, base)], dim=-1)


class LearnedPositions2D(nn.Module):
    """A learned vector for each row of an image plus one for each column: height + width vectors, not their product."""

    def __init__(self, height: int, width: int, d_model: int):
        super().__init__()
        self.row = nn.Parameter(torch.empty(height, d_model))
        self.column = nn.Parameter(torch.empty(width, d_model))
        nn.init.normal_(self.row, std=0.02)
        nn.init.normal_(self.column, std=0.02)

    def forward(self) -> Float[Tensor, "patches d_model"]:
        """All height * width positions, row by row."""
        return (self.row.unsqueeze(1) + self.column).flatten(0, 1)                    # (height * width, d_model)


def _angles(positions: Tensor, width: int, base: float, name: str) -> Tensor:
    """p / base^(2i / width), in float64 wherever the device has it (Apple's MPS does not)."""
    check_tensor("positions", positions, "torch.arange(n)")
    if width % 2:
        raise ValueError(f"{name}: got {width}, expected an even number (columns come in pairs)")
    dtype = torch.float32 if positions.device.type == "mps" else torch.float64
    two_i = torch.arange(0, width, 2, dtype=dtype, device=positions.device)
    return positions.to(dtype).unsqueeze(-1) * base ** (-two_i / width)               # (*n, width/2)


def _turn(x: Tensor, cos: Tensor, sin: Tensor, style: RotationStyle) -> Tensor:
    return _turned(x, *_in_pairs(cos, sin, x, style), style)


def _in_pairs(cos: Tensor, sin: Tensor, like: Tensor, style: RotationStyle) -> tuple[Tensor, Tensor]:
    # Half precision is turned in float32: bfloat16 keeps 8 bits of a cosine, too few to tell near positions apart.
    dtype = torch.promote_types(like.dtype, torch.float32)
    cos, sin = cos.to(like.device, dtype), sin.to(like.device, dtype)                 # (n, d_head/2)
    if style == "half":
        return torch.cat([cos, cos], dim=-1), torch.cat([-sin, sin], dim=-1)          # (n, d_head)
    return torch.stack([cos, cos], dim=-1).flatten(-2), torch.stack([-sin, sin], dim=-1).flatten(-2)


def _turned(x: Tensor, cos: Tensor, sin: Tensor, style: RotationStyle) -> Tensor:
    # (a, b) cos θ + (b, a) (−sin θ, sin θ): whole rows in one multiply-add beat one pair at a time.
    half = x.shape[-1] // 2
    partner = x.roll(half, dims=-1) if style == "half" else x.unflatten(-1, (half, 2)).flip(-1).flatten(-2)
    return torch.addcmul(x * cos, partner, sin).to(x.dtype)


def _distance(n_query: int, n_key: int, start: int, device: torch.device | str | None) -> Tensor:
    """j − i for query row i at position start + i."""
    i = torch.arange(start, start + n_query, device=device)
    return torch.arange(n_key, device=device) - i.unsqueeze(1)                        # (n_query, n_key)


def _grid(height: int, width: int) -> tuple[Tensor, Tensor]:
    """The row and the column of each patch, row by row: (height * width,) each."""
    patch = torch.arange(height * width)
    return patch // width, patch % width


def _check_rows(n: int, start: int, max_length: int) -> None:
    if not 0 <= start <= start + n <= max_length:
        expected = f"positions below max_length = {max_length}"
        raise ValueError(f"n: got {n} positions from {start} on, expected {expected}")


def _check_fours(name: str, width: int) -> None:
    if width % 4:
        raise ValueError(f"{name}: got {width}, expected a multiple of 4 (pairs for the rows, pairs for the columns)")
