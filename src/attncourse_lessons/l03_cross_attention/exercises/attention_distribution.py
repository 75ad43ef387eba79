"""attention_distribution: Turn scores into weights that sum to one over the source positions that are really there."""

import torch

from attncourse import attention
from lessonkit.exercises.exercise import Exercise
from lessonkit.exercises.judge import expected_zero, explain_worst, row_sums
from lessonkit.exercises.observe import apart, require_variation
from lessonkit.exercises.way_back import explain_way_back, way_back

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
        "Which axis runs over the source positions? Along that one a row must sum to one. torch's softmax takes each "
        "row's largest score away before it takes exponentials; if you write your own, do so too.",
        "What must the score of a padded position be, for softmax to give it exactly 0? Set it *before* the softmax: "
        "afterwards, no token gets what the padding had, and high padding scores have left the tokens nothing.",
        "In a row of padding alone every score is −∞, and softmax divides 0 by 0. Let softmax run, then put zeros "
        "wherever the mask is False. (On the way back, filling the padded scores keeps the NaN from them; adding −∞ "
        "does not.)",
    ),
)
aspect, slip, misconception, variant, alternative = exercise.decorators()


# ----------------------------------------------------------------------------------------------------- what is observed


@aspect("weights", points=1, hint=1, explain=row_sums)
def weights(answer, draw):
    """the weights of each target position sum to one over the source"""
    batch, n_target, n_source = draw.sizes(3, 2, 7)
    return answer(draw.normal(batch, n_target, n_source), torch.ones(batch, 1, n_source, dtype=torch.bool))


@aspect("padding", points=1, hint=2, explain=expected_zero)
def padding(answer, draw):
    """nothing goes to padded positions"""
    batch, n_target, n_source = draw.sizes(3, 2, 7)
    mask = draw.padding_mask(batch, n_source)[:, None]
    return require_variation(answer(draw.normal(batch, n_target, n_source), mask)) * ~mask


