# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3 (ipykernel)
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Lecture @order · Order: telling attention where things stand
#
# *About 60 minutes, of which less than one is computing. You need self-attention with its queries, keys and values
# ([lecture @self_attention](@self_attention)), and from school sine, cosine, and what it means to turn an arrow by an
# angle.*
#
# When you have finished you will be able to give a Transformer its sense of order in six ways, two of them from
# memory; to say of each, because you have tested it, what it can and what it cannot do; and to explain why a model
# that was trained on short texts may be lost in long ones. In [assignment @order](@order/assignment) you
# build the three that matter most.
#
# ## Two dogs
#
# *The dog chased another dog.* One of them runs in front and is frightened, the other runs behind and is happy, and
# English tells you which is which by nothing but the order of the words. A network that reads word by word meets the
# two at different times. Self-attention meets everything at once, and [lecture @self_attention](@self_attention) showed
# what follows: shuffle its inputs, and its outputs are shuffled along with them, and otherwise unchanged.
#
# Both dogs go in as the same vector. *Guess, before you run the cells:* do they come out as the same vector? And does
# your answer change if every word may look only at itself and at what stands before it, as in a model that writes?

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

import torch
import torch.nn.functional as F
from torch import nn

from attncourse import positions as package
from attncourse.attention import MultiHeadAttention
from attncourse.positions import LearnedPositions, ShawRelative, binary, integer, relative_index, rope_angles
from attncourse.transformer import Encoder, TransformerConfig, Weights

torch.set_num_threads(1)  # models as small as these gain nothing from a second thread, and lose when it has to wait

# %%
words = ["the", "dog", "chased", "another", "dog"]
vocabulary = sorted(set(words))
torch.manual_seed(0)
embedding = nn.Embedding(len(vocabulary), 16)
attention = MultiHeadAttention(d_model=16, n_heads=1)
x = embedding(torch.tensor([[vocabulary.index(word) for word in words]]))       # (1, 5, 16)

free, causal = [], []                                 # here the two calls put their weights
y_free = attention(x, weights=free)[0]                # (5, 16)  all see all
y_causal = attention(x, weights=causal, causal=True)[0]         # (5, 16)  nobody sees the future
for name, y in {"no mask": y_free, "causal mask": y_causal}.items():
    print(f"{name:>12}: the two dogs differ by {(y[1] - y[4]).abs().max().item():.3f}")

# %%
dogs = torch.cat([free[0][0, 0, [1, 4]], causal[0][0, 0, [1, 4]]])            # (4, 5)
seen = ["first dog, no mask", "second dog, no mask", "first dog, causal", "second dog, causal"]
viz.draw_weights(dogs, rows=seen, columns=words, title="where each dog looks")
assert torch.allclose(y_free[1], y_free[4], atol=1e-6), "without a mask the two are one"
assert (y_causal[1] - y_causal[4]).abs().max() > 0.01, "with one they are not"

# %% [markdown]
# Without a mask the two dogs ask the same question of the same five words, get the same weights, and come out equal.
# With the causal mask they do differ. They still ask the same question, but of different words: the first dog sees
# two, the second all five.
#
# So the mask lets a little order in. How much? Let us shuffle the words that stand before the second dog, and apply
# the masked attention again.

# %%
shuffled = x[:, [2, 3, 0, 1, 4]]                      # "chased another the dog … dog"
y_shuffled = attention(shuffled, causal=True)[0]      # (5, 16)
print("the second dog moves by", (y_shuffled[4] - y_causal[4]).abs().max().item())
assert torch.allclose(y_shuffled[4], y_causal[4], atol=1e-6)

# %% [markdown] erratum="identical output; outputs 2 and 5"
# It does not notice. Through one layer of masked attention a word knows *which* words came before it, and not in
# which order. With several layers much more can be squeezed out, since every word in between has seen a different
# past, and language models of this kind, without any positions, come close to those that have them (Haviv et al.
# 2022). An encoder, which sees everything, has no such help: for it *the dog chased the cat* and *the cat chased the
# dog* are one bag of words.
#
# > **On the slide.** One deck has this sentence and says that without positions "the output is *identical* for the
# > same token". That is right without a mask, as in the code beside it. But the embeddings in that code are Llama's,
# > which reads through a causal mask, and for such a model the sentence is wrong, as you have just seen. Two more
# > remarks on the code. It applies query, key and value projections and then calls a module that applies its own
# > again; and it compares outputs 2 and 5, which are the dogs only where the tokenizer puts one start token in front.
# > Counted from zero, ours are 1 and 4.
#
# > **Check yourself.** *A big dog and a very big cat* and *A big cat and a very big dog* go through an encoder
# > without positions, and the outputs of each sentence are averaged. How do the averages differ?
# > <details><summary>Answer</summary>Not at all. The two sentences hold the same words equally often, so the outputs
# > are the same vectors in another order, and an average does not care about order.</details>

# %% [markdown]
# ## A name tag for every place
#
# The remedy is as simple as a seat number. Position $i$ gets a vector $p_i$, and the word that sits there wears it:
#
# $$\tilde x_i = x_i + p_i$$
#
# From here on the two dogs are different vectors, and everything that attention computes may depend on the place. The
# rest of this lecture asks what $p_i$ should be, and whether it should be added at all.
#
# Is it not careless to add? Word and place are mixed into one vector, and nobody can take a sum apart. Should we not
# write one after the other, $[x_i; p_i]$? See what the first projection makes of that:

# %%
x5, p5, W = x[0], torch.randn(5, 16), torch.randn(16, 16)
side_by_side = torch.cat([x5, p5], dim=-1)            # (5, 32)
W_twice = torch.cat([W, W])                           # (32, 16)
assert torch.allclose(side_by_side @ W_twice, (x5 + p5) @ W, atol=1e-4)

# %% [markdown]
# Adding is a special case of concatenating: the case in which the word and the place are read by the same matrix.
# What the general case would buy is a second matrix; what it costs is width. In a space of several hundred dimensions
# there is room enough for words and places to keep out of each other's way, so, as the slides say, people mostly just
# add.

# %% [markdown]
# ## First try: the number itself
#
# The place is a number, so write that number into every column. Position 7 is a vector of sevens. *What will go
# wrong* when the text is long? Take two different words, put both at the same position, and ask how similar they
# still look.

