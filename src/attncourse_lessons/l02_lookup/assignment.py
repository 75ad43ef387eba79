# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3 (ipykernel)
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Assignment @lookup · Attention is a lookup
#
# In this assignment you build the lookup of [lecture @lookup](@lookup) twice, hard and soft, and then three
# of the four ways to say how well a query matches a key. (The fourth, the plain dot product, you write on the way.) None of the
# functions needs more than five lines. What needs thought is which axis is which, and what stands to the left of what.
#
# Under each exercise stands a check. Run it as often as you like, also before you have written anything: it tells you what
# it found, what it expected, and, if it recognises your mistake, what you were probably thinking. A check on other
# numbers and other sizes decides your points, so an answer that is fitted to the visible check will not do.
#
# {exercises}
#
# If you are stuck, `hint("hard_lookup", 1)` prints a hint; the later ones of an exercise tell more. Your answers are
# refused if they call the course's own attention or torch's: this is the place to build it. Torch's `softmax` is yours to use.
# Stay with torch's operations, without `.item()`, `.detach()` or NumPy on the way: most checks also ask whether a gradient
# flows from what you return back to what you were given.

# %% locked=true
try:
    from attncourse import check, hint
except ModuleNotFoundError:
    raise ImportError(
        "This notebook needs the attncourse package: open it with `make lab` in the course's "
        "folder, or choose a kernel of the environment in which you installed the course."
    ) from None

import math

import torch
from torch import Tensor, nn

# %% [markdown]
# ## 1 · A hard lookup
#
# A table holds $n$ keys $k_1, \dots, k_n$ and beside each of them a value $v_1, \dots, v_n$. A query $q$ comes in. Which key
# matches it best, by the dot product, and what is stored beside that key?
#
# $$\text{hard}(q) = v_{i^*} \quad\text{with}\quad i^* = \arg\max_i \; q \cdot k_i$$
#
# Answer several queries at once: each row of `query` is a question of its own. (No two keys will match a query equally well.)

