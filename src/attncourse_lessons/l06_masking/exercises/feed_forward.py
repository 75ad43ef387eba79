"""feed_forward: The position-wise feed-forward network, and which of its hidden units are dead."""

import math

import torch

from lessonkit.exercises.exercise import Exercise
from lessonkit.exercises.way_back import explain_way_back, way_back

from .common import READY_MADE


def reference(x, W_1, b_1, W_2, b_2):
    """max(0, x W_1 + b_1) W_2 + b_2, Vaswani et al. 2017, equation 2; and the units that are 0 for every vector."""
    hidden = (x @ W_1 + b_1).relu()
    return hidden @ W_2 + b_2, hidden.reshape(-1, hidden.shape[-1]).amax(dim=0) == 0


def solution(x, W_1, b_1, W_2, b_2):
    hidden = (x @ W_1 + b_1).relu()  # (..., d_ff)
    silent = (hidden == 0).reshape(-1, len(b_1))  # (vectors, d_ff)
    return hidden @ W_2 + b_2, silent.all(dim=0)


exercise = Exercise(
    "feed_forward",
    reference=reference,
    solution=solution,
    returns=("output", "dead"),
    forbidden=READY_MADE,
    difficulty=1,
    minutes=12,
    hints=(
        "Read the equation from the inside: a product, a bias, the maximum with 0, a product, a bias. Which shape does "
        "each step leave behind?",
        "`x @ W_1` multiplies the last axis and leaves all others alone, however many there are. The maximum of 0 and "
        "each number is `.relu()`, or `.clamp(min=0)`.",
        "A unit is dead if *no* vector makes it fire: not one of a sentence, nor of the whole batch. What does the "
        "table (vectors, d_ff) of its activations look like, and along which axis do you ask? There may be one vector.",
    ),
)
aspect, slip, misconception, variant, alternative = exercise.decorators()


def _network(draw, *shape):
    """x of this shape before its last axis, W_1, b_1, W_2, b_2: no two sizes alike. Some units never fire."""
    d_model, d_ff = [size for size in draw.sizes(2 + len(shape), 5, 13) if size not in shape][:2]
    b_1 = draw.normal(d_ff)
    b_1[1::3] -= 12
    b_1[0] = -4.0
    return [
        draw.normal(*shape, d_model),
        draw.normal(d_model, d_ff) / math.sqrt(d_model),
        b_1,
        draw.normal(d_ff, d_model) / math.sqrt(d_ff),
        draw.normal(d_model),
    ]


# ----------------------------------------------------------------------------------------------------- what is observed


@aspect("output", points=2, hint=1)
def output(answer, draw):
    """widen, apply the activation function, come back, at every position"""
    batch, n = draw.sizes(2, 3, 8)
    return answer(*_network(draw, batch, n))[0]


@aspect("any number of axes", points=1, hint=2)
def any_number_of_axes(answer, draw):
    """one vector alone, or four axes, go through the same network"""
    a, b, c = draw.sizes(3, 2, 5)
    return torch.cat([answer(*_network(draw))[0].flatten(), answer(*_network(draw, a, b, c))[0].flatten()])


@aspect("dead units", points=2, hint=3)
def dead_units(answer, draw):
    """True for the hidden units that are 0 for every vector, of all sentences"""
    batch, n = draw.sizes(2, 3, 8)
    x, W_1, b_1, W_2, b_2 = _network(draw, batch, n)
    W_1[:, 2] = b_1[2] = 0.0  # exactly 0 before the activation function, too
    W_1[:, [1, 3]], W_1[0, [1, 3]] = 0.0, 1.0
    b_1[[1, 3]] = -x[..., 0].flatten().sort().values[[-3, 1]]  # alive for two vectors, and for all but two
    W_2[3] = 0.0  # alive, though the output gets nothing of it
    return answer(x, W_1, b_1, W_2, b_2)[1]


@aspect("dead for one vector", points=0.5, hint=3)
def dead_for_one_vector(answer, draw):
    """the question has an answer for a single vector, too, without any axis in front"""
    return answer(*_network(draw))[1]


@aspect("gradient", points=1, hint=1, explain=explain_way_back("x", "W_1", "b_1", "W_2", "b_2"))
def gradient(answer, draw):
    """the input and all four parameters can learn"""
    batch, n = draw.sizes(2, 3, 8)
    inputs = [tensor.requires_grad_() for tensor in _network(draw, batch, n)]
    return way_back(answer(*inputs)[0], reference(*inputs)[0], inputs, draw)


# -------------------------------------------------------------------------------------- one slip away from the solution

