# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3 (ipykernel)
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Assignment @self_attention · Self-attention
#
# In this assignment you write the scaled dot-product self-attention of [lecture @self_attention](@self_attention)
# twice: first token by token, following its sums, and then with matrices. Next, you write tests that find the mistakes
# in a fellow student's layer without reading it, and at the end, you compare the costs of four kinds of layer. The code
# is short; the difficulty is to be sure who asks, who answers, and along which axis the softmax runs. Each check is
# followed by a cell that *uses* what you wrote. It waits until the check gives all points, and it is not graded.
#
# Each exercise has a check below it. Run the check as often as you like, even before you have written anything. It
# tells you what it found, what it expected and, if it recognises your mistake, what you were probably thinking. A check
# with other numbers and other sizes decides your points, so an answer that is fitted to the visible check will not
# pass.
#
# {exercises}
#
# If you are stuck, `hint("self_attention_loop", 1)` prints a hint; the later hints of an exercise tell you more.
# Answers that call the course's own attention or its counts, or torch's attention, are refused, because here you build
# them yourself. Use torch operations throughout, without `.item()`, `.detach()` or NumPy, because most checks also test
# whether a gradient flows from what you return back to what you were given.

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

from attncourse import viz

torch.set_num_threads(1)  # models as small as these gain nothing from a second thread

# %% [markdown]
# ## 1 · One token at a time
#
# A sentence is a matrix with one token in each row, $x_1, \dots, x_n$. Every token gets three vectors: a query to ask
# with, a key to be found by, and a value to hand over:
#
# $$q_i = x_i W_Q \qquad k_i = x_i W_K \qquad v_i = x_i W_V$$
#
# Then each token $i$ asks, and all tokens $j$ answer, including token $i$ itself:
#
# $$e_{ij} = \frac{q_i \cdot k_j}{\sqrt{d_k}} \qquad \alpha_{ij} = \frac{\exp(e_{ij})}{\sum_{j'} \exp(e_{ij'})} \qquad
# o_i = \sum_{j} \alpha_{ij} \, v_j$$
#
# Turn these formulas directly into code: a loop over the tokens that ask and, inside it, a loop over the tokens that
# answer (or one product instead of the inner loop). Write the softmax yourself, without any `softmax` or `logsumexp` of
# torch, and make sure that no exponential overflows, as in [assignment @getting_ready](@getting_ready/assignment): the check tries scores of
# several hundred. In the next exercise, matrices replace the loops.

# %% exercise="self_attention_loop"
def self_attention_loop(x: Tensor, W_Q: Tensor, W_K: Tensor, W_V: Tensor) -> Tensor:
    """Self-attention over one sentence, token by token, with scores divided by √d_k.

    x: (n, d_model), a token in each row   W_Q, W_K: (d_model, d_k)   W_V: (d_model, d_v)
    returns (n, d_v): in row i what token i received
    """
    ...  # solution

# %% check="self_attention_loop"
check("self_attention_loop", self_attention_loop)

# %% [markdown]
# **Use it.** Take *Anna lent Ben her book because he asked*, with the lecture's hand-made matrices. The 6 in $W_Q$ sets
# how sharp the softmax is. Here we try 1, 6 and 600. *Guess* how much of each name *her*, *lent* and *book* receive.

# %%
if solved("self_attention_loop"):
    words = ["Anna", "lent", "Ben", "her", "book", "because", "he", "asked"]
    X = torch.zeros(8, 6)                                        # (n, d_model)
    X[[0, 1, 2, 3, 4, 6, 7], [0, 4, 1, 2, 5, 3, 4]] = 1.0        # "because" has no feature
    W_Q, W_K, W_V = torch.zeros(6, 2), torch.zeros(6, 2), torch.zeros(6, 2)
    W_K[0, 0] = W_K[1, 1] = 1.0                                  # who is found
    W_V[0, 0] = W_V[1, 1] = 1.0                                  # names hand over themselves
    for sharpness in (1.0, 6.0, 600.0):
        W_Q[2, 0] = W_Q[3, 1] = W_Q[4, 0] = W_Q[4, 1] = sharpness        # who is looked for
        output = self_attention_loop(X, W_Q, W_K, W_V)           # (n, d_v)
        for word in ("her", "lent", "book"):
            anna, ben = output[words.index(word)].tolist()
            print(f"{sharpness:>4.0f}: {word:>4} receives {anna:.2f} of Anna, {ben:.2f} of Ben")

