"""merge_heads: Put every word's pieces side by side: the inverse of `split_heads`."""

import torch

from lessonkit.exercises.exercise import Exercise
from lessonkit.exercises.judge import arrives
from lessonkit.exercises.observe import reached

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
    batch, n_heads, words, d_head = draw.sizes(4, 2, 6)
    return draw.normal(batch, n_heads, n or words, d_head)


# ----------------------------------------------------------------------------------------------------- what is observed


@aspect("side by side", points=2)
def side_by_side(answer, draw):
    """each word gets its heads' outputs, head 0's first"""
    return answer(_heads(draw))


@aspect("one word", points=1)
def one_word(answer, draw):
    """works while translating, when there is one word at a time"""
    return answer(_heads(draw, n=1))


@aspect("gradient", points=1, explain=arrives("heads"))
def gradient(answer, draw):
    """the gradient finds its way back"""
    heads = _heads(draw).requires_grad_()
    return reached(answer(heads), [heads], draw)


# -------------------------------------------------------------------------------------------------------- wrong answers


@misconception("view without transpose", fails=("side by side",))
def view_without_transpose(heads):
    """The shape is right and the numbers are not. `reshape` reads them in the order in which they lie, head after head,
    so the first row holds several words of head 0 and nothing of the other heads. First bring a word's pieces
    together: which two axes must change places?"""
    batch, n_heads, n, d_head = heads.shape
    return heads.reshape(batch, n, n_heads * d_head)


@misconception("heads interleaved", fails=("side by side", "one word"))
def heads_interleaved(heads):
    """The pieces were shuffled into each other: the first number of every head, then the second of every head. The
    contract is concatenation, all of head 0 and then all of head 1: W_O expects them so. Which axis must be the last
    before you flatten?"""
    return heads.permute(0, 2, 3, 1).flatten(2)


@misconception("heads added up", fails=("side by side", "one word"))
def heads_added_up(heads):
    """The heads were added (or averaged), so that nobody can tell what each of them found. They are put side by side;
    it is W_O, in the next exercise, that mixes them, with weights that are learned."""
    return heads.sum(dim=1)


@variant("heads added up", fails=("side by side", "one word"))
def heads_added_up_2(heads):
    """Averaged."""
    return heads.mean(dim=1)


@misconception("heads for words", fails=("side by side", "one word"))
def heads_for_words(heads):
    """The heads were put one below the other, n_heads · n rows of width d_head. A word has one row: what its heads
    found stands *in* that row, side by side."""
    return heads.flatten(1, 2)


@misconception("not flattened", fails=("side by side", "one word"))
def not_flattened(heads):
    """The axes are exchanged, but the last two are still separate: (batch, n, n_heads, d_head). Make one of them."""
    return heads.transpose(1, 2)


@misconception("view of a transposed tensor", fails=("side by side", "gradient"))
def view_of_a_transposed_tensor(heads):
    """You are nearly there. After `transpose` the numbers still lie in memory in the old order, and `view`, which never
    copies, cannot read them in the new one. Ask for a copy: `.contiguous()` before the `view`, or `reshape`."""
    batch, n_heads, n, d_head = heads.shape
    return heads.transpose(1, 2).view(batch, n, n_heads * d_head)


@misconception("cut off from the gradient", fails=("gradient",))
def cut_off_from_the_gradient(heads):
    """The numbers are right, but the gradient does not get through: `.detach()`, `.data`, numpy and `torch.tensor(...)`
    forget where numbers came from."""
    return heads.detach().transpose(1, 2).flatten(2)


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
