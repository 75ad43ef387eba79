# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3 (ipykernel)
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Lecture @getting_ready · Getting ready: tensors, shapes, autograd
#
# *About 45 minutes to read, and twice as long with every guess and both drills, so plan two sittings. A good place to
# stop is after the section "What a check tells you". You need Python, school calculus (the chain rule, exponentials,
# logarithms), mean and variance, and a first look at PyTorch tensors, but no knowledge of language models or
# attention.*
#
# Most of today's chatbots and translators rest on one network, the Transformer, and the Transformer rests on one
# calculation, attention: a weighted mean in which the network itself decides how much each item counts. This course
# explains both by building them, from the mean of a few ratings to a Transformer that translates German into English.
# You write the parts yourself, and the assignments name your mistake when they recognise it.
#
# The tools come first: tensors, gradients and the softmax. We begin with a bug that no error message reports, and we
# end with attention itself, in three lines of code.
#
# After this lecture you can
#
# * say the **shape** of every line's result, and which axis a reduction removes;
# * predict what **broadcasting** does, and catch the bug that it can hide;
# * explain what `backward()`, `.grad` and `no_grad` do (**autograd**), and write a training loop with a **module** and
#   an **optimiser**;
# * compute all dot products between the rows of two matrices, with `@` and with `einsum`;
# * write a **softmax** that does not overflow, and average with a **boolean mask**;
# * test for a wrong number in the right shape.
#
# ## A mean over padding: which product is the best?
#
# A shop wants to rank its products by their mean rating, from one star to five. The kettle has eight ratings, whereas
# the lamp has only one, from a customer who loved it. A table in PyTorch must be rectangular, so the short rows are
# filled up with zeros. This is called **padding**.

# %% tags=["hide-input"]
try:
    from attncourse import check, hint, viz

    from . import figures
except ModuleNotFoundError:
    raise ImportError(
        "This page needs the attncourse package: open it with `make lab` in the course's "
        "folder, or choose a kernel of the environment in which you installed the course."
    ) from None

import math

import torch
from torch import nn

from attncourse import attention, data

torch.set_num_threads(1)  # what is computed here is too small to be split between threads
assert callable(hint)  # the section on checks names it: a reader may call it here

# %% [raw] slide
# ## A mean over padding: which product is the best?
# A shop lists its products by their mean rating, one to five stars.
#
# | | ratings |
# |---|---|
# | kettle | 4 5 3 4 4 5 4 3 |
# | toaster | 2 3 1 2 3 |
# | umbrella | 1 2 |
# | lamp | 5 |
#
# Short rows are filled with zeros: **padding**.
#
# > **Guess first.** Which product does the shop's program rank first, and how many stars does it give the lamp?

# %% [markdown]
# The next cell pads the table and takes the mean of each row. *Guess:* which product does it rank first, and how many
# stars does it give the lamp?

# %%
ratings = {"kettle": [4, 5, 3, 4, 4, 5, 4, 3], "toaster": [2, 3, 1, 2, 3],
           "umbrella": [1, 2], "lamp": [5]}
table, _ = data.pad_batch(list(ratings.values()), pad=0)    # (4, 8)  the library pads
padded_means = table.float().mean(dim=1)             # (4, 8) → (4,)
figures.padded_batch(ratings, pad=0, means=padded_means.tolist(), counted=True, marked="lamp")
#| caption: Padding: rows of different lengths in one rectangle, filled with zeros, and the
#|   mean of each row, zeros included.

# %% tags=["hide-input"]
assert padded_means.argmax() == 0, "the kettle"
assert padded_means[-1] < 1, "the lamp has fewer stars than anybody can give"

# %% [raw] slide
# ## The lamp has less than one star
# {figure}
#
# **A wrong number in the right shape**: nothing crashed, there was no warning.

# %% [raw] slide
# ## How to use these pages
# - Shift-Enter runs a cell. Guess **before** you run it, in writing.
# - Lost? *Kernel → Restart Kernel and Run All Cells*.
# - Symbols: keep the page *Notation* open.
# - **A common mistake**: errors found in public slides.
# - `attncourse doctor` says what is missing on your computer.

# %% [markdown]
# **The kettle comes first, and the lamp gets less than one star**, on a scale that starts at one, although it was rated
# five out of five. Its sum is divided by 8, the width of the rectangle, so seven zeros count as ratings. Nothing
# crashed, and there was no warning. The mean even depends on the other products: without the kettle the rectangle would
# be five wide, and the lamp would get 5 / 5 = 1 star.
#
# Attention is also a mean, in which some words count more than others, and sentences rarely have the same length. So
# this bug, *a wrong number in the right shape*, can turn up anywhere in the course. Today you learn to find it, and the
# lamp gets its five stars.
#
# ## How to use these pages
#
# Shift-Enter runs a cell. Make each guess before you run the cell, in writing if you can, because an answer that
# surprised you is easy to remember. If you lose track of the variables, choose *Kernel → Restart Kernel and Run All
# Cells*. A line that begins with `figures.` or `viz.` only draws a picture or a drill. The symbols are explained in
# [Notation](../docs/notation.md). If something does not run, `attncourse doctor` in a terminal says how to fix it.
#
# Boxes named **A common mistake** show errors found in public slides, which you need not have seen (all are listed in
# [lecture @errata_lab](@errata_lab)).
#
# <details><summary>Going further: five decks of slides</summary>The course grew out of five public decks:
# <em>CSE 576, Language Modeling: Attention</em>;
# <em>Parametric Language Modeling: Transformers</em>; <em>Foundations of NLP, lecture 7</em>; <em>CSE5321, Introduction
# to NLP, lecture 11</em>; and <a href="https://cmu-l3.github.io/anlp-spring2025/"><em>CS11-711, Advanced
# NLP</em></a>.</details>
#
# ## Tensors, axes and shapes: say the shape
#
# To find a wrong number, you have to know what each number means. A **tensor** is an array of numbers. Its **shape** is
# a tuple with the lengths of its **axes** (also called dimensions): (4, 8) for the padded ratings. In this course each
# axis keeps one meaning, and three axes appear again and again:
#
# * **batch** says which sentence. Sentences in a batch must not influence each other.
# * **n** says which position in the sentence. Where two lengths occur, they are called `n_source` and `n_target`.
# * **d** says which feature. A word enters a network as a vector of $d$ numbers.
#
# The type of a tensor's numbers is its **dtype**. The ratings were integers (`int64`), which torch refuses to average,
# so `.float()` turned them into `float32`.
#
# Here are two sentences of three words with four features. `view` cuts the numbers 0 to 23 into this shape:

# %%
x = torch.arange(24.0).view(2, 3, 4)                 # (2, 3, 4)  (batch, n, d)
print(x[1, 2])                                       # (4,)  sentence 1, position 2

# %% [raw] slide
# ## Tensors, axes and shapes: say the shape
# A **tensor** is an array of numbers with a **shape**; each entry belongs to one **axis**.
#
# | axis | which … |
# |---|---|
# | **batch** | sentence: sentences do not influence each other |
# | **n** | position in the sentence |
# | **d** | feature of the vector |
#
# {code}

# %% [markdown]
# The comment at the end of a line gives the shape of its result. Make this a habit: a shape that surprises you is a bug
# that you have found.
#
# A **reduction**, such as `sum`, `mean` or `amax` (the largest value), removes an axis. **The argument `dim` names the
# axis that is removed.** In the middle row of the figure, `dim=1` averages the three dark blue numbers into the dark
# orange one, and n is gone:

# %%
figures.batch_axes(x)
#| caption: A tensor of shape (batch, n, d), and its mean over each of its three axes.
#| label: batch-axes

# %% [raw] slide
# ## A reduction removes an axis: dim names the one that goes
# {figure}

