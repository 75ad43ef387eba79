"""fold_the_norm: One linear layer in place of a gain, a bias and a linear layer."""

import torch

from lessonkit.exercises.exercise import Exercise
from lessonkit.exercises.way_back import explain_way_back, way_back

from .common import READY_MADE


def reference(gain, bias, W, b):
    """(y · gain + bias) W + b = y W' + b'."""
    return gain[:, None] * W, bias @ W + b


def solution(gain, bias, W, b):
    return gain[:, None] * W, bias @ W + b


exercise = Exercise(
    "fold_the_norm",
    reference=reference,
    solution=solution,
    returns=("W_folded", "b_folded"),
    forbidden=READY_MADE,
    difficulty=2,
    minutes=12,
    extra=True,
    hints=(
        "Write (y ⊙ γ + β) W + b and multiply out. Which part depends on y, and which does not?",
        "y ⊙ γ multiplies *column* c of y by γ_c, and column c of y meets row c of W. So γ may as well multiply W: its "
        "rows, or its columns?",
    ),
)
aspect, slip, misconception, variant, alternative = exercise.decorators()


def _linear(draw):
    """[gain, bias, W, b], d_model and d_out different."""
    d_model, d_out = draw.sizes(2, 3, 8)
    return [1 + draw.normal(d_model) / 2, draw.normal(d_model), draw.normal(d_model, d_out), draw.normal(d_out)]


# ----------------------------------------------------------------------------------------------------- what is observed


@aspect("matrix", points=1, hint=2)
def matrix(answer, draw):
    """the gain is in the matrix"""
    return answer(*_linear(draw))[0]


@aspect("bias", points=1, hint=1)
def bias(answer, draw):
    """the norm's bias is in the layer's"""
    return answer(*_linear(draw))[1]


@aspect("gradient", points=1, hint=1, explain=explain_way_back("gain", "bias", "W", "b"))
def gradient(answer, draw):
    """all four can still be learned"""
    inputs = [tensor.requires_grad_() for tensor in _linear(draw)]
    found, right = answer(*inputs), reference(*inputs)
    return way_back(torch.cat([found[0].flatten(), found[1]]), torch.cat([right[0].flatten(), right[1]]), inputs, draw)


# -------------------------------------------------------------------------------------- one slip away from the solution

MATRIX, EVERY = "gain[:, None] * W", ("matrix", "bias", "gradient")

slip("gain on the outputs", EVERY, {MATRIX: "W * gain"}, words="""
    The gain met W's columns, which stand for the *outputs*; there are not even as many. It multiplies the norm's
    numbers, one by one, and number c meets row c of W.""")
slip("bias not carried through W", ("bias", "gradient"), {"bias @ W + b": "b.clone()"}, words="""
    The norm's bias was left out, or added to b as it is. It stands in front of the layer, so it goes through W like
    everything else. (Before W there are d_model numbers, after it d_out.)""")
slip("bias times the gain", ("bias",), {"bias @ W": f"bias @ ({MATRIX})"}, words="""
    The bias was multiplied by the gain as well: it went through the folded matrix. In a norm the gain comes first,
    and then the bias is added.""")
slip("one number for the bias", ("bias",), {"bias @ W": "(bias[:, None] * W).sum()"}, words="""
    The norm's bias times W was added up over the outputs, too, so that every output gets the same number. It is a sum
    over d_model alone: one number for each output.""")
slip("cut off from the gradient", ("gradient",),
     {MATRIX: f"({MATRIX}).detach()"},
     {"bias @ W + b": "(bias @ W + b).detach()"},
     {MATRIX: f"({MATRIX}).detach()", "bias @ W + b": "(bias @ W + b).detach()"},
     words="""
    The numbers are right, but no gradient gets through, or not everywhere: `.detach()`, `.data`, numpy and
    `torch.no_grad()` forget where numbers came from.""")
slip("the gain counted from one", ("matrix",), {MATRIX: "(1 + gain)[:, None] * W"}, words="""
    W was multiplied by 1 + γ. Some models keep the gain as its distance from 1; here `gain` is the factor itself.""")
slip("the layer's bias forgotten", ("bias", "gradient"), {" + b": ""}, words="""
    The new bias holds the norm's part and not the layer's own b.""")
slip("the gain forgotten", ("matrix", "gradient"), {MATRIX: "W.clone()"}, words="""
    The matrix is W as it was, without the gain. The new layer gets y before the gain has met it, so its matrix must
    hold the gain.""")
slip("as nn.Linear keeps its weight", ("matrix",), {MATRIX: f"({MATRIX}).mT"}, words="""
    The matrix is transposed: (d_out, d_model), as `nn.Linear` keeps it. Here a layer is y W + b, so W_folded has the
    shape of W, (d_model, d_out).""")
slip("divided by the gain", ("matrix",), {MATRIX: "W / gain[:, None]"}, words="""
    The gain was divided out. The new layer gets vectors that have *not* been multiplied by it, and must make up for
    that.""")


# ------------------------------------------------------------------------------------------------------ further from it


@variant("bias not carried through W", fails=EVERY)
def bias_added_to_b_as_it_is(gain, bias, W, b):
    """Added to b as it is."""
    return gain[:, None] * W, bias + b


# ------------------------------------------------------------------------------------------------ right in other styles


@alternative("a diagonal matrix")
def a_diagonal_matrix(gain, bias, W, b):
    """y diag(γ) W."""
    return torch.diag(gain) @ W, b + W.mT @ bias


@alternative("einsum in float64")
def einsum_in_float64(gain, bias, W, b):
    """By name."""
    return torch.einsum("d,do->do", gain.double(), W.double()), torch.einsum("d,do->o", bias, W).double() + b


@alternative("probing with unit vectors")
def probing_with_unit_vectors(gain, bias, W, b):
    """What the old pair makes of zero is the bias; what a unit vector adds is a row."""
    start = bias @ W + b
    rows = [(unit * gain + bias) @ W + b - start for unit in torch.eye(len(gain))]
    return torch.stack(rows), start
