"""padding_mask: Which positions may be attended to, because there is a token."""

import torch
from torch import Tensor

from attncourse import attention
from lessonkit.exercises.exercise import Exercise

from .common import READY_MADE, truth


def reference(lengths, n, in_front=False):
    """Which keys are tokens, the same for every query: (batch, 1, n)."""
    is_token = attention.lengths_to_mask(lengths, n)
    return (is_token.flip(-1) if in_front else is_token)[:, None, :]


def solution(lengths, n, in_front=False):
    place = torch.arange(n)  # (n,)
    is_token = place < lengths[:, None]  # (batch, n)
    if in_front:
        is_token = place >= n - lengths[:, None]  # (batch, n)
    return is_token[:, None, :]


exercise = Exercise(
    "padding_mask",
    reference=reference,
    solution=solution,
    returns=("mask",),
    forbidden=READY_MADE,
    difficulty=1,
    minutes=15,
    hints=(
        "For a sentence of 2 tokens, padded to n = 5, write down the five truth values. They are a comparison of 0, 1, "
        "2, 3, 4 with something.",
        "The positions, (n,), compared with the lengths as a column, (batch, 1), have a row for each sentence. Where "
        "does one more axis of length one belong, so that the scores (batch, n_query, n_key) lose *columns*?",
        "With the padding in front, write down the five truth values again. At which position does the sentence of 2 "
        "tokens begin now? Write this position with n and the length.",
    ),
)
aspect, slip, misconception, variant, alternative = exercise.decorators()


def _lengths(draw, batch: int, n: int) -> Tensor:
    """One full sentence, the others shorter, in no order, none empty."""
    lengths = 1 + draw.integers(n - 1, batch)
    lengths[draw.integers(batch, 1)] = n
    return lengths


def _short(draw, batch: int, n: int) -> Tensor:
    """No full sentence, and one that is empty."""
    lengths = 1 + draw.integers(n - 2, batch)
    lengths[draw.integers(batch, 1)] = 0
    return lengths


# ----------------------------------------------------------------------------------------------------- what is observed


@aspect("tokens and padding", points=2, hint=1, explain=truth)
def tokens_and_padding(answer, draw):
    """True for the tokens of each sentence, False for what fills it up"""
    batch, n = draw.sizes(2, 3, 8)
    return answer(_lengths(draw, batch, n), n)


@aspect("with a causal mask", points=1, hint=2, explain=truth)
def with_a_causal_mask(answer, draw):
    """combined with a causal mask by &, it forbids columns of every sentence's scores"""
    batch, n = draw.sizes(2, 3, 8)
    return answer(_lengths(draw, batch, n), n) & torch.ones(n, n, dtype=torch.bool).tril()


@aspect("no full sentence", points=1, hint=1, explain=truth)
def no_full_sentence(answer, draw):
    """n columns, even if the longest sentence of the batch is shorter, or one is empty"""
    batch, n = draw.sizes(2, 4, 8)
    return answer(_short(draw, batch, n), n)


@aspect("padding in front", points=2, hint=3, explain=truth)
def padding_in_front(answer, draw):
    """with `in_front`, the tokens are the last ones of the n positions"""
    batch, n = draw.sizes(2, 4, 8)
    return answer(_short(draw, batch, n), n, True)


# -------------------------------------------------------------------------------------- one slip away from the solution

BEHIND = ("tokens and padding", "with a causal mask", "no full sentence")
FRONT = ("padding in front",)
ALL_MASKS = BEHIND + FRONT
ROW = "is_token[:, None, :]"
FIRST, LAST = "place < lengths[:, None]", "place >= n - lengths[:, None]"

slip("rows for columns", ALL_MASKS, {ROW: "is_token[:, :, None]"}, words="""
    The axis of length one stands at the end, so the mask forbids *rows*: the padding may not ask, and every token may
    still attend to it. It is the other way round that matters. No query may attend to padding; what a padded query gets
    is thrown away anyhow.""")
slip("no axis for the queries", ALL_MASKS, {ROW: "is_token"}, words="""
    The shape is (batch, n). Beside scores (batch, n_query, n_key) torch takes that for (n_query, n_key): it complains,
    or, should batch and n_query be equal, masks one sentence's queries by another's length and says nothing. An axis of
    length one in the middle says "the same for every query".""")
slip("rows and columns", ALL_MASKS, {ROW: f"is_token[:, :, None] & {ROW}"}, words="""
    The mask is square, and False wherever the *query* is padding, too. Then a padded query may attend to nothing, and
    its row becomes 0/0. It needs no mask: what comes out there is never used. The mask is the same for every query,
    which is what the axis of length one says.""")
slip("mask upside down", ALL_MASKS, {FIRST: "place >= lengths[:, None]", LAST: "place < n - lengths[:, None]"},
    words="""
    Queries may attend to the padding and not to the tokens. True means "may attend".""")
