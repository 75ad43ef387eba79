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
# *About 60 minutes, of which less than one is computing time. You need scaled dot-product self-attention
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
# How bad is this? We measure it on the diary of that lecture: seven shuffled cards, each with a day and a dinner. Now every
# card must answer **two** questions. What is for dinner *tomorrow*? What was for dinner *yesterday*?

# %% tags=["hide-input"]
try:
    from attncourse import viz

    from . import figures
    from .counting_letters import counting_letters
    from .first_scores import (
        cross_attention,
        gpt_3_sizes,
        variances,
    )
    from .low_rank import (
        largest_weights,
        overlaps,
        with_narrow_keys,
    )
    from .mixtures import fixed_weights, hidden_readout
    from .patching import (
        answers_with,
        beyond_the_sum,
        givers,
        guessing,
        mean_ablated,
        renamed,
        rows_at,
        trained,
        weight_on,
        weight_on_name,
    )
    from .subtracting import explained
    from .timing import milliseconds
except ModuleNotFoundError:
    raise ImportError(
        "This page needs the attncourse package: open it with `make lab` in the course's "
        "folder, or choose a kernel of the environment in which you installed the course."
    ) from None

import copy
import math
import random
import statistics
from dataclasses import replace

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
# How wide is a head? The usual choice is $d_k = d_v = d_\text{model} / h$, so that the concatenation is as wide as $X$. The
# paper's base model has $d_\text{model} = 512$, $h = 8$ and $d_k = d_v = 64$. Code calls the width of a head `d_head`.
#
# The divisor $\sqrt{d_k}$ gives scores of variance 1 if the components of queries and keys are independent, with mean 0
# and variance 1 ([lecture @lookup](@lookup)). The last *Going further* measures whether the queries and keys of a layer are
# like that.
#
# The next figure draws the whole layer to scale, for 7 tokens, $d_\text{model} = 12$ and three heads. Each box is a
# matrix, with rows × columns under it, and each head has a colour. *Follow the orange row:* where does this token meet the
# others?

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
#| caption: Multi-head attention in matrices. The digit in a block is its head. Orange: one
#|   token, pale where it is a key or a value.
#| label: multi-head

# %% [raw] slide
# ## Tokens meet only inside the heads
# {figure}

# %% [markdown]
# Tokens meet only inside the heads. A row of $A_i$ compares one query with all keys, and $A_i V_i$ averages all values with
# these weights. Everywhere else the layer computes each row from its own token alone. In code the formula is a loop and a
# concatenation:

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
# What does a second head cost in parameters? Nothing. One wide head has projections of $d \times d$. With two heads, each
# projection is cut into two of $d \times d/2$. $W_O$ is $d \times d$ in both cases.
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

# %% [raw] slide
# ## One head: one answer right, the other wrong
# {print}

# %% [markdown]
# In every seed the model with one head learns one answer, and gets the other answer wrong on most cards. The seed decides
# which answer is learned.
#
# Why not both? Suppose that the head's weights are fixed. Then the readout receives a mixture of two dinners,
# $\alpha\,v_\text{tomorrow} + (1-\alpha)\,v_\text{yesterday}$, say with $\alpha > \tfrac12$. Let there be only two meals,
# soup and pie. Then there are four mixtures, and they lie on one line. *Guess:* on this line, how many thresholds separate
# soup from pie for tomorrow, and how many for yesterday?

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
# same, and no readout at all can separate them.) With twelve meals, the same holds for any two of them: on the line
# between the two, the difference of their logits changes its sign at most once.
#
# One mistake in four is not yet chance. With twelve meals two days rarely have the same dinner, and a linear layer that is
# asked for the lighter dinner of a mixture may name the heavier one. The next cell counts how often it does. It fixes
# the weights of one head at 0.7 for tomorrow and 0.3 for yesterday, and trains the rest.
#
# This is a limit of one head *and* a linear readout. A network with a hidden layer has several thresholds. So the cell also
# trains the same head with a hidden layer, and then a head that must learn its weights, too:

# %% tags=["hide-input"]
for seed in range(3):
    one, two, four = (share_right(diaries[n_heads, seed]) for n_heads in (1, 2, 4))
    assert min(one) < 0.6 and max(one) > 0.75, "one head: one answer"
    assert min(two) > 0.95 and min(four) > 0.95
for hidden, readout in ((0, "linear"), (128, "one hidden layer")):
    for seed in range(3):
        torch.manual_seed(seed)
        fixed = learn_diary(fixed_weights(Diary, hidden), seed)
        tomorrow, yesterday = share_right(fixed)
        print(f"one head, fixed weights, readout: {readout:<16}  seed {seed}: "
              f" tomorrow {tomorrow:4.0%}   yesterday {yesterday:4.0%}")
        assert (yesterday > 0.95) == (hidden > 0) and tomorrow > 0.95
    if not hidden:
        days, meals, answers = two_questions(2000, torch.Generator().manual_seed(99))
        named = fixed(days, meals)[:, :, 1].argmax(dim=-1)                # (2000, 7)
        heavier = (named == answers[:, :, 0]).float().mean()
        print(f"   asked for yesterday's dinner, it names tomorrow's: {heavier:.0%}")
        assert heavier > 0.95
for seed in range(5):
    torch.manual_seed(seed)
    free = Diary(Heads(32, 1))
    free.read = hidden_readout(hidden=128)
    tomorrow, yesterday = share_right(learn_diary(free, seed))
    print(f"one head, learned weights, one hidden layer, seed {seed}: "
          f" tomorrow {tomorrow:4.0%}   yesterday {yesterday:4.0%}")

