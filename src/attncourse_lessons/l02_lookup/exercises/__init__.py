"""Attention is a lookup."""

from . import (
    additive_score,
    bilinear_score,
    hard_lookup,
    leave_one_out,
    lookup_gradient,
    scaled_dot_score,
    soft_lookup,
    top_k_lookup,
)

# In the order in which they are set.
EXERCISES = tuple(
    module.exercise
    for module in (
        hard_lookup,
        soft_lookup,
        lookup_gradient,
        leave_one_out,
        additive_score,
        scaled_dot_score,
        bilinear_score,
        top_k_lookup,
    )
)
