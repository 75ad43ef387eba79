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
# *About 60 minutes, of which one is computing. You need a Transformer's two sublayers, attention
# ([lecture @self_attention](@self_attention), [lecture @many_heads](@many_heads)) and the feed-forward network
# ([lecture @masking](@masking)), and from [lecture @bottleneck](@bottleneck) that a gradient is carried back by the
# chain rule, a product of one factor for each step.*
#
# After this lecture you can
#
# * say what becomes of a signal and of its gradient in a deep stack, with and without **residual connections**;
# * write **LayerNorm** and **RMSNorm**, say what they do to a vector, and recognise a misprint in their formula;
# * choose between **pre-norm** and **post-norm**, and say what the choice costs;
# * explain why a **warm-up** helps post-norm, and name an experiment that could have refuted the explanation;
# * place what today's models do: sandwich norm, norm on the branch, **QK-norm**, DeepNorm, ReZero;
# * write a **structural test** that finds a bug which the loss does not show.
#
# ## Deeper is worse: the degradation problem
#
# We have two kinds of layers, and both are good at something. So let us stack them. (Attention followed by a
# feed-forward network is called a **block**, and each of the two a **sublayer**.) If one block learns a task, six
# blocks should learn it better, or at least not worse: five of them could simply pass on what they were given.
#
# The task is the one of [lecture @masking](@masking): all numbers below a thousand, spelled out letter by letter.

# %% tags=["hide-input"]
try:
    from attncourse.attention import MultiHeadAttention

    from . import figures
except ModuleNotFoundError:
    raise ImportError(
        "This page needs the attncourse package: open it with `make lab` in the course's folder, "
        "or choose a kernel of the environment in which you installed the course."
    ) from None

import math
from statistics import mean, stdev

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
# In this lecture the sublayers stay as they are. What changes is how $x$ gets past them: the **wiring**, a function of
# $x$, a sublayer and a norm. We begin without any help. $x$ goes in, and what the sublayer has made of it comes out.

# %%
def no_residual(x, sublayer, norm):
    return sublayer(x)


class CausalAttention(MultiHeadAttention):
    def forward(self, x):
        return super().forward(x, causal=True)            # no letter sees a later one

# %%
class Speller(nn.Module):
    """A language model of letters: `depth` blocks, each attention and feed-forward network."""

    def __init__(self, wiring, depth, d=32, final_norm=False):
        super().__init__()
        self.wiring = wiring                              # a function of x, a sublayer, a norm
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
            x = self.wiring(x, sublayer, norm)
        if stream is not None:
            stream.append(x)
        return self.output(self.final_norm(x))            # (batch, n, letters)

# %% [markdown]
# Not every wiring has a use for the norm; `no_residual` ignores it. Training is Adam with a learning rate that can rise
# during the first steps, a **warm-up**, which we shall need later. Models of one seed start with the same matrices and
# see the same numbers in the same order, so that they can be compared seed by seed.

# %%
def fresh(wiring, depth, seed=0, **options):
    torch.manual_seed(seed)
    return Speller(wiring, depth, **options)


def train(model, lr=1e-2, warm_up=0, steps=60, seed=0):
    draws, losses = torch.Generator().manual_seed(seed), []
    optimiser = torch.optim.Adam(model.parameters(), betas=(0.9, 0.98))
    for step in range(steps):
        for group in optimiser.param_groups:
            group["lr"] = lr * min(1.0, (step + 1) / (warm_up + 1))      # rises to lr
        loss = loss_of(model, torch.randint(1000, (16,), generator=draws))
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    return losses

# %% [markdown]
# *Guess first:* one block against six, sixty steps, three seeds. Which is lower at the end? (The learning rate is
# 0.003, which is kind to both; larger ones come later.)

# %%
plain = {}
for depth in (1, 6):
    for seed in range(3):
        plain[depth, seed] = train(fresh(no_residual, depth, seed), lr=3e-3, seed=seed)
figures.training_curves({f"{depth} deep": [plain[depth, seed] for seed in range(3)]
                         for depth in (1, 6)}, "loss (nats per letter)")

# %% tags=["hide-input"]
def at_the_end(losses):
    return sum(losses[-15:]) / 15


for seed in range(3):
    assert at_the_end(plain[6, seed]) > at_the_end(plain[1, seed]) + 0.3, "in training, too"

# %% [markdown]
# The deep one is worse, with every seed. Note that this is the *training* loss. So it is not overfitting: the deep
# model has learned less. He et al. (2016) met this with deep networks for images and called it the **degradation
# problem**. The five spare blocks could have passed on what they were given, and did not find out how. A deck puts it
# well: deep networks are surprisingly bad at learning the identity function.
#
# ## Signal propagation: what reaches the top, and what comes back
#
# Why should it be hard? $x$ is passed from layer to layer, and the gradient is passed back the same way. If each
# layer keeps half of what it gets, a millionth is left after twenty layers. [Lecture @bottleneck](@bottleneck) saw this
# happen in time. It happens in depth as well, and we can look before any training. How large are the numbers in $x$ on
# their way up? And how large is the gradient, for one matrix in each block, the second of its feed-forward network?

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
    print(f"{depth:>2} deep: x {sizes[0]:.1f} → {sizes[-1]:.0e}    "
          f"gradient at the first block {gradients[0]:.0e}")

# %% tags=["hide-input"]
for seed in range(3):
    (size, *_, top), (first, *_) = flow(fresh(no_residual, 24, seed, d=64))
    assert top < 1e-4 * size and first < 1e-4 * flow(fresh(no_residual, 2, seed, d=64))[1][0]

# %% [markdown]
# The signal dies (with two other seeds as well), and at 24 blocks about two millionths of a gradient are left at the first block. Which of the two
# sublayers is to blame? *Attention averages, and a feed-forward network has a ReLU. Guess which it is.* We give each
# of them tokens, once all different, and once all alike.

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
assert shrinks["attention"][0] < 0.6 < 0.8 < shrinks["attention"][1] and max(shrinks["feed-forward"]) < 0.7

# %% [markdown]
# Both are, at first. The average of vectors that point in different directions is shorter than they are, so the first
# attentions shrink $x$. But each of them makes the tokens more alike, and nothing is lost in averaging what is equal.
# What takes nearly half, in *every* block, is the feed-forward network: the ReLU throws away half of what it is given,
# and the matrices do not make up for it. Our **initialisation** is Xavier's (Glorot and Bengio 2010), of variance
# $2/(d_\text{in} + d_\text{out})$, which roughly keeps the size of signals and of gradients where layers are *linear*.
#
# And the gradient? A matrix's gradient is a product of the matrix's input and of what comes back to it. The last block
# gets the full gradient and a millionth of $x$. The first gets $x$ in full and a millionth of the gradient. Both learn
# next to nothing.
#
# ## Would a better initialisation do?
#
# If the sizes are the trouble, start with other sizes. **He initialisation** (He et al. 2015) has variance
# $2/d_\text{in}$, to make up for the ReLU. And we can do better than a formula. **Calibrate**: send data through
# the stack, and scale each sublayer's last matrix until what it writes is exactly as large as what it reads (after
# Mishkin and Matas 2016). *Guess:* which of the two will let six blocks learn?

# %%
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


for name, start in {"He": he, "calibrated": calibrated}.items():
    for depth in (6, 12):
        sizes, gradients = flow(start(fresh(no_residual, depth, d=64)))
        print(f"{name:>10}, {depth:>2} deep: x {sizes[0]:.1f} → {sizes[-1]:<7.2g} "
              f"gradient at the first block {gradients[0]:.0e}")

