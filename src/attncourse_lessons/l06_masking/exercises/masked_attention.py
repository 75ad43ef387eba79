"""masked_attention: Scaled dot-product attention over the keys that each query may look at."""

import math

import torch

from attncourse import attention
from lessonkit.exercises.exercise import Exercise
from lessonkit.exercises.judge import arrives, nonzero, row_sums, told
from lessonkit.exercises.observe import gradients, telling

from .common import READY_MADE


def solution(query, key, value, mask):
    scores = query @ key.mT / math.sqrt(query.shape[-1])                # (batch, n_query, n_key)
    weights = scores.masked_fill(~mask, -torch.inf).softmax(dim=-1)     # (batch, n_query, n_key)
    weights = weights.masked_fill(~mask, 0.0)                           # a row of −∞ alone came out as NaN
    return weights @ value, weights


exercise = Exercise(
    "masked_attention",
    reference=attention.attend,
    solution=solution,
    returns=("output", "weights"),
    forbidden=READY_MADE,
    difficulty=2,
    minutes=20,
    hints=(
        "Four steps: scores, mask, softmax, average. What must a forbidden score be, for the softmax to make exactly 0 "
        "of it?",
        "A row with nothing allowed is −∞ throughout, and comes out of the softmax as NaN. What do you want there, and "
        "which of `mask`'s truth values tell you where?",
        "`scores.masked_fill(~mask, -torch.inf).softmax(dim=-1).masked_fill(~mask, 0.0)`: the second filling puts "
        "zeros where 0/0 came out, and on the way back the first one keeps the NaN out of the gradient.",
    ),
)
aspect, slip, misconception, variant, alternative = exercise.decorators()


def _vectors(draw, batch, n_query, n_key):
    """Queries, keys and values, no two sizes alike."""
    d_k, d_v = [size for size in draw.sizes(5, 3, 9) if size not in (batch, n_query, n_key)][:2]
    return draw.normal(batch, n_query, d_k), draw.normal(batch, n_key, d_k), draw.normal(batch, n_key, d_v)


def _one_lonely(draw, batch, n_query, n_key):
    """A mask (batch, n_query, n_key) in which one query, of a sentence that is not the first, may look at nobody."""
    mask = draw.uniform(batch, n_query, n_key) < 0.6
    mask[..., 0] = True
    mask[1 + draw.integers(batch - 1, 1), draw.integers(n_query, 1)] = False
    return mask


# ----------------------------------------------------------------------------------------------------- what is observed


@aspect("causal", points=2)
def causal(answer, draw):
    """with a causal mask (n, n), each position gets an average of itself and its past"""
    batch, n = draw.sizes(2, 3, 7)
    return answer(*_vectors(draw, batch, n, n), torch.ones(n, n, dtype=torch.bool).tril())[0]


@aspect("forbidden", points=1, explain=nonzero)
def forbidden(answer, draw):
    """weights of exactly zero on padding, with a mask (batch, 1, n_key)"""
    batch, n_query, n_key = draw.sizes(3, 3, 7)
    mask = draw.padding_mask(batch, n_key)[:, None]
    return telling(answer(*_vectors(draw, batch, n_query, n_key), mask)[1]) * ~mask


@aspect("allowed", points=1, explain=row_sums)
def allowed(answer, draw):
    """and the words share everything"""
    batch, n_query, n_key = draw.sizes(3, 3, 7)
    mask = draw.padding_mask(batch, n_key)[:, None]
    return answer(*_vectors(draw, batch, n_query, n_key), mask)[1] * mask


@aspect(
    "nothing allowed", points=1, explain=told("at {place} the output is {got}, expected {expected}")
)
def nothing_allowed(answer, draw):
    """a query that may look at nobody gets zeros, and disturbs nobody else"""
    batch, n_query, n_key = draw.sizes(3, 3, 7)
    vectors = _vectors(draw, batch, n_query, n_key)
    return answer(*vectors, _one_lonely(draw, batch, n_query, n_key))[0]


