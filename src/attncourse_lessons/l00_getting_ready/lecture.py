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
# *About 48 minutes, including a few seconds of computing time. You need Python, school calculus (the chain rule,
# exponentials, logarithms), mean and variance, and you should have seen a PyTorch tensor. No knowledge of language
# models or attention is assumed.*
#
# After this lecture you can
#
# * say the **shape** of every line's result, and which axis a reduction removes;
# * predict what **broadcasting** does, and catch the bug that it can hide;
# * explain what `backward()`, `.grad` and `no_grad` do (**autograd**, backpropagation), and write a training loop with a
#   **module** and an **optimiser**;
# * compute all dot products between the rows of two matrices, with `@` and with `einsum`;
# * write a **softmax** that does not overflow, and average with a **boolean mask**;
# * understand what a check of this course tells you.
#
# ## A mean over padding: a wrong number in the right shape
#
# A shop wants to rank its products by their mean rating, from one star to five. The kettle has been rated eight times,
# the lamp only once, by a customer who loved it. A tensor is a rectangle, so the short rows are filled with zeros. This
# is called **padding**.

# %% tags=["hide-input"]
try:
    from attncourse import check, viz

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
# > **Guess first.** Which product comes first in the list, and with how many stars?

# %% [markdown]
# *Before you run the next cell*, decide: which product should come first, and with how many stars?

# %%
ratings = {"kettle": [4, 5, 3, 4, 4, 5, 4, 3], "toaster": [2, 3, 1, 2, 3],
           "umbrella": [1, 2], "lamp": [5]}
table, _ = data.pad_batch(list(ratings.values()), pad=0)    # (4, 8)  the library pads
padded_means = table.float().mean(dim=1)             # (4, 8) → (4,)
figures.padded_batch(ratings, pad=0, means=padded_means.tolist(), counted=True)
#| caption: Padding: rows of different lengths in one rectangle, filled with zeros, and the
#|   mean of each row, zeros included.

# %% tags=["hide-input"]
assert padded_means[-1] < 1, "the lamp has fewer stars than anybody can give"

# %% [raw] slide
# ## The lamp has less than one star
# {figure}
#
# **A wrong number in the right shape**: nothing crashed, there was no warning.

# %% [raw] slide
# ## How to use these pages
# - `attncourse doctor` tests what the course needs and says how to fix what is missing.
# - Shift-Enter runs a cell. Guess **before** you run it, in writing.
# - Lost? *Kernel → Restart Kernel and Run All Cells*.
# - **A common mistake**: errors found in public slides.
# - Symbols: keep the page *Notation* open.

# %% [markdown]
# The lamp was rated five out of five, but ends up with less than one star, on a scale that starts at one. Nothing
# crashed, and there was no warning. The lamp's number also depends on the other products: without the kettle, the
# rectangle would be narrower and the lamp's mean higher.
#
# The models in this course are built from such averages. In **mean pooling**, a sentence becomes the mean of its words'
# vectors. Attention is a mean in which some words count more than others. Sentences rarely have the same length, so the
# bug that you have just seen, *a wrong number in the right shape*, can come back in every lecture. This lecture teaches
# you to see it coming, and in the end the lamp gets its five stars.
#
# ## How to use these pages
#
# Open a terminal in the course's folder and run `attncourse doctor` (or, if that is not found,
# `.venv/bin/attncourse doctor`). The command tests what the course needs, and marks what works with ✓ and what does not
# with ✗. Below each ✗ it says how to fix it.
#
# Shift-Enter runs a cell and moves to the next. Where the text asks for a guess, make it before you run the cell, in
# writing if you can, because you will remember an answer that contradicts your guess. If you have lost track of changed
# variables, *Kernel → Restart Kernel and Run All Cells* starts again.
#
# Boxes named **A common mistake** show errors found in public slides, which you need not have seen. The symbols are
# explained in [Notation](../docs/notation.md): keep it open in a second tab.
#
# ## Tensors, axes and shapes: say the shape
#
# A **tensor** is an array of numbers. Its **shape** is a tuple that says how the numbers are arranged. Each entry of
# the tuple is the length of one **axis** (also called a dimension). In this course each axis keeps one meaning. Three
# of them appear on every page:
#
# * **batch** says which sentence. Sentences in a batch must not influence each other.
# * **n** says which position in the sentence. (Two lengths at once get two names, `n_source` and `n_target`.)
# * **d** says which feature. A word enters a network as a vector of $d$ numbers.
#
# A tensor also has a **dtype**, the type of its numbers. The ratings above are integers (`int64`). torch refuses to
# average integers, so `.float()` converts them to `float32`. And a tensor has a **device**, in this course always the
# CPU.
#
# Here are two sentences of three words with four features, numbered from 0 to 23:

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
# The comment at the end of a line gives the shape of its result. Nearly every line that changes a shape has one. Make
# this a habit: the formula says what you mean, and the shape says what the line does.
#
# A **reduction**, such as `sum`, `mean` or `amax`, removes an axis. (`max` along an axis returns two tensors, the
# values and their **indices**.) The argument `dim` names the axis that is *removed*. So `dim=1` does not mean "one mean
# for each index along axis 1".

# %%
figures.batch_axes(x)
#| caption: A tensor of shape (batch, n, d), and its mean over each of its three axes.
#| label: batch-axes

# %% [raw] slide
# ## A reduction removes an axis: dim names the one that goes
# {figure}

# %% [raw] slide
# ## Guess five shapes
# `x` is (batch, n, d) = (2, 3, 4).
#
# > **Guess first.**
# > 1. `x.mean(dim=1)`
# > 2. `x[:, 0]`
# > 3. `x[:, None]`
# > 4. `x.mT`
# > 5. `x.mean(dim=-1)`

# %% [markdown]
# *Guess five shapes before you run the cell.* `x.amax(dim=(0, 1))` reduces two axes at once. `x[:, 0]` takes the first
# position. `x[:, None]` inserts a new axis of length one where `None` stands. `x.mT` swaps the last two axes and leaves
# the batch axis alone. A negative `dim` counts the axes from the end.

# %%
print("x.amax(dim=(0, 1))", tuple(x.amax(dim=(0, 1)).shape))
print("x[:, 0]           ", tuple(x[:, 0].shape))
print("x[:, None]        ", tuple(x[:, None].shape))
print("x.mT              ", tuple(x.mT.shape))
print("x.mean(dim=-1)    ", tuple(x.mean(dim=-1).shape))

# %% [raw] slide
# ## Five shapes
# {print}
#
# `dim=-1` is the features, with or without a batch in front.

