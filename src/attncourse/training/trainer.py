"""Training in earnest: from a recipe, in a folder that holds all that is needed to go on, on one process or several.

A run can be killed at any step. What it does at step s depends on the recipe and s alone (the batches come in an order
drawn from the seed, and dropout is drawn anew for each step), so a resumed run's losses are those of an unbroken one:
on a CPU to the last bit.
"""

import csv
import io
import json
import math
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from copy import deepcopy
from dataclasses import asdict, dataclass, field
from itertools import chain, count, islice, tee
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor, nn

from attncourse.data import Batch, EncodedPair, epoch_batches, loader
from attncourse.metrics import token_loss
from attncourse.training.checkpoints import (
    copy_into,
    gather,
    load_tensors,
    named_tensors,
    remove_halves,
    restore,
    save_tensors,
    write_whole,
)
from attncourse.training.distributed import DistributedContext, wrap_parallel
from attncourse.training.recipe import Recipe
from attncourse.transformer import EncoderDecoder
from attncourse.unpadding import unpadded_loss
from commandkit.errors import CommandError
from commandkit.interrupts import DeferredInterrupt

CHECKPOINT, WEIGHTS, LOSSES, EVALUATIONS = "checkpoint.safetensors", "weights.safetensors", "losses.csv", "scores.csv"
MOMENTS = ("step", "exp_avg", "exp_avg_sq")
# Looking at a number on a GPU waits for it, so there it is done now and then.
LOOK_EVERY = {"cpu": 1}
LOOK_EVERY_ELSEWHERE = 25

T = TypeVar("T")
Evaluate = Callable[[Any], Mapping[str, float]]


class Step(NamedTuple):
    """What one update was: a line of losses.csv. `loss` is in nats a target token, smoothing and all."""

    step: int
    loss: float
    lr: float
    gradient: float
    """The gradient's norm, before clipping."""


@dataclass
class Progress:
    """How a run stands: what listeners are told, and what it returns in the end."""

    recipe: Recipe
    steps: list[Step] = field(default_factory=list)
    scores: list[dict[str, float]] = field(default_factory=list)
    """One for each evaluation: {"step": …, and what `evaluate` returned}."""
    best: dict[str, float] | None = None
    """The evaluation whose weights were kept."""
    seconds: float = 0.0
    """Of steps and evaluations, in all sessions of the run."""
    tokens: int = 0
    """Target tokens trained on, without padding."""
    ended: str = ""
    """Why it is over: "steps", "patience", or "interrupted"; empty while it goes on."""

    @property
    def step(self) -> int:
        return self.steps[-1].step if self.steps else 0


Listener = Callable[[Progress], None]


class NonFiniteLoss(ArithmeticError):
    """The loss or its gradient became infinite or NaN, on the batch of these `pairs` (their numbers)."""

    def __init__(self, step: int, loss: float, gradient: float, pairs: Sequence[int]):
        self.step, self.loss, self.gradient, self.pairs = step, loss, gradient, list(pairs)
        shown = ", ".join(map(str, self.pairs[:8])) + (", …" if len(self.pairs) > 8 else "")
        what = f"the gradient of a loss of {loss:.3g} is {gradient}" if math.isfinite(loss) else f"the loss is {loss}"
        super().__init__(
            f"step {step}: {what}, on a batch of {len(self.pairs)} pairs (numbers {shown} of the training "
            "set). The last checkpoint is as it was. Look at these pairs, or begin anew with a smaller learning rate."
        )


class _Unseen(NamedTuple):
    """An earlier step, whose numbers may still be on the GPU: each micro-batch's part of the loss, and its pairs."""

    step: int
    losses: Tensor
    norm: Tensor
    pairs: list[list[int]]


class _Shard(NamedTuple):
    """One process' micro-batch of one step; `share` is its part of all the step's target `tokens`."""

    number: int
    """Of all micro-batches of the run, whichever process has it."""
    batch: Batch
    share: float
    tokens: int
    pairs: list[int]


