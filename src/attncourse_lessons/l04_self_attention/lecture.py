# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3 (ipykernel)
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Lecture @self_attention · Self-attention: every token asks every token
#
# *About 40 minutes, including about one minute of computing. You need query, key, value and the scaled dot product from
# [lecture @lookup](@lookup), the matrix of attention weights from [lecture @cross_attention](@cross_attention), and one
# fact from [lecture @bottleneck](@bottleneck): a recurrent network takes its steps one after another.*
#
# After this lecture you can
#
# * write **scaled dot-product self-attention** from memory, for one token and as matrix products;
# * explain why a token has **three** vectors: why its query differs from its key, and why it has a separate value;
# * say what **data-dependent** weights can do that fixed weights cannot;
# * say what **permutation equivariance** is, and show that self-attention has it;
# * count what a layer costs in multiply-adds, sequential steps, path length and memory.
#
# ## Why a token needs its sentence: contextual embeddings
#
# *Anna lent Ben her book because he asked.* Whose book was it, and who asked? You knew at once that *her* refers to
# Anna and *he* to Ben. Finding the words that refer to the same person or thing is called **coreference resolution**.
#
# **An embedding table cannot do it.** It has one vector for *her*, the same in every sentence, and nothing in that
# vector says "Anna". The answer is three words to the left, and *her* has to fetch it. What we want is a **contextual
# embedding**: a vector for *her in this sentence*.
#
# In [lecture @cross_attention](@cross_attention), a decoder fetched vectors from an encoder by attention, but the
# encoder itself was still a recurrent network. Can attention do that job, too? In **cross-attention**, a token collects
# vectors from another sentence; in **self-attention**, it collects them from its own.

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
# So far a recurrence carried a state from word to word, and attention fetched vectors. Can attention do both jobs?

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
import statistics
import time

import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from attncourse.attention import attend
from attncourse.counting import layer_cost
from attncourse.data.diary import DAYS, MEALS, shuffled_weeks

torch.set_num_threads(1)  # one thread: the times below do not depend on the cores

# %% [markdown]
# Our **tokens** are the sentence's eight words. A real embedding has hundreds of numbers, but we give each word a
# vector that you can read: six features, each 1 or 0. Each name has a feature of its own, and every other word except
# *because* has a feature for its kind. The sentence becomes a matrix with one word in each row.