# %% [markdown]
# With fixed weights the linear readout names the heavier dinner, as printed. So it is right about yesterday only where both
# dinners are the same, about once in twelve.
#
# A network *can* read both answers from a single mixture: with these fixed weights and a hidden layer it does so in every
# seed. A head that must also learn its weights finds such a mixture in only some seeds. Two heads answer both questions in
# every seed. (For subtraction with fixed weights no readout helps, as we show below.)
#
# Does each of the two heads answer one question? We look at their attention weights. Then we do an **ablation**: we remove
# one head and measure how much accuracy is lost. Head $i$ reaches the output only through its own block of $d_v$ rows of
# $W_O$ (here $d_v = d_k$). If we set these rows to zero, the head is gone.

# %%
def without_head(model, i):
    model = copy.deepcopy(model)
    d_v = model.layer.W_V.shape[-1]
    model.layer.W_O.data[i * d_v : (i + 1) * d_v] = 0.0                   # its block of rows
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
# Checkpoints keep one $d \times d$ matrix for all heads, so its product with $X$ has the shape (batch, n, d). We must
# **split** this product: cut the last axis in two, (h, d_k), and then move the heads' axis to the front. After the attention
# we **merge** the heads by the same two steps backwards.
#
# Why two steps, when `view` can make (h, n, d_k) at once? Here are four tokens with four columns, for two heads. In each
# cell the letter names the token, and the digit the column. *Before you look:* what will head 0 hold if we ask `view` for
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
# change?* If the reshape is right, in all of them.

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
# <details><summary>Why <code>view</code> may refuse after <code>transpose</code>, and how nanoGPT does
# it</summary><code>transpose</code> moves no number either. It only changes the strides, the order in which memory is read.
# The tensor is then no longer <b>contiguous</b>, and <code>view</code> refuses to merge its axes. <code>flatten</code> and
# <code>reshape</code> copy where they must. nanoGPT calls <code>contiguous</code>, which makes a copy, before
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
# > `mha(W_q(x), W_k(x), W_v(x))`, with three linear layers of your own, projects everything twice. Nothing crashes, and the
# > result is still attention, but not with the projections that the code names. Give the layer $X$, three times. (In its
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
# The concatenation hides a sum. $W_O$ has a block of $d_v$ rows for each head, $W_O^{(i)}$. Instead of multiplying the
# concatenation by $W_O$, we can multiply each head's output by its own block and **add** the products:
#
# $$\operatorname{Concat}(\text{head}_0, \dots, \text{head}_{h-1})\,W_O = \sum_i \text{head}_i\, W_O^{(i)}
# = \sum_i A_i\; X\; W_V^{(i)} W_O^{(i)}$$ (eq:sum-of-heads)
#
# *Before you look:* to which of the 12 columns of the output does head 1 write?

# %%
figures.sum_of_heads(n=7, d_model=12, n_heads=3)
#| caption: The layer's output as a sum, to scale: each head is multiplied by its own block of
#|   rows of the output projection.
#| label: sum-of-heads

# %% [markdown]
# Every head writes to all $d_\text{model}$ columns, and the layer adds up what the heads write ([@elhage2021]). The same
# authors name the two halves of a head. The **QK circuit** $W_Q^{(i)} W_K^{(i)\top}$ decides *where* it attends, and the
# **OV circuit** $W_V^{(i)} W_O^{(i)}$ decides *what* it writes.
#
# We have seen where head 0 of the trained model attends in one week. Now we read its question off its *parameters*,
# without any week. In the diary the embeddings of day and meal are *added*, so each score has a part that depends on the
# two days alone. The cell prints these parts, with a row for the day of each query. *Guess:* where is the largest number
# of each row? Then the cell sends each meal's embedding through the OV circuit and the readout, and counts how many meals
# come out as themselves.

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

# %% [raw] slide
# ## The QK circuit has the question in it
# {print}
#
# **Now you:** a@many_heads, exercise 5

# %% [markdown]
# In all seven rows the largest number stands at the day before (for Monday, at Sunday), far above the rest. The trained QK
# circuit holds the question "what was yesterday?". (Meals have a part in the scores, too.) The OV circuit copies the
# answer: the readout recognises each meal in what the circuit writes for it.
#
# **Now you:** [a07](@many_heads/assignment), exercise 5: what each head of a trained model writes.
#
# [Lecture @masking](@masking) said that a token receives an average of the tokens' vectors. That holds for one head.
# Two heads can do more. Put temperatures on the cards, 10 degrees for yesterday and 20 for tomorrow. The values are the
# temperatures themselves. Head 0 attends to tomorrow, head 1 to yesterday, and $W_O$ has the rows 1 and −1:
#
# $$\operatorname{Concat}(\text{head}_0, \text{head}_1)\,W_O
# = \begin{pmatrix} 20 & 10 \end{pmatrix} \begin{pmatrix} 1 \\ -1 \end{pmatrix} = 20 - 10 = 10$$
#
# *Tomorrow is 10 degrees warmer than yesterday.* One head with the weights 0.7 and 0.3 gives $0.7 \cdot 20 + 0.3 \cdot 10 = 17$.
# It also gives 17 if both days have 17 degrees, but then the answer is 0. The readout receives 17 in both cases, so no
# readout can give both answers. (For any other fixed weights there are two such cases, too.)
#
# In matrices: two heads with opposite OV circuits add up to $(A_0 - A_1)\,X W$. The rows of $A_0 - A_1$ sum to **zero**,
# so this is not an average but a *difference*. The figure draws one row of each matrix, and the cell computes the difference
# for each day of a week:

