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
# *About 50 minutes, of which about one is computing time. You need Python, and tensors, the softmax and the gradient
# from [lecture @getting_ready](@getting_ready). [Lecture @bottleneck](@bottleneck) shows the problem that attention
# solves.*
#
# After this lecture you can
#
# * say what **query**, **key** and **value** are, without mentioning a neural network;
# * compute **hard** and **soft attention**, and choose the **temperature** of the soft one;
# * explain why soft attention can be trained and a hash table cannot, and derive its gradient;
# * recognise soft attention as **kernel regression**, and say what a network adds: learned keys;
# * write four **score functions** from the literature, and say what each of them can learn;
# * derive the **√d_k** of the scaled dot product.
#
# ## A hash table needs an exact match
#
# A counter on a bridge recorded how many bicycles crossed in six different hours of one day, and a Python dictionary
# stores these counts by hour. (The numbers are made up.) How many bicycles crossed at seven?

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
# How many bicycles at seven? A dictionary answers only for the keys that it holds. A network needs a lookup that
#
# 1. **always answers**;
# 2. **has a gradient**.
#
# > **Guess first.** What would you *like* the table to answer at seven?

# %% [markdown] teaches="attention as a soft lookup: query, key, value"
# **A dictionary answers only for the keys that it holds.** It asks whether two keys are *equal*. It cannot see that
# eight is *near* seven, because a hash finds equal keys and says nothing about near ones.
#
# A network needs a lookup that always answers and that has a gradient. *What would you like the table to answer at
# seven?* Write a number down. You probably took the nearest entry, or you mixed the two nearest. Hard attention does
# the first. Soft attention mixes, too, but it mixes *all* the entries.
#
# ## Keys that can be near: the dot product as a score
#
# Hard and soft attention both need to know how near two hours are. To turn nearness into a number, we put the hours
# on the face of a clock whose hand goes round once a day, so that each hour becomes a vector of two numbers. On this
# clock 23:00 lies close to 1:00, as it should. In the figure the discs are the keys, and the arrow is the query.

# %%
def clock(hours):
    angle = 2 * math.pi * torch.as_tensor(hours, dtype=torch.float32) / 24
    return torch.stack([angle.sin(), angle.cos()], dim=-1)    # (…, 2)  vectors of length 1


hours = list(BICYCLES)
keys = clock(hours)                                           # (6, 2)
values = torch.tensor([float(n) for n in BICYCLES.values()])  # (6,)
query = clock(7)                                              # (2,)
scores = keys @ query                                         # (6,)  one for each key
figures.clock_keys(hours, scores, asked=7, title="scores e = q · k")
#| caption: Scores of a query at 7:00, by the direction of the keys on a clock. A disc grows
#|   with its score; a score of zero or less has the smallest disc.

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
# **The nearest hour has the highest dot product:** eight o'clock comes first, and five comes second. The **attention
# score** $e_i$ says how well key $i$ matches the query, and ours is the dot product, $e_i = q \cdot k_i$. For vectors
# of length one it is the cosine of the angle between them, so it is 1 where they point the same way, 0 where they are
# six hours apart, and −1 on the other side of the day.
#
# > **Check yourself.** Why the clock? Suppose that the keys are the plain numbers 2, 5, 8, 12, 17, 23, the query is the
# > number 7, and the score is their product. Which key wins, and what is wrong?
# > <details><summary>Answer</summary>23, with a score of 161. The product does not measure similarity: the largest
# > key wins for every query above zero. A dot product measures similarity only between vectors of about the same
# > length, as on the clock. You will meet this trap again, with words.</details>
#
# ## Hard attention and soft attention
#
# Now each key has a score. How do we turn six scores into one answer? The simplest way is **hard attention**, which
# takes the key with the highest score and returns its value:
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
# Unlike the dictionary, hard attention always answers. But it ignores every key except the best one, and so its
# answers jump: at 6:29 it says 45 bicycles, and two minutes later it says 310.
#
# **Soft attention** lets every key contribute. The softmax turns the scores into **attention weights** $\alpha_i$,
# which are positive and sum to one, and the answer is the average of the values with these weights. This answer is
# the **context vector** $c$, although here it is a single number, because our values are numbers:
#
# $$\alpha_i = \frac{\exp(e_i)}{\sum_j \exp(e_j)} \qquad\qquad c = \sum_i \alpha_i\, v_i$$ (eq:soft-attention)
#
# An average of this kind is a **convex combination**, which always lies between the smallest value and the largest.
#
# *Before you look at the figure, guess:* how much of the weight does eight o'clock get: nearly all, about half, or a
# third? And 17:00, with its negative score: does it get nothing?

# %%
weights = scores.softmax(dim=0)                               # (6,)  they sum to one
context = weights @ values                                    # ()    their average
figures.two_lookups(BICYCLES, scores, T=1, asked=7)
print("soft:", round(context.item()))
#| caption: A hash table finds 8:00 and fails at 7:00. Soft attention compares 7:00 with all
#|   keys, and adds up the weighted values.
#| label: two-lookups

# %% tags=["hide-input"]
assert torch.isclose(weights.sum(), torch.tensor(1.0)) and weights.min() > 0.04
assert abs(weights[2] - 0.30) < 0.01 and abs(weights[[0, 3, 4, 5]].sum() - 0.42) < 0.005

# %% [raw] slide
# ## A hash table and soft attention
# {figure}

# %% [raw] slide
# ## Every key gets some weight
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
# **Every key gets some weight.** In the figure a thicker arrow means a larger weight. Eight o'clock gets 0.30, hardly
# more than five o'clock, and even 17:00 gets 0.05, because an exponential is never zero. This helps training, since a
# key without weight gets no gradient.
#
# Three words name the parts of a lookup. The **query** asks. It is compared with the **keys**, and they serve for
# nothing else. The answer is built from the **values** alone. A key together with its value is an **entry**, which
# papers also call a *position*, and the query **attends to** each entry according to its weight.
#
# **Now you:** [a02](@lookup/assignment), exercise 1.
#
# ## Temperature: from a dictionary to a mean
#
# At seven, soft attention answers 143, because 0.42 of the weight lies on keys that are five hours away or more. To
# give the near keys more of it, we divide the scores by a number $T$, the **temperature**, before the softmax:
#
# $$\alpha_i = \frac{\exp(e_i / T)}{\sum_j \exp(e_j / T)}$$ (eq:temperature)
#
# So far $T$ was 1. *Two guesses before you move the slider.* Must $T$ go up or down to move the answer at seven from
# 143 towards the number that you wrote down? And the orange curve, the answer at every hour of the day: at which end
# of the scale is it a flat line, and at which a staircase?

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
            still=[{"T": 0.001}, {"T": 0.1}, {"T": 100.0}])
#| caption: Left: weights of a query at 7:00. Right: the answer at every hour (orange; grey,
#|   dashed, at T = 1), the answer at 7:00 (green) and the six counts (blue).
#| label: temperature

# %% [raw] slide
# ## Move the temperature
# {figure}

# %% tags=["hide-input"]
hard = torch.stack([values[(keys @ query).argmax()] for query in clock(day)])     # (289,)
cold, hot = all_day(keys, values, T=1e-5), all_day(keys, values, T=1e5)           # (289,) each
assert ((cold - hard).abs() < 0.5).float().mean() > 0.95, "all but the times halfway between"
assert torch.allclose(hot, values.mean(), rtol=1e-3)

# %% [raw] slide
# ## Cold is hard attention, hot is mean pooling
# Hard attention and the mean are the two ends of one scale.
# . . .
# Multiplying every key by ten divides the temperature by ten: a network that learns its keys can also learn how sharply to choose.
#
# **Now you:** a@lookup, exercise 2

