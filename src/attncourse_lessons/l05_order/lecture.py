# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3 (ipykernel)
#     language: python
#     name: python3
# ---

# %% [markdown] teaches="self-attention does not see order"
# # Lecture @order · Positional encoding: telling attention where tokens stand
#
# *About 59 minutes, of which less than one is computing time. You need self-attention with its queries, keys and values
# ([lecture @self_attention](@self_attention)), and sine, cosine and rotation by an angle, as taught at school.*
#
# After this lecture you can
#
# * say what attention does not know without **positions**, and what a causal mask changes;
# * write **sinusoidal positional encodings** and **rotary embeddings (RoPE)** from memory;
# * tell **absolute**, **rotary** and **relative** schemes apart by the place where the position enters;
# * say what multiplying embeddings by $\sqrt{d_\text{model}}$ changes, and how it is usually explained;
# * read RoPE's numbers in a model's config (`rope_theta`, `rope_scaling`; in newer ones `rope_parameters`);
# * say what each scheme did beyond the trained length in our task, how we found the cause, and what **context
#   extension** changes.
#
# ## Why attention needs positions: two dogs
#
# *The dog chased another dog.* Only the order of the words says which dog runs away. Self-attention is **permutation
# equivariant** ([lecture @self_attention](@self_attention)): if you shuffle its inputs, its outputs are shuffled in
# the same way and do not change otherwise. Both dogs go in as the same vector. *Guess before you run the cell:* do
# both dogs come out as the same vector? And under a **causal mask**, where each token attends only to itself and to
# earlier tokens?

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
# ## Two dogs: why attention needs positions
# > *The **dog** chased another **dog**.*
#
# Self-attention is **permutation equivariant**: shuffle the inputs, and the outputs are shuffled along.
#
# > **Guess first.** Both dogs go in as the same vector. Do they come out as the same vector? And under a **causal mask**?

# %%
words = ["the", "dog", "chased", "another", "dog"]
torch.manual_seed(0)
embedding = {word: torch.randn(16) for word in sorted(set(words))}
x = torch.stack([embedding[word] for word in words])             # (5, 16)
W_Q, W_K, W_V = torch.randn(3, 16, 16) / 4


def self_attention(x, mask=None):
    return attend(x @ W_Q, x @ W_K, x @ W_V, mask)               # (n, 16), (n, n)


y, A = self_attention(x)                                         # every token sees all
mask = causal_mask(5)                                            # (5, 5)  True where j ≤ i
y_causal, A_causal = self_attention(x, mask)
print(f"no mask:     the two dogs differ by {(y[1] - y[4]).abs().max():.3f}")
print(f"causal mask: the two dogs differ by {(y_causal[1] - y_causal[4]).abs().max():.3f}")
dogs = torch.stack([A[1], A[4], A_causal[1], A_causal[4]])       # (4, 5)
seen = ["first dog, no mask", "second dog, no mask", "first dog, causal", "second dog, causal"]
allowed = torch.stack([mask[4], mask[4], mask[1], mask[4]])      # (4, 5)
figures.weights_allowed(dogs, allowed, seen, words)
#| caption: Attention weights of the two dogs, without positions: equal without a mask,
#|   different under a causal mask. Hatched: forbidden.

# %% tags=["hide-input"]
assert torch.allclose(y[1], y[4], atol=1e-6) and (y_causal[1] - y_causal[4]).abs().max() > 0.01

# %% [raw] slide
# ## A causal mask tells something about order
# {print}
# {figure}

# %% [markdown]
# Without a mask, both dogs have the same query and the same five keys, so their outputs are equal. With the causal
# mask they differ: the first dog sees two tokens, the second sees five. So a causal mask tells a model something
# about order. How much? The next cell shuffles the four tokens before the second dog.

# %%
shuffled = [2, 3, 0, 1, 4]                                       # chased another the dog … dog
y_shuffled, _ = self_attention(x[shuffled], causal_mask(5))
print(f"the second dog moves by {(y_shuffled[4] - y_causal[4]).abs().max():.6f}")

# %% tags=["hide-input"]
assert torch.allclose(y_shuffled[4], y_causal[4], atol=1e-6)

# %% [raw] slide
# ## Which tokens came before, and not in which order
# {print}
#
# Shuffle what stands before the second dog: its output does not move. Several causal layers can work out more (Haviv et al. 2022); an encoder cannot.

# %% [markdown] erratum="identical output; outputs 2 and 5"
# The output does not move. After one layer of causal attention, a token knows *which* tokens came before it, but not
# in which order. Several layers can work out more: language models with a causal mask and no positions come close to
# models with positions ([@haviv2022]). An encoder has no causal mask. Without positions it cannot tell *the dog
# chased the cat* from *the cat chased the dog*.
#
# > **A common mistake: "without positions, equal tokens have identical outputs".** Without a mask this is right.
# > Under a causal mask it is wrong: Llama without its RoPE would still give the two dogs different outputs.
#
# > **Check yourself.** An encoder without positions reads *A big dog and a very big cat* and *A big cat and a very big
# > dog*. You average the outputs of each sentence. How do the averages differ?
# > <details><summary>Answer</summary>Not at all. Both sentences contain the same words, each the same number of times, so the
# > outputs are the same vectors in another order. An average does not depend on the order.</details>
#
# **Where can a position enter?** The figure shows the path from the input to the output of one attention layer. An
# *absolute* scheme changes the input, so the position reaches queries, keys and values. *Rotary* embeddings change
# queries and keys only. *Relative* schemes add a term to the score; Shaw's scheme also changes the values.
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

# %%
figures.ways_in()
#| caption: Where positions can enter: the input, query and key, the score, the values. (Shaw's
#|   term of the score comes from a vector added to the key.)
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
# > **Guess first.** A sum cannot be taken apart. Would **concatenating**, $[x_p; \mathrm{PE}(p)]$, be better?
#
# . . .
# $[x; \mathrm{PE}]$ gives $xW_1 + \mathrm{PE}\,W_2$; adding is the case $W_1 = W_2$. Positions need few directions of a wide space, and training can keep the words out of them.

# %% [markdown]
# This page takes five steps: **add** a position to the input; **turn** query and key; **learn** a vector or a number
# for each position or distance; **test** the schemes beyond the trained length; **use** them.
#
# ## Absolute positions: add a vector for each position
#
# *Step 1: add.* An **absolute positional encoding** gives position $p$ a vector. The vector is added to the embedding
# before the first layer:
#
# $$\tilde x_p = x_p + \mathrm{PE}(p)$$
#
# Now the two dogs are different vectors. But a sum does not say which part is which. Would it be better to
# **concatenate**, $[x_p; \mathrm{PE}(p)]$? *Guess:* what can a first projection of the longer vector do that one of
# the sum cannot?

# %%
PE, W = torch.randn(5, 16), torch.randn(16, 16)
side_by_side = torch.cat([x, PE], dim=-1)                        # (5, 32)
same = torch.allclose(side_by_side @ torch.cat([W, W]), (x + PE) @ W, atol=1e-4)
print("adding is concatenating, with one matrix for both:", same)

# %% tags=["hide-input"]
waves = positions.sinusoidal(torch.arange(64), 512)              # (64, 512)  of a later section
needed = {}
for name, rows in {"sinusoidal": waves, "random": torch.randn(64, 512)}.items():
    spread = torch.linalg.svdvals(rows - rows.mean(dim=0)) ** 2  # (64,)
    needed[name] = int((spread.cumsum(0) < 0.95 * spread.sum()).sum()) + 1
    print(f"64 {name} vectors: {needed[name]} directions hold 95% of their variance")
assert needed["sinusoidal"] < 20 and needed["random"] > 50

# %% [markdown] teaches="integers and binary digits as positions"
# The longer vector gives $xW_1 + \mathrm{PE}\,W_2$; the sum is the case $W_1 = W_2$. Two matrices are more general,
# but the vectors are wider. A wide vector also leaves room for both. At width 512, fewer than 20 directions hold 95%
# of the variance of 64 sinusoidal vectors, where random vectors need more than 50 (last lines). Nearly 500 directions
# are left for the words, and training can move the words there.
#
# ## Integers and binary digits: two first attempts
#
# **First attempt: the number itself** in every column, so position 7 is a vector of sevens. *Guess:* what goes wrong
# in a long text? The cell puts two different words at the same position and measures how similar they look.

# %% [raw] slide
# ## First attempt: the number itself
# > **Guess first.** Position 7 is a vector of sevens. What goes wrong in a long text?

# %%
word, other = torch.randn(2, 64, generator=torch.Generator().manual_seed(1))
for p in (0, 1, 10, 100):
    PE = positions.integer(torch.tensor(p), 64)                  # (64,)  p, p, …, p
    print(f"position {p:>3}: cosine {F.cosine_similarity(word + PE, other + PE, dim=0):.3f}")
at_0, at_100 = F.layer_norm(word, (64,)), F.layer_norm(word + 100, (64,))
print(f"after a LayerNorm, 100 differs from 0 by {(at_100 - at_0).abs().max():.5f}")

# %% [raw] slide
# ## Integers drown the word, and LayerNorm removes them
# {print}
#
# Cosine of two *different* words at the same position.

# %% [markdown]
# At position 100 two unrelated words look the same, because the number is much larger than the words. The last line
# shows a second problem. Many Transformers have a **LayerNorm** in front of attention ([lecture
# @deep_stacks](@deep_stacks)), which subtracts the mean over the columns. An integer position is equal in all
# columns, so LayerNorm removes it. (RMSNorm, which most recent models use, subtracts no mean.)
#
# **Second attempt: binary digits**, one in each column. They are bounded, and all positions differ. From column to
# column the **period** doubles: 2, 4, 8, 16. The left panel shows the digits. The middle panel is a smooth version:
# each *pair* of columns holds a sine and a cosine of one period. The right panel shows how far each position's vector
# is from that of the chosen position. *Before you move the slider, guess:* which number is furthest from 7 in digits?
# What happens to the curve of the waves when the slider moves?

# %% [raw] slide
# ## Second attempt: binary digits, or waves
# > **Guess first.** Which number is furthest from 7 in binary digits?

# %%
viz.explore(figures.binary_and_waves, position=range(16), start={"position": 7})
#| caption: Digits and waves (blue above 0, orange below); distances from the chosen position.
#|   The waves begin at period 4: with period 2 every sine would be 0.

# %% [raw] slide
# ## Digits jump, waves turn
# {figure}

# %% [raw] slide
# ## Sinusoidal positional encoding
# $$\mathrm{PE}(p, 2i) = \sin(p\,\theta_i), \qquad \mathrm{PE}(p, 2i + 1) = \cos(p\,\theta_i)$$
#
# $$\theta_i = 10000^{-2i/d}, \qquad i = 0, 1, \dots, d/2 - 1$$
#
# A pair of columns for each **frequency**: periods from 6.3 tokens to tens of thousands. (Vaswani et al. 2017, section 3.5)