# %%
temperatures = torch.tensor([12.0, 14.0, 13.0, 17.0, 21.0, 20.0, 16.0])[:, None]     # (7, 1)
tomorrow, yesterday = torch.eye(7).roll(1, dims=1), torch.eye(7).roll(-1, dims=1)    # A_0, A_1
one_head = tomorrow @ temperatures                       # (7, 1)  always between 12 and 21
two_heads = tomorrow @ temperatures - yesterday @ temperatures           # W_O blocks: +1 and −1
print("one head: ", one_head[:, 0].tolist())
print("two heads:", two_heads[:, 0].tolist())
assert two_heads.min() < temperatures.min(), "outside of all that was there to be averaged"
figures.rows_subtracted(tomorrow[3], yesterday[3], temperatures[:, 0], DAYS)
#| caption: Thursday's weights in two heads, and their difference: the row sums to zero, and
#|   gives how much warmer Friday is than Wednesday.
#| label: rows-subtracted

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
# variance that the model explains. One head with fixed weights cannot give the difference. *Guess* how much it can still
# explain: nothing, a quarter, half?

# %% tags=["hide-input"]
lost = [share_right(without_head(two, i)) for i in (0, 1)]       # per head: tomorrow, yesterday
for answers in lost:
    assert min(answers) < 0.3 and max(answers) > 0.9, "each head carries one answer"
assert lost[0].index(min(lost[0])) != lost[1].index(min(lost[1]))
steps = (by_day.argmax(dim=-1) - torch.arange(7)) % 7
assert len(set(steps.tolist())) == 1 and steps[0] in (1, 6), "one day on, or one back"
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
# Two heads explain nearly everything, and one head explains half. Why half? Let one head put the fixed weight $\alpha$ on
# tomorrow, $T$, and $\beta$ on yesterday, $Y$, independent and of equal variance. $R^2$ is at most the squared correlation
# of $T - Y$ with $\alpha T + \beta Y$, which is $(\alpha - \beta)^2 / 2(\alpha^2 + \beta^2)$. No weight is negative, so this
# is at most ½, where the head reports only one of the two days. (A trained head can let its weights depend on the
# temperatures, and then the bound no longer holds. With four temperatures per card it stays below the line. With one it can
# pass the line: see *Going further*.)
#
# A nonlinear readout does not help, as the folded cell shows. For normally distributed temperatures the best guess of the
# difference is linear in the mixture. (For dinners a hidden layer did help, because a mixture of two dinners reveals which
# two went in.)
#
# So what lecture @masking said about averages holds for one head only. Do two heads then prevent **rank collapse**? Not by
# themselves, if the weight matrices are small: *Going further* shows what a difference changes, and
# [lecture @deep_stacks](@deep_stacks) shows what prevents the collapse.
#
# ## What heads cost: n² weights each, and a low rank
#
# Heads cost no parameters. Do they cost time and memory? The next cell prints three things. The first is the arithmetic of
# the layer's matrix products, in FLOPs (floating-point operations; one multiplication and one addition are two). Half of
# them are the four projections. The second is the number of attention weights. The third is the time of the three
# attention steps, $QK^\top$, softmax and $AV$, on one CPU thread. The FLOPs stay the same. *Guess* how many times longer 64
# heads take than one.

# %% [raw] slide
# ## What heads cost
# The same FLOPs in the matrix products, for any number of heads.
#
# > **Guess first.** How many times longer do 64 heads take than one?

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
print(f"64 heads take {sum(costs[64][2]) / sum(costs[1][2]):.0f} times as long as one")

# %% [raw] slide
# ## n² weights for each head
# {print}
# . . .
# **A common mistake: “the same amount of computation as one head”.** Exact for parameters and matrix products; but $h\,n^2$ exponentials in place of $n^2$.

# %% [markdown] erratum="same amount of computation"
# The last line answers the guess for the machine that built this page; another machine gives another number.
#
# > **A common mistake: "multi-head attention takes the same amount of computation as one head".** For parameters and
# > the FLOPs of matrix products this is exact. But $h$ heads need $h\,n^2$ exponentials instead of $n^2$. The products of
# > narrow heads take longer, too: for the same FLOPs they write and read $h\,n^2$ numbers, and memory slows them
# > down. (FlashAttention, [lecture @cheap_attention](@cheap_attention), does not store the weights, but it
# > still computes the exponentials.)
#
# There is a second price. A head compares tokens through $W_Q^{(i)} W_K^{(i)\top}$. This $d \times d$ matrix is a product
# with only $d_k$ columns in the middle, so its **rank is at most $d_k$**. This is the **low-rank bottleneck**
# ([@bhojanapalli2020]). Here is the product for seven tokens and a very narrow head. Everything that this head compares must
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
# To see the effect on the scores alone, we make only the queries and keys narrow. The values keep 32 columns in all. The
# question is tomorrow's dinner. *Guess* how narrow one head may be if each of the seven days must find the next one.

# %% tags=["hide-input"]
flops, numbers, parts = zip(*costs.values(), strict=True)
assert len(set(flops)) == 1 and numbers[3] == 64 * numbers[0] == 64 * 512**2
assert all(parts[3][i] > 2 * parts[0][i] for i in (0, 1)), "the same FLOPs, and far more time"
narrow = {}
for n_heads, d_k in ((1, 1), (1, 2), (2, 1), (3, 1), (4, 1)):
    name = f"{n_heads} head{'s' if n_heads > 1 else ''}, d_k = {d_k}"
    narrow[name] = [with_narrow_keys(n_heads, d_k, seed) for seed in range(3)]
shares = {name: [share for share, _, _ in found] for name, found in narrow.items()}
figures.seed_rows(shares, "share of right answers: dinner of the next day", {})
#| caption: Accuracy with narrow queries and keys, three seeds each.

# %% [markdown] teaches="heads look at different things, k heads or one"
# One column is too narrow for one head, and two are enough. Why? With $d_k = 1$ a key is one number, a query is one number,
# and a score is their product. *Guess:* how many of the seven keys can be found, and which?

