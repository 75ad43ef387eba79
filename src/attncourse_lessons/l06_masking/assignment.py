# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3 (ipykernel)
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Assignment @masking · Masks and the feed-forward network
#
# In this assignment you build the two parts of [lecture @masking](@masking): the position-wise feed-forward network
# that follows every attention, and the masks that keep a model from reading what it must not. The third exercise is
# different, because there you write a *test*, and the check runs your test on correct models and on broken ones. Most
# of the faults are modelled on real mistakes. After each check comes a cell that *uses* what you wrote, and after the
# fifth exercise the parts become a language model. Such a cell runs only once your check has full points, and is not
# graded.
#
# Each exercise is followed by a check. Run it as often as you like, even before you have written anything: it tells you
# what it found, what it expected, and, if it recognises your mistake, what you were probably thinking. A check on other
# numbers and other sizes decides your points, so an answer that is fitted to the visible check will not do.
#
# {exercises}
#
# If you are stuck, `hint("feed_forward", 1)` prints a hint; later hints give more away. Your answers
# are refused if they call the course's own attention and layers, or torch's attention: this is the place to build them.

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
import torch.nn.functional as F
from torch import Tensor, nn

torch.set_num_threads(1)  # models as small as these gain nothing from a second thread

# %% [markdown]
# ## 1 · The position-wise feed-forward network
#
# Attention collects information by weighted averages. Then a small network with one hidden layer, the same for every
# position, computes something from what was collected:
#
# $$\operatorname{FFN}(x) = \max(0,\ x W_1 + b_1)\, W_2 + b_2$$
#
# The vectors are rows, and $\max(0, \cdot)$ is the activation function ReLU. Each vector goes through the network by
# itself, so it must not matter how many axes stand in front of the last one: a single vector, a sentence, a batch of
# sentences.
#
# A network can also be *examined*. A hidden unit that is 0 for every vector in x contributes nothing to the output, and no
# gradient reaches it: it is **dead** for these inputs. Your function also returns which units are dead.

# %% exercise="feed_forward"
def feed_forward(
    x: Tensor, W_1: Tensor, b_1: Tensor, W_2: Tensor, b_2: Tensor
) -> tuple[Tensor, Tensor]:
    """Apply the network to every vector, and find the hidden units that are dead.

    x: (..., d_model), any number of axes in front
    W_1: (d_model, d_ff)   b_1: (d_ff,)   W_2: (d_ff, d_model)   b_2: (d_model,)
    returns output (..., d_model) and dead (d_ff,), in this order; dead holds booleans, True for
    a unit that is 0 for every vector in x
    """
    ...  # solution

# %% check="feed_forward"
check("feed_forward", feed_forward)

# %% [markdown]
# **Use it.** The lecture's restaurant: "good", "bad", "not good", "not bad". There two hidden units, found by hand, were
# enough. Here gradient descent must find the units, from ten random starts. *Guess* from how many of the ten starts it
# succeeds, with 2, with 4 and with 16 hidden units.
#
# Your `dead` counts for each start how many hidden units fire for at least one phrase, before training and after it.
# For example, 3→2 means that three units fired at first and two at the end.

# %%
if solved("feed_forward"):
    phrases = torch.tensor([[1.0, 0.0], [0.0, 0.0], [1.0, 1.0], [0.0, 1.0]])     # praise, not
    verdict = torch.tensor([[1.0], [0.0], [0.0], [1.0]])
    for d_ff in (2, 4, 16):
        learned, failed = [], []
        for seed in range(10):
            torch.manual_seed(seed)
            shapes = ((2, d_ff), (d_ff,), (d_ff, 1), (1,))
            parameters = [nn.Parameter(torch.randn(shape)) for shape in shapes]
            optimizer = torch.optim.Adam(parameters, lr=0.03)
            _, dead = feed_forward(phrases, *parameters)
            at_first = (~dead).sum().item()                              # units that fire
            for _ in range(500):
                output, dead = feed_forward(phrases, *parameters)
                loss = (output - verdict).square().mean()
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            fire = f"{at_first}→{(~dead).sum()}"
            (learned if loss < 0.01 else failed).append(fire)
        print(f"{d_ff:>2} hidden units: {len(learned)} of 10 starts learn the verdict")
        print("   units that fire, at first and at the end, where it was learned:", *learned)
        print("   where not:", *failed or ["–"])

