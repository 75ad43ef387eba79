# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3 (ipykernel)
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Assignment @order · Positional encoding
#
# You build four parts of [lecture @order](@order): **sinusoidal positional encodings**, the matrix that shifts them,
# **rotary embeddings (RoPE)**, and the index of **relative positions**. After each check comes a cell that *uses* what you
# wrote. In exercise 3, for instance, a model learns to copy with your `rope`. The cell waits until the check gives all
# points, and is not graded.
#
# Under each exercise stands a check. Run it as often as you like, also before you have written anything. It says what it
# found, what it expected, and, if it recognises your mistake, what you were probably thinking. Another check, with other
# numbers and sizes, decides your points.
#
# {exercises}
#
# If you are stuck, `hint("sinusoidal", 1)` prints a hint; the later ones of an exercise tell more. Your answers are
# refused if they call the course's own `attncourse.positions`: this is the place to build it.

# %% locked=true
try:
    from attncourse import check, hint, solved
except ModuleNotFoundError:
    raise ImportError(
        "This notebook needs the attncourse package: open it with `make lab` in the course's "
        "folder, or choose a kernel of the environment in which you installed the course."
    ) from None

import math

import torch
from torch import Tensor, nn

from attncourse import viz

torch.set_num_threads(1)  # models as small as these gain nothing from a second thread

# %% [markdown]
# ## 1 · Sinusoidal positional encoding
#
# Position $p$ gets a vector of $d$ numbers, in pairs. Pair $i$, for $i = 0, 1, \dots, d/2 - 1$, is a point on a circle. It
# turns by the frequency $\theta_i$ with each position, and a larger $i$ turns more slowly:
#
# $$
# \theta_i = 10000^{-2i/d}, \qquad \mathrm{PE}(p, 2i) = \sin(p\,\theta_i), \qquad \mathrm{PE}(p, 2i + 1) = \cos(p\,\theta_i)
# $$
#
# The sine stands in an even column and its cosine directly after it. `positions` holds whole numbers and has any shape: a
# row, a batch of rows, or a single number. The result has one axis more, the last, for the vectors.

# %% exercise="sinusoidal"
def sinusoidal(positions: Tensor, d_model: int) -> Tensor:
    """Sines and cosines of the position, each pair of columns slower than the one before.

    positions: (*shape), whole numbers   d_model: an even number
    returns    (*shape, d_model)
    """
    ...  # solution

# %% check="sinusoidal"
check("sinusoidal", sinusoidal)

# %% [markdown]
# **Use it.** You receive the vector of a position with noise on every number. The noise is about as large as the numbers, or
# larger. Does the largest dot product tell which of 1,000 positions it was? *Guess* how this depends on the width.

# %%
if solved("sinusoidal"):
    torch.manual_seed(0)
    for d_model in (16, 64, 256, 1024):
        table = sinusoidal(torch.arange(1000), d_model)          # (1000, d_model)
        print(f"d_model {d_model:>4}, noise 0.5, 1, 2:", end="")
        for noise in (0.5, 1.0, 2.0):
            received = table + noise * torch.randn(1000, d_model)
            found = (received @ table.mT).argmax(dim=-1)         # (1000,)
            print(f"{(found == torch.arange(1000)).float().mean():6.0%} right", end="")
        print()

# %% [markdown]
# ## 2 · One matrix for each shift
#
# The authors chose sines and cosines because of this property: there is a matrix $M_k$ that takes the vector of *every*
# position to the vector of the position $k$ later. It depends on $k$ and not on $p$:
#
# $$\mathrm{PE}(p + k) = \mathrm{PE}(p)\, M_k$$
#
# As everywhere in this course a vector is a row, and stands on the left of the matrix. You will want the formulas
# $\sin(a + b) = \sin a \cos b + \cos a \sin b$ and $\cos(a + b) = \cos a \cos b - \sin a \sin b$. A negative $k$ goes back.

# %% exercise="shift_matrix"
def shift_matrix(k: int, d_model: int) -> Tensor:
    """The matrix M with PE(p + k) = PE(p) @ M for every p, with PE as `sinusoidal` makes it.

    k: how many positions to move on, negative to go back   d_model: an even number
    returns (d_model, d_model)
    """
    ...  # solution

# %% check="shift_matrix"
check("shift_matrix", shift_matrix)

# %% [markdown]
# **Use it.** Your matrix becomes $W_Q W_K^\top$ of a head. Queries and keys are made of positions alone, without words.
# *Guess* the attention weights for $k = -1$ and $k = 2$. What do the first and the last words attend to?

# %%
if solved("sinusoidal") and solved("shift_matrix"):
    words = ["the", "dog", "chased", "another", "dog"]
    PE, tables = sinusoidal(torch.arange(5), 64), {}                                 # (5, 64)
    for k in (-1, 2):
        scores = 2 * PE @ shift_matrix(k, 64) @ PE.mT            # (5, 5)  the 2 sharpens
        tables[f"k = {k}"] = (words, scores.softmax(dim=-1))
    viz.weight_tables(tables, numbers=True, digits=2)

