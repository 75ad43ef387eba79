"""softmax: Turn each row of scores into shares that sum to one, without overflow."""

import torch

from lessonkit.exercises.exercise import Exercise
from lessonkit.exercises.judge import arrives, row_sums
from lessonkit.exercises.observe import gradients

from .common import SOFTMAX, coarse, shift


def solution(scores):
    largest = scores.amax(dim=-1, keepdim=True)                      # (*batch, 1)
    exponentials = (scores - largest).exp()                          # (*batch, n)  none above 1, and one of them is 1
    return exponentials / exponentials.sum(dim=-1, keepdim=True)     # (*batch, n)


exercise = Exercise(
    "softmax",
    reference=lambda scores: scores.softmax(dim=-1),
    solution=solution,
    returns=("shares",),
    forbidden=SOFTMAX,
    difficulty=1,
    minutes=15,
    hints=(
        "Write the shapes down: the exponentials are (*batch, n), and so is the result. What shape must their sums "
        "have to divide them row by row, and which argument of `sum` keeps it so?",
        "`dim=-1` is the last axis whatever stands before it.",
        "Any number may be taken away from all the scores of a row, and the shares stay the same. Which number makes "
        "the largest exponential exactly 1, in each row?",
    ),
)
aspect, slip, misconception, variant, alternative = exercise.decorators()


# ----------------------------------------------------------------------------------------------------- what is observed


@aspect("shares", points=2, explain=row_sums)
def shares(answer, draw):
    """each row shares out exactly one, in proportion to the exponentials"""
    rows, n = draw.sizes(2, 3, 7)
    return answer(draw.normal(rows, n))


@aspect("any number of axes", points=1)
def any_number_of_axes(answer, draw):
    """one row alone works, and so does a batch of tables"""
    batch, rows, n = draw.sizes(3, 2, 6)
    one, many = answer(draw.normal(n)), answer(draw.normal(batch, rows, n))
    return torch.cat([one.flatten(), many.flatten()])


@aspect("large scores", points=1, explain=row_sums)
def large_scores(answer, draw):
    """a row whose scores are all 1000 larger, or all 1000 smaller, is shared out as before"""
    rows, n = draw.sizes(2, 3, 7)
    return answer(coarse(draw.normal(rows, n)) + shift(rows))


@aspect("scores far apart", points=1, explain=row_sums)
def scores_far_apart(answer, draw):
    """when two scores of a row are far above the others, these two share everything"""
    rows, n = draw.sizes(2, 4, 8)
    first = 1 + draw.integers(n - 2, rows)  # never the score in front
    high = torch.arange(n) == first[:, None]
    return answer(coarse(draw.normal(rows, n)) + 500 * (high | high.roll(1, dims=-1)))


@aspect("a score of −∞", points=1, explain=row_sums)
def a_score_of(answer, draw):
    """gets exactly nothing, and the others share everything"""
    rows, n = draw.sizes(2, 4, 8)
    scores = draw.normal(rows, n)
    scores[0, 0] = scores[1:, -1] = -torch.inf
    return answer(scores)


@aspect("gradient", points=1, explain=arrives("scores"))
def gradient(answer, draw):
    """the scores can be learned: the gradient reaches them"""
    scores = draw.normal(*draw.sizes(2, 3, 7)).requires_grad_()
    return gradients(answer(scores), [scores], draw)


ALL_SOFTMAX = ("shares", "any number of axes", "large scores", "scores far apart", "a score of −∞", "gradient")


# -------------------------------------------------------------------------------------------------------- wrong answers


@misconception("exponentials out of range", fails=("large scores", "scores far apart"))
def exponentials_out_of_range(scores):
    """exp(89) is more than float32 can hold and exp(−104) is 0: ∞/∞ and 0/0 are NaN. The formula is right, the numbers
    on the way to it do not fit. (Cutting the scores off at some limit, or mending NaN afterwards, only makes different
    scores equal.) Shares depend only on how far the scores of a row are from each other, so you may move the row before
    you exponentiate. Where to?"""
    exponentials = scores.exp()
    return exponentials / exponentials.sum(dim=-1, keepdim=True)


@variant("exponentials out of range", fails=("large scores", "scores far apart"))
def exponentials_out_of_range_2(scores):
    """With a small number below the line."""
    exponentials = torch.exp(scores)
    return exponentials / (exponentials.sum(dim=-1, keepdim=True) + 1e-9)


@variant("exponentials out of range", fails=("large scores", "scores far apart"))
def exponentials_out_of_range_3(scores):
    """With the NaN mended."""
    exponentials = torch.exp(scores)
    return (exponentials / exponentials.sum(dim=-1, keepdim=True)).nan_to_num()


