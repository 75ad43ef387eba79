"""Assignment 02: attention is a lookup.

Function bodies below stand in for a learner's: they use torch alone, and the argument names of the contract.
"""

import math

import torch
from torch import nn

from attncourse import attention
from attncourse.exercises.core import Exercise
from attncourse.exercises.judge import arrives, row_sums, told
from attncourse.exercises.observe import gradients, telling

READY_MADE = (
    "attncourse.attention",
    "torch.nn.functional.scaled_dot_product_attention",
    "torch.nn.MultiheadAttention",
)

# --------------------------------------------------------------------------------------------------------- hard_lookup


def _hard_lookup(query, keys, values):
    """The value whose key has the largest dot product with the query, for each query."""
    return values[(query @ keys.mT).argmax(dim=-1)]


hard_lookup = Exercise(
    "hard_lookup",
    reference=_hard_lookup,
    returns=("found",),
    forbidden=READY_MADE,
    difficulty=1,
    minutes=8,
    hints=(
        "First the table of scores, (n_query, n_keys): one dot product for each query and key. Then one place in each "
        "of its rows.",
        "`argmax` along an axis gives the place of the largest number along it. Along which axis do the keys lie?",
        "A tensor can be indexed by a tensor of places: `values[best]` takes one row of `values` for each of them.",
    ),
)


@hard_lookup.aspect("values", points=2)
def _(answer, draw):
    """each query gets the value of the key that matches it best"""
    n_query, n_keys, d_k, d_v = draw.sizes(4, 3, 9)
    keys = nn.functional.normalize(draw.normal(n_keys, d_k), dim=-1)  # of one length: any sensible match agrees
    return answer(draw.normal(n_query, d_k), keys, draw.normal(n_keys, d_v))


@hard_lookup.aspect("keys of unequal length", points=1)
def _(answer, draw):
    """the match is the dot product, so a long key counts for more"""
    n_keys, d_k, d_v = draw.sizes(3, 5, 9)
    lengths = torch.linspace(0.2, 5, n_keys)[:, None]
    keys = lengths * nn.functional.normalize(draw.normal(n_keys, d_k), dim=-1)
    return answer(draw.normal(16, d_k), keys, draw.normal(n_keys, d_v))


@hard_lookup.aspect("one query", points=1)
def _(answer, draw):
    """works when there is one query, too"""
    n_keys, d_k, d_v = draw.sizes(3, 3, 9)
    keys = nn.functional.normalize(draw.normal(n_keys, d_k), dim=-1)
    return answer(draw.normal(1, d_k), keys, draw.normal(n_keys, d_v))


ALL_HARD = ("values", "keys of unequal length", "one query")


@hard_lookup.misconception("the nearest key", fails=("keys of unequal length",))
def _(query, keys, values):
    """This finds the key at the smallest distance. The dot product is another measure: of two keys in the same
    direction it prefers the longer one, even if the query lies nearer to the shorter. Where all keys are equally long
    the two agree, so only some of your answers are off."""
    return values[torch.cdist(query, keys).argmin(dim=-1)]


@hard_lookup.misconception("by the angle alone", fails=("keys of unequal length",))
def _(query, keys, values):
    """The keys were brought to length one first, so only their direction counted (cosine similarity). That is a
    reasonable score, but the dot product that is asked for lets a longer key count for more: leave the keys as they
    come."""
    directions = keys / keys.norm(dim=-1, keepdim=True)
    return values[(query @ directions.mT).argmax(dim=-1)]


@hard_lookup.misconception("best query for each key", fails=ALL_HARD)
def _(query, keys, values):
    """The maximum was taken over the queries: it says, for each key, which query likes it best. It is the query that
    asks. Each row of the table of scores belongs to one query; look for the best place along the row."""
    return values[(query @ keys.mT).argmax(dim=0)]


@hard_lookup.variant("best query for each key", fails=ALL_HARD)
def _(query, keys, values):
    """From a table that lies on its side."""
    return values[(keys @ query.mT).argmax(dim=-1)]


@hard_lookup.misconception("one answer for all", fails=ALL_HARD)
def _(query, keys, values):
    """`argmax()` without an axis looks for the largest number of the whole table and says where it would stand if the
    table were one long row. Every query needs an answer of its own: name the axis along which the keys lie."""
    return values[(query @ keys.mT).argmax()]


@hard_lookup.misconception("the key itself", fails=ALL_HARD)
def _(query, keys, values):
    """This gives back the key that matched. The key is only what is compared; what a lookup returns is the value that
    is stored beside it, and that may have another width."""
    return keys[(query @ keys.mT).argmax(dim=-1)]


@hard_lookup.misconception("the place, not the value", fails=ALL_HARD)
def _(query, keys, values):
    """These are the numbers of the rows where the matches stand. One more step: take from `values` what stands
    there."""
    return (query @ keys.mT).argmax(dim=-1)


@hard_lookup.misconception("the score, not the value", fails=ALL_HARD)
def _(query, keys, values):
    """These are the largest scores: how well the best key matches, not what is stored beside it. Ask for the place of
    the largest score, and take from `values` what stands there."""
    return (query @ keys.mT).amax(dim=-1)


@hard_lookup.misconception("the worst match", fails=ALL_HARD)
def _(query, keys, values):
    """The smallest dot product was chosen. A dot product is a likeness, not a distance: the larger, the better the
    match."""
    return values[(query @ keys.mT).argmin(dim=-1)]


@hard_lookup.misconception("multiplied by the score", fails=ALL_HARD)
def _(query, keys, values):
    """The value was found and then multiplied by its score. The score has done its work once the best key is known:
    return the value as it was stored."""
    best = (query @ keys.mT).max(dim=-1)
    return best.values[:, None] * values[best.indices]


@hard_lookup.misconception("a soft lookup", fails=ALL_HARD)
def _(query, keys, values):
    """This is an average of all values: the next exercise. A hard lookup takes one value and leaves the others
    alone."""
    return (query @ keys.mT).softmax(dim=-1) @ values


@hard_lookup.misconception("squeezed axes", fails=("one query",))
def _(query, keys, values):
    """`squeeze()` removes every axis of length one, even that of the queries when there happens to be only one query.
    Keep the axis: one query gets a table of one row."""
    return values[(query @ keys.mT).argmax(dim=-1)].squeeze()


@hard_lookup.variant("squeezed axes", fails=("one query",))
def _(query, keys, values):
    """Before the index is used."""
    return values[(query @ keys.mT).squeeze().argmax(dim=-1)]


@hard_lookup.alternative("a weight of one")
def _(query, keys, values):
    """Says with a table of zeros and ones which value is meant."""
    best = (query @ keys.mT).argmax(dim=-1)
    return nn.functional.one_hot(best, len(keys)).float() @ values


