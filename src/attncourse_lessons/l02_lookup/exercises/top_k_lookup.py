"""top_k_lookup: A soft lookup, by scaled dot products, among the k keys that match a query best."""

import math

import torch

from lessonkit.exercises.exercise import Exercise
from lessonkit.exercises.way_back import explain_way_back, way_back

from .common import READY_MADE


def reference(query, keys, values, k):
    """A soft lookup by scaled dot products among the k best keys of each query."""
    best = (query @ keys.mT / math.sqrt(keys.shape[-1])).topk(k, dim=-1)
    return (best.values.softmax(dim=-1)[..., None] * values[best.indices]).sum(dim=-2)


def solution(query, keys, values, k):
    scores = query @ keys.mT / math.sqrt(keys.shape[-1])   # (n_query, n_keys)
    best = scores.topk(k, dim=-1)                          # values, indices: (n_query, k)
    weights = best.values.softmax(dim=-1)                  # (n_query, k)
    return (weights[..., None] * values[best.indices]).sum(dim=-2)


exercise = Exercise(
    "top_k_lookup",
    reference=reference,
    solution=solution,
    returns=("output",),
    forbidden=READY_MADE,
    difficulty=2,
    minutes=15,
    extra=True,
    hints=(
        "`scores.topk(k, dim=-1)` gives the k largest numbers of each row, and the places where they stand.",
        "Either take the softmax of those k alone, and gather their values by `values[places]`, (n_query, k, d_v); or "
        "give all other keys a score that softmax turns into exactly 0. The places have no gradient, and need none; "
        "the scores and the values keep theirs.",
    ),
)
aspect, slip, misconception, variant, alternative = exercise.decorators()


# ----------------------------------------------------------------------------------------------------- what is observed


@aspect("the k best", points=1, hint=1)
def the_k_best(answer, draw):
    """the k best keys of each query have all the weight"""
    n_query, d_k, d_v = draw.sizes(3, 4, 9)
    n_keys = 12
    return answer(draw.normal(n_query, d_k), draw.normal(n_keys, d_k), draw.normal(n_keys, d_v), 3)


@aspect("all of them", points=1, hint=2)
def all_of_them(answer, draw):
    """with k = n_keys it is the soft lookup, by scaled dot products"""
    n_query, n_keys, d_k, d_v = draw.sizes(4, 3, 9)
    return answer(draw.normal(n_query, d_k), draw.normal(n_keys, d_k), draw.normal(n_keys, d_v), n_keys)


@aspect("gradient", points=1, hint=2, explain=explain_way_back("query", "keys", "values"))
def gradient(answer, draw):
    """query, keys and values can all be learned"""
    n_keys, d_k, d_v = draw.sizes(3, 4, 9)
    shapes = (1, d_k), (n_keys, d_k), (n_keys, d_v)
    # Small vectors: where one weight is next to 1, hardly anything goes back through the scores.
    table = [(draw.normal(*shape) / shape[-1] ** 0.5).requires_grad_() for shape in shapes]
    return way_back(answer(*table, 3), exercise.reference(*table, 3), table, draw)


# -------------------------------------------------------------------------------------- one slip away from the solution

CHOICE, ALL = ("the k best",), ("the k best", "all of them")
SOFTMAX = "best.values.softmax(dim=-1)"

slip("scaled by the values' width", ALL, {"keys.shape[-1]": "values.shape[-1]"}, words="""
    The scores were scaled by the width of the values. The dot product was taken between query and key, so it is their
    width that made it large; the values have not come in yet.""")
slip("scaled by the number of keys", ALL, {"keys.shape[-1]": "len(keys)"}, words="""
    The scores were scaled by how *many* keys there are. What makes a dot product large is how wide one key is.""")
slip("scaled by how many are kept", ALL, {"keys.shape[-1]": "k"}, words="""
    The scores were divided by √k, by how *many* keys are kept. What makes a dot product large is how wide one key is:
    √d_k.""")
slip("multiplied in place of divided", ALL, {" / math": " * math"}, words="""
    The scores were multiplied by √d_k, which makes large ones larger still. The aim is the opposite: scores of size
    about 1, whatever the width.""")
slip("no root", ALL,
     {"math.sqrt(keys.shape[-1])": "keys.shape[-1]"},
     {"math.sqrt(keys.shape[-1])": "8"}, words="""
    The scores were divided, but not by √d_k: by d_k itself, or by a number in the code. The scale is the *root* of the
    width over which the dot products add up.""")
slip("softmax over the queries", (*ALL, "gradient"),
    {"softmax(dim=-1)": "softmax(dim=0)"}, words="""
    The softmax ran down the table, so that the queries shared out each key. Each query shares out one over its own k
    best: along the last axis.""")
slip("not scaled", ALL, {" / math.sqrt(keys.shape[-1])": ""}, words="""
    The right keys were found, and their weights come from plain dot products. Scaled ones are asked for: √d_k does not
    change who is among the best, but it changes the weights.""")
