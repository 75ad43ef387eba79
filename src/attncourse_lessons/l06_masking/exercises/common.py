"""What several exercises of this lesson share: inputs, references, and words."""

import torch

READY_MADE = (
    "attncourse.attention",
    "attncourse.efficient",
    "attncourse.layers",
    "torch.nn.functional.scaled_dot_product_attention",
    "torch.nn.MultiheadAttention",
    "torch.nn.Transformer",
)

def truth(got, expected):
    """For masks: says where the first wrong truth value stands."""
    place = tuple(int(i) for i in torch.from_numpy(got != expected).nonzero()[0])
    return f"at {list(place)} it says {bool(got[place])}, expected {bool(expected[place])}"
