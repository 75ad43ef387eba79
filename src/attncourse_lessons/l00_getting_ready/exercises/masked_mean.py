"""masked_mean: Average each sequence's vectors over its real positions."""

import torch

from attncourse import attention
from lessonkit.exercises.exercise import Exercise
from lessonkit.exercises.judge import explain_worst
from lessonkit.exercises.observe import apart, require_variation
from lessonkit.exercises.way_back import explain_way_back, way_back


def solution(values, mask):
    total = values.masked_fill(~mask[..., None], 0.0).sum(dim=1)     # (batch, d)
    count = mask.sum(dim=1, keepdim=True)                            # (batch, 1)
    return total / count.clamp(min=1)                                # (batch, d)


exercise = Exercise(
    "masked_mean",
    reference=attention.masked_mean,
    solution=solution,
    returns=("mean",),
    forbidden=("attncourse.attention", "torch.masked.mean", "torch.nanmean", "torch.Tensor.nanmean"),
    difficulty=2,
    minutes=15,
    hints=(
        "Two things go into a mean: a sum over the real positions, and how many there are. Write both shapes down: "
        "values are (batch, n, d), the mask (batch, n); which axis must the mask gain, and which must the count keep?",
        "A product does not remove ∞, because 0 · ∞ is NaN. *Choose* between the value and 0 by the mask: "
        "`masked_fill`, with `~mask[..., None]`, or `torch.where`.",
        "Where nothing is real the sum is 0 already. What may you divide it by, so that 0/0 never happens and no "
        "other row's mean changes? See `clamp(min=…)`. (A NaN that is repaired afterwards still has a gradient of "
        "NaN.)",
    ),
)
aspect, slip, misconception, variant, alternative = exercise.decorators()


def _padded(draw):
    """Values (batch, n, d) with zeros in the padding, and the mask (batch, n) that says where it is."""
    batch, n, d = draw.sizes(3, 3, 8)
    mask = draw.padding_mask(batch, n)
    return torch.where(mask[..., None], draw.normal(batch, n, d), 0.0), mask


# ----------------------------------------------------------------------------------------------------- what is observed


@aspect("nothing to leave out", points=1, hint=1)
def nothing_to_leave_out(answer, draw):
    """where every position is real, the plain mean over them"""
    batch, n, d = draw.sizes(3, 3, 8)
    return answer(draw.normal(batch, n, d), torch.ones(batch, n, dtype=torch.bool))


@aspect("short sequences", points=2, hint=1)
def short_sequences(answer, draw):
    """a short sequence has the mean that it has alone"""
    return answer(*_padded(draw))


@aspect(
    "what stands in the padding",
    points=1,
    hint=2,
    explain=explain_worst("mean {place} changes by {size} when only the padding changes"),
)
def what_stands_in_the_padding(answer, draw):
    """changes nothing"""
    values, mask = _padded(draw)
    other = values + 5 * draw.normal(*values.shape) * ~mask[..., None]
    return apart(require_variation(answer(values, mask)), answer(other, mask))