# %% [markdown]
# At 600, a score is $600/\sqrt{2}$ = 424, and exp(424) is too large for a float32, but your softmax survives because it
# subtracts the maximum. Now look at *lent*: its scores for the two names are equal, so no sharpness can tell the lender
# from the borrower.

# %% [markdown]
# ## 2 · All tokens at once
#
# No token waits for what another token computes, so you can drop the loops and compute a whole batch of sentences with
# a few matrix products:
#
# $$Q = X W_Q \qquad K = X W_K \qquad V = X W_V \qquad A = \operatorname{softmax}\!\left(\frac{Q K^\top}{\sqrt{d_k}}\right)
# \qquad O = A V$$
#
# The softmax makes every *row* of the attention matrix sum to one. Here you may use `.softmax`. Return the output first
# and the weights second.

# %% exercise="self_attention"
def self_attention(x: Tensor, W_Q: Tensor, W_K: Tensor, W_V: Tensor) -> tuple[Tensor, Tensor]:
    """Self-attention over each sentence of a batch, without a loop, scores divided by √d_k.

    x: (batch, n, d_model)   W_Q, W_K: (d_model, d_k)   W_V: (d_model, d_v)
    returns output (batch, n, d_v) and weights (batch, n, n), in this order;
    row i of an attention matrix says how much token i attends to each token
    """
    ...  # solution

# %% check="self_attention"
check("self_attention", self_attention)

# %% [markdown]
# **Use it.** The task is the lecture's diary: each of seven shuffled cards must say what there will be for dinner
# tomorrow. Your function is the layer, and the rest is embeddings and an optimiser. The lecture's queries and keys have
# 32 numbers. Are two numbers, or even a single one, enough to tell seven days apart? *Guess* for how many of the seven
# days a layer with $d_k$ = 1 will be right. The six training runs take a few seconds.

# %%
if solved("self_attention"):
    from attncourse.data.diary import DAYS, MEALS, shuffled_weeks

    def right_by_day(d_k, seed, d=32):
        torch.manual_seed(seed)
        draws = torch.Generator().manual_seed(seed)
        day, meal = nn.Embedding(7, d), nn.Embedding(len(MEALS), d)
        widths = (d_k, d_k, len(MEALS))
        matrices = [nn.Parameter(torch.randn(d, d_out) / math.sqrt(d)) for d_out in widths]
        learned = [*day.parameters(), *meal.parameters(), *matrices]
        optimizer = torch.optim.Adam(learned, lr=1e-2)
        for _ in range(400):
            days, meals, tomorrow = shuffled_weeks(64, draws)        # (64, 7) each
            output, _ = self_attention(day(days) + meal(meals), *matrices)
            loss = nn.functional.cross_entropy(output.flatten(0, 1), tomorrow.flatten())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        days, meals, tomorrow = shuffled_weeks(1000, draws)          # weeks it never saw
        output, _ = self_attention(day(days) + meal(meals), *matrices)
        right = output.argmax(dim=-1) == tomorrow                    # (1000, 7)
        return [right[days == each].float().mean().item() for each in range(7)]

    print("cards right by day   ", *(f"{day:>5}" for day in DAYS))
    for d_k in (2, 1):
        for seed in range(3):
            shares = right_by_day(d_k, seed)
            print(f"    d_k = {d_k}, seed {seed}  ", *(f"{share:5.0%}" for share in shares))

# %% [markdown]
# Two numbers are enough, because seven directions fit into a plane. With one number, a score is a product $q_i k_j$ of
# two numbers, so a positive query scores highest with the largest key and a negative one with the smallest. Only the
# days with these two keys can be found, so the layer is right for the two days before them. It guesses the others, like
# the lecture's fixed weights. (Lecture @many_heads comes back to the width of heads.)

