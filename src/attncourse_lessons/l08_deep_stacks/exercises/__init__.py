"""Two norms, two places to put them, a stack, measured, its gradient, and a block that trains although wrong."""

from . import (
    branch_ratios,
    fold_the_norm,
    layer_norm,
    post_norm_block,
    pre_norm_block,
    pre_norm_stack,
    repair_the_block,
    rms_norm,
    stack_jacobian,
)

# In the order in which they are set.
EXERCISES = tuple(
    module.exercise
    for module in (
        stack_jacobian,
        layer_norm,
        rms_norm,
        pre_norm_block,
        pre_norm_stack,
        branch_ratios,
        post_norm_block,
        repair_the_block,
        fold_the_norm,
    )
)
