"""restricted_self_attention: Self-attention in which token i sees only the tokens j with |i − j| ≤ width."""

import math

import torch

from attncourse import attention
from lessonkit.exercises.exercise import Exercise
from lessonkit.exercises.judge import explain_worst, row_sums
from lessonkit.exercises.observe import apart, require_variation
from lessonkit.exercises.way_back import explain_way_back, way_back

from .common import MATRICES, READY_MADE, sentences


def reference(x, W_Q, W_K, W_V, width):
    """Self-attention in which a token sees `width` others on each side. Vaswani et al. 2017, section 4."""
    position = torch.arange(x.shape[-2])
    near = (position[:, None] - position).abs() <= width
    return attention.attend(x @ W_Q, x @ W_K, x @ W_V, near)


def solution(x, W_Q, W_K, W_V, width):
    position = torch.arange(x.shape[1])
    near = (position[:, None] - position).abs() <= width                  # (n, n)
    scores = (x @ W_Q) @ (x @ W_K).mT / math.sqrt(W_K.shape[1])           # (batch, n, n)
    weights = scores.masked_fill(~near, -torch.inf).softmax(dim=-1)
    return weights @ (x @ W_V), weights


exercise = Exercise(
    "restricted_self_attention",
    reference=reference,
    solution=solution,
    returns=("output", "weights"),
    forbidden=READY_MADE,
    difficulty=1,
    minutes=10,
    extra=True,
    hints=(
        "How far is token j from token i, to either side? That is a matrix (n, n), made from `torch.arange(n)` and "
        "broadcasting. Compare it with `width`: may a token attend to one exactly `width` away?",
        "The scores of tokens that are too far away become −∞, before the softmax, as padding did in assignment "
        "@cross_attention. Try it by hand: what does the softmax make of a score of 0, and what of −∞?",
        "All the rest is as in exercise 2: three projections, scores divided by √d_k, the softmax along the keys, the "
        "weighted sum of the values. `masked_fill` and `torch.where` pass the gradient on.",
    ),
)
aspect, slip, misconception, variant, alternative = exercise.decorators()


def _near(answer, draw):
    """(output, weights, width) of sentences that are longer than the window."""
    batch, width = 2, 3 + draw.integers(2, 1).item()
    n = 2 * width + 1 + draw.sizes(1, 0, 2)[0]
    return *answer(*sentences(draw, batch, n), width), width


# ----------------------------------------------------------------------------------------------------- what is observed


@aspect("weights", points=0.5, hint=1, explain=row_sums)
def weights(answer, draw):
    """each token's weights sum to one over itself and `width` tokens on each side"""
    return _near(answer, draw)[1]


@aspect("output", points=0.5, hint=3)
def output(answer, draw):
    """the average of the values in the window"""
    return _near(answer, draw)[0]


@aspect(
    "out of reach",
    points=0.5,
    hint=2,
    explain=explain_worst("output {place} changes by {size} when only tokens outside its window change"),
)
def out_of_reach(answer, draw):
    """the first token's output does not know the tokens beyond its window"""
    width = 1 + draw.integers(3, 1).item()
    x, *projections = sentences(draw, 2, width + 4)
    other = x.clone()
    other[:, width + 1 :] = 3 * draw.normal(*x[:, width + 1 :].shape)
    before, after = (answer(tokens, *projections, width)[0] for tokens in (x, other))
    return apart(require_variation(before)[:, 0], after[:, 0])


@aspect("gradient", points=0.5, hint=3, explain=explain_way_back(*MATRICES))
def gradient(answer, draw):
    """all three projections can be learned, and the tokens too"""
    inputs = [tensor.requires_grad_() for tensor in sentences(draw, 2, 7)]
    right, _ = exercise.reference(*inputs, 2)
    return way_back(answer(*inputs, 2)[0], right, inputs, draw)


# -------------------------------------------------------------------------------------- one slip away from the solution

WITHIN = ("weights", "output")
FAR = ("weights", "output", "out of reach")
NEAR, FILL = "near = (position[:, None] - position).abs() <= width", ".masked_fill(~near, -torch.inf)"

slip("everybody sees everybody", FAR, {FILL: ""}, words="""
    No token was out of reach: this is plain self-attention, and `width` was not used.""")
slip("the near ones silenced", FAR, {"~near": "near"}, words="""
    The scores inside the window were masked, and those outside were left. Fill with −∞ where a token is *too far
    away*.""")
slip("one token short", WITHIN, {"<=": "<"}, words="""
    The window ends one token too early: a token exactly `width` away still belongs to it.""")
slip("one token too many", FAR, {"<= width": "<= width + 1"}, words="""
    The window ends one token too late: `width` tokens on each side, and no more.""")
slip("one side only", WITHIN,
    {NEAR: "behind = position[:, None] - position\nnear = (0 <= behind) & (behind <= width)"},
    {NEAR: "near = position - position[:, None] <= width"},  # no limit on this side
    words="""
    The distance was taken with its sign, so one side of the window is cut off (or not cut at all). Near is near in both
    directions: compare the distance without its sign.""")
slip("zeros after the softmax", FAR, {FILL: "", "dim=-1)": "dim=-1) * near"}, words="""
    The weights outside the window were set to 0, so what is left no longer sums to one, and the far tokens still decide
    how much is left. Mask the scores, then take the softmax.""")
