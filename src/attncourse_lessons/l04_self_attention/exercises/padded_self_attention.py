"""padded_self_attention: somebody's layer with three mistakes, mended: padding neither answers nor receives."""

import math

import torch

from attncourse import attention
from lessonkit.exercises.exercise import Exercise
from lessonkit.exercises.way_back import explain_way_back, way_back

from .common import READY_MADE, sentences


def reference(x, real, W_Q, W_K, W_V):
    """Self-attention in which padding does not answer; zeros where it stands."""
    output, _ = attention.attend(x @ W_Q, x @ W_K, x @ W_V, mask=real[:, None])
    return output.masked_fill(~real[..., None], 0.0)


def solution(x, real, W_Q, W_K, W_V):
    queries, keys, values = x @ W_Q, x @ W_K, x @ W_V        # (batch, n, d_k or d_v)
    scores = queries @ keys.mT / math.sqrt(W_K.shape[1])     # (batch, n, n)
    scores = scores.masked_fill(~real[:, None], -torch.inf)  # padding does not answer
    output = scores.softmax(dim=-1) @ values                 # (batch, n, d_v)
    return output.masked_fill(~real[..., None], 0.0)         # and receives nothing


exercise = Exercise(
    "padded_self_attention",
    reference=reference,
    solution=solution,
    returns=("output",),
    forbidden=READY_MADE,
    difficulty=2,
    minutes=10,
    hints=(
        "Mend one line at a time, and run your tests after each. The rule of the mean: row i of the scores belongs to "
        "the token that asks, so which matrix makes it? The rule of the feature: d_model grows by one, and d_k does "
        "not. The divisor is the root of which of the two?",
        "Write down a matrix of scores for three tokens, the last of them padding. Whose row is it, and whose column? "
        "Which of the two must not count when the others take their average?",
        "Leave a token out *before* the softmax, with a score that makes its weight exactly 0. Whether the rows of "
        "padding come out as zeros is a second question, about the output. (`masked_fill` does both, and passes the "
        "gradient on.)",
    ),
)
aspect, slip, misconception, variant, alternative = exercise.decorators()


def _padded(draw):
    """[x, real, W_Q, W_K, W_V]: sentences of several lengths, padding behind them."""
    batch, n = 3, 6 + draw.sizes(1, 0, 2)[0]
    x, *matrices = sentences(draw, batch, n)
    lengths = torch.tensor([n, 2, 3 + draw.integers(2, 1).item()])
    return [x, torch.arange(n) < lengths[:, None], *matrices]


# ----------------------------------------------------------------------------------------------------- what is observed


@aspect("no padding", points=2, hint=1)
def no_padding(answer, draw):
    """where every token is real it is self-attention"""
    x, real, *matrices = _padded(draw)
    return answer(x, torch.ones_like(real), *matrices)


@aspect("equal scores", points=1, hint=2)
def equal_scores(answer, draw):
    """where all scores are equal, a real token receives the mean of its sentence's real values"""
    x, real, W_Q, W_K, W_V = _padded(draw)
    x[..., 0] = 1.0  # what all tokens share, and all that their queries and keys are made of: every score is √d_k
    W_Q, W_K = torch.zeros_like(W_Q), torch.zeros_like(W_K)
    W_Q[0] = W_K[0] = 1.0
    return answer(x, real, W_Q, W_K, W_V)[real]


@aspect("beside padding", points=1, hint=3)
def beside_padding(answer, draw):
    """real tokens receive what they would receive alone, padding receives zeros"""
    x, real, *matrices = _padded(draw)
    real[0, 2] = False  # a hole between two tokens
    return answer(x, real, *matrices)


@aspect("gradient", points=1, hint=3, explain=explain_way_back("x", "W_Q", "W_K", "W_V"))
def gradient(answer, draw):
    """all three projections can be learned, and the tokens too"""
    x, real, *matrices = _padded(draw)
    inputs = [tensor.requires_grad_() for tensor in (x, *matrices)]
    return way_back(answer(x, real, *matrices), exercise.reference(x, real, *matrices), inputs, draw)


