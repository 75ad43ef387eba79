"""Assignment 01: one step of a recurrent network, what is kept of a sentence, and how surprised a model is.

Function bodies below stand in for a learner's: they use torch alone, and the argument names of the contract.
"""

import math

import torch
from torch import nn

from attncourse import attention, metrics
from attncourse.exercises.core import Exercise
from attncourse.exercises.judge import arrives, told
from attncourse.exercises.observe import gradients, telling

# ------------------------------------------------------------------------------------------------------------- rnn_step

rnn_step = Exercise(
    "rnn_step",
    reference=lambda x, state, W_x, W_h, b: torch.tanh(x @ W_x + state @ W_h + b),
    returns=("state",),
    forbidden=(
        "attncourse.recurrent",
        "torch.nn.RNN",
        "torch.nn.RNNCell",
        "torch.rnn_tanh_cell",
        "torch.rnn_tanh",
    ),
    difficulty=1,
    minutes=8,
    hints=(
        "Write the shapes beside the equation. Which two products give (batch, d_hidden), and what may be added to it?",
        "Everything is added up first, and tanh comes once, around the whole sum.",
        "Row vectors: a state is a row and stands on the left of its matrix, `state @ W_h`.",
    ),
)


def _weights(draw, d_in, d_hidden):
    """W_x, W_h and b, of a size that leaves tanh between its ends."""
    return draw.normal(d_in, d_hidden) / 2, draw.normal(d_hidden, d_hidden) / 2, draw.normal(d_hidden)


@rnn_step.aspect("the first step", points=1)
def _(answer, draw):
    """from an empty state, the input and the bias decide"""
    batch, d_in, d_hidden = draw.sizes(3, 2, 7)
    return answer(draw.normal(batch, d_in), torch.zeros(batch, d_hidden), *_weights(draw, d_in, d_hidden))


@rnn_step.aspect("remembering", points=1)
def _(answer, draw):
    """with nothing to read, the new state comes from the old one"""
    batch, d_in, d_hidden = draw.sizes(3, 2, 7)
    W_x, W_h, b = _weights(draw, d_in, d_hidden)
    return answer(torch.zeros(batch, d_in), draw.normal(batch, d_hidden), W_x, W_h, torch.zeros_like(b))


@rnn_step.aspect("three steps", points=2)
def _(answer, draw):
    """what was read two steps ago is still in the state"""
    batch, d_in, d_hidden = draw.sizes(3, 2, 7)
    weights = _weights(draw, d_in, d_hidden)
    state = draw.normal(batch, d_hidden)
    for _ in range(3):
        state = answer(draw.normal(batch, d_in), state, *weights)
    return state


@rnn_step.aspect("gradient", points=1, explain=arrives("x", "state", "W_x", "W_h", "b"))
def _(answer, draw):
    """everything can be learned: the gradient reaches the input, the previous state, and all weights"""
    batch, d_in, d_hidden = draw.sizes(3, 2, 7)
    inputs = [draw.normal(batch, d_in), draw.normal(batch, d_hidden), *_weights(draw, d_in, d_hidden)]
    inputs = [tensor.requires_grad_() for tensor in inputs]
    return gradients(answer(*inputs), inputs, draw)


WHOLE_STEP = ("the first step", "remembering", "three steps", "gradient")


@rnn_step.misconception("tanh left out", fails=WHOLE_STEP)
def _(x, state, W_x, W_h, b):
    """Without tanh each step is a linear map. A hundred linear maps in a row are one linear map, and the state grows or
    shrinks by the same factor at every step. Bend the sum before you hand it on."""
    return x @ W_x + state @ W_h + b


@rnn_step.misconception("sigmoid for tanh", fails=WHOLE_STEP)
def _(x, state, W_x, W_h, b):
    """This is the other S-shaped curve. It maps to 0…1, as suits a gate, which says how much to let through; a state
    should be able to say no as well as yes. The equation has tanh, which maps to −1…1."""
    return torch.sigmoid(x @ W_x + state @ W_h + b)


@rnn_step.misconception("relu for tanh", fails=WHOLE_STEP)
def _(x, state, W_x, W_h, b):
    """Negative numbers were cut off and positive ones left as they are. In a deep network that works well; here the
    same matrix is met at every step, and a state without a ceiling can grow at every step. The equation has tanh, which
    keeps it within −1…1."""
    return torch.relu(x @ W_x + state @ W_h + b)


@rnn_step.misconception("forgets the state", fails=("remembering", "three steps", "gradient"))
def _(x, state, W_x, W_h, b):
    """The new state depends on the input alone, so nothing is carried along and the network knows one word of every
    sentence: the last. Which term of the equation is missing?"""
    return torch.tanh(x @ W_x + b)


@rnn_step.misconception("the state's matrix transposed", fails=("remembering", "three steps", "gradient"))
def _(x, state, W_x, W_h, b):
    """W_h is square, so its transpose fits as well, and only the numbers are wrong. Vectors are rows in this course:
    the state stands on the left. (`torch.nn.Linear` keeps its weight the other way round; if you wrote a formula for
    columns, W h, turn all of it around.)"""
    return torch.tanh(x @ W_x + state @ W_h.mT + b)


