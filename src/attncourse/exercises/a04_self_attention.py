"""Assignment 04: a sentence looks at itself, and what that costs.

Function bodies below stand in for a learner's: they use torch alone, and the argument names of the contract.
"""

import math

import numpy as np
import torch

from attncourse import attention, sizes
from attncourse.exercises.core import Exercise
from attncourse.exercises.judge import arrives, row_sums, told
from attncourse.exercises.observe import reached, telling

READY_MADE = (
    "attncourse.attention",
    "attncourse.efficient",
    "torch.nn.functional.scaled_dot_product_attention",
    "torch.nn.MultiheadAttention",
)

MATRICES = ("x", "W_Q", "W_K", "W_V")


def _sentences(draw, *shape):
    """[x, W_Q, W_K, W_V] for sentences of this shape, no two sizes alike."""
    d_model, d_k, d_v = [size for size in draw.sizes(3 + len(shape), 3, 9) if size not in shape][:3]
    projections = [1.3 * draw.normal(d_model, d) / math.sqrt(d_model) for d in (d_k, d_k, d_v)]
    return [draw.normal(*shape, d_model), *projections]


MOVED = told("the output at {place} differs by {size} from what the same word got before the sentence was shuffled")

# ------------------------------------------------------------------------------------------------- self_attention_loop


def _self_attention_loop(x, W_Q, W_K, W_V):
    """softmax(q · k / √d_k) averages v, for one sentence. Vaswani et al. 2017, equation 1."""
    return attention.attend(x @ W_Q, x @ W_K, x @ W_V)[0]


self_attention_loop = Exercise(
    "self_attention_loop",
    reference=_self_attention_loop,
    returns=("output",),
    forbidden=READY_MADE,
    difficulty=1,
    minutes=15,
    hints=(
        "Fix one word, i. What does it ask with, and which n numbers does its question produce? Write those n numbers "
        "first, and nothing else.",
        "For word i: the scores are `q @ keys[j] / √d_k` for all j, softmax over these n, and the output is the sum "
        "over j of weight times `values[j]`.",
        "Begin with `queries, keys, values = x @ W_Q, x @ W_K, x @ W_V`. Collect one output for each word in a list, "
        "and `torch.stack` it at the end: writing into a tensor works, but is easily cut off from the gradient.",
    ),
)


@self_attention_loop.aspect("output", points=2)
def _(answer, draw):
    """each word gets the average of all values, by its own weights"""
    return answer(*_sentences(draw, 7 + draw.sizes(1, 0, 3)[0]))


@self_attention_loop.aspect("a sentence of one word", points=1)
def _(answer, draw):
    """with nobody else to look at, a word gets its own value"""
    return answer(*_sentences(draw, 1))


@self_attention_loop.aspect("shuffled", points=1, explain=MOVED)
def _(answer, draw):
    """in another order, every word still gets what it got"""
    n = 4 + draw.sizes(1, 0, 3)[0]
    x, *projections = _sentences(draw, n)
    x = x / 2  # where somebody sums exponentials, rounding must stay small
    order = torch.arange(n)
    while (order == torch.arange(n)).any():  # nobody stays where they were
        order = draw.uniform(n).argsort()
    return answer(x[order], *projections) - telling(answer(x, *projections))[order]


@self_attention_loop.aspect("gradient", points=1, explain=arrives(*MATRICES))
def _(answer, draw):
    """all three projections can be learned, and the words too"""
    inputs = [tensor.requires_grad_() for tensor in _sentences(draw, 5)]
    return reached(answer(*inputs), inputs, draw)


@self_attention_loop.misconception("sums over the words that ask", fails=("output",))
def _(x, W_Q, W_K, W_V):
    """The weights were added up over the words that ask: word j received α_ij v_i, summed over i. Those weights need
    not sum to one. Word i is the one that asks and the one that is answered: its weights α_i1 … α_in belong to the
    values of words 1 … n. (One deck prints the sum over i; see the lecture.)"""
    queries, keys, values = x @ W_Q, x @ W_K, x @ W_V
    output = torch.zeros(len(x), W_V.shape[1])
    for i in range(len(x)):
        weights = (keys @ queries[i] / math.sqrt(W_K.shape[1])).softmax(dim=0)
        for j in range(len(x)):
            output[j] += weights[j] * values[i]
    return output


@self_attention_loop.misconception("its own value back", fails=("output", "gradient"))
def _(x, W_Q, W_K, W_V):
    """Every weight was multiplied by the same value, that of the word that asks. The weights sum to one, so each word
    got its own value back and learned nothing about the others. The weight α_ij says how much word i takes of word j:
    whose value does it go with?"""
    queries, keys, values = x @ W_Q, x @ W_K, x @ W_V
    output = []
    for i in range(len(x)):
        weights = (keys @ queries[i] / math.sqrt(W_K.shape[1])).softmax(dim=0)
        output.append(sum(weights[j] * values[i] for j in range(len(x))))
    return torch.stack(output)


@self_attention_loop.variant("its own value back", fails=("output", "gradient"))
def _(x, W_Q, W_K, W_V):
    """By leaving the weights out."""
    return x @ W_V


@self_attention_loop.misconception("keys ask, queries answer", fails=("output",))
def _(x, W_Q, W_K, W_V):
    """Row i of the scores was made from the *key* of word i and the queries of the others. The word that is being
    written asks, with its query; all words answer, with their keys. The two tables are each other's transpose."""
    queries, keys, values = x @ W_Q, x @ W_K, x @ W_V
    output = []
    for i in range(len(x)):
        weights = (queries @ keys[i] / math.sqrt(W_K.shape[1])).softmax(dim=0)
        output.append(weights @ values)
    return torch.stack(output)


@self_attention_loop.misconception("one projection for queries and keys", fails=("output", "gradient"))
def _(x, W_Q, W_K, W_V):
    """Queries and keys were made by the same matrix. Then i matches j exactly as well as j matches i, which is not how
    words are: "her" needs "Anna", and Anna does not need "her". Asking and offering are two roles, with a matrix
    each."""
    queries, values = x @ W_Q, x @ W_V
    output = []
    for i in range(len(x)):
        weights = (queries @ queries[i] / math.sqrt(W_K.shape[1])).softmax(dim=0)
        output.append(weights @ values)
    return torch.stack(output)


@self_attention_loop.variant("one projection for queries and keys", fails=("output", "gradient"))
def _(x, W_Q, W_K, W_V):
    """That of the keys."""
    keys, values = x @ W_K, x @ W_V
    return torch.stack([(keys @ key / math.sqrt(len(key))).softmax(dim=0) @ values for key in keys])


@self_attention_loop.misconception("softmax over the words that ask", fails=("output",))
def _(x, W_Q, W_K, W_V):
    """Softmax ran down the columns of the table: the words that ask competed for each word that answers. A word that
    asks has one unit to share out over the answers, so its own n scores, one row, must become shares."""
    queries, keys, values = x @ W_Q, x @ W_K, x @ W_V
    scores = queries @ keys.mT / math.sqrt(W_K.shape[1])
    return scores.softmax(dim=0) @ values


@self_attention_loop.misconception("one softmax for the whole table", fails=("output",))
def _(x, W_Q, W_K, W_V):
    """All n² weights together sum to one, so the words that ask had to share one unit among them. Each word that asks
    has a unit of its own: its n scores, and no others, become shares."""
    queries, keys, values = x @ W_Q, x @ W_K, x @ W_V
    scores = queries @ keys.mT / math.sqrt(W_K.shape[1])
    return scores.flatten().softmax(dim=0).reshape(scores.shape) @ values


@self_attention_loop.misconception("not scaled", fails=("output",))
def _(x, W_Q, W_K, W_V):
    """The scores were not divided by √d_k. These are the plain dot products; the contract asks for the scaled ones."""
    queries, keys, values = x @ W_Q, x @ W_K, x @ W_V
    return torch.stack([(keys @ query).softmax(dim=0) @ values for query in queries])


@self_attention_loop.misconception("scaled by a number other than √d_k", fails=("output",))
def _(x, W_Q, W_K, W_V):
    """The scores were divided, but not by √d_k. d_k is the width of the vectors that the dot product adds up over: the
    number of columns of W_Q and W_K, neither the words' width d_model nor the number of words. And the divisor is its
    square root."""
    queries, keys, values = x @ W_Q, x @ W_K, x @ W_V
    return torch.stack([(keys @ query / math.sqrt(x.shape[1])).softmax(dim=0) @ values for query in queries])


