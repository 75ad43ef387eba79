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
# You build five parts of [lecture @order](@order): **sinusoidal positional encodings**, the matrix that shifts them,
# **rotary embeddings (RoPE)**, the index of **relative positions**, and RoPE's frequencies for **longer texts**.
# After each check comes a cell that *uses* what you wrote. In exercise 3, for instance, a model learns to copy with
# your `rope`. The cell waits until the check gives all points, and is not graded.
#
# Each exercise has a check under it. Run it as often as you like, even before you have written anything. It says what it
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
# Position $p$ gets a vector of $d$ numbers, in pairs. Pair $i$, for $i = 0, 1, \dots, d/2 - 1$, is a point on a circle,
# which moves on by the angle $\theta_i$ (its frequency) with each position. The larger $i$ is, the more slowly it moves:
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
# **Use it.** Suppose that you receive the vector of a position with noise on every number, which is about as large as
# the numbers or larger. Does the largest dot product still tell which of 1,000 positions it was? *Guess* how this
# depends on the width.

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
# <details><summary>What to see</summary>
#
# A wider vector tolerates more noise: four times the width makes up for about twice the noise. (The right dot product is
# $d/2$, the squared length of the vector. The noise in a dot product has the standard deviation of the noise times
# $\sqrt{d/2}$.)</details>

# %% [markdown]
# ## 2 · One matrix for each shift
#
# The authors chose sines and cosines because they hoped that one property would help: there is a matrix $M_k$ that takes
# the vector of *every* position to the vector of the position $k$ places later. The matrix depends on $k$ and not on $p$:
#
# $$\mathrm{PE}(p + k) = \mathrm{PE}(p)\, M_k$$
#
# As everywhere in this course, a vector is a row and stands on the left of the matrix. You will need the formulas
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
# **Use it.** Your matrix becomes the $W_Q W_K^\top$ of a head whose queries and keys are made from position vectors
# alone, without words. *Guess* for $k = -1$ and $k = 2$ which key gets most of the weight of each query. Some queries
# have no such key. What do they attend to? *Guess* also which shift $M_3 M_4$ is, and which the transpose of $M_3$ is.

# %%
if solved("sinusoidal") and solved("shift_matrix"):
    words = ["our", "team", "beat", "their", "team"]
    PE, tables = sinusoidal(torch.arange(5), 64), {}                                 # (5, 64)
    for k in (-1, 2):
        scores = 2 * PE @ shift_matrix(k, 64) @ PE.mT            # (5, 5)  the 2 sharpens
        tables[f"k = {k}"] = (words, scores.softmax(dim=-1))
    viz.weight_tables(tables, numbers=True, digits=2)
    product = shift_matrix(3, 64) @ shift_matrix(4, 64)          # (64, 64)
    transposed = shift_matrix(3, 64).T
    for k in (7, 12, -3):
        off = [(M - shift_matrix(k, 64)).abs().max() for M in (product, transposed)]
        print(f"from the shift by {k:>2}: the product is off by {off[0]:.2f},"
              f" the transpose by {off[1]:.2f}")

# %% [markdown]
# <details><summary>What to see</summary>
#
# The product is the shift by 7, because the angles of two rotations add up; the transpose rotates back, by 3. With $k = -1$
# each word attends to the word before, with $k = 2$ to the second one after. Where there is none, the nearest word at
# that end gets the weight: the first word attends to itself, and the last ones to the last. The neighbours of the
# right key have about 0.09 each, because nearby positions have similar vectors. In a long text this stays so: far
# keys get next to nothing.</details>