# %% [markdown]
# <details><summary>What to see</summary>
#
# With 2, 4 and 16 hidden units, 2, 5 and 10 of the ten starts succeed. The verdict needs two units that fire.
#
# * **Dead units.** A unit that is 0 for all four phrases gets no gradient, so it stays silent: a **dead ReLU**. With 2
#   units nearly all failures begin with one unit dead (1→1, 1→0).
# * **Poor solutions.** With 4 units some starts fail although two units still fire (3→2), because these two are stuck
#   at a poor solution.
# * **Width helps.** With 16 units a network can lose several and still learn.
#
# </details>

# %% [markdown]
# ## 2 · The causal mask, also for a part of the queries
#
# An autoregressive model predicts token $i + 1$ from the tokens up to token $i$. Make the boolean mask that says who may
# attend to whom. Row $i$ is a query, column $j$ is a key, and `True` means "may attend". A position may attend to itself
# and to the positions before it.
#
# In training all tokens are queries at once, so there are as many queries as keys. When a model writes, or *reads* a
# long text in pieces, it keeps the keys of earlier tokens and only the newest tokens are queries, so there are fewer
# queries than keys. In both cases the last query belongs to the same token as the last key, and one function must serve
# both.

# %% exercise="causal_mask"
def causal_mask(n_query: int, n_key: int) -> Tensor:
    """Who may attend to whom, if the queries are the last n_query of n_key positions.

    n_query: from 1 to n_key
    returns (n_query, n_key), booleans: True in row i, column j, if query i may attend to key j
    """
    ...  # solution

# %% check="causal_mask"
check("causal_mask", causal_mask)

# %% [markdown]
# **Use it.** Twelve tokens go through torch's attention: all at once, and in pieces of five, four, two and one, which keep
# the keys and values of the pieces before. With your mask the outputs must agree. *Guess* which of the twelve tokens,
# counted from 0, go wrong if the mask counts the queries of each piece from 0, as torch's `is_causal=True` does.

# %%
if solved("causal_mask"):
    torch.manual_seed(0)
    query, key, value = torch.randn(3, 1, 12, 8)                             # (1, n, d) each
    at_once = F.scaled_dot_product_attention(query, key, value, attn_mask=causal_mask(12, 12))
    for name in ("your mask", "is_causal=True"):
        pieces, read = [], 0
        for n_query in (5, 4, 2, 1):
            n_key = read + n_query
            three = query[:, read:n_key], key[:, :n_key], value[:, :n_key]
            yours = {"attn_mask": causal_mask(n_query, n_key)}
            how = yours if name == "your mask" else {"is_causal": True}
            pieces.append(F.scaled_dot_product_attention(*three, **how))
            read = n_key
        off = (torch.cat(pieces, dim=1) - at_once).abs().amax(dim=(0, 2)) > 1e-5         # (12,)
        print(f"{name:>15}: wrong tokens", off.nonzero().flatten().tolist())

# %% [markdown]
# <details><summary>What to see</summary>
#
# With your mask no token is wrong. `is_causal=True` counts queries and keys from 0, so only the first piece comes out
# right. In the later pieces no query may attend to its nearest keys, not even to its own. (This is torch's documented
# behaviour, an alignment at the upper left corner, whereas your mask is aligned at the lower right.)</details>

# %% [markdown]
# Can two layers leak where one layer does not? Take your mask as numbers and multiply it by itself. The product counts
# the ways from input $j$ (column) through a first layer and a second one to output $i$ (row). *Guess* which cell has the
# most ways, and what stands above the diagonal.

# %%
if solved("causal_mask"):
    layer = causal_mask(6, 6).long()             # (6, 6)  1 where there is a way
    two_layers = layer @ layer                   # (6, 6)  how many ways
    print(two_layers)
    print("ways from the future:", two_layers.triu(1).sum().item())

