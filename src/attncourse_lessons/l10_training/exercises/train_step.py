"""TrainStep: A small classifier with dropout, its optimiser, and one step of training."""

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lessonkit.exercises.exercise import Exercise
from lessonkit.exercises.judge import explain_case
from lessonkit.exercises.observe import Draw


class _GradientDescent:
    """The notebook's own optimiser: the first use of one of torch's takes three seconds, for what it imports."""

    def __init__(self, parameters):
        self.parameters = list(parameters)

    def zero_grad(self):
        for parameter in self.parameters:
            parameter.grad = None

    @torch.no_grad()
    def step(self, lr):
        for parameter in self.parameters:
            parameter -= lr * parameter.grad


class _TrainStep(nn.Module):
    """A small classifier with dropout, its optimiser, and one step of training."""

    def __init__(self, d: int, n_classes: int, dropout: float):
        super().__init__()
        self.model = nn.Sequential(
            nn.Linear(d, 8),
            nn.Tanh(),
            nn.Dropout(dropout),
            nn.Linear(8, n_classes),
            nn.LogSoftmax(dim=-1),
        )
        self.optimizer = _GradientDescent(self.model.parameters())

    def forward(self, micro_batches, held_out, lr, clip):
        n = sum(len(target) for _, target in micro_batches)
        self.model.train()
        self.optimizer.zero_grad()
        total = torch.zeros(())
        for x, target in micro_batches:
            loss = nn.functional.nll_loss(self.model(x), target, reduction="sum") / n
            loss.backward()
            total += loss.detach()
        norm = nn.utils.clip_grad_norm_(self.model.parameters(), clip)
        self.optimizer.step(lr)
        self.model.eval()
        with torch.no_grad():
            x, target = held_out
            validation = nn.functional.nll_loss(self.model(x), target)
        return total, norm, validation


def solution(self, micro_batches, held_out, lr, clip):
    n = sum(len(target) for _, target in micro_batches)
    self.model.train()
    self.optimizer.zero_grad()
    loss = torch.zeros(())
    for x, target in micro_batches:
        part = F.nll_loss(self.model(x), target, reduction="sum") / n
        part.backward()                                           # adds to the gradients
        loss = loss + part.detach()
    norm = nn.utils.clip_grad_norm_(self.model.parameters(), clip)
    self.optimizer.step(lr)
    self.model.eval()
    with torch.no_grad():
        x, target = held_out
        validation = F.nll_loss(self.model(x), target)
    return loss, norm, validation


exercise = Exercise(
    "TrainStep",
    reference=_TrainStep,
    solution=solution,
    returns=("loss", "norm", "validation"),
    forbidden=("attncourse.training", "attncourse.metrics"),
    numbers=True,
    difficulty=3,
    minutes=25,
    hints=(
        "Six things in this order: training mode, gradients to zero, a backward for each micro-batch, the clip, the "
        "step, and the held-out loss in evaluation mode.",
        "`backward()` *adds* to the gradients. So the losses of the micro-batches must be such that their sum is the "
        "mean over all tokens: a sum over the micro-batch's tokens, divided by the number of tokens of the whole step.",
        "`nn.utils.clip_grad_norm_` takes all parameters together, scales their gradients down if they are too long, "
        "and returns the norm that it found.",
    ),
)
aspect, slip, misconception, variant, alternative = exercise.decorators()


class _Steps:
    """A learner's module with drawn parameters, micro-batches of different sizes, and held-out pairs."""

    def __init__(self, answer: Any, draw: Draw, dropout: float = 0.0, n_micro: int = 3, equal: int | None = None):
        d, self.n_classes = draw.sizes(2, 3, 6)
        self.module = answer.build(draw, d, self.n_classes, dropout)
        sizes = sorted(draw.sizes(n_micro, 1, 4 * n_micro)) if equal is None else [equal] * n_micro
        self.micro = [self.pairs(draw, n, d) for n in sizes]
        self.held_out = self.pairs(draw, 12, d)
        self.another = [self.pairs(draw, n, d) for n in sizes]

    def pairs(self, draw: Draw, n: int, d: int) -> tuple[Tensor, Tensor]:
        return 2 * draw.normal(n, d), draw.integers(self.n_classes, n)

    def __call__(self, micro_batches: list, lr: float, clip: float) -> tuple[Tensor, Tensor, Tensor]:
        loss, norm, validation = self.module(micro_batches, self.held_out, lr, clip)
        return tuple(value.detach().double().reshape(()) for value in (loss, norm, validation))  # type: ignore[return-value]


# ----------------------------------------------------------------------------------------------------- what is observed


@aspect("loss", points=1, hint=2)
def loss(answer, draw):
    """the mean over all the tokens of the step, each counting the same"""
    steps = _Steps(answer, draw)
    return steps(steps.micro, 0.1, 100.0)[0]


