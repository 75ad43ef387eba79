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
# In this assignment you build the ways around the quadratic cost of [lecture @cheap_attention](@cheap_attention). The first
# two change nothing about the result: a softmax that sees its scores in chunks, and the inner loop of FlashAttention. Then
# comes a sliding window in two forms: cut into blocks for a text that is known, and with a rolling cache for one that is
# being written. Last comes linear attention, once for all positions together and once as a recurrent network.
#
# None of the answers is long. Most mistakes here concern one position, one factor or one axis, and few of them crash.
# Small examples on paper are the quickest way to find them. Under each exercise stands a check. A check on other numbers
# and other sizes decides your points. After the check, a cell uses what you have built.
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

torch.set_num_threads(1)  # so that times can be compared

# %% [markdown]
# ## 1 · A softmax that has not seen everything yet
#
# Scores arrive in chunks, and there is no room to keep them. To know softmax in the end, two numbers for each row must be
# carried from chunk to chunk: the largest score so far, $m$, and $\ell$, the sum of $\exp(e - m)$ over all scores $e$ so
# far. Before the first chunk $m = -\infty$ and $\ell = 0$.
#
# Write what happens when one more chunk comes in. The difficulty: all terms of the old sum had the old $m$ subtracted, and
# the chunk may bring a larger one. Return new tensors, and leave those that come in as they are (this holds for all
# exercises here).
#
# A chunk may be masked, so that all its scores in some row are $-\infty$. It should change no attention weight in that
# row, even if it is the row's first chunk. (What the state says until the first finite score comes is up to you.) And
# scores may be as large as 300: no exponential of a positive number may be taken.

# %% exercise="online_softmax"
def online_softmax(
    scores: Tensor, largest: Tensor, total: Tensor
) -> tuple[Tensor, Tensor]:
    """Take one more chunk of scores into account.

    scores:  (batch, n_query, n_chunk)   the new ones
    largest: (batch, n_query, 1)         the largest score of each row so far; −∞ at first
    total:   (batch, n_query, 1)         the sum of exp(score − largest) so far; 0 at first
    returns both, brought up to date, as a tuple (largest, total), of the same shapes
    """
    ...  # solution

# %% check="online_softmax"
check("online_softmax", online_softmax)

# %% [markdown]
# **Use it.** Fifty thousand scores arrive in chunks of a thousand, and some of them are larger than 300. Your two
# numbers give the logarithm of the whole sum, $m + \ln \ell$. Compare it with torch's `logsumexp`, which sees all scores at
# once.

# %%
if solved("online_softmax"):
    torch.manual_seed(0)
    scores = 100 * torch.randn(1, 1, 50_000)
    state = torch.full((1, 1, 1), -torch.inf), torch.zeros(1, 1, 1)
    for chunk in scores.split(1000, dim=-1):
        state = online_softmax(chunk, *state)
    print(f"the largest is {float(state[0]):.1f}, and exp of that overflows")
    print(f"two numbers: {float(state[0] + state[1].log()):.4f}")
    print(f"all scores:  {float(scores.logsumexp(dim=-1)):.4f}")

# %% [markdown]
# ## 2 · The inner loop of FlashAttention
#
# The softmax is only half of attention, which needs the average $\sum_j \exp(e_j)\, v_j / \sum_j \exp(e_j)$. Its
# numerator is a sum over the keys, just as its denominator is. So it can be carried along in the same way, and no weight
# ever has to be kept.
#
# Write the step for one tile of keys and values, with the scaled dot product as score. The caller starts from $-\infty$,
# 0 and zeros, and divides `output` by `total` when all tiles have been seen. (Nothing is masked here. Your
# `online_softmax` may be of use.)

