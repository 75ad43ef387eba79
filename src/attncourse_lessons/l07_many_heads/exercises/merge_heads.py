"""merge_heads: Put every token's pieces side by side: the inverse of `split_heads`."""

import torch

from lessonkit.exercises.exercise import Exercise
from lessonkit.exercises.judge import explain_missing_gradient
from lessonkit.exercises.observe import gradient_reaches

from .common import READY_MADE


def reference(heads):
    """(batch, n_heads, n, d_head) -> (batch, n, n_heads · d_head)."""
    return heads.transpose(1, 2).flatten(2)


def solution(heads):
    return heads.transpose(1, 2).flatten(2)


exercise = Exercise(
    "merge_heads",
    reference=reference,
    solution=solution,
    returns=("x",),
    forbidden=READY_MADE,
    difficulty=1,
    minutes=8,
    hints=(
        "It is `split_heads` backwards: the same two moves, the last one first.",
        "After the transpose the numbers lie in memory in a different order from the one in which they are now to be "
        "read. `view` refuses then; `reshape` and `flatten` make a copy.",
    ),
)
aspect, slip, misconception, variant, alternative = exercise.decorators()


def _heads(draw, n=None):
    batch, n_heads, length, d_head = draw.sizes(4, 3, 7)
    return draw.normal(batch, n_heads, n or length, d_head)


# ----------------------------------------------------------------------------------------------------- what is observed


@aspect("side by side", points=2, hint=1)
def side_by_side(answer, draw):
    """each token gets its heads' outputs, head 0's first"""
    return answer(_heads(draw))


@aspect("one token", points=1, hint=2)
def one_token(answer, draw):
    """works while a model writes, one token at a time"""
    return answer(_heads(draw, n=1))


@aspect("gradient", points=1, hint=2, explain=explain_missing_gradient("heads"))
def gradient(answer, draw):
    """the gradient finds its way back"""
    heads = _heads(draw).requires_grad_()
    return gradient_reaches(answer(heads), [heads], draw)


# -------------------------------------------------------------------------------------- one slip away from the solution

ORDER = ("side by side", "one token")
MERGED = "transpose(1, 2).flatten(2)"

slip("view without transpose", ("side by side",), {MERGED: "reshape(len(heads), heads.shape[2], -1)"}, words="""
    The shape is right and the numbers are not. `reshape` reads them in the order in which they lie, head after head, so
    the first row holds several tokens of head 0 and nothing of the other heads. First bring a token's pieces together:
    which two axes must change places?""")
slip("heads interleaved", ORDER, {"transpose(1, 2)": "permute(0, 2, 3, 1)"}, words="""
    The pieces were shuffled into each other: the first number of every head, then the second of every head. The
    contract is concatenation, all of head 0 and then all of head 1: W_O expects them so. Which axis must be the last
    before you flatten?""")
slip("heads added up", ORDER,
    {MERGED: "sum(dim=1)"},
    {MERGED: "mean(dim=1)"},
    words="""
    The heads were added (or averaged), so that nobody can tell what each of them found. They are put side by side; it
    is W_O, in the next exercise, that mixes them, with weights that are learned.""")
slip("heads for tokens", ORDER, {MERGED: "flatten(1, 2)"}, words="""
    The heads were put one below the other, n_heads · n rows of width d_head. A token has one row: what its heads found
    stands *in* that row, side by side.""")
slip("the wrong two axes exchanged", ("side by side",),
    {MERGED: "mT.reshape(len(heads), heads.shape[2], -1)"}, words="""
    The last two axes changed places, tokens and numbers. It is the heads' axis that must stand beside the numbers:
    exchange heads and tokens.""")
slip("sentences side by side", ORDER, {"heads.transpose(1, 2).flatten(2)": "torch.cat(list(heads), dim=-1)"}, words="""
    A loop over `heads` goes over its first axis, and that is the batch: the *sentences* stand side by side, each head
    in a row of its own. The heads are axis 1.""")
slip("axes misnamed", ORDER, {"flatten(2)": "reshape(len(heads), heads.shape[1], -1)"}, words="""
    The number of heads was taken for the number of tokens. They come as (batch, n_heads, n, d_head), and what goes out
    has a row for each *token*.""")
slip("not flattened", ORDER, {".flatten(2)": ""}, words="""
    The axes are exchanged, but the last two are still separate: (batch, n, n_heads, d_head). Make one of them.""")
slip("view of a transposed tensor", ("side by side", "gradient"),
    {"flatten(2)": "view(len(heads), heads.shape[2], -1)"},
    words="""
    You are nearly there. After `transpose` the numbers still lie in memory in the old order, and `view`, which never
    copies, cannot read them in the new one. Ask for a copy: `.contiguous()` before the `view`, or `reshape`.""")
slip("cut off from the gradient", ("gradient",), {"heads": "heads.detach()"}, words="""
    The numbers are right, but the gradient does not get through: `.detach()`, `.data`, numpy and `torch.tensor(...)`
    forget where numbers came from.""")


# ------------------------------------------------------------------------------------------------------ further from it


@misconception("squeezed axes", fails=("one token",))
def squeezed_axes(heads):
    """`squeeze()` removes every axis of length one: also that of the tokens, where there is one. Name the axis that you
    mean."""
    return torch.cat([head.squeeze() for head in heads.split(1, dim=1)], dim=-1)


# ------------------------------------------------------------------------------------------------ right in other styles


@alternative("contiguous, then a view")
def contiguous_then_a_view(heads):
    """The usual line."""
    batch, n_heads, n, d_head = heads.shape
    return heads.transpose(1, 2).contiguous().view(batch, n, n_heads * d_head)


@alternative("concatenated")
def concatenated(heads):
    """A loop over the heads, as the equation has it."""
    return torch.cat([heads[:, h] for h in range(heads.shape[1])], dim=-1)


@alternative("einsum in float64")
def einsum_in_float64(heads):
    """Exchanges the axes by name."""
    return torch.einsum("bhnd->bnhd", heads.double()).reshape(heads.shape[0], heads.shape[2], -1)