# %%
word, other = torch.randn(2, 64, generator=torch.Generator().manual_seed(1))
for p in (0, 1, 10, 100):
    tag = integer(torch.tensor(p), 64)                # (64,)  p, p, …, p
    alike = F.cosine_similarity(word + tag, other + tag, dim=0)
    print(f"position {p:>3}: cosine between the two words {alike:.3f}")
assert F.cosine_similarity(word + 100, other + 100, dim=0) > 0.99

# %% [markdown]
# At position 100 two unrelated words look the same: the seat number has drowned out who sits there. It has no bound,
# and everything downstream has to cope with numbers that training never showed it.
#
# Today's Transformers have a guard against large numbers: a LayerNorm in front of each attention (lecture @deep_stacks), which
# subtracts from every vector the mean over its columns and divides by their spread. *What does that do to a tag that
# is the same in every column?*

# %%
at_0, at_100 = (F.layer_norm(word + p, (64,)) for p in (0, 100))
print("position 100 against position 0, after a LayerNorm:", (at_100 - at_0).abs().max().item())
assert torch.allclose(at_100, at_0, atol=1e-4)

# %% [markdown]
# It takes the tag away, to the last rounding error. A model of this kind with integer positions has no positions.
# Keep that in mind for the experiment below, where one such model will take part.
#
# > **Check yourself.** Divide the position by the length of the text, so that it always lies between 0 and 1. What
# > have you gained, and what have you lost?
# > <details><summary>Answer</summary>It is bounded now. But "three words further" is 0.3 in a text of ten words and
# > 0.003 in one of a thousand, and the same place has a different tag in each text. A model that has learned what 0.3
# > means has learned nothing about the next text. The first wish on the list at the end of this lecture is one tag
# > for each position <em>across</em> texts.</details>

# %% [markdown]
# ## Second try: its digits
#
# A number can be large and its digits small. Write the position in binary, one digit a column:

# %%
print(binary(torch.arange(8), 3).int())               # (8, 3)  lowest digit first
try:
    binary(torch.tensor(8), 3)
except ValueError as error:
    print(error)

# %% [markdown]
# Bounded, and no two alike, up to the place where the digits run out. And it shows a pattern worth stealing: every
# column ticks half as often as the one before, a clock with a fast hand and slow hands.
#
# What it lacks is a sense of nearness. Move the slider from 7 to 8 and look at the right panel: how far is each
# position from the chosen one? *Before you do, guess:* in digits, which number is the furthest from 7? And beside the
# digits stands a smoother clock, in which each hand is a pair of columns, a sine and a cosine. What becomes of *its*
# curve, when the slider moves?

# %%
viz.explore(figures.binary_and_waves, position=range(16), start={"position": 7})

# %% [markdown]
# In digits 8 is as far from 7 as can be, because all four flip, while 3 is quite near. Whoever wants to find "the
# word before me" has to learn how to subtract with borrowing. In waves the curve is always the same curve; it only
# moves along. How far apart two positions look depends on how far apart they are, and not on where. That is what the
# next scheme is made of.

# %% [markdown]
# ## Third try: sines and cosines
#
# Vaswani et al. (2017, section 3.5) give each *pair* of columns a hand of the clock. Pair $i$ counts from 0:
#
# $$
# \mathrm{PE}(p, 2i) = \sin\!\left(\frac{p}{10000^{\,2i/d}}\right), \qquad
# \mathrm{PE}(p, 2i + 1) = \cos\!\left(\frac{p}{10000^{\,2i/d}}\right)
# $$
#
# The first hand turns by one radian from word to word, and has gone full circle after $2\pi \approx 6.3$ words. With
# $d = 64$ there are 32 hands, and the last needs $2\pi \cdot 10000^{62/64}$ words, which is about 47 000.

