# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3 (ipykernel)
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Lecture @self_attention · Self-attention: every token of a sentence asks every other
#
# *About 50 minutes, including about one minute of computing. You need query, key, value and the scaled dot product from
# [lecture @lookup](@lookup), the matrix of attention weights from [lecture @cross_attention](@cross_attention), and one
# fact from [lecture @bottleneck](@bottleneck): a recurrent network takes its steps one after another.*
#
# After this lecture you can
#
# * write **scaled dot-product self-attention** from memory, for one token and as matrix products;
# * say how it differs from a layer with fixed weights: its mixing weights are **data-dependent**;
# * explain why a token has **three** vectors: why its query differs from its key, and why it has a separate value;
# * show that self-attention is **permutation equivariant**: it does not see the order of its tokens;
# * count what a layer costs in multiply-adds, sequential steps, path length and memory.
#
# ## Why a token needs its sentence: contextual embeddings
#
# *Anna lent Ben her book because he asked.* Whose book was it, and who asked? You knew at once that *her* refers to
# Anna and *he* to Ben. Finding the words that refer to the same person or thing is called **coreference resolution**.
# An embedding table cannot do it. The table has one vector for *her*, the same in every sentence, and nothing in that
# vector says "Anna". The answer stands three words to the left, and *her* has to fetch it. We want a **contextual
# embedding**: a vector for *her in this sentence*.
#
# In [lecture @cross_attention](@cross_attention), a decoder fetched vectors from an encoder. The encoder was a
# recurrent network, which carried a state from word to word, one step at a time. So two mechanisms passed information
# on: recurrence and attention. Do we need both? Attention lets a token collect what it needs from a set of vectors. In
# **cross-attention**, these vectors come from another sentence. In **self-attention**, they come from the token's own
# sentence.

# %% [raw] slide
# ## Who asked, and whose book was it?
# > *Anna lent Ben **her** book because **he** asked.*
#
# - **Coreference resolution**: which words mean the same person?
# - An embedding table has one vector for *her*, the same in every sentence.
# - Nothing in that vector can say "Anna". *Her* has to fetch it from the sentence.
# . . .
# We want a **contextual embedding**: a vector for *her in this sentence*.

# %% [raw] slide
# ## Attention from a sentence to itself
# | | who asks | who answers |
# |---|---|---|
# | **cross-attention** | one sentence | another sentence |
# | **self-attention** | a sentence | the same sentence |
#
# . . .
# So far a recurrence carried a state from word to word, and attention fetched vectors. Do we need both?

# %% tags=["hide-input"]
try:
    from attncourse import viz

    from . import figures
except ModuleNotFoundError:
    raise ImportError(
        "This page needs the attncourse package: open it with `make lab` in the course's "
        "folder, or choose a kernel of the environment in which you installed the course."
    ) from None

import math
import os
import time

import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from attncourse.attention import MultiHeadAttention, attend
from attncourse.counting import layer_cost
from attncourse.data.diary import DAYS, MEALS, shuffled_weeks

torch.set_num_threads(1)  # one thread: the times below do not depend on the cores

# %% [markdown]
# A real embedding has hundreds of numbers, which no human can read. Here each of eight words has a vector that you can
# read: six features, each 1 or 0. The sentence is a matrix with one word in each row. (In this example, **tokens** are
# words.)

# %%
features = ["woman's name", "man's name", "feminine pronoun", "masculine pronoun",
            "verb", "thing"]
sentence = [("Anna", "woman's name"), ("lent", "verb"), ("Ben", "man's name"),
            ("her", "feminine pronoun"), ("book", "thing"), ("because", None),
            ("he", "masculine pronoun"), ("asked", "verb")]
words = [word for word, _ in sentence]
X = torch.zeros(8, 6)                                # (n, d_model)  eight words, six features
for i, (_, feature) in enumerate(sentence):
    if feature is not None:                          # "because" is none of the six
        X[i, features.index(feature)] = 1.0

# %% [raw] slide
# ## Eight words that we can read
# {code}
#
# A word is a row of $X$, $(n, d_\text{model}) = (8, 6)$: six features instead of hundreds of numbers.

# %% [raw] slide
# ## A first attempt: the words are their own queries and keys
# $$q_i = k_i = v_i = x_i \qquad e_{ij} = x_i \cdot x_j$$
#
# The score of two words measures how similar they are.
#
# > **Guess first.** To which word will *her* give the largest attention weight?

# %% [markdown]
# ## A first attempt: attention scores from the words themselves
#
# Attention needs queries, keys and values. The simplest choice is the word vectors themselves: $q_i = k_i = v_i = x_i$.
# Then the **attention score** of two words is $x_i \cdot x_j$, which measures how similar the two words are. *Before
# you run the next cell:* to which word will *her* give the largest weight?

# %%
scores = X @ X.mT                                    # (8, 8)  how similar are words i and j?
weights = (3 * scores).softmax(dim=-1)               # (8, 8)  3: an inverse temperature
viz.weight_tables({"every word is its own query and key": (words, weights)},
                  numbers=True, digits=2)
her = words.index("her")
#| caption: Attention weights where every word is its own query and key (rounded).

# %% tags=["hide-input"]
assert weights[her].argmax() == her, "it looks at itself"

# %% [raw] slide
# ## To itself: similarity is the wrong question
# - Among vectors of the same length, none has a larger product with $x_i$ than $x_i$ itself (Cauchy–Schwarz).
# - Similarity is mutual, $x_i \cdot x_j = x_j \cdot x_i$. Need is not: *her* needs *Anna*; *Anna* can do without *her*.
# |||
# {figure}

# %% [raw] slide
# ## Query, key and value: three roles of each token
# | role | what it is | |
# |---|---|---|
# | **query** | what the token looks for | $q_i = x_i W_Q$ |
# | **key** | what it is found by | $k_i = x_i W_K$ |
# | **value** | what it hands over once it is found | $v_i = x_i W_V$ |
#
# . . .
# In a network the three matrices are learned. Here we write them by hand once: two questions, "a woman?" and "a man?", are the $d_k = 2$ columns of queries and keys.

# %% [markdown]
# *Her* gives the largest weight to itself. Similarity is the wrong question, because no word is more similar to *her*
# than *her*. Every word with a feature attends to itself. The two verbs also attend to each other, which helps neither
# of them. *Because* has no features, so all its weights are one eighth.
#
# Our simple features are not to blame. Among vectors of the same length, none has a larger dot product with $x_i$ than
# $x_i$ itself (the Cauchy–Schwarz inequality). Similarity is also mutual, $x_i \cdot x_j = x_j \cdot x_i$. But need is
# not mutual: *her* needs *Anna*, and *Anna* does not need *her*.
#
# ## Query, key and value: three projections of each token
#
# So each word needs three roles. It must be able to **ask** for something other than itself. Other words must be able
# to **find** it by a vector that differs from its own question. And once it is found, it **hands over** a third vector.
# For each role, a matrix projects the word's vector:
#
# $$\begin{aligned}
# q_i &= x_i W_Q && \text{query: what it looks for} \\
# k_i &= x_i W_K && \text{key: what it is found by} \\
# v_i &= x_i W_V && \text{value: what it hands over}
# \end{aligned}$$ (eq:projections)
#
# In a network, these matrices are learned. We write them by hand once, to show what there is to learn. Each query and
# each key has two numbers, one for each of two questions: "a woman?" and "a man?". A feminine pronoun asks the first
# question and a masculine pronoun the second. A verb asks both, because a woman or a man may have acted. Only names
# have a nonzero key. Each value has four numbers, and pronouns hand over nothing.

# %%
#                    woman? man?
W_Q = torch.tensor([[0.0, 0.0],                      # a woman's name asks nothing
                    [0.0, 0.0],                      # nor does a man's name
                    [6.0, 0.0],                      # a feminine pronoun looks for a woman
                    [0.0, 6.0],                      # a masculine pronoun for a man
                    [6.0, 6.0],                      # a verb for anyone who might have done it
                    [0.0, 0.0]])                     # W_Q is (d_model, d_k) = (6, 2)
