"""scaled_attention: The values, averaged by the softmax of the scaled dot products."""

import math

import torch

from attncourse import attention
from lessonkit.exercises.exercise import Exercise
from lessonkit.exercises.judge import explain_missing_gradient, explain_worst, row_sums
from lessonkit.exercises.local_runner import AspectFailed, Problem
from lessonkit.exercises.observe import gradient_reaches, require_variation

from .common import READY_MADE


def reference(query, key, value):
    """softmax(q · k / √d_k) averages v. Vaswani et al. 2017, equation 1."""
    return attention.attend(query, key, value)


def solution(query, key, value):
    scores = query @ key.mT / math.sqrt(key.shape[-1])     # (..., n_query, n_key)
    weights = scores.softmax(dim=-1)
    return weights @ value, weights


exercise = Exercise(
    "scaled_attention",
    reference=reference,
    solution=solution,
    returns=("output", "weights"),
    forbidden=READY_MADE,
    difficulty=1,
    minutes=10,
    hints=(
        "Four steps: scores, scale, softmax, average. Which of the three inputs' widths did the dot products sum "
        "over? The scale is the root of that width.",
        "There may be two axes in front of the words, or one, or none: count axes from the end. `.mT` swaps the last "
        "two, and the softmax runs over the last.",
        "`softmax` copes with scores of any size. Whoever takes exponentials by hand must first subtract something "
        "from each query's scores, so that the largest exponential is 1: what, and along which axis?",
    ),
)
aspect, slip, misconception, variant, alternative = exercise.decorators()


def _asked(draw, *in_front):
    """[query, key, value] with these axes in front, no two sizes alike."""
    n_query, n_key, d_k, d_v = [size for size in draw.sizes(4 + len(in_front), 3, 10) if size not in in_front][:4]
    return [1.2 * draw.normal(*in_front, n, d) for n, d in ((n_query, d_k), (n_key, d_k), (n_key, d_v))]


# ----------------------------------------------------------------------------------------------------- what is observed


@aspect("weights", points=1, hint=1, explain=row_sums)
def weights(answer, draw):
    """softmax of the scaled scores: each query shares out exactly one over the keys"""
    return answer(*_asked(draw, 2))[1]


@aspect(
    "output",
    points=1, hint=1,
    explain=explain_worst("the output differs from your `weights` times `value` by {size}, at {place}"),
)
def output(answer, draw):
    """the values, averaged by these weights"""
    query, key, value = _asked(draw, 2)
    output, weights = answer(query, key, value)
    return require_variation(output) - weights.to(value.dtype) @ value


@aspect(
    "axes in front",
    points=1, hint=2,
    explain=explain_worst("a head by itself gets an output that differs by {size} at {place}"),
)
def axes_in_front(answer, draw):
    """heads, sentences, or neither: what stands in front of the words is left alone"""
    inputs = _asked(draw, 2, 3)
    output, _ = answer(*inputs)                                           # (2, 3, n_query, d_v)
    alone = [[answer(*(x[b, h] for x in inputs))[0] for h in range(3)] for b in range(2)]
    return require_variation(output) - torch.stack([torch.stack(row) for row in alone])


def _which_level(got, expected):
    row = next(level for level, right in zip(("200", "−200"), got, strict=True) if not right)
    return f"NaN, ∞ or nothing at all comes of scores about {row}"


@aspect("large scores", points=1, hint=3, explain=_which_level)
def large_scores(answer, draw):
    """scores of 200 and of −200 in one table: still finite numbers, and weights in every row"""
    query, key, value = _asked(draw, 2)
    query[..., 0] = 200 * (-1.0) ** torch.arange(query.shape[-2]) * math.sqrt(query.shape[-1])
    key[..., 0] = 1.0
    output, weights = answer(query, key, value)
    if weights.shape != (*query.shape[:-1], key.shape[-2]):
        raise AspectFailed(Problem("unusable", "the weights are not (..., n_query, n_key)"))
    right = weights.isfinite().all(dim=-1) & output.isfinite().all(dim=-1) & (weights.sum(dim=-1) > 0.1)
    return torch.stack([right[:, rows::2].all() for rows in (0, 1)])      # digits are another aspect's matter


