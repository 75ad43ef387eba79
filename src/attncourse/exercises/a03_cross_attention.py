"""Assignment 03: a decoder looks at an encoder.

Function bodies below stand in for a learner's: they use torch alone, and the argument names of the contract.
"""

import math

import torch
from torch import nn

from attncourse import attention, recurrent
from attncourse.exercises.answering import AspectFailed, Problem
from attncourse.exercises.core import Exercise
from attncourse.exercises.judge import arrives, nonzero, row_sums, told
from attncourse.exercises.observe import gradients, telling

READY_MADE = (
    "attncourse.attention",
    "attncourse.recurrent",
    "torch.nn.functional.scaled_dot_product_attention",
    "torch.nn.MultiheadAttention",
)

# ---------------------------------------------------------------------------------------------------- attention_scores

attention_scores = Exercise(
    "attention_scores",
    reference=attention.dot_score,
    returns=("scores",),
    forbidden=READY_MADE,
    difficulty=1,
    minutes=8,
    hints=(
        "Write the shapes of the two inputs under each other, then the shape of the result. Which axis has gone?",
        "The axis that has gone was summed over: each score is a dot product. Batched, that is one matrix product.",
        "Matrix products pair the last axis of the left factor with the last but one of the right: transpose one "
        "input. `.mT` swaps the last two axes and leaves the batch alone.",
    ),
)


@attention_scores.aspect("scores", points=2)
def _(answer, draw):
    """one dot product for every pair of a target and a source position"""
    batch, n_target, n_source, d = draw.sizes(4, 2, 9)
    return answer(draw.normal(batch, n_target, d), draw.normal(batch, n_source, d))


@attention_scores.aspect("one decoder state", points=1)
def _(answer, draw):
    """works while translating, when there is one decoder state at a time"""
    n_source, d = draw.sizes(2, 2, 9)
    return answer(draw.normal(1, 1, d), draw.normal(1, n_source, d))


@attention_scores.aspect("gradient", points=1, explain=arrives("decoder_states", "encoder_states"))
def _(answer, draw):
    """the score can be learned from: its gradient reaches both networks"""
    batch, n_target, n_source, d = draw.sizes(4, 2, 9)
    states = [draw.normal(batch, n, d).requires_grad_() for n in (n_target, n_source)]
    return gradients(answer(*states), states, draw)


@attention_scores.misconception("keys from the decoder", fails=("scores", "one decoder state", "gradient"))
def _(decoder_states, encoder_states):
    """Each decoder state was scored against the decoder's own states. In cross-attention the decoder only asks; the
    states that are asked, the keys, are the encoder's. (Scoring a sequence against itself is self-attention,
    lecture 04.)"""
    return decoder_states @ decoder_states.mT


@attention_scores.misconception("a row for each source word", fails=("scores", "one decoder state", "gradient"))
def _(decoder_states, encoder_states):
    """Rows and columns are swapped. Row t belongs to target position t, because each target position will share out its
    attention over the source: targets down the rows, source positions along them."""
    return encoder_states @ decoder_states.mT


@attention_scores.misconception("as many source as target words", fails=("scores", "one decoder state", "gradient"))
def _(decoder_states, encoder_states):
    """One length was used for both sentences. A translation is rarely as long as its source: the table of scores has
    n_target rows and n_source columns, and slides that print T × T for it are mistaken."""
    batch, n, _ = decoder_states.shape
    scores = decoder_states.new_zeros(batch, n, n)
    for t in range(n):
        for i in range(n):
            scores[:, t, i] = (decoder_states[:, t] * encoder_states[:, i]).sum(dim=-1)
    return scores


@attention_scores.misconception("scaled by √d", fails=("scores", "one decoder state", "gradient"))
def _(decoder_states, encoder_states):
    """Dividing by √d is a good idea, and lecture 07 shows why, but it makes a different score: the scaled dot product.
    Here the plain dot product is asked for, as in Luong et al. (2015)."""
    return decoder_states @ encoder_states.mT / math.sqrt(encoder_states.shape[-1])


@attention_scores.misconception("cut off from the gradient", fails=("gradient",))
def _(decoder_states, encoder_states):
    """The numbers are right, but the gradient does not get through: `.item()`, `.detach()`, `.tolist()` and
    `torch.tensor(...)` hand over bare numbers and forget where they came from, so nothing before them can learn. Stay
    with tensor operations."""
    batch, n_target, _ = decoder_states.shape
    scores = torch.zeros(batch, n_target, encoder_states.shape[1])
    for b in range(batch):
        for t in range(n_target):
            for i in range(encoder_states.shape[1]):
                scores[b, t, i] = (decoder_states[b, t] @ encoder_states[b, i]).item()
    return scores


@attention_scores.variant("cut off from the gradient", fails=("gradient",))
def _(decoder_states, encoder_states):
    """The keys alone."""
    return decoder_states @ encoder_states.detach().mT


@attention_scores.variant("cut off from the gradient", fails=("gradient",))
def _(decoder_states, encoder_states):
    """The queries alone."""
    return decoder_states.detach() @ encoder_states.mT


@attention_scores.misconception("reshaped for transposed", fails=("scores", "one decoder state", "gradient"))
def _(decoder_states, encoder_states):
    """`reshape` and `view` read the same numbers in the same order and only break the rows elsewhere, so a column then
    holds pieces of several states. The shape fits and the numbers do not. Swap the two axes instead: which tensor
    method does that?"""
    batch, n_source, d = encoder_states.shape
    return decoder_states @ encoder_states.reshape(batch, d, n_source)


@attention_scores.misconception("softmax already applied", fails=("scores", "one decoder state", "gradient"))
def _(decoder_states, encoder_states):
    """These are weights: each row sums to one. Scores are the bare dot products, of any size and sign. Softmax is the
    next exercise, where it must respect the mask."""
    return (decoder_states @ encoder_states.mT).softmax(dim=-1)


@attention_scores.misconception("squeezed axes", fails=("one decoder state",))
def _(decoder_states, encoder_states):
    """`squeeze()` removes every axis of length one, even the batch's and the targets' when they happen to have length
    one. Keep the axes, or name the one that you mean."""
    return (decoder_states @ encoder_states.mT).squeeze()


@attention_scores.alternative("einsum")
def _(decoder_states, encoder_states):
    """Names the axes."""
    return torch.einsum("btd,bid->bti", decoder_states, encoder_states)


@attention_scores.alternative("products, then a sum")
def _(decoder_states, encoder_states):
    """Broadcasts to four axes and sums the last."""
    return (decoder_states[:, :, None] * encoder_states[:, None]).sum(dim=-1)


@attention_scores.alternative("a loop over target positions")
def _(decoder_states, encoder_states):
    """One row of the table at a time."""
    rows = [torch.bmm(encoder_states, decoder_states[:, t, :, None])[..., 0] for t in range(decoder_states.shape[1])]
    return torch.stack(rows, dim=1)


@attention_scores.alternative("float64, not contiguous")
def _(decoder_states, encoder_states):
    """Computes in double precision and returns a transposed view."""
    return (encoder_states.double() @ decoder_states.double().mT).mT


