"""contributions: What each head adds to the layer's output."""

import torch

from lessonkit.exercises.exercise import Exercise
from lessonkit.exercises.judge import explain_missing_gradient, explain_worst
from lessonkit.exercises.observe import apart, gradient_reaches, require_variation

from .common import READY_MADE


def reference(heads, W_O):
    """Each head times its own rows of W_O. Elhage et al. 2021, "attention heads as independent and additive"."""
    return torch.einsum("bhnv,hvd->bhnd", heads, W_O.unflatten(0, (heads.shape[1], heads.shape[3])))


def solution(heads, W_O):
    blocks = W_O.unflatten(0, (heads.shape[1], -1))        # (n_heads, d_v, d_model)
    return heads @ blocks                                  # (batch, n_heads, n, d_model)


exercise = Exercise(
    "contributions",
    reference=reference,
    solution=solution,
    returns=("parts",),
    forbidden=READY_MADE,
    difficulty=2,
    minutes=12,
    hints=(
        "Concatenation puts head 0's numbers into the first d_v columns, head 1's into the next. With which rows of "
        "W_O does the product multiply these columns? Those rows are all that the head has to do with W_O.",
        "If all heads but one were zero, what would the layer return? That is this head's contribution, and all "
        "contributions together are the output. Cut the first axis of W_O in two, so that one is an axis of heads.",
        "Both the heads' outputs and W_O must be able to learn: stay with tensor operations.",
    ),
)
aspect, slip, misconception, variant, alternative = exercise.decorators()


def _layer(draw):
    """[heads, W_O], no two sizes alike: W_O is not square, and of two heads either would be all the others."""
    batch, n_heads, n, d_v, d_model = draw.sizes(5, 3, 9)
    return [draw.normal(batch, n_heads, n, d_v), draw.normal(n_heads * d_v, d_model)]


# ----------------------------------------------------------------------------------------------------- what is observed


@aspect("each head", points=2, hint=1)
def each_head(answer, draw):
    """each head's output, times its own rows of W_O"""
    return answer(*_layer(draw))


@aspect("the sum", points=1, hint=2)
def the_sum(answer, draw):
    """added over the heads, the contributions are the layer's output"""
    return answer(*_layer(draw)).sum(dim=1)


@aspect("heads apart", points=1, hint=2,
        explain=explain_worst("at {place} it changes by {size} when only another head does"))
def heads_apart(answer, draw):
    """what a head adds does not depend on the other heads"""
    heads, W_O = _layer(draw)
    kept = 1 + int(draw.integers(heads.shape[1] - 1, 1))  # one that has others before it
    other = draw.normal(*heads.shape)
    other[:, kept] = heads[:, kept]
    return apart(require_variation(answer(heads, W_O)[:, kept]), answer(other, W_O)[:, kept])


@aspect("gradient", points=1, hint=3, explain=explain_missing_gradient("heads", "W_O"))
def gradient(answer, draw):
    """the heads and W_O can both be learned"""
    inputs = [tensor.requires_grad_() for tensor in _layer(draw)]
    return gradient_reaches(answer(*inputs), inputs, draw)


# -------------------------------------------------------------------------------------- one slip away from the solution

VALUES = ("each head", "the sum")
ALL = (*VALUES, "heads apart")
BLOCKS, PRODUCT = "W_O.unflatten(0, (heads.shape[1], -1))", "return heads @ blocks"

slip("rows dealt out", VALUES, {BLOCKS: "W_O.unflatten(0, (-1, heads.shape[1])).transpose(0, 1)"}, words="""
    Head 0 got the rows 0, h, 2h, … of W_O. Concatenation puts the heads side by side, all of head 0 first: its rows of
    W_O are neighbours. Which of the two new axes comes first when the rows are cut?""")
slip("the first rows for all", VALUES,
     {BLOCKS: "W_O[: heads.shape[3]]"},
     words="""
    Every head was multiplied by the same rows of W_O, those of head 0. Each head has d_v rows of its own.""")
slip("added up", ALL, {PRODUCT: "return (heads @ blocks).sum(dim=1)"}, words="""
    The contributions were added over the heads: this is the layer's output. Asked for is what each head adds, with the
    heads' axis still there.""")
slip("heads after the tokens", ALL, {PRODUCT: "return (heads @ blocks).transpose(1, 2)"}, words="""
    The contributions are right, and the axes are (batch, n, n_heads, d_model). The contract has the heads in front of
    the tokens.""")
slip("tokens of different heads mixed", ALL,
     {PRODUCT: "batch, h, n, d_v = heads.shape\nreturn heads.reshape(batch, n, h, d_v).transpose(1, 2) @ blocks"},
     words="""
    The heads' outputs were read in another order before the product: `reshape` moves no number, so a head got rows of
    its neighbours. The heads stand where they should when they come in.""")
