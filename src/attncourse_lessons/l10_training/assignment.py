# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3 (ipykernel)
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Assignment @training · Training, and writing
#
# In this assignment you build what stands around the model of [lecture @training](@training): the loss that
# it is trained with, the rate, the batches, one step of training, and two ways to write a translation. No attention occurs
# in it. Most of what goes wrong with a translator goes wrong here.
#
# Under each exercise stands a check. A check on other numbers and other sizes decides your points.
#
# {exercises}
#
# If you are stuck, `hint("label_smoothed_loss", 1)` prints a hint; the later ones of an exercise tell more. Your answers are
# refused if they call the course's own training, decoding or metrics, or torch's cross entropy in exercise 1.

# %% locked=true
try:
    from attncourse import check, hint
except ModuleNotFoundError:
    raise ImportError(
        "This notebook needs the attncourse package: open it with `make lab` in the course's "
        "folder, or choose a kernel of the environment in which you installed the course."
    ) from None

import math
from collections.abc import Callable
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn

# %% [markdown]
# ## 1 · A loss that is never quite sure
#
# With label smoothing the model is not asked to put everything on the true token $y$. The distribution that it ought to
# give, $q$, is a mixture of the truth and of all tokens alike, with a share $\varepsilon$ (`smoothing`) for the latter.
# In a vocabulary of $V$ tokens,
#
# $$
# q_v = (1 - \varepsilon)\,[v = y] + \frac{\varepsilon}{V} \qquad\qquad
# \text{loss} = -\sum_v q_v \log p_v
# $$
#
# for one token, where $p$ is the softmax of its logits. The true token gets its part of the $\varepsilon / V$, too, and so does
# the id of the padding, which is a token of the vocabulary like any other. (This is what torch does.)
#
# (Logits may be large. Then a probability may be too small to be written down, and its logarithm is not.)
#
# The targets of a batch are filled up with `pad`. A padded position is no token: it must have no effect on the loss. Average over
# the real tokens of all sentences together. There is at least one.

# %% exercise="label_smoothed_loss"
def label_smoothed_loss(logits: Tensor, target: Tensor, smoothing: float, pad: int) -> Tensor:
    """Cross entropy against smoothed targets, in nats, averaged over the real tokens of the batch.

    logits: (batch, n, vocab_size)   target: (batch, n), whole numbers, `pad` where there is no token
    returns one number, (), through which a gradient can flow
    """
    ...  # solution

# %% check="label_smoothed_loss"
check("label_smoothed_loss", label_smoothed_loss)

# %% [markdown]
# ## 2 · The rate
#
# The learning rate of "Attention is all you need" (Vaswani et al. 2017, equation 3): it rises in a straight line for $w$ steps,
# and falls from then on.
#
# $$\text{rate} = d_\text{model}^{-0.5} \cdot \min\bigl(\text{step}^{-0.5},\ \text{step} \cdot w^{-1.5}\bigr)$$

# %% exercise="warmup"
def warmup(step: int, d_model: int, warmup_steps: int) -> float:
    """The learning rate of this step; the first step is step 1.

    returns a plain number
    """
    ...  # solution

# %% check="warmup"
check("warmup", warmup)

# %% [markdown]
# ## 3 · Batches of equal size
#
# A batch is a rectangle: as many rows as it has sentences, as many columns as the longest of them has tokens. What has to fit
# into memory is the rectangle, padding and all. So share out the sentences like this:
#
# * from the shortest to the longest (equals in the order in which they were given),
# * as many into a batch as fit into `batch_tokens`, rows × longest, before the next one is begun,
# * and a sentence that is longer than `batch_tokens` is a batch of its own.
#
# In what order the batches are used is drawn later, by somebody else.

# %% exercise="batch_by_tokens"
def batch_by_tokens(lengths: list[int], batch_tokens: int) -> list[list[int]]:
    """Share out sentences into batches of like length, each at most `batch_tokens` large with its padding.

    lengths: how many tokens each sentence has
    returns a list of batches; a batch is a list of indices into `lengths`, and each index comes once
    """
    ...  # solution

# %% check="batch_by_tokens"
check("batch_by_tokens", batch_by_tokens)

