"""AttentionDecoderStep: One step of a decoder that looks at the encoder, with input feeding (Luong et al. 2015)."""


import torch

from attncourse import recurrent
from lessonkit.exercises.exercise import Exercise
from lessonkit.exercises.judge import explain_case, explain_worst
from lessonkit.exercises.local_runner import AspectFailed, Problem
from lessonkit.exercises.observe import gradients, require_variation

from .common import READY_MADE


def solution(self, token, state, attentional, encoder_states, mask):
    state = self.cell(torch.cat([self.embedding(token), attentional], dim=-1), state)
    scores = (encoder_states @ state[..., None])[..., 0]                 # (batch, n_source)
    weights = scores.masked_fill(~mask, -torch.inf).softmax(dim=-1)      # (batch, n_source)
    context = (weights[:, None] @ encoder_states)[:, 0]                  # (batch, d_hidden)
    attentional = torch.tanh(self.combine(torch.cat([context, state], dim=-1)))
    return self.output(attentional), state, attentional, weights


exercise = Exercise(
    "AttentionDecoderStep",
    reference=recurrent.AttentionDecoderStep,
    solution=solution,
    returns=("logits", "state", "attentional", "weights"),
    forbidden=READY_MADE,
    difficulty=3,
    minutes=30,
    hints=(
        "Follow the equations above the cell, one line of code each. The cell takes two vectors side by side, "
        "[embedding; attentional vector], and, as its second argument, the state that came in.",
        "The *new* state is the query. It has no target axis, and the scores are (batch, n_source): give it an axis of "
        "length one for the product with `encoder_states`, and take that axis away afterwards. Then as in exercise 2: "
        "−∞ for padding, softmax over the source.",
        "Context vector first, state second, along the last axis; `combine`, then tanh: that is the attentional "
        "vector, and `output` of it gives the logits. Return logits, state, attentional vector and weights, and let "
        "nothing be detached on the way.",
    ),
)
aspect, slip, misconception, variant, alternative = exercise.decorators()


def _step(answer, draw, fed=True, padded=False):
    """A built step, and drawn inputs for it: (step, [token, state, attentional, encoder_states, mask])."""
    batch, n_source, d_embedding, d_hidden, vocab_size = draw.sizes(5, 3, 9)
    mask = draw.padding_mask(batch, n_source) if padded else torch.ones(batch, n_source, dtype=torch.bool)
    inputs = [
        draw.integers(vocab_size, batch),
        draw.normal(batch, d_hidden),
        draw.normal(batch, d_hidden) if fed else torch.zeros(batch, d_hidden),
        draw.normal(batch, n_source, d_hidden),
        mask,
    ]
    return answer.build(draw, vocab_size, d_embedding, d_hidden), inputs


# ----------------------------------------------------------------------------------------------------- what is observed


@aspect("new state", points=1, hint=1)
def new_state(answer, draw):
    """the cell reads the token and moves the state on"""
    step, inputs = _step(answer, draw, fed=False)
    return step(*inputs)[1]


@aspect(
    "input feeding",
    points=1,
    hint=1,
    explain=explain_worst("the state moves by {got} at {place} when the fed vector changes, expected {expected}"),
)
def input_feeding(answer, draw):
    """what was found a step ago changes the state now"""
    step, inputs = _step(answer, draw)
    unfed = [*inputs[:2], torch.zeros_like(inputs[2]), *inputs[3:]]
    return step(*inputs)[1] - step(*unfed)[1]


def _go_on(step, inputs, state=None, weights=None):
    """(state, attentional, weights) by the equations, without a mask, going on from the answer's own where given."""
    module, (token, old_state, fed, encoder_states, _) = step.reference_with_same_weights, inputs
    if state is None:
        state = module.cell(torch.cat([module.embedding(token), fed], dim=-1), old_state)
    if weights is None:
        weights = (encoder_states @ state[..., None])[..., 0].softmax(dim=-1)
    context = (weights[:, None] @ encoder_states)[:, 0]
    attentional = torch.tanh(module.combine(torch.cat([context, state], dim=-1)))
    return state, attentional, weights


def _beside(got, *right):
    """How far `got` is from the nearest of what is right: a slip further up is not to be paid for twice."""
    return min((got - one for one in right), key=lambda difference: difference.abs().max())


@aspect(
    "weights",
    points=2,
    hint=2,
    explain=explain_worst(
        "the weights differ from the softmax of `state` · `encoder_states` by up to {size}, at {place}"
    ),
)
def weights(answer, draw):
    """softmax of the new state's dot products with the encoder states"""
    step, inputs = _step(answer, draw)
    _, state, _, weights = step(*inputs)
    require_variation(state)
    return _beside(weights, _go_on(step, inputs)[2], _go_on(step, inputs, state)[2])