@self_attention_loop.variant("scaled by a number other than √d_k", fails=("output",))
def _(x, W_Q, W_K, W_V):
    """No root."""
    queries, keys, values = x @ W_Q, x @ W_K, x @ W_V
    return torch.stack([(keys @ query / W_K.shape[1]).softmax(dim=0) @ values for query in queries])


@self_attention_loop.variant("scaled by a number other than √d_k", fails=("output",))
def _(x, W_Q, W_K, W_V):
    """The number of words."""
    queries, keys, values = x @ W_Q, x @ W_K, x @ W_V
    return torch.stack([(keys @ query / math.sqrt(len(keys))).softmax(dim=0) @ values for query in queries])


@self_attention_loop.variant("scaled by a number other than √d_k", fails=("output",))
def _(x, W_Q, W_K, W_V):
    """The values' width."""
    queries, keys, values = x @ W_Q, x @ W_K, x @ W_V
    return torch.stack([(keys @ query / math.sqrt(W_V.shape[1])).softmax(dim=0) @ values for query in queries])


@self_attention_loop.variant("scaled by a number other than √d_k", fails=("output",))
def _(x, W_Q, W_K, W_V):
    """Times, not divided by."""
    queries, keys, values = x @ W_Q, x @ W_K, x @ W_V
    return torch.stack([(keys @ query * math.sqrt(W_K.shape[1])).softmax(dim=0) @ values for query in queries])


@self_attention_loop.misconception("scaled after the softmax", fails=("output", "a sentence of one word"))
def _(x, W_Q, W_K, W_V):
    """The weights were divided by √d_k, so they no longer sum to one. The scale belongs to the scores, before the
    softmax: it decides how sharply the softmax chooses."""
    queries, keys, values = x @ W_Q, x @ W_K, x @ W_V
    output = []
    for query in queries:
        weights = (keys @ query).softmax(dim=0) / math.sqrt(len(query))
        output.append(weights @ values)
    return torch.stack(output)


@self_attention_loop.misconception("only the words before", fails=("output", "shuffled"))
def _(x, W_Q, W_K, W_V):
    """The inner loop stopped at word i, so a word looked at itself and at those before it. That is what a decoder does
    while it writes (lecture 06). Here the whole sentence is there: a word looks at all n, in both directions."""
    queries, keys, values = x @ W_Q, x @ W_K, x @ W_V
    output = []
    for i in range(len(x)):
        weights = (keys[: i + 1] @ queries[i] / math.sqrt(W_K.shape[1])).softmax(dim=0)
        output.append(weights @ values[: i + 1])
    return torch.stack(output)


@self_attention_loop.misconception("all but itself", fails=("output", "a sentence of one word"))
def _(x, W_Q, W_K, W_V):
    """The word that asks was left out of the answers. It is a word of the sentence like any other: its own key is
    compared with its query, and its own value may be what it needs."""
    queries, keys, values = x @ W_Q, x @ W_K, x @ W_V
    output = []
    for i in range(len(x)):
        others = [j for j in range(len(x)) if j != i]
        weights = (keys[others] @ queries[i] / math.sqrt(W_K.shape[1])).softmax(dim=0)
        output.append(weights @ values[others])
    return torch.stack(output)


@self_attention_loop.misconception(
    "words for values", fails=("output", "a sentence of one word", "shuffled", "gradient")
)
def _(x, W_Q, W_K, W_V):
    """The words themselves were averaged, and W_V was not used. What a word hands over is a third role beside asking
    and offering: the value, d_v wide."""
    queries, keys = x @ W_Q, x @ W_K
    return torch.stack([(keys @ query / math.sqrt(len(query))).softmax(dim=0) @ x for query in queries])


@self_attention_loop.variant(
    "words for values", fails=("output", "a sentence of one word", "shuffled", "gradient")
)
def _(x, W_Q, W_K, W_V):
    """The keys."""
    queries, keys = x @ W_Q, x @ W_K
    return torch.stack([(keys @ query / math.sqrt(len(query))).softmax(dim=0) @ keys for query in queries])


@self_attention_loop.misconception("exponentials that were not divided", fails=("output", "a sentence of one word"))
def _(x, W_Q, W_K, W_V):
    """The exponentials were used as they are. To be shares they must be divided by their sum over all n words: only
    then is the result an average."""
    queries, keys, values = x @ W_Q, x @ W_K, x @ W_V
    output = []
    for query in queries:
        weights = (keys @ query / math.sqrt(len(query))).exp()
        output.append(weights @ values)
    return torch.stack(output)


@self_attention_loop.misconception("scores for weights", fails=("output", "a sentence of one word"))
def _(x, W_Q, W_K, W_V):
    """The values were added up by their scores, which may be negative and sum to anything. Softmax makes shares of
    them."""
    queries, keys, values = x @ W_Q, x @ W_K, x @ W_V
    return torch.stack([(keys @ query / math.sqrt(len(query))) @ values for query in queries])


@self_attention_loop.misconception("the last word overwrites", fails=("output", "shuffled"))
def _(x, W_Q, W_K, W_V):
    """Inside the loop over j the output was set and not added to, so only the last word's contribution was left. A sum
    starts at zero and grows."""
    queries, keys, values = x @ W_Q, x @ W_K, x @ W_V
    output = []
    for i in range(len(x)):
        weights = (keys @ queries[i] / math.sqrt(W_K.shape[1])).softmax(dim=0)
        for j in range(len(x)):
            collected = weights[j] * values[j]
        output.append(collected)
    return torch.stack(output)


@self_attention_loop.misconception("divided once more", fails=("output",))
def _(x, W_Q, W_K, W_V):
    """The weights already sum to one, so their weighted sum is an average. Dividing by the number of words (or `mean`
    where a sum is meant) shrinks it, and the longer the sentence, the more."""
    queries, keys, values = x @ W_Q, x @ W_K, x @ W_V
    output = []
    for query in queries:
        weights = (keys @ query / math.sqrt(len(query))).softmax(dim=0)
        output.append((weights[:, None] * values).mean(dim=0))
    return torch.stack(output)


@self_attention_loop.misconception("cut off from the gradient", fails=("gradient",))
def _(x, W_Q, W_K, W_V):
    """The numbers are right, but the gradient does not get through: `.item()`, `.detach()`, `.tolist()` and
    `torch.tensor(...)` hand over bare numbers and forget where they came from. Then nobody can learn where to look.
    Stay with tensor operations."""
    queries, keys, values = x @ W_Q, x @ W_K, x @ W_V
    output = []
    for i in range(len(x)):
        scores = torch.tensor([(queries[i] @ key).item() for key in keys]) / math.sqrt(W_K.shape[1])
        output.append(scores.softmax(dim=0) @ values)
    return torch.stack(output)


@self_attention_loop.variant("cut off from the gradient", fails=("gradient",))
def _(x, W_Q, W_K, W_V):
    """At the end."""
    queries, keys, values = x @ W_Q, x @ W_K, x @ W_V
    output = [(keys @ query / math.sqrt(len(query))).softmax(dim=0) @ values for query in queries]
    return torch.stack(output).detach()


@self_attention_loop.misconception(
    "no projections at all", fails=("output", "a sentence of one word", "shuffled", "gradient")
)
def _(x, W_Q, W_K, W_V):
    """The words were compared and averaged as they are. Then a word looks for what is like itself, and hands over
    everything that it is. Multiply it by a matrix for each of its three roles first: asking, being found, handing
    over."""
    return torch.stack([(x @ word / math.sqrt(x.shape[1])).softmax(dim=0) @ x for word in x])


@self_attention_loop.variant(
    "no projections at all", fails=("output", "a sentence of one word", "shuffled", "gradient")
)
def _(x, W_Q, W_K, W_V):
    """Nor a scale."""
    return torch.stack([(x @ word).softmax(dim=0) @ x for word in x])


@self_attention_loop.variant(
    "no projections at all", fails=("output", "a sentence of one word", "shuffled", "gradient")
)
def _(x, W_Q, W_K, W_V):
    """The scale of the projections."""
    return torch.stack([(x @ word / math.sqrt(W_K.shape[1])).softmax(dim=0) @ x for word in x])