# %% [markdown]
# `dim=-1` is the feature axis, with or without a batch axis in front. Code that uses `-1` and `-2` works for one
# sentence and for a batch of sentences.
#
# Many people get the next step wrong. We want to subtract from each word its mean over the four features.

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
# 1. Write the shapes one below the other, flush **right**; fill up with 1s on the left.
# 2. In each column the numbers are equal, or one of them is 1, which stretches.
# 3. Anything else is an error.
#
# ```
# x           (2, 3, 4)            x       (2, 3, 4)
# mean        (2, 3, 1)            mean       (2, 3)   →  4 against 3: error
# x - mean    (2, 3, 4)
# ```

# %% [markdown]
# The mean gave one number for each word, as it should. But it could not be subtracted, because its last axis was gone,
# so torch tried to pair the three positions with the four features. `keepdim=True` leaves the axis in its place, with
# length one. Then the one mean is used for all four features.
#
# ## Broadcasting: an axis of length one stretches
#
# When two tensors of different shapes meet in a sum, a product or a comparison, torch **broadcasts** them by this rule:
#
# 1. Write the two shapes one below the other, flush *right*. Fill the shorter shape up with 1s on the left.
# 2. In each column the two numbers must be equal, or one of them must be 1. A 1 is stretched to the other number.
# 3. Anything else is an error.
#
# ```
#   x           (2, 3, 4)            x       (2, 3, 4)
#   mean        (2, 3, 1)            mean       (2, 3)   →  4 against 3: error
#   x - mean    (2, 3, 4)
# ```
#
# Choose both shapes in the figure below. The dotted cells are not in memory: they are copies that broadcasting only
# pretends to make. Predict each result before you look. Start with (3, 1) and (4,), then find a pair that does not fit.
# Keep (3,) minus (3, 1) for last.

# %%
shapes = ["(3,)", "(4,)", "(1, 4)", "(3, 1)", "(3, 4)"]
pairs = [{"a": "(3, 1)", "b": "(4,)"}, {"a": "(3,)", "b": "(4,)"}, {"a": "(3,)", "b": "(3, 1)"}]
viz.explore(figures.broadcasting, a=shapes, b=shapes, start=pairs[0], still=pairs)
#| caption: Broadcasting: choose two shapes and see what is stretched.

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
# - A column minus a row is a table of all differences: useful for masks.
# - Stretching costs no memory: the **stride** of a stretched axis is 0.

# %% [markdown]
# A column minus a row is a table of all differences. Such tables are useful: a mask compares a column of lengths with a
# row of positions in the same way. But three numbers minus three numbers gave nine, without a warning, because one of
# the tensors was a **column vector**, (3, 1).
#
# How can torch use cells that are not in memory? A tensor has **strides**: for each axis, the number of places in
# memory from one index to the next. *Guess two things.* What is the stride of an axis that was stretched? And do `x.mT`
# and `x.reshape(2, 4, 3)`, which have the same shape, hold the same numbers in the same places?

# %%
column = torch.tensor([[10], [20], [30]])            # (3, 1)
stretched = column.expand(3, 4)                      # (3, 4)  what broadcasting does inside
in_memory = stretched.untyped_storage().nbytes() // stretched.element_size()
print("strides", stretched.stride(), " numbers in memory:", in_memory)
print("mT      ", x.stride(), "→", x.mT.stride(), " rows", x.mT[0, :2].tolist())
print("reshape ", x.stride(), "→", x.reshape(2, 4, 3).stride(),
      " rows", x.reshape(2, 4, 3)[0, :2].tolist())

# %% [markdown]
# The stride is zero: along the stretched axis torch reads the same number again and again. So stretching costs no
# memory. (The *result* of the subtraction does: (200, 1) minus (200,) gives 40,000 numbers.)
#
# Strides also explain the lines for `mT` and `reshape`. `x.mT` swaps two strides and moves no number, so its first row
# is the first feature of all three positions, (0, 4, 8). `reshape` reads the numbers in their old order and cuts them
# into new rows, so its first row, (0, 1, 2), is three features of one position. **A reshape is not a transpose.**
# Confusing the two is a common bug in code that splits attention into heads ([lecture @many_heads](@many_heads)): again
# a wrong number in the right shape.
#
# <details><summary>Going further: view and reshape</summary><code>view</code> does what <code>reshape</code> does, but
# it refuses to copy. The numbers of <code>x.mT</code> are not stored in the order in which they are read. So
# <code>x.mT.view(2, 12)</code> raises an error, whereas <code>reshape</code> makes a copy.</details>
#
# Now practise on six lines of code. Say the shape aloud before you choose, because only your first answer counts. If
# you get fewer than five right, read the last two sections again and press *start again*.

# %%
viz.shape_drill(figures.SAY_THE_SHAPE[:6], told=False)

# %% [markdown]
# <details><summary>Answers and reasons, in case no buttons are shown above</summary>
# (1) (5, 7): dim names the axis that goes: the last but one, of length 2. (2) (5, 2, 7): (5, 1, 7) stands below (5, 2,
# 7), and the 1 stretches: nothing of x is lost. (3) an error: The mean is (6,), and flush right 6 stands below 4.
# keepdim=True would fit. (4) (2, 6, 3): Flush right: (1, 6, 1) against (2, 1, 3). Each 1 stretches. (5) (4, 4, 3): (4,
# 1, 3) against (1, 4, 3): every row minus every row. (6) (5, 2): x.mT is (5, 7, 2). A number in an index takes its axis
# away; a colon keeps its own.</details>

# %% [raw] slide
# ## Say the shape: a drill
# {figure}

# %% [markdown]
# > **Check yourself.** `table` is (batch, n_target, n_source), with one number for each pair of positions of two
# > sentences. `lengths` is (batch,). You want to compare every source position with its sentence's length, so that the
# > result broadcasts against `table`. Which shapes must positions and lengths have?
# > <details><summary>Answer</summary>The positions must be (n_source,), and the lengths (batch, 1, 1), with two new
# > axes. Then the result is (batch, 1, n_source), and its 1 stretches over the targets. With lengths of shape
# > (batch, 1) the result would be (batch, n_source), which lines up with the wrong axes.</details>
#
# ## Autograd: a gradient in ten lines
#
# To **train** a model is to measure how wrong it is with one number, the **loss**, and to change the model's numbers,
# its **parameters**, so that the loss falls. In which direction should they change? The slope of the loss with respect
# to one parameter is a **partial derivative**, and all these derivatives together form the **gradient**. A small step
# against the gradient goes downhill. The **learning rate** says how long the step is.
#
# Take the loss $(w - 1)^2$ at $w = 4$. In the **forward pass** torch computes the loss and records each operation in
# the **computational graph**, which has two steps here. In the **backward pass** it applies the chain rule along the
# graph, from the loss back to the parameter: each step in the figure multiplies the slope that arrives from its right
# by a slope of its own.