@aspect("∞ in the padding", points=1, hint=2)
def in_the_padding(answer, draw):
    """changes nothing either, and the mask may have holes"""
    values, mask = _padded(draw)
    mask[0, (mask.shape[1] - 1) // 2] = False  # real, not real, and real again
    return answer(values.masked_fill(~mask[..., None], torch.inf), mask)


def _one_empty(draw, batch, n):
    """A mask with one sequence of nothing but padding, never the first, among full ones."""
    mask = torch.ones(batch, n, dtype=torch.bool)
    mask[1 + draw.integers(batch - 1, 1)] = False
    return mask


@aspect("nothing but padding", points=1, hint=3)
def nothing_but_padding(answer, draw):
    """zeros for an empty sequence, and only there"""
    batch, n, d = draw.sizes(3, 3, 8)
    return answer(draw.normal(batch, n, d), _one_empty(draw, batch, n))


@aspect("gradient", points=1, hint=3, explain=explain_way_back("values"))
def gradient(answer, draw):
    """the values can be learned, and a sequence of nothing but padding does no harm"""
    batch, n, d = draw.sizes(3, 3, 8)
    values = draw.normal(batch, n, d).requires_grad_()
    mask = _one_empty(draw, batch, n)
    return way_back(answer(values, mask), attention.masked_mean(values, mask), [values], draw)


# -------------------------------------------------------------------------------------- one slip away from the solution

VALUES = (
    "nothing to leave out",
    "short sequences",
    "what stands in the padding",
    "∞ in the padding",
    "nothing but padding",
)
ALL = (*VALUES, "gradient")
LENGTH = ("short sequences", "∞ in the padding")
PADDING = ("what stands in the padding", "∞ in the padding", "nothing but padding")
LENGTH_AND_PADDING = ("short sequences", "what stands in the padding", "∞ in the padding")
DIVISOR = ("nothing to leave out", "short sequences", "∞ in the padding", "nothing but padding")
CHOSEN, PRODUCT = "values.masked_fill(~mask[..., None], 0.0)", "(values * mask[..., None])"
PADS, TOKENS = "~mask[..., None]", "mask[..., None]"
COUNT, GUARDED = "mask.sum(dim=1, keepdim=True)", "count.clamp(min=1)"
SOFTMAX = "(values * mask.float().softmax(dim=1)[..., None])"

slip("divided by the padded length", LENGTH,
     {GUARDED: "values.shape[1]"},
     {".sum(dim=1)": ".mean(dim=1)", f" / {GUARDED}": ""}, words="""
    The sum was divided by n, the width of the rectangle, which is the length of the longest sequence in the batch. A
    short sequence's mean is dragged towards zero, and the longer its neighbours are, the further. Divide each sum by
    how many positions of that row are real.""")
slip("pads kept", ("short sequences", *PADDING), {CHOSEN: "values", GUARDED: "values.shape[1]"}, words="""
    This is the mean of everything that stands in the rectangle, padding and all: the mask was never asked. How many
    positions does a row really have, and which?""")
slip("the padding is in the sum", PADDING, {CHOSEN: "values"}, words="""
    The count is right and the sum is not: what stands in the padding was added. The padding holds zeros only if
    somebody put them there, and after one layer of a network it no longer does.""")
slip("multiplied by the mask", ("∞ in the padding",),
     {CHOSEN: PRODUCT},
     {f"{CHOSEN}.sum(dim=1)": "(mask[:, None].float() @ values)[:, 0]"},  # as a matrix product
     words="""
    Multiplying by the mask makes 0 of every number in the padding, except of ∞ and NaN: 0 · ∞ is NaN. (Such things do
    stand there: scores set to −∞, memory that nobody wrote to.) Do not multiply what is not there; choose between it
    and 0 by a condition.""")
slip("0/0 where nobody is there", ("nothing but padding",), {GUARDED: "count"}, words="""
    A row of padding alone has the sum 0 and the count 0, and 0/0 is NaN, which spreads to everything computed from it.
    See to it that the divisor is never 0, without changing the others.""")
slip("mask upside down", VALUES,
     {PADS: TOKENS, "mask.sum(": "(~mask).sum(", GUARDED: "count"}, words="""
    The padding was averaged and the tokens were left out. In this course True means "this position counts".""")
slip("zeros for those who are there", VALUES,
     {PADS: TOKENS},
     {PADS: TOKENS, "mask.sum(": "(~mask).sum("},  # and counted upside down
     words="""
    Where every position is real your mean is 0. Either the result was made and never filled, or the positions that are
    real were left out: in this course True means "this position counts", and `masked_fill` fills where *its* mask is
    True.""")
slip("averaged over the batch", VALUES, {".sum(dim=1)": ".sum(dim=0)", COUNT: "mask.sum(dim=0)[:, None]"}, words="""
    The axis that has gone is the batch: one mean for each position, over different sequences. Each sequence needs a
    mean of its own, over its positions. Which axis of (batch, n, d) must go?""")
slip("averaged over the features", VALUES, {".sum(dim=1)": ".mean(dim=-1)", f" / {GUARDED}": ""}, words="""
    The axis that has gone is d: each position's features were averaged with each other. The mean keeps the features and
    runs over the positions. Which axis of (batch, n, d) must go?""")
slip("divided by the whole batch's count", DIVISOR, {COUNT: "mask.sum()"}, words="""
    `mask.sum()` without an axis counts the real positions of the whole batch. Each sequence is divided by its own
    count: along which axis of (batch, n) is that a sum?""")
slip("a sum, not a mean", DIVISOR, {f" / {GUARDED}": ""}, words="""
    The positions were added up and not divided by how many there are: a long sequence gets a large result, whatever
    stands in it.""")
slip("one more in the count", DIVISOR, {GUARDED: "(count + 1)"}, words="""
    Adding 1 to the count keeps 0 from being divided by 0, and makes everybody else's mean too small: four values are
    divided by five. Guard the divisor so that only a count of 0 is changed.""")
slip("an axis of length one is left", ("nothing to leave out", "short sequences", *PADDING),
     {".sum(dim=1)": ".sum(dim=1, keepdim=True)", COUNT: "mask.sum(dim=1)[:, None, None]"}, words="""
    The axis of the positions is still there, with length one. Keeping it helps in a division; the result is (batch, d)
    and has it no longer.""")
slip("the count lost its axis", ALL, {", keepdim=True": "", GUARDED: "count"}, {CHOSEN: PRODUCT, ", keepdim=True": ""},
     words="""
    The counts are (batch,), and torch lines shapes up from the right: next to (batch, d) it takes them for one row of d
    numbers. Here the sizes differ and you are told; were they equal, you would get wrong numbers and no message. Keep
    the axis, with length one.""")
slip("the mask lacks an axis", ALL, {CHOSEN: "(values * mask)", GUARDED: "count"}, {"[..., None]": ""}, words="""
    The mask is (batch, n) and the values are (batch, n, d). torch lines shapes up from the right, so it would pair n
    with d. Give the mask an axis of length one at its end, and it stretches over the features.""")
slip("NaN on the way back", ("gradient",),
     {CHOSEN: "(values.nan_to_num(posinf=0.0) * mask[..., None])",
      f"total / {GUARDED}": "(total / count).nan_to_num()"},
     {CHOSEN: "(values.nan_to_num(posinf=0.0) * mask[..., None])", f"total / {GUARDED}":
      "torch.where(count > 0, total / count, 0.0)"}, words="""
    The output is right, but the gradient is NaN. In a sequence of padding 0/0 came out and was replaced afterwards; on
    the way back the division multiplies the 0 that arrives there by 1/0, and 0 · ∞ is NaN. See to it that the divisor
    is never 0 in the first place.""")
slip("the mask read as a length", ("∞ in the padding",),
     {PADS: "~(torch.arange(values.shape[1]) < mask.sum(dim=1)[:, None])[..., None]"},
     {PADS: "~mask.cumprod(dim=1).bool()[..., None]", COUNT: "mask.cumprod(dim=1).sum(dim=1, keepdim=True)"},
     words="""
    The mask was read as a length, as if the real positions of a row stood together at its beginning. The mask says
    *which* positions are real, and there may be a hole between two of them, such as a product that a customer has not
    rated.""")
slip("the features counted, too", DIVISOR, {GUARDED: f"({GUARDED} * values.shape[-1])"}, words="""
    The sum was divided by how many *numbers* are real, which is d for each position. But every feature has a mean of
    its own, over the positions. How many numbers are added up for one feature?""")
slip("divided by the root of the count", DIVISOR, {GUARDED: f"{GUARDED}.sqrt()"}, words="""
    The sum was divided by the square root of the count. Four equal vectors then come out twice as large as they are.
    What should the mean of equal vectors be?""")
slip("softmax of the mask", LENGTH_AND_PADDING,
     {CHOSEN: SOFTMAX, f"total / {GUARDED}": "total * (count > 0)"}, words="""
    The mask went through a softmax, to make weights that sum to one. They do, but the softmax takes False for a score
    of 0 and makes exp(0) = 1 of it, more than a third of what a real position gets. Which weight should the padding
    have?""")
slip("softmax of the mask", (*LENGTH_AND_PADDING, "nothing but padding"),
     {CHOSEN: SOFTMAX, f" / {GUARDED}": ""})  # and a mean of the padding where nobody is there
slip("one empty sequence, and all are zeros", ("nothing but padding", "gradient"),
     {CHOSEN: f"({CHOSEN} * mask.any(dim=1).all())"}, words="""
    As soon as one sequence has no real position, the *whole batch* gets zeros, and the other sequences lose their
    means. For which rows does the contract ask for zeros?""")
slip("cut off from the gradient", ("gradient",), {"values.masked_fill": "values.detach().masked_fill"}, words="""
    The numbers are right, but the gradient does not get through: `.detach()`, `.data`, numpy, `.tolist()` and
    `torch.tensor(...)` hand over bare numbers and forget where they came from, so nothing before them can learn. Stay
    with tensor operations.""")


# ------------------------------------------------------------------------------------------------------ further from it


@misconception("one mean for the whole batch", fails=VALUES)
def one_mean_for_the_whole_batch(values, mask):
    """`values[mask]` picks the real positions of all sequences and puts them into one long list, so the batch is gone
    and the mean is that of them all. Each sequence needs a mean of its own."""
    return values[mask].mean(dim=0)


@variant("0/0 where nobody is there", fails=("nothing but padding",))
def zero_by_zero_in_a_loop(values, mask):
    """A loop."""
    return torch.stack([row[real].mean(dim=0) for row, real in zip(values, mask, strict=True)])


@variant("mask upside down", fails=ALL)
def upside_down_by_a_product(values, mask):
    """By a product."""
    return (values * ~mask[..., None]).sum(dim=1) / (~mask).sum(dim=1, keepdim=True)


@variant("zeros for those who are there", fails=ALL)
def never_filled(values, mask):
    """The result was made and never filled."""
    mean = torch.zeros(values.shape[0], values.shape[-1])
    return mean


@variant("zeros for those who are there", fails=ALL)
def the_padding_filled_and_nobody_there(values, mask):
    """And 0/0 where nobody is there."""
    return values.masked_fill(mask[..., None], 0.0).sum(dim=1) / mask.sum(dim=1, keepdim=True)


@variant("the padding is in the sum", fails=(*PADDING, "gradient"))
def the_padding_in_the_sum_and_nobody_there(values, mask):
    """And 0/0 where nobody is there."""
    return values.sum(dim=1) / mask.sum(dim=1, keepdim=True)


@variant("multiplied by the mask", fails=("∞ in the padding", "gradient"))
def multiplied_and_mended(values, mask):
    """Makes zeros of what was harmed, which mends no gradient."""
    return ((values * mask[..., None]).sum(dim=1) / mask.sum(dim=1, keepdim=True)).nan_to_num()


@variant(
    "0/0 where nobody is there", "multiplied by the mask",
    fails=("∞ in the padding", "nothing but padding", "gradient"),
)  # fmt: skip
def as_most_people_write_it_first(values, mask):
    """Both, as most people write it first."""
    return (values * mask[..., None]).sum(dim=1) / mask.sum(dim=1, keepdim=True)


@variant(
    "divided by the padded length", "multiplied by the mask", fails=LENGTH
)
def mean_of_the_product(values, mask):
    """By a product."""
    return (values * mask[..., None]).mean(dim=1)


# ------------------------------------------------------------------------------------------------ right in other styles


@alternative("where and keepdim")
def where_and_keepdim(values, mask):
    """Chooses with `torch.where`; the count from float sums."""
    kept = torch.where(mask[..., None], values, torch.zeros_like(values))
    count = mask.float().sum(dim=1, keepdim=True)
    return kept.sum(dim=-2) / torch.maximum(count, torch.ones(()))


@alternative("einsum with weights")
def einsum_with_weights(values, mask):
    """Equal weights that sum to one, then a weighted average: attention without scores."""
    weights = mask.double() / mask.sum(dim=-1, keepdim=True).clamp(min=1)
    return torch.einsum("bn,bnd->bd", weights, values.double().nan_to_num())


@alternative("one sequence at a time")
def one_sequence_at_a_time(values, mask):
    """Picks the real positions of each row, if there are any."""
    means = []
    for row, real in zip(values, mask, strict=True):
        means.append(row[real].mean(dim=0) if real.any() else torch.zeros(row.shape[-1]))
    return torch.stack(means)


@alternative("NaN mended at the end")
def nan_mended_at_the_end(values, mask):
    """Lets 0/0 happen and puts zeros there."""
    total = values.masked_fill(~mask.unsqueeze(2), 0).sum(1)
    return (total / mask.sum(1).unsqueeze(1)).nan_to_num(0.0)


@alternative("float64, not contiguous")
def float64_not_contiguous(values, mask):
    """Features first, double precision, a transposed view returned."""
    first = values.double().permute(2, 0, 1).masked_fill(~mask, 0.0)
    return (first.sum(dim=-1) / (mask.sum(dim=-1) + 1e-12)).mT

# ------------------------------------------------------------------------------------------------ one thing changed

@exercise.variation(
    "True where there is padding",
    asks="The mask is the other way round: True where a position is padding, False where it is real.",
    fails=VALUES,
    reference=lambda values, mask: attention.masked_mean(values, ~mask),
    contract={"True where a position is real": "True where a position is padding"},
    given=lambda values, mask: (values, ~mask),
)
def true_where_there_is_padding(values, mask):
    total = values.masked_fill(mask[..., None], 0.0).sum(dim=1)      # (batch, d)
    count = (~mask).sum(dim=1, keepdim=True)                         # (batch, 1)
    return total / count.clamp(min=1)                                # (batch, d)


@exercise.variation(
    "by the root of the count",
    asks="The sum over the real positions is divided by the square root of how many there are, not by their number.",
    fails=DIVISOR,
    reference=lambda values, mask: attention.masked_mean(values, mask) * mask.sum(dim=1, keepdim=True).sqrt(),
    contract={"Average each sequence's vectors over its real positions.":
              "Add each sequence's vectors over its n real positions, and divide the sum by √n."},
    meanings={"nothing to leave out": "where every position is real, the plain sum over √n",
              "short sequences": "a short sequence has what it has alone"},
    without=("divided by the padded length", "pads kept", "averaged over the features", "a sum, not a mean",
             "NaN on the way back", "divided by the root of the count", "softmax of the mask"),
)
def by_the_root_of_the_count(values, mask):
    total = values.masked_fill(~mask[..., None], 0.0).sum(dim=1)     # (batch, d)
    count = mask.sum(dim=1, keepdim=True)                            # (batch, 1)
    return total / count.clamp(min=1).sqrt()                         # (batch, d)


@by_the_root_of_the_count.aspect("gradient", points=1, hint=3, explain=explain_way_back("values"))
def gradient_of_the_root(answer, draw):
    """the values can be learned, and a sequence of nothing but padding does no harm"""
    batch, n, d = draw.sizes(3, 3, 8)
    values = draw.normal(batch, n, d).requires_grad_()
    mask = _one_empty(draw, batch, n)
    return way_back(answer(values, mask), by_the_root_of_the_count.reference(values, mask), [values], draw)