@self_attention_loop.misconception(
    "matrices for columns", fails=("output", "a sentence of one word", "shuffled", "gradient")
)
def _(x, W_Q, W_K, W_V):
    """The product does not fit, because the matrix stands on the wrong side of the word, or is transposed. Some slides
    write q = Qx, with words as columns. Here a word is a row with d_model numbers, and W_Q has d_model rows. Which
    order of the two has d_model in the middle?"""
    queries = torch.stack([W_Q @ word for word in x])
    keys = torch.stack([W_K @ word for word in x])
    values = torch.stack([W_V @ word for word in x])
    return torch.stack([(keys @ query / math.sqrt(len(query))).softmax(dim=0) @ values for query in queries])


@self_attention_loop.variant(
    "matrices for columns", fails=("output", "a sentence of one word", "shuffled", "gradient")
)
def _(x, W_Q, W_K, W_V):
    """Transposed."""
    queries, keys, values = x @ W_Q.T, x @ W_K.T, x @ W_V.T
    return torch.stack([(keys @ query / math.sqrt(len(query))).softmax(dim=0) @ values for query in queries])


@self_attention_loop.variant("not scaled", "softmax over the words that ask", fails=("output",))
def _(x, W_Q, W_K, W_V):
    """Both."""
    queries, keys, values = x @ W_Q, x @ W_K, x @ W_V
    return (queries @ keys.mT).softmax(dim=0) @ values


@self_attention_loop.variant("not scaled", "keys ask, queries answer", fails=("output",))
def _(x, W_Q, W_K, W_V):
    """Both."""
    queries, keys, values = x @ W_Q, x @ W_K, x @ W_V
    return (keys @ queries.mT).softmax(dim=1) @ values


@self_attention_loop.alternative("two plain loops")
def _(x, W_Q, W_K, W_V):
    """One score, and one contribution, at a time, with the exponentials by hand."""
    n, d_k = x.shape[0], W_K.shape[1]
    output = []
    for i in range(n):
        query = x[i] @ W_Q
        exponentials = [torch.exp((query * (x[j] @ W_K)).sum() / d_k**0.5) for j in range(n)]
        output.append(sum(e / sum(exponentials) * (x[j] @ W_V) for j, e in enumerate(exponentials)))
    return torch.stack(output)


@self_attention_loop.alternative("written into a tensor, in float64")
def _(x, W_Q, W_K, W_V):
    """Adds up in place, in double precision."""
    queries, keys, values = (x.double() @ W.double() for W in (W_Q, W_K, W_V))
    output = torch.zeros(len(x), W_V.shape[1], dtype=torch.float64)
    for i in range(len(x)):
        weights = torch.softmax(torch.stack([queries[i] @ key for key in keys]) / math.sqrt(keys.shape[1]), dim=0)
        for j in range(len(x)):
            output[i] += weights[j] * values[j]
    return output


@self_attention_loop.alternative("matrices")
def _(x, W_Q, W_K, W_V):
    """No loop at all."""
    return ((x @ W_Q) @ (x @ W_K).T / W_K.shape[1] ** 0.5).softmax(-1) @ (x @ W_V)


@self_attention_loop.alternative("projections joined, a transposed view")
def _(x, W_Q, W_K, W_V):
    """x (W_Q W_Kᵀ) xᵀ, never a query or a key, and columns in the end."""
    scores = torch.einsum("id,de,je->ij", x, W_Q @ W_K.T / math.sqrt(W_K.shape[-1]), x)
    return (W_V.T @ x.T @ scores.softmax(dim=1).T).T


# ------------------------------------------------------------------------------------------------------ self_attention


def _self_attention(x, W_Q, W_K, W_V):
    """softmax(Q Kᵀ / √d_k) V and the weights, for a batch of sentences. Vaswani et al. 2017, equation 1."""
    return attention.attend(x @ W_Q, x @ W_K, x @ W_V)


self_attention = Exercise(
    "self_attention",
    reference=_self_attention,
    returns=("output", "weights"),
    forbidden=READY_MADE,
    difficulty=2,
    minutes=15,
    hints=(
        "Four lines: three projections, one table of scores, one softmax, one product. Write the shape beside each.",
        "`x @ W_Q` projects every word of every sentence at once. The table (batch, n, n) has a row for each word that "
        "asks: queries times transposed keys.",
        "`.mT` swaps the last two axes and leaves the batch alone; `.T` does not. The softmax runs along the last "
        "axis, and the scale √d_k comes from `W_K.shape[-1]`.",
    ),
)


@self_attention.aspect("weights", points=3, explain=row_sums)
def _(answer, draw):
    """each word shares out exactly one over its sentence, by scaled q · k"""
    batch, n = draw.sizes(2, 4, 9)
    return answer(*_sentences(draw, batch, n))[1]


@self_attention.aspect(
    "output",
    points=1,
    explain=told("the output differs from your own weights times the values by up to {size}, at {place}"),
)
def _(answer, draw):
    """the values, averaged by these weights"""
    batch, n = draw.sizes(2, 4, 9)
    x, W_Q, W_K, W_V = _sentences(draw, batch, n)
    output, weights = answer(x, W_Q, W_K, W_V)
    values = x @ W_V
    right = [_self_attention(x, W_Q, W_K, W_V)[0]]
    if weights.shape == (batch, n, n):
        right.append(weights.to(values.dtype) @ values)  # a slip in the weights is not to be paid for twice
    return min((telling(output) - one for one in right), key=lambda difference: difference.abs().max())


@self_attention.aspect(
    "each sentence by itself",
    points=1,
    explain=told("the output at {place} changes by {size} when other sentences join the batch"),
)
def _(answer, draw):
    """a sentence gets the same alone as in a batch"""
    batch, n = draw.sizes(2, 3, 6)
    x, *projections = _sentences(draw, batch, n)
    alone = torch.cat([telling(answer(sentence[None], *projections)[0]) for sentence in x])
    return answer(x, *projections)[0] - alone


@self_attention.aspect("gradient", points=1, explain=arrives(*MATRICES))
def _(answer, draw):
    """all three projections can be learned, and the words too"""
    inputs = [tensor.requires_grad_() for tensor in _sentences(draw, 2, 5)]
    return reached(answer(*inputs)[0], inputs, draw)


@self_attention.misconception("keys ask, queries answer", fails=("weights",))
def _(x, W_Q, W_K, W_V):
    """The table is transposed: row i was made from the key of word i and everybody's queries. The rows belong to the
    words that ask, so the queries are the left factor."""
    queries, keys, values = x @ W_Q, x @ W_K, x @ W_V
    weights = (keys @ queries.mT / math.sqrt(W_K.shape[1])).softmax(dim=-1)
    return weights @ values, weights


@self_attention.misconception("one projection for queries and keys", fails=("weights", "gradient"))
def _(x, W_Q, W_K, W_V):
    """Queries and keys were made by the same matrix, so the table of scores is symmetric: i matches j exactly as well
    as j matches i. Asking and offering are two roles, with a matrix each."""
    queries, keys, values = x @ W_Q, x @ W_Q, x @ W_V
    weights = (queries @ keys.mT / math.sqrt(W_K.shape[1])).softmax(dim=-1)
    return weights @ values, weights


@self_attention.variant("one projection for queries and keys", fails=("weights", "gradient"))
def _(x, W_Q, W_K, W_V):
    """That of the keys."""
    keys = x @ W_K
    weights = (keys @ keys.mT / math.sqrt(W_K.shape[1])).softmax(dim=-1)
    return weights @ (x @ W_V), weights


@self_attention.misconception("softmax over the words that ask", fails=("weights",))
def _(x, W_Q, W_K, W_V):
    """Your weights sum to one down each column, as if the words that answer had a unit each to give away. It is the
    word that asks, one row, that shares out one unit: look at which axis runs over the answers."""
    queries, keys, values = x @ W_Q, x @ W_K, x @ W_V
    weights = (queries @ keys.mT / math.sqrt(W_K.shape[1])).softmax(dim=-2)
    return weights @ values, weights


@self_attention.misconception("one softmax for the whole table", fails=("weights",))
def _(x, W_Q, W_K, W_V):
    """All n² weights of a sentence together sum to one, so the words that ask had to share one unit among them. Each
    word that asks, each row, has a unit of its own."""
    queries, keys, values = x @ W_Q, x @ W_K, x @ W_V
    scores = queries @ keys.mT / math.sqrt(W_K.shape[-1])
    weights = scores.flatten(1).softmax(dim=-1).reshape(scores.shape)
    return weights @ values, weights


@self_attention.misconception("softmax over the batch", fails=("weights", "each sentence by itself"))
def _(x, W_Q, W_K, W_V):
    """`dim=0` is the batch: the sentences competed with each other, and what one gets depends on which others came
    along. The words that answer are the last axis."""
    queries, keys, values = x @ W_Q, x @ W_K, x @ W_V
    weights = (queries @ keys.mT / math.sqrt(W_K.shape[1])).softmax(dim=0)
    return weights @ values, weights


