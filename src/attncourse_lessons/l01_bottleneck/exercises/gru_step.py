"""gru_step: The state of a GRU after one more token."""

import torch

from lessonkit.exercises.exercise import Exercise
from lessonkit.exercises.judge import explain_worst
from lessonkit.exercises.way_back import explain_way_back, way_back


def solution(x, state, W_x, W_h, b):
    r = torch.sigmoid(x @ W_x[0] + state @ W_h[0] + b[0])
    z = torch.sigmoid(x @ W_x[1] + state @ W_h[1] + b[1])
    candidate = torch.tanh(x @ W_x[2] + r * (state @ W_h[2]) + b[2])
    return z * state + (1 - z) * candidate


exercise = Exercise(
    "gru_step",
    reference=lambda x, state, W_x, W_h, b: _gru(x, state, W_x, W_h, b),
    solution=solution,
    returns=("state",),
    forbidden=("attncourse.recurrent", "torch.nn.GRU", "torch.nn.GRUCell", "torch.gru_cell", "torch.gru"),
    difficulty=2,
    minutes=15,
    hints=(
        "Compute r, z and then the candidate: three lines that look alike. `W_x[0]` is the reset gate's matrix. In the "
        "picture, start at the × of r and go against the arrows: what it multiplies has just left a matrix.",
        "Gates are sigmoids, the candidate is a tanh. The reset gate multiplies `state @ W_h[2]`, and nothing else.",
        "Test yourself: what must come out if z is 1 everywhere, and what if z is 0? And what does the old "
        "state learn through? Nothing may be detached: the gates are there for the gradient's sake.",
    ),
)
aspect, slip, misconception, variant, alternative = exercise.decorators()


def _gru(x, state, W_x, W_h, b):
    r = torch.sigmoid(x @ W_x[0] + state @ W_h[0] + b[0])
    z = torch.sigmoid(x @ W_x[1] + state @ W_h[1] + b[1])
    candidate = torch.tanh(x @ W_x[2] + r * (state @ W_h[2]) + b[2])
    return z * state + (1 - z) * candidate


def _of_the_new(x, state, W_x, W_h, b):
    r = torch.sigmoid(x @ W_x[0] + state @ W_h[0] + b[0])
    z = torch.sigmoid(x @ W_x[1] + state @ W_h[1] + b[1])
    return torch.lerp(state, torch.tanh(x @ W_x[2] + r * (state @ W_h[2]) + b[2]), z)


def _gates(draw):
    batch, d_in, d_hidden = draw.sizes(3, 2, 7)
    weights = draw.normal(3, d_in, d_hidden) / 2, draw.normal(3, d_hidden, d_hidden) / 2, draw.normal(3, d_hidden)
    return draw.normal(batch, d_in), draw.normal(batch, d_hidden), *weights


# ----------------------------------------------------------------------------------------------------- what is observed


@aspect("a step", points=2, hint=2)
def a_step(answer, draw):
    """the new state lies between the old one and the candidate"""
    return answer(*_gates(draw))


@aspect(
    "a gate that keeps",
    points=1,
    hint=3,
    explain=explain_worst("state {place} is {got}, and with z at 1 it should have stayed {expected}"),
)
def a_gate_that_keeps(answer, draw):
    """with the update gate at 1 the state passes through untouched"""
    x, state, W_x, W_h, b = _gates(draw)
    b[1] += 100
    return answer(x, state, W_x, W_h, b)


@aspect(
    "a fresh start",
    points=1,
    hint=2,
    explain=explain_worst("state {place} is {got}; from the input alone, with r and z at 0, it is {expected}"),
)
def a_fresh_start(answer, draw):
    """with both gates at 0 the past is forgotten: a candidate that sees the input alone"""
    x, state, W_x, W_h, b = _gates(draw)
    b[:2] -= 100
    return answer(x, state, W_x, W_h, b)


@aspect("gradient", points=1, hint=3, explain=explain_way_back("x", "state", "W_x", "W_h", "b"))
def gradient(answer, draw):
    """everything can be learned: the gradient reaches the input, the previous state, and all weights"""
    inputs = [tensor.requires_grad_() for tensor in _gates(draw)]
    return way_back(answer(*inputs), exercise.reference(*inputs), inputs, draw)


# -------------------------------------------------------------------------------------- one slip away from the solution