# %% [markdown]
# **Hard attention and the mean are the two ends of one scale.** At a low temperature the best key takes all the
# weight, which is hard attention, and the curve is a staircase. At a high temperature every key counts the same,
# whatever the query is, and the curve is a flat line: this is **mean pooling**, the summary that [lecture
# @bottleneck](@bottleneck) tried. If your number lay between 143 and 310, $T$ must fall. At $T = 0.1$ the answer at
# seven is 238, and we keep this temperature wherever none is named.
#
# **Long vectors act like a low temperature.** If every key is ten times as long, every score is ten times as large,
# as if $T$ were divided by ten, and the same holds for the query. So a network that learns its keys and queries can
# also learn how sharply to choose.
#
# ## Many queries at once: the matrix form
#
# A network has many queries at once, so we stack them as the rows of a matrix $Q$
# $(n_\text{query}, d_k)$. The keys are the rows of $K$ $(n_\text{key}, d_k)$, and the values are the rows of $V$
# $(n_\text{key}, d_v)$. In the figure two queries, 7:00 and 3:00, ask our six keys. Follow one row of $Q$ to the
# right. With the columns of $K^\top$ it makes a row of scores. The softmax turns these into weights, and the weights
# average the values.

# %%
T = 0.1
Q = clock([7, 3])                                             # (2, 2)  a row for each query
figures.matrix_form(Q, keys, values[:, None], T, asked=[7, 3], hours=hours)
#| caption: Two queries, six keys, T = 0.1. The softmax runs along each row, over the keys.
#| label: matrix-form

# %% [raw] slide
# ## Many queries at once: the matrix form
# {figure}
#
# $$C = \operatorname{softmax}\Bigl(\frac{Q K^\top}{T}\Bigr)\, V$$

# %% [markdown]
# **Attention is two matrix products with a softmax between them:**
#
# $$C = \operatorname{softmax}\Bigl(\frac{Q K^\top}{T}\Bigr)\, V$$ (eq:lookup-in-matrices)
#
# Because the softmax works row by row, the weights of a query sum to one, whatever the other query asks. The first
# product sums over the width $d_k$, and the second one over the keys.
#
# > **Check yourself.** You add the same number $b$ to all scores of a query. What happens to its weights?
# > <details><summary>Answer</summary>Nothing: the softmax is **shift-invariant**. The factor $\exp(b)$ stands in the
# > numerator and in the denominator, and cancels, so only the differences between scores matter. That is also why a
# > stable softmax may subtract the maximum.</details>
#
# **Now you:** [a02](@lookup/assignment), exercise 2.
#
# ## Why soft: it has a gradient
#
# Hard attention is simpler, so why do networks use the soft lookup? Suppose that we know the answer but not the
# question: 200 bicycles crossed, but at which hour? A network in training is always in this position: it is told what
# should have come out, and has to find what it should have asked.
#
# The figure below shows the answers of both lookups at every hour and, under them, the squared error in hundreds of
# bicycles. *Guess before you look:* asked at nine, soft attention says about 295, and its answer is falling. Which
# way should you move the hour to come closer to 200, later or earlier? And which way with hard attention?

# %% [raw] slide
# ## Why soft: it has a gradient
# Somebody says: "there were 200". *When* was that?
#
# > **Guess first.** The squared error, for every hour that could have been asked. What does it look like for hard attention, for soft? What would you do at nine o'clock, feeling only the slope?

# %%
both = {"soft, T = 0.1": all_day(keys, values, T), "hard": hard}   # (289,) each
figures.error_curves(both, 200, day, at=9)
#| caption: Top: the answers of both lookups; black marks where soft attention says 200.
#|   Bottom: their squared errors, with the slope of each at nine.
#| label: error-curves

# %% [raw] slide
# ## A staircase has no slope
# {figure}

# %% [markdown]
# **Soft attention gives the query and the keys a gradient to follow; hard attention does not.** The error of hard
# attention is a staircase, whose slope is zero on a step and does not exist at a jump. Torch does not even compute a
# slope: `argmax` returns an integer, so only the value that was found gets a gradient. The error of soft attention is
# smooth. At nine it falls towards later hours, and gradient descent can follow it:

# %%
hour = torch.tensor(9.0, requires_grad=True)
for _ in range(100):
    answer, _ = soft_lookup(clock(hour), keys, values, T)
    error = ((answer - 200) / 100) ** 2
    hour.grad = None
    error.backward()                                          # hour.grad: the slope
    with torch.no_grad():
        hour -= 0.1 * hour.grad                               # a step downhill
print(f"after 100 steps: {figures.clock_time(hour.item())}, answer {answer.item():.1f}")

# %% tags=["hide-input"]
assert abs(answer.item() - 200) < 2 and 10 < hour.item() < 10.25
assert not values[(keys @ clock(hour)).argmax()].requires_grad

# %% [markdown]
# Gradient descent found an hour at which soft attention says 200, a little after ten. The figure marks three more, so
# another start may end at another hour. Because soft attention passes gradients to its keys and values, too, a whole
# table can be learned from wrong answers.
#
# <details><summary>Can hard attention be trained, too?</summary>
#
# Yes. The method REINFORCE *samples* a key from the weights, and makes samples that turn out well more likely. Its
# gradient is right on average but noisy, because each step uses only one sampled value. Xu et al. ([-@xu2015])
# trained a captioning model with hard and with soft attention, and gave the two kinds their names. A
# **straight-through** estimator makes the hard choice in the forward pass and takes the gradient of the soft choice
# in the backward pass ([@bengio2013], for binary units; [@jang2017], with a softmax), at the price of a bias. There
# are also relatives of the softmax, such as **sparsemax** ([@martins2016]), that give many keys a weight of exactly
# zero and still have a gradient at the other keys.</details>
#
# ## The gradient of soft attention: weight times difference
#
# What does this gradient look like? *Work it out on paper:* by how much does $c = \sum_j \alpha_j v_j$ change with the
# score $e_i$? You need that $\partial \alpha_j / \partial e_i$ is $\alpha_i (1 - \alpha_i)$ for $j = i$, and $-\alpha_i
# \alpha_j$ otherwise. Then try numbers: two keys with the scores $\ln 3$ and 0, and the values 10 and 2.
#
# > <details><summary>Answer</summary>
# >
# > $$\frac{\partial c}{\partial e_i} = \alpha_i (1 - \alpha_i)\, v_i - \sum_{j \ne i} \alpha_i \alpha_j\, v_j
# > = \alpha_i \Bigl(v_i - \sum_j \alpha_j v_j\Bigr) = \alpha_i\, (v_i - c)$$
# >
# > In numbers: the weights are 3/4 and 1/4, so $c = 8$, and the gradients are $\frac34 (10 - 8) = 1.5$ and $\frac14
# > (2 - 8) = -1.5$. They add up to zero, as they always do, because adding one number to all scores changes
# > nothing.</details>
#
# We draw the gradient for the bridge at seven, at a temperature of 0.5, where all six keys have some visible weight:

# %% [raw] slide
# ## The gradient of a soft lookup
# > **Guess first.** By how much does $c$ change with the score $e_i$?
#
# . . .
# $$\frac{\partial c}{\partial e_i} = \alpha_i\,(v_i - c)$$
#
# A key without weight gets no gradient, and neither does one whose value equals the answer.

# %%
e = (keys @ clock(7) / 0.5).requires_grad_()                  # (6,)  what enters the softmax
alpha = e.softmax(dim=0)                                      # (6,)
c = alpha @ values                                            # ()
c.backward()
on_paper = (alpha * (values - c)).detach()                    # (6,)
figures.pulls(hours, values, alpha.detach(), e.grad)
print(f"autograd and paper differ by {(e.grad - on_paper).abs().max():.5f} at most")
#| caption: Each block is as wide as its key's weight and reaches from the answer c to the
#|   value. Its area, with the sign of v − c, is the gradient at the key's score.
#| label: pulls

# %% [raw] slide
# ## Weight times difference
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
# **A higher score pulls the answer towards the key's own value.** The pull is the key's weight times the difference
# between its value and the answer. In the figure it is the area of the key's block. The formula is the same when the
# values are vectors:
#
# $$\frac{\partial c}{\partial e_i} = \alpha_i\, (v_i - c)$$ (eq:pull)
#
# Here $e_i$ is the number that enters the softmax, with the temperature already in it. With respect to the score
# before the division, the gradient is $\alpha_i (v_i - c) / T$.
#
# A key without weight does not pull, and neither does a key whose value equals the answer. **So where one key has
# nearly all the weight, hardly anything pulls:** its value *is* nearly the answer, and the other keys have hardly any
# weight. This is why the curve in [@fig:error-curves] is flat around 17:00. In a network it can stall training, as
# the section on $\sqrt{d_k}$ shows.
#
# **Now you:** [a02](@lookup/assignment), exercise 3: the gradients of query, keys and values, by hand.
#
# ## Kernel regression: the same average in 1964
#
# Our six counts came from a single, unusual day. What does a typical day look like? Here are sixty made-up counts
# from sixty other days, at random hours, which scatter around a curve that we know. A soft lookup can smooth them.
#
# Which temperature smooths best? We hide each count in turn and predict it from the other fifty-nine. This is
# **leave-one-out cross-validation**, and its error is the **root mean squared error (RMSE)** of the predictions.
# *Guess:* which temperature has the lowest error, 0.001, 0.03 or 1?