@aspect("gradient", points=1, hint=1, explain=explain_missing_gradient("query", "key", "value"))
def gradient(answer, draw):
    """queries, keys and values can all be learned"""
    inputs = [x.requires_grad_() for x in _asked(draw, 2)]
    return gradient_reaches(answer(*inputs)[0], inputs, draw)


# -------------------------------------------------------------------------------------- one slip away from the solution

WEIGHTS, AXES = ("weights",), ("axes in front",)
MIXED = (*WEIGHTS, *AXES)
ALL = ("weights", "output", "axes in front", "large scores", "gradient")
ROOT, SHARES, AVERAGE = "math.sqrt(key.shape[-1])", "scores.softmax(dim=-1)", "weights @ value"

slip("not scaled", WEIGHTS, {f" / {ROOT}": ""}, words="""
    The plain dot products went into the softmax. Their variance grows with the width of the vectors, and softmax over
    large scores is a hard choice whose gradient is next to nothing. What do you divide by?""")
slip("no root", WEIGHTS, {ROOT: "key.shape[-1]"}, words="""
    The scores were divided by the width itself. It is the *variance* that is d_k; the scores' size is its root. Divided
    by d_k they shrink towards 0 as heads get wider, and every softmax approaches the plain mean.""")
slip("root of the wrong size", WEIGHTS,
    {ROOT: "math.sqrt(value.shape[-1])"},
    {ROOT: "math.sqrt(key.shape[-2])"},  # the number of keys
    {ROOT: "math.sqrt(query.shape[-2])"},  # the number of queries
    words="""
    The scores were divided by a root, but not that of d_k. A dot product adds up over the last axis of queries and
    keys, and how many terms it adds up is what its size depends on: not the values' width, not the number of words.""")
slip("by each key's length", WEIGHTS,
    {ROOT: "key.norm(dim=-1).sqrt().unsqueeze(-2)"},
    {ROOT: "key.norm(dim=-1).unsqueeze(-2)"},  # without the root
    words="""
    Each score was divided by a number of its own, made from the length of its key vector. That changes who wins, not
    only how sharply. (A deck writes √|k|, which invites that reading.) What is meant is how *many* numbers there are in
    a key, and that is the same for all keys.""")
slip("multiplied in place of divided", WEIGHTS, {"/ math": "* math"}, words="""
    The scores were multiplied by √d_k, which makes large ones larger still. The aim is the opposite: scores of size
    about 1, whatever the width.""")
slip("scaled after the softmax", WEIGHTS, {f" / {ROOT}": "", SHARES: f"{SHARES} / {ROOT}"}, words="""
    The weights were divided by √d_k, so a row no longer sums to one. The scale belongs to the scores: it decides how
    sharply the softmax chooses, and the softmax then makes shares of them.""")
slip("softmax over the queries", (*WEIGHTS, "large scores"), {"dim=-1": "dim=-2"}, words="""
    The columns sum to one, as if each key shared itself out among those who ask. It is the query that has one unit to
    give: normalise along its row.""")
slip("axes counted from the front", AXES,
    {"key.mT": "key.transpose(1, 2)"},
    {"dim=-1": "dim=2"},
    {"query @ key.mT": "torch.bmm(query, key.mT)", AVERAGE: "torch.bmm(weights, value)"},
    words="""
    With one axis in front of the words it works. `dim=2`, or `transpose(1, 2)`, means a different axis as soon as there
    is one more in front, the heads', or one fewer. Counted from the end, the words are always the last axis but one,
    and the width the last.""")
slip("softmax over the first axis", MIXED,
    {"dim=-1": "dim=0"},
    {SHARES: "torch.nn.functional.softmax(scores)"},  # guessed by torch
    words="""
    The softmax ran over the first axis, the sentences, so what one of them gets depends on which others came along.
    (Without a `dim`, `softmax` guesses one, and of three axes it takes the first.) A query's row is the last axis.""")
