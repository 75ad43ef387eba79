"""scaled_step: One step of training in half precision, with a loss scale that looks after itself."""

import math

import torch
from torch import Tensor

from lessonkit.exercises.exercise import Exercise
from lessonkit.exercises.judge import explain_case
from lessonkit.exercises.observe import Draw, require_variation


def solution(weights, loss_of, scale, good_steps, growth_interval, lr):
    half = weights.half().requires_grad_()
    (scale * loss_of(half)).backward()
    gradient = half.grad.float() / scale
    if not gradient.isfinite().all():
        return weights, scale / 2, 0
    weights = weights - lr * gradient
    good_steps = good_steps + 1
    if good_steps == growth_interval:
        return weights, scale * 2, 0
    return weights, scale, good_steps


exercise = Exercise(
    "scaled_step",
    reference=solution,
    solution=solution,
    returns=("weights", "scale", "good_steps"),
    forbidden=("attncourse.training", "torch.amp", "torch.cuda.amp"),
    numbers=True,
    difficulty=3,
    minutes=30,
    extra=True,
    hints=(
        "`half()` makes the copy that the loss is computed with, and it is the copy that needs `requires_grad_()`. "
        "Multiply the loss by the scale *before* `backward()`. Where is the gradient then, and of what type is it?",
        "Turn the gradient into float32 first and divide by the scale afterwards: what float16 cannot hold is lost in "
        "any other order. `isfinite()` is False for ∞ and for NaN.",
        "There are two cases. If not all numbers are finite, return the weights as they came, half the scale and a "
        "count of 0. Otherwise take one step on the float32 weights and count one more good step; if that makes "
        "`growth_interval` of them, return twice the scale and a count of 0.",
    ),
)
aspect, slip, misconception, variant, alternative = exercise.decorators()


class _Line:
    """A loss whose gradient is `slope`, as float16 has it: a line, computed with the half-precision copy."""

    def __init__(self, slope: Tensor):
        self.slope = slope

    def __call__(self, half: Tensor) -> Tensor:
        if half.shape != self.slope.shape:
            raise ValueError(f"weights: got shape {tuple(half.shape)}, expected {tuple(self.slope.shape)}")
        return (half.float() * self.slope).sum()


def _eighths(draw: Draw, n: int) -> Tensor:
    """Numbers that float16 holds without rounding, and their sums, too; none is zero."""
    return (1 + draw.integers(16, n)) * (1 - 2 * draw.integers(2, n)) / 8


def _step(answer, weights, slope, scale, good_steps=0, growth_interval=10, lr=0.5):
    weights, scale, good_steps = answer(weights, _Line(slope), scale, good_steps, growth_interval, lr)
    return weights, torch.stack([value.double().reshape(()) for value in (scale, good_steps)])


def _overflowing(draw: Draw, kind: float, n: int = 6) -> tuple[Tensor, Tensor]:
    """Weights, and a slope of which one number overflows at a scale of 3, or is NaN; all of them for ∞."""
    slope = _eighths(draw, n)
    slope[int(draw.integers(n, 1))] = kind
    return 1 + draw.uniform(n), slope if kind != math.inf else 30_000 * _eighths(draw, n).sign()


BAD = (3e4, -3e4, math.nan, math.inf)  # the last stands for all of them at once
OVERFLOWS = "where one number is too large", "where one is too far below zero", "where one is NaN", "where all overflow"


# ----------------------------------------------------------------------------------------------------- what is observed


@aspect("step", points=2, hint=1)
def step(answer, draw):
    """the weights move by lr times the gradient of the loss, whatever the scale is"""
    moved = []
    for name, scale, good_steps in (("one", 1.0, 0), ("other", 256.0, 3), ("third", 16.0, 9)):  # the last one grows
        weights, slope = _eighths(draw.child(name), 6), _eighths(draw.child(f"{name}'s"), 6)
        moved.append(weights - _step(answer, weights, slope, scale, good_steps)[0])
    steep = torch.full((6,), 20_000.0)  # together more than float16 can hold, each less
    moved.append(weights - _step(answer, weights, steep, 1.0, lr=2.0**-12)[0])
    return torch.stack(moved)


