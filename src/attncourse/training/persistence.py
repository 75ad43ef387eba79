"""What a run keeps in its folder, so that it can be killed at any step and go on."""

import csv
import io
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

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
from attncourse.training.distributed import DistributedContext
from attncourse.training.progress import Progress, Step
from attncourse.training.recipe import Recipe
from commandkit.errors import CommandError

CHECKPOINT, WEIGHTS, LOSSES, EVALUATIONS = "checkpoint.safetensors", "weights.safetensors", "losses.csv", "scores.csv"
MOMENTS = ("step", "exp_avg", "exp_avg_sq")
# What may change between sessions: how long, how often it looks around, and how the machine goes about it.
FREE = {
    "steps", "evaluate_every", "save_every", "patience", "compile", "shard", "activation_checkpointing",
}  # fmt: skip

T = TypeVar("T")


class RunFolder:
    """The folder of a run, and what of the run is kept there: all processes call its methods, the first one writes."""

    def __init__(
        self,
        path: Path,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        ema: Mapping[str, Tensor],
        scaler: torch.amp.GradScaler,
        processes: DistributedContext,
    ):
        self.path, self.model, self.optimizer, self.ema = path, model, optimizer, ema
        self.scaler, self.processes = scaler, processes

    def clear(self, anew: bool) -> None:
        """Take away what a killed process left half-written, and of an old run what might pass for a new one's."""
        for name in (CHECKPOINT, WEIGHTS, LOSSES, EVALUATIONS):
            remove_halves(self.path / name)
            if anew:
                (self.path / name).unlink(missing_ok=True)

    def save_weights(self, weights: Mapping[str, Tensor], scores: Mapping[str, float] | None) -> None:
        """The weights to use, whether the run goes on or not."""
        if self.processes.is_main:
            save_tensors(self.path / WEIGHTS, weights, {"scores": scores})

    def save(self, now: Progress, weights: Callable[[], Mapping[str, Tensor]]) -> None:
        """All that it takes to go on from here; and `weights`, as long as no evaluation has chosen any."""
        tensors = {f"model.{name}": gather(tensor.detach()) for name, tensor in named_tensors(self.model).items()}
        for name, parameter in self.model.named_parameters():
            state = self.optimizer.state[parameter]
            tensors |= {f"optimizer.{moment}.{name}": gather(state[moment].detach()) for moment in MOMENTS}
        tensors |= {f"ema.{name}": gather(average) for name, average in self.ema.items()}
        chosen = weights() if now.best is None else {}
        if not self.processes.is_main:
            return
        notes = {
            "recipe": asdict(now.recipe), "processes": self.processes.count, "step": now.step, "seconds": now.seconds,
            "tokens": now.tokens, "best": now.best, "worse": now.worse, "scaler": self.scaler.state_dict(),
        }  # fmt: skip
        # The checkpoint last: what is cut off between two of these has lines too many, which resuming leaves out.
        write_whole(self.path / LOSSES, _table([vars(step) for step in now.steps]))
        write_whole(self.path / EVALUATIONS, _table(now.scores))
        save_tensors(self.path / CHECKPOINT, tensors, notes)
        if chosen:
            self.save_weights(chosen, None)

    def resume(self, now: Progress) -> dict[str, Tensor]:
        """Go back to the checkpoint. Returns the best weights so far, if there are any.

        Raises CommandError for a folder without one, or one that does not fit, or is damaged.
        """
        path = self.path / CHECKPOINT
        if not path.exists():
            raise CommandError(f"{path}: there is no such file, so nothing to go on from: begin anew, without resume")
        tensors, notes = load_tensors(path)
        if "recipe" not in notes:
            raise CommandError(f"{path}: no checkpoint of a run; restore the file, or begin anew")
        _check_recipe(path, notes, now.recipe, self.processes.count)
        restore(self.model, _beginning(tensors, "model."), str(path))
        moments = {moment: _beginning(tensors, f"optimizer.{moment}.") for moment in MOMENTS}
        for name, parameter in self.model.named_parameters():
            for moment in MOMENTS:
                copy_into(self.optimizer.state[parameter][moment], moments[moment][name])
        for name, average in self.ema.items():
            copy_into(average, tensors[f"ema.{name}"])
        if notes["scaler"]:                                       # none where "auto" meant another format
            self.scaler.load_state_dict(notes["scaler"])
        now.seconds, now.tokens, now.best, now.worse = notes["seconds"], notes["tokens"], notes["best"], notes["worse"]
        now.steps = _rows(self.path / LOSSES, notes["step"], Step)
        if len(now.steps) != notes["step"]:
            raise CommandError(f"{self.path / LOSSES}: has {len(now.steps)} of {notes['step']} steps; {_RESTORE}")
        now.scores = _rows(self.path / EVALUATIONS, notes["step"], dict)
        return {} if now.best is None else load_tensors(self.path / WEIGHTS).tensors


def _check_recipe(path: Path, notes: Mapping[str, Any], recipe: Recipe, processes: int) -> None:
    theirs, ours = notes["recipe"], json.loads(json.dumps(asdict(recipe)))
    free = FREE - {"steps"} if recipe.schedule == "cosine" else FREE
    changed = [name for name in ours if name not in free and theirs.get(name) != ours[name]]
    if changed:
        said = ", ".join(f"{name} was {theirs.get(name)} and is {ours[name]}" for name in changed)
        raise CommandError(f"{path}: from a run with another recipe: {said}; go on with that one, or begin anew")
    micro = notes["processes"] * theirs["accumulate"], processes * recipe.accumulate
    if micro[0] != micro[1]:
        raise CommandError(f"{path}: a step had {micro[0]} micro-batches and would have {micro[1]}: other batches")


def _beginning(tensors: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}


def _table(rows: Sequence[Mapping[str, float | None]]) -> bytes:
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
        numbers = [{key: float(value) for key, value in row.items() if value != ""} for row in read]  # "": not known
        return [make(**row | {"step": int(row["step"])}) for row in numbers if row["step"] <= last]
    except OSError as error:
        raise CommandError(f"{path}: cannot be read ({error.strerror}); {_RESTORE}") from error
    except (ValueError, KeyError, TypeError) as error:
        raise CommandError(f"{path}: damaged; {_RESTORE}") from error
