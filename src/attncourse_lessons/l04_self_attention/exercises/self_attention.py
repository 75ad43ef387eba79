"""self_attention: Self-attention over each sentence of a batch, without a loop, with scores divided by √d_k."""

import math

import torch

from attncourse import attention
from lessonkit.exercises.exercise import Exercise
from lessonkit.exercises.judge import explain_worst, row_sums
from lessonkit.exercises.observe import require_variation
from lessonkit.exercises.way_back import explain_way_back, way_back

from .common import MATRICES, READY_MADE, sentences


def reference(x, W_Q, W_K, W_V):
    """softmax(Q Kᵀ / √d_k) V and the weights, for a batch of sentences. Vaswani et al. 2017, equation 1."""
    return attention.attend(x @ W_Q, x @ W_K, x @ W_V)


def solution(x, W_Q, W_K, W_V):
    queries, keys, values = x @ W_Q, x @ W_K, x @ W_V      # (batch, n, d_k or d_v)
    scores = queries @ keys.mT / math.sqrt(W_K.shape[1])   # (batch, n, n)
    weights = scores.softmax(dim=-1)
    return weights @ values, weights


exercise = Exercise(
    "self_attention",
    reference=reference,
    solution=solution,
    returns=("output", "weights"),
    forbidden=READY_MADE,
    difficulty=1,
    minutes=15,
    hints=(
        "Four steps: three projections, a matrix of scores, a softmax, a product. Write the shape beside each. The "
        "last product is (batch, n, n) times what? Every step is a tensor operation that passes the gradient on.",
        "`x @ W_Q` projects every token of every sentence at once. Row i of the scores holds the query of token i "
        "against all n keys, divided by √d_k. The softmax makes each row sum to 1: along which axis is that?",
        "The sentences of a batch never meet. `.mT` swaps the last two axes and leaves the batch alone; `.T` reverses "
        "all axes. And which axis is `dim=0`?",
    ),
)
aspect, slip, misconception, variant, alternative = exercise.decorators()


# ----------------------------------------------------------------------------------------------------- what is observed


@aspect("weights", points=3, hint=2, explain=row_sums)
def weights(answer, draw):
    """the softmax of the scaled scores: each token's weights sum to one over its sentence"""
    batch, n = draw.sizes(2, 4, 9)
    return answer(*sentences(draw, batch, n))[1]


@aspect(
    "output",
    points=1,
    hint=1,
    explain=explain_worst("the output differs from your own weights times the values by up to {size}, at {place}"),
)
def output(answer, draw):
    """the values, averaged by these weights"""
    batch, n = draw.sizes(2, 4, 9)
    x, W_Q, W_K, W_V = sentences(draw, batch, n)
    output, weights = answer(x, W_Q, W_K, W_V)
    values = x @ W_V
    right = [reference(x, W_Q, W_K, W_V)[0]]
    if weights.shape == (batch, n, n):
        right.append(weights.to(values.dtype) @ values)  # a slip in the weights is not to be paid for twice
    return min((require_variation(output) - one for one in right), key=lambda difference: difference.abs().max())


@aspect(
    "each sentence by itself",
    points=1,
    hint=3,
    explain=explain_worst("the output at {place} changes by {size} when other sentences join the batch"),
)
def each_sentence_by_itself(answer, draw):
    """a sentence gets the same alone as in a batch"""
    batch, n = draw.sizes(2, 3, 6)
    x, *projections = sentences(draw, batch, n)
    alone = torch.cat([require_variation(answer(sentence[None], *projections)[0]) for sentence in x])
    return answer(x, *projections)[0] - alone


@aspect("gradient", points=1, hint=1, explain=explain_way_back(*MATRICES, *MATRICES[:3]))
def gradient(answer, draw):
    """all three projections can be learned, and the tokens too, from the output and from the weights"""
    inputs = [tensor.requires_grad_() for tensor in sentences(draw, 2, 5)]
    got, right = answer(*inputs), reference(*inputs)
    from_output = way_back(got[0], right[0], inputs, draw)
    return torch.cat([from_output, way_back(got[1], right[1], inputs[:3], draw)])