# %%
def sinusoidal(positions, d_model, base=10000.0):
    i = torch.arange(d_model // 2)                                            # (d/2,)  the pairs
    angles = positions[..., None] / base ** (2 * i / d_model)                 # (*n, d/2)
    return torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(-2)      # (*n, d)  neighbours are a pair


table = sinusoidal(torch.arange(64), 64)                                      # (64, 64)
assert torch.allclose(table, package.sinusoidal(torch.arange(64), 64), atol=1e-5)
figures.position_heatmap(table, title="sinusoidal positions")

# %% [markdown] erratum="twice the rows; pairs counted from 1"
# Each row is one position's tag. On the left the hands race; from the middle on they hardly stir, because 64 words
# are nothing to a hand that needs thousands for one round. There the sines stay near 0 and the cosines near 1. Those
# columns are for longer texts than this.
#
# > **On the slide.** Four decks count the pairs from 1, so that their first exponent is $2 \cdot 1/d$; the fifth,
# > like the paper, from 0. Both make good clocks, but not the same one, and weights trained with one do not fit the
# > other. One of the four also ends with the exponent $2 \cdot d/d$. Run it: that makes twice as many rows as there
# > are. The last pair is $d/2$.

# %%
def one_position(p, d_model, last):                   # as those slides write it: pairs 1, 2, …, last
    angles = [p / 10000 ** (2 * i / d_model) for i in range(1, last + 1)]
    return torch.tensor([f(angle) for angle in angles for f in (math.sin, math.cos)])


print("last pair d:  ", len(one_position(3, 64, last=64)), "numbers for d = 64")
print("last pair d/2:", len(one_position(3, 64, last=32)), "numbers for d = 64")
assert len(one_position(3, 64, last=64)) == 2 * 64
print("counted from 1, position 3 is off by", (one_position(3, 64, last=32) - table[3]).abs().max().item())
assert (one_position(3, 64, last=32) - table[3]).abs().max() > 0.1

# %% [markdown]
# Now look at nearness. Take the tag of some position and its dot product with the tags around it, once in waves and
# once in digits (written as ±1, because a zero counts for nothing in a dot product). *Will the curve around position
# 20 be the curve around position 47?*

# %%
offsets = torch.arange(-16, 17)
digits = 2 * binary(torch.arange(64), 8) - 1          # (64, 8)
hills = {}
for name, tags in {"waves": table, "digits": digits}.items():
    for p in (20, 47):
        hills[f"{name} around {p}"] = (tags[p + offsets] @ tags[p] / (tags[p] @ tags[p])).tolist()
waves_20, waves_47, digits_20, digits_47 = (torch.tensor(hill) for hill in hills.values())        # (33,) each
viz.curves(hills, xs=offsets.tolist(), x_name="offset from the position", y_name="dot product (1 at offset 0)",
           alt="Dot products of a position's vector with those around it, which are 1 at the position itself. "
           f"In waves the curves around positions 20 and 47 are {(waves_20 - waves_47).abs().max():.2f} apart at most, "
           f"and at offset 1 stand at {waves_20[17]:.2f}; in digits they are up to "
           f"{(digits_20 - digits_47).abs().max():.2f} apart.")

# %%
assert torch.allclose(waves_20, waves_47, atol=1e-5) and not torch.allclose(digits_20, digits_47, atol=0.1)

# %% [markdown] erratum="positions behind the projections"
# The hills of the waves coincide:
# $\mathrm{PE}(p) \cdot \mathrm{PE}(q) = \sum_i \cos\bigl((p - q)/10000^{2i/d}\bigr)$, and only the difference is in
# it. The digits have a skyline instead, and a different one at every place. (Four decks say of the sinusoids that their
# periods hint that "absolute position" may not be so important. This is the hint, made precise.)
#
# > **On the slide.** "Just add the $p_i$ to our inputs", say four decks, and three of them do. The fourth prints,
# > under the same words, $p_i$ added to each of the finished query, key and value. These are not two notations for
# > one thing. Added to the input, the place goes through $W_Q$ and $W_K$, and the score gets a term
# > $p_i W_Q W_K^\top p_j^\top$ that can be learned. Added after the projections, the term is $p_i \cdot p_j$: always
# > the hill above, highest on the word itself, and no training can move its top to the word before. We add to the
# > input, as the paper does.

# %% [markdown]
# ## One matrix for every shift
#
# Why sines *and* cosines? Because of what the authors say in one sentence: $\mathrm{PE}(p + k)$ is a linear function
# of $\mathrm{PE}(p)$. Take one hand with the frequency $\omega$, at the angle $a = \omega p$. After $k$ more words it
# has gained $b = \omega k$, and the addition formulas say
#
# $$
# \bigl(\sin(a + b),\ \cos(a + b)\bigr) = \bigl(\sin a,\ \cos a\bigr)
# \begin{pmatrix} \cos b & -\sin b \\ \sin b & \cos b \end{pmatrix}.
# $$
#
# The matrix has no $a$ in it. Whatever the position, the same matrix moves the hand on by $k$; and for all hands
# together it is such blocks down a diagonal, $\mathrm{PE}(p + k) = \mathrm{PE}(p)\, M_k$. (Rows on the left, as
# everywhere in this course.) In the assignment you write it. Here we take the package's and see what it is good for.
#
# Suppose that a head wants to look at the word *two places before*, wherever it stands. It has $W_Q W_K^\top = A$ to
# choose. With $A = M_{-2}$ the query of position $i$ becomes the tag of position $i - 2$, and the hill stands there.
# (What words stand there is left out for the moment.) *How far will that reach?*

# %%
M = package.shift_matrix(-2, 64)                      # (64, 64)
tags = sinusoidal(torch.arange(1000), 64)             # (1000, 64)
assert torch.allclose(tags[2:] @ M, tags[:-2], atol=1e-4), "one matrix for all positions"
scores = tags @ M @ tags.mT                           # (1000, 1000)
looks_at = scores.argmax(dim=-1)                      # (1000,)  for each query the key that it looks at
assert (looks_at[2:] == torch.arange(998)).all()
for i in (5, 50, 999):
    print("query", i, "looks at key", looks_at[i].item())

# %% [markdown]
# As far as you like. There *is* a head that always looks two places back, in texts of any length, and it takes no
# more than one matrix. Whether gradient descent *finds* that matrix is another question, and the answer further down
# may surprise you.

# %% [markdown]
# ## Fourth try: let it learn
#
# Why invent tags at all? Everything else in the network is learned. Make a table with a row for each position, start
# it with small random numbers, and let the gradient fill it in:

# %%
learned = LearnedPositions(max_length=32, d_model=64)
print("parameters:", learned.table.numel(), "  tags for 32 positions:", tuple(learned(32).shape))
try:
    learned(33)
except ValueError as error:
    print(error)

# %% [markdown] erratum="learned positions credited to Shaw; positions by the batch"
# No formula has to be right, and position 0, which is special in many texts, can become special. BERT and GPT-2 do it
# so. The price is in the last line: position 32 has no row. It is not that the model does badly there; it cannot be
# asked.
#
# > **On the slide.** One deck heads this "(Shaw+ 2018)". Learned position vectors are in Gehring et al. (2017), and
# > Vaswani et al. tried them beside the sinusoids and found nearly the same score (their table 3, row E). Shaw,
# > Uszkoreit and Vaswani (2018) is about *relative* positions, and comes next.
#
# > **On the slide.** The same deck prints a model that looks its positions up with `torch.arange(x.size(0))`. The
# > input is batch first, so that counts the *batch*: all words of a sentence get one tag, and which tag depends on
# > how many sentences stand above it. The loss goes down all the same; lecture @errata_lab comes back to it. A short test
# > finds it:

# %%
def add_positions_as_printed(x):                      # x (batch, n, d)
    pos = torch.arange(x.size(0)).unsqueeze(1)        # (batch, 1)
    return x + learned.table[pos]                     # (batch, n, d) + (batch, 1, d)


sentence, company = torch.randn(1, 5, 64), torch.randn(2, 5, 64)
alone = add_positions_as_printed(sentence)[-1]                                # (5, 64)
last_of_three = add_positions_as_printed(torch.cat([company, sentence]))[-1]  # (5, 64)
print("the same sentence, alone and in company, differs by", (alone - last_of_three).abs().max().item())
assert not torch.allclose(alone, last_of_three, atol=0.01), "an answer must not depend on who else is in the batch"

# %% [markdown]
# ## Distances instead of places
#
# "The word before *cat*" is a useful thing to know; "word 417" hardly ever is. Tags say where each word is and leave
# it to the model to subtract. Shaw et al. (2018) hand it the difference. Nothing is added to the words. Instead every
# *distance* $j - i$ from a query to a key has a learned vector, which joins the key when the two meet:
#
# $$
# e_{ij} = \frac{q_i \cdot \bigl(k_j + a^K_{ij}\bigr)}{\sqrt{d}}, \qquad a^K_{ij} = w^K_{\operatorname{clip}(j - i,\, -k,\, k)}
# $$
#
# (and likewise $a^V_{ij}$ joins the value). The clip keeps the table small: distances up to $k$ have a vector each,
# and all beyond share the outermost. For $k = 2$ these are the rows that the pairs look up:

# %%
text = ["we", "know", "that", "you", "know", "it"]
index = relative_index(6, 6, max_distance=2)          # (6, 6)  clip(j − i, −2, 2) + 2
figures.distance_table(index, text)

# %% [markdown]
# Row 2 is "here", row 1 "the word before", row 0 "two or more before". Down every diagonal stands one number. The two
# *know* see the words around them in the same way, wherever in the text they are.
#
# That is the whole mechanism. Three lines compute the scores, and the package's module does the same without ever
# building $a_{ij}$ for every pair, since there are only $2k + 1$ different ones:

# %%
q, k = torch.randn(2, 6, 16)                          # (6, 16) each
shaw = ShawRelative(max_distance=2, d_head=16)        # shaw.key is (5, 16), a row for each distance
a = shaw.key[index]                                   # (6, 6, 16)  a_ij
scores = torch.einsum("id,ijd->ij", q, k[None] + a) / math.sqrt(16)           # (6, 6)
assert torch.allclose(scores, (q @ k.mT + shaw.scores(q, n_key=6)) / math.sqrt(16), atol=1e-5)

# %% [markdown] erratum="Shaw's formula under Absolute"
# How large must $k$ be? For English to German the paper measures 12.5 BLEU with $k = 0$, which is no order at all,
# 25.5 with $k = 1$, 25.8 with $k = 2$, and then nothing more up to $k = 256$. Half of the score of a translation
# hangs on order, and nearly all of that can be had from who stands next to whom. (The model has several layers, and
# the next layer can pass on what a word has heard from its neighbour. So it may see further than $k$ after all.)
#
# > **On the slide.** One deck shows Shaw's formula, to say what RoPE does better, under the heading "Absolute". It is
# > the relative one: move query and key along together, and the score stays. What the deck goes on to say is right:
# > this score is no inner product of something that query $i$ brings and something that key $j$ brings, because
# > $a_{ij}$ belongs to the pair.

# %%
one_query, one_key = torch.randn(2, 16)
far = relative_index(505, 505, max_distance=2)        # (505, 505)
moved = [one_query @ (one_key + shaw.key[far[i, j]]) for i, j in ((3, 4), (13, 14), (503, 504))]
print("distance 1, at three places:", [round(score.item(), 4) for score in moved])
assert moved[0] == moved[1] == moved[2]

# %% [markdown]
# The idea has a family. T5 (Raffel et al. 2020) gives every distance a single learned *number* instead of a vector,
# and lets far distances share it in ever wider buckets. ALiBi (Press et al. 2022) learns nothing at all and subtracts
# a cost in proportion to the distance; it is the extension of the assignment. And the distance need not be counted in
# words: Wang et al. (2019) count steps in the tree of which word depends on which.

# %% [markdown]
# ## Turn, do not add
#
# Could we have both, a tag that each word carries by itself *and* scores that know distances alone? Su et al. (2021)
# write the wish down as an equation and solve it. Let $f(x, i)$ be the vector $x$ as it appears at place $i$. We want
#
# $$\langle f(x, i),\, f(y, j) \rangle = g(x, y,\, i - j).$$
#
# Adding does not do it. $\langle x + p_i,\, y + p_j \rangle$ has four terms, and only $\langle p_i, p_j \rangle$
# knows the distance alone; the mixed ones, $\langle x, p_j \rangle$ and $\langle p_i, y \rangle$, change with the
# place. (One deck calls them "cross-terms that are not relative".)
#
# What does an inner product *not* see? If both arrows are turned by the same angle, it stays as it was. So let the
# place turn the vector: at place $i$ by $i$ times some angle. Two words that lie $k$ places apart are then $k$ angles
# apart, wherever they stand.
#
# The picture has two words. "Of course *we know*" has them at places 2 and 3, "*we know* that" at 0 and 1: the same
# distance, somewhere else. The pale arrows are the two words as they were before the turn. *Choose an offset, then move
# the shift, which moves both words along. What stays, and what would change if the tag were added instead?*

# %%
viz.explore(
    figures.rotated_pair,
    offset=[1, 2, 3],
    shift=range(6),
    start={"offset": 1, "shift": 2},
    names={"offset": "offset: how far apart", "shift": "shift: both together"},
)

# %% [markdown]
# The two arrows go round together, and the angle between them, which is all that the score sees, does not move. It
# moves when you change the offset. The dashed line is the same two words with the sine and cosine of the same angle
# *added*: its score depends on the place as much as on anything else.
#
# A plane has two dimensions and a head has more. So take the columns in pairs and turn each pair in its own plane, by
# its own angle $\theta_i = p / 10000^{2i/d}$: the clock of the sinusoids once more, but now it *multiplies*.
#
# $$(a,\ b)\ \longmapsto\ (a \cos\theta_i - b \sin\theta_i,\ \ a \sin\theta_i + b \cos\theta_i)$$
#
# This is **RoPE**, rotary position embedding. Here it is in code, for rows $x$ at places $p$:

# %%
def turn(x, positions, base=10000.0):
    d = x.shape[-1]
    theta = positions[:, None] / base ** (torch.arange(0, d, 2) / d)          # (n, d/2)
    a, b = x[..., 0::2], x[..., 1::2]                                         # (…, n, d/2) each: the pairs
    turned = [a * theta.cos() - b * theta.sin(), a * theta.sin() + b * theta.cos()]
    return torch.stack(turned, dim=-1).flatten(-2)                            # (…, n, d)


rows = torch.randn(10, 64)
expected = package.rotate(rows, rope_angles(torch.arange(10), 64), style="interleaved")
assert torch.allclose(turn(rows, torch.arange(10)), expected, atol=1e-5)
assert torch.allclose(expected.norm(dim=-1), rows.norm(dim=-1), rtol=1e-4), "a turn keeps lengths"

# %% [markdown]
# The slides say that RoPE has to do with complex numbers. It is the same thing in another dress: read each pair as one
# number $a + \mathrm{i}b$, and the turn is the product with $e^{\mathrm{i}\theta}$.

# %%
pairs = torch.view_as_complex(rows.unflatten(-1, (-1, 2)))                    # (10, 32)  a + ib
spun = pairs * torch.exp(1j * rope_angles(torch.arange(10), 64))              # (10, 32)
assert torch.allclose(torch.view_as_real(spun).flatten(-2), expected.double(), atol=1e-5)

# %% [markdown]
# Now test the wish. One query and one key, the same distance at four places, and then another distance:

# %%
query, key = torch.randn(2, 1, 64, generator=torch.Generator().manual_seed(0))        # (1, 64) each


def score_at(i, j):
    return (turn(query, torch.tensor([i])) @ turn(key, torch.tensor([j])).mT).item()


print("distance 3:", [round(score_at(i, i + 3), 3) for i in (0, 7, 100, 1000)])
print("distance 4:", [round(score_at(i, i + 4), 3) for i in (0, 7, 100, 1000)])
assert max(abs(score_at(i, i + 3) - score_at(0, 3)) for i in (7, 100, 1000)) < 0.01
assert abs(score_at(0, 4) - score_at(0, 3)) > 0.1

# %% [markdown]
# Query and key are turned, after their projections, in every layer. Values are not. The values are what is averaged,
# and there is no second turn that would undo the first: an average of vectors turned by different angles would be a
# blur. Nothing is learned, and nothing is added to the words.
#
# Two layouts are in use. The paper pairs neighbouring columns, as we did ("interleaved"). GPT-NeoX, and Llama in the
# transformers library, pair column $i$ with column $i + d/2$ ("half"). They are the same up to the order of the
# columns, and a dot product does not see an order that query and key share:

# %%
def scores_of(q, k, style):
    return package.rotate(q, angles, style) @ package.rotate(k, angles, style).mT     # (10, 10)


angles, evens_first = rope_angles(torch.arange(10), 64), [*range(0, 64, 2), *range(1, 64, 2)]
q, k = torch.randn(2, 10, 64)
by_neighbours = scores_of(q, k, "interleaved")
rearranged, untouched = scores_of(q[:, evens_first], k[:, evens_first], "half"), scores_of(q, k, "half")
print("by halves, columns rearranged: off by", (rearranged - by_neighbours).abs().max().item())
print("by halves, columns untouched:  off by", (untouched - by_neighbours).abs().max().item())
assert torch.allclose(by_neighbours, rearranged, atol=1e-3) and not torch.allclose(by_neighbours, untouched, atol=1)

# %% [markdown]
# So either is as good, and weights of one need their columns rearranged for the other. Nothing crashes if they are
# not; the model just speaks nonsense.
#
# > **Check yourself.** (1) A head's queries and keys are turned at places $i$ and $j$. Write the score with rotation
# > matrices $R_i$ for rows, and show where $i - j$ comes from. (2) One deck prints RoPE as
# > $x \otimes \cos + \tilde x \otimes \sin$. What must $\otimes$ mean?
# > <details><summary>Answers</summary>(1) <code>(q Rᵢ)(k Rⱼ)ᵀ = q Rᵢ Rⱼᵀ kᵀ = q Rᵢ₋ⱼ kᵀ</code>, because turning by
# > the angles of i and back by those of j is turning by those of i − j. (2) The product element by element; Su et al.
# > write it so. In most books ⊗ is the outer or Kronecker product, which would give a matrix.</details>

# %% [markdown]
# ## Further than it has ever seen
#
# Six schemes. One wish is left, and money hangs on it: training on long texts is expensive. Can we train on short
# ones and read long ones?
#
# We shall try it on the smallest task that needs order and nothing else. The model reads random letters and must say,
# at every place, which letter stood *two places before*. There is nothing to know about letters. Whoever can look two
# places back has solved it. The models see texts of 8 to 32 letters, and are then asked about 128.
#
# Each is a Transformer's encoder with one block, from the package, with a linear layer on top. (What else is in a block
# besides attention is the subject of lectures @masking to @transformer.) They differ in `positions` alone.

# %%
LETTERS, BACK, TRAINED = 16, 2, 32


class Echo(nn.Module):
    def __init__(self, scheme, max_length=TRAINED, base=None):
        super().__init__()
        config = TransformerConfig(vocab_size=LETTERS, d_model=64, n_layers=1, n_heads=2, d_ff=64,
                                   positions=scheme, max_length=max_length, max_distance=8, dropout=0.0)
        self.encoder, self.output = Encoder(config), nn.Linear(64, LETTERS)
        if base is not None:                          # other periods, for an experiment below
            self.encoder.embedding.positions.table = sinusoidal(torch.arange(max_length), 64, base)

    def forward(self, tokens, **options):             # tokens (batch, n)
        return self.output(self.encoder(tokens, **options))                   # (batch, n, LETTERS)

# %%
def train(scheme, steps=500, seed=0, before_step=lambda model, step: None, **options):
    torch.manual_seed(seed)
    model = Echo(scheme, **options)
    optimiser = torch.optim.Adam(model.parameters(), lr=3e-3, betas=(0.9, 0.98))
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, max_lr=3e-3, total_steps=steps, pct_start=0.2)
    for step in range(steps):
        before_step(model, step)                      # for two experiments below; else it does nothing
        n = int(torch.randint(8, TRAINED + 1, ()))
        tokens = torch.randint(LETTERS, (32, n))                              # (32, n)
        guess = model(tokens)[:, BACK:]                                       # (32, n − 2, LETTERS)
        loss = F.cross_entropy(guess.flatten(0, 1), tokens[:, :-BACK].flatten())
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        schedule.step()
    return model.eval()

