"""Training in earnest: from a recipe, in a folder that holds all that is needed to go on, on one process or several.

A run can be killed at any step. What it does at step s depends on the recipe and s alone (the batches come in an order
drawn from the seed, and dropout is drawn anew for each micro-batch), so a resumed run's losses are those of an unbroken
one: on a CPU to the last bit.

`Trainer.update` is the step. What it is fed with is in `examples` and `micro_batches`, what is noted of it in
`progress`, what is kept of it in `persistence`.
"""

import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from copy import deepcopy
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from attncourse.data import EncodedPair, Tokenizer
from attncourse.data.batches import combined_seed
from attncourse.positions import LearnedPositions, LearnedPositions2D, ShawRelative
from attncourse.training.checkpoints import gather, named_tensors, restore
from attncourse.training.distributed import DistributedContext, wrap_parallel
from attncourse.training.examples import Examples, as_examples
from attncourse.training.hardware import fast_float32, peak_flops, peak_memory, settle_precision
from attncourse.training.micro_batches import MicroBatch, micro_batches
from attncourse.training.persistence import CHECKPOINT, MOMENTS, WEIGHTS, RunFolder
from attncourse.training.progress import Bookkeeper, Listener, NonFiniteLoss, Progress, Step, Unseen
from attncourse.training.recipe import Recipe
from attncourse.training.runs import save_described
from attncourse.transformer import Stack
from commandkit.interrupts import DeferredInterrupt

__all__ = ["CHECKPOINT", "WEIGHTS", "Listener", "NonFiniteLoss", "Progress", "Step", "Trainer", "train"]

Evaluate = Callable[[Any], Mapping[str, float]]
AUTOCAST = {"bf16": torch.bfloat16, "fp16": torch.float16}
TABLES = (nn.Embedding, LearnedPositions, LearnedPositions2D, ShawRelative)


