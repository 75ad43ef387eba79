"""logsumexp: The logarithm of the sum of the exponentials of each row, without overflow."""

import torch

from lessonkit.exercises.exercise import Exercise
from lessonkit.exercises.judge import explain_worst

from .common import SOFTMAX, coarse, shift


def solution(scores):
    largest = scores.amax(dim=-1, keepdim=True)                               # (*batch, 1)
    return (scores - largest).exp().sum(dim=-1).log() + largest[..., 0]       # (*batch,)


exercise = Exercise(
    "logsumexp",
    reference=lambda scores: torch.logsumexp(scores, dim=-1),
    solution=solution,
    returns=("result",),
    forbidden=(*SOFTMAX, "torch.nn.functional.cross_entropy", "torch.nn.CrossEntropyLoss"),
    difficulty=2,
    minutes=10,
    extra=True,
    hints=(
        "Write m for the largest score of a row. What is Σ exp(sᵢ), if every sᵢ is written as (sᵢ − m) + m?",
        "exp(m) comes out of the sum, and its logarithm out of the product. Which axis has to go in the end?",
    ),
)
aspect, slip, misconception, variant, alternative = exercise.decorators()


# ----------------------------------------------------------------------------------------------------- what is observed


@aspect("value", points=1)
def value(answer, draw):
    """the logarithm of the sum of the exponentials, one number for each row of a batch of tables"""
    return answer(draw.normal(*draw.sizes(3, 3, 7)))


@aspect(
    "large scores",
    points=1,
    explain=explain_worst("every score of a row moved by ±1000; the result, less that, is {got}, expected {expected}"),
)
def large_scores(answer, draw):
    """add 1000 to every score of a row, or subtract it, and the result moves by exactly that"""
    rows, n = draw.sizes(2, 3, 7)
    return answer(coarse(draw.normal(rows, n)) + shift(rows)).double() - shift(rows)[:, 0].double()


# -------------------------------------------------------------------------------------- one slip away from the solution

BOTH = ("value", "large scores")
LARGE = ("large scores",)
MOVED, PUT_BACK = "(scores - largest)", " + largest[..., 0]"

slip("exponentials out of range", LARGE,
     {MOVED: "scores", PUT_BACK: ""},
     {MOVED: "scores", f".log(){PUT_BACK}": ".add(1e-9).log()"},  # guarded
     {MOVED: "scores.double()", PUT_BACK: ""}, words="""
    exp(89) is more than float32 can hold, and the logarithm of ∞ is ∞; exp(−104) is 0, and the logarithm of 0 is −∞.
    Move the row before you exponentiate, as in softmax, and this time put back what you took away.""")
slip("one maximum for all rows", LARGE, {"scores.amax(dim=-1, keepdim=True)": "scores.max()", "[..., 0]": ""}, words="""
    The same number was taken from every row: the largest of the whole tensor. In a row far below it every exponential
    is 0, and log 0 is −∞. Each row needs its own maximum.""")
slip("the maximum was not put back", BOTH, {PUT_BACK: ""}, words="""
    You took the maximum away and did not give it back. In softmax it cancels between numerator and denominator; here
    there is nothing to cancel it.""")
slip("the maximum alone", BOTH, {"(scores - largest).exp().sum(dim=-1).log() + ": ""}, words="""
    This is the largest score. The result is always above it, by as much as log n when all scores are equal: the other
    exponentials count, too.""")
slip("along the wrong axis", BOTH,
     {"dim=-1, keepdim=True": "dim=0", "sum(dim=-1)": "sum(dim=0)", "[..., 0]": ""}, words="""
    There is one number for each column. One for each row is asked for: which axis has to go?""")
slip("axis 1 for the last axis", ("value",),
     {"amax(dim=-1": "amax(dim=1", "sum(dim=-1)": "sum(dim=1)", "[..., 0]": ".squeeze(1)"}, words="""
    `dim=1` is the last axis of a table and of nothing else: in a batch of tables it is the middle one. Count from the
    end.""")
slip("an axis of length one is left", BOTH, {"sum(dim=-1)": "sum(dim=-1, keepdim=True)", "[..., 0]": ""}, words="""
    The numbers may be right, the shape is not: an axis of length one still stands where the scores were. Keeping it was
    right for the subtraction; the result has it no longer.""")
slip("a table of all sums", BOTH,
     {"[..., 0]": ""},
     {"(scores - largest).exp()": "largest + (scores - largest).exp()", PUT_BACK: ""}, words="""
    The result holds rows *times rows* numbers. The maximum kept its axis, (rows, 1), and the logarithms have lost
    theirs, (rows,): their sum pairs every row with every other, and nothing crashed. Both need the same shape.""")
slip("a mean for the sum", BOTH, {".sum(": ".mean("}, words="""
    The result is too small by log n: the exponentials were averaged, not added.""")


# ------------------------------------------------------------------------------------------------------ further from it


@variant("axis 1 for the last axis", "exponentials out of range", fails=BOTH)
def axis_1_and_out_of_range(scores):
    """And out of range."""
    return scores.exp().sum(dim=1).log()


# ------------------------------------------------------------------------------------------------ right in other styles


@alternative("the maximum put back")
def the_maximum_put_back(scores):
    """As in the book."""
    largest = scores.max(dim=-1, keepdim=True).values
    return (largest + (scores - largest).exp().sum(-1, keepdim=True).log()).squeeze(-1)


@alternative("two at a time")
def two_at_a_time(scores):
    """A running total in logarithms, in double precision."""
    total = scores[..., 0].double()
    for i in range(1, scores.shape[-1]):
        total = torch.logaddexp(total, scores[..., i].double())
    return total


@alternative("einsum over exponentials")
def einsum_over_exponentials(scores):
    """Sums by naming the axis that goes."""
    largest = torch.amax(scores, dim=-1)
    return torch.log(torch.einsum("...n->...", torch.exp(scores - largest[..., None]))) + largest