# -------------------------------------------------------------------------------------- one slip away from the solution

WEIGHTS = ("weights",)
LEARNED = ("weights", "gradient")
NOT_THE_VALUES = ("output", "each sentence by itself", "gradient")
ALL = ("weights", "output", "each sentence by itself", "gradient")
ROLES, SCORES, ROOT = "x @ W_Q, x @ W_K, x @ W_V", "queries @ keys.mT", "math.sqrt(W_K.shape[1])"

slip("keys ask, queries answer", WEIGHTS, {SCORES: "keys @ queries.mT"}, words="""
    The matrix of scores is transposed: row i was made from the key of token i and all queries. The rows belong to the
    tokens that ask, so the queries are the left factor.""")
slip("one projection for queries and keys", LEARNED,
    {SCORES: "queries @ queries.mT"},
    {SCORES: "keys @ keys.mT"},
    words="""
    Queries and keys were made by the same projection, so the scores are symmetric: i matches j exactly as well as j
    matches i. Query and key are two roles, with a projection each.""")
slip("softmax over the tokens that ask", WEIGHTS, {"dim=-1": "dim=-2"}, words="""
    Your weights sum to one down each column: the queries competed for each key. The attention weights of one query, a
    row, must sum to one: which axis runs over the keys?""")
slip("one softmax for the whole table", WEIGHTS,
    {"scores.softmax(dim=-1)": "scores.flatten(1).softmax(dim=-1).reshape(scores.shape)"},
    words="""
    All n² weights of a sentence together sum to one. But the attention weights of *each* query, each row, must sum to
    one.""")
slip("softmax over the batch", ("weights", "each sentence by itself"), {"dim=-1": "dim=0"}, words="""
    `dim=0` is the batch: the sentences competed with each other, and what one receives depends on the others in the
    batch. The keys are on the last axis.""")
slip("scaled after the softmax", WEIGHTS,
    {f" / {ROOT}": "", "scores.softmax(dim=-1)": f"scores.softmax(dim=-1) / {ROOT}"},
    words="""
    The weights were divided by √d_k, so a row sums to less than one, and its weights have the same ratios as without a
    scale. Divide the scores, before the softmax.""")
slip("`.T` on three axes", ALL, {"keys.mT": "keys.T"}, words="""
    `.T` reverses the order of *all* axes of a tensor, the batch's too, and then the shapes do not fit. Within a batch
    only the last two axes change places: `.mT`, or `transpose(-2, -1)`.""")
slip("not scaled", WEIGHTS, {f" / {ROOT}": ""}, words="""
    The scores were not divided by √d_k. These are the plain dot products; the contract asks for the scaled ones.""")
slip("scaled by a number other than √d_k", WEIGHTS,
    {ROOT: "math.sqrt(x.shape[-1])"},  # d_model
    {ROOT: "W_K.shape[1]"},  # no root
    {ROOT: "math.sqrt(W_V.shape[1])"},  # the values' width
    {ROOT: "math.sqrt(x.shape[1])"},  # the number of tokens
    {ROOT: "8"},  # a number in the code
    words="""
    The scores were divided, but not by √d_k. d_k is the width of the vectors that the dot product adds up over: the
    number of columns of W_Q and W_K, neither the tokens' width d_model nor the number of tokens. And the divisor is its
    square root.""")
slip("reshaped for transposed", WEIGHTS, {"keys.mT": "keys.reshape(len(keys), keys.shape[2], -1)"}, words="""
    `reshape` and `view` read the same numbers in the same order and only break the rows elsewhere, so a column then
    holds pieces of several keys. The shape fits and the numbers do not. Swap the two axes instead.""")
slip("sums over the tokens that ask", ("output",), {"return weights @": "return weights.mT @"}, words="""
    The attention matrix was used transposed: output j was made with column j, the weights that the others put on
    token j. A column need not sum to one. Row i holds the attention weights of token i.""")
