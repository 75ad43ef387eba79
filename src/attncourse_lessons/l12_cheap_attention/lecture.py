# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3 (ipykernel)
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Lecture @cheap_attention · Cheap attention
#
# *About 60 minutes, of which less than one is computing. You need self-attention and its cost
# ([lecture @self_attention](@self_attention)), masks ([lecture @masking](@masking)), and the cache of
# [lecture @many_heads](@many_heads). From school: that $e^{a-b} = e^a / e^b$.*
#
# When you have finished you will be able to measure what attention costs in time and in memory; to say for which models
# the square matters and for which it does not; to compute a softmax of scores that you never see all at once, and with
# it the inner loop of FlashAttention; to design a sparse pattern and say after how many layers everybody has heard of
# everybody; and to say of each cheaper attention what it gives up, with an experiment that shows it. In
# [assignment @cheap_attention](@cheap_attention/assignment) you build five of them.
#
# ## A handshake with everybody
#
# At a dinner for eight, everybody can shake hands with everybody. At a wedding for two hundred it takes the evening, and
# in a town nobody tries. Self-attention tries. Every position asks every position, $n^2$ questions for a text of $n$.
#
# *Estimate before you go on.* A novel has about 100,000 words. To read it as one sequence, a single head makes a table of
# $n^2$ weights of four bytes. Does it fit into your computer? And how much longer does it take than a page of 500 words?

# %%
try:
    from attncourse import viz

    from . import figures
    from .pattern_pad import pattern_pad
except ModuleNotFoundError:
    raise ImportError(
        "This page needs the attncourse package: open it with `make lab` in the course's folder, "
        "or choose a kernel of the environment in which you installed the course."
    ) from None

import math
import os
import statistics
import time
from dataclasses import replace

import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile
from torch.utils.flop_counter import FlopCounterMode

# %%
from attncourse.attention import MultiHeadAttention, attend, causal_mask
from attncourse.counting import attention_share, layer_cost, preset
from attncourse.efficient import (
    LinformerAttention,
    bigbird,
    dense_mask,
    linear_attend,
    linear_attend_step,
    linformer_attend,
    longformer,
    online_softmax,
    receptive_field,
    sliding_window,
    sliding_window_attend,
    tiled_attend,
)
from attncourse.recurrent import LinearRecurrence, linear_recurrence
from attncourse.training import descend
from attncourse.transformer import Block, TransformerConfig

torch.set_num_threads(1)  # so that times can be compared
os.environ["KINETO_LOG_LEVEL"] = "99"  # the profiler need not tell that it starts and stops

# %%
page, novel = 500, 100_000
print(f"a page:  {4 * page**2 / 2**20:>9,.1f} MiB")
print(f"a novel: {4 * novel**2 / 2**20:>9,.1f} MiB a head")
print(f"{(novel / page) ** 2:,.0f} times as much")

# %% [markdown]
# Forty gigabytes, for one head of one layer. Two hundred times the words, forty thousand times the table.
#
# Do not take a formula for a measurement, though. Two instruments are needed all through this lecture. Time is the
# easy one: run the candidates in turn, several rounds, and take each one's median, so that one hiccup of the machine
# hurts nobody. Memory is harder. What counts is the *peak*: the most bytes that were alive at once. Torch's profiler
# reports every allocation and every release, so a running sum of them will do.

# %%
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

# %% [markdown]
# Attention first, one head, $d = 64$, and beside it the products that make queries, keys and values out of $x$. We let
# $n$ double and look at the factor by which time and memory grow.

# %%
d, lengths = 64, [256, 512, 1024, 2048, 4096]
torch.manual_seed(0)
W = torch.randn(3, d, d) / d**0.5
runs = {"attention": attend, "projections": lambda x, *_: x @ W}
times, peaks = {name: {} for name in runs}, {name: {} for name in runs}
for n in lengths:
    inputs = torch.randn(3, n, d)                                         # q, k, v, each (n, d)
    for name, seconds in median_seconds(runs, *inputs).items():
        times[name][n] = 1000 * seconds
        peaks[name][n] = peak_bytes(runs[name], *inputs) / 2**20
viz.line_plot(times, "length n", "milliseconds", log_x=True, log_y=True)
viz.line_plot(peaks, "length n", "peak memory, MiB", log_x=True, log_y=True)

# %%
def slope(line):
    """By which power of n it grows, between the shortest and the longest."""
    (short, low), *_, (long, high) = line.items()
    return math.log(high / low) / math.log(long / short)


for what, lines in (("time", times), ("memory", peaks)):
    print(what, {name: f"n to the {slope(line):.2f}" for name, line in lines.items()})
assert 1.6 < slope(times["attention"]) < 2.7 and 1.9 < slope(peaks["attention"]) < 2.05
assert slope(times["projections"]) < 1.5 and 0.95 < slope(peaks["projections"]) < 1.05

# %% [markdown]
# The square is real. In a picture where both axes are logarithmic a power is a straight line, and its slope is the
# exponent. In memory it is 2 but for a little (the outputs, which grow like $n$, are in the peak as well), in time about
# 2, as nearly as a computer with caches allows.
#
# ## Must it go?
#
# One should know whether a thing is worth mending. A Transformer is not only attention. Count a multiplication and an
# addition as two operations: the four projections cost $8\,n d^2$ in a layer, the feed-forward network, with its usual
# width of $4d$, another $16\,n d^2$, and the pairs, their scores and their averages, $4\,n^2 d$. Of the whole, the pairs are
#
# $$\frac{4 n^2 d}{24\, n d^2 + 4 n^2 d} = \frac{n}{n + 6d}.$$
#
# > **On the slide.** Four decks say that attention's operations grow as $O(n^2 d)$, and stop there. [Lecture
# > 04](@self_attention) added the projections. Here is another way to see what is lost: double the length and ask
# > by which factor the *whole* attention layer grows. Two of the slides take $d$ = 1,000 and lengths of 30, 512 and
# > 50,000. If $O(n^2d)$ were all, each would be a factor of 4.

