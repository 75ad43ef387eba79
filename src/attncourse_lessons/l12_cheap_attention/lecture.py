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
# *About 49 minutes, of which less than one is computing time. You need self-attention and its cost
# ([lecture @self_attention](@self_attention)), masks ([lecture @masking](@masking)), and the KV cache with
# grouped-query attention ([lecture @many_heads](@many_heads)). From school you need $\exp(a - b) = \exp(a) / \exp(b)$.*
#
# After this lecture you can
#
# * measure what attention costs in **time** and in **memory**, and say for which models the quadratic part matters;
# * compute a softmax whose scores never exist all at once (**online softmax**), and attention in **tiles**;
# * explain, with **SRAM**, **HBM** and arithmetic intensity, where **FlashAttention** gets its speed;
# * build a **sliding window**, find the **receptive field** of a sparse pattern, and say what an **attention sink** is;
# * write **linear attention** in its parallel, recurrent and chunkwise forms, say what limits its **associative
#   recall**, and explain how a **parallel scan** computes a linear recurrence;
# * say which of these methods today's models use, and how much smaller they make the KV cache.
#
# ## The quadratic cost: time and memory
#
# A novel has about 100,000 words. Read as one sequence, with a token for each word, it needs $10^{10}$ attention
# weights of four bytes for a single head. That is 40 GB, more memory than most laptops have. Yet Llama 3.1 405B, with
# 128 such heads in every layer, was trained on texts of this length. How?
#
# Self-attention compares every query with every key, so for $n$ tokens there are $n^2$ pairs, each with an **attention
# score** and an **attention weight**. The scores form the **score matrix** and the weights the **attention matrix**
# $A$, each of them $n \times n$. How fast does this cost grow? We measure the time and the **peak memory**, the largest
# number of bytes in use at once, for the attention of one head of width $d = 64$ and for its projections, the matrix
# products that make queries, keys and values. *Guess:* if $n$ doubles, by what factor do the time and the peak memory
# of each grow?

# %% tags=["hide-input"]
try:
    from attncourse.attention import MultiHeadAttention, attend

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

from attncourse.data.lookups import LETTERS, three_questions, triggered_lines
from attncourse.efficient import (
    dense_mask,
    linear_attend,
    linear_attend_step,
    receptive_field,
    sliding_window,
    sliding_window_attend,
    tiled_attend,
)
from attncourse.training import descend
from attncourse.transformer import Block, TransformerConfig
from attncourse_lessons.results import measured

torch.set_num_threads(1)  # so that times can be compared
os.environ["KINETO_LOG_LEVEL"] = "99"  # the profiler need not tell that it starts and stops


def fastest_seconds(runs, *inputs, rounds=5):
    taken = {name: [] for name in runs}
    for _ in range(rounds):
        for name, run in runs.items():
            begun = time.process_time()
            run(*inputs)
            taken[name].append(time.process_time() - begun)
    return {name: min(times) for name, times in taken.items()}


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

# %% [raw] slide
# ## Everybody shakes hands with everybody
# $n$ tokens: $n^2$ pairs, each with a score and a weight. The **score matrix**, the **attention matrix**.
#
# A novel of 100,000 words, as one sequence: 40 GB of weights, for one head of one layer.
#
# > **Guess first.** If $n$ doubles, by what factor do the time and the peak memory of attention grow? And those of its projections?