slip("something else for the values", NOT_THE_VALUES,
    {"weights @ values": "weights @ x"},
    {"weights @ values": "weights @ keys"},
    words="""
    Something other than the values was averaged: the tokens themselves, or the keys, or the queries. What a token hands
    over is its value, made by a third projection, W_V, and d_v wide.""")
slip("scores for weights", WEIGHTS, {"@ values, weights": "@ values, scores"}, words="""
    What came back as weights are scores, from before the softmax: their rows do not sum to one. The contract asks for
    the attention weights, after the softmax.""")
slip("only the tokens before", WEIGHTS,
    {"scores.softmax": "scores.masked_fill(torch.ones_like(scores).triu(1).bool(), -torch.inf).softmax"},
    words="""
    Every token attended only to itself and to those before it. That is causal self-attention, as in a decoder (lecture
    @masking). Here the whole sentence is given, and a token attends in both directions.""")
slip("all but itself", WEIGHTS,
    {"scores.softmax": "scores.masked_fill(torch.eye(x.shape[1]).bool(), -torch.inf).softmax"},
    words="""
    A token could not attend to itself. It is a token of its sentence like any other, and its own value may be what it
    needs.""")
slip("the two in the wrong order", ALL, {"weights @ values, weights": "weights, weights @ values"}, words="""
    The weights came first and the output second. The contract has the output first: it is what the next layer
    reads.""")
slip("cut off from the gradient", ("gradient",),
    {"return weights @": "return weights.detach() @"},
    {"@ values, weights": "@ values, weights.detach()"},  # a loss on the weights has no way back
    {"queries @ keys.mT": "queries.detach() @ keys.mT"},
    {"weights @ values,": "(weights @ values).detach(),"},
    words="""
    The numbers are right, but the gradient does not get through: `.detach()`, `.data`, numpy and `torch.no_grad()`
    forget where numbers came from. But all three projections must be learned: those of queries, keys and values.""")
slip("matrices for columns", ALL,
    {ROLES: "x @ W_Q.T, x @ W_K.T, x @ W_V.T"},
    {ROLES: "W_Q @ x, W_K @ x, W_V @ x"},
    words="""
    The product does not fit, because the matrix is transposed, or stands on the wrong side of the tokens. Some slides
    write q = Qx, with tokens as columns. Here a token is a row with d_model numbers, and W_Q has d_model rows. Which
    order of the two has d_model in the middle?""")


# ------------------------------------------------------------------------------------------------------ further from it


@variant("not scaled", "keys ask, queries answer", fails=WEIGHTS)
def unscaled_keys_ask(x, W_Q, W_K, W_V):
    """Both."""
    queries, keys, values = x @ W_Q, x @ W_K, x @ W_V
    weights = (keys @ queries.mT).softmax(dim=-1)
    return weights @ values, weights


@variant("not scaled", "softmax over the tokens that ask", fails=WEIGHTS)
def unscaled_over_the_tokens_that_ask(x, W_Q, W_K, W_V):
    """Both."""
    queries, keys, values = x @ W_Q, x @ W_K, x @ W_V
    weights = (queries @ keys.mT).softmax(dim=-2)
    return weights @ values, weights


# ------------------------------------------------------------------------------------------------ right in other styles


@alternative("einsum")
def einsum(x, W_Q, W_K, W_V):
    """Names the axes."""
    queries, keys, values = (torch.einsum("bnd,de->bne", x, W) for W in (W_Q, W_K, W_V))
    weights = torch.softmax(torch.einsum("bik,bjk->bij", queries, keys) / keys.shape[-1] ** 0.5, dim=-1)
    return torch.einsum("bij,bjv->biv", weights, values), weights


@alternative("one sentence and one token at a time")
def one_sentence_and_one_token_at_a_time(x, W_Q, W_K, W_V):
    """Loops over the batch and over the tokens that ask."""
    tables = []
    for sentence in x:
        keys = sentence @ W_K
        rows = [(keys @ (token @ W_Q) / math.sqrt(W_K.shape[1])).softmax(dim=0) for token in sentence]
        tables.append(torch.stack(rows))
    weights = torch.stack(tables)
    return torch.bmm(weights, x @ W_V), weights