slip("one too many", BEHIND, {FIRST: "place <= lengths[:, None]"}, words="""
    It is off by one: a sentence of 2 tokens stands at the positions 0 and 1. Try it with one token, and count the
    Trues.""")
slip("one position off", ALL_MASKS,
    {"arange(n)": "arange(1, n + 1)"},
    {FIRST: f"{FIRST} - 1", LAST: "place > n - lengths[:, None]"},  # one too few on either side
    words="""
    It is off by one. torch counts positions from zero: a sentence of 2 tokens stands at the positions 0 and 1, or, with
    the padding in front, at n − 2 and n − 1. Try it with one token, and count the Trues.""")
slip("one position off", BEHIND, {FIRST: f"{FIRST} - 1"})
slip("tokens at the end", BEHIND, {FIRST: "place >= n - lengths[:, None] + 0"}, words="""
    The mask is for sentences with their padding in *front*. Without `in_front` the tokens come first, at the positions
    0 to lengths[b] − 1, and the padding comes after them.""")
slip("sides exchanged", ALL_MASKS, {"if in_front": "if not in_front"}, words="""
    The two sides are exchanged: with `in_front` the *padding* stands in front, and the tokens are the last ones of
    the n positions.""")
slip("the side is ignored", FRONT, {LAST: "place < lengths[:, None] + 0"}, words="""
    The mask is the same with `in_front` and without. With it, the tokens are the last ones of the n positions: a
    sentence of 2 tokens in 5 places stands at the positions 3 and 4.""")
slip("in front, the opposite", FRONT, {LAST: "place >= lengths[:, None]"}, words="""
    With `in_front` you return the opposite of the mask for padding behind. Count the Trues: a sentence of 2 tokens in 5
    places must have two of them, the last two, and has three.""")
slip("in front, one too many", FRONT, {LAST: "place >= n - lengths[:, None] - 1"}, words="""
    With the padding in front it is off by one: a sentence of 2 tokens in 5 places begins at position 3. Try it with one
    token, and count the Trues.""")
slip("in front, one too few", FRONT, {LAST: "place > n - lengths[:, None]"}, words="""
    With the padding in front it is off by one: a sentence of 2 tokens in 5 places begins at position 3, and position 3
    belongs to it. Try it with one token, and count the Trues.""")
slip("in front, as far as the longest", FRONT,
    {LAST: "place >= lengths.max() - lengths[:, None]"},
    {LAST: "(place >= lengths.max() - lengths[:, None]) & (place < lengths.max())"}, words="""
    With the padding in front every sentence ends at position n − 1. Here its first position was counted back from the
    end of the batch's longest sentence. It is n that says how wide the batch is.""")
slip("in front, the sentences turned round", FRONT, {LAST: "is_token.flip(0)"}, words="""
    With `in_front` the *sentences* have changed places, the first with the last, and each has its padding behind it as
    before. Which axis of (batch, n) runs over the positions?""")
slip("as wide as the longest sentence", ("no full sentence", *FRONT),
    {"arange(n)": "arange(int(lengths.max()))"}, words="""
    The width was taken from the longest sentence of the batch. It is n that says how wide the batch is: it may have
    been padded further, to a fixed size.""")
slip("an empty sentence may read everything", ("no full sentence", *FRONT),
    {ROW: "(is_token | (lengths == 0)[:, None])[:, None, :]"}, words="""
    A sentence without tokens got a row of nothing but True, perhaps so that its softmax would not be 0/0. The mask then
    says that there are tokens where there are none. Whose task is it to deal with a row without tokens: the mask's, or
    that of the attention that uses it?""")
slip("numbers for booleans", ("tokens and padding",), {ROW: f"{ROW}.int()"}, words="""
    These are numbers, and a mask is boolean: `~mask` of numbers is not its opposite, and `&` may refuse them. A
    comparison makes booleans; leave them as they are.""")
slip("numbers for booleans", ("tokens and padding", "with a causal mask"), {ROW: f"{ROW}.float()"})


# ------------------------------------------------------------------------------------------------ right in other styles


@alternative("one sentence at a time")
def one_sentence_at_a_time(lengths, n, in_front=False):
    """A list of rows."""
    rows = [[j < length for j in range(n)] for length in lengths.tolist()]
    if in_front:
        rows = [row[::-1] for row in rows]
    return torch.tensor(rows).unsqueeze(1)


@alternative("filled by slices")
def filled_by_slices(lengths, n, in_front=False):
    """Begins with nobody."""
    mask = torch.zeros(len(lengths), 1, n, dtype=torch.bool)
    for sentence, length in enumerate(lengths.tolist()):
        start = n - length if in_front else 0
        mask[sentence, 0, start : start + length] = True
    return mask


@alternative("turned round by flip")
def turned_round_by_flip(lengths, n, in_front=False):
    """By views, and the one mask from the other."""
    mask = torch.arange(n).view(1, 1, -1).lt(lengths.view(-1, 1, 1))
    return mask.flip(-1) if in_front else mask