@self_attention.misconception("not scaled", fails=("weights",))
def _(x, W_Q, W_K, W_V):
    """The scores were not divided by √d_k. These are the plain dot products; the contract asks for the scaled ones."""
    queries, keys, values = x @ W_Q, x @ W_K, x @ W_V
    weights = (queries @ keys.mT).softmax(dim=-1)
    return weights @ values, weights


@self_attention.misconception("scaled by a number other than √d_k", fails=("weights",))
def _(x, W_Q, W_K, W_V):
    """The scores were divided, but not by √d_k. d_k is the width of the vectors that the dot product adds up over: the
    number of columns of W_Q and W_K, neither the words' width d_model nor the number of words. And the divisor is its
    square root."""
    queries, keys, values = x @ W_Q, x @ W_K, x @ W_V
    weights = (queries @ keys.mT / math.sqrt(x.shape[-1])).softmax(dim=-1)
    return weights @ values, weights


@self_attention.variant("scaled by a number other than √d_k", fails=("weights",))
def _(x, W_Q, W_K, W_V):
    """No root."""
    queries, keys, values = x @ W_Q, x @ W_K, x @ W_V
    weights = (queries @ keys.mT / W_K.shape[1]).softmax(dim=-1)
    return weights @ values, weights


@self_attention.variant("scaled by a number other than √d_k", fails=("weights",))
def _(x, W_Q, W_K, W_V):
    """The values' width."""
    queries, keys, values = x @ W_Q, x @ W_K, x @ W_V
    weights = (queries @ keys.mT / math.sqrt(values.shape[-1])).softmax(dim=-1)
    return weights @ values, weights


@self_attention.variant("scaled by a number other than √d_k", fails=("weights",))
def _(x, W_Q, W_K, W_V):
    """The number of words."""
    queries, keys, values = x @ W_Q, x @ W_K, x @ W_V
    weights = (queries @ keys.mT / math.sqrt(keys.shape[1])).softmax(dim=-1)
    return weights @ values, weights


@self_attention.misconception("reshaped for transposed", fails=("weights",))
def _(x, W_Q, W_K, W_V):
    """`reshape` and `view` read the same numbers in the same order and only break the rows elsewhere, so a column then
    holds pieces of several keys. The shape fits and the numbers do not. Swap the two axes instead."""
    queries, keys, values = x @ W_Q, x @ W_K, x @ W_V
    batch, n, d_k = keys.shape
    weights = (queries @ keys.reshape(batch, d_k, n) / math.sqrt(d_k)).softmax(dim=-1)
    return weights @ values, weights


@self_attention.misconception("sums over the words that ask", fails=("output",))
def _(x, W_Q, W_K, W_V):
    """The table of weights was used transposed: each output added up what its word *gave* to the others. Those numbers
    need not sum to one. Row i of the weights is what word i asked for."""
    queries, keys, values = x @ W_Q, x @ W_K, x @ W_V
    weights = (queries @ keys.mT / math.sqrt(W_K.shape[1])).softmax(dim=-1)
    return weights.mT @ values, weights


@self_attention.misconception("words for values", fails=("output", "each sentence by itself", "gradient"))
def _(x, W_Q, W_K, W_V):
    """Something other than the values was averaged: the words themselves, or the keys, or the queries. What a word
    hands over is a third role, with a matrix of its own, and d_v wide."""
    queries, keys = x @ W_Q, x @ W_K
    weights = (queries @ keys.mT / math.sqrt(W_K.shape[1])).softmax(dim=-1)
    return weights @ x, weights


@self_attention.variant("words for values", fails=("output", "each sentence by itself", "gradient"))
def _(x, W_Q, W_K, W_V):
    """The keys."""
    queries, keys = x @ W_Q, x @ W_K
    weights = (queries @ keys.mT / math.sqrt(W_K.shape[1])).softmax(dim=-1)
    return weights @ keys, weights


@self_attention.misconception("scores for weights", fails=("weights",))
def _(x, W_Q, W_K, W_V):
    """What came back as weights are scores, from before the softmax: their rows do not sum to one. Whoever draws the
    picture of who looked at whom needs the weights."""
    queries, keys, values = x @ W_Q, x @ W_K, x @ W_V
    scores = queries @ keys.mT / math.sqrt(W_K.shape[1])
    return scores.softmax(dim=-1) @ values, scores


@self_attention.misconception("only the words before", fails=("weights",))
def _(x, W_Q, W_K, W_V):
    """Every word looked at itself and at those before it only. That is what a decoder does while it writes (lecture
    06). Here the whole sentence is there, and a word looks in both directions."""
    queries, keys, values = x @ W_Q, x @ W_K, x @ W_V
    scores = queries @ keys.mT / math.sqrt(W_K.shape[1])
    future = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).triu(1)
    weights = scores.masked_fill(future, -torch.inf).softmax(dim=-1)
    return weights @ values, weights


@self_attention.misconception(
    "the two in the wrong order", fails=("weights", "output", "each sentence by itself", "gradient")
)
def _(x, W_Q, W_K, W_V):
    """The weights came first and the output second. The contract has the output first: it is what the next layer
    reads."""
    queries, keys, values = x @ W_Q, x @ W_K, x @ W_V
    weights = (queries @ keys.mT / math.sqrt(W_K.shape[1])).softmax(dim=-1)
    return weights, weights @ values


@self_attention.misconception("cut off from the gradient", fails=("gradient",))
def _(x, W_Q, W_K, W_V):
    """The numbers are right, but the gradient does not get through: `.detach()`, `.data`, numpy and `torch.no_grad()`
    forget where numbers came from. Where to look must be learned, and so must what to offer and what to hand over."""
    queries, keys, values = x @ W_Q, x @ W_K, x @ W_V
    weights = (queries @ keys.mT / math.sqrt(W_K.shape[1])).softmax(dim=-1)
    return weights.detach() @ values, weights


@self_attention.variant("cut off from the gradient", fails=("gradient",))
def _(x, W_Q, W_K, W_V):
    """At the end."""
    queries, keys, values = x @ W_Q, x @ W_K, x @ W_V
    weights = (queries @ keys.mT / math.sqrt(W_K.shape[1])).softmax(dim=-1)
    return (weights @ values).detach(), weights


@self_attention.misconception("all but itself", fails=("weights",))
def _(x, W_Q, W_K, W_V):
    """A word was kept from looking at itself. It is a word of its sentence like any other, and its own value may be
    what it needs."""
    queries, keys, values = x @ W_Q, x @ W_K, x @ W_V
    scores = queries @ keys.mT / math.sqrt(W_K.shape[1])
    weights = scores.masked_fill(torch.eye(x.shape[1], dtype=torch.bool), -torch.inf).softmax(dim=-1)
    return weights @ values, weights


@self_attention.misconception(
    "matrices for columns", fails=("weights", "output", "each sentence by itself", "gradient")
)
def _(x, W_Q, W_K, W_V):
    """The product does not fit, because the matrix is transposed, or stands on the wrong side of the words. Some slides
    write q = Qx, with words as columns. Here a word is a row with d_model numbers, and W_Q has d_model rows. Which
    order of the two has d_model in the middle?"""
    queries, keys, values = x @ W_Q.T, x @ W_K.T, x @ W_V.T
    weights = (queries @ keys.mT / math.sqrt(W_K.shape[1])).softmax(dim=-1)
    return weights @ values, weights


@self_attention.variant(
    "matrices for columns", fails=("weights", "output", "each sentence by itself", "gradient")
)
def _(x, W_Q, W_K, W_V):
    """On the left."""
    queries, keys, values = W_Q @ x, W_K @ x, W_V @ x
    weights = (queries @ keys.mT / math.sqrt(W_K.shape[1])).softmax(dim=-1)
    return weights @ values, weights


@self_attention.variant("not scaled", "keys ask, queries answer", fails=("weights",))
def _(x, W_Q, W_K, W_V):
    """Both."""
    queries, keys, values = x @ W_Q, x @ W_K, x @ W_V
    weights = (keys @ queries.mT).softmax(dim=-1)
    return weights @ values, weights


@self_attention.variant("not scaled", "softmax over the words that ask", fails=("weights",))
def _(x, W_Q, W_K, W_V):
    """Both."""
    queries, keys, values = x @ W_Q, x @ W_K, x @ W_V
    weights = (queries @ keys.mT).softmax(dim=-2)
    return weights @ values, weights


