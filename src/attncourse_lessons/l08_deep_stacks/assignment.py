# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3 (ipykernel)
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Assignment @deep_stacks · Deep stacks
#
# In this assignment you build what [lecture @deep_stacks](@deep_stacks) puts around attention and the
# feed-forward network so that they can be stacked: two norms, the two places to put them, and the stack itself. Then
# you are handed a block that trains splendidly and is wrong.
#
# The answers are short, a few lines each. Under each exercise stands a check. A check on other numbers and other sizes
# decides your points.
#
# Two rules hold throughout. Return new tensors, and leave those that come in as they are; and let a
# gradient through wherever something is to be learned.
#
# {exercises}
#
# If you are stuck, `hint("layer_norm", 1)` prints a hint; the later ones of an exercise tell more. Your answers are
# refused if they call the course's own norms and blocks, or torch's norms in exercises 1 and 2.

# %% locked=true
try:
    from attncourse import check, hint
except ModuleNotFoundError:
    raise ImportError(
        "This notebook needs the attncourse package: open it with `make lab` in the course's "
        "folder, or choose a kernel of the environment in which you installed the course."
    ) from None

from collections.abc import Callable

import torch
from torch import Tensor, nn

# %% [markdown]
# ## 1 · LayerNorm
#
# $$
# \mu = \frac1d \sum_{c=1}^{d} x_c \qquad \sigma^2 = \frac1d \sum_{c=1}^{d} (x_c - \mu)^2 \qquad
# \operatorname{LayerNorm}(x) = \frac{x - \mu}{\sqrt{\sigma^2 + \varepsilon}} \circ \gamma + \beta
# $$
#
# for one vector $x$ of $d$ numbers. The gain $\gamma$ (called `weight`, as torch does) multiplies number by number.
# What stands in front of the last axis is none of the norm's business: it may be a batch of sentences, one sentence, or
# a vector all alone.

# %% exercise="layer_norm"
def layer_norm(x: Tensor, weight: Tensor, bias: Tensor, eps: float) -> Tensor:
    """Every vector with mean 0 and variance 1, times a gain, plus a bias.

    x: (..., d_model)   weight, bias: (d_model,)
    returns (..., d_model)
    """
    ...  # solution

# %% check="layer_norm"
check("layer_norm", layer_norm)

# %% [markdown]
# ## 2 · RMSNorm
#
# $$
# \operatorname{RMSNorm}(x) = \frac{x}{\sqrt{\frac1d \sum_c x_c^2 + \varepsilon}} \circ \gamma
# $$
#
# Nothing is subtracted, and there is no bias.

# %% exercise="rms_norm"
def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """Every vector at one size, with its direction kept, times a gain.

    x: (..., d_model)   weight: (d_model,)
    returns (..., d_model)
    """
    ...  # solution

# %% check="rms_norm"
check("rms_norm", rms_norm)

# %% [markdown]
# ## 3 · A pre-norm block
#
# From here on the parts are handed to you as functions, each from (batch, n, d_model) to (batch, n, d_model): `attend`
# is the whole self-attention, with its heads and its mask; `feed_forward` the network; `norm_1` and `norm_2` are two
# norms, each with a gain and a bias of its own. You do the wiring.
#
# $$h = x + \operatorname{attend}(\operatorname{norm}_1(x)) \qquad
# \text{output} = h + \operatorname{feed\_forward}(\operatorname{norm}_2(h))$$

# %% exercise="pre_norm_block"
def pre_norm_block(
    x: Tensor, attend: Callable, feed_forward: Callable, norm_1: Callable, norm_2: Callable
) -> Tensor:
    """Attention, then the feed-forward network; each hears a normalised x and is added to x itself.

    x: (batch, n, d_model)
    returns (batch, n, d_model)
    """
    ...  # solution

# %% check="pre_norm_block"
check("pre_norm_block", pre_norm_block)

# %% [markdown]
# ## 4 · A post-norm block
#
# The original Transformer's: "Add & Norm" after each sublayer.
#
# $$h = \operatorname{norm}_1\bigl(x + \operatorname{attend}(x)\bigr) \qquad
# \text{output} = \operatorname{norm}_2\bigl(h + \operatorname{feed\_forward}(h)\bigr)$$

