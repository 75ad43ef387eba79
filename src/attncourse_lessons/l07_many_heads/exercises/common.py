"""What several exercises of this lesson share: inputs, references, and words."""


READY_MADE = (
    "attncourse.attention",
    "attncourse.efficient",
    "attncourse.transformer",
    "torch.nn.functional.scaled_dot_product_attention",
    "torch.nn.functional.multi_head_attention_forward",
    "torch.nn.MultiheadAttention",
)