# %% tags=["hide-input"]
assert max(shares["1 head, d_k = 1"]) < 0.75 and min(shares["1 head, d_k = 2"]) > 0.95
assert max(shares["2 heads, d_k = 1"]) < min(shares["1 head, d_k = 2"])
assert all(sum(right > 0.8 for right in days) == 2 for _, days, _ in narrow["1 head, d_k = 1"])
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
_, meals, tomorrow = shuffled_weeks(2000, torch.Generator().manual_seed(1))       # (2000, 7)
hit = meals.mode(dim=1, keepdim=True).values == tomorrow                  # (2000, 7)
print(f"the dinner on most cards is tomorrow's in {hit.float().mean():.0%} of the cases")
assert 0.2 < hit.float().mean() < 0.4
unsure = largest_weights(narrow["1 head, d_k = 1"], missed=0.8)
print(f"largest weight of a query that misses its key: {min(unsure):.2f} to {max(unsure):.2f}")
assert max(unsure) < 0.45

# %% [markdown]
# In all three seeds two keys are found, the two ends of the line. A positive query prefers the largest key and a negative
# query the smallest, so no query prefers a key in the middle. Why are the other five days right more often than once in
# twelve? The folded cell prints that a query which misses its key spreads its weight over several cards: none of them gets
# half. A likely reason is then that the readout names the dinner that stands on most cards. The other printed line says how
# often this dinner is tomorrow's.
#
# Three or four heads of one column nearly succeed together. Each head has the bottleneck, but the sum of the heads gets
# around it. Still, two columns are better spent on one head than on two: one head of two columns is right more often than
# two heads of one column.
#
# *Guess:* how do seven keys fit into two columns so that each of them can be found?

# %%
planes = [in_plane for _, _, in_plane in narrow["1 head, d_k = 2"]]       # one for each seed
figures.keys_in_a_plane({"seed 0": planes[0]}, DAYS)
#| caption: One head with d_k = 2: the keys of the seven days, and the directions of their
#|   queries.
#| label: keys-in-a-plane

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
# Queries that want several keys at once need more columns (*Going further* fits them). With $d_k \ge n$ columns *any*
# positive weights are possible, if the $n$ tokens' vectors are linearly independent. With fewer columns some weights are
# impossible ([@bhojanapalli2020, theorem 1]). Our toy problem does not explain the number 64. Real models have thousands of
# tokens and noisy keys, their values are usually as wide as their keys, and hardware prefers such sizes.
#
# In the Transformer narrower keys cost quality: 25.8 BLEU with $d_k = 64$, 25.4 with 32 and 25.1 with 16
# ([@vaswani2017, table 3, rows B], development set, one run each). These models also have fewer parameters: 65 million,
# 60 and 58. If the number of heads changes with their width (rows
# A), one head of 512 columns gets 24.9, 8 or 16 heads get 25.8, and 32 heads of 16 columns get 25.4.
#
# ## The KV cache: keys and values are computed once
#
# A language model generates one token at a time, under a causal mask. Each step has *one* new query, which meets the keys
# and values of all tokens so far. The keys and values of old tokens do not change, because the causal mask hides later
# tokens from them. A plain program computes them again at every step. It even computes the *outputs* of the old tokens
# again, because the next layer makes its keys and values from these outputs. A **key–value cache** (KV cache) keeps the keys
# and values of every layer, and so avoids both.
#
# First the model reads the prompt in one pass, which fills the cache: the **prefill**. Then it generates one token per
# step: the **decoding**. With RoPE the cache keeps the *turned* keys. In cross-attention there is nothing to append: the
# source's keys and values are computed once for the whole output.

# %%
figures.caching(n=6)
#| caption: Generating six tokens with and without a cache of keys and values. Hatched: the
#|   future.
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
for queries, keys in planes:
    assert (queries @ keys.T).argmax(dim=-1).tolist() == [1, 2, 3, 4, 5, 6, 0]
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
# For 100 tokens the layer needs about a fiftieth of the arithmetic for the same output, and the saving grows with the
# length. The price is memory. For each token the cache keeps
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
# Seven such texts need more memory than the whole model. The cache also costs time. To decode one token, a GPU must read the
# whole cache from memory, and each number takes part in one multiplication and one addition. While it reads one number, the
# GPU could do hundreds of such operations. So the step is **memory-bound**: it waits for bytes, not for arithmetic
# ([lecture @training](@training) has the numbers). Each step reads the weights as well, but only once for all texts of a
# batch, while every text has its own cache. So in large batches of long texts the cache dominates.
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
#| caption: MHA, GQA, MQA: who shares keys and values. MLA (see below) makes them from one
#|   cached vector (dashed) and shares one small key with RoPE (dotted).
#| label: shared-keys

# %% [raw] slide
# ## MHA, GQA, MQA: query heads that share keys and values
# {figure}
# {print}

# %% [markdown]
# The cache shrinks with the number of groups. Query head $i$ uses KV head $\lfloor i / (h/g) \rfloor$: **neighbours**
# share, as published checkpoints expect. A step reads $h/g$ times fewer bytes of cache, for the same attention arithmetic.
# So the memory-bound step becomes faster as well. A layer with groups also has fewer parameters, as the cell prints. A fair
# comparison spends them elsewhere: Llama 2's makes the feed-forward network 1.3 times wider for GQA, and 1.33 times for
# MQA ([@touvron2023, appendix A.2.1]).
#
# How much does it save in a large model? Llama 3's 8B has 8 KV heads for 32 query heads:

# %% tags=["hide-input"]
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
# With one KV head for every query head, 131,072 tokens would take 64 GiB. The released 8 KV heads take 16 GiB, about as
# much as all parameters.
#
# What is the price in quality? Ainslie et al. ([-@ainslie2023, table 1]) compare T5 XXL models, of 64 heads, on seven
# tasks. GQA and MQA are *converted* from the MHA model and trained 5 % longer (**uptraining**):
#
# | | MHA | GQA, 8 groups | MQA |
# |---|---|---|---|
# | mean score | 47.2 | 47.1 | 46.6 |
# | seconds per sample | 1.51 | 0.28 | 0.24 |
#
# Can the two questions of our diary share their keys? Here four query heads share one KV head. *Guess* what it costs.

