"""softmax: Turn each row of scores into weights that sum to one, without overflow."""

import math

import torch

from lessonkit.exercises.exercise import Exercise
from lessonkit.exercises.judge import row_sums
from lessonkit.exercises.way_back import explain_way_back, way_back

from .common import SOFTMAX, coarse, shift


def solution(scores):
    largest = scores.amax(dim=-1, keepdim=True)                      # (*batch, 1)
    exponentials = (scores - largest).exp()                          # (*batch, n)  none above 1
    return exponentials / exponentials.sum(dim=-1, keepdim=True)     # (*batch, n)


exercise = Exercise(
    "softmax",
    reference=lambda scores: scores.softmax(dim=-1),
    solution=solution,
    returns=("weights",),
    forbidden=SOFTMAX,
    difficulty=1,
    minutes=15,
    hints=(
        "Write the shapes down: the exponentials are (*batch, n), and so is the result. What shape must their sums "
        "have to divide them row by row, and which argument of `sum` keeps it so?",
        "`dim=-1` is the last axis whatever stands before it.",
        "You may subtract any number from all the scores of a row, and the weights stay the same. Which number makes "
        "the largest exponential exactly 1, in each row? (A score of −∞ then has the exponential 0, as it should: do "
        "not treat it apart. And stay with tensors: `.item()`, `.tolist()` and `torch.tensor(…)` stop the gradient.)",
    ),
)
aspect, slip, misconception, variant, alternative = exercise.decorators()


# ----------------------------------------------------------------------------------------------------- what is observed


@aspect("weights", points=2, hint=1, explain=row_sums)
def weights(answer, draw):
    """the weights of each row sum to one, in proportion to the exponentials"""
    rows, n = draw.sizes(2, 3, 7)
    return answer(draw.normal(rows, n))


@aspect("any number of axes", points=1, hint=2)
def any_number_of_axes(answer, draw):
    """one row alone works, and so does a batch of tables"""
    batch, rows, n = draw.sizes(3, 2, 6)
    one, many = answer(draw.normal(n)), answer(draw.normal(batch, rows, n))
    return torch.cat([one.flatten(), many.flatten()])


@aspect("large scores", points=1, hint=3, explain=row_sums)
def large_scores(answer, draw):
    """a row whose scores are all 1000 larger, or all 1000 smaller, has the same weights as before"""
    rows, n = draw.sizes(2, 3, 7)
    return answer(coarse(draw.normal(rows, n)) + shift(rows))


@aspect("scores far apart", points=1, hint=3, explain=row_sums)
def scores_far_apart(answer, draw):
    """when two scores of a row are far above the others, these two have all the weight"""
    rows, n = draw.sizes(2, 4, 8)
    first = 1 + draw.integers(n - 2, rows)  # never the score in front
    high = torch.arange(n) == first[:, None]
    return answer(coarse(draw.normal(rows, n)) + 500 * (high | high.roll(1, dims=-1)))


@aspect("a score of −∞", points=1, hint=3, explain=row_sums)
def a_score_of(answer, draw):
    """gets a weight of exactly 0, and the others have all of it, even where they are near −1000"""
    rows, n = draw.sizes(2, 4, 8)
    scores = coarse(draw.normal(rows, n))
    scores[0, 0] = scores[1:, -1] = -torch.inf
    return torch.cat([answer(scores), answer(scores - 1000)])


@aspect("gradient", points=1, hint=3, explain=explain_way_back("scores"))
def gradient(answer, draw):
    """a gradient reaches the scores"""
    scores = draw.normal(*draw.sizes(2, 3, 7)).requires_grad_()
    return way_back(answer(scores), exercise.reference(scores), [scores], draw)


# -------------------------------------------------------------------------------------- one slip away from the solution

VALUES = ("weights", "any number of axes", "large scores", "scores far apart", "a score of −∞")
ALL = (*VALUES, "gradient")
RANGE = ("large scores", "scores far apart")
FORBIDDEN = ("a score of −∞",)
LARGEST, MOVED = "scores.amax(dim=-1, keepdim=True)", "(scores - largest)"
SUM = "exponentials.sum(dim=-1, keepdim=True)"
WEIGHTS = f"exponentials / {SUM}"

