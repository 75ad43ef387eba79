"""Many heads, what each of them adds, fewer keys than queries, and two masks at once."""

from . import (
    average_heads,
    contributions,
    decoder_attention,
    grouped_query_attention,
    merge_heads,
    multi_head_attention,
    split_heads,
)

# In the order in which they are set.
EXERCISES = tuple(
    module.exercise
    for module in (
        split_heads,
        merge_heads,
        multi_head_attention,
        contributions,
        grouped_query_attention,
        decoder_attention,
        average_heads,
    )
)
