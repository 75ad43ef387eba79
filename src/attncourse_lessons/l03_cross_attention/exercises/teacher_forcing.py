"""teacher_forcing: What a decoder predicts while it reads the right translation, and the loss that it trains on."""

import math

import torch
from torch import Tensor, nn

from lessonkit.exercises.exercise import Exercise
from lessonkit.exercises.judge import explain_worst
from lessonkit.exercises.observe import apart, require_variation
from lessonkit.exercises.way_back import explain_way_back, way_back

from .common import READY_MADE


def solution(step, target, state, encoder_states, mask, pad):
    attentional, rows = torch.zeros_like(state), []
    for token in target[:, :-1].unbind(dim=1):
        logits, state, attentional, _ = step(token, state, attentional, encoder_states, mask)
        rows.append(logits)
    logits = torch.stack(rows, dim=1)                             # (batch, n - 1, vocab_size)
    wanted = target[:, 1:]                                        # (batch, n - 1)
    loss = nn.functional.cross_entropy(logits.flatten(0, 1), wanted.flatten(), ignore_index=pad)
    return logits, loss


exercise = Exercise(
    "teacher_forcing",
    reference=solution,
    solution=solution,
    returns=("logits", "loss"),
    forbidden=(*READY_MADE, "attncourse.metrics", "attncourse.training"),
    numbers=True,
    difficulty=2,
    minutes=15,
    hints=(
        "A target of n tokens is read in n − 1 steps. Write `<bos> a b <eos>` and, under each token that is read, the "
        "token that it has to predict. What does the first step get for the state, and what for the attentional "
        "vector, which nothing has made yet?",
        "A step hands back two things that the next step needs. The token that the next step reads comes from the "
        "target, whatever the logits say. Collect the logits, and give the steps an axis of their own, the second.",
        "Each row of logits is about the token *after* the one that was read; positions whose wanted token is `pad` "
        "count neither in the sum nor in the divisor. Keep everything connected: a state without its gradient teaches "
        "the steps before it nothing.",
    ),
)
aspect, slip, misconception, variant, alternative = exercise.decorators()


class _Step:
    """A small decoder step with drawn weights: every input changes all that it returns."""

    def __init__(self, draw, vocab_size: int, d: int):
        self.embedding, self.output = draw.normal(vocab_size, d), 2 * draw.normal(d, vocab_size)
        self.moves = [draw.normal(d, d) / math.sqrt(d) for _ in range(2)]
        self.combine = draw.normal(2 * d, d) / math.sqrt(d)

    def __call__(self, token: Tensor, state: Tensor, attentional: Tensor, encoder_states: Tensor, mask: Tensor):
        if token.shape != mask.shape[:1]:
            raise ValueError(f"token: got shape {tuple(token.shape)}, expected one for each sentence")
        state = torch.tanh(self.embedding[token] + state @ self.moves[0] + attentional @ self.moves[1])
        scores = (encoder_states @ state[..., None])[..., 0]                              # (batch, n_source)
        weights = scores.masked_fill(~mask, -torch.inf).softmax(dim=-1)
        context = (weights[:, None] @ encoder_states)[:, 0]
        attentional = torch.tanh(torch.cat([context, state], dim=-1) @ self.combine)
        return attentional @ self.output, state, attentional, weights


def _sentences(draw, n: int, ragged: bool = False):
    """[step, target, state, encoder_states, mask, pad]; the padding has an id of its own, which may be any but 0."""
    batch, n_source, d, vocab_size = draw.sizes(4, 6, 11)                                # n ≤ 6: no axis is n − 1
    pad = 1 + int(draw.integers(vocab_size - 1, 1))
    target = draw.integers(vocab_size - 1, batch, n)
    target = target + (target >= pad)                                                     # every id but the padding's
    target[0, -1] = 0                                                                     # a token like any other
    if ragged:
        lengths = 2 + draw.integers(n - 1, batch)
        lengths[0], lengths[1] = n, 2
        target = target.masked_fill(torch.arange(n) >= lengths[:, None], pad)
    states = draw.normal(batch, n_source, d)
    mask = draw.padding_mask(batch, n_source)
    return [_Step(draw, vocab_size, d), target, draw.normal(batch, d), states, mask, pad]


# ----------------------------------------------------------------------------------------------------- what is observed


@aspect("first step", points=1, hint=1)
def first_step(answer, draw):
    """the first logits come from <bos>, s₀ and an attentional vector of zeros"""
    return answer(*_sentences(draw, 5))[0][:, :1]


@aspect("right tokens", points=2, hint=2)
def right_tokens(answer, draw):
    """each step goes on from the one before, and reads the right token"""
    return answer(*_sentences(draw, 6))[0]