# %% [markdown]
# ## 3 · Debugging: test a layer for padded sentences
#
# Sentences of different lengths share a batch, so the short ones are filled up with padding. **Padding must not
# answer**: a real token must receive the same output with and without padding, wherever in the sentence the padding is.
# Padding itself receives zeros. The next cell contains a fellow student's layer. It runs, its shapes are right and
# padding comes out as zeros, but it is wrong, and no error says so.
#
# Do not read its code. *Test* it instead, by three rules that hold for every such layer:
#
# 1. **Padding.** If other numbers are written into the padding, real tokens receive the same as before.
# 2. **Mean.** In a batch without padding, a token whose query is zero has the same score for every token, so it
#    receives the mean of all values. (Give the token feature 0 alone, and set row 0 of $W_Q$ to zero, but not row 0 of
#    $W_K$, or a layer that confuses query and key would pass.)
# 3. **Feature.** If every token gets one more feature, which is zero, and each matrix one more row of any numbers, the
#    output stays the same.
#
# Write one test for each rule. The check gives your function right layers and wrong ones, and each wrong layer breaks
# one rule, two or all three. A test earns its point if it finds every layer that breaks its rule and accuses no other.
# A broken rule moves some number by more than 0.01, and rounding moves no number by more than 0.00001. Return `False`
# for a rule that you do not test yet.

# %%
def suspicious(x, real, W_Q, W_K, W_V):
    Q, K, V = x @ W_Q, x @ W_K, x @ W_V                              # (batch, n, …) each
    scores = K @ Q.mT / math.sqrt(x.shape[-1])                       # (batch, n, n)
    A = scores.softmax(dim=-1) * real[:, None]                       # padding does not answer
    return A @ V * real[..., None]                                   # (batch, n, d_v)

# %% exercise="broken_rules"
def broken_rules(
    layer: Callable[[Tensor, Tensor, Tensor, Tensor, Tensor], Tensor],
    x: Tensor, real: Tensor, W_Q: Tensor, W_K: Tensor, W_V: Tensor,
) -> tuple[bool, bool, bool]:
    """Which of the three rules a layer breaks: padding, mean, feature.

    layer: layer(x, real, W_Q, W_K, W_V), in this order and without names, for tensors of any
        sizes that fit together; returns (batch, n, d_v)
    x: (batch, n, d_model)   real: (batch, n), boolean, True where a token is and no padding
    W_Q, W_K: (d_model, d_k)   W_V: (d_model, d_v)
        x to W_V are a batch to begin with, with padding; change copies of them
    returns three truth values in the order of the rules, True where a rule is broken
    """
    ...  # solution

# %% check="broken_rules"
check("broken_rules", broken_rules)

# %% [markdown]
# **Use it** on two layers: the suspicious one, and your own layer of exercise 2, which does not look at `real`. *Guess
# first:* which of the three rules does your own layer break, and how many does the suspicious one break?

# %%
def exercise_2(x, real, W_Q, W_K, W_V):
    return self_attention(x, W_Q, W_K, W_V)[0]


def verdict(layer):
    draws = torch.Generator().manual_seed(0)
    x, real = torch.randn(3, 6, 8, generator=draws), torch.ones(3, 6, dtype=torch.bool)
    real[1, 4:], real[2, 1] = False, False                           # at the end, in the middle
    matrices = torch.randn(3, 8, 4, generator=draws) / 2
    broken = broken_rules(layer, x, real, *matrices)
    rules = zip(("padding", "mean", "feature"), broken, strict=True)
    return ", ".join(f"{rule} {'BROKEN' if found else 'kept'}" for rule, found in rules)


if solved("broken_rules") and solved("self_attention"):
    print("exercise 2:", verdict(exercise_2))
    print("suspicious:", verdict(suspicious))

# %% [markdown]
# Your layer of exercise 2 breaks only the first rule, because its softmax gives padding some weight. The suspicious
# layer breaks all three, although its mask looks right.
#
# ## 4 · A layer for padded sentences
#
# Now read the code of `suspicious`: each broken rule points at one mistake. Write the layer as it should be. While you
# work, `verdict(padded_self_attention)` tells you which rules it still breaks.

