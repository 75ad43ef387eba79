# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3 (ipykernel)
#     language: python
#     name: python3
# ---

# %% [markdown] teaches="self-attention does not see order"
# # Lecture @order · Positional encoding: telling attention where each token is
#
# *About 45 minutes, of which less than one is computing time; a good place for a break is before* Length
# extrapolation. *You need self-attention with its queries, keys and values ([lecture
# @self_attention](@self_attention)), and sine, cosine and rotation by an angle, as taught at school.*
#
# After this lecture you can
#
# * say what attention does not know without **positions**, and what a causal mask changes;
# * write **sinusoidal positional encodings** and **rotary embeddings (RoPE)** from memory;
# * tell **absolute**, **rotary** and **relative** schemes apart by the place where the position enters;
# * explain what happens to RoPE far beyond the trained length, and what **context extension** does about it;
# * say what multiplying embeddings by $\sqrt{d_\text{model}}$ changes;
# * read RoPE's numbers in a model's config (`rope_theta`, `rope_scaling`; in newer ones `rope_parameters`).
#
# ## Why attention needs positions: two teams
#
# *Our team beat their team.* Swap *our* and *their*, and the other team has won. Only the order of the words tells
# which, and self-attention does not see this order. It is **permutation equivariant** ([lecture
# @self_attention](@self_attention)): if you shuffle its inputs, you get the same outputs, shuffled in the same way. In
# the next cell, both teams go in as the same vector. *Guess before you run it:* do they come out as the same vector?
# And what if a **causal mask** lets each token attend only to itself and to earlier tokens?

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

import torch
import torch.nn.functional as F
from torch import nn

from attncourse import positions
from attncourse.attention import attend, causal_mask
from attncourse.positions import (
    LearnedPositions,
    ShawRelative,
    relative_index,
    rope_angles,
    rotate,
)
from attncourse.transformer import Encoder, TransformerConfig, Weights
from attncourse_lessons.results import measured

torch.set_num_threads(1)  # models as small as these gain nothing from a second thread

# %% [raw] slide
# ## Two teams: why attention needs positions
# > *Our **team** beat their **team**.*
#
# Self-attention is **permutation equivariant**: shuffle the inputs, and the outputs are shuffled along.
#
# > **Guess first.** Both teams go in as the same vector. Do they come out as the same vector? And under a **causal mask**?

# %%
words = ["our", "team", "beat", "their", "team"]
torch.manual_seed(0)
embedding = {word: torch.randn(16) for word in sorted(set(words))}
x = torch.stack([embedding[word] for word in words])             # (5, 16)
W_Q, W_K, W_V = torch.randn(3, 16, 16) / 4


def self_attention(x, mask=None):
    return attend(x @ W_Q, x @ W_K, x @ W_V, mask)               # (n, 16), (n, n)


y, A = self_attention(x)                                         # every token sees all
mask = causal_mask(5)                                            # (5, 5)  True where j ≤ i
y_causal, A_causal = self_attention(x, mask)
print(f"no mask:     the two teams differ by {(y[1] - y[4]).abs().max():.3f}")
print(f"causal mask: the two teams differ by {(y_causal[1] - y_causal[4]).abs().max():.3f}")

# %% tags=["hide-input"]
teams = torch.stack([A[1], A[4], A_causal[1], A_causal[4]])      # (4, 5)
seen = ["our team, no mask", "their team, no mask", "our team, causal", "their team, causal"]
allowed = torch.stack([mask[4], mask[4], mask[1], mask[4]])      # (4, 5)
figures.weights_allowed(teams, allowed, seen, words)
assert torch.allclose(y[1], y[4], atol=1e-6) and (y_causal[1] - y_causal[4]).abs().max() > 0.01
#| caption: Attention weights of the two teams, without positions: equal without a mask,
#|   different under a causal mask. Hatched: forbidden.

# %% [raw] slide
# ## A causal mask tells something about order
# {print}
# {figure}

# %% [markdown]
# **Without a mask, both teams come out as the same vector**, winner and loser alike, because they have the same query
# and see the same five keys and values. Under the causal mask they differ, because our team sees two tokens and their
# team still sees five.
#
# So a causal mask tells a model something about order, but how much? The next cell shuffles the four tokens before the
# last one. *Guess:* does the output of the last *team* change?

# %%
shuffled = [2, 3, 0, 1, 4]                                       # beat their our team … team
y_shuffled, _ = self_attention(x[shuffled], causal_mask(5))
print(f"the last team changes by {(y_shuffled[4] - y_causal[4]).abs().max():.6f}")

# %% tags=["hide-input"]
assert torch.allclose(y_shuffled[4], y_causal[4], atol=1e-6)

# %% [raw] slide
# ## Which tokens came before, and not in which order
# {print}
#
# Shuffle what stands before the last *team*: its output does not change. Several causal layers can work out more (Haviv et al. 2022); an encoder cannot.

# %% [markdown] erratum="identical output; outputs 2 and 5"
# **It does not change.** After one layer of causal attention, a token knows *which* tokens came before it, but not in
# which order. Several layers can work out more ([@haviv2022]). An encoder has no causal mask, so without positions it
# cannot even tell *our team beat their team* from *their team beat our team*.
#
# <details><summary>A common mistake: equal tokens, equal outputs</summary>
#
# > **A common mistake: "without positions, equal tokens have identical outputs".** This is right without a mask, and
# > wrong under a causal mask.
#
# </details>
#
# > **Check yourself.** An encoder without positions reads *A big dog and a very big cat* and *A big cat and a very big
# > dog*. You average the outputs of each sentence. How do the averages differ?
# > <details><summary>Answer</summary>Not at all. Both sentences contain the same words, each the same number of times, so
# > the outputs are the same vectors in another order. An average does not depend on the order.</details>
#
# **Where can a position enter?** [@fig:ways-in] follows the path from the input to the output of one layer. An
# **absolute** scheme changes the input, and with it queries, keys and values, whereas a **rotary** scheme changes
# queries and keys only. A **relative** scheme adds a term to the score, and Shaw's also changes the values.
#
# <details><summary>The letters of this page</summary>
#
# This page uses the letters of the papers. Some of them have more than one meaning:
#
# | letter | stands for |
# |---|---|
# | $p$ | a position; $\mathrm{PE}(p)$ is its vector |
# | $k$ | a shift, from position $p$ to $p + k$ (a *key* always has an index, $k_j$) |
# | $\theta_i$ | the frequency of pair $i$ of the columns (with frequencies, $i$ counts pairs) |
# | $\varphi$, $\delta$ | angles of a pair: $\varphi = p\,\theta$ at position $p$, and $\delta = k\,\theta$ for a shift |
# | $(a, b)$ | with RoPE: the two numbers of a pair (a bias always has an index, $b_{j-i}$) |
# | $i$, $j$ | in a score $e_{ij}$: query $i$, key $j$ |
# | $m$, $n$ | with RoPE: positions of the query and of the key (elsewhere $n$ is the length of the text) |
# | $r$ | where relative distances are clipped |
# | $s$ | in context extension: how many times as long as in training a text is |
#
# </details>

# %% tags=["hide-input"]
figures.ways_in()
#| caption: Where positions can enter: the input, query and key, the score, the values.
#|   Shaw's term of the score comes from a vector added to the key.
#| label: ways-in

# %% [raw] slide
# ## Where can a position enter?
# {figure}
#
# Absolute: queries, keys and values. Rotary: queries and keys. Relative: the score; Shaw also the values.

# %% [raw] slide
# ## Absolute positions: add a vector for each position
# $$\tilde x_p = x_p + \mathrm{PE}(p)$$
#
# Adding is the special case of concatenating, $[x_p; \mathrm{PE}(p)]$, in which words and positions share one projection matrix.

# %% [markdown] teaches="integers and binary digits as positions"
# The lecture takes five steps: **add** a position to the input, **rotate** query and key, **learn** a vector or a
# number for each distance, **test** the schemes beyond the trained length, and **use** the result to read longer texts.
#
# ## Absolute positions: add a vector for each position
#
# *Step 1: add.* An **absolute positional encoding** gives each position $p$ a vector of its own, which is added to the
# embedding before the first layer:
#
# $$\tilde x_p = x_p + \mathrm{PE}(p)$$
#
# Now the two teams go in as different vectors.
#
# <details><summary>Why not write the position beside the word?</summary>
#
# One could also **concatenate** word and position, $[x_p; \mathrm{PE}(p)]$. Adding is the special case in which both
# share one projection matrix, and it keeps the vectors narrow.
#
# </details>
#
# ## Integers and binary digits: two first attempts
#
# Which vector should a position have? The **first attempt** is the number itself, repeated in every column, so that
# position 7 is a vector of sevens. The cell puts two different words at the same position and measures how similar they
# look. *Guess:* is their cosine at position 100 near 0, near 0.5 or near 1?

# %% [raw] slide
# ## First attempt: the number itself
# > **Guess first.** Position 7 is a vector of sevens. Two different words at position 100: is their cosine near 0, 0.5 or 1?

# %%
word, other = torch.randn(2, 64, generator=torch.Generator().manual_seed(1))
for p in (0, 10, 100):
    PE = positions.integer(torch.tensor(p), 64)                  # (64,)  p, p, …, p
    print(f"position {p:>3}: cosine {F.cosine_similarity(word + PE, other + PE, dim=0):.3f}")

# %% tags=["hide-input"]
at_0, at_100 = F.layer_norm(word, (64,)), F.layer_norm(word + 100, (64,))
assert torch.allclose(at_0, at_100, atol=1e-4), "LayerNorm removes an integer position"

# %% [raw] slide
# ## Integers drown the word, and LayerNorm removes them
# {print}
#
# Cosine of two *different* words at the same position. An integer is the same in all columns: LayerNorm subtracts it.

