"""lookup_gradient: the way back through a soft lookup, by hand: what a loss asks of query, keys and values."""

import torch

from lessonkit.exercises.exercise import Exercise
from lessonkit.exercises.observe import apart, require_variation

from .common import READY_MADE


def solution(query, keys, values, temperature, upstream):
    weights = (query @ keys.mT / temperature).softmax(dim=-1)            # (n_query, n_keys)
    output = weights @ values                                            # (n_query, d_v)
    own = upstream @ values.mT                                           # (n_query, n_keys)
    mixed = (upstream * output).sum(dim=-1, keepdim=True)                # (n_query, 1)
    at_scores = weights * (own - mixed) / temperature                    # (n_query, n_keys)
    return at_scores @ keys, at_scores.mT @ query, weights.mT @ upstream


exercise = Exercise(
    "lookup_gradient",
    reference=solution,
    solution=solution,
    returns=("at_query", "at_keys", "at_values"),
    forbidden=(*READY_MADE, "torch.autograd", "torch.func"),
    difficulty=3,
    minutes=20,
    hints=(
        "Begin at the values. How much does output i change if value j changes a little? Value j is part of every "
        "query's output, so add up over the queries: an (n_keys, d_v) from weights and `upstream`. Which of the two "
        "has to be transposed?",
        "Then the scores. The lecture's equation gives a vector here, α (v − c): how each of the d_v numbers of an "
        "output changes with the score. `upstream` says how much each of them matters to the loss: a dot product with "
        "`upstream`, once of the key's own value, once of what the query got. That makes a table (n_query, n_keys).",
        "A dot product q · k changes by k if q changes, and by q if k changes. So from the table of the scores to the "
        "query it takes a product with the keys, and to the keys one with the queries; both add up over the axis that "
        "is not asked for. Between dot products and softmax stands a division by T: what does the chain rule make of "
        "it?",
    ),
)
aspect, slip, misconception, variant, alternative = exercise.decorators()


def _a_table(draw):
    """Query, keys, values, and a gradient at the output: all of different lengths and widths."""
    n_query, n_keys, d_k, d_v = draw.sizes(4, 3, 9)
    shapes = (n_query, d_k), (n_keys, d_k), (n_keys, d_v), (n_query, d_v)
    return [draw.normal(*shape) for shape in shapes]


def _gradients(answer, draw):
    """At query, keys and values, of one lookup at temperature 1."""
    query, keys, values, upstream = _a_table(draw)
    return answer(query, keys, values, 1.0, upstream)


# ----------------------------------------------------------------------------------------------------- what is observed


@aspect("values", points=2, hint=1)
def values(answer, draw):
    """a value gets the gradient of each output that it is part of, by its weight there"""
    return _gradients(answer, draw)[2]


@aspect("query", points=1, hint=2)
def query(answer, draw):
    """a query is drawn towards keys whose value serves the loss better than the output does"""
    return _gradients(answer, draw)[0]


@aspect("keys", points=1, hint=3)
def keys(answer, draw):
    """a key hears from all the queries"""
    return _gradients(answer, draw)[1]


@aspect("temperature", points=1, hint=3)
def temperature(answer, draw):
    """a lookup at temperature T is one at temperature 1 of a query T times as short, and so are its gradients"""
    query, keys, values, upstream = _a_table(draw)
    t = 1.5 + draw.uniform(1).item()
    at_query, at_keys, at_values = answer(query, keys, values, t, upstream)
    other_query, other_keys, other_values = answer(query / t, keys, values, 1.0, upstream)
    require_variation(at_query)
    pairs = ((t * at_query, other_query), (at_keys, other_keys), (at_values, other_values))
    return torch.cat([apart(found, other).flatten() for found, other in pairs])


# -------------------------------------------------------------------------------------- one slip away from the solution

BOTH, ALL = ("query", "keys"), ("values", "query", "keys")
WEIGHTS, AT_VALUES = "(query @ keys.mT / temperature)", "weights.mT @ upstream"
INNER = "(own - mixed)"

slip("the output not subtracted", BOTH, {INNER: "own"}, words="""
    A score's gradient is the weight times the pull of the key's own value. But more weight for one key means less for
    all the others, who made the output: what counts is how much *better* the value is than the output. Add the same
    number to all values: your gradient at the query changes, and it should not.""")
slip("the weight left out", BOTH, {f"weights * {INNER}": INNER}, words="""
    How far a value lies from the output is one factor of its pull, and the weight of its key is the other. Without the
    weight a key that takes no part would pull as hard as one that decides the output.""")
slip("only the diagonal", BOTH,
     {f"weights * {INNER}": "weights * (1 - weights) * own"}, words="""
    α(1 − α) is how a weight changes with its *own* score. A score changes the weights of all the other keys as well,
    each by −α_i α_j. Their values are missing here.""")
slip("distance from the mean", BOTH,
     {"output = weights @ values": "output = values.mean(dim=0).expand(len(query), -1)"}, words="""
    The distances were taken from the plain mean of the values. What a key pulls away from is the output of this query,
    which is the mean by its weights.""")
