"""What a model is trained on: which device there is, in which precision it is fast, and what its data sheet says."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal, cast

import torch

Precision = Literal["float32", "bf16", "fp16"]


@dataclass(frozen=True)
class Chip:
    """A GPU as its maker describes it. Dense products: without "structured sparsity", which doubles what is printed."""

    flops: dict[str, float]
    """Operations a second in matrix products, by number format: "float32", "tf32", "bf16", "fp16"."""
    bandwidth: float
    """Bytes a second between its memory and its processors."""
    memory: float
    """Bytes."""
    source: str

    @property
    def balance(self) -> dict[str, float]:
        """FLOPs that it can do in the time in which it moves one byte, by number format: the roofline's corner."""
        return {kind: flops / self.bandwidth for kind, flops in self.flops.items()}


CHIPS = {
    "T4": Chip(
        {"float32": 8.1e12, "fp16": 65e12}, 320e9, 16e9,
        "NVIDIA Turing GPU Architecture, white paper WP-09183-001 (2018), appendix on the Tesla T4",
    ),
    "A100": Chip(
        {"float32": 19.5e12, "tf32": 156e12, "bf16": 312e12, "fp16": 312e12}, 1555e9, 40e9,
        "NVIDIA A100 Tensor Core GPU, data sheet (2021), the 40 GB SXM edition",
    ),
    "H100": Chip(
        {"float32": 66.9e12, "tf32": 494.7e12, "bf16": 989.4e12, "fp16": 989.4e12}, 3350e9, 80e9,
        "NVIDIA H100 Tensor Core GPU, data sheet and architecture white paper (2022), the SXM5 edition",
    ),
}  # fmt: skip
"""Three that many people meet: a hosted notebook's free one, a cluster's, a large cluster's."""


def best_device() -> torch.device:
    """A CUDA GPU if there is one, else Apple's (Metal), else the CPU."""
    if torch.cuda.is_available():
        return torch.device("cuda")
    return torch.device("mps" if torch.backends.mps.is_available() else "cpu")


def best_precision(device: torch.device) -> Precision:
    """The format to compute in: bf16 where it is native, fp16 (with a loss scale) on older CUDA GPUs, else float32.

    torch emulates bf16 on a GPU that lacks it, a T4 for instance: it computes the right thing, slowly.
    """
    if device.type != "cuda":
        return "float32"
    return "bf16" if torch.cuda.is_bf16_supported(including_emulation=False) else "fp16"


def settle_precision(wanted: str, device: torch.device) -> Precision:
    """`wanted`, or `best_precision` for "auto". Raises ValueError for bf16 on a GPU that would have to emulate it."""
    if wanted == "auto":
        return best_precision(device)
    if wanted == "bf16" and device.type == "cuda" and best_precision(device) != "bf16":
        name = torch.cuda.get_device_name(device)
        raise ValueError(f"precision: got 'bf16' on {name}, which would emulate it, slowly; expected 'fp16' or 'auto'")
    return cast(Precision, wanted)


def chip_of(device: torch.device) -> Chip | None:
    """The data sheet of this device, if `CHIPS` has it."""
    if device.type != "cuda":
        return None
    name = torch.cuda.get_device_name(device)
    return next((chip for short, chip in CHIPS.items() if short in name.replace("-", " ").split()), None)


def synchronize(device: torch.device) -> None:
    """Wait until the device has done all that was asked of it. A CPU has always done it."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    elif device.type == "mps":
        torch.mps.synchronize()


def peak_flops(device: torch.device, precision: Precision) -> float | None:
    """Operations a second at most, by the data sheet of this device; None where there is none, or it has no such line.

    Products of float32 count as TF32 where there is that: `fast_float32` lets the GPU use it.
    """
    chip = chip_of(device)
    if chip is None:
        return None
    kind = "tf32" if precision == "float32" and "tf32" in chip.flops else precision
    return chip.flops.get(kind)


def peak_memory(device: torch.device) -> int | None:
    """The most bytes that tensors have taken on this GPU so far; None elsewhere, where torch does not count them."""
    return torch.cuda.max_memory_allocated(device) if device.type == "cuda" else None


@contextmanager
def fast_float32(device: torch.device) -> Iterator[None]:
    """As long as this lasts, a CUDA GPU multiplies float32 matrices as TF32: 10 bits of mantissa, several times faster.

    https://docs.pytorch.org/docs/stable/generated/torch.set_float32_matmul_precision.html
    """
    before = torch.get_float32_matmul_precision()
    if device.type == "cuda":
        torch.set_float32_matmul_precision("high")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def is_out_of_memory(error: BaseException) -> bool:
    """Whether a device, or the machine itself, had no memory left. (Only CUDA has an exception of its own for it.)"""
    said = str(error)
    return isinstance(error, (torch.OutOfMemoryError, MemoryError)) or (
        isinstance(error, RuntimeError) and ("out of memory" in said or "DefaultCPUAllocator: can't allocate" in said)
    )
