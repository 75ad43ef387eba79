# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3 (ipykernel)
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Assignment @getting_ready · Getting ready
#
# In this assignment you write five small functions. One trains a model. The others compare all rows of one table with
# all rows of another, turn scores into weights, pack sequences of different lengths into one rectangle, and take a mean
# that leaves out the padding. They follow the order of [lecture @getting_ready](@getting_ready), which has all that you
# need, and each can be done alone. All but the training loop take five lines at most, but you have to know the shape of
# everything that you write.
#
# Each exercise has a check under it, which you may run as often as you like, even before you have written anything. It
# tells you what it found, what it expected, and, if it recognises your mistake, the probable cause. Your points are
# decided by a second check with other numbers and other sizes, so an answer that fits only the visible check is not
# enough. After each check comes a cell that *uses* what you wrote. It waits until the check gives all points, and it is
# not graded.
#
# {exercises}
#
# If you are stuck, `hint("softmax", 1)` prints a hint; the later hints of an exercise say more. An answer is refused if
# it calls a function that already is the answer, torch's or the course's, because here you build that function
# yourself. Where the inputs are tensors of numbers, use only torch's operations, without `.item()`, `.detach()` or
# NumPy in between: the checks also ask whether a gradient flows from your result back to the inputs.

# %% locked=true
try:
    from attncourse import check, hint, solved
except ModuleNotFoundError:
    raise ImportError(
        "This notebook needs the attncourse package: open it with `make lab` in the course's "
        "folder, or choose a kernel of the environment in which you installed the course."
    ) from None

import torch
from torch import Tensor, nn

ratings = {"kettle": [4, 5, 3, 4, 4, 5, 4, 3], "toaster": [2, 3, 1, 2, 3],
           "umbrella": [1, 2], "lamp": [5]}

# %% [markdown]
# ## 1 · A training loop
#
# The lecture's model, `nn.Linear(d, 1)`, learns to predict one number for each row. Its weight and its bias start at
# zero, so that every run gives the same result. Each of `steps` steps uses all rows: the loss is the mean squared
# error, and every parameter moves downhill by `lr` times its gradient. The function returns the losses, each as it was
# *before* its step, and the predictions of the trained model, after the last step. With no step at all there are no
# losses, and the predictions are zeros. No gradient has to flow through this answer, so you may use `.item()` and
# `.detach()` here.
#
# **First find a bug.** The next cell is a fellow student's loop. It runs, and its loss falls. **It has two mistakes.**
# Do not begin by reading the code: *test* it. Do its predictions follow the ratings? Does the loss keep falling with
# more steps? Print the shapes of the tensors that meet in the loop, and a parameter's `.grad` before and after
# `backward()`. Continue until you have found both mistakes. Then write a correct loop.

# %%
def suspicious_fit(features, targets, steps, lr):
    rater = nn.Linear(features.shape[1], 1)
    nn.init.zeros_(rater.weight)
    nn.init.zeros_(rater.bias)
    descent = torch.optim.SGD(rater.parameters(), lr=lr)
    errors = []
    while len(errors) < steps:
        error = ((rater(features) - targets) ** 2).mean()
        errors.append(error.item())
        error.backward()
        descent.step()
    return torch.tensor(errors), rater(features)[:, 0].detach()


torch.manual_seed(0)
features = torch.randn(200, 3)                                       # (200, 3)
rating = 3 + features @ torch.tensor([0.4, -0.25, 0.15]) + 0.05 * torch.randn(200)   # (200,)
losses, predictions = suspicious_fit(features, rating, steps=5, lr=0.05)
print("losses     ", [round(x, 2) for x in losses.tolist()])
print("predictions", [round(x, 2) for x in predictions[:6].tolist()])
print("ratings    ", [round(x, 2) for x in rating[:6].tolist()])

# %% exercise="fit"
def fit(features: Tensor, targets: Tensor, steps: int, lr: float) -> tuple[Tensor, Tensor]:
    """Train a linear model from zero by gradient descent on the mean squared error.

    features: (n, d)   targets: (n,)   steps: how many, 0 or more   lr: the learning rate
    returns losses       (steps,), each before its step
            predictions  (n,), of the model after the last step
    """
    ...  # solution

# %% check="fit"
check("fit", fit)