# %%
d, lengths = 64, [256, 512, 1024, 2048, 4096]
torch.manual_seed(0)
W = torch.randn(3, d, d) / d**0.5                                # for q, k and v, (d, d) each
runs = {"attention": attend, "projections": lambda x, k, v: x @ W}
times, peaks = {name: {} for name in runs}, {name: {} for name in runs}
for n in lengths:
    inputs = torch.randn(3, n, d)                                # q, k, v, each (n, d)
    for name, seconds in fastest_seconds(runs, *inputs, rounds=max(5, 2**14 // n)).items():
        times[name][n] = 1000 * seconds
        peaks[name][n] = peak_bytes(runs[name], *inputs) / 2**20
figures.against_length({"time, ms": times, "peak memory, MiB": peaks})
#| caption: Time and peak memory of attention and of its projections, by length: one CPU
#|   thread, the fastest of 5 to 64 runs; factors are means over four doublings.

# %% tags=["hide-input"]
assert 1.6 < slope(times["attention"]) < 2.7 and 1.9 < slope(peaks["attention"]) < 2.05
assert slope(times["projections"]) < 1.5 and 0.95 < slope(peaks["projections"]) < 1.05
assert 4 * 100_000**2 == 40e9

# %% [raw] slide
# ## The quadratic cost: time and memory
# {figure}

# %% [markdown] teaches="must the quadratic cost go? attention's share of the arithmetic; context lengths of foundation models"
# **If $n$ doubles, attention takes about four times the memory and about four times the time, or somewhat more. Its
# projections take about twice as much of both.** Four is what the number of pairs predicts. A reason for more comes
# below.
#
# In a model the input is often thousands wide instead of 64, which changes the picture.
#
# ## Does the square matter? Length against width
#
# A Transformer computes more than attention, so the quadratic part need not be the largest. We count the operations of
# one layer, multiplications and additions alike:
#
# | part of a layer | operations |
# |---|---|
# | the four projections | $8\,n\,d_\text{model}^2$ |
# | the feed-forward network, with its usual width of $4\,d_\text{model}$ | $16\,n\,d_\text{model}^2$ |
# | the products $QK^\top$ and $AV$ of all heads | $4\,n^2 d_\text{model}$ |
#
# The last row is the **quadratic term**. We call its products *pair products*. Their share of all operations is
#
# $$\frac{4 n^2 d_\text{model}}{24\, n\, d_\text{model}^2 + 4 n^2 d_\text{model}} = \frac{n}{n + 6\,d_\text{model}}.$$
#
# This share grows with the length and falls with the width, and at $n = 6\,d_\text{model}$ it is one half. *Guess:*
# which of these five models have a context longer than $6\,d_\text{model}$: BERT-large, GPT-2 XL, GPT-3, Llama 2 70B,
# Llama 3.1 405B? (Their widths go from 1,024 to 16,384.)

# %% [raw] slide
# ## Does the square matter? Length against width
# $$\frac{\text{pair products}}{\text{all}} = \frac{4 n^2 d_\text{model}}{24\, n\, d_\text{model}^2 + 4 n^2 d_\text{model}} = \frac{n}{n + 6\,d_\text{model}}$$
#
# **A common mistake: “twice the length costs four times as much”.** It leaves out the projections.
#
# > **Guess first.** BERT, GPT-2, GPT-3, Llama 2, Llama 3.1: which were trained for a context longer than $6\,d_\text{model}$?

# %% tags=["hide-input"]
contexts = {                         # year, longest context n, width d_model
    "BERT-large": (2018, 512, 1024),
    "GPT-2 XL": (2019, 1024, 1600),
    "GPT-3 175B": (2020, 2048, 12_288),
    "Llama 2 70B": (2023, 4096, 8192),
    "Llama 3.1 405B": (2024, 131_072, 16_384),
}
figures.context_lengths(contexts, "pair products")
growth = {}                          # of the whole attention layer, if the length doubles
for n in (512, 50_000):
    once, twice = (8 * size * 1000**2 + 4 * size**2 * 1000 for size in (n, 2 * n))
    growth[n] = twice / once
assert round(growth[512], 1) == 2.4 and round(growth[50_000], 1) == 3.9
assert [name for name, (_, n, width) in contexts.items() if n > 6 * width] == ["Llama 3.1 405B"]
n, width = 131_072, 16_384
assert n / 2 / (n / 2 + 6 * width) == 0.4                          # without the forbidden pairs
#| caption: Context lengths of five models (dots, with the share of the pair
#|   products), and six times their width (bars).

# %% [raw] slide
# ## Contexts beside six times the width
# {figure}
#
# Models grew wider as fast as contexts grew longer. Then contexts jumped.

# %% [markdown] erratum="O(n²d) alone" teaches="a taxonomy of efficient Transformers"
# **Of these five, only Llama 3.1 has a context that long.** Its pair products take 57 % of the operations, whereas
# those of GPT-3 take at most 3 %.
#
# > **A common mistake: "attention costs O(n²d), so twice the length costs four times as much".** This leaves out the
# > projections. With $d_\text{model} = 1{,}000$, a whole attention layer (without the feed-forward network) costs only
# > 2.4 times as much on 1,024 tokens as on 512. The factor comes close to 4 only for very long texts: from 50,000 to
# > 100,000 tokens it is 3.9.
#
# <details><summary>What the formula leaves out</summary>
#
# The formula assumes a feed-forward network of width $4\,d_\text{model}$ and as many key-value heads as query heads.
# Llama 3.1 405B has 8 key-value heads for 128 query heads, but three feed-forward matrices of width
# $3.25\,d_\text{model}$, and these two differences nearly cancel.
#
# The formula also counts all pairs. If the program skips those that the causal mask forbids, as FlashAttention does,
# the share of Llama 3.1 falls from 57 % to 40 %. GPT-3 made every other layer **locally banded sparse**, so that half
# of the layers computed only part of the pairs ([@brown2020], section 2.1). This is why we say "at most".
#
# </details>
#
# The formula holds for training and for reading a prompt (**prefill**), where all positions are computed at once, but
# not for writing one token at a time (**decode**). From here on we look at a single head of width $d = d_k = d_v$.
#
# ## Families of cheaper attention: a map
#
# At long contexts, then, the quadratic part matters. The map shows three routes to cheaper attention:

# %% tags=["hide-input"]
figures.taxonomy()
#| caption: Families of cheaper attention: which pairs are computed, what is stored for keys and
#|   values; years of the first version on arXiv.
#| label: families

# %% [raw] slide
# ## Families of cheaper attention
# {figure}

# %% [markdown]
# * **Blue: the same result**, computed in another order.
# * **Orange: still a softmax**, but over fewer pairs, or with less to store.
# * **Green: no softmax.** No pair has to be computed, and what is stored does not grow with $n$.
#
# The page goes through the map (after a figure of [@tay2020]) from top to bottom. Low rank comes last, in *Going
# further*, and [lecture @many_heads](@many_heads) explains MQA, GQA and MLA.
#
# ## Online softmax: a softmax of scores that come in chunks
#
# To keep the result without the matrix, we need a softmax whose scores never exist all at once. This seems impossible,
# because softmax divides by the sum over a row, which is complete only after the last score. Suppose that the scores
# $e_j$ of a row arrive in chunks, each discarded before the next arrives. What must we remember?
#
# A careful softmax subtracts the row's largest score first, because $\exp(300)$ overflows in 32 bits ([lecture
# @getting_ready](@getting_ready)). Here the largest score is known only at the end, so we remember the largest score
# *so far*, $m$, and the sum so far with $m$ subtracted, $\ell = \sum_j \exp(e_j - m)$. When a chunk brings a larger
# score $m'$, the old terms have the wrong number subtracted, but we need not compute them again, because
#
# $$\exp(e - m') = \exp(e - m) \cdot \exp(m - m').$$ (eq:online-softmax)
#
# All old terms are wrong by *the same factor*, so one multiplication corrects their sum. This is **online softmax**
# ([@milakov2018]).
#
# Attention needs the weighted average $\sum_j \exp(e_j)\, v_j \,/ \sum_j \exp(e_j)$. Its numerator with $m$ subtracted,
# $o = \sum_j \exp(e_j - m)\, v_j$, is a sum over the keys like $\ell$, so the same factor corrects it. Before the first
# chunk, $m = -\infty$ and $\ell = o = 0$.
#
# [@fig:online-softmax] shows one query and six keys in three chunks, with values that are single numbers. Each key has
# a bar of height $\exp(e - m)$. *Guess before you look:* the first chunk has the scores 1 and 3, the second 2 and 5,
# and the third 4 and 0. By what factor do the old bars shrink when the second chunk arrives, and when the third does?

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
scores, values = torch.tensor([1.0, 3, 2, 5, 4, 0]), torch.tensor([10.0, 20, 30, 40, 50, 60])
figures.online_softmax_steps(scores, values, size=2)
print(f"average with the softmax of all six: {scores.softmax(dim=0) @ values:.4f}")
#| caption: Online softmax of a row in three chunks: bars are exp(e − m), outlines are bars
#|   before the factor.
#| label: online-softmax

# %% [raw] slide
# ## Three numbers are carried
# {figure}
#
# **Now you:** a@cheap_attention, exercise 1

# %% [markdown] teaches="the T × T matrix in memory, FlashAttention"
# **All old bars shrink by the same factor**, which is $\exp(3 - 5) = 0.14$ when the second chunk arrives. The third
# chunk brings no larger score, so its factor is 1 and nothing shrinks. However long the row is, only three numbers are
# carried from chunk to chunk, $m$, $\ell$ and $o$, and after the last chunk $o / \ell$ is the average that the softmax
# of all scores gives. With values of width $d_v$, $o$ is a vector.
#
# The chunks need not come one after another. Two parts of a row, computed apart, are joined in the same way:
#
# $$m = \max(m_1, m_2), \qquad o = o_1 \exp(m_1 - m) + o_2 \exp(m_2 - m), \qquad \ell \text{ likewise.}$$
#
# So several processors can share one row, and join their results in any order.
#
# > **Check yourself.** What goes wrong if you forget the factor, and on which data does the mistake not show?
# > <details><summary>Answer</summary>The old terms are too large by a factor of exp(m′ − m). If the largest score
# > happens to be in the first chunk, m never changes, the factor is always 1, and the mistake does not show. So a test
# > should put the largest score last.</details>
#
# **Now you:** [a12](@cheap_attention/assignment), exercise 1, for a batch of queries at once.
#
# ## FlashAttention: exact attention in tiles
#
# With online softmax, attention needs no matrix. We take the keys in **tiles** of, say, 128, carry $m$, $\ell$ and $o$
# for every query from tile to tile, and keep no weights. The package's `tiled_attend` does this; you write its core in
# exercises 1 and 2. What is its peak memory?

# %%
q, k, v = torch.randn(3, 4096, d)
assert torch.allclose(tiled_attend(q, k, v), attend(q, k, v)[0], atol=1e-4), "the same answer"
peak = {"whole matrix": {}, "tiles": {}}
for name, run in {"whole matrix": attend, "tiles": tiled_attend}.items():
    for n in (1024, 4096):
        peak[name][n] = peak_bytes(run, q[:n], k[:n], v[:n]) / 2**20
        print(f"{name:>12}, {n:,} positions: at most {peak[name][n]:5.1f} MiB")

# %% tags=["hide-input"]
assert slope(peak["whole matrix"]) > 1.9 and slope(peak["tiles"]) < 1.15

# %% [raw] slide
# ## FlashAttention: exact attention in tiles
# Take the keys in **tiles**; carry $m$, $\ell$ and $o$ for every query. No weight is kept.
#
# {print}
#
# Nothing was approximated.

# %% [markdown] erratum="a T × T matrix must be stored"
# **Tiles give the same answer in a fraction of the memory.** With four times as many positions, the whole matrix takes
# about 16 times the memory, the tiles only about four times, so their peak grows like $n$. For a novel, then, the 40 GB
# of weights need never exist at once.
#
# > **A common mistake: "attention must store an n × n matrix".** This is true only of the usual implementation. Rabe
# > and Staats ([-@rabe2021]) say so in their title: "Self-attention does not need $O(n^2)$ memory".
#
# Does less memory also mean less work? The next cell counts multiply-adds, in units of $n^2 d$, and times the forward
# pass at 4,096 positions. It also times torch's own FlashAttention, a single compiled program (a **kernel**). *Guess:*
# do the tiles need fewer multiplications than the whole matrix? Are they faster?

# %% tags=["hide-input"]
def with_matrix(q, k, v):
    output, _ = attend(q, k, v)
    return output


def torchs_kernel(q, k, v):                                      # (batch, heads, n, d) each
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION):                # this kernel, or an error
        return scaled_dot_product_attention(q, k, v)


runs = {"whole matrix": with_matrix, "tiles": tiled_attend}
q, k, v = torch.randn(3, 1024, d).requires_grad_()
counted = {}
for name, run in runs.items():
    forward, output = multiply_adds(run, q, k, v)
    back, _ = multiply_adds(torch.autograd.grad, output.sum(), (q, k, v))
    counted[name] = forward / (1024**2 * d), back / (1024**2 * d)
took = fastest_seconds(runs | {"torch's kernel": torchs_kernel}, *torch.randn(3, 1, 1, 4096, d))
print(f"{'multiply-adds':>14}  {'forward':>11}  {'backward':>11}   forward pass, this CPU")
for name, seconds in took.items():
    counts = [f"{count:.0f} n²d" for count in counted.get(name, ())] or 2 * ["not counted"]
    print(f"{name:>14}  {counts[0]:>11}  {counts[1]:>11}   {1000 * seconds:4.0f} ms")
assert counted == {"whole matrix": (2, 4), "tiles": (2, 5)}
assert took["torch's kernel"] < took["tiles"] < took["whole matrix"]

# %% [raw] slide
# ## Is it faster? It multiplies no less
# {print}
#
# **Recomputation**: the backward pass computes weights again. Still it is faster: why?

# %% [markdown]
# **Tiles save no multiplications, and yet they are faster.** In the backward pass they even need more, because the
# gradient needs the weights, which were not kept and have to be computed again (**recomputation**). If multiplications
# do not decide the time, what does? Probably the traffic between memory and processor: on this CPU the whole matrix is
# likely to go through main memory, while tiles stay in the caches. (This may also be why its time grew faster than the
# number of pairs.) For a GPU we can count this traffic.
#
# <details><summary>What is kept for the backward pass</summary>
#
# FlashAttention-2 keeps the output and one number for each row, the logarithm of the softmax's denominator,
# $m + \ln \ell$. A tile of weights is then $\exp(e - m - \ln \ell) = \exp(e - m) / \ell$, so only the scores $e$ must
# be computed again. That takes one more matrix product, the fifth in the table.
#
# The gradient of a softmax also contains a sum over the whole row of weights, $\sum_j A_{ij}\, \bar A_{ij}$, where
# $\bar A$ is the gradient of the loss with respect to $A$. But $\bar A_{ij} = \bar O_i \cdot v_j$, so the sum is
# $\bar O_i \cdot \sum_j A_{ij} v_j = \bar O_i \cdot O_i$. This is one number for each row, and it needs no weights.
#
# </details>
#
# <details><summary>In your own model</summary>
#
# You do not need to write this kernel, because `scaled_dot_product_attention(q, k, v, is_causal=True)` chooses one. On
# a GPU, FlashAttention requires 16-bit numbers and accepts no mask of your own. To be sure that it is used, call it
# under `sdpa_kernel(SDPBackend.FLASH_ATTENTION)`: if your inputs do not qualify, you get an error.
#
# </details>
#
# ## IO-awareness: HBM, SRAM, and arithmetic intensity
#
# A GPU has a small, fast memory on the chip, **SRAM**, and a large, slower memory beside it, **HBM** (high-bandwidth
# memory). [@fig:memory-levels] shows both in an A100 ([@dao2022]), and on the right what attention moves to and from
# HBM. (A *fused kernel* does all steps of attention in one program, so that the scores never go to HBM.)

# %% tags=["hide-input"]
def moved(n, d, tile):
    """Numbers between HBM and SRAM, forward, one head, with so many rows in an outer tile."""
    tiles = math.ceil(n / tile)
    return {
        # Q, K, V in, O out; scores, weights out and in
        "whole matrix": 4 * n * d + 4 * n**2,
        # For each tile of K, V: Q in; O, m, ℓ in and out. For each tile of Q: all of K, V in.
        "FlashAttention": 2 * n * d + tiles * (3 * n * d + 4 * n),
        "FlashAttention-2": 2 * n * d + tiles * 2 * n * d,
    }


M = 192 * 1024 // 2                              # one processor's SRAM, in 16-bit numbers
traffic = moved(4096, 64, tile=M // (4 * 64))
figures.memory_levels((traffic["whole matrix"], traffic["FlashAttention-2"]))
assert [round(numbers / 1e5) for numbers in traffic.values()] == [682, 94, 63]
#| caption: The memories of an A100 of 80 GB, and how many numbers attention moves to and from
#|   HBM, for n = 4,096 and d = 64; the fused kernel has tiles of 384 rows.
#| label: memory-levels

# %% [raw] slide
# ## Arithmetic intensity: 156
# {figure}
#
# Fewer operations per byte: **memory-bound**.
#
# > **Guess first.** The usual attention moves $4n^2$ numbers of two bytes and does $4n^2d$ operations. Is it memory-bound for $d = 64$?

# %% [markdown]
# The A100 does 312 trillion operations a second ([@dao2023]), but its HBM moves only 2.0 trillion bytes a second. So a
# program must do 156 operations for each byte that it moves, or else the arithmetic waits. The number of operations per
# byte is the program's **arithmetic intensity**. Below 156 the program is **memory-bound**, and above it is
# **compute-bound**.
#
# The usual attention writes the scores to HBM, reads them for the softmax, writes the weights, and reads the weights
# for the average. That makes $4n^2$ numbers of two bytes for $4n^2d$ operations. *Work it out:* is it memory-bound for
# $d = 64$?

# %% tags=["hide-input"]
counts = {
    "whole matrix": traffic["whole matrix"],
    "tiles of 128 rows": moved(4096, 64, tile=128)["FlashAttention-2"],
    "tiles of 384 rows": traffic["FlashAttention-2"],
}
per_byte = {name: 4 * 4096**2 * 64 / (2 * numbers) for name, numbers in counts.items()}
figures.roofline(312e12, 2.0e12, per_byte, {"FlashAttention": (0.25, 0.40),
                                            "FlashAttention-2": (0.50, 0.73)})
assert [round(each) for each in per_byte.values()] == [32, 124, 341] and M // (4 * 64) == 384
assert round(4 * 4096**2 * 64 / (2 * traffic["FlashAttention"])) == 230
#| caption: Highest possible speed of an A100 of 80 GB (line), attention by our count for
#|   n = 4,096 and d = 64 (marks), and ranges that Dao (2023) reports (green).
#| label: attention-roofline

# %% [raw] slide
# ## With the whole matrix, attention waits for memory
# {figure}
#
# **Kernel fusion** keeps the scores on the chip.

# %% [markdown]
# **Yes: the usual attention is memory-bound.** It does $4n^2d \,/\, 8n^2 = d/2 = 32$ operations per byte, so an A100
# can reach at most about a fifth of its speed. A figure like [@fig:attention-roofline] is a **roofline**. On its slope
# memory sets the limit, on its flat roof arithmetic does, and the corner, here at 156, is the **ridge point**.
#
# **Kernel fusion** avoids this traffic: one kernel does all steps on a tile of $Q$ and a tile of $K$ and $V$ in SRAM.
# The tiles must fit into the 192 KB of SRAM that each of the 108 processors (**streaming multiprocessors**) has.
# FlashAttention-2 reads all keys and values once for each tile of queries, so with twice as many rows in a tile there
# is half as much traffic. As long as a tile is much shorter than the text, **the intensity is about the height of a
# tile**. If $Q$, $K$, $V$ and $O$ each fill a quarter of the SRAM, a tile has 384 rows, and the exact count is 341,
# well beyond the ridge point. Real kernels often use 128 rows, for which it is 124, just below the ridge point.
#
# <details><summary>Are real kernels memory-bound, then?</summary>
#
# By our count, tiles of $B$ rows give about $nB / (n + B)$ operations per byte, so a kernel with 128 rows would be
# memory-bound and reach at most 80 % of the roof. But the count ignores the L2 cache of 40 MB between SRAM and HBM. The
# keys and values of a head easily fit into it, so most repeated reads need not reach HBM. Such a kernel may therefore
# be compute-bound after all, and only a measurement can decide.
#
# </details>
#
# <details><summary>For practice: the same count for an H100</summary>
#
# An H100 does about 990 trillion operations a second and moves 3.35 trillion bytes ([@shah2024]). Where is its ridge
# point, and what share of its speed can the usual attention reach at most with $d = 128$? The ridge point is at 990 /
# 3.35 ≈ 296 operations per byte. The usual attention does $d/2 = 64$, so it can reach about 22 %.
#
# </details>
#
# ## The two loops of FlashAttention, and what they gain
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
# At step 7 of 16, $Q_2$ and the unfinished $O_2$ stay in SRAM, while the tiles of keys and values come and go:

# %% tags=["hide-input"]
figures.tile_orders(only_newer=True)
#| caption: FlashAttention-2 in tiles of the score matrix, numbered in the order of computing;
#|   at step 7 the orange tiles stay, the pale one comes and goes.
#| label: loops

# %% [raw] slide
# ## Two nested loops, and what they gain
# For each tile of queries: for each tile of keys and values: update $m$, $\ell$, $O$. Then write $O / \ell$.
#
# $\Theta(n^2 d^2 / M)$ numbers moved in place of $\Theta(nd + n^2)$.
#
# GPT-2 was trained up to three times as fast as with Hugging Face's implementation, BERT-large 15 % faster than the record
# (Dao et al. 2022).

# %% [markdown]
# **Now you:** [a12](@cheap_attention/assignment), exercise 2: the inner loop.
#
# The first FlashAttention had the loops in the opposite order (*Going further* compares both). In either order, if $M$
# numbers fit into SRAM, the traffic of attention in tiles grows like $n^2 d^2 / M$ instead of $n^2$ (theorem 2 of Dao
# et al. [-@dao2022]).
#
# **What does this gain?** Dao et al. ([-@dao2022]) trained GPT-2 on texts of 1,024 tokens up to three times as fast as
# the implementation of Hugging Face. But both versions stay below the roof of [@fig:attention-roofline]. Dao
# ([-@dao2023]) measures at lengths from 512 to 16k and reports 25 to 40 % of it for the first and 50 to 73 % for the
# second. The roof holds for matrix products alone. An A100 does only 19.5 trillion other operations a second, so each
# operation of the softmax costs as much as 16 in a matrix product, and an exponential costs even more ([@shah2024]).
# FlashAttention-2 is faster partly because it has fewer of them.
#
# <details><summary>Where the formula comes from, and who did what</summary>
#
# Compared with Megatron-LM, which was faster than Hugging Face's implementation, GPT-2 was trained 1.7 times as fast.
#
# As in the paper, an outer tile has $M / (4d)$ rows. So there are $4nd/M$ outer tiles, and each moves a few times $nd$
# numbers. In the words of the theorem, attention moves $\Theta(n^2 d^2 / M)$ numbers in tiles and $\Theta(nd + n^2)$
# with the whole matrix, where $\Theta$ means "grows like, up to a constant factor". With $d = 64$ and $M = 98{,}304$
# (192 KB), $d^2 / M$ is 1/24.
#
# | who | what |
# |---|---|
# | [@rabe2021] | attention in chunks of keys, with little memory; no claim of speed |
# | [@dao2022], **FlashAttention** | one kernel, analysed by its memory traffic; outer loop over $K$, $V$; recomputation in the backward pass |
# | [@dao2023], **FlashAttention-2** | outer loop over $Q$ (first done by Tillet in Triton); fewer operations outside matrix products; query tiles of one head on different processors at once; less exchange between threads |
# | [@shah2024], **FlashAttention-3** | for H100: copies overlap with products and softmax; 8-bit numbers |
#
# </details>
#
# > **Check yourself.** Under a causal mask, FlashAttention skips about half of the tiles. Which tiles, and why is the
# > result still exact?
# > <details><summary>Answer</summary>Tiles whose keys all come after their queries. Such tiles have only scores of −∞,
# > so their weights are 0, and the sums need not be rescaled.</details>
#
# ## The KV cache: what limits decode
#
# FlashAttention helps where many queries are computed at once. When a model writes, each step has only one new query,
# and the keys and values of earlier tokens are kept in the **KV cache** ([lecture @many_heads](@many_heads) counts its
# bytes, [lecture @writing](@writing) times it).
#
# What is the arithmetic intensity of such a step? The new query meets the keys and values of $n$ tokens, which takes
# $4nd$ operations. The step must read the whole cache, $2nd$ numbers or $4nd$ bytes in 16 bits. That is **one operation
# per byte**, where the A100 needs 156. So **the attention of decode is memory-bound**, and tiles save hardly any
# traffic, because a single query has no large score matrix to avoid. If several query heads share what is read, the
# intensity rises:

# %% tags=["hide-input"]
decode = {
    "multi-head": 1,
    "GQA, groups of 8": 8,
    "MLA, 128 heads": 128 * 2 * (576 + 512) / (2 * 576),
}
figures.roofline(312e12, 2.0e12, decode)
assert round(decode["MLA, 128 heads"]) == 242
#| caption: The attention of decode on an A100 of 80 GB, by our count: highest possible speed
#|   if 1, 8 or 128 query heads share what is read from the cache.
#| label: decode-roofline

# %% [markdown]
# What helps is a *smaller cache*: fewer key-value heads (GQA), fewer tokens (windows), or a state of fixed size instead
# of the cache.
#
# <details><summary>When it helps most; GQA, MLA, and Flash-Decoding</summary>
#
# A smaller cache helps most with long texts and large batches, because the texts of a batch share the model's
# parameters, whereas each has a cache that grows with its length. With GQA, the $g$ queries of a group share each key
# and value, so the intensity is $g$ ([@fig:decode-roofline]), which is a second reason for GQA besides the smaller
# cache. MLA goes further: all 128 heads of DeepSeek-V3 can read the same 576 numbers (1,152 bytes) of a token for
# $128 \cdot 2 \cdot (576 + 512)$ operations. That makes about 240 per byte, more than the 156 of an A100 and not far
# below the 296 of an H100.
# [**Flash-Decoding**](https://pytorch.org/blog/flash-decoding/) divides the keys and values of a head among processors
# that would otherwise have nothing to do, and joins the parts as online softmax does.
#
# </details>
#
# **A good place to pause.** If you have not done exercises 1 and 2, do them now. The methods below change the result.
#
# ## Sliding-window attention: how a window saves time
#
# A **sparse attention pattern** allows only some of the pairs. In a **sliding window** each position attends to itself
# and to `width` neighbours on each side or, under a causal mask, to itself and to `width` earlier positions. We write
# $w$ for the number of tokens in the window, so $w = 2 \cdot \texttt{width} + 1$, or $w = \texttt{width} + 1$ with a
# causal mask.
#
# The obvious way to build a window is a mask. *Guess:* with 2,048 positions and a mask that allows 64 neighbours on
# each side, how much faster is attention than without it?

# %% [raw] slide
# ## The attention of decode is memory-bound
# One new query meets $n$ keys and $n$ values: $4nd$ operations, and $4nd$ bytes of cache. **One operation per byte**, where
# an A100 could do 156.
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
    # you write the next one in exercise 3
    "window, in blocks": lambda q, k, v: sliding_window_attend(q, k, v, width),
}
seconds = fastest_seconds(runs, q, k, v, rounds=5)
for name, run in runs.items():
    print(f"{name:>19}: {seconds[name] / seconds['full']:5.2f} of the full one's time, "
          f"{peak_bytes(run, q, k, v) / 2**20:6.1f} MiB")

# %% tags=["hide-input"]
_, masked, in_blocks = (run(q, k, v) for run in runs.values())
assert torch.allclose(masked, in_blocks, atol=1e-5), "the same result"
assert seconds["full, under a mask"] > seconds["full"] > 1.5 * seconds["window, in blocks"]
assert seconds["window, in blocks"] > 192 / 2048 * seconds["full"]

# %% [raw] slide
# ## Under a mask it is slower
# {print}
#
# Sparse attention is cheap only if forbidden scores are *never computed*.

# %% [markdown]
# **With the mask, attention is slower than without it.** The mask rules a pair out only after its score has been
# computed, and the mask itself has to be read from memory. So sparse attention is cheap only if the forbidden scores
# are *never computed*.
#
# How can that be done? Matrix products can skip whole blocks of scores, so we cut the queries into blocks of `width`.
# The window of any query then lies within three blocks of keys: its own and the two beside it. In the figure, the white
# cells are never computed:

# %% tags=["hide-input"]
figures.blocked_window(16, 4)
#| caption: A window with a width of 4 over 16 positions, in blocks of 4; the legend counts
#|   pairs, without the 32 with zeros beyond the ends.
#| label: window

# %% [raw] slide
# ## Blocks, not masks
# {figure}

# %% [markdown]
# **Each query meets three blocks.** In the figure this is 12 keys (beyond the ends of the text stand zeros, not drawn).
# With 2,048 positions and a `width` of 64 it is 192 scores instead of 2,048, about a tenth. The time falls less, partly
# because keys and values have to be copied into blocks.
#
# <details><summary>Any pattern in blocks: PyTorch's flex_attention</summary>
#
# On a GPU, `flex_attention` skips blocks for any pattern. You write the pattern as a function of $i$ and $j$, from
# which `create_block_mask` finds the blocks without an allowed pair.
#
# </details>
#
# ## A rolling cache: what a window saves in decode
#
# A window also makes the KV cache smaller. When a model writes under a causal window, it never needs the tokens that
# have left it, so $w$ slots are enough. Each new token takes the slot of the token that has just left. This is a
# **rolling buffer cache**, or rolling cache, as in Mistral 7B ([@jiang2023]). Follow the orange slot:

# %% tags=["hide-input"]
figures.rolling_cache(4, [2, 3, 4, 5, 6])
#| caption: A rolling cache with four slots; orange is the newest token.

# %% [raw] slide
# ## A rolling cache
# {figure}
#
# **Now you:** a@cheap_attention, exercises 3 and 4

# %% [markdown] teaches="sparse patterns: Longformer, BigBird, panel by panel"
# **Token $t$ takes slot $t \bmod w$.** Token 6, for example, takes slot 2 from token 2.
#
# **Now you:** [a12](@cheap_attention/assignment), exercises 3 and 4: the blocks, and the rolling cache.
#
# ## Receptive field: how many layers a window needs
#
# Is everything outside the window lost? Not in a deep model. In one layer, information moves at most `width` positions
# (causal: $w - 1$). The next layer passes it on, so after $L$ layers it has moved at most $L \cdot \texttt{width}$
# positions (causal: $L\,(w - 1)$). The positions whose input can influence a position's output are its **receptive
# field**.
#
# The **pattern pad** below is a grid that you can click, with a row for each query and a column for each key. To its
# right you see how many blocks a kernel could not skip, and the receptive field of the marked row. The pad begins with
# a window of 2 on each side and says that 8 layers are needed before every position can be reached from every other.
# *Work it out:* why 8, and how many does a window of 1 on each side need? Then draw a pattern that needs only **two**
# layers, with as few pairs as you can. (If clicks do nothing, run the cell.)

# %%
pad = pattern_pad("window")
pad

# %% tags=["hide-input"]
presets = pattern_presets(16)
complete = {name: [receptive_field(mask, k).all().item() for k in range(1, 16)]
            for name, mask in presets.items()}
assert complete["window"].index(True) + 1 == 8 and complete["global"].index(True) + 1 == 2
assert presets["global"].sum() == 31 and not any(complete["dilated"])

# %% [raw] slide
# ## Receptive field: draw who may attend to whom
# {figure}

# %% [markdown]
# **The window needs 8 layers**, because the two ends are 15 positions apart and each layer adds 2. With 1 on each side
# it would need 15. The cheapest pattern for two layers has only the row and the column of one token: *global* on the
# pad, with 31 pairs of 256. Three patterns from papers:

# %% tags=["hide-input"]
widths = {"dilated": 2, "window + global": 2, "BigBird": 1}     # neighbours on each side
figures.pattern_panels({f"{name}, width {width}": presets[name]
                        for name, width in widths.items()})
#| caption: Three sparse patterns over 16 positions, and the layers that are needed before every
#|   position can be reached from every other.

# %% [raw] slide
# ## Longformer and BigBird
# {figure}
#
# - **Dilated**: three times as far, but every third position only.
# - One **global** token puts everything two layers away (Longformer).
# - **Random** keys: in a random graph most nodes are a few steps apart (BigBird).

# %% [markdown]
# * A **dilated** window reaches three times as far with the same number of keys. But if the gap is the same in every
#   layer, a position never receives anything from two thirds of the others. Longformer gives its heads different gaps.
# * **Longformer** ([@beltagy2020]) also adds **global** tokens, such as those of a question.
# * **BigBird** ([@zaheer2020]) adds **random** keys, because in a random graph most nodes are only a few steps apart.
#
# **Keys can also be chosen by content.** In
# [DeepSeek-V3.2](https://huggingface.co/docs/transformers/model_doc/deepseek_v32) (2025) a small scorer compares each
# query with all earlier tokens and keeps the best 2,048. At 131,072 tokens, attention then reads one token in 64. The
# scorer still computes about $n^2$ scores, only cheaper ones. And the cache does not shrink, because any token may be
# chosen later.
#
# <details><summary>Other patterns: strided, doubling gaps, more choices by content</summary>
#
# In the figure, BigBird needs only 2 layers because it has a global token, too. A *strided* pattern ([@child2019])
# allows the positions just before and every $l$-th one, where $l$ is the stride. A dilated window whose gap doubles
# from layer to layer, 1, 2, 4, 8, …, needs only about $\log_2 n$ layers to cross the text. Reformer ([@kitaev2020])
# compares a query only with the keys that a hash puts into the same bucket, whereas **NSA**, native sparse attention
# ([@yuan2025]), learns summaries of blocks of keys and reads the best blocks, each in one piece.
#
# </details>
#
# ## Trained with sparse patterns: does a model use what it can reach?
#
# A receptive field says what a model *could* use, not what it learns to use. So we train small models of two layers:
# one letter in the first half of a line of 32 is marked, and the *last* position must name it.
#
# With full attention the letter gets there in **one hop**. With a global token, or in BigBird, there are fewer pairs,
# and it almost always needs **two hops**, by way of another token. Does the small number of pairs or the second hop
# delay learning? We add one pattern with few pairs and one hop, and one with most pairs but two hops. *Guess:* which of
# these two added patterns is learned later? (A window of 2 is the control: it does not bring the letter to the last
# position.)

# %% [raw] slide
# ## Trained with sparse patterns
# A letter of the first half is marked; the *last* position must name it. Two layers.
#
# > **Guess first.** Few pairs and one hop, or most pairs and two hops: which is learned later?

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


def learn(model, draw, steps, lr, batch=32, seed=0):
    generator = torch.Generator().manual_seed(seed)

    def losses():
        for _ in range(steps):
            *seen, answers = draw(batch, generator)
            yield nn.functional.cross_entropy(model(*seen).flatten(0, -2), answers.flatten())

    return descend(model, losses(), steps, lr, progress=False).losses


def first_below(losses, level=0.5):
    """The step after which the mean over five steps was first below the level."""
    return next((5 * (at + 1) for at, loss in enumerate(losses) if loss < level), None)


record = measured("cheap_attention")
pattern = {row["name"]: row for row in record["patterns"]}
shown = {
    "one hop": {"full": "full attention",
                "few pairs, one hop": "window, but the last\nposition attends to all"},
    "two hops": {"window + global": "window + global token", "BigBird": "BigBird",
                 "most pairs, two hops":
                 "full, but the last position\nattends to the second half"},
    "out of reach": {"window": "window"},
}
found = {group: {f"{words}: {pattern[name].get('pairs'):.0%}":
                 [first_below(run["losses"]) for run in pattern[name]["runs"]]
                 for name, words in names.items()} for group, names in shown.items()}
figures.learning_steps(found, last=350)
one, two = ([step for steps in found[group].values() for step in steps]
            for group in ("one hop", "two hops"))
assert (min(one), max(one), min(two), max(two)) == (40, 45, 125, 230)
assert max(run["below"] for row in record["rates"] for run in row["runs"]) == 80
#| caption: Training steps until the loss is below 0.5 (guessing: 2.08), one mark per seed;
#|   percentages: how many of the pairs of positions the pattern allows.

# %% [raw] slide
# ## Hops, not pairs, cost steps
# {figure}

# %% [markdown]
# **In this task it is the second hop that costs steps, not the missing pairs.** With one hop the task is learned after
# 40 to 45 steps, even if only 18 % of the pairs are allowed. With two hops it takes 125 to 230 steps, even with 98 %.
# These models do use what they can reach, but they learn a direct path sooner.
#
# <details><summary>How the runs were made</summary>
#
# The runs come from the record of `benchmarks/cheap_attention.py`, with three seeds and the best of six learning rates
# for each pattern. These best rates were four different ones, but full attention needs at most 80 steps at any of them,
# so the rates explain little.
#
# </details>
#
# <details><summary>Try a pattern of your own: draw it on the pad, and run this in a new cell</summary>
#
# ```python
# from attncourse.data.lookups import marked_lines
#
# def short_lines(batch, generator):
#     return marked_lines(batch, generator, n=16)
#
#
# learn(Finder(pad.mask, n=16), short_lines, 350, 1e-2)[-5:]
# ```
#
# </details>
#
# ## Attention sinks: why a window fails in a model that never saw one
#
# Those models were trained with their window. What happens if a model was trained with full causal attention and gets a
# window only when it writes? Xiao et al. ([-@xiao2024]) report that its loss explodes as soon as the *first* tokens have
# left the window, and that keeping the first four repairs the damage. Yet these tokens carry little information, so why
# do they matter?
#
# Their explanation is that the weights of a row must sum to one, even where a head has nothing to look for. There the
# head puts its weight on a token that does no harm, and the first token is suitable, because every position can attend
# to it. Such a token is an **attention sink**. If it leaves the window, the other weights grow, and the head's output
# is unlike its outputs in training.
#
# We test this on lines that all begin with the same token, ^. At a **trigger**, written ?, the answer is the letter
# before it, so the head has to look there. At a *letter* the answer is the next letter of the alphabet, so no other
# position helps.

# %% tags=["hide-input"]
line, answers = triggered_lines(1, torch.Generator().manual_seed(3), n=12)
print("a line: ", *("abcdefgh^?"[token] for token in line[0]))
print("answers:", *("abcdefgh"[answer] for answer in answers[0]))

# %% [markdown]
# A model with one causal head learns this task with full attention. Then it gets a window of 8 tokens: alone, with the
# *first* token kept, or, as a control, with the *second* token kept. *Guess:* does the window do damage at triggers or
# at letters?

# %% [raw] slide
# ## Attention sinks
# A model trained with full attention fails as soon as the *first* tokens leave its window (Xiao et al. 2024). Weights must
# sum to one, even where a head has nothing to look for.
#
# {print}
#
# > **Guess first.** At a *trigger* the head must look at its neighbour, at a *letter* at nothing. Where does the window do damage?

# %% tags=["hide-input"]
sinks = record["sinks"]
losses = {"full attention" if name == "full" else name:
          {f"at a {kind}": [row["loss"][name][kind] for row in sinks]
           for kind in ("trigger", "letter")} for name in sinks[0]["loss"]}
figures.shares_in_rows(losses, "loss, nats", named_in="window")
weights = {kind: [row["weight_on_first"][kind] for row in sinks]
           for kind in ("trigger", "letter")}
print("weight on the first token with full attention, by seed:")
for kind, each in weights.items():
    print(f"  at a {kind + ':':8}", ", ".join(f"{weight:5.1%}" for weight in each))
assert min(weights["letter"]) > 0.165 and max(weights["letter"]) < 0.395
assert max(weights["trigger"]) < 0.01
damage = {part: [row["loss"]["window"]["letter"] for row in record[part]]
          for part in ("way_out", "any_first")}
assert min(damage["way_out"]) > 0.185 and max(damage["way_out"]) < 0.735
assert max(damage["any_first"]) < 0.005
assert max(row["weight_on_first"]["letter"] for row in record["any_first"]) < 0.055
still = [row["weight_on_first"]["letter"] for row in record["way_out"]]
assert min(still) > 0.185 and max(still) < 0.425


def by_seed(part, *keys):
    values = []
    for row in record[part]:
        for key in (*keys, "letter"):
            row = row[key]
        values.append(round(row, 2))
    return values


assert max(by_seed("any_first", "weight_on_second")) == 0.04
assert max(by_seed("own_answer", "weight_on_second")) == 0.04
assert by_seed("any_first", "weight_on_first") == [0.05, 0.03, 0.04]
assert by_seed("own_answer", "weight_on_first") == [0.14, 0.09, 0.03]
assert by_seed("own_answer", "loss", "window") == [0.28, 0.02, 0.0]
assert by_seed("same_second", "weight_on_first") == [0.09, 0.02, 0.02]
assert by_seed("same_second", "weight_on_second") == [0.04, 0.42, 0.35]
assert by_seed("same_second", "loss", "window") == [0.03, 0.05, 0.09]
assert by_seed("same_second", "loss", "window + second token") == [0.01, 0.0, 0.0]
#| caption: Loss with full attention and three windows of 8, at positions where the plain window
#|   has lost the first token; one mark per seed. Guessing: 2.08.

# %% [raw] slide
# ## Where the head has nothing to look for
# {figure}

# %% [markdown]
# **The window does damage at letters, where the head has nothing to look for, and none at triggers.** With full
# attention, the first token has 17 to 39 % of the weight at letters and less than 1 % at triggers. Keeping the first
# token repairs the damage, whereas keeping the second does not.
#
# All this fits the explanation, but it does not say why it is the *first* token (see the box). The repair works all the
# same: a window with **sinks** (**StreamingLLM**) keeps the first few tokens permanently.
#
# <details><summary>Why the first token? Four more models, and how the runs were made</summary>
#
# The token ^ is first, it is the same in every line, and its answer is always the same (a). Three models separate these
# properties. Each number is for one of the three seeds:
#
# | the lines begin with | weight at letters on the first token | on the second | loss at letters in the window |
# |---|---|---|---|
# | any letter, whose answer is the next letter | 5, 3, 4 % | at most 4 % | below 0.005 |
# | any letter, whose answer is always a | 14, 9, 3 % | at most 4 % | 0.28, 0.02, 0.00 |
# | any letter, then ^ | 9, 2, 2 % | 4, 42, 35 % | 0.03, 0.05, 0.09 |
#
# The first row shows that being first does not by itself make a token a sink. In the second row no token is shared,
# and yet in one of three seeds a sink forms, and the window does damage. So a fixed answer can be enough. In the third
# row the sink moves to ^ in two of three seeds, although ^ is second. There the window does less damage than in the
# figure, and keeping the second token repairs it. Both properties help, then, but neither decides alone, and three
# seeds are few.
#
# The fourth model was trained with an extra key and value of zeros, a place for weight that is not needed. It still
# puts 19 to 42 % of the weight on ^ at letters, and the window still does damage there (a loss of 0.19 to 0.73). Xiao
# et al. saw something similar in language models: trained with a zero key, a model still relied on its first tokens,
# whereas an extra token that was *learned* replaced them. Some models, such as gpt-oss, learn an extra score for each
# head, which counts only in the softmax's denominator. The score of a zero key is always 0, but a learned score can
# become as large as training needs.
#
# Gu et al. ([-@gu2025]) study larger models. There, too, the training data influence which token becomes the sink. And
# if sigmoids, which need not sum to one, replace the softmax, no sink emerges in models of up to a billion parameters.
#
# All models here have one causal head of width 32 and a feed-forward network. They were trained for 400 steps of 64
# lines of 32 tokens, with one learning rate, 0.01, which was not tuned. Losses and weights are means over 1,000 new
# lines, at positions where the window has lost the first token.
#
# </details>
#
# **A good place to pause.** The next methods replace the softmax.
#
# ## Linear attention: a kernel in place of the softmax
#
# Windows compute few pairs, and linear attention computes none. A **feature map** $\phi$ turns each query and each key
# into a vector of features. The weight of key $j$ for query $i$ becomes $\phi(q_i) \cdot \phi(k_j)$ instead of
# $\exp(q_i \cdot k_j)$, where $q_i$ already contains the factor $1/\sqrt{d_k}$. (Such a product of features is also
# called a **kernel**, which has nothing to do with a compiled program.) Now $\phi(q_i)$ can be taken out of the sum:
#
# $$\sum_j \bigl(\phi(q_i) \cdot \phi(k_j)\bigr) v_j = \phi(q_i)\, S, \qquad S = \sum_j \phi(k_j)^\top v_j .$$ (eq:linear-attention)
#
# The **state** $S$ is $d_k \times d_v$ and does not depend on $i$, so it is computed once, and each query is multiplied
# by it. In other words, $\phi(Q)\,\phi(K)^\top V$ is computed from the right:

# %% tags=["hide-input"]
figures.two_orders_of_products()
#| caption: The order of the products in softmax and in linear attention, to scale for n = 6
#|   and d = 2, without the division.
#| label: orders

# %% [markdown]
# **No query is ever compared with a key.** Instead of $2n^2d$ multiplications there are $2nd^2$.
#
# So that the weights sum to one, we divide by $\phi(q_i) \cdot z$ with $z = \sum_j \phi(k_j)$. This is **linear
# attention** ([@katharopoulos2020]). Its feature map is $\phi(x) = \operatorname{elu}(x) + 1$, which is $x + 1$ above 0
# and $\exp(x)$ below 0, so no weight is negative.
#
# <details><summary>Another feature map: Performer</summary>
#
# **Performer** ([@choromanski2021]) approximates the softmax with random features, whose product is $\exp(q \cdot k)$
# on average.
#
# </details>
#
# > **Check yourself.** With $d = 128$ in each head, how long must a text be before linear attention needs less
# > arithmetic than softmax attention? Would you notice this on a single sentence?
# > <details><summary>Answer</summary>About n = d, that is, 128 tokens. On a sentence of thirty words linear attention
# > costs more than softmax attention, and the projections cost more than either.</details>
#
# ## Parallel, recurrent, chunkwise: three forms of linear attention
#
# What changes under a causal mask? Query $i$ uses only the keys up to $i$, so $S$ and $z$ gain one term at each step. A
# network that carries such a state of fixed size from position to position is a recurrent network. The next cell
# computes all positions at once, and then one after the other, with functions that you write in exercises 5 and 6:

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

# %% [markdown]
# **Causal linear attention is a recurrent network**: both ways give the same numbers. Katharopoulos et al. call their
# paper "Transformers are RNNs". When such a model writes, each token costs the same, whereas with a KV cache each token
# costs more than the one before it. In training, where the whole text is known, there are three forms:
#
# * The **parallel form** computes all pairs at once, and costs $n^2$ again.
# * The **recurrent form** takes one step after another, and leaves most of a GPU idle.
# * The **chunkwise form** avoids both. It cuts the text into chunks of $C$ positions and computes the pairs within a
#   chunk, while all earlier chunks reach a query through the state.

# %% tags=["hide-input"]
figures.chunkwise(9, 3)
#| caption: Chunkwise linear attention of 9 positions in chunks of 3: pairs within a chunk are
#|   written out; earlier chunks come through the state.
#| label: chunkwise

# %% [raw] slide
# ## The chunkwise form
# {figure}
#
# **Now you:** a@cheap_attention, exercises 5 and 6

# %% [markdown]
# **Only the pairs within a chunk are written out.** Let $\phi(Q)$, $\phi(K)$ and $V$ be the rows of one chunk, and $S$
# the state after the chunks before it. Before the division, the output of the chunk is
#
# $$O = \underbrace{\phi(Q)\,S}_{\text{chunks before}}
# + \underbrace{\operatorname{tril}\bigl(\phi(Q)\,\phi(K)^\top\bigr)\,V}_{\text{within the chunk}},
# \qquad S \leftarrow S + \phi(K)^\top V .$$
#
# Here tril sets all entries above the diagonal, which are hatched in the figure, to 0. The cost is about $nCd + nd^2$,
# in large matrix products. `linear_attend` works in this way, and gated linear attention ([@yang2024gla]) and Mamba-2
# ([@dao2024]) are trained in it.
#
# **Now you:** [a12](@cheap_attention/assignment), exercises 5 and 6.
#
# ## Associative recall: what fits into a state
#
# What does a state of fixed size give up? To find out, we show the model $p$ **entries**, each a name and a digit, and
# then ask for the digit of one name. This task is **associative recall**. Softmax attention [@eq:self-attention] keeps
# all $p$ entries in its cache, whereas linear attention has to keep them in $S$, which has $d \times d$ numbers whether
# $p$ is 2 or 64.
#
# The model has embeddings, one attention operation, and a linear readout. We vary its width $d$ and its feature map.
# *Guess:* softmax attention of width 16 recalls all of 64 entries. What share of them does linear attention recall at
# each width, 16 and 64?

# %% [raw] slide
# ## Associative recall: what fits into a state?
# Show $p$ entries, each a name and a digit; ask for one. Softmax keeps all in its cache, linear attention in $d \times d$ numbers.
#
# > **Guess first.** How many of 64 entries does linear attention recall with $d = 16$, and with $d = 64$?

# %% tags=["hide-input"]
recalled = {(row["name"], row["d"]):
            {int(p): [run["right"][p] for run in row["runs"]] for p in row["runs"][0]["right"]}
            for row in record["recall"] + record["strength"]}


def middle(name, width, entries=64):
    return statistics.median(recalled[name, width][entries])


figures.seed_lines(
    {f"feature map: {words}": {f"d = {d}": recalled[name, d] for d in (16, 64)}
     for words, name in (("elu + 1", "elu + 1"), ("the identity", "identity"))},
    "entries shown", "accuracy", chance=1 / LETTERS,
    beside={"softmax, d = 16": recalled["softmax", 16]})
assert all(abs(middle("elu + 1, divided", d) - middle("elu + 1", d)) < 0.03 for d in (16, 64))
gains = [round(100 * (middle(name, 64) - middle(name, 16))) for name in ("elu + 1", "identity")]
assert gains == [43, 35]
assert [round(100 * middle(name, 16)) for name in ("identity", "elu + 1")] == [55, 43]
#| caption: Associative recall with two feature maps; grey is softmax attention. One mark per
#|   seed, lines through the medians, which are printed at 64 entries.
#| label: recall

# %% [raw] slide
# ## The width matters most
# {figure}

# %% [markdown]
# **Linear attention loses entries, and with the larger width it loses fewer.** From $d = 16$ to $d = 64$ it gains 35 to
# 43 points at 64 entries. Softmax attention, the grey band, recalls everything with $d = 16$, so the loss happens in
# the attention, not in the embeddings or the readout. With the identity as feature map fewer entries are lost than with
# $\operatorname{elu} + 1$, probably because features that are all positive leave no two keys orthogonal. Each entry
# then disturbs the others, which is called **interference**.
#
# Why does the width help? Two things grow with it: the **size of the state**, $d_k \times d_v$ numbers, and the **room
# for keys**, $d_k$. Take the identity as feature map, keys of length one, and key $i$ as the query. Then the output is
#
# $$k_i S = v_i + \sum_{j \ne i} (k_i \cdot k_j)\, v_j ,$$
#
# and the sum is the interference. Two more models have states of 1,024 numbers each. One has keys of width 64 and
# values of width 16, and the other has the reverse. *Guess:* which of the two recalls more?

# %% tags=["hide-input"]
share = {(d, d): recalled["identity", d][64] for d in (16, 64)}
share |= {(row["d_k"], row["d_v"]): [run["right"]["64"] for run in row["runs"]]
          for row in record["shapes"]}
figures.states_to_scale(dict(sorted(share.items())), "share recalled of 64 entries")
assert max(share[16, 64]) < 0.57 and min(share[64, 16]) > 0.9
#| caption: Share of 64 entries recalled with the identity, for four states, drawn to scale, as
#|   high as a key and as wide as a value; one mark per seed, with the medians.

# %% [raw] slide
# ## The room for keys
# $$k_i S = v_i + \sum_{j \ne i} (k_i \cdot k_j)\, v_j$$
#
# {figure}

# %% [markdown]
# **In this task the room for keys counts, not the size of the state.** With wide keys and narrow values the model
# recalls as much as with a state four times as large. With narrow keys and wide values it recalls hardly more than with
# a state a quarter as large. The formula says why: for random directions $(k_i \cdot k_j)^2$ is $1/d_k$ on average, so
# the square of the interference is about $p / d_k$ times that of a value, whatever $d_v$ is.
#
# If this is right, runs with equal $p / d_k$ should recall equal shares. The same runs again, sorted by this ratio:

# %% tags=["hide-input"]
by_shape = {(d, d): recalled["identity", d] for d in (16, 64)}
by_shape |= {(row["d_k"], row["d_v"]): {p: [run["right"][str(p)] for run in row["runs"]]
                                        for p in recalled["identity", 16]}
             for row in record["shapes"]}
ratios = {2 / 16: "1/8", 4 / 16: "1/4", 8 / 16: "1/2", 1: "1", 2: "2", 4: "4"}
print("share recalled, medians of three seeds, by p / d_k")
print(f"{'d_k':>5}{'d_v':>5}", *(f"{words:>6}" for words in ratios.values()))
at_ratio = {ratio: [] for ratio in ratios}
for (d_k, d_v), right in sorted(by_shape.items()):
    medians = {p / d_k: statistics.median(values) for p, values in right.items()}
    cells = [f"{medians[ratio]:.1%}" if ratio in medians else "" for ratio in ratios]
    print(f"{d_k:5}{d_v:5}", *(f"{cell:>6}" for cell in cells))
    for ratio in ratios:
        at_ratio[ratio] += [medians[ratio]] if ratio in medians else []
assert all(max(each) - min(each) < 0.03 for each in at_ratio.values())
assert [len(each) for each in at_ratio.values()] == [4, 4, 4, 4, 2, 2]

# %% [markdown]
# **Within each column the shares differ by less than three points**, although $p$ and the state differ by factors of 4
# and 16.
#
# <details><summary>How the runs were made, and what others measured</summary>
#
# Our runs have 128 names, eight digits and three seeds. They leave out the division, which changes little at 64
# entries. With thousands of answers to tell apart instead of eight, $d_v$ could be the limit.
#
# The task MQAR ([@arora2024zoology]) is a harder form of ours: many questions follow the entries. Arora et al.
# ([-@arora2024]) find that recall grows with the size of the state. This fits our result, because one way in which they
# enlarge the state is a wider feature map, which makes room for keys.
#
# </details>
#
# A sum only ever adds. The **delta rule** (**DeltaNet**, [@schlag2021]) first reads what the state holds for the key,
# $kS$, and writes only a share $\beta$ of what is missing to the new value $v$:
#
# $$S \leftarrow S + \beta\, k^\top (v - kS) = (I - \beta\, k^\top k)\, S + \beta\, k^\top v .$$ (eq:delta-rule)
#
# This is a step of gradient descent on $\tfrac12 \lVert kS - v \rVert^2$ with the learning rate $\beta$, the **write
# strength**. With $\beta = 1$ and a key of length one, $kS$ is exactly $v$ after the step. (*Going further* tests the
# rule.)
#
# ## Linear recurrences and the parallel scan: state-space models
#
# Linear attention is a recurrent network that can be trained in parallel. Which others can? A GRU ([lecture
# @bottleneck](@bottleneck)) must take one step after another. But a recurrence can be computed in parallel if its step
# is *linear* in the state, as in $h_t = a_t \odot h_{t-1} + b_t$. Here $a_t$ and $b_t$ depend only on the input, and
# $\odot$ multiplies entry by entry. Then two steps in a row make one step of the same kind:
#
# $$a'(a h + b) + b' = a'a\,h + (a'b + b').$$
#
# So we write a step as $(a, b)$. Joining steps is associative: it does not matter where the brackets stand. In the
# first round every step is joined with the one before it, all at once. In the second round each result is joined with
# the result two places before it, in the third with the one four places before it, and so on. This is a **parallel
# scan**, or associative scan ([@blelloch1990]). *Work it out:* four steps have $a = \tfrac12$ and $b = 8, 8, 4, 4$.
# What are $a$ and $b$ after each of the two rounds?

# %%
def scan(a, b):                                  # (n,) each, for h_t = a_t · h_(t−1) + b_t
    span = 1
    while span < len(a):                         # a round: all joins at once
        b = torch.cat([b[:span], a[span:] * b[:-span] + b[span:]])
        a = torch.cat([a[:span], a[span:] * a[:-span]])
        print(f"joined with {span} before: a = {a.tolist()}, b = {b.tolist()}")
        span = 2 * span
    return b                                     # h_1 to h_n, if h_0 = 0


a, b = torch.tensor([0.5, 0.5, 0.5, 0.5]), torch.tensor([8.0, 8, 4, 4])
h, states = 0, []
for t in range(4):                               # the loop: one step after another
    h = a[t] * h + b[t]
    states.append(h)
assert torch.equal(scan(a, b), torch.stack(states)), "the same states"

# %% [markdown]
# **After the last round, $b$ holds the states**, because a joined step that covers all steps up to $t$ turns $h_0 = 0$
# into $h_t = b$. For eight steps, follow the last column of the figure upwards: its dots cover steps 7–8, 5–8 and 1–8.

# %% [raw] slide
# ## Linear recurrences and the parallel scan
# $h_t = a_t \odot h_{t-1} + b_t$, with $a_t, b_t$ from the input alone. Two steps are one step of the same kind:
#
# $$a'(a h + b) + b' = a'a\,h + (a'b + b')$$
#
# > **Guess first.** How many rounds for 100,000 steps?

# %% tags=["hide-input"]
figures.scan_circuit(8)
#| caption: A parallel scan of eight steps, from the bottom up; each dot joins the result on
#|   its blue line to the one below it. Strong: what the last step needs.
#| label: scans

# %% [raw] slide
# ## Eight steps in three rounds
# {figure}
#
# 17 rounds for 100,000 steps.

# %% [markdown]
# **A scan of $n$ steps takes $\log_2 n$ rounds**, rounded up, because each round doubles the number of steps that are
# joined. For 100,000 steps it takes 17 rounds, since $2^{17} = 131{,}072$.

# %% [raw] slide
# ## Two choices: decay and state
# | | decay $a$ | state |
# |---|---|---|
# | minGRU | from the input | a number a channel |
# | S4 | learned, then fixed | a vector a channel |
# | Mamba | from the input | a vector a channel |
# | gated linear attention | from the input | a matrix |

# %% [markdown] teaches="recurrence again: RWKV, Mamba"
# **Many recent recurrent models are linear recurrences that differ mainly in two things**, the decay $a$ and the state
# $h$:
#
# | | $a$ is | the state |
# |---|---|---|
# | **state-space model** S4 ([@gu2022]) | learned, then fixed | a vector for each channel |
# | **Mamba** ([@gu2023]) | computed from the input ("selective") | a vector for each channel |
# | **gated linear attention** (GLA, [@yang2024gla]) | computed from the input | the matrix $S$ |
# | **Gated DeltaNet** ([@yang2025]) | computed from the input, with the delta rule | the matrix $S$ |
#
# If $a$ is computed from the input, as in Mamba, the model can keep this token and skip that one, but then it needs a
# scan or chunks. If $a$ is a number and the state a matrix, $S_t = a_t S_{t-1} + k_t^\top v_t$, the output is
#
# $$q_t S_t = \sum_{j \le t} (a_t\, a_{t-1} \cdots a_{j+1})\,(q_t \cdot k_j)\, v_j .$$
#
# **This is linear attention under a soft causal mask**: the product of the decays since $j$, which is 1 for $j = t$,
# weakens old keys. So such a model also has a parallel and a chunkwise form. The authors of Mamba-2, which is one, call
# this **state-space duality** ([@dao2024]).
#
# <details><summary>More: minGRU, RetNet, RWKV, and the cost of a scan</summary>
#
# If $a$ is fixed, as in S4, then $h_t = \sum_{j \le t} a^{t-j}\, b_j$, which is a **convolution** of the inputs and
# needs no scan. In S4 and Gated DeltaNet, $a$ is a matrix by which the state is multiplied, but two such steps can be
# joined in the same way. In minGRU ([@feng2024]), the simplest of these models, $a$ is computed from the input, and the
# state is a number for each channel. **RetNet** ([@sun2023]) has the matrix $S$ and a fixed $a$ for each head. **RWKV**
# ([@peng2023]) began with a learned, fixed $a$ and an average for each channel. From version 5 on it has a matrix, and
# from version 6 on $a$ is computed from the input ([@peng2024]).
#
# Our way of joining ([@hillis1986]) takes about $n \log_2 n$ joins. A tree takes nearly twice as many rounds, but only
# about $2n$ joins.
#
# </details>

# %% [markdown] teaches="production models and what they use"
# ## What is in use: the KV cache at 128k tokens
#
# Which of these methods do production models use? The figure shows the KV cache of eight models for one text of 131,072
# tokens in 16 bits (blue), and what it would be with a key and a value for every query head in every layer (orange).
# *Guess:* which model has the smallest cache: DeepSeek-V3 with MLA, Mistral 7B with windows, or Jamba with Mamba
# layers?

# %% [raw] slide
# ## What is in use: the KV cache at 128k tokens
# > **Guess first.** Llama 3.1 with GQA, DeepSeek-V3 with MLA, Gemma 3 and Mistral with windows, Jamba with Mamba layers: which needs the least?

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
    InUse("Llama 2 7B", 32, 0, 0, two * 32 * 128, 1),
    InUse("Llama 3.1 70B, GQA", 80, 0, 0, two * 8 * 128, 64 / 8),
    InUse("DeepSeek-V3, MLA", 61, 0, 0, 512 + 64, two * 128 * 128 / (512 + 64)),
    InUse("Gemma 3 27B, 5 windows : 1 full", 10, 52, 1024, two * 16 * 128, 32 / 16),
    InUse("gpt-oss-120b, 1 window : 1 full", 18, 18, 128, two * 8 * 64, 64 / 8),
    InUse("Mistral 7B, windows alone", 0, 32, 4096, two * 8 * 128, 32 / 8),
    InUse("Jamba, 7 Mamba : 1 full", 4, 0, 0, two * 8 * 128, 32 / 8, recurrent=28),
    InUse("Qwen3-Next, 3 Gated DeltaNet : 1 full", 12, 0, 0, two * 2 * 256, 16 / 2,
          recurrent=36),
]
n, gib, plain = 131_072, {}, {}
for model in models:
    tokens = model.full * n + model.windowed * min(model.window, n)
    layers = model.full + model.windowed + model.recurrent
    gib[model.name] = 2 * model.numbers * tokens / 2**30         # 2 bytes a number
    plain[model.name] = 2 * model.own * model.numbers * layers * n / 2**30
