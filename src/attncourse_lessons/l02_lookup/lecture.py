# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3 (ipykernel)
#     language: python
#     name: python3
# ---

# %% [markdown] teaches="attention as a soft lookup: query, key, value"
# # Lecture @lookup · Attention is a lookup: query, key, value
#
# *About 59 minutes, of which about one is computing time. You need Python, and tensors, the softmax and the gradient
# from [lecture @getting_ready](@getting_ready). [Lecture @bottleneck](@bottleneck) shows the problem that attention
# solves.*
#
# After this lecture you can
#
# * say what **query**, **key** and **value** are, without mentioning a neural network;
# * compute **hard** and **soft attention**, and choose the **temperature** of the soft one;
# * explain why soft attention can be trained and a hash table cannot, and derive its gradient;
# * recognise it as **kernel regression**, and say what a network adds: keys that are learned;
# * write the four **score functions** of the literature, and say what each of them can and cannot learn;
# * derive the **√d_k** of the scaled dot product.
#
# ## A hash table needs an exact match
#
# A counter on a bridge recorded the number of bicycles in six different hours of one day. A dictionary stores the
# counts by hour. All the numbers are made up. How many bicycles crossed at seven?

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
import re

import torch
from torch import nn

from attncourse.attention import (
    AdditiveScore,
    BilinearScore,
    attend,
    dot_score,
    scaled_dot_score,
)
from attncourse.data import docstrings
from attncourse.data.bridge import BICYCLES, counts, days, rush
from attncourse.data.word_contexts import word_contexts

torch.set_num_threads(1)  # models as small as these gain nothing from a second thread

# %%
print(BICYCLES)
try:
    BICYCLES[7]
except KeyError as error:
    print("KeyError:", error)

# %% [raw] slide
# ## A hash table needs an exact match
# {print}
#
# How many bicycles at seven? A dictionary answers only for the keys that it holds.
#
# > **Guess first.** What would you *like* the table to answer at seven?

# %% [raw] slide
# ## A common mistake: “maps each query to exactly one pair”
# At **most** one: the query above mapped to none.
#
# A lookup has to learn two things before a network can use it:
#
# 1. to **always answer**;
# 2. to **have a gradient**.

# %% [markdown] erratum="exactly one pair" teaches="attention as a soft lookup: query, key, value"
# A dictionary answers only for the keys that it holds, because it only ever asks whether two keys are *equal*. That
# eight is *near* seven plays no part: the **hash** by which a dictionary finds an entry need not keep near keys
# near each other.
#
# > **A common mistake: "a hash table maps each query to exactly one pair".** It maps a query to *at most* one pair:
# > the query 7 matched none.
#
# A network needs more: a lookup that always answers, and that has a gradient. *What would you like the table to
# answer at seven?* Write a number down. You have probably either taken the nearest entry or mixed the two nearest.
# These are the two lookups of this lecture: hard and soft attention.
#
# ## Keys that can be near: the dot product as a score
#
# Both lookups need a measure of **similarity**. How can a number say that eight is near seven? Put the hours on the
# face of a clock whose hand goes round once a day. Each hour becomes a vector of two numbers, and 23:00 lies close
# to 1:00, as it should.

# %%
def clock(hours):
    angle = 2 * math.pi * torch.as_tensor(hours, dtype=torch.float32) / 24
    return torch.stack([angle.sin(), angle.cos()], dim=-1)    # (…, 2)  vectors of length 1


hours = list(BICYCLES)
keys = clock(hours)                                           # (6, 2)
values = torch.tensor([float(n) for n in BICYCLES.values()])  # (6,)
query = clock(7)                                              # (2,)
scores = keys @ query                                         # (6,)  one for each key
figures.clock_keys(hours, scores, asked=7, title="scores")
#| caption: Scores of a query at 7:00, by the direction of the keys on a clock. A dot grows with
#|   its score; a score of zero or less has the smallest dot.

# %% [raw] slide
# ## Keys that can be near: the dot product as a score
# - Hours on a clock: vectors of length one.
# - **Attention score** $e_i = q \cdot k_i$: the cosine of the angle.
# - 1: same way. 0: six hours apart. −1: the other side of the day.
# |||
# {figure}

# %% [raw] slide
# ## Check yourself: why the clock?
# Keys are the plain numbers 2, 5, 8, 12, 17, 23, the query is 7, the score is their product. Which key wins?
# . . .
# > 23, for every positive query: a product rewards size, not nearness.

# %% [markdown]
# The **attention score** $e_i$ says how well key $i$ matches the query. Ours is the dot product, $e_i = q \cdot k_i$.
# For vectors of length one it is the cosine of the angle between them: 1 where they point the same way, 0 at a right
# angle (six hours apart), −1 on the other side of the day. Eight o'clock has the highest score, and five comes second.
#
# > **Check yourself.** Why the clock? Let the keys be the plain numbers 2, 5, 8, 12, 17, 23 and the query the number 7,
# > and let the score be their product. Which key wins, and what is wrong?
# > <details><summary>Answer</summary>23, with a score of 161. The product does not measure similarity: the largest
# > key wins for every query above zero. A dot product measures similarity only between vectors of about the same
# > length, as on the clock. The same trap waits below, with words.</details>
#
# ## Hard attention and soft attention
#
# **Hard attention** takes the key with the highest score and returns the value beside it:
#
# $$\operatorname{hard}(q) = v_{i^*}, \qquad i^* = \arg\max_i \; q \cdot k_i$$

# %%
best = scores.argmax()                                        # ()  a place in the table
print("hard:", values[best].item())

# %% [raw] slide
# ## Hard attention and soft attention
# **Hard:** the value beside the highest score.
#
# $$\operatorname{hard}(q) = v_{i^*}, \qquad i^* = \arg\max_i \; q \cdot k_i$$
#
# **Soft:** every key contributes; the answer is the **context vector** $c$.
#
# $$\alpha_i = \frac{\exp(e_i)}{\sum_j \exp(e_j)} \qquad\qquad c = \sum_i \alpha_i\, v_i$$
#
# > **Guess first.** Asked at seven: how much weight goes to eight? Does 17:00 get nothing?

# %% [markdown]
# Hard attention always answers. At seven, though, it says 310 bicycles, as if it were eight. It gives this answer
# from 6:31 on, and at 6:29 it still says 45. It ignores the second-best key, however close that key is.
#
# **Soft attention** lets every key contribute. The softmax turns the scores into **attention weights** $\alpha_i$,
# which are positive and sum to one. The answer is the average of the values by these weights, a **convex combination**:
# it lies between the smallest value and the largest. It is called the **context vector** $c$ (here a single number):
#
# $$\alpha_i = \frac{\exp(e_i)}{\sum_j \exp(e_j)} \qquad\qquad c = \sum_i \alpha_i\, v_i$$ (eq:soft-attention)
#
# *Before you run the next cell, guess:* how much of the weight goes to eight o'clock? And 17:00, with its negative
# score: does it get nothing?

# %%
weights = scores.softmax(dim=0)                               # (6,)  they sum to one
context = weights @ values                                    # ()    their average
figures.clock_keys(hours, weights, asked=7, title="attention weights")
print("soft:", round(context.item()))
#| caption: Attention weights of the same query: the softmax of its scores. A dot grows with its
#|   weight.

# %% tags=["hide-input"]
assert torch.isclose(weights.sum(), torch.tensor(1.0)) and weights.min() > 0.02

# %% [raw] slide
# ## Every key got something
# {figure}
# |||
# - The **query** asks.
# - It is compared with the **keys**.
# - The answer is made of the **values**.
#
# An exponential is never zero: good for learning, bad where a key must *not* be attended to.
#
# **Now you:** a@lookup, exercise 1

# %% [raw] slide
# ## Temperature: from a dictionary to a mean
# $$\alpha_i = \frac{\exp(e_i / T)}{\sum_j \exp(e_j / T)}$$
#
# > **Guess first.** Which way must $T$ go for a better answer at seven? What does the curve of answers look like at either end?

# %% [markdown] teaches="mean pooling as a starting point"
# Every key got some weight. Eight o'clock has 0.30, hardly more than five o'clock. Even 17:00 has 0.05, because an
# exponential is never zero. This is useful, because only a key with some weight gets a gradient. It also has a
# cost: sometimes a key must get no weight at all. [Lecture @masking](@masking) deals with that.
#
# Three terms are used throughout the course. The **query** asks. It is compared with the **keys**, which are used
# for nothing else. The answer is built from the **values** only. A key together with its value is a **position**.
# The query **attends to** a position, strongly or weakly according to its weight.
#
# **Now you:** [a02](@lookup/assignment), exercise 1.
#
# ## Temperature: from a dictionary to a mean
#
# At seven the answer is 143, and 0.42 of the weight lies on keys that are five hours away or more. How can we give
# the near keys more of it? The **temperature** is a number $T$ by which we divide the scores before the softmax:
#
# $$\alpha_i = \frac{\exp(e_i / T)}{\sum_j \exp(e_j / T)}$$ (eq:temperature)
#
# So far $T$ was 1. *Two questions before you move the slider.* Which way must $T$ go to bring the answer at seven
# closer to your first guess? And what will the orange curve, the answer at every hour of the day, look like at either
# end of the scale?

# %%
def soft_lookup(query, keys, values, T):
    """One query (d_k,), keys (n_key, d_k), values (n_key, …): context vector and weights."""
    weights = (keys @ query / T).softmax(dim=0)               # (n_key,)
    return weights @ values, weights


day = torch.linspace(0, 24, 289)                              # every five minutes


def all_day(keys, values, T):
    answers = [soft_lookup(query, keys, values, T)[0] for query in clock(day)]
    return torch.stack(answers)                               # (289,)


def draw(T):
    _, weights = soft_lookup(clock(7), keys, values, T)
    answers, title = all_day(keys, values, T), f"temperature T = {T:g}"
    return figures.lookup_frame(hours, values, weights, 7, day, answers, title, first)


first = all_day(keys, values, T=1.0)                          # (289,)
steps = [0.001, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 100.0]
viz.explore(draw, T=steps, start={"T": 1.0}, names={"T": "temperature T"},
            still=[{"T": 100.0}, {"T": 0.1}, {"T": 0.001}])
#| caption: Left: weights of a query at 7:00 (dotted). Right: the answer at every hour (orange;
#|   grey, dashed, at T = 1) and the six counts (blue).
#| label: temperature

# %% [raw] slide
# ## Move the temperature
# {figure}

# %% [markdown]
# At a low temperature the curve becomes a staircase: that is hard attention. At a high temperature it becomes a
# flat line: every key counts the same, whatever the query is. That is **mean pooling**, the summary that [lecture
# @bottleneck](@bottleneck) tried. Hard attention and the mean are the two ends of one scale.
#
# If your first guess lay between 143 and 310, $T$ must fall: at seven the answer is 238 at $T=0.1$, and 310 at
# $T=0.01$.

# %% tags=["hide-input"]
hard = torch.stack([values[(keys @ query).argmax()] for query in clock(day)])     # (289,)
cold, hot = all_day(keys, values, T=1e-5), all_day(keys, values, T=1e5)           # (289,) each
same = (cold - hard).abs() < 0.5
print(f"T = 0.00001: as hard attention at {same.sum()} of 289 times")
print(f"T = 100,000: from {hot.min():.1f} to {hot.max():.1f}; the mean is {values.mean():.1f}")