# %% [markdown]
# <details><summary>The fellow student's two mistakes</summary>A row is subtracted from a column, which compares all
# pairs. And there is no <code>zero_grad()</code>: the gradients of all earlier steps are added up, so the loss swings
# instead of settling.</details>
#
# **Use it.** The next cell runs your loop beside the fellow student's, on the shop's ratings, and then runs yours with
# six learning rates. *Guess* which rate has the lowest loss after 10 steps, which rates are still far from the minimum
# after 100, and which rate fails.
#
# <details><summary>Going further: a law says which rates can work</summary>
#
# With one parameter, the loss near a minimum is a parabola, and its **curvature** (second derivative) $c$ says how fast
# the gradient grows as you move away. One step multiplies the distance from the minimum by $1 - \text{lr} \cdot c$, so
# the distance shrinks as long as lr is below $2 / c$, and grows if lr is above. The cell prints this limit, too.
#
# </details>

# %%
if solved("fit"):
    from attncourse import viz

    for whose, loop in {"the fellow student's": suspicious_fit, "yours": fit}.items():
        losses, predictions = loop(features, rating, steps=100, lr=0.05)
        print(f"{whose:>17}: last loss {losses[-1]:.4f}, largest of the last ten"
              f" {losses[-10:].max():.4f}, predictions from {predictions.min():.2f}"
              f" to {predictions.max():.2f}")
    x = torch.cat([features, torch.ones(200, 1)], dim=1)             # (200, 4)  1 for the bias
    curvatures = torch.linalg.eigvalsh(2 * x.mT @ x / 200)           # (4,)  of four directions
    print(f"curvatures {curvatures.min():.2f} to {curvatures.max():.2f}:",
          f"lr must stay below 2 / {curvatures.max():.2f} = {2 / curvatures.max():.2f}")
    curves = {}
    for lr in (0.001, 0.01, 0.1, 0.5, 0.8, 1.0):
        losses, _ = fit(features, rating, steps=101, lr=lr)
        print(f"lr = {lr:>5}: loss {losses[0]:.2f} at first, {losses[10]:.4g} after 10 steps,",
              f"{losses[100]:.4g} after 100")
        if losses[100] < losses[0]:
            curves[f"lr = {lr}"] = losses[:75].tolist()
    viz.curves(curves, y_name="mean squared error", log_y=True)

# %% [markdown]
# <details><summary>What it shows</summary>With four parameters the loss is a bowl that is not round, so it has a
# curvature in each direction. (They are the eigenvalues of the <strong>Hessian</strong>, the matrix of second
# derivatives, which is 2xᵀx/N for a mean squared error.) The steepest direction sets the limit, and with a small rate
# you wait for the flattest direction. The best single rate shrinks the distance in the steepest and in the flattest
# direction alike: it is 2 / (1.64 + 2.42) = 0.49, with a factor of 0.19 per step. At 0.8 the flattest direction would
# be fine, but in the steepest direction each step overshoots and keeps |1 − 0.8 · 2.42| = 0.94 of the distance. The
# rates 0.1 and 0.5 end at the same loss: here the rate decides how fast the loss falls, not where it ends.</details>

# %% [markdown]
# ## 2 · All squared distances at once
#
# The lecture used dot products to ask how well each customer matches each product. Here the question is how *far apart*
# they are. Compute the squared distance of every row of one table from every row of another,
#
# $$D_{ij} = \lVert a_i - b_j \rVert^2 = \sum_{f} (a_{if} - b_{jf})^2$$
#
# Write it for two tables and for any number of axes in front. (A loop earns the points, too, but try it without one.)
# There are two ways. With broadcasting, you first make a table of differences, (n_a, n_b, d). With the identity
#
# $$\lVert a - b \rVert^2 = \lVert a \rVert^2 - 2\, a \cdot b + \lVert b \rVert^2$$
#
# no such table is needed, and one `einsum` or one `@` gives all dot products. The check accepts both ways. **One of the
# two can return a number below zero, which no square can be.** Find out which one, and where, and make sure that your
# function never does.

# %% exercise="squared_distances"
def squared_distances(a: Tensor, b: Tensor) -> Tensor:
    """The squared distance of every row of a from every row of b.

    a: (*batch, n_a, d)   b: (*batch, n_b, d)
    returns (*batch, n_a, n_b), nowhere below zero
    """
    ...  # solution

