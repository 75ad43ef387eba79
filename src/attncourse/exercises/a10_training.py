"""Assignment 10: what a training step minimises, how fast and on what, and how a trained model writes.

Function bodies below stand in for a learner's: they use torch alone, and the argument names of the contract.
"""

import math
from collections.abc import Callable
from functools import lru_cache
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn

from attncourse import metrics
from attncourse.data import batch_by_tokens as share_out
from attncourse.exercises.answering import AspectFailed, Problem
from attncourse.exercises.core import Exercise
from attncourse.exercises.judge import arrives
from attncourse.exercises.observe import Draw, gradients
from attncourse.training.recipe import inverse_sqrt

READY_MADE = ("attncourse.metrics", "attncourse.training", "attncourse.decoding", "attncourse.transformer")


@lru_cache(maxsize=256)
def _told_apart(exercise: Exercise, aspect: str, seed: int, make: Callable[[Draw], Any], look: Callable) -> Any:
    """Inputs on which the mistakes that the aspect is to catch show, and no others: drawn until that is so.

    `make` draws the inputs, `look(answer, inputs)` is what the aspect shows of an answer.
    """
    codes = exercise.misconceptions + exercise.variants
    draw = Draw(seed, f"{exercise.name}/{aspect}/inputs")
    for attempt in range(200):
        inputs = make(draw.child(str(attempt)))
        right = look(exercise.reference, inputs)
        if all(torch.equal(_seen(look, code.answer, inputs), right) != (aspect in code.fails) for code in codes):
            return inputs
    raise AssertionError(f"{exercise.name}: no inputs for {aspect!r} tell its mistakes apart")


def _seen(look: Callable, answer: Callable, inputs: Any) -> Tensor:
    try:
        return look(answer, inputs)
    except Exception:
        return torch.tensor(math.nan)


# ------------------------------------------------------------------------------------------------ label_smoothed_loss

label_smoothed_loss = Exercise(
    "label_smoothed_loss",
    reference=lambda logits, target, smoothing, pad: metrics.token_loss(logits, target, pad, smoothing),
    returns=("loss",),
    forbidden=(*READY_MADE, "torch.nn.functional.cross_entropy", "torch.nn.CrossEntropyLoss"),
    numbers=True,
    difficulty=2,
    minutes=20,
    hints=(
        "A cross entropy has two parts, what ought to be and −log p. Write down what ought to be for a vocabulary of "
        "five: five numbers that sum to one.",
        "It is a mixture: 1 − ε of all on the truth, and ε spread evenly over the whole vocabulary. So the loss is a "
        "mixture, too: 1 − ε times −log p(truth), and ε times the mean of −log p over the vocabulary.",
        "`log_softmax`, then `gather` for the first part and `mean(dim=-1)` for the second: both (batch, n). Mix "
        "them, keep those with `target != pad`, all sentences together, and take their mean.",
    ),
)


def _answers(draw, padded=False):
    """(logits, target, pad), with no padding in the targets, or with some behind the sentences' ends."""
    batch, n, vocabulary = draw.sizes(3, 3, 8)
    pad = int(draw.integers(vocabulary, 1))
    target = draw.integers(vocabulary - 1, batch, n)
    target = target + (target >= pad)
    if padded:
        target = target.masked_fill(~draw.padding_mask(batch, n), pad)
    return 2 * draw.normal(batch, n, vocabulary), target, pad


def _share(draw):
    return 0.1 + 0.2 * float(draw.uniform(1))


def _twice(answer, draw, padded=False, scale=1.0):
    """Two losses: one number alone may be right by chance."""
    losses = []
    for name in ("one", "other"):
        logits, target, pad = _answers(draw.child(name), padded)
        losses.append(torch.as_tensor(answer(scale * logits, target, _share(draw), pad)).reshape(()))
    return torch.stack(losses)


@label_smoothed_loss.aspect("sharp targets", points=1)
def _(answer, draw):
    """with no smoothing it is the cross entropy, a mean over the tokens"""
    logits, target, pad = _answers(draw)
    return answer(logits, target, 0.0, pad)


@label_smoothed_loss.aspect("smoothed targets", points=2)
def _(answer, draw):
    """a share of the truth goes to the whole vocabulary, in equal parts"""
    return _twice(answer, draw)


@label_smoothed_loss.aspect("padding", points=2)
def _(answer, draw):
    """each real token counts the same, padding counts for nothing, smoothed or not"""
    return _twice(answer, draw, padded=True)


@label_smoothed_loss.aspect("large logits", points=1)
def _(answer, draw):
    """a probability that is too small to be written down still has a logarithm"""
    return _twice(answer, draw, scale=200.0)


@label_smoothed_loss.aspect("gradient", points=1, explain=arrives("logits"))
def _(answer, draw):
    """it can be learned from"""
    logits, target, pad = _answers(draw)
    logits.requires_grad_()
    return gradients(answer(logits, target, _share(draw), pad).reshape(1), [logits], draw)


SMOOTH = ("smoothed targets", "padding", "large logits", "gradient")
EVERY_LOSS = ("sharp targets", *SMOOTH)


@label_smoothed_loss.misconception("no smoothing", fails=SMOOTH)
def _(logits, target, smoothing, pad):
    """This is the plain cross entropy: `smoothing` has no effect on it. With smoothing, the truth ought to have
    a little less than everything."""
    log_p = logits.log_softmax(dim=-1)
    losses = -log_p.gather(-1, target[..., None])[..., 0]
    return losses[target != pad].mean()


@label_smoothed_loss.misconception("the truth gets nothing of what is spread", fails=SMOOTH)
def _(logits, target, smoothing, pad):
    """What ought to be does not sum to one: the truth has 1 − ε, and it also gets its part of the share that is spread
    over the *whole* vocabulary. Add up your targets for one token."""
    log_p = logits.log_softmax(dim=-1)
    wanted = torch.full_like(log_p, smoothing / logits.shape[-1]).scatter(-1, target[..., None], 1 - smoothing)
    losses = -(wanted * log_p).sum(dim=-1)
    return losses[target != pad].mean()


@label_smoothed_loss.misconception("spread over the others alone", fails=SMOOTH)
def _(logits, target, smoothing, pad):
    """ε was spread over the other V − 1 tokens. Some programs do that, and their losses cannot be compared with those
    of programs that spread it over all V, the truth among them, as Szegedy et al. (2016), torch and this contract
    do."""
    log_p = logits.log_softmax(dim=-1)
    true = -log_p.gather(-1, target[..., None])[..., 0]
    others = (-log_p.sum(dim=-1) - true) / (logits.shape[-1] - 1)
    losses = (1 - smoothing) * true + smoothing * others
    return losses[target != pad].mean()


@label_smoothed_loss.misconception("the shares exchanged", fails=EVERY_LOSS)
def _(logits, target, smoothing, pad):
    """The truth has ε and the rest has 1 − ε. `smoothing` is small, 0.1 as a rule, and it is what the truth gives
    away."""
    log_p = logits.log_softmax(dim=-1)
    true = -log_p.gather(-1, target[..., None])[..., 0]
    losses = smoothing * true - (1 - smoothing) * log_p.mean(dim=-1)
    return losses[target != pad].mean()


@label_smoothed_loss.misconception("ε for each token of the vocabulary", fails=SMOOTH)
def _(logits, target, smoothing, pad):
    """Each of the V tokens was given ε, so V·ε was spread where there is only ε. It is shared: ε / V for each, which is
    a mean over the vocabulary and not a sum."""
    log_p = logits.log_softmax(dim=-1)
    true = -log_p.gather(-1, target[..., None])[..., 0]
    losses = (1 - smoothing) * true - smoothing * log_p.sum(dim=-1)
    return losses[target != pad].mean()


@label_smoothed_loss.misconception("pads in the loss", fails=("padding",))
def _(logits, target, smoothing, pad):
    """The model is asked to predict padding, too. That is easy to learn and worth nothing, and the shorter the
    sentences of a batch, the better the loss looks. Take the real tokens, and then their mean."""
    log_p = logits.log_softmax(dim=-1)
    true = -log_p.gather(-1, target[..., None])[..., 0]
    return ((1 - smoothing) * true - smoothing * log_p.mean(dim=-1)).mean()


@label_smoothed_loss.misconception("padding in the divisor", fails=("padding",))
def _(logits, target, smoothing, pad):
    """The losses at padding are zero, as they should be, but the sum was divided by all the positions. So the loss
    of a sentence depends on how long its neighbours are. Divide by the number of real tokens."""
    log_p = logits.log_softmax(dim=-1)
    true = -log_p.gather(-1, target[..., None])[..., 0]
    losses = (1 - smoothing) * true - smoothing * log_p.mean(dim=-1)
    return (losses * (target != pad)).mean()


@label_smoothed_loss.misconception("padding in the smoothing", fails=("padding",))
def _(logits, target, smoothing, pad):
    """The first part leaves padding out and the second does not: at padded positions the model is still being pulled
    towards the uniform distribution. One mask for both."""
    real = target != pad
    log_p = logits.log_softmax(dim=-1)
    true = -log_p.gather(-1, target[..., None])[..., 0]
    return (1 - smoothing) * true[real].mean() - smoothing * log_p.mean(dim=-1).mean()


@label_smoothed_loss.variant("padding in the smoothing", fails=("padding",))
def _(logits, target, smoothing, pad):
    """Divided by the real tokens."""
    real = target != pad
    log_p = logits.log_softmax(dim=-1)
    true = -log_p.gather(-1, target[..., None])[..., 0]
    return ((1 - smoothing) * (true * real).sum() - smoothing * log_p.mean(dim=-1).sum()) / real.sum()


@label_smoothed_loss.misconception("a mean of means", fails=("padding",))
def _(logits, target, smoothing, pad):
    """Each sentence's mean was taken, and then the mean of those: a token of a short sentence counts for more than one
    of a long sentence. All real tokens together, one mean."""
    real = target != pad
    log_p = logits.log_softmax(dim=-1)
    true = -log_p.gather(-1, target[..., None])[..., 0]
    losses = ((1 - smoothing) * true - smoothing * log_p.mean(dim=-1)) * real
    return (losses.sum(dim=1) / real.sum(dim=1)).mean()


@label_smoothed_loss.misconception("a sum for the mean", fails=EVERY_LOSS)
def _(logits, target, smoothing, pad):
    """The losses were added up and not divided, so a batch of twice the tokens takes steps of twice the size. In nats
    *per token*, please."""
    log_p = logits.log_softmax(dim=-1)
    true = -log_p.gather(-1, target[..., None])[..., 0]
    losses = (1 - smoothing) * true - smoothing * log_p.mean(dim=-1)
    return losses[target != pad].sum()


@label_smoothed_loss.misconception("the logarithm of a softmax", fails=("large logits",))
def _(logits, target, smoothing, pad):
    """Softmax first and the logarithm afterwards: a probability below 1e-45 has become 0 by then, and its logarithm
    −∞. Smoothing asks for the logarithm of *every* token's probability, so this happens soon. `log_softmax` does both
    at once, and safely."""
    log_p = logits.softmax(dim=-1).log()
    true = -log_p.gather(-1, target[..., None])[..., 0]
    losses = (1 - smoothing) * true - smoothing * log_p.mean(dim=-1)
    return losses[target != pad].mean()


@label_smoothed_loss.misconception("cut off from the gradient", fails=("gradient",))
def _(logits, target, smoothing, pad):
    """The number is right, and nothing can be learned from it: `.item()`, `.detach()` and `float(...)` forget where a
    number came from. Return the tensor."""
    log_p = logits.log_softmax(dim=-1)
    true = -log_p.gather(-1, target[..., None])[..., 0]
    losses = (1 - smoothing) * true - smoothing * log_p.mean(dim=-1)
    return losses[target != pad].mean().item()