@aspect("small gradients", points=2, hint=2)
def small_gradients(answer, draw):
    """a gradient too small for float16 is carried through it by the scale, and arrives in float32"""
    weights, slope = _eighths(draw, 6), _eighths(draw.child("slope"), 6) * 2.0**-30
    return weights - _step(answer, weights, slope, 2.0**20, lr=2.0**29)[0]


@aspect("float32 weights", points=1, hint=3)
def float32_weights(answer, draw):
    """steps that are small against the weights are not lost: the weights that are kept have 24 bits"""
    weights, slope = 1 + draw.uniform(6), _eighths(draw, 6)
    return (weights - _step(answer, weights, slope, 1.0, lr=2.0**-13)[0]) * 2**13


@aspect("overflow", points=2, hint=3, explain=explain_case(*OVERFLOWS))
def overflow(answer, draw):
    """a step whose gradient holds ∞ or NaN is not taken: all the weights stay"""
    rows = [_step(answer, *_overflowing(draw.child(str(bad)), bad), 3.0)[0] for bad in BAD]
    return require_variation(torch.stack(rows))


@aspect("scale halved", points=1, hint=3, explain=explain_case(*OVERFLOWS, "where the scale is below 1 already"))
def scale_halved(answer, draw):
    """after an overflow the scale is half of what it was, and good steps are counted from 0"""
    counts = [_step(answer, *_overflowing(draw.child(str(bad)), bad), 3.0, 3)[1] for bad in BAD]
    counts.append(_step(answer, *_overflowing(draw.child("small"), math.nan), 0.75, 3)[1])
    return torch.stack(counts)


GROWTHS = "one step before it is time", "when it is time", "when the scale is large already"


@aspect("scale doubled", points=1, hint=3, explain=explain_case(*GROWTHS))
def scale_doubled(answer, draw):
    """after `growth_interval` good steps in a row the scale is doubled, and they are counted anew"""
    interval, scale = 3 + int(draw.integers(5, 1)), 2.0 ** int(draw.integers(8, 1))
    weights, slope = _eighths(draw, 6), _eighths(draw.child("slope"), 6)
    counts = [_step(answer, weights, slope, scale, interval - before, interval)[1] for before in (2, 1)]
    counts.append(_step(answer, weights, slope * 2.0**-20, 2.0**17, interval - 1, interval)[1])
    return torch.stack(counts)


# -------------------------------------------------------------------------------------- one slip away from the solution

HALF, BACK = "half = weights.half().requires_grad_()\n", "(scale * loss_of(half))"
UNSCALED, TEST = "half.grad.float() / scale", "not gradient.isfinite().all()"
SKIPPED, GROWN = "return weights, scale / 2, 0", "return weights, scale * 2, 0"
MOVE = "weights = weights - lr * gradient"
TAKEN = ("step", "small gradients")

slip("not scaled", ("small gradients", "overflow", "scale halved"),
     {BACK: "loss_of(half)", UNSCALED: "half.grad.float()"}, words="""
    The loss was not scaled, so small gradients became 0 in float16, and nothing brings them back. Multiply the loss by
    the scale before `backward()`; every gradient on the way is then larger by that factor.""")
slip("scaled and not unscaled", TAKEN, {UNSCALED: "half.grad.float()"}, words="""
    The step was taken with the scaled gradient: `scale` times too long. The scale is there for the way through float16
    alone. Divide by it before the weights move.""")
slip("unscaled in float16", ("small gradients",), {UNSCALED: "(half.grad / scale).float()"}, words="""
    The gradient was divided by the scale while it was float16, and what the scale had saved fell back to 0. First
    float32, then divide.""")
slip("the weights rounded to float16", ("float32 weights",),
     {MOVE: "weights = half.detach().float() - lr * gradient"},
     {MOVE: "weights = (weights - lr * gradient).half().float()"},
     words="""
    The weights went through float16, which has 11 bits: next to 1 it knows no step smaller than 0.001, so small updates
    vanish, and the weights forget what they had learned from others. The copy is for the loss alone. Keep the float32
    weights, and move those.""")