# %%
for seed in range(3):
    torch.manual_seed(seed)
    shared = Diary(MultiHeadAttention(32, n_heads=4, n_kv_heads=1, bias=False))
    tomorrow, yesterday = share_right(learn_diary(shared, seed))
    print(f"multi-query, seed {seed}:  tomorrow {tomorrow:4.0%}   yesterday {yesterday:4.0%}")

# %% [markdown]
# It costs nothing here: the diary is too easy to show a loss. Both questions look for the same property of a card, its
# day, so one set of keys is enough. The heads share their *values*, too. They differ in their queries and in their blocks
# of $W_O$.
#
# **Multi-head latent attention** (MLA; [@deepseek2024v2]) is a third way. It caches one narrow vector per token,
# $c = x W_\downarrow$. Each head makes its key and its value from this vector, $k_i = c\,W_{UK}^{(i)}$ and
# $v_i = c\,W_{UV}^{(i)}$: a low rank, shared by all heads. The program need not even compute the keys, since
# $q_i k_i^\top = (q_i W_{UK}^{(i)\top})\,c^\top$, a QK circuit. With RoPE this would fail: a rotation would stand between $q_i$
# and $W_{UK}^{(i)\top}$, and its angle would differ for each token. So MLA also caches one small key with RoPE per token,
# $k^R = \text{RoPE}(x\,W_{KR})$, which all heads share. Its score is added to that of the latent part.
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
# What does a single head of a trained model do? The next model is the package's encoder, with two blocks of four heads and
# RoPE ([lecture @order](@order)). It reads synthetic gossip. For every verb it must say who gave and who got. For every
# pronoun it must say who is meant: the last man or the last woman named before it. One linear layer reads the answers from
# the vectors of these words.

# %% [raw] slide
# ## Heads of a trained model
# Two blocks of four heads read gossip:
#
# > *Tom gladly gave Anna the bike and she once lent Max the boat*
#
# Who gave? Who got? Who is *she*? Nearly all answers are right.
#
# > **Guess first.** Look for a head from verb to giver, verb to receiver, pronoun to name. Whose ablation will cost most?

# %% tags=["hide-input"]
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

# %% [markdown]
# Nearly all answers are right. We ask two questions about each of the eight heads. *Where does it attend?* Its attention
# weights tell us. *What is lost without it?* An ablation tells us.
#
# The viewer shows the attention weights of all eight heads of seed 0 on one sentence. Each small map has a row for each query
# and a column for each key. Click on a map to open it. (In layer 1 a row is no longer about one word alone: its vector also
# holds what layer 0 wrote there.)
#
# *Look for* heads that attend from the verb to the giver, from the verb to the receiver, and from *she* to a name. Whose
# ablation will cost the most answers?

# %% tags=["hide-input"]
assert min(share.min() for share in full) > 0.95
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
# The saved outputs show the following. A new run may differ.
#
# * From *showed* to *Ida*, who gave: layer 0, head 2, and layer 1, head 3.
# * From *showed* to *Anna*, who got: layer 0, head 1, and layer 1, head 2. (From *sold* to *Ben*, who got: layer 0, head 3.)
# * From *she* to *Anna*, the right person: layer 0, heads 0 and 1. Head 3 of that layer goes to *Ida*, the wrong one.
#
# Two heads read the same name again and again. Does the model need both? That is the question of this section.
#
# One sentence proves nothing, so we first measure the whole test set. How much weight goes from the word that asks to the
# *name* that is the answer? (In *she sold Ben the bike*, this is the name that *she* stands for.) And how many answers are
# lost without the head?

# %% tags=["hide-input"]
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

# %%
reads = [weight_on_name(model, test) for model in readers]            # (heads, questions) each
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
# Head 3 of layer 0 went from *she* to the wrong woman in our sentence. Over the whole test set it puts more weight on the
# right name than any other head, and its ablation costs the most answers. One sentence misled us. Head 1 of layer 0 went to the
# right woman, and comes second in the table of weights. But only a few answers about *he* and *she* are lost without it. The
# largest weight does not always mean the largest loss, either: for *who gave*, head 2 of layer 0 has the largest weight, and
# head 3 of layer 1 costs more. (Each table has its own scale of blue.)
#
# * **Weights** show where a head reads, but not whether the model uses what it reads ([lecture
#   @cross_attention](@cross_attention), *Attention weights are not explanations*).
# * **An ablation** shows what the model cannot do *without* a head, but not what the head does.
#
# If we set a head to zero (**zero ablation**), we also remove the constant part of its output. That may take away too much,
# and exaggerate the loss. **Mean ablation** puts the head's mean output in its place ([@wang2023ioi]). **Resample ablation**
# puts its output for another sentence there. Does the choice matter for heads that attend to the name and cost little?

# %% tags=["hide-input"]
by_weight = reads[0].argsort(dim=0, descending=True)                      # (heads, questions)
assert by_weight[:2, 2].tolist() == [3, 1] and lost[0][3, 2] == lost[0].max()
assert lost[0][1, 2] < 0.1 and by_weight[0, 0] == 2 and lost[0][7, 0] > lost[0][2, 0]
for seed, model in enumerate(readers):
    by_mean = []
    for layer, head in HEADS:
        with mean_ablated(model, test, layer, head):
            by_mean.append(full[seed] - answered(model))
    by_mean = torch.stack(by_mean)                                        # (heads, questions)
    apart = 100 * (by_mean - lost[seed]).abs()                            # (heads, questions)
    some = (reads[seed] > 0.4) & (lost[seed] < 0.1)
    print(f"seed {seed}: zero and mean ablation differ by {apart.mean():.1f} points on average")
    for i, kind in some.nonzero().tolist():
        zero, by_its_mean = 100 * lost[seed][i, kind], 100 * by_mean[i, kind]
        print(f"   {names[i]}, {QUESTIONS[kind]:<11}: weight {reads[seed][i, kind]:.2f},"
              f" lost with zero {zero:.1f}, with the mean {by_its_mean:.1f}")
    assert apart[some].max() < 5 and apart.mean() < 1

