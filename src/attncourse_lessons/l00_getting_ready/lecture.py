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
# *About 48 minutes, of which a few seconds are computing time. You need Python, school calculus (the chain rule, exponentials,
# logarithms), mean and variance, and should have seen a PyTorch tensor. No knowledge of language models or attention is
# assumed.*
#
# After this lecture you can
#
# * say the **shape** of every line that you read, and which axis a reduction removes;
# * predict what **broadcasting** does, and catch the bug that it can hide;
# * explain what `backward()`, `.grad` and `no_grad` do (**autograd**, backpropagation), and write a training loop with a
#   **module** and an **optimiser**;
# * write all dot products between the rows of two matrices, by `@` and by `einsum`;
# * write a **softmax** that does not overflow, and average with a **boolean mask**;
# * read what a check of this course tells you.
#
# ## A mean over padding: a wrong number in the right shape
#
# A shop wants to list its products by their mean rating, from one star to five. The kettle has been rated eight times, the
# lamp once, by somebody who loved it. A tensor is a rectangle, so the short rows are filled with zeros. That is called
# **padding**.

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
# *Before you run the next cell*, decide what the list should look like: which product comes first, and with how many stars?

# %%
ratings = {"kettle": [4, 5, 3, 4, 4, 5, 4, 3], "toaster": [2, 3, 1, 2, 3],
           "umbrella": [1, 2], "lamp": [5]}
table, _ = data.pad_batch(list(ratings.values()), pad=0)    # (4, 8)  the library pads
padded_means = table.float().mean(dim=1)             # (4, 8) → (4,)
figures.padded_batch(ratings, pad=0, means=padded_means.tolist(), counted=True)
#| caption: Padding: rows of different lengths in one rectangle, filled with zeros, and the
#|   mean of each row with its zeros counted.

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
# The lamp, rated five out of five, ends with less than one star, on a scale that begins at one. Nothing crashed, and
# there was no warning. The number depends on the other products, too: without the kettle the rectangle would be narrower
# and the lamp's mean higher.
#
# The models of this course are made of such averages. A sentence becomes the mean of its words' vectors (**mean pooling**).
# Attention is a mean in which some words count more than others. And sentences rarely have the same length. So the bug that
# you have just seen, *a wrong number in the right shape*, can come back in every lecture. This lecture is about seeing it
# coming, and at the end the lamp gets its five stars.
#
# ## How to use these pages
#
# Open a terminal in the course's folder and run `attncourse doctor` (if that is not found, `.venv/bin/attncourse
# doctor`). It tests what the course needs and prints a line for each thing, with ✓ for what works and ✗ for what does
# not. Below a ✗ it says how to fix it.
#
# Shift-Enter runs a cell and goes to the next. Where the text asks for a guess, make one before you run the cell, in
# writing if you can: an answer that contradicts your guess is one that you will remember. If you have lost track of
# changed variables, *Kernel → Restart Kernel and Run All Cells* starts again.
#
# Boxes named **A common mistake** show errors found in public slides, which you need not have seen. The symbols are in
# [Notation](../docs/notation.md): keep it open in a second tab.
#
# ## Tensors, axes and shapes: say the shape
#
# A **tensor** is an array of numbers with a **shape**, a tuple that says how they are arranged. Each entry of the tuple
# belongs to one **axis** (also called a dimension). In this course an axis has a meaning and keeps it. Three of them
# appear on every page:
#
# * **batch**: which sentence. Sentences in a batch must not influence each other.
# * **n**: which position in the sentence. (Two lengths at once get two names, `n_source` and `n_target`.)
# * **d**: which feature. A word enters a network as a vector of $d$ numbers.
#
# A tensor also has a **dtype**, the type of its numbers. The ratings above are integers (`int64`). torch refuses to average
# integers; `.float()` converts them to `float32`. And it has a **device**: the CPU, throughout this course.
#
# Here are two sentences of three words with four features, numbered so that we can follow them:

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
# The comment at the end of a line gives the shape of its result. Nearly every line that changes a shape has one. Make it a
# habit: the formula says what you mean, and the shape says what the line does.
#
# A **reduction**, such as `sum`, `mean` or `amax`, removes an axis. (`max` along an axis returns two tensors, the values
# and their **indices**.) Which axis? `dim=1` does not mean "one mean for each index along axis 1". It names the axis
# that *goes*.

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
# position. `x[:, None]` makes a new axis of length one where `None` stands. `x.mT` swaps the last two axes and leaves the
# batch alone. A negative `dim` counts the axes from the end.

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
# `dim=-1` is the features, whether or not a batch stands in front. Code that says `-1` and `-2` works for one sentence and
# for a batch of them.
#
# Now a step at which many people stumble. From each word we want to subtract its mean over the four features.

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
# 1. Write the shapes under each other, flush **right**; fill with 1s on the left.
# 2. In each column the numbers are equal, or one of them is 1: it stretches.
# 3. Anything else is an error.
#
# ```
# x           (2, 3, 4)            x       (2, 3, 4)
# mean        (2, 3, 1)            mean       (2, 3)   →  4 against 3: error
# x - mean    (2, 3, 4)
# ```