@hard_lookup.alternative("two loops")
def _(query, keys, values):
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


@hard_lookup.alternative("einsum and gather, float64")
def _(query, keys, values):
    """Names the axes, in double precision, and gathers rows."""
    best = torch.einsum("qd,kd->qk", query.double(), keys.double()).topk(1, dim=-1).indices
    return values.double().gather(0, best.expand(-1, values.shape[-1]))


@hard_lookup.alternative("sorted, not contiguous")
def _(query, keys, values):
    """Sorts the keys by score and takes the first, from values that lie on their side."""
    best = (keys @ query.mT).argsort(dim=0, descending=True)[0]
    return values.mT.contiguous()[:, best].mT


# --------------------------------------------------------------------------------------------------------- soft_lookup


def _soft_lookup(query, keys, values, temperature):
    """The average of the values, weighted by softmax of the dot products over the temperature; and the weights."""
    weights = (query @ keys.mT / temperature).softmax(dim=-1)
    return weights @ values, weights


soft_lookup = Exercise(
    "soft_lookup",
    reference=_soft_lookup,
    returns=("output", "weights"),
    forbidden=READY_MADE,
    difficulty=2,
    minutes=15,
    hints=(
        "Three lines: scores, weights, average. Write the shape of each beside it.",
        "Each query shares out one unit over the keys. Which axis of the scores runs over the keys? The temperature is "
        "applied to the scores, before they are turned into shares.",
        "The average is a matrix product: (n_query, n_keys) times (n_keys, d_v).",
    ),
)


def _a_table(draw):
    n_query, n_keys, d_k, d_v = draw.sizes(4, 3, 9)
    return draw.normal(n_query, d_k), draw.normal(n_keys, d_k), draw.normal(n_keys, d_v)


@soft_lookup.aspect("weights", points=2, explain=row_sums)
def _(answer, draw):
    """each query shares out exactly one over the keys"""
    _, weights = answer(*_a_table(draw), 1.0)
    return weights


@soft_lookup.aspect(
    "output",
    points=2,
    explain=told("at {place} it is {size} away from the values averaged by the weights that you returned"),
)
def _(answer, draw):
    """the average of the values by these weights"""
    query, keys, values = _a_table(draw)
    output, weights = answer(query, keys, values, 1.0)
    return telling(output).double() - telling(weights).double() @ values.double()


@soft_lookup.aspect("temperature", points=1)
def _(answer, draw):
    """the higher the temperature, the more equal the shares"""
    query, keys, values = _a_table(draw)
    _, cool = answer(query, keys, values, 0.4 + 0.2 * draw.uniform(1).item())
    _, warm = answer(query, keys, values, 2 + draw.uniform(1).item())
    return torch.stack([cool, warm])


@soft_lookup.aspect("very cold", points=1)
def _(answer, draw):
    """no overflow near temperature 0: all goes to the best match, and two equally good ones share it"""
    n, d_v = draw.sizes(2, 4, 8)
    ramps = torch.stack([torch.randperm(n, generator=draw.generator) for _ in range(3)])
    query = 8.0 * ramps + 32.0 * torch.arange(3)[:, None]  # (3, n)  its scores, in steps of 8 that no rounding blurs
    keys = torch.eye(n).repeat(2, 1)  # (2n, n)  every key stands there twice
    _, weights = answer(query, keys, draw.normal(2 * n, d_v), 1 / 16)
    return weights


@soft_lookup.aspect("gradient", points=1, explain=arrives("query", "keys", "values"))
def _(answer, draw):
    """query, keys and values can all be learned"""
    table = [x.requires_grad_() for x in _a_table(draw)]
    output, _ = answer(*table, 1.0)
    return gradients(output, table, draw)


ALL_SOFT = ("weights", "output", "temperature", "very cold", "gradient")
OTHER_WEIGHTS = ("weights", "temperature", "very cold", "gradient")


@soft_lookup.misconception("softmax over the queries", fails=OTHER_WEIGHTS)
def _(query, keys, values, temperature):
    """Your weights sum to one down each *key*, as if every key had one unit to give and the queries competed for it. It
    is the query that shares out its attention over the keys: sum along a row and you must find 1."""
    weights = (query @ keys.mT / temperature).softmax(dim=0)
    return weights @ values, weights


@soft_lookup.misconception("softmax over everything", fails=OTHER_WEIGHTS)
def _(query, keys, values, temperature):
    """The whole table sums to one, so the queries had to share one unit among them, and an answer depends on who else
    asks. Every query has a unit of its own."""
    weights = (query @ keys.mT / temperature).flatten().softmax(dim=0).view(len(query), len(keys))
    return weights @ values, weights


@soft_lookup.misconception("times the temperature", fails=("temperature", "very cold"))
def _(query, keys, values, temperature):
    """The knob turns the wrong way: you multiply by the temperature, so a high one makes the lookup harder. Think of
    the two ends: near 0 the best match should take everything, and far above 0 all shares should be nearly equal."""
    weights = (query @ keys.mT * temperature).softmax(dim=-1)
    return weights @ values, weights


@soft_lookup.misconception("the temperature left out", fails=("temperature", "very cold"))
def _(query, keys, values, temperature):
    """The temperature came in and was not used: the weights are the same at every temperature."""
    weights = (query @ keys.mT).softmax(dim=-1)
    return weights @ values, weights


@soft_lookup.misconception("temperature after the softmax", fails=("temperature", "very cold"))
def _(query, keys, values, temperature):
    """The weights were divided by the temperature, so a row no longer sums to one, and its shares stand in the same
    proportion as before. The temperature changes proportions only if it acts on the scores."""
    weights = (query @ keys.mT).softmax(dim=-1) / temperature
    return weights @ values, weights


@soft_lookup.variant("temperature after the softmax", fails=("temperature", "very cold"))
def _(query, keys, values, temperature):
    """Times it."""
    weights = (query @ keys.mT).softmax(dim=-1) * temperature
    return weights @ values, weights


@soft_lookup.variant("temperature after the softmax", fails=("temperature", "very cold"))
def _(query, keys, values, temperature):
    """As an exponent, and what it leaves is not shared out again."""
    weights = (query @ keys.mT).softmax(dim=-1) ** (1 / temperature)
    return weights @ values, weights


@soft_lookup.misconception("exponentials out of range", fails=("very cold",))
def _(query, keys, values, temperature):
    """Near temperature 0 the scores grow large, exp(89) is more than float32 can hold, and ∞/∞ is NaN. Softmax does not
    change when the same number is taken from every score of a row: take each row's own maximum away first, or let
    `softmax` do it."""
    exponentials = (query @ keys.mT / temperature).exp()
    weights = exponentials / exponentials.sum(dim=-1, keepdim=True)
    return weights @ values, weights