# %% [raw] slide
# ## Guess four shapes
# `x` is (batch, n, d) = (2, 3, 4).
#
# > **Guess first.**
# > 1. `x[:, 0]`
# > 2. `x[:, None]`
# > 3. `x.mT`
# > 4. `x.mean(dim=-1)`

# %% [markdown]
# *Guess four shapes before you run the cell.* `x[:, 0]` takes the first position of every sentence. `x[:, None]`
# inserts a new axis of length one where `None` stands. `x.mT` swaps the last two axes, and a negative `dim` counts the
# axes from the end.

# %%
print("x[:, 0]        ", tuple(x[:, 0].shape))
print("x[:, None]     ", tuple(x[:, None].shape))
print("x.mT           ", tuple(x.mT.shape))
print("x.mean(dim=-1) ", tuple(x.mean(dim=-1).shape))

# %% [raw] slide
# ## Four shapes
# {print}
#
# `dim=-1` is the features, with or without a batch in front.

# %% [markdown]
# `dim=-1` is the feature axis, with or without a batch axis in front, so we count axes from the end where we can.
#
# The next step is easy to get wrong. We subtract from each word the mean of its four features.

# %%
try:
    x - x.mean(dim=-1)                               # (2, 3, 4) - (2, 3)
except RuntimeError as error:
    print(error)
centred = x - x.mean(dim=-1, keepdim=True)           # (2, 3, 4) - (2, 3, 1)
print(centred[0, 0])

# %% [raw] slide
# ## keepdim leaves the axis in its place
# {code}
# . . .
# {print}

# %% [raw] slide
# ## Broadcasting: an axis of length one stretches
# 1. Write the shapes one below the other, aligned on the **right**; pad with 1s on the left.
# 2. In each column the numbers are equal, or one of them is 1, which stretches.
# 3. Anything else is an error.
#
# ```
# x           (2, 3, 4)            x       (2, 3, 4)
# mean        (2, 3, 1)            mean       (2, 3)   →  4 against 3: error
# x - mean    (2, 3, 4)
# ```

# %% [markdown]
# The mean removed the last axis, so torch tried to pair the three positions with the four features. With `keepdim=True`
# the axis stays in its place, with length one, and the one mean is used for all four features.
#
# We were lucky to get an error. With one sentence of four words, (4, 4), the same line would have run: (4, 4) − (4,)
# subtracts the mean of word $j$ from *feature* $j$ of every word.
#
# ## Broadcasting: an axis of length one stretches
#
# When two tensors of different shapes meet in a sum, a product or a comparison, torch **broadcasts** them by this rule:
#
# 1. Write the two shapes one below the other, aligned on the *right*. Pad the shorter shape with 1s on the left.
# 2. In each column the two numbers must be equal, or one of them must be 1. A 1 is stretched to the other number.
# 3. Anything else is an error.
#
# ```
#   x           (2, 3, 4)            x       (2, 3, 4)
#   mean        (2, 3, 1)            mean       (2, 3)   →  4 against 3: error
#   x - mean    (2, 3, 4)
# ```
#
# Choose both shapes in the figure below, and predict each result before you look. Start with (3, 1) and (4,), then find
# a pair that does not fit, and save (3,) minus (3, 1) for last. The dotted cells are copies that exist only in the
# picture: torch never makes them in memory.

# %%
shapes = ["(3,)", "(4,)", "(1, 4)", "(3, 1)", "(3, 4)"]
pairs = [{"a": "(3, 1)", "b": "(4,)"}, {"a": "(3,)", "b": "(4,)"}, {"a": "(3,)", "b": "(3, 1)"}]
viz.explore(figures.broadcasting, a=shapes, b=shapes, start=pairs[0], still=pairs)
#| caption: Broadcasting: choose two shapes and see what is stretched.
#| label: broadcasting

# %% [raw] slide
# ## Broadcasting: choose both shapes
# {figure}

# %% [raw] slide
# ## Three numbers minus three numbers
# > **Guess first.** What is the shape of (3,) minus (3, 1)?
#
# . . .
# (3, 3): nine numbers, without a warning. (3, 1) is a **column vector**.
# . . .
# A column minus a row is a table of all differences. It is useful for masks, and a bug where you did not want it.

# %% [markdown]
# **Three numbers minus three numbers gave nine, without a warning**, because one of the tensors was a **column
# vector**, (3, 1). A row and a column together give the table of all differences. Often we want this table, for
# instance when a mask compares a column of lengths with a row of positions. When we do not, nothing warns us.
#
# Broadcasting is not the only way to a new shape. `x.mT` and `x.reshape(2, 4, 3)` have the same shape. *Guess:* do they
# hold the same numbers in the same places?

# %%
print("mT      ", x.mT[0, :2].tolist())                       # the first two rows of each
print("reshape ", x.reshape(2, 4, 3)[0, :2].tolist())

# %% tags=["hide-input"]
assert torch.tensor([[10], [20], [30]]).expand(3, 4).stride() == (1, 0)
assert (x.stride(), x.mT.stride()) == ((12, 4, 1), (12, 1, 4))
same_memory = [each.untyped_storage().data_ptr() == x.untyped_storage().data_ptr()
               for each in (x.mT, x[:, 0], x.view(6, 4), x.reshape(6, 4),
                            x[x > 3], x.clone(), x.mT.reshape(2, 12))]
assert same_memory == [True] * 4 + [False] * 3

# %% [raw] slide
# ## A reshape is not a transpose
# `x.mT` and `x.reshape(2, 4, 3)` have the same shape, (2, 4, 3). The first two rows of each:
#
# {print}

# %% [markdown]
# **A reshape is not a transpose.** The first row of `x.mT` is the first feature of all three positions, (0, 4, 8).
# `reshape` keeps the numbers in their old order and cuts them into new rows, so its first row, (0, 1, 2), is three
# features of one position. If you confuse the two, you get, again, a wrong number in the right shape. In [lecture
# @many_heads](@many_heads) this can happen where attention is split into heads.
#
# <details><summary>Going further: strides, and why stretching costs no memory</summary>A tensor has
# <strong>strides</strong>: for each axis, the number of places in memory from one index to the next. A column of shape
# (3, 1) that is stretched to (3, 4) has the strides (1, 0), so along the stretched axis torch reads the same number
# again and again. <code>x</code> has the strides (12, 4, 1), and <code>x.mT</code> has (12, 1, 4): it swaps two strides
# and moves no number. <code>view</code> does what <code>reshape</code> does but refuses to copy, so
# <code>x.mT.view(2, 12)</code> raises an error.</details>
#
# <details><summary>Going further: views and copies</summary><code>x.mT</code>, <code>x[:, 0]</code> and the result of
# <code>view</code> are <strong>views</strong>: they share their numbers in memory with <code>x</code>. After
# <code>y = x[:, 0]</code> the line <code>y += 1</code> changes <code>x</code>, too. A mask as an index, <code>x[mask]</code>, makes a copy, and so does <code>x.clone()</code>. <code>reshape</code> returns a view where it can, and a
# copy elsewhere, so do not write into its result.</details>
#
# Now practise on six lines of code. Say the shape aloud before you choose, because only your first answer counts. With
# fewer than five right, read the last two sections again and press *start again*.

# %%
viz.shape_drill(figures.SAY_THE_SHAPE[:6], told=False)

# %% [markdown]
# <details><summary>Answers and reasons, in case no buttons are shown above</summary><ol><li><code>(5, 7)</code>. The
# argument dim names the axis that goes, the last but one, of length 2.</li>
# <li><code>(5, 2, 7)</code>. The shape (5, 1, 7) stands below (5, 2, 7), and its 1 stretches, so x keeps its
# shape.</li>
# <li>An error. The mean is (6,). Aligned on the right, 6 stands below 4. keepdim=True would fit.</li>
# <li><code>(2, 6, 3)</code>. Padded on the left, a is (1, 6, 1). It meets (2, 1, 3), and each 1 stretches.</li>
# <li><code>(4, 4, 3)</code>. The shapes (4, 1, 3) and (1, 4, 3) give every row minus every row.</li>
# <li><code>(5, 2)</code>. First x.mT is (5, 7, 2). A number in an index takes its axis away, and a colon keeps its
# own.</li></ol></details>

