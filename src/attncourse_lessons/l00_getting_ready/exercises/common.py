"""What several exercises of this lesson share: inputs, references, and words."""

import torch

SOFTMAX = (
    "attncourse.attention",
    "attncourse.efficient",
    "torch.softmax",
    "torch.Tensor.softmax",
    "torch.nn.functional.softmax",
    "torch.nn.Softmax",
    "torch.log_softmax",
    "torch.Tensor.log_softmax",
    "torch.nn.functional.log_softmax",
    "torch.nn.LogSoftmax",
    "torch.nn.functional.softmin",
    "torch.special.softmax",
    "torch.special.log_softmax",
    "torch.logsumexp",
    "torch.Tensor.logsumexp",
    "torch.special.logsumexp",
    "torch.logcumsumexp",
    "torch.Tensor.logcumsumexp",
    "torch.nn.functional.scaled_dot_product_attention",
)

def coarse(tensor):
    """Rounded so that adding a thousand loses no digits in float32."""
    return (64 * tensor).round() / 64

def shift(rows):
    """(rows, 1): 1000, −1000, 1000, …"""
    return 1000.0 * (-1) ** torch.arange(rows)[:, None]