@variant("exponentials out of range", fails=("large scores", "scores far apart"))
def exponentials_out_of_range_4(scores):
    """With large scores cut off."""
    exponentials = scores.clamp(min=-80, max=80).exp()
    return exponentials / exponentials.sum(dim=-1, keepdim=True)


@variant("exponentials out of range", fails=("large scores",))
def exponentials_out_of_range_5(scores):
    """In double precision, whose range ends at 709."""
    exponentials = scores.double().exp()
    return exponentials / exponentials.sum(dim=-1, keepdim=True)


@misconception("one maximum for all rows", fails=("large scores",))
def one_maximum_for_all_rows(scores):
    """The same number was taken from every row: the largest of the whole tensor. A row that lies far below it then has
    only exponentials of 0, and 0/0 is NaN. Each row needs its own maximum, kept as an axis of length one so that it
    lines up with its row."""
    exponentials = (scores - scores.max()).exp()
    return exponentials / exponentials.sum(dim=-1, keepdim=True)


@variant("one maximum for all rows", fails=("large scores",))
def one_maximum_for_all_rows_2(scores):
    """With a small number below the line."""
    exponentials = (scores - scores.amax()).exp()
    return exponentials / (exponentials.sum(dim=-1, keepdim=True) + 1e-9)


@misconception("moved, but not by the maximum", fails=("scores far apart", "a score of −∞"))
def moved_but_not_by_the_maximum(scores):
    """The row was moved by its mean, its minimum, one of its scores or its largest absolute value, and the largest
    score may still be far above that: its exponential overflows. (And where a score is −∞, so is the mean, and −∞ −
    (−∞) is NaN.) By how much must you move a row so that no exponent is above 0?"""
    exponentials = (scores - scores.mean(dim=-1, keepdim=True)).exp()
    return exponentials / exponentials.sum(dim=-1, keepdim=True)


@variant("moved, but not by the maximum", fails=("scores far apart", "a score of −∞"))
def moved_but_not_by_the_maximum_2(scores):
    """By the minimum."""
    exponentials = (scores - scores.amin(dim=-1, keepdim=True)).exp()
    return exponentials / exponentials.sum(dim=-1, keepdim=True)


@variant("moved, but not by the maximum", fails=("scores far apart", "a score of −∞"))
def moved_but_not_by_the_maximum_3(scores):
    """By the score in front."""
    exponentials = (scores - scores[..., :1]).exp()
    return exponentials / exponentials.sum(dim=-1, keepdim=True)


@variant("moved, but not by the maximum", fails=("large scores", "a score of −∞"))
def moved_but_not_by_the_maximum_4(scores):
    """By the largest size."""
    exponentials = (scores - scores.abs().amax(dim=-1, keepdim=True)).exp()
    return exponentials / exponentials.sum(dim=-1, keepdim=True)


@misconception("two tensors from max", fails=ALL_SOFTMAX)
def two_tensors_from_max(scores):
    """Along an axis, `max` returns two tensors, the largest values and the places where they stand, and a pair cannot
    be subtracted from a tensor. Take its `.values`, or ask for the values alone: `amax`."""
    exponentials = (scores - scores.max(dim=-1, keepdim=True)).exp()
    return exponentials / exponentials.sum(dim=-1, keepdim=True)


@misconception("along the wrong axis", fails=ALL_SOFTMAX)
def along_the_wrong_axis(scores):
    """The columns sum to one, and the rows do not. Which of the axes is one row's own scores? Count it from the end, so
    that its number fits however many axes stand before it."""
    exponentials = (scores - scores.amax(dim=0, keepdim=True)).exp()
    return exponentials / exponentials.sum(dim=0, keepdim=True)


@variant("along the wrong axis", fails=ALL_SOFTMAX)
def along_the_wrong_axis_2(scores):
    """The last but one."""
    exponentials = (scores - scores.amax(dim=-2, keepdim=True)).exp()
    return exponentials / exponentials.sum(dim=-2, keepdim=True)


@variant("along the wrong axis", fails=ALL_SOFTMAX)
def along_the_wrong_axis_3(scores):
    """The right maximum, the wrong sum."""
    exponentials = (scores - scores.amax(dim=-1, keepdim=True)).exp()
    return exponentials / exponentials.sum(dim=0, keepdim=True)


@variant("along the wrong axis", fails=ALL_SOFTMAX)
def along_the_wrong_axis_4(scores):
    """And out of range."""
    exponentials = scores.exp()
    return exponentials / exponentials.sum(dim=0)


@misconception("axis 1 for the last axis", fails=("any number of axes",))
def axis_1_for_the_last_axis(scores):
    """`dim=1` is the last axis of a table and of nothing else: a single row has no axis 1, and in a batch of tables it
    is the middle one. Count from the end."""
    exponentials = (scores - scores.amax(dim=1, keepdim=True)).exp()
    return exponentials / exponentials.sum(dim=1, keepdim=True)


