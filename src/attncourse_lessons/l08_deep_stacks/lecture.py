# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3 (ipykernel)
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Lecture @deep_stacks · Deep stacks: residual connections and layer normalisation
#
# *About 57 minutes, including one minute of computing. You need the two sublayers of a Transformer, attention ([lecture
# @self_attention](@self_attention), [lecture @many_heads](@many_heads)) and the feed-forward network ([lecture
# @masking](@masking)), and the chain rule from [lecture @bottleneck](@bottleneck): a gradient is a product with one
# factor for each step.*
#
# After this lecture you can
#
# * say what happens to a signal and to its gradient in a deep stack, with and without **residual connections**;
# * write down **LayerNorm** and **RMSNorm**, say what they do to a vector, and recognise a misprint in a formula;
# * choose between **pre-norm** and **post-norm**, and say what the choice costs;
# * explain why a **warm-up** helps post-norm, and name an experiment that could have refuted the explanation;
# * describe later variants: sandwich norm, res-post-norm, **QK-norm**, DeepNorm, ReZero;
# * write a **structural test** that finds a bug which the loss does not reveal.
#
# Near the end we meet a block from published lecture slides, a *deck*. It runs, it learns, and it is wrong. Its loss
# does not tell us so, but a three-line test does.
#
# ## The degradation problem: six blocks against one
#
# Attention followed by a feed-forward network is a **block**, and each of its two parts is a **sublayer**. If one block
# learns a task, six blocks should do no worse, because five of them could pass their input on nearly unchanged. Our
# task is the one from [lecture @masking](@masking): to spell all numbers below a thousand, letter by letter.

# %% tags=["hide-input"]
try:
    from attncourse.attention import MultiHeadAttention

    from . import figures
except ModuleNotFoundError:
    raise ImportError(
        "This page needs the attncourse package: open it with `make lab` in the course's "
        "folder, or choose a kernel of the environment in which you installed the course."
    ) from None

import math
from itertools import pairwise
from statistics import mean, median, stdev

import torch
import torch.nn.functional as F
from torch import nn

from attncourse.data.number_words import spelled_numbers
from attncourse.layers import FeedForward, LayerNorm, RMSNorm
from attncourse.transformer import Block, TransformerConfig, initialise
from attncourse_lessons.results import measured

torch.set_num_threads(1)  # models as small as these gain nothing from a second thread

# %%
letters, spelled = spelled_numbers(1000)                  # (1000, n + 1)  −1 is padding
print(len(letters), "letters and signs; a number:", spelled[21].tolist()[:14])


def loss_of(model, chosen, stream=None):                  # in nats per letter
    tokens = spelled[chosen]
    tokens = tokens[:, : int((tokens >= 0).sum(dim=1).max())]
    logits = model(tokens[:, :-1].clamp(min=0), stream)                  # (batch, n, letters)
    return F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten(), ignore_index=-1)

# %% [markdown]
# The sublayers stay the same throughout. We change only how $x$ (the tokens' vectors), a sublayer and a norm (defined
# below) are combined. In code, this combination is one function, which the model calls `connect`. The simplest version
# ignores the norm and replaces $x$ by the sublayer's output:

# %%
def no_residual(x, sublayer, norm):
    return sublayer(x)


class CausalAttention(MultiHeadAttention):
    def forward(self, x):
        return super().forward(x, causal=True)            # no letter sees a later one

# %%
class Speller(nn.Module):
    """A language model of letters: `depth` blocks, each attention and feed-forward network."""

    def __init__(self, connect, depth, d=32, final_norm=False):
        super().__init__()
        self.connect = connect                            # a function of x, a sublayer, a norm
        self.token, self.position = nn.Embedding(len(letters), d), nn.Embedding(64, d)
        self.sublayers = nn.ModuleList()
        for _ in range(depth):
            self.sublayers += [CausalAttention(d, n_heads=4), FeedForward(d, 4 * d)]
        self.norms = nn.ModuleList(LayerNorm(d) for _ in self.sublayers)
        self.final_norm = LayerNorm(d) if final_norm else nn.Identity()
        self.output = nn.Linear(d, len(letters))
        initialise(self)                                  # matrices by Xavier, biases zero

    def forward(self, tokens, stream=None):               # (batch, n)
        x = self.token(tokens) + self.position.weight[: tokens.shape[1]]     # (batch, n, d)
        for sublayer, norm in zip(self.sublayers, self.norms, strict=True):
            if stream is not None:
                stream.append(x)                          # a list, to look at x on its way
            x = self.connect(x, sublayer, norm)
        if stream is not None:
            stream.append(x)
        return self.output(self.final_norm(x))            # (batch, n, letters)

# %% [markdown]
# We train with Adam, with or without a **warm-up**: a learning rate that rises during the first steps. Models with
# the same seed start from the same matrices and see the same numbers in the same order, so we can compare them seed
# by seed.

# %%
def fresh(connect, depth, seed=0, **options):
    torch.manual_seed(seed)
    return Speller(connect, depth, **options)


def train(model, lr=1e-2, warm_up=0, steps=60, seed=0):
    draws, losses = torch.Generator().manual_seed(seed), []
    optimizer = torch.optim.Adam(model.parameters(), betas=(0.9, 0.98))
    for step in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = lr * min(1.0, (step + 1) / (warm_up + 1))      # rises to lr
        loss = loss_of(model, torch.randint(1000, (16,), generator=draws))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses

# %% [raw] slide
# ## Six blocks against one: spell all numbers below a thousand
# - A **block**: attention, then a feed-forward network; each is a **sublayer**.
# - What changes is how $x$, sublayer and norm are combined. In the simplest version the sublayer's output *replaces* $x$.
#
# > **Guess first.** One block against six, sixty steps, three seeds. Which training loss is lower?

# %% [markdown]
# *Guess first:* one block or six, trained for sixty steps at a learning rate of 0.003, with three seeds. Which loss is
# lower at the end? The dotted line is the loss of a model that knows only how frequent each letter is.

# %%
counts = torch.bincount(spelled[:, 1:][spelled[:, 1:] >= 0]).double()    # (letters,)
shares = counts / counts.sum()
frequencies = -(shares * shares.log()).sum().item()       # an entropy, in nats per letter
print(f"a model that knows only the letter frequencies has a loss of {frequencies:.2f}")
plain = {}
for depth in (1, 6):
    for seed in range(3):
        plain[depth, seed] = train(fresh(no_residual, depth, seed), lr=3e-3, seed=seed)
names = {1: "1 block", 6: "6 blocks"}
figures.training_curves({names[depth]: [plain[depth, seed] for seed in range(3)]
                         for depth in (1, 6)}, "loss (nats per letter)",
                        level=("letter frequencies alone", frequencies))
#| caption: Training loss without residual connections, by depth. Each thin line is one seed,
#|   and each thick line is a mean.

# %% tags=["hide-input"]
def at_the_end(losses):
    return sum(losses[-15:]) / 15


for seed in range(3):
    assert at_the_end(plain[6, seed]) > at_the_end(plain[1, seed]) + 0.3, "in training, too"

# %% [raw] slide
# ## The degradation problem
# {figure}
#
# The *training* loss: no overfitting. The spare blocks did not learn to pass on their input. (He et al. 2016)

# %% [markdown]
# Six blocks end with a higher loss than one block, for every seed. This is the *training* loss, so the cause is not
# overfitting: after sixty steps, the deep model has learned little more than the letter frequencies. He et al.
# ([-@he2016]) saw this in deep networks for images and called it the **degradation problem**.
#
# ## Signal propagation: what reaches the top, and what comes back
#
# $x$ goes up from layer to layer, and the gradient comes down the same way. If each layer keeps half, a millionth is
# left after twenty layers. [Lecture @bottleneck](@bottleneck) showed this over time steps; here it happens over depth,
# before any training. In three steps we ask what is lost: first the size of $x$; then, with the sizes repaired, the
# difference between tokens; and finally which sublayer is responsible.
#
# The *size* of $x$ is its **root mean square** (RMS), the root of the mean of its squared entries. (Vectors have 64
# entries here, and 32 in the trained models.) *Guess:* in 24 untrained blocks, how large is $x$ at the top? And how
# large is the norm of the first block's gradient, measured at the last matrix of its feed-forward network?

# %% [raw] slide
# ## Signal propagation
# $x$ goes up from layer to layer, and the gradient comes down the same way.
#
# > **Guess first.** In 24 untrained blocks, how large is $x$ at the top, and the gradient of a matrix in the first block?

# %%
def root_mean_square(x):
    return x.double().square().mean().sqrt().item()


def flow(model):
    """The size of x before each sublayer and after the last, and the gradient in each block."""
    stream = []
    loss_of(model, torch.arange(0, 1000, 30), stream).backward()
    gradients = [ff.down.weight.grad.double().norm().item() for ff in model.sublayers[1::2]]
    return [root_mean_square(x) for x in stream], gradients


for depth in (2, 6, 12, 24):
    sizes, gradients = flow(fresh(no_residual, depth, d=64))
    print(f"{depth:>2} blocks: x {sizes[0]:.1f} → {sizes[-1]:.0e}    "
          f"gradient at the first block {gradients[0]:.0e}")

# %% tags=["hide-input"]
for seed in range(3):
    (size, *_, top), (first, *_) = flow(fresh(no_residual, 24, seed, d=64))
    assert top < 1e-4 * size and first < 1e-4 * flow(fresh(no_residual, 2, seed, d=64))[1][0]
    assert first / math.sqrt(256 * 64) < 1e-7, "per number not well above Adam's ε"

# %% [raw] slide
# ## Signal and gradient vanish
# {print}
#
# The last block has the full gradient and a millionth of $x$; the first block has all of $x$ and a millionth of the gradient.

# %% [markdown]
# Signal and gradient vanish. With 24 blocks, the first block's gradient is about two millionths of what it is with two
# blocks. Which sublayer shrinks $x$? Attention averages, and a feed-forward network has a ReLU. *Guess which one it
# is.* We give each of them tokens that are all different, then tokens that are all equal.

# %%
torch.manual_seed(0)
attend, feed_forward = MultiHeadAttention(64, n_heads=4), FeedForward(64, 256)
initialise(nn.ModuleList([attend, feed_forward]))
different = torch.randn(32, 9, 64)                        # (batch, n, d)
alike = different[:, :1].expand(-1, 9, -1)                # (batch, n, d)  one token, nine times
shrinks = {}
for name, sublayer in {"attention": attend, "feed-forward": feed_forward}.items():
    shrinks[name] = [root_mean_square(sublayer(x)) / root_mean_square(x)
                     for x in (different, alike)]
    print(f"{name:>12}: different tokens shrink to {shrinks[name][0]:.2f}, "
          f"equal ones to {shrinks[name][1]:.2f}")

# %% tags=["hide-input"]
assert shrinks["attention"][0] < 0.6
assert max(shrinks["feed-forward"]) < 0.7

# %% [raw] slide
# ## Which sublayer shrinks x?
# {print}
#
# An average of different vectors is shorter than the vectors; an average of equal vectors is not. The ReLU removes half of the entries, in every block.