# %%
for n in (30, 512, 50_000):
    once, twice = (layer_cost("self-attention", size, 1000).multiply_adds for size in (n, 2 * n))
    print(f"from n = {n:>6,} to {2 * n:>7,}: {twice / once:.2f} times the operations")
    assert (twice / once < 2.1) == (n == 30) and (twice / once > 3.8) == (n == 50_000)

# %% [markdown]
# A sentence twice as long costs twice as much, as with any network. Only the book pays the square.
#
# The share $n / (n + 6d)$ falls as models get *wider*. *Guess:* in GPT-3's largest model, 12,288 wide and reading 2,048
# tokens, which part of all arithmetic goes to the famous square? And in its smallest, 768 wide?

# %%
names = ("gpt-3 small", "gpt-3 xl", "gpt-3 13b", "gpt-3 175b")
contexts = [2**power for power in range(9, 18, 2)]
share = {}
for name in names:
    config = preset(name).config
    widened = replace(config, max_length=contexts[-1])
    label = f"{name.removeprefix('gpt-3 ')}, d = {config.d_model:,}"
    share[label] = {n: 100 * attention_share(widened, n) for n in contexts}
viz.line_plot(share, "length n", "share of the pairs, %", log_x=True, low=0)
small, *_, large = share.values()
at_2048 = [100 * attention_share(preset(name).config, 2048) for name in names]
for name, part in zip(names, at_2048, strict=True):
    print(f"{name:>11}, at 2,048 tokens: {part:2.0f} %")
assert at_2048[0] > 20 and at_2048[-1] < 5 and large[contexts[-1]] > 50

# %% [markdown]
# Three per cent, against 23 in the smallest. Whoever makes the square of the largest GPT-3 vanish makes it three per
# cent cheaper. That is what the decks mean by "a larger and larger percent of compute is outside the self-attention
# portion". But contexts have grown too: 512 tokens in BERT (2018), 2,048 in GPT-3 (2020), 131,072 in Llama 3.1 (2024).
# With as many, GPT-3 would spend most of its arithmetic on pairs. So the question is never "is attention quadratic?" but
# "how long is $n$ beside $6d$?"
#
# That was arithmetic. Memory is another matter: a table of $n^2$ weights for every head is there even where its
# arithmetic is cheap. Let us begin with the remedy for that, because it costs nothing.
#
# ## A softmax of scores that you never see
#
# Why is there a table at all? Because softmax needs the sum over a whole row before it can give out the first share.
# Suppose that the scores of a row come in chunks, and each chunk is gone when the next arrives. What would you have to
# remember?
#
# If only the sum mattered, one number would do: the sum so far. But $e^{300}$ overflows, and so a careful softmax takes the
# row's largest score away first ([lecture @getting_ready](@getting_ready)). The largest of all is not known until the end. We
# know the largest *so far*, $m$, and the sum so far with $m$ taken away from each score, $\ell = \sum_j e^{s_j - m}$. When a
# chunk brings a larger one, $m'$, it turns out that the wrong number was taken away in all old terms. They need not be
# computed again:
#
# $$e^{s - m'} = e^{s - m} \cdot e^{m - m'}.$$
#
# All of them are wrong by *the same factor*, so the sum of them is too, and one product puts it right. This is the whole
# trick, and it is called **online softmax** (Milakov and Gimelshein 2018).

# %%
chunks = torch.tensor([1.0, 3.0]), torch.tensor([2.0, 300.0]), torch.tensor([301.0, 299.0])
largest, total = torch.tensor(-torch.inf), torch.tensor(0.0)
for s in chunks:
    larger = torch.maximum(largest, s.max())                     # m′
    total = total * (largest - larger).exp() + (s - larger).exp().sum()
    print(f"chunk {s.tolist()}: m = {largest:6.1f} → {larger:5.1f}, "
          f"old sum times {(largest - larger).exp():.2g}, ℓ = {total:.4f}")
    largest = larger
shares = torch.cat([(s - largest).exp() / total for s in chunks])
assert torch.allclose(shares, torch.cat(chunks).softmax(dim=0))
assert torch.allclose(shares, online_softmax(chunks))            # the package has it

# %% [markdown]
# Two numbers a row, whatever its length, and the two assertions say that the shares are softmax's. (They need a second
# look at the scores, of course: a share is given out when $m$ and $\ell$ are final.) When 300 turned up, all that had been
# summed before was multiplied by a factor so small that it printed as 0: next to $e^{300}$ it had never mattered.
#
# > **Check yourself.** What goes wrong if one forgets the factor, and on which data would nobody notice?
# > <details><summary>Answer</summary>Old terms count too much, by e to the power of m′ − m. If the largest score happens to
# > be in the first chunk, m never changes, the factor is always 1, and nobody notices. A test should put the largest score
# > last.</details>
#
# ## The same answer, in tiles
#
# Attention wants more than the shares, it wants the average $\sum_j e^{s_j} v_j \,/ \sum_j e^{s_j}$. The numerator is a sum
# over the keys like the denominator, so it can be carried along and scaled by the same factor. Then no weight needs to
# be kept at all. Take the keys a **tile** at a time:

# %%
def in_tiles(q, k, v, tile=128):
    largest = torch.full((len(q), 1), -torch.inf)                # (n, 1)
    total, output = torch.zeros(len(q), 1), torch.zeros(len(q), v.shape[-1])
    for keys, values in zip(k.split(tile), v.split(tile), strict=True):       # (tile, d) each
        scores = q @ keys.mT / math.sqrt(q.shape[-1])  # (n, tile)  all that exists of the table
        larger = torch.maximum(largest, scores.amax(dim=-1, keepdim=True))
        weights, shrink = (scores - larger).exp(), (largest - larger).exp()   # (n, tile), (n, 1)
        total = total * shrink + weights.sum(dim=-1, keepdim=True)
        output = output * shrink + weights @ values              # (n, d)
        largest = larger
    return output / total                                        # divided once, at the end


q, k, v = 3 * torch.randn(3, 2048, d)
assert torch.allclose(in_tiles(q, k, v), attend(q, k, v)[0], atol=1e-4)
with_table, with_tiles = (peak_bytes(attention, q, k, v) for attention in (attend, in_tiles))
print(f"peak with the table: {with_table / 2**20:4.1f} MiB")
print(f"peak with tiles:     {with_tiles / 2**20:4.1f} MiB")
assert with_tiles < 0.3 * with_table

