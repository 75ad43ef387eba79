# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3 (ipykernel)
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Lecture @getting_ready · Getting ready
#
# *About 45 minutes, of which a few seconds are computing. You need Python, and to have seen a PyTorch tensor. Nothing is
# assumed about language models or attention.*
#
# When you have finished you will be able to say the shape of every line that you read, and which axis a sum takes away; to
# foresee what broadcasting does, and to catch the mistake that it hides; to write a softmax that survives large scores; to
# average sequences of different lengths; and to read what a check in this course tells you. In
# [assignment @getting_ready](@getting_ready/assignment) you use all of it.
#
# ## The best lamp in the shop
#
# A shop wants to list its products by their mean rating, from one star to five. The kettle has been rated eight times, the
# lamp once, by somebody who loved it. The computer that does the averaging likes rectangles, so the short rows are filled up
# with zeros, which is called *padding*.

# %%
try:
    from attncourse import check, viz

    from . import figures
except ModuleNotFoundError:
    raise ImportError(
        "This page needs the attncourse package: open it with `make lab` in the course's folder, "
        "or choose a kernel of the environment in which you installed the course."
    ) from None

import math

import torch
from torch import nn

from attncourse import attention
from attncourse.data import pad_batch

torch.set_num_threads(1)  # what is computed here is too small to be shared out

# %% [markdown]
# *Before you run the next cell*, decide what the list should look like: which product comes first, and with how many stars?

# %%
ratings = {"kettle": [4, 5, 3, 4, 4, 5, 4, 3], "toaster": [2, 3, 1, 2, 3], "umbrella": [1, 2], "lamp": [5]}
n = max(len(stars) for stars in ratings.values())
table = torch.tensor([stars + [0] * (n - len(stars)) for stars in ratings.values()])  # (4, 8)
means = table.float().mean(dim=1)                                                      # (4,)
figures.padded_batch(ratings, pad=0, means=means.tolist())
assert means[-1] < 1, "the lamp has fewer stars than anybody can give"

# %% [markdown]
# The lamp, rated five out of five, ends with less than one star, on a scale that begins at one. Nothing crashed and nobody
# was warned. And notice what it depends on: had the shop sold no kettle, the rectangle would be narrower and the lamp's mean
# higher. *Its* rating changes with the company it keeps.
#
# The models of this course are made of such averages. A sentence becomes the mean of its words; attention, which the course
# is about, is a mean in which some words count more than others; and sentences are never of the same length. So the kind of
# mistake that you have just seen, a wrong number in the right shape, is the one that costs people weeks. This lecture is
# about seeing it coming. We shall come back to the lamp with the tools to save it.

# %% [markdown]
# ## Does your machine work?
#
# Open a terminal in the course's folder and run `attncourse doctor` (or, where that is not found, `.venv/bin/attncourse
# doctor`). It tries what the course needs and prints a line for each thing, with ✓ for what works and ✗ for what does not, and
# beneath a ✗ what would mend it:
#
# ```
# ✓ torch 2.13.0 computes, on 2 threads (2 cores)
# ✓ GPU: none that torch can use; the course does not need one
# ✗ extra 'lab': matplotlib is missing
#     pip install -c constraints.txt -e '.[lab]'  (in the course's folder)
# ```
#
# The pages are meant to be run, and changed. Shift-Enter runs a cell and goes to the next. Where the text asks for a guess,
# make one before you run the cell, in writing if you can bear it: you remember what surprised you, and only a guess can be
# surprised. If you have lost your way among changed variables, *Kernel → Restart Kernel and Run All Cells* begins anew.

# %% [markdown]
# ## Say the shape
#
# A **tensor** is an array of numbers with a *shape*, a tuple that says how they are arranged. Each entry of the tuple belongs
# to one **axis**, and in this course an axis has a meaning and keeps it. Three come back on every page:
#
# * **batch**: which sentence. Sentences in a batch know nothing of each other, or ought to.
# * **n**: which position in the sentence. (Two lengths at once get two names, `n_source` and `n_target`.)
# * **d**: which feature. A word enters a network as a vector of $d$ numbers.
#
# Here they are at work. A vocabulary of seven words comes with a table of seven vectors, and a word is known by the number of
# its row, its *id*. Two reviews of three words each are then a table of six ids. When the one table is indexed by the other,
# each id is replaced by its vector, and an axis for the features appears.

