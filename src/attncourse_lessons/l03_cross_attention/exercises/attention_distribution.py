"""attention_distribution: Turn scores into weights that sum to one over the source positions that are really there."""

import torch

from attncourse import attention
from lessonkit.exercises.exercise import Exercise
from lessonkit.exercises.judge import expected_zero, explain_missing_gradient, explain_worst, row_sums
from lessonkit.exercises.observe import gradients, require_variation

from .common import READY_MADE


def solution(scores, mask):
    weights = scores.masked_fill(~mask, -torch.inf).softmax(dim=-1)
    return weights.masked_fill(~mask, 0.0)  # a row of −∞ alone came out of the softmax as NaN


exercise = Exercise(
    "attention_distribution",
    reference=attention.masked_softmax,
    solution=solution,
    returns=("weights",),
    forbidden=READY_MADE,
    difficulty=2,
    minutes=15,
    hints=(
        "Which axis runs over the source positions? That is the one along which a row must sum to one.",
        "What must the score of a padded position be, for softmax to give it exactly 0? Set it before the softmax.",
        "In a row of padding alone every score is −∞, and softmax divides 0 by 0. Let softmax run, then put zeros "
        "wherever the mask is False.",
    ),
)
aspect, slip, misconception, variant, alternative = exercise.decorators()


# ----------------------------------------------------------------------------------------------------- what is observed


@aspect("weights", points=2, explain=row_sums)
def weights(answer, draw):
    """each target position shares out exactly one over the source"""
    batch, n_target, n_source = draw.sizes(3, 2, 7)
    return answer(draw.normal(batch, n_target, n_source), torch.ones(batch, 1, n_source, dtype=torch.bool))


@aspect("padding", points=1, explain=expected_zero)
def padding(answer, draw):
    """nothing goes to padded positions"""
    batch, n_target, n_source = draw.sizes(3, 2, 7)
    mask = draw.padding_mask(batch, n_source)[:, None]
    return require_variation(answer(draw.normal(batch, n_target, n_source), mask)) * ~mask


@aspect("beside padding", points=1, explain=row_sums)
def beside_padding(answer, draw):
    """the real words share everything"""
    batch, n_target, n_source = draw.sizes(3, 2, 7)
    mask = draw.padding_mask(batch, n_source)[:, None]
    return answer(draw.normal(batch, n_target, n_source), mask) * mask


def _one_empty(draw, batch, n_source):
    """A mask with one sentence of nothing but padding, never the first, among full ones."""
    mask = torch.ones(batch, 1, n_source, dtype=torch.bool)
    mask[1 + draw.integers(batch - 1, 1)] = False
    return mask


@aspect("nothing but padding", points=1, explain=row_sums)
def nothing_but_padding(answer, draw):
    """zeros where there is nobody to attend to, and only there"""
    batch, n_target, n_source = draw.sizes(3, 2, 7)
    return answer(draw.normal(batch, n_target, n_source), _one_empty(draw, batch, n_source))


@aspect(
    "large scores",
    points=1,
    explain=explain_worst(
        "weight {place} changes by {size} when all the scores of its row become 100 larger or 100 smaller"
    ),
)
def large_scores(answer, draw):
    """no overflow: add 100 to a row's scores, or take it away, and nothing changes"""
    batch, n_target, n_source = draw.sizes(3, 2, 7)
    mask = draw.padding_mask(batch, n_source)[:, None]
    scores = (64 * draw.normal(batch, n_target, n_source)).round() / 64  # adding 100 then loses no digits
    shift = 100 * (-1) ** (torch.arange(batch)[:, None, None] + torch.arange(n_target)[:, None])
    return require_variation(answer(scores + shift, mask)) - answer(scores, mask)


@aspect("gradient", points=1, explain=explain_missing_gradient("scores"))
def gradient(answer, draw):
    """the scores can be learned, and a sentence of nothing but padding does no harm"""
    batch, n_target, n_source = draw.sizes(3, 2, 7)
    scores = draw.normal(batch, n_target, n_source).requires_grad_()
    return gradients(answer(scores, _one_empty(draw, batch, n_source)), [scores], draw)


# -------------------------------------------------------------------------------------- one slip away from the solution

EVERYTHING = ("weights", "padding", "beside padding", "nothing but padding", "large scores", "gradient")
FILLED = ("padding", "beside padding", "nothing but padding", "large scores")
UPSIDE_DOWN = ("weights", "padding", "beside padding", "nothing but padding", "gradient")
NOT_PADDING = ("weights", "beside padding", "nothing but padding", "large scores", "gradient")
UNMASKED = ("padding", "beside padding", "nothing but padding", "gradient")
MASKED, ZEROED = ".masked_fill(~mask, -torch.inf)", ".masked_fill(~mask, 0.0)"

