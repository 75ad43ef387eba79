"""attend_tile: Take one more tile of keys and values into account: scaled dot-product attention, not yet divided."""

import math

import torch
from torch import Tensor

from attncourse import efficient
from lessonkit.exercises.exercise import Exercise
from lessonkit.exercises.judge import explain_worst
from lessonkit.exercises.observe import require_variation

from .common import READY_MADE, start


def reference(query, key, value, largest, total, output):
    """One tile more: the inner loop of Dao 2023, algorithm 1, which divides at the end. (That of 2022 divides here.)"""
    scores = query @ key.mT / math.sqrt(query.shape[-1])                  # (batch, n_query, n_tile)
    larger, total = efficient.online_softmax_step(scores, largest, total)
    weights = (scores - larger).exp()                                     # (batch, n_query, n_tile)
    return larger, total, output * (largest - larger).exp() + weights @ value


def solution(query, key, value, largest, total, output):
    scores = query @ key.mT / math.sqrt(query.shape[-1])         # (batch, n_query, n_tile)
    new_largest = torch.maximum(largest, scores.amax(dim=-1, keepdim=True))
    shrink = (largest - new_largest).exp()                       # (batch, n_query, 1)
    weights = (scores - new_largest).exp()
    new_total = total * shrink + weights.sum(dim=-1, keepdim=True)
    return new_largest, new_total, output * shrink + weights @ value


exercise = Exercise(
    "attend_tile",
    reference=reference,
    solution=solution,
    returns=("largest", "total", "output"),
    forbidden=READY_MADE,
    difficulty=2,
    minutes=15,
    hints=(
        "`output` is a sum like `total`, with the values in it. What happens to one of them when a larger score "
        "turns up must happen to the other.",
        "Nothing is divided here: the caller divides `output` by `total` once, when all tiles have been seen.",
        "Four lines: the tile's scores; the largest so far; the factor for all that was summed before it; the two "
        "sums, old part times the factor plus the tile's part.",
    ),
)
aspect, slip, misconception, variant, alternative = exercise.decorators()