# %% [markdown]
# Both sublayers shrink tokens that differ. Attention averages, and an average of vectors in different directions is
# shorter than these vectors; an average of equal tokens loses nothing. The feed-forward network removes about 40 % in
# both cases.
#
# Our **initialisation** is Xavier's ([@glorot2010]), with variance $2/(d_\text{in} + d_\text{out})$, a compromise
# between the two widths of a matrix. It preserves sizes if the layers are *linear* and the matrices square. Here the
# ReLU leaves about $\sqrt{1/2} \approx 0.71$ of the size, and the unequal widths leave 0.8 of that, so 0.57 remains.
#
# How does this affect learning? A matrix's gradient is the product of its input and the gradient that comes back. With
# 24 blocks, the last block has about a millionth of $x$, and the first block about a millionth of the gradient. Adam
# divides each gradient by its own size, which makes up for small gradients as long as they are well above its
# $\varepsilon$ of $10^{-8}$. With 24 blocks they are not: a norm of 2·10⁻⁶ over 256·64 entries is about 10⁻⁸ for each.
# But with *six* blocks the sizes shrink far less. Is anything else lost?
#
# ## Would a better initialisation do?
#
# If size is the problem, a different initialisation may help. **LSUV** (layer-sequential unit variance,
# [@mishkin2016]) sends data through the stack and scales one layer after another until each output has variance 1.
# Our version scales the last matrix of each sublayer so that the output is as large as the input.
#
# LSUV repairs the size of $x$, but not the learning: after 500 steps, six blocks reach a loss of 1.03 to
# 1.14, and one block 0.31 to 0.34. **He initialisation** ([@he2015]), with variance $2/d_\text{in}$ to compensate for
# the ReLU, makes $x$ explode, because attention has two matrices and no ReLU. (The runs are in *Going further*.)

# %% [raw] slide
# ## Would a better initialisation do?
# | | | six blocks |
# |---|---|---|
# | **Xavier** | variance $2/(d_\text{in} + d_\text{out})$: for linear layers | $x$ vanishes |
# | **He** | variance $2/d_\text{in}$: compensates for a ReLU | $x$ explodes |
# | **LSUV** | send data through, scale each layer until its output has variance 1 | $x$ keeps its size, but this is not enough |

# %% tags=["hide-input"]
def he(model):
    for module in model.sublayers.modules():
        if isinstance(module, nn.Linear):
            nn.init.normal_(module.weight, std=math.sqrt(2 / module.in_features))
    return model


def writes(sublayer):                                     # the layer with which it writes
    return sublayer.output if isinstance(sublayer, CausalAttention) else sublayer.down


@torch.no_grad()
def calibrated(model):
    tokens = spelled[:, :-1].clamp(min=0)
    x = model.token(tokens) + model.position.weight[: tokens.shape[1]]   # (1000, n, d)
    for sublayer in model.sublayers:
        writes(sublayer).weight *= x.norm() / sublayer(x).norm()
        x = sublayer(x)
    return model

# %% [markdown]
# So the size of $x$ is not the whole problem. A stack can also lose the **token spread**, the part of $x$ that
# differs between tokens: $\lVert x - \bar x \rVert / \lVert x \rVert$, where $\bar x$ is the mean over all positions
# of the batch. The token spread is near 1 if the tokens have little in common, and 0 if all are equal. (Dong et al.,
# [-@dong2021], measure a similar residual within one sentence. Sizes and spreads on this page include padding;
# exercise 6 leaves it out.)
#
# *Guess:* in 12 untrained blocks with LSUV, after how many of the 24 sublayers has the token spread fallen to a
# tenth, and which kind of sublayer is responsible?

# %%
def token_spread(x):                                      # (batch, n, d)
    return ((x - x.mean(dim=(0, 1))).norm() / x.norm()).item()


along = []                                                # a row for each seed
for seed in range(3):
    stream = []
    loss_of(calibrated(fresh(no_residual, 12, seed, d=64)), torch.arange(0, 1000, 30), stream)
    along.append([token_spread(x) for x in stream])       # at the start, after each sublayer
figures.spread_by_sublayer(along, ("attention", "feed-forward"))
#| caption: Token spread in twelve untrained blocks with LSUV, after each sublayer. Each thin
#|   line is a seed.
#| label: token-spread

# %% tags=["hide-input"]
for kind, name in enumerate(("attention", "feed-forward")):
    factors = [row[k + 1] / row[k] for row in along for k in range(kind, 24, 2)]
    factor = math.exp(mean(math.log(each) for each in factors))
    print(f"{name:>12} multiplies the token spread by {factor:.2f} on average")
    assert factor < 0.75 if name == "attention" else factor > 0.9
assert max(row[-1] for row in along) < 0.03 < 0.5 < along[0][0]

# %% [raw] slide
# ## The sizes are right, and the tokens become equal
# {figure}
# . . .
# This is **rank collapse**. Is it the cause? Let $x$ bypass one kind of sublayer: only a bypass around attention should help.

# %% [markdown]
# The sizes are right, and yet the tokens become nearly equal, for every seed. Just past the halfway point, about a
# tenth of the spread is left. Attention removes it; the feed-forward networks leave it almost unchanged. This is **rank
# collapse** ([@dong2021]), which [lecture @masking](@masking) found in stacks of attention ([@fig:rank-collapse]).
#
# Is averaging what stops the six blocks? We let $x$ bypass *one kind of sublayer*: its output is added to $x$, and the
# sum is divided by √2 to keep its size. If averaging is the cause, a bypass around attention should help, and one
# around the feed-forward network should not. The runs below have six blocks with LSUV and three seeds, each at the
# best of three rates. They are recorded results of `benchmarks/deep_stacks.py`, which trains this page's models.

# %% tags=["hide-input"]
record = measured("deep_stacks")
print(record["command"])


def at_median(row):                                       # the seed in the middle
    return sorted(row["losses"])[1]


partial = {}
for row in record["partial"]:
    partial.setdefault(row["residual"], []).append(row)
for name, rows in partial.items():
    best_row = min(rows, key=at_median)
    losses = ", ".join(f"{loss:.2f}" for loss in best_row["losses"])
    print(f"bypass around {name:>12}: loss {losses}   token spread at the start",
          ", ".join(f"{spread:.2f}" for spread in best_row["spreads"]))

# %% [raw] slide
# ## The guess survives
# {print}
#
# Attention averages each token's own vector away. (Two controls without a bypass: at the end of the page.)

# %% [markdown]
# The explanation survives. With a bypass around attention, the loss falls below 1 within sixty steps; with one around
# the feed-forward networks, it stays above 2.3.
#
# So attention averages each token's own vector away. A bypass also leads $x$ around the matrices; *Going further*
# separates the two effects.

# %% [raw] slide
# ## Residual connections: add to x, do not replace it
# $$x_\ell = x_{\ell - 1} + f_\ell(x_{\ell - 1})$$
#
# - The **residual stream** runs through the whole stack; $f_\ell$ is a **branch**.
# - A branch that writes zero makes the layer the identity.

# %% [markdown] teaches="residual connections and the gradient through them"
# ## Residual connections: add to x, do not replace it
#
# A **residual connection** ([@he2016]) gives *every* sublayer a bypass:
#
# $$x_\ell = x_{\ell - 1} + f_\ell(x_{\ell - 1})$$ (eq:residual)
#
# Here $\ell$ counts sublayers, so $L$ blocks have $2L$ of them. A sublayer now computes only what is to be *added* to
# $x$. If it writes zero, the layer is the identity. The vector that runs through the whole stack is called the
# **residual stream**, and $f_\ell$ is a **branch**.

# %%
def residual(x, sublayer, norm):
    return x + sublayer(x)


figures.block_diagrams({"no residual": ["only attention", "only feed-forward"],
                        "residual": ["attention", "feed-forward"]},
                       jacobians=["$J_2\\, J_1$", "$(I + J_2)\\,(I + J_1)$"])
#| caption: Blocks without and with residual connections. Below each block is the derivative of
#|   its output; J₁ and J₂ belong to its two sublayers.
#| label: residual

# %% [raw] slide
# ## Two kinds of block
# {figure}

# %% [markdown]
# What happens to the gradient? Let $J_\ell$ be the **Jacobian** of $f_\ell$: its entry in row $i$, column $j$ says how
# output $i$ changes with input $j$. With its residual connection, the layer has the Jacobian $I + J_\ell$. The chain
# rule multiplies these matrices. Their order matters: the *last* layer stands on the left.
#
# $$\frac{\partial x_{2L}}{\partial x_0} = (I + J_{2L})(I + J_{2L-1}) \cdots (I + J_1)
# = I + \sum_\ell J_\ell + \sum_{k < \ell} J_\ell\, J_k + \dots$$

# %%
torch.manual_seed(0)
f_1, f_2, x = FeedForward(4, 16), FeedForward(4, 16), torch.randn(4)
jacobian = torch.autograd.functional.jacobian


def two_layers(x):
    h = x + f_1(x)
    return h + f_2(h)


J_1 = jacobian(f_1, x)                                    # (4, 4)
J_2 = jacobian(f_2, x + f_1(x))                           # (4, 4)  where the second layer reads
I, whole = torch.eye(4), jacobian(two_layers, x)          # (4, 4)
for name, product in {"last on the left": (I + J_2) @ (I + J_1),
                      "first on the left": (I + J_1) @ (I + J_2)}.items():
    print(f"{name:>17}: off by {(product - whole).abs().max():.0e}")
assert torch.allclose(whole, I + J_1 + J_2 + J_2 @ J_1, atol=1e-6), "four terms; one is I"

# %% [raw] slide
# ## The gradient: the identity, plus something
# $$\frac{\partial x_{2L}}{\partial x_0} = (I + J_{2L}) \cdots (I + J_1) = I + \sum_\ell J_\ell + \sum_{k < \ell} J_\ell\, J_k + \dots$$
#
# **A common mistake: “the gradient through a residual connection is 1”.** True of the connection alone.
#
# > **Guess first.** How large is the gradient at the first of twelve blocks? About 1? More? Less?

# %% [markdown] erratum="the gradient is 1"
# > **A common mistake: "the gradient through a residual connection is 1".** This is true of the connection alone. The
# > Jacobian of the layer is $I$ *plus something*. One of the $2^{2L}$ terms of the product is the identity. It is
# > always there, but the other terms can cancel it: one layer with $f(x) = -x$ makes the whole product zero.
#
# *Guess:* is the gradient at the first of twelve blocks about as large as with two blocks, larger, or smaller?

# %%
for depth in (2, 6, 12):
    sizes, gradients = flow(fresh(residual, depth, d=64))
    print(f"{depth:>2} blocks: x {sizes[0]:.1f} → {sizes[-1]:.0e}    "
          f"gradient at the first block {gradients[0]:.0e}")

# %% tags=["hide-input"]
def equal_weights(model):
    for attention in model.sublayers[::2]:
        nn.init.zeros_(attention.query.weight)            # all scores are 0
    return model


tops, kept = [], []
for seed in range(3):
    sizes, gradients = flow(fresh(residual, 12, seed, d=64))
    assert sizes[-1] > 50 and gradients[0] > 1e3, "one plus something, twenty-four times over"
    other_sizes, without = flow(equal_weights(fresh(residual, 12, seed, d=64)))
    tops.append(other_sizes[-1] / sizes[-1])
    kept.append(without[0] / gradients[0])
print("12 blocks, all scores 0, three seeds: x at the top, times",
      ", ".join(f"{ratio:.2f}" for ratio in tops))
print("the gradient at the first block, times", ", ".join(f"{ratio:.1e}" for ratio in kept))
assert max(kept) < 0.05 < 0.8 < min(tops), "x keeps its size, and the gradient does not"

# %% [raw] slide
# ## It explodes
# {print 2}
# {print}
#
# A bypass alone is not enough: something must keep the **sizes** in order.
#
# **Now you:** a@deep_stacks, exercise 1

