"""layer_norm: Every vector with mean 0 and variance 1, times a gain, plus a bias."""

import math

import torch

from attncourse import layers
from lessonkit.exercises.exercise import Exercise
from lessonkit.exercises.judge import expected_zero, explain_worst
from lessonkit.exercises.observe import apart, require_variation

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


@aspect("normalised", points=2, hint=2)
def normalised(answer, draw):
    """mean 0 and variance 1, for each vector"""
    x, width = vectors(draw, 2, 3)
    x = x * (2 / x.var(dim=-1, keepdim=True, correction=0)).sqrt()        # an ε of 1e-4 does not show here, 1e-3 does
    return answer(x, *_plain(width), 1e-5)


@aspect(
    "gain and bias", points=1, hint=1, explain=explain_worst("off by {size} at {place} once there is a gain and a bias")
)
def gain_and_bias(answer, draw):
    """the normalised vector times the gain, plus the bias"""
    x, width = vectors(draw, 2, 3)
    gain, bias = 1 + draw.normal(width), draw.normal(width)
    return apart(require_variation(answer(x, gain, bias, 1e-5)), answer(x, *_plain(width), 1e-5) * gain + bias)


@aspect("small inputs", points=1, hint=3)
def small_inputs(answer, draw):
    """ε has its place: inputs of size 0.01 come out as they should"""
    x, width = vectors(draw, 2, 3, scale=0.01)
    return answer(x, *_plain(width), 3e-5)                                # not the usual one, which is learned by heart


@aspect("all numbers equal", points=1, hint=3, explain=expected_zero)
def all_numbers_equal(answer, draw):
    """a vector of one number, repeated, comes out as zeros"""
    x, width = vectors(draw, 4)
    x[0] = 0.125                                                          # whose rounding stays below √ε
    return require_variation(answer(x, *_plain(width), 1e-5))[0]


@aspect("each by itself", points=1, hint=1, explain=ALONE)
def each_by_itself(answer, draw):
    """a vector comes out the same whoever stands beside it, however many axes there are"""
    x, width = vectors(draw, 2, 3)
    alone = [[answer(vector, *_plain(width), 1e-5) for vector in row] for row in x]
    return apart(require_variation(answer(x, *_plain(width), 1e-5)), torch.stack([torch.stack(row) for row in alone]))


@aspect("gradient", points=1, hint=1, explain=wrong_slopes("x", "weight", "bias"))
def gradient(answer, draw):
    """the gradient is the slope of the function, for x, for the gain and for the bias"""
    x, width = vectors(draw, 2, 3)
    return slopes(answer, [x, 1 + draw.normal(width) / 2, draw.normal(width)], draw)


# -------------------------------------------------------------------------------------- one slip away from the solution

NOT_NORMALISED = ("normalised", "small inputs")
NOT_CENTRED = ("normalised", "small inputs", "all numbers equal")
MEAN, VARIANCE = "x.mean(dim=-1, keepdim=True)", "(x - mean).square().mean(dim=-1, keepdim=True)"
ROOT, BEGIN = "torch.sqrt(variance + eps)", "mean = x"


def along(dim):
    """Both statistics along another axis."""
    return {MEAN: MEAN.replace("-1", dim), VARIANCE: VARIANCE.replace("-1", dim)}


slip("a sum for the mean", NOT_CENTRED, {"x.mean": "x.sum"}, words="""
    What was subtracted is the sum of the numbers, not their mean: the 1/d is missing. Look at the result's mean: it
    is far from 0, and the wider the vector, the further.""")
slip("a sum for the variance", NOT_NORMALISED, {"square().mean": "square().sum"}, words="""
    The squared differences were added up and not averaged, so every vector comes out with length 1, and the wider
    it is, the smaller its numbers. The aim is that the *numbers* have variance 1.""")
slip("a root too many", NOT_NORMALISED,
     {ROOT: "(variance.sqrt().sqrt() + eps)"},
     {ROOT: "torch.sqrt(variance.sqrt() + eps)"},  # with ε under the second root
     words="""
    The root was taken twice: σ is the standard deviation already, the root of the variance, and the quotient
    divides by √σ. Multiply x by 4: a norm gives the same as before, yours gives twice as much.""")
slip("no root", NOT_NORMALISED, {"torch.sqrt": ""}, words="""
    The differences were divided by the variance. A variance is a square: a vector that is twice as large has four
    times the variance, and would come out half as large. What has the size of x itself?""")
slip("ε outside the root", ("small inputs",), {ROOT: "(torch.sqrt(variance) + eps)"}, words="""
    √σ² + ε is not √(σ² + ε). For inputs of the usual size nobody sees the difference. At σ = 0.01 the ε beside σ is
    a thousandth of it, and under the root it is a tenth of σ². The contract has it under the root, as torch does.""")
slip("no ε", ("small inputs", "all numbers equal"), {" + eps": ""}, words="""
    ε was not used. A vector whose numbers are all the same has variance 0, and 0/0 is NaN; padding can look like
    that. And small vectors are to come out a little smaller than 1, which is what ε does to them.""")