# %% [markdown]
# The two ablations agree within a few points in each of these cases. Either way, little is lost without a head that
# attends to the name. Why? Perhaps another head does the same work. Its **partner** is the other head with the most weight
# on the same name. If the two stand in for each other, the loss without both is larger than the sum of the two single
# losses. But perhaps the loss of *any* second head hurts a weakened model. So each of the six other heads takes the partner's
# place, as a control. Here is one case:

# %% tags=["hide-input"]
kind, one = QUESTIONS.index("he / she is"), HEADS.index((0, 1))
weight = reads[0][:, kind].clone()                                        # (heads,)
weight[one] = 0.0
partner = weight.argmax().item()
alone = 100 * lost[0][:, kind]                                            # (heads,)
right = torch.stack([without(readers[0], [HEADS[one], head])[kind] for head in HEADS])
both = 100 * (full[0][kind] - right)                                      # (heads,)
beyond = both - alone[one] - alone                                        # (heads,)
others = [f"{beyond[i]:.0f}" for i in range(len(HEADS)) if i not in (one, partner)]
print(f"seed 0, question “{QUESTIONS[kind]}”, percentage points lost")
print(f"   without {names[one]}: {alone[one]:.0f}")
print(f"   without its partner, {names[partner]}: {alone[partner]:.0f}")
print(f"   without both: {both[partner]:.0f}, which is {beyond[partner]:.0f} beyond the sum")
print("   with each of the six others in the partner's place, beyond the sum:", *others)

# %% [markdown]
# We recorded this for thirty seeds, for each head that *looks redundant*: its weight on the name is above 0.4, and less
# than a tenth of the answers is lost without it. (We chose these heads on validation sentences. The losses below are of
# test sentences.) *Guess:* is more lost with the partner or with another head?

# %% tags=["hide-input"]
record = measured("gossip_heads")
print(record["command"])
excess = beyond_the_sum(record["runs"])
print(*excess.lines(), sep="\n")
figures.beyond_the_sum(excess.seeds)
#| caption: Answers lost without two heads, beyond the sum of the single losses, mean of each
#|   seed: with the partner (dots), with another head (squares).
#| label: beyond-the-sum

# %% [markdown]
# More is lost with the partner in 29 of the 30 seeds, and the interval is far from zero. (Its unit is the seed, because the
# heads of one model are not independent cases.) Seed 9 alone adds more than a point to the mean, so the median is printed,
# too. But the partner costs more than *each* of the six in only 76 of the 137 cases.
#
# Is the partner simply a more important head? That cannot be the whole story. Even where removing the partner alone costs
# almost nothing, removing it as a second head costs more than removing an average other head. Its interval there leaves out
# zero as well. So a head that looks redundant and its partner often do part of each other's work, but not always.
#
# ### Two heads in two layers: composition
#
# In the table of weights above, head 3 of layer 1 has much of its weight on the giver's name. This is a mean over two
# kinds of givers, names and pronouns. *Guess:* where is its weight when the giver is a pronoun? Look at *sold* in the viewer.

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
# The head does attend to the giver: to the pronoun, which is the *grammatical subject*. In the viewer it is no *verb* head
# at all: every word from *because* on attends to *she*. We look at the row of *sold* because only that row is asked.
#
# How does the model then know the name? Perhaps layer 0 writes into the pronoun's vector whom *she* means, and layer 1 reads
# it there.
#
# We could remove what layer 0 writes there, and count the right answers. But which of them are then still *known*, and
# which are guessed?

# %% tags=["hide-input"]
recorded = [run["by_pronoun"] for run in record["runs"]]
chance = guessing(test, asked.pronoun, test.asker[asked.means])
print("right answers to “who gave”, giver a pronoun")
print(f"   if layer 0 writes nothing there: median of {len(recorded)} recorded seeds "
      f"{statistics.median(recorded):.0%}, from {min(recorded):.0%} to {max(recorded):.0%}")
print(f"   guessed among the names before the pronoun: {chance['all']:.0%},"
      f" among those of that sex: {chance['of that sex']:.0%}")

# %% [markdown]
# A guess among the earlier names of that sex would be right more often. So this ablation cannot tell reading from guessing.
# We do not remove what is written; we *exchange* it. Take the same sentence with another woman's name, say *Eva* in *Anna*'s
# place. There *she* means Eva. From this second run we take one vector, a module's output at the pronoun, and put it into
# the first run. This is **activation patching** ([@zhang2024]), and here the patch is an **interchange** of two runs. If
# the answer is now *Eva*, the model reads the name from this vector.
#
# Layer 1 makes a key and a value from the pronoun's vector. *Guess:* which of the two must we exchange to change the answer?

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
figures.composition(("Anna", "she", "sold"), new, old, other="Eva")
#| caption: Two layers compose: q and k decide how much of v is copied. At a, b or c a vector
#|   is exchanged for that of a run with the name Eva; right, the answers.
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
assert min(old["the key"]) > 0.9
for seed, model in enumerate(readers):
    key = model.encoder.stack.blocks[1].attention.sublayer.key
    usual = weight_on(model, told, she)                                   # (4,)  a head each
    changed = weight_on(model, told, she, key, rows_at(model, key, other, she))
    most = usual.argmax().item()
    print(f"seed {seed}: weight from verb to pronoun in layer 1, head {most}:"
          f" {usual[most]:.2f}, with the other key {changed[most]:.2f};"
          f" largest change of a head {(changed - usual).abs().max():.2f}")
    assert (changed - usual).abs().max() < 0.15
    assert 0.45 < new["the value"][seed] < 0.85

