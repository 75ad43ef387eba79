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
# You build the parts of [lecture @deep_stacks](@deep_stacks) that let attention and the feed-forward network be
# stacked: **LayerNorm** and **RMSNorm**, a **pre-norm** and a **post-norm block**, and the stack. On the way you
# build an instrument that measures the branches of a trained language model, and at the end you repair a block that
# trains well although it is wrong.
#
# After each check comes a cell that *uses* what you wrote; in exercises 5 and 7, for example, stacks of twelve of
# your blocks learn to spell. Such a cell waits until the check gives all points, and it is not graded.
#
# Each answer is a few lines long. The check that follows it tells you at once what is right and what is not; another
# check, with other numbers and sizes, decides your points.
#
# Two rules hold throughout: return new tensors and do not change the tensors that come in, and let a gradient through
# wherever something is to be learned.
#
# {exercises}
#
# If you are stuck, `hint("layer_norm", 1)` prints a hint; the later hints of an exercise tell more. Your answers are
# refused if they call the course's own norms and blocks, or torch's norms in exercises 2 and 3.

# %% locked=true
try:
    from attncourse import check, hint, solved
except ModuleNotFoundError:
    raise ImportError(
        "This notebook needs the attncourse package: open it with `make lab` in the course's "
        "folder, or choose a kernel of the environment in which you installed the course."
    ) from None

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn

torch.set_num_threads(1)  # models as small as these gain nothing from a second thread

# %% [markdown]
# ## 1 · The gradient of a residual stack
#
# Each layer of a stack computes $x_\ell = x_{\ell-1} + f_\ell(x_{\ell-1})$. (A layer here is one sublayer with its
# residual connection, so a block is two of the $L$ layers.) You are given the Jacobians of the *branches*,
# $J_1, \dots, J_L$, each taken at the vector that its layer reads. How does $x_L$ change with $x_0$? Mind the order,
# and what to return for a stack with no layers.

# %% exercise="stack_jacobian"
def stack_jacobian(jacobians: Tensor) -> Tensor:
    """How x after a stack of residual layers changes with x before it.

    jacobians: (L, d, d), from the first layer to the last; L may be 0
               row i, column j is ∂output_i/∂input_j
    returns (d, d): row i, column j is ∂x_L[i]/∂x_0[j]
    """
    ...  # solution

# %% check="stack_jacobian"
check("stack_jacobian", stack_jacobian)

# %% [markdown]
# **Use it.** The cell compares your product with autograd's for two stacks of ten residual layers, the second of
# which has small branches, as GPT-2 has at the start. *Guess:* by what factor does each stack stretch a small step of
# $x$ on its way up, on average: about 1, 3 or 30? And a gradient on its way down?

# %%
if solved("stack_jacobian"):
    jacobian = torch.autograd.functional.jacobian
    for scale in (1.0, 1 / math.sqrt(10)):
        torch.manual_seed(0)
        matrices = scale * torch.randn(10, 16, 16) / 4                  # (L, d, d)
        x = x_0 = torch.randn(16)                                       # (d,)
        branches = []
        for W in matrices:
            branches.append(jacobian(lambda y, W=W: (W @ y).tanh(), x))
            x = x + (W @ x).tanh()

        def stack(x, matrices=matrices):
            for W in matrices:
                x = x + (W @ x).tanh()
            return x

        yours, theirs = stack_jacobian(torch.stack(branches)), jacobian(stack, x_0)
        print(f"branches × {scale:.2f}: off by {(yours - theirs).abs().max():.0e}; "
              f"a step of x grows by {yours.norm() / 4:.1f} on average")

# %% [markdown]
# <details><summary>What to see</summary>
#
# Ten layers with branches of full size stretch a step of $x$ by 3.4, on average over its directions. They stretch a
# gradient on its way down just as much, because it meets the same matrices, transposed. With branches of size
# $1/\sqrt{10}$ the factor is 1.3, so the gradient arrives at about the size at which it left. GPT-2 makes its
# branches small in the same way: at the start, it divides what each of them writes by the square root of their
# number, which also keeps the size of $x$ in order. Your product and autograd's agree up to rounding.</details>