slip("an ε of its own", ("small inputs",),
     {"eps": "1e-5"},
     {"eps": "1e-6"},
     {"eps": "1e-8"},
     {"eps": "1e-12"},
     {"eps": "1e-7"},
     {"eps": "1e-4"},
     words="""
    ε was written into the formula as a number. It is an argument: models were trained with 1e-5, 1e-6 or 1e-12, and
    each must be given its own.""")
slip("divided by d − 1", NOT_NORMALISED, {VARIANCE: "x.var(dim=-1, keepdim=True)"}, words="""
    `var` and `std` divide by d − 1 unless told otherwise: that is how one *estimates* the variance of a population
    from a sample. Here the d numbers are all there is, and their variance is the mean of the squares. At d = 512
    you would never notice; with a published checkpoint the last digits would not agree.""")
slip("not centred", NOT_CENTRED,
     {"variance = (x - mean)": "variance = x", "return (x - mean)": "return x"},
     {"return (x - mean)": "return x"},  # what is divided alone
     words="""
    The mean was not subtracted from what is divided. Without the centring it is a different norm, RMSNorm or
    nearly; its turn comes next. Look at the result's mean.""")
slip("over the wrong numbers", (*NOT_CENTRED, "each by itself"),
     along("-2"),
     along("0"),  # over the batch
     {MEAN: "x.mean()", VARIANCE: "x.var(correction=0)"},  # over everything
     along("(-2, -1)"),  # over words and features
     words="""
    Mean and variance were taken over several vectors: the words of a sentence, the sentences of a batch, or all
    together. Then a word's vector depends on its neighbours, on the padding, and in a decoder on the future. One
    vector, one mean: the last axis, and only that.""")
slip("axis counted from the front", ("all numbers equal", "each by itself"), along("2"), words="""
    `dim=2` is the features' axis for a batch of sentences, and a different one, or none, for a sentence or a vector
    by itself. Counted from the end, the features are the last axis, however many stand in front.""")
slip("gain and bias out of place", ("gain and bias",),
     {"return (x - mean)": "return ((x - mean)", " * weight + bias": " + bias) * weight"},
     {BEGIN: f"x = x * weight + bias\n{BEGIN}", " * weight + bias": ""},  # in front of the norm
     {BEGIN: f"x = x * weight\n{BEGIN}", " * weight + bias": " + bias"},  # the gain alone in front of it
     words="""
    The order is: normalise, times the gain, plus the bias. What is done before the norm is partly undone by it; and
    a bias that is added before the gain is multiplied by it.""")
slip("gain or bias forgotten", ("gain and bias", "gradient"),
     {" * weight + bias": ""},
     {" + bias": ""},
     words="""
    The vectors are normalised, and that is all, or the next step is only half done: the gain multiplies, number by
    number, and then the bias is added. Both are learned, so that a layer may have sizes other than 1 if it needs
    them.""")
slip("statistics without a gradient", ("gradient",),
     {MEAN: f"{MEAN}.detach()", VARIANCE: f"{VARIANCE}.detach()"},
     {BEGIN: f"x = x.detach()\n{BEGIN}"},  # all of it
     words="""
    The numbers are right and the gradient is not: mean and variance, or all of it, were cut off by `.detach()`,
    `.data`, `.item()`, numpy or `no_grad`. They depend on x too. Xu et al. (2019) found that it is this very part
    of the gradient that makes LayerNorm useful.""")


# ------------------------------------------------------------------------------------------------------ further from it


@variant("divided by d − 1", "ε outside the root", fails=NOT_NORMALISED)
def estimated_and_eps_outside(x, weight, bias, eps):
    """With ε outside as well."""
    return weight * (x - x.mean(dim=-1, keepdim=True)) / (x.std(dim=-1, keepdim=True) + eps) + bias


@variant("divided by d − 1", "no ε", fails=NOT_CENTRED)
def estimated_without_eps(x, weight, bias, eps):
    """Without any ε."""
    return weight * (x - x.mean(dim=-1, keepdim=True)) / x.std(dim=-1, keepdim=True) + bias


@variant("over the wrong numbers", fails=("normalised", "small inputs", "each by itself"))
def over_the_words_counted_from_the_front(x, weight, bias, eps):
    """Over the words, and counted from the front."""
    variance, mean = torch.var_mean(x, dim=1, keepdim=True, correction=0)
    return (x - mean) / torch.sqrt(variance + eps) * weight + bias


@variant("an ε of its own", fails=("normalised", "small inputs"))
def an_epsilon_that_shows(x, weight, bias, eps):
    """So large a one, some frameworks' default, that vectors of ordinary size come out smaller, too."""
    mean = x.mean(dim=-1, keepdim=True)
    variance = (x - mean).square().mean(dim=-1, keepdim=True)
    return (x - mean) / torch.sqrt(variance + 1e-3) * weight + bias


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
