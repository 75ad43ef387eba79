"""prefix_mask: Which position may attend to which, if the first `lengths[b]` positions of text b are a prefix."""

import torch

from attncourse import attention
from lessonkit.exercises.exercise import Exercise
from lessonkit.exercises.local_runner import AspectFailed, Problem

from .common import READY_MADE


def reference(lengths, n):
    """(batch, n, n): all of the prefix, and the past. Raffel et al. 2020, section 3.2.1."""
    return attention.causal_mask(n) | attention.lengths_to_mask(lengths, n)[:, None]


def solution(lengths, n):
    position = torch.arange(n)
    past = position <= position[:, None]                   # (n, n)
    prefix = position < lengths[:, None]                   # (batch, n)
    return past | prefix[:, None]                          # (batch, n, n)


exercise = Exercise(
    "prefix_mask",
    reference=reference,
    solution=solution,
    returns=("mask",),
    forbidden=READY_MADE,
    difficulty=2,
    minutes=12,
    extra=True,
    hints=(
        "Two reasons may allow a pair (i, j): the key j lies in the prefix, or it does not come after the query i. "
        "Either one is enough.",
        "Without a prefix only the second reason is left. That is the causal mask, (n, n), with a row for each query: "
        "which of its two triangles is True, and what is its diagonal?",
        "Which keys lie in the prefix is a table (batch, n): `lengths[:, None]` compared with the positions 0, 1, …, n "
        "− 1. Where does it need another axis, so that every query of a text sees the same keys?",
    ),
)
aspect, slip, misconception, variant, alternative = exercise.decorators()


def _prefixes(draw):
    batch, n = draw.sizes(2, 4, 8)
    lengths = 2 + draw.integers(n - 2, batch)                             # 2 … n - 1
    lengths[:2] = torch.tensor([2, 3])                                    # not all alike
    return lengths, n


def _places(got, expected):
    b, i, j = (int(places[0]) for places in (got != expected).nonzero())
    may = "may" if expected[b, i, j] else "must not"
    return f"in text {b} position {i} {may} attend to position {j} (counted from 0)"


# ----------------------------------------------------------------------------------------------------- what is observed


@aspect("prefix and rest", points=1, hint=1, explain=_places)
def prefix_and_rest(answer, draw):
    """the prefix is read by all, the rest from left to right"""
    return answer(*_prefixes(draw))


@aspect("no prefix", points=0.5, hint=2, explain=_places)
def no_prefix(answer, draw):
    """without a prefix it is the causal mask"""
    lengths, n = _prefixes(draw)
    return answer(torch.zeros_like(lengths), n)


@aspect("nothing but prefix", points=0.5, hint=3, explain=lambda got, expected: "some pairs are forbidden")
def nothing_but_prefix(answer, draw):
    """where everything is prefix, every position sees all others"""
    lengths, n = _prefixes(draw)
    if answer(torch.zeros_like(lengths), n).all():
        raise AspectFailed(Problem("unusable", "everything is allowed, whatever the prefix"))
    return answer(torch.full_like(lengths, n), n)


# -------------------------------------------------------------------------------------- one slip away from the solution

EVERY_PREFIX = ("prefix and rest", "no prefix", "nothing but prefix")
ALLOWED = "past | prefix[:, None]"

slip("causal alone", ("prefix and rest", "nothing but prefix"), {ALLOWED: "past.expand(len(lengths), n, n)"}, words="""
    The prefix is read from left to right like the rest. The prefix need not be predicted, so it may be
    read in both directions, as an encoder does.""")
slip("the prefix sees the rest", ("prefix and rest",), {"prefix[:, None]": "prefix[:, :, None]"}, words="""
    Positions of the prefix were allowed to attend to everything, the answer included; and the answer's positions attend
    to the prefix, so it leaks to them. It is the *key* that must lie in the prefix.""")
slip("only the prefix is seen", ("prefix and rest", "no prefix"), {ALLOWED: "prefix[:, None].expand(-1, n, -1)"},
     words="""
    All positions see the prefix, and nothing else: what has been written so far is forgotten.""")
slip("both reasons needed", EVERY_PREFIX, {" | ": " & "}, words="""
    A pair was allowed only if the key lies in the prefix *and* does not come after the query. One of the two is
    enough.""")
slip("one position too many", ("prefix and rest",), {"position < lengths": "position <= lengths"}, words="""
    The prefix has grown by one: positions are counted from 0, so the last of `length` positions is length − 1. The
    first token of the answer is now read by positions that are to predict it.""")
slip("the rest does not see the prefix", ("prefix and rest",),
     {ALLOWED: "torch.where(prefix[:, :, None], prefix[:, None], past & ~prefix[:, None])"}, words="""
    Two masks were put side by side, one within the prefix and one within the rest, and no position of the rest sees the
    prefix. It is what the rest goes on from: the key alone decides, wherever the query stands.""")
slip("not even itself", ("prefix and rest", "no prefix"), {"position <= position": "position < position"}, words="""
    After the prefix a position does not see itself. What it has read last is the very token from which it goes on: the
    diagonal is allowed.""")
slip("the first length for all", ("prefix and rest",),
     {"position < lengths[:, None]": "(position < lengths[0]).expand(len(lengths), n)"}, words="""
    The first text's prefix was taken for all of them. Each text has a length of its own: compare the positions with a
    column of lengths.""")
slip("the longest prefix for all", ("prefix and rest",),
     {"position < lengths[:, None]": "(position < lengths.max()).expand(len(lengths), n)"}, words="""
    The longest prefix was taken for all texts. Each text has a length of its own: where its prefix is shorter, a part
    of the rest was read in advance.""")
slip("upside down", EVERY_PREFIX, {ALLOWED: f"~({ALLOWED})"}, words="""
    Allowed and forbidden have changed places. In this course True means "may attend".""")
slip("the future for the past", ("prefix and rest", "no prefix"), {"position <= position": "position >= position"},
     words="""
    After the prefix each position sees what is to come and not what was. Queries are rows, keys are columns: the
    past is the lower triangle.""")


# ------------------------------------------------------------------------------------------------ right in other styles


@alternative("the square of the prefix")
def the_square_of_the_prefix(lengths, n):
    """Query and key both in the prefix, or the past."""
    prefix = torch.arange(n) < lengths[:, None]
    square = prefix.unsqueeze(2) & prefix.unsqueeze(1)
    return torch.logical_or(square, torch.tril(torch.ones(n, n)).bool())


@alternative("a loop over the texts")
def a_loop_over_the_texts(lengths, n):
    """Columns are painted."""
    masks = []
    for length in lengths.tolist():
        mask = torch.tril(torch.ones(n, n, dtype=torch.bool))
        mask[:, :length] = True
        masks.append(mask)
    return torch.stack(masks)


@alternative("the first forbidden position of each row")
def the_first_forbidden_position_of_each_row(lengths, n):
    """A key is allowed if it lies before the later of two limits."""
    position = torch.arange(n)
    limit = torch.maximum(position[None, :] + 1, lengths[:, None])
    return position < limit[..., None]
