"""swiglu: A gated feed-forward network, without biases."""

import math

import torch
from torch import nn

from attncourse import layers
from lessonkit.exercises.exercise import Exercise
from lessonkit.exercises.judge import explain_missing_gradient, explain_worst
from lessonkit.exercises.observe import apart, gradient_reaches, require_variation

from .common import READY_MADE


def reference(x, W_gate, W_up, W_down):
    """(silu(x W_gate) ∘ x W_up) W_down. Shazeer 2020, equation 6."""
    return (layers.GATES["swiglu"](x @ W_gate) * (x @ W_up)) @ W_down


def solution(x, W_gate, W_up, W_down):
    z = x @ W_gate                                         # (..., d_ff)
    return (z * torch.sigmoid(z) * (x @ W_up)) @ W_down    # (..., d_model)


exercise = Exercise(
    "swiglu",
    reference=reference,
    solution=solution,
    returns=("output",),
    forbidden=READY_MADE,
    difficulty=1,
    minutes=8,
    hints=(
        "Two products lead from d_model to d_ff. One of them goes through the activation function and becomes the "
        "gate; then the two are multiplied, element by element; and one product leads back. Each matrix is used once, "
        "and the gradient must reach all three.",
        "`@` takes the last axis of x, whatever stands in front of it. Does any line of yours ask how many axes x has?",
        "silu(z) = z · σ(z). torch has `torch.sigmoid`, and `torch.nn.functional.silu` too. Exponentials by hand "
        "overflow where |z| is large: in the output, or in the gradient alone.",
    ),
)
aspect, slip, misconception, variant, alternative = exercise.decorators()


def _gated(draw, *in_front):
    """[x, W_gate, W_up, W_down], no two sizes alike."""
    batch, n, d, d_ff = draw.sizes(4, 3, 9)
    d_ff += 4 * d                                                         # wider than the usual four times
    matrices = [draw.normal(*size) / math.sqrt(size[0]) for size in ((d, d_ff), (d, d_ff), (d_ff, d))]
    return [draw.normal(*(in_front or (batch, n)), d), *matrices]


# ----------------------------------------------------------------------------------------------------- what is observed


@aspect("output", points=2, hint=1)
def output(answer, draw):
    """one product through silu, the other as it is, multiplied element by element, and back"""
    return answer(*_gated(draw))


@aspect(
    "axes in front",
    points=0.5,
    hint=2,
    explain=explain_worst("a vector by itself gets an output that differs by {size} at {place}"),
)
def axes_in_front(answer, draw):
    """one vector, a sentence, or a batch of them: each position by itself"""
    x, *matrices = _gated(draw, 2, 3)
    alone = torch.stack([torch.stack([answer(vector, *matrices) for vector in row]) for row in x])
    return apart(require_variation(answer(x, *matrices)), alone)


def _where_not_finite(got, expected):
    if not got[0]:
        return "some come out as NaN or ∞"
    return "what comes out is finite, but the gradient on the way back is NaN or ∞"


@aspect("large numbers", points=1, hint=3, explain=_where_not_finite)
def large_numbers(answer, draw):
    """a gate that is wide open, or shut, gives finite numbers, and finite gradients on the way back"""
    inputs = _gated(draw)
    inputs[0] = 300 * inputs[0]
    output = answer(*(tensor.requires_grad_() for tensor in inputs))
    fine = require_variation(output.nan_to_num(1e30, 1e30, 1e30)).abs() < 1e20
    if not output.requires_grad:                                          # another aspect's fault
        return fine.all().expand(2)
    back = torch.autograd.grad(output.nan_to_num(0.0, 0.0, 0.0).sum(), inputs, materialize_grads=True)
    return torch.stack([fine.all(), torch.stack([gradient.isfinite().all() for gradient in back]).all()])


@aspect("gradient", points=0.5, hint=1, explain=explain_missing_gradient("x", "W_gate", "W_up", "W_down"))
def gradient(answer, draw):
    """all three matrices can be learned"""
    inputs = [tensor.requires_grad_() for tensor in _gated(draw)]
    return gradient_reaches(answer(*inputs), inputs, draw)


# -------------------------------------------------------------------------------------- one slip away from the solution

OUTPUT = ("output",)
GATE, VALUE = "z * torch.sigmoid(z)", " * (x @ W_up)"

slip("gate and value swapped", OUTPUT, {"W_gate": "W_up", "W_up": "W_gate"}, words="""
    The wrong product went through silu. It is the product with `W_gate` that goes through it. (A model trained from
    scratch would not mind; weights from a checkpoint would.)""")
