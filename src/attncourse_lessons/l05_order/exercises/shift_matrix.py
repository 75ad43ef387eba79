"""shift_matrix: The matrix M with PE(p + k) = PE(p) @ M for every p, where PE are the vectors of `sinusoidal`."""

import math

import torch

from attncourse import positions as course
from lessonkit.exercises.exercise import Exercise
from lessonkit.exercises.judge import explain_worst
from lessonkit.exercises.local_runner import AspectFailed, Problem

from .common import READY_MADE, even, some_positions


def solution(k, d_model):
    blocks = []
    for i in range(d_model // 2):
        b = k / 10000 ** (2 * i / d_model)  # what pair i gains in k positions
        blocks.append(torch.tensor([[math.cos(b), -math.sin(b)], [math.sin(b), math.cos(b)]]))
    return torch.block_diag(*blocks)  # (d_model, d_model)


exercise = Exercise(
    "shift_matrix",
    reference=course.shift_matrix,
    solution=solution,
    returns=("matrix",),
    forbidden=READY_MADE,
    difficulty=2,
    minutes=20,
    hints=(
        "Take one pair alone. Its row is (sin a, cos a), and should become (sin(a + b), cos(a + b)), where b is the "
        "angle that the pair gains in k positions. Which formulas say what the sine and cosine of a sum are?",
        "sin(a + b) = sin a cos b + cos a sin b and cos(a + b) = cos a cos b − sin a sin b. Write that as a row of two "
        "numbers times a matrix of two rows and columns: what stands in its first column?",
        "Pairs do not mix, so the whole matrix is d_model / 2 such blocks down the diagonal, and zeros elsewhere: "
        "`torch.block_diag(*blocks)`, or a loop that writes M[2*i : 2*i + 2, 2*i : 2*i + 2].",
    ),
)
aspect, slip, misconception, variant, alternative = exercise.decorators()


def _two_shifts(draw):
    """Two different numbers of positions, neither 0 nor 1."""
    return draw.sizes(2, 2, 9)


def _table(draw, shift, d_model):
    """The vectors of some positions, and what they should be `shift` positions later."""
    positions = 20 + some_positions(draw, 7)
    return course.sinusoidal(positions, d_model), course.sinusoidal(positions + shift, d_model)


MOVED = explain_worst(
    "at {place} a moved vector has {got}; the vector of the position that it should have reached has {expected}"
)


# ----------------------------------------------------------------------------------------------------- what is observed


@aspect("forwards", points=2, hint=2, explain=MOVED)
def forwards(answer, draw):
    """one matrix takes the vector of every position to that of the position k later"""
    k, d_model = _two_shifts(draw)[0], even(draw)
    vectors, _ = _table(draw, k, d_model)
    return vectors @ answer(k, d_model).to(vectors.dtype)


@aspect(
    "backwards",
    points=1, hint=1,
    explain=explain_worst("the product of the matrices for k and −k has {got} at {place}, and the identity {expected}"),
)
def backwards(answer, draw):
    """a shift by −k undoes the shift by k"""
    k, d_model = _two_shifts(draw)[0], even(draw)
    there, back = answer(k, d_model), answer(-k, d_model)
    if torch.equal(there, back):
        raise AspectFailed(Problem("unusable", f"it is the same matrix for k = {k} and for k = {-k}"))
    return there @ back


@aspect(
    "one after the other",
    points=1, hint=3,
    explain=explain_worst(
        "the product of the matrices for a and b differs by {size} at {place} from the matrix for a + b"
    ),
)
def one_after_the_other(answer, draw):
    """a shift by a and then by b is a shift by a + b"""
    (a, b), d_model = _two_shifts(draw), even(draw)
    first, second, both = answer(a, d_model), answer(b, d_model), answer(a + b, d_model)
    if torch.equal(first, second):
        raise AspectFailed(Problem("unusable", f"it is the same matrix for k = {a} and for k = {b}"))
    return first @ second - both


# -------------------------------------------------------------------------------------- one slip away from the solution

FORWARDS, BACKWARDS = ("forwards",), ("backwards",)
ALL_SHIFTS = ("forwards", "backwards", "one after the other")
BLOCK = "[[math.cos(b), -math.sin(b)], [math.sin(b), math.cos(b)]]"

slip("written for columns", FORWARDS, {"-math.sin": "math.sin", "[math.sin": "[-math.sin"}, words="""
    This is the matrix for column vectors, M PE(p). In this course a vector is a row and the matrix stands on its right,
    so what turns a column by +b turns a row by −b. What must be done to a matrix when it changes sides?""")
slip("exponent off by one", FORWARDS, {"range(d_model // 2)": "range(1, d_model // 2 + 1)"}, words="""
    Each block turns at the speed of the next pair: the pairs were counted from 1. The first pair of `sinusoidal` has i
    = 0 and turns by one radian a position, so the first block turns by k radians.""")
slip("exponent without its 2", FORWARDS, {"2 * i": "i"}, words="""
    The blocks do not slow down as fast as the pairs of `sinusoidal` do: the exponent is 2i / d_model for pair i.""")
slip("exponent with one 2 too many", FORWARDS, {"range(d_model // 2)": "range(0, d_model, 2)"}, words="""
    The blocks slow down twice as fast as the pairs of `sinusoidal`: a counter that already goes 0, 2, 4, … was doubled
    once more. The exponent of the last pair is a little below 1.""")
slip("another base", FORWARDS, {"10000": "1000"}, {"10000": "500000.0"}, words="""
    The frequencies were made with another number than 10000. It decides how slow the slowest pair is. Newer models
    take a larger one, for longer texts; a table made with one base does not fit a model that was trained with
    another.""")
slip("one frequency for all", FORWARDS, {" / 10000 ** (2 * i / d_model)": ""}, words="""
    Every block turns by k radians. Only the first pair does; the others gain less in k positions, each by its own
    frequency.""")
slip("k left out", ALL_SHIFTS, {"k /": "1 /"}, words="""
    The matrix is the same for every k: it moves on by one position. In k positions, a pair gains k times the angle.""")
slip("never backwards", BACKWARDS, {"k /": "abs(k) /"}, words="""
    A negative k does not move back. The angle that a pair gains is k times its frequency, and for a negative k it is
    negative: leave the sign in. (Repeating a step k times does nothing at all for a negative k.)""")
slip("a sign astray", ALL_SHIFTS,
    {"-math.sin": "math.sin"},
    {"[math.sin": "[-math.sin"},  # two minuses
    {"[math.cos(b), -math.sin": "[-math.cos(b), math.sin"},  # at a cosine
    words="""
    The blocks are not turns: in the block of a turn, one of the two sines has a minus and the other has none. Check one
    pair by hand: (0, 1), which is position 0, must become (sin b, cos b).""")
slip("sine and cosine swapped", ALL_SHIFTS,
    {BLOCK: "[[math.sin(b), -math.cos(b)], [math.cos(b), math.sin(b)]]"},
    {BLOCK: "[[math.sin(b), math.cos(b)], [-math.cos(b), math.sin(b)]]"},  # the other sign
    words="""
    Sines stand on the diagonal. For k = 0 nothing may move, and the matrix must be the identity: which of the two is 1
    at the angle 0, and therefore belongs on the diagonal?""")
slip("every column by itself", ALL_SHIFTS, {BLOCK: "[[math.cos(b), 0], [0, math.cos(b)]]"}, words="""
    The matrix has numbers on its diagonal and nowhere else, so every column is only made larger or smaller. The new
    sine of a pair needs the old cosine, too: what must stand beside the diagonal?""")


# ------------------------------------------------------------------------------------------------------ further from it


@misconception("halves for interleaved", fails=FORWARDS)
def halves_for_interleaved(k, d_model):
    """This matrix pairs column i with column i + d_model/2. In our vectors the two of a pair are neighbours,
    columns 2i and 2i + 1, so the blocks of two by two follow each other down the diagonal."""
    half = d_model // 2
    b = k / 10000 ** (2 * torch.arange(half) / d_model)
    cos, sin = torch.diag(b.cos()), torch.diag(b.sin())
    return torch.cat([torch.cat([cos, -sin], dim=1), torch.cat([sin, cos], dim=1)], dim=0)


@variant("never backwards", fails=BACKWARDS)
def one_step_at_a_time(k, d_model):
    """One step at a time."""
    blocks = []
    for i in range(d_model // 2):
        b = 1 / 10000 ** (2 * i / d_model)
        blocks.append(torch.tensor([[math.cos(b), -math.sin(b)], [math.sin(b), math.cos(b)]]))
    step, matrix = torch.block_diag(*blocks), torch.eye(d_model)
    for _ in range(k):
        matrix = matrix @ step
    return matrix


@misconception("blocks that overlap", fails=ALL_SHIFTS)
def blocks_that_overlap(k, d_model):
    """Each block was written one row below the last, over half of it, and the lower rows of the matrix stayed
    empty. A block takes two rows and two columns: where does block i begin?"""
    matrix = torch.zeros(d_model, d_model)
    for i in range(d_model // 2):
        b = k / 10000 ** (2 * i / d_model)
        matrix[i : i + 2, i : i + 2] = torch.tensor([[math.cos(b), -math.sin(b)], [math.sin(b), math.cos(b)]])
    return matrix


@variant("written for columns", "exponent off by one", fails=FORWARDS)
def written_for_columns_and_counted_from_one(k, d_model):
    """Both at once."""
    blocks = []
    for i in range(1, d_model // 2 + 1):
        b = k / 10000 ** (2 * i / d_model)
        blocks.append(torch.tensor([[math.cos(b), math.sin(b)], [-math.sin(b), math.cos(b)]]))
    return torch.block_diag(*blocks)


# ------------------------------------------------------------------------------------------------ right in other styles


@alternative("a loop that writes blocks")
def a_loop_that_writes_blocks(k, d_model):
    """Into a matrix of zeros, in float64."""
    matrix = torch.zeros(d_model, d_model, dtype=torch.float64)
    for column in range(0, d_model, 2):
        b = k * 10000 ** (-column / d_model)
        matrix[column, column] = matrix[column + 1, column + 1] = math.cos(b)
        matrix[column + 1, column], matrix[column, column + 1] = math.sin(b), -math.sin(b)
    return matrix


@alternative("diagonals")
def diagonals(k, d_model):
    """Three diagonals, and no loop."""
    b = (k / 10000 ** (torch.arange(0, d_model, 2) / d_model)).repeat_interleave(2)
    sin = b.sin()[:-1] * (torch.arange(d_model - 1) % 2 == 0)
    return torch.diag(b.cos()) + torch.diag(sin, -1) - torch.diag(sin, 1)


@alternative("transposed from columns")
def transposed_from_columns(k, d_model):
    """The usual rotation matrix acts on columns: its transpose acts on rows. Not contiguous."""
    b = k / 10000 ** (2 * torch.arange(d_model // 2, dtype=torch.float64) / d_model)
    turn = torch.stack([b.cos(), b.sin(), -b.sin(), b.cos()], dim=-1).reshape(-1, 2, 2)
    return torch.block_diag(*turn).mT


@alternative("the exponential of a step")
def the_exponential_of_a_step(k, d_model):
    """A turn is e to the power of the angle times a quarter turn: einsum spreads the blocks over the diagonal."""
    b = k / 10000 ** (2 * torch.arange(d_model // 2, dtype=torch.float64) / d_model)
    quarter = torch.tensor([[0.0, -1.0], [1.0, 0.0]], dtype=torch.float64)
    turns = torch.matrix_exp(b[:, None, None] * quarter)
    pairs = torch.eye(d_model // 2, dtype=torch.float64)
    return torch.einsum("ij,iab->iajb", pairs, turns).reshape(d_model, d_model)
