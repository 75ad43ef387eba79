"""sinusoidal: Sines and cosines of the position, each pair of columns slower than the one before."""

import math

import torch

from attncourse import positions as course
from lessonkit.exercises.exercise import Exercise
from lessonkit.exercises.judge import explain_worst
from lessonkit.exercises.local_runner import AspectFailed, Problem
from lessonkit.exercises.observe import require_variation

from .common import READY_MADE, even, some_positions


def solution(positions, d_model):
    frequency = 1 / 10000 ** (torch.arange(0, d_model, 2) / d_model)  # (d_model/2,)
    angles = positions[..., None] * frequency  # (*shape, d_model/2)
    return torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(-2)  # (*shape, d_model)


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


@aspect("fastest pair", points=1, hint=1)
def fastest_pair(answer, draw):
    """the first two columns are sin p and cos p"""
    return answer(some_positions(draw), even(draw))[:, :2]


@aspect("all columns", points=2, hint=3)
def all_columns(answer, draw):
    """sine and cosine side by side, each pair slower than the one before"""
    return answer(some_positions(draw), even(draw))


@aspect(
    "distance",
    points=1, hint=1,
    explain=explain_worst("the dot product of two vectors changes by {size} when both positions grow by one"),
)
def distance(answer, draw):
    """the dot product of two vectors depends on how far apart they are, and on nothing else"""
    d_model = (6, 10, 12)[draw.sizes(1, 0, 2)[0]]  # not 8: the powers 10, 100, 1000 of 10000 would hide lost digits
    vectors = answer(draw.sizes(1, 1, 30)[0] + torch.arange(8), d_model)
    products = vectors @ vectors.mT
    if (products - products[:1, :1]).abs().max() < 1e-3:
        raise AspectFailed(Problem("unusable", "all positions have one and the same vector"))
    return products[1:, 1:] - products[:-1, :-1]


@aspect("any shape", points=1, hint=2)
def any_shape(answer, draw):
    """positions of shape (batch, n) give vectors of shape (batch, n, d_model), the same as one by one"""
    batch, n = draw.sizes(2, 2, 4)
    positions, d_model = some_positions(draw, batch * n), 2 * draw.sizes(1, 5, 8)[0]
    vectors = require_variation(answer(positions, d_model)).reshape(batch, n, -1)
    return answer(positions.reshape(batch, n), d_model) - vectors


# -------------------------------------------------------------------------------------- one slip away from the solution

ALL, SHAPE = ("all columns",), ("any shape",)
COLUMNS = ("fastest pair", "all columns")
NOT_PAIRS = (*COLUMNS, "distance")
POSITIONS, EXPONENTS = "positions[..., None]", "torch.arange(0, d_model, 2)"
PAIRS = "torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(-2)"
ALTERNATING = "torch.where(torch.arange(d_model) % 2 == 0, angles.sin(), angles.cos())"

slip("halves for interleaved", COLUMNS, {PAIRS: "torch.cat([angles.sin(), angles.cos()], dim=-1)"}, words="""
    All sines stand in the left half and all cosines in the right. The numbers are right and their places are not: here,
    as in the paper, sine and cosine of one angle are neighbours. Some libraries do it your way, and a model that was
    trained with one layout cannot read the other.""")
slip("cosine before sine", COLUMNS, {"angles.sin(), angles.cos()": "angles.cos(), angles.sin()"}, words="""
    Sines and cosines changed places. Even columns, from column 0 on, hold sines. (Position 0 should be the vector 0, 1,
    0, 1, …: a quick thing to check.)""")
slip("sines alone", NOT_PAIRS, {"angles.cos()": "angles.sin()"}, words="""
    Every column is a sine: the odd columns repeat what stands beside them. A sine alone cannot say on which side of its
    peak it is, nor can a matrix move it along; with its cosine it is a point on a circle.""")
slip("each column its own frequency", NOT_PAIRS,
    {EXPONENTS: "torch.arange(d_model)", PAIRS: ALTERNATING},
    {EXPONENTS: "2 * torch.arange(d_model)", PAIRS: ALTERNATING},  # doubled
    words="""
    The two columns of a pair turn at different speeds: the exponent was made from the number of the *column*. A sine
    and its cosine must share one angle, or the two are no longer one point on one circle. Columns 2i and 2i + 1 have
    the same exponent.""")
slip("exponent off by one", COLUMNS, {EXPONENTS: "torch.arange(2, d_model + 2, 2)"}, words="""
    The pairs were counted from 1, as some slides do, so every pair turns as slowly as the next one should and the
    fastest is missing. In the paper, and in the formula above, the first pair has i = 0: what is its exponent then?""")