@aspect(
    "padding",
    points=1,
    hint=2,
    explain=explain_case(
        "the logits change when only the padding does",
        "they do where the tokens' scores are in the hundreds below 0",
        "1 where anything changes when the last token does, after a hole in the mask",
    ),
)
def padding(answer, draw):
    """padded states change nothing, even where the tokens' scores are in the hundreds below 0"""
    step, inputs = _step(answer, draw, fed=False, padded=True)
    inputs[4][0, 1] = False  # a hole between two tokens, beside the padding at the end
    moved = inputs[3].clone()
    moved[0, -1] += 5  # a token behind the hole
    state = _go_on(step, inputs)[0].detach()
    other = inputs[3] + 5 * draw.normal(*inputs[3].shape) * ~inputs[4][..., None]
    low = [states - 500 * state.sign()[:, None] * inputs[4][..., None] for states in (inputs[3], other)]
    logits = step(*inputs)[0]
    if torch.equal(logits, step(inputs[0], -inputs[1], 1 - inputs[2], -inputs[3], inputs[4])[0]):
        raise AspectFailed(Problem("unusable", "the logits are the same whatever comes in"))
    first, second = (step(*inputs[:3], states, inputs[4])[0] for states in low)
    after = zip(step(*inputs), step(*inputs[:3], moved, inputs[4]), strict=True)
    heard = torch.stack([(one != other).any() for one, other in after]).any().expand_as(logits)
    return torch.stack([logits - step(*inputs[:3], other, inputs[4])[0], first - second, heard.to(logits.dtype)])


@aspect(
    "attentional vector",
    points=2,
    hint=3,
    explain=explain_worst(
        "the vector differs from the tanh of `combine([context; state])` by up to {size}, at {place}"
    ),
)
def attentional_vector(answer, draw):
    """tanh of the combined [context; state]"""
    step, inputs = _step(answer, draw, fed=False)
    _, state, attentional, weights = step(*inputs)
    own = [{}, {"state": state}, {"weights": weights}, {"state": state, "weights": weights}]
    return _beside(attentional, *(_go_on(step, inputs, **values)[1] for values in own))


@aspect(
    "logits",
    points=1,
    hint=3,
    explain=explain_worst("the logits differ from `output(attentional)` by up to {size}, at {place}"),
)
def logits(answer, draw):
    """one for each token of the vocabulary, from the attentional vector"""
    step, inputs = _step(answer, draw, fed=False)
    logits, _, attentional, _ = step(*inputs)
    output = step.reference_with_same_weights.output
    return _beside(logits, *(output(right) for right in (attentional, _go_on(step, inputs)[1])))


@aspect("large scores", points=1, hint=2, explain=explain_worst("not every number that comes back is finite"))
def large_scores(answer, draw):
    """no overflow where a state matches so well that its score is in the hundreds"""
    step, inputs = _step(answer, draw, padded=True)
    encoder_states = 500 * inputs[3].sign()
    returned = step(*inputs[:3], encoder_states, inputs[4])
    require_variation(returned[0])
    return torch.stack([tensor.isfinite().all() for tensor in returned])


WAYS = (
    "from the logits to the cell",
    "from the state to the cell and the previous state",
    "from the state to the vector that is fed in",
    "from the attentional vector to the cell",
    "to `encoder_states`",
    "from the logits through the weights to the scores",
)


def _cut(got, expected):
    """Says which way back is cut."""
    return f"no gradient finds its way {' or '.join(way for way, open_ in zip(WAYS, got, strict=True) if not open_)}"


@aspect("gradient", points=1, hint=3, explain=_cut)
def gradient(answer, draw):
    """the loss finds its way back to the cell, to the encoder, and to the step before"""
    step, inputs = _step(answer, draw)
    # Small vectors: where one weight is next to 1, hardly anything goes back through the scores.
    inputs[1:4] = [(tensor / tensor.shape[-1] ** 0.5).requires_grad_() for tensor in inputs[1:4]]
    old_state, fed, encoder_states = inputs[1:4]
    logits, state, attentional, _ = step(*inputs)
    unfed = step(*inputs[:2], torch.zeros_like(fed), *inputs[3:])[1]
    cell = step.parameter("cell.weight_ih")
    predicted = torch.cat([logits, attentional], dim=-1)                            # (batch, vocabulary + d_hidden)
    ways = [(logits, [cell]), (state, [cell, old_state]), (predicted, [encoder_states])]
    ways[2:2] = [(state, [fed]), (attentional, [cell])]
    found = [gradients(output, ends, draw).any() for output, ends in ways]
    found[2] |= torch.equal(state, unfed)  # where nothing is fed in, or the old vector comes back: told elsewhere
    found[3] |= torch.equal(attentional, fed)
    # Through the average alone, the gradients at a sentence's states are multiples of one vector; the scores add more.
    sizes = torch.linalg.svdvals(gradients(predicted, [encoder_states], draw).reshape(encoder_states.shape))
    return torch.stack([*found, (sizes[:, 1] > 1e-4 * sizes[:, 0]).all()])


