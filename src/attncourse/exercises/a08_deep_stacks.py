"""Assignment 08: two norms, two places to put them, a stack, and a block that trains although it is wrong.

Function bodies below stand in for a learner's: they use torch alone, and the argument names of the contract.
"""

import math

import torch
from torch import nn

from attncourse import layers
from attncourse.exercises.answering import AspectFailed, Problem
from attncourse.exercises.core import Exercise
from attncourse.exercises.judge import arrives, nonzero, told
from attncourse.exercises.observe import gradients, reached, telling

READY_MADE = (
    "attncourse.layers",
    "attncourse.transformer",
    "torch.nn.functional.layer_norm",
    "torch.nn.functional.rms_norm",
    "torch.nn.functional.normalize",
    "torch.nn.functional.batch_norm",
    "torch.nn.functional.group_norm",
    "torch.nn.functional.instance_norm",
    "torch.layer_norm",
    "torch.rms_norm",
)


# ---------------------------------------------------------------------------------------------------------- layer_norm


layer_norm = Exercise(
    "layer_norm",
    reference=layers.layer_norm,
    returns=("output",),
    forbidden=READY_MADE,
    difficulty=1,
    minutes=15,
    hints=(
        "Mean, variance, quotient, gain, bias: five lines. Each of the first two is one number for each vector. Which "
        "axis do they sum over, and what must be left of that axis for the subtraction?",
        "`keepdim=True` leaves an axis of length 1 where the mean was taken. The variance is the *mean* of the squared "
        "differences: they are divided by d_model, not by d_model − 1.",
        "ε is added to the variance, before the root is taken. For a vector whose numbers are all the same the "
        "variance is 0, and then the quotient is 0 / √ε.",
    ),
)


def _vectors(draw, *in_front, scale=2.0):
    """Vectors of this shape, about `scale` in size and not centred, and their width: no two sizes alike."""
    (width,) = [size for size in draw.sizes(1 + len(in_front), 4, 9) if size not in in_front][:1]
    shift = 1 + draw.uniform(*in_front, 1)
    return scale * (draw.normal(*in_front, width) + shift), width


def _plain(width):
    return torch.ones(width), torch.zeros(width)


def _slopes(answer, inputs, draw):
    """For each input whether its gradient is the slope that small steps show, and not zero everywhere."""
    inputs = [x.requires_grad_() for x in inputs]
    output = answer(*inputs, 1e-5)
    if not output.requires_grad:
        return torch.zeros(len(inputs), dtype=torch.bool)
    # A larger x must not lengthen the outputs, a shifted one not raise them: that is what the statistics see to.
    directions = output.detach(), torch.ones_like(output), draw.normal(*output.shape)
    said = []
    for i, x in enumerate(inputs):
        ok = torch.tensor(True)
        for direction, step in zip(directions, (x, torch.ones_like(x), draw.normal(*x.shape)), strict=True):
            (gradient,) = torch.autograd.grad(
                (output * direction).sum(), [x], retain_graph=True, materialize_grads=True
            )
            step = 2e-3 * step.detach()
            with torch.no_grad():
                there, back = (answer(*inputs[:i], x + sign * step, *inputs[i + 1 :], 1e-5) for sign in (1, -1))
            slope, expected = ((there - back).double() * direction).sum() / 2, (gradient * step).sum()
            ok = ok & ((slope - expected).abs() < 1e-3 + 0.03 * (gradient.norm() * step.norm() + slope.abs()))
        said.append(ok & gradient.isfinite().all() & (gradient.abs().max() > 1e-5))
    return torch.stack(said)


def _wrong_slopes(*names):
    def explain(got, expected):
        lost = [f"`{name}`" for name, ok in zip(names, got, strict=True) if not ok]
        return f"the gradient for {' and '.join(lost)} is not the slope of your function"

    return explain


@layer_norm.aspect("normalised", points=2)
def _(answer, draw):
    """mean 0 and variance 1, for each vector"""
    x, width = _vectors(draw, 2, 3)
    return answer(x, *_plain(width), 1e-5)


@layer_norm.aspect("gain and bias", points=1, explain=told("off by {size} at {place} once there is a gain and a bias"))
def _(answer, draw):
    """the normalised vector times the gain, plus the bias"""
    x, width = _vectors(draw, 2, 3)
    gain, bias = 1 + draw.normal(width), draw.normal(width)
    return telling(answer(x, gain, bias, 1e-5)) - (answer(x, *_plain(width), 1e-5) * gain + bias)


@layer_norm.aspect("small inputs", points=1)
def _(answer, draw):
    """ε has its place: inputs of size 0.01 come out as they should"""
    x, width = _vectors(draw, 2, 3, scale=0.01)
    return answer(x, *_plain(width), 3e-5)                                # not the usual one, which is learned by heart


@layer_norm.aspect("all numbers equal", points=1, explain=nonzero)
def _(answer, draw):
    """a vector of one number, repeated, comes out as zeros"""
    x, width = _vectors(draw, 4)
    x[0] = 2.0
    return telling(answer(x, *_plain(width), 1e-5))[0]


ALONE = told("alone, a vector comes out different: by {size} at {place}")


@layer_norm.aspect("each by itself", points=1, explain=ALONE)
def _(answer, draw):
    """a vector comes out the same whoever stands beside it, however many axes there are"""
    x, width = _vectors(draw, 2, 3)
    alone = [[answer(vector, *_plain(width), 1e-5) for vector in row] for row in x]
    return telling(answer(x, *_plain(width), 1e-5)) - torch.stack([torch.stack(row) for row in alone])


@layer_norm.aspect("gradient", points=1, explain=_wrong_slopes("x", "weight", "bias"))
def _(answer, draw):
    """the gradient is the slope of the function, for x, for the gain and for the bias"""
    x, width = _vectors(draw, 2, 3)
    return _slopes(answer, [x, 1 + draw.normal(width) / 2, draw.normal(width)], draw)


@layer_norm.misconception("a sum for the mean", fails=("normalised", "small inputs", "all numbers equal"))
def _(x, weight, bias, eps):
    """What was subtracted is the sum of the numbers, not their mean. (Two decks print it so: the 1/d is missing.) Look
    at the result's mean: it is far from 0, and the wider the vector, the further."""
    mean = x.sum(dim=-1, keepdim=True)
    variance = (x - mean).square().mean(dim=-1, keepdim=True)
    return (x - mean) / torch.sqrt(variance + eps) * weight + bias


@layer_norm.misconception("a sum for the variance", fails=("normalised", "small inputs"))
def _(x, weight, bias, eps):
    """The squared differences were added up and not averaged, so every vector comes out with length 1, and the wider it
    is, the smaller its numbers. The aim is that the *numbers* have variance 1."""
    x = x - x.mean(dim=-1, keepdim=True)
    return x / torch.sqrt(x.square().sum(dim=-1, keepdim=True) + eps) * weight + bias


@layer_norm.misconception("a root too many", fails=("normalised", "small inputs"))
def _(x, weight, bias, eps):
    """The root was taken twice: σ is the standard deviation already, the root of the variance, and the quotient divides
    by √σ. (Two decks print it so.) Multiply x by 4: a norm gives the same as before, yours gives twice as much."""
    mean = x.mean(dim=-1, keepdim=True)
    sigma = (x - mean).square().mean(dim=-1, keepdim=True).sqrt()
    return (x - mean) / (sigma.sqrt() + eps) * weight + bias


@layer_norm.variant("a root too many", fails=("normalised", "small inputs"))
def _(x, weight, bias, eps):
    """With ε under the second root."""
    mean, sigma = x.mean(dim=-1, keepdim=True), x.std(dim=-1, keepdim=True, correction=0)
    return (x - mean) / torch.sqrt(sigma + eps) * weight + bias


@layer_norm.misconception("no root", fails=("normalised", "small inputs"))
def _(x, weight, bias, eps):
    """The differences were divided by the variance. A variance is a square: a vector that is twice as large has four
    times the variance, and would come out half as large. What has the size of x itself?"""
    mean = x.mean(dim=-1, keepdim=True)
    variance = (x - mean).square().mean(dim=-1, keepdim=True)
    return (x - mean) / (variance + eps) * weight + bias