# %% [markdown]
# ## 3 · Rotary embeddings (RoPE)
#
# RoPE adds nothing. It takes the columns of a vector in pairs, $(a, b) = (x_{2i}, x_{2i+1})$. Pair $i$ has the frequency
# $\theta_i = 10000^{-2i/d}$, where $d$ is the width of the head, and in the row at position $m$ it is rotated by the angle
# $m\,\theta_i$:
#
# $$(a,\ b)\ \longmapsto\ (a \cos m\theta_i - b \sin m\theta_i,\ \ a \sin m\theta_i + b \cos m\theta_i)$$
#
# Two neighbouring columns are a pair, the *interleaved* layout of the paper. (An answer in the *half* layout is not
# right here, and the check says so.)
#
# Your function receives the queries, keys and values of some tokens and returns the three as attention should get them.
# Which of them must be rotated, and which not? The first token stands at position `start`, the next at `start + 1`, and so
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
# **Use it: a model that copies.** One head reads random letters and says at each place which letter stood two places
# back. It is trained on texts of 8 to 32 letters, once with your `rope` and once without, which takes some seconds.
# Then both models read texts of 128. *Guess* the four shares of right answers. At the end the trained model reads
# texts of 128 again, token by token, and keeps the rotated keys in a **cache**. It then sees only the past, unlike in
# training, but the letter two places back is there in both. Token $t$ gets `start=t`, and in a second run `start=0`,
# which is a common mistake. *Guess* these two shares, too.

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

    def trained_copier(with_rope, seed=0):
        torch.manual_seed(seed)
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
        return model

    for with_rope in (False, True):
        model = trained_copier(with_rope)
        for n in (32, 128):
            letters = torch.randint(LETTERS, (64, n))
            right = model(letters)[0][:, BACK:].argmax(dim=-1) == letters[:, :-BACK]
            name = "with your rope" if with_rope else "without"
            print(f"{name:>14}, texts of {n:>3}: {right.float().mean():.0%} right")

    def token_by_token(letters, counted):
        x, right = model.letter(letters), []                     # (64, 128, d)
        keys = values = torch.empty(len(letters), 0, d)          # the cache, nothing yet
        for t in range(letters.shape[1]):
            new = x[:, t : t + 1]                                # (64, 1, d)
            start = t if counted else 0
            query, key, value = rope(model.query(new), model.key(new), model.value(new), start)
            keys = torch.cat([keys, key], dim=1)                 # (64, t + 1, d)
            values = torch.cat([values, value], dim=1)
            weights = (query @ keys.mT / math.sqrt(d)).softmax(dim=-1)       # (64, 1, t + 1)
            guess = model.answer(weights @ values)[:, 0].argmax(dim=-1)      # (64,)
            if t >= BACK:
                right.append(guess == letters[:, t - BACK])
        return torch.stack(right).float().mean()

    with torch.no_grad():
        for name, counted in {"start = t": True, "start = 0 each time": False}.items():
            share = token_by_token(letters, counted)
            print(f"token by token with a cache, {name}: {share:.0%} right")
    _, weights = model(torch.randint(LETTERS, (1, 12)))
    names = [str(m) for m in range(12)]
    viz.weight_tables({"with your rope: attention weights": (names, weights[0].detach())})

# %% [markdown]
# <details><summary>What to see</summary>
#
# Without positions the model can only name a letter that is frequent in the text, so it is right in about 16% of the
# places in texts of 32, and in 10% in texts of 128. With your `rope` it is nearly always right, even at four times
# the trained length. In the picture the weight lies two places to the left of the diagonal. (The rows 0 and 1 have no
# such key, and were not trained.) A key is rotated once, by its own position, so a cache can keep it, and the answers
# stay right. With `start=0` all tokens stand at the same position, and the model no longer knows what stood two places
# back.</details>

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
# **Use it: seven numbers that are learned.** A head has one number for each distance from −3 to 3, and nothing else: the
# numbers that your index looks up are its scores. Gradient descent makes it attend two places back, in texts of 32. Then
# the same seven numbers read longer texts. *Guess* which numbers rise and which fall, and how much weight the right key
# has left in a text of 1,024.