# %% check="squared_distances"
check("squared_distances", squared_distances)

# %% [markdown]
# **Use it: near and far from the origin.** The customer from the rain had the largest dot product with the umbrella.
# *Guess:* is the umbrella also the nearest product? Then the cell moves all rows by the same vector, which changes no
# distance, and computes the distances with your function and with torch's `cdist`, which knows both ways. *Guess* which
# of the two ways is still right when the rows are moved by 10,000, and whether your function is.

# %%
if solved("squared_distances"):
    #                          light heat dry
    customers = torch.tensor([[2.0, 0.5, 0.0], [0.0, 1.0, 1.5]])                 # (2, 3)
    products = torch.tensor([[0.0, 3.0, 0.0], [0.0, 2.0, 0.5],
                             [0.0, 0.0, 3.0], [3.0, 0.5, 0.0]])                  # (4, 3)
    far = squared_distances(customers, products)                                 # (2, 4)
    for who, row, score in zip(("reader", "from the rain"), far, customers @ products.mT,
                               strict=True):
        print(f"{who:>13}: nearest the {list(ratings)[row.argmin()]},",
              f"largest dot product the {list(ratings)[score.argmax()]}")
    for moved in (0, 1000, 10_000):
        a, b = customers + moved, products + moved
        expanded = torch.cdist(a, b, compute_mode="use_mm_for_euclid_dist") ** 2
        by_differences = torch.cdist(a, b, compute_mode="donot_use_mm_for_euclid_dist") ** 2
        for way, far in {"yours": squared_distances(a, b), "expanded": expanded,
                         "by differences": by_differences}.items():
            print(f"moved by {moved:>6}, {way:>14}:", [round(x, 2) for x in far[0].tolist()])

# %% [markdown]
# <details><summary>What it shows</summary>For the customer from the rain the two answers differ, because a long vector
# can have a large dot product with a vector that is far away. And a clamp removes the sign, not the error: far from the
# origin the expansion subtracts large numbers that nearly agree, and their digits cancel (<strong>catastrophic
# cancellation</strong>). It is luck that the expansion is still right at 1,000. The squared lengths there are near
# three million, where float32 has steps of 0.25, and all our numbers are multiples of a quarter. At 10,000 the steps
# are 32. Taking the differences first loses nothing here, but needs a table of (n_a, n_b, d) numbers. So
# <code>cdist</code>, unless it is told otherwise, uses the expansion as soon as one of the tables has more than 25
# rows.</details>
#
# **Use it, if you like: read digits without training.** Each of 397 handwritten digits, 64 pixels as a vector, gets the
# label of the nearest of 1,400 others. *Guess* how many labels are right. How many are right with the largest *dot
# product* in place of the smallest distance? And with the largest dot product once all 1,400 vectors have been scaled
# to length 1? Each line has three numbers, for three ways to split the digits.

# %%
if solved("squared_distances"):
    from sklearn.datasets import load_digits

    pixels = torch.tensor(load_digits().data, dtype=torch.float32) / 16          # (1797, 64)
    labels = torch.tensor(load_digits().target)                                  # (1797,)
    right, chosen = {}, []
    for seed in range(3):
        torch.manual_seed(seed)
        new, known = torch.randperm(1797).split([397, 1400])                     # which digits
        far = squared_distances(pixels[new], pixels[known])                      # (397, 1400)
        dots = pixels[new] @ pixels[known].mT                                    # (397, 1400)
        length = pixels[known].norm(dim=1)                                       # (1400,)
        best = {"smallest distance": far.argmin(dim=1),
                "largest dot product": dots.argmax(dim=1),
                "the same, at length 1": (dots / length).argmax(dim=1)}
        said = {way: labels[known][place] for way, place in best.items()}
        nearest, taken = best["smallest distance"], best["largest dot product"]
        chosen.append((len(nearest.unique()), len(taken.unique()),
                       length[taken].mean() / length.mean()))
        for way, digits in said.items():
            right.setdefault(way, []).append((digits == labels[new]).float().mean().item())
    for way, shares in right.items():
        print(f"{way:>21}:", "  ".join(f"{share:.1%}" for share in shares))
    for by_distance, by_product, longer in chosen:
        print(f"chosen of 1,400: {by_distance} by smallest distance; {by_product} by largest"
              f" dot product, {longer:.2f} × as long as the mean")