class Trainer:
    """One run: the model, its optimiser, and what goes with them. `train` is the way in."""

    def update(self, step: int, step_batches: Sequence[MicroBatch]) -> Unseen:
        """One step of the optimiser, and what it measured, which nobody has looked at yet."""
        losses = []
        for i, (planned, batch) in enumerate(step_batches):
            torch.manual_seed(combined_seed(self.recipe.seed, planned.number))            # for dropout
            with self.sending_gradients(i == len(step_batches) - 1):
                with self.autocast():
                    loss = self.loss(*batch) * planned.share
                # Gradients are averaged over the processes, and should be added up.
                self.scaler.scale(loss * self.processes.count).backward()
            losses.append(loss.detach())
        self.scaler.unscale_(self.optimizer)
        norm = gather(nn.utils.clip_grad_norm_(self.parameters.values(), self.recipe.clip))
        for group in self.optimizer.param_groups:
            group["lr"] = self.recipe.lr_at(step)
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.optimizer.zero_grad()
        self.average_weights()
        parts = [planned.examples for planned, _ in step_batches]
        return Unseen(step, losses, norm, parts, planned.step_tokens, planned.step_flops)

    def autocast(self) -> Any:
        """Within this, matrix products are computed in 16 bits, if the precision says so."""
        dtype = AUTOCAST.get(self.precision)
        return nullcontext() if dtype is None else torch.autocast(self.processes.device.type, dtype)

    @contextmanager
    def sending_gradients(self, last: bool) -> Iterator[None]:
        """Gradients travel between the processes once, with the last micro-batch of a step."""
        if hasattr(self.loss, "set_requires_gradient_sync"):                          # FSDP2
            self.loss.set_requires_gradient_sync(last)
        stays = not last and hasattr(self.loss, "no_sync")                            # DDP
        with self.loss.no_sync() if stays else nullcontext():
            yield

    @torch.no_grad()
    def average_weights(self) -> None:
        """Move the average by 1 − ema of the way to the weights."""
        if self.ema:
            torch._foreach_lerp_(list(self.ema.values()), list(self.parameters.values()), 1 - self.recipe.ema)

    def __init__(
        self,
        model: nn.Module,
        data: Examples,
        recipe: Recipe,
        folder: Path | str | None = None,
        evaluate: Evaluate | None = None,
        best_by: str = "bleu",
        processes: DistributedContext | None = None,
        listeners: Sequence[Listener] = (),
    ):
        processes = processes or DistributedContext(0, 1, next(model.parameters()).device)
        self.model, self.data, self.recipe, self.processes = model, data, recipe, processes
        self.evaluate, self.best_by, self.listeners = evaluate, best_by, listeners
        self.precision = settle_precision(recipe.precision, processes.device)
        self.replica = _replica(model) if evaluate and processes.is_main else None
        # FSDP2's hooks would part the graph at every block.
        compiled = recipe.compile and not (recipe.shard and processes.count > 1)
        loss = _Loss(model, data.loss(model, compiled), recipe.label_smoothing)
        self.loss: Any = wrap_parallel(loss, model, processes, recipe.shard)
        self.parameters = dict(model.named_parameters())
        self.optimizer = make_optimizer(model, recipe, processes.device)
        self.scaler = torch.amp.GradScaler(processes.device.type, enabled=self.precision == "fp16")
        self.ema = {name: p.detach().clone() for name, p in self.parameters.items()} if recipe.ema else {}
        self.best: dict[str, Tensor] = {}                         # the weights of the best evaluation
        self.progress = Progress(recipe)
        self.books = Bookkeeper(self.progress, processes, self.scaler.is_enabled(), data.called)
        self.peak_flops = peak_flops(processes.device, self.precision)
        kept = (model, self.optimizer, self.ema, self.scaler, processes)
        self.folder = None if folder is None else RunFolder(Path(folder), *kept)

    def run(self, resume: bool) -> Progress:
        """All the steps; see `train`."""
        if resume:
            if self.folder is None:
                raise ValueError("resume: got True without a folder, expected the folder of the run to go on with")
            self.best = self.folder.resume(self.progress)
        if self.folder and self.processes.is_main:
            self.folder.clear(anew=not resume)
        counted = self.model if self.peak_flops else None
        stream = micro_batches(self.data, self.recipe, self.processes, self.progress.step, counted)
        with ExitStack() as during:
            interrupt = during.enter_context(DeferredInterrupt((signal.SIGINT, signal.SIGTERM)))
            during.enter_context(fast_float32(self.processes.device))
            during.enter_context(recomputing(self.model, self.recipe.activation_checkpointing))
            if self.processes.device.type == "cuda":
                torch.cuda.reset_peak_memory_stats(self.processes.device)
            self.model.train()
            self.steps(stream, interrupt)
        if self.best:
            restore(self.model, self.best, WEIGHTS)
        self.model.eval()
        return self.progress

    def steps(self, stream: Iterator[MicroBatch], interrupt: DeferredInterrupt) -> None:
        progress, recipe = self.progress, self.recipe
        step, before, started = progress.step, progress.seconds, time.perf_counter()
        stopped = False
        if progress.unscored(step):                               # the run was stopped while it evaluated this step
            stopped = not self.score(interrupt)
            self.save()
        progress.ended = progress.is_over(step, stopped)
        self.books.start_clock()
        while not progress.ended:
            step += 1
            self.books.unseen.append(self.update(step, list(islice(stream, recipe.accumulate))))
            evaluate = progress.unscored(step)
            save = evaluate or step % recipe.save_every == 0
            if not (save or step % self.books.look_every == 0):
                continue
            self.books.look(self.peak_flops, peak_memory(self.processes.device))
            stopped = self.processes.any(interrupt.requested) or (evaluate and not self.score(interrupt))
            progress.ended = progress.is_over(step, stopped)
            progress.seconds = before + time.perf_counter() - started
            if save or progress.ended:
                self.save()
            if self.processes.is_main:
                for listener in self.listeners:
                    listener(progress)
            self.books.start_clock()

    def save(self) -> None:
        """All that it takes to go on from here, if there is a folder."""
        if self.folder:
            self.folder.save(self.progress, self.weights)

    def weights(self) -> dict[str, Tensor]:
        """The weights to keep, whole, by name: averaged if the recipe says so."""
        return {name: gather(tensor.detach()) for name, tensor in (named_tensors(self.model) | self.ema).items()}

    def score(self, interrupt: DeferredInterrupt) -> bool:
        """Evaluate, and keep the weights if they are the best so far. Without `evaluate` the last are the best.

        An evaluation is long, and changes nothing: Ctrl-C ends it at once, and then this returns False.
        """
        weights, progress = self.weights(), self.progress

        def ask() -> dict[str, float]:
            if self.replica is None or self.evaluate is None:
                return {}
            restore(self.replica, weights, "the averaged weights")
            self.replica.eval()
            # Only in here: a process that broke off while it talks to the others would leave them waiting.
            with torch.no_grad(), interrupt.immediately():
                return dict(self.evaluate(self.replica))

        try:
            scores: dict[str, float] = {"step": progress.step} | self.processes.broadcast_from_main(ask)
        except KeyboardInterrupt:
            return False
        if self.evaluate is not None and self.best_by not in scores:
            raise ValueError(f"best_by: got {self.best_by!r}, expected one of {', '.join(scores)}")
        better = self.evaluate is None or progress.best is None
        if not better:
            sign = -1 if self.best_by == "loss" else 1
            assert progress.best is not None
            better = sign * scores[self.best_by] > sign * progress.best[self.best_by]
        progress.scores.append(scores)
        progress.worse = 0 if better else progress.worse + 1
        if better:
            progress.best = scores
            self.best = {name: tensor.cpu().clone() for name, tensor in weights.items()}
            if self.folder:
                self.folder.save_weights(self.best, scores)
        return True