# %% exercise="hard_lookup"
def hard_lookup(query: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """For each query the value whose key has the largest dot product with it.

    query: (n_query, d_k)   keys: (n_keys, d_k)   values: (n_keys, d_v)
    returns (n_query, d_v)
    """
    ...  # solution

# %% check="hard_lookup"
check("hard_lookup", hard_lookup)

# %% [markdown]
# ## 2 · A soft lookup
#
# Now every key has a say. The dot products, divided by a temperature $T$, go through softmax and become weights; the answer is
# the average of the values by these weights:
#
# $$\alpha_i = \frac{\exp(q \cdot k_i / T)}{\sum_j \exp(q \cdot k_j / T)} \qquad \text{soft}(q) = \sum_i \alpha_i \, v_i$$
#
# Hand back the weights, too: whoever wants to draw where a query looked needs them. The temperature is a positive number and
# may be small. At $T = 1/16$ an innocent score of 8 becomes 128, and $e^{128}$ does not fit into float32.

# %% exercise="soft_lookup"
def soft_lookup(query: Tensor, keys: Tensor, values: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
    """The average of the values, weighted by how well each key matches the query; and the weights.

    query: (n_query, d_k)   keys: (n_keys, d_k)   values: (n_keys, d_v)   temperature: above 0
    returns output (n_query, d_v) and weights (n_query, n_keys), in this order
    """
    ...  # solution

# %% check="soft_lookup"
check("soft_lookup", soft_lookup)

# %% [markdown]
# ## 3 · The scaled dot product
#
# The three score functions that follow work on a batch: the first axis counts tables, each with queries and keys of its own,
# and no query ever meets the keys of another table. What comes back is a table of scores for each, queries down the rows and
# keys along them. Softmax is not their business.
#
# The first is the one that Transformers use, the dot product over the root of the width of a key:
#
# $$e_{ij} = \frac{q_i \cdot k_j}{\sqrt{d_k}}$$

# %% exercise="scaled_dot_score"
def scaled_dot_score(query: Tensor, key: Tensor) -> Tensor:
    """How well each query matches each key: dot products, scaled so that their size does not grow with the width.

    query: (batch, n_query, d_k)   key: (batch, n_key, d_k)
    returns (batch, n_query, n_key)
    """
    ...  # solution

# %% check="scaled_dot_score"
check("scaled_dot_score", scaled_dot_score)

# %% [markdown]
# ## 4 · The bilinear score
#
# If query and key come from different places, their components mean different things, and there may not even be equally many. A
# matrix stands between them and translates:
#
# $$e_{ij} = q_i^\top W k_j$$
#
# The formula writes vectors as columns, as papers do. In the code a vector is a row.

# %% exercise="bilinear_score"
def bilinear_score(query: Tensor, key: Tensor, W: Tensor) -> Tensor:
    """How well each query matches each key, through a matrix that is learned (Luong et al. 2015, "general").

    query: (batch, n_query, d_query)   key: (batch, n_key, d_key)   W: (d_query, d_key)
    returns (batch, n_query, n_key)
    """
    ...  # solution

# %% check="bilinear_score"
check("bilinear_score", bilinear_score)

# %% [markdown]
# ## 5 · The additive score
#
# The oldest of them lets a small network look at each pair. Put query and key side by side, query first; a hidden layer; tanh;
# and a vector $v$ that makes one number of what is left:
#
# $$e_{ij} = \tanh\bigl([\,q_i;\ k_j\,]\, W\bigr) \cdot v$$
#
# Here all vectors are rows, so $W$ has a row for each number that comes in and a column for each hidden unit. Every query has
# to meet every key. That makes a table of pairs, with a hidden vector in each of its cells.

# %% exercise="additive_score"
def additive_score(query: Tensor, key: Tensor, W: Tensor, v: Tensor) -> Tensor:
    """How well each query matches each key, as a network with one hidden layer sees it (Bahdanau et al. 2015).

    query: (batch, n_query, d_query)   key: (batch, n_key, d_key)   W: (d_query + d_key, d_hidden)   v: (d_hidden,)
    returns (batch, n_query, n_key)
    """
    ...  # solution

# %% check="additive_score"
check("additive_score", additive_score)

# %% [markdown]
# ## 6 · In your own words
#
# A course-mate has simplified the additive score: "tanh only makes it slow. I left it out,
# $e_{ij} = [\,q_i;\ k_j\,]\, W \cdot v$, and it is still a score that depends on the query and on the key."
#
# **(a)** Show what softmax over the keys makes of these scores: which weights do two different queries get?
# **(b)** What have they built, then, in the words of the lecture, and what is it that tanh prevents?
# **(c)** Does $q_i^\top W k_j$, which has no tanh either, have the same defect? Why, or why not?
#
# Answer in four to eight sentences or lines of mathematics. (3 points)

# %% [markdown] written="why-tanh" points=3 minutes=12 difficulty=2
# ### BEGIN SOLUTION
# **Mark scheme.** One point for each.
#
# 1. (a) The score falls apart into $e_{ij} = a_i + b_j$, with $a_i$ from the query and $b_j$ from the key alone. In
#    $\exp(a_i + b_j) / \sum_m \exp(a_i + b_m)$ the factor $\exp(a_i)$ cancels: every query gets the same weights, $\operatorname{softmax}_j(b_j)$.
#    An argument in words ("the query adds the same number to each of its scores, and softmax does not see that") earns the point. An
#    example with numbers and no argument: half.
# 2. (b) A summary that does not depend on who asks: an average with learned, fixed preferences, like mean pooling with weights. tanh keeps the
#    sum from falling apart, so that what a key is worth depends on the query. Half a point if only one of the two is said. "tanh makes it
#    nonlinear" without what that is good for: half.
# 3. (c) No. $q^\top W k$ is a *product* of query and key: linear in either, but not a sum of two parts. A change of query changes the scores of
#    different keys by different amounts. "No, because W is learned" earns nothing: the W of (a) is learned, too.
# ### END SOLUTION

# %% [markdown]
# ## Extension: only the k best
#
# This one is worth extra credit, and nothing is lost by leaving it out.
#
# Between the hard lookup, where one key takes all, and the soft one, where each gets something, there is a lookup in which the
# $k$ best keys of a query share everything and all others get exactly nothing. Score by the *scaled* dot product, choose, share
# out by softmax among those chosen, average their values. Each query has its own $k$ best. (No two scores of a query will be
# equal.)

# %% exercise="top_k_lookup"
def top_k_lookup(query: Tensor, keys: Tensor, values: Tensor, k: int) -> Tensor:
    """A soft lookup, by scaled dot products, among the k keys that match a query best.

    query: (n_query, d_k)   keys: (n_keys, d_k)   values: (n_keys, d_v)   k: from 1 to n_keys
    returns (n_query, d_v)
    """
    ...  # solution

# %% check="top_k_lookup"
check("top_k_lookup", top_k_lookup)

# %% [markdown]
# ---
# Before you hand in: *Kernel → Restart Kernel and Run All Cells*, so that nothing depends on a cell that you have since
# deleted, and press *Validate*. Validate runs every check on a fresh kernel, as the grader will.
