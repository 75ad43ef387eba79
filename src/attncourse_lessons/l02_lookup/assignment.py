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
# In this assignment you build hard attention, soft attention and its backward pass, and you find the mistakes in a
# course-mate's lookup. Then you build two of the four score functions of [lecture @lookup](@lookup), the additive and
# the scaled dot product; the plain dot product you have met by then, and the bilinear score is an extension. Whereas
# the lecture asks one query at a time, here many queries come at once, and you answer them without a loop. No
# function needs more than six lines. The hard part is to know which axis is which, and which factor of a product
# stands on the left. After each check comes a cell that *uses* what you wrote. It waits until the check gives all
# points, and it is not graded.
#
# Each exercise has a check under it. Run it as often as you like, even before you have written anything: it tells you
# what it found, what it expected, and, if it recognises your mistake, what you were probably thinking. A check on other
# numbers and other sizes decides your points, so an answer that is fitted to the visible check will not pass.
#
# {exercises}
#
# If you are stuck, `hint("hard_lookup", 1)` prints a hint, and later hints tell more. Answers that call the course's
# own attention or torch's are refused, because this is the place to build it, but you may use torch's `softmax`. Use
# torch operations throughout, without `.item()`, `.detach()` or NumPy: most checks also test whether a gradient flows
# from what you return back to what you were given.

# %% locked=true
try:
    from attncourse import check, hint, solved
except ModuleNotFoundError:
    raise ImportError(
        "This notebook needs the attncourse package: open it with `make lab` in the course's "
        "folder, or choose a kernel of the environment in which you installed the course."
    ) from None

import math

import torch
from torch import Tensor, nn

from attncourse import viz
from attncourse.data.bridge import BICYCLES, counts, rush


def clock(hours):
    """Each hour as a vector of length 1, one turn a day: (n,) to (n, 2)."""
    angle = 2 * math.pi * torch.as_tensor(hours, dtype=torch.float32) / 24
    return torch.stack([angle.sin(), angle.cos()], dim=-1)


torch.set_num_threads(1)  # models as small as these gain nothing from a second thread

# %% [markdown]
# ## 1 · Hard attention
#
# A table holds $n$ keys $k_1, \dots, k_n$, each with a value, $v_1, \dots, v_n$. A query $q$ comes in. Which key
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
# **Use it.** We ask the bridge of the lecture at every hour. *Guess* between which hours the answer jumps. (At 10 and
# 20 two keys match equally well, and rounding decides.)

# %%
if solved("hard_lookup"):
    numbers = torch.tensor([float(n) for n in BICYCLES.values()])
    answers = hard_lookup(clock(range(24)), clock(list(BICYCLES)), numbers[:, None])  # (24, 1)
    print("counted: ", BICYCLES)
    print("answered:", {hour: round(answer) for hour, (answer,) in enumerate(answers.tolist())})

# %% [markdown]
# <details><summary>What to see</summary>
#
# The answer jumps halfway between two counted hours, for instance from 45 to 310 between 6 and 7. At midnight it is
# still the 40 of 23:00, because the clock goes round. Between two jumps nothing moves: this staircase has no
# slope.</details>

# %% [markdown]
# ## 2 · Soft attention
#
# Now every key contributes. The dot products, divided by a temperature $T$, go through the softmax and become
# attention weights, and the answer is the average of the values with these weights:
#
# $$\alpha_i = \frac{\exp(q \cdot k_i / T)}{\sum_j \exp(q \cdot k_j / T)} \qquad \text{soft}(q) = \sum_i \alpha_i \, v_i$$
#
# Return the weights, too: they are needed to draw what a query attends to. The temperature is a positive number and may
# be small. At $T = 1/16$ a harmless score of 8 becomes 128, and $\exp(128)$ does not fit into float32.

# %% exercise="soft_lookup"
def soft_lookup(
    query: Tensor, keys: Tensor, values: Tensor, temperature: float
) -> tuple[Tensor, Tensor]:
    """The average of the values, weighted by how well keys match the query; and the weights.

    query: (n_query, d_k)   keys: (n_keys, d_k)   values: (n_keys, d_v)   temperature: above 0
    returns output (n_query, d_v) and weights (n_query, n_keys), in this order
    """
    ...  # solution

# %% check="soft_lookup"
check("soft_lookup", soft_lookup)

