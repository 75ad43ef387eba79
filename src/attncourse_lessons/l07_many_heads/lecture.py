# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3 (ipykernel)
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Lecture @many_heads · Many heads
#
# *About 60 minutes, of which less than one is computing. You need self-attention with its queries, keys and values
# ([lecture @self_attention](@self_attention)), and for one example the mask of [lecture @masking](@masking). From school:
# what a variance is.*
#
# When you have finished you will be able to say why one table of weights is not enough, and to make many of them by
# reshaping alone; to say what goes wrong without the $\sqrt{d_k}$, in a layer and on the way back; to
# look into a trained model's heads without fooling yourself; to save most of the memory that writing costs; and to
# count a model's parameters well enough to find the misprints in published tables. In
# [assignment @many_heads](@many_heads/assignment) you build the layer and do the count.
#
# ## Two questions at once
#
# In lecture @self_attention we had to leave somebody behind. *Anna lent Ben her book*, and the word *lent* wanted two things: who
# gave, and who got. It had one query, one row of weights, one average. It received Anna and Ben, half and half, and
# nobody who reads half of each can say who is who. A deck puts the question that leads on: what if we want to look at
# several places, for different reasons? Another has an everyday case. In *I run a small business* and *the stocking had
# a run*, the word before tells you whether *run* is a verb or a noun. What it means you learn from *business* and
# *stocking*, farther off.
#
# Let us first see how bad it is. You remember the diary of lecture @self_attention: seven cards with a day and a dinner on each,
# dropped and shuffled. A card was asked for tomorrow's dinner. Now it is asked for tomorrow's *and* yesterday's.

# %%
try:
    from attncourse import viz

    from . import figures
except ModuleNotFoundError:
    raise ImportError(
        "This page needs the attncourse package: open it with `make lab` in the course's folder, "
        "or choose a kernel of the environment in which you installed the course."
    ) from None

import math
import random
import statistics
import time
from dataclasses import replace

import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from attncourse.attention import KeyValueCache, MultiHeadAttention, attend
from attncourse.counting import GPT_3_TABLE, cache_bytes, count_parameters, preset
from attncourse.training import descend
from attncourse.transformer import Encoder, EncoderDecoder, LanguageModel, TransformerConfig, Weights

torch.set_num_threads(1)  # models as small as these gain nothing from a second thread, and lose when it has to wait

# %%
DAYS = ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"]
N_MEALS = 12


def shuffled_weeks(batch, generator):
    days = torch.rand(batch, 7, generator=generator).argsort(dim=-1)      # (batch, 7)  in any order
    meals = torch.randint(N_MEALS, (batch, 7), generator=generator)       # (batch, 7)
    of_day = torch.zeros_like(meals).scatter(1, days, meals)              # (batch, 7)  Monday's first
    tomorrow, yesterday = (of_day.gather(1, (days + step) % 7) for step in (1, -1))
    return days, meals, torch.stack([tomorrow, yesterday], dim=-1)        # answers: (batch, 7, 2)

# %% [markdown]
# The remedy that everybody took is as plain as can be: look several times, independently, each time with small matrices
# of its own. Such a look is called a **head**. With $h$ heads, $d$ the width of the words, and $d_k = d/h$,
#
# $$
# \begin{aligned}
# \text{head}_\ell &= \operatorname{softmax}\!\left(
# \frac{X W_Q^{(\ell)} \bigl(X W_K^{(\ell)}\bigr)^{\!\top}}{\sqrt{d_k}}\right) X W_V^{(\ell)}
# \in \mathbb{R}^{n \times d_k} \\[4pt]
# \text{output} &= [\,\text{head}_1; \dots; \text{head}_h\,]\; W_O \in \mathbb{R}^{n \times d}
# \end{aligned}
# $$
#
# The heads' findings are put side by side, and a last matrix $W_O$ lets each of them write anywhere. In code this is a
# loop and a concatenation:

# %%
class Heads(nn.Module):
    def __init__(self, d_model, n_heads):
        super().__init__()
        shape = n_heads, d_model, d_model // n_heads                      # (d_model, d_head) for each head
        self.W_Q, self.W_K, self.W_V = (nn.Parameter(torch.randn(shape) / d_model**0.5) for _ in range(3))
        self.W_O = nn.Parameter(torch.randn(d_model, d_model) / d_model**0.5)

    def forward(self, X, silent=None):
        found, tables = [], []
        for head, (W_Q, W_K, W_V) in enumerate(zip(self.W_Q, self.W_K, self.W_V, strict=True)):
            output, weights = attend(X @ W_Q, X @ W_K, X @ W_V)           # (batch, n, d_head), (batch, n, n)
            found.append(output * (head != silent))                       # (we shall want to silence one)
            tables.append(weights)
        output = torch.cat(found, dim=-1) @ self.W_O                      # (batch, n, d_model)
        return output, torch.stack(tables, dim=1)                         # and (batch, h, n, n)

# %% [markdown]
# What does the second head cost? The matrices of one wide head are $d \times d$. Those of two heads are $d \times d/2$,
# and there are two of them. $W_O$ is $d \times d$ in either case. In parameters heads are free.
#
# Three diaries learn the two answers, with one, two and four heads. Each reads both off the output by a linear layer.
# *Guess before you train:* will the one with a single head get both answers half right, or one right and the other
# wrong?

# %%
class Diary(nn.Module):
    def __init__(self, layer, d=32):
        super().__init__()
        self.day, self.meal, self.layer = nn.Embedding(7, d), nn.Embedding(N_MEALS, d), layer
        self.read = nn.Linear(d, 2 * N_MEALS, bias=False)

    def forward(self, days, meals, **options):
        output, tables = self.layer(self.day(days) + self.meal(meals), **options)
        return self.read(output).unflatten(-1, (2, N_MEALS)), tables      # (batch, 7, 2, meals)


def right(model, **options):
    days, meals, answers = shuffled_weeks(2000, torch.Generator().manual_seed(99))
    hit = model(days, meals, **options)[0].argmax(dim=-1) == answers      # (batch, 7, 2)
    return hit[..., 0].float().mean().item(), hit[..., 1].float().mean().item()

# %%
def learn_diary(layer, steps=400):
    generator, model = torch.Generator().manual_seed(0), Diary(layer)
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(steps):
        days, meals, answers = shuffled_weeks(64, generator)
        loss = nn.functional.cross_entropy(model(days, meals)[0].flatten(0, 2), answers.flatten())
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    return model

# %%
diaries = {}
for n_heads in (1, 2, 4):
    torch.manual_seed(0)
    diaries[n_heads] = learn_diary(Heads(32, n_heads))
    size = sum(p.numel() for p in diaries[n_heads].parameters())
    tomorrow, yesterday = right(diaries[n_heads])
    print(f"{n_heads} heads, {size} parameters:  tomorrow {tomorrow:4.0%}   yesterday {yesterday:4.0%}")