# -------------------------------------------------------------------------------------- one slip away from the solution

ROLES = ("no padding", "beside padding")
MASKED = ("equal scores", "beside padding")
ALL = ("no padding", "equal scores", "beside padding", "gradient")
FILL, ROOT = ".masked_fill(~real[:, None], -torch.inf)", "math.sqrt(W_K.shape[1])"

slip("keys ask, queries answer", ROLES, {"queries @ keys.mT": "keys @ queries.mT"}, words="""
    The matrix of scores is transposed: row i was made from the key of token i and all queries. A token whose
    query is zero must receive the plain mean; here it is a token whose key is zero.""")
slip("scaled by a number other than √d_k", ROLES,
    {ROOT: "math.sqrt(x.shape[-1])"},  # d_model
    {ROOT: "W_K.shape[1]"},  # no root
    {ROOT: "math.sqrt(W_V.shape[1])"},  # the values' width
    {ROOT: "math.sqrt(x.shape[1])"},  # the number of tokens
    words="""
    The scores were divided, but not by √d_k. Add a feature that is zero in every token: no query and no key changes, so
    no score may. d_k is the width of queries and keys, and the divisor is its square root.""")
slip("not scaled", ROLES, {f" / {ROOT}": ""}, words="""
    The scores were not divided by √d_k. These are the plain dot products; the contract asks for the scaled ones.""")
slip("−∞ in the rows of those who ask", ("equal scores", "beside padding", "gradient"),
    {"~real[:, None], -torch.inf": "~real[..., None], -torch.inf"}, words="""
    The rows of padding, the scores of its *queries*, were filled with −∞: there the softmax is 0/0, NaN, which spoils
    the gradient even where the output is overwritten. No token may attend to padding: mask its *columns*.""")
slip("padding answers", MASKED,
    {"~real[:, None], -torch.inf": "~real[..., None], -1e9"},  # the mask on those who ask
    {FILL: ""},
    words="""
    Padding has attention weight in every average. Either no score was masked, or the *rows* of padding were, the scores
    of its queries. A row filled with one number has equal weights after the softmax, so no error shows. The keys, which
    answer, are the *columns* of the matrix of scores.""")
slip("the mask read as a length", ("beside padding",),
    {"x @ W_V ": "x @ W_V\nreal = torch.arange(x.shape[1]) < real.sum(dim=1)[:, None] "}, words="""
    The mask was read as a length: so many positions from the front. That is right only where all padding stands behind.
    The mask says *where* tokens are, not only how many there are.""")
slip("a score of 0 for padding", MASKED,
    {"-torch.inf": "0.0"},
    {FILL: " * real[:, None]"}, words="""
    The scores of padding were set to 0. The softmax makes exp(0) = 1 of it, so padding may get more weight than a real
    token. The score that becomes a weight of exactly 0 is −∞.""")
slip("masked after the softmax", MASKED,
    {FILL: " + 0", "scores.softmax(dim=-1)": "(scores.softmax(dim=-1) * real[:, None])"}, words="""
    The weights of padding were set to 0 after the softmax, so the weights that are left sum to less than one. Mask the
    scores, then take the softmax.""")
slip("padding receives something", ("beside padding",),
    {"output.masked_fill(~real[..., None], 0.0)": "output"}, words="""
    The real tokens are right. The rows of padding hold averages, too, because they were not cleared; the contract has
    zeros there.""")
slip("real and padding exchanged", ("no padding", "equal scores", "beside padding", "gradient"),
    {"~real[:, None]": "real[:, None]"}, words="""
    The real tokens were masked, and padding was left to answer. True means that a token is there: fill with −∞ where
    it is *not*.""")
slip("real and padding exchanged", ("no padding", "equal scores", "beside padding"),
    {"~real[:, None], -torch.inf": "real[:, None], -1e9"})