@aspect("norm", points=1, hint=3, explain=explain_case("of a short gradient", "of one that is clipped"))
def norm(answer, draw):
    """the length of the whole gradient, before it is clipped"""
    steps = _Steps(answer, draw)
    return torch.stack([steps(steps.micro, 0.0, clip)[1] for clip in (100.0, 1e-2)])


@aspect("a step", points=1, hint=1)
def a_step(answer, draw):
    """from one micro-batch: the rate times the gradient, downhill; the held-out loss is taken afterwards"""
    steps = _Steps(answer, draw, n_micro=1)
    return steps(steps.micro, 0.2 + 0.3 * float(draw.uniform(1)), 100.0)[2]


@aspect("several micro-batches", points=2, hint=2)
def several_micro_batches(answer, draw):
    """one update, from the gradients of all of them together"""
    steps = _Steps(answer, draw)
    return steps(steps.micro, 0.2 + 0.3 * float(draw.uniform(1)), 100.0)[2]


@aspect("clipping", points=1, hint=3, explain=explain_case("in one micro-batch", "in three of one size"))
def clipping(answer, draw):
    """a gradient that is too long is scaled down as a whole, before the step"""
    one, three = (_Steps(answer, draw.child(str(n)), n_micro=n, equal=7 - n) for n in (1, 3))
    return torch.stack([steps(steps.micro, 20.0, 0.02)[2] for steps in (one, three)])


@aspect("the next step", points=1, hint=1)
def the_next_step(answer, draw):
    """a step starts from gradients of zero"""
    steps = _Steps(answer, draw, n_micro=1)
    steps(steps.micro, 0.3, 100.0)
    return steps(steps.another, 0.3, 100.0)[2]


@aspect("dropout in training", points=1, hint=1)
def dropout_in_training(answer, draw):
    """while it trains the model drops numbers, different ones each time, and also after it has been evaluated"""
    steps = _Steps(answer, draw, dropout=0.5)
    losses = [steps(steps.micro, 0.0, 100.0)[0] for _ in range(3)]
    return torch.tensor([not torch.equal(losses[0], losses[1]), not torch.equal(losses[1], losses[2])])


@aspect("no dropout in evaluation", points=1, hint=1)
def no_dropout_in_evaluation(answer, draw):
    """the held-out loss is that of the whole model"""
    steps = _Steps(answer, draw, dropout=0.5)
    return torch.stack([steps(steps.micro, 0.0, 100.0)[2] for _ in range(2)])


# -------------------------------------------------------------------------------------- one slip away from the solution

UPDATED = ("a step", "several micro-batches", "clipping", "the next step")
UNEVEN = ("loss", "norm", "several micro-batches")
ZERO, PART, STEP = "self.optimizer.zero_grad()\n", "    part = ", "self.optimizer.step(lr)\n"
CLIP = "norm = nn.utils.clip_grad_norm_(self.model.parameters(), clip)\n"
LENGTH = "norm = torch.stack([p.grad.norm() for p in self.model.parameters()]).norm()\n"
SHARE = 'target, reduction="sum") / n'

slip("dropout on at test time", ("no dropout in evaluation",), {"self.model.eval()\n": ""}, words="""
    The held-out loss was measured with dropout: on a model with half of its numbers missing, a different half each
    time. A model is told which of the two it is doing, by `train()` and by `eval()`. (`torch.no_grad()` saves
    memory; dropout takes no notice of it.)""")
slip("dropout off in training", ("dropout in training",), {"self.model.train()\n": ""}, words="""
    The model trains in evaluation mode: dropout does nothing. Whoever evaluates between two steps must switch it
    back on, and the place to do so is the beginning of the step.""")
slip("old gradients kept", ("norm", "the next step"), {ZERO: ""}, words="""
    The second step still has the first one's gradient in it. `backward()` adds to what is there: set the gradients
    to zero, once a step.""")
slip("a mean of means", UNEVEN, {SHARE: "target) / len(micro_batches)"}, words="""
    Each micro-batch counted the same, however many tokens it has. A token in a small one then weighs more than a
    token in a large one, and the step depends on how the batch happened to be cut. Divide by the tokens of the
    *whole* step.""")
slip("means added up", UNEVEN, {SHARE: "target)"}, words="""
    The micro-batches' mean losses were added up. With three of them the gradient is three times as long, so whoever
    cuts a batch into more pieces trains at a higher rate. Divide by the tokens of the *whole* step.""")
slip("zero in the loop", ("norm", "several micro-batches", "clipping"), {ZERO: "", PART: f"    {ZERO}{PART}"}, words="""
    The gradients were set to zero for every micro-batch, so that only the last one counts. What accumulates must
    not be cleared on the way: once a step, before the loop.""")
slip("not clipped before the step", ("clipping",), {CLIP: "", STEP: f"{STEP}{CLIP}"}, words="""
    The step was taken with the gradient at its full length: it was not scaled down, or only afterwards. Clip
    between `backward()` and `step()`.""")
