"""feed_forward: Widen, take the maximum of 0 and each number, come back: the same for every vector."""

import math

import torch

from lessonkit.exercises.exercise import Exercise
from lessonkit.exercises.judge import arrives
from lessonkit.exercises.observe import gradients

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


@aspect("output", points=2)
def output(answer, draw):
    """widen, bend, come back, at every position"""
    batch, n = draw.sizes(2, 3, 8)
    return answer(*_network(draw, batch, n))


@aspect("any number of axes", points=1)
def any_number_of_axes(answer, draw):
    """one vector alone, or four axes, go through the same network"""
    a, b, c = draw.sizes(3, 2, 5)
    return torch.cat([answer(*_network(draw)).flatten(), answer(*_network(draw, a, b, c)).flatten()])


@aspect("gradient", points=1, explain=arrives("x", "W_1", "b_1", "W_2", "b_2"))
def gradient(answer, draw):
    """the input and all four parameters can learn"""
    batch, n = draw.sizes(2, 3, 8)
    inputs = [tensor.requires_grad_() for tensor in _network(draw, batch, n)]
    return gradients(answer(*inputs), inputs, draw)


WHOLE = ("output", "any number of axes", "gradient")


# -------------------------------------------------------------------------------------------------------- wrong answers


@misconception("nothing bends", fails=WHOLE)
def nothing_bends(x, W_1, b_1, W_2, b_2):
    """Two linear maps in a row are one linear map: W_1 W_2 could have been written down at once, and the wide middle
    gains nothing. What stands between them must bend: what it makes of a sum must not be just the sum of what it makes
    of the parts."""
    return (x @ W_1 + b_1) @ W_2 + b_2


@misconception("bends at the end", fails=WHOLE)
def bends_at_the_end(x, W_1, b_1, W_2, b_2):
    """The output was cut off at zero. It is what the rest of the network goes on with, and must be free to be
    negative: the maximum with 0 stands in the middle, in the wide layer, and nowhere else."""
    return ((x @ W_1 + b_1) @ W_2 + b_2).relu()


@variant("bends at the end", fails=WHOLE)
def bends_at_the_end_2(x, W_1, b_1, W_2, b_2):
    """In the middle as well."""
    return ((x @ W_1 + b_1).relu() @ W_2 + b_2).relu()


@misconception("bends before it widens", fails=WHOLE)
def bends_before_it_widens(x, W_1, b_1, W_2, b_2):
    """The input itself was cut off at zero, and half of what attention has collected is gone before anybody has looked
    at it. First the product with W_1, then the maximum."""
    return (x.relu() @ W_1 + b_1) @ W_2 + b_2


@misconception("bends before the bias", fails=WHOLE)
def bends_before_the_bias(x, W_1, b_1, W_2, b_2):
    """b_1 was added after the maximum with 0. Inside, it decides for each hidden number where the bend lies; outside,
    all bends lie at zero, and b_1 could be moved into b_2."""
    return ((x @ W_1).relu() + b_1) @ W_2 + b_2


@misconception("a bias left out", fails=WHOLE)
def a_bias_left_out(x, W_1, b_1, W_2, b_2):
    """One of the two biases is missing (or both are). Read the equation once more: b_1 in the middle, b_2 at the
    end."""
    return (x @ W_1 + b_1).relu() @ W_2


@variant("a bias left out", fails=WHOLE)
def a_bias_left_out_2(x, W_1, b_1, W_2, b_2):
    """The first one."""
    return (x @ W_1).relu() @ W_2 + b_2


@variant("a bias left out", fails=WHOLE)
def a_bias_left_out_3(x, W_1, b_1, W_2, b_2):
    """Both."""
    return (x @ W_1).relu() @ W_2


@misconception("a function other than max(0, ·)", fails=WHOLE)
def a_function_other_than_max_0(x, W_1, b_1, W_2, b_2):
    """There is a bend in the middle, but a different one: GELU, tanh, a leaky ReLU, sigmoid, softmax. Those exist, and
    GELU is what many models use; this contract, like the original paper, says the maximum of 0 and each number."""
    return torch.nn.functional.gelu(x @ W_1 + b_1) @ W_2 + b_2


@variant("a function other than max(0, ·)", fails=WHOLE)
def a_function_other_than_max_0_2(x, W_1, b_1, W_2, b_2):
    """tanh."""
    return torch.tanh(x @ W_1 + b_1) @ W_2 + b_2


@variant("a function other than max(0, ·)", fails=WHOLE)
def a_function_other_than_max_0_3(x, W_1, b_1, W_2, b_2):
    """Sigmoid."""
    return torch.sigmoid(x @ W_1 + b_1) @ W_2 + b_2


@variant("a function other than max(0, ·)", fails=WHOLE)
def a_function_other_than_max_0_4(x, W_1, b_1, W_2, b_2):
    """Softmax, which also mixes the hidden numbers."""
    return (x @ W_1 + b_1).softmax(dim=-1) @ W_2 + b_2


@variant("a function other than max(0, ·)", fails=WHOLE)
def a_function_other_than_max_0_5(x, W_1, b_1, W_2, b_2):
    """The size of each number."""
    return (x @ W_1 + b_1).abs() @ W_2 + b_2


@variant("a function other than max(0, ·)", fails=WHOLE)
def a_function_other_than_max_0_6(x, W_1, b_1, W_2, b_2):
    """Not quite zero."""
    return torch.nn.functional.leaky_relu(x @ W_1 + b_1) @ W_2 + b_2


@misconception("the input added", fails=WHOLE)
def the_input_added(x, W_1, b_1, W_2, b_2):
    """The input was added to the output. That is the residual connection, which a Transformer puts around this network
    and not into it (lecture @deep_stacks). Here, return the network's own output."""
    return x + (x @ W_1 + b_1).relu() @ W_2 + b_2


@misconception("three axes taken for granted", fails=("any number of axes",))
def three_axes_taken_for_granted(x, W_1, b_1, W_2, b_2):
    """It works for (batch, n, d_model) and for nothing else. The network treats each vector by itself and need not
    know how many axes stand in front: `@` multiplies the last one and keeps the rest, as long as you do not unpack
    `x.shape` into three names, or ask for `bmm`."""
    batch, n, d = x.shape
    hidden = (x.reshape(batch * n, d) @ W_1 + b_1).relu()
    return (hidden @ W_2 + b_2).reshape(batch, n, d)


@misconception("cut off from the gradient", fails=("gradient",))
def cut_off_from_the_gradient(x, W_1, b_1, W_2, b_2):
    """The numbers are right, but the gradient does not get through: `.detach()`, `.data`, numpy, `torch.tensor(...)`
    and `torch.no_grad()` forget where numbers came from. Stay with tensor operations."""
    return ((x @ W_1 + b_1).relu().detach() @ W_2 + b_2).detach()


@variant("cut off from the gradient", fails=("gradient",))
def cut_off_from_the_gradient_2(x, W_1, b_1, W_2, b_2):
    """In the middle alone."""
    return (x @ W_1 + b_1).relu().detach() @ W_2 + b_2


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
    """A sum over the hidden layer of a bend times a row."""
    parts = [(x @ W_1[:, h] + b_1[h]).clamp(min=0)[..., None] * W_2[h] for h in range(len(b_1))]
    return sum(parts) + b_2