@rnn_step.misconception("each other's matrix", fails=WHOLE_STEP)
def _(x, state, W_x, W_h, b):
    """Input and state were put side by side in one order and their matrices on top of each other in the other, so
    numbers of the state meet rows of W_x. The shapes fit all the same. The order is yours to choose, but choose the
    same one both times."""
    return torch.tanh(torch.cat([state, x], dim=-1) @ torch.cat([W_x, W_h]) + b)


@rnn_step.misconception("two tanhs", fails=("the first step", "three steps", "gradient"))
def _(x, state, W_x, W_h, b):
    """Input and state were bent separately and then added, so a state can be as large as 2, and the two cannot cancel
    before tanh sees them. Add up first, bend once."""
    return torch.tanh(x @ W_x) + torch.tanh(state @ W_h + b)


@rnn_step.variant("two tanhs", fails=("three steps", "gradient"))
def _(x, state, W_x, W_h, b):
    """The bias with the input."""
    return torch.tanh(x @ W_x + b) + torch.tanh(state @ W_h)


@rnn_step.misconception("bias left out", fails=("the first step", "three steps", "gradient"))
def _(x, state, W_x, W_h, b):
    """`b` was never used. Without it, a network that reads nothing from an empty state can only stay empty."""
    return torch.tanh(x @ W_x + state @ W_h)


@rnn_step.misconception("bias after the tanh", fails=("the first step", "three steps", "gradient"))
def _(x, state, W_x, W_h, b):
    """The bias was added outside of the tanh, so states leave the range −1…1 and the bias cannot move the point at
    which a unit switches. It belongs in the sum."""
    return torch.tanh(x @ W_x + state @ W_h) + b


@rnn_step.misconception("added to the old state", fails=("remembering", "three steps", "gradient"))
def _(x, state, W_x, W_h, b):
    """The new state is the old one plus a change. That is a good idea, which comes back as the residual connection in
    lecture 08, but it is a different network: here the new state *replaces* the old one."""
    return state + torch.tanh(x @ W_x + state @ W_h + b)


@rnn_step.misconception("cut off from the gradient", fails=("gradient",))
def _(x, state, W_x, W_h, b):
    """The numbers are right, but the gradient does not get through: `.detach()`, `.data`, numpy and `torch.no_grad()`
    forget where they came from. What was read early in a sentence could then never learn from what comes late."""
    return torch.tanh(x @ W_x + state.detach() @ W_h + b)


@rnn_step.variant("cut off from the gradient", fails=("gradient",))
def _(x, state, W_x, W_h, b):
    """Everything."""
    return torch.tanh(x @ W_x + state @ W_h + b).detach()


@rnn_step.alternative("one product")
def _(x, state, W_x, W_h, b):
    """Input and state side by side, the matrices on top of each other."""
    return torch.addmm(b, torch.cat([x, state], dim=-1), torch.cat([W_x, W_h])).tanh()


@rnn_step.alternative("linear layers")
def _(x, state, W_x, W_h, b):
    """torch's own, which takes weights for columns."""
    return nn.functional.tanh(nn.functional.linear(x, W_x.mT, b) + nn.functional.linear(state, W_h.mT))


@rnn_step.alternative("einsum and exponentials, float64")
def _(x, state, W_x, W_h, b):
    """tanh a = 2 σ(2a) − 1, in double precision."""
    read = torch.einsum("bi,ih->bh", x.double(), W_x.double())
    past = torch.einsum("bh,hk->bk", state.double(), W_h.double())
    return 2 * torch.sigmoid(2 * (read + past + b)) - 1


@rnn_step.alternative("a loop over the batch, not contiguous")
def _(x, state, W_x, W_h, b):
    """One sentence at a time, as columns."""
    columns = [W_x.mT @ one + W_h.mT @ before + b for one, before in zip(x, state, strict=True)]
    return torch.stack(columns, dim=1).tanh().mT


# ------------------------------------------------------------------------------------------------------------ mean_pool

mean_pool = Exercise(
    "mean_pool",
    reference=lambda states, lengths: attention.masked_mean(
        states, attention.lengths_to_mask(lengths, states.shape[1])
    ),
    returns=("summary",),
    forbidden=("attncourse.attention", "attncourse.recurrent"),
    difficulty=2,
    minutes=12,
    hints=(
        "Two things must know the length: what is added up, and what the sum is divided by.",
        "`torch.arange(n) < lengths[:, None]` is True where there is a word: (batch, n). It needs one more axis to "
        "meet the states.",
        "Zero what is not there (`masked_fill` or a product), sum over the positions, divide by `lengths[:, None]`.",
    ),
)


def _states(draw, ragged):
    """(states, lengths), and what a network leaves behind a sentence's end is as large as anything else."""
    batch, n, d = draw.sizes(3, 3, 8)
    lengths = draw.padding_mask(batch, n).sum(dim=1) if ragged else torch.full((batch,), n)
    return draw.normal(batch, n, d), lengths


@mean_pool.aspect("full sentences", points=1)
def _(answer, draw):
    """the mean over the positions, one vector for each sentence"""
    return answer(*_states(draw, ragged=False))


@mean_pool.aspect("short sentences", points=2)
def _(answer, draw):
    """the mean over the words that are there, divided by how many there are"""
    return answer(*_states(draw, ragged=True))


