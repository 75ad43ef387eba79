# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3 (ipykernel)
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Assignment @cheap_attention · Cheap attention
#
# In this assignment you build the ways round the square of [lecture @cheap_attention](@cheap_attention). The
# first changes nothing about the result and saves the table. The next three change who may look at whom, or at what. The
# fifth writes a token at a time and computes nothing twice. Two take the softmax away: the same attention once for all
# positions together, and once as a recurrent network. In the last extension a whole block gets rotary positions and a
# cache.
#
# None of the answers is long. Most mistakes here are of one position, one factor or one axis, and few of them crash;
# small examples on paper are the quickest way to find them. Under each exercise stands a check. A check on other numbers
# and other sizes decides your points.
#
# {exercises}
#
# If you are stuck, `hint("online_softmax", 1)` prints a hint; the later ones of an exercise tell more. Your answers are
# refused if they call the course's own attention or torch's: this is the place to build it.

# %% locked=true
try:
    from attncourse import check, hint, solved
except ModuleNotFoundError:
    raise ImportError(
        "This notebook needs the attncourse package: open it with `make lab` in the course's "
        "folder, or choose a kernel of the environment in which you installed the course."
    ) from None

import math
import time

import torch
from torch import Tensor

# %% [markdown]
# ## 1 · A softmax that has not seen everything yet
#
# Scores arrive in chunks, and there is no room to keep them. To know softmax in the end, two numbers for each row must be
# carried from chunk to chunk: the largest score so far, $m$, and $\ell$, the sum of $e^{\,s - m}$ over all scores $s$ so
# far. Before the first chunk $m = -\infty$ and $\ell = 0$.
#
# Write what happens when one more chunk comes in. The trouble is that in all terms of the old sum it is the old $m$ that
# was taken away, and the chunk may bring a larger one. Return new tensors, and leave those that come in as they are (this
# holds for all exercises here).
#
# A chunk may be masked, so that all its scores in some row are $-\infty$. It should change no share in that row, even if it
# is the row's first. (What the state says until the first finite score comes is up to you.) And scores may be as large as
# 300: no exponential of a positive number may be taken.

# %% exercise="online_softmax"
def online_softmax(scores: Tensor, largest: Tensor, total: Tensor) -> tuple[Tensor, Tensor]:
    """Take one more chunk of scores into account.

    scores:  (batch, n_query, n_chunk)   the new ones
    largest: (batch, n_query, 1)         the largest score of each row so far; −∞ before the first chunk
    total:   (batch, n_query, 1)         the sum of exp(score − largest) over the row's scores so far; 0 before the first
    returns both, brought up to date, as a tuple (largest, total), of the same shapes
    """
    ...  # solution

# %% check="online_softmax"
check("online_softmax", online_softmax)

# %% [markdown]
# With this step you can go through any number of chunks. Try it: the shares below should sum to one.

# %%
chunks = [torch.tensor([[[1.0, 300.0]]]), torch.tensor([[[302.0, 299.0, 301.0]]])]
try:
    state = torch.tensor([[[-torch.inf]]]), torch.tensor([[[0.0]]])
    for chunk in chunks:
        state = online_softmax(chunk, *state)
    print(torch.cat([(chunk - state[0]).exp() / state[1] for chunk in chunks], dim=-1))
except NotImplementedError:
    print("not written yet")

# %% [markdown]
# ## 2 · A window, with or without gaps
#
# Each position may look at itself and at `width` positions on each side. With a dilation $g$, these are not the next ones
# but every $g$-th: $i \pm g, i \pm 2g, \dots, i \pm \texttt{width} \cdot g$. So the number of keys stays and the reach grows.
# If `causal`, those that come after $i$ are left out.
#
# The window may be wider than the text. Return a boolean table, True where a query (row) may look at a key (column).

# %% exercise="sliding_window_mask"
def sliding_window_mask(n: int, width: int, dilation: int, causal: bool) -> Tensor:
    """Who may attend to whom in a (dilated) sliding window.

    n: how many positions      width: how many on each side, besides the position itself
    dilation: how far apart they are; 1 leaves no gaps      causal: whether the later ones are left out
    returns (n, n), boolean
    """
    ...  # solution

# %% check="sliding_window_mask"
check("sliding_window_mask", sliding_window_mask)

# %% [markdown]
# ## 3 · BigBird
#
# Zaheer et al. (2020) allow a pair of positions if at least one of three reasons speaks for it:
#
# * they are **near**: the key is the query itself or one of `width` on each side;
# * one of the two is **global**: the first `n_global` tokens look at everybody, and everybody looks at them;
# * the key was **drawn** for this query. The draws are handed to you: row $i$ of `drawn` holds the keys that query $i$ may
#   see besides. There may be none: then `drawn` has no columns.