STEP, KEEPS, FRESH = ("a step",), ("a step", "a gate that keeps"), ("a step", "a fresh start")
ALL = ("a step", "a gate that keeps", "a fresh start")
PAST = "r * (state @ W_h[2])"

slip("the update gate reversed", ALL, {"z * state + (1 - z) * candidate": "(1 - z) * state + z * candidate"}, words="""
    Old and new are swapped: z is the share of the *old* state here, as in torch. (Some papers let z be the share of the
    new one. Both can be learned; they must not be mixed.)""")
slip("reset before the matrix", STEP, {PAST: "(r * state) @ W_h[2]"}, words="""
    The state was multiplied by r *before* its matrix: that is the GRU of the first paper (Cho et al. 2014). Here r
    multiplies the product `state @ W_h[2]`, as in torch, which is faster on a GPU. The two do not give the same
    result.""")
slip("the bias reset too", FRESH, {f"{PAST} + b[2]": "r * (state @ W_h[2] + b[2])"}, words="""
    The reset gate multiplies the bias as well. It decides how much of the *past* enters the candidate: what does not
    come from the state stays outside its brackets.""")
slip("no reset gate", FRESH, {PAST: "state @ W_h[2]"}, words="""
    The reset gate has no effect, so the candidate always sees the whole of the old state. Without it the unit cannot
    start afresh in one step.""")
slip("gates swapped", KEEPS, {"r = ": "z = ", "z = ": "r = "}, words="""
    Reset and update gate have changed places: of the stacked matrices the first belongs to the reset gate, the second
    to the update gate.""")
slip("sigmoid for the candidate", FRESH, {"torch.tanh": "torch.sigmoid"}, words="""
    The candidate is a proposal for the state, not a gate: it may say no as well as yes, so it goes through tanh.""")
slip("nothing taken from the candidate", KEEPS, {"(1 - z) * candidate": "candidate"}, words="""
    The candidate was added as a whole. The gate says how the new state is *shared* between the old one, z, and the
    candidate, 1 − z: with z at 1 nothing of the candidate may come in.""")
slip("the candidate handed on", KEEPS, {"z * state + (1 - z) * candidate": "candidate"}, words="""
    The candidate itself came back. It is only a proposal: the update gate decides how much of it replaces the old
    state.""")
slip("gates without their biases", ALL, {" + b[0]": "", " + b[1]": ""}, words="""
    The two gates were computed without their biases. `b` has three rows, one for each line: reset, update,
    candidate.""")
slip("the input reset too", FRESH,
     {f"x @ W_x[2] + {PAST}": "r * (x @ W_x[2] + state @ W_h[2])"},
     {f"x @ W_x[2] + {PAST} + b[2]": "r * (x @ W_x[2] + state @ W_h[2] + b[2])"}, words="""
    The reset gate multiplies what comes from the input as well. It decides how much of the *past* the candidate sees:
    the new token is seen whole.""")
slip("cut off from the gradient", ("gradient",),
     {"r * (state": "r.detach() * (state"},
     {"z * state + (1 - z)": "z.detach() * state + (1 - z.detach())"},
     {"z * state": "z * state.detach()"},
     {"return ": "return (", "* candidate": "* candidate).detach()"}, words="""
    The numbers are right, but the gradient does not get through, or only a part of it: `.detach()`, `.data`, numpy and
    `torch.no_grad()` forget where numbers came from. The gates must learn when to let what through.""")


slip("no tanh around the candidate", FRESH, {"torch.tanh(": "("}, words="""
    The candidate is the sum itself, with no tanh around it. Without a bound a state can grow with every token: the tanh
    keeps each number between −1 and 1.""")
slip("a matrix of the state transposed", STEP,
     {f"state @ W_h[{gate}]": f"state @ W_h[{gate}].mT" for gate in range(3)},
     words="""
    The state met its matrices transposed. They are square, so nothing raises: a row of numbers stands on the *left* of
    its matrix here, `state @ W_h[0]`.""")
slip("nothing taken from the old state", FRESH, {"z * state +": "state +"}, words="""
    The old state came along whole, whatever the gate says. The new state is shared between the two, z of the old one
    and 1 − z of the candidate: with z at 0 nothing of the old one stays.""")


# ------------------------------------------------------------------------------------------------ right in other styles