@mean_pool.aspect(
    "past the end", points=1, explain=told("summary {place} changes by {size} when only the padding changes")
)
def _(answer, draw):
    """what a network leaves in the padding changes nothing"""
    states, lengths = _states(draw, ragged=True)
    mask = torch.arange(states.shape[1]) < lengths[:, None]
    other = states + 5 * draw.normal(*states.shape) * ~mask[..., None]
    return telling(answer(states, lengths)) - answer(other, lengths)


@mean_pool.aspect("a batch of one word", points=1)
def _(answer, draw):
    """one sentence of one word is its own mean"""
    n, d = draw.sizes(2, 2, 8)
    return answer(draw.normal(1, n, d), torch.ones(1, dtype=torch.int64))


@mean_pool.aspect("gradient", points=1, explain=arrives("states"))
def _(answer, draw):
    """each word of a sentence gets the same share of the gradient, padding gets none"""
    states, lengths = _states(draw, ragged=True)
    return gradients(answer(states.requires_grad_(), lengths), [states], draw)


RAGGED = ("short sentences", "past the end", "a batch of one word", "gradient")
EVERY_MEAN = ("full sentences", *RAGGED)


@mean_pool.misconception("mean over all positions", fails=RAGGED)
def _(states, lengths):
    """The padding was averaged in, so the summary of a short sentence depends on what the network left past its end,
    and on how long its neighbours in the batch are. Only the first `lengths[b]` positions of row b are words."""
    return states.mean(dim=1)


@mean_pool.variant("mean over all positions", fails=("short sentences", "past the end", "gradient"))
def _(states, lengths):
    """Cut at the longest sentence, which helps the others little."""
    return states[:, : int(lengths.max())].mean(dim=1)


@mean_pool.misconception("divides by the padded length", fails=("short sentences", "a batch of one word", "gradient"))
def _(states, lengths):
    """The padding is gone from the sum and still counted in the divisor: a sentence of two words in a row of ten
    becomes five times too small. Divide by how many words there are."""
    mask = torch.arange(states.shape[1]) < lengths[:, None]
    return (states * mask[..., None]).mean(dim=1)


@mean_pool.misconception("sums the padding too", fails=RAGGED)
def _(states, lengths):
    """The divisor is right, but the padding was added up with the words. A network's states past a sentence's end are
    not zero: it reads padding as it reads anything else."""
    return states.sum(dim=1) / lengths[:, None]


@mean_pool.misconception("no division", fails=("full sentences", "short sentences", "gradient"))
def _(states, lengths):
    """This is the sum: it grows with the length of the sentence, and whatever reads it must cope with any size. A mean
    also divides."""
    mask = torch.arange(states.shape[1]) < lengths[:, None]
    return (states * mask[..., None]).sum(dim=1)


@mean_pool.misconception("the last state", fails=("full sentences", "short sentences", "gradient"))
def _(states, lengths):
    """This is the state after the last word, the other simple summary. The mean counts every position the same, the
    first word's as much as the last one's."""
    return states[torch.arange(len(states)), lengths - 1]


@mean_pool.misconception("the last position", fails=EVERY_MEAN)
def _(states, lengths):
    """This picks the last column of the rectangle, one state instead of a mean; and for a short sentence it is
    padding."""
    return states[:, -1]


@mean_pool.misconception("the largest", fails=("full sentences", "short sentences", "gradient"))
def _(states, lengths):
    """For each of the d numbers, this takes the largest over the positions. It is called max pooling and has its uses,
    but a single position decides each number, whereas a mean lets all of them speak."""
    mask = torch.arange(states.shape[1]) < lengths[:, None]
    return states.masked_fill(~mask[..., None], -torch.inf).amax(dim=1)


@mean_pool.variant("the largest", "mean over all positions", fails=EVERY_MEAN)
def _(states, lengths):
    """Padding among them."""
    return states.amax(dim=1)


@mean_pool.misconception("averages the features", fails=EVERY_MEAN)
def _(states, lengths):
    """The last axis has gone, and that is where the d features of a state are. One number is left for each position.
    Keep the features and average over the positions, axis 1."""
    mask = torch.arange(states.shape[1]) < lengths[:, None]
    return (states * mask[..., None]).mean(dim=-1)


@mean_pool.variant("averages the features", fails=EVERY_MEAN)
def _(states, lengths):
    """Without a mask."""
    return states.mean(dim=-1)


@mean_pool.misconception(
    "one word too few", fails=("full sentences", "short sentences", "a batch of one word", "gradient")
)
def _(states, lengths):
    """The last word of each sentence is missing. A sentence of 3 words stands at the positions 0, 1 and 2: those below
    its length."""
    mask = torch.arange(states.shape[1]) < (lengths - 1)[:, None]
    return (states * mask[..., None]).sum(dim=1) / (lengths - 1).clamp(min=1)[:, None]


@mean_pool.misconception("one word too many", fails=RAGGED)
def _(states, lengths):
    """One position past the end was included. Positions are counted from 0, so a sentence of 3 words has none at
    position 3."""
    mask = torch.arange(states.shape[1]) <= lengths[:, None]
    return (states * mask[..., None]).sum(dim=1) / mask.sum(dim=1, keepdim=True)


