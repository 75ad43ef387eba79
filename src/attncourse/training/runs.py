"""A saved run is one folder: what was built, on what, with what, and what it learned."""

import json
import platform
import shlex
import sys
import time
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, NamedTuple

import torch

from attncourse._checks import check_one_of
from attncourse.data import Tokenizer
from attncourse.training.checkpoints import load_tensors, restore, write_whole
from attncourse.training.persistence import WEIGHTS
from attncourse.training.recipe import Recipe
from attncourse.training.tasks import TASKS, Task, TaskName
from attncourse.transformer import TransformerConfig
from commandkit.errors import CommandError

CONFIG, METRICS, ENVIRONMENT = "config.json", "metrics.json", "environment.json"
PACKAGES = ("attncourse", "torch", "tokenizers", "safetensors", "sacrebleu", "numpy")


class RunConfig(NamedTuple):
    """What a run is made from; config.json holds it. `data` says on what, and how large the vocabularies are."""

    model: TransformerConfig
    recipe: Recipe
    data: dict[str, Any]
    task_name: TaskName = "translation"

    @property
    def task(self) -> Task:
        return TASKS[self.task_name]


class Run(NamedTuple):
    """A trained model with all that it takes to use it: an EncoderDecoder, or a LanguageModel with one tokenizer."""

    model: Any
    tokenizers: tuple[Tokenizer, ...]
    run_config: RunConfig

    @property
    def source(self) -> Tokenizer:
        return self.tokenizers[0]

    @property
    def target(self) -> Tokenizer:
        """A language model's is the one that it has."""
        return self.tokenizers[-1]


def save_run_config(
    folder: Path, run_config: RunConfig, tokenizers: tuple[Tokenizer, ...], device: torch.device
) -> None:
    """What is known before the first step: config, tokenizers, and the environment."""
    save_config(folder, run_config)
    for name, tokenizer in zip(run_config.task.tokenizers, tokenizers, strict=True):
        write_whole(folder / name, tokenizer.to_json().encode())
    write_json(folder / ENVIRONMENT, environment(device))


def save_described(
    folder: Path, model: Any, recipe: Recipe, tokenizers: Tokenizer | tuple[Tokenizer, Tokenizer]
) -> None:
    """As `save_run_config`, of a model that was made in Python.

    Raises ValueError for a model that is not exactly one that `load_run` could make again, or other tokenizers' sizes.
    """
    name = next((name for name, task in TASKS.items() if type(model) is task.model), None)
    if name is None:
        expected = " or ".join(task.model.__name__ for task in TASKS.values())
        raise ValueError(f"tokenizers: got some for a {type(model).__name__}, expected a model that is an {expected}")
    expected_number = len(TASKS[name].tokenizers)
    both = tokenizers if isinstance(tokenizers, tuple) else (tokenizers,) * expected_number
    sizes = model.config.vocab_size, model.config.decoder_vocab_size
    for tokenizer, size in zip(both, sizes[: len(both)], strict=True):
        if len(tokenizer) != size:
            raise ValueError(f"tokenizers: got one of {len(tokenizer)} tokens, expected {size}, as the model has")
    if len(both) != expected_number:
        raise ValueError(f"tokenizers: got {len(both)}, expected {expected_number} for a {type(model).__name__}")
    made = RunConfig(model.config, recipe, {"name": "python"}, name)
    save_run_config(folder, made, both, next(model.parameters()).device)


def save_config(folder: Path, run_config: RunConfig) -> None:
    parts = {"model": asdict(run_config.model), "recipe": asdict(run_config.recipe), "data": run_config.data}
    write_json(folder / CONFIG, {"task": run_config.task_name, **parts})


def load_run_config(folder: Path) -> RunConfig:
    """Raises CommandError for a folder that holds no run, or another version's."""
    path = folder / CONFIG
    try:
        plain = json.loads(path.read_text("utf-8"))
        recipe = plain["recipe"] | {"betas": tuple(plain["recipe"]["betas"])}
        name = plain.get("task", "translation")
        check_one_of("task", name, tuple(TASKS))
        return RunConfig(TransformerConfig(**plain["model"]), Recipe(**recipe), plain["data"], name)
    except FileNotFoundError as error:
        raise CommandError(f"{folder}: holds no run; `attncourse train --to {folder}` makes one") from error
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CommandError(f"{path}: cannot be used: {error}") from error


def load_tokenizers(folder: Path, run_config: RunConfig) -> tuple[Tokenizer, ...]:
    """Raises CommandError for a file that is missing, no tokenizer, or not this model's."""
    loaded, sizes = [], (run_config.model.vocab_size, run_config.model.decoder_vocab_size)
    for name, words in zip(run_config.task.tokenizers, sizes, strict=False):
        try:
            tokenizer = Tokenizer.load(folder / name)
        except Exception as error:                                # the library raises bare Exceptions
            raise CommandError(f"{folder / name}: cannot be used: {error}") from error
        if len(tokenizer) != words:
            raise CommandError(f"{folder / name}: of another run: has {len(tokenizer)} tokens, the model {words}")
        loaded.append(tokenizer)
    return tuple(loaded)


def load_run(folder: Path | str, device: str | torch.device = "cpu", task: TaskName | None = None) -> Run:
    """The run's model with its best weights, ready to translate or to write.

    Raises CommandError where something is missing, cut short, or does not fit the rest, or for a run of another task.
    """
    folder = Path(folder)
    run_config = load_run_config(folder)
    if task not in (None, run_config.task_name):
        raise CommandError(f"{folder}: is a run of the task {run_config.task_name!r}, expected {task!r}")
    tokenizers = load_tokenizers(folder, run_config)
    model = run_config.task.model(run_config.model)
    restore(model, load_tensors(folder / WEIGHTS).tensors, str(folder / WEIGHTS))
    return Run(model.to(device).eval(), tokenizers, run_config)


def newest_run(task: TaskName = "translation") -> Path:
    """The run of this task under runs/ that was improved last. Raises CommandError where there is none."""
    found = sorted(Path("runs").glob(f"*/{WEIGHTS}"), key=lambda path: path.stat().st_mtime)
    fit = [path.parent for path in found if load_run_config(path.parent).task_name == task]
    if not fit:
        command = "attncourse train" if task == "translation" else "attncourse train --text FILE"
        raise CommandError(f"there is no run under runs/: `{command}` makes one, or name one with --run DIR")
    return fit[-1]


def environment(device: torch.device) -> dict[str, Any]:
    """What a figure depends on besides the code: versions, machine, date, command."""
    return {
        "date": time.strftime("%Y-%m-%d %H:%M:%S %z"),
        "command": shlex.join(["attncourse", *sys.argv[1:]]),
        "device": _device_name(device),
        "threads": torch.get_num_threads(),
        "python": platform.python_version(),
        "versions": {name: _version(name) for name in PACKAGES},
    }


def _device_name(device: torch.device) -> str:
    return torch.cuda.get_device_name(device) if device.type == "cuda" else f"{device.type} ({platform.machine()})"


def write_json(path: Path, content: Any) -> None:
    write_whole(path, (json.dumps(content, indent=2, ensure_ascii=False) + "\n").encode())


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None