# %% [markdown]
# The mean gave one number for each word, as it should. It could not be subtracted, because its last axis was gone:
# torch tried to pair the three positions with the four features. `keepdim=True` leaves the axis in its place, with
# length one. Then the one mean is used for all four features.
#
# ## Broadcasting: an axis of length one stretches
#
# When two tensors of different shape meet in a sum, a product or a comparison, torch **broadcasts** them. The whole rule:
#
# 1. Write the two shapes under each other, flush *right*. The shorter one is filled with 1s on the left.
# 2. In each column the two numbers must be equal, or one of them must be 1. A 1 stretches to the other number.
# 3. Anything else is an error.
#
# ```
#   x           (2, 3, 4)            x       (2, 3, 4)
#   mean        (2, 3, 1)            mean       (2, 3)   →  4 against 3: error
#   x - mean    (2, 3, 4)
# ```
#
# Below you choose both shapes. Dotted cells are not in memory: they are the copies that broadcasting acts as if it
# had made. Predict each result before you look. Start with (3, 1) and (4,), and then find a pair that does not fit.
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
# A column minus a row is a table of all differences. That is useful: a mask compares a column of lengths with a row of
# positions in the same way. But three numbers minus three numbers gave nine, without a warning, because one of them was a
# **column vector**, (3, 1).
#
# How can torch use cells that are not in memory? A tensor knows its **strides**: how many numbers to skip
# in memory to reach the next index along each axis. *Guess two things:* the stride of an axis that was stretched, and
# whether `x.mT` and `x.reshape(2, 4, 3)`, which have the same shape, hold the same numbers in the same places.

# %%
column = torch.tensor([[10], [20], [30]])            # (3, 1)
stretched = column.expand(3, 4)                      # (3, 4)  what broadcasting does inside
in_memory = stretched.untyped_storage().nbytes() // stretched.element_size()
print("strides", stretched.stride(), " numbers in memory:", in_memory)
print("mT      ", x.stride(), "→", x.mT.stride(), " rows", x.mT[0, :2].tolist())
print("reshape ", x.stride(), "→", x.reshape(2, 4, 3).stride(),
      " rows", x.reshape(2, 4, 3)[0, :2].tolist())