@mean_pool.misconception("cut off from the gradient", fails=("gradient",))
def _(states, lengths):
    """The numbers are right, but the gradient does not get through: `.detach()`, `.data`, numpy and `.item()` forget
    where numbers came from, so the network that made the states cannot learn."""
    mask = torch.arange(states.shape[1]) < lengths[:, None]
    return (states.detach() * mask[..., None]).sum(dim=1) / lengths[:, None]


@mean_pool.alternative("a mask and a quotient")
def _(states, lengths):
    """The usual way."""
    mask = torch.arange(states.shape[1]) < lengths[:, None]
    return (states * mask[..., None]).sum(dim=1) / lengths[:, None]


@mean_pool.alternative("a loop over the sentences")
def _(states, lengths):
    """Cuts each sentence out and takes its mean."""
    return torch.stack([row[:n].mean(dim=0) for row, n in zip(states, lengths.tolist(), strict=True)])


@mean_pool.alternative("weights that sum to one, einsum")
def _(states, lengths):
    """A weighted average with equal weights: what attention will make of it."""
    weights = (torch.arange(states.shape[1]) < lengths[:, None]) / lengths[:, None]
    return torch.einsum("bn,bnd->bd", weights, states)


@mean_pool.alternative("float64, not contiguous")
def _(states, lengths):
    """Sums up to each position in double precision, picks the last one, and returns a transposed view."""
    totals = states.double().cumsum(dim=1)[torch.arange(len(states)), lengths - 1]
    return (totals / lengths[:, None]).mT.contiguous().mT


# --------------------------------------------------------------------------------------------------------- shifted_loss

shifted_loss = Exercise(
    "shifted_loss",
    reference=lambda logits, tokens, pad: metrics.token_loss(logits[:, :-1], tokens[:, 1:], pad),
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
        "whole batch at once.",
    ),
)


def _text(draw, ragged, vocabulary=None):
    """(logits, tokens, pad): the padding has an id of its own, which is not 0, and may be any."""
    batch, n, v = draw.sizes(3, 4, 9)
    v = vocabulary or v
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


@shifted_loss.aspect("what comes next", points=2)
def _(answer, draw):
    """the loss at each position is about the token after it"""
    return answer(*_text(draw, ragged=False))


@shifted_loss.aspect("padding", points=2)
def _(answer, draw):
    """texts of several lengths: each real token counts once, and padding not at all"""
    return answer(*_text(draw, ragged=True))


@shifted_loss.aspect("a model that knows", points=1)
def _(answer, draw):
    """if sure of the right next token, its loss is nearly 0; if sure of a wrong one, large but not infinite"""
    logits, tokens, pad = _text(draw, ragged=False)
    following = nn.functional.one_hot(tokens.roll(-1, dims=1), logits.shape[-1])
    return torch.stack([torch.as_tensor(answer(200.0 * sign * following, tokens, pad)) for sign in (1, -1)])


@shifted_loss.aspect("gradient", points=1, explain=arrives("logits"))
def _(answer, draw):
    """a number that can be minimised: its gradient reaches the logits"""
    logits, tokens, pad = _text(draw, ragged=True)
    return gradients(answer(logits.requires_grad_(), tokens, pad).reshape(1), [logits], draw)


EVERY_LOSS = ("what comes next", "padding", "a model that knows", "gradient")


@shifted_loss.misconception("no shift", fails=EVERY_LOSS)
def _(logits, tokens, pad):
    """Each position was asked about the token that it has just read. A model learns to repeat its input within a few
    steps, the loss falls to nothing, and nothing has been learned: this is the target leak. The logits at position t
    are about the token at t + 1."""
    return nn.functional.cross_entropy(logits.flatten(0, 1), tokens.flatten(), ignore_index=pad)


@shifted_loss.variant("no shift", fails=EVERY_LOSS)
def _(logits, tokens, pad):
    """Both cut at the same end."""
    return nn.functional.cross_entropy(logits[:, 1:].flatten(0, 1), tokens[:, 1:].flatten(), ignore_index=pad)


@shifted_loss.variant("no shift", fails=EVERY_LOSS)
def _(logits, tokens, pad):
    """Both cut at the other end."""
    return nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), tokens[:, :-1].flatten(), ignore_index=pad)


@shifted_loss.misconception("shifted the wrong way", fails=EVERY_LOSS)
def _(logits, tokens, pad):
    """The logits at position t were compared with the token at t − 1, which the model read before. What it has not read
    yet lies on the other side."""
    return nn.functional.cross_entropy(logits[:, 1:].flatten(0, 1), tokens[:, :-1].flatten(), ignore_index=pad)


@shifted_loss.misconception("rolled around", fails=("what comes next", "padding", "gradient"))
def _(logits, tokens, pad):
    """The tokens were rolled, so the last position of a full row is compared with the row's own *first* token. Nothing
    comes after the last token, so its logits have no target: leave them out."""
    return nn.functional.cross_entropy(logits.flatten(0, 1), tokens.roll(-1, dims=1).flatten(), ignore_index=pad)


@shifted_loss.misconception("padding in the loss", fails=("padding", "gradient"))
def _(logits, tokens, pad):
    """Padding was predicted as if it were text. Nothing is easier to predict, so the loss looks better the more padding
    a batch has, and the model spends itself on it. Positions whose target is `pad` must not count, neither in the sum
    nor in the divisor."""
    return nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), tokens[:, 1:].flatten())


