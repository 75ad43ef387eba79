"""The processes of one run: one, or as many as `torchrun` started, on one machine or several."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn

from attncourse.training.hardware import best_device
from commandkit.errors import CommandError

T = TypeVar("T")


@dataclass(frozen=True)
class DistributedContext:
    """Which of how many processes this is, and the device it has to itself."""

    rank: int
    count: int
    device: torch.device

    @property
    def is_main(self) -> bool:
        """Whether this process writes files and talks to people."""
        return self.rank == 0

    def sum(self, tensor: Tensor) -> Tensor:
        if self.count > 1:
            dist.all_reduce(tensor)
        return tensor

    def any(self, here: bool) -> bool:
        """Whether it is so in any of the processes."""
        return bool(self.sum(torch.tensor(float(here), device=self.device))) if self.count > 1 else here

    def gather(self, numbers: list[int]) -> list[int]:
        """The lists of all processes, one after the other."""
        if self.count == 1:
            return numbers
        parts: list[list[int]] = [[]] * self.count
        dist.all_gather_object(parts, numbers)
        return [number for part in parts for number in part]

    def broadcast_from_main(self, make: Callable[[], T]) -> T:
        """What the first process makes of it, in all of them; an error of the first is an error of all."""
        if self.count == 1:
            return make()
        made: list = [None, None]
        if self.is_main:
            try:
                made[0] = make()
            except (Exception, KeyboardInterrupt) as error:
                made[1] = error
        dist.broadcast_object_list(made, src=0, device=self.device)
        if made[1] is not None:
            raise made[1]
        return made[0]


@contextmanager
def distributed_context(device: str | None = None) -> Iterator[DistributedContext]:
    """Join the processes that `torchrun` started, or be the only one. `device` is a GPU where there is one.

    Each process takes the CUDA GPU of its number on its machine; without such GPUs they talk by gloo.
    Raises CommandError for a device that there is not.
    """
    if "RANK" not in os.environ:
        yield DistributedContext(0, 1, _usable(device or str(best_device())))
        return
    gpu = torch.cuda.is_available() if device is None else device.startswith("cuda")
    own = _usable(f"cuda:{os.environ['LOCAL_RANK']}" if gpu else "cpu")
    if gpu:
        torch.cuda.set_device(own)
    # While the first process evaluates the others wait, longer than the ten minutes after which NCCL gives up.
    dist.init_process_group("nccl" if gpu else "gloo", timeout=timedelta(hours=2))
    try:
        yield DistributedContext(dist.get_rank(), dist.get_world_size(), own)
    finally:
        dist.destroy_process_group()


def _usable(name: str) -> torch.device:
    try:
        device = torch.device(name)
        torch.ones(1, device=device).item()                       # "meta" has no numbers
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        why = str(error).partition("\n")[0]
        expected = "cpu, or cuda (cuda:1 …) or mps with such a GPU"
        raise CommandError(f"device: got {name!r}, expected {expected} ({why})") from error
    return device


def wrap_parallel(module: nn.Module, model: nn.Module, processes: DistributedContext, shard: bool) -> Any:
    """`module`, which calls `model`, so that its gradients are averaged over the processes.

    DistributedDataParallel, or, with `shard`, FSDP2: each block of the model is gathered when it is needed.
    """
    if processes.count == 1:
        return module
    if not shard:
        # The buffers are tables of positions, which no step changes: the first process need not send its own again.
        return nn.parallel.DistributedDataParallel(module, gradient_as_bucket_view=True, forward_sync_buffers=False)
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh(processes.device.type, (processes.count,))
    for stack in [part for part in model.modules() if isinstance(part, nn.ModuleList)]:
        for block in stack:
            fully_shard(block, mesh=mesh)
    return fully_shard(module, mesh=mesh)