# ---------------------------------------------------------------------------------------------- attention_distribution

attention_distribution = Exercise(
    "attention_distribution",
    reference=attention.masked_softmax,
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


@attention_distribution.aspect("weights", points=2, explain=row_sums)
def _(answer, draw):
    """each target position shares out exactly one over the source"""
    batch, n_target, n_source = draw.sizes(3, 2, 7)
    return answer(draw.normal(batch, n_target, n_source), torch.ones(batch, 1, n_source, dtype=torch.bool))


@attention_distribution.aspect("padding", points=1, explain=nonzero)
def _(answer, draw):
    """nothing goes to padded positions"""
    batch, n_target, n_source = draw.sizes(3, 2, 7)
    mask = draw.padding_mask(batch, n_source)[:, None]
    return telling(answer(draw.normal(batch, n_target, n_source), mask)) * ~mask


@attention_distribution.aspect("beside padding", points=1, explain=row_sums)
def _(answer, draw):
    """the real words share everything"""
    batch, n_target, n_source = draw.sizes(3, 2, 7)
    mask = draw.padding_mask(batch, n_source)[:, None]
    return answer(draw.normal(batch, n_target, n_source), mask) * mask


def _one_empty(draw, batch, n_source):
    """A mask with one sentence of nothing but padding, never the first, among full ones."""
    mask = torch.ones(batch, 1, n_source, dtype=torch.bool)
    mask[1 + draw.integers(batch - 1, 1)] = False
    return mask


@attention_distribution.aspect("nothing but padding", points=1, explain=row_sums)
def _(answer, draw):
    """zeros where there is nobody to attend to, and only there"""
    batch, n_target, n_source = draw.sizes(3, 2, 7)
    return answer(draw.normal(batch, n_target, n_source), _one_empty(draw, batch, n_source))


@attention_distribution.aspect(
    "large scores",
    points=1,
    explain=told("weight {place} changes by {size} when all the scores of its row become 100 larger or 100 smaller"),
)
def _(answer, draw):
    """no overflow: add 100 to a row's scores, or take it away, and nothing changes"""
    batch, n_target, n_source = draw.sizes(3, 2, 7)
    mask = draw.padding_mask(batch, n_source)[:, None]
    scores = (64 * draw.normal(batch, n_target, n_source)).round() / 64  # adding 100 then loses no digits
    shift = 100 * (-1) ** (torch.arange(batch)[:, None, None] + torch.arange(n_target)[:, None])
    return telling(answer(scores + shift, mask)) - answer(scores, mask)


@attention_distribution.aspect("gradient", points=1, explain=arrives("scores"))
def _(answer, draw):
    """the scores can be learned, and a sentence of nothing but padding does no harm"""
    batch, n_target, n_source = draw.sizes(3, 2, 7)
    scores = draw.normal(batch, n_target, n_source).requires_grad_()
    return gradients(answer(scores, _one_empty(draw, batch, n_source)), [scores], draw)


EVERYTHING = ("weights", "padding", "beside padding", "nothing but padding", "large scores", "gradient")
FILLED = ("padding", "beside padding", "nothing but padding", "large scores")
UPSIDE_DOWN = ("weights", "padding", "beside padding", "nothing but padding", "gradient")
NOT_PADDING = ("weights", "beside padding", "nothing but padding", "large scores", "gradient")
UNMASKED = ("padding", "beside padding", "nothing but padding", "gradient")


@attention_distribution.misconception("normalises over the targets", fails=EVERYTHING)
def _(scores, mask):
    """Your weights sum to one down each source column, as if source words shared out their attention. It is each target
    position that distributes its attention over the source: normalise along the last axis."""
    return scores.masked_fill(~mask, -torch.inf).softmax(dim=-2)


@attention_distribution.variant("normalises over the targets", fails=NOT_PADDING)
def _(scores, mask):
    """With the NaN mended."""
    return scores.masked_fill(~mask, -torch.inf).softmax(dim=-2).nan_to_num()


@attention_distribution.variant("normalises over the targets", fails=EVERYTHING)
def _(scores, mask):
    """And ignores the mask."""
    return scores.softmax(dim=-2)


@attention_distribution.misconception("normalises over the batch", fails=NOT_PADDING)
def _(scores, mask):
    """`dim=0` is the batch: your weights sum to one over the sentences, so what one sentence gets depends on which
    others came along. The source positions are the last axis."""
    return scores.masked_fill(~mask, -torch.inf).softmax(dim=0).nan_to_num()


@attention_distribution.misconception("masks after the softmax", fails=("beside padding",))
def _(scores, mask):
    """The rows no longer sum to one: what was taken from the padding was not given back to the words. Mask the scores
    first, and let softmax share out the whole among what is left."""
    return scores.softmax(dim=-1) * mask


@attention_distribution.misconception("ignores the mask", fails=UNMASKED)
def _(scores, mask):
    """Padding got a share. A padded position holds no word, yet its score is as good a number as any, so softmax cannot
    know: only the mask can say who is there."""
    return scores.softmax(dim=-1)


@attention_distribution.misconception("a score of 0 for padding", fails=FILLED)
def _(scores, mask):
    """A score of 0 is not "no attention": softmax turns it into e⁰ = 1, more than any negative score gets. The score
    that becomes a weight of exactly 0 is −∞."""
    return (scores * mask).softmax(dim=-1)


@attention_distribution.variant("a score of 0 for padding", fails=("beside padding", "large scores"))
def _(scores, mask):
    """With zeros for the padding afterwards."""
    return (scores * mask).softmax(dim=-1) * mask


@attention_distribution.misconception("a score of +∞ for padding", fails=FILLED)
def _(scores, mask):
    """The sign is wrong: softmax favours large scores, and +∞ is the largest, so ∞/∞ came out where there is padding.
    The score that earns nothing is −∞."""
    return scores.masked_fill(~mask, torch.inf).softmax(dim=-1)


@attention_distribution.misconception("0 · ∞", fails=EVERYTHING)
def _(scores, mask):
    """The mask, as 0 and 1, was multiplied by −∞ and then added. Where there is a word that is 0 · −∞, and
    floating-point arithmetic calls it NaN, not 0. Choose between the score and −∞ by a condition instead: `masked_fill`
    or `torch.where`."""
    return (scores + (1 - mask.float()) * -torch.inf).softmax(dim=-1)


@attention_distribution.misconception("mask upside down", fails=EVERYTHING)
def _(scores, mask):
    """The words were silenced and the padding was heard. In this course True means "may attend", as it does for torch's
    `scaled_dot_product_attention`: fill where the mask is False, `~mask`."""
    return scores.masked_fill(mask, -torch.inf).softmax(dim=-1)


@attention_distribution.variant("mask upside down", fails=UPSIDE_DOWN)
def _(scores, mask):
    """With the NaN mended."""
    return scores.masked_fill(mask, -torch.inf).softmax(dim=-1).nan_to_num()


@attention_distribution.variant("mask upside down", fails=UPSIDE_DOWN)
def _(scores, mask):
    """With −1e9."""
    return scores.masked_fill(mask, -1e9).softmax(dim=-1)


@attention_distribution.variant("mask upside down", fails=UPSIDE_DOWN)
def _(scores, mask):
    """After the softmax."""
    return scores.softmax(dim=-1).masked_fill(mask, 0.0)


@attention_distribution.misconception("NaN for a row of padding", fails=("nothing but padding",))
def _(scores, mask):
    """In a row with nothing but padding every exponential is 0, and so is their sum: 0/0. One such row makes the whole
    loss NaN. Put zeros there after the softmax."""
    return scores.masked_fill(~mask, -torch.inf).softmax(dim=-1)


@attention_distribution.variant("NaN for a row of padding", fails=("nothing but padding", "gradient"))
def _(scores, mask):
    """By masking after the softmax and dividing by the sum."""
    weights = scores.softmax(dim=-1) * mask
    return weights / weights.sum(dim=-1, keepdim=True)


@attention_distribution.misconception("−1e9 instead of −∞", fails=("nothing but padding",))
def _(scores, mask):
    """With −1e9 a row of nothing but padding becomes uniform: all its scores are equally bad, and softmax only
    compares. (In half precision −1e9 does not even exist.) Use −∞ and put zeros where the mask is False."""
    return scores.masked_fill(~mask, -1e9).softmax(dim=-1)


@attention_distribution.misconception(
    "exponentials out of range", fails=("nothing but padding", "large scores", "gradient")
)
def _(scores, mask):
    """exp(89) is more than float32 can hold and exp(−104) is 0, and ∞/∞ and 0/0 are NaN. Softmax does not change when
    the same number is taken from every score of a row: take away each row's own maximum first (the largest of all rows
    will not do), or let `softmax` do it for you."""
    exponentials = scores.exp() * mask
    return exponentials / exponentials.sum(dim=-1, keepdim=True)


@attention_distribution.variant("exponentials out of range", fails=("nothing but padding", "large scores", "gradient"))
def _(scores, mask):
    """One maximum for all rows."""
    exponentials = (scores - scores.max()).exp() * mask
    return exponentials / exponentials.sum(dim=-1, keepdim=True)


@attention_distribution.variant("exponentials out of range", fails=("large scores",))
def _(scores, mask):
    """One maximum for all rows, and the division guarded."""
    exponentials = (scores - scores.max()).exp() * mask
    return exponentials / exponentials.sum(dim=-1, keepdim=True).clamp(min=1e-9)


@attention_distribution.variant("exponentials out of range", fails=("large scores",))
def _(scores, mask):
    """With the division guarded."""
    exponentials = scores.exp() * mask
    return exponentials / (exponentials.sum(dim=-1, keepdim=True) + 1e-9)


@attention_distribution.variant("exponentials out of range", fails=("large scores", "gradient"))
def _(scores, mask):
    """With the NaN mended, which mends no gradient."""
    exponentials = scores.exp() * mask
    return (exponentials / exponentials.sum(dim=-1, keepdim=True)).nan_to_num()


@attention_distribution.variant("exponentials out of range", "ignores the mask", fails=(*UNMASKED, "large scores"))
def _(scores, mask):
    """Both."""
    exponentials = scores.exp()
    return exponentials / exponentials.sum(dim=-1, keepdim=True)


@attention_distribution.misconception("no exponentials", fails=NOT_PADDING)
def _(scores, mask):
    """The scores themselves were divided by their sum. Scores may be negative, and may add up to 0, so such shares can
    be negative or enormous. Softmax shares out in proportion to the *exponentials*, which are positive."""
    kept = scores * mask
    return kept / kept.sum(dim=-1, keepdim=True)


@attention_distribution.misconception("log_softmax", fails=EVERYTHING)
def _(scores, mask):
    """These are the logarithms of the weights: none is above 0, and padding holds −∞. A loss likes logarithms; an
    average needs the weights themselves."""
    return scores.masked_fill(~mask, -torch.inf).log_softmax(dim=-1)


@attention_distribution.misconception("cut off from the gradient", fails=("gradient",))
def _(scores, mask):
    """The numbers are right, but the gradient does not get through: `.detach()`, `.data`, numpy and `torch.no_grad()`
    forget where numbers came from, so the scores can never learn. Stay with tensor operations."""
    return scores.detach().masked_fill(~mask, -torch.inf).softmax(dim=-1).masked_fill(~mask, 0.0)


@attention_distribution.alternative("exponentials by hand")
def _(scores, mask):
    """Takes the maximum away, and guards the division."""
    scores = torch.where(mask, scores, torch.full_like(scores, -1e30))
    exponentials = (scores - scores.amax(dim=-1, keepdim=True)).exp() * mask
    return exponentials / exponentials.sum(dim=-1, keepdim=True).clamp(min=1e-9)


@attention_distribution.alternative("softmax, then zeros for NaN")
def _(scores, mask):
    """Repairs the empty rows afterwards."""
    return torch.nan_to_num(scores.masked_fill(~mask, float("-inf")).softmax(dim=-1))


@attention_distribution.alternative("an additive mask in float64")
def _(scores, mask):
    """Adds a number so low that nothing is left of the exponential, in double precision."""
    bias = torch.zeros(mask.shape, dtype=torch.float64).masked_fill_(~mask, -1e30)
    return torch.where(mask, (scores + bias).softmax(dim=-1), 0.0)


@attention_distribution.alternative("a loop over the batch")
def _(scores, mask):
    """Gives each sentence its own softmax over its own words."""
    weights = torch.zeros_like(scores)
    for b in range(scores.shape[0]):
        there = mask[b, 0]
        if there.any():
            weights[b][:, there] = torch.softmax(scores[b][:, there], dim=-1)
    return weights


# ---------------------------------------------------------------------------------------------------- attention_output

attention_output = Exercise(
    "attention_output",
    reference=lambda weights, encoder_states: weights @ encoder_states,
    returns=("output",),
    forbidden=READY_MADE,
    difficulty=1,
    minutes=6,
    hints=(
        "One output for each target position, as wide as an encoder state. Which axis has been summed over?",
        "Each output is the sum over i of weight[t, i] · encoder_state[i]: a row of the first input times the second, "
        "as matrices.",
    ),
)


@attention_output.aspect("output", points=2)
def _(answer, draw):
    """a weighted average of the encoder states, one for each target position"""
    batch, n_target, n_source, d = draw.sizes(4, 2, 9)
    return answer(draw.normal(batch, n_target, n_source).softmax(dim=-1), draw.normal(batch, n_source, d))


@attention_output.aspect("one weight of one", points=1)
def _(answer, draw):
    """all the weight on one state gives back that very state"""
    batch, n_target, n_source, d = draw.sizes(4, 2, 9)
    weights = nn.functional.one_hot(draw.integers(n_source, batch, n_target), n_source).float()
    return answer(weights, draw.normal(batch, n_source, d))


@attention_output.aspect("one decoder state", points=1)
def _(answer, draw):
    """works while translating, when there is one decoder state at a time"""
    n_source, d = draw.sizes(2, 2, 9)
    return answer(draw.normal(1, 1, n_source).softmax(dim=-1), draw.normal(1, n_source, d))


@attention_output.aspect("gradient", points=1, explain=arrives("weights", "encoder_states"))
def _(answer, draw):
    """the weights can be learned: the gradient reaches them and the states"""
    batch, n_target, n_source, d = draw.sizes(4, 2, 9)
    weights = draw.normal(batch, n_target, n_source).softmax(dim=-1).requires_grad_()
    states = draw.normal(batch, n_source, d).requires_grad_()
    return gradients(answer(weights, states), [weights, states], draw)


ALL_OUTPUT = ("output", "one weight of one", "one decoder state", "gradient")


@attention_output.misconception("sums over the targets", fails=ALL_OUTPUT)
def _(weights, encoder_states):
    """There is one result for each source position, so the target positions were added up. The answer belongs to
    whoever asked: keep the target axis and sum over the source."""
    return torch.einsum("bti,bid->bid", weights, encoder_states)


@attention_output.misconception("plain mean", fails=ALL_OUTPUT)
def _(weights, encoder_states):
    """Every state counted the same, so every target position received the same summary. That is mean pooling. The
    weights are what makes it attention: use them."""
    return encoder_states.mean(dim=1, keepdim=True).expand(-1, weights.shape[1], -1)


@attention_output.misconception("best match only", fails=("output", "one decoder state", "gradient"))
def _(weights, encoder_states):
    """This fetches the one state with the largest weight. It is a hard lookup: argmax has no gradient, so nothing could
    learn where to look. Average all states, each by its weight."""
    best = weights.argmax(dim=-1, keepdim=True).expand(-1, -1, encoder_states.shape[-1])
    return encoder_states.gather(1, best)


@attention_output.misconception("divided once more", fails=ALL_OUTPUT)
def _(weights, encoder_states):
    """The weights already sum to one, so their weighted sum is an average. Dividing by the number of source words (or
    taking `mean` where a sum is meant) shrinks it, and the longer the sentence, the more."""
    return (weights[..., None] * encoder_states[:, None]).mean(dim=2)


@attention_output.misconception("not added up", fails=ALL_OUTPUT)
def _(weights, encoder_states):
    """Each state was scaled by its weight, and then all of them were handed on. The point is a summary of fixed size:
    add them up over the source positions."""
    return weights[..., None] * encoder_states[:, None]


@attention_output.misconception("softmax once more", fails=ALL_OUTPUT)
def _(weights, encoder_states):
    """The weights went through softmax again. They already sum to one and lie between 0 and 1; softmax takes them for
    scores so close together that it makes them nearly equal. Use them as they are."""
    return weights.softmax(dim=-1) @ encoder_states


@attention_output.misconception("squeezed axes", fails=("one decoder state",))
def _(weights, encoder_states):
    """`squeeze()` removes every axis of length one, even the batch's and the targets' when they happen to have length
    one. Keep the axes, or name the one that you mean."""
    return (weights @ encoder_states).squeeze()


@attention_output.misconception("cut off from the gradient", fails=("gradient",))
def _(weights, encoder_states):
    """The numbers are right, but the gradient does not get through: `.detach()`, `.data`, numpy and `torch.no_grad()`
    forget where numbers came from. The weights must learn where to look, and the states what to offer."""
    return (weights @ encoder_states).detach()


@attention_output.variant("cut off from the gradient", fails=("gradient",))
def _(weights, encoder_states):
    """The weights alone."""
    return weights.detach() @ encoder_states


@attention_output.variant("cut off from the gradient", fails=("gradient",))
def _(weights, encoder_states):
    """The states alone."""
    return weights @ encoder_states.detach()


@attention_output.alternative("einsum")
def _(weights, encoder_states):
    """Names the axes."""
    return torch.einsum("bti,bid->btd", weights, encoder_states)


@attention_output.alternative("a running sum over the source")
def _(weights, encoder_states):
    """Adds one source position at a time, without changing anything in place."""
    total = torch.zeros(())
    for i in range(encoder_states.shape[1]):
        total = total + weights[:, :, i, None] * encoder_states[:, i, None]
    return total


@attention_output.alternative("float64, not contiguous")
def _(weights, encoder_states):
    """Computes the transposed product in double precision and returns a view."""
    return (encoder_states.double().mT @ weights.double().mT).mT


# ------------------------------------------------------------------------------------------------ AttentionDecoderStep

AttentionDecoderStep = Exercise(
    "AttentionDecoderStep",
    reference=recurrent.AttentionDecoderStep,
    returns=("logits", "state", "attentional", "weights"),
    forbidden=READY_MADE,
    difficulty=3,
    minutes=30,
    hints=(
        "Follow the six equations above the cell, one line of code each. Which state asks: the one that came in, or "
        "the new one?",
        "The cell eats `torch.cat([embedding, attentional], dim=-1)`. One state has no target axis, so its scores are "
        "(batch, n_source): `(encoder_states @ state[..., None])[..., 0]`.",
        "After the softmax: `attended = (weights[:, None] @ encoder_states)[:, 0]`, then `combine` of "
        "[attended; state], tanh, and `output` of that.",
    ),
)


def _step(answer, draw, fed=True, padded=False):
    """A built step, and drawn inputs for it: (step, [token, state, attentional, encoder_states, mask])."""
    batch, n_source, d_embedding, d_hidden, vocabulary = draw.sizes(5, 3, 9)
    mask = draw.padding_mask(batch, n_source) if padded else torch.ones(batch, n_source, dtype=torch.bool)
    inputs = [
        draw.integers(vocabulary, batch),
        draw.normal(batch, d_hidden),
        draw.normal(batch, d_hidden) if fed else torch.zeros(batch, d_hidden),
        draw.normal(batch, n_source, d_hidden),
        mask,
    ]
    return answer.build(draw, vocabulary, d_embedding, d_hidden), inputs


@AttentionDecoderStep.aspect("new state", points=1)
def _(answer, draw):
    """the cell reads the token and moves the state on"""
    step, inputs = _step(answer, draw, fed=False)
    return step(*inputs)[1]


@AttentionDecoderStep.aspect(
    "input feeding",
    points=1,
    explain=told("the state moves by {got} at {place} when the fed vector changes, expected {expected}"),
)
def _(answer, draw):
    """what was attended to a step ago changes the state now"""
    step, inputs = _step(answer, draw)
    unfed = [*inputs[:2], torch.zeros_like(inputs[2]), *inputs[3:]]
    return step(*inputs)[1] - step(*unfed)[1]


def _go_on(step, inputs, state=None, weights=None):
    """(state, attentional, weights) by the equations, without a mask, going on from the answer's own where given."""
    module, (token, old_state, fed, encoder_states, _) = step.twin, inputs
    if state is None:
        state = module.cell(torch.cat([module.embedding(token), fed], dim=-1), old_state)
    if weights is None:
        weights = (encoder_states @ state[..., None])[..., 0].softmax(dim=-1)
    attended = (weights[:, None] @ encoder_states)[:, 0]
    attentional = torch.tanh(module.combine(torch.cat([attended, state], dim=-1)))
    return state, attentional, weights


def _beside(got, *right):
    """How far `got` is from the nearest of what is right: a slip further up is not to be paid for twice."""
    return min((got - one for one in right), key=lambda difference: difference.abs().max())


@AttentionDecoderStep.aspect(
    "weights",
    points=2,
    explain=told("the weights differ from the softmax of `state` · `encoder_states` by up to {size}, at {place}"),
)
def _(answer, draw):
    """the new state asks, the encoder answers"""
    step, inputs = _step(answer, draw, fed=False)
    _, state, _, weights = step(*inputs)
    telling(state)
    return _beside(weights, _go_on(step, inputs)[2], _go_on(step, inputs, state)[2])


@AttentionDecoderStep.aspect(
    "padding", points=1, explain=told("logit {place} changes by {size} when only the padding changes")
)
def _(answer, draw):
    """what stands in the padding changes nothing"""
    step, inputs = _step(answer, draw, fed=False, padded=True)
    other = inputs[3] + 5 * draw.normal(*inputs[3].shape) * ~inputs[4][..., None]
    logits = step(*inputs)[0]
    if torch.equal(logits, step(inputs[0], -inputs[1], 1 - inputs[2], -inputs[3], inputs[4])[0]):
        raise AspectFailed(Problem("unusable", "the logits are the same whatever comes in"))
    return logits - step(*inputs[:3], other, inputs[4])[0]


@AttentionDecoderStep.aspect(
    "attentional vector",
    points=2,
    explain=told("the vector differs from the tanh of `combine([attended; state])` by up to {size}, at {place}"),
)
def _(answer, draw):
    """tanh of the combined [attended; state]"""
    step, inputs = _step(answer, draw, fed=False)
    _, state, attentional, weights = step(*inputs)
    own = [{}, {"state": state}, {"weights": weights}, {"state": state, "weights": weights}]
    return _beside(attentional, *(_go_on(step, inputs, **values)[1] for values in own))


@AttentionDecoderStep.aspect(
    "logits", points=1, explain=told("the logits differ from `output(attentional)` by up to {size}, at {place}")
)
def _(answer, draw):
    """one for each word, from the attentional vector"""
    step, inputs = _step(answer, draw, fed=False)
    logits, _, attentional, _ = step(*inputs)
    return _beside(logits, *(step.twin.output(right) for right in (attentional, _go_on(step, inputs)[1])))


WAYS = (
    "from the logits to the cell",
    "from the state to the cell and the previous state",
    "to `encoder_states`",
    "from the logits through the weights to the scores",
)


def _cut(got, expected):
    """Says which way back is cut."""
    return f"no gradient finds its way {' or '.join(way for way, open_ in zip(WAYS, got, strict=True) if not open_)}"


@AttentionDecoderStep.aspect("gradient", points=1, explain=_cut)
def _(answer, draw):
    """the loss finds its way back to the cell, the previous state and the encoder"""
    step, inputs = _step(answer, draw)
    old_state, encoder_states = inputs[1].requires_grad_(), inputs[3].requires_grad_()
    logits, state, attentional, _ = step(*inputs)
    cell = step.parameter("cell.weight_ih")
    predicted = torch.cat([logits, attentional], dim=-1)                            # (batch, vocabulary + d_hidden)
    ways = [(logits, [cell]), (state, [cell, old_state]), (predicted, [encoder_states])]
    found = [gradients(output, ends, draw).any() for output, ends in ways]
    # Through the average alone, the gradients at a sentence's states are multiples of one vector; the scores add more.
    sizes = torch.linalg.svdvals(gradients(predicted, [encoder_states], draw).reshape(encoder_states.shape))
    return torch.stack([*found, (sizes[:, 1] > 1e-4 * sizes[:, 0]).all()])


@AttentionDecoderStep.misconception("[s; a] for [a; s]", fails=("attentional vector",))
def _(self, token, state, attentional, encoder_states, mask):
    """The two halves are swapped. A network trained from scratch would not mind, but weights from a classmate's model
    or a checkpoint would meet the wrong half. The contract is [attended; state], as on the slides and in the paper."""
    state = self.cell(torch.cat([self.embedding(token), attentional], dim=-1), state)
    scores = (encoder_states @ state[..., None])[..., 0]
    weights = scores.masked_fill(~mask, -torch.inf).softmax(dim=-1)
    attended = (weights[:, None] @ encoder_states)[:, 0]
    attentional = torch.tanh(self.combine(torch.cat([state, attended], dim=-1)))
    return self.output(attentional), state, attentional, weights


@AttentionDecoderStep.misconception("ignores the mask", fails=("padding",))
def _(self, token, state, attentional, encoder_states, mask):
    """The padding took part: change what stands there and the answer changes, so a sentence is translated differently
    in another batch. Give padded positions a score of −∞."""
    state = self.cell(torch.cat([self.embedding(token), attentional], dim=-1), state)
    weights = (encoder_states @ state[..., None])[..., 0].softmax(dim=-1)
    attended = (weights[:, None] @ encoder_states)[:, 0]
    attentional = torch.tanh(self.combine(torch.cat([attended, state], dim=-1)))
    return self.output(attentional), state, attentional, weights


@AttentionDecoderStep.misconception("no input feeding", fails=("input feeding",))
def _(self, token, state, attentional, encoder_states, mask):
    """The cell never saw the attentional vector of the step before. The decoder is then not told what that step found,
    and must infer it from the words that it wrote. Feed it in beside the embedding."""
    fed = torch.cat([self.embedding(token), torch.zeros_like(attentional)], dim=-1)
    state = self.cell(fed, state)
    scores = (encoder_states @ state[..., None])[..., 0]
    weights = scores.masked_fill(~mask, -torch.inf).softmax(dim=-1)
    attended = (weights[:, None] @ encoder_states)[:, 0]
    attentional = torch.tanh(self.combine(torch.cat([attended, state], dim=-1)))
    return self.output(attentional), state, attentional, weights


@AttentionDecoderStep.variant("no input feeding", fails=("new state", "input feeding"))
def _(self, token, state, attentional, encoder_states, mask):
    """The state in its place."""
    state = self.cell(torch.cat([self.embedding(token), state], dim=-1), state)
    scores = (encoder_states @ state[..., None])[..., 0]
    weights = scores.masked_fill(~mask, -torch.inf).softmax(dim=-1)
    attended = (weights[:, None] @ encoder_states)[:, 0]
    attentional = torch.tanh(self.combine(torch.cat([attended, state], dim=-1)))
    return self.output(attentional), state, attentional, weights


@AttentionDecoderStep.misconception("the old state asks", fails=("weights",))
def _(self, token, state, attentional, encoder_states, mask):
    """The query was the state before this token was read. Bahdanau et al. (2015) do it that way; here, as in Luong et
    al. (2015), the cell moves on first and the new state asks."""
    old_state = state
    state = self.cell(torch.cat([self.embedding(token), attentional], dim=-1), old_state)
    scores = (encoder_states @ old_state[..., None])[..., 0]
    weights = scores.masked_fill(~mask, -torch.inf).softmax(dim=-1)
    attended = (weights[:, None] @ encoder_states)[:, 0]
    attentional = torch.tanh(self.combine(torch.cat([attended, state], dim=-1)))
    return self.output(attentional), state, attentional, weights


@AttentionDecoderStep.variant("the old state asks", fails=("weights", "attentional vector", "gradient"))
def _(self, token, state, attentional, encoder_states, mask):
    """And is combined."""
    new_state = self.cell(torch.cat([self.embedding(token), attentional], dim=-1), state)
    scores = (encoder_states @ state[..., None])[..., 0]
    weights = scores.masked_fill(~mask, -torch.inf).softmax(dim=-1)
    attended = (weights[:, None] @ encoder_states)[:, 0]
    attentional = torch.tanh(self.combine(torch.cat([attended, state], dim=-1)))
    return self.output(attentional), new_state, attentional, weights


@AttentionDecoderStep.misconception("tanh left out", fails=("attentional vector",))
def _(self, token, state, attentional, encoder_states, mask):
    """The combination went on without its tanh. `output` comes next, which is linear as well, and two linear maps in a
    row are only one: it is the tanh between them that makes two layers of them."""
    state = self.cell(torch.cat([self.embedding(token), attentional], dim=-1), state)
    scores = (encoder_states @ state[..., None])[..., 0]
    weights = scores.masked_fill(~mask, -torch.inf).softmax(dim=-1)
    attended = (weights[:, None] @ encoder_states)[:, 0]
    attentional = self.combine(torch.cat([attended, state], dim=-1))
    return self.output(attentional), state, attentional, weights


@AttentionDecoderStep.misconception("words from the state alone", fails=("logits",))
def _(self, token, state, attentional, encoder_states, mask):
    """The next word was predicted from the state alone, bypassing everything that attention found. The logits come from
    the attentional vector, which holds both."""
    state = self.cell(torch.cat([self.embedding(token), attentional], dim=-1), state)
    scores = (encoder_states @ state[..., None])[..., 0]
    weights = scores.masked_fill(~mask, -torch.inf).softmax(dim=-1)
    attended = (weights[:, None] @ encoder_states)[:, 0]
    attentional = torch.tanh(self.combine(torch.cat([attended, state], dim=-1)))
    return self.output(state), state, attentional, weights


@AttentionDecoderStep.misconception("the state stands still", fails=("new state", "input feeding"))
def _(self, token, state, attentional, encoder_states, mask):
    """The state that came in was handed back, so the next step starts again from where this one did. Return the new
    one."""
    new_state = self.cell(torch.cat([self.embedding(token), attentional], dim=-1), state)
    scores = (encoder_states @ new_state[..., None])[..., 0]
    weights = scores.masked_fill(~mask, -torch.inf).softmax(dim=-1)
    attended = (weights[:, None] @ encoder_states)[:, 0]
    attentional = torch.tanh(self.combine(torch.cat([attended, new_state], dim=-1)))
    return self.output(attentional), state, attentional, weights


@AttentionDecoderStep.variant("tanh left out", "[s; a] for [a; s]", fails=("attentional vector",))
def _(self, token, state, attentional, encoder_states, mask):
    """Both."""
    state = self.cell(torch.cat([self.embedding(token), attentional], dim=-1), state)
    scores = (encoder_states @ state[..., None])[..., 0]
    weights = scores.masked_fill(~mask, -torch.inf).softmax(dim=-1)
    attended = (weights[:, None] @ encoder_states)[:, 0]
    attentional = self.combine(torch.cat([state, attended], dim=-1))
    return self.output(attentional), state, attentional, weights


@AttentionDecoderStep.misconception("[ã; embedding]", fails=("new state", "input feeding"))
def _(self, token, state, attentional, encoder_states, mask):
    """The cell was fed the right two vectors in the wrong order. A network trained from scratch would not mind, but a
    checkpoint would: the contract is [embedding; attentional vector]."""
    state = self.cell(torch.cat([attentional, self.embedding(token)], dim=-1), state)
    scores = (encoder_states @ state[..., None])[..., 0]
    weights = scores.masked_fill(~mask, -torch.inf).softmax(dim=-1)
    attended = (weights[:, None] @ encoder_states)[:, 0]
    attentional = torch.tanh(self.combine(torch.cat([attended, state], dim=-1)))
    return self.output(attentional), state, attentional, weights


@AttentionDecoderStep.misconception("the cell without its state", fails=("new state", "input feeding"))
def _(self, token, state, attentional, encoder_states, mask):
    """The cell was not given the state that came in. It then starts from zeros at every step and forgets all that was
    written before. Which second argument does a `GRUCell` take?"""
    state = self.cell(torch.cat([self.embedding(token), attentional], dim=-1))
    scores = (encoder_states @ state[..., None])[..., 0]
    weights = scores.masked_fill(~mask, -torch.inf).softmax(dim=-1)
    attended = (weights[:, None] @ encoder_states)[:, 0]
    attentional = torch.tanh(self.combine(torch.cat([attended, state], dim=-1)))
    return self.output(attentional), state, attentional, weights


@AttentionDecoderStep.misconception("masks after the softmax", fails=("padding",))
def _(self, token, state, attentional, encoder_states, mask):
    """The padding's weights are 0, but its scores were still in softmax's denominator, so the rows no longer sum to one
    and what stands in the padding changes the answer. Mask the scores first."""
    state = self.cell(torch.cat([self.embedding(token), attentional], dim=-1), state)
    scores = (encoder_states @ state[..., None])[..., 0]
    weights = scores.softmax(dim=-1) * mask
    attended = (weights[:, None] @ encoder_states)[:, 0]
    attentional = torch.tanh(self.combine(torch.cat([attended, state], dim=-1)))
    return self.output(attentional), state, attentional, weights


@AttentionDecoderStep.misconception("normalises over the batch", fails=("weights",))
def _(self, token, state, attentional, encoder_states, mask):
    """`dim=0` is the batch: the weights sum to one over the sentences, so what one sentence gets depends on which
    others came along. One state has no target axis, and its scores are (batch, n_source): the source is the last."""
    state = self.cell(torch.cat([self.embedding(token), attentional], dim=-1), state)
    scores = (encoder_states @ state[..., None])[..., 0]
    weights = scores.masked_fill(~mask, -torch.inf).softmax(dim=0)
    attended = (weights[:, None] @ encoder_states)[:, 0]
    attentional = torch.tanh(self.combine(torch.cat([attended, state], dim=-1)))
    return self.output(attentional), state, attentional, weights


@AttentionDecoderStep.misconception("scaled by √d", fails=("weights",))
def _(self, token, state, attentional, encoder_states, mask):
    """The scores were divided by √d. That is the scaled dot product of lecture 07; here, as in Luong et al. (2015), it
    is the plain one."""
    state = self.cell(torch.cat([self.embedding(token), attentional], dim=-1), state)
    scores = (encoder_states @ state[..., None])[..., 0] / math.sqrt(state.shape[-1])
    weights = scores.masked_fill(~mask, -torch.inf).softmax(dim=-1)
    attended = (weights[:, None] @ encoder_states)[:, 0]
    attentional = torch.tanh(self.combine(torch.cat([attended, state], dim=-1)))
    return self.output(attentional), state, attentional, weights


@AttentionDecoderStep.misconception("mean pooling", fails=("padding", "attentional vector", "gradient"))
def _(self, token, state, attentional, encoder_states, mask):
    """The weights were computed and then not used: every state counted the same, the padding too. The attended vector
    is the average *by these weights*."""
    state = self.cell(torch.cat([self.embedding(token), attentional], dim=-1), state)
    scores = (encoder_states @ state[..., None])[..., 0]
    weights = scores.masked_fill(~mask, -torch.inf).softmax(dim=-1)
    attended = encoder_states.mean(dim=1)
    attentional = torch.tanh(self.combine(torch.cat([attended, state], dim=-1)))
    return self.output(attentional), state, attentional, weights


@AttentionDecoderStep.misconception("scores for weights", fails=("weights",))
def _(self, token, state, attentional, encoder_states, mask):
    """What came back as weights are scores, from before the softmax: they do not sum to one. Whoever draws the
    alignment needs the weights."""
    state = self.cell(torch.cat([self.embedding(token), attentional], dim=-1), state)
    scores = (encoder_states @ state[..., None])[..., 0]
    weights = scores.masked_fill(~mask, -torch.inf).softmax(dim=-1)
    attended = (weights[:, None] @ encoder_states)[:, 0]
    attentional = torch.tanh(self.combine(torch.cat([attended, state], dim=-1)))
    return self.output(attentional), state, attentional, scores


@AttentionDecoderStep.misconception("something else in ã's place", fails=("attentional vector",))
def _(self, token, state, attentional, encoder_states, mask):
    """The third tensor is not the new attentional vector, tanh of what `combine` gives. It may be the old
    one, handed back as it came, or the attended vector, or the state: look at the order (logits, state, attentional,
    weights), and at which name holds what."""
    state = self.cell(torch.cat([self.embedding(token), attentional], dim=-1), state)
    scores = (encoder_states @ state[..., None])[..., 0]
    weights = scores.masked_fill(~mask, -torch.inf).softmax(dim=-1)
    attended = (weights[:, None] @ encoder_states)[:, 0]
    combined = torch.tanh(self.combine(torch.cat([attended, state], dim=-1)))
    return self.output(combined), state, attentional, weights


@AttentionDecoderStep.variant("something else in ã's place", fails=("attentional vector",))
def _(self, token, state, attentional, encoder_states, mask):
    """The state."""
    state = self.cell(torch.cat([self.embedding(token), attentional], dim=-1), state)
    scores = (encoder_states @ state[..., None])[..., 0]
    weights = scores.masked_fill(~mask, -torch.inf).softmax(dim=-1)
    attended = (weights[:, None] @ encoder_states)[:, 0]
    attentional = torch.tanh(self.combine(torch.cat([attended, state], dim=-1)))
    return self.output(attentional), state, state, weights


@AttentionDecoderStep.variant("something else in ã's place", fails=("attentional vector",))
def _(self, token, state, attentional, encoder_states, mask):
    """The attended vector."""
    state = self.cell(torch.cat([self.embedding(token), attentional], dim=-1), state)
    scores = (encoder_states @ state[..., None])[..., 0]
    weights = scores.masked_fill(~mask, -torch.inf).softmax(dim=-1)
    attended = (weights[:, None] @ encoder_states)[:, 0]
    attentional = torch.tanh(self.combine(torch.cat([attended, state], dim=-1)))
    return self.output(attentional), state, attended, weights


@AttentionDecoderStep.variant("something else in ã's place", fails=("attentional vector", "gradient"))
def _(self, token, state, attentional, encoder_states, mask):
    """The old one, for the logits too."""
    state = self.cell(torch.cat([self.embedding(token), attentional], dim=-1), state)
    scores = (encoder_states @ state[..., None])[..., 0]
    weights = scores.masked_fill(~mask, -torch.inf).softmax(dim=-1)
    return self.output(attentional), state, attentional, weights


@AttentionDecoderStep.misconception("softmax on the logits", fails=("logits",))
def _(self, token, state, attentional, encoder_states, mask):
    """Logits are what comes *before* softmax: the loss and the decoding apply it themselves, and twice is once too
    often. Return what `output` gives."""
    state = self.cell(torch.cat([self.embedding(token), attentional], dim=-1), state)
    scores = (encoder_states @ state[..., None])[..., 0]
    weights = scores.masked_fill(~mask, -torch.inf).softmax(dim=-1)
    attended = (weights[:, None] @ encoder_states)[:, 0]
    attentional = torch.tanh(self.combine(torch.cat([attended, state], dim=-1)))
    return self.output(attentional).softmax(dim=-1), state, attentional, weights


@AttentionDecoderStep.variant("softmax on the logits", fails=("logits",))
def _(self, token, state, attentional, encoder_states, mask):
    """Its logarithm."""
    state = self.cell(torch.cat([self.embedding(token), attentional], dim=-1), state)
    scores = (encoder_states @ state[..., None])[..., 0]
    weights = scores.masked_fill(~mask, -torch.inf).softmax(dim=-1)
    attended = (weights[:, None] @ encoder_states)[:, 0]
    attentional = torch.tanh(self.combine(torch.cat([attended, state], dim=-1)))
    return self.output(attentional).log_softmax(dim=-1), state, attentional, weights


@AttentionDecoderStep.misconception("cut off from the gradient", fails=("gradient",))
def _(self, token, state, attentional, encoder_states, mask):
    """The numbers are right, but the loss finds no way back: `.detach()`, `.data` and `torch.no_grad()` forget where
    numbers came from. What is carried from step to step must stay connected while the decoder learns."""
    state = self.cell(torch.cat([self.embedding(token), attentional], dim=-1), state)
    state = state.detach()
    scores = (encoder_states @ state[..., None])[..., 0]
    weights = scores.masked_fill(~mask, -torch.inf).softmax(dim=-1)
    attended = (weights[:, None] @ encoder_states)[:, 0]
    attentional = torch.tanh(self.combine(torch.cat([attended, state], dim=-1)))
    return self.output(attentional), state, attentional, weights


@AttentionDecoderStep.variant("cut off from the gradient", fails=("gradient",))
def _(self, token, state, attentional, encoder_states, mask):
    """At the end."""
    state = self.cell(torch.cat([self.embedding(token), attentional], dim=-1), state)
    scores = (encoder_states @ state[..., None])[..., 0]
    weights = scores.masked_fill(~mask, -torch.inf).softmax(dim=-1)
    attended = (weights[:, None] @ encoder_states)[:, 0]
    attentional = torch.tanh(self.combine(torch.cat([attended, state], dim=-1)))
    logits = self.output(attentional)
    return logits.detach(), state.detach(), attentional.detach(), weights.detach()


@AttentionDecoderStep.variant("cut off from the gradient", fails=("gradient",))
def _(self, token, state, attentional, encoder_states, mask):
    """Between the weights and the average: where to look is then never learned."""
    state = self.cell(torch.cat([self.embedding(token), attentional], dim=-1), state)
    scores = (encoder_states @ state[..., None])[..., 0]
    weights = scores.masked_fill(~mask, -torch.inf).softmax(dim=-1)
    attended = (weights.detach()[:, None] @ encoder_states)[:, 0]
    attentional = torch.tanh(self.combine(torch.cat([attended, state], dim=-1)))
    return self.output(attentional), state, attentional, weights


@AttentionDecoderStep.alternative("einsum")
def _(self, token, state, attentional, encoder_states, mask):
    """Names the axes."""
    state = self.cell(torch.cat((self.embedding(token), attentional), -1), state)
    scores = torch.einsum("bd,bid->bi", state, encoder_states)
    weights = torch.where(mask, scores, -torch.inf).softmax(-1)
    attended = torch.einsum("bi,bid->bd", weights, encoder_states)
    attentional = self.combine(torch.cat((attended, state), -1)).tanh()
    return self.output(attentional), state, attentional, weights


@AttentionDecoderStep.alternative("one sentence at a time")
def _(self, token, state, attentional, encoder_states, mask):
    """Loops over the batch and leaves the padding out altogether."""
    state = self.cell(torch.cat([self.embedding(token), attentional], dim=1), state)
    weights, attended = torch.zeros(mask.shape), []
    for b in range(len(token)):
        words = encoder_states[b][mask[b]]
        shares = torch.softmax(words @ state[b], dim=0)
        weights[b, mask[b]] = shares
        attended.append((shares[:, None] * words).sum(dim=0))
    attentional = torch.tanh(self.combine(torch.cat([torch.stack(attended), state], dim=1)))
    return self.output(attentional), state, attentional, weights


# ----------------------------------------------------------------------------------------------------- local_attention


def _local_attention(weights, centers, sigma):
    """Weights times a Gaussian window around each target's centre. Luong et al. 2015, equation 10."""
    distance = torch.arange(weights.shape[-1]) - centers[..., None]
    return weights * torch.exp(-(distance**2) / (2 * sigma**2))


local_attention = Exercise(
    "local_attention",
    reference=_local_attention,
    returns=("weights",),
    forbidden=READY_MADE,
    difficulty=2,
    minutes=12,
    extra=True,
    hints=(
        "How far is source position i from the centre of target position t? That is a table, "
        "(batch, n_target, n_source).",
        "`torch.arange(n_source) - centers[..., None]` is that table. The window is exp of minus its square over 2σ².",
    ),
)


def _sigma(draw):
    return 1.3 + draw.uniform(1).item()


@local_attention.aspect("window", points=1)
def _(answer, draw):
    """a bell around each centre, of width σ"""
    batch, n_target, n_source = draw.sizes(3, 3, 9)
    weights = draw.normal(batch, n_target, n_source).softmax(dim=-1)
    return answer(weights, draw.uniform(batch, n_target) * (n_source - 1), _sigma(draw))


@local_attention.aspect("at the centre", points=1)
def _(answer, draw):
    """a weight right at the centre stays what it was"""
    batch, n_target, n_source = draw.sizes(3, 3, 9)
    weights = draw.normal(batch, n_target, n_source).softmax(dim=-1)
    centers = draw.integers(n_source, batch, n_target)
    return answer(weights, centers.float(), _sigma(draw)).gather(-1, centers[..., None])


@local_attention.misconception("normalised again", fails=("window", "at the centre"))
def _(weights, centers, sigma):
    """The rows were made to sum to one again. Equation 10 of the paper does not do that: a centre far from everything
    that matches is allowed to find little."""
    distance = torch.arange(weights.shape[-1]) - centers[..., None]
    windowed = weights * torch.exp(-(distance**2) / (2 * sigma**2))
    return windowed / windowed.sum(dim=-1, keepdim=True)


@local_attention.misconception("a width other than 2σ²", fails=("window",))
def _(weights, centers, sigma):
    """The window has the wrong width: a Gaussian divides the squared distance by 2σ², twice the *variance*. Look
    whether σ itself is squared, whether the 2 is there, and whether it was squared along with σ."""
    distance = torch.arange(weights.shape[-1]) - centers[..., None]
    return weights * torch.exp(-(distance**2) / (2 * sigma))


@local_attention.variant("a width other than 2σ²", fails=("window",))
def _(weights, centers, sigma):
    """No 2."""
    distance = torch.arange(weights.shape[-1]) - centers[..., None]
    return weights * torch.exp(-(distance**2) / sigma**2)


@local_attention.variant("a width other than 2σ²", fails=("window",))
def _(weights, centers, sigma):
    """The 2 squared."""
    distance = torch.arange(weights.shape[-1]) - centers[..., None]
    return weights * torch.exp(-(distance**2) / (2 * sigma) ** 2)


@local_attention.misconception("no brackets around 2σ²", fails=("window",))
def _(weights, centers, sigma):
    """`x / 2 * sigma**2` is (x/2) · σ²: Python divides and multiplies from left to right, so a larger σ made the window
    narrower. Put brackets around everything below the fraction line."""
    distance = torch.arange(weights.shape[-1]) - centers[..., None]
    return weights * torch.exp(-(distance**2) / 2 * sigma**2)


@local_attention.misconception("no minus", fails=("window",))
def _(weights, centers, sigma):
    """The weights grow with the distance from the centre: the exponent lacks its minus."""
    distance = torch.arange(weights.shape[-1]) - centers[..., None]
    return weights * torch.exp(distance**2 / (2 * sigma**2))


@local_attention.misconception("distance not squared", fails=("window",))
def _(weights, centers, sigma):
    """The distance went into the exponent unsquared. That is a tent with a sharp peak; a Gaussian is a bell, flat at
    the centre, because it falls with the *square* of the distance."""
    distance = torch.arange(weights.shape[-1]) - centers[..., None]
    return weights * torch.exp(-distance.abs() / (2 * sigma**2))


@local_attention.misconception("the window alone", fails=("window", "at the centre"))
def _(weights, centers, sigma):
    """This is the window by itself: what the decoder had found by matching is gone. The window multiplies the weights
    that came in."""
    distance = torch.arange(weights.shape[-1]) - centers[..., None]
    return torch.exp(-(distance**2) / (2 * sigma**2))


@local_attention.misconception("counted from one", fails=("window", "at the centre"))
def _(weights, centers, sigma):
    """The window sits one position off: positions are counted from 0, as everywhere in Python."""
    distance = torch.arange(1, weights.shape[-1] + 1) - centers[..., None]
    return weights * torch.exp(-(distance**2) / (2 * sigma**2))


@local_attention.alternative("logarithms")
def _(weights, centers, sigma):
    """Adds the window to the logarithm of the weights."""
    positions = torch.arange(weights.shape[-1], dtype=weights.dtype).view(1, 1, -1)
    return (weights.log() - 0.5 * ((positions - centers.unsqueeze(-1)) / sigma).square()).exp()


@local_attention.alternative("a loop over source positions")
def _(weights, centers, sigma):
    """One column at a time, in double precision."""
    columns = [
        weights[..., i].double() * torch.exp(-((i - centers.double()) ** 2) / (2 * sigma**2))
        for i in range(weights.shape[-1])
    ]
    return torch.stack(columns, dim=-1)