# %% [markdown]
# ## 2 · LayerNorm
#
# $$
# \mu = \frac1d \sum_{c=1}^{d} x_c \qquad \sigma^2 = \frac1d \sum_{c=1}^{d} (x_c - \mu)^2 \qquad
# \operatorname{LayerNorm}(x) = \frac{x - \mu}{\sqrt{\sigma^2 + \varepsilon}} \odot \gamma + \beta
# $$
#
# Here $x$ is one vector with $d$ entries, and the gain $\gamma$ (`weight`, as in torch) multiplies it entry by entry.
# The norm acts on the last axis alone, and any axes may stand in front of it: those of a batch of sentences, that of
# one sentence, or none.

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
# **Use it.** The cell compares your function with torch's layer, whose gain and bias are set as if they had been
# trained. *Guess:* how does the output change if every vector is made ten times as large and shifted by 7? And if it
# is made a thousand times smaller?

# %%
if solved("layer_norm"):
    torch.manual_seed(0)
    theirs = nn.LayerNorm(512)
    nn.init.normal_(theirs.weight, mean=1.0, std=0.3)
    nn.init.normal_(theirs.bias, std=0.3)
    x = torch.randn(2, 7, 512)                           # (batch, n, d_model)
    for name, inputs in {"x": x, "10 x + 7": 10 * x + 7, "x / 1000": x / 1000}.items():
        yours = layer_norm(inputs, theirs.weight, theirs.bias, theirs.eps)
        from_torch = (yours - theirs(inputs)).abs().max().item()
        moved = (yours - theirs(x)).abs().max().item()
        print(f"{name:>8}: {from_torch:.0e} from torch's layer, "
              f"{moved:.0e} from what it makes of x")

# %% [markdown]
# <details><summary>What to see</summary>
#
# Multiplying by ten and adding 7 makes hardly any difference, because subtracting the mean removes the shift, and
# dividing by the standard deviation removes the factor. What is left is mostly the effect of $\varepsilon$. A
# thousandth of $x$, however, gives a clearly different output: its variance is about $10^{-6}$, less than
# $\varepsilon = 10^{-5}$, so the norm no longer brings it to size one.</details>

# %% [markdown]
# ## 3 · RMSNorm
#
# $$
# \operatorname{RMSNorm}(x) = \frac{x}{\sqrt{\frac1d \sum_c x_c^2 + \varepsilon}} \odot \gamma
# $$
#
# In contrast to LayerNorm, nothing is subtracted, and there is no bias.

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
# **Use it: QK-norm.** Attention scores are products of queries and keys, so if these grow during training, the
# softmax becomes almost one-hot. The cell puts your norm in front of the product, on queries and keys that have
# grown. *Guess:* how large is the largest of 200 attention weights, on average over the queries, without the norm and
# with it?

# %%
if solved("rms_norm"):
    torch.manual_seed(0)
    queries, keys = 6 * torch.randn(2, 200, 32)          # (n, d_k) each: grown during training
    gain = torch.ones(32)
    for name, q, k in (("without", queries, keys),
                       ("with", rms_norm(queries, gain, 1e-6), rms_norm(keys, gain, 1e-6))):
        weights = (q @ k.mT / math.sqrt(32)).softmax(dim=-1)            # (n, n)
        largest = weights.max(dim=-1).values.mean()
        print(f"{name:>8} QK-norm: the largest of 200 weights is {largest:.2f}")

# %% [markdown]
# <details><summary>What to see</summary>
#
# Without the norm, the largest of 200 weights is 0.95 on average, which is nearly a hard lookup with hardly any
# gradient. With the norm it is 0.05; while the gain is 1, no score can exceed $\sqrt{d_k} \approx 5.7$. In a trained
# model the gain is learned, so the model can make its attention sharp again where this helps.</details>

# %% [markdown]
# ## 4 · A pre-norm block
#
# Here you write the *inside of one block*: where its two norms and its two sums stand. (In exercise 5 you put
# finished blocks on top of one another.) From here on, the parts are given to you as functions, each from (batch, n,
# d_model) to (batch, n, d_model), and your task is to connect them. `attend` is the whole self-attention, with its
# heads and its mask; `feed_forward` is the feed-forward network; `norm_1` and `norm_2` are two norms, each with its
# own gain and bias.
#
# The block has two sublayers, each on a branch: attention comes first and uses the first norm, and the feed-forward
# network follows and uses the second. On the residual stream from x to the output there must be no norm.

# %% exercise="pre_norm_block"
def pre_norm_block(
    x: Tensor, attend: Callable, feed_forward: Callable, norm_1: Callable, norm_2: Callable
) -> Tensor:
    """Attention, then the feed-forward network, connected as a pre-norm block.

    x: (batch, n, d_model)
    returns (batch, n, d_model)
    """
    ...  # solution

