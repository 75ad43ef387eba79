"""label_smoothed_loss: Cross entropy against smoothed targets, in nats, averaged over the real tokens of the batch."""

import torch

from attncourse import metrics
from lessonkit.exercises.exercise import Exercise
from lessonkit.exercises.judge import explain_missing_gradient
from lessonkit.exercises.observe import apart, gradient_reaches

from .common import READY_MADE


def solution(logits, target, smoothing, pad):
    log_p = logits.log_softmax(dim=-1)                            # (batch, n, vocab_size)
    true = -log_p.gather(-1, target[..., None])[..., 0]           # (batch, n)
    uniform = -log_p.mean(dim=-1)                                 # (batch, n)
    losses = (1 - smoothing) * true + smoothing * uniform
    return losses[target != pad].mean()


exercise = Exercise(
    "label_smoothed_loss",
    reference=lambda logits, target, smoothing, pad: metrics.token_loss(logits, target, pad, smoothing),
    solution=solution,
    returns=("loss",),
    forbidden=(*READY_MADE, "torch.nn.functional.cross_entropy", "torch.nn.CrossEntropyLoss"),
    numbers=True,
    difficulty=2,
    minutes=15,
    hints=(
        "A cross-entropy has two parts, the target distribution q and −log p. Write down q for a vocabulary of five: "
        "five numbers that sum to one.",
        "It is a mixture: 1 − ε on the true token, and ε spread evenly over the whole vocabulary. So the loss is a "
        "mixture, too: 1 − ε times −log p(truth), and ε times the mean of −log p over the vocabulary.",
        "Use `log_softmax`, with no softmax before it: a softmax rounds small probabilities to 0, whose logarithm is "
        "−∞. `gather` finds the first part, a mean over the last axis finds the second; both are (batch, n). Mix them, "
        "keep the real tokens of all sentences together, and return their mean as a tensor, not as a float.",
    ),
)
aspect, slip, misconception, variant, alternative = exercise.decorators()


def _answers(draw, padded=False):
    """(logits, target, pad), with no padding in the targets, or with some behind the sentences' ends."""
    batch, n, vocab_size = draw.sizes(3, 3, 8)
    pad = int(draw.integers(vocab_size, 1))
    target = draw.integers(vocab_size - 1, batch, n)
    target = target + (target >= pad)
    if padded:
        target = target.masked_fill(~draw.padding_mask(batch, n), pad)
    return 2 * draw.normal(batch, n, vocab_size), target, pad


def _share(draw):
    return 0.1 + 0.2 * float(draw.uniform(1))


def _number(loss):
    return torch.as_tensor(loss).reshape(()).float()


def _loss(got, expected):
    """The loss that is furthest off, without the place that it has in the check's own list."""
    got, expected = got.reshape(-1), expected.reshape(-1)
    worst = int(abs(got - expected).argmax())
    return f"got a loss of {got[worst]:.4g}, expected {expected[worst]:.4g}"


# ----------------------------------------------------------------------------------------------------- what is observed


@aspect("sharp targets", points=1, hint=3, explain=_loss)
def sharp_targets(answer, draw):
    """with no smoothing it is the cross entropy, a mean over the tokens"""
    logits, target, pad = _answers(draw)
    return answer(logits, target, 0.0, pad)


@aspect("smoothed targets", points=2, hint=2, explain=_loss)
def smoothed_targets(answer, draw):
    """a share of the truth goes to the whole vocabulary, in equal parts"""
    losses = []
    for name in ("one", "other"):  # one number alone may be right by chance
        logits, target, pad = _answers(draw.child(name))
        losses.append(_number(answer(logits, target, _share(draw), pad)))
    return torch.stack(losses)


def _with_padding(got, expected):
    """The loss without smoothing, or by how much padding moves the smoothed one."""
    if abs(got[0] - expected[0]) > 1e-4 or abs(got[1] - expected[1]) <= 1e-4:
        return f"got a loss of {got[0]:.4g} without smoothing, expected {expected[0]:.4g}"
    return f"with smoothing, padding moves the loss of the same tokens by {got[1]:.4g}"