# %% [raw] slide
# ## Say the shape: a drill
# {figure}

# %% [markdown]
# > **Check yourself.** `table` is (batch, n_target, n_source). `positions`, (n_source,), counts 0, 1, 2, …, and
# > `lengths`, (batch,), has the length of each source sentence. You want `positions < lengths` in a shape that
# > broadcasts against `table`. Which of the two needs new axes, and what goes wrong if `lengths` is only (batch, 1)?
# > <details><summary>Answer</summary>The positions can stay (n_source,), but the lengths need two new axes, (batch, 1,
# > 1). The result is (batch, 1, n_source), and its 1 stretches over the targets. With lengths of shape (batch, 1) the
# > result would be (batch, n_source), and against (batch, n_target, n_source) its batch axis stands below n_target. As
# > a rule that is an error. But if batch and n_target happen to be equal, it is a wrong number in the right
# > shape.</details>
#
# ## Autograd: gradients from a recorded computation
#
# Shapes say what a line computes. But the models of this course also *learn*, and for that we need slopes.
#
# To **train** a model, we measure how wrong it is by a single number, the **loss**. Then we change the model's own
# numbers, its **parameters**, so that the loss falls. The slope of the loss with respect to one parameter is a
# **partial derivative**, and all these slopes together are the **gradient**. A small enough step against the gradient
# lowers the loss: each parameter loses its slope times a small number, the **learning rate**.
#
# Take the loss $(w - 1)^2 + 2w$ at $w = 4$. In the **forward pass** torch computes the loss and records each operation
# in a **computational graph**. In the **backward pass** it walks along the graph from the loss to the parameter. By the
# chain rule, it multiplies the slope that arrives at an operation by the operation's own slope, which for the square is
# $2(w - 1) = 6$. Where two paths meet, it adds their slopes:

# %% [raw] slide
# ## Autograd: gradients from a recorded computation
# - **Loss**: one number that says how wrong a model is.
# - **Parameters**: the numbers that we change so that the loss falls.
# - **Gradient**: the slope of the loss with respect to each parameter.
# - **Learning rate**: how far a step against the gradient goes.
# - **Forward pass**: torch computes the loss and records each operation, the **computational graph**.
# - **Backward pass**: the chain rule along the graph, from the loss to all parameters: **backpropagation**.

# %%
figures.record(w=4.0)
#| caption: A computational graph: values that autograd records in the forward pass (blue), and
#|   slopes of the loss that it computes in the backward pass (orange).
#| label: autograd

# %% [raw] slide
# ## The computational graph of (w − 1)² + 2w at w = 4
# {figure}
#
# > **Guess first.** What does a second `backward()` leave in `.grad`, and what is `w` after a step of 0.1 against it?

# %% [markdown]
# Read the orange arrows from right to left. The slope 6 arrives at $w$ through the square, and the slope 2 through
# $2w$. **The gradient is their sum, 8.** PyTorch's engine for this is called **autograd**. The method is known as
# **backpropagation** (in general, **reverse-mode automatic differentiation**). One backward pass gives the slopes of
# *all* parameters. Nudging them one by one would take a forward pass for each, and a Transformer has millions.
#
# <details><summary>Going further: the cost, and a nudge as a test</summary>A forward and a backward pass together cost
# only a few times as much as the forward pass alone, however many parameters there are. A nudge is still a good test of
# one slope: at $w = 4.001$ the loss is 17.008001, so the slope is about 0.008001 / 0.001 ≈ 8.</details>
#
# Now in torch. *Guess:* what does a second `backward()` leave in `.grad`, and what is `w` after a step against it with
# learning rate 0.1?

# %%
w = torch.tensor(4.0, requires_grad=True)            # torch records what is computed with w
loss = (w - 1) ** 2 + 2 * w
loss.backward()                                      # walks the graph from the loss to w
print("gradient:", w.grad.item())
loss = (w - 1) ** 2 + 2 * w                          # a new graph: the old one is used up
loss.backward()
print("after a second backward:", w.grad.item())
with torch.no_grad():                                # inside this block nothing is recorded
    w -= 0.1 * w.grad                                # so w may be changed
w.grad = None
print("w:", round(w.item(), 2))

# %% tags=["hide-input"]
assert math.isclose(w.item(), 4 - 0.1 * 16, rel_tol=1e-6)
b = torch.zeros(4, requires_grad=True)
(x + b).sum().backward()
assert b.grad.tolist() == [6, 6, 6, 6]

# %% [raw] slide
# ## What a second backward() and a step leave
# {code}
# . . .
# {print}

# %% [raw] slide
# ## Four rules of autograd
# 1. `backward()` **adds** to `.grad`: set it to `None` before the next `backward()`.
# 2. Change parameters under `torch.no_grad()`.
# 3. `.item()`, `.tolist()` and `.detach()` cut the graph: no gradient flows back through them.
# 4. A gradient has the shape of its parameter; the gradients from all its uses are added up.

# %% [markdown]
# Four rules to remember:
#
# * **`backward()` adds to `.grad`.** The second one left 8 + 8 = 16, so the step went to 2.4 instead of 3.2. Set
#   `.grad` to `None` before the next `backward()`.
# * **Change parameters inside `torch.no_grad()`.** Outside it torch refuses `w -= …`, and `w = w - …` makes a new
#   tensor, whose `.grad` stays empty.
# * **`.item()`, `.tolist()` and `.detach()` cut the graph.** No gradient flows back through any of them.
# * **A gradient has the shape of its parameter**, and the gradients from all uses of a number are added up.
#
# <details><summary>Going further: the gradient of what was stretched</summary>If <code>b</code> has the shape (4,),
# <code>x + b</code> uses each of its numbers six times, once for each word. So <code>(x + b).sum()</code> gives each of
# them the gradient 6.</details>
#
# <details><summary>Going further: why gradients are added, not replaced</summary>A number that is used twice has two
# slopes, and the chain rule adds them. So <code>backward()</code> must add within one graph, and torch adds across
# graphs, too. That is useful if a batch of 64 rows does not fit into memory: call <code>backward()</code> for four
# batches of 16, with each loss divided by 4, and then take one step. The gradient is that of all 64. This is called
# <strong>gradient accumulation</strong>.</details>
#
# ## A silent broadcasting bug in a training loop
#
# In [@fig:broadcasting], three numbers minus three numbers gave nine. What if nobody notices this in a training loop?
#
# We train a very small model, `nn.Linear(3, 1)` (three weights and a bias), to predict a product's rating from three
# measured features. The model returns a column, (200, 1). The first run subtracts the ratings, (200,), from this
# column. The second run first turns the predictions into (200,), with `prediction[:, 0]`. Nothing else differs.
#
# *Guess:* will the loss of the first run fall to zero, fall to somewhere else, or stay?

# %% [raw] slide
# ## A silent broadcasting bug
# `nn.Linear(3, 1)` predicts ratings: a column, (200, 1). The ratings are (200,).
#
# | | shapes subtracted |
# |---|---|
# | first run | (200, 1) and (200,) |
# | second run | (200,) and (200,) |
#
# > **Guess first.** Will the first loss fall? To zero, to somewhere else, or will it stay?

# %%
torch.manual_seed(0)
features = torch.randn(200, 3)                                       # (200, 3)
noise = 0.05 * torch.randn(200)
# @ is a matrix product, explained below
rating = 3 + features @ torch.tensor([0.4, -0.25, 0.15]) + noise     # (200,)