slip("the sum looked at", ("step",), {TEST: "not half.grad.sum().isfinite()"}, words="""
    The gradient's *sum* was asked whether it is finite, in float16: it overflows where no number of the gradient does,
    and a good step is lost. Ask each number, and then `all`.""")
slip("the gradient cut to what float16 holds", ("overflow", "scale halved"),
     {f"if {TEST}": "gradient = gradient.clamp(-65504 / scale, 65504 / scale)\nif gradient.isnan().any()"}, words="""
    Numbers that had overflowed were cut to the largest that float16 holds, and the step was taken. Nobody knows how
    large they were: skip the step and halve the scale.""")
slip("another factor than a half", ("scale halved",), {"scale / 2": "scale / 4"},
     {"scale / 2": "1.0"}, {"scale / 2": "scale / 10"},
     words="""
    After an overflow the scale is not half of what it was. It is halved, so that it stays close to the largest that
    fits; if it is still too large the next step will tell.""")
slip("counted from 1 after a growth", ("scale doubled",), {GROWN: "return weights, scale * 2, 1"}, words="""
    After a growth the count begins at 1. This step has been counted and paid for: it begins at 0.""")
slip("overflow not looked for", ("overflow", "scale halved"), {TEST: "False"}, words="""
    ∞ or NaN went into the weights, and they never come out again. Look at the gradient before the step: is all of it
    finite?""")
slip("NaN overlooked", ("overflow", "scale halved"), {TEST: "gradient.isinf().any()"}, words="""
    ∞ is noticed, and NaN is not: ∞ − ∞ in the backward pass gives one. `isfinite` is False for both.""")
slip("∞ overlooked", ("overflow", "scale halved"), {TEST: "gradient.isnan().any()"},
     {TEST: "not loss_of(half).isfinite()"},
     words="""
    NaN is noticed, and ∞ in the gradient is not. What is too large for float16 becomes ∞ first. (The loss is no sign:
    it is computed in float32, and is finite while its gradient overflows.) `isfinite` is False for ∞ and for NaN.""")
slip("−∞ overlooked", ("overflow", "scale halved"), {TEST: "gradient.max() == math.inf or gradient.isnan().any()"},
     words="""
    A number that is too large is noticed, and one that is too far below zero is not: gradients overflow on both
    sides.""")
slip("overflow noticed only where all is lost", ("overflow", "scale halved"), {".all()": ".any()"}, words="""
    The step was skipped only where *no* number of the gradient is finite. One that is not is enough: `all` is asked
    for here.""")
slip("bad numbers put to zero", ("overflow",),
     {SKIPPED: "return weights - lr * gradient.nan_to_num(0, 0, 0), scale / 2, 0"},
     words="""
    Where the gradient overflowed, its bad numbers were replaced and the step was taken. What is left is no gradient:
    whole rows of it may be missing. Skip the step, halve the scale; the next one will fit.""")
slip("the scale stays", ("scale halved",), {SKIPPED: "return weights, scale, 0"}, words="""
    The step was skipped and the scale kept, so the next one overflows as well, and all after it. Halve it.""")
slip("bounds for the scale", ("scale halved",), {"scale / 2": "max(scale / 2, 1.0)"}, words="""
    The scale was kept within bounds. Libraries often do so; here it is halved after *every* overflow and doubled after
    every `growth_interval` good steps, however small or large it is. (Below 1 it makes gradients smaller, which is what
    large ones need.)""")
slip("bounds for the scale", ("scale doubled",), {"scale * 2": "min(scale * 2, 65536.0)"})
slip("doubled at overflow", ("scale halved",), {SKIPPED: "return weights, scale * 2, 0"}, words="""
    After an overflow the scale grew. It was too large: halve it.""")
slip("good steps counted through an overflow", ("scale halved",), {SKIPPED: "return weights, scale / 2, good_steps"},
     {SKIPPED: "return weights, scale / 2, good_steps + 1"},
     words="""
    The count went on through an overflow. `growth_interval` good steps *in a row* make the scale grow: after an
    overflow the count begins at 0.""")
