# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3 (ipykernel)
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Lecture @beyond_text · Beyond text: images and sound as sequences
#
# *About 53 minutes, of which less than one is computing time. You need the encoder of [lecture
# @transformer](@transformer), positions ([lecture @order](@order)), and temperature ([lecture @lookup](@lookup)).
# Convolutions are explained where they are needed.*
#
# After this lecture you can
#
# * turn an image into a sequence of patches, and describe the **Vision Transformer** (ViT) from pixels to logits;
# * name the **inductive biases** of a convolution and of a ViT, and measure what they are worth;
# * say what makes a ViT's positions form a map, and name an experiment that shows it;
# * test a map of attention weights before you believe it;
# * explain how **wav2vec 2.0** learns from unlabelled sound: masking, a **contrastive loss** (InfoNCE), negatives;
# * predict from its negatives what a contrastive model will learn, and check it with a **linear probe**.
#
# ## How much of the Transformer is about words?
#
# Which lines of the Transformer of lecture @transformer are about language? Only two: the first looks up a row for
# each token in a table, and the last gives a logit to each token of the vocabulary. Queries, keys, softmax, heads,
# norms and the feed-forward network between them do not depend on where the rows come from. So we give it other rows:
# first images, then sound. (Between the two halves is a good place for a break.)

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
from statistics import mean, stdev

import torch
import torch.nn.functional as F
from IPython.display import Audio
from sklearn.datasets import load_digits
from torch import nn

from attncourse.beyond_text import (
    FeatureEncoder,
    ViT,
    ViTConfig,
    Wav2Vec2,
    Wav2Vec2Config,
    attention_rollout,
    contrastive_loss,
    patchify,
    sample_negatives,
    span_mask,
    unpatchify,
)
from attncourse.data.vowels import FORMANTS, RATE, resonance, vowels
from attncourse_lessons.results import measured

torch.set_num_threads(1)  # models as small as these gain nothing from a second thread

# %% [raw] slide
# ## How much of the Transformer is about words?
# Two lines: the first looks up a row for each token, the last gives a logit to each token of the vocabulary.
#
# > **Guess first.** Take a photograph. What would you make the rows of? There is an obvious answer, and it is too expensive.

# %% [markdown]
# ## Images as sequences: patches, not pixels
#
# A Transformer can read a photograph if it becomes a sequence of rows. What would you make the rows of? There is an
# obvious answer, and it is too expensive. *Before you read on:* which is it, and why?
#
# The obvious answer is one row for each pixel. But 224 × 224 pixels make a sequence of fifty thousand rows, and
# attention compares every row with every row:

# %%
for patch in (1, 8, 16, 32):
    n = (224 // patch) ** 2
    print(f"patches of {patch:>2} × {patch:<2}: {n:>6,} rows, {n * n:>13,} attention weights")

# %% [raw] slide
# ## Patches, not pixels
# {print}
#
# **Vision Transformer** (Dosovitskiy et al. 2021): a token is a square **patch**.

# %% [markdown] teaches="images: the Vision Transformer"
# With pixels, one head of one layer has two and a half billion attention weights ([lecture
# @cheap_attention](@cheap_attention) is about that). So in the **Vision Transformer**, ViT ([@dosovitskiy2021]), a
# token is a square **patch** of, say, 16 × 16 pixels. Halve the side of a patch, and there are four times as many rows
# and sixteen times as many weights.
#
# ## The Vision Transformer (ViT): patches, class token, positions
#
# Our images are handwritten digits of 8 × 8 pixels, which come with scikit-learn. They are small enough to be printed:

# %%
pixels, labels = load_digits(return_X_y=True)
images = torch.tensor(pixels, dtype=torch.float32).view(-1, 1, 8, 8) / 16    # (1797, 1, 8, 8)
labels = torch.tensor(labels)
print("one of", len(images), "images, as numbers:")
print((images[3, 0] * 16).int())
figures.picture_to_sequence(images[3, 0], patch=2, d=64)
#| caption: An image becomes a sequence of patches.
#| label: patches

# %% [raw] slide
# ## The Vision Transformer (ViT)
# {figure}

# %% [raw] slide
# ## ViT in one formula
# $$X = [\,\text{class};\ x_0 W;\ \dots;\ x_{n-1} W\,] + P, \qquad \text{logits} = \operatorname{norm}\bigl(\operatorname{blocks}(X)\bigr)_0\, W_{\text{head}}$$
#
# - **Patch embedding** $W$: the same for all patches
# - **Class token**: a learned row that belongs to no patch
#
# > **Guess first.** A **convolution** whose stride is a whole patch: what does it give?
#
# . . .
# The same numbers.
#
# **Now you:** a@beyond_text, exercises 1 and 2

# %% [markdown]
# Read the figure from left to right. The image is cut into patches, numbered row by row. Each patch is flattened to a
# vector and multiplied by one matrix $W$, the same for all: the **patch embedding** (below the image, for patch 5). In
# front stands the **class token** (written [CLS], as in BERT). It is a learned vector, the same for every image, and it
# belongs to no patch. A **learned position embedding** is added to every row. Then comes the encoder. At the end the
# class token's row is normalised and read out:
#
# $$X = [\,\text{class};\ x_0 W;\ \dots;\ x_{n-1} W\,] + P, \qquad
# \text{logits} = \operatorname{norm}\bigl(\operatorname{blocks}(X)\bigr)_0\, W_{\text{head}}$$ (eq:vit)
#
# The matrix $W_{\text{head}}$ turns row 0 into ten logits. Both products have a bias, too. To check the formula, send
# one image through the package's `ViT`, note what goes into the stack and what comes out (in torch by a **forward
# hook**), and compute single rows by hand:

# %%
def patches_of(picture, side):
    """The patches of one picture (height, width), read like a page: (n, side · side)."""
    found = []
    for top in range(0, picture.shape[0], side):
        for left in range(0, picture.shape[1], side):
            found.append(picture[top : top + side, left : left + side].flatten())
    return torch.stack(found)


config = ViTConfig(image_size=8, patch=2, channels=1, n_classes=10,
                   d_model=64, n_layers=2, n_heads=4, d_ff=128)
torch.manual_seed(0)
model = ViT(config).eval()
noted = {}


def note(stack, given, result):
    noted["in"], noted["out"] = given[0], result


model.stack.register_forward_hook(note)
with torch.no_grad():
    logits = model(images[3:4])                               # (1, 10)
    X, Y = noted["in"], noted["out"]                          # (1, 17, 64) each
    P = model.positions.table                                 # (17, 64)
    patch_5 = patches_of(images[3, 0], 2)[5]                  # (4,)
    row_6 = patch_5 @ model.patches.weight.mT + model.patches.bias + P[6]        # (64,)
    print("into the stack", tuple(X.shape), " out of it", tuple(Y.shape))
    print("row 0 is the class token + p₀:", torch.allclose(X[0, 0], model.class_token + P[0]))
    print("row 6 is patch 5, embedded, + p₆:", torch.allclose(X[0, 6], row_6, atol=1e-6))
    print("the logits need row 0 alone:", torch.equal(model.head(Y[:, 0]), logits))

# %% [markdown]
# Is this a convolution? A **convolution** slides a small window over the image and multiplies the pixels in the window
# by a matrix. Its **stride** is how far the window moves each time. *Guess:* what does a convolution compute if its
# stride is a whole patch?

# %%
W = torch.randn(64, 1, 2, 2)                                  # (d, channels, patch, patch)
slid = F.conv2d(images, W, stride=2)                          # (1797, 64, 4, 4)
multiplied = patchify(images, 2) @ W.flatten(1).mT            # (1797, 16, 64)
print("the same numbers:", torch.allclose(slid.flatten(2).mT, multiplied, atol=1e-5))

# %% [markdown]
# It computes the same numbers. So the patch embedding is a convolution whose window and stride are the patch, and published code
# often writes it this way. It is the only convolution in a ViT, and no two of its windows overlap.
#
# > **Check yourself.** (1) What is the class token for? What else could be handed to the head? (2) How many rows does $P$
# > have here? (3) Which parameters would not fit if the images were 16 × 16, with the same patch?
# > <details><summary>Answers</summary>
# >
# > (1) It belongs to no patch, so the model can gather there what the whole image
# > says. The mean of all rows is the other usual choice (global average pooling; [@beyer2022] prefer it). Mean pooling
# > did badly in lecture @bottleneck, but there the mean was taken <i>before</i> attention had mixed the rows. (2) 17:
# > sixteen patches and the class token. (3) The positions, and nothing else: no other shape knows n. Assignment
# > @beyond_text asks what to do about it, and its last exercise does it.
# >
# > </details>
#
# **Now you:** [a13](@beyond_text/assignment), exercises 1 and 2.
#
# ## Training a ViT on digits: does it read?
#
# The 1,797 images are shuffled once and split: 1,200 are the **training set**; 200 are the **validation set**, on
# which choices are made, such as the learning rate; 397 are the **test set**, whose numbers are reported. Every model
# takes 450 training steps if nothing else is said. The same people wrote the digits of all three sets, so every number
# below would probably be worse for other people's digits.

# %%
order = torch.randperm(len(images), generator=torch.Generator().manual_seed(12))
training, validation, test = order[:1200], order[1200:1400], order[1400:]
normed = (images - images[training].mean()) / images[training].std()


def accuracy(model, which, images=normed):
    model.eval()
    with torch.no_grad():
        return (model(images[which]).argmax(dim=-1) == labels[which]).float().mean().item()

# %%
def train(model, which=training, steps=450, lr=4e-3, images=normed, seed=0):
    draws = torch.Generator().manual_seed(seed)
    optimiser = torch.optim.AdamW(model.parameters(), lr=lr, weight_decay=0.05)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, lr, total_steps=steps,
                                                   pct_start=0.2)
    model.train()
    for _ in range(steps):
        batch = which[torch.randint(len(which), (64,), generator=draws)]
        loss = F.cross_entropy(model(images[batch]), labels[batch])
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        schedule.step()
    return model


