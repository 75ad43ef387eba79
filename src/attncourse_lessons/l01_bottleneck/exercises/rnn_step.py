"""rnn_step: The state after one more token; a text that is over keeps its state."""

import torch
from torch import nn

from lessonkit.exercises.exercise import Exercise
from lessonkit.exercises.judge import explain_worst
from lessonkit.exercises.way_back import explain_way_back, way_back


def solution(x, state, there, W_x, W_h, b):
    new = torch.tanh(x @ W_x + state @ W_h + b)          # (batch, d_hidden)
    return torch.where(there[:, None], new, state)       # (batch, 1) chooses for a whole row


def _step(x, state, there, W_x, W_h, b):
    return torch.where(there[:, None], torch.tanh(x @ W_x + state @ W_h + b), state)


exercise = Exercise(
    "rnn_step",
    reference=lambda x, state, there, W_x, W_h, b: _step(x, state, there, W_x, W_h, b),
    solution=solution,
    returns=("state",),
    forbidden=(
        "attncourse.recurrent",
        "torch.nn.RNN",
        "torch.nn.RNNCell",
        "torch.rnn_tanh_cell",
        "torch.rnn_tanh",
    ),
    difficulty=1,
    minutes=10,
    hints=(
        "Write the shapes beside the equation. Which two products give (batch, d_hidden), and what may be added to it?",
        "Everything is added up first, and tanh comes once, around the whole sum.",
        "Row vectors: a state is a row and stands on the left of its matrix, `state @ W_h`. And `there` has "
        "True or False for each row: which axis does it lack to choose, for each text, between two rows of "
        "(batch, d_hidden)? (Choose with tensors: `.data` and `.item()` on the way end the gradient.)",
    ),
)
aspect, slip, misconception, variant, alternative = exercise.decorators()


def _weights(draw, d_in, d_hidden):
    """W_x, W_h and b, of a size that leaves tanh between its ends."""
    return draw.normal(d_in, d_hidden) / 2, draw.normal(d_hidden, d_hidden) / 2, draw.normal(d_hidden)


def _all(batch):
    """No text is over."""
    return torch.ones(batch, dtype=torch.bool)


def _some(batch):
    """The first text and every other one after it are over."""
    return torch.arange(batch) % 2 == 1


# ----------------------------------------------------------------------------------------------------- what is observed


@aspect("the first step", points=1, hint=2)
def the_first_step(answer, draw):
    """from an empty state, the input and the bias decide"""
    batch, d_in, d_hidden = draw.sizes(3, 2, 7)
    return answer(draw.normal(batch, d_in), torch.zeros(batch, d_hidden), _all(batch), *_weights(draw, d_in, d_hidden))


@aspect("remembering", points=1, hint=3)
def remembering(answer, draw):
    """with nothing to read, the new state comes from the old one"""
    batch, d_in, d_hidden = draw.sizes(3, 2, 7)
    W_x, W_h, b = _weights(draw, d_in, d_hidden)
    state = draw.normal(batch, d_hidden)
    return answer(torch.zeros(batch, d_in), state, _all(batch), W_x, W_h, torch.zeros_like(b))


@aspect("three steps", points=1, hint=2)
def three_steps(answer, draw):
    """what was read two steps ago is still in the state"""
    batch, d_in, d_hidden = draw.sizes(3, 2, 7)
    weights = _weights(draw, d_in, d_hidden)
    state = draw.normal(batch, d_hidden)
    for _ in range(3):
        state = answer(draw.normal(batch, d_in), state, _all(batch), *weights)
    return state


@aspect(
    "a text that is over",
    points=2,
    hint=3,
    explain=explain_worst("state {place} of a text that is over is {got}, and should have stayed {expected}"),
)
def a_text_that_is_over(answer, draw):
    """keeps its state, whatever stands in its row"""
    batch, d_in, d_hidden = draw.sizes(3, 4, 9)
    there = _some(batch)
    state = answer(9 * draw.normal(batch, d_in), draw.normal(batch, d_hidden), there, *_weights(draw, d_in, d_hidden))
    return state[~there]


@aspect("gradient", points=1, hint=3, explain=explain_way_back("x", "state", "W_x", "W_h", "b"))
def gradient(answer, draw):
    """everything can be learned: the gradient reaches the input, the previous state, and all weights"""
    batch, d_in, d_hidden = draw.sizes(3, 4, 9)
    inputs = [draw.normal(batch, d_in), draw.normal(batch, d_hidden), *_weights(draw, d_in, d_hidden)]
    inputs = [tensor.requires_grad_() for tensor in inputs]
    x, state, *weights = inputs
    given = x, state, _some(batch), *weights
    return way_back(answer(*given), exercise.reference(*given), inputs, draw)


# -------------------------------------------------------------------------------------- one slip away from the solution