def train(
    model: nn.Module,
    pairs: Sequence[EncodedPair],
    recipe: Recipe,
    folder: Path | str | None = None,
    evaluate: Evaluate | None = None,
    best_by: str = "bleu",
    resume: bool = False,
    processes: DistributedContext | None = None,
    listeners: Sequence[Listener] = (),
) -> Progress:
    """Train `model` on `pairs`; afterwards it has the best weights found (without `evaluate`, the last).

    The model is an `EncoderDecoder`, a `Seq2Seq`, or anything with `forward(source, lengths, target_in) -> logits`.
    `evaluate(model) -> scores` is called every `recipe.evaluate_every` steps, and at the end, with the (averaged)
    weights, by the first process alone; `best_by` names the score that decides, the higher the better ("loss": the
    lower). With a `folder`, weights, checkpoints and logs are kept there, and `resume` goes on from its checkpoint.

    Each of the team's processes calls this with the same model, pairs and recipe; one step's batch is `team.count ·
    recipe.accumulate` micro-batches, so that one process with as many micro-batches takes the same steps.

    The first Ctrl-C (or SIGTERM) ends the run after the step that is under way, with a checkpoint; the second at once.
    Raises NonFiniteLoss; ValueError for no pairs, or one that is empty or longer than the model's positions;
    CommandError for a checkpoint that does not fit or a full disk.
    """
    _check_pairs(pairs, getattr(model, "max_positions", None))
    processes = processes or DistributedContext(0, 1, next(model.parameters()).device)
    return _Run(model, pairs, recipe, folder, evaluate, best_by, processes, listeners).go(resume)