@layer_norm.misconception("ε outside the root", fails=("small inputs",))
def _(x, weight, bias, eps):
    """√σ² + ε is not √(σ² + ε). For inputs of the usual size nobody sees the difference. At σ = 0.01 the ε beside σ is
    a thousandth of it, and under the root it is a tenth of σ². The contract has it under the root, as torch and every
    checkpoint do."""
    mean = x.mean(dim=-1, keepdim=True)
    sigma = (x - mean).square().mean(dim=-1, keepdim=True).sqrt()
    return (x - mean) / (sigma + eps) * weight + bias


@layer_norm.misconception("no ε", fails=("small inputs", "all numbers equal"))
def _(x, weight, bias, eps):
    """ε was not used. A vector whose numbers are all the same has variance 0, and 0/0 is NaN; padding can look like
    that. And small vectors are to come out a little smaller than 1, which is what ε does to them."""
    mean = x.mean(dim=-1, keepdim=True)
    variance = (x - mean).square().mean(dim=-1, keepdim=True)
    return (x - mean) / torch.sqrt(variance) * weight + bias


@layer_norm.misconception("an ε of its own", fails=("small inputs",))
def _(x, weight, bias, eps):
    """ε was written into the formula as a number. It is an argument: models were trained with 1e-5, 1e-6 or 1e-12, and
    each must be given its own."""
    variance, mean = torch.var_mean(x, dim=-1, keepdim=True, correction=0)
    return (x - mean) / torch.sqrt(variance + 1e-5) * weight + bias


@layer_norm.misconception("divided by d − 1", fails=("normalised", "small inputs"))
def _(x, weight, bias, eps):
    """`var` and `std` divide by d − 1 unless told otherwise: that is how one *estimates* the variance of a population
    from a sample. Here the d numbers are all there is, and their variance is the mean of the squares. At d = 512 you
    would never notice; with a published checkpoint the last digits would not agree."""
    variance = x.var(dim=-1, keepdim=True)
    return (x - x.mean(dim=-1, keepdim=True)) / torch.sqrt(variance + eps) * weight + bias


@layer_norm.variant("divided by d − 1", "ε outside the root", fails=("normalised", "small inputs"))
def _(x, weight, bias, eps):
    """With ε outside as well."""
    return weight * (x - x.mean(dim=-1, keepdim=True)) / (x.std(dim=-1, keepdim=True) + eps) + bias


@layer_norm.variant("divided by d − 1", "no ε", fails=("normalised", "small inputs", "all numbers equal"))
def _(x, weight, bias, eps):
    """Without any ε."""
    return weight * (x - x.mean(dim=-1, keepdim=True)) / x.std(dim=-1, keepdim=True) + bias


@layer_norm.misconception("not centred", fails=("normalised", "small inputs", "all numbers equal"))
def _(x, weight, bias, eps):
    """The mean was not subtracted from what is divided. Without the centring it is a different norm, RMSNorm or nearly;
    its turn comes next. Look at the result's mean."""
    return x / torch.sqrt(x.square().mean(dim=-1, keepdim=True) + eps) * weight + bias


OTHERS = ("normalised", "small inputs", "all numbers equal", "each by itself")


@layer_norm.misconception("over the wrong numbers", fails=OTHERS)
def _(x, weight, bias, eps):
    """Mean and variance were taken over several vectors: the words of a sentence, the sentences of a batch, or all
    together. Then a word's vector depends on its neighbours, on the padding, and in a decoder on the future. One
    vector, one mean: the last axis, and only that."""
    mean = x.mean(dim=-2, keepdim=True)
    variance = (x - mean).square().mean(dim=-2, keepdim=True)
    return (x - mean) / torch.sqrt(variance + eps) * weight + bias


@layer_norm.variant("over the wrong numbers", fails=OTHERS)
def _(x, weight, bias, eps):
    """Over the batch."""
    variance, mean = torch.var_mean(x, dim=0, keepdim=True, correction=0)
    return (x - mean) / torch.sqrt(variance + eps) * weight + bias


@layer_norm.variant("over the wrong numbers", fails=OTHERS)
def _(x, weight, bias, eps):
    """Over everything."""
    return (x - x.mean()) / torch.sqrt(x.var(correction=0) + eps) * weight + bias


@layer_norm.variant("over the wrong numbers", fails=("normalised", "small inputs", "each by itself"))
def _(x, weight, bias, eps):
    """Over the words, and counted from the front."""
    variance, mean = torch.var_mean(x, dim=1, keepdim=True, correction=0)
    return (x - mean) / torch.sqrt(variance + eps) * weight + bias


@layer_norm.misconception("axis counted from the front", fails=("all numbers equal", "each by itself"))
def _(x, weight, bias, eps):
    """`dim=2` is the features' axis for a batch of sentences, and a different one, or none, for a sentence or a vector
    by itself. Counted from the end, the features are the last axis, however many stand in front."""
    variance, mean = torch.var_mean(x, dim=2, keepdim=True, correction=0)
    return (x - mean) / torch.sqrt(variance + eps) * weight + bias


@layer_norm.misconception("gain and bias out of place", fails=("gain and bias",))
def _(x, weight, bias, eps):
    """The order is: normalise, times the gain, plus the bias. What is done before the norm is partly undone by it; and
    a bias that is added before the gain is multiplied by it."""
    mean = x.mean(dim=-1, keepdim=True)
    variance = (x - mean).square().mean(dim=-1, keepdim=True)
    return ((x - mean) / torch.sqrt(variance + eps) + bias) * weight


@layer_norm.variant("gain and bias out of place", fails=("gain and bias",))
def _(x, weight, bias, eps):
    """In front of the norm."""
    x = x * weight + bias
    variance, mean = torch.var_mean(x, dim=-1, keepdim=True, correction=0)
    return (x - mean) / torch.sqrt(variance + eps)


@layer_norm.misconception("gain or bias forgotten", fails=("gain and bias", "gradient"))
def _(x, weight, bias, eps):
    """The vectors are normalised, and that is all, or the next step is only half done: the gain multiplies, number by
    number, and then the bias is added. Both are learned, so that a layer may have sizes other than 1 if it needs
    them."""
    variance, mean = torch.var_mean(x, dim=-1, keepdim=True, correction=0)
    return (x - mean) / torch.sqrt(variance + eps)


@layer_norm.variant("gain or bias forgotten", fails=("gain and bias", "gradient"))
def _(x, weight, bias, eps):
    """The bias alone."""
    variance, mean = torch.var_mean(x, dim=-1, keepdim=True, correction=0)
    return (x - mean) / torch.sqrt(variance + eps) * weight


@layer_norm.misconception("statistics without a gradient", fails=("gradient",))
def _(x, weight, bias, eps):
    """The numbers are right and the gradient is not: mean and variance, or all of it, were cut off by `.detach()`,
    `.data`, `.item()`, numpy or `no_grad`. They depend on x too. Xu et al. (2019) found that it is this very part of
    the gradient that makes LayerNorm useful."""
    mean = x.mean(dim=-1, keepdim=True).detach()
    variance = (x - mean).square().mean(dim=-1, keepdim=True).detach()
    return (x - mean) / torch.sqrt(variance + eps) * weight + bias


@layer_norm.variant("statistics without a gradient", fails=("gradient",))
def _(x, weight, bias, eps):
    """All of it."""
    variance, mean = torch.var_mean(x.detach(), dim=-1, keepdim=True, correction=0)
    return (x.detach() - mean) / torch.sqrt(variance + eps) * weight + bias


@layer_norm.alternative("var_mean")
def _(x, weight, bias, eps):
    """Both statistics in one call."""
    variance, mean = torch.var_mean(x, dim=-1, keepdim=True, correction=0)
    return weight * (x - mean) * torch.rsqrt(variance + eps) + bias


@layer_norm.alternative("a matrix that centres, in float64")
def _(x, weight, bias, eps):
    """Centring is a projection, and a projection is a matrix."""
    x = x.double()
    d = x.shape[-1]
    centred = x @ (torch.eye(d).double() - 1 / d)
    length = torch.einsum("...d,...d->...", centred, centred).unsqueeze(-1)
    return centred / (length / d + eps) ** 0.5 * weight + bias