# %% exercise="bigbird_mask"
def bigbird_mask(n: int, width: int, n_global: int, drawn: Tensor) -> Tensor:
    """Who may attend to whom: a window, global tokens, and random keys.

    drawn: (n, n_random), whole numbers; row i holds indices of keys for query i
    returns (n, n), boolean
    """
    ...  # solution

# %% check="bigbird_mask"
check("bigbird_mask", bigbird_mask)

# %% [markdown]
# ## 4 · Linformer
#
# Here nobody is forbidden to look at anybody. In place of $n$ keys there are $k$ mixtures of keys, and $k$ mixtures of
# values to go with them. The mixing matrices $E$ and $F$ are learned:
#
# $$\operatorname{softmax}\!\left(\frac{Q\,(E K)^\top}{\sqrt{d}}\right) F V$$
#
# $E$ and $F$ have a column for each position up to $n_\text{max}$; a shorter sequence uses the first ones. The last
# positions of a sentence may be padding: the result must be that of the sentence without it, whatever stands there. (Think
# about *when* the padding must be taken out. In the lectures before, it was at the scores; is there a score for each key
# here?) Every sentence has at least one real token.

# %% exercise="linformer_attention"
def linformer_attention(query: Tensor, key: Tensor, value: Tensor, E: Tensor, F: Tensor, mask: Tensor) -> Tensor:
    """Attention over k mixtures of the keys, in time and memory that grow like n · k.

    query: (batch, n_query, d)   key: (batch, n_key, d)   value: (batch, n_key, d_v)
    E, F:  (k, n_max), with n_max ≥ n_key: E mixes the keys, F the values
    mask:  (batch, n_key), boolean, True where there is a token
    returns (batch, n_query, d_v)
    """
    ...  # solution

# %% check="linformer_attention"
check("linformer_attention", linformer_attention)

# %% [markdown]
# ## 5 · One token more
#
# While a model writes, one token is new at each step, and the keys and values of all before it are in a cache. Write the
# step for all heads at once: put the new key and value behind the old ones, let the query meet everything that is there
# now, and return the output together with the grown caches.
#
# There may be fewer heads of keys and values than of queries (grouped-query attention,
# [lecture @many_heads](@many_heads)); then neighbouring heads of queries share one. The caches hold the few heads,
# not the many. Leave the tensors that come in as they are.