class _Run:
    def __init__(
        self, model, pairs, recipe: Recipe, folder, evaluate, best_by, processes: DistributedContext, listeners
    ):
        self.model, self.pairs, self.recipe, self.processes = model, pairs, recipe, processes
        self.folder = None if folder is None else Path(folder)
        self.evaluate, self.best_by, self.listeners = evaluate, best_by, listeners
        self.progress = Progress(recipe)
        self.replica = deepcopy(model) if evaluate and processes.is_main else None
        # FSDP2's hooks would part the graph at every block.
        compiled = recipe.compile and not (recipe.shard and processes.count > 1)
        self.loss: Any = wrap_parallel(_Loss(model, compiled, recipe.label_smoothing), model, processes, recipe.shard)
        self.parameters = dict(model.named_parameters())
        fused = processes.device.type in ("cpu", "cuda") and not recipe.shard
        self.optimizer = torch.optim.AdamW(
            self.parameters.values(), lr=recipe.lr, betas=recipe.betas, eps=recipe.eps,
            weight_decay=recipe.weight_decay, fused=fused or None,
        )  # fmt: skip
        # Not at the first update: a parameter may be without a gradient then, or for ever, and is saved all the same.
        on = processes.device if fused else "cpu"
        for parameter in self.parameters.values():
            moments = {moment: torch.zeros_like(parameter) for moment in MOMENTS[1:]}
            self.optimizer.state[parameter] = {"step": torch.zeros((), device=on), **moments}
        self.scaler = torch.amp.GradScaler(processes.device.type, enabled=recipe.precision == "fp16")
        self.ema = {name: p.detach().clone() for name, p in self.parameters.items()} if recipe.ema else {}
        self.best: dict[str, Tensor] = {}                         # the weights of the best evaluation
        self.worse = 0                                            # evaluations in a row that were not the best
        self.look_every = LOOK_EVERY.get(processes.device.type, LOOK_EVERY_ELSEWHERE)

    def go(self, resume: bool) -> Progress:
        first = self.resume() if resume else 0
        steps = self.recipe.steps
        if self.folder and self.processes.is_main:
            self.clear(anew=not resume)
        before, started = self.progress.seconds, time.perf_counter()
        unseen: list[_Unseen] = []
        self.model.train()
        with DeferredInterrupt((signal.SIGINT, signal.SIGTERM)) as interrupt:
            if self.unscored(first) and self.score(interrupt):        # the run was stopped while it evaluated this step
                self.save()
            over = self.patience_is_over()
            stream = self.shards(first)
            for step in range(first + 1, first + 1 if over else steps + 1):
                shards = list(islice(stream, self.recipe.accumulate))
                unseen.append(self.update(step, shards))
                evaluate = self.unscored(step)
                save = evaluate or step % self.recipe.save_every == 0
                if not (save or step % self.look_every == 0):
                    continue
                self.look(unseen)
                unseen = []
                stop = self.processes.any(interrupt.requested) or (evaluate and not self.score(interrupt))
                if step == steps and not self.unscored(step):
                    self.progress.ended = "steps"
                elif stop:
                    self.progress.ended = "interrupted"
                elif self.patience_is_over():
                    self.progress.ended = "patience"
                self.progress.seconds = before + time.perf_counter() - started
                if save or self.progress.ended:
                    self.save()
                self.tell()
                if self.progress.ended:
                    break
            else:                                                 # there was no step left
                self.progress.ended = "interrupted" if interrupt.requested else "patience" if over else "steps"
        self.finish()
        return self.progress

    def shards(self, done: int) -> Iterator["_Shard"]:
        """This process' micro-batches from the step after `done` on, step after step."""
        run_config, ahead = tee(self.run_config(done))                        # the loader reads ahead
        batches = loader(self.pairs, (pairs for _, pairs, _, _ in ahead), self.processes.device)
        for (number, pairs, share, tokens), batch in zip(run_config, batches, strict=True):
            yield _Shard(number, batch, share, tokens, pairs)

    def run_config(self, done: int) -> Iterator[tuple[int, list[int], float, int]]:
        """The number and the pairs of each, its share of the step's target tokens, and how many these are in all."""
        recipe, lengths = self.recipe, [len(pair.target) + 1 for pair in self.pairs]
        epochs = (epoch_batches(self.pairs, recipe.batch_tokens, recipe.seed, epoch) for epoch in count())
        a_step = recipe.accumulate * self.processes.count
        every = islice(enumerate(chain.from_iterable(epochs), start=1), done * a_step, None)
        while True:
            step = list(islice(every, a_step))
            tokens = [sum(lengths[i] for i in batch) for _, batch in step]
            for (number, batch), n in list(zip(step, tokens, strict=True))[self.processes.rank :: self.processes.count]:
                yield number, batch, n / sum(tokens), sum(tokens)

    def update(self, step: int, shards: Sequence[_Shard]) -> "_Unseen":
        """One step of the optimiser, and what it measured, not yet looked at."""
        recipe, losses = self.recipe, []
        for i, shard in enumerate(shards):
            torch.manual_seed((recipe.seed << 40) + shard.number)
            # Gradients travel between the processes once, after the last micro-batch.
            with self.travelling(last=i == len(shards) - 1):
                with torch.autocast(self.processes.device.type, _dtype(recipe), enabled=recipe.precision != "float32"):
                    loss = self.loss(*shard.batch) * shard.share
                # The processes' gradients are averaged, and should be added up.
                self.scaler.scale(loss * self.processes.count).backward()
            losses.append(loss.detach())
        self.progress.tokens += shards[0].tokens
        self.scaler.unscale_(self.optimizer)
        norm = gather(nn.utils.clip_grad_norm_(self.parameters.values(), recipe.clip))
        for group in self.optimizer.param_groups:
            group["lr"] = recipe.lr_at(step)
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.optimizer.zero_grad()
        if self.ema:
            with torch.no_grad():
                torch._foreach_lerp_(list(self.ema.values()), list(self.parameters.values()), 1 - recipe.ema)
        return _Unseen(step, torch.stack(losses), norm, [shard.pairs for shard in shards])

    @contextmanager
    def travelling(self, last: bool) -> Iterator[None]:
        if hasattr(self.loss, "set_requires_gradient_sync"):                          # FSDP2
            self.loss.set_requires_gradient_sync(last)
        stays = not last and hasattr(self.loss, "no_sync")                            # DDP
        with self.loss.no_sync() if stays else nullcontext():
            yield

    def look(self, unseen: Sequence["_Unseen"]) -> None:
        """Fetch the losses of the steps so far, and stop if one is no number, or its gradient is none."""
        own = torch.stack([step.losses for step in unseen]).float()                   # (n_steps, accumulate)
        losses = self.processes.sum(own.sum(dim=1)).tolist()
        norms = torch.stack([step.norm for step in unseen]).tolist()
        for i, (step, loss, norm) in enumerate(zip(unseen, losses, norms, strict=True)):
            # In fp16 a gradient overflows now and then, and the scaler leaves that step out.
            if not math.isfinite(loss) or not (math.isfinite(norm) or self.scaler.is_enabled()):
                # A gradient is the sum of all micro-batches': which of them spoiled it cannot be seen.
                bad = [math.isfinite(loss) or not ok for ok in own[i].isfinite().tolist()]
                pairs = [number for batch, is_bad in zip(step.pairs, bad, strict=True) if is_bad for number in batch]
                raise NonFiniteLoss(step.step, loss, norm, self.processes.gather(pairs))
            self.progress.steps.append(Step(step.step, loss, self.recipe.lr_at(step.step), norm))

    def weights(self) -> dict[str, Tensor]:
        """The weights to keep, whole, by name: averaged if the recipe says so."""
        return {name: gather(tensor.detach()) for name, tensor in (named_tensors(self.model) | self.ema).items()}

    def unscored(self, step: int) -> bool:
        """Whether this step asks for an evaluation that has not been."""
        wanted = step > 0 and (step == self.recipe.steps or step % self.recipe.evaluate_every == 0)
        return wanted and (not self.progress.scores or self.progress.scores[-1]["step"] != step)

    def patience_is_over(self) -> bool:
        return self.recipe.patience is not None and self.worse >= self.recipe.patience

    def score(self, interrupt: DeferredInterrupt) -> bool:
        """Evaluate, and keep the weights if they are the best so far. Without `evaluate` the last are the best.

        An evaluation is long, and changes nothing: Ctrl-C ends it at once, and then this returns False.
        """
        weights = self.weights()

        def ask() -> dict[str, float]:
            if self.replica is None or self.evaluate is None:
                return {}
            restore(self.replica, weights, "the averaged weights")
            self.replica.eval()
            # Only in here: a process that broke off while it talks to the others would leave them waiting.
            with torch.no_grad(), interrupt.immediately():
                return dict(self.evaluate(self.replica))

        try:
            scores: dict[str, float] = {"step": self.progress.step} | self.processes.broadcast_from_main(ask)
        except KeyboardInterrupt:
            return False
        if self.evaluate is not None and self.best_by not in scores:
            raise ValueError(f"best_by: got {self.best_by!r}, expected one of {', '.join(scores)}")
        better = self.evaluate is None or self.progress.best is None
        if not better:
            sign = -1 if self.best_by == "loss" else 1
            assert self.progress.best is not None
            better = sign * scores[self.best_by] > sign * self.progress.best[self.best_by]
        self.progress.scores.append(scores)
        self.worse = 0 if better else self.worse + 1
        if not better:
            return True
        self.progress.best = scores
        self.best = {name: tensor.cpu().clone() for name, tensor in weights.items()}
        if self.folder and self.processes.is_main:
            save_tensors(self.folder / WEIGHTS, self.best, {"scores": scores})
        return True

    def save(self) -> None:
        """All that it takes to go on from here."""
        if not self.folder:
            return
        tensors = {f"model.{name}": gather(tensor.detach()) for name, tensor in named_tensors(self.model).items()}
        for name, parameter in self.parameters.items():
            state = self.optimizer.state[parameter]
            tensors |= {f"optimizer.{moment}.{name}": gather(state[moment].detach()) for moment in MOMENTS}
        tensors |= {f"ema.{name}": gather(average) for name, average in self.ema.items()}
        now = self.progress
        weights = self.weights() if now.best is None else {}      # before an evaluation, too, there is something to use
        if not self.processes.is_main:
            return
        notes = {
            "recipe": asdict(self.recipe), "processes": self.processes.count, "step": now.step, "seconds": now.seconds,
            "tokens": now.tokens, "best": now.best, "worse": self.worse, "scaler": self.scaler.state_dict(),
        }  # fmt: skip
        # The checkpoint last: what is cut off between two of these has lines too many, which resuming leaves out.
        write_whole(self.folder / LOSSES, _table([step._asdict() for step in now.steps]))
        write_whole(self.folder / EVALUATIONS, _table(now.scores))
        save_tensors(self.folder / CHECKPOINT, tensors, notes)
        if weights:
            save_tensors(self.folder / WEIGHTS, weights, {"scores": None})

    def resume(self) -> int:
        """Go back to the folder's checkpoint; returns its step."""
        if not self.folder:
            raise ValueError("resume: got True without a folder, expected the folder of the run to go on with")
        path = self.folder / CHECKPOINT
        if not path.exists():
            raise CommandError(f"{path}: there is no such file, so nothing to go on from: begin anew, without resume")
        tensors, notes = load_tensors(path)
        if "recipe" not in notes:
            raise CommandError(f"{path}: no checkpoint of a run; restore the file, or begin anew")
        theirs, ours = notes["recipe"], json.loads(json.dumps(asdict(self.recipe)))
        # What may change between sessions: how long, and how often it looks around.
        free = {"steps", "evaluate_every", "save_every", "patience", "compile", "shard"}
        free -= {"steps"} if self.recipe.schedule == "cosine" else set()
        changed = [name for name in ours if name not in free and theirs.get(name) != ours[name]]
        if changed:
            said = ", ".join(f"{name} was {theirs.get(name)} and is {ours[name]}" for name in changed)
            raise CommandError(f"{path}: from a run with another recipe: {said}; go on with that one, or begin anew")
        micro = notes["processes"] * theirs["accumulate"], self.processes.count * self.recipe.accumulate
        if micro[0] != micro[1]:
            raise CommandError(f"{path}: a step had {micro[0]} micro-batches and would have {micro[1]}: other batches")
        restore(self.model, _beginning(tensors, "model."), str(path))
        moments = {moment: _beginning(tensors, f"optimizer.{moment}.") for moment in MOMENTS}
        for name, parameter in self.parameters.items():
            for moment in MOMENTS:
                copy_into(self.optimizer.state[parameter][moment], moments[moment][name])
        for name, average in self.ema.items():
            copy_into(average, tensors[f"ema.{name}"])
        self.scaler.load_state_dict(notes["scaler"])
        now, self.worse = self.progress, notes["worse"]
        now.seconds, now.tokens, now.best = notes["seconds"], notes["tokens"], notes["best"]
        now.steps = _rows(self.folder / LOSSES, notes["step"], Step)
        if len(now.steps) != notes["step"]:
            raise CommandError(f"{self.folder / LOSSES}: has {len(now.steps)} of {notes['step']} steps; {_RESTORE}")
        now.scores = _rows(self.folder / EVALUATIONS, notes["step"], dict)
        if now.best is not None:
            self.best = load_tensors(self.folder / WEIGHTS).tensors
        return notes["step"]

    def clear(self, anew: bool) -> None:
        """Take away what a killed process left half-written, and of an old run what might pass for a new one's."""
        assert self.folder
        for name in (CHECKPOINT, WEIGHTS, LOSSES, EVALUATIONS):
            remove_halves(self.folder / name)
            if anew:
                (self.folder / name).unlink(missing_ok=True)

    def tell(self) -> None:
        if self.processes.is_main:
            for listener in self.listeners:
                listener(self.progress)

    def finish(self) -> None:
        """Leave the best weights in the model."""
        if self.best:
            restore(self.model, self.best, WEIGHTS)
        self.model.eval()