# -------------------------------------------------------------------------------------- one slip away from the solution

STATE = ("new state", "input feeding")
WEIGHTS, COMBINED, LOGITS = ("weights",), ("attentional vector",), ("logits",)
CELL, FED = "state = self.cell", "self.embedding(token), attentional]"
MASKED = ".masked_fill(~mask, -torch.inf)"
OUTPUT = "self.output(attentional)"
RETURNED = f"{OUTPUT}, state, attentional, weights"

slip("[s; c] for [c; s]", COMBINED, {"[context, state]": "[state, context]"}, words="""
    The two halves are swapped. A network trained from scratch would not mind, but weights from a classmate's model or a
    checkpoint would meet the wrong half. The contract is [context; state], as in the exercise and in the paper.""")
slip("ignores the mask", ("padding",), {MASKED: ""}, words="""
    The padding took part: change what stands there and the answer changes, so a sentence is translated differently in
    another batch. Give padded positions a score of −∞.""")
slip("mask upside down", ("weights", "padding", "attentional vector", "logits", "large scores", "gradient"),
     {"~mask": "mask"}, words="""
    The tokens were masked and the padding was kept; where there is no padding, everything is NaN. True means "may
    attend": fill where the mask is False, `~mask`.""")
slip("a forbidden score that is not low enough", ("padding",),
     {"-torch.inf": "-100.0"},
     {"scores.masked_fill(~mask, -torch.inf)": "(scores - 100.0 * ~mask)"}, words="""
    The padding got a low score, and it is not low enough: where the tokens' own scores are in the hundreds below 0, it
    gets more than they do. Only −∞, or something as far below every score as −1e9, leaves it nothing.""")
slip("a score of 0 for padding", ("padding",),
     {"-torch.inf": "0.0"},
     {"scores.masked_fill(~mask, -torch.inf)": "(scores * mask)"}, words="""
    The scores of the padding were set to 0. The softmax makes exp(0) = 1 of it, which is more than any token with a
    negative score gets. Which score becomes a weight of exactly 0?""")
slip("the mask read as a length", ("padding",),
     {"~mask": "~(torch.arange(mask.shape[1]) < mask.sum(dim=1)[:, None])"}, words="""
    The mask was read as a length: so many positions from the front. That is right only where all padding stands behind.
    The mask says *which* positions hold tokens, not only how many there are.""")
slip("no input feeding", ("input feeding",), {FED: "self.embedding(token), torch.zeros_like(attentional)]"}, words="""
    The cell never saw the attentional vector of the step before. The decoder is then not told what that step found, and
    must infer it from the tokens that it wrote. Feed it in beside the embedding.""")
slip("the old state asks", WEIGHTS, {CELL: "old, state = state, self.cell", "@ state": "@ old"}, words="""
    The query was the state before this token was read. Bahdanau et al. (2015) do it that way; here, as in Luong et al.
    (2015), the cell moves on first and the new state is the query.""")
slip("the attentional vector asks", WEIGHTS, {"@ state": "@ attentional"}, words="""
    The query was the attentional vector of the step before. The cell reads that vector, and the query is the cell's new
    state.""")
slip("the old state is combined", COMBINED,
     {CELL: "old, state = state, self.cell", "[context, state]": "[context, old]"}, words="""
    The attentional vector was made from the state that came in. It joins the context vector with the state that asked
    for it, the new one.""")
slip("tanh left out", COMBINED, {"torch.tanh": ""}, words="""
    The combination went on without its tanh. `output` comes next, which is linear as well, and two linear maps in a row
    are only one: it is the tanh between them that makes two layers of them.""")
slip("words from the state alone", LOGITS, {OUTPUT: "self.output(state)"}, words="""
    The next token was predicted from the state alone, bypassing everything that attention found. The logits come from
    the attentional vector, which holds both.""")
slip("the state stands still", STATE,
     {CELL: "old, state = state, self.cell", f"{OUTPUT}, state": f"{OUTPUT}, old"}, words="""
    The state that came in was handed back, so the next step starts again from where this one did. Return the new
    one.""")
slip("[s̃; embedding]", STATE, {FED: "attentional, self.embedding(token)]"}, words="""
    The cell was fed the right two vectors in the wrong order. A network trained from scratch would not mind, but a
    checkpoint would: the contract is [embedding; attentional vector].""")
slip("the cell without its state", STATE, {"dim=-1), state)": "dim=-1))"}, words="""
    The cell was not given the state that came in. It then starts from zeros at every step and forgets all that was
    written before. Which second argument does a `GRUCell` take?""")
slip("the attentional vector in the state's place", STATE, {"dim=-1), state)": "dim=-1), attentional)"}, words="""
    The cell was given the attentional vector as its state. That vector comes in beside the embedding; what the cell
    carries from step to step is its own state. Which second argument does a `GRUCell` take?""")
slip("masks after the softmax", ("padding",), {MASKED: "", "softmax(dim=-1)": "softmax(dim=-1) * mask"}, words="""
    The padding's weights are 0, but its scores were still in softmax's denominator, so the rows no longer sum to one
    and what stands in the padding changes the answer. Mask the scores first.""")
slip("normalises over the batch", WEIGHTS, {"softmax(dim=-1)": "softmax(dim=0)"}, words="""
    `dim=0` is the batch: the weights sum to one over the sentences, so what one sentence gets depends on which others
    came along. One state has no target axis, and its scores are (batch, n_source): the source is the last.""")
slip("exponentials out of range", ("padding", "large scores"),
     {f"scores{MASKED}.softmax(dim=-1)": "scores.exp() * mask\nweights = weights / weights.sum(dim=-1, keepdim=True)"},
     words="""
    exp(89) is more than float32 can hold, and ∞/∞ is NaN. Take each row's own maximum away first, or let `softmax` do
    it for you, as in exercise 2.""")
slip("exponentials out of range", ("large scores",),
     {f"scores{MASKED}.softmax(dim=-1)":
      "(scores.exp() * mask)\nweights = weights / (weights.sum(dim=-1, keepdim=True) + 1e-9)"})
slip("scaled by √d", WEIGHTS, {"[..., 0]": "[..., 0] / state.shape[-1] ** 0.5"}, words="""
    The scores were divided by √d. That is the scaled dot product of lecture @lookup; here, as in Luong et al.
    (2015), it is the plain one.""")
slip("mean pooling", ("padding", "attentional vector", "gradient"),
     {"(weights[:, None] @ encoder_states)[:, 0]": "encoder_states.mean(dim=1)"}, words="""
    The weights were computed and then not used: every state counted the same, the padding too. The context vector is
    the average *by these weights*.""")
slip("scores for weights", WEIGHTS, {RETURNED: f"{OUTPUT}, state, attentional, scores"}, words="""
    What came back as weights are scores, from before the softmax: they do not sum to one. A drawing of the
    alignment needs the weights.""")
slip("something else in s̃'s place", COMBINED,
     {"attentional = torch": "combined = torch", OUTPUT: "self.output(combined)"},  # the old one
     {RETURNED: f"{OUTPUT}, state, state, weights"},
     {RETURNED: f"{OUTPUT}, state, context, weights"}, words="""
    The third tensor is not the new attentional vector, tanh of what `combine` gives. It may be the old one, handed back
    as it came, or the context vector, or the state: look at the order (logits, state, attentional, weights), and at
    which name holds what.""")
slip("softmax on the logits", LOGITS,
     {OUTPUT: f"{OUTPUT}.softmax(dim=-1)"},
     {OUTPUT: f"{OUTPUT}.log_softmax(dim=-1)"}, words="""
    Logits are what comes *before* softmax: the loss and the decoding apply it themselves, and twice is once too often.
    Return what `output` gives.""")
slip("cut off from the gradient", ("gradient",),
     {"dim=-1), state)": "dim=-1), state).detach()"},
     {RETURNED: f"tuple(tensor.detach() for tensor in ({RETURNED}))"},
     {FED: "self.embedding(token), attentional.detach()]"},  # the step before learns nothing from this one
     {RETURNED: f"{OUTPUT}, state, attentional.detach(), weights"},
     {"weights[:, None]": "weights.detach()[:, None]"},  # where to look is then never learned
     words="""
    The numbers are right, but the loss finds no way back: `.detach()`, `.data` and `torch.no_grad()` forget where
    numbers came from. What is carried from step to step must stay connected while the decoder learns.""")