@label_smoothed_loss.alternative("a table of what ought to be")
def _(logits, target, smoothing, pad):
    """One row a token, which sums to one."""
    V = logits.shape[-1]
    wanted = (1 - smoothing) * torch.nn.functional.one_hot(target, V) + smoothing / V
    losses = torch.einsum("bnv,bnv->bn", wanted, -logits.log_softmax(dim=-1))
    real = (target != pad).float()
    return (losses * real).sum() / real.sum()


@label_smoothed_loss.alternative("the real tokens first, in float64")
def _(logits, target, smoothing, pad):
    """Selects before it computes."""
    real = target != pad
    log_p = logits[real].double() - logits[real].double().logsumexp(dim=-1, keepdim=True)
    true = log_p[torch.arange(len(log_p)), target[real]]
    return -((1 - smoothing) * true + smoothing * log_p.mean(dim=-1)).mean()


@label_smoothed_loss.alternative("a loop over sentences and positions")
def _(logits, target, smoothing, pad):
    """One token at a time."""
    total, count = torch.zeros(()), 0
    for row, words in zip(logits, target, strict=True):
        for scores, word in zip(row, words.tolist(), strict=True):
            if word != pad:
                log_p = scores.log_softmax(dim=0)
                total = total - (1 - smoothing) * log_p[word] - smoothing * log_p.mean()
                count += 1
    return total / count


# ------------------------------------------------------------------------------------------------------------- warmup


def _warmup(step, d_model, warmup_steps):
    return inverse_sqrt(step, warmup_steps) / math.sqrt(d_model * warmup_steps)


warmup = Exercise(
    "warmup",
    reference=_warmup,
    returns=("rate",),
    forbidden=READY_MADE,
    numbers=True,
    difficulty=1,
    minutes=8,
    hints=(
        "Two lines meet at `warmup_steps`. Write down both for a `warmup_steps` of 4, at the steps 1, 4 and 16.",
        "`step ** -0.5` falls, `step * warmup_steps ** -1.5` rises. At `warmup_steps` they are equal; which of the "
        "two is the smaller one before it, and which after it?",
    ),
)


def _times(got, expected):
    """Says by how much the worst rate is off."""
    worst = max(range(len(got)), key=lambda i: abs(math.log(got[i])) if got[i] > 0 else math.inf)
    return f"one of the rates is {got[worst]:.3g} times what it should be"


def _rates(answer, *settings):
    """Each rate, divided by the right one: rates are so small that differences between them say nothing."""
    return torch.stack([torch.as_tensor(answer(*s)).double().reshape(()) / _warmup(*s) for s in settings])


def _two_widths(draw):
    return [16 * (1 + int(k)) for k in draw.integers(30, 2)], 8 + int(draw.integers(40, 1))


@warmup.aspect("the first step", points=1, explain=_times)
def _(answer, draw):
    """the rate at step 1 is small, but not zero"""
    (d, other), w = _two_widths(draw)
    return _rates(answer, (1, d, w), (1, other, w + 5))