# %%
SCHEMES = {"no positions": "none", "integer": "integer", "binary": "binary", "sinusoidal": "sinusoidal",
           "learned": "learned", "relative (Shaw)": "shaw", "RoPE": "rope"}
models = {name: train(scheme) for name, scheme in SCHEMES.items()}

# %% [markdown]
# For longer texts we build the same model with a longer table and give it the trained weights. That works for
# whatever is computed by a formula, and for Shaw's distances, which are clipped. A learned table has no more rows
# than it had.
#
# *Sketch it first:* seven small diagrams, accuracy against the position from 0 to 128. Where does each line stand up
# to 32, and what happens there?

# %%
@torch.no_grad()
def right_at(model, name, n, batch=64, window=None, **options):
    """The share of texts in which the answer at each position is right, from position BACK on."""
    longer = Echo(SCHEMES[name], max_length=n, **options)
    longer.load_state_dict(model.state_dict())
    tokens = torch.randint(LETTERS, (batch, n), generator=torch.Generator().manual_seed(1))   # (batch, n)
    place = torch.arange(n)
    mask = None if window is None else (place - place[:, None]).abs() <= window               # (n, n)
    answer = longer(tokens, mask=mask).argmax(dim=-1)                         # (batch, n)
    return (answer[:, BACK:] == tokens[:, :-BACK]).float().mean(dim=0)        # (n − BACK,)