@aspect("gradient", points=1, explain=arrives("query", "key", "value"))
def gradient(answer, draw):
    """queries, keys and values can learn, even next to a query that may look at nobody"""
    batch, n_query, n_key = draw.sizes(3, 3, 7)
    vectors = [tensor.requires_grad_() for tensor in _vectors(draw, batch, n_query, n_key)]
    output, _ = answer(*vectors, _one_lonely(draw, batch, n_query, n_key))
    return gradients(output, vectors, draw)


@aspect("half precision", points=1)
def half_precision(answer, draw):
    """the future is forbidden in float16 as well"""
    batch, n = 2, 4 + int(draw.integers(3, 1))
    # Query i looks for the key of a place of its past, and likes that of the next place even better. All numbers are
    # such that the right weights are 0 and 1 in float16 too.
    goal = torch.tensor([int(draw.integers(i + 1, 1)) for i in range(n)])
    key = 16 * torch.eye(n)
    query = key[goal] + 1.5 * torch.cat([key[1:], torch.zeros(1, n)])
    value = draw.integers(64, batch, n, 3) / 8
    query, key = (x.expand(batch, n, n).half() for x in (query, key))
    output, _ = answer(query, key, value.half(), torch.ones(n, n, dtype=torch.bool).tril())
    return output.float()


EVERY = ("causal", "forbidden", "allowed", "nothing allowed", "gradient", "half precision")


# -------------------------------------------------------------------------------------------------------- wrong answers


@misconception("mask upside down", fails=EVERY)
def mask_upside_down(query, key, value, mask):
    """What may be seen was forbidden, and what may not be seen is all that is left. True means "may attend": fill
    where the mask is False, `~mask`."""
    scores = query @ key.mT / math.sqrt(query.shape[-1])
    weights = scores.masked_fill(mask, -torch.inf).softmax(dim=-1).masked_fill(mask, 0.0)
    return weights @ value, weights


@variant("mask upside down", fails=EVERY)
def mask_upside_down_2(query, key, value, mask):
    """With the NaN left in."""
    scores = query @ key.mT / math.sqrt(query.shape[-1])
    weights = scores.masked_fill(mask, -torch.inf).softmax(dim=-1)
    return weights @ value, weights


@misconception("no mask", fails=EVERY)
def no_mask(query, key, value, mask):
    """The mask was not used: everybody looks at everybody, at the future and at padding too."""
    weights = (query @ key.mT / math.sqrt(query.shape[-1])).softmax(dim=-1)
    return weights @ value, weights


@misconception("zeros after the softmax", fails=("causal", "allowed", "nothing allowed", "gradient",
                                                                 "half precision"))
def zeros_after_the_softmax(query, key, value, mask):
    """The weights were set to zero after the softmax. What was taken from the forbidden places is given to nobody, so
    rows sum to less than one; and the allowed weights still depend on the forbidden scores, which are in the
    denominator. Mask the scores, then let softmax share out the whole."""
    weights = (query @ key.mT / math.sqrt(query.shape[-1])).softmax(dim=-1) * mask
    return weights @ value, weights


@misconception("a score of 0", fails=EVERY[:-1])
def a_score_of_0(query, key, value, mask):
    """Forbidden scores were set to 0. Softmax makes e⁰ = 1 of that, more than of any negative score. Which score does
    it turn into nothing at all?"""
    weights = (query @ key.mT / math.sqrt(query.shape[-1]) * mask).softmax(dim=-1)
    return weights @ value, weights


@misconception("the mask added to the scores", fails=EVERY)
def the_mask_added_to_the_scores(query, key, value, mask):
    """The mask was added to the scores: True counts as 1, so that what is allowed scores one more, and the rest is
    still there. A boolean mask is a condition, for `masked_fill` or `torch.where`. (Masks that are added exist; they
    hold 0 and −∞.)"""
    weights = (query @ key.mT / math.sqrt(query.shape[-1]) + mask.to(query.dtype)).softmax(dim=-1)
    return weights @ value, weights