# %% exercise="post_norm_block"
def post_norm_block(
    x: Tensor, attend: Callable, feed_forward: Callable, norm_1: Callable, norm_2: Callable
) -> Tensor:
    """Attention, then the feed-forward network; each is added to x, and the sum is normalised.

    x: (batch, n, d_model)
    returns (batch, n, d_model)
    """
    ...  # solution

# %% check="post_norm_block"
check("post_norm_block", post_norm_block)

# %% [markdown]
# ## 5 · The stack
#
# `blocks` is a list of pre-norm blocks, functions of x like yours in exercise 3, their residual connections inside.
# `final_norm` is one more norm. What comes out goes to an output layer that expects vectors of the usual size. The list
# may be of any length, empty too. A gradient must find its way from the top to x.

# %% exercise="pre_norm_stack"
def pre_norm_stack(x: Tensor, blocks: list[Callable], final_norm: Callable) -> Tensor:
    """All blocks, one after the other, and the norm that a pre-norm stack ends in.

    x: (batch, n, d_model)
    returns (batch, n, d_model)
    """
    ...  # solution

# %% check="pre_norm_stack"
check("pre_norm_stack", pre_norm_stack)

# %% [markdown]
# ## 6 · The loss fell, so it is right?
#
# The next cell has a block that was meant to be a pre-norm block. It runs, its shapes are right, a model made of it
# learns, and its loss falls as one would wish. It has four faults, all of them in `forward`; `__init__` is in order.
#
# The mask is (n, n) and True where a position may look, as everywhere in this course. Note that the boolean
# `attn_mask` of `nn.MultiheadAttention` has it the other way round: True where looking is forbidden.

# %% locked=true
class FaultyBlock(nn.Module):
    """Meant to be a pre-norm block."""

    def __init__(self, d_model: int, n_heads: int, d_ff: int):
        super().__init__()
        self.norm_1 = nn.LayerNorm(d_model)
        self.norm_2 = nn.LayerNorm(d_model)
        self.attention = nn.MultiheadAttention(d_model, n_heads, batch_first=True)
        self.up = nn.Linear(d_model, d_ff)
        self.down = nn.Linear(d_ff, d_model)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        x = self.norm_1(x)
        found, _ = self.attention(x, x, x)
        x = x + found
        x = self.norm_1(x)
        found = self.down(self.up(x).relu())
        x = x + found
        return x


# %% [markdown]
# Here is a beginning of a structural test, of the kind that finds such faults in a moment: with sublayers that write
# nothing, the block must be the identity. Run it, and add tests of your own: which other property must a right block
# have, whatever its parameters are?

# %%
torch.manual_seed(0)
block, x = FaultyBlock(8, 2, 16), torch.randn(2, 5, 8)
for layer in (block.attention.out_proj, block.down):
    nn.init.zeros_(layer.weight)
    nn.init.zeros_(layer.bias)
everybody = torch.ones(5, 5, dtype=torch.bool)
print("silent sublayers: x moves by", (block(x, everybody) - x).abs().max().item())

# %% [markdown]
# Write the `forward` that was meant. (Copy the faulty one and repair it, or start afresh.)

# %% exercise="repair_the_block"
class RepairedBlock(nn.Module):
    """A pre-norm block."""

    def __init__(self, d_model: int, n_heads: int, d_ff: int):
        super().__init__()
        self.norm_1 = nn.LayerNorm(d_model)
        self.norm_2 = nn.LayerNorm(d_model)
        self.attention = nn.MultiheadAttention(d_model, n_heads, batch_first=True)
        self.up = nn.Linear(d_model, d_ff)
        self.down = nn.Linear(d_ff, d_model)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        """x: (batch, n, d_model)   mask: (n, n), True where a position (row) may look at another (column)

        returns (batch, n, d_model)
        """
        ...  # solution

# %% check="repair_the_block"
check("repair_the_block", RepairedBlock)

