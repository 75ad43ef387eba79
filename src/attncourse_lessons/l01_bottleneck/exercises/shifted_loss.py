"""shifted_loss: The mean of −log p(next token), in nats, over all tokens that are predicted and are not padding."""

import torch
from torch import nn

from attncourse import metrics
from lessonkit.exercises.exercise import Exercise
from lessonkit.exercises.way_back import explain_way_back, way_back


def solution(logits, tokens, pad):
    predictions, target = logits[:, :-1], tokens[:, 1:]    # (batch, n - 1, …), (batch, n - 1)
    return nn.functional.cross_entropy(
        predictions.flatten(0, 1), target.flatten(), ignore_index=pad)


exercise = Exercise(
    "shifted_loss",
    reference=lambda logits, tokens, pad: metrics.token_loss(logits[:, :-1], tokens[:, 1:], pad),
    solution=solution,
    returns=("loss",),
    forbidden=("attncourse.metrics", "attncourse.training", "attncourse.transformer"),
    numbers=True,
    difficulty=2,
    minutes=18,
    hints=(
        "`logits[:, t]` was made when tokens 0 … t had been read. Which token is it about? Which row of logits has no "
        "token to be compared with, and which token is predicted by no row?",
        "Cut the last position off the logits and the first one off the tokens. Both then begin with (batch, n − 1), "
        "and each prediction stands beside its target.",
        "Take −log p of each right token, and average over the positions whose *target* is not padding: those of the "
        "whole batch at once. Softmax and logarithm belong in one step (`log_softmax`, or what `cross_entropy` "
        "expects): separately, a small probability becomes 0 on the way, and its gradient NaN.",
    ),
)
aspect, slip, misconception, variant, alternative = exercise.decorators()


def _text(draw, ragged, vocab_size=None):
    """(logits, tokens, pad): the padding has an id of its own, which is not 0, and may be any."""
    batch, n, v = draw.sizes(3, 4, 9)
    v = vocab_size or v
    pad = 1 + int(draw.integers(v - 1, 1))
    tokens = draw.integers(v - 1, batch, n)
    tokens = tokens + (tokens >= pad)                                                   # every id but the padding's
    tokens[0, 1] = 0                                                                    # a word like any other
    if ragged:
        tokens = tokens.masked_fill(~_two_or_more(draw, batch, n), pad)
    return 2 * draw.normal(batch, n, v), tokens, pad


def _two_or_more(draw, batch, n):
    """A padding mask with at least two words in each row, a full one and a short one among them."""
    lengths = 2 + draw.integers(n - 1, batch)
    lengths[0], lengths[1] = n, 2
    return torch.arange(n) < lengths[:, None]


# ----------------------------------------------------------------------------------------------------- what is observed


@aspect("what comes next", points=2, hint=2)
def what_comes_next(answer, draw):
    """the loss at each position is about the token after it"""
    return answer(*_text(draw, ragged=False))


@aspect("padding", points=2, hint=3)
def padding(answer, draw):
    """texts of several lengths: each real token counts once, and padding not at all"""
    return answer(*_text(draw, ragged=True))


@aspect("a model that knows", points=1, hint=3)
def a_model_that_knows(answer, draw):
    """if sure of the right next token, its loss is nearly 0; if sure of a wrong one, large but not infinite"""
    logits, tokens, pad = _text(draw, ragged=False)
    following = nn.functional.one_hot(tokens.roll(-1, dims=1), logits.shape[-1])
    return torch.stack([torch.as_tensor(answer(200.0 * sign * following, tokens, pad)) for sign in (1, -1)])


@aspect("gradient", points=1, hint=3, explain=explain_way_back("logits"))
def gradient(answer, draw):
    """a number that can be minimised: its gradient reaches the logits"""
    logits, tokens, pad = _text(draw, ragged=True)
    logits.requires_grad_()
    loss, right = (of(logits, tokens, pad).reshape(1) for of in (answer, exercise.reference))
    return way_back(loss, right, [logits], draw)


