"""warmup: The learning rate of this step; the first step is step 1."""

import math

import torch

from attncourse.training.recipe import inverse_sqrt
from lessonkit.exercises.exercise import Exercise

from .common import READY_MADE


def reference(step, d_model, warmup_steps):
    return inverse_sqrt(step, warmup_steps) / math.sqrt(d_model * warmup_steps)


def solution(step, d_model, warmup_steps):
    return d_model**-0.5 * min(step**-0.5, step * warmup_steps**-1.5)


exercise = Exercise(
    "warmup",
    reference=reference,
    solution=solution,
    returns=("rate",),
    forbidden=READY_MADE,
    numbers=True,
    difficulty=1,
    minutes=5,
    hints=(
        "Begin with the falling curve, and check it at step 16 of the table. How high is it at `warmup_steps`? The "
        "slope of a straight line from 0 to this height is the height divided by `warmup_steps`.",
        "Without the width, the curve is `step ** -0.5` and the line is `step * warmup_steps ** -1.5`. At "
        "`warmup_steps` they are equal; which of the two is the smaller one before it, and which after it?",
    ),
)
aspect, slip, misconception, variant, alternative = exercise.decorators()


def _times(got, expected):
    """Says by how much the worst rate is off."""
    worst = max(range(len(got)), key=lambda i: abs(math.log(got[i])) if got[i] > 0 else math.inf)
    return f"one of the rates is {got[worst]:.3g} times what it should be"


def _rates(answer, *settings):
    """Each rate, divided by the right one: rates are so small that differences between them say nothing."""
    return torch.stack([torch.as_tensor(answer(*s)).double().reshape(()) / reference(*s) for s in settings])


def _two_widths(draw):
    return [16 * (1 + int(k)) for k in draw.integers(30, 2)], 8 + int(draw.integers(40, 1))


# ----------------------------------------------------------------------------------------------------- what is observed


@aspect("the first step", points=1, hint=1, explain=_times)
def the_first_step(answer, draw):
    """the rate at step 1 is small, but not zero"""
    (d, other), w = _two_widths(draw)
    return _rates(answer, (1, d, w), (1, other, w + 5))


@aspect("rising", points=1, hint=2, explain=_times)
def rising(answer, draw):
    """a straight line up to `warmup_steps`"""
    (d, _), w = _two_widths(draw)
    return _rates(answer, *((step, d, w) for step in (2, w // 2, w - 1)))


@aspect("the peak", points=1, hint=1, explain=_times)
def the_peak(answer, draw):
    """at `warmup_steps` the highest rate"""
    (d, other), w = _two_widths(draw)
    return _rates(answer, (w, d, w), (w + 3, other, w + 3))


@aspect("falling", points=1, hint=2, explain=_times)
def falling(answer, draw):
    """then as one over the root of the step"""
    (d, _), w = _two_widths(draw)
    return _rates(answer, *((step, d, w) for step in (w + 1, 2 * w, 9 * w)))


@aspect("width", points=1, hint=1)
def width(answer, draw):
    """a model four times as wide gets half the rate"""
    (d, _), w = _two_widths(draw)
    narrow, wide = (torch.as_tensor(answer(w + 2, width, w)).double() for width in (d, 4 * d))
    return (wide / narrow).reshape(1)


# -------------------------------------------------------------------------------------- one slip away from the solution

SHIFTED = ("the first step", "rising", "the peak", "falling")
EVERY_RATE = (*SHIFTED, "width")
FALLING = "step**-0.5"

slip("off by one: a step too far", SHIFTED, {"return": "step = step + 1\nreturn"}, words="""
    The schedule was asked about the step after this one. It counts from 1, and so does `step` here: nothing has to
    be added. (Where a loop counts from 0, the + 1 belongs in the loop.)""")
slip("off by one: a step behind", SHIFTED,
     {"return": "step = step - 1\nreturn"},
     {"return": "step = step - 1\nreturn", FALLING: "max(step, 1) ** -0.5"},  # with the zero caught
     words="""
    The schedule was asked about the step before this one, so that the first step has no rate at all: 0 to the power
    −½ is not a number, and at a rate of 0 a batch is wasted. `step` counts from 1, as the schedule does.""")
slip("the larger for the smaller", ("the first step", "rising", "falling"), {"min": "max"}, words="""
    This starts high, falls until `warmup_steps`, and rises for ever after: the two lines are right, and of the two
    the larger was taken. It is the smaller one that counts.""")
slip("−½ for −1.5", ("the first step", "rising"), {"-1.5": "-0.5"}, words="""
    The rising line is too steep, and cut off at once by the falling one, so there is no warm-up. At `warmup_steps`
    both must be the same: w^−½ = w · w^?""")
slip("no warm-up", ("the first step", "rising"), {"min(step**-0.5, step * warmup_steps**-1.5)": "step**-0.5"}, words="""
    This falls from the first step on: it begins with the highest rate that there is. The rising line is missing, and
    `min` of the two.""")
slip("one length for every warm-up", ("the first step", "rising", "the peak", "falling"),
     {"warmup_steps**-1.5": "4000**-1.5"},
     {"warmup_steps**-1.5": "1000**-1.5"},
     {"warmup_steps**-1.5": "2000**-1.5"},
     {"warmup_steps**-1.5": "16000**-1.5"},
     {"warmup_steps**-1.5": "8000**-1.5"},  # tensor2tensor's
     {"warmup_steps**-1.5": "10000**-1.5"},
     words="""
    `warmup_steps` has no effect: a fixed number, the paper's 4000 or another, stands in its place.""")
slip("the width left out", EVERY_RATE, {"d_model**-0.5 * ": ""}, words="""
    The shape is right, the size is not: `d_model` has no effect. The wider a model, the smaller its steps, by the
    root of the width.""")
slip("times the root of the width", EVERY_RATE, {"d_model**-0.5": "d_model**0.5"}, words="""
    Wider models get *larger* steps here. The exponent of `d_model` is −½: one over the root.""")
slip("never falls", ("falling",), {FALLING: "warmup_steps**-0.5"}, words="""
    The rate stays at its peak. A warm-up is followed by a decline; here it goes as one over the root of the step.""")
slip("falls as 1/step", ("falling",), {FALLING: "warmup_steps**0.5 / step"}, words="""
    The decline is too steep: four times as many steps should leave half of the rate, and here they leave a quarter.""")
slip("falls as 1/step", ("rising", "the peak", "falling"), {FALLING: "step**-1"})


# ------------------------------------------------------------------------------------------------------ further from it


@misconception("a share of the peak", fails=EVERY_RATE)
def a_share_of_the_peak(step, d_model, warmup_steps):
    """This is 1 at its highest: it is the schedule's shape, by which a rate of your own choice may be multiplied. What
    is asked for is the paper's schedule, whose highest rate follows from `d_model` and `warmup_steps`."""
    return min(step / warmup_steps, (warmup_steps / step) ** 0.5)


# ------------------------------------------------------------------------------------------------ right in other styles


@alternative("two cases")
def two_cases(step, d_model, warmup_steps):
    """One for each side of the peak."""
    peak = 1 / math.sqrt(d_model * warmup_steps)
    if step < warmup_steps:
        return peak * step / warmup_steps
    return peak * math.sqrt(warmup_steps / step)


@alternative("tensors")
def tensors(step, d_model, warmup_steps):
    """A tensor comes back."""
    step, warmup_steps = torch.tensor(float(step)), torch.tensor(float(warmup_steps))
    return torch.minimum(step.rsqrt(), step / warmup_steps**1.5) / math.sqrt(d_model)