# %%
vocabulary = ["bright", "lamp", "and", "quiet", "the", "cord", "is"]
torch.manual_seed(0)
vectors = torch.randn(len(vocabulary), 4)            # (7, 4)     a row for each word
tokens = torch.tensor([[0, 2, 3], [4, 5, 6]])        # (2, 3)     bright and quiet, the cord is
x = vectors[tokens]                                  # (2, 3, 4)  (batch, n, d)
assert torch.equal(x[1, 2], vectors[6])              # review 1, position 2: the vector of "is"

# %% [markdown]
# The comment at the end of a line says the shape of what the line has made. You find it on every line of this course that
# changes a shape, and it is a habit worth taking up. The formula tells you what a line means, the shape tells you what it
# *does*; when the two disagree, the shape is right.
#
# Reductions, such as `sum`, `mean` and `max`, use up an axis. Which one? `dim=1` does not mean "one mean for each place of
# axis 1". It names the axis that is used up: `dim` is what *goes*.

# %%
figures.batch_axes()

# %% [markdown]
# *Guess five shapes before you run the cell.* `x.mean(dim=1)` is one vector for each review. `x[:, 0]` takes the first
# position. `x[:, None]` makes a new axis of length one where `None` stands. `x.mT` swaps the last two axes and leaves the batch
# alone. A negative `dim` counts the axes from the end.

# %%
print("x.mean(dim=1)   ", tuple(x.mean(dim=1).shape))
print("x[:, 0]         ", tuple(x[:, 0].shape))
print("x[:, None]      ", tuple(x[:, None].shape))
print("x.mT            ", tuple(x.mT.shape))
print("x.mean(dim=-1)  ", tuple(x.mean(dim=-1).shape))

# %% [markdown]
# `dim=-1` is the features, whether or not a batch stands in front. Code that says `-1` and `-2` works for one sentence and for
# a batch of them, and so the course says it where it can.
#
# Now the step at which everybody stumbles once. From each word we want to subtract its mean over the four features.

# %%
mean = x.mean(dim=-1)                                # (2, 3)
try:
    x - mean
except RuntimeError as error:
    print(error)
centred = x - x.mean(dim=-1, keepdim=True)           # (2, 3, 4) - (2, 3, 1)
assert centred.mean(dim=-1).abs().max() < 1e-6

# %% [markdown]
# There was one mean for each word, as there should be, and yet it could not be subtracted, because the axis that had gone was
# missing: torch tried to pair the three positions with the four features. `keepdim=True` leaves the axis in its place, with
# length one. Then the shapes fit, and the one mean is used for all four features. That they fit now follows from a rule, and
# the rule deserves a close look.

# %% [markdown]
# ## Who stretches
#
# When two tensors of different shape meet in a sum, a product or a comparison, torch **broadcasts** them. The whole rule is:
#
# 1. Write the two shapes under each other, flush *right*. The shorter one is filled up with 1s on the left.
# 2. In each column the two numbers must be equal, or one of them must be 1. A 1 stretches to the other number.
# 3. Anything else is an error.
#
# ```
#   x           (2, 3, 4)            x       (2, 3, 4)
#   mean        (2, 3, 1)            mean       (2, 3)   →  4 against 3: error
#   x - mean    (2, 3, 4)
# ```
#
# Below you choose both shapes. Dotted cells are not in memory; they are what stretching pretends. Predict each result before
# you look: start with (3, 1) and (4,), then find a pair that does not fit, and then look at (3,) minus (3, 1) for as long as
# it takes to become uneasy.

# %%
shapes = ["(3,)", "(4,)", "(1, 4)", "(3, 1)", "(3, 4)"]
viz.explore(figures.broadcasting, a=shapes, b=shapes, start={"a": "(3, 1)", "b": "(4,)"})