@self_attention.alternative("einsum")
def _(x, W_Q, W_K, W_V):
    """Names the axes."""
    queries, keys, values = (torch.einsum("bnd,de->bne", x, W) for W in (W_Q, W_K, W_V))
    weights = torch.softmax(torch.einsum("bik,bjk->bij", queries, keys) / keys.shape[-1] ** 0.5, dim=-1)
    return torch.einsum("bij,bjv->biv", weights, values), weights


@self_attention.alternative("one sentence and one word at a time")
def _(x, W_Q, W_K, W_V):
    """Loops over the batch and over the words that ask."""
    tables = []
    for sentence in x:
        keys = sentence @ W_K
        rows = [(keys @ (word @ W_Q) / math.sqrt(W_K.shape[1])).softmax(dim=0) for word in sentence]
        tables.append(torch.stack(rows))
    weights = torch.stack(tables)
    return torch.bmm(weights, x @ W_V), weights


@self_attention.alternative("one product for all three projections, float64")
def _(x, W_Q, W_K, W_V):
    """Joins the matrices, projects once, and cuts the result apart."""
    d_k = W_K.shape[1]
    joined = x.double() @ torch.cat([W_Q, W_K, W_V], dim=1).double()
    queries, keys, values = joined.split([d_k, d_k, W_V.shape[1]], dim=-1)
    scores = queries @ keys.transpose(-2, -1) / math.sqrt(d_k)
    weights = (scores - scores.logsumexp(dim=-1, keepdim=True)).exp()
    return weights @ values, weights


@self_attention.alternative("columns, not contiguous")
def _(x, W_Q, W_K, W_V):
    """Every sentence is transposed, words are columns, and the results are views."""
    columns = x.mT
    queries, keys, values = (W.T @ columns for W in (W_Q, W_K, W_V))
    exponentials = (keys.mT @ queries / math.sqrt(keys.shape[1])).exp()
    weights = exponentials / exponentials.sum(dim=1, keepdim=True)
    return [(values @ weights).mT, weights.mT]


# ---------------------------------------------------------------------------------------------------------- layer_cost

layer_cost = Exercise(
    "layer_cost",
    reference=sizes.layer_cost,
    returns=("multiply_adds", "sequential_steps", "path_length"),
    forbidden=("attncourse.sizes",),
    difficulty=2,
    minutes=20,
    numbers=True,
    hints=(
        "A product of an (a, b) matrix with a (b, c) matrix takes a · b · c multiply-adds. Write down every product of "
        "the layer with its three sizes, and add up.",
        "Self-attention has five products: three projections, the scores, the average. In the restricted kind a word "
        "meets min(2 · width + 1, n) words in place of n. The recurrent cell has two products a step.",
        "Path: in one layer a window carries a signal `width` positions on. How many layers until it has come from "
        "the first position to the last, n − 1 away? Round up: even a single position takes one layer.",
    ),
)

WINDOWED = ("restricted", "convolution")
COLUMNS = ("multiply_adds", "sequential_steps", "path_length")


def _costs(answer, column, calls):
    """A row for each call: its sizes, which are there for the message, and one of the three numbers that came back."""
    rows = []
    for kind, n, d, *width in calls:
        value = answer(kind, n, d, *width)[column]
        known = torch.tensor([sizes.LAYER_KINDS.index(kind), n, d, *(width or [0])], dtype=torch.float64)
        rows.append(torch.cat([known, value.to(torch.float64).reshape(1)]))
    return torch.stack(rows)


def _call(column):
    """Puts the first wrong row into words, as a call that the learner can repeat."""

    def explain(got, expected):
        row = next(i for i, (a, b) in enumerate(zip(got, expected, strict=True)) if abs(a[-1] - b[-1]) > 1e-4 * b[-1])
        kind, n, d, width = (int(value) for value in expected[row][:-1])
        arguments = f'"{sizes.LAYER_KINDS[kind]}", {n}, {d}' + (f", {width}" if width else "")
        return f"layer_cost({arguments}): {COLUMNS[column]} is {got[row][-1]:g}, expected {expected[row][-1]:g}"

    return explain


@layer_cost.aspect("self-attention", points=2, explain=_call(0))
def _(answer, draw):
    """projections, scores and average, each counted once"""
    n, d = draw.sizes(2, 3, 20)
    return _costs(answer, 0, [("self-attention", n, d), ("self-attention", d, n)])


@layer_cost.aspect("recurrent", points=1, explain=_call(0))
def _(answer, draw):
    """two matrices at every step"""
    n, d = draw.sizes(2, 3, 20)
    return _costs(answer, 0, [("recurrent", n, d), ("recurrent", d, n)])


@layer_cost.aspect("windows", points=2, explain=_call(0))
def _(answer, draw):
    """2 · width + 1 positions are met, in place of n"""
    n, d, width = 10 + draw.sizes(1, 0, 6)[0], draw.sizes(1, 5, 8)[0], draw.sizes(1, 2, 4)[0]
    return _costs(answer, 0, [(kind, n, d, width) for kind in WINDOWED])


@layer_cost.aspect("a window wider than the sequence", points=1, explain=_call(0))
def _(answer, draw):
    """nobody meets more positions than there are"""
    d, width = draw.sizes(1, 9, 12)[0], draw.sizes(1, 3, 6)[0]
    return _costs(answer, 0, [(kind, width + 2, d, width) for kind in WINDOWED])


@layer_cost.aspect("sequential steps", points=1, explain=_call(1))
def _(answer, draw):
    """what must wait for what"""
    n, d, width = 10 + draw.sizes(1, 0, 6)[0], draw.sizes(1, 5, 8)[0], draw.sizes(1, 2, 4)[0]
    return _costs(answer, 1, [(kind, n, d, *([width] if kind in WINDOWED else [])) for kind in sizes.LAYER_KINDS])


@layer_cost.aspect("path length", points=2, explain=_call(2))
def _(answer, draw):
    """cells or layers between the two positions that are furthest apart"""
    width = draw.sizes(1, 3, 5)[0]
    calls: list[tuple] = [("self-attention", 9, 4), ("recurrent", 7 + width, 4)]
    for kind in WINDOWED:
        calls += [(kind, n, 4, width) for n in (5 * width, 5 * width + 1, 5 * width + 2, width + 1, 1)]
    return _costs(answer, 2, calls)


@layer_cost.misconception("no projections", fails=("self-attention", "windows", "a window wider than the sequence"))
def _(kind, n, d, width=None):
    """Only the pairs were counted, n² of them. That is how the well-known table has it; but before two words can meet,
    each is multiplied by three d × d matrices, and in short sentences that is the larger part."""
    met = n if width is None else min(2 * width + 1, n)
    path = 1 if width is None else max(1, math.ceil((n - 1) / width))
    if kind == "recurrent":
        return 2 * n * d**2, n, n
    if kind == "convolution":
        return n * met * d**2, 1, path
    return 2 * n * met * d, 1, path


@layer_cost.variant("no projections", fails=("self-attention", "windows", "a window wider than the sequence"))
def _(kind, n, d, width=None):
    """As in the table, n² d."""
    met = n if width is None else min(2 * width + 1, n)
    path = 1 if width is None else max(1, math.ceil((n - 1) / width))
    if kind == "recurrent":
        return 2 * n * d**2, n, n
    if kind == "convolution":
        return n * met * d**2, 1, path
    return n * met * d, 1, path


@layer_cost.misconception(
    "scores without the average", fails=("self-attention", "windows", "a window wider than the sequence")
)
def _(kind, n, d, width=None):
    """Every pair is met twice: once for its score, q · k, and once when the value is added to the average. Each of the
    two takes d multiply-adds."""
    met = n if width is None else min(2 * width + 1, n)
    path = 1 if width is None else max(1, math.ceil((n - 1) / width))
    if kind == "recurrent":
        return 2 * n * d**2, n, n
    if kind == "convolution":
        return n * met * d**2, 1, path
    return 3 * n * d**2 + n * met * d, 1, path


@layer_cost.misconception(
    "an output projection too", fails=("self-attention", "windows", "a window wider than the sequence")
)
def _(kind, n, d, width=None):
    """Four projections were counted. The fourth, from the average back to d, comes with several heads (lecture 07); the
    layer of this lecture has three."""
    met = n if width is None else min(2 * width + 1, n)
    path = 1 if width is None else max(1, math.ceil((n - 1) / width))
    if kind == "recurrent":
        return 2 * n * d**2, n, n
    if kind == "convolution":
        return n * met * d**2, 1, path
    return 4 * n * d**2 + 2 * n * met * d, 1, path


