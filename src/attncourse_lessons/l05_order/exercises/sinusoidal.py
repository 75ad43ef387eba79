"""sinusoidal: Sines and cosines of the position, each pair of columns slower than the one before (Vaswani et al."""

import math

import torch

from attncourse import positions as course
from lessonkit.exercises.exercise import Exercise
from lessonkit.exercises.judge import told
from lessonkit.exercises.local_runner import Problem, Stop
from lessonkit.exercises.observe import telling

from .common import READY_MADE, even, some_positions


def solution(positions, d_model):
    frequency = 1 / 10000 ** (torch.arange(0, d_model, 2) / d_model)                  # (d_model/2,)
    angles = positions[..., None] * frequency                                         # (*shape, d_model/2)
    return torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(-2)              # (*shape, d_model)


exercise = Exercise(
    "sinusoidal",
    reference=course.sinusoidal,
    solution=solution,
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
aspect, slip, misconception, variant, alternative = exercise.decorators()


# ----------------------------------------------------------------------------------------------------- what is observed


@aspect("fastest pair", points=1)
def fastest_pair(answer, draw):
    """the first two columns are sin p and cos p"""
    return answer(some_positions(draw), even(draw))[:, :2]


@aspect("all columns", points=2)
def all_columns(answer, draw):
    """sine and cosine side by side, each pair slower than the one before"""
    return answer(some_positions(draw), even(draw))


@aspect(
    "distance",
    points=1,
    explain=told("the dot product of two vectors changes by {size} when both positions grow by one"),
)
def distance(answer, draw):
    """the dot product of two vectors depends on how far apart they are, and on nothing else"""
    d_model = (6, 10, 12)[draw.sizes(1, 0, 2)[0]]  # not 8: the powers 10, 100, 1000 of 10000 would hide lost digits
    vectors = answer(draw.sizes(1, 1, 30)[0] + torch.arange(8), d_model)
    products = vectors @ vectors.mT
    if (products - products[:1, :1]).abs().max() < 1e-3:
        raise Stop(Problem("unusable", "all positions have one and the same vector"))
    return products[1:, 1:] - products[:-1, :-1]


@aspect("any shape", points=1)
def any_shape(answer, draw):
    """positions of shape (batch, n) give vectors of shape (batch, n, d_model), the same as one by one"""
    batch, n = draw.sizes(2, 2, 4)
    positions, d_model = some_positions(draw, batch * n), 2 * draw.sizes(1, 5, 8)[0]
    vectors = telling(answer(positions, d_model)).reshape(batch, n, -1)
    return answer(positions.reshape(batch, n), d_model) - vectors


# -------------------------------------------------------------------------------------------------------- wrong answers


@misconception("halves for interleaved", fails=("fastest pair", "all columns"))
def halves_for_interleaved(positions, d_model):
    """All sines stand in the left half and all cosines in the right. The numbers are right and their places are
    not: here, as in the paper, sine and cosine of one angle are neighbours. Some libraries do it your way, and a
    model that was trained with one layout cannot read the other."""
    angles = positions[..., None] / 10000 ** (torch.arange(0, d_model, 2) / d_model)
    return torch.cat([angles.sin(), angles.cos()], dim=-1)


@variant("halves for interleaved", fails=("fastest pair", "all columns"))
def halves_for_interleaved_2(positions, d_model):
    """Filled in."""
    half = d_model // 2
    angles = positions[..., None] * torch.exp(-math.log(10000.0) * 2 * torch.arange(half) / d_model)
    vectors = torch.zeros(*positions.shape, d_model)
    vectors[..., :half] = torch.sin(angles)
    vectors[..., half:] = torch.cos(angles)
    return vectors


@misconception("exponent off by one", fails=("fastest pair", "all columns"))
def exponent_off_by_one(positions, d_model):
    """The pairs were counted from 1, as some slides do, so every pair turns as slowly as the next one should and the
    fastest is missing. In the paper, and in the formula above, the first pair has i = 0: what is its exponent then?"""
    i = torch.arange(1, d_model // 2 + 1)
    angles = positions[..., None] / 10000 ** (2 * i / d_model)
    return torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(-2)


@misconception("exponent without its 2", fails=("all columns",))
def exponent_without_its_2(positions, d_model):
    """The exponents grow half as fast as they should: i / d_model for pair i, where the formula has 2i / d_model.
    The last pair should be nearly 10000 times as slow as the first; yours is some hundred times as slow."""
    i = torch.arange(d_model // 2)
    angles = positions[..., None] / 10000 ** (i / d_model)
    return torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(-2)


@misconception("exponent with one 2 too many", fails=("all columns",))
def exponent_with_one_2_too_many(positions, d_model):
    """The exponents grow twice as fast as they should. `torch.arange(0, d_model, 2)` counts 0, 2, 4, …: that is 2i
    already, and must not be doubled again. The last exponent should be a little below 1."""
    two_i = torch.arange(0, d_model, 2)
    angles = positions[..., None] / 10000 ** (2 * two_i / d_model)
    return torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(-2)


@variant("exponent with one 2 too many", fails=("all columns",))
def exponent_with_one_2_too_many_2(positions, d_model):
    """Over half the width."""
    half = d_model // 2
    angles = positions[..., None] / 10000 ** (2 * torch.arange(half) / half)
    return torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(-2)


@misconception("slowest at exactly 10000", fails=("all columns",))
def slowest_at_exactly_10000(positions, d_model):
    """The exponents run from 0 to 1, both ends included. Some published code does that; the paper's formula stops one
    step short of 1, because the last pair is i = d_model/2 − 1."""
    exponents = torch.linspace(0, 1, d_model // 2)
    angles = positions[..., None] / 10000**exponents
    return torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(-2)


@misconception("each column its own frequency", fails=("fastest pair", "all columns", "distance"))
def each_column_its_own_frequency(positions, d_model):
    """The two columns of a pair turn at different speeds: the exponent was made from the number of the *column*. A
    sine and its cosine must share one angle, or the two are no longer one point on one circle. Columns 2i and 2i +
    1 have the same exponent."""
    column = torch.arange(d_model)
    angles = positions[..., None] / 10000 ** (column / d_model)
    return torch.where(column % 2 == 0, angles.sin(), angles.cos())


@variant("each column its own frequency", fails=("fastest pair", "all columns", "distance"))
def each_column_its_own_frequency_2(positions, d_model):
    """Doubled."""
    column = torch.arange(d_model)
    angles = positions[..., None] / 10000 ** (2 * column / d_model)
    vectors = torch.zeros(*positions.shape, d_model)
    vectors[..., 0::2] = angles[..., 0::2].sin()
    vectors[..., 1::2] = angles[..., 1::2].cos()
    return vectors


@misconception("cosine before sine", fails=("fastest pair", "all columns"))
def cosine_before_sine(positions, d_model):
    """Sines and cosines changed places. Even columns, from column 0 on, hold sines. (Position 0 should be the vector 0,
    1, 0, 1, …: a quick thing to check.)"""
    angles = positions[..., None] / 10000 ** (torch.arange(0, d_model, 2) / d_model)
    return torch.stack([angles.cos(), angles.sin()], dim=-1).flatten(-2)


@misconception("one frequency for all", fails=("all columns",))
def one_frequency_for_all(positions, d_model):
    """All pairs are the same: sin p and cos p again and again. With one frequency, positions that lie a whole turn
    apart, 6.28 of them, look almost the same. Each further pair must be slower, by the factor in the formula. (`//`
    drops the fraction: `2 * i // d_model` is 0 for every pair.)"""
    angles = positions[..., None] * torch.ones(d_model // 2)
    return torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(-2)


@misconception("faster instead of slower", fails=("all columns", "distance"))
def faster_instead_of_slower(positions, d_model):
    """The position was multiplied by the power of 10000 where it should be divided by it. The pairs then turn
    thousands of times from one position to the next, and float32 cannot even say where they stop."""
    angles = positions[..., None] * 10000 ** (torch.arange(0, d_model, 2) / d_model)
    return torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(-2)


@misconception("counts for itself", fails=("fastest pair", "all columns"))
def counts_for_itself(positions, d_model):
    """The numbers in `positions` were not used, only how many there are: 0, 1, 2, … was counted instead. A model
    that decodes token by token asks for position 57 alone. Use the positions that come in."""
    counted = torch.arange(positions.numel()).reshape(positions.shape)
    angles = counted[..., None] / 10000 ** (torch.arange(0, d_model, 2) / d_model)
    return torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(-2)


@variant("counts for itself", fails=("fastest pair", "all columns", "any shape"))
def counts_for_itself_2(positions, d_model):
    """Along the last axis."""
    counted = torch.arange(positions.shape[-1])
    angles = counted[:, None] / 10000 ** (torch.arange(0, d_model, 2) / d_model)
    vectors = torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(-2)
    return vectors.expand(*positions.shape, d_model)


@misconception("counted from one", fails=("fastest pair", "all columns"))
def counted_from_one(positions, d_model):
    """Every vector is that of the next position: one was added to the positions. They come counted from 0, and 0 is
    a position like any other."""
    angles = (positions[..., None] + 1) / 10000 ** (torch.arange(0, d_model, 2) / d_model)
    return torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(-2)


@misconception("one axis only", fails=("any shape",))
def one_axis_only(positions, d_model):
    """This works for a row of positions, (n,), and not for a batch of them, (batch, n). `positions[:, None]` and
    `unsqueeze(1)` put the new axis in second place, which is the last only if there was one axis. Ask for a new
    *last* axis."""
    angles = positions[:, None] / 10000 ** (torch.arange(0, d_model, 2) / d_model)
    return torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(-2)


@variant("one axis only", fails=("any shape",))
def one_axis_only_2(positions, d_model):
    """Into a matrix."""
    vectors = torch.zeros(len(positions), d_model)
    angles = positions.unsqueeze(1) * torch.exp(torch.arange(0, d_model, 2) * (-math.log(10000.0) / d_model))
    vectors[:, 0::2] = torch.sin(angles)
    vectors[:, 1::2] = torch.cos(angles)
    return vectors


@variant("one axis only", fails=("any shape",))
def one_axis_only_3(positions, d_model):
    """Number by number."""
    vectors = torch.zeros(len(positions), d_model)
    for row, p in enumerate(positions):
        for i in range(d_model // 2):
            vectors[row, 2 * i] = math.sin(p / 10000 ** (2 * i / d_model))
            vectors[row, 2 * i + 1] = math.cos(p / 10000 ** (2 * i / d_model))
    return vectors


@variant("one axis only", fails=("any shape",))
def one_axis_only_4(positions, d_model):
    """A list of lists."""
    frequencies = [10000 ** (-2 * i / d_model) for i in range(d_model // 2)]
    return torch.tensor([[f(p * w) for w in frequencies for f in (math.sin, math.cos)] for p in positions.tolist()])


@variant("halves for interleaved", "exponent off by one", fails=("fastest pair", "all columns"))
def halves_for_interleaved_3(positions, d_model):
    """Both at once."""
    angles = positions[..., None] / 10000 ** (2 * torch.arange(1, d_model // 2 + 1) / d_model)
    return torch.cat([angles.sin(), angles.cos()], dim=-1)


@misconception("no brackets round the exponent", fails=("fastest pair", "all columns"))
def no_brackets_round_the_exponent(positions, d_model):
    """`10000 ** 2 * i / d_model` is (10000²) · i / d_model, and `10000 ** two_i / d_model` is (10000 to the 2i) /
    d_model: in Python a power binds more tightly than a product or a quotient. Put brackets round the whole
    exponent."""
    angles = positions[..., None] / 10000.0 ** torch.arange(0, d_model, 2) / d_model
    return torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(-2)


@variant("no brackets round the exponent", fails=("fastest pair", "all columns"))
def no_brackets_round_the_exponent_2(positions, d_model):
    """Divided by the quotient."""
    angles = positions[..., None] / (10000.0 ** torch.arange(0, d_model, 2) / d_model)
    return torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(-2)


@misconception("sines alone", fails=("fastest pair", "all columns", "distance"))
def sines_alone(positions, d_model):
    """Every column is a sine: the odd columns repeat what stands beside them. A sine alone cannot say on which side of
    its peak it is, nor can a matrix move it along; with its cosine it is a point on a circle."""
    angles = positions[..., None] / 10000 ** (torch.arange(0, d_model, 2) / d_model)
    return angles.sin().repeat_interleave(2, dim=-1)


# ------------------------------------------------------------------------------------------------ right in other styles


@alternative("every other column")
def every_other_column(positions, d_model):
    """Fills the columns in, with the exponent as exp of a logarithm."""
    frequency = torch.exp(torch.arange(0, d_model, 2) * (-math.log(10000.0) / d_model))
    angles = positions.unsqueeze(-1) * frequency
    vectors = torch.empty(*positions.shape, d_model)
    vectors[..., 0::2] = torch.sin(angles)
    vectors[..., 1::2] = torch.cos(angles)
    return vectors


@alternative("a loop over the columns, in float64")
def a_loop_over_the_columns_in_float64(positions, d_model):
    """One column at a time, and only sines: a cosine is a sine a quarter turn ahead."""
    columns = []
    for column in range(d_model):
        angle = positions.double() / 10000 ** ((column - column % 2) / d_model)
        columns.append(torch.sin(angle + (column % 2) * math.pi / 2))
    return torch.stack(columns, dim=-1)


@alternative("an outer product, not contiguous")
def an_outer_product_not_contiguous(positions, d_model):
    """Column by position, and back by transposing."""
    frequency = 10000.0 ** (-torch.arange(0, d_model, 2, dtype=torch.float64) / d_model)
    angles = torch.outer(frequency, positions.flatten().double())
    table = torch.stack([angles.sin(), angles.cos()], dim=1).flatten(0, 1).mT
    return table.unflatten(0, positions.shape)


@alternative("complex numbers")
def complex_numbers(positions, d_model):
    """e to the i times the angle has both in one; the imaginary part comes first here."""
    angles = torch.einsum("...,f->...f", positions.double(), 1e4 ** (-torch.arange(0, d_model, 2).double() / d_model))
    turned = torch.polar(torch.ones_like(angles), angles)
    return torch.view_as_real(turned).flip(-1).flatten(-2).float()