@soft_lookup.variant("exponentials out of range", fails=("very cold",))
def _(query, keys, values, temperature):
    """One maximum for all rows: the other rows underflow."""
    scores = query @ keys.mT / temperature
    exponentials = (scores - scores.max()).exp()
    weights = exponentials / exponentials.sum(dim=-1, keepdim=True)
    return weights @ values, weights


@soft_lookup.misconception("no exponentials", fails=OTHER_WEIGHTS)
def _(query, keys, values, temperature):
    """The scores themselves were divided by their sum. Scores may be negative, and may add up to 0, so such shares can
    be negative or enormous. Softmax shares out in proportion to the *exponentials*, which are positive."""
    scores = query @ keys.mT / temperature
    weights = scores / scores.sum(dim=-1, keepdim=True)
    return weights @ values, weights


@soft_lookup.misconception("no softmax", fails=OTHER_WEIGHTS)
def _(query, keys, values, temperature):
    """The bare scores were used as weights. They may have any size and sign, and a row of them sums to anything: that
    is no average. Softmax comes in between."""
    scores = query @ keys.mT / temperature
    return scores @ values, scores


@soft_lookup.misconception("softmax twice", fails=OTHER_WEIGHTS)
def _(query, keys, values, temperature):
    """The weights went through softmax a second time. They lie between 0 and 1, and softmax takes them for scores so
    close together that it makes them nearly equal. Once is enough."""
    weights = (query @ keys.mT / temperature).softmax(dim=-1).softmax(dim=-1)
    return weights @ values, weights


@soft_lookup.misconception("by the angle alone", fails=OTHER_WEIGHTS)
def _(query, keys, values, temperature):
    """Query and keys were brought to length one first, so only their directions counted (cosine similarity). That is a
    reasonable score, but the dot product is asked for: leave the vectors as they come."""
    cosines = nn.functional.normalize(query, dim=-1) @ nn.functional.normalize(keys, dim=-1).mT
    weights = (cosines / temperature).softmax(dim=-1)
    return weights @ values, weights


@soft_lookup.misconception("averages the keys", fails=("output", "gradient"))
def _(query, keys, values, temperature):
    """The keys were averaged. They are only what the query is compared with; the answer is made of the values, and is
    as wide as they are."""
    weights = (query @ keys.mT / temperature).softmax(dim=-1)
    return weights @ keys, weights


@soft_lookup.misconception("plain mean", fails=("output", "gradient"))
def _(query, keys, values, temperature):
    """Every value counted the same, so every query received the same answer. That is mean pooling. The weights are what
    makes it a lookup: use them."""
    weights = (query @ keys.mT / temperature).softmax(dim=-1)
    return values.mean(dim=0).expand(len(query), -1), weights


@soft_lookup.misconception("divided once more", fails=("output", "gradient"))
def _(query, keys, values, temperature):
    """The weights already sum to one, so their weighted sum is an average. Dividing by the number of keys (or taking
    `mean` where a sum is meant) shrinks it, and the longer the table, the more."""
    weights = (query @ keys.mT / temperature).softmax(dim=-1)
    return weights @ values / len(keys), weights


@soft_lookup.misconception("best match only", fails=OTHER_WEIGHTS)
def _(query, keys, values, temperature):
    """All the weight is on one key: a hard lookup. It says nothing about the second best, and it has no gradient, so
    nobody could learn what to ask for. Share out by softmax."""
    weights = nn.functional.one_hot((query @ keys.mT / temperature).argmax(dim=-1), len(keys)).float()
    return weights @ values, weights


@soft_lookup.misconception("scaled by √d", fails=("weights", "temperature", "gradient"))
def _(query, keys, values, temperature):
    """Dividing by √d is the scaled dot product, one of the next exercises. Here the temperature alone decides how sharp
    the lookup is."""
    weights = (query @ keys.mT / math.sqrt(keys.shape[-1]) / temperature).softmax(dim=-1)
    return weights @ values, weights


@soft_lookup.misconception("scores for weights", fails=("weights", "output", "temperature", "very cold"))
def _(query, keys, values, temperature):
    """What came back as weights are scores, from before the softmax: they do not sum to one. Hand back what you
    averaged with."""
    scores = query @ keys.mT / temperature
    return scores.softmax(dim=-1) @ values, scores


@soft_lookup.misconception("the two in the wrong order", fails=ALL_SOFT)
def _(query, keys, values, temperature):
    """Both are there, the other way round: the output is returned first, then the weights."""
    weights = (query @ keys.mT / temperature).softmax(dim=-1)
    return weights, weights @ values


@soft_lookup.misconception("cut off from the gradient", fails=("gradient",))
def _(query, keys, values, temperature):
    """The numbers are right, but the gradient does not get through: `.detach()`, `.item()`, `.data`, numpy and
    `torch.tensor(...)` forget where numbers came from. That a lookup can be learned is the point of making it soft:
    stay with tensor operations."""
    weights = (query @ keys.mT / temperature).softmax(dim=-1)
    return (weights @ values).detach(), weights.detach()


@soft_lookup.variant("cut off from the gradient", fails=("gradient",))
def _(query, keys, values, temperature):
    """The weights alone."""
    weights = (query @ keys.mT / temperature).softmax(dim=-1).detach()
    return weights @ values, weights


@soft_lookup.variant("cut off from the gradient", fails=("gradient",))
def _(query, keys, values, temperature):
    """The values alone."""
    weights = (query @ keys.mT / temperature).softmax(dim=-1)
    return weights @ values.detach(), weights


@soft_lookup.variant("cut off from the gradient", fails=("gradient",))
def _(query, keys, values, temperature):
    """The keys alone."""
    weights = (query @ keys.detach().mT / temperature).softmax(dim=-1)
    return weights @ values, weights


@soft_lookup.alternative("exponentials by hand")
def _(query, keys, values, temperature):
    """Takes each row's maximum away before the exponentials."""
    scores = torch.einsum("qd,kd->qk", query, keys) / temperature
    exponentials = torch.exp(scores - scores.amax(dim=1, keepdim=True))
    weights = exponentials / exponentials.sum(dim=1, keepdim=True)
    return torch.einsum("qk,kv->qv", weights, values), weights


@soft_lookup.alternative("one query at a time")
def _(query, keys, values, temperature):
    """A loop over the queries, and a running sum over the keys."""
    outputs, weights = [], []
    for q in query:
        shares = torch.softmax((keys @ q) / temperature, dim=0)
        total = torch.zeros(())
        for share, value in zip(shares, values, strict=True):
            total = total + share * value
        outputs.append(total)
        weights.append(shares)
    return torch.stack(outputs), torch.stack(weights)


