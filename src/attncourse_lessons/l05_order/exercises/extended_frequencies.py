"""extended_frequencies: RoPE's frequencies for longer texts: the slow pairs are slowed down (Peng et al. 2024)."""

import math

import torch

from lessonkit.exercises.exercise import Exercise
from lessonkit.exercises.judge import explain_worst
from lessonkit.exercises.local_runner import AspectFailed, Problem

from .common import READY_MADE


def reference(theta, factor, low, high, trained):
    """γ θ + (1 − γ) θ / s with γ a ramp over the turns. Peng et al. 2024, section 3.2; rope_type "llama3"."""
    turns = trained * theta.double() / (2 * math.pi)
    gamma = ((turns - low) / (high - low)).clamp(0, 1)
    return gamma * theta + (1 - gamma) * theta / factor


def solution(theta, factor, low, high, trained):
    turns = trained * theta / (2 * math.pi)  # (pairs,)  in a text of the trained length
    kept = ((turns - low) / (high - low)).clamp(0, 1)  # (pairs,)  1: as it is, 0: interpolated
    return kept * theta + (1 - kept) * theta / factor


exercise = Exercise(
    "extended_frequencies",
    reference=reference,
    solution=solution,
    returns=("frequencies",),
    forbidden=READY_MADE,
    difficulty=2,
    minutes=15,
    hints=(
        "How often does a pair come full circle in a text of `trained` tokens? With each token it gains theta radians, "
        "and a circle has 2π of them.",
        "Each pair needs a share of its old frequency: 0 at `low` turns and below, 1 at `high` turns and above. Write "
        "the straight line between these two points first. What does it give beyond them, and what must be done there?",
        "With a share w for each pair, all three cases are one line: w of the old frequency, and 1 − w of the one that "
        "is `factor` times as slow.",
    ),
)
aspect, slip, misconception, variant, alternative = exercise.decorators()


def _drawn(draw):
    """A model's frequencies and how to extend it, and the turns of each pair. Some pairs are in each of the zones."""
    pairs, factor = draw.sizes(1, 24, 32)[0], float(draw.sizes(1, 3, 9)[0])
    base = (10_000.0, 100_000.0, 500_000.0)[draw.sizes(1, 0, 2)[0]]
    low, high = ((1.0, 16.0), (1.5, 24.0), (2.0, 32.0))[draw.sizes(1, 0, 2)[0]]
    trained = 1000 * draw.sizes(1, 2, 8)[0]
    theta = base ** (-torch.arange(pairs) / pairs)                            # (pairs,)
    return (theta, factor, low, high, trained), trained * theta / (2 * math.pi)


def _ratios(answer, arguments):
    """New frequencies, each as a share of the old one: small ones count as much as large ones."""
    theta = arguments[0]
    found = answer(*arguments)
    if found.shape != theta.shape:
        raise AspectFailed(Problem("unusable", f"shape {tuple(found.shape)} for {len(theta)} pairs"))
    if torch.equal(found.to(theta.dtype), theta):
        raise AspectFailed(Problem("unusable", "no frequency was changed"))
    return found / theta


# ----------------------------------------------------------------------------------------------------- what is observed

SHARE = explain_worst("a new frequency is {got} times the old one, not {expected} times (pair {place} of these)")


@aspect("fast pairs", points=1, hint=2, explain=SHARE)
def fast_pairs(answer, draw):
    """pairs that turn `high` times or more stay as they are"""
    arguments, turns = _drawn(draw)
    return _ratios(answer, arguments)[turns > arguments[3]]


@aspect("slow pairs", points=1, hint=1, explain=SHARE)
def slow_pairs(answer, draw):
    """pairs that turn `low` times or less turn `factor` times as slowly"""
    arguments, turns = _drawn(draw)
    return _ratios(answer, arguments)[turns < arguments[2]]


@aspect("in between", points=2, hint=3, explain=SHARE)
def in_between(answer, draw):
    """from `low` to `high` the share of the old frequency grows linearly with the turns"""
    arguments, turns = _drawn(draw)
    return _ratios(answer, arguments)[(turns > arguments[2]) & (turns < arguments[3])]


# -------------------------------------------------------------------------------------- one slip away from the solution

FAST, SLOW, BETWEEN = "fast pairs", "slow pairs", "in between"
RAMP, MIX = "((turns - low) / (high - low)).clamp(0, 1)", "kept * theta + (1 - kept) * theta / factor"

slip("radians for turns", (SLOW, BETWEEN), {" / (2 * math.pi)": ""}, words="""
    `trained * theta` is the angle in radians; a full turn has 2π of them. Counted so, every pair seems to turn more
    than six times as often as it does, and pairs that never came full circle are taken for fast ones.""")
slip("turns in the longer text", (SLOW, BETWEEN), {"trained * theta": "trained * factor * theta"}, words="""
    The turns were counted in the *longer* text. What matters is which angles the model met in training: count in a text
    of `trained` tokens.""")
slip("fast and slow exchanged", (FAST, SLOW, BETWEEN), {MIX: "(1 - kept) * theta + kept * theta / factor"}, words="""
    The fast pairs were slowed down and the slow ones left alone. The fast ones have met every angle in training, and
    tell neighbours apart: they stay. The slow ones meet new angles: they are slowed.""")