# %% [markdown]
# <details><summary>What to see</summary>
#
# The lower left corner has the most ways: the last token reads the first one through any of six tokens in between, itself and
# the first included. Above the diagonal all counts are 0. A product of lower triangular matrices is lower triangular, so a
# stack of causal layers is causal, however deep it is.</details>

# %% [markdown]
# ## 3 · A test for leaks
#
# A model that sees its future reads the answers there, and its loss looks superb. So you want a test that needs no
# training: it takes a model, and says whether any output depends on later inputs. This is the longest exercise on this
# page. No later exercise needs it, so you may leave it for last.
#
# `model` is a function. It takes vectors (batch, n, d), for any n from 1 up, and returns vectors (batch, n, d_out), one
# for each position. You cannot see what it does inside, and you need not. `x` is an input to begin with; you may call
# the model on as many others as you like.
#
# *Leaks* means: for some position $i$ there is a change of the input at positions after $i$, in whatever sentences of
# the batch, that changes the output at position $i$. Return `True` then, and `False` for a model that is right.
#
# The check has twelve families of models. Each family has broken models of one kind, at least one that looks much the
# same and is right, and a few plain models of either sort. You earn a point for a family if your test is right about
# every model in it. So "leaks" for every model earns nothing, and neither does "right" for every model. Some things to
# know about the models:
#
# * Every leak can be found with inputs of the shape of `x`; you need not try other lengths.
# * A leak may be in one place only: one position, one feature.
# * A model may be made of anything: averages, counts, normalisations, recurrences. Some leaks have no gradient.
# * Some leaks show only if the future holds numbers a hundred times as large as those of `x`, which are sampled from a
#   normal distribution. Larger numbers are not needed. Numbers stay finite.
# * Rounding is no leak. It moves an output by about 1e-7 of its size; every leak in the families moves some number of
#   an output by more than 1e-4 (not times its size), for some change of usual size or a hundred times that. No number
#   of a right model's output is larger than 10 at the positions up to $i$, where you leave the input as it is in `x`.
# * A model may return NaN at some position. NaN that stays NaN is a fault, but no leak.
# * Calling a model twice on the same input gives the same output twice.

# %% exercise="test_for_leaks"
def test_for_leaks(model: Callable[[Tensor], Tensor], x: Tensor) -> bool:
    """Whether any output of `model` depends on inputs at later positions.

    model: takes (batch, n, d) for any n, and returns (batch, n, d_out)
    x: (batch, n, d), an input to begin with; leave it as it is
    returns True if the model leaks, False if every output depends on its own position and
        earlier ones alone
    """
    ...  # solution

# %% check="test_for_leaks"
check("test_for_leaks", test_for_leaks)

# %% [markdown]
# **Use it.** Your test, on ready-made torch layers. *Guess* which of them leak. (A batch norm in training mode takes
# its mean over all sentences and positions.)

# %%
if solved("test_for_leaks"):
    torch.manual_seed(0)
    d, x = 8, torch.randn(3, 7, 8)                               # (batch, n, d)
    lstm = nn.LSTM(d, d, batch_first=True)
    both_ways = nn.LSTM(d, d, batch_first=True, bidirectional=True)
    convolution, norm, layer_norm = nn.Conv1d(d, d, 3), nn.BatchNorm1d(d), nn.LayerNorm(d)
    block = nn.TransformerEncoderLayer(d, 2, 16, dropout=0.0, batch_first=True)

    def block_with_mask(x):
        n = x.shape[1]
        return block(x, src_mask=nn.Transformer.generate_square_subsequent_mask(n))

    shelf = {
        "LSTM": lambda x: lstm(x)[0],
        "bidirectional LSTM": lambda x: both_ways(x)[0],
        "convolution, padded on both sides": lambda x: convolution(F.pad(x.mT, (1, 1))).mT,
        "convolution, padded in front": lambda x: convolution(F.pad(x.mT, (2, 0))).mT,
        "Transformer block": block,
        "Transformer block with torch's mask": block_with_mask,
        "batch norm in training": lambda x: norm(x.mT).mT,
        "layer norm": layer_norm,
    }
    with torch.no_grad():
        for name, model in shelf.items():
            print(f"{name:>36}: {'leaks' if test_for_leaks(model, x) else 'does not leak'}")

