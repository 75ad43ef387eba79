"""rnn_states: All states of a recurrent network over texts of several lengths, and the last one of each."""

import torch
from torch import nn

from lessonkit.exercises.exercise import Exercise
from lessonkit.exercises.way_back import explain_way_back, way_back


def solution(x, lengths, W_x, W_h, b):
    batch, n, _ = x.shape
    state, every = x.new_zeros(batch, len(b)), []
    for t in range(n):
        state = torch.tanh(x[:, t] @ W_x + state @ W_h + b)  # (batch, d_hidden)
        every.append(state)
    states = torch.stack(every, dim=1)                       # (batch, n, d_hidden)
    last = states[torch.arange(batch), lengths - 1]          # (batch, d_hidden)
    over = torch.arange(n) >= lengths[:, None]               # (batch, n)
    return states.masked_fill(over[..., None], 0.0), last


exercise = Exercise(
    "rnn_states",
    reference=solution,
    solution=solution,
    returns=("states", "last"),
    forbidden=(
        "attncourse.recurrent",
        "torch.nn.RNN",
        "torch.nn.RNNCell",
        "torch.rnn_tanh_cell",
        "torch.rnn_tanh",
    ),
    difficulty=2,
    minutes=15,
    extra=True,
    hints=(
        "One loop over the positions, all texts of the batch at once. What is handed from one step to the next, and "
        "what is it before the first?",
        "`states[:, -1]` is the last column of the rectangle. For a short text that is a state of the padding. Which "
        "column is its own last one, and how does one pick another column in each row?",
        "`states[rows, columns]` with two lists of whole numbers picks one place from each row. For the zeros compare "
        "positions, (n,), with lengths, (batch, 1). Stack the states that you collect; `torch.tensor(…)` of them "
        "would forget how they were made, and nothing could be learned.",
    ),
)
aspect, slip, misconception, variant, alternative = exercise.decorators()


def _a_batch(draw, full=False):
    """Texts, their lengths and the network's weights; `full`: none is shorter than the rectangle, else one by two."""
    batch, n, d_in, d_hidden = draw.sizes(4, 3, 8)
    lengths = torch.full((batch,), n) if full else draw.padding_mask(batch, n).sum(dim=1)
    lengths[1] -= 0 if full else max(0, int(lengths[1]) - (n - 2))
    x = draw.normal(batch, n, d_in)
    return x, lengths, draw.normal(d_in, d_hidden) / 2, draw.normal(d_hidden, d_hidden) / 2, draw.normal(d_hidden)


# ----------------------------------------------------------------------------------------------------- what is observed


@aspect("states", points=2, hint=1)
def states(answer, draw):
    """where no text is short, the state after each token, from a first state of zeros"""
    return answer(*_a_batch(draw, full=True))[0]


@aspect("zeros after the end", points=1, hint=3)
def zeros_after_the_end(answer, draw):
    """where a text is over, zeros, and nowhere else"""
    return answer(*_a_batch(draw))[0]


@aspect("last", points=2, hint=2)
def last(answer, draw):
    """of each text the state after its own last token"""
    return answer(*_a_batch(draw))[1]


@aspect("gradient", points=1, hint=3, explain=explain_way_back("x", "W_x", "W_h", "b"))
def gradient(answer, draw):
    """everything can be learned, from all states and from the last ones"""
    x, lengths, *weights = _a_batch(draw)
    inputs = [tensor.requires_grad_() for tensor in (x, *weights)]
    got, expected = (
        torch.cat([found.flatten() for found in function(inputs[0], lengths, *inputs[1:])])
        for function in (answer, exercise.reference)
    )
    return way_back(got, expected, inputs, draw)


# -------------------------------------------------------------------------------------- one slip away from the solution

ALL = ("states", "zeros after the end", "last")
ZEROS = ("zeros after the end",)
LAST = ("last",)
KEPT = "states.masked_fill(over[..., None], 0.0)"

slip("the last column for everybody", LAST,
     {"states[torch.arange(batch), lengths - 1]": "states[:, -1]"}, words="""
    The last column of the rectangle is the last state of the longest text alone. In every shorter text it is a state
    that has read padding, and how much of it depends on what else is in the batch. Which column is a text's own last
    one?""")
slip("the end left as zeros", LAST,
     {"states[torch.arange(batch), lengths - 1]":
      "states.masked_fill((torch.arange(n) >= lengths[:, None])[..., None], 0.0)[:, -1]"}, words="""
    The last column was read after the padding had been set to zero, so every text that is shorter than the longest has
    a last state of zeros. Read the state at its own last token.""")
slip("one column too far", LAST, {"lengths - 1": "(lengths).clamp(max=n - 1)"},
     {"lengths - 1": "lengths % n"}, words="""
    A text of three tokens has them at the positions 0, 1 and 2. The column with the number of its length is one too
    far: it has read the first of the padding.""")
slip("one column too early", LAST, {"lengths - 1": "(lengths - 2).clamp(min=0)"}, words="""
    That is the state before the last token was read. A text of three tokens has them at the positions 0, 1 and 2, so
    its last state stands at position 2.""")