def _averages(answer, sizes: list[int], query: Tensor, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
    """The average that the answer comes to through tiles of these sizes, and the largest score."""
    state = *start(*query.shape[:-1]), torch.zeros(*query.shape[:-1], values.shape[-1])
    for key, value in zip(keys.split(sizes, dim=1), values.split(sizes, dim=1), strict=True):
        state = answer(query, key, value, *state)
    largest, total, output = state
    return output / total, largest


def _asked(draw, sizes: list[int], level: float, width: int = 0) -> list[Tensor]:
    """[query, keys, values] for tiles of these sizes, whose scores rise from tile to tile by about `level` in size."""
    batch, n_query, d, d_v = draw.sizes(4, 2, 7)
    d = width or d
    query, keys = draw.normal(batch, n_query, d), draw.normal(batch, sum(sizes), d)
    query[..., 0], keys[..., 0] = d**0.5, level * torch.arange(sum(sizes)) / sum(sizes)
    return [query, keys, draw.normal(batch, sum(sizes), d_v)]


# ----------------------------------------------------------------------------------------------------- what is observed


@aspect("one tile", points=1, hint=2)
def one_tile(answer, draw):
    """the weighted average over the first tile"""
    sizes = draw.sizes(1, 3, 7)
    return _averages(answer, sizes, *_asked(draw, sizes, 0.0))[0]


@aspect("several tiles", points=1, hint=1)
def several_tiles(answer, draw):
    """tile by tile it is attention over all keys"""
    sizes = draw.sizes(3, 2, 6)
    query, keys, values = _asked(draw, sizes, 4.0)
    rising = _averages(answer, sizes, query, keys, values)
    falling = _averages(answer, sizes, query, keys.flip(1), values.flip(1))
    return torch.cat([*rising, *falling], dim=-1)


@aspect("cut otherwise", points=1, hint=1, explain=explain_worst("in three tiles it differs by {size} at {place}"))
def cut_otherwise(answer, draw):
    """the same keys in one tile and in three, in either order, have the same average"""
    sizes = draw.sizes(3, 2, 6)
    query, keys, values = _asked(draw, sizes, 4.0)
    whole = require_variation(_averages(answer, [sum(sizes)], query, keys, values)[0])
    forth = _averages(answer, sizes, query, keys, values)[0]
    back = _averages(answer, sizes, query, keys.flip(1), values.flip(1))[0]
    return torch.cat([forth - whole, back - whole], dim=-1)


@aspect("large scores", points=1, hint=1, explain=explain_worst("with 100 added to all scores it moves by {size}"))
def large_scores(answer, draw):
    """no overflow: a number that is added to all scores changes nothing, however large it is"""
    sizes = draw.sizes(3, 2, 6)
    query, keys, values = _asked(draw, sizes, 4.0, width=4)               # √4 rounds nothing, wherever it is divided by
    small = require_variation(_averages(answer, sizes, query, keys, values)[0])
    keys[..., 0] += 100                                                   # exp(100) is ∞; float32 still has 5 digits
    moved = _averages(answer, sizes, query, keys, values)[0] - small
    return torch.where(moved.abs() < 1e-3, 0.0, moved)


# -------------------------------------------------------------------------------------- one slip away from the solution

SEVERAL = ("several tiles", "cut otherwise")
EVERY_TILE = ("one tile", "several tiles", "cut otherwise")
SCORES = ("one tile", "several tiles")
NEW_OUTPUT = "output * shrink + weights @ value"

slip("the output is not rescaled", SEVERAL, {"output * shrink": "output"}, words="""
    The sum of the weights was brought to the new largest score, the weighted sum of the values was not. Both are sums
    of the same exponentials, so they need the same factor.""")

slip("the total is not rescaled", SEVERAL, {"total * shrink": "total"}, words="""
    The weighted sum of the values was brought to the new largest score, the sum of the weights was not. Both are sums
    of the same exponentials, so they need the same factor.""")

slip("divided in every tile", EVERY_TILE, {NEW_OUTPUT: f"({NEW_OUTPUT}) / new_total"}, words="""
    The output was divided by the total in this step, and will be again in the next, and once more at the end. Keep the
    bare sum; the caller divides once.""")

slip("a running mean", SCORES, {NEW_OUTPUT: "(output * total * shrink + weights @ value) / new_total"}, words="""
    The output is the mean so far, multiplied by the old total and divided by the new one in every tile. That is what
    FlashAttention did in 2022. Here the bare sum is asked for, as in FlashAttention-2: the caller divides once.""")

slip("a softmax for each tile", EVERY_TILE, {"weights @ value": "scores.softmax(dim=-1) @ value"}, words="""
    Each tile got a softmax of its own, whose weights sum to one within the tile. A tile of poor matches then counts as
    much as one with the best. The exponentials of all tiles belong in one sum.""")

slip("no root", SCORES, {"math.sqrt(query.shape[-1])": "query.shape[-1]"}, words="""
    The scores were divided by d_k, not by its root. A dot product of d_k terms of size 1 is of size √d_k.""")
slip("not scaled", SCORES, {" / math.sqrt(query.shape[-1])": ""}, words="""
    The scores lack the root of the width.""")

slip("scaled by another width", SCORES, {"math.sqrt(query.shape[-1])": "math.sqrt(value.shape[-1])"}, words="""
    The scores were divided by the root of the values' width. A score is a dot product of a query and a key: it is
    their width that counts.""")
slip("the largest of this tile alone", ("several tiles",),
     {"torch.maximum(largest, scores.amax(dim=-1, keepdim=True))": "scores.amax(dim=-1, keepdim=True)"}, words="""
    What came back as the largest score is that of this tile. It is to be the largest *so far*: where an earlier tile
    has a larger one, the old terms are blown up by exp(largest − new), which may overflow.""")
slip("the largest of the scores before the scale", ("several tiles", "large scores"),
     {"scores.amax(": "(query @ key.mT).amax("}, words="""
    The largest score was looked for before the scores were divided by √d, and taken away from scores that had been
    divided. It is far too large then: all exponentials may come out as 0, and 0/0 is NaN.""")

slip("nothing taken away", ("large scores",),
     {"(largest - new_largest).exp()": "1.0", "(scores - new_largest)": "scores"},
     words="""
    Bare exponentials: right for small scores, but too large for float32 from about 89 on. Take the largest score so far
    away from all, and rescale what was summed before.""")


# ------------------------------------------------------------------------------------------------ right in other styles


@alternative("einsum, from the logarithm")
def einsum_from_the_logarithm(query, key, value, largest, total, output):
    """Two factors, old and new."""
    scores = torch.einsum("bqd,bkd->bqk", query, key) / query.shape[-1] ** 0.5
    larger = torch.cat([largest, scores], dim=-1).max(dim=-1, keepdim=True).values
    old, new = torch.exp(largest - larger), torch.exp(scores - larger)
    return larger, old * total + new.sum(-1, keepdim=True), old * output + torch.einsum("bqk,bkd->bqd", new, value)


@alternative("one key at a time")
def one_key_at_a_time(query, key, value, largest, total, output):
    """Tiles of one, in double precision."""
    largest, total, output = (x.double() for x in (largest, total, output))
    for k, v in zip(key.unbind(dim=1), value.unbind(dim=1), strict=True):
        score = (query * k[:, None]).sum(dim=-1, keepdim=True).double() / math.sqrt(query.shape[-1])
        larger = torch.where(score > largest, score, largest)
        weight, shrink = (score - larger).exp(), (largest - larger).exp()
        total, output = total * shrink + weight, output * shrink + weight * v[:, None]
        largest = larger
    return largest, total, output


@alternative("a column of ones after the values")
def a_column_of_ones_after_the_values(query, key, value, largest, total, output):
    """What sums the values sums the weights, too."""
    scores = torch.matmul(query / query.size(-1) ** 0.5, key.transpose(1, 2))
    larger = torch.maximum(largest, scores.max(dim=2, keepdim=True).values)
    values = torch.cat([value, torch.ones_like(value[..., :1])], dim=-1)
    sums = torch.cat([output, total], dim=-1) * torch.exp(largest - larger) + torch.exp(scores - larger) @ values
    return larger, sums[..., -1:], sums[..., :-1]