# %% [markdown]
# <details><summary>What it shows</summary>The first line is a <strong>nearest-neighbour classifier</strong>. Digits
# with much ink are long vectors and have large dot products with everything. So the same digits are chosen again and
# again, far fewer different ones than by distance. At equal length the dot product does about as well as the distance:
# two lines that differ by one or two digits of 397 on one split, and not at all on another, cannot be told apart. (The
# 1,797 digits come from thirteen writers, and a random split puts digits of the same writers on both sides. For a new
# writer, expect fewer right answers.)</details>

# %% [markdown]
# ## 3 · A stable softmax
#
# The softmax turns any scores into weights, numbers from 0 to 1 that sum to one:
#
# $$\operatorname{softmax}(e)_i = \frac{\exp(e_i)}{\sum_j \exp(e_j)}$$
#
# Write it along the last axis, for a single row of scores, for a table of rows, and for any number of axes in front.
# The formula as it stands is not enough, because scores may be as large as 1000 or as low as −1000, and some may be
# hundreds higher than the others. A score may also be −∞, which excludes its position, but in each row at least one
# score is finite. The weights are never NaN.
#
# **First find a bug.** The next cell is a fellow student's version. It runs, and every weight lies between 0 and 1.
# **It has two mistakes.** Do not begin by reading the code: *test* it. What should the six weights sum to? Along which
# axis do they sum to one? And what happens to the first row if all scores of the second row are 200 higher? Change the
# scores, and continue until you have found both mistakes. Then write a correct function.

# %%
def suspicious(scores):
    exponentials = (scores - scores.max()).exp()                     # (n_rows, n)
    return exponentials / exponentials.sum(dim=0)


weights = suspicious(torch.tensor([[1.0, 2.0, 3.0], [2.0, 2.0, 0.0]]))           # (2, 3)
print("weights", [[round(w, 2) for w in row] for row in weights.tolist()])
print("all six together:", round(weights.sum().item(), 2))

# %% exercise="softmax"
def softmax(scores: Tensor) -> Tensor:
    """Turn each row of scores into weights that sum to one, without overflow.

    scores: (*batch, n), any number of axes in front
    returns (*batch, n); along the last axis they sum to one
    """
    ...  # solution

# %% check="softmax"
check("softmax", softmax)

# %% [markdown]
# <details><summary>The fellow student's two mistakes</summary>The score that is subtracted is the largest of the whole
# table, so a row far below another underflows. And the sum runs down the columns (<code>dim=0</code>), so it is the
# columns that sum to one.</details>
#
# **Use it.** The lecture's two customers become more and more decided: their scores are multiplied by a growing factor
# (one over the **temperature**). The naive formula runs beside yours. *Guess* the factor at which it begins to fail for
# each of the two customers. (You can work it out: an exponential overflows above 88.7, and the customers' largest
# scores are 6.25 and 4.5.) And what happens to the weights as the factor falls towards 0, and as it grows?

# %%
if solved("softmax"):
    products = ("kettle", "toaster", "umbrella", "lamp")
    scores = torch.tensor([[1.5, 1.0, 0.0, 6.25], [3.0, 2.75, 4.5, 0.5]])        # (2, 4)
    for factor in (0.1, 1, 10, 15, 20, 100):
        weights, naive = softmax(factor * scores), (factor * scores).exp()
        naive = naive / naive.sum(dim=-1, keepdim=True)
        for who, row, other in zip(("reader", "from the rain"), weights, naive, strict=True):
            said = dict(zip(products, (round(x, 2) for x in row.tolist()), strict=True))
            failed = "  (naive: NaN)" if other.isnan().any() else ""
            print(f"× {factor:>4} {who:>13}: {said}{failed}")
    for who, row in zip(("reader", "from the rain"), scores, strict=True):
        print(f"{who:>13}: fails above 88.7 / {row.max():g} = {88.7 / row.max():.1f}")
    print("A small factor makes all alike, a large one lets the winner take all.")

# %% [markdown]
# **Use it, if you like: the digits again.** In exercise 2 the nearest digit alone gave its label. Now all 1,400 digits
# vote, and your softmax decides how much each vote counts: the weights are $\operatorname{softmax}(-D / \tau)$, so
# nearer digits count more. *Guess* what a large $\tau$ does, and what a small one does.

