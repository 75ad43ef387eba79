"""logsumexp: The logarithm of the sum of the exponentials of each row, without overflow."""

import torch

from lessonkit.exercises.exercise import Exercise
from lessonkit.exercises.way_back import explain_way_back, way_back

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
        "exp(m) comes out of the sum, and its logarithm out of the product. Which axis has to go in the end? (Stay "
        "with tensors: the scores are to be learned. If m is cut off from the gradient, then in both places.)",
    ),
)
aspect, slip, misconception, variant, alternative = exercise.decorators()


# ----------------------------------------------------------------------------------------------------- what is observed


@aspect("value", points=1, hint=2)
def value(answer, draw):
    """the logarithm of the sum of the exponentials, one number for each row of a batch of tables"""
    return answer(draw.normal(*draw.sizes(3, 3, 7)))


STEPS = 100  # at 1000 float32 has steps of 6e-5, and a running total adds up several: compared is a hundredth


def _above(got, expected):
    """Says how far above the largest score a result is."""
    row = abs(got - expected).argmax()
    apart = f"{STEPS * got[row]:.4g} above the largest score of row {row}, expected {STEPS * expected[row]:.4g}"
    return f"with scores near ±1000 the result is {apart}"


@aspect("large scores", points=1, hint=1, explain=_above)
def large_scores(answer, draw):
    """right for scores of ±1000: throughout a row, and both in one row"""
    rows, n = draw.sizes(2, 3, 7)
    scores = coarse(draw.normal(rows + 1, n)) + shift(rows + 1)
    scores[1, 0], scores[1, -1] = -1000, 1000
    return (answer(scores).double() - scores.amax(dim=-1).double()) / STEPS


@aspect("gradient", points=1, hint=2, explain=explain_way_back("scores"))
def gradient(answer, draw):
    """a gradient reaches the scores, and it is the softmax"""
    scores = draw.normal(*draw.sizes(2, 3, 7)).requires_grad_()
    return way_back(answer(scores), exercise.reference(scores), [scores], draw)


# -------------------------------------------------------------------------------------- one slip away from the solution

BOTH = ("value", "large scores")
ALL = (*BOTH, "gradient")
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
slip("moved, but not by the maximum", LARGE,
     {"amax": "mean"},
     {"amax": "amin"},
     {"scores.amax(dim=-1, keepdim=True)": "scores[..., :1]"}, words="""
    The row was moved by its mean, its minimum or one of its scores, and the largest score may still be far above that:
    its exponential overflows. By how much must you move a row so that no exponent is above 0?""")
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

slip("cut off from the gradient", ("gradient",),
     {PUT_BACK: f"{PUT_BACK}.detach()"},
     {"(scores -": "(scores.detach() -"},
     {"scores.amax": "scores.detach().amax", MOVED: "(scores.detach() - largest)"},
     words="""
    The numbers are right, but the gradient does not get through, or only a part of it: `.detach()`, `.data`, numpy,
    `math.log`, `.tolist()` and `torch.tensor(...)` hand over bare numbers and forget where they came from. (What is
    taken away and put back may be detached in both places or in neither.)""")


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


@alternative("a running total")
def a_running_total(scores):
    """Two at a time in float32, which rounds at every step."""
    total = scores[..., 0]
    for score in scores.unbind(dim=-1)[1:]:
        total = torch.logaddexp(total, score)
    return total


@alternative("einsum over exponentials")
def einsum_over_exponentials(scores):
    """Sums by naming the axis that goes."""
    largest = torch.amax(scores, dim=-1)
    return torch.log(torch.einsum("...n->...", torch.exp(scores - largest[..., None]))) + largest