# %% [markdown]
# **Use it.** Your function is a kernel regression now: from sixty noisy counts it predicts the bicycles at every hour
# of the day. The temperature is chosen by leave-one-out, which hides each count and predicts it from the others. The
# counts were drawn around a known curve. *Guess* where the prediction will miss that curve by the most.

# %%
if solved("soft_lookup"):
    hours, counted = counts(60, torch.Generator().manual_seed(4))         # (60,) each
    at, numbers = clock(hours), counted[:, None]                          # (60, 2), (60, 1)

    def error_when_hidden(temperature):
        missed = []
        for i in range(60):
            others = torch.arange(60) != i
            answer, _ = soft_lookup(at[i : i + 1], at[others], numbers[others], temperature)
            missed.append((answer[0, 0] - counted[i]) ** 2)
        return torch.stack(missed).mean().sqrt().item()

    errors = {t: error_when_hidden(t) for t in (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0)}
    best = min(errors, key=errors.get)
    print("off by", {t: round(error) for t, error in errors.items()}, " best T:", best)
    day = torch.linspace(0, 24, 145)
    answers, _ = soft_lookup(clock(day), at, numbers, best)               # (145, 1)
    lines = {"the true curve": rush(day), "your lookup": answers[:, 0]}
    ticks = range(0, 25, 6)
    viz.function_curves(lines, day, (hours, counted), "hour", "bicycles", x_ticks=ticks)
    worst = (answers[:, 0] - rush(day)).abs().argmax()
    near = ((hours - day[worst]).abs() < 0.5).sum()
    at_hour, minute = divmod(round(60 * day[worst].item()), 60)
    print(f"furthest off at {at_hour}:{minute:02}, with {near} counts within half an hour")

# %% [markdown]
# <details><summary>What to see</summary>
#
# The prediction follows both rush hours and is too low at their tops, because an average of neighbours flattens peaks. The
# morning peak comes nearly an hour late. It is furthest off in a gap, at 9:30 on the steep flank of a rush hour: no
# count lies within half an hour, and the counts before and after the gap differ a lot.</details>

# %% [markdown]
# ## 3 · The backward pass, by hand
#
# The lecture works out how an answer changes with the number that enters the softmax. Now go the whole way. A loss
# $L$ was computed from the outputs of a soft lookup, and you are given its gradient with respect to these outputs:
# `upstream` holds $\partial L / \partial c$, one number for each number of the output. What is the gradient of $L$
# with respect to the query, the keys and the values?
#
# Work on paper first, for one query, and go backwards: from the output to the values and to the weights, from the weights
# to the scores, from the scores to the two factors of a dot product. Then write it for many queries, with matrix products.
# The shapes help: a gradient has the shape of the tensor that it belongs to. Where several queries use the same key, their
# gradients add up. Autograd is refused here.