# %% check="pre_norm_block"
check("pre_norm_block", pre_norm_block)

# %% [markdown]
# **Use it: two predictions.** Neither needs any training. (1) The cell stacks thirty-two of your blocks with random
# sublayers. In the lecture, before training, an attention sublayer wrote 0.81 on average and a feed-forward network
# 0.59, and the squares added up as in a random walk. Here $x$ begins at size one. *Predict* the size after 32 blocks
# from these numbers, then run the cell. (2) Then the first or the last block is removed, in stacks of three seeds.
# *Guess* which removal changes the output more.

# %%
if solved("pre_norm_block"):
    from attncourse.attention import MultiHeadAttention
    from attncourse.layers import FeedForward
    from attncourse.transformer import initialise

    def through(block, without=None, seed=0, blocks=32, d=64):
        """x after each block, (blocks, batch, n, d); the block `without` passes x on."""
        torch.manual_seed(seed)
        x, after = torch.randn(8, 10, d), []             # (batch, n, d)
        with torch.no_grad():
            for number in range(blocks):
                attend, feed_forward = MultiHeadAttention(d, n_heads=4), FeedForward(d, 4 * d)
                initialise(nn.ModuleList([attend, feed_forward]))
                if number != without:
                    x = block(x, attend, feed_forward, nn.LayerNorm(d), nn.LayerNorm(d))
                after.append(x)
        return torch.stack(after)

    whole = through(pre_norm_block)                      # (32, batch, n, d)
    for depth in (2, 8, 32):
        size = whole[depth - 1].square().mean().sqrt()
        walk = math.sqrt(1 + depth * (0.81**2 + 0.59**2))
        print(f"after {depth:>2} blocks: size {size:.1f}, the walk {walk:.1f}")

    def changes(block, number):
        """How much the output of three stacks changes without the block of this number."""
        shares = []
        for seed in range(3):
            whole, less = through(block, None, seed)[-1], through(block, number, seed)[-1]
            shares.append(f"{((less - whole).norm() / whole.norm()).item():.0%}")
        return ", ".join(shares)

    for name, number in (("first", 0), ("last", 31)):
        change = changes(pre_norm_block, number)
        print(f"without the {name} block the output changes by {change}")

# %% [markdown]
# <details><summary>What to see</summary>
#
# (1) The size grows about as the walk does: it is 6.1 after 32 blocks, where the prediction is
# $\sqrt{1 + 32 \cdot (0.81^2 + 0.59^2)} \approx 5.8$; after 2 and 8 blocks it is a little smaller than predicted. (2)
# Without the first block, the output of the three stacks changes by 59 to 85 %. At the bottom $x$ is still small, so
# one block changes much of it; all later blocks then read the changed $x$, and nothing scales the change down later.
# Without the last block, the output changes by 16 to 17 %, because only one step is missing from a large $x$.
# Exercise 7 repeats this with a post-norm block.</details>

# %% [markdown]
# ## 5 · The stack, read at every depth
#
# Exercise 4 was about the inside of a block. Here the blocks are finished, and you write what is *around* them: the
# path through all blocks, and a result for every depth on the way. `blocks` is a list of pre-norm blocks, functions
# of x like yours in exercise 4, and it may have any length, also 0. Do not add residual connections, because they are
# inside the blocks. `final_norm` is one more norm, whose output goes to an output layer that expects vectors of the
# usual size.
#
# Because the residual stream has the same shape everywhere, we can ask what the output layer would read *if the stack
# ended here*: after no block, after one block, and so on. (For language models this is the **logit lens**,
# nostalgebraist 2020.) Return all of these levels, the lowest first. The last level is the output of the whole stack;
# a gradient must flow from it to x.

# %% exercise="pre_norm_stack"
def pre_norm_stack(x: Tensor, blocks: list[Callable], final_norm: Callable) -> Tensor:
    """What an output layer would read if the stack ended here, for every depth.

    x: (batch, n, d_model)   blocks: L functions of x, in their order
    returns (L + 1, batch, n, d_model): level 0 is before the first block, level L the output
    """
    ...  # solution

# %% check="pre_norm_stack"
check("pre_norm_stack", pre_norm_stack)

