# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3 (ipykernel)
#     language: python
#     name: python3
# ---

# %% [markdown] teaches="the quadratic cost of attention"
# # Lecture @cheap_attention · Cheap attention: FlashAttention, windows, linear attention
#
# *About 56 minutes, of which less than one is computing time. You need self-attention and its cost
# ([lecture @self_attention](@self_attention)), masks ([lecture @masking](@masking)), and the KV cache with
# grouped-query attention ([lecture @many_heads](@many_heads)). From school you need $\exp(a - b) = \exp(a) / \exp(b)$.*
#
# After this lecture you can
#
# * measure what attention costs in **time** and in **memory**, and say for which models the quadratic part matters;
# * compute the softmax of scores that never exist all at once (**online softmax**), and attention in **tiles**;
# * explain, with **SRAM**, **HBM** and arithmetic intensity, where **FlashAttention** gets its speed;
# * build a **sliding window** and measure what it saves, find the **receptive field** of a sparse pattern, and say what
#   an **attention sink** is;
# * write **linear attention** in its parallel, step-by-step and chunkwise forms, say what limits its **associative
#   recall**, and compute a linear recurrence with a **parallel scan**;
# * say which of these methods today's models use, and compute the size of their KV caches at 128k tokens.
#
# The methods in the first half of the page, up to the KV cache (25 minutes), leave the result of attention unchanged.
# The methods in the second half change it.
#
# ## The quadratic cost: time and memory
#
# Self-attention compares every query with every key. For $n$ tokens there are $n^2$ pairs, each with an **attention
# score** and an **attention weight**. All scores together are the **score matrix**, and all weights are the **attention
# matrix** $A$. Both are $n \times n$.
#
# *Estimate before you go on.* A novel has about 100,000 words. If it is read as one sequence, a single head needs an
# attention matrix of $n^2$ weights, four bytes each. Does this matrix fit into your computer's memory? How many times
# larger is it than the matrix for a page of 500 words?

# %% tags=["hide-input"]
try:
    from attncourse.attention import MultiHeadAttention, attend, causal_mask

    from . import figures
    from .pattern_pad import pattern_pad, pattern_presets
except ModuleNotFoundError:
    raise ImportError(
        "This page needs the attncourse package: open it with `make lab` in the course's "
        "folder, or choose a kernel of the environment in which you installed the course."
    ) from None

import math
import os
import statistics
import time
from typing import NamedTuple

import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention
from torch.profiler import ProfilerActivity, profile
from torch.utils.flop_counter import FlopCounterMode

from attncourse.data.lookups import (
    LETTERS,
    marked_lines,
    three_questions,
    triggered_lines,
)
from attncourse.efficient import (
    dense_mask,
    linear_attend,
    linear_attend_step,
    longformer,
    online_softmax,
    receptive_field,
    sliding_window,
    sliding_window_attend,
    tiled_attend,
)
from attncourse.recurrent import linear_recurrence
from attncourse.training import descend
from attncourse.transformer import Block, TransformerConfig
from attncourse_lessons.results import measured

torch.set_num_threads(1)  # so that times can be compared
os.environ["KINETO_LOG_LEVEL"] = "99"  # the profiler need not tell that it starts and stops

# %% [raw] slide
# ## Everybody shakes hands with everybody
# $n$ tokens: $n^2$ pairs, each with a score and a weight. The **score matrix**, the **attention matrix**.
#
# > **Guess first.** A novel of 100,000 words as one sequence: does one head's attention matrix of four-byte weights fit into your computer? How many times larger is it than for a page of 500 words?
#
# . . .
# About 40 GB, for one head of one layer: 40,000 times as much.

# %%
page, novel = 500, 100_000
print(f"a page:  {4 * page**2 / 1e9:>7.3f} GB")
print(f"a novel: {4 * novel**2 / 1e9:>7.3f} GB a head")
print(f"{(novel / page) ** 2:,.0f} times as much")

# %% [markdown]
# The novel needs 40 GB, for one head of one layer. Most laptops have less memory than that.
#
# Does the measured cost grow like $n^2$, too? We compare the attention of one head of width $d = 64$ with its
# projections, the matrix products that make queries, keys and values. For memory we take the **peak**, the largest
# number of bytes in use at once. *Guess:* if $n$ doubles, by which factor does each cost grow?

# %% tags=["hide-input"]
def median_seconds(runs, *inputs, rounds=3):
    taken = {name: [] for name in runs}
    for _ in range(rounds):
        for name, run in runs.items():
            begun = time.process_time()
            run(*inputs)
            taken[name].append(time.process_time() - begun)
    return {name: statistics.median(times) for name, times in taken.items()}


def peak_bytes(run, *inputs):
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as seen:
        run(*inputs)
    events = [e for e in seen.profiler.kineto_results.events() if e.name() == "[memory]"]
    alive = [0]
    for event in sorted(events, key=lambda event: event.start_ns()):
        alive.append(alive[-1] + event.nbytes())
    return max(alive)


def multiply_adds(run, *inputs):
    with FlopCounterMode(display=False) as counter:
        result = run(*inputs)
    return counter.get_total_flops() // 2, result


def slope(line):
    """By which power of n it grows, between the shortest and the longest."""
    (short, low), *_, (long, high) = line.items()
    return math.log(high / low) / math.log(long / short)