@layer_cost.misconception(
    "one projection in place of three", fails=("self-attention", "windows", "a window wider than the sequence")
)
def _(kind, n, d, width=None):
    """Only one projection was counted. A word has three roles, query, key and value, and is multiplied by a d × d
    matrix for each."""
    met = n if width is None else min(2 * width + 1, n)
    path = 1 if width is None else max(1, math.ceil((n - 1) / width))
    if kind == "recurrent":
        return 2 * n * d**2, n, n
    if kind == "convolution":
        return n * met * d**2, 1, path
    return n * d**2 + 2 * n * met * d, 1, path


@layer_cost.misconception(
    "FLOPs for multiply-adds", fails=("self-attention", "recurrent", "windows", "a window wider than the sequence")
)
def _(kind, n, d, width=None):
    """These are twice the multiply-adds: a multiplication and an addition counted as one operation each, as FLOPs are.
    The contract counts the two together as one."""
    met = n if width is None else min(2 * width + 1, n)
    path = 1 if width is None else max(1, math.ceil((n - 1) / width))
    if kind == "recurrent":
        return 4 * n * d**2, n, n
    if kind == "convolution":
        return 2 * n * met * d**2, 1, path
    return 6 * n * d**2 + 4 * n * met * d, 1, path


@layer_cost.misconception(
    "n and d swapped", fails=("self-attention", "recurrent", "windows", "a window wider than the sequence")
)
def _(kind, n, d, width=None):
    """The sequence's length and the vectors' width have changed places. n counts positions: there are n² pairs of them.
    d is how many numbers a position has: a projection is a d × d matrix."""
    met = n if width is None else min(2 * width + 1, n)
    path = 1 if width is None else max(1, math.ceil((n - 1) / width))
    if kind == "recurrent":
        return 2 * d * n**2, n, n
    if kind == "convolution":
        return d * met * n**2, 1, path
    return 3 * d * n**2 + 2 * d * (d if width is None else met) * n, 1, path


@layer_cost.misconception("one matrix in the cell", fails=("recurrent",))
def _(kind, n, d, width=None):
    """A recurrent cell multiplies twice at every step: the input by W and the state by U. Only one of them was
    counted."""
    met = n if width is None else min(2 * width + 1, n)
    path = 1 if width is None else max(1, math.ceil((n - 1) / width))
    if kind == "recurrent":
        return n * d**2, n, n
    if kind == "convolution":
        return n * met * d**2, 1, path
    return 3 * n * d**2 + 2 * n * met * d, 1, path


@layer_cost.variant(
    "no projections",
    "one matrix in the cell",
    fails=("self-attention", "recurrent", "windows", "a window wider than the sequence"),
)
def _(kind, n, d, width=None):
    """The table's orders of growth throughout."""
    met = n if width is None else min(2 * width + 1, n)
    path = 1 if width is None else max(1, math.ceil((n - 1) / width))
    if kind == "recurrent":
        return n * d**2, n, n
    if kind == "convolution":
        return n * met * d**2, 1, path
    return n * met * d, 1, path


@layer_cost.misconception("one step of the cell", fails=("recurrent",))
def _(kind, n, d, width=None):
    """That is one step. The layer reads all n positions, and pays for its matrices at each of them."""
    met = n if width is None else min(2 * width + 1, n)
    path = 1 if width is None else max(1, math.ceil((n - 1) / width))
    if kind == "recurrent":
        return 2 * d**2, n, n
    if kind == "convolution":
        return n * met * d**2, 1, path
    return 3 * n * d**2 + 2 * n * met * d, 1, path


@layer_cost.misconception("one side of the window", fails=("windows", "a window wider than the sequence"))
def _(kind, n, d, width=None):
    """The window was counted as `width` or `width` + 1 positions wide. It reaches `width` to the left, `width` to the
    right, and has the position itself in the middle."""
    met = n if width is None else min(width, n)
    path = 1 if width is None else max(1, math.ceil((n - 1) / width))
    if kind == "recurrent":
        return 2 * n * d**2, n, n
    if kind == "convolution":
        return n * met * d**2, 1, path
    return 3 * n * d**2 + 2 * n * met * d, 1, path


@layer_cost.variant("one side of the window", fails=("windows", "a window wider than the sequence"))
def _(kind, n, d, width=None):
    """And the position itself."""
    met = n if width is None else min(width + 1, n)
    path = 1 if width is None else max(1, math.ceil((n - 1) / width))
    if kind == "recurrent":
        return 2 * n * d**2, n, n
    if kind == "convolution":
        return n * met * d**2, 1, path
    return 3 * n * d**2 + 2 * n * met * d, 1, path


@layer_cost.misconception("the middle of the window left out", fails=("windows",))
def _(kind, n, d, width=None):
    """2 · `width` counts the neighbours on both sides. The position in the middle belongs to its own window."""
    met = n if width is None else min(2 * width, n)
    path = 1 if width is None else max(1, math.ceil((n - 1) / width))
    if kind == "recurrent":
        return 2 * n * d**2, n, n
    if kind == "convolution":
        return n * met * d**2, 1, path
    return 3 * n * d**2 + 2 * n * met * d, 1, path


@layer_cost.misconception("more positions than there are", fails=("a window wider than the sequence",))
def _(kind, n, d, width=None):
    """In a short sequence the window is cut at the ends: no position can meet more than n."""
    met = n if width is None else 2 * width + 1
    path = 1 if width is None else max(1, math.ceil((n - 1) / width))
    if kind == "recurrent":
        return 2 * n * d**2, n, n
    if kind == "convolution":
        return n * met * d**2, 1, path
    return 3 * n * d**2 + 2 * n * met * d, 1, path


@layer_cost.misconception("a step for each word", fails=("sequential steps",))
def _(kind, n, d, width=None):
    """Every layer was given n sequential steps. A step is sequential if it has to wait for the one before. In attention
    and convolution no position waits for another's output: only in a loop like the one you wrote do they come one by
    one, and matrix products do them all at once."""
    met = n if width is None else min(2 * width + 1, n)
    path = 1 if width is None else max(1, math.ceil((n - 1) / width))
    if kind == "recurrent":
        return 2 * n * d**2, n, n
    if kind == "convolution":
        return n * met * d**2, n, path
    return 3 * n * d**2 + 2 * n * met * d, n, path


@layer_cost.misconception("the path for the steps", fails=("sequential steps",))
def _(kind, n, d, width=None):
    """A window needs several *layers* to carry a signal far, and that is its path length. Sequential steps are counted
    within one layer, where windows do not wait for each other."""
    met = n if width is None else min(2 * width + 1, n)
    path = 1 if width is None else max(1, math.ceil((n - 1) / width))
    if kind == "recurrent":
        return 2 * n * d**2, n, n
    if kind == "convolution":
        return n * met * d**2, path, path
    return 3 * n * d**2 + 2 * n * met * d, path, path


@layer_cost.misconception("one layer goes everywhere", fails=("path length",))
def _(kind, n, d, width=None):
    """With a window a signal gets only `width` positions further in each layer. From the first position to the last it
    takes several, stacked."""
    met = n if width is None else min(2 * width + 1, n)
    if kind == "recurrent":
        return 2 * n * d**2, n, n
    if kind == "convolution":
        return n * met * d**2, 1, 1
    return 3 * n * d**2 + 2 * n * met * d, 1, 1


@layer_cost.misconception("steps and path swapped", fails=("sequential steps", "path length"))
def _(kind, n, d, width=None):
    """The last two numbers have changed places. The contract has the sequential steps second and the path length
    third."""
    met = n if width is None else min(2 * width + 1, n)
    path = 1 if width is None else max(1, math.ceil((n - 1) / width))
    if kind == "recurrent":
        return 2 * n * d**2, n, n
    if kind == "convolution":
        return n * met * d**2, path, 1
    return 3 * n * d**2 + 2 * n * met * d, path, 1


@layer_cost.misconception("the logarithm of the table", fails=("path length",))
def _(kind, n, d, width=None):
    """The table's logarithm is for convolutions whose windows have gaps, wider from layer to layer. Here the places of
    a window are adjacent, and a signal gets only `width` positions further in each layer, as in restricted
    attention."""
    met = n if width is None else min(2 * width + 1, n)
    path = 1 if width is None else max(1, math.ceil((n - 1) / width))
    if kind == "recurrent":
        return 2 * n * d**2, n, n
    if kind == "convolution":
        return n * met * d**2, 1, math.ceil(math.log(n, 2 * width + 1))
    return 3 * n * d**2 + 2 * n * met * d, 1, path