@shifted_loss.variant("no shift", "padding in the loss", fails=EVERY_LOSS)
def _(logits, tokens, pad):
    """And nothing about padding."""
    return nn.functional.cross_entropy(logits.flatten(0, 1), tokens.flatten())


@shifted_loss.misconception("padding taken to be 0", fails=("what comes next", "padding", "gradient"))
def _(logits, tokens, pad):
    """The token 0 was left out as if it were the padding, and the padding stayed in. Which id stands for padding is the
    tokenizer's choice, and here it is an argument."""
    return nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), tokens[:, 1:].flatten(), ignore_index=0)


@shifted_loss.misconception("masked by what was read", fails=("padding", "gradient"))
def _(logits, tokens, pad):
    """Positions were left out where padding was *read*, so each text's last token is still asked what comes after it,
    and is told: padding. What decides is the token that is to be predicted."""
    losses = nn.functional.cross_entropy(logits[:, :-1].mT, tokens[:, 1:], reduction="none")
    return losses[tokens[:, :-1] != pad].mean()


@shifted_loss.misconception("divides by the padding too", fails=("padding", "gradient"))
def _(logits, tokens, pad):
    """Padding adds nothing to the sum and is still counted in the divisor: the same texts get a different loss in a
    batch with more padding. Divide by the number of real targets."""
    target = tokens[:, 1:]
    losses = -logits[:, :-1].log_softmax(dim=-1).gather(-1, target[..., None])[..., 0]
    return (losses * (target != pad)).mean()


@shifted_loss.misconception("each text counts the same", fails=("padding", "gradient"))
def _(logits, tokens, pad):
    """Each text was averaged by itself, and then those averages were averaged. A token in a short text then weighs more
    than one in a long text. What is asked for is the mean over all real tokens of the batch."""
    target = tokens[:, 1:]
    real = target != pad
    losses = -logits[:, :-1].log_softmax(dim=-1).gather(-1, target[..., None])[..., 0]
    return ((losses * real).sum(dim=1) / real.sum(dim=1)).mean()


@shifted_loss.misconception("summed, not averaged", fails=EVERY_LOSS)
def _(logits, tokens, pad):
    """This is the sum over the tokens: twice the batch, twice the loss, and twice the step that is taken. Divide by the
    number of real targets."""
    return nn.functional.cross_entropy(
        logits[:, :-1].flatten(0, 1), tokens[:, 1:].flatten(), ignore_index=pad, reduction="sum"
    )


@shifted_loss.misconception("base 2", fails=EVERY_LOSS)
def _(logits, tokens, pad):
    """The logarithm is to base 2: these are bits, and nats were asked for. A bit is ln 2 ≈ 0.69 nats."""
    loss = nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), tokens[:, 1:].flatten(), ignore_index=pad)
    return loss / math.log(2)


@shifted_loss.misconception("softmax before the softmax", fails=EVERY_LOSS)
def _(logits, tokens, pad):
    """`cross_entropy` takes logits and does the softmax itself. It got probabilities and took the softmax of those:
    they lie between 0 and 1, so that even a model that is sure and right gets a large loss."""
    probabilities = logits[:, :-1].softmax(dim=-1)
    return nn.functional.cross_entropy(probabilities.flatten(0, 1), tokens[:, 1:].flatten(), ignore_index=pad)


@shifted_loss.misconception("logits taken for logarithms", fails=EVERY_LOSS)
def _(logits, tokens, pad):
    """The right tokens' logits were averaged as they are. They are not yet logarithms of probabilities: nothing makes
    them compete, so the loss falls without end if all of them grow. Softmax comes first, then the logarithm, or both in
    one."""
    return nn.functional.nll_loss(logits[:, :-1].mT, tokens[:, 1:], ignore_index=pad)


@shifted_loss.misconception("logarithm of zero", fails=("a model that knows",))
def _(logits, tokens, pad):
    """A probability of e⁻²⁰⁰ is 0 in float32, and its logarithm −∞. Take the logarithm and the softmax in one step, so
    that the exponential is never rounded to nothing: which function does that?"""
    target = tokens[:, 1:]
    p = logits[:, :-1].softmax(dim=-1).gather(-1, target[..., None])[..., 0]
    return -p[target != pad].log().mean()


@shifted_loss.variant("logarithm of zero", fails=("a model that knows",))
def _(logits, tokens, pad):
    """With a small number against it, which makes the loss wrong in place of infinite."""
    target = tokens[:, 1:]
    p = logits[:, :-1].softmax(dim=-1).gather(-1, target[..., None])[..., 0]
    return -(p[target != pad] + 1e-9).log().mean()


@shifted_loss.misconception("reshaped for transposed", fails=EVERY_LOSS)
def _(logits, tokens, pad):
    """`reshape` and `view` read the same numbers in the same order and only break the rows elsewhere, so a position
    then holds pieces of several. The shape fits and the numbers do not. Swap the axes, or join batch and positions into
    one."""
    batch, n, vocabulary = logits.shape
    return nn.functional.cross_entropy(
        logits[:, :-1].reshape(batch, vocabulary, n - 1), tokens[:, 1:], ignore_index=pad
    )