right = {name: right_at(model, name, TRAINED if name == "learned" else 128) for name, model in models.items()}
figures.accuracy_past_training(right, trained=TRAINED, chance=1 / LETTERS, first=BACK)

# %% [markdown]
# Three kinds of models.
#
# *Those that never got it.* Without positions almost nothing can be done, as one would expect. (It is a little better
# than guessing: a letter that is frequent in the text is the better guess.) With integer positions it is about the
# same: the LayerNorm has taken them away.
#
# *Those that got it, and lost it.* In texts of the trained length the sinusoids make no mistake, and neither does the
# learned table; binary digits get a good part of it. (Two places back is a subtraction with borrowing, and one look
# of attention, which compares digits two by two, is slow to find what it can do. More training takes it further, but
# not all the way.) Beyond the known ground sinusoids and digits fall off, and the table refuses. Look at the shaded
# part, too: in the long text the binary model has become worse even at the front. The letters beyond position 32 wear
# tags that the model has never seen, and they draw attention from everywhere.
#
# *Those that do not care.* Shaw's distances and RoPE walk on as if nothing had happened.

# %%
inside = {name: right_at(model, name, TRAINED).mean().item() for name, model in models.items()}
beyond = {name: line[TRAINED - BACK :].mean().item() for name, line in right.items() if name != "learned"}
for name in SCHEMES:
    past = f"{beyond[name]:4.0%} beyond position 32 in texts of 128" if name in beyond else "refuses longer ones"
    print(f"{name:>16}: {inside[name]:4.0%} in texts of 32, {past}")
