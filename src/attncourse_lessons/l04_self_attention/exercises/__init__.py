"""A sentence attends to itself, and what that costs."""

from . import (
    broken_rules,
    layer_cost,
    padded_self_attention,
    restricted_self_attention,
    self_attention,
    self_attention_loop,
)

# In the order in which they are set.
EXERCISES = tuple(
    module.exercise
    for module in (
        self_attention_loop,
        self_attention,
        broken_rules,
        padded_self_attention,
        layer_cost,
        restricted_self_attention,
    )
)