# %% [markdown]
# No approximation was made, no position was left out, and the table is gone.
#
# > **On the slide.** A deck lists under the troubles of Transformers: "Need to store a large T × T matrix in memory". You
# > have just seen that there is no such need. Let $n$ double three times, and compare peaks: the table's grows with the
# > square, the tiles' in proportion.

# %%
peak = {"table": {}, "tiles": {}}
for n in (512, 1024, 2048, 4096):
    q, k, v = torch.randn(3, n, d)
    peak["table"][n] = peak_bytes(attend, q, k, v) / 2**20
    peak["tiles"][n] = peak_bytes(tiled_attend, q, k, v) / 2**20
print({name: f"n to the {slope(line):.2f}" for name, line in peak.items()})
assert slope(peak["table"]) > 1.9 and slope(peak["tiles"]) < 1.15

# %% [markdown]
# This is the inside of **FlashAttention** (Dao et al. 2022). What remains to be said is where it gets its *speed* from,
# since it multiplies no less. Count:

# %%
def multiply_adds(run, *inputs):
    with FlopCounterMode(display=False) as counter:
        result = run(*inputs)
    return counter.get_total_flops() // 2, result


q, k, v = torch.randn(3, 1024, d).requires_grad_()
counted = {}
for name, attention in (("table", lambda *qkv: attend(*qkv)[0]), ("tiles", tiled_attend)):
    forward, output = multiply_adds(attention, q, k, v)
    back, _ = multiply_adds(torch.autograd.grad, output.sum(), (q, k, v))
    counted[name] = forward / (1024**2 * d), back / (1024**2 * d)
    print("{}: forward {:.0f} n²d, backward {:.0f} n²d".format(name, *counted[name]))
assert counted == {"table": (2, 4), "tiles": (2, 5)}

# %% [markdown]
# Forward the two are equal, and backward the tiles do *more*: the gradient needs the weights, they were not kept, and so
# they are computed again, one product more. (The sum $\ell$ and the largest $m$ of each row are kept, so it takes no
# second pass to know them.) More arithmetic, and yet faster. The reason is what arithmetic waits for.
#
# A GPU has a small fast memory beside its arithmetic and a large slow one further off. The usual way writes the scores
# to the slow one, reads them for the softmax, writes the weights, and reads them for the average. FlashAttention's
# kernel (a kernel is a program that runs on the GPU) cuts the queries into tiles as well, and takes all keys and values
# past each of them, tile by tile, as above; the scores of two tiles never leave the fast memory. Count the numbers that
# pass between the two:

# %%
def moved_with_table(n, d):
    return 4 * n * d + 4 * n**2               # q, k, v in, output out; scores, weights out and in


def moved_in_tiles(n, d, tile=256):
    return 2 * n * d + n // tile * 2 * n * d  # q in, output out; all k and v for each tile of q


for n in (1024, 4096, 16384):
    once, tiled = moved_with_table(n, 64), moved_in_tiles(n, 64)
    print(f"n = {n:>6,}: {once / 1e6:8,.1f} million numbers with a table, "
          f"{tiled / 1e6:6,.1f} in tiles")
    assert once > 6 * tiled

# %% [markdown]
# So FlashAttention is exact, quadratic in time, linear in memory, and fast because it moves less. On a GPU that is most of
# what one feels. (`torch.nn.functional.scaled_dot_product_attention` has kernels of this kind, for GPUs and for the CPU;
# it will take part in the race at the end.)
#
# ## Nothing twice
#
# A second saving that changes nothing: do not compute again what has not changed. [Lecture @writing](@writing) timed a
# translator with a cache of keys and values and without; [lecture @many_heads](@many_heads) counted the cache's bytes and
# shared them among groups of heads. Here is the arithmetic. To write $n$ tokens without a cache, token $t$ pays for $t$
# projections and $t^2$ pairs. With it, for one and $t$. *What powers of n do the sums come to?*

# %%
def write_without(X):
    outputs = []
    for t in range(1, len(X) + 1):
        q, k, v = X[:t] @ W                                      # (t, d) each, all of them again
        outputs.append(attend(q, k, v, causal_mask(t))[0][-1])
    return torch.stack(outputs)


def write_with(X):
    keys, values, outputs = X.new_empty(0, d), X.new_empty(0, d), []
    for x in X.split(1):                                         # (1, d)  the new one alone
        q, k, v = x @ W
        keys, values = torch.cat([keys, k]), torch.cat([values, v])           # (t, d)
        outputs.append(attend(q, keys, values)[0][0])            # no mask: nothing later is there
    return torch.stack(outputs)

# %%
paid = {"without a cache": {}, "with a cache": {}}
for n in (32, 64, 128, 256):
    X = torch.randn(n, d)
    paid["without a cache"][n], again = multiply_adds(write_without, X)
    paid["with a cache"][n], kept = multiply_adds(write_with, X)
    assert torch.allclose(again, kept, atol=1e-4)
viz.line_plot(paid, "tokens written", "multiply-adds in all", log_x=True, log_y=True)
factor = {name: line[256] / line[128] for name, line in paid.items()}
for name, times_as_much in factor.items():
    print(f"{name}: doubling from 128 to 256 costs {times_as_much:.1f} times as much")
assert factor["with a cache"] < 3.5 and factor["without a cache"] > 5.5

# %% [markdown]
# The same outputs. Without a cache the doubling costs more than four times as much, on the way to eight ($\sum_t t^2
# \approx n^3/3$); with it, between two and four ($\sum_t t \approx n^2/2$, beside projections that grow like $n$).
#
# A cache trades arithmetic for memory, and long texts run out of that next. Some of what follows shrinks the cache too: a
# window need keep only its own keys, and a recurrence keeps one state.
#
# ## Fewer handshakes
#
# So far every pair has met. Now we forbid some. The simplest rule is a **window**: a position looks at itself and `width`
# neighbours on each side (lecture @self_attention called it restricted attention). The obvious way to build it is a mask. *Before you
# run the cell:* attention under a mask that allows a window of 64 on each side, of 2,048: how much faster is it than full
# attention?

