"""Scores at the start of training: their variance by initialisation, and a layer's scale, checked."""

import math
from collections.abc import Iterator

import torch
from torch import nn

from attncourse.attention import MultiHeadAttention, attend


def variances(d: int, d_k: int) -> dict[str, float]:
    """The variance of q · k for normalised tokens of width `d`, by how W_Q and W_K, (d_k, d) each, are initialised."""
    torch.manual_seed(0)
    x = nn.functional.layer_norm(torch.randn(2000, d), (d,))
    square = torch.empty(2, d, d)
    with torch.no_grad():
        starts = {
            "normal, variance 1/d": torch.randn(2, d_k, d) / math.sqrt(d),
            "Xavier, on (d, d)": torch.stack([nn.init.xavier_uniform_(W)[:d_k] for W in square]),
            "nn.Linear as it comes": torch.stack([nn.Linear(d, d_k).weight for _ in range(2)]),
            "normal, std 0.02 (GPT-2)": 0.02 * torch.randn(2, d_k, d),
        }
    return {
        name: ((x[:1000] @ W_Q.mT) @ (x[1000:] @ W_K.mT).mT).var().item() for name, (W_Q, W_K) in starts.items()
    }


def cross_attention() -> Iterator[str]:
    """The variance of eight heads' scores by what they are divided by; the package's layer is checked to use √d_k."""
    q, k = torch.randn(2, 8, 200, 64, generator=torch.Generator().manual_seed(0))          # d_model 512
    for name, width in (("d_k", 64), ("d_model", 512)):
        variance = (q @ k.mT / math.sqrt(width)).var()
        yield f"eight heads, divided by √{name}: variance of the scores {variance:.3f}"
    layer, x, memory = MultiHeadAttention(64, 4), torch.randn(1, 3, 64), torch.randn(1, 5, 64)
    projected = layer.query(x), layer.key(memory), layer.value(memory)
    heads = (wide.unflatten(-1, (4, 16)).transpose(1, 2) for wide in projected)           # split
    by_hand = attend(*heads)[0].transpose(1, 2).flatten(2)                                 # divided by √16, merged
    assert torch.allclose(layer(x, memory), layer.output(by_hand), atol=1e-5), "it is scaled"