# %% [markdown]
# <details><summary>What to see</summary>
#
# The bidirectional LSTM, the convolution that is padded on both sides, the block without a mask and the batch norm leak. The
# convolution that is padded in front is causal by its geometry, without any mask. A layer norm works on one position at a
# time; a batch norm's mean contains the future.</details>

# %% [markdown]
# ## 4 · The padding mask, on either side
#
# A batch is a rectangle, so short sentences are padded. Make the mask that keeps every query from attending to padding.
# Since it is the same for every query of a sentence, its axis of the queries has length one, and torch stretches this
# axis to the scores (batch, n_query, n_key). The mask also combines with a causal mask:
# `padding_mask(lengths, n) & causal_mask(n, n)` is (batch, n, n).
#
# In training the padding usually stands behind the tokens, whereas a program that continues a batch of prompts puts it
# in *front*, so that all prompts end at the same position. Your mask serves both. The batch may have been padded to
# more than its longest sentence, and a sentence may be empty.

# %% exercise="padding_mask"
def padding_mask(lengths: Tensor, n: int, in_front: bool = False) -> Tensor:
    """Which positions may be attended to, because there is a token.

    lengths: (batch,), whole numbers from 0 to n: sentence b has lengths[b] tokens
    in_front: False: the tokens are the first ones of the n positions, and padding follows;
        True: padding comes first, and the tokens are the last ones of the n positions
    returns (batch, 1, n), booleans: True where there is a token
    """
    ...  # solution

# %% check="padding_mask"
check("padding_mask", padding_mask)

# %% [markdown]
# **Use it.** A sentence's output must not depend on how far its batch was padded, nor on which side. The same three
# tokens go through torch's own attention: once by themselves, and once padded with junk to a length of nine. *Guess*
# by how much the outputs differ, with your mask and without. Then your mask meets a causal mask. *Guess* on which side
# rows remain in which nothing is allowed.

# %%
if solved("padding_mask"):
    torch.manual_seed(0)
    sentence, junk = torch.randn(1, 3, 8), 5 * torch.randn(1, 6, 8)          # (1, n, d)
    alone = F.scaled_dot_product_attention(sentence, sentence, sentence)     # (1, 3, d)
    causal = torch.ones(9, 9, dtype=torch.bool).tril()                       # (9, 9)
    for in_front in (False, True):
        side = "in front" if in_front else "behind"
        padded = torch.cat([junk, sentence] if in_front else [sentence, junk], dim=1)
        tokens = slice(6, 9) if in_front else slice(0, 3)
        mask = padding_mask(torch.tensor([3]), 9, in_front)                  # (1, 1, 9)
        for name, allowed in {"your mask": mask, "no mask": None}.items():
            output = F.scaled_dot_product_attention(padded, padded, padded, attn_mask=allowed)
            off = (output[:, tokens] - alone).abs().max()
            print(f"padding {side}, {name}: the three tokens differ by {off:.1e}")
        empty = (~(mask & causal).any(dim=-1)).sum()
        print(f"padding {side}, with a causal mask: {empty} rows in which nothing is allowed")

# %% [markdown]
# <details><summary>What to see</summary>
#
# With your mask the outputs differ by rounding, without it by about 12, because junk takes weight. Padding in front leaves
# six rows with nothing allowed, because the first positions have no past but padding. Padding behind leaves none. The next
# exercise must handle such rows.</details>

