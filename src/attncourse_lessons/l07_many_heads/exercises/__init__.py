"""Many heads, two masks at once, what each head adds, fewer keys than queries, and vectors of another run."""

from . import (
    average_heads,
    contributions,
    decoder_attention,
    grouped_query_attention,
    interchange,
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
        decoder_attention,
        contributions,
        grouped_query_attention,
        interchange,
        average_heads,
    )
)
