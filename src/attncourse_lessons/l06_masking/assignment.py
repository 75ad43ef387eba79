# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3 (ipykernel)
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Assignment @masking · What a position may see, and what it may do with it
#
# In this assignment you build the two parts of [lecture @masking](@masking): the small network that
# follows every attention, and the masks that keep a model from reading what it must not. The last exercise is of
# another kind. There you write no part of a model but a *test*, and it is your test that is tested, on models that are
# right and on models that are broken in ways that have all been seen in the wild.
#
# Under each exercise stands a check. Run it as often as you like, also before you have written anything: it tells you
# what it found, what it expected, and, if it recognises your mistake, what you were probably thinking. A check on other
# numbers and other sizes decides your points, so an answer that is fitted to the visible check will not do.
#
# {exercises}
#
# If you are stuck, `hint("feed_forward", 1)` prints a hint; the later ones of an exercise tell more. Your answers
# are refused if they call the course's own attention and layers, or torch's attention: this is the place to build them.

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

import torch
from torch import Tensor

# %% [markdown]
# ## 1 · Think for yourself
#
# Attention collects, by averages. What is done with what was collected is the business of a small network with one
# hidden layer, the same for every position:
#
# $$\operatorname{FFN}(x) = \max(0,\ x W_1 + b_1)\, W_2 + b_2$$
#
# The vectors are rows. Each of them goes through the network by itself, so it must not matter how many axes stand in
# front of the last one: a single vector, a sentence, a batch of sentences.

# %% exercise="feed_forward"
def feed_forward(x: Tensor, W_1: Tensor, b_1: Tensor, W_2: Tensor, b_2: Tensor) -> Tensor:
    """Widen, take the maximum of 0 and each number, come back: the same for every vector.

    x: (..., d_model), any number of axes in front
    W_1: (d_model, d_ff)   b_1: (d_ff,)   W_2: (d_ff, d_model)   b_2: (d_model,)
    returns (..., d_model)
    """
    ...  # solution

# %% check="feed_forward"
check("feed_forward", feed_forward)

# %% [markdown]
# ## 2 · Not the future
#
# A model that writes predicts word $i + 1$ from the words up to word $i$, and during training all of them lie on the
# table. Make the mask that says who may look at whom: row $i$ asks, column $j$ answers, and `True` means "may attend".
# A position may look at itself and at what came before it.

# %% exercise="causal_mask"
def causal_mask(n: int) -> Tensor:
    """Who may look at whom in a sentence that is read from left to right.

    returns (n, n), booleans: True in row i, column j, if position i may attend to position j
    """
    ...  # solution

# %% check="causal_mask"
check("causal_mask", causal_mask)

# %% [markdown]
# ## 3 · Not the padding
#
# A batch is a rectangle, and short sentences are filled up at the end. Make the mask that keeps everybody from looking
# at what is no word. It is the same for every query of a sentence, so the axis of the queries has length one, and torch
# stretches it. Beside a table of scores (batch, n_query, n_key) the mask then does the right thing, and so it does
# beside a causal mask: `padding_mask(lengths, n) & causal_mask(n)` is (batch, n, n).
#
# The batch may have been padded to more than its longest sentence, and a sentence may be empty.

# %% exercise="padding_mask"
def padding_mask(lengths: Tensor, n: int) -> Tensor:
    """Which positions may be attended to, because there is a word.

    lengths: (batch,), whole numbers from 0 to n: sentence b has its words at the positions 0 to lengths[b] − 1
    returns (batch, 1, n), booleans: True where there is a word
    """
    ...  # solution

# %% check="padding_mask"
check("padding_mask", padding_mask)