# %% [markdown]
# With the other value half to four fifths of the answers become the new name, depending on the seed. So layer 0 writes
# into the pronoun's vector whom *she* means, and layer 1 reads it in its values. Where the old name stays, the verb must have
# it from elsewhere. We have not looked where.
#
# With the other key nearly all answers stay. They could hardly become *Eva*, because no value of this run holds her name.
# So we also measured where the verb attends. With the other key, the mean weight on the pronoun hardly changes in any head
# (printed above). The name in the key does not decide where *sold* attends. (This does not show that the keys read nothing
# of layer 0. They may read something else there.)
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
    assert most.min() > 0.4
    jobs = zip(("giver", "receiver", "pronoun"), which.tolist(), most.tolist(), strict=True)
    print(f"seed {seed}:", ", ".join(f"{job} head: {names[i]} ({w:.2f})" for job, i, w in jobs))

# %% [markdown]
# In each seed, and for each question, some head puts more than 0.4 of its weight on the name. One head may have two jobs. But
# the number of a head means nothing: heads are interchangeable. A finding about "head 3 of layer 0" is a finding about one
# trained model.
#
# Some heads can be removed one at a time. Can they also be removed together? We remove one head after the other, always the
# head whose removal costs least on validation sentences. The figure shows the accuracy on test sentences. *Guess:* how many
# of the eight heads can go before the worst of the three questions falls below 90 %?

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
assert all(line[2] > 0.9 and line[7] < 0.4 for line in worst.values())
of_record = [sum(share >= 0.9 for share in run["worst"][1:]) for run in record["runs"]]
for can_go in sorted({*of_record}):
    seeds = of_record.count(can_go)
    print(f"{can_go} heads can go in {seeds:>2} of the {len(of_record)} recorded seeds")
most = max(run["together"] for run in record["runs"])
print(f"without all heads that can each go alone the worst question is at most at {most:.0%}")
figures.heads_removed(worst, enough=0.9)
#| caption: Accuracy on the worst of the three questions against the number of heads
#|   removed.

# %% [raw] slide
# ## Heads that can go one at a time cannot all go together
# {figure}
#
# Voita et al. (2019) pruned 38 of 48 encoder heads and lost 0.15 BLEU.

# %% [markdown]
# In these three seeds at least two heads can be removed before the accuracy falls below 90 %. In the thirty recorded seeds
# it is two to five. Heads that can each go alone cannot all go together: the worst question then falls below 90 % in every
# one of the thirty seeds.
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
#   usually do it are removed. (We did not measure whether our partners change.)
# * An **induction head** completes a repeated pattern: after *A B … A* it predicts *B* ([@elhage2021]; [@olsson2022]).
#   *Going further* trains one and takes it apart.
#
# The tool BertViz draws the attention weights of many models. Before you conclude something from such a picture, ask what
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
# shows which heads can go. While a model generates, a KV cache keeps keys and values, and in grouped-query attention
# several query heads share them.
#
# > **Check yourself.**
# > 1. d_model is 512, with 8 heads. What are the shapes of $W_Q^{(3)}$, of $W_O$, and of the block $W_O^{(3)}$?
# > 2. A layer has no $W_O$. What can its head 0 not do?
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
# [+@ye2024]: layers of subtracting softmax maps. [+@bhojanapalli2020]. [+@dong2021]. [+@michel2019]. [+@voita2019]. [+@clark2019]. [+@olsson2022]. [+@wang2023ioi].
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
# With weights that see the temperatures one head can explain clearly more than half, though not in every seed. The split of
# the weight between tomorrow and yesterday carries one more number. If the weights see only the days, the gain is gone in
# every seed. (With four temperatures on a card we saw no gain; perhaps one split cannot carry four.)

# %% [markdown]
# ## Going further: a difference of averages, applied again and again
#
# *Not counted in the minutes above.* An average, applied again and again, makes all tokens alike: **rank collapse**
# ([lecture @masking](@masking)). *Guess:* does a difference of two averages do so, too? And a difference that $W_V W_O$
# doubles?

# %%
for seed in range(3):
    draws = torch.Generator().manual_seed(seed)
    A_0, A_1 = torch.randn(2, 7, 7, generator=draws).softmax(dim=-1)    # (7, 7) each
    start = torch.randn(7, 5, generator=draws)
    for name, A in (("average", A_0), ("difference", A_0 - A_1), ("doubled", 2 * (A_0 - A_1))):
        X = start
        for _ in range(12):
            X = A @ X
        unlike = [(x - x.mean(dim=0)).norm() / x.norm() for x in (X, start)]
        sizes = torch.linalg.svdvals(X)                                   # (5,)  largest first
        print(f"12 times, seed {seed}, {name:<10}: size × {X.norm() / start.norm():<6.1g}"
              f" spread / size × {unlike[0] / unlike[1]:<6.1g}"
              f" second / first singular value {sizes[1] / sizes[0]:.1g}")
        assert (unlike[0] / unlike[1] < 1e-4) == (name == "average")
    assert 0.5 < X.norm() / start.norm() < 20 and sizes[1] / sizes[0] > 1e-3