# %%
if solved("relative_index"):
    numbers = nn.Parameter(torch.zeros(7))                       # ≤ −3, −2, −1, 0, 1, 2, ≥ 3
    optimizer = torch.optim.Adam([numbers], lr=0.1)

    def weights_in(n):
        return numbers[relative_index(n, n, max_distance=3)].softmax(dim=-1)         # (n, n)

    for _ in range(100):
        loss = -weights_in(32).diagonal(-2).log().mean()         # the keys two places back
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print("learned:", *(f"{number:+.1f}" for number in numbers.tolist()))
    with torch.no_grad():
        for n in (32, 128, 1024):
            weight = weights_in(n).diagonal(-2).mean()
            print(f"text of {n:>5,}: weight two places back {weight:.2f}")
        words = ["of", "course", "we", "know", "that", "you", "know", "it"]
        viz.weight_tables({"eight words": (words, weights_in(8))}, numbers=True, digits=2)

# %% [markdown]
# <details><summary>What to see</summary>
#
# Only the number for −2 rises. The index serves texts of every length, because far keys share a row. But each far key
# keeps a small weight: the right key has 0.98 among 32 keys, and 0.64 among 1,024. In the lecture T5's biases fail in
# long texts, for this reason, we think. The first two words have no key two places back, so they spread their weight
# almost evenly over all keys.</details>

# %% [markdown]
# ## 5 · Context extension: RoPE's frequencies for longer texts
#
# A model with RoPE was trained on texts of `trained` tokens and is to read texts `factor` times as long. The lecture
# interpolates *by parts*, with a border: a pair stays as it is or is slowed down. YaRN ([-@peng2024yarn]) and Llama
# 3.1 have two limits and a ramp between them. What decides is how many full turns (the lecture's full circles), not
# rounded, a pair makes in a text of `trained` tokens:
#
# * a pair that makes `high` full turns or more keeps its frequency $\theta$;
# * a pair that makes `low` full turns or fewer gets $\theta$ divided by `factor`;
# * in between, the new frequency is a mixture of these two. The share of $\theta$ grows linearly with the number of
#   turns, from 0 at `low` to 1 at `high`.

# %% exercise="extended_frequencies"
def extended_frequencies(
    theta: Tensor, factor: float, low: float, high: float, trained: int
) -> Tensor:
    """RoPE's frequencies for texts that are `factor` times as long as those of the training.

    theta:     (pairs,), by which angle each pair turns with one token, in radians
    low, high: numbers of turns in `trained` tokens, low < high
    returns    (pairs,), the new angles per token
    """
    ...  # solution

# %% check="extended_frequencies"
check("extended_frequencies", extended_frequencies)

# %% [markdown]
# **Use it: read a config, extend the copier.** The first lines of the cell read what the config of Llama 3.1 says about
# RoPE. Then the copier of exercise 3, and two more with other seeds, read 128 and 1,024 letters, without further training.
# (They were trained on at most 32. The training takes some seconds.) Interpolation breaks them, as it breaks the models of
# the lecture. *Guess* first: how many of Llama's 64 pairs keep their frequency, with the limits 1 and 4 and 8,192 tokens?
# And how many of the copier's 32, with the YaRN paper's limits 1 and 32, and 32 letters? What does this do to the copier?