# %% [markdown] teaches="sinusoidal positions, and shifts as a linear map"
# In digits, 8 is the furthest from 7, because all four digits flip (0111, 1000). A model that looks for the token
# just before would have to learn subtraction with borrowing. In waves the curve keeps its shape and only moves along:
# the distance between two vectors depends only on the distance between the positions. (At 8 places the two fastest
# pairs are back at their start, so the curve turns back. More and slower pairs prevent this.)
#
# ## Sinusoidal positional encoding: a pair of columns for each frequency
#
# **Sinusoidal positional encoding** ([-@vaswani2017, section 3.5]) is made of such waves. Pair
# $i = 0, 1, \dots, d/2 - 1$ of the columns has the **frequency** $\theta_i = 10000^{-2i/d}$, where $d$ is
# $d_\text{model}$:
#
# $$
# \mathrm{PE}(p, 2i) = \sin(p\,\theta_i), \qquad \mathrm{PE}(p, 2i + 1) = \cos(p\,\theta_i)
# $$
#
# Pair 0 turns by one radian per position, so its period is $2\pi \approx 6.3$ tokens. With $d = 64$ there are 32
# pairs, and the slowest has a period of $2\pi \cdot 10000^{62/64} \approx 47{,}000$ tokens. Each frequency is a
# constant factor below the one before, as in binary digits, so there is a pair for distances of every size.

# %%
def one_position(p, d_model, pairs):
    numbers = []
    for i in pairs:
        theta = 10000 ** (-2 * i / d_model)
        numbers += [math.sin(p * theta), math.cos(p * theta)]
    return torch.tensor(numbers)                                 # (2 · pairs,)


table = positions.sinusoidal(torch.arange(64), 64)               # (64, 64)  the package's
same = torch.allclose(one_position(3, 64, range(32)), table[3], atol=1e-5)
print("position 3 is row 3 of the table:", same)
figures.position_vectors(table, columns=[8, 9, 16, 24], title="sinusoidal position vectors")
#| caption: Sinusoidal position vectors, 64 positions by 64 columns.
#| label: sinusoids

# %% [raw] slide
# ## Fast pairs, slow pairs
# {figure}
#
# **A common mistake: pairs counted from 1.** Good vectors, but not the paper's.

# %% [markdown]
# Each row on the left is a position. The first columns change fast. The last third hardly changes: 64 positions are a
# small part of a period of thousands. In the right panel, columns 8 and 9 are one pair: the same wave, shifted by a
# quarter of a period.

# %% [markdown] erratum="twice the rows; pairs counted from 1"
# <details><summary>Pairs counted from 1</summary>
#
# > **A common mistake: pairs counted from 1.** Many slides do this, so that the first exponent is $2 \cdot 1/d$. These are
# > good vectors, but not the paper's (position 3 is off by up to 0.6), and weights trained with one do not fit the other.
# > (Pairs up to the exponent $2 \cdot d/d$ would be twice as many numbers as the vector has.)
#
# </details>

# %% tags=["hide-cell"] jupyter={"source_hidden": true, "outputs_hidden": true}
# pairs counted from 1
from_1 = one_position(3, 64, range(1, 33))
print(f"counted from 1, position 3 is off by {(from_1 - table[3]).abs().max():.2f}")
print(f"up to the pair d: {len(one_position(3, 64, range(1, 65)))} numbers for d = 64")
assert (from_1 - table[3]).abs().max() > 0.1 and len(one_position(3, 64, range(1, 65))) == 128

# %% [markdown]
# Which positions have similar vectors? The figure shows the dot product of a position's vector with those of its
# neighbours, for waves and for digits (written as ±1, because a 0 adds nothing to a dot product). You know that the
# curve of the waves only moves along. *Guess:* how large is it at offset 16, near 0 or near 1? Which neighbour of 47
# (101111) is the least similar in digits?

# %% tags=["hide-input"]
offsets = torch.arange(-16, 17)
digits = 2 * positions.binary(torch.arange(64), 8) - 1           # (64, 8)
hills = {}
for name, vectors in {"waves": table, "digits": digits}.items():
    for p in (20, 47):
        products = vectors[p + offsets] @ vectors[p]             # (33,)
        hills[f"{name} around {p}"] = products / (vectors[p] @ vectors[p])
viz.function_curves(hills, offsets, x_name="offset", y_name="dot product (1 at offset 0)")
#| caption: Dot product of two position vectors against their offset, around two positions: the
#|   curves of the waves coincide, those of the digits do not.

# %% tags=["hide-input"]
waves_20, waves_47, digits_20, digits_47 = hills.values()
assert torch.allclose(waves_20, waves_47, atol=1e-5)
assert not torch.allclose(digits_20, digits_47, atol=0.1)
assert 0.5 < waves_20[-1] < 0.7 and offsets[digits_47.argmin()] == 1

# %% [raw] slide
# ## The dot product contains the offset, and not the place
# {figure}
# |||
# $\mathrm{PE}(p) \cdot \mathrm{PE}(p + k)$ is $\sum_i \cos(k\,\theta_i)$
#
# For the digits, the curve around 47 differs from the one around 20.
#
# **Now you:** a@order, exercise 1

# %% [markdown] erratum="positions after the projections" teaches="sinusoidal positions, and shifts as a linear map"
# The two curves of the waves coincide, because $\mathrm{PE}(p) \cdot \mathrm{PE}(p + k) = \sum_i \cos(k\,\theta_i)$
# contains the offset $k$ and not $p$. At offset 16 it is still above one half, because half of the pairs turn by 0.16
# radians or less in 16 places. For the digits, the curve around 47 differs from the one around 20. The least similar
# neighbour of 47 is the next one, 48 (110000): five digits flip.
#
# <details><summary>Positions after the projections</summary>
#
# > **A common mistake: adding the position after the projections.** Some slides write "add PE to query, key and value" and
# > mean the inputs, before $W_Q$ and $W_K$. Taken literally, after them, it is a weaker scheme. A position in the *input*
# > gives the score a term $\mathrm{PE}(p)\, W_Q W_K^\top \mathrm{PE}(p + k)^\top$, which training can shape. If the vectors
# > are added *after* the projections, this term is the fixed curve above: it always peaks at offset 0, and training cannot
# > move the peak.
#
# </details>
#
# **Now you:** [a05](@order/assignment), exercise 1.
#
# ## The shift matrix: one rotation for each distance
#
# Why sines *and* cosines? With both, $\mathrm{PE}(p + k)$ is a linear function of $\mathrm{PE}(p)$. Take one pair at the
# angle $\varphi = p\,\theta$. After $k$ more positions the angle is $\varphi + \delta$ with $\delta = k\,\theta$, and the
# addition formulas say
#
# $$
# \begin{aligned}
# \sin(\varphi + \delta) &= \cos\delta\, \sin\varphi + \sin\delta\, \cos\varphi, \\
# \cos(\varphi + \delta) &= \cos\delta\, \cos\varphi - \sin\delta\, \sin\varphi.
# \end{aligned}
# $$
#
# The new pair is a weighted sum of the old pair, and the factors contain $\delta$, not $\varphi$. So a $2 \times 2$
# matrix leads from $(\sin\varphi, \cos\varphi)$ to the new pair. It is a **rotation** by $\delta$, the same at every
# position. One large matrix moves all pairs: $\mathrm{PE}(p + k) = \mathrm{PE}(p)\, M_k$.
#
# A head can use this matrix. Take a head as wide as the model, leave the words out, and let $W_Q = M_{-2}$ and
# $W_K = I$. The query of position $i$ is then $\mathrm{PE}(i)\, M_{-2} = \mathrm{PE}(i - 2)$. It is equal to the key of
# position $i - 2$, and that key gets the highest score. *Guess:* up to which length does this work?

# %% [raw] slide
# ## The shift matrix: one rotation for each distance
# With $\varphi = p\,\theta$ and $\delta = k\,\theta$:
#
# $$\sin(\varphi + \delta) = \cos\delta\, \sin\varphi + \sin\delta\, \cos\varphi, \qquad \cos(\varphi + \delta) = \cos\delta\, \cos\varphi - \sin\delta\, \sin\varphi$$
#
# $$\mathrm{PE}(p + k) = \mathrm{PE}(p)\, M_k$$
#
# A head that always looks two places back **exists**: $W_Q = M_{-2}$, $W_K = I$. Whether training **finds** it is another question.
#
# **Now you:** a@order, exercise 2

# %%
M = positions.shift_matrix(-2, 64)                               # (64, 64)
vectors = positions.sinusoidal(torch.arange(1000), 64)           # (1000, 64)
found = (vectors @ M @ vectors.mT).argmax(dim=-1)                # (1000,)  the best key of each
right = (found[2:] == torch.arange(998)).sum().item()
print(f"{right} of 998 queries attend most to the key two places back")

# %% [markdown] teaches="rotary embeddings"
# It works at every position that we tried, and the reason holds at any length: all position vectors are equally long,
# so none has a larger product with the vector of position $i - 2$ than that vector itself. A head whose highest score
# is always two places back therefore *exists*. (For a large *weight* on this key the matrix also needs a large factor.)
# Whether gradient descent *finds* such a head is another question.
#
# **Now you:** [a05](@order/assignment), exercise 2.
#
# ## Rotary embeddings (RoPE): turn, do not add
#
# *Step 2: turn.* Sinusoids have a rotation for each distance, but they are *added* to the embeddings. From here on a
# query stands at position $m$ and a key at position $n$, as in the papers. With $B = W_Q W_K^\top$ the score has four
# terms:
#
# $$\bigl(x_m + \mathrm{PE}(m)\bigr) B \bigl(x_n + \mathrm{PE}(n)\bigr)^\top = x_m B x_n^\top + x_m B\, \mathrm{PE}(n)^\top +
# \mathrm{PE}(m) B x_n^\top + \mathrm{PE}(m) B\, \mathrm{PE}(n)^\top$$
#
# The two terms in the middle contain one position each, so they can change if both tokens move together. Su et al. ([-@su2021]) look for a function $f$ that puts a position *into* a
# vector, so that the score depends on the positions only through their distance:
#
# $$f(q_m, m) \cdot f(k_n, n) = g(q_m, k_n,\, m - n).$$ (eq:relative)
#
# A **rotation** does this. The dot product of two arrows does not change if both are turned by the same angle. So turn
# the query by $m\,\theta$ and the key by $n\,\theta$. The angle between them then changes by
# $(m - n)\,\theta$, wherever they stand.
#
# In "Of course *we know*" the two words stand at positions 2 and 3; in "*we know* that" they stand at 0 and 1. In the figure
# *know* is the query (green), and *we* is the key (blue). Before the turn, *know* points to 20 degrees and *we* to −52
# degrees (pale arrows). Each position turns by 25 degrees. *Guess first:* which angle is between them at the offsets 1, 2
# and 3, and does the score rise or fall? Then choose an offset, and move the shift, which moves both words.

# %% [raw] slide
# ## Rotary embeddings (RoPE): turn, do not add
# Added positions give a score of four terms; two contain one position alone. Su et al. (2021) ask for
#
# $$f(q_m, m) \cdot f(k_n, n) = g(q_m, k_n,\, m - n)$$
#
# . . .
# **A rotation does this**: turn the query by $m\theta$, the key by $n\theta$. Relative to each other they are turned by $(m - n)\theta$, wherever they stand.
#
# > **Guess first.** Both words move together. Which score stays: turned, or added?

# %%
viz.explore(
    figures.rotated_pair,
    offset=[1, 2, 3],
    shift=range(6),
    start={"offset": 1, "shift": 2},
    names={"offset": "offset: how far apart", "shift": "shift: both together"},
)
#| caption: Rotary embeddings: query and key are turned by their positions (pale: before).
#|   Right: the score over the shifts; dashed: with positions added.

# %% [raw] slide
# ## Move both words
# {figure}