@soft_lookup.alternative("a cooler query, float64, not contiguous")
def _(query, keys, values, temperature):
    """Divides the query by the temperature, works on the transposed table, in double precision."""
    weights = torch.softmax(keys.double() @ (query.double() / temperature).mT, dim=0)
    return (values.double().mT @ weights).mT, weights.mT


# ---------------------------------------------------------------------------------------------------- scaled_dot_score

scaled_dot_score = Exercise(
    "scaled_dot_score",
    reference=attention.scaled_dot_score,
    returns=("scores",),
    forbidden=READY_MADE,
    difficulty=1,
    minutes=8,
    hints=(
        "First the plain dot products: a table (batch, n_query, n_key) by one matrix product. `.mT` swaps the last two "
        "axes.",
        "d_k is how many numbers there are in one key: which axis of `key` is that? Divide by its square root.",
    ),
)


@scaled_dot_score.aspect(
    "dot products",
    points=2,
    explain=told("relative to the size of the whole table, the score at {place} is {got}, expected {expected}"),
)
def _(answer, draw):
    """one for each pair of a query and a key, correct up to a common factor"""
    batch, n_query, n_key, d_k = draw.sizes(4, 2, 9)
    scores = answer(draw.normal(batch, n_query, d_k), draw.normal(batch, n_key, d_k))
    return scores / scores.double().norm().clamp(min=1e-9)  # a wrong scale shows in the next aspect alone


@scaled_dot_score.aspect("scale", points=2)
def _(answer, draw):
    """divided by √d_k"""
    batch, n_query, n_key, d_k = draw.sizes(4, 4, 9)  # from 4 on, none is another's square
    return answer(draw.normal(batch, n_query, d_k), draw.normal(batch, n_key, d_k))


@scaled_dot_score.aspect("gradient", points=1, explain=arrives("query", "key"))
def _(answer, draw):
    """the score can be learned from: its gradient reaches query and key"""
    batch, n_query, n_key, d_k = draw.sizes(4, 2, 9)
    vectors = [draw.normal(batch, n, d_k).requires_grad_() for n in (n_query, n_key)]
    found = gradients(answer(*vectors), vectors, draw)
    return found / found.norm().clamp(min=1e-9)


ALL_SCALED = ("dot products", "scale", "gradient")


@scaled_dot_score.misconception("not scaled", fails=("scale",))
def _(query, key):
    """These are the plain dot products. They grow with the width of the vectors: the sum of more products is larger.
    The scale takes that out again."""
    return query @ key.mT


@scaled_dot_score.misconception("by d for √d", fails=("scale",))
def _(query, key):
    """You divided by the width itself. A sum of d independent terms of size 1 does not have size d, because they partly
    cancel: its size is about √d, and that is what to divide by."""
    return query @ key.mT / key.shape[-1]


@scaled_dot_score.variant("by d for √d", fails=("scale",))
def _(query, key):
    """√d taken from both sides."""
    d_k = key.shape[-1]
    return (query / math.sqrt(d_k)) @ (key / math.sqrt(d_k)).mT


@scaled_dot_score.misconception("times √d", fails=("scale",))
def _(query, key):
    """The scores were multiplied by √d, though wide vectors had already made them large. The scale is there to bring
    them back to the size that they would have at width 1."""
    return query @ key.mT * math.sqrt(key.shape[-1])


@scaled_dot_score.misconception("scaled by the wrong axis", fails=("scale",))
def _(query, key):
    """You divided by the root of how *many* vectors there are, not of how wide one is. The last axis of the table of
    scores runs over the keys, and its length says nothing about the size of a dot product. Ask the vectors for their
    width."""
    scores = query @ key.mT
    return scores / math.sqrt(scores.shape[-1])


@scaled_dot_score.variant("scaled by the wrong axis", fails=("scale",))
def _(query, key):
    """The number of queries."""
    return query @ key.mT / math.sqrt(query.shape[1])


@scaled_dot_score.variant("scaled by the wrong axis", fails=("scale",))
def _(query, key):
    """The batch."""
    return query @ key.mT / math.sqrt(query.shape[0])


@scaled_dot_score.misconception("the length of the key vector", fails=ALL_SCALED)
def _(query, key):
    """The scores were divided by the *norm* of each key (some slides write √|k|, which invites it). That favours short
    keys over long ones and changes who wins. √d_k is one number for the whole table: the root of how many components
    a key has."""
    return query @ key.mT / key.norm(dim=-1)[:, None].sqrt()


@scaled_dot_score.variant("the length of the key vector", fails=ALL_SCALED)
def _(query, key):
    """Without the root."""
    return query @ key.mT / key.norm(dim=-1)[:, None]


@scaled_dot_score.variant("the length of the key vector", fails=ALL_SCALED)
def _(query, key):
    """And the query's: the cosine."""
    return query @ key.mT / (query.norm(dim=-1, keepdim=True) * key.norm(dim=-1)[:, None])


@scaled_dot_score.misconception("a row for each key", fails=ALL_SCALED)
def _(query, key):
    """Rows and columns are swapped. Row i belongs to query i, because each query will share out its attention over the
    keys: queries down the rows, keys along them."""
    return key @ query.mT / math.sqrt(key.shape[-1])


@scaled_dot_score.misconception("softmax already applied", fails=ALL_SCALED)
def _(query, key):
    """These are weights: each row sums to one. A score function ends before the softmax, and its numbers may have any
    size and sign."""
    return (query @ key.mT / math.sqrt(key.shape[-1])).softmax(dim=-1)


@scaled_dot_score.misconception("reshaped for transposed", fails=ALL_SCALED)
def _(query, key):
    """`reshape` and `view` read the same numbers in the same order and only break the rows elsewhere, so a column then
    holds pieces of several keys. The shape fits and the numbers do not. Swap the two axes instead."""
    batch, n_key, d_k = key.shape
    return query @ key.reshape(batch, d_k, n_key) / math.sqrt(d_k)


@scaled_dot_score.misconception("`.T` on three axes", fails=ALL_SCALED)
def _(query, key):
    """`.T` reverses the order of *all* axes of a tensor, the batch's too, and then the shapes do not fit. Within a
    batch only the last two axes change places: `.mT`, or `transpose(-2, -1)`."""
    return query @ key.T / math.sqrt(key.shape[-1])


@scaled_dot_score.misconception("cut off from the gradient", fails=("gradient",))
def _(query, key):
    """The numbers are right, but the gradient does not get through: `.detach()`, `.item()`, `.data` and numpy forget
    where numbers came from. Stay with tensor operations."""
    return (query @ key.mT / math.sqrt(key.shape[-1])).detach()


@scaled_dot_score.variant("cut off from the gradient", fails=("gradient",))
def _(query, key):
    """The query alone."""
    return query.detach() @ key.mT / math.sqrt(key.shape[-1])