# %% [markdown]
# **Use it: the logit lens.** Your norm, blocks and stack become a language model, twelve blocks deep, that spells the
# numbers below a thousand. It trains for some seconds, at a learning rate of 0.01 and without a warm-up. For
# comparison, a model that knows only the frequency of each letter has a loss of 2.77 nats per letter. *Guess* the
# loss of your model. Then guess how good it is if it is read after 0, 3, 6 or 9 of its blocks.

# %%
if all(solved(name) for name in ("layer_norm", "pre_norm_block", "pre_norm_stack")):
    from functools import partial

    from attncourse.data.number_words import spelled_numbers

    letters, spelled = spelled_numbers(1000)             # (1000, n + 1), −1 is padding

    class Norm(nn.Module):
        def __init__(self, d):
            super().__init__()
            self.gain, self.bias = nn.Parameter(torch.ones(d)), nn.Parameter(torch.zeros(d))

        def forward(self, x):
            return layer_norm(x, self.gain, self.bias, 1e-5)

    class Speller(nn.Module):
        def __init__(self, block, depth=12, d=32):
            super().__init__()
            self.block = block
            self.token, self.position = nn.Embedding(len(letters), d), nn.Embedding(64, d)
            self.layers = nn.ModuleList()
            for _ in range(depth):
                sublayers = [MultiHeadAttention(d, n_heads=4), FeedForward(d, 4 * d)]
                self.layers.append(nn.ModuleList([*sublayers, Norm(d), Norm(d)]))
            self.final_norm = Norm(d) if block is pre_norm_block else nn.Identity()
            self.output = nn.Linear(d, len(letters))
            initialise(self)

        def forward(self, tokens):                                      # (batch, n)
            x = self.token(tokens) + self.position.weight[: tokens.shape[1]]
            blocks = [partial(self.block, attend=partial(attend, causal=True),
                              feed_forward=feed_forward, norm_1=norm_1, norm_2=norm_2)
                      for attend, feed_forward, norm_1, norm_2 in self.layers]
            levels = pre_norm_stack(x, blocks, self.final_norm)         # (L + 1, batch, n, d)
            return self.output(levels)                   # (L + 1, batch, n, letters)

    def loss_of(model, tokens, level=-1):
        tokens = tokens[:, : int((tokens >= 0).sum(dim=1).max())]
        logits = model(tokens[:, :-1].clamp(min=0))[level]              # (batch, n, letters)
        return nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten(),
                                           ignore_index=-1)

    def learned_to_spell(block, beta=1.0):
        """`beta` shrinks the matrices that DeepNorm shrinks at the start."""
        torch.manual_seed(0)
        model = Speller(block)
        for attend, feed_forward, _, _ in model.layers:
            for linear in (attend.value, attend.output, feed_forward.up, feed_forward.down):
                linear.weight.data *= beta
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-2, betas=(0.9, 0.98))
        for _ in range(80):
            loss = loss_of(model, spelled[torch.randint(1000, (16,))])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        return model

    speller = learned_to_spell(pre_norm_block)
    with torch.no_grad():
        for level in (0, 3, 6, 9, 12):
            read = loss_of(speller, spelled[::5], level)
            print(f"pre-norm, read after {level:>2} of 12 blocks: {read:.2f} nats per letter")

# %% [markdown]
# <details><summary>What to see</summary>
#
# The whole model ends far below 2.77. Read before its first block, it does worse than the letter frequencies; read
# after three of its twelve blocks, it is already far better, and the loss falls further from level to level. All
# blocks read and write one residual stream, so the output layer can use what a few blocks have written, and later
# blocks refine it, although the model was never trained to be read early. (One model of one seed shows that this can
# happen, not that it must.)</details>

# %% [markdown]
# ## 6 · A measurement: how large is each branch?
#
# The lecture used the **branch ratio** to explain why post-norm fails without a warm-up: the size of what a sublayer
# writes, divided by the size of the $x$ to which it is added. There the ratio was one number for a whole batch,
# padding included. Here you build a finer instrument, which works for any stack $x \leftarrow x + f_\ell(x)$ and
# ignores the padding.
#
# `branches` are the functions $f_\ell$ without their residual connections; in a pre-norm stack a branch includes its
# norm. At every branch and for each token, divide the length of what is added by the length of the $x$ to which it is
# added. Only then take the mean over all real tokens of the batch, in which each token counts the same. (No $x$ has
# length 0, and there is at least one branch.)