slip("a growth too late", ("scale doubled",), {"good_steps == growth_interval": "good_steps > growth_interval"},
     {"good_steps = good_steps + 1\n": "",
      "return weights, scale, good_steps": "return weights, scale, good_steps + 1"},
     words="""
    The scale grows one good step too late. This step counts as well: first one more, then compare.""")
slip("a growth too early", ("scale doubled",), {"== growth_interval": ">= growth_interval - 1"}, words="""
    The scale grows one good step too early.""")
slip("the count not begun anew", ("scale doubled",), {GROWN: "return weights, scale * 2, good_steps"}, words="""
    The scale was doubled and the count went on: it will not meet `growth_interval` again. It begins at 0.""")
slip("the scale never grows", ("scale doubled",), {GROWN: "return weights, scale, 0"}, words="""
    `growth_interval` good steps left the scale as it is. It only ever falls, and after a few unlucky batches small
    gradients are lost for good.""")
slip("the count stands still", ("scale doubled",), {"good_steps + 1": "good_steps"}, words="""
    A good step was not counted, so the scale never grows.""")
slip("uphill", ("step", "small gradients", "float32 weights"), {"weights - lr": "weights + lr"}, words="""
    The weights went uphill: subtract.""")


# ------------------------------------------------------------------------------------------------------ further from it


@misconception("float32 all the way", fails=("overflow", "scale halved"))
def float32_all_the_way(weights, loss_of, scale, good_steps, growth_interval, lr):
    """The loss was computed with the float32 weights, so nothing overflows and no scale is needed; nor is anything
    saved. Hand `loss_of` a copy in half precision, and ask that copy for its gradient."""
    copy = weights.clone().requires_grad_()
    (scale * loss_of(copy)).backward()
    gradient = copy.grad / scale
    if not gradient.isfinite().all():
        return weights, scale / 2, 0
    grown = good_steps + 1 == growth_interval
    return weights - lr * gradient, scale * (1 + grown), 0 if grown else good_steps + 1


# ------------------------------------------------------------------------------------------------ right in other styles


@alternative("the gradient asked for")
def the_gradient_asked_for(weights, loss_of, scale, good_steps, growth_interval, lr):
    """No `backward`, and one test of the largest size."""
    half = weights.to(torch.float16).requires_grad_(True)
    (gradient,) = torch.autograd.grad(loss_of(half) * scale, half)
    gradient = gradient.to(torch.float32).div(scale)
    if not math.isfinite(gradient.abs().max().item()):
        return weights.clone(), 0.5 * scale, 0
    good_steps += 1
    grows = good_steps >= growth_interval
    return weights.sub(gradient, alpha=lr), 2 * scale if grows else scale, 0 if grows else good_steps


@alternative("multiplied by the reciprocal, in float64")
def multiplied_by_the_reciprocal_in_float64(weights, loss_of, scale, good_steps, growth_interval, lr):
    """A sum tells whether all is finite."""
    half = weights.detach().half()
    half.requires_grad = True
    loss = loss_of(half).double() * scale
    loss.backward()
    gradient = half.grad.double() * (1 / scale)
    total = gradient.sum()
    if total.isnan() or total.isinf():
        return weights, torch.tensor(scale / 2), torch.tensor(0)
    good_steps = (good_steps + 1) % growth_interval
    return (weights - lr * gradient).float(), scale if good_steps else scale * 2, good_steps


@alternative("a loop over the numbers")
def a_loop_over_the_numbers(weights, loss_of, scale, good_steps, growth_interval, lr):
    """Each number by itself."""
    half = weights.half().requires_grad_()
    loss = scale * loss_of(half)
    loss.backward()
    numbers = [float(g) for g in half.grad]
    if any(math.isnan(g) or abs(g) == math.inf for g in numbers):
        return weights, scale / 2, 0
    moved = torch.stack([w - lr * (g / scale) for w, g in zip(weights, numbers, strict=True)])
    if good_steps + 1 < growth_interval:
        return moved, scale, good_steps + 1
    return moved, 2 * scale, 0