# %% [markdown]
# When the shift moves, both arrows turn together, so the angle between them and the score depend only on the offset.
# Here a larger offset opens the angle, from 97 to 122 and 147 degrees, and the score falls. (For two other words it may
# rise.) The dashed line is the
# score of the same two words with sine and cosine *added*, with the identity for $B$. It changes with the shift.
#
# A head has more than two columns. So RoPE takes the columns in pairs and gives pair $i = 0, \dots, d_k/2 - 1$ the
# frequency $\theta_i = 10000^{-2i/d_k}$, as the sinusoids do. Each pair $(a, b)$ of a query at position $m$ is turned
# by the angle $m\,\theta_i$, and each pair of a key at position $n$ by $n\,\theta_i$:
#
# $$(a,\ b)\ \longmapsto\ \bigl(a \cos m\theta_i - b \sin m\theta_i,\ \ a \sin m\theta_i + b \cos m\theta_i\bigr)$$ (eq:rope)
#
# This is **RoPE**, the rotary position embedding. A head of
# eight columns has four pairs. *Guess:* which of them is back at its start after a few tokens, and which hardly
# moves?

# %% [raw] slide
# ## RoPE: a dial for each pair of columns
# $$(a,\ b)\ \longmapsto\ \bigl(a \cos m\theta_i - b \sin m\theta_i,\ \ a \sin m\theta_i + b \cos m\theta_i\bigr)$$
#
# > **Guess first.** A head of eight columns has four pairs. Which is back at its start after a few tokens, and which hardly moves?

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
# Pair 0 turns far from one token to the next, and after 6 tokens it is nearly back at its start. Pairs 2 and 3 hardly
# move between neighbours, and have not come full circle at position 300, so they distinguish near from far. The next cell
# turns one pair by [@eq:rope], and then whole vectors with the package's `rotate`.

# %%
a, b, angle = 1.0, 0.5, 6 * 0.1                                  # pair 1 at m = 6, θ_1 = 0.1
print(f"pair 1 at position 6: (1, 0.5) → ({a * math.cos(angle) - b * math.sin(angle):.2f},"
      f" {a * math.sin(angle) + b * math.cos(angle):.2f})")


def turn(x, m):
    """One vector x (d,), as it appears at position m: every pair turned."""
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
# Queries and keys are turned, in every layer. Values are not.

# %% [markdown]
# The same distance gives the same score. As a matrix on the right of the row $(a, b)$, the rotation of one pair is
#
# $$R_m = \begin{pmatrix} \cos m\theta & \sin m\theta \\ -\sin m\theta & \cos m\theta \end{pmatrix}, \qquad
# (q_m R_m)(k_n R_n)^\top = q_m\, R_m R_n^\top k_n^\top = q_m\, R_{m-n} k_n^\top,$$
#
# because the transpose of a rotation is the rotation by the opposite angle.
#
# <details><summary>Other ways to write it: complex numbers, counting from 1</summary>
#
# The paper also writes a pair as a complex number $a + \mathrm{i}b$, and the rotation as the product with
# $\exp(\mathrm{i}\,m\theta)$. It counts pairs from 1: $\theta_i = 10000^{-2(i-1)/d}$. The shift matrix of the sinusoids
# turns the other way, because there the sine comes first.
#
# </details>
#
# Queries and keys are turned after their projections, in every layer. Values are not turned. In a dot product the two
# rotations leave only the distance, but in the average of the values nothing would undo a rotation. RoPE has no
# parameters and adds nothing to the embeddings.
#
# **Absolute or relative?** RoPE is absolute in what it does: each vector is turned by its own position. It is relative
# in its effect: the score depends on $m - n$ alone.
#
# <details><summary><b>A common mistake</b>: positions in bfloat16</summary>
#
# Most large models run in bfloat16. Beyond 256 this type cannot write every whole number, so the positions 0 to 999 become
# only some 500 different numbers (folded cell below), and neighbours stand at the same position. Positions and angles are
# therefore computed in float32.
# </details>

# %% tags=["hide-cell"] jupyter={"source_hidden": true, "outputs_hidden": true}
# positions in bfloat16
places = torch.arange(1000).bfloat16()
print(f"{len(places.unique())} different positions; 257 is read as {places[257]:.0f}")
assert len(places.unique()) < 600 and places[257] == 256

# %% [markdown]
# ### Two layouts: interleaved and half
#
# There are two ways to choose the pairs; [@fig:rope] shows them above the dials. The paper takes neighbours, $x_{2i}$
# and $x_{2i+1}$ (**interleaved**). GPT-NeoX, and Llama in the transformers library, take $x_i$ and $x_{i + d/2}$
# (**half**). The two differ only in the order of the columns, and a dot product stays the same if query and key are
# reordered in the same way. The folded code tests both claims.

# %% tags=["hide-input"]
def scores_of(q, k, style):
    return rotate(q, angles, style) @ rotate(k, angles, style).mT             # (10, 10)


angles, q, k = rope_angles(torch.arange(10), 64), torch.randn(10, 64), torch.randn(10, 64)
evens_first = [*range(0, 64, 2), *range(1, 64, 2)]
by_neighbours = scores_of(q, k, "interleaved")
rearranged = scores_of(q[:, evens_first], k[:, evens_first], "half")
untouched = scores_of(q, k, "half")
print(f"half, columns rearranged: off by {(rearranged - by_neighbours).abs().max():.5f}")
print(f"half, columns untouched:  off by {(untouched - by_neighbours).abs().max():.2f}")


def rotate_half(x):                                              # (a, b) → (−b, a), in halves
    a, b = x.chunk(2, dim=-1)
    return torch.cat([-b, a], dim=-1)


print("rotate_half of 1, 2, 3, 4:", rotate_half(torch.tensor([1, 2, 3, 4])).tolist())

# %% [markdown]
# Both layouts are equally good, but weights trained with one need their columns rearranged for the other. If you
# forget this, nothing crashes, but the scores are wrong, here by up to 20.
#
# <details><summary>The half layout in the code of models: <code>rotate_half</code></summary>
#
# You will meet it as `x * cos + rotate_half(x) * sin`. Here `rotate_half` turns all pairs by a quarter at once,
# $(a, b) \mapsto (-b, a)$: the last printed line turns the pairs (1, 3) and (2, 4).
# Some slides write ⊗ for the two products, as Su et al. ([-@su2021]) do. It means element by element; in most books ⊗ is
# the outer or Kronecker product.
#
# </details>
#
# ### The base: `rope_theta`
#
# Let query and key be the same vector of ones. After the rotation their score is $2 \sum_i \cos \bigl((m -
# n)\theta_i\bigr)$, a function of the distance. *Guess:* what shape does this function have? What changes with a
# **base** of 500,000 instead of 10,000?

# %% [raw] slide
# ## Two layouts, and the base
# | layout | pairs | |
# |---|---|---|
# | **interleaved** | $x_{2i}, x_{2i+1}$ | the paper |
# | **half** | $x_i, x_{i + d/2}$ | GPT-NeoX, Llama |
#
# Weights trained with one need their columns rearranged for the other. Without that nothing crashes, and the model writes nonsense.
#
# > **Guess first.** The score of equal vectors against their distance: what shape? And with `rope_theta` 500,000 for 10,000?

# %%
apart = torch.arange(1, 100_001)                                 # (100000,)
decay = {f"base {base:,}": rope_angles(apart, 128, base).cos().mean(dim=-1)
         for base in (10_000, 500_000)}
figures.score_decay(decay, apart)
#| caption: Score of two equal vectors under RoPE, against their distance, for two bases.
#|   Line: mean of neighbouring distances; bands (one hatched): lowest to highest.
#| label: rope-decay

# %% [raw] slide
# ## Long-term decay
# {figure}
#
# **Now you:** a@order, exercise 3

# %% [markdown] teaches="learned absolute positions"
# The score falls with the distance. With the base 10,000 it then moves around zero, because the pairs point in all
# directions. This is RoPE's **long-term decay**. Su et al. ([-@su2021, section 3.4.3]) show it for an upper bound of
# the score; the score of a trained query and key need not decay. A larger base slows all pairs but pair 0, and slows
# the slow pairs most, so the score falls over more tokens. In a model's config the base is called `rope_theta`.
#
# > **Check yourself.** A model with RoPE writes token by token and keeps the past keys in a cache. Must it turn the
# > cached keys again for every new token?
# > <details><summary>Answer</summary>No. A key is turned once, by its own position. The distance arises in the dot
# > product.</details>
#
# **Now you:** [a05](@order/assignment), exercise 3.
#
# ## Learned positional embeddings: a table
#
# *Step 3: learn.* Sinusoids are a fixed formula. The alternative is a **learned positional embedding**: a table with
# a row for each position, random at first, and trained like the rest. *Guess:* what does a table with 32 rows do with
# a 33rd token?

# %%
learned = LearnedPositions(max_length=32, d_model=64)
print("parameters:", learned.table.numel(), "  32 positions:", tuple(learned(32).shape))
try:
    learned(33)
except ValueError as error:
    print(error)

# %% [raw] slide
# ## Learned positional embeddings: a table
# > **Guess first.** What does a table with 32 rows do with a 33rd token?
#
# . . .
# {print}
# . . .
# **A common mistake: positions counted along the batch**, `torch.arange(x.size(0))`. All tokens of a sentence get one position, and the loss falls all the same.

# %% [markdown] erratum="positions by the batch"
# The table refuses, because position 32 has no row. Its advantages: nobody has to choose a formula, and position 0,
# which is special in many texts, can have a special vector. Gehring et al. ([-@gehring2017]) used learned position
# vectors, and Vaswani et al. ([-@vaswani2017, table 3, row E]) found them as good as sinusoids.
#
# > **A common mistake: positions counted along the batch.** One slide deck looks up the rows with
# > `torch.arange(x.size(0))`. The input is batch first, so all tokens of a sentence get *one* position, which depends
# > on the place of the sentence in the batch. The loss falls all the same ([lecture @errata_lab](@errata_lab)). A
# > short test finds the mistake: run the sentence alone, and then as the last one in a batch of three.

# %% tags=["hide-input"]
def add_positions_as_printed(x):                                 # x (batch, n, d)
    pos = torch.arange(x.size(0)).unsqueeze(1)                   # (batch, 1)
    return x + learned.table[pos]                                # (batch, n, d) + (batch, 1, d)


sentence, company = torch.randn(1, 5, 64), torch.randn(2, 5, 64)
alone = add_positions_as_printed(sentence)[-1]                                # (5, 64)
last_of_three = add_positions_as_printed(torch.cat([company, sentence]))[-1]  # (5, 64)
print(f"alone and in a batch of three it differs by {(alone - last_of_three).abs().max():.2f}")

# %% tags=["hide-input"]
assert not torch.allclose(alone, last_of_three, atol=0.01), "it depends on the batch"