# %% [markdown]
# ## 3 · Rotary embeddings (RoPE)
#
# RoPE adds nothing. It takes the columns of a vector in pairs, $(a, b) = (x_{2i}, x_{2i+1})$. Pair $i$ has the frequency
# $\theta_i = 10000^{-2i/d}$, where $d$ is the width of the head, and in the row at position $m$ it is turned by the angle
# $m\,\theta_i$:
#
# $$(a,\ b)\ \longmapsto\ (a \cos m\theta_i - b \sin m\theta_i,\ \ a \sin m\theta_i + b \cos m\theta_i)$$
#
# Two neighbouring columns are a pair, the *interleaved* layout of the paper. (The *half* layout is not asked for here.)
#
# Your function receives the queries, keys and values of some tokens and returns the three as attention should get them.
# Which of them must be turned, and which not? The first token stands at position `start`, the next at `start + 1`, and so
# on. (A model that writes token by token calls this with one row at a time.)

# %% exercise="rope"
def rope(
    query: Tensor, key: Tensor, value: Tensor, start: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Query, key and value as attention needs them, for scores that know distances alone.

    query, key, value: (batch, n, d_head), d_head an even number
    start: the position of the first of the n rows
    returns query, key, value, each (batch, n, d_head), in this order
    """
    ...  # solution

# %% check="rope"
check("rope", rope)

# %% [markdown]
# **Use it: a model that copies.** One head reads random letters and says at each place which letter stood two places back.
# It is trained on texts of 8 to 32 letters, once with your `rope` and once without. This takes some seconds. Then it reads
# texts of 128. *Guess* the four numbers.

# %%
if solved("rope"):
    LETTERS, BACK, d = 16, 2, 64

    class Copier(nn.Module):
        def __init__(self, with_rope: bool):
            super().__init__()
            self.with_rope, self.letter = with_rope, nn.Embedding(LETTERS, d)
            self.query, self.key, self.value = nn.Linear(d, d), nn.Linear(d, d), nn.Linear(d, d)
            self.answer = nn.Linear(d, LETTERS)

        def forward(self, letters):
            x = self.letter(letters)                             # (batch, n, d)
            query, key, value = self.query(x), self.key(x), self.value(x)
            if self.with_rope:
                query, key, value = rope(query, key, value, 0)
            weights = (query @ key.mT / math.sqrt(d)).softmax(dim=-1)
            return self.answer(weights @ value), weights

    for with_rope in (False, True):
        torch.manual_seed(0)
        model = Copier(with_rope)
        optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
        for _ in range(400):
            n = int(torch.randint(8, 33, ()))
            letters = torch.randint(LETTERS, (32, n))            # (32, n)
            guess = model(letters)[0][:, BACK:]                  # (32, n − 2, LETTERS)
            truth = letters[:, :-BACK]                           # (32, n − 2)
            loss = nn.functional.cross_entropy(guess.flatten(0, 1), truth.flatten())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        for n in (32, 128):
            letters = torch.randint(LETTERS, (64, n))
            right = model(letters)[0][:, BACK:].argmax(dim=-1) == letters[:, :-BACK]
            name = "with your rope" if with_rope else "without"
            print(f"{name:>14}, texts of {n:>3}: {right.float().mean():.0%} right")
    _, weights = model(torch.randint(LETTERS, (1, 12)))
    names = [str(m) for m in range(12)]
    viz.weight_tables({"with your rope: attention weights": (names, weights[0].detach())})

# %% [markdown]
# ## 4 · Relative positions
#
# Shaw et al. ([-@shaw2018]) give every *distance* a learned vector. Key $j$ lies $j - i$ places to the right of query $i$.
# Distances up to $r$ on either side have a vector of their own; all distances beyond share the outermost. So the table
# has $2r + 1$ rows, in the order of the distances: row 0 is for "$r$ or more to the left", row $r$ for "here", row $2r$
# for "$r$ or more to the right".
#
# Which row does the pair $(i, j)$ look up? Make the index for all pairs, with `max_distance` for $r$. It will be used as
# `table[index]`.

# %% exercise="relative_index"
def relative_index(n_query: int, n_key: int, max_distance: int) -> Tensor:
    """Which of 2 · max_distance + 1 rows of a table each pair of a query and a key looks up.

    n_query, n_key: how many of each; both count from position 0   max_distance: r above
    returns (n_query, n_key), whole numbers from 0 to 2 · max_distance
    """
    ...  # solution

# %% check="relative_index"
check("relative_index", relative_index)

# %% [markdown]
# **Use it.** A table of five numbers, one for each distance from −2 to 2, is added to scores that are all zero. The result is
# a head that attends to the word before, in a sentence of any length. *Guess* what the first word attends to.

# %%
if solved("relative_index"):
    numbers = torch.tensor([0.0, 4.0, 1.0, 0.0, 0.0])            # for ≤ −2, −1, 0, 1, ≥ 2
    tables = {}
    for sentence in ("we know that", "of course we know that you know"):
        words = sentence.split()
        n = len(words)
        bias = numbers[relative_index(n, n, max_distance=2)]     # (n, n)
        tables[f"{n} words"] = (words, bias.softmax(dim=-1))
    viz.weight_tables(tables, numbers=True, digits=2)

# %% [markdown]
# ## 5 · In your own words
#
# A course-mate has done exercises 1 and 2 and says: "The check tells me that the dot product of two sinusoidal vectors
# depends on their distance alone. A model adds them to its embeddings and takes dot products. So its scores depend on the distance alone,
# and RoPE was not needed."
#
# Without the division by $\sqrt{d_k}$, the score of query $i$ and key $j$ is $(x_i + s_i)\, B\, (x_j + s_j)^\top$ with
# $B = W_Q W_K^\top$, where $x_i$ is the embedding of the token at position $i$ and $s_i = \mathrm{PE}(i)$ its
# sinusoidal vector, both of them rows.
#
# **(a)** The lecture multiplies it out and says of the two mixed terms that they change when both tokens move together. Give
# an example in two columns, with $s_p = (\sin p, \cos p)$, in which one of them does: an $x$, a $B$ and two positions.
# **(b)** Your course-mate has the last term in mind, $s_i B s_j^\top$. Find a $2 \times 2$ matrix $B$, not a multiple of $I$, for
# which it depends on $i - j$ alone, and one for which it does not. **(c)** Why does the objection not apply to RoPE? And would
# it apply if the rotation came *before* $W_Q$ and $W_K$?
#
# Answer in five to ten sentences or lines of mathematics. (3 points)

# %% [markdown] written="does-adding-do" points=3 minutes=15 difficulty=2
# ### BEGIN SOLUTION
# **Mark scheme.** One point for each.
#
# 1. (a) Any example with its two numbers. For instance $x_i = (1, 0)$ and $B = I$: then $x_i B s_j^\top = \sin j$, which is 0 for
#    $j = 0$ and $-0.54$ for $j = 10$, whatever the distance is. Half a point for a right example with a slip in the numbers.
# 2. (b) Half a point for each matrix. $s_i B s_j^\top$ depends on $i - j$ alone where $B$ does what a turn with a stretch does,
#    $\begin{pmatrix} u & v \\ -v & u \end{pmatrix}$, and $M_k$ is one of them. With $u = 0$, $v = 1$ it is $\sin(i - j)$. It does not with
#    $B = \begin{pmatrix} 1 & 0 \\ 0 & 0 \end{pmatrix}$, which gives $\sin i \sin j$: 0 for $i = j = 0$ and 0.71 for $i = j = 1$. "$B$ has to
#    commute with all shifts", with the two matrices, is the full reason; it is not asked for.
# 3. (c) Nothing is added, so there are no mixed terms. The score is $q_i R_i R_j^\top k_j^\top = q_i R_{i - j} k_j^\top$ for rows:
#    a single term, and a turn forth by $i$ and back by $j$ leaves a turn by the difference. If the rotation came before the
#    projections, the score would be $x_i R_i B R_j^\top x_j^\top$: $B$ stands between the two turns, and (b) says that for a general $B$
#    they no longer join. Half a point for each of the two answers.
#
# The answer may say row or column convention, and $R_{j-i}$ for $R_{i-j}$, as long as it is consistent.
# ### END SOLUTION

# %% [markdown]
# ## Extension: ALiBi, a cost for distance
#
# This one is worth extra credit, and nothing is lost by leaving it out.
#
# **ALiBi**, attention with linear biases ([@press2022]), adds to each score a *cost* that grows with the distance. Nothing is
# learned, and every distance has a cost, however long the text is. Head $h$ of $H$, counted from 1, has the slope $2^{-8h/H}$
# (the paper's $m$) and adds to its scores
#
# $$-\, 2^{-8h/H} \,\lvert i - j \rvert.$$
#
# (The paper's model sees only the past and needs no absolute value. Here attention is bidirectional.)

# %% exercise="alibi_bias"
def alibi_bias(n_heads: int, n: int) -> Tensor:
    """What ALiBi adds to the scores of n tokens among each other, in both directions.

    n_heads: a power of two   n: how many tokens
    returns (n_heads, n, n), head 1 first
    """
    ...  # solution

# %% check="alibi_bias"
check("alibi_bias", alibi_bias)

# %% [markdown]
# **Use it.** If all scores are equal, your biases alone decide. The cell draws the attention weights of the token at position
# 20 in a text of 41, for each of four heads. *Guess* which head sees furthest.

# %%
if solved("alibi_bias"):
    weights = alibi_bias(4, 41).softmax(dim=-1)[:, 20]                               # (4, 41)
    lines = {f"head {h + 1}": weights[h] for h in range(4)}
    viz.function_curves(lines, torch.arange(41), x_name="key", y_name="attention weight")