@misconception("NaN where nothing is allowed", fails=("nothing allowed", "gradient"))
def nan_where_nothing_is_allowed(query, key, value, mask):
    """A row in which nothing is allowed came out as 0/0. One such row is enough: in the next layer everybody
    multiplies its NaN by some weight, and 0 · NaN is NaN. Give it zeros."""
    weights = (query @ key.mT / math.sqrt(query.shape[-1])).masked_fill(~mask, -torch.inf).softmax(dim=-1)
    return weights @ value, weights


@variant("NaN where nothing is allowed", fails=("nothing allowed", "gradient", "half precision"))
def nan_where_nothing_is_allowed_2(query, key, value, mask):
    """Zeros after the softmax, and divided again."""
    weights = (query @ key.mT / math.sqrt(query.shape[-1])).softmax(dim=-1) * mask
    weights = weights / weights.sum(dim=-1, keepdim=True)
    return weights @ value, weights


@misconception("NaN on the way back", fails=("gradient",))
def nan_on_the_way_back(query, key, value, mask):
    """The output is right, but the gradient is NaN. Where a row came out of the softmax as 0/0, NaN was replaced
    afterwards; on the way back the softmax multiplies the 0 that arrives there by its own NaN. Let the last thing
    before the softmax be a filling of forbidden *scores*, which lets no gradient back to them, or give the softmax
    numbers that it can divide."""
    bias = torch.zeros(mask.shape, dtype=query.dtype).masked_fill(~mask, -torch.inf)
    weights = (query @ key.mT / math.sqrt(query.shape[-1]) + bias).softmax(dim=-1)
    weights = torch.where(mask, weights, 0.0)
    return weights @ value, weights


@misconception("−1e9 for −∞", fails=("nothing allowed", "gradient", "half precision"))
def n_1e9_for(query, key, value, mask):
    """A large negative number is not −∞. float16 ends at −65504 and cannot hold −1e9; and in a row where *everything*
    is forbidden all scores are equal again, so softmax gives an even share to each of those who may not be seen."""
    weights = (query @ key.mT / math.sqrt(query.shape[-1])).masked_fill(~mask, -1e9).softmax(dim=-1)
    return weights @ value, weights


@variant("−1e9 for −∞", fails=("nothing allowed", "gradient"))
def n_1e9_for_2(query, key, value, mask):
    """Less, which float16 holds."""
    weights = (query @ key.mT / math.sqrt(query.shape[-1])).masked_fill(~mask, -1e4).softmax(dim=-1)
    return weights @ value, weights


@variant("−1e9 for −∞", fails=("nothing allowed", "gradient"))
def n_1e9_for_3(query, key, value, mask):
    """The lowest finite number, and no zeros afterwards."""
    scores = query @ key.mT / math.sqrt(query.shape[-1])
    weights = scores.masked_fill(~mask, torch.finfo(scores.dtype).min).softmax(dim=-1)
    return weights @ value, weights


@misconception("0 · ∞", fails=EVERY)
def n_0(query, key, value, mask):
    """The mask, as 0 and 1, was multiplied by −∞ and then added. Where looking is allowed that is 0 · −∞, and
    floating-point arithmetic calls it NaN. Choose by a condition instead: `masked_fill` or `torch.where`."""
    scores = query @ key.mT / math.sqrt(query.shape[-1])
    weights = (scores + (1 - mask.to(scores.dtype)) * -torch.inf).softmax(dim=-1)
    return weights @ value, weights


@misconception("normalises over the queries", fails=EVERY)
def normalises_over_the_queries(query, key, value, mask):
    """Your weights sum to one down each column. It is each query that shares out its attention over the keys: softmax
    along the last axis."""
    scores = (query @ key.mT / math.sqrt(query.shape[-1])).masked_fill(~mask, -torch.inf)
    weights = scores.softmax(dim=-2)
    return weights @ value, weights


@variant("normalises over the queries", fails=("causal", "allowed", "nothing allowed", "gradient",
                                                               "half precision"))
def normalises_over_the_queries_2(query, key, value, mask):
    """With zeros for what is forbidden afterwards."""
    scores = (query @ key.mT / math.sqrt(query.shape[-1])).masked_fill(~mask, -torch.inf)
    weights = scores.softmax(dim=-2).masked_fill(~mask, 0.0)
    return weights @ value, weights