assert min(inside[name] for name in ("sinusoidal", "learned", "relative (Shaw)", "RoPE")) > 0.98
assert min(beyond["relative (Shaw)"], beyond["RoPE"]) > 0.9
assert max(beyond["sinusoidal"], beyond["binary"]) < 0.4
assert max(inside["no positions"], inside["integer"]) < 0.3
assert right["binary"][: TRAINED - BACK].mean() < inside["binary"] - 0.05, "worse at its front, too"

# %% [markdown]
# But did we not build, with our own hands, a sinusoidal head that looks two places back in texts of a thousand words?
# We did, and the model did not. There could be two reasons. Perhaps it has no room for our head: its heads have 32
# columns each, where $M_{-2}$ wants 64, and the letters are in the way. Or it has the room, and training does not go
# there: it sees 32 tags, a great many matrices are right on those, and nothing in the loss prefers the one that is
# right on all the others.
#
# *Which is it?* Let us put our head into the model *before* the training, cut down to the 16 fastest pairs, and then
# train exactly as before, on the same texts, with all weights free to move.

# %%
def our_head(model, step):
    if step == 0:
        attention = model.encoder.stack.blocks[0].attention.sublayer
        fastest = torch.eye(64)[:, :32]               # (64, 32)  keeps the 16 fastest pairs
        W_K = 2 * fastest                             # (64, 32)  the 2 makes the look sharp
        W_Q = package.shift_matrix(-BACK, 64) @ W_K   # (64, 32)
        with torch.no_grad():                         # both heads alike; torch keeps a weight transposed
            attention.query.weight.copy_(torch.cat([W_Q, W_Q], dim=1).T)      # (64, 64)
            attention.key.weight.copy_(torch.cat([W_K, W_K], dim=1).T)        # (64, 64)


advised = right_at(train("sinusoidal", before_step=our_head), "sinusoidal", 128)              # (126,)
print(f"{advised[TRAINED - BACK :].mean():.0%} beyond position 32, where {beyond['sinusoidal']:.0%} were right before")
assert advised[TRAINED - BACK :].mean() > 0.75

# %% [markdown]
# It has the room. The same model, trained on the same short texts, is right far beyond them, if it starts in the right
# place, and from a random place it does not get there. That a good solution exists is a property of the scheme. That
# it is found is not.
#
# > **On the slide.** Four decks note that sinusoids "maybe can extrapolate to longer sequences as periods restart",
# > and, below that, that this "doesn't really work". The second line is right, and the first can be tested. Perhaps it
# > fails only because most periods are so long that they never restart? With the base 4 in place of 10000 the slowest
# > of our hands comes full circle after 24 letters, so training has seen each of them go all the way round.

# %%
restarting = train("sinusoidal", base=4.0)
print("slowest period:", round(2 * math.pi * 4 ** (62 / 64), 1), "letters")
again = right_at(restarting, "sinusoidal", 128, base=4.0)                     # (126,)
front, back = again[: TRAINED - BACK].mean().item(), again[TRAINED - BACK :].mean().item()
print(f"{front:.0%} up to position 32, {back:.0%} beyond it")
assert front > 0.95 and back < 0.3

# %% [markdown]
# Restarting does not help. Each hand is in a position that the model has seen before, but all of them *together*
# never were, and it is the combination that the matrix reads.
#
# If unknown combinations are what hurts, and not the length, there is a cure. Go back to the base 10000, and at every
# step let the training texts begin at a different place, anywhere from 0 to 96. They are no longer than before, but
# their tags come from all of the first 128. (Kiyono et al. 2021 do this with translation.) *Will that do for a text of
# 128? And for one of 256?*

