"""feed_forward: Widen, take the maximum of 0 and each number, come back: the same for every vector."""

import math

import torch

from lessonkit.exercises.exercise import Exercise
from lessonkit.exercises.way_back import explain_way_back, way_back

from .common import READY_MADE


def reference(x, W_1, b_1, W_2, b_2):
    """max(0, x W_1 + b_1) W_2 + b_2. Vaswani et al. 2017, equation 2."""
    return (x @ W_1 + b_1).relu() @ W_2 + b_2


def solution(x, W_1, b_1, W_2, b_2):
    hidden = (x @ W_1 + b_1).relu()  # (..., d_ff)
    return hidden @ W_2 + b_2


exercise = Exercise(
    "feed_forward",
    reference=reference,
    solution=solution,
    returns=("output",),
    forbidden=READY_MADE,
    difficulty=1,
    minutes=8,
    hints=(
        "Read the equation from the inside: a product, a bias, the maximum with 0, a product, a bias. Which shape does "
        "each step leave behind?",
        "`x @ W_1` multiplies the last axis and leaves all others alone, however many there are. The maximum of 0 and "
        "each number is `.relu()`, or `.clamp(min=0)`.",
    ),
)
aspect, slip, misconception, variant, alternative = exercise.decorators()


def _network(draw, *shape):
    """x of this shape before its last axis, W_1, b_1, W_2, b_2: no two sizes alike."""
    d_model, d_ff = [size for size in draw.sizes(2 + len(shape), 3, 11) if size not in shape][:2]
    return [
        draw.normal(*shape, d_model),
        draw.normal(d_model, d_ff) / math.sqrt(d_model),
        draw.normal(d_ff),
        draw.normal(d_ff, d_model) / math.sqrt(d_ff),
        draw.normal(d_model),
    ]


# ----------------------------------------------------------------------------------------------------- what is observed


@aspect("output", points=2, hint=1)
def output(answer, draw):
    """widen, apply the activation function, come back, at every position"""
    batch, n = draw.sizes(2, 3, 8)
    return answer(*_network(draw, batch, n))


@aspect("any number of axes", points=1, hint=2)
def any_number_of_axes(answer, draw):
    """one vector alone, or four axes, go through the same network"""
    a, b, c = draw.sizes(3, 2, 5)
    return torch.cat([answer(*_network(draw)).flatten(), answer(*_network(draw, a, b, c)).flatten()])


@aspect("gradient", points=1, hint=1, explain=explain_way_back("x", "W_1", "b_1", "W_2", "b_2"))
def gradient(answer, draw):
    """the input and all four parameters can learn"""
    batch, n = draw.sizes(2, 3, 8)
    inputs = [tensor.requires_grad_() for tensor in _network(draw, batch, n)]
    return way_back(answer(*inputs), reference(*inputs), inputs, draw)


# -------------------------------------------------------------------------------------- one slip away from the solution

VALUES = ("output", "any number of axes")
WHOLE = (*VALUES, "gradient")
HIDDEN, OUTPUT = "(x @ W_1 + b_1).relu()", "hidden @ W_2 + b_2"

slip("no activation function", VALUES, {".relu()": ""}, words="""
    Two linear maps in a row are one linear map: W_1 W_2 could have been written down at once, and the wide middle gains
    nothing. What stands between them must be no linear map: what it makes of a sum must not be just the sum of what it
    makes of the parts.""")
slip("the activation function at the end", VALUES,
    {".relu()": "", OUTPUT: f"({OUTPUT}).relu()"},
    {OUTPUT: f"({OUTPUT}).relu()"},  # in the middle as well
    words="""
    The output was cut off at zero. It is what the rest of the network goes on with, and must be free to be negative:
    the maximum with 0 stands in the middle, in the wide layer, and nowhere else.""")
slip("the activation function before W_1", VALUES, {HIDDEN: "x.relu() @ W_1 + b_1"}, words="""
    The input itself was cut off at zero, and half of what attention has collected is gone before anybody has looked at
    it. First the product with W_1, then the maximum.""")
