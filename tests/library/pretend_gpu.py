"""A GPU for a machine without one: tensors that are said to be elsewhere, refuse to mix with the CPU's, count waits.

A `Remote` tensor claims torch's device "meta", which the library knows as little as it knows a real GPU, and holds its
numbers in a tensor of the CPU; so what is computed can be compared with what the CPU computes. While a `PretendGPU` is
active it sees every operation of torch, backward ones too.
"""

from collections import Counter
from copy import deepcopy

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode, return_and_correct_aliasing
from torch.utils._pytree import tree_leaves, tree_map

DEVICE = torch.device("meta")
aten = torch.ops.aten
# What cannot be answered before the GPU has computed all that came before: a number, or how many there are.
WAITS = {aten._local_scalar_dense, aten.nonzero, aten.masked_select, aten._unique2, aten.equal, aten.repeat_interleave}
# These take tensors of both devices. cuDNN wants to know the lengths of what it reads on the CPU.
PACKING = {aten._pack_padded_sequence, aten._pad_packed_sequence, aten._pack_padded_sequence_backward}
BOTH = {aten._to_copy, aten.copy_, *PACKING}


class Mixed(AssertionError):
    """An operation met tensors of both devices. On a real GPU torch raises, or copies in silence, and waits."""


class Remote(torch.Tensor):
    @staticmethod
    def __new__(cls, local):
        made = torch.Tensor._make_wrapper_subclass(
            cls, local.size(), strides=local.stride(), storage_offset=local.storage_offset(), dtype=local.dtype,
            device=DEVICE, requires_grad=local.requires_grad,
        )  # fmt: skip
        made.local = local
        return made

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        return compute(func, args, kwargs or {})

    def __repr__(self, *, tensor_contents=None):
        return f"Remote({self.local!r})"


class PretendGPU(TorchDispatchMode):
    """Raises Mixed; counts in `waits` what has to be waited for, and in `made` the tensors made on the CPU."""

    def __init__(self):
        super().__init__()
        self.waits, self.made = Counter(), Counter()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        remote, local = tensors(args, kwargs)
        op, wanted = func.overloadpacket, kwargs.get("device")
        if op not in BOTH and remote and any(x.ndim for x in local):
            raise Mixed(f"{func}: {[tuple(x.shape) for x in remote]} there, {[tuple(x.shape) for x in local]} here")
        if remote and (op in WAITS or (op is aten.index and any(x.dtype == torch.bool for x in tree_leaves(args[1:])))):
            self.waits[op.__name__] += 1
        if op is aten._to_copy and wanted is not None and not kwargs.get("non_blocking"):
            self.waits["copy to the CPU"] += bool(remote) and wanted.type == "cpu"
            self.waits["copy from the CPU"] += bool(local) and wanted == DEVICE
        if op is aten.copy_ and remote and local:
            self.waits["copy between them"] += 1
        if not remote and not local and wanted is not None and wanted != DEVICE:
            self.made[op.__name__] += 1
        return compute(func, args, kwargs)


def tensors(*arguments):
    """Those there, and those here."""
    found = [x for x in tree_leaves(arguments) if isinstance(x, torch.Tensor)]
    return [x for x in found if isinstance(x, Remote)], [x for x in found if not isinstance(x, Remote)]


def compute(func, args, kwargs):
    remote, _ = tensors(args, kwargs)
    there = bool(remote)
    if (wanted := kwargs.get("device")) is not None:
        there = wanted == DEVICE
    plain = {name: torch.device("cpu") if x == DEVICE else x for name, x in kwargs.items()}
    out = func(*tree_map(_local, args), **tree_map(_local, plain))
    if not there:
        return out
    if func.overloadpacket is aten._pack_padded_sequence:
        return Remote(out[0]), out[1]
    wrapped = tree_map(lambda x: Remote(x) if isinstance(x, torch.Tensor) else x, out)
    return return_and_correct_aliasing(func, args, kwargs, wrapped) if remote else wrapped


def _local(x):
    return x.local if isinstance(x, Remote) else x


def send(model: nn.Module) -> nn.Module:
    """A copy of the model there. What is one parameter under two names stays one."""
    model, sent = deepcopy(model), {}
    for module in model.modules():
        for name, parameter in list(module._parameters.items()):
            if parameter is not None:
                if parameter not in sent:
                    sent[parameter] = nn.Parameter(Remote(parameter.detach().clone()))
                setattr(module, name, sent[parameter])
        for name, buffer in list(module._buffers.items()):
            if buffer is not None:
                module._buffers[name] = Remote(buffer.clone())
    return model


def there(*tensors):
    return tuple(Remote(x.clone()) for x in tensors)


def here(tree):
    """What came back, on the CPU, without counting."""
    return tree_map(lambda x: x.local if isinstance(x, Remote) else x, tree)