# %% [markdown]
# A column minus a row is a table of all differences. That is useful, and you will use it for masks and for positions. But
# three numbers minus three numbers gave nine, without a word, because one of the threes stood upright. Nobody who subtracts
# three numbers from three numbers wants nine.
#
# > **Check yourself.** `scores` is (batch, n_target, n_source), and `lengths` is (batch,). You want to compare every source
# > position with its sentence's length, so that the result broadcasts against `scores`. What do you write?
# > <details><summary>Answer</summary><code>torch.arange(n_source) &lt; lengths[:, None, None]</code>. The positions are
# > (n_source,), the lengths (batch, 1, 1), so the result is (batch, 1, n_source), and the 1 stretches over the targets.
# > With <code>lengths[:, None]</code> you would get (batch, n_source), which lines up with the wrong axes.</details>

# %% [markdown]
# ## The mistake that does not crash
#
# How bad can it be? Let us train the smallest model there is, on products with three measured features, to predict their
# rating. (To train is to measure how wrong the predictions are, by one number, the *loss*, and to move the numbers in the
# model, its *parameters*, a small step downhill on it, again and again.) The two training runs below are identical but for
# one thing. `nn.Linear(3, 1)` returns a column, (200, 1). The first run subtracts the ratings, (200,), from the column as it
# stands; the second lays the column down first, as (200,).
#
# *Guess:* will the first loss fall? Will it fall to zero, to somewhere else, or stay?

# %%
torch.manual_seed(0)
features = torch.randn(200, 3)                                                   # (200, 3)
rating = 3 + features @ torch.tensor([0.8, -0.5, 0.3]) + 0.1 * torch.randn(200)  # (200,)


def train(difference, steps=150):
    torch.manual_seed(1)
    model, losses = nn.Linear(3, 1), []
    for _ in range(steps):
        loss = (difference(model(features), rating) ** 2).mean()
        losses.append(loss.item())
        loss.backward()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter -= 0.05 * parameter.grad                               # a step downhill
                parameter.grad = None
    return losses, model(features).detach()[:, 0]                                # a list, (200,)

# %%
runs = {"(200, 1) − (200,)": lambda y, z: y - z, "(200,) − (200,)": lambda y, z: y[:, 0] - z}
losses, predicted = {}, {}
for name, difference in runs.items():
    losses[name], predicted[name] = train(difference)
viz.curves(losses, y_name="mean squared error", log_y=True)

# %% [markdown]
# Both fall, and steeply, and the first one settles as a healthy loss does. With only that curve before you, you would
# tune the learning rate, ask for more data, and write that the task is hard. Look at what the model says instead.

# %%
points = {name: (rating, y) for name, y in predicted.items()}
figures.scatter_panels(points, "true rating", "predicted rating", diagonal=True)
wrong, right = losses
assert losses[wrong][-1] < 0.25 * losses[wrong][0], "the loss of the wrong run falls as if it learned"
assert predicted[wrong].std() < 0.01 * rating.std(), "and yet it says the same for every product"
assert losses[right][-1] < 0.05 * losses[wrong][-1]

# %% [markdown]
# It says the same for every product: the mean of all ratings. Of course it does. The difference was (200, 200), every
# prediction against *every* rating, and what minimises that is one number as near as possible to all ratings at once. Its
# loss is the variance of the ratings, which looks like an honest result.
#
# **A falling loss is no proof.** One line would have told us: `assert prediction.shape == rating.shape`. Write it wherever
# broadcasting could help a mistake along. (torch's own `mse_loss` at least warns.)
#
# > **On the slide.** One deck builds a small language model. Its words come as (batch, n), and its positions are made by
# > `torch.arange(x.size(0)).unsqueeze(1)`, where `unsqueeze(1)` is another way to write `[:, None]`. The length that was
# > wanted is axis 1; axis 0 is the batch. It does not crash:

# %%
position_vectors = torch.randn(50, 4)                                    # (50, 4)
slide = position_vectors[torch.arange(tokens.size(0)).unsqueeze(1)]      # (2, 1, 4)  (batch, 1, d)
meant = position_vectors[torch.arange(tokens.size(1))]                   # (3, 4)     (n, d)
for name, positions in {"slide": slide, "meant": meant}.items():
    print(name, tuple(x.shape), "+", tuple(positions.shape), "=", tuple((x + positions).shape))
added = slide.expand(2, 3, 4)                                            # what each word was given
assert torch.equal(added[0, 0], added[0, 2]), "first and last word of a review: the same"
assert not torch.equal(added[0, 0], added[1, 0]), "the first words of two reviews: different"

# %% [markdown]
# Every word of a sentence receives the same "position", and it says which row of the batch the sentence happens to stand in.
# The model still trains, and its loss still falls. We shall see in [lecture @order](@order) what positions are for; the
# shape alone has told us that these are none.

# %% [markdown]
# ## Every one with every other
#
# Attention begins with a question of the form "how well does each of these match each of those?" Two customers know what
# they want, and each product has something to offer, both as vectors over *light*, *heat* and *dryness*. How well they match
# is the dot product: multiply feature by feature, and add up.

# %%
#                          light heat dry
customers = torch.tensor([[2.0, 0.5, 0.0],           # wants to read at night
                          [0.0, 1.0, 1.5]])          # came in from the rain;              (2, 3)
products = torch.tensor([[0.0, 3.0, 0.0],            # kettle
                         [0.0, 2.0, 0.5],            # toaster
                         [0.0, 0.0, 3.0],            # umbrella
                         [3.0, 0.5, 0.0]])           # lamp                                (4, 3)
scores = torch.zeros(2, 4)
for c in range(2):
    for p in range(4):
        scores[c, p] = (customers[c] * products[p]).sum()

# %% [markdown]
# Eight dot products, one at a time. That is clear and, for tables of thousands, hopelessly slow. Matrix multiplication is the
# same thing done at once. In Python it is written `@`. It pairs the *last* axis of the left factor with the *last but one* of
# the right and sums over the pair, so the products have to be turned: (2, 3) @ (3, 4) is (2, 4).
#
# There is a third way to write it, which needs no turning and says what it does. In `einsum` each axis gets a letter; a letter
# that is missing after the arrow belongs to an axis that is summed over. Here that is f, the features.

# %%
by_matmul = customers @ products.mT                            # (2, 3) @ (3, 4) = (2, 4)
by_einsum = torch.einsum("cf,pf->cp", customers, products)     # customer, feature, product
assert torch.equal(scores, by_matmul) and torch.equal(scores, by_einsum)
viz.draw_weights(scores, rows=["reader", "wet"], columns=list(ratings), title="scores")

# %% [markdown] erratum="a star for a matrix product"
# The loop, `@` and `einsum` are three ways to say one thing, and the course uses whichever is clearest. The checks accept
# all three.
#
# > **On the slide.** Two decks write the last step of attention as `softmax(…) * XV`. In Python a star multiplies *number by
# > number*, with broadcasting; it is no matrix product. Often the shapes do not fit, and you are told. In a drawing where
# > everything is square you are not:

# %%
torch.manual_seed(0)
weights, values = torch.rand(3, 3), torch.rand(3, 3)           # three positions, and d happens to be 3
print(tuple((weights * values).shape), tuple((weights @ values).shape))
assert (weights * values).shape == (weights @ values).shape
assert not torch.allclose(weights * values, weights @ values)

# %% [markdown]
# Which is why the examples of this course have sizes that are all different. With sizes 2, 3 and 4 most mistakes crash. With
# 3, 3 and 3 they do not.
#
# > **Check yourself.** `q` is (batch, n_target, d), `k` is (batch, n_source, d). Write all scores with `@` and with `einsum`.
# > <details><summary>Answer</summary><code>q @ k.mT</code>, because <code>@</code> and <code>.mT</code> leave the axes in
# > front alone, and <code>torch.einsum("btd,bsd->bts", q, k)</code>. Both are (batch, n_target, n_source). With
# > <code>k.T</code> the batch would be turned round as well: <code>.T</code> is for matrices only.</details>