VALUES = ("output", "any number of axes")
DEAD = ("dead units", "dead for one vector")
BOTH, WHOLE = (*VALUES, *DEAD), (*VALUES, "gradient")
HIDDEN, OUTPUT = "(x @ W_1 + b_1).relu()", "hidden @ W_2 + b_2"
SILENT, ALL = "(hidden == 0).reshape(-1, len(b_1))", "silent.all(dim=0)"

slip("no activation function", BOTH, {".relu()": ""}, words="""
    Two linear maps in a row are one linear map: W_1 W_2 could have been written down at once, and the wide middle gains
    nothing. What stands between them must not be a linear map: its result for a sum must not be just the sum of
    its results for the parts.""")
slip("the activation function at the end", VALUES, {OUTPUT: f"({OUTPUT}).relu()"}, words="""
    The output was cut off at zero. It is what the rest of the network goes on with, and must be free to be negative:
    the maximum with 0 stands in the middle, in the wide layer, and nowhere else.""")
slip("the activation function before W_1", BOTH, {HIDDEN: "x.relu() @ W_1 + b_1"}, words="""
    The input itself was cut off at zero, and half of what attention has collected is gone before it is
    used. First the product with W_1, then the maximum.""")
slip("the activation function before the bias", BOTH, {HIDDEN: "(x @ W_1).relu() + b_1"}, words="""
    b_1 was added after the maximum with 0. Inside, it decides from where each hidden unit fires; outside, all
    fire from zero on, and b_1 could be moved into b_2.""")
slip("b_1 left out", (*BOTH, "gradient"), {" + b_1": ""}, words="""
    The bias b_1 is missing. Read the equation once more: b_1 in the middle, before the maximum, and b_2 at the end.""")
slip("b_2 left out", WHOLE, {" + b_2": ""}, words="""
    The bias b_2 is missing. Read the equation once more: b_1 in the middle, b_2 at the end.""")
slip("a function other than max(0, ·)", BOTH,
    {HIDDEN: "torch.nn.functional.gelu(x @ W_1 + b_1)"},
    {"relu()": "tanh()"},
    {"relu()": "sigmoid()"},
    {"relu()": "softmax(dim=-1)"},  # which also mixes the hidden numbers
    {"relu()": "abs()"},
    {HIDDEN: "torch.nn.functional.leaky_relu(x @ W_1 + b_1)"},  # not quite zero
    words="""
    There is an activation function in the middle, but a different one: GELU, tanh, a leaky ReLU, sigmoid, softmax.
    Those exist, and GELU is what many models use; this contract, like the original paper, says the maximum of 0 and
    each number.""")
slip("dead if any vector leaves it silent", DEAD[:1], {ALL: "silent.any(dim=0)"}, words="""
    A unit was called dead as soon as *one* vector got nothing from it. That is what a ReLU is for: each unit fires
    for some vectors and not for others. It is dead if no vector makes it fire.""")
slip("0 before the activation function called alive", DEAD[:1],
     {"(hidden == 0)": "(x @ W_1 + b_1 < 0)"}, words="""
    Dead were only units that are *below* 0 before the activation function. One that is exactly 0 there is 0 after it as
    well, for every vector, and dead.""")
slip("dead on average", DEAD[:1], {"(hidden == 0)": "(x @ W_1 + b_1)", ALL: "silent.mean(dim=0) <= 0"}, words="""
    A unit was called dead where the *mean* over the vectors is not above 0. It may fire for a few of them all the same.
    It is dead if it is 0 for every one.""")
slip("without a part in the output called dead", DEAD[:1],
     {"(hidden == 0)": "(hidden * W_2.abs().sum(dim=1) == 0)"}, words="""
    A unit was called dead because its row of W_2 is 0. It fires for some vectors; only the output gets nothing of it,
    and its row can learn, since the gradient at W_2 is the unit's activation. Dead is what is 0 *before* W_2.""")
slip("one verdict for all units of one vector", DEAD[1:],
     {ALL: "(silent.all(dim=0) if x.dim() > 1 else silent.all())"}, words="""
    For a single vector there is one verdict for all units together. There is no axis in front to ask over: each unit
    keeps its own. (`amax(dim=())` reduces *all* axes; make one axis of those in front, `reshape(-1, d_ff)`, and there
    always is one.)""")
slip("one verdict for each vector", DEAD, {ALL: "silent.all(dim=1)"}, words="""
    The question was asked along the wrong axis: this says for each *vector* whether no unit fires. Asked for is
    one verdict for each hidden unit, (d_ff,), over all vectors.""")