@variant(
    "axis 1 for the last axis",
    "exponentials out of range",
    fails=("any number of axes", "large scores", "scores far apart"),
)
def axis_1_for_the_last_axis_2(scores):
    """And out of range."""
    exponentials = torch.exp(scores)
    return exponentials / exponentials.sum(dim=1, keepdim=True)


@misconception("everything together sums to one", fails=ALL_SOFTMAX)
def everything_together_sums_to_one(scores):
    """`sum()` without an axis adds up the whole tensor, so all rows together have one unit to share. Each row has a
    unit of its own: sum along one axis."""
    exponentials = (scores - scores.max()).exp()
    return exponentials / exponentials.sum()


@variant("everything together sums to one", fails=ALL_SOFTMAX)
def everything_together_sums_to_one_2(scores):
    """Without the maximum."""
    exponentials = scores.exp()
    return exponentials / exponentials.sum()


@variant("everything together sums to one", fails=ALL_SOFTMAX)
def everything_together_sums_to_one_3(scores):
    """Each row's own maximum, one sum."""
    exponentials = (scores - scores.amax(dim=-1, keepdim=True)).exp()
    return exponentials / exponentials.sum()


@misconception("the sum lost its axis", fails=ALL_SOFTMAX)
def the_sum_lost_its_axis(scores):
    """A sum (or a maximum) over the last axis of (rows, n) is (rows,), and torch lines shapes up from the right: it
    takes these numbers for one row of n. Here the sizes differ and you are told; were they equal, you would get wrong
    numbers and no message. Keep the axis, with length one."""
    exponentials = (scores - scores.max(dim=-1).values).exp()
    return exponentials / exponentials.sum(dim=-1)


@variant("the sum lost its axis", fails=ALL_SOFTMAX)
def the_sum_lost_its_axis_2(scores):
    """The sum alone."""
    exponentials = scores.exp()
    return exponentials / exponentials.sum(dim=-1)


@misconception("no exponentials", fails=ALL_SOFTMAX)
def no_exponentials(scores):
    """The scores themselves were divided by their sum. Scores may be negative, and may add up to 0, so such shares can
    be negative or enormous. Softmax shares out in proportion to the *exponentials*, which are positive."""
    return scores / scores.sum(dim=-1, keepdim=True)


@misconception("not divided by the sum", fails=ALL_SOFTMAX)
def not_divided_by_the_sum(scores):
    """These are the exponentials: positive, in the right proportion, but they do not sum to one. One division is
    missing."""
    return (scores - scores.amax(dim=-1, keepdim=True)).exp()


@variant("not divided by the sum", fails=ALL_SOFTMAX)
def not_divided_by_the_sum_2(scores):
    """Nor moved."""
    return scores.exp()


@misconception("logarithms of the shares", fails=ALL_SOFTMAX)
def logarithms_of_the_shares(scores):
    """None of these is above 0: they are the logarithms of the shares. A loss likes logarithms; an average needs the
    shares themselves."""
    moved = scores - scores.amax(dim=-1, keepdim=True)
    return moved - moved.exp().sum(dim=-1, keepdim=True).log()


@misconception("divided by the maximum", fails=ALL_SOFTMAX)
def divided_by_the_maximum(scores):
    """The scores were divided by the largest of them. That changes how far apart they are, and with it the shares (and
    if the largest is negative it reverses their order). A row may be *moved* without harm, not stretched: which
    operation moves it?"""
    exponentials = (scores / scores.amax(dim=-1, keepdim=True)).exp()
    return exponentials / exponentials.sum(dim=-1, keepdim=True)


@misconception("the lowest score gets most", fails=ALL_SOFTMAX)
def the_lowest_score_gets_most(scores):
    """The order is reversed: the lowest score has received the largest share. Look at the sign of the exponent."""
    exponentials = (scores.amin(dim=-1, keepdim=True) - scores).exp()
    return exponentials / exponentials.sum(dim=-1, keepdim=True)


@variant("the lowest score gets most", fails=ALL_SOFTMAX)
def the_lowest_score_gets_most_2(scores):
    """Maximum minus score, for score minus maximum."""
    exponentials = (scores.amax(dim=-1, keepdim=True) - scores).exp()
    return exponentials / exponentials.sum(dim=-1, keepdim=True)


@misconception("cut off from the gradient", fails=("gradient",))
def cut_off_from_the_gradient(scores):
    """The numbers are right, but the gradient does not get through: `.detach()`, `.data`, numpy, `.tolist()` and
    `torch.tensor(...)` hand over bare numbers and forget where they came from, so nothing before them can learn. Stay
    with tensor operations."""
    exponentials = (scores - scores.amax(dim=-1, keepdim=True)).exp()
    return (exponentials / exponentials.sum(dim=-1, keepdim=True)).detach()


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