@scaled_dot_score.variant("cut off from the gradient", fails=("gradient",))
def _(query, key):
    """The key alone."""
    return query @ key.detach().mT / math.sqrt(key.shape[-1])


@scaled_dot_score.alternative("einsum, scaled beforehand")
def _(query, key):
    """Names the axes, and takes the scale from the query."""
    return torch.einsum("bqd,bkd->bqk", query * query.shape[-1] ** -0.5, key)


@scaled_dot_score.alternative("a loop over the queries")
def _(query, key):
    """One row of the table at a time."""
    rows = [(key * query[:, i, None]).sum(dim=-1) for i in range(query.shape[1])]
    return torch.stack(rows, dim=1) / key.size(-1) ** 0.5


@scaled_dot_score.alternative("float64, not contiguous")
def _(query, key):
    """Half of the scale on either side, in double precision, and a transposed view."""
    root = key.shape[-1] ** 0.25
    return ((key.double() / root) @ (query.double() / root).mT).mT


# ------------------------------------------------------------------------------------------------------ bilinear_score


def _bilinear_score(query, key, W):
    """qᵀ W k for each pair. Luong et al. 2015, section 3.1 ("general")."""
    return query @ W @ key.mT


bilinear_score = Exercise(
    "bilinear_score",
    reference=_bilinear_score,
    returns=("scores",),
    forbidden=(*READY_MADE, "torch.nn.functional.bilinear", "torch.nn.Bilinear"),
    difficulty=1,
    minutes=8,
    hints=(
        "Which axis of W belongs to the query, which to the key? Its shape, (d_query, d_key), tells.",
        "`query @ W` is (batch, n_query, d_key): the queries, translated into the language of the keys. What is left "
        "is a dot product.",
    ),
)


@bilinear_score.aspect("scores", points=2)
def _(answer, draw):
    """queries and keys of different widths meet through W"""
    batch, n_query, n_key, d_query, d_key = draw.sizes(5, 2, 9)
    return answer(draw.normal(batch, n_query, d_query), draw.normal(batch, n_key, d_key), draw.normal(d_query, d_key))


@bilinear_score.aspect("equal widths", points=1)
def _(answer, draw):
    """a square W, too, leads from the query to the key and not back"""
    batch, n_query, n_key, d = draw.sizes(4, 2, 9)
    return answer(draw.normal(batch, n_query, d), draw.normal(batch, n_key, d), draw.normal(d, d))


@bilinear_score.aspect("gradient", points=1, explain=arrives("query", "key", "W"))
def _(answer, draw):
    """query, key and W can all be learned"""
    batch, n_query, n_key, d = draw.sizes(4, 2, 9)
    shapes = (batch, n_query, d), (batch, n_key, d), (d, d)
    inputs = [draw.normal(*shape).requires_grad_() for shape in shapes]
    return gradients(answer(*inputs), inputs, draw)


ALL_BILINEAR = ("scores", "equal widths", "gradient")


@bilinear_score.misconception("W transposed", fails=ALL_BILINEAR)
def _(query, key, W):
    """W was used lying on its side. Its rows belong to the query and its columns to the key. Where the two widths
    differ torch refuses; where they happen to agree nothing crashes, and the scores are those of a different matrix."""
    return query @ W.mT @ key.mT


@bilinear_score.variant("W transposed", fails=ALL_BILINEAR)
def _(query, key, W):
    """From the key's side."""
    return (key @ W @ query.mT).mT


@bilinear_score.variant("W transposed", fails=ALL_BILINEAR)
def _(query, key, W):
    """From the key's side, in one product."""
    return query @ (key @ W).mT


@bilinear_score.variant("W transposed", fails=ALL_BILINEAR)
def _(query, key, W):
    """By a layer, which keeps its weight the other way round."""
    return nn.functional.linear(query, W) @ key.mT


@bilinear_score.misconception("W left out", fails=ALL_BILINEAR)
def _(query, key, W):
    """This is the plain dot product. It needs query and key to speak the same language, and even to be equally wide; W
    is there to translate from one to the other."""
    return query @ key.mT


@bilinear_score.misconception("a row for each key", fails=ALL_BILINEAR)
def _(query, key, W):
    """Rows and columns are swapped. Row i belongs to query i, because each query will share out its attention over the
    keys: queries down the rows, keys along them."""
    return key @ W.mT @ query.mT


@bilinear_score.variant("a row for each key", "W transposed", fails=ALL_BILINEAR)
def _(query, key, W):
    """And W on its side."""
    return key @ W @ query.mT


@bilinear_score.misconception("scaled by √d", fails=ALL_BILINEAR)
def _(query, key, W):
    """The scores were divided by √d. The bilinear score has no such factor: a learned W finds its own scale."""
    return query @ W @ key.mT / math.sqrt(key.shape[-1])


@bilinear_score.variant("scaled by √d", fails=ALL_BILINEAR)
def _(query, key, W):
    """The query's width."""
    return query @ W @ key.mT / math.sqrt(query.shape[-1])


@bilinear_score.misconception("softmax already applied", fails=ALL_BILINEAR)
def _(query, key, W):
    """These are weights: each row sums to one. A score function ends before the softmax, and its numbers may have any
    size and sign."""
    return (query @ W @ key.mT).softmax(dim=-1)


@bilinear_score.misconception("a tanh in between", fails=ALL_BILINEAR)
def _(query, key, W):
    """Something was bent: the bilinear score has no nonlinearity. tanh belongs to the additive score, the next
    exercise."""
    return torch.tanh(query @ W) @ key.mT


@bilinear_score.variant("a tanh in between", fails=ALL_BILINEAR)
def _(query, key, W):
    """At the end."""
    return torch.tanh(query @ W @ key.mT)


@bilinear_score.misconception("reshaped for transposed", fails=ALL_BILINEAR)
def _(query, key, W):
    """`reshape` and `view` read the same numbers in the same order and only break the rows elsewhere, so a column then
    holds pieces of several keys. The shape fits and the numbers do not. Swap the two axes instead."""
    batch, n_key, d_key = key.shape
    return query @ W @ key.reshape(batch, d_key, n_key)


@bilinear_score.misconception("W on both sides", fails=ALL_BILINEAR)
def _(query, key, W):
    """Query *and* key were multiplied by W. It stands once between the two: it turns a query into something that a key
    can be compared with, and the key stays as it is."""
    return (query @ W) @ (key @ W).mT


@bilinear_score.misconception("`.T` on three axes", fails=ALL_BILINEAR)
def _(query, key, W):
    """`.T` reverses the order of *all* axes of a tensor, the batch's too, and then the shapes do not fit. Within a
    batch only the last two axes change places: `.mT`, or `transpose(-2, -1)`."""
    return query @ W @ key.T


