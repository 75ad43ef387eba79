# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3 (ipykernel)
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Assignment @bottleneck · Guess the next word
#
# Here you build what [lecture @bottleneck](@bottleneck) ran on: one step of a recurrent network, the simplest
# summary of a sentence, the loss that a language model learns from, and the number by which such models are compared. Every
# function is a few lines long. Two of them are famous for being wrong without anybody noticing.
#
# Under each exercise stands a check. Run it as often as you like, also before you have written anything: it tells you what
# it found, what it expected, and, if it recognises your mistake, what you were probably thinking. A check on other
# numbers and other sizes decides your points, so an answer that is fitted to the visible check will not do.
#
# {exercises}
#
# If you are stuck, `hint("rnn_step", 1)` prints a hint; the later ones of an exercise tell more. Your answers are refused if
# they call the course's own functions for these things, or torch's recurrent layers: this is the place to build them. Stay with
# torch's operations, without `.item()`, `.detach()` or NumPy on the way: most checks also ask whether a gradient flows from
# what you return back to what you were given.

# %% locked=true
try:
    from attncourse import check, hint
except ModuleNotFoundError:
    raise ImportError(
        "This notebook needs the attncourse package: open it with `make lab` in the course's "
        "folder, or choose a kernel of the environment in which you installed the course."
    ) from None

import math

import torch
from torch import Tensor, nn

# %% [markdown]
# ## 1 · One step
#
# A recurrent network reads a text one token at a time. What it knows of all that it has read is its *state*, and each step
# computes the new state from the token's vector $x_t$ and the state before (Elman 1990):
#
# $$h_t = \tanh\bigl(x_t W_x + h_{t-1} W_h + b\bigr)$$
#
# Vectors are rows, so they stand on the left of their matrices. The step is done for a batch of texts at once: row $i$ of `x` and
# row $i$ of `state` belong to text $i$.

# %% exercise="rnn_step"
def rnn_step(x: Tensor, state: Tensor, W_x: Tensor, W_h: Tensor, b: Tensor) -> Tensor:
    """The state after one more token.

    x: (batch, d_in)   state: (batch, d_hidden)
    W_x: (d_in, d_hidden)   W_h: (d_hidden, d_hidden)   b: (d_hidden,)
    returns (batch, d_hidden)
    """
    ...  # solution

# %% check="rnn_step"
check("rnn_step", rnn_step)

# %% [markdown]
# ## 2 · A sentence as one vector
#
# Something has read a batch of sentences and left one state for each position. To hand a sentence on, be it to a classifier or to a
# decoder, all of its states must become one vector. The simplest way is their mean:
#
# $$\bar h = \frac{1}{n} \sum_{t=1}^{n} h_t, \qquad n = \text{the number of words of }\textit{this}\text{ sentence}$$
#
# The sentences are of different lengths and the rectangle `states` is as wide as the longest. What stands after a sentence's end is
# *not* zero: the network read the padding, too, and left states there as large as any. Each sentence has at least one word.
#
# (Assignment @getting_ready has a mean with a mask. Here nobody hands you the mask, only the lengths.)

# %% exercise="mean_pool"
def mean_pool(states: Tensor, lengths: Tensor) -> Tensor:
    """The mean of the states of each sentence's words.

    states: (batch, n, d)   lengths: (batch,), whole numbers from 1 to n: how many words each sentence has
    returns (batch, d)
    """
    ...  # solution

# %% check="mean_pool"
check("mean_pool", mean_pool)

# %% [markdown]
# ## 3 · What a language model learns from
#
# A language model has read a batch of texts. At each position it has left *logits*, one number for each word of the vocabulary;
# softmax makes probabilities of them. `logits[:, t]` was made when the tokens 0, 1, …, t had been read, and it says what the model
# expects **next**. The loss is the mean of
#
# $$-\log p(\text{the token that came next})$$
#
# over all positions for which there is a next token. The logarithm is the natural one, so the loss is in nats.
#
# For one text of five tokens, the last of which is padding, that is three terms:
#
# | read so far | expects, by | and next came |
# |---|---|---|
# | `the` | `logits[0, 0]` | `cat` |
# | `the cat` | `logits[0, 1]` | `sat` |
# | `the cat sat` | `logits[0, 2]` | `<eos>` |
# | `the cat sat <eos>` | | padding: nothing came |
#
# All real tokens of the batch count the same, whichever text they are from. The first token of a text is read and never
# predicted. The padding's id comes as an argument: do not rely on its being 0. There is at least one token to predict.
# And a model may be very sure of itself, with logits hundreds apart: where it is wrong, the loss is large, but not infinite.

# %% exercise="shifted_loss"
def shifted_loss(logits: Tensor, tokens: Tensor, pad: int) -> Tensor:
    """The mean of −log p(next token), in nats, over all tokens that are predicted and are not padding.

    logits: (batch, n, vocab_size), made when tokens 0 … t had been read   tokens: (batch, n), ids, padded at the end with `pad`
    returns a tensor of one number: shape ()
    """
    ...  # solution

# %% check="shifted_loss"
check("shifted_loss", shifted_loss)