# %% tags=["hide-input"]
assert same.float().mean() > 0.95 and torch.allclose(hot, values.mean(), rtol=1e-3)

# %% [markdown]
# The other six of the 289 times lie halfway between two keys, as 3:30 does. There the two keys have equal scores, so
# soft attention mixes them at every temperature.
#
# From here on we use $T = 0.1$ for the bridge. The next figure shows a hash table beside a soft lookup. Both are
# asked for seven o'clock, a key that neither holds.

# %%
T = 0.1
context, weights = soft_lookup(clock(7), keys, values, T)
figures.two_lookups(BICYCLES, scores, T, asked=7)             # the scores on the clock above
#| caption: A hash table finds 8:00 and fails at 7:00. A soft lookup compares 7:00 with all
#|   keys, and adds up the weighted values.
#| label: two-lookups

# %% [raw] slide
# ## Cold is hard attention, hot is mean pooling
# {print}
# . . .
# Hard attention and the mean are the two ends of one scale. Multiplying every key by ten divides the temperature by ten: a network that learns its keys also learns how sharply to choose.
#
# **Now you:** a@lookup, exercise 2

# %% [raw] slide
# ## A hash table and soft attention
# {figure}

# %% [markdown]
# The length of the vectors sets the temperature, too. Multiplying every key by ten has the same effect as dividing the
# temperature by ten, and the same holds for the query. So a network that learns its keys and queries also learns how
# sharply to choose.
#
# ## Many queries at once: the matrix form
#
# Stack queries as the rows of a matrix $Q$ $(n_\text{query}, d_k)$, keys as the rows of $K$ $(n_\text{key}, d_k)$ and
# values as the rows of $V$ $(n_\text{key}, d_v)$. *Guess:* two queries ask our six keys. What are the shapes of the
# scores, the weights and the answers, and along which axis must the weights sum to one?

# %%
Q = clock([7, 3])                                             # (2, 2)  a row for each query
figures.matrix_form(Q, keys, values[:, None], T, asked=[7, 3], hours=hours)
#| caption: Two queries, six keys, T = 0.1. Each row of the scores belongs to one query; the
#|   softmax runs along it, over the keys.
#| label: matrix-form

# %% [raw] slide
# ## Many queries at once: the matrix form
# {figure}

# %% [markdown]
# The computation is two matrix products with a softmax between them. In the scores each row is a query and each
# column is a key. The weights of a row sum to one, whatever the other query asks. The first product sums over the
# width $d_k$, and the second product sums over the keys.
#
# > **Check yourself.** You add the same number $b$ to all scores of a query. What happens to its weights?
# > <details><summary>Answer</summary>Nothing: the softmax is **shift-invariant**. The factor $\exp(b)$ stands in the
# > numerator and in the denominator, and cancels. The softmax depends only on differences of scores. That is also why a
# > stable softmax may subtract the maximum.</details>
#
# **Now you:** [a02](@lookup/assignment), exercise 2.
#
# ## Why soft: it has a gradient
#
# Why do networks use the soft lookup? Suppose that we know the answer but not the question. We are told that 200
# bicycles crossed. At which hour was that? A network that is trained on targets is always in this position. It is
# told what should have come out, and it has to find out what it should have asked.
#
# The next figure shows the answers of both lookups at every hour, and below them the squared error. *Look at the middle
# panel of [@fig:temperature] before you go on.* Asked at nine, soft attention says about 295, and its answer is
# falling. Which way should you move the hour to come closer to 200, later or earlier? And which way with hard
# attention?

# %% [raw] slide
# ## Why soft: it has a gradient
# Somebody says: "there were 200". *When* was that?
#
# > **Guess first.** The squared error, for every hour that could have been asked. What does it look like for hard attention, for soft? What would you do at nine o'clock, feeling only the slope?

# %%
both = {"soft, T = 0.1": all_day(keys, values, T), "hard": hard}   # (289,) each
figures.error_curves(both, 200, day, at=9)
#| caption: Top: the answers of both lookups; dots where soft attention says 200. Bottom: their
#|   squared errors, with the slope of each at nine.
#| label: error-curves

# %% [raw] slide
# ## A staircase has no slope
# {figure}

# %% [markdown]
# The error of hard attention is a staircase. Its slope is zero on a step and does not exist at a jump, so it never
# says which way to go. Torch does not even compute one, because `argmax` returns an integer. The error of soft
# attention falls towards later hours at nine, and gradient descent can follow it:

# %%
hour = torch.tensor(9.0, requires_grad=True)
by_hard = values[(keys @ clock(hour)).argmax()]
by_soft, _ = soft_lookup(clock(hour), keys, values, T)
print("has a gradient?  hard:", by_hard.requires_grad, "  soft:", by_soft.requires_grad)
for _ in range(100):
    answer, _ = soft_lookup(clock(hour), keys, values, T)
    error = ((answer - 200) / 100) ** 2
    hour.grad = None
    error.backward()                                          # hour.grad: the slope
    with torch.no_grad():
        hour -= 0.1 * hour.grad                               # a step downhill
print(f"after 100 steps: {figures.clock_time(hour.item())}, answer {answer.item():.1f}")

# %% tags=["hide-input"]
assert by_soft.requires_grad and not by_hard.requires_grad and abs(answer.item() - 200) < 2
hour = torch.tensor(17.0, requires_grad=True)                 # the slow start, named below
for _ in range(100):
    answer, _ = soft_lookup(clock(hour), keys, values, T)
    (slope,) = torch.autograd.grad(((answer - 200) / 100) ** 2, hour)
    hour = (hour - 0.1 * slope).detach().requires_grad_()
assert 1 < 60 * (17 - hour.item()) < 5, "a few minutes"

# %% [raw] slide
# ## The gradient of a soft lookup
# {print}
#
# . . .
# $$\frac{\partial c}{\partial e_i} = \alpha_i\,(v_i - c)$$
#
# A key without weight gets no gradient, and neither does one whose value equals the answer.

# %% [markdown]
# Gradient descent found an hour at which soft attention says 200, a little after ten. The figure shows three other
# such hours, so a different start may end at a different one. The descent may also be very slow. Around 17:00 the
# curve is flat, because one key has nearly all the weight, and a hundred steps from there move the hour by only a
# few minutes. Values and keys get gradients in the same way, so a whole table can be learned from wrong answers.
#
# What does this gradient look like? *Work it out on paper:* by how much does $c = \sum_j \alpha_j v_j$ change with the
# score $e_i$? You need that $\partial \alpha_j / \partial e_i$ is $\alpha_i (1 - \alpha_i)$ for $j = i$, and $-\alpha_i
# \alpha_j$ otherwise. What is the gradient for a key that has no weight? And for a key whose value equals the answer?
# Then try numbers: two keys with the scores $\ln 3$ and 0, and the values 10 and 2.
#
# > <details><summary>Answer</summary>
# >
# > $$\frac{\partial c}{\partial e_i} = \alpha_i (1 - \alpha_i)\, v_i - \sum_{j \ne i} \alpha_i \alpha_j\, v_j
# > = \alpha_i \Bigl(v_i - \sum_j \alpha_j v_j\Bigr) = \alpha_i\, (v_i - c)$$
# >
# > A higher score pulls the answer towards the key's own value. The pull is the distance from the answer to that value,
# > times the weight. A key without weight gets no gradient, and neither does one with $v_i = c$.
# >
# > In numbers: the weights are 3/4 and 1/4, so $c = 8$. The gradients are $\frac34 (10 - 8) = 1.5$ and $\frac14 (2 - 8)
# > = -1.5$. They add up to zero, as they always do: adding one number to all scores changes nothing.</details>
#
# Here is the bridge at seven, at a temperature of 0.5, where all six keys have some weight:

# %%
e = (keys @ clock(7) / 0.5).requires_grad_()                  # (6,)
alpha = e.softmax(dim=0)                                      # (6,)
c = alpha @ values                                            # ()
c.backward()
on_paper = (alpha * (values - c)).detach()                    # (6,)
figures.pulls(hours, values, alpha.detach(), e.grad)
print(f"autograd and paper differ by {(e.grad - on_paper).abs().max():.5f} at most")
#| caption: A block is as wide as its key's weight, and reaches from c to its value. Its area is
#|   the gradient of its score: orange positive, blue negative.
#| label: pulls

# %% [raw] slide
# ## Weight times distance
# {figure}
#
# As much area above the answer as below it: the gradients of a query's scores sum to zero.

# %% tags=["hide-input"]
assert torch.allclose(e.grad, on_paper, atol=1e-3)
e = torch.tensor([math.log(3), 0.0], requires_grad=True)      # the two keys of the answer above
c = e.softmax(dim=0) @ torch.tensor([10.0, 2.0])
c.backward()
assert torch.isclose(c, torch.tensor(8.0)) and torch.allclose(e.grad, torch.tensor([1.5, -1.5]))

# %% [markdown] teaches="attention is older than neural networks, and powerful if its weights are learned"
# A higher score for eight or 17:00 raises the answer, and a higher score for any other key lowers it. There is as
# much area above the answer as below it. At $T = 0.1$ two keys share nearly all the weight, and the other blocks
# would be too narrow to see. This is a danger: if the temperature is too low early in training, and the loss sees
# nothing but the answer, a lookup may hardly learn. The section on $\sqrt{d_k}$ measures this.
#
# The gradient of soft attention is exact and costs one backward pass. That is a strong reason why nearly all attention
# is soft.
#
# <details><summary>Can hard attention be trained, too?</summary>
#
# Yes. The method REINFORCE *samples* a key from the weights, and makes samples that turn out well more likely. Its
# gradient is right on average but noisy, because each step uses only one sampled value. Xu et al. ([-@xu2015]) trained a
# captioning model with hard and with soft attention, and gave the two kinds their names. A **straight-through**
# estimator makes the hard choice in the forward pass and takes the gradient of the soft choice in the backward pass
# ([@bengio2013], for binary units; [@jang2017], with a softmax). Its gradient is biased. There are also relatives of
# the softmax, such as **sparsemax**, that give many keys a weight of exactly zero and still have a gradient at the
# other keys.</details>
#
# **Now you:** [a02](@lookup/assignment), exercise 3: the gradients of query, keys and values, by hand.
#
# ## Kernel regression: the same average in 1964
#
# Our six counts came from a single day, and not a typical one. What does a typical day look like? Here are sixty
# made-up counts from sixty other days, at random hours. They scatter around a curve that we know, with noise of the
# kind that rain and holidays cause; a count below zero is set to zero. A dictionary of these counts would be useless,
# but a soft lookup can smooth them.
#
# Every count has some weight in every answer, but most weights are tiny. The **effective number of keys**, $1 /
# \sum_i \alpha_i^2$, says how many keys really take part: it is $n$ where $n$ keys share the weight equally. *Guess:*
# how many of the sixty is that, asked at nine, at $T$ = 0.001, 0.03 and 1?

