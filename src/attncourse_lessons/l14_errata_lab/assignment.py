# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3 (ipykernel)
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Assignment @errata_lab · Four lines to repair, and a test of your own
#
# Each of the first four exercises begins with a line that stands on a slide, or in its code. It is given to you as a
# function that you can run. Find an input for which it does something that cannot be meant, say to yourself what was
# meant, and write the function that does it. [Lecture @errata_lab](@errata_lab) goes through the
# questions that find such things: shapes, limiting cases, another implementation.
#
# The fifth exercise turns the tables. You are handed blocks, some of them sound and some broken, each with the losses
# of a training run, and write the test that tells them apart.
#
# Under each exercise stands a check. Run it as often as you like, also before you have written anything: it tells you
# what it found, what it expected, and, if it recognises your mistake, what you were probably thinking. A check on
# other numbers and other sizes decides your points, so an answer that is fitted to the visible check will not do.
#
# Two rules hold throughout. Return new tensors, and leave those that come in as they are; and let a
# gradient through wherever something is to be learned.
#
# {exercises}
#
# If you are stuck, `hint("repair_positions", 1)` prints a hint; the later ones of an exercise tell more. Your answers
# are refused if they call the course's own attention, layers and errata, or torch's attention.

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
# ## 1 · Whose position?
#
# One deck ends with the code of a language model. Its tokens come as (batch, n), and this is how each of them gets a
# position:

# %% locked=true
def positions_as_printed(tokens, words, places):
    pos = torch.arange(tokens.size(0)).unsqueeze(1)
    return words[tokens] + places[pos]


# %% [markdown]
# Here are two texts of three words, each by itself and then in one batch. Look at the second one.

# %%
tokens = torch.tensor([[0, 1, 2], [0, 1, 2]])               # (batch, n)
words, places = torch.zeros(3, 2), torch.arange(10.0).view(5, 2)
print("by itself:", positions_as_printed(tokens[1:], words, places)[0].tolist())
print("in company:", positions_as_printed(tokens, words, places)[1].tolist())

# %% exercise="repair_positions"
def repair_positions(tokens: Tensor, words: Tensor, places: Tensor) -> Tensor:
    """Each token's vector plus the vector of its place in the text, counted from 0.

    tokens: (batch, n), whole numbers   words: (vocab_size, d), a row for each token
    places: (max_length, d), a row for each place, max_length at least n
    returns (batch, n, d)
    """
    ...  # solution

# %% check="repair_positions"
check("repair_positions", repair_positions)

# %% [markdown]
# ## 2 · Give back what was taken
#
# "Mask out the future by artificially setting attention weights to 0", say two decks. Suppose that somebody did, and
# that the scores are gone: you have nothing but the weights, as a softmax without a mask made them. Can they be
# repaired? They can, and exactly: the result must be what masking the *scores* would have given.

# %% locked=true
def weights_as_printed(weights, mask):
    return weights.masked_fill(~mask, 0)


# %% exercise="repair_weights"
def repair_weights(weights: Tensor, mask: Tensor) -> Tensor:
    """The weights that there would be if the scores had been masked before the softmax.

    weights: (..., n_query, n_key), each row summing to one
    mask: the same shape, True where the query may attend
    returns the same shape; a row that may look at nothing is all zeros
    """
    ...  # solution

# %% check="repair_weights"
check("repair_weights", repair_weights)

# %% [markdown]
# ## 3 · What a step needs of the past
#
# "At every timestep, we could change the set of keys and queries to include only past words", say three decks.
# Somebody has programmed that:

# %% locked=true
def past_as_printed(x, W_Q, W_K, W_V):
    rows = []
    for t, _ in enumerate(x):
        queries, keys, value = x[: t + 1] @ W_Q, x[: t + 1] @ W_K, x[t : t + 1] @ W_V
        shares = torch.softmax(queries @ keys.mT / math.sqrt(keys.shape[-1]), -1)
        rows.append(shares @ value)
    return torch.stack(rows)


# %% exercise="repair_past"
def repair_past(x: Tensor, W_Q: Tensor, W_K: Tensor, W_V: Tensor) -> Tensor:
    """Self-attention of a text that comes word by word: each looks at itself and at those before.

    x: (n, d)   W_Q, W_K: (d, d_k)   W_V: (d, d_v)
    returns (n, d_v): row t is what the word at t finds when it is the newest (scaled dot product)
    """
    ...  # solution

# %% check="repair_past"
check("repair_past", repair_past)

# %% [markdown]
# ## 4 · Absolute, or relative?
#
# One deck prints Shaw's formula, $e_{ij} = x_i W_Q\,(x_j W_K + a_{ij})^\top / \sqrt d$, under the heading *Absolute*.
# Somebody has believed the heading:

# %% locked=true
def relative_as_printed(query, key, table):
    a = table[: len(key)]
    return query @ (key + a).mT / math.sqrt(query.shape[-1])