@layer_norm.alternative("a loop over the vectors")
def _(x, weight, bias, eps):
    """One vector at a time."""
    rows = []
    for vector in x.reshape(-1, x.shape[-1]):
        centred = vector - vector.sum() / len(vector)
        rows.append(centred / math.sqrt(1) / torch.sqrt(centred @ centred / len(vector) + eps) * weight + bias)
    return torch.stack(rows).view(x.shape)


@layer_norm.alternative("mean of squares less square of mean, not contiguous")
def _(x, weight, bias, eps):
    """Exact enough in double precision; returns a view of a transposed tensor."""
    columns = x.double().movedim(-1, 0)
    mean = columns.mean(dim=0)
    variance = columns.pow(2).mean(dim=0) - mean**2
    normalised = (columns - mean) / (variance + eps).sqrt()
    return normalised.movedim(0, -1).float() * weight + bias


# ------------------------------------------------------------------------------------------------------------ rms_norm

rms_norm = Exercise(
    "rms_norm",
    reference=layers.rms_norm,
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


@rms_norm.aspect("normalised", points=2)
def _(answer, draw):
    """the mean of the squares is 1, and the direction is kept"""
    x, width = _vectors(draw, 2, 3)
    return answer(x, torch.ones(width), 1e-6)


@rms_norm.aspect("gain", points=1, explain=told("off by {size} at {place} once there is a gain"))
def _(answer, draw):
    """the normalised vector times the gain"""
    x, width = _vectors(draw, 2, 3)
    gain = 1 + draw.normal(width)
    return telling(answer(x, gain, 1e-6)) - answer(x, torch.ones(width), 1e-6) * gain


@rms_norm.aspect("small inputs", points=1)
def _(answer, draw):
    """ε has its place: small inputs come out as they should, and zeros as zeros"""
    x, width = _vectors(draw, 2, 3, scale=0.002)
    x[0, 0] = 0
    return answer(x, torch.ones(width), 3e-6)                             # not the usual one, which is learned by heart


@rms_norm.aspect("each by itself", points=1, explain=ALONE)
def _(answer, draw):
    """a vector comes out the same whoever stands beside it, however many axes there are"""
    x, width = _vectors(draw, 2, 3)
    alone = [[answer(vector, torch.ones(width), 1e-6) for vector in row] for row in x]
    return telling(answer(x, torch.ones(width), 1e-6)) - torch.stack([torch.stack(row) for row in alone])


@rms_norm.aspect("gradient", points=1, explain=_wrong_slopes("x", "weight"))
def _(answer, draw):
    """the gradient is the slope of the function, for x and for the gain"""
    x, width = _vectors(draw, 2, 3)
    return _slopes(answer, [x, 1 + draw.normal(width) / 2], draw)


NOT_NORMALISED = ("normalised", "small inputs")


@rms_norm.misconception("centred", fails=NOT_NORMALISED)
def _(x, weight, eps):
    """The mean was subtracted: this is LayerNorm without its bias. RMSNorm leaves the vector's direction as it is and
    changes nothing but its length."""
    x = x - x.mean(dim=-1, keepdim=True)
    return x / torch.sqrt(x.square().mean(dim=-1, keepdim=True) + eps) * weight


@rms_norm.misconception("divided by the standard deviation", fails=NOT_NORMALISED)
def _(x, weight, eps):
    """The root was taken of the variance, and a variance is taken about the mean. Here the squares of the numbers
    themselves are averaged: nothing is subtracted, on either side of the fraction."""
    return x / torch.sqrt(x.var(dim=-1, keepdim=True, correction=0) + eps) * weight


@rms_norm.misconception("a sum for the mean", fails=NOT_NORMALISED)
def _(x, weight, eps):
    """The squares were added up and not averaged, so every vector comes out with length 1, and the wider it is, the
    smaller its numbers. The M in the name is for *mean*."""
    return x / torch.sqrt(x.square().sum(dim=-1, keepdim=True) + eps) * weight


@rms_norm.variant("a sum for the mean", fails=NOT_NORMALISED)
def _(x, weight, eps):
    """The length by name, ε beside it."""
    return x / (x.norm(dim=-1, keepdim=True) + eps) * weight


@rms_norm.variant("a sum for the mean", fails=NOT_NORMALISED)
def _(x, weight, eps):
    """The length by name, and no ε."""
    return x / x.norm(dim=-1, keepdim=True) * weight


@rms_norm.misconception("no root", fails=NOT_NORMALISED)
def _(x, weight, eps):
    """The vector was divided by the mean of its squares, which grows with the square of its size: an input twice as
    large would come out half as large. The R in the name is for *root*."""
    return x / (x.square().mean(dim=-1, keepdim=True) + eps) * weight


@rms_norm.misconception("mean of the absolute values", fails=NOT_NORMALISED)
def _(x, weight, eps):
    """The mean of the absolute values is not the root of the mean of the squares: large numbers count for more in the
    second. The S in the name is for *square*, and the root comes after the mean."""
    return x / (x.abs().mean(dim=-1, keepdim=True) + eps) * weight


@rms_norm.misconception("ε outside the root", fails=("small inputs",))
def _(x, weight, eps):
    """√m + ε is not √(m + ε). For inputs of the usual size nobody sees the difference; for small ones ε matters next to
    the mean of the squares, but not next to its root."""
    return x / (x.square().mean(dim=-1, keepdim=True).sqrt() + eps) * weight


@rms_norm.misconception("no ε", fails=("small inputs",))
def _(x, weight, eps):
    """ε was not used. (A slide leaves it out, too.) A vector of zeros, and padding may be one, becomes 0/0, which is
    NaN."""
    return x / torch.sqrt(x.square().mean(dim=-1, keepdim=True)) * weight


@rms_norm.misconception("an ε of its own", fails=("small inputs",))
def _(x, weight, eps):
    """ε was written into the formula as a number. It is an argument: models were trained with 1e-5, 1e-6 or 1e-12, and
    each must be given its own."""
    return x / torch.sqrt(x.square().mean(dim=-1, keepdim=True) + 1e-6) * weight


@rms_norm.misconception("over the wrong numbers", fails=("normalised", "small inputs", "each by itself"))
def _(x, weight, eps):
    """The squares were averaged over several vectors: the words of a sentence, the sentences of a batch, or all
    together. Then a word's size depends on its neighbours, and in a decoder on the future. One vector, one number: the
    last axis, and only that."""
    return x / torch.sqrt(x.square().mean(dim=-2, keepdim=True) + eps) * weight


@rms_norm.variant("over the wrong numbers", fails=("normalised", "small inputs", "each by itself"))
def _(x, weight, eps):
    """Over everything."""
    return x / torch.sqrt(x.square().mean() + eps) * weight


@rms_norm.misconception("gain in front of the norm", fails=("gain",))
def _(x, weight, eps):
    """The gain was multiplied in before the norm, which takes part of it out again. Normalise first."""
    x = x * weight
    return x / torch.sqrt(x.square().mean(dim=-1, keepdim=True) + eps)


@rms_norm.misconception("no gain", fails=("gain", "gradient"))
def _(x, weight, eps):
    """The vectors are normalised, and that is all. The gain multiplies, number by number; it is learned."""
    return x / torch.sqrt(x.square().mean(dim=-1, keepdim=True) + eps)


@rms_norm.misconception("size without a gradient", fails=("gradient",))
def _(x, weight, eps):
    """The numbers are right and the gradient is not: the divisor, or all of it, was cut off by `.detach()`, `.data`,
    `.item()`, numpy or `no_grad`. It depends on x, too."""
    return x / torch.sqrt(x.square().mean(dim=-1, keepdim=True) + eps).detach() * weight


@rms_norm.variant("size without a gradient", fails=("gradient",))
def _(x, weight, eps):
    """All of it."""
    x = x.detach()
    return x / torch.sqrt(x.square().mean(dim=-1, keepdim=True) + eps) * weight


@rms_norm.alternative("rsqrt")
def _(x, weight, eps):
    """As published code has it."""
    return weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps))


@rms_norm.alternative("the length, in float64")
def _(x, weight, eps):
    """√(‖x‖²/d + ε)."""
    wide = x.double()
    return wide / (wide.norm(dim=-1, keepdim=True) ** 2 / x.shape[-1] + eps) ** 0.5 * weight


@rms_norm.alternative("einsum, not contiguous")
def _(x, weight, eps):
    """Sums squares by name, and returns a view."""
    rms = (torch.einsum("...d,...d->...", x, x) / x.shape[-1] + eps).sqrt()
    return (x.movedim(-1, 0) / rms).movedim(0, -1) * weight