# %% exercise="branch_ratios"
def branch_ratios(x: Tensor, branches: list[Callable], real: Tensor) -> Tensor:
    """How large each branch is, compared with the x to which it is added.

    x: (batch, n, d_model), in front of the first branch   branches: L functions, in their order
    real: (batch, n), booleans, True where there is a token, False where there is padding
    returns (L,): for each branch the mean of |f(x)| / |x| over the real tokens
    """
    ...  # solution

# %% check="branch_ratios"
check("branch_ratios", branch_ratios)

# %% [markdown]
# **Use it.** The cell applies your instrument to the small language model of lecture @transformer (pre-norm, two
# branches per block), on two lines of documentation of different lengths. For comparison, it also measures three
# untrained models of the same shape. In front of the ratios it prints the length of $x$ before the first branch.
# *Guess:* has training made the ratios of attention larger or smaller, and those of the feed-forward network?

# %%
if solved("branch_ratios"):
    from dataclasses import replace

    from attncourse import pretrained
    from attncourse.data import BOS, Tokenizer, pad_batch
    from attncourse.transformer import LanguageModel
    from attncourse_lessons.results import kept_checkpoint

    trained = pretrained.load(kept_checkpoint("writer")).model.eval()
    tokenizer = Tokenizer.load(kept_checkpoint("writer") / "tokenizer.json")
    lines = ["Return the number of bytes in the file.", "Close it."]
    tokens, real = pad_batch([[BOS, *tokenizer.encode(line)] for line in lines])
    at_the_start = replace(trained.config, scale_embedding=True)
    models = {"trained": trained}
    for seed in range(3):
        torch.manual_seed(seed)
        models[f"untrained, seed {seed}"] = LanguageModel(at_the_start).eval()

    def caught(block, kind):
        """A branch of a pre-norm block as a function of x: its norm and its sublayer."""
        residual = getattr(block, kind)
        if kind == "attention":
            return lambda x: residual.sublayer(residual.norm(x), causal=True)
        return lambda x: residual.sublayer(residual.norm(x))

    for name, model in models.items():
        stack = model.decoder.stack
        branches = [caught(block, kind)
                    for block in stack.blocks for kind in ("attention", "ff")]
        with torch.no_grad():
            x = model.decoder.embedding(tokens)                         # (batch, n, d_model)
            ratios = branch_ratios(x, branches, real)
        print(f"{name:>18}: x {x[real].norm(dim=-1).mean():4.1f}   attention",
              ", ".join(f"{ratio:.2f}" for ratio in ratios[::2]),
              "  feed-forward", ", ".join(f"{ratio:.2f}" for ratio in ratios[1::2]))

# %% [markdown]
# <details><summary>What to see</summary>
#
# Before training, each attention sublayer writes more than the feed-forward network after it, with all three seeds. In
# the trained model it is the other way round, because the ratios of attention have fallen and those of the
# feed-forward network have risen. The embeddings have become about eight times as long, and every branch is smaller
# than the $x$ to which it is added. This is a measurement of one trained model; it does not show that it must be
# so.</details>

# %% [markdown]
# ## 7 · A post-norm block with DeepNorm's factor
#
# The original Transformer has "Add & Norm" after each sublayer: x and the sublayer's output are added, and the sum is
# normalised. DeepNorm puts a factor on x, here called `carry` (α in the paper). In both sums of the block, x counts
# `carry` times and the sublayer's output counts once. The sublayers themselves read x without the factor. With
# `carry` = 1 this is the original block.

# %% exercise="post_norm_block"
def post_norm_block(
    x: Tensor, attend: Callable, feed_forward: Callable, norm_1: Callable, norm_2: Callable,
    carry: float = 1.0,
) -> Tensor:
    """Attention, then the feed-forward network; x counts `carry` times in each sum.

    x: (batch, n, d_model)
    returns (batch, n, d_model)
    """
    ...  # solution

# %% check="post_norm_block"
check("post_norm_block", post_norm_block)

# %% [markdown]
# **Use it.** The cell repeats the two measurements of exercise 4 with your post-norm block. (The cell of exercise 4
# must have run.) *Guess* first: how does the size grow with depth, and which removal changes the output more now?

# %%
if "through" not in globals():
    print("Solve and run exercise 4 first.")