# %%
if solved("rope") and solved("extended_frequencies"):
    from attncourse.positions import rotate

    config = {"rope_theta": 500_000.0, "head_dim": 128, "rope_scaling": {
        "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192, "rope_type": "llama3"}}
    theta = config["rope_theta"] ** (-torch.arange(0, 128, 2) / config["head_dim"])  # (64,)
    scaling = config["rope_scaling"]                             # read by key, in any order
    slowed = theta / extended_frequencies(
        theta, scaling["factor"], scaling["low_freq_factor"], scaling["high_freq_factor"],
        scaling["original_max_position_embeddings"])             # (64,)
    kept, divided = int((slowed < 1.001).sum()), int((slowed > 7.999).sum())
    print(f"Llama 3.1: {kept} of 64 pairs stay, {divided} are 8 times slower")

    def right_in(n, theta, model):
        """The share of right answers in texts of n letters, with these angles per token."""
        letters = torch.randint(LETTERS, (8, n), generator=torch.Generator().manual_seed(1))
        x, angles = model.letter(letters), torch.arange(n)[:, None] * theta          # (n, d/2)
        query = rotate(model.query(x), angles, "interleaved")
        key = rotate(model.key(x), angles, "interleaved")                            # (8, n, d)
        weights = (query @ key.mT / math.sqrt(d)).softmax(dim=-1)                    # (8, n, n)
        guess = model.answer(weights @ model.value(x))[:, BACK:].argmax(dim=-1)
        return (guess == letters[:, :-BACK]).float().mean()

    theta = 10000 ** (-torch.arange(0, d, 2) / d)                                    # (32,)
    copiers = [model, trained_copier(True, seed=1), trained_copier(True, seed=2)]
    for n in (128, 1024):
        s = n / 32
        print(f"texts of {n:,}: pairs that stay, and right answers of three copiers")
        ways = {"no change": theta, "interpolation": theta / s,
                "by parts, 1 to 32 turns (YaRN)": extended_frequencies(theta, s, 1, 32, 32),
                "by parts, 0.5 to 1 turns": extended_frequencies(theta, s, 0.5, 1, 32)}
        for name, way in ways.items():
            stay = int((way > 0.999 * theta).sum())
            with torch.no_grad():
                right = [right_in(n, way, copier) for copier in copiers]
            print(f"{name:>32}: {stay:>2} of 32,", *(f"{share:4.0%}" for share in right))

# %% [markdown]
# <details><summary>What to see</summary>
#
# Llama 3.1 leaves 29 of its 64 pairs alone, those that make at least four full turns in 8,192 tokens, and makes as many
# eight times slower. Six lie in between. Interpolation breaks the copier: a key two places back is rotated as if it stood
# half a place back, or less. So do the limits of the YaRN paper, which were chosen for texts of thousands of tokens. In 32
# letters no pair makes 32 full turns, so *every* pair is slowed. With limits that fit 32 letters, six pairs stay, and the
# copiers stay right at 128. At 1,024 compare the first line with the last: how much a copier gains depends on the seed, and
# none is always right. The fast pairs stay as they are, so at some far distances they still look like two places back.
# (Why is 0.5 a limit that fits? The distances of the training run from −31 to 31, so a pair that makes half a turn in 32
# letters has met nearly every angle. YaRN in the transformers library ramps along the *number* of the pair; its `llama3`
# ramps along the turns, as here.)</details>

# %% [markdown]
# ## 6 · In your own words
#
# A classmate has done exercises 1 and 2 and says: "The check tells me that the dot product of two sinusoidal vectors
# depends on their distance alone. A model adds them to its embeddings and takes dot products. So its scores depend on
# the distance alone, and RoPE was not needed."
#
# Without the division by $\sqrt{d_k}$, the score of query $i$ and key $j$ is $(x_i + s_i)\, B\, (x_j + s_j)^\top$ with
# $B = W_Q W_K^\top$, where $x_i$ is the embedding of the token at position $i$ and $s_i = \mathrm{PE}(i)$ its
# sinusoidal vector, both of them rows. ($s_i$ is a vector here, not the factor of exercise 5.)
#
# **(a)** The lecture multiplies it out and says of the two mixed terms that they change when both tokens move
# together. Give an example in two columns, with $s_p = (\sin p, \cos p)$, in which one of them does: an $x$, a $B$,
# and two positions $j$ of the key for which the term $x B s_j^\top$ differs (so it changes, whatever the distance
# from the query is).
#
# **(b)** Your classmate has the last term in mind, $s_i B s_j^\top$. Find a $2 \times 2$ matrix $B$, not a multiple
# of $I$, for which this term depends on $i - j$ alone, and another for which it does not. (Try matrices in which some
# entries are zero.)
#
# **(c)** Another classmate adds nothing, but rotates the embeddings by their positions, $x_i R_i$ with $R_i =
# \begin{pmatrix} \cos i & \sin i \\ -\sin i & \cos i \end{pmatrix}$, *before* $W_Q$ and $W_K$. (RoPE rotates the
# queries and keys, after them.) Write the score. For which of your two matrices of (b) does the score depend on the
# positions through $i - j$ alone, and why not for the other?
#
# Answer in five to ten sentences or lines of mathematics. (3 points, one for each part)

# %% [markdown] written="does-adding-do" points=3 minutes=20 difficulty=2
# ### BEGIN SOLUTION
# **Mark scheme.** One point for each.
#
# 1. (a) Any example with its two numbers. For instance $x_i = (1, 0)$ and $B = I$: then $x_i B s_j^\top = \sin j$,
#    which is 0 for $j = 0$ and $-0.54$ for $j = 10$, whatever the distance is. Half a point for a right example with
#    a slip in the numbers.
# 2. (b) Half a point for each matrix. $s_i B s_j^\top$ depends on $i - j$ alone where $B$ does what a rotation with
#    a stretch does, $\begin{pmatrix} u & v \\ -v & u \end{pmatrix}$, and $M_k = R_{-k}$ is one of them. With $u = 0$,
#    $v = 1$ it is $\sin(i - j)$. It does not with $B = \begin{pmatrix} 1 & 0 \\ 0 & 0 \end{pmatrix}$, which gives
#    $\sin i \sin j$: 0 for $i = j = 0$ and 0.71 for $i = j = 1$. "$B$ has to commute with all shifts", with the two
#    matrices, is the full reason; it is not asked for.
# 3. (c) Half a point for the score, $x_i R_i B R_j^\top x_j^\top$: nothing is added, so it is a single term, but $B$
#    stands between the two rotations. Half a point for the matrices. The first is a rotation with a stretch, and
#    rotations in a plane may be exchanged: $R_i B R_j^\top = B R_{i-j}$. The second may not be exchanged with one. With $x_i =
#    x_j = (1, 0)$ the score is $\cos i \cos j$: 1 for $i = j = 0$ and 0.29 for $i = j = 1$. (RoPE rotates after the
#    projections, so for it every $B$ is allowed.)
#
# The answer may say row or column convention, and $R_{j-i}$ for $R_{i-j}$, as long as it is consistent.
# ### END SOLUTION

# %% [markdown]
# ## Extension: ALiBi, a cost for distance
#
# This exercise is worth extra credit. You lose nothing if you leave it out.
#
# **ALiBi**, attention with linear biases ([@press2022]), adds to each score a *cost* that grows with the distance.
# Nothing is learned, and every distance has a cost, however long the text is. Of $h$ heads, number $u = 1, \dots, h$
# has the slope $2^{-8u/h}$ (the paper's $m$) and adds to its scores
#
# $$-\, 2^{-8u/h} \,\lvert i - j \rvert.$$
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
# **Use it.** If all scores are equal, your biases alone decide. The cell draws the attention weights of the token at
# position 20 in a text of 41, for each of four heads. *Guess* which head sees furthest.

# %%
if solved("alibi_bias"):
    weights = alibi_bias(4, 41).softmax(dim=-1)[:, 20]                               # (4, 41)
    lines = {f"head {h + 1}": weights[h] for h in range(4)}
    viz.function_curves(lines, torch.arange(41), x_name="key", y_name="attention weight")

# %% [markdown]
# <details><summary>What to see</summary>
#
# Head 1 has the largest slope, 1/4, and sees only near keys. Head 4, with the slope 1/256, is nearly a mean of the whole
# text: its furthest keys have almost as much weight as the nearest. So one layer sees at four ranges at once.</details>