ALL = ("the first step", "remembering", "three steps")
PAST = ("remembering", "three steps")
BIAS = ("the first step", "three steps")
OVER = ("a text that is over",)
EVERYTHING = (*ALL, *OVER, "gradient")

slip("tanh left out", ALL, {"torch.tanh": ""}, words="""
    Without tanh each step is a linear map. A hundred linear maps in a row are one linear map, and the state grows or
    shrinks by the same factor at every step. Bend the sum before you hand it on.""")
slip("sigmoid for tanh", ALL, {"tanh": "sigmoid"}, words="""
    This is the other S-shaped curve. It maps to 0…1, as suits a gate, which says how much to let through; a state
    should be able to say no as well as yes. The equation has tanh, which maps to −1…1.""")
slip("relu for tanh", ALL, {"tanh": "relu"}, words="""
    Negative numbers were cut off and positive ones left as they are. In a deep network that works well; here the same
    matrix is met at every step, and a state without a ceiling can grow at every step. The equation has tanh, which
    keeps it within −1…1.""")
slip("forgets the state", (*PAST, "gradient"), {" + state @ W_h": ""}, words="""
    The new state depends on the input alone, so nothing is carried along and the network knows one word of every
    sentence: the last. Which term of the equation is missing?""")
slip("the state's matrix transposed", PAST, {"W_h": "W_h.mT"}, words="""
    W_h is square, so its transpose fits as well, and only the numbers are wrong. Vectors are rows in this course: the
    state stands on the left. (`torch.nn.Linear` keeps its weight the other way round; if you wrote a formula for
    columns, W h, turn all of it around.)""")
slip("each other's matrix", ALL,
     {"x @ W_x + state @ W_h": "torch.cat([state, x], dim=-1) @ torch.cat([W_x, W_h])"},
     {"x @ W_x + state @ W_h": "torch.cat([x, state], dim=-1) @ torch.cat([W_h, W_x])"}, words="""
    Input and state were put side by side in one order and their matrices on top of each other in the other, so numbers
    of the state meet rows of W_x. The shapes fit all the same. The order is yours to choose, but choose the same one
    both times.""")
slip("the state bent again", PAST, {"state @ W_h": "torch.tanh(state) @ W_h"}, words="""
    The old state passed through tanh before W_h. It has been bent already, when it was made; at each step it would
    shrink once more. The equation takes it as it is.""")
slip("bias left out", (*BIAS, "gradient"), {" + b": ""}, words="""
    `b` was never used. Without it, a network that reads nothing from an empty state can only stay empty.""")
slip("bias twice", BIAS, {" + b": " + b + b"}, words="""
    The bias was added twice, once with the input and once with the state. (`nn.RNN` does have two biases, one for each
    matrix. The equation has one: add it once.)""")
slip("tanh around the input alone", PAST, {"+ state @ W_h + b)": "+ b) + state @ W_h"}, words="""
    Only a part of the sum went through tanh: the rest was added outside, so the new state is not kept within −1…1.
    Add everything up first, and bend the whole sum once.""")
slip("bias after the tanh", BIAS, {" + b)": ") + b"}, words="""
    The bias was added outside of the tanh, so states leave the range −1…1 and the bias cannot move the point at which a
    unit switches. It belongs in the sum.""")
slip("added to the old state", PAST, {"torch.tanh": "state + torch.tanh"}, words="""
    The new state is the old one plus a change. That is a good idea, which comes back as the residual connection in
    lecture @deep_stacks, but it is a different network: here the new state *replaces* the old one.""")
slip("goes on after the end", OVER, {"torch.where(there[:, None], new, state)": "new"}, words="""
    `there` was never asked: every text takes the step, and one that is over reads its padding. Its last state then
    depends on how long its neighbours in the batch are. Where a text is over, its old state is the new one.""")
slip("texts that are over left out", OVER,
     {"torch.where(there[:, None], new, state)": "new[there]"}, words="""
    Rows of texts that are over are missing from what came back. The next step needs the state of every text, in the
    same order: (batch, d_hidden).""")
slip("texts that are over taken to stand last", OVER,
     {"torch.where(there[:, None], new, state)": "torch.cat([new[: there.sum()], state[there.sum() :]])"}, words="""
    The first rows took the step, as many as there are texts with a token. Which texts those are is told by `there`:
    they may stand anywhere in the batch.""")
slip("an empty state after the end", OVER, {"new, state)": "new, torch.zeros_like(new))"},
     {"torch.where(there[:, None], new, state)": "new * there[:, None]"}, words="""
    Where a text is over, its state became 0: what it had read is lost before anybody could use it. It should keep the
    state that it has.""")
slip("the old state bent where a text is over", OVER, {"new, state)": "new, torch.tanh(state))"},
     {"new = torch.tanh(x @ W_x + state @ W_h + b)": "new = x @ W_x + state @ W_h + b",
      "torch.where(there[:, None], new, state)": "torch.where(there[:, None], new, state).tanh()"}, words="""
    Where a text is over, its state passed through tanh once more. A state is bent when it is made; what is kept is kept
    as it is.""")