# %% [markdown]
# **The number drowns the word:** at position 100 the two words look the same.
#
# <details><summary><b>Going further</b>: integers and LayerNorm</summary>
#
# Integers have a second problem. Many Transformers put a **LayerNorm** in front of attention ([lecture
# @deep_stacks](@deep_stacks)), which subtracts the mean over the columns. An integer position is the same in all
# columns, so LayerNorm removes it.
#
# </details>
#
# The **second attempt** is binary digits, one in each column. They stay small, and every position has its own. From
# column to column the digits flip more slowly, with a **period** of 2, 4, 8 and 16 positions. In the figure:
#
# * left: the digits;
# * middle: the same, made smooth: each *pair* of columns holds the sine and the cosine of one period;
# * right: how far the vector of each position is from that of the framed one.
#
# *Before you move the slider, guess:* which position is furthest from 7 in digits, and does the curve of the waves
# change its shape when the slider moves?

# %% [raw] slide
# ## Second attempt: binary digits, or waves
# > **Guess first.** Which number is furthest from 7 in binary digits?

# %% tags=["hide-input"]
viz.explore(figures.binary_and_waves, position=range(16), start={"position": 7})
#| caption: Digits and waves (blue above 0, orange below); distances from the chosen position.
#|   The waves begin at period 4, because with period 2 all sines would be 0.

# %% [raw] slide
# ## Digits jump, and waves do not
# {figure}

# %% [raw] slide
# ## Sinusoidal positional encoding
# $$\mathrm{PE}(p, 2i) = \sin(p\,\theta_i), \qquad \mathrm{PE}(p, 2i + 1) = \cos(p\,\theta_i)$$
#
# $$\theta_i = 10000^{-2i/d}, \qquad i = 0, 1, \dots, d/2 - 1$$
#
# A pair of columns for each **frequency**: periods from 6.3 tokens to tens of thousands. (Vaswani et al. 2017, section 3.5)

# %% [markdown] teaches="sinusoidal positions, and shifts as a linear map"
# **Digits jump, and waves do not.** In digits, the furthest position from 7 is its neighbour 8, because all four digits
# flip: 1110 becomes 0001 (lowest digit first).
#
# With waves, the curve keeps its shape and only moves along. So the distance between two vectors depends only on the
# distance between the positions. Further away is not always further apart: the curve dips at four places and again
# beyond six. With more waves such dips shrink, but do not vanish.
#
# ## Sinusoidal positional encoding: a pair of columns for each frequency
#
# A long text needs more waves than these four, and slower ones. **Sinusoidal positional encoding** ([@vaswani2017,
# section 3.5]) therefore has a pair of columns for each of $d/2$ **frequencies**, where $d$ is $d_\text{model}$. Pair
# $i = 0, 1, \dots, d/2 - 1$ has the frequency $\theta_i = 10000^{-2i/d}$ and holds
#
# $$
# \mathrm{PE}(p, 2i) = \sin(p\,\theta_i), \qquad \mathrm{PE}(p, 2i + 1) = \cos(p\,\theta_i)
# $$
#
# A sine and a cosine of one angle are a point on a circle. In pair 0 this point moves on by one radian per position, so
# it is back after a period of $2\pi \approx 6.3$ tokens. Every pair is slower than the one before by the same factor.
# With $d = 64$ the slowest of the 32 pairs has a period of $2\pi \cdot 10000^{62/64} \approx 47{,}000$ tokens.
#
# The next cell draws 64 positions. *Guess:* what do the columns on the right look like?