@rms_norm.alternative("a loop over the vectors")
def _(x, weight, eps):
    """One vector at a time."""
    rows = [v / (v @ v / len(v) + eps).sqrt() * weight for v in x.reshape(-1, x.shape[-1])]
    return torch.stack(rows).reshape(x.shape)


# ------------------------------------------------------------------------------------------------------- both blocks


def _silent(y):
    """A sublayer that has nothing to say."""
    return torch.zeros_like(y)


def _cut(sublayer):
    """The same numbers, and no gradient."""
    return lambda y: sublayer(y).detach()


def _gradient(output, x, draw):
    """That of `gradients` at x alone, in the shape of x."""
    return gradients(output, [x], draw)[0].view_as(x)


def _through_both(answer, draw):
    """Whether each of the two sublayers passes some of the gradient on to x."""
    x, attend, feed_forward, norm_1, norm_2 = _parts(draw)
    x.requires_grad_()
    whole = _gradient(answer(x, attend, feed_forward, norm_1, norm_2), x, draw)
    for pair in ((_cut(attend), feed_forward), (attend, _cut(feed_forward))):
        if (whole - _gradient(answer(x, *pair, norm_1, norm_2), x, draw)).abs().max() < 1e-5:
            return False
    return True


def _normed(y, gain=1.0, bias=0.0, eps=1e-5):
    """LayerNorm. In a list of functions the answer's watch cannot tell ours: so nothing is called that is forbidden."""
    y = y - y.mean(dim=-1, keepdim=True)
    return y / (y.square().mean(dim=-1, keepdim=True) + eps).sqrt() * gain + bias


def _parts(draw):
    """x (batch, n, d), attention, feed-forward network, two norms: drawn functions that stand for trained sublayers."""
    batch, n, d = draw.sizes(3, 3, 7)
    mix = draw.normal(n, n).softmax(dim=-1)                               # (n, n)  attention: words hear each other
    W, W_1, W_2 = draw.normal(d, d), draw.normal(d, 2 * d), draw.normal(2 * d, d)
    (gain_1, gain_2), (bias_1, bias_2) = 1 + draw.normal(2, d) / 3, draw.normal(2, d) / 2

    def attend(y):
        return mix @ y @ W / math.sqrt(d)

    def feed_forward(y):
        return torch.nn.functional.leaky_relu(y @ W_1, 0.1) @ W_2 / d

    def norm_1(y):
        return _normed(y, gain_1, bias_1)

    def norm_2(y):
        return _normed(y, gain_2, bias_2)

    return 2 * draw.normal(batch, n, d) + 0.5, attend, feed_forward, norm_1, norm_2


# ------------------------------------------------------------------------------------------------------ pre_norm_block


def _pre_norm_block(x, attend, feed_forward, norm_1, norm_2):
    """x + attend(norm_1(x)), then the same with the other two. He et al. 2016; Xiong et al. 2020, figure 1b."""
    x = x + attend(norm_1(x))
    return x + feed_forward(norm_2(x))


pre_norm_block = Exercise(
    "pre_norm_block",
    reference=_pre_norm_block,
    returns=("output",),
    forbidden=READY_MADE,
    difficulty=1,
    minutes=10,
    hints=(
        "Two lines, and both look the same: x becomes x plus what a sublayer found. What does the sublayer get to see, "
        "x or its normalised form? And which of the two is it added to?",
        "If both sublayers return zeros, what must come out? Try it with what you have written.",
    ),
)


@pre_norm_block.aspect("silent sublayers", points=2, explain=told("it moves by {size} at {place}"))
def _(answer, draw):
    """where both sublayers return zeros, x comes back as it was"""
    x, _, _, norm_1, norm_2 = _parts(draw)
    return telling(answer(x, _silent, _silent, norm_1, norm_2)) - x


@pre_norm_block.aspect("attention's half", points=1)
def _(answer, draw):
    """attention hears the normalised x, and what it found is added to x"""
    x, attend, _, norm_1, norm_2 = _parts(draw)
    return answer(x, attend, _silent, norm_1, norm_2)


@pre_norm_block.aspect("feed-forward's half", points=1)
def _(answer, draw):
    """so does the feed-forward network, with a norm of its own"""
    x, _, feed_forward, norm_1, norm_2 = _parts(draw)
    return answer(x, _silent, feed_forward, norm_1, norm_2)


@pre_norm_block.aspect("together", points=1)
def _(answer, draw):
    """the feed-forward network works on what attention has left"""
    return answer(*_parts(draw))


@pre_norm_block.aspect("gradient", points=1, explain=told("got {got} at {place}, expected {expected}"))
def _(answer, draw):
    """a gradient at the output arrives at x undiminished, even where the sublayers pass nothing on"""
    if not _through_both(answer, draw.child("both")):
        raise AspectFailed(Problem("unusable", "no gradient comes back through one of the sublayers"))
    x, attend, feed_forward, norm_1, norm_2 = _parts(draw)
    x.requires_grad_()
    return _gradient(answer(x, _cut(attend), _cut(feed_forward), norm_1, norm_2), x, draw)


PRE = ("silent sublayers", "attention's half", "feed-forward's half", "together", "gradient")


@pre_norm_block.misconception("residual from the normalised x", fails=PRE)
def _(x, attend, feed_forward, norm_1, norm_2):
    """What the sublayer found was added to the *normalised* x, and x itself is gone. It happens when the norm's result
    is stored under the name x. (A deck's code does it.) The norm is only for the sublayer's ears: keep x, and add to
    it."""
    x = norm_1(x)
    x = x + attend(x)
    x = norm_2(x)
    return x + feed_forward(x)


@pre_norm_block.variant("residual from the normalised x", fails=PRE)
def _(x, attend, feed_forward, norm_1, norm_2):
    """In the second half only."""
    x = x + attend(norm_1(x))
    x = norm_2(x)
    return x + feed_forward(x)


@pre_norm_block.variant("residual from the normalised x", fails=PRE)
def _(x, attend, feed_forward, norm_1, norm_2):
    """In the first half only."""
    x = norm_1(x)
    x = x + attend(x)
    return x + feed_forward(norm_2(x))


@pre_norm_block.misconception("post-norm", fails=PRE)
def _(x, attend, feed_forward, norm_1, norm_2):
    """This is the other order: the sum was normalised, so everything that x carried goes through a norm at each
    sublayer. In a pre-norm block no norm stands on the path from x to the output; it stands on the branch, in front of
    the sublayer."""
    x = norm_1(x + attend(x))
    return norm_2(x + feed_forward(x))


@pre_norm_block.misconception("norm after the sublayer", fails=PRE[:-1])
def _(x, attend, feed_forward, norm_1, norm_2):
    """The branch was normalised at its end and not at its beginning. The sublayer then hears x at whatever size it has
    grown to, and even where it finds nothing its norm adds a bias."""
    x = x + norm_1(attend(x))
    return x + norm_2(feed_forward(x))


@pre_norm_block.misconception("one norm for both", fails=("feed-forward's half", "together"))
def _(x, attend, feed_forward, norm_1, norm_2):
    """Both sublayers hear through the same norm. The block has two, with gains and biases of their own: `norm_1` for
    attention, `norm_2` for the feed-forward network."""
    x = x + attend(norm_1(x))
    return x + feed_forward(norm_1(x))


@pre_norm_block.misconception("norms exchanged", fails=("attention's half", "feed-forward's half", "together"))
def _(x, attend, feed_forward, norm_1, norm_2):
    """Each sublayer hears through the other's norm. `norm_1` is attention's."""
    x = x + attend(norm_2(x))
    return x + feed_forward(norm_1(x))


HALVES = ("attention's half", "feed-forward's half", "together")


@pre_norm_block.misconception("a sublayer hears x as it is", fails=HALVES)
def _(x, attend, feed_forward, norm_1, norm_2):
    """A norm was left out: a sublayer was handed x itself. x grows from block to block, and a sublayer deep in the
    stack would hear something many times as loud as the first one. Each sublayer hears a normalised x."""
    x = x + attend(x)
    return x + feed_forward(x)


