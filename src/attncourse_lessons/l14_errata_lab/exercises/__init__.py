"""Lines of slides to repair, and a test that knows a sound block from a broken one."""

from . import (
    repair_combination,
    repair_comparison,
    repair_cross_attention,
    repair_past,
    repair_positions,
    repair_relative,
    repair_row,
    repair_weights,
    structural_test,
    told_apart,
)

# In the order in which they are set.
EXERCISES = tuple(
    module.exercise
    for module in (
        repair_positions,
        repair_weights,
        repair_past,
        repair_relative,
        structural_test,
        repair_combination,
        repair_comparison,
        repair_cross_attention,
        repair_row,
        told_apart,
    )
)