# %% exercise="repair_relative"
def repair_relative(query: Tensor, key: Tensor, table: Tensor) -> Tensor:
    """Scaled dot products in which each key is joined by the vector of its distance from the query.

    query, key: (n, d)
    table: (2 k + 1, d), a row for each distance j − i from −k to k, in this order
        (distances beyond count as −k or k)
    returns (n, n): in row i and column j the score of the query at i with the key at j
    """
    ...  # solution

# %% check="repair_relative"
check("repair_relative", repair_relative)

# %% [markdown]
# ## 5 · A test of your own
#
# Now you are the reviewer. You are handed a block that says of itself that it is the pre-norm block of a decoder, and
# the losses of a training run in which it was used. You cannot read its code. You can call it, and more: it has two
# knobs. `block(x, a, f)` multiplies what attention found by the number `a`, and what the feed-forward network found
# by `f`, before it is added. So `block(x, 1.0, 1.0)` is the block as it is, and with 0 a sublayer is silent.
#
# A **sound** block is all of the following, whatever its parameters are:
#
# * What a sublayer found is added to the x that came in. With both silent, x comes out.
# * Each sublayer hears a normalised x. What it finds does not change when x is multiplied by ten.
# * Both sublayers do find something.
# * Attention comes first, and the feed-forward network hears what attention has left: the block is its two halves,
#   one after the other.
# * In attention a position hears itself and all that came before it, and nobody hears what comes after. (Lecture
#   @masking has a test for half of it.)
# * A text gets the same answer alone and in company. (Lecture @order has a test.)
#
# What you may rely on: `x` is (batch, n, d), with two or more texts of six or more positions, its numbers are a few
# units in size, and its vectors are not centred. The same call gives the same answer. Sound blocks may have any kind
# of norm, and they round: allow differences of about one part in ten thousand. Broken ones differ by a hundred times
# more than that. Calls of `block` do not pass on gradients: compare what comes out.

# %% exercise="structural_test"
def structural_test(
    block: Callable[[Tensor, float, float], Tensor], x: Tensor, losses: list[float]
) -> bool:
    """Whether `block` is a sound pre-norm block of a decoder.

    block: block(x, a, f), in this order and without names; takes (batch, n, d) for any batch and n, and two
        numbers, and returns (batch, n, d)
    x: (batch, n, d), an input to begin with; leave it as it is
    losses: those of a training run with this block, first to last
    returns True if the block is sound, False if it is broken
    """
    ...  # solution

# %% check="structural_test"
check("structural_test", structural_test)

# %% [markdown]
# ## 6 · In your own words: the loss fell
#
# A course-mate has copied the block of a slide, in which both residual connections start at the normalised x. You say
# so, and get the answer: "I trained it. The loss fell to what the paper reports, within the spread over three seeds.
# So it cannot be wrong."
#
# **(a)** What does the falling loss show, and what does it not show? **(b)** Name one circumstance in which the two
# blocks *would* train differently, and say why. **(c)** Which single test, without any training, settles whether the
# block is what its comment says, "pre-normalization"? Say what is compared with what.
#
# Answer in five to eight sentences. (3 points)

# %% [markdown] written="the-loss-fell" points=3 minutes=10 difficulty=2
# ### BEGIN SOLUTION
# **Mark scheme.** One point for each.
#
# 1. (a) It shows that something is learned at this size with these settings, and that gradients arrive. It does not
#    show that the model is the one that was meant: many faults can be learned around, and here the printed stack is
#    (but for its ends) a post-norm stack, a good model of another kind. (Half a point for "a loss is not enough"
#    without a reason.)
# 2. (b) One of: many blocks, where post-norm's gradients are uneven; the full learning rate from the first step,
#    without a warm-up; with a reason (the free path through the sums is gone, so that every gradient goes through
#    each norm). "With other data" earns nothing.
# 3. (c) Silence the sublayers (set to zero what they write with) and compare the block's output with its input, on
#    vectors that are neither centred nor of size one: they must be equal. Half a point where x is, or may be,
#    normalised already, since then the test sees nothing. Comparing with a trusted implementation after copying the
#    weights is as good.
# ### END SOLUTION

# %% [markdown]
# ## 7 · In your own words: be fair
#
# A slide says: "After LayerNorm, the mean and variance of vector elements is 0 and 1 … variance of sum = sum of
# variances = $d_k$."
#
# **(a)** Write the strongest version of this claim that is true, with its conditions. **(b)** What has to be computed
# or measured to see that it fails in a layer as it is built? Give the quantity, not a number. **(c)** You are about
# to write to the author. Which three things belong in the message, so that it can be checked in a minute?
#
# Answer in five to eight sentences. (3 points)

# %% [markdown] written="be-fair" points=3 minutes=10 difficulty=2
# ### BEGIN SOLUTION
# **Mark scheme.** One point for each.
#
# 1. (a) If the components of q and k are independent, with mean 0 and variance 1, then q · k has mean 0 and variance
#    d_k. Conditions and conclusion are both needed; "for random vectors" alone gets half a point.
# 2. (b) The variance of the components of $xW_Q$ and $yW_K$ (or of their product), for normalised x and y: it is
#    decided by the matrices, and for the usual start of a linear layer it is not 1. LayerNorm acts on x, before the
#    matrices.
# 3. (c) Where it stands (slide or heading), what it says and what it should say, and a small piece of code that fails
#    on the one and passes on the other. Also good: what follows from it in practice, and that it may be a slip of a
#    transcription. Two of the three get half a point.
# ### END SOLUTION

