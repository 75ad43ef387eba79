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
# *About 60 minutes, including about one minute of computing time. You need self-attention with its matrix of attention
# weights ([lecture @self_attention](@self_attention)). You also need the idea of a language model, which predicts the
# next token from the tokens before it ([lecture @bottleneck](@bottleneck)).*
#
# After this lecture you can
#
# * show what a stack of self-attention layers with one head can never do;
# * write the **position-wise feed-forward network**, and say why it needs an **activation function**;
# * explain **rank collapse**, and what prevents it at initialisation;
# * write a **causal mask** and a **padding mask**, combine them, and read other masks;
# * detect a leak of the future without training the model;
# * keep NaN out of masked attention and its gradients;
# * explain how one **autoregressive** pass trains all positions of a text (**teacher forcing**).
#
# [Lecture @self_attention](@self_attention) ended with three things that self-attention lacks. Order was the first.
# This lecture adds the other two. The first half is about computing something other than averages. The second half is
# about hiding the future from a language model.
#
# ## Repeated averaging: six pots of paint
#
# Here are six pots of paint, each of a different colour. In every round we empty all six pots and refill each one with
# its own mixture of the six paints. What do the pots look like after ten rounds?
#
# This is a question about attention. A layer gives every token a weighted average of all values, and the next layer
# averages those averages.

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
# We describe a colour by two numbers: how much red and how much blue it contains. The recipes of one round form a
# matrix of attention weights, with one row for each pot. Here a softmax makes them from random scores. The slider
# *sharpness* multiplies the scores. At high sharpness a pot is filled almost entirely from one pot.
#
# On the left you see the pots. On the right each pot is a point, with the same mark as on the left. The blue shape is
# what the six points span now. The grey shapes are earlier rounds, the later the darker. (A number is left out where
# there is no room for it.) The title gives the *spread*: the standard deviation of red or of blue, whichever is larger,
# as a share of what it was at first.
#
# *Before you move the sliders:* can a pot become redder than the reddest pot was in the round before? Does sharpness
# stop the mixing?

# %%
def mix(sharpness, rounds=10, seed=1):
    torch.manual_seed(seed)
    pots = [torch.rand(6, 2)]                         # (6, 2)  red and blue
    for _ in range(rounds):
        recipes = (sharpness * torch.randn(6, 6)).softmax(dim=-1)         # (6, 6)  weights
        pots.append(recipes @ pots[-1])               # (6, 2)  every pot is filled anew
    return pots

# %% tags=["hide-input"]
def after_mixing(sharpness, rounds):
    return figures.mixing_rounds(mix(sharpness), rounds)


viz.explore(
    after_mixing, rounds=range(11), sharpness=[1.0, 2.0, 5.0],
    start={"rounds": 0, "sharpness": 2.0},
)
#| caption: Averages of averages: six paints, mixed again and again by random recipes (seed 1).
#| label: averaging

# %% [raw] slide
# ## Mix
# {figure}

# %% tags=["hide-input"]
figures.mixed(mix(sharpness=5.0), 3)
#| caption: Sharp recipes, three rounds: each shape lies inside the shape of the round before.

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
          f" {max(left):.2%} of the spread is left")
assert 0.17 < max(left) < 0.19, "at sharpness 5"

# %% [raw] slide
# ## Stacked self-attention with one head
# $$A_3\bigl(A_2\,(A_1 X W_1)\,W_2\bigr)W_3 \;=\; (A_3 A_2 A_1)\; X \;(W_1 W_2 W_3)$$
#
# - Weights mix **tokens**, on the left. Matrices mix **features**, on the right.
# - Every output lies in the **convex hull** of the rows of $X W_1 W_2 W_3$.
# - With several heads a layer is a sum, and the factors cannot be sorted.

# %% [markdown] teaches="nothing but averages: why a feed-forward network"
# No pot can become redder. A weighted average lies between the things that it averages. In the plane, it lies inside
# the shape that they span, their **convex hull**. So each shape lies inside the shape of the round before. Sharp
# recipes only slow the shrinking: after ten rounds at sharpness 5, up to 18 % of the spread is left. A softmax takes
# some paint from every pot. If every round has recipes of the same kind, all six pots hold the same purple in the end:
# after 100 rounds less than a thousandth of the spread was left with every seed.
#
# ## Stacked self-attention with one head
#
# Real layers first multiply the values by a matrix, and a matrix can move points out of the hull. Do the value matrices
# let the tokens escape? *With pencil and paper,* write the output of three layers with one head each. The attention
# weights $A_1, A_2, A_3$ stand on the left of $X$, because they mix *tokens*. The value matrices $W_1, W_2, W_3$ stand
# on the right, because they mix *features*. Which factors can you bring together? *Then guess:* can one layer give the
# same output as three? The next cell tries it.

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
# One layer gives the same output, because the factors of each kind can be grouped:
#
# $$A_3\bigl(A_2\,(A_1 X W_1)\,W_2\bigr)W_3 \;=\; (A_3 A_2 A_1)\; X \;(W_1 W_2 W_3)$$
#
# Do the value matrices let the tokens escape? They move the hull, but they combine into a single matrix, so the whole
# stack moves it just once. Inside the moved hull the tokens draw together as the pots did. However deep the stack is,
# every output is a weighted average of the same few vectors, the rows of $X W_1 W_2 \cdots W_L$.
#
# So no such stack returns $x_1 - x_2$ for every $X$, whatever its matrices are. (If all tokens are the same vector $x$,
# the stack returns $x W_1 \cdots W_L$, and the difference is 0. So the product of the $W$ would have to be 0, and then
# every output is 0.) Depth can still help: the scores of a single layer may be unable to *produce* the weights
# $A_3 A_2 A_1$. Depth buys better weights, not other values.
#
# > **This holds for one head whose output replaces its input.** With several heads a layer is a sum, such as
# > $A X W + A' X W'$, and its factors can no longer be grouped. The same is true of a layer that *adds* its result to
# > its input, as some layers below do. [Lecture @many_heads](@many_heads) shows two heads that *subtract* one token from
# > another, which is no average. Even then the values are only multiplied by weights and matrices, and added.
#
# > **A common mistake: "without non-linearities the whole stack is linear".** The *values* meet nothing but averages
# > and matrices. The *weights* come out of a softmax of the input, so the stack is not a linear function of $X$.
#
# ## Exclusive or (XOR): what a linear map cannot compute
#
# What can a stack of averages and matrices not compute? Take a sentence about a restaurant. Suppose that attention has
# brought two features into the vector of one token: whether something is *praised*, and whether there is a *not*. The
# next layer must compute the verdict.

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
# The *not* reverses the praise. Both features are in this one vector, so let attention give it the weight 1 on itself.
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
# The best linear map answers "one half" to all four phrases: it has learned nothing. Neither feature alone says
# anything about the verdict, and a linear map can only take a weighted sum of the two. This problem is known as
# **exclusive or**, XOR. Ten such layers do not help either, because the product of ten matrices is one matrix.
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
# On the left, the circles stand at opposite corners, and no line separates them from the squares. The hidden layer has
# flattened the plane to a line, $p - n$ (praise minus not), and bent it at 0. Now *bad* and *not good* lie on one
# point, and a line separates this point from the other two. Each hidden number recognises one phrase and is zero for
# all others. A wider **hidden layer** can recognise more phrases. We chose these weights by hand; a network learns its
# own.
#
# <details><summary>Why does no line separate them on the left?</summary>
#
# As vectors, *good* plus *not bad* is *bad* plus *not good*. So a linear map with a constant gives both pairs the same
# sum, and cannot put one pair above a threshold and the other below.
#
# </details>
#
# ## The position-wise feed-forward network (FFN)
#
# Where does a Transformer have such hidden units? In every layer a small network follows the attention. It widens each
# vector, applies the activation function, and returns to the old width. This **position-wise feed-forward network**
# works on every position by itself, with the same matrices at all positions.
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
# computes with it, for each token by itself, and moves nothing.**
#
# The division is not strict, because attention computes through its *weights*: scores multiply features with features.
# If the token can share its weight with a second token, a single head can even give the restaurant's verdict. (Question
# 6 of [a06](@masking/assignment) asks you how.) But for each query a head decides only one thing, how to divide one unit
# of weight among the tokens. After that it can only average. The network computes $d_\text{ff}$ non-linear features of
# each token and combines them with weights of either sign.
#
# What does the network compute? Look at one **hidden unit** at a time. A unit takes the dot product of the token with
# its column of $W_1$ and adds its bias. If the sum is above zero, the unit *fires*: it adds its row of $W_2$ to the
# output, in proportion to the sum. For this reason Geva et al. ([-@geva2021]) call the columns of $W_1$ *keys* and the
# rows of $W_2$ *values*. The network resembles attention over a fixed memory, with ReLU in place of the softmax.

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
# *Guess:* in a newly initialised network, how many of 64 units fire for one token? Then we replace this token by
# another random one. How many of the 64 units change from firing to silent, or from silent to firing?

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
switched = (up(sentence[3]) > 0) != (up(changed[3]) > 0)                  # (64,)
print(f"the token is replaced: {int(switched.sum())} of 64 units switch")
pairs = {"the network": (network(sentence), network(changed)),
         "attention": [attend(x, x, x)[0] for x in (sentence, changed)]}
for part, (before, after) in pairs.items():           # (7, 16) each
    moved = int((before != after).any(dim=-1).sum())
    print(f"after {part} {moved} of 7 outputs move")
    assert moved == (1 if part == "the network" else 7)

# %% tags=["hide-input"]
assert torch.allclose(output, network(sentence)[3], atol=1e-6) and 16 < fired < 48
assert 16 < switched.sum() < 48

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
# About half of the 64 units fire, and about half of the 64 switch when the token is replaced. In trained networks with
# ReLU, often only a small share fires: Li et al. ([-@li2023]) counted 3 % in a T5 model. The last two lines confirm the
# division of work. The network changes the output of the replaced token alone, and attention changes all seven outputs.
#
# The network holds two thirds of a layer's parameters. By convention its width is $d_\text{ff} = 4\,d_\text{model}$
# (2048 and 512 in [@vaswani2017]). Then its two matrices have $8\,d^2$ parameters, and the four matrices of an
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
# Far from 0, GELU and SiLU approach ReLU. Near 0 they have no kink, and to the left of 0 they dip below zero.
#
# > **Check yourself.** A sentence of a single token goes through ten layers of attention, with any number of heads and
# > no feed-forward networks. Write the output as a function of the input.
# > <details><summary>Answer</summary>With one head, the one weight is 1 in each layer. So the output is x W₁W₂…W₁₀:
# > a linear function. With several heads, each layer multiplies x by the sum of their matrices, which is linear as well.
# > (The softmax is the only non-linear part of the stack, and with one token it has nothing to choose from.)</details>
#
# **Now you:** [a06](@masking/assignment), exercise 1: write the network, and find the units that never fire.
#
# ## Rank collapse: what keeps tokens apart
#
# All pots became alike. Does a feed-forward network keep tokens from becoming alike? We measure how different the
# tokens still are: subtract the mean of all token vectors, and divide the norm of what remains by the norm of the
# whole. This share is 1 if the mean is the zero vector, and 0 if all tokens have become the same vector. In that case
# their matrix has rank one, hence the name **rank collapse**. Other names are *token uniformity* and, for graph
# networks, *oversmoothing*. (Dong et al. ([-@dong2021]) call what remains the *residual*. It has nothing to do with the
# residual connection below.)
#
# We stack twelve layers with random matrices, as at initialisation. Each layer has one head and no output matrix. (Dong
# et al. prove the collapse for several heads as well.) There are five kinds of stack:
#
# * attention alone (with the layer norm that all five have);
# * with a feed-forward network after each attention;
# * with a **residual connection** around each attention: the layer *adds* its result to its input,
#   $x + \operatorname{attention}(x)$;
# * with both, and a residual connection around each feed-forward network as well;
# * with both, but without the ReLU: each network is then two matrices, scaled so that its output is as large, on
#   average, as with the ReLU.
#
# The `layer_norm` at the start of each layer brings the tokens' vectors to one size ([lecture
# @deep_stacks](@deep_stacks)). *Draw the five curves before you run the cell.* Which of the two additions keeps the
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


def stack(activation, residual, seed, sharpness=1, fixed=(), layers=12, n=32, d=64):
    torch.manual_seed(seed)
    H = torch.randn(n, d).double()                    # (n, d)
    first = layer_norm(H, eps=0)                      # (n, d)  what the first layer reads
    shares, largest = [share_not_common(H)], []
    for _ in range(layers):
        W_Q, W_K, W_V = torch.randn(3, d, d).double() / math.sqrt(d)      # (d, d)
        W_1 = torch.randn(d, 4 * d).double() / math.sqrt(d)
        W_2 = torch.randn(4 * d, d).double() / math.sqrt(2 * d)
        x = layer_norm(H, eps=0)                      # all vectors at one size
        query = sharpness * (first if "queries" in fixed else x) @ W_Q    # (n, d)
        key = (first if "keys" in fixed else x) @ W_K                     # (n, d)
        found, weights = attend(query, key, x @ W_V)                      # (n, d), (n, n)
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


kinds = {"attention + layer norm": (None, False), "+ feed-forward": (torch.relu, False),
         "+ residual connection": (None, True), "+ both": (torch.relu, True),
         "+ both, without ReLU": (no_relu, True)}
runs = {kind: torch.tensor([stack(*parts, seed)[0] for seed in range(5)])
        for kind, parts in kinds.items()}             # (5, 13) each
figures.shares_not_common(runs)
#| caption: All five have a layer norm; without a residual connection tokens become one vector
#|   by layer 5. Dots: seeds; lines: geometric means.
#| label: rank-collapse

# %% tags=["hide-input"]
print(" over five seeds, after", *[f"{layer:>9} layers   " for layer in (3, 4, 5, 12)])
for kind, run in runs.items():
    low, high = run.amin(dim=0), run.amax(dim=0)      # (13,)  over the seeds
    print(f"{kind:>22}", *[f"   {low[i]:.1e} … {high[i]:.1e}" for i in (3, 4, 5, 12)], sep="")

# %% tags=["hide-input"]
typical = {kind: run.log().mean(dim=0).exp() for kind, run in runs.items()}
for kind in ("attention + layer norm", "+ feed-forward"):
    assert runs[kind][:, 5].max() < 1e-12
assert min(runs["+ residual connection"][:, 5].min(), runs["+ both"][:, 5].min()) > 0.3
assert (runs["+ both, without ReLU"] > runs["+ both"] + 0.2)[:, -1].all()
for layer, share in ((2, 0.2), (3, 0.004), (4, 4e-8)):
    assert 0.6 < typical["attention + layer norm"][layer] / share < 1.5, layer

# %% [raw] slide
# ## The residual connection holds it off
# {figure}

# %% [markdown]
# By the fifth layer, attention alone has turned thirty-two tokens into one vector, up to the rounding of double
# precision. A feed-forward network without a residual connection does not slow this down. The network is *the same
# function at every position*: once two tokens have become the same vector, it returns the same vector for both. *At
# initialisation*, the residual connection keeps the tokens apart: each pot keeps its own paint and only adds some. The
# upper curves fall as well, but slowly. Without the ReLU more is left than with it, and "Going further" below asks why.
#
# Why is the fall so steep? Three things become small together: the differences between the queries, between the keys
# and between the values. If the queries are alike, or the keys are alike, then all rows of weights are alike. If the
# values are alike, even different rows of weights give nearly the same average. So the difference of two outputs is
# about the *product* of the three, and each layer **cubes** the share: about 0.2, 0.004 and 0.00000004 after layers 2,
# 3 and 4. Written as powers of ten, the three are $10^{-0.7}$, $10^{-2.4}$ and $10^{-7.4}$: the exponent about triples.
#
# This explanation can be tested. In the next cell every layer makes its queries from the input of the *first* layer, so
# the queries stay different. Then we do the same to the keys, and then to both. *Guess:* with such queries the share is
# 0.03 after layer 3. What is it after layers 4 and 5?

# %% tags=["hide-input"]
guides = {(): ("cubed", 3, 3, 1.0), ("queries",): ("squared", 3, 2, 1.0),
          ("keys",): ("squared", 4, 2, 1.0), ("queries", "keys"): ("a fifth", 3, 1, 0.2)}
from_first = {}
for fixed in guides:
    shares = [stack(None, False, seed, fixed=fixed)[0] for seed in range(5)]
    from_first[fixed] = torch.tensor(shares)          # (5, 13)
figures.shares_and_guides({
    f"{' and '.join(fixed) or 'nothing'}\n(dotted: {word})": (from_first[fixed], *guide)
    for fixed, (word, *guide) in guides.items()
}, "from the first layer's input:")
#| caption: What is left if queries, keys or both are made from the first layer's input. Dotted:
#|   what exact cubing, squaring or a fifth would leave.
#| label: steepness

# %% tags=["hide-input"]
kept = {fixed: run.log().mean(dim=0).exp() for fixed, run in from_first.items()}   # (13,)
print("from the first layer's input, after layer", *[f"{layer:>8}" for layer in range(2, 8)])
for fixed, means in kept.items():
    listed = [f"{mean:.0e}" if mean > 1e-15 else "rounding" for mean in means.tolist()]
    print(f"{' and '.join(fixed) or 'nothing':>41}", *[f"{share:>8}" for share in listed[2:8]])

# %% tags=["hide-input"]
print("attention alone: the largest of a query's 32 weights, on average, layer by layer;"
      " and the share left")
for sharpness in (1, 8, 64):
    pairs = [stack(None, False, seed, sharpness) for seed in range(5)]
    ends = torch.tensor([shares[-1] for shares, _ in pairs])              # (5,)
    largest = torch.tensor([largest for _, largest in pairs]).mean(dim=0)
    print(f"   scores ×{sharpness:>2}:", *[f"{weight:.2f}" for weight in largest.tolist()],
          f"  left: at most {ends.max():.0e}")
    assert ends.max() < 1e-9, "in the end nothing is left"


def powers(fixed, layers):                            # k where a layer raises the share to k
    return [(kept[fixed][i + 1].log() / kept[fixed][i].log()).item() for i in layers]


assert all(2.8 < k < 3.4 for k in powers((), [2, 3]))
assert all(1.8 < k < 2.4 for k in powers(("queries",), [3, 4, 5]) + powers(("keys",), [3, 4]))
both = kept["queries", "keys"]
left_by_each = both[4:] / both[3:-1]
assert (left_by_each > 0.15).all() and (left_by_each < 0.28).all(), "about a fifth"
assert 0.02 < kept["queries",][3] < 0.04

# %% [raw] slide
# ## Why so steep? Three small differences, multiplied
# Queries, keys and values become alike together: each layer *cubes* the share that is left.
#
# > **Guess first.** Queries from the first layer's input leave 0.03 after layer 3. What is left after layer 4?
#
# . . .
# {figure}

# %% [markdown]
# Suppose that the queries stay different, or the keys. Once the share is small, from layer 3 or 4 on, each layer about
# *squares* it. If both stay different, only the values become alike, and from layer 3 on each layer leaves about a
# fifth of the share. In ordinary attention all three become alike together, so the share falls *doubly exponentially*
# with depth. Dong, Cordonnier and Loukas ([-@dong2021]) prove this for attention alone, if the weight *matrices* are
# not too large. In their bound, the differences at the input are raised to the power $3^L$ after $L$ layers, and
# multiplied by a factor. Sharper scores only delay the collapse: even scores 64 times as large leave nothing by layer
# 12.
#
# How general is this? With well-chosen value matrices a layer norm *can* prevent the collapse (Wu et al.,
# [-@wu2024]). So the result is about random stacks like ours.
#
# <details><summary>More about layer norms, and about feed-forward networks</summary>
#
# For some other classes of value matrices, Wu et al. prove that the collapse still happens with a layer norm. They also
# report randomly initialised models in which a layer norm alone kept the differences from going to zero. In our stacks
# it did not.
#
# The abstract of Dong et al. says that skip connections (residual connections) and feed-forward networks stop the
# collapse. Their introduction is more careful: skip connections play a key role, and the networks can slow the collapse
# down. In our stacks without residual connections, the networks did not slow it down.
#
# </details>
#
# > **A common mistake: one remedy for two problems.** Averaging usually gets the blame, and the feed-forward network
# > is offered as the fix. But there are two problems. Attention is *linear* in the values that it averages: the
# > feed-forward network supplies the missing non-linearity, as in the restaurant. And all tokens become *alike*: the
# > residual connection prevents this, at initialisation.
#
# So the building block of a Transformer has two parts. Each has a residual connection around it and reads its input
# through a norm, as in `stack`:
#
# $$x \leftarrow x + \operatorname{attention}(\operatorname{norm}(x)), \qquad
# x \leftarrow x + \operatorname{FFN}(\operatorname{norm}(x))$$
#
# [Lecture @deep_stacks](@deep_stacks) shows what the same connection does for the gradients.

# %% [raw] slide
# ## A common mistake: one remedy for two problems
# | problem | what solves it |
# |---|---|
# | attention is **linear** in the values that it averages | the feed-forward network |
# | everything becomes **alike** | the residual connection |
#
# The network is *the same function at every position*: equal tokens stay equal.

# %% [markdown]
# ## Going further: what the network adds beside a residual connection
#
# With a residual connection, does the feed-forward network help to keep tokens apart? In the right panel of
# [@fig:rank-collapse] the green curve (the residual connection alone) and the purple one (with a ReLU network as well)
# cross. After three layers *less* is left with the network than without it, and after twelve layers *more* is left, in
# every seed.
#
# We suspect two effects. The ReLU is never negative, so its mean adds a vector that is common to all tokens, and the
# tokens become more alike. But the network also adds something different to each token, and the tokens become less
# alike. To separate the two effects, we replace the ReLU in the network. All replacements have the same size on
# average:
#
# * no ReLU, so that the network is *linear*;
# * the ReLU *minus its mean*;
# * random numbers, drawn separately *for each token*;
# * random numbers, drawn once *for all tokens*.
#
# Three rows of the next figure are curves of [@fig:rank-collapse]: no network (green there), the ReLU network (purple)
# and the linear network (light blue). *Where do the other three go?* Write down a number for each after twelve layers.

# %% tags=["hide-input"]
mean = 1 / math.sqrt(2 * math.pi)                     # of ReLU, for normal random numbers


def relu_minus_its_mean(z):
    return (z.relu() - mean) / math.sqrt(1 - 2 * mean**2)             # as large as z.relu()


def random_for_each_token(z):
    return torch.randn_like(z) / math.sqrt(2)         # as large as well


def random_for_all_tokens(z):
    return random_for_each_token(z[:1]).expand_as(z)


activations = {"no network": None, "ReLU network": torch.relu, "linear network": no_relu,
               "ReLU minus its mean": relu_minus_its_mean,
               "random, for each token": random_for_each_token,
               "random, for all tokens": random_for_all_tokens}
branches = {name: torch.tensor([stack(activation, True, seed)[0] for seed in range(5)])
            for name, activation in activations.items()}                  # (5, 13) each
figures.shares_by_branch(branches, after=(3, 12))
#| caption: A second branch keeps tokens apart if it adds different vectors. A dot per seed;
#|   dotted: the mean without a network.
#| label: branches

# %% tags=["hide-input"]
for name, run in branches.items():
    print(f"{name:>22}", *[f"  after {i} layers {run[:, i].min():.2f} … {run[:, i].max():.2f}"
                           for i in (3, 12)])
none, relu = branches["no network"], branches["ReLU network"]             # (5, 13) each
assert (relu < none)[:, 1:4].all() and (relu > none)[:, 12].all(), "the curves cross"
each, all_alike = branches["random, for each token"], branches["random, for all tokens"]
for name in ("linear network", "ReLU minus its mean"):
    assert (branches[name] > relu)[:, 1:].all() and branches[name][:, 12].min() > 0.8
    assert (branches[name][:, 3] > none[:, 3] - 0.01).all()
    assert (each[:, 12] > branches[name][:, 12]).all()
for run in branches.values():
    assert run is all_alike or (all_alike < run)[:, [3, 12]].all()

# %% [raw] slide
# ## What a second branch adds: common to all tokens, or different
# > **Guess first.** Random numbers in place of the ReLU, separate for each token or the same for all: which leaves more?
#
# . . .
# {figure}

# %% [markdown]
# The figure agrees with both suspected effects.
#
# * **A vector common to all tokens makes them alike.** The same random numbers for all tokens leave the least. If
#   the ReLU or only its mean is removed, at least as much is left as without a network, after three layers and after
#   twelve.
# * **Vectors that differ between tokens keep them apart.** Random numbers for each token leave the most. So a branch
#   need not *compute* anything to have this effect.
# * **The ReLU network does both.** The common vector does its damage in the first layers. The vectors that differ pay
#   off later, once the stack without a network has lost more.

# %% [markdown]
# ## Autoregressive language models and the future
#
# A language model predicts each token from the tokens before it, and writes by reading its own output: it is
# **autoregressive**. A recurrent network reads from left to right, so it cannot look ahead. Self-attention gives every
# token access to every other token, including the one that it has to predict.
#
# What happens if nothing forbids this? Our texts are the numbers from "zero" to "nine hundred and ninety-nine". A token
# is a letter here, and a full stop marks the beginning and the end of a text.

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
# argument. Some have a mask that lets position $i$ attend only to positions $j \le i$. The others have no mask. No
# model has a padding mask (a later section shows which models need one), and the loss ignores padding. The layers are
# the package's, with the parts of the first half and four heads ([lecture @many_heads](@many_heads)). Their class is
# called `Encoder`; with a causal mask the same stack is a **decoder-only** language model.

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
# How small can the loss become? All thousand numbers are equally likely, and an *honest* model, one that does not see
# the answer, cannot know which one is coming. The losses of a number's letters add up to $-\ln$ of the probability that
# the model gives to the whole number, because the probabilities of its letters multiply. Averaged over all numbers,
# this sum is at least $\ln 1000 \approx 6.9$ nats. Divide it by the average number of letters, 25.5 with the final full
# stop, and you get 0.271 nats, the **entropy** per letter. No honest model can have a lower loss on average.
#
# *Guess two numbers before you train:* where does the loss end with the mask, and where does it end without one?

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
assert round(least, 3) == 0.271 and round(math.log(1000) / least, 1) == 25.5

# %% [raw] slide
# ## An impossible loss
# {figure}
#
# > **Guess first.** Now they write. Of a hundred texts, how many are numbers?

# %% [markdown]
# With the mask, the losses end a little above the least possible. The models without a mask have an *impossible* loss:
# no honest prediction can be that good. They have read the answers, which are among their inputs.
#
# Now all six models write, letter by letter. While they write, the next letter does not exist yet. *Guess:* of a
# hundred texts, how many are numbers, with the mask and without?

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
# Most of what the models with a mask write is a number, and the rest comes close, such as a misspelt number. The models
# without a mask write rubbish or nothing at all, because while they write there is nothing to their right to read.
#
# How do they read the answers? The simplest way is to copy the next letter. A model that copies can also "predict"
# random letters. *Guess* four numbers, without a mask and with it: how often are the *first* letters of all thousand
# numbers right, and how often are random letters right?

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
# No honest model can know a first letter in advance. The best guess is the most common one, and with the mask no model
# does better. Without a mask every first letter is right, so these models do read ahead. But they get few of the random
# letters right, although a model that copies would get all of them right. So they do not simply copy the next letter.
# How they read does not matter here. While they write, everything on the right that they used is missing, the answers
# and the padding alike.
#
# Which measurement would have shown the fault? The training loss only looks splendid. Does the loss on unseen texts
# show the fault? *Guess:* where does it end, if we train on 800 of the numbers and measure on the other 200?

# %% tags=["hide-input"]
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
# The loss on unseen texts does not show the fault, because the answers are among the inputs of unseen texts as well.
# Nothing crashes. Until the model writes, the only warning is a number that is too good. For real text even this
# warning is weak, because the entropy of real text is not known exactly.
#
# > **Check yourself.** The loss with the mask is the *average* over letters. Which letters of "four hundred and
# > eighty-one" cost something, and which next to nothing?
# > <details><summary>Answer</summary>The letters that decide the number cost something: the f (which digit), the o
# > (four or five: the f leaves both open), the first letters of eighty and of one. A few letters cost a little, because
# > other numbers begin in the same way: the u (forty), the space after four (fourteen), the i (eleven), the y (eight,
# > eighteen) and the hyphen (eighty may be the end). The rest costs next to nothing, even the space after "hundred",
# > because 99 of 100 numbers go on there. In all it comes to ln 1000.</details>
#
# ## The causal mask: scores of −∞
#
# In [lecture @order](@order) a causal mask was given to you. Here is what it does and how it is written. The direct way
# to hide the future is to give each query only the keys that exist. At step $i$ only token $i$ asks, and only the
# tokens $1, \dots, i$ answer:

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
# > Each step has one query, the query of the newest token. So a model that writes keeps the keys and values of earlier
# > steps in a **KV cache** ([lecture @many_heads](@many_heads)). It does not keep the queries.
#
# A model that is *writing* has no choice, because token $i + 1$ does not exist before the model has chosen it. In
# training the whole text is there. So we compute all scores at once, and forbid some. A forbidden weight must be
# exactly zero, so its score must be the one "number" whose exponential is zero, −∞. This is **masked** or **causal
# self-attention**:
#
# $$e_{ij} = \begin{cases} q_i \cdot k_j / \sqrt{d_k} & j \le i\\ -\infty & j > i \end{cases} \qquad\quad
# \alpha_{ij} = \operatorname{softmax}_j(e_{ij})$$ (eq:causal)
#
# There are two ways to write the mask. A **boolean mask** says for each pair whether the query may attend to the key.
# An **additive mask** holds 0 and −∞ and is added to the scores.
#
# > **A common mistake: True means the opposite.** Torch has two conventions for a boolean mask:
# >
# > * `F.scaled_dot_product_attention(…, attn_mask=mask)`: True means "may attend", as in this course.
# > * `nn.MultiheadAttention` and `nn.TransformerEncoder`: True means "may *not* attend".
#
# The next cell uses the additive mask; in the assignment you write the boolean one. *Guess:* what is the first row of
# weights?

# %%
above = torch.full((n, n), -torch.inf).triu(1)        # (4, 4)  −∞ where j > i, 0 elsewhere
weights = (Q @ K.mT / math.sqrt(d_k) + above).softmax(dim=-1)             # (4, 4)
figures.masked_scores(Q @ K.mT / math.sqrt(d_k), causal_mask(n), words)
print("all at once is what it was one by one:", torch.allclose(weights @ V, slow, atol=1e-6))
#| caption: Causal mask: scores and weights (rounded), with the forbidden cells hatched.
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
# One matrix product gives the same numbers as four steps. A low score such as −2.49 is *allowed* and gets its small
# weight; a forbidden cell, hatched, gets exactly 0. Each row still sums to one, since a forbidden score adds nothing to
# the denominator. The first token sees only itself and gives itself all the weight.
#
# > **A common mistake: $j < i$ allowed, $j \ge i$ forbidden.** Then a token may not attend to itself, and the first one
# > may attend to nothing. (Some texts print "$-\infty$ where $i > i$", which forbids nothing.) The first row is then
# > −∞ throughout, and softmax turns it into NaN:

# %%
itself_too = torch.full((n, n), -torch.inf).triu(0)   # (4, 4)  −∞ where j ≥ i
printed = (Q @ K.mT / math.sqrt(d_k) + itself_too).softmax(dim=-1)        # (4, 4)
print("its first row:", printed[0].tolist())

# %% [markdown]
# > **Check yourself.** Why may position $i$ attend to itself at all? Is that not a leak?
# > <details><summary>Answer</summary>At position i the model has read token i, and must predict token i + 1. Its own
# > token is no secret. The secret stands one place further to the right, because the targets are the inputs shifted by
# > one.</details>
#
# **Now you:** [a06](@masking/assignment), exercise 2: write one mask that serves all queries at once and the newest
# query alone.
#
# ## Testing for leaks: which output depends on which input?
#
# It is easy to get a mask wrong by one position, and then the loss only looks better. So we want to *test* a mask. The
# gradient can tell: if a gradient reaches input $j$ from output $i$, the output depends on the input. For $n$ positions
# the sizes of these gradients make a matrix, and an honest model leaves it empty above the diagonal. Here is the
# detector:

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
# over all positions leaks in the same way. A norm over the features of one position ([lecture
# @deep_stacks](@deep_stacks)) cannot.
#
# > **A common mistake: "masking sets attention weights to 0".** Forbidden weights must end as 0, but setting them to 0
# > after the softmax is the wrong way. [Lecture @cross_attention](@cross_attention) showed that rows then no longer sum
# > to one. Here the harm is greater: the future leaks. Each allowed weight is $\exp(e_{ij})$ divided by a sum over *all*
# > exponentials, including the forbidden ones. So every allowed weight depends on what is coming.
#
# Can a model leak without a gradient? The next suspect adds to each token the share of positive numbers in the whole
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
# test does what we did with `other_end`: change the future, and see whether the past has moved. This test can prove a
# leak as well, but not the absence of leaks. So try many changes, large ones among them.
#
# **Now you:** [a06](@masking/assignment), exercise 3. You write such a test, and it must catch well-hidden leaks.
#
# ## Teacher forcing: one pass is all steps
#
# Back to the trained models. In training they answered all positions of a text in one pass, and every position got the
# true beginning, whatever the model itself would have written. This is **teacher forcing** ([@williams1989]), which you
# know from [lecture @cross_attention](@cross_attention). While it writes, a model answers one position after the other.
# Does one pass ask the same questions as writing step by step?

# %%
figures.teacher_forcing(["<start>", "the", "chef", "who", "ran"])
#| caption: Teacher forcing: all positions of a sentence are trained in one pass. No allowed
#|   path goes to the left on its way up.
#| label: teacher-forcing

# %% [raw] slide
# ## Teacher forcing: one pass is all steps
# {figure}

# %% [markdown]
# Each upper dot is one question: "given these words, what comes next?" Thanks to the mask no path reaches it from the
# right, through any number of layers. So if everything to the right is cut off, nothing changes. *Guess:* how much
# longer does it take to ask the questions one by one?

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
# One pass gives the same logits up to rounding, for a fraction of the work. Step by step takes 32 passes, each over
# about half of the text: 16.5 times as many tokens in all. Compare the printed times. A KV cache saves most of
# this work, but the 32 passes must still follow each other. For the model without a mask the questions are
# *not* the same, so this comparison is one more leak test.
#
# Thanks to the mask, one pass through a text of $n$ tokens gives $n$ losses and their gradients. A recurrent network
# can be trained with teacher forcing, too, but it must walk along the text. This is a large part of the reason why
# Transformers could be trained on so much text.
#
# Teacher forcing has a price. In training a model sees only true beginnings. When it writes, it reads its own text with
# all its mistakes, and it was never trained on such beginnings. This difference is called **exposure bias**
# ([@ranzato2016]); [lecture @writing](@writing) asks how much harm it does.
#
# ## Padding masks, and both together
#
# Why would a model need a second mask? A batch is padded to one length, and no token should attend to padding ([lecture
# @cross_attention](@cross_attention)). The padding mask depends on the sentence and is the same for all queries. The
# causal mask depends on the position and is the same for all sentences. A pair of positions must be allowed by both
# masks, so *and* combines them. Broadcasting does the rest, if the axes are in their places:

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
# Rows of padding are pale, because their outputs are not used. In `is_token[:, None, :]` the axis of length one is the
# axis of the queries, so the mask forbids *columns*. Put this axis last, `[:, :, None]`, and the mask forbids the
# *rows* of padding instead. Every token can then still attend to padding, and nothing crashes.
#
# A decoder has a causal mask anyway. Suppose that the padding is at the end, and that the padding mask is forgotten.
# *Guess:* which outputs change?

# %%
torch.manual_seed(0)
x = torch.randn(2, 5, 8)                              # (batch, n, d)
with_padding, _ = attend(x, x, x, both)               # (2, 5, 8)
without, _ = attend(x, x, x, causal_mask(5))          # (2, 5, 8)
moved = (with_padding - without).abs().amax(dim=-1)   # (2, 5)
print("the short sentence moves by", [round(m, 2) for m in moved[1].tolist()])
assert (moved[is_token] == 0).all() and (moved[~is_token] > 0.01).all()

# %% [raw] slide
# ## Someone forgets the padding mask
# > **Guess first.** In a decoder, with padding at the end, which outputs change?
#
# . . .
# {print}
#
# Only outputs that nobody uses: padding at the end lies in the future. An encoder does need its mask.

# %% [markdown]
# Only outputs of padding change, and they are not used: padding at the end lies in the future of all tokens. So a
# causal language model with padding at the end needs no padding mask. An encoder does need one, because its
# **bidirectional self-attention** would see the padding. Where a decoder attends to an encoder ([lecture
# @cross_attention](@cross_attention)), the padding of the source must be masked as well.
#
# Padding matters in two more places. The *loss* must ignore it: `ignore_index=-1` did this above. And with padding in
# *front*, *positions* must be counted from the first token of each text. (For relative encodings such as RoPE a common
# shift changes nothing.)
#
# **Now you:** [a06](@masking/assignment), exercise 4: write a mask for padding behind the tokens, and in front of them.
#
# ## Masks in use: causal, prefix, packed, window
#
# Which other masks will you meet? Most of them are made of a few simple ones. Here are eight. *Cover the titles with
# your hand and say what each mask is for.*

# %% tags=["hide-input"]
n = 8
place = torch.arange(n)
plain, padded = [*"12345678"], [*"123456", "pad", "pad"]
prefix = ["p1", "p2", "p3", *"45678"]
documents = ["a1", "a2", "a3", "b1", "b2", "c1", "c2", "c3"]
source = ["s1", "s2", "s3", "s4", "s5", "s6", "pad", "pad"]
target = ["t1", "t2", "t3", "t4", "t5"]
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
#|   is not used.
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
# Without the mask for packed documents, each document also reads the documents before it in the row.
# Nothing leaks from the future, but Zhao et al. ([-@zhao2024]) measured a loss of quality. (For Llama 3 the mask
# mattered little in standard pre-training and much for very long texts, [@grattafiori2024, section 3.2].)
#
# </details>
#
# Three facts about masks:
#
# * **A mask need not be square.** Cross-attention has $n_\text{target}$ rows and $n_\text{source}$ columns.
# * **A mask by itself saves no work.** The forbidden scores are computed and thrown away, unless the code skips them
#   ([lecture @cheap_attention](@cheap_attention)).
# * **A mask describes *one* layer.** Under a window of three, position 8 reads 6, which has read 4 one layer below.
#   With every layer the reach grows by two. Nothing ever crosses from one block to another, so models with blocks also
#   have layers of another kind.
#
# BERT's **masked language modelling** is something else, in spite of its name. It replaces some *input tokens* by a
# token `[MASK]`, which the model must fill in ([lecture @transformer](@transformer)). Its attention mask stays
# bidirectional.
#
# ## Applying a mask: −∞, −1e9 and NaN
#
# What can go wrong when a mask is applied? When a program continues a batch of prompts, it usually pads them in
# *front*, so that all prompts end at the same place. In the next figure you choose a mask and a way of applying it.
# Hatched cells are forbidden, framed cells have weight where they must not, and orange cells are NaN.
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

# %% tags=["hide-input"]
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
# 1. *j < i*, *causal and padding*, *tokens to tokens*: the masks with a row in which nothing is allowed. In *causal and
#    padding* and *tokens to tokens* these are the rows of padding; in *j < i* it is the first row. Such a row is all
#    −∞. In the formula of softmax it is 0 divided by 0. A library first subtracts the row's largest score, which gives
#    NaN already: −∞ − (−∞).
# 2. Uniform weights. If every score in the row is −1e9, all scores are equal, and every position gets a fifth, padding
#    and future included. This is a leak, if the output of such a row is used. (Some code *adds* −1e9 to the scores.
#    Even then the weights are uniform: at that size the numbers of float32 are 64 apart, so the differences between the
#    scores are lost.)
# 3. Only `masked_softmax`: such a row is all zeros. You find out how in exercise 5. (*Weights · mask* leaves rows that
#    sum to less than one, and leaks, as above.)
#
# </details>

# %% tags=["hide-input"]
example = masks["causal and padding"]                 # (5, 5)
figures.mask_ways(example, {way: weigh(way, example) for way in ways}, chef)
#| caption: One mask, causal and padding, applied in four ways: NaN; weight where none is
#|   allowed (framed); sums below one; and as it should be.
#| label: four-ways

# %% [markdown]
# Does it matter if only rows of padding are NaN? In the first panel of [@fig:four-ways] two rows are NaN, both of them
# padding, and no token may attend to padding. *Guess:* how many more layers does it take until the tokens themselves
# are NaN?

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
# It takes one more layer. The tokens give padding the weight zero, and zero times NaN is NaN. **A mask cannot keep out
# what is not a number.** So give zeros to a row with nothing to attend to.
#
# Can the zeros be put in later? Or is it enough that the loss ignores such rows? Below, the loss reads only the three
# rows of tokens, and the mask is applied in four ways:
#
# * −∞ is *added* to the forbidden scores, and nothing is done about the two rows of NaN;
# * −∞ is added, and after the softmax zeros *replace* the NaN;
# * −∞ *replaces* the forbidden scores, and after the softmax zeros replace the NaN;
# * `masked_softmax`.
#
# *Guess:* for which of the four is the gradient of $W$, a matrix that all tokens share, finite?

# %% tags=["hide-input"]
W = (torch.randn(8, 8, generator=torch.Generator().manual_seed(0)) / 8).requires_grad_()
shares_of_nan = {}
for way in ("−∞ added", "−∞ added, zeros later", "−∞ replaces, zeros later", "masked_softmax"):
    raw = values @ W @ values.mT                      # (5, 5)  scores
    if way == "masked_softmax":
        weights = masked_softmax(raw, mask)
    elif "added" in way:
        weights = (raw + torch.where(mask, 0.0, -torch.inf)).softmax(dim=-1)      # rows of NaN
    else:
        weights = torch.where(mask, raw, -torch.inf).softmax(dim=-1)              # as well
    if "zeros later" in way:
        weights = weights.nan_to_num()
    loss = (weights @ values)[2:].square().mean()     # of the three tokens, without padding
    (gradient,) = torch.autograd.grad(loss, W)        # (8, 8)
    share = gradient.isnan().float().mean().item()
    shares_of_nan[way] = share
    print(f"{way:>24}: loss {loss.item():.2f}, NaN in {share:.0%} of the gradient of W")

# %% tags=["hide-input"]
assert gradient.abs().max() > 0 and list(shares_of_nan.values()) == [1, 1, 0, 0]

# %% [raw] slide
# ## NaN in the backward pass
# > **Guess first.** The loss leaves padding out and is finite. Is the gradient?
#
# . . .
# {print}
# Zero times NaN is NaN again: a finite loss does not mean a finite gradient. Let −∞ *replace* the scores.

# %% [markdown]
# All four losses are the same, but only the last two gradients are finite. In the backward pass, softmax multiplies the
# gradient that arrives by the row's weights. For a row of padding that gradient is zero, but the weights are NaN, and
# zero times NaN is NaN again. One step of the optimizer then makes all of $W$ NaN. **A finite loss does not mean a
# finite gradient.**
#
# Two things avoid the NaN. `masked_softmax` never computes it. Or −∞ *replaces* the score instead of being added: then
# the result does not depend on that score, no gradient passes back to it, and zeros may be put in later. With an added
# −∞ later is too late. Exercise 5 tests the gradient of your function, too.
#
# What about the habit of writing −1e9? For years large models computed in **float16**, numbers of 16 bits. *Guess:*
# does −1e9 fit?

# %% tags=["hide-input"]
half = scores.half()                                  # (5, 5)
try:
    half.masked_fill(~mask, -1e9)
except RuntimeError as error:
    print("RuntimeError:", str(error).splitlines()[0])
for dtype in (torch.float16, torch.bfloat16, torch.float32):
    print("most negative finite", dtype, "is", torch.finfo(dtype).min)
print("torch.where in float16, row 0, where nothing is allowed:",
      torch.where(mask, half, -1e9).softmax(dim=-1)[0].tolist())
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
# | one layer | $x + \operatorname{attention}(\operatorname{norm}(x))$, then $x + \operatorname{FFN}(\operatorname{norm}(x))$ | $(n, d)$ |
# | both masks | `padding & causal` | $(\text{batch}, n, n)$ |
# | test for leaks | change the inputs after $i$, in many ways: no output up to $i$ may move | |
#
# **Now do** assignment a@masking. **Next:** lecture @many_heads.

# %% [markdown]
# It does not fit. The most negative finite float16 is −65504, and `masked_fill` refuses −1e9. `torch.where` does not
# refuse, and neither does an addition or a cast: they silently turn −1e9 into −∞, and a row with nothing allowed
# becomes NaN again. So any fill must fit the scores' own type, as `torch.finfo(scores.dtype).min` does. **bfloat16**,
# the other 16-bit type, has the range of float32 and fewer digits, so −1e9 fits there. The last line confirms answer 2:
# if a score of 3 is added to −1e9, the 3 is lost.
#
# **Now you:** [a06](@masking/assignment), exercise 5: scores, mask, softmax and average together.
#
# ## In short
#
# | | | shape |
# |---|---|---|
# | one head, $L$ layers | $A_L \cdots A_1\; X\; W_1 \cdots W_L$: weights on the left, matrices on the right | $(n, d)$ |
# | feed-forward network | $\max(0,\ x W_1 + b_1)\,W_2 + b_2$, at every position | $(d_\text{ff})$ inside, $(d)$ out |
# | one layer | $x \leftarrow x + \operatorname{attention}(\operatorname{norm}(x))$, then $x \leftarrow x + \operatorname{FFN}(\operatorname{norm}(x))$ | $(n, d)$ |
# | causal self-attention | $e_{ij} = -\infty$ where $j > i$, then softmax | $(n, n)$ |
# | both masks | `padding & causal`: $(\text{batch}, 1, n)$ and $(n, n)$ | $(\text{batch}, n, n)$ |
# | test for leaks | change the inputs after $i$, in many ways: no output up to $i$ may move | |
#
# Attention moves information between tokens. It is linear in the values, and computes through its weights alone. The
# position-wise feed-forward network computes with what each token has received, and needs an activation function to be
# more than a linear map. At initialisation the residual connection prevents rank collapse; the network alone does not.
# A causal mask makes self-attention autoregressive, so that one pass trains all positions of a text. A leak makes the
# loss splendid and the model useless, so test for it. Forbid *scores*, and give zeros to rows with nothing allowed.
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
# > 1. All feed-forward networks of a Transformer lose their activation function. What does each network become?
# > 2. A program adds two additive masks, −1e9 for the future and −1e9 for padding. In one row no position is allowed:
# >    some are forbidden once, the others twice. Where does the weight of this row go?
# > 3. A boolean mask in `nn.MultiheadAttention` is True where attending is *forbidden*, in
# >    `scaled_dot_product_attention` where it is allowed. You mix them up in a decoder. What does each position see?
# >    And the last position?
# > 4. The six pots again, under a causal mask: pot A takes from A alone, pot B from A and B, pot C from A, B and C, and
# >    so on. Which colour do they have in the end?
# > <details><summary>Answers</summary>
# >
# > 1. A linear map of rank at most d_model (with a bias). One matrix could replace it: its hidden layer gains nothing.
# > 2. To the positions that are forbidden once: they score −1e9, the others −2e9. If they are in the future, the model
# >    reads the future.
# > 3. Each position sees its future alone. The last position has no future, so it has nothing to attend to. If this
# >    gives NaN, you notice. Today's `scaled_dot_product_attention` gives zeros there, and then only a loss that is too
# >    good shows the mistake.
# > 4. The colour of pot A. Pot A never changes. If every pot takes at least a share ε from A in every round, then the largest share of
# >    other paints in any pot shrinks to at most 1 − ε of itself. Under a causal mask attention alone collapses,
# >    too, to the first token.</details>
#
# **Now do** [assignment @masking](@masking/assignment) (about two hours): five exercises, two questions in
# words, and an extension. **Next:** [lecture @many_heads](@many_heads), several attentions side by side.
#
# **Further reading.** [+@vaswani2017]: section 3.2.3, third point, is the causal mask in one sentence, section 3.3 the
# feed-forward network. [+@dong2021]. [+@geva2021]. [+@hendrycks2016]. [+@williams1989]; [+@ranzato2016].
# [+@raffel2020]: figure 3 draws the fully visible, the causal and the prefix mask. [+@zhao2024]. Masks of models:
# [+@jiang2023]; [+@gemma2024]; [+@grattafiori2024], section 3.2.