# %%
n, width = 2048, 64
q, k, v = torch.randn(3, n, d)
mask = dense_mask(sliding_window(width), n)  # (n, n)  True where |i − j| ≤ width
runs = {
    "full": lambda q, k, v: attend(q, k, v)[0],
    "full, under a mask": lambda q, k, v: attend(q, k, v, mask)[0],
    "window, in blocks": lambda q, k, v: sliding_window_attend(q, k, v, width),
}
seconds = median_seconds(runs, q, k, v, rounds=5)
for name, run in runs.items():
    memory = peak_bytes(run, q, k, v) / 2**20
    print(f"{name:>19}: {1000 * seconds[name]:6.1f} ms, {memory:6.1f} MiB")
*_, masked, in_blocks = (run(q, k, v) for run in runs.values())
assert torch.allclose(masked, in_blocks, atol=1e-5)
assert seconds["full, under a mask"] > seconds["full"] > 2 * seconds["window, in blocks"]

# %% [markdown]
# It is slower. A mask forbids a pair after its score has been computed, and the mask itself has to be read, too. Sparse
# attention is cheap only if the forbidden scores are *never computed*, and for this the pattern must lie in blocks that a
# matrix product can take or leave. `sliding_window_attend` cuts the queries into blocks of `width` and gives each the three
# blocks of keys that its window can touch. Same numbers, and the time is that of three blocks.
#
# But what does a window cost the *reader*? Nothing gets further than `width` positions in one layer. Stacked layers pass
# things on, and how far depends on the pattern. Here is squared paper on which to find out. Rows ask, columns answer; the
# row with the mark is the one whose hearing is drawn on the right, after one to four layers. (A residual connection lets
# everybody keep what they had.)
#
# Begin with *window* and count layers until everybody hears of everybody. Then try to reach everybody in **two** layers
# with as few pairs as you can, by hand. Then compare with *window + global* and *BigBird*. And look at *dilated*: who will
# never be heard, and why? (If nothing answers to a click, you are looking at a still picture: run the cell.)

# %%
pad = pattern_pad("window")
pad

# %% [markdown]
# Some things that the pad shows:
#
# * A **window** of 2 needs eight layers for sixteen positions: the news walks.
# * A **dilated** window has as many keys and reaches three times as far, but with the same gap everywhere position 9 hears
#   only of every third position, for ever. Those who use dilation mix gaps, by layer or by head, as Longformer does.
# * One **global** token, which looks at all and is looked at by all, makes everything two layers away: up to it, and down
#   again. It costs one row and one column. (In Longformer these are tokens such as `[CLS]`, or the words of a question.)
# * **Random** keys do something of the kind without a centre: in a random graph everybody is near everybody. **BigBird**
#   (Zaheer et al. 2020) has all three, window, global, random.
# * Random pairs touch nearly every *block*, and blocks are what hardware can skip. Hence BigBird's implementation draws
#   whole blocks in place of single keys.
# * Where a text is written token by token, the future must be cut off as well. *Strided* is such a pattern (Child et al.
#   2019): the positions just before, and every fourth.
#
# Is what can be heard also learned? Here is a task that asks for nothing but distance. In a line of 32 letters one letter
# of the first half is marked, and the *last* position must name it.

# %%
LETTERS = 8