# %% [markdown] teaches="layer normalisation"
# The gradient explodes. If $J$ is about as large as $I$, each sublayer makes $x$ larger by some factor. The next one
# reads this larger $x$ and writes even more, so $x$ grows exponentially with depth.
#
# The gradient grows even more than $x$, and the last two lines point to a reason. Attention scores are products of
# queries and keys, so the derivative of a score is proportional to $x$. It is multiplied by the values, which are also
# proportional to $x$. So the gradient through the scores grows with the *square* of $x$, as long as the softmax is not
# one-hot. When all scores are 0, $x$ keeps most of its size, but the gradient shrinks to about a hundredth or less, for
# each of three seeds. (Equal weights change $x$ in other ways, too, so this is no proof.)
#
# So residual connections alone are not enough: something must control the *sizes*. One way is to make every branch
# small; we come back to it. The other way is to normalise.
#
# > **Check yourself.** You remove one layer from a trained stack of 12 residual layers, and the model still works.
# > Would you expect that without residual connections?
# > <details><summary>Answer</summary>
# >
# > No. Suppose layer 7 is removed. With residual connections, layer 8 reads x plus everything that was added, and one
# > term of the sum is missing. Without them, layer 8 would have to read the input of layer 7, which it has never seen.
# > Veit, Wilber and Belongie ([-@veit2016]) tested this in image networks with and without residual connections.
# >
# > </details>
#
# **Now you:** [a08](@deep_stacks/assignment), exercise 1: the product for any number of layers.
#
# ## Layer normalisation (LayerNorm)
#
# Take the vector of one token, with $d$ entries. Subtract their mean, and divide by their standard deviation. The
# result has mean 0 and variance 1. Then multiply each entry by a learned **gain** $\gamma$ and add a learned **bias**
# $\beta$, so that every size is possible. This is **layer normalisation**, or **LayerNorm** ([@ba2016]):
#
# $$
# \mu = \frac1d \sum_{c=1}^d x_c \qquad \sigma^2 = \frac1d \sum_{c=1}^d (x_c - \mu)^2 \qquad
# \operatorname{LayerNorm}(x) = \frac{x - \mu}{\sqrt{\sigma^2 + \varepsilon}} \odot \gamma + \beta
# $$
#
# The small $\varepsilon$ prevents 0/0 when a vector has variance zero.

# %% [raw] slide
# ## Layer normalisation (LayerNorm)
# $$\mu = \frac1d \sum_{c=1}^d x_c \qquad \sigma^2 = \frac1d \sum_{c=1}^d (x_c - \mu)^2$$
#
# $$\operatorname{LayerNorm}(x) = \frac{x - \mu}{\sqrt{\sigma^2 + \varepsilon}} \odot \gamma + \beta$$
#
# > **Guess first.** Seven vectors with three entries each. Subtracting the mean projects them onto a plane. Where do they lie after the division?

# %%
x = torch.tensor([3.0, 9.0, 4.0, 0.0])                    # (d,)  one token
mu = sum(x) / len(x)
variance = sum((number - mu) ** 2 for number in x) / len(x)
y = [(number - mu) / math.sqrt(variance + 1e-5) for number in x]
print("mean", mu.item(), "  variance", variance.item(), "  normalised", [f"{c:.2f}" for c in y])
assert torch.allclose(torch.stack(y), F.layer_norm(x, (4,)), atol=1e-5), "torch's"

# %% [markdown]
# What do the two steps do to a vector? The figure has seven vectors with three entries each. Subtracting the mean moves
# a vector along the direction $(1, 1, 1)$ until its entries sum to zero, so it projects the vector onto a plane.
# *Guess:* where in this plane do the vectors lie after the division?

# %%
points = torch.randn(7, 3, generator=torch.Generator().manual_seed(259)) + 0.6       # (7, 3)
figures.norm_steps(points)
#| caption: Layer normalisation of vectors with three entries: the projection and the division.

# %% tags=["hide-input"]
normalised = F.layer_norm(points, (3,), eps=0.0)          # (7, 3)
assert torch.allclose(normalised.sum(dim=-1), torch.zeros(7), atol=1e-5), "in the plane"
on_circle = torch.full((7,), math.sqrt(3))
assert torch.allclose(normalised.norm(dim=-1), on_circle, atol=1e-5)

# %% [raw] slide
# ## On a circle
# {figure}
#
# LayerNorm discards mean and length, and keeps the direction. So the gradient sums to zero, has no component along $x$, and is divided by $\sigma$.

# %% [markdown]
# They lie on a circle. In $d$ dimensions it is a sphere of radius $\sqrt d$ among the vectors whose entries sum to
# zero. The norm keeps the direction of the projected vector and discards the mean and the length. Three properties
# follow, up to $\varepsilon$:
#
# 1. If a vector is multiplied by ten, or 7 is added to each entry, the output stays the same.
# 2. So the gradient that comes back to $x$ has entries that sum to zero, and no component along $x$.
# 3. If $x$ is ten times as large, a step of the same length changes the output a tenth as much. So the gradient is
#    divided by $\sigma$, the size of $x$ without its mean.
#
# A single formula contains properties 2 and 3. With gain 1, bias 0 and $\varepsilon = 0$, the Jacobian of
# $y = \operatorname{LayerNorm}(x)$, with $y$ as a column, is
#
# $$\frac{\partial y}{\partial x} = \frac1\sigma \Bigl(I - \tfrac1d\, \mathbf 1 \mathbf 1^\top - \tfrac1d\, y\,
# y^\top\Bigr)$$
#
# The second term removes the direction of the mean, the third term that of $y$, and $\frac1\sigma$ divides by the size.

# %%
x = torch.tensor([3.0, 9.0, 4.0, 0.0])
y, sigma = F.layer_norm(x, (4,), eps=0.0), x.std(correction=0)
formula = (torch.eye(4) - torch.ones(4, 4) / 4 - torch.outer(y, y) / 4) / sigma     # (d, d)
by_autograd = jacobian(lambda x: F.layer_norm(x, (4,), eps=0.0), x)
print(f"formula and autograd differ by at most {(formula - by_autograd).abs().max():.0e}")

