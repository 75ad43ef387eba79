# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3 (ipykernel)
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Assignment @cross_attention · A decoder looks at an encoder
#
# In this assignment you build the decoder of [lecture @cross_attention](@cross_attention), from the score of one
# state against another to a whole step of translation. Every function is a few lines long; what takes time is to be sure
# which axis is which.
#
# Under each exercise stands a check. Run it as often as you like, also before you have written anything: it tells you what
# it found, what it expected, and, if it recognises your mistake, what you were probably thinking. A check on other
# numbers and other sizes decides your points, so an answer that is fitted to the visible check will not do.
#
# {exercises}
#
# If you are stuck, `hint("attention_scores", 1)` prints a hint; the later ones of an exercise tell more. Your answers are
# refused if they call the course's own attention or torch's: this is the place to build it. Stay with torch's operations,
# without `.item()`, `.detach()` or NumPy on the way: most checks also ask whether a gradient flows from what you return back
# to what you were given.

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
# ## 1 · Scores
#
# A decoder has states $s_1, \dots, s_m$, one for each word that it writes. An encoder has states $h_1, \dots, h_n$, one for each
# word that it has read. How well does decoder state $s_t$ match encoder state $h_i$? In this assignment, the answer is their dot
# product:
#
# $$e_{ti} = s_t \cdot h_i$$
#
# Compute the whole table at once, for a batch of sentences. The two sentences are hardly ever of the same length.

# %% exercise="attention_scores"
def attention_scores(decoder_states: Tensor, encoder_states: Tensor) -> Tensor:
    """How well each target position matches each source position: plain dot products.

    decoder_states: (batch, n_target, d)   encoder_states: (batch, n_source, d)
    returns         (batch, n_target, n_source)
    """
    ...  # solution

# %% check="attention_scores"
check("attention_scores", attention_scores)

# %% [markdown]
# ## 2 · From scores to weights
#
# Each target position has one unit of attention to give. It shares it out over the source positions by softmax:
#
# $$\alpha_{ti} = \frac{\exp(e_{ti})}{\sum_{j} \exp(e_{tj})}$$
#
# A batch holds sentences of several lengths, so the short ones end in padding. Nobody is there, so the weight of a padded position
# must be exactly zero. The mask says who is there: `True` means "may attend". It has an axis of length one in the middle, because
# the padding of a source sentence is the same for every target position; torch stretches that axis for you.
#
# Two cases deserve care. A row may have nothing but padding; then there is nothing to share out, all its weights are 0, and it
# must not make a NaN of anybody's gradient. And a score may be large, such as 300, be it a word's or the padding's; $e^{300}$ no
# longer fits into float32.

# %% exercise="attention_distribution"
def attention_distribution(scores: Tensor, mask: Tensor) -> Tensor:
    """Turn scores into weights that sum to one over the source positions that are really there.

    scores: (batch, n_target, n_source)   mask: (batch, 1, n_source), True where there is a word
    returns (batch, n_target, n_source); a row with nothing to attend to is all zeros
    """
    ...  # solution

# %% check="attention_distribution"
check("attention_distribution", attention_distribution)

# %% [markdown]
# ## 3 · The attention output
#
# Now the decoder collects what it asked for, the average of the encoder's states, each counted by its weight:
#
# $$a_t = \sum_{i} \alpha_{ti} \, h_i$$
#
# However long the source was, $a_t$ is one vector.

# %% exercise="attention_output"
def attention_output(weights: Tensor, encoder_states: Tensor) -> Tensor:
    """The average of the encoder states, weighted anew for each target position.

    weights: (batch, n_target, n_source)   encoder_states: (batch, n_source, d)
    returns  (batch, n_target, d)
    """
    ...  # solution

# %% check="attention_output"
check("attention_output", attention_output)

# %% [markdown]
# ## 4 · One step of the decoder
#
# While it translates, the decoder takes one step for each word. It has just written the token $y_{t-1}$ (or, at the start, nothing
# but a start token), it is in state $s_{t-1}$, and it remembers $\tilde a_{t-1}$, the vector from which it predicted that token. One
# step is
#
# $$
# \begin{aligned}
# s_t &= \operatorname{GRU}\bigl([\,E y_{t-1};\ \tilde a_{t-1}\,],\ s_{t-1}\bigr) && \text{the state moves on}\\
# e_{ti} &= s_t \cdot h_i && \text{the new state asks}\\
# \alpha_t &= \operatorname{softmax}(e_t) \text{, over words alone} \\
# a_t &= \textstyle\sum_i \alpha_{ti}\, h_i && \text{the encoder answers}\\
# \tilde a_t &= \tanh\bigl(W\,[\,a_t;\ s_t\,]\bigr) && \text{attended first, state second}\\
# \text{logits}_t &= V \tilde a_t && \text{one for each word of the vocabulary}
# \end{aligned}
# $$
#
# Handing $\tilde a_{t-1}$ to the cell beside the embedding is called *input feeding*: the decoder then knows where it has looked
# before. The layers are made for you in `__init__`; write `forward`.
#
# There is one target position here and no axis for it, so the scores are (batch, n_source), and so is the mask. You may call
# your functions from above, with `state[:, None]` for the missing axis; but if one of them has a mistake, it will then cost you points
# here as well. Every source sentence has at least one word, and scores may be as large as in exercise 2.