# %%
features = ["Anna", "Ben", "feminine pronoun", "masculine pronoun", "verb", "thing"]
sentence = [("Anna", "Anna"), ("lent", "verb"), ("Ben", "Ben"),
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
# How does *her* find Anna? Attention needs queries, keys and values, and the simplest choice is to use the word vectors
# for all three: $q_i = k_i = v_i = x_i$. The **attention score** of two words is then $x_i \cdot x_j$, which measures
# how similar they are. *Before you run the next cell:* will *her* give the largest weight to *Anna*, to *he* or to
# *her*?

# %%
scores = X @ X.mT                                    # (8, 8)  how similar are words i and j?
weights = (3 * scores).softmax(dim=-1)               # (8, 8)  3 (inverse temperature): sharper
her = words.index("her")
figures.one_row("every word is its own query and key", words, weights, row=her)
#| caption: Attention weights where every word is its own query and key (rounded: 0.12 is
#|   1/8). The two verbs share a vector; *because* has no feature.

# %% tags=["hide-input"]
assert weights[her].argmax() == her, "it attends to itself"

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
# **The word *her* attends to itself, because nothing is more similar to *her* than *her*.** Similarity is the wrong
# question. Better features would not help: as long as all vectors are equally long, no vector has a larger dot product
# with $x_i$ than $x_i$ itself (the Cauchy–Schwarz inequality). Besides, similarity is mutual,
# $x_i \cdot x_j = x_j \cdot x_i$. Need is not: *her* needs *Anna*, but *Anna* does not need *her*.
#
# ## Query, key and value: three projections of each token
#
# So a word needs three vectors: with the first it **asks**, by the second others **find** it, and the third is what it
# **hands over**. For each of these roles, a matrix projects the word's own vector:
#
# $$\begin{aligned}
# q_i &= x_i W_Q && \text{query: what it looks for} \\
# k_i &= x_i W_K && \text{key: what it is found by} \\
# v_i &= x_i W_V && \text{value: what it hands over}
# \end{aligned}$$ (eq:projections)
#
# In a network these matrices are learned, but we write them by hand once, to show what there is to learn. Each query
# and each key has two numbers, one for "a woman?" and one for "a man?". Only the two names can be found.

# %%
#                    woman? man?                       6: how sharp the softmax will be
W_Q = torch.tensor([[0.0, 0.0],                      # Anna asks nothing
                    [0.0, 0.0],                      # nor does Ben
                    [6.0, 0.0],                      # a feminine pronoun looks for a woman
                    [0.0, 6.0],                      # a masculine pronoun for a man
                    [6.0, 6.0],                      # a verb for anyone who might have done it
                    [0.0, 0.0]])                     # W_Q is (d_model, d_k) = (6, 2)
W_K = torch.zeros(6, 2)                              # (d_model, d_k)
W_K[0, 0] = W_K[1, 1] = 1.0                          # Anna is found as a woman, Ben as a man
hands_over = ["Anna", "Ben", "verb", "thing"]        # what the four numbers of a value mean
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
# **For a name, the key says *what kind of* word it is, and the value says *which*.** So *her* can look for a woman and
# receive Anna. Without $W_V$, a token would hand over its whole vector, including all that serves only to ask or to be
# found.
#
# ## Scaled dot-product self-attention for one token
#
# How do the three vectors work together? The query of token $i$ is compared with the key of every token $j$, its own
# included. The softmax turns these **scores** $e_{ij}$ into **attention weights** $\alpha_{ij}$, which sum to one over
# $j$. The output $o_i$ is the average of the values, weighted by them:
#
# $$e_{ij} = \frac{q_i \cdot k_j}{\sqrt{d_k}} \qquad\quad \alpha_{ij} = \frac{\exp(e_{ij})}{\sum_{j'} \exp(e_{ij'})}
# \qquad\quad o_i = \sum_j \alpha_{ij}\, v_j$$ (eq:one-token)
#
# This is **scaled dot-product attention**, the lookup [@eq:soft-attention] of [lecture @lookup](@lookup), with query,
# key and value from one sentence. The division by $\sqrt{d_k}$ keeps the scores from growing with the width $d_k$ of
# queries and keys.
#
# For *her*, we can do this by hand. Its row of $X$ has a single 1, so its query is one row of $W_Q$, (6, 0). Its dot
# product with Anna's key, (1, 0), is 6, and with every other key it is 0:

# %%
match = math.exp(6 / math.sqrt(2))                   # Anna's key: q · k = 6, divided by √d_k
other = math.exp(0 / math.sqrt(2))                   # each of the seven other keys: q · k = 0
total = match + 7 * other
to_Anna, to_another = match / total, other / total                # the weights: they sum to one
print(f"attention weights: Anna {to_Anna:.3f}, each of the seven others {to_another:.3f}")
o = torch.tensor([to_Anna, to_another, 2 * to_another, to_another])   # Anna, Ben, 2 verbs, book
for name, number in zip(hands_over, o.tolist(), strict=True):
    print(f"her receives {number:.2f} of {name}")

# %% [raw] slide
# ## “Her”, by hand
# {code}
# . . .
# {print}
# . . .
# Nearly pure Anna.

# %% [raw] slide
# ## Follow a word from its scores to what it receives
# > **Guess first.** What will *asked* get? And *book*, which asks nothing?

# %% [markdown]
# **Almost everything that *her* receives is Anna.** If another woman's name has the same key, (1, 0), and a value of
# its own, the same query brings *her* that value. A Transformer projects what *her* received back to the width of the
# word's own vector and adds the two ([lecture @deep_stacks](@deep_stacks)). The sum is *her in this sentence*, the
# contextual embedding that we wanted.
#
# Choose a word in the next figure (purple), and follow it from its scores to what it receives. It starts with *her*,
# whose weights you know. *Guess before you choose another:* will *asked* receive Anna, Ben or a mixture? And what will
# *book*, which asks nothing, receive: nothing, itself, or a bit of everything?

# %%
def ask(word):
    i = words.index(word)
    found = figures.one_token(X, i, W_Q, W_K, W_V)      # scores (8,), weights (8,), o (4,)
    return figures.one_query(words, i, *found, hands_over)


viz.explore(ask, word=words, start={"word": "her"})
#| caption: One token (purple) asks: its scores, its attention weights, and how much of each
#|   feature it receives.

# %% [raw] slide
# ## Choose a word
# {figure}

# %% [raw] slide
# ## No token can keep its weight back
# - *asked* and *lent* look for a person, and the sentence offers two: half Anna, half Ben.
# - *book* asks nothing: all scores are 0, so it gets the mean of all values.
# - Weights that sum to one must go somewhere. Large models learn **attention sinks**.
#
# **Now you:** a@self_attention, exercise 1

# %% [raw] slide
# ## All tokens at once
# No token waits for another: each needs only $x_1, \dots, x_n$, and all of these are given.
#
# $$Q = XW_Q \qquad K = XW_K \qquad V = XW_V$$
#
# $$A = \operatorname{softmax}\Bigl(\frac{QK^\top}{\sqrt{d_k}}\Bigr) \qquad O = AV$$
#
# The softmax runs along the rows, over the keys.
#
# > **Guess first.** Where in these matrices is *her*, which asks? Where is *Anna*, which answers?

# %% [markdown] teaches="self-attention, token by token and in matrices"
# *Asked* receives Anna and Ben in equal parts, because it looks for a person and the sentence offers two. So does
# *lent*, which will cause trouble later. *Book* asks nothing, so all its scores are zero and it receives the mean of
# all values.
#
# **No token can keep its weight back, because its weights sum to one.** It can only spend it where it does no harm,
# as on *because*, whose value is zero. Many large language models put weight that they do not need on the first few
# tokens, which are then called **attention sinks** ([@xiao2024]).
#
# **Now you:** [a04](@self_attention/assignment), exercise 1.
#
# ## All tokens at once: five matrix products and a softmax
#
# **All tokens can ask at once, because none has to wait for another.** Each needs only $x_1, \dots, x_n$, and all of
# these are given at the start, whereas in a recurrence, $h_5$ has to wait for $h_4$. With all queries, keys and values
# as rows of matrices:
#
# $$Q = XW_Q \qquad K = XW_K \qquad V = XW_V \qquad A = \operatorname{softmax}\Bigl(\frac{QK^\top}{\sqrt{d_k}}\Bigr)
# \qquad O = AV$$ (eq:self-attention)
#
# The softmax runs along each row, over the keys, and $A$ is the **attention matrix**. *Before you look at the figure:*
# in $A$, is *her*, the token that asks, a row or a column? And *Anna*, the token that answers?

# %%
figures.self_attention_shapes(n=8, d_model=6, d_k=2, d_v=4, asking=her, weight=to_Anna,
                              answering=words.index("Anna"), names=("her", "Anna"))
#| caption: Self-attention in matrices: the row of one query, followed through all products (×).
#| label: self-attention

# %% [raw] slide
# ## Five matrix products and a softmax
# {figure}

# %% [markdown]
# *Her* (purple) is a row from $X$ to $O$. *Anna* (black) is a row of $K$ and $V$, but a *column* of $K^\top$ and
# therefore of scores and weights. A ring marks where the two meet. The row of *her* in $A$ weights *all* rows of $V$,
# although only Anna's is drawn.
#
# **Rows ask, columns answer.** The attention matrix is square, $n \times n$, because the same words ask and answer. So
# its axes are easy to mix up, and no shape error warns you. The package's `attend` does the last two steps of
# [@eq:self-attention].

# %%
O, A = attend(query=X @ W_Q, key=X @ W_K, value=X @ W_V)         # (8, 4), (8, 8)
print("the row of “her” is what we computed by hand:", torch.allclose(O[her], o, atol=1e-6))
figures.one_row("attention weights", words, A, row=her)
#| caption: Attention weights with separate queries and keys (rounded).
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
# Do learned matrices ever look like this? In BERT, Clark et al. ([-@clark2019]) found a head in which a mention of a
# person or thing attends to an earlier mention of the same one, in well over half of the cases.
#
# > **A common mistake: the sum over the wrong index.** In $o_i = \sum_i \alpha_{ij} v_i$, the index of the sum is also
# > that of the result. The sum must run along a *row* of $A$, over the tokens $j$ that answer. The rows sum to one; a
# > column need not: Anna's sums to 2.38.

# %% tags=["hide-input"]
assert torch.allclose(A.sum(dim=1), torch.ones(8))
assert abs(A[:, 0].sum() - 2.38) < 0.005
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
# > **A common mistake: rows and columns in one formula.** In this course, as in Vaswani et al. ([-@vaswani2017]),
# > tokens are rows and matrices are on the right, $xW$. Some texts write $Qx_i$ for one token but $XQ$ for the
# > sentence. The one $Q$ is the transpose of the other, and if it is square, no error tells you.
# > `nn.Linear(d_in, d_out)` stores a (d_out, d_in) weight and computes $xW^\top$.

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
# ## Padding in self-attention: forbidden columns, ignored rows
#
# In a batch, short sentences are padded, and padding must not answer ([lecture @cross_attention](@cross_attention)). In
# self-attention, padding also asks, so it has columns *and* rows in the matrix of scores:

# %%
figures.padded_scores(words[:5], padding=2)
#| caption: The scores of a padded sentence: columns of padding are forbidden, rows of padding
#|   are ignored.

# %% [raw] slide
# ## Padding has columns and rows
# - A **column** of padding is forbidden to every token: $-\infty$ before the softmax.
# - A **row** of padding is computed, and nothing after the layer may use it.
# |||
# {figure}

# %% [markdown] teaches="recurrence, convolution, attention: three kinds of sequence models"
# **No token may attend to padding, and nobody uses what padding receives.** So the scores in a *column* of padding
# (hatched) are set to $-\infty$ before the softmax. A *row* of padding (grey) is computed like any other, but nothing
# after the layer may use its output. Do not forbid the rows, too: the softmax of a row of nothing but $-\infty$ is nan.
#
# ## Data-dependent weights: the shuffled diary
#
# The layer is complete, but what can it do that simpler layers cannot? Its weights are **data-dependent**: in
# $o_i = \sum_j \alpha_{ij}(X)\, v_j$, another sentence gets other weights from the same three matrices. A layer with
# **fixed weights** learns its weights once and uses the same ones for every input. Examples are a linear layer along
# the sentence, $o_i = \sum_j m_{ij} x_j$, and a convolution, which learns a matrix for each offset $j - i$.
#
# Here is a task that needs data-dependent weights. A diary of a week's dinners is written on seven cards, one for each
# day, and the cards have been dropped. For each card, the task is to say what was eaten on the *next* day (Monday
# follows Sunday). The answer follows the arrow:

# %%
days, meals, tomorrow = shuffled_weeks(1, torch.Generator().manual_seed(1))      # (1, 7) each
for day, meal, answer in zip(days[0], meals[0], tomorrow[0], strict=True):
    print(f"{DAYS[day]}  {MEALS[meal]:<6} → {MEALS[answer]}")

# %% [raw] slide
# ## A task where the weights must depend on the input: the shuffled diary
# {print}
#
# > **Guess first.** Twelve meals, each day's drawn independently. On how many of the cards can fixed weights be right?
# |||
# For each card: what was eaten on the *next* day? Which card to look at depends on what is written on the cards.
#
# | layer | weights |
# |---|---|
# | **fixed weights** | a learned 7 × 7 table |
# | **two projections** | $W_Q$, $W_K$ |
#
# Control: fixed weights on weeks in order. Five seeds for each layer.

# %% [markdown]
# Friday's answer is toast, because Saturday's card says so. Each meal is one of twelve, drawn independently of the
# others, so a meal can occur twice.
#
# We train two layers with five seeds each. Both embed the day and the meal, add the two vectors, and predict the next
# day's meal from $o_i$. They differ only in how they compute their weights:
#
# * **fixed weights**: a learned 7 × 7 table of scores, indexed by position, through the same softmax;
# * **two projections**, $W_Q$ and $W_K$: self-attention. Here you can see why a value is not a key: a card must be
#   *found by its day*, but must *hand over its meal*.
#
# As a control, we also train fixed weights on weeks whose cards lie in order.

# %%
class Diary(nn.Module):
    def __init__(self, kind, d=32):
        super().__init__()
        self.kind = kind
        self.day, self.meal = nn.Embedding(7, d), nn.Embedding(len(MEALS), d)
        self.query = nn.Linear(d, d, bias=False)
        # "one projection" comes in the next section
        self.key = self.query if kind == "one projection" else nn.Linear(d, d, bias=False)
        self.value = nn.Linear(d, len(MEALS), bias=False)
        self.fixed = nn.Parameter(torch.zeros(7, 7))

    def forward(self, days, meals):
        x = self.day(days) + self.meal(meals)                             # (batch, 7, d)
        if self.kind.startswith("fixed"):                         # whatever the cards say
            A = self.fixed.softmax(dim=-1)                                # (7, 7)
            return A @ self.value(x), A                                   # (batch, 7, meals)
        return attend(self.query(x), self.key(x), self.value(x))          # and (batch, 7, 7)

# %% [markdown]
# *Guess before you train.* Fixed weights see all seven meals, but they give each place the same weight in every week.
# Will they be right on a twelfth of the cards, on a sixth, on a third, or on more than half?

# %%
def weeks(batch, draws, in_order=False):
    """Days, meals and tomorrow's meals of new weeks, (batch, 7) each."""
    cards = shuffled_weeks(batch, draws)
    return figures.monday_first(cards) if in_order else cards


def train(kind, seed, steps=400, Layer=Diary):
    """A layer of this kind, trained, and its share of right answers for each day."""
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
for kind in ("fixed weights", "fixed, in order", "two projections"):
    diaries[kind] = [train(kind, seed) for seed in range(5)]
    shares = [sum(right) / 7 for _, right in diaries[kind]]
    print(f"{kind:<16} right on", *(f"{share:5.0%}" for share in shares))

# %% [raw] slide
# ## Fixed weights cannot choose
# {print}
#
# In effect they know which meals the other cards show, but not which of them is the next day's. Naming the most frequent one is right as often.

# %% tags=["hide-input"]
_, six, _ = shuffled_weeks(20_000, torch.Generator().manual_seed(0))      # (weeks, 7)
often = nn.functional.one_hot(six[:, 1:]).sum(dim=1).amax(dim=-1)         # (weeks,)  1 to 6
best = (often / 6).mean().item()
print(f"naming the most frequent of the six other meals: right on {best:.0%} of the cards")
for (_, fixed), (_, ordered), (_, two) in zip(*diaries.values(), strict=True):
    assert abs(sum(fixed) / 7 - best) < 0.02, "the same weights for every input cannot choose"
    assert min(ordered) > 0.98, "with no choice to make they need none"
    assert min(two) > 0.98, "asking and being found, separately, solve it"
assert round(best, 2) == 0.32

# %% [markdown]
# **Fixed weights alone cannot choose: they are right on about a third of the cards.** But each card's vector contains
# its day. Why can the layer not read it there? Because its sum falls into two:
#
# $$\sum_j m_{ij}\,(\text{day}_j + \text{meal}_j)\,W_V
# = \sum_j m_{ij}\,\text{day}_j W_V + \sum_j m_{ij}\,\text{meal}_j W_V$$
#
# So what a meal adds to the prediction does not depend on the day of its card. All that the layer can do is count the
# meals of the other six cards. On average, the most frequent meal is on nearly two of them. Naming it is right on 32%
# of the cards, about as often as the layer is.
#
# With the cards in order, the same layer solves the task. So it fails because the right card lies in another place
# every week. Self-attention makes almost no mistakes. Here are the weights of both layers (seed 0) in two weeks:

# %%
days, meals, _ = shuffled_weeks(2, torch.Generator().manual_seed(1))      # (2, 7)  two weeks
moving = {}
for kind, name in (("fixed weights", "fixed weights"), ("two projections", "self-attention")):
    with torch.no_grad():
        _, attended = diaries[kind][0][0](days, meals)                    # (7, 7) or (2, 7, 7)
    for week, A_week in enumerate(attended.expand(2, 7, 7)):
        moving[f"{name}, week {week + 1}"] = ([DAYS[day] for day in days[week]], A_week)
figures.weeks_as_they_fell(moving)
#| caption: Two weeks, the cards as they fell: fixed weights (top) and self-attention
#|   (bottom). In each row, a frame marks the next day's card and the weight on it.

# %% [raw] slide
# ## The weights move with the cards
# {figure}
# |||
# - **Fixed weights** are the same in both weeks.
# - In **self-attention**, each day finds the next, wherever its card lies.
#
# **Now you:** a@self_attention, exercises 2, 3 and 4

# %% tags=["hide-input"]
table = moving["fixed weights, week 1"][1]
assert torch.equal(table, moving["fixed weights, week 2"][1]), "the same in every week"
assert table.diagonal().max() < 0.05, "almost nothing on the card itself"
others = table[~torch.eye(7, dtype=torch.bool)]                           # (42,)
assert others.min() > 0.13 and others.max() < 0.2, "about a sixth on each of the others"
for week in (0, 1):
    at = moving[f"self-attention, week {week + 1}"][1].argmax(dim=-1)     # (7,)  which card
    assert torch.equal(days[week][at], (days[week] + 1) % 7), "each day finds the next"

# %% [markdown]
# **Self-attention's weights move with the cards.** Each day puts almost all its weight on the next day's card, wherever
# that lies. The fixed weights are the same in both weeks: almost nothing on the card itself and about a sixth on each
# of the others.
#
# **Now you:** [a04](@self_attention/assignment), exercises 2, 3 and 4.
#
# ## Separate queries and keys: can one projection serve both?
#
# Why do we need both $W_Q$ and $W_K$? Suppose we set $W_K = W_Q$ (**one projection**): a card then asks and is found
# with the same vector. We train this layer for 1,600 steps instead of 400, so that a failure cannot come from too
# little training. *Guess:* will it fail on every day, on one day, or on none?

# %% [raw] slide
# ## Save a matrix: one projection, W_K = W_Q
# A card has one vector, with which it both asks and is found.
#
# > **Guess first.** What will go wrong?

# %%
diaries["one projection"] = [train("one projection", seed, steps=1600) for seed in range(5)]
print("      ", *(f"{day:>5}" for day in DAYS))
for seed, (_, right) in enumerate(diaries["one projection"]):
    print("seed", seed, *(f"{share:5.0%}" for share in right))

# %% [raw] slide
# ## One projection loses a day
# {print}
#
# The lost day is right in one week out of twelve: pure chance.

# %% tags=["hide-input"]
for _, one in diaries["one projection"]:
    assert sorted(one)[1] > 0.95, "all other days are learned"
    assert abs(min(one) - 1 / 12) < 0.025, "the lost day is pure chance"

# %% [markdown]
# **One projection loses a day.** Six days are nearly always right. That is a surprise: in our first attempt, nothing
# matched a word better than itself. But every seed has a **lost day**, which is right in about one week out of twelve.
# With twelve meals, this is pure chance. What does the lost day attend to? Here are the weights of seed 0, with the
# days in order:

# %%
draws = torch.Generator().manual_seed(0)
days, meals, _ = weeks(2000, draws, in_order=True)                        # (2000, 7) each
tables = {}
for kind in ("one projection", "two projections"):
    model, _ = diaries[kind][0]                                           # seed 0
    _, attended = model(days, meals)                                      # (2000, 7, 7)
    tables[kind] = (DAYS, attended.mean(dim=0).detach())                  # (7, 7)
figures.lost_day(tables, lost="Sat", found="Sun")
#| caption: Attention weights (seed 0, mean of 2,000 weeks; below 0.01 not written). Each day
#|   should attend to the next; the ring marks where a weight is missing.

# %% [raw] slide
# ## The lost day attends to itself
# {figure}

# %% [markdown]
# **The lost day attends to itself.** On the right (two projections), each day attends to the next, and Sunday to
# Monday. On the left (one projection), Saturday, in the orange frame, gives itself all its weight. So it learns nothing
# about Sunday's meal and can only guess one of twelve. Nobody attends to Sunday.
#
# *A half-minute puzzle.* Let $u_i$ be the vector with which day $i$ both asks and is found. To find the next day, it
# needs $u_i \cdot u_{i+1} > u_i \cdot u_i$. Must $u_{i+1}$ then be longer or shorter than $u_i$? And can this hold for
# all seven days?

# %% [raw] slide
# ## A half-minute puzzle
# Day $i$ asks with $u_i$, and is found by $u_i$. To find the next day it needs
#
# $$u_i \cdot u_{i+1} > u_i \cdot u_i$$
#
# > **Guess first.** What does this ask of the lengths of the seven vectors? Can it hold for all seven days?

# %%
runs = {}
for seed, (model, right) in enumerate(diaries["one projection"]):
    with torch.no_grad():                                     # each day, with an average meal
        U = model.query(model.day.weight + model.meal.weight.mean(dim=0))     # (7, d)
    lost = right.index(min(right))
    week = [(lost + step) % 7 for step in range(1, 8)]        # in order, and the lost day last
    runs[f"seed {seed}"] = ([DAYS[day] for day in week], U[week])
figures.winding(runs)
#| caption: One projection. Left: seed 0, lengths and angles between neighbours to scale; the
#|   shadow of Mon is longer than Sun. Right: five seeds (some nearly coincide).
#| label: winding

# %% tags=["hide-input"]
lost_table = tables["one projection"][1]
assert runs["seed 0"][0][-1] == "Sat" and lost_table[5, 5] > 0.99
assert lost_table[:, 6].max() < 0.01, "nobody attends to Sunday"
sunday, monday = runs["seed 0"][1][:2]
assert abs(sunday @ monday / sunday.norm() - 13) < 0.5 and abs(sunday.norm() - 8.5) < 0.5
for _, vectors in runs.values():
    products = vectors @ vectors.mT                                           # (7, 7)
    assert (vectors.norm(dim=-1).diff() > 0).all(), "they grow along the week"
    margin = products[range(7), [1, 2, 3, 4, 5, 6, 0]] - products.diagonal()
    assert margin[:6].min() > 0 and margin[6] < 0
    assert products[6].argmax() == 6, "the lost day scores highest with itself"

# %% [raw] slide
# ## Longer and longer: the week cannot close into a circle
# {figure}
#
# - $u_i \cdot u_{i+1} > u_i \cdot u_i$ only if the next vector is **longer**. After one round, a vector would be longer than itself.
# - Scores are $X\,(W_Q W_K^\top)\,X^\top$: two matrices give any matrix of rank $\le d_k$, one gives a symmetric one. With the key a *shifted* query, as few parameters lose no day.

# %% [markdown]
# **Each vector must be longer than the one before, so the week cannot close into a circle.** To see why, divide
# $u_i \cdot u_{i+1} > u_i \cdot u_i$ by $\lVert u_i \rVert$. The left side becomes the length of the shadow of
# $u_{i+1}$ on the line of $u_i$ (Monday's on Sunday's line: about 13). The right side becomes the length of $u_i$
# (Sunday's: about 8.5). A shadow is never longer than its vector, so $u_{i+1}$ must be longer than $u_i$.
#
# The vectors of all five seeds do grow. But after one round, a vector would have to be longer than itself. The lost day
# pays for this: its vector is the longest, so it scores highest with itself.
#
# In matrices, the scores are $X\,(W_Q W_K^\top)\,X^\top$, divided by $\sqrt{d_k}$. With two projections, the product in
# the middle can be any matrix of rank at most $d_k$. With one, it is $W W^\top$, which is always symmetric, and then so
# are the scores: $e_{ij} = e_{ji}$.
#
# **It is the symmetry that loses a day, and not the 1,024 missing parameters.** If the key is a *shifted* copy of the
# query, just as few parameters find every day, in each of five seeds (folded below). The assignment's written question
# asks you for a proof that needs nothing but the symmetry.
#
# <details><summary>Going further: as few parameters, without the symmetry</summary>
#
# Two projections have 1,024 more parameters than one. To see that this is not the reason, we keep one matrix and break
# the symmetry: the key is the query with its 32 numbers **shifted** by one place. This layer finds every day, after
# only 400 steps. The next cell measures it.
#
# Five runs show that these asymmetric scores suffice. What symmetric scores cannot do has a proof: the days of a circle
# (three or more) cannot all give their largest weight to the next day alone, even if no day may attend to itself.
# </details>

# %% tags=["hide-cell"] jupyter={"source_hidden": true, "outputs_hidden": true}
# keys that are shifted queries
class ShiftedKeys(Diary):
    def forward(self, days, meals):
        x = self.day(days) + self.meal(meals)
        u = self.query(x)                                                 # (batch, 7, d)
        return attend(u, u.roll(1, dims=-1), self.value(x))


shifted = [train("one projection", seed, Layer=ShiftedKeys)[1] for seed in range(5)]
print("shifted keys, worst day of each seed:", *(f"{min(right):.0%}" for right in shifted))
assert min(map(min, shifted)) > 0.98, "without the symmetry no day is lost"
assert sum(p.numel() for p in nn.Linear(32, 32, bias=False).parameters()) == 1024

# %% [raw] slide
# ## Swap the two names
# > *Anna lent Ben her book because he asked.*
# >
# > *Ben lent Anna her book because he asked.*
#
# > **Guess first.** What changes in the output of *her*? Of *lent*? In the attention matrix?

# %% [markdown] teaches="self-attention does not see order"
# <details><summary>Going further: one projection, and fixed weights, in whole models</summary>
#
# The diary needs a closed circle, but a language model does not. The Reformer ([@kitaev2020]) uses one projection for
# queries and keys, with the keys scaled to length one. Its authors report no loss. A
# [replication](https://wandb.ai/fastai_community/reformer-fastai/reports/Experiments-Shared-Query-Key-Attention--Vmlldzo0MzI1MTc)
# with three layers could not confirm that. Both studies compare models that predict the next token, in which a mask
# hides the future ([lecture @masking](@masking)). Of any two tokens, only the later one asks the other, so no circle
# can close. With keys of equal length, though, nothing matches a token better than itself (our first attempt), so the
# Reformer lets a token attend to itself only if it has no other choice.
#
# Some whole Transformers even work with fixed weights. In one design, the attention matrices themselves are learned,
# starting from random numbers, and are the same for all inputs. Such models "perform quite competitively" on several
# tasks ([@tay2021]). FNet mixes the tokens with a fixed Fourier transform, and reaches 92 to 97 % of BERT's accuracy on
# the GLUE benchmark ([@leethorp2022]). In these models the tokens are in their natural order, as in our control.
# </details>
#
# ## Permutation equivariance: does self-attention see order?
#
# The order of the cards meant nothing, but in a sentence, order matters. We swap the two names: *Ben lent Anna her book
# because he asked*. Now Ben lends and Anna borrows. *Guess:* will *lent* receive another vector? Will *her*?

# %%
swap = [2, 1, 0, 3, 4, 5, 6, 7]                                  # Ben lent Anna her book …
X_swapped, swapped = X[swap], [words[i] for i in swap]
O_swapped, A_swapped = attend(X_swapped @ W_Q, X_swapped @ W_K, X_swapped @ W_V)
figures.two_orders({"Anna lent Ben …": (words, A), "Ben lent Anna …": (swapped, A_swapped)},
                   followed=("Anna", "Ben"))
for word in ("lent", "her"):                                     # the swap leaves both in place
    for when, outputs in (("before", O), ("now", O_swapped)):
        received = zip(hands_over, outputs[words.index(word)].tolist(), strict=True)
        print(f"{word:>4}, {when:>6}:", *(f" {name} {number:.2f}" for name, number in received))
#| caption: Attention matrices of the same words in two orders. The columns of the names are
#|   framed, and their weights written (rounded: 0.12 is 1/8).

# %% tags=["hide-input"]
assert torch.allclose(O_swapped, O[swap], atol=1e-6), "every word takes its output along"

# %% [raw] slide
# ## Only the order has changed
# {figure}
#
# The names took their rows, columns and outputs along. *Lent* cannot find out who lent and who borrowed.

# %% [raw] slide
# ## Permutation equivariance
# $$f(PX) = P\,f(X) \qquad\text{for every permutation } P$$
#
# . . .
# - Scores of $PX$: $P\,QK^\top P^\top$. Softmax by rows: $P A P^\top$. Output: $(P A P^\top)(P V) = P A V$.
# - **Permutation invariance** is $f(PX) = f(X)$: a sum or a mean has it, self-attention does not.
# - Self-attention is an operation on **sets**; more layers do not change that. Lecture @order does.

# %% [raw] slide
# ## Check yourself: the same word twice
# *The **river** joins a wider **river**.*
#
# What can you say of the two outputs for *river*?
# . . .
# > They are equal. Swapping the two rivers changes nothing in $X$, so nothing in the output. But it swaps their rows.

# %% [markdown] teaches="complexity, path length and sequential operations: the paper's table 1; recurrence, convolution, attention: three kinds of sequence models"
# **Only the order has changed.** Each name has taken its column with it: *Anna* (black) is first on the left and third
# on the right, with the same weights. *Lent* receives Anna and Ben in equal parts, as before, so it can find out that
# both took part, but not who lent and who borrowed. *Her* still receives almost only Anna.
#
# Our hand-made matrices are not the reason. **If the tokens are shuffled, the outputs are shuffled in the same way**,
# for all matrices and all sentences. Let $P$ be a **permutation matrix**: it reorders rows, has a single 1 in each row
# and column, and $P^\top P = I$. With $f(X)$ for the layer's output, $f(PX) = P f(X)$. This is **permutation
# equivariance**.
#
# To see why, put $PX$ into [@eq:self-attention]. The rows and columns of the scores are reordered. So are those of the
# weights, because the softmax of a shuffled row is the shuffled softmax of the row. In the output, $P^\top P$ cancels:
#
# $$\text{scores} \to P\,QK^\top P^\top \qquad A \to P A P^\top \qquad O \to (P A P^\top)(P V) = P A V$$
#
# **Permutation invariance** is something else: $f(PX) = f(X)$, as for a sum or a mean over all tokens.
#
# Self-attention is therefore an operation on *sets*, or strictly on **multisets**, in which an element may occur twice.
# For a sentence this is a defect. More layers do not remove it, because a stack of equivariant layers is equivariant.
# [Lecture @order](@order) shows how to tell a token its position.
#
# > **Check yourself.** A sentence contains the same word twice: "the river joins a wider river". What can you say of
# > the two outputs for *river*?
# > <details><summary>Answer</summary>They are equal. Swapping the two rivers changes nothing in X, so it cannot change
# > the output. But the swap also exchanges the two outputs, so they must be equal. This holds without a mask; lecture
# > @order looks at what a mask changes.</details>
#
# ## What a layer costs: path length, arithmetic, steps, memory
#
# Is self-attention worth its price? Vaswani et al. ([-@vaswani2017, section 4]) compare it with recurrent and
# convolutional layers on three counts: the path of a signal from one token to another, the arithmetic, and the steps
# that must be taken one after the other.
#
# ### Path length: from the first token to the last
#
# A long path makes a dependency hard to learn, because the gradient fades along it ([lecture
# @bottleneck](@bottleneck)). How long is the path from the first token to the last?

# %%
figures.path_lengths(n=7, width=2)
#| caption: The shortest path (thick) from the first position to the last, counted in cells
#|   or in layers; thin lines are the other connections.
#| label: path-lengths

# %% [raw] slide
# ## Path length: from the first token to the last
# {figure}
#
# Recurrence: through every cell. Self-attention: one layer. Restricted: about $n / \texttt{width}$ layers.

# %% [markdown]
# **In self-attention, any two tokens are one layer apart, however long the sentence.** In a recurrence, the signal
# passes through every cell. In **restricted** self-attention, a token attends only to itself and to `width` tokens on
# each side. Its layers are cheaper, but about $n / \texttt{width}$ of them are needed to cross the sentence. A
# convolution over the same window needs as many. Whether a short path helps in practice is less clear.
#
# <details><summary>Going further: does a short path help?</summary>
#
# Tang et al. ([-@tang2018]) tested it in translation. At **subject–verb agreement** over long distances, where a short
# path should help, self-attention was no better than a recurrence. It was clearly better at **word sense
# disambiguation**, which tells the senses of a word apart, but for this the authors suggest another reason:
# self-attention extracts the meaning of words better.
# </details>
#
# ### Multiply-adds and memory: what grows with n²
#
# The short path has a price in arithmetic. The product of an $(a, b)$ matrix and a $(b, c)$ matrix takes $abc$
# multiplications, each with an addition (**multiply-adds**). So if every vector is $d$ wide, self-attention takes:
#
# | product | sizes | multiply-adds |
# |---|---|---|
# | $XW_Q$, $XW_K$, $XW_V$ | three times $(n, d)(d, d)$ | $3nd^2$ |
# | $QK^\top$ | $(n, d)(d, n)$ | $n^2d$ |
# | $AV$ | $(n, n)(n, d)$ | $n^2d$ |
#
# The next cell compares their sum with torch's count of operations, two for each multiply-add. *Guess:* with $d$ =
# 1,000 and a sentence of 30 tokens, are the last two lines, which are quadratic in $n$, 2%, 20% or 50% of the
# arithmetic? And how much memory do the $n^2$ weights take at $n$ = 50,000, with four bytes each?

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
for n in (30, 1500, 50_000):
    pairs, all_of_it = 2 * n**2 * d, layer_cost("self-attention", n, d).multiply_adds
    print(f"n = {n:>6}: {pairs / all_of_it:5.1%} of the arithmetic is quadratic in n, "
          f"{4 * n**2:>14,} bytes of weights")                   # float32: four bytes each

# %% tags=["hide-input"]
assert counter.get_total_flops() // 2 == layer_cost("self-attention", 96, 64).multiply_adds
assert 2 * 1500**2 * d == 3 * 1500 * d**2, "half and half at n = 1.5 d"
restricted = layer_cost("restricted", n, d, 8).multiply_adds        # r = 17, n = 50,000
assert 3 * n * d**2 > restricted / 2, "r < 1.5 d: the projections are the larger part"

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
# ## No position waits for another
# A self-attention layer takes one step, a recurrence one for each token. Is it then also faster, with more arithmetic?
#
# $$\frac{3nd^2 + 2n^2d}{2nd^2} = 1.5 + \frac{n}{d}$$
#
# > **Guess first.** Width 64. At 64 tokens self-attention does two and a half times the arithmetic of the recurrence: which is faster? And at 4,096 tokens?

# %% [markdown] erratum="O(n²d) alone; cheaper while n is small"
# **In a sentence, the quadratic part is small change; in a long document, it is almost everything** (see [lecture
# @cheap_attention](@cheap_attention)). The two parts are equal, $2n^2d = 3nd^2$, at $n = 1.5\,d$.
#
# A plain implementation also **keeps the $n^2$ weights in memory** for the backward pass: 10 GB at $n$ = 50,000, for
# every sentence and every layer. **FlashAttention** ([@dao2022]) avoids it by computing the weights block by block, and
# again in the backward pass.
#
# > **A common mistake: "self-attention costs O(n²d), so it is cheaper than a recurrence while n < d".** Section 4 of
# > Vaswani et al. ([-@vaswani2017]) says so, too, but it compares orders of growth, and these leave out the
# > projections. A simple recurrence $h_t = \tanh(x_t W + h_{t-1} U)$ takes $2nd^2$ multiply-adds, which is less than
# > $3nd^2 + 2n^2d$ at *every* length. An LSTM has four such pairs of matrices and takes $8nd^2$, which is more, as long
# > as $n < 2.5\,d$.
#
# ### Sequential steps: which layer is faster?
#
# So self-attention saves no arithmetic against a simple recurrence. It saves waiting: **no position waits for
# another**. Does this make it faster? We time one call of each layer, forward only, on one thread of a CPU.
# Self-attention does $(3nd^2 + 2n^2d) / 2nd^2 = 1.5 + n/d$ times the arithmetic of the recurrence. With $d$ = 64, this
# is 2.5 times at 64 tokens and about 66 times at 4,096. *Guess* which layer is faster at 64 tokens, and which at 4,096.

# %% tags=["hide-input"]
clock = time.perf_counter if os.name == "nt" else time.thread_time       # Windows: wall time


def seconds(calls, rounds=30):
    """The median time of each call, forward only; all calls take turns."""
    took = {call: [] for call in calls}
    with torch.no_grad():
        for _ in range(rounds):
            for call, (layer, x) in calls.items():
                layer(x[:, :16])                                 # warm up, not measured
                start = clock()
                layer(x)
                took[call].append(clock() - start)
    return {call: statistics.median(each) for call, each in took.items()}


# %%
W = torch.randn(3, 64, 64) / 8                                   # W_Q, W_K, W_V


def attention_layer(x):
    Q, K, V = (x[:, None] @ each for each in W)                  # (1, 1, n, 64) each
    return nn.functional.scaled_dot_product_attention(Q, K, V)   # torch's own `attend`


layers = {"self-attention": attention_layer, "recurrence": nn.RNN(64, 64, batch_first=True)}
sizes = [16, 64, 256, 512, 1024, 2048, 4096]
calls = {(name, n): (layer, torch.randn(1, n, 64))
         for n in sizes for name, layer in layers.items()}
took = seconds(calls)                                            # the median of thirty calls
times = {name: [took[name, n] for n in sizes] for name in layers}
figures.race(sizes, times, arithmetic=[1.5 + n / 64 for n in sizes], marked=(64, 4096))
#| caption: Processor time of one call against length (d = 64, one thread, logarithmic axes).
#|   The notes compare self-attention with the recurrence.

# %% tags=["hide-input"]
# More arithmetic, less time, until the quadratic part catches up. A busy machine may differ.
attention, recurrent = times.values()
ratio = [a / r for a, r in zip(attention, recurrent, strict=True)]
costs = [layer_cost("self-attention", n, 64).multiply_adds / (2 * n * 64**2) for n in sizes]
assert costs == [1.5 + n / 64 for n in sizes] and (costs[1], costs[-1]) == (2.5, 65.5)
far_below = all(2 * share < cost for share, cost in zip(ratio[1:], costs[1:], strict=True))
linear = 1.7 < (recurrent[-1] / recurrent[-4]) ** (1 / 3) < 2.3       # for twice the steps
square = 3 < (attention[-1] / attention[-3]) ** (1 / 2) < 5
if not (ratio[1] < 1 < ratio[-1] and far_below and linear and square):
    print("Your machine's times differ from ours; run the cell again.")

# %% [raw] slide
# ## More arithmetic, less time: until the quadratic part catches up
# {figure}
# |||
# - Self-attention: a few large products, and no step that waits.
# - Recurrence: many small products, each of which waits for the one before.
#
# On a GPU waiting wastes far more: lecture @training.
#
# **Now you:** a@self_attention, exercise 5

# %% [raw] slide
# ## Table 1 of Vaswani et al. (2017)
# | layer | complexity | sequential operations (of one layer) | maximum path length |
# |---|---|---|---|
# | self-attention | $O(n^2 d)$ | $O(1)$ | $O(1)$ |
# | recurrent | $O(n d^2)$ | $O(n)$ | $O(n)$ |
# | convolutional | $O(k\,n d^2)$ | $O(1)$ | $O(\log_k n)$ dilated, $O(n/k)$ not |
# | self-attention, restricted | $O(r\,n d)$ | $O(1)$ | $O(n/r)$ |
#
# Self-attention's rows leave out the projections, $3nd^2$: in full attention, the larger part below $n = 1.5\,d$. A decoder that *generates* must go token by token.

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
# **At 64 tokens, self-attention does two and a half times the arithmetic in less time.** In long sentences, the
# quadratic part eats up its lead. At the right end of the figure, twice the tokens take the recurrence about twice as
# long, but self-attention about four times as long. At 4,096 tokens, the recurrence is the faster layer on our machine.
# But even there, self-attention takes nowhere near 66 times as long.
#
# Why? Self-attention does its arithmetic in a few large products, which are fast on a processor. Half of the
# recurrence's arithmetic is small products, each of which waits for the one before. (Its loop runs inside torch, so
# Python is not to blame.) A test: 32 sentences side by side are 32 times the arithmetic, but no more steps:

# %%
alone, together = torch.randn(1, 1024, 64), torch.randn(32, 1024, 64)
recurrence = layers["recurrence"]
one, many = seconds({"alone": (recurrence, alone), "together": (recurrence, together)}).values()
print(f"the recurrence: 32 × the arithmetic in {many / one:.1f} × the time")
if many > 12 * one:
    print("Your machine's times differ from ours; run the cell again.")

# %% [markdown]
# So a single sentence uses only a fraction of the speed that larger products reach, because its steps cannot be merged
# into one. On a GPU, waiting wastes far more ([lecture @training](@training)).
#
# Table 1 of Vaswani et al. ([-@vaswani2017]) compares the layers on all three counts. Windows have
# $r = 2 \cdot \texttt{width} + 1$ tokens, and convolutions span $k$ positions:
#
# | layer | complexity | sequential operations (of one layer) | maximum path length |
# |---|---|---|---|
# | self-attention | $O(n^2 d)$ | $O(1)$ | $O(1)$ |
# | recurrent | $O(n d^2)$ | $O(n)$ | $O(n)$ |
# | convolutional | $O(k\,n d^2)$ | $O(1)$ | $O(\log_k n)$ dilated, $O(n/k)$ not |
# | self-attention, restricted | $O(r\,n d)$ | $O(1)$ | $O(n/r)$ |
#
# **The rows of self-attention leave out the projections,** $3nd^2$. They count only $QK^\top$ and $AV$, the products in
# which tokens meet. As $n$ grows, little is lost by this in full self-attention, because $n^2d$ outgrows $nd^2$. But
# below $n = 1.5\,d$, what is left out is the larger part. In restricted self-attention, it is the larger part at every
# $n$ if $r < 1.5\,d$. So the table alone does not tell which layer takes less arithmetic.
#
# The table is about layers whose inputs are all given. A decoder that *generates* must still go token by token, because
# it reads what it has just written.
#
# <details><summary>Going further: what "dilated" means</summary>
#
# In a **dilated** convolution, the positions of a window have gaps between them, which widen from layer to layer. The
# entry without them, $O(n/k)$, is from the paper's text.
# </details>
#
# > **Check yourself.** (1) With d = 4096, up to about which n do the projections take more arithmetic than QKᵀ and AV?
# > (2) You double n. How much more memory does the attention matrix take?
# > <details><summary>Answers</summary>(1) 1.5 · 4096 = 6144. (2) Four times as much: n² numbers for every sentence of
# > the batch.</details>
#
# **Now you:** [a04](@self_attention/assignment), exercise 5.
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
# Self-attention gives each token a weighted average of values from its own sentence, with data-dependent weights.
# Queries and keys have separate projections, because a shared one makes the scores symmetric. The layer sees a set of
# tokens and not their order. It does more arithmetic than a simple recurrence, but no step waits for another.
#
# Can self-attention replace recurrence? Not yet. Three things are missing:
#
# | what is missing | why | where it is added |
# |---|---|---|
# | order | a set has none | [lecture @order](@order) |
# | something other than averages | however many layers you stack, values are only projected and averaged again | [lecture @masking](@masking) |
# | a causal mask, which hides the future | a token that is to be predicted must not be among the tokens that answer | [lecture @masking](@masking) |
#
# The layer also has only one attention matrix, so that *lent* had to look for lender and borrower with a single query:
# [lecture @many_heads](@many_heads) gives it several.
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
# **Now do** [assignment @self_attention](@self_attention/assignment) (about 100 minutes): five exercises, of which
# two are about testing and debugging, a question in words, and an extension. **Next:** [lecture @order](@order).
#
# **Further reading.** [+@vaswani2017]: section 3.2.1 for the equation, section 4 with table 1 for "why self-attention".
# [+@lee2019], on attention where order truly means nothing. [+@xiao2024], on attention sinks.
#
# <details><summary>More references</summary>
#
# *Earlier work:* [+@cheng2016], in which a recurrent network attends to its own past; [+@parikh2016]; [+@lin2017].
# *Graphs:* [+@velickovic2018], on attention along the edges of a given graph. If you read $\alpha_{ij}$ as the weight
# of an edge from token $j$ to token $i$, self-attention is **message passing** on a graph whose edges the sentence
# itself determines. *Path length:* [+@tang2018]. *Weights without queries and keys:* [+@tay2021], [+@leethorp2022].
# *Trained heads:* [+@clark2019].
# </details>