# %% [markdown]
# ## 4 · Attention that obeys
#
# Now the whole of it: scaled scores, mask, softmax, average.
#
# $$e_{ij} = \begin{cases} q_i \cdot k_j / \sqrt{d_k} & \text{where } i \text{ may look at } j\\ -\infty &
# \text{elsewhere}\end{cases} \qquad \alpha_{ij} = \operatorname{softmax}_j(e_{ij}) \qquad o_i = \sum_j \alpha_{ij} v_j$$
#
# The mask may be (n_query, n_key), (batch, 1, n_key) or (batch, n_query, n_key): whatever broadcasts to the scores. A
# query that may look at nobody gets zeros, both as weights and as output, and must not spoil anybody's gradient. And
# the vectors may come in `float16`, which ends at 65504.

# %% exercise="masked_attention"
def masked_attention(query: Tensor, key: Tensor, value: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """Scaled dot-product attention over the keys that each query may look at.

    query: (batch, n_query, d_k)   key: (batch, n_key, d_k)   value: (batch, n_key, d_v)
    mask: booleans that broadcast to (batch, n_query, n_key), True where a query may attend
    returns output (batch, n_query, d_v) and weights (batch, n_query, n_key), in this order;
    a query that may attend to nothing gets zeros
    """
    ...  # solution

# %% check="masked_attention"
check("masked_attention", masked_attention)

# %% [markdown]
# ## 5 · A test for leaks
#
# A model that sees its future learns nothing else, and its loss looks splendid. So you want a test that needs no
# training: hand it a model, and it says whether any output depends on what comes later.
#
# `model` is a function. It takes vectors (batch, n, d), for any n from 1 up, and returns vectors (batch, n, d_out), one
# for each position. What it does inside you cannot see, and need not. `x` is an input to begin with; you may call the
# model on as many others as you like.
#
# *Leaks* means: for some position $i$ there is a change of the input at positions after $i$, in whatever sentences of
# the batch, that changes the output at position $i$. Return `True` then, and `False` for a model that is right.
#
# The check has twelve families of models. In each there are broken ones of one kind, one at least that looks much the
# same and is right, and a few plain ones of either sort. A point is given for a family in which every model is told
# right from wrong; so "leaks" for everybody earns as little as "right" for everybody. Some things to know about them:
#
# * A leak may be in one place only: one position, one feature.
# * A model may be made of anything: averages, counts, normalisations, recurrences. Some leaks have no gradient.
# * Some leaks sleep until the future holds numbers a hundred times as large as those of `x`, which are drawn from a
#   normal distribution. More is not needed. Numbers stay finite.
# * Rounding is no leak. It moves an output by about 1e-7 of its size; every leak in the families moves some number of an
#   output by more than 1e-4 (not times its size), for some change of usual size or a hundred times that.
# * A model may return NaN at some position. NaN that stays NaN is a fault, but no leak.
# * Calling a model twice on the same input gives the same output twice.

# %% exercise="test_for_leaks"
def test_for_leaks(model: Callable[[Tensor], Tensor], x: Tensor) -> bool:
    """Whether any output of `model` depends on inputs at later positions.

    model: takes (batch, n, d) for any n, and returns (batch, n, d_out)
    x: (batch, n, d), an input to begin with; leave it as it is
    returns True if the model leaks, False if every output depends on its own position and earlier ones alone
    """
    ...  # solution

# %% check="test_for_leaks"
check("test_for_leaks", test_for_leaks)

# %% [markdown]
# ## 6 · In your own words: too good
#
# A course-mate has trained a small decoder on English text. The training loss is 0.02 nats a letter; on validation
# texts, which the model has never seen, it is 0.02 as well; and the mail to you ends with "so it does not even
# overfit". Asked to write, the model produces *nnnennnn enene*.
#
# **(a)** What has probably happened? Say why *both* losses are small. **(b)** Why does it show when the model writes, and
# not before? **(c)** Without training and without reading the code: how could the number 0.02 alone have
# warned your course-mate, and which measurement would settle the matter?
#
# Answer in five to eight sentences. (3 points)

# %% [markdown] written="too-good" points=3 minutes=10 difficulty=2
# ### BEGIN SOLUTION
# **Mark scheme.** One point for each.
#
# 1. (a) The model sees the letter that it is to predict: a causal mask is missing, upside down or off by one (or target
#    and input were not shifted against each other). It copies. Copying works on unseen texts as well as on seen ones,
#    so the validation loss, which is computed in the same way, is small too. An answer that explains only the training
#    loss gets half a point.
# 2. (b) While it writes, the next letter does not exist yet: there is nothing to copy, and it has learned nothing else.
#    In training and validation the whole text lies on the table (teacher forcing in one pass).
# 3. (c) English cannot be predicted that well: 0.02 nats a letter would mean guessing nearly every letter right, though
#    the next one is often open (Shannon's estimates, or the loss of any good model, are of the order of half a nat or
#    more). To settle it: change the text after a position and see whether the logits at the position change (with or
#    without training), or compute the loss step by step, with each prefix alone. One of the two parts gives half a
#    point.
# ### END SOLUTION

# %% [markdown]
# ## 7 · In your own words: inside the hull
#
# Stack self-attention without anything in between: $H^{(\ell)} = A^{(\ell)} H^{(\ell - 1)} W^{(\ell)}$, where the rows
# of each table $A^{(\ell)}$ are weights (none negative, each row summing to one) and $H^{(0)} = X$.
#
# **(a)** Show that every row of $H^{(L)}$ is a weighted average of the $n$ vectors $x_j W^{(1)} W^{(2)} \cdots W^{(L)}$.
# **(b)** The decks say that without non-linearities such a stack "just re-averages". Yet the stack is no linear function
# of $X$: doubling $X$ does not double the output. Where does the non-linearity sit, and why does (a) hold in spite of it?
#
# A few lines of mathematics or words for each. (3 points)

# %% [markdown] written="inside-the-hull" points=3 minutes=10 difficulty=2
# ### BEGIN SOLUTION
# **Mark scheme.**
#
# 1. (a), one point: multiplied out, $H^{(L)} = A^{(L)} \cdots A^{(1)} X W^{(1)} \cdots W^{(L)}$, because the tables
#    multiply from the left and the matrices from the right (or the induction step, one layer after the other).
# 2. (a), one point: a product of tables of weights is one: its entries are sums of products of numbers that are not
#    negative, and $A A' \mathbf{1} = A \mathbf{1} = \mathbf{1}$. So each row of the product is a set of weights over the $n$
#    vectors.
# 3. (b), one point: it sits in the weights, in the softmax of scores that are made of the layer's input. (a) asks only that
#    *some* weights multiply the values, and says nothing of how they came about; the values themselves go through nothing
#    but averages and matrices. "The softmax" without "(a) holds for any weights" gets half a point.
# ### END SOLUTION

# %% [markdown]
# ## Extension: several documents in one row
#
# This one is worth extra credit, and nothing is lost by leaving it out.
#
# Padding is computed and thrown away. Those who train large models therefore write several documents one after the
# other into the same row, until it is full. Then a third mask is needed: nobody may read another document. Each
# position comes with the number of its document, for instance `[4, 4, 4, 9, 9]`. Numbers are names here. Equal ones
# mean the same document, and nothing else is promised: a document may be interrupted by another and go on after it.

# %% exercise="packed_mask"
def packed_mask(documents: Tensor) -> Tensor:
    """Who may look at whom where each row of the batch holds several documents: itself and the past of its own.

    documents: (batch, n), whole numbers, equal where two positions belong to the same document
    returns (batch, n, n), booleans: True in row i, column j, if position i may attend to position j
    """
    ...  # solution

# %% check="packed_mask"
check("packed_mask", packed_mask)

# %% [markdown]
# ---
# Before you hand in: *Kernel → Restart Kernel and Run All Cells*, so that nothing depends on a cell that you have since
# deleted, and press *Validate*. Validate runs every check on a fresh kernel, as the grader will.
