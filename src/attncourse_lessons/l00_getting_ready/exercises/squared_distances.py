"""squared_distances: The squared distance of every row of one table from every row of another."""

import torch

from lessonkit.exercises.exercise import Exercise
from lessonkit.exercises.judge import explain_worst
from lessonkit.exercises.observe import apart, require_variation
from lessonkit.exercises.way_back import explain_way_back, way_back


def solution(a, b):
    differences = a[..., :, None, :] - b[..., None, :, :]        # (*batch, n_a, n_b, d)
    return differences.pow(2).sum(dim=-1)                        # (*batch, n_a, n_b)


def by_expansion(a, b):
    products = torch.einsum("...id,...jd->...ij", a, b)              # (*batch, n_a, n_b)
    of_a = (a**2).sum(dim=-1)                                        # (*batch, n_a)
    of_b = (b**2).sum(dim=-1)                                        # (*batch, n_b)
    return (of_a[..., :, None] - 2 * products + of_b[..., None, :]).clamp(min=0)


exercise = Exercise(
    "squared_distances",
    reference=solution,
    solution=solution,
    returns=("distances",),
    forbidden=("torch.cdist", "torch.pairwise_distance", "torch.nn.PairwiseDistance",
               "torch.nn.functional.pairwise_distance"),
    difficulty=2,
    minutes=12,
    hints=(
        "By broadcasting: give `a` and `b` a new axis each, so that (n_a, 1, d) meets (1, n_b, d). By dot products: "
        "all of them at once are a matrix product or an `einsum`, and the squared lengths are (n_a,) and (n_b,). Which "
        "of these two stands upright?",
        "Count axes from the end: `a[..., :, None, :]`, `.mT`, `...` in an `einsum`. Then any number of axes may stand "
        "in front, and each of them is shared by both tables.",
        "Rounding: where two rows nearly agree, the sum of the lengths and twice the dot product are two large numbers "
        "that nearly cancel. See `clamp(min=…)`. (And stay with tensors up to the result: `.detach()`, `.item()` and "
        "NumPy pass no gradient on.)",
    ),
)
aspect, slip, misconception, variant, alternative = exercise.decorators()


# ----------------------------------------------------------------------------------------------------- what is observed


@aspect("two tables", points=2, hint=1)
def two_tables(answer, draw):
    """a row for each row of a, a column for each row of b"""
    n_a, n_b, d = draw.sizes(3, 2, 8)
    return answer(draw.normal(n_a, d), draw.normal(n_b, d))


@aspect("axes in front", points=1, hint=2)
def axes_in_front(answer, draw):
    """each batch has its own table of distances"""
    first, second, n_a, n_b, d = draw.sizes(5, 2, 8)
    return answer(draw.normal(first, second, n_a, d), draw.normal(first, second, n_b, d))


@aspect(
    "a moved origin",
    points=1,
    hint=1,
    explain=explain_worst("distance {place} changes by {size} when all rows are moved by the same vector"),
)
def a_moved_origin(answer, draw):
    """changes no distance: only differences of rows count"""
    n_a, n_b, d = draw.sizes(3, 2, 8)
    a, b, moved = draw.normal(n_a, d).double(), draw.normal(n_b, d).double(), 1 + draw.uniform(d)
    return apart(require_variation(answer(a, b)), answer(a + moved, b + moved))


def _below(got, expected):
    """Says that there is a negative one."""
    return "some squared distances of rows that nearly agree are below zero"


@aspect("nothing below zero", points=1, hint=3, explain=_below)
def nothing_below_zero(answer, draw):
    """far from the origin, between rows that nearly agree, no squared distance is negative"""
    a = 100 + draw.normal(60, 6)
    distances = require_variation(answer(a, a[:50] + 0.001 * draw.normal(50, 6)))
    return (distances < 0).any()


@aspect("gradient", points=1, hint=3, explain=explain_way_back("a", "b"))
def gradient(answer, draw):
    """both tables can be learned"""
    n_a, n_b, d = draw.sizes(3, 2, 8)
    a, b = draw.normal(n_a, d).requires_grad_(), draw.normal(n_b, d).requires_grad_()
    return way_back(answer(a, b), exercise.reference(a, b), [a, b], draw)


# -------------------------------------------------------------------------------------- one slip away from the solution

VALUES = ("two tables", "axes in front")
MOVED = (*VALUES, "a moved origin")
ALL = (*MOVED, "nothing below zero", "gradient")
SQUARED = "differences.pow(2).sum(dim=-1)"
PAIRS = "a[..., :, None, :] - b[..., None, :, :]"

slip("can be negative", ("nothing below zero",), {".clamp(min=0)": ""}, base=by_expansion, words="""
    The formula is right and a computer rounds: for two rows that nearly agree, |a|² + |b|² and 2 a·b are two large
    numbers that nearly cancel, and what is left is rounding, of either sign. Whoever takes the root of it gets NaN. See
    to it that nothing below zero comes back.""")
slip("the dot product counted once", MOVED, {"2 * products": "products"}, base=by_expansion, words="""
    (a − b)² is a² − 2ab + b²: the mixed term is there twice. A test without any theory: what is the distance of a row
    from itself?""")
slip("the dot product added", MOVED, {" - 2 * products": " + 2 * products"}, base=by_expansion, words="""
    This is |a + b|². In a *difference* the mixed term has a minus: what points in the same direction is near.""")
slip("rows and columns exchanged", MOVED, {".clamp(min=0)": ".clamp(min=0).mT"}, base=by_expansion, words="""
    The distances are right and the table is transposed: (n_b, n_a). The rows of the result are the rows of `a`.""")