# %% [raw] slide
# ## Autograd: a gradient in ten lines
# - **Loss**: one number that says how wrong a model is.
# - **Parameters**: the numbers that we change so that the loss falls.
# - **Gradient**: the slope of the loss with respect to each parameter.
# - **Learning rate**: how far a step against the gradient goes.
# - **Forward pass**: torch computes the loss and records each operation, the **computational graph**.
# - **Backward pass**: the chain rule along the graph, from the loss to all parameters: **backpropagation**.

# %%
figures.record(w=4.0)
#| caption: A computational graph: values that autograd records in the forward pass, and slopes
#|   that it computes along the graph in the backward pass.
#| label: autograd

# %% [raw] slide
# ## The computational graph of (w − 1)² at w = 4
# {figure}
#
# > **Guess first.** What does a second `backward()` leave in `.grad`, and what is `w` after a step of 0.1 against it?

# %% [markdown]
# Read the lower arrows from right to left: the loss has slope 1 with respect to itself, squaring multiplies this slope
# by 6, and subtracting 1 leaves it as it is. This is **reverse-mode automatic differentiation**, and PyTorch's engine
# for it is called **autograd**. Applied to a neural network, it is called **backpropagation**. It is cheap because the
# loss is a single number: one backward pass, which costs a few forward passes at most, gives the slope with respect to
# every parameter.
#
# Now in torch. *Guess:* what does a second `backward()` leave in `.grad`, and what is `w` after a step against it with
# learning rate 0.1?

# %%
w = torch.tensor(4.0, requires_grad=True)            # torch records what is computed with w
loss = (w - 1) ** 2
loss.backward()                                      # walks the graph backwards …
print("gradient:", w.grad.item())                    # … and adds the gradient to w.grad
((w - 1) ** 2).backward()
print("after a second backward:", w.grad.item())     # added up, not replaced
with torch.no_grad():                                # inside this block nothing is recorded
    w -= 0.1 * w.grad                                # so w may be changed
w.grad = None                                        # clear it, or the next gradient is added
print("w:", round(w.item(), 2))
print("requires_grad after detach:", w.detach().requires_grad)    # the number without its graph

# %% [markdown]
# Broadcasting uses a number more than once. Below, `b` has four numbers, and each is added to six numbers of `x`.
# *Guess* the gradient of `b`.

# %%
b = torch.zeros(4, requires_grad=True)               # (4,)
(x + b).sum().backward()                             # (2, 3, 4) + (4,): b is stretched
print("gradient of b:", b.grad)

# %% [raw] slide
# ## What a second backward() and a step leave
# {print 2}
# . . .
# {print}

# %% [raw] slide
# ## Four rules of autograd
# 1. `backward()` **adds** to `.grad`: set it to `None` before the next step.
# 2. Change parameters under `torch.no_grad()`.
# 3. `.item()` and `.tolist()` give plain numbers, `.detach()` a tensor without its graph.
# 4. A gradient has the shape of its parameter; the gradients from all its uses are added up.

# %% [markdown]
# These two cells show four rules.
#
# * `backward()` *adds* to `.grad`. That is why the step above used 12, although the gradient is 6. Set `.grad` to
#   `None` before the next step. (An optimiser's `zero_grad()` does that.)
# * Change parameters inside a `torch.no_grad()` block. Outside it, torch refuses a change in place (`w -= …`), and
#   `w = w - …` makes a new tensor, whose `.grad` stays empty.
# * `.item()` and `.tolist()` give plain numbers. `.detach()` gives a tensor without its graph, which is what NumPy
#   needs. What is computed from any of these has no gradient. Most checks ask whether a gradient flows through your
#   answer.
# * A gradient always has the shape of its parameter. Where a number is used more than once, the gradients from all its
#   uses are added up (the chain rule for several variables). Each number of `b` is used six times, so its gradient
#   is 6.
#
# ## A silent broadcasting bug: the loss falls anyway
#
# What happens if such a bug goes unnoticed? We train a very small model, `nn.Linear(3, 1)` (three weights and a bias),
# to predict the rating of a product from three measured features. It returns a column, (200, 1). The first run
# subtracts the ratings, (200,), from the column as it stands. The second run first gives the predictions the shape
# (200,), with `prediction[:, 0]`. Otherwise the two runs are identical.
#
# *Guess:* will the loss of the first run fall? Will it fall to zero, to somewhere else, or stay?

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
wrong, right = "shapes (200, 1) and (200,)", "shapes (200,) and (200,)"
losses, predicted = {}, {}
for name, as_column in {wrong: True, right: False}.items():
    losses[name], predicted[name] = train(as_column)
viz.curves(losses, y_name="mean squared error", log_y=True)
#| caption: Training loss (means of three steps, logarithmic axis) with predictions of the wrong
#|   shape, a column, and of the right shape.

# %% [raw] slide
# ## The loss falls anyway
# {figure}

# %% [markdown]
# Both losses fall steeply, and the first settles as a healthy loss does. If you saw only that curve, you would tune the
# learning rate, ask for more data, and report that the task is hard. Look at the predictions instead.

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
# The first model predicts the same number for every product, the mean of all ratings. The difference had shape
# (200, 200), every prediction $p_i$ against *every* rating $r_j$. The mean of its squares splits into three terms,
# where $N$ is 200:
#
# $$\frac1{N^2} \sum_{i,j} (p_i - r_j)^2 = \operatorname{Var}(p) + \operatorname{Var}(r) + (\bar p - \bar r)^2$$
#
# The first and the third term become zero if all predictions are the mean rating $\bar r$. The second does not depend
# on the model, so it remains. The wrong loss therefore *punishes* a model that tells products apart, and ends at the
# variance of the ratings, which looks like an honest result:

# %%
print(f"last loss, wrong shapes: {losses[wrong][-1]:.4f}")
print(f"variance of the ratings: {rating.var(correction=0):.4f}")
print(f"every prediction: {predicted[wrong].mean():.3f}, "
      f"mean of the ratings: {rating.mean():.3f}")
print(f"last loss, right shapes: {losses[right][-1]:.4f}, "
      f"variance of the noise: {noise.var(correction=0):.4f}")

# %% tags=["hide-input"]
assert math.isclose(losses[wrong][-1], rating.var(correction=0), rel_tol=1e-2)