# %% [raw] slide
# ## Kernel regression: the same average in 1964
# $$\hat y(q) = \frac{\sum_i K(q, k_i)\, v_i}{\sum_j K(q, k_j)} \qquad K(q, k) = \exp\Bigl(-\frac{\lVert q - k \rVert^2}{2h^2}\Bigr)$$
#
# Nadaraya and Watson. For vectors of length one it **is** soft attention, with $T = h^2$.
# . . .
# Added by Bahdanau et al. (2015): queries, keys and values come out of a network, trained *through* the average. The weights $\alpha$ are not parameters.

# %%
asked, counted = counts(60, torch.Generator().manual_seed(0))  # (60,) hours, (60,) bicycles
smoothed, nine = {}, {}
for t in (0.001, 0.03, 1.0):
    smoothed[f"T = {t:g}"] = all_day(clock(asked), counted, t)
    nine[f"T = {t:g}"] = soft_lookup(clock(9), clock(asked), counted, t)[1]       # (60,)
figures.smoothings(smoothed, day, asked, counted, nine, at=9, truth=rush(day))
#| caption: Sixty counts, their soft lookup (orange) and the true curve (dashed). A count is
#|   larger and darker the more weight it has at 9:00.
#| label: smoothings

# %% [raw] slide
# ## Too cold, too hot
# {figure}
#
# Cold: **overfitting**. Hot: both rush hours are averaged away.

# %% [markdown]
# The titles give the effective number of keys. At too low a temperature the curve follows single counts, which is
# **overfitting**. At too high a temperature both rush hours disappear. Even at $T = 0.03$, between the two, the
# average flattens the morning peak.
#
# Which temperature is best? Hide each count in turn, and predict it from the other fifty-nine. The error is the
# **root mean squared error (RMSE)** of these predictions, and the method is called **leave-one-out
# cross-validation**. *Sketch the error against the temperature before you look* at three samples of sixty counts.

# %% [raw] slide
# ## Leave one out
# > **Guess first.** Hide each count in turn, predict it from the others. Sketch the error against the temperature.

# %%
def hidden_error(asked, counted, T):
    squares = []
    for i in range(len(asked)):
        others = torch.arange(len(asked)) != i                # not the hidden one
        answer, _ = soft_lookup(clock(asked[i]), clock(asked[others]), counted[others], T)
        squares.append((answer - counted[i]) ** 2)
    return torch.stack(squares).mean().sqrt()


temperatures = torch.logspace(-4, 2, 25)
valleys, floors = {}, {}
for seed in range(3):
    sample = counts(60, torch.Generator().manual_seed(seed))
    name = f"sample {seed}"
    valleys[name] = torch.stack([hidden_error(*sample, t) for t in temperatures])
    off = rush(sample[0]) - sample[1]                         # (60,)  rush: the true curve
    floors[name] = off.square().mean().sqrt().item()
figures.valleys(valleys, temperatures, floors)
#| caption: RMSE on hidden counts against the temperature, for three samples of sixty counts
#|   (dots: the lowest). Right: the RMSE of the true curve on each sample.
#| label: valleys

# %% tags=["hide-input"]
said = []
for seed, (name, line) in enumerate(valleys.items()):
    asked, counted = counts(60, torch.Generator().manual_seed(seed))
    best = temperatures[line.argmin()]
    said.append(soft_lookup(clock(7), clock(asked), counted, best)[0].item())
    above = line.min() / floors[name] - 1
    print(f"{name}: best T = {best:.3f}, RMSE {line.min():.1f}, {above:.0%} above the true"
          f" curve's {floors[name]:.1f};  at seven {said[-1]:.0f}")
    assert line.min() < 0.95 * line[0] and line.min() < 0.7 * line[-1]
    assert 0.1 < above < 0.35 and 30 < floors[name] < 42 and best < 0.05
print(f"typical at seven, by the true curve: {rush(torch.tensor(7)):.0f}")
assert min(said) > 180 and max(said) < 220

print("best T by the distance from the true curve, median of twenty samples:")
half_hours, medians = torch.arange(0, 24, 0.5), []            # (48,)
for n in (15, 60, 240):
    best = []
    for seed in range(20):
        some, numbers = counts(n, torch.Generator().manual_seed(seed))
        some, off = clock(some), []                           # (n, 2)
        for t in temperatures:
            found = [soft_lookup(query, some, numbers, t)[0] for query in clock(half_hours)]
            off.append((torch.stack(found) - rush(half_hours)).square().mean())
        best.append(temperatures[torch.stack(off).argmin()])
    best = torch.stack(best)                                  # (20,)
    medians.append(best.median().item())
    low, high = best.quantile(0.25), best.quantile(0.75)
    print(f"{n:>4} counts: {medians[-1]:.3f}, half of them from {low:.3f} to {high:.3f}")
assert medians[0] > 1.5 * medians[1] > 2 * medians[2]

# %% [raw] slide
# ## A valley for each sample
# {figure}

# %% [markdown]
# Each curve has a valley. Nothing can predict the noise: even the true curve, from which the counts were drawn,
# leaves an RMSE of more than 30. The best soft lookups end between a tenth and a third above the true curve's RMSE.
# This comparison is a little optimistic, because each of them is the best of 25 temperatures on the same counts.
#
# The best temperature of each sample is lower than our 0.1. A possible reason: sixty keys lie so close together
# that even a narrow average holds several of them. Then the best temperature should fall further with more counts.
# The folded cell tests this, in twenty samples of each size. It measures the distance from the true curve itself.
# The guess holds: the best temperature falls from 15 counts to 60, and again from 60 to 240.
#
# How many bicycles crossed at seven on the first day? We still do not know. But we can now say what is typical: 213
# by the true curve, and each of the three samples says between 180 and 220. Our six counts gave 238 at $T = 0.1$.
# That is near, but partly by luck, because they came from a single, unusual day.
#
# The method is old. Nadaraya and Watson proposed it independently ([@nadaraya1964]; [@watson1964]). To estimate a
# curve at $q$, add up the measured values, each weighted by a **kernel** centred at $q$ (here a Gaussian), and
# divide by the sum of the weights:
#
# $$\hat y(q) = \frac{\sum_i K(q, k_i)\, v_i}{\sum_j K(q, k_j)} \qquad K(q, k) = \exp\Bigl(-\frac{\lVert q - k \rVert^2}{2h^2}\Bigr)$$
#
# This is **kernel regression**, and the width $h$ of the bell is its **bandwidth**. (Elsewhere in the course $h$ is
# the number of heads.) For vectors of length one it *is* soft attention with a temperature. There $\lVert q - k
# \rVert^2 = 2 - 2\, q \cdot k$, the factor $\exp(-1/h^2)$ cancels in the division, and $\exp(q \cdot k / h^2)$ is
# left. So a bandwidth of $h$ is a temperature of $h^2$, and the exponential of the softmax is the Gaussian bell, seen
# on the circle. Another kernel gives another attention. The next cell compares the two at every five minutes of the
# day:

# %%
h, apart = 0.2, []
for query, attention in zip(clock(day), all_day(clock(asked), counted, T=h**2), strict=True):
    kernel = torch.exp(-((clock(asked) - query) ** 2).sum(dim=1) / (2 * h**2))    # (60,)
    apart.append((kernel * counted).sum() / kernel.sum() - attention)
apart = torch.stack(apart).abs().max()                        # ()
print(f"kernel regression and soft attention differ by {apart:.4f} bicycles at most")

# %% tags=["hide-input"]
assert apart < 0.02

# %% [markdown] teaches="attention is older than neural networks, and powerful if its weights are learned"
# So an average whose weights depend on the query is half a century older than the Transformer. What came later is
# training *through* the average. Weinberger and Tesauro ([-@weinberger2007]) trained a linear map of queries and
# keys by the leave-one-out error that we have just measured. In Bahdanau et al. ([-@bahdanau2015]) the queries,
# keys and values are all computed by trained networks. Be careful with the phrase "the weights are learned". The
# attention weights $\alpha$ are not parameters: they are computed anew for each query. What is learned is the
# network that makes the vectors.
#
# ## Learned keys: training through the average
#
# We chose the clock by hand. Can training find good keys? Forget the clock, and forget that hours are numbers. Each
# of the 24 hours gets a vector of two random numbers, which serves as its query and as its key.
#
# The data are days. `days` gives the difference of each day from a typical day, in hundreds of bicycles. This
# difference is a smooth curve that closes at midnight: a random mixture of `waves` with one to four periods a day,
# the faster ones smaller. Soft attention to eight hours of a day must predict the other sixteen. The hidden hours
# must not answer, so they get a score of $-\infty$, which makes their weight $\exp(-\infty) = 0$. The squared error
# trains the vectors with the optimiser **Adam**, which is gradient descent with a separate step size for each number.
#
# *Guess:* no input says that 7 comes next to 8. Where will the 24 vectors go?

# %% [raw] slide
# ## Learned keys: training through the average
# Forget the clock. Each of 24 hours gets two **random** numbers, its query and its key. Trained by the squared error of a soft lookup.
#
# > **Guess first.** Nothing says that 7 comes next to 8. Where will the 24 vectors go?

# %%
def error_in_hidden_hours(vectors, n, generator, waves=(1, 2, 3, 4)):
    today, seen = days(n, generator, waves=waves)             # (n, 24) each
    scores = (vectors @ vectors.mT).expand(n, 24, 24)         # (n, 24, 24)  each day the same
    hidden = ~seen[:, None]                                   # (n, 1, 24)   for all queries
    scores = scores.masked_fill(hidden, -torch.inf)           # (n, 24, 24)  the seen answer
    weights = scores.softmax(dim=-1)                          # (n, 24, 24)
    answers = (weights @ today[:, :, None])[:, :, 0]          # (n, 24, 1) → (n, 24)
    return ((answers - today)[~seen] ** 2).mean()


def learn(seed, steps=600, waves=(1, 2, 3, 4)):
    generator = torch.Generator().manual_seed(seed)
    vectors = nn.Parameter(0.3 * torch.randn(24, 2, generator=generator))         # (24, 2)
    optimizer = torch.optim.Adam([vectors], lr=0.03)
    path = [vectors.detach().clone()]
    for _ in range(steps):
        loss = error_in_hidden_hours(vectors, 64, generator, waves)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        path.append(vectors.detach().clone())
    return path

# %%
paths = [learn(seed) for seed in range(3)]
def draw_keys(step):
    return figures.learned_keys(paths[0][step], f"after {step} steps")


viz.explore(draw_keys, step=[0, 10, 20, 40, 60, 80, 120, 200, 400, 600], start={"step": 600},
            still=[{"step": 0}, {"step": 40}, {"step": 80}, {"step": 600}])
#| caption: Each dot is the vector of one hour, its query and its key (seed 0). Its colour is
#|   the hour; lines join each hour to the next.

# %% [raw] slide
# ## They form a clock
# {figure}

# %% [markdown]
# The vectors form a clock. Pull the slider back to zero, and watch how. Does this always happen, and is the learned
# clock any good? We test three seeds on 2,000 new days. The rivals are the hand-made clock at three temperatures,
# the mean of the eight hours, and no lookup at all:

# %% tags=["hide-input"]
def test_error(vectors):
    generator = torch.Generator().manual_seed(99)
    with torch.no_grad():
        return error_in_hidden_hours(vectors, 2000, generator).sqrt().item()


by_hand = {t: test_error(clock(range(24)) / math.sqrt(t)) for t in (0.03, 0.1, 0.3)}
for seed, path in enumerate(paths):
    length = path[-1].norm(dim=-1).mean()
    print(f"learned, seed {seed}: RMSE {100 * test_error(path[-1]):.1f} bicycles;"
          f"  {figures.turns(path[-1]):+.0f} turn a day;  1 / length² = {1 / length**2:.2f}")
for t, off in by_hand.items():
    print(f"clock by hand, T = {t:g}: RMSE {100 * off:.1f}")
print(f"mean of the hours seen: RMSE {100 * test_error(torch.zeros(24, 2)):.1f}")
today, seen = days(2000, torch.Generator().manual_seed(99))   # the same new days
print(f"always 0, a typical day: RMSE {100 * today[~seen].square().mean().sqrt():.1f}")
alike = torch.corrcoef(today.T)                               # (24, 24)
alike = torch.stack([alike.roll(-far, dims=1).diagonal().mean() for far in range(13)])
print("correlation of two hours:",
      ", ".join(f"{alike[far]:.2f} at {far} h" for far in (1, 3, 6, 9, 12)))

# %% tags=["hide-input"]
for path in paths:
    assert abs(abs(figures.turns(path[-1])) - 1) < 1e-3, "once round, in the order of the day"
    assert test_error(path[-1]) < min(by_hand.values()) + 0.005, "half a bicycle"
    assert 0.08 < 1 / path[-1].norm(dim=-1).mean() ** 2 < 0.16
assert (alike[:12] - alike[1:]).min() > -0.02, "it falls, and hardly from 10 to 12"

# %% [raw] slide
# ## Close to the best hand-made clock, temperature included
# {print}

# %% [markdown]
# Every seed finds a circle, in the order of the day; the sign gives the direction. Each learned clock comes within
# half a bicycle of the best of the three hand-made clocks. The plain mean is worse than always answering 0, which
# says that each day is typical. Even the temperature is learned. For vectors of length $r$ the dot product is $r^2$
# times the cosine, so $1/r^2$ is the temperature, and all three seeds chose about 0.12.
#
# *Why a circle?* Here is a reason, though not a proof. On these days the correlation of two hours depends only on
# how far apart they are round the clock, and it falls with that distance, as the last line shows. So near hours
# should get the most weight, and a weight should depend on the distance alone. Dot products do this if near hours
# point in similar directions, equal times are equal angles, and all vectors have the same length. That is a circle.
#
# <details><summary>Is this the best possible prediction?</summary>No. Each day is made of eight random numbers, two for
# each wave, so eight counts nearly always determine it. But here the weights are positive and sum to one, so an answer
# never leaves the range of the counts that it saw. Recovering the waves would also require negative weights.</details>
#
# If the circle comes from the days, other days must give other vectors. On days that repeat after twelve hours,
# 3:00 and 15:00 always have the same value. So the vectors should go round *twice*, and 3 should lie beside 15:

# %%
twice = [learn(seed, waves=(2, 4))[-1] for seed in range(3)]
print("days that repeat after twelve hours:", [f"{figures.turns(t):+.0f} turns" for t in twice])
apart = [((t[3] - t[15]).norm() / t[3].norm()).item() for t in twice]
print("from 3 to 15, in lengths of a vector:", [round(x, 2) for x in apart])

# %% tags=["hide-input"]
assert all(abs(abs(figures.turns(vectors)) - 2) < 1e-3 for vectors in twice)
assert max(apart) < 0.3, "far less than the 2 of opposite places"

# %% [markdown] teaches="a summary of fixed size of a set"
# They do, with every seed. *What would days with `waves=(3,)` give?* Guess, and change the cell.
#
# > <details><summary>Answer</summary>Three turns: such days repeat after eight hours, so 3 lies beside 11 and
# > 19.</details>
#
# **Now you:** [a02](@lookup/assignment), exercise 4: debug a course-mate's leave-one-out, in which no key may look
# itself up.
#
# ## Attention pooling: a fixed-size summary of a set
#
# Soft attention has another use in a network. A sentence may have three words or three thousand, but the next layer
# needs a vector of a fixed width. The context vector is as wide as one value, however many values there are. A mean
# has a fixed width, too, but attention is *selective*: another query gets another summary of the same values. This is
# **attention pooling**, in contrast to mean pooling.
#
# Nothing in the formula says which key is the first. *Predict:* we shuffle keys and values together; then the keys
# alone. What happens to the answers at 3:00, 7:00 and 15:00?

# %% [raw] slide
# ## Attention pooling: a fixed-size summary of a set
# The context vector is as wide as a value, however many there are, and it is *selective*: another query, another summary.
#
# > **Guess first.** We shuffle keys and values together; then the keys alone. What happens to the answers at 3:00, 7:00 and 15:00?

# %%
shuffle = torch.tensor([4, 2, 0, 5, 1, 3])
tables = {"as it was": (keys, values),
          "shuffled together": (keys[shuffle], values[shuffle]),
          "keys alone": (keys[shuffle], values)}
for name, table in tables.items():
    answers = [round(soft_lookup(clock(hour), *table, T)[0].item()) for hour in (3, 7, 15)]
    print(f"{name:>17}:", answers)

# %% [raw] slide
# ## A table is a set of pairs
# {print}
#
# A sum does not care about order. If order matters, it has to be written into the vectors or the scores: lecture @order.

# %% [markdown]
# When keys and values are shuffled together, nothing changes: a table is a set of pairs, and a sum does not depend on
# order. The answer is **permutation-invariant**. When the keys alone are shuffled, they point to the wrong values. So
# attention by itself does not know which entry came first. Where order matters, as in a sentence, it has to be
# written into the vectors or the scores. [Lecture @order](@order) does that for words.
#
# <details><summary>Other names for this read: memory networks, content-based addressing, pointers</summary>
#
# **Memory networks** ([@weston2015]) read a table of stored sentences by hard attention, and were told in training
# which sentence is the right one. Sukhbaatar et al. ([-@sukhbaatar2015]) made the read soft, and then the answer alone
# was enough. The Neural Turing Machine ([@graves2014]) calls it **content-based addressing**: a place in memory is
# found by what it contains. The address of a place in memory is a **pointer**, so attention is a pointer with a
# gradient. **Pointer networks** ([@vinyals2015]) leave out the values. There the weights themselves are the output, and
# say *which* input is meant.</details>
#
# ## Keys for words: cosine similarity
#
# An hour had an obvious vector. What is the vector of a word? Firth ([-@firth1957]) said: "You shall know a word by
# the company it keeps." We read four thousand docstrings of Python's standard library. For each word we count which
# other words occur within three places of it. The table below lists ten words that are keys, two for each topic,
# and fifteen other words that are queries. We picked all of them by hand. Your Python may have other docstrings,
# and then slightly other numbers.

# %% tags=["hide-input"]
texts = docstrings(limit=4000)
texts = [re.findall("[a-z]+", text.lower()) for text in texts.train + texts.test]
topics = {"time": ("month week", "day year weekday"),
          "numbers": ("integer float", "fraction decimal complex"),
          "network": ("server socket", "client connection port"),
          "threads": ("thread process", "lock threads child"),
          "files": ("file directory", "path filename files")}
known = [(word, topic) for topic, (words, _) in topics.items() for word in words.split()]
new = [(word, topic) for topic, (_, words) in topics.items() for word in words.split()]
words = [word for word, _ in known + new]                     # 25: keys first, then queries
neighbours, context_words, occurrences = word_contexts(texts, words, n_contexts=500, reach=3)
print(f"{'topic':<10}{'keys':<18}queries")
for topic, (in_table, asked_for) in topics.items():
    print(f"{topic:<10}{in_table:<18}{asked_for}")
print("columns:", neighbours.shape[1], "neighbours; the first are", *context_words[:6])

# %% [raw] slide
# ## Keys for words: the company they keep
# A word is a row of 500 counts of its neighbours. Ten words are keys, fifteen others ask.
#
# > **Guess first.** "Day" should find "month" or "week". Which key wins?
#
# . . .
# **"File"**, whatever the question (3 of 15 right): it is frequent, so its row is *long*.

# %% [markdown]
# Each word is a row of 500 counts, and the score is the plain dot product of two rows. We use hard attention first,
# to see which key wins. "Day" should find "month" or "week". *Guess:* which property of a key will decide how often
# it wins?

# %%
def who_answers(vectors):
    """The known word with the largest dot product, for each new word. Is the topic right?"""
    answers, wrong = [], []
    for (word, topic), query in zip(new, vectors[10:], strict=True):
        answer, answered_topic = known[(vectors[:10] @ query).argmax()]
        answers.append(answer)
        if answered_topic != topic:
            wrong.append(f"{word} → {answer}")
    return answers, wrong


answers, wrong = who_answers(neighbours)
print("the answers:", set(answers), " right:", len(new) - len(wrong), "of", len(new))
print("each key occurs:", ", ".join(f"{word} {occurrences[word]}" for word in words[:5]) + ",")
print("                ", ", ".join(f"{word} {occurrences[word]}" for word in words[5:10]))
right = {"counts": len(new) - len(wrong)}

# %% [markdown]
# "File" answers every question. This is the trap that we met with the plain hours: the largest key wins. "File" is
# by far the most frequent of the ten keys, so its row is *long*, and a dot product rewards length as much as
# direction.
#
# The standard repair gives all rows the same length. Then the dot product is the **cosine similarity**.

# %%
def of_length_one(vectors):
    return vectors / vectors.norm(dim=1, keepdim=True)        # (25, 500)


answers, wrong = who_answers(of_length_one(neighbours))
print("length 1: right", len(new) - len(wrong), "of", len(new), " wrong:", ", ".join(wrong))

# %% [raw] slide
# ## Cosine similarity: all rows of length 1
# {print}
#
# Another repair, PPMI, counts how much more often than by chance two words meet. The lookup and the score are the same. Only the vectors are better.

# %% [markdown]
# That is far better, but *file* still wins questions that it should not. Every row has many counts of *the*, *a* and
# other frequent words. On average the five most frequent neighbours make up about four fifths of a score, and they say
# nothing about the topic. A standard repair is **PPMI**, positive pointwise mutual information: it counts a neighbour
# only as far as it is more frequent than by chance. From here on we use PPMI, with length 1.
#
# <details><summary>How PPMI is computed, and what else helps</summary>
#
# How much more often than by chance does a neighbour occur? The logarithm of this ratio is the **pointwise mutual
# information** of two words ([@church1990]); PPMI sets negative numbers to zero. For example, let a word have 200
# neighbours, and let one word in twenty of the texts be "the". By chance, ten of the neighbours would be "the". If
# thirty are, the entry is ln 3 = 1.1. If eight are, it is 0.
#
# The folded cell tries PPMI alone, PPMI with length 1, and a third repair, which leaves out the most frequent
# neighbours. Fifteen questions are enough to show that each repair beats the raw counts, and too few to rank repairs
# that differ by one or two.</details>