def train(as_column, steps=150):
    torch.manual_seed(1)
    model, losses = nn.Linear(3, 1), []
    for _ in range(steps):
        prediction = model(features)                                 # (200, 1)
        if not as_column:
            prediction = prediction[:, 0]                            # (200,)
        loss = ((prediction - rating) ** 2).mean()
        losses.append(loss.item())
        loss.backward()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter -= 0.05 * parameter.grad                   # a step downhill
                parameter.grad = None
    return losses, prediction.detach().flatten()                     # a list, (200,)

# %%
wrong, right = "wrong: (200, 1) − (200,)", "right: (200,) − (200,)"
losses, predicted = {}, {}
for name, as_column in {wrong: True, right: False}.items():
    losses[name], predicted[name] = train(as_column)
figures.falling(losses, "mean squared error")
#| caption: Training loss (logarithmic axis) with predictions of the wrong shape, a column, and
#|   of the right shape.

# %% [raw] slide
# ## The loss falls anyway
# {figure}

# %% [markdown]
# **Both losses fall steeply**, and the orange one then settles as a healthy loss does. If you saw only that curve, you
# might tune the learning rate, ask for more data, and report that the task is hard. Look at the predictions instead.

# %%
clouds = {name: (rating, prediction) for name, prediction in predicted.items()}
figures.scatter_panels(clouds, "true rating", "predicted rating", diagonal="prediction = truth")
#| caption: Predicted against true ratings, after training with each of the two shapes.

# %% [raw] slide
# ## What the model says
# {figure}
#
# The same number for every product: the mean of all ratings.

# %% tags=["hide-input"]
assert losses[wrong][-1] < 0.25 * losses[wrong][0], "the wrong loss falls as if it learned"
assert predicted[wrong].std() < 0.01 * rating.std(), "and it says the same for every product"
assert math.isclose(predicted[wrong].mean(), rating.mean(), abs_tol=1e-3), "the mean of all"
assert losses[right][-1] < 0.05 * losses[wrong][-1]

# %% [raw] slide
# ## A falling loss is no proof
# The difference was (200, 200), every prediction against **every** rating:
#
# $$\frac1{N^2} \sum_{i,j} (p_i - r_j)^2 = \operatorname{Var}(p) + \operatorname{Var}(r) + (\bar p - \bar r)^2$$
#
# . . .
# This loss *punishes* a model that tells products apart. One line finds it:
#
# ```python
# assert prediction.shape == rating.shape
# ```

# %% [markdown]
# **The first model predicts the same number for every product**, the mean of all ratings. Its difference had the shape
# (200, 200): every prediction minus *every* rating. So the loss pulls each prediction towards *all* 200 ratings at
# once. The one number with the smallest mean squared distance to all of them is their mean, and the loss that remains
# is the variance of the ratings. That looks like an honest result:

# %%
print(f"last loss, wrong shapes: {losses[wrong][-1]:.4f}")
print(f"variance of the ratings: {rating.var(correction=0):.4f}")

# %% tags=["hide-input"]
assert math.isclose(losses[wrong][-1], rating.var(correction=0), rel_tol=1e-2)

# %% [markdown]
# **A falling loss is no proof.** Here one line would have caught the bug, `assert prediction.shape == rating.shape`, so
# write it wherever broadcasting could hide a bug. (torch's own `mse_loss` at least warns.)
#
# <details><summary>Going further: where the loss ends</summary>
#
# Let $p_i$ be the predictions and $r_j$ the ratings, $N$ of each, with a bar for a mean. The mean of the squares splits
# into three terms:
#
# $$\frac1{N^2} \sum_{i,j} (p_i - r_j)^2 = \operatorname{Var}(p) + \operatorname{Var}(r) + (\bar p - \bar r)^2$$
#
# The first term <em>punishes</em> a model that tells products apart. The first and the third are zero if every
# prediction is the mean rating, and the second does not depend on the model. So the loss ends at the variance of the
# ratings.
#
# </details>
#
# ## Modules and optimisers: the training loop
#
# The loop above changed every parameter by hand. PyTorch has two kinds of objects that take over this work.
#
# A **module** holds its parameters and computes something when it is called. `nn.Linear(3, 1)` holds a weight, which
# torch stores as (out, in), and a bias, and it computes $x W^\top + b$. Your own models will be classes like the one
# below, in which `__init__` creates the parts and `forward` says what is computed.
#
# An **optimiser** changes the parameters: `zero_grad()` clears the old gradients, and `step()` goes downhill. Ours is
# **SGD**, stochastic gradient descent. It is *stochastic* because each step sees a random **batch**, here of 20 rows.
# *Guess* the sign of the bias's gradient, if the bias starts near 0 and the ratings lie around 3.

# %%
class Rater(nn.Module):
    def __init__(self, d):
        super().__init__()                                           # before any part is made
        self.linear = nn.Linear(d, 1)                                # a part: it has parameters

    def forward(self, features):                                     # (batch, d)
        return self.linear(features)[:, 0]                           # (batch,)


torch.manual_seed(1)
model = Rater(3)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)             # all that can be learned
batch = torch.randperm(200)[:20]                                     # (20,)  which rows
prediction = model(features[batch])                                  # (20,)
loss = ((prediction - rating[batch]) ** 2).mean()
loss.backward()
bias = model.linear.bias
before = bias.item()
optimizer.step()
print({name: tuple(p.shape) for name, p in model.named_parameters()})
print(f"gradient of the bias {bias.grad.item():.3f},",
      f"the step changes it by {bias.item() - before:.3f}")

# %% tags=["hide-input"]
assert math.isclose(bias.item() - before, -0.05 * bias.grad.item(), rel_tol=1e-4)
assert bias.grad < 0 and prediction.shape == rating[batch].shape

# %% [raw] slide
# ## Modules and optimisers: one training step
# - **Module**: holds its parameters, and is called like a function.
# - **Optimiser**: takes the steps.
#
# > **Guess first.** The bias starts near 0, and the ratings lie around 3. What sign does the bias's gradient have?
#
# . . .
# {print}

# %% [markdown]
# **The gradient is negative**, because a larger bias lowers the loss, so the step against it raises the bias.
#
# A **training loop** repeats such a step, each time with a new batch. This is its standard form. Keep it as a pattern:

# %%
for _ in range(300):
    batch = torch.randperm(200)[:20]                                 # (20,)  a new batch's rows
    optimizer.zero_grad()                                            # clear the old gradients
    prediction = model(features[batch])                              # (20,)  forward pass
    loss = ((prediction - rating[batch]) ** 2).mean()                # one number
    loss.backward()                                                  # backward: new gradients
    optimizer.step()                                                 # a step downhill
with torch.no_grad():                                                # a test needs no graph
    error = ((model(features) - rating) ** 2).mean()
print(f"mean squared error {error:.4f}, variance of the noise {noise.var():.4f}")

# %% tags=["hide-input"]
assert 0.5 * noise.var() < error < 1.5 * noise.var(), "the error that is left is the noise"
whole = torch.autograd.grad(((model(features[:64]) - rating[:64]) ** 2).mean(), bias)[0]
optimizer.zero_grad()
for rows_of in torch.arange(64).split(16):  # gradient accumulation, as the folded text says
    (((model(features[rows_of]) - rating[rows_of]) ** 2).mean() / 4).backward()
assert torch.allclose(bias.grad, whole, atol=1e-5)

# %% [raw] slide
# ## The training loop: zero_grad, forward, loss, backward, step
# {code}
# . . .
# {print}

