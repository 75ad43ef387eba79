"""layer_norm: Every vector with mean 0 and variance 1, times a gain, plus a bias."""

import math

import torch

from attncourse import layers
from lessonkit.exercises.exercise import Exercise
from lessonkit.exercises.judge import nonzero, told
from lessonkit.exercises.observe import telling

from .common import ALONE, READY_MADE, slopes, vectors, wrong_slopes


def solution(x, weight, bias, eps):
    mean = x.mean(dim=-1, keepdim=True)                           # (..., 1)
    variance = (x - mean).square().mean(dim=-1, keepdim=True)     # (..., 1)
    return (x - mean) / torch.sqrt(variance + eps) * weight + bias


exercise = Exercise(
    "layer_norm",
    reference=layers.layer_norm,
    solution=solution,
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
aspect, slip, misconception, variant, alternative = exercise.decorators()


def _plain(width):
    return torch.ones(width), torch.zeros(width)


# ----------------------------------------------------------------------------------------------------- what is observed


@aspect("normalised", points=2)
def normalised(answer, draw):
    """mean 0 and variance 1, for each vector"""
    x, width = vectors(draw, 2, 3)
    return answer(x, *_plain(width), 1e-5)


@aspect("gain and bias", points=1, explain=told("off by {size} at {place} once there is a gain and a bias"))
def gain_and_bias(answer, draw):
    """the normalised vector times the gain, plus the bias"""
    x, width = vectors(draw, 2, 3)
    gain, bias = 1 + draw.normal(width), draw.normal(width)
    return telling(answer(x, gain, bias, 1e-5)) - (answer(x, *_plain(width), 1e-5) * gain + bias)


@aspect("small inputs", points=1)
def small_inputs(answer, draw):
    """ε has its place: inputs of size 0.01 come out as they should"""
    x, width = vectors(draw, 2, 3, scale=0.01)
    return answer(x, *_plain(width), 3e-5)                                # not the usual one, which is learned by heart


@aspect("all numbers equal", points=1, explain=nonzero)
def all_numbers_equal(answer, draw):
    """a vector of one number, repeated, comes out as zeros"""
    x, width = vectors(draw, 4)
    x[0] = 2.0
    return telling(answer(x, *_plain(width), 1e-5))[0]


@aspect("each by itself", points=1, explain=ALONE)
def each_by_itself(answer, draw):
    """a vector comes out the same whoever stands beside it, however many axes there are"""
    x, width = vectors(draw, 2, 3)
    alone = [[answer(vector, *_plain(width), 1e-5) for vector in row] for row in x]
    return telling(answer(x, *_plain(width), 1e-5)) - torch.stack([torch.stack(row) for row in alone])


@aspect("gradient", points=1, explain=wrong_slopes("x", "weight", "bias"))
def gradient(answer, draw):
    """the gradient is the slope of the function, for x, for the gain and for the bias"""
    x, width = vectors(draw, 2, 3)
    return slopes(answer, [x, 1 + draw.normal(width) / 2, draw.normal(width)], draw)


# -------------------------------------------------------------------------------------------------------- wrong answers


@misconception("a sum for the mean", fails=("normalised", "small inputs", "all numbers equal"))
def a_sum_for_the_mean(x, weight, bias, eps):
    """What was subtracted is the sum of the numbers, not their mean. (Two decks print it so: the 1/d is missing.) Look
    at the result's mean: it is far from 0, and the wider the vector, the further."""
    mean = x.sum(dim=-1, keepdim=True)
    variance = (x - mean).square().mean(dim=-1, keepdim=True)
    return (x - mean) / torch.sqrt(variance + eps) * weight + bias


@misconception("a sum for the variance", fails=("normalised", "small inputs"))
def a_sum_for_the_variance(x, weight, bias, eps):
    """The squared differences were added up and not averaged, so every vector comes out with length 1, and the wider it
    is, the smaller its numbers. The aim is that the *numbers* have variance 1."""
    x = x - x.mean(dim=-1, keepdim=True)
    return x / torch.sqrt(x.square().sum(dim=-1, keepdim=True) + eps) * weight + bias


@misconception("a root too many", fails=("normalised", "small inputs"))
def a_root_too_many(x, weight, bias, eps):
    """The root was taken twice: σ is the standard deviation already, the root of the variance, and the quotient divides
    by √σ. (Two decks print it so.) Multiply x by 4: a norm gives the same as before, yours gives twice as much."""
    mean = x.mean(dim=-1, keepdim=True)
    sigma = (x - mean).square().mean(dim=-1, keepdim=True).sqrt()
    return (x - mean) / (sigma.sqrt() + eps) * weight + bias


@variant("a root too many", fails=("normalised", "small inputs"))
def a_root_too_many_2(x, weight, bias, eps):
    """With ε under the second root."""
    mean, sigma = x.mean(dim=-1, keepdim=True), x.std(dim=-1, keepdim=True, correction=0)
    return (x - mean) / torch.sqrt(sigma + eps) * weight + bias


@misconception("no root", fails=("normalised", "small inputs"))
def no_root(x, weight, bias, eps):
    """The differences were divided by the variance. A variance is a square: a vector that is twice as large has four
    times the variance, and would come out half as large. What has the size of x itself?"""
    mean = x.mean(dim=-1, keepdim=True)
    variance = (x - mean).square().mean(dim=-1, keepdim=True)
    return (x - mean) / (variance + eps) * weight + bias


@misconception("ε outside the root", fails=("small inputs",))
def outside_the_root(x, weight, bias, eps):
    """√σ² + ε is not √(σ² + ε). For inputs of the usual size nobody sees the difference. At σ = 0.01 the ε beside σ is
    a thousandth of it, and under the root it is a tenth of σ². The contract has it under the root, as torch and every
    checkpoint do."""
    mean = x.mean(dim=-1, keepdim=True)
    sigma = (x - mean).square().mean(dim=-1, keepdim=True).sqrt()
    return (x - mean) / (sigma + eps) * weight + bias


@misconception("no ε", fails=("small inputs", "all numbers equal"))
def no(x, weight, bias, eps):
    """ε was not used. A vector whose numbers are all the same has variance 0, and 0/0 is NaN; padding can look like
    that. And small vectors are to come out a little smaller than 1, which is what ε does to them."""
    mean = x.mean(dim=-1, keepdim=True)
    variance = (x - mean).square().mean(dim=-1, keepdim=True)
    return (x - mean) / torch.sqrt(variance) * weight + bias


@misconception("an ε of its own", fails=("small inputs",))
def an_of_its_own(x, weight, bias, eps):
    """ε was written into the formula as a number. It is an argument: models were trained with 1e-5, 1e-6 or 1e-12, and
    each must be given its own."""
    variance, mean = torch.var_mean(x, dim=-1, keepdim=True, correction=0)
    return (x - mean) / torch.sqrt(variance + 1e-5) * weight + bias


@misconception("divided by d − 1", fails=("normalised", "small inputs"))
def divided_by_d_1(x, weight, bias, eps):
    """`var` and `std` divide by d − 1 unless told otherwise: that is how one *estimates* the variance of a population
    from a sample. Here the d numbers are all there is, and their variance is the mean of the squares. At d = 512 you
    would never notice; with a published checkpoint the last digits would not agree."""
    variance = x.var(dim=-1, keepdim=True)
    return (x - x.mean(dim=-1, keepdim=True)) / torch.sqrt(variance + eps) * weight + bias


@variant("divided by d − 1", "ε outside the root", fails=("normalised", "small inputs"))
def divided_by_d_1_2(x, weight, bias, eps):
    """With ε outside as well."""
    return weight * (x - x.mean(dim=-1, keepdim=True)) / (x.std(dim=-1, keepdim=True) + eps) + bias


@variant("divided by d − 1", "no ε", fails=("normalised", "small inputs", "all numbers equal"))
def divided_by_d_1_3(x, weight, bias, eps):
    """Without any ε."""
    return weight * (x - x.mean(dim=-1, keepdim=True)) / x.std(dim=-1, keepdim=True) + bias


@misconception("not centred", fails=("normalised", "small inputs", "all numbers equal"))
def not_centred(x, weight, bias, eps):
    """The mean was not subtracted from what is divided. Without the centring it is a different norm, RMSNorm or nearly;
    its turn comes next. Look at the result's mean."""
    return x / torch.sqrt(x.square().mean(dim=-1, keepdim=True) + eps) * weight + bias


OTHERS = ("normalised", "small inputs", "all numbers equal", "each by itself")


@misconception("over the wrong numbers", fails=OTHERS)
def over_the_wrong_numbers(x, weight, bias, eps):
    """Mean and variance were taken over several vectors: the words of a sentence, the sentences of a batch, or all
    together. Then a word's vector depends on its neighbours, on the padding, and in a decoder on the future. One
    vector, one mean: the last axis, and only that."""
    mean = x.mean(dim=-2, keepdim=True)
    variance = (x - mean).square().mean(dim=-2, keepdim=True)
    return (x - mean) / torch.sqrt(variance + eps) * weight + bias


@variant("over the wrong numbers", fails=OTHERS)
def over_the_wrong_numbers_2(x, weight, bias, eps):
    """Over the batch."""
    variance, mean = torch.var_mean(x, dim=0, keepdim=True, correction=0)
    return (x - mean) / torch.sqrt(variance + eps) * weight + bias


@variant("over the wrong numbers", fails=OTHERS)
def over_the_wrong_numbers_3(x, weight, bias, eps):
    """Over everything."""
    return (x - x.mean()) / torch.sqrt(x.var(correction=0) + eps) * weight + bias


@variant("over the wrong numbers", fails=("normalised", "small inputs", "each by itself"))
def over_the_wrong_numbers_4(x, weight, bias, eps):
    """Over the words, and counted from the front."""
    variance, mean = torch.var_mean(x, dim=1, keepdim=True, correction=0)
    return (x - mean) / torch.sqrt(variance + eps) * weight + bias


@misconception("axis counted from the front", fails=("all numbers equal", "each by itself"))
def axis_counted_from_the_front(x, weight, bias, eps):
    """`dim=2` is the features' axis for a batch of sentences, and a different one, or none, for a sentence or a vector
    by itself. Counted from the end, the features are the last axis, however many stand in front."""
    variance, mean = torch.var_mean(x, dim=2, keepdim=True, correction=0)
    return (x - mean) / torch.sqrt(variance + eps) * weight + bias


@misconception("gain and bias out of place", fails=("gain and bias",))
def gain_and_bias_out_of_place(x, weight, bias, eps):
    """The order is: normalise, times the gain, plus the bias. What is done before the norm is partly undone by it; and
    a bias that is added before the gain is multiplied by it."""
    mean = x.mean(dim=-1, keepdim=True)
    variance = (x - mean).square().mean(dim=-1, keepdim=True)
    return ((x - mean) / torch.sqrt(variance + eps) + bias) * weight


@variant("gain and bias out of place", fails=("gain and bias",))
def gain_and_bias_out_of_place_2(x, weight, bias, eps):
    """In front of the norm."""
    x = x * weight + bias
    variance, mean = torch.var_mean(x, dim=-1, keepdim=True, correction=0)
    return (x - mean) / torch.sqrt(variance + eps)


@misconception("gain or bias forgotten", fails=("gain and bias", "gradient"))
def gain_or_bias_forgotten(x, weight, bias, eps):
    """The vectors are normalised, and that is all, or the next step is only half done: the gain multiplies, number by
    number, and then the bias is added. Both are learned, so that a layer may have sizes other than 1 if it needs
    them."""
    variance, mean = torch.var_mean(x, dim=-1, keepdim=True, correction=0)
    return (x - mean) / torch.sqrt(variance + eps)


@variant("gain or bias forgotten", fails=("gain and bias", "gradient"))
def gain_or_bias_forgotten_2(x, weight, bias, eps):
    """The bias alone."""
    variance, mean = torch.var_mean(x, dim=-1, keepdim=True, correction=0)
    return (x - mean) / torch.sqrt(variance + eps) * weight


@misconception("statistics without a gradient", fails=("gradient",))
def statistics_without_a_gradient(x, weight, bias, eps):
    """The numbers are right and the gradient is not: mean and variance, or all of it, were cut off by `.detach()`,
    `.data`, `.item()`, numpy or `no_grad`. They depend on x too. Xu et al. (2019) found that it is this very part of
    the gradient that makes LayerNorm useful."""
    mean = x.mean(dim=-1, keepdim=True).detach()
    variance = (x - mean).square().mean(dim=-1, keepdim=True).detach()
    return (x - mean) / torch.sqrt(variance + eps) * weight + bias


@variant("statistics without a gradient", fails=("gradient",))
def statistics_without_a_gradient_2(x, weight, bias, eps):
    """All of it."""
    variance, mean = torch.var_mean(x.detach(), dim=-1, keepdim=True, correction=0)
    return (x.detach() - mean) / torch.sqrt(variance + eps) * weight + bias


# ------------------------------------------------------------------------------------------------ right in other styles


@alternative("var_mean")
def var_mean(x, weight, bias, eps):
    """Both statistics in one call."""
    variance, mean = torch.var_mean(x, dim=-1, keepdim=True, correction=0)
    return weight * (x - mean) * torch.rsqrt(variance + eps) + bias


@alternative("a matrix that centres, in float64")
def a_matrix_that_centres_in_float64(x, weight, bias, eps):
    """Centring is a projection, and a projection is a matrix."""
    x = x.double()
    d = x.shape[-1]
    centred = x @ (torch.eye(d).double() - 1 / d)
    length = torch.einsum("...d,...d->...", centred, centred).unsqueeze(-1)
    return centred / (length / d + eps) ** 0.5 * weight + bias


@alternative("a loop over the vectors")
def a_loop_over_the_vectors(x, weight, bias, eps):
    """One vector at a time."""
    rows = []
    for vector in x.reshape(-1, x.shape[-1]):
        centred = vector - vector.sum() / len(vector)
        rows.append(centred / math.sqrt(1) / torch.sqrt(centred @ centred / len(vector) + eps) * weight + bias)
    return torch.stack(rows).view(x.shape)


@alternative("mean of squares less square of mean, not contiguous")
def mean_of_squares_less_square_of_mean_not_contiguous(x, weight, bias, eps):
    """Exact enough in double precision; returns a view of a transposed tensor."""
    columns = x.double().movedim(-1, 0)
    mean = columns.mean(dim=0)
    variance = columns.pow(2).mean(dim=0) - mean**2
    normalised = (columns - mean) / (variance + eps).sqrt()
    return normalised.movedim(0, -1).float() * weight + bias
