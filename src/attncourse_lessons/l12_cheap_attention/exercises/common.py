"""What several exercises of this lesson share: inputs, references, and words."""

import math

import torch
from torch import Tensor

READY_MADE = (
    "attncourse.attention",
    "attncourse.efficient",
    "attncourse.transformer",
    "torch.nn.functional.scaled_dot_product_attention",
    "torch.nn.functional.multi_head_attention_forward",
    "torch.nn.MultiheadAttention",
)

def start(*shape: int) -> tuple[Tensor, Tensor]:
    """Nothing seen yet."""
    return torch.full((*shape, 1), -math.inf), torch.zeros(*shape, 1)

def truth(got, expected):
    """For masks: says where the first wrong truth value stands."""
    place = tuple(int(i) for i in torch.from_numpy(got != expected).nonzero()[0])
    return f"at {list(place)} it says {bool(got[place])}, expected {bool(expected[place])}"

def features(x: Tensor) -> Tensor:
    """The notebook's own φ."""
    return torch.nn.functional.elu(x) + 1

def norm(x: Tensor) -> Tensor:
    """The notebook's own: an RMSNorm without a gain."""
    return x / (x.square().mean(dim=-1, keepdim=True) + 1e-6).sqrt()

def rotate(x: Tensor, positions: Tensor) -> Tensor:
    """The notebook's own: rotary position embeddings (Su et al. 2021) of x, (batch, n_heads, n, d_head)."""
    half = x.shape[-1] // 2
    angles = positions[:, None] * 10_000.0 ** (-torch.arange(half) / half)
    first, second = x[..., :half], x[..., half:]
    cos, sin = angles.cos(), angles.sin()
    return torch.cat([first * cos - second * sin, first * sin + second * cos], dim=-1)