# %% [markdown]
# ## 5 · Masked attention
#
# Now put the parts together: scaled scores, mask, softmax, average.
#
# $$e_{ij} = \begin{cases} q_i \cdot k_j / \sqrt{d_k} & \text{where } i \text{ may attend to } j\\ -\infty &
# \text{elsewhere}\end{cases} \qquad \alpha_{ij} = \operatorname{softmax}_j(e_{ij}) \qquad o_i = \sum_j \alpha_{ij}
# v_j$$
#
# The mask may be (n_query, n_key), (batch, 1, n_key) or (batch, n_query, n_key): whatever broadcasts to the scores. A
# query that may attend to nothing gets zeros, both as weights and as output, and must not put NaN into any gradient. The
# vectors may also come in `float16`, whose largest number is 65504.

# %% exercise="masked_attention"
def masked_attention(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor
) -> tuple[Tensor, Tensor]:
    """Scaled dot-product attention over the keys that each query may attend to.

    query: (batch, n_query, d_k)   key: (batch, n_key, d_k)   value: (batch, n_key, d_v)
    mask: booleans that broadcast to (batch, n_query, n_key), True where a query may attend
    returns output (batch, n_query, d_v) and weights (batch, n_query, n_key), in this order;
    a query that may attend to nothing gets zeros
    """
    ...  # solution

# %% check="masked_attention"
check("masked_attention", masked_attention)

# %% [markdown]
# **Use it.** Two layers of your mask, your attention and your network, with residual connections, are an autoregressive
# language model. It learns to spell the numbers below a hundred, letter by letter, and then writes. Then the same model
# learns without the mask. Both take some seconds. *Guess* both losses: the cell first prints the least that honest
# prediction can cost.

# %%
if solved("masked_attention") and solved("causal_mask") and solved("feed_forward"):
    from attncourse.data.number_words import say

    texts = [say(number, "en") for number in range(100)]
    letters = "." + "".join(sorted(set("".join(texts))))
    rows = [torch.tensor([letters.index(letter) for letter in f".{text}."]) for text in texts]
    tokens = nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=-1)
    inputs, targets = tokens[:, :-1].clamp(min=0), tokens[:, 1:]      # (100, n) each
    least = math.log(100) * 100 / sum(len(text) + 1 for text in texts)
    print(f"least possible {least:.2f} nats per letter")

    def logits_of(tokens, mask, p):
        x = p["letters"][tokens] + p["places"][: tokens.shape[1]]            # (batch, n, d)
        for W_Q, W_K, W_V, W_1, b_1, W_2, b_2 in p["layers"]:
            h = F.layer_norm(x, x.shape[-1:])
            x = x + masked_attention(h @ W_Q, h @ W_K, h @ W_V, mask)[0]
            x = x + feed_forward(F.layer_norm(x, x.shape[-1:]), W_1, b_1, W_2, b_2)[0]
        return x @ p["output"]                                       # (batch, n, letters)

    def made(*shape):
        return nn.Parameter(torch.randn(shape) / math.sqrt(shape[0]))

    def zeros(n):
        return nn.Parameter(torch.zeros(n))

    d, n = 32, inputs.shape[1]
    everybody = torch.ones(n, n, dtype=torch.bool)
    for name, mask in {"your causal mask": causal_mask(n, n), "no mask": everybody}.items():
        torch.manual_seed(0)
        p = {"letters": nn.Parameter(torch.randn(len(letters), d)),
             "places": nn.Parameter(torch.randn(n, d)), "output": made(d, len(letters)),
             "layers": [[made(d, d), made(d, d), made(d, d), made(d, 4 * d), zeros(4 * d),
                         made(4 * d, d), zeros(d)] for _ in range(2)]}
        parameters = [p["letters"], p["places"], p["output"], *p["layers"][0], *p["layers"][1]]
        optimizer = torch.optim.Adam(parameters, lr=5e-3)
        for _ in range(150):
            logits = logits_of(inputs, mask, p)
            wanted = targets.flatten()
            loss = F.cross_entropy(logits.flatten(0, 1), wanted, ignore_index=-1)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        written = torch.zeros(8, 1, dtype=torch.long)                        # (8, 1)  "."
        for i in range(1, n + 1):
            with torch.no_grad():
                probabilities = logits_of(written, mask[:i, :i], p)[:, -1].softmax(dim=-1)
            written = torch.cat([written, torch.multinomial(probabilities, 1)], dim=1)
        said = ["".join(letters[j] for j in row[1:]).split(".")[0] for row in written.tolist()]
        print(f"{name}: loss {loss:.2f}; writes", ", ".join(said))

