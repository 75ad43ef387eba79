"""One step of a recurrent network and all of them, what is kept of a sentence, and how surprised a model is."""

from . import gru_step, mean_pool, perplexity, rnn_states, rnn_step, shifted_loss

# In the order in which they are set.
EXERCISES = tuple(
    module.exercise
    for module in (perplexity, rnn_step, shifted_loss, mean_pool, rnn_states, gru_step)
)