# %% [markdown]
# ## From scores to shares
#
# Scores can be any numbers. To average with them they have to become shares, which are positive and sum to one. The usual
# way is **softmax**: take the exponential, which makes anything positive, and divide by the sum.
#
# $$\operatorname{softmax}(s)_i = \frac{e^{s_i}}{\sum_j e^{s_j}}$$

# %%
def naive_softmax(scores):
    exponentials = scores.exp()                                              # (*batch, n)
    return exponentials / exponentials.sum(dim=-1, keepdim=True)             # (*batch, n) / (*batch, 1)


viz.draw_weights(naive_softmax(scores), rows=["reader", "wet"], columns=list(ratings), title="shares")

# %% [markdown]
# Each customer has one unit of interest to give and shares it out over the products; the largest score takes the most, and none
# gets exactly nothing (the umbrella's 0.00 is 0.002, rounded). Note the `keepdim`: with `dim=-1` each row is divided by its own
# sum.
#
# Suppose now that the scores had been larger. Nothing in the formula minds: adding the same number to all scores of a row
# should not even change the shares, as only their distances matter. *What will the next cell print?*

# %%
row = torch.tensor([0.0, 2.0, 5.0])
for shift in (0.0, 50.0, 100.0, -110.0):
    print(f"{shift:6}", naive_softmax(row + shift))

# %% [markdown]
# The formula is right and the answer is `nan`. On the way to it stands $e^{105}$, a number with 46 digits, and a float32 cannot
# hold it: it ends near $3.4 \cdot 10^{38}$. What is larger becomes `inf`, and `inf / inf` is `nan`, *not a number*. On the
# other side $e^{-110}$ is so small that it is rounded to 0, and 0/0 is `nan`, too.
#
# How far can one go? As far as the logarithm of the largest number that the type can hold:

# %%
for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64):
    print(f"{dtype!s:15} exp overflows above {math.log(torch.finfo(dtype).max):6.1f}")
assert torch.tensor([88.7, 88.8]).exp().isinf().tolist() == [False, True]

# %% [markdown]
# 88.7 is not much. A dot product over a few hundred features can get there, and in float16, which GPUs like, the naive formula
# ends at 11. (bfloat16, its rival, has the range of float32 and pays for it in digits.)
#
# The remedy has been said already: only distances matter. Whatever we take away from *all* scores of a row, a common factor
# comes out above and below the line and cancels:
#
# $$\frac{e^{s_i - c}}{\sum_j e^{s_j - c}} = \frac{e^{-c}\, e^{s_i}}{e^{-c} \sum_j e^{s_j}} = \frac{e^{s_i}}{\sum_j e^{s_j}}$$
#
# So choose $c$ well. Take the largest score of the row: then the largest exponent is 0, its exponential is 1, nothing
# overflows, and the sum is at least 1, so nothing is divided by 0. Move the scores below and watch the two rows. Before the
# upper row turns to `nan` on the left, there is a stretch where it is worse than that. What is worse than `nan`?

# %%
def shares_under_shift(shift):
    return figures.exp_range(row, shift)


viz.explore(shares_under_shift, shift=[-120, -106, -102, -90, -60, -30, 0, 30, 60, 80, 85, 90, 120])

# %% [markdown]
# Around −106 the shares are wrong and look like shares. The numbers there are so close to the smallest that a float32 can
# hold that hardly a digit is left of them. A `nan` at least is loud. The lower row never moves.

# %%
def softmax_of_a_row(scores):                                                # (n,)
    exponentials = (scores - scores.max()).exp()                             # (n,)  none above 1
    return exponentials / exponentials.sum()                                 # (n,)


for shift in (0.0, 1000.0, -1000.0):
    assert torch.allclose(softmax_of_a_row(row + shift), row.softmax(dim=-1), atol=1e-6)

