"""What a training run is told: how long, how fast, on how much at a time. One frozen dataclass, checked at the door."""

import math
from dataclasses import dataclass
from typing import Literal, get_args

from attncourse._checks import check_at_least, check_one_of

Schedule = Literal["inverse sqrt", "cosine"]
Precision = Literal["auto", "float32", "bf16", "fp16"]


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """Every choice of a run, but the model's and the data's. Raises ValueError for what cannot be."""

    steps: int
    """Updates of the parameters, at most."""
    batch_tokens: int = 4096
    """How many tokens, padding included, a micro-batch holds at most, on the longer of its sides."""
    accumulate: int = 1
    """Micro-batches that each process adds up before an update."""
    lr: float = 1e-3
    """The learning rate at its highest, when the warm-up ends."""
    warmup: int = 400
    schedule: Schedule = "inverse sqrt"
    betas: tuple[float, float] = (0.9, 0.98)
    eps: float = 1e-9
    weight_decay: float = 0.0
    """Of matrices alone: norms, biases and embeddings are not drawn to zero."""
    clip: float = 1.0
    """The gradient is scaled down to this norm if it is longer."""
    label_smoothing: float = 0.1
    precision: Precision = "float32"
    """"bf16" and "fp16" compute what they may in 16 bits (autocast); parameters and their updates stay in 32.
    "auto" is what `hardware.best_precision` says of the device: 16 bits on a CUDA GPU, float32 elsewhere."""
    compile: bool = False
    """Compile the loss (torch.compile), but where `shard` splits the model."""
    activation_checkpointing: bool = False
    """Keep the input of each block alone, and compute the block again on the way back: less memory, more time."""
    ema: float = 0.0
    """Evaluate and keep a moving average of the weights with this decay; 0 keeps the weights themselves."""
    evaluate_every: int = 500
    patience: int | None = None
    """Stop after so many evaluations in a row that were not the best so far."""
    save_every: int = 500
    shard: bool = False
    """Split parameters, gradients and the optimiser's state among the processes (FSDP2), not just the batch."""
    seed: int = 0

    def __post_init__(self) -> None:
        check_at_least(
            1,
            steps=self.steps,
            batch_tokens=self.batch_tokens,
            accumulate=self.accumulate,
            evaluate_every=self.evaluate_every,
            save_every=self.save_every,
            **({} if self.patience is None else {"patience": self.patience}),
        )
        check_at_least(0, warmup=self.warmup)
        if not 0 <= self.seed < 2**20:
            raise ValueError(f"seed: got {self.seed}, expected 0 or more and less than {2**20}")
        check_one_of("schedule", self.schedule, get_args(Schedule))
        check_one_of("precision", self.precision, get_args(Precision))
        for name in ("lr", "clip", "eps"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name}: got {getattr(self, name)}, expected more than 0")
        if not self.weight_decay >= 0:
            raise ValueError(f"weight_decay: got {self.weight_decay}, expected 0 or more")
        for name in ("ema", "label_smoothing"):
            if not 0 <= getattr(self, name) < 1:
                raise ValueError(f"{name}: got {getattr(self, name)}, expected 0 or more and less than 1")

    def lr_at(self, step: int) -> float:
        """The learning rate of this step; the first is step 1."""
        if self.schedule == "cosine":
            return self.lr * cosine(step, self.warmup, self.steps)
        return self.lr * inverse_sqrt(step, self.warmup)


def inverse_sqrt(step: int, warmup: int) -> float:
    """The share of the highest rate: straight up to 1 at step `warmup`, then down as √(warmup / step).

    Vaswani et al. 2017, equation 3, divided by its own highest value, (d_model · warmup)^−½: what they write as
    d_model^−½ · min(step^−½, step · warmup^−1.5). The first step is 1; without warm-up it has the highest rate.
    Raises ValueError for a step below 1.

    >>> [inverse_sqrt(step, warmup=100) for step in (1, 50, 100, 400)]
    [0.01, 0.5, 1.0, 0.5]
    """
    check_at_least(1, step=step)
    warmup = max(1, warmup)
    return min(step / warmup, math.sqrt(warmup / step))


def cosine(step: int, warmup: int, steps: int) -> float:
    """The share of the highest rate: straight up to 1 at step `warmup`, then half a cosine down to 0 after `steps`.

    The 0 would come one step after the last, as the 0 before the first step comes one step before it: each of the
    `steps` updates changes something. Loshchilov and Hutter 2017, equation 5, without restarts.
    Raises ValueError for a step below 1.

    >>> [round(cosine(step, warmup=10, steps=109), 2) for step in (1, 10, 60, 110)]
    [0.1, 1.0, 0.5, 0.0]
    """
    check_at_least(1, step=step)
    if step <= warmup:
        return step / warmup
    done = min(1.0, (step - warmup) / max(1, steps - warmup + 1))
    return 0.5 * (1 + math.cos(math.pi * done))