# %% [markdown]
# **A falling loss is no proof.** One line would have caught the bug: `assert prediction.shape == rating.shape`. Write
# it wherever broadcasting could hide a bug. (torch's own `mse_loss` at least warns.) The right loss does not end at 0
# either, because no model can predict the noise in the ratings. The variance of the noise remains, minus the little
# that four parameters fit by chance.
#
# ## Modules and optimisers: one training step
#
# `nn.Linear(3, 1)` is a **module**: an object that holds its parameters, here a weight and a bias, and computes
# $x W^\top + b$ when it is called. (The transpose is there because torch stores the weight as (out, in).)
# `model.parameters()` lists everything that can be learned in a module and in the modules inside it.
#
# An **optimiser** does what we did by hand under `no_grad`: `zero_grad()` clears the old gradients, and `step()` goes
# downhill. Ours is **SGD**, stochastic gradient descent. It is *stochastic* because each step sees a random **batch**
# of rows, here 20. *Guess* the shapes of the two parameters, and the sign of the bias's gradient. (The bias starts near
# 0, and the ratings lie around 3.)

# %%
torch.manual_seed(1)
model = nn.Linear(3, 1)
print({name: tuple(p.shape) for name, p in model.named_parameters()})
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
batch = torch.randperm(200)[:20]                                     # (20,)  which rows
error = model(features[batch]) - rating[batch][:, None]              # (20, 1)  forward pass
optimizer.zero_grad()                                                # clear the old gradients
error.square().mean().backward()                                     # backward: new gradients
before = model.bias.item()
optimizer.step()                                                     # a step downhill
print(f"gradient of the bias {model.bias.grad.item():.3f},",
      f"the step changes it by {model.bias.item() - before:.3f}")

# %% tags=["hide-input"]
assert math.isclose(model.bias.item() - before, -0.05 * model.bias.grad.item(), rel_tol=1e-4)

# %% [raw] slide
# ## Modules and optimisers: one training step
# {code}
# . . .
# {print}
#
# **Module**: holds its parameters, is called like a function. **Optimiser**: takes the steps.

# %% [markdown]
# A larger bias lowers the loss, so the gradient of the bias is negative. A training loop repeats this step. (Our first
# loop used all rows.)
#
# Your own models will be classes like the one below. `__init__` creates the parts and keeps them in `self`. `forward`
# defines what is computed when the model is called.

# %%
class Rater(nn.Module):
    def __init__(self, d):
        super().__init__()                       # before any part is made
        self.linear = nn.Linear(d, 1)            # its parameters are the model's, too

    def forward(self, features):                                         # (batch, d)
        return self.linear(features)[:, 0]                               # (batch,)


model = Rater(3)
print({name: tuple(p.shape) for name, p in model.named_parameters()})
print(tuple(model(features).shape))

# %% [markdown]
# **Now you:** [a00](@getting_ready/assignment), exercise 5: a loop with two bugs, and which learning rates work. The
# exercises run from easy to hard, but each can be done alone, in any order. The section *What a check tells you*
# explains the card under your answer.
#
# ## Dot products of all pairs: matrix multiplication and einsum
#
# Attention begins with the question "how well does each of these match each of those?" Two customers know what they
# want, and each product has something to offer, both as vectors with the features *light*, *heat* and *dryness*. The
# **dot product** measures how well they match: multiply feature by feature, and add up. *Guess* from the numbers below:
# which product will each customer like best, and with which score?

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
# The loop computes eight dot products, one at a time. It is clear, but hopelessly slow for thousands of rows. **Matrix
# multiplication**, written `@` in Python, computes them all at once. (Code without the loop is called **vectorised**.)
# `@` pairs the *last* axis of the left factor with the *last but one* of the right and sums over the pair. So the
# products are transposed: (2, 3) @ (3, 4) is (2, 4).
#
# A third way needs no transpose and says what it does. In **einsum** (Einstein summation) each axis gets a letter, and
# an axis whose letter is missing after the arrow is summed over. Here that letter is f, for the features.

# %%
by_matmul = customers @ products.mT                            # (2, 3) @ (3, 4) = (2, 4)
by_einsum = torch.einsum("cf,pf->cp", customers, products)     # customer, feature, product
assert torch.equal(scores, by_matmul) and torch.equal(scores, by_einsum)
for c, who in enumerate(["reader", "from the rain"]):
    print(f"{who:>14}:", dict(zip(ratings, scores[c].tolist(), strict=True)))

# %% [markdown] erratum="a star for a matrix product"
# The loop, `@` and `einsum` compute the same numbers, and the course uses whichever is clearest.
#
# > **A common mistake: a star for a matrix product.** The last step of attention is sometimes printed as
# > `softmax(…) * XV`. In Python `*` is **elementwise**: it multiplies entry by entry, with broadcasting. Often the
# > shapes do not fit, and you get an error. In an example where everything is square, you get none:

# %%
torch.manual_seed(0)
square, other = torch.rand(3, 3), torch.rand(3, 3)       # d happens to be n
print(tuple((square * other).shape), tuple((square @ other).shape), "same shape")
print("same numbers:", torch.allclose(square * other, square @ other))

# %% [raw] slide
# ## A common mistake: a star for a matrix product
# `softmax(…) * XV` is **elementwise**: it multiplies entry by entry.
#
# {print}
# . . .
# The examples of this course have sizes that are all different: with 2, 3 and 4 most mistakes crash, with 3, 3 and 3 they do not.

# %% [markdown]
# That is why this course's examples use sizes that all differ: with 2, 3 and 4, most mistakes crash.
#
# > **Check yourself.** `q` is (batch, n_target, d), and `k` is (batch, n_source, d). Compute all scores, once with `@`
# > and once with `einsum`.
# > <details><summary>Answer</summary><code>q @ k.mT</code>, because <code>@</code> and <code>.mT</code> leave the
# > leading axes alone, and <code>torch.einsum("btd,bsd->bts", q, k)</code>. Both results are
# > (batch, n_target, n_source). <code>k.T</code> would transpose the batch axis as well: <code>.T</code> is for
# > matrices only.</details>
#
# Here are six more lines, some with `@` and `einsum`. If you get fewer than five right, reread *Broadcasting* or this
# section, whichever you need, and press *start again*.

# %%
viz.shape_drill(figures.SAY_THE_SHAPE[6:], told=False)