@pre_norm_block.variant("a sublayer hears x as it is", fails=("attention's half", "together"))
def _(x, attend, feed_forward, norm_1, norm_2):
    """Attention."""
    x = x + attend(x)
    return x + feed_forward(norm_2(x))


@pre_norm_block.variant("a sublayer hears x as it is", fails=("feed-forward's half", "together"))
def _(x, attend, feed_forward, norm_1, norm_2):
    """The feed-forward network."""
    x = x + attend(norm_1(x))
    return x + feed_forward(x)


@pre_norm_block.misconception("no residual", fails=PRE)
def _(x, attend, feed_forward, norm_1, norm_2):
    """What a sublayer found *replaced* x. Where it has nothing to say, everything that came before is lost. Add."""
    x = attend(norm_1(x))
    return feed_forward(norm_2(x))


@pre_norm_block.variant("no residual", fails=PRE)
def _(x, attend, feed_forward, norm_1, norm_2):
    """Around the feed-forward network."""
    x = x + attend(norm_1(x))
    return feed_forward(norm_2(x))


@pre_norm_block.variant("no residual", fails=PRE)
def _(x, attend, feed_forward, norm_1, norm_2):
    """Around attention."""
    x = attend(norm_1(x))
    return x + feed_forward(norm_2(x))


@pre_norm_block.misconception("side by side", fails=("together",))
def _(x, attend, feed_forward, norm_1, norm_2):
    """Both sublayers worked on the same x, side by side. (Some models do that on purpose, to save time.) Here they work
    one after the other: the feed-forward network hears what attention has brought."""
    return x + attend(norm_1(x)) + feed_forward(norm_2(x))


@pre_norm_block.variant("side by side", fails=("attention's half", "together"))
def _(x, attend, feed_forward, norm_1, norm_2):
    """The feed-forward network hears attention, but is added to the first x."""
    h = x + attend(norm_1(x))
    return x + feed_forward(norm_2(h))


@pre_norm_block.misconception("feed-forward first", fails=("together",))
def _(x, attend, feed_forward, norm_1, norm_2):
    """The feed-forward network came before attention. First a word collects, then it thinks about what it has."""
    x = x + feed_forward(norm_2(x))
    return x + attend(norm_1(x))


@pre_norm_block.misconception("cut off from the gradient", fails=("gradient",))
def _(x, attend, feed_forward, norm_1, norm_2):
    """The numbers are right, but the gradient does not get through: `.detach()`, `.data` and `no_grad` forget where
    numbers came from. The path that is to carry it is the x that is added to."""
    x = x.detach() + attend(norm_1(x))
    return x.detach() + feed_forward(norm_2(x))


@pre_norm_block.variant("cut off from the gradient", fails=("gradient",))
def _(x, attend, feed_forward, norm_1, norm_2):
    """In attention's branch."""
    x = x + attend(norm_1(x)).detach()
    return x + feed_forward(norm_2(x))


@pre_norm_block.alternative("in one expression")
def _(x, attend, feed_forward, norm_1, norm_2):
    """With a name for the middle."""
    return (h := x + attend(norm_1(x))) + feed_forward(norm_2(h))


@pre_norm_block.alternative("a loop over the sublayers")
def _(x, attend, feed_forward, norm_1, norm_2):
    """Both halves are one and the same line."""
    for norm, sublayer in ((norm_1, attend), (norm_2, feed_forward)):
        residual = x
        x = sublayer(norm(x)) + residual
    return x


@pre_norm_block.alternative("a stream that is written to, returned in float64")
def _(x, attend, feed_forward, norm_1, norm_2):
    """A copy, added to in place."""
    stream = x.clone()
    stream = torch.add(stream, attend(norm_1(stream)))
    return stream.double() + feed_forward(norm_2(stream)).double()


# ----------------------------------------------------------------------------------------------------- post_norm_block


def _post_norm_block(x, attend, feed_forward, norm_1, norm_2):
    """norm_1(x + attend(x)), then the same with the other two. Vaswani et al. 2017, section 3.1."""
    x = norm_1(x + attend(x))
    return norm_2(x + feed_forward(x))


post_norm_block = Exercise(
    "post_norm_block",
    reference=_post_norm_block,
    returns=("output",),
    forbidden=READY_MADE,
    difficulty=1,
    minutes=8,
    hints=(
        "The picture calls it “Add & Norm”, and does both in that order. What is added, and what is then normalised?",
        "In this order the sublayers need no norm in front: what reaches them is what the norm after the last sum has "
        "left. So each norm is called once, and on a sum.",
    ),
)


@post_norm_block.aspect("attention's half", points=1)
def _(answer, draw):
    """what attention found is added to x, and the sum is normalised"""
    x, attend, _, norm_1, norm_2 = _parts(draw)
    return answer(x, attend, _silent, norm_1, norm_2)


@post_norm_block.aspect("feed-forward's half", points=1)
def _(answer, draw):
    """the same for what the feed-forward network found, with a norm of its own"""
    x, _, feed_forward, norm_1, norm_2 = _parts(draw)
    return answer(x, _silent, feed_forward, norm_1, norm_2)


@post_norm_block.aspect("together", points=2)
def _(answer, draw):
    """one after the other"""
    return answer(*_parts(draw))


@post_norm_block.aspect(
    "size", points=1, explain=told("with ten times the x and plain norms, the output moves by {size} at {place}")
)
def _(answer, draw):
    """how large x is makes no difference to what comes out: everything passes the norms"""
    x, attend, feed_forward, _, _ = _parts(draw)
    plain = [lambda y: _normed(y, eps=1e-10)] * 2
    return telling(answer(10 * x, attend, feed_forward, *plain)) - answer(x, attend, feed_forward, *plain)


@post_norm_block.aspect("gradient", points=1, explain=arrives("x"))
def _(answer, draw):
    """a gradient arrives at x, even where the sublayers pass nothing on"""
    if not _through_both(answer, draw.child("both")):
        raise AspectFailed(Problem("unusable", "no gradient comes back through one of the sublayers"))
    x, attend, feed_forward, norm_1, norm_2 = _parts(draw)
    x.requires_grad_()
    return reached(answer(x, _cut(attend), _cut(feed_forward), norm_1, norm_2), [x], draw)


POST = ("attention's half", "feed-forward's half", "together")


@post_norm_block.misconception("pre-norm", fails=(*POST, "size"))
def _(x, attend, feed_forward, norm_1, norm_2):
    """This is the other order: the sublayers hear a normalised x, and the sum stays as it is. In the original
    Transformer it is the sum that is normalised, and the sublayers hear x."""
    x = x + attend(norm_1(x))
    return x + feed_forward(norm_2(x))


@post_norm_block.misconception("norm at the end of the branch", fails=(*POST, "size"))
def _(x, attend, feed_forward, norm_1, norm_2):
    """What the sublayer found was normalised, and then added. It is the sum that passes the norm: first add, then
    norm."""
    x = x + norm_1(attend(x))
    return x + norm_2(feed_forward(x))


@post_norm_block.misconception("x normalised, and not the sum", fails=(*POST, "size"))
def _(x, attend, feed_forward, norm_1, norm_2):
    """The norm took hold of x alone, and what the sublayer found was added after it, at whatever size it has. The box
    is called "Add & Norm", in this order: first the sum, and then the norm of the sum."""
    x = norm_1(x) + attend(x)
    return norm_2(x) + feed_forward(x)


@post_norm_block.misconception("norm in front, and the residual from it", fails=POST)
def _(x, attend, feed_forward, norm_1, norm_2):
    """The norms stand before the sums and not after them. Nothing is normalised after the last sum, and the first thing
    that happens is a norm that nobody asked for."""
    x = norm_1(x)
    x = x + attend(x)
    x = norm_2(x)
    return x + feed_forward(x)


@post_norm_block.misconception("no residual", fails=(*POST, "gradient"))
def _(x, attend, feed_forward, norm_1, norm_2):
    """Norm, but no add: what a sublayer found replaced x. Where it has nothing to say, everything that came before is
    lost."""
    x = norm_1(attend(x))
    return norm_2(feed_forward(x))


@post_norm_block.variant("no residual", fails=(*POST, "gradient"))
def _(x, attend, feed_forward, norm_1, norm_2):
    """Around the feed-forward network."""
    x = norm_1(x + attend(x))
    return norm_2(feed_forward(x))