# %%
assert min(right(diaries[1])) < 0.5 and max(right(diaries[1])) > 0.75, "one head: one answer"
assert min(right(diaries[2])) > 0.98 and min(right(diaries[4])) > 0.98

# %% [markdown]
# With one head it all but gives up one of the answers. Could it not have both, with more training? What arrives is a
# mixture of two meals, $p\,v_\text{tomorrow} + (1-p)\,v_\text{yesterday}$. Say that $p > \tfrac12$, and take the four
# weeks that can be made of soup and pie. The mixtures lie on one line, in this order:
#
# | tomorrow, yesterday | share of pie | tomorrow | yesterday |
# |---|---|---|---|
# | soup, soup | 0 | soup | soup |
# | soup, pie | $1 - p$ | soup | **pie** |
# | pie, soup | $p$ | pie | **soup** |
# | pie, pie | 1 | pie | pie |
#
# For tomorrow one cut in the middle of the line will do. For yesterday the right answer goes to and fro, soup, pie,
# soup, pie, and a linear reader can cut a line only once. At $p = \tfrac12$ the two weeks in the middle are the same
# point, and nobody at all could tell them apart. (A reader with a hidden layer can cut more often, and networks do
# learn to read shares in this way. It is laborious, and two heads need no trick.)
#
# With two heads both answers are right. Do the heads share the work as we would, one question each? Look where they
# look, and then silence each of them in turn.

# %%
two = diaries[2]
in_order, meals = torch.arange(7)[None], torch.arange(7)[None]            # (1, 7)
tables = two(in_order, meals)[1][0].detach()                              # (2, 7, 7)
viz.weight_tables({f"head {head}": (DAYS, table) for head, table in enumerate(tables)}, numbers=True)
for head in range(2):
    tomorrow, yesterday = right(two, silent=head)
    print(f"without head {head}:  tomorrow {tomorrow:4.0%}   yesterday {yesterday:4.0%}")

# %%
lost = [right(two, silent=head) for head in range(2)]                     # per head: tomorrow, yesterday
for answers in lost:
    assert min(answers) < 0.2 and max(answers) > 0.95, "each head carries one answer, and only that"
assert lost[0].index(min(lost[0])) != lost[1].index(min(lost[1]))

# %% [markdown]
# One line above the diagonal and one below. Take a head away, and exactly one of the two answers is gone, down to
# chance (one in twelve). Nobody assigned the questions. Which head took which depends on the seed. So does the
# tidiness: of twenty seeds that we tried two ended otherwise, one with both questions mixed over the heads and nearly
# everything right, the other with an answer still half wrong after all the 400 steps.
#
# This is as clean as it gets. With four heads for two questions it is less so:

# %%
for head in range(4):
    tomorrow, yesterday = right(diaries[4], silent=head)
    print(f"of four, without head {head}:  tomorrow {tomorrow:4.0%}   yesterday {yesterday:4.0%}")
assert any(min(right(diaries[4], silent=head)) > 0.95 for head in range(4)), "one at least is not missed"

# %% [markdown] erratum="Y on the wrong side; one row for all"
# At least one of the four can be silenced and hardly anybody notices. Is it idle, or does another do the same? One run
# cannot tell. Keep it in mind; it will come back when we look into a larger model.
#
# > **On the slide.** Two decks write $\text{output}_\ell \in \mathbb{R}^{d/h}$. That is one row of it; there is one for
# > each word, so it is $\mathbb{R}^{n \times d/h}$. One of the two also writes the output as
# > $Y[\text{output}_1; \dots; \text{output}_h]$ with $Y$ of $d \times d$ (their $Y$ is our $W_O$). In their convention
# > words are rows, and then $Y$ stands on the right:

# %%
outputs, Y = [torch.randn(7, 16), torch.randn(7, 16)], torch.randn(32, 32)       # n = 7, d = 32, h = 2
beside = torch.cat(outputs, dim=-1)                                       # (7, 32)
try:
    Y @ beside
except RuntimeError as error:
    print("Y [outputs]:", error)
assert (beside @ Y).shape == (7, 32)

# %% [markdown]
# ## Cutting without a knife
#
# A loop over heads is slow, and unnecessary. Put the heads' matrices side by side, and they are one $d \times d$ matrix
# again: $X W_Q$ computes all queries of all heads at once, head 0's in the first $d/h$ columns, head 1's in the next.
# It remains to tell torch that these blocks of columns are different heads.

# %%
figures.many_heads(n=7, d_model=12, n_heads=3)

# %% [markdown]
# A matrix product treats all axes but the last two as a batch. So if the heads had an axis of their own *in front of*
# the words, (batch, h, n, d/h), everything that we have written for one head would serve all of them. From (batch, n,
# d) that takes two moves: cut the last axis in two, then exchange two axes.

# %%
def split_heads(x, n_heads):
    x = x.unflatten(-1, (n_heads, -1))                   # (batch, n, h, d_head)  each word's vector, cut
    return x.transpose(-3, -2)                           # (batch, h, n, d_head)  heads to the front


def merge_heads(x):
    return x.transpose(-3, -2).flatten(-2)               # (batch, n, h · d_head)

# %% [markdown]
# Why two? The shape (h, n, d/h) can be had in one: `view` gives a tensor any shape that has as many numbers. *Before
# you look:* here are four words of four columns and two heads. The letter says whose number it is, the digit which
# column. What will head 0 hold, if we ask `view` for the shape (2, 4, 2) directly?

# %%
four = ["Anna", "lent", "Ben", "books"]
x = torch.arange(16).view(4, 4)                          # (n, d)  each number says where it comes from
panels = {"x, (n, d)": x, "cut, then exchanged": split_heads(x, 2), "view alone": x.view(2, 4, 2)}
figures.head_pieces(panels, four, d_model=4)

# %% [markdown]
# In the middle head 0 has the first two columns of every word. On the right it has *all* columns of Anna and lent, in
# four rows, and has never heard of Ben. Nothing crashes, the shapes are right, and a network would even train, after a
# fashion. `view` never moves a number. It reads them in the order in which they lie, and only breaks the lines
# elsewhere.
#
# How would you notice? Not by the shape, but by a question that has a right answer: *if a word changes, which heads
# should hear of it?* All of them.

# %%
def heads_that_hear(split, word, n=6, d=8, h=4):
    x = torch.randn(n, d)
    other = x.clone()
    other[word] += 1
    return (split(x, h) != split(other, h)).flatten(1).any(dim=1).tolist()


print("cut, exchanged:", heads_that_hear(split_heads, word=5))
print("view alone:    ", heads_that_hear(lambda x, h: x.reshape(h, len(x), -1), word=5))
assert all(heads_that_hear(split_heads, word=5))
assert not all(heads_that_hear(lambda x, h: x.reshape(h, len(x), -1), word=5))
assert torch.equal(merge_heads(split_heads(x, 2)), x)

