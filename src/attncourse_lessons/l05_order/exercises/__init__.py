"""Tell a model where a token is."""

from . import alibi_bias, extended_frequencies, relative_index, rope, shift_matrix, sinusoidal

# In the order in which they are set.
EXERCISES = tuple(
    module.exercise
    for module in (sinusoidal, shift_matrix, rope, relative_index, extended_frequencies, alibi_bias)
)