slip("everything interpolated", (FAST, BETWEEN), {MIX: "theta / factor"}, words="""
    All pairs were slowed down. This is position interpolation. Neighbours then look as if they stood a fraction of a
    place apart, which the model has never seen: the pairs that turn often enough should stay as they are.""")
slip("a border, and no ramp", (BETWEEN,),
    {RAMP: "(turns >= low).float()"},
    {RAMP: "(turns >= high).float()"},
    {RAMP: "(turns >= (low + high) / 2).float()"},
    words="""
    There are only two kinds of pairs here, those that stay and those that are slowed. Between `low` and `high` turns a
    pair gets a part of both: its share of the old frequency grows from 0 to 1.""")
slip("not clamped", (FAST, SLOW), {".clamp(0, 1)": ""}, words="""
    The line from `low` to `high` goes on beyond them. A share below 0 or above 1 makes the slowest pairs too slow, some
    turn backwards, and the fastest faster than they were. Cut it off at 0 and 1.""")
slip("not clamped", (SLOW,), {".clamp(0, 1)": ".clamp(max=1)"})
slip("not clamped", (FAST,), {".clamp(0, 1)": ".clamp(min=0)"})
slip("faster, not slower", (SLOW, BETWEEN), {"/ factor": "* factor"}, words="""
    Slow pairs were made *faster*. In a text that is `factor` times as long they should reach the angles that they had,
    and no others: divide.""")
slip("a ramp from zero", (SLOW, BETWEEN), {"(turns - low) / (high - low)": "turns / high"}, words="""
    The share grows from 0 turns on. It should be 0 up to `low` turns, and reach 1 at `high`: what must be taken from
    the turns, and what is the length of the way?""")
slip("a ramp over periods", (BETWEEN,),
    {"(turns - low) / (high - low)": "(1 / low - 1 / turns) / (1 / low - 1 / high)"},
    words="""
    The share grows with the *period* of a pair (its wavelength), and not with the number of its turns. Both ends are
    right; between them most pairs are changed too little.""")
slip("a ramp over logarithms", (BETWEEN,),
    {"(turns - low) / (high - low)": "(turns / low).log() / math.log(high / low)"},
    words="""
    The share grows with the logarithm of the turns, that is, with the number of the pair. It should grow with the turns
    themselves.""")
slip("periods mixed, not frequencies", (BETWEEN,), {MIX: "theta / (kept + (1 - kept) * factor)"}, words="""
    Between the limits the *periods* were mixed: the divisor runs from `factor` to 1. Mix the two frequencies, the old
    one and the slowed one.""")
slip("a power of the factor", (BETWEEN,), {MIX: "theta / factor ** (1 - kept)"}, words="""
    Between the limits the frequency is divided by a power of `factor`. Mix the two frequencies in proportion, the old
    one and the slowed one.""")


# ------------------------------------------------------------------------------------------------------ further from it


@misconception("a larger base", fails=(FAST, SLOW, BETWEEN))
def a_larger_base(theta, factor, low, high, trained):
    """The base was raised (NTK-aware scaling). That slows every pair but the first, each a little more than the one
    before, and only the last by the whole factor. Here the number of turns decides for each pair."""
    pair = torch.arange(len(theta))
    return theta * factor ** (-pair / (len(theta) - 1))


# ------------------------------------------------------------------------------------------------ right in other styles


@alternative("pair by pair")
def pair_by_pair(theta, factor, low, high, trained):
    """Three cases in a loop."""
    new = []
    for frequency in theta.tolist():
        turns = trained * frequency / (2 * math.pi)
        if turns >= high:
            new.append(frequency)
        elif turns <= low:
            new.append(frequency / factor)
        else:
            share = (turns - low) / (high - low)
            new.append(share * frequency + (1 - share) * frequency / factor)
    return torch.tensor(new)


@alternative("wavelengths and two borders")
def wavelengths_and_two_borders(theta, factor, low, high, trained):
    """By the period of each pair, as libraries of models write it: first the ends, then what lies between."""
    period = 2 * math.pi / theta
    new = torch.where(period > trained / low, theta / factor, theta)
    share = (trained / period - low) / (high - low)
    middle = (period <= trained / low) & (period >= trained / high)
    return torch.where(middle, (1 - share) * theta / factor + share * theta, new)


@alternative("lerp in float64")
def lerp_in_float64(theta, factor, low, high, trained):
    """From the slowed frequency to the old one; the ramp is made of two cut-offs."""
    theta = theta.double()
    turns = theta * trained / math.tau
    above = torch.relu(turns - low) - torch.relu(turns - high)
    return torch.lerp(theta / factor, theta, above / (high - low))


@alternative("one divisor for each pair")
def one_divisor_for_each_pair(theta, factor, low, high, trained):
    """How much each pair is slowed, as a factor on its frequency."""
    share = torch.clamp((trained * theta / 2 / torch.pi - low) / (high - low), min=0, max=1)
    return theta * (1 / factor + share * (1 - 1 / factor))