slip("cut after the softmax", CHOICE, {"scores.topk": "scores.softmax(dim=-1).topk", SOFTMAX: "best.values"}, words="""
    Every key got a weight, and then all but the best k lost theirs: what they had was not given back, so the weights of
    the best do not sum to one. Choose first, then take the softmax.""")
slip("a score of 0 for the others", CHOICE,
     {SOFTMAX: "torch.zeros_like(scores).scatter(-1, best.indices, best.values).softmax(dim=-1)",
      "(weights[..., None] * values[best.indices]).sum(dim=-2)": "weights @ values"}, words="""
    The other keys were given the score 0, and softmax turns that into exp(0) = 1, more than any negative score gets.
    Which score becomes a weight of exactly 0?""")
slip("the k worst", CHOICE,
     {"topk(k, dim=-1)": "topk(k, dim=-1, largest=False)"},
     {"topk(k, dim=-1)": "sort(dim=-1)", "best.values": "best.values[:, :k]", "best.indices": "best.indices[:, :k]"},
     words="""
    The k smallest scores were kept. A dot product is a likeness: the larger, the better the match.""")
slip("one key too few", ALL, {"topk(k, ": "topk(k - 1, "}, words="""
    Each query has k − 1 keys: the last of the best is missing. If you compare the scores with the k-th best, that one
    itself may stay.""")
slip("the first values", ALL, {"values[best.indices]": "values[:k]"}, words="""
    The weights of the k best met the values that stand *first*. `topk` returns the places where the best were found,
    for each query its own: the values of these places belong to the weights.""")
slip("equal weights", (*ALL, "gradient"), {SOFTMAX: "torch.full_like(best.values, 1 / k)"}, words="""
    The best keys were found, and then all of them counted the same. Among the k, the better match still gets more.""")

slip("averages the keys", (*ALL, "gradient"), {"values[best.indices]": "keys[best.indices]"}, words="""
    The keys were averaged. They are only what the query is compared with; the answer is made of the values, and is as
    wide as they are.""")
slip("cut off from the gradient", ("gradient",),
     {"scores.topk": "scores.detach().topk"},
     {"values[best": "values.detach()[best"},
     {"query @ keys.mT": "query @ keys.detach().mT"},
     {"return ": "return (", ".sum(dim=-2)": ".sum(dim=-2)).detach()"}, words="""
    The numbers are right, but the gradient does not get through: `.detach()`, `.tolist()`, numpy and
    `torch.tensor(...)` forget where numbers came from. Which keys are chosen has no gradient; how much each of them
    gets has one, and it leads back to query and keys.""")


slip("the values in the table's order", ALL,
     {"values[best.indices]": "values[best.indices.sort(dim=-1).values]"}, words="""
    The right values were taken, and the right weights, but they do not belong to each other: `topk` hands back the best
    key first, and the values stand in the order of the table. The weight at one place belongs to the index at the same
    place.""")


# ------------------------------------------------------------------------------------------------------ further from it


@misconception("the k-th best of the whole table", fails=ALL)
def the_kth_best_of_the_whole_table(query, keys, values, k):
    """The limit was the k-th best score of the whole table, so a query whose scores are low keeps few keys or none.
    Each query has its own k best: look for the limit along each row."""
    scores = query @ keys.mT / math.sqrt(keys.shape[-1])
    limit = scores.flatten().topk(k).values[-1]
    return scores.masked_fill(scores < limit, -1e9).softmax(dim=-1) @ values


@misconception("keys chosen for all queries at once", fails=CHOICE)
def keys_chosen_for_all_queries_at_once(query, keys, values, k):
    """One set of k keys was chosen for all queries together. What matters is different for each query: choose along
    each row."""
    scores = query @ keys.mT / math.sqrt(keys.shape[-1])
    places = scores.mean(dim=0).topk(k).indices
    return scores[:, places].softmax(dim=-1) @ values[places]


# ------------------------------------------------------------------------------------------------ right in other styles


@alternative("−∞ for the others")
def for_the_others(query, keys, values, k):
    """Fills in what softmax turns into nothing."""
    scores = query @ keys.T * keys.shape[-1] ** -0.5
    least = scores.topk(k, dim=-1).values[:, -1:]
    return scores.masked_fill(scores < least, float("-inf")).softmax(dim=-1) @ values


@alternative("one query at a time, float64")
def one_query_at_a_time_float64(query, keys, values, k):
    """Sorts the keys for each query, in double precision."""
    rows = []
    for q in query.double():
        scores = keys.double() @ q / math.sqrt(len(q))
        order = sorted(range(len(keys)), key=lambda i: -scores[i].item())[:k]
        rows.append(torch.softmax(scores[order], dim=0) @ values.double()[order])
    return torch.stack(rows)


@alternative("after the softmax, normalised again")
def after_the_softmax_shared_out_again(query, keys, values, k):
    """Dividing by what is left comes to the same."""
    weights = (query @ keys.mT / math.sqrt(keys.shape[-1])).softmax(dim=-1)
    kept = weights.topk(k, dim=-1)
    sparse = torch.zeros_like(weights).scatter(-1, kept.indices, kept.values)
    return sparse @ values / sparse.sum(dim=-1, keepdim=True)