# %% [markdown]
# <details><summary>What to see</summary>
#
# With the mask the loss reaches the least possible, 0.45, and the model writes numbers. Without it the loss is 0.00, which no
# honest prediction can reach, and the model writes rubbish: what it used in training does not exist while it writes.
#
# How does the package's `masked_softmax` get by without NaN? It fills the forbidden scores with
# `torch.finfo(scores.dtype).min`, the lowest finite number of their own type, so that the softmax has no 0/0. Then a row
# with nothing allowed has uniform weights, and a second `masked_fill` sets all forbidden weights to 0.</details>

# %% [markdown]
# ## 6 · In your own words: averages that shrink, weights that compute
#
# **(a)** Once more six pots of paint. In one round each recipe takes a share of at least ε > 0 from *every* pot. Let
# the *gap* be the amount of red in the reddest pot minus the amount in the least red pot. Show that a round leaves at
# most $1 - 2\varepsilon$ of the gap. Every softmax gives such an ε. Why does this not promise that the pots are nearly alike
# after ten rounds?
#
# **(b)** The lecture's restaurant, with one head of attention in place of the network. The only query is the phrase
# $x = (p, n, 1)$: praise, *not*, and a constant 1. It may attend to two tokens: to `<start>` $= (0, 0, 0)$, with the
# score 0 and the value 0, and to itself, with the value 1 and the score $x M x^\top$. Here $M = W_Q W_K^\top$ is a
# (3, 3) matrix of your choice. Find an $M$ for which the output is close to the verdict: 1 for "good" and "not bad", 0
# for "bad" and "not good". How close is it?
#
# **(c)** Which steps of this head are not linear in $x$? And what would it answer without `<start>`?
#
# A few lines of mathematics or words for each. (3 points)

# %% [markdown] written="inside-the-hull" points=3 minutes=12 difficulty=2
# ### BEGIN SOLUTION
# **Mark scheme.** One point for each.
#
# 1. (a) Let $r$ be the most red before the round, and $s$ the least. Each new pot takes at least ε from the least red
#    pot, and the rest holds at most $r$: it has at most $(1 - \varepsilon)\,r + \varepsilon s$. In the same way it has at
#    least $(1 - \varepsilon)\,s + \varepsilon r$. The difference of the two is $(1 - 2\varepsilon)(r - s)$. And a sharp
#    softmax has weights above zero, but some are tiny. Then $1 - 2\varepsilon$ is nearly 1, and so is its tenth power.
#    The bound without the remark gets half a point, and so does one side of the bound with the remark.
# 2. (b) For instance $M = 20 \begin{pmatrix} 1 & -1 & 0\\ -1 & 1 & 0\\ 0 & 0 & -\tfrac12 \end{pmatrix}$. The score is
#    $20\,\bigl((p - n)^2 - \tfrac12\bigr)$: 10 where the verdict is 1, and −10 where it is 0. The output is the weight on
#    the phrase, $\sigma(\pm 10)$, so it is off by less than 0.0001. Any $M$ earns the point if its scores have the right
#    signs and are far from 0; so does the product $p\,n$ in another form, such as $p + n - 2\,p\,n - \tfrac12$.
# 3. (c) The score multiplies features with features, and the softmax is not linear in the scores. Without `<start>` there
#    is one token to choose from. Its weight is 1 whatever its score, so the output is its value, 1, for all four
#    phrases. One of the two steps, or only the last part, gets half a point.
# ### END SOLUTION