# %% [markdown]
# (In other people's code, and in one deck, merging reads `y.transpose(1, 2).contiguous().view(B, T, C)`. Transposing
# moves no number either; it only notes in which order they are to be read from now on. `view` works with the order in
# memory alone, and refuses where the two have come apart. `contiguous` makes a copy in the new order first. `flatten`
# and `reshape` do so by themselves where it is needed.)
#
# With the two moves the loop is gone. The layer below takes the parameters of our trained diary, its small matrices put
# side by side, and must give the same numbers.

# %%
def many_heads(X, W_Q, W_K, W_V, W_O, n_heads):
    Q, K, V = (split_heads(X @ W, n_heads) for W in (W_Q, W_K, W_V))      # (batch, h, n, d_head)
    scores = Q @ K.mT / math.sqrt(K.shape[-1])                            # (batch, h, n, n)
    A = scores.softmax(dim=-1)                                            # (batch, h, n, n)
    return merge_heads(A @ V) @ W_O                                       # (batch, n, d)


loop = two.layer
wide = [torch.cat(list(W), dim=-1) for W in (loop.W_Q, loop.W_K, loop.W_V)]         # (d, d) each
X = torch.randn(5, 7, 32)                                                 # (batch, n, d)
assert torch.allclose(many_heads(X, *wide, loop.W_O, n_heads=2), loop(X)[0], atol=1e-4)

# %%
packaged = MultiHeadAttention(32, n_heads=2, bias=False)
linears = packaged.query, packaged.key, packaged.value, packaged.output
with torch.no_grad():
    for linear, W in zip(linears, [*wide, loop.W_O], strict=True):
        linear.weight.copy_(W.mT)                                         # nn.Linear multiplies by the transpose
assert torch.allclose(packaged(X), loop(X)[0], atol=1e-4)

# %% [markdown] erratum="projected twice"
# > **On the slide.** Torch has the layer, too, `nn.MultiheadAttention`, and takes queries, keys and values. One deck
# > makes them with three linear layers of its own and hands them over. But the layer has its projections *inside*, so
# > that everything is projected twice. Nothing crashes, and it is not the equation. What it wants is $X$, three times:

# %%
mha = nn.MultiheadAttention(32, num_heads=2, bias=False, batch_first=True)
with torch.no_grad():
    mha.in_proj_weight.copy_(torch.cat([W.mT for W in wide]))             # (3 d, d)  one below the other
    mha.out_proj.weight.copy_(loop.W_O.mT)
W_Q, W_K, W_V = wide
assert torch.allclose(mha(X, X, X)[0], loop(X)[0], atol=1e-4)
assert not torch.allclose(mha(X @ W_Q, X @ W_K, X @ W_V)[0], loop(X)[0], atol=0.1), "projected twice"

# %% [markdown] erratum="same amount of computation"
# One more way to read the equation is worth having. $W_O$ has $d$ rows, a block of $d/h$ for each head. To multiply the
# concatenation by $W_O$ is to multiply each head's output by its own block and to *add*:
#
# $$[\,\text{head}_1; \dots; \text{head}_h\,]\,W_O = \sum_\ell \text{head}_\ell\, W_O^{(\ell)}$$
#
# So every head writes to all $d$ columns, independently of the others, and the writings are summed. To silence a head
# is to take one term out of this sum. And without $W_O$ each head would be confined to its own $d/h$ columns for ever.
#
# > **Check yourself.** (1) Batch 8, 100 words, d_model 512, 8 heads: what are the shapes of the queries, the scores and
# > the merged output? (2) A mask (batch, 1, n) for padding is to be used for all heads. What must be done to it?
# > <details><summary>Answers</summary>(1) (8, 8, 100, 64), (8, 8, 100, 100), (8, 100, 512). (2) It needs an axis for
# > the heads: <code>mask[:, None]</code> is (batch, 1, 1, n). As it is, its batch axis would be matched with the heads,
# > which is an error, or, if there happen to be as many heads as sentences, the wrong sentence's mask.</details>
#
# ## Is it really free?
#
# > **On the slide.** A deck says that many heads take the "same amount of computation" as one; another, with more care,
# > that it is "not really more costly". In parameters and in the arithmetic of the matrix products that is exact. Now
# > count the tables. (A FLOP is a floating-point operation; a multiplication and an addition are two.)

# %%
x = torch.randn(1, 512, 256)                                              # (batch, n, d_model)
costs = {}
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
    print(f"{n_heads:>2} heads: {flops:,} FLOPs   {weights:>10,} weights   {seconds:.3f} s")

# %%
flops, table, seconds = zip(*costs.values(), strict=True)
assert len(set(flops)) == 1 and table[3] == 64 * table[0] == 64 * 512**2
assert seconds[3] > 2 * seconds[0], "the products are the same, the exponentials are not"

# %% [markdown]
# There is a table for each head, so $h\,n^2$ scores, exponentials and weights in place of $n^2$. The products are as
# large as before, because each score sums over fewer columns; but softmax does not care how a score came about, and
# memory does not either. At 64 heads the tables are what the time goes into. (Torch's fused attention, which the
# package uses when nobody asks for the weights, does not keep the tables: see lecture @cheap_attention. It must compute the
# exponentials all the same.)
#
# ## How loud is a question?
#
# Now for the root. Scores are dot products of $d_k$ terms, and the claim was that they must be divided by $\sqrt{d_k}$.
# Let the components of $q$ and $k$ be independent, with mean 0 and variance 1. Then each product $q_c k_c$ has mean 0
# and variance $E[q_c^2]\,E[k_c^2] = 1$, and variances of independent terms add up:
#
# $$\operatorname{Var}(q \cdot k) = \sum_{c=1}^{d_k} \operatorname{Var}(q_c k_c) = d_k$$
#
# So scores are of size $\sqrt{d_k}$, and divided by $\sqrt{d_k}$ they are of size 1 at every width. *Sketch three
# curves before you run this*, on logarithmic axes: the variance of the plain scores, of those divided by $\sqrt{d_k}$,
# and of those divided by $d_k$.

# %%
widths = [4, 16, 64, 256, 1024]
divisors = {"plain": lambda d_k: 1.0, "÷ √d_k": math.sqrt, "÷ d_k": float}


def draw(d_k, generator, queries=400, n=16):
    return (torch.randn(queries, m, d, generator=generator) for m, d in ((1, d_k), (n, d_k), (n, 8)))


variances = {name: [] for name in divisors}
for d_k in widths:
    q, k, _ = draw(d_k, torch.Generator().manual_seed(0))
    for name, divisor in divisors.items():
        variances[name].append((q @ k.mT / divisor(d_k)).var().item())
viz.curves(variances, xs=widths, x_name="width d_k", y_name="variance of the scores", log_x=True, log_y=True)

# %%
for d_k, plain, root in zip(widths, variances["plain"], variances["÷ √d_k"], strict=True):
    assert 0.85 * d_k < plain < 1.15 * d_k and 0.85 < root < 1.15