# %%
if solved("squared_distances") and solved("softmax"):
    from sklearn.datasets import load_digits

    pixels = torch.tensor(load_digits().data, dtype=torch.float32) / 16          # (1797, 64)
    labels = torch.tensor(load_digits().target)                                  # (1797,)
    right = {}
    for seed in range(3):
        torch.manual_seed(seed)
        new, known = torch.randperm(1797).split([397, 1400])                     # as before
        far = squared_distances(pixels[new], pixels[known])                      # (397, 1400)
        votes = torch.nn.functional.one_hot(labels[known], 10).float()           # (1400, 10)
        for tau in (100.0, 10.0, 1.0, 0.1):
            weights = softmax(-far / tau)                                        # (397, 1400)
            said = (weights @ votes).argmax(dim=1)                               # (397,)
            right.setdefault(tau, []).append((said == labels[new]).float().mean().item())
    for tau, shares in right.items():
        print(f"τ = {tau:>5g}:", "  ".join(f"{share:.1%}" for share in shares))

# %% [markdown]
# <details><summary>What it shows</summary>This is <strong>kernel regression</strong> (more in lecture @lookup), and τ
# is the <strong>temperature</strong>. If it is large, all 1,400 digits count nearly alike; if it is small, the nearest
# digits decide, and the last line is about as good as the nearest digit alone. At the end of the lecture you meet the
# same three lines as attention, with dot products in place of distances.</details>

# %% [markdown]
# ## 4 · A rectangle of unequal sequences
#
# A model reads many sentences at once, but a tensor is a rectangle, so short sentences are filled up at the end with a
# *pad*, an id that says "nothing here", until all sentences are as long as the longest one. With the ids comes a mask,
# which says which of them are real:
#
# ```
# pad_batch([[5, 8, 2], [7]], pad=99)   →   [[5,  8,  2],        [[True,  True,  True],
#                                            [7, 99, 99]]         [True, False, False]]
# ```
#
# The sequences are lists of whole numbers, and none of them is empty. Do not change the lists, because they belong to
# the caller. And do not make the mask by looking for the pad among the ids, because a sequence may contain that very id
# as an ordinary token.

# %% exercise="pad_batch"
def pad_batch(sequences: list[list[int]], pad: int) -> tuple[Tensor, Tensor]:
    """Pack sequences of different lengths into one rectangle.

    sequences: a list of lists of ids, each of its own length     pad: the id that fills up
    returns    tokens (batch, n), whole numbers, each row one sequence and then pads;
                      n is the longest length
               mask   (batch, n), boolean, True where a token of the sequence stands
    """
    ...  # solution

# %% check="pad_batch"
check("pad_batch", pad_batch)

# %% [markdown]
# **Use it.** What does a rectangle cost? Hundreds of Python's own **docstrings**, between three and several hundred
# words long, go through your function in batches of 32. *Guess* what share of all cells is padding. Then the texts are
# sorted by length before they are cut into batches, which is called **bucketing**. What is the share then? (Every cell
# costs time in a network, real or not.) The last lines are about the mask: how many of 12 positions are real, and how
# many does `table != 0` find?

# %%
if solved("pad_batch"):
    from attncourse.data import docstrings

    texts = [text.split() for text in docstrings(limit=500).train]
    words = sorted({word for text in texts for word in text})
    vocabulary = {word: i for i, word in enumerate(words, start=1)}
    ids = [[vocabulary[word] for word in text] for text in texts]
    for how, rows in {"as they come": ids, "sorted by length": sorted(ids, key=len)}.items():
        cells = real = 0
        for start in range(0, len(rows), 32):
            _, mask = pad_batch(rows[start : start + 32], pad=0)     # (32, n)
            cells, real = cells + mask.numel(), real + mask.sum().item()
        print(f"{how:>16}: {cells:>7,} cells, {1 - real / cells:.0%} of them padding")

    table, is_token = pad_batch([[7, 0, 4, 0], [0], [3, 5]], pad=0)  # (3, 4) each
    print(table)
    print(is_token.sum().item(), "of", is_token.numel(), "places are real; table != 0 finds",
          (table != 0).sum().item())