@misconception("a scale other than √d_k", fails=("causal", "allowed", "nothing allowed", "gradient"))
def a_scale_other_than_d_k(query, key, value, mask):
    """The scores were not divided by √d_k, the root of the width of queries and keys, but by nothing or by something
    else. (The mask works.)"""
    weights = (query @ key.mT).masked_fill(~mask, -torch.inf).softmax(dim=-1).masked_fill(~mask, 0.0)
    return weights @ value, weights


@variant("a scale other than √d_k", fails=("causal", "allowed", "nothing allowed", "gradient"))
def a_scale_other_than_d_k_2(query, key, value, mask):
    """The values' width."""
    scores = query @ key.mT / math.sqrt(value.shape[-1])
    weights = scores.masked_fill(~mask, -torch.inf).softmax(dim=-1).masked_fill(~mask, 0.0)
    return weights @ value, weights


@variant("a scale other than √d_k", fails=("causal", "allowed", "nothing allowed", "gradient"))
def a_scale_other_than_d_k_3(query, key, value, mask):
    """No root."""
    scores = query @ key.mT / query.shape[-1]
    weights = scores.masked_fill(~mask, -torch.inf).softmax(dim=-1).masked_fill(~mask, 0.0)
    return weights @ value, weights


@misconception("scores for weights", fails=("forbidden", "allowed"))
def scores_for_weights(query, key, value, mask):
    """The output is right, and what came back as weights are the scores, from before the softmax."""
    scores = (query @ key.mT / math.sqrt(query.shape[-1])).masked_fill(~mask, -torch.inf)
    return scores.softmax(dim=-1).masked_fill(~mask, 0.0) @ value, scores


# ------------------------------------------------------------------------------------------------ right in other styles


@alternative("a condition, and NaN made zero")
def a_condition_and_nan_made_zero(query, key, value, mask):
    """torch.where, and an end to the NaN."""
    scores = torch.einsum("bqd,bkd->bqk", query, key) * query.shape[-1] ** -0.5
    weights = torch.where(mask, scores, float("-inf")).softmax(-1).nan_to_num(0.0)
    return torch.einsum("bqk,bkv->bqv", weights, value), weights


@alternative("added, then zeros")
def added_then_zeros(query, key, value, mask):
    """A mask of 0 and the lowest finite number, in the scores' own type."""
    bias = torch.zeros(mask.shape, dtype=query.dtype).masked_fill(mask.logical_not(), torch.finfo(query.dtype).min / 2)
    weights = torch.softmax(torch.matmul(query, key.transpose(1, 2)) / math.sqrt(key.size(-1)) + bias, dim=-1)
    weights = torch.where(mask, weights, torch.zeros((), dtype=query.dtype))
    return torch.bmm(weights, value), weights


@alternative("exponentials by hand")
def exponentials_by_hand(query, key, value, mask):
    """Shares of what is allowed; the maximum is taken over that alone."""
    scores = query @ key.mT / math.sqrt(query.shape[-1])
    top = scores.masked_fill(~mask, torch.finfo(scores.dtype).min).amax(dim=-1, keepdim=True)
    shares = (scores - top).masked_fill(~mask, -torch.inf).exp()
    weights = shares / shares.sum(dim=-1, keepdim=True).clamp(min=1e-7)
    return weights @ value, weights


@alternative("one query at a time, in double precision")
def one_query_at_a_time_in_double_precision(query, key, value, mask):
    """Keeps what is allowed and forgets the rest."""
    batch, n_query, d_k = query.shape
    mask = mask.expand(batch, n_query, key.shape[1])
    weights = torch.zeros(batch, n_query, key.shape[1], dtype=torch.float64)
    for b in range(batch):
        for i in range(n_query):
            allowed = mask[b, i]
            scores = key[b, allowed].double() @ query[b, i].double() / math.sqrt(d_k)
            weights[b, i, allowed] = scores.softmax(dim=0)
    return weights @ value.double(), weights
