"""causal_mask: Who may attend to whom in a sentence that is read from left to right."""

import torch
from torch import Tensor

from attncourse import attention
from lessonkit.exercises.exercise import Exercise
from lessonkit.exercises.observe import require_variation

from .common import READY_MADE


def _some(words):
    """For a part of a mask, which has lost its places: says how much of it is wrong."""
    return lambda got, expected: f"{(got != expected).sum()} of {got.size} {words}"


def solution(n):
    return torch.ones(n, n, dtype=torch.bool).tril()


exercise = Exercise(
    "causal_mask",
    reference=attention.causal_mask,
    solution=solution,
    returns=("mask",),
    forbidden=READY_MADE,
    difficulty=1,
    minutes=8,
    hints=(
        "Draw it for n = 3. Row i asks, column j answers. Which cells may be True for the first row? For the last?",
        "With `i = torch.arange(n)[:, None]` and `j = torch.arange(n)` a comparison of the two is a whole table. Which "
        "comparison?",
    ),
)
aspect, slip, misconception, variant, alternative = exercise.decorators()


def _below(n: int) -> Tensor:
    """Where j < i."""
    return torch.ones(n, n, dtype=torch.bool).tril(-1)


# ----------------------------------------------------------------------------------------------------- what is observed


@aspect("past", points=1, hint=2, explain=_some("looks at an earlier position are forbidden"))
def past(answer, draw):
    """a position sees all that came before it"""
    [n] = draw.sizes(1, 4, 9)
    return require_variation(answer(n))[_below(n)]


@aspect("itself", points=1, hint=1, explain=_some("positions may not look at themselves"))
def itself(answer, draw):
    """it sees itself, and so does a sentence of one word"""
    [n] = draw.sizes(1, 4, 9)
    return torch.cat([require_variation(answer(n)).diagonal(), answer(1).flatten()])


@aspect("future", points=2, hint=2, explain=_some("looks at a later position are allowed"))
def future(answer, draw):
    """it sees nothing that comes after it"""
    [n] = draw.sizes(1, 4, 9)
    return require_variation(answer(n))[_below(n).T]


# -------------------------------------------------------------------------------------- one slip away from the solution

TRIANGLE = ("past", "itself", "future")

slip("not even itself", ("itself",), {"tril()": "tril(-1)"}, words="""
    The diagonal is False: a position may not attend to itself, and the first one may attend to nobody, so softmax makes
    0/0 of its row. (One meets it printed like this.) When word i is read, word i is no secret; the secret is word
    i + 1, which is to be predicted.""")
slip("one step of the future", ("future",), {"tril()": "tril(1)"}, words="""
    Position i sees position i + 1 as well: the very word that it is asked to predict. The loss will be wonderful and
    the model useless. Look at what stands right above the diagonal.""")
slip("future for past", ("past", "future"), {"tril": "triu"}, words="""
    Rows and columns have changed places: position i sees itself and everything *after* it. Row i is the one that asks,
    column j the one that answers; which of the two must be the later?""")
slip("itself alone", ("past",), {"ones": "eye"}, words="""
    Only the diagonal is True: every position looks at itself, and nothing is passed on any more. The past is allowed,
    all of it.""")
slip("True for what is forbidden", TRIANGLE, {"tril()": "triu(1)"}, words="""
    This is the mask of what must *not* be seen. torch's `nn.MultiheadAttention` wants it that way round; here, and in
    `scaled_dot_product_attention`, True means "may attend".""")
slip("numbers for booleans", TRIANGLE,
    {", dtype=torch.bool": ""},
    {"torch.bool": "torch.int64"},
    {"torch.ones(n, n, dtype=torch.bool).tril()": "torch.full((n, n), -torch.inf).triu(1)"},  # to be added to scores
    words="""
    These are numbers. A mask of this course is boolean, so that `~mask` and `&` mean what they say, and nobody must ask
    whether 1 allows or forbids. A comparison makes booleans, and so does `dtype=torch.bool`.""")


# ------------------------------------------------------------------------------------------------ right in other styles


@alternative("a comparison")
def a_comparison(n):
    """Of places."""
    place = torch.arange(n)
    return place <= place[:, None]


@alternative("not the future")
def not_the_future(n):
    """The complement, as a view that is not contiguous."""
    return (~torch.ones(n, n).tril(-1).bool()).T


@alternative("row by row")
def row_by_row(n):
    """Two loops."""
    mask = torch.zeros(n, n, dtype=torch.bool)
    for i in range(n):
        for j in range(i + 1):
            mask[i, j] = True
    return mask