figures.cache_sizes(dict(sorted(gib.items(), key=lambda item: item[1])), plain)
saved = {name: round(plain[name] / size) for name, size in gib.items()}
assert min(gib, key=gib.get).startswith("Mistral") and min(gib.values()) == 0.5
assert saved["Llama 3.1 70B, GQA"] == 8 and saved["DeepSeek-V3, MLA"] == 57
assert saved["Gemma 3 27B, 5 windows : 1 full"] == 12 and saved["Jamba, 7 Mamba : 1 full"] == 32
assert models[1].numbers == 2048 and models[2].numbers == 576
#| caption: KV cache of published models for 131,072 tokens, in 16 bits, and how many times
#|   smaller it is than a plain one; ratios (5 : 1) count layers.
#| label: cache-sizes

# %% [raw] slide
# ## Fewer heads, one vector, windows, recurrences
# {figure}

# %% [raw] slide
# ## In short
# | | |
# |---|---|
# | share of the pair products | $n / (n + 6\,d_\text{model})$ of all operations |
# | online softmax | carry $m$, $\ell$, $o$; a larger score $m'$ multiplies the old $\ell$ and $o$ by $\exp(m - m')$ |
# | traffic | $\Theta(n^2 d^2 / M)$ in tiles, $\Theta(nd + n^2)$ with the whole matrix |
# | window in blocks of $b$ | queries $(n/b, b, d)$ meet keys $(n/b, 3b, d)$ |
# | linear attention | $\phi(q_i) S / (\phi(q_i) \cdot z)$ with $S = \sum_j \phi(k_j)^\top v_j$ and $z = \sum_j \phi(k_j)$ |
#
# **Now do** assignment a@cheap_attention. **Next:** lecture @beyond_text.