# %% [markdown] teaches="relative positions: Shaw on keys and on values"
# ## Relative positions: a vector for each distance (Shaw)
#
# A model often needs "the token before *cat*", and rarely "token 417". **Relative positions** give the model the
# distance itself. In Shaw et al. ([-@shaw2018]) every distance $j - i$ from a query to a key has two learned vectors,
# which all heads can share. One is added to the key, the other to the value. From here on $i$ is the query's position and
# $j$ the key's, as in these papers:
#
# $$
# e_{ij} = \frac{q_i \cdot \bigl(k_j + a^K_{j-i}\bigr)}{\sqrt{d_k}} \qquad\quad
# o_i = \sum_j \alpha_{ij} \bigl(v_j + a^V_{j-i}\bigr)
# $$
#
# Distances beyond $\pm r$ are clipped to $\pm r$, so the table has $2r + 1$ rows. Take the text *we know that you know it*,
# with $r = 2$. *Guess:* which six distances does the query *it* have to the six keys? Where in the figure are equal
# distances? (You write the package's `relative_index` in exercise 4.)

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
# The last row is −2, −2, −2, −2, −1, 0, and the distance is equal along each diagonal. Both occurrences of *know* see
# their neighbours in the same way, wherever they stand. The cell computes one query in code, with the value side.

# %%
torch.manual_seed(0)
q, k, v = torch.randn(3, 6, 16)                                  # (6, 16) each
shaw = ShawRelative(max_distance=2, d_head=16)                   # shaw.key, shaw.value: (5, 16)
i = 3                                                            # one query, "you"
scores = torch.stack([q[i] @ (k[j] + shaw.key[index[i, j]]) for j in range(6)]) / math.sqrt(16)
alpha = scores.softmax(dim=0)                                    # (6,)
o = sum(alpha[j] * (v[j] + shaw.value[index[i, j]]) for j in range(6))       # (16,)
A = ((q @ k.mT + shaw.scores(q, n_key=6)) / math.sqrt(16)).softmax(dim=-1)    # (6, 6)  all
print("the package agrees:", torch.allclose(o, (A @ v + shaw.output(A))[i], atol=1e-5))

# %% [markdown] teaches="Shaw's BLEU for every clipping distance @ Relative positions"
# <details><summary>How large must $r$ be? The paper's BLEU scores</summary>
#
# For translation from English to German the paper measures
#
# | $r$ | 0 | 1 | 2 | 4 | 16 | 64 | 256 |
# |---|---|---|---|---|---|---|---|
# | BLEU | 12.5 | 25.5 | 25.8 | 25.9 | 25.8 | 25.9 | 25.8 |
#
# With $r = 0$ all distances look alike, and half of the BLEU score is gone. With $r = 1$ the table has three
# rows, *before*, *here* and *after*: even the neighbour looks like every other earlier token. Yet nearly all of the score
# is there. One layer then knows only the side; several may work out more. (The paper prints one
# number for each $r$, so differences of 0.1 mean nothing.)
# </details>
#
# **Now you:** [a05](@order/assignment), exercise 4.

# %% [markdown]
# ## Relative biases: a number for each distance (T5, ALiBi)
#
# A number for each distance is cheaper than a vector: $e_{ij} = q_i \cdot k_j / \sqrt{d_k} + b_{j-i}$.
#
# * **T5** ([@raffel2020]) learns the numbers for each head. Each near distance has a number of its own. Far
#   distances share one, in **buckets** that grow with the distance. (T5 leaves $\sqrt{d_k}$ out.)
# * **ALiBi** (*attention with linear biases*, [@press2022]) learns nothing: $b_{j-i} = -\text{slope} \cdot \lvert i -
#   j \rvert$, with a fixed slope for each head. Some heads see near tokens, others far ones.
#
# T5 has 32 numbers for each head. Half of them are for keys to the right of the query, the other half for the rest.
# In each half, eight of the sixteen numbers belong to a single distance each, counted from 0. *Guess:* up to which
# distance does each distance have its own number? Which number becomes the largest in a head that looks two places
# back?

# %% tags=["hide-input"]
kept = measured("positions")                                     # runs that were recorded
distances = range(-31, 32)
bias = positions.BucketedBias(n_heads=4, n_buckets=32, max_distance=128)
buckets = bias.buckets(torch.tensor([*distances])).tolist()
slopes = {"1/4": 1 / 4, "1/16": 1 / 16, "1/64": 1 / 64}          # ALiBi's, in three heads
trained = [run["bias"] for run in kept["changed"] if run["name"] == "T5 own buckets"]
figures.relative_biases(distances, buckets, trained[0][0], -2, slopes)         # seed 0, head 0
every = bias.buckets(torch.arange(-1000, 1001))
print(f"{len(set(buckets))} of the 32 numbers serve these {len(distances)} distances,"
      f" {len(every.unique())} serve all distances")
#| caption: Left: the biases that a T5 head learned to look two places back (ring); bands are
#|   buckets, some with their number. Right: three heads of ALiBi.
#| label: biases

# %% [raw] slide
# ## Relative biases: a number for each distance
# $$e_{ij} = q_i \cdot k_j / \sqrt{d_k} + b_{j-i}$$
#
# **T5**: learned, in buckets that grow. **ALiBi**: $b_{j-i} = -\text{slope} \cdot |i - j|$, fixed.
# . . .
# {figure}

# %% [markdown]
# Up to distance 7 each distance has a number of its own, and the distances 8 to 11 share number 8. Keys to
# the right of the query have the numbers 17 to 31. (Number 16 would be distance 0 to the right, so it is never used.) The
# largest number belongs to the distance −2.
#
# ## Length extrapolation: one task for all schemes
#
# *Step 4: test.* Training on long texts is expensive. **Length extrapolation** means training on
# short texts and then reading longer ones.
# Which schemes can do it? We take the smallest task that needs order and nothing else. The model reads random letters
# and says at each place which letter stood *two places back*. It is trained on texts of 8 to 32 letters, and then
# reads longer ones.
#
# > **Three questions.**
# > 1. Which schemes still work at *four* times the trained length ([@fig:length-generalisation])?
# > 2. RoPE at *thirty-two* times: is it still right? If not, is the cause the number of the keys, their distances, or both
# >    ([@fig:keys-and-angles])?
# > 3. Are schemes *without* angles safe in long texts ([@fig:reach])?
#
# Each model is an encoder of one block (lectures @masking to @transformer build it) with a linear layer on top. Shaw's
# table and T5's buckets end at distance 16 here (`max_distance=16`), so every distance in a longer text falls into a row
# that was trained. (With T5's own limit of 128, some buckets would be new.) ALiBi is left out: its biases
# are the same on both sides, so one block with it cannot tell *before* from *after*.

# %% [raw] slide
# ## Length extrapolation: one task for all schemes
# Random letters: which stood **two places back**? Trained on texts of 8 to 32 letters, then 128.
#
# > **Guess first.** Accuracy against the position, in texts of 32 and of 128: sinusoidal, learned, Shaw, T5, RoPE. What happens at 32?

# %%
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


models = {"sinusoidal": train("sinusoidal"), "learned": train("learned"),
          "relative (Shaw)": train("shaw"), "RoPE": train("rope")}

# %% tags=["hide-input"]
configs = [vars(model.encoder.config) for model in models.values()]
differ = [name for name in configs[0] if len({str(config[name]) for config in configs}) > 1]
print("the configurations differ in:", *differ)

# %% [markdown]
# *Question 1.* For a longer text we build the same model with more positions and load the trained weights. A learned
# table has no further rows. This page trains four models with one seed. The figure shows recorded runs: eight
# schemes, three seeds each. *Sketch it first:* accuracy against the position, once in texts of 32 and once in texts
# of 128. How high is each line up to position 32, and how high after it?

# %% tags=["hide-input"]
print(kept["command"])
plain = [run for run in kept["runs"] if not run["scaled"]]       # the embedding as it is
lines = {}
for run in plain:
    panel = lines.setdefault(run["scheme"], {})
    for n, line in run["at"].items():
        panel.setdefault(int(n), []).append(line)                # a line for each seed
families = {"no order": ("no positions", "integer"),
            "absolute": ("binary", "sinusoidal", "learned"),
            "distance": ("relative (T5)", "relative (Shaw)", "RoPE")}
panels = {family: {scheme: lines[scheme] for scheme in schemes}
          for family, schemes in families.items()}
texts = torch.randint(LETTERS, (5000, 128), generator=torch.Generator().manual_seed(0))
frequent = {}                                                    # {length: share of the text}
for n in (TRAINED, 128):
    most = F.one_hot(texts[:, :n], LETTERS).sum(dim=1).amax(dim=1)            # (5000,)
    frequent[n] = (most / n).mean().item()
    print(f"the most frequent letter of a text of {n}: {frequent[n]:.0%} of it")
T5_later = [run["at"]["128"] for run in kept["changed"] if run["name"] == "T5 longer"]
figures.accuracy_past_training(
    panels, trained=TRAINED, chance=frequent, first=BACK,
    later={"relative (T5)": ("text of 128, after 2,000 steps", T5_later)},
    notes={"binary": ("16, 17", 16.5, 0.07)},
)
#| caption: Accuracy at each position, a line for each of three seeds, after 500 steps. Texts of
#|   128: averaged over eight positions.
#| label: length-generalisation

# %% tags=["hide-input"]
def by_seed(scheme, what, scaled=False):
    return [run[what] for run in kept["runs"]
            if run["scheme"] == scheme and run["scaled"] == scaled and what in run]


def changed(name, what="beyond"):
    return [run[what] for run in kept["changed"] if run["name"] == name]


for scheme in lines:
    inside = " ".join(f"{share:4.0%}" for share in by_seed(scheme, "inside"))
    beyond = " ".join(f"{share:4.0%}" for share in by_seed(scheme, "beyond")) or "refuses"
    print(f"{scheme:>16}: texts of 32: {inside}   beyond 32, in 128: {beyond}")
print("relative (T5), 2,000 steps, beyond 32, in 128:",
      *(f"{share:.0%}" for share in changed("T5 longer")))
digits = torch.tensor(lines["binary"][TRAINED])                  # (3, 30)  from position 2 on
at_16, rest = digits[:, 14:16], torch.cat([digits[:, :14], digits[:, 16:]], dim=1)
print(f"binary, texts of 32: {at_16.mean():.1%} at 16 and 17, {rest.mean():.1%} elsewhere")
for what in ("as they stand", "at trained positions"):
    shares = changed("crowd at trained positions", what)
    print(f"sinusoidal, 20 to 31 of 128, letters from 32 on {what}:",
          *(f"{share:.0%}" for share in shares))

# %% [raw] slide
# ## Each family fails, or not, in its own way
# {figure}

# %% [raw] slide
# ## Three seeds each
# {print}

# %% [markdown]
# * **No order.** Without positions, a model does about as well as if it always named the text's most frequent letter
#   (dotted). Integers are no better: LayerNorm has removed them.
# * **Absolute: a vector for each position.** In texts of 32, sinusoids and the learned table make almost no mistakes.
#   Binary digits make nearly all of their mistakes at positions 16 and 17, where four digits flip between a letter
#   and the one two places back (14 is 01110, 16 is 10000). Where three digits flip (between 6 and 8), the answers are
#   right. Beyond 32, sinusoids and digits fail, and the table refuses. Training for 2,000 steps changes none of this.
# * **Distance.** Shaw's vectors keep working without a mistake, and RoPE with very few. After 500 steps T5's biases are
#   still half trained: the model gets 86 to 89% right in texts of 32, and about 40% beyond position 32. After 2,000 steps
#   (grey) it gets 95 to 97% right there.
#
# > **Answer 1.** At four times the trained length Shaw's vectors and RoPE work. T5's biases nearly do after longer
# > training. Vectors for absolute positions do not.
#
# <details><summary><b>Going further</b>: why even trained positions suffer in a long text</summary>
#
# Compare orange and blue in the shaded part of the sinusoids. In a long text the trained positions from about 20 on
# suffer, too. Are the *vectors* of the letters beyond 32 the reason, or their *number*? As a control, these letters get
# the trained positions 0 to 11: the number of keys is the same, but none has an unseen vector. Then almost all answers at
# 20 to 31 are right; before it was 72 to 89%. So the unseen vectors draw attention away.
#
# </details>
#
# What does a model attend to beyond its trained length? In the next figure the models read a text of 64. A perfect
# model has a single thin diagonal, two places below the main one.