slip("normalises over the targets", EVERYTHING,
     {"dim=-1": "dim=-2", ZEROED: ""},
     {"dim=-1": "dim=-2", ZEROED: "", MASKED: ""}, words="""
    Your weights sum to one down each source column, as if source words shared out their attention. It is each target
    position that distributes its attention over the source: normalise along the last axis.""")
slip("normalises over the batch", NOT_PADDING, {"dim=-1": "dim=0"}, words="""
    `dim=0` is the batch: your weights sum to one over the sentences, so what one sentence gets depends on which others
    came along. The source positions are the last axis.""")
slip("masks after the softmax", ("beside padding",), {MASKED: ""}, words="""
    The rows no longer sum to one: what was taken from the padding was not given back to the words. Mask the scores
    first, and let softmax share out the whole among what is left.""")
slip("ignores the mask", UNMASKED, {MASKED: "", ZEROED: ""}, words="""
    Padding got a share. A padded position holds no word, yet its score is as good a number as any, so softmax cannot
    know: only the mask can say who is there.""")
slip("a score of 0 for padding", FILLED, {"-torch.inf": "0.0", ZEROED: ""}, words="""
    A score of 0 is not "no attention": softmax turns it into e⁰ = 1, more than any negative score gets. The score that
    becomes a weight of exactly 0 is −∞.""")
slip("a score of +∞ for padding", FILLED, {"-torch.inf": "torch.inf", ZEROED: ""}, words="""
    The sign is wrong: softmax favours large scores, and +∞ is the largest, so ∞/∞ came out where there is padding. The
    score that earns nothing is −∞.""")
slip("0 · ∞", EVERYTHING, {f"scores{MASKED}": "(scores + (1 - mask.float()) * -torch.inf)", ZEROED: ""}, words="""
    The mask, as 0 and 1, was multiplied by −∞ and then added. Where there is a word that is 0 · −∞, and floating-point
    arithmetic calls it NaN, not 0. Choose between the score and −∞ by a condition instead: `masked_fill` or
    `torch.where`.""")
slip("mask upside down", EVERYTHING, {"~mask, -torch.inf": "mask, -torch.inf", ZEROED: ""}, words="""
    The words were silenced and the padding was heard. In this course True means "may attend", as it does for torch's
    `scaled_dot_product_attention`: fill where the mask is False, `~mask`.""")
slip("NaN for a row of padding", ("nothing but padding",), {ZEROED: ""}, words="""
    In a row with nothing but padding every exponential is 0, and so is their sum: 0/0. One such row makes the whole
    loss NaN. Put zeros there after the softmax.""")
slip("−1e9 instead of −∞", ("nothing but padding",), {"-torch.inf": "-1e9", ZEROED: ""}, words="""
    With −1e9 a row of nothing but padding becomes uniform: all its scores are equally bad, and softmax only compares.
    (In half precision −1e9 does not even exist.) Use −∞ and put zeros where the mask is False.""")
slip("log_softmax", EVERYTHING, {".softmax": ".log_softmax", ZEROED: ""}, words="""
    These are the logarithms of the weights: none is above 0, and padding holds −∞. A loss likes logarithms; an average
    needs the weights themselves.""")
slip("cut off from the gradient", ("gradient",), {"scores": "scores.detach()"}, words="""
    The numbers are right, but the gradient does not get through: `.detach()`, `.data`, numpy and `torch.no_grad()`
    forget where numbers came from, so the scores can never learn. Stay with tensor operations.""")


# ------------------------------------------------------------------------------------------------------ further from it


@variant("normalises over the targets", fails=NOT_PADDING)
def over_the_targets_with_the_nan_mended(scores, mask):
    """With the NaN mended."""
    return scores.masked_fill(~mask, -torch.inf).softmax(dim=-2).nan_to_num()


@variant("a score of 0 for padding", fails=("beside padding", "large scores"))
def a_score_of_0_and_zeros_afterwards(scores, mask):
    """With zeros for the padding afterwards."""
    return (scores * mask).softmax(dim=-1) * mask


@variant("mask upside down", fails=UPSIDE_DOWN)
def upside_down_with_the_nan_mended(scores, mask):
    """With the NaN mended."""
    return scores.masked_fill(mask, -torch.inf).softmax(dim=-1).nan_to_num()