def _beside_own(answer, given, draw) -> Tensor:
    """How far the loss is from the cross-entropy of the answer's own logits, or of the right ones if that is nearer.

    Wrong logits are not to be paid for twice.
    """
    logits, loss = answer(*given)
    wanted, pad = given[1][:, 1:], given[-1]
    right = solution(*given)[1]
    own = [right]
    if logits.ndim == 3 and len(logits.flatten(0, 1)) == wanted.numel():
        own.append(nn.functional.cross_entropy(logits.flatten(0, 1), wanted.flatten(), ignore_index=pad))
    differences = [apart(loss, one) for one in own]
    return min(differences, key=lambda one: one.abs().max().item())


LOSS = explain_worst("the loss is {size} away from the mean cross-entropy of your logits")


@aspect("loss", points=2, hint=3, explain=LOSS)
def loss(answer, draw):
    """the mean cross-entropy of the tokens that come next"""
    given = _sentences(draw, 5)
    require_variation(answer(*given)[0])
    return _beside_own(answer, given, draw)


@aspect("padding in the target", points=1, hint=3, explain=LOSS)
def padding_in_the_target(answer, draw):
    """targets of several lengths: each real token counts once, and padding not at all"""
    given = _sentences(draw, 6, ragged=True)
    require_variation(answer(*given)[0])
    return _beside_own(answer, given, draw)


@aspect("gradient", points=1, hint=3, explain=explain_way_back("encoder_states"))
def gradient(answer, draw):
    """the loss of the last token teaches the first step, too"""
    step, target, state, states, mask, pad = _sentences(draw, 5)
    given = [step, target, state, states.requires_grad_(), mask, pad]
    loss, right = (of(*given)[1].reshape(1) for of in (answer, solution))
    return way_back(loss, right, [states], draw)


# -------------------------------------------------------------------------------------- one slip away from the solution

LATER, LOGITS = ("right tokens",), ("first step", "right tokens")
IN_LOSS = ("loss", "padding in the target")
READ, CARRIED, FED = "target[:, :-1]", "logits, state, attentional, _ =", "torch.zeros_like(state)"
STACKED, WANTED, IGNORED = "torch.stack(rows, dim=1)", "target[:, 1:]", ", ignore_index=pad)"

slip("reads what it must predict", LOGITS, {READ: "target[:, 1:]"}, words="""
    The step was given the very token that it has to predict. The model learns to copy its input, the loss falls to
    nothing, and at inference, where that token is not yet written, it can do nothing. It reads from `<bos>` up to the
    last token but one.""")
slip("starts from s₀ at each step", LATER, {CARRIED: "logits, _, attentional, _ ="}, words="""
    Each step started again from s₀, so the decoder does not know how far it has come. The state that a step returns is
    the one that the next step gets.""")
slip("no input feeding", LATER, {CARRIED: "logits, state, _, _ ="}, words="""
    The attentional vector stayed at zero. With input feeding the vector that a step returns goes into the next one.""")
slip("s₀ for the attentional vector", LOGITS, {FED: "state"}, words="""
    s₀ was handed over as the attentional vector as well. Before the first step nothing has been attended to: it starts
    with zeros.""")
slip("starts from zero", LOGITS,
     {f"{FED}, []": f"{FED}, []\nstate = torch.zeros_like(state)"}, words="""
    The decoder started from a state of zeros. It starts from s₀, what the encoder's two directions knew at their
    ends.""")
slip("the two vectors exchanged", LATER, {CARRIED: "logits, attentional, state, _ ="}, words="""
    State and attentional vector changed places on the way to the next step: a step returns logits, state, attentional
    vector and weights, in this order.""")
slip("steps before sentences", LOGITS, {STACKED: "torch.stack(rows)"}, words="""
    The steps lie along the first axis, where the sentences belong. Stack them along the second: (batch, n − 1,
    vocab_size).""")
slip("one step too many", LOGITS, {READ: "target", "torch.stack(rows, dim=1) ": "torch.stack(rows, dim=1)[:, 1:] "},
     words="""
    All n tokens were read, and the rows of logits were then taken from the wrong end: the first row, which `<bos>` has
    made, is about the first token. Read n − 1 tokens, and keep every row.""")
slip("compared with what was read", IN_LOSS, {WANTED: READ}, words="""
    The logits were compared with the token that the step had just read. They are about the next one: the target is
    shifted by one.""")
slip("padding in the loss", ("padding in the target",), {IGNORED: ")"}, words="""
    Padding was predicted as if it were text. The rows of padding are never used, in attention or anywhere, and the loss
    leaves them out: neither the sum nor the divisor knows them.""")
