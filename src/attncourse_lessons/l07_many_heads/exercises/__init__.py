"""Many heads, fewer keys than queries, and how many numbers all that is."""

from . import (
    average_heads,
    contributions,
    count_parameters,
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
        count_parameters,
        decoder_attention,
        average_heads,
    )
)