@post_norm_block.misconception("one norm for both", fails=POST)
def _(x, attend, feed_forward, norm_1, norm_2):
    """Both sums pass the same norm. The block has two, with gains and biases of their own."""
    x = norm_1(x + attend(x))
    return norm_1(x + feed_forward(x))


@post_norm_block.misconception("norms exchanged", fails=POST)
def _(x, attend, feed_forward, norm_1, norm_2):
    """Each sum passes the other's norm. `norm_1` comes after attention."""
    x = norm_2(x + attend(x))
    return norm_1(x + feed_forward(x))


@post_norm_block.misconception("one norm left out", fails=POST)
def _(x, attend, feed_forward, norm_1, norm_2):
    """One of the two sums was not normalised. There is a norm after each: one after attention's sum, one after that of
    the feed-forward network."""
    x = norm_1(x + attend(x))
    return x + feed_forward(x)


@post_norm_block.variant("one norm left out", fails=POST)
def _(x, attend, feed_forward, norm_1, norm_2):
    """The first."""
    x = x + attend(x)
    return norm_2(x + feed_forward(x))


@post_norm_block.misconception("added to the first x", fails=(*POST, "size"))
def _(x, attend, feed_forward, norm_1, norm_2):
    """What the feed-forward network found was added to the original x, which has been through neither attention nor its
    norm. Each sublayer adds to what the one before it has left."""
    h = norm_1(x + attend(x))
    return norm_2(x + feed_forward(h))


@post_norm_block.misconception("sublayers hear through a norm, too", fails=(*POST, "size"))
def _(x, attend, feed_forward, norm_1, norm_2):
    """The sums are normalised as they should be, but the sublayers were handed a normalised x as well. (Some recent
    models have norms in both places, with parameters for each.) Here each norm is called once."""
    x = norm_1(x + attend(norm_1(x)))
    return norm_2(x + feed_forward(norm_2(x)))


@post_norm_block.misconception("cut off from the gradient", fails=("gradient",))
def _(x, attend, feed_forward, norm_1, norm_2):
    """The numbers are right, but the gradient does not get through: `.detach()`, `.data` and `no_grad` forget where
    numbers came from."""
    x = norm_1(x.detach() + attend(x))
    return norm_2(x.detach() + feed_forward(x))


@post_norm_block.alternative("in one expression")
def _(x, attend, feed_forward, norm_1, norm_2):
    """With a name for the middle."""
    return norm_2((h := norm_1(x + attend(x))) + feed_forward(h))


@post_norm_block.alternative("a loop over the sublayers, returned in float64")
def _(x, attend, feed_forward, norm_1, norm_2):
    """Both halves are one and the same line."""
    for sublayer, norm in ((attend, norm_1), (feed_forward, norm_2)):
        x = norm(torch.stack([sublayer(x), x]).sum(dim=0))
    return x.double()


@post_norm_block.alternative("add and norm by name")
def _(x, attend, feed_forward, norm_1, norm_2):
    """A helper inside."""

    def add_and_norm(old, new, norm):
        return norm(torch.add(old, new))

    x = add_and_norm(x, attend(x), norm_1)
    return add_and_norm(x, feed_forward(x), norm_2)


# ------------------------------------------------------------------------------------------------------ pre_norm_stack


def _pre_norm_stack(x, blocks, final_norm):
    """The blocks one after the other, and a norm after the last: nothing else has normalised what they added up."""
    for block in blocks:
        x = block(x)
    return final_norm(x)


pre_norm_stack = Exercise(
    "pre_norm_stack",
    reference=_pre_norm_stack,
    returns=("output",),
    forbidden=READY_MADE,
    difficulty=1,
    minutes=6,
    hints=(
        "The blocks hold their residual connections themselves. What is left to do between them?",
        "In a pre-norm stack no norm stands in the path of x. How large is x after twelve blocks, and who has seen to "
        "it that the output layer hears something of the usual size?",
    ),
)


def _tower(draw, n_blocks):
    """x, a list of pre-norm blocks, and a final norm."""
    x, *_, final_norm = _parts(draw)
    d = x.shape[-1]
    blocks = []
    for i in range(n_blocks):
        W_1, W_2 = draw.child(f"block {i}").normal(2, d, d)
        blocks.append(lambda y, W_1=W_1, W_2=W_2: y + (_normed(y) @ W_1).relu() @ W_2)
    return x, blocks, final_norm


@pre_norm_stack.aspect("blocks", points=1)
def _(answer, draw):
    """every block once, in their order, and nothing between them"""
    x, blocks, _ = _tower(draw, 3)
    return answer(x, blocks, lambda y: y)


@pre_norm_stack.aspect("final norm", points=1)
def _(answer, draw):
    """what comes out has passed the final norm, once"""
    x, blocks, final_norm = _tower(draw, 1)
    return answer(x, blocks, final_norm)


@pre_norm_stack.aspect("any depth", points=1)
def _(answer, draw):
    """works for no block at all, and for five"""
    x, blocks, final_norm = _tower(draw, 5)
    return torch.stack([answer(x, [], final_norm), answer(x, blocks, final_norm)])


@pre_norm_stack.misconception("no final norm", fails=("final norm", "any depth"))
def _(x, blocks, final_norm):
    """The blocks' sum was returned as it is. (A deck's code does so.) Each block adds to x, so x grows with depth, and
    no norm has ever touched it: the norms inside the blocks are on the branches. The output layer would then give
    logits of a size that depends on how deep the stack is."""
    for block in blocks:
        x = block(x)
    return x


@pre_norm_stack.misconception("a norm after each block", fails=("any depth",))
def _(x, blocks, final_norm):
    """The final norm was called after every block, so it stands in the path of x after all. It is called once, at the
    end."""
    for block in blocks:
        x = final_norm(block(x))
    return x


@pre_norm_stack.misconception("a second residual connection", fails=("blocks", "final norm", "any depth"))
def _(x, blocks, final_norm):
    """x was added once more around each block. The blocks have their residual connections inside: with silent sublayers
    such a stack would double x at every block."""
    for block in blocks:
        x = x + block(x)
    return final_norm(x)


@pre_norm_stack.misconception("all blocks hear the first x", fails=("blocks", "any depth"))
def _(x, blocks, final_norm):
    """Each block worked on the original x, so the stack is only as deep as its last block. Hand on what the block
    before has returned."""
    y = x
    for block in blocks:
        y = block(x)
    return final_norm(y)


@pre_norm_stack.misconception("norm in front of the stack", fails=("final norm", "any depth"))
def _(x, blocks, final_norm):
    """The norm stands before the first block, where x has not yet grown. It belongs after the last."""
    x = final_norm(x)
    for block in blocks:
        x = block(x)
    return x


@pre_norm_stack.misconception("blocks backwards", fails=("blocks", "any depth"))
def _(x, blocks, final_norm):
    """The last block came first. The blocks stand in the list in the order in which x passes them."""
    for block in reversed(blocks):
        x = block(x)
    return final_norm(x)


@pre_norm_stack.misconception("a block too few", fails=("blocks", "any depth"))
def _(x, blocks, final_norm):
    """Not all blocks were used: look where the loop begins and ends. `for block in blocks` needs no numbers."""
    for i in range(len(blocks) - 1):
        x = blocks[i](x)
    if len(blocks) == 1:
        x = blocks[0](x)
    return final_norm(x)


@pre_norm_stack.variant("a block too few", fails=("blocks", "final norm", "any depth"))
def _(x, blocks, final_norm):
    """Without a special case for one."""
    for block in blocks[1:]:
        x = block(x)
    return final_norm(x)


@pre_norm_stack.alternative("a while loop")
def _(x, blocks, final_norm):
    """By numbers."""
    i = 0
    while i < len(blocks):
        x, i = blocks[i](x), i + 1
    return final_norm(x)


@pre_norm_stack.alternative("recursion, returned in float64")
def _(x, blocks, final_norm):
    """A stack is a block and the stack above it."""

    def climb(y, above):
        return climb(above[0](y), above[1:]) if above else y

    return final_norm(climb(x, list(blocks))).double()


# ---------------------------------------------------------------------------------------------------- repair_the_block


