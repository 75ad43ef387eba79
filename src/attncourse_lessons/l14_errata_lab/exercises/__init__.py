"""Lines of slides to repair, a page of code to review, and a test that knows a sound block from a broken one."""

from . import (
    majority_reading,
    prefix_gap,
    repair_cross_attention,
    repair_past,
    repair_relative,
    repair_row,
    repair_weights,
    reviewed_lm,
    structural_test,
    told_apart,
)

# In the order in which they are set.
EXERCISES = tuple(
    module.exercise
    for module in (
        repair_weights,
        majority_reading,
        told_apart,
        prefix_gap,
        reviewed_lm,
        structural_test,
        repair_past,
        repair_relative,
        repair_cross_attention,
        repair_row,
    )
)