@aspect("padding", points=2, hint=3, explain=_with_padding)
def padding(answer, draw):
    """each real token counts the same, padding counts for nothing, smoothed or not"""
    logits, target, pad = _answers(draw, padded=True)
    real, share = target != pad, _share(draw)
    alone = _number(answer(logits[real][None], target[real][None], share, pad))
    moved = apart(_number(answer(logits, target, share, pad)), alone)
    return torch.stack([_number(answer(logits, target, 0.0, pad)), moved])


def _of_large_logits(got, expected):
    """The loss without smoothing, or that the smoothed one is no number."""
    if got[1] != expected[1]:
        return "with smoothing the loss is not finite"
    return f"got a loss of {got[0]:.4g} without smoothing, expected {expected[0]:.4g}"


@aspect("large logits", points=1, hint=3, explain=_of_large_logits)
def large_logits(answer, draw):
    """a probability that is too small to be written down still has a logarithm"""
    logits, target, pad = _answers(draw)
    smoothed = _number(answer(200 * logits, target, _share(draw), pad))
    return torch.stack([_number(answer(200 * logits, target, 0.0, pad)), smoothed.isfinite().float()])


@aspect("gradient", points=1, hint=3, explain=explain_missing_gradient("logits"))
def gradient(answer, draw):
    """it can be learned from, through the true token and through the vocabulary"""
    logits, target, pad = _answers(draw)
    logits.requires_grad_()
    ways = [gradient_reaches(answer(logits, target, share, pad).reshape(1), [logits], draw) for share in (0.0, 1.0)]
    return torch.stack(ways).all(dim=0)


# -------------------------------------------------------------------------------------- one slip away from the solution

SMOOTH = ("smoothed targets",)
EVERY_LOSS = ("sharp targets", *SMOOTH, "padding", "large logits")
PADDING = ("padding",)
MIXED, UNIFORM = "(1 - smoothing) * true + smoothing * uniform", "-log_p.mean(dim=-1)"
MEAN = "losses[target != pad].mean()"

slip("no smoothing", SMOOTH, {MIXED: "true"}, words="""
    This is the plain cross entropy: `smoothing` has no effect on it. With smoothing, the truth ought to have a
    little less than everything.""")
slip("the truth gets nothing of what is spread", SMOOTH, {UNIFORM: f"{UNIFORM} - true / logits.shape[-1]"}, words="""
    What ought to be does not sum to one: the truth has 1 − ε, and it also gets its part of the share that is spread
    over the *whole* vocabulary. Add up your targets for one token.""")
slip("spread over the others alone", SMOOTH, {UNIFORM: "(-log_p.sum(dim=-1) - true) / (logits.shape[-1] - 1)"},
     words="""
    ε was spread over the other V − 1 tokens. Some programs do that, and their losses cannot be compared with those
    of programs that spread it over all V, the truth among them, as Szegedy et al. (2016), torch and this contract
    do.""")
slip("nothing for the id of the padding", SMOOTH,
     {UNIFORM: "(log_p[..., pad] - log_p.sum(dim=-1)) / logits.shape[-1]"}, words="""
    The padding's id gets no share of ε, so the target no longer sums to one. ε is spread over the *whole* vocabulary,
    the padding's id too, as torch does it; it is the padding's *places* that do not count.""")
slip("a divergence, not a cross entropy", SMOOTH,
     {f"return {MEAN}": "V = logits.shape[-1]\n"
                        "q = torch.full((V,), smoothing / V)\n"
                        "q[0] += 1 - smoothing\n"
                        f"return {MEAN} + torch.xlogy(q, q).sum()"}, words="""
    The entropy of the smoothed target was subtracted: this is the Kullback–Leibler divergence. Its gradient is the
    same, but it is 0 at best, and not comparable with the cross entropy that is asked for.""")
slip("the shares exchanged", EVERY_LOSS, {MIXED: "smoothing * true + (1 - smoothing) * uniform"}, words="""
    The truth has ε and the rest has 1 − ε. `smoothing` is small, 0.1 as a rule, and it is what the truth gives
    away.""")