torch.manual_seed(0)
vit = train(ViT(config))
print(f"ViT: training {accuracy(vit, training):.1%}, test {accuracy(vit, test):.1%}")

# %% tags=["hide-input"]
assert accuracy(vit, test) > 0.94

# %% [raw] slide
# ## Training a ViT on digits
# 1,200 training images of 8 × 8 pixels.
#
# {print}
#
# > **Guess first.** Which does better: logistic regression, the nearest training image, a small **CNN**?

# %% [markdown]
# The encoder of lecture @transformer, unchanged, has learned to read digits from 1,200 examples. Is its accuracy good?
# We compare it with three other methods: a logistic regression on the 64 pixels; the label of the nearest training
# image, which needs no training; a small **convolutional neural network** (CNN). *Which of them will do better than
# the ViT?*

# %%
def small_cnn():
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(),            # (batch, 16, 8, 8)
        nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(),           # (batch, 32, 8, 8)
        nn.MaxPool2d(2), nn.Flatten(), nn.Dropout(0.3), nn.Linear(32 * 16, 10),
    )


torch.manual_seed(0)
print(f"CNN: test {accuracy(train(small_cnn()), test):.1%}")

# %% [markdown]
# The CNN does better in this run. But one run says little. So this page keeps a record of the same program with six
# seeds. A seed decides the first weights, the batches and, where pixels are shuffled, their new order.
#
# In the figure each mark is a run, and the long line is the mean. The grey bar is a 95 % interval: 397 test images
# cannot tell apart the error rates that lie in it. All models read the same images, so a comparison of two models is
# more precise than their bars suggest.

# %%
record = measured("vision")
print(record["command"])


def mistakes(name):                                           # of the 397, one number a seed
    return [round(397 * (1 - run["report"])) for run in record["models"][name]]


rows = {name: mistakes(name) for name in ("CNN", "ViT")}
for name, share in record["baselines"]["1200"].items():
    rows[name] = [round(397 * (1 - share))]                   # nothing is drawn: no seed
figures.mistakes(rows, n=397)
#| caption: Test errors of a CNN, a Vision Transformer and two simple methods: a mark for each
#|   seed, a long line at the mean, grey the 95 % interval.

# %% tags=["hide-input"]
print("mistakes among the 200 of the validation set, three seeds")
chosen_by = {}
for rate in (0.001, 0.002, 0.004, 0.008):
    for name in ("ViT", "CNN"):
        runs = record["models"][name if rate == 0.004 else f"{name}, learning rate {rate}"][:3]
        chosen_by[name, rate] = [round(200 * (1 - run["choose"])) for run in runs]
    print(f"learning rate {rate}: ViT {chosen_by['ViT', rate]}, CNN {chosen_by['CNN', rate]}")
assert all(sum(chosen_by[name, 0.004]) <= sum(wrong) for (name, _), wrong in chosen_by.items())

# %% [raw] slide
# ## The nearest neighbour makes fewer mistakes than our ViT
# {figure}

# %% [raw] slide
# ## Inductive bias
# What a model assumes before it has seen any data.
#
# - **Locality**: what belongs together lies close together.
# - **Translation equivariance**: if the image moves, the layer's output moves along.
#
# A test: shuffle the sixteen patches of every image, or all 64 pixels, once and for all.
#
# > **Guess first.** What happens to the CNN? To the nearest neighbour? An MLP? The ViT?

# %% [markdown]
# The nearest neighbour, which is not trained, makes fewer mistakes than our ViT. So does the small CNN. The regression
# makes about as many as the ViT. This is not a bug, and not a bad learning rate: none of four makes fewer mistakes on
# the validation set than ours, for either model. The paper found the same pattern on its own scale: trained on a
# million images, ViT was a few percentage points worse than convolutional networks of its size. It needed fourteen
# million, or better three hundred million, to overtake them. With a better recipe the million is enough: see *Where
# this went*.
#
# ## Inductive bias: locality and translation equivariance
#
# What does the CNN have that the ViT lacks? The usual answer is its **inductive bias**: what a model assumes before it
# has seen any data. A convolution assumes two things. **Locality**: what belongs together lies close together.
# **Translation equivariance**: if the image moves, the layer's output moves along and is otherwise the same.
# Equivariance can be checked without any training:

# %%
here, there = torch.zeros(1, 1, 12, 12), torch.zeros(1, 1, 12, 12)
here[0, 0, 2:10, 1:9], there[0, 0, 2:10, 2:10] = images[3, 0], images[3, 0]  # one pixel right
kernel = torch.randn(8, 1, 3, 3)
a, b = F.conv2d(here, kernel), F.conv2d(there, kernel)        # (1, 8, 10, 10)
print("convolution: the output has moved along:", torch.equal(a[..., :-1], b[..., 1:]))
old, new = patchify(here, 2)[0], patchify(there, 2)[0]        # (36, 4), a row for each patch
inked = [patch for patch in new if patch.sum() > 0]
known = [patch for patch in inked if (old == patch).all(dim=1).any()]        # equals an old row
print(f"patches: of {len(inked)} with ink, {len(known)} were among the old ones")

# %% [markdown]
# The convolution's output has moved along. The ViT's rows have not: after a move by one pixel, every patch with ink is
# new.
#
# Now make both assumptions of the CNN false. Shuffle the sixteen patches, in the same way for all images. Then go
# further, and shuffle all 64 pixels. To you the digits are now unreadable. *What happens to the CNN? To the nearest
# neighbour? To a plain **multilayer perceptron** (MLP) on the pixels? To the ViT?*

# %%
moved_patches, moved_pixels = (torch.randperm(n, generator=torch.Generator().manual_seed(5))
                               for n in (16, 64))
shuffled = unpatchify(patchify(normed, 2)[:, moved_patches], 2, 8, 8)    # (1797, 1, 8, 8)
by_pixel = normed.flatten(1)[:, moved_pixels].view(-1, 1, 8, 8)          # (1797, 1, 8, 8)
versions = {"intact": normed, "patches": shuffled, "pixels": by_pixel}
figures.image_row([x[i, 0] - normed.min() for x in versions.values() for i in (3, 15)],
                  [f"a {labels[i]}, {name}" for name in versions for i in (3, 15)])
#| caption: Digits, intact, with their patches shuffled and with their pixels shuffled.

# %% [raw] slide
# ## Unreadable to you
# {figure}

# %%
compared = ("CNN", "CNN, patches shuffled", "CNN, pixels shuffled",
            "MLP", "MLP, pixels shuffled", "ViT", "ViT, pixels shuffled")
figures.mistakes({name: mistakes(name) for name in compared}, n=397)
#| caption: Test errors when patches or pixels are shuffled, six seeds each.

# %% tags=["hide-input"]
pairs = zip(mistakes("CNN"), mistakes("CNN, pixels shuffled"), strict=True)
assert all(intact < without_places for intact, without_places in pairs), "in every seed"
assert mean(mistakes("MLP")) < mean(mistakes("ViT")) - 2

# %% [raw] slide
# ## The CNN's bias is worth something; the MLP is ahead of the ViT, too
# {figure}
#
# A ViT's positions start as random numbers: shuffle them along, and it computes the same logits.

# %% [markdown]
# The nearest neighbour cannot notice: a distance between images is the same in any order of their pixels. The MLP does
# not notice, either. The CNN makes more mistakes in every seed: its bias is worth something. But look at the MLP once
# more. It knows nothing of neighbours, and is ahead of the ViT, too.
#
# For shuffled patches we need not train the ViT. Shuffle its positions in the same way as the patches. Then
# the same rows enter the stack, in another order. Self-attention is permutation equivariant ([lecture
# @self_attention](@self_attention)). So for every ViT that reads images there is another one, exactly as good, that
# reads shuffled images:

# %%
torch.manual_seed(0)
moved = ViT(config)
moved.load_state_dict(vit.state_dict())
with torch.no_grad():
    moved.positions.table[1:] = vit.positions.table[1:][moved_patches]   # [CLS] keeps its own
    same = torch.allclose(moved.eval()(shuffled[test]), vit(normed[test]), atol=1e-3)
print("the same logits:", same)
assert same

# %% [markdown]
# A ViT's positions start as random numbers, so training finds either of the two equally easily. A ViT does not know
# that an image has two dimensions, or that patch 5 lies below patch 1. It assumes only that the four pixels of a patch
# belong together, and that all patches deserve the same matrix.
#
# ## How much of the CNN's lead is inductive bias? Shuffle for both
#
# On shuffled *pixels* the CNN's assumptions are false. Even so, it makes **fewer mistakes than the ViT on intact
# images**. So something else must differ, too. *Make a list before you look.*
#
# One suspect is the **readout**. The CNN's last layer is **dense**: it has a weight for every feature *at every place*.
# The ViT's head reads one row. So give the ViT a dense last layer ("ViT, all rows read"), and let the CNN do without
# ("CNN, mean over places"). Then shuffle the pixels for both models *with the same readout*, because the ViT has some
# locality, too: the four pixels of a patch. *Guess:* what does shuffling cost the CNN, and what the ViT?

# %% [raw] slide
# ## How much of the CNN's lead is inductive bias?
# On shuffled pixels the CNN still makes fewer mistakes than the ViT on intact images. A suspect: the **readout**.
#
# - "ViT, all rows read": a dense last layer, like the CNN's
# - "CNN, mean over places": the CNN without it
#
# > **Guess first.** Shuffle the pixels for both models with the dense readout. What does it cost the CNN, and what the ViT?

# %%
def with_interval(differences):                               # 95 %, for six seeds
    half = 2.57 * stdev(differences) / math.sqrt(6)
    return f"{mean(differences):4.1f} ± {half:.1f}"