# %% tags=["hide-input"]
frequency = torch.tensor([float(occurrences[word]) for word in context_words])    # (500,)
by_chance = neighbours.sum(dim=1, keepdim=True) * frequency / frequency.sum()     # (25, 500)
ppmi = (neighbours / by_chance).clamp(min=1.0).log()                              # (25, 500)
repairs = {"length 1": of_length_one(neighbours), "PPMI": ppmi,
           "PPMI and length 1": of_length_one(ppmi)}
for left_out in (5, 10, 20, 50):
    rarer = neighbours[:, left_out:]                          # (25, 500 − left_out)
    repairs[f"length 1, without the {left_out} most frequent"] = of_length_one(rarer)
print("right of 15, by repair:")
for name, rows in repairs.items():
    right[name] = len(new) - len(who_answers(rows)[1])
    print(f"{right[name]:>3}  {name}")
assert all(right[name] > right["counts"] for name in repairs), "each repair helps, alone"
vectors = repairs["PPMI and length 1"]                        # (25, 500)
rows, few = of_length_one(neighbours), of_length_one(neighbours)[:, :5]
part = (few[10:] @ few[:10].mT) / (rows[10:] @ rows[:10].mT)  # (15, 10)
assert 0.7 < part.mean() < 0.9

# %% [markdown]
# Soft attention says more than which key wins. Here are its weights at $T = 0.05$, with rows made by PPMI and of
# length 1.