# %% [markdown]
# <details><summary>Answers and reasons, in case no buttons are shown above</summary>
# (1) (2, 3, 5): (3, 4) @ (4, 5) is (3, 5), in each of 2 sentences: all dot products. (2) an error: The last axis of q,
# 4, meets the last but one of k, 5. k.mT is needed. (3) (2, 3): n is missing after the arrow: it is summed over, in
# each of 2 sentences. (4) (3, 2): A row of weights averages 5 values: one average for each of 3. (5) an error: 3 stands
# below 4. weights[..., None], (2, 3, 1), fits. (6) (2, 3, 5): (2, 1, 5) against (2, 3, 5): the bias of a sentence
# serves all of its rows.</details>
#
# **Now you:** [a00](@getting_ready/assignment), exercise 4: compute all *distances* at once.

# %% [raw] slide
# ## Say the shape: with @ and einsum
# {figure}

# %% [raw] slide
# ## Softmax: from scores to weights
# $$\operatorname{softmax}(e)_i = \frac{\exp(e_i)}{\sum_j \exp(e_j)}$$
#
# **Weights**: positive, with a sum of one. Only differences of scores matter.
#
# > **Guess first.** Three scores, 0, 2 and 5. What are the weights if 100 is added to each? And −110?

# %% [markdown]
# ## Softmax: from scores to weights
#
# Scores can be any numbers. To average with them, we turn them into **weights**: positive numbers with a sum of one,
# like probabilities. The usual way is the **softmax**. Take the exponential, which makes anything positive, and divide
# by the sum:
#
# $$\operatorname{softmax}(e)_i = \frac{\exp(e_i)}{\sum_j \exp(e_j)}$$

# %%
def naive_softmax(scores):                                               # (n,)  one row
    exponentials = scores.exp()                                          # (n,)
    return exponentials / exponentials.sum()                             # (n,)


interest = torch.stack([naive_softmax(row) for row in scores])           # (2, 4)
rows = ["reader", "from the rain"]
viz.draw_weights(interest, rows=rows, columns=list(ratings), title="weights")
#| caption: The softmax of each customer's scores: one row for each customer, with a sum of one.

# %% [markdown]
# Each customer has one unit of interest and distributes it over the products. The largest score gets the most, and no
# weight is exactly zero. (The umbrella's 0.00 is 0.002, rounded.) Each row is divided by its own sum.
#
# Adding the same number to all scores of a row should not change the weights, because only differences matter. *What
# will the next cell print?*

# %%
row = torch.tensor([0.0, 2.0, 5.0])
for shift in (0.0, 100.0, -110.0):
    print(f"{shift:>6}:", naive_softmax(row + shift).tolist())

# %% [raw] slide
# ## Overflow and underflow
# {code}
# {print}
# . . .
# $\exp(88.8)$ overflows float32: ∞/∞ is `nan`. $\exp(-110)$ underflows to 0: 0/0 is `nan`.

# %% [markdown]
# Above 88.7 the exponential **overflows**: it is larger than the largest float32, so it becomes ∞. The quotient ∞/∞ has
# no value: it is `nan`, **not a number**. At the other end, $\exp(-110)$ **underflows** to 0, and 0/0 is `nan`, too.
# How large may a single score be? As large as the logarithm of the largest number that its type can hold. (What will
# the last line of the next cell give?)

# %%
for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64):
    print(f"{dtype!s:15} exp overflows above {math.log(torch.finfo(dtype).max):6.1f}")
even = naive_softmax(torch.full((1000,), 82.0))
print("1,000 scores of 82, their weights:", even[:3].tolist(), "…")

# %% tags=["hide-input"]
assert torch.tensor([88.7, 88.8]).exp().isinf().tolist() == [False, True]

# %% [raw] slide
# ## The stable softmax: subtract the largest score
# $$\frac{\exp(e_i - m)}{\sum_j \exp(e_j - m)} = \frac{\exp(-m)\, \exp(e_i)}{\exp(-m) \sum_j \exp(e_j)} = \frac{\exp(e_i)}{\sum_j \exp(e_j)}$$
#
# With $m = \max_j e_j$ the largest exponent is 0 and the sum is at least 1.
#
# > **Guess first.** Scores are shifted down until the naive softmax turns to `nan`. What comes just before, and is worse?

# %% [markdown]
# The limit of 88.7 is low: a dot product over a hundred features of size 1 can be 100. In float16, which takes half the
# memory and is fast on GPUs, the limit is only about 11. (PyTorch's automatic mixed precision therefore computes `exp`
# and `softmax` in float32. bfloat16 has the range of float32, with fewer digits.) The naive formula can fail earlier,
# because the *sum* overflows before its terms do. With 1,000 scores of 82 each exponential is finite, but the sum is ∞,
# so every weight is 0, without a `nan`.
#
# The remedy uses the rule that only differences matter. Whatever number $m$ we subtract from *all* scores of a row, a
# common factor cancels:
#
# $$\frac{\exp(e_i - m)}{\sum_j \exp(e_j - m)} = \frac{\exp(-m)\, \exp(e_i)}{\exp(-m) \sum_j \exp(e_j)} = \frac{\exp(e_i)}{\sum_j \exp(e_j)}$$
#
# Let $m$ be the largest score of the row. Then the largest exponent is 0, so nothing overflows, and the sum is at least
# 1, so nothing is divided by 0. This is the **stable softmax**. In the logarithm of the sum the shift does not cancel,
# but it can be added back. That is the **log-sum-exp trick**, which is in every cross-entropy from lecture @bottleneck
# on. (The assignment's extension asks where to add it.)
#
# Shift the scores below and watch both softmaxes. On the left, before the softmax *as written* turns to `nan`, there is
# a stretch where it does something worse. What is worse than `nan`?

# %%
def weights_under_shift(shift):
    return figures.exp_range(row, shift)


shifts = [-120, -106, -102, -90, -60, -30, 0, 30, 60, 80, 85, 90, 120]
viz.explore(weights_under_shift, shift=shifts, start={"shift": 90},
            still=[{"shift": 90}, {"shift": -102}, {"shift": -106}])
#| caption: The softmax of scores that are shifted by a constant: as written, and with the
#|   largest score subtracted.

# %% [raw] slide
# ## Worse than NaN: weights that are wrong and look like weights
# {figure}

# %% [markdown]
# For exponents below about −87, the exponentials are **subnormal** numbers, which have fewer digits the smaller they
# are. Shifted by −102, the three are 4, 27 and 533 times the smallest number that float32 can hold, and the weights are
# wrong in the third decimal. Shifted by −106, two of them are 0, so the third has all the weight. Both results *look*
# like weights, whereas a `nan` can at least be seen. With the largest score subtracted, a shift changes nothing:

# %%
def softmax_of_a_row(scores):                                            # (n,)
    exponentials = (scores - scores.max()).exp()                         # (n,)  none above 1
    return exponentials / exponentials.sum()                             # (n,)


for shift in (0.0, 1000.0, -1000.0):
    weights = softmax_of_a_row(row + shift)
    print(f"{shift:>7}:", [round(weight, 3) for weight in weights.tolist()])
    assert torch.allclose(weights, row.softmax(dim=-1), atol=1e-6)

# %% [markdown]
# torch's `softmax` does the same inside. The fast attention of [lecture @cheap_attention](@cheap_attention) relies on
# this subtraction, done block by block. In the assignment you write the stable softmax for any number of rows.
#
# > **Check yourself.** What is the softmax (1) of three equal scores, (2) of $(0, \ln 3)$? (3) If all scores are
# > doubled, do the weights change? (4) Can three finite scores have exactly the weights (½, ½, 0)?
# > <details><summary>Answers</summary>(1) One third each. (2) One quarter and three quarters, because the exponentials
# > are 1 and 3. (3) Yes, unless all scores are equal: the differences double, and the largest score gets more weight.
# > Only <em>adding</em> the same number to all scores changes nothing. (4) Mathematically no, because an exponential is
# > above 0. In float32 yes: for the scores (0, 0, −110) the third exponential is rounded to 0.</details>
#
# **Now you:** [a00](@getting_ready/assignment), exercise 1.
#
# ## Zero, −∞ and NaN: how to mark an empty position
#
# We need a mark for an empty position. Our first mark was zero, and it spoilt the lamp's mean. Floating-point numbers
# offer two more, $-\infty$ and NaN, and both follow fixed rules. *Guess each line:*

# %%
inf, nan = torch.tensor(torch.inf), torch.tensor(torch.nan)
print("exp(-inf)      ", torch.exp(-inf).item())
print("max(-inf, 3)   ", torch.maximum(-inf, torch.tensor(3.0)).item())
print("0 * inf        ", (0 * inf).item())
print("inf - inf      ", (inf - inf).item())
print("nan == nan     ", (nan == nan).item())
print("mean of 1, nan ", torch.stack([torch.tensor(1.0), nan]).mean().item())
print("softmax of -inf", torch.stack([-inf, -inf, -inf]).softmax(dim=-1).tolist())

# %% [raw] slide
# ## Zero, −∞ and NaN: three kinds of nothing
# {code}
#
# > **Guess first.** Each line.
#
# . . .
# {print}

# %% [raw] slide
# ## To leave something out, do not multiply: choose
# - $-\infty$ is the score of a position that may not take part: $\exp(-\infty) = 0$.
# - NaN **propagates**, and is not equal to itself: `x.isnan()` finds it. A row of −∞ alone gives it.
# - `0 * inf` is NaN: use `masked_fill` or `torch.where`, **before** you compute.
# . . .
#
# | what follows | a harmless filler |
# |---|---|
# | sum | 0 |
# | softmax | $-\infty$ |
# | mean | none: a mean has a sum *and a count* |

# %% [markdown]
# $-\infty$ is the score of a position that must not take part, because $\exp(-\infty)$ is exactly 0.
#
# NaN is the result when arithmetic has no answer, and it **propagates**: almost any arithmetic with NaN gives NaN, and
# only a choice (`where`, `masked_fill`) gets rid of it. One NaN in a batch makes nearly every parameter NaN after the
# next step. The exceptions are parameters that the spoilt example does not use, such as the embeddings of words that
# occur only in other sentences. NaN is not even equal to itself, so `x == nan` never finds it, but `x.isnan()` does.
#
# The last line combines −∞ and NaN. A row in which *every* score is −∞ has nothing to distribute: its largest score is
# −∞, and −∞ − (−∞) is NaN, so every weight is NaN. [Lecture @masking](@masking) decides what such a row should give.
#
# The third line, `0 * inf`, is the dangerous one. The obvious idea is to multiply by 0 whatever does not count. This
# works until one of these numbers is $\infty$. To leave something out, do not multiply. *Choose*, and choose **before**
# you compute.
#
# `torch.where(v > 0, v.log(), 0.0)` computes both branches and then takes one. At $v = 0$ the output is right. But in
# the backward pass the branch that was not taken gets the gradient 0, the logarithm multiplies it by $1/v = \infty$,
# and $0 \cdot \infty$ is NaN. `v.masked_fill(v <= 0, 1.0).log()` never takes the logarithm of 0, so both passes are
# safe.

# %%
there = torch.tensor([True, True, False])
seen = torch.tensor([4.0, 2.0, torch.inf])
print("multiplied  ", (seen * there).sum().item())
print("masked_fill ", seen.masked_fill(~there, 0.0).sum().item())    # ~ flips True and False
print("torch.where ", torch.where(there, seen, 0.0).sum().item())
print("as a score  ", seen.masked_fill(~there, -torch.inf).softmax(dim=-1))
v = torch.tensor([2.0, 0.0], requires_grad=True)
for logs in (torch.where(v > 0, v.log(), 0.0), v.masked_fill(v <= 0, 1.0).log()):
    v.grad = None
    logs.sum().backward()
    print("logarithms", logs.detach(), " gradient", v.grad)

# %% [markdown]
# `there` is a **boolean mask**. In this course True always means *counts*, *is there*, *may attend*. In torch,
# `scaled_dot_product_attention` follows this convention, but in the `key_padding_mask` of `nn.MultiheadAttention` True
# marks what is to be left out. Look it up each time.
#
# Which filler is harmless depends on the operation that follows. For a sum it is 0. For a softmax it is $-\infty$,
# because a 0 would be a score like any other, larger than all negative scores. For a mean no filler is harmless: a mean
# has a sum *and a count*, and both must leave out what is not there.
#
# ## Masked mean: the lamp again
#
# The mask of the shop's table comes from the lengths. A row of positions, (8,), is compared with a column of lengths,
# (4, 1), and broadcasting makes the result (4, 8). Here the library's `lengths_to_mask` does this; in the assignment
# you write the comparison. A row of the table, indexed with its row of the mask, keeps the entries where the mask is
# True. Do not compute the mask from the table, as in `table != 0`. That works today, because no rating is 0, but it
# fails as soon as zero stars are allowed.

# %%
lengths = torch.tensor([len(stars) for stars in ratings.values()])       # (4,)
mask = attention.lengths_to_mask(lengths, table.shape[1])            # (4, 8)
print("toaster", mask[1].tolist())
of_rows = [row[real].float().mean() for row, real in zip(table, mask, strict=True)]
means = torch.stack(of_rows)                                         # (4,)  of what is True
figures.padded_batch(ratings, pad="–", means=means.tolist())
#| caption: The same rectangle with its mask: hatched cells take no part in the mean.

