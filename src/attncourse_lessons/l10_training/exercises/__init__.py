"""What a training step minimises, how fast and on what, and how a trained model writes."""

from . import batch_by_tokens, beam_search, byte_pairs, greedy_decode, label_smoothed_loss, train_step, warmup

# In the order in which they are set.
EXERCISES = tuple(
    module.exercise
    for module in (label_smoothed_loss, warmup, batch_by_tokens, greedy_decode, beam_search, train_step, byte_pairs)
)