# %% exercise="AttentionDecoderStep"
class AttentionDecoderStep(nn.Module):
    """One step of a decoder that looks at the encoder, with input feeding (Luong et al. 2015)."""

    def __init__(self, vocab_size: int, d_embedding: int, d_hidden: int):
        super().__init__()
        self.embedding = nn.Embedding(vocab_size, d_embedding)      # E
        self.cell = nn.GRUCell(d_embedding + d_hidden, d_hidden)    # eats [embedding; attentional vector]
        self.combine = nn.Linear(2 * d_hidden, d_hidden)            # W, eats [attended; state]
        self.output = nn.Linear(d_hidden, vocab_size)               # V

    def forward(self, token, state, attentional, encoder_states, mask):
        """Read one token, look at the source, predict the next token.

        token: (batch,)   state: (batch, d_hidden)   attentional: (batch, d_hidden), from the step before
        encoder_states: (batch, n_source, d_hidden)   mask: (batch, n_source), True where there is a word
        returns logits (batch, vocab_size), state, attentional, and weights (batch, n_source), in this order
        """
        ...  # solution

# %% check="AttentionDecoderStep"
check("AttentionDecoderStep", AttentionDecoderStep)

# %% [markdown]
# ## 5 · In your own words
#
# A course-mate is annoyed: "My rows summed to one, then I set the padded weights to zero, and now they do not. So I divided every
# row by its sum again, and on my ten sentences the weights are right. But you tell me to mask *before* the softmax. What for, if the result is the same?"
#
# **(a)** Show that for a row with at least one word the two ways do give the same weights, whatever the scores.
# **(b)** Name a row of scores and a mask for which, *computed in float32*, they do not, and say what each way returns.
#
# Answer in four to eight sentences or lines of mathematics. (3 points)

# %% [markdown] written="why-mask-first" points=3 minutes=10 difficulty=2
# ### BEGIN SOLUTION
# **Mark scheme.** One point for each.
#
# 1. (a) Softmax over all positions, then zeros, then division by what is left: the common denominator
#    $\sum_j e^{e_j}$ cancels, and $e^{e_i} / \sum_{j \in \text{words}} e^{e_j}$ remains, which is the softmax over the words alone.
#    An argument in words ("both share out in proportion to $e^{e_i}$ among the words") earns the point.
# 2. (b) An example in which the padding's score exceeds every word's by so much that the words' weights underflow, for instance
#    scores (0, 200) with the second one padded. (About 104 is enough: $e^{-104}$ is 0 in float32.)
# 3. What each returns there: masking first gives (1, 0); masking afterwards gives (0, 0), and the division gives 0/0 = NaN.
#    Half a point if only one of the two is right. "Dividing by zero" without the scores that cause it earns this point, not
#    the second.
#
# An answer that names the row of nothing but padding, where both ways need a rule of their own, is right as far as it goes but was
# excluded by (a): one point instead of those for 2 and 3.
# ### END SOLUTION

# %% [markdown]
# ## Extension: look around one place only
#
# This one is worth extra credit, and nothing is lost by leaving it out.
#
# The next word is usually translated from somewhere near the last. Luong et al. (2015, section 3.2) let each target position
# predict a *centre* $p_t$ in the source, look only at a window around it, which saves work when the source is a document, and
# multiply the weights by a bell that falls off from the centre. Here you build the bell:
#
# $$\alpha'_{ti} = \alpha_{ti} \, \exp\!\left(-\frac{(i - p_t)^2}{2\sigma^2}\right)$$
#
# Source positions $i$ are counted from 0. A centre may lie between two positions. The result is not normalised again: a window
# over a place where nothing matches is allowed to find little.

# %% exercise="local_attention"
def local_attention(weights: Tensor, centers: Tensor, sigma: float) -> Tensor:
    """Weights times a Gaussian window around each target position's centre (Luong et al. 2015, equation 10).

    weights: (batch, n_target, n_source)   centers: (batch, n_target), in source positions   sigma: in positions
    returns  (batch, n_target, n_source)
    """
    ...  # solution

# %% check="local_attention"
check("local_attention", local_attention)

# %% [markdown]
# ---
# Before you hand in: *Kernel → Restart Kernel and Run All Cells*, so that nothing depends on a cell that you have since
# deleted, and press *Validate*. Validate runs every check on a fresh kernel, as the grader will.