# %% [markdown]
# ## Extension: on which side?
#
# The five extensions from here on are worth extra credit, and nothing is lost by leaving them out. Four are more lines to
# repair.
#
# "output = Y[output_1; …; output_h], where Y ∈ R^(d×d)", says one deck, after it has stacked words as rows.

# %% locked=true
def combination_as_printed(heads, Y):
    side_by_side = torch.cat(tuple(heads), dim=1)
    return Y @ side_by_side


# %% exercise="repair_combination"
def repair_combination(heads: Tensor, Y: Tensor) -> Tensor:
    """What all heads found for each word, side by side, and mixed by Y.

    heads: (h, n, d / h), what each head found   Y: (d, d)
    returns (n, d)
    """
    ...  # solution

# %% check="repair_combination"
check("repair_combination", repair_combination)

# %% [markdown]
# ## Extension: are the two dogs the same?
#
# One deck sends "The dog chased another dog" through a layer and asks whether both dogs come out alike:

# %% locked=true
def comparison_as_printed(output, tokens, word):
    return (output[2] - output[5]).abs().max()


# %% [markdown]
# It holds for one sentence and one tokenizer. Write the question so that it can be asked of any word in any text.

# %% exercise="repair_comparison"
def repair_comparison(output: Tensor, tokens: Tensor, word: int) -> float:
    """How far the outputs of one word are apart.

    That is the largest difference in any feature between any two of its places.

    output: (n, d), a row for each place   tokens: (n,), which word stands there
    word: stands there at least once
    returns one number, 0 or more; 0 for a word that stands there once
    """
    ...  # solution

# %% check="repair_comparison"
check("repair_comparison", repair_comparison)

# %% [markdown]
# ## Extension: two texts of one length
#
# "output = softmax(ZQ(HK)ᵀ) × HV", say two decks of cross-attention, and one of them adds that the table of scores is
# in R^(T×T). Somebody has typed that as it stands, × and all:

# %% locked=true
def cross_attention_as_printed(Z, H, W_Q, W_K, W_V):
    T = len(Z)
    table = torch.softmax((Z @ W_Q @ (H @ W_K).mT).view(T, T), -1)
    return table * (H @ W_V), table


# %% [markdown]
# Three things in it are not what a Transformer does.

# %% exercise="repair_cross_attention"
def repair_cross_attention(
    Z: Tensor, H: Tensor, W_Q: Tensor, W_K: Tensor, W_V: Tensor
) -> tuple[Tensor, Tensor]:
    """The decoder's words look at the encoder's, by the scaled dot product.

    Z: (n_target, d), the decoder's states   H: (n_source, d), the encoder's
    W_Q, W_K: (d, d_k)   W_V: (d, d_v)
    returns the output (n_target, d_v) and the weights (n_target, n_source)
    """
    ...  # solution

# %% check="repair_cross_attention"
check("repair_cross_attention", repair_cross_attention)

# %% [markdown]
# ## Extension: which number is wrong?
#
# One deck copies a table of model sizes from a paper, faithfully. In two rows the heads, side by side, are not as
# wide as the model: 24 heads of 128 for a width of 2048, and 40 heads of 128 for 5140. In each *one* of the two
# numbers, the width or the number of heads, is a misprint. The number of parameters in the blocks tells which: a
# block has four matrices of $d \times d$, and two of $d \times 4d$.

# %% locked=true
def row_as_printed(n_layers, d_model, n_heads, d_head, parameters):
    return d_model, n_heads


# %% exercise="repair_row"
def repair_row(
    n_layers: int, d_model: int, n_heads: int, d_head: int, parameters: int
) -> tuple[int, int]:
    """The width and the number of heads that were meant.

    n_layers, d_model, n_heads, d_head: as printed; d_model or n_heads may be wrong, not both
    parameters: how many numbers all blocks hold, to within one part in a hundred
    returns d_model and n_heads, with n_heads · d_head = d_model
    """
    ...  # solution

# %% check="repair_row"
check("repair_row", repair_row)

# %% [markdown]
# ## Extension: told apart
#
# Two models, one printed and one repaired, were trained on the same seeds: with the same seed both saw the same texts
# in the same order, and their embeddings began alike. Is one of them better? Take the difference of the two losses
# for each seed, and ask how large the mean of these differences is beside its own uncertainty, the standard error:
# the differences' standard deviation (with n − 1) over √n. Their ratio is Student's t. As a rule of thumb, with five
# seeds anything below 3 may be luck.

# %% exercise="told_apart"
def told_apart(printed: Tensor, repaired: Tensor) -> tuple[float, float]:
    """Whether two models differ by more than luck, from their losses at equal seeds.

    printed, repaired: (n,), n at least 2; number i of both is of the same seed
    returns the mean difference, printed minus repaired, and it in units of its standard error
    """
    ...  # solution

# %% check="told_apart"
check("told_apart", told_apart)