@shifted_loss.misconception("a missing minus", fails=EVERY_LOSS)
def _(logits, tokens, pad):
    """This is the mean logarithm of the probabilities: never above 0, and better the larger it is. A loss is what
    should become small."""
    return -nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), tokens[:, 1:].flatten(), ignore_index=pad)


@shifted_loss.misconception("cut off from the gradient", fails=("gradient",))
def _(logits, tokens, pad):
    """The number is right, but it is only a number: after `.item()`, `float(…)`, `.detach()` or `torch.no_grad()`
    nobody knows where it came from, and there is nothing to train with. Return the tensor."""
    return nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), tokens[:, 1:].flatten(), ignore_index=pad).item()


@shifted_loss.alternative("the axes swapped")
def _(logits, tokens, pad):
    """cross_entropy takes the classes as the second axis, too."""
    return nn.functional.cross_entropy(logits[:, :-1].mT, tokens[:, 1:], ignore_index=pad)


@shifted_loss.alternative("log_softmax and gather")
def _(logits, tokens, pad):
    """Picks the real tokens by a boolean mask."""
    target = tokens[:, 1:]
    log_p = logits.log_softmax(dim=-1)[:, :-1].gather(-1, target.unsqueeze(-1)).squeeze(-1)
    return -log_p[target != pad].mean()


@shifted_loss.alternative("one-hot targets in float64")
def _(logits, tokens, pad):
    """Logsumexp minus the right logit, weighted by what is real."""
    target, scores = tokens[:, 1:], logits[:, :-1].double()
    right = torch.einsum("bnv,bnv->bn", scores, nn.functional.one_hot(target, scores.shape[-1]).double())
    real = (target != pad).double()
    return ((scores.logsumexp(dim=-1) - right) * real).sum() / real.sum()


@shifted_loss.alternative("a loop over texts and positions")
def _(logits, tokens, pad):
    """Adds up one token after the other."""
    total, count = torch.zeros(()), 0
    for scores, text in zip(logits, tokens.tolist(), strict=True):
        for t, following in enumerate(text[1:]):
            if following != pad:
                total, count = total - scores[t].log_softmax(dim=0)[following], count + 1
    return total / count


# ----------------------------------------------------------------------------------------------------------- perplexity

perplexity = Exercise(
    "perplexity",
    reference=metrics.perplexity,
    returns=("perplexity",),
    forbidden=("attncourse.metrics",),
    numbers=True,
    difficulty=1,
    minutes=10,
    hints=(
        "A model that finds every token as likely as one side of a die with k sides has the perplexity k. Try k = 4.",
        "The logarithms are natural ones, so what undoes them is e to the power.",
        "Over the real tokens of all texts together: mean of the logarithms, minus, exponential. In this order.",
    ),
)


def _log_p(draw):
    """(log-probabilities, mask), and behind a text's end stands whatever the model made of the padding."""
    batch, n = draw.sizes(2, 3, 8)
    return draw.normal(batch, n) - 2.5 - draw.uniform(batch, 1), draw.padding_mask(batch, n)


@perplexity.aspect("a fair die", points=1)
def _(answer, draw):
    """a guess among k equal sides has the perplexity k"""
    k, n = draw.sizes(2, 3, 12)
    return torch.as_tensor(answer(torch.full((1, n), -math.log(k)), torch.ones(1, n, dtype=torch.bool)))


@perplexity.aspect("full texts", points=1)
def _(answer, draw):
    """tokens that are not equally hard"""
    log_p, mask = _log_p(draw)
    return torch.as_tensor(answer(log_p, torch.ones_like(mask)))


@perplexity.aspect("short texts", points=2)
def _(answer, draw):
    """each real token of all texts counts the same, padding counts for nothing"""
    return torch.as_tensor(answer(*_log_p(draw)))


ALL_PERPLEXITY = ("a fair die", "full texts", "short texts")


@perplexity.misconception("base 2 to natural logarithms", fails=ALL_PERPLEXITY)
def _(log_probabilities, mask):
    """2 was raised to a mean of *natural* logarithms. Bits go with 2, nats go with e, and mixed they give a number that
    looks better than it is. Test it with a die: four equal sides must give 4."""
    return 2 ** -log_probabilities[mask].mean()


@perplexity.misconception("e to logarithms of base 2", fails=ALL_PERPLEXITY)
def _(log_probabilities, mask):
    """The logarithms were turned into bits, and then e was raised to them. Bits go with 2, nats go with e. Test it with
    a die: four equal sides must give 4."""
    return torch.exp(-log_probabilities[mask].mean() / math.log(2))


@perplexity.misconception("a missing minus", fails=ALL_PERPLEXITY)
def _(log_probabilities, mask):
    """The result lies between 0 and 1: it is a kind of average of the tokens' probabilities. Perplexity is how many
    equal choices that would be, never fewer than 1."""
    return torch.exp(log_probabilities[mask].mean())


@perplexity.misconception("the loss itself", fails=ALL_PERPLEXITY)
def _(log_probabilities, mask):
    """This is the mean of −log p: the loss, in nats per token. Perplexity is the number of equal choices with that
    loss: undo the logarithm."""
    return -log_probabilities[mask].mean()