@alternative("one product for all three projections, float64")
def one_product_for_all_three_projections_float64(x, W_Q, W_K, W_V):
    """Joins the matrices, projects once, and cuts the result apart."""
    d_k = W_K.shape[1]
    joined = x.double() @ torch.cat([W_Q, W_K, W_V], dim=1).double()
    queries, keys, values = joined.split([d_k, d_k, W_V.shape[1]], dim=-1)
    scores = queries @ keys.transpose(-2, -1) / math.sqrt(d_k)
    weights = (scores - scores.logsumexp(dim=-1, keepdim=True)).exp()
    return weights @ values, weights


@alternative("columns, not contiguous")
def columns_not_contiguous(x, W_Q, W_K, W_V):
    """Every sentence is transposed, tokens are columns, and the results are views."""
    columns = x.mT
    queries, keys, values = (W.T @ columns for W in (W_Q, W_K, W_V))
    exponentials = (keys.mT @ queries / math.sqrt(keys.shape[1])).exp()
    weights = exponentials / exponentials.sum(dim=1, keepdim=True)
    return [(values @ weights).mT, weights.mT]

# ------------------------------------------------------------------------------------------------ one thing changed

@exercise.variation(
    "tokens in columns",
    asks="Tokens are columns: x is (batch, d_model, n), and the output is (batch, d_v, n). The weights are as before.",
    fails=ALL,
    reference=lambda x, W_Q, W_K, W_V: _output_turned(reference(x.mT, W_Q, W_K, W_V)),
    contract={"x: (batch, n, d_model)": "x: (batch, d_model, n)", "output (batch, n, d_v)": "output (batch, d_v, n)"},
    given=lambda x, *projections: (x.mT, *projections),
    back=lambda results: _output_turned(results),
    without=("something else for the values", "all but itself"),
    hints=("Four steps: three projections, a matrix of scores, a softmax, a product. Write the shape beside each: on "
           "which side must W_Q stand, or what must be turned first, for a token to be projected?",
           "Row i of the weights belongs to the token that asks. Along which axis does the softmax make it sum to 1? "
           "The output is an average of values, as columns.",
           exercise.hints[2]),
)
def tokens_in_columns(x, W_Q, W_K, W_V):
    queries, keys, values = x.mT @ W_Q, x.mT @ W_K, x.mT @ W_V  # (batch, n, d_k or d_v)
    scores = queries @ keys.mT / math.sqrt(W_K.shape[1])        # (batch, n, n)
    weights = scores.softmax(dim=-1)
    return (weights @ values).mT, weights


def _output_turned(results):
    """(output, weights) with the output's last two axes exchanged."""
    output, weights = results
    return output.mT, weights


@exercise.variation(
    "divided by the width",
    asks="The scores are divided by d_k itself, not by its square root.",
    fails=WEIGHTS,
    reference=lambda x, W_Q, W_K, W_V: reference(x, W_Q / math.sqrt(W_K.shape[1]), W_K, W_V),
    contract={"scores divided by √d_k": "scores divided by d_k"},
    given=lambda x, W_Q, W_K, W_V: (x, W_Q * math.sqrt(W_K.shape[1]), W_K, W_V),
    meanings={"weights": "the softmax of q · k / d_k: each token's weights sum to one over its sentence"},
    hints=(exercise.hints[0], exercise.hints[1].replace("divided by √d_k", "divided by d_k"), exercise.hints[2]),
)
def divided_by_the_width(x, W_Q, W_K, W_V):
    queries, keys, values = x @ W_Q, x @ W_K, x @ W_V      # (batch, n, d_k or d_v)
    scores = queries @ keys.mT / W_K.shape[1]              # (batch, n, n)
    weights = scores.softmax(dim=-1)
    return weights @ values, weights