costs = {}                                                    # by seed
print(f"{'dense readout':<20} intact  shuffled  shuffling costs (paired by seed)")
for name in ("CNN", "ViT, all rows read"):
    before, after = mistakes(name), mistakes(f"{name}, pixels shuffled")
    costs[name] = [b - a for a, b in zip(before, after, strict=True)]
    print(f"{name:<20} {mean(before):6.1f} {mean(after):9.1f}  {with_interval(costs[name])}")
pairs = zip(costs["CNN"], costs["ViT, all rows read"], strict=True)
print("it costs the CNN more by", with_interval([cnn - vit for cnn, vit in pairs]))
times = {}                                                    # by seed: ln of the ratio
for name in costs:
    before, after = mistakes(name), mistakes(f"{name}, pixels shuffled")
    times[name] = [math.log(b / a) for a, b in zip(before, after, strict=True)]
    print(f"{name}: times {math.exp(mean(times[name])):.1f} by shuffling (geometric mean)")

# %% tags=["hide-input"]
readouts = {"CNN": "dense", "ViT, all rows read": "dense",
            "CNN, pixels shuffled": "dense,\npixels shuffled",
            "ViT, all rows read, pixels shuffled": "dense,\npixels shuffled",
            "CNN, mean over places": "mean", "ViT": "class token",
            "ViT, pixels shuffled": "class token,\npixels shuffled"}
figures.mistakes({name: mistakes(name) for name in readouts}, n=397, groups=readouts)
#| caption: Test errors of CNN and ViT by readout, on intact and on shuffled pixels, six seeds
#|   each.

# %% tags=["hide-input"]
controls = ("ViT, dropout before the head", "ViT, all rows read, no dropout", "CNN, no dropout")
for name in (*readouts, "ViT, three times the steps", "ViT, no positions", *controls):
    wrongs = mistakes(name)
    print(f"{name:<36} {mean(wrongs):5.1f} mistakes, the mean of {len(wrongs)} seeds")
assert mean(mistakes("CNN, pixels shuffled")) < mean(mistakes("ViT"))
assert abs(mean(costs["CNN"]) - mean(costs["ViT, all rows read"])) < 2
assert min(mistakes("CNN, mean over places")) > max(mistakes("ViT, all rows read"))
assert mean(mistakes("ViT, no positions")) > 3 * mean(mistakes("ViT"))
for one, other in (("ViT, all rows read, no dropout", "ViT"),
                   ("CNN, no dropout", "CNN, mean over places")):
    pairs = zip(mistakes(one), mistakes(other)[:3], strict=True)
    assert all(fewer < more for fewer, more in pairs), "not dropout"

# %% [raw] slide
# ## Exchanging both readouts reverses the order
# {figure}
#
# A table that fits your explanation is not a test of it.

# %% [markdown]
# **With the same readout, shuffling costs both models something**: five mistakes and four. In mistakes the costs are about
# the same; in ratio the CNN, which begins lower, loses more. What the bias explains of the CNN's lead is the difference of
# the two costs: about one mistake, with an interval from none to nearly all of the lead. So six seeds on one test set
# cannot say how much. What they do show: three of the four mistakes of the lead are there when both have lost the geometry.
#
# **Exchanging both readouts reverses the order.** The CNN with the mean makes 19.0 mistakes, the ViT with the dense
# readout 7.7, and no seed contradicts it. (The mean and the class token are two
# different readouts, so 19.0 and 14.2 do not compare like with like.) The dense readout alone takes the ViT from 14.2 to
# 7.7. So after 450 steps six in ten of the ViT's eleven mistakes more than the CNN go with the readout. A part of this may
# be speed: three times the steps help the ViT with the class token, too. Our guess why the dense readout helps: every digit here
# stands in the middle, at one size, so a weight for each place is useful. What makes up the rest we do not know.
#
# <details><summary>Is it the readout's dropout, or its parameters? Would more steps help? And how sure is all this?</summary>
#
# *Dropout* stands before the dense layer. The last three lines printed above are controls: dropout alone does not help
# the ViT, and without dropout the layer still helps, in both models.
#
# *Parameters*: the CNN's last layer has $512 \cdot 10 + 10 = 5{,}130$ of its 9,930; the mean over places leaves it
# 330. The ViT's head has $64 \cdot 10 + 10 = 650$; to read all rows takes $17 \cdot 64 \cdot 10 + 10 = 10{,}890$,
# beside the 68,544 of the rest. No control here separates the number of parameters from what they read. The averaging
# CNN has also lost its only global layer, since its features see 6 × 6 pixels. So the ViT's half of the exchange is the
# cleaner one.
#
# *Optimisation*: three times the steps help the ViT in two of three seeds.
#
# *Positions*: without them the ViT reads a bag of patches, and about three digits in four.
#
# *How sure?* The intervals are over seeds. All seeds share the same test images: another 397 could move every row. The
# authors saw test results while they wrote this page, but based no choice on them.
#
# </details>
#
# What is not built in must be learned: that part of the usual explanation stands. But "a CNN is better because of its
# inductive bias" is a claim about a cause, and one like-for-like control left most of the lead unexplained. **A table that fits your
# explanation is not a test of it. Look for the row that could contradict it.**
#
# ## Data augmentation: what is not built in can be shown
#
# **Data augmentation** alters each training image at random, anew at every step: it is moved, turned or cropped. So
# the data can teach what the architecture does not assume. Here models are trained with and without shifts of up to
# one pixel. They read the test digits as they are, and moved by up to one pixel. *Guess:* which needs the shifts, the
# CNN or the ViT?

# %% [raw] slide
# ## Data augmentation: what is not built in can be shown
# > **Guess first.** Test digits moved by up to one pixel. Which of CNN and ViT needs training with shifts?

# %%
def read_moved(*names):
    for name in names:
        runs = record["models"][name]
        plain, moved = ([run[key] for run in runs] for key in ("report", "moved"))
        print(f"{name:<45} {mean(plain):.1%} as they are, {mean(moved):.1%} moved "
              f"({len(runs)} seeds: {min(moved):.0%} to {max(moved):.0%})")


read_moved("CNN", "CNN, shifts", "ViT", "ViT, shifts", "ViT, shifts, three times the steps")

# %% tags=["hide-input"]
short, long = (record["models"][f"ViT, shifts{more}"]
               for more in ("", ", three times the steps"))
assert all(a[key] + 0.07 < b[key] for a, b in zip(short, long, strict=True)
           for key in ("report", "moved")), "in every seed"
# %% [raw] slide
# ## Both need shifts
# {print}
#
# Data can replace a bias that is not built in; here that costs more steps.

# %% [markdown]
# Both need them; one pixel in eight is a large shift. Trained on digits in the middle, both models fail on moved
# digits, the ViT more often. Trained with shifts, the CNN reads moved digits nearly as well as unmoved ones. The ViT
# with shifts misreads 15 % of both. Are shifts not enough, or are 450 steps too few? With three times the steps it
# misreads one in twenty. So data can replace a bias that is not built in, but it takes more steps. Even then the ViT
# has not caught up with the CNN.
#
# Why does the CNN fail without shifts, although convolutions are equivariant? The usual answer: its last layer has
# learned *where* to expect the features. *Going further* puts this answer to a test.
#
# ## The position map: what makes it appear?
#
# A trained ViT has a position embedding for each place, and nothing in the model says which places are neighbours. In
# figure 7 of the paper, the **cosine similarity** of each position embedding with all others shows rows and columns.
# *What do you expect of ours:* are neighbours more alike than opposite corners?
#
# The paper's model was trained on many millions of images. Ours saw 1,200 digits that all stand in the middle. So we
# take three conditions, for digits in a frame of 12 × 12 pixels (36 patches): always in the middle; each digit **moved
# once**, by up to two pixels, before training; each digit **moved anew** at every step. The second condition is the
# control: digits stand everywhere, but no single drawing is ever seen in two places.

# %% [raw] slide
# ## The position map: what makes it appear?
# In figure 7 of the ViT paper, cosines of learned positions show rows and columns.
#
# > **Guess first.** Three conditions: digits always in the middle; each **moved once**; **moved anew** at every step. Which gives the map?

# %%
frame = F.pad(images[3, 0], (2, 2, 2, 2))                     # (12, 12)
figures.image_row([frame, frame.roll((-2, 1), (0, 1)), frame.roll((1, 2), (0, 1))],
                  ["in the middle", "moved", "moved again"])
#| caption: A digit that is moved within its frame.

# %% tags=["hide-input"]
distances = range(1, 11)                                      # steps along rows and columns
cosines = {how: {d: [run["cosine_by_distance"][d - 1] for run in runs] for d in distances}
           for how, runs in record["places"].items()}
figures.runs_over(cosines, "steps between two places", "cosine of their positions",
                  level=("not alike", 0.0), names_left=True)
for how, runs in record["places"].items():
    right, moved = (mean(run[key] for run in runs) for key in ("report", "report_moved"))
    print(f"{how:<14} accuracy {right:.0%} in the middle, {moved:.0%} where digits are moved")
#| caption: Similarity of learned positions against their distance: marks are seeds,
#|   lines means.

# %% [raw] slide
# ## Cosines against steps between two places
# {figure}

# %% [markdown]
# Here are the same cosines as maps, for the first seed and every second row and column of the 6 × 6 grid. Each panel
# belongs to one place, the one with the orange dot, and shows the whole grid: blue where the position is similar to that
# of the orange place, red where it is opposite, white where it is neither:

# %% tags=["hide-input"]
maps = {how: torch.tensor(table) / 100 for how, table in record["maps"].items()}   # (36, 36)
figures.position_maps(maps, side=6, every=2, most=0.6)
place = torch.arange(36)
row, column = place // 6, place % 6
down = (column[:, None] == column) & ((row[:, None] - row).abs() == 3)   # (36, 36)
across = (row[:, None] == row) & ((column[:, None] - column).abs() == 3)
for how, cosine in maps.items():
    print(f"{how:<14} three steps down or up: {cosine[down].mean():5.2f},",
          f"three steps left or right: {cosine[across].mean():5.2f}")
#| caption: Similarity of learned positions: nine places, each to all others, in three
#|   conditions. Colours end at ± 0.6.

# %% tags=["hide-input"]
for how, by_distance in cosines.items():
    for near, far in zip(by_distance[1], by_distance[4], strict=True):
        assert (near > far + 0.2) == (how != "in the middle")

# %% [raw] slide
# ## The control gives the same map
# {figure}

# %% [markdown]
# With digits in the middle, neighbours are no more alike than other places. The twenty patches of the border are
# always empty, and they resemble each other, however far apart: a blue ring, and a curve that rises. With digits
# moved anew, neighbours resemble each other. So a model can learn from its data which places are near each other, as
# the paper's did. Mostly *top and bottom* are told apart: three steps down or up the cosine is −0.3 in the first seed,
# three steps left or right it is about 0.
#
# But look at the control. Digits that were moved *once* give the same map, a little fainter, though that model never
# saw a drawing in two places. So it was enough that digits stood in **many places**: the same stroke must be recognised
# at neighbouring places. Our guess at the rest: similar positions let one set of weights do both. (The two models with a
# map read the digits less well than the one without; whether the map stays when they are trained longer we have not looked.)
# A figure in a paper is a finding about that model, and about its data.
#
# ## Attention maps and rollout: do they show what mattered?
#
# Where does the model look? The class token's row of attention weights has a number for each patch, in each of two
# layers of four heads (both counted from 0). *Before you look:* to tell a 3 from an 8, where would you look?

# %% [raw] slide
# ## Attention maps: do they show what mattered?
# > **Guess first.** To tell a 3 from an 8, where would you look?
#
# . . .
# A row in layer 1 is no longer one patch: layer 0 has mixed them. **Attention rollout** follows the mixing:
#
# $$R = \tfrac12 (A_{L-1} + I) \cdots \tfrac12 (A_0 + I)$$

# %%
with torch.no_grad():
    _, weights = vit(normed[test], with_weights=True)         # (397, layers, heads, 17, 17)
some = [int((labels[test] == digit).nonzero()[0]) for digit in (3, 8, 0)]
pictures = images[test][some, 0]                              # (3, 8, 8)
looks = weights[some, :, :, 0, 1:].unflatten(-1, (4, 4))      # row of the class token
figures.attention_by_head(pictures[:2], looks[:2], ["a 3", "an 8"])
#| caption: The class token's attention to the patches of a 3 and of an 8, in percent, by layer
#|   and head; orange, the digit's outline.

# %% tags=["hide-input"]
open_side = looks[0, :, :, 1:3, 1].amax(dim=-1)               # (layers, heads)
assert open_side.min() < 0.05 < 0.2 < open_side.max()

# %% [raw] slide
# ## Layer by layer, head by head
# {figure}

# %% [markdown]
# An 8 is closed on the left where a 3 is open, so a person looks there, at the second patch of rows 1 and 2. Some heads
# give it much, others hardly anything. Some heads follow the place and not the digit: head 3 of layer 0 gives nearly all
# weight to one patch of both. Others change with the digit, by no rule that we can name. A further reason for caution: in
# layer 1, the row at the place of patch 5 is no longer patch 5 alone: layer 0 has mixed all patches into it.
#
# **Attention rollout** ([@abnar2020]) follows the mixing down to the patches. It averages each layer's weights over
# the heads, counts half of each row as kept by the residual connection, and multiplies the layers:
#
# $$R = \tfrac12 (A_{L-1} + I) \cdots \tfrac12 (A_0 + I)$$ (eq:rollout)

# %%
rolled = attention_rollout(weights)[:, 0, 1:].view(-1, 4, 4)             # (397, 4, 4)
last = weights[:, -1].mean(dim=1)[:, 0, 1:].view(-1, 4, 4)               # mean over heads
figures.attention_on_images(list(pictures), {"last layer": list(last[some]),
                                             "rollout": list(rolled[some])},
                            ["a 3", "an 8", "a 0"])
#| caption: Attention of the class token in percent, in the last layer alone (mean over heads)
#|   and by rollout, for three digits.
#| label: attention-on-images

# %% [markdown]
# Rollout's numbers are smaller, partly because at least a quarter of its row stays with the class token (half in each of
# two layers). The maps look plausible. Are they right? A map of attention weights claims that *these patches mattered*,
# and this claim can be tested. Replace the four patches to which rollout gives most by the average of what stands
# there. If they mattered, accuracy must fall more than for four patches at random, and more than for the four to which
# rollout gives least.
#
# *Guess:* does rollout pass, in the six ViTs of the record? Could a rule that needs no model find patches that matter
# more?

# %% [raw] slide
# ## A test of a map: take its patches away
# {figure}
#
# > **Guess first.** Replace the four patches to which rollout gives most. Compare with four at random, and with a baseline that needs no model.

# %% tags=["hide-input"]
chosen = ("rollout's least", "most ink", "any four", "last layer's most", "first layer's most",
          "changed as much", "both layers, added", "rollout's most", "the most unusual")
without = {name: f"{name} (no model)" for name in ("most ink", "any four", "the most unusual")}
without["changed as much"] = "any four, as much change"
left = {name: [run[name] for run in record["removed"]] for name in chosen}
figures.rows_of_runs(
    {without.get(name, name): runs for name, runs in left.items()},
    "accuracy without four patches (lower: they mattered more)",
    hollow=without.values(),
    guides={"any four": mean(left["any four"]),
            "intact": mean(run["report"] for run in record["models"]["ViT"])})
print("rollout's correlation with ink, by seed:",
      *(f"{run['correlation with ink']:.2f}" for run in record["removed"]))
#| caption: Accuracy of six ViTs when four patches are taken away, by how they were chosen.
#|   Hollow: drawn or chosen without the model. The axis begins at 0.3.

# %% tags=["hide-input"]
for run in record["removed"]:
    assert run["rollout's most"] < run["changed as much"] < run["any four"]
    assert run["the most unusual"] < run["rollout's most"] < run["last layer's most"]
    added, first = run["both layers, added"], run["first layer's most"]
    assert run["rollout's most"] < min(added, first)
means = {name: mean(runs) for name, runs in left.items()}
gain, of = (means["last layer's most"] - means[name]
            for name in ("both layers, added", "rollout's most"))
assert 0.5 < gain / of < 0.6 and abs(means["most ink"] - means["any four"]) < 0.01
by_change = means["any four"] - means["changed as much"]
assert 0.5 < by_change / (means["any four"] - means["rollout's most"]) < 0.6
# %% [raw] slide
# ## Rollout passes, and a baseline without a model
# {figure}

# %% [markdown]
# Compare each row with any four patches, drawn at random. The patches that rollout points at matter more, and those
# that it leaves out matter less. So rollout passes this test. Was it useful to follow the mixing? The last layer alone
# does worse in all six models. So do two controls that multiply nothing: the first layer alone, and both layers'
# weights *added*. But the sum brings more than half of what rollout gains over the last layer. So following the mixing
# helps, but a little more than half of its gain lies in using the first layer, too.
#
# Now look at the rows without a model. The four patches that differ most from what usually stands there cost even more
# accuracy. But this test favours a rule that picks the largest change. So rollout needs a fairer control,
# too: four random patches that change the image *as much* as rollout's (the nearest of many draws). Beyond what any four
# cost, they bring a little more than half of what rollout's do,
# and rollout's four cost more in all six models. So part of rollout's success is that its patches are unusual, and part
# is not. Ink does not explain it: the patches with most ink cost on average no more than any four.
#
# Before you believe a map, compare it with a **baseline** that does not use the model; a13's first extension asks the
# same of your ViT. Rollout uses neither the values nor the feed-forward networks. Such controls have a literature: *sanity checks* ([@adebayo2018], who compare maps with an edge detector), removal
# with retraining (ROAR, [@hooker2019]), and a map that uses gradients, too ([@chefer2021]).
#
# ## Sound as a sequence: harmonics, formants, spectrogram
#
# Sound, too, is a sequence of numbers: the pressure at the ear, measured 8,000 or 16,000 times a second. Recordings are
# cheap, but transcripts are not. Can a Transformer learn something from sound *alone*?
#
# To see what was learned, we need sounds about which we know everything. So we make them: a voice sings vowel after
# vowel on one pitch, each for 0.08 to 0.2 seconds. A voice is a sum of **harmonics**, whole multiples of the pitch.
# The resonances of the mouth, the **formants**, decide how loud each harmonic is. In our sounds the formants alone
# decide the vowel. Here is one vowel on two pitches, as our formula makes it:

# %% tags=["hide-input"]
def loudness(hertz):                                          # decibels, in the vowel of "head"
    formants = torch.tensor(FORMANTS["head"])[:, None]        # (3, 1)
    return 20 * (resonance(hertz[:, None], formants)[:, 0] / hertz).log10()


hertz = torch.arange(80.0, 3500.0, 5.0)
top = loudness(hertz).max()
voices = {}
for pitch in (100, 200):
    harmonics = torch.arange(pitch, 3500.0, pitch)
    voices[f"pitch {pitch} hertz"] = (harmonics.tolist(), (loudness(harmonics) - top).tolist())
figures.harmonics_and_formants(voices, (hertz.tolist(), (loudness(hertz) - top).tolist()),
                               FORMANTS["head"], "The vowel of head")
#| caption: The vowel of *head* on two pitches: blue its harmonics, dashed their envelope, the
#|   fall of the voice's own harmonics times the formants.

