"""Scores at the start of training: their variance by initialisation."""

import math

import torch
from torch import nn


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