slip("the mask ends at its first hole", ("padding",),
     {"~mask": "~mask.long().cumprod(dim=1).bool()"}, words="""
    Tokens after the first False were left out. There may be a hole between two tokens, and what stands after it is a
    token like any other: the mask says of each position whether it holds one.""")


# ------------------------------------------------------------------------------------------------------ further from it


@variant("mask upside down", fails=("weights", "padding", "gradient"))
def mask_upside_down_with_a_finite_number(self, token, state, attentional, encoder_states, mask):
    """With −1e9, which leaves no NaN where there is no padding."""
    state = self.cell(torch.cat([self.embedding(token), attentional], dim=-1), state)
    scores = (encoder_states @ state[..., None])[..., 0]
    weights = scores.masked_fill(mask, -1e9).softmax(dim=-1)
    context = (weights[:, None] @ encoder_states)[:, 0]
    attentional = torch.tanh(self.combine(torch.cat([context, state], dim=-1)))
    return self.output(attentional), state, attentional, weights


@variant("no input feeding", fails=STATE)
def the_state_fed_in_its_place(self, token, state, attentional, encoder_states, mask):
    """The state in its place."""
    state = self.cell(torch.cat([self.embedding(token), state], dim=-1), state)
    scores = (encoder_states @ state[..., None])[..., 0]
    weights = scores.masked_fill(~mask, -torch.inf).softmax(dim=-1)
    context = (weights[:, None] @ encoder_states)[:, 0]
    attentional = torch.tanh(self.combine(torch.cat([context, state], dim=-1)))
    return self.output(attentional), state, attentional, weights


@variant("the old state asks", fails=("weights", "attentional vector", "gradient"))
def the_old_state_asks_and_is_combined(self, token, state, attentional, encoder_states, mask):
    """And is combined."""
    new_state = self.cell(torch.cat([self.embedding(token), attentional], dim=-1), state)
    scores = (encoder_states @ state[..., None])[..., 0]
    weights = scores.masked_fill(~mask, -torch.inf).softmax(dim=-1)
    context = (weights[:, None] @ encoder_states)[:, 0]
    attentional = torch.tanh(self.combine(torch.cat([context, state], dim=-1)))
    return self.output(attentional), new_state, attentional, weights


@variant("tanh left out", "[s; c] for [c; s]", fails=COMBINED)
def halves_swapped_and_tanh_left_out(self, token, state, attentional, encoder_states, mask):
    """Both."""
    state = self.cell(torch.cat([self.embedding(token), attentional], dim=-1), state)
    scores = (encoder_states @ state[..., None])[..., 0]
    weights = scores.masked_fill(~mask, -torch.inf).softmax(dim=-1)
    context = (weights[:, None] @ encoder_states)[:, 0]
    attentional = self.combine(torch.cat([state, context], dim=-1))
    return self.output(attentional), state, attentional, weights


@variant("something else in s̃'s place", fails=("attentional vector", "gradient"))
def never_combined(self, token, state, attentional, encoder_states, mask):
    """The old one, for the logits too."""
    state = self.cell(torch.cat([self.embedding(token), attentional], dim=-1), state)
    scores = (encoder_states @ state[..., None])[..., 0]
    weights = scores.masked_fill(~mask, -torch.inf).softmax(dim=-1)
    return self.output(attentional), state, attentional, weights


# ------------------------------------------------------------------------------------------------ right in other styles


@alternative("einsum")
def einsum(self, token, state, attentional, encoder_states, mask):
    """Names the axes."""
    state = self.cell(torch.cat((self.embedding(token), attentional), -1), state)
    scores = torch.einsum("bd,bid->bi", state, encoder_states)
    weights = torch.where(mask, scores, -torch.inf).softmax(-1)
    context = torch.einsum("bi,bid->bd", weights, encoder_states)
    attentional = self.combine(torch.cat((context, state), -1)).tanh()
    return self.output(attentional), state, attentional, weights


@alternative("one sentence at a time")
def one_sentence_at_a_time(self, token, state, attentional, encoder_states, mask):
    """Loops over the batch and leaves the padding out altogether."""
    state = self.cell(torch.cat([self.embedding(token), attentional], dim=1), state)
    weights, contexts = torch.zeros(mask.shape), []
    for b in range(len(token)):
        words = encoder_states[b][mask[b]]
        shares = torch.softmax(words @ state[b], dim=0)
        weights[b, mask[b]] = shares
        contexts.append((shares[:, None] * words).sum(dim=0))
    attentional = torch.tanh(self.combine(torch.cat([torch.stack(contexts), state], dim=1)))
    return self.output(attentional), state, attentional, weights
