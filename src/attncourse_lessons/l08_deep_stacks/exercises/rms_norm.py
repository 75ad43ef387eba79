"""rms_norm: Every vector at one size, with its direction kept, times a gain."""

import torch

from attncourse import layers
from lessonkit.exercises.exercise import Exercise
from lessonkit.exercises.judge import explain_worst
from lessonkit.exercises.observe import apart, require_variation

from .common import ALONE, READY_MADE, slopes, vectors, wrong_slopes


def solution(x, weight, eps):
    mean_square = x.square().mean(dim=-1, keepdim=True)           # (..., 1)
    return x / torch.sqrt(mean_square + eps) * weight


exercise = Exercise(
    "rms_norm",
    reference=layers.rms_norm,
    solution=solution,
    returns=("output",),
    forbidden=READY_MADE,
    difficulty=1,
    minutes=8,
    hints=(
        "It is LayerNorm with something left out. What is left out, and what does the variance become when the mean is "
        "taken to be 0?",
        "Read the name from right to left: the square of each number, the mean of these, the root of that. ε is added "
        "to the mean, before the root.",
    ),
)
aspect, slip, misconception, variant, alternative = exercise.decorators()


# ----------------------------------------------------------------------------------------------------- what is observed


@aspect("normalised", points=2, hint=2)
def normalised(answer, draw):
    """the mean of the squares is 1, and the direction is kept"""
    x, width = vectors(draw, 2, 3)
    return answer(x, torch.ones(width), 1e-6)


@aspect("gain", points=1, hint=1, explain=explain_worst("off by {size} at {place} once there is a gain"))
def gain(answer, draw):
    """the normalised vector times the gain"""
    x, width = vectors(draw, 2, 3)
    gain = 1 + draw.normal(width)
    return apart(require_variation(answer(x, gain, 1e-6)), answer(x, torch.ones(width), 1e-6) * gain)


@aspect("small inputs", points=1, hint=2)
def small_inputs(answer, draw):
    """ε has its place: small inputs come out as they should, and zeros as zeros"""
    x, width = vectors(draw, 2, 3, scale=0.002)
    x[0, 0] = 0
    return answer(x, torch.ones(width), 3e-6)                             # not the usual one, which is learned by heart


@aspect("each by itself", points=1, hint=1, explain=ALONE)
def each_by_itself(answer, draw):
    """a vector comes out the same whoever stands beside it, however many axes there are"""
    x, width = vectors(draw, 2, 3)
    alone = [[answer(vector, torch.ones(width), 1e-6) for vector in row] for row in x]
    together = require_variation(answer(x, torch.ones(width), 1e-6))
    return apart(together, torch.stack([torch.stack(row) for row in alone]))


@aspect("gradient", points=1, hint=1, explain=wrong_slopes("x", "weight"))
def gradient(answer, draw):
    """the gradient is the slope of the function, for x and for the gain"""
    x, width = vectors(draw, 2, 3)
    return slopes(answer, [x, 1 + draw.normal(width) / 2], draw)


# -------------------------------------------------------------------------------------- one slip away from the solution

NOT_NORMALISED = ("normalised", "small inputs")
MEAN_SQUARE, ROOT, BEGIN = "x.square().mean(dim=-1, keepdim=True)", "torch.sqrt(mean_square + eps)", "mean_square = x"

slip("centred", NOT_NORMALISED, {BEGIN: f"x = x - x.mean(dim=-1, keepdim=True)\n{BEGIN}"}, words="""
    The mean was subtracted: this is LayerNorm without its bias. RMSNorm leaves the vector's direction as it is and
    changes nothing but its length.""")
slip("divided by the standard deviation", NOT_NORMALISED, {MEAN_SQUARE: "x.var(dim=-1, keepdim=True, correction=0)"},
     words="""
    The root was taken of the variance, and a variance is taken about the mean. Here the squares of the numbers
    themselves are averaged: nothing is subtracted, on either side of the fraction.""")
slip("a sum for the mean", NOT_NORMALISED,
     {"square().mean": "square().sum"},
     {ROOT: "(x.norm(dim=-1, keepdim=True) + eps)"},  # the length by name, ε beside it
     {ROOT: "x.norm(dim=-1, keepdim=True)"},  # and no ε
     words="""
    The squares were added up and not averaged, so every vector comes out with length 1, and the wider it is, the
    smaller its numbers. The M in the name is for *mean*.""")
slip("no root", NOT_NORMALISED, {"torch.sqrt": ""}, words="""
    The vector was divided by the mean of its squares, which grows with the square of its size: an input twice as
    large would come out half as large. The R in the name is for *root*.""")
slip("mean of the absolute values", NOT_NORMALISED, {"x.square()": "x.abs()", "torch.sqrt": ""}, words="""
    The mean of the absolute values is not the root of the mean of the squares: large numbers count for more in the
    second. The S in the name is for *square*, and the root comes after the mean.""")
