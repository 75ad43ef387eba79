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
# *About 60 minutes, of which less than one is computing. You need scaled dot-product self-attention
# ([lecture @self_attention](@self_attention)), where its $\sqrt{d_k}$ comes from ([lecture @lookup](@lookup)), and for
# the last third the causal mask of [lecture @masking](@masking).*
#
# After this lecture you can
#
# * write **multi-head attention** from memory, as in the paper: projections, heads, concatenation, $W_O$;
# * say what one head cannot do: answer two questions, or subtract;
# * compute all heads at once by reshaping, and find the reshape that only seems to work;
# * say what heads cost, and what is lost when they get too narrow: the **low rank** of a head;
# * test what a head of a trained model does, by its weights and by **ablation**;
# * count the bytes of a **KV cache**, and save most of them by **grouped-query attention**.
#
# ## Why one head is not enough
#
# In [lecture @self_attention](@self_attention) we had to leave somebody behind. In *Anna lent Ben her book* the word
# *lent* wanted two things: who gave, and who got. It had one query, so one row of attention weights and one average. It
# received Anna and Ben, half and half, and nobody who reads half of each can say who is who. It is an everyday case. In
# *I run a small business* the word before *run* says that it is a verb, and *business*, farther off, says what it means.
#
# How bad is it? We measure it on the diary of lecture @self_attention, seven shuffled cards with a day and a dinner on
# each. Now every card is asked **two** questions: what will there be *tomorrow*, and what was there *yesterday*?

# %% tags=["hide-input"]
try:
    from attncourse import viz

    from . import figures
except ModuleNotFoundError:
    raise ImportError(
        "This page needs the attncourse package: open it with `make lab` in the course's folder, "
        "or choose a kernel of the environment in which you installed the course."
    ) from None

import copy
import math
import random
import statistics
import time
from dataclasses import replace

import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from attncourse.attention import KeyValueCache, MultiHeadAttention, attend
from attncourse.counting import cache_bytes, count_parameters, preset
from attncourse.data.diary import DAYS, MEALS, of_another_day, shuffled_weeks
from attncourse.data.gossip import NAMES, QUESTIONS, VOCABULARY, gossip, tell
from attncourse.training import descend
from attncourse.transformer import (
    Encoder,
    EncoderDecoder,
    LanguageModel,
    TransformerConfig,
    Weights,
)

torch.set_num_threads(1)  # models as small as these gain nothing from a second thread

# %%
def two_questions(batch, generator):
    days, meals, tomorrow = shuffled_weeks(batch, generator)              # (batch, 7) each
    yesterday = of_another_day(days, meals, -1)                           # (batch, 7)
    return days, meals, torch.stack([tomorrow, yesterday], dim=-1)      # answers: (batch, 7, 2)

# %% [markdown] teaches="multi-head attention, split and merged"
# ## The formula: heads, concatenation, W_O
#
# The remedy is to attend several times at once, each time with small projections of its own. Each of these attentions
# is a **head**. With $h$ heads, Vaswani et al. (2017, section 3.2.2) write **multi-head attention** as
#
# $$
# \begin{aligned}
# \operatorname{MultiHead}(Q, K, V) &= \operatorname{Concat}(\text{head}_0, \dots, \text{head}_{h-1})\; W_O \\[2pt]
# \text{head}_i &= \operatorname{Attention}\bigl(Q W_Q^{(i)},\; K W_K^{(i)},\; V W_V^{(i)}\bigr) \qquad
# \operatorname{Attention}(Q, K, V) = \operatorname{softmax}\Bigl(\frac{Q K^\top}{\sqrt{d_k}}\Bigr) V
# \end{aligned}
# $$
#
# (We count heads from 0, as the code does.) Three things come in: $Q$ asks, $K$ is compared with, $V$ is handed over. In
# **self-attention** all three are the sentence, $Q = K = V = X$. In **cross-attention** the sentence asks and another
# one, the **memory** $M$, answers: $Q = X$, $K = V = M$. Each head has three matrices, $W_Q^{(i)}$ and $W_K^{(i)}$ of
# $(d_\text{model}, d_k)$ and $W_V^{(i)}$ of $(d_\text{model}, d_v)$. The heads' outputs are put side by side
# (**concatenated**), and the **output projection** $W_O$, $(h\,d_v, d_\text{model})$, mixes them.
#
# How wide is a head? Nearly always $d_k = d_v = d_\text{model} / h$, so that the concatenation is again as wide as $X$.
# The paper's base model has $d_\text{model} = 512$, $h = 8$ and $d_k = d_v = 64$. Code calls the width of a head
# `d_head`. Here is the whole layer, to scale. *Follow the orange row,* one token: where does it meet
# other tokens?

# %%
figures.multi_head(n=7, d_model=12, n_heads=3, asking=2)

# %% [markdown]
# Up to $Q$, $K$ and $V$, and again after the heads, each row is computed from its own token alone. Tokens meet inside the
# heads: a row of $A_i$ compares one query with all keys, and $A_i V_i$ averages all values by it. Each head has an $A_i$ of
# its own. In code the formula is a loop and a concatenation:

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

# %% [markdown] erratum="Y on the left; a semicolon for two things"
# > **A common mistake: half in columns, half in rows.** Slides write
# > $\text{output}_i \in \mathbb{R}^{d/h}$, and $Y[\text{output}_0; \dots; \text{output}_{h-1}]$ with a $Y$ of
# > $d \times d$ for our $W_O$. For *one* token, a column, both are right, and the semicolon stacks. For all tokens as rows,
# > which the same slides have in $X Q_\ell$, the output is $\mathbb{R}^{n \times d/h}$, heads stand side by side, and the
# > matrix stands on the right. On the left the sizes do not even fit:

# %%
outputs = [torch.randn(7, 16), torch.randn(7, 16)]                        # n = 7, d = 32, h = 2
Y = torch.randn(32, 32)
side_by_side = torch.cat(outputs, dim=-1)                                 # (7, 32)
try:
    Y @ side_by_side
except RuntimeError as error:
    print("Y [outputs]:", error)
print("[outputs] Y:", tuple((side_by_side @ Y).shape))