# %% [markdown]
# **Mistral 7B has the smallest cache**, half a gibibyte, because it alone has a window in every layer. But its windows
# reach about 131,000 positions ($32 \cdot 4{,}095$) only in 32 hops, and version 0.2 dropped them. The other models
# (except Llama 2, which is the plain one) use one or two of four ways:
#
# * **Fewer key-value heads**: GQA makes the cache of Llama 3.1 70B 8 times smaller.
# * **One compressed vector for all heads**: MLA (**multi-head latent attention**) makes the cache of DeepSeek-V3 57
#   times smaller.
# * **Windows in many layers**: with GQA they make the cache of Gemma 3 12 times smaller.
# * **Recurrences in most layers**: with GQA they make the cache of Jamba 32 times smaller. Their states take tens of
#   megabytes at most.
#
# Apart from Mistral 7B, the models with windows or recurrences are **hybrids**, which keep full attention in *some*
# layers.
#
# <details><summary>What do the cheaper layers cost in quality?</summary>
#
# The Gemma team ([-@gemma2025]) trained smaller models with one to seven layers of windows for each full layer, and
# perplexity hardly changed. Without any full layer it can be different. Lieber et al. ([-@lieber2024]) compared models
# of 1.3 billion parameters that had to judge film reviews after a few examples in the prompt. With attention in every
# layer 84 % of the answers were right, with Mamba alone 49 %, often because the answer was not in the form of the
# examples, and with a hybrid 91 %.
#
# </details>
#
# <details><summary>Three further savings</summary>
#
# These three can be combined with any of the methods. Keys and values can be kept in fewer bits (**cache
# quantisation**). The cache can be divided into pages, which are allocated as the texts grow (**PagedAttention**,
# [@kwon2023], in vLLM). And a text that is too long for one GPU can be spread over several, which pass tiles of keys
# and values around a ring and join the parts by online softmax [@eq:online-softmax] (**Ring Attention**,
# [@liu2023ring]). Such a division is called **context parallelism**. Llama 3.1 uses another form, in which each GPU
# first gathers the keys and values of all.
#
# </details>
#
# <details><summary>Sources of the numbers</summary>
#
# Mistral, as cited above; Llama 2, [@touvron2023]; Llama 3, [@grattafiori2024]; DeepSeek-V3, [@deepseek2024];
# Gemma 3, [@gemma2025]; gpt-oss, [@openai2025]; Jamba, [@lieber2024]; and the configuration of Qwen3-Next in
# `transformers`. Some of the models were trained on shorter texts. A head of DeepSeek-V3 is counted with a key and a
# value of 128 numbers each, without the 64 for the position.
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
# | share of the pair products ($QK^\top$ and $AV$) | $n / (n + 6\,d_\text{model})$ of all operations | |
# | online softmax | carry $m$, $\ell$, $o$; a larger score $m'$ multiplies the old $\ell$ and $o$ by $\exp(m - m')$ | $m, \ell$: $(n, 1)$; $o$: $(n, d_v)$ |
# | traffic, with room for $M$ numbers in SRAM | grows like $n^2 d^2 / M$ in tiles, like $nd + n^2$ with the whole matrix | |
# | reach of a causal window of $w$ tokens | $L\,(w - 1)$ positions after $L$ layers | |
# | window in blocks of $b$ = `width` | queries $(n/b, b, d)$ meet keys $(n/b, 3b, d)$ | |
# | linear attention | $\phi(q_i) S / (\phi(q_i) \cdot z)$ with $S = \sum_j \phi(k_j)^\top v_j$ and $z = \sum_j \phi(k_j)$ | $S$: $(d_k, d_v)$; $z$: $(d_k)$ |
# | parallel scan | joins $(a, b)$ and then $(a', b')$ to $(a'a,\, a'b + b')$, in $\log_2 n$ rounds | |
#
# How, then, was Llama 3.1 405B trained on texts as long as a novel? Tiles keep the attention matrix out of memory, and
# **context parallelism** divides a text among GPUs, 16 of them for 131,072 tokens ([@grattafiori2024]).
#
# FlashAttention does the same multiplications, in training even more, but moves fewer numbers. A window saves time in
# training and prefill only if whole blocks are skipped, and in decode it makes the cache smaller. With long texts or
# large batches, reading the cache limits decode, so many of today's models mix full attention with something cheaper.
#
# | | time | cache or state when writing | exact? | what it gives up |
# |---|---|---|---|---|
# | tiles (FlashAttention) | $n^2$ | $n$ | yes | nothing, but a kernel must be written |
# | window | $n \cdot w$ | $w$ | no | tokens farther away than $L\,(w - 1)$ |
# | keys chosen by content | $n^2$ cheap scores, then $n \cdot$ few | $n$ | no | keys that the choice overlooks |
# | linear attention, recurrences | $n$ | fixed | no | exact recall of many entries |
#
# **Now do** [assignment @cheap_attention](@cheap_attention/assignment) (about an hour and three quarters): exercises
# 1 to 6, a question in words, and three extensions. **Next:** [lecture @beyond_text](@beyond_text), where the
# sequence is an image or a sound. The sections below are not counted in the minutes above.
#
# **Further reading.** [+@dao2022], section 3 with algorithm 1, then [+@dao2023], section 3.1: what has been swapped?
# [+@katharopoulos2020], section 3.
#
# <details><summary>More to read</summary>
#
# [+@tay2020]. [+@schlag2021], for the delta rule. [+@arora2024]. [+@gu2023], section 3. [+@xiao2024].
#
# </details>