slip("ε for each token of the vocabulary", SMOOTH, {UNIFORM: "-log_p.sum(dim=-1)"}, words="""
    Each of the V tokens was given ε, so V·ε was spread where there is only ε. It is shared: ε / V for each, which
    is a mean over the vocabulary and not a sum.""")
slip("pads in the loss", PADDING, {MEAN: "losses.mean()"}, words="""
    The model is asked to predict padding, too. That is easy to learn and worth nothing, and the shorter the
    sentences of a batch, the better the loss looks. Take the real tokens, and then their mean.""")
slip("padding in the divisor", PADDING, {MEAN: "(losses * (target != pad)).mean()"}, words="""
    The losses at padding are zero, as they should be, but the sum was divided by all the positions. So the loss of
    a sentence depends on how long its neighbours are. Divide by the number of real tokens.""")
slip("padding in the smoothing", PADDING,
     {"* true": "* true[target != pad].mean()", MEAN: "losses.mean()"},
     {"* true": "* true * (target != pad)", MEAN: "losses.sum() / (target != pad).sum()"},  # divided by the real tokens
     words="""
    The first part leaves padding out and the second does not: at padded positions the model is still being pulled
    towards the uniform distribution. One mask for both.""")
slip("a mean of means", PADDING,
     {f"return {MEAN}": "real = target != pad\nreturn ((losses * real).sum(dim=1) / real.sum(dim=1)).mean()"},
     words="""
    Each sentence's mean was taken, and then the mean of those: a token of a short sentence counts for more than one
    of a long sentence. All real tokens together, one mean.""")
slip("a sum for the mean", EVERY_LOSS, {MEAN: "losses[target != pad].sum()"}, words="""
    The losses were added up and not divided, so a batch of twice the tokens takes steps of twice the size. In nats
    *per token*, please.""")
slip("the logarithm of a softmax", ("large logits",), {"log_softmax(dim=-1)": "softmax(dim=-1).log()"}, words="""
    Softmax first and the logarithm afterwards: a probability below 1e-45 has become 0 by then, and its logarithm
    −∞. Smoothing asks for the logarithm of *every* token's probability, so this happens soon. `log_softmax` does
    both at once, and safely.""")
slip("cut off from the gradient", ("gradient",), {MEAN: f"{MEAN}.item()"}, words="""
    The number is right, and nothing can be learned from it: `.item()`, `.detach()` and `float(...)` forget where a
    number came from. Return the tensor.""")


# ------------------------------------------------------------------------------------------------ right in other styles


@alternative("a table of what ought to be")
def a_table_of_what_ought_to_be(logits, target, smoothing, pad):
    """One row a token, which sums to one."""
    V = logits.shape[-1]
    wanted = (1 - smoothing) * torch.nn.functional.one_hot(target, V) + smoothing / V
    losses = torch.einsum("bnv,bnv->bn", wanted, -logits.log_softmax(dim=-1))
    real = (target != pad).float()
    return (losses * real).sum() / real.sum()


@alternative("the real tokens first, in float64")
def the_real_tokens_first_in_float64(logits, target, smoothing, pad):
    """Selects before it computes."""
    real = target != pad
    log_p = logits[real].double() - logits[real].double().logsumexp(dim=-1, keepdim=True)
    true = log_p[torch.arange(len(log_p)), target[real]]
    return -((1 - smoothing) * true + smoothing * log_p.mean(dim=-1)).mean()


@alternative("a loop over sentences and positions")
def a_loop_over_sentences_and_positions(logits, target, smoothing, pad):
    """One token at a time."""
    total, count = torch.zeros(()), 0
    for row, words in zip(logits, target, strict=True):
        for scores, word in zip(row, words.tolist(), strict=True):
            if word != pad:
                log_p = scores.log_softmax(dim=0)
                total = total - (1 - smoothing) * log_p[word] - smoothing * log_p.mean()
                count += 1
    return total / count
