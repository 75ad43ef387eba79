"""Attention that costs less: in chunks, under a pattern, with fewer keys, and one token at a time."""

from . import attend_tile, bigbird_mask, cached_step, linformer_attention, online_softmax, sliding_window_mask

# In the order in which they are set.
EXERCISES = tuple(
    module.exercise
    for module in (online_softmax, sliding_window_mask, bigbird_mask, linformer_attention, cached_step, attend_tile)
)
