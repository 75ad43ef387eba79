"""Attention that costs less: in chunks, in blocks, one token at a time, without a softmax, with fewer keys."""

from . import (
    attend_tile,
    cached_block,
    cached_step,
    linear_attention,
    linear_step,
    linformer_attention,
    online_softmax,
    rolling_step,
    window_blocks,
)

# In the order in which they are set.
EXERCISES = tuple(
    module.exercise
    for module in (
        online_softmax,
        attend_tile,
        window_blocks,
        rolling_step,
        linear_attention,
        linear_step,
        cached_step,
        linformer_attention,
        cached_block,
    )
)