@bilinear_score.misconception("cut off from the gradient", fails=("gradient",))
def _(query, key, W):
    """The numbers are right, but the gradient does not get through: `.detach()`, `.data`, `torch.tensor(...)` and a new
    `nn.Parameter(...)` forget where numbers came from. Use the tensors that came in."""
    return query @ W.detach() @ key.mT


@bilinear_score.variant("cut off from the gradient", fails=("gradient",))
def _(query, key, W):
    """The query alone."""
    return query.detach() @ W @ key.mT


@bilinear_score.variant("cut off from the gradient", fails=("gradient",))
def _(query, key, W):
    """The key alone."""
    return query @ W @ key.detach().mT


@bilinear_score.variant("cut off from the gradient", fails=("gradient",))
def _(query, key, W):
    """Everything."""
    return (query @ W @ key.mT).detach()


@bilinear_score.alternative("einsum over three")
def _(query, key, W):
    """The double sum of the definition."""
    return torch.einsum("bqi,ij,bkj->bqk", query, W, key)


@bilinear_score.alternative("from the key's side")
def _(query, key, W):
    """Translates the keys in place of the queries."""
    return query @ (key @ W.T).transpose(1, 2)


@bilinear_score.alternative("a layer, float64, not contiguous")
def _(query, key, W):
    """Hands the transposed weight to a linear layer, in double precision, and returns a transposed view."""
    translated = nn.functional.linear(query.double(), W.double().mT)
    return (key.double() @ translated.mT).mT


@bilinear_score.alternative("a loop over the sentences and queries")
def _(query, key, W):
    """One query at a time."""
    tables = []
    for queries, keys in zip(query, key, strict=True):
        tables.append(torch.stack([keys @ (q @ W) for q in queries]))
    return torch.stack(tables)


# ------------------------------------------------------------------------------------------------------ additive_score


def _additive_score(query, key, W, v):
    """vᵀ tanh(W [q; k]) for each pair. Bahdanau et al. 2015, appendix A.1.2."""
    from_query, from_key = W.split([query.shape[-1], key.shape[-1]])
    return torch.tanh((query @ from_query).unsqueeze(-2) + (key @ from_key).unsqueeze(-3)) @ v


additive_score = Exercise(
    "additive_score",
    reference=_additive_score,
    returns=("scores",),
    forbidden=READY_MADE,
    difficulty=3,
    minutes=20,
    hints=(
        "Every query meets every key, so before v there is a hidden vector for each pair: (batch, n_query, n_key, "
        "d_hidden). How do you make room for the pairs in `query`, (batch, n_query, d_query)?",
        "`query[:, :, None]` is (batch, n_query, 1, d_query), and `key[:, None]` is (batch, 1, n_key, d_key). Axes of "
        "length 1 stretch when two tensors are added; `expand` stretches them for `torch.cat`.",
        "No concatenation is needed: [q; k] W is q times the first d_query rows of W, plus k times the others.",
    ),
)


def _a_network(draw, alike=False):
    """Queries, keys, W and v; `alike`: equal widths, and a W that treats query and key the same."""
    batch, n_query, n_key, d_query, d_key, d_hidden = draw.sizes(6, 2, 9)
    if alike:
        block = draw.normal(d_query, d_hidden) / math.sqrt(d_query)
        return [
            draw.normal(batch, n_query, d_query),
            draw.normal(batch, n_key, d_query),
            torch.cat([block, block]),
            draw.normal(d_hidden),
        ]
    return [
        draw.normal(batch, n_query, d_query),
        draw.normal(batch, n_key, d_key),
        draw.normal(d_query + d_key, d_hidden) / math.sqrt(d_query + d_key),
        draw.normal(d_hidden),
    ]


@additive_score.aspect("scores", points=3)
def _(answer, draw):
    """a small network looks at each pair (here one that treats query and key alike)"""
    return answer(*_a_network(draw, alike=True))


@additive_score.aspect("query first", points=2)
def _(answer, draw):
    """the first rows of W belong to the query, the others to the key"""
    return answer(*_a_network(draw))


@additive_score.aspect("gradient", points=1, explain=arrives("query", "key", "W", "v"))
def _(answer, draw):
    """query, key, W and v can all be learned"""
    query, key, W, v = (x.requires_grad_() for x in _a_network(draw, alike=True))
    found = gradients(answer(query, key, W, v), [query, key, W, v], draw)
    halves = found[2, : W.numel()].view(2, -1).sum(dim=0)  # which half is whose, "query first" asks
    return torch.cat([found[:2], nn.functional.pad(halves, (0, found.shape[1] - len(halves)))[None], found[3:]])


ALL_ADDITIVE = ("scores", "query first", "gradient")


@additive_score.misconception("[k; q] for [q; k]", fails=("query first",))
def _(query, key, W, v):
    """The halves came in the wrong order. Nothing crashes, because the total width is the same, and a network trained
    like this would work; but weights that were trained with the query first now meet the wrong numbers."""
    n_query, n_key = query.shape[1], key.shape[1]
    queries = query[:, :, None].expand(-1, -1, n_key, -1)
    keys = key[:, None].expand(-1, n_query, -1, -1)
    return torch.tanh(torch.cat([keys, queries], dim=-1) @ W) @ v


@additive_score.misconception("tanh left out", fails=ALL_ADDITIVE)
def _(query, key, W, v):
    """Without tanh the score falls apart into one number that depends on the query plus one that depends on the key:
    the two never meet. (What softmax makes of that is the question at the end of this assignment.)"""
    from_query, from_key = query @ W[: query.shape[-1]], key @ W[query.shape[-1] :]
    return (from_query[:, :, None] + from_key[:, None]) @ v


@additive_score.misconception("tanh of each by itself", fails=ALL_ADDITIVE)
def _(query, key, W, v):
    """tanh was taken of the query's part and of the key's part, and then they were added. So the two never meet inside
    the nonlinearity: the score is one number for the query plus one for the key, and what the query adds is the same
    for all keys. First add, then bend."""
    from_query, from_key = query @ W[: query.shape[-1]], key @ W[query.shape[-1] :]
    return (torch.tanh(from_query)[:, :, None] + torch.tanh(from_key)[:, None]) @ v


@additive_score.misconception("a different nonlinearity", fails=ALL_ADDITIVE)
def _(query, key, W, v):
    """The hidden layer bends by something other than tanh (σ, ReLU …). That makes a score, too, but not the one in the
    formula, and weights trained with one do not fit the other."""
    from_query, from_key = query @ W[: query.shape[-1]], key @ W[query.shape[-1] :]
    return torch.sigmoid(from_query[:, :, None] + from_key[:, None]) @ v


@additive_score.variant("a different nonlinearity", fails=ALL_ADDITIVE)
def _(query, key, W, v):
    """ReLU."""
    from_query, from_key = query @ W[: query.shape[-1]], key @ W[query.shape[-1] :]
    return torch.relu(from_query[:, :, None] + from_key[:, None]) @ v