def marked_lines(batch, generator, n=32):
    letters = torch.randint(LETTERS, (batch, n), generator=generator)     # (batch, n)
    place = torch.randint(n // 2, (batch, 1), generator=generator)  # somewhere in the first half
    tokens = letters.scatter_add(1, place, torch.full_like(place, LETTERS))   # marked: 8 to 15
    return tokens, letters.gather(1, place).squeeze(1)                    # and the answer, (batch,)

# %%
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

# %%
def learn(model, draw, steps, lr, batch=32, seed=0):
    generator = torch.Generator().manual_seed(seed)

    def losses():
        while True:
            *seen, answers = draw(batch, generator)
            yield nn.functional.cross_entropy(model(*seen).flatten(0, -2), answers.flatten())

    descend(model, losses(), steps, lr, progress=False)
    return model


@torch.no_grad()
def right(model, draw, batch=2000):
    *seen, answers = draw(batch, torch.Generator().manual_seed(99))
    return (model(*seen).argmax(dim=-1) == answers).float()      # 1 where right

# %% [markdown]
# Four readers of two layers each: full attention, which must show that the task can be learned at all; a window of 2;
# the same with one global token; and BigBird with a narrower window and two random keys. The pad's rule predicts the
# outcome: whom has the last position heard of after two layers? *Say what each will score.* Guessing gives one in
# eight.

# %%
patterns = {
    "full": sliding_window(31),
    "window": sliding_window(2),
    "window + global": longformer(2, 1),
    "BigBird": bigbird(32, 1, 1, 2),
}
found = {}
for name, pattern in patterns.items():
    mask = dense_mask(pattern, 32)
    heard = receptive_field(mask, layers=2)[-1, :16].float().mean()       # by the last, of 1 to 16
    torch.manual_seed(0)
    finder = learn(Finder(mask), marked_lines, 350, 1e-2)
    found[name] = right(finder, marked_lines).mean().item()
    print(f"{name:>15}: {mask.float().mean():4.0%} of the pairs, "
          f"hears {heard:4.0%}, right {found[name]:4.0%}")
assert found["window"] < 0.2 and found["full"] > 0.9
assert min(found["window + global"], found["BigBird"]) > 0.7

# %% [markdown]
# The window never had a chance: nothing of the first half gets to the end. (With four layers more it would hear twelve
# positions back, which is still too few.) With one token that everybody sees, a fifth of the pairs suffices. That it
# *can* hear does not mean that it learns at once, though: two hops are harder to find by gradient than one. We
# started each from ten other seeds: with the global token and with BigBird one run of the ten stopped at about 80 per
# cent, and with full attention none did.
#
# Your own pattern may try: draw one on the pad, and run this in a cell of your own.
#
# ```python
# def short_lines(batch, generator):
#     return marked_lines(batch, generator, n=16)
#
#
# right(learn(Finder(pad.mask, n=16), short_lines, 350, 1e-2), short_lines).mean()
# ```
#
# > **Check yourself.** A window of `width` on each side needs about $n$ / `width` layers across the text. Why does a *dilated*
# > window with gaps of 1, 2, 4, 8, … in successive layers need only about $\log_2 n$, with the same keys a layer?
# > <details><summary>Answer</summary>Each layer doubles the distance over which news travels, as in a stack of
# > convolutions with growing dilation, and all positions in between are reached because every distance is a sum of
# > powers of two.</details>
#
# ## Fewer to shake hands with
#
# Another idea forbids nobody. In place of $n$ keys, let there be $k$ *mixtures* of keys, with $k$ much less than $n$, and as
# many mixtures of values. **Linformer** (Wang et al. 2020) learns the two mixing matrices:
#
# $$\operatorname{softmax}\!\left(\frac{Q\,(EK)^\top}{\sqrt{d}}\right) F V, \qquad E, F \in \mathbb{R}^{k \times n}.$$
#
# The table is $n \times k$. The reason given is that attention's table has low **rank**: that its $n$ rows are combinations of
# far fewer. If that is so, little is lost. Is it?
#
# > **On the slide.** A deck gives as the key idea: "The attention matrix $e_{i,j}$ can be approximated by a low-rank matrix".
# > In the deck, $e_{ij}$ are the *scores*, and of them it is no news: $QK^\top$ has rank $d$ at most, exactly. The claim of the
# > paper is about the *weights* after the softmax, and softmax does not keep rank. Look:

# %%
torch.manual_seed(0)
scores = 3 * torch.randn(64, 8) @ torch.randn(8, 64) / math.sqrt(8)       # (n, n), with d = 8
print("rank of the scores: ", torch.linalg.matrix_rank(scores).item())
print("rank of the weights:", torch.linalg.matrix_rank(scores.softmax(dim=-1), rtol=1e-5).item())
assert torch.linalg.matrix_rank(scores) == 8
assert torch.linalg.matrix_rank(scores.softmax(dim=-1), rtol=1e-5) > 32

# %% [markdown]
# So one has to look into a trained model. We want one whose heads we understand. It reads a line of 32 letters, one of
# them marked, and at *every* position it has three questions to answer: which letter is marked, which letter stands
# **before** me, and which stands at my **mirror** place, as far from the end as I am from the beginning. One layer, four heads.

# %%
def three_questions(batch, generator, n=32):
    letters = torch.randint(LETTERS, (batch, n), generator=generator)
    place = torch.randint(n, (batch, 1), generator=generator)
    tokens = letters.scatter_add(1, place, torch.full_like(place, LETTERS))
    mark = letters.gather(1, place).expand(-1, n)                # (batch, n)  the same for all
    asked = [mark, letters.roll(1, 1), letters.flip(1)]
    return tokens, torch.stack(asked, dim=-1)                    # (batch, n, 3)

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

# %%
torch.manual_seed(0)
clerk = learn(Clerk(MultiHeadAttention(32, n_heads=4)), three_questions, 400, 1e-2)
answers = right(clerk, three_questions, 500).mean(dim=(0, 1))             # (3,)
print("mark {:.0%}, before {:.0%}, mirror {:.0%}".format(*answers.tolist()))
assert answers.min() > 0.95

# %%
tokens, _ = three_questions(50, torch.Generator().manual_seed(5))
clerk(tokens, weights=(seen := []))
maps = seen[0].detach()                                                   # (50, 4, n, n)
figures.weight_maps({f"head {h}": maps[0, h] for h in range(4)})

# %% [markdown]
# You can read off who does what. There is a *column*: whoever asks, this head looks at the mark. There is a diagonal, moved
# by one: the letter before. And there is the diagonal from the other corner: the mirror. With four heads for three
# questions, one question may have two.
#
# From how few rows could each of these tables be mixed? The **singular values** say it: a table of rank $r$ has $r$
# that are not zero, and the squares of the first $k$, as a share of all, say how much of the table the best approximation
# of rank $k$ can hold. *Guess for the column and for the diagonals.*

# %%
values = torch.linalg.svdvals(maps) ** 2  # (50, 4, 32)  largest first
kept = values.cumsum(dim=-1) / values.sum(dim=-1, keepdim=True)           # (50, 4, 32)
kept = kept.mean(dim=0)                                                   # (4, 32)
ks = [1, 2, 4, 8, 16, 32]
lines = {f"head {h}": {k: 100 * kept[h, k - 1].item() for k in ks} for h in range(4)}
viz.line_plot(lines, "number of singular values k", "share of their squares, %", log_x=True, low=0)
column, diagonal = kept[:, 0].max().item(), kept[:, 7].min().item()
print(f"best head with 1 value: {column:.0%};  worst head with 8: {diagonal:.0%}")
assert column > 0.9 and diagonal < 0.5

# %% [markdown]
# The column is rank one: every row says the same. A diagonal has thirty-two singular values of equal size, and every one of
# them counts, because every row says something else. So the answer to "is attention low-rank?" is: *it depends on what the
# head is for*. One in which all positions look at the same is; one that gives each position a partner of its own is not.
#
# If we have understood this, we can predict. Give Linformer the same three questions, with $k$ from 4 to 16, and the
# same training. *Which of the three will it answer?* And a window of 2?

# %%
def scores_of(attention):
    torch.manual_seed(0)
    clerk = learn(Clerk(attention), three_questions, 400, 1e-2)
    return right(clerk, three_questions, 500).mean(dim=(0, 1)).tolist()


class Windowed(MultiHeadAttention):
    def forward(self, x):
        return super().forward(x, mask=dense_mask(sliding_window(2), x.shape[1]))


table = {"full": answers.tolist(), "window 2": scores_of(Windowed(32, n_heads=4))}
for k in (4, 8, 16):
    table[f"Linformer, k = {k}"] = scores_of(LinformerAttention(32, 4, n_max=32, k=k))
questions = ("mark", "before", "mirror")
viz.grouped_bars(
    {question: {name.replace(", ", "\n"): row[i] for name, row in table.items()}
     for i, question in enumerate(questions)}, y_name="share right", chance=1 / LETTERS,
)

# %%
for name, row in table.items():
    print(f"{name:>17}:", "  mark {:4.0%}  before {:4.0%}  mirror {:4.0%}".format(*row))
assert table["Linformer, k = 4"][0] > 0.95 > 0.6 > max(table["Linformer, k = 4"][1:])
assert table["window 2"][1] > 0.9 > 0.5 > max(table["window 2"][0], table["window 2"][2])

# %% [markdown]
# Four mixtures find the mark without fail. Of the diagonals they give a blurred copy, better with more mixtures. The window
# does the opposite: it has what is near and nothing else. (It misses one position in thirty-two, the first, whose
# "letter before" we took from the end of the line.)
#
# Wang et al. looked at RoBERTa, on real text, and found that few singular values hold most of most tables, more so in
# higher layers. Ours is a toy whose questions we chose, so it says nothing about how many heads in a large model are of
# which kind. It says what to expect of each kind. Two more limits come with the method: $E$ and $F$ have a column for each
# position, so the length is fixed beforehand; and each mixture holds the future, so it cannot be causal.
#
# ## No handshakes at all
#
# The last idea takes the softmax away. Suppose that the weight of key $j$ for query $i$ were not $e^{q_i \cdot k_j}$ but
# $\phi(q_i) \cdot \phi(k_j)$, a product of something of the query and something of the key. Then the sum can be pulled apart:
#
# $$\sum_j \bigl(\phi(q_i) \cdot \phi(k_j)\bigr) v_j^\top = \phi(q_i)^\top \underbrace{\sum_j \phi(k_j)\, v_j^\top}_{S}.$$
#
# $S$ is a $d \times d$ matrix that does not depend on $i$. Compute it once, and every query takes a product with it:
# $n$ questions, no pairs. The shares of a row must still sum to one, so the result is divided by the sum of the
# weights, $\phi(q_i)^\top z$ with $z = \sum_j \phi(k_j)$, which is pulled apart in the same way. This is **linear
# attention** (Katharopoulos et al. 2020, with $\phi(x) = \operatorname{elu}(x) + 1$).
#
# Now make it causal: query $i$ may use keys up to $i$, so $S$ and $z$ get one term more at each step. What would you
# call a network that carries a fixed-size state from position to position, adds something of the input to it, and reads
# its output off it?

# %%
q, k, v = torch.randn(3, 200, 8)                                          # (n, d)
at_once = linear_attend(q, k, v, causal=True)                             # (n, d)
state, step_by_step = None, []
for t in range(200):
    # S ← S + φ(k) vᵀ,  z ← z + φ(k),  output φ(q)ᵀ S / φ(q)ᵀ z
    output, state = linear_attend_step(q[t], k[t], v[t], state)
    step_by_step.append(output)
assert torch.allclose(torch.stack(step_by_step), at_once, atol=1e-4)
print("the state after 200 tokens:", tuple(state.s.shape), "and", tuple(state.z.shape))

# %% [markdown]
# A recurrent network, and the same numbers both ways. "Transformers are RNNs" is the paper's title. RNNs are back, as two
# decks say, and both show how much time a model has spent when it has written $n$ tokens: a curve that bends for
# Transformers, a straight line for RWKV, a relative of this. Let us see whether eight heads do the same. Attention has its
# cache, so nothing is computed twice. *Which will be ahead after 250 tokens, and which after 2,000?*

# %%
def cached_attend_step(q, k, v, cache=None):                     # (heads, d) each
    new = torch.stack([k, v]).unsqueeze(2)                       # (2, heads, 1, d)
    cache = new if cache is None else torch.cat([cache, new], dim=2)      # (2, heads, t, d)
    return attend(q.unsqueeze(1), *cache)[0], cache


spent = {"attention with a cache": {}, "linear attention": {}}
for name, step in zip(spent, (cached_attend_step, linear_attend_step), strict=True):
    state, begun = None, time.process_time()
    for t in range(1, 2001):
        _, state = step(*torch.randn(3, 8, d), state)
        if t in (250, 500, 1000, 1500, 2000):
            spent[name][t] = time.process_time() - begun
viz.line_plot(spent, "tokens written", "seconds in all", low=0)
cached, recurrent = (line[2000] / line[1000] for line in spent.values())
print(f"twice the tokens cost {cached:.1f} and {recurrent:.1f} times as much")
assert cached > 1.15 * recurrent

# %% [markdown]
# Even with a cache a token costs more the later it comes: all keys before it must be looked at (and here, where the cache
# is joined anew at each step, be copied). The state is as large in the end as in the beginning, and so is the price of a
# token. At first there is little between the two.
#
# Writing is one thing, training another, where the whole text is there at once. The recurrences that are back (RWKV and Mamba
# are the names in the decks) differ in one thing from those of [lecture @bottleneck](@bottleneck):
# their step is *linear* in the state, so it need not be taken one at a time. Two steps in a row, $h \to a h + b$ and $h \to
# a' h + b'$, are one step of the same kind, $h \to a'a\,h + (a'b + b')$. Join neighbours, then neighbours of neighbours, and
# after $\lceil \log_2 n \rceil$ rounds all states are there. The package's `linear_recurrence` does this.
#
# > **On the slide.** One deck says of attention that the "number of unparallelizable operations does not increase sequence
# > length"; a *with* has been lost, perhaps in the transcription. Here are the steps that must be taken one after the other,
# > and between attention's one and the old recurrence's $n$ there is now a third.

# %%
def rounds(n):
    """How many times linear_recurrence goes round: each doubles the span that is joined."""
    span, count = 1, 0
    while span < n:
        span, count = 2 * span, count + 1
    return count


decay, inputs = torch.rand(1000, 4), torch.randn(1000, 4)                 # (n, d)
h, loop = torch.zeros(4), []
for a, b in zip(decay, inputs, strict=True):
    h = a * h + b
    loop.append(h)
assert torch.allclose(linear_recurrence(decay, inputs), torch.stack(loop), atol=1e-5)
for n in (10, 1000, 100_000):
    steps = [layer_cost(kind, n, 64).sequential_steps for kind in ("self-attention", "recurrent")]
    print(f"n = {n:>7,}: attention {steps[0]}, linear recurrence {rounds(n):>2}, "
          f"recurrence {steps[1]:>7,}")
    assert steps == [1, n] and rounds(n) == math.ceil(math.log2(n))

# %% [markdown]
# Does such a network learn over a distance? Give it the line with the marked letter, where the window failed. It has one
# layer, reads from left to right, and must carry the letter to the end in its state. The layer is a GRU whose gate looks at
# the input alone (Feng et al. 2024): $h_t = (1 - z_t) \odot h_{t-1} + z_t \odot W x_t$, with a gate $z_t$ between 0 and 1
# that is computed from $x_t$. Where it is 0 the state stays as it is.

# %%
class Carrier(nn.Module):
    def __init__(self, d=32):
        super().__init__()
        self.token, self.layer = nn.Embedding(16, d), LinearRecurrence(d)
        self.read = nn.Linear(d, LETTERS)
        nn.init.constant_(self.layer.gate.bias, -3.0)            # lets little in at first

    def forward(self, tokens):
        return self.read(self.layer(self.token(tokens))[:, -1])  # (batch, letters)


torch.manual_seed(0)
carrier = learn(Carrier(), marked_lines, 200, 1e-2)
found["linear recurrence"] = right(carrier, marked_lines).mean().item()
print({name: f"{share:.0%}" for name, share in found.items()})
assert found["linear recurrence"] > 0.95

# %% [markdown]
# No trouble at all. One letter fits into a state. What if it is not known beforehand *which* thing will be asked for?
# Lay $m$ cards on the table, each with a name and a number on it, and then ask for the number of one name. Softmax
# attention keeps all $m$ cards in sight. Linear attention has to keep them in $S$, of $d \times d$ numbers, whether $m$
# is 2 or 64. *Draw the two curves* of accuracy against $m$, and a third for linear attention with $d$ four times as
# large. Chance is one in eight.

# %%
NAMES = 128


def cards(batch, generator, m=None):
    m = m or int(torch.randint(2, 65, (1,), generator=generator))  # in training any number
    names = torch.rand(batch, NAMES, generator=generator).argsort(dim=-1)
    names = names[:, :m]                                           # (batch, m)  none twice
    numbers = torch.randint(LETTERS, (batch, m), generator=generator)  # (batch, m)
    asked = torch.randint(m, (batch, 1), generator=generator)
    return names, numbers, names.gather(1, asked), numbers.gather(1, asked)

# %%
class Recall(nn.Module):
    def __init__(self, attention, d=16):
        super().__init__()
        self.query, self.key = nn.Embedding(NAMES, d), nn.Embedding(NAMES, d)
        self.value, self.read = nn.Embedding(LETTERS, d), nn.Linear(d, LETTERS)
        self.attention = attention

    def forward(self, names, numbers, asked):
        q, k, v = self.query(asked), self.key(names), self.value(numbers)
        return self.read(self.attention(q, k, v))                # (batch, 1, numbers)

# %%
recalled, ms = {}, (2, 4, 8, 16, 32, 64)
kinds = {
    "softmax, d = 16": (lambda *qkv: attend(*qkv)[0], 16),
    "linear, d = 16": (linear_attend, 16),
    "linear, d = 64": (linear_attend, 64),
}
for name, (attention, width) in kinds.items():
    torch.manual_seed(0)
    model = learn(Recall(attention, width), cards, 600, 5e-2, batch=64)
    hits = {m: right(model, lambda b, g, m=m: cards(b, g, m), 1000) for m in ms}
    recalled[name] = {m: 100 * hit.mean().item() for m, hit in hits.items()}
viz.line_plot(recalled, "cards on the table", "right, %", log_x=True, low=0)

# %%
exact, narrow, wide = recalled.values()
assert exact[64] > 95 and narrow[2] > 90, "few cards: no difference"
assert narrow[64] < 60 and wide[64] < 80, "many cards: the state is full"
assert narrow[32] + 5 < wide[32], "and a wider one is full later"

# %% [markdown]
# With two cards they are alike. Then the state fills up: cards are added on top of each other, and what is read off is
# a mixture. A wider state puts it off and does not prevent it. (Twice the training, which we tried, lifts the wide
# one's curve further and the narrow one's hardly at all.) It is the single vector of lecture @bottleneck again, better packed. A
# cache that grows is expensive *because* it forgets nothing, and recalling exactly what stood in the text is what
# attention is best at. (Newer recurrences choose what to forget, and many models mix a few attention layers among
# recurrent ones. The trade between the size of the state and what it can recall remains: Arora et al. 2024.)
#
# > **Check yourself.** Linear attention costs $O(n d^2)$ and softmax attention $O(n^2 d)$. With $d = 128$ a head, from
# > which $n$ on can the first be the cheaper one, by arithmetic? Would you see it on a sentence?
# > <details><summary>Answer</summary>When n is more than about d, so from some 128 on. On a sentence of thirty words it is
# > the dearer of the two, and there the projections outweigh both.</details>
#
# ## The race
#
# All of them now, on equal terms: one head, $d = 64$, no gradients, windows of 64 on each side, 64 mixtures, tiles of 128.
# The GRU has to take one step after the other. *Two guesses:* who is fastest at 256, and who needs the least memory at 4,096?

# %%
E, F = torch.randn(2, 64, 4096) / 64                                      # (k, n_max) each
torchs_tiles, gru = nn.functional.scaled_dot_product_attention, nn.GRU(d, d, batch_first=True)
racers = {
    "full": lambda q, k, v: attend(q, k, v)[0],
    "tiles, torch's": lambda *qkv: torchs_tiles(*(x[None] for x in qkv)),
    "tiles, by hand": tiled_attend,
    "window": lambda q, k, v: sliding_window_attend(q, k, v, 64),
    "Linformer": lambda q, k, v: linformer_attend(q, k, v, E, F),
    "linear attention": lambda q, k, v: linear_attend(q, k, v, causal=True),
    "linear recurrence": lambda q, k, v: linear_recurrence(torch.sigmoid(q), k),
    "GRU": lambda q, k, v: gru(q)[0],
}
times, peaks = {name: {} for name in racers}, {name: {} for name in racers}
for n in lengths:
    inputs = torch.randn(3, 1, n, d)                                      # (batch, n, d) each
    with torch.no_grad():
        for name, seconds in median_seconds(racers, *inputs).items():
            times[name][n] = 1000 * seconds
            peaks[name][n] = peak_bytes(racers[name], *inputs) / 2**20

# %%
viz.line_plot(times, "length n", "milliseconds", log_x=True, log_y=True)
viz.line_plot(peaks, "length n", "peak memory, MiB", log_x=True, log_y=True)

# %%
def crossing(line, other):
    """The shortest measured length from which on `line` stays below `other`."""
    below = [n for n in lengths if all(line[m] < other[m] for m in lengths if m >= n)]
    return f"{below[0]:,}" if below else "beyond"


print("fastest at 256:", min(times, key=lambda name: times[name][256]),
      "  least memory at 4,096:", min(peaks, key=lambda name: peaks[name][4096]))
print(f"{'':>18}  time grows  memory grows   faster than full from   smaller from")
for name in racers:
    powers = f"n^{slope(times[name]):4.2f}       n^{slope(peaks[name]):4.2f}"
    ahead = crossing(times[name], times["full"]), crossing(peaks[name], peaks["full"])
    print(f"{name:>18}  {powers}" + (f"{ahead[0]:>20}{ahead[1]:>18}" if name != "full" else ""))
for name in ("window", "Linformer", "linear attention", "linear recurrence"):
    assert slope(times[name]) < 1.5 and slope(peaks[name]) < 1.1
    assert times[name][4096] < times["full"][4096] / 4
    assert peaks[name][4096] < peaks["full"][4096] / 5
assert slope(peaks["tiles, by hand"]) < 1.15 and slope(times["tiles, by hand"]) > 1.3
assert times["GRU"][256] > 2 * times["full"][256]
assert min(peaks, key=lambda name: peaks[name][4096]) == "tiles, torch's"

# %% [markdown]
# Two families part. Full attention and the tiles go up steeply in time, though the tiles' memory lies with the cheap ones.
# Everything else grows about in proportion to $n$. The crossing points in the table say from where on each is worth it, on the
# machine that built this page: some are ahead at the shortest length that we measured, others must first earn back their
# cutting and gathering. The GRU is linear too, and at first many times slower than the square, because it waits for itself.
# And the least memory is not that of an approximation. (On a GPU all of this moves: large products are nearly free there,
# waiting is dearer still, and the crossing points lie at greater lengths.)
#
# ## What one pays with
#
# | | time | memory | exact? | what it gives up | shown by |
# |---|---|---|---|---|---|
# | tiles (FlashAttention) | $n^2$ | $n$ | yes | nothing; a kernel must be written | equal outputs |
# | cache | $n^2$ to write $n$ | $n$ | yes | nothing; memory | equal outputs |
# | window, dilated | $n \cdot w$ | $n \cdot w$ | no | what is far, within a few layers | the marked letter |
# | + global, random (BigBird) | $n \cdot w$ | $n \cdot w$ | no | directness: two hops, learned more slowly | the marked letter |
# | Linformer | $n \cdot k$ | $n \cdot k$ | no | a partner for each; causality; length | the three questions |
# | linear attention, recurrences | $n$ | $n$, state fixed | no | exact recall of many things | the cards |
#
# Two decks sum up the practice: production language models keep the quadratic cost, since "the cheaper methods tend not
# to work as well at scale", and engineering has made the square bearable. You have now measured both halves of that
# sentence, on a small scale. The exact savings, tiles and the cache, are everywhere. Of those that change the answer,
# the ones that have lasted are mixed with full attention: windows in most layers and full attention in some, or
# recurrent layers with a few of attention. A model seldom needs everybody's handshake in every layer. It needs it
# somewhere.
#
# > **Check yourself.** (1) A model has windows of 512 in all layers but every sixth, which is full. Which of the three
# > questions of our clerk can it answer? (2) You cache keys and values for a text that is written under a window of 512. How
# > many do you keep? (3) Why can the tiles of FlashAttention be skipped altogether in half of the cases under a causal mask?
# > <details><summary>Answers</summary>(1) All three: the full layers see the mark and the mirror, the windows what is near.
# > (2) 512 and the token's own: older ones can never be looked at again, so the cache stops growing. (3) A tile whose keys
# > all come after its queries has only scores of −∞; nothing in it counts, and the sums need not even be
# > rescaled.</details>
#
# **In the package.** `attncourse.efficient` has all of these: the patterns, which can be joined by `any_of` and `all_of` and
# written out by `dense_mask`; `receptive_field`, which the pad computes; `sliding_window_attend`, `linformer_attend`,
# `linear_attend`, `online_softmax`, `tiled_attend`; and `flex_attend`, which compiles any pattern. `attncourse.recurrent` has
# `linear_recurrence`. `python benchmarks/attention.py` runs the race with gradients, on a GPU if there is one.
#
# **Read next.** Dao et al., *FlashAttention: fast and memory-efficient exact attention with IO-awareness* (2022): section 3.1
# and algorithm 1. Milakov and Gimelshein, *Online normalizer calculation for softmax* (2018), section 3. Beltagy, Peters and
# Cohan, *Longformer: the long-document Transformer* (2020), section 3. Zaheer et al., *Big Bird: Transformers for longer
# sequences* (2020), section 2. Wang et al., *Linformer: self-attention with linear complexity* (2020), sections 3 and 4, with
# the heads of this lecture in mind. Katharopoulos et al., *Transformers are RNNs* (2020), section 3. Child et al., *Generating
# long sequences with sparse Transformers* (2019). Feng et al., *Were RNNs all we needed?* (2024), for the linear
# recurrence. Arora et al., *Simple linear attention language models balance the recall-throughput tradeoff* (2024). Tay et
# al., *Efficient Transformers: a survey* (2020), for the rest of the zoo.