# %% [markdown]
# The pitch decides where the harmonics stand, the formants how high. So pitch and vowel are two different things in one
# sound. Each voice of ours has its own pitch and its own size of head, a factor of all formants. Each vowel is named by
# an English word that has it (the values are from [@peterson1952]).

# %% [raw] slide
# ## Sound as a sequence
# - The pressure at the ear, 8,000 or 16,000 times a second.
# - A voice is a sum of **harmonics**; **formants** decide how loud each is.
# - We make the sounds: vowel after vowel, on one pitch.

# %%
draws = torch.Generator().manual_seed(1)
train_sounds = vowels(400, noise=0.1, generator=draws)
test_sounds = vowels(200, noise=0.1, generator=draws)
waveform, size = train_sounds.waveform[0], train_sounds.size[0].item()   # (8000,), a number
vowel = train_sounds.vowel[0].tolist()                                   # 8000 numbers, 0 to 4
names = list(FORMANTS)
spoken, start = [], 0                                                    # from, to, vowel
for i in range(1, RATE + 1):
    if i == RATE or vowel[i] != vowel[start]:
        spoken.append((start / RATE, i / RATE, names[vowel[start]]))
        start = i
words = [word for _, _, word in spoken]
print(f"a voice at {train_sounds.pitch[0]:.0f} hertz:", ", ".join(words))
Audio(waveform.numpy(), rate=RATE)

# %%
def spectra(waveform):                                        # 25 ms at a time, every 20 ms
    frames = waveform.unfold(-1, 200, 160) * torch.hann_window(200)      # (..., n_frames, 200)
    return (torch.fft.rfft(frames).abs().square() + 0.01).log()          # (..., n_frames, 101)


formants = [[hertz * size for hertz in FORMANTS[word]] for word in words]
figures.waveform_and_spectrogram(waveform, spectra(waveform), spoken, RATE, hop=160,
                                 formants=formants, title="one second of a synthetic voice",
                                 highest=2500)
#| caption: One second of sung vowels: waveform, and spectrogram with formants.
#| label: spectrogram

# %% [raw] slide
# ## Waveform and spectrogram
# {figure}

# %% [markdown]
# Below the waveform is a **spectrogram**: it shows how loud each frequency is, in short pieces of sound (darker is
# louder). The dashed orange lines are the formants as they were sung. The first, F1, lies on the strong band, whose
# fine stripes are harmonics. F2 and F3 are mostly lost in the noise, because a voice is weak at high frequencies: about
# 20 and 30 decibels weaker than at F1 in the figure before.
#
# ## Linear probes: which vowels are confused?
#
# What can be read from this picture? Here is F1 for each vowel, from the largest head to the smallest. A listener who
# hears F1 alone will confuse vowels whose ranges overlap. *Write down a prediction:* which vowels are they?

# %%
for word in sorted(FORMANTS, key=FORMANTS.get):               # from the lowest F1
    f1 = FORMANTS[word][0]
    print(f"{word:<6} F1 from {0.9 * f1:3.0f} to {1.2 * f1:3.0f} hertz")

# %% [raw] slide
# ## Linear probes: which vowels are confused?
# {print}
#
# > **Write down a prediction.** A listener who hears F1 alone confuses vowels whose ranges overlap. Which?

# %% [markdown]
# Such a listener will confuse *heed* with *who'd*, and *heard* with *head*. *Hod* stands alone. To test this
# prediction we need something that reads the vowel. A **linear probe** is the usual way to find out what a
# representation holds: fit a linear map from it to something that we know, here the vowel of each frame, and test the
# map on new sounds. What a *linear* map can read, any later layer can use directly. Ours is fitted by least squares
# with a small penalty on large weights (**ridge regression**). The minimum of $\|XW - Y\|^2 + \lambda \|W\|^2$ has a
# closed form: $W = (X^\top X + \lambda I)^{-1} X^\top Y$.

# %%
centres = 100 + 160 * torch.arange(49)                        # the middle sample of each frame


def with_one(x):                                              # a column of ones: the bias
    return F.pad(x, (0, 1), value=1.0).double()


def probe(inputs, outputs, answers):
    """Fit on `inputs`, read from `outputs`, (sounds, 49, d) both: (sounds, 49, k)."""
    scale = inputs.std((0, 1)) + 1e-6
    inputs, outputs = (with_one((x - inputs.mean((0, 1))) / scale) for x in (inputs, outputs))
    x, y = inputs.flatten(0, 1), answers.flatten(0, 1).double()          # (n, d + 1), (n, k)
    ridge = 1e-3 * len(x) * torch.eye(x.shape[1])             # a little: keeps weights small
    return outputs @ torch.linalg.solve(x.mT @ x + ridge, x.mT @ y)


known = F.one_hot(train_sounds.vowel[:, centres])             # (400, 49, 5)
scores = probe(spectra(train_sounds.waveform), spectra(test_sounds.waveform), known)
predicted, truth = scores.argmax(dim=-1), test_sounds.vowel[:, centres]  # (200, 49) each
by_spectra = torch.bincount(5 * truth.flatten() + predicted.flatten(), minlength=25).view(5, 5)
print(f"from log spectra: {(predicted == truth).double().mean():.0%} of the frames right")

# %%
listened = measured("sound")
tables = {"F1 alone, known exactly": torch.tensor(listened["confusions"]["first formant"]),
          "log spectra": by_spectra}
figures.confusions(tables, names, predicted=[("heed", "who'd"), ("head", "heard")])
#| caption: Vowels confused, by what is known of the sound: shares of each row, the predicted
#|   pairs framed.

# %% tags=["hide-input"]
recorded = torch.tensor(listened["confusions"]["log spectra"])
assert (by_spectra - recorded).abs().sum() < 50, "the record's, of 9,800 frames, up to rounding"
wrong = by_spectra - by_spectra.diag().diag()
inside = wrong[0, 3] + wrong[3, 0] + wrong[1, 4] + wrong[4, 1]
assert inside > 0.6 * wrong.sum(), "the pairs that were predicted have most of the mistakes"
hertz = torch.arange(150, 1000, 0.01)                         # sizes from 0.9 to 1.2, all alike
dense = torch.stack([((0.9 * f1 <= hertz) & (hertz <= 1.2 * f1)) / (0.3 * f1)
                     for f1, f2, f3 in FORMANTS.values()])        # (5, n)
print(f"the best possible reader of F1 alone: {dense.amax(0).sum() * 0.01 / 5:.0%} right")

# %% [raw] slide
# ## Heed with who'd, heard with head
# {figure}

# %% [markdown]
# The prediction holds. The left probe was given F1 as it was drawn (its logarithm, with the square and the cube), and
# nothing else. It reads 72 %, and nearly all of
# its mistakes lie in the framed cells. The best possible reader of F1 alone would read 74 %. The right probe was given the log
# spectra. It reads 78 %, more than any reader of F1 alone could: it uses part of F2 and F3, too, or loudness. Most of
# its mistakes are the predicted ones, too.
#
# ## Frames: a convolution makes the sequence
#
# **wav2vec 2.0** ([@baevski2020]) is not given a spectrogram. It starts from the waveform, and convolutions turn it
# into **frames**, each made from a short piece. How short is the piece? You can work it out from seven kernels and
# strides, or ask autograd on which samples a frame depends:

# %%
encoder = FeatureEncoder(8, kernels=(10, 3, 3, 3, 3, 2, 2), strides=(5, 2, 2, 2, 2, 2, 2))
second = torch.randn(1, 16000, requires_grad=True)            # a second at 16 kHz
frames = encoder(second)                                      # (1, 49, 8)
samples = {}                                                  # those on which a frame depends
for i in (20, 21):
    gradient = torch.autograd.grad(frames[0, i].sum(), second, retain_graph=True)[0]
    samples[i] = gradient[0].nonzero()[:, 0]
length = (samples[20][-1] - samples[20][0] + 1).item()
hop = (samples[21][0] - samples[20][0]).item()
print(f"{frames.shape[1]} frames a second, each from {length / 16:.0f} ms,",
      f"{hop / 16:.0f} ms after the one before")

# %% tags=["hide-input"]
assert length == 400 and hop == 320 and frames.shape[1] == 49

# %% [markdown] teaches="sound: wav2vec 2.0"
# A second becomes 49 rows. Now sound is a sequence like any other. For our sounds, at half the rate, two convolutions
# are enough: with kernels of 80 and 4 samples and strides of 40 and 4 they, too, come to 25 and 20 milliseconds.
#
# ## Self-supervised learning: mask, and tell the target from negatives
#
# How can a model learn without labels? In text, a token is masked and the model predicts it ([lecture
# @transformer](@transformer)). The label is made from the data itself: this is **self-supervised learning**. The same
# can be done with frames. But what does it mean to predict a *frame*? It is a vector of real numbers, and much of it
# is noise. And if the frames are themselves learned, there is a trivial solution: make them all equal, and every
# prediction is right (**collapse**). Wrong candidates rule it out. So wav2vec 2.0 asks: *here are 101 frames of this
# sound* (on this page, eleven). *One of them was masked at this place. Which?*

# %% [raw] slide
# ## Self-supervised learning: mask, and pick the target
# wav2vec 2.0 (Baevski et al. 2020): convolutions make **frames** of 25 ms, 49 a second. A span is masked; which of these frames stood there?
#
# $$\mathcal L_t = -\log \frac{\exp\bigl(\cos(c_t, q_t)/\kappa\bigr)} {\sum_{\tilde q} \exp\bigl(\cos(c_t, \tilde q)/\kappa\bigr)}$$
#
# **Contrastive loss** (InfoNCE): a lookup among the target and **negatives**.

# %%
figures.wav2vec_diagram(targets="matrix")
#| caption: wav2vec 2.0 without its codebook: masked frames, guesses, and targets among
#|   negatives.
#| label: wav2vec