slip("the activation function before the bias", VALUES, {HIDDEN: "(x @ W_1).relu() + b_1"}, words="""
    b_1 was added after the maximum with 0. Inside, it decides from where each hidden unit answers; outside, all
    answer from zero on, and b_1 could be moved into b_2.""")
slip("a bias left out", WHOLE,
    {" + b_2": ""},
    {" + b_1": ""},
    {" + b_1": "", " + b_2": ""},
    words="""
    One of the two biases is missing (or both are). Read the equation once more: b_1 in the middle, b_2 at the end.""")
slip("a function other than max(0, ·)", VALUES,
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
slip("the minimum for the maximum", VALUES, {"relu()": "clamp(max=0)"}, words="""
    What is above 0 was cut off, and what is below was kept: that is the minimum of 0 and each number. `clamp(min=0)` is
    the maximum.""")
slip("the largest along an axis", WHOLE,
    {HIDDEN: "torch.max(x @ W_1 + b_1, 0)"},
    {HIDDEN: "torch.max(x @ W_1 + b_1, dim=-1)"}, words="""
    `torch.max(h, 0)` does not compare with 0: the second argument is an axis, and two tensors come back, the largest
    numbers along it and their places. The maximum of 0 and each number is `.relu()` or `.clamp(min=0)`.""")
slip("the input added", VALUES, {OUTPUT: f"x + {OUTPUT}"}, words="""
    The input was added to the output. That is the residual connection, which a Transformer puts around this network and
    not into it (lecture @deep_stacks). Here, return the network's own output.""")
slip("cut off from the gradient", ("gradient",),
    {OUTPUT: f"({OUTPUT}).detach()", "relu()": "relu().detach()"},
    {"relu()": "relu().detach()"},  # in the middle alone
    words="""
    The numbers are right, but the gradient does not get through: `.detach()`, `.data`, numpy, `torch.tensor(...)` and
    `torch.no_grad()` forget where numbers came from. Stay with tensor operations.""")


# ------------------------------------------------------------------------------------------------------ further from it


@misconception("three axes taken for granted", fails=("any number of axes",))
def three_axes_taken_for_granted(x, W_1, b_1, W_2, b_2):
    """It works for (batch, n, d_model) and for nothing else. The network treats each vector by itself and need not
    know how many axes stand in front: `@` multiplies the last one and keeps the rest, as long as you do not unpack
    `x.shape` into three names, or ask for `bmm`."""
    batch, n, d = x.shape
    hidden = (x.reshape(batch * n, d) @ W_1 + b_1).relu()
    return (hidden @ W_2 + b_2).reshape(batch, n, d)


# ------------------------------------------------------------------------------------------------ right in other styles


@alternative("maximum")
def maximum(x, W_1, b_1, W_2, b_2):
    """Writes the maximum as the equation does."""
    hidden = torch.maximum(torch.zeros(()), torch.matmul(x, W_1) + b_1)
    return torch.matmul(hidden, W_2) + b_2


@alternative("linear layers")
def linear_layers(x, W_1, b_1, W_2, b_2):
    """torch's own linear maps, which keep their matrices transposed."""
    hidden = torch.nn.functional.relu(torch.nn.functional.linear(x, W_1.T, b_1))
    return torch.nn.functional.linear(hidden, W_2.T, b_2)


@alternative("einsum and a condition, in double precision")
def einsum_and_a_condition_in_double_precision(x, W_1, b_1, W_2, b_2):
    """Names the axes."""
    hidden = torch.einsum("...d,df->...f", x.double(), W_1.double()) + b_1
    hidden = torch.where(hidden > 0, hidden, 0.0)
    return torch.einsum("...f,fd->...d", hidden, W_2.double()) + b_2


@alternative("one hidden number at a time")
def one_hidden_number_at_a_time(x, W_1, b_1, W_2, b_2):
    """A sum over the hidden layer of a unit's activation times a row."""
    parts = [(x @ W_1[:, h] + b_1[h]).clamp(min=0)[..., None] * W_2[h] for h in range(len(b_1))]
    return sum(parts) + b_2