# %% exercise="padded_self_attention"
def padded_self_attention(
    x: Tensor, real: Tensor, W_Q: Tensor, W_K: Tensor, W_V: Tensor
) -> Tensor:
    """Self-attention over each sentence of a padded batch, scores divided by √d_k.

    x: (batch, n, d_model)   real: (batch, n), boolean, True where a token is and no padding;
                             in each sentence there is at least one
    W_Q, W_K: (d_model, d_k)   W_V: (d_model, d_v)
    returns (batch, n, d_v); zeros where there is padding
    """
    ...  # solution

# %% check="padded_self_attention"
check("padded_self_attention", padded_self_attention)

# %% [markdown]
# **Use it.** *Anna lent Ben her book* goes through your layer and the suspicious one, first alone and then in a batch
# with a longer sentence. *Guess* by how much each token's vector moves when its sentence shares a batch: by a rounding
# error, by a few per cent, or by more than a quarter of its own length?

# %%
if solved("padded_self_attention"):
    torch.manual_seed(1)
    embedding, matrices = nn.Embedding(11, 16), torch.randn(3, 16, 16) / 4
    short, long = torch.tensor([1, 2, 3, 4, 5]), torch.arange(1, 11)    # (5,) and (10,)
    both = torch.stack([nn.functional.pad(short, (0, 5)), long])     # (2, 10)  0 is the pad
    real = torch.arange(10) < torch.tensor([5, 10])[:, None]         # (2, 10)
    alone = torch.ones(1, 5, dtype=torch.bool)                       # (1, 5)
    for name, layer in {"yours": padded_self_attention, "suspicious": suspicious}.items():
        with torch.no_grad():
            first = layer(embedding(short)[None], alone, *matrices)[0]
            second = layer(embedding(both), real, *matrices)[0, :5]
        moved = (second - first).norm(dim=-1) / first.norm(dim=-1)   # (5,)
        print(f"{name:>10}: moved by", ", ".join(f"{share:.0%}" for share in moved.tolist()))

# %% [markdown]
# In your layer, a token receives the same output in any batch. In the suspicious layer, its vector moves by more than a
# quarter of its length, only because a longer sentence is in the batch: padding takes weight in the softmax, and this
# weight is thrown away afterwards. Do your own tests acquit your layer?

# %%
if solved("padded_self_attention") and solved("broken_rules"):
    print("yours:", verdict(padded_self_attention))

# %% [markdown]
# ## 5 · What a layer costs
#
# Now count the costs of four kinds of layer over a sequence of $n$ positions, in which every vector is $d$ wide (so
# $d_k = d_v = d_\text{model} = d$):
#
# | kind | what it does |
# |---|---|
# | `"self-attention"` | the layer above: three projections $XW_Q$, $XW_K$, $XW_V$, the scores, the average |
# | `"restricted"` | the same, but a position attends only to itself and `width` positions on each side |
# | `"recurrent"` | $h_t = \tanh(x_t W + h_{t-1} U)$ at each position, with $W$ and $U$ both $d \times d$ |
# | `"convolution"` | a $d \times d$ matrix for each place of a window (the position itself and `width` on each side); the products are added up |
#
# Return three numbers for each layer.
#
# * **Multiply-adds** of all matrix products: an (a, b) matrix times a (b, c) matrix takes $a \cdot b \cdot c$. Softmax,
#   tanh, the scaling and other operations on single numbers do not count. A window holds $2 \cdot \texttt{width} + 1$
#   positions, or $n$ if that is fewer. Count it as full at the ends of the sequence, too.
# * **Sequential steps**: the number of positions of *one* layer that must be computed one after the other, because each
#   needs the one before. If no position has to wait, the answer is 1.
# * **Path length**: a signal goes from the first position to the last. For the recurrent layer, count the cells that it
#   passes through, including the first and the last. For the other kinds, count the layers that must be stacked until
#   it can arrive. The number of layers is whole, so round up; the answer is at least 1.
#
# Here are four examples to check by hand:
#
# | call | multiply-adds | steps | path |
# |---|---|---|---|
# | `layer_cost("self-attention", 2, 3)` | 78 | 1 | 1 |
# | `layer_cost("recurrent", 2, 3)` | 36 | 2 | 2 |
# | `layer_cost("restricted", 8, 3, 3)` | 552 | 1 | 3 |
# | `layer_cost("convolution", 10, 3, 3)` | 630 | 1 | 3 |