# %% [markdown]
# Zero: along that axis torch reads the same number again and again. So stretching costs no memory. (The *result* of
# the subtraction does: a (200, 1) and a (200,) make 40,000 numbers.)
#
# Strides also explain the last two lines. `x.mT` exchanges two strides and moves no number: its first row is the
# first feature of all three positions, (0, 4, 8). `reshape` reads the numbers in their old order and cuts them into
# new rows: its first row, (0, 1, 2), is three features of one position. **A reshape is not a transpose.** Confusing
# them is a common bug where attention splits its heads ([lecture @many_heads](@many_heads)): again a wrong number in
# the right shape.
#
# <details><summary>Going further: view and reshape</summary><code>view</code> does what <code>reshape</code> does, and
# refuses to copy. The numbers of <code>x.mT</code> do not lie in memory in the order in which they are read. So
# <code>x.mT.view(2, 12)</code> raises an error, where <code>reshape</code> makes a copy.</details>
#
# Now practise, on six lines of code. Say the shape aloud before you choose: only the first answer counts. If fewer
# than five are right, read the last two sections once more, and *start again*.

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
# > **Check yourself.** `table` is (batch, n_target, n_source): a number for each pair of positions of two sentences.
# > `lengths` is (batch,). You want to compare every source position with its sentence's length, so that the result
# > broadcasts against `table`. Which shapes must the two have?
# > <details><summary>Answer</summary>The positions (n_source,), and the lengths (batch, 1, 1), with two new axes. So the
# > result is (batch, 1, n_source), and the 1 stretches over the targets. With lengths (batch, 1) it would be
# > (batch, n_source), which lines up with the wrong axes.</details>
#
# ## Autograd: a gradient in ten lines
#
# To **train** a model is to measure how wrong it is by one number, the **loss**, and to change the model's numbers,
# its **parameters**, so that the loss falls. In which direction? The slope of the loss with respect to one parameter is a
# **partial derivative**; all of them together are the **gradient**. A small step against it goes downhill. The **learning
# rate** says how long the step is.
#
# Take the loss $(w - 1)^2$ at $w = 4$. In the **forward pass** torch computes it and records each operation in the
# **computational graph**, here two steps. In the **backward pass** it applies the chain rule along that graph, from the
# loss back to the parameter: each step multiplies the slope that arrives from its right by a slope of its own.

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
# > **Guess first.** What does a second `backward()` leave in `.grad`, and where does a step of 0.1 against that lead?

# %% [markdown]
# Read the lower arrows from the right: the loss has slope 1 with respect to itself, squaring multiplies it by 6, and
# subtracting 1 leaves it as it is. This is **reverse-mode automatic differentiation**; PyTorch's engine for it is called
# **autograd**. Applied to a neural network it is **backpropagation**. The loss is a single number, and for that case
# reverse mode is cheap: one backward pass, which costs a few forward passes at most, gives the slope with respect to every
# parameter.
#
# Now torch. *Guess:* what does a second `backward()` leave in `.grad`, and where does a step of 0.1 against that lead?

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
# Broadcasting uses a number more than once. Below, `b` has four numbers, and each is added to six rows of `x`. *Guess* its
# gradient.

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
# These cells show four rules.
#
# * `backward()` *adds* to `.grad`. (The step above used 12 where the gradient is 6.) Set it to `None` before the next step (an
#   optimiser's `zero_grad()` does that).
# * Change parameters under `torch.no_grad()`. Outside it torch refuses a change in place (`w -= …`), and `w = w - …`
#   makes a new tensor, whose `.grad` stays empty.
# * `.item()` and `.tolist()` give plain numbers, `.detach()` a tensor without its graph, as NumPy needs it. What is computed
#   from them has no gradient. Most checks of this course ask whether a gradient flows through your answer.
# * A gradient has the shape of its parameter, always. Where a number is used more than once, the gradients from all its uses
#   are added up (the chain rule for several variables): six copies of each number of `b`, so 6.
#
# ## A silent broadcasting bug: the loss falls anyway
#
# What does it cost if nobody notices? We train the smallest model there is, `nn.Linear(3, 1)` (three weights and a bias),
# to predict the rating of a product from three measured features. It returns a column, (200, 1). The first run subtracts
# the ratings, (200,), from this column as it stands. The second run first makes the predictions (200,), by
# `prediction[:, 0]`. The two runs are identical otherwise.
#
# *Guess:* will the first loss fall? Will it fall to zero, to somewhere else, or stay?

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
# Both fall steeply, and the first one settles as a healthy loss does. If you saw that curve alone, you would tune the
# learning rate, ask for more data, and write that the task is hard. Look at what the model says instead.

# %%
clouds = {name: (rating, prediction) for name, prediction in predicted.items()}
figures.scatter_panels(clouds, "true rating", "predicted rating", diagonal="prediction = truth")
#| caption: Predicted against true ratings after training with either shape.

