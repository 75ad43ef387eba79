"""stack_jacobian: How x after a stack of residual layers changes with x before it."""

import torch

from lessonkit.exercises.exercise import Exercise
from lessonkit.exercises.judge import explain_worst
from lessonkit.exercises.observe import require_variation

from .common import READY_MADE


def reference(jacobians):
    """(I + J_L) … (I + J_1): the chain rule, with the last layer on the left. He et al. 2016 (identity mappings)."""
    product = torch.eye(jacobians.shape[-1], dtype=jacobians.dtype)
    for J in jacobians:
        product = product + J @ product
    return product


def solution(jacobians):
    product = torch.eye(jacobians.shape[-1], dtype=jacobians.dtype)
    for J in jacobians:
        product = product + J @ product
    return product


exercise = Exercise(
    "stack_jacobian",
    reference=reference,
    solution=solution,
    returns=("jacobian",),
    forbidden=(*READY_MADE, "torch.autograd", "torch.func"),
    difficulty=2,
    minutes=12,
    hints=(
        "Begin with no layer at all: how does x change with itself? Then a layer adds its branch to x: what does the "
        "branch's Jacobian J become, once the residual connection is counted?",
        "Matrices do not commute. A small step of x passes the first layer first: if it is a column that stands on the "
        "right of the product, whose matrix meets it first?",
    ),
)
aspect, slip, misconception, variant, alternative = exercise.decorators()


def _branches(draw, layers):
    """The Jacobians of so many branches, (layers, d, d)."""
    (d,) = draw.sizes(1, 3, 6)
    return draw.normal(layers, d, d) / 2


# ----------------------------------------------------------------------------------------------------- what is observed


@aspect("one layer", points=1, hint=1)
def one_layer(answer, draw):
    """a single layer has the identity plus its branch's Jacobian"""
    return answer(_branches(draw, 1))


@aspect("order", points=1.5, hint=2)
def order(answer, draw):
    """of two layers, the second one's factor stands on the left"""
    return answer(_branches(draw, 2))


@aspect("branches that write nothing", points=0.5, hint=1)
def branches_that_write_nothing(answer, draw):
    """branches that write nothing, and no layers at all, leave the identity"""
    branches = _branches(draw, 3)
    return torch.stack([answer(0 * branches), answer(branches[:0])])


@aspect(
    "any depth",
    points=1, hint=2,
    explain=explain_worst("the whole stack differs by {size} at {place} from its upper half after its lower half"),
)
def any_depth(answer, draw):
    """however deep a stack is, it is its upper half after its lower half"""
    branches = _branches(draw, 5 + int(draw.integers(4, 1)))
    below, above = branches.tensor_split(2)
    whole = require_variation(answer(branches))
    apart = whole - answer(above) @ answer(below)
    return torch.where(apart.abs() < 1e-4 * whole.abs().max(), 0.0, apart)  # of numbers so large that is rounding


# -------------------------------------------------------------------------------------- one slip away from the solution

MORE = ("order", "any depth")
ALL = ("one layer", "order", "any depth")
LAYERS = ("one layer", "order")  # each layer is wrong, and they are put together as they should be
STEP, BEGIN = "product + J @ product", "torch.eye(jacobians.shape[-1], dtype=jacobians.dtype)"

slip("first layer on the left", MORE, {"J @ product": "product @ J"}, words="""
    The factors stand in the order of reading, with the first layer on the left. A small step of x is multiplied by the
    first layer's matrix first, so that one stands on the right, nearest to it. Multiply two different matrices in both
    orders: they do not commute.""")
slip("no residual connection", (*LAYERS, "branches that write nothing"), {STEP: "J @ product"}, words="""
    This is the product of the branches' own Jacobians: a stack without residual connections. With them a layer computes
    x + f(x), and the x that goes around the branch has a Jacobian, too.""")
slip("the sum alone", MORE, {"J @ product": "J"}, words="""
    This is I plus the sum of the Jacobians, the terms of first order. The others are missing: what an early layer adds
    is read by the later ones.""")
slip("number by number", LAYERS, {"J @ product": "J * product"}, words="""
    The matrices were multiplied number by number. The chain rule sums over what lies between: a matrix product.""")
slip("transposed", LAYERS, {"J @ product": "J.mT @ product"}, words="""
    Each Jacobian was transposed. In this exercise a row is an output and a column an input, J_ij = ∂output_i/∂input_j,
    as in the lecture.""")
slip("begun with ones", (*ALL, "branches that write nothing"),
     {BEGIN: "torch.ones(jacobians.shape[-1], jacobians.shape[-1])"},
     {BEGIN: "torch.zeros(jacobians.shape[-1], jacobians.shape[-1])"},
     words="""
    The product begins with a matrix full of ones, or of zeros. What leaves every matrix as it is in a matrix product is
    the identity, with ones on the diagonal alone.""")
slip("the number one for the identity", (*LAYERS, "branches that write nothing"), {STEP: "(1 + J) @ product"}, words="""
    In torch `1 + J` adds one to *every* entry. The identity has ones on the diagonal alone: `torch.eye`.""")
slip("a layer left out", ALL,
     {"in jacobians": "in jacobians[1:]"},
     {"in jacobians": "in jacobians[:-1]"},
     words="""
    The first or the last layer is not in the product. `for J in jacobians` needs no numbers.""")
slip("taken away", LAYERS, {STEP: "product - J @ product"}, words="""
    The branch's Jacobian was subtracted. A residual connection adds.""")


# ------------------------------------------------------------------------------------------------------ further from it


@misconception("the identity once, for the whole stack", fails=MORE)
def identity_once(jacobians):
    """I was added once, to the product of all branches: that is one connection around the whole stack. Here every layer
    has its own, so that the product has a factor I + J for each, and 2^L terms."""
    product = torch.eye(jacobians.shape[-1])
    for J in jacobians:
        product = J @ product
    return torch.eye(jacobians.shape[-1]) + product * (len(jacobians) > 0)


# ------------------------------------------------------------------------------------------------ right in other styles


@alternative("factor by factor")
def factor_by_factor(jacobians):
    """With I + J written out."""
    identity = torch.eye(jacobians.shape[-1])
    product = identity
    for J in jacobians:
        product = (identity + J) @ product
    return product


@alternative("from the top down, in float64")
def from_the_top_down_in_float64(jacobians):
    """As backpropagation goes: from the last layer to the first."""
    product = torch.eye(jacobians.shape[-1]).double()
    for J in jacobians.flip(0):
        product = product + product @ J.double()
    return product


@alternative("column by column")
def column_by_column(jacobians):
    """A unit vector is pushed through the stack for each column."""
    columns = []
    for unit in torch.eye(jacobians.shape[-1]):
        for J in jacobians:
            unit = unit + J @ unit
        columns.append(unit)
    return torch.stack(columns, dim=1)