slip("ε outside the root", ("small inputs",), {ROOT: "(torch.sqrt(mean_square) + eps)"}, words="""
    √m + ε is not √(m + ε). For inputs of the usual size nobody sees the difference; for small ones ε matters next
    to the mean of the squares, but not next to its root.""")
slip("no ε", ("small inputs",), {" + eps": ""}, words="""
    ε was not used. A vector of zeros, and padding may be one, becomes 0/0, which is NaN.""")
slip("an ε of its own", ("small inputs",),
     {"eps": "1e-6"},
     {"eps": "1e-5"},
     {"eps": "1e-8"},
     {"eps": "1e-12"},
     {"eps": "1e-4"},
     {"eps": "1e-7"},
     words="""
    ε was written into the formula as a number. It is an argument: models were trained with 1e-5, 1e-6 or 1e-12, and
    each must be given its own.""")
slip("over the wrong numbers", (*NOT_NORMALISED, "each by itself"),
     {"dim=-1": "dim=-2"},
     {"dim=-1, keepdim=True": ""},  # over everything
     words="""
    The squares were averaged over several vectors: the words of a sentence, the sentences of a batch, or all
    together. Then a word's size depends on its neighbours, and in a decoder on the future. One vector, one number:
    the last axis, and only that.""")
slip("gain in front of the norm", ("gain",), {BEGIN: f"x = x * weight\n{BEGIN}", " * weight": ""}, words="""
    The gain was multiplied in before the norm, which takes part of it out again. Normalise first.""")
slip("a gain counted from 0", ("normalised", "gain", "small inputs"), {" * weight": " * (1 + weight)"}, words="""
    The vectors were multiplied by 1 + weight. Some models keep their gains so, as what is to be *added* to 1. Here the
    gain is the factor itself: a gain of 1 leaves the vector as it is.""")
slip("no gain", ("gain", "gradient"), {" * weight": ""}, words="""
    The vectors are normalised, and that is all. The gain multiplies, number by number; it is learned.""")
slip("size without a gradient", ("gradient",),
     {ROOT: f"{ROOT}.detach()"},
     {BEGIN: f"x = x.detach()\n{BEGIN}"},  # all of it
     words="""
    The numbers are right and the gradient is not: the divisor, or all of it, was cut off by `.detach()`, `.data`,
    `.item()`, numpy or `no_grad`. It depends on x, too.""")


# ------------------------------------------------------------------------------------------------ right in other styles


@alternative("rsqrt")
def rsqrt(x, weight, eps):
    """As published code has it."""
    return weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps))


@alternative("the length, in float64")
def the_length_in_float64(x, weight, eps):
    """√(‖x‖²/d + ε)."""
    wide = x.double()
    return wide / (wide.norm(dim=-1, keepdim=True) ** 2 / x.shape[-1] + eps) ** 0.5 * weight


@alternative("einsum, not contiguous")
def einsum_not_contiguous(x, weight, eps):
    """Sums squares by name, and returns a view."""
    rms = (torch.einsum("...d,...d->...", x, x) / x.shape[-1] + eps).sqrt()
    return (x.movedim(-1, 0) / rms).movedim(0, -1) * weight


@alternative("a loop over the vectors")
def a_loop_over_the_vectors(x, weight, eps):
    """One vector at a time."""
    rows = [v / (v @ v / len(v) + eps).sqrt() * weight for v in x.reshape(-1, x.shape[-1])]
    return torch.stack(rows).reshape(x.shape)

# ------------------------------------------------------------------------------------------------ one thing changed

@exercise.variation(
    "a gain counted from 0",
    asks="`weight` is what the gain has above 1: the normalised vector is multiplied by 1 + weight.",
    fails=("normalised", "gain", "small inputs", "each by itself"),
    reference=lambda x, weight, eps: layers.rms_norm(x, 1 + weight, eps),
    contract={"times a gain.": "times a gain of 1 + weight."},
    given=lambda x, weight, eps: (x, weight - 1, eps),
    meanings={"gain": "the normalised vector times 1 + weight"},
    without=("a gain counted from 0",),
)
def a_gain_counted_from_0(x, weight, eps):
    mean_square = x.square().mean(dim=-1, keepdim=True)           # (..., 1)
    return x / torch.sqrt(mean_square + eps) * (1 + weight)


@exercise.variation(
    "ε outside the root",
    asks="ε is added to the root, not below it: the vector is divided by √(mean of the squares) + ε.",
    fails=("small inputs",),
    reference=lambda x, weight, eps: x / (x.norm(dim=-1, keepdim=True) / x.shape[-1] ** 0.5 + eps) * weight,
    contract={"Every vector at one size,": "Every vector at one size, by √(mean square) + eps,"},
    hints=(exercise.hints[0],
           "Read the name from right to left: the square of each number, the mean of these, the root of that. ε is "
           "added to the root."),
    without=("ε outside the root", "no ε", "an ε of its own"),
)
def eps_outside_the_root(x, weight, eps):
    mean_square = x.square().mean(dim=-1, keepdim=True)           # (..., 1)
    return x / (torch.sqrt(mean_square) + eps) * weight
