"""Assignment 05: tell a model where a token is.

Function bodies below stand in for a learner's: they use torch alone, and the argument names of the contract.
"""

import math

import torch

from attncourse import positions as course
from attncourse.exercises.answering import AspectFailed, Problem
from attncourse.exercises.core import Exercise
from attncourse.exercises.judge import arrives, told
from attncourse.exercises.observe import gradients, telling

READY_MADE = ("attncourse.positions",)

# ---------------------------------------------------------------------------------------------------------- sinusoidal

sinusoidal = Exercise(
    "sinusoidal",
    reference=course.sinusoidal,
    returns=("vectors",),
    forbidden=READY_MADE,
    difficulty=2,
    minutes=15,
    hints=(
        "First the angles alone: a table with a column for each *pair*, of which there are d_model / 2. By which "
        "number is the position divided in the first pair, in the second, in the last?",
        "`2 * torch.arange(d_model // 2) / d_model` are the exponents. `positions[..., None]` puts a new last axis "
        "after whatever axes the positions have, and the division then makes the table.",
        "Sine and cosine of one angle stand side by side: stack the two tables along a new last axis, then merge the "
        "last two axes. (Or fill the columns 0, 2, 4, … and 1, 3, 5, … of an empty result.)",
    ),
)


def _even(draw, low=3, high=6):
    """An even width."""
    return 2 * draw.sizes(1, low, high)[0]


def _some_positions(draw, n=5):
    """Whole numbers from 1 to 60, none twice, not in order."""
    return 1 + torch.randperm(60, generator=draw.generator)[:n]


@sinusoidal.aspect("fastest pair", points=1)
def _(answer, draw):
    """the first two columns are sin p and cos p"""
    return answer(_some_positions(draw), _even(draw))[:, :2]


@sinusoidal.aspect("all columns", points=2)
def _(answer, draw):
    """sine and cosine side by side, each pair slower than the one before"""
    return answer(_some_positions(draw), _even(draw))


@sinusoidal.aspect(
    "distance",
    points=1,
    explain=told("the dot product of two vectors changes by {size} when both positions grow by one"),
)
def _(answer, draw):
    """the dot product of two vectors depends on how far apart they are, and on nothing else"""
    d_model = (6, 10, 12)[draw.sizes(1, 0, 2)[0]]  # not 8: the powers 10, 100, 1000 of 10000 would hide lost digits
    vectors = answer(draw.sizes(1, 1, 30)[0] + torch.arange(8), d_model)
    products = vectors @ vectors.mT
    if (products - products[:1, :1]).abs().max() < 1e-3:
        raise AspectFailed(Problem("unusable", "all positions have one and the same vector"))
    return products[1:, 1:] - products[:-1, :-1]


@sinusoidal.aspect("any shape", points=1)
def _(answer, draw):
    """positions of shape (batch, n) give vectors of shape (batch, n, d_model), the same as one by one"""
    batch, n = draw.sizes(2, 2, 4)
    positions, d_model = _some_positions(draw, batch * n), 2 * draw.sizes(1, 5, 8)[0]
    vectors = telling(answer(positions, d_model)).reshape(batch, n, -1)
    return answer(positions.reshape(batch, n), d_model) - vectors


@sinusoidal.misconception("halves for interleaved", fails=("fastest pair", "all columns"))
def _(positions, d_model):
    """All sines stand in the left half and all cosines in the right. The numbers are right and their places are
    not: here, as in the paper, sine and cosine of one angle are neighbours. Some libraries do it your way, and a
    model that was trained with one layout cannot read the other."""
    angles = positions[..., None] / 10000 ** (torch.arange(0, d_model, 2) / d_model)
    return torch.cat([angles.sin(), angles.cos()], dim=-1)


@sinusoidal.variant("halves for interleaved", fails=("fastest pair", "all columns"))
def _(positions, d_model):
    """Filled in."""
    half = d_model // 2
    angles = positions[..., None] * torch.exp(-math.log(10000.0) * 2 * torch.arange(half) / d_model)
    vectors = torch.zeros(*positions.shape, d_model)
    vectors[..., :half] = torch.sin(angles)
    vectors[..., half:] = torch.cos(angles)
    return vectors