# %%
d, lengths = 64, [256, 512, 1024, 2048, 4096]
torch.manual_seed(0)
W = torch.randn(3, d, d) / d**0.5                                # for q, k and v, (d, d) each
runs = {"attention": attend, "projections": lambda x, k, v: x @ W}
times, peaks = {name: {} for name in runs}, {name: {} for name in runs}
for n in lengths:
    inputs = torch.randn(3, n, d)                                # q, k, v, each (n, d)
    for name, seconds in median_seconds(runs, *inputs, rounds=max(3, 2**13 // n)).items():
        times[name][n] = 1000 * seconds
        peaks[name][n] = peak_bytes(runs[name], *inputs) / 2**20
measures = {"time, ms": times, "peak memory, MiB": peaks}
figures.against_length(measures, powers={"attention": 2, "projections": 1})
for what, lines in measures.items():
    for name, line in lines.items():
        print(f"{what}, {name}: like n to the {slope(line):.2f}; "
              f"twice the length costs {2 ** slope(line):.1f} times as much")
#| caption: Time and peak memory of attention and of its projections, by length: one CPU
#|   thread, medians of 3 to 32 runs. Dotted: the slopes of n and n².

# %% tags=["hide-input"]
assert 1.6 < slope(times["attention"]) < 2.7 and 1.9 < slope(peaks["attention"]) < 2.05
assert slope(times["projections"]) < 1.5 and 0.95 < slope(peaks["projections"]) < 1.05

# %% [raw] slide
# ## The quadratic cost: time and memory
# {figure}

# %% [markdown] erratum="O(n²d) alone" teaches="must the quadratic cost go? attention's share of the arithmetic; context lengths of foundation models"
# If $n$ doubles, attention takes about four times the memory and does four times the arithmetic. Its time may grow by
# more than a factor of four, probably because the largest matrices do not fit into the processor's cache. The
# projections take about twice the memory and do twice the arithmetic. On two logarithmic axes a power of $n$ is a
# straight line, and its slope is the exponent.
#
# ## Does the square matter? Length against width
#
# A Transformer computes more than attention. We count each multiplication and each addition as one operation. In each
# layer the four projections cost $8\,n\,d_\text{model}^2$. The feed-forward network, with its usual width of
# $4\,d_\text{model}$, costs $16\,n\,d_\text{model}^2$. The products $QK^\top$ and $AV$ of all heads cost
# $4\,n^2 d_\text{model}$. These two products are computed for every pair of positions, so we call them *the pairs*.
# They are the **quadratic term**, and their share of all operations is
#
# $$\frac{4 n^2 d_\text{model}}{24\, n\, d_\text{model}^2 + 4 n^2 d_\text{model}} = \frac{n}{n + 6\,d_\text{model}}.$$
#
# > **A common mistake: "attention costs O(n²d), so twice the length costs four times as much".** This leaves out the
# > projections. Two slides take $d_\text{model} = 1{,}000$ and lengths of 30, 512 and 50,000. By which factor does the
# > cost of the *whole* attention layer grow if each length doubles?

# %% [raw] slide
# ## Does the square matter? Length against width
# $$\frac{\text{pairs}}{\text{all}} = \frac{4 n^2 d_\text{model}}{24\, n\, d_\text{model}^2 + 4 n^2 d_\text{model}} = \frac{n}{n + 6\,d_\text{model}}$$
#
# **A common mistake: “twice the length costs four times as much”.** It leaves out the projections.
#
# > **Guess first.** GPT-3 175B is 12,288 wide and reads 2,048 tokens. What share goes to the pairs?

# %%
for n in (30, 512, 50_000):
    once, twice = (8 * size * 1000**2 + 4 * size**2 * 1000 for size in (n, 2 * n))
    print(f"from n = {n:>6,} to {2 * n:>7,}: {twice / once:.2f} times the operations")

# %% [markdown]
# The factor is close to 4 only at 50,000 tokens, the length of a short book.
#
# The share of the pairs grows with the length and falls as models get *wider*. At $n = 6\,d_\text{model}$ it is one
# half. *Guess:* which of the five models in the next cell were trained for a context longer than $6\,d_\text{model}$?
# And what was the share of the pairs in GPT-3?

# %%
contexts = {                         # year, longest context n, width d_model
    "BERT-large": (2018, 512, 1024),
    "GPT-2 XL": (2019, 1024, 1600),
    "GPT-3 175B": (2020, 2048, 12_288),
    "Llama 2 70B": (2023, 4096, 8192),
    "Llama 3.1 405B": (2024, 131_072, 16_384),
}
figures.context_lengths(contexts)
#| caption: Context lengths of models beside six times their width; the percentage is the
#|   share of the pairs, n / (n + 6 d_model).

# %% [raw] slide
# ## Contexts beside six times the width
# {figure}
#
# Models grew wider as fast as contexts grew longer. Then contexts jumped.

# %% [markdown] teaches="a taxonomy of efficient Transformers"
# Only the last model's context exceeds $6\,d_\text{model}$, and its pairs take 57 % of the operations. In GPT-3 the
# pairs took 3 %. From BERT to Llama 2, width and context both grew by a factor of eight. Llama 3.1 is twice as wide as
# Llama 2 but has 32 times the context.
#
# <details><summary>What the formula leaves out</summary>
#
# The formula assumes a feed-forward network of width $4\,d_\text{model}$ and as many key-value heads as query heads.
# Llama 3.1 405B has 8 key-value heads for 128 query heads, and three feed-forward matrices of width
# $3.25\,d_\text{model}$. These two differences nearly cancel. In all of these models but BERT, a program that skips the
# pairs forbidden by the causal mask halves the pairs' operations. Then the pairs take less than half even in Llama 3.1.
#
# </details>
#
# The formula holds for training and for reading a prompt (**prefill**), where all positions are computed at once.
# For **decode**, writing one token at a time, a later section does the count.
#
# From here on we look at a single head of width $d = d_k = d_v$, which is 64 or 128 in most models. With $h$ heads,
# $h\,d = d_\text{model}$.
#
# Cheaper attention comes in families, and the next figure is a map of them. [Lecture @many_heads](@many_heads) explains
# MQA, GQA and MLA.

# %% tags=["hide-input"]
figures.taxonomy()
#| caption: Families of cheaper attention: which pairs are computed, what is stored for keys and
#|   values, what changes.
#| label: families

# %% [raw] slide
# ## Families of cheaper attention
# {figure}

# %% [markdown]
# The blue row leaves the result unchanged. The orange rows keep the softmax, but they compute fewer pairs or store
# less. The green rows give up the softmax and need no pairs. (In training they may still compute pairs within short
# chunks, as a later section shows.) What the green rows store does not grow with $n$. The map follows a figure of
# [@tay2020] that one deck reproduces. Each year is that of the first version on arXiv.
#
# ## Online softmax: a softmax of scores that come in chunks
#
# Softmax divides by the sum over a row, which is complete only after the last score. Suppose that the scores $e_j$ of a
# row arrive in chunks, and each chunk is gone when the next one arrives. *What would you have to remember?*
#
# The sum alone would be one number. But $\exp(300)$ overflows in 32 bits, so a careful softmax first subtracts the
# row's largest score ([lecture @getting_ready](@getting_ready)). The largest score is not known until the end. What we
# know is the largest score *so far*, $m$, and the sum so far with $m$ subtracted, $\ell = \sum_j \exp(e_j - m)$. If a
# chunk brings a larger score $m'$, then $m$ was the wrong number to subtract from the old scores. But the old terms do
# not have to be computed again:
#
# $$\exp(e - m') = \exp(e - m) \cdot \exp(m - m').$$ (eq:online-softmax)
#
# All old terms, and therefore their sum, are wrong by *the same factor*, so one multiplication corrects the sum. This
# is **online softmax** ([@milakov2018]).
#
# Attention needs the weighted average $\sum_j \exp(e_j)\, v_j \,/ \sum_j \exp(e_j)$. With $m$ subtracted, its numerator
# is $o = \sum_j \exp(e_j - m)\, v_j$. Like the denominator $\ell$, the numerator is a sum over the keys, so the same
# factor corrects both. Before the first chunk, $m = -\infty$ and $\ell = o = 0$.
#
# [@fig:online-softmax] shows one query and six keys in three chunks, with values that are single numbers. *Guess before
# you look:* the first chunk has the scores 1 and 3, and the second has 2 and 4. By which factor do the bars of the
# first chunk shrink when the second chunk arrives?

# %% [raw] slide
# ## Online softmax
# Scores come in chunks, and each chunk is gone when the next arrives. Carry the largest so far $m$, the sum $\ell$ and the
# numerator $o$.
#
# > **Guess first.** A chunk brings a larger score $m'$. What puts the old sum right?
#
# . . .
# $$\exp(e - m') = \exp(e - m) \cdot \exp(m - m')$$
#
# All old terms are wrong by *the same factor*.

# %%
scores, values = torch.tensor([1.0, 3, 2, 4, 5, 3]), torch.tensor([10.0, 20, 30, 40, 50, 60])
figures.online_softmax_steps(scores, values, size=2)
print(f"average with the softmax of all six: {scores.softmax(dim=0) @ values:.4f}")
assert torch.allclose(online_softmax(scores.split(2)), scores.softmax(dim=0))
#| caption: Online softmax of a row in three chunks: bars are exp(e − m), outlines are bars
#|   before the factor.
#| label: online-softmax

# %% [raw] slide
# ## Three numbers are carried
# {figure}
#
# **Now you:** a@cheap_attention, exercise 1

# %% [markdown] teaches="the T × T matrix in memory, FlashAttention"
# All bars of the first chunk shrink by the same factor, $\exp(3 - 4) = 0.37$. However long the row is, only three
# numbers are carried: $m$, $\ell$ and $o$. After the last chunk, $o / \ell$ is the average that softmax gives with all
# scores at once. With values of width $d_v$, $o$ is a vector.
#
# > **Check yourself.** What goes wrong if you forget the factor, and on which data does the mistake not show?
# > <details><summary>Answer</summary>The old terms are too large by a factor of exp(m′ − m). If the largest score happens
# > to be in the first chunk, m never changes, the factor is always 1, and the mistake does not show. A test should put
# > the largest score last.</details>
#
# **Now you:** [a12](@cheap_attention/assignment), exercise 1, for a batch of queries at once.
#
# ## FlashAttention: exact attention in tiles
#
# Take the keys in **tiles** of, say, 128, and carry $m$, $\ell$ and $o$ for every query from tile to tile. Then no
# weights are kept. The package's `tiled_attend` does this. *Guess:* at 4,096 positions, how does its peak memory
# compare with that of attention with the whole matrix?

# %% [raw] slide
# ## FlashAttention: exact attention in tiles
# Take the keys in **tiles**; carry $m$, $\ell$ and $o$ for every query. No weight is kept.
#
# > **Guess first.** How do the peaks of memory compare at 4,096 positions?

# %%
peak = {"whole matrix": {}, "tiles": {}}
for n in (512, 1024, 2048, 4096):
    q, k, v = torch.randn(3, n, d)
    peak["whole matrix"][n] = peak_bytes(attend, q, k, v) / 2**20
    peak["tiles"][n] = peak_bytes(tiled_attend, q, k, v) / 2**20
for name, line in peak.items():
    print(f"{name}: {line[4096]:6.1f} MiB at 4,096, grows like n to the {slope(line):.2f}")
assert torch.allclose(tiled_attend(q, k, v), attend(q, k, v)[0], atol=1e-4), "the same answer"
assert slope(peak["whole matrix"]) > 1.9 and slope(peak["tiles"]) < 1.15

# %% [raw] slide
# ## Nothing was approximated, and memory grows like n
# {print}

# %% [markdown] erratum="a T × T matrix must be stored"
# At 4,096 positions the tiles take 9 MiB, and the whole matrix takes 129 MiB. The peak of the tiles grows like $n$.
# Nothing was approximated.
#
# > **A common mistake: "attention must store a T × T matrix".** A deck says so where it compares RNNs with
# > Transformers. But only the usual implementation must. Rabe and Staats ([-@rabe2021]) say the opposite in their
# > title: "Self-attention does not need $O(n^2)$ memory".
#
# Are tiles also faster? First we count multiply-adds, in units of $n^2 d$. Then we time the forward pass in three
# forms: with the whole matrix, with a loop over tiles in Python, and with torch's own FlashAttention, a single compiled
# program (a **kernel**). *Guess:* do the tiles save multiplications?

# %%
def with_matrix(q, k, v):
    output, _ = attend(q, k, v)
    return output


q, k, v = torch.randn(3, 1024, d).requires_grad_()
counted = {}
for name, attention in {"whole matrix": with_matrix, "tiles": tiled_attend}.items():
    forward, output = multiply_adds(attention, q, k, v)
    back, _ = multiply_adds(torch.autograd.grad, output.sum(), (q, k, v))
    counted[name] = forward / (1024**2 * d), back / (1024**2 * d)
    print("{}: forward {:.0f} n²d, backward {:.0f} n²d".format(name, *counted[name]))

def torchs_kernel(q, k, v, causal=False):                        # (batch, heads, n, d) each
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION):                # this kernel, or an error
        return scaled_dot_product_attention(q, k, v, is_causal=causal)


runs = {"whole matrix": attend, "tiles": tiled_attend, "torch's kernel": torchs_kernel}
took = median_seconds(runs, *torch.randn(3, 1, 1, 4096, d))
for name, seconds in took.items():
    print(f"{name}: {1000 * seconds:.0f} ms for 4,096 positions, on this CPU")

# %% tags=["hide-input"]
assert counted == {"whole matrix": (2, 4), "tiles": (2, 5)}
assert took["torch's kernel"] < took["tiles"] < took["whole matrix"]

# %% [raw] slide
# ## Is it faster? It multiplies no less
# {print}
#
# **Recomputation**: the backward pass computes weights again. Still it is faster: why?

# %% [markdown]
# No. In the forward pass the tiles need just as many multiplications as the whole matrix. In the backward pass they
# need *more*: the gradient needs the weights, which were not kept, so they are computed again. This is
# **recomputation**. Yet even the loop in Python is faster than the whole matrix on this CPU, and torch's kernel, which
# also works in tiles, is faster still. So multiplications do not explain the time. On a GPU, memory traffic does. This
# page counts the traffic, and it takes times on GPUs from the papers.
#
# <details><summary>What is kept for the backward pass</summary>
#
# FlashAttention-2 keeps the output and one number for each row, the logarithm of the softmax's denominator,
# $m + \ln \ell$. A tile of weights is then $\exp(e - m - \ln \ell) = \exp(e - m) / \ell$. So only the scores $e$ must
# be computed again, which takes one more matrix product.
#
# </details>
#
# <details><summary>In your own model</summary>
#
# You do not need to write this kernel: `scaled_dot_product_attention(q, k, v, is_causal=True)` chooses one. On a GPU,
# FlashAttention requires 16-bit numbers and accepts no mask of your own. `sdpa_kernel`, as in the cell above, allows no
# other kernel, so you get an error if your inputs do not qualify.
#
# </details>
#
# ## IO-awareness: HBM, SRAM, and arithmetic intensity
#
# A GPU has a small, fast memory on the chip, **SRAM**, and a large, slower memory beside it, **HBM** (high-bandwidth
# memory). [@fig:memory-levels] shows the numbers of an A100, as Dao et al. ([-@dao2022]) give them. *Work it out:* how
# many operations must a program do for each byte that it reads from HBM so that the arithmetic never waits?

# %% [raw] slide
# ## HBM and SRAM
# > **Guess first.** How many operations must a program do for each byte from HBM, so that the arithmetic never waits?

# %% tags=["hide-input"]
figures.memory_levels()
#| caption: The memories of an A100, from fast to slow, and what attention moves between SRAM
#|   and HBM.
#| label: memory-levels

# %% [raw] slide
# ## Arithmetic intensity: about 200
# {figure}
#
# Fewer: **memory-bound**. The usual attention writes and reads $4n^2$ numbers; **kernel fusion** keeps scores on the chip.

# %% [markdown]
# About 200, because the A100 does 312 trillion operations and moves 1.5 trillion bytes a second. The **arithmetic
# intensity** of a program is the number of its operations per byte moved. At an intensity below 200 the arithmetic
# waits for memory, and the program is **memory-bound**. At a higher intensity it is **compute-bound**.
#
# The usual attention writes the scores to HBM, reads them for the softmax, writes the weights, and reads the weights
# for the average, $4n^2$ numbers in all. **Kernel fusion** avoids this traffic: one kernel does all steps on a tile of
# $Q$ and a tile of $K$ and $V$ in SRAM, so the scores never leave the chip. An A100 has 108 processors (**streaming
# multiprocessors**), each with its own 192 KB of SRAM. One processor works on one tile of the scores at a time, so the
# tiles must fit into 192 KB.
#
# ## The order of the loops: FlashAttention and FlashAttention-2
#
# Every tile of queries must meet every tile of keys and values, which takes two nested loops. FlashAttention-2 has the
# queries in the outer loop:
#
# ```text
# for each tile of queries Q:
#     m, ℓ, O = −∞, 0, 0                           # in SRAM
#     for each tile of keys K and values V:        # read from HBM
#         scores = Q Kᵀ / √d                       # never leave SRAM
#         update m, ℓ, O by online softmax
#     write O / ℓ to HBM
# ```
#
# **Now you:** [a12](@cheap_attention/assignment), exercise 2: the inner loop.
#
# The first FlashAttention has the loops in the opposite order. The figure shows both orders at step 7. *Guess:* which
# order moves fewer numbers between HBM and SRAM?

# %% tags=["hide-input"]
figures.tile_orders()
#| caption: Tiles of the score matrix in the order of FlashAttention and of FlashAttention-2:
#|   the numbers are steps; orange and pale tiles lie in SRAM at step 7.
#| label: tiles

# %% [raw] slide
# ## The order of the loops
# {figure}
#
# > **Guess first.** Which order moves fewer numbers?

# %% [markdown]
# A **roofline** shows the highest possible speed at each arithmetic intensity. On the slope, memory sets the limit, and
# on the flat roof, arithmetic does. The corner between them is the **ridge point**.

# %%
def moved(n, d, M):
    """Numbers between HBM and SRAM, forward, one head; M numbers fit into SRAM."""
    tile = M // (4 * d)                          # rows of an outer tile; inner ones are smaller
    tiles = math.ceil(n / tile)
    return {
        # Q, K, V in, O out; scores, weights out and in
        "whole matrix": 4 * n * d + 4 * n**2,
        # For each tile of K, V: Q in; O, m, ℓ in and out. For each tile of Q: all of K, V in.
        "FlashAttention": 2 * n * d + tiles * (3 * n * d + 4 * n),
        "FlashAttention-2": 2 * n * d + tiles * 2 * n * d,
    }


M = 192 * 1024 // 2                              # one processor's SRAM, in 16-bit numbers
per_byte = {name: 4 * 4096**2 * 64 / (2 * numbers)           # 2 bytes a number
            for name, numbers in moved(4096, 64, M).items()}
figures.roofline(312e12, 1.5e12, per_byte)       # an A100's rates
#| caption: Roofline of an A100: attention at n = 4,096 and d = 64 with the whole matrix and
#|   in two orders of tiles.
#| label: attention-roofline

# %% [raw] slide
# ## Queries outside
# {figure}

# %% tags=["hide-input"]
print("for n = 4,096 and d = 64:")
for name, numbers in moved(4096, 64, M).items():
    print(f"{name:>16}: {numbers / 1e6:4.1f} million numbers moved, "
          f"{per_byte[name]:3.0f} operations per byte")
assert per_byte["whole matrix"] < 200 < per_byte["FlashAttention"]

# %% [raw] slide
# ## The traffic
# {print}
#
# $$\Theta\!\left(\frac{n^2 d^2}{M}\right) \quad\text{in place of}\quad \Theta(nd + n^2)$$

# %% [markdown]
# FlashAttention-2 moves fewer: 6.3 million numbers, compared with 9.4 million for FlashAttention and 68 million for the
# whole matrix. The pale tiles of [@fig:tiles] show why. In FlashAttention-2, keys and values are only read, and the
# orange $O_2$ is written once, at the end. In FlashAttention, the unfinished $O$, $m$ and $\ell$ of each query tile are
# read and written again for each tile of keys.
#
# With the whole matrix, attention is memory-bound. With tiles as large as these, memory traffic limits neither order of
# the loops. In practice, FlashAttention reached 25 to 40 % of the roof of [@fig:attention-roofline] and
# FlashAttention-2 50 to 73 % ([@dao2023]). Our count does not explain this gain. The paper gives three reasons:
#
# * FlashAttention-2 does fewer operations outside matrix products.
# * Its outer loop lets query tiles of one head run on different processors of the GPU at once.
# * Threads that share a tile exchange less data.
#
# If $M$ numbers fit into SRAM, the traffic in tiles is $\Theta(n^2 d^2 / M)$ instead of $\Theta(nd + n^2)$. This is
# theorem 2 of Dao et al. ([-@dao2022]).
#
# <details><summary>Where this comes from, and who did what</summary>
#
# An outer tile has $M / 4d$ rows, as in the paper. So there are $4nd/M$ outer tiles, and each moves a few times $nd$
# numbers. Real kernels use smaller tiles, which cause more traffic. But an A100 also has a cache of 40 MB between SRAM
# and HBM, which this count leaves out. The keys and values of a head (1 MB here) fit into this cache, so most repeated
# reads need not reach HBM.
#
# | who | what |
# |---|---|
# | [@rabe2021] | attention in chunks of keys, with little memory; no claim of speed |
# | [@dao2022], **FlashAttention** | one kernel, analysed by its memory traffic; outer loop over $K$, $V$; recomputation in the backward pass |
# | [@dao2023], **FlashAttention-2** | outer loop over $Q$ (first done by Tillet in Triton); one division, at the end |
# | [@shah2024], **FlashAttention-3** | for H100: copies overlap with products and softmax; 8-bit numbers |
#
# </details>
#
# > **Check yourself.** Under a causal mask, FlashAttention skips about half of the tiles. Which tiles, and why is the result still exact?
# > <details><summary>Answer</summary>Tiles whose keys all come after their queries. Such tiles have only scores of −∞, so
# > their weights are 0, and the sums need not be rescaled.</details>
#
# ## The KV cache: what limits decode
#
# The **KV cache** also leaves the result unchanged. When a model writes, the keys and values of earlier tokens do not
# change, so they are kept. [Lecture @many_heads](@many_heads) counts the cache's bytes, and [lecture
# @writing](@writing) times it. Writing $n$ tokens takes about $n^2/2$ scores with a cache. If each step computes all
# scores again, it takes $n^3/3$ scores, or half as many if it skips the pairs that the causal mask forbids.
#
# In one step, the new query meets the keys and values of $n$ tokens. *What is the arithmetic intensity of this step?
# How fast can it be at most, by [@fig:attention-roofline]?*
#
# The step takes $4nd$ operations. The cache holds $2nd$ numbers, which are $4nd$ bytes in 16 bits, and all of them must
# be read from HBM. That is **one operation per byte**. There the roofline allows 1.5 TFLOP/s of the A100's 312. So
# decode is **memory-bound**.
#
# FlashAttention's tiles hardly help here, because one query has no large score matrix. **Flash-Decoding** divides the
# keys and values of a head among processors that would otherwise have nothing to do, and joins the parts by
# [@eq:online-softmax].
#
# <details><summary>With GQA and with MLA</summary>
#
# With GQA, the $g$ queries of a group share each key and value, so the intensity is $g$, a second reason for GQA
# besides the smaller cache. MLA goes furthest: all 128 heads of DeepSeek-V3 can read the same 576 numbers (1,152 bytes)
# of a token for $128 \cdot 2 \cdot (576 + 512)$ operations, about 240 per byte. So with MLA the attention of decode is
# hardly memory-bound.
#
# </details>
#
# Each step reads the model's parameters and the cache. All texts of a batch share the parameters, but each text has its
# own cache, which grows with the text. With many texts, or long ones, the caches are the larger part of what is read.
# So a *smaller cache* helps: fewer key-value heads (GQA), fewer tokens (windows), or a state of fixed size instead of
# the cache.
#
# **A good place to pause.** If you have not done exercises 1 and 2, do them now. The methods below change the result.
#
# ## Sliding-window attention: how a window saves time
#
# A **sparse attention pattern** allows only some of the pairs. The simplest is a **sliding window**: each position
# attends to itself and to `width` neighbours on each side, or, under a causal mask, to `width` earlier positions. We
# write $w$ for the number of tokens in the window: $w = 2 \cdot \texttt{width} + 1$, or $w = \texttt{width} + 1$ with a
# causal mask.
#
# The obvious way to build a window is a mask. *Guess:* with 2,048 positions and a mask that allows 64 neighbours on
# each side, how much faster is attention than without the mask?

# %% [raw] slide
# ## Decode is memory-bound
# One new query meets $n$ keys and $n$ values: $4nd$ operations, and $4nd$ bytes of cache. **One operation per byte**, where
# an A100 could do 200.
#
# A step also reads the parameters, once for all texts of the batch. But each text has a cache of its own.
#
# What helps is a *smaller cache*: fewer key-value heads, fewer tokens, or a state of fixed size.
#
# > **Guess first.** A **sliding window** of 64 on each side, as a mask, among 2,048 positions: how much faster than full attention?

# %%
n, width = 2048, 64
q, k, v = torch.randn(3, n, d)
mask = dense_mask(sliding_window(width), n)      # (n, n)  True where |i − j| ≤ width
runs = {
    "full": with_matrix,
    "full, under a mask": lambda q, k, v: attend(q, k, v, mask)[0],
    "window, in blocks": lambda q, k, v: sliding_window_attend(q, k, v, width),
}
seconds = median_seconds(runs, q, k, v, rounds=5)
for name, run in runs.items():
    print(f"{name:>19}: {seconds[name] / seconds['full']:5.2f} of the full one's time, "
          f"{peak_bytes(run, q, k, v) / 2**20:6.1f} MiB")
_, masked, in_blocks = (run(q, k, v) for run in runs.values())
assert torch.allclose(masked, in_blocks, atol=1e-5), "the same result"

# %% tags=["hide-input"]
assert seconds["full, under a mask"] > seconds["full"] > 1.5 * seconds["window, in blocks"]
assert seconds["window, in blocks"] > 192 / 2048 * seconds["full"]

# %% [raw] slide
# ## Under a mask it is slower
# {print}
#
# Sparse attention is cheap only if forbidden scores are *never computed*.

# %% [markdown]
# With the mask, attention is even slower than without it, and takes more memory. The mask rules a pair out only after
# its score has been computed, and the mask itself has to be read from memory. In blocks, the window takes less time
# than full attention, and about a fifth of the memory.
#
# <details><summary>Any pattern in blocks: PyTorch's flex_attention</summary>
#
# On a GPU, `flex_attention` skips blocks for any pattern. You write the pattern as a function of $i$ and $j$, and
# `create_block_mask` finds the blocks without an allowed pair.
#
# </details>
#
# Sparse attention is cheap only if the forbidden scores are *never computed*. Matrix products can skip whole blocks of
# scores. For a window, we cut the queries into blocks of `width`. The window of any query lies within three blocks of
# keys: the block before its own, its own, and the block after:

# %% tags=["hide-input"]
figures.blocked_window(16, 4)
#| caption: A window with a width of 4 over 16 positions, in blocks of 4; the legend counts
#|   pairs, without the 32 of the two blocks of zeros that the code adds.
#| label: window

# %% [raw] slide
# ## Blocks, not masks
# {figure}

# %% [markdown] teaches="sparse patterns: Longformer, BigBird, panel by panel"
# With 2,048 positions and a `width` of 64, each query has $3 \cdot 64 = 192$ scores instead of 2,048, about a tenth.
# The time printed above falls by a smaller factor, because copying the keys and values into blocks takes time, too.
#
# A window also makes the KV cache smaller. Under a causal window the cache keeps only $w$ tokens: each new token takes
# the place of the token that has just left the window. This is a **rolling buffer cache**, or rolling cache, as in
# Mistral 7B ([@jiang2023]). *Of four slots, numbered from 0, which one does token 6 take, and which tokens does it
# attend to?*

# %% tags=["hide-input"]
figures.rolling_cache(4, [2, 3, 4, 5, 6])
#| caption: A rolling cache with four slots; orange is the newest token.

# %% [raw] slide
# ## A rolling cache
# {figure}
#
# **Now you:** a@cheap_attention, exercises 3 and 4

# %% [markdown]
# Token 6 takes slot 2, because $6 \bmod 4 = 2$, and it attends to tokens 3 to 6.
#
# **Now you:** [a12](@cheap_attention/assignment), exercises 3 and 4: the blocks, and the rolling cache.
#
# ## Receptive field: how many layers a window needs
#
# In one layer, information moves at most `width` positions, or $w - 1$ in a causal window. The next layer passes it on,
# so after $L$ layers the information has moved at most $L \cdot \texttt{width}$ positions, or $L\,(w - 1)$. The
# positions whose input can influence a position's output are its **receptive field**.
#
# The **pattern pad** below is a grid that you can click. Rows are queries and columns are keys. On the right are the
# number of blocks that a kernel could not skip, and the receptive field of the marked row after one to four layers.
# Because of the residual connection, every position also keeps what it had, even if its own pair is not allowed.
#
# The pad begins with a window of 2 on each side. *How many layers will the window need until each of the 16 positions
# is reached by all? Work it out, then look.* Then draw a pattern that does it in **two** layers with as few pairs as
# you can. Last, look at *dilated*: which positions are never reached, and why? If clicks do nothing, run the cell.

# %%
pad = pattern_pad("window")
pad

# %% [raw] slide
# ## Receptive field: draw who may attend to whom
# {figure}

# %% [raw] slide
# ## What the pad shows
# - A **window** of 2 needs eight layers for sixteen positions.
# - **Dilated**: three times as far, but every third position only.
# - One **global** token puts everything two layers away (Longformer).
# - **Random** keys: in a random graph most nodes are a few steps apart (BigBird).

# %% [markdown]
# Here are the numbers for the patterns of the pad:

# %%
for name, mask in pattern_presets(16).items():
    layers = (k for k in range(1, 16) if receptive_field(mask, k).all())
    print(f"{name:>16}: {mask.sum():>3} pairs, layers to reach all: {next(layers, 'never')}")

# %% [markdown]
# The cheapest pattern that needs two layers is *global*: the row and the column of one token, 31 pairs of 256. If you
# found 30, you are right: the residual connection makes the token's pair with itself unnecessary. The *window* needs 8
# layers for 15 positions, at 2 a layer. *Causal* and *strided* never reach every position, because nothing flows back
# from later positions. *Random* never does, because no query chooses position 6, so nothing leaves that position.
# *Strided* ([@child2019]) allows the positions just before and every fourth one.
#
# * A **dilated** window has as many keys as a plain window (fewer at the ends) and reaches three times as far. But with
#   the same gap in every layer, position 9 is reached only from every third position, however many layers there are.
#   Longformer gives its heads different gaps, and the heads without a gap fill the holes.
# * One **global** token attends to all positions, and all attend to it. So any two positions are at most two layers
#   apart, by way of this token. **Longformer** ([@beltagy2020]) combines a window with global tokens, such as the
#   tokens of a question.
# * **BigBird** ([@zaheer2020]) adds **random** keys, because in a random graph most nodes are only a few steps apart.
#   With global tokens, such a model can still approximate any continuous function of a sequence.
# * Keys can also be **chosen by content**. Reformer ([@kitaev2020]) compares a query only with the keys that a hash
#   puts into the same bucket. **NSA**, native sparse attention ([@yuan2025]), learns summaries of blocks of keys and
#   reads the best blocks.
#
# <details><summary>Dilated windows whose gap doubles from layer to layer</summary>
#
# A window of `width` on each side needs about $n$ / `width` layers to cross the text. With gaps of 1, 2, 4, 8, … in
# successive layers, a dilated window needs only about $\log_2 n$ layers, with the same number of keys in each. Each
# layer doubles the distance, as in a stack of dilated convolutions, and every distance is a sum of powers of two.
#
# </details>
#
# ## Trained with sparse patterns: does a model use what it can reach?
#
# A receptive field says what a model *could* use, not what it learns to use. In our task only distance matters. In a
# line of 32 letters, one letter of the first half is marked, and the *last* position must name it (`marked_lines`). The
# model, `Finder`, has two layers.

# %% tags=["hide-input"]
class Finder(nn.Module):
    def __init__(self, mask=None, n=32, d=32):
        super().__init__()
        config = TransformerConfig(
            vocab_size=16, d_model=d, n_layers=2, n_heads=2, d_ff=64, dropout=0.0
        )
        self.token, self.place, self.mask = nn.Embedding(16, d), nn.Embedding(n, d), mask
        self.blocks = nn.ModuleList(Block(config) for _ in range(2))
        self.read = nn.Linear(d, LETTERS)

    def forward(self, tokens):
        x = self.token(tokens) + self.place.weight               # (batch, n, d)
        for block in self.blocks:
            x = block(x, mask=self.mask)
        return self.read(x[:, -1])                               # (batch, letters)


def learn(model, draw, steps, lr, batch=32, seed=0, stop=None):
    """The learning rate's schedule is that of `steps`, even if training stops before."""
    generator = torch.Generator().manual_seed(seed)

    def losses():
        for _ in range(stop or steps):
            *seen, answers = draw(batch, generator)
            yield nn.functional.cross_entropy(model(*seen).flatten(0, -2), answers.flatten())

    return descend(model, losses(), steps, lr, progress=False).losses

# %% [markdown]
# We compare four patterns: full attention; a window of 2 on each side; the same window with one global token; and
# BigBird with a window of 1, one global token and two random keys. *Which of them will learn the task, and which will
# learn it first?* Guessing gives a loss of $\ln 8 = 2.08$ nats. The runs come from the record of
# `benchmarks/cheap_attention.py`. Each pattern has three seeds, at the best of six learning rates. The best rate is the
# one with the lowest mean loss over all steps of a run with a fourth seed.

# %% [raw] slide
# ## Trained with sparse patterns
# A letter of the first half is marked; the *last* position must name it. Two layers.
#
# > **Guess first.** Full; window of 2; window + global; BigBird. Which will learn it, and which soonest?

# %% tags=["hide-input"]
record = measured("cheap_attention")
print(record["command"])
pattern = {row["name"]: row for row in record["patterns"]}
again, rate = pattern["window + global"]["runs"][0]["losses"], pattern["window + global"]["lr"]
torch.manual_seed(0)
here = learn(Finder(dense_mask(longformer(2, 1), 32)), marked_lines, 350, rate)
at = next(i for i, loss in enumerate(again) if loss < 1.5)
print(f"window + global, seed 0, steps {5 * at + 1} to {5 * at + 5}: "
      f"loss {sum(here[5 * at : 5 * at + 5]) / 5:.3f} here, {again[at]:.3f} in the record")

# %%
four = ("full", "window", "window + global", "BigBird")
figures.loss_curves({name: [run["losses"] for run in pattern[name]["runs"]] for name in four},
                    every=5, chance=math.log(LETTERS))
#| caption: Training losses with four patterns: three seeds (thin) and their median (thick,
#|   with marks); one peak lies outside the frame.

# %% tags=["hide-input"]
def first_below(losses, level=0.5):
    """The step after which the mean over five steps was first below the level."""
    return next((5 * (at + 1) for at, loss in enumerate(losses) if loss < level), None)


def tell(name):
    row, runs = pattern[name], pattern[name]["runs"]
    right = ", ".join(f"{run['right']:.0%}" for run in runs)
    steps = [first_below(run["losses"]) for run in runs]
    print(f"{name:>20}: {row['pairs']:4.0%} of the pairs, rate {row['lr']}\n"
          f"{'':>22}loss below 0.5 at step {steps}, right in the end {right}")

# %%
for name in four:
    tell(name)

# %% tags=["hide-input"]
for row in record["rates"]:
    below = [run["below"] for run in row["runs"]]
    after = ", ".join(f"{run['highest_after']:.2f}" for run in row["runs"])
    print(f"full attention, rate {row['lr']}: below 0.5 at step {below}, then at most {after}")
fives = [sum(here[at : at + 5]) / 5 for at in range(0, len(here), 5)]
assert abs((first_below(fives) or 999) - first_below(again)) <= 50

# %% [raw] slide
# ## Sparse patterns are learned later
# {figure}

# %% [markdown]
# * **The window alone learns nothing.** Two layers carry a letter over at most four positions, and the marked letter is
#   farther than that from the last position.
# * **With a global token, 21 % of the pairs are enough, but learning takes longer.** Full attention needs 40 to 45
#   steps, and the two sparse patterns need 125 to 205.
# * **The learning rate explains only a part of the difference.** The rates differ by a factor of up to eight, but at
#   the rates of the sparse patterns (0.005 and 0.01) full attention still needs only 60 to 80 steps. The peaks of full
#   attention occur at its rate of 0.04. At lower rates no seed rises above 0.13 again.
#
# Why do the sparse patterns take longer? They have fewer pairs, *and* the letter needs **two hops** to the last
# position. Two controls each change only one of these. The first is the window, except that the last position attends
# to all positions: few pairs, one hop. The second is full attention, except that the last position attends only to the
# second half: most pairs, two hops. *Which of the two controls will be slow?*

# %%
tell("few pairs, one hop")
tell("most pairs, two hops")

# %% [raw] slide
# ## Hops, not pairs, cost steps
# {print}

# %% [markdown]
# The second control is slow. One hop takes 40 to 45 steps, although there are few pairs. Two hops take 125 to 230,
# although nearly all pairs are allowed. (At the same rate, 0.02, full attention takes 50 to 55.) So here the second hop
# costs steps, and the missing pairs do not.
#
# <details><summary>Try a pattern of your own: draw it on the pad, and run this in a new cell</summary>
#
# ```python
# def short_lines(batch, generator):
#     return marked_lines(batch, generator, n=16)
#
#
# learn(Finder(pad.mask, n=16), short_lines, 350, 1e-2)[-5:]
# ```
#
# </details>
#
# ## Attention sinks: why a window fails in a model trained without one
#
# Take a model that was trained with full causal attention, and let it write under a window to save memory. Xiao et al.
# ([-@xiao2024]) report that its loss explodes as soon as the *first* tokens have left the window. Keeping the first
# four tokens repairs the damage. But these tokens carry little information, so why do they matter?
#
# Their explanation is that the weights of a row must sum to one, even where a head has nothing to look for. So the head
# puts weight on a token that does no harm. The first token is suitable, because every position can attend to it. Such a
# token is an **attention sink**. When it leaves the window, its exponential leaves the softmax's denominator. If its
# weight was $\alpha$, the other weights grow by the factor $1/(1 - \alpha)$, and the head's output is unlike its
# outputs in training.
#
# We test this on the lines of `triggered_lines`. Every line begins with the same token, ^, whose answer is always *a*.
# At a **trigger** the answer is the letter before it, so the head has to look there. At a *letter* the answer is the
# next letter of the alphabet, and no other position helps.
#
# A model of one causal head and a feed-forward network (`Copier` in the benchmark) learns this task with full
# attention, at a learning rate of 0.01 (not tuned). Then it gets a window of 8 tokens: alone, with the
# *first* token kept, or, as a control, with the *second* token kept. *Guess:* at which of the two kinds of position
# does the window do damage?

# %% [raw] slide
# ## Attention sinks
# A model trained with full attention fails as soon as the *first* tokens leave its window (Xiao et al. 2024). Weights must
# sum to one, even where a head has nothing to look for.
#
# > **Guess first.** At a *trigger* the head must look at its neighbour, at a *letter* at nothing. Where does the window do damage?

# %% tags=["hide-input"]
line, answers = triggered_lines(1, torch.Generator().manual_seed(3), n=12)
print("a line: ", *("abcdefgh^?"[token] for token in line[0]), " (^ begins, ? is a trigger)")
print("answers:", *("abcdefgh"[answer] for answer in answers[0]))
sinks = record["sinks"]
for kind in ("trigger", "letter"):
    weight = [row["weight_on_first"][kind] for row in sinks]
    lost = [row["loss"]["window"][kind] for row in sinks]
    print(f"at a {kind:>7}: first token's weight", ", ".join(f"{w:.3f}" for w in weight),
          "  loss under the window", ", ".join(f"{nats:.3f}" for nats in lost))
losses = {name: {f"at a {kind}": [row["loss"][name][kind] for row in sinks]
                 for kind in ("trigger", "letter")} for name in sinks[0]["loss"]}
figures.shares_in_rows(losses, "loss, nats")
#| caption: Loss at triggers and at letters where the window of 8 has lost the first token;
#|   one mark per seed.

# %% [raw] slide
# ## Where the head has nothing to look for
# {figure}

# %% [markdown]
# * The window does damage at letters, where the head has nothing to look for (0.40 to 0.86 nats), and none at triggers.
# * With full attention, the first token has 17 to 39 % of the weight at letters, and less than 1 % at triggers. If a
#   token with 39 % of the weight leaves the window, the other weights become 1.6 times as large.
# * Keeping the first token repairs the damage, but keeping the second does not.
#
# These three results fit the explanation, but a stronger test does not. In *Going further* the same model gets an extra
# key and value of zeros, a place for the weight that is not needed. The first token keeps its weight, and the window
# still does damage. So in our model the sum of one is not the whole reason. The first place alone is not the
# reason either.
#
# The repair works whatever the reason is. A window with **sinks** (**StreamingLLM**) keeps the first few tokens
# permanently. Xiao et al. count positions within the cache, not in the text. Some models, such as gpt-oss, instead
# learn an extra score for each head, without a value. The exponential of this score is added to the softmax's
# denominator, so the weights of the tokens may sum to less than one.
#
# **Another good place to pause.** The next methods replace the softmax.
#
# ## Linear attention: a kernel in place of the softmax
#
# A **feature map** $\phi$ turns each query and each key into a vector of features. Let the weight of key $j$ for query
# $i$ be $\phi(q_i) \cdot \phi(k_j)$ instead of $\exp(q_i \cdot k_j)$. (Such a product of features is also called a
# **kernel**.) Then $\phi(q_i)$ can be taken out of the sum:
#
# $$\sum_j \bigl(\phi(q_i) \cdot \phi(k_j)\bigr) v_j = \phi(q_i)\, S, \qquad S = \sum_j \phi(k_j)^\top v_j .$$ (eq:linear-attention)
#
# In this section $S$ is the state, as in the papers, and not the score matrix. $S$ is $d_k \times d_v$ and does not
# depend on $i$. It is computed once, and each query is multiplied by it. In other words, $\phi(Q)\,\phi(K)^\top V$ is
# computed from the right, and no query is ever compared with a key:

# %% tags=["hide-input"]
figures.two_orders_of_products()
#| caption: The order of the products in softmax and in linear attention, to scale for n = 6
#|   and d = 2, without the division.
#| label: orders

# %% [markdown]
# In the figure, 144 multiplications become 48. In general, $2n^2d$ multiplications become $2nd^2$.
#
# For weights that sum to one, we divide by $\phi(q_i) \cdot z$ with $z = \sum_j \phi(k_j)$. This is **linear
# attention** ([@katharopoulos2020]). Its feature map is $\phi(x) = \operatorname{elu}(x) + 1$, which is $x + 1$ above 0
# and $\exp(x)$ below 0. **Performer** ([@choromanski2021]) approximates the softmax with random features, whose product
# is $\exp(q \cdot k)$ on average.
#
# Under a causal mask, query $i$ uses only the keys up to $i$, so $S$ and $z$ gain one term at each step. *What do you
# call a network that carries a state of fixed size from position to position?*

# %% [raw] slide
# ## Linear attention: a kernel in place of the softmax
# $$\sum_j \bigl(\phi(q_i) \cdot \phi(k_j)\bigr) v_j = \phi(q_i)\, S, \qquad S = \sum_j \phi(k_j)^\top v_j$$
#
# $S$ is $d_k \times d_v$ and does not depend on $i$. Divide by $\phi(q_i) \cdot z$.
#
# > **Guess first.** Under a causal mask $S$ gets one term more at each step. What do you call such a network?
#
# . . .
# "Transformers are RNNs" (Katharopoulos et al. 2020).

# %%
q, k, v = torch.randn(3, 200, 8)                                 # (n, d)
at_once = linear_attend(q, k, v, causal=True)                    # (n, d)
state, step_by_step = None, []
for t in range(200):
    output, state = linear_attend_step(q[t], k[t], v[t], state)  # S and z get one term more
    step_by_step.append(output)
assert torch.allclose(torch.stack(step_by_step), at_once, atol=1e-4), "a recurrent network"
print("the state after 200 tokens:", tuple(state.s.shape), "and", tuple(state.z.shape))

# %% [markdown]
# It is a recurrent network. Computed one step after another, it gives the same numbers as all positions at once.
# Katharopoulos et al. call their paper "Transformers are RNNs".
#
# Two decks plot the time to write $n$ tokens: a curve for Transformers, a straight line for RWKV, a linear recurrence
# (see the table below). We measure the same for eight heads, with a KV cache and with linear attention. The cache is
# **preallocated**, so nothing is copied. *How long will each take for 4,000 tokens, compared with 2,000?*

# %% tags=["hide-input"]
def with_cache(t, q, k, v, cache):                               # (heads, d) each
    cache[0, :, t], cache[1, :, t] = k, v                        # in place
    output, _ = attend(q.unsqueeze(1), cache[0, :, : t + 1], cache[1, :, : t + 1])
    return output, cache


def with_state(t, q, k, v, state):
    return linear_attend_step(q, k, v, state)


marks, spent = (500, 1000, 2000, 3000, 4000), {"KV cache": {}, "linear attention": {}}
tokens = torch.randn(4000, 3, 8, d)                              # q, k, v of 8 heads
for name, step, state in (("KV cache", with_cache, torch.zeros(2, 8, 4000, d)),
                          ("linear attention", with_state, None)):
    begun = time.process_time()
    for t in range(4000):
        _, state = step(t, *tokens[t], state)
        if t + 1 in marks:
            spent[name][t + 1] = time.process_time() - begun
print(f"{'tokens written':>16}:", *(f"{mark:>6,}" for mark in marks))
for name, line in spent.items():
    print(f"{name:>16}:", *(f"{line[mark]:>5.2f}s" for mark in marks),
          f"  4,000 take {line[4000] / line[2000]:.1f} times as long as 2,000")
cached, recurrent = (line[4000] / line[2000] for line in spent.values())
assert cached > 1.15 * recurrent and recurrent < 2.5

# %% [raw] slide
# ## A curve and a straight line
# {print}
#
# **Now you:** a@cheap_attention, exercises 5 and 6

# %% [markdown]
# With a state of fixed size, each token costs the same, so twice the tokens take about twice the time. With a cache,
# each token costs more than the token before it. By arithmetic, twice the tokens cost up to four times as much. The
# printed factor may be larger: at 4,000 tokens the cache holds 16 MB, which may not fit into the processor's own
# memory.
#
# In training the whole text is known, and linear attention has three forms. The **parallel form** computes all pairs at
# once and costs $n^2$ again. The **recurrent form** takes one step after another and leaves a GPU idle. The **chunkwise
# form** lies between these two. It cuts the text into chunks of $C$ positions. *Which pairs of [@fig:chunkwise] does it
# write out?*

# %% tags=["hide-input"]
figures.chunkwise(9, 3)
#| caption: Chunkwise linear attention of 9 positions in chunks of 3: pairs within a chunk are
#|   written out; earlier chunks come through the state.
#| label: chunkwise

# %% [raw] slide
# ## The chunkwise form
# {figure}

# %% [markdown]
# Only the pairs within a chunk. All earlier chunks reach a query through the state, a matrix of fixed size. Let
# $\phi(Q)$, $\phi(K)$ and $V$ be the rows of one chunk, and $S$ the state after the chunks before it. Before the
# division, the output of the chunk is
#
# $$O = \underbrace{\phi(Q)\,S}_{\text{chunks before}}
# + \underbrace{\operatorname{tril}\bigl(\phi(Q)\,\phi(K)^\top\bigr)\,V}_{\text{within the chunk}},
# \qquad S \leftarrow S + \phi(K)^\top V .$$
#
# Here tril sets all entries above the diagonal (hatched in the figure) to 0. With $C = n$ this is the parallel form,
# and with $C = 1$ the recurrent form. The cost is about $nCd + nd^2$, in large matrix products. `linear_attend` works
# in this way. Gated linear attention ([@yang2024gla]) and Mamba-2 ([@dao2024]) are trained in this way, too.
#
# **Now you:** [a12](@cheap_attention/assignment), exercises 5 and 6.
#
# ## Associative recall: what fits into a state
#
# What does a state of fixed size give up? We show the model $p$ pairs of a name and a number, and then ask for the
# number of one name. This task is **associative recall** (in a harder form, MQAR, [@arora2024zoology]). Softmax
# attention [@eq:self-attention] keeps all $p$ pairs in its cache. Linear attention has to keep them in $S$, which has
# $d \times d$ numbers whether $p$ is 2 or 64. There are eight numbers and 128 names, so even keys of width 64 cannot
# all be orthogonal. *Draw the two curves* of accuracy against $p$ for $d = 16$, and then the curve of linear attention
# for $d = 64$.
#
# Three things may limit the recall: the **width** $d$, the **feature map**, and the **division** by $\phi(q) \cdot z$.
# With $\operatorname{elu} + 1$ all features are positive, so no two keys can be orthogonal, and each pair disturbs the
# others. This is called **interference**. We change one of the three at a time. The model (`Recall` in the benchmark)
# has embeddings for names and numbers, one attention operation, and a linear readout. Seeds and learning rates are
# chosen as before, except that the rate with the highest recall wins. (*Going further* shows why each kind needs a rate
# of its own.)

# %% [raw] slide
# ## Associative recall: what fits into a state?
# Show $p$ pairs of a name and a number; ask for one. Softmax keeps all in its cache, linear attention in $d \times d$ numbers.
#
# > **Guess first.** Draw the two curves of accuracy against $p$.

# %% tags=["hide-input"]
recalled = {(row["name"], row["d"]):
            {int(p): [run["right"][p] for run in row["runs"]] for p in row["runs"][0]["right"]}
            for row in record["recall"] + record["strength"]}


def middle(name, width, pairs=64):
    return statistics.median(recalled[name, width][pairs])


kinds = ("softmax", "elu + 1, divided", "elu + 1", "identity")
by_kind = {name: {f"d = {d}": recalled[name, d] for d in (16, 64)} for name in kinds[1:]}
figures.seed_lines(by_kind, "pairs shown", "accuracy", chance=1 / LETTERS,
                   beside={"softmax, d = 16": recalled["softmax", 16]})
print("medians at 8, 16 and 64 pairs:")
for name, d in recalled:
    if name in kinds:
        print(f"d = {d}, {name:>16}:", *(f"{middle(name, d, p):6.1%}" for p in (8, 16, 64)))
#| caption: Associative recall of three kinds of linear attention, one mark per seed;
#|   percentages are medians at 64 pairs.
#| label: recall
# %% [raw] slide
# ## The width matters most
# {figure}

# %% [markdown]
# With $d = 16$, softmax attention recalls all 64 pairs, and every kind of linear attention recalls fewer. So embeddings
# and a readout of width 16 are enough, and the loss happens in the attention.
#
# * The **width** matters most: from $d = 16$ to $d = 64$, each kind gains 35 points or more at 64 pairs.
# * The **feature map** comes next: with the identity in place of $\operatorname{elu} + 1$, recall is some 13 points
#   higher at $d = 16$ and 64 pairs. The identity is not better in general: its weights may be negative, so we cannot
#   divide by their sum.
# * The **division** helps with narrow keys and few pairs (12 points at $d = 16$ and 8 pairs) but hurts with wide keys
#   and many pairs (3 points at $d = 64$ and 64 pairs). RetNet, for example, omits the division and normalises the
#   output instead.
#
# Two things grow with the width: the **size of the state**, $d_k \times d_v$ numbers, and the **room for keys**. With
# the identity as feature map, keys of length one, and key $i$ as the query, the output is
#
# $$k_i S = v_i + \sum_{j \ne i} (k_i \cdot k_j)\, v_j .$$
#
# The sum is the interference. For random directions $(k_i \cdot k_j)^2$ is $1/d_k$ on average, so the square of the sum
# grows like $p/d_k$. Learned keys are not random, but at $p = d_k$ the identity recalls about nine pairs in ten at both
# widths. *Which of the two counts, the size of the state or the room for keys?* Two more models with the identity have
# a state of 1,024 numbers each. One has keys of width 64 and values of width 16, and the other has the reverse. Both
# use the learning rate that was best for the identity at both widths, 0.05.

# %% tags=["hide-input"]
print("share of 64 pairs recalled, median of three seeds")
for d in (16, 64):
    print(f"d_k = {d}, d_v = {d}, state of {d * d:>5,}: {middle('identity', d):.0%}")
for row in record["shapes"]:
    right = statistics.median(run["right"]["64"] for run in row["runs"])
    print(f"d_k = {row['d_k']}, d_v = {row['d_v']}, state of 1,024: {right:.0%}")

# %% [markdown]
# In this task the room for keys counts, as the equation says. With wide keys and narrow values the model recalls as
# much as with $d = 64$, whose state is four times as large. With narrow keys and wide values it recalls about as much
# as with $d = 16$, whose state is a quarter as large. But values of width 16 are more than enough to tell eight numbers
# apart. With thousands of numbers, $d_v$ could be the limit, so the size of the state may still matter there.
#
# The **update** of the state can be changed, too. The **delta rule** (**DeltaNet**, [@schlag2021]; chunkwise,
# [@yang2024deltanet]) subtracts what is already stored under a key before it adds the value. In our tasks it helps a
# lot where a name appears again with another number, and little elsewhere (*Going further*).
#
# A cache keeps every pair and therefore grows. A state of fixed size saves this memory but loses exact recall
# ([@arora2024]).
#
# ## Linear recurrences and the parallel scan: minGRU, state-space models
#
# A recurrent network generates text cheaply. But even in training, where the whole text is known, a GRU
# ([lecture @bottleneck](@bottleneck)) must take one step after another. *Can a recurrence be computed in parallel?*
# Yes, if its step is *linear* in the state: $h_t = a_t \odot h_{t-1} + b_t$, where $a_t$ and $b_t$ depend only on the
# input. Then two steps in a row make one step of the same kind:
#
# $$a'(a h + b) + b' = a'a\,h + (a'b + b').$$
#
# Joining steps is associative: it does not matter where the brackets stand. So all pairs of neighbours can be joined at
# once, then the results, and so on. This is a **parallel scan**, or associative scan ([@blelloch1990]). [@fig:scans]
# shows two ways to scan eight steps. The labels at the top say which steps each position holds in the end.

# %% [raw] slide
# ## Linear recurrences and the parallel scan
# $h_t = a_t \odot h_{t-1} + b_t$, with $a_t, b_t$ from the input alone. Two steps are one step of the same kind:
#
# $$a'(a h + b) + b' = a'a\,h + (a'b + b')$$
#
# > **Guess first.** How many rounds for 100,000 steps?

# %% tags=["hide-input"]
figures.scan_circuits(8)
#| caption: Two parallel scans of eight steps, from the bottom up; each dot joins two results.
#| label: scans

# %% [raw] slide
# ## Two ways to join eight steps
# {figure}

# %% [markdown]
# Doubling ([@hillis1986]) takes $\log_2 n$ rounds and about $n \log_2 n$ joins. The tree takes nearly twice as many
# rounds, but only about $2n$ joins. So doubling has less **depth**, and the tree has less **work**. The package's
# `linear_recurrence` uses doubling. *How many rounds does it take for 100,000 steps, where a loop takes 100,000?*

# %%
decay, inputs = torch.rand(1000, 4), torch.randn(1000, 4)        # (n, d)
h, loop = torch.zeros(4), []
for a, b in zip(decay, inputs, strict=True):
    h = a * h + b
    loop.append(h)
assert torch.allclose(linear_recurrence(decay, inputs), torch.stack(loop), atol=1e-5)

# %% tags=["hide-input"]
for n in (1024, 131_072):
    doubled, tree = figures.doubling_rounds(n), figures.tree_rounds(n)
    for name, rounds in (("doubling", doubled), ("tree", tree)):
        print(f"n = {n:>7,}, {name:>8}: {len(rounds):>2} rounds, "
              f"{sum(len(joins) for joins in rounds) / n:5.2f} n joins")

# %% [raw] slide
# ## Depth and work
# {print}
#
# | | decay $a$ | state |
# |---|---|---|
# | minGRU | from the input | a number a channel |
# | S4 | learned, then fixed | a vector a channel |
# | Mamba | from the input | a vector a channel |
# | gated linear attention | from the input | a matrix |

# %% [markdown] teaches="recurrence again: RWKV, Mamba"
# It takes 17 rounds, because $2^{17} = 131{,}072$ is the first power of two above 100,000.
#
# One of the simplest networks with a linear step is **minGRU** ([@feng2024]), a GRU whose gate depends only on the
# input: $h_t = (1 - z_t) \odot h_{t-1} + z_t \odot x_t W$ with $z_t = \sigma(x_t W_z)$. In the package it is
# `LinearRecurrence`. Such networks differ mainly in two things, the decay $a$ and the state $h$:
#
# | | $a$ is | the state |
# |---|---|---|
# | minGRU | computed from the input | a number for each channel |
# | **state-space model** S4 ([@gu2022]) | learned, then fixed, so the output is a convolution, computed with a fast Fourier transform | a vector for each channel |
# | **Mamba** ([@gu2023]) | computed from the input ("selective": keep this token, skip that one), so it takes a scan and not a convolution | a vector for each channel |
# | **RetNet** ([@sun2023]) | fixed for each head | the matrix $S$ |
# | **gated linear attention** (GLA, [@yang2024gla]) | computed from the input | the matrix $S$ |
# | **Gated DeltaNet** ([@yang2025]) | computed from the input, times the matrix $I - \beta k^\top k$ of the delta rule, which the plain scan does not join cheaply | the matrix $S$ |
# | **RWKV** ([@peng2023]; versions 5 and 6: [@peng2024]) | learned, then fixed; from version 6 computed from the input | an average for each channel; from version 5 a matrix |
#
# Can such a network learn over a distance? One layer of minGRU, 32 wide, must carry the marked letter to the last
# position, where the window failed:

# %% tags=["hide-input"]
for run in pattern["minGRU"]["runs"]:
    print(f"minGRU, seed {run['seed']}: right {run['right']:.0%}, "
          f"loss below 0.5 at step {first_below(run['losses'])}")

# %% [markdown] teaches="production models and what they use"
# It can, after 35 to 40 steps. One letter fits into a state, and the layer sees at once, from the mark, which letter to
# keep. In associative recall the question comes last, so all pairs must be kept.
#
# > **Check yourself.** Linear attention costs $O(n d^2)$ and softmax attention $O(n^2 d)$. With $d = 128$ in
# > each head, from which $n$ on can linear attention need less arithmetic? Would you notice this on a sentence?
# > <details><summary>Answer</summary>From about n = d on, so from about 128 tokens. On a sentence of thirty words linear
# > attention costs more than softmax attention, and the projections cost more than either.</details>
#
# ## What is in use: the KV cache at 128k tokens
#
# Two decks say that "production Transformer language models use quadratic cost attention". This was only half true even
# in 2020: GPT-3 alternates dense layers with **locally banded sparse** layers ([@brown2020], section 2.1). The dense
# layers keep the cost quadratic, but with a smaller factor.
#
# The figure shows the size of the KV cache for one text of 131,072 tokens in 16 bits. We compute it from published
# configurations, even for models that were trained on shorter texts. The figure also shows how large the cache would be
# if every layer had full attention, and if, in addition, every query head had its own key and value. *Guess:* which
# model needs the smallest cache? And which keeps fewer numbers for each token, GQA or MLA?

# %% [raw] slide
# ## What is in use: the KV cache at 128k tokens
# > **Guess first.** GPT-3 dense, Llama 2, Llama 3.1 with GQA, DeepSeek-V3 with MLA, Gemma 3 with windows, hybrids: which needs the least?

# %% tags=["hide-input"]
class InUse(NamedTuple):
    name: str
    full: int                        # layers with full attention
    windowed: int                    # layers with a window
    window: int
    numbers: int                     # kept for each token in a layer
    own: float                       # times more, if each query head had its own key and value
    recurrent: int = 0               # layers with a state in place of a cache


two = 2                              # a key and a value
models = [
    InUse("GPT-3 175B, as if all dense", 96, 0, 0, two * 96 * 128, 1),
    InUse("Llama 2 7B", 32, 0, 0, two * 32 * 128, 1),
    InUse("Llama 3.1 70B, GQA", 80, 0, 0, two * 8 * 128, 64 / 8),
    InUse("DeepSeek-V3, MLA", 61, 0, 0, 512 + 64, two * 128 * 128 / (512 + 64)),
    InUse("Gemma 2 9B, 1 window : 1 full", 21, 21, 4096, two * 8 * 256, 16 / 8),
    InUse("Gemma 3 27B, 5 : 1", 10, 52, 1024, two * 16 * 128, 32 / 16),
    InUse("gpt-oss-120b, 1 : 1, with sinks", 18, 18, 128, two * 8 * 64, 64 / 8),
    InUse("Mistral 7B, windows alone", 0, 32, 4096, two * 8 * 128, 32 / 8),
    InUse("Jamba, 7 Mamba : 1 full", 4, 0, 0, two * 8 * 128, 32 / 8, recurrent=28),
    InUse("Qwen3-Next, 3 DeltaNet : 1 full", 12, 0, 0, two * 2 * 256, 16 / 2, recurrent=36),
]

# %%
n, gib, all_full, all_heads = 131_072, {}, {}, {}
for model in models:
    tokens = model.full * n + model.windowed * min(model.window, n)
    layers = model.full + model.windowed + model.recurrent
    gib[model.name] = 2 * model.numbers * tokens / 2**30         # 2 bytes a number
    all_full[model.name] = 2 * model.numbers * layers * n / 2**30
    all_heads[model.name] = model.own * all_full[model.name]
figures.cache_sizes(gib, all_full, all_heads)
for model in models[2:4]:                                        # with GQA, with MLA
    print(f"{model.name}: {model.numbers:,} numbers a token and layer, "
          f"{model.own:.0f} times fewer than with own heads")
#| caption: KV cache of published models for one text of 131,072 tokens, in 16 bits; ratios
#|   (5 : 1) count layers. Where marks coincide, nothing is saved.
#| label: cache-sizes

# %% tags=["hide-input"]
assert gib["Llama 2 7B"] == 64 and gib["Jamba, 7 Mamba : 1 full"] == 2
assert min(gib, key=gib.get).startswith("Mistral")

# %% [raw] slide
# ## Fewer heads, one vector, windows, recurrences
# {figure}

# %% [raw] slide
# ## In short
# | | |
# |---|---|
# | share of the pairs | $n / (n + 6\,d_\text{model})$ of all operations |
# | online softmax | carry $m$, $\ell$, $o$; a larger score $m'$ multiplies the old $\ell$ and $o$ by $\exp(m - m')$ |
# | traffic | $\Theta(n^2 d^2 / M)$ in tiles, $\Theta(nd + n^2)$ with the whole matrix |
# | window in blocks of $b$ | queries $(n/b, b, d)$ meet keys $(n/b, 3b, d)$ |
# | linear attention | $\phi(q_i) S / (\phi(q_i) \cdot z)$ with $S = \sum_j \phi(k_j)^\top v_j$ and $z = \sum_j \phi(k_j)$ |
#
# **Now do** assignment a@cheap_attention. **Next:** lecture @beyond_text.

# %% [markdown]
# * **Mistral 7B needs the smallest cache**, half a gibibyte, because it alone has a window in every layer. Its version
#   0.2 dropped the windows.
# * **The distance from triangle to ring shows how much a model saves by sharing or compressing keys and values.** GQA
#   makes the cache of Llama 3.1 70B 8 times smaller, and MLA makes the cache of DeepSeek-V3 57 times smaller. The two
#   models have different numbers of query heads, so these factors do not compare the methods. The numbers kept for each
#   token and layer do: 2,048 with GQA, and 576 with MLA, which [lecture @many_heads](@many_heads) explains.
# * **The distance from ring to dot shows how much a model saves by windows and recurrences.**
#
# So there are four ways to make the cache smaller: fewer key-value heads (GQA), one compressed vector for all heads
# (MLA, **multi-head latent attention**), windows in many layers, and recurrences in most layers. Windows and
# recurrences are mostly used in **hybrids**, which keep full attention in *some* layers. The recurrent layers of the
# last two models also carry a state, of tens of megabytes at most.
#
# <details><summary>Three further savings, which can be combined with any of these</summary>
#
# Keys and values can be kept in fewer bits (**cache quantisation**). The cache can be divided into pages, which are
# allocated as the texts grow (**PagedAttention**, [@kwon2023], in vLLM). And a text that is too long for one GPU can be
# spread over several GPUs, which pass tiles of keys and values around a ring and join the parts by online softmax
# [@eq:online-softmax] (**Ring Attention**, [@liu2023ring]).
#
# </details>
#
# <details><summary>Sources of the numbers</summary>
#
# GPT-3 and Mistral, as cited above; Llama 2, [@touvron2023]; Llama 3, [@grattafiori2024]; DeepSeek-V3, [@deepseek2024];
# Gemma 2, [@gemma2024]; Gemma 3, [@gemma2025]; gpt-oss, [@openai2025]; Jamba, [@lieber2024]; and the configuration of
# Qwen3-Next in `transformers`. A head of DeepSeek-V3 is counted with a key and a value of 128 numbers each,
# without the 64 for the position.
#
# </details>
#
# > **Check yourself.** (1) A causal model of 12 layers has windows of 4 tokens, but every sixth layer has full attention.
# > Which tokens can influence the last position? (2) You cache keys and values under a causal window of 512 tokens. How
# > many tokens must the cache hold? (3) FlashAttention makes a model's attention four times faster. By how much does the
# > cache shrink?
# > <details><summary>Answers</summary>(1) All of them, because one full layer reaches every token. (2) 512,
# > including the newest. No later query attends to older tokens. (3) Not at all. FlashAttention changes how attention is
# > computed, not what must be kept for the next token.</details>
#
# ## In short
#
# | | | shape |
# |---|---|---|
# | share of the pairs ($QK^\top$ and $AV$) | $n / (n + 6\,d_\text{model})$ of all operations | |
# | online softmax | carry $m$, $\ell$, $o$; a larger score $m'$ multiplies the old $\ell$ and $o$ by $\exp(m - m')$ | $m, \ell$: $(n, 1)$; $o$: $(n, d_v)$ |
# | traffic of a head of width $d$, with room for $M$ numbers in SRAM | $\Theta(n^2 d^2 / M)$ in tiles, $\Theta(nd + n^2)$ with the whole matrix | |
# | reach of a causal window of $w$ tokens | $w - 1$ positions a layer, so $L\,(w - 1)$ after $L$ layers | |
# | window in blocks of $b$ = `width` | queries $(n/b, b, d)$ meet keys $(n/b, 3b, d)$ | |
# | linear attention | $\phi(q_i) S / (\phi(q_i) \cdot z)$ with $S = \sum_j \phi(k_j)^\top v_j$ and $z = \sum_j \phi(k_j)$ | $S$: $(d_k, d_v)$; $z$: $(d_k)$ |
# | recall of $p$ pairs from $S$ | interference, whose square grows like $p/d_k$ | |
#
# FlashAttention is exact: it does as many multiplications as before and moves fewer numbers. A window is cheaper only
# in blocks, and its reach grows slowly from layer to layer. Linear attention and linear recurrences keep a state of
# fixed size and give up exact recall of many pairs, less so with wider keys. Many of today's models mix full attention
# with something cheaper.
#
# | | time | memory beside inputs and output, one pass | cache or state when writing | exact? | what it gives up |
# |---|---|---|---|---|---|
# | tiles (FlashAttention) | $n^2$ | $n$ | $n$ | yes | nothing, but a kernel must be written |
# | KV cache | $n^2$ to write $n$ | – | $n$ | yes | memory |
# | window | $n \cdot w$ | $n \cdot w$ in plain PyTorch, $n$ in a kernel | $w$ | no | distant tokens, within a few layers |
# | + global, random (BigBird) | $n \cdot w$ | as the window | $n$ | no | direct paths: two hops are learned later (in our task) |
# | linear attention, recurrences | $n$ (scan: $n \log n$ or $2n$) | $n$ | fixed | no | exact recall of many pairs |
#
# **In the package.** `attncourse.efficient` has these mechanisms, and patterns that `any_of` and `all_of` combine.
#
# **Now do** [assignment @cheap_attention](@cheap_attention/assignment) (about an hour and three quarters): exercises 1 to 6, a
# question in words, and three extensions. **Next:** [lecture @beyond_text](@beyond_text), where the sequence is an image
# or a sound. The sections below are not counted in the minutes above.
#
# **Further reading.** [+@dao2022], section 3 with algorithm 1, then [+@dao2023], section 3.1: what has been swapped?
# [+@tay2020]. [+@katharopoulos2020], section 3. [+@schlag2021], for the delta rule. [+@arora2024]. [+@gu2023],
# section 3. [+@xiao2024].

# %% [markdown]
# ## Going further: what makes the first token a sink
#
# Our first token is special in three ways: it is first, it is the same in every line, *and* it has an answer of its
# own. So we train the model again in four variants, each with one change:
#
# * *a way out*: an extra key and value, of zeros, takes part of the weight, so the tokens' weights need not sum to one.
# * *any letter first*: the first token is a letter like any other, with the next letter as its answer.
# * *any letter, old answer*: the same, but the answer at the first position is still *a*.
# * *any letter, then the same token*: the token that all lines share comes second.
#
# With *a way out* the window does damage, as said above. *In which of the other variants does it do damage at letters?*

# %% tags=["hide-input"]
changed = {"as above": "sinks", "a way out": "way_out", "any letter first": "any_first",
           "any letter, old answer": "own_answer",
           "any letter, then\nthe same token": "same_second"}
under = {"window": "window", "window + first": "window + first token",
         "window + second": "window + second token"}
at_letters = {
    words: {name: [row["loss"][mask]["letter"] for row in record[part]]
            for name, mask in under.items()}
    for words, part in changed.items()
}
figures.shares_in_rows(at_letters, "loss at letters, nats")
head = "loss under the window   weight on first    on second"
print(f"{'at letters, three seeds':<34} {head}")
for words, part in changed.items():
    columns = [" ".join(f"{nats:.3f}" for nats in at_letters[words]["window"])]
    for place in ("weight_on_first", "weight_on_second"):
        columns.append(" ".join(f"{row[place]['letter']:.2f}" if place in row else "   -"
                                for row in record[part]))
    print(f"{' '.join(words.split()):>32}:   " + "      ".join(columns))
#| caption: Loss at letters after training with one change each, under a window with and
#|   without an early token: three seeds.

# %% [markdown]
# All weights in the table are attention weights at letters, under full attention.
#
# | training | under the window, at letters | what this shows |
# |---|---|---|
# | *a way out* | damage in all seeds (0.19 to 0.73 nats); the first token keeps its weight | the way out does not replace the first token, so a place for the weight is not enough (perhaps the model must also learn to use it; we did not test this) |
# | *any letter first* | no damage; the first token has a weight of at most 0.05 | the place alone is not the reason |
# | *any letter, old answer* | damage in one seed of three (0.28), the seed with the largest weight on the first token | undecided |
# | *any letter, then the same token* | little damage (0.03 to 0.09), although in two seeds the second token has much weight (0.42 and 0.35) | a large weight need not mean a large damage |
#
# The damage is large in all seeds only where the first token is always the same. These runs do not say why. In language
# models, Xiao et al. find that the place matters: the repair also worked when line breaks replaced the first four
# tokens. Gu et al. ([-@gu2025]) find that the place of the sink depends on the loss and the data. With sigmoid
# attention, whose weights need not sum to one, no sink emerged in models of up to 1B parameters.

# %% [markdown] teaches="low rank: Linformer and its matrices"
# ## Going further: low rank, Linformer
#
# **Linformer** ([@wang2020]) forbids no pair. It replaces the $n$ keys by $k$ *mixtures* of keys, with $k$ much smaller
# than $n$, and the values by $k$ mixtures of values. The two mixing matrices are learned, for each head or shared among
# heads and layers:
#
# $$\operatorname{softmax}\!\left(\frac{Q\,(EK)^\top}{\sqrt{d_k}}\right) F V,
# \qquad E, F \in \mathbb{R}^{k \times n}.$$ (eq:linformer)
#
# Now the attention matrix is $n \times k$. The paper's reason is that the full attention matrix has low **rank**: its
# $n$ rows are combinations of far fewer rows. This claim is about the *weights*, $P$ in the paper. For the *scores* it
# is obvious, because $QK^\top$ has rank $d_k$ at most. But softmax does not keep the rank. Is the claim true of the
# weights?
#
# We look at a model whose heads we understand. It reads a line of 32 letters, one of them marked, and at *every*
# position it has three questions to answer: which letter is marked, which letter stands **before** this position (for
# the first position, the last letter of the line), and which letter stands at its **mirror** position, as far from the
# end as this one is from the beginning (`three_questions`). The model has one layer and four heads.

# %%
class Clerk(nn.Module):
    def __init__(self, attention, n=32, d=32):
        super().__init__()
        self.token, self.place = nn.Embedding(16, d), nn.Embedding(n, d)
        self.attention, self.read = attention, nn.Linear(d, 3 * LETTERS)

    def forward(self, tokens, **options):
        x = self.token(tokens) + self.place.weight               # (batch, n, d)
        answers = self.read(self.attention(x, **options))        # (batch, n, 3 · letters)
        return answers.unflatten(-1, (3, LETTERS))               # (batch, n, 3, letters)


torch.manual_seed(0)
clerk = Clerk(MultiHeadAttention(32, n_heads=4))
learn(clerk, three_questions, 400, 1e-2)
tokens, _ = three_questions(50, torch.Generator().manual_seed(5))
seen = []
clerk(tokens, weights=seen)
maps = seen[0].detach()                                          # (50, 4, n, n)
jobs = figures.jobs_of_heads(maps, tokens >= LETTERS)            # ["mark", …], one a head
figures.weight_maps({f"head {h}: {job}": maps[0, h] for h, job in enumerate(jobs)})
#| caption: Attention weights of heads with three jobs.

# %% [markdown]
# Two heads have a *column*, because every query attends to the mark. One head has a diagonal that is shifted by one,
# for the letter before. And one head has the diagonal from the other corner, for the mirror.
#
# How few rows would be enough to build each of these attention matrices as mixtures? The **singular values** tell us: a
# matrix of rank $r$ has $r$ singular values that are not zero. The squares of the first $k$, as a share of all squares,
# say how much of the matrix its best approximation of rank $k$ holds. *Guess for the column and for the diagonals.*

# %%
values = torch.linalg.svdvals(maps) ** 2                         # (50, 4, 32)  largest first
kept = values.cumsum(dim=-1) / values.sum(dim=-1, keepdim=True)  # (50, 4, 32)
kept = kept.mean(dim=0)                                          # (4, 32)
ks = [1, 2, 4, 8, 16, 32]
figures.singular_shares({f"head {h}: {job}": {k: 100 * kept[h, k - 1].item() for k in ks}
                         for h, job in enumerate(jobs)})
#| caption: Share of the squares that the k largest singular values hold, for the attention
#|   matrix of each head.

# %% tags=["hide-input"]
assert kept[jobs.index("mark"), 0] > 0.9 and kept[:, 7].min() < 0.5
assert set(jobs) == {"mark", "before", "mirror"}

# %% [markdown]
# A column has nearly rank one, because all its rows are nearly the same. A diagonal has 32 singular values of nearly
# equal size, because all its rows differ. The scores have rank 8 at most, the width of these heads, so the softmax has
# made rank 32 out of rank 8. Whether attention has low rank depends on the job of the head. This predicts which of the
# three questions Linformer can answer, and which a window of 2 can answer. *Write down your prediction before you
# look.* The figure shows three seeds from the record:

# %%
rows = {row["name"]: {job: [run[job] for run in row["runs"]]
                      for job in ("mark", "before", "mirror")} for row in record["partners"]}
figures.shares_in_rows(rows, "accuracy", chance=1 / LETTERS)
found = ", ".join(f"{right:.2%}" for right in rows["Linformer, k = 4"]["mark"])
print(f"the mark, found by Linformer with k = 4: {found}")
#| caption: Accuracy of full, windowed and low-rank attention on three tasks, one mark per seed
#|   (one learning rate for all, 0.01, not tuned).

# %% [markdown]
# With four mixtures, Linformer finds the mark in more than 99.9 % of the cases. It answers the two diagonal questions
# badly, but better with more mixtures. With 16, one seed of three found much better mixtures than the others, so
# training is a limit here, too, and not the rank alone. The window does the opposite: it finds what is near and nothing
# else. It misses the letter before at only one position in 32, the first, because that letter is at the end of the
# line.
#
# Wang et al. ([-@wang2020]) looked at RoBERTa, a BERT that was trained longer. They plotted the cumulative sum of the
# singular values, averaged over 10,000 sentences. It is concentrated in the largest values, in higher layers more than
# in lower ones. (We add up squares, which are more concentrated.) Our model is a toy whose questions we chose. It says
# what to expect of each *kind* of head, not how many heads of each kind there are.
#
# Linformer has two more limits. $E$ and $F$ have a column for each position, so the maximum length is fixed in advance.
# And each mixture contains the future, so Linformer cannot be causal. You can build Linformer in an extension of the
# assignment.

# %% [markdown]
# ## Going further: the delta rule
#
# The delta rule is $S \leftarrow S + \beta\, k^\top (v - kS)$. In both DeltaNet papers the **write strength** $\beta$,
# from 0 to 1, is computed from each token. Our benchmark compares the plain sum with three forms of the rule, all with
# keys of length one: with $\beta = 1$, with one learned $\beta$ for all tokens, and with a $\beta$ that is computed
# from each key.
#
# So far every name appeared once, so there was nothing to overwrite, and overwriting is what the rule is made for. In a
# second task each name appears *twice*, with two numbers, and the model is asked for the **later** number. Then 64
# pairs have 32 names. *Guess for both tasks:* which of the four recalls the most of 64 pairs? And how often can the
# plain sum be right in the second task, if it recalls all pairs?

# %%
rules = {"plain sum": "unit keys", "β = 1": "unit keys, delta rule",
         "one β, learned": "delta rule, one β learned",
         "a β for each key": "delta rule, a β for each key"}
twice = {row["name"]: {int(p): [run["right"][p] for run in row["runs"]]
                       for p in row["runs"][0]["right"]} for row in record["overwritten"]}
tasks = {"each name once": {words: recalled[name, 16] for words, name in rules.items()},
         "each name twice": {words: twice[name] for words, name in rules.items()}}
figures.seed_lines(tasks, "pairs shown", "accuracy", chance=1 / LETTERS,
                   known={"each name twice": (9 / 16, "either number: 9/16")})
print("each name once, medians at 16, 32 and 64 pairs:")
for words, name in rules.items():
    print(words, *(f"{middle(name, 16, p):.0%}" for p in (16, 32, 64)), sep="  ")
for row in record["strength"] + record["overwritten"][2:]:
    betas = ", ".join(f"{run['beta']:.2f}" for run in row["runs"])
    print(f"{row['name']}, {'twice' if row in record['overwritten'] else 'once'}: "
          f"β after training, mean over names: {betas}")
#| caption: Associative recall at d = 16: the plain sum, and the delta rule in three forms; one
#|   mark per seed, percentages are medians at 64 pairs.

# %% [markdown]
# Where each name appears once, the rule gains little. With $\beta = 1$ it recalls *less* than the plain sum if there
# are many pairs: 34 % of 64 pairs, compared with 55 %. With a learned write strength it recalls about three points more
# than the plain sum at 16 and 32 pairs, hardly more than the spread of the seeds, and as much at 64. Training makes
# $\beta$ small, 0.08 to 0.14, so a new pair takes away little of what older pairs have stored along its key.
#
# Where each name appears twice, the rule wins:
#
# * **The plain sum** cannot know which of the two numbers came later. So it is right where they are equal, and in half
#   of the other cases: $1/8 + 7/8 \cdot 1/2 = 9/16$, or 56 % on average. Each mark is measured on 1,000 lines, so it
#   has a standard error of 1.6 points.
# * **The rule** recalls nearly all of 2 to 8 pairs.
# * **With 64 pairs** all four recall less, and the forms separate: the learned write strengths come first, then
#   $\beta = 1$, then the plain sum.
#
# Training now sets $\beta$ near one half. So the rule is good for overwriting, and a learned $\beta$ adapts to how much
# overwriting a task needs.

# %% [markdown]
# ## Going further: the learning rate decides who wins
#
# In the comparison of recall each kind had the best of six learning rates. The next cell shows what the other rates
# give at $d = 64$, averaged over all numbers of pairs:

# %%
for row in record["recall"]:
    if row["d"] == 64 and row["name"] in ("elu + 1, divided", "elu + 1", "identity"):
        pilots = "   ".join(f"{rate}: {right:.1%}" for rate, right in row["pilots"].items())
        print(f"{row['name']:>16}   {pilots}   (chosen: {row['lr']})")

# %% [markdown]
# At a rate of 0.05 the division seems to cost 5 points, but a larger rate removes this loss. So a comparison needs a
# learning rate for each kind, and the best rate should not lie at the edge of the range that was tried. (minGRU's best
# rate above, 0.08, was the largest of six, but minGRU was not compared with anything.)

# %% [markdown]
# ## Going further: a race of six mechanisms
#
# Here six causal mechanisms of this page run on the same queries, keys and values, with one head, $d = 64$ and no
# gradients. The recurrence takes its gate from the query. The window has a `width` of 64. *Two guesses:* which is
# fastest at 256 tokens, and which needs the least memory at 4,096?

# %% tags=["hide-input"]
masks = {n: causal_mask(n) for n in lengths}
racers = {
    "full": lambda q, k, v: attend(q, k, v, masks[q.shape[-2]])[0],
    "tiles, torch's": lambda q, k, v: torchs_kernel(q[None], k[None], v[None], causal=True),
    "tiles, by hand": lambda q, k, v: tiled_attend(q, k, v, causal=True),
    "window": lambda q, k, v: sliding_window_attend(q, k, v, 64, causal=True),
    "linear attention": lambda q, k, v: linear_attend(q, k, v, causal=True),
    "linear recurrence": lambda q, k, v: linear_recurrence(torch.sigmoid(q), k),
}
times, peaks = {name: {} for name in racers}, {name: {} for name in racers}
for n in lengths:
    inputs = torch.randn(3, 1, n, d)                             # (batch, n, d) each
    with torch.no_grad():
        for name, seconds in median_seconds(racers, *inputs, rounds=max(3, 2560 // n)).items():
            times[name][n] = 1000 * seconds
            peaks[name][n] = peak_bytes(racers[name], *inputs) / 2**20
figures.against_length({"time, ms": times, "peak memory, MiB": peaks})
for n in (256, 4096):
    print(f"fastest at {n:,}: {min(times, key=lambda name: times[name][n])}")
pairwise, others = list(racers)[:3], list(racers)[3:]
steep, flat = ([slope(times[name]) for name in names] for names in (pairwise, others))
assert max(flat) < min(1.5, *steep)
assert peaks["tiles, torch's"][4096] < min(peaks[name][4096] for name in others)
#| caption: Time and peak memory of six kinds of causal attention, by length: one CPU thread,
#|   medians of 3 to 10 runs.

# %% [markdown]
# Torch's tiles need the least memory. The printed lines name the fastest in this run. By the slope of their times there
# are two groups. Full attention and both forms of tiles rise steeply, because all three compute every allowed pair. The
# window, linear attention and the recurrence rise about like $n$. The recurrence also keeps the fewest numbers, 64,
# which is a 64th of linear attention's $S$. The race says nothing about what each mechanism can recall.
