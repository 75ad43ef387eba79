"""hard_lookup: For each query the value whose key has the largest dot product with it."""

import math

import torch
from torch import nn

from lessonkit.exercises.exercise import Exercise
from lessonkit.exercises.way_back import explain_way_back, way_back

from .common import READY_MADE


def reference(query, keys, values):
    """The value whose key has the largest dot product with the query, for each query."""
    return values[(query @ keys.mT).argmax(dim=-1)]


def solution(query, keys, values):
    best = (query @ keys.mT).argmax(dim=-1)  # (n_query,)  a place in the table for each query
    return values[best]


exercise = Exercise(
    "hard_lookup",
    reference=reference,
    solution=solution,
    returns=("found",),
    forbidden=READY_MADE,
    difficulty=1,
    minutes=8,
    hints=(
        "First the table of scores, (n_query, n_keys): one dot product for each query and key. Then one place in each "
        "of its rows.",
        "`argmax` along an axis gives the place of the largest number along it. Along which axis do the keys lie?",
        "A tensor can be indexed by a tensor of places: `values[best]` takes one row of `values` for each of them. One "
        "query is a table of one row: do not `squeeze` it away.",
    ),
)
aspect, slip, misconception, variant, alternative = exercise.decorators()


def _behind(query, keys):
    """The keys, or their opposites where their score would be above 0."""
    return keys * -(keys @ query).sign()[:, None]


def _keys(draw, n_keys, query):
    """Keys of one length, so that any sensible match agrees. The first query has no score above 0, and its opposite."""
    keys = _behind(query[0], nn.functional.normalize(draw.normal(n_keys, query.shape[-1]), dim=-1))
    keys[draw.integers(n_keys, 1)] = -nn.functional.normalize(query[0], dim=-1)
    return keys


# ----------------------------------------------------------------------------------------------------- what is observed


@aspect("values", points=1, hint=2)
def values(answer, draw):
    """each query gets the value of the key that matches it best"""
    n_query, n_keys, d_k, d_v = draw.sizes(4, 3, 9)
    query = draw.normal(n_query, d_k)
    return answer(query, _keys(draw, n_keys, query), draw.normal(n_keys, d_v))


@aspect("keys of unequal length", points=1, hint=1)
def keys_of_unequal_length(answer, draw):
    """the match is the dot product, so a long key counts for more"""
    n_keys, d_k, d_v = draw.sizes(3, 5, 9)
    lengths = torch.linspace(0.2, 5, n_keys)[:, None]
    keys = lengths * nn.functional.normalize(draw.normal(n_keys, d_k), dim=-1)
    query = draw.normal(16, d_k)
    return answer(query, _behind(query[0], keys), draw.normal(n_keys, d_v))


@aspect("one query", points=1, hint=3)
def one_query(answer, draw):
    """works when there is one query, too"""
    n_keys, d_k, d_v = draw.sizes(3, 3, 9)
    query = draw.normal(1, d_k)
    return answer(query, _keys(draw, n_keys, query), draw.normal(n_keys, d_v))


@aspect("gradient", points=1, hint=3, explain=explain_way_back("values"))
def gradient(answer, draw):
    """the values can be learned: the gradient reaches the one that was found"""
    n_keys, d_k, d_v = draw.sizes(3, 3, 9)
    query, values = draw.normal(1, d_k), draw.normal(n_keys, d_v).requires_grad_()
    keys = _keys(draw, n_keys, query)
    return way_back(answer(query, keys, values), reference(query, keys, values), [values], draw)


# -------------------------------------------------------------------------------------- one slip away from the solution

ALL = ("values", "keys of unequal length", "one query")

slip("the nearest key", ("keys of unequal length",),
     {"(query @ keys.mT).argmax": "torch.cdist(query, keys).argmin"}, words="""
    This finds the key at the smallest distance. The dot product is another measure: of two keys in the same direction
    it prefers the longer one, even if the query lies nearer to the shorter. Where all keys are equally long the two
    agree, so only some of your answers are off.""")
slip("by the angle alone", ("keys of unequal length",),
     {"keys.mT": "(keys / keys.norm(dim=-1, keepdim=True)).mT"}, words="""
    The keys were brought to length one first, so only their direction counted (cosine similarity). That is a reasonable
    score, but the dot product that is asked for lets a longer key count for more: leave the keys as they come.""")
slip("best query for each key", ALL, {"dim=-1": "dim=0"}, {"query @ keys.mT": "keys @ query.mT"}, words="""
    The maximum was taken over the queries: it says, for each key, which query likes it best. It is the query that asks.
    Each row of the table of scores belongs to one query; look for the best place along the row.""")