# %% [markdown] erratum="variance from LayerNorm"
# The derivation needs three things: independence, mean 0, variance 1. Who guarantees them?
#
# > **On the slide.** One deck does: "After LayerNorm, the mean and variance of vector elements is 0 and 1". (LayerNorm
# > is a subject of [lecture @deep_stacks](@deep_stacks). It gives every vector mean 0 and variance 1 over its
# > components.) But LayerNorm acts on $x$, and the dot product is of $xW_Q$ and $yW_K$. The variance of *their*
# > components is whatever the matrices make of it:

# %%
d, d_k = 512, 64
x = nn.functional.layer_norm(torch.randn(2000, d, generator=torch.Generator().manual_seed(1)), (d,))
starts = {
    "normal, variance 1/d": lambda W: nn.init.normal_(W, std=d**-0.5),
    "Xavier (on d × d)": lambda W: W.copy_(nn.init.xavier_uniform_(torch.empty(d, d))[:d_k]),
    "nn.Linear as it comes": lambda W: nn.init.kaiming_uniform_(W, a=math.sqrt(5)),
    "normal, std 0.02 (GPT-2)": lambda W: nn.init.normal_(W, std=0.02),
}
of_scores = {}
for name, start in starts.items():
    torch.manual_seed(0)
    with torch.no_grad():
        W_Q, W_K = start(torch.empty(d_k, d)), start(torch.empty(d_k, d))
    of_scores[name] = ((x[:1000] @ W_Q.mT) @ (x[1000:] @ W_K.mT).mT).var().item()
    print(f"{name:>25}: variance of q · k = {of_scores[name]:6.2f}   (d_k = {d_k})")

# %%
assert 0.7 < of_scores["normal, variance 1/d"] / d_k < 1.3
assert of_scores["nn.Linear as it comes"] < 0.2 * d_k, "its weights have variance 1/(3 d): a ninth is left"
assert of_scores["normal, std 0.02 (GPT-2)"] < 0.1 * d_k

# %% [markdown]
# Only with the right start is it $d_k$. (The start of Glorot and Bengio (2010), which is called Xavier after Glorot's
# first name, draws a $d \times d$ matrix with the variance $1/d$, too.) PyTorch's own linear layer makes queries and
# keys of variance ⅓ each, so the scores have a ninth. And all this is before the first step: training is free to make
# $W_Q$ and $W_K$ as large as it likes, and queries and keys that match are anything but independent. So the root
# guarantees nothing about a trained model. What it does is to make the *start* independent of the width, so that one
# recipe serves narrow heads and wide ones, as [lecture @lookup](@lookup) saw. (A model can undo it: the scale is
# one number, and $W_Q$ could learn it.)
#
# ## A softmax that cannot hear
#
# What is wrong with large scores? Softmax makes a hard choice of them, and a hard choice has no slope
# ([lecture @lookup](@lookup)). In formulas, $\partial \alpha_i / \partial e_j = \alpha_i(\delta_{ij} - \alpha_j)$:
# if one weight is nearly 1 and the others nearly 0, every entry of this is nearly 0.
#
# Measure what counts for learning, the gradient that arrives at the *query* from a loss of the weighted average.
# There is a fair objection to the story: in the plain case the way back from score to query multiplies by $k$, which is
# long, and that makes gradients larger. Which effect wins? *Your guess, please, for 400 random queries at
# $d_k = 1024$.*

# %%
def gradients_at_queries(d_k, divisor, seed=0):
    generator = torch.Generator().manual_seed(seed)
    q, k, v = draw(d_k, generator)
    q.requires_grad_()
    weights = (q @ k.mT / divisor(d_k)).softmax(dim=-1)                   # (queries, 1, n)
    direction = torch.randn(len(q), 1, 8, generator=generator)            # what the loss would like more of
    (gradient,) = torch.autograd.grad((weights @ v * direction).sum(), q)
    return gradient.norm(dim=-1).flatten()                                # (queries,)


typical = {name: [gradients_at_queries(d_k, f).median().item() for d_k in widths] for name, f in divisors.items()}
viz.curves(typical, xs=widths, x_name="width d_k", y_name="gradient at the median query", log_x=True, log_y=True)

# %%
plain = gradients_at_queries(1024, divisors["plain"])
print(f"plain, d_k = 1024: median {plain.median():.1e}, mean {plain.mean():.1f}, largest {plain.max():.0f}")
assert typical["plain"][-1] < 0.05 < 0.5 < typical["÷ √d_k"][-1]
assert typical["÷ d_k"][-1] < 0.1 * typical["÷ √d_k"][-1]
assert typical["plain"][1] > 1.5 * typical["÷ √d_k"][1], "a long key makes a narrow head louder"
assert plain.mean() > 1.5 * gradients_at_queries(1024, math.sqrt).mean(), "the mean has not died: it belongs to a few"

# %% [markdown]
# Both win, each at its width. In narrow heads the long key wins, and the plain softmax hears more than the scaled
# one, up to about the width of 64 that heads usually have. Beyond, it falls behind, and at large widths the typical
# query hears next to nothing. But look at the mean: it has not vanished, it is larger than with the root. A few queries
# stand by chance between two nearly equal scores, and these are shouted at; most others are deaf. "The gradient
# vanishes" is true of most and false of the sum, and learning suffers from both ends.
#
# Divided by $d_k$ the scores go the other way. Softmax becomes the plain mean, whatever is asked, and the gradient
# fades like $1/\sqrt{d_k}$. Only the root stays level. Move through the widths, and watch the weights and the crowd on
# the right.

# %%
def softmax_at(divided, d_k):
    q, k, _ = draw(d_k, torch.Generator().manual_seed(3))
    scores = (q @ k.mT / divisors[divided](d_k))[0, 0]                    # (n,)  those of one query
    found = gradients_at_queries(d_k, divisors[divided], seed=3)
    return figures.softmax_frame(scores, scores.softmax(dim=-1), found, f"{divided}, d_k = {d_k}")


viz.explore(
    softmax_at, divided=list(divisors), d_k=[4, 16, 64, 256, 1024, 4096],
    names={"divided": "scores", "d_k": "d_k"}, start={"divided": "plain", "d_k": 256},
)

# %% [markdown] erratum="cross-attention unscaled"
# Two things to find: from which width on does the plain softmax give nearly everything to one key? And with the root,
# does anything change from 4 to 4096, beyond the luck of each draw? (In these draws from 256 on, and no.)
#
# **Which width?** The one that the dot product sums over, and with heads that is $d_k = d/h$, not $d$. Two decks write
# $\sqrt{d/h}$, which is the same. Divide by $\sqrt d$ and the scores are too small by $\sqrt h$: eight heads start with
# a variance of ⅛. That is no disaster (training can mend it), and hard to notice for the same reason.
#
# > **On the slide.** Another deck divides by $\sqrt{|k|}$, "the size of the vector". Read as the length of the vector
# > it gives each key a divisor of its own ([lecture @lookup](@lookup) has an example); what is meant is how *many* numbers
# > it has. And two decks, where they come to cross-attention, print the softmax without any scale. The Transformer
# > scales there too: it is the same function. This is what happens when it is left out:

# %%
q, k, v = draw(64, torch.Generator().manual_seed(1))
printed, scaled = (q @ k.mT).softmax(dim=-1), (q @ k.mT / 8).softmax(dim=-1)      # (400, 1, 16)
most = [weights.amax(dim=-1).mean().item() for weights in (printed, scaled)]
print(f"largest weight, on average:  as printed {most[0]:.2f},  scaled {most[1]:.2f}")
assert most[0] > 0.75 and most[1] < 0.35
layer, x, memory = MultiHeadAttention(64, 1), torch.randn(1, 3, 64), torch.randn(1, 5, 64)
by_hand, _ = attend(layer.query(x), layer.key(memory), layer.value(memory))       # scaled
assert torch.allclose(layer(x, memory), layer.output(by_hand), atol=1e-5), "cross-attention is scaled"

# %% [markdown]
# > **Check yourself.** (1) Components of $q$ have variance 4, those of $k$ variance ¼, $d_k = 100$. What is the
# > variance of the score? (2) Queries and keys are ±1 at random. Does the derivation still hold? (3) All components of
# > $q$ are one and the same random number. Is the variance still $d_k$?
# > <details><summary>Answers</summary>(1) 100 · 4 · ¼ = 100. (2) Yes. Nothing in it is about the normal
# > distribution; mean 0 and variance 1 suffice. (3) Yes, surprisingly. The terms are no longer independent, but with
# > independent components of k they are still uncorrelated, and that is enough for variances to add up.</details>
#
# ## Heads of a model that nobody designed
#
# The diary had one layer and two questions. Let us look into something that is a little more like a model. It is the
# package's encoder, two blocks of four heads each, with RoPE ([lecture @order](@order)) so that order counts. It
# reads gossip:

# %%
WOMEN, MEN = ["Anna", "Eva", "Mia", "Ida"], ["Ben", "Tom", "Leo", "Max"]
NAMES, VERBS, THINGS = WOMEN + MEN, ["lent", "sold", "gave", "showed"], ["book", "bike", "ball", "boat"]
ADVERBS = ["gladly", "often", "once", "soon"]
VOCABULARY = ["<pad>", *NAMES, *VERBS, *THINGS, *ADVERBS, "he", "she", "the", "and", "because"]
QUESTIONS = ["who gave", "who got", "he / she is"]

# %%
def clause(rng, words, asked, last):
    """Adds e.g. "she soon lent Ben the book", and who asks what, and where the answer stands."""
    giver = len(words)
    if last and rng.random() < 0.5:
        pronoun = rng.choice(sorted(last))                                # means whoever was named last
        asked.append((giver, 2, last[pronoun]))
        words.append(pronoun)
        giver = last[pronoun]
    else:
        words.append(rng.choice(NAMES))
    words += rng.sample(ADVERBS, rng.random() < 0.4)
    asked += [(len(words), 0, giver)]
    words += [rng.choice(VERBS), *rng.sample(ADVERBS, rng.random() < 0.4)]
    asked += [(asked[-1][0], 1, len(words))]
    words += [rng.choice([name for name in NAMES if name != words[giver]]), "the", rng.choice(THINGS)]
    for place in (giver, len(words) - 3):
        last["she" if words[place] in WOMEN else "he"] = place

# %%
def sentence(rng, clauses):
    words, asked, last = [], [], {}
    for _ in range(clauses):
        words += [rng.choice(["and", "because"])] if words else []
        clause(rng, words, asked, last)
    return words, asked


words, asked = sentence(random.Random(26), clauses=2)
print(" ".join(words))
for asker, question, place in asked:
    print(f"{words[asker]:>8}: {QUESTIONS[question]} {words[place]}")

# %% [markdown]
# Every verb must say who gave and who got. Every pronoun must say whom it means, the last man or the last woman that
# was named. Adverbs stand around at random, so that counting words does not help. If the giver is a pronoun, the verb
# has to name the person all the same; *she* has to find out first, or the verb has to be clever.

# %%
def gossip(rng, batch):
    told = [sentence(rng, rng.choice([2, 3])) for _ in range(batch)]
    lengths = torch.tensor([len(words) for words, _ in told])             # (batch,)
    tokens = torch.zeros(batch, int(lengths.max()), dtype=torch.long)     # (batch, n)
    for row, (words, _) in zip(tokens, told, strict=True):
        row[: len(words)] = torch.tensor([VOCABULARY.index(word) for word in words])
    asked = [(i, *question) for i, (_, questions) in enumerate(told) for question in questions]
    return tokens, lengths, torch.tensor(asked).unbind(dim=1)             # sentence, asker, question, place: (m,)

# %%
class Reader(nn.Module):
    def __init__(self, n_heads=4, n_layers=2, d_model=64):
        super().__init__()
        self.encoder = Encoder(TransformerConfig(
            vocab_size=len(VOCABULARY), d_model=d_model, n_layers=n_layers, n_heads=n_heads, d_ff=2 * d_model,
            positions="rope", max_length=64, dropout=0.0,
        ))
        self.read = nn.Linear(d_model, len(QUESTIONS) * len(NAMES))

    def forward(self, tokens, lengths, asked):
        i, asker, question, _ = asked
        states = self.encoder(tokens, lengths)[i, asker]                  # (m, d_model)
        answers = self.read(states).unflatten(-1, (len(QUESTIONS), -1))   # (m, questions, names)
        return answers[torch.arange(len(i)), question]                    # (m, names)

# %%
def truth(tokens, asked):
    return tokens[asked[0], asked[3]] - 1                                 # (m,)  names are tokens 1 to 8


def losses(model, seed):
    rng = random.Random(seed)
    while True:
        tokens, lengths, asked = gossip(rng, 32)
        yield nn.functional.cross_entropy(model(tokens, lengths, asked), truth(tokens, asked))


def answered(model, test):
    tokens, lengths, asked = test
    with torch.no_grad():
        hit = model(tokens, lengths, asked).argmax(dim=-1) == truth(tokens, asked)
    return [hit[asked[2] == question].float().mean().item() for question in range(3)]

# %%
torch.manual_seed(0)
reader, test = Reader(), gossip(random.Random(12345), 300)
descend(reader, losses(reader, seed=0), steps=400, lr=5e-3, name="gossip")
all_heads = answered(reader, test)
print({question: f"{share:.1%}" for question, share in zip(QUESTIONS, all_heads, strict=True)})
assert min(all_heads) > 0.97