@sinusoidal.misconception("exponent off by one", fails=("fastest pair", "all columns"))
def _(positions, d_model):
    """The pairs were counted from 1, as some slides do, so every pair turns as slowly as the next one should and the
    fastest is missing. In the paper, and in the formula above, the first pair has i = 0: what is its exponent then?"""
    i = torch.arange(1, d_model // 2 + 1)
    angles = positions[..., None] / 10000 ** (2 * i / d_model)
    return torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(-2)


@sinusoidal.misconception("exponent without its 2", fails=("all columns",))
def _(positions, d_model):
    """The exponents grow half as fast as they should: i / d_model for pair i, where the formula has 2i / d_model.
    The last pair should be nearly 10000 times as slow as the first; yours is some hundred times as slow."""
    i = torch.arange(d_model // 2)
    angles = positions[..., None] / 10000 ** (i / d_model)
    return torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(-2)


@sinusoidal.misconception("exponent with one 2 too many", fails=("all columns",))
def _(positions, d_model):
    """The exponents grow twice as fast as they should. `torch.arange(0, d_model, 2)` counts 0, 2, 4, …: that is 2i
    already, and must not be doubled again. The last exponent should be a little below 1."""
    two_i = torch.arange(0, d_model, 2)
    angles = positions[..., None] / 10000 ** (2 * two_i / d_model)
    return torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(-2)


@sinusoidal.variant("exponent with one 2 too many", fails=("all columns",))
def _(positions, d_model):
    """Over half the width."""
    half = d_model // 2
    angles = positions[..., None] / 10000 ** (2 * torch.arange(half) / half)
    return torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(-2)


@sinusoidal.misconception("slowest at exactly 10000", fails=("all columns",))
def _(positions, d_model):
    """The exponents run from 0 to 1, both ends included. Some published code does that; the paper's formula stops one
    step short of 1, because the last pair is i = d_model/2 − 1."""
    exponents = torch.linspace(0, 1, d_model // 2)
    angles = positions[..., None] / 10000**exponents
    return torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(-2)


@sinusoidal.misconception("each column its own frequency", fails=("fastest pair", "all columns", "distance"))
def _(positions, d_model):
    """The two columns of a pair turn at different speeds: the exponent was made from the number of the *column*. A
    sine and its cosine must share one angle, or the two are no longer one point on one circle. Columns 2i and 2i +
    1 have the same exponent."""
    column = torch.arange(d_model)
    angles = positions[..., None] / 10000 ** (column / d_model)
    return torch.where(column % 2 == 0, angles.sin(), angles.cos())


@sinusoidal.variant("each column its own frequency", fails=("fastest pair", "all columns", "distance"))
def _(positions, d_model):
    """Doubled."""
    column = torch.arange(d_model)
    angles = positions[..., None] / 10000 ** (2 * column / d_model)
    vectors = torch.zeros(*positions.shape, d_model)
    vectors[..., 0::2] = angles[..., 0::2].sin()
    vectors[..., 1::2] = angles[..., 1::2].cos()
    return vectors


@sinusoidal.misconception("cosine before sine", fails=("fastest pair", "all columns"))
def _(positions, d_model):
    """Sines and cosines changed places. Even columns, from column 0 on, hold sines. (Position 0 should be the vector 0,
    1, 0, 1, …: a quick thing to check.)"""
    angles = positions[..., None] / 10000 ** (torch.arange(0, d_model, 2) / d_model)
    return torch.stack([angles.cos(), angles.sin()], dim=-1).flatten(-2)


@sinusoidal.misconception("one frequency for all", fails=("all columns",))
def _(positions, d_model):
    """All pairs are the same: sin p and cos p again and again. With one frequency, positions that lie a whole turn
    apart, 6.28 of them, look almost the same. Each further pair must be slower, by the factor in the formula. (`//`
    drops the fraction: `2 * i // d_model` is 0 for every pair.)"""
    angles = positions[..., None] * torch.ones(d_model // 2)
    return torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(-2)


@sinusoidal.misconception("faster instead of slower", fails=("all columns", "distance"))
def _(positions, d_model):
    """The position was multiplied by the power of 10000 where it should be divided by it. The pairs then turn
    thousands of times from one position to the next, and float32 cannot even say where they stop."""
    angles = positions[..., None] * 10000 ** (torch.arange(0, d_model, 2) / d_model)
    return torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(-2)


@sinusoidal.misconception("counts for itself", fails=("fastest pair", "all columns"))
def _(positions, d_model):
    """The numbers in `positions` were not used, only how many there are: 0, 1, 2, … was counted instead. A model
    that decodes token by token asks for position 57 alone. Use the positions that come in."""
    counted = torch.arange(positions.numel()).reshape(positions.shape)
    angles = counted[..., None] / 10000 ** (torch.arange(0, d_model, 2) / d_model)
    return torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(-2)


@sinusoidal.variant("counts for itself", fails=("fastest pair", "all columns", "any shape"))
def _(positions, d_model):
    """Along the last axis."""
    counted = torch.arange(positions.shape[-1])
    angles = counted[:, None] / 10000 ** (torch.arange(0, d_model, 2) / d_model)
    vectors = torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(-2)
    return vectors.expand(*positions.shape, d_model)


@sinusoidal.misconception("counted from one", fails=("fastest pair", "all columns"))
def _(positions, d_model):
    """Every vector is that of the next position: one was added to the positions. They come counted from 0, and 0 is
    a position like any other."""
    angles = (positions[..., None] + 1) / 10000 ** (torch.arange(0, d_model, 2) / d_model)
    return torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(-2)


@sinusoidal.misconception("one axis only", fails=("any shape",))
def _(positions, d_model):
    """This works for a row of positions, (n,), and not for a batch of them, (batch, n). `positions[:, None]` and
    `unsqueeze(1)` put the new axis in second place, which is the last only if there was one axis. Ask for a new
    *last* axis."""
    angles = positions[:, None] / 10000 ** (torch.arange(0, d_model, 2) / d_model)
    return torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(-2)


@sinusoidal.variant("one axis only", fails=("any shape",))
def _(positions, d_model):
    """Into a matrix."""
    vectors = torch.zeros(len(positions), d_model)
    angles = positions.unsqueeze(1) * torch.exp(torch.arange(0, d_model, 2) * (-math.log(10000.0) / d_model))
    vectors[:, 0::2] = torch.sin(angles)
    vectors[:, 1::2] = torch.cos(angles)
    return vectors


@sinusoidal.variant("one axis only", fails=("any shape",))
def _(positions, d_model):
    """Number by number."""
    vectors = torch.zeros(len(positions), d_model)
    for row, p in enumerate(positions):
        for i in range(d_model // 2):
            vectors[row, 2 * i] = math.sin(p / 10000 ** (2 * i / d_model))
            vectors[row, 2 * i + 1] = math.cos(p / 10000 ** (2 * i / d_model))
    return vectors


@sinusoidal.variant("one axis only", fails=("any shape",))
def _(positions, d_model):
    """A list of lists."""
    frequencies = [10000 ** (-2 * i / d_model) for i in range(d_model // 2)]
    return torch.tensor([[f(p * w) for w in frequencies for f in (math.sin, math.cos)] for p in positions.tolist()])


@sinusoidal.variant("halves for interleaved", "exponent off by one", fails=("fastest pair", "all columns"))
def _(positions, d_model):
    """Both at once."""
    angles = positions[..., None] / 10000 ** (2 * torch.arange(1, d_model // 2 + 1) / d_model)
    return torch.cat([angles.sin(), angles.cos()], dim=-1)


@sinusoidal.misconception("no brackets round the exponent", fails=("fastest pair", "all columns"))
def _(positions, d_model):
    """`10000 ** 2 * i / d_model` is (10000²) · i / d_model, and `10000 ** two_i / d_model` is (10000 to the 2i) /
    d_model: in Python a power binds more tightly than a product or a quotient. Put brackets round the whole
    exponent."""
    angles = positions[..., None] / 10000.0 ** torch.arange(0, d_model, 2) / d_model
    return torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(-2)


@sinusoidal.variant("no brackets round the exponent", fails=("fastest pair", "all columns"))
def _(positions, d_model):
    """Divided by the quotient."""
    angles = positions[..., None] / (10000.0 ** torch.arange(0, d_model, 2) / d_model)
    return torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(-2)


@sinusoidal.misconception("sines alone", fails=("fastest pair", "all columns", "distance"))
def _(positions, d_model):
    """Every column is a sine: the odd columns repeat what stands beside them. A sine alone cannot say on which side of
    its peak it is, nor can a matrix move it along; with its cosine it is a point on a circle."""
    angles = positions[..., None] / 10000 ** (torch.arange(0, d_model, 2) / d_model)
    return angles.sin().repeat_interleave(2, dim=-1)


@sinusoidal.alternative("every other column")
def _(positions, d_model):
    """Fills the columns in, with the exponent as exp of a logarithm."""
    frequency = torch.exp(torch.arange(0, d_model, 2) * (-math.log(10000.0) / d_model))
    angles = positions.unsqueeze(-1) * frequency
    vectors = torch.empty(*positions.shape, d_model)
    vectors[..., 0::2] = torch.sin(angles)
    vectors[..., 1::2] = torch.cos(angles)
    return vectors


@sinusoidal.alternative("a loop over the columns, in float64")
def _(positions, d_model):
    """One column at a time, and only sines: a cosine is a sine a quarter turn ahead."""
    columns = []
    for column in range(d_model):
        angle = positions.double() / 10000 ** ((column - column % 2) / d_model)
        columns.append(torch.sin(angle + (column % 2) * math.pi / 2))
    return torch.stack(columns, dim=-1)


@sinusoidal.alternative("an outer product, not contiguous")
def _(positions, d_model):
    """Column by position, and back by transposing."""
    frequency = 10000.0 ** (-torch.arange(0, d_model, 2, dtype=torch.float64) / d_model)
    angles = torch.outer(frequency, positions.flatten().double())
    table = torch.stack([angles.sin(), angles.cos()], dim=1).flatten(0, 1).mT
    return table.unflatten(0, positions.shape)


@sinusoidal.alternative("complex numbers")
def _(positions, d_model):
    """e to the i times the angle has both in one; the imaginary part comes first here."""
    angles = torch.einsum("...,f->...f", positions.double(), 1e4 ** (-torch.arange(0, d_model, 2).double() / d_model))
    turned = torch.polar(torch.ones_like(angles), angles)
    return torch.view_as_real(turned).flip(-1).flatten(-2).float()


# -------------------------------------------------------------------------------------------------------- shift_matrix

shift_matrix = Exercise(
    "shift_matrix",
    reference=course.shift_matrix,
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


def _two_shifts(draw):
    """Two different numbers of positions, neither 0 nor 1."""
    return draw.sizes(2, 2, 9)


def _table(draw, shift, d_model):
    """The vectors of some positions, and what they should be `shift` positions later."""
    positions = 20 + _some_positions(draw, 7)
    return course.sinusoidal(positions, d_model), course.sinusoidal(positions + shift, d_model)


MOVED = told(
    "at {place} a moved vector has {got}; the vector of the position that it should have reached has {expected}"
)


@shift_matrix.aspect("forwards", points=2, explain=MOVED)
def _(answer, draw):
    """one matrix takes the vector of every position to that of the position k later"""
    k, d_model = _two_shifts(draw)[0], _even(draw)
    vectors, _ = _table(draw, k, d_model)
    return vectors @ answer(k, d_model).to(vectors.dtype)


@shift_matrix.aspect("backwards", points=1, explain=MOVED)
def _(answer, draw):
    """a negative k goes back"""
    k, d_model = _two_shifts(draw)[0], _even(draw)
    vectors, _ = _table(draw, -k, d_model)
    return vectors @ answer(-k, d_model).to(vectors.dtype)


@shift_matrix.aspect(
    "one after the other",
    points=1,
    explain=told("the product of the matrices for a and b differs by {size} at {place} from the matrix for a + b"),
)
def _(answer, draw):
    """a shift by a and then by b is a shift by a + b"""
    (a, b), d_model = _two_shifts(draw), _even(draw)
    first, second, both = answer(a, d_model), answer(b, d_model), answer(a + b, d_model)
    if torch.equal(first, second):
        raise AspectFailed(Problem("unusable", f"it is the same matrix for k = {a} and for k = {b}"))
    return first @ second - both


ALL_SHIFTS = ("forwards", "backwards", "one after the other")


@shift_matrix.misconception("written for columns", fails=("forwards", "backwards"))
def _(k, d_model):
    """This is the matrix for column vectors, M PE(p). In this course a vector is a row and the matrix stands on its
    right, so what turns a column by +b turns a row by −b. What must be done to a matrix when it changes sides?"""
    blocks = []
    for i in range(d_model // 2):
        b = k / 10000 ** (2 * i / d_model)
        blocks.append(torch.tensor([[math.cos(b), math.sin(b)], [-math.sin(b), math.cos(b)]]))
    return torch.block_diag(*blocks)


@shift_matrix.misconception("halves for interleaved", fails=("forwards", "backwards"))
def _(k, d_model):
    """This matrix pairs column i with column i + d_model/2. In our vectors the two of a pair are neighbours,
    columns 2i and 2i + 1, so the blocks of two by two follow each other down the diagonal."""
    half = d_model // 2
    b = k / 10000 ** (2 * torch.arange(half) / d_model)
    cos, sin = torch.diag(b.cos()), torch.diag(b.sin())
    return torch.cat([torch.cat([cos, -sin], dim=1), torch.cat([sin, cos], dim=1)], dim=0)


@shift_matrix.misconception("exponent off by one", fails=("forwards", "backwards"))
def _(k, d_model):
    """Each block turns at the speed of the next pair: the pairs were counted from 1. The first pair of `sinusoidal`
    has i = 0 and turns by one radian a position, so the first block turns by k radians."""
    blocks = []
    for i in range(1, d_model // 2 + 1):
        b = k / 10000 ** (2 * i / d_model)
        blocks.append(torch.tensor([[math.cos(b), -math.sin(b)], [math.sin(b), math.cos(b)]]))
    return torch.block_diag(*blocks)


@shift_matrix.misconception("exponent without its 2", fails=("forwards", "backwards"))
def _(k, d_model):
    """The blocks do not slow down as fast as the pairs of `sinusoidal` do: the exponent is 2i / d_model for pair
    i."""
    blocks = []
    for i in range(d_model // 2):
        b = k / 10000 ** (i / d_model)
        blocks.append(torch.tensor([[math.cos(b), -math.sin(b)], [math.sin(b), math.cos(b)]]))
    return torch.block_diag(*blocks)


@shift_matrix.misconception("one frequency for all", fails=("forwards", "backwards"))
def _(k, d_model):
    """Every block turns by k radians. Only the first pair does; the others gain less in k positions, each by its
    own frequency."""
    block = torch.tensor([[math.cos(k), -math.sin(k)], [math.sin(k), math.cos(k)]])
    return torch.block_diag(*[block] * (d_model // 2))


@shift_matrix.misconception("k left out", fails=ALL_SHIFTS)
def _(k, d_model):
    """The matrix is the same for every k: it moves on by one position. In k positions, a pair gains k times the
    angle."""
    blocks = []
    for i in range(d_model // 2):
        b = 1 / 10000 ** (2 * i / d_model)
        blocks.append(torch.tensor([[math.cos(b), -math.sin(b)], [math.sin(b), math.cos(b)]]))
    return torch.block_diag(*blocks)


@shift_matrix.misconception("never backwards", fails=("backwards",))
def _(k, d_model):
    """A negative k does not move back. The angle that a pair gains is k times its frequency, and for a negative k
    it is negative: leave the sign in. (Repeating a step k times does nothing at all for a negative k.)"""
    blocks = []
    for i in range(d_model // 2):
        b = abs(k) / 10000 ** (2 * i / d_model)
        blocks.append(torch.tensor([[math.cos(b), -math.sin(b)], [math.sin(b), math.cos(b)]]))
    return torch.block_diag(*blocks)


@shift_matrix.variant("never backwards", fails=("backwards",))
def _(k, d_model):
    """One step at a time."""
    blocks = []
    for i in range(d_model // 2):
        b = 1 / 10000 ** (2 * i / d_model)
        blocks.append(torch.tensor([[math.cos(b), -math.sin(b)], [math.sin(b), math.cos(b)]]))
    step, matrix = torch.block_diag(*blocks), torch.eye(d_model)
    for _ in range(k):
        matrix = matrix @ step
    return matrix


@shift_matrix.misconception("a sign astray", fails=ALL_SHIFTS)
def _(k, d_model):
    """The blocks are not turns: in the block of a turn, one of the two sines has a minus and the other has none. Check
    one pair by hand: (0, 1), which is position 0, must become (sin b, cos b)."""
    blocks = []
    for i in range(d_model // 2):
        b = k / 10000 ** (2 * i / d_model)
        blocks.append(torch.tensor([[math.cos(b), math.sin(b)], [math.sin(b), math.cos(b)]]))
    return torch.block_diag(*blocks)


@shift_matrix.variant("a sign astray", fails=ALL_SHIFTS)
def _(k, d_model):
    """Two minuses."""
    blocks = []
    for i in range(d_model // 2):
        b = k / 10000 ** (2 * i / d_model)
        blocks.append(torch.tensor([[math.cos(b), -math.sin(b)], [-math.sin(b), math.cos(b)]]))
    return torch.block_diag(*blocks)


@shift_matrix.variant("a sign astray", fails=ALL_SHIFTS)
def _(k, d_model):
    """At a cosine."""
    blocks = []
    for i in range(d_model // 2):
        b = k / 10000 ** (2 * i / d_model)
        blocks.append(torch.tensor([[-math.cos(b), math.sin(b)], [math.sin(b), math.cos(b)]]))
    return torch.block_diag(*blocks)


@shift_matrix.misconception("sine and cosine swapped", fails=ALL_SHIFTS)
def _(k, d_model):
    """Sines stand on the diagonal. For k = 0 nothing may move, and the matrix must be the identity: which of the
    two is 1 at the angle 0, and therefore belongs on the diagonal?"""
    blocks = []
    for i in range(d_model // 2):
        b = k / 10000 ** (2 * i / d_model)
        blocks.append(torch.tensor([[math.sin(b), -math.cos(b)], [math.cos(b), math.sin(b)]]))
    return torch.block_diag(*blocks)


@shift_matrix.variant("sine and cosine swapped", fails=ALL_SHIFTS)
def _(k, d_model):
    """The other sign."""
    blocks = []
    for i in range(d_model // 2):
        b = k / 10000 ** (2 * i / d_model)
        blocks.append(torch.tensor([[math.sin(b), math.cos(b)], [-math.cos(b), math.sin(b)]]))
    return torch.block_diag(*blocks)


@shift_matrix.variant("written for columns", "exponent off by one", fails=("forwards", "backwards"))
def _(k, d_model):
    """Both at once."""
    blocks = []
    for i in range(1, d_model // 2 + 1):
        b = k / 10000 ** (2 * i / d_model)
        blocks.append(torch.tensor([[math.cos(b), math.sin(b)], [-math.sin(b), math.cos(b)]]))
    return torch.block_diag(*blocks)


@shift_matrix.misconception("exponent with one 2 too many", fails=("forwards", "backwards"))
def _(k, d_model):
    """The blocks slow down twice as fast as the pairs of `sinusoidal`: a counter that already goes 0, 2, 4, … was
    doubled once more. The exponent of the last pair is a little below 1."""
    blocks = []
    for i in range(0, d_model, 2):
        b = k / 10000 ** (2 * i / d_model)
        blocks.append(torch.tensor([[math.cos(b), -math.sin(b)], [math.sin(b), math.cos(b)]]))
    return torch.block_diag(*blocks)


@shift_matrix.misconception("every column by itself", fails=ALL_SHIFTS)
def _(k, d_model):
    """The matrix has numbers on its diagonal and nowhere else, so every column is only made larger or smaller. The
    new sine of a pair needs the old cosine, too: what must stand beside the diagonal?"""
    b = k / 10000 ** (torch.arange(0, d_model, 2) / d_model)
    return torch.diag(b.cos().repeat_interleave(2))


@shift_matrix.misconception("blocks that overlap", fails=ALL_SHIFTS)
def _(k, d_model):
    """Each block was written one row below the last, over half of it, and the lower rows of the matrix stayed
    empty. A block takes two rows and two columns: where does block i begin?"""
    matrix = torch.zeros(d_model, d_model)
    for i in range(d_model // 2):
        b = k / 10000 ** (2 * i / d_model)
        matrix[i : i + 2, i : i + 2] = torch.tensor([[math.cos(b), -math.sin(b)], [math.sin(b), math.cos(b)]])
    return matrix


@shift_matrix.alternative("a loop that writes blocks")
def _(k, d_model):
    """Into a matrix of zeros, in float64."""
    matrix = torch.zeros(d_model, d_model, dtype=torch.float64)
    for column in range(0, d_model, 2):
        b = k * 10000 ** (-column / d_model)
        matrix[column, column] = matrix[column + 1, column + 1] = math.cos(b)
        matrix[column + 1, column], matrix[column, column + 1] = math.sin(b), -math.sin(b)
    return matrix


@shift_matrix.alternative("diagonals")
def _(k, d_model):
    """Three diagonals, and no loop."""
    b = (k / 10000 ** (torch.arange(0, d_model, 2) / d_model)).repeat_interleave(2)
    sin = b.sin()[:-1] * (torch.arange(d_model - 1) % 2 == 0)
    return torch.diag(b.cos()) + torch.diag(sin, -1) - torch.diag(sin, 1)


@shift_matrix.alternative("transposed from columns")
def _(k, d_model):
    """The usual rotation matrix acts on columns: its transpose acts on rows. Not contiguous."""
    b = k / 10000 ** (2 * torch.arange(d_model // 2, dtype=torch.float64) / d_model)
    turn = torch.stack([b.cos(), b.sin(), -b.sin(), b.cos()], dim=-1).reshape(-1, 2, 2)
    return torch.block_diag(*turn).mT


@shift_matrix.alternative("the exponential of a step")
def _(k, d_model):
    """A turn is e to the power of the angle times a quarter turn: einsum spreads the blocks over the diagonal."""
    b = k / 10000 ** (2 * torch.arange(d_model // 2, dtype=torch.float64) / d_model)
    quarter = torch.tensor([[0.0, -1.0], [1.0, 0.0]], dtype=torch.float64)
    turns = torch.matrix_exp(b[:, None, None] * quarter)
    pairs = torch.eye(d_model // 2, dtype=torch.float64)
    return torch.einsum("ij,iab->iajb", pairs, turns).reshape(d_model, d_model)


# ------------------------------------------------------------------------------------------------------ relative_index


def _relative_index(n_query, n_key, max_distance):
    """clip(j − i, −k, k) + k. Shaw et al. 2018, section 3.2."""
    return course.relative_index(n_query, n_key, max_distance)


relative_index = Exercise(
    "relative_index",
    reference=_relative_index,
    returns=("index",),
    forbidden=READY_MADE,
    difficulty=1,
    minutes=10,
    hints=(
        "Begin with the distances j − i alone. Row i belongs to query i and column j to key j: what should row 0 be, "
        "and what should row 1 be?",
        "`torch.arange(n_key) - torch.arange(n_query)[:, None]` has all the distances. Which of them have no vector of "
        "their own?",
        "A table has no row −3. Clip to −max_distance … max_distance, then add what makes the smallest of them 0.",
    ),
)


@relative_index.aspect("near pairs", points=2)
def _(answer, draw):
    """keys within reach get the row of their distance"""
    n, reach = draw.sizes(1, 7, 9)[0], draw.sizes(1, 2, 3)[0]
    place = torch.arange(n)
    near = (place - place[:, None]).abs() <= reach
    return answer(n, n, reach) * near


@relative_index.aspect("far pairs", points=1)
def _(answer, draw):
    """keys further off share the row of the furthest"""
    n, reach = draw.sizes(1, 7, 9)[0], draw.sizes(1, 2, 3)[0]
    place = torch.arange(n)
    far = (place - place[:, None]).abs() > reach
    return answer(n, n, reach) * far


@relative_index.aspect("not square", points=1)
def _(answer, draw):
    """a row for each query and a column for each key, however many there are"""
    n_query, n_key = draw.sizes(2, 2, 6)
    return answer(n_query, n_key, 6 + draw.sizes(1, 1, 3)[0])


@relative_index.aspect("fits the table", points=1)
def _(answer, draw):
    """whole numbers, each naming one of its 2 · max_distance + 1 rows"""
    n, reach = draw.sizes(1, 8, 10)[0], draw.sizes(1, 2, 3)[0]
    index = telling(answer(n, n, reach))
    if index.shape != (n, n):
        raise AspectFailed(Problem("unusable", f"shape {tuple(index.shape)} for {n} queries and {n} keys"))
    if index.is_floating_point():
        raise AspectFailed(
            Problem("unusable", f"a table cannot be indexed with {str(index.dtype).removeprefix('torch.')}")
        )
    low, high = int(index.min()), int(index.max())
    if low < 0 or high > 2 * reach:
        words = f"numbers {low}..{high} for a table of {2 * reach + 1} rows, 0..{2 * reach}"
        raise AspectFailed(Problem("unusable", words))
    return torch.tensor(True)


EVERY_PAIR = ("near pairs", "far pairs", "not square")


@relative_index.misconception("mirrored across the diagonal", fails=EVERY_PAIR)
def _(n_query, n_key, max_distance):
    """Left and right are mirrored: what belongs to query 1 and key 3 stands where query 3 meets key 1. Key 3 lies
    two places to the right of query 1, so in row 1 and column 3 the distance is +2. Walking along a row, it must
    grow."""
    distance = torch.arange(n_query)[:, None] - torch.arange(n_key)
    return distance.clamp(-max_distance, max_distance) + max_distance


@relative_index.variant("mirrored across the diagonal", fails=EVERY_PAIR)
def _(n_query, n_key, max_distance):
    """Keys down the rows."""
    distance = torch.arange(n_key)[:, None] - torch.arange(n_query)
    return distance.clamp(-max_distance, max_distance) + max_distance


@relative_index.misconception("no clip", fails=("far pairs", "fits the table"))
def _(n_query, n_key, max_distance):
    """Far keys got a row of their own, but there are only 2 · max_distance + 1 rows: in a sentence longer than those of
    the training, the index would run off the table. Everything further than max_distance shares the outermost row."""
    return torch.arange(n_key) - torch.arange(n_query)[:, None] + max_distance


@relative_index.variant("no clip", fails=("far pairs", "fits the table"))
def _(n_query, n_key, max_distance):
    """From below only."""
    return (torch.arange(n_key) - torch.arange(n_query)[:, None] + max_distance).clamp(min=0)


@relative_index.variant("no clip", fails=("far pairs", "fits the table"))
def _(n_query, n_key, max_distance):
    """From above only."""
    return (torch.arange(n_key) - torch.arange(n_query)[:, None]).clamp(max=max_distance) + max_distance


@relative_index.misconception("distances, not rows", fails=(*EVERY_PAIR, "fits the table"))
def _(n_query, n_key, max_distance):
    """These are the clipped distances themselves, from −max_distance to max_distance. As an index, a negative number
    counts from the end in Python, without any error, and the left side would read the rows of the right. Move them up
    so that the smallest becomes 0."""
    distance = torch.arange(n_key) - torch.arange(n_query)[:, None]
    return distance.clamp(-max_distance, max_distance)


@relative_index.misconception("left and right the same", fails=EVERY_PAIR)
def _(n_query, n_key, max_distance):
    """The absolute value was taken, so the word before and the word after get the same row. The whole point is to
    tell them apart: keep the sign."""
    distance = (torch.arange(n_key) - torch.arange(n_query)[:, None]).abs()
    return distance.clamp(max=max_distance)


@relative_index.variant("left and right the same", fails=EVERY_PAIR)
def _(n_query, n_key, max_distance):
    """Moved up."""
    distance = (torch.arange(n_key) - torch.arange(n_query)[:, None]).abs()
    return distance.clamp(-max_distance, max_distance) + max_distance


@relative_index.misconception("moved up too early", fails=(*EVERY_PAIR, "fits the table"))
def _(n_query, n_key, max_distance):
    """max_distance was added first and the sum clipped at max_distance, which is the bound for distances, not for rows.
    All keys to the right ended up in one row. Either clip first, or clip to the bounds that rows have."""
    distance = torch.arange(n_key) - torch.arange(n_query)[:, None]
    return (distance + max_distance).clamp(-max_distance, max_distance)


@relative_index.variant("moved up too early", fails=EVERY_PAIR)
def _(n_query, n_key, max_distance):
    """Clipped at zero."""
    distance = torch.arange(n_key) - torch.arange(n_query)[:, None]
    return (distance + max_distance).clamp(0, max_distance)


@relative_index.misconception("as many keys as queries", fails=("not square",))
def _(n_query, n_key, max_distance):
    """The table is square: one of the two lengths was used for both axes. When a decoder writes token by token
    there is one query and there are many keys."""
    place = torch.arange(n_query)
    return (place - place[:, None]).clamp(-max_distance, max_distance) + max_distance


@relative_index.variant("as many keys as queries", fails=("not square",))
def _(n_query, n_key, max_distance):
    """By the keys."""
    place = torch.arange(n_key)
    return (place - place[:, None]).clamp(-max_distance, max_distance) + max_distance


@relative_index.misconception("not whole numbers", fails=("fits the table",))
def _(n_query, n_key, max_distance):
    """The numbers are right, but they are floating-point numbers, and a table cannot be asked for its row 2.0. Ranges
    of whole numbers stay whole under −, + and `clamp`; something turned yours into floats."""
    distance = torch.arange(n_key, dtype=torch.float32) - torch.arange(n_query)[:, None]
    return distance.clamp(-max_distance, max_distance) + max_distance


@relative_index.variant("not whole numbers", fails=("fits the table",))
def _(n_query, n_key, max_distance):
    """Written into zeros."""
    index = torch.zeros(n_query, n_key)
    for i in range(n_query):
        for j in range(n_key):
            index[i, j] = max(-max_distance, min(max_distance, j - i)) + max_distance
    return index


@relative_index.misconception("rows counted from one", fails=(*EVERY_PAIR, "fits the table"))
def _(n_query, n_key, max_distance):
    """Every row is one too high, and the last points past the end of the table. The first row of a table is row 0, so
    the distance −max_distance must become 0."""
    distance = torch.arange(n_key) - torch.arange(n_query)[:, None]
    return distance.clamp(-max_distance, max_distance) + max_distance + 1


@relative_index.variant("mirrored across the diagonal", "distances, not rows", fails=(*EVERY_PAIR, "fits the table"))
def _(n_query, n_key, max_distance):
    """Both at once."""
    distance = torch.arange(n_query)[:, None] - torch.arange(n_key)
    return distance.clamp(-max_distance, max_distance)


@relative_index.variant("no clip", "distances, not rows", fails=(*EVERY_PAIR, "fits the table"))
def _(n_query, n_key, max_distance):
    """Both at once: the distances, untouched."""
    return torch.arange(n_key) - torch.arange(n_query)[:, None]


@relative_index.misconception("one row too few", fails=("near pairs", "far pairs"))
def _(n_query, n_key, max_distance):
    """Clipped one step short on the right: max_distance to the right got the row of its neighbour, and the last row
    of the table is never used. `clamp` keeps both of its bounds, unlike `range`, so the upper one need not be
    lowered."""
    distance = torch.arange(n_key) - torch.arange(n_query)[:, None]
    return distance.clamp(-max_distance, max_distance - 1) + max_distance


@relative_index.misconception("far pairs taken for near ones", fails=("far pairs",))
def _(n_query, n_key, max_distance):
    """A key that is too far away got the row of a near one, as if it stood right here. The furthest row on its side
    is the one that says "this far or further"."""
    distance = torch.arange(n_key) - torch.arange(n_query)[:, None]
    return torch.where(distance.abs() <= max_distance, distance, 0) + max_distance


@relative_index.variant("far pairs taken for near ones", fails=("far pairs",))
def _(n_query, n_key, max_distance):
    """Round the table and in again on the other side."""
    distance = torch.arange(n_key) - torch.arange(n_query)[:, None]
    return (distance + max_distance) % (2 * max_distance + 1)


@relative_index.misconception("queries at the end", fails=("not square",))
def _(n_query, n_key, max_distance):
    """The queries were taken for the *last* positions among the keys, as if the earlier keys came from a cache.
    Here query 0 and key 0 stand at the same position, however many there are of each."""
    distance = torch.arange(n_key) - torch.arange(n_key - n_query, n_key)[:, None]
    return distance.clamp(-max_distance, max_distance) + max_distance


@relative_index.alternative("two loops")
def _(n_query, n_key, max_distance):
    """As in the equation."""
    rows = []
    for i in range(n_query):
        rows.append([max(-max_distance, min(max_distance, j - i)) + max_distance for j in range(n_key)])
    return torch.tensor(rows)


@relative_index.alternative("clipped as rows")
def _(n_query, n_key, max_distance):
    """Moves up first and clips to the rows that there are."""
    query, key = torch.meshgrid(torch.arange(n_query), torch.arange(n_key), indexing="ij")
    return (key - query + max_distance).clip(0, 2 * max_distance)


@relative_index.alternative("windows of one long row, not contiguous")
def _(n_query, n_key, max_distance):
    """Every row is the one above, moved on by one: cut them out of a single range, back to front."""
    distance = torch.arange(-(n_query - 1), n_key)
    rows = torch.clamp(distance, -max_distance, max_distance).add(max_distance)
    return rows.unfold(0, n_key, 1).flip(0)


@relative_index.alternative("a triangle for each distance")
def _(n_query, n_key, max_distance):
    """Counts how many thresholds a distance has passed; int32."""
    distance = torch.arange(n_key).expand(n_query, n_key) - torch.arange(n_query).unsqueeze(1)
    thresholds = torch.arange(1 - max_distance, max_distance + 1)
    return (distance.unsqueeze(-1) >= thresholds).sum(dim=-1, dtype=torch.int32)


# ---------------------------------------------------------------------------------------------------------------- rope


def _rope(query, key, value, start):
    """Query and key turned, pairs side by side, the value as it is. Su et al. 2021, section 3.4.2."""
    angles = course.rope_angles(torch.arange(start, start + query.shape[-2]), query.shape[-1])
    return course.rotate(query, angles, "interleaved"), course.rotate(key, angles, "interleaved"), value


rope = Exercise(
    "rope",
    reference=_rope,
    returns=("query", "key", "value"),
    forbidden=READY_MADE,
    difficulty=3,
    minutes=30,
    hints=(
        "Write a helper that turns one tensor, and use it for those that must be turned. Its first step: the angles, "
        "a table (n, d_head / 2). Which axis of a tensor (batch, n, d_head) are the positions?",
        "The columns 0, 2, 4, … are the first members of the pairs: `x[..., 0::2]`, of shape (batch, n, d_head / 2), "
        "and the angles broadcast against it. `x[..., 1::2]` are the second members.",
        "Two new tables come out, one of first and one of second members. Put them back where they came from: stack "
        "along a new last axis and merge the last two.",
    ),
)


def _tokens(draw):
    """A batch, a length and a width that is even; neither it nor its half is equal to one of the others."""
    batch, n = draw.sizes(2, 4, 7)
    return batch, n, 2 * draw.sizes(1, 8, 10)[0]


def _three(draw):
    return [draw.normal(*shape) for shape in [_tokens(draw)] * 3]


def _must_turn(came, went):
    """Stop at an answer that hands everything back as it came: it would be right about the value without doing a
    thing."""
    if came.shape == went.shape and torch.equal(came, went.to(came.dtype)):
        raise AspectFailed(Problem("unusable", "nothing was turned, not even the query"))


@rope.aspect("query", points=2)
def _(answer, draw):
    """each pair of the query's columns is turned by its position's angle"""
    return answer(*_three(draw), 0)[0]


@rope.aspect("key", points=1)
def _(answer, draw):
    """the key is turned in the same way"""
    return answer(*_three(draw), 0)[1]


@rope.aspect("value", points=1)
def _(answer, draw):
    """what is averaged stays as it is"""
    query, key, value = _three(draw)
    turned, _, kept = answer(query, key, value, 0)
    _must_turn(query, turned)
    return kept


@rope.aspect("distance", points=2, explain=told("a score changes by {size} when query and key both move on by one"))
def _(answer, draw):
    """the score of two vectors depends on how far apart they stand, and on nothing else"""
    batch, n, d_head = _tokens(draw)
    query, key = (draw.normal(batch, 1, d_head).repeat(1, n, 1) for _ in range(2))
    query, key, _ = answer(query, key, draw.normal(batch, n, d_head), 3)
    scores = query @ key.mT
    if ((scores - scores[:, :1, :1]).abs().amax(dim=(1, 2)) < 1e-3).any():
        raise AspectFailed(Problem("unusable", "in one sequence the scores are the same at every distance"))
    return scores[:, 1:, 1:] - scores[:, :-1, :-1]


@rope.aspect("a later start", points=1)
def _(answer, draw):
    """rows that begin at position `start` are turned by start, start + 1, …"""
    query, key, value = _three(draw)
    query, key, _ = answer(query, key, value, draw.sizes(1, 5, 40)[0])
    return torch.stack([query, key])


@rope.aspect("gradient", points=1, explain=arrives("query", "key"))
def _(answer, draw):
    """a turn passes the gradient on at its full length, to the query and to the key"""
    query, key, value = _three(draw)
    query.requires_grad_()
    key.requires_grad_()
    turned_query, turned_key, _ = answer(query, key, value, 2)
    _must_turn(query.detach(), turned_query)
    return gradients(torch.stack([turned_query, turned_key]), [query, key], draw).norm(dim=-1)


TURNED = ("query", "key", "a later start")


@rope.misconception("halves for interleaved", fails=TURNED)
def _(query, key, value, start):
    """Somewhere the two members of a pair stand half a width apart, columns i and i + d_head/2: where they are read,
    where the angles are laid out, or where they are put back. Used throughout, that is the layout of GPT-NeoX, and of
    Llama in the transformers library, and just as good. But the contract, and the paper, pair neighbours: columns 2i
    and 2i + 1. Weights trained with one layout fail with the other."""
    half = query.shape[-1] // 2
    place = torch.arange(start, start + query.shape[1])
    angles = place[:, None] / 10000 ** (2 * torch.arange(half) / query.shape[-1])
    turned = []
    for x in (query, key):
        a, b = x[..., :half], x[..., half:]
        turned.append(torch.cat([a * angles.cos() - b * angles.sin(), a * angles.sin() + b * angles.cos()], dim=-1))
    return turned[0], turned[1], value


@rope.variant("halves for interleaved", fails=(*TURNED, "distance", "gradient"))
def _(query, key, value, start):
    """Pairs of neighbours turned, put back as halves: the angles, doubled up, meet the wrong columns."""
    place = torch.arange(start, start + query.shape[1])
    angles = place[:, None] / 10000 ** (torch.arange(0, query.shape[-1], 2) / query.shape[-1])
    cos, sin = torch.cat([angles.cos()] * 2, dim=-1), torch.cat([angles.sin()] * 2, dim=-1)
    turned = []
    for x in (query, key):
        partner = torch.stack([-x[..., 1::2], x[..., 0::2]], dim=-1).flatten(-2)
        turned.append(x * cos + partner * sin)
    return turned[0], turned[1], value


@rope.variant("halves for interleaved", fails=TURNED)
def _(query, key, value, start):
    """Taken apart as neighbours, put back as halves."""
    place = torch.arange(start, start + query.shape[1])
    angles = place[:, None] / 10000 ** (torch.arange(0, query.shape[-1], 2) / query.shape[-1])
    cos, sin = angles.cos(), angles.sin()
    turned = []
    for x in (query, key):
        a, b = x[..., 0::2], x[..., 1::2]
        turned.append(torch.cat([a * cos - b * sin, a * sin + b * cos], dim=-1))
    return turned[0], turned[1], value


@rope.misconception("batch for position", fails=(*TURNED, "distance"))
def _(query, key, value, start):
    """The positions were counted along the batch: all tokens of a sentence were turned by the same angle, and by how
    much depended on which sentence of the batch it was. The positions are the last axis but one. (A published slide has
    this very slip; lecture 13 comes back to it.)"""
    place = torch.arange(start, start + query.shape[0])
    angles = place[:, None, None] / 10000 ** (torch.arange(0, query.shape[-1], 2) / query.shape[-1])
    turned = []
    for x in (query, key):
        a, b = x[..., 0::2], x[..., 1::2]
        pair = [a * angles.cos() - b * angles.sin(), a * angles.sin() + b * angles.cos()]
        turned.append(torch.stack(pair, dim=-1).flatten(-2))
    return turned[0], turned[1], value


@rope.misconception("rotates the values", fails=("value",))
def _(query, key, value, start):
    """The value was turned as well. Turning is there so that *scores* feel a distance, and values are not in the
    scores: they are averaged, and an average of vectors that were each turned by a different angle is no longer an
    average of what the tokens say."""
    place = torch.arange(start, start + query.shape[1])
    angles = place[:, None] / 10000 ** (torch.arange(0, query.shape[-1], 2) / query.shape[-1])
    turned = []
    for x in (query, key, value):
        a, b = x[..., 0::2], x[..., 1::2]
        pair = [a * angles.cos() - b * angles.sin(), a * angles.sin() + b * angles.cos()]
        turned.append(torch.stack(pair, dim=-1).flatten(-2))
    return turned[0], turned[1], turned[2]


@rope.variant("rotates the values", "halves for interleaved", fails=(*TURNED, "value"))
def _(query, key, value, start):
    """Both at once."""
    half = query.shape[-1] // 2
    place = torch.arange(start, start + query.shape[1])
    angles = place[:, None] / 10000 ** (2 * torch.arange(half) / query.shape[-1])
    turned = []
    for x in (query, key, value):
        a, b = x[..., :half], x[..., half:]
        turned.append(torch.cat([a * angles.cos() - b * angles.sin(), a * angles.sin() + b * angles.cos()], dim=-1))
    return turned[0], turned[1], turned[2]


@rope.misconception("only the query", fails=("key", "distance", "a later start"))
def _(query, key, value, start):
    """The key came back as it was. A score then depends on where the query stands and not on where the key stands,
    so no distance can come out. Both are turned, and in the dot product what they have in common cancels."""
    place = torch.arange(start, start + query.shape[1])
    angles = place[:, None] / 10000 ** (torch.arange(0, query.shape[-1], 2) / query.shape[-1])
    a, b = query[..., 0::2], query[..., 1::2]
    pair = [a * angles.cos() - b * angles.sin(), a * angles.sin() + b * angles.cos()]
    return torch.stack(pair, dim=-1).flatten(-2), key, value


@rope.misconception("key turned the other way", fails=("key", "distance", "a later start"))
def _(query, key, value, start):
    """Query and key were turned in opposite directions, so the score depends on the *sum* of their positions. Turn both
    the same way: the transpose in the dot product reverses the sign by itself, and leaves the difference."""
    place = torch.arange(start, start + query.shape[1])
    angles = place[:, None] / 10000 ** (torch.arange(0, query.shape[-1], 2) / query.shape[-1])
    turned = []
    for x, sign in ((query, 1), (key, -1)):
        a, b, cos, sin = x[..., 0::2], x[..., 1::2], angles.cos(), sign * angles.sin()
        turned.append(torch.stack([a * cos - b * sin, a * sin + b * cos], dim=-1).flatten(-2))
    return turned[0], turned[1], value


@rope.misconception("turned the other way", fails=TURNED)
def _(query, key, value, start):
    """Everything was turned by minus its angle. The scores do not notice, since both were; but weights and caches
    made with the other direction would. The minus belongs to the sine in the *first* member of a pair."""
    place = torch.arange(start, start + query.shape[1])
    angles = place[:, None] / 10000 ** (torch.arange(0, query.shape[-1], 2) / query.shape[-1])
    turned = []
    for x in (query, key):
        a, b = x[..., 0::2], x[..., 1::2]
        pair = [a * angles.cos() + b * angles.sin(), b * angles.cos() - a * angles.sin()]
        turned.append(torch.stack(pair, dim=-1).flatten(-2))
    return turned[0], turned[1], value


@rope.misconception("exponent off by one", fails=TURNED)
def _(query, key, value, start):
    """The pairs were counted from 1: every pair turns at the speed of the next, and none by a whole radian a
    position. The first pair has i = 0."""
    place = torch.arange(start, start + query.shape[1])
    i = torch.arange(1, query.shape[-1] // 2 + 1)
    angles = place[:, None] / 10000 ** (2 * i / query.shape[-1])
    turned = []
    for x in (query, key):
        a, b = x[..., 0::2], x[..., 1::2]
        pair = [a * angles.cos() - b * angles.sin(), a * angles.sin() + b * angles.cos()]
        turned.append(torch.stack(pair, dim=-1).flatten(-2))
    return turned[0], turned[1], value


@rope.misconception("exponent without its 2", fails=TURNED)
def _(query, key, value, start):
    """The pairs do not slow down fast enough: the exponent of pair i is 2i / d_head, and the last is nearly 1."""
    place = torch.arange(start, start + query.shape[1])
    i = torch.arange(query.shape[-1] // 2)
    angles = place[:, None] / 10000 ** (i / query.shape[-1])
    turned = []
    for x in (query, key):
        a, b = x[..., 0::2], x[..., 1::2]
        pair = [a * angles.cos() - b * angles.sin(), a * angles.sin() + b * angles.cos()]
        turned.append(torch.stack(pair, dim=-1).flatten(-2))
    return turned[0], turned[1], value


@rope.misconception("one angle for all pairs", fails=TURNED)
def _(query, key, value, start):
    """Every pair was turned by p radians. Each pair has its own frequency: the first turns by one radian a
    position, the last by hardly more than a ten-thousandth."""
    angles = torch.arange(start, start + query.shape[1])[:, None].float()
    turned = []
    for x in (query, key):
        a, b = x[..., 0::2], x[..., 1::2]
        pair = [a * angles.cos() - b * angles.sin(), a * angles.sin() + b * angles.cos()]
        turned.append(torch.stack(pair, dim=-1).flatten(-2))
    return turned[0], turned[1], value


@rope.misconception("added, not turned", fails=(*TURNED, "distance"))
def _(query, key, value, start):
    """Sines and cosines were *added* to query and key. That is the older scheme. In the dot product of two sums
    there are cross-terms, content against position, that depend on where each one stands. RoPE multiplies: each
    pair is turned by its angle."""
    place = torch.arange(start, start + query.shape[1])
    angles = place[:, None] / 10000 ** (torch.arange(0, query.shape[-1], 2) / query.shape[-1])
    vectors = torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(-2)
    return query + vectors, key + vectors, value


@rope.misconception("multiplied, not turned", fails=(*TURNED, "distance", "gradient"))
def _(query, key, value, start):
    """Each column was multiplied by its own cosine or sine, and no column heard of its partner. That shrinks
    vectors. A turn mixes the two members of a pair: each new one has a share of both."""
    place = torch.arange(start, start + query.shape[1])
    angles = place[:, None] / 10000 ** (torch.arange(0, query.shape[-1], 2) / query.shape[-1])
    turned = []
    for x in (query, key):
        pair = [x[..., 0::2] * angles.cos(), x[..., 1::2] * angles.sin()]
        turned.append(torch.stack(pair, dim=-1).flatten(-2))
    return turned[0], turned[1], value


@rope.variant("multiplied, not turned", fails=(*TURNED, "distance", "gradient"))
def _(query, key, value, start):
    """By the vectors of the sinusoidal scheme."""
    place = torch.arange(start, start + query.shape[1])
    angles = place[:, None] / 10000 ** (torch.arange(0, query.shape[-1], 2) / query.shape[-1])
    vectors = torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(-2)
    return query * vectors, key * vectors, value


@rope.misconception("a sign astray", fails=(*TURNED, "distance", "gradient"))
def _(query, key, value, start):
    """This is not a turn: vectors change their length. In (a cos θ − b sin θ, a sin θ + b cos θ) one of the two sines
    has a minus. Test a single pair, (1, 0), by a quarter turn: it must become (0, 1)."""
    place = torch.arange(start, start + query.shape[1])
    angles = place[:, None] / 10000 ** (torch.arange(0, query.shape[-1], 2) / query.shape[-1])
    turned = []
    for x in (query, key):
        a, b = x[..., 0::2], x[..., 1::2]
        pair = [a * angles.cos() + b * angles.sin(), a * angles.sin() + b * angles.cos()]
        turned.append(torch.stack(pair, dim=-1).flatten(-2))
    return turned[0], turned[1], value


@rope.variant("a sign astray", fails=(*TURNED, "distance", "gradient"))
def _(query, key, value, start):
    """Two minuses."""
    place = torch.arange(start, start + query.shape[1])
    angles = place[:, None] / 10000 ** (torch.arange(0, query.shape[-1], 2) / query.shape[-1])
    turned = []
    for x in (query, key):
        a, b = x[..., 0::2], x[..., 1::2]
        pair = [a * angles.cos() - b * angles.sin(), -a * angles.sin() + b * angles.cos()]
        turned.append(torch.stack(pair, dim=-1).flatten(-2))
    return turned[0], turned[1], value


@rope.misconception("half turned, half new", fails=(*TURNED, "distance", "gradient"))
def _(query, key, value, start):
    """The second member of each pair was computed from a first member that had already been replaced. Both formulas
    need the *old* a and b: keep them (a slice is a view, and sees what is written into its tensor), or make new
    tensors."""
    place = torch.arange(start, start + query.shape[1])
    angles = place[:, None] / 10000 ** (torch.arange(0, query.shape[-1], 2) / query.shape[-1])
    turned = []
    for x in (query, key):
        a, b = x[..., 0::2], x[..., 1::2]
        a = a * angles.cos() - b * angles.sin()
        b = a * angles.sin() + b * angles.cos()
        turned.append(torch.stack([a, b], dim=-1).flatten(-2))
    return turned[0], turned[1], value


@rope.misconception("always from position 0", fails=("a later start",))
def _(query, key, value, start):
    """`start` was not used. A model that writes token by token calls this with one new row at a time, and that row
    does not stand at position 0."""
    angles = torch.arange(query.shape[1])[:, None] / 10000 ** (torch.arange(0, query.shape[-1], 2) / query.shape[-1])
    turned = []
    for x in (query, key):
        a, b = x[..., 0::2], x[..., 1::2]
        pair = [a * angles.cos() - b * angles.sin(), a * angles.sin() + b * angles.cos()]
        turned.append(torch.stack(pair, dim=-1).flatten(-2))
    return turned[0], turned[1], value


@rope.misconception("start added to the angles", fails=("a later start",))
def _(query, key, value, start):
    """`start` was added to the angles, after the positions had been multiplied by the frequencies. All pairs then
    skip ahead by the same angle. It is the *positions* that begin at `start`; each pair's own frequency comes after
    that."""
    place = torch.arange(query.shape[1])
    angles = place[:, None] / 10000 ** (torch.arange(0, query.shape[-1], 2) / query.shape[-1]) + start
    turned = []
    for x in (query, key):
        a, b = x[..., 0::2], x[..., 1::2]
        pair = [a * angles.cos() - b * angles.sin(), a * angles.sin() + b * angles.cos()]
        turned.append(torch.stack(pair, dim=-1).flatten(-2))
    return turned[0], turned[1], value


@rope.misconception("positions that end at n", fails=("distance", "a later start", "gradient"))
def _(query, key, value, start):
    """`arange(start, n)` ends before position n, whatever the start: there are n − start numbers in it, or none, but
    each of the n rows needs one. The second argument of `arange` is where it ends, not how many there are."""
    place = torch.arange(start, query.shape[1])
    angles = place[:, None] / 10000 ** (torch.arange(0, query.shape[-1], 2) / query.shape[-1])
    turned = []
    for x in (query, key):
        a, b = x[..., 0::2], x[..., 1::2]
        pair = [a * angles.cos() - b * angles.sin(), a * angles.sin() + b * angles.cos()]
        turned.append(torch.stack(pair, dim=-1).flatten(-2))
    return turned[0], turned[1], value


@rope.misconception("query and key exchanged", fails=(*TURNED, "gradient"))
def _(query, key, value, start):
    """Both were turned and came back in each other's place: the contract says query, key, value. Who asks and who
    is asked is not the same thing once their positions count."""
    place = torch.arange(start, start + query.shape[1])
    angles = place[:, None] / 10000 ** (torch.arange(0, query.shape[-1], 2) / query.shape[-1])
    turned = []
    for x in (query, key):
        a, b = x[..., 0::2], x[..., 1::2]
        pair = [a * angles.cos() - b * angles.sin(), a * angles.sin() + b * angles.cos()]
        turned.append(torch.stack(pair, dim=-1).flatten(-2))
    return turned[1], turned[0], value


@rope.misconception("no brackets round the exponent", fails=TURNED)
def _(query, key, value, start):
    """In Python a power binds more tightly than a quotient: `10000 ** two_i / d_head` is (10000 to the 2i) /
    d_head. Put brackets round the whole exponent."""
    place = torch.arange(start, start + query.shape[1])
    angles = place[:, None] / (10000.0 ** torch.arange(0, query.shape[-1], 2) / query.shape[-1])
    turned = []
    for x in (query, key):
        a, b = x[..., 0::2], x[..., 1::2]
        pair = [a * angles.cos() - b * angles.sin(), a * angles.sin() + b * angles.cos()]
        turned.append(torch.stack(pair, dim=-1).flatten(-2))
    return turned[0], turned[1], value


@rope.variant("no brackets round the exponent", fails=TURNED)
def _(query, key, value, start):
    """Divided twice."""
    place = torch.arange(start, start + query.shape[1])
    angles = place[:, None] / 10000.0 ** torch.arange(0, query.shape[-1], 2) / query.shape[-1]
    turned = []
    for x in (query, key):
        a, b = x[..., 0::2], x[..., 1::2]
        pair = [a * angles.cos() - b * angles.sin(), a * angles.sin() + b * angles.cos()]
        turned.append(torch.stack(pair, dim=-1).flatten(-2))
    return turned[0], turned[1], value


@rope.misconception("counted from one", fails=TURNED)
def _(query, key, value, start):
    """The first row was turned by one position too many: the row at `start` has position `start`, and with a start
    of 0 it is not turned at all."""
    place = torch.arange(start + 1, start + query.shape[1] + 1)
    angles = place[:, None] / 10000 ** (torch.arange(0, query.shape[-1], 2) / query.shape[-1])
    turned = []
    for x in (query, key):
        a, b = x[..., 0::2], x[..., 1::2]
        pair = [a * angles.cos() - b * angles.sin(), a * angles.sin() + b * angles.cos()]
        turned.append(torch.stack(pair, dim=-1).flatten(-2))
    return turned[0], turned[1], value


@rope.misconception("cut off from the gradient", fails=("gradient",))
def _(query, key, value, start):
    """The numbers are right, but the gradient does not get through: `.detach()`, `.data`, `.numpy()` and
    `torch.tensor(…)` forget where numbers came from, and the projections before the turn could not learn."""
    place = torch.arange(start, start + query.shape[1])
    angles = place[:, None] / 10000 ** (torch.arange(0, query.shape[-1], 2) / query.shape[-1])
    turned = []
    for x in (query.detach(), key.detach()):
        a, b = x[..., 0::2], x[..., 1::2]
        pair = [a * angles.cos() - b * angles.sin(), a * angles.sin() + b * angles.cos()]
        turned.append(torch.stack(pair, dim=-1).flatten(-2))
    return turned[0], turned[1], value


@rope.alternative("complex numbers")
def _(query, key, value, start):
    """A pair is a complex number, and a turn is a product with e to the i θ. In float64."""
    d_head = query.shape[-1]
    place = torch.arange(start, start + query.shape[-2], dtype=torch.float64)
    angles = torch.outer(place, 10000 ** (-torch.arange(0, d_head, 2, dtype=torch.float64) / d_head))
    turn = torch.polar(torch.ones_like(angles), angles)
    query, key = (
        torch.view_as_real(torch.view_as_complex(x.double().reshape(*x.shape[:-1], -1, 2)) * turn).flatten(-2)
        for x in (query, key)
    )
    return query, key, value


@rope.alternative("a loop over positions, a matrix each")
def _(query, key, value, start):
    """Row by row: the position's rotation matrix, blocks of two down its diagonal, on the right of the row."""
    d_head, turned = query.shape[-1], []
    for x in (query, key):
        rows = []
        for p in range(x.shape[1]):
            blocks = []
            for i in range(d_head // 2):
                t = (start + p) / 10000 ** (2 * i / d_head)
                blocks.append(torch.tensor([[math.cos(t), math.sin(t)], [-math.sin(t), math.cos(t)]]))
            rows.append(x[:, p] @ torch.block_diag(*blocks))
        turned.append(torch.stack(rows, dim=1))
    return turned[0], turned[1], value.clone()


@rope.alternative("einsum over pairs")
def _(query, key, value, start):
    """A table of turns, (n, pairs, 2, 2), against the pairs of both at once."""
    n, d_head = query.shape[-2:]
    frequency = torch.exp(torch.arange(0, d_head, 2) * (-math.log(10000.0) / d_head))
    angles = torch.einsum("n,f->nf", torch.arange(start, start + n).float(), frequency)
    turns = torch.stack([angles.cos(), -angles.sin(), angles.sin(), angles.cos()], dim=-1).unflatten(-1, (2, 2))
    both = torch.stack([query, key]).unflatten(-1, (-1, 2))
    query, key = torch.einsum("nfij,cbnfj->cbnfi", turns, both).flatten(-2)
    return query, key, value


@rope.alternative("the slide's two products, not contiguous")
def _(query, key, value, start):
    """x times repeated cosines plus its partner times repeated sines, and back from a transposed computation."""
    place = torch.arange(start, start + query.shape[1])
    angles = place[:, None] / 10000 ** (torch.arange(0, query.shape[-1], 2) / query.shape[-1])
    angles = angles.repeat_interleave(2, dim=-1)
    turned = []
    for x in (query, key):
        partner = torch.empty_like(x)
        partner[..., 0::2], partner[..., 1::2] = -x[..., 1::2], x[..., 0::2]
        turned.append((x.mT * angles.cos().mT + partner.mT * angles.sin().mT).mT)
    return turned[0], turned[1], value


# ---------------------------------------------------------------------------------------------------------- alibi_bias


def _alibi_bias(n_heads, n):
    """−m_h |i − j| with m_h = 2^(−8h / n_heads), h from 1. Press et al. 2022, for attention in both directions."""
    slopes = 2 ** (-8 * torch.arange(1, n_heads + 1) / n_heads)
    place = torch.arange(n)
    return -slopes[:, None, None] * (place - place[:, None]).abs()


alibi_bias = Exercise(
    "alibi_bias",
    reference=_alibi_bias,
    returns=("bias",),
    forbidden=READY_MADE,
    difficulty=2,
    minutes=12,
    extra=True,
    hints=(
        "Two small tensors: the distances |i − j|, (n, n), and one slope for each head, (n_heads,). What must be done "
        "to the second so that they broadcast to (n_heads, n, n)?",
        "With 8 heads the slopes are 1/2, 1/4, …, 1/256; with 2 heads 1/16 and 1/256. The head's number counts from 1.",
    ),
)


@alibi_bias.aspect("slopes", points=1)
def _(answer, draw):
    """a neighbour costs each head its slope, the first head most"""
    n = draw.sizes(1, 5, 7)[0]
    return torch.cat([answer(n_heads, n)[:, 0, 1] for n_heads in (2, 8, 16)])  # 16: exponents that are not whole


@alibi_bias.aspect("distances", points=1)
def _(answer, draw):
    """the cost grows in proportion to the distance, to either side"""
    n_heads, n = (2, 4, 8)[draw.sizes(1, 0, 2)[0]], draw.sizes(1, 5, 7)[0]
    bias = answer(n_heads, n)
    if not bias[:, 0, 1].all():
        raise AspectFailed(Problem("unusable", "a neighbour costs nothing"))
    return bias / bias[:, :1, 1:2]


@alibi_bias.misconception("rewards distance", fails=("slopes",))
def _(n_heads, n):
    """The sign is reversed: the further away a key is, the more it would be attended to. A bias is added to the score,
    so a cost must be negative."""
    slopes = 2 ** (-8 * torch.arange(1, n_heads + 1) / n_heads)
    place = torch.arange(n)
    return slopes[:, None, None] * (place - place[:, None]).abs()


@alibi_bias.misconception("heads counted from 0", fails=("slopes",))
def _(n_heads, n):
    """The first head has the slope 1: the heads were counted from 0. They count from 1 here, so the last one has
    the slope 1/256, whatever their number."""
    slopes = 2 ** (-8 * torch.arange(n_heads) / n_heads)
    place = torch.arange(n)
    return -slopes[:, None, None] * (place - place[:, None]).abs()


@alibi_bias.misconception("slopes of eight heads", fails=("slopes",))
def _(n_heads, n):
    """The slopes are 1/2, 1/4, 1/8, … for any number of heads. They should always come down to 1/256 at the last
    head: with fewer heads they fall faster."""
    slopes = 0.5 ** torch.arange(1, n_heads + 1)
    place = torch.arange(n)
    return -slopes[:, None, None] * (place - place[:, None]).abs()


@alibi_bias.misconception("whole exponents", fails=("slopes",))
def _(n_heads, n):
    """The exponents were rounded to whole numbers, by `//` or by `int`. Up to 8 heads nothing shows, since 8h / H is
    whole there; with 16 heads, every second slope appears twice and the one between is missing. Divide with `/`."""
    slopes = 2.0 ** (-8 * torch.arange(1, n_heads + 1) // n_heads)
    place = torch.arange(n)
    return -slopes[:, None, None] * (place - place[:, None]).abs()


@alibi_bias.variant("whole exponents", fails=("slopes",))
def _(n_heads, n):
    """Towards zero."""
    slopes = torch.tensor([2.0 ** -(8 * h // n_heads) for h in range(1, n_heads + 1)])
    place = torch.arange(n)
    return -slopes[:, None, None] * (place - place[:, None]).abs()


@alibi_bias.misconception("signed distance", fails=("slopes", "distances"))
def _(n_heads, n):
    """Without the absolute value, keys on one side cost and keys on the other side are rewarded. In a decoder the
    mask hides that, because it hides the whole future; here both sides can be seen, and both should cost."""
    slopes = 2 ** (-8 * torch.arange(1, n_heads + 1) / n_heads)
    place = torch.arange(n)
    return -slopes[:, None, None] * (place[:, None] - place)


@alibi_bias.variant("signed distance", fails=("distances",))
def _(n_heads, n):
    """The other side."""
    slopes = 2 ** (-8 * torch.arange(1, n_heads + 1) / n_heads)
    place = torch.arange(n)
    return -slopes[:, None, None] * (place - place[:, None])


@alibi_bias.misconception("distance squared", fails=("distances",))
def _(n_heads, n):
    """The cost grows with the square of the distance. ALiBi means "attention with *linear* biases"."""
    slopes = 2 ** (-8 * torch.arange(1, n_heads + 1) / n_heads)
    place = torch.arange(n)
    return -slopes[:, None, None] * (place - place[:, None]) ** 2


@alibi_bias.misconception("heads in reverse", fails=("slopes",))
def _(n_heads, n):
    """The slopes are right and stand in reverse: the first head has the steepest one and sees the least far."""
    slopes = 2 ** (-8 * torch.arange(n_heads, 0, -1) / n_heads)
    place = torch.arange(n)
    return -slopes[:, None, None] * (place - place[:, None]).abs()


@alibi_bias.misconception("the future masked", fails=("slopes", "distances"))
def _(n_heads, n):
    """Keys to the right of their query got −∞, as in a model that sees only its past. Who may look where is a
    mask's business; here attention looks both ways, and the cost is the same to either side."""
    slopes = 2 ** (-8 * torch.arange(1, n_heads + 1) / n_heads)
    distance = torch.arange(n)[:, None] - torch.arange(n)
    return (-slopes[:, None, None] * distance).masked_fill(distance < 0, -torch.inf)


@alibi_bias.alternative("a loop over heads")
def _(n_heads, n):
    """One table at a time, in float64."""
    distance = torch.tensor([[abs(i - j) for j in range(n)] for i in range(n)], dtype=torch.float64)
    return torch.stack([-distance * 2.0 ** (-8 * (h + 1) / n_heads) for h in range(n_heads)])


@alibi_bias.alternative("einsum, a geometric sequence, not contiguous")
def _(n_heads, n):
    """The ratio of neighbouring slopes is the first of them."""
    ratio = 2 ** (-8 / n_heads)
    slopes = torch.full((n_heads,), ratio).cumprod(dim=0)
    place = torch.arange(float(n))
    return torch.einsum("h,ij->jih", slopes, -torch.cdist(place[:, None], place[:, None], p=1)).permute(2, 0, 1)
