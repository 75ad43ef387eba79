"""bilinear_score: how well each query matches each key, through a matrix that is learned. Luong et al. 2015."""

import torch
from torch import nn

from lessonkit.exercises.exercise import Exercise
from lessonkit.exercises.way_back import explain_way_back, way_back

from .common import READY_MADE


def reference(query, key, W):
    """qᵀ W k for each pair. Luong et al. 2015, section 3.1 ("general")."""
    return query @ W @ key.mT


def solution(query, key, W):
    return query @ W @ key.mT


exercise = Exercise(
    "bilinear_score",
    reference=reference,
    solution=solution,
    returns=("scores",),
    forbidden=(*READY_MADE, "torch.nn.functional.bilinear", "torch.nn.Bilinear"),
    difficulty=1,
    minutes=8,
    extra=True,
    hints=(
        "Which axis of W belongs to the query, which to the key? Its shape, (d_query, d_key), tells.",
        "`query @ W` is (batch, n_query, d_key): the queries, translated into the language of the keys. What is left "
        "is a dot product. (W is learned, so use the W that came in: a new `nn.Parameter(W)` is another matrix.)",
    ),
)
aspect, slip, misconception, variant, alternative = exercise.decorators()


# ----------------------------------------------------------------------------------------------------- what is observed


@aspect("scores", points=2, hint=2)
def scores(answer, draw):
    """queries and keys of different widths meet through W"""
    batch, n_query, n_key, d_query, d_key = draw.sizes(5, 2, 9)
    return answer(draw.normal(batch, n_query, d_query), draw.normal(batch, n_key, d_key), draw.normal(d_query, d_key))


@aspect("equal widths", points=1, hint=1)
def equal_widths(answer, draw):
    """a square W, too, leads from the query to the key and not back"""
    batch, n_query, n_key, d = draw.sizes(4, 2, 9)
    return answer(draw.normal(batch, n_query, d), draw.normal(batch, n_key, d), draw.normal(d, d))


@aspect("gradient", points=1, hint=2, explain=explain_way_back("query", "key", "W"))
def gradient(answer, draw):
    """query, key and W can all be learned"""
    batch, n_query, n_key, d = draw.sizes(4, 2, 9)
    shapes = (batch, n_query, d), (batch, n_key, d), (d, d)
    inputs = [draw.normal(*shape).requires_grad_() for shape in shapes]
    return way_back(answer(*inputs), reference(*inputs), inputs, draw)


# -------------------------------------------------------------------------------------- one slip away from the solution

ALL = ("scores", "equal widths")
SCORES = "query @ W @ key.mT"

slip("W transposed", ALL,
     {"W": "W.mT"},
     {SCORES: "(key @ W @ query.mT).mT"},
     {SCORES: "query @ (key @ W).mT"},
     {"query @ W": "nn.functional.linear(query, W)"},  # which keeps its weight the other way round
     words="""
    W was transposed. Its rows belong to the query and its columns to the key. Where the two widths differ
    torch refuses; where they happen to agree nothing crashes, and the scores are those of a different matrix.""")
slip("W left out", (*ALL, "gradient"), {" @ W": ""}, words="""
    This is the plain dot product. It needs query and key to speak the same language, and even to be equally wide; W is
    there to translate from one to the other.""")
slip("a row for each key", ALL, {SCORES: "key @ W.mT @ query.mT"}, words="""
    Rows and columns are swapped. Row i belongs to query i, because each query has weights over the
    keys: queries down the rows, keys along them.""")
slip("scaled by √d", ALL,
     {SCORES: f"{SCORES} / key.shape[-1] ** 0.5"},
     {SCORES: f"{SCORES} / query.shape[-1] ** 0.5"},
     {"W": "(W / W.shape[0] ** 0.5)"},  # the same, and leaves room for another slip
     {"W": "(W / W.shape[1] ** 0.5)"}, words="""
    The scores were divided by √d. The bilinear score has no such factor: a learned W finds its own scale.""")
slip("softmax already applied", ALL,
     {SCORES: f"({SCORES}).softmax(dim=-1)"},
     {"return ": "return torch.softmax(", ".mT": ".mT, dim=-1)"},  # the same, and leaves room for another slip
     words="""
    These are weights: each row sums to one. A score function ends before the softmax, and its numbers may have any size
    and sign.""")
slip("a tanh in between", ALL, {"query @ W": "torch.tanh(query @ W)"}, {SCORES: f"torch.tanh({SCORES})"}, words="""
    A nonlinearity was applied, and the bilinear score has none. tanh belongs to the additive score.""")
slip("reshaped for transposed", ALL, {"key.mT": "key.reshape(len(key), key.shape[-1], -1)"}, words="""
    `reshape` and `view` read the same numbers in the same order and only break the rows elsewhere, so a column then
    holds pieces of several keys. The shape fits and the numbers do not. Swap the two axes instead.""")
slip("W on both sides", ALL, {"key.mT": "(key @ W).mT"}, words="""
    Query *and* key were multiplied by W. It stands once between the two: it turns a query into something that a key can
    be compared with, and the key stays as it is.""")
slip("every table's keys", ALL, {SCORES: 'torch.einsum("bqi,ij,ckj->bqk", query, W, key)'}, words="""
    Queries met the keys of all tables of the batch, and their scores were added up: in the einsum the two tables have
    different letters. The first axis is the same table for both, so both need the same letter, and it stays in the
    result.""")
slip("`.T` on three axes", (*ALL, "gradient"), {".mT": ".T"}, words="""
    `.T` reverses the order of *all* axes of a tensor, the batch's too, and then the shapes do not fit. Within a batch
    only the last two axes change places: `.mT`, or `transpose(-2, -1)`.""")
slip("cut off from the gradient", ("gradient",),
     {"W": "W.detach()"},
     {"query": "query.detach()"},
     {"key": "key.detach()"},
     {SCORES: f"({SCORES}).detach()"}, words="""
    The numbers are right, but the gradient does not get through: `.detach()`, `.data`, `torch.tensor(...)` and a new
    `nn.Parameter(...)` forget where numbers came from. Use the tensors that came in.""")


# ------------------------------------------------------------------------------------------------------ further from it


@variant("a row for each key", "W transposed", fails=ALL)
def a_row_for_each_key_and_w_on_its_side(query, key, W):
    """And W on its side."""
    return key @ W @ query.mT


# ------------------------------------------------------------------------------------------------ right in other styles


@alternative("einsum over three")
def einsum_over_three(query, key, W):
    """The double sum of the definition."""
    return torch.einsum("bqi,ij,bkj->bqk", query, W, key)


@alternative("from the key's side")
def from_the_keys_side(query, key, W):
    """Translates the keys in place of the queries."""
    return query @ (key @ W.T).transpose(1, 2)


@alternative("a layer, float64, not contiguous")
def a_layer_float64_not_contiguous(query, key, W):
    """Hands the transposed weight to a linear layer, in double precision, and returns a transposed view."""
    translated = nn.functional.linear(query.double(), W.double().mT)
    return (key.double() @ translated.mT).mT


@alternative("a loop over the sentences and queries")
def a_loop_over_the_sentences_and_queries(query, key, W):
    """One query at a time."""
    tables = []
    for queries, keys in zip(query, key, strict=True):
        tables.append(torch.stack([keys @ (q @ W) for q in queries]))
    return torch.stack(tables)
