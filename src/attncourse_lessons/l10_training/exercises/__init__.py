"""What a training step minimises, how fast and on what; how it is taken, and what it costs."""

from . import (
    adamw_step,
    batch_by_tokens,
    byte_pairs,
    label_smoothed_loss,
    memory_and_flops,
    scaled_step,
    train_step,
    train_translator,
    warmup,
)

# In the order in which they are set.
EXERCISES = tuple(
    module.exercise
    for module in (
        label_smoothed_loss,
        warmup,
        adamw_step,
        train_step,
        train_translator,
        batch_by_tokens,
        scaled_step,
        memory_and_flops,
        byte_pairs,
    )
)