# %%
def begin_anywhere(model, step):
    first = int(torch.randint(128 - TRAINED + 1, ()))
    model.encoder.embedding.positions.table = sinusoidal(torch.arange(first, first + TRAINED), 64)        # (32, 64)


roaming = train("sinusoidal", before_step=begin_anywhere)
in_128, in_256 = (right_at(roaming, "sinusoidal", n) for n in (128, 256))     # (126,), (254,)
known, new = in_128[TRAINED - BACK :].mean().item(), in_256[128 - BACK :].mean().item()
print(f"{known:.0%} beyond position 32 in texts of 128; {new:.0%} beyond position 128 in texts of 256")
assert known > 0.85 and new < 0.65

# %% [markdown]
# Not one text of its training was longer than 32, and it reads 128. Where the tags are new again, it falls off again.
# So it is the tags that have to be known, more than the length.
#
# What the models look at shows the same from inside. Here are the weights of three of the models above, in a text of
# 64 letters, with lines at the end of the trained length. A perfect model shows one thin diagonal, two places below the
# main one.

# %%
letters = torch.randint(LETTERS, (1, 64), generator=torch.Generator().manual_seed(2))         # (1, 64)
looked = {}
for name in ("sinusoidal", "relative (Shaw)", "RoPE"):
    longer, weights = Echo(SCHEMES[name], max_length=64), Weights()
    longer.load_state_dict(models[name].state_dict())
    longer(letters, weights=weights)
    looked[name] = weights.self_attn[0][0].mean(dim=0)   # (64, 64)  the mean over the heads
figures.attention_past_training(looked, trained=TRAINED)

# %% [markdown]
# At the top left, within the trained length, all three draw it. Outside, the sinusoids look where they have no business
# looking, and the two relative schemes go straight on, because a distance of −2 is a distance of −2. (If RoPE's panel
# has faint specks far from the diagonal, keep them in mind.)
#
# ## How far does "on" go?
#
# Relative is not a magic word either. Let us go to texts thirty-two times as long as those of the training. *Guess:*
# will RoPE still be right? And what will change if every letter may look only at its 16 neighbours on either side?