# %% [raw] slide
# ## What the model says
# {figure}
#
# The same for every product: the mean of all ratings.

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
# It says the same for every product: the mean of all ratings. The difference was (200, 200), every prediction $p_i$ against
# *every* rating $r_j$. The mean of its squares splits into three terms ($N$ = 200):
#
# $$\frac1{N^2} \sum_{i,j} (p_i - r_j)^2 = \operatorname{Var}(p) + \operatorname{Var}(r) + (\bar p - \bar r)^2$$
#
# The first and the last become zero if all predictions are the mean rating $\bar r$. The second does not depend on
# the model: it remains. So the wrong loss *punishes* a model that tells products apart, and ends at the variance of
# the ratings, which looks like an honest result:

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
# **A falling loss is no proof.** One line would have told us: `assert prediction.shape == rating.shape`. Write it
# wherever broadcasting could hide a bug. (torch's own `mse_loss` at least warns.) The right run does not end at 0 either:
# no model can predict the noise in the ratings. Its variance remains, less the little that four parameters fit by chance.
#
# ## Modules and optimisers: one training step
#
# `nn.Linear(3, 1)` is a **module**: an object that holds its parameters, here a weight and a bias, and computes
# $x W^\top + b$ when it is called. (torch stores the weight as (out, in), hence the transpose.)
# `model.parameters()` lists all that can be learned, of a module and of the modules in it. An **optimiser** does what we
# did by hand under `no_grad`: `zero_grad()` clears the old gradients, `step()` goes downhill. Ours is **SGD**, stochastic
# gradient descent. It is *stochastic* because each step sees a random **batch** of rows, here 20. *Guess* the shapes of the
# two parameters, and the sign of the bias's gradient. (The bias starts near 0, and the ratings lie around 3.)

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
# A larger bias lowers the loss, so its gradient is negative. A training loop repeats this step. (Ours by hand took all rows.)
#
# Your own models will be classes like the one below. `__init__` makes the parts and keeps them in `self`. `forward` says
# what is computed when the model is called.

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
# **Now you:** [a00](@getting_ready/assignment), exercise 5: a loop with two bugs, and which learning rates work. (The
# exercises run from easy to hard, but each can be done alone, in any order. What the card under your answer says is explained
# below, in *What a check tells you*.)
#
# ## Dot products of all pairs: matrix multiplication and einsum
#
# Attention begins with a question of the form "how well does each of these match each of those?" Two customers know what
# they want, and each product has something to offer, both as vectors over *light*, *heat* and *dryness*. How well they
# match is the **dot product**: multiply feature by feature, and add up. *Guess* from the numbers below: which product
# will each of the two like best, and with which score?

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
# The three say the same; the checks accept all three.

# %% [markdown]
# Eight dot products, one at a time. That is clear and, for thousands of rows, hopelessly slow. **Matrix multiplication** does
# all at once (code without the loop is called **vectorised**). In Python it is written `@`. It pairs the *last* axis of the
# left factor with the *last but one* of the right and sums over the pair. So the products are transposed: (2, 3) @ (3, 4) is
# (2, 4).
#
# There is a third way, which needs no transpose and says what it does. In **einsum** (Einstein summation) each axis gets a
# letter. An axis whose letter is missing after the arrow is summed over. Here that is f, the features.

# %%
by_matmul = customers @ products.mT                            # (2, 3) @ (3, 4) = (2, 4)
by_einsum = torch.einsum("cf,pf->cp", customers, products)     # customer, feature, product
assert torch.equal(scores, by_matmul) and torch.equal(scores, by_einsum)
for c, who in enumerate(["reader", "from the rain"]):
    print(f"{who:>14}:", dict(zip(ratings, scores[c].tolist(), strict=True)))