class _Block(nn.Module):
    """What the assignment's class is when it is repaired."""

    def __init__(self, d_model, n_heads, d_ff):
        super().__init__()
        self.norm_1 = nn.LayerNorm(d_model)
        self.norm_2 = nn.LayerNorm(d_model)
        self.attention = nn.MultiheadAttention(d_model, n_heads, batch_first=True)
        self.up = nn.Linear(d_model, d_ff)
        self.down = nn.Linear(d_ff, d_model)

    def forward(self, x, mask):
        heard = self.norm_1(x)
        found, _ = self.attention(heard, heard, heard, attn_mask=~mask)
        x = x + found
        return x + self.down(self.up(self.norm_2(x)).relu())


repair_the_block = Exercise(
    "repair_the_block",
    reference=_Block,
    returns=("output",),
    forbidden=("attncourse.layers", "attncourse.transformer", "torch.nn.TransformerEncoderLayer"),
    difficulty=2,
    minutes=25,
    hints=(
        "Imagine the sublayers silent: if `found` is zero, what does each line make of x? In a pre-norm block x must "
        "come out as it went in. Where does it stop being x?",
        "Count how often each thing that `__init__` makes is used. And is every argument of `forward` used?",
        "Give what the sublayer hears a name of its own, `heard = self.norm_1(x)`, and leave the name x to the stream. "
        "In `nn.MultiheadAttention` a boolean `attn_mask` is True where looking is *forbidden*.",
    ),
)

# What a sublayer writes with: at zero, it is silent.
ATTENTION, FEED_FORWARD = ("attention.out_proj.",), ("down.",)


def _silenced(answer, draw, *silent):
    """A built block in which the sublayers whose last layers begin so are silent, x, and a mask that forbids
    nothing."""
    batch, n, d_head = draw.sizes(3, 3, 6)
    n_heads = 2
    module = answer.build(draw, n_heads * d_head, n_heads, 3 * d_head)
    values = {name: parameter.detach().clone() for name, parameter in module.runner.parameters().items()}
    for name in values:
        if name.startswith(silent):
            values[name].zero_()
    module.runner.fill(values)
    return module, 2 * draw.normal(batch, n, n_heads * d_head) + 0.5, torch.ones(n, n, dtype=torch.bool)


@repair_the_block.aspect("silent sublayers", points=2, explain=told("it moves by {size} at {place}"))
def _(answer, draw):
    """with silent sublayers x comes back as it was"""
    module, x, mask = _silenced(answer, draw, *ATTENTION, *FEED_FORWARD)
    return telling(module(x, mask)) - x


@repair_the_block.aspect("attention's half", points=1)
def _(answer, draw):
    """attention hears the normalised x, and what it found is added to x"""
    module, x, mask = _silenced(answer, draw, *FEED_FORWARD)
    return module(x, mask)


@repair_the_block.aspect("feed-forward's half", points=1)
def _(answer, draw):
    """so does the feed-forward network"""
    module, x, mask = _silenced(answer, draw, *ATTENTION)
    return module(x, mask)


@repair_the_block.aspect("together", points=1)
def _(answer, draw):
    """one after the other"""
    module, x, mask = _silenced(answer, draw, "nothing")
    return module(x, mask)


@repair_the_block.aspect(
    "mask", points=1, explain=told("output {place}, which must not see the change, moves by {size}")
)
def _(answer, draw):
    """under a causal mask, changing the last position changes nothing before it"""
    module, x, mask = _silenced(answer, draw, "nothing")
    mask = mask.tril()
    other = torch.cat([x[:, :-1], -x[:, -1:]], dim=1)
    output = module(x, mask)
    if torch.equal(output, module(-x, mask)):
        raise AspectFailed(Problem("unusable", "changing x makes no difference"))
    return telling(output)[:, :-1] - module(other, mask)[:, :-1]


TAUGHT = ("x", "norm_1.weight", "norm_2.weight", "attention.in_proj_weight", "up.weight", "down.weight")


@repair_the_block.aspect("gradient", points=1, explain=arrives(*TAUGHT))
def _(answer, draw):
    """a gradient reaches x and everything that is learned, both norms included"""
    module, x, mask = _silenced(answer, draw, "nothing")
    x.requires_grad_()
    found = reached(module(x, mask), [x, *(module.parameter(name) for name in TAUGHT[1:])], draw)
    silent, x, mask = _silenced(answer, draw, *ATTENTION, *FEED_FORWARD)
    output = silent(x.requires_grad_(), mask)
    if (output - x).abs().max() < 1e-5:  # x came through: so must the gradient, with no sublayer to go through
        found[0] &= reached(output, [x], draw)[0]
    return found


STREAM = ("silent sublayers", "attention's half", "feed-forward's half", "together")


@repair_the_block.misconception("residual from the normalised x", fails=STREAM)
def _(self, x, mask):
    """A residual connection still starts at the *normalised* x: `x = self.norm_…(x)` forgets the x that is to be added
    to, in one of the halves or in both. Silence both sublayers, and x must come out as it went in."""
    x = self.norm_1(x)
    x = x + self.attention(x, x, x, attn_mask=~mask)[0]
    x = self.norm_2(x)
    return x + self.down(self.up(x).relu())


@repair_the_block.variant("residual from the normalised x", fails=STREAM)
def _(self, x, mask):
    """Attention's half is repaired, the other is not."""
    heard = self.norm_1(x)
    x = x + self.attention(heard, heard, heard, attn_mask=~mask)[0]
    x = self.norm_2(x)
    return x + self.down(self.up(x).relu())


@repair_the_block.variant("residual from the normalised x", fails=STREAM)
def _(self, x, mask):
    """The feed-forward network's half is repaired, attention's is not."""
    x = self.norm_1(x)
    x = x + self.attention(x, x, x, attn_mask=~mask)[0]
    return x + self.down(self.up(self.norm_2(x)).relu())


@repair_the_block.variant("residual from the normalised x", fails=(*STREAM, "mask"))
def _(self, x, mask):
    """And the mask is not handed on."""
    x = self.norm_1(x)
    x = x + self.attention(x, x, x)[0]
    x = self.norm_2(x)
    return x + self.down(self.up(x).relu())


@repair_the_block.misconception("one norm for both", fails=("feed-forward's half", "together", "gradient"))
def _(self, x, mask):
    """The feed-forward network hears through attention's norm, and `norm_2` is never called: it would stay as it was
    made, and learn nothing. Nothing crashes, and the loss falls all the same."""
    heard = self.norm_1(x)
    x = x + self.attention(heard, heard, heard, attn_mask=~mask)[0]
    return x + self.down(self.up(self.norm_1(x)).relu())


@repair_the_block.variant("one norm for both", "residual from the normalised x", fails=(*STREAM, "gradient"))
def _(self, x, mask):
    """The residuals are not repaired either."""
    x = self.norm_1(x)
    x = x + self.attention(x, x, x, attn_mask=~mask)[0]
    x = self.norm_1(x)
    return x + self.down(self.up(x).relu())


@repair_the_block.misconception("mask not handed on", fails=("mask",))
def _(self, x, mask):
    """`forward` is given a mask and does nothing with it, so every position hears the future. The loss of a language
    model would be splendid (lecture 06)."""
    heard = self.norm_1(x)
    x = x + self.attention(heard, heard, heard)[0]
    return x + self.down(self.up(self.norm_2(x)).relu())



@repair_the_block.misconception("mask upside down", fails=(*STREAM, "mask", "gradient"))
def _(self, x, mask):
    """Our masks are True where a position may look. `nn.MultiheadAttention` takes a boolean mask the other way round:
    True where it may *not*. Handed on as it is, all that was allowed is forbidden; a row with nothing left becomes
    NaN."""
    heard = self.norm_1(x)
    x = x + self.attention(heard, heard, heard, attn_mask=mask)[0]
    return x + self.down(self.up(self.norm_2(x)).relu())


@repair_the_block.misconception("post-norm", fails=STREAM)
def _(self, x, mask):
    """This is a correct block, of the other kind: the sums are normalised. A pre-norm block normalises what a sublayer
    hears and leaves the sums alone."""
    x = self.norm_1(x + self.attention(x, x, x, attn_mask=~mask)[0])
    return self.norm_2(x + self.down(self.up(x).relu()))


@repair_the_block.misconception("a sublayer hears x as it is", fails=(*HALVES, "gradient"))
def _(self, x, mask):
    """The stream is right now, but on the way a norm got lost: a sublayer hears x at whatever size it has grown to, in
    part or altogether. In self-attention queries, keys *and* values are made of the normalised x."""
    x = x + self.attention(x, x, x, attn_mask=~mask)[0]
    return x + self.down(self.up(x).relu())


@repair_the_block.variant("a sublayer hears x as it is", fails=("attention's half", "together", "gradient"))
def _(self, x, mask):
    """Attention."""
    x = x + self.attention(x, x, x, attn_mask=~mask)[0]
    return x + self.down(self.up(self.norm_2(x)).relu())


@repair_the_block.variant("a sublayer hears x as it is", fails=("feed-forward's half", "together", "gradient"))
def _(self, x, mask):
    """The feed-forward network."""
    heard = self.norm_1(x)
    x = x + self.attention(heard, heard, heard, attn_mask=~mask)[0]
    return x + self.down(self.up(x).relu())


@repair_the_block.variant("a sublayer hears x as it is", fails=("attention's half", "together"))
def _(self, x, mask):
    """Attention's keys and values."""
    x = x + self.attention(self.norm_1(x), x, x, attn_mask=~mask)[0]
    return x + self.down(self.up(self.norm_2(x)).relu())


@repair_the_block.misconception("the feed-forward network works beside attention", fails=("together",))
def _(self, x, mask):
    """What is normalised for the feed-forward network is the x from before attention, or what attention found was left
    out of the sum. It is to hear, and to add to, what attention has left."""
    heard = self.norm_1(x)
    found, _ = self.attention(heard, heard, heard, attn_mask=~mask)
    return x + found + self.down(self.up(self.norm_2(x)).relu())


@repair_the_block.variant("the feed-forward network works beside attention", fails=("attention's half", "together"))
def _(self, x, mask):
    """Added to the first x."""
    heard = self.norm_1(x)
    h = x + self.attention(heard, heard, heard, attn_mask=~mask)[0]
    return x + self.down(self.up(self.norm_2(h)).relu())


@repair_the_block.misconception("no residual", fails=STREAM)
def _(self, x, mask):
    """What a sublayer found replaces x, in one half or in both. With silent sublayers nothing would be left of it."""
    heard = self.norm_1(x)
    x = self.attention(heard, heard, heard, attn_mask=~mask)[0]
    return self.down(self.up(self.norm_2(x)).relu())


@repair_the_block.variant("no residual", fails=STREAM)
def _(self, x, mask):
    """Around the feed-forward network."""
    heard = self.norm_1(x)
    x = x + self.attention(heard, heard, heard, attn_mask=~mask)[0]
    return self.down(self.up(self.norm_2(x)).relu())


@repair_the_block.misconception("no bend", fails=("feed-forward's half", "together"))
def _(self, x, mask):
    """The ReLU got lost in the repair, and two linear layers in a row are one (lecture 06)."""
    heard = self.norm_1(x)
    x = x + self.attention(heard, heard, heard, attn_mask=~mask)[0]
    return x + self.down(self.up(self.norm_2(x)))


@repair_the_block.misconception("cut off from the gradient", fails=("gradient",))
def _(self, x, mask):
    """The numbers are right, but a gradient does not get through everywhere: `.detach()`, `.data` and `no_grad` forget
    where numbers came from."""
    heard = self.norm_1(x.detach()).detach()
    x = x.detach() + self.attention(heard, heard, heard, attn_mask=~mask)[0]
    return x + self.down(self.up(self.norm_2(x)).relu())


@repair_the_block.alternative("in two lines")
def _(self, x, mask):
    """The norm's result named on the way."""
    x = x + self.attention(y := self.norm_1(x), y, y, attn_mask=mask.logical_not(), need_weights=False)[0]
    return self.down(torch.relu(self.up(self.norm_2(x)))) + x


@repair_the_block.alternative("a mask that is added")
def _(self, x, mask):
    """Numbers for truth values, and the residual under a name of its own."""
    residual = x
    x = self.norm_1(x)
    added = torch.zeros(mask.shape).masked_fill(~mask, float("-inf"))
    x, _ = self.attention(query=x, key=x, value=x, attn_mask=added)
    x = residual + x
    residual = x
    x = self.norm_2(x)
    x = self.down(torch.nn.functional.relu(self.up(x)))
    return residual + x


@repair_the_block.alternative("copies, returned in float64")
def _(self, x, mask):
    """Adds to a copy of the stream."""
    stream = x.clone()
    heard = self.norm_1(stream)
    stream = stream + self.attention(heard, heard, heard, attn_mask=torch.eq(mask, False))[0]
    hidden = self.up(self.norm_2(stream)).clamp(min=0)
    return stream.double() + self.down(hidden).double()


# -------------------------------------------------------------------------------------------------- fold_the_norm


def _fold_the_norm(gain, bias, W, b):
    """(y · gain + bias) W + b = y W' + b'."""
    return gain[:, None] * W, bias @ W + b


fold_the_norm = Exercise(
    "fold_the_norm",
    reference=_fold_the_norm,
    returns=("W_folded", "b_folded"),
    forbidden=READY_MADE,
    difficulty=2,
    minutes=12,
    extra=True,
    hints=(
        "Write (y ∘ γ + β) W + b and multiply out. Which part depends on y, and which does not?",
        "y ∘ γ multiplies *column* c of y by γ_c, and column c of y meets row c of W. So γ may as well multiply W: its "
        "rows, or its columns?",
    ),
)


def _linear(draw):
    """[gain, bias, W, b], d_model and d_out different."""
    d_model, d_out = draw.sizes(2, 3, 8)
    return [1 + draw.normal(d_model) / 2, draw.normal(d_model), draw.normal(d_model, d_out), draw.normal(d_out)]


@fold_the_norm.aspect("matrix", points=1)
def _(answer, draw):
    """the gain is in the matrix"""
    return answer(*_linear(draw))[0]


@fold_the_norm.aspect("bias", points=1)
def _(answer, draw):
    """the norm's bias is in the layer's"""
    return answer(*_linear(draw))[1]


@fold_the_norm.misconception("gain on the outputs", fails=("matrix", "bias"))
def _(gain, bias, W, b):
    """The gain met W's columns, which stand for the *outputs*; there are not even as many. It multiplies the norm's
    numbers, one by one, and number c meets row c of W."""
    return W * gain, bias @ W + b


@fold_the_norm.misconception("bias not carried through W", fails=("bias",))
def _(gain, bias, W, b):
    """The norm's bias was left out, or added to b as it is. It stands in front of the layer, so it goes through W like
    everything else. (Before W there are d_model numbers, after it d_out.)"""
    return gain[:, None] * W, b.clone()


@fold_the_norm.variant("bias not carried through W", fails=("matrix", "bias"))
def _(gain, bias, W, b):
    """Added to b as it is."""
    return gain[:, None] * W, bias + b


@fold_the_norm.misconception("bias times the gain", fails=("bias",))
def _(gain, bias, W, b):
    """The bias was multiplied by the gain as well: it went through the folded matrix. In a norm the gain comes first,
    and then the bias is added."""
    return gain[:, None] * W, bias @ (gain[:, None] * W) + b


@fold_the_norm.misconception("the layer's bias forgotten", fails=("bias",))
def _(gain, bias, W, b):
    """The new bias holds the norm's part and not the layer's own b."""
    return gain[:, None] * W, bias @ W


@fold_the_norm.misconception("divided by the gain", fails=("matrix",))
def _(gain, bias, W, b):
    """The gain was divided out. The new layer gets vectors that have *not* been multiplied by it, and must make up for
    that."""
    return W / gain[:, None], bias @ W + b


@fold_the_norm.alternative("a diagonal matrix")
def _(gain, bias, W, b):
    """y diag(γ) W."""
    return torch.diag(gain) @ W, b + W.mT @ bias


@fold_the_norm.alternative("einsum in float64")
def _(gain, bias, W, b):
    """By name."""
    return torch.einsum("d,do->do", gain.double(), W.double()), torch.einsum("d,do->o", bias, W).double() + b


@fold_the_norm.alternative("probing with unit vectors")
def _(gain, bias, W, b):
    """What the old pair makes of zero is the bias; what a unit vector adds is a row."""
    start = bias @ W + b
    rows = [(unit * gain + bias) @ W + b - start for unit in torch.eye(len(gain))]
    return torch.stack(rows), start