slip("exponentials out of range", (*RANGE, *FORBIDDEN),
     {MOVED: "scores"},
     {MOVED: "scores", SUM: f"({SUM} + 1e-9)"},
     {MOVED: "scores", WEIGHTS: f"({WEIGHTS}).nan_to_num()"},
     {MOVED: "scores.clamp(min=-80, max=80)"}, words="""
    exp(89) is more than float32 can hold and exp(−104) is 0: ∞/∞ and 0/0 are NaN. The formula is right, the numbers on
    the way to it do not fit. (Cutting the scores off at some limit, or mending NaN afterwards, only makes different
    scores equal.) Weights depend only on how far the scores of a row are from each other, so you may move the row
    before you exponentiate. Where to?""")
slip("exponentials out of range", RANGE,
     {"largest =": "scores = scores.clamp(max=80)\nlargest ="})  # cut off above, and moved too
slip("one maximum for all rows", ("large scores",),
     {LARGEST: "scores.max()"},
     {LARGEST: "scores.max()", SUM: f"({SUM} + 1e-9)"}, words="""
    The same number was taken from every row: the largest of the whole tensor. A row that lies far below it then has
    only exponentials of 0, and 0/0 is NaN. Each row needs its own maximum, kept as an axis of length one so that it
    lines up with its row.""")
slip("the largest of each column", VALUES, {"amax(dim=-1": "amax(dim=0"}, {"amax(dim=-1": "amax(dim=-2"}, words="""
    From each score the largest of its *column* was taken away. Then two scores of one row move by different amounts,
    and the weights change. Only what is taken from *all* scores of a row cancels: each row needs its own maximum.""")
slip("moved, but not by the maximum", ("scores far apart", "a score of −∞"),
     {"amax": "mean"},
     {"amax": "amin"},
     {LARGEST: "scores[..., :1]"}, words="""
    The row was moved by its mean, its minimum, one of its scores or its largest absolute value, and the largest score
    may still be far above that: its exponential overflows. (And where a score is −∞, so is the mean, and −∞ − (−∞) is
    NaN.) By how much must you move a row so that no exponent is above 0?""")
slip("moved, but not by the maximum", ("large scores", *FORBIDDEN),
     {LARGEST: "scores.masked_fill(scores == -torch.inf, 0.0).abs().amax(dim=-1, keepdim=True)"})
slip("a low number for −∞", FORBIDDEN,
     {"largest =": "scores = scores.masked_fill(scores == -torch.inf, -100.0)\nlargest ="}, words="""
    A score of −∞ was replaced by a low number, or scores were cut off there. In a row whose scores are all near −1000
    that number is the highest, and the forbidden place gets all the weight. The exponential of −∞ is 0 by itself: leave
    the score as it is.""")
slip("a low number for −∞", ("large scores", *FORBIDDEN), {"largest =": "scores = scores.clamp(min=-100.0)\nlargest ="})
slip("two tensors from max", ALL, {"amax": "max"}, words="""
    Along an axis, `max` returns two tensors, the largest values and the places where they stand, and a pair cannot be
    subtracted from a tensor. Take its `.values`, or ask for the values alone: `amax`.""")
slip("along the wrong axis", VALUES,
     {"amax(dim=-1": "amax(dim=0", "sum(dim=-1": "sum(dim=0"},
     {"amax(dim=-1": "amax(dim=-2", "sum(dim=-1": "sum(dim=-2"},
     {"sum(dim=-1": "sum(dim=0"},
     {MOVED: "scores", SUM: "exponentials.sum(dim=0)"}, words="""
    The columns sum to one, and the rows do not. Which of the axes is one row's own scores? Count it from the end, so
    that its number fits however many axes stand before it.""")
slip("axis 1 for the last axis", ("any number of axes",), {"amax(dim=-1": "amax(dim=1", "sum(dim=-1": "sum(dim=1"},
     words="""
    `dim=1` is the last axis of a table and of nothing else: a single row has no axis 1, and in a batch of tables it is
    the middle one. Count from the end.""")
slip("everything together sums to one", VALUES,
     {LARGEST: "scores.max()", SUM: "exponentials.sum()"},
     {MOVED: "scores", SUM: "exponentials.sum()"},
     {SUM: "exponentials.sum()"}, words="""
    `sum()` without an axis adds up the whole tensor, so the weights of all rows together sum to one. Each row
    needs a sum of its own: along one axis.""")