slip("distances, not squared", VALUES, {".clamp(min=0)": ".clamp(min=0).sqrt()"}, base=by_expansion, words="""
    A root was taken. The contract asks for the *squared* distance, which has a gradient everywhere; the root's slope at
    0 is infinite.""")
slip("the squared lengths left out", MOVED,
     {"of_a[..., :, None] - 2 * products + of_b[..., None, :]": "products"}, base=by_expansion, words="""
    These are dot products. How well two vectors match and how far they are from each other are different questions: a
    long vector matches well and lies far away. The squared lengths of both rows belong to the distance.""")
slip("the lengths do not stand upright", ALL, {"of_a[..., :, None]": "of_a"}, base=by_expansion, words="""
    The squared lengths of the rows of `a` are (n_a,), and torch lines shapes up from the right: it takes them for one
    row of the result. Each belongs to a row. Which axis of length one is missing?""")
slip("averaged over the features", VALUES, {SQUARED: "differences.pow(2).mean(dim=-1)"}, words="""
    The squares were averaged over the features, so each number is d times too small. A distance is the *sum* of the
    squares.""")
slip("added up before squaring", VALUES, {SQUARED: "differences.sum(dim=-1).pow(2)"}, words="""
    The differences were added up first and squared afterwards, so a difference of +1 in one feature and of −1 in
    another cancel. Square each of them, then add up.""")
slip("absolute differences", VALUES, {SQUARED: "differences.abs().sum(dim=-1)"}, words="""
    This is the way through a town with straight streets, |a₁ − b₁| + |a₂ − b₂| + …. The contract asks for the sum of
    *squared* differences.""")
slip("each table about its own mean", VALUES,
     {PAIRS: "(a - a.mean(dim=-2, keepdim=True))[..., :, None, :]"
             " - (b - b.mean(dim=-2, keepdim=True))[..., None, :, :]"},
     words="""
    Each table was moved by its own mean, so that both lie about the same place, and the distance between them is lost.
    Distances stay as they are only if *both* tables move by the same vector.""")
slip("the smallest of each row taken off", VALUES, {SQUARED: f"({SQUARED} - {SQUARED}.amin(dim=-1, keepdim=True))"},
     words="""
    From each row its smallest number was taken off, so every row of `a` seems to lie on some row of `b`. Rounding can
    make a number negative; cut it off at zero, `clamp(min=0)`, and leave the others as they are.""")
slip("each row with one row only", ("two tables", "axes in front", "a moved origin", "nothing below zero", "gradient"),
     {PAIRS: "a - b"}, words="""
    `a - b` pairs row with row, as far as there are equally many. Here every row of `a` meets *every* row of `b`: each
    table needs a new axis along which it is stretched.""")
slip("no axes in front", ("axes in front",),
     {PAIRS: "a[:, None] - b[None]"}, words="""
    For two tables this is right. But `[:, None]` counts the new axis from the front, so with a batch it lands in the
    wrong place, and batches meet each other. Count axes from the end: `...` stands for all that are in front.""")
slip("cut off from the gradient", ("gradient",), {"(a**2)": "(a.detach() ** 2)", ', a, b)': ', a.detach(), b)'},
     {".clamp(min=0)": ".clamp(min=0).detach()"}, base=by_expansion, words="""
    The numbers are right, but the gradient does not get through: `.detach()`, `.data`, numpy, `.tolist()` and
    `torch.tensor(...)` hand over bare numbers and forget where they came from, so nothing before them can learn. Stay
    with tensor operations.""")
slip("cut off from the gradient", ("gradient",), {PAIRS: "a.detach()[..., :, None, :] - b[..., None, :, :]"},
     {SQUARED: "differences.detach().pow(2).sum(dim=-1)"})  # fmt: skip
slip("rows and columns exchanged", MOVED, {PAIRS: "a[..., None, :, :] - b[..., :, None, :]"})
slip("distances, not squared", VALUES, {SQUARED: "differences.norm(dim=-1)"})


# ------------------------------------------------------------------------------------------------ right in other styles


@alternative("lengths and an einsum")
def lengths_and_an_einsum(a, b):
    """|a|² − 2 a·b + |b|² with a clamp: no table of differences on the way."""
    crossed = torch.einsum("...if,...jf->...ij", a, b)
    squares = (a * a).sum(-1).unsqueeze(-1) + (b * b).sum(-1).unsqueeze(-2)
    return torch.clamp(squares - crossed - crossed, min=0)


@alternative("a matrix product, with keepdim")
def a_matrix_product_with_keepdim(a, b):
    """|a|² − 2 a·b + |b|² by `@`, and a relu in place of the clamp."""
    of_a, of_b = a.square().sum(-1, keepdim=True), b.square().sum(-1, keepdim=True)
    return torch.relu(of_a + of_b.mT - 2 * a @ b.mT)


@alternative("a loop over the rows of b, float64")
def a_loop_over_the_rows_of_b_float64(a, b):
    """Column by column, in double precision."""
    columns = [(a.double() - b.double()[..., j : j + 1, :]).norm(dim=-1) ** 2 for j in range(b.shape[-2])]
    return torch.stack(columns, dim=-1)


@alternative("einsum of the differences")
def einsum_of_the_differences(a, b):
    """The square and the sum in one einsum."""
    differences = a[..., None, :] - b[..., None, :, :]
    return torch.einsum("...d,...d->...", differences, differences)
