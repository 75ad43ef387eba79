"""padding_mask: Which positions may be attended to, because there is a word."""

import torch
from torch import Tensor

from attncourse import attention
from lessonkit.exercises.exercise import Exercise

from .common import READY_MADE, truth


def reference(lengths, n):
    """Which keys are words, the same for every query: (batch, 1, n)."""
    return attention.lengths_to_mask(lengths, n)[:, None, :]


def solution(lengths, n):
    words = torch.arange(n) < lengths[:, None]  # (batch, n)
    return words[:, None, :]


exercise = Exercise(
    "padding_mask",
    reference=reference,
    solution=solution,
    returns=("mask",),
    forbidden=READY_MADE,
    difficulty=1,
    minutes=10,
    hints=(
        "For a sentence of 2 words, padded to n = 5, write down the five truth values. They are a comparison of 0, 1, "
        "2, 3, 4 with something.",
        "The positions, (n,), compared with the lengths as a column, (batch, 1), have a row for each sentence. Where "
        "does one more axis of length one belong, so that the table of scores (batch, n_query, n_key) loses *columns*?",
    ),
)
aspect, slip, misconception, variant, alternative = exercise.decorators()


def _lengths(draw, batch: int, n: int) -> Tensor:
    """One full sentence, the others shorter, in no order, none empty."""
    lengths = 1 + draw.integers(n - 1, batch)
    lengths[draw.integers(batch, 1)] = n
    return lengths


# ----------------------------------------------------------------------------------------------------- what is observed


@aspect("words and padding", points=2, hint=1, explain=truth)
def words_and_padding(answer, draw):
    """True for the words of each sentence, False for what fills it up"""
    batch, n = draw.sizes(2, 3, 8)
    return answer(_lengths(draw, batch, n), n)


@aspect("with a causal mask", points=1, hint=2, explain=truth)
def with_a_causal_mask(answer, draw):
    """combined with a causal mask by &, it forbids columns of every sentence's table"""
    batch, n = draw.sizes(2, 3, 8)
    return answer(_lengths(draw, batch, n), n) & torch.ones(n, n, dtype=torch.bool).tril()


@aspect("no full sentence", points=1, hint=1, explain=truth)
def no_full_sentence(answer, draw):
    """n columns, even if the longest sentence of the batch is shorter, or one is empty"""
    batch, n = draw.sizes(2, 4, 8)
    lengths = 1 + draw.integers(n - 2, batch)
    lengths[draw.integers(batch, 1)] = 0
    return answer(lengths, n)


# -------------------------------------------------------------------------------------- one slip away from the solution

ALL_MASKS = ("words and padding", "with a causal mask", "no full sentence")
ROW = "words[:, None, :]"

slip("rows for columns", ALL_MASKS, {ROW: "words[:, :, None]"}, words="""
    The axis of length one stands at the end, so the mask forbids *rows*: padding may not ask, and everybody may still
    look at it. It is the other way round that matters. Nobody may look at padding; what padding itself asks is thrown
    away anyhow.""")
slip("no axis for the queries", ALL_MASKS, {ROW: "words"}, words="""
    The shape is (batch, n). Beside a table of scores (batch, n_query, n_key) torch takes that for (n_query, n_key): it
    complains, or, should batch and n_query be equal, masks one sentence's queries by another's length and says nothing.
    An axis of length one in the middle says "the same for every query".""")
slip("rows and columns", ALL_MASKS, {ROW: f"words[:, :, None] & {ROW}"}, words="""
    The table is square, and False wherever the *query* is padding, too. Then a padded query has nobody to look at, and
    its row becomes 0/0. It needs no mask: what comes out there is never used. The mask is the same for every query,
    which is what the axis of length one says.""")
slip("mask upside down", ALL_MASKS, {"<": ">="}, words="""
    The padding may be seen and the words may not. True means "may attend".""")
slip("one too many or one too few", ALL_MASKS,
    {"<": "<="},
    {"arange(n)": "arange(1, n + 1)"},  # counted from one, and below
    words="""
    It is off by one: a sentence of 2 words stands at the positions 0 and 1. Try it with one word, and count the
    Trues.""")
slip("words at the end", ALL_MASKS, {"<": ">= n -"}, words="""
    The mask is for sentences with their padding in *front*. Here the words come first, at the positions 0 to lengths[b]
    − 1, and the padding comes after them.""")
slip("as wide as the longest sentence", ("no full sentence",), {"arange(n)": "arange(int(lengths.max()))"}, words="""
    The width was taken from the longest sentence of the batch. It is n that says how wide the batch is: it may have
    been padded further, to a fixed size.""")
slip("numbers for booleans", ALL_MASKS,
    {ROW: f"{ROW}.int()"},
    {ROW: f"{ROW}.float()"},
    words="""
    These are numbers, and a mask is boolean: `~mask` of numbers is not its opposite, and `&` may refuse them. A
    comparison makes booleans; leave them as they are.""")


# ------------------------------------------------------------------------------------------------ right in other styles


@alternative("one sentence at a time")
def one_sentence_at_a_time(lengths, n):
    """A list of rows."""
    rows = [[j < length for j in range(n)] for length in lengths.tolist()]
    return torch.tensor(rows).unsqueeze(1)


@alternative("filled by slices")
def filled_by_slices(lengths, n):
    """Begins with nobody."""
    mask = torch.zeros(len(lengths), 1, n, dtype=torch.bool)
    for sentence, length in enumerate(lengths):
        mask[sentence, 0, :length] = True
    return mask


@alternative("three axes at once")
def three_axes_at_once(lengths, n):
    """By views."""
    return torch.arange(n).view(1, 1, -1).lt(lengths.view(-1, 1, 1))
