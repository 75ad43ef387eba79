"""A decoder looks at an encoder."""

from . import (
    attention_decoder_step,
    attention_distribution,
    attention_output,
    attention_scores,
    local_attention,
    teacher_forcing,
)

# In the order in which they are set.
EXERCISES = tuple(
    module.exercise
    for module in (
        attention_scores,
        attention_distribution,
        attention_output,
        attention_decoder_step,
        teacher_forcing,
        local_attention,
    )
)