W_K = torch.zeros(6, 2)                              # (d_model, d_k)
W_K[0, 0] = W_K[1, 1] = 1.0                          # only names are found
hands_over = ["Anna", "Ben", "verb", "thing"]
W_V = torch.zeros(6, 4)                              # (d_model, d_v)
for row, column in ((0, 0), (1, 1), (4, 2), (5, 3)):
    W_V[row, column] = 1.0                           # pronouns hand over nothing

# %% [raw] slide
# ## Three matrices, written by hand
# {code}

# %% [raw] slide
# ## Scaled dot-product self-attention for one token
# $$e_{ij} = \frac{q_i \cdot k_j}{\sqrt{d_k}} \qquad\quad \alpha_{ij} = \frac{\exp(e_{ij})}{\sum_{j'} \exp(e_{ij'})} \qquad\quad o_i = \sum_j \alpha_{ij}\, v_j$$
#
# - **scores** $e_{ij}$: the query of $i$ meets the key of every $j$, its own among them
# - **attention weights** $\alpha_{ij}$: they sum to one over $j$
# - **output** $o_i$: the weighted average of the values

# %% [markdown] teaches="self-attention, token by token and in matrices"
# The 6 in $W_Q$ sets how sharp the softmax is. Exercise 1 of the assignment also tries 1 and 600.
#
# ## Scaled dot-product self-attention for one token
#
# Take token $i$. Its query is compared with the key of every token $j$, including its own. The softmax turns the
# **scores** $e_{ij}$ into **attention weights** $\alpha_{ij}$, which sum to one over $j$. The output $o_i$ averages the
# values with these weights:
#
# $$e_{ij} = \frac{q_i \cdot k_j}{\sqrt{d_k}} \qquad\quad \alpha_{ij} = \frac{\exp(e_{ij})}{\sum_{j'} \exp(e_{ij'})}
# \qquad\quad o_i = \sum_j \alpha_{ij}\, v_j$$ (eq:one-token)
#
# This is **scaled dot-product attention** with query, key and value from one sentence: the lookup [@eq:soft-attention]
# of [lecture @lookup](@lookup), done once for each token. Without the division by $\sqrt{d_k}$, the scores would grow
# with the width $d_k$ of queries and keys. By hand, this gives for *her*:

# %%
match = math.exp(6 / math.sqrt(2))                   # Anna's key: q · k = 6, divided by √d_k
other = math.exp(0 / math.sqrt(2))                   # each of the seven other keys: q · k = 0
total = match + 7 * other
print(f"Anna's exponential {match:.1f}, each of the others {other:.0f}, sum {total:.1f}")
to_Anna, to_another = match / total, other / total                # the weights: they sum to one
print(f"attention weights: Anna {to_Anna:.3f}, each of the seven others {to_another:.3f}")
o = torch.tensor([to_Anna, to_another, 2 * to_another, to_another])           # two verbs
for name, number in zip(hands_over, o.tolist(), strict=True):
    print(f"her receives {number:.2f} of {name}")

# %% [raw] slide
# ## “Her”, by hand
# {code}
# . . .
# {print}
# . . .
# Nearly pure Anna: a contextual embedding.

# %% [raw] slide
# ## Follow a word from its scores to what it receives
# > **Guess first.** What will *asked* get? And *book*, which asks nothing?

# %% [markdown]
# *Her* has received almost nothing but Anna. It receives 0.03 of *verb* because two verbs hand over 0.013 each. Before
# this, the vector of *her* was the same in every sentence. Now it is *her in this sentence*: a contextual embedding.
# The attention weights of a trained model are seldom so easy to read; [lecture @many_heads](@many_heads) looks at some.
#
# Choose a word in the next figure, and follow it from its scores to what it receives. *Guess first:* what will *asked*
# and *book* receive? *Book* asks nothing. (If the page cannot run code, guess and read on.)

# %%
def ask(word):
    i = words.index(word)
    found = figures.one_token(X, i, W_Q, W_K, W_V)      # scores (8,), weights (8,), o (4,)
    return figures.one_query(words, i, *found, hands_over)


viz.explore(ask, word=words, start={"word": "her"})
#| caption: One token asks: its scores, its weights and what it receives.

# %% [raw] slide
# ## Choose a word
# {figure}

# %% [raw] slide
# ## No token can abstain
# - *asked* and *lent* look for a person, and the sentence offers two: half Anna, half Ben.
# - *book* asks nothing: all scores are 0, so it gets the mean of all values.
# - Weights that sum to one must go somewhere. Large models learn an **attention sink**.
#
# **Now you:** a@self_attention, exercise 1

# %% [raw] slide
# ## All tokens at once
# > **Guess first.** Does token 5 need to know what token 4 received?
#
# . . .
# It does not: every token needs only $x_1, \dots, x_n$, and all of these are given. No token waits.
#
# $$Q = XW_Q \qquad K = XW_K \qquad V = XW_V$$
#
# $$A = \operatorname{softmax}\Bigl(\frac{QK^\top}{\sqrt{d_k}}\Bigr) \qquad O = AV$$
#
# The softmax runs along the rows, over the keys.

# %% [markdown] teaches="self-attention, token by token and in matrices"
# *Asked* receives Anna and Ben in equal parts, because it looks for a person and the sentence offers two. *Lent*
# receives the same mixture. Remember *lent*: it will cause trouble. *Book* asks nothing, so all its scores are zero,
# and it receives the mean of all values. No token can abstain, because its weights sum to one. But a token that needs
# nothing can, for instance, put its weight on tokens whose value vectors are short.
#
# Many large language models learn to put this weight on the first token, which is then called an **attention sink**
# ([@xiao2024]). In a whole Transformer, a token also keeps its own vector and *adds* to it what it received (see
# [lecture @deep_stacks](@deep_stacks)).
#
# **Now you:** [a04](@self_attention/assignment), exercise 1.
#
# ## All tokens at once: five matrix products and a softmax
#
# Does token 5 need to know what token 4 received? No. Each token needs only $x_1, \dots, x_n$, and all of these are
# given at the start. In a recurrence, $h_5$ has to wait for $h_4$. Here no token waits, so we compute all rows at once:
#
# $$Q = XW_Q \qquad K = XW_K \qquad V = XW_V \qquad A = \operatorname{softmax}\Bigl(\frac{QK^\top}{\sqrt{d_k}}\Bigr)
# \qquad O = AV$$ (eq:self-attention)
#
# The softmax runs along each row, over the keys. $A$ is the **attention matrix**. *Before you look at the figure:*
# where in these matrices is *her*, the token that asks? And where is *Anna*, the token that answers?

# %%
figures.self_attention_shapes(n=8, d_model=6, d_k=2, d_v=4, asking=her,
                              answering=words.index("Anna"), names=("her", "Anna"))
#| caption: Self-attention in matrices: the row of one query, followed through all products.
#| label: self-attention

# %% [raw] slide
# ## Five matrix products and a softmax
# {figure}

# %% [markdown]
# In [@fig:self-attention], queries are green, keys are blue and values are orange. *Her* is purple and *Anna* is black.
# A ring marks the score of this pair, and another ring its weight. The row of *her* in $A$ weights *all* rows of $V$,
# but only Anna's row is drawn.
#
# The attention matrix is square, $n \times n$, because the same words ask and answer. So its axes are easy to mix up,
# and no shape error warns you. **Rows ask, columns answer.** The package's `attend` does the last two steps of
# [@eq:self-attention]. We use it in this lecture, and in the assignment you write your own.

# %%
O, A = attend(query=X @ W_Q, key=X @ W_K, value=X @ W_V)         # (8, 4), (8, 8)
print("the row of “her” is what we computed by hand:", torch.allclose(O[her], o, atol=1e-6))
viz.weight_tables({"attention weights": (words, A)},
                  numbers=True, digits=2)