slip("sum without its axis", ALL, {SHARES: "scores.exp() / scores.exp().sum(dim=-1)"}, words="""
    The exponentials were divided by a sum that had lost its last axis. Axes are matched from the end, so each row's sum
    was matched with something other than its row. `keepdim=True` leaves an axis of length 1 where the keys were.""")
slip("exponentials by hand", ("large scores",),
    {SHARES: "scores.exp() / scores.exp().sum(dim=-1, keepdim=True)"},
    {SHARES: "(scores - scores.max()).exp()\nweights = weights / weights.sum(dim=-1, keepdim=True)"},
    words="""
    Right for small scores. From about 89 on exp(score) is ∞ in float32, below −104 it is 0, and ∞/∞ and 0/0 are NaN.
    `softmax` first takes the largest score *of each row* away; the largest of the whole table does not help a row that
    lies far below it.""")
slip("keys averaged", ("output", "axes in front", "gradient"), {AVERAGE: "weights @ key"}, words="""
    The weights averaged the keys, and the values were not used. A key is what one is found by; the value is what one
    hands over.""")
slip("scores for weights", ("weights", "output", "large scores"),
    {f"{AVERAGE}, weights": f"{AVERAGE}, scores"},
    words="""
    What came back as weights are the scores, from before the softmax: they do not sum to one. Return what the values
    were averaged with.""")
slip("weights first", ALL, {f"{AVERAGE}, weights": f"weights, {AVERAGE}"}, words="""
    The two results came back in the wrong order. The contract is output, then weights.""")
slip("cut off from the gradient", ("gradient",), {SHARES: f"{SHARES}.detach()"}, words="""
    The numbers are right, but the gradient does not get through: `.detach()`, `.data`, numpy and `torch.no_grad()`
    forget where numbers came from. Stay with tensor operations.""")


# ------------------------------------------------------------------------------------------------------ further from it


@variant("axes counted from the front", fails=ALL)
def all_axes_turned_round(query, key, value):
    """With .T, which turns all axes round."""
    weights = (query @ key.T / math.sqrt(key.shape[-1])).softmax(dim=-1)
    return weights @ value, weights


@variant("root of the wrong size", "axes counted from the front", fails=MIXED)
def root_of_the_size_of_axis_1(query, key, value):
    """The size of axis 1, whatever that is."""
    weights = (query @ key.mT / math.sqrt(query.shape[1])).softmax(dim=-1)
    return weights @ value, weights


# ------------------------------------------------------------------------------------------------ right in other styles


@alternative("the query scaled beforehand")
def the_query_scaled_beforehand(query, key, value):
    """A smaller tensor to divide."""
    weights = torch.softmax((query / key.shape[-1] ** 0.5) @ key.transpose(-2, -1), dim=-1)
    return torch.matmul(weights, value), weights


@alternative("einsum")
def einsum(query, key, value):
    """Names the axes."""
    scores = torch.einsum("...qd,...kd->...qk", query, key) * query.size(-1) ** -0.5
    weights = scores.softmax(-1)
    return torch.einsum("...qk,...kd->...qd", weights, value), weights


@alternative("a loop over the queries")
def a_loop_over_the_queries(query, key, value):
    """One query at a time, exponentials by hand."""
    rows = []
    for i in range(query.shape[-2]):
        scores = (query[..., i, None, :] * key).sum(dim=-1) / math.sqrt(key.shape[-1])
        exponentials = (scores - scores.amax(dim=-1, keepdim=True)).exp()
        rows.append(exponentials / exponentials.sum(dim=-1, keepdim=True))
    weights = torch.stack(rows, dim=-2)
    return weights @ value, weights


@alternative("float64, not contiguous")
def float64_not_contiguous(query, key, value):
    """Computes the transposed table in double precision and returns views."""
    weights = (key.double() @ query.double().mT / math.sqrt(key.shape[-1])).softmax(dim=-2).mT
    return (value.double().mT @ weights.mT).mT.float(), weights.float()