@perplexity.misconception("padding counted", fails=("short texts",))
def _(log_probabilities, mask):
    """What the model thinks of padding was averaged in. The mask is there to leave it out."""
    return torch.exp(-log_probabilities.mean())


@perplexity.misconception("divides by the padding too", fails=("short texts",))
def _(log_probabilities, mask):
    """Padding adds nothing to the sum and still counts in the divisor, which makes the model look better than it is,
    and the more padding there is, the better. Divide by the number of real tokens."""
    return torch.exp(-(log_probabilities * mask).mean())


@perplexity.misconception("averages the perplexities of the texts", fails=("full texts", "short texts"))
def _(log_probabilities, mask):
    """Each text got a perplexity of its own, and those were averaged. One hard text then outweighs many easy ones,
    because the exponential was taken too early. Average over all tokens first."""
    each = (log_probabilities * mask).sum(dim=1) / mask.sum(dim=1)
    return torch.exp(-each).mean()


@perplexity.misconception("each text counts the same", fails=("short texts",))
def _(log_probabilities, mask):
    """The means of the texts were averaged, so a token in a short text weighs more than one in a long text. All real
    tokens count the same."""
    return torch.exp(-((log_probabilities * mask).sum(dim=1) / mask.sum(dim=1)).mean())


@perplexity.misconception("averages before the logarithm", fails=("full texts", "short texts"))
def _(log_probabilities, mask):
    """The probabilities were averaged, or their inverses, in place of the logarithms. A text's probability is a
    product, so what belongs in the mean is what turns products into sums."""
    return 1 / log_probabilities[mask].exp().mean()


@perplexity.variant("averages before the logarithm", fails=("full texts", "short texts"))
def _(log_probabilities, mask):
    """The inverses."""
    return (-log_probabilities[mask]).exp().mean()


@perplexity.variant("averages before the logarithm", "padding counted", fails=("full texts", "short texts"))
def _(log_probabilities, mask):
    """The inverses, those of the padding among them."""
    return (-log_probabilities).exp().mean()


@perplexity.misconception("summed, not averaged", fails=ALL_PERPLEXITY)
def _(log_probabilities, mask):
    """This is one over the probability of the whole batch: astronomically large, and larger for more text. To find how
    many choices there were for *one* token, take the mean of the logarithms."""
    return torch.exp(-log_probabilities[mask].sum())


@perplexity.alternative("a number, by Python's own means")
def _(log_probabilities, mask):
    """Loops, and returns a float."""
    real = []
    for row, there in zip(log_probabilities.tolist(), mask.tolist(), strict=True):
        real += [p for p, ok in zip(row, there, strict=True) if ok]
    return math.exp(-math.fsum(real) / len(real))


@perplexity.alternative("in bits from end to end")
def _(log_probabilities, mask):
    """Logarithms to base 2, and 2 to their mean."""
    bits = -(log_probabilities / math.log(2)).masked_fill(~mask, 0.0).sum() / mask.sum()
    return 2**bits


@perplexity.alternative("the geometric mean in float64")
def _(log_probabilities, mask):
    """One over the n-th root of the text's probability."""
    p = log_probabilities.double().exp()[mask]
    return p.prod() ** (-1 / p.numel())


@perplexity.alternative("masked by a product, not contiguous")
def _(log_probabilities, mask):
    """Sums and divides over the transposed table, and returns one element of a longer tensor."""
    mean = (log_probabilities.mT * mask.mT.float()).sum() / mask.sum()
    return (-mean).exp().expand(3)[1]


# ------------------------------------------------------------------------------------------------------------- gru_step

gru_step = Exercise(
    "gru_step",
    reference=lambda x, state, W_x, W_h, b: _gru(x, state, W_x, W_h, b),
    returns=("state",),
    forbidden=("attncourse.recurrent", "torch.nn.GRU", "torch.nn.GRUCell", "torch.gru_cell", "torch.gru"),
    difficulty=2,
    minutes=15,
    extra=True,
    hints=(
        "Compute r, z and then the candidate: three lines that look alike. `W_x[0]` is the reset gate's matrix.",
        "Gates are sigmoids, the candidate is a tanh. The reset gate multiplies `state @ W_h[2]`, and nothing else.",
        "Test yourself: what must come out if z is 1 everywhere, and what if z is 0?",
    ),
)


def _gru(x, state, W_x, W_h, b):
    r = torch.sigmoid(x @ W_x[0] + state @ W_h[0] + b[0])
    z = torch.sigmoid(x @ W_x[1] + state @ W_h[1] + b[1])
    candidate = torch.tanh(x @ W_x[2] + r * (state @ W_h[2]) + b[2])
    return z * state + (1 - z) * candidate


def _gates(draw):
    batch, d_in, d_hidden = draw.sizes(3, 2, 7)
    weights = draw.normal(3, d_in, d_hidden) / 2, draw.normal(3, d_hidden, d_hidden) / 2, draw.normal(3, d_hidden)
    return draw.normal(batch, d_in), draw.normal(batch, d_hidden), *weights


@gru_step.aspect("a step", points=1)
def _(answer, draw):
    """the new state lies between the old one and the candidate"""
    return answer(*_gates(draw))