@variant("mask upside down", fails=UPSIDE_DOWN)
def upside_down_with_1e9(scores, mask):
    """With −1e9."""
    return scores.masked_fill(mask, -1e9).softmax(dim=-1)


@variant("mask upside down", fails=UPSIDE_DOWN)
def upside_down_after_the_softmax(scores, mask):
    """After the softmax."""
    return scores.softmax(dim=-1).masked_fill(mask, 0.0)


@variant("NaN for a row of padding", fails=("nothing but padding", "gradient"))
def masked_after_the_softmax_and_divided(scores, mask):
    """By masking after the softmax and dividing by the sum."""
    weights = scores.softmax(dim=-1) * mask
    return weights / weights.sum(dim=-1, keepdim=True)


@misconception(
    "exponentials out of range", fails=("nothing but padding", "large scores", "gradient")
)
def exponentials_out_of_range(scores, mask):
    """exp(89) is more than float32 can hold and exp(−104) is 0, and ∞/∞ and 0/0 are NaN. Softmax does not change when
    the same number is taken from every score of a row: take away each row's own maximum first (the largest of all rows
    will not do), or let `softmax` do it for you."""
    exponentials = scores.exp() * mask
    return exponentials / exponentials.sum(dim=-1, keepdim=True)


@variant("exponentials out of range", fails=("nothing but padding", "large scores", "gradient"))
def one_maximum_for_all_rows(scores, mask):
    """One maximum for all rows."""
    exponentials = (scores - scores.max()).exp() * mask
    return exponentials / exponentials.sum(dim=-1, keepdim=True)


@variant("exponentials out of range", fails=("large scores",))
def one_maximum_and_the_division_guarded(scores, mask):
    """One maximum for all rows, and the division guarded."""
    exponentials = (scores - scores.max()).exp() * mask
    return exponentials / exponentials.sum(dim=-1, keepdim=True).clamp(min=1e-9)


@variant("exponentials out of range", fails=("large scores",))
def out_of_range_and_the_division_guarded(scores, mask):
    """With the division guarded."""
    exponentials = scores.exp() * mask
    return exponentials / (exponentials.sum(dim=-1, keepdim=True) + 1e-9)


@variant("exponentials out of range", fails=("large scores", "gradient"))
def out_of_range_with_the_nan_mended(scores, mask):
    """With the NaN mended, which mends no gradient."""
    exponentials = scores.exp() * mask
    return (exponentials / exponentials.sum(dim=-1, keepdim=True)).nan_to_num()


@variant("exponentials out of range", "ignores the mask", fails=(*UNMASKED, "large scores"))
def out_of_range_and_no_mask(scores, mask):
    """Both."""
    exponentials = scores.exp()
    return exponentials / exponentials.sum(dim=-1, keepdim=True)


@misconception("no exponentials", fails=NOT_PADDING)
def no_exponentials(scores, mask):
    """The scores themselves were divided by their sum. Scores may be negative, and may add up to 0, so such shares can
    be negative or enormous. Softmax shares out in proportion to the *exponentials*, which are positive."""
    kept = scores * mask
    return kept / kept.sum(dim=-1, keepdim=True)


# ------------------------------------------------------------------------------------------------ right in other styles


@alternative("exponentials by hand")
def exponentials_by_hand(scores, mask):
    """Takes the maximum away, and guards the division."""
    scores = torch.where(mask, scores, torch.full_like(scores, -1e30))
    exponentials = (scores - scores.amax(dim=-1, keepdim=True)).exp() * mask
    return exponentials / exponentials.sum(dim=-1, keepdim=True).clamp(min=1e-9)


@alternative("softmax, then zeros for NaN")
def softmax_then_zeros_for_nan(scores, mask):
    """Repairs the empty rows afterwards."""
    return torch.nan_to_num(scores.masked_fill(~mask, float("-inf")).softmax(dim=-1))


@alternative("an additive mask in float64")
def an_additive_mask_in_float64(scores, mask):
    """Adds a number so low that nothing is left of the exponential, in double precision."""
    bias = torch.zeros(mask.shape, dtype=torch.float64).masked_fill_(~mask, -1e30)
    return torch.where(mask, (scores + bias).softmax(dim=-1), 0.0)


@alternative("a loop over the batch")
def a_loop_over_the_batch(scores, mask):
    """Gives each sentence its own softmax over its own words."""
    weights = torch.zeros_like(scores)
    for b in range(scores.shape[0]):
        there = mask[b, 0]
        if there.any():
            weights[b][:, there] = torch.softmax(scores[b][:, there], dim=-1)
    return weights