slip("the living for the dead", DEAD, {ALL: "~silent.all(dim=0)"}, words="""
    True stands for the units that fire for some vector. Asked for are the others.""")
slip("a verdict for each position", DEAD,
     {SILENT: "(hidden == 0)"},
     words="""
    Only one axis was asked over, so there is a verdict for each unit *and* position. All axes in front of the last must
    go: make one of them first.""")
slip("a verdict for each sentence", ("any number of axes", *DEAD),
     {SILENT: "(hidden == 0)", ALL: "silent.all(dim=-2)"}, words="""
    There is a verdict for each unit and *sentence*, and a single vector, which has no axis of positions, is refused.
    All axes in front of the last must go: make one of them first.""")
slip("the minimum for the maximum", BOTH, {"relu()": "clamp(max=0)"}, words="""
    What is above 0 was cut off, and what is below was kept: that is the minimum of 0 and each number. `clamp(min=0)` is
    the maximum.""")
slip("the largest along an axis", (*BOTH, "gradient"),
    {HIDDEN: "torch.max(x @ W_1 + b_1, 0)"},
    {HIDDEN: "torch.max(x @ W_1 + b_1, dim=-1)"}, words="""
    `torch.max(h, 0)` does not compare with 0: the second argument is an axis, and two tensors come back, the largest
    numbers along it and their places. The maximum of 0 and each number is `.relu()` or `.clamp(min=0)`.""")
slip("the input added", VALUES, {OUTPUT: f"x + {OUTPUT}"}, words="""
    The input was added to the output. That is the residual connection, which a Transformer puts around this network and
    not into it (lecture @deep_stacks). Here, return the network's own output.""")
slip("cut off from the gradient", ("gradient",),
    {OUTPUT: f"({OUTPUT}).detach()"},
    {"relu()": "relu().detach()"},  # in the middle alone
    words="""
    The numbers are right, but the gradient does not get through: `.detach()`, `.data`, numpy, `torch.tensor(...)` and
    `torch.no_grad()` forget where numbers came from. Stay with tensor operations.""")


# ------------------------------------------------------------------------------------------------------ further from it


@misconception("three axes taken for granted", fails=("any number of axes", "dead for one vector"))
def three_axes_taken_for_granted(x, W_1, b_1, W_2, b_2):
    """It works for (batch, n, d_model) and for nothing else. The network treats each vector by itself and need not
    know how many axes stand in front: `@` multiplies the last one and keeps the rest, as long as you do not unpack
    `x.shape` into three names, or ask for `bmm`."""
    batch, n, d = x.shape
    hidden = (x.reshape(batch * n, d) @ W_1 + b_1).relu()
    return (hidden @ W_2 + b_2).reshape(batch, n, d), (hidden == 0).all(dim=0)


# ------------------------------------------------------------------------------------------------ right in other styles


@alternative("maximum")
def maximum(x, W_1, b_1, W_2, b_2):
    """Writes the maximum as the equation does, and counts how often each unit fires."""
    hidden = torch.maximum(torch.zeros(()), torch.matmul(x, W_1) + b_1)
    answers = (hidden > 0).reshape(-1, W_1.shape[1]).sum(dim=0)
    return torch.matmul(hidden, W_2) + b_2, answers == 0


@alternative("linear layers")
def linear_layers(x, W_1, b_1, W_2, b_2):
    """torch's own linear maps, which keep their matrices transposed; one axis after the other is asked over."""
    hidden = torch.nn.functional.relu(torch.nn.functional.linear(x, W_1.T, b_1))
    dead = hidden <= 0
    while dead.dim() > 1:
        dead = dead.all(dim=0)
    return torch.nn.functional.linear(hidden, W_2.T, b_2), dead


@alternative("einsum and a condition, in double precision")
def einsum_and_a_condition_in_double_precision(x, W_1, b_1, W_2, b_2):
    """Names the axes."""
    hidden = torch.einsum("...d,df->...f", x.double(), W_1.double()) + b_1
    alive = hidden > 0
    hidden = torch.where(alive, hidden, 0.0)
    output = torch.einsum("...f,fd->...d", hidden, W_2.double()) + b_2
    return output, ~alive.view(-1, len(W_2)).any(dim=0)


@alternative("one hidden number at a time")
def one_hidden_number_at_a_time(x, W_1, b_1, W_2, b_2):
    """A sum over the hidden layer of a unit's activation times a row."""
    units = [(x @ W_1[:, h] + b_1[h]).clamp(min=0)[..., None] for h in range(len(b_1))]
    dead = torch.stack([unit.max() == 0 for unit in units])
    return sum(unit * row for unit, row in zip(units, W_2, strict=True)) + b_2, dead