# %% [raw] slide
# ## Kernel regression: the same average in 1964
# Sixty counts from sixty days. Hide each count in turn, predict it from the others: **leave-one-out**.
#
# > **Guess first.** Which temperature has the lowest error, 0.001, 0.03 or 1?

# %%
def hidden_error(asked, counted, T):
    squares = []
    for i in range(len(asked)):
        others = torch.arange(len(asked)) != i                # not the hidden one
        answer, _ = soft_lookup(clock(asked[i]), clock(asked[others]), counted[others], T)
        squares.append((answer - counted[i]) ** 2)
    return torch.stack(squares).mean().sqrt().item()


asked, counted = counts(60, torch.Generator().manual_seed(0))  # (60,) hours, (60,) bicycles
smoothed = {t: all_day(clock(asked), counted, t) for t in (0.001, 0.03, 1.0)}
errors = {t: hidden_error(asked, counted, t) for t in smoothed}
figures.smoothings(smoothed, errors, day, asked, counted, truth=rush(day))
noise = (counted - rush(asked)).pow(2).mean().sqrt().item()
print(f"the true curve itself misses the counts by {noise:.0f} bicycles (RMSE)")
#| caption: Sixty counts, the soft lookup's curve (orange) and the true curve (dashed), at three
#|   temperatures. RMSE: the leave-one-out error, in bicycles.
#| label: smoothings

# %% tags=["hide-input"]
for seed in range(3):
    sample = counts(60, torch.Generator().manual_seed(seed))
    cold, between, hot = (hidden_error(*sample, t) for t in smoothed)
    assert between < cold < hot, "in three samples"
assert 0.7 * errors[0.03] < noise < 0.9 * errors[0.03], "much of the error is noise"
from_truth = {t: (curve - rush(day)).pow(2).mean().sqrt() for t, curve in smoothed.items()}
assert min(from_truth, key=from_truth.get) == 0.03
assert smoothed[0.03][day < 12].max() < 0.9 * rush(day).max(), "the morning's peak"
assert smoothed[1.0].max() < rush(day).max() / 2, "both peaks"

# %% [raw] slide
# ## Too cold, too hot
# {figure}
#
# Cold: **overfitting**. Hot: both rush hours are averaged away.

# %% [markdown]
# **The middle temperature is the best of the three.** When $T$ is too low, the curve follows single counts, which is
# **overfitting**; when it is too high, both rush hours nearly disappear. At $T = 0.03$ the curve is closest to the
# true one, though its morning peak is too low. Much of its error of 45 is noise: even the true curve misses these
# counts by 34.
#
# The method is old. Nadaraya and Watson proposed it independently ([@nadaraya1964]; [@watson1964]): to estimate a
# curve at $q$, they averaged the measured values, each weighted by a **kernel**, a bell that is highest at $q$. With
# a Gaussian bell of width $h$ the estimate is
#
# $$\hat y(q) = \frac{\sum_i \exp\bigl(-\lVert q - k_i \rVert^2 / 2h^2\bigr)\, v_i}{\sum_j \exp\bigl(-\lVert q - k_j \rVert^2 / 2h^2\bigr)}$$
#
# This is **kernel regression**, and $h$ is its **bandwidth**. **For vectors of length one, it *is* soft attention
# with $T = h^2$.** For these vectors $\lVert q - k \rVert^2 = 2 - 2\, q \cdot k$, so the bell is $\exp(-1/h^2) \exp(q
# \cdot k / h^2)$, and the first factor cancels in the division. The next cell compares the two formulas:

# %% [raw] slide
# ## Kernel regression is soft attention
# $$\hat y(q) = \frac{\sum_i \exp\bigl(-\lVert q - k_i \rVert^2 / 2h^2\bigr)\, v_i}{\sum_j \exp\bigl(-\lVert q - k_j \rVert^2 / 2h^2\bigr)}$$
#
# Nadaraya and Watson, 1964. For vectors of length one it **is** soft attention, with $T = h^2$.
# . . .
# Added by Bahdanau et al. (2015): queries, keys and values come out of a network, trained *through* the average. The weights $\alpha$ are not parameters.

# %%
h = 0.2
distance = torch.cdist(clock(day), clock(asked))              # (289, 60)
kernel = torch.exp(-distance**2 / (2 * h**2))                 # (289, 60)
regression = (kernel @ counted) / kernel.sum(dim=1)           # (289,)
apart = (regression - all_day(clock(asked), counted, T=h**2)).abs().max()
print(f"kernel regression and soft attention differ by {apart:.4f} bicycles at most")

# %% tags=["hide-input"]
assert apart < 0.02

# %% [markdown]
# So an average whose weights depend on the query is half a century older than the Transformer. What came later was to
# train *through* the average: in the translator of Bahdanau et al. ([-@bahdanau2015]) the queries, keys and values
# come out of a trained network.
#
# Be careful, then, with the phrase "the weights are learned". The attention weights $\alpha$ are not parameters: they
# are computed anew for each query. What is learned is the network that makes the vectors.
#
# ## Learned keys: training through the average
#
# We chose the clock by hand. Can training find good keys without our help? Forget the clock: each of the 24 hours
# gets a vector of two random numbers, which serves as its query and as its key.
#
# The task is to fill in the hours that nobody counted. Each day differs from a typical day by a smooth random curve,
# a sum of waves, and the values are these differences, in hundreds of bicycles. Soft attention sees eight hours of a
# day and predicts the other sixteen. A hidden hour must not answer, so its score is set to $-\infty$, which makes its
# weight $\exp(-\infty) = 0$. We train the vectors on the squared error with **Adam**, a form of gradient descent in
# which each number has its own step size.
#
# *Guess:* no input says that 7 comes next to 8. Where will the 24 vectors go: into a random cloud, onto a line in the
# order of the day, or round a circle?

# %% [raw] slide
# ## Learned keys: training through the average
# Forget the clock. Each of 24 hours gets two **random** numbers, its query and its key. Trained by the squared error of a soft lookup.
#
# > **Guess first.** Nothing says that 7 comes next to 8. Where will the 24 vectors go?

# %%
def error_in_hidden_hours(vectors, n, generator, waves=(1, 2, 3, 4)):
    today, seen = days(n, generator, waves=waves)             # (n, 24) each
    scores = (vectors @ vectors.mT).expand(n, 24, 24)         # (n, 24, 24)  rows: queries
    hidden = ~seen[:, None]                                   # (n, 1, 24)   columns: keys
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
            still=[{"step": 0}, {"step": 600}])
#| caption: Each disc is the vector of one hour, its query and its key (seed 0). Lines join each
#|   hour to the next. The axes are the same at every step.
#| label: learned-keys

# %% [raw] slide
# ## They form a clock
# {figure}

# %% [markdown]
# **The vectors form a clock.** The line from hour to hour is a tangle at first and a circle at the end; move the
# slider to watch how. Does this always happen, and is the learned clock any good? We test three seeds on 2,000 new
# days (RMSE in bicycles):

# %% tags=["hide-input"]
def test_error(vectors):
    generator = torch.Generator().manual_seed(99)
    with torch.no_grad():
        return 100 * error_in_hidden_hours(vectors, 2000, generator).sqrt().item()


for seed, path in enumerate(paths):
    length = path[-1].norm(dim=-1)                            # (24,)
    print(f"learned, seed {seed}:        RMSE {test_error(path[-1]):.1f},"
          f"  {figures.turns(path[-1]):+.0f} turn,  lengths {length.min():.2f} to"
          f" {length.max():.2f},  T = {1 / length.mean()**2:.2f}")