# %% [markdown]
# ## 5 · A masked mean
#
# Each sequence $b$ of the batch has vectors $x_{b1}, \dots, x_{bn}$, one for each position. For each sequence
# separately, average the vectors of the real positions:
#
# $$\bar x_b = \frac{\sum_{i \,:\, \text{mask}_{bi}} x_{bi}}{\text{number of } i \text{ with mask}_{bi}}$$
#
# The contents of the padding must make no difference, whatever they are, and they may even be ∞. A sequence may also
# have no real position at all: then its mean is zeros, and the means of the other sequences are not affected.

# %% exercise="masked_mean"
def masked_mean(values: Tensor, mask: Tensor) -> Tensor:
    """Average each sequence's vectors over its real positions.

    values: (batch, n, d)   mask: (batch, n), boolean, True where a position is real, anywhere
    returns (batch, d); zeros for a sequence with no real position
    """
    ...  # solution

# %% [markdown]
# **Test it before you check it.** The lecture found the lamp's bug with an **invariance test**: change something that
# must make no difference, and see whether the answer moves. Write two such tests of your own in the next cell. Neither
# may contain a right answer. (This cell is not graded.)

# %%
values, mask = torch.randn(3, 4, 2), torch.tensor([[True] * 4, [True, False] * 2, [False] * 4])
# Your tests: change something, call masked_mean again, and assert that the result is the same.

# %% check="masked_mean"
check("masked_mean", masked_mean)

# %% [markdown]
# <details><summary>Some invariance tests</summary>Write other numbers, or ∞, where the mask is False. Add two more
# positions with a mask of False. Shuffle the positions of values and mask in the same way. Permute the sequences: the
# means are permuted in the same way. Leave out one sequence: the means of the others stay. A function that adds up the
# padding fails the first test, and one that divides by n fails the second.</details>

# %% [markdown]
# **Use it.** Save the lamp: the next cell ranks the shop's products by your `masked_mean`, with the mean over the
# padding beside it. And what rating may the two customers expect, if each product counts in proportion to the
# customer's interest? Your `masked_mean` gives the values, and your `softmax` the weights. With dot products as the
# scores, this is attention. After that, the umbrella is sold out, so its score becomes −∞. *Guess* what that changes
# for the customer from the rain.

# %%
if solved("pad_batch") and solved("masked_mean"):
    stars, is_rating = pad_batch(list(ratings.values()), pad=0)      # (4, 8) each
    means = masked_mean(stars.float()[..., None], is_rating)         # (4, 1)
    padded = stars.float().mean(dim=1)                               # (4,)
    for place in means[:, 0].argsort(descending=True).tolist():
        name = list(ratings)[place]
        print(f"{name:>9}: {means[place, 0]:.2f} stars (with the padding: {padded[place]:.3f})")
    if solved("softmax"):
        scores = torch.tensor([[1.5, 1.0, 0.0, 6.25], [3.0, 2.75, 4.5, 0.5]])    # (2, 4)
        sold_out = scores.clone()
        sold_out[:, 2] = -torch.inf
        for when, table in {"at first": scores, "umbrella sold out": sold_out}.items():
            reader, wet = (softmax(table) @ means)[:, 0].tolist()    # of (2, 1)
            print(f"{when}: the reader expects {reader:.2f} stars, from the rain {wet:.2f}")

# %% [markdown]
# **And backwards, if you like.** Autograd works through your function as it works through torch's. The next cell asks
# for the gradient of each product's mean with respect to each number of its row. *Guess* three of these gradients: for
# the lamp's one rating, for the kettle's first rating, and for a number in the padding. What would the gradient for the
# padding be if the mean counted the padding?

# %%
if solved("pad_batch") and solved("masked_mean"):
    stars, is_rating = pad_batch(list(ratings.values()), pad=0)      # (4, 8) each
    values = stars.float()[..., None].requires_grad_()               # (4, 8, 1)
    masked_mean(values, is_rating).sum().backward()
    for name, gradient in zip(ratings, values.grad[..., 0].tolist(), strict=True):
        print(f"{name:>9}:", [round(number, 3) for number in gradient])
    print("1 / count where there is a rating, exactly 0 where there is none.")
    print(f"If the padding counted, each of the {stars.numel()} numbers would have",
          f"1/{stars.shape[1]}.")