@gru_step.aspect(
    "a gate that keeps",
    points=1,
    explain=told("state {place} is {got}, and with z at 1 it should have stayed {expected}"),
)
def _(answer, draw):
    """with the update gate at 1 the state passes through untouched"""
    x, state, W_x, W_h, b = _gates(draw)
    b[1] += 100
    return answer(x, state, W_x, W_h, b)


@gru_step.aspect("gradient", points=1, explain=arrives("x", "state", "W_x", "W_h", "b"))
def _(answer, draw):
    """everything can be learned: the gradient reaches the input, the previous state, and all weights"""
    inputs = [tensor.requires_grad_() for tensor in _gates(draw)]
    return gradients(answer(*inputs), inputs, draw)


@gru_step.misconception("the update gate reversed", fails=("a step", "a gate that keeps", "gradient"))
def _(x, state, W_x, W_h, b):
    """Old and new are swapped: z is the share of the *old* state here, as in torch. (Some papers let z be the share of
    the new one. Both can be learned; they must not be mixed.)"""
    r = torch.sigmoid(x @ W_x[0] + state @ W_h[0] + b[0])
    z = torch.sigmoid(x @ W_x[1] + state @ W_h[1] + b[1])
    candidate = torch.tanh(x @ W_x[2] + r * (state @ W_h[2]) + b[2])
    return (1 - z) * state + z * candidate


@gru_step.misconception("reset before the matrix", fails=("a step", "gradient"))
def _(x, state, W_x, W_h, b):
    """The state was multiplied by r *before* its matrix: that is the GRU of the first paper (Cho et al. 2014). Here r
    multiplies the product `state @ W_h[2]`, as in torch, which is faster on a GPU. The two do not give the same
    result."""
    r = torch.sigmoid(x @ W_x[0] + state @ W_h[0] + b[0])
    z = torch.sigmoid(x @ W_x[1] + state @ W_h[1] + b[1])
    candidate = torch.tanh(x @ W_x[2] + (r * state) @ W_h[2] + b[2])
    return z * state + (1 - z) * candidate


@gru_step.misconception("the bias reset too", fails=("a step", "gradient"))
def _(x, state, W_x, W_h, b):
    """The reset gate multiplies the bias as well. It decides how much of the *past* enters the candidate: what does not
    come from the state stays outside its brackets."""
    r = torch.sigmoid(x @ W_x[0] + state @ W_h[0] + b[0])
    z = torch.sigmoid(x @ W_x[1] + state @ W_h[1] + b[1])
    candidate = torch.tanh(x @ W_x[2] + r * (state @ W_h[2] + b[2]))
    return z * state + (1 - z) * candidate


@gru_step.misconception("no reset gate", fails=("a step", "gradient"))
def _(x, state, W_x, W_h, b):
    """The reset gate has no effect, so the candidate always sees the whole of the old state. Without it the unit cannot
    start afresh in one step."""
    z = torch.sigmoid(x @ W_x[1] + state @ W_h[1] + b[1])
    candidate = torch.tanh(x @ W_x[2] + state @ W_h[2] + b[2])
    return z * state + (1 - z) * candidate


@gru_step.misconception("gates swapped", fails=("a step", "a gate that keeps", "gradient"))
def _(x, state, W_x, W_h, b):
    """Reset and update gate have changed places: of the stacked matrices the first belongs to the reset gate, the
    second to the update gate."""
    z = torch.sigmoid(x @ W_x[0] + state @ W_h[0] + b[0])
    r = torch.sigmoid(x @ W_x[1] + state @ W_h[1] + b[1])
    candidate = torch.tanh(x @ W_x[2] + r * (state @ W_h[2]) + b[2])
    return z * state + (1 - z) * candidate


@gru_step.misconception("sigmoid for the candidate", fails=("a step", "gradient"))
def _(x, state, W_x, W_h, b):
    """The candidate is a proposal for the state, not a gate: it may say no as well as yes, so it goes through tanh."""
    r = torch.sigmoid(x @ W_x[0] + state @ W_h[0] + b[0])
    z = torch.sigmoid(x @ W_x[1] + state @ W_h[1] + b[1])
    candidate = torch.sigmoid(x @ W_x[2] + r * (state @ W_h[2]) + b[2])
    return z * state + (1 - z) * candidate


@gru_step.alternative("all products at once")
def _(x, state, W_x, W_h, b):
    """einsum over the three, then apart."""
    read = torch.einsum("bi,gih->gbh", x, W_x) + b[:, None]
    past = torch.einsum("bh,ghk->gbk", state, W_h)
    r, z = (read[:2] + past[:2]).sigmoid()
    return torch.lerp((read[2] + r * past[2]).tanh(), state, z)


@gru_step.alternative("float64, a change added to the old state")
def _(x, state, W_x, W_h, b):
    """h + (1 − z)(h̃ − h), in double precision."""
    x, state, W_x, W_h, b = (t.double() for t in (x, state, W_x, W_h, b))
    gates = [1 / (1 + torch.exp(-(x @ W_x[k] + state @ W_h[k] + b[k]))) for k in (0, 1)]
    candidate = torch.tanh(x @ W_x[2] + gates[0] * (state @ W_h[2]) + b[2])
    return state + (1 - gates[1]) * (candidate - state)