# -------------------------------------------------------------------------------------- one slip away from the solution

ALL = ("what comes next", "padding", "a model that knows")
PADDING = ("padding",)
LOGITS, TOKENS, END = "logits[:, :-1]", "tokens[:, 1:]", "ignore_index=pad)"

slip("no shift", ALL,
     {LOGITS: "logits", TOKENS: "tokens"},
     {LOGITS: "logits[:, 1:]"},  # both cut at the same end
     {TOKENS: "tokens[:, :-1]"}, words="""
    Each position was asked about the token that it has just read. A model learns to repeat its input within a few
    steps, the loss falls to nothing, and nothing has been learned: this is the target leak. The logits at position t
    are about the token at t + 1.""")
slip("shifted the wrong way", ALL, {LOGITS: "logits[:, 1:]", TOKENS: "tokens[:, :-1]"}, words="""
    The logits at position t were compared with the token at t − 1, which the model read before. What it has not read
    yet lies on the other side.""")
slip("rolled around", ("what comes next", *PADDING), {LOGITS: "logits", TOKENS: "tokens.roll(-1, dims=1)"}, words="""
    The tokens were rolled, so the last position of a full row is compared with the row's own *first* token. Nothing
    comes after the last token, so its logits have no target: leave them out.""")
slip("padding in the loss", PADDING, {", ignore_index=pad": ""}, words="""
    Padding was predicted as if it were text. Nothing is easier to predict, so the loss looks better the more padding a
    batch has, and the model spends itself on it. Positions whose target is `pad` must not count, neither in the sum nor
    in the divisor.""")
slip("padding taken to be 0", ("what comes next", *PADDING), {"ignore_index=pad": "ignore_index=0"}, words="""
    The token 0 was left out as if it were the padding, and the padding stayed in. Which id stands for padding is the
    tokenizer's choice, and here it is an argument.""")
slip("divides by the padding too", PADDING, {END: 'ignore_index=pad, reduction="sum") / target.numel()'}, words="""
    Padding adds nothing to the sum and is still counted in the divisor: the same texts get a different loss in a batch
    with more padding. Divide by the number of real targets.""")
slip("summed, not averaged", ALL, {END: 'ignore_index=pad, reduction="sum")'}, words="""
    This is the sum over the tokens: twice the batch, twice the loss, and twice the step that is taken. Divide by the
    number of real targets.""")
slip("base 2", ALL, {END: "ignore_index=pad) / torch.tensor(2.0).log()"}, words="""
    The logarithm is to base 2: these are bits, and nats were asked for. A bit is ln 2 ≈ 0.69 nats.""")
slip("softmax before the softmax", ALL, {LOGITS: f"{LOGITS}.softmax(dim=-1)"}, words="""
    `cross_entropy` takes logits and does the softmax itself. It got probabilities and took the softmax of those: they
    lie between 0 and 1, so that even a model that is sure and right gets a large loss.""")
slip("logits taken for logarithms", ALL, {"cross_entropy": "nll_loss"}, words="""
    The right tokens' logits were averaged as they are. They are not yet logarithms of probabilities: nothing makes them
    compete, so the loss falls without end if all of them grow. Softmax comes first, then the logarithm, or both in
    one.""")
slip("logarithm of zero", ("a model that knows",),
     {LOGITS: f"{LOGITS}.softmax(dim=-1).log()", "cross_entropy": "nll_loss"},
     {LOGITS: f"({LOGITS}.softmax(dim=-1) + 1e-9).log()", "cross_entropy": "nll_loss"},  # wrong in place of infinite
     words="""
    A probability of e⁻²⁰⁰ is 0 in float32, and its logarithm −∞. Take the logarithm and the softmax in one step, so
    that the exponential is never rounded to nothing: which function does that?""")
