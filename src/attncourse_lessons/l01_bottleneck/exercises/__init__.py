"""How surprised a model is, steps of recurrent networks, and what is kept of a sentence and found again."""

from . import gated_readout, gru_step, mean_pool, perplexity, rnn_states, rnn_step, shifted_loss

# In the order in which they are set.
EXERCISES = tuple(
    module.exercise
    for module in (perplexity, rnn_step, shifted_loss, gru_step, gated_readout, mean_pool, rnn_states)
)
