"""One step of a recurrent network, what is kept of a sentence, and how surprised a model is."""

from . import gru_step, mean_pool, perplexity, rnn_step, shifted_loss

# In the order in which they are set.
EXERCISES = tuple(
    module.exercise
    for module in (rnn_step, mean_pool, shifted_loss, perplexity, gru_step)
)
