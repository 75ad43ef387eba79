"""scaled_dot_score: how well each query matches each key, as a dot product over √d. Vaswani et al. 2017."""

import math

import torch

from attncourse import attention
from lessonkit.exercises.exercise import Exercise
from lessonkit.exercises.judge import explain_worst
from lessonkit.exercises.way_back import explain_way_back, way_back

from .common import READY_MADE


def solution(query, key):
    return query @ key.mT / math.sqrt(key.shape[-1])


exercise = Exercise(
    "scaled_dot_score",
    reference=attention.scaled_dot_score,
    solution=solution,
    returns=("scores",),
    forbidden=READY_MADE,
    difficulty=1,
    minutes=8,
    hints=(
        "First the plain dot products: a table (batch, n_query, n_key) by one matrix product. `.mT` swaps the last two "
        "axes.",
        "d_k is how many numbers there are in one key: which axis of `key` is that? Divide by its square root. Stay "
        "with the tensors that came in: no `.item()`, no `.detach()`, no `.data`.",
    ),
)
aspect, slip, misconception, variant, alternative = exercise.decorators()


# ----------------------------------------------------------------------------------------------------- what is observed


@aspect(
    "dot products",
    points=2,
    hint=1,
    explain=explain_worst(
        "relative to the size of the whole table, the score at {place} is {got}, expected {expected}"
    ),
)
def dot_products(answer, draw):
    """one for each pair of a query and a key, correct up to a common factor"""
    batch, n_query, n_key, d_k = draw.sizes(4, 2, 9)
    scores = answer(draw.normal(batch, n_query, d_k), draw.normal(batch, n_key, d_k))
    return scores / scores.double().norm().clamp(min=1e-9)  # a wrong scale shows in the next aspect alone


@aspect("scale", points=2, hint=2)
def scale(answer, draw):
    """divided by √d_k"""
    batch, n_query, n_key = draw.sizes(3, 5, 7)  # none is another's square, nor 3 or 4, roots of d_k rounded, nor 9
    d_k = 11 + int(draw.integers(5, 1))
    query = 2 * draw.normal(batch, n_query, d_k)  # or the scores' own spread would be about √d_k
    return answer(query, draw.normal(batch, n_key, d_k))


@aspect("gradient", points=1, hint=2, explain=explain_way_back("query", "key"))
def gradient(answer, draw):
    """the score can be learned from: its gradient reaches query and key"""
    batch, n_query, n_key, d_k = draw.sizes(4, 2, 9)
    vectors = [draw.normal(batch, n, d_k).requires_grad_() for n in (n_query, n_key)]
    return way_back(answer(*vectors), attention.scaled_dot_score(*vectors), vectors, draw)


# -------------------------------------------------------------------------------------- one slip away from the solution

ALL, SCALE = ("dot products", "scale"), ("scale",)
ROOT = "math.sqrt(key.shape[-1])"
SCORES = f"query @ key.mT / {ROOT}"

slip("not scaled", SCALE, {f" / {ROOT}": ""}, words="""
    These are the plain dot products. They grow with the width of the vectors: the sum of more products is larger. The
    scale takes that out again.""")
slip("by d for √d", SCALE,
     {"math.sqrt": ""},
     {SCORES: f"(query / {ROOT}) @ (key / {ROOT}).mT"},  # √d from both sides
     words="""
    You divided by the width itself. A sum of d independent terms of size 1 does not have size d, because they partly
    cancel: its size is about √d, and that is what to divide by.""")
slip("times √d", SCALE, {" / ": " * "}, words="""
    The scores were multiplied by √d, though wide vectors had already made them large. The scale is there to bring them
    back to the size that they would have at width 1.""")
slip("every table's keys", ALL,
     {"query @ key.mT": 'torch.einsum("bqd,ckd->bqk", query, key)'}, words="""
    Queries met the keys of all tables of the batch, and their scores were added up: in the einsum the two tables have
    different letters. The first axis is the same table for both, so both need the same letter, and it stays in the
    result.""")
slip("scaled by a number that does not depend on the width", SCALE,
     {ROOT: "8"},  # which is √64
     {ROOT: "math.sqrt(512)"},
     {ROOT: "math.sqrt(2)"},
     {ROOT: "10"}, words="""
    The scores were divided by the same number whatever the width. √64 = 8 is right for keys of 64 numbers and for
    no others: ask the keys how wide they are.""")
slip("the root rounded", SCALE,
     {ROOT: "math.isqrt(query.shape[-1])"},
     {ROOT: "round(query.shape[-1] ** 0.5)"}, words="""
    The scores were divided by a whole number, because the root was rounded. Few widths are squares: what is the root of
    12?""")
slip("the fourth root", SCALE, {ROOT: "query.shape[-1] ** 0.25"}, words="""
    The scores were divided by the fourth root of d_k. If the scale is shared out, *both* sides must be divided by the
    fourth root; or the root was taken twice. By what is a dot product divided altogether?""")
slip("divided by the spread of the scores", ALL,
     {SCORES: "(scores := query @ key.mT) / scores.std(dim=-1, keepdim=True)"}, words="""
    The scores were divided by their own standard deviation. They then have the same spread whatever the vectors are,
    and no query can prefer one key much more clearly than another query does. √d_k depends on the width alone.""")