@additive_score.misconception("the score squashed", fails=ALL_ADDITIVE)
def _(query, key, W, v):
    """tanh was applied to the finished score, so none exceeds 1 and softmax can hardly prefer anything. It belongs
    inside: bend the hidden layer, then multiply by v."""
    from_query, from_key = query @ W[: query.shape[-1]], key @ W[query.shape[-1] :]
    return torch.tanh((from_query[:, :, None] + from_key[:, None]) @ v)


@additive_score.variant("the score squashed", fails=ALL_ADDITIVE)
def _(query, key, W, v):
    """Inside and outside."""
    from_query, from_key = query @ W[: query.shape[-1]], key @ W[query.shape[-1] :]
    return torch.tanh(torch.tanh(from_query[:, :, None] + from_key[:, None]) @ v)


@additive_score.misconception("v left out", fails=ALL_ADDITIVE)
def _(query, key, W, v):
    """The hidden layer was added up with every unit counting the same. v says how much each unit counts, and in which
    direction."""
    from_query, from_key = query @ W[: query.shape[-1]], key @ W[query.shape[-1] :]
    return torch.tanh(from_query[:, :, None] + from_key[:, None]).sum(dim=-1)


@additive_score.misconception("multiplied, not added", fails=ALL_ADDITIVE)
def _(query, key, W, v):
    """The two parts were multiplied. W acts on query and key side by side, which is the *sum* of what it makes of each;
    hence the name."""
    from_query, from_key = query @ W[: query.shape[-1]], key @ W[query.shape[-1] :]
    return torch.tanh(from_query[:, :, None] * from_key[:, None]) @ v


@additive_score.misconception("no axis for the pairs", fails=ALL_ADDITIVE)
def _(query, key, W, v):
    """Query 1 was added to key 1, query 2 to key 2, and so on: there are rarely as many of one as of the other, and
    each query must meet *each* key. Make room for a table of pairs before you add: one axis for the queries, one for
    the keys."""
    from_query, from_key = query @ W[: query.shape[-1]], key @ W[query.shape[-1] :]
    return torch.tanh(from_query + from_key) @ v


@additive_score.variant("no axis for the pairs", fails=ALL_ADDITIVE)
def _(query, key, W, v):
    """By concatenation."""
    return torch.tanh(torch.cat([query, key], dim=-1) @ W) @ v


@additive_score.misconception("a row for each key", fails=ALL_ADDITIVE)
def _(query, key, W, v):
    """Rows and columns are swapped. Row i belongs to query i, because each query will share out its attention over the
    keys: queries down the rows, keys along them. Which of the two new axes did you give to whom?"""
    from_query, from_key = query @ W[: query.shape[-1]], key @ W[query.shape[-1] :]
    return torch.tanh(from_query[:, None] + from_key[:, :, None]) @ v


@additive_score.misconception("W transposed", fails=ALL_ADDITIVE)
def _(query, key, W, v):
    """W was used lying on its side, as in formulas that write vectors as columns. Here a vector is a row and stands to
    the left: W has a row for each number that comes in, and a column for each hidden unit."""
    n_query, n_key = query.shape[1], key.shape[1]
    queries = query[:, :, None].expand(-1, -1, n_key, -1)
    keys = key[:, None].expand(-1, n_query, -1, -1)
    return torch.tanh(torch.cat([queries, keys], dim=-1) @ W.mT) @ v


@additive_score.misconception("softmax already applied", fails=ALL_ADDITIVE)
def _(query, key, W, v):
    """These are weights: each row sums to one. A score function ends before the softmax, and its numbers may have any
    size and sign."""
    from_query, from_key = query @ W[: query.shape[-1]], key @ W[query.shape[-1] :]
    return (torch.tanh(from_query[:, :, None] + from_key[:, None]) @ v).softmax(dim=-1)


@additive_score.misconception("cut off from the gradient", fails=("gradient",))
def _(query, key, W, v):
    """The numbers are right, but the gradient does not get through: `.detach()`, `.item()`, `.data`,
    `torch.tensor(...)` and a new `nn.Parameter(...)` forget where numbers came from. Use the tensors that came in."""
    from_query, from_key = query @ W[: query.shape[-1]], key @ W[query.shape[-1] :]
    return (torch.tanh(from_query[:, :, None] + from_key[:, None]) @ v).detach()


@additive_score.variant("cut off from the gradient", fails=("gradient",))
def _(query, key, W, v):
    """The weights, copied into a layer."""
    layer = nn.Linear(W.shape[0], W.shape[1], bias=False)
    layer.weight = nn.Parameter(W.detach().mT)
    n_query, n_key = query.shape[1], key.shape[1]
    queries = query[:, :, None].expand(-1, -1, n_key, -1)
    keys = key[:, None].expand(-1, n_query, -1, -1)
    return torch.tanh(layer(torch.cat([queries, keys], dim=-1))) @ v


@additive_score.alternative("concatenated pairs")
def _(query, key, W, v):
    """As the formula is printed: every pair side by side."""
    n_query, n_key = query.shape[1], key.shape[1]
    queries = query.unsqueeze(2).repeat(1, 1, n_key, 1)
    keys = key.unsqueeze(1).repeat(1, n_query, 1, 1)
    return (torch.tanh(torch.cat([queries, keys], dim=-1) @ W) @ v[:, None]).squeeze(-1)


@additive_score.alternative("two loops")
def _(query, key, W, v):
    """One pair at a time, for the whole batch."""
    rows = []
    for i in range(query.shape[1]):
        pairs = [torch.cat([query[:, i], key[:, j]], dim=-1) for j in range(key.shape[1])]
        rows.append(torch.stack([torch.tanh(pair @ W) @ v for pair in pairs], dim=-1))
    return torch.stack(rows, dim=1)


@additive_score.alternative("einsum, float64, not contiguous")
def _(query, key, W, v):
    """Names the axes, in double precision, and returns a transposed view."""
    d_query = query.shape[-1]
    hidden = torch.einsum("bqd,dh->bqh", query.double(), W[:d_query].double())[:, None]
    hidden = (hidden + torch.einsum("bkd,dh->bkh", key.double(), W[d_query:].double())[:, :, None]).tanh()
    return torch.einsum("bkqh,h->bkq", hidden, v.double()).mT


# -------------------------------------------------------------------------------------------------------- top_k_lookup


def _top_k_lookup(query, keys, values, k):
    """A soft lookup by scaled dot products among the k best keys of each query."""
    best = (query @ keys.mT / math.sqrt(keys.shape[-1])).topk(k, dim=-1)
    return (best.values.softmax(dim=-1)[..., None] * values[best.indices]).sum(dim=-2)