# %% exercise="layer_cost"
def layer_cost(kind: str, n: int, d: int, width: int | None = None) -> tuple[int, int, int]:
    """What one layer over n positions of width d costs.

    kind: "self-attention", "restricted", "recurrent" or "convolution"
    width: for "restricted" and "convolution" how many positions on each side are in the window,
           at least 1; otherwise None
    returns multiply-adds, sequential steps, path length, in this order
    """
    ...  # solution

# %% check="layer_cost"
check("layer_cost", layer_cost)

# %% [markdown]
# **Use it.** Take a document of 4,000 tokens and $d$ = 512. From your two formulas for multiply-adds, find on paper the
# $n$ above which full attention costs more than a convolution of ±$w$. Then *guess*: how wide can a convolution be at
# 4,000 tokens before it costs as much as full attention? And which layer would you choose if only the arithmetic
# counts, only the steps, or only the path?

# %%
if solved("layer_cost"):
    layers = [("self-attention", None), ("recurrent", None), ("restricted", 8)]
    for kind, width in [*layers, *(("convolution", k) for k in (3, 5, 7, 9, 11))]:
        products, steps, path = layer_cost(kind, 4000, 512, width)
        print(f"{kind:>15}{f' ±{width}' if width else '':<4}: {products / 1e9:5.1f} billion",
              f"multiply-adds, steps {steps:>4}, path {path:>4}")

# %% [markdown]
# Of these convolutions, ±9 is the narrowest that costs more than full attention, and its path is still 445 layers long.
# On paper, $3nd^2 + 2n^2d > (2w + 1)\,nd^2$ if $n > d\,(w - 1)$. For ±9 this is $n > 4096$, so at 4,000 tokens the
# convolution still costs a little more.
#
# If a short path counts, choose full attention; if steps count, any layer except the recurrence. The recurrence takes
# the least arithmetic, but every position waits for the one before. In restricted attention, no position waits and the
# arithmetic is cheap, but the path is long.

# %% [markdown]
# ## 6 · In your own words
#
# A fellow student wants to save parameters and sets $W_K = W_Q$. The matrix of scores is then symmetric, as the lecture
# shows.
#
# **(a)** Is the attention matrix symmetric too? Prove it, or refute it with symmetric scores of two tokens. Then say
# exactly for which symmetric scores the weights are symmetric. (2 points)
#
# **(b)** Seven days form a circle, and each day should attend most to the next: the weight of token $i$ on token $i + 1$
# should be *strictly larger* than each of its other weights, and likewise the weight of token 7 on token 1. Show that
# this is impossible, using only the symmetry of the scores. (The lecture argues with the lengths of vectors. Your proof
# should hold for all symmetric scores, even if they are not dot products, and even if no token may attend to itself.)
# (1 point)
#
# **(c)** In a row, where the last token need not attend to the first, it is possible. Give three vectors
# $u_1, u_2, u_3$ in the plane, each of them both query and key, such that the weight of token 1 on token 2 is strictly
# larger than each of its other weights, and so is the weight of token 2 on token 3. Write down the nine scores
# $u_i \cdot u_j$ (divided by $\sqrt{d_k}$ or not: the order stays the same). (1 point)
#
# **(d)** Another layer adds a learned number $b_{j-i}$ to each score $e_{ij}$ before the softmax. Is it permutation
# equivariant? If not, say at which step the lecture's proof fails. (1 point)
#
# Answer in six to twelve sentences or lines of mathematics.