# %% [markdown]
# ## 7 · In your own words: four losses that look good
#
# Four students on the course have each trained a small decoder, each on different texts, and report these losses in
# nats per letter:
#
# | | training | validation | asked to write, the model produces |
# |---|---|---|---|
# | Amira | 0.02 | 0.02 | *nnnennnn enene* |
# | Ben | 0.02 | 0.03 | good sentences, every one of them from the training set |
# | Chen | 0.02 | 3.90 | good sentences, every one of them from the training set |
# | Dita | 0.31 | 0.32 | right dates, such as *the third of May*; few of them are from the training set |
#
# One of the four models leaks. One was validated on copies of training texts. One overfits, and its validation set is
# right. One has no fault, and an easy corpus.
#
# **(a)** Who is who? Give a reason for each. **(b)** All four compute their validation loss once more, one prefix at a
# time. Whose loss changes, and why do the other losses stay the same? Which fault can *no* test of a model find? **(c)**
# Which measurement finds that fault? And what must you know of Dita's texts before you believe her loss?
#
# Answer in six to ten sentences. (3 points)

# %% [markdown] written="too-good" points=3 minutes=10 difficulty=2
# ### BEGIN SOLUTION
# **Mark scheme.** One point for each.
#
# 1. (a) Amira's model leaks: it predicts unseen texts nearly perfectly, and cannot write. Ben's validation texts are
#    copies: his model recites its training set as Chen's does, so texts that were really new would cost it much more.
#    Chen's model overfits: it knows its training texts by heart and fails on others. Dita has no fault: both losses
#    agree, and the model writes right texts that it has never seen. A quarter of a point for each.
# 2. (b) Amira's loss rises, because the letters to the right, which her model used, are gone. The other models are causal:
#    what stands to the right of a position has never changed its output, so one pass and one prefix at a time give the
#    same numbers, up to rounding. No test of a model finds copies in the validation set (Ben): his model is causal, and
#    the fault lies in the data. Half a point for the losses, half for the fault.
# 3. (c) Look for each validation text in the training set, word for word or by long common pieces, and measure again
#    without those that are found. For Dita: the entropy of her texts per letter, or a bound of it, such as
#    $\ln N$ divided by the letters of a text, if $N$ texts are equally likely. An honest loss is not below it, and a
#    good one is not far above. Half a point each.
# ### END SOLUTION

# %% [markdown]
# ## Extension: several documents in one row
#
# This one is worth extra credit, and nothing is lost by leaving it out.
#
# Padding is computed and thrown away. To avoid this waste, people who train large models write several documents into
# one row, one after the other, until the row is full. Then a third mask is needed, because no token may read another
# document. Each position comes with the number of its document, for instance `[4, 4, 4, 9, 9]`. The numbers are only
# names: equal numbers mean the same document, and nothing else is promised, so a document may be interrupted by another
# document and then go on.

# %% exercise="packed_mask"
def packed_mask(documents: Tensor) -> Tensor:
    """Who may attend to whom where a row holds several documents: the past of its own.

    documents: (batch, n), whole numbers, equal where two positions belong to the same document
    returns (batch, n, n), booleans: True in row i, column j, if i may attend to j
    """
    ...  # solution

# %% check="packed_mask"
check("packed_mask", packed_mask)

# %% [markdown]
# **Use it.** Three documents in one row, with your mask, and the same three one by one, with a causal mask of their
# own. *Guess* by how much the outputs differ.

# %%
if solved("packed_mask"):
    torch.manual_seed(0)
    documents = [torch.randn(1, n, 8) for n in (4, 2, 3)]        # (1, n, d) each
    row = torch.cat(documents, dim=1)                            # (1, 9, d)
    mask = packed_mask(torch.tensor([[4] * 4 + [9] * 2 + [5] * 3]))                  # (1, 9, 9)
    packed = F.scaled_dot_product_attention(row, row, row, attn_mask=mask)
    alone = [F.scaled_dot_product_attention(x, x, x, is_causal=True) for x in documents]
    difference = (packed - torch.cat(alone, dim=1)).abs().max()
    print(f"packed and one by one differ by {difference:.1e}")

# %% [markdown]
# <details><summary>What to see</summary>
#
# They differ by rounding alone. The row needs no padding, and each document is read as if it stood by itself. (Positions
# would have to begin anew in each document, too; here there are none.)</details>