#| caption: Attention weights with separate queries and keys (rounded: 0.12 is one eighth).
#| label: weights

# %% [raw] slide
# ## Rows ask, columns answer
# {figure}
# |||
# The matrix is square: the same words ask and answer. So no shape error warns you when its axes are exchanged.
#
# The row of *her* is what we computed by hand.

# %% [raw] slide
# ## A common mistake: the sum over the wrong index
# > $$o_i = \sum_i \alpha_{ij} v_i$$
#
# What is wrong with it?
# . . .
# An index that is summed over cannot also name the result. The sum runs along a **row**, over $j$, the tokens that answer:
#
# $$o_i = \sum_j \alpha_{ij} v_j$$
#
# Rows sum to one. Columns need not: three words look for Anna, and Anna's column sums to more than two.

# %% [markdown] erratum="sum over the query"
# > **A common mistake: the sum over the wrong index.** Some slides print $o_i = \sum_i \alpha_{ij} v_i$. An index that
# > is summed over cannot also label the result. The sum must run along a *row* of $A$, over the tokens $j$ that answer,
# > because each row sums to one. A column need not: three words look for Anna, and Anna's column sums to more than two.

# %% tags=["hide-input"]
assert torch.allclose(A.sum(dim=1), torch.ones(8)) and A.sum(dim=0).max() > 2
assert torch.allclose(O[her], o, atol=1e-6) and o[0] > 0.85

# %% [raw] slide
# ## A common mistake: rows and columns in one formula
# | tokens are | projection | the sentence |
# |---|---|---|
# | rows (this course) | $q_i = x_i W_Q$ | $Q = X W_Q$ |
# | columns | $q_i = W x_i$ | $Q = W X$ |
#
# . . .
# `nn.Linear(d_in, d_out)` keeps its weight as $(d_\text{out}, d_\text{in})$ and computes $xW^\top$: if you copy a matrix into a layer, transpose it.

# %% [markdown] erratum="Qx beside XQ"
# > **A common mistake: rows and columns in one formula.** In this course, tokens are rows and matrices stand on the
# > right, $xW$, as in Vaswani et al. ([-@vaswani2017]). Some texts write $q_i = Qx_i$ for one token, which makes the
# > token a column, but $XQ$ for the sentence, with the same $Q$. One formula needs the transpose of the other's matrix,
# > and if $Q$ is square, no error tells you so. PyTorch stores the transpose: `nn.Linear(d_in, d_out)` has a weight of
# > shape (d_out, d_in) and computes $xW^\top$. If you copy a matrix into a layer, transpose it.
#
# A trainable layer keeps its three matrices as parameters. The next cell checks that the package's `MultiHeadAttention`
# with one head computes our formula. Its output matrix $W_O$ is meant for several heads (see
# [lecture @many_heads](@many_heads)). Here we set it to the identity, which changes nothing.

# %%
torch.manual_seed(0)
sentences = torch.randn(3, 7, 16)                                # (batch, n, d_model)
W = torch.randn(3, 16, 16) / 4                                   # W_Q, W_K, W_V
layer = MultiHeadAttention(d_model=16, n_heads=1, bias=False)
with torch.no_grad():
    for linear, matrix in zip((layer.query, layer.key, layer.value), W, strict=True):
        linear.weight.copy_(matrix.mT)                           # nn.Linear keeps the transpose
    layer.output.weight.copy_(torch.eye(16))
    output, _ = attend(sentences @ W[0], sentences @ W[1], sentences @ W[2])     # (3, 7, 16)
    print("one layer, one formula:", torch.allclose(layer(sentences), output, atol=1e-5))

# %% [raw] slide
# ## A layer that can be trained: the same formula
# {code}
#
# {print}

# %% [raw] slide
# ## Check yourself: shapes and parameters
# Four sentences of 20 tokens, $d_\text{model} = 64$, $d_k = 16$, $d_v = 32$.
#
# 1. What are the shapes of $Q$, of the scores and of the output?
# 2. Where are the tokens of one sentence combined with the tokens of another?
# 3. How many parameters are there, and how does their number depend on $n$?
#
# . . .
# > 1. $(4, 20, 16)$, $(4, 20, 20)$, $(4, 20, 32)$.
# > 2. Nowhere: the batch axis is never summed over.
# > 3. $2 \cdot 64 \cdot 16 + 64 \cdot 32 = 4096$, for every $n$.

# %% [markdown]
# > **Check yourself.** (1) What are the shapes of Q, of the scores and of the output for four sentences of 20 tokens,
# > with d_model 64, d_k 16 and d_v 32? (2) Where are the tokens of one sentence combined with the tokens of another?
# > (3) How many parameters do W_Q, W_K and W_V have, and how does their number depend on n?
# > <details><summary>Answers</summary>(1) (4, 20, 16), (4, 20, 20), (4, 20, 32). (2) Nowhere: the batch axis is never
# > summed over. (3) 2 · 64 · 16 + 64 · 32 = 4096, for every n. The matrices belong to roles and not to positions, so
# > one set serves sentences of every length.</details>
#
# In a padded batch, padding must not answer, as in [lecture @cross_attention](@cross_attention). In self-attention,
# padding also asks. So padding has columns *and* rows in the matrix of scores, and we treat the two differently:

# %%
figures.padded_scores(words[:5], padding=2)
#| caption: The scores of a padded sentence: columns of padding are forbidden, rows of padding
#|   are ignored.

# %% [raw] slide
# ## Padding has columns and rows
# - A **column** of padding is forbidden to every token: $-\infty$ before the softmax.
# - A **row** of padding is computed, and nothing after the layer may use it.
#
# **Now you:** a@self_attention, exercises 2 and 3
# |||
# {figure}

# %% [markdown]
# A *column* of padding is forbidden to every token, so its scores are set to $-\infty$ before the softmax. A *row* of
# padding is computed like any other, but its output stands for no token and is ignored: nothing after the layer may use
# it. In the assignment, you set these outputs to zero.
#
# **Now you:** [a04](@self_attention/assignment), exercises 2 and 3.
#
# ## Attention as a graph: messages between tokens
#
# The same formula can be read in a second way. Tokens are the **nodes** of a graph, and $\alpha_{ij}$ is the weight of
# an **edge** from $j$ to $i$. Each node sends its value along its outgoing edges, multiplied by the weight of each
# edge, and adds up what arrives. This is **message passing** on a fully connected graph. The figure leaves out weights
# below 0.3 and edges from a token to itself.

# %%
figures.attention_graph(words, A, least=0.3)
#| caption: Attention as a graph: arrows lead from the token that answers to the token that
#|   asks, for weights of at least 0.3.
#| label: graph

# %% [raw] slide
# ## Attention as a graph: the sentence draws its own edges
# - Tokens are **nodes**, $\alpha_{ij}$ is the weight of an edge.
# - **Data-dependent** weights: another sentence, other edges, same matrices.
# - A convolution's weights are fixed after training.
# |||
# {figure}

# %% [markdown] teaches="recurrence, convolution, attention: three kinds of sequence models"
# The sentence itself determines these edges. With the same three matrices, another sentence gets another graph, because
# self-attention computes $o_i = \sum_j \alpha_{ij}(X)\, v_j$ with **data-dependent** weights. A layer with **fixed
# weights** cannot do that. A linear layer along the sentence computes $o_i = \sum_j m_{ij} x_j$, where the numbers
# $m_{ij}$ are learned once and are then the same for every input. A convolution also has fixed weights: it learns a
# matrix for each offset $j - i$.
#
# What are data-dependent weights good for? And why do we need both $W_Q$ and $W_K$? One small experiment shows a case
# for each.
#
# ## Learned projections: what is lost with fixed weights, and with one matrix
#
# A diary of a week's dinners is written on seven cards, one for each day. The cards have been dropped.