# %% [markdown]
# The error ends close to the variance of the noise that we added to the ratings. No model can predict noise, so there
# is nothing left to learn.
#
# <details><summary>Going further: what a longer program adds</summary>Usually a <code>DataLoader</code> shuffles the
# rows and deals out the batches. Once through all rows is an <strong>epoch</strong>. A program also calls
# <code>model.train()</code> before training and <code>model.eval()</code> before a test, because some modules, such as
# dropout, work differently in the two modes. <code>eval()</code> does not stop the recording:
# <code>torch.no_grad()</code> does.</details>
#
# ## What a check tells you
#
# Each exercise of the assignment has a check under it. Here is what the check of exercise 5 says to a learner who makes
# the lamp's mistake. The exercise asks for the mean over the real positions of `values`, (batch, n, d), and gives a
# `mask`, (batch, n), which is True where a position is real. The learner wrote this:

# %%
def masked_mean(values, mask):
    return values.mean(dim=1)                                        # (batch, d)


check("masked_mean", masked_mean)

# %% [raw] slide
# ## What a check tells you
# - Several **aspects**, each with its own points: one slip does not cost you all of them.
# - ✗ says what was found, what was expected, and where.
# - A known mistake is named below the list.
# - Your points come from a second check, with other numbers and sizes.
# - Stuck? `hint("…", 1)`. Hints are not counted.
#
# **Now you:** a@getting_ready, exercise 1

# %% [markdown]
# **A check tests several aspects of your answer, each with its own points**, so one slip does not cost you all of them.
# A ✗ says what was found, what was expected, and where. The first one means: rows 0 and 4 are right, and each other
# row is right but for a factor of its own. If your numbers match those of a known mistake, the card names the mistake
# below the list. Here it is *pads kept*, the lamp's mistake.
#
# Your points come from a second check, with other numbers and sizes. If you are stuck, ask for the hint that the card
# names, for example `hint("masked_mean", 1)`. Hints are not counted.
#
# **Now you:** [a00](@getting_ready/assignment), exercise 1: a loop with two bugs, and which learning rates work. Then
# stop for today, if you like.
#
# ## Dot products of all pairs: matrix multiplication and einsum
#
# A loss compares each prediction with *its* target. Attention asks a larger question: how well does *each* item of one
# set match *each* item of another?
#
# Two customers want something and four products offer something. Each of them is a vector with the features *light*,
# *heat* and *dryness*. The **dot product** scores how well they match: multiply feature by feature, and add up. *Guess*
# from the numbers below: which product will each customer like best, and with what score?

# %%
#                          light heat dry
customers = torch.tensor([[2.0, 0.5, 0.0],           # wants to read at night
                          [0.0, 1.0, 1.5]])          # came in from the rain
products = torch.tensor([[0.0, 3.0, 0.0],            # kettle
                         [0.0, 2.0, 0.5],            # toaster
                         [0.0, 0.0, 3.0],            # umbrella
                         [3.0, 0.5, 0.0]])           # lamp
scores = torch.zeros(2, 4)                           # (2, 3) and (4, 3) → (2, 4)
for c in range(2):
    for p in range(4):
        scores[c, p] = (customers[c] * products[p]).sum()
rows, wanted = ["reader", "from the rain"], ["light", "heat", "dry"]
for c, who in enumerate(rows):
    print(f"{who:>14}:", dict(zip(ratings, scores[c].tolist(), strict=True)))

# %% [raw] slide
# ## All dot products: matrix multiplication and einsum
# **Dot product**: multiply feature by feature, and add up. How well does each customer match each product?
#
# | | |
# |---|---|
# | loop | one pair at a time |
# | `customers @ products.mT` | (2, 3) @ (3, 4) = (2, 4): last axis with last but one |
# | `einsum("cf,pf->cp", …)` | a letter missing after the arrow is summed over |
#
# All three compute the same; the checks accept each of them.

# %% [markdown]
# **The reader likes the lamp best, and the customer from the rain likes the umbrella.** The loop computes one dot
# product at a time. **Matrix multiplication**, written `@` in Python, computes them all at once (the code is then
# **vectorised**). It pairs the *last* axis of the left factor with the *last but one* of the right, and sums over the
# pair. Since both our tables have the features last, we transpose the products. Each row of the left matrix meets each
# column of the right one:

# %%
figures.row_times_column(customers, products, rows, list(ratings), wanted, row=1, column=2)
#| caption: Matrix multiplication. The dot product of a row on the left and a column at the top
#|   stands where the two cross.
#| label: matmul

# %% [raw] slide
# ## Matrix multiplication: row times column
# {figure}

# %% [markdown]
# **Einsum** (Einstein summation) needs no transpose. Each axis gets a letter, and an axis whose letter is missing after
# the arrow, here f for the features, is summed over.

# %%
by_matmul = customers @ products.mT                            # (2, 3) @ (3, 4) = (2, 4)
by_einsum = torch.einsum("cf,pf->cp", customers, products)     # customer, feature, product
assert torch.equal(scores, by_matmul) and torch.equal(scores, by_einsum)

# %% [markdown] erratum="a star for a matrix product"
# The loop, `@` and `einsum` give the same numbers, and the course uses whichever is clearest.
#
# > **A common mistake: a star for a matrix product.** The last step of attention is sometimes printed as
# > `softmax(…) * XV`. In Python `*` is **elementwise**: it multiplies entry by entry, with broadcasting. Often the
# > shapes do not fit, and you get an error. But where everything is square you get none: the result has the right shape
# > and the wrong numbers.
#
# That is why in most examples of this course all sizes differ: with 2, 3 and 4, such a slip usually crashes.
#
# > **Check yourself.** `q` is (batch, n_target, d), and `k` is (batch, n_source, d). Compute all scores, once with `@`
# > and once with `einsum`.
# > <details><summary>Answer</summary><code>q @ k.mT</code>, because <code>@</code> and <code>.mT</code> leave the
# > leading axes alone, and <code>torch.einsum("btd,bsd->bts", q, k)</code>. Both results are (batch, n_target,
# > n_source). <code>k.T</code> would transpose the batch axis as well: <code>.T</code> is for matrices only.</details>
#
# Here are five more lines, some with `@` and `einsum`.

# %% [raw] slide
# ## A common mistake: a star for a matrix product
# `softmax(…) * XV` is **elementwise**: it multiplies entry by entry.
#
# - Shapes that do not fit: an error.
# - Everything square: no error, the right shape, the wrong numbers.
# . . .
# In most examples of this course all sizes differ: with 2, 3 and 4 such a slip usually crashes.

# %%
viz.shape_drill(figures.SAY_THE_SHAPE[6:], told=False)

# %% [markdown]
# <details><summary>Answers and reasons, in case no buttons are shown above</summary><ol><li><code>(2, 3)</code>. The
# letter n is missing after the arrow, so n is summed over, in each of 2 sentences.</li>
# <li><code>(3, 2)</code>. Each of the 3 rows of weights averages 5 values.</li>
# <li>An error. The last axis of q, 4, meets the last but one of k, 5. k.mT is needed.</li>
# <li>An error. Aligned on the right, 3 stands below 4. A last axis of length 1 would fit.</li>
# <li><code>(2, 3, 5)</code>. The bias is (2, 1, 5), so the bias of a sentence serves all rows of the
# sentence.</li></ol></details>
#
# **Now you:** [a00](@getting_ready/assignment), exercise 2: compute all *distances* at once.

# %% [raw] slide
# ## Say the shape: with @ and einsum
# {figure}
#
# **Now you:** a@getting_ready, exercise 2

# %% [raw] slide
# ## Softmax: from scores to weights
# $$\operatorname{softmax}(e)_i = \frac{\exp(e_i)}{\sum_j \exp(e_j)}$$
#
# **Weights**: numbers from 0 to 1 that sum to one. Only differences of scores matter.
#
# > **Guess first.** Three scores, 0, 2 and 5. What are the weights if 100 is added to each? And −110?

