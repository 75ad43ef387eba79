"""What several exercises of this lesson share: inputs, references, and words."""


READY_MADE = (
    "attncourse.attention",
    "torch.nn.functional.scaled_dot_product_attention",
    "torch.nn.MultiheadAttention",
)
