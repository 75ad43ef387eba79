"""soft_lookup: The average of the values, weighted by how well each key matches the query; and the weights."""

import torch

from lessonkit.exercises.exercise import Exercise
from lessonkit.exercises.judge import explain_worst, row_sums
from lessonkit.exercises.observe import apart, require_variation
from lessonkit.exercises.way_back import explain_way_back, way_back

from .common import READY_MADE


def reference(query, keys, values, temperature):
    """The average of the values, weighted by softmax of the dot products over the temperature; and the weights."""
    weights = (query @ keys.mT / temperature).softmax(dim=-1)
    return weights @ values, weights


def solution(query, keys, values, temperature):
    scores = query @ keys.mT / temperature  # (n_query, n_keys)
    weights = scores.softmax(dim=-1)        # (n_query, n_keys)  each row sums to one
    return weights @ values, weights


exercise = Exercise(
    "soft_lookup",
    reference=reference,
    solution=solution,
    returns=("output", "weights"),
    forbidden=READY_MADE,
    difficulty=2,
    minutes=15,
    hints=(
        "Three lines: scores, weights, average. Write the shape of each beside it.",
        "The weights of each query sum to one over the keys. Which axis of the scores runs over the keys? The "
        "temperature is applied to the scores, before the softmax. (Exponentials of large scores overflow. torch's "
        "`softmax` subtracts the largest score of each row first; whoever writes `exp` out has to do the same.)",
        "The average is a matrix product: (n_query, n_keys) times (n_keys, d_v). Nothing on the way may forget where "
        "it came from: no `.item()`, no `.detach()`, no `torch.tensor(…)` of numbers that were tensors.",
    ),
)
aspect, slip, misconception, variant, alternative = exercise.decorators()


def _a_table(draw):
    n_query, n_keys, d_k, d_v = draw.sizes(4, 3, 9)
    return draw.normal(n_query, d_k), draw.normal(n_keys, d_k), draw.normal(n_keys, d_v)


# ----------------------------------------------------------------------------------------------------- what is observed


@aspect("weights", points=2, hint=2, explain=row_sums)
def weights(answer, draw):
    """the weights of each query sum to one over the keys"""
    _, weights = answer(*_a_table(draw), 1.0)
    return weights


@aspect(
    "output",
    points=2,
    hint=3,
    explain=explain_worst("at {place} it is {size} away from the values averaged by the weights that you returned"),
)
def output(answer, draw):
    """the average of the values by these weights"""
    query, keys, values = _a_table(draw)
    output, weights = answer(query, keys, values, 1.0)
    return apart(require_variation(output).double(), require_variation(weights).double() @ values.double())


@aspect("temperature", points=1, hint=2)
def temperature(answer, draw):
    """the higher the temperature, the more equal the weights"""
    query, keys, values = _a_table(draw)
    _, cool = answer(query, keys, values, 0.4 + 0.2 * draw.uniform(1).item())
    _, warm = answer(query, keys, values, 2 + draw.uniform(1).item())
    return torch.stack([cool, warm])


@aspect("very cold", points=1, hint=2)
def very_cold(answer, draw):
    """no overflow near temperature 0: the best match has all the weight, two equally good ones half of it each"""
    n, d_v = draw.sizes(2, 4, 8)
    ramps = torch.stack([torch.randperm(n, generator=draw.generator) for _ in range(3)])
    query = 8.0 * ramps + 32.0 * torch.arange(3)[:, None]  # (3, n)  its scores, in steps of 8 that no rounding blurs
    keys = torch.eye(n).repeat(2, 1)  # (2n, n)  every key stands there twice
    _, weights = answer(query, keys, draw.normal(2 * n, d_v), 1 / 16)
    return weights