slip("softmax over those who ask", ALL, {"dim=-1": "dim=-2"}, words="""
    The softmax ran down the columns. There the masked columns are nothing but −∞, and 0/0 is NaN. The attention weights
    of each query, a row, must sum to one.""")
slip("padding's vectors set to 0", MASKED,
    {"queries, keys, values =": "x = x * real[..., None]\nqueries, keys, values =", FILL: ""}, words="""
    The vectors of padding were set to 0 at the start. A vector of zeros has a key of zeros, so its score is 0, and the
    softmax makes exp(0) = 1 of it: padding hands over nothing, but still takes weight from the real tokens.""")
slip("one softmax for the whole table", ("no padding", "equal scores", "beside padding"),
    {"scores.softmax(dim=-1)": "scores.flatten(1).softmax(dim=-1).view_as(scores)"}, words="""
    All n² weights of a sentence together sum to one. But the attention weights of *each* query must sum to one: take
    the softmax of its n scores, one row.""")
slip("one projection for queries and keys", ("no padding", "beside padding", "gradient"),
    {"queries @ keys.mT": "queries @ queries.mT"}, {"queries @ keys.mT": "keys @ keys.mT"}, words="""
    Queries and keys were made with one and the same matrix. Then token i scores token j as j scores i, and the other
    matrix learns nothing.""")
slip("cut off from the gradient", ("gradient",),
    {"return output": "return output.detach()"},
    {"x @ W_Q, x @ W_K": "(x @ W_Q).detach(), x @ W_K"},
    {"dim=-1) @": "dim=-1).detach() @"},
    words="""
    The numbers are right, but the gradient does not get through, or only a part of it: `.detach()`, `.data`, numpy and
    `torch.no_grad()` forget where numbers came from.""")


# ------------------------------------------------------------------------------------------------------ further from it


@misconception("as it came", fails=("no padding", "equal scores", "beside padding"))
def as_it_came(x, real, W_Q, W_K, W_V):
    """This is the code with its three mistakes. Test it with your `broken_rules`: the scores are transposed, divided by
    the root of the wrong width, and masked too late."""
    queries, keys, values = x @ W_Q, x @ W_K, x @ W_V
    scores = keys @ queries.mT / math.sqrt(x.shape[-1])
    weights = scores.softmax(dim=-1) * real[:, None]
    return weights @ values * real[..., None]


# ------------------------------------------------------------------------------------------------ right in other styles


@alternative("each sentence cut to its length")
def each_sentence_cut_to_its_length(x, real, W_Q, W_K, W_V):
    """Takes the real tokens out, computes, and puts the results back."""
    output = torch.zeros(*real.shape, W_V.shape[1])
    for b, there in enumerate(real):
        tokens = x[b][there]
        weights = ((tokens @ W_Q) @ (tokens @ W_K).T / W_K.shape[1] ** 0.5).softmax(dim=1)
        output[b, there] = weights @ (tokens @ W_V)
    return output


@alternative("a large negative number, float64")
def a_large_negative_number_float64(x, real, W_Q, W_K, W_V):
    """−1e30 added to the scores of those who are not there, in double precision, by einsum."""
    x, W_Q, W_K, W_V = (tensor.double() for tensor in (x, W_Q, W_K, W_V))
    scores = torch.einsum("bid,bjd->bij", x @ W_Q, x @ W_K) * W_K.shape[1] ** -0.5
    weights = torch.softmax(scores + torch.where(real, 0.0, -1e30)[:, None, :], dim=2)
    return torch.where(real[:, :, None], torch.einsum("bij,bjd->bid", weights, x @ W_V), 0.0)


@alternative("exponentials by hand")
def exponentials_by_hand(x, real, W_Q, W_K, W_V):
    """The exponentials of padding are 0, and the rest is divided by its sum."""
    scores = (x @ W_Q) @ (x @ W_K).mT / math.sqrt(W_Q.shape[-1])
    exponentials = torch.exp(scores) * real[:, None]
    weights = exponentials / exponentials.sum(dim=-1, keepdim=True)
    return weights @ (x @ W_V) * real[..., None]