slip("exponent without its 2", ALL, {EXPONENTS: "torch.arange(d_model // 2)"}, words="""
    The exponents grow half as fast as they should: i / d_model for pair i, where the formula has 2i / d_model. The last
    pair should be nearly 10000 times as slow as the first; yours is some hundred times as slow.""")
slip("exponent with one 2 too many", ALL,
    {EXPONENTS: f"2 * {EXPONENTS}"},
    {"/ d_model)": "/ (d_model // 2))"},  # over half the width
    words="""
    The exponents grow twice as fast as they should. `torch.arange(0, d_model, 2)` counts 0, 2, 4, …: that is 2i
    already, and must not be doubled again. The last exponent should be a little below 1.""")
slip("slowest at exactly 10000", ALL, {f"{EXPONENTS} / d_model": "torch.linspace(0, 1, d_model // 2)"}, words="""
    The exponents run from 0 to 1, both ends included. Some published code does that; the paper's formula stops one step
    short of 1, because the last pair is i = d_model/2 − 1.""")
slip("another base", ALL, {"10000": "1000"}, {"10000": "500000.0"}, words="""
    The frequencies were made with another number than 10000. It decides how slow the slowest pair is. Newer models
    take a larger one, for longer texts; a table made with one base does not fit a model that was trained with
    another.""")
slip("one frequency for all", ALL, {"/ d_model)": "// d_model)"}, words="""
    All pairs are the same: sin p and cos p again and again. With one frequency, positions that lie a whole turn apart,
    6.28 of them, look almost the same. Each further pair must be slower, by the factor in the formula. (`//` drops the
    fraction: `2 * i // d_model` is 0 for every pair.)""")
slip("faster instead of slower", (*ALL, "distance"), {"1 / 10000": "10000"}, words="""
    The position was multiplied by the power of 10000 where it should be divided by it. The pairs then turn thousands of
    times from one position to the next, and float32 cannot even say where they stop.""")
slip("no brackets round the exponent", COLUMNS,
    {f"10000 ** ({EXPONENTS} / d_model)": f"10000.0 ** {EXPONENTS} / d_model"},
    {f"10000 ** ({EXPONENTS} / d_model)": f"(10000.0 ** {EXPONENTS} / d_model)"},  # divided by the quotient
    words="""
    `10000 ** 2 * i / d_model` is (10000²) · i / d_model, and `10000 ** two_i / d_model` is (10000 to the 2i) / d_model:
    in Python a power binds more tightly than a product or a quotient. Put brackets round the whole exponent.""")
slip("counts for itself", COLUMNS,
    {POSITIONS: "torch.arange(positions.numel()).reshape(positions.shape)[..., None]"},
    words="""
    The numbers in `positions` were not used, only how many there are: 0, 1, 2, … was counted instead. A model that
    decodes token by token asks for position 57 alone. Use the positions that come in.""")
slip("counted from one", COLUMNS, {POSITIONS: f"({POSITIONS} + 1)"}, words="""
    Every vector is that of the next position: one was added to the positions. They come counted from 0, and 0 is a
    position like any other.""")
slip("merged from axis 1 on", SHAPE, {".flatten(-2)": ".flatten(1)"}, words="""
    All axes from axis 1 on were merged. For positions (n,) these are the last two; for a batch of them, (batch, n), the
    tokens are among them. Count from the end: merge the last two.""")
slip("one long row", SHAPE, {".flatten(-2)": ".flatten(-2).reshape(-1, d_model)"}, words="""
    The positions were laid into one long row, and their shape was not put back: for positions (batch, n) the vectors
    are (batch, n, d_model).""")
slip("a table of whole numbers", ("fastest pair", "all columns", "distance", "any shape"),
    {PAIRS: f"{PAIRS}.to(positions.dtype)"}, words="""
    The sines were written into a table of whole numbers, which cuts them off to 0. `positions` holds integers, and what
    `new_zeros`, `zeros_like` or `full_like` make of them does, too. Say which type you want: `torch.zeros(…)` makes
    floating-point numbers.""")
slip("one axis only", SHAPE, {POSITIONS: "positions[:, None]"}, words="""
    This works for a row of positions, (n,), and not for a batch of them, (batch, n). `positions[:, None]` and
    `unsqueeze(1)` put the new axis in second place, which is the last only if there was one axis. Ask for a new *last*
    axis.""")


# ------------------------------------------------------------------------------------------------------ further from it


@variant("halves for interleaved", fails=COLUMNS)
def halves_filled_in(positions, d_model):
    """Filled in."""
    half = d_model // 2
    angles = positions[..., None] * torch.exp(-math.log(10000.0) * 2 * torch.arange(half) / d_model)
    vectors = torch.zeros(*positions.shape, d_model)
    vectors[..., :half] = torch.sin(angles)
    vectors[..., half:] = torch.cos(angles)
    return vectors