# %% [markdown] written="one-matrix-for-two-roles" points=5 minutes=25 difficulty=2
# ### BEGIN SOLUTION
# **Mark scheme.** One point for each.
#
# 1. (a) Not in general. Scores with rows (0, 0) and (0, 1) give $\alpha_{12} = 1/2$ and $\alpha_{21} = 1/(1 + \mathrm{e})$. (Any
#    example with its two weights.)
# 2. (a) $\alpha_{ij} = \exp(e_{ij}) / Z_i$ and $\alpha_{ji} = \exp(e_{ij}) / Z_j$, where $Z_i$ is the sum of row $i$'s
#    exponentials. Exponentials are positive, so the two weights are equal exactly if $Z_i = Z_j$: the weights are
#    symmetric if and only if all rows have the same sum. Half a point for "every row has its own sum" without the
#    condition.
# 3. (b) The largest weight of a row is where its largest score is. So $e_{i,i+1} > e_{i,i-1} = e_{i-1,i}$ for every
#    $i$: the scores grow from each step of the circle to the next, all the way round, until one is larger than itself.
#    Half a point for an argument that needs dot products (lengths, Cauchy–Schwarz), if it is sound.
# 4. (c) Any three vectors that do it, with their scores. For instance $u_1 = (1, 0)$, $u_2 = (1.5, 1)$, $u_3 = (1, 3)$: token
#    1 has the scores (1, 1.5, 1), token 2 (1.5, 3.25, 4.5), token 3 (1, 4.5, 10). Half a point for right vectors with an
#    arithmetical slip in the scores, or for the idea alone (each longer than the one before, and turned away from it).
# 5. (d) No, except if all $b_{j-i}$ with $j \ne i$ are equal. The proof fails at the scores: with $B_{ij} = b_{j-i}$,
#    those of $PX$ are $P\,QK^\top P^\top + B$ (with or without $\sqrt{d_k}$) and not $P\,(QK^\top + B)\,P^\top$,
#    because $B$ belongs to the places and does not move with the tokens. Half a point for "no" with the reason (the
#    layer sees how far apart the places are), but without the step. The exception need not be named.
# ### END SOLUTION

# %% [markdown]
# ## Extension: restricted self-attention
#
# This exercise is for extra credit; you lose nothing if you leave it out.
#
# If a sequence is long, each token can be restricted to its neighbourhood: itself and `width` tokens on each side
# ([@vaswani2017], section 4, call this restricted self-attention). Compute all the scores as before, and forbid those
# of tokens that are too far away. This gives the right result but saves no work; lecture @cheap_attention shows how to
# save it.

# %% exercise="restricted_self_attention"
def restricted_self_attention(
    x: Tensor, W_Q: Tensor, W_K: Tensor, W_V: Tensor, width: int
) -> tuple[Tensor, Tensor]:
    """Self-attention in which token i sees only the tokens j with |i − j| ≤ width.

    x: (batch, n, d_model)   W_Q, W_K: (d_model, d_k)   W_V: (d_model, d_v)   width: at least 0
    returns output (batch, n, d_v) and weights (batch, n, n), 0 where a token does not see
    """
    ...  # solution

# %% check="restricted_self_attention"
check("restricted_self_attention", restricted_self_attention)

# %% [markdown]
# **Use it.** The cell stacks your layer three times, with random matrices. The gradient shows which of 21 tokens reach
# token 10. *Guess* the first and the last of these tokens, for a width of 2.

# %%
if solved("restricted_self_attention"):
    torch.manual_seed(0)
    x = torch.randn(1, 21, 8, requires_grad=True)
    h = x
    for _ in range(3):
        W_Q, W_K, W_V = torch.randn(3, 8, 8) / math.sqrt(8)
        h, _ = restricted_self_attention(h, W_Q, W_K, W_V, width=2)
    (gradient,) = torch.autograd.grad(h[0, 10].sum(), x)
    reached = gradient[0].abs().sum(dim=-1).nonzero().flatten().tolist()
    print("these tokens reach token 10:", reached)

# %% [markdown]
# Each layer adds `width` tokens on each side, so three layers reach 6 tokens to the left and 6 to the right. That is
# the path length of your `layer_cost`, seen from token 10.