# %%
def one_position(p, d_model):
    numbers = []
    for i in range(d_model // 2):
        theta = 10000 ** (-2 * i / d_model)
        numbers += [math.sin(p * theta), math.cos(p * theta)]
    return torch.tensor(numbers)                                 # (d_model,)


table = positions.sinusoidal(torch.arange(64), 64)               # (64, 64)  the package's
same = torch.allclose(one_position(3, 64), table[3], atol=1e-5)
print("position 3 is row 3 of the table:", same)
figures.position_vectors(table, columns=[8, 9, 24], title="sinusoidal position vectors")
#| caption: Sinusoidal position vectors, 64 positions by 64 columns; right: columns 8 and 9,
#|   which are one pair, and column 24.
#| label: sinusoids

# %% [raw] slide
# ## Fast pairs, slow pairs
# {figure}
#
# **A common mistake: pairs counted from 1.** Good vectors, but not the paper's.

# %% [markdown]
# **The columns on the left change fast, and those on the right look almost constant**, because 64 positions are a small
# part of a period of thousands: the sines stay near 0 (white) and the cosines near 1 (blue). Columns 8 and 9 are the
# same wave, shifted by a quarter of a period.
#
# Attention compares such vectors by their dot product. *Guess:* how does the product of positions 20 and $20 + k$ change
# with the offset $k$, and is the curve for position 40 another one?

# %% tags=["hide-input"]
products = table @ table.mT                                      # (64, 64)  equal on diagonals
figures.offset_products(products, rows=[20, 40])
assert all(products.diagonal(k).std() < 1e-4 for k in range(32))
#| caption: Dot products of sinusoidal position vectors. Right: rows 20 and 40, against the
#|   offset.
#| label: offsets

# %% [raw] slide
# ## The dot product depends on the offset alone
# $$\mathrm{PE}(p) \cdot \mathrm{PE}(p + k) = \sum_i \cos(k\,\theta_i)$$
# . . .
# {figure}
#
# **Now you:** a@order, exercise 1

# %% [markdown] erratum="twice the rows; pairs counted from 1; positions after the projections"
# **The dot product depends on the offset $k$ alone, not on the place $p$.** Diagonals have one colour, and one curve
# covers the other. In every pair $\sin\alpha \sin\beta + \cos\alpha \cos\beta = \cos(\alpha - \beta)$. For positions
# that are $k$ apart the two angles of pair $i$ differ by $k\,\theta_i$, so
#
# $$\mathrm{PE}(p) \cdot \mathrm{PE}(p + k) = \sum_i \cos(k\,\theta_i).$$
#
# <details><summary>Two common mistakes: pairs counted from 1, and positions after the projections</summary>
#
# > **A common mistake: pairs counted from 1.** You will also find the formula with pairs counted from 1, so that the
# > first exponent is $2 \cdot 1/d$. These are good vectors, but not the paper's, and weights trained with one do not fit
# > the other. If the pairs go up to the exponent $2 \cdot d/d$, there are even twice as many numbers as the vector has.
#
# > **A common mistake: adding the position after the projections.** "Add PE to query, key and value" usually means the
# > inputs, before $W_Q$ and $W_K$. Taken literally, after them, it is a weaker scheme. A position in the *input* gives
# > the score a term $\mathrm{PE}(p)\, W_Q W_K^\top \mathrm{PE}(p + k)^\top$, which training can shape. If the vectors
# > are added *after* the projections, this term is the fixed sum of cosines, which always peaks at offset 0 whatever
# > the model learns.
#
# </details>
#
# **Now you:** [a05](@order/assignment), exercise 1.
#
# ## The shift matrix: one rotation for each distance
#
# The dot product is largest at offset 0. Can a head look for *another* distance, say two places back? It can, because
# each frequency has a sine *and* a cosine. Take one pair, which at position $p$ has the angle $\varphi = p\,\theta$.
# After $k$ more positions its angle is $\varphi + \delta$ with $\delta = k\,\theta$, and the addition formulas say
#
# $$
# \begin{aligned}
# \sin(\varphi + \delta) &= \cos\delta\, \sin\varphi + \sin\delta\, \cos\varphi, \\
# \cos(\varphi + \delta) &= \cos\delta\, \cos\varphi - \sin\delta\, \sin\varphi.
# \end{aligned}
# $$
#
# The new pair is a weighted sum of the old pair, with factors that contain $\delta$ but not $\varphi$. So one $2 \times
# 2$ matrix leads from $(\sin\varphi, \cos\varphi)$ to the new pair at *every* position: a **rotation** by $\delta$. One
# large matrix moves all pairs: $\mathrm{PE}(p + k) = \mathrm{PE}(p)\, M_k$.
#
# A head can use this matrix. Take a head as wide as the model, leave the words out, and let $W_Q = M_{-2}$ and $W_K =
# I$. The query of position $i$ is then $\mathrm{PE}(i)\, M_{-2} = \mathrm{PE}(i - 2)$, which is the key of the position
# two places back.

# %% [raw] slide
# ## The shift matrix: one rotation for each distance
# With $\varphi = p\,\theta$ and $\delta = k\,\theta$:
#
# $$\sin(\varphi + \delta) = \cos\delta\, \sin\varphi + \sin\delta\, \cos\varphi, \qquad \cos(\varphi + \delta) = \cos\delta\, \cos\varphi - \sin\delta\, \sin\varphi$$
#
# $$\mathrm{PE}(p + k) = \mathrm{PE}(p)\, M_k$$
#
# For positions alone, a head that scores the key two places back highest **exists**: $W_Q = M_{-2}$, $W_K = I$. Whether training **finds** it is another question.
#
# **Now you:** a@order, exercise 2

# %%
M = positions.shift_matrix(-2, 64)                               # (64, 64)
vectors = positions.sinusoidal(torch.arange(1000), 64)           # (1000, 64)
found = (vectors @ M @ vectors.mT).argmax(dim=-1)                # (1000,)  the best key of each
right = (found[2:] == torch.arange(998)).sum().item()
print(f"{right} of 998 queries give the key two places back the highest score")

# %% [markdown] teaches="rotary embeddings"
# **For positions alone, a head exists that scores the key two places back highest, at any length.** All position
# vectors are equally long, so none has a larger product with $\mathrm{PE}(i - 2)$ than this vector itself. Whether
# gradient descent *finds* such a head is another question, which we test below.
#
# **Now you:** [a05](@order/assignment), exercise 2.
#
# ## Rotary embeddings (RoPE): rotate, do not add
#
# *Step 2: rotate.* Sinusoids contain a rotation for each distance, but they are *added* to the embeddings. Does the
# score then depend on the distance alone? From here on a query is at position $m$ and a key at position $n$, as in the
# papers. With $B = W_Q W_K^\top$ the score, not yet divided by $\sqrt{d_k}$, has four terms:
#
# $$\bigl(x_m + \mathrm{PE}(m)\bigr) B \bigl(x_n + \mathrm{PE}(n)\bigr)^\top = x_m B x_n^\top + x_m B\, \mathrm{PE}(n)^\top +
# \mathrm{PE}(m) B x_n^\top + \mathrm{PE}(m) B\, \mathrm{PE}(n)^\top$$
#
# The answer is no. The two terms in the middle contain one position each, so they can change when both tokens move
# together. The last term is not safe either, as you will show in the assignment.
#
# Su et al. ([-@su2021]) look for a function $f$ that puts a position *into* a vector, so that the score depends on the
# positions only through their distance:
#
# $$f(q_m, m) \cdot f(k_n, n) = g(q_m, k_n,\, m - n).$$ (eq:relative)
#
# **A rotation does this**, because the dot product of two arrows does not change if both are rotated by the same angle.
# If we rotate the query by $m\,\theta$ and the key by $n\,\theta$, the angle between them changes by $(m - n)\,\theta$,
# wherever the two are.
#
# The figure rotates two words by 25 degrees for each position. *We* is the key (blue) and *know* is the query (green).
# In "*we know* that" they are at positions 0 and 1, and in "Of course *we know*" at 2 and 3. Before the rotation (pale
# arrows) the angle between them is 72 degrees, so at offset 1 it is 97. *Guess first:* what is it at offsets 2 and 3,
# and what happens when the shift moves both words?

# %% [raw] slide
# ## Rotary embeddings (RoPE): rotate, do not add
# Added positions give a score of four terms; two contain one position alone. Su et al. (2021) ask for
#
# $$f(q_m, m) \cdot f(k_n, n) = g(q_m, k_n,\, m - n)$$
#
# . . .
# **A rotation does this**: rotate the query by $m\theta$, the key by $n\theta$. Relative to each other they are rotated by $(m - n)\theta$, wherever they stand.
#
# > **Guess first.** Both words move together. Which score stays: rotated, or added?

# %% tags=["hide-input"]
viz.explore(
    figures.rotated_pair,
    offset=[1, 2, 3],
    shift=range(6),
    start={"offset": 1, "shift": 2},
    names={"offset": "offset: how far apart", "shift": "shift: both together"},
)
#| caption: Rotary embeddings: query and key are rotated by their positions (pale: before).
#|   Right: the score over the shifts; dashed: with positions added.

# %% [raw] slide
# ## Move both words
# {figure}

# %% [markdown]
# **When both words move, the score stays.** Both arrows rotate together, so the angle between them, and with it the
# score, depends only on the offset: it is 97, 122 or 147 degrees. With sine and cosine *added* (dashed, $B = I$) the
# score changes with the shift.
#
# A head has more than two columns, so RoPE takes them in pairs and gives pair $i = 0, \dots, d_k/2 - 1$ the frequency
# $\theta_i = 10000^{-2i/d_k}$, as the sinusoids do. Each pair $(a, b)$ of a query at position $m$ is rotated by the
# angle $m\,\theta_i$, and each pair of a key at position $n$ by $n\,\theta_i$:
#
# $$(a,\ b)\ \longmapsto\ \bigl(a \cos m\theta_i - b \sin m\theta_i,\ \ a \sin m\theta_i + b \cos m\theta_i\bigr)$$ (eq:rope)
#
# This is **RoPE**, the rotary position embedding.
#
# **One pair by hand.** Let $\theta = 0.1$. A query's pair is $(2, 1)$ and a key's is $(1, 3)$. At position $m = 5$ the
# query is rotated by 0.5 radians, with $\cos 0.5 \approx 0.88$ and $\sin 0.5 \approx 0.48$. *Compute first:* what
# becomes of $(2, 1)$? *Guess:* which two of the cell's three products are equal?

# %%
def rotate_pair(a, b, angle):
    cos, sin = math.cos(angle), math.sin(angle)
    return a * cos - b * sin, a * sin + b * cos


theta = 0.1                                                      # radians per position
for m, n in ((5, 2), (15, 12), (6, 2)):
    a, b = rotate_pair(2, 1, m * theta)                          # the query's pair
    c, d = rotate_pair(1, 3, n * theta)                          # the key's pair
    print(f"positions {m:>2} and {n:>2}, angles {m * theta:.1f} and {n * theta:.1f}: "
          f"({a:5.2f}, {b:.2f}) · ({c:5.2f}, {d:.2f}) = {a * c + b * d:.2f}")

# %% tags=["hide-input"]
for m, n, product in ((5, 2, 6.25), (15, 12, 6.25), (6, 2, 6.55)):
    (a, b), (c, d) = rotate_pair(2, 1, m * theta), rotate_pair(1, 3, n * theta)
    assert round(a * c + b * d, 2) == product
assert [round(number, 2) for number in rotate_pair(2, 1, 5 * theta)] == [1.28, 1.84]

# %% [raw] slide
# ## One pair by hand
# A query's pair $(2, 1)$ and a key's pair $(1, 3)$, with $\theta = 0.1$:
#
# {print}

# %% [markdown]
# **The first two, at distance 3.** At position 5 the query's pair is
#
# $$(2\cdot0.88-1\cdot0.48,\ \ 2\cdot0.48+1\cdot0.88) = (1.28,\ 1.84).$$
#
# Ten places further on, both pairs look different, but their product is 6.25 again. At distance 4 it is 6.55.
#
# The figure draws the four pairs of a head of eight columns as dials; at position 0 each pair points to the right.

# %% [raw] slide
# ## RoPE: a dial for each pair of columns
# $$(a,\ b)\ \longmapsto\ \bigl(a \cos m\theta_i - b \sin m\theta_i,\ \ a \sin m\theta_i + b \cos m\theta_i\bigr)$$
#
# A head of eight columns has four pairs: fast ones and slow ones.

# %%
shown = [0, 1, 2, 6, 30, 300]
figures.rope_dials(rope_angles(torch.tensor(shown), d_head=8), shown)
#| caption: Rotary embeddings as dials, one for each pair of columns. The strips above show
#|   which columns are a pair in either layout.
#| label: rope

# %% [raw] slide
# ## Four dials
# {figure}

# %% [markdown]
# **Fast pairs tell neighbours apart, and slow pairs tell near from far.** Pair 0 moves far with each token, but after 6
# tokens it is nearly back at its start, so it alone would take position 6 for position 0. Pairs 2 and 3 hardly move
# between neighbours, yet they have not come full circle even at position 300.
#
# The next cell rotates whole vectors of 64 columns. *Guess:* does the sum over their 32 pairs depend on the distance
# alone?

# %%
def turn(x, m):
    """One vector x (d,), as it appears at position m: every pair rotated."""
    angles = rope_angles(torch.tensor([m]), len(x))              # (1, d/2)
    return rotate(x[None], angles, "interleaved")[0]             # (d,)


torch.manual_seed(0)
query, key = torch.randn(2, 64)
for n, apart in ((0, 3), (7, 3), (1000, 3), (1000, 4)):
    score = turn(query, n + apart) @ turn(key, n)
    print(f"query {apart} places after a key at {n:>4}: score {score.item():.3f}")

# %% tags=["hide-input"]
moved = [(turn(query, n + 3) @ turn(key, n)).item() for n in (0, 7, 1000)]
assert max(moved) - min(moved) < 0.01 and torch.isclose(turn(query, 9).norm(), query.norm())
assert abs((turn(query, 4) @ key).item() - moved[0]) > 0.1

# %% [raw] slide
# ## The same distance, the same score
# {print}
#
# $$(q_m R_m)(k_n R_n)^\top = q_m\, R_m R_n^\top k_n^\top = q_m\, R_{m-n} k_n^\top$$
#
# Queries and keys are rotated, in every layer. Values are not.

# %% [markdown]
# **The same distance gives the same score**, and one line shows why. As a matrix on the right of the row $(a, b)$, the
# rotation of one pair is
#
# $$R_m = \begin{pmatrix} \cos m\theta & \sin m\theta \\ -\sin m\theta & \cos m\theta \end{pmatrix}, \qquad
# (q_m R_m)(k_n R_n)^\top = q_m\, R_m R_n^\top k_n^\top = q_m\, R_{m-n} k_n^\top,$$
#
# because the transpose of a rotation is the rotation by the opposite angle.
#
# **RoPE rotates queries and keys after their projections, in every layer, and leaves the values alone.** In a dot
# product two rotations leave only the distance, but in the average of the values nothing would undo a rotation.
#
# RoPE has no parameters. It is *absolute* in what it does, because each vector is rotated by its own position. It is
# *relative* in its effect, because the score knows the positions through $m - n$ alone.
#
# <details><summary>Two details: complex numbers, and positions in bfloat16</summary>
#
# The paper also writes a pair as a complex number $a + \mathrm{i}b$, and the rotation as the product with
# $\exp(\mathrm{i}\,m\theta)$. It counts pairs from 1: $\theta_i = 10000^{-2(i-1)/d}$. The shift matrix of the
# sinusoids rotates the other way, because there the sine comes first.
#
# Most large models run in bfloat16. Beyond 256 this type cannot write every whole number (257 becomes 256), so some
# neighbours would share a position. Positions and angles are therefore computed in float32.
#
# </details>
#
# ### Two layouts: interleaved and half
#
# Which columns form a pair? [@fig:rope] shows two conventions above the dials. The paper takes neighbours, $x_{2i}$ and
# $x_{2i+1}$ (**interleaved**). GPT-NeoX, and Llama in the transformers library, take $x_i$ and $x_{i + d/2}$
# (**half**). A model was trained with one layout and is run with the other. *Guess:* does it crash? The folded code
# compares the scores.

# %% tags=["hide-input"]
def scores_of(q, k, style):
    return rotate(q, angles, style) @ rotate(k, angles, style).mT             # (10, 10)


angles, q, k = rope_angles(torch.arange(10), 64), torch.randn(10, 64), torch.randn(10, 64)
evens_first = [*range(0, 64, 2), *range(1, 64, 2)]
by_neighbours = scores_of(q, k, "interleaved")
rearranged = scores_of(q[:, evens_first], k[:, evens_first], "half")
untouched = scores_of(q, k, "half")
print(f"half, columns untouched:  off by {(untouched - by_neighbours).abs().max():.2f}")
print(f"half, columns rearranged: off by {(rearranged - by_neighbours).abs().max():.5f}")

# %% [markdown]
# **Nothing crashes, but the scores are wrong.** The layouts differ only in the order of the columns, so both are
# equally good, but weights trained with one need their columns rearranged for the other.
#
# <details><summary>The half layout in the code of models: <code>rotate_half</code></summary>
#
# You will meet it as `x * cos + rotate_half(x) * sin`. Here `rotate_half` rotates all pairs by a quarter at once, $(a,
# b) \mapsto (-b, a)$: it makes −3, −4, 1, 2 of 1, 2, 3, 4, whose pairs are (1, 3) and (2, 4).
#
# </details>
#
# <details><summary><b>Going further</b>: two axes</summary>
#
# A patch of an image has a row and a column. Rotate half of the pairs by the row and the other half by the column. Each
# half then adds to the score a part that knows positions through one difference alone, so the whole score knows them
# through the two differences and through nothing else.
# </details>
#
# ### The base: `rope_theta`
#
# The **base** of the frequencies need not be 10,000; in a model's config it is called `rope_theta`. What does a larger
# base change? Let query and key be the same vector of ones. After the rotation their score depends on the distance
# alone: it is $2 \sum_i \cos \bigl((m-n)\theta_i\bigr)$. The figure draws it for two bases, divided by its value at
# distance 0. *Guess:* with which base does it fall faster?

# %% [raw] slide
# ## Two layouts, and the base
# | layout | pairs | |
# |---|---|---|
# | **interleaved** | $x_{2i}, x_{2i+1}$ | the paper |
# | **half** | $x_i, x_{i + d/2}$ | GPT-NeoX, Llama |
#
# Weights trained with one need their columns rearranged for the other. Without that nothing crashes, and the model writes nonsense.
#
# The **base** of the frequencies, `rope_theta`, need not be 10,000.

# %%
apart = torch.arange(1, 100_001)                                 # (100000,)
decay = {f"base {base:,}": rope_angles(apart, 128, base).cos().mean(dim=-1)
         for base in (10_000, 500_000)}
figures.score_decay(decay, apart)
#| caption: Score of two equal vectors under RoPE, for two bases. Each line is an average over
#|   neighbouring distances; the band shows the lowest and the highest.
#| label: rope-decay

# %% [raw] slide
# ## Long-term decay
# {figure}
#
# **Now you:** a@order, exercise 3

# %% [markdown] teaches="learned absolute positions"
# **For these two equal vectors the score falls with the distance, on average, and with a larger base it falls more
# slowly**, because a larger base slows every pair except pair 0, and the slowest pairs most. Su et al. ([-@su2021,
# section 3.4.3]) show such a **long-term decay** for an upper bound of the score. The score of a trained query and key
# need not decay.
#
# <details><summary>What do trained models use the pairs for?</summary>In Gemma 7B, heads that look at a position, such
# as the previous token, use the fastest pairs; the slowest, the authors suspect, carry meaning ([@barbero2025]).
# </details>
#
# > **Check yourself.** A model with RoPE writes token by token and keeps the past keys in a cache. Must it rotate the
# > cached keys again for every new token?
# > <details><summary>Answer</summary>No. A key is rotated once, by its own position. The distance arises in the dot
# > product.</details>
#
# **Now you:** [a05](@order/assignment), exercise 3.
#
# ## Learned positional embeddings: a table
#
# *Step 3: learn.* Sinusoids and RoPE are fixed formulas. The alternative is a **learned positional embedding**, a table
# with a row for each position, random at first and trained like the rest. *Guess:* what does a table with 32 rows do
# with a 33rd token?

# %%
learned = LearnedPositions(max_length=32, d_model=64)
print("parameters:", learned.table.numel(), "  32 positions:", tuple(learned(32).shape))
try:
    learned(33)
except ValueError as error:
    print(error)

# %% [raw] slide
# ## Learned positional embeddings: a table
# What does a table with 32 rows do with a 33rd token?
#
# . . .
# {print}
# . . .
# **A common mistake: positions counted along the batch**, `torch.arange(x.size(0))`. All tokens of a sentence get one position, and the loss falls all the same.

# %% [markdown] erratum="positions by the batch"
# **The table refuses**, because position 32 has no row. Inside its length it does well: Vaswani et al. ([-@vaswani2017,
# table 3, row E]) got nearly the same results with it as with sinusoids.
#
# <details><summary>Positions counted along the batch</summary>
#
# > **A common mistake:** if the rows are looked up with `torch.arange(x.size(0))` and the input is batch first, all
# > tokens of a sentence get *one* position, the sentence's place in the batch. The loss falls all the same. The test in
# > the next folded cell finds the mistake: run the sentence alone, and then as the last one in a batch of three
# > ([lecture @errata_lab](@errata_lab)).
#
# </details>

# %% tags=["hide-input"]
def add_positions_as_printed(x):                                 # x (batch, n, d)
    pos = torch.arange(x.size(0)).unsqueeze(1)                   # (batch, 1)
    return x + learned.table[pos]                                # (batch, n, d) + (batch, 1, d)


sentence, company = torch.randn(1, 5, 64), torch.randn(2, 5, 64)
alone = add_positions_as_printed(sentence)[-1]                                # (5, 64)
last_of_three = add_positions_as_printed(torch.cat([company, sentence]))[-1]  # (5, 64)
assert not torch.allclose(alone, last_of_three, atol=0.01), "it depends on the batch"

# %% [markdown]
# ## The embedding scale: multiply by √d_model
#
# Sinusoids and learned vectors are *added* to the word, so it matters how long they are beside it. Vaswani et al.
# ([-@vaswani2017, section 3.4]) multiply embeddings by $\sqrt{d_\text{model}}$ before they add positions. What does
# this change? An embedding often starts with numbers of about $1/\sqrt{d_\text{model}}$. A sinusoidal vector has
# $\sin^2 + \cos^2 = 1$ in each of its $d/2$ pairs. *Guess:* how long is each of the two vectors at width 512, without
# the factor?

# %%
for d in (64, 512):
    word = torch.randn(1000, d) / math.sqrt(d)                   # 1,000 fresh embeddings
    lengths = {"embedding": word, "× √d": word * math.sqrt(d),
               "sinusoidal": positions.sinusoidal(torch.arange(1000), d)}
    means = {name: rows.norm(dim=-1).mean() for name, rows in lengths.items()}
    print(f"d = {d:>3}:", *(f"{name} {length:.2f} " for name, length in means.items()))

# %% [raw] slide
# ## The embedding scale: multiply by √d_model
# {print}
#
# Beside a fresh embedding the sinusoid is 16 times as long. With the factor, the word is longer.

# %% [markdown]
# **Without the factor the position is longer than the word; with it the word is longer.** At width 512 a fresh
# embedding has length 1 beside a sinusoidal vector of length $\sqrt{d/2} = 16$; scaled, it has length 22.6.
#
# <details><summary><b>Going further</b>: why the factor, and what it did in the task of step 4</summary>
#
# The paper gives no reason for the factor. The usual one, which we do not test, is that without it a sinusoid drowns
# the word when training begins.
#
# It slowed down the schemes whose position vectors are short. After 500 steps, binary digits got 62 to 73% of the
# letters right with the factor and 94% without it; a learned table got 65 to 74% instead of 100%. When the positions
# were multiplied by 8 as well, most of the loss was gone, so what matters here is mainly the *ratio* of position to
# embedding. And the factor only delays: after 2,000 steps the table was at 100%.
# </details>

# %% [markdown] teaches="relative positions: Shaw on keys and on values"
# ## Relative positions: a vector for each distance (Shaw)
#
# A learned table says where a token is. But a model often needs "the token before *cat*", and rarely "token 417".
# **Relative positions** give the model the distance itself. In Shaw et al. ([-@shaw2018]) every distance $j - i$ from
# a query to a key has two learned vectors, one added to the key and one to the value.
#
# From here on $i$ is the query's position and $j$ the key's, as in these papers. Mind the sign: a key two places back,
# which had $m - n = 2$ in RoPE, now has $j - i = -2$.
#
# $$
# e_{ij} = \frac{q_i \cdot \bigl(k_j + a^K_{j-i}\bigr)}{\sqrt{d_k}} \qquad\quad
# o_i = \sum_j \alpha_{ij} \bigl(v_j + a^V_{j-i}\bigr)
# $$
#
# Distances beyond $\pm r$ are clipped to $\pm r$, so each table of vectors has $2r + 1$ rows. Take the text *we know
# that you know it*, with $r = 2$. *Guess:* what are the six clipped distances from the query *it* to the six keys?
# Where in the figure are equal distances?

# %% [raw] slide
# ## Relative positions: a vector for each distance (Shaw)
# $$e_{ij} = \frac{q_i \cdot \bigl(k_j + a^K_{j-i}\bigr)}{\sqrt{d_k}} \qquad\quad o_i = \sum_j \alpha_{ij} \bigl(v_j + a^V_{j-i}\bigr)$$
#
# Distances beyond $\pm r$ are clipped: $2r + 1$ rows.
#
# > **Guess first.** For $r = 2$ and six words: which distances stand in the last row? Where are equal ones?

# %%
text = ["we", "know", "that", "you", "know", "it"]
index = relative_index(6, 6, max_distance=2)                     # (6, 6)  rows of the table
figures.distance_table(index, text, max_distance=2)
#| caption: Clipped relative distances, a row for each query.

# %% [raw] slide
# ## The clipped distance is equal along each diagonal
# {figure}
# |||
# BLEU, English to German (Shaw et al. 2018):
#
# | $r$ | 0 | 1 | 2 | 16 |
# |---|---|---|---|---|
# | | 12.5 | 25.5 | 25.8 | 25.8 |
#
# With $r = 1$ a key is *before*, *here* or *after*: nearly all of the score is there.
#
# **Now you:** a@order, exercise 4

# %% [markdown]
# **The distance is equal along each diagonal**, so both occurrences of *know* see their neighbours in the same way. The
# folded code follows the two equations for one query.

# %% tags=["hide-input"]
torch.manual_seed(0)
q, k, v = torch.randn(3, 6, 16)                                  # (6, 16) each
shaw = ShawRelative(max_distance=2, d_head=16)                   # shaw.key, shaw.value: (5, 16)
i = 3                                                            # one query, "you"
scores = torch.stack([q[i] @ (k[j] + shaw.key[index[i, j]]) for j in range(6)]) / math.sqrt(16)
alpha = scores.softmax(dim=0)                                    # (6,)
o = sum(alpha[j] * (v[j] + shaw.value[index[i, j]]) for j in range(6))       # (16,)
A = ((q @ k.mT + shaw.scores(q, n_key=6)) / math.sqrt(16)).softmax(dim=-1)    # (6, 6)  all
assert torch.allclose(o, (A @ v + shaw.output(A))[i], atol=1e-5), "the package agrees"

# %% [markdown] teaches="Shaw's BLEU for every clipping distance @ Relative positions" erratum="learned positions credited to Shaw; Shaw's formula under Absolute"
# <details><summary>How large must $r$ be? The paper's BLEU scores</summary>
#
# For translation from English to German the paper measures
#
# | $r$ | 0 | 1 | 2 | 4 | 16 | 64 | 256 |
# |---|---|---|---|---|---|---|---|
# | BLEU | 12.5 | 25.5 | 25.8 | 25.9 | 25.8 | 25.9 | 25.8 |
#
# With $r = 0$ all distances look alike, and half of the BLEU score is gone. With $r = 1$ the table has only three rows,
# *before*, *here* and *after*, and yet nearly all of the score is there, although one layer then knows only the side
# (several may work out more). The paper prints one number for each $r$, so we read nothing into differences of 0.1.
# </details>
#
# <details><summary>Two common mistakes: who proposed what, and what is relative</summary>
#
# **A common mistake: the wrong authors.** Learned absolute positions are sometimes credited to Shaw et al.
# ([-@shaw2018]). They propose relative ones; learned position vectors are in Gehring et al. ([-@gehring2017]).
#
# **A common mistake: calling Shaw's formula absolute**, because it adds a vector to each key. The score does not
# change if query and key move together, so it is relative. But it is not an inner product of one vector made at the
# query and one made at the key, as RoPE's score is.
# </details>
#
# **Now you:** [a05](@order/assignment), exercise 4.

# %% [markdown]
# ## Relative biases: a number for each distance (T5, ALiBi)
#
# Does each distance need a whole vector? A **relative bias** is cheaper, a single number added to the score: $e_{ij} =
# q_i \cdot k_j / \sqrt{d_k} + b_{j-i}$.
#
# * **T5** ([@raffel2020]) learns the numbers for each head. A near distance has a number of its own, whereas far
#   distances share one, in **buckets** that grow with the distance. T5 also leaves $\sqrt{d_k}$ out.
# * **ALiBi** (*attention with linear biases*, [@press2022]) learns nothing: $b_{j-i} = -\text{slope} \cdot \lvert i -
#   j \rvert$, with a fixed slope for each head.
#
# The left panel of the next figure shows what one head with T5's buckets learned in a task: find the token two places
# back. *Guess:* at which distance is its largest number? Can ALiBi's numbers have such a peak?

# %% tags=["hide-input"]
kept = measured("positions")                                     # runs that were recorded
distances = range(-31, 32)
bias = positions.BucketedBias(n_heads=4, n_buckets=32, max_distance=128)
buckets = bias.buckets(torch.tensor([*distances])).tolist()
slopes = {"1/4": 1 / 4, "1/16": 1 / 16, "1/64": 1 / 64}          # ALiBi's, in three heads
trained = [run["bias"] for run in kept["changed"] if run["name"] == "T5 own buckets"]
figures.relative_biases(distances, buckets, trained[0][0], -2, slopes)         # seed 0, head 0
assert len(set(buckets)) < len(distances) and max(trained[0][0]) == trained[0][0][31 - 2]
#| caption: Left: the biases that a T5 head learned to look two places back (ring); every second
#|   bucket is shaded. Right: three heads of ALiBi. Mind the two scales.
#| label: biases

# %% [raw] slide
# ## Relative biases: a number for each distance
# $$e_{ij} = q_i \cdot k_j / \sqrt{d_k} + b_{j-i}$$
#
# **T5**: learned, in buckets that grow. **ALiBi**: $b_{j-i} = -\text{slope} \cdot |i - j|$, fixed.
# . . .
# {figure}

# %% [markdown]
# **T5's largest number belongs to the distance −2**, so a head can pick out one distance. **ALiBi's heads only prefer
# near tokens to far ones:** with a large slope a head sees its neighbours, and with a small slope nearly the whole
# text.
#
# You now know all schemes. This is a good place for a break.
#
# ## Length extrapolation: one task for all schemes
#
# *Step 4: test.* Which scheme is best? Inside the trained length most of them do well, but they differ in **length
# extrapolation**, that is, in reading longer texts than in training.
#
# To compare them we take a tiny task that needs order and nothing else. The model reads random letters and says at each
# place which letter was *two places back*. It is trained on texts of 8 to 32 letters.
#
# > **Three questions.**
# > 1. Which schemes still work at *four* times the trained length ([@fig:length-generalisation])?
# > 2. Does RoPE still work at *thirty-two* times, and if not, why ([@fig:keys-and-angles])?
# > 3. Are schemes *without* angles safe in long texts ([@fig:reach])?
#
# <details><summary>The models, and why ALiBi is left out</summary>
#
# Each model is an encoder of one block, which lectures @masking to @transformer build, with a linear layer on top.
# Shaw's table and T5's buckets end at distance 16, so training reaches every row that a longer text will use. ALiBi's
# biases are the same on both sides, so without a mask an encoder of any depth answers a reversed text with its answers
# reversed: it cannot tell *before* from *after*. ALiBi was made for language models, which have a causal mask, and for
# longer texts: at twice its trained length it read as well as a model with sinusoids that was trained on that length
# ([@press2022]).
#
# </details>

# %% [raw] slide
# ## Length extrapolation: one task for all schemes
# Random letters: which stood **two places back**? Trained on texts of 8 to 32 letters, then 128.
#
# > **Guess first.** Which schemes are right beyond position 32: sinusoidal, learned, Shaw, T5, RoPE?

# %% tags=["hide-input"]
LETTERS, BACK, TRAINED = 16, 2, 32


class Echo(nn.Module):
    def __init__(self, scheme, max_length=TRAINED):
        super().__init__()
        config = TransformerConfig(
            positions=scheme, scale_embedding=False, vocab_size=LETTERS, d_model=64, n_layers=1,
            n_heads=2, d_ff=64, max_length=max_length, max_distance=16, dropout=0.0,
        )
        self.encoder, self.output = Encoder(config), nn.Linear(64, LETTERS)

    def forward(self, tokens, weights=None):                     # tokens (batch, n)
        return self.output(self.encoder(tokens, weights=weights))    # (batch, n, LETTERS)


def train(scheme, steps=500, seed=0):
    torch.manual_seed(seed)
    model, draws = Echo(scheme), torch.Generator().manual_seed(seed)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3, betas=(0.9, 0.98))
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 3e-3, total_steps=steps,
                                                   pct_start=0.2)
    for _ in range(steps):
        n = int(torch.randint(8, TRAINED + 1, (), generator=draws))
        tokens = torch.randint(LETTERS, (32, n), generator=draws)    # (32, n)
        guess = model(tokens)[:, BACK:]                              # (32, n − 2, LETTERS)
        loss = F.cross_entropy(guess.flatten(0, 1), tokens[:, :-BACK].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
    return model.eval()

# %%
tokens = torch.randint(LETTERS, (12,), generator=torch.Generator().manual_seed(0))
letters = [chr(97 + token) for token in tokens]
print("the model reads: ", *letters)
print("it should answer:", *"··", *letters[:-BACK])
models = {"sinusoidal": train("sinusoidal"), "relative (Shaw)": train("shaw"),
          "RoPE": train("rope")}

# %% tags=["hide-input"]
configs = [vars(model.encoder.config) for model in models.values()]
differ = [name for name in configs[0] if len({str(config[name]) for config in configs}) > 1]
assert differ == ["positions"], "nothing else differs"

# %% [markdown]
# *Question 1.* The figure shows recorded runs of seven schemes, with three seeds each. *Guess:* which of sinusoidal,
# learned, T5, Shaw and RoPE are right beyond position 32?

# %% tags=["hide-input"]
def by_seed(scheme, what, scaled=False):
    return [run[what] for run in kept["runs"]
            if run["scheme"] == scheme and run["scaled"] == scaled and what in run]


def changed(name, what="beyond"):
    return [run[what] for run in kept["changed"] if run["name"] == name]


by_scheme = {}
for scheme in ("no positions", "binary", "sinusoidal", "learned", "relative (T5)",
               "relative (Shaw)", "RoPE"):
    by_scheme[scheme] = {"texts of 32": by_seed(scheme, "inside"),
                         "texts of 128, beyond position 32": by_seed(scheme, "beyond")}
for name in ("binary", "sinusoidal", "T5", "Shaw", "RoPE"):
    scheme = f"relative ({name})" if name in ("T5", "Shaw") else name
    by_scheme[scheme]["the same, after 2,000 steps"] = changed(f"{name} longer")
families = {"none": 1, "absolute: a vector": 3, "the distance": 3}
figures.scale_points(by_scheme, "accuracy", notes={"learned": "refuses"}, families=families)
assert max(changed("binary longer") + changed("sinusoidal longer")) < 0.2
for places in by_seed("binary", "at"):                           # {length: a share a place}
    assert [p for p, share in enumerate(places["32"], BACK) if share < 0.9] == [16, 17]
#| caption: Accuracy at the trained length and beyond it after 500 steps, and beyond it after
#|   2,000 (triangles, five schemes). Points: seeds 0, 1 and 2, left to right.
#| label: length-generalisation

# %% [raw] slide
# ## At four times the trained length
# {figure}
#
# Schemes that know the distance go on; vectors for absolute positions do not.

# %% [markdown]
# > **Answer 1.** At four times the trained length, schemes that know the *distance* still worked (T5's biases only
# > after longer training). Vectors for absolute positions did not.
#
# Shaw's vectors and RoPE made almost no mistakes. Sinusoids and digits were at best a little better than no positions,
# even after 2,000 steps.
#
# <details><summary>Two lower results inside the trained length</summary>
#
# Without positions a model can only name a letter that is frequent in the text. Digits got only 94% right: with every
# seed they failed at positions 16 and 17, the only ones there that differ in four digits from the position two places
# back.
#
# </details>
#
# Vaswani et al. chose sinusoids over a learned table because sinusoids *might* let a model read longer texts than in
# training. In our task they did not. A head that looks two places back exists for positions alone, but training did
# *not* find it.
#
# Where do the models look beyond the trained length? In the next figure the three models trained above read a text of
# 64 letters. A perfect model has a single thin diagonal, two places below the main one. *Guess:* for which of the three
# does it go on beyond the orange lines?

# %% tags=["hide-input"]
def longer(name, scheme, n):
    model = Echo(scheme, max_length=n)
    model.load_state_dict(models[name].state_dict())
    return model


torch.manual_seed(2)
letters, looked, inside, beyond = torch.randint(LETTERS, (1, 64)), {}, {}, {}  # (1, 64)
in_config = {"sinusoidal": "sinusoidal", "relative (Shaw)": "shaw", "RoPE": "rope"}
for name, scheme in in_config.items():
    weights = Weights()                                          # the encoder fills it
    with torch.no_grad():
        longer(name, scheme, 64)(letters, weights=weights)
    per_head = weights.self_attn[0][0]                           # layer 0, text 0: (2, 64, 64)
    looked[name] = per_head.mean(dim=0)                          # (64, 64)
    line = looked[name].diagonal(-BACK)                          # (62,)  two places back
    inside[name], beyond[name] = line[: TRAINED - BACK].mean(), line[TRAINED - BACK :].mean()
gap = torch.arange(64) - torch.arange(64)[:, None]               # (64, 64)  key − query
wrong = looked["RoPE"] * ((gap + BACK).abs() > 1)                # off the diagonal
wrong[:BACK] = 0                                                 # no key two places back there
known, new = wrong * (gap.abs() < TRAINED), wrong * (gap.abs() >= TRAINED)   # distances
worst = divmod(int(new.argmax()), 64)                            # its query and its key
figures.attention_past_training(looked, TRAINED, circled={"RoPE": worst},
                                enlarged={"relative (Shaw)": 40})
assert new.max() > 2 * known.max() and abs(worst[1] - worst[0] - 42) <= 2
assert beyond["sinusoidal"] < inside["sinusoidal"] / 2
assert all(beyond[name] > 0.9 * inside[name] for name in ("relative (Shaw)", "RoPE"))
#| caption: Attention weights, seed 0, mean of two heads; orange: trained length. Ring:
#|   RoPE's largest wrong weight from query 2 on. Inset: larger, with the main diagonal.
#| label: past-training

# %% [raw] slide
# ## The same from inside
# {figure}
#
# Beyond the trained length (orange) sinusoids attend to wrong places; a distance of −2 is known.

# %% [markdown]
# **The diagonal goes on where the model knows distances**, since to such a model −2 means the same at position 60 as at
# position 6. The diagonal of the sinusoids fades, and other stripes appear. But look at the ring: RoPE puts a large
# weight on a key 42 places to the right, a distance that never occurred in training.
#
# ## RoPE at 4 and at 32 times the trained length
#
# *Question 2.* In texts of up to 128 letters, such stray weights did little harm. In texts of 1,024 letters the same
# models got only 40 to 69% right. There are two suspects:
#
# * (a) **Many keys.** The softmax divides one unit among *all* keys, and a thousand small weights add up.
# * (b) **New distances.** In training no key was further than 31 places away.
#
# To tell the two apart, we let the trained models read the same texts in four ways:
#
# | | trained distances | new distances |
# |---|---|---|
# | **33 keys** | *window*: 16 neighbours on either side | *far keys*: 8 neighbours on either side, and 16 keys from 32 or more places away |
# | **1,024 keys** | *clipped*: all keys; those more than 16 away are rotated as if at exactly 16, on their side | *unchanged*: all keys |
#
# If (a) alone does the harm, the lower row fails. If (b) alone does it, the right column fails. If it takes both, only
# *unchanged* fails. *Guess:* does any of the other three fail?

# %% [raw] slide
# ## RoPE at 32 times the trained length
# > **Guess first.** Two suspects. (a) **Many keys**: a thousand small weights add up. (b) **New distances**: never seen in training.
#
# | | trained distances | new distances |
# |---|---|---|
# | **33 keys** | a window of 16 on either side | 17 near ones and 16 far ones |
# | **1,024 keys** | all, clipped to a distance of 16 | all, unchanged |

# %% tags=["hide-input"]
def at_1024(what):
    return [run["1024"] for run in by_seed("RoPE", what)]


far = changed("RoPE far keys", "far")                            # {number of far keys: share}
by_keys = {}
for some in far[0]:                                              # 16, 64, 256 far, 17 near
    by_keys[f"{17 + int(some)} keys"] = {"trained distances": [],
                                         "new distances": [run[some] for run in far]}
by_keys["33 keys"]["trained distances"] = at_1024("window")
clipped = [run["1024"] for run in changed("RoPE clipped", "by_length")]
by_keys["1,024 keys"] = {"trained distances": clipped, "new distances": at_1024("by_length")}
figures.scale_points(by_keys, "accuracy in texts of 1,024 letters", joined=["new distances"])
#| caption: RoPE in texts of 1,024 letters: how many keys a letter sees, and whether their
#|   distances occurred in training. Points: seeds 0, 1 and 2, left to right.
#| label: keys-and-angles

# %% [raw] slide
# ## It takes both: new distances, and many keys there
# {figure}

# %% [markdown]
# **It takes both.** Only *unchanged* failed. A thousand keys, nearly all rotated as if at ±16, did no harm (*clipped*),
# and sixteen keys at new distances did almost none (*far keys*). With more far keys, in the two groups in the middle,
# the accuracy falls step by step.
#
# Our reading is that a key at a new distance *sometimes* scores as high as the right one, like the key in the ring of
# [@fig:past-training]. With more such keys this is likelier.
#
# *Which* new distances do the harm? We tested each distance $D$ on its own: in a text of 1,024 letters, every key more
# than 16 places away was rotated as if at $+D$ on the right, or at $-D$ on the left. If a distance does harm just
# because it is new, all blue dots in the left panel must fall. *Guess:* do they?

# %% tags=["hide-input"]
alike = changed("RoPE one distance", "alike")                    # {distance: share}
apart = [int(name) for name in alike[0] if name.isdigit()]       # 17, 18, …, 1023
by_distance = {far: sum(shares[str(far)] for shares in alike) / len(alike) for far in apart}
fastest = rope_angles(torch.tensor(1), 32)                       # (16,)  angles per place


def match(*keys, pairs=2):
    """How closely the fastest pairs of a key at these distances match those at −2, at best."""
    places = torch.tensor(keys) + BACK                           # (keys,)  from −2
    return (places[:, None] * fastest[:pairs]).cos().mean(dim=1).max().item()


matches = {far: match(far, -far) for far in apart}
figures.one_distance(by_distance, matches, TRAINED, named=42)
new = [far for far in apart if far >= TRAINED]
harm = [far for far in new if by_distance[far] < 0.9]
print(f"{len(harm)} of {len(new)} new distances bring the accuracy below 90%")
assert min(by_distance[far] for far in apart if far < TRAINED) > 0.98
assert round(match(-14), 2) == 0.87
one, three = ({far: match(far, -far, pairs=pairs) for far in new} for pairs in (1, 3))
alone = [far for far in new if one[far] > 0.8]
assert (len(alone), len({*alone} & {*harm})) == (405, 123)
assert sum(three[far] < 0.5 for far in harm) == 41
#| caption: A dot is one distance: accuracy in texts of 1,024 letters, all far keys rotated as
#|   if at it; mean of three seeds. Dashed: 90%, and matches of 0.5 and 0.8.
#| label: one-distance

# %% [raw] slide
# ## All far keys at one distance: one new distance in six does harm
# {figure}
#
# There the fast pairs of a far key tend to look like those of the right key, at −2.

# %% [markdown]
# **They do not. About one new distance in six brought the accuracy below 90%**, and these lie all over the range. The
# trained distances, in orange, did no harm.
#
# What do the harmful distances have in common? Take 42, the distance of the ring in [@fig:past-training]. At $D = 42$
# the accuracy fell to 32%, while 41 and 43 did no harm. From −2 to 42 it is 44 places, and 44 radians are almost
# exactly seven full circles (43.98). So pair 0 of such a key points as it does at the right key, and pair 1 is only 22
# degrees off.
#
# The right panel measures this likeness as a **match**, the mean cosine of the angles by which the two fastest pairs of
# a far key differ from those of the right key. The same angles give 1, and $D = 42$ gives 0.96. No distance with a
# match below 0.5 brought the accuracy below 90%, and most of those above 0.8 did.
#
# A third experiment tests this. Keys more than 16 places away are rotated as in *clipped*, but only in some of a head's
# 16 pairs. *Guess:* which saves more answers, clipping the five fastest pairs or the eleven others?

# %%
parts = [run["5"] for run in changed("RoPE mixed pairs", "in part")]     # 5 fast pairs of 16
by_part = {
    "none": at_1024("by_length"),
    "11 slow": [run["slow clipped"] for run in parts],
    "5 fast": [run["fast clipped"] for run in parts],
    "all 16": clipped,
}
for name, right in by_part.items():                              # seeds 0, 1 and 2
    print(f"pairs clipped: {name:<8}", *(f"{share:5.0%}" for share in right))

# %% tags=["hide-input"]
assert min(by_part["5 fast"] + by_part["all 16"]) > 0.995
assert max(by_part["11 slow"]) < 0.85
gains = torch.tensor(by_part["11 slow"]) - torch.tensor(by_part["none"])         # (3,)
assert gains.min() > 0.05

# %% [raw] slide
# ## Clip some of the pairs
# Accuracy in texts of 1,024 letters, seeds 0, 1 and 2:
#
# {print}
#
# The fast pairs do most of the harm.

# %% [markdown]
# **The fast ones.** With these five clipped, all answers were right, although the other pairs still met new angles.
# With the eleven clipped, each model gained, but none got more than 82% right. So the fast pairs do most of the harm,
# and new angles of the slow pairs make it worse.
#
# <details><summary><b>Going further</b>: the match, and a trained distance that matches</summary>
#
# The test is harsh, because it puts nearly a thousand keys at $\pm D$, where a text has two at most. The match of $D$
# is the larger of two, for a key at $D$ and for one at $-D$.
#
# *Why two pairs?* Because two describe these results best, so the match explains them and predicts nothing yet. By the
# fastest pair alone, 405 new distances match by more than 0.8, and only 123 of them brought the accuracy below 90%. By
# the three fastest, 41 of the harmful distances match by less than 0.5.
#
# *What is new for fast pairs?* The five fastest met nearly every angle in training, where distances ran from −31 to
# 31. So hardly any angle of a *single* fast pair is new. What is new, we think, is the combination: the fast pairs look
# like −2 all at once, while the slow pairs, which could show that the key is far away, are at angles that the model has
# never seen. A key 14 places to the left matches by 0.87 as well, but the model met this distance in training and could
# learn to tell the two apart.
#
# </details>
#
# > **Answer 2.** In our task RoPE failed at thirty-two times the trained length because of *many keys at new
# > distances*. About one new distance in six does harm if many keys are there. At these, the fast pairs of a key tend to
# > look like those of the right key. The longer a text is, the more such keys it has.
#
# ### Shaw and T5 in long texts
#
# *Question 3.* Shaw's vectors and T5's biases have no angles, and nothing about a far key is new to them. *Guess:* are
# they safe in long texts? The figure shows them as they are, and with a window of 16 neighbours on either side.

# %% tags=["hide-input"]
def at_lengths(runs):
    return {int(n): [run[n] for run in runs] for n in runs[0]}   # {length: a share a seed}


reached = {}
for name, scheme in (("Shaw", "relative (Shaw)"), ("T5", "relative (T5)")):
    reached[name] = {"all keys": at_lengths(by_seed(scheme, "by_length")),
                     "window": at_lengths(by_seed(scheme, "window"))}
figures.reach(reached, trained=TRAINED, shortest=24)
heads = torch.tensor(changed("T5 lead", "bias")).flatten(0, 1)   # (6, 63)  −31 to 31
leads = heads[:, 31 - BACK] - heads[:, [0, -1]].amax(dim=-1)     # (6,)  over far keys
print(f"T5, lead of the bias of −2: {leads.min():.1f} to {leads.max():.1f}")
assert (heads.argmax(dim=-1) == 31 - BACK).all()
#| caption: Accuracy after 500 steps against the length of the text (shaded: trained). Marks
#|   are seeds, lines join their means. A window also helps T5 inside.
#| label: reach

# %% [raw] slide
# ## Schemes without angles: many keys, and a small lead
# {figure}

# %% [markdown]
# **No. Both lost accuracy in long texts. A window mended Shaw's vectors and saved most of T5's accuracy**, so mainly
# the *number* of the keys did the harm.
#
# In T5 the bias of −2 led those of far keys by about 1.5. If the biases alone decide, the right key then has $e^{1.5}
# \approx 4.5$ times the weight of one far key. Among a thousand keys that is less than 1%.
#
# <details><summary>After longer training, and a remedy</summary>
#
# After 2,000 steps both were better, and still not safe: at 1,024 letters Shaw's vectors got 93% right on average, T5's
# biases 22%. T5's lead was 2.5 at most, which is $e^{2.5} \approx 12$ times the weight of a far key, or 1% among a
# thousand. Half of the weight needs a lead of $\ln 1000 \approx 7$. One remedy, which we did not test here, is to make
# every lead grow with the length $n$: multiply all scores by a factor in proportion to $\ln n$.
#
# These models have shorter buckets than the one in [@fig:biases]. Why the numbers for 0 and for the farthest distances
# are less low there than the others, we did not test.
#
# </details>
#
# > **Answer 3.** No. Even where nothing about a far key is new, many keys do harm if the right one leads by little. So
# > measure what a model does beyond its trained length.
#
# Tiny models show *how* a scheme can fail; the numbers do not carry over. Language models with RoPE fail beyond the
# trained length as well, and *sooner* than here: LLaMA was about as bad as an untrained model at *twice* its trained
# length ([@chen2023]).
#
# ## Context extension: reading more tokens than in training
#
# *Step 5: use.* Can a model with RoPE learn to read longer texts? Suppose that it was trained on 4,096 tokens and is to
# read $s = 8$ times as many. Its slow pairs did not come full circle in training, so in a longer text they meet new
# angles.
#
# **Context extension** slows pairs down to avoid this, mostly with a little further training. It does nothing about
# fast pairs that look like those of the right key, and in our task these did more harm. Three methods:
#
# * **Position interpolation** ([@chen2023]) divides all positions by $s$: pair $i$ is rotated by $m\theta_i / s$.
# * **Raising the base** slows the slowest pairs most. **NTK-aware scaling** ([@peng2024yarn, section 3.1]) multiplies
#   the base by $s^{d_k/(d_k-2)}$, which slows the last pair exactly $s$ times.
# * **YaRN** ([@peng2024yarn]) leaves the *fastest* pairs alone (32 full circles in training or more), interpolates
#   the *slow* ones (one or less), and mixes the two for the pairs in between. It also multiplies all scores by $(1 +
#   0.1 \ln s)^2$, here 1.46, which makes the softmax sharper.
#
# *Guess:* which methods bring *all* slow pairs back into the range of angles that they had in training?

# %% tags=["hide-input"]
s, trained_on, d_k = 8, 4096, 128
theta = rope_angles(torch.tensor(1), d_k)                        # (64,)  angle per token
circles = trained_on * theta / (2 * math.pi)                     # (64,)  turns in training
raised = rope_angles(torch.tensor(1), d_k, base=10_000 * s ** (d_k / (d_k - 2)))
turned = {"no change": theta, "interpolation": theta / s, "NTK-aware": raised,
          "YaRN": figures.yarn(theta, s, trained_on)}            # angles per token
furthest = {name: s * each / theta for name, each in turned.items()}
circled = int((circles >= 1).sum())
figures.context_extension(furthest, circled)
assert furthest["YaRN"][circled:].max() < 1.001 and furthest["NTK-aware"][circled] > 1.5
assert math.isclose(furthest["NTK-aware"][-1], 1, rel_tol=1e-4) and (circles >= 32).sum() == 21
#| caption: Largest angle of each pair of columns in a text of 32,768 tokens, as a multiple of
#|   the largest in 4,096. Shaded, above × 1: angles never seen in training.
#| label: context-extension

# %% [raw] slide
# ## Context extension: three methods
# {figure}
#
# Interpolation divides all angles by $s$; NTK-aware scaling raises the base; YaRN leaves fast pairs alone.

# %% [markdown]
# **Interpolation and YaRN bring all slow pairs back** to × 1 (right of the dotted line). But interpolation slows the
# fast pairs just as much, and these tell neighbours apart. YaRN leaves the 21 fastest as they are. NTK-aware scaling
# brings back the last pair only.
#
# We tried this on our own three RoPE models, **without further training**, with $s = 4$ for texts of 128 letters and $s
# = 32$ for 1,024. From YaRN we kept the treatment of the pairs, not the sharper softmax, and call it *by parts*: the
# five fastest of 16 pairs stay as they are, and the others are interpolated.
#
# *Guess:* which method breaks a model that looks two places back?

# %% tags=["hide-input"]
runs = changed("RoPE extended", "at")                            # {length: {method: share}}
by_method = {}
for method in ("no change", "by parts", "NTK-aware", "interpolation"):
    by_method[method] = {f"texts of {int(n):,} letters": [run[n][method] for run in runs]
                         for n in runs[0]}
figures.scale_points(by_method, "accuracy", chance=1 / LETTERS,
                     joined=["texts of 1,024 letters"])
#| caption: RoPE trained on 32 letters, its angles changed without further training. Points:
#|   seeds 0, 1 and 2; in texts of 1,024 they are joined.
#| label: extended

# %% [raw] slide
# ## Context extension on our models, without further training
# {figure}
#
# Interpolation slows the pairs that tell neighbours apart. By parts (YaRN's idea) leaves them as they are.

# %% [markdown]
# **Interpolation broke the model**, which got no further training. With $s = 4$, a key two places back is rotated as if
# it were half a place back, a distance that the model has never seen.
#
# **By parts helped with every seed:** at 1,024 letters each of the three models gained at least 9 points. It leaves the
# fast pairs as they are, so −2 looks nearly as before, but some far distances still look like −2. This is why, we
# think, it did not reach 100%.
#
# **Now you:** [a05](@order/assignment), exercise 5.
#
# <details><summary><b>Going further</b>: layers without positions</summary>
#
# Another way is to change the layers. Yang et al. ([-@yang2025rope]) use full attention *without* positions in one
# layer of four and give the RoPE layers a window, so that no layer meets a new angle, as in our *window*.
# [SmolLM3](https://huggingface.co/docs/transformers/model_doc/smollm3) only leaves RoPE out in every fourth layer, so
# its other layers see all keys and still meet new angles.
#
# Small decoders with *no* positions at all did better than those with ALiBi, RoPE or absolute ones on longer examples
# of small reasoning and arithmetic tasks ([@kazemnejad2023]). They have a causal mask, which our encoder lacks.
# </details>

# %% [markdown] erratum="most systems use this" teaches="most systems use learned positions @ Which model uses which positions"
# ## Which model uses which positions
#
# You can now read what published models do:
#
# | model | positions |
# |---|---|
# | Transformer ([-@vaswani2017]) | sinusoidal, added to embeddings × $\sqrt{d_\text{model}}$ |
# | BERT ([-@devlin2019]), GPT-2 ([-@radford2019]), GPT-3 ([-@brown2020]) | learned, added |
# | T5 ([-@raffel2020]) | biases in 32 buckets, up to distance 128 |
# | BLOOM ([-@lescao2022]) | ALiBi |
# | Llama ([-@touvron2023llama]), Llama 2 ([-@touvron2023]) | RoPE, base 10,000 |
# | Llama 3 ([-@grattafiori2024]) | RoPE, base 500,000; in 3.1 the slow pairs are divided by 8, with a ramp |
#
# <details><summary>More models: YaRN, and partial RoPE</summary>
#
# | model | positions |
# |---|---|
# | GPT-NeoX-20B ([-@black2022]) | partial RoPE: a quarter of each head's columns, half layout |
# | Qwen2 ([-@yang2024qwen]) | RoPE, base 1,000,000; YaRN for longer texts |
# | DeepSeek-V3 ([-@deepseek2024]) | partial RoPE: 64 of a head's 192 columns; YaRN, factor 40 |
# | Gemma 3 ([-@gemma2025]) | RoPE, base 10,000 in local layers, 1,000,000 in global ones; there interpolation, factor 8 |
# **Partial RoPE** rotates only some columns of a head (`partial_rotary_factor`), so that the others compare contents at
# any distance.
#
# </details>
#
# **Why RoPE, if Shaw's vectors did better in our task?** One practical reason: the terms of Shaw and T5 belong to a
# *pair* of tokens, so they must be added inside the $n \times n$ scores. RoPE changes queries and keys one by one,
# before the product, so that fast attention kernels and key caches can be used unchanged ([lecture
# @cheap_attention](@cheap_attention)).
#
# *Read it:* the config of Llama 3.1 says `"rope_theta": 500000.0` and `"rope_scaling": {"rope_type": "llama3",
# "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}`. Which
# pairs are divided by 8?
# <details><summary>Answer</summary>Those that come full circle at most once in 8,192 tokens. Those that come full
# circle four times or more stay as they are. In between, the two are mixed. Newer configs (transformers 5) write all
# this as one dictionary, `rope_parameters`.</details>
#
# <details><summary>A common mistake: what most systems use</summary>
#
# > **A common mistake: "most systems use learned positions".** This was true of the best-known models around 2019, but
# > most open large models since 2023 use RoPE.
#
# </details>

# %% [raw] slide
# ## Which model uses which positions
# | model | positions |
# |---|---|
# | Transformer (2017) | sinusoidal, added to embeddings × $\sqrt{d_\text{model}}$ |
# | BERT, GPT-2, GPT-3 | learned, added |
# | T5 | biases in 32 buckets |
# | BLOOM | ALiBi |
# | Llama, Llama 3, Qwen2, Gemma 3 | RoPE, base 10,000 to 1,000,000 |
# | Llama 3.1 | the same base, slow pairs divided by 8 |

# %% [raw] slide
# ## In short
# | | | shape |
# |---|---|---|
# | sinusoidal | $\sin p\,\theta_i$, $\cos p\,\theta_i$; input $\sqrt{d_\text{model}}\, x_p + \mathrm{PE}(p)$ | $(n, d_\text{model})$ |
# | RoPE | pair $i$ turned by $m\,\theta_i$; the score depends on $m - n$ | $(n, d_k)$ |
# | relative (Shaw) | $e_{ij} = q_i \cdot (k_j + a^K_{j-i}) / \sqrt{d_k}$ | $(2r + 1, d_k)$ |
# | bias (T5, ALiBi) | $e_{ij} = q_i \cdot k_j / \sqrt{d_k} + b_{j-i}$ | a number a distance |
#
# What a scheme *can* express and what training *finds* differ: measure.
#
# **Now do** assignment a@order. **Next:** lecture @masking.

# %% [markdown]
# ## In short
#
# | | | shape |
# |---|---|---|
# | frequencies | $\theta_i = 10000^{-2i/d},\quad i = 0, \dots, d/2 - 1$ | $(d/2)$ |
# | sinusoidal | $\mathrm{PE}(p, 2i) = \sin p\,\theta_i,\quad \mathrm{PE}(p, 2i+1) = \cos p\,\theta_i$; input $x_p + \mathrm{PE}(p)$, in the paper with $\sqrt{d_\text{model}}\, x_p$ | $(n, d_\text{model})$ |
# | RoPE | pair $i$ of query and key at position $m$ rotated by $m\,\theta_i$; the score depends on $m - n$ | $(n, d_k)$ |
# | relative (Shaw) | $e_{ij} = q_i \cdot (k_j + a^K_{j-i}) / \sqrt{d_k}$ | $a^K$: $(2r + 1, d_k)$ |
# | relative bias (T5, ALiBi) | $e_{ij} = q_i \cdot k_j / \sqrt{d_k} + b_{j-i}$ | $b$: a number for each head and distance |
#
# * Without a mask, attention is permutation equivariant, so the order has to be put in.
# * Absolute schemes add a vector to each embedding, and it matters how long this vector is beside the embedding.
# * RoPE rotates queries and keys by their positions, and relative schemes put the distance into the score. Both know
#   positions only through their distance.
# * In our task RoPE failed at 32 times the trained length. The main reason, it seems, is that at some *new* distances
#   the fast pairs of a key look like those of the right key, and a long text has many keys there.
# * Context extension slows RoPE's slow pairs down, so that fewer of their angles are new.
#
# > **Check yourself.**
# > 1. Which of these schemes can be switched on *without further training* in a model that was trained without it?
# > 2. A program rotates queries by $m\theta_i$, as it should, but keys by $-n\theta_i$. Write the score with rotation
# >    matrices. On what does it depend?
# > 3. You translate sentences of at most 60 words. Does it matter which schemes keep working beyond the trained length?
# > 4. A config says `"rope_theta": 500000.0`. Which pairs are slower than with 10,000: all, or some?
# > <details><summary>Answers</summary>
# >
# > 1. None, because the weights have learned to read what they were given. What is *added* (a bias, Shaw's vectors, a
# >    learned table) may start at zero; then it changes nothing at first, and training can go on from there. A rotation
# >    changes the scores at once.
# > 2. $(q_m R_m)(k_n R_{-n})^\top = q_m R_m R_{-n}^\top k_n^\top = q_m R_{m+n} k_n^\top$: on the sum of the positions.
# >    The transpose reverses the key's rotation, so the positions are subtracted only if query and key are rotated in
# >    the same direction.
# > 3. Little. Inside the trained lengths sinusoids, a learned table, Shaw's vectors and RoPE all solved the task
# >    here, and in the original paper learned and sinusoidal ones were about equal.
# > 4. All but pair 0, whose frequency is 1 for every base; the last pair most of all.</details>
#
# **Now do** [assignment @order](@order/assignment) (a little less than two hours): five exercises, a question in
# words, and an extension. **Next:** [lecture @masking](@masking).
#
# **Further reading.** [+@fleetwood2024]: from integers through binary digits to rotations, with animations.
# [+@vaswani2017]: sections 3.4 and 3.5. [+@shaw2018]: section 3. [+@su2021]: section 3. [+@peng2024yarn]: section 3.
#
# <details><summary>Other ideas, and where they come from</summary>
#
# [+@gehring2017]. [+@raffel2020]: section 2.1. [+@press2022]. [+@haviv2022]. [+@kazemnejad2023]. [+@chen2023].
# [+@dai2019]: sinusoids of the distance. [+@wang2019]: positions in a parse tree. [+@kiyono2021]: absolute positions
# that are shifted at random in training.
#
# </details>