@variant("counts for itself", fails=("fastest pair", "all columns", "any shape"))
def counts_along_the_last_axis(positions, d_model):
    """Along the last axis."""
    counted = torch.arange(positions.shape[-1])
    angles = counted[:, None] / 10000 ** (torch.arange(0, d_model, 2) / d_model)
    vectors = torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(-2)
    return vectors.expand(*positions.shape, d_model)


@variant("one axis only", fails=SHAPE)
def into_a_matrix(positions, d_model):
    """Into a matrix."""
    vectors = torch.zeros(len(positions), d_model)
    angles = positions.unsqueeze(1) * torch.exp(torch.arange(0, d_model, 2) * (-math.log(10000.0) / d_model))
    vectors[:, 0::2] = torch.sin(angles)
    vectors[:, 1::2] = torch.cos(angles)
    return vectors


@variant("one axis only", fails=SHAPE)
def number_by_number(positions, d_model):
    """Number by number."""
    vectors = torch.zeros(len(positions), d_model)
    for row, p in enumerate(positions):
        for i in range(d_model // 2):
            vectors[row, 2 * i] = math.sin(p / 10000 ** (2 * i / d_model))
            vectors[row, 2 * i + 1] = math.cos(p / 10000 ** (2 * i / d_model))
    return vectors


@variant("one axis only", fails=SHAPE)
def a_list_of_lists(positions, d_model):
    """A list of lists."""
    frequencies = [10000 ** (-2 * i / d_model) for i in range(d_model // 2)]
    return torch.tensor([[f(p * w) for w in frequencies for f in (math.sin, math.cos)] for p in positions.tolist()])


@variant("halves for interleaved", "exponent off by one", fails=COLUMNS)
def halves_and_exponent_off_by_one(positions, d_model):
    """Both at once."""
    angles = positions[..., None] / 10000 ** (2 * torch.arange(1, d_model // 2 + 1) / d_model)
    return torch.cat([angles.sin(), angles.cos()], dim=-1)


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

# ------------------------------------------------------------------------------------------------ one thing changed

@exercise.variation(
    "sines, then cosines",
    asks="""All sines stand in the left half of the columns, all cosines in the right half, both from the fastest to the
    slowest.""",
    fails=COLUMNS,
    reference=lambda positions, d_model: torch.cat(
        [course.sinusoidal(positions, d_model)[..., i::2] for i in (0, 1)], dim=-1
    ),
    contract={"each pair of columns slower than the one before": "all sines in front of all cosines, fastest first"},
    meanings={"all columns": "sines in the left half, cosines in the right, each slower than the one before"},
    hints=(exercise.hints[0], exercise.hints[1], "Two tables of the same shape, side by side: `torch.cat`."),
    without=("halves for interleaved",),
)
def sines_then_cosines(positions, d_model):
    frequency = 1 / 10000 ** (torch.arange(0, d_model, 2) / d_model)  # (d_model/2,)
    angles = positions[..., None] * frequency                         # (*shape, d_model/2)
    return torch.cat([angles.sin(), angles.cos()], dim=-1)            # (*shape, d_model)


@sines_then_cosines.aspect("fastest pair", points=1, hint=1)
def fastest_of_each_half(answer, draw):
    """the first column of each half is sin p and cos p"""
    d_model = even(draw)
    return answer(some_positions(draw), d_model)[:, [0, d_model // 2]]


@exercise.variation(
    "cosine before sine",
    asks="In each pair of columns the cosine comes first: column 2i holds the cosine, column 2i + 1 the sine.",
    fails=COLUMNS,
    reference=lambda positions, d_model: (
        course.sinusoidal(positions, d_model).unflatten(-1, (-1, 2)).flip(-1).flatten(-2)
    ),
    contract={"Sines and cosines of the position,": "Cosines and sines of the position, the cosine first,"},
    meanings={"fastest pair": "the first two columns are cos p and sin p",
              "all columns": "cosine and sine side by side, each pair slower than the one before"},
    hints=(exercise.hints[0], exercise.hints[1],
           "Cosine and sine of one angle stand side by side: stack the two tables along a new last axis, then merge "
           "the last two axes."),
    without=("cosine before sine",),
)
def cosine_before_sine(positions, d_model):
    frequency = 1 / 10000 ** (torch.arange(0, d_model, 2) / d_model)      # (d_model/2,)
    angles = positions[..., None] * frequency                             # (*shape, d_model/2)
    return torch.stack([angles.cos(), angles.sin()], dim=-1).flatten(-2)  # (*shape, d_model)