# %% [markdown]
# He's matrices are too large here: attention has no ReLU to make up for, and $x$ explodes. The calibrated stack has
# what we asked for, $x$ of one size from bottom to top. Does it learn? This cell reads a record of
# `benchmarks/deep_stacks.py`, which trains exactly the models of this page. Each mark is a seed,
# a line joins the medians, and an arrow at the edge stands for a loss beyond it.

# %%
record = measured("deep_stacks")
print(record["command"])


def at_median(row):                                       # the seed in the middle
    return sorted(row["losses"])[1]


counts = torch.bincount(spelled[:, 1:][spelled[:, 1:] >= 0]).double()    # (letters,)
shares = counts / counts.sum()
frequencies = -(shares * shares.log()).sum().item()       # an entropy, in nats per letter
print(f"knowing how frequent each letter is, and no more, costs {frequencies:.2f}")
starts = {}
for row in record["initialisation"]:
    starts.setdefault(row["start"], {})[row["lr"]] = row["losses"]
figures.runs_over(starts, "learning rate", "loss after 60 steps (nats per letter)",
                  log_x=True, log_y=True, highest=6,
                  level=("letter frequencies alone", frequencies))

# %% [markdown]
# He's start explodes at every rate. The calibrated one is the best of the three, and not enough: its best seeds end a
# little below the dotted line, where one block alone came to 0.6. Sizes are not all. Here is the other thing that a
# stack can lose, the **token spread**: how much of $x$ differs between tokens, $\lVert x - \bar x \rVert / \lVert x
# \rVert$. It is near 1 where tokens have little in common, and 0 where all are the same.

# %%
def token_spread(x):                                      # (batch, n, d)
    return ((x - x.mean(dim=(0, 1))).norm() / x.norm()).item()


left = {}
for depth in (6, 12):
    for seed in range(3):
        stream = []
        model = calibrated(fresh(no_residual, depth, seed, d=64))
        loss_of(model, torch.arange(0, 1000, 30), stream)
        left[depth, seed] = token_spread(stream[-1])
    print(f"calibrated, {depth:>2} deep: token spread {token_spread(stream[0]):.2f} → "
          + ", ".join(f"{left[depth, seed]:.4f}" for seed in range(3)))

# %% tags=["hide-input"]
assert max(left[12, seed] for seed in range(3)) < 0.03 < 0.5 < token_spread(stream[0])
best = [loss for lines in starts.values() for losses in lines.values() for loss in losses]
assert min(best) > 2.3 and min(min(losses) for losses in starts["He"].values()) > 20

# %% [markdown]
# The sizes are right, and the tokens become the same, with every seed. This is **rank collapse** (Dong, Cordonnier and
# Loukas 2021), which [lecture @masking](@masking) found in stacks of attention. An initialisation sets sizes. It cannot
# bring back what has been averaged away.
#
# Is this what stops the six blocks? So far that is a guess, and it can be tested. Of the two sublayers only attention
# averages over tokens. So let $x$ go around *one kind of sublayer* and be added to what the sublayer writes (divided
# by √2, so that sizes stay as they are), and calibrate again. If the guess is right, a way around attention must help,
# and a way around the feed-forward network must not. From the record, six deep, three seeds at the best of three rates:

# %%
partial = {}
for row in record["partial"]:
    partial.setdefault(row["residual"], []).append(row)
for name, rows in partial.items():
    best_row = min(rows, key=at_median)
    print(f"x led around {name:>12}: loss", ", ".join(f"{loss:.2f}" for loss in best_row["losses"]),
          "  token spread at the start", ", ".join(f"{s:.2f}" for s in best_row["spreads"]))

# %% tags=["hide-input"]
lowest = {name: [min(losses) for losses in zip(*(row["losses"] for row in rows), strict=True)]
          for name, rows in partial.items()}
assert max(lowest["attention"]) < 1.3 < 2 < min(lowest["feed-forward"] + lowest["neither"])

# %% [markdown] teaches="residual connections and the gradient through them"
# The guess has survived. With $x$ led around attention alone, six blocks learn; around the feed-forward networks alone,
# they stay near the dotted line. (It is not proven. A way around attention changes the gradient as well, and the
# spread is not the only thing that differs.) As long as each sublayer *replaces* $x$, the answer is no.
#
# ## Residual connections: add to x, do not replace it
#
# So lead $x$ around *every* sublayer, and add. The remedy is old by now, and the course has used it already.
#
# $$x_\ell = x_{\ell - 1} + f_\ell(x_{\ell - 1})$$
#
# The sublayer need not repeat what it read; it says only what there is to add. A sublayer that finds nothing writes
# zero, and the sum is the identity. This is a **residual connection** (He et al. 2016). The vector that runs through
# the whole stack, to which every sublayer adds something, is called the **residual stream**, and $f_\ell$ is a
# **branch**.

# %%
def residual(x, sublayer, norm):
    return x + sublayer(x)


figures.block_wiring({"no residual": ["only attention", "only feed-forward"],
                      "residual": ["attention", "feed-forward"]})

# %% [markdown]
# What does that do to the gradient? Let $J_\ell$ be the **Jacobian** of $f_\ell$, the table of how each of its outputs
# changes with each of its inputs. One layer with its residual connection has $I + J_\ell$. The chain rule multiplies
# them, and since matrices do not commute, their order matters: the *last* layer stands on the left.
#
# $$\frac{\partial x_L}{\partial x_0} = (I + J_L)(I + J_{L-1}) \cdots (I + J_1)
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

# %% [markdown] erratum="the gradient is 1"
# > **A common mistake: "the gradient through a residual connection is 1".** Through the connection it is. Through the
# > layer it is $I$ *plus something*. Of the $2^L$ terms of the product one is the identity, and no layer can take it
# > away. That is the good news, and it is half of the story.
#
# *Guess the other half before you run the next cell:* what will the gradient at the first of twelve blocks be? About
# 1? More? Less?

# %%
for depth in (2, 6, 12):
    sizes, gradients = flow(fresh(residual, depth, d=64))
    print(f"{depth:>2} deep: x {sizes[0]:.1f} → {sizes[-1]:.0e}    "
          f"gradient at the first block {gradients[0]:.0e}")

# %% tags=["hide-input"]
for seed in range(3):
    sizes, gradients = flow(fresh(residual, 12, seed, d=64))
    assert sizes[-1] > 50 and gradients[0] > 1e3, "one plus something, twenty-four times over"

# %% [markdown] teaches="layer normalisation"
# It explodes, with two other seeds as well. If $J$ is about as large as $I$, each sublayer makes $x$ larger by some factor, and the next one, which
# reads a larger $x$, writes more still. So a way past the layer is not enough. Something must keep the *sizes* in
# order. There are two ways: make every branch small (we come back to that), or normalise.
#
# > **Check yourself.** In a trained stack of 12 residual layers you remove one, and the model still works. Would you
# > expect that without residual connections?
# > <details><summary>Answer</summary>No. With them, layer 8 reads x plus everything that was added, and one term of the
# > sum is missing. Without them, layer 8 would read the input of layer 7 in place of its output, something that it has
# > never seen. Veit, Wilber and Belongie (2016) did this to networks for images, with and without.</details>
#
# **Now you:** [a08](@deep_stacks/assignment), exercise 6, the product for any number of layers.
#
# ## Layer normalisation (LayerNorm)
#
# Take one token's vector, $d$ numbers. Subtract their mean, and divide by their standard deviation. Whatever the vector
# was, it now has mean 0 and variance 1. Then let the layer learn a **gain** $\gamma$ and a **bias** $\beta$ for each
# number, so that no size is forbidden. (One can do without these two, as two decks note.) This is **layer
# normalisation**, **LayerNorm** (Ba, Kiros and Hinton 2016):
#
# $$
# \mu = \frac1d \sum_{c=1}^d x_c \qquad \sigma^2 = \frac1d \sum_{c=1}^d (x_c - \mu)^2 \qquad
# \operatorname{LayerNorm}(x) = \frac{x - \mu}{\sqrt{\sigma^2 + \varepsilon}} \odot \gamma + \beta
# $$