# %% tags=["hide-input"]
def longer(name, scheme, n):
    model = Echo(scheme, max_length=n)
    model.load_state_dict(models[name].state_dict())
    return model


torch.manual_seed(2)
letters, looked = torch.randint(LETTERS, (1, 64)), {}            # (1, 64)
in_config = {"sinusoidal": "sinusoidal", "relative (Shaw)": "shaw", "RoPE": "rope"}
for name, scheme in in_config.items():
    weights = Weights()                                          # the encoder fills it
    with torch.no_grad():
        longer(name, scheme, 64)(letters, weights=weights)
    per_head = weights.self_attn[0][0]                           # layer 0, text 0: (2, 64, 64)
    looked[name] = per_head.mean(dim=0)                          # (64, 64)
    line = looked[name].diagonal(-BACK)                          # (62,)  two places back
    inside, beyond = line[: TRAINED - BACK].mean(), line[TRAINED - BACK :].mean()
    print(f"{name:>16}: weight two places back {inside:.2f} inside, {beyond:.2f} beyond")
gap = torch.arange(64) - torch.arange(64)[:, None]               # (64, 64)  key − query
wrong = looked["RoPE"] * ((gap + BACK).abs() > 1)                # off the diagonal
wrong[:BACK] = 0                                                 # no key two places back there
known, new = wrong * (gap.abs() < TRAINED), wrong * (gap.abs() >= TRAINED)   # distances
print(f"RoPE, largest wrong weight: {known.max():.2f} at trained distances,"
      f" {new.max():.2f} further away")
worst = divmod(int(new.argmax()), 64)                            # its query and its key
figures.attention_past_training(looked, trained=TRAINED, circled={"RoPE": worst})
#| caption: Attention weights inside and beyond the trained length (orange lines), seed 0, mean
#|   of the two heads. Ring: RoPE's largest wrong weight.
#| label: past-training

# %% tags=["hide-input"]
assert new.max() > 2 * known.max()

# %% [raw] slide
# ## The same from inside
# {figure}
#
# Beyond the trained length (orange) sinusoids attend to wrong places; a distance of −2 is known.

# %% [markdown]
# Inside, all three models have the diagonal. Outside, the sinusoids' diagonal fades, and streaks appear at wrong
# places. The other two diagonals continue, because a distance of −2 was trained. But Shaw's diagonal is pale: about
# 0.4 of its weight is spread thinly over all other keys. RoPE's panel has a broken second diagonal, about 42 places
# to the right (ring): a distance that never occurred in training. This second diagonal takes weight from the first
# twenty-odd queries only, because no later query of this text has a key 42 places to its right. That is why RoPE's
# printed weight is smaller *inside* than beyond.
#
# ## RoPE at 4 and at 32 times the trained length
#
# *Question 2.* We go on to texts of 1,024. *Guess:* is RoPE still right? If it is not, there are two suspects. (a)
# **Many keys**: the softmax divides one unit among *all* keys, and a thousand small weights add up. (b) **New
# distances**: in training no key was further than 31 places away. At new distances the slow pairs in particular meet
# angles that never occurred in training.
#
# The trained models read the same eight texts in four ways:
#
# | what a letter sees | keys | new distances? |
# |---|---|---|
# | 1 **window**: 16 neighbours on either side | 33 | no |
# | 2 **clipped**: all keys; one further than 16 places away is turned as if it stood 16 places away | 1,024 | no |
# | 3 **far keys**: 8 neighbours on either side, and 16 keys from 32 or more places away | 33 | yes |
# | 4 **as trained**: all keys | 1,024 | yes |
#
# If (a) alone does the harm, rows 2 and 4 fail. If (b) alone does it, rows 3 and 4 fail. *Guess:* which rows fail? Or does
# it take both?

# %% [raw] slide
# ## RoPE at 32 times the trained length
# > **Guess first.** Two suspects. (a) **Many keys**: a thousand small weights add up. (b) **New distances**: never seen in training.
#
# | a letter sees | keys | new distances? |
# |---|---|---|
# | a window of 16 on either side | 33 | no |
# | all, clipped to a distance of 16 | 1,024 | no |
# | 17 near ones and 16 far ones | 33 | yes |
# | all, as trained | 1,024 | yes |

# %% tags=["hide-input"]
def at_1024(what):
    return [run["1024"] for run in by_seed("RoPE", what)]


far = changed("RoPE far keys", "far")                            # {number of far keys: share}
by_keys = {}
for some in far[0]:                                              # 16, 64, 256 far, 17 near
    rows = " (rows 1, 3)" if some == "16" else ""
    by_keys[f"{17 + int(some)} keys{rows}"] = {"trained distances": [],
                                               "new distances": [run[some] for run in far]}
by_keys["33 keys (rows 1, 3)"]["trained distances"] = at_1024("window")
clipped = [run["1024"] for run in changed("RoPE clipped", "by_length")]
by_keys["1,024 keys (rows 2, 4)"] = {"trained distances": clipped,
                                     "new distances": at_1024("by_length")}
figures.scale_points(by_keys, "accuracy in texts of 1,024")
for name, distances_of in by_keys.items():
    for which, shares in distances_of.items():
        if shares:
            print(f"{name:>22}, {which:>17}:", *(f"{share:4.0%}" for share in shares))
#| caption: RoPE in texts of 1,024: the number of keys that a letter sees, and whether their
#|   distances occurred in training. A point for each of three seeds.
#| label: keys-and-angles

# %% [raw] slide
# ## It takes both: new distances, and many keys there
# {figure}
#
# Only a few new distances do harm: there the fast pairs stand almost as at −2. Exchange the fast pairs, and the harm is gone.

# %% [markdown]
# At thirty-two times the trained length the unchanged model gets only 40 to 69% right, and row 4 is the only row that
# fails. So neither suspect does the harm alone. A thousand keys at trained distances do none (row 2), and sixteen keys at
# new distances do almost none (row 3). **It takes both**: with 64 keys at new distances 95 to 99% of the answers are right,
# with 256 only 78 to 94%. Our reading: a key at a new distance *sometimes* scores as high as the right one (the ring in
# [@fig:past-training]), and the more such keys there are, the likelier it is that one does.
#
# At *which* new distances? For the next figure we pick a distance $D$. Every key more than 16 places to the right is
# turned as if it stood at $+D$, and every key more than 16 places to the left as if it stood at $-D$. Each seed reads
# one text. *Guess:* does the accuracy fall steadily as $D$ grows?

# %% tags=["hide-input"]
alike = changed("RoPE one distance", "alike")                    # {distance: share}
apart = [int(name) for name in alike[0] if name.isdigit()]       # 17, 18, …, 120
by_distance = {distance: [shares[str(distance)] for shares in alike] for distance in apart}
figures.one_distance(by_distance, TRAINED, alike=[44, 57, 100, 113], others=[69, 88], either=3)
fine = [sum(shares[str(distance)] > 0.95 for distance in apart if distance >= TRAINED)
        for shares in alike]
print(f"above 95% at {min(fine)} to {max(fine)} of the {apart[-1] + 1 - TRAINED} new distances")
print("each far key at a distance from 17 to 31, drawn:",
      *(f"{shares['17 to 31']:.0%}" for shares in alike))
first_three = rope_angles(torch.tensor(1), 32)[:3]               # (3,)  angles per place
print("places from −2   turns of pairs 0, 1, 2   mean cosine   right with keys at")
for places in (44, 57, 69, 88, 100, 113):
    angles = places * first_three
    turns = " ".join(f"{each:5.1f}" for each in (angles / (2 * math.pi)).tolist())
    right, left = (sum(by_distance[at]) / 3 for at in (places - 2, places + 2))
    print(f"{places:>14} {turns:>22} {angles.cos().mean():>16.2f}"
          f"   {right:6.0%} at +{places - 2}, {left:4.0%} at −{places + 2}")
trained_places = torch.arange(3, TRAINED + 2)[:, None]           # from −2; more than 2 places
most = (trained_places * first_three).cos().mean(dim=1).max()
print(f"largest mean cosine at a trained distance, 3 or more places from −2: {most:.2f}")
#| caption: RoPE, texts of 1,024, far keys all turned as if at one distance: mean and range of
#|   three seeds. Orange: three places around 44, 57, 100, 113. Grey: 69, 88.
#| label: one-distance

# %% [markdown]
# No. Most new distances do no harm, even with a thousand keys there. A few do, nearly the same ones with every seed, and
# they come in twos: 42 and 46, for example, lie on either side of 44. The right key stands at −2. Keys at +42 are 44 places
# away from there, and so are keys at −46. So the dip at 42 comes from keys on the right, and the dip at 46 from keys on the
# left. The same happens around 57, 100 and 113: one dip on either side. (We cannot explain the small dip at 34.)
#
# What do these places have in common? The printed table compares the first three pairs with where they stand at −2. A mean
# cosine of 1 would mean that all three stand exactly as at −2.
#
# * **44, 57 and 100:** the three pairs are closer to −2 than at any trained distance further than two places from it (last
#   line). Here there is harm, and most of it at 100, where the mean cosine is largest.
# * **69 and 88:** the third pair is about half a turn off, and there is little or no harm. Pairs 0 and 1 alone come back in
#   training, too, at +10 and −14. There the third pair is off as well, and the model has learned to tell such keys apart.
# * **113** does not fit this simple measure: the mean cosine is lower, but there is harm.
#
# Does a far key do harm because its *fast* pairs look like −2? Or because its *slow* pairs have new angles? To
# decide, we exchange pairs. We call the first five pairs fast: between the distances −31 and 31 they come full circle
# (the fifth almost does: its period is 63). We take $D$ = 42, 46, 98 and 102. In one run the fast pairs of all far
# keys are turned as at 64, where there is no harm. In another run their slow pairs are turned as at 64, and in a
# third as at 31, which was trained. *Guess:* which exchange makes the answers right?

# %% tags=["hide-input"]
mixed = changed("RoPE mixed pairs", "mixed")                     # {fast pairs: {distance: …}}
for how in ("as it is", "fast as at 64", "slow as at 64", "slow as at 31"):
    shares = [turned[how] for run in mixed for turned in run["5"].values()]
    print(f"far keys at 42, 46, 98 or 102, {how:>13}: {min(shares):4.0%} to {max(shares):4.0%}")
for which in ("fast clipped", "slow clipped"):
    shares = [run["5"][which] for run in changed("RoPE mixed pairs", "in part")]
    print(f"all keys at their own distances, {which}:", *(f"{share:4.0%}" for share in shares))