def train(
    model: nn.Module,
    data: Sequence[EncodedPair] | Sequence[Sequence[int]] | Examples,
    recipe: Recipe,
    folder: Path | str | None = None,
    evaluate: Evaluate | None = None,
    best_by: str = "bleu",
    resume: bool = False,
    processes: DistributedContext | None = None,
    listeners: Sequence[Listener] = (),
    tokenizers: Tokenizer | tuple[Tokenizer, Tokenizer] | None = None,
) -> Progress:
    """Train `model` on `data`; afterwards it has the best weights found (without `evaluate`, the last).

    `data` are pairs of token ids for a model that translates, lists of token ids for a language model, or `Examples` of
    any other kind: `examples` says what each asks of the model. The batches go where the model is.
    `evaluate(model) -> scores` is called every `recipe.evaluate_every` steps, and at the end, with the (averaged)
    weights, by the first process alone; `best_by` names the score that decides, the higher the better ("loss": the
    lower). With a `folder`, weights, checkpoints and logs are kept there, and `resume` goes on from its checkpoint.
    With the `tokenizers` too (a language model's, or the source's and the target's; one for both is enough) the folder
    of an EncoderDecoder or a LanguageModel is a run as `attncourse train` makes it: `runs.load_run` loads it, and
    `attncourse translate`, `generate` and `evaluate` use it.

    Each of the processes calls this with the same model, data and recipe; one step's batch is `processes.count ·
    recipe.accumulate` micro-batches, so that one process with as many micro-batches takes the same steps.

    On a GPU the loop waits for it at every 25th step alone, where the losses are looked at, and where it saves or
    evaluates. (A recurrent encoder waits more often: cuDNN wants the lengths on the CPU.)

    The first Ctrl-C (or SIGTERM) ends the run after the step that is under way, with a checkpoint; the second at once.
    Raises NonFiniteLoss; ValueError for no data, for an example that the model cannot take, or for a precision that the
    device lacks; CommandError for a checkpoint that does not fit or a full disk.
    """
    examples = as_examples(data, model)
    if tokenizers is not None and folder is not None and not resume and (processes is None or processes.is_main):
        save_described(Path(folder), model, recipe, tokenizers)
    return Trainer(model, examples, recipe, folder, evaluate, best_by, processes, listeners).run(resume)


def make_optimizer(model: nn.Module, recipe: Recipe, device: torch.device) -> torch.optim.AdamW:
    """AdamW (Loshchilov and Hutter 2019), whose weight decay is for matrices alone: not norms, biases, embeddings."""
    tables = {p for part in model.modules() if isinstance(part, TABLES) for p in part.parameters()}
    matrices = [p for p in model.parameters() if p.ndim > 1 and p not in tables]
    decayed = set(matrices)
    groups = [
        {"params": matrices, "weight_decay": recipe.weight_decay},
        {"params": [p for p in model.parameters() if p not in decayed], "weight_decay": 0.0},
    ]
    fused = device.type in ("cpu", "cuda") and not recipe.shard
    optimizer = torch.optim.AdamW(
        [group for group in groups if group["params"]], lr=recipe.lr, betas=recipe.betas, eps=recipe.eps,
        fused=fused or None,
    )  # fmt: skip
    # Not at the first update: a parameter may be without a gradient then, or for ever, and is saved all the same.
    for parameter in model.parameters():
        moments = {moment: torch.zeros_like(parameter) for moment in MOMENTS[1:]}
        optimizer.state[parameter] = {"step": torch.zeros((), device=device if fused else "cpu"), **moments}
    return optimizer


class _Loss(nn.Module):
    """The model's loss as a module's forward, which is what DDP and FSDP hook into."""

    def __init__(self, model: nn.Module, call: Callable[..., Tensor], smoothing: float):
        super().__init__()
        self.model, self.call, self.smoothing = model, call, smoothing

    def forward(self, *batch: Tensor) -> Tensor:
        return self.call(*batch, label_smoothing=self.smoothing)


def _replica(model: nn.Module) -> nn.Module:
    """A copy, for evaluations with other weights. (A copied RNN's weights lie apart, and cuDNN wants them in one.)"""
    copied = deepcopy(model)
    for part in copied.modules():
        if isinstance(part, nn.RNNBase):
            part.flatten_parameters()
    return copied


@contextmanager
def recomputing(model: nn.Module, wanted: bool) -> Iterator[None]:
    """Activation checkpointing, as long as this lasts. Raises ValueError for a model without blocks to do it with."""
    stacks = [part for part in model.modules() if isinstance(part, Stack)] if wanted else []
    if wanted and not stacks:
        name = type(model).__name__
        raise ValueError(f"activation_checkpointing: got True for a {name}, expected a model that is made of blocks")
    for stack in stacks:
        stack.activation_checkpointing = True
    try:
        yield
    finally:
        for stack in stacks:
            stack.activation_checkpointing = False
