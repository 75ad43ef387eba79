"""What a position may see, and what it may do with what it saw."""

from . import causal_mask, feed_forward, masked_attention, packed_mask, padding_mask, test_for_leaks

# In the order in which they are set.
EXERCISES = tuple(
    module.exercise
    for module in (feed_forward, causal_mask, test_for_leaks, padding_mask, masked_attention, packed_mask)
)