class _Loss(nn.Module):
    """The model's loss as a module's forward, which is what DDP and FSDP hook into."""

    def __init__(self, model: nn.Module, compiled: bool, smoothing: float):
        super().__init__()
        self.model, self.smoothing = model, smoothing
        own: Any = model
        self.call: Callable[..., Tensor]
        if type(model) is EncoderDecoder:                         # a subclass may have another loss, or forward
            self.call = unpadded_loss(model, compiled, dynamic=True)
        elif hasattr(model, "loss"):
            self.call = torch.compile(own.loss, dynamic=True) if compiled else own.loss
        else:
            forward: Any = torch.compile(model, dynamic=True) if compiled else model
            self.call = lambda source, lengths, target_in, target_out, label_smoothing: token_loss(
                forward(source, lengths, target_in), target_out, label_smoothing=label_smoothing
            )

    def forward(self, *batch: Tensor) -> Tensor:
        return self.call(*batch, label_smoothing=self.smoothing)


def _dtype(recipe: Recipe) -> torch.dtype:
    return torch.float16 if recipe.precision == "fp16" else torch.bfloat16


def _beginning(tensors: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}


def _table(rows: Sequence[Mapping[str, float]]) -> bytes:
    text = io.StringIO(newline="")
    if rows:
        writer = csv.DictWriter(text, rows[0])
        writer.writeheader()
        writer.writerows(rows)
    return text.getvalue().encode()