# %% [markdown]
# Every answer is right. Now for the eight heads. Two things can be asked of each. *Where does it look?* That is in its
# weights. *Who would miss it?* That is found by silencing it: its block of rows of $W_O$ is set to zero (columns in
# `nn.Linear`, which keeps the transpose), its term vanishes from the sum, and we count what is lost.

# %%
HEADS = [(layer, head) for layer in range(2) for head in range(4)]


def block_of(model, layer, head):
    attention = model.encoder.stack.blocks[layer].attention.sublayer
    columns = slice(head * attention.d_head, (head + 1) * attention.d_head)
    return attention.output.weight.data[:, columns]                       # (d_model, d_head), what it writes with


def without(model, heads, test):
    blocks = [block_of(model, *head) for head in heads]
    kept = [block.clone() for block in blocks]
    for block in blocks:
        block.zero_()
    shares = answered(model, test)
    for block, old in zip(blocks, kept, strict=True):
        block.copy_(old)
    return shares


lost = {}
for head in HEADS:
    lost[head] = [full - left for full, left in zip(all_heads, without(reader, [head], test), strict=True)]

# %% [markdown]
# Here is the sentence from above, as one head sees it. Point at a word; then ask for all heads, and click another one.
# (Layers and heads count from 0, as in the code.)
#
# *Look for these:* a head that goes from the verb to the giver. One that goes from the verb to the receiver. One that
# takes *she* to a woman. And then, before you read on: which of the heads you found will be missed?
#
# (You may find a verb in layer 1 that looks at a thing, right after the receiver. By then a state is no longer just
# its word: in layer 0 it has taken in something of its neighbours, and may serve as well as the name itself.)

# %%
words, asked = sentence(random.Random(26), clauses=2)
tokens, seen = torch.tensor([[VOCABULARY.index(word) for word in words]]), Weights()
with torch.no_grad():
    reader.encoder(tokens, weights=seen)
viz.attention_viewer(seen, words, title="Who looks at whom", layer=1, head=3)

# %% [markdown]
# One sentence is an anecdote. Over the whole test set: how much weight goes from those who ask to where their answer
# stands, and how much is lost?

# %%
collected = Weights()
with torch.no_grad():
    reader.encoder(test[0], test[1], weights=collected)
i, asker, question, place = test[2]
looks = {}
for layer, head in HEADS:
    weight = collected.self_attn[layer][i, head, asker, place]            # (m,)
    looks[layer, head] = [weight[question == q].mean().item() for q in range(3)]
names = [f"{layer}.{head}" for layer, head in HEADS]
looked, missed = (torch.tensor([found[head] for head in HEADS]) for found in (looks, lost))
viz.draw_weights({"weight on the answer": looked, "lost without it": missed}, rows=names, columns=QUESTIONS)

# %%
pairs = [(looks[head][q], lost[head][q]) for head in HEADS for q in range(3)]
assert any(weight > 0.5 and loss < 0.04 for weight, loss in pairs), "looks at the answer, and is not missed"
spare = [head for head in HEADS if max(lost[head]) < 0.1]
print("can be missed at less than 10 % each:", [f"{layer}.{head}" for layer, head in spare])
assert len(spare) >= 3

# %% [markdown]
# The two tables do not agree. There are heads that look straight at the answer and that nobody misses, because
# something else provides it too. So neither of the tables alone is "what a head does". Weights tell where it reads, not
# whether what it reads is used. Silencing tells what cannot be done *without* it, not what it does.
#
# And if nobody misses this one, and nobody that one, can they all go? *Guess:* of eight heads, how many can be taken
# away before the worst of the three answers falls below 90 %? We take them one after the other, always the one that is
# missed least, and do not put them back.

# %%
gone, worst = [], [min(all_heads)]
while len(gone) < len(HEADS):
    candidates = {head: min(without(reader, [*gone, head], test)) for head in HEADS if head not in gone}
    gone.append(max(candidates, key=candidates.get))
    worst.append(candidates[gone[-1]])
x_name = "heads silenced, least missed first"
viz.curves({"worst of the\nthree answers": worst}, xs=range(9), x_name=x_name, y_name="exactly right")

# %%
one_by_one = min(min(without(reader, [head], test)) for head in spare)
together = min(without(reader, spare, test))
print("can be silenced before the worst answer falls below 90 %:", sum(share > 0.9 for share in worst[1:]))
print(f"the {len(spare)} spare heads: at least {one_by_one:.0%} without any one of them, {together:.0%} without all")
assert worst[2] > 0.9 and worst[7] < 0.4, "a few can go, one alone cannot do it"
assert together < one_by_one - 0.1

# %% [markdown]
# A few can go at no cost, then it falls: what could be missed one at a time cannot be missed together. Michel, Levy
# and Neubig (2019) found the same in trained translation models and in BERT, where most heads can be removed singly
# without a measurable loss and some layers manage with one. Others looked closer and found heads with jobs: the word
# before, the rare word, a verb's object (Voita et al. 2019; Clark et al. 2019, for BERT). One deck shows the most
# famous picture of this kind, heads that tie *making* to *more difficult* (Vaswani et al. 2017, figure 3), and names
# the tool that draws more of them (BertViz; the deck has "BertVis"). Enjoy such pictures; and when somebody concludes
# from one, ask what happens if the head is silenced.
#
# One promise is left. We said that training may make scores as large as it likes. Did it? The scores of a row can be
# had from its weights, up to a constant, since $\log \alpha_j = e_j - \log \sum_m \exp e_m$.

# %%
def spread_of_scores(model):
    seen = Weights()
    with torch.no_grad():
        model.encoder(tokens, weights=seen)
    return [weights.clamp(min=1e-30).log().std(dim=-1).mean().item() for weights in seen.self_attn]   # by layer


torch.manual_seed(0)
fresh, trained = spread_of_scores(Reader()), spread_of_scores(reader)
for layer in range(2):
    print(f"size of the scores in layer {layer}:  fresh {fresh[layer]:.2f}   trained {trained[layer]:.2f}")
    assert trained[layer] > 1.5 * fresh[layer]

# %% [markdown]
# It did. Scores of size 1 are where one starts, so that there is something to learn from. Where a head has found what
# it is looking for, it turns the volume up by itself. The root has not been a limit to it.
#
# > **Check yourself.** You train such a model again with twice as many heads, each half as wide, and again, down to
# > one column a head (without RoPE, which needs columns in pairs). What would you expect to go wrong?
# > <details><summary>Answer</summary>A head of one column compares one number with one number. Its scores have rank
# > one: it can prefer the largest key or the smallest, and nothing in between, so it cannot pick out any one of eight
# > names. Vaswani et al. (2017, table 3, row A) varied the heads at equal cost and found one head worse than eight, and
# > very many worse again.</details>
#
# ## Fewer keys than queries
#
# While a model writes, it computes one query at a time, but that query meets the keys of everything before it. They are
# kept, with the values, in a **key–value cache**, or they would have to be computed again for every token. For each
# token the cache takes
#
# $$2 \;\times\; \text{layers} \;\times\; \text{heads} \;\times\; d_\text{head} \;\times\; \text{bytes per number},$$
#
# the 2 for keys and values. (Three decks speak of a growing set of "keys and queries". Queries are used once and
# forgotten.) Llama 2's smallest model has 32 layers of 32 heads of 128, in numbers of two bytes. *Estimate before you
# run the cell:* how much is that for one text of 4096 tokens?

