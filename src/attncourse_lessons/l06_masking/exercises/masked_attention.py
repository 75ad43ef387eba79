"""masked_attention: Scaled dot-product attention over the keys that each query may attend to."""

import math

import torch

from attncourse import attention
from lessonkit.exercises.exercise import Exercise
from lessonkit.exercises.judge import expected_zero, explain_worst, row_sums
from lessonkit.exercises.observe import require_variation
from lessonkit.exercises.way_back import explain_way_back, way_back

from .common import READY_MADE


def solution(query, key, value, mask):
    scores = query @ key.mT / math.sqrt(query.shape[-1])              # (batch, n_query, n_key)
    weights = scores.masked_fill(~mask, -torch.inf).softmax(dim=-1)   # (batch, n_query, n_key)
    weights = weights.masked_fill(~mask, 0.0)               # a row of −∞ alone came out as NaN
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
        "Fill twice: the forbidden scores before the softmax, and the forbidden weights after it. The second filling "
        "puts zeros where 0/0 came out, and on the way back the first one keeps the NaN out of the gradient.",
    ),
)
aspect, slip, misconception, variant, alternative = exercise.decorators()


def _vectors(draw, batch, n_query, n_key):
    """Queries, keys and values, no two sizes alike."""
    d_k, d_v = [size for size in draw.sizes(5, 3, 9) if size not in (batch, n_query, n_key)][:2]
    return draw.normal(batch, n_query, d_k), draw.normal(batch, n_key, d_k), draw.normal(batch, n_key, d_v)


def _one_lonely(draw, batch, n_query, n_key):
    """A mask (batch, n_query, n_key) in which one query, of a sentence that is not the first, may attend to nothing."""
    mask = draw.uniform(batch, n_query, n_key) < 0.6
    mask[..., 0] = True
    mask[:, 0] = True  # query 0 everybody: each key has somebody, and the opposite of this mask a lonely query, too
    mask[1 + draw.integers(batch - 1, 1), 1 + draw.integers(n_query - 1, 1)] = False
    return mask


# ----------------------------------------------------------------------------------------------------- what is observed


@aspect("causal", points=2, hint=1)
def causal(answer, draw):
    """with a causal mask (n, n), each position gets an average of itself and its past"""
    batch, n = draw.sizes(2, 3, 7)
    return answer(*_vectors(draw, batch, n, n), torch.ones(n, n, dtype=torch.bool).tril())[0]


@aspect("forbidden", points=1, hint=1, explain=expected_zero)
def forbidden(answer, draw):
    """weights of exactly zero on padding, with a mask (batch, 1, n_key)"""
    batch, n_query, n_key = draw.sizes(3, 3, 7)
    mask = draw.padding_mask(batch, n_key)[:, None]
    return require_variation(answer(*_vectors(draw, batch, n_query, n_key), mask)[1]) * ~mask


@aspect("allowed", points=1, hint=1, explain=row_sums)
def allowed(answer, draw):
    """and the weights of the tokens sum to one"""
    batch, n_query, n_key = draw.sizes(3, 3, 7)
    mask = draw.padding_mask(batch, n_key)[:, None]
    query, key, value = _vectors(draw, batch, n_query, n_key)
    # The scores of query 0 all lie so far above the others' that one maximum for all queries leaves the others nothing.
    key[..., 0], query[:, 0, 0] = 1, 130 * math.sqrt(key.shape[-1])
    return answer(query, key, value, mask)[1] * mask


@aspect(
    "nothing allowed",
    points=1, hint=2,
    explain=explain_worst("output and weights side by side: at {place} {got}, expected {expected}"),
)
def nothing_allowed(answer, draw):
    """a query that may attend to nothing gets zeros, as output and as weights, and disturbs no other"""
    batch, n_query, n_key = draw.sizes(3, 3, 7)
    vectors = _vectors(draw, batch, n_query, n_key)
    output, weights = answer(*vectors, _one_lonely(draw, batch, n_query, n_key))
    return torch.cat([output, weights], dim=-1)


@aspect("gradient", points=1, hint=3, explain=explain_way_back("query", "key", "value"))
def gradient(answer, draw):
    """queries, keys and values can learn, even next to a query that may attend to nothing"""
    batch, n_query, n_key = draw.sizes(3, 3, 7)
    vectors = [tensor.requires_grad_() for tensor in _vectors(draw, batch, n_query, n_key)]
    mask = _one_lonely(draw, batch, n_query, n_key)
    query, key, value = vectors
    right, _ = attention.attend(query, key, value, mask)
    return way_back(answer(query, key, value, mask)[0], right, vectors, draw)


