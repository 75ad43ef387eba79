"""Which examples a process sees at each step, and what share of the step they are: from seed and step alone."""

from collections.abc import Iterator
from itertools import chain, count, islice, tee
from typing import Any, NamedTuple

from torch import nn

from attncourse.data import loader
from attncourse.training.distributed import DistributedContext
from attncourse.training.examples import Examples
from attncourse.training.recipe import Recipe


class Planned(NamedTuple):
    """What one process computes at once: a part of one step."""

    number: int
    """Of all micro-batches of the run, whichever process has it."""
    examples: list[int]
    share: float
    """Its part of the step's target tokens: mean losses, weighted by it, add up to the mean over all of these."""
    step_tokens: int
    """How many target tokens the step has, in all processes."""
    step_flops: int | None
    """The FLOPs of the step, in all processes, where they are known."""


class MicroBatch(NamedTuple):
    planned: Planned
    batch: Any
    """A NamedTuple of tensors, on the device."""


def plan(
    data: Examples, recipe: Recipe, processes: DistributedContext, done: int, model: nn.Module | None = None
) -> Iterator[Planned]:
    """This process' micro-batches from the step after `done` on, without end: `recipe.accumulate` of them a step.

    The epochs follow each other, and a step may begin in one and end in the next. FLOPs are counted for `model`.
    """
    weights = [data.n_targets(example) for example in data.examples]
    flops = None if model is None else data.flops(model)
    epochs = (data.epoch_batches(recipe.batch_tokens, recipe.seed, epoch) for epoch in count())
    a_step = recipe.accumulate * processes.count
    every = islice(enumerate(chain.from_iterable(epochs), start=1), done * a_step, None)
    while True:
        step = list(islice(every, a_step))
        tokens = [sum(weights[i] for i in examples) for _, examples in step]
        counted = None if flops is None else sum(flops(data[i]) for _, examples in step for i in examples)
        for (number, examples), n in list(zip(step, tokens, strict=True))[processes.rank :: processes.count]:
            yield Planned(number, examples, n / sum(tokens), sum(tokens), counted)


def micro_batches(
    data: Examples, recipe: Recipe, processes: DistributedContext, done: int, model: nn.Module | None = None
) -> Iterator[MicroBatch]:
    """What is planned, with its tensors on the device."""
    planned, ahead = tee(plan(data, recipe, processes, done, model))                  # the loader reads ahead
    indices, workers = (one.examples for one in ahead), data.workers if processes.device.type == "cuda" else 0
    batches = loader(data, indices, processes.device, data.collate, workers)                  # type: ignore[arg-type]
    return map(MicroBatch, planned, batches)
