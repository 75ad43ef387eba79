# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3 (ipykernel)
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Lecture @many_heads · Multi-head attention: several questions at once
#
# *About 55 minutes, of which less than one is computing time. You need scaled dot-product self-attention
# ([lecture @self_attention](@self_attention)), the reason for its $\sqrt{d_k}$ ([lecture @lookup](@lookup)), and for
# the KV cache the causal mask of [lecture @masking](@masking).*
#
# After this lecture you can
#
# * write **multi-head attention** from memory, as in the paper: projections, heads, concatenation, $W_O$;
# * say what one head with fixed weights cannot do: subtract, or give two answers to a *linear* readout;
# * compute all heads at once by reshaping, and find a reshape that has the right shape and the wrong contents;
# * say what heads cost, and what a narrow head loses: the **low rank** of its scores;
# * count the bytes of a **KV cache**, and save most of them by **grouped-query attention**;
# * test what a head of a trained model does, by its weights, by **ablation** and by **activation patching**.
#
# ## Why one head is not enough
#
# Self-attention failed on one word of [lecture @self_attention](@self_attention). In *Anna lent Ben her book* the word
# *lent* needs two facts: who gave the book, and who received it. The layer makes one query for *lent*, so *lent* gets one
# row of attention weights and one average. The average was half Anna and half Ben, and nobody can read from it who is who.
#
# We measure the damage on the diary of that lecture: seven shuffled cards, each with a day and a dinner.
# Now every card must answer **two** questions. What is for dinner *tomorrow*? What was for dinner *yesterday*?

# %% tags=["hide-input"]
try:
    from attncourse import viz

    from . import figures
    from .first_scores import variances
    from .low_rank import fitted, with_narrow_keys
    from .patching import (
        answers_with,
        beyond_the_sum,
        givers,
        guessing,
        mean_ablated,
        renamed,
        rows_at,
        trained,
    )
    from .subtracting import explained
except ModuleNotFoundError:
    raise ImportError(
        "This page needs the attncourse package: open it with `make lab` in the course's "
        "folder, or choose a kernel of the environment in which you installed the course."
    ) from None

import copy
import math
import random
import statistics
import time
from dataclasses import replace
from itertools import pairwise

import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from attncourse.attention import KeyValueCache, MultiHeadAttention, attend
from attncourse.counting import cache_bytes, count_parameters, preset
from attncourse.data.diary import DAYS, MEALS, of_another_day, shuffled_weeks
from attncourse.data.gossip import QUESTIONS, VOCABULARY, gossip, tell
from attncourse.transformer import LanguageModel, Weights
from attncourse_lessons.results import measured

torch.set_num_threads(1)  # models as small as these gain nothing from a second thread

# %% [raw] slide
# ## One head, one average
# > *Anna **lent** Ben her book*
#
# *Lent* needs two facts: who gave, and who received. One query makes one row of weights and one average: half Anna, half Ben.
# . . .
# **The diary with two questions**: seven shuffled cards. What is for dinner *tomorrow*? What was for dinner *yesterday*?

# %%
def two_questions(batch, generator):
    days, meals, tomorrow = shuffled_weeks(batch, generator)              # (batch, 7) each
    yesterday = of_another_day(days, meals, -1)                           # (batch, 7)
    return days, meals, torch.stack([tomorrow, yesterday], dim=-1)      # answers: (batch, 7, 2)


days, meals, answers = two_questions(1, torch.Generator().manual_seed(0))     # one diary
for day, meal, (tomorrow, yesterday) in zip(days[0], meals[0], answers[0], strict=True):
    print(f"{DAYS[day]}: {MEALS[meal]:<9} tomorrow {MEALS[tomorrow]:<9}"
          f" yesterday {MEALS[yesterday]}")

# %% [markdown] teaches="multi-head attention, split and merged"
# ## The formula: heads, concatenation, W_O
#
# **Multi-head attention** runs several attentions side by side. Each of them has small projections of its own and is
# called a **head**. Let the queries come from one sentence, $X$, and the keys and values from another, the **memory**
# $M$. With $h$ heads, the definition of Vaswani et al. ([-@vaswani2017, section 3.2.2]) is
#
# $$
# \begin{aligned}
# \operatorname{MultiHead}(X, M) &= \operatorname{Concat}(\text{head}_0, \dots, \text{head}_{h-1})\; W_O \\[2pt]
# \text{head}_i &= \operatorname{Attention}\bigl(X W_Q^{(i)},\; M W_K^{(i)},\; M W_V^{(i)}\bigr) \qquad
# \operatorname{Attention}(Q, K, V) = \operatorname{softmax}\Bigl(\frac{Q K^\top}{\sqrt{d_k}}\Bigr) V
# \end{aligned}
# $$
#
# In **self-attention** the two sentences are the same, $M = X$. In **cross-attention** they differ. (The paper counts
# heads from 1, and calls the layer's inputs $Q$, $K$ and $V$: our $X$, $M$ and $M$.)
#
# Each head has three matrices: $W_Q^{(i)}$ and $W_K^{(i)}$ of shape $(d_\text{model}, d_k)$, and $W_V^{(i)}$ of shape
# $(d_\text{model}, d_v)$. The layer puts the heads' outputs side by side (**concatenation**). Then the **output
# projection** $W_O$, of shape $(h\,d_v, d_\text{model})$, mixes them.
#
# How wide is a head? The usual choice is $d_k = d_v = d_\text{model} / h$. Then the concatenation is as wide as $X$.
# The paper's base model has $d_\text{model} = 512$, $h = 8$ and $d_k = d_v = 64$. Code calls the width of a head
# `d_head`.
#
# The divisor $\sqrt{d_k}$ gives scores of variance 1 where the components of queries and keys are independent, with mean 0
# and variance 1 ([lecture @lookup](@lookup)). Whether a layer has such queries and keys is another question; the last
# *Going further* measures it.
#
# The next figure draws the whole layer to scale, for 7 tokens, $d_\text{model} = 12$ and three heads. Each box is a
# matrix, with rows × columns under it. Each head has a colour. The orange row belongs to one token; it is pale where the
# token is a key or a value. *Follow this row:* where does the token meet the others?

# %% [raw] slide
# ## Multi-head attention (Vaswani et al. 2017, section 3.2.2)
# $$\operatorname{MultiHead}(X, M) = \operatorname{Concat}(\text{head}_0, \dots, \text{head}_{h-1})\; W_O$$
#
# $$\text{head}_i = \operatorname{Attention}\bigl(X W_Q^{(i)},\; M W_K^{(i)},\; M W_V^{(i)}\bigr)$$
#
# - **self-attention**: $M = X$; **cross-attention**: queries from $X$, keys and values from $M$
# - usually $d_k = d_v = d_\text{model} / h$: base model 512 = 8 × 64
#
# > **Guess first.** Follow one token through the layer: where does it meet the others?

# %%
figures.multi_head(n=7, d_model=12, n_heads=3, asking=2)
#| caption: Multi-head attention in matrices. The digit in a block is its head. Tokens meet
#|   only in A_i and its product with V_i. Pale: the token as key and value.
#| label: multi-head

# %% [raw] slide
# ## Tokens meet only inside the heads
# {figure}

# %% [markdown]
# Tokens meet only inside the heads: a row of $A_i$ compares one query with all keys, and $A_i V_i$ averages all values
# with these weights. Before and after, the layer computes each row from its own token alone. In code the formula is a
# loop and a concatenation:

# %%
class Heads(nn.Module):
    """Multi-head self-attention, head by head, as the formula reads."""

    def __init__(self, d_model, n_heads):
        super().__init__()
        shape = n_heads, d_model, d_model // n_heads          # (d_model, d_k) for each head
        self.W_Q = nn.Parameter(torch.randn(shape) / math.sqrt(d_model))
        self.W_K = nn.Parameter(torch.randn(shape) / math.sqrt(d_model))
        self.W_V = nn.Parameter(torch.randn(shape) / math.sqrt(d_model))
        self.W_O = nn.Parameter(torch.randn(d_model, d_model) / math.sqrt(d_model))

    def head(self, X, i):
        """The output of head i (batch, n, d_k) and its weights (batch, n, n)."""
        return attend(X @ self.W_Q[i], X @ self.W_K[i], X @ self.W_V[i])

    def forward(self, X):
        outputs = [self.head(X, i)[0] for i in range(len(self.W_Q))]   # h times (batch, n, d_k)
        return torch.cat(outputs, dim=-1) @ self.W_O                      # (batch, n, d_model)

# %% [raw] slide
# ## A loop and a concatenation
# {code}

# %% [markdown] erratum="Y on the left; a semicolon for two things"
# > **A common mistake: half in columns, half in rows.** Slides write
# > $\text{output}_i \in \mathbb{R}^{d/h}$, and $Y[\text{output}_0; \dots; \text{output}_{h-1}]$ with $Y$ for our $W_O$.
# > For *one* token, a column, both are right, and the semicolon stacks. But where all tokens are the rows of $X$, as in
# > $X W_Q^{(i)}$, heads stand side by side, and $W_O$ stands on the right. On the left the sizes do not even fit:

# %%
outputs = [torch.randn(7, 16), torch.randn(7, 16)]                        # n = 7, d = 32, h = 2
Y = torch.randn(32, 32)
side_by_side = torch.cat(outputs, dim=-1)                                 # (7, 32)
try:
    Y @ side_by_side
except RuntimeError as error:
    print("Y [outputs]:", error)
print("[outputs] Y:", tuple((side_by_side @ Y).shape))

# %% [raw] slide
# ## One, two and four heads on two questions
# The number of parameters does not change with the number of heads.
#
# > **Guess first.** Will a model with one head get both answers half right, or one right and the other wrong?

# %% [markdown] teaches="heads look at different things, k heads or one"
# ## One, two and four heads on two questions
#
# What does a second head cost in parameters? Nothing. One wide head has projections of $d \times d$. With two heads each
# of them becomes two projections of $d \times d/2$. $W_O$ is $d \times d$ in both cases.
#
# We train models with one, two and four heads on the diary. One linear layer reads both answers from the output. *Guess
# before you train:* will a model with one head get both answers half right, or one right and the other wrong?

# %%
class Diary(nn.Module):
    def __init__(self, layer, d_model=32):
        super().__init__()
        self.day, self.meal = nn.Embedding(7, d_model), nn.Embedding(len(MEALS), d_model)
        self.layer = layer
        self.read = nn.Linear(d_model, 2 * len(MEALS), bias=False)

    def forward(self, days, meals):
        x = self.day(days) + self.meal(meals)                             # (batch, 7, d_model)
        both = self.read(self.layer(x))                                  # (batch, 7, 2 · meals)
        return both.unflatten(-1, (2, len(MEALS)))                        # (batch, 7, 2, meals)


def share_right(model):
    """How often tomorrow's meal is right, and how often yesterday's, on weeks it never saw."""
    days, meals, answers = two_questions(2000, torch.Generator().manual_seed(99))
    with torch.no_grad():
        hit = model(days, meals).argmax(dim=-1) == answers                # (2000, 7, 2)
    return hit.float().mean(dim=(0, 1)).tolist()