# %%
x = torch.tensor([3.0, 9.0, 4.0, 0.0])                    # (d,)  one token
mu = sum(x) / len(x)
variance = sum((number - mu) ** 2 for number in x) / len(x)
y = [(number - mu) / math.sqrt(variance + 1e-5) for number in x]
print("mean", mu.item(), "  variance", variance.item(), "  normalised", [f"{c:.2f}" for c in y])
assert torch.allclose(torch.stack(y), F.layer_norm(x, (4,)), atol=1e-5), "torch's"

# %% [markdown]
# ε, a small number, keeps a vector of variance zero from giving 0/0. What do the two steps *do* to a vector? Here are
# seven vectors of three numbers each. To subtract the mean is to move along the direction $(1, 1, 1)$, which changes
# all numbers by the same amount, until their sum is zero. That is a projection onto a plane. In the plane, dividing by
# the standard deviation moves every point to the same distance from the middle.

# %%
points = torch.randn(7, 3, generator=torch.Generator().manual_seed(259)) + 0.6       # (7, 3)
figures.norm_steps(points)

# %% tags=["hide-input"]
normalised = F.layer_norm(points, (3,), eps=0.0)          # (7, 3)
assert torch.allclose(normalised.sum(dim=-1), torch.zeros(7), atol=1e-5), "in the plane"
assert torch.allclose(normalised.norm(dim=-1), torch.full((7,), math.sqrt(3)), atol=1e-5), "on the circle"

# %% [markdown]
# In $d$ dimensions it is a sphere of radius $\sqrt d$, among the vectors that sum to zero. Of a vector, the direction
# in that plane is kept; how high it was and how long is lost. Three things follow, and we need each of them later:
#
# 1. Ten times the vector, or the vector with 7 added to every number, comes out the same.
# 2. So the gradient that comes back to $x$ sums to zero, and has no component along $x$: making it longer has no effect.
# 3. If $x$ is ten times as large, a step of the same length changes the output a tenth as much. So the gradient is
#    divided by the size of $x$.

# %%
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

# %% tags=["hide-input"]
assert abs(lengths[10] / lengths[1] - 0.1) < 1e-3 and abs(lengths[100] / lengths[1] - 0.01) < 1e-4
assert abs(x.grad.sum()) < 1e-12 and abs(along) < 1e-6

# %% [markdown] erratum="a sum for the mean; a product for the difference; a root too many; unit mean"
# Why does LayerNorm help? One deck says that a layer has an easier life if its input does not keep shifting. Two decks
# add that the *gradients* may matter more, and cite Xu et al. (2019). Those authors cut the mean and the variance out
# of the gradient, left the forward pass as it was, and found that it trained clearly worse. So points 2 and 3 may be
# the ones that count.
#
# > **A common mistake: misprints in the formula.** Few formulas are misprinted as often. A sum for the mean, $\mu =
# > \sum_c x_c$: the $\frac1d$ is missing. A product for the difference, $(x_c\,\mu)^2$. A root too many: $\sigma$ is the
# > standard deviation already, and then $\sqrt\sigma + \varepsilon$ is divided by. "Unit mean and standard deviation":
# > the mean is *zero*. And in code `torch.std` divides by $d - 1$ unless told otherwise.
#
# Which of them would you notice? Run them on vectors of the usual size, and on small ones.

# %%
vectors = torch.randn(1000, 64, generator=torch.Generator().manual_seed(3))          # (n, d)
print("largest error at scale" + " " * 10 + "1      0.01")
errors = {}
for scale in (1, 0.01):
    x = scale * vectors
    centred = x - x.mean(dim=-1, keepdim=True)
    std = centred.square().mean(dim=-1, keepdim=True).sqrt()             # (n, 1)
    printed = {"a sum for the mean": (x - x.sum(dim=-1, keepdim=True)) / (std**2 + 1e-5).sqrt(),
               "a root too many": centred / (std.sqrt() + 1e-5),
               "d − 1": centred / (x.var(dim=-1, keepdim=True) + 1e-5).sqrt(),
               "ε outside the root": centred / (std + 1e-5)}
    for name, y in printed.items():
        errors[name, scale] = (y - F.layer_norm(x, (64,))).abs().max().item()
for name in printed:
    print(f"{name:>20}: {errors[name, 1]:10.0e} {errors[name, 0.01]:9.0e}")

# %% tags=["hide-input"]
assert errors["a sum for the mean", 1] > 5
assert errors["a root too many", 1] > 0.1 and errors["a root too many", 0.01] > 2
assert errors["ε outside the root", 1] < 1e-4 < 0.1 < errors["ε outside the root", 0.01]
assert 1e-3 < errors["d − 1", 1] < 0.05

# %% [markdown]
# The first two show at once. The last two are conventions that hide: $d - 1$ costs the last digits of a published
# checkpoint, and an ε outside the root (a deck has it, as older code had) makes no difference until vectors are small.
# A checkpoint was trained with one of them, and needs the same.
#
# **Now you:** [a08](@deep_stacks/assignment), exercise 1.
#
# ## LayerNorm or batch normalisation: whose mean?
#
# A batch of token vectors, $(\text{batch}, n, d)$, has other axes along which one can take a mean. **Batch
# normalisation** (Ioffe and Szegedy 2015), a great success for images, takes it for each feature over everything else:
# all tokens of all sentences. Between the two lies a mean over the tokens of one sentence. The shapes fit every time.
# *Which of the three may a causal language model use?* Ask two questions, as in [lecture @masking](@masking). Does the
# past move if the future changes? And does a sentence get the same answer in other company?

# %%
over = {"features of a token": (-1,), "tokens of a sentence": (-2,), "batch norm": (0, 1)}


def standardise(x, axes):
    variance, mean_over = torch.var_mean(x, dim=axes, keepdim=True, correction=0)
    return (x - mean_over) / torch.sqrt(variance + 1e-5)


x = torch.randn(4, 6, 8, generator=torch.Generator().manual_seed(4))     # (batch, n, d)
future, company = x.clone(), x.clone()
future[:, 3:] += 1                                        # other tokens from the fourth on
company[1:] *= 2                                          # other sentences beside the first
for name, axes in over.items():
    y = standardise(x, axes)                              # (batch, n, d)
    past = (standardise(future, axes) - y)[:, :3].abs().max()
    first = (standardise(company, axes) - y)[0].abs().max()
    print(f"{name:>20}: the past moves by {past:.2f}, the first sentence by {first:.2f}")
    assert ((past < 1e-6) & (first < 1e-6)) == (name == "features of a token")

# %% [markdown] teaches="RMSNorm"
# Only LayerNorm's way. Over the tokens, the mean contains the end of the sentence: a leak from the future, with the
# mask in perfect order. Over the batch, your answer depends on who else has asked. (Image networks live with that, by
# keeping running averages for later use.)
#
# ## RMSNorm: the same with less
#
# Which of LayerNorm's two steps does the work, the projection or the sphere? Zhang and Sennrich (2019) left the
# projection out. A vector keeps its direction and gets the size one, by its **root mean square**:
#
# $$\operatorname{RMSNorm}(x) = \frac{x}{\sqrt{\frac1d \sum_c x_c^2 + \varepsilon}} \odot \gamma$$
#
# No mean, no bias: half of the parameters. In their experiments it was about as good and faster, and most large
# language models of today have it, Llama for one. (One deck prints it without ε; a vector of zeros is then NaN.) On
# vectors of mean zero the two are the same function, and random vectors in high dimensions nearly have mean zero:

# %%
for d in (4, 64, 1024):
    x = torch.randn(1000, d, generator=torch.Generator().manual_seed(0))            # (n, d)
    difference = (RMSNorm(d)(x) - LayerNorm(d)(x)).norm(dim=-1) / math.sqrt(d)      # (n,)
    print(f"d = {d:>4}: RMSNorm and LayerNorm differ by {difference.mean():.0%} of the vector")
assert difference.mean() < 0.05

# %% [markdown] teaches="pre-norm and post-norm"
# > **Check yourself.** (1) What does LayerNorm make of the vector (5, 5, 5, 5), and what does RMSNorm make of it? (2) A
# > LayerNorm follows directly on another one, both without gain and bias. What does the second do? (3) In front of a
# > LayerNorm, a linear layer's weights and bias are doubled. What does the norm's output do?
# > <details><summary>Answers</summary>(1) LayerNorm: zeros, since 0/√ε is 0. RMSNorm: (1, 1, 1, 1). (2) Nothing: the
# > vector is on the sphere already (up to ε). (3) Nothing either; the norm takes the factor out.</details>
#
# **Now you:** [a08](@deep_stacks/assignment), exercise 2.
#
# ## Norm placement: post-norm and pre-norm
#
# Now we have two parts, the residual connection and the norm, and two places for the norm. The original Transformer
# adds and then normalises; its picture says so in one box, "Add & Norm". That is **post-norm**. The other way is to
# normalise only what the sublayer *reads*, and to leave the sum alone: **pre-norm**.
#
# $$
# \text{post-norm:}\quad x \leftarrow \operatorname{norm}\bigl(x + f(x)\bigr) \qquad\qquad
# \text{pre-norm:}\quad x \leftarrow x + f\bigl(\operatorname{norm}(x)\bigr)
# $$

# %%
def post_norm(x, sublayer, norm):
    return norm(x + sublayer(x))


def pre_norm(x, sublayer, norm):
    return x + sublayer(norm(x))


figures.block_wiring({
    "post-norm": ["attention", "norm", "feed-forward", "norm"],
    "pre-norm": ["norm → attention", "norm → feed-forward"],
})

# %% [markdown] erratum="x¹ for x in the sum; x_l for x_{l+1}; the final norm of x_{l+1}"
# Follow the thick line, the residual stream. In a post-norm block everything that $x$ carries passes every norm. In a
# pre-norm block the line is free from bottom to top, and the norms stand on the branches.
#
# > **A common mistake: the sum starts from the wrong x.** In a pre-norm block the branch reads the normalised $x$, and
# > its result is added to $x$ *itself*. One deck's equation adds it to the normalised $x$ ($x^3 = x^2 + x^1$, where $x^1
# > = \operatorname{norm}(x)$). Keep this one in mind; it will come back as code. Two more slips of the same pages: the
# > final norm belongs to $x_{L+1}$, after the *last* block, and what leaves block $l$ is $x_{l+1}$, not $x_l$ again.
#
# Here is the flow through all four wirings, untrained, at three depths. *Before you look, guess:* which two are fit for
# 24 blocks? In which of these two does $x$ grow, and where is the gradient larger, in the first block or in the last?

# %%
WIRINGS = {"no residual": no_residual, "residual": residual,
           "post-norm": post_norm, "pre-norm": pre_norm}
flows = {name: {depth: flow(fresh(wiring, depth, d=64, final_norm=(wiring is pre_norm)))
                for depth in (6, 12, 24)} for name, wiring in WIRINGS.items()}
figures.flow_grid(flows)

# %% tags=["hide-input"]
for name in ("post-norm", "pre-norm"):
    first, last = flows[name][24][1][0], flows[name][24][1][-1]
    assert 0.05 < first < 50 and 0.05 < last < 50, "neither dies nor explodes, at 24 blocks"
assert flows["no residual"][24][1][0] < 1e-4 and flows["residual"][24][1][0] > 1e8
ratio = flows["pre-norm"][24][0][-1] / flows["pre-norm"][6][0][-1]
assert 1.6 < ratio < 2.6, "four times the depth, twice the size"

# %% [markdown]
# Two wirings survive, and they are different. In post-norm $x$ has size one after every norm, and the gradient has
# about one size in all blocks. In pre-norm $x$ *grows*: each sublayer reads something of size one and adds something
# of about the same size. Independent contributions add up like the steps of a random walk, so $x$ grows about like
# the root of the number of sublayers, $\sqrt{2L}$. (The first block gets more gradient than the last, since whatever
# it writes is read by all the others, too.)
#
# Hence the **final norm**. A post-norm stack ends in a norm. A pre-norm stack ends in a sum that no norm has touched,
# of a size that depends on the depth, and the output layer would have to live with that. So one norm more is put
# after the last block. Remember it; somebody will forget it in a moment.
#
# **Now you:** [a08](@deep_stacks/assignment), exercises 3 and 5. (Exercise 4 comes later.)
#
# ## Norm placement and learning rate: a sweep
#
# So far we have looked at the first gradient of untrained models. Does the placement matter for training? A single
# learning rate would not answer that, since each wiring may want another. So we **sweep** it: five rates, each with
# the full rate from the first step on ("cold") and with a warm-up of thirty steps, and three seeds. (The original
# Transformer had a warm-up of 4,000 steps; [lecture @training](@training) has the whole schedule.) That makes 60 runs
# for the two placements, too long for this page, so they are in the record. Here is one of them, to see that it is
# the same:

# %%
model = fresh(post_norm, depth=6)
train(model, lr=1e-2)
with torch.no_grad():
    here = loss_of(model, torch.arange(1000)).item()
(kept,) = [row["losses"][0] for row in record["sweep"]
           if (row["wiring"], row["warm_up"], row["lr"]) == ("post-norm", 0, 1e-2)]
print(f"post-norm, cold, learning rate 0.01, seed 0: {here:.2f} here, {kept:.2f} in the record")

# %% tags=["hide-input"]
assert abs(here - kept) < 0.1

# %% [markdown]
# A loss of 2.77 is what one pays for knowing how frequent each letter is, and nothing more. *Guess:* which lines go up
# there, and at which rates?

# %%
def swept(wirings):
    lines = {}
    for row in record["sweep"]:
        if row["wiring"] in wirings:
            name = f"{row['wiring']}, {'warm-up' if row['warm_up'] else 'cold'}"
            lines.setdefault(name, {})[row["lr"]] = row["losses"]
    return lines


figures.runs_over(swept(["post-norm", "pre-norm"]), "learning rate",
                  "loss after 60 steps (nats per letter)", log_x=True, log_y=True,
                  level=("letter frequencies alone", frequencies))

# %% tags=["hide-input"]
ends = {name: {lr: sorted(losses) for lr, losses in line.items()} for name, line in swept(WIRINGS).items()}
assert ends["post-norm, cold"][3e-3][2] < 2 < ends["post-norm, cold"][1e-2][0], "a narrow window"
assert ends["post-norm, warm-up"][1e-2][2] < 1 < 2 < ends["post-norm, warm-up"][3e-2][0], "moved"
assert max(ends["pre-norm, cold"][lr][2] for lr in (1e-3, 3e-3, 1e-2, 3e-2)) < 1