# %%
days, meals, tomorrow = shuffled_weeks(1, torch.Generator().manual_seed(1))      # (1, 7) each
for day, meal, answer in zip(days[0], meals[0], tomorrow[0], strict=True):
    print(f"{DAYS[day]}  {MEALS[meal]:<6} → {MEALS[answer]}")

# %% [raw] slide
# ## A task where the weights must depend on the input: the shuffled diary
# {print}
# |||
# For each card: what is for dinner *tomorrow*? Which card to look at depends on what is written on the cards.
#
# | layer | weights |
# |---|---|
# | **fixed** | a learned 7 × 7 table |
# | **one projection** | $W_K = W_Q$ |
# | **two projections** | $W_Q$, $W_K$ |

# %% [markdown]
# The task is to say, for each card, what there will be for dinner *tomorrow*. (After Sunday comes Monday.) Each card
# must attend to one particular other card, whose place depends on what is written on the cards.
#
# We train three layers. All of them embed the day and the meal, add the two vectors, and predict tomorrow's meal from
# $o_i$. They differ only in how they compute the weights:
#
# * **fixed weights**: a learned 7 × 7 table, indexed by position;
# * **one projection** for queries and keys, $W_K = W_Q$;
# * **two projections**, as above.
#
# As a control, we also train fixed weights on weeks whose cards lie in order, with Monday first.

# %%
class Diary(nn.Module):
    def __init__(self, kind, d=32):
        super().__init__()
        self.kind = kind
        self.day, self.meal = nn.Embedding(7, d), nn.Embedding(len(MEALS), d)
        self.query = nn.Linear(d, d, bias=False)
        self.key = self.query if "one projection" in kind else nn.Linear(d, d, bias=False)
        self.value = nn.Linear(d, len(MEALS), bias=False)
        self.fixed = nn.Parameter(torch.zeros(7, 7))

    def forward(self, days, meals):
        x = self.day(days) + self.meal(meals)                             # (batch, 7, d)
        if self.kind.startswith("fixed"):                         # whatever the cards say
            A = self.fixed.softmax(dim=-1)                                # (7, 7)
            return A @ self.value(x), A                                   # (batch, 7, meals)
        return attend(self.query(x), self.key(x), self.value(x))          # and (batch, 7, 7)

# %% [raw] slide
# ## Guess before you train
# > 1. **Fixed weights** see all seven meals, but not on which card each stands. How often can they be right?
# > 2. **One projection**: a card asks with the same vector by which it is found. What will go wrong?
# > 3. **Two projections?**
#
# Each is trained with five seeds. Control: fixed weights on weeks that lie in order.

# %% [markdown]
# *Guess before you train.* Fixed weights see all seven meals, but they give each place the same weight in every week.
# How often can they be right? With one projection, a card asks with the same vector by which it is found. What will go
# wrong? We train each layer with five seeds.

# %%
def weeks(batch, draws, in_order=False):
    """Days, meals and tomorrow's meals of new weeks, (batch, 7) each."""
    cards = shuffled_weeks(batch, draws)
    return figures.monday_first(cards) if in_order else cards


