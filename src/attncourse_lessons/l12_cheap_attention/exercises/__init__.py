"""Attention that costs less: in chunks, under a pattern, with fewer keys, one token at a time, without a softmax."""

from . import (
    attend_tile,
    bigbird_mask,
    cached_block,
    cached_step,
    linear_attention,
    linear_step,
    linformer_attention,
    online_softmax,
    sliding_window_mask,
)

# In the order in which they are set.
EXERCISES = tuple(
    module.exercise
    for module in (
        online_softmax,
        sliding_window_mask,
        bigbird_mask,
        linformer_attention,
        cached_step,
        linear_attention,
        linear_step,
        attend_tile,
        cached_block,
    )
)
