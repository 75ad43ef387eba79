"""shift_right: What the decoder reads, when it is to say `target`."""

import torch
from torch import nn

from lessonkit.exercises.exercise import Exercise
from lessonkit.exercises.observe import require_variation

from .common import _shift_right


def solution(target, bos):
    begin = torch.full_like(target[:, :1], bos)            # (batch, 1)
    return torch.cat([begin, target[:, :-1]], dim=1)       # (batch, n)


exercise = Exercise(
    "shift_right",
    reference=_shift_right,
    solution=solution,
    returns=("target_in",),
    difficulty=1,
    minutes=8,
    hints=(
        "At position t the decoder is to predict target[t], and may know only what stands before it. What does it read "
        "at position 0? Which token is never read?",
        "Two pieces, one after the other: a column of `bos`, (batch, 1), and the target without its last column. Along "
        "which axis are they joined? What is left of the second piece when the target is one token long?",
        "`torch.cat` joins tensors. `torch.full_like` takes shape and dtype from a tensor that is there already; "
        "`torch.ones` and `torch.zeros` make decimal numbers, and `torch.cat` then turns the tokens into decimal "
        "numbers, too.",
    ),
)
aspect, slip, misconception, variant, alternative = exercise.decorators()


def _tokens(draw, n=None):
    """(target, bos), with a bos that is no token of the target."""
    batch, length = draw.sizes(2, 3, 8)
    bos = int(draw.integers(5, 1)) + 40
    return draw.integers(40, batch, n or length), bos


# ----------------------------------------------------------------------------------------------------- what is observed


@aspect("shifted", points=2, hint=1)
def shifted(answer, draw):
    """`bos` first, then every token one place later; the last one is dropped"""
    return answer(*_tokens(draw))


@aspect("one token", points=1, hint=2)
def one_token(answer, draw):
    """of a single token nothing is left but `bos`"""
    return answer(*_tokens(draw, n=1))


@aspect("whole numbers", points=1, hint=3, explain=lambda got, expected: "came back as decimal numbers")
def whole_numbers(answer, draw):
    """tokens stay whole numbers, or no embedding could look them up"""
    target_in = answer(*_tokens(draw))
    require_variation(target_in)
    return torch.tensor(not target_in.is_floating_point())


# -------------------------------------------------------------------------------------- one slip away from the solution

BOTH = ("shifted", "one token")

slip("shifted to the left", ("shifted",), {"begin, target[:, :-1]": "target[:, 1:], begin"}, words="""
    The tokens moved one place *forward*: at position t the decoder reads token t + 1, the future. What it reads has
    to lag behind what it says.""")
slip("overwritten, not shifted", ("shifted",), {"target[:, :-1]": "target[:, 1:]"}, words="""
    `bos` took the place of the first token, and all others stayed where they were. So the first token is never
    read, and each of the others is read where it is to be said.""")
slip("one token too long", BOTH, {"target[:, :-1]": "target"}, words="""
    `bos` was put in front and nothing was dropped: the input is one token longer than what is to be said, and its
    last token is read when there is nothing left to say.""")
slip("bos after the text", BOTH, {"begin, target[:, :-1]": "target, begin"}, words="""
    `bos` was put at the end. It is what the decoder reads *first*, when nothing has been written yet.""")
slip("sentences shifted", BOTH, {"[:, :1]": "[:1]", "[:, :-1]": "[:-1]", "dim=1": "dim=0"}, words="""
    The shift ran along the batch: each sentence became its neighbour, and the first a row of `bos`. Axis 0 counts
    sentences, axis 1 the positions in each.""")
slip("decimal numbers", ("whole numbers",),
     {"torch.full_like(target[:, :1], bos)": "bos * torch.ones(target.shape[0], 1)"},
     words="""
    The shift is right, but what came back are decimal numbers: `torch.ones` and `torch.zeros` make those, and `cat`
    turns its other pieces into the same. An embedding refuses them. Say which type you want, or start from
    `target`.""")


# ------------------------------------------------------------------------------------------------------ further from it


@misconception("no shift", fails=BOTH)
def no_shift(target, bos):
    """The decoder reads at position t what it is to say at position t. It will learn to copy its input, its loss will
    be next to nothing, and it will not be able to write a single word. What may it know when it says the first one?"""
    return target.clone()


@misconception("the last token comes round", fails=BOTH)
def the_last_token_comes_round(target, bos):
    """`roll` turns the row in a circle: the last token of the sentence stands in front, where nothing is known yet.
    What belongs there is the sign for "begin"."""
    return torch.roll(target, 1, dims=1)


@variant("bos after the text", fails=("shifted",))
def bos_in_place_of_the_last_token(target, bos):
    """In the last token's place."""
    return torch.cat([target[:, :-1], torch.full_like(target[:, :1], bos)], dim=1)


# ------------------------------------------------------------------------------------------------ right in other styles


@alternative("a new tensor, filled in")
def a_new_tensor_filled_in(target, bos):
    """Writes into its own tensor."""
    target_in = torch.empty_like(target)
    target_in[:, 0] = bos
    target_in[:, 1:] = target[:, :-1]
    return target_in


@alternative("rolled, then overwritten")
def rolled_then_overwritten(target, bos):
    """What comes round is painted over."""
    target_in = target.roll(1, dims=1)
    target_in[:, 0] = bos
    return target_in


@alternative("padded on the left")
def padded_on_the_left(target, bos):
    """A pad of one column, and the last one cut off: a view."""
    return nn.functional.pad(target, (1, 0), value=bos)[:, :-1]


@alternative("lists")
def lists(target, bos):
    """Row by row."""
    return torch.tensor([[bos, *row[:-1]] for row in target.tolist()])