# %% tags=["hide-input"]
by_hand = torch.tensor([sum(stars) / len(stars) for stars in ratings.values()])
assert torch.allclose(means, by_hand)

# %% [raw] slide
# ## Masked mean: the lamp again
# {figure}
#
# **Boolean mask**: True means *counts*, *is there*, *may attend*.

# %% [markdown]
# Now the lamp has the highest mean, and its mean no longer depends on whether the shop sells kettles. (Whether one
# rating should count as much as eight is another question.)
#
# How much harm does the padded mean do in a whole catalogue? Below are five hundred products, each rated between one
# and twenty times. How often a product was rated has nothing to do with how good it is. *Guess:* of the fifty products
# with the highest padded means, how many are also among the fifty with the highest correct means?

# %%
def catalogue(seed):
    torch.manual_seed(seed)
    times_rated = torch.randint(1, 21, (500,))                           # (500,)
    quality = 1 + 4 * torch.rand(500, 1)                                 # (500, 1)
    stars = (quality + torch.randn(500, 20)).round().clamp(1, 5)         # (500, 20)
    was_rated = attention.lengths_to_mask(times_rated, 20)               # (500, 20)
    stars = stars.masked_fill(~was_rated, 0.0)                           # (500, 20)
    by_width = stars.mean(dim=1)                                         # (500,)
    by_count = stars.sum(dim=1) / times_rated                            # (500,)
    return times_rated, quality[:, 0], by_width, by_count


times_rated, _, by_width, by_count = catalogue(seed=0)
clouds = {"divided by 20": (times_rated, by_width),
          "divided by the count": (times_rated, by_count)}
figures.scatter_panels(clouds, "how often it was rated", "mean rating (stars)",
                       impossible=(0, 1), band="below one star: impossible")
#| caption: Mean rating against the number of ratings, divided by the wrong and by the right
#|   count.

# %% [raw] slide
# ## In a whole catalogue the padded mean measures how often
# {figure}
#
# **Now you:** a@getting_ready, exercises 1 to 5

# %% [markdown]
# The next cell compares both means in three catalogues, each from its own seed. *In common* counts the products in the
# top fifty of both means. The *truly best* are the fifty products of the highest quality.

# %%
def correlation(a, b):
    return torch.corrcoef(torch.stack([a, b]))[0, 1].item()


def top_fifty(score):
    return set(score.topk(50).indices.tolist())


print("     | top fifty | truly best found by | padded mean's correlation with | padded mean")
print("seed | in common | padded      correct | the count     the correct mean | below 1 star")
for seed in range(3):
    times, truth, padded, correct = catalogue(seed)
    in_truth, in_padded, in_correct = top_fifty(truth), top_fifty(padded), top_fifty(correct)
    print(f"{seed:>4} | {len(in_padded & in_correct):>9} | {len(in_truth & in_padded):>6}"
          f"{len(in_truth & in_correct):>13} | {correlation(padded, times):>9.2f}"
          f"{correlation(padded, correct):>21.2f} | {(padded < 1).float().mean():>12.0%}")

# %% tags=["hide-input"]
assert len(in_padded & in_correct) < 30
assert correlation(padded, times) > correlation(padded, correct) + 0.1
assert 0.2 < (by_width < 1).float().mean() < 0.5
assert abs(correlation(by_count, times_rated)) < 0.2

# %% [markdown]
# The cloud on the right is level, as it should be, and widest where ratings are few, because a mean of one or two is
# noisy. The cloud on the left is a fan that opens with the number of ratings. About a third of the products lie in the
# hatched band, below one star, the lowest possible rating.
#
# The padded mean says more about how often a product was rated than about its correct mean, and it finds fewer of the
# truly best products than the correct mean does. Replace products by sentences and ratings by words, and you have a
# model in which short sentences count for little and long ones for much, and whose answer for a sentence depends on the
# rest of the batch. No message warns you.
#
# For values with features, (batch, n, d), the mask needs one more axis, so that it broadcasts over the features:
# `mask[..., None]` is (batch, n, 1).
#
# **Now you:** [a00](@getting_ready/assignment), exercise 2, the rectangle and its mask, and exercise 3, the masked
# mean.
#
# ## What a check tells you
#
# Each exercise in the assignments has a check under it, like the one in the next cell. Suppose a learner was asked for
# the masked mean of `values` (batch, n, d) with `mask` (batch, n), thought "the padding holds zeros anyway", and wrote
# this:

# %%
def masked_mean(values, mask):
    return values.sum(dim=1) / mask.count_nonzero(dim=1)[:, None]    # (batch, d) / (batch, 1)


check("masked_mean", masked_mean)

# %% [markdown]
# A check tests several **aspects** of your answer. Each has its own points, so one slip does not cost you all of them.
# A ✗ says what was found, what was expected, and at which index. If your numbers match those of a known mistake, the
# card names that mistake below the list.
#
# As long as the padding is 0, short sequences have the right mean, but other numbers in the padding change it. In
# *nothing but padding* one sequence is empty: its 3 numbers are infinite, because a sum was divided by a count of 0.
# The last line asks whether a gradient arrives and is finite.
#
# > **Check yourself.** Now the learner multiplies the values by the mask before the sum. This earns 4 of the 7 points,
# > because *what stands in the padding* passes. Which three lines still fail, and why?
# > <details><summary>Answer</summary><em>∞ in the padding</em> fails because 0 · ∞ is NaN. <em>nothing but padding</em>
# > fails because 0/0 is NaN, and <em>gradient</em> follows from 0/0. The repair is yours to make, in the
# > assignment.</details>
#
# Three more rules hold for checks:
#
# * Your points come from a second check, with other numbers and sizes than the one that you see.
# * A check does not care how you compute, by a loop or by `einsum`, in float32 or in float64, as long as a gradient can
#   flow through your answer.
# * A check refuses the function that *is* the answer:

# %%
check("masked_mean", attention.masked_mean)

# %% [markdown]
# If you are stuck in the assignment, ask for the hint that the card names. Each repairs one thing, and the later ones
# say more. Hints are not counted.
#
# ## What this was for: attention in three lines
#
# The softmax has turned two customers' scores for four products into weights, and each product has a mean rating. What
# rating may each customer expect, if each product counts in proportion to the customer's interest? Each customer's
# answer is a weighted average of four numbers, so all answers together are a matrix product. *Guess* the reader's
# rating roughly: the reader's weight for the lamp was 0.98, and the lamp has five stars.

