"""repair_weights: The weights that there would be if the scores had been masked before the softmax."""

import torch

from lessonkit.exercises.exercise import Exercise
from lessonkit.exercises.judge import expected_zero, row_sums
from lessonkit.exercises.way_back import explain_way_back, way_back

from .common import READY_MADE


def reference(weights, mask):
    """What is left, shared out anew: the same as to mask the scores."""
    allowed = weights * mask
    total = allowed.sum(dim=-1, keepdim=True)
    return torch.where(total > 0, allowed / total.clamp(min=torch.finfo(weights.dtype).tiny), 0.0)


def solution(weights, mask):
    left = weights * mask                                        # (..., n_query, n_key)
    sums = left.sum(dim=-1, keepdim=True)                        # (..., n_query, 1)
    return left / sums.masked_fill(sums == 0, 1.0)               # nothing allowed: 0/1


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
        "A row in which nothing is allowed has the total 0, and 0/0 is NaN. Give the *divisor* another value there, "
        "before you divide: after the division `torch.where` hides the NaN forward, and not in the gradient. A small "
        "number added to every total would change the other rows, too.",
    ),
)
aspect, slip, misconception, variant, alternative = exercise.decorators()


def _shares(draw, *shape):
    """Rows whose first weight, which is always allowed, is as large as any: what is left is never next to nothing."""
    scores = 2 * draw.normal(*shape)
    scores[..., 0] = scores.amax(dim=-1)
    return scores.softmax(dim=-1)


def _some(draw, *shape):
    """True or False, and at least one True and one False in every row."""
    mask = draw.uniform(*shape) < 0.5
    mask[..., 0], mask[..., -1] = True, False
    return mask


# ----------------------------------------------------------------------------------------------------- what is observed


@aspect("shares", points=2, hint=2, explain=row_sums)
def shares(answer, draw):
    """rows that sum to one again, in the old proportions"""
    batch, n, m = draw.sizes(3, 3, 7)
    return answer(_shares(draw, batch, n, m), _some(draw, batch, n, m))


@aspect("little left", points=1, hint=3, explain=row_sums)
def little_left(answer, draw):
    """even where all that is allowed weighed next to nothing"""
    n, m = draw.sizes(2, 4, 7)
    mask = _some(draw, n, m)
    mask[0, :2] = True  # proportions show between two
    return answer(_shares(draw, n, m) * torch.where(mask, 1e-9, 1.0), mask)


@aspect("nothing allowed", points=1, hint=3, explain=expected_zero)
def nothing_allowed(answer, draw):
    """zeros in a row that may attend to nothing, and right rows beside it"""
    n, m = draw.sizes(2, 4, 7)
    mask = _some(draw, n, m)
    mask[1] = False
    return answer(_shares(draw, n, m), mask)


@aspect("gradient", points=1, hint=3, explain=explain_way_back("weights"))
def gradient(answer, draw):
    """a gradient reaches the weights, and is 0 in a row that may attend to nothing"""
    n, m = draw.sizes(2, 4, 7)
    mask = _some(draw, n, m)
    mask[1] = False
    weights = _shares(draw, n, m).requires_grad_()
    return way_back(answer(weights, mask), reference(weights, mask), [weights], draw)


# -------------------------------------------------------------------------------------- one slip away from the solution

REST = ("shares", "little left", "nothing allowed")
RETURNED = "left / sums.masked_fill(sums == 0, 1.0)"

slip("weights set to 0", REST, {RETURNED: "left"}, words="""
    That is the slide's step: forbidden weights are 0 now, but no other weight has grown, so the rows sum to less than
    one.""")

slip("softmax once more", REST,
     {RETURNED: "weights.masked_fill(~mask, -torch.inf).softmax(dim=-1).nan_to_num(0.0)"},
     {RETURNED: "left.softmax(dim=-1)"},  # of the weights set to 0
     {RETURNED: "weights.masked_fill(~mask, -torch.inf).softmax(dim=-1)"},  # without a thought for empty rows
     words="""
    Softmax was taken of something that is a softmax already. Weights are not scores: 0 is not "nothing" to softmax (it
    makes exp(0) of it), and two weights of 0.8 and 0.1 would come out nearly equal. The rows sum to one, but the
    proportions are gone.""")