# %% exercise="cached_step"
def cached_step(
    query: Tensor, key: Tensor, value: Tensor, key_cache: Tensor, value_cache: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Causal attention of the newest token, given the keys and values of all before it.

    query: (batch, n_heads, d_head)   key, value: (batch, n_kv_heads, d_head), of the new token
    key_cache, value_cache: (batch, n_kv_heads, n, d_head), of the n tokens before; n may be 0
    returns output (batch, n_heads, d_head), and both caches, (batch, n_kv_heads, n + 1, d_head)
    """
    ...  # solution

# %% check="cached_step"
check("cached_step", cached_step)

# %% [markdown]
# ## 6 · Linear attention: without a softmax
#
# In **linear attention** (Katharopoulos et al. 2020) the weight of key $j$ for query $i$ is $\phi(q_i) \cdot \phi(k_j)$, with
# $\phi(x) = \operatorname{elu}(x) + 1$, a positive number for each feature. The function `features` of the next cell is φ.
# The weights of a row are divided by their sum, as always:
#
# $$\text{output}_i = \frac{\sum_j \bigl(\phi(q_i) \cdot \phi(k_j)\bigr)\, v_j}{\sum_j \phi(q_i) \cdot \phi(k_j)}$$
#
# where $j$ runs over all keys, or, with `causal`, over those up to $i$. Nothing is scaled, nothing is padded. Write it
# without a table (n, n). (The check sees the result alone, and takes the table as well. The cell after exercise 7 shows
# what it costs.)

# %% locked=true
def features(x: Tensor) -> Tensor:
    """φ(x) = elu(x) + 1, for each number by itself."""
    return torch.nn.functional.elu(x) + 1

# %% exercise="linear_attention"
def linear_attention(query: Tensor, key: Tensor, value: Tensor, causal: bool) -> Tensor:
    """The values, averaged by the weights φ(q) · φ(k).

    query, key: (batch, n, d_k)   value: (batch, n, d_v)   causal: whether each position sees itself and the past alone
    returns (batch, n, d_v)
    """
    ...  # solution

# %% check="linear_attention"
check("linear_attention", linear_attention)

# %% [markdown]
# ## 7 · The same as a recurrent network
#
# The causal form can take one token at a time. All that it needs of the past is two sums,
# $S = \sum_j \phi(k_j)\, v_j^\top$ and $z = \sum_j \phi(k_j)$, which do not grow with the text. Before the first token
# both are zero.

# %% exercise="linear_step"
def linear_step(query: Tensor, key: Tensor, value: Tensor, s: Tensor, z: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Causal linear attention of the newest token.

    query, key: (batch, d_k)   value: (batch, d_v), of the new token
    s: (batch, d_k, d_v)   z: (batch, d_k), the sums over all tokens before it
    returns output (batch, d_v), and the two sums with the new token in them
    """
    ...  # solution

# %% check="linear_step"
check("linear_step", linear_step)

# %% [markdown]
# **Use it.** First one text of 300 tokens in both ways: do your two functions agree? Then we write 1,500 tokens and look
# at what one of them costs, early and late: with your state, and with a cache of keys and values (your `cached_step`,
# where it is green). Which of the two lines grows?

# %%
if solved("linear_attention") and solved("linear_step"):
    torch.manual_seed(0)
    query, key, value = torch.randn(3, 2, 300, 16)                        # 2 texts of 300 tokens
    at_once = linear_attention(query, key, value, True)
    s, z, one_by_one = torch.zeros(2, 16, 16), torch.zeros(2, 16), []
    for t in range(300):
        output, s, z = linear_step(query[:, t], key[:, t], value[:, t], s, z)
        one_by_one.append(output)
    off = float((torch.stack(one_by_one, dim=1) - at_once).abs().max())
    print(f"at once and one by one differ by at most {off:.0e}")

    def seconds_of_each(step, *state):
        """How long each of 1,500 tokens takes, with 8 heads, 16 wide."""
        seconds = []
        for _ in range(1500):
            token = torch.randn(3, 8, 16)
            begun = time.perf_counter()
            _, *state = step(*token, *state)
            seconds.append(time.perf_counter() - begun)
        return seconds

    def with_cache(query, key, value, keys, values):
        return cached_step(query[None], key[None], value[None], keys, values)

    spent = {"state": seconds_of_each(linear_step, torch.zeros(8, 16, 16), torch.zeros(8, 16))}
    if solved("cached_step"):
        spent["cache"] = seconds_of_each(with_cache, *torch.zeros(2, 1, 8, 0, 16))
    for name, seconds in spent.items():
        for last in (300, 600, 900, 1200, 1500):
            middle = sorted(seconds[last - 300 : last])[150]
            print(f"{name}: of the 300 tokens up to {last:>5,} one takes {1e6 * middle:>5.0f} µs")

# %% [markdown]
# ## 8 · "So attention is linear now"
#
# A colleague has exchanged the attention of a model with $n = 2{,}000$ and $d = 4{,}096$ for FlashAttention. It takes a
# fraction of the memory, and the whole model is a tenth faster. "So attention is linear now," she says, "and we can go to
# $n = 200{,}000$ for a hundred times the cost."
#
# **(a)** Which costs of attention does FlashAttention change, and which does it leave as they were? Say how each grows with
# $n$.
#
# **(b)** Roughly by which factor does the arithmetic of one layer grow from $n = 2{,}000$ to $n = 200{,}000$? Use $24\,n d^2$
# for everything but the pairs and $4\,n^2 d$ for the pairs.
#
# **(c)** She would settle for a sliding window of 1,000 positions on each side. Name something that her model may then no
# longer be able to do, and one cheap addition that might give it back.
#
# Answer in five to eight sentences. (4 points)

# %% [markdown] written="so-attention-is-linear" points=4 minutes=12 difficulty=2
# ### BEGIN SOLUTION
# **Mark scheme.** One point for each.
#
# 1. (a) It never writes down the table of scores: memory grows like $n$ in place of $n^2$, and so much less is moved between
#    the slow memory and the processor, which is where the speed comes from. (Either the table that is not stored, or the traffic,
#    earns the point if the growth is right.)
# 2. (a) The arithmetic is what it was, $O(n^2 d)$, a little more when training, since the weights are computed again on the
#    way back. The result is the same, too: it is no approximation.
# 3. (b) At 2,000 the pairs are $n/(n + 6d) = 2{,}000 / 26{,}576 \approx 8\,\%$; at 200,000 they are 89 %. The sum
#    $24nd^2 + 4n^2d$ grows by the factor $100 \cdot (24{,}576 + 200{,}000)/(24{,}576 + 2{,}000) \approx 845$. Anything from 800 to
#    900, or a clear argument that it is several times 100, earns the point.
# 4. (c) Anything that needs two places far apart in one step, or in fewer than $n / 1{,}000$ layers: quoting a name
#    from the first page, answering a question at the end about the beginning, closing a bracket. One addition: global tokens,
#    a few full layers among the windows, dilation, random keys, retrieval. (Half a point for only one of the two.)
# ### END SOLUTION

# %% [markdown]
# ## Extension: the inner loop of FlashAttention
#
# Softmax was only half of it. What attention wants is the average $\sum_j w_j v_j / \sum_j w_j$, and its numerator is a sum
# over the keys just as its denominator is. So it can be carried along in the same way, and no weight ever has to be kept.
#
# Write the step for one tile of keys and values. Start from $-\infty$, 0 and zeros; the caller divides `output` by `total` when
# all tiles have been seen. (No tile is masked throughout here. Your `online_softmax` may be of use.)

# %% exercise="attend_tile"
def attend_tile(
    query: Tensor, key: Tensor, value: Tensor, largest: Tensor, total: Tensor, output: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Take one more tile of keys and values into account: scaled dot-product attention, not yet divided.

    query: (batch, n_query, d)   key: (batch, n_tile, d)   value: (batch, n_tile, d_v)
    largest, total: (batch, n_query, 1), as in exercise 1
    output: (batch, n_query, d_v), the sum of exp(score − largest) · value over all keys so far
    returns the three, brought up to date
    """
    ...  # solution

# %% check="attend_tile"
check("attend_tile", attend_tile)

# %% [markdown]
# ## Extension: a block with rotary positions and a cache
#
# Now the parts of several lectures together, as a language model uses them when it writes: a pre-norm block with rotary
# position embeddings ([lecture @order](@order)), several heads, a causal mask, a feed-forward network, and a cache. The
# tokens come in chunks: the prompt at once, then one token at a time, or a few. Whatever the chunks are, the outputs
# are to be those of one pass over the whole text. So one function does both: with empty caches it is the block without
# a cache.
#
# The functions `norm` and `rotate` are given. The feed-forward network is two matrices with a ReLU between them; nothing
# has a bias. What you keep in the caches, keys rotated or not, is up to you, as long as each token so far has its place.

# %% locked=true
def norm(x: Tensor) -> Tensor:
    """An RMSNorm without a gain."""
    return x / (x.square().mean(dim=-1, keepdim=True) + 1e-6).sqrt()


def rotate(x: Tensor, positions: Tensor) -> Tensor:
    """Rotary position embeddings: x, (batch, n_heads, n, d_head), turned by the angles of its n positions.

    positions: (n,), whole numbers, counted from 0
    """
    half = x.shape[-1] // 2
    angles = positions[:, None] * 10_000.0 ** (-torch.arange(half) / half)     # (n, half)
    first, second = x[..., :half], x[..., half:]
    cos, sin = angles.cos(), angles.sin()
    return torch.cat([first * cos - second * sin, first * sin + second * cos], dim=-1)

# %% exercise="cached_block"
def cached_block(
    x: Tensor, keys: Tensor, values: Tensor,
    W_Q: Tensor, W_K: Tensor, W_V: Tensor, W_O: Tensor, W_up: Tensor, W_down: Tensor,
) -> tuple[Tensor, Tensor, Tensor]:
    """A pre-norm block on the newest m tokens, given what the cache holds of the n before them.

    x: (batch, m, d_model)   keys, values: (batch, n_heads, n, d_head), as your function has returned them; n may be 0
    W_Q, W_K, W_V, W_O: (d_model, d_model), d_model = n_heads * d_head   W_up: (d_model, d_ff)   W_down: (d_ff, d_model)
    returns output (batch, m, d_model), and both caches, (batch, n_heads, n + m, d_head)
    """
    ...  # solution

# %% check="cached_block"
check("cached_block", cached_block)

# %% [markdown]
# **Use it.** A stack of four of your blocks reads a prompt of 200 tokens and then 40 more, one at a time. Once with
# the caches; once without, so that for each new token the whole text is read again. Are the states the same, and how
# many times as long does it take without?

# %%
if solved("cached_block"):
    torch.manual_seed(0)
    d, shapes = 64, 4 * [(64, 64)] + [(64, 256), (256, 64)]
    blocks = [[torch.randn(shape) / shape[0] ** 0.5 for shape in shapes] for _ in range(4)]
    nothing = torch.zeros(1, 4, 0, 16)

    def stack(x, caches):
        """Through all blocks: the states, and each block's caches."""
        grown = []
        for matrices, (keys, values) in zip(blocks, caches, strict=True):
            x, keys, values = cached_block(x, keys, values, *matrices)
            grown.append((keys, values))
        return x, grown

    text, empty = torch.randn(1, 240, d), [(nothing, nothing)] * 4
    begun = time.perf_counter()
    states, caches = stack(text[:, :200], empty)
    states = [states]
    for t in range(200, 240):
        new, caches = stack(text[:, t : t + 1], caches)
        states.append(new)
    with_cache, begun = time.perf_counter() - begun, time.perf_counter()
    for t in range(200, 241):
        again, _ = stack(text[:, :t], empty)
    without = time.perf_counter() - begun
    off = float((torch.cat(states, dim=1) - again).abs().max())
    print(f"the states differ by at most {off:.0e}; without a cache it takes {without / with_cache:.0f} times as long")
