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
# *About 48 minutes to read, and 75 to 90 with every guess and check; the computing takes a minute or more. RMSNorm is a
# good place for a break. You need the two sublayers of a Transformer, attention ([lecture
# @self_attention](@self_attention), [lecture @many_heads](@many_heads)) and the feed-forward network ([lecture
# @masking](@masking)), and the chain rule from [lecture @bottleneck](@bottleneck): a gradient is a product with one
# factor for each step.*
#
# After this lecture you can
#
# * say what happens to a signal and to its gradient in a deep stack, with and without **residual connections**;
# * write down **LayerNorm** and **RMSNorm**, say what they do to a vector, and find the misprint in a formula;
# * choose between **pre-norm** and **post-norm**, and say what the choice costs;
# * explain why a **warm-up** helps post-norm, and name an experiment that could have refuted the explanation;
# * describe later variants: sandwich norm, res-post-norm, **QK-norm**, DeepNorm, ReZero;
# * write a **structural test**, which shows whether a block is built as intended.
#
# Near the end we meet a block from published lecture slides that runs and learns, and yet is wrong. Will you see the
# fault, and would a training run show it? A three-line test does.
#
# ## The degradation problem: six blocks against one
#
# Attention followed by a feed-forward network is a **block**, and each of its two parts is a **sublayer**. If one
# block can learn a task, six blocks in a row should do no worse: five of them would only have to pass their input on.
# We try this on the task of [lecture @masking](@masking): spell all numbers below a thousand, letter by letter.

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
# All our models have the same sublayers. One function, `connect`, combines $x$ (the vectors of the tokens), a sublayer
# and a norm. The simplest version replaces $x$ by the sublayer's output and ignores the norm, which we define later.

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
            x = self.connect(x, sublayer, norm)           # what this lecture changes
        if stream is not None:
            stream.append(x)
        return self.output(self.final_norm(x))            # (batch, n, letters)

# %% [markdown]
# We train with Adam, with or without a **warm-up**, in which the learning rate rises during the first steps. Models
# with the same seed see the same numbers in the same order and, at equal depth, start from the same matrices, so we
# can compare them seed by seed.

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
# *Guess first:* we train one block and six blocks for sixty steps, with three seeds. Which loss is lower at the end?

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
#| caption: Without residual connections, six blocks learn less than one. Thin: three seeds;
#|   thick: their mean.

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
# **Six blocks learn less than one**, with every seed: after sixty steps they know little more than the letter
# frequencies. Overfitting cannot be the cause, because this is the *training* loss. He et al. ([-@he2016]) saw deeper
# networks for images train worse, too, and called this the **degradation problem**.
#
# ## Signal propagation: what reaches the top, and what comes back
#
# Why do six blocks learn less? The first suspect is size: $x$ passes through every sublayer on its way up, and its
# gradient passes through them again on its way down. [Lecture @bottleneck](@bottleneck) showed for time steps how a
# product of many factors vanishes or explodes; here the steps are layers of an untrained stack.
#
# We measure the **size** of $x$ by its root mean square (RMS), the root of the mean of its squared entries, and at
# the same places we take the length of the gradient of the loss with respect to $x$. *Guess:* in 24 untrained blocks,
# does $x$ shrink by a factor of about ten, a thousand or a million? And the gradient?

# %% [raw] slide
# ## Signal propagation
# $x$ goes up from layer to layer, and its gradient comes down the same way.
#
# > **Guess first.** In 24 untrained blocks, does $x$ shrink by a factor of ten, a thousand or a million? And the gradient?

# %%
def root_mean_square(x):
    return x.double().square().mean().sqrt().item()


def flow(model):
    """The size of x before each sublayer and after the last, and the gradient there."""
    stream = []
    loss = loss_of(model, torch.arange(0, 1000, 30), stream)
    for x in stream:
        x.retain_grad()
    loss.backward()
    gradients = [x.grad.double().norm().item() for x in stream]
    return [root_mean_square(x) for x in stream], gradients


def print_flows(connect, depths):
    for depth in depths:
        sizes, gradients = flow(fresh(connect, depth, d=64))
        print(f"{depth:>2} blocks: x on its way up {sizes[0]:.3g} → {sizes[-1]:.3g}, "
              f"its gradient on the way down {gradients[-1]:.3g} → {gradients[0]:.3g}")


print_flows(no_residual, (2, 6, 24))

# %% tags=["hide-input"]
for seed in range(3):
    (size, *between, top), (first, *_, last) = flow(fresh(no_residual, 24, seed, d=64))
    assert between[0] < 0.8 * size and between[1] < 0.8 * between[0], "both kinds shrink x"
    assert 3e5 < size / top < 5e6 and 3e5 < last / first < 5e6, "about a million"
    (size, *_, top), (first, *_, last) = flow(fresh(no_residual, 6, seed, d=64))
    assert 15 < size / top < 45 and 15 < last / first < 45, "six blocks: about thirty"

# %% [raw] slide
# ## Signal and gradient vanish
# {print}
#
# Attention averages different vectors, so it makes them shorter. The ReLU loses about half of the hidden entries.

# %% [markdown]
# **Signal and gradient vanish**: over 24 blocks, both shrink by a factor of about two million. Attention averages
# vectors that point in different directions, so the average is shorter than they are. The feed-forward network loses
# about half of its hidden entries in the ReLU.
#
# But six blocks lose only a factor of about thirty, and Adam makes up for a small gradient, because it divides each
# gradient by its own size. So shrinking alone hardly explains the failure.
#
# ## Rank collapse: what is lost besides size
#
# To see what else is lost, we first repair the sizes. They depend on the **initialisation**, the random numbers from
# which the matrices start. So we send data through the untrained stack and scale the last matrix of each sublayer
# until its output is as large as its input. This is the idea of **LSUV** (layer-sequential unit variance,
# [@mishkin2016]).
#
# <details><summary>Going further: Xavier's and He's initialisation</summary>
#
# Ours is Xavier's ([@glorot2010]), with variance $2/(d_\text{in} + d_\text{out})$. It preserves sizes if the layers
# are linear and square; otherwise it is a compromise between the way up and the way down. **He initialisation**
# ([@he2015]), with variance $2/d_\text{in}$, makes up for the ReLU, but in our stack it makes $x$ explode: on its way
# through a block $x$ meets four matrices (value, output, up, down), each of which doubles the mean square, and only
# one of them is followed by a ReLU, which halves it again.
#
# </details>

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

# %% tags=["hide-input"]
sizes = {start: flow(start(fresh(no_residual, 12, d=64)))[0] for start in (he, calibrated)}
assert sizes[he][-1] > 1e4 and abs(sizes[calibrated][-1] / sizes[calibrated][0] - 1) < 0.2

# %% [raw] slide
# ## Repair the sizes: initialisation
# | | | six blocks |
# |---|---|---|
# | **Xavier** | variance $2/(d_\text{in} + d_\text{out})$: for linear, square layers | $x$ vanishes |
# | **He** | variance $2/d_\text{in}$: compensates for a ReLU | $x$ explodes |
# | **LSUV** | send data through, scale each layer until its output has variance 1 | $x$ keeps its size |
#
# > **Guess first.** **Token spread**: how much of $x$ differs between tokens. After twelve blocks: about all of it, a tenth, a hundredth?

# %% [markdown]
# With LSUV, $x$ keeps its size at every depth, but a stack can also lose the differences between tokens. We measure
# these by the **token spread**, the share of $x$ that differs between tokens, $\lVert x - \bar x \rVert / \lVert x
# \rVert$, where $\bar x$ is the mean over all positions of the batch. It is near 1 if the tokens have little in
# common, and 0 if all are equal.
#
# *Guess:* after twelve untrained blocks with LSUV, is about all of the token spread left, a tenth, or a hundredth?
# And which kind of sublayer removes it, attention or the feed-forward network?

# %%
def token_spread(x):                                      # (batch, n, d)
    return ((x - x.mean(dim=(0, 1))).norm() / x.norm()).item()


along = []                                                # a row for each seed
for seed in range(3):
    stream = []
    loss_of(calibrated(fresh(no_residual, 12, seed, d=64)), torch.arange(0, 1000, 30), stream)
    along.append([token_spread(x) for x in stream])       # at the start, after each sublayer
figures.spread_by_sublayer(along, ("attention", "feed-forward"))
#| caption: Attention removes the token spread. Twelve untrained blocks with LSUV, a line for
#|   each of three seeds; the factors are the average change by one sublayer.
#| label: token-spread

# %% tags=["hide-input"]
for kind, name in enumerate(("attention", "feed-forward")):
    factors = [row[k + 1] / row[k] for row in along for k in range(kind, 24, 2)]
    factor = math.exp(mean(math.log(each) for each in factors))
    assert factor < 0.75 if name == "attention" else factor > 0.9
assert max(row[-1] for row in along) < 0.011 < 0.5 < along[0][0]

# %% [raw] slide
# ## The sizes are right, and the tokens become equal
# {figure}
# . . .
# This is **rank collapse**. Is averaging the cause? Give one kind of sublayer a residual connection: only attention's should help.

# %% [markdown]
# **The sizes are right, and yet the tokens become nearly equal.** Each attention sublayer removes about a third of the
# token spread, because it averages over tokens, while the feed-forward networks leave it almost unchanged: on average,
# a line falls to a circle and stays level to the next square. At the top, a hundredth or less is left. This is **rank
# collapse**, which [lecture @masking](@masking) found in stacks of attention ([@fig:rank-collapse]).
#
# Is it averaging that stops six blocks? We give *one kind of sublayer* a residual connection: we add its input to its
# output, and divide the sum by √2 to keep its size. If averaging is the cause, this should help around attention, but
# not around the feed-forward networks. From here on, each run shows the best of three learning rates, and "loss after 60
# steps" is measured on all 1,000 numbers, from which the batches were drawn as well.
#
# <details><summary>What differs in the next experiments, and what is held?</summary>
#
# | experiment | what differs | matrices at the start |
# |---|---|---|
# | one connection | which kind of sublayer has it | LSUV |
# | 500 steps | depth and start, without connections | Xavier or LSUV |
# | own share (below) | how much attention averages | LSUV |
#
# </details>

# %% tags=["hide-input"]
record = measured("deep_stacks")                          # by benchmarks/deep_stacks.py


def at_median(row):                                       # the seed in the middle
    return sorted(row["losses"])[1]


partial = {}
for row in record["partial"]:
    partial.setdefault(row["residual"], []).append(row)
print("residual connection around: loss after 60 steps, three seeds")
for name, rows in partial.items():
    losses = ", ".join(f"{loss:.2f}" for loss in min(rows, key=at_median)["losses"])
    print(f"{name:>26}: {losses}")
longer = {}
for row in record["longer"]:
    longer.setdefault((row["start"], row["depth"]), []).append(at_median(row))
best = {stack: min(losses) for stack, losses in longer.items()}
print(f"\naround neither, 500 steps: six blocks {best['Xavier', 6]:.2f} (Xavier) or "
      f"{best['calibrated', 6]:.2f} (LSUV), one block {best['Xavier', 1]:.2f} (Xavier)")
assert best["Xavier", 1] < 0.4 < 1.1 < min(best["Xavier", 6], best["calibrated", 6])

# %% [raw] slide
# ## The guess survives
# {print}
#
# Attention averages each token's own vector away.

# %% [markdown]
# **Repairing the sizes alone helps little, and so does a residual connection around the feed-forward networks. One
# around attention helps much.** So six blocks seem to fail because attention averages each token's own vector away.
# (He's networks have no attention, so their cause must be another.) Longer training does not close the gap: after 500
# steps, six blocks are still far behind one, each at its best rate.
#
# But a residual connection also leads $x$ past attention's matrices. So we build stacks that have none and only average
# less: with an *own share* $s$, attention uses $(1 - s)\,\alpha + s\,I$ in place of its weights $\alpha$.

# %% tags=["hide-input"]
best_of = {}                                              # at the best of three rates, again
for row in record["mixing"]:
    if row["start"] == "own share":
        kept = best_of.setdefault(row["share"], row)
        best_of[row["share"]] = min(kept, row, key=at_median)
by_share = {share: row["losses"] for share, row in best_of.items()}
figures.runs_over({"median": by_share}, "own share s",
                  "loss after 60 steps (nats per letter)",
                  level=("letter frequencies alone", frequencies))
#| caption: The less attention averages, the lower the loss of six blocks without residual
#|   connections. Three seeds, a mark each; the line joins the medians.
#| label: own-share

# %% tags=["hide-input"]
medians = [at_median(row) for row in best_of.values()]
assert list(best_of) == [0, 0.5, 0.7, 0.8, 0.9, 1] and 2.4 < medians[0] < 2.55
assert all(less > more for less, more in pairwise(medians)), "the loss falls as s grows"
assert max(by_share[0.9]) < 0.85 and max(by_share[1]) < 0.9
assert best_of[0]["lr"] == best_of[0.5]["lr"] == 1e-3, "the lowest rate of the three"
neither = min(partial["neither"], key=at_median)
assert neither["lr"] == 1e-3 and neither["spreads"] == best_of[0]["spreads"], "the same stack"
assert max(abs(a - b) for a, b in zip(neither["losses"], by_share[0], strict=True)) < 0.05
# queries that begin as four times the keys: more token spread than with attention's residual
alike = [row for row in record["mixing"] if row["start"] == "keys as queries"]
assert 2.4 < min(map(at_median, alike)) < 2.55
assert min(alike[0]["spreads"]) > max(partial["attention"][0]["spreads"])
assert max(own[-1] for own in alike[0]["own"]) < 0.27

# %% [markdown]
# **The less attention averages, the lower the loss**, although nothing leads $x$ past the matrices. So it is averaging
# that stops six blocks. But this does not yet make attention useful: at $s = 1$ no token sees another, and the loss is
# just as low.
#
# <details><summary>Two remarks on these numbers</summary>
#
# The stack with $s = 0$ is the one that was called "neither". Two programs computed it and round differently, so after
# sixty steps their losses differ by up to 0.05. For some of the shares, this one among them, the best rate is 0.001, the
# lowest that we tried, so a still lower one might do better.
#
# </details>
#
# <details><summary>Going further: is it the token spread that decides?</summary>
#
# Not the token spread alone. In one more stack, queries and keys begin with the same matrix, the queries' four times as
# large, so a token prefers vectors like its own. About 0.35 of the token spread is left at the start, more than with
# the residual connection around attention, and yet the loss stays near 2.5. In its last block a token gives only about
# a quarter of its weight to itself.
#
# </details>

# %% [raw] slide
# ## Residual connections: add to x, do not replace it
# $$x_\ell = x_{\ell - 1} + f_\ell(x_{\ell - 1})$$
#
# - The **residual stream** runs through the whole stack; $f_\ell$ is a **branch**.
# - A branch that writes zero makes the layer the identity.

# %% [markdown] teaches="residual connections and the gradient through them"
# ## Residual connections: add to x, do not replace it
#
# A **residual connection** adds the input of a sublayer to its output ([@he2016]):
#
# $$x_\ell = x_{\ell - 1} + f_\ell(x_{\ell - 1})$$ (eq:residual)
#
# If one around attention helps, why not give one to *every* sublayer, without the division by √2? Here $\ell$ counts
# sublayers, so $L$ blocks have $2L$ of them. A sublayer $f_\ell$ now computes only what is *added* to $x$, and is called
# a **branch**. If it writes zero, $x$ passes on unchanged. The vector that collects the additions on its way through
# the stack is the **residual stream**.

# %%
def residual(x, sublayer, norm):
    return x + sublayer(x)


figures.block_diagrams({"no residual": ["only attention", "only feed-forward"],
                        "residual": ["attention", "feed-forward"]},
                       jacobians=["$J_2\\, J_1$", "$(I + J_2)\\,(I + J_1)$"])
#| caption: Blocks without and with residual connections. Below each block is the derivative of
#|   its output, from the derivatives J₁ and J₂ of its two sublayers.
#| label: residual

# %% [raw] slide
# ## Two kinds of block
# {figure}

# %% [markdown]
# What happens to the gradient? Let $J_\ell$ be the **Jacobian** of $f_\ell$: its entry in row $i$, column $j$ says
# how output $i$ changes with input $j$. The Jacobian of $x$ itself is the identity $I$, so with its residual
# connection the layer has the Jacobian $I + J_\ell$. The chain rule multiplies these, with the *last* layer on the
# left. For two layers, the product has four terms:
#
# $$\frac{\partial x_2}{\partial x_0} = (I + J_2)(I + J_1) = I + J_1 + J_2 + J_2\, J_1$$
#
# Each term is a path from $x$ to the output, because at each layer a path goes around the branch or through it:

# %% tags=["hide-input"]
figures.residual_paths()
#| caption: The four paths through two residual sublayers (blue). The Jacobian is the sum of
#|   their terms.
#| label: residual-paths

# %% [raw] slide
# ## A sum over paths
# {figure}
#
# Without residual connections, one path is left: through every branch.

# %% [markdown]
# Without residual connections, only the last path would be left, through every sublayer. With them, $2L$ layers have
# $2^{2L}$ paths ([@veit2016]):
#
# $$\frac{\partial x_{2L}}{\partial x_0} = (I + J_{2L})(I + J_{2L-1}) \cdots (I + J_1)
# = I + \sum_\ell J_\ell + \sum_{k < \ell} J_\ell\, J_k + \dots$$
#
# The first term, the identity, is the path around all branches. It carries the gradient from the top to the bottom
# without any change. ($J_2$ is taken where $f_2$ reads, at $x_1 = x_0 + f_1(x_0)$. So the Jacobian is a sum over
# paths, but $x_{2L}$ itself is not.)

# %% tags=["hide-input"]
torch.manual_seed(0)
f_1, f_2, x = FeedForward(4, 16), FeedForward(4, 16), torch.randn(4)
jacobian = torch.autograd.functional.jacobian


def two_layers(x):
    h = x + f_1(x)
    return h + f_2(h)


J_1 = jacobian(f_1, x)                                    # (4, 4)
J_2 = jacobian(f_2, x + f_1(x))                           # (4, 4)  where the second layer reads
I, whole = torch.eye(4), jacobian(two_layers, x)          # (4, 4)
assert torch.allclose(whole, (I + J_2) @ (I + J_1), atol=1e-6)
assert not torch.allclose(whole, (I + J_1) @ (I + J_2), atol=1e-3), "the order matters"

# %% [raw] slide
# ## The gradient: the identity, plus something
# $$\frac{\partial x_{2L}}{\partial x_0} = (I + J_{2L}) \cdots (I + J_1) = I + \sum_\ell J_\ell + \sum_{k < \ell} J_\ell\, J_k + \dots$$
#
# **A common mistake: “the gradient through a residual connection is 1”.** True of the connection alone.
#
# > **Guess first.** In twelve blocks, is the gradient at the bottom about as large as at the top, larger, or smaller?

# %% [markdown] erratum="the gradient is 1"
# > **A common mistake: "the gradient through a residual connection is 1".** This is true of the connection alone. The
# > layer as a whole has the Jacobian $I$ *plus something*, and the other terms of the product can be large or can
# > cancel the identity: a single layer with $f(x) = -x$ makes the whole product zero.
#
# *Guess:* in twelve blocks, is the gradient at the bottom about as large as at the top, larger, or smaller?

# %%
print_flows(residual, (2, 6, 12))

# %% tags=["hide-input"]
def cut_off(module, inputs, output):
    return output.detach()


for seed in range(3):
    sizes, gradients = flow(fresh(residual, 12, seed, d=64))
    assert sizes[-1] > 50 and gradients[0] > 1e3, "one plus something, twenty-four times over"
    model = fresh(residual, 12, seed, d=64)
    for attention in model.sublayers[::2]:
        attention.query.register_forward_hook(cut_off)
        attention.key.register_forward_hook(cut_off)
    held = flow(model)[1]                                 # the attention weights count as fixed
    grown, grown_held = gradients[0] / gradients[-1], held[0] / held[-1]
    # how far the gradient grows depends on how a machine rounds; that it is much more does not
    assert 500 < grown_held < 2000 and grown > 50 * grown_held

# %% [raw] slide
# ## It explodes
# {print}
#
# Residual connections alone are not enough: something must keep the **sizes** in order.
#
# **Now you:** a@deep_stacks, exercise 1

# %% [markdown] teaches="the loss landscape with and without them"
# **Now $x$ and its gradient explode.** Each branch writes a vector nearly as large as the one that it reads, so each
# sublayer multiplies the size of $x$ by some factor, and $x$ grows exponentially with depth. Residual connections
# alone are therefore not enough: something must control the *sizes*. One way is to make every branch small, and we
# come back to it; the usual way is to normalise.
#
# <details><summary>Going further: why the gradient grows faster than x</summary>
#
# The scores in attention are products of $x$ with $x$, so where $x$ is large, a small change moves the attention
# weights from one token to another. If a folded cell holds these weights fixed, the gradient of the twelve blocks above
# grows about a thousandfold. If the weights move, it grows at least fifty times as much as that. (How much depends even
# on how a machine rounds.)
#
# </details>
#
# <details><summary>Going further: the loss landscape</summary>
#
# Residual connections are "thought to smooth the loss landscape", two sets of slides say, and they show a famous pair
# of pictures ([@li2018]). A landscape has as many dimensions as there are parameters, so a picture is only a slice:
# it shows the loss around the trained parameters along two random directions. Steps are measured in units of each
# neuron's own weights (**filter normalisation**), because otherwise a network with large weights would look flat.
#
# We measured such slices for networks of 16 feed-forward layers that learn to tell two spirals apart, with a norm in
# front of each layer. With residual connections the valley was wider for each of three seeds: the loss was below 0.1
# in 20 % or more of a disc around the end of training, and without them in 14 % or less. Three seeds of one small task
# are little evidence, and the landscape around the end of training does not show how training gets there.
#
# </details>
#
# > **Check yourself.** You remove one layer from a trained stack of 12 residual layers, and the model still works.
# > Would you expect that without residual connections?
# > <details><summary>Answer</summary>
# >
# > No. Suppose layer 7 is removed. With residual connections, layer 8 reads x plus everything that was added, with
# > one term of the sum missing. Without them, layer 8 would have to read the input of layer 7, which it has never
# > seen. Veit, Wilber and Belongie ([-@veit2016]) tested this in image networks with and without residual
# > connections.
# >
# > </details>
#
# **Now you:** [a08](@deep_stacks/assignment), exercise 1.

# %% tags=["hide-input"]
# the loss landscape, recorded by benchmarks/loss_landscape.py
bowls = measured("loss_landscape")["bowls"]
without, connected = ([bowl["low"] for bowl in bowls[name]]
                      for name in ("no residual", "residual"))
assert max(without) < 0.14 < 0.195 < min(connected)

# %% [markdown] teaches="layer normalisation"
# ## Layer normalisation (LayerNorm)
#
# **Layer normalisation**, or **LayerNorm** ([@ba2016]), gives every token's vector the same size. From the $d$
# entries of one token it subtracts their mean, and it divides by their standard deviation, so the result has mean 0
# and variance 1. A learned **gain** $\gamma$ and a learned **bias** $\beta$ for each entry then allow other sizes:
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

# %% [markdown]
# What do the two steps do to a vector? The figure shows seven vectors with three entries each. Subtracting the mean
# moves a vector along the direction $(1, 1, 1)$ until its entries sum to zero, so it projects the vector onto a plane
# (in the left panel, a line). *Guess:* where in this plane do the vectors lie after the division?

# %%
points = torch.randn(7, 3, generator=torch.Generator().manual_seed(259)) + 0.6       # (7, 3)
figures.norm_steps(points)
#| caption: LayerNorm projects vectors with three entries onto a plane, and then brings them
#|   onto a circle in it.

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
# zero, because with variance 1 the $d$ squared entries sum to $d$. **The norm keeps the direction of the projected
# vector and discards the mean and the length.** Three properties follow (exactly so if $\varepsilon = 0$):
#
# 1. If a vector is multiplied by ten, or 7 is added to each entry, the output stays the same.
# 2. So a step along $x$ or along $(1, \dots, 1)$ changes nothing. The gradient that comes back to $x$ is therefore at
#    right angles to both: its product with $x$ is zero, and its entries sum to zero.
# 3. If $x$ is ten times as large, a step of the same length changes the output a tenth as much. So the gradient is
#    divided by $\sigma$, the size of $x$ without its mean.
#
# <details><summary>Going further: one formula for properties 2 and 3</summary>
#
# With gain 1, bias 0 and $\varepsilon = 0$, the Jacobian of $y = \operatorname{LayerNorm}(x)$, with $y$ as a column, is
#
# $$\frac{\partial y}{\partial x} = \frac1\sigma \Bigl(I - \tfrac1d\, \mathbf 1 \mathbf 1^\top - \tfrac1d\, y\,
# y^\top\Bigr)$$
#
# The second term removes the direction of the mean, the third removes the direction of $y$, and $\frac1\sigma$
# divides by the size. A folded cell compares the formula with autograd.
#
# </details>