slip("shared out equally", REST,
     {RETURNED: "left + (1 - sums) * mask / mask.sum(dim=-1, keepdim=True).clamp(min=1)"},
     words="""
    What was taken from the forbidden places was given to the allowed ones in equal parts. The rows sum to one. But
    masking the scores would multiply all allowed weights of a row by the same factor, so that the larger ones gain
    more.""")

slip("along the wrong axis", REST, {"dim=-1": "dim=-2"}, words="""
    The columns sum to one. A row holds the weights of one query, and the rows must sum to one.""")

slip("a small number in the divisor", ("little left",),
     {RETURNED: "left / (sums + 1e-8)"},
     {RETURNED: "left / (sums + 1e-9)"},
     {RETURNED: "left / (sums + 1e-6)"},
     {RETURNED: "left / sums.clamp(min=1e-6)"},  # as a lower bound
     {RETURNED: "left / sums.clamp(min=1e-8)"},
     words="""
    A small number was added to the total, to avoid 0/0. Where the allowed weights are small themselves, this number is
    not small beside them, and takes most of the row. Only a total of exactly 0 needs care.""")

slip("0/0 in an empty row", ("nothing allowed", "gradient"), {RETURNED: "left / sums"}, words="""
    A row that may attend to nothing has the total 0, and 0/0 is NaN. It should be all zeros.""")

slip("an empty row for everybody", ("nothing allowed",),
     {RETURNED: "weights.log().masked_fill(~mask, -1e9).softmax(dim=-1)"},
     {RETURNED: "torch.where(sums > 0, left / sums.masked_fill(sums == 0, 1.0), 1 / weights.shape[-1])"},
     words="""
    A row with nothing allowed was shared out among all that are forbidden. That is what a large negative number in
    place of −∞ does: where all scores are −10⁹ they are equal. It should be all zeros.""")

slip("NaN on the way back", ("gradient",),
     {RETURNED: "(left / sums).nan_to_num(0.0)"},
     {RETURNED: "torch.where(sums > 0, left / sums, 0.0)"},
     {RETURNED: "(left / sums).masked_fill(sums == 0, 0.0)"},
     words="""
    The output is right: 0/0 was replaced after the division. But the backward pass still goes through the division: 0
    times its slope, which is infinite, is NaN, and one NaN spoils every parameter that it reaches. Give the *divisor*
    another value before you divide.""")

slip("cut off from the gradient", ("gradient",),
     {"weights * mask": "weights.detach() * mask"},
     {RETURNED: "left / sums.masked_fill(sums == 0, 1.0).detach()"},
     {RETURNED: "(left / sums.masked_fill(sums == 0, 1.0)).detach()"},
     words="""
    The numbers are right, but the gradient does not get through, or only a part of it: `.detach()`, `.data`, numpy and
    `torch.no_grad()` forget where numbers came from. The total depends on the weights, too.""")

slip("divided by one minus what was lost", ("little left", "gradient"),
     {"sums.masked_fill(sums == 0, 1.0)":
      "(1 - (weights * ~mask).sum(dim=-1, keepdim=True)).masked_fill(~mask.any(dim=-1, keepdim=True), 1.0)"},
     words="""
    The divisor is one minus what was lost. Where a row sums to one that is what is left; but a small difference of two
    large numbers is mostly rounding, and its gradient is a different one. Add up what is left.""")

slip("an empty row as it was", ("nothing allowed",),
     {"return ": "return torch.where(sums > 0, ", "== 0, 1.0)": "== 0, 1.0), weights)"}, words="""
    A row that may attend to nothing came back as it was, with all its weight on what is forbidden. It should be all
    zeros.""")

slip("always causal", REST, {"weights * mask": "weights.tril()"}, words="""
    The mask was not used: whatever it says, the keys after the query were forbidden. `mask` says which keys are
    allowed.""")

slip("mask upside down", REST, {"weights * mask": "weights * ~mask"}, words="""
    You kept what is forbidden. The mask is True where a query *may* attend.""")


# ------------------------------------------------------------------------------------------------------ further from it


@variant("a small number in the divisor", fails=REST)
def a_number_that_is_not_even_small(weights, mask):
    """So much that it shows in every row."""
    left = weights * mask
    return left / (left.sum(dim=-1, keepdim=True) + 1e-3)


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


@alternative("in float64, 1 added to an empty row's total")
def in_float64_1_added_to_an_empty_total(weights, mask):
    """The total counts one more where nothing is allowed."""
    kept = weights.double() * mask
    empty = ~mask.any(dim=-1)
    return kept / (torch.einsum("...m->...", kept) + empty)[..., None]