# %% [markdown]
# ## Going further: the order of the loops in FlashAttention
#
# The first FlashAttention (left) has the keys and values in the outer loop, whereas FlashAttention-2 (right, as in
# [@fig:loops]) has the queries there. *Guess:* which order moves fewer numbers between HBM and SRAM?

# %% tags=["hide-input"]
figures.tile_orders()
both = [f"{name} {traffic[name] / 1e6:.1f} million"
        for name in ("FlashAttention", "FlashAttention-2")]
print("numbers moved, for n = 4,096 and d = 64:", ", ".join(both))
#| caption: Tiles of the score matrix in two orders: the numbers are steps; orange and pale
#|   tiles lie in SRAM at step 7.
#| label: tiles

# %% [markdown]
# **FlashAttention-2 moves fewer numbers**, and the pale tiles show why. Each of its steps only reads a tile of keys and
# values, and the orange $O_2$ is written once, at the end of the inner loop. In FlashAttention, each step reads the
# unfinished $O$, $m$ and $\ell$ of a query tile and writes them again. By our count its intensity is therefore 230
# operations per byte instead of 341.

# %% [markdown] teaches="low rank: Linformer and its matrices"
# ## Going further: low rank, Linformer
#
# **Linformer** ([@wang2020]) forbids no pair. It replaces the $n$ keys by $k$ *mixtures* of keys, with $k$ much smaller
# than $n$, and the values by $k$ mixtures of values. The two mixing matrices $E$ and $F$ are learned:
#
# $$\operatorname{softmax}\!\left(\frac{Q\,(EK)^\top}{\sqrt{d_k}}\right) F V,
# \qquad E, F \in \mathbb{R}^{k \times n}.$$ (eq:linformer)
#
# Now the attention matrix is $n \times k$. The paper's reason is that the full attention matrix has nearly low
# **rank**: its $n$ rows are almost combinations of far fewer rows. For the *scores* low rank is obvious, because
# $QK^\top$ has rank $d_k$ at most. But softmax does not keep the rank, so is it true of the *weights*?
#
# A model with one layer and four heads reads a line of 32 letters, one of them marked. At *every* position it names
# three letters: the marked one, the one **before** (for the first position, the last of the line), and the one at the
# **mirror** position, as far from the end as this one is from the beginning. *Guess:* how well can mixtures of only
# four rows reproduce the 32 rows of each attention matrix? The percentages in the figure are shares of the squared
# **singular values** that the four largest hold: at 100 %, four mixtures are enough.

