"""What several exercises of this lesson share: inputs, references, and words."""

import math

READY_MADE = (
    "attncourse.attention",
    "attncourse.efficient",
    "torch.nn.functional.scaled_dot_product_attention",
    "torch.nn.MultiheadAttention",
)

MATRICES = ("x", "W_Q", "W_K", "W_V")

def sentences(draw, *shape):
    """[x, W_Q, W_K, W_V] for sentences of this shape, no two sizes alike."""
    d_model, d_k, d_v = [size for size in draw.sizes(3 + len(shape), 3, 9) if size not in shape][:3]
    projections = [1.3 * draw.normal(d_model, d) / math.sqrt(d_model) for d in (d_k, d_k, d_v)]
    return [draw.normal(*shape, d_model), *projections]