by_hand = {t: test_error(clock(range(24)) / math.sqrt(t)) for t in (0.03, 0.1, 0.3)}
for t, error in by_hand.items():
    print(f"clock by hand, T = {t:<4g} RMSE {error:.1f}")
print(f"mean pooling:           RMSE {test_error(torch.zeros(24, 2)):.1f}")
for path in paths:
    assert abs(abs(figures.turns(path[-1])) - 1) < 1e-3, "once round, in the order of the day"
    assert test_error(path[-1]) < by_hand[0.1] + 0.5 and by_hand[0.1] == min(by_hand.values())
    assert 0.115 < 1 / path[-1].norm(dim=-1).mean() ** 2 < 0.125, "about 0.12"
    assert path[-1].norm(dim=-1).max() < 1.1 * path[-1].norm(dim=-1).min(), "a circle"
today, _ = days(2000, torch.Generator().manual_seed(99))      # the same new days
alike = torch.corrcoef(today.T)                               # (24, 24)
alike = torch.stack([alike.roll(-far, dims=1).diagonal().mean() for far in range(13)])
assert (alike[:12] - alike[1:]).min() > -0.02, "it falls, and hardly from 10 to 12"

# %% [raw] slide
# ## As good as the hand-made clock, temperature included
# {print}

# %% [markdown]
# **All three seeds find a circle, and each is about as good as the clock that we made by hand.** The hours run
# counter-clockwise where the turn is +1, as in [@fig:learned-keys], and clockwise where it is −1. Even the
# temperature is learned. For vectors of length $r$ the dot product is $r^2$ times the cosine, so $1/r^2$ is the
# temperature. It came out at 0.12, and of the three temperatures of the clock by hand 0.1 is the best.
#
# *Why a circle?* On these days the similarity of two hours depends only on their distance on the clock. It falls with
# the distance, up to about ten hours. So a weight should depend on the distance alone, and on a circle with equal steps
# it does. We can test this reason. On days that repeat after twelve hours, 3:00 and 15:00 always have the same value. So
# the vectors should go round *twice*, and 3 should lie beside 15:

# %%
twice = [learn(seed, waves=(2, 4))[-1] for seed in range(3)]   # 2 or 4 periods a day
print("days that repeat after twelve hours:", [f"{figures.turns(t):+.0f} turns" for t in twice])
apart = [((t[3] - t[15]).norm() / t[3].norm()).item() for t in twice]
print("distance from 3 to 15, relative to a vector's length:", [round(x, 2) for x in apart])

# %% tags=["hide-input"]
assert all(abs(abs(figures.turns(vectors)) - 2) < 1e-3 for vectors in twice)
assert max(apart) < 0.3, "far less than the 2 of opposite places"
for seed in range(3):
    thrice = learn(seed, waves=(3,))[-1]
    assert abs(abs(figures.turns(thrice)) - 3) < 1e-3
    nearest = (thrice - thrice[3]).norm(dim=1).topk(3, largest=False).indices
    assert set(nearest.tolist()) == {3, 11, 19}

# %% [markdown] teaches="a summary of fixed size of a set"
# **They do, with all three seeds.**
#
# <details><summary>And if the days repeat after eight hours?</summary>
#
# With `waves=(3,)` the vectors go round three times, and 11 and 19 lie beside 3, as the folded cell checks.</details>
#
# **Now you:** [a02](@lookup/assignment), exercise 4: debug a course-mate's leave-one-out, in which no key may look
# itself up.
#
# *This is a good place for a break.*
#
# ## Attention pooling: a fixed-size summary of a set
#
# A lookup can also summarise. A sentence may have three words or three thousand, but the next layer needs a vector of
# a fixed width. The context vector is as wide as one value, however many values there are. This is **attention
# pooling**.
#
# Does the summary depend on the order of the table? *Predict:* we shuffle keys and values together, and then the keys
# alone. In which case do the answers at 3:00, 7:00 and 15:00 change?

# %% [raw] slide
# ## Attention pooling: a fixed-size summary of a set
# The context vector is as wide as a value, however many there are, and it is *selective*: another query, another summary.
#
# > **Guess first.** We shuffle keys and values together; then the keys alone. In which case do the answers at 3:00, 7:00 and 15:00 change?

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
# **A table is a set of pairs, and its order does not matter.** When keys and values are shuffled together, the
# answers stay the same, because a sum does not depend on order: attention is **permutation-invariant**. When the keys
# alone are shuffled, they point to the wrong values. Where order matters, as in a sentence, it has to be written into
# the vectors or the scores, as in [lecture @order](@order).
#
# ## Keys for words: cosine similarity
#
# An hour had an obvious vector. What is the vector of a word? Firth ([-@firth1957]) said: "You shall know a word by
# the company it keeps." So we read four thousand docstrings of Python's standard library and count, for each word,
# which other words occur within three places of it. Ten words are keys, two for each of five topics, and fifteen other
# words are queries, all picked by hand.

# %% tags=["hide-input"]
texts = docstrings(limit=4000)                                # another Python: other numbers
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

# %% [raw] slide
# ## Keys for words: the company they keep
# A word is a row of 500 counts of its neighbours. Ten words are keys, fifteen others ask.
#
# > **Guess first.** "Day" should find "month" or "week". Which key wins?
#
# . . .
# **"File"**, whatever the question (3 of 15 right): it is frequent, so its row is *long*.

# %% [markdown]
# Each word is a row of 500 counts, one for each possible neighbour, and the score is the dot product of two rows.
# *Guess:* which key does "day" find under hard attention: "month", "week", or another one?

# %%
def winners(vectors):
    """For each query the key with the largest dot product, and how many of these are right."""
    best = (vectors[10:] @ vectors[:10].mT).argmax(dim=1)     # (15,)
    answers = [known[i] for i in best.tolist()]               # a word and its topic, each
    right = sum(topic == asked for (_, topic), (_, asked) in zip(answers, new, strict=True))
    return [word for word, _ in answers], right


answers, right = winners(neighbours)                          # neighbours: (25, 500)
print("the answers:", set(answers), " right:", right, "of 15")
print("occurrences of file:", occurrences["file"],
      " of the next key, thread:", occurrences["thread"])

# %% tags=["hide-input"]
counts_right, often = right, sorted(occurrences[word] for word, _ in known)
assert set(answers) == {"file"}
assert often[-2:] == [occurrences["thread"], occurrences["file"]] and often[-1] > 3 * often[-2]
assert neighbours.norm(dim=1).argmax() == words.index("file"), "the longest row"

# %% [markdown]
# **"File" answers every question.** This is the trap that we met with the plain hours, where the largest key won.
# "File" is by far the most frequent of the ten keys, so its row is *long*, and a dot product rewards length as much
# as direction. The standard repair is to give all rows the same length. The dot product is then the **cosine
# similarity**:

# %%
of_length_one = neighbours / neighbours.norm(dim=1, keepdim=True)                 # (25, 500)
answers, right = winners(of_length_one)
print("length 1: right", right, "of 15")

# %% [raw] slide
# ## Cosine similarity: all rows of length 1
# {print}
#
# The lookup and the score are the same. Only the vectors are better.

# %% [markdown]
# **With rows of equal length, nearly every query finds its topic.** For soft attention we keep these rows, choose a
# temperature of 0.03, and take the topics as values. Each is a **one-hot** vector of five numbers, 1 for its topic
# and 0 elsewhere, so the context vector is a vote:

# %%
topic_of_key = nn.functional.one_hot(torch.arange(10) // 2).float()               # (10, 5)
queries, ten_keys = of_length_one[10:], of_length_one[:10]                        # (…, 500)
table = [soft_lookup(query, ten_keys, topic_of_key, T=0.03) for query in queries]
weights = torch.stack([weights for _, weights in table])                          # (15, 10)
figures.lookup_table(weights, queries=words[10:], keys=words[:10], topics=list(topics))
contexts = dict(zip(words[10:], [context for context, _ in table], strict=True))  # (5,) each
votes = zip(topics, contexts["port"], strict=True)
print("port:", ", ".join(f"{topic} {vote:.2f}" for topic, vote in votes))
#| caption: Attention weights between words, with a frame for each topic. Weights below 0.1 have
#|   no number; ✗ marks a query whose largest weight is in another topic.

# %% tags=["hide-input"]
assert counts_right < 5 and right > 10
assert answers[words[10:].index("port")] == "file", "hard attention is wrong"
assert abs(contexts["port"][2] - contexts["port"][4]) < 0.1, "and soft attention undecided"
frequency = torch.tensor([float(occurrences[word]) for word in context_words])    # (500,)
common = frequency.topk(10).indices                           # the columns of "the", "a", "is"
of_common = of_length_one[:10, common].square().sum(dim=1)    # (10,)  of a squared length of 1
without = neighbours.index_fill(1, common, 0.0)               # (25, 500)
without = without / without.norm(dim=1, keepdim=True)
file = words.index("file")                                  # three queries are on it: the last
elsewhere = [(rows[10:-3] @ rows[:10].mT / 0.03).softmax(dim=1)[:, file].mean().item()
             for rows in (of_length_one, without)]
sharp = (queries @ ten_keys.mT / 0.003).softmax(dim=1)        # (15, 10)  a tenth of T
assert sharp[words[10:].index("port"), file] > 0.6, "most of the weight, on a wrong key"
assert occurrences["complex"] == min(occurrences[word] for word in words) < 10
assert of_common[file] > 1.1 * of_common.mean()
assert elsewhere[1] < elsewhere[0] / 4, "less than a quarter"
by_chance = neighbours.sum(dim=1, keepdim=True) * frequency / frequency.sum()     # (25, 500)
ppmi = (neighbours / by_chance).clamp(min=1.0).log()                              # (25, 500)
assert winners(ppmi / ppmi.norm(dim=1, keepdim=True))[1] == 15

# %% [raw] slide
# ## Soft attention says more than who wins
# {figure}

# %% [markdown] teaches="score functions: additive, bilinear, dot, scaled dot"
# **At one temperature, the paler a row, the less decided the lookup.** Hard attention gets *port* wrong, because its
# largest weight is on *file*. Soft attention is split: the two network keys together get about as much as the two
# file keys. At a tenth of this $T$, *port* would give *file* most of its weight. So a weight is not the probability of
# being right. The other miss is *complex*, as in "complex number". It is the rarest of the 25 words, so its row has few
# counts.
#
# <details><summary>Why "file" still gets weight in most rows, and a better vector for a word: PPMI</summary>
#
# The row of *file* is no longer than the others now. But the ten most frequent neighbours, such as *the*, make up
# more of it than of the average key's row, and most queries share them. At $T = 0.03$ a small lead in cosine becomes
# a large one in weight: without these ten, *file* gets less than a quarter as much. The repair follows.
#
# Neighbours such as *the* are frequent and say nothing about the topic. **PPMI**, positive pointwise mutual
# information, counts a neighbour only to the extent that it occurs more often than chance would have it. The
# logarithm of this ratio is the **pointwise mutual information** of two words ([@church1990]), and PPMI sets negative
# numbers to zero. For example, let a word have 200 neighbours, and let one word in twenty of the texts be "the". By
# chance, ten of the neighbours would be "the". If thirty are, the entry is ln 3 = 1.1; if eight are, it is 0. With
# such rows, again of length one, all fifteen queries find their topic.</details>
#
# ## Score functions: additive, dot, bilinear, scaled dot
#
# The dot product needs a query and a key of the same width, whose coordinates mean the same thing. But in a
# translator the query comes from a decoder and the key from an encoder, so why should their coordinates agree? A
# **score function** is any rule that says how well a query matches a key; four matter here. As everywhere in this
# course, vectors are rows.
#
# | | $e(q, k)$ | learns | source |
# |---|---|---|---|
# | **additive** | $\tanh(q W + k U) \cdot w$ | $W, U, w$ | [@bahdanau2015] |
# | **dot** | $q \cdot k$ | nothing | [@luong2015] |
# | **bilinear** | $q W \cdot k$ | $W$ | [@luong2015] ("general") |
# | **scaled dot** | $q \cdot k / \sqrt{d_k}$ | nothing | [@vaswani2017] |
#
# **A dot product is symmetric, and a learned score need not be.** If query and key are exchanged, both dot products
# stay the same, while the other two scores usually change. So with a learned score *cat* may ask for *black* without
# *black* asking for *cat*.
#
# The bilinear score multiplies the query by a matrix before the dot product. The additive score is a small network
# that is applied to each pair: its hidden layer *adds* the part of the query and the part of the key, and a vector
# $w$ turns the hidden layer into one number.
#
# <details><summary>How papers write the additive score</summary>
#
# Papers often put query and key side by side and write $w^\top \tanh(W_1 [q; k])$, which is the same score, with $W$
# and $U$ joined into one matrix.</details>

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

# %% tags=["hide-input"]
torch.manual_seed(0)
W, U, w = torch.randn(6, 10), torch.randn(6, 10), torch.randn(10)       # additive: 10 hidden
square = torch.randn(6, 6)                                              # bilinear: its W
four = {"additive": lambda q, k: torch.tanh(q @ W + k @ U) @ w,
        "dot": lambda q, k: q @ k,
        "bilinear": lambda q, k: q @ square @ k,
        "scaled dot": lambda q, k: q @ k / math.sqrt(len(k))}
q, k = torch.randn(6), torch.randn(6)
additive, bilinear = AdditiveScore(6, 6, 10), BilinearScore(6, 6)
with torch.no_grad():
    additive.query.weight.copy_(W.mT)
    additive.key.weight.copy_(U.mT)
    additive.v.weight.copy_(w[None])
    bilinear.weight.copy_(square)
    package = {"additive": additive, "dot": dot_score, "bilinear": bilinear,
               "scaled dot": scaled_dot_score}
    for name, score in four.items():
        assert torch.isclose(package[name](q[None], k[None])[0, 0], score(q, k), atol=1e-4)
        assert torch.isclose(score(q, k), score(k, q)) == ("dot" in name)
names = ["A", "B", "C", "D", "E", "F"]                                # keys of the next figure
places = torch.tensor([[0.9, 0.3], [1.8, 0.6], [-0.2, 1.1],
                       [-1.2, 0.8], [-0.5, -1.5], [1.0, -0.9]])
turned = BilinearScore(2, 2)
with torch.no_grad():
    turned.weight.copy_(torch.tensor([[0.0, 1.0], [-1.0, 0.0]]))        # a right angle

# %% [markdown]
# ## What each score function can express
#
# Which keys can each score prefer? Let a key lie anywhere in the plane, and colour each place by the score that one
# query, the green arrow, would give to a key there: the darker, the higher. Lines join places of equal score, and six
# keys A to F show their weights. The matrix of the bilinear score turns the query by a right angle, and we set the
# additive network by hand.
#
# Compare the keys A and B. They lie in the same direction, but A is much nearer to the tip of the query.

# %% [raw] slide
# ## What each score function can express
# > **Guess first.** Colour every place in the plane by the score that a query gives it. Which score can prefer a key because it is *near*?

# %%
three = {"dot": dot_score, "bilinear": turned, "additive": figures.hill}


def draw(direction):
    angle = torch.tensor(math.radians(direction))
    query = torch.stack([angle.cos(), angle.sin()])           # (2,)
    return figures.score_landscapes(three, query, places, names, f"query at {direction}°")


viz.explore(draw, direction=list(range(0, 360, 45)), start={"direction": 0})
#| caption: Scores of a key at each place, with lines at whole numbers (dashed below zero), and
#|   six keys with their weights.
#| label: landscapes

# %% [raw] slide
# ## Score landscapes
# {figure}

# %% [markdown]
# **Dot and bilinear scores are tilted planes. The additive score can be a hill.** A plane rises steadily in one
# direction, the query's own or the turned one, and its lines of equal score are perpendicular to this direction. So
# of two keys in the same uphill direction the farther one wins: B beats A. On the hill the nearer one wins: A beats
# B.
#
# <details><summary>How four hidden units make a hill</summary>
#
# How does a network make a hill, and how does the hill follow the query? Give the hidden units a bias $b$, and let $U
# = -W$. They then compute $\tanh((q - k)\, W + b)$, so each is a soft step at a fixed distance from the tip of the
# query. A step up before the tip and a step down behind it make a ridge through the tip. Four hidden units make two
# ridges, whose ends are the four arms in the third panel, and the hill is where the ridges cross.</details>
#
# <details><summary>Why a long key wins: the dot product as a kernel</summary>
#
# In general $q \cdot k = \frac12 (\lVert q \rVert^2 + \lVert k \rVert^2 - \lVert q - k \rVert^2)$, and the first term
# cancels in the softmax. So dot-product attention is kernel regression in which each key has one more factor,
# $\exp(\lVert k \rVert^2 / 2T)$, which favours a long key. That is what happened with the plain hours, where 23 won,
# and with *file*. With keys of equal length the factor cancels, too.</details>

# %% tags=["hide-input"]
east = torch.tensor([[1.0, 0.0]])                             # (1, 2)  the query at 0°
winner = {name: names[score(east, places).argmax()] for name, score in three.items()}
assert winner["dot"] == "B" and winner["additive"] == "A"

# %% [raw] slide
# ## Three worlds
# | world | |
# |---|---|
# | **one language** | the query is the same vector as its key |
# | **two languages** | the query is its key times a fixed orthogonal matrix |
# | **plain hours** | a key is one number between −1 and 1 |
#
# > **Guess first.** Three worlds by three scores: which are nearly always right, which no better than guessing?

# %% [markdown]
# ## Three worlds: what each score function can learn
#
# We set those scores by hand. Can training find scores that work? A table has eight keys, of which one belongs to the
# query, and a score function is right if it gives that key the largest weight. We try three worlds:
#
# * **one language**: a key is a direction in four dimensions, and the query is the same vector;
# * **two languages**: the query is the same direction in other coordinates, the key times a fixed orthogonal matrix
#   $R$;
# * **plain hours**: a key is one number between −1 and 1, as in the trap above, and the query is the same number.
#
# Every vector gets one more coordinate, always 1, which gives the learned scores their bias. *Predict a table of
# three worlds by three scores:* in which cells is the score nearly always right? Guessing is right one time in eight.

# %% tags=["hide-input"]
def tables(world, R, generator, batch=64, n=8):
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
    ones = torch.ones(batch, n, 1)
    return torch.cat([query, ones[:, :1]], dim=-1), torch.cat([keys, ones], dim=-1), right


def other_coordinates(generator):
    R, _ = torch.linalg.qr(torch.randn(4, 4, generator=generator))                # (4, 4)
    signs = 2 * torch.randint(2, (4,), generator=generator) - 1                   # (4,)
    return R * signs                                          # qr alone favours some matrices


def accuracy(score, world, seed, steps=400):
    generator = torch.Generator().manual_seed(seed)
    R = other_coordinates(generator)
    if isinstance(score, nn.Module):                          # the dot product learns nothing
        optimizer = torch.optim.Adam(score.parameters(), lr=0.02)
        for _ in range(steps):
            query, keys, right = tables(world, R, generator)
            loss = nn.functional.cross_entropy(score(query, keys)[:, 0], right)  # −ln α
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    query, keys, right = tables(world, R, generator, batch=2000)
    return (score(query, keys)[:, 0].argmax(dim=-1) == right).float().mean().item()

# %%
runs = {}
for world, d in {"one language": 5, "two languages": 5, "plain hours": 2}.items():
    runs[world] = {"dot": [], "bilinear": [], "additive": []}
    for seed in range(3):
        torch.manual_seed(seed)
        candidates = (dot_score, BilinearScore(d, d), AdditiveScore(d, d, 32))
        for name, score in zip(runs[world], candidates, strict=True):
            runs[world][name].append(accuracy(score, world, seed))
figures.worlds(runs, chance=1 / 8)
#| caption: How often each score gives the right key the largest weight, for three seeds. The
#|   darker a cell, the higher their median.
#| label: worlds

# %% tags=["hide-input"]
assert min(min(values) for values in runs["one language"].values()) > 0.9
two, plain = runs["two languages"], runs["plain hours"]
assert max(two["dot"]) < 0.4 < 0.9 < min(two["bilinear"] + two["additive"])
assert min(two["dot"]) < 1 / 8 < 0.22 < max(two["dot"])
assert all(0.2 < share < 0.3 for share in plain["dot"] + plain["bilinear"])
assert min(plain["additive"]) > 0.9

# %% [raw] slide
# ## What each score function can learn
# {figure}
#
# . . .
# The field kept the cheap score and learned the vectors: $(x W_Q) \cdot (y W_K) = x\, W_Q W_K^\top\, y^\top$.
#
# **Now you:** a@lookup, exercise 5

# %% [markdown]
# **Only the additive score succeeds in all three worlds.**
#
# * **One language:** all three scores find the right key.
# * **Two languages:** both learned scores find it. The bilinear one can learn the inverse of $R$, as the extension
#   `bilinear_score` shows. The dot product compares coordinates that have nothing to do with each other, so what it
#   gets right is a matter of luck.
# * **Plain hours:** only the additive score can be a hill around the right key. The other two are linear in the key, so
#   they choose the largest or the smallest of the eight keys, and that is the right one a quarter of the time.
#
# Why, then, do Transformers use the dot product? It is cheap: the scores of all pairs are one fast matrix product,
# whereas the additive score passes each pair through its hidden layer ([@vaswani2017, section 3.2.1]). And good
# vectors make up for what it cannot do. Two learned layers can put an input $x$ and an input $y$ into the same
# coordinates first:
#
# $$(x\, W_Q) \cdot (y\, W_K) \;=\; x\, W_Q W_K^\top\, y^\top$$
#
# This is a bilinear score whose matrix has rank at most $d_k$, the width of queries and keys. It is still linear
# in the key, so plain hours need a nonlinear layer before $W_Q$ and $W_K$, or an embedding, as our clock was.
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
# The cheap score has one more weakness, which the Transformer repairs by dividing by $\sqrt{d_k}$. Let the components
# of $q$ and $k$ be independent, with a mean of zero and a variance of one. Each product $q_m k_m$ then has mean zero
# and variance $E[q_m^2]\, E[k_m^2] = 1$, and variances of independent terms add up:
#
# $$\operatorname{Var}(q \cdot k) = \sum_{m=1}^{d_k} \operatorname{Var}(q_m k_m) = d_k
# \qquad\qquad \operatorname{Var}\Bigl(\frac{q \cdot k}{\sqrt{d_k}}\Bigr) = \frac{d_k}{d_k} = 1$$ (eq:variance)
#
# So plain scores have a standard deviation of $\sqrt{d_k}$ (footnote 4 of [@vaswani2017]): the wider the vectors, the
# larger the scores. What does the softmax do with them? One number says how evenly it spreads the weights, their
# **entropy** $-\sum_i \alpha_i \ln \alpha_i$, which is $\ln n$ where all $n$ weights are equal, and 0 where one key
# has all the weight.
#
# *Guess:* random queries meet sixteen *random* keys, and nothing is learned yet. As $d_k$ grows, does the entropy of
# the weights rise, fall or stay? Answer it twice, without the division by $\sqrt{d_k}$ and with it.

# %% tags=["hide-input"]
def random_scores(score, d_k, seed):
    generator = torch.Generator().manual_seed(seed)
    q = torch.randn(500, 1, d_k, generator=generator)
    k = torch.randn(500, 16, d_k, generator=generator)
    return score(q, k)[:, 0]                                  # (500, 16)


plain_and_scaled = {"plain": dot_score, "scaled": scaled_dot_score}
spread, entropy = {"plain": {}, "scaled": {}}, {"plain": {}, "scaled": {}}
for name, score in plain_and_scaled.items():
    for d_k in (4, 16, 64, 256, 1024):
        e = [random_scores(score, d_k, seed) for seed in range(3)]
        alpha = [each.softmax(dim=-1) for each in e]          # (500, 16) for each seed
        spread[name][d_k] = [each.std().item() for each in e]
        entropy[name][d_k] = [torch.special.entr(a).sum(dim=-1).mean().item() for a in alpha]
figures.scores_by_width(spread, entropy, n_keys=16)
#| caption: Standard deviation of the scores, and entropy of the weights, with the root (scaled)
#|   and without it (plain). A mark for each of three seeds.
#| label: scale

# %% tags=["hide-input"]
for d_k in spread["plain"]:
    assert all(abs(x / math.sqrt(d_k) - 1) < 0.06 for x in spread["plain"][d_k])
    assert all(abs(x - 1) < 0.06 for x in spread["scaled"][d_k])
assert max(entropy["plain"][1024]) < 0.2 < 2.2 < min(entropy["scaled"][1024])
assert max(entropy["plain"][4]) > 1
medians = [sorted(each)[1] for each in entropy["scaled"].values()]
assert max(medians) - min(medians) < 0.1 and max(medians) < math.log(16) - 0.2
for d_k in (64, 1024):
    e = random_scores(dot_score, d_k, seed=0) / d_k           # (500, 16)  divided by d_k itself
    assert abs(e.var() * d_k - 1) < 0.12, "a variance of 1 / d_k"
assert (e.softmax(dim=-1) - 1 / 16).abs().max() < 0.02, "nearly equal weights at width 1024"

# %% [raw] slide
# ## Without the root: saturated before anything was learned
# {figure}
#
# One key has nearly all the weight. The root repairs it: **scaled dot-product attention**, softmax(*QK*ᵀ / √*d*ₖ) *V*.

# %% [markdown]
# **Without the root, wide vectors give nearly hard attention before anything is learned.** At width 1024 the entropy
# is nearly 0: one key has nearly all the weight, and the softmax is **saturated**. With the root, the standard
# deviation of the scores stays at one, so the entropy is nearly the same at every width, somewhat below that of equal
# weights. The root is a fixed temperature, $T = \sqrt{d_k}$, and with it [@eq:lookup-in-matrices] becomes **scaled
# dot-product attention**:
#
# $$\operatorname{softmax}\Bigl(\frac{Q K^\top}{\sqrt{d_k}}\Bigr)\, V$$ (eq:scaled-lookup)
#
# **Why not divide by $d_k$ itself?** Then the variance of the scores is $d_k / d_k^2 = 1 / d_k$. In wide layers the
# scores shrink towards zero, so the weights start nearly equal, as in mean pooling. The root is the divisor that keeps
# the variance at one. Exercise 6 trains with both divisors.
#
# ## What √d_k changes in training
#
# Why is a saturated softmax bad? Remember the pull of a key, $\alpha_i (v_i - c)$: where one key has nearly all the
# weight, hardly anything pulls. To measure this, we take random vectors again, with the squared error of the answer
# as the loss. How large is the gradient that arrives at a query's sixteen dot products $q \cdot k$, before any
# division? Here is the median of its length over 1,500 queries:

# %% tags=["hide-input"]
v = torch.randn(500, 16, generator=torch.Generator().manual_seed(9))      # (500, 16)  values


def gradient_lengths(divisor, d_k):
    lengths = []
    for seed in range(3):
        products = random_scores(dot_score, d_k, seed).requires_grad_()   # (500, 16)  q · k
        c = ((products / divisor).softmax(dim=-1) * v).sum(dim=-1)        # (500,)
        ((c - v[:, 0]) ** 2).sum().backward()                             # key 0 is right
        lengths.append(products.grad.norm(dim=-1))
    return torch.cat(lengths)                                             # (1500,)


medians, widths = {"plain": [], "scaled": []}, (4, 64, 512, 1024)
for d_k in widths:
    plain_lengths = gradient_lengths(1, d_k)                  # "Going further" needs the last
    medians["plain"].append(plain_lengths.median().item())
    medians["scaled"].append(gradient_lengths(math.sqrt(d_k), d_k).median().item())
print("   d_k" + "".join(f"{d_k:>9}" for d_k in widths))
for name, row in medians.items():
    print(f"{name:>6}" + "".join(f"{median:9.2g}" for median in row))
plain, scaled = medians.values()
assert plain[0] > scaled[0] and plain[1] > scaled[1], "the scaled one is the smaller one"
assert plain[2] < scaled[2] / 50 and plain[3] < scaled[3] / 1000, "then the larger one"
like_the_root = [median * math.sqrt(d_k) for median, d_k in zip(scaled, widths, strict=True)]
assert max(like_the_root) < 1.1 * min(like_the_root)

# %% [raw] slide
# ## Most queries get almost no gradient
# The length of a query's gradient at its dot products *q* · *k*, before anything was learned (median):
#
# {print}

# %% [markdown]
# **Without the root, most queries of a wide layer get almost no gradient at the start.** The root has a price, too. On
# its way back to $q \cdot k$ every gradient is divided by $\sqrt{d_k}$, and at widths 4 and 64 the scaled one is the
# smaller of the two. But the scaled gradient shrinks only as fast as the root grows. The plain one collapses: at width
# 1024 its median is less than a thousandth of the scaled one.
#
# Does it matter in training? Two learned layers of width $d_k$ make the queries and keys, and each query has to find
# one key of sixteen, in other coordinates as in "two languages". The loss is the squared error of the answer, so it
# sees the weights only through the average, as in a Transformer. The recipe is the same at every width. *Guess:* at
# which of the widths 8, 32, 128 and 512 will the plain dot product do worse than the scaled one?

# %% tags=["hide-input"]
def losses(score, d_k, seed, lr=0.01, gain=1.0, batch=32):         # three for "Going further"
    generator = torch.Generator().manual_seed(seed)
    R, _ = torch.linalg.qr(torch.randn(8, 8, generator=generator))      # other coordinates
    start = gain / math.sqrt(8)
    W_Q = nn.Parameter(start * torch.randn(8, d_k, generator=generator))
    W_K = nn.Parameter(start * torch.randn(8, d_k, generator=generator))
    optimizer, history = torch.optim.Adam([W_Q, W_K], lr=lr), []
    for _ in range(150):
        x = torch.randn(batch, 16, 8, generator=generator)         # tables of 16 keys
        scores = score(x[:, :1] @ R @ W_Q, x @ W_K)[:, 0]          # (batch, 16)
        v = torch.randn(batch, 16, generator=generator)            # (batch, 16)  values
        c = (scores.softmax(dim=-1) * v).sum(dim=-1)               # (batch,)  their averages
        loss = ((c - v[:, 0]) ** 2).mean()                         # key 0 is right
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        history.append(loss.item())
    return torch.tensor(history)


def at_the_end(history):
    return history[-25:].mean().item()

# %%
seeds, ends = (0, 1, 2), {}
for name, score in plain_and_scaled.items():
    ends[name] = {}
    for d_k in (8, 32, 128, 512):
        ends[name][d_k] = [at_the_end(losses(score, d_k, seed)) for seed in seeds]
figures.losses_by_width(ends, equal_weights=15 / 16, lone=("plain", 128, "one run of three"))
#| caption: Each mark is the loss of one seed at the end of 150 steps (mean of the last 25). A
#|   line joins the medians of three seeds.
#| label: losses

# %% tags=["hide-input"]
dot, scaled_dot = ends.values()
assert max(dot[8] + dot[32]) < 0.4 and max(scaled_dot[8] + scaled_dot[32]) < 0.4
assert min(dot[512]) > 1.5 * max(scaled_dot[512]) and max(dot[512]) > 15 / 16
assert max(dot[128]) > 15 / 16 > 1 / 3 > max(max(ends) for ends in scaled_dot.values())
assert sum(end > 0.4 for end in dot[128]) == 1, "one run of three"

# %% [raw] slide
# ## Does it matter in training? One recipe for all widths
# {figure}
#
# **Now you:** a@lookup, exercise 6

# %% [markdown]
# **With the root, one recipe works at all four widths.** At widths 8 and 32 the two scores learn about equally well.
# At width 128 one plain run of three failed. At 512 all three did: each ends far above every scaled run. The worst is
# even above the dotted line. That is possible because taking one wrong key costs more than averaging all sixteen.
#
# We trained for 150 steps only, and other recipes help the plain dot product: "Going further" tries three.
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
# 1. Attention returns a weighted average of values, and the weights depend on the query.
# 2. It always answers, its answer has a fixed size, and it has a gradient.
# 3. For vectors of length one it is kernel regression with a Gaussian kernel; in a network the vectors are learned.
# 4. The dot product is cheap, but it needs vectors of similar length in the same coordinates. Learned layers can make
#    them, and the root keeps the scores of wide vectors small.
# 5. Every query meets every key, which makes $n_\text{query} \cdot n_\text{key}$ scores, a cost that [lecture
#    @cheap_attention](@cheap_attention) takes up.
#
# The package has all of this in one function, `attend`. It takes many queries at once. Its score is the scaled dot
# product unless you give it another one, as we do here for the bridge:

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
print(f"seven o'clock: {output[0, 0]:.0f} bicycles, three o'clock: {output[1, 0]:.0f}")

# %% [markdown] erratum="exactly one pair; √|k|"
# > **Check yourself.**
# > 1. Five queries, nine keys of width 16, values of width 3: what are the shapes of scores, weights and output?
# > 2. All keys have length one. Two keys are equal and their values are not. What does soft attention answer when asked
# >    for that key, at a very low temperature? And a Python dictionary?
# > 3. One value is changed. Which weights change?
# > 4. Vectors of width 256 have independent components of mean 0 and variance 1. What is the standard deviation of their
# >    scores: plain, divided by $\sqrt{d_k}$, and divided by $d_k$?
# > 5. Query and key are the *same* random vector, with components of mean 0 and variance 1. What is the expected score,
# >    plain and scaled?
# > <details><summary>Answers</summary>
# >
# > 1. Scores and weights (5, 9), output (5, 3). The axis of 16 was summed over.
# > 2. The mean of the two values: equal keys get equal weights. The dictionary keeps the one that was written last.
# > 3. None. Weights come from queries and keys alone.
# > 4. $\sqrt{256} = 16$, then $16 / 16 = 1$, and $16 / 256 = 1/16$.
# > 5. $d_k$ and $\sqrt{d_k}$. The root gives the scores of *independent* vectors a standard deviation of one. A
# >    vector's score with itself still grows with the width.</details>
#
# **Now do** [assignment @lookup](@lookup/assignment) (about 95 minutes): five functions to write, one to debug, a
# question in words, and two extensions. **Next:** [lecture @cross_attention](@cross_attention), where a translator
# asks.
#
# <details><summary>Two common mistakes in slides on this subject</summary>
#
# **A common mistake: "a hash table maps each query to exactly one pair".** It maps a query to *at most* one pair: the
# query 7 matched none.
#
# **A common mistake: to read $\sqrt{|k|}$ as the root of a key's length.** Some texts write $|k|$ for its *number of
# components*, which is our $d_k$. Dividing by $\sqrt{\lVert k \rVert}$, the root of its length, can change *which key
# wins*. For $q = (1, −0.45)$ the keys $(0.9, 0)$ and $(2, 2)$ have the products 0.90 and 1.10. Divided by
# $\sqrt{\lVert k \rVert}$ they are 0.95 and 0.65.</details>
#
# <details><summary>Other names for this read: memory networks, pointers, Hopfield networks</summary>
#
# **Memory networks** ([@weston2015]) read a table of stored sentences by hard attention, and were told in training
# which sentence is the right one. Sukhbaatar et al. ([-@sukhbaatar2015]) made the read soft, and then the answer
# alone was enough. In the Neural Turing Machine ([@graves2014]) the read is called **content-based addressing**,
# because a place in memory is found by what it contains; its score is the cosine times a learned *key strength*,
# which is our $1/T$. The address of a place in memory is a **pointer**, so attention is a pointer with a gradient.
# **Pointer networks** ([@vinyals2015]) leave out the values: there the weights themselves are the output, and say
# *which* input is meant. **Modern Hopfield networks** ([@ramsauer2021]) store patterns and complete a noisy one. One
# step of theirs is soft attention: the noisy pattern is the query, and the stored patterns are both keys and
# values.</details>
#
# <details><summary>Further reading</summary>
#
# [+@bahdanau2015], section 3.1 and appendix A.1.2: the additive score. [+@luong2015], section 3.1: dot, general, and
# a third, concat. [+@vaswani2017], section 3.2.1: the scaled dot product. They suspect that small gradients are why
# additive attention beats plain dot products in wide layers, for which they cite [+@britz2017massive]. [+@xu2015]: hard and
# soft attention. [+@vinyals2015]. [+@graves2014]. [+@sukhbaatar2015]. [+@firth1957]: a word and its company.
# [+@nadaraya1964], and [+@watson1964]; [+@zhang2023], section 11.2, on other kernels. [+@weinberger2007]: a linear
# map of queries and keys, trained by a leave-one-out error. [+@tsai2019]: attention as a kernel smoother.</details>

# %% [markdown]
# ## Going further: what holds the plain dot product back
#
# **Is it only that gradients are small?** Adam should largely make up for that, since it adapts its steps. Does the
# *direction* suffer, too? We take two batches of 32 queries before training and compare their gradients at $W_Q$ and
# $W_K$:

# %% tags=["hide-input"]
def gradients_of_queries(score, seed, d_k=512, n=1280):
    """Before training: at W_Q and W_K, (n, 2 · 8 · d_k), and at the scores, (n, 16)."""
    generator = torch.Generator().manual_seed(seed)
    R, _ = torch.linalg.qr(torch.randn(8, 8, generator=generator))
    W_Q = torch.randn(8, d_k, generator=generator) / math.sqrt(8)
    W_K = torch.randn(8, d_k, generator=generator) / math.sqrt(8)
    x = torch.randn(n, 16, 8, generator=generator)
    q, k = (x[:, :1] @ R @ W_Q).requires_grad_(), (x @ W_K).requires_grad_()
    scores = score(q, k)[:, 0]                                     # (n, 16)
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


found = {}
for name, score in plain_and_scaled.items():
    found[name] = [[], []]
    for seed in seeds:
        each, at_scores = gradients_of_queries(score, seed)
        found[name][0].append(agreement(each))
        right_key = -at_scores[:, 0].mean() / at_scores.norm(dim=1).mean()
        found[name][1].append(right_key.item())
    said = f"{min(found[name][0]):.2f} to {max(found[name][0]):.2f}".replace("-0.00", "0.00")
    print(f"{name:>6}, width 512: cosine of two batches {said} (three seeds)")
plain, scaled = found.values()
assert max(plain[0]) < 0.5 * min(scaled[0]) and max(plain[1]) < 0.6 * min(scaled[1])
assert min(scaled[0]) > 0.055 and max(scaled[0]) < 0.09, "about 0.07"
e = torch.cat([random_scores(dot_score, 1024, seed) for seed in range(3)])        # (1500, 16)
gap = -e.topk(2).values.diff()[plain_lengths.argsort(descending=True), 0]         # (1500,)
assert gap[:150].median() < 3 and gap[150:].median() > 8, "close scores, large gradients"
q, long_keys = torch.tensor([1.0, -0.45]), torch.tensor([[0.9, 0.0], [2.0, 2.0]])
products = long_keys @ q
assert torch.allclose(products, torch.tensor([0.90, 1.10]))
divided = products / long_keys.norm(dim=1).sqrt()
assert torch.allclose(divided, torch.tensor([0.95, 0.65]), atol=0.005)

# %% [markdown]
# **Without the root two batches have almost nothing in common.** The likely reason: only queries whose two highest
# scores are close still get a large gradient, and these two keys are mostly wrong ones, so which of them is better is
# a matter of chance. With the root the cosine is about 0.07. That is small, but a common part adds up over many steps
# while the rest averages out.
#
# **What helps?** We follow the plain dot product at width 512, and change one thing in the recipe at a time:

# %%
changes = {"as above": {}, "a tenth of the rate": {"lr": 0.001},
           "eight times the batch": {"batch": 256},
           "scores of variance 1 at first": {"gain": 512**-0.25}}
fates = {}
for change, what in changes.items():
    fates[change] = [at_the_end(losses(dot_score, 512, seed, **what)) for seed in seeds]
    print(f"{change:>29}: loss", ", ".join(f"{end:.1f}" for end in fates[change]))

# %% tags=["hide-input"]
as_above, slower, larger, smaller = fates.values()
helped = max(larger + smaller)
assert helped < 0.6 and helped < min(as_above) and min(slower) > 15 / 16

# %% [markdown]
# **In 150 steps, smaller initial weights and a larger batch help, and a lower rate does not.** Smaller weights remove
# the bad start, just as the root does. But this compares recipes and not causes: the larger batch also sees eight
# times as many tables, and the lower rate gets about a tenth as far. The advantage of the root is that *one* recipe
# fits all four widths.