slip("a score of 0 for the far ones", FAR, {"-torch.inf": "0.0"}, words="""
    A score of 0 is not "no attention": softmax turns it into exp(0) = 1. The score that becomes a weight of exactly 0
    is −∞.""")
slip("`width` shared by both sides", WITHIN, {"<= width": "<= width // 2"}, words="""
    The window is half as large as it should be: `width` tokens on *each* side, so 2 · `width` + 1 with the token
    itself.""")
slip("all but itself", WITHIN, {"~near": "~near | torch.eye(x.shape[1]).bool()"}, words="""
    A token could not attend to itself. It is in the middle of its own window.""")

slip("scaled by a number other than √d_k", ("weights", "output"),
    {"math.sqrt(W_K.shape[1])": "math.sqrt(x.shape[-1])"},  # d_model
    {"math.sqrt(W_K.shape[1])": "W_K.shape[1]"},  # no root
    {"math.sqrt(W_K.shape[1])": "math.sqrt(W_V.shape[1])"},  # the values' width
    {"math.sqrt(W_K.shape[1])": "math.sqrt(x.shape[1])"},  # the number of tokens
    {"math.sqrt(W_K.shape[1])": "8"},  # a number in the code
    words="""
    The scores were divided, but not by √d_k. d_k is the width of the vectors that the dot product adds up over: the
    number of columns of W_Q and W_K, whatever it is. And the divisor is its square root.""")
slip("one projection for queries and keys", ("weights", "output", "gradient"),
    {"(x @ W_K).mT": "(x @ W_Q).mT"}, {"(x @ W_Q) @": "(x @ W_K) @"}, words="""
    Queries and keys were made with one and the same matrix. Then token i scores token j as j scores i, and the other
    matrix learns nothing.""")
slip("multiplied in place of divided", ("weights", "output"), {" / math": " * math"}, words="""
    The scores were multiplied by √d_k, which makes large ones larger still. The aim is the opposite: scores of size
    about 1, whatever the width.""")
slip("not scaled", ("weights", "output"), {" / math.sqrt(W_K.shape[1])": ""}, words="""
    The scores were not divided by √d_k. These are the plain dot products; the contract asks for the scaled ones.""")
slip("softmax over the tokens that ask", ("weights", "output", "out of reach"), {"dim=-1": "dim=-2"}, words="""
    Your weights sum to one down each column: the queries competed for each key. The attention weights of one query, a
    row, must sum to one: which axis runs over the keys?""")
slip("the two in the wrong order", ("weights", "output", "out of reach", "gradient"),
     {"weights @ (x @ W_V), weights": "weights, weights @ (x @ W_V)"}, words="""
    The weights came first and the output second. The contract has the output first: it is what the next layer
    reads.""")
slip("cut off from the gradient", ("gradient",),
     {"(x @ W_Q)": "(x.detach() @ W_Q)"},
     {"weights @ (x": "weights.detach() @ (x"},
     {"(x @ W_K)": "(x @ W_K).detach()"},
     {"position = ": "x = x.detach()\nposition = "},
     {"weights @ (x @ W_V),": "(weights @ (x @ W_V)).detach(),"}, words="""
    The numbers are right, but the gradient does not get through, or only a part of it: `.detach()`, `.data`, numpy and
    `torch.no_grad()` forget where numbers came from. But all three projections must be learned.""")


# ------------------------------------------------------------------------------------------------------ further from it


@variant("one side only", fails=FAR)
def no_limit_on_the_other_side(x, W_Q, W_K, W_V, width):
    """No limit on the other side."""
    queries, keys, values = x @ W_Q, x @ W_K, x @ W_V
    position = torch.arange(x.shape[1])
    scores = queries @ keys.mT / math.sqrt(W_K.shape[1])
    weights = scores.masked_fill(position[:, None] - position > width, -torch.inf).softmax(dim=-1)
    return weights @ values, weights


# ------------------------------------------------------------------------------------------------ right in other styles


@alternative("a band of two triangles")
def a_band_of_two_triangles(x, W_Q, W_K, W_V, width):
    """`tril` and `triu` cut the band out of a table of ones."""
    n = x.shape[-2]
    band = torch.ones(n, n, dtype=torch.bool).tril(width).triu(-width)
    scores = torch.einsum("bik,bjk->bij", x @ W_Q, x @ W_K) * W_K.shape[-1] ** -0.5
    weights = torch.where(band, scores, float("-inf")).softmax(-1)
    return weights @ (x @ W_V), weights


@alternative("token by token, float64")
def token_by_token_float64(x, W_Q, W_K, W_V, width):
    """Cuts the window out of the sentence, and so does only the work that is needed."""
    queries, keys, values = (x.double() @ W.double() for W in (W_Q, W_K, W_V))
    batch, n, d_k = keys.shape
    weights, output = torch.zeros(batch, n, n, dtype=torch.float64), []
    for i in range(n):
        window = slice(max(0, i - width), i + width + 1)
        shares = torch.softmax((keys[:, window] @ queries[:, i, :, None])[..., 0] / math.sqrt(d_k), dim=-1)
        weights[:, i, window] = shares
        output.append((shares[:, None] @ values[:, window])[:, 0])
    return torch.stack(output, dim=1), weights