# %% [markdown]
# ## 4 · Writing greedily
#
# You are handed a model as a function. `next_logits(tokens)` takes all that is written so far, `(n_sentences, t)`, with `bos` in the
# first column, and returns the logits of the next token of each sentence, `(n_sentences, vocab_size)`. It remembers nothing
# between two calls. It has to be asked about all sentences of the batch at once, also about those that have ended; what it says of
# these means nothing.
#
# Take the likeliest token at each step. A sentence has ended when it has written `eos`; behind that there is `pad`. Stop when all
# have ended, or when there are `max_length` tokens, not counting `bos`.

# %% exercise="greedy_decode"
def greedy_decode(
    next_logits: Callable[[Tensor], Tensor], n_sentences: int, bos: int, eos: int, pad: int, max_length: int
) -> Tensor:
    """Write a sentence in each row, token by token, always the likeliest.

    returns (n_sentences, max_length) whole numbers: no bos, eos where the sentence ends, pad behind it
    """
    ...  # solution

# %% check="greedy_decode"
check("greedy_decode", greedy_decode)

# %% [markdown]
# ## 5 · Several ways at once
#
# Now for one sentence, but with several hypotheses. `next_log_p(tokens)` takes hypotheses of one length, `(n_hypotheses, t)`, each
# with `bos` in front, and returns the *log-probabilities* of their next tokens, `(n_hypotheses, vocab_size)`.
#
# Begin with one open hypothesis, which is `bos` alone and has the total 0. In each round:
#
# 1. Continue every open hypothesis with every token. A continuation's total is the old total plus the token's log-probability.
# 2. Of all these continuations together keep the `n_beams` with the largest totals.
# 3. Of the ones that you kept, those that end in `eos` have ended: put them aside. (So the beam gets narrower; Sutskever et al.
#    2014, section 3.2.) The others are open.
#
# It is over when none is open, or after `max_length` rounds. Then all that were put aside compete with those still open, by
#
# $$\text{score} = \frac{\text{total}}{\bigl((5 + n) / 6\bigr)^{\alpha}}$$
#
# where $n$ is the number of tokens without `bos` (an `eos` counts) and $\alpha$ is `length_penalty` (Wu et al. 2016, section 7).
# Totals are negative. No two totals are equal.

# %% exercise="beam_search"
def beam_search(
    next_log_p: Callable[[Tensor], Tensor], n_beams: int, length_penalty: float, bos: int, eos: int, max_length: int
) -> tuple[Tensor, float]:
    """The hypothesis with the best score, and that score.

    returns its tokens, a tensor (n,), without bos and with its eos if it has one; and its score, a number
    """
    ...  # solution

# %% check="beam_search"
check("beam_search", beam_search)

# %% [markdown]
# ## 6 · One step of training
#
# Here is a model that is as small as can be, with dropout, and its optimiser. Write `forward`, which takes one step with it:
#
# 1. The step's batch comes in several *micro-batches*, because all of it would not fit into memory (or because each is on a GPU of
#    its own). They have different numbers of tokens. The gradient is that of the **mean loss over all tokens of all
#    micro-batches**, every token counting the same.
# 2. If the gradient, all parameters together, is longer than `clip`, scale it down to that length.
# 3. Take one step of `self.optimizer` with the rate `lr`.
# 4. Then measure the mean loss on the held-out tokens.
#
# Dropout belongs to training and to nothing else. `forward` is called many times on the same object, step after step, and nothing of
# an earlier step may be left in a later one but the parameters. The model never sees an empty micro-batch.
# (Here a "token" is a row of `x` with its target. The model gives log-probabilities, so the loss is `F.nll_loss`.) The optimiser
# is in the next cell. It is used like one of torch's, but that `step` takes the rate.

# %% locked=true
class GradientDescent:
    """Plain gradient descent."""

    def __init__(self, parameters):
        self.parameters = list(parameters)

    def zero_grad(self):
        for parameter in self.parameters:
            parameter.grad = None

    @torch.no_grad()
    def step(self, lr: float):
        for parameter in self.parameters:
            parameter -= lr * parameter.grad