@aspect("half precision", points=1, hint=1)
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


# -------------------------------------------------------------------------------------- one slip away from the solution

NOBODY = ("nothing allowed", "gradient")
SHARES = ("causal", "allowed", "nothing allowed")
EVERY = ("causal", "forbidden", "allowed", "nothing allowed", "half precision")
ALL = (*EVERY, "gradient")
FORBIDDEN, ZEROS = "scores.masked_fill(~mask, -torch.inf)", ".masked_fill(~mask, 0.0)"
ROOT = "math.sqrt(query.shape[-1])"

slip("mask upside down", EVERY,
    {"~mask, -torch.inf": "mask, -torch.inf", "~mask, 0.0": "mask, 0.0"}, words="""
    What is allowed was forbidden, and what is forbidden is all that is left. True means "may attend": fill where
    the mask is False, `~mask`.""")
slip("no mask", EVERY, {FORBIDDEN: "scores", ZEROS: ""}, words="""
    The mask was not used: every query attends to every key, to the future and to padding too.""")
slip("zeros after the softmax", (*SHARES, "half precision"), {FORBIDDEN: "scores"}, words="""
    The weights were set to zero after the softmax. What was taken from the forbidden keys is given to no other, so rows
    sum to less than one; and the allowed weights still depend on the forbidden scores, which are in the denominator.
    Mask the scores, then let softmax share out the whole.""")
slip("a score of 0", ("forbidden", *SHARES), {"-torch.inf": "0.0", ZEROS: ""}, words="""
    Forbidden scores were set to 0. Softmax makes exp(0) = 1 of that, more than of any negative score. Which score does
    it turn into nothing at all?""")
slip("the mask added to the scores", EVERY, {FORBIDDEN: "(scores + mask)", ZEROS: ""}, words="""
    The mask was added to the scores: True counts as 1, so that what is allowed scores one more, and the rest is still
    there. A boolean mask is a condition, for `masked_fill` or `torch.where`. (Masks that are added exist; they hold 0
    and −∞.)""")
slip("0 · ∞", ALL, {FORBIDDEN: "(scores + (1 - mask.to(scores.dtype)) * -torch.inf)", ZEROS: ""}, words="""
    The mask, as 0 and 1, was multiplied by −∞ and then added. Where a query may attend that is 0 · −∞, and
    floating-point arithmetic calls it NaN. Choose by a condition instead: `masked_fill` or `torch.where`.""")
slip("NaN where nothing is allowed", NOBODY, {ZEROS: ""}, words="""
    A row in which nothing is allowed came out as 0/0. One such row is enough: in the next layer every query multiplies
    its NaN by some weight, and 0 · NaN is NaN. Give it zeros.""")
slip("NaN on the way back", ("gradient",),
    {FORBIDDEN: "(scores + torch.where(mask, 0.0, -torch.inf).to(scores.dtype))"},
    words="""
    The output is right, but the gradient is NaN. Where a row came out of the softmax as 0/0, NaN was replaced
    afterwards; on the way back the softmax multiplies the 0 that arrives there by its own NaN. Let the last thing
    before the softmax be a filling of forbidden *scores*, which lets no gradient back to them, or give the softmax
    numbers that it can divide.""")
slip("−1e9 for −∞", ("nothing allowed", "half precision"), {"-torch.inf": "-1e9", ZEROS: ""}, words="""
    A large negative number is not −∞. float16 ends at −65504 and cannot hold −1e9; and in a row where *everything* is
    forbidden all scores are equal again, so softmax gives an equal weight to each forbidden key.""")
slip("normalises over the queries", EVERY, {"dim=-1": "dim=-2", ZEROS: ""}, words="""
    Your weights sum to one down each column. It is the weights of each query that sum to one over the keys: softmax
    along the last axis.""")
slip("normalises over the queries", (*SHARES, "half precision"), {"dim=-1": "dim=-2"})  # and zeros afterwards
slip("one maximum for all queries", ("allowed",),
    {".softmax(dim=-1)": ".sub(scores[mask.expand_as(scores)].max()).exp()",
     f"weights{ZEROS}": "weights / (total := weights.sum(dim=-1, keepdim=True)).masked_fill(total == 0, 1.0)"},
    words="""
    One maximum was subtracted for all queries. A query whose scores all lie far below those of another gets
    exponentials of 0, and no weights at all. Subtract from each row its own maximum, as `softmax` does.""")