slip("the sum lost its axis", ALL,
     {LARGEST: "scores.max(dim=-1).values", SUM: "exponentials.sum(dim=-1)"},
     {MOVED: "scores", SUM: "exponentials.sum(dim=-1)"}, words="""
    A sum (or a maximum) over the last axis of (rows, n) is (rows,), and torch lines shapes up from the right: it takes
    these numbers for one row of n. Here the sizes differ and you are told; were they equal, you would get wrong numbers
    and no message. Keep the axis, with length one.""")
slip("no exponentials", VALUES, {"(scores - largest).exp()": "scores"}, words="""
    The scores themselves were divided by their sum. Scores may be negative, and may add up to 0, so such weights can be
    negative or enormous. The softmax goes in proportion to the *exponentials*, which are positive.""")
slip("not divided by the sum", VALUES, {f" / {SUM}": ""}, {MOVED: "scores", f" / {SUM}": ""}, words="""
    These are the exponentials: positive, in the right proportion, but they do not sum to one. One division is
    missing.""")
slip("logarithms of the weights", VALUES, {WEIGHTS: f"scores - largest - {SUM}.log()"}, words="""
    None of these is above 0: they are the logarithms of the weights. A loss likes logarithms; an average needs the
    weights themselves.""")
slip("divided by the maximum", VALUES, {"scores - largest": "scores / largest"}, words="""
    The scores were divided by the largest of them. That changes how far apart they are, and with it the weights (and if
    the largest is negative it reverses their order). A row may be *moved* without harm, not stretched: which operation
    moves it?""")
slip("the lowest score gets most", VALUES,
     {"amax": "amin", "scores - largest": "largest - scores"},
     {"scores - largest": "largest - scores"}, words="""
    The order is reversed: the lowest score has received the largest weight. Look at the sign of the exponent.""")
slip("cut off from the gradient", ("gradient",), 
     {WEIGHTS: f"({WEIGHTS}).detach()"},
     {SUM: f"{SUM}.detach()"},  # a part of it
     {"(scores - largest)": "(scores.detach() - largest)"}, words="""
    The numbers are right, but the gradient does not get through, or only a part of it: `.detach()`, `.data`, numpy,
    `.tolist()` and `torch.tensor(...)` hand over bare numbers and forget where they came from, so nothing before them
    can learn. Stay with tensor operations.""")


# ------------------------------------------------------------------------------------------------------ further from it


@variant("moved, but not by the maximum", fails=("scores far apart", "a score of −∞"))
def moved_by_the_mean_without_infinity(scores):
    """By the mean of the finite scores, those of −∞ counted as 0."""
    largest = scores.masked_fill(scores == -torch.inf, 0.0).mean(dim=-1, keepdim=True)
    exponentials = (scores - largest).exp()
    return exponentials / exponentials.sum(dim=-1, keepdim=True)


@variant("exponentials out of range", fails=("large scores", "a score of −∞"))
def out_of_range_in_double_precision(scores):
    """In double precision, whose range ends at 709."""
    exponentials = scores.double().exp()
    return exponentials / exponentials.sum(dim=-1, keepdim=True)


@variant("moved, but not by the maximum", fails=("large scores", "a score of −∞"))
def moved_by_the_largest_size(scores):
    """By the largest size."""
    exponentials = (scores - scores.abs().amax(dim=-1, keepdim=True)).exp()
    return exponentials / exponentials.sum(dim=-1, keepdim=True)


@variant(
    "axis 1 for the last axis",
    "exponentials out of range",
    fails=("any number of axes", *RANGE, *FORBIDDEN),
)
def axis_1_and_out_of_range(scores):
    """And out of range."""
    exponentials = torch.exp(scores)
    return exponentials / exponentials.sum(dim=1, keepdim=True)


# ------------------------------------------------------------------------------------------------ right in other styles


@alternative("the maximum with its place")
def the_maximum_with_its_place(scores):
    """`max` returns two tensors; its values still need their axis."""
    e = torch.exp(scores - scores.max(dim=-1, keepdim=True).values)
    return e / e.sum(-1, keepdim=True)


@alternative("None for the lost axis")
def none_for_the_lost_axis(scores):
    """Puts the axis back by indexing."""
    e = torch.exp(scores - torch.amax(scores, -1)[..., None])
    return e / torch.einsum("...n->...", e)[..., None]