# %% [raw] slide
# ## wav2vec 2.0
# {figure}

# %% [markdown]
# Read the figure from the bottom. The waveform becomes frames $z$. A span of them is **masked**: each of its frames is
# replaced by the same learned vector. At each masked place $t$ the Transformer gives a guess $c_t$. The original frame
# gives the **target** $q_t$: here a matrix times the frame; *Going further* puts a codebook there. Frames masked
# elsewhere in the same sound give the **negatives**. The loss is the cross-entropy of picking the target, by cosine:
#
# $$\mathcal L_t = -\log \frac{\exp\bigl(\cos(c_t, q_t)/\kappa\bigr)}
# {\sum_{\tilde q} \exp\bigl(\cos(c_t, \tilde q)/\kappa\bigr)}, \qquad \tilde q \text{ over } q_t
# \text{ and the negatives}$$ (eq:contrastive)
#
# This **contrastive loss** is known as **InfoNCE** ([@oord2018]). It is a lookup again [@eq:soft-attention]: the guess
# is the query, the candidates are the keys, and $\kappa$ is the temperature of lecture @lookup. ($c$ is the
# Transformer's output, not the context vector of lecture @cross_attention.) Here are a guess's cosines with its target
# and ten negatives, and the probabilities that softmax makes of them at two temperatures.
#
# > **A common mistake: "what is masked is masked for the targets, too."** It is not. In the first figure of the wav2vec
# > 2.0 paper the targets are made of what stands *below* the mask: what is hidden from the Transformer is not hidden from
# > the targets.

# %% tags=["hide-input"]
figures.info_nce([0.8, 0.3, -0.2, 0.5, 0.1, -0.5, 0.0, 0.6, -0.1, 0.2, -0.3], kappas=(1.0, 0.1))
#| caption: The contrastive loss: one target among ten negatives.

# %% [raw] slide
# ## The temperature of the game
# > **Guess first.** Ten negatives, κ = 1, a perfect guess: how low can the loss get?

# %% [markdown]
# Cosines lie between −1 and 1. *Before you run it:* with ten negatives and $\kappa = 1$, how low can the loss get, for a
# perfect guess?

# %%
c = torch.eye(2)[:1]                                          # (1, 2)
for kappa in (1.0, 0.3, 0.1):
    best = contrastive_loss(c, c, -c.expand(1, 10, 2), kappa).item()     # all others opposite
    print(f"κ = {kappa}: at best {best:.5f}, by guessing {math.log(11):.2f}")
candidates = torch.cat([c[None], -c.expand(1, 9, 2)], dim=1)  # (1, 10, 2)
twice = contrastive_loss(c, c, candidates, 0.1).item()
print(f"with the right one among the negatives: at best {twice:.2f} = log 2")

# %% [raw] slide
# ## κ = 0.1
# {print}
#
# Negatives must not include the right one.

# %% [markdown]
# At $\kappa = 1$ a perfect guess still has a loss of 0.86, because cosines cannot lie further apart than 2. At 0.1,
# the paper's choice, its loss is nearly 0.
#
# If negatives are drawn from *all* masked frames, the target is sometimes among them. Then the model is asked to tell a
# frame from itself, and the loss of that guess is at least log 2.
#
# ## Span masking: how much, and why not single frames
#
# How much should be masked? In wav2vec 2.0 a share $p = 0.065$ of the frames, drawn at random, start a span (we draw each
# frame by itself), and a span has $M = 10$ frames. Spans may overlap. *How much of the sound is masked: 6.5 %, 65 %, or another share?* (A frame
# stays visible if no span starts at it or at one of the nine frames before it.)

# %% [raw] slide
# ## Span masking
# A share $p = 0.065$ of the frames starts a span of $M = 10$.
#
# > **Guess first.** How much of the sound is masked: 6.5 %, 65 %, or another share?
#
# . . .
# $$1 - (1 - p)^M = 49\,\%$$

# %%
long = span_mask(1, 100_000, p=0.065, span=10, generator=torch.Generator().manual_seed(0))
print(f"expected {1 - (1 - 0.065) ** 10:.1%}, sampled {long.float().mean():.1%}")


def spans(p, span):
    mask = span_mask(4, 49, p, span, torch.Generator().manual_seed(0))   # (4, 49)
    return figures.span_frame(mask, 1 - (1 - p) ** span, f"p = {p}, spans of {span}")


viz.explore(spans, p=[0.065, 0.2, 0.5], span=[1, 3, 10], start={"p": 0.065, "span": 10})
#| caption: Masked spans of a sound.

# %% [raw] slide
# ## Why not single frames?
# {figure}
#
# **Now you:** a@beyond_text, exercises 3 to 5

# %% [markdown]
# Half of it: a frame is visible with probability $(1 - p)^M$, and masked with $1 - (1 - p)^M$.
#
# Why spans? Set the span to 1 at p = 0.5. Half is masked, and three in four of the masked frames have a visible
# neighbour, 20 milliseconds away, most often in the same vowel. A copy of the neighbour is then a good guess, and
# nothing has to be learned. So a span should be longer than the time over which neighbours are alike. Our vowels last
# 4 to 10 frames, and our spans have three: an easier task than the paper's, for a small model.
#
# **Now you:** [a13](@beyond_text/assignment), exercises 3 to 5.
#
# ## Negatives decide what is learned: an experiment
#
# Where should the negatives come from? The paper draws them from other masked frames of the same sound. We could draw
# them from the whole batch instead, which has more frames, from many voices. Is that better? The two variants differ
# in one line:

# %%
def one_sound(mask, generator):                               # negatives from the same sound
    return sample_negatives(mask, 10, generator)


def any_sound(mask, generator):                               # negatives from the whole batch
    # all masked frames of the batch, as if they were of one sound
    return sample_negatives(mask[mask][None], 10, generator)


def play(model, waveform, draw, generator):
    z = model.frames(waveform)                                           # (batch, 49, 64)
    mask = span_mask(len(z), z.shape[1], p=0.12, span=3, generator=generator)
    c = model.guess(model.contextualise(z, mask=mask)[mask])             # (n_masked, 64)
    q = model.target(z[mask])                                            # (n_masked, 64)
    return contrastive_loss(c, q, q[draw(mask, generator)])


def listener(seed):
    torch.manual_seed(seed)
    # RoPE here: the paper's positions are one more convolution, over 128 frames
    config = Wav2Vec2Config(d_model=64, n_layers=2, n_heads=4, d_ff=128, dropout=0.0,
                            positions="rope", d_feature=64, kernels=(80, 4),
                            strides=(40, 4), d_code=64)
    model = Wav2Vec2(config)
    model.target = nn.Linear(64, 64)                          # instead of a codebook
    return model


with torch.no_grad():
    for draw in (one_sound, any_sound):
        loss = play(listener(0), train_sounds.waveform[:24], draw,
                    torch.Generator().manual_seed(0))
        print(f"untrained, {draw.__name__}: {loss:.2f}   (guessing: {math.log(11):.2f})")

# %% [raw] slide
# ## Negatives decide what is learned
# Negatives from the **same sound**, or from **any sound** of the batch. One pitch a sound; vowels change.
#
# > **Guess first.** Whose loss falls faster?

# %% [markdown]
# The untrained model is worse than guessing, because at κ = 0.1 random cosines count as confident guesses. Both
# models are trained for 360 steps of 24 sounds, from three seeds. *Both* start with negatives from any sound, and at
# step 30 one of them changes to negatives from the same sound. *Guess:* whose loss falls faster? And what happens at
# step 30 to the loss of the run that switches?