@layer_cost.variant("the logarithm of the table", fails=("path length",))
def _(kind, n, d, width=None):
    """To the base of `width`."""
    met = n if width is None else min(2 * width + 1, n)
    path = 1 if width is None else max(1, math.ceil((n - 1) / width))
    if kind == "recurrent":
        return 2 * n * d**2, n, n
    if kind == "convolution":
        return n * met * d**2, 1, math.ceil(math.log(n, width))
    return 3 * n * d**2 + 2 * n * met * d, 1, path


@layer_cost.misconception("the whole window as a stride", fails=("path length",))
def _(kind, n, d, width=None):
    """The distance was divided by the size of the whole window. But a signal that starts in the middle of a window
    leaves it after `width` positions, not after 2 · `width` + 1: half of the window lies behind it."""
    met = n if width is None else min(2 * width + 1, n)
    path = 1 if width is None else max(1, math.ceil((n - 1) / (2 * width + 1)))
    if kind == "recurrent":
        return 2 * n * d**2, n, n
    if kind == "convolution":
        return n * met * d**2, 1, path
    return 3 * n * d**2 + 2 * n * met * d, 1, path


@layer_cost.variant("the whole window as a stride", fails=("path length",))
def _(kind, n, d, width=None):
    """From n."""
    met = n if width is None else min(2 * width + 1, n)
    path = 1 if width is None else math.ceil(n / (2 * width + 1))
    if kind == "recurrent":
        return 2 * n * d**2, n, n
    if kind == "convolution":
        return n * met * d**2, 1, path
    return 3 * n * d**2 + 2 * n * met * d, 1, path