# %% [markdown]
# At these distances the fast pairs decide. Turn them as at 64, and all answers are right. Turn the slow pairs as at 64, or
# as at a trained distance, and almost nothing changes. No *single* fast pair has a new angle. What is new is the
# combination: at all four distances the first three pairs look like −2 *together*.
#
# The last two lines look at all distances at once. They repeat row 2 of the table with only the fast or only the slow
# pairs clipped. The fast pairs decide here, too: with them clipped, the slow pairs have all their new angles and do
# no harm. Where fast pairs do look like −2, new angles of the slow pairs make the harm worse: 40 to 69% right,
# against 70 to 82% with the slow pairs clipped.
#
# <details><summary><b>Going further</b>: where is the border between fast and slow?</summary>
#
# We split after five pairs, as for *by parts* below. The exchange gives the same answer if we split after three or
# four. The last line depends on the split: with four fast pairs 70 to 80% are right, but with three 99 to 100%. With
# three, the fourth pair is clipped, too. Its period is 35 places, so at a distance of 16 it stands nearly opposite to
# where it stands at −2, and no far key looks like the right one.
#
# With the fast pairs clipped at 16 they are far from −2. So that run says nothing about the slow pairs of a model whose
# far keys look a little like the right one.
# </details>
#
# > **Answer 2.** In our task RoPE fails at thirty-two times the trained length because of *many keys at new distances*. At
# > a few of these distances a key's fast pairs look like those of the right key. A longer text has more such keys.
#
# ### Shaw and T5 in long texts
#
# *Question 3.* Shaw's vectors and T5's biases have no angles. Are they safe in long texts? And does RoPE only need more
# training? *Guess:* what does a window do to Shaw's vectors and to T5's biases in long texts?

# %% tags=["hide-input"]
def at_lengths(runs):
    return {int(n): [run[n] for run in runs] for n in runs[0]}   # {length: a share a seed}


reached = {
    "RoPE": {
        "as trained": at_lengths(by_seed("RoPE", "by_length")),
        "window": at_lengths(by_seed("RoPE", "window")),
        "clipped": at_lengths(changed("RoPE clipped", "by_length")),
        "2,000 steps": at_lengths(changed("RoPE longer", "by_length"))},
    "Shaw": {
        "as trained": at_lengths(by_seed("relative (Shaw)", "by_length")),
        "window": at_lengths(by_seed("relative (Shaw)", "window")),
        "2,000 steps": at_lengths(changed("Shaw longer", "by_length"))},
    "T5": {
        "as trained": at_lengths(by_seed("relative (T5)", "by_length")),
        "window": at_lengths(by_seed("relative (T5)", "window")),
        "2,000 steps": at_lengths(changed("T5 longer", "by_length"))}}
figures.reach(reached, trained=TRAINED, shortest=8)
for how, n in (("as trained", TRAINED), ("window", 1024)):
    shares = (f"{share:.0%}" for share in reached["T5"][how][n])
    print(f"T5, {how}, texts of {n:,}:", *shares)
#| caption: Accuracy against the length of the text (shaded: trained). Marks are seeds, lines
#|   join their means. Near 100% lines coincide; open marks lie around the others.
#| label: reach

# %% [raw] slide
# ## Schemes without angles: many keys, and a small lead
# {figure}

# %% [markdown]
# Training for four times as many steps helps RoPE little. For Shaw's vectors and T5's biases, nothing about a far key
# is new. Yet both lose accuracy in long texts.
#
# **Shaw.** With a window of 16, Shaw's vectors are as good at 1,024 as at 32.
#
# **T5.** With the window, T5's biases are even a little better at 1,024 than at 32 without it, with each seed
# (printed lines), because fewer keys help within the trained length as well. The largest bias belongs to the distance
# −2, as in [@fig:biases] (there with T5's own buckets). But its lead over the bias that all far keys share is only
# 1.4 to 1.5. Suppose that the biases alone decide. Then the key two places back has 12 to 14% of the weight in a text
# of 32, and less than 1% among a thousand keys (folded cell below). To get half of the weight there, it would need a
# lead of $\ln 1000 \approx 7$.
#
# > **Answer 3.** No. Even where nothing about a far key is new, the *number* of the keys does harm if the lead of the
# > right one is small. So measure what a model does beyond its trained length.
#
# <details><summary><b>Going further</b>: why T5's lead is so small</summary>
#
# In a text of 32, 12 to 14% of the weight is enough for most answers, because the rest is spread over sixteen
# letters, some 5% for each. Why is the lead no larger? In one step Adam moves a number by at most about the learning
# rate. Our rate is 0.0015 on average, so in 500 steps one number can rise by about 0.75 and another can fall by as
# much: a lead of 1.5, which is what we find. With ten times the rate for the biases alone, 500 steps make 99% right
# in texts of 128, but only 22 to 24% at 1,024. The lead is then 2.5 to 2.8. We think that texts of 32 ask for no
# more, because there all answers are right.
# </details>
#
# <details><summary><b>Going further</b>: which angles are new, and what a window does for sinusoids</summary>
#
# With base 10,000 only the first 4 of a head's 16 pairs come full circle between the distances −31 and 31, and the fifth
# almost does. The other pairs meet new angles, and all pairs together meet new combinations.
#
# A window helps sinusoids only a little, because their positions stay unknown: at 1,024 the share of right answers
# rises from 8–9% to 18–21%. The folded cell below prints these numbers.
# </details>

# %% tags=["hide-cell"] jupyter={"source_hidden": true, "outputs_hidden": true}
# absolute schemes after 2,000 steps, T5's largest bias, RoPE's periods, sinusoids with a window
for scheme in ("binary", "sinusoidal"):
    print(f"{scheme}, 2,000 steps: beyond 32, in 128:",
          *(f"{share:.0%}" for share in changed(f"{scheme} longer")))