# %% [markdown] erratum="a star for a matrix product"
# The loop, `@` and `einsum` compute the same numbers, and the course uses whichever is clearest.
#
# > **A common mistake: a star for a matrix product.** `softmax(…) * XV` is sometimes printed for the last step of
# > attention. In Python `*` is **elementwise**: it multiplies entry by entry, with broadcasting. Often the shapes do not
# > fit, and you are told. In a drawing where everything is square you are not:

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
# That is why the examples of this course have sizes that are all different: with 2, 3 and 4 most mistakes crash.
#
# > **Check yourself.** `q` is (batch, n_target, d), `k` is (batch, n_source, d). Write all scores with `@` and with `einsum`.
# > <details><summary>Answer</summary><code>q @ k.mT</code>, because <code>@</code> and <code>.mT</code> leave the axes in
# > front alone, and <code>torch.einsum("btd,bsd->bts", q, k)</code>. Both are (batch, n_target, n_source). With
# > <code>k.T</code> the batch would be transposed as well: <code>.T</code> is for matrices only.</details>
#
# Six more lines, some of them with `@` and `einsum`. If fewer than five are right, go back to the section of the
# lines that you missed, *Broadcasting* or this one, and then *start again*.

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
# **Now you:** [a00](@getting_ready/assignment), exercise 4: all *distances* at once.

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
# Scores can be any numbers. To average with them they have to become **weights**: positive, and with a sum of one, like
# probabilities. The usual way is the **softmax**. Take the exponential, which makes anything positive, and divide by the
# sum:
#
# $$\operatorname{softmax}(e)_i = \frac{\exp(e_i)}{\sum_j \exp(e_j)}$$

# %%
def naive_softmax(scores):                                               # (n,)  one row
    exponentials = scores.exp()                                          # (n,)
    return exponentials / exponentials.sum()                             # (n,)


interest = torch.stack([naive_softmax(row) for row in scores])           # (2, 4)
rows = ["reader", "from the rain"]
viz.draw_weights(interest, rows=rows, columns=list(ratings), title="weights")
#| caption: The softmax of each customer's scores: a row for each customer, which sums to one.

# %% [markdown]
# Each customer has one unit of interest and distributes it over the products. The largest score takes the most, and no
# weight is exactly zero. (The umbrella's 0.00 is 0.002, rounded.) Each row is divided by its own sum.
#
# Suppose that the scores had been larger. Adding the same number to all scores of a row should leave the weights unchanged:
# only differences matter. *What will the next cell print?*

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
# Above 88.7 the exponential **overflows**: it is larger than the largest float32, so it becomes ∞, and ∞/∞ has no value.
# It is `nan`, **not a number**. On the other side $\exp(-110)$ **underflows**, to 0, and 0/0 is `nan`, too. How large may
# a single score be? Up to the logarithm of the largest number that its type can hold. (What will the last line give?)

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
# 88.7 is not much: a dot product over a hundred features of size 1 can be 100. In float16, which takes half the
# memory and is fast on GPUs, the naive formula fails at scores of about 11, or earlier: the *sum* overflows
# before its terms do. (PyTorch's automatic mixed precision therefore computes `exp` and `softmax` in float32.) Of 1,000
# scores of 82 each exponential is finite, the sum is ∞, and every weight is 0, without a
# `nan`. (bfloat16 has the range of float32 and fewer digits.)
#
# The remedy: only differences matter. Whatever we subtract from *all* scores of a row, a common factor cancels:
#
# $$\frac{\exp(e_i - m)}{\sum_j \exp(e_j - m)} = \frac{\exp(-m)\, \exp(e_i)}{\exp(-m) \sum_j \exp(e_j)} = \frac{\exp(e_i)}{\sum_j \exp(e_j)}$$
#
# Let $m$ be the largest score of the row. Then the largest exponent is 0, nothing overflows, and the sum is at least 1, so
# nothing is divided by 0. This is the **stable softmax**. In the logarithm of the sum the shift does not cancel, but
# it can be added back: that is the **log-sum-exp trick**, which is in every cross-entropy from lecture @bottleneck on. (Where
# to add it is the extension of the assignment.)
#
# Shift the scores below and watch both softmaxes. Before the one *as written* turns to `nan` on the left, there is a stretch
# where it is worse than that. What is worse than `nan`?

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
# Below about −87 the exponentials are **subnormal** numbers, which have fewer digits the smaller they are. Shifted by −102,
# the three are 4, 27 and 533 times the smallest number that float32 can hold, and the weights are wrong in the third decimal.
# Shifted by −106, two of them are 0, so the third has all the weight. Both *look* like weights: a `nan` at least can be
# seen. With the largest score subtracted nothing changes:

# %%
def softmax_of_a_row(scores):                                            # (n,)
    exponentials = (scores - scores.max()).exp()                         # (n,)  none above 1
    return exponentials / exponentials.sum()                             # (n,)