# %% tags=["hide-input"]
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
squares = torch.linalg.svdvals(maps) ** 2                        # (50, 4, 32)  largest first
kept = (squares[..., :4].sum(dim=-1) / squares.sum(dim=-1)).mean(dim=0)        # (4,)
jobs = figures.jobs_of_heads(maps, tokens >= LETTERS)            # ["mark", …], one a head
at = {job: jobs.index(job) for job in ("mark", "before", "mirror")}
figures.weight_maps({f"{job}: four hold {kept[h]:.0%}": maps[0, h] for job, h in at.items()})
assert kept[at["mark"]] > 0.95 and max(kept[at["before"]], kept[at["mirror"]]) < 0.2
#| caption: Attention weights of three heads of one model on one line, and the share of the
#|   squares that the four largest singular values hold, a mean over 50 lines.

# %% [markdown]
# **A column has low rank, and a diagonal does not.** For the mark every query attends to the same key, so all rows are
# nearly the same, whereas for the other two jobs all rows differ. The scores have rank 8 at most, the width of these
# heads, so the softmax has turned scores of rank 8 into weights of nearly full rank, 32. Which of the three letters,
# then, can Linformer name, and which a window of 2? *Write down your prediction.*

# %% tags=["hide-input"]
rows = {row["name"]: {job: [run[job] for run in row["runs"]] for job in at}
        for row in record["partners"] if row["name"] != "Linformer, k = 8"}