_RESTORE = "resuming needs it whole: restore it, or begin anew"


def _rows(path: Path, last: int, make: Callable[..., T]) -> list[T]:
    """The table's lines up to step `last`. Raises CommandError where it cannot be read, or a line is damaged."""
    try:
        read = list(csv.DictReader(path.read_text("utf-8").splitlines()))
        rows = [{key: float(value) for key, value in row.items()} | {"step": int(float(row["step"]))} for row in read]
        return [make(**row) for row in rows if row["step"] <= last]
    except OSError as error:
        raise CommandError(f"{path}: cannot be read ({error.strerror}); {_RESTORE}") from error
    except (ValueError, KeyError, TypeError) as error:
        raise CommandError(f"{path}: damaged; {_RESTORE}") from error


def _check_pairs(pairs: Sequence[EncodedPair], max_positions: int | None) -> None:
    if not pairs:
        raise ValueError("pairs: got none, expected at least one")
    for i, pair in enumerate(pairs):
        if not pair.source:
            raise ValueError(f"pairs[{i}]: got an empty source, expected at least one token")
        if max_positions is not None and (n := max(len(pair.source), len(pair.target) + 1)) > max_positions:
            raise ValueError(f"pairs[{i}]: got {n} tokens, expected at most {max_positions}, the model's positions")