slip("padding taken to be 0", IN_LOSS, {"ignore_index=pad": "ignore_index=0"}, words="""
    The token 0 was left out as if it were padding, and padding stayed in. Which id stands for padding is an argument
    here.""")
slip("divides by the padding too", ("padding in the target",),
     {IGNORED: ', ignore_index=pad, reduction="sum") / wanted.numel()'}, words="""
    Padding adds nothing to the sum and is still counted in the divisor. Divide by the number of real tokens.""")
slip("summed, not averaged", IN_LOSS, {IGNORED: ', ignore_index=pad, reduction="sum")'}, words="""
    This is the sum over the tokens: a batch twice as large makes a step twice as large. Divide by the number of real
    tokens.""")
slip("cut between the steps", ("gradient",),
     {"rows.append(logits)": "rows.append(logits)\n    state = state.detach()"},
     {"rows.append(logits)": "rows.append(logits)\n    state, attentional = state.detach(), attentional.detach()"},
     {"(logits.flatten(0, 1)": "(logits.detach().flatten(0, 1)"}, words="""
    The numbers are right, but the gradient is cut between the steps, so a step never learns what the later ones needed
    from it. (In long texts the gradient is cut on purpose, to save memory: truncated backpropagation through time.
    Here the whole sentence fits.)""")


# ------------------------------------------------------------------------------------------------------ further from it


@misconception("reads its own tokens", fails=LATER)
def reads_its_own_tokens(step, target, state, encoder_states, mask, pad):
    """Each step read the likeliest token of the step before. That is how the decoder writes at inference; in training a
    single early mistake would then make every later token wrong. Under teacher forcing it reads the right tokens."""
    attentional, rows, token = torch.zeros_like(state), [], target[:, 0]
    for _ in range(target.shape[1] - 1):
        logits, state, attentional, _ = step(token, state, attentional, encoder_states, mask)
        rows.append(logits)
        token = logits.argmax(dim=-1)
    logits = torch.stack(rows, dim=1)
    loss = nn.functional.cross_entropy(logits.flatten(0, 1), target[:, 1:].flatten(), ignore_index=pad)
    return logits, loss


@misconception("probabilities for logits", fails=LOGITS)
def probabilities_for_logits(step, target, state, encoder_states, mask, pad):
    """Softmax was applied to the logits, and cross-entropy was taken of the result, with a softmax of its own. Return
    what the step returns: twice is once too often."""
    attentional, rows = torch.zeros_like(state), []
    for token in target[:, :-1].unbind(dim=1):
        logits, state, attentional, _ = step(token, state, attentional, encoder_states, mask)
        rows.append(logits.softmax(dim=-1))
    logits = torch.stack(rows, dim=1)
    loss = nn.functional.cross_entropy(logits.flatten(0, 1), target[:, 1:].flatten(), ignore_index=pad)
    return logits, loss


# ------------------------------------------------------------------------------------------------ right in other styles


@alternative("by position, the loss by hand")
def by_position(step, target, state, encoder_states, mask, pad):
    """Indexes the target, and picks the right tokens' logarithms."""
    attentional = torch.zeros(state.shape)
    rows = []
    for t in range(target.shape[1] - 1):
        logits, state, attentional, _ = step(target[:, t], state, attentional, encoder_states, mask)
        rows.append(logits.unsqueeze(1))
    logits = torch.cat(rows, dim=1)
    picked = logits.log_softmax(dim=-1).gather(-1, target[:, 1:, None])[..., 0]
    real = target[:, 1:] != pad
    return logits, -picked[real].sum() / real.sum()


@alternative("the classes on the second axis")
def the_classes_on_the_second_axis(step, target, state, encoder_states, mask, pad):
    """Stacks along the last axis, as `cross_entropy` wants it, and turns the result."""
    carried, rows = (state, 0 * state), []
    for token in target.T[:-1]:
        logits, *carried, _ = step(token, *carried, encoder_states, mask)
        rows.append(logits)
    stacked = torch.stack(rows, dim=-1)
    return stacked.mT, nn.functional.cross_entropy(stacked, target[:, 1:], ignore_index=pad)


@alternative("a sum that grows")
def a_sum_that_grows(step, target, state, encoder_states, mask, pad):
    """Adds the loss step by step and divides at the end."""
    attentional, total, count, rows = torch.zeros_like(state), torch.zeros(()), 0, []
    for t in range(1, target.shape[1]):
        logits, state, attentional, _ = step(target[:, t - 1], state, attentional, encoder_states, mask)
        real = target[:, t] != pad
        right = logits.gather(-1, target[:, t, None])[:, 0] - logits.logsumexp(dim=-1)
        total = total - torch.where(real, right, 0.0).sum()
        count = count + real.sum()
        rows.append(logits)
    return torch.stack(rows).transpose(0, 1), total / count
