"""attention_rollout: How much of each input token there is in each token at the top."""

import torch

from attncourse import beyond_text
from lessonkit.exercises.exercise import Exercise
from lessonkit.exercises.judge import explain_worst
from lessonkit.exercises.observe import apart, require_variation

from .common import READY_MADE


def solution(weights):
    tables = (weights.mean(dim=2) + torch.eye(weights.shape[-1])) / 2  # (batch, n_layers, n, n)
    rolled = tables[:, 0]
    for layer in range(1, tables.shape[1]):
        rolled = tables[:, layer] @ rolled
    return rolled


exercise = Exercise(
    "attention_rollout",
    reference=beyond_text.attention_rollout,
    solution=solution,
    returns=("shares",),
    forbidden=READY_MADE,
    difficulty=2,
    minutes=15,
    extra=True,
    hints=(
        "One layer: average its weights over the heads, and let half of each token stay where it is. What do the rows "
        "sum to?",
        "Two layers: what reaches token i through layer 2 comes from tokens j, and what those hold came through layer "
        "1 from tokens k. Summing over j is a matrix product. Which layer stands on the left?",
    ),
)
aspect, slip, misconception, variant, alternative = exercise.decorators()


def _tables(draw, n_layers):
    batch, n_heads, n = draw.sizes(3, 2, 6)
    return (2 * draw.normal(batch, n_layers, n_heads, n, n)).softmax(dim=-1)


# ----------------------------------------------------------------------------------------------------- what is observed


@aspect("one layer", points=1, hint=1)
def one_layer(answer, draw):
    """the heads' mean, half and half with the residual path"""
    return answer(_tables(draw, 1))


@aspect("several layers", points=1, hint=2, explain=explain_worst("it differs by {size} at {place}"))
def several_layers(answer, draw):
    """a stack is its upper part after its lower part, wherever it is cut: their product, with the upper on the left"""
    weights = _tables(draw, 4)
    whole = require_variation(answer(weights))
    cut = torch.stack([answer(weights[:, below:]) @ answer(weights[:, :below]) for below in (1, 2, 3)])
    return apart(whole.expand_as(cut), cut)


# -------------------------------------------------------------------------------------- one slip away from the solution

ONE = ("one layer",)
SEVERAL = ("several layers",)
TABLES = "(weights.mean(dim=2) + torch.eye(weights.shape[-1])) / 2"

slip("no residual path", ONE, {TABLES: "weights.mean(dim=2)"}, words="""
    The tables alone were multiplied. Beside every attention there is a residual path on which each token keeps what it
    was (lecture @deep_stacks): mix in the identity.""")

slip("not halved", ONE, {" / 2": ""}, words="""
    A + I, and the rows sum to 2, 4, 8 from layer to layer. They are to be shares: take half of it.""")

slip("the layers in the wrong order", SEVERAL, {"tables[:, layer] @ rolled": "rolled @ tables[:, layer]"}, words="""
    The first layer stands on the left. Rows are the tokens at the top, columns those of the input: what comes last in
    the network is what a row meets first. Try it with two layers, and follow one token down.""")

slip("the mean of the layers", SEVERAL, {"return rolled": "return tables.mean(dim=1)"}, words="""
    The layers' tables were averaged. They do not stand side by side, they follow each other: what a layer moves, the
    next one moves on. That is a product.""")

slip("multiplied cell by cell", SEVERAL, {"@ rolled": "* rolled"}, words="""
    `*` multiplies cell by cell: only what goes straight from k to i in *every* layer is left. Paths may change tokens
    on the way: `@` sums over all of them.""")

slip("the heads summed", ONE, {"weights.mean(dim=2)": "weights.sum(dim=2)"}, words="""
    The heads' tables were added up, so that the rows sum to the number of heads. Take their mean, and each row still
    sums to 1.""")

slip("a layer is left out", SEVERAL,
     {"range(1, tables.shape[1])": "range(1, tables.shape[1] - 1)"},
     {"range(1, tables.shape[1])": "range(2, tables.shape[1])"}, words="""
    One layer's table is not in the product. `range(a, b)` ends before b: with the first layer as the start, the others
    are 1 to n_layers − 1, all of them.""")

slip("one head for all", ONE,
     {"weights.mean(dim=2)": "weights.amax(dim=2)"},
     {TABLES: "weights.amax(dim=2) + torch.eye(weights.shape[-1])\ntables = tables / tables.sum(dim=-1, keepdim=True)"},
     {"weights.mean(dim=2)": "weights[:, :, 0]"},
     words="""
    For each pair one head spoke for all of them: the strongest, or the first. That is done, too; here every head counts
    the same, and their mean is taken.""")

slip("the last layer alone", SEVERAL, {"return rolled": "return tables[:, -1]"}, words="""
    Only the last layer was looked at. Its tokens have been mixed by all layers before it: what it says of token 5 is
    not about patch 5.""")


# ------------------------------------------------------------------------------------------------ right in other styles


@alternative("einsum, from the top down")
def einsum_from_the_top_down(weights):
    """Starts with the last layer and goes down, in double precision."""
    n_layers, n = weights.shape[1], weights.shape[-1]
    steps = 0.5 * weights.double().mean(2) + 0.5 * torch.eye(n, dtype=torch.double)
    rolled = steps[:, n_layers - 1]
    for layer in range(n_layers - 2, -1, -1):
        rolled = torch.einsum("bij,bjk->bik", rolled, steps[:, layer])
    return rolled


@alternative("image by image")
def image_by_image(weights):
    """A loop, and functools.reduce."""
    from functools import reduce

    one = torch.eye(weights.shape[-1])
    return torch.stack([
        reduce(lambda rolled, table: (table.mean(0) + one) / 2 @ rolled, layers, one) for layers in weights
    ])


@alternative("token by token")
def token_by_token(weights):
    """Follows each token of the top down, one row of shares at a time."""
    layers = (weights.mean(2) + torch.eye(weights.shape[-1])) / 2                    # (batch, n_layers, n, n)
    rows = []
    for i in range(weights.shape[-1]):
        share = layers[:, -1, i]                                                     # (batch, n)
        for layer in reversed(range(layers.shape[1] - 1)):
            share = (share[:, :, None] * layers[:, layer]).sum(dim=1)
        rows.append(share)
    return torch.stack(rows, dim=1)