# %% [markdown]
# ## Softmax: from scores to weights
#
# Scores can be any numbers. To average with them, we need **weights**: numbers from 0 to 1 that sum to one, like
# probabilities. The **softmax** makes them: take the exponential of each score $e_i$, and divide by the sum of all
# exponentials:
#
# $$\operatorname{softmax}(e)_i = \frac{\exp(e_i)}{\sum_j \exp(e_j)}$$
#
# Why the exponential? It turns a *difference* of scores into a *ratio* of weights, since
# $\exp(a) / \exp(b) = \exp(a - b)$. One point more means $\exp(1) \approx 2.7$ times the weight, wherever the scores
# lie.

# %%
def naive_softmax(scores):                                               # (n,)  one row
    exponentials = scores.exp()                                          # (n,)
    return exponentials / exponentials.sum()                             # (n,)


interest = torch.stack([naive_softmax(row) for row in scores])           # (2, 4)
viz.draw_weights(interest, rows=rows, columns=list(ratings), title="weights")
#| caption: The softmax of each customer's scores: one row for each customer, with a sum of one.

# %% [markdown]
# **Each customer has one unit of interest and distributes it over the products.** The largest score gets the largest
# weight. Mathematically no weight is exactly zero: the umbrella's 0.00 is 0.002, rounded.
#
# Since only differences of scores matter, the same number added to all scores of a row should not change the weights.
# *Guess* the weights of the scores 0, 2 and 5 when 100 is added to each, and when 110 is subtracted.

# %%
row = torch.tensor([0.0, 2.0, 5.0])
for shift in (0.0, 100.0, -110.0):
    print(f"{shift:>6}:", [round(weight, 3) for weight in naive_softmax(row + shift).tolist()])

# %% tags=["hide-input"]
assert torch.tensor([88.7, 88.8]).exp().isinf().tolist() == [False, True]
assert round(math.log(torch.finfo(torch.float16).max)) == 11
assert torch.tensor(1.0) + 1e-8 == 1
assert [torch.finfo(kind).eps for kind in (torch.float32, torch.bfloat16)] == [2**-23, 2**-7]
assert 0.0015 < interest[0, 2] < 0.0025

# %% [raw] slide
# ## Overflow and underflow
# {code}
# {print}
# . . .
# $\exp(88.8)$ overflows float32: ∞/∞ is `nan`. $\exp(-110)$ underflows to 0: 0/0 is `nan`.

# %% [raw] slide
# ## The stable softmax: subtract the largest score
# $$\frac{\exp(e_i - m)}{\sum_j \exp(e_j - m)} = \frac{\exp(-m)\, \exp(e_i)}{\exp(-m) \sum_j \exp(e_j)} = \frac{\exp(e_i)}{\sum_j \exp(e_j)}$$
#
# With $m = \max_j e_j$ the largest exponent is 0 and the sum is at least 1.
#
# > **Guess first.** Scores are shifted down until the naive softmax turns to `nan`. What comes just before, and is worse?

# %% [markdown]
# **The formula is right, but its exponentials leave the range of float32.** Above 88.7 the exponential **overflows**:
# it is larger than the largest float32, so it becomes ∞. The quotient ∞/∞ has no value: it is `nan`, **not a number**.
# At the other end $\exp(-110)$ **underflows** to 0, and 0/0 is `nan` again. Scores like these are not rare: a dot
# product over a hundred features of size 1 can be 100.
#
# <details><summary>Going further: the digits of float32, and 16-bit numbers</summary>float32 keeps 24 binary digits,
# about seven decimal ones: 1 + 10⁻⁸ is exactly 1. So two ways to compute the same number may differ in the last digits,
# and we compare them with <code>torch.allclose</code>, not with <code>==</code>. In float16, one of the two 16-bit
# formats used on GPUs, the exponential overflows at about 11. The other, bfloat16, has the range of float32, but only 8
# binary digits.</details>
#
# The remedy uses the fact that only differences matter. Subtract any number $m$ from *all* scores of a row, and the
# common factor $\exp(-m)$ cancels:
#
# $$\frac{\exp(e_i - m)}{\sum_j \exp(e_j - m)} = \frac{\exp(-m)\, \exp(e_i)}{\exp(-m) \sum_j \exp(e_j)} = \frac{\exp(e_i)}{\sum_j \exp(e_j)}$$
#
# Let $m$ be the largest score of the row. Then the largest exponent is 0, so nothing overflows. And the sum is at least
# 1, so we never divide by 0. This is the **stable softmax**.
#
# Shift the scores below and compare the two softmaxes. For shifts far below zero, the softmax *as written* does
# something worse before it turns to `nan`. What is worse than `nan`?

# %%
def weights_under_shift(shift):
    return figures.exp_range(row, shift)


shifts = [-120, -106, -104, -90, -60, -30, 0, 30, 60, 80, 85, 90, 120]
viz.explore(weights_under_shift, shift=shifts, start={"shift": 90},
            still=[{"shift": 90}, {"shift": -104}, {"shift": -106}])
#| caption: The softmax of shifted scores, as written and with the largest subtracted. Each
#|   short bar is an exponent, orange where the weights are wrong.

# %% [raw] slide
# ## Worse than NaN: weights that are wrong and look like weights
# {figure}

# %% [markdown]
# **Worse than `nan` are weights that are wrong and look right.** In the orange band, where the exponent is below about
# −87, float32 has only **subnormal** numbers, with fewer and fewer digits. Shifted by −104, the first weight is 0 and
# the second 0.053 instead of 0.047, yet the three still sum to one. Shifted by −106, the third has all the weight.
# A `nan` can at least be seen.
#
# With the largest score subtracted, a shift changes nothing, not even a shift of 1000:

# %%
def softmax_of_a_row(scores):                                            # (n,)
    exponentials = (scores - scores.max()).exp()                         # (n,)  none above 1
    return exponentials / exponentials.sum()                             # (n,)


assert torch.allclose(softmax_of_a_row(row + 1000), row.softmax(dim=-1), atol=1e-6)
assert torch.allclose(softmax_of_a_row(row - 1000), row.softmax(dim=-1), atol=1e-6)

# %% tags=["hide-input"]
right_answer = torch.tensor([2])
of_scores = nn.functional.cross_entropy(row[None], right_answer)
of_weights = nn.functional.cross_entropy(row.softmax(dim=-1)[None], right_answer)
assert math.isclose(of_scores, -row.softmax(dim=-1)[2].log(), rel_tol=1e-3)
assert of_weights > 5 * of_scores, "softmax twice: another loss, and no error"

# %% [markdown]
# torch's `softmax` does the same inside. So does `cross_entropy`, the loss that [lecture @bottleneck](@bottleneck)
# explains: **it takes scores, called logits, and not probabilities**. If you give it weights from a softmax, it applies
# a second softmax and returns a wrong number, without a warning.
#
# > **Check yourself.** (1) What is the softmax of $(0, \ln 3)$? (2) If all scores are doubled, do the weights change?
# > (3) Can three finite scores have exactly the weights (½, ½, 0)?
# > <details><summary>Answers</summary>(1) One quarter and three quarters, because the exponentials are 1 and 3. (2)
# > Yes, unless all scores are equal: the differences double, and the largest score gets more weight. Only
# > <em>adding</em> the same number to all scores changes nothing. (3) Mathematically no, because an exponential is
# > always positive. In float32 yes: for the scores (0, 0, −110) the third exponential is rounded to 0.</details>
#
# **Now you:** [a00](@getting_ready/assignment), exercise 3.
#
# ## Zero, −∞ and NaN: how to mark an empty position
#
# The softmax gives every position some weight, but padding must get none. So we need a mark for an empty position. Our
# first mark was zero, and it spoilt the lamp's mean. Floating-point numbers offer two more, $-\infty$ and NaN. *Guess
# each line:*

