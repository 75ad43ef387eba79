"""Tensors and notes in one file, written whole or not at all; and a model's tensors by name, wherever they lie."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from commandkit import files
from commandkit.errors import CommandError, require_extra

with require_extra("training runs", "train"):
    from safetensors import SafetensorError, safe_open
    from safetensors.torch import save


class Saved(NamedTuple):
    tensors: dict[str, Tensor]
    notes: dict[str, Any]


def write_whole(path: Path, content: bytes) -> None:
    """Replace a file by `content` in one move. CommandError where it cannot be written, with the old file as it was."""
    try:
        files.write_whole(path, content)
    except OSError as error:
        said = f"{path}: cannot be written ({error.strerror}); what was there before is intact"
        raise CommandError(said) from error


def remove_halves(path: Path) -> None:
    """Take away what a process that was killed in `write_whole` left of this file."""
    for half in path.parent.glob(f".{path.name}-*.part"):
        half.unlink(missing_ok=True)


def save_tensors(path: Path, tensors: Mapping[str, Tensor], notes: Mapping[str, Any]) -> None:
    """Write tensors and JSON-able `notes` as one safetensors file, by `write_whole`."""
    plain = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    write_whole(path, save(plain, metadata={"notes": json.dumps(notes)}))


def load_tensors(path: Path) -> Saved:
    """What `save_tensors` wrote. Raises CommandError for a file that is missing, cut short, or something else."""
    try:
        with safe_open(path, framework="pt") as file:
            notes = json.loads((file.metadata() or {}).get("notes", "{}"))
            return Saved({name: file.get_tensor(name) for name in file.keys()}, notes)  # noqa: SIM118 (it is no dict)
    except FileNotFoundError as error:
        raise CommandError(f"{path}: there is no such file") from error
    except (SafetensorError, OSError, ValueError) as error:
        raise CommandError(f"{path}: cut short, or no safetensors file ({error})") from error


def named_tensors(model: nn.Module) -> dict[str, Tensor]:
    """What a model has learned, by name: its parameters, each once however many names it has, and saved buffers."""
    saved = model.state_dict(keep_vars=True)
    return dict(model.named_parameters()) | {name: b for name, b in model.named_buffers() if name in saved}


@torch.no_grad()
def restore(model: nn.Module, tensors: Mapping[str, Tensor], origin: str) -> None:
    """Copy tensors into a model. Raises CommandError, before anything is copied, where names or shapes do not fit."""
    own = named_tensors(model)
    if wrong := sorted(own.keys() ^ tensors.keys()):
        where = "the model lacks" if wrong[0] in tensors else "lacks"
        raise CommandError(f"{origin}: from a model of another config: {where} {wrong[0]} ({len(wrong)} names differ)")
    for name, tensor in own.items():
        if tensor.shape != tensors[name].shape:
            got, expected = tuple(tensors[name].shape), tuple(tensor.shape)
            raise CommandError(f"{origin}: from a model of another config: {name} is {got}, the model's is {expected}")
    for name, tensor in own.items():
        copy_into(tensor, tensors[name])


@torch.no_grad()
def copy_into(tensor: Tensor, whole: Tensor) -> None:
    """Copy a whole tensor into one that may be split among processes (all of them call this)."""
    if hasattr(tensor, "device_mesh") and hasattr(tensor, "placements"):
        from torch.distributed.tensor import distribute_tensor

        whole = distribute_tensor(whole.to(tensor.device), tensor.device_mesh, tensor.placements)
    tensor.copy_(whole)


def gather(tensor: Tensor) -> Tensor:
    """A tensor that may be split among processes, whole (all of them call this)."""
    return tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor
