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
# *About 50 minutes, including less than a minute of computing, or well over an hour if you stop at every guess. The end
# of "Rank collapse" is a good place for a break. You need self-attention with its matrix of attention weights ([lecture
# @self_attention](@self_attention)), and the idea of a language model, which predicts the next token from the tokens
# before it ([lecture @bottleneck](@bottleneck)).*
#
# After this lecture you can
#
# * show what a stack of self-attention layers with one head can never do;
# * write the **position-wise feed-forward network**, and say why it needs an **activation function**;
# * explain **rank collapse**, and what slows it down at initialisation;
# * write a **causal mask** and a **padding mask**, combine them, and read other masks;
# * detect a leak of the future without training the model;
# * keep NaN out of masked attention and its gradients;
# * explain how one **autoregressive** pass trains all positions of a text (**teacher forcing**).
#
# [Lecture @self_attention](@self_attention) ended with three things that self-attention lacks, and [lecture
# @order](@order) added the first, order. In the first half of this lecture we add the second: each token computes
# something other than an average. In the second half we add the third: we hide the future from a language model.
#
# ## Repeated averaging: six pots of paint
#
# Six pots hold paint of six different colours. In every round we empty all of them and refill each one with its own
# mixture of the six paints. What do the pots hold after ten rounds? Attention raises the same question: each layer
# gives every token a weighted average of values, and the next layer averages those averages.

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
from attncourse.data.number_words import say, spelled_numbers
from attncourse.layers import FeedForward, layer_norm
from attncourse.transformer import Encoder, TransformerConfig

torch.set_num_threads(1)  # models as small as these gain nothing from a second thread

# %% [raw] slide
# ## Six pots of paint
# In every round each pot is filled again with a mixture of what was in the six: a weighted average, and then averages of averages.
#
# > **Guess first.** Can a pot become redder than the reddest was in the round before? Do sharper weights stop the mixing?

# %% [markdown]
# We describe a colour by two numbers, its red and its blue. The recipes of one round form a matrix of attention
# weights, one row for each pot. A softmax makes it from random scores. The *sharpness* multiplies these scores, so that
# at high sharpness most of a pot's new paint comes from a single pot.
#
# *Guess first,* yes or no: can a pot become redder than the reddest pot of the round before? Does high sharpness stop
# the mixing?

# %%
def mix(sharpness, rounds=10, seed=8):
    torch.manual_seed(seed)
    pots = [torch.rand(6, 2)]                         # (6, 2)  red and blue
    for _ in range(rounds):
        recipes = (sharpness * torch.randn(6, 6)).softmax(dim=-1)         # (6, 6)  weights
        pots.append(recipes @ pots[-1])               # (6, 2)  every pot is filled anew
    return pots

# %% tags=["hide-input"]
def after_mixing(sharpness, rounds):
    return figures.mixing_rounds(mix(sharpness), rounds, sharpness)


viz.explore(
    after_mixing, rounds=range(11), sharpness=[1.0, 2.0, 5.0],
    start={"rounds": 2, "sharpness": 5.0}, still=[{"rounds": 2}, {"rounds": 10}],
)
#| caption: Left: the pots, round by round. Right: each pot is a point. Blue: the shape that the
#|   six span now. Grey: their shapes in earlier rounds.
#| label: averaging

# %% [raw] slide
# ## Mix
# {figure}

# %% tags=["hide-input"]
angles = torch.linspace(0, 2 * math.pi, 100)          # (100,)
directions = torch.stack([angles.cos(), angles.sin()])                    # (2, 100)


def spread(colours):                                  # of red or of blue, whichever is larger
    return colours.std(dim=0).max().item()


print("how much of the spread is left after ten rounds: the least and the most of ten seeds")
for sharpness in (1.0, 2.0, 5.0):
    left = []
    for seed in range(10):
        pots = mix(sharpness, rounds=100, seed=seed)
        reach = torch.stack([(colours @ directions).amax(dim=0) for colours in pots])
        assert (reach.diff(dim=0) < 1e-6).all(), "no pot goes further than some pot did before"
        assert spread(pots[100]) < 1e-3 * spread(pots[0]), "all become alike"
        left.append(spread(pots[10]) / spread(pots[0]))
    print(f"sharpness {sharpness:.0f}: {100 * min(left):.2g} % to {100 * max(left):.2g} %")
assert 0.15 < max(left) < 0.185, "18 % at most"

# %% [raw] slide
# ## Stacked self-attention with one head
# $$A_3\bigl(A_2\,(A_1 X W_1)\,W_2\bigr)W_3 \;=\; (A_3 A_2 A_1)\; X \;(W_1 W_2 W_3)$$
#
# - Weights mix **tokens**, on the left. Matrices mix **features**, on the right.
# - Every output lies in the **convex hull** of the rows of $X W_1 W_2 W_3$.
# - With several heads a layer is a sum, and the factors cannot be grouped.

# %% [markdown] teaches="nothing but averages: why a feed-forward network"
# **No pot can become redder than the reddest was, and sharpness only slows the mixing down.** A weighted average lies
# between the things that it averages. In the plane of red and blue, that means inside the shape that they span, their
# **convex hull**. So each shape in the figure lies inside that of the round before.
#
# The shapes also shrink, and in the end all six pots hold the same colour. A softmax takes some paint from *every* pot.
# (This alone is not enough: shares that fall towards zero fast enough would stop the mixing. But here every round draws
# its recipes in the same way, so again and again all the shares lie above one fixed number.) The *spread* is the
# standard deviation of a colour. At sharpness 5, up to 18 % of it is left after ten rounds, as the output below the
# figure shows, and less than a thousandth after a hundred.
#
# ## Stacked self-attention with one head
#
# A real layer first multiplies each token by a value matrix, and a matrix can move points out of the hull. Does this
# let the tokens escape?
#
# Take three layers with one head each, and let the rows of $X$ be the tokens. The attention weights $A_1, A_2, A_3$
# stand on its left, because they mix *tokens*, and the value matrices $W_1, W_2, W_3$ on its right, because they mix
# *features*. *Write down the output with pencil and paper, and guess:* can one layer give the same output as all three?

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
# **One layer with the weights $A_3 A_2 A_1$ gives the same output, because the factors of each kind can be grouped:**
#
# $$A_3\bigl(A_2\,(A_1 X W_1)\,W_2\bigr)W_3 \;=\; (A_3 A_2 A_1)\; X \;(W_1 W_2 W_3)$$
#
# (This layer is *given* the weights. In general, a single layer could not compute them from $X$.) The product of the
# $A$ is again a matrix of attention weights: its entries are positive, and its rows sum to one. The product of the $W$
# is a single matrix, so the whole stack moves the hull just once. Inside the moved hull the tokens draw together as the
# pots did, if the weights of all layers stay above one fixed number.
#
# However deep the stack is, every output is a weighted average of the rows of $X W_1 W_2 \cdots W_L$. For example, no
# such stack returns $x_1 - x_2$ for every $X$. When all tokens equal $x$, the stack returns $x W_1 \cdots W_L$, but it
# should return 0. So the product of the $W$ is 0, and then every output is 0.
#
# With several heads a layer is a sum, such as $A X W + A' X W'$, whose factors cannot be grouped. It can subtract: with
# $W' = -W$, one head on token 1 and the other on token 2, the output is nearly $(x_1 - x_2)W$. But the values are still
# only multiplied by weights and matrices, and added.
#
# > **A common mistake: "without non-linearities the whole stack is linear".** The *values* meet nothing but averages
# > and matrices, but the *weights* come out of a softmax of the input, so the stack is not a linear function of $X$.
#
# ## Exclusive or (XOR): what a linear map cannot compute
#
# What can averages and matrices not compute? Take a sentence about a restaurant, and suppose that attention has already
# brought two features into the vector of one token: whether something is *praised*, and whether the sentence has a
# *not*. From this one vector, the next layer must compute the verdict.

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
# If the token attends only to itself, the layer is just a *matrix*. Can a matrix compute the verdict? *Guess first:*
# which four numbers does the best linear map give, the one with the smallest sum of squared errors? (It may add a
# constant.)

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
# **The best linear map answers "one half" to all four phrases.** Neither feature alone says anything about the verdict
# (with praise or without, one of two phrases is a reason to go), and a linear map can only add up the two. This problem
# is known as **exclusive or**, XOR. Ten layers do not help either, because the product of ten matrices is one matrix.
#
# So we need a function that is not linear, an **activation function**. A simple one is the **rectified linear unit** or
# **ReLU**, $\max(0, z)$, which keeps positive numbers and replaces all others by zero. *With pencil and paper, find two
# expressions of the form $\max(0, \dots)$ whose sum is the verdict.*

# %%
praised, negated = phrases[:, 0], phrases[:, 1]       # (4,) each
hidden_1 = (praised - negated).relu()                 # (4,)  "praise, and no not"
hidden_2 = (negated - praised).relu()                 # (4,)  "not, and no praise"
hidden = torch.stack([hidden_1, hidden_2], dim=1)     # (4, 2)
figures.folded_plane(phrases, hidden, verdict, ["good", "bad", "not good", "not bad"])
assert torch.equal(hidden_1 + hidden_2, verdict[:, 0])
#| caption: Two hidden units flatten the plane to p − n and bend it at 0 (grey L). Each line on
#|   the left lands on one point on the right, in the ring of its colour.
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
# - **The feed-forward network computes** with it, for each token by itself.

# %% [markdown] teaches="nothing but averages: why a feed-forward network"
# **Two ReLU units are enough.** On the left, the circles stand at opposite corners, so no line separates them from the
# squares. The **hidden layer**, the two units together, flattens the plane to a line, $p - n$ (praise minus not), and
# bends this line at 0 into the grey L on the right. Now *bad* and *not good* lie on one point, which the dashed line
# separates from the other two. We chose these units by hand, whereas a network learns its own.
#
# ## The position-wise feed-forward network (FFN)
#
# Where does a Transformer have such hidden units? In every layer, a small network follows the attention. It widens each
# vector from $d_\text{model}$ to $d_\text{ff}$ numbers, applies the activation function, and returns to the old width.
# Because it works on every position by itself, with the same matrices everywhere, it is called the **position-wise
# feed-forward network**.
#
# $$\operatorname{FFN}(x) = \max(0,\ x W_1 + b_1)\,W_2 + b_2 \qquad W_1\colon (d_\text{model}, d_\text{ff}), \quad
# W_2\colon (d_\text{ff}, d_\text{model})$$ (eq:feed-forward)

# %%
figures.position_wise(["the", "chef", "who", "ran"], d_model=16, d_ff=64)
#| caption: A position-wise feed-forward network, above an attention layer (orange): the same
#|   network for every token.
#| label: feed-forward

# %% [raw] slide
# ## Every position by itself, all positions alike
# {figure}
#
# > **Guess first.** One of seven tokens is replaced. How many outputs change after the network, and how many after attention?

# %% [markdown]
# Attention joins the columns of the figure, whereas the network stays within each of them. We replace one of seven
# tokens by another one. *Guess first:* how many of the seven outputs change after the network, and how many after
# attention?

# %%
torch.manual_seed(0)
network = FeedForward(d_model=16, d_ff=64)            # the package's
sentence = torch.randn(7, 16)                         # (n, d_model)
changed = sentence.clone()
changed[3] = torch.randn(16)                          # one token is replaced
pairs = {"the network": (network(sentence), network(changed)),
         "attention": [attend(x, x, x)[0] for x in (sentence, changed)]}
for part, (before, after) in pairs.items():           # (7, 16) each
    moved = int((before != after).any(dim=-1).sum())
    print(f"after {part}, {moved} of 7 outputs change")

# %% tags=["hide-input"]
assert [int((a != b).any(dim=-1).sum()) for a, b in pairs.values()] == [1, 7]

# %% [markdown]
# **Attention moves information between tokens. The feed-forward network computes with it, for each token by itself.**
# The division is not strict, because attention also computes, through its *weights* ([question 6 of
# a06](@masking/assignment)).
#
# What does each **hidden unit** contribute? It takes the dot product of the token with its column of $W_1$ and adds its
# bias. If the sum is above zero, the unit *fires*: it adds its row of $W_2$ to the output, in proportion to the sum.

# %%
token = torch.tensor([1.0, 0.5])                      # (d_model,)
W_1 = torch.tensor([[1.0, -1.0, 0.2], [0.6, 1.2, 0.8]])                   # (d_model, d_ff)
W_2 = torch.tensor([[0.5, 1.0], [-1.0, 0.5], [1.0, -0.5]])                # (d_ff, d_model)
figures.hidden_units(token, W_1, W_2)
#| caption: A feed-forward network as a memory of three hidden units (biases 0): two fire, and
#|   their values are added.
#| label: hidden-units

# %% [raw] slide
# ## Hidden units: a fixed memory of keys and values
# {figure}
#
# - A unit takes the dot product of the token with its column of $W_1$ (*key*). If it **fires**, it adds its row of $W_2$ (*value*).
# - Two thirds of a layer's parameters are here: $8d^2$ of $12d^2$.
#
# **Now you:** a@masking, exercise 1

# %% [markdown]
# **The network works like attention over a fixed memory, with ReLU in place of the softmax.** The token is the query.
# Geva et al. ([-@geva2021]) therefore call the columns of $W_1$ *keys* and the rows of $W_2$ *values*.
#
# **In a layer with one attention block, the network usually holds two thirds of the parameters or more.** By convention
# $d_\text{ff} = 4\,d_\text{model}$ (2048 and 512 in [@vaswani2017]), so its two matrices have $8\,d^2$ parameters. The
# four matrices of an attention block, for queries, keys, values and the output ([lecture @many_heads](@many_heads)),
# have $4\,d^2$. Many of today's models make those for keys and values smaller.
#
# <details><summary><b>Going further</b>: GELU and SiLU in place of the ReLU, and how many units fire</summary>
#
# Many of today's models replace the ReLU by a smooth function of nearly the same shape, **GELU** or **SiLU**; [lecture
# @transformer](@transformer) compares them with gated networks such as **SwiGLU**. GELU is $z\,\Phi(z)$, where $\Phi$
# is the standard normal distribution function. SiLU, also called Swish, is $z\,\sigma(z)$, where $\sigma$ is the
# logistic sigmoid ([@hendrycks2016] for both). In trained networks with ReLU often only a few units fire at a time: 3 %
# in a T5 model (Li et al., [-@li2023]).
#
# </details>
#
# > **Check yourself.** A sentence of a single token goes through ten layers of attention, with any number of heads and
# > no feed-forward networks. Write the output as a function of the input.
# > <details><summary>Answer</summary>With one head, the only weight is 1 in each layer, so the output is x W₁W₂…W₁₀, a
# > linear function. With several heads, each layer multiplies x by the sum of their matrices, which is also linear.
# > With a single token, the softmax has nothing to choose from.</details>
#
# **Now you:** [a06](@masking/assignment), exercise 1: write the network, and find the units that never fire.
#
# ## Rank collapse: what keeps tokens apart
#
# The network computes more than averages. Does it also stop the tokens from becoming alike as the pots did? To measure
# this, we subtract the mean of all token vectors from each. We divide the norm of what remains by the norm of the
# whole, and call the quotient the *relative spread*. It is 1 if the mean is zero, and 0 if all tokens are the same
# vector. A matrix of equal tokens has rank one, hence the name **rank collapse**; it is also called *oversmoothing*.
#
# We stack six layers with one head and random matrices, as at initialisation, and later a hundred. A `layer_norm`
# brings the vectors that each part reads to one length. The square roots keep the matrices from changing it much
# ([lecture @deep_stacks](@deep_stacks)). We compare four kinds of stack:
#
# * attention alone;
# * attention, followed by a feed-forward network;
# * attention with a **residual connection**: the layer *adds* its output to its input,
#   $x + \operatorname{attention}(x)$;
# * both, with a residual connection around each.
#
# *Guess first:* which addition keeps the tokens apart: the network, the residual connection, or either of them?

# %% [raw] slide
# ## Rank collapse: what keeps tokens apart?
# We measure the *relative spread*, the share of the token vectors that is not common to all. 0: all tokens are one vector.
#
# > **Guess first.** Six random layers. Draw four curves: attention alone; with a feed-forward network; with a **residual connection** $x + \operatorname{attention}(x)$; with both.

# %%
def relative_spread(H):
    common = H.mean(dim=0)                            # (d,)
    return ((H - common).norm() / H.norm()).item()


def stack(network, residual, seed, layers=6, n=32, d=64):
    torch.manual_seed(seed)
    H = torch.randn(n, d).double()                    # (n, d)
    states = [H]
    for _ in range(layers):
        W_Q, W_K, W_V = torch.randn(3, d, d).double() / math.sqrt(d)      # (d, d)
        W_1 = torch.randn(d, 4 * d).double() / math.sqrt(d)
        W_2 = torch.randn(4 * d, d).double() / math.sqrt(2 * d)
        x = layer_norm(H, eps=0)                      # all vectors at one size
        found, _ = attend(x @ W_Q, x @ W_K, x @ W_V)  # (n, d)
        H = H + found if residual else found
        if network:
            found = (layer_norm(H, eps=0) @ W_1).relu() @ W_2             # (n, d)
            H = H + found if residual else found
        states.append(H)
    return states                                     # after 0, 1, … layers


def spreads(stacks):                                  # a stack for each seed
    return torch.tensor([[relative_spread(H) for H in states] for states in stacks])

# %%
kinds = {"attention alone": (False, False), "with feed-forward network": (True, False),
         "with residual connection": (False, True), "with both": (True, True)}
runs = {kind: spreads([stack(*parts, seed) for seed in range(5)])
        for kind, parts in kinds.items()}             # (5, 7) each
deep = {kind: [stack(*kinds[kind], seed, layers=100) for seed in range(5)]
        for kind in ("with residual connection", "with both")}
late = {kind: spreads(stacks) for kind, stacks in deep.items()}           # (5, 101) each
figures.shares_not_common(runs, numbers=(2, 3, 4), late=late, label="relative spread")
#| caption: How different the tokens still are after each layer, in four kinds of stack. Thin
#|   lines: five seeds. Thick lines, with their numbers: geometric means.
#| label: rank-collapse

# %% tags=["hide-input"]
for kind in ("attention alone", "with feed-forward network"):
    assert runs[kind][:, 5].max() < 1e-12
for kind in ("with residual connection", "with both"):
    assert runs[kind][:, 6].min() > 0.55 and runs[kind][:, 6].max() < 0.8, "about 0.7"
typical = runs["attention alone"].log().mean(dim=0).exp()                 # (7,)
for layer, share in ((2, 0.2), (3, 0.004), (4, 4e-8)):
    assert 0.6 < typical[layer] / share < 1.5, layer
ends = {kind: run[:, -1] for kind, run in late.items()}                   # (5,) each
assert ends["with both"].min() > 0.22 and ends["with both"].max() < 0.38, "about 0.3"
alone = ends["with residual connection"]
assert alone.min() > 0.1 and alone.max() < 0.15, "about 0.12"
means = late["with residual connection"].log().mean(dim=0).exp()          # (101,)
assert 1.9 < means[25] / means[100] < 2.2, "it halves from layer 25 to layer 100"


print("norm of the tokens' differences from their mean: 100 layers multiply it by")
for kind, low, high in (("with residual connection", 1, 1.25), ("with both", 3.2, 4.8)):
    H = torch.stack([torch.stack(states) for states in deep[kind]])       # (5, 101, n, d)
    common = H.mean(dim=2, keepdim=True)              # (5, 101, 1, d)
    different = (H - common).norm(dim=(2, 3))         # (5, 101)
    times = different[:, 100] / different[:, 0]       # (5,)
    assert low < times.min() and times.max() < high, "as large as they were; about four times"
    print(f"{kind:>24}: {times.min():.1f} to {times.max():.1f} (five seeds)")
    if kind == "with residual connection":
        means = common.norm(dim=(2, 3))               # (5, 101)
        times = means[:, 100] / means[:, 25]          # (5,)
        assert 1.8 < times.log().mean().exp() < 2.3, "twice for four times as many layers"


def through_network(H):
    W_1 = torch.randn(64, 256).double() / 8
    W_2 = torch.randn(256, 64).double() / math.sqrt(128)
    return relative_spread((layer_norm(H, eps=0) @ W_1).relu() @ W_2)


torch.manual_seed(0)
unlike, common = torch.randn(32, 64).double(), torch.randn(64).double()
factors = [through_network(common + small * unlike) / relative_spread(common + small * unlike)
           for small in (1e-2, 1e-4, 1e-6)]
assert min(factors) > 0.8 and max(factors) < 1.25, "a small difference keeps its size"
beside = runs["with feed-forward network"].log().mean(dim=0).exp()        # (7,)
assert (beside[1:5] < typical[1:5]).all(), "the network hastens the fall of large differences"
fired = (layer_norm(unlike, eps=0) @ torch.randn(64, 256).double()).relu()
cosines = F.cosine_similarity(fired[:, None], fired, dim=-1)              # (32, 32)
assert abs((cosines.sum().item() - 32) / (32 * 31) - 1 / math.pi) < 0.03, "about 1/π"

# %% [raw] slide
# ## The residual connection keeps tokens apart
# {figure}

# %% [markdown]
# **The residual connection keeps the tokens apart for many layers; the feed-forward network alone does not.** By the
# fifth layer, attention alone has turned thirty-two tokens into one vector, and what is left is rounding. With a
# residual connection each pot keeps its own paint and only adds some, so that after six layers the relative spread is
# still about 0.7.
#
# This slows the fall but does not end it: after a hundred layers 0.12 is left. The tokens' *differences* from their
# mean do not shrink here, as the lines printed below the figure show. But each layer adds nearly the same vector to all
# tokens, and this common part grows.
#
# **Together with a residual connection the network does help in the end:** 0.29 is left. It adds something different to
# each token, so in a hundred layers the differences grow to about four times their size.
#
# The collapse hinders training: where all values are equal, every choice of weights gives the same average, so the
# gradients of $W_Q$ and $W_K$ vanish (Noci et al., [-@noci2022]).
#
# Why is the fall without residual connections so steep? Queries, keys and values all become alike. If the queries or
# the keys are alike, all tokens get the same weights. If the values are alike, even different weights give the same
# average. So the difference that a layer leaves is about the *product* of three small differences: **each layer roughly
# cubes the relative spread**. Dong et al. ([-@dong2021]) prove such a *doubly exponential* fall, if the weight matrices
# are not too large.
#
# Why can the network not stop the fall by itself? It is *the same function at every position*, so it cannot separate
# tokens that are equal. With random matrices it hardly magnifies a small difference, and it even reduces large ones, as
# the orange line shows. (The abstract of Dong et al. says that networks, too, stop the collapse. Their theorem says
# less: a network that magnifies differences *slows* it.)
#
# <details><summary><b>Going further</b>: a test of the product of three, and the growth of the common part</summary>
#
# In the figure, 0.004 is followed by 4 · 10⁻⁸, and 0.004³ is about 6 · 10⁻⁸. We can test the explanation further. If
# every layer makes its queries from the first layer's input, they stay different, and each layer should only *square* a
# small relative spread. It does: 0.0007 is followed by 4 · 10⁻⁷. If the keys stay different instead, 0.007 is followed
# by 10⁻⁵, a fifth of its square. If queries and keys both do, only the values become alike, and each layer leaves about
# a fifth of the relative spread. The numbers of the experiment are printed below this box.
#
# With a residual connection, the relative spread halves from layer 25 to layer 100. The norm of a sum of $L$ random
# vectors grows like $\sqrt L$, so four times as many layers double the common part, and the differences keep their
# size.
#
# Why does the network reduce large differences? After a ReLU no hidden number is negative, so the hidden vectors of two
# unrelated tokens have a cosine of about $1/\pi$ in place of 0.
#
# All this holds at random initialisation. With well-chosen value matrices a layer norm can prevent the collapse (Wu et
# al., [-@wu2024]).
#
# </details>

# %% tags=["hide-input"]
def stack_with_fixed(fixed, seed, layers=8, n=32, d=64):
    torch.manual_seed(seed)
    H = torch.randn(n, d).double()                    # (n, d)
    first = layer_norm(H, eps=0)                      # (n, d)  stays as different as it is
    found = [relative_spread(H)]
    for _ in range(layers):
        W_Q, W_K, W_V = torch.randn(3, d, d).double() / math.sqrt(d)      # (d, d)
        x = layer_norm(H, eps=0)
        query, key = (first if name in fixed else x for name in ("queries", "keys"))
        H, _ = attend(query @ W_Q, key @ W_K, x @ W_V)
        found.append(relative_spread(H))
    return found


def typical_with_fixed(*fixed):
    return torch.tensor([stack_with_fixed(fixed, seed) for seed in range(5)]).log().mean(dim=0)


logs = {" and ".join(fixed): typical_with_fixed(*fixed)                   # (9,) each
        for fixed in (("queries",), ("keys",), ("queries", "keys"))}
for fixed, at in (("queries", 4), ("keys", 3)):       # small by then, yet above rounding
    assert 1.9 < logs[fixed][at + 1] / logs[fixed][at] < 2.35, "squared: its logarithm doubles"
by_queries, by_keys = logs["queries"].exp(), logs["keys"].exp()           # (9,) each
assert 0.9 < by_queries[4] / 7e-4 < 1.1 and 0.9 < by_queries[5] / 4e-7 < 1.1
assert 0.9 < by_keys[3] / 7e-3 < 1.1 and 0.9 < by_keys[4] / 1e-5 < 1.1
fifths = logs["queries and keys"].diff()[2:].exp()
assert fifths.min() > 0.17 and fifths.max() < 0.26, "about a fifth"
print("The experiment of the box above: relative spread after 1 to 5 layers (geometric means")
print("of five seeds), where these stay different, made from the first layer's input")
for fixed, log in logs.items():
    print(f"{fixed:>16}:", "  ".join(f"{share:7.2g}" for share in log[1:6].exp()))

# %% [markdown]
# > **A common mistake: one remedy for two problems.** The feed-forward network is sometimes offered as the cure for
# > averaging. It cures one problem, that attention is *linear* in the values. The other, that all tokens become
# > *alike*, is slowed down at initialisation by the residual connection.
#
# So one layer of a Transformer has two parts. Each part has a residual connection around it and reads its input through
# a norm, as in `stack`:
#
# $$x \leftarrow x + \operatorname{attention}(\operatorname{norm}(x)), \qquad
# x \leftarrow x + \operatorname{FFN}(\operatorname{norm}(x))$$
#
# The paper of 2017 puts the norm after the addition, and [lecture @deep_stacks](@deep_stacks) compares the two.
#
# **A good place for a break.**

# %% [raw] slide
# ## A common mistake: one remedy for two problems
# | problem | what helps |
# |---|---|
# | attention is **linear** in the values that it averages | the feed-forward network |
# | everything becomes **alike** | the residual connection slows it down |
#
# The network is *the same function at every position*: equal tokens stay equal.

# %% [markdown]
# ## Autoregressive language models and the future
#
# Each token can now compute. Which tokens may it see? A language model predicts each token from the tokens before it,
# and writes by reading its own output: it is **autoregressive**. A recurrent network reads from left to right and
# cannot look ahead. Self-attention gives every token access to every other token, including the one that it has to
# predict. What happens if nothing forbids this?
#
# We train models to spell the numbers from "zero" to "nine hundred and ninety-nine". A token is a letter, a space or a
# hyphen. A full stop marks the beginning and the end of a text. Below we call all of them letters.

# %% [raw] slide
# ## Autoregressive language models and the future
# Texts: numbers from "zero" to "nine hundred and ninety-nine", letter by letter. The output is the input, one step later.
#
# > **Guess first.** All thousand numbers are equally likely. How small can an honest loss become?
#
# . . .
# $\ln 1000 \approx 6.9$ nats a number, divided by its letters: about 0.27 nats a letter.

# %%
letters, spelled = spelled_numbers(1000)              # (1000, 33)  −1 is padding
print(len(letters), "tokens:", letters)
seven = spelled[7, :7]                                # (7,)
for name, tokens in {"inputs": seven[:-1], "targets": seven[1:]}.items():
    print(f"{name:>7}:", "".join(letters[i] for i in tokens))

# %% [markdown]
# The **targets** are the inputs shifted by one step: the target at each position is the next letter. Our models consist
# of layers like those of the first half, with four heads ([lecture @many_heads](@many_heads)). They differ in one
# argument: either a mask lets position $i$ attend only to positions $j \le i$, or there is no mask. The package calls
# the stack `Encoder`, although with a causal mask it is a **decoder-only** language model. The folded cell below holds
# the training loop of 150 steps.

# %%
class Speller(nn.Module):
    def __init__(self, masked, d=64):
        super().__init__()
        self.masked = masked
        self.encoder = Encoder(TransformerConfig(
            vocab_size=len(letters), d_model=d, n_layers=2, n_heads=4,
            d_ff=2 * d,                                                   # narrow, to be quick
            positions="learned", max_length=64, dropout=0.0,
        ))
        self.output = nn.Linear(d, len(letters))

    def forward(self, tokens):                                            # (batch, n)
        mask = causal_mask(tokens.shape[1]) if self.masked else None      # (n, n)
        return self.output(self.encoder(tokens, mask=mask))               # (batch, n, letters)

# %% tags=["hide-input"]
def loss_of(logits, targets):                         # in nats per letter; −1 is padding
    return F.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=-1)


def train(masked, seed, numbers=spelled, steps=150):
    torch.manual_seed(seed)
    model, losses = Speller(masked), []
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 5e-3, steps, pct_start=0.2)
    for _ in range(steps):
        tokens = numbers[torch.randint(len(numbers), (32,))]              # (32, 33)
        loss = loss_of(model(tokens[:, :-1].clamp(min=0)), tokens[:, 1:])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        losses.append(loss.item())
    return model.eval(), losses

# %% [markdown]
# How small can the loss become? An *honest* model, one that does not see the answer, cannot know which of the thousand
# numbers is coming. The losses of a number's letters add up to $-\ln$ of the probability that the model gives to the
# whole number. These probabilities sum to at most one, so the average over all numbers is at least
# $\ln 1000 \approx 6.9$ nats. A number has 25.5 letters on average, with its final full stop. So no honest model can
# have a loss below 0.271 nats per letter over all the numbers. This is the **entropy** of our texts per letter. (The
# loss of one batch may, by luck, be lower.)
#
# *Guess first:* does the loss end above 0.271, at about 0.271 or below it, with the mask and without?

# %%
least = math.log(1000) / (spelled[:, 1:] >= 0).sum(dim=1).float().mean().item()
models, losses = {}, {"no mask": [], "causal mask": []}
for name in losses:
    for seed in range(3):
        models[name, seed], line = train(masked=name == "causal mask", seed=seed)
        losses[name].append(line)
figures.losses_of_runs(losses, least)
#| caption: Training losses, each averaged over three steps, on a logarithmic axis; a line for
#|   each of three seeds. Without a mask the answer leaks.

# %% tags=["hide-input"]
last = {name: [sum(line[-20:]) / 20 for line in lines] for name, lines in losses.items()}
assert max(last["no mask"]) < 0.2 * least, "far below what is possible"
assert least - 0.03 < min(last["causal mask"]), "0.03 for the luck of the draw"
assert max(last["causal mask"]) < 1.35 * least, "near it"
stops = (spelled[:, 1:-1] == letters.index(".")).any(dim=1).sum().item()
assert stops == 991, "the table cuts the final full stop off from nine inputs alone"
assert round(least, 3) == 0.271 and round(math.log(1000) / least, 1) == 25.5

# %% [raw] slide
# ## An impossible loss
# {figure}
#
# > **Guess first.** Now they write. Of a hundred texts, how many are numbers?

# %% [markdown]
# **Without a mask the loss is impossibly low.** With the mask, it ends a little above the least possible. Without a
# mask, it falls far below, which no honest model can achieve: nearly all the answers are among the inputs, and the
# models read them.
#
# Now all six models write, letter by letter. The next letter does not exist yet, so no model can read ahead.
# *Guess first:* are nearly all of their texts numbers, most of them or none, with the mask and without?

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


texts = {say(number, "en") for number in range(1000)}
shares = {"no mask": [], "causal mask": []}
for (name, seed), model in models.items():
    written = write(model, 100)
    share = sum(text in texts for text in written) / 100
    shares[name].append(share)
    print(f"{name:>11}, seed {seed}: {share:4.0%} are numbers; the first two:", written[:2])

# %% tags=["hide-input"]
assert min(shares["causal mask"]) > 0.5 and max(shares["no mask"]) < 0.1

# %% [raw] slide
# ## No mask: nothing left to read when it writes
# {print}

# %% [markdown]
# **With a mask, most texts are numbers. Without it, none of the 300 is.** Some of the masked models' other texts are
# near misses, like *fourteeen*. The models without a mask relied on the letters to the right, and these are now
# missing.
#
# **The loss on unseen texts does not show the fault either**, because an unseen text also has its answers among its
# inputs. Such losses warn us only by being too good, and for real text nobody knows the entropy exactly.
#
# <details><summary>The experiment</summary>
#
# We train without a mask on 800 of the numbers, with three seeds, and measure on the other 200. An honest model needs
# at least $\ln 200$ nats per number there, or 0.207 per letter. The loss is far lower, as the line below this box
# shows: the models read these answers, too.
#
# </details>

# %% tags=["hide-input"]
order = torch.randperm(1000, generator=torch.Generator().manual_seed(0))
unseen, on_unseen = spelled[order[800:]], []          # (200, 33)
for seed in range(3):
    model, _ = train(masked=False, seed=seed, numbers=spelled[order[:800]])
    with torch.no_grad():
        on_unseen.append(loss_of(model(unseen[:, :-1].clamp(min=0)), unseen[:, 1:]).item())
least_unseen = math.log(200) / (unseen[:, 1:] >= 0).sum(dim=1).float().mean().item()
assert round(least_unseen, 3) == 0.207
assert max(on_unseen) < 0.3 * least_unseen, "still far below what is possible"
print(f"loss without a mask on 200 unseen numbers, three seeds: {min(on_unseen):.3f} to",
      f"{max(on_unseen):.3f}; the least possible: {least_unseen:.3f}")

# %% [markdown] teaches="masking the future, with scores of −∞"
# > **Check yourself.** The loss with the mask is the *average* over letters. Which letters of "four hundred and
# > eighty-one" cost something, and which next to nothing?
# > <details><summary>Answer</summary>The letters that decide the number cost something: the f, which chooses among the
# > digits, the o, because the f leaves four and five open, and the first letters of eighty and of one. A few others
# > cost a little, because other numbers begin in the same way: for instance the u, because of forty, the y, because of
# > eight and eighteen, and the hyphen, because the number may end at eighty. The rest costs next to nothing, even the
# > space after "hundred", because 99 of 100 numbers go on there. In all it comes to ln 1000.</details>
#
# ## The causal mask: scores of −∞
#
# How do we hide the future? The direct way is to go step by step. Step $i$ has one query, that of token $i$, and only
# the keys and values of the tokens $1, \dots, i$.

# %%
n, d_k = 4, 8
words = ["<start>", "the", "chef", "who"]
torch.manual_seed(0)
Q, K, V = torch.randn(3, n, d_k)                      # (n, d_k) each
slow = []
for i in range(n):
    output, _ = attend(query=Q[i : i + 1], key=K[: i + 1], value=V[: i + 1])
    slow.append(output)                               # (1, d_k)
    seen = tuple(K[: i + 1].shape)                    # (i + 1, d_k)
    print(f"step {i + 1}, {words[i]:>7}: query (1, {d_k}), keys and values {seen}")
slow = torch.cat(slow)                                # (n, d_k)

# %% [raw] slide
# ## Causal self-attention: scores of −∞
# $$e_{ij} = \begin{cases} q_i \cdot k_j / \sqrt{d_k} & j \le i\\ -\infty & j > i \end{cases} \qquad\quad \alpha_{ij} = \operatorname{softmax}_j(e_{ij})$$
#
# - A **boolean mask**: True where a query may attend (in `nn.MultiheadAttention`: where it may *not*).
# - An **additive mask**: 0 and −∞.

# %% [markdown] erratum="keys and queries"
# > **A common mistake: "the set of keys and queries grows".** The *keys and values* grow, as the shapes above show, but
# > each step has only one query. So a model that writes keeps keys and values in a **KV cache** ([lecture
# > @many_heads](@many_heads)), but no queries.
#
# A model that is *writing* must work in this way. In training the whole text is there, so we can compute all scores at
# once and forbid some of them. A forbidden weight must be exactly zero, so we set its score to −∞, whose exponential is
# zero. (The last section shows where a score of −1e9 fails.) This is **masked** or **causal self-attention**:
#
# $$e_{ij} = \begin{cases} q_i \cdot k_j / \sqrt{d_k} & j \le i\\ -\infty & j > i \end{cases} \qquad\quad
# \alpha_{ij} = \operatorname{softmax}_j(e_{ij})$$ (eq:causal)
#
# A **causal mask** can be written in two ways. An **additive mask** holds 0 and −∞ and is added to the scores, as in
# the next cell. A **boolean mask** says for each pair whether the query may attend to the key. You write one in the
# assignment. Torch has two conventions for boolean masks. In `F.scaled_dot_product_attention`, as in this course, True
# means "may attend". In `nn.MultiheadAttention` and `nn.TransformerEncoder` it means "may *not* attend".

# %%
above = torch.full((n, n), -torch.inf).triu(1)        # (4, 4)  −∞ where j > i, 0 elsewhere
weights = (Q @ K.mT / math.sqrt(d_k) + above).softmax(dim=-1)             # (4, 4)
figures.masked_scores(Q @ K.mT / math.sqrt(d_k), causal_mask(n), words)
print("all at once gives the same as one by one:", torch.allclose(weights @ V, slow, atol=1e-6))
#| caption: Causal mask: scores and weights (rounded; the darker, the larger), with the
#|   forbidden cells hatched.
#| label: causal-mask

# %% tags=["hide-input"]
assert torch.allclose(weights @ V, slow, atol=1e-6)
itself_too = torch.full((n, n), -torch.inf).triu(0)   # (4, 4)  −∞ where j ≥ i
assert (Q @ K.mT + itself_too).softmax(dim=-1)[0].isnan().all(), "the mistake below"

# %% [raw] slide
# ## All at once gives the same as one by one
# {figure}
#
# **A common mistake: $j \ge i$ forbidden.** The first row is −∞ throughout: NaN.
#
# **Now you:** a@masking, exercise 2

# %% [markdown] erratum="i > i; not even itself"
# **All queries at once give the same outputs as one query at a time.** The first token sees only itself and gets all
# the weight. A low score such as −2.49 is *allowed* and has a small weight, whereas a hatched cell has exactly 0. Each
# row still sums to one, because a forbidden score adds nothing to the denominator.
#
# > **A common mistake: $j < i$ allowed, $j \ge i$ forbidden.** Then a token may not attend to itself, and the first one
# > may attend to nothing: its row is −∞ throughout, and softmax turns it into NaN. Another slide has the misprint
# > "$-\infty$ where $i > i$". This is never true, so nothing would be forbidden. The condition should be $j > i$.
#
# > **Check yourself.** Why may position $i$ attend to itself at all? Is that not a leak?
# > <details><summary>Answer</summary>At position i the model has read token i and must predict token i + 1. Its own
# > token is no secret. The secret is the next token, because the targets are the inputs shifted by one.</details>
#
# **Now you:** [a06](@masking/assignment), exercise 2: write one mask that serves all queries at once and the newest
# query alone.
#
# ## Testing for leaks: which output depends on which input?
#
# A mask can easily be wrong by one position. If it allows too much, the loss only looks better. So we want to *test* a
# mask without training the model. Gradients can tell: if the gradient of output $i$ with respect to input $j$ is not
# zero, the output depends on the input. The sizes of these gradients make an $n \times n$ matrix. If the model is
# honest, this matrix is zero above the diagonal.
#
# <details><summary>Why do we take the gradient of each number of an output by itself?</summary>
#
# A sum can hide a leak: after a fresh layer norm, the numbers of a position always sum to zero.
#
# </details>

# %% [raw] slide
# ## Testing for leaks: which output depends on which input?
# It is easy to get a mask wrong by one, and the loss only looks better for it. Let gradients tell.
#
# > **Guess first.** Which of these leak?
# > 1. a causal mask on the scores
# > 2. the causal mask for $n + 1$ tokens, without its first row and last column
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
# We test four suspects:
#
# * a causal mask on the scores;
# * the causal mask for $n + 1$ tokens, without its first row and last column;
# * a causal mask on the *weights*, which are set to 0 after the softmax;
# * a causal mask on inputs that were centred first, by subtracting the mean over the sentence.
#
# *Guess first:* which of the four leak?

# %%
torch.manual_seed(1)
W_q, W_k, W_v = torch.randn(3, 8, 8) / math.sqrt(8)


def scores_of(x):
    return (x @ W_q) @ (x @ W_k).mT / math.sqrt(8)    # (n, n)


def weights_of(x, mask):                              # −∞ where the mask is False
    return scores_of(x).masked_fill(~mask, -torch.inf).softmax(dim=-1)    # (n, n)


def masked(x):
    return weights_of(x, causal_mask(len(x))) @ x @ W_v


def cut_out(x):
    return weights_of(x, causal_mask(len(x) + 1)[1:, :-1]) @ x @ W_v


def weights_set_to_0(x):
    return (scores_of(x).softmax(dim=-1) * causal_mask(len(x))) @ x @ W_v


def centred(x):
    return masked(x - x.mean(dim=0))


suspects = {"mask on the scores": masked, "cut out of a larger mask": cut_out,
            "mask on the weights": weights_set_to_0, "centred inputs": centred}
x = torch.randn(6, 8)                                 # (n, d)  one input for all four
found = {name: who_depends_on_whom(model, x) for name, model in suspects.items()}     # (6, 6)
figures.dependence_maps(found)
#| caption: Which output depends on which input: the darker, the larger the gradient, on a scale
#|   for each panel. Hatched: exactly 0. Cross: a leak from the future.

# %% tags=["hide-input"]
clean = [name for name, table in found.items() if not table.triu(1).any()]
assert clean == ["mask on the scores"]
beyond = found["cut out of a larger mask"].triu(1).nonzero()
assert (beyond[:, 1] == beyond[:, 0] + 1).all() and len(beyond) == 5, "one diagonal alone"

# %% [raw] slide
# ## Three of the four leak
# {figure}
#
# Weights set to 0 afterwards: the sum over *all* exponentials tells what is coming.

# %% [markdown] erratum="weights set to 0"
# **Of the four, only the causal mask on the scores keeps the future out.** The second mask is wrong by one,
# $j \le i + 1$, which shows as a single diagonal of crosses. Centring leaks because the mean over the sentence contains
# its end, as does every statistic over all positions. The third leak, through the weights, is the least obvious:
#
# > **A common mistake: "masking sets attention weights to 0".** Forbidden weights must end as 0, but after the softmax
# > it is too late to set them to 0. Each allowed weight is $\exp(e_{ij})$ divided by a sum over *all* exponentials,
# > including the forbidden ones, so it depends on what is coming. Besides, only the last row still sums to one.
#
# Can a model leak without a gradient? The next suspect adds to each token the share of positive numbers in the whole
# sentence. This time we also compare the outputs for two inputs that begin in the same way and end differently:

# %%
def counts(x):
    return masked(x) + (x > 0).float().mean()


x, other_end = torch.randn(2, 6, 8)
other_end[:3] = x[:3]                                 # the same beginning, a different end
print("above the diagonal:", who_depends_on_whom(counts, x).triu(1).sum().item())
moved = (counts(x) - counts(other_end))[:3].abs().max().item()
print("yet the first three outputs change by up to", round(moved, 3))

# %% tags=["hide-input"]
assert not who_depends_on_whom(counts, x).triu(1).any() and moved > 0.01

# %% [raw] slide
# ## A gradient of zero proves nothing
# {print}
#
# The suspect *counts*: its output goes up in steps, and between steps its slope is zero. **Change the future, in many ways, and see whether the past has moved.**
#
# **Now you:** a@masking, exercise 3

# %% [markdown] teaches="training in parallel, teacher forcing"
# **A gradient clearly above rounding proves a leak; a gradient of zero proves nothing.** A count goes up in steps, and
# between the steps its slope is zero, so the gradients acquit this model although it leaks. A better test does what we
# did with `other_end`: it changes the future and checks whether the past has moved. A single change may miss a leak, so
# try many, large ones among them.
#
# **Now you:** [a06](@masking/assignment), exercise 3: write such a test.
#
# ## Teacher forcing: one pass trains all positions
#
# What do we gain from a mask that does not leak? In training, every position gets the true beginning of the text,
# whatever the model itself would have written. This is **teacher forcing** ([@williams1989]), which you know from
# [lecture @cross_attention](@cross_attention). With a causal mask, the model can then answer all positions in one pass.

# %%
figures.teacher_forcing(["<start>", "the", "chef", "who", "ran"])
#| caption: Teacher forcing: all positions of a sentence are trained in one pass. No allowed
#|   path goes to the left on its way up.
#| label: teacher-forcing

# %% [raw] slide
# ## Teacher forcing: one pass trains all positions
# {figure}

# %% [markdown]
# Each dot at the top is one question, "given these words, what comes next?", with its answer in orange above it. Thanks
# to the mask, no path reaches it from the right, through any number of layers. A model that writes answers the same
# questions one by one, and each time it sees only the beginning. *Guess first:* if we ask our trained models one by
# one, which loss changes: with the mask, without it, or both?

# %%
@torch.no_grad()
def step_by_step(model, tokens):
    steps = [model(tokens[:, : i + 1])[:, -1] for i in range(tokens.shape[1])]        # prefixes
    return torch.stack(steps, dim=1)                  # (batch, n, letters)


inputs = spelled[::2, :-1].clamp(min=0)               # (500, 32)  padding is read as "."
targets = spelled[::2, 1:]                            # (500, 32)
for name in ("causal mask", "no mask"):
    model = models[name, 0]
    with torch.no_grad():
        one_pass = loss_of(model(inputs), targets).item()
    one_by_one = loss_of(step_by_step(model, inputs), targets).item()
    print(f"{name:>11}: loss {one_pass:.3f} in one pass, {one_by_one:.3f} step by step")
    assert abs(one_pass - one_by_one) < 1e-3 or (name == "no mask" and one_by_one > 1)

# %% [raw] slide
# ## One pass, or step by step
# > **Guess first.** Does the loss change if the questions are asked one by one?
#
# . . .
# {print}
# . . .
# One pass gives $n$ losses, thanks to the mask. The price: **exposure bias**.

# %% [markdown]
# **With the mask, one pass asks the same questions as 32 steps.** Without a mask the loss rises, because the steps hide
# the answers that one pass shows. One pass through a text of $n$ tokens gives $n$ losses and their gradients. A
# recurrent network such as an LSTM must walk along the text instead, and avoiding this walk was a main aim of the
# Transformer ([@vaswani2017, section 1]).
#
# Teacher forcing has a price. In training a model sees only true beginnings, but when it writes, it reads its own text
# with all its mistakes. This difference is called **exposure bias** ([@ranzato2016]), and [lecture @writing](@writing)
# asks how much harm it does.
#
# ## Padding masks, and both together
#
# A batch of texts is padded to one length, and no token should attend to padding ([lecture
# @cross_attention](@cross_attention)). Our models had no mask for this. Did they need one? A **padding mask** depends
# on the sentence and is the same for all queries. The causal mask depends on the position and is the same for all
# sentences. A pair of positions must be allowed by both masks, so we combine them with *and* (`&`). Broadcasting
# matches their shapes:

# %%
lengths = torch.tensor([5, 3])
is_token = lengths_to_mask(lengths, n=5)              # (2, 5)      (batch, n)
padding = is_token[:, None, :]                        # (2, 1, 5)   (batch, any query, key)
both = combine_masks(padding, causal_mask(5))         # (2, 5, 5)   (batch, query, key)
short = ["she", "ran", "off", "pad", "pad"]           # the second sentence
figures.mask_zoo({"padding": (short, short, padding[1].expand(5, 5)),
                  "causal": (short, short, causal_mask(5)),
                  "padding and causal": (short, short, both[1])}, columns=3, unit=0.32)
#| caption: Padding mask, causal mask, and both, for three tokens and two places of padding.
#|   Hatched: forbidden. Pale rows: outputs that nobody uses.

# %% [raw] slide
# ## Padding masks, and both together
# {figure}
#
# `is_token[:, None, :] & causal`: the padding mask depends on the sentence, the causal one on the position.
#
# **Now you:** a@masking, exercise 4

# %% [markdown]
# **A padding mask forbids columns.** In `is_token[:, None, :]` the axis of length one is the axis of the queries. With
# `[:, :, None]` the mask would forbid the *rows* of padding instead: without a causal mask every token could then still
# attend to padding, and nothing would crash.
#
# Our models have a causal mask but no padding mask, and their padding is at the end. *Guess first:* which outputs does
# a padding mask change, those of the tokens or those of padding?

# %%
torch.manual_seed(0)
x = torch.randn(2, 5, 8)                              # (batch, n, d)
with_padding, _ = attend(x, x, x, both)               # (2, 5, 8)
without, _ = attend(x, x, x, causal_mask(5))          # (2, 5, 8)
moved = (with_padding - without).abs().amax(dim=-1)   # (2, 5)
print("the short sentence's outputs change by", [round(m, 2) for m in moved[1].tolist()])

# %% tags=["hide-input"]
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
# **Only outputs of padding change, and nobody uses them.** Padding at the end lies in the future of all tokens, so a
# causal language model needs no padding mask for it. Only its *loss* must leave padding out, as `ignore_index=-1` did
# above. An encoder does need a mask, because its **bidirectional self-attention** would see the padding. A decoder that
# attends to an encoder needs one for the source.
#
# <details><summary>One more place where padding matters: the positions</summary>
#
# With padding in *front*, learned or sinusoidal positions must be counted from each text's first token; relative ones,
# such as RoPE, do not notice the shift.
#
# </details>
#
# **Now you:** [a06](@masking/assignment), exercise 4: write a mask for padding on either side.
#
# ## Masks in use: causal, prefix, packed, window
#
# Here are eight masks, made of a few simple ones. *Guess first:* which of the seven square ones let a token see a later
# one? And in which of the others can the first token never influence the last, however many layers there are?

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
    "bidirectional": (padded, padded, everywhere & no_padding),
    "causal": (plain, plain, causal_mask(n)),
    "causal and padding": (padded, padded, causal_mask(n) & no_padding),
    "prefix LM": (prefix, prefix, causal_mask(n) | (place < 3)),
    "packed documents": (documents, documents,
                         torch.block_diag(causal_mask(3), causal_mask(2), causal_mask(3))),
    "sliding window": (plain, plain, causal_mask(n) & window_mask(n, window=3)),
    "blocks (chunked)": (plain, plain, torch.block_diag(causal_mask(4), causal_mask(4))),
    "cross-attention": (target, source, everywhere[:5] & no_padding),
})
#| caption: Masks in use: who may attend to whom. Hatched: forbidden. Pale: queries whose output
#|   is not used.
#| label: masks

# %% [raw] slide
# ## Masks in use: what is each of them for?
# {figure}

# %% tags=["hide-input"]
for mask, hears in ((torch.block_diag(causal_mask(3), causal_mask(2), causal_mask(3)), False),
                    (torch.block_diag(causal_mask(4), causal_mask(4)), False),
                    (causal_mask(n) & window_mask(n, window=3), True),
                    (causal_mask(n) & no_padding, True)):
    paths = torch.linalg.matrix_power(mask.double(), n)                   # (8, 8)  n layers
    assert (paths[-1, 0] > 0) == hears, "does the first token reach the last?"

# %% [markdown]
# **The bidirectional mask and the prefix mask show later tokens, and both are right: nobody has to predict the tokens
# that they show.** In packed documents and in blocks the first token never reaches the last, because nothing crosses
# the gaps in any layer. In the window it does, because a mask describes *one* layer: position 8 reads 6, which has read
# 4 one layer below, and so on.
#
# <details><summary>What each of the eight masks is for, and who uses it</summary>
#
# | mask | who may attend to whom | used by |
# |---|---|---|
# | **bidirectional** | every token to every real token | encoders: BERT ([@devlin2019]) |
# | **causal** | $j \le i$ | decoder-only models: GPT-2 ([@radford2019]) |
# | **causal and padding** | $j \le i$, if $j$ is a real token | decoders on batches of texts of different lengths |
# | **prefix LM** | the prefix to all of itself, what follows to its past | PaliGemma ([@beyer2024]) |
# | **packed** | causal, within one document | training on rows of several documents: Llama 3 ([@grattafiori2024, section 3.2]) |
# | **sliding window** | the last $w$ tokens | Mistral 7B ([@jiang2023]; [lecture @cheap_attention](@cheap_attention)) |
# | **blocks** | causal, within one chunk | the layers with RoPE in [Llama 4](https://huggingface.co/blog/llama4-release) |
# | **cross-attention** | every target token to every real source token | encoder–decoders |
#
# Without the mask for packed documents, each document also reads the documents before it in the row. This is no leak
# from the future. Zhao et al. ([-@zhao2024]) measured a loss of quality, whereas the authors of Llama 3 report that the
# mask mattered little in standard pre-training, but was important for very long rows.
#
# Between blocks nothing ever crosses, and so models with blocks also have layers of another kind. BERT's **masked
# language modelling** hides *input tokens*; its attention mask stays bidirectional ([lecture
# @transformer](@transformer)).
#
# </details>
#
# **A mask by itself saves no work.** The forbidden scores are computed and thrown away, unless the code skips them
# ([lecture @cheap_attention](@cheap_attention)).
#
# ## Applying a mask: −∞, −1e9 and NaN
#
# Two masks together can leave a query with nothing that it may attend to. This happens when a program continues a batch
# of prompts. It pads them in *front*, so that all prompts end at the same place. Under a causal mask, the first rows
# then have no past but padding. What are the weights of these rows? We apply such a mask in three ways. A forbidden
# score becomes −∞; or it becomes −1e9, as in much code; or we call the package's `masked_softmax`, the softmax inside
# `attend`, which shares the weight among the allowed keys alone.

# %%
chef = ["pad", "pad", "the", "chef", "who"]
mask = causal_mask(5) & (torch.arange(5) >= 2)        # (5, 5)  causal, padding in front
scores = torch.randn(5, 5, generator=torch.Generator().manual_seed(3))    # (5, 5)  some scores
ways = {
    "−∞": torch.where(mask, scores, -torch.inf).softmax(dim=-1),
    "−1e9": torch.where(mask, scores, -1e9).softmax(dim=-1),
    "masked_softmax": masked_softmax(scores, mask),
}
figures.mask_ways(mask, ways, chef)
#| caption: One mask, causal and padding in front, applied in three ways. Hatched: forbidden,
#|   weight 0. Framed: forbidden, yet with weight. Orange: wrong.
#| label: three-ways

# %% tags=["hide-input"]
lonely = ~mask.any(dim=-1)                            # (5,)  queries that may attend to nothing
assert torch.equal(ways["−∞"].isnan().any(dim=-1), lonely) and lonely.sum() == 2
assert (ways["−1e9"][lonely] == 0.2).all(), "an even share for all the forbidden"
assert (ways["masked_softmax"][~mask] == 0).all()

# %% [raw] slide
# ## Applying a mask: −∞, −1e9 and NaN
# {figure}

# %% [markdown]
# **A row with nothing allowed gets NaN, uniform weights or zeros, depending on the way.** With −∞ the whole row is −∞.
# Softmax first subtracts the row's maximum, and −∞ − (−∞) is NaN. With −1e9 all scores of the row are equal, so each of
# the five keys gets a fifth, padding and future too: a leak, if somebody uses the row's output. `masked_softmax` gives
# exactly zero wherever the mask forbids, even in a whole row. In exercise 5 you find a way to do this.
#
# Does NaN in rows of padding matter, if no token may attend to padding? We apply the weights that contain NaN in two
# layers, one after the other:

# %%
values = x[0]                                         # (5, 8)  one sentence of those above
first = ways["−∞"] @ values                           # (5, 8)  a layer: two rows of NaN
second = ways["−∞"] @ first                           # (5, 8)  and one more
print("NaN rows after one layer: ", first.isnan().any(dim=-1).tolist())
print("NaN rows after two layers:", second.isnan().any(dim=-1).tolist())

# %% tags=["hide-input"]
assert first[:2].isnan().all() and not first[2:].isnan().any() and second.isnan().all()

# %% [raw] slide
# ## A mask cannot keep out what is not a number
# > **Guess first.** Two rows of padding are NaN, and no token may attend to padding. After how many further layers do the tokens become NaN?
#
# . . .
# {print}
# Zero times NaN is NaN: give zeros to rows with nothing allowed.

# %% [markdown]
# **It matters, and one more layer is enough.** The tokens do give padding the weight zero, but zero times NaN is NaN. A
# mask cannot keep out what is not a number, so a row with nothing to attend to must get zeros.
#
# Can we put the zeros in after the softmax? Below, −∞ is either *added* to the forbidden scores or *replaces* them, and
# in both cases zeros then take the place of NaN. `masked_softmax` is the third way. The loss reads only the three rows
# of tokens. *Guess first:* for which of the three is the gradient of $W$, a matrix that all tokens share, finite?

# %% tags=["hide-input"]
W = (torch.randn(8, 8, generator=torch.Generator().manual_seed(0)) / 8).requires_grad_()
shares_of_nan = []
for way in ("−∞ added, zeros later", "−∞ replaces, zeros later", "masked_softmax"):
    raw = values @ W @ values.mT                      # (5, 5)  scores
    if way == "masked_softmax":
        weights = masked_softmax(raw, mask)
    elif "added" in way:
        weights = (raw + torch.where(mask, 0.0, -torch.inf)).softmax(dim=-1).nan_to_num()
    else:
        weights = torch.where(mask, raw, -torch.inf).softmax(dim=-1).nan_to_num()
    loss = (weights @ values)[2:].square().mean()     # of the three tokens, without padding
    (gradient,) = torch.autograd.grad(loss, W)        # (8, 8)
    share = gradient.isnan().float().mean().item()
    shares_of_nan.append(share)
    print(f"{way:>24}: loss {loss.item():.2f}, NaN in {share:.0%} of the gradient of W")

# %% tags=["hide-input"]
assert gradient.abs().max() > 0 and shares_of_nan == [1, 0, 0]

# %% [raw] slide
# ## NaN in the backward pass
# > **Guess first.** The loss leaves padding out and is finite. Is the gradient?
#
# . . .
# {print}
# Zero times NaN is NaN again: a finite loss does not mean a finite gradient. Let −∞ *replace* the scores.
#
# **Now you:** a@masking, exercise 5

# %% [markdown]
# **A finite loss does not mean a finite gradient.** All three losses are the same. But with an added −∞ the gradient is
# NaN, and one step of the optimizer makes all of $W$ NaN. So where a row may have nothing allowed, **replace**
# forbidden scores; do not add −∞ to them. (Our additive causal mask did no harm: each row allows its diagonal.)
#
# <details><summary>Why? And one more fault of −1e9</summary>
#
# In the backward pass, softmax multiplies the gradient that arrives by the row's weights. For a row of padding this
# gradient is zero but the weights are NaN, and zero times NaN is NaN again. If −∞ *replaces* the score, no gradient
# passes back to it, so zeros may be put in later. `masked_softmax` never computes a NaN.
#
# And −1e9 does not fit into **float16**, whose lowest finite number is −65504, so it becomes −∞ there, or an error.
#
# </details>

# %% tags=["hide-input"]
half = scores.half()                                  # (5, 5)
try:
    half.masked_fill(~mask, -1e9)
    refused = False
except RuntimeError:
    refused = True
assert refused and torch.finfo(torch.float16).min == -65504
assert torch.where(mask, half, -1e9).softmax(dim=-1)[0].isnan().all()

# %% [raw] slide
# ## In short
# | | | shape |
# |---|---|---|
# | one head, $L$ layers | $A_L \cdots A_1\; X\; W_1 \cdots W_L$ | $(n, d)$ |
# | feed-forward network | $\max(0,\ x W_1 + b_1)\,W_2 + b_2$ | $(d_\text{ff})$ inside |
# | one layer | $x + \operatorname{attention}(\operatorname{norm}(x))$, then $x + \operatorname{FFN}(\operatorname{norm}(x))$ | $(n, d)$ |
# | causal self-attention | $e_{ij} = -\infty$ where $j > i$, then softmax | $(n, n)$ |
# | both masks | `padding & causal` | $(\text{batch}, n, n)$ |
#
# **Now do** assignment a@masking. **Next:** lecture @many_heads.

# %% [markdown]
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
#
# Attention moves information between tokens, and on the values it is linear. The position-wise feed-forward network
# computes with what each token has received, and needs an activation function to be more than a linear map. At
# initialisation the residual connection keeps the tokens apart for many layers, which the network alone does not. A
# causal mask makes self-attention autoregressive, so that one pass trains all positions of a text. A leak can make the
# loss look superb and the model useless, so change the future in many ways and see whether the past moves. Forbid
# *scores* by replacing them, and give zeros to rows with nothing allowed.
#
# > **Check yourself.**
# > 1. All feed-forward networks of a Transformer lose their activation function. What does each network become?
# > 2. A program adds two additive masks, −1e9 for the future and −1e9 for padding. In one row no position is allowed:
# >    some are forbidden once, the others twice. Where does the weight of this row go?
# > 3. You mix up the two conventions for a boolean mask in a decoder. What does each position see? And the last
# >    position?
# > 4. The six pots again, under a causal mask: pot A takes from A alone, pot B from A and B, pot C from A, B and C, and
# >    so on. Which colour do they have in the end?
# > <details><summary>Answers</summary>
# >
# > 1. A linear map of rank at most d_model, with a bias. One matrix could replace it, so its hidden layer gains
# >    nothing.
# > 2. To the positions that are forbidden once: they score −1e9, the others −2e9. If they are in the future, the model
# >    reads the future.
# > 3. Each position sees its future alone. The last position has no future, so it has nothing to attend to. If this
# >    gives NaN, you notice. In torch 2.13 `scaled_dot_product_attention` gives zeros there, and then only a loss that
# >    is too good shows the mistake.
# > 4. The colour of pot A. Pot A never changes. If every pot takes at least a share ε from A in every round, then the
# >    largest share of other paints in any pot shrinks to at most 1 − ε of itself. So under a causal mask attention
# >    alone also collapses, to the first token (proved by Wu et al., [-@wu2024]).</details>
#
# **Now do** [assignment @masking](@masking/assignment) (about two hours): five exercises, two questions in
# words, and an extension. **Next:** [lecture @many_heads](@many_heads), several attention heads side by side.
#
# **Further reading.** [+@vaswani2017]: section 3.2.3, third point, is the causal mask in one sentence, section 3.3 the
# feed-forward network. [+@dong2021], on rank collapse. [+@geva2021]. [+@raffel2020]: figure 3 draws the fully visible,
# the causal and the prefix mask.
