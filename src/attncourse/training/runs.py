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

from attncourse.data import Tokenizer
from attncourse.training.checkpoints import load_tensors, restore, write_whole
from attncourse.training.persistence import WEIGHTS
from attncourse.training.recipe import Recipe
from attncourse.transformer import EncoderDecoder, TransformerConfig
from commandkit.errors import CommandError

CONFIG, METRICS, ENVIRONMENT = "config.json", "metrics.json", "environment.json"
TOKENIZERS = ("tokenizer_source.json", "tokenizer_target.json")
PACKAGES = ("attncourse", "torch", "tokenizers", "safetensors", "sacrebleu", "numpy")


class RunConfig(NamedTuple):
    """What a run is made from; config.json holds it. `data` says which pairs, and how large the vocabularies are."""

    model: TransformerConfig
    recipe: Recipe
    data: dict[str, Any]


class Run(NamedTuple):
    """A trained model with all that it takes to translate."""

    model: EncoderDecoder
    source: Tokenizer
    target: Tokenizer
    run_config: RunConfig


def save_run_config(
    folder: Path, run_config: RunConfig, source: Tokenizer, target: Tokenizer, device: torch.device
) -> None:
    """What is known before the first step: config, tokenizers, and the environment."""
    save_config(folder, run_config)
    for name, tokenizer in zip(TOKENIZERS, (source, target), strict=True):
        write_whole(folder / name, tokenizer.to_json().encode())
    write_json(folder / ENVIRONMENT, environment(device))


def save_config(folder: Path, run_config: RunConfig) -> None:
    parts = {"model": asdict(run_config.model), "recipe": asdict(run_config.recipe), "data": run_config.data}
    write_json(folder / CONFIG, parts)


def load_run_config(folder: Path) -> RunConfig:
    """Raises CommandError for a folder that holds no run, or another version's."""
    path = folder / CONFIG
    try:
        plain = json.loads(path.read_text("utf-8"))
        recipe = plain["recipe"] | {"betas": tuple(plain["recipe"]["betas"])}
        return RunConfig(TransformerConfig(**plain["model"]), Recipe(**recipe), plain["data"])
    except FileNotFoundError as error:
        raise CommandError(f"{folder}: holds no run; `attncourse train --to {folder}` makes one") from error
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CommandError(f"{path}: cannot be used: {error}") from error


def load_tokenizers(folder: Path, config: TransformerConfig) -> tuple[Tokenizer, Tokenizer]:
    """Raises CommandError for a file that is missing, no tokenizer, or not this model's."""
    loaded = []
    for name, words in zip(TOKENIZERS, (config.vocab_size, config.decoder_vocab_size), strict=True):
        try:
            tokenizer = Tokenizer.load(folder / name)
        except Exception as error:                                # the library raises bare Exceptions
            raise CommandError(f"{folder / name}: cannot be used: {error}") from error
        if len(tokenizer) != words:
            raise CommandError(f"{folder / name}: of another run: has {len(tokenizer)} tokens, the model {words}")
        loaded.append(tokenizer)
    return loaded[0], loaded[1]


def load_run(folder: Path | str, device: str | torch.device = "cpu") -> Run:
    """The run's model with its best weights, ready to translate.

    Raises CommandError where something is missing, cut short, or does not fit the rest.
    """
    folder = Path(folder)
    run_config = load_run_config(folder)
    source, target = load_tokenizers(folder, run_config.model)
    model = EncoderDecoder(run_config.model)
    restore(model, load_tensors(folder / WEIGHTS).tensors, str(folder / WEIGHTS))
    return Run(model.to(device).eval(), source, target, run_config)


def newest_run() -> Path:
    """The run under runs/ that was improved last. Raises CommandError where there is none."""
    found = sorted(Path("runs").glob(f"*/{WEIGHTS}"), key=lambda path: path.stat().st_mtime)
    if not found:
        raise CommandError("there is no run under runs/: `attncourse train` makes one, or name one with --run DIR")
    return found[-1].parent


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