# %% exercise="TrainStep"
class TrainStep(nn.Module):
    """A small classifier with dropout, its optimiser, and one step of training."""

    def __init__(self, d: int, n_classes: int, dropout: float):
        super().__init__()
        layers = nn.Linear(d, 8), nn.Tanh(), nn.Dropout(dropout), nn.Linear(8, n_classes), nn.LogSoftmax(dim=-1)
        self.model = nn.Sequential(*layers)                                       # gives log-probabilities
        self.optimizer = GradientDescent(self.model.parameters())

    def forward(self, micro_batches, held_out, lr: float, clip: float):
        """Take one step; then evaluate.

        micro_batches: a list of pairs (x, target), x (n, d) and target (n,), with an n of their own
        held_out: one such pair
        returns the step's mean loss (before the step, as computed in training), the norm of its gradient before clipping, and
        the mean loss on held_out after the step: three numbers, as tensors or plain
        """
        ...  # solution

# %% check="TrainStep"
check("TrainStep", TrainStep)

# %% [markdown]
# ## 7 · Read a result like a reviewer
#
# From a report: "We trained our encoder–decoder on Multi30k, German to English. A joint vocabulary of 10,000 pieces was learned
# from *all* the sentences of the data set. We evaluated on test2016 after every epoch and report *the best epoch*: **42.3 BLEU**,
# computed with our own script on lower-cased, tokenised output. This improves on the 41.0 of [previous work], which used
# sacreBLEU, cased, 13a."
#
# Name the **three** things that make the comparison unfair, say for each in which direction it moves the number and why, and say
# what the authors should have done. One of the three is likely to matter least: which, and why do we forbid it all the same?
# Six to ten sentences. (4 points)

# %% [markdown] written="read-like-a-reviewer" points=4 minutes=15 difficulty=2
# ### BEGIN SOLUTION
# **Mark scheme.** One point for each of 1–3, which needs the direction with its reason *and* the remedy (half a point for a fault
# without one of these), and one for 4.
#
# 1. *Chosen on the test set.* The maximum over epochs of a noisy score lies above what any one of them would get on new data, so
#    the number is too high. Choose the epoch on the validation pairs, and use the test set once.
# 2. *Another measure.* Lower-casing makes pairs of words equal that were not, so it can only raise the number of matches; another
#    tokenisation changes what counts as a word, in either direction (splitting off punctuation creates easy matches). The two
#    numbers are not of one scale. Use sacreBLEU on plain, cased text, and print its signature. (Direction "up" for the
#    case and "either" for the tokenisation, or "up, as a rule" with a reason.)
# 3. *Vocabulary from the test set.* Words that occur in the test set alone get pieces of their own or larger ones, so the test
#    is cut better than other text will be: as a rule too high. Learn the merges on the training split and apply them to the
#    others. (Who argues that a piece from the test set alone has an embedding that was never trained, so that the number may
#    even suffer, has the point.)
# 4. The vocabulary is likely to matter least: a thousand test captions among 31,000 hardly change which pairs are frequent. It is
#    forbidden because nobody can tell from the number how much it did matter, because it grows with small data and odd
#    domains, and because what has to be argued about case by case will sooner or later be argued wrongly. (Any one of the
#    reasons. Another choice of "least" earns the point only with a reason of the same strength.)
# ### END SOLUTION

# %% [markdown]
# ## Extension: grow a vocabulary
#
# This one is worth extra credit, and nothing is lost by leaving it out.
#
# Byte-pair encoding starts from letters. It counts all pairs of neighbours in the training words, merges the most
# frequent pair into one piece wherever it stands, counts again, and so on. (A word that occurs ten times counts ten
# times. Pairs do not reach over the end of a word. Of equally frequent pairs the alphabetically *first* is taken, as
# Python compares the tuples of pieces; the lecture's cell takes the last. A merge works through a word from the left.)
# The merges, in their order, are what is learned. A new word is cut up by applying them to it, in the same order.
#
# Learn from the right words, and cut up the others.

# %% exercise="byte_pairs"
def byte_pairs(train: list[str], test: list[str], n_merges: int) -> list[list[str]]:
    """Learn `n_merges` merges and cut the words of `test` into pieces with them.

    returns the pieces of each test word; joined, they are the word. There are always enough pairs to merge.
    """
    ...  # solution

# %% check="byte_pairs"
check("byte_pairs", byte_pairs)

# %% [markdown]
# ---
# Before you hand in: *Kernel → Restart Kernel and Run All Cells*, so that nothing depends on a cell that you have since
# deleted, and press *Validate*. Validate runs every check on a fresh kernel, as the grader will.