# %% [markdown]
# Post-norm has a narrow window. Cold, it learns at 0.001 and 0.003, and from 0.01 on it sits on the dotted line. The
# warm-up moves that edge by about a factor of three: 0.01 now works, and 0.03 hardly. Pre-norm learns at every rate, at
# 0.1 badly if it starts cold. It can do without a warm-up: at 0.01 that makes little difference, at higher rates it
# helps, and at lower ones it costs something, since the model moves less in its sixty steps. Each at its own best rate,
# pre-norm is ahead: after sixty steps, six deep. (We do not know which is ahead after sixty thousand.)
#
# So "post-norm needs a warm-up" is not a law. The question is how large a first step the model survives.
#
# ## Why post-norm fails at a full first step: branches that drown x
#
# What has happened to the cold post-norm model at 0.01? Xiong et al. (2020) find that in post-norm the gradients near
# the output are larger than in pre-norm, and say that this makes a full-sized first step dangerous. That is
# convincing for plain gradient descent. But Adam divides each gradient by its own size, so that a large one makes no
# larger step than a small one. So look inside, after ten steps, with two measures. The **branch ratio** is the size
# of what a sublayer writes over the size of the $x$ to which it is added. The **token spread** you know: at 0 all
# tokens are alike.

# %%
def inside(model, seed, warm_up=0):
    """Token spread before each sublayer, and the mean branch ratio, after ten steps."""
    train(model, warm_up=warm_up, steps=10, seed=seed)
    stream, ratios = [], []
    with torch.no_grad():
        loss_of(model, torch.arange(0, 1000, 30), stream)
        for x, sublayer, norm in zip(stream[:-1], model.sublayers, model.norms, strict=True):
            reads = norm(x) if model.wiring is pre_norm else x
            ratios.append(root_mean_square(sublayer(reads)) / root_mean_square(x))
    return [token_spread(x) for x in stream], mean(ratios)

# %% [markdown]
# And here is the guess that we want to test. *In post-norm the sum of $x$ and branch is scaled back to size one, $x$
# with it. If the first steps make the branches larger than $x$, little of $x$ is left after twelve norms. Then all
# tokens are alike, and there is nothing to learn from.* In pre-norm $x$ is never scaled down. An explanation that
# comes after the result is cheap. So give it a chance to fail. If it is right, cold post-norm must be cured, at the
# full rate, as soon as we make the branches smaller. Two ways: a factor of 0.2 on every branch, and no factor, but
# matrices that *begin* at a fifth:

# %%
def post_norm_small(x, sublayer, norm):
    return norm(x + 0.2 * sublayer(x))


def begun_small(model):
    with torch.no_grad():
        for sublayer in model.sublayers:
            writes(sublayer).weight *= 0.2
    return model


spreads, ratios = {}, {}
for name, wiring, warm_up in (("post-norm, cold", post_norm, 0),
                              ("post-norm, warm-up", post_norm, 30),
                              ("post-norm, branch × 0.2, cold", post_norm_small, 0),
                              ("post-norm, begun at 0.2, cold", post_norm, 0),
                              ("pre-norm, cold", pre_norm, 0)):
    models = [fresh(wiring, 6, seed, final_norm=(wiring is pre_norm)) for seed in range(3)]
    if "begun" in name:
        models = [begun_small(model) for model in models]
    found = [inside(model, seed, warm_up) for seed, model in enumerate(models)]
    spreads[name] = {place: [spread[place] for spread, _ in found] for place in range(13)}
    ratios[name] = [ratio * (0.2 if wiring is post_norm_small else 1) for _, ratio in found]
    print(f"{name:>30}: branch ratio", ", ".join(f"{ratio:.2f}" for ratio in ratios[name]))
figures.runs_over(spreads, "sublayers passed", "token spread after ten steps", log_y=True)

# %% tags=["hide-input"]
cold, warmed, small, begun, pre = spreads.values()
assert max(cold[12]) < 0.01 < min(warmed[12]) and min(small[12] + begun[12] + pre[12]) > 0.5, "every token the same"
assert min(ratios["post-norm, cold"]) > 1.5 and max(ratios["post-norm, begun at 0.2, cold"]) < 0.8

# %% [markdown]
# Cold, the branches of post-norm write about twice as much as $x$ itself, so each norm scales $x$ down by half or more.
# After twelve of them less than a thousandth of $x$ differs between tokens: rank collapse. With small branches,
# at the same rate and after as many steps, most of the spread is kept. (The warm-up lies in between. It alone
# would prove little: its first ten rates add up to a sixth of the others', so that model has simply moved less.)
#
# Those were ten steps. Do small branches *train*? And there is a test in the other direction. If large branches are the
# trouble, then doubling them should break post-norm even *with* a warm-up. From the record, sixty steps at 0.01:

# %%
trained = {(row["name"], row["warm_up"], row["lr"]): row["losses"]
           for row in record["branches"]}
trained["post-norm", 30, 1e-2] = swept(["post-norm"])["post-norm, warm-up"][1e-2]
for name, warm_up in (("post-norm", 0), ("post-norm, branch × 0.2", 0),
                      ("post-norm, × 0.2 at the start only", 0), ("pre-norm", 0),
                      ("post-norm", 30), ("post-norm, branch × 2", 30)):
    losses = trained[name, warm_up, 1e-2]
    print(f"{name:>34}, {'warm-up' if warm_up else 'cold':>7}:",
          ", ".join(f"{loss:.2f}" for loss in losses))

# %% tags=["hide-input"]
assert max(trained["post-norm, branch × 0.2", 0, 1e-2]) < min(trained["pre-norm", 0, 1e-2]), "even ahead"
assert max(trained["post-norm, × 0.2 at the start only", 0, 1e-2]) < 0.6
assert min(trained["post-norm", 0, 1e-2]) > 2 and min(trained["post-norm, branch × 2", 30, 1e-2]) > 2

# %% [markdown]
# The explanation has survived three tests, each of which could have refuted it. At this rate a small beginning is
# enough, so the harm is done in the first steps. (At 0.03 it is not enough, as the next picture shows: there the
# branches must stay small.) And with small branches, post-norm is level with pre-norm or ahead of it. (That
# nothing else plays a part has not been shown. Liu et al. 2020 see it in the same way: it is post-norm's dependency
# on its branches that amplifies small changes, more than the size of its gradients.)
#
# ## How large should a branch be? DeepNorm, ReZero, LayerScale
#
# The idea that branches should begin small has many names. Let $L$ be the number of blocks, $2L$ that of sublayers.
#
# | name | what is done | where from |
# |---|---|---|
# | $1/\sqrt{2L}$ at the start | the matrices that write begin smaller, so that $x$ does not grow with depth | GPT-2 (Radford et al. 2019) |
# | zero at the start | the matrices that write begin at 0, so each block begins as the identity | Fixup (Zhang, Dauphin and Ma 2019), with more |
# | **ReZero** | $x + \alpha_\ell f_\ell(x)$, one learned number each, 0 at first, no norm | Bachlechner et al. (2021) |
# | **LayerScale** | $x + \lambda_\ell \odot f_\ell(\operatorname{norm}(x))$, a learned vector, small at first | Touvron et al. (2021) |
# | **DeepNorm** | $\operatorname{norm}(\alpha x + f_\ell(x))$, $\alpha = (2L)^{1/4}$; matrices smaller by $(8L)^{-1/4}$ at the start | Wang et al. (2022), for 1,000 layers |
#
# All of them, six deep, cold, at two learning rates and with three seeds. (Two rows belong to the next
# section.) *Guess:* which rows without any norm will learn?

# %%
rows = {}
for row in record["branches"]:
    if row["warm_up"] == 0:
        rows.setdefault(row["name"], {})[f"rate {row['lr']:g}"] = row["losses"]
figures.runs_in_rows(rows, "loss after 60 steps (nats per letter)",
                     level=("letter frequencies alone", frequencies), highest=4)