# %%
llama_2 = preset("llama 2 7b").config
per_token = cache_bytes(llama_2, batch=1, n=1)
print(f"{per_token / 2**20} MiB a token, {cache_bytes(llama_2, batch=1, n=4096) / 2**30} GiB for 4096 tokens")
print(f"all parameters: {2 * count_parameters(llama_2, LanguageModel).total / 2**30:.1f} GiB")
assert per_token == 2 * 32 * 32 * 128 * 2
assert cache_bytes(llama_2, batch=7, n=4096) > 2 * count_parameters(llama_2, LanguageModel).total

# %% [markdown]
# Half a megabyte a token, and two gigabytes a text. Seven such texts at once need more for their caches than for the
# whole model. Look at the factors above for one to save on. The number of heads is suspicious: must every query head
# have keys of its own?
#
# Shazeer (2019) tried the extreme, **multi-query** attention: all query heads share *one* head of keys and values.
# Ainslie et al. (2023) took the middle, **grouped-query** attention: with $g$ groups, $h/g$ neighbouring query heads
# share. In code, keys and values get their missing heads by repetition just before they are used, and *how* they are
# repeated is the one thing to get wrong:

# %%
key_heads = torch.tensor([[0], [1]])                     # two heads of keys, for six of queries
print("repeat_interleave:", key_heads.repeat_interleave(3, dim=0).flatten().tolist(), "  neighbours share")
print("repeat:           ", key_heads.repeat(3, 1).flatten().tolist(), "  dealt out like cards")

# %% [markdown]
# Either could be trained from scratch; published checkpoints mean the first. (One deck's last table gives grouped-query
# attention to Llama 2. Its two largest models have it. The smallest, above, has 32 heads of keys for 32 of queries:
# Touvron et al. 2023, table 1.) Now measure, with the package's layer and its cache, which is filled token by token, as
# in writing.

# %%
torch.manual_seed(0)
held = {}
for groups in (8, 4, 2, 1):
    layer, cache = MultiHeadAttention(256, n_heads=8, n_kv_heads=groups), KeyValueCache()
    with torch.no_grad():
        for _ in range(100):
            layer(torch.randn(1, 1, 256), cache=cache, causal=True)       # (batch, 1, d_model)
    held[groups] = cache.n_bytes
    size = sum(p.numel() for p in layer.parameters())
    print(f"{groups} of keys for 8 of queries: cache {cache.n_bytes:>7,} bytes, layer {size:,} parameters")
    assert cache.n_bytes == 2 * groups * 100 * 32 * 4                     # float32: four bytes
assert held[8] == 8 * held[1]

# %% [markdown]
# The cache shrinks as the groups do. (The parameters of $W_K$ and $W_V$ shrink too; models that use groups spend them
# elsewhere.) For a model as large as Llama 3's 8B, which has 8 heads of keys for 32 of queries:

# %%
llama_3 = preset("llama 3 8b").config
lengths = [2**k for k in range(11, 18)]
gib = {}
for groups, name in ((32, "32: one each"), (8, "8: as released"), (1, "1: multi-query")):
    config = replace(llama_3, n_kv_heads=groups, max_length=lengths[-1])
    gib[name] = [cache_bytes(config, batch=1, n=n) / 2**30 for n in lengths]
weights_gib = 2 * count_parameters(llama_3, LanguageModel).total / 2**30
gib["(all parameters)"] = [weights_gib] * len(lengths)
viz.curves(gib, xs=lengths, x_name="tokens in the cache", y_name="GiB", log_x=True, log_y=True)

# %%
assert gib["32: one each"][-1] == 4 * gib["8: as released"][-1] > weights_gib
print(f"at {lengths[-1]:,} tokens:", {name: f"{line[-1]:.0f} GiB" for name, line in gib.items()})

# %% [markdown]
# At long contexts the cache outweighs the model. With a GPU this is not only a matter of room: at every single token
# the whole cache has to pass through the processor, so where the cache is what one waits for, a quarter of it may mean
# up to four times the speed.
#
# And what is lost? Ainslie et al. report quality close to that of full heads for groups, a little less for a single
# one. Our diary is too easy to show a loss, but it shows something else: how little the keys need to differ. Four query
# heads, one head of keys and values between them.

# %%
class Grouped(nn.Module):
    def __init__(self, d_model, n_heads, n_kv_heads):
        super().__init__()
        self.attention = MultiHeadAttention(d_model, n_heads, n_kv_heads, bias=False)

    def forward(self, X):
        tables = []
        return self.attention(X, weights=tables), tables


torch.manual_seed(0)
shared = learn_diary(Grouped(32, n_heads=4, n_kv_heads=1))
print("four heads of queries, one of keys and values: ", *(f"{share:.0%}" for share in right(shared)))
assert min(right(shared)) > 0.98

# %% [markdown]
# Both answers, with the same keys for all. The two questions "who is tomorrow?" and "who is yesterday?" are asked of
# the same property of a card, its day. It is enough that the *questions* differ.
#
# ## Counting parameters
#
# How large is a model? Of its parts, all but the embeddings repeat in every layer. With $h \cdot d_\text{head} = d$,
# $d_\text{ff} = 4d$ and biases left out:
#
# | part | matrices | numbers |
# |---|---|---|
# | attention | $W_Q, W_K, W_V, W_O$, each $d \times d$ | $4d^2$ |
# | feed-forward ([lecture @masking](@masking)) | $d \times 4d$ and back | $8d^2$ |
# | all layers | | $12\,L\,d^2$ |
# | embeddings | one vector of $d$ for each word, one for each position | $(V + n_\text{max})\,d$ |
#
# The number of heads does not occur. For GPT-3 ($L = 96$, $d = 12{,}288$) this gives
# $12 \cdot 96 \cdot 12288^2 \approx 174$ billion, on the back of an envelope. The package counts to the last bias,
# without building anything.

# %%
parts, totals = {}, {}
for row in GPT_3_TABLE:
    config, model, *_ = preset(row.name)
    count = count_parameters(config, model)
    amounts = count.embedding + count.positions, count.attention, count.feed_forward, count.norms
    parts[row.name] = dict(zip(("embeddings", "attention", "feed-forward", "norms"), amounts, strict=True))
    totals[row.name] = f"{count.total / 1e6:,.0f} M"
figures.stacked_shares(parts, totals)
largest = parts["gpt-3 175b"]
assert 1.95 < largest["feed-forward"] / largest["attention"] < 2.05
assert largest["embeddings"] < 0.005 * count.total
assert all(part["attention"] < sum(part.values()) / 3 for part in parts.values())

