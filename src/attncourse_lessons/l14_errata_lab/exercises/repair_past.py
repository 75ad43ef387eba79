"""repair_past: Self-attention of a text that comes word by word: each looks at itself and at those before."""

import math

import torch

from attncourse import attention
from lessonkit.exercises.exercise import Exercise
from lessonkit.exercises.judge import explain_worst
from lessonkit.exercises.observe import apart, require_variation
from lessonkit.exercises.way_back import explain_way_back, way_back

from .common import READY_MADE


def reference(x, W_Q, W_K, W_V):
    """Self-attention in which each word sees itself and what came before it."""
    return attention.attend(x @ W_Q, x @ W_K, x @ W_V, attention.causal_mask(len(x)))[0]


def solution(x, W_Q, W_K, W_V):
    found = []
    for t in range(len(x)):
        query, keys, values = x[t] @ W_Q, x[: t + 1] @ W_K, x[: t + 1] @ W_V
        shares = (keys @ query / math.sqrt(len(query))).softmax(dim=0)            # (t + 1,)
        found.append(shares @ values)                                             # (d_v,)
    return torch.stack(found)                                                     # (n, d_v)


exercise = Exercise(
    "repair_past",
    reference=reference,
    solution=solution,
    returns=("output",),
    forbidden=READY_MADE,
    extra=True,
    difficulty=2,
    minutes=12,
    hints=(
        "At step t one token is new. How many queries are there at this step, and how many keys?",
        "Look at the shapes at step t: one query (1, d_k), t + 1 keys (t + 1, d_k), so that there are t + 1 weights. "
        "How many values must there be? `torch.stack` makes one tensor of all rows, and passes the gradient on.",
    ),
)
aspect, slip, misconception, variant, alternative = exercise.decorators()


def _one_text(draw, n=None):
    drawn, d, d_k, d_v = draw.sizes(4, 3, 8)
    return (draw.normal(n or drawn, d), *(draw.normal(d, width) / math.sqrt(d) for width in (d_k, d_k, d_v)))


# ----------------------------------------------------------------------------------------------------- what is observed


@aspect("output", points=1, hint=2)
def output(answer, draw):
    """one row for each token, as one masked pass gives it"""
    return answer(*_one_text(draw))


@aspect("the past stays", points=1, hint=1, explain=explain_worst("it moves by {size} at {place}"))
def the_past_stays(answer, draw):
    """changing the last token changes nothing before it"""
    x, *matrices = _one_text(draw, n=6)
    other = torch.cat([x[:-1], draw.normal(1, x.shape[1])])
    return apart(require_variation(answer(x, *matrices))[:-1], answer(other, *matrices)[:-1])


@aspect("one token", points=1, hint=2)
def one_word(answer, draw):
    """a text of one token: its own value"""
    return answer(*_one_text(draw, n=1))


@aspect("gradient", points=1, hint=2, explain=explain_way_back("x", "W_Q", "W_K", "W_V"))
def gradient(answer, draw):
    """the tokens and all three matrices can be learned, from what is old as well"""
    inputs = [tensor.requires_grad_() for tensor in _one_text(draw, n=6)]
    return way_back(answer(*inputs), exercise.reference(*inputs), inputs, draw)


# -------------------------------------------------------------------------------------- one slip away from the solution

STEPS = ("output", "the past stays")
KEYS, VALUES = "x[: t + 1] @ W_K", "x[: t + 1] @ W_V"

slip("everybody sees everybody", STEPS, {KEYS: "x @ W_K", VALUES: "x @ W_V"}, words="""
    Nothing is masked: each token attends to the whole text, including what comes after it.""")

slip("not even itself", ("output", "one token"), {KEYS: "x[:t] @ W_K", VALUES: "x[:t] @ W_V"}, words="""
    The token itself is missing from those that it attends to: a slice up to t ends before t. The first token then has
    nothing to attend to.""")

slip("weights set to 0", STEPS, {KEYS: "x @ W_K", "shares @ values": "shares[: t + 1] @ values"}, words="""
    The weights of the future were set to 0 after the softmax. No value of the future comes through, but the future
    still has an effect: it took its weight in the softmax, and the rest of the row shows how much.""")

slip("unscaled", ("output",), {" / math.sqrt(len(query))": ""}, words="""
    The scores were not divided by √d_k.""")

slip("divided by √d", ("output",), {"math.sqrt(len(query))": "math.sqrt(x.shape[1])"}, words="""
    The scores were divided by the root of the tokens' width, d. What counts is how many products a score sums up: d_k,
    the width of queries and keys.""")