# %% exercise="attend_tile"
def attend_tile(
    query: Tensor, key: Tensor, value: Tensor, largest: Tensor, total: Tensor, output: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Take one more tile of keys and values into account: attention, not yet divided.

    query: (batch, n_query, d)   key: (batch, n_tile, d)   value: (batch, n_tile, d_v)
    largest, total: (batch, n_query, 1), as in exercise 1
    output: (batch, n_query, d_v), the sum of exp(score − largest) · value over all keys so far
    returns the three, brought up to date
    """
    ...  # solution

# %% check="attend_tile"
check("attend_tile", attend_tile)

# %% [markdown]
# **Use it.** Attention over 4,096 keys, 128 at a time, beside the same with the whole table of scores. Are the results
# the same, and how many scores exist at once?

# %%
if solved("attend_tile"):
    torch.manual_seed(0)
    query, key, value = torch.randn(3, 1, 4096, 64)
    nothing = torch.zeros(1, 4096, 64)
    state = torch.full((1, 4096, 1), -torch.inf), nothing[..., :1], nothing
    for keys, values in zip(key.split(128, dim=1), value.split(128, dim=1), strict=True):
        state = attend_tile(query, keys, values, *state)
    in_tiles = state[2] / state[1]
    at_once = (query @ key.mT / 8).softmax(dim=-1) @ value
    print(f"the results differ by at most {float((in_tiles - at_once).abs().max()):.0e}")
    print(f"scores that exist at once: {4096 * 128:,} in tiles, {4096 * 4096:,} in a table")

# %% [markdown]
# ## 3 · A sliding window, in blocks
#
# Each position attends to itself and to `width` positions on each side. A dense mask computes all $n^2$ scores and throws
# most of them away. In blocks, the others are never computed. Cut the text into blocks of `width` positions. The window
# of any query in block $b$ lies within three blocks: $b - 1$, $b$ and $b + 1$.
#
# Write what makes this possible: for each block, the $3 \cdot \texttt{width}$ rows of `x` that its queries can touch,
# and a mask that says which of them each query may attend to. Before the first block and after the last one there is
# nothing: put zeros there, and let no query attend to them. (`x` will be the keys once, and the values once.)

# %% exercise="window_blocks"
def window_blocks(x: Tensor, width: int) -> tuple[Tensor, Tensor]:
    """What each block of queries can touch in a sliding window, and which pairs are allowed.

    x: (batch, n, d), where n is a multiple of width; n_blocks = n // width
    returns blocks (batch, n_blocks, 3 · width, d), in the order of the text, and
            mask (n_blocks, width, 3 · width), boolean, True where a query may attend to a row
    """
    ...  # solution

# %% check="window_blocks"
check("window_blocks", window_blocks)

# %% [markdown]
# **Use it.** Attention in a window of 64 on each side, over 4,096 positions: with your blocks, and with a dense mask.
# How many times as many scores does the mask compute, and how many times as long does it take?

# %%
if solved("window_blocks"):
    def in_blocks(query, key, value, width):
        keys, mask = window_blocks(key, width)
        values, _ = window_blocks(value, width)
        queries = query.unflatten(1, (-1, width))                # (batch, n_blocks, width, d)
        scores = queries @ keys.mT / math.sqrt(query.shape[-1])
        weights = scores.masked_fill(~mask, -torch.inf).softmax(dim=-1)
        return (weights @ values).flatten(1, 2), scores.numel()

    def under_a_mask(query, key, value, width):
        i = torch.arange(query.shape[1])
        near = (i[:, None] - i).abs() <= width
        scores = query @ key.mT / math.sqrt(query.shape[-1])
        weights = scores.masked_fill(~near, -torch.inf).softmax(dim=-1)
        return weights @ value, scores.numel()

    torch.manual_seed(0)
    texts = torch.randn(3, 1, 4096, 64)                          # queries, keys, values
    took, found = {}, {}
    for attention in (in_blocks, under_a_mask, in_blocks, under_a_mask):
        begun = time.process_time()
        found[attention.__name__] = attention(*texts, 64)
        took[attention.__name__] = time.process_time() - begun   # the second round counts
    (blocks, few), (masked, many) = found["in_blocks"], found["under_a_mask"]
    print(f"the results differ by at most {float((blocks - masked).abs().max()):.0e}")
    print(f"the mask computes {many / few:.0f} times as many scores,")
    print(f"and takes {took['under_a_mask'] / took['in_blocks']:.0f} times as long")

# %% [markdown]
# ## 4 · A rolling cache
#
# Now the text is written token by token, under a window: token $t$ may attend to itself and to the $w - 1$ tokens
# before it. A **KV cache** keeps keys and values, so that nothing is computed twice. Under a window, what is more than $w - 1$
# tokens old is never needed again, so $w$ slots are enough. Token $t$ takes slot $t \bmod w$, the place of the token
# that has just left the window. Mistral 7B writes in this way.
#
# Write one step: put the new key and value into their slot, let the query meet all slots that have been written, and
# return the output and both caches. Leave the tensors that come in as they are. (Slots that have not been written yet
# hold anything.)

# %% exercise="rolling_step"
def rolling_step(
    query: Tensor, key: Tensor, value: Tensor, key_cache: Tensor, value_cache: Tensor, t: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Attention of token t, counted from 0, to itself and the w − 1 tokens before it.

    query, key, value: (batch, n_heads, d_head), of token t
    key_cache, value_cache: (batch, n_heads, w, d_head); token s stands in slot s % w
    returns output (batch, n_heads, d_head), and both caches, of the same shapes
    """
    ...  # solution

# %% check="rolling_step"
check("rolling_step", rolling_step)

# %% [markdown]
# **Use it.** Write 2,000 tokens with a window of 128. The last output must be what attention over the last 128 tokens
# gives. And how large is the cache, beside one that keeps all tokens?

# %%
if solved("rolling_step"):
    torch.manual_seed(0)
    query, key, value = torch.randn(3, 2000, 1, 4, 32)           # 2,000 tokens, 4 heads
    keys, values = torch.zeros(2, 1, 4, 128, 32)
    for t in range(2000):
        output, keys, values = rolling_step(query[t], key[t], value[t], keys, values, t)
    last_keys, last_values = key[-128:, 0], value[-128:, 0]      # (128, 4, 32)
    scores = torch.einsum("hd,thd->ht", query[-1, 0], last_keys) / math.sqrt(32)
    expected = torch.einsum("ht,thd->hd", scores.softmax(dim=-1), last_values)
    print(f"the last output differs by at most {float((output[0] - expected).abs().max()):.0e}")
    print(f"numbers kept: {2 * keys.numel():,}, where a growing cache has {2 * key.numel():,}")

# %% [markdown]
# ## 5 · Linear attention: without a softmax
#
# In **linear attention** ([@katharopoulos2020]) the weight of key $j$ for query $i$ is $\phi(q_i) \cdot \phi(k_j)$, with
# $\phi(x) = \operatorname{elu}(x) + 1$, a positive number for each feature. The function `features` of the next cell is φ. The weights of
# a row are divided by their sum, as always:
#
# $$\text{output}_i = \frac{\sum_j \bigl(\phi(q_i) \cdot \phi(k_j)\bigr)\, v_j}{\sum_j \phi(q_i) \cdot \phi(k_j)}$$
#
# where $j$ runs over all keys, or, with `causal`, over those up to $i$. Nothing is scaled, nothing is padded. Write it
# without a table (n, n). (The check sees the result alone, and takes the table as well. The cells after exercise 6 use both.)

# %% locked=true
def features(x: Tensor) -> Tensor:
    """φ(x) = elu(x) + 1, for each number by itself."""
    return torch.nn.functional.elu(x) + 1

# %% exercise="linear_attention"
def linear_attention(query: Tensor, key: Tensor, value: Tensor, causal: bool) -> Tensor:
    """The values, averaged by the weights φ(q) · φ(k).

    query, key: (batch, n, d_k)   value: (batch, n, d_v)
    causal: whether each position attends to itself and the past alone
    returns (batch, n, d_v)
    """
    ...  # solution

# %% check="linear_attention"
check("linear_attention", linear_attention)

# %% [markdown]
# **Use it.** How long does your function take at growing lengths, with all keys allowed and with `causal`? *Guess:* by
# which factor does the time grow when $n$ doubles? (A table gives 4.)

# %%
if solved("linear_attention"):
    for causal, lengths in ((False, (1000, 2000, 4000)), (True, (250, 500, 1000))):
        for n in lengths:
            texts = torch.randn(3, 1, n, 32)
            begun = time.process_time()
            for _ in range(5):
                linear_attention(*texts, causal)
            milliseconds = 1000 * (time.process_time() - begun) / 5
            print(f"causal {causal!s:>5}, n = {n:>5,}: {milliseconds:6.1f} ms")

# %% [markdown]
# (With `cumsum` over all outer products, the causal form keeps a state for *each* position, $n \cdot d_k d_v$ numbers. The
# lecture's chunks keep one for each chunk. The recurrent form, which is next, keeps one in all.)

# %% [markdown]
# ## 6 · The same as a recurrent network
#
# The causal form can take one token at a time. All that it needs of the past is two sums,
# $S = \sum_j \phi(k_j)^\top v_j$ and $z = \sum_j \phi(k_j)$, which do not grow with the text. (Vectors are
# rows, so the first is a sum of matrices.) Before the first token both are zero.

# %% exercise="linear_step"
def linear_step(
    query: Tensor, key: Tensor, value: Tensor, s: Tensor, z: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
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
# at what one of them costs, early and late: with your state, and with a cache of keys and values that has room for all
# 1,500 from the start, so that nothing is copied. Which of the two lines grows?

# %%
if solved("linear_attention") and solved("linear_step"):
    torch.manual_seed(0)
    query, key, value = torch.randn(3, 2, 300, 16)               # 2 texts of 300 tokens
    at_once = linear_attention(query, key, value, True)
    s, z, one_by_one = torch.zeros(2, 16, 16), torch.zeros(2, 16), []
    for t in range(300):
        output, s, z = linear_step(query[:, t], key[:, t], value[:, t], s, z)
        one_by_one.append(output)
    off = float((torch.stack(one_by_one, dim=1) - at_once).abs().max())
    print(f"at once and one by one differ by at most {off:.0e}")

    def state_step(t, query, key, value, s, z):
        _, s, z = linear_step(query, key, value, s, z)
        return s, z

    def cache_step(t, query, key, value, keys, values):
        keys[:, t], values[:, t] = key, value                    # in place, nothing is copied
        scores = query.unsqueeze(1) @ keys[:, : t + 1].mT / 8    # (heads, 1, t + 1)
        _ = scores.softmax(dim=-1) @ values[:, : t + 1]
        return keys, values

    tokens = torch.randn(1500, 3, 8, 64)                         # 8 heads, 64 wide
    begin = {"state": (state_step, torch.zeros(8, 64, 64), torch.zeros(8, 64)),
             "cache": (cache_step, torch.zeros(8, 1500, 64), torch.zeros(8, 1500, 64))}
    for name, (step, *kept) in begin.items():
        seconds = []
        for t in range(1500):
            begun = time.process_time()
            kept = step(t, *tokens[t], *kept)
            seconds.append(time.process_time() - begun)
        for last in (300, 900, 1500):
            middle = sorted(seconds[last - 300 : last])[150]
            print(f"{name}: of the 300 tokens up to {last:>5,} one takes {1e6 * middle:.0f} µs")

# %% [markdown]
# ## 7 · "So attention is linear now"
#
# A colleague has replaced the attention of a model with $n = 2{,}000$ and $d = 4{,}096$ by FlashAttention. It takes a
# fraction of the memory, and the whole model is a tenth faster. "So attention is linear now," she says, "and we can go to
# $n = 200{,}000$ for a hundred times the cost."
#
# **(a)** Which costs of attention does FlashAttention change, and which does it leave as they were? Say how each grows with
# $n$.
#
# **(b)** Roughly by which factor does the arithmetic of one layer grow from $n = 2{,}000$ to $n = 200{,}000$? Use $24\,n d^2$
# for everything but the pairs and $4\,n^2 d$ for the pairs.
#
# **(c)** She would be content with a sliding window of 1,000 positions on each side. Name something that her model may then
# no longer be able to do, and one cheap addition that might restore it.
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
# ## Extension: one token more, for groups of heads
#
# The cache of a model without a window grows. Write its step for all heads at once: put the new key and value after the
# old ones, let the query meet everything that is there now, and return the output together with the grown caches.
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
# **Use it.** Write 64 tokens with 8 heads of queries and 2 of keys, token by token, and compare with one pass over the
# whole text under a causal mask.

# %%
if solved("cached_step"):
    torch.manual_seed(0)
    query = torch.randn(1, 8, 64, 16)
    key, value = torch.randn(2, 1, 2, 64, 16)
    caches, outputs = torch.zeros(2, 1, 2, 0, 16).unbind(), []
    for t in range(64):
        output, *caches = cached_step(query[:, :, t], key[:, :, t], value[:, :, t], *caches)
        outputs.append(output)
    wide_key, wide_value = (x.repeat_interleave(4, dim=1) for x in (key, value))
    scores = query @ wide_key.mT / 4
    scores = scores.masked_fill(~torch.ones(64, 64).tril().bool(), -torch.inf)
    at_once = scores.softmax(dim=-1) @ wide_value
    off = float((torch.stack(outputs, dim=2) - at_once).abs().max())
    print(f"the two ways differ by at most {off:.0e}")
    print(f"the caches hold {sum(x.numel() for x in caches):,} numbers, a quarter of 8 heads'")

# %% [markdown]
# ## Extension: Linformer
#
# Linformer forbids no pair. In place of $n$ keys there are $k$ mixtures of keys, and $k$ mixtures of values to go with
# them. The mixing matrices $E$ and $F$ are learned:
#
# $$\operatorname{softmax}\!\left(\frac{Q\,(E K)^\top}{\sqrt{d}}\right) F V$$
#
# $E$ and $F$ have a column for each position up to $n_\text{max}$; a shorter sequence uses the first ones. The last
# positions of a sentence may be padding: the result must be that of the sentence without it, whatever stands there. (Think
# about *when* the padding must be taken out. In the lectures before, it was at the scores; is there a score for each key
# here?) Every sentence has at least one real token.

# %% exercise="linformer_attention"
def linformer_attention(
    query: Tensor, key: Tensor, value: Tensor, E: Tensor, F: Tensor, mask: Tensor
) -> Tensor:
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
# **Use it.** How well do $k$ mixtures stand in for 64 keys? As $E$ and $F$ take averages of neighbouring positions, and
# let $k$ grow until every key has a row of its own. When is the error zero, and why?

# %%
if solved("linformer_attention"):
    torch.manual_seed(0)
    query, key, value = torch.randn(3, 1, 64, 16)
    exact = (query @ key.mT / 4).softmax(dim=-1) @ value
    for k in (4, 16, 32, 64):
        E = torch.eye(k).repeat_interleave(64 // k, dim=1) * k / 64     # (k, 64) averages
        got = linformer_attention(query, key, value, E, E, torch.ones(1, 64).bool())
        print(f"k = {k:>2}: relative error {float((got - exact).norm() / exact.norm()):.2f}")

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
    """Rotary position embeddings: x, (batch, n_heads, n, d_head), turned by its positions.

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

    x: (batch, m, d_model)
    keys, values: (batch, n_heads, n, d_head), as your function has returned them; n may be 0
    W_Q, W_K, W_V, W_O: (d_model, d_model), d_model = n_heads * d_head
    W_up: (d_model, d_ff)   W_down: (d_ff, d_model)
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
    print(f"the states differ by at most {off:.0e}")
    print(f"without a cache it takes {without / with_cache:.0f} times as long")