later = torch.tensor([run["32"] for run in changed("binary longer", "at")])      # (3, 30)
print(f"binary, 2,000 steps, texts of 32: {later[:, 14:16].mean():.1%} at 16 and 17")
leads = {}
T5_runs = {"500": "T5 lead", "2,000": "T5 longer", "500 (rate × 10)": "T5 quick"}
for steps, name in T5_runs.items():
    leads[steps] = [lead for heads in changed(name, "lead") for lead in heads]
    print(f"T5, {steps} steps, lead of each head:", *(f"{lead:.1f}" for lead in leads[steps]))
    for n in (32, 1024):                                         # a query in the middle
        heads = torch.tensor(changed(name, "bias")).flatten(0, 1)        # (6, 63)  −31 to 31
        far = F.pad(heads[:, None], (n, n), "replicate")[:, 0]   # (6, 63 + 2n)
        seen = far[:, n + 31 - n // 2 : n + 31 + n // 2]         # (6, n)  from −n/2 on
        share = seen.softmax(dim=-1)[:, n // 2 - BACK]           # (6,)
        print(f"   weight two places back, {n:>5,} keys:", *(f"{each:.1%}" for each in share))
quick = at_lengths(changed("T5 quick", "by_length"))
for n, shares in quick.items():
    print(f"T5, 500 steps, rate × 10, texts of {n:>5,}:",
          *(f"{share:4.0%}" for share in shares))
periods = 2 * math.pi / rope_angles(torch.tensor(1), 32)         # (16,)  in tokens
print("RoPE, periods of a head's first pairs:", *(f"{period:.0f}" for period in periods[:6]))
added = {"sinusoidal": at_lengths(by_seed("sinusoidal", "by_length")),
         "sinusoidal, window": at_lengths(by_seed("sinusoidal", "window"))}
for name, shares in added.items():
    for n in (128, 1024):
        print(f"{name:>18}, texts of {n:>5,}:", *(f"{share:4.0%}" for share in shares[n]))
# %% [markdown]
# These tiny models show what kinds of failure there are. Their numbers do not carry over. What is known of language models?
#
# * RoPE fails beyond the trained length, too, and *sooner* than here ([@press2022]). (A guess at the reason: our task
#   needs only a neighbour.) Chen et al. ([-@chen2023]) warn of attention scores at unseen distances so high that they
#   "completely ruin" attention.
# * ALiBi was made for longer texts. A model with ALiBi that was trained on 1,024 tokens read 2,048 as well as a model with
#   sinusoids that was trained on 2,048 ([@press2022]).
# * In small decoders *no* positions did better on longer texts than ALiBi, RoPE or absolute ones ([@kazemnejad2023]). Our
#   encoder has no causal mask, so it cannot show this.
#
# ## Context extension: reading more tokens than in training
#
# *Step 5: use.* New angles of the slow pairs make the harm worse, and they can be avoided. A model with RoPE was
# trained on 4,096 tokens and is to read $s = 8$ times as many. Three methods change its angles, mostly with a little
# further training:
#
# * **Position interpolation** ([@chen2023]) divides all positions by $s$: pair $i$ is turned by $m\theta_i / s$.
# * **Raising the base** slows every pair but pair 0: the slower the pair, the more. **NTK-aware scaling** multiplies
#   the base by $s^{d_k/(d_k-2)}$, which slows the last pair exactly $s$ times.
# * **YaRN** ([@peng2024yarn]) leaves the *fastest* pairs alone (32 turns in training or more), interpolates the *slow* ones
#   (one turn or less), mixes the two for the pairs in between, and multiplies the scores by a number above 1.
#
# In training, the fast pairs come full circle, so none of their angles is new in a longer text. The slow pairs do not. (A
# language model looks back only, so here we count turns over the distances from 0 to 4,096.) *Guess:* which methods bring
# *all* slow pairs back into the range of angles that they had in training?

# %% tags=["hide-input"]
s, trained_on, d_k = 8, 4096, 128
theta = rope_angles(torch.tensor(1), d_k)                        # (64,)  angle per token
circles = trained_on * theta / (2 * math.pi)                     # (64,)  turns in training
raised = rope_angles(torch.tensor(1), d_k, base=10_000 * s ** (d_k / (d_k - 2)))
turned = {"no change": theta, "interpolation": theta / s, "NTK-aware": raised,
          "YaRN": figures.yarn(theta, s, trained_on)}            # angles per token
furthest = {name: s * each / theta for name, each in turned.items()}
circled = int((circles >= 1).sum())
print(f"pairs that come full circle in {trained_on:,} tokens: 0 to {circled - 1} of {d_k // 2}")
print(f"NTK-aware, pair {circled}: {furthest['NTK-aware'][circled]:.2f} times as far")
print(f"pairs that YaRN leaves as they are: {int((circles >= 32).sum())}")
figures.context_extension(furthest, circled)
#| caption: Largest angle of each pair of columns in a text of 32,768 tokens, as a multiple of
#|   the largest in 4,096. Shaded: some angles were never seen in training.
#| label: context-extension

# %% tags=["hide-input"]
assert furthest["YaRN"][circled:].max() < 1.001 and furthest["NTK-aware"][circled] > 1.5
assert math.isclose(furthest["NTK-aware"][-1], 1, rel_tol=1e-4)

# %% [markdown]
# Interpolation and YaRN bring all slow pairs back. But interpolation also slows the fast pairs, which tell neighbours
# apart, by a factor of eight. YaRN leaves the 21 fastest as they are and slows the pairs 21 to 45 by less than eight
# times. NTK-aware scaling brings back the last pair only. The other slow pairs still meet new angles, up to 1.75
# times the largest trained one.
#
# Now we try this on our own three RoPE models, **without further training**, with $s = 4$ and $s = 32$. We take
# YaRN's main idea, *by parts*: the five fast pairs of Question 2 stay as they are, and the others are interpolated.
# *Guess:* which method breaks a model that looks two places back?

# %% tags=["hide-input"]
runs = changed("RoPE extended", "at")                            # {length: {method: share}}
methods, by_method = ("no change", "interpolation", "NTK-aware", "by parts"), {}
for method in methods:
    by_method[method] = {f"texts of {int(n):,}": [run[n][method] for run in runs]
                         for n in runs[0]}
    for name, seeds in by_method[method].items():
        print(f"{method:>13}, {name:>14}:", *(f"{share:4.0%}" for share in seeds))
figures.scale_points(by_method, "accuracy", chance=1 / LETTERS)
#| caption: RoPE trained on 32 letters, its angles changed without further training: a point
#|   for each of three seeds.
#| label: extended

# %% [raw] slide
# ## Context extension on our models, without further training
# {figure}
#
# Interpolation slows the pairs that tell neighbours apart. By parts (YaRN's idea) leaves them as they are.

# %% [markdown]
# With *interpolation* the models only guess (one letter of 16 is 6%). With $s = 4$, a key two places back is now
# turned as if it stood half a place back, and the model has never seen such a distance. So Chen et al. train the
# model further after the change. *By parts* leaves the fast pairs alone, so a distance of −2 looks nearly as before.
# At 1,024 it gets 69 to 81% right where the unchanged model gets 40 to 69%, and it is better with every seed.
# *NTK-aware* scaling shows no clear gain here.
#
# Why does no method reach 100% at 1,024? By parts gives each slow pair a trained angle, which is what clipping the slow
# pairs does (70 to 82%, Question 2). But it leaves the fast pairs as they are, and at a few distances they still look
# like −2.
#
# **Now you:** [a05](@order/assignment), exercise 5.
#
# <details><summary><b>Going further</b>: is five the right number of pairs to keep?</summary>
#
# The folded cell below tries others. With each seed the best number is five or six, so the border lies where the
# pairs stop coming full circle. Keeping four to eight pairs is better than no change with every seed; keeping two or
# three is not. With the limits of the YaRN paper the model guesses, because there only a pair that makes 32 turns or
# more stays as it is. In 32 letters no pair turns so often, so all are slowed.
#
# </details>
#
# <details><summary><b>Going further</b>: layers without positions</summary>
#
# Another way is to change the layers. Yang et al. ([-@yang2025rope]) use full attention *without* positions in one layer of
# four and give the RoPE layers a window, so no layer meets a new angle: row 1 of our table.
# [SmolLM3](https://huggingface.co/docs/transformers/model_doc/smollm3) only leaves RoPE out in every fourth layer. Its
# other layers see all keys and still meet new angles.
# </details>

# %% tags=["hide-cell"] jupyter={"source_hidden": true, "outputs_hidden": true}
# by parts, with another number of pairs that stay as they are
kept_pairs = {pairs: [run["1024"][f"keep {pairs}"] for run in runs] for pairs in range(2, 9)}
for pairs, seeds in kept_pairs.items():
    print(f"texts of 1,024, {pairs} pairs stay:", *(f"{share:4.0%}" for share in seeds))
limits = [run["1024"]["YaRN's limits"] for run in runs]
print("the limits of the YaRN paper: ", *(f"{share:4.0%}" for share in limits))
# %% [markdown]
# ## The embedding scale: multiply by √d_model
#
# Back to step 1, with one number that we left out. Vaswani et al. ([-@vaswani2017, section 3.4]) multiply embeddings
# by $\sqrt{d_\text{model}}$ before they add positions. Why? An embedding often starts with numbers of about
# $1/\sqrt{d_\text{model}}$, so that the same table can serve as the output's matrix. A sinusoidal vector
# ([@fig:sinusoids]) has $\sin^2 + \cos^2 = 1$ in each of its $d/2$ pairs. *Guess:* how long is each vector?

# %%
for d in (64, 512):
    word = torch.randn(1000, d) / math.sqrt(d)                   # 1,000 fresh embeddings
    lengths = {"embedding": word, "× √d": word * math.sqrt(d),
               "sinusoidal": positions.sinusoidal(torch.arange(1000), d),
               "digits": positions.binary(torch.arange(1000), d),
               "learned, fresh": LearnedPositions(1000, d).table}
    means = {name: rows.norm(dim=-1).mean() for name, rows in lengths.items()}
    print(f"d = {d:>3}:", *(f"{name} {length:.2f} " for name, length in means.items()))

# %% [raw] slide
# ## The embedding scale: multiply by √d_model
# {print}
#
# Beside a fresh embedding the sinusoid is 16 times as long.
#
# > **Guess first.** Our task needs positions more than anything. What does the factor do to each scheme in 500 steps? In 2,000?

# %% [markdown]
# A fresh embedding has length 1, and a sinusoidal vector has length $\sqrt{d/2}$: at width 512 the position is
# sixteen times as long as the word. With the factor, the word is the longer of the two. Digits and the vectors of a
# fresh *learned* table are both short compared with a scaled embedding. (PyTorch's `nn.Embedding` starts with a standard
# deviation of 1. Its vectors have the length $\sqrt{d}$ already: leave the factor out, or start with smaller numbers.)
#
# *Guess:* our task needs positions more than anything. What does the factor do to each scheme in 500 steps of
# training? Do 2,000 steps make up for it in the learned table?

# %% tags=["hide-input"]
schemes = ("binary", "sinusoidal", "learned", "relative (Shaw)", "relative (T5)", "RoPE")
scales = {"embedding as it is": False, "× √64 = 8": True}
by_scale = {scheme: {name: by_seed(scheme, "inside", scaled) for name, scaled in scales.items()}
            for scheme in schemes}
by_scale["learned"]["× 8, 2,000 steps"] = changed("learned scaled longer", "inside")
figures.scale_points(by_scale, "accuracy in texts of 32", chance=frequent[TRAINED],
                     chance_name="most frequent letter")
for what in ("binary louder", "learned louder"):
    name = what.split()[0]
    shares = {"alone": by_seed(name, "inside", scaled=True),
              "and positions × 8": changed(what, "inside")}
    for how, seeds in shares.items():
        print(f"500 steps, {name}, embedding × 8 {how}:", *(f"{share:.0%}" for share in seeds))
#| caption: Accuracy in texts of 32 with and without the scale on the embeddings, after 500
#|   steps (triangles: 2,000), a point for each of three seeds.

# %% [raw] slide
# ## It is the ratio of position to embedding
# {figure}
#
# **A common mistake: “they differ in X alone”, unchecked.** Print both configurations.

# %% [markdown]
# After 500 steps with the factor, digits fall from 94% to 62–73%, and the learned table from 100% to 65–74%. The
# other schemes hardly change. Sinusoids are also added, but even next to a scaled embedding they are long enough to
# be read. After 2,000 steps the table is at 100% with every seed. (The digits were not trained for 2,000 steps.) So
# the factor does not keep *the table* from being learned; it delays it.
#
# Is the cause the scale, or the *ratio* of position to embedding? In the runs "and positions × 8" both are eight times as
# long. The digits, which are fixed, are back at 94% with two seeds of three (81% with the third): there the ratio explains
# most. The table is back at 99% or more, but with × 8 it also *learns* eight times as fast.
#
# Why scale at all? The paper gives no reason. The usual explanation, which we do not test: in language the word
# matters more than its position, and without the factor a sinusoid drowns the word when training begins. RoPE adds
# nothing to the embedding and does not need the factor. Llama has no such factor; Gemma has one, although it uses RoPE.
#
# > **A common mistake: "they differ in X alone", unchecked.** A default can change a second thing unseen. Our own package,
# > left to itself, scales the embedding with digits and sinusoids, but not with a learned table. You would then compare
# > 62–73% with 100%, and explain the wrong thing. Print both configurations first.

# %% [markdown] erratum="most systems use this" teaches="most systems use learned positions @ Which model uses which positions"
# ## Which model uses which positions
#
# | model | positions | trained on texts up to |
# |---|---|---|
# | Transformer ([-@vaswani2017]) | sinusoidal, added to embeddings × $\sqrt{d_\text{model}}$ | a sentence |
# | BERT ([-@devlin2019]), GPT-2 ([-@radford2019]), GPT-3 ([-@brown2020]) | learned, added | 512; 1,024; 2,048 |
# | T5 ([-@raffel2020]) | biases in 32 buckets, up to distance 128 | 512 |
# | BLOOM ([-@lescao2022]) | ALiBi | 2,048 |
# | GPT-NeoX-20B ([-@black2022]) | partial RoPE: a quarter of each head's columns, half layout | 2,048 |
# | Llama ([-@touvron2023llama]), Llama 2 ([-@touvron2023]) | RoPE, base 10,000 | 2,048; 4,096 |
# | Llama 3 ([-@grattafiori2024]) | RoPE, base 500,000 | 8,192 |
# | Llama 3.1 | the same, slow pairs divided by 8, with a ramp (exercise 5) | 131,072 |
# | Qwen2 ([-@yang2024qwen]) | RoPE, base 1,000,000; YaRN for longer texts | 32,768 |
# | DeepSeek-V3 ([-@deepseek2024]) | partial RoPE: 64 of a head's 192 columns, base 10,000; YaRN, factor 40 (it leaves room) | 4,096; then 131,072 |
# | Gemma 3 ([-@gemma2025]) | RoPE, base 10,000 in local layers, 1,000,000 in global ones; positions interpolated there, factor 8 | 32,768; then 131,072 |
#
# **Partial RoPE** turns only some columns (`partial_rotary_factor`). The others compare contents, whatever the distance is.
#
# *Read it:* the config of Llama 3.1 says `"rope_theta": 500000.0` and
# `"rope_scaling": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
# "original_max_position_embeddings": 8192}`. Which pairs are divided by 8?
# <details><summary>Answer</summary>Those that turn at most once in 8,192 tokens. Those that turn four times or more stay
# as they are. In between, the two are mixed.</details>
#
# Newer configs (transformers 5) write one dictionary: `"rope_parameters": {"rope_type": "llama3", "rope_theta": 500000.0,
# "factor": 8.0, …}`.
#
# > **A common mistake: "most systems use learned positions".** This was true around 2019. Most open large models since
# > 2023 use RoPE.

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

# %% [markdown]
# ## Going further: could sinusoids extrapolate, if they were trained otherwise?
#
# *The two sections "Going further" are not counted in the minutes above.*
#
# Three attempts were recorded: a head of ours that looks two places back, put into the model before the training; a
# small base, 4, so that all pairs come full circle; and training texts that begin at any position from 0 to 96.
# *Guess which of them helps.*

# %% tags=["hide-input"]
rows = {"as above": by_seed("sinusoidal", "beyond"),
        "as above, embedding scaled": by_seed("sinusoidal", "beyond", scaled=True),
        "our head first": changed("own head"),
        "our head first, embedding scaled": changed("own head scaled"),
        "base 4 for 10,000": changed("base 4"),
        "texts begin anywhere": changed("anywhere"),
        "… beyond 128, texts of 256": changed("anywhere", "beyond 128")}
print("sinusoidal, right beyond 32 in texts of 128, three seeds")
for name, shares in rows.items():
    print(f"{name:>32}:", *(f"{share:4.0%}" for share in shares))
print("base 4, texts of 32:", *(f"{share:.0%}" for share in changed("base 4", "inside")))

# %% [markdown]
# Two of the attempts help. Our head helps if the embedding is scaled. So a good solution exists that training alone
# did not find. Texts that begin anywhere help, because their positions were seen in training; beyond those positions
# the model fails again. A small base does not help.
#
# <details><summary>The three experiments in detail</summary>
#
# We built a sinusoidal head that looks two places back in texts of a thousand tokens. The trained model did not find
# it. Is there no room for it, with 32 columns instead of 64 and the letters in the way? Or does training not reach it?
# <b>Put our head into the model before the training</b> (its 16 fastest pairs), then train as before, with all weights
# free to move. With the embedding scaled, as in the paper, 92 to 96% are then right beyond 32, instead of 19 to 21%.
# So there is room. (With the embedding as it is, 38 to 42% are right instead of 11 to 13%. A guess at the reason: the
# position is then so long that a letter is hard to read beside a position that was never seen.) Whether a good
# solution exists depends on the scheme; whether training finds it does not depend on the scheme alone.
#
# Four decks note that sinusoids "maybe can extrapolate to longer sequences as periods restart", and, below that, that
# it "doesn't really work". Does it fail because most periods are too long to restart? With the <b>base 4</b> in place
# of 10,000 the slowest pair comes full circle after 24 letters. Beyond 32 only 8% are right: restarting does not help.
# (In texts of 32 all answers are right.) Our guess: each pair has been there before, but all of them <em>together</em>
# have not.
#
# If unknown combinations hurt, and not the length, there is a cure. Let the training texts <b>begin anywhere</b> from
# position 0 to 96 ([@kiyono2021] do this with translation). They are as short as before, but their position vectors
# come from all of the first 128. Then 93 to 95% are right up to 128. Beyond 128, where the vectors are new again,
# only 24 to 33% are right.
# </details>
#
# ## Going further: properties of a positional encoding, tested
#
# A deck lists the properties that positions should have: (1) a unique vector for each; (2) a linear relation between
# two positions; (3) that they carry over to longer texts; (4) that nothing has to be learned, and the model can use
# them; (5) that they extend to two dimensions, for images ([lecture @beyond_text](@beyond_text)). For RoPE we add
# (6): scores that depend on the distance alone. The folded code tests each property but (5). For each scheme it takes
# the vectors from which a query at position 0 learns where a key at position $p$ stands, for $p$ from 0 to 31.
# Learned vectors come from the *trained* models above.
#
# Property 2 asks whether *one* matrix leads from every $p$ to $p + 3$. The code makes a table of 256 positions in 16
# columns, fits a matrix on 200 of them, and tests it on the others. (A column of ones beside the vectors lets the map add a
# constant; it is then called *affine*. The integers need this: no factor leads from 1 to 4 and also from 2 to 5, but
# adding 3 does.) A learned table cannot be tested in this way. It has 32 rows of 64
# columns. If there are fewer rows than columns, such a matrix nearly always exists, even for random rows.

# %% tags=["hide-input"]
p32 = torch.arange(TRAINED)
attention = models["relative (Shaw)"].encoder.stack.blocks[0].attention.sublayer
by_distance = attention.relative.key.detach()                    # (33, 32)  distances −16 to 16
trained = {"learned": models["learned"].encoder.embedding.positions.table.detach(),
           "relative (Shaw)": by_distance[relative_index(1, TRAINED, 16)[0]]}


def told(scheme, p, d=64):
    """What a scheme tells a query at position 0 about keys at the positions p (n,): (n, d)."""
    if scheme in trained:
        return trained[scheme][p][:, :d]
    if scheme == "RoPE":
        return rotate(torch.ones(len(p), d), rope_angles(p, d))  # ones, turned
    return getattr(positions, scheme)(p, d)


def unique(scheme):                                              # property 1
    return F.pdist(told(scheme, p32)).min().item() > 1e-3


def linear(scheme, k=3, n=256, d=16):                            # property 2: fit, then try
    if scheme in trained:                                        # fewer rows than columns
        return None
    torch.manual_seed(0)
    p, ones = torch.randperm(n - k), torch.ones(n - k, 1)        # (253,), (253, 1)
    here = torch.cat([told(scheme, p, d), ones], dim=1).double() # (253, d + 1)
    there = told(scheme, p + k, d).double()                      # (253, d)
    matrix = torch.linalg.lstsq(here[:200], there[:200], driver="gelsd").solution  # (d + 1, d)
    wrong = here[200:] @ matrix - there[200:]
    return (wrong.norm() / (there[200:] - there[200:].mean(dim=0)).norm()).item()


def distance_alone(scheme):                                      # property 6: same scores?
    torch.manual_seed(0)
    query, key = torch.randn(2, 64)
    index, scores = relative_index(TRAINED, TRAINED, 16), []     # (32, 32)
    for n in (0, 5, 20):                                         # the query is 3 places later
        if scheme == "RoPE":
            score = turn(query, n + 3) @ turn(key, n)
        elif scheme == "relative (Shaw)":
            score = query[:32] @ (key[:32] + by_distance[index[n + 3, n]])
        else:
            here, there = told(scheme, torch.tensor([n + 3, n]))
            score = (query + here) @ (key + there)
        scores.append(score.item())
    return max(scores) - min(scores)

# %% [markdown]
# The recorded runs of three seeds answer property 3 and half of property 4. A tick means above 95% with *every* seed.
# For property 6 the number says by how much the score changes when both tokens move. *Guess:* which scheme has all
# properties?

# %% tags=["hide-input"]
def measured_share(shares):
    if not shares:
        return False, "refuses"
    low, high = f"{min(shares):.0%}", f"{max(shares):.0%}"
    return min(shares) > 0.95, low if low == high else f"{low[:-1]}–{high}"


results = {}
for scheme in ("integer", "binary", "sinusoidal", "learned", "relative (Shaw)", "RoPE"):
    lengths = by_seed(scheme, "by_length")
    times_32 = [each["1024"] for each in lengths if "1024" in each]
    off, apart = linear(scheme), distance_alone(scheme)
    results[scheme] = {
        "1 unique": (unique(scheme), ""),
        "2 one matrix a shift": (None, "") if off is None else (off < 0.01, f"{off:.0%} off"),
        "3 longer texts: × 4": measured_share(by_seed(scheme, "beyond")),
        "3 longer texts: × 32": measured_share(times_32),
        "4 nothing to learn": (scheme not in trained, ""),
        "4 the model uses it": measured_share(by_seed(scheme, "inside")),
        "6 distance alone": (apart < 0.01, f"by {apart:,.{0 if apart > 99 else 1}f}"),
    }
for scheme in ("relative (Shaw)", "RoPE"):
    shares = [run["1024"] for run in by_seed(scheme, "by_length", scaled=True)]
    print(f"{scheme}, embedding scaled, × 32:", *(f"{share:.0%}" for share in shares))
figures.property_table(results)
#| caption: Which scheme has which property, as tested. “Off”: the error of the matrix on
#|   positions that it was not fitted to. Hatched: too few rows to test.

# %% [markdown]
# No scheme has all properties. At 32 times the length no scheme reaches 95% with all three seeds. (This holds for the
# embedding as it is. With the embedding scaled, Shaw's vectors reach 98 to 100% there, and RoPE 30 to 55%.) RoPE has every
# other property that we tested. This may be one reason why most open language models use it. Other reasons may be that it
# is cheap, has no parameters, and works with fused attention and a cache.
#
# Now compare the rows. Sinusoidal vectors are unique, and a single matrix performs each shift, but they fail on
# longer texts. Shaw's vectors are not unique (all far places share one vector), but they do well. Only the row of property
# 6 has its ticks where the row of four times the length has them. Yet property 6 is not enough. T5's biases, which
# are not in the table, depend only on the distance, and after 500 steps only some 40% of their answers are right
# there (after 2,000 steps 95 to 97%).

# %% [markdown] erratum="learned positions credited to Shaw; Shaw's formula under Absolute"
# <details><summary><b>Going further</b>: who proposed what</summary>
#
# **A common mistake: the wrong authors.** Learned absolute positions are sometimes credited to Shaw et al.
# ([-@shaw2018]). They propose relative ones; learned position vectors are in Gehring et al. ([-@gehring2017]).
#
# **A common mistake: calling Shaw's formula absolute**, because it adds a vector to each key. The score does not
# change if query and key move together, so it is relative. But it is not an inner product of one vector made at the
# query and one made at the key, as RoPE's score is.
# </details>

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
# | sinusoidal | $\mathrm{PE}(p, 2i) = \sin p\,\theta_i,\quad \mathrm{PE}(p, 2i+1) = \cos p\,\theta_i$; input $\sqrt{d_\text{model}}\, x_p + \mathrm{PE}(p)$ | $(n, d_\text{model})$ |
# | RoPE | pair $i$ of query and key at position $m$ turned by $m\,\theta_i$; the score depends on $m - n$ | $(n, d_k)$ |
# | relative (Shaw) | $e_{ij} = q_i \cdot (k_j + a^K_{j-i}) / \sqrt{d_k}$ | $a^K$: $(2r + 1, d_k)$ |
# | relative bias (T5, ALiBi) | $e_{ij} = q_i \cdot k_j / \sqrt{d_k} + b_{j-i}$ | $b$: a number for each head and distance |
#
# Without a mask, attention is permutation equivariant, so order must be put in. Absolute schemes add a vector to each
# embedding. The length of this vector relative to the embedding's affects how fast the model learns the order. RoPE
# turns queries and keys by their positions, and relative schemes put the distance into the score; both know positions
# only through their distance. In our task RoPE fails at 32 times the trained length, because at a few *new* distances
# a key looks like the right one, and a long text has many keys there. Context extension slows RoPE's slow pairs down,
# so that fewer of their angles are new.
#
# > **Check yourself.**
# > 1. Which of these schemes can be switched on *without further training* in a model that was trained without it?
# > 2. A program turns queries by $m\theta_i$, as it should, but keys by $-n\theta_i$. Write the score with rotation
# >    matrices. On what does it depend?
# > 3. You translate sentences of at most 60 words and have all the data you want. Does it matter which schemes keep working
# > beyond the trained length?
# > 4. A config says `"rope_theta": 500000.0`. What turns more slowly than with 10,000: all pairs, or some?
# > <details><summary>Answers</summary>
# >
# > 1. None. The weights have learned to read what they were given. (Biases that are all zero change nothing. A
# >    model can learn them from there.)
# > 2. $(q_m R_m)(k_n R_{-n})^\top = q_m R_m R_{-n}^\top k_n^\top = q_m R_{m+n} k_n^\top$: on the sum of the positions.
# >    The transpose reverses the key's rotation, so the positions are subtracted only if query and key are turned in the
# >    same direction.
# > 3. Little. Inside the trained lengths sinusoids, a learned table, Shaw's vectors and RoPE all solved the task
# >    here, and in the original paper learned and sinusoidal ones were about equal.
# > 4. All but pair 0, whose frequency is 1 for every base; the last pair most of all.</details>
#
# **Now do** [assignment @order](@order/assignment) (a little less than two hours): five exercises, a question in
# words, and an extension. **Next:** [lecture @masking](@masking).
#
# **Further reading.** [+@vaswani2017]: sections 3.4 and 3.5. [+@gehring2017]. [+@shaw2018]: section 3. [+@dai2019],
# with sinusoids of the distance. [+@wang2019]. [+@raffel2020]: section 2.1. [+@su2021]: section 3. [+@kiyono2021].
# [+@press2022]. [+@haviv2022]. [+@kazemnejad2023]. [+@chen2023]. [+@peng2024yarn].