# %% [markdown] teaches="pre-norm and post-norm"
# At 0.01 every way of making branches small works, even **without a single norm**: ReZero and branches that begin at
# zero learn about as well as pre-norm, where plain residual connections end beyond the edge of the picture. So a
# better start cannot replace residual connections, but together with them it can replace the norms, at this rate. At
# 0.03 the ways part. ReZero and LayerScale, with a learned factor on each branch, are hardly affected. Matrices that
# only *begin* at zero explode. (Six blocks and sixty steps. Which is best in a model a thousand times larger is
# another question.)
#
# **Now you:** [a08](@deep_stacks/assignment), exercise 4, with DeepNorm's factor.
#
# ## Norms in today's models: sandwich norm, OLMo 2, QK-norm
#
# "The one thing everyone agrees on (in 2024)", two decks write above their slide about pre-norm. It was nearly so. The
# original Transformer and BERT are post-norm; GPT-2, GPT-3 and Llama are pre-norm (a slide notes one exception, OPT's
# 350 M). Where a post-norm model can be trained, it has been found to end a little better (Liu et al. 2020), and so the
# search has gone on. Two placements beside the two:

# %%
figures.block_wiring({
    "sandwich": ["norm → attention → norm", "norm → feed-forward → norm"],
    "norm on the branch": ["attention → norm", "feed-forward → norm"],
})

# %% [markdown]
# | placement | $x \leftarrow$ | who |
# |---|---|---|
# | post-norm | $\operatorname{norm}(x + f(x))$ | the original, BERT; with scaled branches DeepNorm |
# | pre-norm | $x + f(\operatorname{norm}(x))$ | GPT-2, GPT-3, Llama, Mistral, Qwen |
# | **sandwich** | $x + \operatorname{norm}(f(\operatorname{norm}(x)))$ | CogView (Ding et al. 2021), Gemma 2 and 3 |
# | **norm on the branch** | $x + \operatorname{norm}(f(x))$ | Swin v2 (Liu et al. 2022), OLMo 2 (2025) |
# | **parallel** | $x + f(\operatorname{norm}(x)) + g(\operatorname{norm}(x))$ | GPT-J, PaLM (Chowdhery et al. 2022), ViT-22B |
#
# In the last three, as in pre-norm, the residual stream is free. A norm at the end of a branch fixes how much it
# adds. (Two of them are rows of the last section's picture. There they are no better than pre-norm, and OLMo 2's is a
# little worse; it was made for models of billions of parameters, and goes together with the next idea.)
#
# There is one more place. Attention scores are products of queries and keys, and if those grow during training, the
# softmax becomes hard and its gradient vanishes. **QK-norm** normalises each query and each key before the product
# (Henry et al. 2020; ViT-22B, Dehghani et al. 2023; Qwen 3 and Gemma 3, in each head; OLMo 2, over all heads at once). *Guess* the largest attention weight
# over 16 keys, on average, as queries and keys grow:

# %%
generator = torch.Generator().manual_seed(0)
Q, K = torch.randn(2, 500, 16, 32, generator=generator)                  # (500, n, d_k) each
norm = RMSNorm(32)                                        # gain 1; in a model, learned
for scale in (1, 2, 4, 8):
    largest = []
    for query, key in ((scale * Q, scale * K), (norm(scale * Q), norm(scale * K))):
        weights = (query @ key.mT / math.sqrt(32)).softmax(dim=-1)       # (500, n, n)
        largest.append(weights.max(dim=-1).values.mean().item())
    print(f"× {scale}: largest weight {largest[0]:.2f},  with QK-norm {largest[1]:.2f}")

# %% tags=["hide-input"]
assert largest[0] > 0.9 and largest[1] < 0.4

# %% [markdown] teaches="code: a block and a language model"
# Whatever the projections do, with QK-norm the sizes of queries and keys are what the gain says.
#
# ## A bug that the loss prefers: structural tests
#
# One deck shows a small language model in code. This is the heart of its block, in our words:
#
# ```python
# x = norm_1(x)                  # pre-normalisation
# x = x + attention(x)           # residual connection
# x = norm_2(x)                  # pre-normalisation
# x = x + feed_forward(x)        # residual connection
# ```
#
# The comments say what is meant. The model runs, and its loss falls. *Read it again. What is wrong, and will a training
# run show it?*

# %%
def as_printed(x, sublayer, norm):
    x = norm(x)
    return x + sublayer(x)

# %% [markdown] erratum="the residual from the normalised x; no final norm"
# > **A common mistake: the norm's result is stored under the name x.** So what attention found is added to the
# > *normalised* x: the deck's equation of above, come to life. The residual stream is no longer free. And after the last
# > block the deck goes straight to the output layer. There is no final norm either, which a pre-norm stack needs.
#
# We train the block as printed and the block repaired, two deep, on eight seeds, with a warm-up. Both have the same
# matrices and the same batches for one seed. So they are **paired**, and it is the *difference* of each pair that
# counts, not the two means. *Which is lower, and can one tell?*

# %%
final = record["printed"]
differences = [wrong - right for wrong, right in
               zip(final["as printed"], final["repaired"], strict=True)]
half = 2.365 * stdev(differences) / math.sqrt(8)          # Student's t for eight seeds, 95 %
print(f"as printed − repaired: {mean(differences):+.4f} ± {half:.4f} nats per letter, "
      f"below zero in {sum(d < 0 for d in differences)} of 8")
spreads_of = [stdev(final[name]) for name in ("as printed", "repaired")]
unpaired = 2.145 * math.sqrt(sum(spread**2 for spread in spreads_of) / 8)
print(f"as if the runs were not paired: ± {unpaired:.4f}")
figures.paired_runs(final, ("as printed", "repaired"), half,
                    "loss on all numbers (nats per letter)")

# %% tags=["hide-input"]
assert mean(differences) + half < 0, "the loss prefers the bug"

# %% [markdown]
# Unpaired, the interval would reach zero. Paired, it does not: most of the scatter is common to both runs of a seed.
# The difference is small, but it is there, and it points the wrong way. **The loss prefers the bug.** Whoever chooses
# by the loss will keep it.
#
# But ask for a *property*, and it takes a millisecond. If the sublayers write nothing, a pre-norm block must return its
# input. That follows from the equation, for every $x$, before any training:

# %%
def writes_nothing(y):
    return torch.zeros_like(y)


x = 2 * torch.randn(3, 5, 32) + 1                         # (batch, n, d)  not normalised
for wiring in (as_printed, pre_norm):
    moved = (wiring(x, writes_nothing, LayerNorm(32)) - x).abs().max().item()
    print(f"{wiring.__name__:>10}: x moves by {moved:.3f}")
assert torch.equal(pre_norm(x, writes_nothing, LayerNorm(32)), x) and moved == 0

# %% [markdown]
# This is a **structural test**. It does not ask whether a model is good, but whether it is what it says it is. You have
# met others: the leak test of [lecture @masking](@masking), the shuffle of [lecture @self_attention](@self_attention),
# the same answer in every company above. They need no data and no training, and they fail loudly.
#
# What *is* the printed block, if it is not pre-norm? Write several of its sublayers in a row, and set the brackets
# elsewhere.
#
# $$
# \operatorname{norm}\ \bigl[\,x + f(x) \to \operatorname{norm}\,\bigr]\ \bigl[\,x + g(x) \to \operatorname{norm}\,\bigr]\
# \bigl[\,x + f'(x) \to \operatorname{norm}\,\bigr]\ \dots
# $$
#
# Each bracket is "Add & Norm". *It is a post-norm stack*, with a norm in front and the last one missing: the same
# function, number by number.

# %%
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
assert torch.equal(x, y)
print("the same numbers:", torch.equal(x, y))

# %% [markdown]
# So the loss had nothing to complain of: two deep, with a warm-up, such a stack trains well. But now you can
# *predict* how the printed model behaves six deep, from the equation alone. Whose line in the sweep will it follow?