slip("cut off from the gradient", ("gradient",),
     {"softmax(dim=0)": "softmax(dim=0).detach()"},
     {"torch.stack(found)": "torch.stack(found).detach()"},
     {KEYS: "torch.cat([x[:t].detach(), x[t : t + 1]]) @ W_K"},  # a cache without a gradient
     {KEYS: "torch.cat([(x[:t] @ W_K).detach(), x[t : t + 1] @ W_K])",
      VALUES: "torch.cat([(x[:t] @ W_V).detach(), x[t : t + 1] @ W_V])"},
     words="""
    The numbers are right, but no gradient gets through, or not everywhere: `.detach()`, `.data`, numpy and
    `torch.no_grad()` forget where numbers came from. A repaired line stands in a model that is to be trained.""")


# ------------------------------------------------------------------------------------------------------ further from it


@misconception("keys and queries", fails=(*STEPS, "gradient"))
def keys_and_queries(x, W_Q, W_K, W_V):
    """The queries grow with the past, as the slide says, and the values do not. A step has one query, that of
    the newest token. What it needs of the past are the keys *and* the values."""
    outputs = []
    for t in range(len(x)):
        query, key, value = x[: t + 1] @ W_Q, x[: t + 1] @ W_K, x[t : t + 1] @ W_V
        weights = (query @ key.mT / math.sqrt(key.shape[-1])).softmax(dim=-1)
        outputs.append((weights @ value)[-1])
    return torch.stack(outputs)


@variant("not even itself", fails=("output", "one token"))
def not_even_itself_by_a_mask(x, W_Q, W_K, W_V):
    """By a mask, NaN replaced."""
    query, key, value = x @ W_Q, x @ W_K, x @ W_V
    forbidden = torch.ones(len(x), len(x), dtype=torch.bool).triu()
    scores = (query @ key.mT / math.sqrt(key.shape[-1])).masked_fill(forbidden, -torch.inf)
    return scores.softmax(dim=-1).nan_to_num(0.0) @ value


@variant("not even itself", fails=("output",))
def not_even_itself_but_for_the_first(x, W_Q, W_K, W_V):
    """Who comes first has nobody else."""
    found = []
    for t in range(len(x)):
        seen = x[: max(t, 1)]
        weights = (seen @ W_K @ (x[t] @ W_Q) / math.sqrt(W_K.shape[1])).softmax(dim=0)
        found.append(weights @ (seen @ W_V))
    return torch.stack(found)


@misconception("the newest answers all", fails=("output",))
def the_newest_answers_all(x, W_Q, W_K, W_V):
    """Each step computed the outputs of *every* query so far, and a later step overwrote the outputs of earlier
    tokens, or averaged them with its own. Each token has one query, at the step at which it is new."""
    query, key, value = x @ W_Q, x @ W_K, x @ W_V
    rows = []
    for t in range(len(x)):
        weights = (query[: t + 1] @ key[: t + 1].mT / math.sqrt(key.shape[-1])).softmax(dim=-1)
        rows.append((weights @ value[: t + 1]).mean(dim=0))
    return torch.stack(rows)


@misconception("the first one asks", fails=("output",))
def the_first_one_asks(x, W_Q, W_K, W_V):
    """At each step the output is that of the *first* query. The query of this step belongs to its new token, and
    that is the last row."""
    query, key, value = x @ W_Q, x @ W_K, x @ W_V
    rows = []
    for t in range(len(x)):
        weights = (query[: t + 1] @ key[: t + 1].mT / math.sqrt(key.shape[-1])).softmax(dim=-1)
        rows.append((weights @ value[: t + 1])[0])
    return torch.stack(rows)


@misconception("scores set to 0", fails=STEPS)
def scores_set_to_0(x, W_Q, W_K, W_V):
    """The scores of the future were set to 0. To softmax that is a score like any other, exp(0) = 1, and the future
    goes on being heard, each of its words with the same weight."""
    query, key, value = x @ W_Q, x @ W_K, x @ W_V
    scores = query @ key.mT / math.sqrt(key.shape[-1])
    return scores.tril().softmax(dim=-1) @ value


# ------------------------------------------------------------------------------------------------ right in other styles


@alternative("a cache that grows")
def a_cache_that_grows(x, W_Q, W_K, W_V):
    """One query a step; keys and values are remembered."""
    keys, values, rows = [], [], []
    for word in x:
        keys.append(word @ W_K)
        values.append(word @ W_V)
        scores = torch.stack(keys) @ (word @ W_Q) / math.sqrt(W_K.shape[1])
        rows.append(scores.softmax(dim=0) @ torch.stack(values))
    return torch.stack(rows)


@alternative("one masked pass")
def one_masked_pass(x, W_Q, W_K, W_V):
    """No steps at all."""
    query, key, value = x @ W_Q, x @ W_K, x @ W_V
    i, j = torch.arange(len(x))[:, None], torch.arange(len(x))
    scores = (query @ key.T / key.size(-1) ** 0.5).masked_fill(j > i, float("-inf"))
    return torch.einsum("ij,jd->id", scores.softmax(-1).double(), value.double())