@aspect("gradient", points=1, hint=3, explain=explain_way_back("query", "keys", "values", "query", "keys"))
def gradient(answer, draw):
    """query, keys and values can all be learned, from the output and from the weights"""
    table = [x.requires_grad_() for x in _a_table(draw)]
    got, right = answer(*table, 1.0), exercise.reference(*table, 1.0)
    from_output = way_back(got[0], right[0], table, draw)
    return torch.cat([from_output, way_back(got[1], right[1], table[:2], draw)])


# -------------------------------------------------------------------------------------- one slip away from the solution

WEIGHTS = ("weights", "temperature", "very cold")
OUTPUT, KNOB = ("output",), ("temperature", "very cold")
SOFTMAX, AVERAGE = "scores.softmax(dim=-1)", "weights @ values"
SHARED_OUT = "\nweights = weights / weights.sum(dim=-1, keepdim=True)"

slip("softmax over the queries", WEIGHTS, {"dim=-1": "dim=0"}, words="""
    Your weights sum to one down each *key*, as if every key had one unit to give and the queries competed for it. It is
    the query whose weights sum to one over the keys: sum along a row and you must find 1.""")
slip("softmax over everything", WEIGHTS, {SOFTMAX: "scores.flatten().softmax(dim=0).view(scores.shape)"}, words="""
    The whole table sums to one, so the queries have one unit together, and an answer depends on who else
    asks. Every query has a unit of its own.""")
slip("times the temperature", KNOB, {"/ temperature": "* temperature"}, words="""
    The knob turns the wrong way: you multiply by the temperature, so a high one makes the lookup harder. Think of the
    two ends: near 0 the best match should take everything, and far above 0 all weights should be nearly equal.""")
slip("the temperature left out", KNOB, {" / temperature": ""}, words="""
    The temperature came in and was not used: the weights are the same at every temperature.""")
slip("temperature after the softmax", KNOB,
     {" / temperature": "", SOFTMAX: f"{SOFTMAX} / temperature"},
     {" / temperature": "", SOFTMAX: f"{SOFTMAX} * temperature"},
     {" / temperature": "", SOFTMAX: f"{SOFTMAX} ** (1 / temperature)"},  # and not normalised again
     words="""
    The weights were divided by the temperature, so a row no longer sums to one, and its weights stand in the same
    proportion as before. The temperature changes proportions only if it acts on the scores.""")
slip("exponentials out of range", ("very cold",),
     {SOFTMAX: f"scores.exp(){SHARED_OUT}"},
     {SOFTMAX: f"(scores - scores.max()).exp(){SHARED_OUT}"},  # the other rows underflow
     words="""
    Near temperature 0 the scores grow large, exp(89) is more than float32 can hold, and ∞/∞ is NaN. Softmax does not
    change when the same number is taken from every score of a row: take each row's own maximum away first, or let
    `softmax` do it.""")
slip("no exponentials", WEIGHTS, {SOFTMAX: "scores / scores.sum(dim=-1, keepdim=True)"}, words="""
    The scores themselves were divided by their sum. Scores may be negative, and may add up to 0, so such weights can be
    negative or enormous. The softmax goes in proportion to the *exponentials*, which are positive.""")
slip("no softmax", WEIGHTS, {SOFTMAX: "scores"}, words="""
    The bare scores were used as weights. They may have any size and sign, and a row of them sums to anything: that is
    no average. Softmax comes in between.""")
slip("sigmoid for softmax", WEIGHTS, {SOFTMAX: "scores.sigmoid()"}, words="""
    Each score went through a sigmoid by itself, so the weights of a row do not compete and do not sum to one. Softmax
    gives all keys weights that sum to one.""")
slip("another temperature", ("temperature",),
     {"/ temperature": "/ temperature**0.5"},
     {"/ temperature": "/ temperature**2"}, words="""
    The temperature was squared, or its root was taken. At temperature 1 that makes no difference; elsewhere it does.
    The scores are divided by T itself.""")
slip("softmax twice", WEIGHTS, {SOFTMAX: f"{SOFTMAX}.softmax(dim=-1)"}, words="""
    The weights went through softmax a second time. They lie between 0 and 1, and softmax takes them for scores so close
    together that it makes them nearly equal. Once is enough.""")
