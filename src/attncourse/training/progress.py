"""How a run stands: what each step measured, how fast it goes, and whether its numbers are still numbers."""

import math
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor

from attncourse.training.distributed import DistributedContext
from attncourse.training.recipe import Recipe

# Looking at a number on a GPU waits for it, so there it is done now and then.
LOOK_EVERY = {"cpu": 1}
LOOK_EVERY_ELSEWHERE = 25


@dataclass(frozen=True)
class Step:
    """What one update was: a line of losses.csv. `loss` is in nats a target token, smoothing and all."""

    step: int
    loss: float
    lr: float
    gradient: float
    """The gradient's norm, before clipping."""
    # How the machine did, which is no part of what the run is: two runs are equal without it.
    tokens_per_second: float | None = field(default=None, compare=False)
    """Target tokens, without padding, over about the last 25 steps; evaluations are left out."""
    mfu: float | None = field(default=None, compare=False)
    """Model FLOPs utilisation over the same steps: the FLOPs that the model asks for, as a share of what the GPU's
    data sheet promises. None where `hardware.CHIPS` does not know the GPU. Chowdhery et al. 2022, appendix B."""
    peak_memory: float | None = field(default=None, compare=False)
    """The most bytes that tensors have taken on this process' GPU since the run began; None elsewhere."""


@dataclass
class Progress:
    """How a run stands: what listeners are told, and what it returns in the end."""

    recipe: Recipe
    steps: list[Step] = field(default_factory=list)
    scores: list[dict[str, float]] = field(default_factory=list)
    """One for each evaluation: {"step": …, and what `evaluate` returned}."""
    best: dict[str, float] | None = None
    """The evaluation whose weights were kept."""
    worse: int = 0
    """Evaluations in a row that were not the best."""
    seconds: float = 0.0
    """Of steps and evaluations, in all sessions of the run."""
    tokens: int = 0
    """Target tokens trained on, without padding."""
    ended: str = ""
    """Why it is over: "steps", "patience", or "interrupted"; empty while it goes on."""

    @property
    def step(self) -> int:
        return self.steps[-1].step if self.steps else 0

    @property
    def tokens_per_second(self) -> float | None:
        """Target tokens a second over the last steps, evaluations left out; None before the first."""
        return self.steps[-1].tokens_per_second if self.steps else None

    def unscored(self, step: int) -> bool:
        """Whether this step asks for an evaluation that has not been."""
        wanted = step > 0 and (step == self.recipe.steps or step % self.recipe.evaluate_every == 0)
        return wanted and (not self.scores or self.scores[-1]["step"] != step)

    def is_over(self, step: int, stopped: bool) -> str:
        """What `ended` says after this step. `stopped`: somebody wants it to end."""
        if step >= self.recipe.steps and not self.unscored(step):
            return "steps"
        if stopped:
            return "interrupted"
        impatient = self.recipe.patience is not None and self.worse >= self.recipe.patience
        return "patience" if impatient else ""


Listener = Callable[[Progress], None]


class NonFiniteLoss(ArithmeticError):
    """The loss or its gradient became infinite or NaN, on the batch of these `examples` (their numbers)."""

    def __init__(self, step: int, loss: float, gradient: float, examples: Sequence[int], called: str):
        self.step, self.loss, self.gradient, self.examples = step, loss, gradient, list(examples)
        shown = ", ".join(map(str, self.examples[:8])) + (", …" if len(self.examples) > 8 else "")
        what = f"the gradient of a loss of {loss:.3g} is {gradient}" if math.isfinite(loss) else f"the loss is {loss}"
        super().__init__(
            f"step {step}: {what}, on a batch of {len(self.examples)} {called} (numbers {shown} of the training set). "
            f"The last checkpoint is as it was. Look at these {called}, or begin anew with a smaller learning rate."
        )


class Unseen(NamedTuple):
    """An earlier step, whose numbers may still be on the GPU: each micro-batch's part of the loss, and its examples."""

    step: int
    losses: list[Tensor]
    norm: Tensor
    examples: list[list[int]]
    tokens: int
    flops: int | None


class Bookkeeper:
    """Collects what the steps measure, and looks at it now and then."""

    def __init__(self, progress: Progress, processes: DistributedContext, overflows: bool, called: str):
        """`overflows`: in fp16 a gradient does so now and then, and the scaler leaves that step out."""
        self.progress, self.processes, self.overflows, self.called = progress, processes, overflows, called
        self.look_every = LOOK_EVERY.get(processes.device.type, LOOK_EVERY_ELSEWHERE)
        self.unseen: list[Unseen] = []
        self.laps: deque[tuple[int, int, float]] = deque(maxlen=LOOK_EVERY_ELSEWHERE // self.look_every)
        self.since = time.perf_counter()

    def start_clock(self) -> None:
        """What passed since the last look was no training."""
        self.since = time.perf_counter()

    def look(self, peak_flops: float | None, peak_memory: int | None) -> None:
        """Fetch the numbers of the steps so far, and stop if one is no number, or its gradient is none."""
        own = torch.stack([torch.stack(step.losses) for step in self.unseen]).float()     # (n_steps, accumulate)
        losses = self.processes.sum(own.sum(dim=1)).tolist()
        norms = torch.stack([step.norm for step in self.unseen]).tolist()
        tokens_per_second, mfu = self._speed(peak_flops)
        for i, (step, loss, norm) in enumerate(zip(self.unseen, losses, norms, strict=True)):
            if not math.isfinite(loss) or not (math.isfinite(norm) or self.overflows):
                # A gradient is the sum of all micro-batches': which of them spoiled it cannot be seen.
                bad = [math.isfinite(loss) or not ok for ok in own[i].isfinite().tolist()]
                examples = [n for part, is_bad in zip(step.examples, bad, strict=True) if is_bad for n in part]
                raise NonFiniteLoss(step.step, loss, norm, self.processes.gather(examples), self.called)
            lr = self.progress.recipe.lr_at(step.step)
            self.progress.steps.append(Step(step.step, loss, lr, norm, tokens_per_second, mfu, peak_memory))
        self.progress.tokens += sum(step.tokens for step in self.unseen)
        self.unseen = []

    def _speed(self, peak_flops: float | None) -> tuple[float, float | None]:
        tokens, flops = sum(step.tokens for step in self.unseen), sum(step.flops or 0 for step in self.unseen)
        self.laps.append((tokens, flops, time.perf_counter() - self.since))
        all_tokens, all_flops, seconds = (sum(each) for each in zip(*self.laps, strict=True))
        known = peak_flops is not None and self.unseen[-1].flops is not None
        mfu = all_flops / seconds / (peak_flops * self.processes.count) if known and peak_flops else None
        return all_tokens / seconds, mfu
