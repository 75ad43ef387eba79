"""How a trained model writes, and how good it is."""

from . import beam_search, bleu, greedy_decode, paired_bootstrap, sample_token

# In the order in which they are set.
EXERCISES = tuple(module.exercise for module in (greedy_decode, beam_search, sample_token, bleu, paired_bootstrap))