slip("the mean for the last", LAST,
     {"states[torch.arange(batch), lengths - 1]":
      "(states * (torch.arange(n) < lengths[:, None])[..., None]).sum(dim=1) / lengths[:, None]"}, words="""
    This is mean pooling, a good summary and another one. The last state is the one after the last token.""")
slip("padding kept", ZEROS, {KEPT: "states"}, words="""
    Where a text is over there still stand states that were computed from padding. Whoever sums or averages these states
    later counts them. The contract asks for zeros there.""")
slip("zeros for the text", ("states", "zeros after the end"),
     {"torch.arange(n) >= lengths": "torch.arange(n) < lengths"}, words="""
    The mask is the wrong way round: what was set to zero is the text, and what was kept is the padding. Does yours say
    where a text is, or where it is over?""")
slip("one token lost at the end", ("states", "zeros after the end"),
     {">= lengths[:, None]": ">= lengths[:, None] - 1"}, words="""
    The state of each text's last token was set to zero, too. The positions of a text of length 3 are 0, 1 and 2.""")
slip("one position of padding kept", ZEROS, {">= lengths[:, None]": "> lengths[:, None]"}, words="""
    The first position of the padding was kept. A text of length 3 is over from position 3 on, because positions count
    from 0.""")
slip("the state not handed on", (*ALL, "gradient"),
     {"state @ W_h": "torch.zeros_like(state) @ W_h"},
     {" + state @ W_h": ""}, words="""
    Each state was computed from its own token alone, as if every token were the first. The state of one step goes into
    the next.""")
slip("states of the step before", ("states", "zeros after the end", "last"),
     {"state = torch.tanh": "every.append(state)\n    state = torch.tanh", "    every.append(state)\n": ""},
     words="""
    Each state was kept before its token was read, so the list begins with h₀ and lacks the last. Position t has read
    the tokens 0 to t.""")
slip("read from the end", ALL, {"in range(n)": "in reversed(range(n))"}, words="""
    The texts were read from their last position to the first. (A bidirectional encoder does this, too, with a second
    network.) Here the state at position t has read the tokens 0 to t.""")
slip("a first state of ones", ALL, {"x.new_zeros": "x.new_ones"}, words="""
    The first state is not empty. Before anything has been read it is zeros, so that nothing comes from W_h at the first
    step.""")
slip("tanh left out", ALL, {"torch.tanh": ""}, words="""
    Without tanh each step is a linear map, and the states grow or shrink from step to step. Bend the whole sum before
    you hand it on.""")
slip("the state's matrix transposed", ALL, {"W_h": "W_h.mT"}, words="""
    W_h is square, so its transpose fits as well, and only the numbers are wrong. Vectors are rows in this course: the
    state stands on the left.""")
slip("bias left out", (*ALL, "gradient"), {" + b)": ")"}, words="""
    `b` was never used. It is added at every step.""")
slip("cut off from the gradient", ("gradient",),
     {"every.append(state)": "every.append(state)\n    state = state.detach()"},
     {"dim=1)": "dim=1).detach()"}, words="""
    The numbers are right, but the gradient does not get through: `.detach()`, `.data`, numpy and `torch.no_grad()`
    forget where numbers came from. What was read early could then never learn from what comes late.""")


# ------------------------------------------------------------------------------------------------ right in other styles


@alternative("one text at a time")
def one_text_at_a_time(x, lengths, W_x, W_h, b):
    """Each text alone, without its padding, and then zeros at its end."""
    rows, ends = [], []
    for text, length in zip(x, lengths.tolist(), strict=True):
        state, kept = torch.zeros_like(b), []
        for x_t in text[:length]:
            state = torch.tanh(x_t @ W_x + state @ W_h + b)
            kept.append(state)
        ends.append(state)
        rows.append(nn.functional.pad(torch.stack(kept), (0, 0, 0, len(text) - length)))
    return torch.stack(rows), torch.stack(ends)


@alternative("a state that stops changing")
def a_state_that_stops_changing(x, lengths, W_x, W_h, b):
    """Where a text is over, its state stays as it is; so at the end it is the last one."""
    state, kept = torch.zeros(len(x), len(b)), []
    for t in range(x.shape[1]):
        reads = (t < lengths)[:, None]
        state = torch.where(reads, torch.tanh(x[:, t] @ W_x + state @ W_h + b), state)
        kept.append(torch.where(reads, state, torch.zeros_like(state)))
    return torch.stack(kept, dim=1), state


@alternative("gather and a product, float64")
def gather_and_a_product_float64(x, lengths, W_x, W_h, b):
    """The input's product for all positions first, in double precision; the last by gather, the zeros by a product."""
    read = torch.einsum("bti,ih->bth", x.double(), W_x.double()) + b.double()
    state, every = torch.zeros(read[:, 0].shape, dtype=torch.float64), []
    for now in read.unbind(dim=1):
        state = torch.tanh(now + state @ W_h.double())
        every.append(state)
    kept = torch.stack(every, dim=1)
    place = (lengths - 1)[:, None, None].expand(-1, 1, kept.shape[-1])
    there = (torch.arange(kept.shape[1]) < lengths[:, None])[..., None]
    return kept * there, kept.gather(1, place)[:, 0]