# %%
figures.runs_over(swept(["as printed", "post-norm"]), "learning rate",
                  "loss after 60 steps (nats per letter)", log_x=True, log_y=True,
                  level=("letter frequencies alone", frequencies))

# %% [markdown] teaches="what the tricks improve: training or ability"
# As predicted: it learns where post-norm learns, and fails where post-norm fails. Whoever takes that code, believes
# its comments, makes it six blocks deep and leaves out the warm-up "because pre-norm does not need one" will look for
# the fault everywhere but in four lines that have always worked. The loss answers one question: whether something is
# learned, at this size and with these settings. What a model *is* must be asked in other ways.
#
# > **Check yourself.** What would be a structural test for a post-norm block? Sublayers that write nothing do not make it
# > the identity.
# > <details><summary>Answer</summary>Several will do. With sublayers that write nothing it must be norm(norm(x)), which
# > for norms without gain and bias is norm(x). Its output has mean 0 and variance 1 for every token if the gain is 1 and
# > the bias 0. With sublayers that write nothing, ten times x must give the same as x.</details>
#
# **Now you:** [a08](@deep_stacks/assignment), exercise 7.
#
# ## In short
#
# | | | shapes |
# |---|---|---|
# | residual connection | $x_\ell = x_{\ell-1} + f_\ell(x_{\ell-1})$ | $(n, d) \to (n, d)$ |
# | its gradient | $\partial x_L / \partial x_0 = (I + J_L) \cdots (I + J_1)$, the last on the left | $(d, d)$ for one token |
# | LayerNorm | $(x - \mu) / \sqrt{\sigma^2 + \varepsilon} \odot \gamma + \beta$, over the features of each token | $\mu, \sigma^2$: $(n, 1)$; $\gamma, \beta$: $(d)$ |
# | post-norm, pre-norm | $\operatorname{norm}(x + f(x))$, $\;x + f(\operatorname{norm}(x))$ and a final norm | $(n, d) \to (n, d)$ |
#
# Without residual connections our deep stack did not learn, from any of three initialisations. With them alone,
# sizes explode. A norm keeps them in order: after the sum (post-norm), which needs small branches or a warm-up, or on
# the branch (pre-norm), which leaves the residual stream free and needs a final norm. What matters is how large a
# branch is beside $x$. Whether a block is wired as you mean is not for the loss to say, but for a structural test.
#
# **In the package.** `attncourse.layers` has `LayerNorm` and `RMSNorm`; `attncourse.transformer.Block` is the two
# wirings around attention and feed-forward network, as `norm_place` in its config says.

# %%
x = torch.randn(2, 5, 16, generator=torch.Generator().manual_seed(0))    # (batch, n, d)
for place, wiring in {"pre": pre_norm, "post": post_norm}.items():
    block = Block(TransformerConfig(vocab_size=1, d_model=16, norm_place=place, dropout=0.0))
    y = wiring(x, block.attention.sublayer, block.attention.norm)
    y = wiring(y, block.ff.sublayer, block.ff.norm)
    assert torch.allclose(block(x), y, atol=1e-5), "the package's block is our wiring, twice"

# %% [markdown]
# > **Check yourself.**
# > 1. A pre-norm stack of 100 blocks is initialised as above. Block 90's attention writes something of size 1. How
# >    large is that beside $x$? What does that suggest about deep pre-norm stacks?
# > 2. One deck says of residual connections, norms and the scaled dot product that these tricks do not improve what a
# >    model *is able* to do, only how it trains. For which of the three is that exactly true?
# > 3. A colleague's post-norm model of 48 blocks does not learn. Name three things to try that this page has tested.
# > <details><summary>Answers</summary>
# >
# > 1. By then x has size √180 or so (two sublayers a block), about 13. One sublayer adds a thirteenth. Late blocks
# >    change little, and one can often remove some of them: the price of a free path.
# > 2. For the scale it is: W_Q can take up any factor. For the residual connection nearly so, as a feed-forward network
# >    with enough hidden numbers can represent x + f(x); but a head that averages over other tokens cannot also pass a
# >    token's own vector on, so around attention it does add something (lecture @masking). A norm even takes something
# >    away, the vector's size. It is right in spirit: what they buy is training.
# > 3. A longer warm-up, or a smaller learning rate. Branches that begin small: the matrices that write scaled down, or
# >    DeepNorm. Pre-norm, with a final norm.</details>
#
# **Now do** [assignment @deep_stacks](@deep_stacks/assignment) (somewhat under two hours): seven exercises, two
# questions in words, and an extension. **Next:** [lecture @transformer](@transformer), where these blocks become a
# Transformer. Below are two sections for those who have time left.
#
# ## Going further: the gradient near the output
#
# The final norm of a pre-norm stack has a consequence. Its input has grown like $\sqrt L$, so by the third property of
# norms the gradients that come back through it are smaller by $\sqrt L$. Xiong et al. (2020) derive this for the last
# block: its gradient falls like $1/\sqrt L$ in pre-norm, and does not depend on $L$ in post-norm. On two logarithmic
# axes that would be a slope of −½ and a slope of 0. Five depths, six seeds:

# %%
last = {}
for row in record["last_gradient"]:
    last.setdefault(row["wiring"], {})[row["depth"]] = row["norms"]
figures.runs_over(last, "blocks", "gradient at the last block", log_x=True, log_y=True)
for name, by_depth in last.items():
    slopes = [figures.log_slope({depth: norms[seed] for depth, norms in by_depth.items()})
              for seed in range(6)]
    half = 2.571 * stdev(slopes) / math.sqrt(6)           # Student's t for six seeds, 95 %
    print(f"{name}: slope {mean(slopes):+.2f} ± {half:.2f}")

# %% [markdown] teaches="the loss landscape with and without them"
# In pre-norm the gradient falls with depth, though more slowly than $1/\sqrt L$: in the shallow stacks $x$ is still
# for the most part what it was at the beginning, and has not grown. In post-norm it rises a little, at the edge of
# what six seeds can tell; the theory says that it does not depend on depth. (It is often said that in post-norm the
# gradient *vanishes* towards the input. With this initialisation it does not, as the columns above show. With others
# it may.)
#
# ## Going further: the loss landscape
#
# Two decks show a famous pair of pictures: the loss of a deep network as a landscape, a mountain range without
# residual connections, a smooth bowl with them (Li et al. 2018). "Thought to smooth the loss landscape", the decks
# say. The landscape has as many dimensions as there are parameters, so a picture can only be a slice: from the
# trained parameters, go some way in one random direction, some way in another, and write down the loss. Steps are
# measured in units of each neuron's own weights (**filter normalisation**), or large weights would look flat.
#
# Our networks have 16 feed-forward layers, 32 wide, and learn to tell two spirals apart. Both have a norm in front of
# each layer, so that the residual connection is the only difference. (So this does not show what it would do alone. The
# code is folded; open it if you want to know how many nets are evaluated at once.)

# %% tags=["hide-input"]
generator = torch.Generator().manual_seed(0)
angle = math.pi * torch.linspace(0.5, 2.5, 200)           # (200,)
arm = angle[:, None] / 6 * torch.stack([angle.cos(), angle.sin()], dim=1)            # (200, 2)
points = torch.cat([arm, -arm]) + 0.02 * torch.randn(400, 2, generator=generator)    # (400, 2)
points = torch.cat([points, torch.ones(400, 1)], dim=1)                              # (400, 3)
side = torch.arange(2).repeat_interleave(200)                                        # (400,)