# %% [markdown]
# ## 4 · Perplexity
#
# A loss of 3.4 nats says little to most people. Perplexity says the same as a number of choices: a model of perplexity 30 is as
# unsure as somebody who guesses among 30 equally likely tokens. For tokens that came with the probabilities $p_1, \dots, p_N$,
#
# $$\text{perplexity} = \Bigl(\prod_{i=1}^{N} \frac{1}{p_i}\Bigr)^{1/N}$$
#
# You get the **natural** logarithms of the probabilities, because the product of a thousand of them would be too small for any
# float. The mask is True where there is a token. The $N$ tokens are those of all texts together.

# %% exercise="perplexity"
def perplexity(log_probabilities: Tensor, mask: Tensor) -> Tensor:
    """How many equally likely tokens would be as hard to guess.

    log_probabilities: (batch, n), natural logarithms   mask: (batch, n), True where there is a token
    returns one number: a tensor of shape (), or a float
    """
    ...  # solution

# %% check="perplexity"
check("perplexity", perplexity)

# %% [markdown]
# ## 5 · In your own words
#
# **First question.** A course-mate trains a recurrent language model. After a few minutes its perplexity on the training text is 1.04,
# and on a test text that it has never seen it is 1.04 as well. "No overfitting," she says, "and better than anything published."
#
# **(a)** Why can the test perplexity not be so low, however good the model? **(b)** What has most probably happened? **(c)** Describe a
# test of the *model and loss together* that would have told her, without looking at the code.
#
# Answer in four to eight sentences. (3 points)

# %% [markdown] written="too-good" points=3 minutes=9 difficulty=2
# ### BEGIN SOLUTION
# **Mark scheme.** One point for each.
#
# 1. (a) Real text is not that predictable: a perplexity of 1.04 means that the next token is guessed nearly every time (with probability
#    $1/1.04 \approx 0.96$, in the geometric mean). In a text that one has not seen, several continuations are possible in most places.
#    Any argument from the entropy of text, or from playing the guessing game oneself, earns the point.
# 2. (b) The target leaks: the model is asked about a token that it has read already. Forgetting to shift is the usual cause; a
#    bidirectional network, or a mask that is missing, are as good. "Overfitting" or "the test text is in the training set" do not
#    earn the point: the first would show as a difference, and of the second she says that it is not so (half a point if it is argued
#    that test and training text overlap).
# 3. (c) Something that changes only what must not be known, and watches: change the last token of a text, and the prediction for it
#    must stay the same; or feed random tokens, on which no honest model can have a
#    perplexity below the size of the vocabulary, and see it "predict" them;
#    or let the model *write*: a model that only repeats its input writes one token forever. "Print the shapes" or "look at the code" do
#    not earn it.
# ### END SOLUTION

# %% [markdown]
# **Second question.** On the same test text of 10,000 characters, model A has a perplexity of 20. Its tokens are pieces of words, and
# the text has 2,500 of them. Model B has a perplexity of 2.2. Its tokens are single characters.
#
# Which of the two is better, and why must one not compare 20 with 2.2? Give the calculation. (2 points)

# %% [markdown] written="which-is-better" points=2 minutes=6 difficulty=2
# ### BEGIN SOLUTION
# **Mark scheme.**
#
# 1. (1 point) A perplexity is per token, and the two count different tokens: 2,500 hard guesses against 10,000 easy ones. What can be
#    compared is the probability (or surprise, or bits) that each gives to the *whole* text, or that per character.
# 2. (1 point) A: $2500 \cdot \ln 20 \approx 7490$ nats. B: $10000 \cdot \ln 2.2 \approx 7885$ nats. A finds the text less surprising and
#    is better. Per character: $20^{1/4} \approx 2.11$ against 2.2. In bits (10,800 against 11,400) is as good. A slip in the arithmetic with
#    the right plan: half a point.
# ### END SOLUTION

# %% [markdown]
# ## Extension: a state with gates
#
# This one is worth extra credit, and nothing is lost by leaving it out.
#
# A GRU (Cho et al. 2014) decides at each step, and for each number of its state, how much of the old to keep. In the form that torch
# computes:
#
# $$
# \begin{aligned}
# r &= \sigma\bigl(x W_x^{(0)} + h W_h^{(0)} + b^{(0)}\bigr) && \text{reset: how much of the past the candidate sees}\\
# z &= \sigma\bigl(x W_x^{(1)} + h W_h^{(1)} + b^{(1)}\bigr) && \text{update: how much of the old state stays}\\
# \tilde h &= \tanh\bigl(x W_x^{(2)} + r \circ (h W_h^{(2)}) + b^{(2)}\bigr) && \text{the candidate}\\
# h' &= z \circ h + (1 - z) \circ \tilde h
# \end{aligned}
# $$
#
# $\sigma$ is `torch.sigmoid`, and $\circ$ multiplies number by number.

# %% exercise="gru_step"
def gru_step(x: Tensor, state: Tensor, W_x: Tensor, W_h: Tensor, b: Tensor) -> Tensor:
    """The state of a GRU after one more token.

    x: (batch, d_in)   state: (batch, d_hidden)
    W_x: (3, d_in, d_hidden)   W_h: (3, d_hidden, d_hidden)   b: (3, d_hidden): reset, update, candidate, in this order
    returns (batch, d_hidden)
    """
    ...  # solution

# %% check="gru_step"
check("gru_step", gru_step)

# %% [markdown]
# ---
# Before you hand in: *Kernel → Restart Kernel and Run All Cells*, so that nothing depends on a cell that you have since
# deleted, and press *Validate*. Validate runs every check on a fresh kernel, as the grader will.