# %% [markdown]
# ## 6 · In your own words
#
# Two fellow students want to keep their exponentials small, and neither subtracts the maximum. Ada *divides* each row
# of scores by its largest score. Ben subtracts each row's *mean*. If all scores lie between 1000 and 1003, his weights
# are right.
#
# **(a)** As long as a row's largest score is positive, Ada's exponentials never overflow, but her weights are usually
# wrong. Show this with a row of two scores, and say what dividing changes that subtracting does not. **(b)** Give a row
# of scores for which, in float32, Ben's version gives NaN, and say where the NaN arises. **(c)** With the maximum
# subtracted, other exponentials may still be rounded down to 0. Why is this error too small to matter in a weighted
# average (the extension shows where it does matter), and what weights does a row with *two* equal maxima get, if all
# its other exponentials are rounded to 0?
#
# Answer in four to eight sentences or lines. (3 points)

# %% [markdown] written="why-the-maximum" points=3 minutes=10 difficulty=2
# ### BEGIN SOLUTION
# **Mark scheme.** One point for each.
#
# 1. (a) For instance, for the scores (0, 2) the right weights are $e^0 : e^2$, that is 0.12 and 0.88. Ada's scores
#    become (0, 1), and her weights are 0.27 and 0.73. Dividing changes the *distances* between scores, and only these
#    matter. Subtracting the same number from all scores leaves the distances as they are (a common factor $e^{-c}$
#    cancels). A row whose largest score is negative is a right answer, too: the order is reversed (and for (−1000, −1)
#    her largest exponent is 1000). Half a point for the example, half for the reason.
# 2. (b) Any row in which one score lies more than about 88.7 above the row's mean, such as (0, 0, 300): the mean is
#    100, and $e^{200}$ is ∞ in float32. Numerator and sum are both ∞, and ∞/∞ is NaN. A row with a score of −∞ is right
#    as well, because its mean is −∞, and −∞ − (−∞) is NaN. Half a point for a row without the reason, or the reason
#    without a row.
# 3. (c) The largest score's exponential is 1, so the sum is at least 1. An exponential that is rounded to 0 is less
#    than about $10^{-45}$, a share that float32 could not tell from 0 beside 1 anyway. Two equal maxima both become 0,
#    so both exponentials are 1, and each of the two weights is ½. Half a point for each half. A student who
#    says that the error matters once a logarithm follows is right, and gets the half point.
# ### END SOLUTION

# %% [markdown]
# ## Extension: the logarithm of a sum of exponentials
#
# This exercise earns extra credit, and you lose nothing by leaving it out.
#
# The logarithm of a weight is $\log \operatorname{softmax}(e)_i = e_i - \operatorname{logsumexp}(e)$, where
#
# $$\operatorname{logsumexp}(e) = \log \sum_j \exp(e_j)$$
#
# is a kind of soft maximum: it is never below the largest score, and never more than $\log n$ above it. Every
# cross-entropy contains it. Write it so that it is right for scores of ±1000, whether they fill a row or occur together
# in one row, although neither $\exp(1000)$ nor $\log 0$ is of any use there. (This is the **log-sum-exp trick**.)

# %% exercise="logsumexp"
def logsumexp(scores: Tensor) -> Tensor:
    """The logarithm of the sum of the exponentials of each row, without overflow.

    scores: (*batch, n), all finite
    returns (*batch,), one number for each row
    """
    ...  # solution

# %% check="logsumexp"
check("logsumexp", logsumexp)

# %% [markdown]
# **Use it.** The cross-entropy of a prediction is logsumexp minus the score of the right answer. The next cell prints
# your cross-entropy, torch's, and the negative logarithm of a softmax, for scores whose exponentials float32 cannot
# hold. *Guess* the loss of the third row, a prediction that is confident and wrong. (Yours is a difference of two
# numbers near 1,000, where float32 has steps of 0.00006, so the last digits may differ.)

# %%
if solved("logsumexp"):
    scores = torch.tensor([[1000.0, 998.0, 0.0], [-1000.0, -1001.0, -1000.0],
                           [0.0, 500.0, 2.0]])                       # (3, 3)
    right = torch.tensor([0, 2, 2])
    ours = logsumexp(scores) - scores[torch.arange(3), right]        # (3,)
    torchs = torch.nn.functional.cross_entropy(scores, right, reduction="none")
    print("yours:  ", ours.tolist())
    print("torch's:", torchs.tolist())
    probability = scores.softmax(dim=-1)[torch.arange(3), right]         # (3,)
    print("-log of the softmax:", (-probability.log()).tolist())