# %% [markdown] teaches="heads look at different things, k heads or one"
# ## One, two and four heads on two questions
#
# What does the second head cost? One wide head has projections of $d \times d$. Two heads have two of $d \times d/2$ in
# place of each, and $W_O$ is $d \times d$ in either case. In parameters, heads are free.
#
# Three models learn the diary, with one, two and four heads. Both answers are read off the output by one linear layer.
# *Guess before you train:* will the model with one head get both answers half right, or one right and the other wrong?

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
def learn_diary(layer, seed, steps=200):
    draws, model = torch.Generator().manual_seed(seed), Diary(layer)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(steps):
        days, meals, answers = two_questions(64, draws)
        predicted = model(days, meals)                                    # (64, 7, 2, meals)
        loss = nn.functional.cross_entropy(predicted.flatten(0, 2), answers.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return model


diaries = {}
for n_heads in (1, 2, 4):
    for seed in range(3):
        torch.manual_seed(seed)
        diaries[n_heads, seed] = learn_diary(Heads(32, n_heads), seed)
        size = sum(p.numel() for p in diaries[n_heads, seed].parameters())
        tomorrow, yesterday = share_right(diaries[n_heads, seed])
        print(f"heads: {n_heads}, seed {seed}, {size} parameters: "
              f" tomorrow {tomorrow:4.0%}   yesterday {yesterday:4.0%}")

# %% tags=["hide-input"]
for seed in range(3):
    one, two, four = (share_right(diaries[n_heads, seed]) for n_heads in (1, 2, 4))
    assert min(one) < 0.6 and max(one) > 0.75, "one head: one answer"
    assert min(two) > 0.95 and min(four) > 0.95

# %% [markdown]
# In every seed one head gets one of the answers and all but gives up the other. Is it always the same one? Tomorrow
# and yesterday are mirror images, so the task prefers neither. We take the choice for an accident of the start; three
# seeds cannot show that, because three coins agree once in four times. Could it have both, with more training? What arrives is a mixture of two meals,
# $\alpha\,v_\text{tomorrow} + (1-\alpha)\,v_\text{yesterday}$. Say that $\alpha > \tfrac12$, and take the four weeks that
# can be made of soup and pie. The mixtures lie on one line, in this order:
#
# | tomorrow, yesterday | share of pie | tomorrow | yesterday |
# |---|---|---|---|
# | soup, soup | 0 | soup | soup |
# | soup, pie | $1 - \alpha$ | soup | **pie** |
# | pie, soup | $\alpha$ | pie | **soup** |
# | pie, pie | 1 | pie | pie |
#
# For tomorrow, one cut in the middle of the line will do. For yesterday the right answer alternates, soup, pie, soup,
# pie, and a linear reader can cut a line only once. At $\alpha = \tfrac12$ the two weeks in the middle are the same
# point, and nobody could tell them apart. (A reader with a hidden layer can cut more often. With two heads no trick is
# needed.)
#
# With two heads both answers are right. Does each head answer one question? Look at their attention weights. Then do an
# **ablation**: take one head away and see what is lost. Head $i$ reaches the output through its own block of $d_k$ rows of
# $W_O$, so zeros in these rows silence it.

# %%
def without_head(model, i):
    silenced = copy.deepcopy(model)
    d_k = silenced.layer.W_Q.shape[-1]
    silenced.layer.W_O.data[i * d_k : (i + 1) * d_k] = 0.0                # its block of rows
    return silenced


two = diaries[2, 0]
week = torch.arange(7)[None]                                              # (1, 7)  in order
x = two.day(week) + two.meal(week)                                        # (1, 7, d_model)
tables = {f"head {i}": (DAYS, two.layer.head(x, i)[1][0].detach()) for i in (0, 1)}
viz.weight_tables(tables, numbers=True, digits=2)
for n_heads, seed in ((2, 0), (2, 1), (2, 2), (4, 0)):
    for i in range(n_heads):
        tomorrow, yesterday = share_right(without_head(diaries[n_heads, seed], i))
        print(f"heads: {n_heads}, seed {seed}, without head {i}: "
              f" tomorrow {tomorrow:4.0%}   yesterday {yesterday:4.0%}")

# %% tags=["hide-input"]
lost = [share_right(without_head(two, i)) for i in (0, 1)]       # per head: tomorrow, yesterday
for answers in lost:
    assert min(answers) < 0.3 and max(answers) > 0.9, "each head carries one answer"
assert lost[0].index(min(lost[0])) != lost[1].index(min(lost[1]))

# %% [markdown] teaches="multi-head attention, split and merged; nanoGPT's forward pass"
# One line below the diagonal and one above. Without a head, its question is answered by chance (one in twelve), and the
# other is untouched. Nobody assigned the questions, and the heads are interchangeable: renumber them, with their blocks of
# $W_O$, and the layer is the same. With four heads for two questions it is less tidy: some heads can go and nobody notices.
# Is such a head idle, or does another one do the same? Ablating one head at a time cannot tell. Keep the question in mind.
#
# **Now you:** [a07](@many_heads/assignment), exercise 1.
#
# ## All heads at once: split, attend, merge
#
# A loop over heads is slow, and unnecessary. Put the heads' matrices side by side and they are one $d \times d$ matrix
# again: $XW_Q$ computes all queries of all heads, head 0's in the first $d_k$ columns, head 1's in the next. A matrix
# product treats all axes but the last two as a batch. So if the heads had an axis of their own *in front of* the
# tokens, (batch, h, n, d_k), then `attend` would serve all heads at once. The loop's parameters have that axis already:

# %%
loop, X = two.layer, torch.randn(5, 7, 32)                              # X: (batch, n, d_model)
per_head = X[:, None]                                                   # (batch, 1, n, d_model)
head_outputs, A = attend(per_head @ loop.W_Q, per_head @ loop.W_K, per_head @ loop.W_V)
print("outputs", tuple(head_outputs.shape), " weights", tuple(A.shape))
one_by_one = torch.stack([loop.head(X, i)[0] for i in (0, 1)], dim=1)     # (batch, h, n, d_k)
print("the same as one by one:", torch.allclose(head_outputs, one_by_one, atol=1e-5))

# %% [markdown]
# Checkpoints keep one $d \times d$ matrix for all heads, so there the (batch, n, d) of a projection has to be **split**:
# its last axis is cut in two, (h, d_k), and then the heads' axis is moved to the front. After the attention the same two
# moves backwards **merge** the heads. Why two moves? `view` gives a tensor any shape that has as many numbers, also
# (h, n, d_k) at once. *Before you look:* here are four tokens with four columns, for two heads. The letter says whose
# number it is, the digit which column. What will head 0 hold if we ask `view` for (2, 4, 2) directly?

# %%
four = ["Anna", "Ben", "Tom", "Eva"]
x = torch.arange(16).view(4, 4)                      # (n, d)  each number says where it is from
head_by_head = torch.stack([x[:, 0:2], x[:, 2:4]])  # (h, n, d_k)  columns 0 and 1, then 2 and 3
panels = {"x, (n, d)": x, "head by head": head_by_head, "view alone": x.view(2, 4, 2)}
figures.head_pieces(panels, four, d_model=4)

# %% [markdown]
# In the middle head 0 has the first two columns of every token. On the right it has *all* columns of Anna and Ben, in
# four rows, and has never heard of Tom. Nothing crashes, the shapes are right, and a network would even train, after a
# fashion. `view` never moves a number. It reads them in the order in which they lie in memory, and only breaks the rows
# elsewhere.
#
# How would you notice? The shape tells nothing. Ask a question that has a right answer: *if one token changes, which
# heads hear of it?* All of them should.

# %%
changed = x.clone()
changed[3] += 100                                        # another Eva
for name, before, after in (
    ("head by head", head_by_head, torch.stack([changed[:, 0:2], changed[:, 2:4]])),
    ("view alone", x.view(2, 4, 2), changed.view(2, 4, 2)),
):
    hears = (before != after).flatten(1).any(dim=1)      # (h,)
    print(f"{name:>12}: head 0 hears {bool(hears[0])}, head 1 hears {bool(hears[1])}")

# %% [markdown]
# (In other people's code merging reads `y.transpose(1, 2).contiguous().view(B, T, C)`. Transposing moves no number
# either: it notes in which order they are to be read. `view` refuses where that is not the order in memory, and
# `contiguous` makes a copy first. `flatten` and `reshape` do so by themselves. nanoGPT and `nn.MultiheadAttention` go
# one step further and keep $W_Q$, $W_K$, $W_V$ as *one* matrix of $d \times 3d$, whose output is split in three.)
#
# **Now you:** [a07](@many_heads/assignment), exercises 2 and 3.
#
# Torch's own layer is `nn.MultiheadAttention`. Give it the weights of our trained loop and it must give the loop's
# output:

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

# %% [markdown] erratum="projected twice"
# > **A common mistake: projected twice.** `nn.MultiheadAttention` takes a query, a key and a value, so people make them
# > with three linear layers of their own and hand them over: `mha(W_q(x), W_k(x), W_v(x))`. But the layer has its
# > projections *inside*. Everything is projected twice; nothing crashes, and it is not the equation. It wants $X$, three
# > times. (Beware of its masks, too: there True means *may not* attend.)
#
# **Now you:** [a07](@many_heads/assignment), exercise 4: your layer, torch's weights, the same output. And exercise 7,
# where all heads get the two masks of lecture @masking at once.
#
# > **Check yourself.** (1) Batch 8, 100 tokens, d_model 512, 8 heads: what are the shapes of the split queries, the
# > scores, and the merged output? (2) A padding mask (batch, 1, n) is to be used for all heads. What must be done to it?
# > <details><summary>Answers</summary>(1) (8, 8, 100, 64), (8, 8, 100, 100), (8, 100, 512). (2) It needs an axis for
# > the heads: <code>mask[:, None]</code> is (batch, 1, 1, n). As it is, its batch axis would be matched with the heads:
# > an error, or, if there happen to be as many heads as sentences, the wrong sentence's mask.</details>
#
# ## Heads add up, so two heads can subtract
#
# The concatenation hides what happens. $W_O$ has a block of $d_v$ rows for each head. To multiply the concatenation by
# $W_O$ is to multiply each head's output by its own block $W_O^{(i)}$ and to **add**:
#
# $$\operatorname{Concat}(\text{head}_0, \dots, \text{head}_{h-1})\,W_O = \sum_i \text{head}_i\, W_O^{(i)}
# = \sum_i A_i\; X\; W_V^{(i)} W_O^{(i)}$$
#
# Every head writes to all $d_\text{model}$ columns, independently of the others, and the writings are summed (Elhage et
# al. 2021). They also name the two halves of a head: $W_Q^{(i)} W_K^{(i)\top}$, the **QK circuit**, decides *where* it
# looks, and $W_V^{(i)} W_O^{(i)}$, the **OV circuit**, *what* it writes.
#
# [Lecture @masking](@masking) said that what a token receives is an average of the tokens' vectors. That holds for one
# head. Let two heads have opposite OV circuits: the sum is $(A_0 - A_1)\,X W$, and the rows of $A_0 - A_1$ sum to **zero**.
# That is no average; it is a *difference*. Put temperatures on the cards and let the heads look at tomorrow and at
# yesterday:

# %%
temperatures = torch.tensor([12.0, 14.0, 13.0, 17.0, 21.0, 20.0, 16.0])[:, None]     # (7, 1)
tomorrow, yesterday = torch.eye(7).roll(1, dims=1), torch.eye(7).roll(-1, dims=1)    # A_0, A_1
one_head = tomorrow @ temperatures                       # (7, 1)  always between 12 and 21
two_heads = tomorrow @ temperatures - yesterday @ temperatures           # W_O blocks: +1 and −1
print("one head: ", one_head[:, 0].tolist())
print("two heads:", two_heads[:, 0].tolist())
assert two_heads.min() < temperatures.min(), "outside of all that was there to be averaged"

# %% [markdown]
# Does training find it? Each card has a day and the temperatures of that day at four hours, and is asked: *how much
# warmer is tomorrow than yesterday, at each hour?* (Not "than today": the residual connection of
# [lecture @deep_stacks](@deep_stacks) would add today's own values without a second head.) The measure is $R^2$, the share
# of the answers' variance that is explained. *Guess* what one head can reach. A third row has one temperature in place of
# four; be ready for a surprise.

# %%
def explained(n_heads, hours, seed, steps=150, d_model=32):
    torch.manual_seed(seed)
    draws = torch.Generator().manual_seed(seed)
    layer, day = Heads(d_model, n_heads), nn.Embedding(7, d_model)
    warmth, read = nn.Linear(hours, d_model, bias=False), nn.Linear(d_model, hours)
    modules = nn.ModuleList([layer, day, warmth, read])
    optimizer = torch.optim.Adam(modules.parameters(), lr=1e-2)
    for step in range(steps + 1):
        days, _, _ = shuffled_weeks(64 if step < steps else 2000, draws)
        degrees = torch.randn(*days.shape, hours, generator=draws)        # (batch, 7, hours)
        answer = of_another_day(days, degrees, 1) - of_another_day(days, degrees, -1)
        predicted = read(layer(day(days) + warmth(degrees)))              # (batch, 7, hours)
        loss = (predicted - answer).square().mean()
        if step < steps:
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return 1 - loss.item() / answer.var().item()         # on the last, fresh 2,000 weeks


differences = {}
for n_heads, hours, name in ((1, 4, "1 head, four hours"), (2, 4, "2 heads, four hours"),
                             (1, 1, "1 head, one hour")):
    differences[name] = [explained(n_heads, hours, seed) for seed in range(3)]
viz.strip_plot(differences, x_name="R² of: how much warmer is tomorrow than yesterday?")

# %% tags=["hide-input"]
assert max(differences["1 head, four hours"]) < 0.6
assert min(differences["2 heads, four hours"]) > 0.95

# %% [markdown]
# One head explains half: it reports one of the two days. Two heads subtract. And the surprise: of a *single* number per
# card one head can say more than half. We have a guess why. The values are averaged, but the weights depend on the
# cards, too, and how the weight is divided between tomorrow and yesterday is one more number that gets through. With
# four numbers to report, that channel is too narrow.
#
# So the statement of lecture @masking needs its "with one head". What stays true of attention alone: if all tokens are
# equal, every average of them is the same vector, in each head, and all outputs are equal again. A difference that is lost
# cannot be brought back. (Dong et al. 2021 prove **rank collapse** for stacks of multi-head attention, too.)
#
# ## What heads cost: n² weights each, and a low rank
#
# Are heads free? In parameters they are. Now count the arithmetic of the matrix products, and the attention weights.
# (A FLOP is a floating-point operation; a multiplication and an addition are two.) *Guess* which of the three columns
# changes with the number of heads.

# %%
x, costs = torch.randn(1, 512, 256), {}                                   # (batch, n, d_model)
for n_heads in (1, 4, 16, 64):
    layer, tables, taken = MultiHeadAttention(256, n_heads), [], []
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        layer(x, weights=tables)
    with torch.no_grad():
        for _ in range(5):
            start = time.process_time()
            layer(x, weights=[])
            taken.append(time.process_time() - start)
    costs[n_heads] = counter.get_total_flops(), tables[0].numel(), statistics.median(taken)
    flops, weights, seconds = costs[n_heads]
    print(f"heads: {n_heads:>2}   {flops:,} FLOPs   {weights:>10,} weights   {seconds:.3f} s")

# %% tags=["hide-input"]
flops, numbers, seconds = zip(*costs.values(), strict=True)
assert len(set(flops)) == 1 and numbers[3] == 64 * numbers[0] == 64 * 512**2
assert seconds[3] > 2 * seconds[0], "the products are the same, the tables are not"

# %% [markdown] erratum="same amount of computation"
# > **A common mistake: "multi-head attention takes the same amount of computation as one head".** In parameters and in
# > matrix products that is exact. But there is a table of weights for each head: $h\,n^2$ scores and exponentials in place
# > of $n^2$, to compute and to keep. For the same reason attention is not "only matrix multiplications": with as many
# > FLOPs in its products, the layer of 64 heads takes many times as long. (The tables have to be written, exponentiated and
# > read, and products as narrow as these are slow; we did not measure the two apart. A fused kernel such as FlashAttention,
# > [lecture @cheap_attention](@cheap_attention), does not keep the tables, and computes the exponentials all the same.)
#
# There is a second price. A head compares tokens through $W_Q^{(i)} W_K^{(i)\top}$, a $d \times d$ matrix that is a
# product through a bottleneck of $d_k$ columns, so its **rank is at most $d_k$**. Bhojanapalli et al. (2020) call it the
# **low-rank bottleneck**. To see it alone we make queries and keys narrow and leave the values as wide as they were. The
# question is tomorrow's meal. *Guess* how narrow one head may be, so that each of seven days finds the next, and Sunday
# finds Monday.

# %%
def with_narrow_keys(n_heads, d_k, seed, steps=150, d_model=32):
    torch.manual_seed(seed)
    draws, d_v = torch.Generator().manual_seed(seed), d_model // n_heads
    day, meal = nn.Embedding(7, d_model), nn.Embedding(len(MEALS), d_model)
    sizes = (d_model, d_k), (d_model, d_k), (d_model, d_v), (d_v, len(MEALS))
    W = [nn.Parameter(torch.randn(n_heads, *size) / math.sqrt(d_model)) for size in sizes]
    W_Q, W_K, W_V, W_O = W
    optimizer = torch.optim.Adam([*day.parameters(), *meal.parameters(), *W], lr=1e-2)
    for step in range(steps + 1):
        days, meals, tomorrow = shuffled_weeks(64 if step < steps else 2000, draws)
        x = (day(days) + meal(meals))[:, None]                          # (batch, 1, 7, d_model)
        outputs, _ = attend(x @ W_Q, x @ W_K, x @ W_V)                    # (batch, h, 7, d_v)
        predicted = (outputs @ W_O).sum(dim=1)                            # the heads add up
        if step < steps:
            optimizer.zero_grad()
            nn.functional.cross_entropy(predicted.flatten(0, 1), tomorrow.flatten()).backward()
            optimizer.step()
    rank = torch.linalg.matrix_rank(W_Q[0] @ W_K[0].mT).item()            # of head 0
    return (predicted.argmax(dim=-1) == tomorrow).float().mean().item(), rank


narrow = {}
for n_heads, d_k in ((1, 1), (1, 2), (4, 1)):
    found = [with_narrow_keys(n_heads, d_k, seed) for seed in range(3)]
    ranks = {rank for _, rank in found}
    name = f"{n_heads} head{'s' if n_heads > 1 else ''}, d_k = {d_k}"
    print(f"{name}: rank of W_Q W_Kᵀ {ranks}")
    narrow[name] = [right for right, _ in found]
viz.strip_plot(narrow, x_name="tomorrow's meal, right answers")

# %% tags=["hide-input"]
assert max(narrow["1 head, d_k = 1"]) < 0.75 and min(narrow["1 head, d_k = 2"]) > 0.95

# %% [markdown] teaches="heads look at different things, k heads or one; what heads do: bertviz, linguistic roles"
# With $d_k = 1$ a score is one number times another: a query can prefer the largest keys or the smallest, and never one in
# the middle. Two columns are enough, because seven days fit on a circle. Four heads of one column get nearly there
# together: the bottleneck is each head's, and a sum of heads can go around it. Real heads have 64 or 128 columns, and far
# more to tell apart than seven days. Vaswani et al. (table 3, rows A) split the same 512 columns: 24.9 BLEU with one
# head, 25.8 with 8 or 16, and 25.4 with 32 heads of 16 columns.
#
# ## Heads of a trained model: where they look, and who would miss them
#
# The diary had one layer and two questions. Now a model that is a little more like a real one: the package's encoder, two
# blocks of four heads, with RoPE ([lecture @order](@order)) so that order counts. It reads gossip, which the package
# makes up. Every verb must say who gave and who got, and every pronoun whom it means, the last man or the last woman
# named. (Adverbs stand around at random, also where English would not have them, so that counting words does not help.)

# %%
for seed in (22, 36, 26):
    words, questions = tell(2, random.Random(seed))
    print(" ".join(words))
    for asker, kind, place in questions:
        print(f"{words[asker]:>8}: {QUESTIONS[kind]} {words[place]}")

# %%
class Reader(nn.Module):
    def __init__(self, d_model=64):
        super().__init__()
        self.encoder = Encoder(TransformerConfig(
            vocab_size=len(VOCABULARY), d_model=d_model, n_layers=2, n_heads=4,
            d_ff=2 * d_model, positions="rope", max_length=64, dropout=0.0,
        ))
        self.read = nn.Linear(d_model, len(QUESTIONS) * len(NAMES))

    def forward(self, told):
        states = self.encoder(told.tokens, told.lengths)                  # (batch, n, d_model)
        asking = states[told.sentence, told.asker]                        # (m, d_model)
        names = self.read(asking).unflatten(-1, (len(QUESTIONS), -1))    # (m, questions, names)
        return names[torch.arange(len(told.kind)), told.kind]             # (m, names)


def losses(model, seed):
    rng = random.Random(seed)
    while True:
        told = gossip(24, rng)
        yield nn.functional.cross_entropy(model(told), told.answer)


test = gossip(120, random.Random(12345))


def answered(model):
    """The share of right answers to each question, on 120 sentences that no model has seen."""
    with torch.no_grad():
        hit = (model(test).argmax(dim=-1) == test.answer).float()         # (m,)
    return torch.stack([hit[test.kind == kind].mean() for kind in range(len(QUESTIONS))])

# %%
readers, full = [], []
for seed in range(3):
    torch.manual_seed(seed)
    readers.append(Reader())
    descend(readers[seed], losses(readers[seed], seed), steps=200, lr=5e-3, name=f"seed {seed}")
    full.append(answered(readers[seed]))                                  # (questions,)
    shares = zip(QUESTIONS, full[seed], strict=True)
    print(f"seed {seed}:", {question: f"{share:.1%}" for question, share in shares})

# %% tags=["hide-input"]
assert min(share.min() for share in full) > 0.95

# %% [markdown]
# Hardly an answer is wrong. Two things can be asked of each of the eight heads. *Where does it look?* That is in its
# weights. *Who would miss it?* That is an ablation: we set its block of $W_O$ to zero and count what is lost. Here is one
# sentence as the heads of seed 0 see it. Point at a word; click another head. *Look for these:* a head that goes from the
# verb to the giver, one that goes from the verb to the receiver, one that takes *she* or *he* to a name. Then, before
# you read on: which of the heads that you found will be missed?

# %%
words, _ = tell(2, random.Random(26))
tokens, seen = torch.tensor([[VOCABULARY.index(word) for word in words]]), Weights()
with torch.no_grad():
    readers[0].encoder(tokens, weights=seen)
viz.attention_viewer(seen, words, title="Who looks at whom", layer=0, head=0)

# %% [markdown]
# One sentence is an anecdote. Over the whole test set: how much weight goes from the word that asks to the name that is the
# answer? And how many answers are lost without the head?

# %%
HEADS = [(layer, head) for layer in range(2) for head in range(4)]


def without(model, heads):
    """`answered`, with these heads silenced."""
    silenced = copy.deepcopy(model)
    for layer, head in heads:
        attention = silenced.encoder.stack.blocks[layer].attention.sublayer
        block = slice(head * attention.d_head, (head + 1) * attention.d_head)
        attention.output.weight.data[:, block] = 0.0  # nn.Linear keeps W_O's transpose: columns
    return answered(silenced)


def weight_on_answer(model):
    """The mean weight from who asks to where the answer stands: (heads, questions)."""
    seen = Weights()
    with torch.no_grad():
        model.encoder(test.tokens, test.lengths, weights=seen)
    table = torch.zeros(len(HEADS), len(QUESTIONS))
    for row, (layer, head) in enumerate(HEADS):
        weight = seen.self_attn[layer][test.sentence, head, test.asker, test.place]       # (m,)
        for kind in range(len(QUESTIONS)):
            table[row, kind] = weight[test.kind == kind].mean()
    return table

# %%
reads = [weight_on_answer(model) for model in readers]                 # (heads, questions) each
lost = []
for model, answers in zip(readers, full, strict=True):
    lost.append(torch.stack([answers - without(model, [head]) for head in HEADS]))
names = [f"layer {layer}, head {head}" for layer, head in HEADS]
titles = ("weight on the answer", "lost without the head")
figures.reads_and_losses(reads[0], lost[0], names, QUESTIONS, titles)
for seed in range(3):
    unmissed = (reads[seed] > 0.4) & (lost[seed] < 0.05)
    heads = [f"{names[i]} ({QUESTIONS[q]})" for i, q in unmissed.nonzero().tolist()]
    print(f"seed {seed}, looks at the answer and is not missed: {'; '.join(heads)}")
    assert heads, "a head looks at the answer and is not missed, in every seed"

# %% [markdown]
# The two tables do not agree. In every seed at least one head looks straight at the answer and is not missed. So
# neither table alone is "what a head does". Weights tell where a head reads, and not whether what it reads is used. An
# ablation tells what cannot be done *without* a head, and not what it does. (Setting a head to zero is one ablation. Another puts its mean
# output in its place, so that the layers above see nothing that they never saw in training. Why is it not missed? One reason may be that
# in layer 1 a vector is no longer just its own word: layer 0 has mixed something of its neighbours in.)
#
# Heads with a job get names. Ours would be a *giver head*, a *receiver head* and a *pronoun head*: those that put the most
# weight on the answer. *Guess:* is it the same head in each seed?

# %%
for seed in range(3):
    most, which = reads[seed].max(dim=0)                                  # (questions,)
    jobs = zip(("giver", "receiver", "pronoun"), which.tolist(), most.tolist(), strict=True)
    print(f"seed {seed}:", ", ".join(f"{job} head: {names[i]} ({w:.2f})" for job, i, w in jobs))

# %% [markdown]
# The jobs come back, and one head may have two. The numbers mean nothing: heads are interchangeable, and where two seeds
# agree it is by accident. A finding about "head 3 of layer 0" is about one trained model.
#
# And if nobody misses this one, and nobody that one, can they all go? *Guess:* of eight heads, how many can be taken away
# before the worst of the three answers falls below 90 %? We silence one after the other, always the one that is missed
# least, and do not put them back.

# %%
worst = {}
for seed, model in enumerate(readers):
    gone, line = [], [full[seed].min().item()]
    while len(gone) < len(HEADS):
        left = [head for head in HEADS if head not in gone]
        after = [without(model, [*gone, head]).min().item() for head in left]
        gone.append(left[after.index(max(after))])
        line.append(max(after))
    worst[f"seed {seed}"] = line
x_name = "heads silenced, least missed first"
viz.curves(worst, xs=range(9), x_name=x_name, y_name="right, worst of three answers")
for seed, model in enumerate(readers):
    spare = [head for head, shares in zip(HEADS, lost[seed], strict=True) if shares.max() < 0.1]
    together = without(model, spare).min()
    print(f"seed {seed}: {len(spare)} heads can each be missed at less than 10 %;"
          f" without all of them the worst answer is at {together:.0%}")

# %% tags=["hide-input"]
assert all(line[2] > 0.9 and line[7] < 0.4 for line in worst.values())

# %% [markdown]
# A few heads can go at hardly any cost, then it falls. What can be missed one at a time cannot be missed together.
# Michel, Levy and Neubig (2019) found the same in trained translation models and in BERT: most heads can be removed
# singly without a measurable loss. **Pruning** of this kind makes models smaller. Voita et al. (2019) pruned 38
# of the 48 encoder heads of an English–Russian translator, at a loss of 0.15 BLEU. The last to go had jobs with names:
# **positional** heads (the neighbouring token), **syntactic** heads (a verb's object), and a head for **rare tokens**.
# Clark et al. (2019) found heads in BERT that attend to a fixed offset, to the direct object of a verb, or to an earlier
# mention of the same person. An **induction head** completes a repeated pattern: after *A B … A* it predicts *B*
# (Elhage et al. 2021; Olsson et al. 2022).
# Vaswani et al. (2017, figure 3) show heads that tie *making* to *more difficult*, and the tool BertViz draws such
# pictures for many models. Enjoy them, and when somebody concludes from one, ask what happens without the head.
#
# ## The KV cache: keys and values are computed once
#
# Now to the writing model, which produces one token at a time with a causal mask. At each step there is *one* new query.
# It meets the keys and values of all tokens so far. Those of the old tokens have not changed, because a causal mask lets
# nothing later reach them. Without care they are computed again at every step. A **key–value cache** (KV cache) keeps
# them:

# %%
figures.caching(n=6)

# %% [markdown]
# For $n$ tokens that is $n(n+1)/2$ pairs of key and value without the cache, and $n$ with it. (Queries are used once and
# forgotten: there is no "QKV cache".) *Guess* before you run: 100 tokens, how many times less arithmetic in the
# layer, and is the output exactly the same?

# %%
torch.manual_seed(0)
layer, tokens = MultiHeadAttention(256, n_heads=8), torch.randn(1, 100, 256)
counted, outputs = {}, {}
with torch.no_grad():
    with FlopCounterMode(display=False) as counter:
        steps = [layer(tokens[:, : t + 1], causal=True)[:, -1] for t in range(100)]
    counted["without"] = counter.get_total_flops()
    outputs["without"] = torch.stack(steps, dim=1)                        # (1, 100, 256)
    cache = KeyValueCache()
    with FlopCounterMode(display=False) as counter:
        steps = [layer(tokens[:, t : t + 1], cache=cache)[:, 0] for t in range(100)]
    counted["with"] = counter.get_total_flops()
    outputs["with"] = torch.stack(steps, dim=1)                           # (1, 100, 256)
print({name: f"{flops / 1e6:,.0f} million FLOPs" for name, flops in counted.items()})
print("the same output:", torch.allclose(outputs["without"], outputs["with"], atol=1e-5))
print(f"the price: {cache.n_bytes:,} bytes are kept")

# %% tags=["hide-input"]
assert torch.allclose(outputs["without"], outputs["with"], atol=1e-5)
assert 45 < counted["without"] / counted["with"] < 55

# %% [markdown]
# Fifty times less arithmetic, for the same output. The price is memory. For each token the cache keeps
#
# $$2 \;\times\; \text{layers} \;\times\; \text{heads of keys} \;\times\; d_\text{head} \;\times\; \text{bytes per number},$$
#
# the 2 for keys and values. Llama 2's smallest model has 32 layers of 32 heads of 128, in numbers of two bytes.
# *Estimate before you run the cell:* how much is that for one text of 4,096 tokens?

# %%
llama_2 = preset("llama 2 7b").config
per_token = cache_bytes(llama_2, batch=1, n=1)
per_text = cache_bytes(llama_2, batch=1, n=4096)
print(f"{per_token / 2**20} MiB a token, {per_text / 2**30} GiB for 4096 tokens")
print(f"all parameters: {2 * count_parameters(llama_2, LanguageModel).total / 2**30:.1f} GiB")
assert per_token == 2 * 32 * 32 * 128 * 2

# %% [markdown] teaches="grouped-query attention"
# Half a megabyte a token, and two gigabytes a text: seven such texts at once need more for their caches than for the whole
# model. On a GPU it is also a matter of time. To write one token, the whole cache must pass from memory through the
# processor, and each number that is read takes part in one multiplication and one addition. The processor could do
# hundreds in the meantime. Such a step is **memory-bound**: it waits for bytes, not for arithmetic
# ([lecture @training](@training) has the numbers).
#
# ## MHA, GQA, MQA: query heads that share keys and values
#
# Look at the factors of the formula for one to save on. Must every query head have keys and values of its own? Shazeer
# (2019) tried the extreme, **multi-query attention** (MQA): all query heads share *one* head of keys and values. Ainslie
# et al. (2023) took the middle, **grouped-query attention** (GQA): with $g$ groups, $h/g$ neighbouring query heads share.
# Plain **multi-head attention** (MHA) is $g = h$.

# %%
kinds = {"multi-head (MHA)": 8, "grouped-query (GQA)": 2, "multi-query (MQA)": 1}
figures.shared_keys(n_heads=8, kinds=kinds)
for name, groups in kinds.items():
    layer, cache = MultiHeadAttention(256, n_heads=8, n_kv_heads=groups), KeyValueCache()
    with torch.no_grad():
        layer(tokens, cache=cache, causal=True)          # 100 tokens of width 256, in float32
    size = sum(p.numel() for p in layer.parameters())
    print(f"{name:<20} cache {cache.n_bytes:>7,} bytes, layer {size:,} parameters")
    assert cache.n_bytes == 2 * groups * 100 * 32 * 4

# %% [markdown]
# Query head $i$ uses head $\lfloor i / (h/g) \rfloor$ of keys and values: **neighbours** share. Dealing the key heads out in
# turn like cards, 0 1 0 1 0 1, could be trained from scratch just as well, but published checkpoints mean the first. The
# cache shrinks with the number of groups. (The parameters of $W_K$ and $W_V$ shrink, too; models that use groups spend them
# elsewhere.) Each number that is read now serves $h/g$ queries, so the memory-bound step gets faster as well. For a
# model as large as Llama 3's 8B, which has 8 heads of keys for 32 of queries:

# %%
llama_3 = preset("llama 3 8b").config
lengths = [2**k for k in range(11, 18)]           # Llama 3 ended at 8,192, Llama 3.1 at 131,072
gib = {}
for groups, name in ((32, "32: one each"), (8, "8: as released"), (1, "1: multi-query")):
    config = replace(llama_3, n_kv_heads=groups, max_length=lengths[-1])
    gib[name] = [cache_bytes(config, batch=1, n=n) / 2**30 for n in lengths]
weights_gib = 2 * count_parameters(llama_3, LanguageModel).total / 2**30
gib["(all parameters)"] = [weights_gib] * len(lengths)
viz.curves(gib, xs=lengths, x_name="tokens in the cache", y_name="GiB", log_x=True, log_y=True)
longest = {name: f"{line[-1]:.0f} GiB" for name, line in gib.items()}
print(f"at {lengths[-1]:,} tokens:", longest)

# %% [markdown]
# And what is lost? Ainslie et al. report quality close to that of full heads for groups, and a little less for a single
# one. Our diary is too easy to show a loss. It shows how little the keys need to differ: four query heads with one head of
# keys and values between them, three seeds.

# %%
for seed in range(3):
    torch.manual_seed(seed)
    shared = learn_diary(MultiHeadAttention(32, n_heads=4, n_kv_heads=1, bias=False), seed)
    tomorrow, yesterday = share_right(shared)
    print(f"multi-query, seed {seed}:  tomorrow {tomorrow:4.0%}   yesterday {yesterday:4.0%}")

# %% [markdown]
# "Who is tomorrow?" and "who is yesterday?" are asked of the same property of a card, its day. It is enough that the
# *queries* differ.
#
# A third way keeps neither fewer heads nor all of them. **Multi-head latent attention** (MLA; DeepSeek-AI 2024) keeps one
# narrow vector for each token, from which the keys and values of *all* heads are computed again when they are needed, and
# one small key for the position. In DeepSeek-V2 the vector has $4\,d_\text{head}$ numbers and the small key
# $\tfrac12 d_\text{head}$. A group of GQA keeps $2\,d_\text{head}$, so this is the cache of $4.5 / 2 = 2.25$ groups.
# Which model has what? Llama 2's 34B and 70B have groups, its 7B and 13B do not (Touvron et al. 2023). Llama 3, Mistral 7B
# and Qwen2 have groups, and DeepSeek-V2 and V3 have MLA.
#
# **Now you:** [a07](@many_heads/assignment), exercise 5.
#
# ## In short
#
# | | | shape |
# |---|---|---|
# | a head | $\text{head}_i = \operatorname{softmax}\bigl(Q_i K_i^\top / \sqrt{d_k}\bigr) V_i$, with $Q_i = X W_Q^{(i)}$ and so on | $(n, d_v)$ |
# | multi-head attention | $\operatorname{Concat}(\text{head}_0, \dots, \text{head}_{h-1})\,W_O = \sum_i \text{head}_i W_O^{(i)}$ | $(n, d_\text{model})$ |
# | split, merge | (batch, n, $h\,d_k$) ↔ (batch, h, n, $d_k$): cut *and* exchange | |
# | rank of a head's scores | at most $d_k = d_\text{model} / h$ | |
# | KV cache | 2 · layers · heads of keys · $d_\text{head}$ · n numbers | |
#
# Multi-head attention asks $h$ questions at once, for the parameters and the matrix products of one head. The heads'
# outputs add up, so two heads can subtract, which no average can. The price is $h$ tables of weights, and heads of low
# rank. A head's weights say where it reads; only an ablation says whether it is missed, and only an ablation of several
# heads whether they can go. When a model writes, keys and values wait in a KV cache, and grouped-query attention lets
# several query heads share them.
#
# > **Check yourself.**
# > 1. d_model is 512, with 8 heads. What are the shapes of $W_Q^{(3)}$, of $W_O$, and of the block $W_O^{(3)}$?
# > 2. Somebody leaves $W_O$ out. What can head 0 no longer do?
# > 3. Two heads have the same $W_Q$ and $W_K$, and different $W_V$. Do they do more than one head whose values are twice
# >    as wide?
# > 4. A model has 40 query heads, 8 heads of keys, d_head 128, 48 layers, numbers of two bytes. How large is its cache
# >    for 1,000 tokens?
# > 5. Why is there no cache in training?
# > <details><summary>Answers</summary>
# >
# > 1. (512, 64), (512, 512) and (64, 512).
# > 2. Write anywhere but to the first d_v columns. And the heads' outputs could no longer be added or subtracted.
# > 3. No: one table of weights, applied to values that are twice as wide, gives the same outputs.
# > 4. 2 · 48 · 8 · 128 · 1,000 · 2 bytes, about 197 million: 188 MiB.
# > 5. All positions are computed at once, so every key is computed once anyhow (and the parameters change at each step).</details>
#
# **Now do** [assignment @many_heads](@many_heads/assignment) (about two hours): exercises 1 to 7, two questions in words, and an
# extension. (Exercise 6, the parameters of a GPT, can wait for [lecture @transformer](@transformer).) **Next:** attention
# can be stacked, but a stack does not train by itself. [Lecture @deep_stacks](@deep_stacks) is about what has to be put
# around it.
#
# **In the package.** `attncourse.attention.MultiHeadAttention` is the layer, with `n_kv_heads` for groups and `dropout`
# for the attention weights in training (as in `nn.MultiheadAttention`); `KeyValueCache` stands beside it. `cache_bytes` in
# `attncourse.counting` is the formula above. (How many parameters a whole model has is counted in
# [lecture @transformer](@transformer).)
#
# **Further reading.** Vaswani et al., [*Attention is all you need*](https://arxiv.org/abs/1706.03762) (2017): section
# 3.2.2, and table 3, rows A and B. Elhage et al., [*A mathematical framework for Transformer
# circuits*](https://transformer-circuits.pub/2021/framework/index.html) (2021), on heads that add. Bhojanapalli et al.,
# [*Low-rank bottleneck in multi-head attention models*](https://arxiv.org/abs/2002.07028) (2020). Dong et al., [*Attention
# is not all you need*](https://arxiv.org/abs/2103.03404) (2021). Michel, Levy and Neubig, [*Are sixteen heads really
# better than one?*](https://arxiv.org/abs/1905.10650) (2019). Voita et al., [*Analyzing multi-head
# self-attention*](https://arxiv.org/abs/1905.09418) (2019). Clark et al., [*What does BERT look
# at?*](https://arxiv.org/abs/1906.04341) (2019). Olsson et al., [*In-context learning and induction
# heads*](https://arxiv.org/abs/2209.11895) (2022). Shazeer, [*Fast Transformer decoding: one write-head is all you
# need*](https://arxiv.org/abs/1911.02150) (2019). Ainslie et al., [*GQA*](https://arxiv.org/abs/2305.13245) (2023).
# Touvron et al., [*Llama 2*](https://arxiv.org/abs/2307.09288) (2023). DeepSeek-AI,
# [*DeepSeek-V2*](https://arxiv.org/abs/2405.04434) (2024), section 2.1 on MLA.

# %% [markdown] erratum="variance from LayerNorm; cross-attention unscaled; 24 heads; a width of 5140; d_ff of the 8 layers; d_ff of the 6 layers" teaches="sizes of GPT-3 and of the base model, counted"
# ## Going further: √d_k inside a layer, and published sizes
#
# *Not counted in the minutes above. The text folds open; the folded cells below it print its numbers, in this order.*
#
# <details><summary><b>Open:</b> what a layer makes of the variance, what the root does to gradients, cross-attention, and
# tables that do not multiply out</summary>
#
# **1. The variance inside a layer.** Lecture @lookup derived $\operatorname{Var}(q \cdot k) = d_k$ for components of mean
# 0 and variance 1. *Is that so in a layer, after LayerNorm?* There $q = xW_Q$ and $k = yW_K$, and the variance of their
# components is whatever the matrices make of it. Cell 1 prints it for four usual initialisations. With variance $1/d$ it is
# $d_k$. PyTorch's own linear layer draws weights of variance $1/(3d)$, so a ninth is left. All this holds before the
# first step: training is free to make $W_Q$ and $W_K$ as large as it likes. The root makes the *start* independent of
# the width of a head, so that one recipe serves narrow heads and wide ones.
#
# > **A common mistake: "after LayerNorm the elements have mean 0 and variance 1, so the dot product has variance
# > $d_k$".** LayerNorm acts on $x$. The dot product is of $xW_Q$ and $yW_K$.
#
# **2. The gradient.** Softmax makes a hard choice of large scores, and a hard choice has almost no slope. But the gradient
# from a score to the query is multiplied by $k$, which is long in a wide head. *Which effect wins?* Cell 2 measures the
# gradient that reaches each of 400 random queries from a loss of the weighted average. In narrow heads the long key wins.
# At width 1024 without the root the *median* gradient is next to nothing, while the *mean* is larger than with the root:
# a few queries stand by chance between two nearly equal scores and receive very large gradients. "The gradient vanishes"
# is true of most queries, and false of their mean.
#
# **3. Cross-attention is scaled, too.**
#
# > **A common mistake: no scale in cross-attention.** Slides that come to cross-attention print
# > $\operatorname{softmax}(ZQ(HK)^\top)\,HV$, without any divisor. It is the same function, and the Transformer scales
# > there, too. The divisor is the root of what *one head's* dot product sums over, $d_k = d_\text{model}/h$, not of
# > $d_\text{model}$: with $\sqrt{d_\text{model}}$ the scores of eight heads start with a variance of ⅛. (Cell 3 checks it.)
#
# **4. Published sizes.** A count of the parameters tells whether a table was copied rightly.
#
# > **A common mistake: to copy a table without multiplying it out.** Heads × width of a head should be the width of the
# > model. In table 2.1 of Brown et al. (2020) it is not for *GPT-3 XL*, 24 heads of 128 for a width of 2048, nor for
# > *13B*, 40 of 128 for 5140. (Heads may have any width, so the product alone proves nothing.) A count of the parameters
# > decides. The paper's own table D.1 has 1,320 million for the one and 12,850 for the other. (Cell 4.)
#
# > **A common mistake: a digit lost in copying.** Narang et al. (2021) trade depth against width at 223 million
# > parameters ([lecture @transformer](@transformer) says what they found). For 8 layers slides print a $d_\text{ff}$ of
# > 4096 in place of 4608, and for 6 layers 1044 in place of 6144. The rows keep layers × $d_\text{ff}$ constant, and
# > with it the count. (Cell 5.)
# </details>

# %% tags=["hide-cell"] jupyter={"source_hidden": true, "outputs_hidden": true}
# 1: variance
d, d_k = 512, 64
torch.manual_seed(0)
x = nn.functional.layer_norm(torch.randn(2000, d), (d,))
square = torch.empty(2, d, d)
with torch.no_grad():
    starts = {
        "normal, variance 1/d": torch.randn(2, d_k, d) / math.sqrt(d),
        "Xavier, on (d, d)": torch.stack([nn.init.xavier_uniform_(W)[:d_k] for W in square]),
        "nn.Linear as it comes": torch.stack([nn.Linear(d, d_k).weight for _ in range(2)]),
        "normal, std 0.02 (GPT-2)": 0.02 * torch.randn(2, d_k, d),
    }
of_scores = {}
for name, (W_Q, W_K) in starts.items():
    of_scores[name] = ((x[:1000] @ W_Q.mT) @ (x[1000:] @ W_K.mT).mT).var().item()
    print(f"{name:>25}: variance of q · k = {of_scores[name]:6.2f}   (d_k = {d_k})")
assert 0.7 < of_scores["normal, variance 1/d"] / d_k < 1.3
assert of_scores["nn.Linear as it comes"] < 0.2 * d_k

# %% tags=["hide-cell"] jupyter={"source_hidden": true, "outputs_hidden": true}
# 2: gradients
def gradients_at_queries(d_k, divisor):
    generator = torch.Generator().manual_seed(0)
    q = torch.randn(400, 1, d_k, generator=generator, requires_grad=True)
    k = torch.randn(400, 16, d_k, generator=generator)
    v = torch.randn(400, 16, 8, generator=generator)
    average = (q @ k.mT / divisor).softmax(dim=-1) @ v                    # (400, 1, 8)
    wanted = torch.randn(400, 1, 8, generator=generator)      # what the loss would like more of
    (gradient,) = torch.autograd.grad((average * wanted).sum(), q)
    return gradient.norm(dim=-1).flatten()                                # (400,)


for d_k in (16, 64, 1024):
    for name, divisor in (("plain", 1.0), ("÷ √d_k", math.sqrt(d_k)), ("÷ d_k", float(d_k))):
        sizes = gradients_at_queries(d_k, divisor)
        print(f"d_k {d_k:>4}, {name:>6}: median {sizes.median():.1e}, mean {sizes.mean():5.2f}")
plain, scaled = gradients_at_queries(1024, 1.0), gradients_at_queries(1024, 32.0)
assert plain.median() < 0.05 < 0.5 < scaled.median() and plain.mean() > 1.5 * scaled.mean()

# %% tags=["hide-cell"] jupyter={"source_hidden": true, "outputs_hidden": true}
# 3: cross-attention
layer, x, memory = MultiHeadAttention(64, 1), torch.randn(1, 3, 64), torch.randn(1, 5, 64)
by_hand, _ = attend(layer.query(x), layer.key(memory), layer.value(memory))           # scaled
assert torch.allclose(layer(x, memory), layer.output(by_hand), atol=1e-5), "it is scaled"

# %% tags=["hide-cell"] jupyter={"source_hidden": true, "outputs_hidden": true}
# 4: GPT-3
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

# %% tags=["hide-cell"] jupyter={"source_hidden": true, "outputs_hidden": true}
# 5: T5
for layers, heads, widths in ((12, 12, (3072,)), (8, 18, (4608, 4096)), (6, 24, (6144, 1044))):
    for d_ff in widths:
        size = millions("t5 base", EncoderDecoder, n_layers=layers, n_heads=heads, d_ff=d_ff)
        print(f"{layers:>2} layers, d_ff {d_ff}: {size:.0f} M, layers × d_ff = {layers * d_ff}")
        assert (abs(size - 223) < 1) == (layers * d_ff == 36864)