slip("exponentials by hand", ("a model that knows",),
     {"predictions.flatten(0, 1)": "predictions.exp().div(predictions.exp().sum(-1, keepdim=True)).log().flatten(0, 1)",
      "cross_entropy": "nll_loss"},
     {"predictions.flatten(0, 1)": "(predictions - predictions.exp().sum(-1, keepdim=True).log()).flatten(0, 1)",
      "cross_entropy": "nll_loss"}, words="""
    The exponentials were taken of the logits as they stand: e²⁰⁰ is ∞ in float32, and ∞/∞ is NaN. Take each row's
    maximum away first, or use a function that does: `cross_entropy`, `log_softmax`, `logsumexp`.""")
slip("reshaped for transposed", ALL,
     {"predictions.flatten(0, 1), target.flatten()": "predictions.reshape(len(logits), logits.shape[-1], -1), target"},
     words="""
    `reshape` and `view` read the same numbers in the same order and only break the rows elsewhere, so a position then
    holds pieces of several. The shape fits and the numbers do not. Swap the axes, or join batch and positions into
    one.""")
slip("a missing minus", ALL, {"return ": "return -"}, words="""
    This is the mean logarithm of the probabilities: never above 0, and better the larger it is. A loss is what should
    become small.""")
slip("cut off from the gradient", ("gradient",), {END: "ignore_index=pad).item()"}, words="""
    The number is right, but it is only a number: after `.item()`, `float(…)`, `.detach()` or `torch.no_grad()` nobody
    knows where it came from, and there is nothing to train with. Return the tensor.""")


# ------------------------------------------------------------------------------------------------------ further from it


@misconception("masked by what was read", fails=PADDING)
def masked_by_what_was_read(logits, tokens, pad):
    """Positions were left out where padding was *read*, so each text's last token is still asked what comes after it,
    and is told: padding. What decides is the token that is to be predicted."""
    losses = nn.functional.cross_entropy(logits[:, :-1].mT, tokens[:, 1:], reduction="none")
    return losses[tokens[:, :-1] != pad].mean()


@misconception("each text counts the same", fails=PADDING)
def each_text_counts_the_same(logits, tokens, pad):
    """Each text was averaged by itself, and then those averages were averaged. A token in a short text then weighs more
    than one in a long text. What is asked for is the mean over all real tokens of the batch."""
    target = tokens[:, 1:]
    real = target != pad
    losses = -logits[:, :-1].log_softmax(dim=-1).gather(-1, target[..., None])[..., 0]
    return ((losses * real).sum(dim=1) / real.sum(dim=1)).mean()


# ------------------------------------------------------------------------------------------------ right in other styles


@alternative("the axes swapped")
def the_axes_swapped(logits, tokens, pad):
    """cross_entropy takes the classes as the second axis, too."""
    return nn.functional.cross_entropy(logits[:, :-1].mT, tokens[:, 1:], ignore_index=pad)


@alternative("log_softmax and gather")
def log_softmax_and_gather(logits, tokens, pad):
    """Picks the real tokens by a boolean mask."""
    target = tokens[:, 1:]
    log_p = logits.log_softmax(dim=-1)[:, :-1].gather(-1, target.unsqueeze(-1)).squeeze(-1)
    return -log_p[target != pad].mean()


@alternative("one-hot targets in float64")
def one_hot_targets_in_float64(logits, tokens, pad):
    """Logsumexp minus the right logit, weighted by what is real."""
    target, scores = tokens[:, 1:], logits[:, :-1].double()
    right = torch.einsum("bnv,bnv->bn", scores, nn.functional.one_hot(target, scores.shape[-1]).double())
    real = (target != pad).double()
    return ((scores.logsumexp(dim=-1) - right) * real).sum() / real.sum()


@alternative("a loop over texts and positions")
def a_loop_over_texts_and_positions(logits, tokens, pad):
    """Adds up one token after the other."""
    total, count = torch.zeros(()), 0
    for scores, text in zip(logits, tokens.tolist(), strict=True):
        for t, following in enumerate(text[1:]):
            if following != pad:
                total, count = total - scores[t].log_softmax(dim=0)[following], count + 1
    return total / count