slip("by the angle alone", WEIGHTS,
     {"query @ keys.mT": "torch.cosine_similarity(query[:, None], keys, dim=-1)"}, words="""
    Query and keys were brought to length one first, so only their directions counted (cosine similarity). That is a
    reasonable score, but the dot product is asked for: leave the vectors as they come.""")
slip("averages the keys", (*OUTPUT, "gradient"), {AVERAGE: "weights @ keys"}, words="""
    The keys were averaged. They are only what the query is compared with; the answer is made of the values, and is as
    wide as they are.""")
slip("plain mean", (*OUTPUT, "gradient"), {AVERAGE: "values.mean(dim=0).expand(len(query), -1)"}, words="""
    Every value counted the same, so every query received the same answer. That is mean pooling. The weights are what
    makes it a lookup: use them.""")
slip("divided once more", OUTPUT, {AVERAGE: "weights @ values / len(keys)"}, words="""
    The weights already sum to one, so their weighted sum is an average. Dividing by the number of keys (or taking
    `mean` where a sum is meant) shrinks it, and the longer the table, the more.""")
slip("best match only", (*WEIGHTS, "gradient"),
     {SOFTMAX: "torch.nn.functional.one_hot(scores.argmax(dim=-1), len(keys)).float()"}, words="""
    All the weight is on one key: a hard lookup. It says nothing about the second best, and it has no gradient, so
    nobody could learn what to ask for. Normalise by softmax.""")
slip("scaled by √d", ("weights", "temperature"),
     {" / temperature": " / keys.shape[-1] ** 0.5 / temperature"}, words="""
    Dividing by √d is the scaled dot product, one of the next exercises. Here the temperature alone decides how sharp
    the lookup is.""")
slip("scores for weights", ("weights", "output", *KNOB), {"values, weights": "values, scores"}, words="""
    What came back as weights are scores, from before the softmax: they do not sum to one. Hand back what you averaged
    with.""")
slip("the two in the wrong order", ("output", *WEIGHTS, "gradient"),
     {f"{AVERAGE}, weights": f"weights, {AVERAGE}"}, words="""
    Both are there, the other way round: the output is returned first, then the weights.""")
slip("cut off from the gradient", ("gradient",),
     {f"{AVERAGE}, weights": f"({AVERAGE}).detach(), weights.detach()"},
     {SOFTMAX: f"{SOFTMAX}.detach()"},
     {f"{AVERAGE}, weights": f"{AVERAGE}, weights.detach()"},  # a loss on the weights has no way back
     {AVERAGE: "weights @ values.detach()"},
     {"keys.mT": "keys.detach().mT"}, words="""
    The numbers are right, but the gradient does not get through: `.detach()`, `.item()`, `.data`, numpy and
    `torch.tensor(...)` forget where numbers came from. That a lookup can be learned is the point of making it soft:
    stay with tensor operations.""")


# ------------------------------------------------------------------------------------------------ right in other styles


@alternative("exponentials by hand")
def exponentials_by_hand(query, keys, values, temperature):
    """Takes each row's maximum away before the exponentials."""
    scores = torch.einsum("qd,kd->qk", query, keys) / temperature
    exponentials = torch.exp(scores - scores.amax(dim=1, keepdim=True))
    weights = exponentials / exponentials.sum(dim=1, keepdim=True)
    return torch.einsum("qk,kv->qv", weights, values), weights


@alternative("one query at a time")
def one_query_at_a_time(query, keys, values, temperature):
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


@alternative("a cooler query, float64, not contiguous")
def a_cooler_query_float64_not_contiguous(query, keys, values, temperature):
    """Divides the query by the temperature, works on the transposed table, in double precision."""
    weights = torch.softmax(keys.double() @ (query.double() / temperature).mT, dim=0)
    return (values.double().mT @ weights).mT, weights.mT
