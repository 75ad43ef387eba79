"""The Transformer, put together and counted; one part of a newer one; and the mask of a third kind."""

from . import (
    count_parameters,
    decoder_block,
    decoder_lm,
    encoder_block,
    prefix_mask,
    shift_right,
    swiglu,
    transformer,
)

# In the order in which they are set.
EXERCISES = tuple(
    module.exercise
    for module in (
        encoder_block,
        decoder_block,
        shift_right,
        transformer,
        count_parameters,
        decoder_lm,
        swiglu,
        prefix_mask,
    )
)