# %% tags=["hide-input"]
print(listened["command"])
steps = range(10, 361, 10)
lines = {}
for name in ("any sound", "one sound"):
    lines[name] = {step: [losses[step // 10 - 1] for losses in listened["losses"][name]]
                   for step in steps}
figures.runs_over(lines, "training step", "contrastive loss (nats, mean of 10 steps)",
                  level=("guessing", math.log(11)), event=("step 30: one run changes", 30))
for name in ("untrained", "any sound, 30 steps"):
    reads = listened["probes"][name]
    print(f"{name:<19} a linear probe reads, by seed, of the vowels",
          *(f"{run['vowel']:.0%}" for run in reads), " of the pitch's variance",
          *(f"{run['pitch']:.0%}" for run in reads))
#| caption: Contrastive loss in training, with negatives from any sound and from the same sound.

# %% [raw] slide
# ## Two losses of two different games
# {figure}
#
# > **Write down two predictions.** What will each model have learned, the vowel or the pitch?

# %% [markdown]
# With negatives from any sound the loss drops early and far. The other run goes back to guessing after step 30, stays
# there for another 60 to 100 steps, depending on the seed, and then falls, less far. At step 30 it had begun to tell
# singers apart (printed above: a probe then reads more of the pitch than before, and no more of the vowels). Among frames
# of one singer this does not help.
#
# But the two losses belong to two different games. Frames of other singers are easier to tell apart, so the lower loss
# is not the better score. What counts is what each model has learned.
#
# *Write down two predictions.* Each sound has one pitch throughout, and its vowels change. Which model will encode the
# vowel, and which the pitch? Linear probes read both from the Transformer's output, with nothing masked, and once more
# from the frames $z$ before the Transformer. $R^2$ is the share of the variance of the pitch's logarithm that the probe
# explains.

# %% tags=["hide-input"]
order_of_rows = ("any sound", "one sound", "untrained", "log spectra")
probes = listened["probes"]
output, frames_z = {}, {}
for name in order_of_rows:
    output[name] = [(run["vowel"], run["pitch"]) for run in probes[name]]
    if name != "log spectra":
        frames_z[name] = [(run["vowel of frames"], run["pitch of frames"])
                          for run in probes[name]]
figures.two_probes(output, "share of frames whose vowel a linear probe reads",
                   "$R^2$ of the log pitch, by a linear probe", guessing=1 / 5, before=frames_z)
#| caption: What linear probes read from the output (hollow: from the frames z), a mark for each
#|   seed, by where the negatives of the training came from.

# %% tags=["hide-input"]
vowel, pitch = ({name: [run[what] for run in probes[name]] for name in order_of_rows}
                for what in ("vowel", "pitch"))
for i in range(3):
    assert pitch["any sound"][i] > 0.85 and vowel["any sound"][i] < vowel["one sound"][i] - 0.2
    assert vowel["one sound"][i] > vowel["untrained"][i] + 0.2 and pitch["one sound"][i] < 0.6
    assert vowel["any sound"][i] < vowel["untrained"][i]
    assert vowel["log spectra"][0] > vowel["one sound"][i], "an engineer still does better"

# %% [raw] slide
# ## Nothing forces it to keep the rest
# {figure}

# %% [markdown]
# With negatives from any sound the output holds the pitch nearly perfectly. A linear probe reads the vowels less well
# than from the untrained network. With negatives from the same sound the pitch is useless, since all candidates share
# it. Now the probe reads about two vowels in three, though the network has seen no label. All sounds are new to model
# and probe. Most of it is already in the frames: the hollow marks of the trained models lie close to the full ones. The
# frames were shaped by two gradients, one through the Transformer and one through the targets; we have not told them apart.
#
# Our explanation: to tell a frame from those of other singers, the voice is enough. An experiment could refute it. Give
# all singers one pitch and one size of head, and change nothing else. *Guess:* what will negatives from any sound teach
# if all singers are one?

# %% [raw] slide
# ## A test of the explanation
# To tell a frame from those of other singers, the voice is enough. So give all singers one pitch and one size of head.
#
# > **Guess first.** What will negatives from *any* sound teach if all singers are one?

# %% tags=["hide-input"]
print("vowels that a probe reads where all singers are one, by seed")
for name in ("one singer, untrained", "one singer, any sound"):
    for what, where in (("vowel of frames", "frames z"), ("vowel", "output")):
        print(f"{name:<22} {where:<9}", *(f"{run[what]:.0%}" for run in probes[name]))
for before, after in zip(*(probes[f"one singer, {how}"] for how in ("untrained", "any sound")),
                         strict=True):
    assert after["vowel of frames"] > before["vowel of frames"] + 0.1
    assert after["vowel"] > before["vowel"]

# %% [raw] slide
# ## If all singers are one
# {print}

# %% [markdown]
# Now the same negatives teach vowels: a probe reads more of them than from the untrained network, in every seed. With
# many singers the same training took vowels away. So the explanation has survived a test that it could have failed.
#
# **A contrastive model learns what tells the target from its negatives, and nothing forces it to keep the rest.** When
# you read of a new method of this kind, look first for where its negatives come from. A negative can also be too like
# its target: where a sound repeats a vowel, the loss asks the model to tell two equal things apart. Assignment
# @beyond_text counts such **false negatives**.
#
# Are its mistakes those of a listener who hears F1, the predicted pairs?

# %% tags=["hide-input"]
by_listener = {name: torch.tensor(listened["confusions"][name])
               for name in ("any sound", "one sound")}
figures.confusions(by_listener, names, predicted=[("heed", "who'd"), ("head", "heard")])
for name, table in (by_listener | {"log spectra": by_spectra}).items():
    wrong = table - table.diag().diag()
    inside = wrong[0, 3] + wrong[3, 0] + wrong[1, 4] + wrong[4, 1]
    print(f"{name}: {inside / wrong.sum():.0%} of the mistakes are the predicted pairs")
#| caption: Vowels confused, for encoders trained with negatives from any sound and from the
#|   same sound; three seeds together.

# %% [markdown]
# With negatives from one sound, eight in ten of the mistakes are the predicted pairs. But seven in ten of those from log
# spectra lie there, too: these vowels sound alike to any reader. So the mistakes are consistent with a model that uses
# F1, but they do not prove it.
#
# Log spectra, which engineers designed, are still better: the model had 400 sounds, and began with raw samples. The
# paper's largest model had 53,000 hours. Fine-tuned with CTC (below) on *ten minutes* of transcribed speech, and helped by a
# language model, it gets 4.8 % of the words wrong on LibriSpeech's clean test set.
#
# ## Where this went: DeiT, MAE, CLIP, HuBERT, Whisper
#
# What came next, and the idea of this page in it:
#
# | model | what it changed | the idea on this page |
# |---|---|---|
# | DeiT ([@touvron2021]) | ViT on ImageNet's 1.2 million images alone: heavy augmentation brings 83.1 % (at 384 × 384 pixels), a CNN as teacher up to 85.2 %. A plain ViT with standard augmentation reaches 80 % ([@beyer2022]); how to choose: [@steiner2022] | augmentation teaches what is not built in |
# | MAE ([@he2022]) | masks 75 % of the patches, and reconstructs their pixels; the encoder sees only the visible ones | masking must leave a task that no interpolation solves |
# | CLIP ([@radford2021]) | an image against captions, a caption against images; 400 million pairs | InfoNCE in both directions (*Going further*) |
# | HuBERT ([@hsu2021]) | predicts the *cluster* of a masked frame; clusters by k-means, made anew from the model's own features | no negatives, no learned codebook |
# | CTC ([@graves2006], older) | a loss for labels without alignment: sums over all ways to spread the letters over the frames | how wav2vec 2.0 is fine-tuned to write text |
# | Whisper ([@radford2023]) | lecture @transformer's encoder–decoder, spectrogram in, text out; 680,000 hours with transcripts from the web | with enough labels, no self-supervised loss is needed |
#
# <details><summary>And eight more (SimCLR is older): SimCLR, SigLIP, Swin, DINO, registers, 2-D RoPE, LLaVA, DiT</summary>
#
# | model | what it changed | the idea on this page |
# |---|---|---|
# | SimCLR ([@chen2020]) | two augmented crops of an image against other images | augmentation makes useless what is to be ignored |
# | SigLIP ([@zhai2023]) | CLIP with a sigmoid for each pair: match or not? No softmax over the batch | negatives without competition |
# | Swin ([@liu2021]) | attention within windows that shift from layer to layer: cost linear in the image | locality put back (lecture @cheap_attention) |
# | DINO ([@caron2021]) | a student predicts, from one crop, what a slowly moving average of itself says of another; the class token's maps outline objects without a label | no negatives; test the maps all the same |
# | registers ([@darcet2024]) | in large ViTs the vectors of a few background patches become large and collect weight: the model stores information about the whole image there; a few extra learned tokens take over that job, and the maps become clean | a map need not show what lies in its patches |
# | 2-D rotary positions ([@heo2024]) | half of the pairs turn with the row, half with the column; no learned table, so other image sizes fit | the map need not be learned (lecture @order) |
# | LLaVA ([@liu2023]) | CLIP's patch vectors, through a learned projection, as tokens of a language model | no layer depends on where its rows come from |
# | DiT ([@peebles2023]) | a ViT in place of the convolutions of a diffusion model: noisy patches of a compressed image in, the noise out | an image as output: patches put together again |
#
# </details>
#
# ## In short
#
# | | | shapes |
# |---|---|---|
# | patch embedding | $x_i W$, flattened patches of $s \times s$ pixels; $n = H W / s^2$ for $H \times W$ | $(n, C s^2) \to (n, d)$ |
# | ViT | $\operatorname{norm}(\operatorname{blocks}([\text{class}; XW] + P))_0\, W_{\text{head}}$ | $(1 + n, d) \to$ classes |
# | rollout | $\tfrac12 (A_{L-1} + I) \cdots \tfrac12 (A_0 + I)$ | $(1 + n, 1 + n)$ |
# | InfoNCE | $-\log \operatorname{softmax}(\cos(c, \tilde q) / \kappa)$ at the target; guessing costs $\log(1 + K)$ with $K$ negatives | one per masked frame |
# | masked share | $1 - (1 - p)^M$ | |
#
# An image becomes a sequence of patches, a sound a sequence of frames; the Transformer in between stays the same. A
# ViT has little inductive bias, so it must learn from data what is built into a convolution. But with the same readout
# shuffled pixels cost both, and after 450 steps the readout alone made up about six tenths of the CNN's lead: an
# explanation needs a control. So does a map of attention weights. Positions became a map when digits stood in many
# places. A contrastive model learns what tells the target from its negatives.
#
# **In the package.** `attncourse.beyond_text` has `patchify`, `ViT`, `attention_rollout`, `FeatureEncoder`,
# `span_mask`, `sample_negatives`, `contrastive_loss`, `Quantizer`, `diversity_loss` and `Wav2Vec2`, which has the
# codes in it; `attncourse.data.vowels` makes the sounds.
#
# > **Check yourself.** (1) A second of sound at 16 kHz, wav2vec's frames: how many attention weights has one head? And for a
# > minute? (2) You draw 100 negatives in place of 10. What happens to the loss of a model that only guesses? (3) A
# > friend trains a contrastive model on photographs, two crops of one image against crops of other images, and
# > finds that it knows colours well and shapes badly. Explain, and suggest something.
# > <details><summary>Answers</summary>
# >
# > (1) 49² = 2,401; 2,999² is nine million. (2) It rises, from log 11 to log 101:
# > losses with different numbers of negatives cannot be compared. (3) Two crops of an image share their colours, and
# > colours tell them from other images. So colour is all that is needed. Change the colours of each crop at random:
# > what is to be ignored must be made useless. (It is SimCLR's finding: [@chen2020], section 3.)
# >
# > </details>
#
# **Now do** [assignment @beyond_text](@beyond_text/assignment) (about two hours): five exercises, two questions in
# words, and two extensions. **Next:** [lecture @errata_lab](@errata_lab). There you ask of programs what this lecture
# asks of representations: what does a falling loss show? Below are four sections for those who have time left.
#
# **Further reading.** [+@dosovitskiy2021]: section 3 is two pages, section 4.3 is about the number of images that a
# ViT needs. [+@abnar2020]. [+@adebayo2018]; [+@hooker2019]; [+@chefer2021]. [+@baevski2020]: sections 2 and 3 describe
# the training of this page. [+@oord2018]. [+@peterson1952].

# %% [raw] slide
# ## In short
# | | |
# |---|---|
# | patch embedding | $x_i W$, patches of $s \times s$ pixels; $n = H W / s^2$ |
# | ViT | $\operatorname{norm}(\operatorname{blocks}([\text{class}; XW] + P))_0\, W_{\text{head}}$ |
# | rollout | $\tfrac12 (A_{L-1} + I) \cdots \tfrac12 (A_0 + I)$ |
# | InfoNCE | $-\log \operatorname{softmax}(\cos(c, \tilde q) / \kappa)$ at the target |
# | masked share | $1 - (1 - p)^M$ |
#
# **Now do** assignment a@beyond_text. **Next:** lecture @errata_lab.

# %% [markdown]
# ## Going further: when is a CNN invariant to shifts?
#
# Convolutions are equivariant, so the features move along with the image. The usual answer says that the CNN fails on
# moved digits because its last layer has learned *where* to expect them; a last layer that averages over places would
# not notice a shift. This answer can be tested, because two more things could break the invariance:
#
# * **Pooling** in steps of two pixels is not equivariant to a shift by one pixel.
# * At the **border** the shift cuts off ink, and the convolutions pad with zeros (a mid-grey, since the images are
#   normalised). In a *wide frame*, five empty pixels around each digit and no padding, nothing meets a border.
#
# *Guess:* which of the five rows below reads moved digits as well as digits in the middle?

# %%
averaging = "CNN, mean over places"
read_moved(averaging, f"{averaging}, no pooling", f"{averaging}, wide frame",
           f"{averaging}, wide frame, no pooling", "CNN, wide frame, no pooling")

# %% tags=["hide-input"]
models = record["models"]
invariant = models[f"{averaging}, wide frame, no pooling"]
assert all(run["report"] == run["moved"] for run in invariant)
for name, least in ((f"{averaging}, no pooling", 0.3), (f"{averaging}, wide frame", 0.1),
                    ("CNN, wide frame, no pooling", 0.5)):
    assert all(run["report"] - run["moved"] > least for run in models[name])

# %% [markdown]
# The last two rows differ in the readout alone, and there the usual answer holds. With a weight for each place the CNN
# reads 98 % of the digits, and 41 % of the moved ones. With the mean it reads exactly as many moved as unmoved digits,
# in every seed: **equivariant layers and a mean over all places are invariant, if nothing meets a border and nothing
# is pooled in steps.**
#
# In the other rows these conditions do not hold. Pooling alone costs the averaging CNN 19 points (from 91.5 % to
# 72.7 %). The border alone costs 35 points (from 87.8 % to 52.8 %), as many as both together. (Invariance has a price,
# too: after 450 steps that CNN reads only 73 % of either.)
#
# ## Going further: CLIP, InfoNCE in both directions
#
# A batch has $B$ pairs of an image and its caption. Two encoders make one vector of each: the rows of $U$ are the
# images, those of $V$ the captions, all of length one. The matrix $UV^\top / \kappa$ has a cosine for each image with
# each caption, and the right answers stand on its diagonal. Each row asks *which caption?*, each column *which
# image?*, and the loss is the mean of the two cross-entropies. The negatives are the other pairs of the batch, and κ
# is learned. *What does the second direction add?* Suppose that all vectors match but for one lazy caption, "a photo",
# which lies near every image:

# %%
torch.manual_seed(0)
B, kappa = 6, 0.1
U = F.normalize(torch.randn(B, 32), dim=-1)                   # (B, d)  images
V = F.normalize(U + 0.1 * torch.randn(B, 32), dim=-1)         # (B, d)  captions, nearly right
V[0] = F.normalize(U.sum(dim=0), dim=-1)                      # the lazy one
logits, answers = U @ V.mT / kappa, torch.arange(B)           # (B, B), (B,)
which_caption = F.cross_entropy(logits, answers)              # along the rows
which_image = F.cross_entropy(logits.mT, answers)             # along the columns
clip_loss = (which_caption + which_image) / 2
print(f"which caption: {which_caption:.2f}   which image: {which_image:.2f}",
      f"  loss: {clip_loss:.2f}")
own = logits.softmax(dim=0).diag()                            # (B,)  of each caption's image
print(f"the right image's probability: {own[0]:.2f} for the lazy caption,",
      f"at least {own[1:].min():.3f} for the others (guessing: {1 / B:.2f})")
assert which_image > 2 * which_caption

# %% [markdown]
# The rows hardly notice: each image but one has a better caption than the lazy one. The columns notice: the lazy caption
# gives its own image a probability of only 0.43, and every other caption gives its own image more than 0.99.
#
# To classify images without training a classifier, write a caption for each class ("a photo of a cat") and take the one
# with the highest cosine (**zero-shot**). The rule of this page holds here, too: nothing forces the model to keep what no
# caption tells apart.
#
# ## Going further: a tenth of the images
#
# How much does each model lose with fewer images? The figure shows the same 450 steps with 120 images in place of 1,200,
# for three seeds:

# %%
shares = {}
for name, runs in record["few"].items():
    shares[f"{name}, 1,200"] = [run["report"] for run in record["models"][name][:3]]
    shares[f"{name}, 120"] = [run["report"] for run in runs]
for n, found in record["baselines"].items():                  # nothing is drawn: no seed
    shares[f"nearest neighbour, {int(n):,}"] = [found["nearest neighbour"]]
figures.rows_of_runs(shares, "share of the test images that are right",
                     hollow=[name for name in shares if name.endswith(" 120")])
#| caption: Test accuracy with 1,200 training images and with a tenth of them (hollow), three
#|   seeds each. The axis begins at 0.73.

# %% tags=["hide-input"]
assert all(a < b - 0.05 for a, b in zip(shares["ViT, 120"], shares["CNN, 120"], strict=True))

# %% [markdown]
# The ViT loses most, by far. (Large ViTs are usually trained once, on as many images as can be had, and then adapted:
# **pre-training** and **fine-tuning**.) But look at the MLP. It has no locality either, and loses no more points than
# the CNN. So a lack of locality does not explain why the ViT loses so much.
#
# ## Going further: a codebook, Gumbel-softmax and straight-through gradients
#
# wav2vec 2.0 does not compare guesses with frames but with **codes**: each frame is replaced by an entry of a small
# table, the **codebook**, which is learned as well. (In the paper there are two tables of 320 entries, and an entry of
# each is taken.) Why? A frame is full of detail that is easy to match and worth nothing: this microphone, this breath.
# A choice among a few hundred entries has little room for such detail, and in the paper's ablation continuous targets
# did worse. (HuBERT answers the same question with k-means.)

# %% tags=["hide-input"]
figures.wav2vec_diagram()
#| caption: wav2vec 2.0 as it is: a codebook makes the targets.

# %% [markdown]
# A choice is not differentiable. Three tricks help. First, Gumbel noise $g$ is added to the scores $s$, so that each
# entry is the largest with its softmax probability (the **Gumbel-max trick**). Second, a softmax with temperature $T$
# takes the place of the arg max, and can be differentiated: the **Gumbel-softmax** ([@jang2017]; [@maddison2017] call
# it the Concrete distribution). Third, the forward pass uses the hard choice all the same, and only the backward pass
# uses the softmax:
#
# $$\text{forward: } \operatorname{onehot}(\arg\max_e (s_e + g_e)) \qquad
# \text{backward, as if: } \operatorname{softmax}((s + g) / T)$$
#
# This is the **straight-through estimator** ([@bengio2013]). The temperature $T$ falls during training: at first a soft
# gradient reaches all entries, later the gradient is nearer to the choice. We watch this where we know the answer. The
# points are of eight kinds and are seen twice with different noise. The codebook has 16 entries, and the model is not told
# the kinds.

# %%
codes = {}
for run in listened["codes"]:
    codes.setdefault(run["name"], []).append(run)
figures.codes_used({name: torch.tensor(runs[0]["shares"]) for name, runs in codes.items()})
for name, runs in codes.items():
    print(f"{name:<17} entries in use, by seed:", *(f"{run['entries']:.1f}" for run in runs))
#| caption: How often the entries of a codebook are used, in the first of three seeds.

# %% tags=["hide-input"]
fair, favoured, _, cured = ([run["entries"] for run in runs] for runs in codes.values())
assert max(favoured) < min(fair) and all(a < b for a, b in zip(favoured, cured, strict=True))

# %% [markdown]
# (The number printed is the exponential of the entropy: how many entries there would be, if all were used alike.) From
# a fair start the model finds the eight kinds by itself, with an entry or so for each. In the second run one entry was
# ahead from the beginning. It wins too often, so the others are seldom chosen and seldom get better. Several kinds
# share one code for good: **codebook collapse**, here halfway. (In a complete collapse all targets are one code, and
# no two of them can be told apart.)
#
# The last two runs add the **diversity loss**, the negative entropy of how often the entries are used on average,
# which is lowest when all are used alike. With a weight of 100 eight or more entries are in use in two seeds of three,
# with 1,000 in all three. The paper's weight is 0.1. Ours must undo a start that was made bad on purpose: the
# favourite is so far ahead that the softmax is nearly one-hot, and almost no gradient comes through it.
#
# With codes our small listener takes several times as long before its loss falls. `Wav2Vec2.loss` is the whole loss, if
# you would like to train one yourself.