# %%
topic_of_key = nn.functional.one_hot(torch.arange(10) // 2).float()               # (10, 5)
table = [soft_lookup(query, vectors[:10], topic_of_key, T=0.05) for query in vectors[10:]]
weights = torch.stack([weights for _, weights in table])                          # (15, 10)
figures.lookup_table(weights, queries=words[10:], keys=words[:10], topics=5)
contexts = torch.stack([context for context, _ in table])                         # (15, 5)
unsure = contexts.amax(dim=1).argmin()
said = ", ".join(f"{topic} {x:.2f}" for topic, x in zip(topics, contexts[unsure], strict=True))
print(f"least sure: {words[10 + unsure]}.", said)
#| caption: Attention weights between words, with keys made from their neighbours. A frame is
#|   a topic; weights below 0.1 have no number.

# %% [raw] slide
# ## Soft attention says more than who wins
# {figure}

# %% [markdown] teaches="score functions: additive, bilinear, dot, scaled dot"
# Where a row is faint, the lookup is unsure which key to pick, but the right topic still leads. The values are
# topics, written as **one-hot** vectors of five numbers. So the context vector is a vote, and it shows how sure the
# vote is. Keys and values need not have the same width: here a key has five hundred numbers and a value has five.
#
# *This is a good place for a break. Next: how a network computes the score.*
#
# ## Score functions: additive, dot, bilinear, scaled dot
#
# The dot product needs a query and a key of the same width, whose coordinates mean the same. In a translator the query
# comes from a decoder and the key from an encoder, so why should their coordinates agree? A **score function** is any
# rule that says how well a query matches a key. Four of them matter here. As everywhere in this course, vectors are rows.
#
# | | $e(q, k)$ | learns | source |
# |---|---|---|---|
# | **additive** | $\tanh(q W + k U) \cdot w$ | $W, U, w$ | [@bahdanau2015] |
# | **dot** | $q \cdot k$ | nothing | [@luong2015] |
# | **bilinear** | $q W \cdot k$ | $W$ | [@luong2015] ("general") |
# | **scaled dot** | $q \cdot k / \sqrt{d_k}$ | nothing | [@vaswani2017] |
#
# The cell computes each score for one query and one key, by its equation and by the package's layer. *Guess:* we
# exchange query and key. For which of the four does the score stay the same?

# %% [raw] slide
# ## Score functions: four that matter here
# | | $e(q, k)$ | learns | |
# |---|---|---|---|
# | **additive** | $\tanh(q W + k U) \cdot w$ | $W, U, w$ | Bahdanau et al. 2015 |
# | **dot** | $q \cdot k$ | nothing | Luong et al. 2015 |
# | **bilinear** | $q W \cdot k$ | $W$ | Luong et al. 2015 |
# | **scaled dot** | $q \cdot k / \sqrt{d_k}$ | nothing | Vaswani et al. 2017 |
#
# > **Guess first.** Query and key are exchanged. For which does the score stay the same?
#
# . . .
# For the two dot products: they are symmetric.

# %%
torch.manual_seed(0)
q, k = torch.randn(6), torch.randn(6)
by_matrix, by_network = BilinearScore(6, 6), AdditiveScore(6, 6, 10)
W, U = by_network.query.weight.mT, by_network.key.weight.mT   # (6, 10) each
w = by_network.v.weight[0]                                    # (10,)
with torch.no_grad():
    by_equation = {"additive": torch.tanh(q @ W + k @ U) @ w, "dot": q @ k,
                   "bilinear": (q @ by_matrix.weight) @ k, "scaled dot": q @ k / math.sqrt(6)}
    by_package = {"additive": by_network, "dot": dot_score, "bilinear": by_matrix,
                  "scaled dot": scaled_dot_score}
    for name, layer in by_package.items():
        assert torch.isclose(layer(q[None], k[None])[0, 0], by_equation[name], atol=1e-6)
        exchanged = layer(k[None], q[None])[0, 0]
        print(f"{name:>10}: {by_equation[name]:6.3f}  exchanged: {exchanged:6.3f}")

# %% [markdown]
# A dot product is symmetric: it does not distinguish the query from the key. The two learned scores can distinguish
# them: *q asks k* and *k asks q* get different scores. The bilinear score is a dot product after a matrix. The
# additive score is a small network, applied to each pair. In its hidden layer the part of the query and the part of
# the key are *added*, and a vector $w$ turns the hidden layer into one number. Papers often put query and key side by
# side, $w^\top \tanh(W_1 [q; k])$. That is the same score, with $W$ and $U$ joined into one matrix. A coordinate of
# $q$ or $k$ that is always 1 gives it a bias.
#
# ## What each score function can express
#
# A key may be anywhere in the plane. We colour each place by the score that a given query (the green arrow) would
# give to a key there: the darker the orange, the higher the score. Lines join places of equal score. The six keys A to
# F (blue dots) get their weights by softmax, and a larger dot is a larger weight. The matrix of the bilinear score turns the query by a right angle. The additive network was set by
# hand.
#
# *Before you look:* what shape are the lines of equal score for the dot product? Does dividing by $\sqrt2$ change
# which key wins? Which of the four can prefer a key because it is *near*?

# %% [raw] slide
# ## What each score function can express
# > **Guess first.** Colour every place in the plane by the score that a query gives it. What shape are the lines of equal score for the dot product? Which of the four can prefer a key because it is *near*?

# %%
names = ["A", "B", "C", "D", "E", "F"]
places = torch.tensor([[0.9, 0.3], [1.8, 0.6], [-0.2, 1.1],
                       [-1.2, 0.8], [-0.5, -1.5], [1.0, -0.9]])
turned = BilinearScore(2, 2)
with torch.no_grad():
    turned.weight.copy_(torch.tensor([[0.0, 1.0], [-1.0, 0.0]]))        # a right angle
four = {"dot": dot_score, "scaled dot": scaled_dot_score,
        "bilinear": turned, "additive": figures.hill}


def draw(direction):
    angle = torch.tensor(math.radians(direction))
    query = torch.stack([angle.cos(), angle.sin()])           # (2,)
    return figures.score_landscapes(four, query, places, names, f"query at {direction}°")


viz.explore(draw, direction=list(range(0, 360, 45)), start={"direction": 0})
#| caption: Score of a key at each place, for the query (green); lines at whole numbers, dashed
#|   below zero; dots: six keys with their weights.

# %% [raw] slide
# ## Score landscapes
# {figure}

# %% [markdown]
# The score of the dot product is a plane, tilted like a roof. It rises steadily in the query's direction, and its
# lines of equal score are perpendicular to that direction. So of two keys in the same direction, on the query's side,
# the farther one wins: B beats A. Dividing by $\sqrt2$ makes the same slope gentler: the lines lie farther apart, and
# B still wins, with less of the weight than before. The bilinear score is a tilted plane, too. It rises in the
# direction of the turned query.
#
# The additive score can be a hill. A tanh with a bias is a soft step, and a step up before the query and a step down
# behind it make a ridge. The four hidden units of our network measure how far the key lies to the right of the query,
# to its left, above it and below it. They make two ridges, and the hill is where these cross. So the score is not a
# function of the distance alone, but A, which is near, beats B.
#
# <details><summary>Why a long key wins: the dot product as a kernel</summary>
#
# In general $q \cdot k = \frac12 (\lVert q \rVert^2 + \lVert k \rVert^2 - \lVert q - k \rVert^2)$, and the first term
# cancels in the softmax. So dot-product attention is kernel regression in which each key has one more factor,
# $\exp(\lVert k \rVert^2 / 2T)$, which favours a long key. That is what happened with the plain hours, where 23 won,
# and with *file*. With keys of equal length the factor cancels.</details>

# %% tags=["hide-input"]
east = torch.tensor([[1.0, 0.0]])                             # (1, 2)  the query at 0°
winner = {name: names[score(east, places).argmax()] for name, score in four.items()}
assert winner["dot"] == "B" and winner["additive"] == "A"
plain = dot_score(east, places)[0].softmax(dim=0)             # (6,)
gentler = scaled_dot_score(east, places)[0].softmax(dim=0)    # (6,)
assert gentler.argmax() == plain.argmax() == 1 and gentler[1] < plain[1]

# %% [raw] slide
# ## Three worlds
# | world | |
# |---|---|
# | **one language** | the query is the same vector as its key |
# | **two languages** | the query is its key times a fixed orthogonal matrix |
# | **plain hours** | a key is one number between −1 and 1 |
#
# > **Guess first.** Three worlds by four scores: which are nearly always right, which no better than guessing?

# %% [markdown]
# ## Three worlds: what each score function can learn
#
# Which of these scores can learn what? A table has eight keys, and one of them belongs to the query. A score
# function is right if it gives that key the largest weight. We try three worlds:
#
# * **one language**: a key is a direction in four dimensions, and the query is the same vector;
# * **two languages**: the query is the same direction in other coordinates: the key times a fixed orthogonal matrix
#   $R$ (a rotation, perhaps with a reflection);
# * **plain hours**: a key is one number between −1 and 1, as in the trap above, and the query is the same number.
#
# Every vector gets one more coordinate, which is always 1, so that a learned score can have a bias. The folded cell
# makes the tables; `last=0` takes the bias away.

# %% tags=["hide-input"]
def tables(world, R, generator, batch=64, n=8, last=1.0):
    """Queries (batch, 1, d), keys (batch, n, d), and which key is the right one (batch,)."""
    if world == "plain hours":
        keys = 2 * torch.rand(batch, n, 1, generator=generator) - 1
    else:
        keys = torch.randn(batch, n, 4, generator=generator)
        keys = keys / keys.norm(dim=-1, keepdim=True)
    right = torch.randint(n, (batch,), generator=generator)
    query = keys[torch.arange(batch), right][:, None]         # (batch, 1, d)
    if world == "two languages":
        query = query @ R
    ones = last * torch.ones(batch, n, 1)
    return torch.cat([query, ones[:, :1]], dim=-1), torch.cat([keys, ones], dim=-1), right


def other_coordinates(generator):
    R, _ = torch.linalg.qr(torch.randn(4, 4, generator=generator))                # (4, 4)
    signs = 2 * torch.randint(2, (4,), generator=generator) - 1                   # (4,)
    return R * signs                                          # qr alone favours some matrices

# %%
def accuracy(score, world, seed, steps=400, last=1.0):
    generator = torch.Generator().manual_seed(seed)
    R = other_coordinates(generator)
    if isinstance(score, nn.Module):                          # the others have nothing to learn
        optimizer = torch.optim.Adam(score.parameters(), lr=0.02)
        for _ in range(steps):
            query, keys, right = tables(world, R, generator, last=last)
            loss = nn.functional.cross_entropy(score(query, keys)[:, 0], right)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    query, keys, right = tables(world, R, generator, batch=2000, last=last)
    return (score(query, keys)[:, 0].argmax(dim=-1) == right).float().mean().item()

# %% [markdown]
# The loss is the negative logarithm of the weight of the right key. *Predict a table of three worlds by four scores:*
# which scores are nearly always right? And how often are the others right, where guessing is right one time in eight?

# %%
runs = {}
for world, d in {"one language": 5, "two languages": 5, "plain hours": 2}.items():
    runs[world] = {name: [] for name in ("dot", "scaled dot", "bilinear", "additive")}
    for seed in range(3):
        torch.manual_seed(seed)
        four = (dot_score, scaled_dot_score, BilinearScore(d, d), AdditiveScore(d, d, 32))
        for name, score in zip(runs[world], four, strict=True):
            runs[world][name].append(accuracy(score, world, seed))
figures.worlds(runs, chance=1 / 8)
#| caption: Accuracy of the score functions in three worlds, a mark for each seed.
#| label: worlds

# %% tags=["hide-input"]
cosines, dots = [], []
for seed in range(40):                                        # the dot product learns nothing
    R = other_coordinates(torch.Generator().manual_seed(seed))
    cosines.append(R.trace().item() / 4)                      # the mean over all directions
    dots.append(accuracy(dot_score, "two languages", seed))
related = torch.corrcoef(torch.tensor([cosines, dots]))[0, 1]
print(f"two languages, 40 matrices R: the dot product is right in {min(dots):.0%} to"
      f" {max(dots):.0%} of the tables")
print(f"correlation with the mean cosine of a query and its own key: {related:.2f}")
assert min(min(values) for values in runs["one language"].values()) > 0.9
two, plain = runs["two languages"], runs["plain hours"]
assert max(two["dot"] + two["scaled dot"]) < 0.5 < 0.9 < min(two["bilinear"] + two["additive"])
assert max(plain["dot"] + plain["scaled dot"] + plain["bilinear"]) < 0.4
assert min(plain["additive"]) > 0.9
without = []
for seed in range(3):
    torch.manual_seed(seed)
    without.append(accuracy(AdditiveScore(2, 2, 32), "plain hours", seed, last=0.0))
assert min(dots) < 0.06 and 0.3 < max(dots) < 0.4
print("plain hours, additive score with the ones left out:", [round(x, 2) for x in without])
assert max(without) < 0.2, "an odd score is no hill around every query"
assert related > 0.8 and dots[:3] == two["dot"]

# %% [raw] slide
# ## What each score function can learn
# {figure}
#
# . . .
# The field kept the cheap score and learned the vectors: $(x W_Q) \cdot (y W_K) = x\, W_Q W_K^\top\, y^\top$.
#
# **Now you:** a@lookup, exercise 5

# %% [markdown]
# [@fig:worlds] has an answer for each world:
#
# * **One language:** all four scores are right.
# * **Two languages:** the two learned scores are right; the bilinear one, for instance, learns the inverse of $R$.
#   The dot product compares coordinates that have nothing to do with each other. Its accuracy depends on $R$. Over
#   forty matrices it ranges from a few percent to about a third. It is higher where $R$ leaves queries near
#   their own keys; the folded test prints the correlation.
# * **Plain hours:** the additive score alone is right, because it can be a hill with its top between the largest and
#   the smallest key. The other three scores are linear in the key, so they are highest for the largest key or for the
#   smallest. They are right when the right key is one of these two of the eight, which is a quarter of the time.
#
# <details><summary>Why the additive score needs its bias</summary>
#
# The last printed line shows it without a bias: no better than guessing. Without a bias the score is odd, $e(-q, -k)
# = -e(q, k)$, so a hill around $q$ makes a valley around $-q$. Take a table with the right key $q$, and the table in
# which all signs are changed, which is as likely. Their scores are $e_j$ and $-e_j$. The two losses add up to $\ln
# \sum_j \exp(e_j) + \ln \sum_j \exp(-e_j)$, because the two scores of the right key cancel. By the Cauchy–Schwarz
# inequality this sum is at least $2 \ln n$, which it reaches where all scores are equal. So nothing is better than
# equal weights.</details>
#
# Is the additive score the best, then? It is the only one that works in all three worlds, but it is also the most
# expensive. With $d$ hidden units it makes $d$ numbers for each pair of a query and a key, and takes the tanh of
# each. A dot product needs about as many multiplications, but they are one fast matrix product, and only the scores
# have to be stored ([@vaswani2017, section 3.2.1]).
#
# The dot product can also be helped before it is taken: on the clock it needed nothing but good vectors. The field
# chose this way. Learned layers put keys and queries into the same coordinates, and the score stays cheap:
#
# $$(x\, W_Q) \cdot (y\, W_K) \;=\; x\, W_Q W_K^\top\, y^\top$$
#
# This is a bilinear score whose matrix has at most the rank $d_k$, the width of queries and keys. It is still
# linear in the key, so it fails on plain hours, too. There the clock must come from an embedding, or from a
# nonlinear layer before $W_Q$ and $W_K$.
#
# **Now you:** [a02](@lookup/assignment), exercise 5 and the question in words. For more, the extension
# `bilinear_score`.

# %% [raw] slide
# ## Why √d_k: the variance of a dot product
# Components independent, mean 0, variance 1:
#
# $$\operatorname{Var}(q \cdot k) = \sum_{m=1}^{d_k} \operatorname{Var}(q_m k_m) = d_k \qquad \operatorname{Var}\Bigl(\frac{q \cdot k}{\sqrt{d_k}}\Bigr) = 1$$
#
# > **Guess first.** Random queries meet sixteen random keys. Sketch the **entropy** $-\sum_i \alpha_i \ln \alpha_i$ of the weights against $d_k$, without the root and with it.

# %% [markdown] teaches="the scaled dot product: variance of a sum"
# ## Why √d_k: the variance of a dot product
#
# Why does the Transformer divide by $\sqrt{d_k}$? Let the components of $q$ and $k$ be independent, with a mean of
# zero and a variance of one. Each product $q_m k_m$ then has mean zero and variance $E[q_m^2]\, E[k_m^2] = 1$.
# Variances of independent terms add up:
#
# $$\operatorname{Var}(q \cdot k) = \sum_{m=1}^{d_k} \operatorname{Var}(q_m k_m) = d_k
# \qquad\qquad \operatorname{Var}\Bigl(\frac{q \cdot k}{\sqrt{d_k}}\Bigr) = \frac{d_k}{d_k} = 1$$ (eq:variance)
#
# So plain scores have a standard deviation of $\sqrt{d_k}$ (footnote 4 of [@vaswani2017]): the wider the vectors, the
# larger the scores. What does the softmax do with them? One number says how evenly the weights are spread, their
# **entropy** $-\sum_i \alpha_i \ln \alpha_i$. It is $\ln n$ where all $n$ weights are equal, and 0 where one key has
# all the weight.
#
# *Guess:* random queries meet sixteen *random* keys, and nothing is learned yet. Sketch the entropy of the weights
# against $d_k$, with and without the division by $\sqrt{d_k}$.

# %%
def random_scores(score, d_k, seed):
    generator = torch.Generator().manual_seed(seed)
    q = torch.randn(500, 1, d_k, generator=generator)
    k = torch.randn(500, 16, d_k, generator=generator)
    return score(q, k)[:, 0]                                  # (500, 16)


spread, entropy = {}, {}
for name, score in {"plain": dot_score, "scaled": scaled_dot_score}.items():
    spread[name], entropy[name] = {}, {}
    for d_k in (4, 16, 64, 256, 1024):
        e = [random_scores(score, d_k, seed) for seed in range(3)]
        alpha = [each.softmax(dim=-1) for each in e]          # (500, 16) for each seed
        spread[name][d_k] = [each.std().item() for each in e]
        entropy[name][d_k] = [torch.special.entr(a).sum(dim=-1).mean().item() for a in alpha]
    largest = torch.cat(alpha).amax(dim=-1).median()          # at d_k = 1024
    print(f"{name:>6}, d_k = 1024: median of the largest weight {largest:.2f}")
figures.scores_by_width(spread, entropy, n_keys=16)
#| caption: Spread of the scores and entropy of the weights against the width of queries and
#|   keys, with and without the scale.
#| label: scale

# %% tags=["hide-input"]
for d_k in spread["plain"]:
    assert all(abs(x / math.sqrt(d_k) - 1) < 0.06 for x in spread["plain"][d_k])
    assert all(abs(x - 1) < 0.06 for x in spread["scaled"][d_k])
assert max(entropy["plain"][1024]) < 0.2 < 2.2 < min(entropy["scaled"][1024])
assert max(entropy["plain"][4]) > 1

# %% [raw] slide
# ## Without the root: saturated before anything was learned
# {figure}
#
# The slope of a weight, $\alpha_i(1 - \alpha_i)$, is nearly zero.

# %% [markdown]
# Without the root, random vectors of width 1024 give nearly hard attention: the entropy is nearly 0, and usually one
# key has nearly all the weight. The softmax is then **saturated**. The slope of a weight with respect to its own score
# is $\partial \alpha_i / \partial e_i = \alpha_i (1 - \alpha_i)$, which is nearly zero where $\alpha_i$ is nearly 1 or
# nearly 0.
#
# Now add a loss. Key 0 holds the right value, and the loss is the squared error of the answer, so it sees the weights
# only through the average. How long is the gradient that each query sends to its sixteen scores? *Guess:* which shrinks
# more from $d_k = 4$ to $d_k = 1024$ without the root, the gradient of the median query or the mean over all queries?
# Think of a query whose two highest scores happen to be close.

# %%
v = torch.randn(500, 16, generator=torch.Generator().manual_seed(9))      # (500, 16)  values


def gradient_lengths(score, d_k):
    lengths = []
    for seed in range(3):
        e = random_scores(score, d_k, seed).requires_grad_()              # (500, 16)
        c = (e.softmax(dim=-1) * v).sum(dim=-1)                           # (500,)
        ((c - v[:, 0]) ** 2).sum().backward()                             # key 0 is right
        lengths.append(e.grad.norm(dim=-1))
    return torch.cat(lengths)                                             # (1500,)


lengths = {f"plain, d_k = {d_k}": gradient_lengths(dot_score, d_k) for d_k in (4, 64, 1024)}
lengths["scaled, d_k = 1024"] = gradient_lengths(scaled_dot_score, 1024)
figures.lengths_by_query(lengths)
#| caption: Length of the gradient at the scores for each of 1,500 queries, the longest first.
#|   The dotted line marks the median query.
#| label: gradient-lengths

# %% tags=["hide-input"]
for name, score in {"plain": dot_score, "scaled": scaled_dot_score}.items():
    narrow, wide = gradient_lengths(score, 4), gradient_lengths(score, 1024)      # (1500,) each
    fewer = (narrow.median() / wide.median()).item()
    shorter = (narrow.mean() / wide.mean()).item()
    squares = [each.square().sort().values for each in wide.split(500)]           # (500,) each
    top = [each[-50:].sum() / each.sum() for each in squares]
    print(f"{name:>6}, from d_k = 4 to 1024: the median is divided by {fewer:,.0f},"
          f" the mean by {shorter:.1f}")
    if name == "plain":
        assert 1e4 < fewer < 1e6 and 4 < shorter < 8 and min(top) > 0.9
        e = torch.cat([random_scores(dot_score, 1024, seed) for seed in range(3)])
        gap = -e.topk(2).values.diff()[wide.argsort(descending=True), 0]          # (1500,)
    else:
        assert 0.7 < fewer < 1.5 and 0.7 < shorter < 1.5 and max(top) < 0.7
print("plain, d_k = 1024, median gap between the two highest scores:")
print(f"   {gap[:150].median():.1f} in the tenth of the queries with the longest gradients,"
      f" {gap[150:].median():.1f} in the rest")
assert gap[:150].median() < 3 and gap[150:].median() > 8

# %% [raw] slide
# ## Most queries send almost nothing, a few send a lot
# A squared error of the *average*, before anything was learned:
#
# {figure}

# %% [raw] slide
# ## A common mistake: to read √|k| as the root of a length
# $$\frac{q \cdot k}{\sqrt{\lVert k \rVert}}$$
# . . .
# Then the score of each key is divided by a different number, which can change **which key wins**. What is meant is the *number of components* of a key, $d_k$.

# %% [markdown] erratum="√|k|"
# Without the root, most queries of width 1024 send almost no gradient ([@fig:gradient-lengths]). A few, whose two
# highest *scores* happen to be close, send a lot. So from width 4 to width 1024 the median length falls by a factor
# of tens of thousands, and the mean only by about six. With the root, neither changes much.
#
# Be careful: a gradient that is small at the scores need not be small at the parameters. At $W_Q$ and $W_K$, the
# matrices that make queries and keys, the gradient without the root is even *larger* than with it. What suffers
# there, if the loss sees the average, is the direction of the gradient. "Going further" measures this.
#
# Vaswani et al. suspect ([-@vaswani2017, section 3.2.1]) that small gradients of the softmax are the reason why
# additive attention is better than plain dot products in wide layers. For this comparison they cite Britz et al.
# ([-@britz2017]). With the root, weights and gradients at the start are about the same at every width: the root is
# a fixed temperature, $T = \sqrt{d_k}$. All this holds for the start of training. [Lecture
# @many_heads](@many_heads) shows what learned layers do.
#
# > **A common mistake: to read $\sqrt{|k|}$ as the root of a key's length.** Some texts write $|k|$ for its *number of
# > components*, which is our $d_k$. Dividing by $\sqrt{\lVert k \rVert}$, the root of its length, can change *which
# > key wins*.
# > <details><summary>An example</summary>For $q = (1, −0.45)$ the keys $(0.9, 0)$ and $(2, 2)$ have the products 0.90
# > and 1.10. Divided by $\sqrt{\lVert k \rVert}$ they are 0.95 and 0.65.</details>

# %% tags=["hide-input"]
q, long_keys = torch.tensor([1.0, -0.45]), torch.tensor([[0.9, 0.0], [2.0, 2.0]])
products = long_keys @ q
assert torch.allclose(products, torch.tensor([0.90, 1.10]))
divided = products / long_keys.norm(dim=1).sqrt()
assert torch.allclose(divided, torch.tensor([0.95, 0.65]), atol=0.005)

# %% [markdown]
# Does the scale matter in training? Two learned layers of width $d_k$ make the queries and keys. Each query has to
# find one key of sixteen. Its input vector is that key's input vector, multiplied by a fixed orthogonal matrix. We
# train with two losses:
#
# | the loss sees | loss | at equal weights |
# |---|---|---|
# | the *weight* of the right key | its negative logarithm, `cross_entropy(scores, right_key)` | ln 16 ≈ 2.77 |
# | the *average* of random values alone | its squared error, `((c - v[:, 0]) ** 2).mean()` | 15/16 ≈ 0.94 |
#
# The recipe is the same at all widths. *Guess:* for which of the two losses does a bad start matter more, and which
# trained lookup can end *worse* than equal weights? Use $\partial c / \partial e_i = \alpha_i (v_i - c)$. The
# gradient of the first loss with respect to the right key's score is $\alpha - 1$.

# %% tags=["hide-input"]
def losses(score, d_k, seed, sees, lr=0.01, gain=1.0, batch=32):   # three for "Going further"
    generator = torch.Generator().manual_seed(seed)
    R, _ = torch.linalg.qr(torch.randn(8, 8, generator=generator))      # other coordinates
    start = gain / math.sqrt(8)
    W_Q = nn.Parameter(start * torch.randn(8, d_k, generator=generator))
    W_K = nn.Parameter(start * torch.randn(8, d_k, generator=generator))
    optimizer, history = torch.optim.Adam([W_Q, W_K], lr=lr), []
    for _ in range(150):
        x = torch.randn(batch, 16, 8, generator=generator)         # tables of 16 keys
        scores = score(x[:, :1] @ R @ W_Q, x @ W_K)[:, 0]                         # (batch, 16)
        if sees == "weight":                                       # key 0 is right
            right_key = torch.zeros(batch, dtype=torch.long)
            loss = nn.functional.cross_entropy(scores, right_key)
        else:
            v = torch.randn(batch, 16, generator=generator)        # (batch, 16)  values
            c = (scores.softmax(dim=-1) * v).sum(dim=-1)           # (batch,)  their averages
            loss = ((c - v[:, 0]) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        history.append(loss.item())
    return torch.tensor(history)


def at_the_end(history):
    return history[-25:].mean().item()

# %%
equal_weights = {"weight": math.log(16), "average": 15 / 16}       # what these losses are
seeds, ends = (0, 1, 2), {}
for sees in equal_weights:
    ends[sees] = {"dot": {}, "scaled dot": {}}
    for name, score in {"dot": dot_score, "scaled dot": scaled_dot_score}.items():
        for d_k in (8, 32, 128, 512):
            runs = [losses(score, d_k, seed, sees) for seed in seeds]
            ends[sees][name][d_k] = [at_the_end(run) for run in runs]
notes = {"average": (128, "nine seeds are\nprinted below")}
figures.losses_by_width(ends, equal_weights, notes)
#| caption: Loss at the end of 150 steps (mean of the last 25). A mark is a seed, moved sideways
#|   so that none hides another; lines go through the medians.
#| label: losses

# %% tags=["hide-input"]
dot, scaled_dot = ends["weight"].values()
assert min(dot[512]) > 2 * max(scaled_dot[512]) and max(dot[32]) < 0.6 > max(scaled_dot[32])
assert min(dot[128]) > max(scaled_dot[128]) and max(dot[512]) < 0.9 * math.log(16)
dot, scaled_dot = ends["average"].values()
assert min(dot[512]) > 2 * max(scaled_dot[512]) and max(dot[32]) < 0.4 > max(scaled_dot[32])
assert min(dot[512]) > 0.6 and max(dot[512]) > 15 / 16 and min(dot[128]) > max(scaled_dot[128])

# %% tags=["hide-input"]
print("width 128, the loss sees the average, nine seeds:")
nine = {}
for name, score in {"dot": dot_score, "scaled dot": scaled_dot_score}.items():
    more = [at_the_end(losses(score, 128, seed, "average")) for seed in range(3, 9)]
    nine[name] = ends["average"][name][128] + more
    print(f"{name:>10}:", *(f"{end:.2f}" for end in nine[name]))
assert min(nine["dot"]) > max(nine["scaled dot"])
assert 1 <= sum(end > 15 / 16 for end in nine["dot"]) <= 4

# %% [raw] slide
# ## Does it matter in training? One recipe for all widths
# {figure}
#
# **Now you:** a@lookup, exercise 6

# %% [markdown]
# At widths 8 and 32 the two scores learn equally well, with either loss. At width 128 all three plain runs end
# higher than all three scaled ones. At width 512 the plain dot product starts with scores that are too large, and
# every plain run ends more than twice as high as every scaled one. We trained for 150 steps only, so the plain runs
# may only be slow.
#
# The two losses differ in how badly a run can fail. With the loss that sees the weight, all runs beat equal
# weights: its gradient $\alpha - 1$ is large exactly where the right key has little weight. With the loss that sees
# the average, a key with little weight gets little gradient, and some plain runs end above equal weights, even at
# width 128. One of the three plain runs there is an outlier, so we ran six more seeds: all nine plain runs end
# above all nine scaled ones. The output of a Transformer depends on its *attention* weights only through such
# averages, so the second loss is nearer to its case.
#
# Training without the root is possible, for instance with smaller initial weights. The advantage of the root is
# that *one* recipe fits all the widths tried. "Going further" changes one thing in the recipe at a time.
#
# **Now you:** [a02](@lookup/assignment), exercise 6. For more, the extension `top_k_lookup`: soft attention among the
# $k$ best keys alone.
#
# ## In short
#
# | | | shape |
# |---|---|---|
# | score | $e_i = q \cdot k_i / \sqrt{d_k}$, or bilinear, or additive | $(n)$ |
# | attention weights | $\alpha = \operatorname{softmax}(e)$, along the keys | $(n)$, sum to one |
# | context vector | $c = \sum_i \alpha_i v_i$, $\quad \partial c / \partial e_i = \alpha_i (v_i - c)$ | $(d_v)$ |
# | hard attention | $v_{i^*}$ with $i^* = \arg\max_i e_i$, the limit $T \to 0$ if the best key is unique | $(d_v)$ |
# | variance | $\operatorname{Var}(q \cdot k) = d_k$ for independent components of variance 1 | |
# | **scaled dot-product attention**, many queries | $\operatorname{softmax}(QK^\top / \sqrt{d_k})\,V$ | $(n_\text{query}, d_v)$ |
#
# Attention returns a weighted sum of values, and the weights depend on the query. It always answers, its answer has
# a fixed size, and it has a gradient. For vectors of length one it is kernel regression with a Gaussian kernel; in
# a network the vectors are learned. The dot product is cheap, but needs vectors of similar length in the same
# coordinates, which learned layers can provide. Every query meets every key. That makes $n_\text{query} \cdot
# n_\text{key}$ scores, a cost that [lecture @cheap_attention](@cheap_attention) takes up.
#
# The package has all of this in one function, `attend`, which uses the scaled dot product unless you choose another
# score. It takes many queries at once.

# %% [raw] slide
# ## In short
# | | | shape |
# |---|---|---|
# | score | $e_i = q \cdot k_i / \sqrt{d_k}$, bilinear, or additive | $(n)$ |
# | attention weights | $\alpha = \operatorname{softmax}(e)$, along the keys | $(n)$, sum to one |
# | context vector | $c = \sum_i \alpha_i v_i$, $\;\partial c / \partial e_i = \alpha_i (v_i - c)$ | $(d_v)$ |
# | hard attention | $v_{i^*}$, $i^* = \arg\max_i e_i$: the limit $T \to 0$ | $(d_v)$ |
# | variance | $\operatorname{Var}(q \cdot k) = d_k$ | |
#
# **Now do** assignment a@lookup. **Next:** lecture @cross_attention.

# %%
def cool_dot(query, key):
    return dot_score(query, key) / T


output, weights = attend(clock([7, 3]), keys, values[:, None], score=cool_dot)
assert torch.allclose(output[0, 0], soft_lookup(clock(7), keys, values, T)[0])
print("weights", tuple(weights.shape), " output", tuple(output.shape))
print(f"seven o'clock: {output[0, 0]:.0f} bicycles, three o'clock: {output[1, 0]:.0f}")

# %% [markdown]
# > **Check yourself.**
# > 1. Five queries, nine keys of width 16, values of width 3: what are the shapes of scores, weights and output?
# > 2. All keys have length one. Two keys are equal and their values are not. What does soft attention answer when asked
# >    for that key, at a very low temperature? And a Python dictionary?
# > 3. One value is changed. Which weights change?
# > 4. The scores are divided by $d_k$ instead of $\sqrt{d_k}$. What is the variance of the scores, and what do the weights
# >    look like in wide layers?
# > 5. Query and key are the *same* random vector, with components of mean 0 and variance 1. What is the expected score,
# >    plain and scaled?
# > <details><summary>Answers</summary>
# >
# > 1. Scores and weights (5, 9), output (5, 3). The axis of 16 was summed over.
# > 2. The mean of the two values: equal keys get equal weights. The dictionary keeps the one that was written last.
# > 3. None. Weights come from queries and keys alone.
# > 4. $d_k / d_k^2 = 1 / d_k$. All scores are nearly equal, so attention starts as mean pooling.
# > 5. $d_k$ and $\sqrt{d_k}$. The root gives a spread of one to scores of *independent* vectors. A vector's score with
# >    itself still grows with the width.</details>
#
# **Now do** [assignment @lookup](@lookup/assignment) (about 95 minutes): five functions to write, one to debug, a
# question in words, and two extensions. **Next:** [lecture @cross_attention](@cross_attention), where a translator
# asks.
#
# **Further reading.** [+@bahdanau2015], section 3.1 and appendix A.1.2: the additive score. [+@luong2015], section 3.1:
# dot, general, and a third, concat. [+@vaswani2017], section 3.2.1: the scaled dot product. [+@xu2015]: hard and soft
# attention. [+@vinyals2015]. [+@graves2014]. [+@sukhbaatar2015]. [+@nadaraya1964], and [+@watson1964]; [+@zhang2023],
# section 11.2, on other kernels. [+@tsai2019]: attention as a kernel smoother.

# %% [markdown]
# ## Going further: what holds the plain dot product back
#
# In wide layers the plain dot product learned more slowly than the scaled one. Is only the start to blame, or are
# the steps too large as well? We follow the plain dot product at width 512, and change one thing in the recipe at a
# time: the learning rate, the number of tables in a batch (and with it the amount of data), or the size of the
# initial weights. *Guess* which of the three helps with which loss.

# %%
changes = {"as above": {}, "a tenth of the rate": {"lr": 0.001},
           "eight times the batch": {"batch": 256},
           "scores of variance 1 at first": {"gain": 512**-0.25}}
print("dot, width 512, steps                           1–5  6–10 41–45 126–150  by seed")
fates = {}
for sees in equal_weights:
    for change, what in changes.items():
        runs = torch.stack([losses(dot_score, 512, seed, sees, **what) for seed in seeds])
        parts = runs[:, :5], runs[:, 5:10], runs[:, 40:45], runs[:, -25:]        # (3, …) each
        fates[sees, change] = [at_the_end(run) for run in runs]
        print(f"sees the {sees:>7}, {change:>29}:", *(f"{x.mean():5.1f}" for x in parts),
              "  ", [round(x, 1) for x in fates[sees, change]])

# %% tags=["hide-input"]
as_above, slower, larger, smaller = (fates["weight", change] for change in changes)
assert max(larger) < 0.5 * min(as_above)
assert max(smaller) < min(slower) and max(slower) < 0.7 * min(as_above)
as_above, slower, larger, smaller = (fates["average", change] for change in changes)
assert max(larger) < 0.6
assert max(smaller) < 0.5 < 0.6 < min(as_above) and min(slower) > 15 / 16

# %% [markdown]
# With the loss that sees the *weight*, the bad start is undone within ten steps: the gradient of this loss with
# respect to the right key's score is $\alpha - 1$, which does not vanish while the weight is small. But then the
# loss stays high. Our reading is that the steps are too large. Adam moves every entry of $W_Q$ and $W_K$ by about
# the learning rate at any width, so the change of a score, a sum over $d_k$ components, grows with $d_k$. Three
# changes lower the final loss. A larger batch has a less noisy gradient. A tenth of the rate takes smaller steps,
# although it needs longer to undo the bad start. Smaller initial weights also shrink the change of a score at
# first, because each term of this change is the move of one component times the size of another.
#
# With the loss that sees the *average*, 150 steps undo only a part of the bad start. With a tenth of the rate the
# loss ends higher than with the first recipe. With smaller initial weights it ends lower, and so it does with a
# larger batch. Why does the batch help? The *size* of the gradient cannot explain it, because Adam divides each
# step by the usual size. Is it the *direction*? We take 1,280 queries before training, and the gradient that each
# of them sends to $W_Q$ and $W_K$. The **cosine** of the gradients of two batches of 32 says whether the batches
# ask for the same step: it is 1 if they do, and 0 if they have nothing in common.
#
# *Guess* why batches might disagree without the root. Our first guess was that a few queries dominate each batch, and
# other queries dominate the next. This can be tested: give every query's gradient the same length, and the batches
# should agree.

# %% tags=["hide-input"]
def gradients_of_queries(score, sees, seed, d_k=512, n=1280):
    """Before training: at W_Q and W_K, (n, 2 · 8 · d_k), and at the scores, (n, 16)."""
    generator = torch.Generator().manual_seed(seed)
    R, _ = torch.linalg.qr(torch.randn(8, 8, generator=generator))
    W_Q = torch.randn(8, d_k, generator=generator) / math.sqrt(8)
    W_K = torch.randn(8, d_k, generator=generator) / math.sqrt(8)
    x = torch.randn(n, 16, 8, generator=generator)
    q, k = (x[:, :1] @ R @ W_Q).requires_grad_(), (x @ W_K).requires_grad_()
    scores = score(q, k)[:, 0]                                     # (n, 16)
    if sees == "weight":
        right_key = torch.zeros(n, dtype=torch.long)
        loss = nn.functional.cross_entropy(scores, right_key, reduction="sum")
    else:
        v = torch.randn(n, 16, generator=generator)
        loss = (((scores.softmax(dim=-1) * v).sum(dim=-1) - v[:, 0]) ** 2).sum()
    at_q, at_k, at_scores = torch.autograd.grad(loss, [q, k, scores])
    at_W_Q, at_W_K = (x[:, :1] @ R).mT @ at_q, x.mT @ at_k         # (n, 8, d_k) each
    return torch.cat([at_W_Q.flatten(1), at_W_K.flatten(1)], dim=1), at_scores


def agreement(each):
    """Mean cosine of the gradients of two batches of 32: each (n, …) to one number."""
    batches = nn.functional.normalize(each.view(-1, 32, each.shape[1]).mean(dim=1), dim=1)
    n = len(batches)
    return ((batches @ batches.mT).sum() - n).item() / (n * (n - 1))


print("width 512, at the start              size      top tenth      cosine of      the same,"
      "        at the")
print("                                                     has    two batches   equal length"
      "      right key")
agree, equal, sizes, right_part = {}, {}, {}, {}
for sees in equal_weights:
    for name, score in {"dot": dot_score, "scaled dot": scaled_dot_score}.items():
        key = sees, name
        agree[key], equal[key], sizes[key], right_part[key], tops = [], [], [], [], []
        for seed in seeds:
            each, at_scores = gradients_of_queries(score, sees, seed)
            lengths = each.norm(dim=1).sort(descending=True).values.square()
            tops.append((lengths[:128].sum() / lengths.sum()).item())
            agree[key].append(agreement(each))
            equal[key].append(agreement(nn.functional.normalize(each, dim=1)))
            sizes[key].append(each.view(40, 32, -1).mean(dim=1).norm(dim=1).mean().item())
            right = -at_scores[:, 0].mean() / at_scores.norm(dim=1).mean()
            right_part[key].append(right.item())
        found = (sizes[key], tops, agree[key], equal[key], right_part[key])
        columns = [f"{min(some):.2f} to {max(some):.2f}" for some in found]
        said = " ".join(f"{column.replace('-0.00', '0.00'):>14}" for column in columns)
        print(f"sees the {sees:>7}, {name:>10}: {said}")
assert min(sizes["average", "dot"]) > 5 * max(sizes["average", "scaled dot"])
assert max(agree["average", "dot"]) < 0.5 * min(agree["average", "scaled dot"])
assert max(equal["average", "dot"]) < 0.5 * min(equal["average", "scaled dot"])
assert max(right_part["average", "dot"]) < 0.6 * min(right_part["average", "scaled dot"])
assert min(agree["weight", "dot"]) > 0.6

# %% [markdown]
# Each column has the smallest and the largest of three seeds. With the plain dot product the gradient at $W_Q$ and
# $W_K$ is not small at all. It is larger than with the root, because a plain score changes $\sqrt{512} \approx 23$
# times as much when the weights change. With the loss that sees the average it is only about ten times as large,
# because saturation takes back part of the factor.
#
# What differs is the agreement. With the loss that sees the average, two batches have a cosine of about 0.01 or
# less without the root, and of about 0.07 with it. Even 0.07 is small, but a common part adds up over many steps
# while the rest averages out. A few queries do dominate: without the root the top tenth of the queries has nearly
# all of the squared length, and with it about two thirds. But our guess was wrong: with equal lengths the batches
# agree no better.
#
# The last column says what does differ: how much of a query's gradient asks for a higher score of the *right* key, as
# a share of the gradient's length. It is a few hundredths without the root, and about a sixth with it. That fits the
# equation $\alpha_i (v_i - c)$. Where the softmax is saturated, the right key seldom has any weight, and the gradient
# is about two wrong keys whose scores happen to be close. Which of the two has the better value is chance. With the
# loss that sees the weight, every query asks for the right key, and the batches agree.