# %% tags=["hide-input"]
x = torch.tensor([3.0, 9.0, 4.0, 0.0])
y, sigma = F.layer_norm(x, (4,), eps=0.0), x.std(correction=0)
formula = (torch.eye(4) - torch.ones(4, 4) / 4 - torch.outer(y, y) / 4) / sigma     # (d, d)
by_autograd = jacobian(lambda x: F.layer_norm(x, (4,), eps=0.0), x)
assert torch.allclose(formula, by_autograd, atol=1e-6)
wish = torch.randn(64, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
start = torch.randn(64, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
lengths = {}
for scale in (1, 10):
    x = (scale * start).requires_grad_()                  # (d,)
    (F.layer_norm(x, (64,)) * wish).sum().backward()
    lengths[scale] = x.grad.norm().item()
assert abs(lengths[10] / lengths[1] - 0.1) < 1e-3
assert abs(x.grad.sum()) < 1e-12 and abs(x.grad @ x / x.norm()) < 1e-6

# %% [markdown]
# *Guess:* here is a denominator from teaching material, where $\sigma$ is the standard deviation:
# $\sqrt\sigma + \varepsilon$. Compare it with the formula above. What are its two mistakes?

# %% [raw] slide
# ## A common mistake: misprints in the formula
# > **Guess first.** A printed denominator: $\sqrt\sigma + \varepsilon$. What are its two mistakes?
#
# . . .
# - A sum for the mean. A product for the difference. An extra root. "Unit mean".
# - ε outside the root; `torch.std`, which divides by $d - 1$: the numbers hardly show these two.
#
# **Now you:** a@deep_stacks, exercise 2

# %% [markdown] erratum="a sum for the mean; a product for the difference; a root too many; unit mean"
# > **A common mistake: misprints in the formula.** We found all of these in teaching material:
# >
# > * A sum in place of the mean, $\mu = \sum_c x_c$. The factor $\frac1d$ is missing.
# > * $(x_c\,\mu)^2$ in place of $(x_c - \mu)^2$, and "unit mean" in place of mean zero.
# > * An extra root: division by $\sqrt\sigma + \varepsilon$, although $\sigma$ is already the standard deviation.
# > * ε outside the root: $\sigma + \varepsilon$ in place of $\sqrt{\sigma^2 + \varepsilon}$.
# >
# > The last one hides well, because it matters only for small vectors. So does another slip: `torch.std` divides by
# > $d - 1$ unless told otherwise. *The Annotated Transformer*, the best-known code for this subject, has both of
# > these in its norm.
#
# **Now you:** [a08](@deep_stacks/assignment), exercise 2.

# %% [raw] slide
# ## Whose mean? LayerNorm or batch normalisation
# Over the features of a token (LayerNorm), or over all tokens (batch norm).
#
# > **Guess first.** Which may a causal language model use? Does the past change with the future? Does a sentence depend on the rest of its batch?

# %% [markdown]
# ## LayerNorm or batch normalisation: whose mean?
#
# LayerNorm takes the mean over the features of one token, but a batch of token vectors, $(\text{batch}, n, d)$, has
# other axes as well. **Batch normalisation** ([@ioffe2015]) takes the mean of each feature over all tokens of all
# sentences.

# %%
figures.mean_axes(["LayerNorm: one token", "batch norm: all sentences"], batch=2)
#| caption: The entries over which one mean is taken (blue) in LayerNorm and in batch
#|   normalisation.
#| label: mean-axes

# %% [markdown]
# *Guess:* which may a causal language model use: LayerNorm, batch normalisation, or both? Two tests decide: does the
# past change if we change later tokens, and does a sentence change if we change the other sentences of its batch?

# %% tags=["hide-input"]
def two_norms(x):                                       # torch's own; each (batch, n, d)
    by_feature = x.mT                                     # (batch, d, n)  as torch wants it
    return {"LayerNorm": F.layer_norm(x, (8,)),
            "batch norm, training": F.batch_norm(by_feature, None, None, training=True).mT}


x = torch.randn(4, 6, 8, generator=torch.Generator().manual_seed(4))     # (batch, n, d)
future, company = x.clone(), x.clone()
future[:, 3:] += 1                                        # other tokens from the fourth on
company[1:] *= 2                                          # other sentences beside the first
for name, y in two_norms(x).items():
    past = (two_norms(future)[name] - y)[:, :3].abs().max()
    first = (two_norms(company)[name] - y)[0].abs().max()
    print(f"{name:>20}: the past moves by {past:.2f}, the first sentence by {first:.2f}")
    assert ((past < 1e-6) & (first < 1e-6)) == (name == "LayerNorm")

# %% [raw] slide
# ## Only LayerNorm passes
# {print}

# %% [markdown] teaches="RMSNorm"
# **Only LayerNorm passes both tests.** In batch normalisation the mean includes later tokens, so the future leaks
# into the past although the mask is right. It also includes the other sentences, so the result for a sentence depends
# on which others are in the batch. At inference, batch normalisation uses averages from training and no longer leaks,
# but then it computes a different function from the one that was trained.
#
# ## RMSNorm: LayerNorm without the mean
#
# LayerNorm has two steps, the projection and the division. Do we need both? Zhang and Sennrich ([-@zhang2019rms])
# left the projection out: **RMSNorm** only divides by the root mean square:
#
# $$\operatorname{RMSNorm}(x) = \frac{x}{\sqrt{\frac1d \sum_c x_c^2 + \varepsilon}} \odot \gamma$$ (eq:rmsnorm)
#
# RMSNorm has a gain but no bias, and so half as many parameters as LayerNorm. It also needs fewer operations: Zhang and
# Sennrich report 7 to 64 % less running time, depending on the model. How far apart are the outputs of the
# two norms on random vectors?

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

# %% [markdown]
# **The wider the random vectors, the closer the two norms.** The mean of $d$ independent random numbers around zero
# comes closer to zero as $d$ grows, so LayerNorm has less and less to subtract. Does training agree? We train six
# blocks with a norm in front of each sublayer, at a rate of 0.01 and without a warm-up. Three versions differ only in
# this norm:

# %% tags=["hide-input"]
(row,) = [row for row in record["sweep"]
          if (row["wiring"], row["warm_up"], row["lr"]) == ("pre-norm", 0, 1e-2)]
by_norm = {"LayerNorm": row["losses"]}
for row in record["norm_steps"]:
    if row["lr"] == 1e-2:
        by_norm[row["name"]] = row["losses"]
    elif row["name"] == "RMSNorm":
        assert row["lr"] == 3e-2 and max(row["losses"]) < 0.6, "the same at 0.03"
    else:
        assert row["losses"] == [None] * 3, "not finite"
for name, losses in by_norm.items():
    print(f"{name:>22}: loss", ", ".join(f"{loss:.2f}" for loss in losses))
assert max(by_norm["RMSNorm"]) < 0.5 < 100 < min(by_norm["subtract the mean only"])

# %% [markdown] teaches="pre-norm and post-norm"
# **Here the division does the work.** In these runs RMSNorm trains about as well as LayerNorm, whereas the loss
# explodes with a norm that only subtracts the mean. The same happens at 0.03; smaller rates we did not try. Most of
# today's large language models, such as Llama, use RMSNorm.
#
# > **Check yourself.** (1) What do LayerNorm and RMSNorm turn the vector (5, 5, 5, 5) into? (2) One LayerNorm directly
# > follows another, both without gain and bias. What does the second one do? (3) The weights and the bias of the linear
# > layer in front of a LayerNorm are doubled. What happens to the norm's output?
# > <details><summary>Answers</summary>(1) LayerNorm gives zeros, since 0/√ε is 0. RMSNorm gives (1, 1, 1, 1). (2)
# > Nothing, up to ε: the vector is already on the sphere. (3) It stays the same, because the norm removes the
# > factor.</details>
#
# **Now you:** [a08](@deep_stacks/assignment), exercise 3.
#
# ## Norm placement: post-norm and pre-norm
#
# We now have a norm that controls sizes, but where in the block should it stand? There are two usual choices of
# **norm placement**. **Post-norm** normalises the sum, as in the original Transformer ("Add & Norm" in its figure).
# **Pre-norm** normalises only what the sublayer *reads*, and leaves the sum alone.
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
# > **Guess first.** In which of the two does $x$ grow? To 5, 50 or 1,000 after 24 blocks?

# %% tags=["hide-input"]
def post_norm(x, sublayer, norm):
    return norm(x + sublayer(x))


def pre_norm(x, sublayer, norm):
    return x + sublayer(norm(x))


figures.block_diagrams({
    "post-norm": ["attention", "norm", "feed-forward", "norm"],
    "pre-norm": ["norm → attention", "norm → feed-forward"],
})
#| caption: Post-norm and pre-norm blocks. The thick blue line is the residual stream.
#| label: norm-placement

# %% [markdown]
# Follow the thick line, the residual stream. In post-norm it passes through every norm, whereas in pre-norm it meets
# nothing but additions.
#
# *Guess:* in which of the two placements does $x$ grow? It begins at a size of 1.4. Is it about 5, 50 or 1,000 after
# the 48 sublayers of 24 untrained blocks?

# %% tags=["hide-input"]
flows, others = {}, {}
for name, connect in {"no residual": no_residual, "residual": residual,
                      "post-norm": post_norm, "pre-norm": pre_norm}.items():
    flows[name], *others[name] = [
        flow(fresh(connect, 24, seed, d=64, final_norm=(name == "pre-norm")))
        for seed in range(3)]
stream = []
loss_of(fresh(pre_norm, 24, d=64, final_norm=True), torch.arange(0, 1000, 30), stream)
written = [root_mean_square(after - before) for before, after in pairwise(stream)]
walk = [root_mean_square(stream[0])]
for size in written:
    walk.append(math.hypot(walk[-1], size))
figures.flows_and_walk(flows, walk, others)
for name, sizes in (("an attention sublayer", written[::2]),
                    ("a feed-forward network", written[1::2])):
    print(f"pre-norm: {name} writes {mean(sizes):.2f} on average")
#| caption: Untrained stacks of 24 blocks: x goes up, its gradient comes down. Thin: two more
#|   seeds. The walk has steps as large as pre-norm's branches.
#| label: flows

# %% tags=["hide-input"]
for seed in range(3):
    drawn = {name: [flows[name], *others[name]][seed] for name in flows}
    kept = {name: gradients[0] / gradients[-1] for name, (_, gradients) in drawn.items()}
    for name in ("post-norm", "pre-norm"):
        assert 0.2 < kept[name] < 8, "neither dies nor explodes, at 24 blocks"
    assert 2e-7 < kept["no residual"] < 2e-6 and kept["residual"] > 1e16
    top = {name: gradients[-1] for name, (_, gradients) in drawn.items()}
    assert 4 < top["post-norm"] / top["pre-norm"] < 6, "the final norm"
    assert 4.5 < drawn["pre-norm"][0][-1] < 5.5
assert abs(walk[-1] - 5.1) < 0.3
assert round(mean(written[::2]), 2) == 0.81 and round(mean(written[1::2]), 2) == 0.59

# %% [raw] slide
# ## Flows through untrained stacks
# {figure}
#
# $x$ grows in pre-norm as a random walk does, so one more norm follows the last block: the **final norm**.
#
# **Now you:** a@deep_stacks, exercises 4 and 5

# %% [markdown]
# **With norms in either place, nothing vanishes or explodes in these stacks, at the start.** Read the middle panel from
# right to left. In the stack without residual connections, the gradient loses about six powers of ten on its way down.
# With residual connections alone it gains more than sixteen.
#
# In post-norm, every norm brings $x$ back to size one. In pre-norm $x$ grows, but only to 5, because each sublayer
# reads a vector of size one and adds a vector that is a little smaller. If the additions are independent, they are the
# steps of a random walk, so their *squares* add up: $\sqrt{1.4^2 + 24 \cdot 0.81^2 + 24 \cdot 0.59^2} \approx 5.1$.
# With steps of size one, the $2L$ sublayers of $L$ blocks would lead to about $\sqrt{2L}$.
#
# This size depends on the depth, but the output layer should read vectors of the same size in every stack. So a
# pre-norm stack needs one more norm after the last block: the **final norm**. In the middle panel it is the reason why
# pre-norm's gradient begins, on the right, at a fifth of the others: this norm divides it by 5 (property 3).
#
# **Now you:** [a08](@deep_stacks/assignment), exercises 4 and 5.
#
# ## Norm placement and learning rate: a sweep
#
# Before training, both placements keep the sizes under control. Do both train well? A single learning rate cannot answer
# this, because each placement may need its own. So we **sweep** the learning rate over 0.001, 0.003, 0.01, 0.03 and
# 0.1, with three seeds each, and train every model once without a warm-up and once with a warm-up of thirty of its
# sixty steps.
#
# *Guess:* at a rate of 0.01 and without a warm-up, which of the two learns: both, only post-norm, or only pre-norm? A
# model that fails ends near 2.77, the loss of the letter frequencies alone.

# %% [raw] slide
# ## A sweep: learning rate, warm-up, placement
# Post-norm and pre-norm, with and without a **warm-up** of thirty steps, at five learning rates.
#
# > **Guess first.** At 0.01 and without a warm-up, which learns: both, only post-norm, only pre-norm?

# %% tags=["hide-input"]
model = fresh(post_norm, depth=6)
train(model, lr=1e-2)
with torch.no_grad():
    here = loss_of(model, torch.arange(1000)).item()
swept = {}                                                # placement, warm-up or not, rate
for row in record["sweep"]:
    line = "warm-up" if row["warm_up"] else "no warm-up"
    swept.setdefault(row["wiring"], {}).setdefault(line, {})[row["lr"]] = row["losses"]
kept = swept["post-norm"]["no warm-up"][1e-2][0]
assert abs(here - kept) < 0.1, "the record is of these models"
figures.runs_side_by_side({place: swept[place] for place in ("post-norm", "pre-norm")},
                          "learning rate", "loss after 60 steps\n(nats per letter)",
                          ("letter frequencies alone", frequencies),
                          named_at={"post-norm": {"no warm-up": 3e-3, "warm-up": 1e-2}})
#| caption: Post-norm fails at learning rates that pre-norm tolerates. Six blocks, three seeds
#|   at each rate (a mark each; many coincide); lines join the medians.

# %% [raw] slide
# ## Post-norm fails at rates that pre-norm tolerates
# {figure}

# %% [markdown]
# **Post-norm fails at learning rates that pre-norm tolerates.** Without a warm-up, post-norm learns at 0.001 and fails
# at 0.01; at 0.003, two of three seeds already end worse than at 0.001. The warm-up moves this edge up by one step of
# our grid, a factor of three. Pre-norm learns at every rate, but at 0.1 it, too, learns well only with the warm-up.
#
# So "post-norm needs a warm-up, and pre-norm does not" is not a law: both depend on the learning rate.
#
# Now we can return to the opening question. Do six blocks with residual connections and pre-norm still learn less than
# one? *Guess:* are they worse, equal or better?

# %% tags=["hide-input"]
one_block, six_blocks = {}, swept["pre-norm"]["no warm-up"]
for rate in (3e-3, 1e-2, 3e-2):
    one_block[rate] = []
    for seed in range(3):
        model = fresh(pre_norm, 1, seed, final_norm=True)
        train(model, lr=rate, seed=seed)
        with torch.no_grad():
            one_block[rate].append(loss_of(model, torch.arange(1000)).item())
    for name, losses in (("1 block", one_block[rate]), ("6 blocks", six_blocks[rate])):
        print(f"rate {rate:<5}, {name:>8}: loss", ", ".join(f"{loss:.2f}" for loss in losses))
assert max(six_blocks[3e-3]) < min(one_block[3e-3]) - 0.08, "six learn faster at a small rate"
best_one, best_six = (min(map(median, by_rate.values())) for by_rate in (one_block, six_blocks))
assert abs(best_one - best_six) < 0.1, "each at its best rate"
assert median(six_blocks[3e-2]) > median(one_block[3e-2]), "too high for six"

# %% [markdown]
# **Depth no longer hurts.** At 0.003, six blocks are ahead of one with every seed. At 0.03, which is too high for them,
# they are behind. With each depth at its best rate, both end within 0.1 nats of each other: one block is enough for so
# simple a task.
#
# ## Why post-norm fails without a warm-up: branches larger than x
#
# Why does post-norm fail at 0.01? Xiong et al. ([-@xiong2020]) find that in post-norm the parameters near the output
# have larger gradients than in pre-norm, and conclude that a full-sized first step is dangerous. We measure the
# gradient of the last matrix in untrained stacks:

# %% tags=["hide-input"]
last = {(row["wiring"], row["depth"]): row["norms"] for row in record["last_gradient"]}
print("length of the gradient, median of six seeds (smallest to largest)")
for depth in (2, 4, 8, 16, 32):
    print(f"{depth:>2} blocks: " + ", ".join(
        f"{place} {median(last[place, depth]):.2f} ({min(last[place, depth]):.2f} to "
        f"{max(last[place, depth]):.2f})" for place in ("post-norm", "pre-norm")))
    assert min(last["post-norm", depth]) > max(last["pre-norm", depth])
    assert depth == 2 or 1.7 < median(last["post-norm", depth]) < 2.6
middles = [median(last["pre-norm", depth]) for depth in (2, 4, 8, 16, 32)]
assert all(less < more for more, less in pairwise(middles)), "it falls with depth"

# %% [markdown]
# **Pre-norm's gradient falls with depth, post-norm's does not.** So far Xiong et al. are right. But Liu et al.
# ([-@liu2020]) reply that the size of the gradients cannot be the cause, because Adam divides each gradient by its own
# size. Takase et al. ([-@takase2023]) blame gradients that vanish on their way through post-norm's norms.
#
# So we look at the branches instead. The **branch ratio** $r$ is the size of what a sublayer writes, divided by the
# size of the $x$ to which it is added. Here is the explanation that we test: *The first steps make the branches
# larger than $x$. The norm scales the sum back to size one, so little of the old $x$ is left. After twelve norms all
# tokens look alike, and the model knows no more than the letter frequencies.*

# %% tags=["hide-input"]
figures.branch_and_norm((0.2, 2.0))
#| caption: Post-norm with a branch of size r at right angles to x, left and middle. Right: two
#|   opposite tokens to which the same branch is added.
#| label: branch-and-norm

# %% [raw] slide
# ## Why post-norm fails without a warm-up
# {figure}
#
# **Branch ratio** $r$: the size of what a sublayer writes, divided by the size of $x$.
#
# > **Guess first.** If large branches are the cause, small branches must fix post-norm at the full rate, and doubling them must break it *with* a warm-up.

# %% [markdown]
# If the branch (orange) is at right angles to $x$ (blue), the norm divides their sum by $\sqrt{1 + r^2}$ (purple),
# and $x$ with it: with $r = 2$, only 0.45 of $x$ is left. If the branch also adds the same vector to all tokens, as
# on the right, the token spread is divided by $\sqrt{1 + r^2}$ at each sublayer. This is our *estimate*: with $r = 2$
# at each of twelve sublayers, $5^{-6} \approx 6 \cdot 10^{-5}$ of the token spread is left.
#
# If the explanation is right, small branches must save post-norm. So we start the last matrix of each sublayer at a
# fifth of its size and change nothing else. We train for ten steps at 0.01 with and without this change, and then
# look inside.

# %% tags=["hide-input"]
def small_at_the_start(model):
    with torch.no_grad():
        for sublayer in model.sublayers:
            writes(sublayer).weight *= 0.2
    return model


def inside(model, seed):
    """After ten steps: the token spread along the stack, and the branch ratios."""
    train(model, steps=10, seed=seed)
    stream, ratios = [], []
    with torch.no_grad():
        loss_of(model, torch.arange(0, 1000, 30), stream)
        for x, sublayer in zip(stream[:-1], model.sublayers, strict=True):
            ratios.append(root_mean_square(sublayer(x)) / root_mean_square(x))
    return [token_spread(x) for x in stream], ratios

# %% tags=["hide-input"]
def estimated(spread, ratios):                            # before each sublayer, and at the end
    left = [spread]
    for r in ratios:
        left.append(left[-1] / math.sqrt(1 + r**2))
    return left


spreads, estimates, ratios = {}, {}, {}
for name in ("post-norm", "× 0.2 at the start"):
    models = [fresh(post_norm, 6, seed) for seed in range(3)]
    if "start" in name:
        models = [small_at_the_start(model) for model in models]
    found = [inside(model, seed) for seed, model in enumerate(models)]
    spreads[name] = {place: [spread[place] for spread, _ in found] for place in range(13)}
    guesses = [estimated(spread[0], each) for spread, each in found]
    estimates[name] = {place: [guess[place] for guess in guesses] for place in range(13)}
    ratios[name] = [mean(each) for _, each in found]
r = {name: f"r = {median(ratios[name]):.1f}" for name in ratios}
drawn = {f"{name}, {r[name]}": spreads[name] for name in spreads}
beside = {f"estimated from {r[name]}": f"{name}, {r[name]}" for name in estimates}
drawn |= dict(zip(beside, estimates.values(), strict=True))
figures.runs_over(drawn, "sublayers passed", "token spread after ten steps", log_y=True,
                  join_seeds=True, beside=beside)
#| caption: Large branches make the tokens nearly equal. Post-norm stacks after ten steps; r:
#|   mean branch ratio. Three seeds, a thin line each; thick: medians.

# %% tags=["hide-input"]
full, at_first = spreads.values()
assert max(full[12]) < 1e-3 and min(at_first[12]) > 0.7
assert min(ratios["post-norm"]) > 1.5 and max(ratios["× 0.2 at the start"]) < 0.8
for seed in range(3):
    factor = full[12][seed] / estimates["post-norm"][12][seed]
    assert 0.4 < factor < 2.5, "right to about a factor of two"
    assert 0.2 < estimates["× 0.2 at the start"][12][seed] < 0.35, "far too low"
    # The estimate takes it that a branch adds one vector to all tokens; these branches do not.
    model = small_at_the_start(fresh(post_norm, 6, seed))
    train(model, steps=10, seed=seed)
    stream = []
    with torch.no_grad():
        loss_of(model, torch.arange(0, 1000, 30), stream)
        written = [token_spread(sublayer(x))
                   for x, sublayer in zip(stream[:-1], model.sublayers, strict=True)]
    assert mean(written) > 0.4

# %% tags=["hide-input"]
# what the first steps change in the feed-forward networks
for seed in range(3):
    model = fresh(post_norm, 6, seed)
    begun = [sublayer.down.weight.detach().clone() for sublayer in model.sublayers[1::2]]
    train(model, steps=10, seed=seed)
    stream, sizes = [], []
    with torch.no_grad():
        loss_of(model, torch.arange(0, 1000, 30), stream)
    for x, sublayer, before in zip(stream[1:-1:2], model.sublayers[1::2], begun, strict=True):
        read = sublayer.up(x).relu().detach()             # what the last matrix reads
        change = sublayer.down.weight.detach() - before   # (d, 4d)
        order = torch.randperm(change.numel(), generator=torch.Generator().manual_seed(0))
        shuffled = change.flatten()[order].view_as(change)
        size = [root_mean_square(read @ matrix.T) for matrix in (before, change, shuffled)]
        moved = change.abs().mean().item() / before.std().item()
        sizes.append([*size, moved, token_spread(read @ change.T)])
    initial, by_change, by_shuffled, moved, spread = map(mean, zip(*sizes, strict=True))
    assert by_change > 1.2 * initial and 0.16 < by_shuffled / by_change < 0.26, "they add up"
    assert 0.3 < moved < 0.4 and spread < 0.1

# %% [raw] slide
# ## Token spread after ten steps
# {figure}

# %% [markdown]
# **In post-norm the branches become about twice as large as $x$, and the tokens become nearly equal.** At the top,
# less than a thousandth of $x$ still differs between tokens. The estimate, with each sublayer's measured $r$, is right
# to about a factor of two for every seed. If the branches begin small, the token spread is still about 0.8. Here the
# estimate, about 0.3, is far too low, because these branches do not write the same vector for every token.
#
# Why do the branches grow so fast? The entries of an untrained matrix are random, so their effects largely cancel
# when a sublayer adds up its inputs. But Adam's first steps move the entries so that their effects *add up*.
#
# <details><summary>Going further: how much the first steps write</summary>
#
# A folded cell looks at the last matrices of the feed-forward networks. Ten steps move an entry by only a third of its
# initial size. Yet their change writes more than the initial matrix does; with the entries of the change shuffled, it
# writes only a fifth as much. And it writes nearly the same vector for every token, as our estimate assumes.
#
# </details>
#
# Does the model with small branches also *learn*? And if large branches are the cause, doubling them must break
# post-norm even *with* a warm-up. *Guess:* which of four models learn at a rate of 0.01: without a warm-up, full or
# small branches; with a warm-up, full or doubled branches?

# %% tags=["hide-input"]
trained = {(row["name"], row["warm_up"], row["lr"]): row["losses"]
           for row in record["branches"]}
trained["post-norm", 30, 1e-2] = swept["post-norm"]["warm-up"][1e-2]
for short, name, warm_up in (("branches as they are", "post-norm", 0),
                             ("× 0.2 at the start", "post-norm, × 0.2 at the start only", 0),
                             ("branches as they are", "post-norm", 30),
                             ("branches × 2", "post-norm, branch × 2", 30)):
    losses = ", ".join(f"{loss:.2f}" for loss in trained[name, warm_up, 1e-2])
    print(f"{'warm-up' if warm_up else 'no warm-up':>10}, {short:>20}: loss {losses}")

# %% [raw] slide
# ## Two tests that could have refuted it
# {print}
#
# **Now you:** a@deep_stacks, exercise 6

# %% [markdown]
# **The branch-size half of the explanation survives both tests.** Small branches repair post-norm without a warm-up,
# and doubled branches break it despite one. But both tests vary only $r$, and $\sqrt{1 + r^2}$ also divides the
# gradient on its way down. So vanishing gradients fit as well as tokens that look alike. Liu et al. give a similar
# explanation: in post-norm the output depends heavily on the branches, so small changes of the weights are amplified.
#
# **Now you:** [a08](@deep_stacks/assignment), exercise 6.
#
# ## Why a warm-up helps post-norm: small branches or Adam's averages?
#
# These tests suggest what a warm-up does: it shortens the first steps, in which the branches would grow larger than
# $x$. A rival explanation blames Adam. In the first steps its average of squared gradients rests on few batches, so
# some steps are far too long ([@liu2020radam], who propose RAdam; [@ma2021] disagree). Each explanation makes a
# prediction that can fail:
#
# * *Small branches.* With a warm-up, $r$ must stay small for all sixty steps, thirty of them at the full rate.
# * *Adam's averages.* If poor averages are the cause, good ones should make the warm-up unnecessary. So Adam first
#   collects the gradients of 200 batches while no parameter changes, and then training begins at the full rate.
#
# *Guess:* with a warm-up, and with Adam's averages first: in which of the two runs does $r$ stay below 1, and which
# model learns?

# %% [raw] slide
# ## Why a warm-up helps: two explanations
# - *Small branches*: with a warm-up $r$ stays small, also at the full rate.
# - *Adam's averages*: if they are first collected over 200 batches, the warm-up becomes unnecessary. (RAdam)
#
# > **Guess first.** In which of the two runs does $r$ stay below 1? Which model learns?

# %% tags=["hide-input"]
watched = {row["name"]: row for row in record["warm_up"]}
drawn = {}
for name in ("Adam's averages first", "no warm-up", "warm-up"):
    row = watched[name]
    by_step = dict(zip(row["steps"], zip(*row["ratios"], strict=True), strict=True))
    drawn[f"{name}: loss {median(row['losses']):.1f}"] = by_step
figures.runs_over(drawn, "training steps taken", "mean branch ratio r",
                  level=("as large as x", 1.0), until=("steps of the warm-up", 30),
                  join_seeds=True, symlog_x=(0, 1, 2, 5, 10, 20, 30, 60))
#| caption: A warm-up keeps the branches of post-norm smaller than x. Rate 0.01; three seeds, a
#|   thin line each; thick: medians.
#| label: warm-up

# %% tags=["hide-input"]
# short first steps, with good averages and without
def train_from_zero_momentum(seed, batches):
    """Adam-2k: `batches` fill the average of squares, then momentum grows from zero."""
    model, others = fresh(post_norm, 6, seed), torch.Generator().manual_seed(1000 + seed)
    draws = torch.Generator().manual_seed(seed)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.0, betas=(0.9, 0.98))
    for step in range(-batches, 60):
        if step == 0:
            for state in optimizer.state.values():
                state["exp_avg"].zero_()
        # Adam divides by 1 − 0.9 ** (steps so far): without averages, we take this back.
        full = 1.0 if batches else 1 - 0.9 ** (step + 1)
        optimizer.param_groups[0]["lr"] = 0.0 if step < 0 else 1e-2 * full
        generator = others if step < 0 else draws
        loss = loss_of(model, torch.randint(1000, (16,), generator=generator))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        return loss_of(model, torch.arange(1000)).item()


short = {batches: [train_from_zero_momentum(seed, batches) for seed in range(3)]
         for batches in (0, 200)}
assert max(short[0]) < 1 and max(short[200]) > 2.7, "without averages all learn"
assert sum(loss < 1.5 for loss in short[200]) == 2, "with them one fails"

# %% [raw] slide
# ## A warm-up keeps the branches small
# {figure}

# %% [markdown]
# **Here the first prediction holds, and the second fails.** With a warm-up, $r$ stays below 1 for every seed, even at
# the full rate, and the model learns; without one, the median of $r$ passes 1 after two steps. With good averages but
# no warm-up, the median of $r$ passes 1 as well, and the model does not learn.
#
# So here **small branches, and not good averages, decide**: a warm-up helps because it shortens the first steps, and
# the branches stay smaller than $x$. The authors of RAdam ran a similar experiment on a translation model, and there
# good averages did replace the warm-up. So this speaks against the rival in our stack, but not in general.
#
# <details><summary>Going further: why good averages may have helped there</summary>
#
# Their experiment, "Adam-2k", collects averages over 2,000 batches. One difference is that our Adam also collects its
# *momentum*, so its first step has full length. In Adam-2k, as we read the paper, the momentum waits and then grows
# from zero, so that, without a bias correction, the first step is only a tenth as long. Is this a warm-up in disguise?
# A folded cell trains our stack with such short first steps. Without good averages they were enough for all three
# seeds; with good averages one of the three fails, so we see no gain from them.
#
# </details>
#
# ## How large should a branch be? DeepNorm, ReZero, LayerScale
#
# If small branches are what counts, we can build them in. Many methods do so:
#
# | name | what is done (α, β: the papers' letters) | source |
# |---|---|---|
# | $1/\sqrt{2L}$ at the start | the last matrix of each branch begins smaller, so that $x$ does not grow with depth | GPT-2 ([@radford2019]) |
# | zero at the start | the last matrix of each branch begins at 0, so each block begins as the identity | Fixup ([@zhang2019fixup]), with further changes |
# | **ReZero** | $x + \alpha_\ell f_\ell(x)$, one learned number for each branch, 0 at first; no norm | [@bachlechner2021] |
# | **LayerScale** | $x + \lambda_\ell \odot f_\ell(\operatorname{norm}(x))$, a learned vector, small at first (0.1 in our runs) | [@touvron2021cait] |
# | **DeepNorm** | $\operatorname{norm}(\alpha x + f_\ell(x))$ with $\alpha = (2L)^{1/4}$; feed-forward, value and output matrices are multiplied by $\beta = (8L)^{-1/4}$ at the start (for a single stack) | [@wang2022], for 1,000 layers |
#
# The figure shows these methods with six blocks and no warm-up, at two rates. Two more rows are ours: "× 0.2 at the
# start" shrinks the last matrices once, whereas "branch × 0.2" multiplies every branch by 0.2 throughout. In the last
# group there is no norm at all. *Guess:* which of its three stacks learn?

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
groups = {"Post-norm": {
              "post-norm": "branches as they are",
              "post-norm, × 0.2 at the start only": "× 0.2 at the start",
              "post-norm, branch × 0.2": "branch × 0.2",
              "DeepNorm": "DeepNorm"},
          "Pre-norm": {
              "pre-norm": "branches as they are",
              "pre-norm, 1/√(2L) at the start": "1/√(2L) at the start",
              "LayerScale": "LayerScale"},
          "No norm": {
              "no norm": "residual connections only",
              "no norm, 0 at the start": "zero at the start",
              "ReZero": "ReZero"}}
found = {}
for row in record["branches"]:
    if not row["warm_up"]:
        found.setdefault(row["name"], {})[f"rate {row['lr']:g}"] = row["losses"]
grouped = {heading: {short: found[name] for name, short in group.items()}
           for heading, group in groups.items()}
figures.runs_in_rows(grouped, "loss after 60 steps (nats per letter)",
                     level=("letter frequencies alone", frequencies), highest=4)
#| caption: Small branches learn at 0.01, but not all at 0.03. Three seeds a row and rate, a
#|   mark each; coinciding marks are counted; an arrow is a loss above 4.
#| label: branch-sizes

# %% tags=["hide-input"]
# ReZero and branches that begin at zero, after one step
class ReZero(nn.Module):
    def __init__(self, sublayer):
        super().__init__()
        self.sublayer, self.alpha = sublayer, nn.Parameter(torch.zeros(()))

    def forward(self, x):
        return self.alpha * self.sublayer(x)


after_one = {"ReZero": [], "zero at the start": []}
for seed in range(3):
    for name, found in after_one.items():
        model = fresh(residual, 6, seed)
        if name == "ReZero":
            model.sublayers = nn.ModuleList(ReZero(sublayer) for sublayer in model.sublayers)
        else:
            for sublayer in model.sublayers:
                nn.init.zeros_(writes(sublayer).weight)
        train(model, lr=3e-2, steps=1, seed=seed)
        stream = []
        with torch.no_grad():
            loss_of(model, torch.arange(0, 1000, 30), stream)
            found.append(mean(root_mean_square(after - before) / root_mean_square(before)
                              for before, after in pairwise(stream)))
assert max(after_one["ReZero"]) < 0.03 < 0.3 < min(after_one["zero at the start"])

# %% [raw] slide
# ## Every small branch works at 0.01
# {figure}

# %% [markdown] teaches="pre-norm and post-norm"
# **At a rate of 0.01, every method with small branches works, even without a single norm.** ReZero and branches that
# begin at zero learn about as well as pre-norm, whereas residual connections alone explode.
#
# At 0.03 it is not always enough that the branches *begin* small: in post-norm, "× 0.2 at the start" fails, and
# without a norm, "zero at the start" explodes. The four rows with a lasting factor on $x$ or on the branch, fixed or
# learned, still work. In pre-norm, all three variants work.
#
# <details><summary>Going further: why ReZero survives, although it begins at zero as well</summary>
#
# A likely reason: one step of Adam moves a number by about the learning rate, so ReZero's branch is then 0.03 of its
# full size. In a matrix all entries move, and their effects add up. A folded cell takes one step at 0.03: the mean
# branch ratio is then 0.02 for ReZero, and about 0.4 for branches whose last matrix began at zero.
#
# </details>
#
# Six blocks and sixty steps cannot tell which method is best in a large model.
#
# **Now you:** [a08](@deep_stacks/assignment), exercise 7.
#
# ## Norms in today's models: sandwich norm, res-post-norm, QK-norm
#
# Most of today's models use pre-norm, but it has a price. A branch adds a step of about one to an $x$ that has grown,
# so later blocks change $x$ less and less, and some of them can often be removed from a trained model
# ([@gromov2025]). In post-norm, $x$ is scaled down at every sum, so late branches keep their influence. Where it can be
# trained, it has been found to end a little better ([@liu2020]). So the search goes on, with norms at the *end* of the
# branch:

# %% tags=["hide-input"]
figures.block_diagrams({
    "sandwich": ["norm → attention → norm", "norm → feed-forward → norm"],
    "res-post-norm": ["attention → norm", "feed-forward → norm"],
})
print("rate 0.01, no warm-up, three seeds")
for name, kind in (("pre-norm", "pre-norm"), ("sandwich", "sandwich"),
                   ("res-post-norm", "norm on the branch (OLMo 2)")):
    print(f"{name:>13}: loss", ", ".join(f"{loss:.2f}" for loss in trained[kind, 0, 1e-2]))
assert max(trained["sandwich", 0, 1e-2]) < 0.5 < min(
    trained["norm on the branch (OLMo 2)", 0, 1e-2]) < 0.6
assert max(trained["pre-norm", 0, 1e-2]) < 0.47
#| caption: Blocks with sandwich norm and with res-post-norm.

# %% [raw] slide
# ## Norms in today's models
# | placement | $x \leftarrow$ | used by |
# |---|---|---|
# | post-norm | $\operatorname{norm}(x + f(x))$ | the original, BERT |
# | pre-norm | $x + f(\operatorname{norm}(x))$ | GPT-2, GPT-3, Llama, Qwen |
# | sandwich | $x + \operatorname{norm}(f(\operatorname{norm}(x)))$ | Gemma 2 and 3 |
# | res-post-norm | $x + \operatorname{norm}(f(x))$ | Swin v2, OLMo 2 |
#
# **QK-norm** normalises each query and key, so the gain alone sets their size.

# %% [markdown]
# | placement | $x \leftarrow$ | used by |
# |---|---|---|
# | post-norm | $\operatorname{norm}(x + f(x))$ | the original, BERT; DeepNorm with scaled branches |
# | pre-norm | $x + f(\operatorname{norm}(x))$ | GPT-2, GPT-3, Llama, Mistral, Qwen |
# | **sandwich** | $x + \operatorname{norm}(f(\operatorname{norm}(x)))$ | CogView ([@ding2021]), Gemma 2 and 3 ([@gemma2024]; [@gemma2025]) |
# | **res-post-norm** | $x + \operatorname{norm}(f(x))$ | Swin v2 ([@liu2022]), OLMo 2 ([@olmo2025], as *reordered norm*) |
#
# **In the last three rows, the residual stream meets nothing but additions.** In the last two, a norm at the end of
# each branch also fixes how much the branch adds, up to the norm's gain. In our six blocks, both learn at 0.01, the
# sandwich about as well as pre-norm and res-post-norm a little worse.
#
# One more norm sits *inside* attention. If queries and keys grow during training, the softmax of their scores becomes
# almost one-hot, and its gradient nearly vanishes. In vision Transformers of about 8 billion parameters, the training
# loss diverged, and Dehghani et al. ([-@dehghani2023]) blame large scores and almost one-hot weights. **QK-norm**
# ([@henry2020]) therefore normalises each query and each key before the product, so that the gain alone sets their
# size, whatever the projections do. Qwen 3 ([@yang2025qwen]), Gemma 3 and OLMo 2 do this. Exercise 3 measures the
# effect.

# %% [markdown] teaches="code: a block and a language model"
# ## Structural tests: is this the block that was meant?
#
# With so many placements, how do we know that a piece of code has the one that was meant? One set of slides shows the
# code of a small language model. Its block does this (the names are ours):
#
# ```python
# x = norm_1(x)                  # pre-normalisation
# x = x + attention(x)           # residual connection
# x = norm_2(x)                  # pre-normalisation
# x = x + feed_forward(x)        # residual connection
# ```
#
# The comments say what was intended, the model runs, and its loss falls. *Read the code again. What is wrong, and
# will a training run show it?*

# %% [raw] slide
# ## Is this the block that was meant?
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

# %% [markdown] erratum="the residual from the normalised x; no final norm; x¹ for x in the sum; x_l for x_{l+1}; the final norm of x_{l+1}"
# > **A common mistake: the norm's result is stored under the name x.** So the sublayer's output is added to the
# > *normalised* $x$, and the norms stand on the residual stream. Another set of slides prints the same as an equation:
# > $x^{(3)} = x^{(2)} + x^{(1)}$, where $x^{(1)} = \operatorname{norm}(x)$. The slides with the code also leave out
# > the final norm that a pre-norm stack needs.
#
# Does the loss reveal the bug? We train the block as printed and the repaired block, two blocks deep and without a
# final norm, as on the slides, for ninety steps at a rate of 0.005, thirty of them warm-up. Runs with the same seed
# have the same matrices and batches, so they are **paired**, and what counts is the *difference* within each pair.

# %% tags=["hide-input"]
def compare(first, second):
    """The mean difference of eight pairs, half of its 95 % interval, how many are below 0."""
    differences = [a - b for a, b in zip(first, second, strict=True)]
    half = 2.365 * stdev(differences) / math.sqrt(8)      # Student's t for eight seeds
    return mean(differences), half, sum(d < 0 for d in differences)


printed, repaired, normed = record["printed"].values()
print("as printed, repaired, and the difference in nats per letter (95 % interval):")
for name, first, second in (("no final norm", printed, repaired),
                            ("final norm in both", record["printed_final"]["printed"], normed)):
    middle, half, below = compare(first, second)
    print(f"{name:>18}: {mean(first):.3f}, {mean(second):.3f}, difference {middle:+.3f} ± "
          f"{half:.3f}, below zero in {below} of 8 pairs")
    if name == "no final norm":
        assert middle + half < 0 and below == 7, "the loss prefers the bug"
    else:
        assert middle - half < 0 < middle + half, "no clear difference"
printed, repaired, normed = record["printed_twice"].values()
middle, half, _ = compare(printed, repaired)
assert middle + half < 0, "at twice the rate, too"
middle, half, _ = compare(record["printed_final"]["printed_twice"], normed)
assert middle - half < 0 < middle + half, "at twice the rate, too"

# %% [raw] slide
# ## In two blocks, the loss prefers the bug
# {print}

# %% [markdown]
# **In two blocks, the loss does not reveal the bug.** The printed block even has a loss that is 4 % lower, with a 95 %
# interval below zero. With a final norm after both, the interval contains zero. Both hold at twice the rate as well. So
# a model that trains well can still contain a wrong block.
#
# A test of a *property* finds the bug at once. If its sublayers write zeros, a pre-norm block must return its input,
# for every $x$ and before any training:

# %%
def writes_nothing(y):
    return torch.zeros_like(y)


x = 2 * torch.randn(3, 5, 32) + 1                         # (batch, n, d)  not normalised
for connect in (as_printed, pre_norm, residual):
    moved = (connect(x, writes_nothing, LayerNorm(32)) - x).abs().max().item()
    print(f"{connect.__name__:>10}: x moves by {moved:.3f}")
assert torch.equal(pre_norm(x, writes_nothing, LayerNorm(32)), x) and moved == 0

# %% [raw] slide
# ## A structural test finds it in a millisecond
# If the sublayers write nothing, a pre-norm block returns its input. (So does one without any norm.)
#
# {print}
# . . .
# > **Guess first.** With six printed blocks and no warm-up at 0.01, which line do they follow: post-norm's or pre-norm's?

# %% [markdown]
# **This is a structural test.** It asks whether a model is built as intended, and not whether it is good, so it needs
# no data and no training. To fail it proves a fault; to pass it does not prove that all is right, because plain
# `residual`, without any norm, passes as well. The leak test of [lecture @masking](@masking) was another.
#
# *Guess:* in the sweep without a warm-up, which line do six printed blocks follow at a rate of 0.01, post-norm's or
# pre-norm's? Write down the steps of several sublayers in a row before you answer.

# %% [markdown]
# What *is* the printed block, if it is not pre-norm? We regroup the steps:
#
# $$
# \text{norm}\;\to\;\bigl[\,\text{add } f_1 \to \text{norm}\,\bigr]\;\to\;\bigl[\,\text{add } f_2 \to
# \text{norm}\,\bigr]\;\to\;\bigl[\,\text{add } f_3 \to \text{norm}\,\bigr]\;\to\;\dots
# $$
#
# Each bracket is the "Add & Norm" of the original Transformer. So *the printed stack is a post-norm stack*, with one
# more norm in front and without the last norm. (A folded cell adds this norm and gets the same numbers.) We therefore
# predict post-norm's line:

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
assert torch.equal(x, y), "the same numbers"

# %% tags=["hide-input"]
figures.runs_over({place: swept[place]["no warm-up"]
                   for place in ("post-norm", "as printed", "pre-norm")},
                  "learning rate", "loss after 60 steps (nats per letter)", log_x=True,
                  log_y=True, level=("letter frequencies alone", frequencies), level_left=True)
#| caption: The block as a slide prints it fails where post-norm fails. Six blocks, no warm-up,
#|   three seeds (a mark each); lines join the medians.

# %% [raw] slide
# ## The equation predicted it
# It is a **post-norm** stack, with a norm in front and the last norm missing.
#
# {figure}
#
# **Now you:** a@deep_stacks, exercise 8

# %% [markdown] teaches="what the tricks improve: training or ability"
# **The printed block fails where post-norm fails.** Now the loss shows that something is wrong, but not what. Anyone
# who trains six of these blocks without a warm-up, "because pre-norm does not need one", will fail at a rate of 0.01,
# and the cause is hidden in four lines whose comments look right. At lower rates the two curves differ, because the
# printed stack has no last norm.
#
# > **Check yourself.** What would be a structural test for a post-norm block? Sublayers that write nothing do not make
# > it the identity.
# > <details><summary>Answer</summary>With sublayers that do write, gains of 1 and biases of 0, the output must have
# > mean 0 and variance 1 for every token. The printed block fails this test, but norm(f(x)) passes it. So also: if
# > the sublayers write zero, the output must be norm(norm(x)).</details>
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
# | RMSNorm | $x / \sqrt{\frac1d \sum_c x_c^2 + \varepsilon} \odot \gamma$: no mean, no bias | $\gamma$: $(d)$ |
# | post-norm, pre-norm | $\operatorname{norm}(x + f(x))$, $\;x + f(\operatorname{norm}(x))$ and a final norm | $(n, d) \to (n, d)$ |
#
# Without residual connections, six blocks learn less than one, because attention averages each token's own vector away.
# With residual connections alone, sizes explode, so a norm has to control them. If it stands after the sum (post-norm),
# training fails at lower learning rates than with pre-norm, unless the branches are small and stay small; in our stacks
# a warm-up helps because it keeps them smaller than $x$. If it stands in front of each sublayer (pre-norm), the
# residual stream stays free, six blocks learn about as much as one, and the stack needs a final norm. A structural test
# can show that a block is not built as intended where the loss does not.
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
# > 2. One set of slides says that residual connections, norms and the scaled dot product do not improve what a model
# >    *can* do, but only how it trains. For which of the three is that exactly true?
# > 3. A colleague's post-norm model of 48 blocks does not learn. Name three things to try that this page has tested.
# > <details><summary>Answers</summary>
# >
# > 1. Before it stand 89 complete blocks. With the sizes measured above, x has grown to √(1.4² + 89 · (0.81² + 0.59²)),
# >    about 9.6, so attention adds about a tenth. So late blocks change little, which is the price of a free residual
# >    stream.
# > 2. Of one of the three, although all three are there to help training:
# >    * *The scale*: exactly true. W_Q can absorb any factor.
# >    * *The residual connection*: nearly true. A feed-forward network with enough hidden units can represent x + f(x).
# >      But a head that averages over other tokens cannot also pass a token's own vector on (lecture @masking).
# >    * *A norm*: not true. It removes the vector's size, and it is not linear: among keys of one length a query can
# >      give any of them the highest score.
# > 3. A warm-up, or a smaller learning rate. Branches that begin small, by smaller last matrices or by DeepNorm.
# >    Pre-norm, with a final norm.</details>
#
# **Now do** [assignment @deep_stacks](@deep_stacks/assignment) (about two hours): eight exercises, two
# questions in words, and an extension. **Next:** [lecture @transformer](@transformer), where these blocks become a
# Transformer.
#
# **Further reading.** *Residual connections*: [+@he2016], figure 1: deeper is worse; [+@he2016identity], on the free
# path; [+@veit2016], on the sum over paths, and on what happens if layers are removed.
#
# *Rank collapse*: [+@dong2021], on attention alone, where the spread falls faster still; [+@noci2022], who find that
# tokens align in deep post-norm stacks before training; [+@he2023], without residual connections or norms, in about
# five times as many steps.
#
# *Norms*: [+@ba2016], section 3; [+@ulyanov2016], a third choice of axes; [+@xu2019], on what the gradient through mean
# and variance does; [+@zhu2025], DyT, which replaces the norm with a tanh; [+@kim2025], on the sandwich.
#
# *Placement and warm-up*: [+@xiong2020], figure 1 and section 3; [+@wang2019deep], pre-norm encoders of up to 30
# layers; [+@kalra2024], on what a warm-up does.