slip("one answer for all", ALL, {"dim=-1": ""}, words="""
    `argmax()` without an axis looks for the largest number of the whole table and says where it would stand if the
    table were one long row. Every query needs an answer of its own: name the axis along which the keys lie.""")
slip("one answer for all", ("values", "keys of unequal length"),
     {".argmax(dim=-1)": ".sum(dim=0).argmax().expand(len(query))"},
     {".argmax(dim=-1)": ".amax(dim=0).argmax().expand(len(query))"})
slip("the key itself", (*ALL, "gradient"), {"values[best]": "keys[best]"}, words="""
    This gives back the key that matched. The key is only what is compared; what a lookup returns is the value that is
    stored beside it, and that may have another width.""")
slip("the place, not the value", (*ALL, "gradient"), {"values[best]": "best"}, words="""
    These are the numbers of the rows where the matches stand. One more step: take from `values` what stands there.""")
slip("the score, not the value", (*ALL, "gradient"),
     {"argmax": "amax", "values[best]": "best"}, {"argmax": "amax", "values[best]": "best[:, None]"}, words="""
    These are the largest scores: how well the best key matches, not what is stored beside it. Ask for the place of the
    largest score, and take from `values` what stands there.""")
slip("the worst match", ALL, {"argmax": "argmin"}, words="""
    The smallest dot product was chosen. A dot product is a likeness, not a distance: the larger, the better the
    match.""")
slip("multiplied by the score", ALL,
     {"argmax": "max", "values[best]": "best.values[:, None] * values[best.indices]"}, words="""
    The value was found and then multiplied by its score. The score has done its work once the best key is known: return
    the value as it was stored.""")
slip("a soft lookup", ALL, {"argmax": "softmax", "values[best]": "best @ values"}, words="""
    This is an average of all values: the next exercise. A hard lookup takes one value and leaves the others alone.""")
slip("the score without its sign", ALL,
     {"(query @ keys.mT)": "(query @ keys.mT).abs()"},
     {"(query @ keys.mT)": "(query @ keys.mT).square()"}, words="""
    The sign of the dot product was thrown away, so a key that points the opposite way counts as a good match. A
    negative dot product says "unlike": the largest one is asked for, not the one furthest from 0.""")
slip("a score below zero never wins", (*ALL, "gradient"),
     {"return values[best]": "matches = (query @ keys.mT).amax(dim=-1, keepdim=True) > 0\n"
                             "return torch.where(matches, values[best], 0.0)"}, words="""
    Where all scores are below 0 no key was found. The largest score wins, whatever its sign: a loop begins its search
    at −∞, or with the first key, not at 0.""")
slip("cut off from the gradient", ("gradient",),
     {"values[best]": "values.detach()[best]"},
     {"values[best]": "torch.tensor([values[i].tolist() for i in best])"}, words="""
    The numbers are right, but the gradient does not get through: `.detach()`, `.tolist()`, numpy and
    `torch.tensor(...)` hand over bare numbers and forget where they came from. Which key is best has no gradient; the
    value that was found has one. Take it from `values` by an index.""")
slip("squeezed axes", ("one query",),
     {"values[best]": "values[best].squeeze()"},
     {".argmax": ".squeeze().argmax"}, words="""
    `squeeze()` removes every axis of length one, even that of the queries when there happens to be only one query. Keep
    the axis: one query gets a table of one row.""")


# ------------------------------------------------------------------------------------------------ right in other styles


@alternative("a weight of one")
def a_weight_of_one(query, keys, values):
    """Says with a table of zeros and ones which value is meant."""
    best = (query @ keys.mT).argmax(dim=-1)
    return nn.functional.one_hot(best, len(keys)).float() @ values


@alternative("two loops")
def two_loops(query, keys, values):
    """Walks along the keys, as one would with a list."""
    found = []
    for q in query:
        best, best_score = 0, -math.inf
        for i, k in enumerate(keys):
            score = float((q * k).sum())
            if score > best_score:
                best, best_score = i, score
        found.append(values[best])
    return torch.stack(found)


@alternative("einsum and gather, float64")
def einsum_and_gather_float64(query, keys, values):
    """Names the axes, in double precision, and gathers rows."""
    best = torch.einsum("qd,kd->qk", query.double(), keys.double()).topk(1, dim=-1).indices
    return values.double().gather(0, best.expand(-1, values.shape[-1]))


@alternative("sorted, not contiguous")
def sorted_not_contiguous(query, keys, values):
    """Sorts the keys by score and takes the first, from values that lie on their side."""
    best = (keys @ query.mT).argsort(dim=0, descending=True)[0]
    return values.mT.contiguous()[:, best].mT
