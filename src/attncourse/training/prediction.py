"""What a run would take, computed before it: FLOPs and bytes counted, times predicted from GPUs' data sheets."""

from collections.abc import Sequence
from itertools import islice
from typing import Any, NamedTuple

import torch

from attncourse.counting import saved_activation_bytes
from attncourse.data.batches import move
from attncourse.training.distributed import DistributedContext
from attncourse.training.examples import Examples, as_examples
from attncourse.training.hardware import CHIPS, Chip, Precision
from attncourse.training.micro_batches import plan
from attncourse.training.recipe import Recipe
from attncourse.training.runs import RunConfig
from attncourse.training.trainer import recomputing

# A model this small does not keep a large GPU busy. What share it reaches, nobody knows who has not measured it.
ASSUMED = 0.2


class Prediction(NamedTuple):
    """Of one process on one device."""

    parameters: int
    steps: int
    tokens: float
    """Target tokens of a step, on average."""
    flops: float
    """Of a step, on average; a forward pass more with activation checkpointing."""
    state: int
    """Bytes that are there all the time: 16 for each parameter (weight, gradient and AdamW's two moments), 4 for the
    average of the weights if there is one, and 4 for the copy that is evaluated."""
    activations: int
    """Bytes that the largest micro-batch's activations take in float32; in 16 bits fewer, down to about half."""

    def seconds(self, chip: Chip, precision: Precision, utilisation: float = 1.0) -> float:
        """How long all steps take, evaluations left out, at this share of what the data sheet promises."""
        return self.steps * self.flops / (chip.flops[precision] * utilisation)


def predict(run_config: RunConfig, examples: Sequence[Any]) -> Prediction:
    """Count, on batches of the first epoch, on torch's meta device: nothing is computed, and no memory taken."""
    recipe = run_config.recipe
    with torch.device("meta"):
        model = run_config.task.model(run_config.model)
    data = as_examples(examples, model)
    batches = data.epoch_batches(recipe.batch_tokens, recipe.seed, epoch=0)
    n_steps = max(1, min(recipe.steps, len(batches) // recipe.accumulate))
    alone = DistributedContext(0, 1, torch.device("cpu"))
    planned = list(islice(plan(data, recipe, alone, 0, model), 0, n_steps * recipe.accumulate, recipe.accumulate))
    flops = sum(one.step_flops or 0 for one in planned) / len(planned)
    parameters = sum(p.numel() for p in model.parameters())
    return Prediction(
        parameters, recipe.steps, sum(one.step_tokens for one in planned) / len(planned),
        flops * (4 / 3 if recipe.activation_checkpointing else 1),
        parameters * (16 + 4 * bool(recipe.ema) + 4), _activations(model, data, recipe, batches),
    )  # fmt: skip


def _activations(model: torch.nn.Module, data: Examples, recipe: Recipe, batches: Sequence[Sequence[int]]) -> int:
    largest = max(batches, key=lambda batch: sum(data.n_tokens(data[i]) for i in batch))
    batch = move(data.collate([data[i] for i in largest]), "meta")
    loss = data.loss(model.train(), compiled=False)
    with recomputing(model, recipe.activation_checkpointing):
        return saved_activation_bytes(lambda: loss(*batch, label_smoothing=recipe.label_smoothing))


def describe(made: Prediction) -> str:
    """The prediction as lines to print."""
    lines = [
        f"{made.parameters:,} parameters, {made.tokens:,.0f} target tokens and {made.flops / 1e12:.3g} TFLOP a step, "
        f"{made.steps:,} steps at most",
        f"memory: {made.state / 1e9:.2f} GB for weights, gradients, AdamW and evaluation, and up to "
        f"{made.activations / 1e9:.2f} GB for the activations of a micro-batch (float32; in 16 bits less)",
        "predicted from data sheets, not measured; evaluations come on top:",
        f"  {'GPU':<6}{'format':<9}{'at its peak':>14}{f'at {ASSUMED:.0%} of it':>14}",
    ]
    for name, chip in CHIPS.items():
        kind: Precision = "bf16" if "bf16" in chip.flops else "fp16"
        times = (_time(made.seconds(chip, kind, share)) for share in (1.0, ASSUMED))
        lines.append(f"  {name:<6}{kind:<9}" + "".join(f"{time:>14}" for time in times))
    return "\n".join(lines)


def _time(seconds: float) -> str:
    for size, unit in ((3600, "h"), (60, "min")):
        if seconds >= 1.5 * size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.1f} s"
