"""What several exercises of this lesson share: inputs, references, and words."""


READY_MADE = (
    "attncourse.attention",
    "attncourse.efficient",
    "attncourse_lessons.errata",
    "attncourse_lessons.slides",
    "attncourse.layers",
    "attncourse.positions",
    "attncourse.counting",
    "attncourse.transformer",
    "torch.nn.functional.scaled_dot_product_attention",
    "torch.nn.MultiheadAttention",
    "torch.nn.Transformer",
)