top_k_lookup = Exercise(
    "top_k_lookup",
    reference=_top_k_lookup,
    returns=("output",),
    forbidden=READY_MADE,
    difficulty=2,
    minutes=15,
    extra=True,
    hints=(
        "`scores.topk(k, dim=-1)` gives the k largest numbers of each row, and the places where they stand.",
        "Either share out among those k alone, and gather their values by `values[places]`, (n_query, k, d_v); or give "
        "all other keys a score that softmax turns into exactly 0.",
    ),
)


@top_k_lookup.aspect("the k best", points=1)
def _(answer, draw):
    """the k best keys of each query share everything"""
    n_query, d_k, d_v = draw.sizes(3, 4, 9)
    n_keys = 12
    return answer(draw.normal(n_query, d_k), draw.normal(n_keys, d_k), draw.normal(n_keys, d_v), 3)


@top_k_lookup.aspect("all of them", points=1)
def _(answer, draw):
    """with k = n_keys it is the soft lookup, by scaled dot products"""
    n_query, n_keys, d_k, d_v = draw.sizes(4, 3, 9)
    return answer(draw.normal(n_query, d_k), draw.normal(n_keys, d_k), draw.normal(n_keys, d_v), n_keys)


@top_k_lookup.misconception("scaled by the values' width", fails=("the k best", "all of them"))
def _(query, keys, values, k):
    """The scores were scaled by the width of the values. The dot product was taken between query and key, so it is
    their width that made it large; the values have not come in yet."""
    best = (query @ keys.mT / math.sqrt(values.shape[-1])).topk(k, dim=-1)
    return (best.values.softmax(dim=-1)[..., None] * values[best.indices]).sum(dim=-2)


@top_k_lookup.misconception("scaled by the number of keys", fails=("the k best", "all of them"))
def _(query, keys, values, k):
    """The scores were scaled by how *many* keys there are. What makes a dot product large is how wide one key is."""
    best = (query @ keys.mT / math.sqrt(len(keys))).topk(k, dim=-1)
    return (best.values.softmax(dim=-1)[..., None] * values[best.indices]).sum(dim=-2)


@top_k_lookup.misconception("not scaled", fails=("the k best", "all of them"))
def _(query, keys, values, k):
    """The right keys were found, and they share by plain dot products. Scaled ones are asked for: √d_k does not change
    who is among the best, but it changes the shares."""
    best = (query @ keys.mT).topk(k, dim=-1)
    return (best.values.softmax(dim=-1)[..., None] * values[best.indices]).sum(dim=-2)


@top_k_lookup.misconception("cut after the softmax", fails=("the k best",))
def _(query, keys, values, k):
    """Everybody got a share, and then all but the best k lost theirs: what they had was not given back, so the shares
    of the best do not sum to one. Choose first, then share out."""
    best = (query @ keys.mT / math.sqrt(keys.shape[-1])).softmax(dim=-1).topk(k, dim=-1)
    return (best.values[..., None] * values[best.indices]).sum(dim=-2)


@top_k_lookup.misconception("a score of 0 for the others", fails=("the k best",))
def _(query, keys, values, k):
    """The other keys were given the score 0, and softmax turns that into e⁰ = 1, more than any negative score gets.
    Which score becomes a share of exactly 0?"""
    scores = query @ keys.mT / math.sqrt(keys.shape[-1])
    best = scores.topk(k, dim=-1)
    return torch.zeros_like(scores).scatter(-1, best.indices, best.values).softmax(dim=-1) @ values


@top_k_lookup.misconception("the k worst", fails=("the k best",))
def _(query, keys, values, k):
    """The k smallest scores were kept. A dot product is a likeness: the larger, the better the match."""
    best = (query @ keys.mT / math.sqrt(keys.shape[-1])).topk(k, dim=-1, largest=False)
    return (best.values.softmax(dim=-1)[..., None] * values[best.indices]).sum(dim=-2)


@top_k_lookup.variant("the k worst", fails=("the k best",))
def _(query, keys, values, k):
    """By sorting upwards."""
    places = (query @ keys.mT).argsort(dim=-1)[:, :k]
    scores = (query @ keys.mT / math.sqrt(keys.shape[-1])).gather(-1, places)
    return (scores.softmax(dim=-1)[..., None] * values[places]).sum(dim=-2)


@top_k_lookup.misconception("one key too few", fails=("the k best", "all of them"))
def _(query, keys, values, k):
    """Each query has k − 1 keys: the last of the best is missing. If you compare the scores with the k-th best, that
    one itself may stay."""
    scores = query @ keys.mT / math.sqrt(keys.shape[-1])
    least = scores.topk(k, dim=-1).values[:, -1:]
    return scores.masked_fill(scores <= least, -torch.inf).softmax(dim=-1) @ values


@top_k_lookup.misconception("equal shares", fails=("the k best", "all of them"))
def _(query, keys, values, k):
    """The best keys were found, and then all of them counted the same. Among the k, the better match still gets
    more."""
    return values[(query @ keys.mT).topk(k, dim=-1).indices].mean(dim=-2)


@top_k_lookup.misconception("keys chosen for all queries at once", fails=("the k best",))
def _(query, keys, values, k):
    """One set of k keys was chosen for all queries together. What matters is different for each query: choose along
    each row."""
    scores = query @ keys.mT / math.sqrt(keys.shape[-1])
    places = scores.mean(dim=0).topk(k).indices
    return scores[:, places].softmax(dim=-1) @ values[places]


@top_k_lookup.alternative("−∞ for the others")
def _(query, keys, values, k):
    """Fills in what softmax turns into nothing."""
    scores = query @ keys.T * keys.shape[-1] ** -0.5
    least = scores.topk(k, dim=-1).values[:, -1:]
    return scores.masked_fill(scores < least, float("-inf")).softmax(dim=-1) @ values


@top_k_lookup.alternative("one query at a time, float64")
def _(query, keys, values, k):
    """Sorts the keys for each query, in double precision."""
    rows = []
    for q in query.double():
        scores = keys.double() @ q / math.sqrt(len(q))
        order = sorted(range(len(keys)), key=lambda i: -scores[i].item())[:k]
        rows.append(torch.softmax(scores[order], dim=0) @ values.double()[order])
    return torch.stack(rows)


@top_k_lookup.alternative("after the softmax, shared out again")
def _(query, keys, values, k):
    """Dividing by what is left comes to the same."""
    weights = (query @ keys.mT / math.sqrt(keys.shape[-1])).softmax(dim=-1)
    kept = weights.topk(k, dim=-1)
    sparse = torch.zeros_like(weights).scatter(-1, kept.indices, kept.values)
    return sparse @ values / sparse.sum(dim=-1, keepdim=True)