# %%
inf = torch.tensor(torch.inf)
print("exp(-inf)      ", torch.exp(-inf).item())
print("softmax of -inf", torch.full((3,), -torch.inf).softmax(dim=-1).tolist())
print("mean of 1, nan ", torch.tensor([1.0, torch.nan]).mean().item())
print("0 * inf        ", (0 * inf).item())

# %% [raw] slide
# ## Zero, −∞ and NaN: three kinds of nothing
# {code}
#
# > **Guess first.** Each line.
#
# . . .
# {print}
#
# **Now you:** a@getting_ready, exercise 3

# %% [raw] slide
# ## To leave something out, do not multiply: choose
# - $-\infty$ is the score of a position that may not take part: $\exp(-\infty) = 0$.
# - A row of −∞ alone gives NaN.
# - NaN **propagates**, and is not equal to itself: `x.isnan()` finds it.
# - `0 * inf` is NaN: use `masked_fill` or `torch.where`, **before** you compute.
# . . .
#
# | what follows | a harmless filler |
# |---|---|
# | sum | 0 |
# | softmax | $-\infty$ |
# | mean | none: a mean has a sum *and a count* |

# %% [markdown]
# Line by line:
#
# * **$-\infty$ is the score of a position that must not take part**, because $\exp(-\infty)$ is exactly 0.
# * A row in which *every* score is $-\infty$ has nothing to distribute, so all its weights are NaN. [Lecture
#   @masking](@masking) decides what such a row should give.
# * **NaN propagates**: almost any arithmetic with NaN gives NaN, so one NaN in a batch spoils the loss, and the next
#   step spoils nearly every parameter.
# * `0 * inf` is the dangerous line: multiplying by 0 is the obvious way to leave a number out, but it fails if that
#   number is ∞.
#
# <details><summary>Going further: how to find a NaN</summary>NaN is not even equal to itself, so <code>x == nan</code>
# never finds it, but <code>x.isnan()</code> does.</details>
#
# **To leave something out, do not multiply: choose.** The mask in the next cell is True where a number counts:

# %%
there = torch.tensor([True, True, False])
seen = torch.tensor([4.0, 2.0, torch.inf])
print("multiplied  ", (seen * there).sum().item())
# ~ flips True and False, and masked_fill writes 0 where its mask is True
print("masked_fill ", seen.masked_fill(~there, 0.0).sum().item())
# seen where the mask is True, 0 elsewhere
print("torch.where ", torch.where(there, seen, 0.0).sum().item())
print("as a score  ", seen.masked_fill(~there, -torch.inf).softmax(dim=-1))

# %% [markdown]
# `there` is a **boolean mask**. In this course True always means *counts*, *is there*, *may attend*.
#
# <details><summary>Going further: masks in torch</summary>torch's <code>scaled_dot_product_attention</code> agrees, but
# in the <code>key_padding_mask</code> of <code>nn.MultiheadAttention</code> True marks what is left out.</details>
#
# **Which filler is harmless depends on the operation that follows.** For a sum it is 0. For a softmax it is $-\infty$,
# because 0 would be a score like any other. For a mean no filler is harmless, because a mean has a sum *and a count*,
# and both must leave out what is not there. NaN is harmless nowhere, but as a mark it is hard to overlook.
#
# One trap remains. We want the logarithms of `v`, and 0 where `v` is 0. Both ways below give the right logarithms.
# *Guess:* which of them has a gradient of NaN, `torch.where` or `masked_fill`?

# %%
v = torch.tensor([2.0, 0.0], requires_grad=True)
for logs in (torch.where(v > 0, v.log(), 0.0), v.masked_fill(v <= 0, 1.0).log()):
    v.grad = None
    logs.sum().backward()
    print("logarithms", logs.detach(), " gradient", v.grad)

# %% [markdown]
# **Choose before you compute.** `torch.where(v > 0, v.log(), 0.0)` computes both branches and then takes one. In the
# backward pass the branch that was not taken gets the gradient 0. The logarithm multiplies it by $1/v = \infty$, and
# $0 \cdot \infty$ is NaN. `v.masked_fill(v <= 0, 1.0).log()` takes the logarithm of 1 instead, which is 0, so both
# passes are safe.
#
# ## Masked mean: the lamp again
#
# Now we can repair the lamp's mean. The mask comes from the lengths: a row of positions, (8,), is compared with a
# column of lengths, (4, 1), and broadcasting makes the result (4, 8). Here the library's `lengths_to_mask` does this.
# (The mask `table != 0` would fail as soon as zero stars are allowed.)

# %%
def mean_of_real(table, mask):                                       # (batch, n), (batch, n)
    rows = [row[real].float().mean() for row, real in zip(table, mask, strict=True)]
    return torch.stack(rows)                                         # (batch,)


lengths = torch.tensor([len(stars) for stars in ratings.values()])   # (4,)
mask = attention.lengths_to_mask(lengths, table.shape[1])            # (4, 8)
means = mean_of_real(table, mask)                                    # (4,)
figures.padded_batch(ratings, pad=0, means=means.tolist(), compared=True)
#| caption: The same rectangle, zeros included. A cell counts where its position is below its
#|   row's length; hatched cells (mask False) take no part in the mean.

# %% tags=["hide-input"]
by_hand = torch.tensor([sum(stars) / len(stars) for stars in ratings.values()])
assert torch.allclose(means, by_hand)

# %% [raw] slide
# ## Masked mean: the lamp again
# {figure}
#
# **Boolean mask**: True means *counts*, *is there*, *may attend*.

# %% [markdown]
# **Now the lamp has the highest mean**, and its mean no longer depends on whether the shop sells kettles.
#
# <details><summary>Going further: is one rating enough for first place?</summary>Many rankings pull a mean of few
# ratings towards the mean of all. That is a decision about ranking, whereas 0.625 was a bug.</details>
#
# How could you have found the bug without knowing the answer? All shapes were right, so no `assert` on a shape would
# have helped. **Change something that must make no difference, and see whether the answer moves.** Four more columns of
# padding are such a change:

# %%
for width in (8, 12):
    wide = nn.functional.pad(table, (0, width - 8))                  # (4, width)  more zeros
    masked = mean_of_real(wide, attention.lengths_to_mask(lengths, width))
    assert torch.equal(masked, means)                                # the test passes
    print(f"width {width:>2}: the lamp's masked mean {masked[-1]:.3f},",
          f"its padded mean {wide.float().mean(dim=1)[-1]:.3f}")

# %% [raw] slide
# ## Change what must make no difference
# All shapes are right, so no `assert` on a shape helps. Add padding, and see whether the answer moves:
#
# {print}

# %% [markdown]
# The masked mean stays the same, and the padded mean changes. This is an **invariance test**, and it needs no right
# answer. It can only find a bug, never prove that there is none.
#
# <details><summary>Going further: what this test misses</summary>It would not notice padding that is added up, because
# it adds only zeros.</details>
#
# Now replace products with sentences, and ratings with words. In a model with the padded mean, the vector of a short
# sentence shrinks towards zero, and the answer for a sentence depends on the longest sentence of its batch.
#
# <details><summary>Going further: how much harm in a whole catalogue?</summary>We invented three catalogues of 500
# products. Each product is rated between one and twenty times, and the number of ratings has nothing to do with the
# quality. The padded mean then says more about how often a product was rated than about how well: its correlation with
# the number of ratings is above 0.75, and with the correct mean below 0.55. About a third of the products lie below one
# star, the lowest possible rating. Of the fifty products with the highest padded means, at most sixteen are among the
# fifty with the highest correct means.</details>
#
# **Now you:** [a00](@getting_ready/assignment), exercise 4, the rectangle and its mask, and exercise 5, the masked
# mean.
#
# ## What this was for: attention in three lines
#
# All the parts are ready. The softmax has turned two customers' scores for four products into weights, and each product
# has a mean rating. What rating may each customer expect, if each product counts in proportion to the customer's
# interest? Each answer is a weighted average of four numbers, so both together are a matrix product. *Guess* the
# reader's rating roughly: the reader's weight for the lamp was 0.98.

