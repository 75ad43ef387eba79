"""Pictures as sequences of patches, sound as frames of which some are masked."""

from . import (
    attention_rollout,
    contrastive_loss,
    draw_negatives,
    patchify,
    resize_positions,
    span_mask,
    vit_forward,
)

# In the order in which they are set.
EXERCISES = tuple(
    module.exercise
    for module in (
        patchify,
        vit_forward,
        span_mask,
        draw_negatives,
        contrastive_loss,
        attention_rollout,
        resize_positions,
    )
)