elif solved("pre_norm_block") and solved("post_norm_block"):
    whole = through(post_norm_block)                     # (32, batch, n, d)
    for depth in (2, 8, 32):
        print(f"after {depth:>2} blocks: size {whole[depth - 1].square().mean().sqrt():.1f}")
    for name, number in (("first", 0), ("last", 31)):
        change = changes(post_norm_block, number)
        print(f"without the {name} block the output changes by {change}")

# %% [markdown]
# <details><summary>What to see</summary>
#
# The size is 1.0 at every depth, because each block ends in a norm. The removals change places compared with exercise
# 4: without the first block the output changes by 26 to 50 %, and without the last block by 84 to 92 %. Each norm
# scales the sum down, and with it what earlier blocks have written, so the last block counts most. (These are random
# stacks. A trained stack may differ.)</details>

# %% [markdown]
# **Use it: twelve blocks learn to spell.** The cell repeats the training of exercise 5 with your post-norm block.
# (The cells of exercises 4 and 5 must have run.) DeepNorm has two parts: for 12 blocks, its factor on x is
# $\alpha = (2 \cdot 12)^{1/4} \approx 2.2$, and its value, output and feed-forward matrices begin smaller, by
# $\beta = (8 \cdot 12)^{-1/4} \approx 0.32$. Which of the two is needed? The cell tries neither, the factor alone,
# both, and a larger factor alone. *Guess* which of the four losses are below 2.77.

# %%
if "learned_to_spell" not in globals():
    print("Run the cells of exercises 4 and 5 first.")
elif all(solved(name) for name in
         ("layer_norm", "pre_norm_block", "pre_norm_stack", "post_norm_block")):
    for name, carry, beta in (("post-norm", 1.0, 1.0), ("its factor alone", 2.2, 1.0),
                              ("DeepNorm", 2.2, 0.32), ("a larger factor alone", 5.0, 1.0)):
        model = learned_to_spell(partial(post_norm_block, carry=carry), beta)
        with torch.no_grad():
            loss = loss_of(model, spelled[::5])
        print(f"{name:>21}: carry {carry}, beta {beta:<4}: {loss:.2f} nats per letter")

# %% [markdown]
# <details><summary>What to see</summary>
#
# DeepNorm learns, at least as well as the pre-norm model of exercise 5. Its factor of 2.2 alone fails as plain
# post-norm does, because the branches begin at full size, but a factor of 5 alone works as well. So in these runs
# what counts is how small the branches are compared with x, whichever part makes them small.</details>

# %% [markdown]
# ## 8 · Debugging: four faults in a block that learns
#
# The next cell has a block that was meant to be a pre-norm block. It runs, its shapes are right, and a model made of
# it learns, and yet it has four faults, all of them in `forward`; `__init__` is right.
#
# One thing to know before you look for them: `mask` is (n, n) and True where a position may attend, as everywhere in
# this course. The boolean `attn_mask` of `nn.MultiheadAttention` is the opposite: True where a position may **not**
# attend.

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
# You could find the faults by reading, but tests find them in the next block, too. The next cell begins `faults_of`
# with one **structural test**: if the sublayers write nothing, the block must be the identity. Run it, and add tests
# of your own. Which other properties must a correct block have, whatever its parameters are? For each of the four
# faults, which test would find it without reading the code? At the end of this exercise your tests meet blocks with
# one fault each. (In [assignment @errata_lab](@errata_lab/assignment), exercise 5, such a test is graded.)

# %%
from copy import deepcopy


def faults_of(block: nn.Module, x: Tensor, mask: Tensor) -> list[str]:
    """The names of the tests that a block fails; mask: causal. Add yours."""
    faults = []
    silent = deepcopy(block)                             # the block itself stays as it is
    for layer in (silent.attention.out_proj, silent.down):
        nn.init.zeros_(layer.weight)
        nn.init.zeros_(layer.bias)
    if (silent(x, mask) - x).abs().max() > 1e-4:
        faults.append("sublayers that write nothing: x moves")
    return faults


torch.manual_seed(0)
causal = torch.ones(5, 5, dtype=torch.bool).tril()
print(faults_of(FaultyBlock(8, 2, 16), torch.randn(2, 5, 8), causal))

# %% [markdown]
# Now write the `forward` that was intended. (Copy the faulty one and repair it, or start afresh.)

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
        """x: (batch, n, d_model)
        mask: (n, n), True where a position (row) may attend to another (column)

        returns (batch, n, d_model)
        """
        ...  # solution