slip("one product for both", ("output", "gradient"), {"W_gate": "W_up"}, {"W_up": "W_gate"}, words="""
    The gate and the value are the same product: one of the two matrices is used twice, and the other not at all. x is
    multiplied by `W_gate` for the gate and by `W_up` for the value.""")
slip("sigmoid for silu", OUTPUT, {GATE: "torch.sigmoid(z)"}, words="""
    The gate is σ(z), between 0 and 1: that is the gated linear unit of 2016. In SwiGLU it is z · σ(z), which may be
    as large as it likes.""")
slip("a different bend", OUTPUT,
     {GATE: "nn.functional.gelu(z)"},
     {GATE: "torch.relu(z)"},
     {GATE: "torch.tanh(z)"},
     words="""
    The gate goes through a function other than silu. With ReLU it is called ReGLU, with GELU GEGLU: relatives, and
    hardly worse, but a checkpoint knows its own.""")
slip("both bent", OUTPUT, {"(x @ W_up)": "nn.functional.silu(x @ W_up)"}, words="""
    Both products went through silu. One is left as it is: it is the value that the gate lets through, and may
    well be negative.""")
slip("bent after the product", OUTPUT, {"x @ W_gate": "(x @ W_gate) * (x @ W_up)", VALUE: ""}, words="""
    The two were multiplied first and went through silu together. The gate goes through it alone, and then
    multiplies.""")
slip("added, not multiplied", OUTPUT, {VALUE: " + x @ W_up"}, words="""
    The two products were added. A gate *multiplies*: where it is 0, nothing gets through, whatever the value.""")
slip("no gate", ("output", "gradient"),
     {"W_gate": "W_up", VALUE: ""},
     {VALUE: ""},  # with the gate's matrix
     words="""
    This is the plain network of 2017 with another activation: one matrix up, one down; the third learns nothing.""")
slip("exponentials that overflow", ("large numbers",),
     {"torch.sigmoid(z)": "z.exp() / (1 + z.exp())"},
     {GATE: "z / (1 + (-z).exp())"},  # on the way back alone
     words="""
    The formula is right, and e to the power of some hundreds is ∞: ∞/∞ is NaN. With the exponential in the denominator
    alone, z / (1 + e^(−z)), what comes out is right, and the *gradient* is ∞ · 0, which is NaN. Leave the sigmoid to
    torch: z · σ(z).""")
slip("cut off from the gradient", ("gradient",), {GATE: f"({GATE}).detach()"}, words="""
    The numbers are right, but no gradient gets through: `.detach()`, `.data` and `torch.no_grad()` forget where
    numbers came from.""")
slip("a batch expected", ("axes in front",), {"z = x": "batch, n, d = x.shape\nz = x"}, words="""
    For a batch of sentences it works; a single vector, without axes in front, is refused or mistaken for something
    else. `@` takes the last axis of x, whatever stands in front of it.""")


# ------------------------------------------------------------------------------------------------ right in other styles


@alternative("the sigmoid by name")
def the_sigmoid_by_name(x, W_gate, W_up, W_down):
    """silu written out."""
    z = torch.matmul(x, W_gate)
    hidden = z * torch.sigmoid(z) * torch.matmul(x, W_up)
    return torch.matmul(hidden, W_down)


@alternative("einsum in float64")
def einsum_in_float64(x, W_gate, W_up, W_down):
    """Axes by name."""
    gate, up, down = W_gate.double(), W_up.double(), W_down.double()
    z = torch.einsum("...d,df->...f", x.double(), gate)
    hidden = z * z.sigmoid() * torch.einsum("...d,df->...f", x.double(), up)
    return torch.einsum("...f,fd->...d", hidden, down)


@alternative("one product for both")
def one_product_for_both(x, W_gate, W_up, W_down):
    """The two matrices side by side, as fast kernels have it; the result is a view that is not contiguous."""
    z, up = (x @ torch.cat([W_gate, W_up], dim=1)).chunk(2, dim=-1)
    return (W_down.mT @ (nn.functional.silu(z) * up).unsqueeze(-1)).squeeze(-1)


@alternative("linear layers")
def linear_layers(x, W_gate, W_up, W_down):
    """Which multiply by the transpose."""
    hidden = nn.functional.silu(nn.functional.linear(x, W_gate.T)) * nn.functional.linear(x, W_up.T)
    return nn.functional.linear(hidden, W_down.T)