@layer_cost.misconception("rounded the wrong way, or one position too far", fails=("path length",))
def _(kind, n, d, width=None):
    """The path through windows is off by one for some lengths. From the first position to the last it is n − 1
    positions, not n; and a last layer is needed even if only part of its reach is: try n = 4 and 5 with a width of 3 on
    paper."""
    met = n if width is None else min(2 * width + 1, n)
    path = 1 if width is None else max(1, (n - 1) // width)
    if kind == "recurrent":
        return 2 * n * d**2, n, n
    if kind == "convolution":
        return n * met * d**2, 1, path
    return 3 * n * d**2 + 2 * n * met * d, 1, path


@layer_cost.variant("rounded the wrong way, or one position too far", fails=("path length",))
def _(kind, n, d, width=None):
    """Counted from n, rounded up."""
    met = n if width is None else min(2 * width + 1, n)
    path = 1 if width is None else math.ceil(n / width)
    if kind == "recurrent":
        return 2 * n * d**2, n, n
    if kind == "convolution":
        return n * met * d**2, 1, path
    return 3 * n * d**2 + 2 * n * met * d, 1, path


@layer_cost.variant("rounded the wrong way, or one position too far", fails=("path length",))
def _(kind, n, d, width=None):
    """Counted from n, rounded down."""
    met = n if width is None else min(2 * width + 1, n)
    path = 1 if width is None else n // width
    if kind == "recurrent":
        return 2 * n * d**2, n, n
    if kind == "convolution":
        return n * met * d**2, 1, path
    return 3 * n * d**2 + 2 * n * met * d, 1, path


@layer_cost.variant("rounded the wrong way, or one position too far", fails=("path length",))
def _(kind, n, d, width=None):
    """Not rounded."""
    met = n if width is None else min(2 * width + 1, n)
    path = 1 if width is None else (n - 1) / width
    if kind == "recurrent":
        return 2 * n * d**2, n, n
    if kind == "convolution":
        return n * met * d**2, 1, path
    return 3 * n * d**2 + 2 * n * met * d, 1, path


@layer_cost.misconception("arrows counted, not cells", fails=("path length",))
def _(kind, n, d, width=None):
    """Between the n cells of a recurrence there are n − 1 arrows. The contract counts the cells that the signal passes
    through, the first and the last among them."""
    met = n if width is None else min(2 * width + 1, n)
    path = 1 if width is None else max(1, math.ceil((n - 1) / width))
    if kind == "recurrent":
        return 2 * n * d**2, n, n - 1
    if kind == "convolution":
        return n * met * d**2, 1, path
    return 3 * n * d**2 + 2 * n * met * d, 1, path


@layer_cost.misconception(
    "projections of one word", fails=("self-attention", "windows", "a window wider than the sequence")
)
def _(kind, n, d, width=None):
    """3 d² projects one word. All n words are projected, each by the three matrices."""
    met = n if width is None else min(2 * width + 1, n)
    path = 1 if width is None else max(1, math.ceil((n - 1) / width))
    if kind == "recurrent":
        return 2 * n * d**2, n, n
    if kind == "convolution":
        return n * met * d**2, 1, path
    return 3 * d**2 + 2 * n * met * d, 1, path


@layer_cost.misconception("the ends counted exactly", fails=("windows", "a window wider than the sequence"))
def _(kind, n, d, width=None):
    """At both ends of the sequence a part of the window hangs over, and you left that part out. This is the exact
    number of pairs, but the contract asks for full windows, as an implementation computes them, with padding at the
    ends."""
    pairs = n * n if width is None else sum(min(n, i + width + 1) - max(0, i - width) for i in range(n))
    path = 1 if width is None else max(1, math.ceil((n - 1) / width))
    if kind == "recurrent":
        return 2 * n * d**2, n, n
    if kind == "convolution":
        return pairs * d**2, 1, path
    return 3 * n * d**2 + 2 * pairs * d, 1, path


@layer_cost.variant("the whole window as a stride", fails=("path length",))
def _(kind, n, d, width=None):
    """Rounded down."""
    met = n if width is None else min(2 * width + 1, n)
    path = 1 if width is None else max(1, n // (2 * width + 1))
    if kind == "recurrent":
        return 2 * n * d**2, n, n
    if kind == "convolution":
        return n * met * d**2, 1, path
    return 3 * n * d**2 + 2 * n * met * d, 1, path


@layer_cost.alternative("one product after the other")
def _(kind, n, d, width=None):
    """Adds up a · b · c for every matrix product, and walks the path."""
    window = list(range(-width, width + 1))[:n] if width else range(n)
    products = {
        "self-attention": [(n, d, d)] * 3 + [(n, d, n), (n, n, d)],
        "restricted": [(n, d, d)] * 3 + [(n, d, len(window)), (n, len(window), d)],
        "recurrent": [(1, d, d), (1, d, d)] * n,
        "convolution": [(n, d, d) for _ in window],
    }[kind]
    position, layers = 0, 0
    while position < n - 1 or layers == 0:
        position += {"self-attention": n, "recurrent": 1}.get(kind, width)
        layers += 1
    steps = n if kind == "recurrent" else 1
    return sum(a * b * c for a, b, c in products), steps, n if kind == "recurrent" else layers


@layer_cost.alternative("numpy's numbers")
def _(kind, n, d, width=None):
    """Rounded and compared by numpy."""
    met = np.int64(n) if width is None else np.minimum(2 * width + 1, n)
    path = np.float32(1) if width is None else np.maximum(1, np.ceil((n - 1) / width))
    if kind == "recurrent":
        return 2 * n * d**2, n, n
    if kind == "convolution":
        return n * met * d**2, np.int64(1), path
    return 3 * n * d**2 + 2 * n * met * d, np.int64(1), path


@layer_cost.alternative("tensors and floats")
def _(kind, n, d, width=None):
    """Numbers as tensors, and a division that leaves a float."""
    met = torch.tensor(float(n if width is None else min(2 * width + 1, n)))
    path = torch.tensor(1.0 if width is None else max(1.0, -(-(n - 1) // width)))
    if kind == "recurrent":
        return torch.tensor(2.0 * n * d * d), torch.tensor(n), torch.tensor(n)
    adds = {"convolution": n * met * d * d}.get(kind, n * d * (3 * d + 2 * met))
    return [adds, 1.0, path]


# ------------------------------------------------------------------------------------------- restricted_self_attention


def _restricted(x, W_Q, W_K, W_V, width):
    """Self-attention in which a word sees `width` others on each side. Vaswani et al. 2017, section 4."""
    position = torch.arange(x.shape[-2])
    near = (position[:, None] - position).abs() <= width
    return attention.attend(x @ W_Q, x @ W_K, x @ W_V, near)


restricted_self_attention = Exercise(
    "restricted_self_attention",
    reference=_restricted,
    returns=("output", "weights"),
    forbidden=READY_MADE,
    difficulty=2,
    minutes=15,
    extra=True,
    hints=(
        "How far is word j from word i? That is a table (n, n), made from `torch.arange(n)` and broadcasting.",
        "The scores of words that are too far away become −∞, before the softmax, as padding did in assignment 03.",
    ),
)


def _near(answer, draw):
    """(output, weights, width) of sentences that are longer than the window."""
    batch, width = 2, 3 + draw.integers(2, 1).item()
    n = 2 * width + 1 + draw.sizes(1, 0, 2)[0]
    return *answer(*_sentences(draw, batch, n), width), width


@restricted_self_attention.aspect("weights", points=1, explain=row_sums)
def _(answer, draw):
    """each word shares out one among itself and `width` words on each side"""
    return _near(answer, draw)[1]


@restricted_self_attention.aspect("output", points=1)
def _(answer, draw):
    """the average of the values in the window"""
    return _near(answer, draw)[0]


@restricted_self_attention.aspect(
    "out of reach", points=1, explain=told("output {place} changes by {size} when only words outside its window change")
)
def _(answer, draw):
    """the first word's output does not know the words beyond its window"""
    width = 1 + draw.integers(3, 1).item()
    x, *projections = _sentences(draw, 2, width + 4)
    other = x.clone()
    other[:, width + 1 :] = 3 * draw.normal(*x[:, width + 1 :].shape)
    before, after = (answer(words, *projections, width)[0] for words in (x, other))
    return telling(before)[:, 0] - after[:, 0]


FAR = ("weights", "output", "out of reach")


@restricted_self_attention.misconception("everybody sees everybody", fails=FAR)
def _(x, W_Q, W_K, W_V, width):
    """No word was out of reach: this is plain self-attention, and `width` was not used."""
    queries, keys, values = x @ W_Q, x @ W_K, x @ W_V
    weights = (queries @ keys.mT / math.sqrt(W_K.shape[1])).softmax(dim=-1)
    return weights @ values, weights


@restricted_self_attention.misconception("the near ones silenced", fails=FAR)
def _(x, W_Q, W_K, W_V, width):
    """The window was masked out and the rest was left. Fill with −∞ where a word is *too far away*."""
    queries, keys, values = x @ W_Q, x @ W_K, x @ W_V
    position = torch.arange(x.shape[1])
    near = (position[:, None] - position).abs() <= width
    scores = queries @ keys.mT / math.sqrt(W_K.shape[1])
    weights = scores.masked_fill(near, -torch.inf).softmax(dim=-1)
    return weights @ values, weights


@restricted_self_attention.misconception("one word short", fails=("weights", "output"))
def _(x, W_Q, W_K, W_V, width):
    """The window ends one word too early: a word exactly `width` away still belongs to it."""
    queries, keys, values = x @ W_Q, x @ W_K, x @ W_V
    position = torch.arange(x.shape[1])
    near = (position[:, None] - position).abs() < width
    scores = queries @ keys.mT / math.sqrt(W_K.shape[1])
    weights = scores.masked_fill(~near, -torch.inf).softmax(dim=-1)
    return weights @ values, weights


@restricted_self_attention.misconception("one word too many", fails=FAR)
def _(x, W_Q, W_K, W_V, width):
    """The window ends one word too late: `width` words on each side, and no more."""
    queries, keys, values = x @ W_Q, x @ W_K, x @ W_V
    position = torch.arange(x.shape[1])
    near = (position[:, None] - position).abs() <= width + 1
    scores = queries @ keys.mT / math.sqrt(W_K.shape[1])
    weights = scores.masked_fill(~near, -torch.inf).softmax(dim=-1)
    return weights @ values, weights


@restricted_self_attention.misconception("one side only", fails=("weights", "output"))
def _(x, W_Q, W_K, W_V, width):
    """The distance was taken with its sign, so one side of the window is cut off (or not cut at all). Near is near in
    both directions: look at the distance without its sign."""
    queries, keys, values = x @ W_Q, x @ W_K, x @ W_V
    position = torch.arange(x.shape[1])
    behind = position[:, None] - position
    scores = queries @ keys.mT / math.sqrt(W_K.shape[1])
    weights = scores.masked_fill((behind < 0) | (behind > width), -torch.inf).softmax(dim=-1)
    return weights @ values, weights


@restricted_self_attention.variant("one side only", fails=FAR)
def _(x, W_Q, W_K, W_V, width):
    """No limit on the other side."""
    queries, keys, values = x @ W_Q, x @ W_K, x @ W_V
    position = torch.arange(x.shape[1])
    scores = queries @ keys.mT / math.sqrt(W_K.shape[1])
    weights = scores.masked_fill(position[:, None] - position > width, -torch.inf).softmax(dim=-1)
    return weights @ values, weights


@restricted_self_attention.variant("one side only", fails=("weights", "output"))
def _(x, W_Q, W_K, W_V, width):
    """No limit on this side."""
    queries, keys, values = x @ W_Q, x @ W_K, x @ W_V
    position = torch.arange(x.shape[1])
    scores = queries @ keys.mT / math.sqrt(W_K.shape[1])
    weights = scores.masked_fill(position - position[:, None] > width, -torch.inf).softmax(dim=-1)
    return weights @ values, weights


@restricted_self_attention.misconception("zeros after the softmax", fails=("weights", "output", "out of reach"))
def _(x, W_Q, W_K, W_V, width):
    """The weights outside the window were set to 0, so what is left no longer sums to one, and the far words still
    decide how much is left. Mask the scores, then normalise."""
    queries, keys, values = x @ W_Q, x @ W_K, x @ W_V
    position = torch.arange(x.shape[1])
    near = (position[:, None] - position).abs() <= width
    weights = (queries @ keys.mT / math.sqrt(W_K.shape[1])).softmax(dim=-1) * near
    return weights @ values, weights


@restricted_self_attention.misconception("a score of 0 for the far ones", fails=FAR)
def _(x, W_Q, W_K, W_V, width):
    """A score of 0 is not "no attention": softmax turns it into e⁰ = 1. The score that becomes a weight of exactly 0 is
    −∞."""
    queries, keys, values = x @ W_Q, x @ W_K, x @ W_V
    position = torch.arange(x.shape[1])
    near = (position[:, None] - position).abs() <= width
    weights = (queries @ keys.mT / math.sqrt(W_K.shape[1]) * near).softmax(dim=-1)
    return weights @ values, weights


@restricted_self_attention.misconception("`width` shared by both sides", fails=("weights", "output"))
def _(x, W_Q, W_K, W_V, width):
    """The window is half as large as it should be: `width` words on *each* side, so 2 · `width` + 1 with the word
    itself."""
    queries, keys, values = x @ W_Q, x @ W_K, x @ W_V
    position = torch.arange(x.shape[1])
    near = (position[:, None] - position).abs() <= width // 2
    scores = queries @ keys.mT / math.sqrt(W_K.shape[1])
    weights = scores.masked_fill(~near, -torch.inf).softmax(dim=-1)
    return weights @ values, weights


@restricted_self_attention.misconception("all but itself", fails=("weights", "output"))
def _(x, W_Q, W_K, W_V, width):
    """A word was kept from looking at itself. It stands in the middle of its own window."""
    queries, keys, values = x @ W_Q, x @ W_K, x @ W_V
    position = torch.arange(x.shape[1])
    distance = (position[:, None] - position).abs()
    scores = queries @ keys.mT / math.sqrt(W_K.shape[1])
    weights = scores.masked_fill((distance > width) | (distance == 0), -torch.inf).softmax(dim=-1)
    return weights @ values, weights


@restricted_self_attention.alternative("a band of two triangles")
def _(x, W_Q, W_K, W_V, width):
    """`tril` and `triu` cut the band out of a table of ones."""
    n = x.shape[-2]
    band = torch.ones(n, n, dtype=torch.bool).tril(width).triu(-width)
    scores = torch.einsum("bik,bjk->bij", x @ W_Q, x @ W_K) * W_K.shape[-1] ** -0.5
    weights = torch.where(band, scores, float("-inf")).softmax(-1)
    return weights @ (x @ W_V), weights


@restricted_self_attention.alternative("word by word, float64")
def _(x, W_Q, W_K, W_V, width):
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