# %% check="repair_the_block"
check("repair_the_block", RepairedBlock)

# %% [markdown]
# **Use it.** torch has this block, too: `nn.TransformerEncoderLayer` with `norm_first=True`. The cell copies its
# parameters into your block and compares the outputs, with a causal mask. Then your `faults_of` examines your block
# and three copies of it, A, B and C, each of which has one fault. *Guess:* which of them do your tests find? Add
# tests until all three are found and your own block still passes.

# %%
if solved("repair_the_block"):
    from .faults import one_fault_each

    torch.manual_seed(0)
    theirs = nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True,
                                        norm_first=True)
    for norm in (theirs.norm1, theirs.norm2):            # as if they had been trained
        nn.init.normal_(norm.weight, mean=1.0, std=0.3)
        nn.init.normal_(norm.bias, std=0.3)
    yours = RepairedBlock(32, 4, 64)
    for mine, other in ((yours.norm_1, theirs.norm1), (yours.norm_2, theirs.norm2),
                        (yours.down, theirs.linear2), (yours.up, theirs.linear1),
                        (yours.attention, theirs.self_attn)):
        mine.load_state_dict(other.state_dict())
    x, causal = 3 * torch.randn(2, 6, 32) + 1, torch.ones(6, 6, dtype=torch.bool).tril()
    same = (yours(x, causal) - theirs(x, src_mask=~causal)).abs().max().item()
    print(f"from torch's block: {same:.0e}")
    for kind in (RepairedBlock, *one_fault_each(RepairedBlock)):
        block = kind(32, 4, 64)
        block.load_state_dict(yours.state_dict())
        failed = ", ".join(faults_of(block, x, causal)) or "passes all tests"
        print(f"{kind.__name__:>13}: {failed}")

# %% [markdown]
# <details><summary>What to see</summary>
#
# Your block does the same as torch's, up to rounding. Such a comparison with a trusted implementation is called
# **differential testing**. It needs parameters like those of a trained model, because while both norms have a gain of
# 1 and a bias of 0, using the first norm twice makes no difference.
#
# A has a norm on the stream, B ignores its mask, and C uses its first norm twice. The given test finds A alone. For
# B, change the last position, and compare the outputs at the positions before it. For C, check that every parameter
# has a gradient after a backward pass. Each of these three tests finds what the others do not. (Two of the four
# faults are sums that start from the normalised x; the given test does not tell these two apart.) In code, the two
# missing tests of `faults_of` are:
#
# ```python
# other = torch.cat([x[:, :-1], -x[:, -1:]], dim=1)    # another last token
# if (block(other, mask) - block(x, mask))[:, :-1].abs().max() > 1e-4:
#     faults.append("another last token: the tokens before it move")
# learning = deepcopy(block)
# learning(x, mask).square().sum().backward()
# unused = [name for name, parameter in learning.named_parameters() if parameter.grad is None]
# if unused:
#     faults.append(f"no gradient: {', '.join(unused)}")
# ```
#
# </details>

# %% [markdown]
# ## 9 · A norm over all tokens so far
#
# An engineer wants steadier statistics than those of one token. At position $i$ the engineer's norm takes one mean and
# one variance over all features of the positions $1, \dots, i$ of the same sentence, $i \cdot d$ numbers. Every
# attention layer has a causal mask, and batches are padded on the right.
#
# **(a)** Can the future reach the past through this norm? Can one sentence of a batch change the result of another?
# Give a reason for each answer. **(b)** Now batches are padded on the *left*, and the norm counts the padding. One of
# the two answers changes. Which one, and why? **(c)** Nobody has noticed this, because the loss is as good as before.
# Describe a structural test that finds the fault in (b): what do you change, what do you compare, and what must be
# equal?
#
# Answer in four to seven sentences in all. (3 points)

# %% [markdown] written="a-norm-over-all-tokens-so-far" points=3 minutes=12 difficulty=2
# ### BEGIN SOLUTION
# **Mark scheme.** One point for each.
#
# 1. (a) Half a point for each. The future cannot: the statistics at position $i$ contain no position $j > i$. Another sentence
#    cannot: each sentence has its own statistics, and padding on the right stands after all real tokens, so it enters none of
#    theirs. ("Causal mask" alone is no reason for the first: the mask is in attention, not in the norm.)
# 2. (b) The second. Padding on the left stands *before* every real token, so it is in the statistics of all of them. How much
#    there is depends on the longest sentence of the batch, so the result depends on the company. Half a point for "the
#    padding enters the mean" without a word on other sentences. (Also right: the amount of padding tells how long the text
#    itself will be, and this is a leak of its own. It does not replace the first reason.)
# 3. (c) One sentence alone, and beside a longer one (or with more padding): the outputs at its real tokens must be equal up to
#    rounding. The answer must say what is compared with what, and what must be equal. Changing a later token, as in the leak
#    test, does not find (b) and earns nothing. "Look at the validation loss" earns nothing.
# ### END SOLUTION