def train(kind, seed, steps=400, Layer=Diary):
    torch.manual_seed(seed)
    in_order = kind == "fixed, in order"
    draws, model = torch.Generator().manual_seed(seed), Layer(kind)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(steps):
        days, meals, tomorrow = weeks(64, draws, in_order)
        predicted, _ = model(days, meals)                                 # (64, 7, meals)
        loss = nn.functional.cross_entropy(predicted.flatten(0, 1), tomorrow.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    days, meals, tomorrow = weeks(2000, draws, in_order)                  # weeks it never saw
    right = model(days, meals)[0].argmax(dim=-1) == tomorrow              # (2000, 7)
    return model, [right[days == day].float().mean().item() for day in range(7)]


diaries = {}
for kind in ("fixed weights", "fixed, in order", "one projection", "two projections"):
    print(f"{kind:<20}", *(f"{day:>5}" for day in DAYS))
    for seed in range(5):
        diaries[kind, seed] = train(kind, seed)
        _, right = diaries[kind, seed]
        print(f"              seed {seed}", *(f"{share:5.0%}" for share in right))

# %% [raw] slide
# ## Fixed weights cannot choose; one projection loses a day
# {print}

# %% [markdown]
# What is the best that fixed weights can do? The prediction is a sum with fixed weights, in which each card contributes
# one term for its day and one for its meal. So a day cannot point to the meal on its card. In effect, the layer knows
# which meals the other cards show, but not which is tomorrow's. (This is no proof: the days could still influence how
# ties are broken.) With only this knowledge, the best guess is the most frequent meal:

# %%
_, six, _ = shuffled_weeks(20_000, torch.Generator().manual_seed(0))      # (weeks, 7)
often = nn.functional.one_hot(six[:, 1:]).sum(dim=1).amax(dim=-1)         # (weeks,)  1 to 6
best = (often / 6).mean().item()
print(f"naming the most frequent of six other meals: right in {best:.1%}")

# %% tags=["hide-input"]
for seed in range(5):
    fixed, ordered, one, two = (
        shares for (_, which), (_, shares) in diaries.items() if which == seed
    )
    assert abs(sum(fixed) / 7 - best) < 0.02, "the same weights for every input cannot choose"
    assert min(ordered) > 0.98, "with no choice to make they need none"
    assert min(two) > 0.98, "asking and being found, separately, solve it"
    assert sum(share > 0.9 for share in one) >= 4 and min(one) < 0.12, "it loses a day"

# %% [markdown]
# The five seeds agree on three points.
#
# * **Fixed weights** are right about as often as this best guess. When the cards lie in order, the same layer solves
#   the task. So fixed weights fail because the place to look changes from week to week.
# * **Two projections** make almost no mistakes.
# * **One projection** gets most days right, which is a surprise: we said that a word matches nothing better than
#   itself. But in every seed it nearly always fails on **one day**, the *lost day*. Which day is lost depends on the
#   seed.
#
# In some seeds, one projection also makes mistakes on a second day, usually the day before the lost one. Is this day
# only learned late? We train the layer four times as long:

# %%
print(f"{'one projection':<20}", *(f"{day:>5}" for day in DAYS))
for seed in range(5):
    diaries["one projection", seed] = train("one projection", seed, steps=1600)
    _, right = diaries["one projection", seed]
    print(f"              seed {seed}", *(f"{share:5.0%}" for share in right))

# %% tags=["hide-input"]
for seed in range(5):
    one = diaries["one projection", seed][1]
    assert sorted(one)[1] > 0.95, "all other days are learned"
    assert abs(min(one) - 1 / 12) < 0.025, "the lost day is pure chance"

# %% [markdown]
# The other days were only learned late, but the lost day stays lost. Its prediction is right in about one week out of
# twelve. With twelve meals, this is pure chance, and worse than fixed weights. So the lost card seems to receive
# nothing from tomorrow's card. Its attention weights show whether this is so. Here they are for seed 0, with the days
# in order:

# %%
draws = torch.Generator().manual_seed(0)
days, meals, _ = weeks(2000, draws, in_order=True)                        # (2000, 7) each
tables = {}
for kind in ("one projection", "two projections"):
    model, _ = diaries[kind, 0]
    _, attended = model(days, meals)                                      # (2000, 7, 7)
    tables[kind] = (DAYS, attended.mean(dim=0).detach())                  # (7, 7)
viz.weight_tables(tables, numbers=True, digits=2)
#| caption: Attention weights (seed 0, mean of 2,000 weeks) with one projection (1,600 steps)
#|   and with two (400 steps): each day should attend to the next.

# %% [raw] slide
# ## One projection loses a day
# {figure}

# %% [markdown]
# On the right (two projections), each day attends to the next, and Sunday attends to Monday. The layer has learned this
# from the dinners alone. On the left (one projection), the pattern breaks at the lost day. Saturday attends to itself,
# and gives Sunday a weight of 0.00. So Saturday knows nothing about Sunday's meal, and can only guess one of twelve.
#
# How can one projection work at all? It is only among vectors of *equal length* that a word matches nothing better than
# itself. Let $u_i = x_i W$ be the vector with which a day asks and by which it is also found. (Each $x_i$ is a day's
# embedding plus the mean embedding of all meals.) *Guess:* what has training done to the lengths of the seven $u_i$? We
# number the days from the lost day: day 1 is the day after it, day 6 is the day before it, and day 7 is the lost day
# itself. In seed 0, these are Sunday, Friday and Saturday.

# %%
def one_projection(seed):
    """The days in order, ending with the lost one; the vectors of all days, Monday first."""
    model, right = diaries["one projection", seed]
    with torch.no_grad():
        U = model.query(model.day.weight + model.meal.weight.mean(dim=0))     # (7, d)
    lost = right.index(min(right))
    return [(lost + 1 + step) % 7 for step in range(7)], U


week, U = one_projection(seed=0)
print(f"{'seed 0':<19}", *(f"{DAYS[day]:>6}" for day in week))
print(f"{'product with itself':<19}", *(f"{U[day] @ U[day]:6.0f}" for day in week))
print(f"{'and with tomorrow':<19}", *(f"{U[day] @ U[(day + 1) % 7]:6.0f}" for day in week))
margins = [(U[day] @ (U[(day + 1) % 7] - U[day])).item() / math.sqrt(32) for day in week]
print(f"{'margin of tomorrow':<19}", *(f"{margin:6.1f}" for margin in margins))

# %% [markdown]
# The **margin** of tomorrow is tomorrow's score minus the day's score with itself,
# $(u_i \cdot u_{i+1} - u_i \cdot u_i) / \sqrt{32}$, where $d_k = 32$. A margin of 3 gives tomorrow
# $\mathrm{e}^3 \approx 20$ times the weight of the day itself, and a margin of 6 about 400 times. Here are all five
# seeds:

# %%
ordered = {}
for seed in range(5):
    their_week, vectors = one_projection(seed)
    ordered[f"seed {seed}"] = vectors[their_week]                         # (7, d)
figures.winding([DAYS[day] for day in week], ordered)
#| caption: One projection. Left: seed 0, with lengths and angles between neighbours to scale.
#|   Right: five seeds, with marks shifted a little so that none is hidden.
#| label: winding

# %% tags=["hide-input"]
lost_table = tables["one projection"][1]
assert DAYS[week[-1]] == "Sat" and lost_table[5, 5] > 0.5 and lost_table[5, 6] < 0.005
for vectors in ordered.values():
    length, products = vectors.norm(dim=-1), vectors @ vectors.mT
    assert (length.diff() > 0).all(), "they grow along the week"
    margin = (products[range(7), [1, 2, 3, 4, 5, 6, 0]] - products.diagonal()) / math.sqrt(32)
    assert margin[:5].min() > 3 and margin[5] > 0 and margin[6] < -100
    assert (products[6, 6] - products[6, :6].max()) / math.sqrt(32) > 6, "it attends to itself"

# %% [raw] slide
# ## How one projection works around it: longer and longer
# {figure}
#
# . . .
# - For $u_i \cdot u_{i+1} > u_i \cdot u_i$ the next vector must be **longer**. The week opens like a fan, and cannot close to a circle.
# - Scores are $X\,(W_Q W_K^\top)\,X^\top$: two matrices give any matrix of rank $\le d_k$, one gives a symmetric one.

# %% [markdown]
# In every seed, the vectors grow longer along the week, from day 1 to the lost day. Why? Tomorrow must score higher
# than the day itself, $u_i \cdot u_{i+1} > u_i \cdot u_i$. Since
# $u_i \cdot u_{i+1} \le \lVert u_i \rVert\, \lVert u_{i+1} \rVert$, the next vector must then be *longer*. So the week
# opens like a fan of longer and longer arrows (left of [@fig:winding]). The week cannot close into a circle, because
# after one round a vector would have to be longer than itself.
#
# On the first six days, the margin is positive in every seed. The lost day pays for this. Its vector is the longest, so
# that day 6 can find it. Therefore it scores highest with itself, in every seed by more than 6 over any other day.
# Tomorrow, the day that it needs, scores more than 100 lower than the lost day itself. So the lost day cannot even
# spread its weight over the other cards, as fixed weights do.
#
# In one formula, up to a scale, the scores are $X\,(W_Q W_K^\top)\,X^\top$. With two matrices, the product in the
# middle can be any matrix of rank at most $d_k$, symmetric or not. With one matrix, the product is $W W^\top$, which is
# always symmetric, and so is the matrix of scores. $W W^\top$ is also *positive semidefinite*,
# $x_i W W^\top x_i^\top = \lVert u_i \rVert^2 \ge 0$: the squared lengths form the diagonal of the scores.
#
# Is it really the symmetry that loses a day? Two projections also have 1,024 more parameters. And perhaps no day would
# be lost if a day could not attend to itself. Two variants of *one projection*, with the same number of parameters,
# test both explanations:
#
# * **not itself**: the score of a day with itself is forbidden. The other scores are still symmetric;
# * **shifted keys**: the key is the query with its 32 numbers shifted by one place, the last to the front. These scores
#   are not symmetric.
#
# *Guess:* which of the two variants finds all seven days?

# %%
class Variant(Diary):
    def forward(self, days, meals):
        x = self.day(days) + self.meal(meals)
        u = self.query(x)                                                 # (batch, 7, d)
        if self.kind == "one projection, not itself":
            return attend(u, u, self.value(x), mask=~torch.eye(7, dtype=torch.bool))
        return attend(u, u.roll(1, dims=-1), self.value(x))               # shifted keys


variants = {}
for kind in ("one projection, not itself", "one projection, shifted keys"):
    print(f"{kind:<28}", *(f"{day:>5}" for day in DAYS))
    for seed in range(5):
        _, right = variants[kind, seed] = train(kind, seed, steps=1600, Layer=Variant)
        print(f"{f'seed {seed}':>28}", *(f"{share:5.0%}" for share in right))

# %% tags=["hide-input"]
lost_one = 0
for (kind, _), (_, right) in variants.items():
    all_days = min(right) > 0.98
    assert all_days if "shifted" in kind else min(right) < 0.5, "the symmetry loses a day"
    lost_one += "not itself" in kind and sorted(right)[1] > 0.95 and min(right) < 0.12
assert lost_one >= 3, "and seed 1 learns no day well"

# %% [raw] slide
# ## Is it the symmetry? Two variants with the same parameters
# - **not itself**: a day must not attend to itself; the scores stay symmetric
# - **shifted keys**: the query's numbers, shifted by one place; the scores are not symmetric
#
# > **Guess first.** Which of the two finds all seven days?
#
# . . .
# {print}

# %% [raw] slide
# ## Swap the two names
# > *Anna lent Ben her book because he asked.*
# >
# > *Ben lent Anna her book because he asked.*
#
# **Guess first.** What changes in the output of *her*? Of *lent*? In the attention matrix?

# %% [markdown] teaches="self-attention does not see order"
# *Shifted keys* finds every day without extra parameters, so the number of parameters is not the reason. *Not itself*
# loses one day in four of the five seeds. In seed 1, it learned no day well: that training run did not settle, and we
# have not looked into it. What counts is that no seed finds all seven.
#
# These runs only illustrate the claim; it is established by a proof. With symmetric scores, it is impossible that every
# day attends most to the next, even if no day can attend to itself. Without the diagonal, the argument with lengths
# fails, and only the symmetry remains. The assignment's written question asks you for this proof.
#
# How general is this result? The diary needs a closed circle, in one layer with one head. The Reformer ([@kitaev2020])
# uses one projection for queries and keys, and its authors report no loss. A
# [replication](https://wandb.ai/fastai_community/reformer-fastai/reports/Experiments-Shared-Query-Key-Attention--Vmlldzo0MzI1MTc)
# with three layers could not confirm that. Both studies compare models that predict the next token, in which a mask
# hides the future ([lecture @masking](@masking)). Of any two tokens, only the later one asks the other, so no circle
# can close. The Reformer also gives all keys length one, and a token attends to itself only if it has no other choice.
#
# Some whole Transformers even work with fixed weights. In one design, each layer learns a single attention matrix for
# all inputs, random at first. Such models "perform quite competitively" on several tasks ([@tay2021]). FNet mixes the
# tokens with a fixed Fourier transform, and reaches 92 to 97 % of BERT's accuracy on the GLUE benchmark
# ([@leethorp2022]).
#
# Why is there a third matrix? Without $W_V$, the output would be $AX$. A token would hand over its whole vector,
# including the features by which it is found, and $d_v$ would have to be $d_\text{model}$. In principle, two matrices
# are superfluous: one matrix can replace $W_Q W_K^\top$, and another $W_V W_O$ if a linear layer $W_O$ follows.
# Separate matrices are useful when they are *narrow*, as in [lecture @many_heads](@many_heads). Then they hold fewer
# numbers than their product, and select what to compare and what to hand over.
#
# ## Permutation equivariance: self-attention does not see order
#
# We return to Anna's sentence and swap the two names: *Ben lent Anna her book because he asked.* Now Ben lends and Anna
# borrows. *What will change in the layer's output?* Think of *her*, of *lent*, and of the whole attention matrix.

# %%
swap = [2, 1, 0, 3, 4, 5, 6, 7]                                  # Ben lent Anna her book …
X_swapped, swapped = X[swap], [words[i] for i in swap]
O_swapped, A_swapped = attend(X_swapped @ W_Q, X_swapped @ W_K, X_swapped @ W_V)
figures.two_orders({"Anna lent Ben …": (words, A), "Ben lent Anna …": (swapped, A_swapped)},
                   followed=("Anna", "Ben"))
lent = words.index("lent")
print("“lent” received", O[lent], "\n        and now", O_swapped[lent])
#| caption: Attention matrices of a sentence and of the same words in another order. The
#|   columns of the two names are framed.

# %% tags=["hide-input"]
assert torch.allclose(O_swapped, O[swap], atol=1e-6), "every word takes its output along"

# %% [raw] slide
# ## Only the order has changed
# {figure}
#
# The names took their rows, columns and outputs along. *Lent* cannot find out who lent and who borrowed.

# %% [markdown]
# Only the order has changed. The names have swapped places and taken their rows, columns and outputs with them: the
# column of *Anna* (purple) is first on the left and third on the right, with the same weights for the same words.
# *Lent* receives Anna and Ben in equal parts, as before. It can find out that both took part, but not who lent and who
# borrowed. Our hand-made matrices are not the reason. The next cell shuffles random sentences, with random matrices,
# and then does the same with a recurrence:

# %%
torch.manual_seed(1)
worst, rnn = 0.0, nn.RNN(6, 5, batch_first=True).double()
for _ in range(200):
    Z, order = torch.randn(9, 6, dtype=torch.float64), torch.randperm(9)
    W = torch.randn(3, 6, 5, dtype=torch.float64)
    shuffled = Z[order]                                          # the same tokens, reordered
    before, _ = attend(Z @ W[0], Z @ W[1], Z @ W[2])             # (9, 5)
    after, _ = attend(shuffled @ W[0], shuffled @ W[1], shuffled @ W[2])
    worst = max(worst, (after - before[order]).abs().max().item())
before, _ = rnn(Z)
after, _ = rnn(shuffled)
moved = (after - before[order]).abs().max().item()
print(f"self-attention, 200 sentences shuffled: largest difference {worst:.0e}")
print(f"a recurrence, one sentence shuffled:    largest difference {moved:.1f}")

# %% tags=["hide-input"]
assert worst < 1e-12 and moved > 0.1

# %% [raw] slide
# ## Permutation equivariance
# $$f(PX) = P\,f(X) \qquad\text{for every permutation } P$$
#
# {print}
#
# . . .
# - Scores of $PX$: $P\,QK^\top P^\top$. Softmax by rows: $P A P^\top$. Output: $(P A P^\top)(P V) = P A V$.
# - **Permutation invariance** is $f(PX) = f(X)$: a sum or a mean has it, self-attention does not.
# - Self-attention is an operation on **sets**; more layers do not change that. Lecture @order does.

# %% [raw] slide
# ## Check yourself: the same word twice
# *The **dog** chased another **dog**.*
#
# What can you say of the two outputs for *dog*?
# . . .
# > They are equal. Swapping the two dogs changes nothing in $X$, so nothing in the output. But it swaps their rows.

# %% [markdown] teaches="complexity, path length and sequential operations: the paper's table 1; recurrence, convolution, attention: three kinds of sequence models"
# If the tokens are shuffled, the outputs are shuffled in the same way, for all matrices and all sentences. This is
# **permutation equivariance**: $f(PX) = P f(X)$ for every matrix $P$ that reorders rows. The equations show why. The
# scores of $PX$ are $P QK^\top P^\top$. The softmax of a shuffled row is the shuffled softmax of the row, so the
# weights become $P A P^\top$. The output becomes $(P A P^\top)(P V) = P A V$, because $P^\top P = I$. Do not confuse
# this with **permutation invariance**, $f(PX) = f(X)$, which holds for a sum or a mean over all tokens, but not for
# self-attention.
#
# Self-attention is an operation on *sets*. This is what the shuffled diary needed, because the order of the cards meant
# nothing. For a sentence it is a defect, and more layers do not remove it, because a stack of equivariant layers is
# equivariant. [Lecture @order](@order) shows how to tell a token its position.
#
# > **Check yourself.** A sentence contains the same word twice: "the dog chased another dog". What can you say of the
# > two outputs for *dog*?
# > <details><summary>Answer</summary>They are equal. Swapping the two dogs changes nothing in X, so it cannot change
# > the output. But the swap also exchanges the two outputs, so they must be equal. (This holds without a mask.
# > Lecture @order looks at what a mask changes.)</details>
#
# ## What a layer costs: path length, arithmetic, steps, memory
#
# Vaswani et al. ([-@vaswani2017, section 4]) ask three questions about a layer. How long is the path of a signal from
# one token to another? How much arithmetic does the layer need? How many steps must be taken one after the other? We
# begin with the path, because a long path makes a dependency hard to learn. The paper argues this but does not measure
# it. ([Lecture @bottleneck](@bottleneck) measured how the gradient fades.) Tang et al. ([-@tang2018]) tested the
# argument in translation. Over long distances, self-attention was no better than a recurrence at **subject–verb
# agreement**, but it was clearly better at **word sense disambiguation** (telling the senses of a word apart).

# %%
figures.path_lengths(n=7, width=2)
#| caption: The shortest path (thick line) from the first position to the last: counted in
#|   cells in the recurrence, in layers in the other two.
#| label: path-lengths

# %% [raw] slide
# ## Path length: from the first token to the last
# {figure}
#
# Recurrence: through every cell. Self-attention: one layer. Restricted: about $n / \texttt{width}$ layers.

# %% [markdown]
# In a recurrence, a signal from the first token reaches the last through every cell in between. In self-attention, any
# two tokens are one layer apart, however long the sentence. In **restricted** self-attention (third picture), a token
# attends only to itself and to `width` tokens on each side. Such layers are cheaper than full self-attention, but about
# $n / \texttt{width}$ of them are needed to cross the sentence. A convolution over the same window needs as many
# layers.
#
# Next comes the arithmetic. The product of an $(a, b)$ matrix and a $(b, c)$ matrix takes $abc$ multiplications, each
# with an addition (**multiply-adds**). If every vector is $d$ wide, self-attention takes:
#
# | product | sizes | multiply-adds |
# |---|---|---|
# | $XW_Q$, $XW_K$, $XW_V$ | three times $(n, d)(d, d)$ | $3nd^2$ |
# | $QK^\top$ | $(n, d)(d, n)$ | $n^2d$ |
# | $AV$ | $(n, n)(n, d)$ | $n^2d$ |
#
# An output matrix $W_O$ would add $nd^2$. A simple recurrence $h_t = \tanh(x_t W + h_{t-1} U)$ multiplies two vectors
# by a $d \times d$ matrix at each of $n$ steps, which takes $2nd^2$. The cell compares our formula for self-attention
# with torch's own count of operations, two for each multiply-add. *Guess:* in a sentence of 30 tokens with $d$ = 1,000,
# what share of the arithmetic is quadratic in $n$ (the two products that take $n^2d$)? And how much memory do the $n^2$
# weights need at $n$ = 50,000?

# %% [raw] slide
# ## Counting multiply-adds
# An $(a, b)$ matrix times a $(b, c)$ matrix takes $abc$ multiply-adds.
#
# | product | sizes | multiply-adds |
# |---|---|---|
# | $XW_Q$, $XW_K$, $XW_V$ | $3 \times (n, d)(d, d)$ | $3nd^2$ |
# | $QK^\top$ | $(n, d)(d, n)$ | $n^2 d$ |
# | $AV$ | $(n, n)(n, d)$ | $n^2 d$ |
#
# > **Guess first.** What share is quadratic in $n$, the two products with $n^2 d$, in a sentence of 30 tokens with $d = 1000$?

# %%
with FlopCounterMode(display=False) as counter:
    Z, W = torch.randn(96, 64), torch.randn(3, 64, 64)
    attend(Z @ W[0], Z @ W[1], Z @ W[2])
n, d = 96, 64
print("counted", counter.get_total_flops() // 2, " by formula", 3 * n * d**2 + 2 * n**2 * d)

d = 1000
for n in (30, 512, 1500, 50_000):
    pairs, all_of_it = 2 * n**2 * d, layer_cost("self-attention", n, d).multiply_adds
    print(f"n = {n:>6}: {pairs / all_of_it:5.1%} of the arithmetic is quadratic in n, "
          f"{4 * n**2:>14,} bytes of weights")                   # float32: four bytes each

# %% tags=["hide-input"]
assert counter.get_total_flops() // 2 == layer_cost("self-attention", 96, 64).multiply_adds
assert 2 * 1500**2 * d == 3 * 1500 * d**2, "half and half at n = 1.5 d"

# %% [raw] slide
# ## The quadratic part: 2% in a sentence, 97% in a document
# {print}
#
# . . .
# - Up to about $n = 1.5\,d$ the projections cost more.
# - The $n^2$ weights are also kept in memory, unless **FlashAttention** computes them block by block.

# %% [raw] slide
# ## A common mistake: “O(n²d), so cheaper than a recurrence while n < d”
# These orders leave out the projections. What does the full count say?
# . . .
# $$\underbrace{2nd^2}_{\text{simple recurrence}} \;<\; \underbrace{3nd^2 + 2n^2d}_{\text{self-attention}} \qquad\text{at every length}$$
#
# Self-attention does **not** do less arithmetic. Its advantages: a short path between any two tokens, and no step that waits.

# %% [raw] slide
# ## Table 1 of Vaswani et al. (2017)
# | layer | complexity | sequential operations | maximum path length |
# |---|---|---|---|
# | self-attention | $O(n^2 d)$ | $O(1)$ | $O(1)$ |
# | recurrent | $O(n d^2)$ | $O(n)$ | $O(n)$ |
# | convolutional | $O(k\,n d^2)$ | $O(1)$ | $O(\log_k n)$ dilated, $O(n/k)$ without |
# | self-attention, restricted | $O(r\,n d)$ | $O(1)$ | $O(n/r)$ |
#
# > **Guess first.** Width 64. At 64 tokens self-attention does three times the arithmetic of the recurrence: which is faster? And at 2,048 tokens?

# %% [markdown] erratum="O(n²d) alone; cheaper while n is small"
# In a sentence of 30 tokens, the quadratic part is 2% of the arithmetic. In a document of 50,000 tokens, it is almost
# everything (see [lecture @cheap_attention](@cheap_attention)). Up to $n = 1.5\,d$, the projections cost more than the
# quadratic part. The $n^2$ weights must also be **kept in memory** for the backward pass, for every sentence and in
# every layer (and, from lecture @many_heads on, for every head). At $n$ = 50,000, this is 10 GB each time.
# **FlashAttention** ([@dao2022]) avoids this: it computes the weights block by block, and recomputes them in the
# backward pass.
#
# > **A common mistake: "self-attention costs O(n²d), so it is cheaper than a recurrence while n < d".** These orders
# > come from table 1 below, which leaves out the projections. Counted in full, a simple recurrence takes less
# > arithmetic than self-attention at *every* length, since $2nd^2 < 3nd^2 + 2n^2d$. (A GRU has three such pairs of
# > matrices and an LSTM four. So an LSTM takes more than self-attention as long as $n < 2.5\,d$, or $2\,d$ with $W_O$.)
#
# So self-attention saves no arithmetic compared with a simple recurrence. It has two other advantages: the path between
# any two tokens is short, and no position waits for another. Here is table 1 of Vaswani et al. ([-@vaswani2017]), for
# windows of $r = 2 \cdot \texttt{width} + 1$ tokens and convolutions over $k$ positions:
#
# | layer | complexity | sequential operations | maximum path length |
# |---|---|---|---|
# | self-attention | $O(n^2 d)$ | $O(1)$ | $O(1)$ |
# | recurrent | $O(n d^2)$ | $O(n)$ | $O(n)$ |
# | convolutional | $O(k\,n d^2)$ | $O(1)$ | $O(\log_k n)$, with **dilated** convolutions; $O(n/k)$ without |
# | self-attention, restricted | $O(r\,n d)$ | $O(1)$ | $O(n/r)$ |
#
# In a **dilated** convolution, the positions of a window have gaps between them, which widen from layer to layer. All
# layers except the recurrent one take a fixed number of steps, however long the sentence. (This holds when the whole
# sequence is given. A decoder that *generates* goes token by token with any of these layers.)
#
# Is a layer in which no position waits also faster? The next cell measures the processor time of one call of a layer,
# forward only, on one sentence and one thread of a CPU. The two layers take turns, and the shortest of fifty calls
# counts. *Make two guesses.* At 64 tokens of width 64, self-attention (with $W_O$) does three times the arithmetic of
# the recurrence. Which layer is faster? And which at 2,048 tokens?

# %%
clock = time.perf_counter if os.name == "nt" else time.thread_time       # Windows: wall time


def seconds(layers, x, rounds=50):
    """The shortest time of a call of each layer, forward only; the layers take turns."""
    best = {name: math.inf for name in layers}
    with torch.no_grad():
        for _ in range(rounds):
            for name, layer in layers.items():
                start = clock()
                layer(x)
                best[name] = min(best[name], clock() - start)
    return best


layers = {"self-attention": MultiHeadAttention(64, n_heads=1, bias=False),
          "recurrence (nn.RNN)": nn.RNN(64, 64, batch_first=True)}
sizes = [16, 64, 256, 512, 1024, 2048]
found = [seconds(layers, torch.randn(1, n, 64)) for n in sizes]
times = {name: [best[name] for best in found] for name in layers}
viz.curves(times, xs=sizes, x_name="length n  (d = 64)", y_name="processor time (s)",
           log_x=True, log_y=True)
attention, recurrent = times.values()
ratio = [a / r for a, r in zip(attention, recurrent, strict=True)]
print("self-attention takes, for each second of the recurrence:")
for n, share in zip(sizes, ratio, strict=True):
    print(f"    {share:4.2f} at n = {n:>4}, for {2 + n / 64:5.2f} times the arithmetic")
straight = recurrent[-1] / recurrent[2]
print(f"the recurrence takes {straight:.1f} times as long at n = 2048 as at n = 256")
print("time of eight sentences at once, 64 tokens each, divided by the time of one:")
one, eight = (seconds(layers, torch.randn(batch, 64, 64)) for batch in (1, 8))
growth = {name: eight[name] / one[name] for name in layers}
for name in layers:
    print(f"    {growth[name]:4.2f} {name}")
#| caption: Processor time of one call of a layer against the length of its sentence: one
#|   thread, shortest of fifty calls, logarithmic axes.

# %% tags=["hide-input"]
# More arithmetic, less time, until the quadratic part catches up. A busy machine may differ.
costs = [(4 * n * 64**2 + 2 * n**2 * 64) / (2 * n * 64**2) for n in sizes]      # W_O included
assert costs == [2 + n / 64 for n in sizes] and (costs[1], costs[-1]) == (3, 34)
below = all(share < cost for share, cost in zip(ratio, costs, strict=True))
far_below = all(2 * share < cost for share, cost in zip(ratio[1:], costs[1:], strict=True))
of_attention, of_recurrence = growth.values()
steps_decide = of_recurrence < min(4, of_attention) and of_attention < 8
catches_up = ratio[1] < 1 and ratio[-1] > 1.2 * min(ratio[1:-1])
if not (catches_up and below and far_below and steps_decide and 6 < straight < 11):
    print("Your machine orders these times otherwise than the text says; run the cell again.")

# %% [raw] slide
# ## More arithmetic, less time: until the quadratic part catches up
# {figure}
# |||
# - $2 + n/d$ times the arithmetic: 3 times at 64 tokens, 34 times at 2,048.
# - The ratio of the times is far below that: a few large products, and no step that waits.
#
# On a GPU waiting wastes far more: lecture @training.
#
# **Now you:** a@self_attention, exercise 4

# %% [raw] slide
# ## In short
# | | | shape |
# |---|---|---|
# | projections | $Q = XW_Q,\quad K = XW_K,\quad V = XW_V$ | $(n, d_k)$, $(n, d_k)$, $(n, d_v)$ |
# | attention weights | $A = \operatorname{softmax}(QK^\top / \sqrt{d_k})$, along the keys | $(n, n)$, rows sum to one |
# | output | $O = AV$ | $(n, d_v)$ |
# | equivariance | $f(PX) = P f(X)$ | |
# | cost | $3nd^2 + 2n^2d$ multiply-adds, one step, path 1 | $n^2$ weights kept |
#
# **Missing:** order (lecture @order); something other than averages, and a causal mask (lecture @masking).
#
# **Now do** assignment a@self_attention. **Next:** lecture @order.

# %% [markdown]
# At 64 tokens, self-attention does more arithmetic and still takes less time. (The loop of torch's recurrence does not
# run in Python.) From 256 tokens to 2,048, the recurrence has eight times as many steps, and takes about eight times as
# long. In long sentences, the lead of self-attention shrinks because of its quadratic part. With $W_O$, self-attention
# does $(4nd^2 + 2n^2d) / 2nd^2 = 2 + n/d$ times the arithmetic of the recurrence: 3 times at 64 tokens, 34 times at
# 2,048. The ratio of the times is smaller than this at every length, and much smaller from 64 tokens on.
#
# We think the reason is this. Self-attention does its arithmetic in a few large products, which are fast on a
# processor. The recurrence can do half of its arithmetic at once, all products $x_t W$. The other half consists of many
# small products, each of which waits for the one before.
#
# The last printed lines test this. Eight sentences at once need eight times the arithmetic, but the number of steps
# stays the same. Both layers take less than eight times as long, and the recurrence's time grows less. So a large part
# of its time seems to be a fixed cost of each step: waiting, or the overhead of even a small product. On one thread, we
# cannot tell which.
#
# On the machine that made this page, the recurrence is the faster layer at 2,048 tokens. Where the two curves cross
# depends on the machine. A GPU does thousands of multiply-adds at once, so waiting wastes far more of its capacity;
# [lecture @training](@training) computes how much from data sheets.
#
# > **Check yourself.** (1) In a large model with d = 4096, up to about which n do the projections take more arithmetic
# > than QKᵀ and AV? (2) You double n. How much more memory does the attention matrix take? (3) A convolution and
# > restricted self-attention see the same window. Which of the two knows the place of each neighbour, and at what cost?
# > <details><summary>Answers</summary>(1) 1.5 · 4096 = 6144. (2) Four times as much: n² numbers for every sentence of
# > the batch. (3) The convolution does, because it has a matrix for each place of the window. The cost is one product
# > of a vector and a matrix for each place, at every position. Attention projects each token three times, however wide
# > the window.</details>
#
# **Now you:** [a04](@self_attention/assignment), exercise 4.
#
# ## In short
#
# | | | shape |
# |---|---|---|
# | projections | $Q = XW_Q,\quad K = XW_K,\quad V = XW_V$ | $(n, d_k)$, $(n, d_k)$, $(n, d_v)$ |
# | attention weights | $A = \operatorname{softmax}(QK^\top / \sqrt{d_k})$, along the keys | $(n, n)$, rows sum to one |
# | output | $O = AV$ | $(n, d_v)$ |
# | equivariance | $f(PX) = P f(X)$ | |
# | cost | $3nd^2 + 2n^2d$ multiply-adds, one step, path 1 | $n^2$ weights kept |
#
# Self-attention turns a token's vector into a contextual embedding: a weighted average of values from its own sentence.
# Its weights are data-dependent, whereas the weights of a convolution are fixed. Queries and keys have separate
# projections, because a shared projection makes the scores symmetric, $e_{ij} = e_{ji}$. The layer sees a set of tokens
# and not their order. It does more arithmetic than a simple recurrence, but no step waits for another.
#
# Can self-attention replace recurrence? Not yet. Three things are missing:
#
# | what is missing | why | where it is added |
# |---|---|---|
# | order | a set has none | [lecture @order](@order) |
# | something other than averages | however many layers you stack, values are only projected and averaged again | [lecture @masking](@masking) |
# | a causal mask, which hides the future | a token that is to be predicted must not be among the tokens that answer | [lecture @masking](@masking) |
#
# The layer also has only one attention matrix, so *lent* had to look for lender and borrower with one query.
# [Lecture @many_heads](@many_heads) gives it several.
#
# > **Check yourself.**
# > 1. Suppose the softmax is left out. Is the layer still permutation equivariant? Are its mixing weights still
# >    data-dependent?
# > 2. In a sentence of one token, what does self-attention compute?
# > 3. Suppose all keys are equal. What does every token receive?
# > <details><summary>Answers</summary>
# >
# > 1. Yes, both: $(P QK^\top P^\top)(PV) = P\,QK^\top V$, and $QK^\top$ still depends on $X$. But the weights no longer
# >    sum to one.
# > 2. The only weight is 1, so $o_1 = v_1 = x_1 W_V$, which is a linear layer.
# > 3. All scores of a token are equal, so it receives the mean of the values, whatever its query.</details>
#
# **Now do** [assignment @self_attention](@self_attention/assignment) (about 70 minutes): four exercises (one is
# debugging), a question in words, and an extension. **Next:** [lecture @order](@order).
#
# **Further reading.** [+@vaswani2017]: section 3.2.1 for the equation, section 4 with table 1 for "why self-attention".
# Earlier work: [+@cheng2016], in which a recurrent network attends to its own past; [+@parikh2016]; [+@lin2017].
# [+@velickovic2018], on attention along the edges of a given graph. [+@lee2019], on attention where order truly means
# nothing. [+@tang2018]. [+@tay2021], on weights without queries and keys. [+@leethorp2022]. [+@xiao2024].
