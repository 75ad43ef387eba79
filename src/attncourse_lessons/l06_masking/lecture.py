# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3 (ipykernel)
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Lecture @masking · Masks and the feed-forward network: what a token may see, and what it computes from it
#
# *About 54 minutes, about one of them computing time. You need self-attention with its matrix of attention weights
# ([lecture @self_attention](@self_attention)), and from [lecture @bottleneck](@bottleneck) what a language model is:
# something that predicts the next token from those before it.*
#
# After this lecture you can
#
# * show what a stack of self-attention layers with one head can never do;
# * write the **position-wise feed-forward network**, and say why it needs an **activation function**;
# * explain **rank collapse**, and name the part of a Transformer that holds it off;
# * write a **causal mask** and a **padding mask**, combine them, and read the other masks that are in use;
# * find a leak of the future in a model without training it;
# * keep NaN out of masked attention, and out of its gradients;
# * explain how one pass through an **autoregressive** model trains all positions of a text (**teacher forcing**).
#
# [Lecture @self_attention](@self_attention) ended with three things that self-attention lacks. Order was the first.
# This lecture adds the other two. Its first half is about computing more than averages, its second half about the
# future, which a language model must not see.
#
# ## Repeated averaging: six pots of paint
#
# Here are six pots of paint, each of a different colour. In every round each pot is emptied and filled again with its
# own mixture of what was in the six. What do the pots look like after ten rounds?
#
# This is a question about attention: a layer gives every token a weighted average of all values, and the next layer
# averages the averages.

# %% tags=["hide-input"]
try:
    from attncourse import viz

    from . import figures
except ModuleNotFoundError:
    raise ImportError(
        "This page needs the attncourse package: open it with `make lab` in the course's "
        "folder, or choose a kernel of the environment in which you installed the course."
    ) from None

import math
import time

import torch
import torch.nn.functional as F
from torch import nn

from attncourse.attention import (
    attend,
    causal_mask,
    combine_masks,
    lengths_to_mask,
    masked_softmax,
    window_mask,
)
from attncourse.data.number_words import say
from attncourse.layers import FeedForward, layer_norm
from attncourse.transformer import Encoder, TransformerConfig

torch.set_num_threads(1)  # models as small as these gain nothing from a second thread

# %% [raw] slide
# ## Six pots of paint
# In every round each pot is filled again with a mixture of what was in the six: a weighted average, and then averages of averages.
#
# > **Guess first.** Can a pot become redder than the reddest was in the round before? Do sharper weights stop the mixing?

# %% [markdown]
# Let a colour be two numbers, how much red and how much blue. The recipes of a round are a matrix of attention
# weights, a row for each pot; here a softmax makes them from random scores. The slider *sharpness* multiplies the
# scores. At high sharpness a pot is filled almost entirely from one pot.
#
# On the left you see the pots. On the right each pot is a point, with the same mark as on the left. The blue shape is
# what the six points span now. The grey shapes, with their numbers, are earlier rounds. *Before you move the
# sliders:* can a pot become redder than the reddest was in the round before? Does sharpness stop the mixing?

# %%
def mix(sharpness, rounds=10, seed=1):
    torch.manual_seed(seed)
    pots = [torch.rand(6, 2)]                         # (6, 2)  red and blue
    for _ in range(rounds):
        recipes = (sharpness * torch.randn(6, 6)).softmax(dim=-1)         # (6, 6)  weights
        pots.append(recipes @ pots[-1])               # (6, 2)  every pot is filled anew
    return pots


def after_mixing(sharpness, rounds):
    return figures.mixing_rounds(mix(sharpness), rounds)


viz.explore(
    after_mixing, sharpness=[1.0, 2.0, 5.0], rounds=range(11),
    start={"sharpness": 2.0, "rounds": 2},
)
#| caption: Averages of averages: paints mixed again and again, by random recipes (seed 1).
#| label: averaging

# %% tags=["hide-input"]
angles = torch.linspace(0, 2 * math.pi, 100)          # (100,)
directions = torch.stack([angles.cos(), angles.sin()])                    # (2, 100)
for sharpness in (1.0, 2.0, 5.0):
    left = []                                         # of the differences, one share per seed
    for seed in range(10):
        pots = mix(sharpness, rounds=100, seed=seed)
        reach = torch.stack([(colours @ directions).amax(dim=0) for colours in pots])
        assert (reach.diff(dim=0) < 1e-6).all(), "no pot goes further than some pot did before"
        spread = torch.stack([colours.std(dim=0).max() for colours in pots])      # (101,)
        assert spread[100] < 1e-3 * spread[0], "in the end alike"
        left.append((spread[10] / spread[0]).item())
    print(f"sharpness {sharpness}, ten seeds: after ten rounds {min(left):.2%} to"
          f" {max(left):.2%} of the differences are left")

# %% [raw] slide
# ## Mix
# {figure}

# %% [raw] slide
# ## Stacked self-attention with one head
# $$A_3\bigl(A_2\,(A_1 X W_1)\,W_2\bigr)W_3 \;=\; (A_3 A_2 A_1)\; X \;(W_1 W_2 W_3)$$
#
# - Weights mix **tokens**, on the left. Matrices mix **features**, on the right.
# - Every output lies in the **convex hull** of the rows of $X W_1 W_2 W_3$.
# - With several heads a layer is a sum, and the factors cannot be sorted.

# %% [markdown] teaches="nothing but averages: why a feed-forward network"
# No pot can. A weighted average lies between the things that it averages: in the plane, inside the shape that they
# span, their **convex hull**. So each shape lies inside the one before it. Sharp recipes only slow the shrinking: after
# ten rounds at sharpness 5, up to 18 % of the differences are left (of the standard deviation of red or of blue,
# whichever is larger). A softmax takes some paint from every pot, so in the end all six hold the same purple.
#
# ## Stacked self-attention with one head
#
# Real layers first multiply the values by a matrix, and a matrix can move points out of the hull. *Guess:* does that
# help? Write down three layers of one head each. The attention weights $A$ stand on the left, because they mix
# *tokens*. The value matrices $W$ stand on the right, because they mix *features*. So we can group each kind:
#
# $$A_3\bigl(A_2\,(A_1 X W_1)\,W_2\bigr)W_3 \;=\; (A_3 A_2 A_1)\; X \;(W_1 W_2 W_3)$$
#
# The next cell runs three layers, and compares the result with a single layer that uses the product of all $A$ and
# the product of all $W$.

# %%
n, d = 5, 8
torch.manual_seed(0)
X = torch.randn(n, d).double()                        # (n, d)
H = X                                                 # what goes through the layers
A_product = torch.eye(n).double()                     # (n, n)  all attention weights so far
W_product = torch.eye(d).double()                     # (d, d)  all value matrices so far
for _ in range(3):
    W_Q, W_K, W_V = torch.randn(3, d, d).double() / math.sqrt(d)
    A = ((H @ W_Q) @ (H @ W_K).mT / math.sqrt(d)).softmax(dim=-1)         # (n, n)
    H = A @ H @ W_V                                   # (n, d)  one layer
    A_product, W_product = A @ A_product, W_product @ W_V
difference = (H - A_product @ X @ W_product).abs().max().item()
print(f"three layers and one differ by {difference:.0e}")
print("smallest weight of the one:", round(A_product.min().item(), 2),
      "  its rows sum to", [round(total, 6) for total in A_product.sum(dim=-1).tolist()])

# %% tags=["hide-input"]
assert difference < 1e-12 and A_product.min() > 0
assert torch.allclose(A_product.sum(dim=-1), torch.ones(n).double())

# %% [raw] slide
# ## A common mistake: “without non-linearities the whole stack is linear”
# Three layers and one:
#
# {print}
# . . .
# The *values* meet nothing but averages and matrices. The *weights* come out of a softmax of the input: the stack is not linear in $X$.

# %% [markdown] erratum="nothing but averages"
# Hardly: the hull is moved *once*, by the product of the $W$. Within it the averages shrink as the pots did. The values
# meet *one* matrix of attention weights and *one* value matrix. However deep the stack is, every output is
# a weighted average of the same few vectors, the rows of $X W_1 W_2 \cdots W_L$, and lies in the convex hull of these
# rows. So no such stack returns $x_1 - x_2$ for every $X$, whatever its matrices are. (With equal tokens it would have
# to return 0, so the product of the $W$ would be 0.) This does not mean that one layer replaces three: the scores of
# a single layer may be unable to *produce* these weights. Depth buys better weights, not other values.
#
# > **This holds for one head, whose output replaces its input.** With several heads a layer is a sum, such as
# > $A X W + A' X W'$, and its factors can no longer be sorted. (A layer that *adds* its result to its input, below, is
# > such a sum, too.) [Lecture @many_heads](@many_heads) shows two heads that *subtract*: their output is the
# > difference of two tokens, which is no average. Still, the values are only multiplied by weights and matrices, and
# > added.
#
# > **A common mistake: "without non-linearities the whole stack is linear".** The *values* meet nothing but averages
# > and matrices. The *weights* come out of a softmax of the input, so the stack is not a linear function of $X$.
#
# ## Exclusive or (XOR): what a linear map cannot compute
#
# Is an average so bad? Take a sentence about a restaurant. Suppose that attention has brought two features into the
# vector of one token: whether something is *praised*, and whether there is a *not*. The next layer needs the verdict:

# %%
#                      praise  not
phrases = torch.tensor([[1.0, 0.0],                   # "good"
                        [0.0, 0.0],                   # "bad"
                        [1.0, 1.0],                   # "not good"
                        [0.0, 1.0]])                  # "not bad";  (4, 2)
verdict = torch.tensor([[1.0], [0.0], [0.0], [1.0]])  # (4, 1)  is it a reason to go there?

# %% [raw] slide
# ## Exclusive or (XOR): what a linear map cannot compute
# | | praise | not | verdict |
# |---|---|---|---|
# | good | 1 | 0 | 1 |
# | bad | 0 | 0 | 0 |
# | not good | 1 | 1 | 0 |
# | not bad | 0 | 1 | 1 |
#
# > **Guess first.** Which four numbers does the best linear map give (it may add a constant)?
#
# . . .
# One half, four times. Ten such layers are one matrix.

# %% [markdown]
# One feature reverses the other. Everything is in this one vector, so let attention give it the weight 1 on itself.
# Then the layer is a *matrix*. Can a matrix compute the verdict? *Guess:* which four numbers does the best linear map
# give, the one with the smallest squared errors? (It may add a constant.)

# %%
with_one = torch.cat([phrases, torch.ones(4, 1)], dim=1)                  # (4, 3)
best = torch.linalg.lstsq(with_one, verdict).solution     # (3, 1)  least squares
print("the best linear answer:", [round(x, 3) for x in (with_one @ best)[:, 0].tolist()])

# %% [raw] slide
# ## What helps: an activation function
# $$\operatorname{ReLU}(z) = \max(0, z)$$
#
# > **With pencil and paper:** find two expressions of the form $\max(0, \dots)$ whose sum is the verdict.

# %% [markdown]
# It answers "one half" to all four, so it has learned nothing. Neither feature alone says anything about the verdict,
# and a linear map can only take a weighted sum of the two. This problem is known as **exclusive or**, XOR. Ten such
# layers do not help either, since the product of ten matrices is one matrix.
#
# So we need a function that is not linear, an **activation function**. The cheapest is the **rectified
# linear unit** or **ReLU**, $\max(0, z)$: it keeps numbers above zero and replaces the others by zero. *With pencil
# and paper, try to find two expressions of the form $\max(0, \dots)$ whose sum is the verdict.*

# %%
praised, negated = phrases[:, 0], phrases[:, 1]       # (4,) each
hidden_1 = (praised - negated).relu()                 # (4,)  "praise, and no not"
hidden_2 = (negated - praised).relu()                 # (4,)  "not, and no praise"
answer = hidden_1 + hidden_2                          # (4,)
hidden = torch.stack([hidden_1, hidden_2], dim=1)     # (4, 2)
figures.folded_plane(phrases, hidden, verdict, ["good", "bad", "not good", "not bad"])
assert torch.equal(answer, verdict[:, 0])
#| caption: The hidden units flatten the plane to p − n and bend it at 0. Each coloured line on
#|   the left lands on one point on the right.
#| label: folded-plane

# %% [raw] slide
# ## The hidden layer flattens the plane, and bends it
# {figure}
# |||
# $$\max(0,\ p - n)$$
#
# $$\max(0,\ n - p)$$

# %% [raw] slide
# ## The position-wise feed-forward network (FFN)
# $$\operatorname{FFN}(x) = \max(0,\ x W_1 + b_1)\,W_2 + b_2$$
#
# $W_1\colon (d_\text{model}, d_\text{ff})$, $\;W_2\colon (d_\text{ff}, d_\text{model})$, usually $d_\text{ff} = 4\,d_\text{model}$.
#
# - **Attention moves** information between tokens. On the values it is linear.
# - **The feed-forward network computes** with it, for each token by itself, and moves nothing.

# %% [markdown] teaches="nothing but averages: why a feed-forward network"
# On the left, the circles stand at opposite corners, and no line separates them from the squares. (As vectors, *good* plus
# *not bad* is *bad* plus *not good*. So a linear map with a constant gives both pairs the same sum, and cannot put one
# pair above a threshold and the other below.) The hidden layer
# has flattened the plane to a line, $p - n$ (praise less not), and bent it at 0: *bad* and *not good* now lie on one
# point, and a line separates it from the other two. Each hidden number recognises one phrase and is zero for all
# others. A wider **hidden layer** recognises more. We wrote this one by hand; a network learns it.
#
# ## The position-wise feed-forward network (FFN)
#
# In every layer of a Transformer a small network follows the attention: widen, apply the activation function, come
# back. This **position-wise feed-forward network** treats every position by itself, and all positions alike.
#
# $$\operatorname{FFN}(x) = \max(0,\ x W_1 + b_1)\,W_2 + b_2 \qquad W_1\colon (d_\text{model}, d_\text{ff}), \quad
# W_2\colon (d_\text{ff}, d_\text{model})$$ (eq:feed-forward)

# %%
figures.position_wise(["the", "chef", "who", "ran"], d_model=16, d_ff=64)
#| caption: A position-wise feed-forward network: the same network above every token.
#| label: feed-forward

# %% [raw] slide
# ## Every position by itself, all positions alike
# {figure}

# %% [markdown]
# So the two parts of a layer divide the work. **Attention moves information between tokens. The feed-forward network
# computes with it, for each token by itself, and moves nothing.** The division is not strict, because scores multiply
# features with features: attention computes through its *weights*. (If the token can share its weight with a second
# one, a single head can give the restaurant's verdict. Question 6 of [a06](@masking/assignment) asks you how.) But a
# head has one set of weights for each query, and its output is a weighted average of values. The network has $d_\text{ff}$
# units for each token.
#
# What does the network compute? Read it one **hidden unit** at a time. A unit takes the dot product of the token with
# its column of $W_1$ and adds its bias. If the sum is above zero, the unit *fires*: it adds its row of $W_2$ to the
# output, in proportion to the sum. Geva et al. ([-@geva2021]) therefore call the columns of $W_1$ *keys* and the rows
# of $W_2$ *values*. The network resembles attention over a fixed memory, with ReLU in place of the softmax.

# %%
token = torch.tensor([1.0, 0.5])                      # (d_model,)
W_1 = torch.tensor([[1.0, -1.0, 0.2], [0.6, 1.2, 0.8]])                   # (d_model, d_ff)
W_2 = torch.tensor([[0.5, 1.0], [-1.0, 0.5], [1.0, -0.5]])                # (d_ff, d_model)
figures.hidden_units(token, W_1, W_2)
#| caption: A feed-forward network as a memory of three hidden units (biases 0): two fire, and
#|   their values are added.
#| label: hidden-units

# %% [raw] slide
# ## Hidden units: keys and values
# {figure}

# %% [markdown]
# *Guess:* in a newly initialised network, how many of 64 units fire for one token? And if one of seven tokens is
# changed, how many of the seven outputs move, after the network and after attention?

# %%
torch.manual_seed(0)
network = FeedForward(d_model=16, d_ff=64)            # the package's: layers `up` and `down`
sentence = torch.randn(7, 16)                         # (n, d_model)
token, fired = sentence[3], 0                         # (d_model,)
output = network.down.bias                            # (d_model,)  b_2, to which units add
up, down = network.up, network.down
# nn.Linear keeps W_1 and W_2 transposed: a row of up.weight is a column of W_1
for key, bias, value in zip(up.weight, up.bias, down.weight.mT, strict=True):
    strength = (token @ key + bias).relu()            # ()   does this unit recognise the token?
    output = output + strength * value                # (d_model,)
    fired += int(strength > 0)
print(f"{fired} of 64 units fired; unit by unit is the network:",
      torch.allclose(output, network(sentence)[3], atol=1e-6))
changed = sentence.clone()
changed[3] = torch.randn(16)                          # one token
pairs = {"the network": (network(sentence), network(changed)),
         "attention": [attend(x, x, x)[0] for x in (sentence, changed)]}
for part, (before, after) in pairs.items():           # (7, 16) each
    moved = int((before != after).any(dim=-1).sum())
    print(f"one token changed: after {part} {moved} of 7 outputs move")
    assert moved == (1 if part == "the network" else 7)

# %% tags=["hide-input"]
assert torch.allclose(output, network(sentence)[3], atol=1e-6) and 16 < fired < 48

# %% [raw] slide
# ## Hidden units: a fixed memory
# - A unit takes the dot product of the token with its column of $W_1$ (*key*).
# - If it **fires**, it adds its row of $W_2$ (*value*). (Geva et al. 2021)
#
# > **Guess first.** In a new network, how many of 64 units fire for one token?
#
# . . .
# {print}
# Two thirds of a layer's parameters are here: $8d^2$ of $12d^2$.

# %% [markdown]
# About half of the units fire. In trained networks with ReLU it is often a small share: Li et al. ([-@li2023])
# counted 3 % in a T5 model. The network moves nothing between tokens: only the changed one gets another output.
# Attention moves all seven.
#
# The network holds two thirds of a layer's parameters. The usual width, a convention, is $d_\text{ff} = 4\,d_\text{model}$
# (2048 and 512 in [@vaswani2017]). Then the two matrices of the network have $8\,d^2$ parameters, and the four of an
# attention (query, key, value and output) have $4\,d^2$.
#
# Today's models use smoother activation functions: **GELU**, $z\,\Phi(z)$, where $\Phi(z)$ is the chance that a
# standard normal random number is below $z$ ([@hendrycks2016]), and **SiLU** or Swish, $z\,\sigma(z)$, where $\sigma$
# is the logistic sigmoid. [Lecture @transformer](@transformer) compares them with gated ones such as **SwiGLU**.

# %%
z = torch.linspace(-4, 3, 141)                        # (141,)
smooth = {"ReLU": z.relu(), "GELU": F.gelu(z), "SiLU": F.silu(z)}
viz.function_curves(smooth, z, x_name="z", y_name="activation")
#| caption: Activation functions: ReLU, GELU, SiLU.

# %% [raw] slide
# ## Smoother activation functions
# {figure}
# |||
# **GELU** $z\,\Phi(z)$
#
# **SiLU** $z\,\sigma(z)$
#
# A slope at 0, and a dip below it.
#
# **Now you:** a@masking, exercise 1

# %% [markdown]
# Far from 0, GELU and SiLU approach ReLU. But they have no kink at 0, and to the left of it they dip below zero.
#
# > **Check yourself.** A sentence of a single token goes through ten layers of attention, with any number of heads and
# > no feed-forward networks. Write the output as a function of the input.
# > <details><summary>Answer</summary>With one head, the one weight is 1 in each layer. So the output is x W₁W₂…W₁₀:
# > a linear function. With several heads, each layer is x times the sum of their matrices, which is linear as well.
# > (The softmax of the weights, the only non-linear thing in the stack, had nothing to choose from.)</details>
#
# **Now you:** [a06](@masking/assignment), exercise 1: the network, and which of its units never fire.
#
# ## Rank collapse: what keeps tokens apart
#
# The pots all became alike. Does the feed-forward network save the tokens from this? We measure which share of the
# size (norm) of all token vectors is *not* common to all of them. It is 1 if their mean is the zero vector, and 0 if
# all tokens have become the same vector. Their matrix then has rank one; hence the name **rank collapse**, or *token
# uniformity* (in graph networks, *oversmoothing*). Dong et al. ([-@dong2021]) call what is not
# common the *residual*. That has nothing to do with the residual connection below.
#
# We stack twelve layers with random matrices, as at initialisation, in five ways:
#
# * attention alone;
# * with a feed-forward network after each attention;
# * with a **residual connection** around each attention: the layer *adds* its result to its input,
#   $x + \operatorname{attention}(x)$;
# * with both: a residual connection around each feed-forward network, too;
# * with both, but without the ReLU: each network is then two matrices (scaled, so that its output keeps its size).
#
# In all five, each layer first brings the tokens' vectors to one size (`layer_norm`, [lecture
# @deep_stacks](@deep_stacks)). *Please draw the curves before you run it.* Which of the two additions keeps the
# tokens apart? Is more left with the ReLU or without it?

# %% [raw] slide
# ## Rank collapse: what keeps tokens apart?
# We measure the share of the token vectors that is *not* common to all. 0: all tokens are one vector.
#
# > **Guess first.** Twelve random layers. Draw five curves: attention alone; with a feed-forward network; with a **residual connection** $x + \operatorname{attention}(x)$; with both; with both, but without the ReLU.

# %%
def share_not_common(H):
    common = H.mean(dim=0)                            # (d,)
    return ((H - common).norm() / H.norm()).item()


def stack(activation, residual, seed, sharpness=1, layers=12, n=32, d=64):
    torch.manual_seed(seed)
    H = torch.randn(n, d).double()                    # (n, d)
    shares, largest = [share_not_common(H)], []
    for _ in range(layers):
        W_Q, W_K, W_V = torch.randn(3, d, d).double() / math.sqrt(d)      # (d, d)
        W_1 = torch.randn(d, 4 * d).double() / math.sqrt(d)
        W_2 = torch.randn(4 * d, d).double() / math.sqrt(2 * d)
        x = layer_norm(H, eps=0)                      # all vectors at one size
        found, weights = attend(sharpness * x @ W_Q, x @ W_K, x @ W_V)    # (n, d), (n, n)
        H = H + found if residual else found
        if activation is not None:
            found = activation(layer_norm(H, eps=0) @ W_1) @ W_2          # (n, d)
            H = H + found if residual else found
        shares.append(share_not_common(H))
        largest.append(weights.amax(dim=-1).mean().item())
    return shares, largest

# %%
def no_relu(z):
    return z / math.sqrt(2)                           # as large, on average, as z.relu()


kinds = {"attention alone": (None, False), "+ feed-forward": (torch.relu, False),
         "+ residual connection": (None, True), "+ both": (torch.relu, True),
         "+ both, without ReLU": (no_relu, True)}
runs = {kind: torch.tensor([stack(*parts, seed)[0] for seed in range(5)])
        for kind, parts in kinds.items()}             # (5, 13) each
figures.shares_not_common(runs)
#| caption: With scores of this size, tokens without a residual connection become one vector
#|   within five layers. One dot per seed; lines: geometric means.
#| label: rank-collapse

# %% tags=["hide-input"]
print("over five seeds, after", *[f"{layer:>9} layers   " for layer in (3, 4, 5, 12)])
for kind, run in runs.items():
    low, high = run.amin(dim=0), run.amax(dim=0)      # (13,)  over the seeds
    print(f"{kind:>21}", *[f"   {low[i]:.1e} … {high[i]:.1e}" for i in (3, 4, 5, 12)], sep="")
gained = runs["+ both"][:, -1] - runs["+ residual connection"][:, -1]     # (5,)  seed by seed
print("both minus residual connection alone, after 12 layers:",
      *[f"{gain:+.2f}" for gain in gained])

mean = 1 / math.sqrt(2 * math.pi)                     # of ReLU, for normal random numbers


def relu_less_its_mean(z):
    return (z.relu() - mean) / math.sqrt(1 - 2 * mean**2)             # as large as z.relu()


def random_for_each_token(z):
    return torch.randn_like(z) / math.sqrt(2)         # as large as well


def random_for_all_tokens(z):
    return random_for_each_token(z[:1]).expand_as(z)


print("both, after 12 layers, with this in place of ReLU:")
left = {}
for activation in (relu_less_its_mean, random_for_each_token, random_for_all_tokens):
    shares = torch.tensor([stack(activation, True, seed)[0][-1] for seed in range(5)])
    left[activation] = shares                         # (5,)
    print(f"{activation.__name__:>24}: {shares.min():.2f} … {shares.max():.2f}")
assert left[relu_less_its_mean].min() > 0.75 and left[random_for_each_token].min() > 0.75
assert left[random_for_all_tokens].max() < 0.35
print("attention alone, the largest of a query's 32 weights, on average, layer by layer:")
for sharpness in (1, 8):
    pairs = [stack(None, False, seed, sharpness) for seed in range(5)]
    kept = torch.tensor([shares for shares, _ in pairs])                  # (5, 13)
    largest = torch.tensor([largest for _, largest in pairs]).mean(dim=0)
    print(f"   scores ×{sharpness}:", *[f"{weight:.2f}" for weight in largest.tolist()],
          f"  left after 12 layers: at most {kept[:, -1].max():.0e}")
    assert kept[:, -1].max() < 1e-12, "in the end nothing is left"
assert gained.min() > 0

# %% tags=["hide-input"]
assert max(runs["attention alone"][:, 5].max(), runs["+ feed-forward"][:, 5].max()) < 1e-12
assert min(runs["+ residual connection"][:, 5].min(), runs["+ both"][:, 5].min()) > 0.3
assert (runs["+ both, without ReLU"] > runs["+ both"] + 0.2)[:, -1].all()

# %% [raw] slide
# ## The residual connection holds it off
# {figure}

# %% [raw] slide
# ## A common mistake: one remedy for two problems
# | problem | what solves it |
# |---|---|
# | attention is **linear** in the values that it averages | the feed-forward network |
# | everything becomes **alike** | the residual connection |
#
# The network is *the same function at every position*: equal tokens stay equal.

# %% [markdown]
# By the fifth layer, attention alone has turned thirty-two tokens into one vector, to the last digit of double
# precision. The feed-forward network by itself does not slow this down. *At initialisation*, it is the residual
# connection that keeps the tokens apart: each pot keeps its own paint and only adds some. The upper curves fall as
# well, but slowly.
#
# Why is the fall so steep? Tokens that are alike get nearly equal scores from every query. So the weights become even
# (the largest, 0.15 at first, falls to 1/32), and an average with even weights is the same for all queries. Each layer
# makes the next one average more evenly. Sharper scores only delay this: eight times as large, they leave nothing by layer
# 12. Dong, Cordonnier and Loukas ([-@dong2021]) prove for attention alone, if the weight *matrices* are not too large,
# that the differences vanish *doubly exponentially* with depth: each layer *multiplies* the number of zeros after the
# decimal point. Our stack shows two or three zeros after layer 3, and six to nine after layer 4. (Our matrices are random.
# With well-chosen value matrices the layer norm can prevent the collapse, [@wu2024].)
#
# Why can the network not undo this? It is *the same function at every position*: once two tokens have become the same
# vector, it returns the same vector for both. With residual connections the tokens still differ, and there more is
# left with the network than without, in every seed. Is it the computing that helps? No: without the ReLU *much* more
# is left. What helps is a second branch that adds something different to each token. Even random numbers do. The ReLU
# costs, because it is never negative: its mean adds a vector common to all tokens. Subtract the mean from it, and the
# cost is gone.
#
# > **A common mistake: one remedy for two problems.** Averaging usually gets the blame, and the feed-forward network
# > is offered as the fix. But there are two problems. Attention is *linear* in the values that it averages: the
# > network computes with them, as in the restaurant. And everything becomes *alike*: the residual connection holds
# > this off.
#
# <details><summary>What Dong et al. say about feed-forward networks</summary>
#
# Their abstract says that skip connections (residual connections) and feed-forward networks stop the collapse. Their
# theorems are more careful: the networks can slow it down, if they stretch enough. By themselves, ours did not.
#
# </details>
#
# So the building block is attention and a feed-forward network, each with a residual connection around it. [Lecture
# @deep_stacks](@deep_stacks) looks at the same connection from the side of the gradients.

# %% [markdown]
# ## Autoregressive language models and the future
#
# A language model predicts each token from those before it, and writes by reading its own output: it is
# **autoregressive**. A recurrent network reads from left to right, so it cannot look ahead. Self-attention gives
# every token access to every other token, also to the one that it must predict.
#
# What happens if nothing forbids this? Our texts are the numbers from "zero" to "nine hundred and ninety-nine". A
# token is a letter here, and a full stop stands for the beginning and for the end.

# %% [raw] slide
# ## Autoregressive language models and the future
# Texts: numbers from "zero" to "nine hundred and ninety-nine", letter by letter. The output is the input, one step later.
#
# > **Guess first.** All thousand numbers are equally likely. How small can an honest loss become?
#
# . . .
# $\ln 1000 \approx 6.9$ nats a number, divided by its letters: about 0.27 nats a letter.

# %%
texts = [say(number, "en") for number in range(1000)]
letters = "." + "".join(sorted(set("".join(texts))))
print(len(letters), "tokens:", letters)


def batch_of(chosen):
    rows = [torch.tensor([letters.index(letter) for letter in f".{text}."]) for text in chosen]
    tokens = nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=-1)
    return tokens[:, :-1].clamp(min=0), tokens[:, 1:]     # (batch, n) each: inputs, targets


inputs, targets = batch_of(["seven"])
for tokens in (inputs, targets):
    print("".join(letters[i] for i in tokens[0]))

# %% [markdown]
# The **targets** are the inputs, one step later: at each position the next letter. We train models that differ in one
# argument: some have a mask that lets position $i$ attend to the positions $j \le i$, the others have none. (Neither
# has a padding mask; a section below shows who needs one. The loss leaves padding out.) The layers are the package's,
# with four heads ([lecture @many_heads](@many_heads)) and the parts of the first half. Their class is called
# `Encoder`; with a causal mask the same stack is a **decoder-only** language model.

# %%
class Speller(nn.Module):
    def __init__(self, masked, d=64):
        super().__init__()
        self.masked = masked
        self.encoder = Encoder(TransformerConfig(
            vocab_size=len(letters), d_model=d, n_layers=2, n_heads=4, d_ff=2 * d,
            positions="learned", max_length=64, dropout=0.0,
        ))
        self.output = nn.Linear(d, len(letters))

    def forward(self, tokens):                                            # (batch, n)
        mask = causal_mask(tokens.shape[1]) if self.masked else None      # (n, n)
        return self.output(self.encoder(tokens, mask=mask))               # (batch, n, letters)

# %%
def loss_of(logits, wanted):                          # in nats per letter; −1 is padding
    return F.cross_entropy(logits.flatten(0, 1), wanted.flatten(), ignore_index=-1)


def train(masked, seed, steps=150, kept=range(1000)):
    torch.manual_seed(seed)
    model, losses = Speller(masked), []
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 5e-3, steps, pct_start=0.2)
    for _ in range(steps):
        drawn = torch.randint(len(kept), (32,))
        inputs, targets = batch_of([texts[kept[i]] for i in drawn])
        loss = loss_of(model(inputs), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        losses.append(loss.item())
    return model.eval(), losses

# %% [markdown]
# *Before you train:* how small can the loss become? All thousand numbers are equally likely, so no model can know
# which one is coming. So an *honest* model, one that does not see the answer, pays at least $\ln 1000 \approx 6.9$ nats
# per number, on average. Divide this by the letters of a number (the full stop at its end counts as one), and you have the
# **entropy** of these texts per letter, the least that honest prediction can cost.

# %%
least = math.log(1000) / (sum(len(text) + 1 for text in texts) / 1000)    # nats per letter
models, losses = {}, {"no mask": [], "causal mask": []}
for name in losses:
    for seed in range(3):
        model, line = train(masked=name == "causal mask", seed=seed)
        models[name, seed] = model
        losses[name].append(line)
figures.losses_of_runs(losses, least)
#| caption: Training losses with and without a mask, smoothed over 3 steps; without one the
#|   answer leaks.

# %% tags=["hide-input"]
last = {name: [sum(line[-20:]) / 20 for line in lines] for name, lines in losses.items()}
for name, ends in last.items():
    print(f"{name:>11}: the last 20 steps cost", ", ".join(f"{loss:.3f}" for loss in ends))

# %% tags=["hide-input"]
assert max(last["no mask"]) < 0.2 * least, "far below what is possible"
assert least - 0.03 < min(last["causal mask"]), "0.03 for the luck of the draw"
assert max(last["causal mask"]) < 1.35 * least, "near it"

# %% [raw] slide
# ## An impossible loss
# {figure}
#
# > **Guess first.** Now they write. Of a hundred texts, how many are numbers?

# %% [markdown]
# The models without a mask have an *impossible* loss. No prediction can be that good: they have read the answers,
# which are among their inputs. Now all six models write, letter by letter. There the next letter does not exist yet.
# *Guess:* of a hundred texts, how many are numbers, with the mask and without?

# %%
@torch.no_grad()
def write(model, count, seed=0):
    generator = torch.Generator().manual_seed(seed)
    tokens = torch.zeros(count, 1, dtype=torch.long)                      # (count, 1)  "."
    for _ in range(40):
        probabilities = model(tokens)[:, -1].softmax(dim=-1)              # (count, letters)
        drawn = torch.multinomial(probabilities, 1, generator=generator)  # (count, 1)
        tokens = torch.cat([tokens, drawn], dim=1)
    return ["".join(letters[i] for i in row[1:]).split(".")[0] for row in tokens.tolist()]


shares = {"no mask": [], "causal mask": []}
for (name, seed), model in models.items():
    written = write(model, 100)
    shares[name].append(sum(text in texts for text in written) / 100)
    print(f"{name:>11}, seed {seed}: {shares[name][-1]:4.0%} are numbers; begins", written[:2])

# %% tags=["hide-input"]
assert min(shares["causal mask"]) > 0.5 and max(shares["no mask"]) < 0.1

# %% [raw] slide
# ## No mask: nothing left to read when it writes
# {print}

# %% [markdown]
# The models with a mask write numbers most of the time, and near misses such as *fourteeen*: 150 steps are few. The
# others write rubbish, or nothing at all: when they write, there are no answers to read.
#
# How do they read the answers? The simplest way is to copy the next letter. A model that copies can also
# "predict" random letters. *Guess* four numbers: how often are the *first* letters of all thousand numbers right, and
# random letters, without and with a mask?

# %% tags=["hide-input"]
numbers, _ = batch_of(texts)                                              # (1000, n)
noise = torch.randint(1, len(letters), (200, 12), generator=torch.Generator().manual_seed(0))
noise[:, 0] = 0                                       # they begin with "." as all texts do
first, random = {"no mask": [], "causal mask": []}, {"no mask": [], "causal mask": []}
for (name, _), model in models.items():
    with torch.no_grad():
        begun = model(numbers)[:, 0].argmax(dim=-1) == numbers[:, 1]      # (1000,)
        guessed = model(noise)[:, :-1].argmax(dim=-1) == noise[:, 1:]     # (200, 11)
    first[name].append(f"{begun.float().mean():.0%}")
    random[name].append(f"{guessed.float().mean():.0%}")
for name in losses:
    print(f"{name:>11}: first letters", *first[name], "  random letters", *random[name])
print(f"chance for a random letter: {1 / (len(letters) - 1):.0%}")
most_common = numbers[:, 1].bincount().max() / len(texts)
print(f"the most common first letter begins {most_common:.0%} of the numbers")

# %% tags=["hide-input"]
found = {name: [[int(share[:-1]) for share in shares[name]] for shares in (first, random)]
         for name in losses}
assert min(found["no mask"][0]) > 90 and max(found["causal mask"][0]) < 30, "they read ahead"
assert max(found["no mask"][1]) < 25, "and do not copy place by place"

# %% [markdown]
# Nobody can know a first letter in advance. The best guess is the most common one, and with the mask no model does
# better. Without a mask every first letter is right, so these models do read ahead. But they get few of the random
# letters, where a copy would get all. So they do not simply copy the next letter. (How they read is of no importance
# here: whatever they take from the right is gone when they write.)
#
# Which signs would *not* have shown the fault? The training loss is splendid. Does the loss on unseen texts show it?
# *Guess:* we train on 800 of the numbers and measure on the other 200.

# %%
order = torch.randperm(1000, generator=torch.Generator().manual_seed(0)).tolist()
unseen = batch_of([texts[i] for i in order[800:]])
on_unseen = []
for seed in range(3):
    model, line = train(masked=False, seed=seed, kept=order[:800])
    with torch.no_grad():
        on_unseen.append(loss_of(model(unseen[0]), unseen[1]).item())
    print(f"no mask, seed {seed}: {sum(line[-20:]) / 20:.3f} in training,"
          f" {on_unseen[-1]:.3f} on unseen numbers")
assert max(on_unseen) < 0.5 * least, "still far below what is possible"

# %% [markdown] teaches="masking the future, with scores of −∞"
# It does not: the answers of unseen texts are among the inputs, too. Nothing crashes. Until the model writes, the
# only warning is a number that is too good. For real text even this warning is weak, because nobody knows its entropy
# exactly.
#
# > **Check yourself.** The loss with the mask is the *average* over letters. Which letters of "four hundred and
# > eighty-one" cost something, and which next to nothing?
# > <details><summary>Answer</summary>The letters that decide the number cost something: the f (which digit), the o
# > (four or five: the f leaves both open), the first letters of eighty and of one. A little is left where other numbers
# > begin alike: the u (forty), the space after four (fourteen), the i (eleven), the y (eight, eighteen) and the hyphen
# > (eighty may be the end). The rest costs next to nothing, even the space after "hundred", where 99 of 100 go on. In
# > all it comes to ln 1000.</details>
#
# ## The causal mask: scores of −∞
#
# The direct way to hide the future is to give each query only the keys that exist. At step $i$ only token $i$ asks,
# and only the tokens $1, \dots, i$ answer:

# %%
n, d_k = 4, 8
words = ["<start>", "the", "chef", "who"]
torch.manual_seed(0)
Q, K, V = torch.randn(3, n, d_k)                      # (n, d_k) each
slow = []
for i in range(n):
    output, weights = attend(query=Q[i : i + 1], key=K[: i + 1], value=V[: i + 1])
    slow.append(output)                               # (1, d_k)
    print(f"{words[i]:>8} asks: queries (1, {d_k}), keys and values {tuple(K[: i + 1].shape)}")
slow = torch.cat(slow)                                # (n, d_k)

# %% [raw] slide
# ## Causal self-attention: scores of −∞
# $$e_{ij} = \begin{cases} q_i \cdot k_j / \sqrt{d_k} & j \le i\\ -\infty & j > i \end{cases} \qquad\quad \alpha_{ij} = \operatorname{softmax}_j(e_{ij})$$
#
# - A **boolean mask**: True where a query may attend (in `nn.MultiheadAttention`: where it may *not*).
# - An **additive mask**: 0 and −∞.
#
# > **Guess first.** What is the first row of weights?

# %% [markdown] erratum="keys and queries"
# > **A common mistake: "the set of keys and queries grows".** The *keys and values* grow, as the shapes above show.
# > Each step has one query, that of the newest token. So a model that writes keeps keys and values between steps, a
# > **KV cache** ([lecture @many_heads](@many_heads)), and no queries.
#
# A model that *writes* has no other way, because token $i + 1$ does not exist before the model has chosen it. In
# training the whole text is there. So we compute all scores at once, and forbid some. A forbidden weight must be
# exactly zero. Its score must be the one "number" whose exponential is zero, −∞. This is **masked** or **causal
# self-attention**:
#
# $$e_{ij} = \begin{cases} q_i \cdot k_j / \sqrt{d_k} & j \le i\\ -\infty & j > i \end{cases} \qquad\quad
# \alpha_{ij} = \operatorname{softmax}_j(e_{ij})$$ (eq:causal)
#
# There are two ways to write the mask:
#
# * A **boolean mask** says for each pair whether the query may attend to the key. Here, and in torch's
#   `scaled_dot_product_attention`, True means "may". In `nn.MultiheadAttention` and `nn.TransformerEncoder` True means
#   "may *not*".
# * An **additive mask** holds 0 and −∞ and is added to the scores.
#
# Here is the additive mask; in the assignment you write the boolean one. *Guess:* what will the first row of weights be?

# %%
above = torch.full((n, n), -torch.inf).triu(1)        # (4, 4)  −∞ where j > i, 0 elsewhere
weights = (Q @ K.mT / math.sqrt(d_k) + above).softmax(dim=-1)             # (4, 4)
figures.masked_scores(Q @ K.mT / math.sqrt(d_k), causal_mask(n), words)
print("all at once is what it was one by one:", torch.allclose(weights @ V, slow, atol=1e-6))
#| caption: Causal mask: scores and weights, with the forbidden cells hatched.
#| label: causal-mask

# %% tags=["hide-input"]
assert torch.allclose(weights @ V, slow, atol=1e-6)

# %% [raw] slide
# ## All at once is what it was one by one
# {figure}
#
# **A common mistake: $j \ge i$ forbidden.** The first row is −∞ throughout: NaN.
#
# **Now you:** a@masking, exercise 2

# %% [markdown] erratum="i > i; not even itself"
# One product gives the same numbers. A low score such as −2.49 is *allowed* and gets its small weight; a forbidden
# cell, hatched, gets exactly 0. Each row still sums to one, since a forbidden score adds nothing to the denominator.
# The first token sees only itself and gives itself all the weight.
#
# > **A common mistake: $j < i$ allowed, $j \ge i$ forbidden.** Then a token may not attend to itself, and the first one
# > may attend to nothing. (Another misprint is "$-\infty$ where $i > i$", which forbids nothing.) The first row is then
# > −∞ throughout, and softmax turns it into NaN:

# %%
itself_too = torch.full((n, n), -torch.inf).triu(0)   # (4, 4)  −∞ where j ≥ i
printed = (Q @ K.mT / math.sqrt(d_k) + itself_too).softmax(dim=-1)        # (4, 4)
print("its first row:", printed[0].tolist())

# %% [markdown]
# > **Check yourself.** Why may position $i$ attend to itself at all? Is that not a leak?
# > <details><summary>Answer</summary>At position i the model has read token i, and must predict token i + 1. Its own
# > token is no secret. The secret stands one place further to the right, because inputs and targets are shifted against
# > each other.</details>
#
# **Now you:** [a06](@masking/assignment), exercise 2: one mask for all queries at once and for the newest alone.
#
# ## Testing for leaks: which output depends on which input?
#
# It is easy to get a mask wrong by one, and the loss only looks better for it. So we want to *test* a mask. The
# gradient can tell: where a gradient gets through, output $i$ depends on input $j$. For $n$ positions the sizes of
# these gradients make a matrix, and an honest model leaves it empty above the diagonal. Here is the detector:

# %% [raw] slide
# ## Testing for leaks: which output depends on which input?
# It is easy to get a mask wrong by one, and the loss only looks better for it. Let gradients tell.
#
# > **Guess first.** Which of these leak?
# > 1. no mask
# > 2. a causal mask on the scores
# > 3. a causal mask on the *weights*, set to 0 after the softmax
# > 4. a causal mask, inputs centred over the sentence

# %%
def who_depends_on_whom(model, x):                    # x (n, d)  ->  (n, n)
    x = x.clone().requires_grad_()
    rows = []
    for output in model(x):                           # (d_out,)  one for each position
        gradients = [torch.autograd.grad(number, x, retain_graph=True)[0] for number in output]
        gradient = torch.stack(gradients)             # (d_out, n, d)  number, input, feature
        rows.append(gradient.norm(dim=(0, 2)))        # (n,)  one size for each input
    return torch.stack(rows)                          # (n, n)  row i: what output i depends on

# %% [markdown]
# <details><summary>Why the gradient of each number, and not of their sum?</summary>
#
# After a new layer norm, for instance, the sum of a position's numbers is always zero. It has no gradient, however much
# leaks.
#
# </details>
#
# Four suspects: no mask; a causal mask; a causal mask on the *weights*, set to 0 after the softmax; and a causal mask
# on inputs that were centred first, by subtracting the mean over the sentence. *Which of the four leak?* In the
# picture a cross marks a leak, and a stronger colour a larger gradient.

# %%
torch.manual_seed(1)
W_q, W_k, W_v = torch.randn(3, 8, 8) / math.sqrt(8)


def scores_of(x):
    return (x @ W_q) @ (x @ W_k).mT / math.sqrt(8)    # (n, n)


def not_masked(x):
    return scores_of(x).softmax(dim=-1) @ x @ W_v


def masked(x):
    return masked_softmax(scores_of(x), causal_mask(len(x))) @ x @ W_v


def weights_set_to_0(x):
    return (scores_of(x).softmax(dim=-1) * causal_mask(len(x))) @ x @ W_v


def centred(x):
    return masked(x - x.mean(dim=0))


suspects = {"no mask": not_masked, "causal mask": masked, "weights set to 0": weights_set_to_0,
            "centred inputs": centred}
x = torch.randn(6, 8)                                 # (n, d)  one input for all four
found = {name: who_depends_on_whom(model, x) for name, model in suspects.items()}     # (6, 6)
figures.dependence_maps(found)
#| caption: Which output depends on which input, by the size of the gradient (each map has its
#|   own colour scale); crosses mark leaks.

# %% tags=["hide-input"]
assert [name for name, table in found.items() if not table.triu(1).any()] == ["causal mask"]

# %% [raw] slide
# ## Three of the four leak
# {figure}
#
# Weights set to 0 afterwards: the sum over *all* exponentials tells what is coming.

# %% [markdown] erratum="weights set to 0"
# Three of the four leak. Centring leaks because the mean over the sentence contains the sentence's end. Any statistic
# over all positions does. A norm over the features of one position ([lecture @deep_stacks](@deep_stacks)) cannot leak
# in this way.
#
# > **A common mistake: "masking sets attention weights to 0".** As a result, yes; as a recipe, no. [Lecture
# > @cross_attention](@cross_attention) showed that rows then no longer sum to one. Here the harm is greater: the future
# > comes through. Each allowed weight is $\exp(e_{ij})$ over a sum of *all* exponentials, the forbidden ones too. So
# > the sum of a row depends on what is coming.
#
# Can a model leak without a gradient? One more suspect adds to each token the share of positive numbers in the whole
# sentence:

# %%
def counts(x):
    return masked(x) + (x > 0).float().mean()


x, other_end = torch.randn(2, 6, 8)
other_end[:3] = x[:3]                                 # the same beginning, a different end
print("above the diagonal:", who_depends_on_whom(counts, x).triu(1).sum().item())
moved = (counts(x) - counts(other_end))[:3].abs().max().item()
print("yet the first three outputs move by", round(moved, 3))
assert not who_depends_on_whom(counts, x).triu(1).any() and moved > 0.01

# %% [raw] slide
# ## A gradient of zero proves nothing
# {print}
#
# The suspect *counts*: its output goes up in steps, and between steps its slope is zero. **Change the future, in many ways, and see whether the past has moved.**
#
# **Now you:** a@masking, exercise 3

# %% [markdown] teaches="training in parallel, teacher forcing"
# The detector acquits this model, and yet it leaks. A count goes up in steps; between the steps it is flat, and its
# gradient is zero. **A gradient clearly above rounding proves a leak; a gradient of zero proves nothing.** A better
# test does what we did with `other_end`: change the future, and see whether the past has moved. It, too, can prove a
# leak, but not its absence: try many changes, large ones among them.
#
# **Now you:** [a06](@masking/assignment), exercise 3. You write such a test, and it must catch well-hidden leaks.
#
# ## Teacher forcing: one pass is all steps
#
# Back to the trained models. In training they answered all positions of a text in one pass, and every position got the
# true beginning, whatever the model itself would have written. That is **teacher forcing** ([@williams1989]). A model
# that writes answers one position after the other. Does one pass ask the same questions as writing step by step?

# %%
figures.teacher_forcing(["<start>", "the", "chef", "who", "ran"])
#| caption: Teacher forcing: all positions of a sentence are trained in one pass. No path
#|   through the two layers goes to the left.
#| label: teacher-forcing

# %% [raw] slide
# ## Teacher forcing: one pass is all steps
# {figure}

# %% [markdown]
# Each upper dot is one question: "given these words, what comes next?" Thanks to the mask no path reaches it from the
# right, through any number of layers. So cutting off everything to the right changes nothing. *Guess:* how much longer
# does it take to ask the questions one by one?

# %%
@torch.no_grad()
def step_by_step(model, tokens):
    steps = [model(tokens[:, : i + 1])[:, -1] for i in range(tokens.shape[1])]        # prefixes
    return torch.stack(steps, dim=1)                  # (batch, n, letters)


inputs, targets = batch_of(texts[::2])         # (500, 32) each: every other number
honest, cheat = models["causal mask", 0], models["no mask", 0]
with torch.no_grad():
    start = time.process_time()
    one_pass = honest(inputs)                        # (500, 32, letters)
    middle = time.process_time()
    one_by_one = step_by_step(honest, inputs)        # (500, 32, letters)
    end = time.process_time()
    copied = cheat(inputs)                           # (500, 32, letters)
    one_by_one_copied = step_by_step(cheat, inputs)  # (500, 32, letters)
print(f"logits differ by {(one_pass - one_by_one).abs().max().item():.1e}")
print(f"one pass {middle - start:.2f} s, step by step {end - middle:.2f} s")
first, second = (loss_of(logits, targets).item() for logits in (one_pass, one_by_one))
print(f"loss with the mask:  {first:.3f} in one pass, {second:.3f} step by step")
in_one, alone = (loss_of(guess, targets).item() for guess in (copied, one_by_one_copied))
print(f"loss without a mask: {in_one:.3f} in one pass, {alone:.2f} step by step")

# %% tags=["hide-input"]
assert torch.allclose(one_pass, one_by_one, atol=1e-3) and end - middle > 4 * (middle - start)
assert alone > 1 and alone > 20 * in_one and abs(first - second) < 1e-3

# %% [raw] slide
# ## One pass, or step by step
# > **Guess first.** How much longer does it take to ask the questions one by one?
#
# . . .
# {print}
# . . .
# One pass gives $n$ losses, thanks to the mask. The price: **exposure bias**.

# %% [markdown]
# One pass gives the same logits up to rounding, for a fraction of the work. Step by step needs 32 passes, through
# half of the text on average: about sixteen times as many tokens. (A KV cache saves most of this.) For the model
# without a mask the questions are *not* the same, so this comparison is one more leak test.
#
# One pass through a text of $n$ tokens gives $n$ losses and their gradients, thanks to the mask. A recurrent network
# can be trained with teacher forcing, too, but it must walk along the text. This is a large part of the reason why
# Transformers could be trained on so much text.
#
# Teacher forcing has a price. In training a model sees only true beginnings. When it writes, it reads its own text
# with all its mistakes, and it was never trained on those. This difference is called **exposure bias**
# ([@ranzato2016]); [lecture @writing](@writing) asks how much harm it does.
#
# ## Padding masks, and both together
#
# Padding is the other reason for a mask ([lecture @cross_attention](@cross_attention)). The padding mask depends on
# the sentence and is the same for all queries. The causal mask depends on the position and is the same for all
# sentences. A pair of positions must be allowed by both, so *and* combines them. Broadcasting does the rest, if the
# axes are in their places:

# %%
lengths = torch.tensor([5, 3])
is_token = lengths_to_mask(lengths, n=5)              # (2, 5)      (batch, n)
padding = is_token[:, None, :]                        # (2, 1, 5)   (batch, any query, key)
both = combine_masks(padding, causal_mask(5))         # (2, 5, 5)   (batch, query, key)
short = ["she", "ran", "off", "pad", "pad"]           # the second sentence
figures.mask_zoo({"padding": (short, short, padding[1].expand(5, 5)),
                  "causal": (short, short, causal_mask(5)),
                  "padding and causal": (short, short, both[1])}, columns=3, unit=0.32)
#| caption: Padding mask, causal mask, and both together, for three tokens and two places of
#|   padding. Hatched: forbidden.

# %% [raw] slide
# ## Padding masks, and both together
# {figure}
#
# `is_token[:, None, :] & causal`: the padding mask depends on the sentence, the causal one on the position.
#
# **Now you:** a@masking, exercise 4

# %% [markdown]
# Hatched cells are forbidden. Rows of padding are pale, because nobody uses their outputs. Note that the axis of
# length one stands in the middle. If it stood at the end, as in `[:, :, None]`, the mask would forbid the *rows* of
# padding, and every token could still attend to padding. Nothing would crash.
#
# *A question before the next cell.* In a decoder the causal mask is there anyhow, and the padding stands at the end.
# Somebody forgets the padding mask. Which outputs change?

# %%
torch.manual_seed(0)
x = torch.randn(2, 5, 8)                              # (batch, n, d)
with_padding, _ = attend(x, x, x, both)               # (2, 5, 8)
without, _ = attend(x, x, x, causal_mask(5))          # (2, 5, 8)
moved = (with_padding - without).abs().amax(dim=-1)   # (2, 5)
print("the short sentence moves by", [round(m, 2) for m in moved[1].tolist()])
assert (moved[is_token] == 0).all() and (moved[~is_token] > 0.01).all()

# %% [raw] slide
# ## Somebody forgets the padding mask
# > **Guess first.** In a decoder, with padding at the end, which outputs change?
#
# . . .
# {print}
#
# Only outputs that nobody uses: padding at the end lies in the future. An encoder does need its mask.

# %% [markdown]
# Only outputs that nobody uses: padding at the end lies in the future of all tokens. So a causal language model with
# padding at the end needs no padding mask. An encoder does need one, since its **bidirectional self-attention** would
# see the padding. Where a decoder attends to an encoder ([lecture @cross_attention](@cross_attention)), the padding
# of the source must be masked as well.
#
# Two more things must know where the padding is. The *loss* must leave it out: `ignore_index=-1` did this above. And
# with padding in *front*, *positions* must be counted from the first token of each text. (For relative encodings such
# as RoPE a common shift changes nothing.)
#
# **Now you:** [a06](@masking/assignment), exercise 4: padding behind the tokens, and in front of them.
#
# ## Masks in use: causal, prefix, packed, window
#
# Most masks in use are made of a few simple ones. Here are eight. *Cover the titles with your hand and say what each
# of them is for.*

# %% tags=["hide-input"]
n = 8
place = torch.arange(n)
plain, padded = [*"12345678"], [*"123456", "pad", "pad"]
prefix = ["p1", "p2", "p3", *"45678"]
documents = ["a1", "a2", "a3", "b1", "b2", "c1", "c2", "c3"]
source, target = ["s1", "s2", "s3", "s4", "s5", "s6", "pad", "pad"], [*"12345"]
no_padding = place < 6                                # (8,)
everywhere = torch.ones(n, n, dtype=torch.bool)
figures.mask_zoo({
    "bidirectional\n(encoder)": (padded, padded, everywhere & no_padding),
    "causal\n(decoder-only)": (plain, plain, causal_mask(n)),
    "causal\nand padding": (padded, padded, causal_mask(n) & no_padding),
    "prefix LM": (prefix, prefix, causal_mask(n) | (place < 3)),
    "packed\ndocuments": (documents, documents,
                          torch.block_diag(causal_mask(3), causal_mask(2), causal_mask(3))),
    "sliding window": (plain, plain, causal_mask(n) & window_mask(n, window=3)),
    "blocks\n(chunked)": (plain, plain, torch.block_diag(causal_mask(4), causal_mask(4))),
    "cross-attention": (target, source, everywhere[:5] & no_padding),
})
#| caption: Masks in use: who may attend to whom. Hatched: forbidden. Pale: queries whose output
#|   nobody uses.
#| label: masks

# %% [raw] slide
# ## Masks in use: what is each of them for?
# {figure}

# %% [markdown]
# <details><summary><b>Answers</b></summary>
#
# | mask | who may attend to whom | used by |
# |---|---|---|
# | **bidirectional** | every token to every real token | encoders: BERT ([@devlin2019]), T5's encoder ([@raffel2020]) |
# | **causal** | $j \le i$ | decoder-only models: GPT-2 ([@radford2019]), Llama ([@touvron2023llama]) |
# | **causal and padding** | $j \le i$, if $j$ is a real token | decoders on batches of texts of different lengths |
# | **prefix LM** | the prefix to all of itself, what follows to its past | one of the variants in T5's paper; PaliGemma ([@beyer2024]) |
# | **packed** | causal, within one document | training on rows of several documents: Llama 3 ([@grattafiori2024, section 3.2]) |
# | **sliding window** | the last $w$ tokens | Mistral 7B ([@jiang2023]); every second layer of Gemma 2 ([@gemma2024]; [lecture @cheap_attention](@cheap_attention)) |
# | **blocks** | causal, within one chunk | the layers with RoPE in [Llama 4](https://huggingface.co/blog/llama4-release) |
# | **cross-attention** | every target token to every real source token | encoder–decoders |
#
# Without the mask for packed documents, each document reads those that happen to stand before it in the row. Nothing
# leaks from the future, but Zhao et al. ([-@zhao2024]) measured a loss of quality. (For Llama 3 the mask mattered
# little in standard pre-training and much for very long texts, [@grattafiori2024, section 3.2].)
#
# </details>
#
# Note three things. A mask need not be square: cross-attention has $n_\text{target}$ rows. A mask says what is
# *allowed*, not what is *saved*: forbidden scores are computed and thrown away, unless the code skips them ([lecture
# @cheap_attention](@cheap_attention)). And a mask describes *one* layer. Under a window of three, position 8 reads 6,
# which has read 4 one layer below: with every layer the reach grows by two. Between blocks nothing ever crosses, so
# models mix in layers of another kind.
#
# BERT's **masked language modelling** is another thing, in spite of its name: it replaces some *input tokens* by a
# token `[MASK]`, which the model must fill in ([lecture @transformer](@transformer)). Its attention mask stays
# bidirectional.
#
# ## Applying a mask: −∞, −1e9 and NaN
#
# When a program continues a batch of prompts, it usually pads them in *front*, so that all of them end at the same
# place. In the next figure you choose a mask and a way of applying it. Hatched cells are forbidden, framed ones have
# weight where they must not, orange ones are NaN.
#
# 1. Which masks make NaN out of −∞? What do the rows with NaN have in common?
# 2. Replace −∞ by −1e9, a large negative number, as much code does. The NaN is gone. What is in those rows now?
# 3. Which of the four ways applies all six masks correctly?

# %%
chef = ["pad", "pad", "the", "chef", "who"]
place = torch.arange(5)
masks = {
    "everybody": torch.ones(5, 5, dtype=torch.bool),
    "causal, j ≤ i": causal_mask(5),
    "j < i": causal_mask(5).tril(-1),
    "padding in front": (place >= 2).expand(5, 5),
    "causal and padding": causal_mask(5) & (place >= 2),
    "tokens to tokens": (place[:, None] >= 2) & (place >= 2),
}
scores = torch.randn(5, 5, generator=torch.Generator().manual_seed(3))    # (5, 5)  some scores


def weigh(way, mask):
    if way == "masked_softmax":                       # the package's
        return masked_softmax(scores, mask)
    if way == "weights · mask":
        return scores.softmax(dim=-1) * mask
    lowest = -torch.inf if way == "−∞" else -1e9
    return torch.where(mask, scores, lowest).softmax(dim=-1)

# %%
def carry_out(mask, way):
    return figures.mask_frame(masks[mask], weigh(way, masks[mask]), chef)


ways = ["−∞", "−1e9", "weights · mask", "masked_softmax"]
viz.explore(carry_out, mask=list(masks), way=ways,
            start={"mask": "causal and padding", "way": "−∞"})
#| caption: A mask, and the attention weights that one way of applying it gives. Here −∞
#|   leaves rows of NaN.

# %% tags=["hide-input"]
for mask in masks.values():
    weights = {way: weigh(way, mask) for way in ways}                     # (5, 5) each
    lonely = ~mask.any(dim=-1)                        # (5,)  queries that may attend to nobody
    assert torch.equal(weights["−∞"].isnan().any(dim=-1), lonely), "NaN: nothing is allowed"
    if lonely.any():
        assert (weights["−1e9"][lonely] == 0.2).all(), "an even share for all the forbidden"
    sums = weights["masked_softmax"].sum(dim=-1)      # (5,)
    assert (weights["masked_softmax"][~mask] == 0).all()
    assert torch.allclose(sums, (~lonely).float())

# %% [raw] slide
# ## Applying a mask: −∞, −1e9 and NaN
# {figure}

# %% [markdown]
# <details><summary><b>Answers</b></summary>
#
# 1. *j < i*, *causal and padding*, *tokens to tokens*: the masks with a row in which nothing is allowed. With padding in
#    front, these are the first rows. Such a row is all −∞. In the formula of softmax it is 0 divided by 0. A library
#    subtracts the row's largest score first, and has NaN there already: −∞ − (−∞).
# 2. Even weights. With −1e9 throughout, all scores of the row are equal again, and every position gets a fifth, padding
#    and future included: a leak, if the output of such a row is used. (Some code *adds* −1e9 to the scores. The
#    differences between them do not survive this: at that size the numbers of float32 are 64 apart.)
# 3. Only `masked_softmax`: such a row is all zeros. How to do this, you find out in exercise 5. (*Weights · mask* leaves
#    rows that sum to less than one, and leaks, as above.)
#
# </details>
#
# Does it matter if only rows of padding are NaN? *Guess:* in the still picture two rows of padding are NaN, and no
# token may attend to padding. After how many further layers do the tokens become NaN?

# %%
mask = masks["causal and padding"]                    # (5, 5)
values = x[0]                                         # (5, 8)  one sentence of those above
first = weigh("−∞", mask) @ values                    # (5, 8)  a layer: two rows of NaN
second = weigh("−∞", mask) @ first                    # (5, 8)  and one more
print("NaN rows after one layer: ", first.isnan().any(dim=-1).tolist())
print("NaN rows after two layers:", second.isnan().any(dim=-1).tolist())
assert first[:2].isnan().all() and not first[2:].isnan().any() and second.isnan().all()

# %% [raw] slide
# ## A mask cannot keep out what is not a number
# > **Guess first.** Two rows of padding are NaN, and no token may attend to padding. After how many further layers do the tokens become NaN?
#
# . . .
# {print}
# Zero times NaN is NaN: give zeros to rows with nothing allowed.

# %% [markdown]
# One. The tokens give padding the weight zero, and zero times NaN is NaN. **A mask cannot keep out what is not a
# number.** So give zeros to a row with nothing to attend to.
#
# Can the zeros be put in later? Or is it enough that the loss leaves such rows out? Below, an additive mask makes two
# rows of NaN, and the loss reads only the other three. We do nothing, put in zeros, or use `masked_softmax`. *Guess:*
# for which of the three is the gradient of $W$, a matrix that all tokens share, finite?

# %%
W = (torch.randn(8, 8, generator=torch.Generator().manual_seed(0)) / 8).requires_grad_()
for way in ("nothing done", "zeros put in later", "masked_softmax"):
    raw = values @ W @ values.mT                      # (5, 5)  scores
    weights = (raw + torch.where(mask, 0.0, -torch.inf)).softmax(dim=-1)  # two rows of NaN
    if way == "zeros put in later":
        weights = weights.nan_to_num()
    if way == "masked_softmax":
        weights = masked_softmax(raw, mask)
    loss = (weights @ values)[2:].square().mean()     # of the three tokens, without padding
    (gradient,) = torch.autograd.grad(loss, W)        # (8, 8)
    share = gradient.isnan().float().mean()
    print(f"{way:>18}: loss {loss.item():.2f}, NaN in {share:.0%} of the gradient of W")

# %% tags=["hide-input"]
assert gradient.abs().max() > 0 and share == 0, "masked_softmax"
replaced = torch.where(mask, values @ W @ values.mT, -torch.inf).softmax(dim=-1).nan_to_num()
(there,) = torch.autograd.grad((replaced @ values)[2:].square().mean(), W)
assert torch.allclose(there, gradient, atol=1e-6), "where −∞ replaces a score, NaN stops"

# %% [raw] slide
# ## NaN in the backward pass
# > **Guess first.** The loss leaves padding out and is finite. Is the gradient?
#
# . . .
# {print}
# Zero times NaN is NaN again: a finite loss does not mean a finite gradient.

# %% [markdown]
# Only for the last. In the backward pass, softmax multiplies the gradient that arrives by the row's weights. For a row
# of padding that gradient is zero, but the weights are NaN, and zero times NaN is NaN again. One step of the optimizer
# then makes all of $W$ NaN. **A finite loss does not mean a finite gradient.** `masked_softmax` never computes the
# NaN. Exercise 5 tests your gradient, too.
#
# <details><summary>Does it matter how −∞ gets there?</summary>
#
# Yes. Here −∞ was *added* to the scores. Where it *replaces* a score, the result does not depend on that score, and no
# gradient reaches it, NaN or not.
#
# </details>
#
# Last, the habit of writing −1e9. For years large models computed in **float16**, numbers of 16 bits. *Guess:* does
# −1e9 fit?

# %% tags=["hide-input"]
half = scores.half()                                  # (5, 5)
try:
    half.masked_fill(~mask, -1e9)
except RuntimeError as error:
    print("RuntimeError:", str(error).splitlines()[0])
for dtype in (torch.float16, torch.bfloat16, torch.float32):
    print("most negative finite", dtype, "is", torch.finfo(dtype).min)
print("torch.where in float16:", torch.where(mask, half, -1e9).softmax(dim=-1)[0].tolist())
print("−1e9 + 3 is −1e9 in float32:", bool(torch.tensor(-1e9) + 3 == torch.tensor(-1e9)))

# %% tags=["hide-input"]
assert not masked_softmax(half, mask).isnan().any(), "the lowest of the scores' own type fits"
assert torch.tensor(-1e9) + 3 == torch.tensor(-1e9)

# %% [raw] slide
# ## Does −1e9 fit?
# {print}
#
# **Now you:** a@masking, exercise 5

# %% [raw] slide
# ## In short
# | | | shape |
# |---|---|---|
# | one head, $L$ layers | $A_L \cdots A_1\; X\; W_1 \cdots W_L$ | $(n, d)$ |
# | feed-forward network | $\max(0,\ x W_1 + b_1)\,W_2 + b_2$ | $(d_\text{ff})$ inside |
# | causal self-attention | $e_{ij} = -\infty$ where $j > i$, then softmax | $(n, n)$ |
# | both masks | `is_token[:, None, :] & causal` | $(\text{batch}, n, n)$ |
# | test for leaks | change the inputs after $i$, in many ways: no output up to $i$ may move | |
#
# **Now do** assignment a@masking. **Next:** lecture @many_heads.

# %% [markdown]
# It does not: the most negative finite float16 is −65504, and `masked_fill` refuses. `torch.where` does not refuse, nor do
# an addition or a cast: they turn −1e9 into −∞ without a word, and a row with nothing allowed is NaN again. Take
# `torch.finfo(scores.dtype).min`, and set the forbidden weights to 0 afterwards. **bfloat16**, the other 16-bit type, has
# the range of float32 and fewer digits, so −1e9 fits there. The last line confirms answer 2: add a score of 3 to −1e9, and
# the 3 is lost.
#
# **Now you:** [a06](@masking/assignment), exercise 5: scores, mask, softmax and average together.
#
# ## In short
#
# | | | shape |
# |---|---|---|
# | one head, $L$ layers | $A_L \cdots A_1\; X\; W_1 \cdots W_L$: weights on the left, matrices on the right | $(n, d)$ |
# | feed-forward network | $\max(0,\ x W_1 + b_1)\,W_2 + b_2$, at every position | $(d_\text{ff})$ inside, $(d)$ out |
# | causal self-attention | $e_{ij} = -\infty$ where $j > i$, then softmax | $(n, n)$ |
# | both masks | `is_token[:, None, :] & causal` | $(\text{batch}, n, n)$ |
# | test for leaks | change the inputs after $i$, in many ways: no output up to $i$ may move | |
#
# Attention moves information between tokens; it is linear in the values, and computes through its weights alone. The
# position-wise feed-forward network computes with what it has received, and needs an activation function to be more
# than a linear map. At initialisation the residual connection holds off rank
# collapse; the network alone does not. A causal mask makes self-attention autoregressive, so that one pass trains all
# positions of a text. A leak makes the loss splendid and the model useless, so test for it. Forbid *scores*, and give
# zeros to rows with nothing allowed.
#
# The list from [lecture @self_attention](@self_attention) is complete:
#
# | what was missing | what adds it |
# |---|---|
# | order | positions, [lecture @order](@order) |
# | something other than averages | a feed-forward network in every layer, and residual connections |
# | blindness to the future | scores of −∞ before the softmax, where $j > i$ |
#
# > **Check yourself.**
# > 1. Somebody removes the activation function from all feed-forward networks of a Transformer. What does each network
# >    become?
# > 2. A program adds two additive masks, −1e9 for the future and −1e9 for padding. A row has places that are forbidden
# >    once and others that are forbidden twice, but none that is allowed. Where does its weight go?
# > 3. A boolean mask in `nn.MultiheadAttention` is True where attending is *forbidden*, in
# >    `scaled_dot_product_attention` where it is allowed. You mix them up in a decoder. What does each position see,
# >    and what about the last one?
# > 4. The six pots again, under a causal mask: pot A takes from A alone, pot B from A and B, pot C from A, B and C, and
# >    so on. Which colour do they have in the end?
# > <details><summary>Answers</summary>
# >
# > 1. A linear map of rank at most d_model (with a bias). One matrix could replace it: its hidden layer gains nothing.
# > 2. To those that are forbidden once: they score −1e9, the others −2e9. If these are the future, the model reads it.
# > 3. Each position sees its future alone. The last position has none, and nothing left to attend to. Where that gives
# >    NaN, you notice. Today's `scaled_dot_product_attention` puts zeros there, and then only a loss that is too
# >    good shows the mistake.
# > 4. A's. Pot A never changes. If every pot takes at least a share ε from A in every round, then the largest share of
# >    other paints in any pot shrinks to at most 1 − ε of itself. Under a causal mask attention alone collapses, too:
# >    to the first token.</details>
#
# **Now do** [assignment @masking](@masking/assignment) (about two hours): five exercises, two questions in
# words, and an extension. **Next:** [lecture @many_heads](@many_heads), several attentions side by side.
#
# **Further reading.** [+@vaswani2017]: section 3.2.3, third point, is the causal mask in one sentence, section 3.3 the
# feed-forward network. [+@dong2021]. [+@geva2021]. [+@hendrycks2016]. [+@williams1989]; [+@ranzato2016].
# [+@raffel2020]: figure 3 draws the fully visible, the causal and the prefix mask. [+@zhao2024]. Masks of models:
# [+@jiang2023]; [+@gemma2024]; [+@grattafiori2024], section 3.2.