def spiral_loss(matrices, with_residual):
    """The loss, for one set of matrices (d_in, d_out) each, or for many at once, (many, d_in, d_out)."""
    first, *layers, output = matrices
    x = points @ first                                    # (…, 400, 32)
    for W in layers:
        found = (F.layer_norm(x, (32,)) @ W).relu()       # (…, 400, 32)
        x = x + found if with_residual else found
    logits = F.layer_norm(x, (32,)) @ output              # (…, 400, 2)
    return -logits.log_softmax(dim=-1)[..., torch.arange(400), side].mean(dim=-1)    # (…,)


def learn_spirals(with_residual, seed, depth=16, steps=160):
    generator = torch.Generator().manual_seed(seed)
    shapes = [(3, 32), *[(32, 32)] * depth, (32, 2)]
    matrices = [torch.randn(shape, generator=generator) * math.sqrt(2 / shape[0]) for shape in shapes]
    matrices = [W.requires_grad_() for W in matrices]
    optimiser = torch.optim.Adam(matrices)
    for step in range(steps):
        for group in optimiser.param_groups:
            group["lr"] = 3e-3 * min(1, (step + 1) / 20) * (1 - step / steps)
        loss = spiral_loss(matrices, with_residual)
        optimiser.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(matrices, 1.0)
        optimiser.step()
    return [W.detach() for W in matrices]


def direction(matrices, generator):
    """A random direction in which each neuron's weights move by as much as they are long."""
    drawn = [torch.randn(W.shape, generator=generator) for W in matrices]
    return [D * W.norm(dim=0) / D.norm(dim=0) for D, W in zip(drawn, matrices, strict=True)]


@torch.no_grad()
def losses_around(matrices, with_residual, places, seed=0):
    """Losses (many,) at places (many, 2) of the slice."""
    generator = torch.Generator().manual_seed(seed)
    one, two = direction(matrices, generator), direction(matrices, generator)
    a, b = places[:, 0, None, None], places[:, 1, None, None]
    moved = [W + a * D + b * E for W, D, E in zip(matrices, one, two, strict=True)]
    return spiral_loss(moved, with_residual)


nets = {(with_residual, seed): learn_spirals(with_residual, seed)
        for with_residual in (False, True) for seed in range(3)}
ticks = torch.linspace(-0.5, 0.5, 27)                     # (27,)
grid = torch.cartesian_prod(ticks, ticks)                 # (729, 2)
slices = {}
for with_residual in (False, True):
    around = torch.cat([losses_around(nets[with_residual, 0], with_residual, part) for part in grid.split(81)])
    slices["residual" if with_residual else "no residual"] = ticks, around.view(27, 27)
figures.loss_landscapes(slices)

# %% [markdown]
# On the left a narrow gully between steep walls, on the right a wide valley. (The cross is where training ended. On
# the right the slice goes a little lower beside it: a slice that training never followed.) That is one pair of nets
# and one pair of directions, and pictures persuade too easily. So put two numbers on it, for three seeds: walk
# outwards in 36 directions. On what share of the steps does the loss rise, as it would in a bowl? And in what share
# of the disc is it below 0.1?

# %% tags=["hide-input"]
steps, turns = torch.linspace(0, 0.5, 21), 2 * math.pi * torch.arange(36) / 36
rays = torch.stack([turns.cos(), turns.sin()], dim=1)[:, None] * steps[:, None]      # (36, 21, 2)


def bowl(with_residual, seed):
    losses = torch.stack([losses_around(nets[with_residual, seed], with_residual, ray, seed) for ray in rays])
    rising = (losses.diff(dim=1) > 0).float().mean().item()
    low = ((losses < 0.1) * steps).sum() / (steps.sum() * 36)            # a ring counts for more, the larger it is
    return rising, low.item()


bowls = {with_residual: [bowl(with_residual, seed) for seed in range(3)] for with_residual in (False, True)}
for with_residual, found in bowls.items():
    said = "   ".join(f"rising {rising:.0%}, low {low:.0%}" for rising, low in found)
    print("residual:   " if with_residual else "no residual:", said)
for seed in range(3):
    assert bowls[True][seed][0] > bowls[False][seed][0] + 0.03, "more of it slopes towards the middle"
assert sum(low for _, low in bowls[True]) > 2 * sum(low for _, low in bowls[False]), "and the bottom is wider"

# %% [markdown]
# For each seed the slice with residual connections rises more steadily, and together they hold
# more than twice as much low ground. A landscape
# seen from the place where training has ended does not prove anything about how one gets there. It suggests.
#
# **Further reading.** *Residual connections*: He et al., [*Deep residual learning for image
# recognition*](https://arxiv.org/abs/1512.03385) (2016): figure 1, deeper is worse; and [*Identity mappings in deep
# residual networks*](https://arxiv.org/abs/1603.05027) (2016), on the free path. Veit, Wilber and Belongie, [*Residual
# networks behave like ensembles of relatively shallow networks*](https://arxiv.org/abs/1605.06431) (2016). Li et al.,
# [*Visualizing the loss landscape of neural nets*](https://arxiv.org/abs/1712.09913) (2018).
#
# *Rank collapse*: Dong, Cordonnier and Loukas, [*Attention is not all you need: pure attention loses rank doubly
# exponentially with depth*](https://arxiv.org/abs/2103.03404) (2021).
#
# *Initialisation*: Glorot and Bengio, [*Understanding the difficulty of training deep feedforward neural
# networks*](https://proceedings.mlr.press/v9/glorot10a.html) (2010); He et al., [*Delving deep into
# rectifiers*](https://arxiv.org/abs/1502.01852) (2015); Mishkin and Matas, [*All you need is a good
# init*](https://arxiv.org/abs/1511.06422) (2016).
#
# *Norms*: Ba, Kiros and Hinton, [*Layer normalization*](https://arxiv.org/abs/1607.06450) (2016), section 3; Ioffe
# and Szegedy, [*Batch normalization*](https://arxiv.org/abs/1502.03167) (2015); Zhang and Sennrich, [*Root mean
# square layer normalization*](https://arxiv.org/abs/1910.07467) (2019); Xu et al., [*Understanding and improving
# layer normalization*](https://arxiv.org/abs/1911.07013) (2019).
#
# *Placement and branches*: Xiong et al., [*On layer normalization in the Transformer
# architecture*](https://arxiv.org/abs/2002.04745) (2020), figure 1 and section 3; Liu et al., [*Understanding the
# difficulty of training Transformers*](https://arxiv.org/abs/2004.08249) (2020); Radford et al., [*Language models are
# unsupervised multitask learners*](https://openai.com/index/better-language-models/) (2019), GPT-2; Zhang, Dauphin and
# Ma, [*Fixup initialization*](https://arxiv.org/abs/1901.09321) (2019); Bachlechner et al., [*ReZero is all you
# need*](https://arxiv.org/abs/2003.04887) (2021); Touvron et al., [*Going deeper with image
# transformers*](https://arxiv.org/abs/2103.17239) (2021), LayerScale; Wang et al., [*DeepNet: Scaling Transformers to
# 1,000 layers*](https://arxiv.org/abs/2203.00555) (2022).
#
# *Today*: Ding et al., [*CogView*](https://arxiv.org/abs/2105.13290) (2021), the sandwich; Liu et al., [*Swin
# Transformer V2*](https://arxiv.org/abs/2111.09883) (2022); Henry et al., [*Query-key normalization for
# Transformers*](https://arxiv.org/abs/2010.04245) (2020); Dehghani et al., [*Scaling vision transformers to 22 billion
# parameters*](https://arxiv.org/abs/2302.05442) (2023); Chowdhery et al., [*PaLM*](https://arxiv.org/abs/2204.02311)
# (2022); and the reports on [Gemma 2](https://arxiv.org/abs/2408.00118), [Gemma 3](https://arxiv.org/abs/2503.19786),
# [OLMo 2](https://arxiv.org/abs/2501.00656) and [Qwen 3](https://arxiv.org/abs/2505.09388).