@alternative("all products at once")
def all_products_at_once(x, state, W_x, W_h, b):
    """einsum over the three, then apart."""
    read = torch.einsum("bi,gih->gbh", x, W_x) + b[:, None]
    past = torch.einsum("bh,ghk->gbk", state, W_h)
    r, z = (read[:2] + past[:2]).sigmoid()
    return torch.lerp((read[2] + r * past[2]).tanh(), state, z)


@alternative("float64, a change added to the old state")
def float64_a_change_added_to_the_old_state(x, state, W_x, W_h, b):
    """h + (1 − z)(h̃ − h), in double precision."""
    x, state, W_x, W_h, b = (t.double() for t in (x, state, W_x, W_h, b))
    gates = [1 / (1 + torch.exp(-(x @ W_x[k] + state @ W_h[k] + b[k]))) for k in (0, 1)]
    candidate = torch.tanh(x @ W_x[2] + gates[0] * (state @ W_h[2]) + b[2])
    return state + (1 - gates[1]) * (candidate - state)


@alternative("two layers and chunk")
def two_layers_and_chunk(x, state, W_x, W_h, b):
    """The three matrices side by side, as torch keeps them."""
    read = x @ torch.cat(list(W_x), dim=-1) + b.flatten()
    past = state @ torch.cat(list(W_h), dim=-1)
    (r_x, z_x, n_x), (r_h, z_h, n_h) = read.chunk(3, dim=-1), past.chunk(3, dim=-1)
    r, z = torch.sigmoid(r_x + r_h), torch.sigmoid(z_x + z_h)
    return (1 - z) * torch.tanh(n_x + r * n_h) + z * state


# ------------------------------------------------------------------------------------------------ one thing changed


@exercise.variation(
    "z is the share of the new",
    asks="The update gate is the other way round: z says how much of the candidate is taken in, 1 − z how much of the "
    "old state stays.",
    fails=ALL,
    reference=lambda x, state, W_x, W_h, b: _of_the_new(x, state, W_x, W_h, b),
    contract={"The state of a GRU after one more token.":
              "The state of a GRU after one more token; its gate z is the share of the new."},
    hints=(exercise.hints[0], exercise.hints[1],
           "Test yourself: what must come out if z is 1 everywhere, and what if z is 0? And what does the old "
           "state learn through? Nothing may be detached: the gates are there for the gradient's sake."),
    without=("the update gate reversed", "gates swapped"),
)
def z_is_the_share_of_the_new(x, state, W_x, W_h, b):
    r = torch.sigmoid(x @ W_x[0] + state @ W_h[0] + b[0])
    z = torch.sigmoid(x @ W_x[1] + state @ W_h[1] + b[1])
    candidate = torch.tanh(x @ W_x[2] + r * (state @ W_h[2]) + b[2])
    return (1 - z) * state + z * candidate


@z_is_the_share_of_the_new.aspect(
    "a gate that keeps",
    points=1,
    hint=3,
    explain=explain_worst("state {place} is {got}, and with z at 0 it should have stayed {expected}"),
)
def a_closed_gate_keeps(answer, draw):
    """with the update gate at 0 the state passes through untouched"""
    x, state, W_x, W_h, b = _gates(draw)
    b[1] -= 100
    return answer(x, state, W_x, W_h, b)


@z_is_the_share_of_the_new.aspect(
    "a fresh start",
    points=1,
    hint=2,
    explain=explain_worst("state {place} is {got}; from the input alone, with r at 0 and z at 1, it is {expected}"),
)
def an_open_gate_starts_afresh(answer, draw):
    """with r at 0 and z at 1 the past is forgotten: a candidate that sees the input alone"""
    x, state, W_x, W_h, b = _gates(draw)
    b[0] -= 100
    b[1] += 100
    return answer(x, state, W_x, W_h, b)


@z_is_the_share_of_the_new.aspect(
    "gradient", points=1, hint=3, explain=explain_way_back("x", "state", "W_x", "W_h", "b")
)
def gradient_of_the_share_of_the_new(answer, draw):
    """everything can be learned: the gradient reaches the input, the previous state, and all weights"""
    inputs = [tensor.requires_grad_() for tensor in _gates(draw)]
    return way_back(answer(*inputs), _of_the_new(*inputs), inputs, draw)