@alternative("row by row")
def row_by_row(scores):
    """A loop over all rows, stacked again."""
    rows = []
    for row in scores.reshape(-1, scores.shape[-1]):
        e = (row - row.max()).exp()
        rows.append(e / e.sum())
    return torch.stack(rows).reshape(scores.shape)


@alternative("float64, not contiguous")
def float64_not_contiguous(scores):
    """The axis moved to the front, double precision, a view returned."""
    first = scores.double().movedim(-1, 0)
    e = torch.exp(first - first.amax(dim=0))
    return (e / e.sum(dim=0)).movedim(0, -1)


@alternative("one over the sum of differences")
def one_over_the_sum_of_differences(scores):
    """Every pair of scores: 1 / Σ exp(other − own). Overflow is ∞ there, and 1/∞ is 0, as it should be."""
    own = scores.masked_fill(scores == -torch.inf, -1e30)
    return 1 / (own[..., None, :] - own[..., :, None]).exp().sum(dim=-1)


@alternative("by logarithms")
def by_logarithms(scores):
    """The logarithms first."""
    moved = scores - scores.amax(dim=-1, keepdim=True).detach()
    return (moved - moved.exp().sum(dim=-1, keepdim=True).log()).exp()

# ------------------------------------------------------------------------------------------------ one thing changed

@exercise.variation(
    "powers of two",
    asks="The weights are in proportion to 2 to the power of the scores, in place of their exponentials.",
    fails=VALUES,
    reference=lambda scores: (math.log(2) * scores).softmax(dim=-1),
    contract={"each row of scores into weights": "each row of scores into weights, in proportion to 2^score,"},
    meanings={"weights": "the weights of each row sum to one, in proportion to the powers of two"},
)
def powers_of_two(scores):
    largest = scores.amax(dim=-1, keepdim=True)                      # (*batch, 1)
    powers = 2 ** (scores - largest)                                 # (*batch, n)  none above 1
    return powers / powers.sum(dim=-1, keepdim=True)                 # (*batch, n)


@powers_of_two.aspect("gradient", points=1, hint=3, explain=explain_way_back("scores"))
def gradient_of_powers(answer, draw):
    """a gradient reaches the scores"""
    scores = draw.normal(*draw.sizes(2, 3, 7)).requires_grad_()
    return way_back(answer(scores), powers_of_two.reference(scores), [scores], draw)


@exercise.variation(
    "one share for nobody",
    asks="""In each row one more score, of 0, takes part in the softmax, and its weight is not returned. So a row may
    sum to less than one.""",
    fails=("weights", "any number of axes", "large scores", "a score of −∞"),
    reference=lambda scores: torch.nn.functional.pad(scores, (0, 1)).softmax(dim=-1)[..., :-1],
    contract={"weights that sum to one, without": "weights, of which an extra score of 0 gets a share, without",
              "along the last axis they sum to one": "along the last axis they sum to less than one"},
    meanings={"weights": "an extra score of 0 has its share of each row, and the rest goes by the exponentials",
              "large scores": "scores of 1000 overflow nowhere, and beside 0 scores of −1000 get nothing",
              "a score of −∞": "gets a weight of exactly 0, and the others share with the extra score"},
    hints=(exercise.hints[0], exercise.hints[1],
           "You may subtract any number from all the scores of a row, the extra one included, and the weights stay "
           "the same. Which is the largest of all these scores, the extra one included?"),
    without=("exponentials out of range", "moved, but not by the maximum", "one maximum for all rows",
             "divided by the maximum", "a low number for −∞"),  # beside the extra 0, −100 is low enough
)
def one_share_for_nobody(scores):
    largest = scores.amax(dim=-1, keepdim=True).clamp(min=0)         # (*batch, 1)  the extra score is 0
    exponentials = (scores - largest).exp()                          # (*batch, n)
    total = exponentials.sum(dim=-1, keepdim=True) + (-largest).exp()
    return exponentials / total                                      # (*batch, n)


@one_share_for_nobody.aspect("gradient", points=1, hint=3, explain=explain_way_back("scores"))
def gradient_beside_nobody(answer, draw):
    """a gradient reaches the scores"""
    scores = draw.normal(*draw.sizes(2, 3, 7)).requires_grad_()
    return way_back(answer(scores), one_share_for_nobody.reference(scores), [scores], draw)