for shift in (0.0, 1000.0, -1000.0):
    weights = softmax_of_a_row(row + shift)
    print(f"{shift:>7}:", [round(weight, 3) for weight in weights.tolist()])
    assert torch.allclose(weights, row.softmax(dim=-1), atol=1e-6)

# %% [markdown]
# torch's `softmax` does the same inside. The fast attention of [lecture @cheap_attention](@cheap_attention) rests on this
# subtraction, done block by block. In the assignment you write it for any number of rows.
#
# > **Check yourself.** (1) What is the softmax of three equal scores? (2) Of $(0, \ln 3)$? (3) All scores are doubled. Do
# > the weights change? (4) Can three finite scores have exactly the weights (½, ½, 0)?
# > <details><summary>Answers</summary>(1) A third each. (2) One quarter and three quarters, because the exponentials are 1
# > and 3. (3) Yes, unless all scores are equal: the differences double, and the largest score gets more. Only
# > <em>adding</em> the same number to all is free. (4)
# > Mathematically not: an exponential is above 0. In float32 yes: of (0, 0, −110) the third exponential is rounded to
# > 0.</details>
#
# **Now you:** [a00](@getting_ready/assignment), exercise 1.
#
# ## Zero, −∞ and NaN: how to mark an empty position
#
# We need a mark for an empty position. Zero was our first, and it spoilt the lamp's mean. Floating-point numbers offer two more,
# $-\infty$ and NaN, and both follow fixed rules. *Guess each line:*

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
# $-\infty$ is the score of a position that may not take part, since $\exp(-\infty)$ is exactly 0. NaN is the result when
# arithmetic has no answer, and it **propagates**: almost any arithmetic with it gives NaN, and only a choice (`where`,
# `masked_fill`) gets rid of it. One NaN in a batch makes nearly every parameter NaN after the next step (all but those
# that the spoilt example does not use, such as the embeddings of words in other sentences). It is not even equal to
# itself, so `x == nan` never finds it; `x.isnan()` does.
#
# The last line joins the two. A row in which *every* score is −∞ has nothing to distribute: the largest is −∞, −∞ − (−∞) is
# NaN, and so is every weight. [Lecture @masking](@masking) decides what such a row should give.
#
# The third line is the dangerous one. "Multiply what does not count by 0" is everybody's first idea. It works until
# somewhere in what does not count there is an $\infty$. To leave something out, do not multiply. *Choose*, and choose
# **before** you compute. `torch.where(v > 0, v.log(), 0.0)` computes both branches and then takes one. At $v = 0$ the
# output is right. But on the way back the branch that was not taken gets the gradient 0, the logarithm multiplies it by
# $1/v = \infty$, and $0 \cdot \infty$ is NaN. `v.masked_fill(v <= 0, 1.0).log()` never takes the logarithm of 0, so
# both directions are safe.

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
# `there` is a **boolean mask**. In this course True always means *counts*, *is there*, *may attend*. (Not everybody
# agrees. In torch itself, `scaled_dot_product_attention` does, while the `key_padding_mask` of `nn.MultiheadAttention` is
# True for what is to be left out. Look it up each time.)
#
# Which filler is harmless depends on the operation that follows. For a sum it is 0. For a softmax it is $-\infty$; a 0 would
# be a score like any other, better than all negative ones. For a mean it is no number at all: a mean has a sum *and a
# count*, and both must leave out what is not there.
#
# ## Masked mean: the lamp again
#
# The mask of the shop's table comes from the lengths: a row of positions, (8,), is compared with a column of lengths, (4, 1).
# Broadcasting makes (4, 8) of them. Here the library's `lengths_to_mask` does it; in the assignment you write the comparison.
# A row of the table, indexed with its row of the mask, keeps the entries that are True. The mask should not come from the
# table, as in `table != 0`. That works today, because no rating is 0, and it fails as soon as zero stars are allowed.

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
# The lamp has the highest mean now, and its mean no longer depends on whether the shop sells kettles. (Whether one rating should
# count as much as eight is a fair question, but it is not about padding.)
#
# How much harm does the padded mean do in a whole catalogue? Below are five hundred products, rated between once and
# twenty times. How often a product was rated has nothing to do with how good it is. *Guess:* of the fifty products with
# the highest padded means, how many are also among the fifty with the highest correct means?

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
# Here are three catalogues, each from its own seed. *In common* is how many products are in the top fifty of both means. The
# *truly best* are the fifty products of the highest quality.

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
# On the right the cloud is level, as it should be, and widest where ratings are few: a mean of one or two is noisy. On the
# left it is a fan that opens with the number of ratings, and about a third of the products lie in the hatched band, below one
# star, the lowest rating that anybody can give. The padded mean says more about how often a product was rated than about its
# correct mean, and finds fewer of the truly best. Replace products by sentences and ratings by words, and you have a model in
# which short sentences are faint and long ones loud, and whose answer for a sentence depends on what else was in the batch.
# No message will tell you so.
#
# With features the mask needs one more axis, so that it broadcasts over them: `mask[..., None]` is (batch, n, 1), beside
# values of (batch, n, d).
#
# **Now you:** [a00](@getting_ready/assignment), exercise 2, the rectangle and its mask, and exercise 3.
#
# ## What a check tells you
#
# Each exercise of the assignments has a check under it, as in the next cell. Suppose that a learner was asked for the
# masked mean of `values` (batch, n, d) by `mask` (batch, n), thought "the padding holds zeros anyway", and wrote this:

# %%
def masked_mean(values, mask):
    return values.sum(dim=1) / mask.count_nonzero(dim=1)[:, None]    # (batch, d) / (batch, 1)


check("masked_mean", masked_mean)

# %% [markdown]
# A check tests several **aspects** of your answer, each with points of its own, so one slip does not cost you all of them. A
# ✗ says what was found, what was expected, and at which index. While the padding is 0, short sequences have the right mean.
# Other numbers in the padding change it. In *nothing but padding* one sequence is empty: its 3 numbers are infinite, a sum
# divided by a count of 0. (The last line asks whether a gradient arrives, and is finite.) If your numbers match those of a
# known mistake, the card names it below the list.
#
# > **Check yourself.** Now the learner multiplies the values by the mask before the sum. That earns 4 of the 7 points:
# > *what stands in the padding* passes. Which three lines still fail, and why?
# > <details><summary>Answer</summary><em>∞ in the padding</em>, because 0 · ∞ is NaN; <em>nothing but padding</em>, where
# > 0/0 is NaN; and <em>gradient</em>, which follows from 0/0. The repair is yours to make, in the assignment.</details>
#
# Three more things about checks. Your points come from a check on other numbers and other sizes than the one that you see.
# A check does not care how you compute, by a loop or by `einsum`, in float32 or in float64, as long as a gradient can flow
# through it. And it refuses the function that *is* the answer:

# %%
check("masked_mean", attention.masked_mean)