figures.shares_in_rows(rows, "accuracy", chance=1 / LETTERS, named_in="full")
assert min(rows["Linformer, k = 4"]["mark"]) > 0.999
diagonals = [sorted(round(x, 2) for x in rows["Linformer, k = 16"][job])
             for job in ("before", "mirror")]
assert diagonals == [[0.58, 0.59, 0.88], [0.59, 0.59, 0.88]]
#| caption: Accuracy of full, windowed and low-rank attention on three tasks; one mark per
#|   seed.

# %% [markdown]
# **Linformer finds the mark, and the window finds what is near.** With four mixtures, Linformer names the marked letter
# in more than 99.9 % of the cases and does badly on the diagonals. The window misses the letter before only at the first
# position, whose letter is at the other end of the line.
#
# How much of this is the low rank? All models had 400 steps and one learning rate, 0.01, which was not tuned. With 16
# mixtures Linformer reaches about 0.59 in two runs and 0.88 in the third, so these runs probably needed more training. Its
# low marks on the diagonals mix the rank with the training.
#
# Linformer also fixes the maximum length in advance, and it cannot be causal, because each mixture contains the future.
# You can build it in an extension of the assignment.
#
# <details><summary>Low rank in a trained language model</summary>
#
# Our questions were chosen to show the difference. In RoBERTa, a BERT that was trained longer, Wang et al.
# ([-@wang2020]) found that the largest singular values hold most of the sum.
#
# </details>