slip("one output for all", BOTH,
     {"(upstream * output).sum(dim=-1, keepdim=True)": "(upstream * output).sum()"},
     {"(upstream * output).sum(dim=-1, keepdim=True)": "(upstream * output).sum(dim=-1).mean()"}, words="""
    The part that is subtracted was added up over the queries as well. Each query has an output of its own, and its
    distances are taken from that: one number for each row, (n_query, 1).""")
slip("upstream ignored", ALL,
     {"weights = ": "upstream = torch.ones_like(upstream)\nweights = "}, words="""
    This is the gradient of the *sum* of all outputs. `upstream` says how much the loss changes with each number of the
    output; a loss may want one of them to rise and another to fall.""")
slip("downhill", ALL, {"weights = ": "upstream = -upstream\nweights = "}, words="""
    All signs are turned: this is the step that gradient descent would take. The gradient itself points uphill.""")
slip("the mean over the queries", ("values", "keys"),
     {"weights.mT @ upstream": "weights.mT @ upstream / len(query)",
      "at_scores.mT @ query": "at_scores.mT @ query / len(query)"}, words="""
    Keys and values got the mean over the queries. The loss changes by the sum of what each query's output does: who
    takes part in many outputs has a larger gradient.""")
slip("added up on either side", ("values",),
     {AT_VALUES: "weights.sum(dim=0)[:, None] * upstream.mean(dim=0)"},
     {AT_VALUES: "weights.sum(dim=0)[:, None] * upstream.sum(dim=0)"}, words="""
    Weights and `upstream` were each added up over the queries, and then multiplied. A query's weight belongs to its own
    row of `upstream`: multiply first, then add. That is a matrix product.""")
slip("the weights left out of the values", ("values",),
     {AT_VALUES: "upstream.sum(dim=0).expand(len(values), -1)"}, words="""
    Every value got the same gradient. A value matters to an output by its weight there, and no more.""")
slip("T forgotten on the way back", ("temperature",), {f"{INNER} / temperature": INNER}, words="""
    The scores were divided by T on the way forward, so their gradient is divided by T on the way back. At T = 1 one
    does not see it.""")
slip("T forgotten on the way forward", ("temperature",), {WEIGHTS: "(query @ keys.mT)"}, words="""
    The weights are those of temperature 1. The gradient belongs to the lookup at temperature T: compute its weights
    first.""")
slip("T multiplied on the way back", ("temperature",), {f"{INNER} / temperature": f"{INNER} * temperature"}, words="""
    The gradient was multiplied by T. What is divided on the way forward is divided on the way back: a larger T makes
    the scores, and all that follows, less sensitive.""")
slip("softmax over the queries", ALL, {"dim=-1)            #": "dim=0)            #"}, words="""
    The weights were normalised over the queries. It is the query whose weights sum to one over the keys.""")
slip("keys and queries exchanged", (*BOTH, "temperature"),
     {"return at_scores @ keys, at_scores.mT @ query": "return at_scores.mT @ query, at_scores @ keys"}, words="""
    Both are there, in the wrong places: first the gradient at the query, with a row for each query, then the one at the
    keys.""")


# ------------------------------------------------------------------------------------------------ right in other styles


@alternative("the softmax's table of slopes")
def the_softmaxs_table_of_slopes(query, keys, values, temperature, upstream):
    """∂α_j / ∂e_i for every pair of keys, written out, and the chain rule step by step."""
    weights = torch.softmax(query @ keys.mT / temperature, dim=1)
    at_weights = upstream @ values.mT
    slopes = torch.diag_embed(weights) - weights[:, :, None] * weights[:, None, :]
    at_dots = torch.einsum("qj,qji->qi", at_weights, slopes) / temperature
    return at_dots @ keys, at_dots.mT @ query, torch.einsum("qk,qv->kv", weights, upstream)


@alternative("a loop over pairs")
def a_loop_over_pairs(query, keys, values, temperature, upstream):
    """One query and one key at a time, and sums that grow."""
    at_query, at_keys, at_values = torch.zeros_like(query), torch.zeros_like(keys), torch.zeros_like(values)
    for i, (q, g) in enumerate(zip(query, upstream, strict=True)):
        weights = (keys @ q / temperature).softmax(dim=0)
        output = weights @ values
        for j, weight in enumerate(weights):
            pull = weight * (g @ (values[j] - output)) / temperature
            at_query[i] += pull * keys[j]
            at_keys[j] += pull * q
            at_values[j] += weight * g
    return at_query, at_keys, at_values


@alternative("all distances, float64, not contiguous")
def all_distances_float64_not_contiguous(query, keys, values, temperature, upstream):
    """The distance of each value from each output as a table with three axes, in double precision; transposed views."""
    query, keys, values, upstream = (x.double() for x in (query, keys, values, upstream))
    weights = torch.softmax(keys @ (query / temperature).mT, dim=0).mT
    apart = values[None] - (weights @ values)[:, None]                   # (n_query, n_keys, d_v)
    pulls = weights * torch.einsum("qkv,qv->qk", apart, upstream)
    return (keys.mT @ pulls.mT).mT / temperature, pulls.mT @ (query / temperature), (upstream.mT @ weights).mT