# %% [markdown]
# The average keeps the tokens near their size, and makes them alike: relative to the size, their spread vanishes.
#
# A difference does something else. The rows of $A_0 - A_1$ sum to zero, so the first step removes what all tokens have in
# common. Then all tokens shrink towards zero together. But relative to their size they do *not* become alike. After 12 steps
# more than one direction is left in each seed, in seed 0 only weakly. And the size can be had back: with a factor of 2 in
# $W_V W_O$ the vectors neither vanish nor explode here.
#
# So two subtracting heads escape *this* collapse, if the weights are large enough. Dong et al. ([-@dong2021]) prove the
# collapse for any number of heads, but only while the weight matrices are not too large. Their bound is on the spread itself,
# not on its share of the size.
#
# Ye et al. ([-@ye2024]) build a layer of differences, the *Differential Transformer*. It subtracts two softmax maps *inside*
# each head, with a learned factor.

# %% [markdown]
# ## Going further: how many columns does it take to want several keys at once?
#
# *Not counted in the minutes above.* In the diary each query wants one key, and two columns are enough. Now each day must
# share its weight evenly between two, or three, of the seven days, chosen at random. *Guess:* how many columns does that
# take? We fit $\operatorname{softmax}(QK^\top)$, with $Q$ and $K$ of $d_k$ columns, to three such tables of each kind.
#
# We measure the **overlap**: for each key the smaller of the wanted and the fitted weight, summed over the keys. It is 1
# where both agree. As a floor, the first line gives the overlap of even weights, 1/7 for each day.

# %% tags=["hide-input"]
print(f"{'overlap':<14}the next day       two days         three days")
for name, kinds in overlaps().items():                                    # (kinds, tables)
    print(f"{name:<12}", *("  ".join(f"{share:.2f}" for share in row) + "  " for row in kinds))

# %% [markdown]
# The more keys a query wants at once, the more columns it takes: here two columns for one day, three for two days, and four
# for three. These are seven random sets in each table. To serve *every* pair of seven keys, three columns are too few and
# four are enough.

# %% [markdown]
# ## Going further: an induction head, trained and taken apart
#
# *Not counted in the minutes above.* An induction head completes a pattern: after *A B … A* it predicts *B*. How does
# it find *B*? We train language models on texts in which there is almost nothing else to learn. A stretch of 8 to 24
# random letters is repeated until there are 48 letters. In the first stretch no model can know the next letter, which costs
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

# %% [markdown]
# One block does not learn it, with one head or with two. So what is missing is depth, not a second head. (Or it is the
# second block's feed-forward network: a wider single block was not tried.) To predict *B*, the second *A* must find the
# position that *follows* an *A*. But in the first block the key at *B* is computed from *B* alone, and says nothing about the
# letter before it. The papers explain the success of two blocks by two heads, one above the other:

# %%
figures.induction()
#| caption: An induction head: its keys are made of what the head below wrote, one arrow for
#|   each step.
#| label: induction

# %% [markdown]
# The first head is a **previous-token head** (ours is blurred, as you will see). It writes into each vector which letters
# stood just before it. The second is the induction head. It asks for a vector that has an *A* there, and copies its *B*.
# Its *keys* are made of what the first head wrote; [@elhage2021] call this **K-composition**.
#
# But the models of one block are about a nat better than 3.26. What have they learned? A head can prefer distances, and the
# answer always stands 8 to 24 places back. So the next cell predicts by counting the letters there, first without any
# matching. Then it counts only letters that followed an earlier copy of the present letter: at *A*, those that came after
# earlier *A*s:

# %%
for which, nats in counting_letters().items():
    print(f"counting letters 8 to 24 places back, {which}: {nats:.2f} nats")

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
for run in record["runs"][5:10]:                                          # of two blocks
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
# decide the variance of the components. Cell 1 prints it for four usual initialisations. Two of them are near $d_k$, and
# two are far below it. *Why?* Exercise 9 asks. For each recipe the variance is proportional to $d_k$. So the root makes the
# start independent of the width of a head, and one recipe serves narrow heads and wide ones.
#
# > **A common mistake: "after LayerNorm the elements have mean 0 and variance 1, so the dot product has variance
# > $d_k$".** LayerNorm acts on $x$. The dot product is of $xW_Q$ and $yW_K$.
#
# **Now you:** [a07](@many_heads/assignment), exercise 9: derive what cell 1 measures.
#
# <details><summary><b>Open points 2 to 4:</b> what the root does to gradients, the scale of cross-attention, and published
# tables that do not multiply out</summary>
#
# **2. Scores and gradients.** Without the root, most queries of a wide head receive almost no gradient, and a few receive a
# very large one: "Going further" of [lecture @lookup](@lookup) measures it.
#
# **3. Cross-attention is scaled, too.**
#
# > **A common mistake: no scale in cross-attention.** Slides about cross-attention print
# > $\operatorname{softmax}(ZQ(HK)^\top)\,HV$, without any divisor. It is the same function, and the Transformer scales
# > there, too. The divisor is the root of what *one head's* dot product sums over, $d_k = d_\text{model}/h$, not of
# > $d_\text{model}$: with $\sqrt{d_\text{model}}$ the scores of eight heads start with a variance of ⅛. (Cell 2 measures
# > it, and checks a layer of four heads against the formula.)
#
# **4. Published sizes.** A count of the parameters tells whether a table was copied rightly.
#
# > **A common mistake: to copy a table without multiplying it out.** Heads × width of a head should be the width of the
# > model. In table 2.1 of Brown et al. ([-@brown2020]) it is not for *GPT-3 XL*, 24 heads of 128 for a width of 2048,
# > nor for *13B*, 40 of 128 for 5140. (Heads may have any width, so the product alone proves nothing.) A count of the
# > parameters decides. The paper's own table D.1 has 1,320 million for the one and 12,850 for the other. (Cell 3.)
#
# > **A common mistake: digits changed in copying.** Narang et al. ([-@narang2021]) trade depth against width at 223
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
print(*cross_attention(), sep="\n")

# %% tags=["hide-cell"] jupyter={"source_hidden": true, "outputs_hidden": true}
# 3: GPT-3
print(*gpt_3_sizes(), sep="\n")