@aspect("beside padding", points=1, hint=2, explain=row_sums)
def beside_padding(answer, draw):
    """the tokens' weights sum to one, wherever the padding is"""
    batch, n_target, n_source = draw.sizes(3, 3, 7)
    mask = draw.padding_mask(batch, n_source)[:, None]
    mask[0, 0, (n_source - 1) // 2] = False  # a hole between two tokens
    return answer(draw.normal(batch, n_target, n_source), mask) * mask


def _one_empty(draw, batch, n_source):
    """A mask with one sentence of nothing but padding, never the first, among full ones."""
    mask = torch.ones(batch, 1, n_source, dtype=torch.bool)
    mask[1 + draw.integers(batch - 1, 1)] = False
    return mask


@aspect("nothing but padding", points=1, hint=3, explain=row_sums)
def nothing_but_padding(answer, draw):
    """all weights are 0 in a row of nothing but padding, and only there"""
    batch, n_target, n_source = draw.sizes(3, 2, 7)
    return answer(draw.normal(batch, n_target, n_source), _one_empty(draw, batch, n_source))


@aspect(
    "large scores",
    points=1,
    hint=1,
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
    return apart(require_variation(answer(scores + shift, mask)), answer(scores, mask))


@aspect("high scores in the padding", points=1, hint=2, explain=row_sums)
def high_scores_in_the_padding(answer, draw):
    """the tokens' weights sum to one, however far the padding's scores lie above theirs"""
    batch, n_target, n_source = draw.sizes(3, 2, 7)
    mask = draw.padding_mask(batch, n_source)[:, None]
    scores = draw.normal(batch, n_target, n_source)
    return answer(torch.where(mask, scores, 300 * scores.abs() + 100), mask) * mask


@aspect("gradient", points=1, hint=3, explain=explain_way_back("scores"))
def gradient(answer, draw):
    """the scores can be learned, and a sentence of nothing but padding does no harm"""
    batch, n_target, n_source = draw.sizes(3, 3, 7)
    scores = draw.normal(batch, n_target, n_source).requires_grad_()
    mask = _one_empty(draw, batch, n_source)
    return way_back(answer(scores, mask), attention.masked_softmax(scores, mask), [scores], draw)


# -------------------------------------------------------------------------------------- one slip away from the solution

HIGH = ("high scores in the padding",)
VALUES = ("weights", "padding", "beside padding", "nothing but padding", "large scores", *HIGH)
EVERYTHING = (*VALUES, "gradient")
FILLED = ("padding", "beside padding", "nothing but padding", "large scores", *HIGH)
UPSIDE_DOWN = ("weights", "padding", "beside padding", "nothing but padding", *HIGH)
NOT_PADDING = ("weights", "beside padding", "nothing but padding", "large scores", *HIGH)
UNMASKED = ("padding", "beside padding", "nothing but padding", *HIGH)
MASKED, ZEROED = ".masked_fill(~mask, -torch.inf)", ".masked_fill(~mask, 0.0)"

slip("normalises over the targets", VALUES,
     {"dim=-1": "dim=-2", ZEROED: ""},
     {"dim=-1": "dim=-2", ZEROED: "", MASKED: ""}, words="""
    Your weights sum to one down each source column, as if each source token distributed its weight over the targets.
    It is each target position that distributes its weight over the source: normalise along the last axis.""")
slip("normalises over the batch", NOT_PADDING, {"dim=-1": "dim=0"}, words="""
    `dim=0` is the batch: your weights sum to one over the sentences, so what one sentence gets depends on which others
    came along. The source positions are the last axis.""")
slip("masks after the softmax", ("beside padding", *HIGH), {MASKED: ""}, words="""
    The rows no longer sum to one: what was taken from the padding was not given back to the tokens. Mask the scores
    first: then softmax distributes a total weight of one over the tokens that are left.""")
slip("ignores the mask", UNMASKED, {MASKED: "", ZEROED: ""}, words="""
    Padding got weight. A padded position holds no token, yet its score is as good a number as any, so softmax cannot
    know: only the mask can say where a token is.""")
slip("a score of 0 for padding", FILLED,
     {"-torch.inf": "0.0", ZEROED: ""},
     {f"scores{MASKED}": "(scores * mask)", ZEROED: ""}, words="""
    A score of 0 is not "no attention": softmax turns it into exp(0) = 1, more than any negative score gets. The score
    that becomes a weight of exactly 0 is −∞.""")
slip("a score of +∞ for padding", FILLED, {"-torch.inf": "torch.inf", ZEROED: ""}, words="""
    The sign is wrong: softmax favours large scores, and +∞ is the largest, so ∞/∞ came out where there is padding. The
    score that earns nothing is −∞.""")
slip("0 · ∞", EVERYTHING, {f"scores{MASKED}": "(scores + (1 - mask.float()) * -torch.inf)", ZEROED: ""}, words="""
    The mask, as 0 and 1, was multiplied by −∞ and then added. Where there is a token that is 0 · −∞, and floating-point
    arithmetic calls it NaN, not 0. Choose between the score and −∞ by a condition instead: `masked_fill` or
    `torch.where`.""")
slip("mask upside down", VALUES, {"~mask, -torch.inf": "mask, -torch.inf", ZEROED: ""}, words="""
    The tokens were masked and the padding was kept. In this course True means "may attend", as it does for torch's
    `scaled_dot_product_attention`: fill where the mask is False, `~mask`.""")
slip("NaN for a row of padding", ("nothing but padding",), {ZEROED: ""}, words="""
    In a row with nothing but padding every exponential is 0, and so is their sum: 0/0. One such row makes the whole
    loss NaN. Put zeros there after the softmax.""")
slip("−1e9 instead of −∞", ("nothing but padding",), {"-torch.inf": "-1e9", ZEROED: ""}, words="""
    With −1e9 a row of nothing but padding becomes uniform: all its scores are equally bad, and softmax only compares.
    (In float16 −1e9 does not even exist.) Use −∞ and put zeros where the mask is False.""")
slip("the mask read as a length", ("beside padding",),
     {MASKED: ".masked_fill(~(torch.arange(mask.shape[-1]) < mask.sum(dim=-1, keepdim=True)), -torch.inf)",
      ZEROED: ".masked_fill(~mask.any(dim=-1, keepdim=True), 0.0)"}, words="""
    The mask was read as a length: so many positions from the front. That is right only where all padding stands behind.
    The mask says *which* positions hold tokens, not only how many there are.""")
slip("one empty sentence, and all are zeros", ("nothing but padding", "gradient"),
     {ZEROED: f"{ZEROED} * mask.any(dim=-1).all()"}, words="""
    As soon as one sentence has nothing to attend to, the *whole batch* gets zeros, and the other sentences lose their
    weights. For which rows does the contract ask for zeros?""")
slip("log_softmax", VALUES, {".softmax": ".log_softmax", ZEROED: ""}, words="""
    These are the logarithms of the weights: none is above 0, and padding holds −∞. A loss likes logarithms; an average
    needs the weights themselves.""")
slip("masked after the exponentials", HIGH,
     {MASKED: "", f"return weights{ZEROED}":
      "weights = weights * mask\nreturn weights / (weights.sum(dim=-1, keepdim=True) + 1e-9)"},
     {MASKED: "", f"return weights{ZEROED}":
      "weights = weights * mask\nreturn weights / weights.sum(dim=-1, keepdim=True).clamp(min=1e-9)"},
     {f"scores{MASKED}.softmax(dim=-1)": "(scores - scores.amax(dim=-1, keepdim=True)).exp() * mask",
      f"return weights{ZEROED}": "return weights / weights.sum(dim=-1, keepdim=True).clamp(min=1e-9)"},
     {f"scores{MASKED}.softmax(dim=-1)": "(scores - scores.amax(dim=-1, keepdim=True)).exp() * mask",
      f"return weights{ZEROED}": "return weights / (weights.sum(dim=-1, keepdim=True) + 1e-9)"}, words="""
    The padding was taken out after the softmax, or after the exponentials, and what was left was divided by its sum. On
    paper that is the same. In float32 it is not: the largest score, which softmax takes away, may be one of the
    padding's, and if it is far above the tokens', all *their* exponentials are rounded to 0. Mask the scores first.""")
slip("cut off from the gradient", ("gradient",), {"scores": "scores.detach()"}, words="""
    The numbers are right, but the gradient does not get through: `.detach()`, `.data`, numpy and `torch.no_grad()`
    forget where numbers came from, so the scores can never learn. Stay with tensor operations.""")


# ------------------------------------------------------------------------------------------------------ further from it


@misconception("NaN on the way back", fails=("gradient",))
def nan_on_the_way_back(scores, mask):
    """The output is right, but the gradient is NaN. In a row of padding the softmax made NaN, and that was replaced
    afterwards; on the way back the softmax multiplies the 0 that arrives there by its own NaN. Let the last thing
    before the softmax be a filling of padded *scores*, which lets no gradient back to them, or give the softmax numbers
    that it can divide."""
    bias = torch.zeros(mask.shape).masked_fill(~mask, -torch.inf)
    return (scores + bias).softmax(dim=-1).masked_fill(~mask, 0.0)


@variant("normalises over the targets", fails=NOT_PADDING)
def over_the_targets_with_the_nan_mended(scores, mask):
    """With the NaN mended."""
    return scores.masked_fill(~mask, -torch.inf).softmax(dim=-2).nan_to_num()


@variant("a score of 0 for padding", fails=("beside padding", "large scores", *HIGH))
def a_score_of_0_and_zeros_afterwards(scores, mask):
    """With zeros for the padding afterwards."""
    return (scores * mask).softmax(dim=-1) * mask


@variant("a score of 0 for padding", fails=("padding", "beside padding", "large scores", *HIGH))
def a_score_of_0_and_zeros_in_empty_rows(scores, mask):
    """With zeros where a row holds nothing but padding."""
    return (scores * mask).softmax(dim=-1) * mask.any(dim=-1, keepdim=True)


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


@variant(
    "NaN for a row of padding", "masked after the exponentials", fails=("nothing but padding", *HIGH, "gradient")
)
def masked_after_the_softmax_and_divided(scores, mask):
    """By masking after the softmax and dividing by the sum."""
    weights = scores.softmax(dim=-1) * mask
    return weights / weights.sum(dim=-1, keepdim=True)


@misconception(
    "exponentials out of range", fails=("nothing but padding", "large scores", *HIGH, "gradient")
)
def exponentials_out_of_range(scores, mask):
    """exp(89) is more than float32 can hold and exp(−104) is 0, and ∞/∞ and 0/0 are NaN. Softmax does not change when
    the same number is taken from every score of a row: take away each row's own maximum first (the largest of all rows
    will not do), or let `softmax` do it for you."""
    exponentials = scores.exp() * mask
    return exponentials / exponentials.sum(dim=-1, keepdim=True)


@variant("exponentials out of range", fails=("nothing but padding", "large scores", *HIGH, "gradient"))
def one_maximum_for_all_rows(scores, mask):
    """One maximum for all rows."""
    exponentials = (scores - scores.max()).exp() * mask
    return exponentials / exponentials.sum(dim=-1, keepdim=True)


@variant("exponentials out of range", fails=("large scores", *HIGH))
def one_maximum_and_the_division_guarded(scores, mask):
    """One maximum for all rows, and the division guarded."""
    exponentials = (scores - scores.max()).exp() * mask
    return exponentials / exponentials.sum(dim=-1, keepdim=True).clamp(min=1e-9)


@variant("exponentials out of range", fails=("large scores", *HIGH))
def out_of_range_and_the_division_guarded(scores, mask):
    """With the division guarded."""
    exponentials = scores.exp() * mask
    return exponentials / (exponentials.sum(dim=-1, keepdim=True) + 1e-9)


@variant("exponentials out of range", fails=("large scores", *HIGH, "gradient"))
def out_of_range_with_the_nan_mended(scores, mask):
    """With the NaN mended, which mends no gradient."""
    exponentials = scores.exp() * mask
    return (exponentials / exponentials.sum(dim=-1, keepdim=True)).nan_to_num()


@variant("exponentials out of range", fails=("large scores",))
def out_of_range_and_chosen_by_a_condition(scores, mask):
    """With the padding's exponentials left out by a condition, and no 0 in the divisor."""
    exponentials = torch.where(mask, scores.exp(), 0.0)
    total = exponentials.sum(dim=-1, keepdim=True)
    return exponentials / torch.where(total == 0, 1.0, total)


@variant("exponentials out of range", "ignores the mask", fails=(*UNMASKED, "large scores"))
def out_of_range_and_no_mask(scores, mask):
    """Both."""
    exponentials = scores.exp()
    return exponentials / exponentials.sum(dim=-1, keepdim=True)


@misconception("no exponentials", fails=(*NOT_PADDING, "gradient"))
def no_exponentials(scores, mask):
    """The scores themselves were divided by their sum. Scores may be negative, and may add up to 0, so such weights
    can be negative or enormous. Softmax gives weights in proportion to the *exponentials*, which are positive."""
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

# ------------------------------------------------------------------------------------------------ one thing changed

@exercise.variation(
    "True where there is padding",
    asks="The mask is the other way round: True where there is padding, False where there is a token.",
    fails=UPSIDE_DOWN,
    reference=lambda scores, mask: attention.masked_softmax(scores, ~mask),
    contract={"True where there is a token": "True where there is padding"},
    given=lambda scores, mask: (scores, ~mask),
    hints=(*exercise.hints[:2], exercise.hints[2].replace("the mask is False", "the mask is True")),
)
def true_where_there_is_padding(scores, mask):
    weights = scores.masked_fill(mask, -torch.inf).softmax(dim=-1)
    return weights.masked_fill(mask, 0.0)  # a row of −∞ alone came out of the softmax as NaN


@exercise.variation(
    "equal weights for padding",
    asks="In a row with nothing to attend to, all n_source positions get the same weight, 1 / n_source.",
    fails=("nothing but padding",),
    reference=lambda scores, mask: (
        attention.masked_softmax(scores, mask) + ~mask.any(-1, keepdim=True) / mask.shape[-1]
    ),
    contract={"with nothing to attend to is all zeros": "with nothing to attend to is 1/n_source throughout"},
    meanings={"nothing but padding": "equal weights in a row of nothing but padding, and only there"},
    hints=(*exercise.hints[:2],
           "In a row of padding alone every score is −∞, and softmax divides 0 by 0. What does it make of a row in "
           "which all scores are equal, and finite? Give it such scores there: then no NaN arises on the way back."),
    without=("−1e9 instead of −∞", "masks after the softmax"),
)
def equal_weights_for_padding(scores, mask):
    nobody = ~mask.any(dim=-1, keepdim=True)                       # (batch, 1, 1)
    scores = scores.masked_fill(~mask, -torch.inf)
    return scores.masked_fill(nobody, 0.0).softmax(dim=-1)


equal_weights_for_padding.slip("NaN for a row of padding", ("nothing but padding",),
    {".masked_fill(nobody, 0.0)": ""}, words="""
    In a row with nothing but padding every exponential is 0, and so is their sum: 0/0. One such row makes the whole
    loss NaN. Here it must have equal weights.""")
equal_weights_for_padding.slip("every padded score is 0", ("padding", "beside padding", "large scores", *HIGH),
    {"nobody, 0.0": "~mask, 0.0"}, words="""
    All padding got a score of 0, which is a weight of exp(0) beside the tokens'. Equal scores are for the rows in which
    there is nothing else.""")