slip("each parameter clipped by itself", ("clipping",),
     {CLIP: f"{LENGTH}for p in self.model.parameters():\n    nn.utils.clip_grad_norm_([p], clip)\n"},
     {CLIP: f"{LENGTH}nn.utils.clip_grad_value_(self.model.parameters(), clip)\n"},  # each number
     words="""
    Each parameter's gradient was shortened by itself. Together they are still too long, and point in a different
    direction from the gradient: those that were short keep their length. One norm over all parameters, one factor
    for all.""")
slip("a step for each micro-batch", (*UNEVEN, "clipping"),
     {ZERO: "", PART: f"    {ZERO}{PART}", CLIP: f"    {CLIP}", STEP: f"    {STEP}"},
     {ZERO: "", PART: f"    {ZERO}{PART}", CLIP: f"    {CLIP}", STEP: f"    {STEP}",
      SHARE: "target) / len(micro_batches)"},  # each its own mean
     {ZERO: "", PART: f"    {ZERO}{PART}", CLIP: f"    {CLIP}", STEP: f"    {STEP}",
      SHARE: 'target, reduction="sum") / len(target)',
      "loss = loss + part.detach()": "loss = loss + part.detach() * len(target) / n"},
     words="""
    The parameters moved after every micro-batch: three small steps, where one was asked for from all of them
    together. The step comes after the loop.""")
slip("the norm after clipping", ("norm",), {CLIP: f"{CLIP.removeprefix('norm = ')}{LENGTH}"}, words="""
    The norm that came back is that of the clipped gradient, which is never more than `clip`: it says nothing about how
    the training goes. `clip_grad_norm_` returns the norm that it found *before* it clipped.""")
slip("clipped after each micro-batch", ("norm", "clipping"),
     {"loss = loss + part.detach()\n": f"loss = loss + part.detach()\n    {CLIP}", CLIP: ""}, words="""
    The gradient was clipped after every micro-batch, while it was still being added up. A part of it that was cut does
    not come back, so the step depends on the order of the micro-batches. Once a step, after the loop.""")
slip("always brought to that length", ("a step", "several micro-batches", "the next step"),
     {CLIP: f"{LENGTH}for p in self.model.parameters():\n    p.grad *= clip / norm\n"}, words="""
    The gradient was scaled to the length `clip` in every case, so that a short one was made *longer*. The factor is
    clip over norm where the norm is larger, and 1 elsewhere.""")
slip("the loss after the step", ("loss",),
     {STEP: f'{STEP}loss = sum(F.nll_loss(self.model(x), target, reduction="sum").item() '
            'for x, target in micro_batches) / n\n'},
     words="""
    The step's loss was measured again after the parameters had moved. What is asked for is the loss that the gradient
    came from: it is there already, and costs nothing.""")
slip("evaluated before the step", UPDATED, {STEP: "", "return": f"{STEP}return"}, words="""
    The held-out loss is that of the model as it was before this step, or nothing has moved it: is `step()` called,
    and before the evaluation?""")


# ------------------------------------------------------------------------------------------------ right in other styles


@alternative("gradients asked for, parameters moved by hand")
def gradients_asked_for_parameters_moved_by_hand(self, micro_batches, held_out, lr, clip):
    """No optimiser, no `backward`."""
    self.train()
    parameters = list(self.model.parameters())
    n = sum(len(target) for _, target in micro_batches)
    losses = [-self.model(x)[torch.arange(len(target)), target].sum() / n
              for x, target in micro_batches]  # fmt: skip
    loss = torch.stack(losses).sum()
    gradients = torch.autograd.grad(loss, parameters)
    norm = math.sqrt(sum(float(g.square().sum()) for g in gradients))
    with torch.no_grad():
        for p, g in zip(parameters, gradients, strict=True):
            p -= lr * g * min(1.0, clip / norm)
    self.eval()
    x, target = held_out
    return float(loss), norm, nn.functional.nll_loss(self.model(x), target).item()


@alternative("means, weighted by their tokens; zeroed at the end")
def means_weighted_by_their_tokens_zeroed_at_the_end(self, micro_batches, held_out, lr, clip):
    """Each mean times its share; the gradients are cleared after the step."""
    self.model.train(True)
    tokens = torch.tensor([float(len(target)) for _, target in micro_batches])
    total = torch.zeros((), dtype=torch.float64)
    for (x, target), share in zip(micro_batches, tokens / tokens.sum(), strict=True):
        mean = nn.NLLLoss()(self.model(x), target)
        (mean * share).backward()
        total += (mean * share).item()
    norm = torch.nn.utils.clip_grad_norm_(list(self.model.parameters()), max_norm=clip)
    self.optimizer.step(lr)
    self.optimizer.zero_grad()
    self.model.train(False)
    x, target = held_out
    return total, norm, nn.NLLLoss()(self.model(x), target)