slip("the wrong texts step", (*ALL, *OVER), {"new, state)": "state, new)"},
     {"there[:, None]": "~there[:, None]"}, words="""
    The choice is the wrong way round: texts with a token keep their state, and those that are over read padding.
    `there` is True where a text still has a token.""")
slip("reads nothing, and forgets all the same", OVER,
     {"x @ W_x": "(x * there[:, None]) @ W_x", "torch.where(there[:, None], new, state)": "new"}, words="""
    What a text that is over reads was set to 0, and then it took the step as the others do. A step without input
    changes the state as well, by W_h, the bias and the tanh. Choose between the new state and the old one.""")
slip("`there` lacks an axis", EVERYTHING, {"there[:, None]": "there"}, words="""
    `there` is (batch,), and torch lines shapes up from the right: it would pair the texts with the numbers of a state.
    Here the sizes differ and you are told; were they equal, you would get wrong numbers and no message. Give it an axis
    of length one behind the batch.""")
slip("cut off from the gradient", ("gradient",), {"state @": "state.detach() @"}, {"+ b)": "+ b).detach()"},
     {"new, state)": "new, state.detach())"}, words="""
    The numbers are right, but the gradient does not get through: `.detach()`, `.data`, numpy and `torch.no_grad()`
    forget where they came from. What was read early in a sentence could then never learn from what comes late.""")


# ------------------------------------------------------------------------------------------------------ further from it


@variant("tanh around the input alone", fails=ALL)
def tanh_around_the_product_alone(x, state, there, W_x, W_h, b):
    """And the bias outside, too."""
    return torch.where(there[:, None], torch.tanh(x @ W_x) + state @ W_h + b, state)


@misconception("old rows written into the result of tanh", fails=("gradient",))
def old_rows_written_into_the_result_of_tanh(x, state, there, W_x, W_h, b):
    """The old rows were written into the tensor that tanh returned. The numbers are right, but tanh needs its own
    result for the backward pass, and torch finds it changed. Make a third tensor that chooses between the two."""
    new = torch.tanh(x @ W_x + state @ W_h + b)
    new[~there] = state[~there]
    return new


@misconception("two tanhs", fails=("the first step", "three steps"))
def two_tanhs_and_the_bias_with_the_state(x, state, there, W_x, W_h, b):
    """Input and state were bent separately and then added, so a state can be as large as 2, and the two cannot cancel
    before tanh sees them. Add up first, bend once."""
    return torch.where(there[:, None], torch.tanh(x @ W_x) + torch.tanh(state @ W_h + b), state)


@variant("two tanhs", fails=("three steps",))
def two_tanhs_and_the_bias_with_the_input(x, state, there, W_x, W_h, b):
    """The bias with the input."""
    return torch.where(there[:, None], torch.tanh(x @ W_x + b) + torch.tanh(state @ W_h), state)


# ------------------------------------------------------------------------------------------------ right in other styles


@alternative("one product, and the old state set in")
def one_product(x, state, there, W_x, W_h, b):
    """Input and state side by side, the matrices on top of each other; then rows are exchanged by an index."""
    new = torch.addmm(b, torch.cat([x, state], dim=-1), torch.cat([W_x, W_h])).tanh()
    kept = new.clone()
    kept[~there] = state[~there]
    return kept


@alternative("linear layers, a change that is switched off")
def linear_layers(x, state, there, W_x, W_h, b):
    """torch's own, which takes weights for columns; the change is multiplied by 0 or 1."""
    new = nn.functional.tanh(nn.functional.linear(x, W_x.mT, b) + nn.functional.linear(state, W_h.mT))
    return state + (new - state) * there.unsqueeze(1)


@alternative("einsum and exponentials, float64")
def einsum_and_exponentials_float64(x, state, there, W_x, W_h, b):
    """tanh a = 2 σ(2a) − 1, in double precision."""
    read = torch.einsum("bi,ih->bh", x.double(), W_x.double())
    past = torch.einsum("bh,hk->bk", state.double(), W_h.double())
    new = 2 * torch.sigmoid(2 * (read + past + b)) - 1
    return new.masked_fill(~there[:, None], 0) + state.double().masked_fill(there[:, None], 0)


@alternative("a loop over the batch, not contiguous")
def a_loop_over_the_batch_not_contiguous(x, state, there, W_x, W_h, b):
    """One sentence at a time, as columns."""
    columns = [W_x.mT @ one + W_h.mT @ before + b for one, before in zip(x, state, strict=True)]
    chosen = [column.tanh() if reads else before for column, before, reads in zip(columns, state, there, strict=True)]
    return torch.stack(chosen, dim=1).mT