# %%
scores = customers @ products.mT                                         # (2, 4)
weights = scores.softmax(dim=-1)                                         # (2, 4)
expected = weights @ means[:, None]                                  # (2, 4) @ (4, 1) = (2, 1)
print(f"the reader expects {expected[0].item():.2f} stars,",
      f"the customer from the rain {expected[1].item():.2f}")

# %%
wanted = ["light", "heat", "dry"]
figures.three_lines(customers, products, means, rows, list(ratings), wanted, row=0, column=3)
#| caption: Attention in three lines: scores of all pairs, weights along each row, and an
#|   average of the values by the weights.
#| label: three-lines

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
# | broadcasting | flush right; equal, or 1, which stretches; else an error |
# | autograd | `backward()` adds to `.grad`; a gradient has its parameter's shape |
# | all dot products | `q @ k.mT`, `einsum("btd,bsd->bts", q, k)` |
# | softmax | $\exp(e_i - m) / \sum_j \exp(e_j - m)$, $\; m = \max_j e_j$ |
# | masked mean | choose before you compute; divide by the count |
#
# **Now do** assignment a@getting_ready. **Next:** lecture @bottleneck.

# %% [markdown]
# Scores between vectors that ask and vectors that are asked, a softmax along the right axis, and a weighted average:
# that is attention. The customers' vectors are the **queries**, the products' vectors are the **keys**, and the
# products' mean ratings are the **values**. This is unscaled **dot-product attention**. The Transformer divides the
# scores by $\sqrt{d_k}$ first, and [lecture @lookup](@lookup) measures why. The rest of the course is about what
# attention is good for, why it was needed and where its vectors come from.
#
# ## Where the course comes from: five decks, one notation
#
# The course grew out of five public slide decks on attention and the Transformer. Each deck begins with the same
# question: how can a network use what it read long ago? They differ in how they build the answer:
#
# | deck (the last one is linked) | what it is best at | lectures |
# |---|---|---|
# | *CSE 576, Language Modeling: Attention* | from the bottleneck to attention in equations, step by step | [@bottleneck](@bottleneck)–[@self_attention](@self_attention) |
# | *Parametric Language Modeling: Transformers* | what a recurrence cannot do, and what self-attention still lacks | [@self_attention](@self_attention)–[@masking](@masking) |
# | *Foundations of NLP, lecture 7* | several heads, training tricks, which changes to the Transformer help | [@many_heads](@many_heads)–[@transformer](@transformer) |
# | *CSE5321, Introduction to NLP, lecture 11* | positions, results, drawbacks and variants | [@order](@order), [@transformer](@transformer), [@cheap_attention](@cheap_attention) |
# | [*CS11-711, Advanced NLP*](https://cmu-l3.github.io/anlp-spring2025/) | the whole Transformer with its code, and what changed since | [@transformer](@transformer)–[@cheap_attention](@cheap_attention) |
#
# Slides contain mistakes. [Lecture @errata_lab](@errata_lab) has the full list, and each entry has a test that fails on
# it. Decks and papers also differ in their symbols. This course has **one notation**: $e$ for scores, $\alpha$ for
# weights and $c$ for a context vector. Vectors are rows, and the softmax runs along the keys.
#
# ## In short
#
# | | | shape |
# |---|---|---|
# | reduction | `x.mean(dim=1)`: the named axis is removed | (batch, n, d) → (batch, d) |
# | broadcasting | flush right; equal, or one is 1 | (n,) − (n, 1) → (n, n) |
# | one training step | `optimizer.zero_grad()`, `loss.backward()`, `optimizer.step()` | `.grad` like its parameter |
# | all dot products | `q @ k.mT`, `torch.einsum("td,sd->ts", q, k)` | (t, d), (s, d) → (t, s) |
# | stable softmax | $\exp(e_i - m) / \sum_j \exp(e_j - m)$, $m = \max_j e_j$ | (…, n), sums to one |
# | masked mean | sum over what is there / count of what is there | (batch, n, d) → (batch, d) |
# | dot-product attention, unscaled | `(q @ k.mT).softmax(dim=-1) @ v` | (t, d), (s, d), (s, d_v) → (t, d_v) |
#
# A wrong number in the right shape does not crash, and the loss falls anyway, so say the shape and assert it.
# `backward()` adds gradients to `.grad`, and `.item()` and `.detach()` cut the graph. To leave something out, choose
# (`masked_fill`) instead of multiplying. What is missing becomes 0 in a sum and −∞ in a softmax. In a mean, leave it
# out of the sum *and* of the count.
#
# > **Check yourself.** (1) `x` is (5, 7, 16). What are the shapes of `x.sum(dim=-2)`, `x - x[:, :1]` and `x @ x.mT`?
# > (2) A colleague's loss falls from 9 to 1 and stays there. Which one line do you ask your colleague to print? (3) A
# > mask is (batch, n), and the scores are (batch, n_target, n). How do you make the two broadcast? (4)
# > `(w.item() * x).sum().backward()` raises `element 0 of tensors does not require grad and does not have a grad_fn`.
# > Why?
# > <details><summary>Answers</summary>(1) (5, 16), (5, 7, 16) and (5, 7, 7). (2) The shapes of prediction and target,
# > side by side. (Or the predictions themselves: are they all the same?) (3) Write it as <code>mask[:, None]</code>,
# > which is (batch, 1, n). (4) <code>.item()</code> gave a plain number. Nothing that was computed from it was
# > recorded, so there is no graph to walk backwards.</details>
#
# **Now do** [assignment @getting_ready](@getting_ready/assignment) (about 75 minutes, and 10 more for the extension):
# five exercises and a question in words. **Next:** [lecture @bottleneck](@bottleneck), on the problem that attention
# was invented to solve.
#
# **Further reading.** [+@harris2020]: figure 1 shows shapes, axes and broadcasting on one page. [+@goodfellow2016]:
# section 4.1 covers overflow and underflow, with softmax as the example, and section 6.5 covers back-propagation.
# [+@blanchard2021]: where the plain formulas neither overflow nor underflow, the shifted formulas are about as
# accurate. See also PyTorch's notes
# [*Broadcasting semantics*](https://docs.pytorch.org/docs/stable/notes/broadcasting.html) and
# [*Autograd mechanics*](https://docs.pytorch.org/docs/stable/notes/autograd.html). [+@rogozhnikov2022] gives names to
# axes. [+@goldberg1991] explains the rounding errors behind sums such as 0.1 + 0.2.