# %% tags=["hide-input"]
wish = torch.randn(64, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
start = torch.randn(64, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
lengths = {}
for scale in (1, 10, 100):
    x = (scale * start).requires_grad_()                  # (d,)
    (F.layer_norm(x, (64,)) * wish).sum().backward()
    lengths[scale] = x.grad.norm().item()
    along = (x.grad @ x / x.norm()).item()
    print(f"x {scale:>3} times as large: gradient {lengths[scale]:.3f}, "
          f"along x {along:.0e}, sum {x.grad.sum():.0e}")
assert torch.allclose(formula, by_autograd, atol=1e-6)
assert abs(lengths[10] / lengths[1] - 0.1) < 1e-3
assert abs(lengths[100] / lengths[1] - 0.01) < 1e-4
assert abs(x.grad.sum()) < 1e-12 and abs(along) < 1e-6

# %% [raw] slide
# ## A common mistake: misprints in the formula
# > **Which would you notice?** A sum for the mean. A product for the difference. An extra root. $d - 1$. ε outside the root.

# %% [markdown] erratum="a sum for the mean; a product for the difference; a root too many; unit mean"
# The printed numbers agree with the formula and with properties 2 and 3.
#
# Why does LayerNorm help? Xu et al. ([-@xu2019]) kept the forward pass but let no gradient through the mean and the
# variance, and training became clearly worse. Property 3 remained, because the gradient was still divided by $\sigma$.
# So property 2 may be the one that counts.
#
# > **A common mistake: misprints in the formula.** We found all of these in teaching material:
# >
# > * A sum in place of the mean, $\mu = \sum_c x_c$. The factor $\frac1d$ is missing.
# > * A product in place of the difference, $(x_c\,\mu)^2$.
# > * An extra root: division by $\sqrt\sigma + \varepsilon$, although $\sigma$ is already the standard deviation.
# > * "Unit mean and standard deviation". The mean is *zero*.
# > * ε outside the root: $\sigma + \varepsilon$ in place of $\sqrt{\sigma^2 + \varepsilon}$.
# >
# > In code, `torch.std` divides by $d - 1$ unless told otherwise.
#
# *Which of these four would you notice in a model's numbers: a sum for the mean, an extra root, $d - 1$, ε outside the
# root?* The next cell tries them on vectors of size 1 and of size 0.01.

# %% tags=["hide-input"]
vectors = torch.randn(1000, 64, generator=torch.Generator().manual_seed(3))          # (n, d)
print("largest error at scale" + " " * 10 + "1      0.01")
errors = {}
for scale in (1, 0.01):
    for x in scale * vectors:                             # (d,)  one after the other
        mu, sigma = x.mean(), x.std(correction=0)
        printed = {"a sum for the mean": (x - x.sum()) / (sigma**2 + 1e-5).sqrt(),
                   "an extra root": (x - mu) / (sigma.sqrt() + 1e-5),
                   "d − 1": (x - mu) / (x.var() + 1e-5).sqrt(),
                   "ε outside the root": (x - mu) / (sigma + 1e-5)}
        for name, y in printed.items():
            error = (y - F.layer_norm(x, (64,))).abs().max().item()
            errors[name, scale] = max(error, errors.get((name, scale), 0.0))
for name in printed:
    print(f"{name:>20}: {errors[name, 1]:10.0e} {errors[name, 0.01]:9.0e}")
assert errors["a sum for the mean", 1] > 5
assert errors["an extra root", 1] > 0.1 and errors["an extra root", 0.01] > 2
assert errors["ε outside the root", 1] < 1e-4 < 0.1 < errors["ε outside the root", 0.01]
assert 1e-3 < errors["d − 1", 1] < 0.05

# %% [raw] slide
# ## Two show at once, two hide
# {print}
#
# **Now you:** a@deep_stacks, exercise 2

# %% [markdown]
# The numbers reveal the first two variants at once. The other two are hard to see. With $d - 1$ each entry shrinks by
# less than 1 %. An ε outside the root, as in one deck and in older code, matters only for small vectors. A checkpoint
# must be run with the convention it was trained with.
#
# **Now you:** [a08](@deep_stacks/assignment), exercise 2.

# %% [raw] slide
# ## Whose mean? LayerNorm or batch normalisation
# Over a token's features (LayerNorm), a sentence's tokens (instance norm), all tokens (batch norm).
#
# > **Guess first.** Which may a causal language model use? Does the past change with the future? Does a sentence depend on the rest of its batch?

# %% [markdown]
# ## LayerNorm or batch normalisation: whose mean?
#
# A batch of token vectors, $(\text{batch}, n, d)$, has other axes over which a mean can be taken. **Batch
# normalisation** ([@ioffe2015]) takes the mean of each feature over all tokens of all sentences. **Instance
# normalisation** ([@ulyanov2016]) takes it over the tokens of one sentence. *Which of the three may a causal language
# model use?* Two tests decide. Does the past change if the future changes? Does a sentence give the same result when
# the other sentences of the batch change?

# %%
figures.mean_axes(["LayerNorm", "instance norm", "batch norm"])
#| caption: The entries over which one mean is taken (blue) in LayerNorm, instance normalisation
#|   and batch normalisation.
#| label: mean-axes

# %%
def three_norms(x):                                       # torch's own; each (batch, n, d)
    by_feature = x.mT                                     # (batch, d, n)  as torch wants it
    return {"LayerNorm": F.layer_norm(x, (8,)),
            "instance norm": F.instance_norm(by_feature).mT,
            "batch norm, training": F.batch_norm(by_feature, None, None, training=True).mT}


x = torch.randn(4, 6, 8, generator=torch.Generator().manual_seed(4))     # (batch, n, d)
future, company = x.clone(), x.clone()
future[:, 3:] += 1                                        # other tokens from the fourth on
company[1:] *= 2                                          # other sentences beside the first
for name, y in three_norms(x).items():
    past = (three_norms(future)[name] - y)[:, :3].abs().max()
    first = (three_norms(company)[name] - y)[0].abs().max()
    print(f"{name:>20}: the past moves by {past:.2f}, the first sentence by {first:.2f}")
    assert ((past < 1e-6) & (first < 1e-6)) == (name == "LayerNorm")

# %% [raw] slide
# ## Only LayerNorm passes
# {print}

# %% [markdown] teaches="RMSNorm"
# Only LayerNorm passes both tests. A mean over the tokens includes the end of the sentence, so the future leaks
# although the mask is right. With a mean over the batch, a sentence's result also depends on the other sentences. At
# inference, batch normalisation uses averages from training and passes both tests. But the model was trained with the
# leak, and now computes a different function from the one trained.
#
# ## RMSNorm: LayerNorm without the mean
#
# Which of LayerNorm's two steps does the work, the projection or the division? Zhang and Sennrich ([-@zhang2019rms])
# left the projection out. **RMSNorm** keeps a vector's direction and divides by its root mean square:
#
# $$\operatorname{RMSNorm}(x) = \frac{x}{\sqrt{\frac1d \sum_c x_c^2 + \varepsilon}} \odot \gamma$$ (eq:rmsnorm)
#
# RMSNorm subtracts no mean and has no bias, so it has half as many parameters as LayerNorm. In the authors' experiments
# it was about as good, and faster. Most of today's large language models use it, among them Llama. How far apart are
# they on random vectors?

# %% [raw] slide
# ## RMSNorm: LayerNorm without the mean
# $$\operatorname{RMSNorm}(x) = \frac{x}{\sqrt{\frac1d \sum_c x_c^2 + \varepsilon}} \odot \gamma$$
#
# > **Guess first.** How far are the two norms apart on random vectors?

# %%
for d in (4, 64, 1024):
    x = torch.randn(1000, d, generator=torch.Generator().manual_seed(0))            # (n, d)
    difference = (RMSNorm(d)(x) - LayerNorm(d)(x)).norm(dim=-1) / math.sqrt(d)      # (n,)
    print(f"d = {d:>4}: RMSNorm and LayerNorm differ by {difference.mean():.0%} of the vector")
assert difference.mean() < 0.05

# %% [raw] slide
# ## In high dimensions nearly the same
# {print}
#
# **Now you:** a@deep_stacks, exercise 3

# %% [markdown] teaches="pre-norm and post-norm"
# Without gain and bias, the two norms are the same function on vectors of mean zero. The mean of $d$ independent
# random numbers around zero comes closer to zero as $d$ grows. (A trained model's vectors need not have mean zero.)
# In our stacks the division does the work: six pre-norm blocks train about as well with RMSNorm as with LayerNorm,
# but norms that only subtract the mean let the loss explode ([@fig:branch-sizes]).
#
# > **Check yourself.** (1) What do LayerNorm and RMSNorm turn the vector (5, 5, 5, 5) into? (2) One LayerNorm directly
# > follows another, both without gain and bias. What does the second one do? (3) The weights and the bias of the linear
# > layer in front of a LayerNorm are doubled. What happens to the norm's output?
# > <details><summary>Answers</summary>(1) LayerNorm gives zeros, since 0/√ε is 0. RMSNorm gives (1, 1, 1, 1). (2)
# > Nothing: the vector is already on the sphere (up to ε). (3) It stays the same, because the norm removes the
# > factor.</details>
#
# **Now you:** [a08](@deep_stacks/assignment), exercise 3.
#
# ## Norm placement: post-norm and pre-norm
#
# The norm can stand in two places (the **norm placement**). **Post-norm** normalises the sum, as in the original
# Transformer ("Add & Norm" in its figure). **Pre-norm** normalises only what the sublayer *reads*, and leaves the sum
# alone. It corresponds to the *pre-activation* of He et al. ([-@he2016identity]) in networks for images. Wang et al.
# ([-@wang2019deep]) used pre-norm, among other changes, to train translation encoders of up to 30 layers.
#
# $$
# \text{post-norm:}\quad x \leftarrow \operatorname{norm}\bigl(x + f(x)\bigr) \qquad\qquad
# \text{pre-norm:}\quad x \leftarrow x + f\bigl(\operatorname{norm}(x)\bigr)
# $$

# %% [raw] slide
# ## Norm placement
# $$\text{post-norm:}\; x \leftarrow \operatorname{norm}\bigl(x + f(x)\bigr) \qquad \text{pre-norm:}\; x \leftarrow x + f\bigl(\operatorname{norm}(x)\bigr)$$
#
# In pre-norm the residual stream is free from bottom to top.
#
# > **Guess first.** No residual, residual, post-norm, pre-norm: which two are fit for 24 blocks? In which does $x$ grow?

# %% tags=["hide-input"]
def post_norm(x, sublayer, norm):
    return norm(x + sublayer(x))


def pre_norm(x, sublayer, norm):
    return x + sublayer(norm(x))


figures.block_diagrams({
    "post-norm": ["attention", "norm", "feed-forward", "norm"],
    "pre-norm": ["norm → attention", "norm → feed-forward"],
})
#| caption: Post-norm and pre-norm blocks.
#| label: norm-placement

# %% [markdown] erratum="x¹ for x in the sum; x_l for x_{l+1}; the final norm of x_{l+1}"
# Follow the thick line, the residual stream. In a post-norm block it passes through every norm. In a pre-norm block
# nothing is done to it except addition; the norms are on the branches.
#
# > **A common mistake: the sum starts from the wrong x.** In a pre-norm block the branch reads the normalised $x$, and
# > its result is added to $x$ *itself*. One deck's equation adds it to the normalised $x$:
# > $x^{(3)} = x^{(2)} + x^{(1)}$, where $x^{(1)} = \operatorname{norm}(x)$. The same mistake returns below as code.
#
# The figure shows sizes and gradients in four kinds of untrained stacks at three depths. *Guess before you look:* in
# which of post-norm and pre-norm does $x$ grow? It begins at a size of 1.4. Is it about 5, 50 or 1,000 after the 48
# sublayers of 24 blocks? Which block of that stack has the larger gradient, the first or the last?

# %%
CONNECTIONS = {"no residual": no_residual, "residual": residual,
               "post-norm": post_norm, "pre-norm": pre_norm}
flows = {name: {} for name in CONNECTIONS}
for name, connect in CONNECTIONS.items():
    for depth in (6, 12, 24):                             # pre-norm has a final norm
        model = fresh(connect, depth, d=64, final_norm=(name == "pre-norm"))
        flows[name][depth] = flow(model)
figures.flow_grid(flows)
#| caption: Size of x after each sublayer and gradient in each block, in untrained stacks of one
#|   seed. Each panel has its own scale; the dotted line is 1.

# %% tags=["hide-input"]
for name in ("post-norm", "pre-norm"):
    first, last = flows[name][24][1][0], flows[name][24][1][-1]
    assert 0.05 < first < 50 and 0.05 < last < 50, "neither dies nor explodes, at 24 blocks"
assert flows["no residual"][24][1][0] < 1e-4 and flows["residual"][24][1][0] > 1e8
ratio = flows["pre-norm"][24][0][-1] / flows["pre-norm"][6][0][-1]
assert 1.6 < ratio < 2.6, "four times the depth, twice the size"
for seed in range(3):
    gradients = flow(fresh(pre_norm, 24, seed, d=64, final_norm=True))[1]
    assert gradients[0] > 1.5 * gradients[-1], "pre-norm: larger in the first block"
    gradients = flow(equal_weights(fresh(residual, 24, seed, d=64)))[1]
    print(f"residual, 24 blocks, all scores 0, seed {seed}: gradients from",
          f"{min(gradients):.0e} to {max(gradients):.0e}")
    assert max(gradients) < 10 * min(gradients) < 1e-4 * flows["residual"][24][1][0]

# %% [raw] slide
# ## Flows through untrained stacks
# {figure}

# %% [markdown]
# In post-norm and pre-norm stacks of 24 blocks, neither $x$ nor the gradient vanishes or explodes.
#
# * In post-norm, $x$ has size one after every norm.
# * In pre-norm, $x$ *grows*: each sublayer reads a vector of size one and adds one of about that size. If the additions
#   are independent, they are the steps of a random walk, so their *squares* add up. After the $2L$ steps of $L$ blocks,
#   $x$ has a size of about $\sqrt{2L}$.
# * In pre-norm, the first block has a larger gradient than the last, for each of three seeds. Each later branch adds a
#   term to this gradient, and no norm on the stream scales it down again.
# * With residual connections but no norms, the gradient's rise towards the first block seems to come through the
#   attention scores: when they are 0, all 24 blocks have about the same gradient. We have not explained the bend in the
#   curve.
#
# How large are the steps of this random walk?

# %%
stream = []
loss_of(fresh(pre_norm, 24, d=64, final_norm=True), torch.arange(0, 1000, 30), stream)
written = [root_mean_square(after - before) for before, after in pairwise(stream)]
for name, sizes in ("attention", written[::2]), ("feed-forward network", written[1::2]):
    print(f"{name:>20} writes {mean(sizes):.2f} on average")
below = root_mean_square(stream[0])
walk = math.sqrt(below**2 + sum(size**2 for size in written))
print(f"x: {below:.1f} at the start, {root_mean_square(stream[-1]):.1f} at the top; "
      f"the walk with these steps: {walk:.1f}, with steps of one: {math.sqrt(48):.1f}")

# %% [raw] slide
# ## Pre-norm grows: the final norm
# $x$ grows about like $\sqrt{2L}$, as a random walk does. So one more norm follows the last block.
#
# **Now you:** a@deep_stacks, exercises 4 and 5
#
# > **Guess first.** Sweep the learning rate, with and without a **warm-up**. Where does post-norm fail?

# %% [markdown]
# Both sublayers write less than one. A random walk with these steps ends about where $x$ does:
# $\sqrt{1.4^2 + 24 \cdot 0.81^2 + 24 \cdot 0.59^2} \approx 5.1$. This size depends on the depth. So one more norm
# follows the last block, in front of the output layer: the **final norm**.
#
# **Now you:** [a08](@deep_stacks/assignment), exercises 4 and 5.
#
# ## Norm placement and learning rate: a sweep
#
# Does the placement matter for training? A single learning rate cannot answer this, since each placement may need a
# different one. So we **sweep** the learning rate over 0.001, 0.003, 0.01, 0.03 and 0.1. There are four lines,
# post-norm and pre-norm, each without a warm-up and with one of thirty steps, and three seeds for each point.
#
# *Guess:* for each of the four lines, what is the lowest rate, if any, at which the model fails, that is, ends near
# 2.77, the loss of the letter frequencies alone?

# %% tags=["hide-input"]
model = fresh(post_norm, depth=6)
train(model, lr=1e-2)
with torch.no_grad():
    here = loss_of(model, torch.arange(1000)).item()
(kept,) = [row["losses"][0] for row in record["sweep"]
           if (row["wiring"], row["warm_up"], row["lr"]) == ("post-norm", 0, 1e-2)]
print(f"post-norm, no warm-up, rate 0.01, seed 0: {here:.2f} here, {kept:.2f} in the record")
assert abs(here - kept) < 0.1


def swept(placements):
    lines = {}
    for row in record["sweep"]:
        if row["wiring"] in placements:
            name = f"{row['wiring']}, {'warm-up' if row['warm_up'] else 'no warm-up'}"
            lines.setdefault(name, {})[row["lr"]] = row["losses"]
    return lines


figures.runs_over(swept(["post-norm", "pre-norm"]), "learning rate",
                  "loss after 60 steps (nats per letter)", log_x=True, log_y=True,
                  level=("letter frequencies alone", frequencies))
#| caption: Loss against the learning rate, for post-norm and pre-norm. Each mark is one seed;
#|   lines join the medians.

# %% [raw] slide
# ## A sweep: learning rate, warm-up, placement
# {figure}

# %% [markdown]
# Without a warm-up, post-norm learns at 0.001 and 0.003, but not at 0.01 and above. The warm-up moves this edge up by
# one step of our grid, a factor of about three: post-norm now learns at 0.01, but hardly at 0.03. Pre-norm learns at
# every rate, though poorly at 0.1 without a warm-up. So at this size "post-norm needs a warm-up" is not a law; it
# depends on the learning rate.
#
# A warm-up helps pre-norm at the two highest rates and costs something at the two lowest, where half of the steps are
# shorter. With each placement at its best rate, pre-norm is ahead after sixty steps. This does not tell us which
# placement is ahead after sixty thousand.
#
# ## Why post-norm fails without a warm-up: branches larger than x
#
# Xiong et al. ([-@xiong2020]) find larger gradients near the output in post-norm than in pre-norm, and argue that these
# make a full-sized first step dangerous. This is convincing for plain gradient descent. But Adam divides each gradient
# by its own size, so a large gradient does not make a larger step. We look inside the model after ten steps at a rate
# of 0.01, with two measures: the token spread, and the **branch ratio** $r$, the size of what a sublayer writes divided
# by the size of the $x$ to which it is added.

# %%
def inside(model, seed, warm_up=0, factor=1.0):
    """After ten steps: token spreads, branch ratios, and the last branch's token spread."""
    train(model, warm_up=warm_up, steps=10, seed=seed)
    stream, ratios = [], []
    with torch.no_grad():
        loss_of(model, torch.arange(0, 1000, 30), stream)
        for x, sublayer, norm in zip(stream[:-1], model.sublayers, model.norms, strict=True):
            reads = norm(x) if model.connect is pre_norm else x
            branch = factor * sublayer(reads)
            ratios.append(root_mean_square(branch) / root_mean_square(x))
    return [token_spread(x) for x in stream], ratios, token_spread(branch)

# %% [raw] slide
# ## Why post-norm fails without a warm-up
# We test an explanation: *the first steps make the branches larger than $x$; the norms scale $x$ down; after twelve
# norms all tokens are alike.*
#
# **Branch ratio**: the size of what a sublayer writes, divided by the size of $x$.
#
# > **Guess first.** If this is right, small branches must fix post-norm at the full rate, and doubling them must break it *with* a warm-up.

# %% [markdown]
# We test this explanation: *Post-norm scales the sum of $x$ and branch back to size one. If the first steps make the
# branches larger than $x$, little of $x$ is left after twelve norms. Then all tokens are nearly equal, and the model
# cannot tell them apart.* (Pre-norm never scales $x$ down.) It makes two predictions:
#
# * *How much is left.* If a branch is at right angles to $x$, the norm divides $x$ by $\sqrt{1 + r^2}$. If the branch
#   also adds the same vector to all tokens, the token spread is divided by $\sqrt{1 + r_\ell^2}$ at each sublayer
#   $\ell$. This is our estimate; [@fig:branch-and-norm] shows one such step.
# * *What fixes it.* Small branches must make post-norm learn at the full rate. We make them small in two ways: by a
#   permanent factor of 0.2 on every branch, or by starting the last matrix of each sublayer at a fifth of its size.

# %% tags=["hide-input"]
figures.branch_and_norm((0.2, 2.0))
#| caption: Post-norm with a branch of size r at right angles to x, left and middle. Right: two
#|   opposite tokens to which the same branch is added.
#| label: branch-and-norm

# %% [markdown]
# If $r = 2$ at each of twelve sublayers, the norms leave $5^{-6} \approx 6 \cdot 10^{-5}$ of the token spread. We
# measure five models: post-norm; post-norm with a warm-up; post-norm with every branch × 0.2; post-norm with × 0.2 at
# the start only; and pre-norm. *Guess* the token spread of each after twelve sublayers.

# %%
def small_at_the_start(model):
    with torch.no_grad():
        for sublayer in model.sublayers:
            writes(sublayer).weight *= 0.2
    return model


def estimated(spread, ratios):                            # before each sublayer, and at the end
    left = [spread]
    for r in ratios:
        left.append(left[-1] / math.sqrt(1 + r**2))
    return left

# %% tags=["hide-input"]
def post_norm_small(x, sublayer, norm):
    return norm(x + 0.2 * sublayer(x))


spreads, estimates, ratios, added = {}, {}, {}, {}
for name, connect, warm_up in (("post-norm", post_norm, 0),
                               ("post-norm, warm-up", post_norm, 30),
                               ("post-norm, branch × 0.2", post_norm_small, 0),
                               ("post-norm, × 0.2 at the start", post_norm, 0),
                               ("pre-norm", pre_norm, 0)):
    models = [fresh(connect, 6, seed, final_norm=(connect is pre_norm)) for seed in range(3)]
    if "at the start" in name:
        models = [small_at_the_start(model) for model in models]
    factor = 0.2 if connect is post_norm_small else 1.0
    found = [inside(model, seed, warm_up, factor) for seed, model in enumerate(models)]
    guesses = [estimated(spread[0], each) for spread, each, _ in found]
    spreads[name] = {place: [spread[place] for spread, _, _ in found] for place in range(13)}
    estimates[name] = {place: [guess[place] for guess in guesses] for place in range(13)}
    ratios[name] = [mean(each) for _, each, _ in found]
    added[name] = [last for _, _, last in found]
    print(f"{name:>29}: mean r", ", ".join(f"{ratio:.2f}" for ratio in ratios[name]),
          "  token spread", ", ".join(f"{spread:.2g}" for spread in spreads[name][12]), end="")
    print("" if connect is pre_norm
          else "   estimate " + ", ".join(f"{guess[12]:.2g}" for guess in guesses))
figures.runs_over(spreads | {"estimate for post-norm": estimates["post-norm"]},
                  "sublayers passed", "token spread after ten steps", log_y=True)
#| caption: Token spread along the stack after ten steps, and the estimate for post-norm. Each
#|   mark is one seed, lines join medians; three lines coincide at the top.

# %% tags=["hide-input"]
for name in spreads:
    print(f"{name:>29}: token spread of what the last sublayer adds",
          ", ".join(f"{spread:.2g}" for spread in added[name]))
full, warmed, small, at_first, pre = spreads.values()
assert max(full[12]) < 0.01 < min(warmed[12]), "no warm-up: every token the same"
assert min(small[12] + at_first[12] + pre[12]) > 0.5
assert min(ratios["post-norm"]) > 1.5
assert max(ratios["post-norm, × 0.2 at the start"]) < 0.8
for name in ("post-norm", "post-norm, warm-up"):
    for seed in range(3):
        factor = spreads[name][12][seed] / estimates[name][12][seed]
        assert 0.4 < factor < 2.5, "right to about a factor of two"

# %% [raw] slide
# ## Token spread after ten steps
# {figure}

# %% [markdown]
# * *Without a warm-up:* in post-norm, the branches are on average about twice as large as $x$. After twelve sublayers,
#   less than a thousandth of $x$ differs between tokens. This is rank collapse.
# * *Small branches:* at the same rate and after as many steps, the token spread is still 0.8 or more.
# * *The estimate:* with branches of full size, with or without a warm-up, it is right to about a factor of two, for
#   every seed. With small branches it is too low. What these branches add differs from token to token (see the last
#   lines), and the estimate ignores this.
#
# (With the warm-up, these ten steps are shorter. The next section follows all sixty.)
#
# Do models with small branches *learn*? The opposite test is just as important: if large branches are the cause,
# doubling them must break post-norm even *with* a warm-up. These are recorded runs of sixty steps at 0.01:

# %% tags=["hide-input"]
trained = {(row["name"], row["warm_up"], row["lr"]): row["losses"]
           for row in record["branches"]}
trained["post-norm", 30, 1e-2] = swept(["post-norm"])["post-norm, warm-up"][1e-2]
for name, warm_up in (("post-norm", 0), ("post-norm, branch × 0.2", 0),
                      ("post-norm, × 0.2 at the start only", 0), ("pre-norm", 0),
                      ("post-norm", 30), ("post-norm, branch × 2", 30)):
    losses = trained[name, warm_up, 1e-2]
    print(f"{name:>34}, {'warm-up' if warm_up else 'no warm-up':>10}:",
          ", ".join(f"{loss:.2f}" for loss in losses))

# %% [raw] slide
# ## Three tests that could have refuted it
# {print}
#
# **Now you:** a@deep_stacks, exercise 6

# %% [markdown]
# The explanation survives three tests that could have refuted it: the estimate, small branches, and doubled branches.
#
# At this rate a small beginning is enough, so the harm seems to be done in the first steps. At 0.03, of our two ways
# to make branches small, only the permanent factor is enough ([@fig:branch-sizes]).
#
# A permanent factor of 0.2 changes two things: the size of the branch, and how far each training step can move it.
# Scaling only the initial matrices leaves the steps of the last matrix at full effect, so it is the cleaner test. It
# is not perfectly clean: the steps of the inner matrices still act through a last matrix that is small at first.
#
# Liu et al. ([-@liu2020]) come to a similar conclusion: post-norm depends heavily on its branches, which amplifies
# small changes. Noci et al. ([-@noci2022]) find that tokens align in deep post-norm stacks even before training, unless
# the branches are scaled.
#
# **Now you:** [a08](@deep_stacks/assignment), exercise 6: measure the branches of a trained model, token by token.
#
# ## Why a warm-up helps post-norm: small branches or Adam's averages?
#
# These tests suggest an answer: a warm-up shortens the first steps, in which the branches would grow larger than $x$. A
# rival explanation blames Adam: in the first steps its average of squared gradients rests on few batches, so some steps
# are far too long ([@liu2020radam], who propose RAdam; [@ma2021] disagree). Each explanation makes a prediction that
# can fail:
#
# * *Small branches.* With a warm-up, $r$ must stay small for all sixty steps, thirty of them at the full rate. If it
#   grew as in the runs that fail, and the model learned all the same, we would be wrong.
# * *Adam's averages.* Good averages must make the warm-up unnecessary. So Adam first collects the gradients of 200
#   batches while no parameter changes. Then training begins at the full rate.
#
# *Guess:* how does $r$ change during training in each of the two runs, and which model learns?

# %% [raw] slide
# ## Why a warm-up helps: two explanations
# - *Small branches*: with a warm-up $r$ stays small, also at the full rate.
# - *Adam's averages*: if they are first collected over 200 batches, the warm-up becomes unnecessary. (RAdam)
#
# > **Guess first.** How does $r$ change during training in each of the two runs? Which model learns?

# %% tags=["hide-input"]
watched = {row["name"]: row for row in record["warm_up"]}
figures.runs_over({name: dict(zip(row["steps"], zip(*row["ratios"], strict=True), strict=True))
                   for name, row in watched.items()},
                  "training steps taken", "mean branch ratio r", level=("as large as x", 1.0))
print(f"{'':>21}   loss at the end   r after step 1     token spread at step 10   at step 60")
for name, row in watched.items():
    at_1 = (ratios[row["steps"].index(1)] for ratios in row["ratios"])
    at_10, at_60 = ([spreads[row["steps"].index(step)] for spreads in row["spreads"]]
                    for step in (10, 60))
    print(f"{name:>21}:", ",  ".join(f"{loss:.1f}" for loss in row["losses"]),
          "", ", ".join(f"{r:.2f}" for r in at_1),
          *(", ".join(f"{spread:.2f}" if spread > 1e-2 else f"{spread:.0e}"
                      for spread in spreads).rjust(23) for spreads in (at_10, at_60)))
#| caption: Mean branch ratio of post-norm during training, at a rate of 0.01. Each mark is one
#|   seed, lines join the medians; the warm-up ends after step 30.
#| label: warm-up

# %% [raw] slide
# ## A warm-up keeps the branches small
# {figure}

# %% [markdown]
# The first prediction holds, and the second fails.
#
# * *Small branches.* With a warm-up, $r$ stays below 1 for every seed, even at the full rate. The token spread falls
#   at first and then rises again, although $r$ is about as large at step 60 as at step 10. So by then the branches no
#   longer do what the estimate assumes, which is to add the same vector to all tokens, at right angles to $x$. We
#   think that a small $r$ gives the branches time to learn something else.
# * *Adam's averages.* Without a warm-up, $r$ is about the same after the first step (second column) whether Adam's
#   averages are good or poor. With good averages it then grows even more, and the model does not learn.
#
# So here **a warm-up helps because it shortens the first steps, and the branches stay smaller than $x$.** (We tested
# six blocks at one rate; Adam's averages may matter elsewhere. A third explanation is curvature: a warm-up may lead to
# flatter regions, where a full step is safe ([@kalra2024]). It does not exclude ours, and we have not tested it.)
#
# ## How large should a branch be? DeepNorm, ReZero, LayerScale
#
# Many methods make branches small at the beginning:
#
# | name | what is done | source |
# |---|---|---|
# | $1/\sqrt{2L}$ at the start | the last matrix of each branch begins smaller, so that $x$ does not grow with depth | GPT-2 ([@radford2019]) |
# | zero at the start | the last matrix of each branch begins at 0, so each block begins as the identity | Fixup ([@zhang2019fixup]), with further changes |
# | **ReZero** | $x + \alpha_\ell f_\ell(x)$, one learned number for each branch, 0 at first; no norm | [@bachlechner2021] |
# | **LayerScale** | $x + \lambda_\ell \odot f_\ell(\operatorname{norm}(x))$, a learned vector, small at first (0.1 in our runs) | [@touvron2021cait] |
# | **DeepNorm** | $\operatorname{norm}(\alpha x + f_\ell(x))$ with $\alpha = (2L)^{1/4}$; feed-forward, value and output matrices begin smaller by $\beta = (8L)^{-1/4}$ (for a single stack) | [@wang2022], for 1,000 layers |
#
# (Here $\alpha$ and $\beta$ are the papers' letters, neither attention weights nor the norm's bias.)
#
# The figure shows all these methods with six blocks and no warm-up, at two rates with three seeds each. (*Sandwich*
# and *res-post-norm* belong to the next section. Two rows change the norm itself, see *RMSNorm*.) Three rows have no
# norm at all: residual connections only, branches that begin at zero, and ReZero. *Guess:* which of these three
# learn?

# %% [raw] slide
# ## How large should a branch be?
# | name | what is done |
# |---|---|
# | $1/\sqrt{2L}$ at the start | the last matrix of each branch begins smaller (GPT-2) |
# | zero at the start | each block begins as the identity (Fixup) |
# | **ReZero** | $x + \alpha_\ell f_\ell(x)$, $\alpha_\ell = 0$ at first, no norm |
# | **LayerScale** | $x + \lambda_\ell \odot f_\ell(\operatorname{norm}(x))$ |
# | **DeepNorm** | $\operatorname{norm}(\alpha x + f_\ell(x))$, $\alpha = (2L)^{1/4}$ |
#
# > **Guess first.** Which of the methods without any norm learn?

# %% tags=["hide-input"]
groups = {"Norm on the stream (post-norm)": {
              "post-norm, branch × 2": "branch × 2", "post-norm": "unscaled",
              "post-norm, branch × 0.5": "branch × 0.5",
              "post-norm, branch × 0.2": "branch × 0.2",
              "post-norm, × 0.2 at the start only": "× 0.2 at the start only",
              "DeepNorm": "DeepNorm"},
          "Norms on the branches": {
              "pre-norm": "pre-norm", "pre-norm, 1/√(2L) at the start": "1/√(2L) at the start",
              "RMSNorm": "with RMSNorm",
              "subtract the mean only": "norms that only subtract the mean",
              "LayerScale": "LayerScale", "sandwich": "sandwich",
              "norm on the branch (OLMo 2)": "res-post-norm"},
          "No norm": {
              "no norm": "residual only", "no norm, 0 at the start": "0 at the start",
              "ReZero": "ReZero"}}
found = {}
for row in record["branches"] + record["norm_steps"]:
    if row.get("warm_up", 0) == 0:
        found.setdefault(row["name"], {})[f"rate {row['lr']:g}"] = row["losses"]
grouped = {heading: {short: found[name] for name, short in group.items()}
           for heading, group in groups.items()}
figures.runs_in_rows(grouped, "loss after 60 steps (nats per letter)",
                     level=("letter frequencies alone", frequencies), highest=4)
#| caption: Loss after 60 steps for each norm placement and branch size, at two learning rates.
#|   An arrow is a loss beyond the edge; × 3 stands where three seeds coincide.
#| label: branch-sizes

# %% [raw] slide
# ## Every small branch works at 0.01
# {figure}

# %% [markdown] teaches="pre-norm and post-norm"
# * *At a rate of 0.01*, every method with small branches works, even **without a single norm**. ReZero and branches
#   that begin at zero learn about as well as pre-norm, while residual connections alone explode. So with residual
#   connections, a small beginning can replace the norms at this rate.
# * *At 0.03* the methods differ. In post-norm a factor of 0.5 is no longer enough; a factor of 0.2 and DeepNorm are.
#   ReZero and LayerScale, which have a learned factor on each branch, hardly change. If the matrices only *begin* at
#   zero, the loss explodes.
#
# Six blocks and sixty steps do not tell us which method is best in a model a thousand times larger.
#
# **Now you:** [a08](@deep_stacks/assignment), exercise 7, with DeepNorm's factor.
#
# ## Norms in today's models: sandwich norm, res-post-norm, QK-norm
#
# Two decks write that pre-norm is "the one thing everyone agrees on (in 2024)". This was nearly true.
#
# **What pre-norm costs.** A branch adds a step of about one to an $x$ that has grown, so later blocks change $x$ less
# and less. Some of them can often be removed from a trained model ([@gromov2025]). Post-norm scales $x$ down at every
# sum, so its late branches keep their influence. The price is a narrower range of learning rates. Where post-norm can
# be trained, it has been found to end a little better ([@liu2020]). So the search has gone on. Here are two more
# placements:

# %%
figures.block_diagrams({
    "sandwich": ["norm → attention → norm", "norm → feed-forward → norm"],
    "res-post-norm": ["attention → norm", "feed-forward → norm"],
})
#| caption: Blocks with sandwich norm and with res-post-norm.

# %% [raw] slide
# ## Norms in today's models
# | placement | $x \leftarrow$ | used by |
# |---|---|---|
# | post-norm | $\operatorname{norm}(x + f(x))$ | the original, BERT |
# | pre-norm | $x + f(\operatorname{norm}(x))$ | GPT-2, GPT-3, Llama, Qwen |
# | sandwich | $x + \operatorname{norm}(f(\operatorname{norm}(x)))$ | Gemma 2 and 3 |
# | res-post-norm | $x + \operatorname{norm}(f(x))$ | Swin v2, OLMo 2 |
# | parallel | $x + f(\operatorname{norm}(x)) + g(\operatorname{norm}(x))$ | GPT-J, PaLM |
#
# **QK-norm** normalises each query and key, so the gain alone sets their size.

# %% [markdown]
# | placement | $x \leftarrow$ | used by |
# |---|---|---|
# | post-norm | $\operatorname{norm}(x + f(x))$ | the original, BERT; DeepNorm with scaled branches |
# | pre-norm | $x + f(\operatorname{norm}(x))$ | GPT-2, GPT-3, Llama, Mistral, Qwen |
# | **sandwich** | $x + \operatorname{norm}(f(\operatorname{norm}(x)))$ | CogView ([@ding2021]), Gemma 2 and 3 ([@gemma2024]; [@gemma2025]); analysed as *Peri-LN* by [@kim2025] |
# | **res-post-norm** | $x + \operatorname{norm}(f(x))$ | Swin v2 ([@liu2022]), OLMo 2 ([@olmo2025], as *reordered norm*) |
# | **parallel** | $x + f(\operatorname{norm}(x)) + g(\operatorname{norm}(x))$ | GPT-J, PaLM ([@chowdhery2022]), ViT-22B |
#
# In the last three rows, as in pre-norm, nothing is done to the residual stream except addition. A norm at the end of
# a branch fixes how much the branch adds, up to the norm's gain. In the last section's figure the sandwich ends about
# where pre-norm does, and res-post-norm a little higher. In res-post-norm, attention reads an $x$ that no norm has
# scaled. OLMo 2 combines it with QK-norm, which comes next and keeps the attention scores from growing. *DyT*
# ([@zhu2025]) replaces the norm itself by $\tanh(\alpha x)$, entry by entry, with a learned $\alpha$, gain and bias.
#
# If queries and keys grow during training, the softmax of their scores becomes almost one-hot, and its gradient nearly
# vanishes for most queries. In vision Transformers of about 8 billion parameters, this made the training loss diverge
# ([@dehghani2023]). **QK-norm** ([@henry2020]) normalises each query and each key before the product. ViT-22B, Qwen 3
# ([@yang2025qwen]) and Gemma 3 normalise within each head, and OLMo 2 over all heads at once. The next lines show the
# largest of 16 attention weights, on average over the queries, as queries and keys grow:

# %% tags=["hide-input"]
generator = torch.Generator().manual_seed(0)
Q, K = torch.randn(2, 500, 16, 32, generator=generator)                  # (500, n, d_k) each
norm = RMSNorm(32)                                        # gain 1; in a model, learned
for scale in (1, 2, 4, 8):
    largest = []
    for query, key in ((scale * Q, scale * K), (norm(scale * Q), norm(scale * K))):
        weights = (query @ key.mT / math.sqrt(32)).softmax(dim=-1)       # (500, n, n)
        largest.append(weights.max(dim=-1).values.mean().item())
    print(f"× {scale}: largest weight {largest[0]:.2f},  with QK-norm {largest[1]:.2f}")
assert largest[0] > 0.9 and largest[1] < 0.4

# %% [markdown] teaches="code: a block and a language model"
# With QK-norm the gain alone sets the size of queries and keys, whatever the projections do.
#
# ## Structural tests: a bug in a block that learns
#
# One deck shows the code of a small language model. Its block does this (the names are ours):
#
# ```python
# x = norm_1(x)                  # pre-normalisation
# x = x + attention(x)           # residual connection
# x = norm_2(x)                  # pre-normalisation
# x = x + feed_forward(x)        # residual connection
# ```
#
# The comments say what was intended. The model runs, and its loss falls. *Read the code again. What is wrong, and
# will a training run show it?*

# %% [raw] slide
# ## A bug in a block that learns
# ```python
# x = norm_1(x)                  # pre-normalisation
# x = x + attention(x)           # residual connection
# x = norm_2(x)                  # pre-normalisation
# x = x + feed_forward(x)        # residual connection
# ```
#
# > **Read it again.** What is wrong, and will a training run show it?

# %%
def as_printed(x, sublayer, norm):
    x = norm(x)
    return x + sublayer(x)

# %% [markdown] erratum="the residual from the normalised x; no final norm"
# > **A common mistake: the norm's result is stored under the name x.** So the sublayer's output is added to the
# > *normalised* $x$, and the norms stand on the residual stream. This is the wrong equation from above, as code. The
# > deck also leaves out the final norm of a pre-norm stack.
#
# We train four stacks: the block as printed and the repaired block, each without and with a final norm. Each stack is
# two blocks deep and trained for 90 steps with eight seeds and a warm-up, at rates of 0.005 and 0.01. Runs with the
# same seed have the same matrices and batches, so they are **paired**: the *difference* within each pair counts.
# *Guess:* is the loss lower with the printed block or with the repaired one, and is the difference clear?

# %% tags=["hide-input"]
def compare(title, first, second):
    differences = [a - b for a, b in zip(first, second, strict=True)]
    half = 2.365 * stdev(differences) / math.sqrt(8)      # Student's t for eight seeds, 95 %
    print(f"{title:>53}: {mean(differences):+.4f} ± {half:.4f}, "
          f"below zero in {sum(d < 0 for d in differences)} of 8")
    return differences, half


print("mean difference in nats per letter, and half of its 95 % interval")
stacks, differences = {}, {}
for rate, key in (("rate 0.005", "printed"), ("rate 0.01", "printed_twice")):
    printed, repaired, normed = record[key].values()
    with_last = record["printed_final"][key]
    stacks[rate] = {"as printed": printed, "repaired": repaired,
                    "as printed, final norm": with_last, "repaired, final norm": normed}
    print(f"{rate}, as printed − repaired")
    for name, first, second in (("neither has a final norm", printed, repaired),
                                ("both have a final norm", with_last, normed),
                                ("only the repaired has one", printed, normed)):
        differences.setdefault(name, {})[rate] = compare(name, first, second)
    compare("what a final norm changes: as printed", with_last, printed)
    compare("what a final norm changes: repaired", normed, repaired)
printed, repaired, *_ = stacks["rate 0.005"].values()
unpaired = 2.145 * math.sqrt((stdev(printed) ** 2 + stdev(repaired) ** 2) / 8)
print(f"the first difference, as if not paired: {mean(printed) - mean(repaired):+.4f}"
      f" ± {unpaired:.4f}")
figures.paired_runs(stacks["rate 0.005"], differences, "as printed − repaired",
                    "loss on all numbers (nats per letter)")
#| caption: Left: runs of eight seeds at a rate of 0.005. Right: the paired differences at two
#|   rates; a small mark is one seed, a bar the 95 % interval of the mean.

# %% [raw] slide
# ## The loss prefers the bug
# {figure}

# %% [markdown]
# As the deck has it, without a final norm, **the loss prefers the bug.** The difference is small, but its 95 %
# interval excludes zero at both rates, and it has the wrong sign.
#
# * *Pairing.* Without pairing, the interval at 0.005 would just include zero: much of the variation between seeds is
#   shared by both runs of a pair, and pairing removes it.
# * *The final norm.* If both stacks have a final norm, the difference is not clear at either rate. So the deck's
#   other fault, the missing final norm, must be repaired before the two blocks are compared.
# * *The complete pre-norm stack.* Against it, the block as the deck prints it is ahead at 0.005 and level at 0.01.
#
# In none of these comparisons is the printed block clearly worse. So a loss is no verdict on a block.
#
# A test of a *property* finds the bug at once. If its sublayers write zeros, a pre-norm block must return its input.
# This follows from the equation for every $x$, before any training:

# %%
def writes_nothing(y):
    return torch.zeros_like(y)


x = 2 * torch.randn(3, 5, 32) + 1                         # (batch, n, d)  not normalised
for connect in (as_printed, pre_norm):
    moved = (connect(x, writes_nothing, LayerNorm(32)) - x).abs().max().item()
    print(f"{connect.__name__:>10}: x moves by {moved:.3f}")
assert torch.equal(pre_norm(x, writes_nothing, LayerNorm(32)), x) and moved == 0

# %% [raw] slide
# ## A structural test finds it in a millisecond
# If the sublayers write nothing, a pre-norm block returns its input.
#
# {print}
# . . .
# It is a **post-norm** stack, with a norm in front and the last norm missing. So which line does it follow with six blocks?

# %% [markdown]
# This is a **structural test**. It does not ask whether a model is good, but whether it is built as intended. You know
# others: the leak test of [lecture @masking](@masking), the shuffle of [lecture @self_attention](@self_attention), and
# the two tests of batch normalisation above. They need no data and no training.
#
# What *is* the printed block, if it is not pre-norm? Write down the steps of several sublayers in a row, and regroup
# them:
#
# $$
# \text{norm}\;\to\;\bigl[\,\text{add } f_1 \to \text{norm}\,\bigr]\;\to\;\bigl[\,\text{add } f_2 \to
# \text{norm}\,\bigr]\;\to\;\bigl[\,\text{add } f_3 \to \text{norm}\,\bigr]\;\to\;\dots
# $$
#
# Each bracket is the "Add & Norm" of the original Transformer. *The printed stack is a post-norm stack* with one more
# norm in front, and without the last norm. The folded cell adds the missing norms and compares the outputs number by
# number.

# %% tags=["hide-input"]
torch.manual_seed(0)
norms = [LayerNorm(32) for _ in range(13)]
for norm in norms:                                        # as if they had been trained
    nn.init.normal_(norm.weight, mean=1.0, std=0.2)
    nn.init.normal_(norm.bias, std=0.2)
sublayers = [FeedForward(32, 128) for _ in range(12)]
x = y = torch.randn(3, 5, 32)                             # (batch, n, d)
for norm, sublayer in zip(norms[:-1], sublayers, strict=True):
    x = as_printed(x, sublayer, norm)
x = norms[-1](x)                                          # the norm that is missing at the end
y = norms[0](y)
for norm, sublayer in zip(norms[1:], sublayers, strict=True):
    y = post_norm(y, sublayer, norm)
print("the same numbers:", torch.equal(x, y))

# %% [markdown]
# Its low loss is no contradiction: that stack was only two blocks deep and had a warm-up. Now we can *predict* how
# the printed block behaves in a stack of six. *Guess:* which line does it follow in the sweep, post-norm's or
# pre-norm's?

# %%
lines = swept(["post-norm", "pre-norm", "as printed"])
figures.runs_side_by_side({warm_up: {name: lines[f"{name}, {warm_up}"]
                                     for name in ("post-norm", "as printed", "pre-norm")}
                           for warm_up in ("no warm-up", "warm-up")},
                          "learning rate", "loss after 60 steps (nats per letter)",
                          ("letter frequencies alone", frequencies))
#| caption: Loss against the learning rate for six blocks: post-norm, pre-norm, and the block as
#|   a slide prints it.

# %% tags=["hide-input"]
below_the_edge = {name: {lr: lines[f"{name}, warm-up"][lr] for lr in (1e-3, 3e-3)}
                  for name in ("post-norm", "as printed", "pre-norm")}
below_the_edge["as printed, and the last norm"] = {
    row["lr"]: row["losses"] for row in record["printed_normed"]
    if row["warm_up"] and row["lr"] <= 3e-3}
for name, by_rate in below_the_edge.items():
    print(f"{name:>29}, warm-up:", "   ".join(
        f"rate {lr:g} " + ", ".join(f"{loss:.2f}" for loss in losses)
        for lr, losses in by_rate.items()))

# %% [raw] slide
# ## The equation predicted it
# {figure}
#
# **Now you:** a@deep_stacks, exercise 8

# %% [markdown] teaches="what the tricks improve: training or ability"
# The prediction was right about the edge: the printed block learns and fails where post-norm does. Below the edge, it
# differs from post-norm. With a warm-up, at 0.001 and 0.003, its losses are lower than post-norm's and close to
# pre-norm's. In six blocks, the missing last norm makes this difference: once it is added, the losses are close to
# post-norm's (the printed lines). With a warm-up, a sweep of learning rates up to 0.003 would have shown no
# difference from pre-norm. Without one, the block already gives itself away at 0.003.
#
# Suppose that someone trains six such blocks without a warm-up "because pre-norm does not need one". At a rate of 0.01
# training fails, and the fault is in four lines whose comments look right.
#
# > **Check yourself.** What would be a structural test for a post-norm block? (Sublayers that write nothing do not make
# > it the identity.)
# > <details><summary>Answer</summary>With sublayers that do write, gains of 1 and biases of 0, the output must have
# > mean 0 and variance 1 for every token. Two other tests are necessary, but do not find the printed block. With
# > sublayers that write nothing, the output must be norm(norm(x)), and so the same for ten times x as for x (up to ε).
# > The printed block passes both.</details>
#
# **Now you:** [a08](@deep_stacks/assignment), exercise 8.
#
# ## In short
#
# | | | shapes |
# |---|---|---|
# | residual connection | $x_\ell = x_{\ell-1} + f_\ell(x_{\ell-1})$ | $(n, d) \to (n, d)$ |
# | its gradient | $\partial x_{2L} / \partial x_0 = (I + J_{2L}) \cdots (I + J_1)$, the last layer on the left | $(nd, nd)$, since attention mixes tokens |
# | LayerNorm | $(x - \mu) / \sqrt{\sigma^2 + \varepsilon} \odot \gamma + \beta$, over the features of each token | $\mu, \sigma^2$: $(n, 1)$; $\gamma, \beta$: $(d)$ |
# | RMSNorm | $x / \sqrt{\frac1d \sum_c x_c^2 + \varepsilon} \odot \gamma$: no mean, no shift | $\gamma$: $(d)$ |
# | post-norm, pre-norm | $\operatorname{norm}(x + f(x))$, $\;x + f(\operatorname{norm}(x))$ and a final norm | $(n, d) \to (n, d)$ |
#
# Without residual connections, none of the three initialisations lets six blocks keep up with one, because attention
# averages each token's own vector away. With residual connections alone, sizes explode, and a norm controls them.
# With the norm after the sum (post-norm), training fails at high learning rates unless the branches are small, and in
# our stacks a warm-up helps because the branches then stay smaller than $x$. With the norm in front of each sublayer
# (pre-norm), the residual stream stays free, and the stack needs a final norm. A structural test says whether a block
# is built as intended; the loss does not.
#
# **In the package.** `attncourse.layers` has `LayerNorm` and `RMSNorm`. `attncourse.transformer.Block` has both
# placements around attention and feed-forward network; `norm_place` in its config chooses one.

# %% [raw] slide
# ## In short
# | | |
# |---|---|
# | residual connection | $x_\ell = x_{\ell-1} + f_\ell(x_{\ell-1})$ |
# | its gradient | $(I + J_{2L}) \cdots (I + J_1)$, the last layer on the left |
# | LayerNorm | $(x - \mu) / \sqrt{\sigma^2 + \varepsilon} \odot \gamma + \beta$, over the features of each token |
# | post-norm, pre-norm | $\operatorname{norm}(x + f(x))$, $\;x + f(\operatorname{norm}(x))$ and a final norm |
#
# What matters is how large a branch is compared with $x$. A structural test says whether a block is built as intended.
#
# **Now do** assignment a@deep_stacks. **Next:** lecture @transformer.

# %% tags=["hide-input"]
x = torch.randn(2, 5, 16, generator=torch.Generator().manual_seed(0))    # (batch, n, d)
for place, connect in {"pre": pre_norm, "post": post_norm}.items():
    block = Block(TransformerConfig(vocab_size=1, d_model=16, norm_place=place, dropout=0.0))
    y = connect(x, block.attention.sublayer, block.attention.norm)
    y = connect(y, block.ff.sublayer, block.ff.norm)
    assert torch.allclose(block(x), y, atol=1e-5), "the package's block is ours, twice"

# %% [markdown]
# > **Check yourself.**
# > 1. A pre-norm stack of 100 blocks is initialised as above. The attention of block 90 writes something of size 1. How
# >    large is this compared with $x$? What does it suggest about deep pre-norm stacks?
# > 2. One deck says that residual connections, norms and the scaled dot product do not improve what a model *can* do,
# >    but only how it trains. For which of the three is that exactly true?
# > 3. A colleague's post-norm model of 48 blocks does not learn. Name three things to try that this page has tested.
# > <details><summary>Answers</summary>
# >
# > 1. Before it, 178 sublayers have written, two for each block. If each added something of size one, independent of
# >    the others, x would have size √178, about 13, and attention would add a thirteenth. (Our stacks grow less: after
# >    24 blocks x has size 5, not 7.) So late blocks change little, which is the price of a free residual stream.
# > 2. It is exactly true of the scale: W_Q can absorb any factor. It is nearly true of the residual connection, because
# >    a feed-forward network with enough hidden units can represent x + f(x). But a head that averages over other
# >    tokens cannot also pass a token's own vector on, so around attention the connection does add something (lecture
# >    @masking). A norm even removes something, the vector's size. The deck is right in spirit: what these tricks
# >    improve is training.
# > 3. A warm-up, or a smaller learning rate. Branches that begin small, by smaller last matrices or by DeepNorm.
# >    Pre-norm, with a final norm.</details>
#
# **Now do** [assignment @deep_stacks](@deep_stacks/assignment) (about two hours): eight exercises, two
# questions in words, and an extension. **Next:** [lecture @transformer](@transformer), where these blocks become a
# Transformer.
#
# ## Going further: would a better initialisation do?
#
# Why does $x$ explode with He initialisation, and does a stack learn if $x$ keeps its size? First, untrained stacks:

# %% tags=["hide-input"]
for name, start in {"He": he, "LSUV": calibrated}.items():
    for depth in (6, 12):
        sizes, gradients = flow(start(fresh(no_residual, depth, d=64)))
        print(f"{name:>4}, {depth:>2} blocks: x {sizes[0]:.1f} → {sizes[-1]:<7.2g} "
              f"gradient at the first block {gradients[0]:.0e}")

# %% tags=["hide-input"]
grows = {}
for name, sublayer in zip(shrinks, he(fresh(no_residual, 1, d=64)).sublayers, strict=True):
    grows[name] = root_mean_square(sublayer(alike)) / root_mean_square(alike)
    print(f"one sublayer with He initialisation, {name:>12}: "
          f"equal tokens grow to {grows[name]:.2f}")
assert abs(grows["attention"] - 2) < 0.2 and abs(grows["feed-forward"] - math.sqrt(2)) < 0.15

# %% [markdown]
# With He initialisation $x$ explodes, and the gradient grows even faster. With LSUV $x$ keeps its size.
#
# > **Check yourself.** Why does $x$ explode with He initialisation? (See the last two lines.)
# > <details><summary>Answer</summary>Each matrix contributes a factor of √2, which is meant to make up for one ReLU.
# > Attention has two such matrices in a row, the value and the output matrix, and no ReLU, so together they double x.
# > The feed-forward network has two matrices and <i>one</i> ReLU, so one factor of √2 remains. That makes about 2.8 for
# > each block, or 500 for six.</details>
#
# Does the stack learn when $x$ keeps its size?

# %% tags=["hide-input"]
starts = {}
for row in record["initialisation"]:
    name = {"calibrated": "LSUV"}.get(row["start"], row["start"])
    starts.setdefault(name, {})[row["lr"]] = row["losses"]
for name, by_rate in starts.items():
    print(f"{name:>6}: loss after 60 steps, median of three seeds:", ", ".join(
        f"{median(losses):.3g} at {lr:g}" for lr, losses in by_rate.items()))

# %% [markdown]
# With He initialisation the loss explodes at every learning rate. Its factor is made for stacks with a ReLU between
# every two matrices, which attention does not have, so LSUV is the fair test of "the right size". LSUV is the best of
# the three, but not enough: at its best rate its three seeds end near 2.5, while one block reached about 0.6. Would
# more steps help? Here are runs of 500 steps, each at the best of three rates:

# %% tags=["hide-input"]
longer = {}
for row in record["longer"]:
    longer.setdefault((row["start"], row["depth"]), []).append(row)
for (start, depth), rows in longer.items():
    name = {"calibrated": "LSUV"}.get(start, start)
    losses = ", ".join(f"{loss:.2f}" for loss in min(rows, key=at_median)["losses"])
    print(f"{names[depth]:>8}, {name:>6}: loss after 500 steps {losses}")

# %% [markdown]
# Six blocks do learn, but slowly: after 500 steps they are still far behind one block.
#
# ## Going further: is it the average, or the matrices?
#
# Six blocks learn if $x$ bypasses attention. But a bypass changes two things: $x$ is averaged less, and it gets past
# the matrices. Two controls have no bypass and only make attention average less. With an *own share* $s$, attention
# uses $(1 - s)\,\alpha + s\,I$ in place of its weights $\alpha$. With *keys as queries*, the keys begin equal to the
# queries, and the queries begin four times as large, so that a token's score with itself is large. *Guess:* which of
# the two keeps the tokens apart, and which one learns, at $s = 0.9$?

# %% tags=["hide-input"]
by_weight, by_spread, best_of = {}, {}, {}
for row in record["mixing"]:
    best_of.setdefault((row["start"], row["share"]), []).append(row)
for (name, share), rows in best_of.items():
    row = best_of[name, share] = min(rows, key=at_median)
    own = [mean(weights) for weights in row["own"]]       # over the six layers, for each seed
    by_weight.setdefault(name, []).extend(zip(own, row["losses"], strict=True))
    by_spread.setdefault(name, []).extend(zip(row["spreads"], row["losses"], strict=True))
clusters = {}                                             # s, above its highest mark
for (name, share), row in best_of.items():
    if name == "own share":
        middle = mean(mean(weights) for weights in row["own"])
        clusters[f"{share:g}"] = (middle, max(row["losses"]))
figures.runs_by_cause({"weight on itself": by_weight, "token spread": by_spread},
                      "loss after 60 steps", ("letter frequencies alone", frequencies),
                      clusters)
chosen = {"keys as queries": ("keys as queries", 0.0), "own share 0.5": ("own share", 0.5),
          "own share 0.9": ("own share", 0.9)}
for name, key in chosen.items():
    row = best_of[key]
    print(f"{name:>15}: loss", ", ".join(f"{loss:.2f}" for loss in row["losses"]),
          "  token spread", ", ".join(f"{spread:.2f}" for spread in row["spreads"]),
          "  weight on itself, layer 6", ", ".join(f"{own[-1]:.2f}" for own in row["own"]))
#| caption: Six blocks without a bypass: loss against a token's weight on itself (mean of
#|   layers) and token spread, before training. A mark is a run; numbers: s.

# %% [markdown]
# Both controls keep the tokens apart, but only one learns.
#
# * *Own share.* With $s = 0.9$ six blocks get below 0.85, although nothing leads $x$ past the matrices. So averaging
#   *is* what stops them. The marks at weight 1 are $s = 1$, where no token sees another. Their losses are about as low.
#   So $s = 0.9$ preserves the token's own vector; it does not yet make attention useful.
# * *Keys as queries.* The loss stays above 2.4, at a token spread of 0.34 or more. In the sixth layer a token puts
#   only about a quarter of its attention on itself. The tokens still differ, but each is made of *other* tokens.
#
# So the loss follows a token's weight on itself, and rank collapse is the extreme case. This is one small task, and
# large scores may do harm of their own. Six blocks are still behind one.
#
# Bobby He et al. ([-@he2023]) build on the same remedy. With attention that begins close to the identity, among other
# changes, they train deep stacks without residual connections or norms. These need about five times as many steps as
# standard stacks.
#
# ## Going further: the gradient near the output
#
# A pre-norm stack's final norm reads an $x$ that has grown like $\sqrt L$. By the third property of norms, the
# gradients that come back through the final norm are smaller by a factor of $\sqrt L$. Xiong et al. ([-@xiong2020])
# derive bounds for the last block: they scale like $1/\sqrt L$ in pre-norm, and do not depend on $L$ in post-norm. On
# two logarithmic axes the slopes are −½ and zero. *Guess* what slopes six seeds at five depths give.

# %% tags=["hide-input"]
last = {}
for row in record["last_gradient"]:
    last.setdefault(row["wiring"], {})[row["depth"]] = row["norms"]
for name, by_depth in last.items():
    print(f"{name:>9}, median of six seeds:", ", ".join(
        f"{depth} blocks {median(norms):.2f}" for depth, norms in by_depth.items()))
    slopes = [figures.log_slope({depth: norms[seed] for depth, norms in by_depth.items()})
              for seed in range(6)]
    half = 2.571 * stdev(slopes) / math.sqrt(6)           # Student's t for six seeds, 95 %
    print(f"{name:>9}: slope {mean(slopes):+.2f} ± {half:.2f}")
per_block = sum(size**2 for size in written) / 24         # what a block adds to the square of x
grown = {depth: math.sqrt(below**2 + depth * per_block) for depth in last["pre-norm"]}
print(f"pre-norm, if it fell exactly as x grows: slope {-figures.log_slope(grown):+.2f}")

# %% [markdown] teaches="the loss landscape with and without them"
# In pre-norm the gradient falls, but more slowly than $1/\sqrt L$. The start of $x$ explains a part of this: $x$ begins
# at 1.4, and so grows more slowly than $\sqrt L$ at first. The rest we have not explained. In post-norm the gradient
# rises up to 8 blocks but no further, so one slope describes it badly. (It is often said that in post-norm the gradient
# *vanishes* towards the input. With this initialisation it does not, as the flows above show. With others it may.)
#
# ## Going further: the loss landscape
#
# Two decks show a famous pair of pictures ([@li2018]). The loss of a deep network is drawn as a landscape: rugged
# without residual connections, and a smooth bowl with them. Residual connections are "thought to smooth the loss
# landscape", the decks say. A landscape has as many dimensions as there are parameters, so a picture is only a slice:
# from the trained parameters we move in two random directions and record the loss. Steps are measured in units of each
# neuron's own weights (**filter normalisation**), because otherwise a network with large weights would look flat. Our
# networks have 16 feed-forward layers and learn to tell two spirals apart. Both have a norm in front of each layer, so
# the residual connection is the only difference.

# %% tags=["hide-input"]
landscape = measured("loss_landscape")
print(landscape["command"])
ticks = torch.tensor(landscape["ticks"])                  # (27,)
figures.loss_landscapes({name: (ticks, torch.tensor(losses))
                         for name, losses in landscape["slices"].items()})
for name, losses in landscape["slices"].items():
    print(f"{name:>11}: at the cross {losses[13][13]:.5f}, lowest {min(map(min, losses)):.5f}")
for name, bowls in landscape["bowls"].items():
    print(f"{name:>11}:", "   ".join(f"rising {bowl['rising']:.0%}, low {bowl['low']:.0%}"
                                     for bowl in bowls))
#| caption: The loss on a slice around the end of training (the cross), without and with
#|   residual connections. The lines join points of equal loss.

# %% [markdown]
# The left slice has a narrow valley between steep walls, and the right slice a wide one. The cross is where training
# ended; in the right slice the lowest loss is not at the cross but well above it (both are printed). These are one
# pair of networks and one pair of directions. The last two printed lines come from three seeds each. *Rising* is the share
# of steps at which the loss rises along 36 straight lines outwards, as in a bowl. *Low* is the share of the disc
# where the loss is below 0.1. For each seed the slice with residual connections rises more steadily and has more low
# ground. Three seeds of one small task are little evidence, and the landscape around the end of training does not
# show how training gets there.
#
# **Further reading.** *Residual connections*: [+@he2016]: figure 1, deeper is worse. [+@he2016identity], on the free
# path. [+@veit2016]. [+@li2018].
#
# *Rank collapse*: [+@dong2021]; [+@noci2022]; [+@he2023], without residual connections.
#
# *Initialisation*: [+@glorot2010]; [+@he2015]; [+@mishkin2016].
#
# *Norms*: [+@ba2016], section 3; [+@ioffe2015]; [+@ulyanov2016]; [+@zhang2019rms]; [+@xu2019].
#
# *Placement, warm-up and branches*: [+@xiong2020], figure 1 and section 3; [+@liu2020]; [+@liu2020radam], RAdam; [+@ma2021]; [+@kalra2024];
# [+@radford2019], GPT-2; [+@zhang2019fixup]; [+@bachlechner2021]; [+@touvron2021cait], LayerScale; [+@wang2022].
#
# *Today*: [+@ding2021], the sandwich; [+@liu2022]; [+@henry2020]; [+@dehghani2023]; [+@chowdhery2022]; [+@kim2025]; [+@zhu2025], DyT; and the reports
# [+@gemma2024], [+@gemma2025], [+@olmo2025] and [+@yang2025qwen].