# %%
def accuracy(name, window=None):                      # as many letters are asked about at every length
    return [right_at(models[name], name, n, 2048 // n, window).mean().item() for n in lengths]


lengths = (32, 128, 512, 1024)
reach = {
    "relative (Shaw)": accuracy("relative (Shaw)"),
    "relative (Shaw), window": accuracy("relative (Shaw)", window=16),
    "RoPE": accuracy("RoPE"),
    "RoPE, window": accuracy("RoPE", window=16),
    "sinusoidal, window": accuracy("sinusoidal", window=16),
}
viz.curves(reach, xs=lengths, x_name="length of the text", y_name="exactly right", log_x=True)

# %%
for label, line in reach.items():
    print(f"{label:>23}:", *(f"{share:4.0%}" for share in line))
assert reach["RoPE"][-1] < 0.9 < reach["RoPE"][1], "RoPE goes on, but not for ever"
assert min(reach["RoPE, window"][-1], reach["relative (Shaw), window"][-1]) > 0.97, "with a window it does"
assert reach["sinusoidal, window"][-1] < 0.8, "but a window does not make an unknown tag a known one"

# %% [markdown]
# RoPE goes on for a long way, and fades in the end; Shaw's model holds out longer. The scores of near letters are
# what they were, but softmax shares one unit among *all* keys. A letter that stands out clearly among 32 is one of
# 1024 now, and a thousand small weights add up. For RoPE there is a second reason: at far distances its slow hands
# come to angles that training never showed, and some of those keys score high by accident. A window removes both,
# since what stands far away is not looked at, and near distances are all known. (Lecture @cheap_attention uses windows to save
# time; here they save the answer.)
#
# This was a task in which only the neighbourhood counts, one small model of each kind, and letters instead of
# language. So take the order of the schemes from it, and not the numbers. For real language models too, RoPE by
# itself is known to fall off past its trained length; one remedy squeezes the places of the long text into the trained
# range, so that everything turns more slowly, and trains a little more (Chen et al. 2023). And where more than the
# neighbourhood counts, being relative need not help: on small reasoning tasks Kazemnejad et al. (2023) found RoPE,
# ALiBi and absolute positions all ill suited to longer texts, and a decoder without any positions ahead of them. A GPU
# would let you repeat this with real text and thousands of tokens; it would not change a line of the code.

# %% [markdown]
# ## Five wishes, tested
#
# One of the decks lists what one may wish of positions: (1) a unique tag for every position, across texts; (2) a
# linear relation between the tags of two positions; (3) that it carries over to texts longer than those of the
# training; (4) that a deterministic process makes it, which the model can learn to use; (5) that it extends to
# several dimensions, as for images. For RoPE we add (6): that scores depend on distances alone.
#
# A list of ticks is an opinion. Each wish can be a function that tries it. To treat all schemes alike, we ask of
# each: what does it tell a query at position 0 about a key at position $p$?

# %%
N, D = 256, 32


def tags_of(scheme, p, d=D, seed=0):                  # p (n,)  ->  (n, d)
    torch.manual_seed(seed)
    if scheme in ("integer", "binary", "sinusoidal"):
        return getattr(package, scheme)(p, d)
    if scheme == "learned":
        return LearnedPositions(N, d).table.detach()[p]
    if scheme == "relative (Shaw)":
        return ShawRelative(16, d).key.detach()[p.clamp(-16, 16) + 16]
    return package.rotate(torch.ones(len(p), d), rope_angles(p, d))           # RoPE: a vector of ones, turned

# %%
def unique(scheme):                                   # wish 1
    return F.pdist(tags_of(scheme, torch.arange(N))).min().item() > 1e-3


def linear(scheme, k=3):                              # wish 2: fit a matrix on half of the positions, try the rest
    p = torch.randperm(N - k, generator=torch.Generator().manual_seed(0))     # (253,)
    here = torch.cat([tags_of(scheme, p), torch.ones(len(p), 1)], dim=1).double()     # (253, d + 1)
    there = tags_of(scheme, p + k).double()                                   # (253, d)
    matrix = torch.linalg.lstsq(here[:126], there[:126], driver="gelsd").solution   # (d + 1, d)
    wrong = (here[126:] @ matrix - there[126:]).norm() / (there[126:] - there[126:].mean(dim=0)).norm()
    return wrong.item() < 0.01

# %% [markdown]
# (The column of ones allows a constant besides the matrix. It is kind to the integers, for which "three further" is
# "plus three". The two tables that are learned are asked as they are before training, full of random numbers. Training
# may bring some order into them, but nothing obliges it to.)

# %%
def by_formula(scheme):                               # wish 4: two builds, one result
    p = torch.arange(N)
    return torch.equal(tags_of(scheme, p, seed=0), tags_of(scheme, p, seed=1))


def two_dimensions(scheme):                           # wish 5: half of the tag tells the row, half the column
    row, column = torch.cartesian_prod(torch.arange(12), torch.arange(12)).T  # (144,) each
    both = torch.cat([tags_of(scheme, row, D // 2), tags_of(scheme, column, D // 2)], dim=1)  # (144, d)
    return F.pdist(both).min().item() > 1e-3

# %%
def distance_alone(scheme):                           # wish 6: one query, one key, three places, one distance
    query, key = torch.randn(2, 1, D, generator=torch.Generator().manual_seed(0))

    def score(i, j):
        i, j = torch.tensor([i]), torch.tensor([j])
        if scheme == "RoPE":
            query_i, key_j = package.rotate(query, rope_angles(i, D)), package.rotate(key, rope_angles(j, D))
        elif scheme == "relative (Shaw)":
            query_i, key_j = query, key + tags_of(scheme, j - i)
        else:
            query_i, key_j = query + tags_of(scheme, i), key + tags_of(scheme, j)
        return (query_i @ key_j.mT).item()

    return max(abs(score(3 + s, 5 + s) - score(3, 5)) for s in (10, 200)) < 1e-3

# %% [markdown]
# Wish 3 and the second half of wish 4 are not questions for a formula. They are questions for a trained model, and
# ours have answered them. *Which scheme, do you think, will have every wish granted?*

# %%
results = {}
for scheme in list(SCHEMES)[1:]:
    further = f"{beyond[scheme]:.0%}" if scheme in beyond else "refuses"
    results[scheme] = {
        "1 unique": (unique(scheme), ""),
        "2 linear": (linear(scheme), ""),
        "3 longer\ntexts": (beyond.get(scheme, 0) > 0.9, further),
        "4 by a\nformula": (by_formula(scheme), ""),
        "4 model\nlearns it": (inside[scheme] > 0.97, f"{inside[scheme]:.0%}"),
        "5 two\ndimensions": (two_dimensions(scheme), ""),
        "6 distance\nalone": (distance_alone(scheme), ""),
    }
figures.property_table(results)

# %%
def granted(wish):
    return [scheme for scheme, row in results.items() if row[wish][0]]


assert all(passed for passed, _ in results["RoPE"].values())
assert granted("1 unique") == ["integer", "binary", "sinusoidal", "learned", "RoPE"]
assert granted("2 linear") == ["integer", "sinusoidal", "RoPE"]
assert granted("3 longer\ntexts") == granted("6 distance\nalone") == ["relative (Shaw)", "RoPE"]
assert granted("4 by a\nformula") == ["integer", "binary", "sinusoidal", "RoPE"]
assert len(granted("5 two\ndimensions")) == len(results)

# %% [markdown]
# RoPE has them all, which goes some way to explain why most open language models of recent years use it. But read the
# table by columns, too. Two dimensions are no problem for anybody: give half of the columns to each axis. A wish that
# everybody grants helps nobody to choose. Being linear did not save the sinusoids, nor did being unique; and Shaw's
# distances fail the first two wishes (all far places share one vector, and a list of vectors obeys no matrix) and do
# well at what we wanted them for. In this table it is wish 6, to be relative, that goes together with wish 3.
#
# > **Check yourself.** (1) Which of the six can be used in a model that was trained without it, by just switching it
# > on? (2) A model with RoPE writes token by token and keeps the keys of the past in a cache. Must the cached keys be
# > turned again with every new token? (3) You translate sentences of at most 60 words and have all the data you want.
# > Does it matter to you which schemes go on beyond the trained length?
# > <details><summary>Answers</summary>(1) None. The weights have learned to read what they were given. (2) No. A key
# > is turned once, by its own place; the distance comes about in the dot product. With Shaw's scheme, too, the keys
# > stay, and the distances are looked up anew. (3) Little. Inside the trained lengths sinusoidal, learned, relative
# > and rotary positions all did it without a mistake, and in the original paper, too, learned and sinusoidal ones
# > were about equal.</details>

# %% [markdown]
# ## What you have, and what is missing
#
# Attention knows nothing of order, and it was told: by a vector that is added, by a distance that joins the key, or
# by a turn of query and key. With that the layer is no longer a function on sets, and the two dogs have parted.
#
# What it still lacks is a mask for those who write, and anything that is not an average. Both are the subject of
# lecture @masking.
#
# **In the package.** `attncourse.positions` has everything above: `integer`, `binary`, `sinusoidal`, `shift_matrix`,
# `LearnedPositions`, `relative_index` and `ShawRelative`, `BucketedBias` (T5's), `rope_angles`, `rotate` and the
# module `RoPE`. A model chooses with one word, `TransformerConfig(positions="rope")`.
#
# **Read next.** Vaswani et al., *Attention is all you need* (2017), section 3.5, half a page. Shaw, Uszkoreit and
# Vaswani, *Self-attention with relative position representations* (2018), section 3. Su et al., *RoFormer: enhanced
# Transformer with rotary position embedding* (2021), section 3. Press, Smith and Lewis, *Train short, test long:
# attention with linear biases enables input length extrapolation* (2022), for the question of the last experiment on
# real text. Kazemnejad et al., *The impact of positional encoding on length generalization in Transformers* (2023),
# ask whether decoders need positions at all, and Kiyono et al., *SHAPE: shifted absolute position embedding for
# Transformers* (2021), let texts begin anywhere.