# %% exercise="lookup_gradient"
def lookup_gradient(
    query: Tensor, keys: Tensor, values: Tensor, temperature: float, upstream: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradient of a loss at what went into a soft lookup, from its gradient at the output.

    query: (n_query, d_k)   keys: (n_keys, d_k)   values: (n_keys, d_v)   temperature: above 0
    upstream: (n_query, d_v), the gradient of the loss at the output of exercise 2
    returns the gradients at query, keys and values, each of the shape of what it belongs to
    """
    ...  # solution

# %% check="lookup_gradient"
check("lookup_gradient", lookup_gradient)

# %% [markdown]
# **Use it.** First your gradients are compared with autograd's. Then comes the lecture's question: at what time does
# the bridge's table say 200? Your gradient at the query, times the slope of the clock, is the slope for the hour, and
# with it we go downhill from seven different hours. *Guess* which of these starts have not arrived after a hundred
# steps, and why. (The lecture's curve is flat around 17:00.)

# %%
if solved("soft_lookup") and solved("lookup_gradient"):
    shapes = (5, 3), (7, 3), (7, 2), (5, 2)
    *inputs, upstream = [torch.randn(*shape) for shape in shapes]
    query, keys, values = [x.requires_grad_() for x in inputs]
    output, _ = soft_lookup(query, keys, values, 0.5)
    output.backward(upstream)
    by_hand = lookup_gradient(query.detach(), keys.detach(), values.detach(), 0.5, upstream)
    apart = [(x.grad - ours).abs().max() for x, ours in zip(inputs, by_hand, strict=True)]
    print("furthest from autograd:", *(f"{distance:.6f}" for distance in apart))

    keys = clock(list(BICYCLES))
    values = torch.tensor([[float(n)] for n in BICYCLES.values()]) / 100     # in hundreds
    for start in (1.0, 5.0, 9.0, 13.0, 16.0, 17.0, 22.0):
        hour, seen = torch.tensor([start]), []
        for step in range(1, 1001):
            answer, _ = soft_lookup(clock(hour), keys, values, 0.1)          # (1, 1)
            upstream = 2 * (answer - 2.0)                            # of the squared error
            at_query, _, _ = lookup_gradient(clock(hour), keys, values, 0.1, upstream)
            sine, cosine = clock(hour)[0]
            along = math.pi / 12 * torch.stack([cosine, -sine])      # how the hand moves
            hour = hour - 0.1 * (at_query @ along)
            if step in (100, 1000):
                at, said = hour.item() % 24, 100 * answer.item()
                seen.append(f"after {step:>4} steps at {at:5.2f} h, answer {said:3.0f}")
        print(f"from {start:4.1f} h:", "   ".join(seen))

# %% [markdown]
# <details><summary>What to see</summary>
#
# After a hundred steps four starts have arrived, at three different hours: the table says 200 on each flank of the rush
# hours. From 1:00, 17:00 and 22:00 a hundred steps are not enough. Near 17:00 and 23:00 one key has nearly all the weight,
# so the answer is that key's value: $v_i - c$ is nearly 0 for this key, and the other keys have nearly no weight. The slope
# is tiny, but it is not zero. After a thousand steps all seven starts have arrived.
#
# In your backward pass you subtracted one number for each query, the product of its output and its upstream gradient.
# FlashAttention ([@dao2022]) uses the same number: with it, a tile of the backward pass needs no weights of other tiles.
# Lecture @cheap_attention has the forward pass.</details>

# %% [markdown]
# ## 4 · Debugging: leave one out
#
# A course-mate wants to choose a temperature by leave-one-out, for all keys at once and without a loop: each key is also a
# query, the others answer it, and *no key may look itself up*. The next cell is their code. It runs, its answers are of
# the right shape and of a plausible size, and **it has three mistakes**.
#
# *Test* it before you read it. What must come out if there are two keys? If all values are equal? At a very low
# temperature? Which value must not matter for row $i$? The code passes one of these four tests. Then write the function
# as it should be.

# %%
def suspicious(keys, values, temperature):
    scores = keys @ keys.mT * temperature                            # (n, n)
    weights = scores.softmax(dim=0)                                  # (n, n)
    weights = weights * (1 - torch.eye(len(keys)))                   # without oneself
    return weights @ values                                          # (n, d_v)


two_keys = torch.tensor([[1.0, 0.0], [0.6, 0.8]])
print("with two keys each must get the other's value, 10 and 20 exchanged:")
print(suspicious(two_keys, torch.tensor([[10.0], [20.0]]), temperature=0.1))

# %% exercise="leave_one_out"
def leave_one_out(keys: Tensor, values: Tensor, temperature: float) -> Tensor:
    """For each key what a soft lookup with it as the query answers, from all the others.

    keys: (n, d_k), at least two   values: (n, d_v)   temperature: above 0, may be small
    returns (n, d_v)
    """
    ...  # solution

# %% check="leave_one_out"
check("leave_one_out", leave_one_out)

# %% [markdown]
# **Use it.** Exercise 2's sixty counts, all at once and without its loop. Here is the error at each temperature, by
# your function and by the suspicious one, whose numbers also look plausible. *Guess:* which temperature would your
# course-mate have chosen?

# %%
if solved("leave_one_out"):
    hours, counted = counts(60, torch.Generator().manual_seed(4))    # (60,) each
    for name, function in {"yours": leave_one_out, "suspicious": suspicious}.items():
        off = {}
        for t in (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0):
            answers = function(clock(hours), counted[:, None], t)[:, 0]      # (60,)
            off[t] = (answers - counted).pow(2).mean().sqrt().item()
        said = ", ".join(f"{error:.0f} at {t}" for t, error in off.items())
        print(f"{name:>10}: off by {said}; best T = {min(off, key=off.get)}")

# %% [markdown]
# <details><summary>What to see</summary>
#
# Yours has a valley at 0.01 to 0.03. The suspicious one says 94 nearly everywhere and would choose the hottest
# temperature, 1.0, at which both rush hours disappear. No error message and no strange shape gives it away; only a
# test does. It passes the last of the four tests, because a row does not depend on its own value, but it fails the
# other three. At a very low temperature, for instance, the value of the nearest other key must come out.</details>

# %% [markdown]
# ## 5 · The additive score
#
# The score functions that follow work on a batch: the first axis counts tables, each with queries and keys of its own, and
# no query ever meets the keys of another table. Return the scores of each table, with a row for each query and a column
# for each key, and without a softmax.
#
# The oldest of the four applies a small network to each pair. It puts query and key side by side, query first. A hidden
# layer with tanh follows, and a vector $w$ turns the hidden units into one number:
#
# $$e_{ij} = \tanh\bigl([\,q_i;\ k_j\,]\, W\bigr) \cdot w$$
#
# Here all vectors are rows, so $W$ has a row for each input number and a column for each hidden unit. Every query has
# to meet every key, which makes a table of pairs with a hidden vector in each cell.

# %% exercise="additive_score"
def additive_score(query: Tensor, key: Tensor, W: Tensor, w: Tensor) -> Tensor:
    """How well each query matches each key, by a small network (Bahdanau et al. 2015).

    query: (batch, n_query, d_query)   key: (batch, n_key, d_key)
    W: (d_query + d_key, d_hidden)   w: (d_hidden,)
    returns (batch, n_query, n_key)
    """
    ...  # solution

# %% check="additive_score"
check("additive_score", additive_score)

# %% [markdown]
# **Use it.** Hours as plain numbers, where every dot product fails: the query is the number of one of eight keys, and
# that key should win. Your score learns it within seconds. (Each vector has a 1 beside its number, for a bias.) Then the cell
# draws the learned score of every key between −1 and 1, for three queries. *Sketch it first:* where is each curve highest?

# %%
if solved("additive_score"):
    draws = torch.Generator().manual_seed(0)
    W = nn.Parameter(torch.randn(4, 32, generator=draws))
    w = nn.Parameter(torch.randn(32, generator=draws) / 6)
    optimizer = torch.optim.Adam([W, w], lr=0.03)
    for step in range(601):
        numbers = 2 * torch.rand(64, 8, 1, generator=draws) - 1
        keys = torch.cat([numbers, torch.ones(64, 8, 1)], dim=-1)    # the first is right
        scores = additive_score(keys[:, :1], keys, W, w)[:, 0]       # (64, 8)
        loss = nn.functional.cross_entropy(scores, torch.zeros(64, dtype=torch.long))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 200 == 0:
            right = (scores.argmax(dim=-1) == 0).float().mean()
            print(f"step {step:>3}: the right key wins in {right:.0%} of 64 tables")
    products = keys[:, :1] @ keys.mT                                 # (64, 1, 8)
    right = (products[:, 0].argmax(dim=-1) == 0).float().mean()
    print(f"a dot product, on the last 64 tables: {right:.0%}")
    every = torch.linspace(-1, 1, 201)
    asked, ones = torch.tensor([-0.6, 0.1, 0.7]), torch.ones(201)
    with torch.no_grad():
        queries = torch.stack([asked, ones[:3]], dim=-1)             # (3, 2)
        places = torch.stack([every, ones], dim=-1)                  # (201, 2)
        hills = additive_score(queries[None], places[None], W, w)[0]             # (3, 201)
    lines = {f"query {query:+.1f}": hill for query, hill in zip(asked, hills, strict=True)}
    for name, hill in lines.items():
        print(f"{name}: the highest score is at {every[hill.argmax()]:+.2f}")
    viz.function_curves(lines, every, x_name="key", y_name="learned score")

# %% [markdown]
# <details><summary>What to see</summary>
#
# Each curve is a hill with its top near the query. No dot product can make a hill: as a function of the key it is a straight
# line, highest at one end. The hidden units with tanh are steps, and a step up followed by a step down is a hill.</details>

# %% [markdown]
# ## 6 · The scaled dot product
#
# The score that Transformers use is the dot product, divided by the root of the width of a key. Write it for a batch of
# tables again, and without the softmax:
#
# $$e_{ij} = \frac{q_i \cdot k_j}{\sqrt{d_k}}$$

# %% exercise="scaled_dot_score"
def scaled_dot_score(query: Tensor, key: Tensor) -> Tensor:
    """How well each query matches each key: dot products, scaled for the width of the vectors.

    query: (batch, n_query, d_k)   key: (batch, n_key, d_k)
    returns (batch, n_query, n_key)
    """
    ...  # solution

# %% check="scaled_dot_score"
check("scaled_dot_score", scaled_dot_score)

# %% [markdown]
# **Use it: build torch's attention, then change the divisor.** First your scores, a softmax and values must give what
# torch's own `scaled_dot_product_attention` gives. Then two learned layers make queries and keys, of width 16 and of width
# 512. Each query has to find one key of sixteen: its input is that key's input with the sign changed, and the loss sees
# only the average of the values. We train with your score, and with the same dot products divided by something else: by 1,
# by $d_k$, and by the root of the *number* of keys, which is a slip that this exercise's check looks for. *Guess* which of
# the eight recipes find the right key. *And on paper:* what must you divide by if the components of $q$ and $k$ have a
# standard deviation of $s$ in place of 1?

# %%
if solved("scaled_dot_score"):
    query, key, value = torch.randn(3, 2, 5, 16)                     # (2, 5, 16) each
    ours = scaled_dot_score(query, key).softmax(dim=-1) @ value
    theirs = nn.functional.scaled_dot_product_attention(query, key, value)
    print(f"from torch's attention: off by {(ours - theirs).abs().max():.6f}")

    def share_right(d_k, divisor, seed):
        draws = torch.Generator().manual_seed(seed)
        W_Q, W_K = torch.randn(2, 8, d_k, generator=draws) / math.sqrt(8)
        optimizer = torch.optim.Adam([W_Q.requires_grad_(), W_K.requires_grad_()], lr=0.01)
        right = []
        for _ in range(150):
            x = torch.randn(32, 16, 8, generator=draws)              # 32 tables; key 0 is right
            values = torch.randn(32, 16, generator=draws)
            scores = scaled_dot_score(-x[:, :1] @ W_Q, x @ W_K)[:, 0]        # (32, 16)
            scores = scores * math.sqrt(d_k) / divisor
            average = (scores.softmax(dim=-1) * values).sum(dim=-1)  # (32,)
            loss = ((average - values[:, 0]) ** 2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            right.append((scores.argmax(dim=-1) == 0).float().mean())
        return torch.stack(right[-25:]).mean()

    for d_k in (16, 512):
        by = {"√d_k": math.sqrt(d_k), "1": 1.0, "d_k": d_k, "√n_key": math.sqrt(16)}
        for name, divisor in by.items():
            shares = [share_right(d_k, divisor, seed) for seed in range(3)]
            found = " ".join(f"{share:4.0%}" for share in shares)
            print(f"d_k = {d_k:>3}, divided by {name:>6}: right key in {found}")

# %% [markdown]
# <details><summary>What to see</summary>
#
# Your function is the score of torch's attention. At width 16 the divisor hardly matters. Dividing by the root of the
# number of keys even gives the *same* numbers, because there are sixteen keys, so a test in which both numbers are 16
# cannot find this slip.
#
# At width 512 the plain dot product finds the right key in a third of the tables at most. Its scores are $\sqrt{512}
# \approx 23$ times as large as yours at the start, and the softmax is saturated. Dividing by $\sqrt{16} = 4$ is not enough
# either: at least one of the three runs stays far behind.
#
# Dividing by $d_k$ works as well as the root here. Its scores start near 0, so the weights start nearly equal, and training
# soon makes the scores larger. Scores that are too large at the start do more harm in this task than scores that are too
# small. One recipe, **μP** ([@yang2022]), divides by $d_k$ on purpose. Its reason is that after training a query and its
# key are no longer independent, so their product grows like $d_k$, as in question 5 of the lecture's *Check yourself*.
#
# On paper: each product $q_m k_m$ has variance $s^4$, so the dot product has the standard deviation $s^2 \sqrt{d_k}$. Divide
# by that.</details>

# %% [markdown]
# ## 7 · In your own words
#
# A course-mate has simplified the additive score: "tanh only makes it slow. I left it out,
# $e_{ij} = [\,q_i;\ k_j\,]\, W \cdot w$, and it is still a score that depends on the query and on the key."
#
# **(a)** Show what the softmax over the keys makes of these scores: which weights do two different queries get?
# **(b)** What have they built, then? Compare it with soft attention and with mean pooling. What is it that tanh prevents?
# **(c)** Does $q_i W \cdot k_j$, which has no tanh either, have the same defect? Why, or why not?
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
# 3. (c) No. $q_i W \cdot k_j$ is a *product* of query and key: linear in either, but not a sum of two parts. A change of query changes the scores of
#    different keys by different amounts. "No, because W is learned" earns nothing: the W of (a) is learned, too.
# ### END SOLUTION

# %% [markdown]
# ## Extension: the bilinear score
#
# This exercise is for extra credit; you lose nothing if you leave it out.
#
# If query and key come from different places, their components mean different things, and their widths may differ, too.
# A matrix between them translates:
#
# $$e_{ij} = q_i W \cdot k_j$$
#
# Vectors are rows, as everywhere in this course. (Papers write them as columns: $q_i^\top W k_j$.)

# %% exercise="bilinear_score"
def bilinear_score(query: Tensor, key: Tensor, W: Tensor) -> Tensor:
    """How well each query matches each key, through a matrix (Luong et al. 2015, "general").

    query: (batch, n_query, d_query)   key: (batch, n_key, d_key)   W: (d_query, d_key)
    returns (batch, n_query, n_key)
    """
    ...  # solution

# %% check="bilinear_score"
check("bilinear_score", bilinear_score)

# %% [markdown]
# **Use it.** In the lecture's two languages the queries are directions in other coordinates than their keys: each is
# its key, multiplied by an orthogonal matrix $R$ that your score is not told. It learns the dictionary. *Guess* what
# $W$ will have to do with $R$.

# %%
if solved("bilinear_score"):
    draws = torch.Generator().manual_seed(0)
    R, _ = torch.linalg.qr(torch.randn(4, 4, generator=draws))
    W = nn.Parameter(0.1 * torch.randn(4, 4, generator=draws))
    optimizer = torch.optim.Adam([W], lr=0.1)
    for step in range(301):
        keys = torch.randn(64, 8, 4, generator=draws)
        keys = nn.functional.normalize(keys, dim=-1)                 # the first is right
        scores = bilinear_score(keys[:, :1] @ R, keys, W)[:, 0]   # (64, 8)
        loss = nn.functional.cross_entropy(scores, torch.zeros(64, dtype=torch.long))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 100 == 0:
            right = (scores.argmax(dim=-1) == 0).float().mean()
            print(f"step {step:>3}: the right key wins in {right:.0%} of 64 tables")
    print("R @ W, up to a factor:")
    for row in (2 * R @ W / W.norm()).tolist():
        print("   ", *(f"{x:6.2f}" for x in row))

# %% [markdown]
# <details><summary>What to see</summary>
#
# `R @ W` is nearly the identity, up to a factor: your $W$ has learned the inverse of $R$. The factor is the temperature,
# which was learned with it.</details>

# %% [markdown]
# ## Extension: only the k best
#
# For extra credit, too.
#
# Between hard attention, where one key takes all, and soft attention, where each gets something, there is a lookup in
# which the $k$ best keys of a query get all the weight and the others exactly none. Compute scaled dot products, choose
# the $k$ largest, take the softmax over those alone, and average their values. Each query has its own $k$ best. (No two
# scores of a query will be equal.)

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
# **Use it.** The bridge once more, this time by the two nearest keys. Longer vectors act like a lower temperature, so
# here the clock's vectors are multiplied by 3. *Guess* what the answer at seven is made of.

# %%
if solved("top_k_lookup"):
    numbers = torch.tensor([float(n) for n in BICYCLES.values()])[:, None]
    for k in (1, 2, 6):
        answers = top_k_lookup(3 * clock([7, 15]), 3 * clock(list(BICYCLES)), numbers, k)[:, 0]
        print(f"k = {k}: {answers[0]:.0f} bicycles at seven, {answers[1]:.0f} at 15:00")

# %% [markdown]
# <details><summary>What to see</summary>
#
# $k = 1$ is hard attention. With $k = 2$ the answer at seven is a mixture of eight and five o'clock, and the other four keys
# change it by about 2 bicycles. Keys as far away as these can be dropped at almost no cost.</details>