@warmup.aspect("rising", points=1, explain=_times)
def _(answer, draw):
    """a straight line up to `warmup_steps`"""
    (d, _), w = _two_widths(draw)
    return _rates(answer, *((step, d, w) for step in (2, w // 2, w - 1)))


@warmup.aspect("the peak", points=1, explain=_times)
def _(answer, draw):
    """at `warmup_steps` the highest rate"""
    (d, other), w = _two_widths(draw)
    return _rates(answer, (w, d, w), (w + 3, other, w + 3))


@warmup.aspect("falling", points=1, explain=_times)
def _(answer, draw):
    """then as one over the root of the step"""
    (d, _), w = _two_widths(draw)
    return _rates(answer, *((step, d, w) for step in (w + 1, 2 * w, 9 * w)))


@warmup.aspect("width", points=1)
def _(answer, draw):
    """a model four times as wide gets half the rate"""
    (d, _), w = _two_widths(draw)
    narrow, wide = (torch.as_tensor(answer(w + 2, width, w)).double() for width in (d, 4 * d))
    return (wide / narrow).reshape(1)


SHIFTED = ("the first step", "rising", "the peak", "falling")
EVERY_RATE = (*SHIFTED, "width")


@warmup.misconception("off by one: a step too far", fails=SHIFTED)
def _(step, d_model, warmup_steps):
    """The formula was asked about the step after this one. It counts from 1, and so does `step` here: nothing has to be
    added. (Where a loop counts from 0, the + 1 belongs in the loop.)"""
    step = step + 1
    return d_model**-0.5 * min(step**-0.5, step * warmup_steps**-1.5)


@warmup.misconception("off by one: a step behind", fails=SHIFTED)
def _(step, d_model, warmup_steps):
    """The formula was asked about the step before this one, so that the first step has no rate at all: 0 to the power
    −½ is not a number, and at a rate of 0 a batch is wasted. `step` counts from 1, as the formula does."""
    step = step - 1
    return d_model**-0.5 * min(step**-0.5, step * warmup_steps**-1.5)


@warmup.variant("off by one: a step behind", fails=SHIFTED)
def _(step, d_model, warmup_steps):
    """With the zero caught."""
    step = step - 1
    return d_model**-0.5 * min(max(step, 1) ** -0.5, step * warmup_steps**-1.5)


@warmup.misconception("the larger for the smaller", fails=("the first step", "rising", "falling"))
def _(step, d_model, warmup_steps):
    """This starts high, falls until `warmup_steps`, and rises for ever after: the two lines are right, and of the two
    the larger was taken. It is the smaller one that counts."""
    return d_model**-0.5 * max(step**-0.5, step * warmup_steps**-1.5)


@warmup.misconception("−½ for −1.5", fails=("the first step", "rising"))
def _(step, d_model, warmup_steps):
    """The rising line is too steep, and cut off at once by the falling one, so there is no warm-up. At `warmup_steps`
    both must be the same: w^−½ = w · w^?"""
    return d_model**-0.5 * min(step**-0.5, step * warmup_steps**-0.5)


@warmup.misconception("the width left out", fails=EVERY_RATE)
def _(step, d_model, warmup_steps):
    """The shape is right, the size is not: `d_model` has no effect. The wider a model, the smaller its steps, by the
    root of the width."""
    return min(step**-0.5, step * warmup_steps**-1.5)


@warmup.misconception("times the root of the width", fails=EVERY_RATE)
def _(step, d_model, warmup_steps):
    """Wider models get *larger* steps here. The exponent of `d_model` is −½: one over the root."""
    return d_model**0.5 * min(step**-0.5, step * warmup_steps**-1.5)


@warmup.misconception("a share of the peak", fails=EVERY_RATE)
def _(step, d_model, warmup_steps):
    """This is 1 at its highest: it is the schedule's shape, by which a rate of your own choice may be multiplied. What
    is asked for is the paper's formula, whose highest rate follows from `d_model` and `warmup_steps`."""
    return min(step / warmup_steps, (warmup_steps / step) ** 0.5)


@warmup.misconception("never falls", fails=("falling",))
def _(step, d_model, warmup_steps):
    """The rate stays at its peak. A warm-up is followed by a decline; here it goes as one over the root of the step."""
    return d_model**-0.5 * min(warmup_steps**-0.5, step * warmup_steps**-1.5)


@warmup.misconception("falls as 1/step", fails=("falling",))
def _(step, d_model, warmup_steps):
    """The decline is too steep: four times as many steps should leave half of the rate, and here they leave a
    quarter."""
    return (d_model * warmup_steps) ** -0.5 * min(step / warmup_steps, warmup_steps / step)


@warmup.alternative("two cases")
def _(step, d_model, warmup_steps):
    """One for each side of the peak."""
    peak = 1 / math.sqrt(d_model * warmup_steps)
    if step < warmup_steps:
        return peak * step / warmup_steps
    return peak * math.sqrt(warmup_steps / step)


@warmup.alternative("tensors")
def _(step, d_model, warmup_steps):
    """A tensor comes back."""
    step, warmup_steps = torch.tensor(float(step)), torch.tensor(float(warmup_steps))
    return torch.minimum(step.rsqrt(), step / warmup_steps**1.5) / math.sqrt(d_model)


# ---------------------------------------------------------------------------------------------------- batch_by_tokens

batch_by_tokens = Exercise(
    "batch_by_tokens",
    reference=share_out,
    returns=("batches",),
    forbidden=("attncourse.data", "attncourse.training"),
    lists=True,
    difficulty=2,
    minutes=20,
    hints=(
        "If you take the sentences from the shortest to the longest, how large is the rectangle of the batch that you "
        "are filling when one more comes in? Its length is then the newcomer's.",
        "`sorted(range(len(lengths)), key=lambda i: lengths[i])` gives the indices from the shortest sentence on. For "
        "each of them: (sentences in the last batch + 1) × its length is the new rectangle. Does it fit?",
        "If it does not fit, or there is no batch yet, open a new one; then append, in any case. A sentence that is "
        "longer than the budget needs no case of its own.",
    ),
)


def _rectangles(batches, lengths):
    """(sentences,): how large the rectangle is in which each lies, padding and all; sorted, as equals may swap."""
    held = [0] * len(lengths)
    for batch in batches:
        if not batch:
            raise AspectFailed(Problem("unusable", "one of the batches is empty"))
        for i in batch:
            if not isinstance(i, int) or not 0 <= i < len(lengths):
                raise AspectFailed(
                    Problem("unusable", f"there is no sentence {i!r}: indices go from 0 to {len(lengths) - 1}")
                )
        for i in batch:
            held[i] += len(batch) * max(lengths[j] for j in batch)
    return torch.tensor([held[i] for i in sorted(range(len(lengths)), key=lambda i: (lengths[i], held[i]))])


def _tokens(got, expected):
    """Says of rectangles whether they are too large, or too small, or leave a sentence out."""
    if (got == 0).any():
        return f"{int((got == 0).sum())} of the sentences are in no batch"
    if got.max() > expected.max():
        return f"the largest batch has {got.max()} tokens with its padding; {expected.max()} is the most that is needed"
    if got.sum() < expected.sum():
        return f"batches could be fuller: the largest has {got.max()} tokens, and {expected.max()} would fit"
    return "the sentences are not in the batches that they should share: like lengths together, as many as fit"


@batch_by_tokens.aspect("equal lengths", points=1, explain=_tokens)
def _(answer, draw):
    """as many sentences of one length as fit, and no fewer where they fit exactly"""
    length, per_batch = draw.sizes(2, 3, 8)
    lengths = [length] * (3 * per_batch + 1)
    return _rectangles(answer(lengths, per_batch * length), lengths)


def _rising(draw):
    """Even lengths from short to long, of which some are equal; with an odd budget no batch is exactly full."""
    steps = draw.integers(3, 24).tolist()
    return [4 + 2 * sum(steps[: i + 1]) for i in range(24)]


def _any_order(draw):
    lengths = _rising(draw)
    return [lengths[i] for i in torch.randperm(24, generator=draw.generator).tolist()]


def _shared_out(answer, lengths):
    return _rectangles(answer(lengths, 3 * max(lengths) + 1), lengths)


@batch_by_tokens.aspect("the padding counts", points=2, explain=_tokens)
def _(answer, draw):
    """a batch is as large as its rectangle: how many sentences × the longest of them"""
    lengths = _told_apart(batch_by_tokens, "the padding counts", draw.seed, _rising, _shared_out)
    return _shared_out(answer, lengths)


@batch_by_tokens.aspect("like with like", points=2, explain=_tokens)
def _(answer, draw):
    """sentences that come in any order are sorted by length, so that little is padding"""
    lengths = _told_apart(batch_by_tokens, "like with like", draw.seed, _any_order, _shared_out)
    return _shared_out(answer, lengths)


@batch_by_tokens.aspect("longer than the budget", points=1, explain=_tokens)
def _(answer, draw):
    """a sentence that is longer than the budget is a batch of its own, wherever it comes"""
    short, k = draw.sizes(2, 3, 7)
    lengths = [2 * short] * (2 * k - 1) + [2 * short * k + 50, 2 * short * k + 60]
    budget = 2 * short * k + 2 * short - 1
    longs = [budget + 4, budget + 8]
    return torch.cat([_rectangles(answer(sentences, budget), sentences) for sentences in (lengths, longs)])


EVERY_BATCH = ("equal lengths", "the padding counts", "like with like", "longer than the budget")
UNEQUAL = ("the padding counts", "like with like")


@batch_by_tokens.misconception("the padding is not counted", fails=UNEQUAL)
def _(lengths, batch_tokens):
    """The lengths in a batch were added up. But a batch is a rectangle: short sentences are filled up to the longest,
    and the memory that they take is rows × longest. These batches are larger than the budget."""
    batches: list = [[]]
    full = 0
    for i in sorted(range(len(lengths)), key=lambda i: lengths[i]):
        if batches[-1] and full + lengths[i] > batch_tokens:
            batches.append([])
            full = 0
        batches[-1].append(i)
        full += lengths[i]
    return batches


@batch_by_tokens.misconception("not sorted", fails=("like with like",))
def _(lengths, batch_tokens):
    """The sentences were taken as they come, so that long and short ones share batches, and the short ones are mostly
    padding. Take them from the shortest to the longest."""
    batches: list = []
    for i in range(len(lengths)):
        longest = max([lengths[i]] + [lengths[j] for j in batches[-1]]) if batches else 0
        if not batches or (len(batches[-1]) + 1) * longest > batch_tokens:
            batches.append([])
        batches[-1].append(i)
    return batches


@batch_by_tokens.misconception("one short of full", fails=("equal lengths",))
def _(lengths, batch_tokens):
    """A batch that would have been exactly full was closed one sentence too early: the budget is how many tokens it
    holds *at most*. > or ≥?"""
    batches: list = []
    for i in sorted(range(len(lengths)), key=lambda i: lengths[i]):
        if not batches or (len(batches[-1]) + 1) * lengths[i] >= batch_tokens:
            batches.append([])
        batches[-1].append(i)
    return batches


@batch_by_tokens.misconception("the newcomer's length is not looked at", fails=(*UNEQUAL, "longer than the budget"))
def _(lengths, batch_tokens):
    """The rectangle was computed with the longest sentence that is in the batch already. The one that comes in is at
    least as long, and when it is in, all the others are padded to *its* length."""
    batches: list = []
    for i in sorted(range(len(lengths)), key=lambda i: lengths[i]):
        if not batches or (len(batches[-1]) + 1) * lengths[batches[-1][-1]] > batch_tokens:
            batches.append([])
        batches[-1].append(i)
    return batches


@batch_by_tokens.misconception("one too many", fails=EVERY_BATCH)
def _(lengths, batch_tokens):
    """A batch was closed only once it was too large. Look before you append: would it still fit with this one?"""
    batches: list = []
    for i in sorted(range(len(lengths)), key=lambda i: lengths[i]):
        if not batches or len(batches[-1]) * max(lengths[j] for j in batches[-1]) > batch_tokens:
            batches.append([])
        batches[-1].append(i)
    return batches


@batch_by_tokens.misconception("the last batch is lost", fails=EVERY_BATCH)
def _(lengths, batch_tokens):
    """When the sentences are all dealt out, a batch is still in your hands. It was never put down, so the longest
    sentences are never trained on."""
    batches: list = []
    batch: list = []
    for i in sorted(range(len(lengths)), key=lambda i: lengths[i]):
        if batch and (len(batch) + 1) * lengths[i] > batch_tokens:
            batches.append(batch)
            batch = []
        batch.append(i)
    return batches


@batch_by_tokens.misconception("drops what is too long", fails=("longer than the budget",))
def _(lengths, batch_tokens):
    """Sentences longer than the budget have vanished. A loader that drops data in silence is worse than one that needs
    a little more memory: give such a sentence a batch of its own."""
    batches: list = []
    for i in sorted(range(len(lengths)), key=lambda i: lengths[i]):
        if lengths[i] > batch_tokens:
            continue
        if not batches or (len(batches[-1]) + 1) * lengths[i] > batch_tokens:
            batches.append([])
        batches[-1].append(i)
    return batches


@batch_by_tokens.misconception("an empty batch", fails=("longer than the budget",))
def _(lengths, batch_tokens):
    """A batch was closed when nothing was in it yet, because the first sentence alone is too long. An empty batch
    cannot be padded, nor can its loss be averaged."""
    batches: list = []
    batch: list = []
    for i in sorted(range(len(lengths)), key=lambda i: lengths[i]):
        if (len(batch) + 1) * lengths[i] > batch_tokens:
            batches.append(batch)
            batch = []
        batch.append(i)
    return [*batches, batch]


@batch_by_tokens.misconception("the same number in every batch", fails=(*UNEQUAL, "longer than the budget"))
def _(lengths, batch_tokens):
    """All batches have as many sentences as the longest ones allow. That wastes what short sentences would leave room
    for: how many fit depends on how long these are."""
    order = sorted(range(len(lengths)), key=lambda i: lengths[i])
    n = max(1, batch_tokens // max(lengths))
    return [order[i : i + n] for i in range(0, len(order), n)]


@batch_by_tokens.misconception("lengths for indices", fails=EVERY_BATCH)
def _(lengths, batch_tokens):
    """The batches hold lengths. Nobody can fetch a sentence by its length: return where each stands in `lengths`."""
    batches: list = []
    for length in sorted(lengths):
        if not batches or (len(batches[-1]) + 1) * length > batch_tokens:
            batches.append([])
        batches[-1].append(length)
    return batches


@batch_by_tokens.alternative("a batch in the hand")
def _(lengths, batch_tokens):
    """Put down when it is full, and once more at the end."""
    batches: list = []
    batch: list = []
    for length, i in sorted((length, i) for i, length in enumerate(lengths)):
        if batch and (len(batch) + 1) * length > batch_tokens:
            batches.append(tuple(batch))
            batch = []
        batch.append(i)
    return [*batches, batch] if batch else batches


@batch_by_tokens.alternative("torch's argsort, and tensors come back")
def _(lengths, batch_tokens):
    """Cuts slices out of the sorted indices."""
    order = torch.tensor(lengths).argsort(stable=True)
    batches, start = [], 0
    for end in range(1, len(order) + 1):
        if end == len(order) or (end + 1 - start) * lengths[order[end]] > batch_tokens:
            batches.append(order[start:end])
            start = end
    return batches


# ------------------------------------------------------------------------------------------------------ greedy_decode


def _greedy_decode(next_logits, n_sentences, bos, eos, pad, max_length):
    tokens = torch.full((n_sentences, 1), bos)
    finished = torch.zeros(n_sentences, dtype=torch.bool)
    while tokens.shape[1] <= max_length and not finished.all():
        best = next_logits(tokens).argmax(dim=-1).masked_fill(finished, pad)
        tokens = torch.cat([tokens, best[:, None]], dim=1)
        finished = finished | (best == eos)
    rest = torch.full((n_sentences, max_length + 1 - tokens.shape[1]), pad)
    return torch.cat([tokens[:, 1:], rest], dim=1)


greedy_decode = Exercise(
    "greedy_decode",
    reference=_greedy_decode,
    returns=("tokens",),
    forbidden=READY_MADE,
    difficulty=2,
    minutes=20,
    hints=(
        "Which sentences have ended? Keep a boolean for each of them, and look at it twice: when a token is written, "
        "and when you ask whether to go on.",
        "Begin with `tokens` of shape (n_sentences, 1), all <bos>. Each round: `next_logits(tokens)`, argmax over the "
        "vocabulary, pad in place of it where the sentence has already ended, and append a column.",
        "Update `finished` with `|` after the new column is made, so that the <eos> itself is still written. When all "
        "have ended, stop; cut off the column of <bos>, and fill up with pad to `max_length` columns.",
    ),
)


class _Writer:
    """A model that writes a text of its own for each sentence, and says <eos> first as token number `ends[b]`.

    It says it once more two tokens later: an end that is taken back then would show.
    """

    def __init__(self, draw: Draw, ends: list[int], max_length: int):
        vocabulary = 9
        self.bos, self.eos, self.pad = draw.sizes(3, 0, vocabulary - 1)
        self.ends, self.calls = torch.tensor(ends), 0
        self.by_place = draw.normal(max_length + 1, len(ends), vocabulary)
        self.by_past = draw.normal(max_length + 1, vocabulary, vocabulary)
        self.by_place[:, :, [self.eos, self.pad, self.bos]] = -100.0
        self.by_past[:, :, [self.eos, self.pad, self.bos]] = 0.0

    def __call__(self, tokens: Tensor) -> Tensor:
        batch, n = self.by_place.shape[1], tokens.shape[1]
        if tokens.shape[0] != batch or n > len(self.by_place):
            raise ValueError(f"tokens: got shape {tuple(tokens.shape)}, expected {batch} sentences, none too long")
        self.calls += 1
        past = sum(4 * self.by_past[j][tokens[:, j]] for j in range(n))               # (batch, vocabulary)
        logits = self.by_place[n - 1] + past
        logits[(self.ends == n) | (self.ends + 2 == n), self.eos] = 100.0
        return logits

    def write(self, answer: Any, max_length: int) -> Tensor:
        return answer(self, len(self.ends), self.bos, self.eos, self.pad, max_length)


@greedy_decode.aspect("tokens", points=2)
def _(answer, draw):
    """at each step the likeliest token, given all that was written before"""
    batch, n = draw.sizes(2, 3, 6)
    return _Writer(draw, [99] * batch, n).write(answer, n)


@greedy_decode.aspect("the ends", points=2)
def _(answer, draw):
    """each sentence ends with its own <eos>, and after it there is padding"""
    ends = [1 + e for e in draw.sizes(3, 0, 5)]
    return _Writer(draw, ends, 8).write(answer, 8)


@greedy_decode.aspect("no step for nothing", points=1)
def _(answer, draw):
    """when all have ended the model is not asked any more"""
    ends = [1 + e for e in draw.sizes(3, 0, 5)]
    writer = _Writer(draw, ends, 9)
    writer.write(answer, 9)
    return torch.tensor(writer.calls)


@greedy_decode.aspect("one sentence", points=1)
def _(answer, draw):
    """a single sentence is a batch of one, and one that never ends is cut at `max_length`"""
    (n,) = draw.sizes(1, 7, 9)
    return _Writer(draw, [99], n).write(answer, n)


@greedy_decode.misconception("runs past <eos>", fails=("the ends", "no step for nothing"))
def _(next_logits, n_sentences, bos, eos, pad, max_length):
    """Sentences go on after their <eos>. The model does not stop by itself: whatever it is asked, it answers with some
    token. Remember which sentences have ended, and write padding there."""
    tokens = torch.full((n_sentences, 1), bos)
    for _ in range(max_length):
        best = next_logits(tokens).argmax(dim=-1)
        tokens = torch.cat([tokens, best[:, None]], dim=1)
    return tokens[:, 1:]


@greedy_decode.variant("runs past <eos>", fails=("the ends",))
def _(next_logits, n_sentences, bos, eos, pad, max_length):
    """Until all have said <eos>, and filled up."""
    tokens = torch.full((n_sentences, 1), bos)
    while tokens.shape[1] <= max_length and not (tokens == eos).any(dim=1).all():
        best = next_logits(tokens).argmax(dim=-1)
        tokens = torch.cat([tokens, best[:, None]], dim=1)
    rest = torch.full((n_sentences, max_length + 1 - tokens.shape[1]), pad)
    return torch.cat([tokens[:, 1:], rest], dim=1)


@greedy_decode.misconception("the first <eos> ends all", fails=("the ends", "no step for nothing"))
def _(next_logits, n_sentences, bos, eos, pad, max_length):
    """As soon as one sentence had ended, writing stopped for all of them, in the middle of their words. Stop when *all*
    have ended: any or all?"""
    tokens = torch.full((n_sentences, 1), bos)
    for _ in range(max_length):
        best = next_logits(tokens).argmax(dim=-1)
        tokens = torch.cat([tokens, best[:, None]], dim=1)
        if (best == eos).any():
            break
    rest = torch.full((n_sentences, max_length + 1 - tokens.shape[1]), pad)
    return torch.cat([tokens[:, 1:], rest], dim=1)


@greedy_decode.misconception("never stops early", fails=("no step for nothing",))
def _(next_logits, n_sentences, bos, eos, pad, max_length):
    """What comes back is right, but the model was asked `max_length` times, although all sentences had ended long
    before. With a limit of 150 and captions of 15 that is ten times the cost."""
    tokens = torch.full((n_sentences, 1), bos)
    finished = torch.zeros(n_sentences, dtype=torch.bool)
    for _ in range(max_length):
        best = next_logits(tokens).argmax(dim=-1).masked_fill(finished, pad)
        tokens = torch.cat([tokens, best[:, None]], dim=1)
        finished = finished | (best == eos)
    return tokens[:, 1:]


@greedy_decode.misconception(
    "only the last token is read", fails=("tokens", "the ends", "no step for nothing", "one sentence")
)
def _(next_logits, n_sentences, bos, eos, pad, max_length):
    """The model was shown the last token alone, and so it thinks each time that the sentence begins there. Without a
    cache it remembers nothing: `next_logits` wants all that is written so far, <bos> in front."""
    token = torch.full((n_sentences, 1), bos)
    finished = torch.zeros(n_sentences, dtype=torch.bool)
    columns = []
    for _ in range(max_length):
        best = next_logits(token).argmax(dim=-1).masked_fill(finished, pad)
        token = best[:, None]
        columns.append(best)
        finished = finished | (best == eos)
        if finished.all():
            break
    columns += [torch.full((n_sentences,), pad)] * (max_length - len(columns))
    return torch.stack(columns, dim=1)


@greedy_decode.misconception("<bos> comes along", fails=("tokens", "the ends", "one sentence"))
def _(next_logits, n_sentences, bos, eos, pad, max_length):
    """The <bos> that you put in front came back as the first token. It was the model's starting signal, not something
    that it wrote."""
    tokens = torch.full((n_sentences, 1), bos)
    finished = torch.zeros(n_sentences, dtype=torch.bool)
    for _ in range(max_length):
        best = next_logits(tokens).argmax(dim=-1).masked_fill(finished, pad)
        tokens = torch.cat([tokens, best[:, None]], dim=1)
        finished = finished | (best == eos)
        if finished.all():
            break
    rest = torch.full((n_sentences, max_length + 1 - tokens.shape[1]), pad)
    return torch.cat([tokens, rest], dim=1)[:, :max_length]


@greedy_decode.variant("<bos> comes along", fails=("tokens", "the ends", "one sentence"))
def _(next_logits, n_sentences, bos, eos, pad, max_length):
    """Beside all the others."""
    tokens = torch.full((n_sentences, 1), bos)
    finished = torch.zeros(n_sentences, dtype=torch.bool)
    for _ in range(max_length):
        best = next_logits(tokens).argmax(dim=-1).masked_fill(finished, pad)
        tokens = torch.cat([tokens, best[:, None]], dim=1)
        finished = finished | (best == eos)
        if finished.all():
            break
    rest = torch.full((n_sentences, max_length + 1 - tokens.shape[1]), pad)
    return torch.cat([tokens, rest], dim=1)


@greedy_decode.misconception("<eos> itself is left out", fails=("the ends",))
def _(next_logits, n_sentences, bos, eos, pad, max_length):
    """Padding stands where <eos> should stand. A sentence that ended by itself and one that was cut off then look the
    same. Write the <eos>, and only what comes after it is padding: update `finished` after the token is written."""
    tokens = torch.full((n_sentences, 1), bos)
    finished = torch.zeros(n_sentences, dtype=torch.bool)
    for _ in range(max_length):
        best = next_logits(tokens).argmax(dim=-1)
        finished = finished | (best == eos)
        tokens = torch.cat([tokens, best.masked_fill(finished, pad)[:, None]], dim=1)
        if finished.all():
            break
    rest = torch.full((n_sentences, max_length + 1 - tokens.shape[1]), pad)
    return torch.cat([tokens[:, 1:], rest], dim=1)


@greedy_decode.misconception("starts with padding", fails=("tokens", "the ends", "one sentence"))
def _(next_logits, n_sentences, bos, eos, pad, max_length):
    """The model was started with something else than <bos>. It has learned what follows a <bos>, and nothing about
    what follows padding."""
    tokens = torch.full((n_sentences, 1), pad)
    finished = torch.zeros(n_sentences, dtype=torch.bool)
    for _ in range(max_length):
        best = next_logits(tokens).argmax(dim=-1).masked_fill(finished, pad)
        tokens = torch.cat([tokens, best[:, None]], dim=1)
        finished = finished | (best == eos)
        if finished.all():
            break
    rest = torch.full((n_sentences, max_length + 1 - tokens.shape[1]), pad)
    return torch.cat([tokens[:, 1:], rest], dim=1)


@greedy_decode.misconception("one step short", fails=("tokens", "one sentence"))
def _(next_logits, n_sentences, bos, eos, pad, max_length):
    """The last place stays empty although the sentence had not ended: <bos> was counted as one of the `max_length`
    tokens. It is not written by the model."""
    tokens = torch.full((n_sentences, 1), bos)
    finished = torch.zeros(n_sentences, dtype=torch.bool)
    while tokens.shape[1] < max_length and not finished.all():
        best = next_logits(tokens).argmax(dim=-1).masked_fill(finished, pad)
        tokens = torch.cat([tokens, best[:, None]], dim=1)
        finished = finished | (best == eos)
    rest = torch.full((n_sentences, max_length + 1 - tokens.shape[1]), pad)
    return torch.cat([tokens[:, 1:], rest], dim=1)


@greedy_decode.misconception("squeezed axes", fails=("one sentence",))
def _(next_logits, n_sentences, bos, eos, pad, max_length):
    """`squeeze()` removes every axis of length one, the batch's too when there is one sentence in it. Keep the axes."""
    tokens = torch.full((n_sentences, 1), bos)
    finished = torch.zeros(n_sentences, dtype=torch.bool)
    for _ in range(max_length):
        best = next_logits(tokens).argmax(dim=-1).masked_fill(finished, pad)
        tokens = torch.cat([tokens, best[:, None]], dim=1)
        finished = finished | (best == eos)
        if finished.all():
            break
    rest = torch.full((n_sentences, max_length + 1 - tokens.shape[1]), pad)
    return torch.cat([tokens[:, 1:], rest], dim=1).squeeze()


@greedy_decode.alternative("written into a table of padding")
def _(next_logits, n_sentences, bos, eos, pad, max_length):
    """All the room is there from the beginning."""
    tokens = torch.full((n_sentences, max_length + 1), pad)
    tokens[:, 0] = bos
    open_ = torch.ones(n_sentences, dtype=torch.bool)
    for t in range(max_length):
        best = next_logits(tokens[:, : t + 1]).argmax(dim=-1)
        tokens[open_, t + 1] = best[open_]
        open_ = open_ & (best != eos)
        if not open_.any():
            break
    return tokens[:, 1:]


@greedy_decode.alternative("lists, sentence by sentence")
def _(next_logits, n_sentences, bos, eos, pad, max_length):
    """One column for all, then each sentence by itself."""
    written = [[bos] for _ in range(n_sentences)]
    for _ in range(max_length):
        if all(eos in row for row in written):
            break
        for row, logits in zip(written, next_logits(torch.tensor(written)), strict=True):
            row.append(pad if eos in row else int(torch.argmax(logits)))
    return torch.tensor([row[1:] + [pad] * (max_length + 1 - len(row)) for row in written])


# -------------------------------------------------------------------------------------------------------- beam_search


def _beam_search(next_log_p, n_beams, length_penalty, bos, eos, max_length):
    open_, finished = [([bos], 0.0)], []
    for _ in range(max_length):
        log_p = next_log_p(torch.tensor([tokens for tokens, _ in open_])).tolist()        # (n_open, vocabulary)
        longer = [
            ([*tokens, v], total + log_p[i][v]) for i, (tokens, total) in enumerate(open_) for v in range(len(log_p[i]))
        ]
        kept = sorted(longer, key=lambda hypothesis: hypothesis[1], reverse=True)[:n_beams]
        finished += [hypothesis for hypothesis in kept if hypothesis[0][-1] == eos]
        open_ = [hypothesis for hypothesis in kept if hypothesis[0][-1] != eos]
        if not open_:
            break
    scored = [(total / ((5 + len(tokens) - 1) / 6) ** length_penalty, tokens) for tokens, total in finished + open_]
    score, tokens = max(scored)
    return torch.tensor(tokens[1:]), score


beam_search = Exercise(
    "beam_search",
    reference=_beam_search,
    returns=("tokens", "score"),
    forbidden=READY_MADE,
    numbers=True,
    difficulty=3,
    minutes=40,
    hints=(
        "Keep two lists of (tokens, total): the open hypotheses, at first one that holds <bos> and 0.0, and those that "
        "have ended. Each round makes every continuation of every open one and keeps the `n_beams` with the largest "
        "totals.",
        "A continuation's total is its hypothesis' total plus the log-probability of the new token. Put the "
        "continuations of all hypotheses into one list, sort it once, cut it at `n_beams`, and only then look which "
        "of those end in <eos>.",
        "At the end everything competes, ended or cut off, by total / ((5 + n) / 6) ** length_penalty, where n counts "
        "the tokens without <bos>. Totals are negative: a larger divisor makes a score better.",
    ),
)


# How likely which letter is next, after the letters before the colon; a point is <eos>. What is not listed shares the
# rest. The right way is b e c: neither its first word nor its second is the likeliest. Each of the known mistakes goes
# astray in a way of its own: greedily to a, beam by beam to c, by likely last words to b d f.
_WAYS = {"": "a .45  b .4  c .1", "b": "d .5  e .475", "be": "c .95", "bec": ". .93", "bd": "f .4"}
_TREES = {
    # What could end at once is not what greedy decoding follows, and would be better than what it finds.
    "one": _WAYS | {"": "a .45  . .35  b .1", "a": ". .6"},
    "several": _WAYS
    | {"": "a .43  b .4  c .14", "a": ". .27  d .2  e .2", "bdf": ". .995"}
    | {"c": "d .99", "cd": "e .96", "cde": ". .96"},
    "penalty": _WAYS
    | {"": "a .41  b .38  . .17", "a": "d .5  . .47", "bec": ". .97"}
    | {"bd": "f .25", "bdf": "a .8  . .1", "bdfa": "b .75", "bdfab": ". .99"},
    # Two beams: c d f is best and falls out at once; b d f wins where an ended hypothesis makes room for another.
    "narrow": {"": "a .5  b .3  c .15", "a": ". .35  d .3  e .15", "b": "d .35  e .3", "bd": "f .98", "bdf": ". .98"}
    | {"c": "d .98", "cd": "f .98", "cdf": ". .98"},
    "nobody": _WAYS
    | {"": "a .45  b .4  c .07", "a": "f .333  d .3  e .3", "bec": "f .93", "bdf": "a .995"}
    | {"c": "c .99", "cc": "c .99", "ccc": "c .95"},
}


class _Oracle:
    """A model of one sentence, by a tree: which tokens stand for its letters is drawn, and a little noise."""

    def __init__(self, draw: Draw, tree: str):
        self.tree, self.vocabulary = _TREES[tree], 8
        names = torch.randperm(self.vocabulary, generator=draw.generator).tolist()
        self.bos, self.letters = names[0], dict(zip(names[1:], ".abcdef", strict=True))
        self.tokens = {letter: token for token, letter in self.letters.items()}
        self.eos, self.may_end = self.tokens["."], tree != "nobody"
        self.noise = 0.005 * draw.normal(8, self.vocabulary)

    def __call__(self, tokens: Tensor) -> Tensor:
        if tokens.ndim != 2 or not 1 <= tokens.shape[1] <= 7 or tokens.is_floating_point():
            raise ValueError(f"tokens: got {tokens.dtype} of shape {tuple(tokens.shape)}, expected (n, 1 to 6) tokens")
        logits = torch.stack([self._after(row) for row in tokens.tolist()])          # (n_hypotheses, vocabulary)
        return (logits + self.noise[tokens.shape[1]]).log_softmax(dim=-1)

    def _after(self, row: list[int]) -> Tensor:
        said = "".join(self.letters.get(token, "?") for token in row[1:])
        listed = self.tree.get(said, "").split() if row[0] == self.bos else []
        if "." in said:  # nobody needs to ask; who does hears what would win
            listed = ["a", ".99"]
        known = {self.tokens[letter]: float(p) for letter, p in zip(listed[::2], listed[1::2], strict=True)}
        p = torch.full((self.vocabulary,), (1 - sum(known.values())) / (self.vocabulary - len(known)))
        p[self.eos], p[self.bos] = 1e-3 if self.may_end else 1e-12, 1e-12
        p[list(known)] = torch.tensor(list(known.values()))
        return p.log()


def _search(answer, draw, tree, n_beams, penalty, max_length):
    """(max_length + 1,): what was written, filled up with −1."""
    oracle = _Oracle(draw, tree)
    tokens, _ = answer(oracle, n_beams, penalty, oracle.bos, oracle.eos, max_length)
    if tokens.ndim != 1 or len(tokens) > max_length + 1:
        raise AspectFailed(Problem("unusable", f"tokens of shape {tuple(tokens.shape)}, expected one row of them"))
    return nn.functional.pad(tokens, (0, max_length + 1 - len(tokens)), value=-1)


def _texts(got, expected):
    got, expected = (" ".join(str(int(token)) for token in row if token >= 0) for row in (got, expected))
    return f"wrote {got or 'nothing'}, expected {expected}"


@beam_search.aspect("one beam", points=1, explain=_texts)
def _(answer, draw):
    """with one beam it is greedy decoding"""
    return _search(answer, draw, "one", 1, 0.0, 6)


@beam_search.aspect("several beams", points=2, explain=_texts)
def _(answer, draw):
    """finds what greedy decoding misses"""
    return _search(answer, draw, "several", 4, 0.0, 6)


@beam_search.aspect("length penalty", points=2, explain=_texts)
def _(answer, draw):
    """a long hypothesis is not punished for its many factors"""
    return _search(answer, draw, "penalty", 4, 0.95 + 0.1 * float(draw.uniform(1)), 6)


@beam_search.aspect("nobody ends", points=1, explain=_texts)
def _(answer, draw):
    """what is still open at `max_length` competes as it is"""
    return _search(answer, draw, "nobody", 3, 0.6, 4)


@beam_search.aspect("no more than the beams", points=1, explain=_texts)
def _(answer, draw):
    """what has fallen out stays out, and with each hypothesis that ends the beam gets narrower"""
    return _search(answer, draw, "narrow", 2, 1.5, 6)


@beam_search.aspect("score", points=1)
def _(answer, draw):
    """the total, divided by the penalty, where every token that was written counts"""
    oracle = _Oracle(draw, "several")
    return answer(oracle, 4, 0.7 + 0.2 * float(draw.uniform(1)), oracle.bos, oracle.eos, 6)[1]


EVERY_SEARCH = ("one beam", "several beams", "length penalty", "nobody ends", "no more than the beams")
WIDE = ("several beams", "length penalty", "nobody ends", "score")


@beam_search.misconception("the penalty's sign", fails=("length penalty", "score"))
def _(next_log_p, n_beams, length_penalty, bos, eos, max_length):
    """The total was *multiplied* by the penalty. Totals are negative, so this makes long hypotheses worse still,
    whereas the penalty is there to make up for their many factors. It divides."""
    open_, finished = [([bos], 0.0)], []
    for _ in range(max_length):
        log_p = next_log_p(torch.tensor([tokens for tokens, _ in open_])).tolist()
        longer = [(o[0] + [v], o[1] + p) for o, row in zip(open_, log_p, strict=True) for v, p in enumerate(row)]
        kept = sorted(longer, key=lambda h: -h[1])[:n_beams]
        finished += [h for h in kept if h[0][-1] == eos]
        open_ = [h for h in kept if h[0][-1] != eos]
        if not open_:
            break
    score, best = max((h[1] * ((4 + len(h[0])) / 6) ** length_penalty, h[0]) for h in finished + open_)
    return torch.tensor(best[1:]), score


@beam_search.misconception("no length penalty", fails=("length penalty", "score"))
def _(next_log_p, n_beams, length_penalty, bos, eos, max_length):
    """The totals were compared as they are. Each token makes a total smaller, so short hypotheses win; that is what
    `length_penalty` is there to make good, and here it has no effect."""
    open_, finished = [([bos], 0.0)], []
    for _ in range(max_length):
        log_p = next_log_p(torch.tensor([tokens for tokens, _ in open_])).tolist()
        longer = [(o[0] + [v], o[1] + p) for o, row in zip(open_, log_p, strict=True) for v, p in enumerate(row)]
        kept = sorted(longer, key=lambda h: -h[1])[:n_beams]
        finished += [h for h in kept if h[0][-1] == eos]
        open_ = [h for h in kept if h[0][-1] != eos]
        if not open_:
            break
    score, best = max((h[1], h[0]) for h in finished + open_)
    return torch.tensor(best[1:]), score


@beam_search.misconception("the first to end wins", fails=("several beams", "length penalty", "score"))
def _(next_log_p, n_beams, length_penalty, bos, eos, max_length):
    """The search was over as soon as one hypothesis had ended. One that ends later may have the better score: let the
    others have their chance."""
    open_ = [([bos], 0.0)]
    for _ in range(max_length):
        log_p = next_log_p(torch.tensor([tokens for tokens, _ in open_])).tolist()
        longer = [(o[0] + [v], o[1] + p) for o, row in zip(open_, log_p, strict=True) for v, p in enumerate(row)]
        open_ = sorted(longer, key=lambda h: -h[1])[:n_beams]
        ended = [h for h in open_ if h[0][-1] == eos]
        if ended:
            best, total = ended[0]
            return torch.tensor(best[1:]), total / ((4 + len(best)) / 6) ** length_penalty
    score, best = max((h[1] / ((4 + len(h[0])) / 6) ** length_penalty, h[0]) for h in open_)
    return torch.tensor(best[1:]), score


@beam_search.misconception(
    "runs past <eos>",
    fails=("one beam", "several beams", "length penalty", "no more than the beams", "score"),
)
def _(next_log_p, n_beams, length_penalty, bos, eos, max_length):
    """Hypotheses are continued after their <eos>. What has ended is taken out of the open ones, and waits with its
    total until the end."""
    open_ = [([bos], 0.0)]
    for _ in range(max_length):
        log_p = next_log_p(torch.tensor([tokens for tokens, _ in open_])).tolist()
        longer = [(o[0] + [v], o[1] + p) for o, row in zip(open_, log_p, strict=True) for v, p in enumerate(row)]
        open_ = sorted(longer, key=lambda h: -h[1])[:n_beams]
    score, best = max((h[1] / ((4 + len(h[0])) / 6) ** length_penalty, h[0]) for h in open_)
    return torch.tensor(best[1:]), score


@beam_search.misconception("the past is forgotten", fails=(*WIDE, "no more than the beams"))
def _(next_log_p, n_beams, length_penalty, bos, eos, max_length):
    """Continuations were ranked by the new token's log-probability alone. A beam is as good as all of its tokens
    together: add the hypothesis' own total before you compare."""
    open_, finished = [([bos], 0.0)], []
    for _ in range(max_length):
        log_p = next_log_p(torch.tensor([tokens for tokens, _ in open_])).tolist()
        longer = [(o[0] + [v], p) for o, row in zip(open_, log_p, strict=True) for v, p in enumerate(row)]
        kept = sorted(longer, key=lambda h: -h[1])[:n_beams]
        finished += [h for h in kept if h[0][-1] == eos]
        open_ = [h for h in kept if h[0][-1] != eos]
        if not open_:
            break
    score, best = max((h[1] / ((4 + len(h[0])) / 6) ** length_penalty, h[0]) for h in finished + open_)
    return torch.tensor(best[1:]), score


@beam_search.misconception("each beam by itself", fails=(*WIDE, "no more than the beams"))
def _(next_log_p, n_beams, length_penalty, bos, eos, max_length):
    """After the first token each hypothesis was continued with its own best token, so there are several greedy searches
    side by side. In a beam search all continuations compete with each other: two of the kept ones may come from the
    same hypothesis, and a hypothesis may have none."""
    open_, finished = [([bos], 0.0)], []
    for t in range(max_length):
        log_p = next_log_p(torch.tensor([tokens for tokens, _ in open_])).tolist()
        longer = []
        for (tokens, total), row in zip(open_, log_p, strict=True):
            ranked = torch.tensor(row).argsort(descending=True).tolist()
            longer += [([*tokens, v], total + row[v]) for v in ranked[: n_beams if t == 0 else 1]]
        finished += [h for h in longer if h[0][-1] == eos]
        open_ = [h for h in longer if h[0][-1] != eos]
        if not open_:
            break
    score, best = max((h[1] / ((4 + len(h[0])) / 6) ** length_penalty, h[0]) for h in finished + open_)
    return torch.tensor(best[1:]), score


@beam_search.misconception("greedy whatever the beams", fails=WIDE)
def _(next_log_p, n_beams, length_penalty, bos, eos, max_length):
    """This is greedy decoding, whatever `n_beams` says. Either one hypothesis is kept all along, or the search begins
    with several copies of the same one. Copies have the same continuations with the same totals, so they stay copies:
    begin with one, and let it have many continuations."""
    tokens, total = [bos], 0.0
    for _ in range(max_length):
        log_p, token = next_log_p(torch.tensor([tokens]))[0].max(dim=-1)
        tokens.append(int(token))
        total += float(log_p)
        if tokens[-1] == eos:
            break
    return torch.tensor(tokens[1:]), total / ((4 + len(tokens)) / 6) ** length_penalty


@beam_search.variant("greedy whatever the beams", fails=WIDE)
def _(next_log_p, n_beams, length_penalty, bos, eos, max_length):
    """All beams start alike."""
    open_, finished = [([bos], 0.0)] * n_beams, []
    for _ in range(max_length):
        log_p = next_log_p(torch.tensor([tokens for tokens, _ in open_])).tolist()
        longer = [(o[0] + [v], o[1] + p) for o, row in zip(open_, log_p, strict=True) for v, p in enumerate(row)]
        kept = sorted(longer, key=lambda h: -h[1])[:n_beams]
        finished += [h for h in kept if h[0][-1] == eos]
        open_ = [h for h in kept if h[0][-1] != eos]
        if not open_:
            break
    score, best = max((h[1] / ((4 + len(h[0])) / 6) ** length_penalty, h[0]) for h in finished + open_)
    return torch.tensor(best[1:]), score


@beam_search.misconception("probabilities are added", fails=WIDE)
def _(next_log_p, n_beams, length_penalty, bos, eos, max_length):
    """Probabilities were added up. The probability of a sentence is the *product* of its tokens', so it is their
    logarithms that are added, and logarithms are what you were given."""
    open_, finished = [([bos], 0.0)], []
    for _ in range(max_length):
        p = next_log_p(torch.tensor([tokens for tokens, _ in open_])).exp().tolist()
        longer = [(o[0] + [v], o[1] + q) for o, row in zip(open_, p, strict=True) for v, q in enumerate(row)]
        kept = sorted(longer, key=lambda h: -h[1])[:n_beams]
        finished += [h for h in kept if h[0][-1] == eos]
        open_ = [h for h in kept if h[0][-1] != eos]
        if not open_:
            break
    score, best = max((h[1] / ((4 + len(h[0])) / 6) ** length_penalty, h[0]) for h in finished + open_)
    return torch.tensor(best[1:]), score


@beam_search.misconception("<bos> comes along", fails=EVERY_SEARCH)
def _(next_log_p, n_beams, length_penalty, bos, eos, max_length):
    """The <bos> that stands in front was handed back. It was not written by the model, and does not count."""
    open_, finished = [([bos], 0.0)], []
    for _ in range(max_length):
        log_p = next_log_p(torch.tensor([tokens for tokens, _ in open_])).tolist()
        longer = [(o[0] + [v], o[1] + p) for o, row in zip(open_, log_p, strict=True) for v, p in enumerate(row)]
        kept = sorted(longer, key=lambda h: -h[1])[:n_beams]
        finished += [h for h in kept if h[0][-1] == eos]
        open_ = [h for h in kept if h[0][-1] != eos]
        if not open_:
            break
    score, best = max((h[1] / ((4 + len(h[0])) / 6) ** length_penalty, h[0]) for h in finished + open_)
    return torch.tensor(best), score


@beam_search.misconception("what is unfinished is thrown away", fails=("nobody ends",))
def _(next_log_p, n_beams, length_penalty, bos, eos, max_length):
    """Only hypotheses that had ended were compared, and where `max_length` comes first there are none. A translation
    that was cut off is better than nothing: let the open ones compete as they are."""
    open_, finished = [([bos], 0.0)], []
    for _ in range(max_length):
        log_p = next_log_p(torch.tensor([tokens for tokens, _ in open_])).tolist()
        longer = [(o[0] + [v], o[1] + p) for o, row in zip(open_, log_p, strict=True) for v, p in enumerate(row)]
        kept = sorted(longer, key=lambda h: -h[1])[:n_beams]
        finished += [h for h in kept if h[0][-1] == eos]
        open_ = [h for h in kept if h[0][-1] != eos]
        if not open_:
            break
    score, best = max((h[1] / ((4 + len(h[0])) / 6) ** length_penalty, h[0]) for h in finished)
    return torch.tensor(best[1:]), score


@beam_search.misconception("ended ones are replaced", fails=("no more than the beams",))
def _(next_log_p, n_beams, length_penalty, bos, eos, max_length):
    """When a hypothesis had ended, the next best open one came up in its place. Many programs do that, and it is a
    different search. Here the `n_beams` best are picked first, ended or not, and what ends leaves its place empty."""
    open_, finished = [([bos], 0.0)], []
    for _ in range(max_length):
        log_p = next_log_p(torch.tensor([tokens for tokens, _ in open_])).tolist()
        longer = [(o[0] + [v], o[1] + p) for o, row in zip(open_, log_p, strict=True) for v, p in enumerate(row)]
        longer = sorted(longer, key=lambda h: -h[1])
        finished += [h for h in longer[:n_beams] if h[0][-1] == eos]
        open_ = [h for h in longer if h[0][-1] != eos][:n_beams]
        if not open_:
            break
    score, best = max((h[1] / ((4 + len(h[0])) / 6) ** length_penalty, h[0]) for h in finished + open_)
    return torch.tensor(best[1:]), score


@beam_search.misconception("more than the beams", fails=("one beam", "no more than the beams"))
def _(next_log_p, n_beams, length_penalty, bos, eos, max_length):
    """More hypotheses were kept than `n_beams`. What comes out may even be better, for more computing than was allowed:
    all continuations of all open hypotheses compete for the same few places."""
    open_, finished = [([bos], 0.0)], []
    for _ in range(max_length):
        log_p = next_log_p(torch.tensor([tokens for tokens, _ in open_])).tolist()
        longer = [(o[0] + [v], o[1] + p) for o, row in zip(open_, log_p, strict=True) for v, p in enumerate(row)]
        kept = sorted(longer, key=lambda h: -h[1])[:100]
        finished += [h for h in kept if h[0][-1] == eos]
        open_ = [h for h in kept if h[0][-1] != eos]
        if not open_:
            break
    score, best = max((h[1] / ((4 + len(h[0])) / 6) ** length_penalty, h[0]) for h in finished + open_)
    return torch.tensor(best[1:]), score


@beam_search.misconception("a different penalty", fails=("score",))
def _(next_log_p, n_beams, length_penalty, bos, eos, max_length):
    """The total was divided by a power of the length itself. That is used, too, and is stronger: the same hypothesis
    wins here, but elsewhere another may. What is asked for is ((5 + n) / 6)^α, which treats the first few tokens
    gently."""
    open_, finished = [([bos], 0.0)], []
    for _ in range(max_length):
        log_p = next_log_p(torch.tensor([tokens for tokens, _ in open_])).tolist()
        longer = [(o[0] + [v], o[1] + p) for o, row in zip(open_, log_p, strict=True) for v, p in enumerate(row)]
        kept = sorted(longer, key=lambda h: -h[1])[:n_beams]
        finished += [h for h in kept if h[0][-1] == eos]
        open_ = [h for h in kept if h[0][-1] != eos]
        if not open_:
            break
    score, best = max((h[1] / (len(h[0]) - 1) ** length_penalty, h[0]) for h in finished + open_)
    return torch.tensor(best[1:]), score


@beam_search.variant("a different penalty", fails=("score",))
def _(next_log_p, n_beams, length_penalty, bos, eos, max_length):
    """With <bos> in the length."""
    open_, finished = [([bos], 0.0)], []
    for _ in range(max_length):
        log_p = next_log_p(torch.tensor([tokens for tokens, _ in open_])).tolist()
        longer = [(o[0] + [v], o[1] + p) for o, row in zip(open_, log_p, strict=True) for v, p in enumerate(row)]
        kept = sorted(longer, key=lambda h: -h[1])[:n_beams]
        finished += [h for h in kept if h[0][-1] == eos]
        open_ = [h for h in kept if h[0][-1] != eos]
        if not open_:
            break
    score, best = max((h[1] / len(h[0]) ** length_penalty, h[0]) for h in finished + open_)
    return torch.tensor(best[1:]), score


@beam_search.misconception("tokens miscounted", fails=("score",))
def _(next_log_p, n_beams, length_penalty, bos, eos, max_length):
    """The length is off by one: n counts what was written, an <eos> with it, and not the <bos> that you put in front
    yourself. What is `len` of the list that holds all three?"""
    open_, finished = [([bos], 0.0)], []
    for _ in range(max_length):
        log_p = next_log_p(torch.tensor([tokens for tokens, _ in open_])).tolist()
        longer = [(o[0] + [v], o[1] + p) for o, row in zip(open_, log_p, strict=True) for v, p in enumerate(row)]
        kept = sorted(longer, key=lambda h: -h[1])[:n_beams]
        finished += [h for h in kept if h[0][-1] == eos]
        open_ = [h for h in kept if h[0][-1] != eos]
        if not open_:
            break
    score, best = max((h[1] / ((5 + len(h[0])) / 6) ** length_penalty, h[0]) for h in finished + open_)
    return torch.tensor(best[1:]), score


@beam_search.variant("tokens miscounted", fails=("score",))
def _(next_log_p, n_beams, length_penalty, bos, eos, max_length):
    """Without the <eos>."""
    open_, finished = [([bos], 0.0)], []
    for _ in range(max_length):
        log_p = next_log_p(torch.tensor([tokens for tokens, _ in open_])).tolist()
        longer = [(o[0] + [v], o[1] + p) for o, row in zip(open_, log_p, strict=True) for v, p in enumerate(row)]
        kept = sorted(longer, key=lambda h: -h[1])[:n_beams]
        finished += [h for h in kept if h[0][-1] == eos]
        open_ = [h for h in kept if h[0][-1] != eos]
        if not open_:
            break
    scored = [(h[1] / ((4 + len([t for t in h[0] if t != eos])) / 6) ** length_penalty, h[0]) for h in finished + open_]
    score, best = max(scored)
    return torch.tensor(best[1:]), score


@beam_search.alternative("topk over the flattened table")
def _(next_log_p, n_beams, length_penalty, bos, eos, max_length):
    """Tensors throughout: which beam and which token come out of one index."""
    tokens, totals, finished = torch.tensor([[bos]]), torch.zeros(1), []
    for t in range(1, max_length + 1):
        table = totals[:, None] + next_log_p(tokens)
        totals, index = table.flatten().topk(min(n_beams, table.numel()))
        beam, token = index // table.shape[1], index % table.shape[1]
        tokens = torch.cat([tokens[beam], token[:, None]], dim=1)
        ended = (token == eos) | (t == max_length)
        for row, total in zip(tokens[ended], totals[ended].tolist(), strict=True):
            finished.append((total / ((5 + t) / 6) ** length_penalty, row[1:]))
        tokens, totals = tokens[~ended], totals[~ended]
        if not len(tokens):
            break
    score, best = max(finished, key=lambda pair: pair[0])
    return best, torch.tensor(score)


@beam_search.alternative("one hypothesis at a time, float64")
def _(next_log_p, n_beams, length_penalty, bos, eos, max_length):
    """Asks the model about each by itself."""
    finished: list = []
    open_: list = [(0.0, (bos,))]
    while open_ and len(open_[0][1]) <= max_length:
        longer = []
        for total, tokens in open_:
            row = next_log_p(torch.tensor([tokens]))[0].double()
            longer += [(total + float(p), (*tokens, v)) for v, p in enumerate(row)]
        longer.sort(reverse=True)
        open_ = []
        for total, tokens in longer[:n_beams]:
            (finished if tokens[-1] == eos else open_).append((total, tokens))
    everything = [(total / ((4 + len(tokens)) / 6) ** length_penalty, tokens) for total, tokens in finished + open_]
    score, best = max(everything)
    return torch.tensor(best[1:]), score


# ---------------------------------------------------------------------------------------------------------- TrainStep


class _GradientDescent:
    """The notebook's own optimiser: the first use of one of torch's takes three seconds, for what it imports."""

    def __init__(self, parameters):
        self.parameters = list(parameters)

    def zero_grad(self):
        for parameter in self.parameters:
            parameter.grad = None

    @torch.no_grad()
    def step(self, lr):
        for parameter in self.parameters:
            parameter -= lr * parameter.grad


class _TrainStep(nn.Module):
    """A small classifier with dropout, its optimiser, and one step of training."""

    def __init__(self, d: int, n_classes: int, dropout: float):
        super().__init__()
        layers = nn.Linear(d, 8), nn.Tanh(), nn.Dropout(dropout), nn.Linear(8, n_classes), nn.LogSoftmax(dim=-1)
        self.model = nn.Sequential(*layers)
        self.optimizer = _GradientDescent(self.model.parameters())

    def forward(self, micro_batches, held_out, lr, clip):
        n = sum(len(target) for _, target in micro_batches)
        self.model.train()
        self.optimizer.zero_grad()
        total = torch.zeros(())
        for x, target in micro_batches:
            loss = nn.functional.nll_loss(self.model(x), target, reduction="sum") / n
            loss.backward()
            total += loss.detach()
        norm = nn.utils.clip_grad_norm_(self.model.parameters(), clip)
        self.optimizer.step(lr)
        self.model.eval()
        with torch.no_grad():
            x, target = held_out
            validation = nn.functional.nll_loss(self.model(x), target)
        return total, norm, validation


TrainStep = Exercise(
    "TrainStep",
    reference=_TrainStep,
    returns=("loss", "norm", "validation"),
    forbidden=("attncourse.training", "attncourse.metrics"),
    numbers=True,
    difficulty=3,
    minutes=35,
    hints=(
        "Six things in this order: training mode, gradients to zero, a backward for each micro-batch, the clip, the "
        "step, and the held-out loss in evaluation mode.",
        "`backward()` *adds* to the gradients. So the losses of the micro-batches must be such that their sum is the "
        "mean over all tokens: a sum over the micro-batch's tokens, divided by the number of tokens of the whole step.",
        "`nn.utils.clip_grad_norm_` takes all parameters together, scales their gradients down if they are too long, "
        "and returns the norm that it found.",
    ),
)


class _Steps:
    """A learner's module with drawn parameters, micro-batches of different sizes, and held-out pairs."""

    def __init__(self, answer: Any, draw: Draw, dropout: float = 0.0, n_micro: int = 3):
        d, self.n_classes = draw.sizes(2, 3, 6)
        self.module = answer.build(draw, d, self.n_classes, dropout)
        sizes = sorted(draw.sizes(n_micro, 1, 4 * n_micro))
        self.micro = [self.pairs(draw, n, d) for n in sizes]
        self.held_out = self.pairs(draw, 12, d)
        self.another = [self.pairs(draw, n, d) for n in sizes]

    def pairs(self, draw: Draw, n: int, d: int) -> tuple[Tensor, Tensor]:
        return 2 * draw.normal(n, d), draw.integers(self.n_classes, n)

    def __call__(self, micro_batches: list, lr: float, clip: float) -> tuple[Tensor, Tensor, Tensor]:
        loss, norm, validation = self.module(micro_batches, self.held_out, lr, clip)
        return tuple(value.detach().double().reshape(()) for value in (loss, norm, validation))  # type: ignore[return-value]


@TrainStep.aspect("loss", points=1)
def _(answer, draw):
    """the mean over all the tokens of the step, each counting the same"""
    steps = _Steps(answer, draw)
    return steps(steps.micro, 0.1, 100.0)[0]


@TrainStep.aspect("norm", points=1)
def _(answer, draw):
    """the length of the whole gradient, before it is clipped"""
    steps = _Steps(answer, draw)
    return torch.stack([steps(steps.micro, 0.0, clip)[1] for clip in (100.0, 1e-2)])


@TrainStep.aspect("a step", points=1)
def _(answer, draw):
    """from one micro-batch: the rate times the gradient, downhill; the held-out loss is taken afterwards"""
    steps = _Steps(answer, draw, n_micro=1)
    return steps(steps.micro, 0.2 + 0.3 * float(draw.uniform(1)), 100.0)[2]


@TrainStep.aspect("several micro-batches", points=2)
def _(answer, draw):
    """one update, from the gradients of all of them together"""
    steps = _Steps(answer, draw)
    return steps(steps.micro, 0.2 + 0.3 * float(draw.uniform(1)), 100.0)[2]


@TrainStep.aspect("clipping", points=1)
def _(answer, draw):
    """a gradient that is too long is scaled down as a whole, before the step"""
    steps = _Steps(answer, draw, n_micro=1)
    return steps(steps.micro, 20.0, 0.02)[2]


@TrainStep.aspect("the next step", points=1)
def _(answer, draw):
    """a step starts from gradients of zero"""
    steps = _Steps(answer, draw, n_micro=1)
    steps(steps.micro, 0.3, 100.0)
    return steps(steps.another, 0.3, 100.0)[2]


@TrainStep.aspect("dropout in training", points=1)
def _(answer, draw):
    """while it trains the model drops numbers, different ones each time, and also after it has been evaluated"""
    steps = _Steps(answer, draw, dropout=0.5)
    losses = [steps(steps.micro, 0.0, 100.0)[0] for _ in range(3)]
    return torch.tensor([not torch.equal(losses[0], losses[1]), not torch.equal(losses[1], losses[2])])


@TrainStep.aspect("no dropout in evaluation", points=1)
def _(answer, draw):
    """the held-out loss is that of the whole model"""
    steps = _Steps(answer, draw, dropout=0.5)
    return torch.stack([steps(steps.micro, 0.0, 100.0)[2] for _ in range(2)])


UPDATED = ("a step", "several micro-batches", "clipping", "the next step")


@TrainStep.misconception("dropout on at test time", fails=("no dropout in evaluation",))
def _(self, micro_batches, held_out, lr, clip):
    """The held-out loss was measured with dropout: on a model with half of its numbers missing, a different half each
    time. A model is told which of the two it is doing, by `train()` and by `eval()`. (`torch.no_grad()` saves memory;
    dropout takes no notice of it.)"""
    n = sum(len(target) for _, target in micro_batches)
    self.model.train()
    self.optimizer.zero_grad()
    total = 0.0
    for x, target in micro_batches:
        loss = nn.functional.nll_loss(self.model(x), target, reduction="sum") / n
        loss.backward()
        total += loss.item()
    norm = nn.utils.clip_grad_norm_(self.model.parameters(), clip)
    self.optimizer.step(lr)
    with torch.no_grad():
        x, target = held_out
        validation = nn.functional.nll_loss(self.model(x), target)
    return total, norm, validation


@TrainStep.misconception("dropout off in training", fails=("dropout in training",))
def _(self, micro_batches, held_out, lr, clip):
    """The model trains in evaluation mode: dropout does nothing. Whoever evaluates between two steps must switch it
    back on, and the place to do so is the beginning of the step."""
    n = sum(len(target) for _, target in micro_batches)
    self.optimizer.zero_grad()
    total = 0.0
    for x, target in micro_batches:
        loss = nn.functional.nll_loss(self.model(x), target, reduction="sum") / n
        loss.backward()
        total += loss.item()
    norm = nn.utils.clip_grad_norm_(self.model.parameters(), clip)
    self.optimizer.step(lr)
    self.model.eval()
    with torch.no_grad():
        x, target = held_out
        validation = nn.functional.nll_loss(self.model(x), target)
    return total, norm, validation


@TrainStep.misconception("old gradients kept", fails=("norm", "the next step"))
def _(self, micro_batches, held_out, lr, clip):
    """The second step still has the first one's gradient in it. `backward()` adds to what is there: set the gradients
    to zero, once a step."""
    n = sum(len(target) for _, target in micro_batches)
    self.model.train()
    total = 0.0
    for x, target in micro_batches:
        loss = nn.functional.nll_loss(self.model(x), target, reduction="sum") / n
        loss.backward()
        total += loss.item()
    norm = nn.utils.clip_grad_norm_(self.model.parameters(), clip)
    self.optimizer.step(lr)
    self.model.eval()
    with torch.no_grad():
        x, target = held_out
        validation = nn.functional.nll_loss(self.model(x), target)
    return total, norm, validation


@TrainStep.misconception("a mean of means", fails=("loss", "norm", "several micro-batches"))
def _(self, micro_batches, held_out, lr, clip):
    """Each micro-batch counted the same, however many tokens it has. A token in a small one then weighs more than a
    token in a large one, and the step depends on how the batch happened to be cut. Divide by the tokens of the *whole*
    step."""
    self.model.train()
    self.optimizer.zero_grad()
    total = 0.0
    for x, target in micro_batches:
        loss = nn.functional.nll_loss(self.model(x), target) / len(micro_batches)
        loss.backward()
        total += loss.item()
    norm = nn.utils.clip_grad_norm_(self.model.parameters(), clip)
    self.optimizer.step(lr)
    self.model.eval()
    with torch.no_grad():
        x, target = held_out
        validation = nn.functional.nll_loss(self.model(x), target)
    return total, norm, validation


@TrainStep.misconception("means added up", fails=("loss", "norm", "several micro-batches"))
def _(self, micro_batches, held_out, lr, clip):
    """The micro-batches' mean losses were added up. With three of them the gradient is three times as long, so whoever
    cuts a batch into more pieces trains at a higher rate. Divide by the tokens of the *whole* step."""
    self.model.train()
    self.optimizer.zero_grad()
    total = 0.0
    for x, target in micro_batches:
        loss = nn.functional.nll_loss(self.model(x), target)
        loss.backward()
        total += loss.item()
    norm = nn.utils.clip_grad_norm_(self.model.parameters(), clip)
    self.optimizer.step(lr)
    self.model.eval()
    with torch.no_grad():
        x, target = held_out
        validation = nn.functional.nll_loss(self.model(x), target)
    return total, norm, validation


@TrainStep.misconception("zero in the loop", fails=("norm", "several micro-batches"))
def _(self, micro_batches, held_out, lr, clip):
    """The gradients were set to zero for every micro-batch, so that only the last one counts. What accumulates must not
    be cleared on the way: once a step, before the loop."""
    n = sum(len(target) for _, target in micro_batches)
    self.model.train()
    total = 0.0
    for x, target in micro_batches:
        self.optimizer.zero_grad()
        loss = nn.functional.nll_loss(self.model(x), target, reduction="sum") / n
        loss.backward()
        total += loss.item()
    norm = nn.utils.clip_grad_norm_(self.model.parameters(), clip)
    self.optimizer.step(lr)
    self.model.eval()
    with torch.no_grad():
        x, target = held_out
        validation = nn.functional.nll_loss(self.model(x), target)
    return total, norm, validation


@TrainStep.misconception("not clipped before the step", fails=("clipping",))
def _(self, micro_batches, held_out, lr, clip):
    """The step was taken with the gradient at its full length: it was not scaled down, or only afterwards. Clip between
    `backward()` and `step()`."""
    n = sum(len(target) for _, target in micro_batches)
    self.model.train()
    self.optimizer.zero_grad()
    total = 0.0
    for x, target in micro_batches:
        loss = nn.functional.nll_loss(self.model(x), target, reduction="sum") / n
        loss.backward()
        total += loss.item()
    self.optimizer.step(lr)
    norm = nn.utils.clip_grad_norm_(self.model.parameters(), clip)
    self.model.eval()
    with torch.no_grad():
        x, target = held_out
        validation = nn.functional.nll_loss(self.model(x), target)
    return total, norm, validation


@TrainStep.misconception("each parameter clipped by itself", fails=("clipping",))
def _(self, micro_batches, held_out, lr, clip):
    """Each parameter's gradient was shortened by itself. Together they are still too long, and point in a different
    direction from the gradient: those that were short keep their length. One norm over all parameters, one factor for
    all."""
    n = sum(len(target) for _, target in micro_batches)
    self.model.train()
    self.optimizer.zero_grad()
    total = 0.0
    for x, target in micro_batches:
        loss = nn.functional.nll_loss(self.model(x), target, reduction="sum") / n
        loss.backward()
        total += loss.item()
    norm = torch.stack([p.grad.norm() for p in self.model.parameters()]).norm()
    for p in self.model.parameters():
        nn.utils.clip_grad_norm_([p], clip)
    self.optimizer.step(lr)
    self.model.eval()
    with torch.no_grad():
        x, target = held_out
        validation = nn.functional.nll_loss(self.model(x), target)
    return total, norm, validation


@TrainStep.variant("each parameter clipped by itself", fails=("clipping",))
def _(self, micro_batches, held_out, lr, clip):
    """Each number."""
    n = sum(len(target) for _, target in micro_batches)
    self.model.train()
    self.optimizer.zero_grad()
    total = 0.0
    for x, target in micro_batches:
        loss = nn.functional.nll_loss(self.model(x), target, reduction="sum") / n
        loss.backward()
        total += loss.item()
    norm = torch.stack([p.grad.norm() for p in self.model.parameters()]).norm()
    nn.utils.clip_grad_value_(self.model.parameters(), clip)
    self.optimizer.step(lr)
    self.model.eval()
    with torch.no_grad():
        x, target = held_out
        validation = nn.functional.nll_loss(self.model(x), target)
    return total, norm, validation


@TrainStep.misconception("a step for each micro-batch", fails=("loss", "norm", "several micro-batches"))
def _(self, micro_batches, held_out, lr, clip):
    """The parameters moved after every micro-batch: three small steps, where one was asked for from all of them
    together. The step comes after the loop."""
    n = sum(len(target) for _, target in micro_batches)
    self.model.train()
    total = 0.0
    for x, target in micro_batches:
        self.optimizer.zero_grad()
        loss = nn.functional.nll_loss(self.model(x), target, reduction="sum") / n
        loss.backward()
        total += loss.item()
        norm = nn.utils.clip_grad_norm_(self.model.parameters(), clip)
        self.optimizer.step(lr)
    self.model.eval()
    with torch.no_grad():
        x, target = held_out
        validation = nn.functional.nll_loss(self.model(x), target)
    return total, norm, validation


@TrainStep.misconception("evaluated before the step", fails=UPDATED)
def _(self, micro_batches, held_out, lr, clip):
    """The held-out loss is that of the model as it was before this step, or nothing has moved it: is `step()` called,
    and before the evaluation?"""
    n = sum(len(target) for _, target in micro_batches)
    self.model.eval()
    with torch.no_grad():
        x, target = held_out
        validation = nn.functional.nll_loss(self.model(x), target)
    self.model.train()
    self.optimizer.zero_grad()
    total = 0.0
    for x, target in micro_batches:
        loss = nn.functional.nll_loss(self.model(x), target, reduction="sum") / n
        loss.backward()
        total += loss.item()
    norm = nn.utils.clip_grad_norm_(self.model.parameters(), clip)
    self.optimizer.step(lr)
    return total, norm, validation


@TrainStep.alternative("gradients asked for, parameters moved by hand")
def _(self, micro_batches, held_out, lr, clip):
    """No optimiser, no `backward`."""
    self.train()
    parameters = list(self.model.parameters())
    n = sum(len(target) for _, target in micro_batches)
    losses = [-self.model(x)[torch.arange(len(target)), target].sum() / n
              for x, target in micro_batches]  # fmt: skip
    loss = torch.stack(losses).sum()
    gradients = torch.autograd.grad(loss, parameters)
    norm = math.sqrt(sum(float(g.square().sum()) for g in gradients))
    with torch.no_grad():
        for p, g in zip(parameters, gradients, strict=True):
            p -= lr * g * min(1.0, clip / norm)
    self.eval()
    x, target = held_out
    return float(loss), norm, nn.functional.nll_loss(self.model(x), target).item()


@TrainStep.alternative("means, weighted by their tokens; zeroed at the end")
def _(self, micro_batches, held_out, lr, clip):
    """Each mean times its share; the gradients are cleared after the step."""
    self.model.train(True)
    tokens = torch.tensor([float(len(target)) for _, target in micro_batches])
    total = torch.zeros((), dtype=torch.float64)
    for (x, target), share in zip(micro_batches, tokens / tokens.sum(), strict=True):
        mean = nn.NLLLoss()(self.model(x), target)
        (mean * share).backward()
        total += (mean * share).item()
    norm = torch.nn.utils.clip_grad_norm_(list(self.model.parameters()), max_norm=clip)
    self.optimizer.step(lr)
    self.optimizer.zero_grad()
    self.model.train(False)
    x, target = held_out
    return total, norm, nn.NLLLoss()(self.model(x), target)


# --------------------------------------------------------------------------------------------------------- byte_pairs


def _byte_pairs(train, test, n_merges):
    counts: dict[str, int] = {}
    for word in train:
        counts[word] = counts.get(word, 0) + 1
    cut = {word: list(word) for word in [*train, *test]}
    for _ in range(n_merges):
        pairs: dict[tuple[str, str], int] = {}
        for word, count in counts.items():
            for pair in pairwise(cut[word]):
                pairs[pair] = pairs.get(pair, 0) + count
        best = min(pairs, key=lambda pair: (-pairs[pair], pair))
        for word, pieces in cut.items():
            cut[word] = _merged(pieces, best)
    return [cut[word] for word in test]


def _merged(pieces, pair):
    out: list[str] = []
    for piece in pieces:
        joins = len(out) and (out[-1], piece) == pair
        out[-1:] = [out[-1] + piece] if joins else [*out[-1:], piece]
    return out


byte_pairs = Exercise(
    "byte_pairs",
    reference=_byte_pairs,
    returns=("pieces",),
    forbidden=("attncourse.data",),
    lists=True,
    difficulty=3,
    minutes=30,
    extra=True,
    hints=(
        "Keep every word as a list of its pieces, at first its letters. A merge goes through such a list from the left "
        "and puts one piece in place of two wherever the pair stands.",
        "Each round: count all neighbours in the *training* words, find the pair with the largest count (of equal "
        "counts, the first in the alphabet: `min` over `(-count, pair)` does both), and merge it in all words, the "
        "test's too.",
    ),
)


def _words(draw):
    """(train, test, n_merges): training words come several times; the test's have habits of their own."""
    syllables = ["".join("abcd"[i] for i in row) for row in draw.integers(4, 6, 2).tolist()]
    lexicon = ["".join(syllables[i] for i in row) for row in draw.integers(6, 7, 3).tolist()]
    train = [lexicon[min(int(7 * u * u), 6)] for u in draw.uniform(40).tolist()]
    other = ["".join("abcd"[i] for i in row) for row in draw.integers(4, 4, 2).tolist()]
    odd = [lexicon[i] + other[j] * 2 for i, j in zip(range(7), draw.integers(4, 7).tolist(), strict=True)]
    return train, [*odd, *lexicon[:3], *odd], 5


def _cuts(pieces, words):
    """(letters,) of booleans: behind which letters of all the words there is a cut."""
    if len(pieces) != len(words):
        raise AspectFailed(Problem("unusable", f"{len(pieces)} words came back for {len(words)}"))
    cuts = []
    for row, word in zip(pieces, words, strict=True):
        if "".join(map(str, row)) != word:
            raise AspectFailed(Problem("unusable", f"the pieces of {word!r} make {''.join(map(str, row))!r}"))
        cuts += [end for piece in row for end in [*[False] * (len(piece) - 1), True]]
    return torch.tensor(cuts)


def _cut_up(answer, inputs):
    return _cuts(answer(*inputs), inputs[1])


def _first_merge(draw):
    train, test, _ = _words(draw)
    return train, test, 1


def _differently_cut(got, expected):
    wrong = int((got != expected).sum())
    return f"after {wrong} of {len(got)} letters there is a cut where none should be, or none where one should be"


@byte_pairs.aspect("the first merge", points=1, explain=_differently_cut)
def _(answer, draw):
    """the most frequent neighbours of the training words become one piece, wherever they stand"""
    return _cut_up(answer, _told_apart(byte_pairs, "the first merge", draw.seed, _first_merge, _cut_up))


@byte_pairs.aspect("merges of merges", points=2, explain=_differently_cut)
def _(answer, draw):
    """what has grown together is counted anew, and can grow further"""
    return _cut_up(answer, _told_apart(byte_pairs, "merges of merges", draw.seed, _words, _cut_up))


EVERY_MERGE = ("the first merge", "merges of merges")


@byte_pairs.misconception("vocabulary from the test set", fails=EVERY_MERGE)
def _(train, test, n_merges):
    """The test's words were counted as well. So the pieces know what will be asked: the test set looks easier than any
    new text will be, and whoever reports the number does not know it. Learn from the training words alone, and *apply*
    to the test."""
    cut = [list(word) for word in train + test]
    for _ in range(n_merges):
        pairs: dict = {}
        for pieces in cut:
            for pair in pairwise(pieces):
                pairs[pair] = pairs.get(pair, 0) + 1
        a, b = min(pairs, key=lambda pair: (-pairs[pair], pair))
        for k, pieces in enumerate(cut):
            i = 0
            while i < len(pieces) - 1:
                if (pieces[i], pieces[i + 1]) == (a, b):
                    pieces[i : i + 2] = [a + b]
                i += 1
            cut[k] = pieces
    return cut[len(train) :]


@byte_pairs.misconception("every word counted once", fails=EVERY_MERGE)
def _(train, test, n_merges):
    """A word that comes ten times was counted once. Frequent words are what a vocabulary is to be made for: count every
    occurrence."""
    cut, words = {word: list(word) for word in train + test}, set(train)
    for _ in range(n_merges):
        pairs: dict = {}
        for word in words:
            for pair in pairwise(cut[word]):
                pairs[pair] = pairs.get(pair, 0) + 1
        a, b = min(pairs, key=lambda pair: (-pairs[pair], pair))
        for pieces in cut.values():
            i = 0
            while i < len(pieces) - 1:
                if (pieces[i], pieces[i + 1]) == (a, b):
                    pieces[i : i + 2] = [a + b]
                i += 1
    return [cut[word] for word in test]


@byte_pairs.misconception("counted once and for all", fails=("merges of merges",))
def _(train, test, n_merges):
    """The pairs of letters were counted at the beginning, and the most frequent ones taken in their order. But a merge
    changes who is whose neighbour, and makes pieces that can be merged again: count anew after each."""
    cut = {word: list(word) for word in train + test}
    pairs: dict = {}
    for word in train:
        for pair in pairwise(word):
            pairs[pair] = pairs.get(pair, 0) + 1
    for a, b in sorted(pairs, key=lambda pair: (-pairs[pair], pair))[:n_merges]:
        for pieces in cut.values():
            i = 0
            while i < len(pieces) - 1:
                if (pieces[i], pieces[i + 1]) == (a, b):
                    pieces[i : i + 2] = [a + b]
                i += 1
    return [cut[word] for word in test]


@byte_pairs.misconception("only the first place in a word", fails=EVERY_MERGE)
def _(train, test, n_merges):
    """A pair that stands twice in a word was merged once. Go on after the place where you merged."""
    cut = {word: list(word) for word in train + test}
    for _ in range(n_merges):
        pairs: dict = {}
        for word in train:
            for pair in pairwise(cut[word]):
                pairs[pair] = pairs.get(pair, 0) + 1
        a, b = min(pairs, key=lambda pair: (-pairs[pair], pair))
        for pieces in cut.values():
            for i in range(len(pieces) - 1):
                if (pieces[i], pieces[i + 1]) == (a, b):
                    pieces[i : i + 2] = [a + b]
                    break
    return [cut[word] for word in test]


@byte_pairs.misconception("the rarest first", fails=EVERY_MERGE)
def _(train, test, n_merges):
    """The pair with the *smallest* count was merged. It is the frequent neighbours that grow together."""
    cut = {word: list(word) for word in train + test}
    for _ in range(n_merges):
        pairs: dict = {}
        for word in train:
            for pair in pairwise(cut[word]):
                pairs[pair] = pairs.get(pair, 0) + 1
        a, b = min(pairs, key=lambda pair: (pairs[pair], pair))
        for pieces in cut.values():
            i = 0
            while i < len(pieces) - 1:
                if (pieces[i], pieces[i + 1]) == (a, b):
                    pieces[i : i + 2] = [a + b]
                i += 1
    return [cut[word] for word in test]


@byte_pairs.alternative("texts with spaces between the pieces")
def _(train, test, n_merges):
    """Merging is replacing in a text; learning and applying are apart."""

    def merge(text, a, b):
        pieces, out = text.split(" "), []
        while pieces:
            if pieces[:2] == [a, b]:
                out.append(a + b)
                pieces = pieces[2:]
            else:
                out.append(pieces.pop(0))
        return " ".join(out)

    texts, merges = [" ".join(word) for word in train], []
    for _ in range(n_merges):
        neighbours = [pair for text in texts for pair in pairwise(text.split(" "))]
        merges.append(max(sorted(set(neighbours)), key=neighbours.count))
        texts = [merge(text, *merges[-1]) for text in texts]
    words = [" ".join(word) for word in test]
    for pair in merges:
        words = [merge(word, *pair) for word in words]
    return [tuple(word.split(" ")) for word in words]


@byte_pairs.alternative("one list of all, the test behind a border")
def _(train, test, n_merges):
    """The test's words are cut along with the others, and counted by nobody."""
    cut = [list(word) for word in train + test]
    for _ in range(n_merges):
        pairs: dict = {}
        for pieces in cut[: len(train)]:
            for pair in pairwise(pieces):
                pairs[pair] = pairs.get(pair, 0) + 1
        most = max(pairs.values())
        best = min(pair for pair, count in pairs.items() if count == most)
        for pieces in cut:
            i = 0
            while i + 1 < len(pieces):
                if (pieces[i], pieces[i + 1]) == best:
                    pieces[i] += pieces.pop(i + 1)
                i += 1
    return cut[len(train) :]