# %%
def learn_diary(model, seed, steps=150):
    draws = torch.Generator().manual_seed(seed)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(steps):
        days, meals, answers = two_questions(64, draws)
        predicted = model(days, meals)                                    # (64, 7, 2, meals)
        loss = nn.functional.cross_entropy(predicted.flatten(0, 2), answers.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return model


diaries, learned = {}, []
for n_heads, n_seeds in ((1, 5), (2, 3), (4, 3)):
    for seed in range(n_seeds):
        torch.manual_seed(seed)
        diaries[n_heads, seed] = learn_diary(Diary(Heads(32, n_heads)), seed)
        size = sum(p.numel() for p in diaries[n_heads, seed].parameters())
        tomorrow, yesterday = share_right(diaries[n_heads, seed])
        print(f"heads: {n_heads}, seed {seed}, {size} parameters: "
              f" tomorrow {tomorrow:4.0%}   yesterday {yesterday:4.0%}")
        if n_heads == 1:
            learned.append("tomorrow" if tomorrow > yesterday else "yesterday")
print("one head learns", {day: learned.count(day) for day in ("tomorrow", "yesterday")})

# %% tags=["hide-input"]
for seed in range(3):
    one, two, four = (share_right(diaries[n_heads, seed]) for n_heads in (1, 2, 4))
    assert min(one) < 0.6 and max(one) > 0.75, "one head: one answer"
    assert min(two) > 0.95 and min(four) > 0.95

# %% [raw] slide
# ## One head: one answer right, the other wrong
# {print}

# %% [markdown]
# In every seed the model with one head learns one answer and gets most of the other wrong. The seed decides which one is
# learned.
#
# Why not both? Suppose that the head's weights are fixed. Then it receives a mixture of two
# dinners, $\alpha\,v_\text{tomorrow} + (1-\alpha)\,v_\text{yesterday}$ with $\alpha > \tfrac12$. Let there be only two
# meals, soup and pie. Then there are four mixtures, and they lie on one line. *Guess:* on this line, how many thresholds
# separate soup from pie for tomorrow, and how many for yesterday?

# %%
figures.two_answers(alpha=0.7)
#| caption: The four mixtures of one head, at their share of pie, and the dinners that must be
#|   read from them. Dashed: thresholds.
#| label: two-answers

# %% [raw] slide
# ## Why a linear readout cannot read two answers from one average
# $\alpha\,v_\text{tomorrow} + (1-\alpha)\,v_\text{yesterday}$, two meals:
#
# {figure}
#
# For tomorrow one threshold is enough. Yesterday **alternates** along the line.

# %% [markdown]
# Tomorrow's dinner needs one threshold. Yesterday's dinner alternates along the line and needs three. A linear layer has
# only one threshold on a line, so it must make a mistake. (At $\alpha = \tfrac12$ the two mixtures in the middle are the
# same, and no readout at all can separate them.)
#
# This is a limit of one head *and* a linear readout. A network with a hidden layer has several thresholds. The next cell
# fixes the weights of one head at 0.7 for tomorrow and 0.3 for yesterday, and trains the rest with both readouts. Then it
# lets a head with the hidden readout learn its weights, too:

# %% tags=["hide-input"]
def hidden_readout(hidden, d_model=32):
    answers = nn.Linear(hidden, 2 * len(MEALS))
    return nn.Sequential(nn.Linear(d_model, hidden), nn.ReLU(), answers)


class FixedWeights(Diary):
    """One head with weights of 0.7 on tomorrow and 0.3 on yesterday, and its readout."""

    def __init__(self, hidden=0, d_model=32):
        super().__init__(nn.Linear(d_model, d_model, bias=False))              # W_V W_O
        if hidden:
            self.read = hidden_readout(hidden, d_model)

    def forward(self, days, meals):
        later = (days[:, None] - days[:, :, None]) % 7                    # (batch, query, key)
        A = 0.7 * (later == 1) + 0.3 * (later == 6)                       # (batch, 7, 7)
        both = self.read(self.layer(A @ (self.day(days) + self.meal(meals))))
        return both.unflatten(-1, (2, len(MEALS)))                        # (batch, 7, 2, meals)


for hidden, readout in ((0, "linear"), (128, "one hidden layer")):
    for seed in range(3):
        torch.manual_seed(seed)
        tomorrow, yesterday = share_right(learn_diary(FixedWeights(hidden), seed))
        print(f"one head, fixed weights, readout: {readout:<16}  seed {seed}: "
              f" tomorrow {tomorrow:4.0%}   yesterday {yesterday:4.0%}")
        assert (yesterday > 0.95) == (hidden > 0) and tomorrow > 0.95
for seed in range(5):
    torch.manual_seed(seed)
    free = Diary(Heads(32, 1))
    free.read = hidden_readout(128)
    tomorrow, yesterday = share_right(learn_diary(free, seed))
    print(f"one head, learned weights, one hidden layer, seed {seed}: "
          f" tomorrow {tomorrow:4.0%}   yesterday {yesterday:4.0%}")

# %% [markdown]
# With the hidden layer and these weights one head answers both questions, in every seed: a network *can* read both from
# one mixture. But a head that learns its weights finds such a mixture only in some seeds. Two heads answer both in every
# seed. (For subtraction no readout helps, as we show below.)
#
# With two heads and a linear readout both answers are right. Does each head answer one question? We look at their
# attention weights. Then we do an **ablation**: we remove one head and measure the accuracy that is lost. Head $i$ reaches
# the output only through its own block of $d_k$ rows of $W_O$. If we set these rows to zero, the head is gone.

# %%
def without_head(model, i):
    model = copy.deepcopy(model)
    d_k = model.layer.W_Q.shape[-1]
    model.layer.W_O.data[i * d_k : (i + 1) * d_k] = 0.0                   # its block of rows
    return model


two = diaries[2, 0]
week = torch.arange(7)[None]                                              # (1, 7)  in order
x = two.day(week) + two.meal(week)                                        # (1, 7, d_model)
tables = {}
for i in (0, 1):
    _, A = two.layer.head(x, i)                                           # (1, 7, 7)
    tables[f"head {i}"] = DAYS, A[0].detach()                             # (7, 7)
viz.weight_tables(tables, numbers=True, digits=2)
for seed in range(3):
    for i in range(2):
        tomorrow, yesterday = share_right(without_head(diaries[2, seed], i))
        print(f"two heads, seed {seed}, without head {i}: "
              f" tomorrow {tomorrow:4.0%}   yesterday {yesterday:4.0%}")
#| caption: Attention weights of two trained heads (seed 0, one week in order): one answers
#|   *yesterday*, the other *tomorrow*.

# %% tags=["hide-input"]
lost = [share_right(without_head(two, i)) for i in (0, 1)]       # per head: tomorrow, yesterday
for answers in lost:
    assert min(answers) < 0.3 and max(answers) > 0.9, "each head carries one answer"
assert lost[0].index(min(lost[0])) != lost[1].index(min(lost[1]))

# %% [raw] slide
# ## Ablation: remove one head, and measure
# {figure}
#
# One head attends to the day before, the other to the day after. Nobody assigned the questions.

# %% [markdown] teaches="multi-head attention, split and merged; nanoGPT's forward pass"
# One head attends to the day before and the other to the day after. Without a head, the answer to its question falls to
# chance (one in twelve), and the other answer stays right. Nobody assigned the questions. The heads are
# interchangeable: if you renumber them together with their blocks of $W_O$, the layer computes the same.
#
# ## All heads at once: split, attend, merge
#
# The loop over heads is not needed. The heads' matrices, side by side, form one $d \times d$ matrix. Then $XW_Q$ holds the
# queries of all heads: the first $d_k$ columns belong to head 0, the next $d_k$ to head 1.
#
# A matrix product treats all axes but the last two as a batch. So the heads need an axis of their own *in front of* the
# tokens, (batch, h, n, d_k). With this axis one call of `attend` serves all heads. The parameters of our loop already have
# it:

# %%
loop, X = two.layer, torch.randn(5, 7, 32)                              # X: (batch, n, d_model)
per_head = X[:, None]                                                   # (batch, 1, n, d_model)
head_outputs, A = attend(per_head @ loop.W_Q, per_head @ loop.W_K, per_head @ loop.W_V)
print("outputs", tuple(head_outputs.shape), " weights", tuple(A.shape))
one_by_one = torch.stack([loop.head(X, i)[0] for i in (0, 1)], dim=1)     # (batch, h, n, d_k)
print("the same as one by one:", torch.allclose(head_outputs, one_by_one, atol=1e-5))

# %% [raw] slide
# ## All heads at once: split, attend, merge
# - One $d \times d$ matrix holds all heads, side by side.
# - **Split**: (batch, n, h · d_k) → (batch, h, n, d_k): cut the last axis, *then* exchange.
# - **Merge**: the same two steps backwards.
#
# > **Guess first.** What does head 0 hold if we ask `view` for (h, n, d_k) directly?

# %% [markdown]
# Checkpoints keep one $d \times d$ matrix for all heads, so its product has the shape (batch, n, d). We must **split**
# this product: cut the last axis in two, (h, d_k), and then move the heads' axis to the front. After the attention we
# **merge** the heads: the same two steps backwards.
#
# Why two steps? `view` can make (h, n, d_k) at once. Here are four tokens with four columns, for two heads. The letter
# names the token of a number, and the digit its column. *Before you look:* what will head 0 hold if we ask `view` for
# (2, 4, 2) directly?

# %%
four = ["Anna", "Ben", "Tom", "Eva"]
x = torch.arange(16).view(4, 4)                      # (n, d)  each number says where it is from
head_by_head = torch.stack([x[:, 0:2], x[:, 2:4]])  # (h, n, d_k)  columns 0 and 1, then 2 and 3
panels = {"x, (n, d)": x, "head by head": head_by_head, "view alone": x.view(2, 4, 2)}
figures.head_pieces(panels, four, d_model=4)
#| caption: Which numbers each head gets: the right reshape and a wrong one.

# %% [raw] slide
# ## The right shape and the wrong contents
# {figure}

# %% [markdown]
# In the middle panel head 0 has the first two columns of every token. In the right panel it has *all* columns of Anna
# and Ben, and nothing of Tom and Eva. Yet the shapes are right, and nothing crashes. `view` never moves a number: it
# reads the numbers in the order of memory, and starts new rows at other places.
#
# How can you notice the mistake? Ask a question with a known answer: *if one token changes, in which heads does anything
# change?* In all of them, if the reshape is right.

# %%
changed = x.clone()
changed[3] += 100                                        # another Eva
for name, before, after in (
    ("head by head", head_by_head, torch.stack([changed[:, 0:2], changed[:, 2:4]])),
    ("view alone", x.view(2, 4, 2), changed.view(2, 4, 2)),
):
    touched = (before != after).flatten(1).any(dim=1)    # (h,)
    print(f"{name:>12}: head 0 changes: {bool(touched[0])}, head 1: {bool(touched[1])}")

# %% [raw] slide
# ## Find it by a question with a known answer
# If one token changes, in which heads does anything change?
#
# {print}
# . . .
# `view` never moves a number. In all heads, if the reshape is right.
#
# **Now you:** a@many_heads, exercises 1 and 2

# %% [markdown]
# `transpose` moves no number either. It only changes the strides, the order in which memory is read. The tensor is then
# no longer **contiguous**, and `view` refuses to merge its axes. `flatten` and `reshape` copy where they must.
#
# <details><summary>How nanoGPT does it</summary>It calls <code>contiguous</code>, which makes a copy, before
# <code>view</code>. Like <code>nn.MultiheadAttention</code> it keeps the three projections of queries, keys and values as
# <em>one</em> matrix of d × 3d and splits its output in three.</details>
#
# **Now you:** [a07](@many_heads/assignment), exercises 1 and 2.
#
# PyTorch has the layer as `nn.MultiheadAttention`. With the weights of our trained loop it must give the loop's output:

# %%
# (h, d, d_k) → (d, h · d_k): the heads' matrices side by side
W_Q, W_K, W_V = (torch.cat(list(W), dim=-1) for W in (loop.W_Q, loop.W_K, loop.W_V))
mha = nn.MultiheadAttention(32, num_heads=2, bias=False, batch_first=True)
with torch.no_grad():
    mha.in_proj_weight.copy_(torch.cat([W_Q.mT, W_K.mT, W_V.mT]))         # (3 d, d)  transposed
    mha.out_proj.weight.copy_(loop.W_O.mT)
    print("torch's layer, our loop:", torch.allclose(mha(X, X, X)[0], loop(X), atol=1e-4))
    twice = mha(X @ W_Q, X @ W_K, X @ W_V)[0]
    print("projected by ourselves first:", torch.allclose(twice, loop(X), atol=0.1))

# %% [raw] slide
# ## A common mistake: projected twice
# `mha(W_q(x), W_k(x), W_v(x))`: but `nn.MultiheadAttention` has its projections *inside*.
#
# {print}
# . . .
# It wants $X$, three times. And its masks: True means *may not* attend.
#
# **Now you:** a@many_heads, exercises 3 and 4

# %% [markdown] erratum="projected twice"
# > **A common mistake: projected twice.** `nn.MultiheadAttention` has its projections *inside*. So
# > `mha(W_q(x), W_k(x), W_v(x))`, with three linear layers of one's own, projects everything twice. Nothing crashes, and
# > it is still attention, but not with the projections that the code names. The layer wants $X$, three times. (In its
# > masks, True means *may not* attend.)
#
# **Now you:** [a07](@many_heads/assignment), exercise 3: your layer, torch's weights, the same output. And exercise 4:
# all heads get the two masks of lecture @masking at once.
#
# > **Check yourself.** (1) Batch 8, 100 tokens, d_model 512, 8 heads: what are the shapes of the split queries, the
# > scores, and the merged output? (2) All heads are to use one padding mask (batch, 1, n). How must you change it?
# > <details><summary>Answers</summary>(1) (8, 8, 100, 64), (8, 8, 100, 100), (8, 100, 512). (2) It needs an axis for
# > the heads: <code>mask[:, None]</code> is (batch, 1, 1, n). Without it, broadcasting matches the batch axis of the
# > mask with the heads. That is an error, or, if there are as many heads as sentences, the wrong sentence's
# > mask.</details>
#
# ## Heads add up, so two heads can subtract
#
# The concatenation hides a sum. $W_O$ has a block of $d_v$ rows for each head, $W_O^{(i)}$. To multiply the
# concatenation by $W_O$, one can multiply each head's output by its own block and **add**:
#
# $$\operatorname{Concat}(\text{head}_0, \dots, \text{head}_{h-1})\,W_O = \sum_i \text{head}_i\, W_O^{(i)}
# = \sum_i A_i\; X\; W_V^{(i)} W_O^{(i)}$$ (eq:sum-of-heads)
#
# Every head writes to all $d_\text{model}$ columns, and the layer adds up what they write ([@elhage2021]). The same authors
# name the two halves of a head. The **QK circuit** $W_Q^{(i)} W_K^{(i)\top}$ decides *where* it attends, and the **OV
# circuit** $W_V^{(i)} W_O^{(i)}$ decides *what* it writes.
#
# In the diary the embeddings of day and meal are *added*, so each score has a part that depends on the two days alone.
# The cell prints these parts for head 0 of the trained model, with a row for the day of each query. *Guess:* where is the
# largest number of each row?

# %% [raw] slide
# ## Heads add up
# $$\operatorname{Concat}(\text{head}_0, \dots, \text{head}_{h-1})\,W_O = \sum_i \text{head}_i\, W_O^{(i)} = \sum_i A_i\; X\; W_V^{(i)} W_O^{(i)}$$
#
# - **QK circuit** $W_Q^{(i)} W_K^{(i)\top}$: *where* the head attends
# - **OV circuit** $W_V^{(i)} W_O^{(i)}$: *what* it writes (Elhage et al. 2021)
#
# > **Guess first.** The trained head's scores of days against days: where is the largest number of each row?

# %%
QK = two.layer.W_Q[0] @ two.layer.W_K[0].mT                             # (d_model, d_model)
by_day = two.day.weight @ QK @ two.day.weight.mT / math.sqrt(16)        # (7, 7)  d_k = 16
print("query", *(f"{day:>5}" for day in DAYS))
for day, row in zip(DAYS, by_day.tolist(), strict=True):
    print(f"{day:>5}", *(f"{score:5.1f}" for score in row))
OV = two.layer.W_V[0] @ two.layer.W_O[:16]                              # head 0's rows of W_O
written = two.meal.weight @ OV @ two.read.weight[len(MEALS):].mT        # (meals, meals)
same = (written.argmax(dim=-1) == torch.arange(len(MEALS))).sum()
print(f"yesterday's dinner, from OV: {same} of {len(MEALS)} meals are read as themselves")

# %% tags=["hide-input"]
steps = (by_day.argmax(dim=-1) - torch.arange(7)) % 7
assert len(set(steps.tolist())) == 1 and steps[0] in (1, 6), "one day on, or one back"

# %% [raw] slide
# ## The QK circuit has the question in it
# {print}
#
# **Now you:** a@many_heads, exercise 5

# %% [markdown]
# In all seven rows the largest number stands at the day before; for Monday that is Sunday. It is far above the rest. The
# trained QK circuit holds the question "what was yesterday?". (Meals have a part in the scores, too.) The OV circuit
# holds the answer: what it writes for a meal is read as this meal.
#
# **Now you:** [a07](@many_heads/assignment), exercise 5: what each head of a trained model writes.
#
# [Lecture @masking](@masking) said that a token receives an average of the tokens' vectors. That holds for one head.
# Two heads can do more. Put temperatures on the cards: yesterday 10 degrees, tomorrow 20. The values are the temperatures
# themselves. Head 0 attends to tomorrow, head 1 to yesterday, and $W_O$ has the rows 1 and −1:
#
# $$\operatorname{Concat}(\text{head}_0, \text{head}_1)\,W_O
# = \begin{pmatrix} 20 & 10 \end{pmatrix} \begin{pmatrix} 1 \\ -1 \end{pmatrix} = 20 - 10 = 10$$
#
# *Tomorrow is 10 degrees warmer than yesterday.* One head with the weights 0.7 and 0.3 gives $0.7 \cdot 20 + 0.3 \cdot 10 = 17$.
# It also gives 17 if both days have 17 degrees, but then the answer is 0. The readout receives 17 in both cases, so no
# readout can give both answers. (For any other fixed weights there are two such cases, too.)
#
# In matrices: two heads with opposite OV circuits add up to $(A_0 - A_1)\,X W$. The rows of $A_0 - A_1$ sum to **zero**,
# so this is not an average but a *difference*. The next cell computes it for each day of a week:

# %%
temperatures = torch.tensor([12.0, 14.0, 13.0, 17.0, 21.0, 20.0, 16.0])[:, None]     # (7, 1)
tomorrow, yesterday = torch.eye(7).roll(1, dims=1), torch.eye(7).roll(-1, dims=1)    # A_0, A_1
one_head = tomorrow @ temperatures                       # (7, 1)  always between 12 and 21
two_heads = tomorrow @ temperatures - yesterday @ temperatures           # W_O blocks: +1 and −1
print("one head: ", one_head[:, 0].tolist())
print("two heads:", two_heads[:, 0].tolist())
assert two_heads.min() < temperatures.min(), "outside of all that was there to be averaged"

# %% [raw] slide
# ## Two heads can subtract
# Opposite OV circuits: $(A_0 - A_1)\,X W$, and the rows of $A_0 - A_1$ sum to **zero**.
#
# {code}
#
# > **Guess first.** *How much warmer is tomorrow than yesterday?* How much of the variance can one head explain, and two?

# %% [markdown]
# Does training find such a difference? Each card now has a day and the temperatures of that day at four hours. The
# question is: *how much warmer is tomorrow than yesterday, at each hour?* The measure is $R^2$, the share of the answers'
# variance that the model explains. One head cannot give the difference. *Guess* how much it can still explain: nothing, a
# quarter, half?

# %%
differences = {
    "1 head": [explained(Heads, n_heads=1, hours=4, seed=seed) for seed in range(3)],
    "2 heads": [explained(Heads, n_heads=2, hours=4, seed=seed) for seed in range(3)],
}
r_squared = "R²: explained share of the variance of tomorrow − yesterday"
bound = {"the most that fixed weights of one head can reach": 0.5}
figures.seed_rows(differences, r_squared, bound)
#| caption: How well a difference of two values is predicted, with one head and with
#|   two; three seeds each.

# %% tags=["hide-input"]
assert max(differences["1 head"]) < 0.6 and min(differences["2 heads"]) > 0.95
nonlinear = [explained(Heads, 1, 4, seed, True, hidden=128, steps=400) for seed in range(3)]
print("one head, fixed weights, a readout with a hidden layer: R²",
      *(f"{share:.2f}" for share in nonlinear))
assert max(nonlinear) < 0.55

# %% [raw] slide
# ## One head explains half, two subtract
# {figure}
#
# One head reports one of the two days.

# %% [markdown]
# Two heads explain nearly everything, and one head explains half. With fixed weights one head cannot do better. Let it put
# the weight $\alpha$ on tomorrow, $T$, and $\beta$ on yesterday, $Y$, independent and of equal variance. $R^2$ is at most
# the squared correlation of $T - Y$ with $\alpha T + \beta Y$, which is
# $(\alpha - \beta)^2 / 2(\alpha^2 + \beta^2)$. No weight is negative, so this is at most ½, where the head reports only one
# of the two days. A nonlinear readout does not help, as the line above shows. (For normal temperatures the best guess of
# the difference, given a mixture, is linear in the mixture. With two dinners a hidden layer did help: there a mixture tells
# which two dinners went in.)
#
# So what lecture @masking said about averages holds for one head only. What of **rank collapse**? An average, applied again
# and again, makes all tokens alike. *Guess:* does a difference of two averages, too?

# %%
for seed in range(3):
    draws = torch.Generator().manual_seed(seed)
    A_0, A_1 = torch.randn(2, 7, 7, generator=draws).softmax(dim=-1)    # (7, 7) each
    for name, A in (("one average", A_0), ("a difference", A_0 - A_1)):
        X = start = torch.randn(7, 5, generator=draws)
        for _ in range(12):
            X = A @ X
        spread, at_first = ((x - x.mean(dim=0)).norm() for x in (X, start))
        sizes = torch.linalg.svdvals(X)                                   # (5,)  largest first
        print(f"12 times {name:<12}, seed {seed}: spread × {spread / at_first:.0e},"
              f"  second / first singular value {sizes[1] / sizes[0]:.0e}")

# %% [markdown]
# It does, in another way. The constant part is gone after one step, since the rows of $A_0 - A_1$ sum to zero. But here the
# vectors themselves shrink, so the tokens meet at zero. And repeated multiplication by one matrix leaves few directions: in
# seed 0 the second is a hundredth of the first, in seed 2 half. So two heads change *what* survives; they are no cure.
# Dong et al. ([-@dong2021]) prove rank collapse for any number of heads, as long as the weight matrices are not too large.
# [Lecture @deep_stacks](@deep_stacks) adds the residual connection.
#
# ## What heads cost: n² weights each, and a low rank
#
# Heads cost no parameters. Do they cost time and memory? The next cell prints the arithmetic of the matrix products, in
# FLOPs (floating-point operations; one multiplication and one addition are two), the number of attention weights, and the
# time of three steps on one CPU thread: $QK^\top$, softmax, $AV$. The FLOPs stay the same. *Guess* how many times longer
# 64 heads take than one.

# %% [raw] slide
# ## What heads cost
# The same FLOPs in the matrix products, for any number of heads.
#
# > **Guess first.** How many times longer do 64 heads take than one?

# %% tags=["hide-input"]
def milliseconds(q, k, v):
    """CPU time of the scores, the softmax and the average; the median of five calls each."""
    taken = []
    for _ in range(5):
        clock = [time.process_time()]
        scores = (q / math.sqrt(q.shape[-1])) @ k.mT                      # (1, h, n, n)
        clock.append(time.process_time())
        A = scores.softmax(dim=-1)                                        # (1, h, n, n)
        clock.append(time.process_time())
        A @ v                                                             # (1, h, n, d_k)
        clock.append(time.process_time())
        taken.append([1000 * (after - before) for before, after in pairwise(clock)])
    return [statistics.median(part) for part in zip(*taken, strict=True)]

# %%
x, costs = torch.randn(1, 512, 256), {}                                   # (batch, n, d_model)
for n_heads in (1, 4, 16, 64):
    layer, A = MultiHeadAttention(256, n_heads), []
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        layer(x, weights=A)
    q, k, v = torch.randn(3, 1, n_heads, 512, 256 // n_heads)             # the same sizes
    costs[n_heads] = counter.get_total_flops(), A[0].numel(), milliseconds(q, k, v)
    flops, weights, parts = costs[n_heads]
    print(f"heads: {n_heads:>2}   {flops:,} FLOPs   {weights:>10,} weights   ms:",
          f"QKᵀ {parts[0]:5.1f}  softmax {parts[1]:5.1f}  AV {parts[2]:5.1f}")

# %% tags=["hide-input"]
flops, numbers, parts = zip(*costs.values(), strict=True)
assert len(set(flops)) == 1 and numbers[3] == 64 * numbers[0] == 64 * 512**2
assert all(parts[3][i] > 2 * parts[0][i] for i in (0, 1)), "the same FLOPs, and far more time"

# %% [raw] slide
# ## n² weights for each head
# {print}
# . . .
# **A common mistake: “the same amount of computation as one head”.** Exact for parameters and matrix products; but $h\,n^2$ exponentials in place of $n^2$.

# %% [markdown] erratum="same amount of computation"
# > **A common mistake: "multi-head attention takes the same amount of computation as one head".** For parameters and
# > the FLOPs of matrix products this is exact. But $h$ heads have $h\,n^2$ exponentials in place of $n^2$. And the products
# > of narrow heads take longer, too: for the same FLOPs they write and read $h\,n^2$ numbers, and run far below the
# > processor's speed. (FlashAttention, [lecture @cheap_attention](@cheap_attention), does not keep the weights, but
# > computes the exponentials.)
#
# There is a second price. A head compares tokens through $W_Q^{(i)} W_K^{(i)\top}$. This $d \times d$ matrix is a
# product of two matrices with $d_k$ columns, so its **rank is at most $d_k$**: the **low-rank bottleneck**
# ([@bhojanapalli2020]). Here is the product for seven tokens and a very narrow head. All that this head can compare must
# pass through its two columns:

# %%
figures.low_rank(n=7, d_model=32, d_k=2)
#| caption: The scores of one head before the division, as a product of matrices, to scale.
#| label: low-rank

# %% [raw] slide
# ## A low rank for each head
# $W_Q^{(i)} W_K^{(i)\top}$ is $d \times d$, and its **rank is at most $d_k$** (Bhojanapalli et al. 2020).
#
# {figure}
#
# > **Guess first.** How narrow may one head be, if each of seven days must find the next?

# %% [markdown]
# The same holds for $W_V^{(i)} W_O^{(i)}$: a head writes into at most $d_v$ directions.
#
# To see the effect on the scores alone, we make the queries and keys narrow. The values keep 32 columns in all. The
# question is tomorrow's meal. *Guess* how narrow one head may be if each of the seven days must find the next one.

# %%
narrow = {}
for n_heads, d_k in ((1, 1), (1, 2), (2, 1), (3, 1), (4, 1)):
    name = f"{n_heads} head{'s' if n_heads > 1 else ''}, d_k = {d_k}"
    narrow[name] = [with_narrow_keys(n_heads, d_k, seed) for seed in range(3)]
shares = {name: [share for share, _, _ in found] for name, found in narrow.items()}
figures.seed_rows(shares, "share of right answers: dinner of the next day", {})
#| caption: Accuracy with narrow queries and keys, three seeds each.

# %% tags=["hide-input"]
assert max(shares["1 head, d_k = 1"]) < 0.75 and min(shares["1 head, d_k = 2"]) > 0.95
assert all(sum(right > 0.8 for right in days) == 2 for _, days, _ in narrow["1 head, d_k = 1"])

# %% [markdown] teaches="heads look at different things, k heads or one"
# One column is too narrow for one head, and two are enough. With $d_k = 1$ a key is one number, and a score is this number
# times the query's. So a query can prefer the largest key or the smallest, but never one in the middle. *Guess:* how many
# of the seven keys can be found, and which?

# %% tags=["hide-input"]
on_a_line = {}                  # per seed: seven keys, and how often each of them is found
for seed, (_, by_day, (_, keys)) in enumerate(narrow["1 head, d_k = 1"]):
    on_a_line[f"seed {seed}"] = keys[:, 0], [by_day[(day - 1) % 7] for day in range(7)]
figures.keys_on_a_line(on_a_line, DAYS, enough=0.8)
#| caption: One head with d_k = 1: the keys of the seven days, and how often the question of the
#|   day before finds them. Orange: in more than 80 % of the weeks.
#| label: keys-on-a-line

# %% tags=["hide-input"]
for keys, shares_of_days in on_a_line.values():
    found = {day for day, share in enumerate(shares_of_days) if share > 0.8}
    assert found == {keys.argmin().item(), keys.argmax().item()}, "the two ends of the line"

# %% [markdown]
# In all three seeds two keys are found, the two ends of the line. Three or four heads of one column nearly succeed
# together: each head has the bottleneck, but the sum of the heads gets around it. Width is better spent on one head here:
# with two columns in all, one head of two is right always, two heads of one about nine times in ten.
#
# *Guess:* how do seven keys fit into two columns, so that none is in the middle?

# %%
planes = [in_plane for _, _, in_plane in narrow["1 head, d_k = 2"]]       # one for each seed
figures.keys_in_a_plane({"seed 0": planes[0]}, DAYS)
#| caption: One head with d_k = 2: the keys of the seven days, and the directions of their
#|   queries.
#| label: keys-in-a-plane

# %% tags=["hide-input"]
for queries, keys in planes:
    assert (queries @ keys.T).argmax(dim=-1).tolist() == [1, 2, 3, 4, 5, 6, 0]

# %% [raw] slide
# ## Two columns: seven days fit on a circle
# {figure}
#
# A sum of heads can go around the bottleneck.

# %% [markdown]
# The seven keys lie around the centre, and none in the middle. A query has its highest score at the key that lies farthest
# in its direction. Here this is the key of the next day, for all seven queries and in all three seeds.
#
# Why, then, do real heads have 64 or 128 columns? Any number of keys fits on a circle, but each query here wants *one* key.
# *Guess:* how many columns does it take if each day must share its weight between two other days, chosen at random, or
# three? We fit $QK^\top$ of rank $d_k$ to such weights:

# %% tags=["hide-input"]
draws = torch.Generator().manual_seed(0)
wanted = torch.zeros(9, 7, 7)                          # three tables each: one, two, three days
wanted[:3] = torch.eye(7).roll(1, dims=1)                                 # one: the next day
for i in range(3, 9):
    for row in wanted[i]:                                                 # (7,)
        row[torch.randperm(7, generator=draws)[: i // 3 + 1]] = 1 / (i // 3 + 1)
print(f"{'weight where it is wanted':<30}the next day       two days         three days")
even = torch.minimum(wanted, torch.tensor(1 / 7)).sum(dim=-1).mean(dim=-1).view(3, 3)
print(f"{'even weights':<28}",
      *("  ".join(f"{share:.2f}" for share in kind) + "  " for kind in even))
for d_k in (1, 2, 3, 4):
    shares = fitted(wanted, d_k).view(3, 3)                               # (kinds, tables)
    print(f"{f'd_k = {d_k}, three tables each':<28}",
          *("  ".join(f"{share:.2f}" for share in kind) + "  " for kind in shares))
    assert all((kind.min() > 0.98) == (d_k > days) for days, kind in enumerate(shares, 1))

# %% [markdown]
# The more a query wants at once, the more columns it takes. With $d_k \ge n$ columns *any* positive weights are possible, if
# the $n$ tokens' vectors are linearly independent. With fewer columns some weights are not ([@bhojanapalli2020, theorem 1]).
# Our toy needs four columns for seven tokens. It does not tell why 64: real models have thousands of tokens and noisy keys,
# values are usually as wide as keys, and hardware prefers such sizes.
#
# In the Transformer narrower keys cost quality: 25.8 BLEU with $d_k = 64$, 25.4 with 32 and 25.1 with 16
# ([@vaswani2017, table 3, rows B]). If the number of heads changes with their width (rows A), one head of 512 columns gets
# 24.9, 8 or 16 heads get 25.8, and 32 heads of 16 columns 25.4.
#
# ## The KV cache: keys and values are computed once
#
# A language model generates one token at a time, under a causal mask. Each step has *one* new query. This query meets the
# keys and values of all tokens so far. The keys and values of old tokens do not change, because the causal mask hides
# later tokens from them. A plain program computes them again at every step. A **key–value cache** (KV cache) keeps them.
# (First the model reads the prompt in one pass, which fills the cache: the **prefill**. Then it generates one token per
# step: the **decoding**.) With RoPE the cache keeps the *turned* keys. In cross-attention there is nothing to append: the
# source's keys and values are computed once for the whole output.

# %%
figures.caching(n=6)
#| caption: Generating with and without a cache of keys and values.
#| label: kv-cache

# %% [raw] slide
# ## The KV cache: keys and values are computed once
# {figure}
#
# Without: $n(n+1)/2$ pairs of key and value. With: $n$. No "QKV cache": each query is used once.

# %% [markdown]
# For $n$ tokens, the program without a cache computes $n(n+1)/2$ pairs of key and value, and the program with a cache
# $n$. Each query is used once, so there is no "QKV cache". In code the cache is a concatenation. For one head of the
# trained loop:

# %%
text, loop = torch.randn(1, 7, 32), two.layer
keys = values = torch.empty(1, 0, 16)                        # (1, 0, d_k)  nothing yet
for t in range(7):
    new = text[:, t : t + 1]                                            # (1, 1, d_model)
    keys = torch.cat([keys, new @ loop.W_K[0]], dim=1)                  # (1, t + 1, d_k)
    values = torch.cat([values, new @ loop.W_V[0]], dim=1)              # (1, t + 1, d_k)
    output, _ = attend(new @ loop.W_Q[0], keys, values)                 # (1, 1, d_k)
last = loop.head(text, 0)[0][:, -1:]                        # of the whole text at once
print("the last token, with the cache and without:", torch.allclose(output, last, atol=1e-5))

# %% [markdown]
# `KeyValueCache` does the same for all heads of a layer. *Guess:* for 100 tokens, what share of the arithmetic is left,
# and is the output the same?

# %% tags=["hide-input"]
torch.manual_seed(0)
layer, tokens = MultiHeadAttention(256, n_heads=8), torch.randn(1, 100, 256)
counted, outputs = {}, {}
with torch.no_grad():
    with FlopCounterMode(display=False) as counter:
        steps = [layer(tokens[:, : t + 1], causal=True, weights=[])[:, -1] for t in range(100)]
    counted["without"] = counter.get_total_flops()
    outputs["without"] = torch.stack(steps, dim=1)                        # (1, 100, 256)
    cache = KeyValueCache()
    with FlopCounterMode(display=False) as counter:
        steps = [layer(tokens[:, t : t + 1], cache=cache, weights=[])[:, 0] for t in range(100)]
    counted["with"] = counter.get_total_flops()
    outputs["with"] = torch.stack(steps, dim=1)                           # (1, 100, 256)
print({name: f"{flops / 1e6:,.0f} million FLOPs" for name, flops in counted.items()})
print("the same output:", torch.allclose(outputs["without"], outputs["with"], atol=1e-5))
print(f"the price: {cache.n_bytes:,} bytes are kept")

# %% tags=["hide-input"]
assert torch.allclose(outputs["without"], outputs["with"], atol=1e-5)
assert 45 < counted["without"] / counted["with"] < 55

# %% [raw] slide
# ## A fiftieth of the arithmetic; the price is memory
# {print}
#
# $$2 \times \text{layers} \times \text{KV heads} \times d_\text{head} \times \text{bytes per number, for each token}$$
#
# > **Guess first.** Llama 2 7B: 32 layers of 32 heads of 128, two bytes. How many bytes for 4,096 tokens?

# %% [markdown]
# For 100 tokens the layer needs a fiftieth of the arithmetic for the same output; the saving grows with the length. The price is memory. For each token the cache keeps
#
# $$2 \;\times\; \text{layers} \;\times\; \text{KV heads} \;\times\; d_\text{head} \;\times\; \text{bytes per
# number},$$ (eq:cache-bytes)
#
# where the 2 stands for keys and values. (A **KV head** is a head of keys and values. So far there are $h$.) Multiply by
# the number of tokens of a text, and by the number of texts that are generated in parallel.
#
# Llama 2's smallest model has 32 layers, 32 heads per layer, $d_\text{head} = 128$, and numbers of two bytes. *Estimate:*
# how many bytes does one text of 4,096 tokens need?

# %%
llama_2 = preset("llama 2 7b").config
per_token = cache_bytes(llama_2, batch=1, n=1)
per_text = cache_bytes(llama_2, batch=1, n=4096)
print(f"{per_token / 2**20} MiB per token, {per_text / 2**30} GiB for 4096 tokens")
print(f"all parameters: {2 * count_parameters(llama_2, LanguageModel).total / 2**30:.1f} GiB")
assert per_token == 2 * 32 * 32 * 128 * 2

# %% [raw] slide
# ## Half a megabyte per token
# {print}
#
# Each number that is read takes part in one multiply-add: decoding is **memory-bound**.

# %% [markdown] teaches="grouped-query attention"
# Seven such texts need more memory than the whole model. The cache also costs time. To decode one token, a GPU must read
# the whole cache from memory, and each number takes part in one multiplication and one addition. In the time of this
# reading the GPU could do hundreds of them. Such a step is **memory-bound**: it waits for bytes, not for arithmetic
# ([lecture @training](@training) has the numbers). Each step reads the weights as well. But for many texts at once the
# weights are read once for all, while every text has its own cache. So in large batches of long texts the cache dominates.
#
# ## MHA, GQA, MQA: query heads that share keys and values
#
# Which factor of the formula can be made smaller? Must every query head have keys and values of its own?
#
# * **Multi-head attention** (MHA): yes, $h$ query heads have $h$ KV heads.
# * **Multi-query attention** (MQA; Shazeer, [-@shazeer2019]): all query heads share *one* KV head.
# * **Grouped-query attention** (GQA; Ainslie et al., [-@ainslie2023]): there are $g$ groups, and the $h/g$ neighbouring
#   query heads of a group share one KV head. With $g = h$ this is MHA, and with $g = 1$ it is MQA.

# %%
kinds = {"multi-head (MHA)": 8, "grouped-query (GQA)": 2, "multi-query (MQA)": 1}
figures.shared_keys(n_heads=8, kinds=kinds, latent="latent (MLA)")
for name, groups in kinds.items():
    layer, cache = MultiHeadAttention(256, n_heads=8, n_kv_heads=groups), KeyValueCache()
    with torch.no_grad():
        layer(tokens, cache=cache, causal=True)          # 100 tokens of width 256, in float32
    size = sum(p.numel() for p in layer.parameters())
    print(f"{name:<20} cache {cache.n_bytes:>7,} bytes, layer {size:,} parameters")
    assert cache.n_bytes == 2 * groups * 100 * 32 * 4
#| caption: MHA, GQA, MQA: who shares keys and values. MLA (below) makes them from one cached
#|   vector.
#| label: shared-keys

# %% [raw] slide
# ## MHA, GQA, MQA: query heads that share keys and values
# {figure}
# {print}

# %% [markdown]
# The cache shrinks with the number of groups. Query head $i$ uses KV head $\lfloor i / (h/g) \rfloor$: **neighbours**
# share, as published checkpoints expect. A step reads $h/g$ times fewer bytes of cache, for the same attention arithmetic.
# So the memory-bound step becomes faster as well.
#
# How much does it save in a large model? Llama 3's 8B has 8 KV heads for 32 query heads:

# %%
llama_3 = preset("llama 3 8b").config
lengths = [2**k for k in range(11, 18)]           # up to Llama 3.1's 131,072 tokens
gib = {}
for groups, kind in ((32, "MHA"), (8, "GQA, as released"), (1, "MQA")):
    config = replace(llama_3, n_kv_heads=groups, max_length=lengths[-1])
    name = f"{groups} KV head{'s' * (groups > 1)} ({kind})"
    gib[name] = [cache_bytes(config, batch=1, n=n) / 2**30 for n in lengths]
weights_gib = 2 * count_parameters(llama_3, LanguageModel).total / 2**30
figures.cache_sizes(gib, lengths, weights_gib)
#| caption: Memory of Llama 3 8B's cache for one text, two bytes per number, against its tokens,
#|   beside the model's parameters. Both axes are logarithmic.

# %% [raw] slide
# ## What a large model saves
# {figure}
#
# **Now you:** a@many_heads, exercise 6

# %% [markdown]
# At 131,072 tokens a KV head for every query head would take 64 GiB. The released 8 KV heads take 16 GiB, about as much as
# all parameters.
#
# What is the price in quality? Ainslie et al. ([-@ainslie2023, table 1]) compare T5 XXL models, of 64 heads, on seven
# tasks. GQA and MQA are *converted* from the MHA model and trained 5 % longer (**uptraining**):
#
# | | MHA | GQA, 8 groups | MQA |
# |---|---|---|---|
# | mean score | 47.2 | 47.1 | 46.6 |
# | seconds per sample | 1.51 | 0.28 | 0.24 |
#
# Our diary is too easy to show a loss. Can its two questions share their keys? Here four query heads share one KV head:

# %%
for seed in range(3):
    torch.manual_seed(seed)
    shared = Diary(MultiHeadAttention(32, n_heads=4, n_kv_heads=1, bias=False))
    tomorrow, yesterday = share_right(learn_diary(shared, seed))
    print(f"multi-query, seed {seed}:  tomorrow {tomorrow:4.0%}   yesterday {yesterday:4.0%}")

# %% [markdown]
# They can. Both questions look for the same property of a card, its day, so one set of keys is enough. The heads share
# their *values*, too. They differ in their queries and in their blocks of $W_O$.
#
# **Multi-head latent attention** (MLA; [@deepseek2024v2]) is a third way. It caches one narrow vector per token,
# $c = x W_\downarrow$. Each head makes its key and its value from it, $k_i = c\,W_{UK}^{(i)}$ and $v_i = c\,W_{UV}^{(i)}$:
# a low rank, shared by all heads. The keys need not be made at all, since $q_i k_i^\top = (q_i W_{UK}^{(i)\top})\,c^\top$: a
# QK circuit. But RoPE would stand between $q_i$ and $W_{UK}^{(i)}$ and turn by another angle for each token. So the position
# has one small key of its own, which is cached, too.
#
# <details><summary>How small is this cache, and which model has what?</summary>
#
# In DeepSeek-V2 a token takes $4.5\,d_\text{head}$ numbers in each layer. A group of GQA takes $2\,d_\text{head}$, so
# this cache is as large as that of 2.25 groups.
#
# Llama 2's 34B and 70B have GQA; its 7B and 13B have MHA ([@touvron2023]). Llama 3 ([@grattafiori2024]), Mistral 7B
# ([@jiang2023]) and Qwen2 ([@yang2024qwen]) have GQA. DeepSeek-V2 and V3 ([@deepseek2024]) have MLA.
# </details>
#
# **Now you:** [a07](@many_heads/assignment), exercise 6: query heads that share keys and values.

# %% [markdown] teaches="what heads do: bertviz, linguistic roles"
# ## Heads of a trained model: where they attend, and what an ablation shows
#
# The next model is the package's encoder, with two blocks of four heads and RoPE ([lecture @order](@order)). It reads
# synthetic gossip. For every verb the model must say who gave and who got. For every pronoun it must say who is meant: the
# last man or the last woman named before it. One linear layer reads the answers from the vectors of these words.

# %% [raw] slide
# ## Heads of a trained model
# Two blocks of four heads read gossip:
#
# > *Tom gladly gave Anna the bike and she once lent Max the boat*
#
# Who gave? Who got? Who is *she*? Nearly all answers are right.
#
# > **Guess first.** Look for a head from verb to giver, verb to receiver, pronoun to name. Whose ablation will cost most?

# %%
for seed in (22, 26):
    words, questions = tell(2, random.Random(seed))
    print(" ".join(words))
    for asker, kind, place in questions:
        print(f"{words[asker]:>8}: {QUESTIONS[kind]} {words[place]}")

# %%
validation, test = (gossip(120, random.Random(seed)) for seed in (54321, 12345))


def answered(model, told=test):
    """The share of right answers to each question, on 120 sentences that no model has seen."""
    with torch.no_grad():
        hit = (model(told).argmax(dim=-1) == told.answer).float()         # (m,)
    return torch.stack([hit[told.kind == kind].mean() for kind in range(len(QUESTIONS))])

# %%
readers, full = [], []
for seed in range(3):
    readers.append(trained(seed))                                         # 200 steps
    full.append(answered(readers[seed]))                                  # (questions,)
    shares = zip(QUESTIONS, full[seed], strict=True)
    print(f"seed {seed}:", {question: f"{share:.1%}" for question, share in shares})

# %% tags=["hide-input"]
assert min(share.min() for share in full) > 0.95

# %% [markdown]
# Nearly all answers are right. We ask two questions about each of the eight heads. *Where does it attend?* Its weights
# tell. *What is lost without it?* An ablation tells: we set its block of $W_O$ to zero and count the lost answers.
#
# The viewer shows one sentence as all eight heads of seed 0 see it. Each small map has a row for each query and a column
# for each key. Click on a map, and the head opens. (In layer 1 a row is no longer about one word alone: its vector also
# holds what layer 0 wrote there.)
#
# *Look for these:* a head that goes from the verb to the giver, one that goes from the verb to the receiver, and one
# that goes from *she* to a name. Whose ablation will cost most answers?

# %%
words, _ = tell(2, random.Random(26))
tokens, seen = torch.tensor([[VOCABULARY.index(word) for word in words]]), Weights()
with torch.no_grad():
    readers[0].encoder(tokens, weights=seen)
viz.attention_viewer(seen, words, title="Attention weights", view="all")
#| caption: Attention weights of a trained model on one sentence, a map for each head: rows
#|   are queries, columns keys, white is 0, and the darkest blue is 1.

# %% [raw] slide
# ## Eight heads see one sentence
# {figure}

# %% [markdown]
# Layer 0, head 2 goes from *showed* to *Ida*, who gave; layer 1, head 2 from *showed* to *Anna*, who got. In layer 0, heads
# 0 and 1 go from *she* to *Anna*, the right person, and head 3 goes to *Ida*, the wrong one. (This describes the saved
# outputs; a new run may differ.)
#
# One sentence proves nothing, so we measure the whole test set. How much weight goes from the word that asks to the *name*
# that is the answer? (In *she sold Ben the bike*, this is the name that *she* stands for.) And how many answers are lost
# without the head?

# %%
HEADS = [(layer, head) for layer in range(2) for head in range(4)]


def without(model, heads, told=test):
    """`answered`, with these heads removed."""
    smaller = copy.deepcopy(model)
    for layer, head in heads:
        attention = smaller.encoder.stack.blocks[layer].attention.sublayer
        block = slice(head * attention.d_head, (head + 1) * attention.d_head)
        attention.output.weight.data[:, block] = 0.0  # nn.Linear keeps W_O's transpose: columns
    return answered(smaller, told)


def lost_without_each(model, told=test):
    """The share of answers that are lost without each head: (heads, questions)."""
    right = answered(model, told)
    return torch.stack([right - without(model, [head], told) for head in HEADS])

# %% tags=["hide-input"]
def weight_on_name(model, told=test):
    """The mean weight from who asks to the name that is the answer: (heads, questions)."""
    seen = Weights()
    with torch.no_grad():
        model.encoder(told.tokens, told.lengths, weights=seen)
    table = torch.zeros(len(HEADS), len(QUESTIONS))
    for row, (layer, head) in enumerate(HEADS):
        weight = seen.self_attn[layer][told.sentence, head, told.asker, told.place]       # (m,)
        for kind in range(len(QUESTIONS)):
            table[row, kind] = weight[told.kind == kind].mean()
    return table

# %%
reads = [weight_on_name(model) for model in readers]                 # (heads, questions) each
lost = [lost_without_each(model) for model in readers]
names = [f"layer {layer}, head {head}" for layer, head in HEADS]
titles = ("weight on the name", "percentage points lost without it")
figures.reads_and_losses(reads[0], lost[0], names, QUESTIONS, titles)
#| caption: Seed 0: mean attention weight on the name that is the answer, and the percentage
#|   points of right answers that are lost without the head.

# %% [raw] slide
# ## Where it attends, and what is lost without it
# {figure}
# |||
# **Weights** show where a head reads, not whether the model uses it.
#
# **Ablation** shows what the model cannot do *without* a head, not what the head does.
#
# In every seed a head attends straight to the name, and little is lost without it.

# %% [markdown]
# The two tables do not always agree. Some heads attend straight to the name, and yet few answers are lost without them.
# (Each table has its own scale of blue.)
#
# * **Weights** show where a head reads, but not whether the model uses what it reads.
# * **An ablation** shows what the model cannot do *without* a head, but not what the head does.
#
# Setting a head to zero (**zero ablation**) also removes the constant part of its output. **Mean ablation** puts the head's
# mean output in its place ([@wang2023ioi]), and **resample ablation** its output for another sentence. Does it matter here?

# %% tags=["hide-input"]
for seed, model in enumerate(readers):
    by_mean = []
    for layer, head in HEADS:
        with mean_ablated(model, test, layer, head):
            by_mean.append(full[seed] - answered(model))
    by_mean = torch.stack(by_mean)                                        # (heads, questions)
    apart = 100 * (by_mean - lost[seed]).abs()                            # (heads, questions)
    print(f"seed {seed}: mean loss {100 * lost[seed].mean():.1f} points; zero and mean ablation"
          f" differ by {apart.mean():.1f} on average, at most by {apart.max():.0f}")

# %% [markdown]
# Little here: about half a point, where the mean loss is three to five (but once 5 points). Why, then, is so little lost without a head that attends to the name? Perhaps another head does the same
# work. Its **partner** is the other head with the most weight on the same name. If the two stand in for each other, more
# answers are lost without both than the two single losses add up to. But perhaps *any* second head hurts a weakened model.
# So, as a control, each of the six other heads takes the partner's place. Here is one case:

# %% tags=["hide-input"]
kind, one = QUESTIONS.index("he / she is"), HEADS.index((0, 1))
weight = reads[0][:, kind].clone()                                        # (heads,)
weight[one] = 0.0
partner = weight.argmax().item()
alone, beyond = 100 * lost[0][:, kind], {}                                # alone: (heads,)
for other in range(len(HEADS)):
    if other != one:
        right = without(readers[0], [HEADS[one], HEADS[other]])
        both = 100 * (full[0] - right)[kind]
        beyond[other] = (both - alone[one] - alone[other]).item()
        if other == partner:
            lost_both = both
print(f"seed 0, question “{QUESTIONS[kind]}”, percentage points lost")
print(f"   without {names[one]}: {alone[one]:.0f}")
print(f"   without its partner, {names[partner]}: {alone[partner]:.0f}")
print(f"   without both: {lost_both:.0f}, which is {beyond.pop(partner):.0f} beyond the sum")
print("   with each of the six others in the partner's place, beyond the sum:",
      *(f"{points:.0f}" for points in beyond.values()))

# %% [markdown]
# We recorded this for thirty seeds: for each head and question with a weight above 0.4 on the name and a loss below a tenth
# (on validation sentences; the losses below are of test sentences). We call such a head *redundant-looking*. *Guess:* is
# more lost with the partner or with another head?

# %% tags=["hide-input"]
record = measured("gossip_heads")
print(record["command"])
cases, of_seeds = beyond_the_sum(record["runs"])
for k, others in ((1, "the mean of six"), (2, "each of the six")):
    more = sum(case[0] > case[k] for case in cases)
    print(f"more is lost with the partner than with {others}: {more} of {len(cases)} cases")
gaps = [partner - another for partner, another in of_seeds.values()]      # one for each seed
middle, half = statistics.mean(gaps), 2.05 * statistics.stdev(gaps) / math.sqrt(len(gaps))
print(f"lost with the partner − with another head, mean of {len(gaps)} seeds: "
      f"{100 * middle:.1f} points, 95 % interval {100 * (middle - half):.1f} to "
      f"{100 * (middle + half):.1f}; above zero in {sum(gap > 0 for gap in gaps)} seeds")
assert len(gaps) == 30 and middle - half > 0             # 2.05: Student's t for 29 degrees
weak = [case for case in cases if case[3] < 0.02]        # a partner that costs little alone
with_partner, with_other = (100 * statistics.mean(case[k] for case in weak) for k in (0, 1))
print(f"{len(weak)} cases in which the partner alone costs less than 2 points, beyond the sum:"
      f" {with_partner:.1f} points with the partner, {with_other:.1f} with another head")
assert with_partner > 2 * with_other
figures.beyond_the_sum(of_seeds)
#| caption: Answers lost without two heads, beyond the sum of the single losses, mean of each
#|   seed: with the partner (dots), with another head (squares).
#| label: beyond-the-sum

# %% [markdown]
# With the partner more is lost in 29 of the 30 seeds, and the interval is far from zero. (Its unit is the seed, because the
# heads of one model are not independent cases.) But in only 76 of the 137 cases does the partner cost more than each of the
# six. Is the partner only a more important head? No: where it alone costs almost nothing, the excess is nearly as large. So a
# redundant-looking head and its partner often do part of each other's work, but not always.
#
# ### Two heads in two layers: composition
#
# In the table of weights above, layer 1, head 3 has nearly half of its weight on the giver's name. This is a mean over givers
# that are names and givers that are pronouns. *Guess:* where is its weight when the giver is a pronoun? Look at *sold* in
# the viewer.

# %% tags=["hide-input"]
asked, seen = givers(test), Weights()         # the questions "who gave", by what the giver is
with torch.no_grad():
    readers[0].encoder(test.tokens, test.lengths, weights=seen)
for giver, rows in (("name", asked.name), ("pronoun", asked.pronoun)):
    weight = seen.self_attn[1][test.sentence[rows], 3, test.asker[rows]]          # (rows, n)
    on_name = weight.gather(1, test.place[rows][:, None]).mean()
    print(f"layer 1, head 3, giver a {giver} ({len(rows)} verbs): {on_name:.2f} on the name")
on_pronoun = weight.gather(1, test.asker[asked.means][:, None]).mean()   # of the last rows
print(f"   and {on_pronoun:.2f} on the pronoun")

# %% [markdown]
# The head does attend to the giver: to the pronoun, which stands *in the sentence* as the giver. How does the model then
# know the name? Perhaps layer 0 writes into the pronoun's vector whom *she* means, and layer 1 reads it there.
#
# We could remove what layer 0 writes there, and count. But which answers are then still *known*, and which are guessed?

# %% tags=["hide-input"]
recorded = [run["by_pronoun"] for run in record["runs"]]
chance = guessing(test, asked.pronoun, test.asker[asked.means])
print("right answers to “who gave”, giver a pronoun")
print(f"   if layer 0 writes nothing there: median of {len(recorded)} recorded seeds "
      f"{statistics.median(recorded):.0%}, from {min(recorded):.0%} to {max(recorded):.0%}")
print(f"   guessed among the names before the pronoun: {chance['all']:.0%},"
      f" among those of that sex: {chance['of that sex']:.0%}")
assert statistics.median(recorded) < chance["of that sex"]

# %% [markdown]
# A guess among the earlier names of that sex would be right more often. So this ablation cannot tell reading from guessing.
# We do not remove what is written; we *exchange* it. Take the same sentence with another woman's name, say *Eva* in *Anna*'s
# place. There *she* means Eva. From this second run we take one vector, a module's output at the pronoun, and put it into
# the first run. This is **activation patching** ([@zhang2024]), and here the patch is an **interchange** of two runs. If
# the answer is now *Eva*, the model reads the name from this vector.
#
# Of the pronoun's vector layer 1 makes a key and a value. *Guess:* which must be exchanged, so that the answer changes?

# %%
told, other, she = renamed(test)       # a verb each; the same with another name; where "she" is
new, old = {}, {}
for model in readers:
    layer_0, layer_1 = (block.attention.sublayer for block in model.encoder.stack.blocks)
    modules = {"what layer 0 writes": layer_0,
               "the key": layer_1.key, "the value": layer_1.value}
    for name, module in modules.items():
        rows = rows_at(model, module, other, she)                         # (90, d_model)
        answers = answers_with(model, told, module, she, rows)            # (90,)
        new.setdefault(name, []).append((answers == other.answer).float().mean().item())
        old.setdefault(name, []).append((answers == told.answer).float().mean().item())
for name in new:
    print(f"{name:<20} the new name:", *(f"{share:4.0%}" for share in new[name]),
          "   the old:", *(f"{share:4.0%}" for share in old[name]), "  seeds 0 to 2")
figures.composition(("Anna", "she", "sold"), new, old)
#| caption: Two layers compose. Crosses: what is exchanged for that of a run with another name;
#|   right: how many answers become this name, and how many keep the old one.
#| label: composition

# %% [raw] slide
# ## Composition: two heads in two layers
# > **Guess first.** *She sold Ben the bike.* Layer 0 writes into *she* whom she means. Does layer 1 read it in its keys, or in its values?
#
# . . .
# {figure}
# **Activation patching**: an **interchange** between two runs that differ in one name.
#
# **Now you:** a@many_heads, exercise 7

# %% tags=["hide-input"]
assert min(old["the key"]) > 0.9 and min(new["the value"]) > 0.3

# %% [markdown]
# With the other value most answers become the new name (in seed 1 about half). So layer 0 writes into the pronoun's vector
# whom *she* means, and layer 1 reads it in its values. Where the old name stays, the verb must have it from elsewhere. We
# have not looked where. With the other key nearly all answers stay. They could hardly become *Eva*, because no value of
# this run holds her name. The test shows that the name in the key does not decide where *sold* attends. It does not show
# that the keys read nothing of layer 0.
#
# **Now you:** [a07](@many_heads/assignment), exercise 7: the interchange itself.
#
# When heads of two layers work together, this is called **composition** ([@elhage2021]). Here it is **V-composition**:
# layer 1 reads in its values what layer 0 wrote.
#
# Heads with a job get names. Ours are a *giver head*, a *receiver head* and a *pronoun head*, by their weights alone: for
# each question, the head with the most weight on the name. *Guess:* is it the same head in each seed?

# %% tags=["hide-input"]
for seed in range(3):
    most, which = reads[seed].max(dim=0)                                  # (questions,)
    jobs = zip(("giver", "receiver", "pronoun"), which.tolist(), most.tolist(), strict=True)
    print(f"seed {seed}:", ", ".join(f"{job} head: {names[i]} ({w:.2f})" for job, i, w in jobs))

# %% [markdown]
# Each question has such a head in each seed, and one head may have two jobs. But the number of a head means nothing: heads
# are interchangeable. A finding about "head 3 of layer 0" is a finding about one trained model.
#
# Some heads can be removed one at a time. Can they also be removed together? We remove one head after the other, always the
# head whose removal costs least. We choose the heads on validation sentences and draw the accuracy on test sentences.
# *Guess:* how many of the eight heads can go before the accuracy on the worst of the three questions falls below 90 %?

# %% [raw] slide
# ## If each can go, can all go?
# > **Guess first.** We remove the head that hurts least, one after the other. How many of the eight can go before the worst of three questions falls below 90 %?

# %% tags=["hide-input"]
worst = {}
for seed, model in enumerate(readers):
    alone = [without(model, [head], validation).min() for head in HEADS]
    spare = [head for head, share in zip(HEADS, alone, strict=True) if share >= 0.9]
    gone, line = [], [full[seed].min().item()]
    while len(gone) < len(HEADS):
        left = [head for head in HEADS if head not in gone]
        after = [without(model, [*gone, head], validation).min() for head in left]
        gone.append(left[after.index(max(after))])
        line.append(without(model, gone).min().item())
    worst[f"seed {seed}"] = line
    can_go = sum(share >= 0.9 for share in line[1:])
    together = without(model, spare).min()
    print(f"seed {seed}: {can_go} heads can go, one after the other, above 90 %;")
    print(f"   {len(spare)} can each go alone, but without these {len(spare)} together"
          f" the worst question is at {together:.0%}")
figures.heads_removed(worst, enough=0.9)
#| caption: Accuracy on the worst of the three questions against the number of heads
#|   removed.

# %% tags=["hide-input"]
assert all(line[2] > 0.9 and line[7] < 0.4 for line in worst.values())
of_record = [sum(share >= 0.9 for share in run["worst"][1:]) for run in record["runs"]]
for can_go in sorted({*of_record}):
    seeds = of_record.count(can_go)
    print(f"{can_go} heads can go in {seeds:>2} of the {len(of_record)} recorded seeds")
assert {*of_record} == {2, 3, 4, 5}
most = max(run["together"] for run in record["runs"])
print(f"without all heads that can each go alone the worst question is at most at {most:.0%}")
assert most < 0.9

# %% [raw] slide
# ## Heads that can go one at a time cannot all go together
# {figure}
#
# Voita et al. (2019) pruned 38 of 48 encoder heads and lost 0.15 BLEU.

# %% [markdown]
# Two to four heads can go, and two to five in the recorded seeds; then the curves drop. Heads that can each go alone
# cannot all go together: in none of the thirty seeds does the worst question stay above 90 %.
#
# What do larger models show?
#
# * Michel, Levy and Neubig ([-@michel2019]) removed heads of trained translation models and of BERT. Most heads can be
#   removed one at a time without a significant loss. Such **pruning** makes models smaller.
# * Voita et al. ([-@voita2019]) pruned 38 of the 48 encoder heads of an English–Russian translator and lost 0.15 BLEU. The
#   last heads to go had jobs with names: **positional** heads (the neighbouring token), **syntactic** heads (a verb's
#   object), and a head for **rare tokens**.
# * Clark et al. ([-@clark2019]) found heads in BERT that attend to a fixed offset, to the direct object of a verb, or to an
#   earlier mention of the same person.
# * Wang et al. ([-@wang2023ioi]) found **backup heads** in GPT-2 small: heads that take over a job when the heads that
#   usually do it are removed. (Our partners attend to the name all the time; whether they also change, we did not
#   measure.)
# * An **induction head** completes a repeated pattern: after *A B … A* it predicts *B* ([@elhage2021]; [@olsson2022]).
#   *Going further* trains one and takes it apart.
#
# The tool BertViz draws attention weights of many models. When somebody concludes something from such a picture, ask what
# happens without the head.
#
# ## In short
#
# | | | shape |
# |---|---|---|
# | a head | $\text{head}_i = \operatorname{softmax}\bigl(Q_i K_i^\top / \sqrt{d_k}\bigr) V_i$, with $Q_i = X W_Q^{(i)}$ and so on | $(n, d_v)$ |
# | multi-head attention | $\operatorname{Concat}(\text{head}_0, \dots, \text{head}_{h-1})\,W_O = \sum_i \text{head}_i W_O^{(i)}$ | $(n, d_\text{model})$ |
# | split, merge | (batch, n, $h\,d_k$) ↔ (batch, h, n, $d_k$): cut *and* transpose | |
# | rank of a head's scores | at most $d_k = d_\text{model} / h$ | |
# | KV cache | 2 · layers · KV heads · $d_\text{head}$ · n numbers | |
#
# Multi-head attention asks $h$ questions at once, with the parameters and the matrix products of one head. The heads'
# outputs add up, so two heads can subtract, which no average with fixed weights can do. The price is $h$ matrices of
# weights, and a low rank for each head. A head's weights show where it reads; only an ablation of several heads together
# shows which heads can go. While a model generates, a KV cache keeps keys and values, and in grouped-query attention several query
# heads share them.
#
# > **Check yourself.**
# > 1. d_model is 512, with 8 heads. What are the shapes of $W_Q^{(3)}$, of $W_O$, and of the block $W_O^{(3)}$?
# > 2. Somebody leaves $W_O$ out. What can head 0 no longer do?
# > 3. Two heads have the same $W_Q$ and $W_K$, and different $W_V$. Do they do more than one head whose values are
# >    twice as wide?
# > 4. A model has 40 query heads, 8 KV heads, d_head 128, 48 layers, and numbers of two bytes. How large is its
# >    cache for 1,000 tokens?
# > 5. Why is there no cache in training?
# > <details><summary>Answers</summary>
# >
# > 1. (512, 64), (512, 512) and (64, 512).
# > 2. Write to any column but its own $d_v$ columns of the layer's output. So nothing of two heads is added in this layer. A
# >    later linear layer can still do it: in our diary, `read`.
# > 3. No: one matrix of weights with values that are twice as wide gives the same outputs.
# > 4. 2 · 48 · 8 · 128 · 1,000 · 2 bytes, about 197 million: 188 MiB.
# > 5. All positions are computed at once, so every key is computed only once anyway (and the parameters change at each
# >    step).</details>
#
# **Now do** [assignment @many_heads](@many_heads/assignment) (about two hours; the extension takes 12 minutes more): seven
# exercises, two questions in words, and an extension.
# **Next:** a stack of attention layers does not train by itself. [Lecture @deep_stacks](@deep_stacks) shows what it needs.
#
# **In the package.** `attncourse.attention.MultiHeadAttention` is the layer, with `n_kv_heads` for groups; `KeyValueCache`
# stands beside it. `cache_bytes` in `attncourse.counting` is the formula [@eq:cache-bytes]. ([Lecture
# @transformer](@transformer) counts the parameters of whole models.)
#
# **Further reading.** [+@vaswani2017]: section 3.2.2, and table 3, rows A and B. [+@elhage2021], on heads that add.
# [+@bhojanapalli2020]. [+@dong2021]. [+@michel2019]. [+@voita2019]. [+@clark2019]. [+@olsson2022]. [+@wang2023ioi].
# [+@zhang2024], on how to patch. [+@shazeer2019].
# [+@ainslie2023]. [+@touvron2023], appendix A.2.1 on groups. [+@jiang2023]. [+@grattafiori2024], section 3.2.
# [+@deepseek2024v2], section 2.1 on MLA.

# %% [raw] slide
# ## In short
# | | | shape |
# |---|---|---|
# | a head | $\operatorname{softmax}\bigl(Q_i K_i^\top / \sqrt{d_k}\bigr) V_i$ | $(n, d_v)$ |
# | multi-head | $\operatorname{Concat}(\dots)\,W_O = \sum_i \text{head}_i W_O^{(i)}$ | $(n, d_\text{model})$ |
# | split, merge | (batch, n, $h\,d_k$) ↔ (batch, h, n, $d_k$): cut *and* transpose | |
# | rank | at most $d_k = d_\text{model} / h$ | |
# | KV cache | 2 · layers · KV heads · $d_\text{head}$ · n numbers | |
#
# **Now do** assignment a@many_heads. **Next:** lecture @deep_stacks.

# %% [markdown]
# ## Going further: one head whose weights see the numbers
#
# *Not counted in the minutes above.* With fixed weights, one head explains at most half of the variance of tomorrow −
# yesterday. Now each card has *one* temperature in place of four. *Guess:* can one head explain more than half, if its
# weights may depend on the temperatures? In the second row of the figure its queries and keys see only the days.

# %%
free = [explained(Heads, n_heads=1, hours=1, seed=seed) for seed in range(3)]
from_days = [explained(Heads, 1, 1, seed, weights_from_days=True) for seed in range(3)]
rows = {"weights from days\nand temperatures": free, "weights from days": from_days}
figures.seed_rows(rows, r_squared, bound)
#| caption: One head predicts the difference of two numbers, with weights that see them and
#|   with weights that do not.

# %% tags=["hide-input"]
assert max(from_days) < 0.52 < max(free) - 0.1, "the weights carried it"
assert all(a > b for a, b in zip(free, from_days, strict=True)), "in every seed"

# %% [markdown]
# With weights that see the temperatures one head explains more than half, clearly so in two of the three seeds. The split
# of the weight between tomorrow and yesterday carries one more number. Without this, the gain is gone in every seed. (With
# four numbers on a card we saw no gain; perhaps one split cannot carry four.)

# %% [markdown]
# ## Going further: an induction head, trained and taken apart
#
# *Not counted in the minutes above.* An induction head completes a pattern: after *A B … A* it predicts *B*. How does
# it find *B*? We train language models on texts in which there is almost nothing else to learn. A stretch of 8 to 24
# random letters is repeated until there are 48 letters. In the first stretch nobody can know the next letter, which costs
# $\ln 26 = 3.26$ nats. From the second letter of the repetition on, a model that looks back can know it. How far back it
# must look differs from text to text.
#
# The models are causal, 64 wide, with RoPE. A block has *one* head and a feed-forward network. We trained five seeds with
# one block, and five with two. A control, in three seeds, has one block of *two* heads, so as many heads as the two blocks.
#
# *Guess:* does one block suffice? Think of what the key at *B* is made of.

# %%
record = measured("induction")
print(record["command"])
print(f"{'loss on repeated letters':<28}   without block 0's heads  without block 1's head")
for run in record["runs"]:
    kind = f"{run['layers']} × {run['heads']} head{'s' * (run['heads'] - 1)}"
    name = f"{kind}, seed {run['seed']}"
    print(f"{name:<16}{run['repeated']:>12.2f}", *(f"{loss:>23.2f}" for loss in run["without"]))

# %% tags=["hide-input"]
one, two = ([run for run in record["runs"] if run["layers"] == n] for n in (1, 2))
assert min(run["repeated"] for run in one) > 2.1         # of one head, and of two
solved = [run for run in two if run["induction"] > 0.5]
assert len(solved) >= 3 and max(run["repeated"] for run in solved) < 0.06
assert max(run["cut"] for run in solved) < 0.05
assert min(run["without"][0] for run in solved) > 3.2

# %% [markdown]
# One block does not learn it, with one head or with two. So it is not a second head that is missing, but depth (or the
# second block's feed-forward network: a wider single block was not tried). The second *A* would have to find
# the position whose letter *comes after an A*. But in the first block the key at *B* is made of *B* alone. The explanation
# of the papers is two heads, one above the other. The first is a **previous-token head** (ours is a blurred one, as you will
# see). It writes into each vector which letters stood just before it. The second is the induction head. It asks for a vector
# that has an *A* there, and copies its *B*. (Its *keys* are made of what the first head wrote; [@elhage2021] call this
# **K-composition**.)
#
# But the models of one block are about a nat better than 3.26. What have they learned? A head can prefer distances, and the
# answer always stands 8 to 24 places back. So the next cell predicts by counting the letters there, first without any
# matching. Then it counts only letters that followed an earlier copy of the present letter: at *A*, those that came after
# earlier *A*s:

# %%
draws = torch.Generator().manual_seed(0)
period = torch.randint(8, 25, (1000, 1), generator=draws)                 # (texts, 1)
stretch = torch.randint(26, (1000, 48), generator=draws)
letters = stretch.gather(1, torch.arange(48) % period)                    # (texts, 48)
past = torch.cat([torch.full((1000, 1), -1), letters[:, :-1]], dim=1)     # one letter before
nats = {"all": [], "only those after the present letter": []}
for t in range(9, 48):
    far = slice(max(t - 24, 0), t - 7)                                    # 8 to 24 places back
    seen = nn.functional.one_hot(letters[:, far], 26)                     # (texts, places, 26)
    same = past[:, far] == past[:, t : t + 1]                             # (texts, places)
    for which, counted in zip(nats, (seen, seen * same[..., None]), strict=True):
        counts = counted.sum(dim=1) + 0.05                                # (texts, 26)
        share = counts / counts.sum(dim=1, keepdim=True)                  # (texts, 26)
        cost = -share.gather(1, letters[:, t : t + 1]).log()[:, 0]        # (texts,)
        nats[which].append(cost[t > period[:, 0]])                     # where it can be known
for which, costs in nats.items():
    print(f"counting letters 8 to 24 places back, {which}: {torch.cat(costs).mean():.2f} nats")

# %% [markdown]
# The first count has the loss of one block. So a model of one block may do no more than this; we did not take it apart. The
# second count is far better, but the models of two blocks that solve the task end near 0.05. One letter is not enough,
# because many letters occur twice in a stretch. A blurred head below, which writes several earlier letters, could tell such
# places apart. Here are both heads of a trained model of two blocks, on nine letters that come twice:

# %%
example = record["example"]
first, second = (torch.tensor(weights) for weights in example["weights"])     # (18, 18) each
titles = {"the head of block 0": first, "the head of block 1": second}
figures.letters_attended(example["letters"], titles)
for run in two:
    print(f"seed {run['seed']}: weight on the outlined letter {run['induction']:.2f}, "
          f"without the head of block 0 {run['cut']:.2f}")
#| caption: An induction head and the one below; outlined, the letter that followed last
#|   time.

# %% [markdown]
# The head of block 0 attends to its own letter and to those just before it. The head of block 1 has a stripe: each letter
# attends to the one that followed it the last time. In the first stretch it has nothing to find, and its weight goes to
# the first letter. ([Lecture @cheap_attention](@cheap_attention) calls this an *attention sink*.)
#
# So far this is a story about a picture. It makes a prediction that could fail: the stripe of block 1 needs block 0.
# If we remove the head of block 0, the stripe must vanish, although nothing in block 1 was changed. It does, and the
# loss is back at 3.26, as if nothing were repeated. (This ablation does not tell the keys of block 1 from its queries. That
# the keys carry the stripe is the explanation of the paper; we did not patch them apart.)
#
# Four of the five seeds behave like this. Seed 3 has no stripe and ends at a loss of 0.45. The table says that it needs
# both of its heads, too. So it has found another way, which we have not taken apart.
#
# Elhage et al. ([-@elhage2021]) describe such pairs in models of two layers that consist of attention alone. Olsson et
# al. ([-@olsson2022]) connect them with in-context learning, with causal evidence in small models and, as they say,
# correlations in large ones.

# %% [markdown] erratum="variance from LayerNorm; cross-attention unscaled; 24 heads; a width of 5140; d_ff of the 8 layers; d_ff of the 6 layers" teaches="sizes of GPT-3 and of the base model, counted"
# ## Going further: √d_k inside a layer, and published sizes
#
# *Not counted in the minutes above. Point 1 prepares exercise 9; points 2 to 4 fold open. The folded cells below the text
# print its numbers, in this order.*
#
# **1. The variance inside a layer.** Lecture @lookup derived $\operatorname{Var}(q \cdot k) = d_k$ for components of
# mean 0 and variance 1. *Does this hold in a layer, after LayerNorm?* There $q = xW_Q$ and $k = yW_K$, and the matrices
# decide the variance of the components. Cell 1 prints it for four usual initialisations. With weights of variance $1/d$
# it is near $d_k$. PyTorch's own linear layer draws weights of variance $1/(3d)$, and a ninth is left. All this holds
# before the first step, since training may make $W_Q$ and $W_K$ as large as it likes. The root makes the *start* independent
# of the width of a head, so that one recipe serves narrow heads and wide ones.
#
# > **A common mistake: "after LayerNorm the elements have mean 0 and variance 1, so the dot product has variance
# > $d_k$".** LayerNorm acts on $x$. The dot product is of $xW_Q$ and $yW_K$.
#
# **Now you:** [a07](@many_heads/assignment), exercise 9: derive what cell 1 measures.
#
# <details><summary><b>Open points 2 to 4:</b> what the root does to gradients, the scale of cross-attention, and published
# tables that do not multiply out</summary>
#
# **2. Scores and gradients.** A wide head without the root sends most queries next to no gradient and a few a very large
# one: "Going further" of [lecture @lookup](@lookup) measures it.
#
# **3. Cross-attention is scaled, too.**
#
# > **A common mistake: no scale in cross-attention.** Slides about cross-attention print
# > $\operatorname{softmax}(ZQ(HK)^\top)\,HV$, without any divisor. It is the same function, and the Transformer scales
# > there, too. The divisor is the root of what *one head's* dot product sums over, $d_k = d_\text{model}/h$, not of
# > $d_\text{model}$: with $\sqrt{d_\text{model}}$ the scores of eight heads start with a variance of ⅛. (Cell 2 checks
# > it.)
#
# **4. Published sizes.** A count of the parameters tells whether a table was copied rightly.
#
# > **A common mistake: to copy a table without multiplying it out.** Heads × width of a head should be the width of the
# > model. In table 2.1 of Brown et al. ([-@brown2020]) it is not for *GPT-3 XL*, 24 heads of 128 for a width of 2048,
# > nor for *13B*, 40 of 128 for 5140. (Heads may have any width, so the product alone proves nothing.) A count of the
# > parameters decides. The paper's own table D.1 has 1,320 million for the one and 12,850 for the other. (Cell 3.)
#
# > **A common mistake: a digit lost in copying.** Narang et al. ([-@narang2021]) trade depth against width at 223
# > million parameters ([lecture @transformer](@transformer) says what they found). For 8 layers slides print a
# > $d_\text{ff}$ of 4096 in place of 4608, and for 6 layers 1044 in place of 6144. The rows keep layers × $d_\text{ff}$
# > constant, and with it the count. ([Lecture
# > @errata_lab](@errata_lab) counts them.)
# </details>

# %% tags=["hide-cell"] jupyter={"source_hidden": true, "outputs_hidden": true}
# 1: variance
d_k = 64
of_scores = variances(512, d_k)
for name, variance in of_scores.items():
    print(f"{name:>25}: variance of q · k = {variance:6.2f}   (d_k = {d_k})")
assert 0.7 < of_scores["normal, variance 1/d"] / d_k < 1.3
assert of_scores["nn.Linear as it comes"] < 0.2 * d_k

# %% tags=["hide-cell"] jupyter={"source_hidden": true, "outputs_hidden": true}
# 2: cross-attention
layer, x, memory = MultiHeadAttention(64, 1), torch.randn(1, 3, 64), torch.randn(1, 5, 64)
by_hand, _ = attend(layer.query(x), layer.key(memory), layer.value(memory))           # scaled
assert torch.allclose(layer(x, memory), layer.output(by_hand), atol=1e-5), "it is scaled"

# %% tags=["hide-cell"] jupyter={"source_hidden": true, "outputs_hidden": true}
# 3: GPT-3
def millions(name, model=LanguageModel, **change):
    return count_parameters(replace(preset(name).config, **change), model).total / 1e6


for heads in (24, 16):
    size = millions("gpt-3 xl", n_heads=heads, d_head=128)
    print(f"XL, {heads} heads: {size:,.0f} M   table D.1: 1,320 M")
    assert (abs(size - 1320) < 5) == (heads == 16)
for width in (5140, 5120):
    size = millions("gpt-3 13b", d_model=width, n_heads=40, d_head=128)
    print(f"13B, width {width}: {size:,.0f} M   table D.1: 12,850 M")
    assert (abs(size - 12850) < 5) == (width == 5120)