# %% [markdown]
# That is what torch's `softmax` does inside. Mathematics sees no difference between the two versions; a computer sees one
# that decides whether a model trains. This pattern, the same formula in an order that suits the machine, will come back: the
# fast attention of lecture @cheap_attention is this subtraction, done in pieces. Ours is for a single row. In the assignment you write it
# for any number of rows, each with a largest score of its own, and you know by now which argument will see to that.
#
# > **Check yourself.** (1) What is the softmax of three equal scores? (2) Of $(0, \ln 3)$? (3) All scores are doubled. Do the
# > shares change? (4) Each row has its own maximum. What goes wrong if you subtract the largest score of the whole table?
# > <details><summary>Answers</summary>(1) A third each. (2) One quarter and three quarters, because the exponentials are 1 and
# > 3. (3) Yes: the distances double, and the largest score gets more. Only <em>adding</em> is free. (4) Mathematically nothing.
# > But a row that lies more than about 104 below that maximum has exponentials of 0 throughout, and 0/0 is NaN.</details>

# %% [markdown]
# ## Three kinds of nothing
#
# We need a way to say "there is nobody here". Zero was one, and it spoilt the lamp. Floating-point numbers offer two more,
# $-\infty$ and NaN, and both follow fixed rules. *Guess each line:*

# %%
inf, nan = torch.tensor(torch.inf), torch.tensor(torch.nan)
print("exp(-inf)      ", torch.exp(-inf).item())
print("max(-inf, 3)   ", torch.maximum(-inf, torch.tensor(3.0)).item())
print("0 * inf        ", (0 * inf).item())
print("inf - inf      ", (inf - inf).item())
print("nan == nan     ", (nan == nan).item())
print("mean of 1, nan ", torch.stack([torch.tensor(1.0), nan]).mean().item())

# %% [markdown]
# $-\infty$ is well behaved: it is the score of somebody who may not take part, since $e^{-\infty}$ is exactly 0, and no maximum
# is ever $-\infty$ unless all are. NaN is what arithmetic says when it has no answer, and whatever touches it becomes NaN: one
# in a batch, and a step later the whole model is made of it. It is not even equal to itself, so it is found by `x.isnan()`.
#
# The treacherous line is the third. "Multiply what does not count by 0" is everybody's first idea, and it works until
# somewhere in what does not count there is an $\infty$. To leave something out, do not multiply it. *Choose*:

# %%
there = torch.tensor([True, True, False])
seen = torch.tensor([4.0, 2.0, torch.inf])
print("multiplied  ", (seen * there).sum().item())
print("masked_fill ", seen.masked_fill(~there, 0.0).sum().item())      # ~ turns True and False round
print("torch.where ", torch.where(there, seen, 0.0).sum().item())
print("as a score  ", seen.masked_fill(~there, -torch.inf).softmax(dim=-1))

# %% [markdown]
# `there` is a **mask**, a tensor of booleans. In this course True always means *counts*, *is there*, *may attend*. (Not
# everybody agrees. In torch itself, `scaled_dot_product_attention` does, while the `key_padding_mask` of
# `nn.MultiheadAttention` is True for what is to be left out. Look it up each time, and write it down.)
#
# What "nothing" is depends on what comes next. For a sum it is 0. For a softmax it is $-\infty$, and 0 would be a score like
# any other, better than all negative ones. And for a mean it is no number at all: a mean has a sum *and a count*, and both must
# leave out what is not there.

# %% [markdown]
# ## The lamp again
#
# Which brings us back to the shop. The mask of its table comes from the lengths, by a comparison of a row with a column:
# positions against lengths, (8,) against (4, 1). It should not come from the table, as in `table != 0`: that works today,
# because no rating is 0, and fails on the day when someone may give zero stars.

# %%
lengths = torch.tensor([len(stars) for stars in ratings.values()])         # (4,)
mask = torch.arange(n) < lengths[:, None]                                  # (8,) < (4, 1) = (4, 8)
mask