slip("divided by the spread of the scores", SCALE, {SCORES: "(scores := query @ key.mT) / scores.std()"})
slip("scaled by the wrong axis", SCALE,
     {"key.shape[-1]": "key.shape[1]"},
     {"key.shape[-1]": "query.shape[1]"},
     {"key.shape[-1]": "query.shape[0]"}, words="""
    You divided by the root of how *many* vectors there are, not of how wide one is. The last axis of the table of
    scores runs over the keys, and its length says nothing about the size of a dot product. Ask the vectors for their
    width.""")
slip("the length of the key vector", ALL,
     {ROOT: "key.norm(dim=-1)[:, None].sqrt()"},
     {ROOT: "key.norm(dim=-1)[:, None]"},
     {ROOT: "(query.norm(dim=-1, keepdim=True) * key.norm(dim=-1)[:, None])"},  # and the query's: the cosine
     {"key.mT": "(key / key.norm(dim=-1, keepdim=True)).mT"},  # and by √d_k besides
     {"query @ key.mT": "(query / query.norm(dim=-1, keepdim=True)) @ (key / key.norm(dim=-1, keepdim=True)).mT"},
     words="""
    The scores were divided by the *norm* of each key (some slides write √|k|, which invites it). That favours short
    keys over long ones and changes who wins. √d_k is one number for the whole table: the root of how many components a
    key has.""")
slip("a row for each key", ALL, {"query @ key.mT": "key @ query.mT"}, words="""
    Rows and columns are swapped. Row i belongs to query i, because each query has weights over the
    keys: queries down the rows, keys along them.""")
slip("softmax already applied", ALL, {SCORES: f"({SCORES}).softmax(dim=-1)"}, words="""
    These are weights: each row sums to one. A score function ends before the softmax, and its numbers may have any size
    and sign.""")
slip("reshaped for transposed", ALL, {"key.mT": "key.reshape(len(key), key.shape[-1], -1)"}, words="""
    `reshape` and `view` read the same numbers in the same order and only break the rows elsewhere, so a column then
    holds pieces of several keys. The shape fits and the numbers do not. Swap the two axes instead.""")
slip("`.T` on three axes", (*ALL, "gradient"), {".mT": ".T"}, words="""
    `.T` reverses the order of *all* axes of a tensor, the batch's too, and then the shapes do not fit. Within a batch
    only the last two axes change places: `.mT`, or `transpose(-2, -1)`.""")
slip("cut off from the gradient", ("gradient",),
     {SCORES: f"({SCORES}).detach()"},
     {"query": "query.detach()"},
     {"key.mT": "key.detach().mT"}, words="""
    The numbers are right, but the gradient does not get through: `.detach()`, `.item()`, `.data` and numpy forget where
    numbers came from. Stay with tensor operations.""")


# ------------------------------------------------------------------------------------------------ right in other styles


@alternative("einsum, scaled beforehand")
def einsum_scaled_beforehand(query, key):
    """Names the axes, and takes the scale from the query."""
    return torch.einsum("bqd,bkd->bqk", query * query.shape[-1] ** -0.5, key)


@alternative("a loop over the queries")
def a_loop_over_the_queries(query, key):
    """One row of the table at a time."""
    rows = [(key * query[:, i, None]).sum(dim=-1) for i in range(query.shape[1])]
    return torch.stack(rows, dim=1) / key.size(-1) ** 0.5


@alternative("float64, not contiguous")
def float64_not_contiguous(query, key):
    """Half of the scale on either side, in double precision, and a transposed view."""
    root = key.shape[-1] ** 0.25
    return ((key.double() / root) @ (query.double() / root).mT).mT

# ------------------------------------------------------------------------------------------------ one thing changed

@exercise.variation(
    "keys in columns",
    asks="The keys come as columns: key is (batch, d_k, n_key).",
    fails=(*ALL, "gradient"),
    reference=lambda query, key: attention.scaled_dot_score(query, key.mT),
    contract={"key: (batch, n_key, d_k)": "key: (batch, d_k, n_key)"},
    given=lambda query, key: (query, key.mT),
    hints=("Write the two shapes side by side. Which product makes (batch, n_query, n_key) of them?",
           exercise.hints[1]),
)
def keys_in_columns(query, key):
    return query @ key / math.sqrt(key.shape[1])


@exercise.variation(
    "a row for each key",
    asks="The table is the other way round: a row for each key, a column for each query, (batch, n_key, n_query).",
    fails=ALL,
    reference=lambda query, key: attention.scaled_dot_score(key, query),
    contract={"returns (batch, n_query, n_key)": "returns (batch, n_key, n_query)"},
    back=lambda scores: scores.mT,
    hints=("First the plain dot products: a table (batch, n_key, n_query) by one matrix product. `.mT` swaps the last "
           "two axes.", exercise.hints[1]),
    without=("a row for each key", "the length of the key vector"),
)
def a_row_for_each_key(query, key):
    return key @ query.mT / math.sqrt(key.shape[-1])