# %% [markdown]
# ## 7 · Why the batch must not matter
#
# Somebody replaces LayerNorm in a language model by a norm whose mean and variance are taken, for each feature, over
# all positions of all sentences in the batch.
#
# **(a)** The same sentence is sent through the model twice, each time in a batch with other sentences. Why are the
# answers different, and what does it mean for whoever uses the model? **(b)** The model is trained to predict the next
# word, with a causal mask in every attention. Name a way in which the future now reaches the past all the same.
# **(c)** Nobody has noticed, because the loss is as good as before. Describe a test that does, in one or two
# sentences.
#
# Answer in three to six sentences in all. (3 points)

# %% [markdown] written="why-the-batch-must-not-matter" points=3 minutes=12 difficulty=2
# ### BEGIN SOLUTION
# **Mark scheme.** One point for each.
#
# 1. (a) Mean and variance depend on all that is in the batch, so a word's vector depends on sentences that have nothing to do
#    with it. (One consequence is enough: an answer depends on who else asks at the same time, on the batch size, on the padding;
#    a batch of one gives something other than training did.)
# 2. (b) The statistics at position $i$ contain positions $j > i$ of the same sentence: what comes later moves the mean that is
#    subtracted earlier. (That other *sentences* are in it is (a), and earns nothing here.)
# 3. (c) Change the words after position $i$, and compare the outputs up to $i$: they must not move. Or: one sentence alone, and in a
#    batch; the outputs must agree. It must be said what is compared with what, and what must be equal. "Look at the validation
#    loss" earns nothing.
# ### END SOLUTION

# %% [markdown]
# ## 8 · Where does the gradient go?
#
# Let $f_1, \dots, f_L$ be sublayers, and $x_\ell = x_{\ell-1} + f_\ell(\operatorname{norm}(x_{\ell-1}))$.
#
# **(a)** Write $\partial x_L / \partial x_0$ as a product over the layers, and say what it becomes if all $f_\ell$ are
# constant. **(b)** A slide says of the residual connection: "the gradient is 1". Where is that true, and what has it
# left out? Answer in three to five lines. (2 points)

# %% [markdown] written="where-does-the-gradient-go" points=2 minutes=8 difficulty=2
# ### BEGIN SOLUTION
# **Mark scheme.** One point for each.
#
# 1. (a) $\prod_{\ell} \bigl(I + J_\ell\bigr)$, with $J_\ell$ the Jacobian of $f_\ell(\operatorname{norm}(\cdot))$ at $x_{\ell-1}$ (in either order,
#    depending on the convention). For constant $f_\ell$ every $J_\ell$ is 0, and the product is $I$.
# 2. (b) The path through the additions alone contributes exactly the identity. The whole gradient is that plus what comes back
#    through the sublayers, which may add to it or take from it: multiplied out, there are $2^L$ terms, of which one is $I$. Half a
#    point for "plus the sublayers' part" without a word on that it can be large or opposed. (Also good: it is true of pre-norm; in
#    post-norm every $I + J$ is multiplied by a norm's Jacobian.)
# ### END SOLUTION

# %% [markdown]
# ## Extension: fold the norm away
#
# This one is worth extra credit, and nothing is lost by leaving it out.
#
# In a pre-norm block the norm's gain $\gamma$ and bias $\beta$ are followed at once by a linear layer: $(y \circ \gamma
# + \beta)\,W + b$, where $y$ is the vector with mean 0 and variance 1. Two linear things in a row are one. Find the
# matrix and the bias of a single layer that does the same to $y$, so that the norm can do without its parameters. (Those
# who look inside trained models begin with this, and so do those who make them run fast.)

# %% exercise="fold_the_norm"
def fold_the_norm(gain: Tensor, bias: Tensor, W: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """One linear layer in place of a gain, a bias and a linear layer.

    gain, bias: (d_model,)   W: (d_model, d_out)   b: (d_out,)
    returns W_folded (d_model, d_out) and b_folded (d_out,), such that
    (y * gain + bias) @ W + b equals y @ W_folded + b_folded for every y
    """
    ...  # solution

# %% check="fold_the_norm"
check("fold_the_norm", fold_the_norm)

# %% [markdown]
# ---
# Before you hand in: *Kernel → Restart Kernel and Run All Cells*, so that nothing depends on a cell that you have since
# deleted, and press *Validate*. Validate runs every check on a fresh kernel, as the grader will.