# %%
total = table.masked_fill(~mask, 0).sum(dim=1)                             # (4,)
count = mask.sum(dim=1)                                                    # (4,)  True counts as 1
means = total / count                                                      # (4,)
by_hand = torch.tensor([sum(stars) / len(stars) for stars in ratings.values()])
figures.padded_batch(ratings, pad="–", means=means.tolist())
assert torch.allclose(means, by_hand)

# %% [markdown]
# The lamp is on top, with a mean that is its own whether or not the shop sells kettles. (Whether one rating should count as
# much as eight is a fair question, but it is a question about lamps, and not about padding.)
#
# How much harm does the padded mean do in a whole catalogue? Below are five hundred products, rated between once and twenty
# times. How often a product was rated has nothing to do with how good it is. We average both ways. *Guess:* of the fifty
# products with the highest padded means, how many are also among the fifty with the highest right means?

# %%
torch.manual_seed(0)
count = torch.randint(1, 21, (500,))                                       # (500,)
quality = 1 + 4 * torch.rand(500, 1)                                       # (500, 1)
stars = (quality + torch.randn(500, 20)).round().clamp(1, 5)               # (500, 20)
mask = torch.arange(20) < count[:, None]                                   # (500, 20)
stars = stars.masked_fill(~mask, 0.0)                                      # (500, 20)
by_width = stars.mean(dim=1)                                               # (500,)
by_count = stars.sum(dim=1) / mask.sum(dim=1)                              # (500,)
points = {"divided by 20": (count, by_width), "divided by the count": (count, by_count)}
figures.scatter_panels(points, "how often it was rated", "mean rating (stars)", impossible=(0, 1))

# %%
found = set(by_width.topk(50).indices.tolist()) & set(by_count.topk(50).indices.tolist())
with_count, with_right_mean = torch.corrcoef(torch.stack([by_width, count, by_count]))[0, 1:]
print("of the fifty best the padded mean finds", len(found))
print(f"it correlates with the count at {with_count:.2f}, with the right mean at {with_right_mean:.2f}")
assert len(found) < 30 and with_count > with_right_mean + 0.1
assert 0.2 < (by_width < 1).float().mean() < 0.5
assert abs(torch.corrcoef(torch.stack([by_count, count]))[0, 1]) < 0.2

# %% [markdown]
# On the right the cloud is level, as it should be. On the left it is a fan that opens with the number of ratings, and about a
# third of the products lie in the hatched band, below the one star that everybody gives at least. Of the fifty products that
# the padded mean puts first, thirteen belong there. That mean says more about how often a product was rated (their
# correlation is 0.80) than about the product's right mean (0.51). Put sentences for products and words for ratings, and you
# have a model to which short sentences are faint and long ones loud, and whose answer for a sentence depends on what else was
# in the batch. No message will tell you so.
#
# With features the mask needs one more axis, so that it stretches over them: `mask[..., None]` is (batch, n, 1), beside
# values of (batch, n, d). The package has this and the padding ready-made, and assignment @getting_ready asks you to build both.

# %%
tokens, mask = pad_batch([[0, 2, 3], [1], [4, 5, 6, 0, 2]], pad=6)         # (3, 5), (3, 5)
x = vectors[tokens]                                                        # (3, 5, 4)
mean = attention.masked_mean(x, mask)                                      # (3, 4)
alone = attention.masked_mean(vectors[tokens[1:2, :1]], mask[1:2, :1])     # (1, 4)
assert torch.equal(mean[1:2], alone) and torch.equal(mean[1], vectors[1]), "alone or in a batch, the same"

# %% [markdown]
# The pad, 6, is also an ordinary word here: the third review holds it at position 2, and there it counts. Language models often
# pad with their end-of-text token. Whoever then makes the mask by `tokens != pad` hides every real end, and the model does not
# learn to stop.

# %% [markdown]
# ## What a check tells you
#
# Each exercise of the assignments has a check under it, as in the next cells. Suppose that a learner was asked for the mean
# just described, `values` (batch, n, d) and `mask` (batch, n), and wrote this:

# %%
def masked_mean(values, mask):
    return values.mean(dim=1)                                              # (batch, d)


check("masked_mean", masked_mean)