slip("tokens of different heads mixed", VALUES,
     {PRODUCT: "batch, h, n, d_v = heads.shape\n"
               "alone = torch.eye(h)[:, None, :, None, None] * heads\n"
               "return (alone.reshape(h, batch, n, h * d_v) @ W_O).transpose(0, 1)"})
slip("the matrix transposed", VALUES, {BLOCKS: "W_O.mT.reshape(heads.shape[1], heads.shape[3], -1)"}, words="""
    The blocks were cut from W_O transposed, as a linear layer stores its weight. W_O is (n_heads · d_v, d_model),
    and with rows as vectors it is used as it stands.""")
slip("what the other heads add", ALL,
     {PRODUCT: "parts = heads @ blocks\nreturn parts.sum(dim=1, keepdim=True) - parts"}, words="""
    This is what all the *other* heads add: the output without the head. Asked for is what the head itself adds: the
    output if all others are zero.""")
slip("all heads up to this one", ALL, {PRODUCT: "return (heads @ blocks).cumsum(dim=1)"}, words="""
    Each result holds the contributions of the heads before it, too: a running sum. Each head adds its own, whatever the
    others have added.""")
slip("a mean over the heads", VALUES,
     {PRODUCT: "return heads @ blocks / heads.shape[1]"}, words="""
    The contributions were divided by the number of heads. The product with W_O adds what the heads write, and there is
    no mean in it.""")
slip("cut off from the gradient", ("gradient",),
     {"heads @": "heads.detach() @"},
     {"W_O.unflatten": "W_O.detach().unflatten"},
     words="""
    The numbers are right, but the gradient does not get through to the heads, or to W_O: `.detach()`, `.data`, numpy
    and `torch.tensor(...)` forget where numbers came from.""")


# ------------------------------------------------------------------------------------------------------ further from it


@misconception("the output shared out evenly", fails=("each head", "heads apart"))
def the_output_shared_out_evenly(heads, W_O):
    """Every head got an equal share of the layer's output. The shares add up as they should, but they say nothing about
    the heads: one that found nothing adds nothing."""
    n_heads = heads.shape[1]
    output = heads.transpose(1, 2).flatten(2) @ W_O
    return (output / n_heads)[:, None].expand(-1, n_heads, -1, -1)


@misconception("a stretch of the output", fails=("each head", "heads apart"))
def a_stretch_of_the_output(heads, W_O):
    """Each head got a stretch of the layer's output, and zeros elsewhere. But every head writes to *all* columns of the
    output: W_O mixes what the heads found."""
    n_heads, d_model = heads.shape[1], W_O.shape[1]
    output = heads.transpose(1, 2).flatten(2) @ W_O
    owner = torch.arange(d_model) * n_heads // d_model
    return output[:, None] * (owner == torch.arange(n_heads)[:, None])[:, None]


@misconception("the whole output for every head", fails=ALL)
def the_whole_output_for_every_head(heads, W_O):
    """Every head got the whole output of the layer, so their sum is n_heads times too large. A head adds what it would
    put out if all others were zero."""
    output = heads.transpose(1, 2).flatten(2) @ W_O
    return output[:, None].expand(-1, heads.shape[1], -1, -1)


@misconception("columns of W_O", fails=(*ALL, "gradient"))
def columns_of_W_O(heads, W_O):
    """W_O was cut along its columns. With rows as vectors, the heads' numbers meet the *rows* of W_O; every head writes
    to all of its columns."""
    return heads @ W_O.unflatten(1, (heads.shape[1], -1)).transpose(0, 1)


# ------------------------------------------------------------------------------------------------ right in other styles


@alternative("slices, stacked")
def slices_stacked(heads, W_O):
    """A loop over the heads."""
    d_v = heads.shape[3]
    return torch.stack([heads[:, i] @ W_O[i * d_v : (i + 1) * d_v] for i in range(heads.shape[1])], dim=1)


@alternative("all other heads silenced")
def all_other_heads_silenced(heads, W_O):
    """What the layer returns if all heads but one are zero, for each of them."""
    alone = torch.eye(heads.shape[1])[:, None, :, None, None] * heads            # (n_heads, batch, n_heads, n, d_v)
    return (alone.transpose(2, 3).flatten(3) @ W_O).transpose(0, 1)


@alternative("chunks, in float64")
def chunks_in_float64(heads, W_O):
    """einsum, head by head."""
    blocks = W_O.double().chunk(heads.shape[1])
    found = [torch.einsum("bnv,vd->nbd", heads[:, i].double(), block) for i, block in enumerate(blocks)]
    return torch.stack(found).permute(2, 0, 1, 3)