# %% [markdown]
# ## Going further: the delta rule
#
# The delta rule [@eq:delta-rule] is a linear recurrence in $S$, whose $a$ is the matrix $I - \beta k^\top k$. So it has
# a chunkwise form, too ([@yang2024deltanet]). In both DeltaNet papers the write strength $\beta$, from 0 to 1, is
# computed from each token. We compare the plain sum with $\beta = 1$ and with a learned $\beta$, all with keys of length
# one. In a second task each name appears *twice*, so that 64 entries are 32 names, and the model is asked for the
# **later** digit. *Guess:* in which of the two tasks does the rule help?

# %% tags=["hide-input"]
rules = {"plain sum": "unit keys", "β = 1": "unit keys, delta rule",
         "learned β": "delta rule, a β for each key"}
twice = {row["name"]: {int(p): [run["right"][p] for run in row["runs"]]
                       for p in row["runs"][0]["right"]} for row in record["overwritten"]}
tasks = {"each name once": {words: recalled[name, 16] for words, name in rules.items()},
         "each name twice": {words: twice[name] for words, name in rules.items()}}
betas = {task: [run["beta"] for row in record[part] for run in row["runs"]
                if row["name"] == rules["learned β"]]
         for task, part in zip(tasks, ("strength", "overwritten"), strict=True)}
for task, found in betas.items():
    print(f"{task}: the mean of the learned β is {min(found):.2f} to {max(found):.2f}")
figures.seed_lines(tasks, "entries shown", "accuracy", chance=1 / LETTERS,
                   known={"each name twice": (9 / 16, "either digit: 9/16")})
assert round(100 * math.sqrt(9 / 16 * 7 / 16 / 1000), 1) == 1.6  # each mark: 1,000 lines
lucky = statistics.mean(twice["unit keys"][8])
above = (lucky - 9 / 16) / math.sqrt(9 / 16 * 7 / 16 / 3000)
assert round(lucky, 2) == 0.59 and 2.8 < above < 3.4
#| caption: Associative recall at d = 16 with the plain sum and with the delta rule; one mark
#|   per seed, medians at 64 entries.

# %% [markdown]
# **The rule helps where something has to be overwritten.** If each name appears twice, the plain sum cannot know which
# digit came later, because a sum does not depend on the order of its terms. It is right where the two digits are
# equal, which happens once in eight times, and in half of the other cases. That makes $1/8 + 7/16 = 9/16$, the dotted
# line. On average no sum can do better, so a mark above the line must be luck. Each mark is a share of 1,000 lines, with
# a standard error of 1.6 points. At 8 entries, the mean of the three marks is 0.59, which is about three standard
# errors of such a mean above the line: rare luck, but there are six sizes to find it in. With many entries the sum
# falls below the line, because it forgets entries as above. With the rule, the later digit is nearly always recalled
# for up to 8 entries (4 names).
#
# If each name appears once, $\beta = 1$ recalls *less* than the plain sum from 8 entries on, because a new entry takes
# away what older entries have stored along its key. A learned $\beta$ avoids this loss: training makes it about 0.1
# where nothing has to be overwritten, and about a half where each name appears twice.