# %% [markdown]
# Read the card from the top. An exercise is looked at from several sides, and each side has points of its own, so one slip
# does not cost you all of them. A ✗ says what was seen and what should have been seen, at which place. Below the list stands
# what the check believes you were thinking. It knows the mistakes that people make in this exercise, as code; it runs them on
# the same numbers, and if your numbers are one of theirs, it says so.
#
# Suppose that the learner takes the advice and writes down what most people write:

# %%
def masked_mean(values, mask):
    total = (values * mask[..., None]).sum(dim=1)                          # (batch, d)
    return total / mask.sum(dim=1, keepdim=True)                           # (batch, d) / (batch, 1)


check("masked_mean", masked_mean)

# %% [markdown]
# Better by far: short sequences have their own mean now. Two lines still fail, and both name things that you have met on this
# page. The repair is yours to make, in the assignment.
#
# Three more things about checks. What decides your points is a check on other numbers and other sizes than the one that you
# see, so an answer that is right by accident will not do. A check does not care how you compute, by a loop or by `einsum`, in
# float32 or in float64, as long as a gradient can flow through it (`.item()` and NumPy on the way would stop it). And it
# refuses the function that *is* the answer:

# %%
check("masked_mean", attention.masked_mean)

# %% [markdown]
# If you are stuck in the assignment, `hint("masked_mean", 1)` nudges and `hint("masked_mean", 3)` nearly tells. Nobody counts
# them.

# %% [markdown]
# ## What this was for
#
# You have all the parts now. The two customers have scores for four products, softmax has made shares of them, and each product
# has a mean rating. What rating may each customer expect of the shop, if the products count by their interest? It is an average
# of four numbers, weighted by the shares, one for each customer: one matrix product.

# %%
shares = (customers @ products.mT).softmax(dim=-1)                         # (2, 4)
expected = shares @ means[:, None]                                         # (2, 4) @ (4, 1) = (2, 1)
print(f"the reader expects {expected[0].item():.2f} stars, the wet one {expected[1].item():.2f}")
assert expected[0] > 4.9 and expected[1] < 3

# %% [markdown]
# Scores between those who ask and those who are asked, a softmax along the right axis, a weighted average: that is attention,
# all of it. What it is good for, why it was needed and where its vectors come from fill the rest of the course. [Lecture
# @bottleneck](@bottleneck) begins with the trouble that it was invented for.
#
# A GPU would change nothing on this page but the range: computing there is often done in float16, whose exponentials overflow
# above 11 instead of 88, or in bfloat16, which keeps the 88 and drops digits.
#
# > **Check yourself.** (1) `x` is (5, 7, 16). What are the shapes of `x.sum(dim=-2)`, of `x - x[:, :1]`, of `x @ x.mT`? (2) A
# > colleague's loss falls from 9 to 1 and stays there. Which one line do you ask for? (3) A mask is (batch, n), the scores are
# > (batch, n_target, n). How do they meet?
# > <details><summary>Answers</summary>(1) (5, 16), (5, 7, 16), (5, 7, 7). (2) The shapes of prediction and target, side by side
# > (or the predictions themselves: are they all the same?). (3) As <code>mask[:, None]</code>, which is
# > (batch, 1, n).</details>
#
# **In the package.** `attncourse.attention` has `masked_softmax`, `masked_mean` and `lengths_to_mask`; `attncourse.data` has
# `pad_batch`. Each is a few lines long, and worth reading now that you know why each line is there. `viz` draws the pictures.
#
# **Read next.** Harris et al., *Array programming with NumPy* (Nature, 2020): figure 1 has shapes, axes and broadcasting on one
# page. Goodfellow, Bengio and Courville, *Deep Learning* (2016), section 4.1, on overflow and underflow, with softmax as the
# example. Rogozhnikov, *Einops: clear and reliable tensor manipulations with Einstein-like notation* (ICLR 2022), for axes with
# names. Goldberg, *What every computer scientist should know about floating-point arithmetic* (1991), when you want to know
# why 0.1 + 0.2 is what it is.