slip("a mask that must have every axis", ("causal", "forbidden", "allowed", "half precision"),
    {FORBIDDEN: "scores.index_put((~mask,), scores.new_tensor(-torch.inf))"}, words="""
    `scores[~mask] = …` asks for a mask with the shape of the scores. This one *broadcasts* to it: (n, n) for all texts,
    or (batch, 1, n_key) for all queries. `masked_fill` and `torch.where` broadcast; `mask.expand_as(scores)` does, too.
    """)
slip("a scale other than √d_k", SHARES,
    {f" / {ROOT}": ""},
    {ROOT: "math.sqrt(value.shape[-1])"},  # the values' width
    {ROOT: "query.shape[-1]"},  # no root
    {ROOT: "math.sqrt(key.shape[1])"},  # the number of keys
    {ROOT: "8"},  # a number in the code
    {f" / {ROOT}": f" * {ROOT}"},  # times the root
    words="""
    The scores were not divided by √d_k, the root of the width of queries and keys, but by nothing or by something
    else.""")
slip("the two in the wrong order", ALL, {"weights @ value, weights": "weights, weights @ value"}, words="""
    The weights came first and the output second. The contract has the output first: it is what the next layer
    reads.""")
slip("the output from unmasked scores", ("causal", "nothing allowed", "half precision"),
    {"return weights @ value": "return scores.softmax(dim=-1) @ value"}, words="""
    The weights that came back are right, but the output was made with others, from the scores before the mask. Average
    by the weights that you hand back.""")
slip("cut off from the gradient", ("gradient",),
    {"return weights @": "return weights.detach() @"},
    {"@ value, ": "@ value.detach(), "},
    {"query @ key": "query.detach() @ key"},
    {"key.mT": "key.detach().mT"}, words="""
    The numbers are right, but the gradient does not get through: `.detach()`, `.data`, numpy and `torch.no_grad()`
    forget where numbers came from. The scores must be learned, and so must the values.""")
slip("zeros in the output alone", ("nothing allowed",),
    {"-torch.inf": "torch.finfo(scores.dtype).min", ZEROS: "",
     "return weights @ value, weights":
     "return (weights @ value).masked_fill(~mask.any(dim=-1, keepdim=True), 0.0), weights"},
    words="""
    Where nothing is allowed the output is zero, and the weights that came back share themselves out over what is
    forbidden. Both are asked for: no weight anywhere in such a row.""")
slip("scores for weights", ("forbidden", "allowed", "nothing allowed"),
    {"@ value, weights": f"@ value, {FORBIDDEN}"}, words="""
    The output is right, and what came back as weights are the scores, from before the softmax.""")


# ------------------------------------------------------------------------------------------------------ further from it


@variant("mask upside down", fails=ALL)
def upside_down_with_the_nan_left_in(query, key, value, mask):
    """With the NaN left in."""
    scores = query @ key.mT / math.sqrt(query.shape[-1])
    weights = scores.masked_fill(mask, -torch.inf).softmax(dim=-1)
    return weights @ value, weights


@variant("NaN where nothing is allowed", fails=(*NOBODY, "half precision"))
def zeros_and_divided_again(query, key, value, mask):
    """Zeros after the softmax, and divided again."""
    weights = (query @ key.mT / math.sqrt(query.shape[-1])).softmax(dim=-1) * mask
    weights = weights / weights.sum(dim=-1, keepdim=True)
    return weights @ value, weights


@misconception("divided anew after the softmax", fails=("half precision",))
def divided_anew_after_the_softmax(query, key, value, mask):
    """The forbidden weights were set to 0 after the softmax, and the others divided by what was left. That gives the
    same as a mask before the softmax, as long as something is left: beside a large forbidden score the allowed weights
    become too small for the number type, and 0 is what remains of them. Mask the scores."""
    weights = (query @ key.mT / math.sqrt(query.shape[-1])).softmax(dim=-1).masked_fill(~mask, 0.0)
    total = weights.sum(dim=-1, keepdim=True)
    weights = weights / torch.where(total > 0, total, torch.ones_like(total))
    return weights @ value, weights


@variant("−1e9 for −∞", fails=("nothing allowed",))
def ten_thousand_below_zero(query, key, value, mask):
    """Less, which float16 holds."""
    weights = (query @ key.mT / math.sqrt(query.shape[-1])).masked_fill(~mask, -1e4).softmax(dim=-1)
    return weights @ value, weights


@variant("−1e9 for −∞", fails=("nothing allowed",))
def lowest_finite_number(query, key, value, mask):
    """The lowest finite number, and no zeros afterwards."""
    scores = query @ key.mT / math.sqrt(query.shape[-1])
    weights = scores.masked_fill(~mask, torch.finfo(scores.dtype).min).softmax(dim=-1)
    return weights @ value, weights


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