# %% [markdown]
# Attention is at most a third of each of these models. Two thirds of the largest are feed-forward, and in small models
# embeddings are a large share, which is why vocabularies matter most where models are small. *All you need*, then,
# in the sense in which an engine is all that a car needs.
#
# ## Reading tables with a pencil
#
# Whoever can count can check. The next cell prints table 2.1 of the GPT-3 paper, as it stands there and as one of the
# decks has copied it: parameters, layers, width, heads and width of a head, and beside them our count. *Before you run
# it:* what must heads × width of a head be, in every row?

# %%
print(f"{'':>12} {'printed':>8} {'layers':>7} {'d_model':>8}   heads × d_head        counted")
for row in GPT_3_TABLE:
    config = replace(preset(row.name).config, d_model=row.d_model, n_heads=row.n_heads, d_head=row.d_head)
    counted = count_parameters(config, LanguageModel).total
    product = f"{row.n_heads} × {row.d_head} = {row.n_heads * row.d_head}"
    flag = "" if row.multiplies_out else "   ← not d_model"
    printed = f"{row.name:>12} {row.parameters:>8} {row.n_layers:>7} {row.d_model:>8}"
    print(f"{printed}   {product:<16} {counted / 1e6:>10,.1f} M{flag}")
assert [row.name for row in GPT_3_TABLE if not row.multiplies_out] == ["gpt-3 xl", "gpt-3 13b"]

# %% [markdown] erratum="24 heads; a width of 5140"
# > **On the slide.** Two rows do not multiply out: 24 heads of 128 for a width of 2048, and 40 of 128 for 5140. The
# > deck copied them faithfully; the misprints, if that is what they are, are the paper's. (Heads *may* have any width,
# > so the product alone proves nothing.) But which number is wrong? The count decides. The paper's table D.1 gives the
# > parameters in millions: 1,320 for the one, 12,850 for the other.

# %%
def millions(name, **change):
    return count_parameters(replace(preset(name).config, **change), LanguageModel).total / 1e6


xl = {heads: millions("gpt-3 xl", n_heads=heads, d_head=128) for heads in (24, 16)}
big = {width: millions("gpt-3 13b", d_model=width, n_heads=40, d_head=128) for width in (5140, 5120)}
print("xl:  ", {f"{heads} heads": f"{m:,.0f} M" for heads, m in xl.items()}, "  table D.1: 1,320 M")
print("13b: ", {f"width {width}": f"{m:,.0f} M" for width, m in big.items()}, "  table D.1: 12,850 M")
assert abs(xl[16] - 1320) < 5 < 190 < abs(xl[24] - 1320)
assert abs(big[5120] - 12850) < 5 < 80 < abs(big[5140] - 12850)

# %% [markdown] erratum="d_ff of the 8 layers; d_ff of the 6 layers"
# Sixteen heads, and a width of 5120. (The rounded numbers of table 2.1 would not have settled the second: both widths
# give 12.9 billion, and it prints 13.0B. The 350M of the medium model are rounded, too: table D.1 has 356.)
#
# The decks have another table that can be checked in this way, from a study that trained many variants of one
# encoder–decoder at equal size (Narang et al. 2021; [lecture @transformer](@transformer) is about what it found). Four
# rows trade depth against width, all at 223 or 224 million parameters.
#
# > **On the slide.** For 8 layers two decks print a $d_\text{ff}$ of 4096, where the third has 4608; for 6 layers one
# > prints 1044, and the other two 6144. (The last may have happened in the transcription.) Twelve layers are the
# > original. Count all of them:

# %%
base = preset("t5 base").config
counted, shapes = {}, [(12, 3072, 12), (24, 1536, 6), (18, 2048, 8), (8, 4608, 18), (6, 6144, 24)]
for layers, d_ff, heads in [*shapes, (8, 4096, 18), (6, 1044, 24)]:       # the last two are as printed in decks
    config = replace(base, n_layers=layers, d_ff=d_ff, n_heads=heads)
    counted[layers, d_ff] = count_parameters(config, EncoderDecoder).total / 1e6
    size = f"{counted[layers, d_ff]:.1f} M"
    print(f"{layers:>2} layers, d_ff {d_ff}, {heads:>2} heads: {size}    layers × d_ff = {layers * d_ff}")
assert abs(counted[8, 4608] - 223) < 1 and abs(counted[6, 6144] - 223) < 1
assert counted[8, 4096] < 212 and counted[6, 1044] < 130

# %% [markdown]
# The rows keep layers × $d_\text{ff}$ and layers × heads constant, and with them the size. 4096 and 1044 break the
# pattern. (A count cannot find everything. The 24 layers are printed with 224 M, and the norms of the extra layers are
# too few to make the difference.)
#
# > **Check yourself.** Vaswani et al. (2017) print 65 million parameters for their base model: six layers on each side,
# > $d$ = 512, $d_\text{ff}$ = 2048. Do the sum without biases: encoder layers have one attention, decoder layers two,
# > and there is one table of 37,000 words.
# > <details><summary>Answer</summary>A unit of d² is 262,144. Attention: 6 · 4 + 6 · 8 = 72 units. Feed-forward: 12 ·
# > 8 = 96 units. Together 168 units, 44.0 million. Embeddings: 37,000 · 512 = 18.9 million. In all 63 million, two less
# > than printed, and no one vocabulary makes both their base and their big model come out exactly. The package's
# > presets say so in a note.</details>
#
# ## What you have
#
# A layer that asks $h$ questions at once, for the parameters and the products of one. Two reshapes that do it, and the
# one that only seems to. A root that makes scores start at the same size whatever the width, and that promises nothing
# after. A healthy distrust of pictures of heads. And a pencil.
#
# One thing we have taken for granted: that attention can be stacked and will train, block upon block. It does not do so
# by itself. [Lecture @deep_stacks](@deep_stacks) is about what has to be put around it.
#
# **In the package.** `attncourse.attention.MultiHeadAttention` is the layer, with `n_kv_heads` for groups, and
# `KeyValueCache` beside it. `attncourse.counting` counts parameters, FLOPs and cache bytes of any configuration, and has
# the published ones as `preset`, with a note wherever the count is not what was printed.
#
# **Read next.** Vaswani et al., *Attention is all you need* (2017): section 3.2.1 with its footnote on the variance,
# section 3.2.2, and table 3, rows A and B. Michel, Levy and Neubig, *Are sixteen heads really better than one?* (2019).
# Voita et al., *Analyzing multi-head self-attention: specialized heads do the heavy lifting, the rest can be pruned*
# (2019). Shazeer, *Fast Transformer decoding: one write-head is all you need* (2019). Ainslie et al., *GQA: training
# generalized multi-query Transformer models from multi-head checkpoints* (2023), section 2. Brown et al., *Language
# models are few-shot learners* (2020), tables 2.1 and D.1, with a pencil.