# %% [markdown]
# ## 10 · Where does the gradient go?
#
# Exercise 1 was about $\partial x_L / \partial x_0$ for $L$ layers $x_\ell = x_{\ell-1} + f_\ell(x_{\ell-1})$. Now there is a
# norm in each layer as well. Let $J_\ell$ be the Jacobian of $f_\ell$ and $N_\ell$ that of the norm, each at what it reads.
# ($J_{ij} = \partial y_i / \partial x_j$, as in the lecture.)
#
# **(a)** Write the product for a post-norm stack and for a pre-norm stack (without its final norm), in the right order.
# What is left of each if all $f_\ell$ are constant? **(b)** Let them be constant, all gains 1, all biases 0 and $\varepsilon =
# 0$; $x_0$ is one token's vector. Name two directions in which a small change of $x_0$ does not get through the post-norm stack
# at all. Does the pre-norm stack pass these changes on, and why? Answer in three to five lines. (2 points)

# %% [markdown] written="where-does-the-gradient-go" points=2 minutes=10 difficulty=2
# ### BEGIN SOLUTION
# **Mark scheme.** One point for each.
#
# 1. (a) Half a point for each. Post-norm: $N_L (I + J_L) \cdots N_1 (I + J_1)$; for constant $f_\ell$ every $J_\ell$ is 0, and
#    $N_L \cdots N_1$ is left, which is not $I$. Pre-norm: $(I + J_L N_L) \cdots (I + J_1 N_1)$, of which $I$ is left. The *last*
#    layer is on the left; the other order, or none, costs half a point once. (Whoever says that vectors are rows and
#    $J_{ij} = \partial y_j / \partial x_i$ may reverse it.)
# 2. (b) Half a point for the two directions: $(1, \dots, 1)$, which the first norm's mean takes away, and $x_0 + f_1$, what this
#    norm reads and divides by its size. (Also right: any combination of the two, such as $x_0 + f_1$ minus its mean. "Along
#    $x_0$" is wrong: it is right if $f_1 = 0$, but in general the norm reads another vector.) Half a point for "yes, unchanged":
#    every $J_\ell$ is 0, so the norms on the branches do not matter, and $I$ is left. "Yes" without a reason earns nothing.
# ### END SOLUTION

# %% [markdown]
# ## Extension: fold the norm away
#
# This exercise is worth extra credit, and you lose nothing by leaving it out.
#
# In a pre-norm block a linear layer follows directly on the norm's gain $\gamma$ and bias $\beta$:
# $(y \odot \gamma + \beta)\,W + b$, where $y$ is the vector with mean 0 and variance 1. Two linear maps in a row are
# one linear map, so a single layer can do the same to $y$, and the norm then needs no parameters. Find the matrix and
# the bias of this layer. (Folding is the first step when a trained model is examined, or made to run fast.)

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
# **Use it.** The cell compares a layer behind a norm with 1,024 parameters with your folded layer, whose norm has none:

# %%
if solved("fold_the_norm"):
    torch.manual_seed(0)
    norm, linear = nn.LayerNorm(512), nn.Linear(512, 64)
    nn.init.normal_(norm.weight, mean=1.0, std=0.3)
    nn.init.normal_(norm.bias, std=0.3)
    W, b = fold_the_norm(norm.weight, norm.bias, linear.weight.mT, linear.bias)
    x = 5 * torch.randn(3, 7, 512) + 2                                  # (batch, n, d_model)
    y = nn.functional.layer_norm(x, (512,))                             # no gain, no bias
    print(f"off by {(linear(norm(x)) - (y @ W + b)).abs().max().item():.0e}")

# %% [markdown]
# <details><summary>What to see</summary>
#
# The two outputs differ only by rounding. The folded layer costs no more than the linear layer alone, and the norm is
# left without parameters.</details>
