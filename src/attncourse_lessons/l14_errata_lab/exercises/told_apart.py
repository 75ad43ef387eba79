"""told_apart: Whether two models differ by more than luck, from their losses at equal seeds."""

import math

import torch

from lessonkit.exercises.exercise import Exercise

from .common import READY_MADE


def reference(printed, repaired):
    """The mean of the differences at equal seeds, and how many of its standard errors it is."""
    difference = printed - repaired
    error = difference.std(correction=1) / math.sqrt(len(difference))
    return difference.mean(), difference.mean() / error


def solution(printed, repaired):
    gaps = printed - repaired                                    # (n,)
    standard_error = gaps.std() / math.sqrt(len(gaps))
    return gaps.mean(), gaps.mean() / standard_error


exercise = Exercise(
    "told_apart",
    reference=reference,
    solution=solution,
    returns=("difference", "t"),
    forbidden=READY_MADE,
    difficulty=2,
    minutes=12,
    numbers=True,
    hints=(
        "Seed 3 is in both lists, and luck that both share says nothing about which is better. What is left if you "
        "subtract one list from the other, seed by seed?",
        "Of n differences the standard deviation says how far one of them may lie from their mean; the mean of n of "
        "them is surer, by a factor of √n.",
    ),
)
aspect, slip, misconception, variant, alternative = exercise.decorators()


def _runs(draw, n, shared=0.0):
    """Losses of two models on n seeds; `shared` is how much of a seed's luck falls to both."""
    luck = shared * draw.normal(n)
    return 2.1 + luck + 0.05 * draw.normal(n), 2.2 + luck + 0.03 * draw.normal(n)


# ----------------------------------------------------------------------------------------------------- what is observed


@aspect("difference", points=1, hint=1)
def difference(answer, draw):
    """the mean of printed minus repaired"""
    return torch.stack([answer(*_runs(draw, n))[0] for n in (3, 5, 8)])


@aspect("t", points=1, hint=2)
def t(answer, draw):
    """the difference in standard errors"""
    return torch.stack([answer(*_runs(draw, n))[1] for n in (3, 5, 8)])


@aspect("luck that both share", points=1, hint=1)
def luck_that_both_share(answer, draw):
    """does not count"""
    return answer(*_runs(draw, 6, shared=1.0))[1]


# -------------------------------------------------------------------------------------- one slip away from the solution

T = ("t", "luck that both share")

slip("each by itself", T, {"gaps.std()": "(printed.var() + repaired.var()).sqrt()"}, words="""
    Each model's spread over the seeds was computed by itself. Most of that spread is luck that both share, since they
    have the same seeds and texts. It hides a difference that is there for every single seed.""")

slip("deviation for error", T, {" / math.sqrt(len(gaps))": ""}, words="""
    The mean was divided by the standard deviation of the differences, which says how far *one* run may be off. The mean
    of n runs is more certain than one run.""")

slip("the variance for the deviation", T, {"gaps.std()": "gaps.var()"}, words="""
    The standard error was made of the variance. Its root, the standard deviation, is what √n divides.""")
slip("n for n − 1", T, {"gaps.std()": "gaps.std(correction=0)"}, words="""
    The squared deviations were averaged over n. The mean was computed from the same few runs, so it lies too near to
    them: divide by n − 1. For three seeds that is a fifth of the answer.""")

slip("n − 1 twice", T, {"math.sqrt(len(gaps))": "math.sqrt(len(gaps) - 1)"}, words="""
    The standard deviation was divided by √(n − 1). Its own n − 1 is in it already; the error of a mean of n runs is
    the deviation over √n.""")

slip("without its sign", T, {"gaps.mean() / standard_error": "(gaps.mean() / standard_error).abs()"}, words="""
    t came back without its sign. The sign says which of the two models is better: below 0 the printed one.""")

slip("the wrong sign", ("difference", *T), {"printed - repaired": "repaired - printed"}, words="""
    It is printed minus repaired: more than 0 where the repair helps.""")

slip("divided by n", T, {"math.sqrt(len(gaps))": "len(gaps)"}, words="""
    The error of a mean falls as √n, not as n: four times as many seeds halve it.""")


# ------------------------------------------------------------------------------------------------ right in other styles


@alternative("by hand")
def by_hand(printed, repaired):
    """Plain Python."""
    pairs = [a - b for a, b in zip(printed.tolist(), repaired.tolist(), strict=True)]
    n, mean = len(pairs), sum(pairs) / len(pairs)
    variance = sum((pair - mean) ** 2 for pair in pairs) / (n - 1)
    return mean, mean / math.sqrt(variance / n)


@alternative("means first, in float64")
def means_first_in_float64(printed, repaired):
    """The mean difference is the difference of the means."""
    printed, repaired = printed.double(), repaired.double()
    mean = printed.mean() - repaired.mean()
    spread = (printed - repaired - mean).square().sum() / (len(printed) - 1)
    return [mean, mean * (len(printed) / spread).sqrt()]