# %% [markdown]
# If you are stuck in the assignment, ask for the hint that the card names: each mends one thing, and the later ones say
# more. Nobody counts them.
#
# ## What this was for: attention in three lines
#
# Two customers have scores for four products, the softmax has turned them into weights, and each product has a mean rating.
# What rating may each customer expect, if the products count by their interest? It is an average of four numbers by the
# weights, one for each customer: a matrix product. *Guess* roughly: the reader's weight for the lamp was 0.98, and the lamp
# has five stars.

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
# Scores between those who ask and those who are asked, a softmax along the right axis, a weighted average: that is
# attention. The customers' vectors are the **queries**, the products' vectors are the **keys**, and the products' mean
# ratings are the **values**. (This is unscaled **dot-product attention**. The Transformer divides the scores by $\sqrt{d_k}$
# first; why, [lecture @lookup](@lookup) measures.) What attention is good for, why it was needed and where its vectors come
# from is the subject of the rest of the course.
#
# ## Where the course comes from: five decks, one notation
#
# The course grew from five public decks of slides on attention and the Transformer. Each begins with the same question,
# how a network can use what it read long ago. They differ in how they build the answer:
#
# | deck (the last is linked) | what it is best at | lectures |
# |---|---|---|
# | *CSE 576, Language Modeling: Attention* | from the bottleneck to attention in equations, step by step | [@bottleneck](@bottleneck)–[@self_attention](@self_attention) |
# | *Parametric Language Modeling: Transformers* | what a recurrence cannot do, and what self-attention still lacks | [@self_attention](@self_attention)–[@masking](@masking) |
# | *Foundations of NLP, lecture 7* | several heads, training tricks, which changes to the Transformer help | [@many_heads](@many_heads)–[@transformer](@transformer) |
# | *CSE5321, Introduction to NLP, lecture 11* | positions, results, drawbacks and variants | [@order](@order), [@transformer](@transformer), [@cheap_attention](@cheap_attention) |
# | [*CS11-711, Advanced NLP*](https://cmu-l3.github.io/anlp-spring2025/) | the whole Transformer with its code, and what changed since | [@transformer](@transformer)–[@cheap_attention](@cheap_attention) |
#
# Slides contain mistakes. The full list, each entry with a test that fails on it, is in [lecture @errata_lab](@errata_lab).
# Decks and papers also differ in their symbols. This course has **one notation**: $e$ for scores, $\alpha$ for weights, $c$
# for a context vector, vectors as rows, the softmax along the keys.
#
# ## In short
#
# | | | shape |
# |---|---|---|
# | reduction | `x.mean(dim=1)`: the axis that is named goes | (batch, n, d) → (batch, d) |
# | broadcasting | flush right; equal, or 1 | (n,) − (n, 1) → (n, n) |
# | one training step | `optimizer.zero_grad()`, `loss.backward()`, `optimizer.step()` | a `.grad` has its parameter's |
# | all dot products | `q @ k.mT`, `torch.einsum("td,sd->ts", q, k)` | (t, d), (s, d) → (t, s) |
# | stable softmax | $\exp(e_i - m) / \sum_j \exp(e_j - m)$, $m = \max_j e_j$ | (…, n), sums to one |
# | masked mean | sum over what is there / count of what is there | (batch, n, d) → (batch, d) |
# | dot-product attention, unscaled | `(q @ k.mT).softmax(dim=-1) @ v` | (t, d), (s, d), (s, d_v) → (t, d_v) |
#
# A wrong number in the right shape does not crash, and the loss falls anyway: say the shape, and assert it. `backward()` adds
# gradients to `.grad`; `.item()` and `.detach()` cut the graph. Leave out by choosing (`masked_fill`), not by multiplying.
# What is missing becomes 0 in a sum and −∞ in a softmax. A mean needs a sum without it *and* a count without it.
#
# > **Check yourself.** (1) `x` is (5, 7, 16). What are the shapes of `x.sum(dim=-2)`, of `x - x[:, :1]`, of `x @ x.mT`? (2)
# > A colleague's loss falls from 9 to 1 and stays there. Which one line do you ask for? (3) A mask is (batch, n), the
# > scores are (batch, n_target, n). How do they meet? (4)
# > `(w.item() * x).sum().backward()` raises `element 0 of tensors does not require grad and does not have a grad_fn`. Why?
# > <details><summary>Answers</summary>(1) (5, 16), (5, 7, 16), (5, 7, 7). (2) The shapes of prediction and target, side by
# > side (or the predictions themselves: are they all the same?). (3) As <code>mask[:, None]</code>, which is
# > (batch, 1, n). (4) <code>.item()</code> gave a bare number. Nothing that was computed from it was recorded, so there
# > is no graph to walk backwards.</details>
#
# **Now do** [assignment @getting_ready](@getting_ready/assignment) (about 75 minutes, and 10 more for the extension): five
# exercises and a question in words. **Next:** [lecture @bottleneck](@bottleneck), on the trouble that attention was invented for.
#
# **Further reading.** [+@harris2020]: figure 1 has shapes, axes and broadcasting on one page. [+@goodfellow2016],
# section 4.1, on overflow and underflow, with softmax as the example; section 6.5 on back-propagation.
# [+@blanchard2021]: where the plain formulas neither overflow nor underflow, the shifted ones are of similar accuracy.
# PyTorch's notes [*Broadcasting semantics*](https://docs.pytorch.org/docs/stable/notes/broadcasting.html) and
# [*Autograd mechanics*](https://docs.pytorch.org/docs/stable/notes/autograd.html).
# [+@rogozhnikov2022], for axes with names. [+@goldberg1991], when you want to know why 0.1 + 0.2 is what it is.