# %% tags=["hide-input"]
def catalogue(seed):
    torch.manual_seed(seed)
    times_rated = torch.randint(1, 21, (500,))                           # (500,)
    quality = 1 + 4 * torch.rand(500, 1)                                 # (500, 1)
    stars = (quality + torch.randn(500, 20)).round().clamp(1, 5)         # (500, 20)
    was_rated = attention.lengths_to_mask(times_rated, 20)               # (500, 20)
    stars = stars.masked_fill(~was_rated, 0.0)                           # (500, 20)
    by_width = stars.mean(dim=1)                                         # (500,)
    by_count = stars.sum(dim=1) / times_rated                            # (500,)
    return times_rated, by_width, by_count


for seed in range(3):  # what the folded text says of three catalogues
    often, padded, correct = catalogue(seed)
    best = [score.topk(50).indices for score in (padded, correct)]       # two of (50,)
    assert torch.isin(best[0], best[1]).sum() <= 16, "fewer than a third"
    assert 0.25 < (padded < 1).float().mean() < 0.4, "about a third"
    how_often, how_well = torch.corrcoef(torch.stack([padded, often, correct]))[0, 1:]
    assert how_often > 0.75 and how_well < 0.55, "it says more about how often"

# %% [raw] slide
# ## An invariance test finds a bug, and proves nothing
# - The masked mean stays the same, the padded mean changes: no right answer is needed.
# - This test would not notice padding that is added up: it adds only zeros.
#
# **Now you:** a@getting_ready, exercises 4 and 5

# %%
scores = customers @ products.mT                                         # (2, 4)
weights = scores.softmax(dim=-1)                                         # (2, 4)
expected = weights @ means[:, None]                                  # (2, 4) @ (4, 1) = (2, 1)
print(f"the reader expects {expected[0].item():.2f} stars,",
      f"the customer from the rain {expected[1].item():.2f}")

# %%
figures.three_lines(customers, products, means, rows, list(ratings), wanted, row=0, column=3)
#| caption: Attention in three lines. Dark: how the reader's answer comes about, followed for
#|   the lamp alone in lines 1 and 2.
#| label: three-lines

# %% tags=["hide-input"]
assert f"{weights[0, 3]:.2f}" == "0.98"
assert torch.allclose(weights.mul(100).round().sum(dim=1), torch.tensor(100.0)), "as shown"

# %% [raw] slide
# ## What this was for: attention in three lines
# {figure}
#
# {print 2}

# %% [raw] slide
# ## In short
# | | |
# |---|---|
# | shape | batch, n, d: say it at every line; `dim` names the axis that goes |
# | broadcasting | aligned on the right; equal, or 1, which stretches; else an error |
# | autograd | `backward()` adds to `.grad`; a gradient has its parameter's shape |
# | all dot products | `q @ k.mT`, `einsum("btd,bsd->bts", q, k)` |
# | softmax | $\exp(e_i - m) / \sum_j \exp(e_j - m)$, $\; m = \max_j e_j$ |
# | masked mean | choose before you compute; divide by the count |
# | tests | assert shapes; change what must make no difference |
#
# **Now do** assignment a@getting_ready. **Next:** lecture @bottleneck.

# %% [markdown]
# **Score every query against every key, turn each row of scores into weights by a softmax, and average the values with
# these weights: that is attention.** The vectors that ask, here the customers, are the **queries**. The vectors that
# are asked, here the products, are the **keys**, and their mean ratings are the **values**. This is unscaled
# **dot-product attention**. The Transformer first divides the scores by $\sqrt{d_k}$, where $d_k$ is the number of
# features of a key, and [lecture @lookup](@lookup) measures why.
#
# Why not simply take the best match? `argmax` returns an index, which has no slope, so no gradient would reach the
# scores. The softmax is a choice with slopes. Here we typed in the numbers. In a Transformer, modules like `nn.Linear`
# compute queries, keys and values, so training changes what is asked for, offered and returned: **the network itself
# decides how much each item counts**.
#
# The course has **one notation** for this: queries $q$, keys $k$, values $v$, scores $e$, weights $\alpha$, and the
# average $c$, the context vector:
#
# $$e_{ij} = q_i \cdot k_j, \qquad \alpha_{ij} = \frac{\exp(e_{ij})}{\sum_{j'} \exp(e_{ij'})}, \qquad c_i = \sum_j \alpha_{ij}\, v_j$$
#
# Vectors are rows, and the softmax runs along the keys $j$. For the reader and the lamp, $e = 6.25$ and
# $\alpha = 0.984$.
#
# ## In short
#
# | | | shape |
# |---|---|---|
# | reduction | `x.mean(dim=1)`: the named axis is removed | (batch, n, d) → (batch, d) |
# | broadcasting | aligned on the right; equal, or one is 1 | (n,) − (n, 1) → (n, n) |
# | one training step | `zero_grad()`, forward pass, loss, `backward()`, `step()` | `.grad` like its parameter |
# | stable softmax | $\exp(e_i - m) / \sum_j \exp(e_j - m)$, $m = \max_j e_j$ | (…, n), sums to one |
# | masked mean | sum over what is there / count of what is there | (batch, n) → (batch,); with features, (batch, n, d) → (batch, d) |
# | dot-product attention, unscaled | `(q @ k.mT).softmax(dim=-1) @ v` | (n_target, d), (n_source, d), (n_source, d_v) → (n_target, d_v) |
#
# **A wrong number in the right shape does not crash.** Where the shape of an intermediate step is wrong, an `assert`
# finds it. Where it is right, test the numbers: work out one example by hand, or change what must make no difference.
# To leave something out, choose before you compute: fill in 0 for a sum and −∞ for a softmax, and for a mean keep it
# out of both the sum *and* the count.
#
# > **Check yourself.** (1) `x` is (5, 7, 16). What are the shapes of `x.sum(dim=-2)`, `x - x[:, :1]` and `x @ x.mT`?
# > (2) A colleague's loss falls from 9 to 1 and stays there. Which one line do you ask your colleague to print? (3) `x`
# > is data, and `(w.item() * x).sum().backward()` raises `element 0 of tensors does not require grad and does not have
# > a grad_fn`. Why? (4) A model reads sentences in batches. Which test shows that no sentence influences another?
# > <details><summary>Answers</summary>(1) (5, 16), (5, 7, 16) and (5, 7, 7). (2) The shapes of prediction and target,
# > side by side. (Or the predictions themselves: are they all the same?) (3) <code>.item()</code> gave a plain number.
# > Nothing that was computed from it was recorded, so there is no graph to walk backwards. (4) An invariance test:
# > change or remove one sentence, and assert that the results of all others stay the same.</details>
#
# **Now do** [assignment @getting_ready](@getting_ready/assignment) (about 75 minutes, and 10 more for the extension):
# five exercises and a question in words. **Next:** [lecture @bottleneck](@bottleneck), on the problem that attention
# was invented to solve.
#
# **Further reading.** [+@harris2020]: figure 1 shows shapes, axes and broadcasting on one page. [+@goodfellow2016]:
# sections 4.1 (overflow and underflow of the softmax) and 6.5 (back-propagation). PyTorch's own notes are
# [*Broadcasting semantics*](https://docs.pytorch.org/docs/stable/notes/broadcasting.html) and [*Autograd
# mechanics*](https://docs.pytorch.org/docs/stable/notes/autograd.html).
#
# <details><summary>More to read</summary>
#
# [+@blanchard2021] shows that subtracting the maximum costs almost no accuracy. [+@rogozhnikov2022] gives names to
# axes. [+@goldberg1991] explains rounding errors.
#
# </details>
