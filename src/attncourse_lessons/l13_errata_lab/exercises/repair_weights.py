"""repair_weights: The weights that there would be if the scores had been masked before the softmax."""

import torch

from lessonkit.exercises.exercise import Exercise
from lessonkit.exercises.judge import nonzero, row_sums

from .common import READY_MADE


def reference(weights, mask):
    """What is left, shared out anew: the same as to mask the scores."""
    allowed = weights * mask
    total = allowed.sum(dim=-1, keepdim=True)
    return torch.where(total > 0, allowed / total.clamp(min=torch.finfo(weights.dtype).tiny), 0.0)


def solution(weights, mask):
    left = weights * mask                                        # (..., n_query, n_key)
    sums = left.sum(dim=-1, keepdim=True)                        # (..., n_query, 1)
    return torch.where(sums > 0, left / sums, torch.zeros_like(left))


exercise = Exercise(
    "repair_weights",
    reference=reference,
    solution=solution,
    returns=("weights",),
    forbidden=READY_MADE,
    difficulty=1,
    minutes=10,
    hints=(
        "What does each row sum to after the slide's step? What would it have to sum to?",
        "Masking the scores leaves the *proportions* among the allowed weights as they are: e^a / e^b does not know "
        "who else was in the sum. So only the total has to be put right.",
        "A row in which nothing is allowed has the total 0, and 0/0 is NaN. Handle that row by itself, for instance "
        "with `torch.where`; a small number added to every total would change the others, too.",
    ),
)
aspect, slip, misconception, variant, alternative = exercise.decorators()


def _shares(draw, *shape):
    return (2 * draw.normal(*shape)).softmax(dim=-1)


def _some(draw, *shape):
    """True or False, and at least one True and one False in every row."""
    mask = draw.uniform(*shape) < 0.5
    mask[..., 0], mask[..., -1] = True, False
    return mask


# ----------------------------------------------------------------------------------------------------- what is observed


@aspect("shares", points=2, explain=row_sums)
def shares(answer, draw):
    """rows that sum to one again, in the old proportions"""
    batch, n, m = draw.sizes(3, 3, 7)
    return answer(_shares(draw, batch, n, m), _some(draw, batch, n, m))


@aspect("little left", points=1, explain=row_sums)
def little_left(answer, draw):
    """even where all that is allowed weighed next to nothing"""
    n, m = draw.sizes(2, 4, 7)
    mask = _some(draw, n, m)
    return answer(_shares(draw, n, m) * torch.where(mask, 1e-9, 1.0), mask)


@aspect("nothing allowed", points=1, explain=nonzero)
def nothing_allowed(answer, draw):
    """zeros in a row that may look at nothing, and right rows beside it"""
    n, m = draw.sizes(2, 4, 7)
    mask = _some(draw, n, m)
    mask[1] = False
    return answer(_shares(draw, n, m), mask)


REST = ("shares", "little left", "nothing allowed")


# -------------------------------------------------------------------------------------------------------- wrong answers


@misconception("weights set to 0", fails=REST)
def weights_set_to_0(weights, mask):
    """That is the slide's step: forbidden weights are 0 now, and what they had was given to nobody, so that the rows
    sum to less than one."""
    return weights * mask


@misconception("softmax once more", fails=REST)
def softmax_once_more(weights, mask):
    """Softmax was taken of something that is a softmax already. Weights are not scores: 0 is not "nothing" to softmax
    (it makes e⁰ of it), and two weights of 0.8 and 0.1 would come out nearly equal. The rows sum to one, but the
    proportions are gone."""
    return weights.masked_fill(~mask, -torch.inf).softmax(dim=-1).nan_to_num(0.0)


@variant("softmax once more", fails=REST)
def softmax_once_more_2(weights, mask):
    """Of the weights set to 0."""
    return (weights * mask).softmax(dim=-1)


@variant("softmax once more", fails=REST)
def softmax_once_more_3(weights, mask):
    """Without a thought for empty rows."""
    return weights.masked_fill(~mask, -torch.inf).softmax(dim=-1)


@misconception("shared out equally", fails=REST)
def shared_out_equally(weights, mask):
    """What was taken from the forbidden places was given to the allowed ones in equal parts. The rows sum to one; but
    masked scores would give each what it had, times one factor, so that whoever had more gets more."""
    kept = weights * mask
    missing = 1 - kept.sum(dim=-1, keepdim=True)
    return kept + missing * mask / mask.sum(dim=-1, keepdim=True).clamp(min=1)


@misconception("along the wrong axis", fails=REST)
def along_the_wrong_axis(weights, mask):
    """Columns were brought to one. A row is what one query gives away, and it is the rows that must sum to one."""
    kept = weights * mask
    return (kept / kept.sum(dim=-2, keepdim=True)).nan_to_num(0.0)


@misconception("a small number in the divisor", fails=("little left",))
def a_small_number_in_the_divisor(weights, mask):
    """A small number was added to the total, against 0/0. Where the allowed weights are small themselves it is not
    small beside them, and takes most of the row. Only a total of exactly 0 needs care."""
    kept = weights * mask
    return kept / (kept.sum(dim=-1, keepdim=True) + 1e-8)


@variant("a small number in the divisor", fails=("little left",))
def a_small_number_in_the_divisor_2(weights, mask):
    """As a lower bound."""
    kept = weights * mask
    return kept / kept.sum(dim=-1, keepdim=True).clamp(min=1e-6)


@misconception("0/0 in an empty row", fails=("nothing allowed",))
def n_0_0_in_an_empty_row(weights, mask):
    """A row that may look at nothing has the total 0, and 0/0 is NaN. It should be all zeros."""
    kept = weights * mask
    return kept / kept.sum(dim=-1, keepdim=True)


@misconception("mask upside down", fails=REST)
def mask_upside_down(weights, mask):
    """You kept what is forbidden. The mask is True where a query *may* attend."""
    kept = weights * ~mask
    return (kept / kept.sum(dim=-1, keepdim=True)).nan_to_num(0.0)


# ------------------------------------------------------------------------------------------------ right in other styles


@alternative("back to scores")
def back_to_scores(weights, mask):
    """The logarithm undoes the softmax, up to a number that softmax does not notice."""
    return weights.log().masked_fill(~mask, float("-inf")).softmax(dim=-1).nan_to_num(0.0)


@alternative("row by row")
def row_by_row(weights, mask):
    """A loop over the rows."""
    flat, allowed = weights.reshape(-1, weights.shape[-1]), mask.reshape(-1, mask.shape[-1])
    rows = []
    for row, may in zip(flat, allowed, strict=True):
        kept = torch.where(may, row, torch.zeros_like(row))
        rows.append(kept / kept.sum() if may.any() else kept)
    return torch.stack(rows).view(weights.shape)


@alternative("in float64, NaN replaced")
def in_float64_nan_replaced(weights, mask):
    """Divides first and mends the empty rows afterwards."""
    kept = weights.double() * mask
    return torch.nan_to_num(kept / torch.einsum("...m->...", kept)[..., None], nan=0.0)
