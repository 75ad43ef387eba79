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
# *About 47 minutes to read, and nearly twice as long with every guess; a good place for a break is marked half-way.
# You need the encoder of [lecture @transformer](@transformer), positions ([lecture @order](@order)), and temperature
# ([lecture @lookup](@lookup)). Convolutions are explained where they are needed.*
#
# After this lecture you can
#
# * turn an image into a sequence of patches, and describe the **Vision Transformer** (ViT) from pixels to logits;
# * name the **inductive biases** of a convolution and of a ViT, and test whether they explain a result;
# * say when a ViT's positions form a map;
# * test a map of attention weights before you believe it;
# * explain how **wav2vec 2.0** learns from unlabelled sound, with masking and a **contrastive loss** (InfoNCE);
# * predict from its negatives what a contrastive model will learn, and check it with a **linear probe**.
#
# ## How much of the Transformer is about words?
#
# Only two lines of the Transformer of lecture @transformer are about language: the first, which looks up a row for each
# token in a table, and the last, which gives a logit to each token of the vocabulary. Everything between them works on
# any sequence of rows, so it can read other things as well: first the pieces of an image, then those of a sound. In
# both cases we ask what the model learns, and how one can find out.

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
# > **Guess first.** Take a photograph. The obvious row is a pixel. Why is that too expensive?

# %% [markdown]
# ## Images as sequences: what is a token?
#
# A Transformer can read a photograph once the photograph is a sequence of rows. The obvious choice for a row is a
# pixel, but attention compares every row with every row. What would that cost for 224 × 224 pixels?

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
# With pixels, a single head of one layer would have two and a half billion attention weights, a cost of the kind that
# [lecture @cheap_attention](@cheap_attention) is about. So in the **Vision Transformer**, ViT ([@dosovitskiy2021]), **a
# token is a square patch** of, say, 16 × 16 pixels. If you halve the side of a **patch**, you get four times as many
# rows and sixteen times as many weights.
#
# ## The Vision Transformer (ViT): patches, class token, positions
#
# How does a patch become a row? Our images are handwritten digits of 8 × 8 pixels, which come with scikit-learn:

# %%
pixels, labels = load_digits(return_X_y=True)
images = torch.tensor(pixels, dtype=torch.float32).view(-1, 1, 8, 8) / 16    # (1797, 1, 8, 8)
labels = torch.tensor(labels)
figures.picture_to_sequence(images[3, 0], patch=2, d=64)
#| caption: An image becomes a sequence of patches. The numbers at the left are those of the
#|   patches in that row.
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
# **Now you:** a@beyond_text, exercises 1 and 2

# %% [markdown]
# Read the figure from left to right. The image is cut into patches, numbered row by row. Each patch is flattened to a
# vector and multiplied by the same matrix $W$, the **patch embedding**; below the image you can follow patch 5. The
# **class token**, which BERT calls [CLS], goes in front of the patches: a learned vector that belongs to no patch and
# is the same for every image. A **learned position embedding**, a row of $P$, is added to each row. Then comes the
# encoder, which ends with a norm; only the class token's row of its output goes on to the head, where $W_{\text{head}}$
# turns it into ten logits:
#
# $$X = [\,\text{class};\ x_0 W;\ \dots;\ x_{n-1} W\,] + P, \qquad
# \text{logits} = \operatorname{norm}\bigl(\operatorname{blocks}(X)\bigr)_0\, W_{\text{head}}$$ (eq:vit)
#
# To check the formula, we build the sequence of one image row by row, with the biases that the formula leaves out. Do
# we get the logits of the package's `ViT`?

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
W, b, P = model.patches.weight.mT, model.patches.bias, model.positions.table     # P: (17, 64)
rows = [model.class_token + P[0]]
for i, x in enumerate(patches_of(images[3, 0], 2)):           # x: (4,)
    rows.append(x @ W + b + P[i + 1])
Y = model.stack(torch.stack(rows)[None])                      # (1, 17, 64)  blocks, then norm
same = torch.allclose(model.head(Y[:, 0]), model(images[3:4]), atol=1e-5)
print(f"{len(rows)} rows; the same logits: {same}")

# %% [markdown]
# **We do.** All that a ViT puts before the encoder is a cut into patches, one matrix, a class token and positions; all
# that comes after it is one head.
#
# > **Check yourself.** (1) What is the class token for? What else could be handed to the head? (2) How many rows does $P$
# > have here? (3) Which parameters would not fit if the images were 16 × 16, with the same patch?
# > <details><summary>Answers</summary>
# >
# > (1) It belongs to no patch, so the model can gather there what the whole image says. The other usual choice is the
# > mean of all rows, global average pooling, which [@beyer2022] prefer. Mean pooling did badly in lecture @bottleneck,
# > but there the mean was taken <i>before</i> attention had mixed the rows. (2) 17: sixteen patches and the class
# > token. (3) Only the positions, because no other shape depends on n. The last exercise of assignment @beyond_text
# > resizes them.
# >
# > </details>
#
# **Now you:** [a13](@beyond_text/assignment), exercises 1 and 2.
#
# ## Training a ViT on digits: can it read?
#
# Can this model learn to read? We shuffle the 1,797 images once and split them: 1,200 form the **training set**, 200
# the **validation set**, on which we make choices such as the learning rate, and 397 the **test set**, on which we
# report.

# %% tags=["hide-input"]
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
kernel = torch.randn(64, 1, 2, 2)                             # (d, channels, patch, patch)
slid = F.conv2d(images, kernel, stride=2)                     # (1797, 64, 4, 4)
multiplied = patchify(images, 2) @ kernel.flatten(1).mT       # (1797, 16, 64)
assert torch.allclose(slid.flatten(2).mT, multiplied, atol=1e-5)   # a patch embedding

# %% [raw] slide
# ## Training a ViT on digits
# 1,200 training images of 8 × 8 pixels.
#
# {print}
#
# > **Guess first.** Which does better: logistic regression, the nearest training image, a small **CNN**?

# %% [markdown]
# The encoder of lecture @transformer, unchanged, has learned to read digits from 1,200 examples. To judge its accuracy,
# we compare it with three other methods: a logistic regression on the 64 pixels; the label of the nearest training
# image; and a small **convolutional neural network** (CNN). Its **convolution** slides a small window over the image:

# %% tags=["hide-input"]
edge = torch.tensor([[-1, 0, 1]] * 3)                         # more ink right than left
figures.convolution((images[3, 0] * 16).int(), edge, at=(1, 2))
#| caption: A convolution: a window of nine pixels times nine weights is one number of the
#|   output.
#| label: convolution

# %% [raw] slide
# ## A convolution
# {figure}
#
# A **feature**: how well the **kernel**, the nine weights, fits at one place.

# %% [markdown]
# The nine pixels in the orange window are multiplied by nine weights, the **kernel** (or filter), which is chosen by
# hand here and learned in a CNN. The sum of the products is one number of the output, a **feature**: it says how well
# the kernel fits at that place. This kernel compares right with left, so the output is above zero (blue) where a stroke
# begins and below zero (red) where it ends. Then the window moves on (dashed). How far it moves is the **stride**, here
# one pixel. A border of zeros, the **padding**, lets the window reach the edge, so that the output is as large as the
# image. If the window and the stride are as large as a patch, the convolution is a ViT's patch embedding, and published
# code often writes it this way.
#
# Our CNN has two such layers, with 16 and then 32 kernels. After each, **ReLU** sets negative sums to zero; after the
# second, **max pooling** keeps the largest number in each block of 2 × 2 places. The last layer, the **readout**, has a
# weight for each class and each feature *at each place*; in training, **dropout** sets three in ten of its inputs to
# zero. *Guess:* which of the three methods will make fewer mistakes than the ViT: the CNN alone, two of them, or all
# three?

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
# In this run the CNN does better. But one run says little, so this page keeps a record of the same program with six
# **seeds**: each starts from other weights and sees other batches. In the figure each mark is a run, orange for CNNs
# and blue for ViTs. The two simple methods involve no chance, so they have one mark each.

# %%
record = measured("vision")
print(record["command"])


def mistakes(name):                                           # of the 397, one number a seed
    return [round(397 * (1 - run["report"])) for run in record["models"][name]]


rows, simple = {"CNN": mistakes("CNN")}, record["baselines"]["1200"]
for name in ("nearest neighbour", "regression"):
    rows[name] = [round(397 * (1 - simple[name]))]            # nothing is drawn: no seed
rows["ViT"] = mistakes("ViT")
figures.mistakes(rows, n=397)
#| caption: Test errors of a CNN, a Vision Transformer and two simple methods: a mark for each
#|   seed, a line at the mean.

# %% [raw] slide
# ## The nearest neighbour makes fewer mistakes than our ViT
# {figure}

# %% [raw] slide
# ## Inductive bias
# What a model assumes before it has seen any data.
#
# - **Locality**: what belongs together lies close together.
# - **Translation equivariance**: if the image moves, the layer's output moves along.

# %% [markdown]
# **Two of them.** The CNN makes a quarter of the ViT's mistakes, and the nearest neighbour, which is not trained at
# all, about a third. The regression draws level: it makes 13 mistakes, and the ViT 11 to 19. (The same 13 people wrote
# training and test digits, so the nearest neighbour may often find a near twin.)
#
# The paper found the same pattern on its own scale. Trained on a million images with little regularisation, ViT was a
# few percentage points worse than convolutional networks of its size, and overtook them only when it was trained on far
# more images, up to three hundred million.
#
# ## Inductive bias: locality and translation equivariance
#
# What does the CNN have that the ViT lacks? The usual answer is its **inductive bias**: what a model assumes before it
# has seen any data. A convolution assumes two things. **Locality**: what belongs together lies close together.
# **Translation equivariance**: if the image moves, the layer's output moves along and is otherwise the same.
# Equivariance can be checked without training. If a digit moves by one pixel or by two, does the convolution's output
# move along? And how many of the ViT's patches with ink also occur in the unmoved image?

# %% tags=["hide-input"]
def digit_at(left):                                           # in a frame of 12 × 12 pixels
    return F.pad(images[3:4], (left, 4 - left, 2, 2))


kernel = torch.randn(8, 1, 3, 3)
old, known = patchify(digit_at(0), 2)[0], {}                             # (36, 4)
for step in (1, 2):
    a, b = (F.conv2d(digit_at(left), kernel) for left in (0, step))      # (1, 8, 10, 10) each
    along = torch.equal(a[..., :-step], b[..., step:])
    inked = [x for x in patchify(digit_at(step), 2)[0] if x.sum() > 0]
    known[step] = f"{sum((old == x).all(dim=1).any().item() for x in inked)} of {len(inked)}"
    print(f"moved by {step}: the convolution's output has moved along: {along}")
figures.patch_grids([digit_at(left)[0, 0] for left in range(3)],
                    ["a digit", f"moved by one pixel:\n{known[1]} patches as before",
                     f"moved by two pixels:\n{known[2]} patches as before"],
                    patch=2, windows=[(4, left + 2) for left in range(3)])
#| caption: A digit and its patches. The orange frame holds the same four pixels each time.
#| label: moved-patches

# %% [raw] slide
# ## Moved by one pixel, every patch is new
# {figure}

# %% [markdown]
# **The convolution's output moves along each time; the ViT's patches do so only after a move by a whole patch** (and
# then get new positions). After a move by one pixel the grid cuts the strokes elsewhere, even through the orange frame,
# and every patch with ink is new.
#
# A ViT knows even less about images than this. Suppose that we rearrange the sixteen patches of every image in one and
# the same way, and shuffle the ViT's positions to match. Does it still read? And can a ViT do without positions?

# %%
moved_patches, moved_pixels = (torch.randperm(n, generator=torch.Generator().manual_seed(5))
                               for n in (16, 64))
shuffled = unpatchify(patchify(normed, 2)[:, moved_patches], 2, 8, 8)    # (1797, 1, 8, 8)
moved = ViT(config)
moved.load_state_dict(vit.state_dict())
with torch.no_grad():
    moved.positions.table[1:] = vit.positions.table[1:][moved_patches]   # [CLS] keeps its own
    same = torch.allclose(moved.eval()(shuffled[test]), vit(normed[test]), atol=1e-3)
print("patches and positions shuffled alike: the same logits:", same)
print("trained without positions, mistakes by seed:", *mistakes("ViT, no positions"))
assert same

# %% [raw] slide
# ## A ViT does not know that an image has two dimensions
# Shuffle the patches of all images, and the positions along with them:
#
# {print}

# %% [markdown]
# **It reads exactly what it read before**, because the same rows enter the stack in another order, and self-attention
# is permutation equivariant ([lecture @self_attention](@self_attention)). It does need positions: trained without them,
# it misreads a quarter of the 397 digits. Since the positions start as random numbers, however, an untrained ViT knows
# neither that an image has two dimensions nor that patch 5 lies below patch 1. It assumes only that the four pixels of
# a patch belong together, and that all patches deserve the same matrix.
#
# ## Does the bias explain the CNN's lead? Shuffle the pixels, exchange the readouts
#
# The CNN has a bias and is better. Is it better *because* of its bias? If so, its lead should vanish where its
# assumptions are false. We make them false by shuffling all 64 pixels, in the same way for all images:

# %%
by_pixel = normed.flatten(1)[:, moved_pixels].view(-1, 1, 8, 8)          # (1797, 1, 8, 8)
versions = {"intact": normed, "shuffled": by_pixel}
figures.image_row([x[i, 0] - normed.min() for i in (3, 15) for x in versions.values()],
                  [f"a {labels[i]}, {name}" for i in (3, 15) for name in versions])
#| caption: Two digits, intact and with their pixels shuffled.

# %% [raw] slide
# ## Unreadable to you
# {figure}
#
# > **Guess first.** Does a CNN trained on shuffled digits still make fewer mistakes than a ViT on intact ones?

# %% [markdown]
# To you the digits are now unreadable; to an **MLP**, whose dense layers assume nothing about places, they are no
# harder than before. *Guess:* does a CNN that is trained on them make more mistakes than a ViT on intact digits, as
# many, or fewer?

# %% tags=["hide-input"]
def with_interval(differences):
    """The mean of six seeds' differences ± 95 %."""
    return f"{mean(differences):.1f} ± {2.57 * stdev(differences) / 6 ** 0.5:.1f}"


def compare_with_cnn(model, called):
    versions = ("", ", pixels shuffled")
    leads = [[a - b for a, b in zip(mistakes(model + how), mistakes("CNN" + how), strict=True)]
             for how in versions]                             # one number a seed, each
    change = [a - b for a, b in zip(*leads, strict=True)]
    print(f"the CNN's lead over {called}: intact {mean(leads[0]):.1f} mistakes,",
          f"pixels shuffled {mean(leads[1]):.1f}")
    print(f"so it shrinks by {with_interval(change)}",
          "(± is a 95 % interval, six seeds)")


compared = [name + how for name in ("CNN", "MLP", "ViT") for how in ("", ", pixels shuffled")]
figures.mistakes({name: mistakes(name) for name in compared}, n=397)
compare_with_cnn("MLP", "the MLP")
#| caption: Test errors on intact digits and on digits with shuffled pixels: a mark for each of
#|   six seeds, a line at their mean.

# %% [raw] slide
# ## Its assumptions are false, and the CNN is still ahead
# {figure}
#
# A suspect: the **readout**. The CNN's is **dense**; the ViT's head reads one row.
#
# > **Guess first.** Exchange the two kinds of readout. Which makes fewer mistakes?

# %% [markdown]
# **Fewer: even where its assumptions are false, the CNN does better than the ViT on intact images.** Shuffling costs
# the CNN about five mistakes and the MLP none. So the CNN's lead over the MLP nearly vanishes, as the explanation by
# bias predicts (though a false bias may do more harm than none). But with shuffled pixels the CNN is about nine
# mistakes ahead of the ViT, so something else must differ.
#
# One suspect is the readout. The CNN's is **dense**: it has a weight for every feature at every place, while the ViT's
# head reads one row. So we exchange the two kinds. The ViT gets a dense layer with dropout that reads all its rows, and
# the CNN takes the mean of each feature over all places. *Guess:* which of the two makes fewer mistakes now?

# %% tags=["hide-input"]
readouts = {"CNN": "CNN, dense", "ViT, all rows read": "ViT, dense",
            "ViT": "ViT, class token", "CNN, mean over places": "CNN, mean over places"}
figures.mistakes({shown: mistakes(name) for name, shown in readouts.items()}, n=397)
gain = [a - b for a, b in zip(mistakes("ViT"), mistakes("ViT, all rows read"), strict=True)]
lag = mean(mistakes("ViT")) - mean(mistakes("CNN"))
print(f"the ViT makes {lag:.1f} mistakes more than the CNN;",
      f"a dense readout removes {with_interval(gain)} of them")
compare_with_cnn("ViT, all rows read", "the ViT if both readouts are dense")
#| caption: Test errors of CNN and ViT by readout, on intact digits: a mark for each of six
#|   seeds, a line at their mean.

# %% [raw] slide
# ## Exchange the readouts, and the order is reversed
# {figure}
#
# A table that fits your explanation is not a test of it.

# %% [markdown]
# **The ViT: with exchanged readouts the order is reversed.** Its worst run with the dense readout makes 11 mistakes,
# the best run of the CNN with the mean 15.
#
# Is the rest inductive bias? Then shuffling should remove it when both readouts are dense. The lead shrinks by one
# mistake, but the interval runs from a lead that grows to one that nearly disappears; as a ratio it shrinks in every
# seed. **So giving the ViT the CNN's readout, with its dropout and extra weights, removes about six tenths of its lag;
# how much of the rest is bias our runs cannot tell.**
#
# <details><summary>Is it the number of parameters? Or the dropout? And how sure is this?</summary>
#
# *Why a dense readout?* We guess at the reason: since our digits all stand in the middle, at one size, a weight for
# each place is useful. A mean forgets where a feature stood, which a class token need not do, because it attends to
# patches that carry their positions.
#
# *The learning rate* is not the reason for the ViT's lag: we tried four, and for neither model did another do better on
# the validation set. *The number of steps* is part of it: with three times as many, the ViT makes 11.0 mistakes in
# place of 15.0 (three seeds). We did not train the CNN longer.
#
# *Parameters*: the CNN's last layer has $512 \cdot 10 + 10 = 5{,}130$ of its 9,930; the mean over places leaves it
# 330. The ViT's head has $64 \cdot 10 + 10 = 650$; to read all rows takes $17 \cdot 64 \cdot 10 + 10 = 10{,}890$,
# beside the 68,544 of the rest. No control here separates the number of parameters from what they read. (The MLP has
# 9,610, hardly fewer than the CNN, and the same dropout.)
#
# *Dropout* (means of the first three seeds): the plain ViT makes 15.0 mistakes and 15.3 with dropout before its usual
# head. With a dense layer it makes 9.7 without dropout and 8.3 with it. So most of the gain is the dense layer's: it
# removes 7.0 of the 11.3 mistakes between the ViT and the CNN if both have dropout, and 5.3 of 9.3 if neither has.
#
# *Scale*: counted as a ratio, the lead of the CNN shrinks in every seed, on average from 2.2 times as many mistakes to
# 1.4 times. And a ViT is not free of bias: its patches assume locality, and shuffling harms it as well. So this test is
# weaker than the one with the MLP, where shuffling harms only the CNN. But there, too, the CNN on shuffled pixels does
# not lack a bias, it has a false one: how much of its five mistakes is a true assumption lost, and how much the harm of
# a false one, the test does not tell.
#
# *Chance*: all runs share the same 397 test images. Another 397 could move every row.
#
# </details>
#
# "A CNN is better because of its inductive bias" is a claim about a cause, and a large part of the lead over the
# ViT has another. **A table that fits your explanation is not a test of it. Look for the row that could contradict
# it.**
#
# ## Data augmentation: what is not built in can be shown
#
# What a CNN assumes, a ViT can learn if the data show it. **Data augmentation** shows it: each training image is
# altered at random, anew at every step, for example moved, turned or cropped. We train both models with and without
# shifts of up to one pixel in each direction, and let them read test digits that are shifted in the same way (at
# random: 42 of the 397 stay in place). *Guess:* which needs the shifts, the CNN, the ViT, or both?

# %% tags=["hide-input"]
def moved_digits(*names):                                     # what each model reads of them
    return {name: [run["moved"] for run in record["models"][name]] for name in names}


figures.rows_of_runs(moved_digits("CNN", "CNN, shifts", "ViT", "ViT, shifts",
                                  "ViT, shifts, three times the steps"),
                     "accuracy on shifted test digits (%)", hollow=("CNN", "ViT"), start=0.3)
#| caption: Accuracy on digits shifted by up to one pixel, with shifts in training (full,
#|   three seeds) and without (hollow, six seeds). The axis begins at 30 %.

# %% [raw] slide
# ## Data augmentation: both need shifts
# {figure}
#
# Augmentation and more steps bring the ViT near the CNN.

# %% [markdown]
# **Both need them.** Trained on digits in the middle (hollow), both read the shifted ones badly: one pixel is an eighth
# of the width, and a shift may cut off ink. With shifts the CNN reads nearly all of them, and the ViT needs three times
# the steps to come near. Whether the shifts make up for a missing bias or for a weaker readout, this figure cannot
# tell: here, too, the CNN's readout is dense.
#
# Why does the CNN need them, although convolutions are equivariant? Its last layer may have learned *where* to expect
# the features; *Going further* tests this.
#
# ## The position map: when does it appear?
#
# Nothing tells a ViT which patches are neighbours. Yet figure 7 of the paper shows a map: measured by **cosine
# similarity**, the learned position of each patch is most like those of the patches near it. When does such a map
# appear?
#
# The paper's model saw millions of photographs, while our digits all stand in the middle. So we put the digits in a
# frame of 12 × 12 pixels (36 patches) and train the same ViT in three conditions: always **in the middle**; each digit
# **moved once**, by up to two pixels, before the training; each digit **moved anew** at every step. In the second
# condition the model never sees one drawing in two places. *Guess:* in which of the three will neighbours be alike?

# %% tags=["hide-input"]
maps = {how: torch.tensor(table) / 100 for how, table in record["maps"].items()}   # (36, 36)
figures.position_maps(maps, side=6, margin=1, reach=2, most=0.6, beside="direct neighbours")
print("all 36 places, border included: mean cosine of direct neighbours, by seed")
for how, runs in record["places"].items():
    print(f"{how:<14}", *(f"{run['cosine_by_distance'][0]:.2f}" for run in runs))
#| caption: Mean cosine of two positions by how far apart their places lie, first seed. Only the
#|   inner 4 × 4 places, which hold ink in all three conditions.
#| label: position-maps

# %% [raw] slide
# ## The position map: when does it appear?
# {figure}
#
# Digits **in the middle**; each **moved once**; **moved anew** at every step.

# %% [markdown]
# The orange dot is a place, and each cell shows how similar its position is, on average, to that of the place so many
# rows and columns away: blue is alike, red is opposite. **If they were moved, once or anew: a map appears where digits
# stand in many places.** There the four direct neighbours are blue, while with digits in the middle a position is like
# none of the others. The printed cosines, of three seeds and all 36 places, tell the conditions apart.
#
# Does a map make a better reader? It depends on the digits. Of those in the middle, the models without a map read 95 to
# 97 %, and those with a map 59 to 72 %. Of the moved ones they read 20 to 22 % and 54 to 64 %. So each kind is better
# at what it has seen, and moved digits are the harder task.
#
# <details><summary>Why do titles and printed cosines differ?</summary>
#
# *The border.* With digits in the middle, the title has a cosine of −0.15 and the print 0.06, for the same seed. The
# print counts the border as well. There all patches are blank in every image, and neighbours are alike (0.37).
#
# *Rows and columns.* In the maps, two rows away is red, and two columns away is blue or pale. We do not know why.
#
# </details>
#
# We suppose that positions which are alike let the same weights recognise a stroke at either place. So a figure in a
# paper is a finding about a model *and its data*.
#
# ## Attention maps and rollout: do they show what mattered?
#
# Another kind of map is even more popular: where does the model *look*? In each layer and head, the class token's row
# of attention weights has a number for each patch. Our trained ViT has two layers of four heads, so one image has
# eight maps (the outline is the digit's):

# %%
with torch.no_grad():
    _, weights = vit(normed[test], with_weights=True)         # (397, layers, heads, 17, 17)
some = [int((labels[test] == digit).nonzero()[0]) for digit in (8, 3)]
pictures = images[test][some, 0]                              # (2, 8, 8)
looks = weights[some, :, :, 0, 1:].unflatten(-1, (4, 4))      # row of the class token
figures.attention_by_head(pictures[:1], looks[:1], ["an 8"])
#| caption: The class token's attention in percent, by layer and head (below 5: no number).

# %% tags=["hide-input"]
assert looks[0, 0].amax(dim=(1, 2)).max() > 0.9 and looks[0].amax(dim=(2, 3)).min() < 0.25

# %% [raw] slide
# ## Attention maps: do they show what mattered?
# {figure}

# %% [raw] slide
# ## Attention rollout follows the mixing
# A row in layer 1 is no longer one patch: layer 0 has mixed them.
#
# $$R = \tfrac12 (A_{L-1} + I) \cdots \tfrac12 (A_0 + I)$$

# %% [markdown]
# The eight maps do not agree: in layer 0 each head prefers another patch, head 1 an empty corner, and in layer 1 two
# heads look beside the digit. Nor is a weight on the row of patch 5 in layer 1 a weight on patch 5 alone, because layer
# 0 has mixed all patches into it.
#
# **Attention rollout** ([@abnar2020]) follows the mixing down to the patches. It averages each layer's weights over the
# heads, counts half of each row as kept by the residual connection, and multiplies the layers:
#
# $$R = \tfrac12 (A_{L-1} + I) \cdots \tfrac12 (A_0 + I)$$ (eq:rollout)

# %%
rolled = attention_rollout(weights)[:, 0, 1:].view(-1, 4, 4)             # (397, 4, 4)
last = weights[:, -1].mean(dim=1)[:, 0, 1:].view(-1, 4, 4)               # mean over heads
figures.attention_on_images(list(pictures), {"last layer": list(last[some]),
                                             "rollout": list(rolled[some])},
                            ["an 8", "a 3"], framed="rollout")
#| caption: Attention of the class token in percent: mean over the last layer's heads, and
#|   rollout (its four largest framed). Each column has its own colour scale.
#| label: attention-on-images

# %% [raw] slide
# ## A test of a map: take its patches away
# {figure}
#
# > **Guess first.** Replace the four patches to which rollout gives most. Compare with four at random, and with a baseline that needs no model.

# %% [markdown]
# Rollout gives one map, smoother than the last layer's. (Its numbers sum to less than 100, because in each layer the
# class token keeps half of its row.) The map looks plausible, but is it right? It claims that *these patches mattered*,
# and this claim can be tested. We take the four patches to which rollout gives most weight (framed) and replace each by
# the average patch at its place. If they mattered, the accuracy must fall more than with *any four* patches, drawn at
# random.
#
# A test needs a **baseline** that does not use the model. Ours is *the most unusual*: the four patches that differ most
# from the average patch at their place. *Guess:* which costs most accuracy, rollout's four, any four, or the most
# unusual?

# %% tags=["hide-input"]
chosen = {"any four": "any four (no model)", "last layer's most": "last layer's most",
          "rollout's most": "rollout's most", "the most unusual": "the most unusual (no model)"}
intact = [run["report"] for run in record["models"]["ViT"]]
figures.rows_of_runs(
    {shown: [all_16 - run[name] for all_16, run in zip(intact, record["removed"], strict=True)]
     for name, shown in chosen.items()},
    "accuracy lost without four patches (percentage points)", start=0,
    hollow=[chosen[name] for name in ("any four", "the most unusual")])
#| caption: What six ViTs, a mark each, lose without four patches, by how these were chosen
#|   (full: by the model's map).

# %% [raw] slide
# ## Rollout passes, and a baseline without a model costs more
# {figure}

# %% [markdown]
# **The most unusual: rollout passes the test, but in these six models a rule without a model costs more accuracy.** In
# every model rollout's patches matter more than any four and more than the last layer's, so it helps to follow the
# mixing. But without the most unusual patches the accuracy falls further still. (It has an advantage: its
# patches change the image most, by definition. How much of its lead is due to this, we have not measured.) In assignment @beyond_text your own model may show the opposite order.
#
# <details><summary>Does rollout succeed only because its patches change the image so much?</summary>
#
# In part. An image has 1,820 sets of four patches. We took the ten whose replacement changes the image by about as much
# as rollout's, and picked one of them at random. Such patches cost 29 points of accuracy, where any four cost 14 and
# rollout's 42. So a little more than half of what rollout's patches cost beyond any four is due to the amount of
# change.
#
# The baseline is not quite fair either: by definition the most unusual patches are those whose replacement changes the
# image most. How much of the damage is due to that alone we have not measured.
#
# Our test has another weakness: a model may fail on an altered image only because it never saw one like it. ROAR
# ([@hooker2019]) therefore trains the model anew without the patches that a map marks.
#
# </details>
#
# So compare a map with a baseline before you believe it. The *sanity checks* of [@adebayo2018] give the model random
# weights: a map that hardly changes, like an edge detector's, does not show what the model has learned
# (assignment @beyond_text tries it).
#
# ## Sound as a sequence: harmonics, formants, spectrogram
#
# *Half of the lecture is behind you: a good place for a break.*
#
# Sound is a sequence of numbers as well: the air pressure at a microphone, measured 8,000 or 16,000 times a second.
# Recordings are cheap, but transcripts are not. Can a Transformer learn from sound *alone*?
#
# To see what it learns, we need sounds about which we know everything, so we make them: a voice sings vowel after vowel
# on one pitch, each for 0.08 to 0.2 seconds. Such a voice is a sum of **harmonics**, whole multiples of the pitch, and
# the resonances of the mouth, the **formants**, decide how loud each is. Here is one vowel on two pitches:

# %% tags=["hide-input"]
def loudness(hertz):                                          # decibels, in the vowel of "head"
    formants = torch.tensor(FORMANTS["head"])[:, None]        # (3, 1)
    return 20 * (resonance(hertz[:, None], formants)[:, 0] / hertz).log10()


hertz = torch.arange(100.0, 3500.0, 5.0)
top = loudness(hertz).max()
voices = {}
for pitch in (100, 200):
    harmonics = torch.arange(pitch, 3500.0, pitch)
    voices[f"pitch {pitch} hertz"] = (harmonics.tolist(), (loudness(harmonics) - top).tolist())
figures.harmonics_and_formants(voices, (hertz.tolist(), (loudness(hertz) - top).tolist()),
                               FORMANTS["head"], "The vowel of head")
#| caption: The vowel of *head* on two pitches: blue its harmonics, dashed their envelope
#|   with the three formants.

# %% [raw] slide
# ## Pitch and vowel: two things in one sound
# {figure}

# %% [markdown]
# **The pitch decides where the harmonics stand, and the formants decide how loud they are**: in both panels the tips
# lie on the same dashed curve. So pitch and vowel are two different things in one sound, and a model may learn one
# without the other. Each of our voices has its own pitch and its own length of vocal tract: the shorter the tract, the
# higher all formants. Each vowel is named by an English word that contains it, and its formants are those of
# [@peterson1952].

# %%
draws = torch.Generator().manual_seed(1)
train_sounds = vowels(400, noise=0.1, generator=draws)
test_sounds = vowels(200, noise=0.1, generator=draws)

# %% tags=["hide-input"]
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
def spectra(waveform, n=200):                                 # 25 ms at a time, every 20 ms
    frames = waveform.unfold(-1, n, 160) * torch.hann_window(n)          # (..., n_frames, n)
    return (torch.fft.rfft(frames).abs().square() + 0.01).log()  # (..., n_frames, n/2 + 1)

# %% tags=["hide-input"]
formants = [[FORMANTS[word][0] * size] for word in words]     # the lowest of each vowel
longer = spectra(F.pad(waveform, (176, 176)), n=512)          # 64 ms tell harmonics apart
figures.waveform_and_spectrogram(waveform, longer, spoken, RATE, hop=160,
                                 formants=formants, title="one second of a synthetic voice",
                                 highest=1250, pitch=train_sounds.pitch[0].item())
#| caption: One second of sung vowels: waveform, and spectrogram (64 ms at a time) with the
#|   lowest formant F1 (dotted).
#| label: spectrogram

# %% [raw] slide
# ## Waveform and spectrogram
# {figure}

# %% [markdown]
# Below the waveform is a **spectrogram**: it shows how loud each frequency is, in short pieces of sound (darker is
# louder). The horizontal stripes, which stay where they are, are harmonics; the lowest is the pitch. The vowel decides
# which are darkest: those nearest to the dotted line, its lowest formant F1.
#
# ## Linear probes: which vowels are confused?
#
# Can the vowel be read from a spectrogram? The easiest thing to see in it is F1, so here is F1 for each vowel, from the
# longest vocal tract to the shortest. *Write down a prediction:* which two pairs of vowels will be confused most?

# %%
for word in sorted(FORMANTS, key=FORMANTS.get):               # from the lowest F1
    f1 = FORMANTS[word][0]
    print(f"{word:<6} F1 from {0.9 * f1:3.0f} to {1.2 * f1:3.0f} hertz")

# %% [raw] slide
# ## Linear probes: which vowels are confused?
# {print}
#
# > **Write down a prediction.** Which vowels will a reader confuse who relies on F1?

# %% [markdown]
# F1 lets us expect that *heed* is confused with *who'd*, and *heard* with *head*, because their ranges overlap.
#
# To test this we need a reader, and a **linear probe** is the usual one. It fits a linear map from a representation to
# something that we know, here the vowel of each frame (25 ms, a column of a spectrogram), and tests the map on new
# sounds. If it succeeds, any later layer could read this directly; if it fails, we know only that no such map of *this
# layer* was found. Ours is fitted by least squares with a small penalty on large weights (**ridge regression**).

# %%
centres = 100 + 160 * torch.arange(49)                        # the middle sample of each frame


def with_one(x):                                              # a column of ones: the bias
    return F.pad(x, (0, 1), value=1.0).double()


def probe(inputs, outputs, answers):
    """Fit on `inputs`, read from `outputs`, (sounds, 49, d) both: (sounds, 49, k)."""
    scale = inputs.std((0, 1)) + 1e-6
    inputs, outputs = (with_one((x - inputs.mean((0, 1))) / scale) for x in (inputs, outputs))
    x, y = inputs.flatten(0, 1), answers.flatten(0, 1).double()          # (n, d + 1), (n, k)
    ridge = 1e-3 * len(x) * torch.eye(x.shape[1])             # minimum of |x W - y|² + λ |W|²
    return outputs @ torch.linalg.solve(x.mT @ x + ridge, x.mT @ y)


known = F.one_hot(train_sounds.vowel[:, centres])             # (400, 49, 5)
scores = probe(spectra(train_sounds.waveform), spectra(test_sounds.waveform), known)
predicted, truth = scores.argmax(dim=-1), test_sounds.vowel[:, centres]  # (200, 49) each
by_spectra = torch.bincount(5 * truth.flatten() + predicted.flatten(), minlength=25).view(5, 5)
print(f"from log spectra: {(predicted == truth).double().mean():.0%} of the frames right")

# %% tags=["hide-input"]
by_f1 = torch.tensor(sorted(range(5), key=[FORMANTS[word] for word in names].__getitem__))
figures.confusions({"log spectra": by_spectra[by_f1][:, by_f1]}, [names[i] for i in by_f1],
                   predicted=[("heed", "who'd"), ("head", "heard")])
wrong = by_spectra - by_spectra.diag().diag()
inside = wrong[0, 3] + wrong[3, 0] + wrong[1, 4] + wrong[4, 1]
print(f"{inside / wrong.sum():.0%} of the mistakes are in the four framed cells")
#| caption: Vowels that a linear probe of log spectra confuses: shares of each row, the
#|   predicted pairs framed.

# %% tags=["hide-input"]
listened = measured("sound")
recorded = torch.tensor(listened["confusions"]["log spectra"])
assert (by_spectra - recorded).abs().sum() < 50, "the record's, of 9,800 frames, up to rounding"
assert inside > 0.6 * wrong.sum(), "the pairs that were predicted have most of the mistakes"

# %% [raw] slide
# ## Heed with who'd, heard with head
# {figure}

# %% [markdown]
# **The prediction holds.** The probe reads 78 % of the frames, and seven in ten of its mistakes are in the four framed
# cells, where an even spread over all wrong cells would put one in five.
#
# <details><summary>Why does the second formant not tell <i>heed</i> from <i>who'd</i>?</summary>
#
# It lies near 2,300 hertz in *heed* and near 900 in *who'd*, which should settle the matter. But it is much weaker than
# F1, so noise presumably covers much of it.
#
# </details>
#
# ## Frames: a convolution makes the sequence
#
# Log spectra were designed by engineers, whereas **wav2vec 2.0** ([@baevski2020]) learns its own representation. It
# starts from the waveform, which convolutions turn into **frames**, each made from a short piece. Each layer widens the
# piece by (kernel − 1) times the product of the strides before it; the seven layers of wav2vec 2.0 come to
# $1+9+2\cdot(5+10+20+40)+80+160=400$ samples. Two frames lie $5\cdot2^6=320$ samples apart, the product of all strides.
# Autograd can check both numbers:

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
# **A second becomes 49 rows, and sound is a sequence like any other.** For our sounds, which have half the rate, two
# convolutions are enough to make frames of the same length and distance.
#
# ## Self-supervised learning: mask, and tell the target from negatives
#
# How can a model learn from frames without labels? In text, a token is masked and the model predicts it ([lecture
# @transformer](@transformer)). Because the label is made from the data itself, this is called **self-supervised
# learning**. But what does it mean to predict a *frame*, a vector of real numbers that are largely noise? And if the
# frames are themselves learned, there is a trivial solution: make them all equal, and every prediction is right
# (**collapse**).
#
# Wrong candidates rule this solution out, because equal frames cannot be told apart. So wav2vec 2.0 asks: *here are 101
# frames of this sound* (on this page, eleven). *One of them was masked at this place. Which?*

# %% [raw] slide
# ## Self-supervised learning: mask, and pick the target
# wav2vec 2.0 (Baevski et al. 2020): convolutions make **frames** of 25 ms, 49 a second. A span is masked; which of
# these frames stood there?
#
# $$\mathcal L_t = -\log \frac{\exp\bigl(\cos(c_t, q_t)/\kappa\bigr)} {\sum_{\tilde q} \exp\bigl(\cos(c_t, \tilde q)/\kappa\bigr)}$$
#
# **Contrastive loss** (InfoNCE): a lookup among the target and **negatives**.

# %%
figures.wav2vec_diagram(targets="matrix")
#| caption: wav2vec 2.0 without its codebook: masked frames, context vectors, and a target
#|   among negatives, here two; on this page there are ten.
#| label: wav2vec

# %% [raw] slide
# ## wav2vec 2.0
# {figure}

# %% [markdown]
# Read the figure from the bottom. The waveform becomes frames $z$. A span of them is **masked**: each is replaced by
# the same learned vector. At each masked place $t$ the Transformer's output is a **context vector** $c_t$, its guess.
# The original frame, times a matrix, is the **target** $q_t$. (The paper has a codebook in place of the matrix, see
# *Going further*.) Frames that are masked elsewhere in the same sound are the **negatives**, such as $q_4$ and $q_6$
# for $c_5$. The loss is the cross-entropy of picking the target by cosine:
#
# $$\mathcal L_t = -\log \frac{\exp\bigl(\cos(c_t, q_t)/\kappa\bigr)}
# {\sum_{\tilde q} \exp\bigl(\cos(c_t, \tilde q)/\kappa\bigr)}, \qquad \tilde q \text{ over } q_t
# \text{ and the negatives}$$ (eq:contrastive)
#
# This **contrastive loss** is known as **InfoNCE** ([@oord2018]; NCE is *noise-contrastive estimation*). It is a lookup
# again [@eq:soft-attention]: $c_t$ is the query, the candidates are the keys, and $\kappa$ is the temperature of
# lecture @lookup.
#
# <details><summary>Why "Info"?</summary>
#
# If the $K$ negatives are independent draws, then $\log(1 + K) - \mathcal L$ is, on average, a lower bound of the
# <b>mutual information</b> of context and target. So $K$ negatives can certify at most $\log(1 + K)$. Our negatives
# come from the same sound, so they are not independent draws, and we claim no bound.
#
# </details>
#
# > **A common mistake: "what is masked is masked for the targets, too."** It is not. In the first figure of the wav2vec
# > 2.0 paper the targets are made of what stands *below* the mask: what is hidden from the Transformer is not hidden from
# > the targets.
#
# Why is a temperature needed? Cosines lie between −1 and 1. *Guess:* with ten negatives and $\kappa = 1$, how low can
# the loss of a perfect $c_t$ get: to 0, to about 0.9, or not below log 11 ≈ 2.4?

# %% [raw] slide
# ## The temperature
# > **Guess first.** Ten negatives, κ = 1, a perfect context vector: how low can the loss get?

# %%
c = torch.eye(2)[:1]                                          # (1, 2)
for kappa in (1.0, 0.1):
    best = contrastive_loss(c, c, -c.expand(1, 10, 2), kappa).item()     # all others opposite
    print(f"κ = {kappa}: at best {best:.5f}, by chance {math.log(11):.2f}")

# %% [raw] slide
# ## κ = 0.1
# {print}

# %% [markdown]
# **To about 0.9: at $\kappa = 1$ even a perfect $c_t$ has a loss of 0.86**, because cosines cannot lie further apart
# than 2, and ten negatives at −1 leave $\log(1 + 10\,e^{-2})$. At 0.1, the paper's choice, its loss is nearly 0.
#
# ## Span masking: how much, and why not single frames
#
# Which frames should be masked? In wav2vec 2.0 a share $p = 0.065$ of the frames is drawn at random, and at each a
# span of $M = 10$ frames starts. Spans may overlap, and a frame stays visible only if no span starts at it or at one
# of the nine frames before it. *Guess:* how much of the sound is masked, 6.5 %, 65 %, or another share?

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
#| caption: Masked spans of four sounds (hatched).

# %% [raw] slide
# ## Why not single frames?
# {figure}
#
# **Now you:** a@beyond_text, exercises 3 to 5

# %% [markdown]
# **About half of it is masked**, because a frame is visible with probability $(1 - p)^M$, and so masked with
# $1 - (1 - p)^M$.
#
# Why spans? Set the span to 1 and $p$ to 0.5. Half is masked again, but most masked frames now have a visible neighbour
# only 20 milliseconds away, usually in the same vowel. The model could copy it, and would learn little more than that
# neighbours are alike. A span should therefore be longer than the time for which neighbours stay alike, in our vowels 4
# to 10 frames. Our small model gets an easier task, against this rule: spans of three with $p = 0.12$ (a third is
# masked). We have not compared longer spans.
#
# **Now you:** [a13](@beyond_text/assignment), exercises 3 to 5.
#
# ## Negatives decide what is learned: an experiment
#
# One choice is left. The paper draws the negatives from other masked frames of the same sound, but we could also draw
# them from the whole batch, which has more frames, from many voices. Is that better? The two variants differ in a
# single line, the one that draws the negatives:

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

# %% tags=["hide-input"]
def listener(seed):
    torch.manual_seed(seed)
    # RoPE here: the paper's positions are one more convolution, over 128 frames
    config = Wav2Vec2Config(d_model=64, n_layers=2, n_heads=4, d_ff=128, dropout=0.0,
                            positions="rope", d_feature=64, kernels=(80, 4),
                            strides=(40, 4), d_code=64)
    model = Wav2Vec2(config)
    model.target = nn.Linear(64, 64)                          # instead of a codebook
    return model

# %% [raw] slide
# ## Negatives decide what is learned
# Negatives from the **same sound**, or from **any sound** of the batch. One pitch a sound; vowels change.
#
# > **Guess first.** Whose loss falls faster?

# %% [markdown]
# We train both models for 360 steps on batches of 24 sounds, with three seeds. For the first 30 steps both draw from
# any sound; without this head start one of the second model's three seeds was still at chance at the end. Listen to
# three of the sounds, a second each:

# %% tags=["hide-input"]
Audio(train_sounds.waveform[:3].flatten().numpy(), rate=RATE)

# %% [markdown]
# *Write down two predictions.* (1) Whose loss ends lower? (2) Each sound has one pitch throughout, and its vowels
# change. Which model will encode the vowel, and which the pitch?

# %% tags=["hide-input"]
print(listened["command"])
steps = range(10, 361, 10)
shown = {"any sound": "any sound", "one sound": "same sound"}   # the record's name, the page's
lines = {}
for name, label in shown.items():
    lines[label] = {step: [losses[step // 10 - 1] for losses in listened["losses"][name]]
                    for step in steps}
figures.runs_over(lines, "training step", "contrastive loss (nats, mean of 10 steps)",
                  level=("chance", math.log(11)),
                  event=("step 30: “same sound” changes its negatives", 30))
#| caption: Contrastive loss in training, with negatives from any sound and from the same
#|   sound: a mark for each seed, a line through the means of three.

# %% [raw] slide
# ## Two losses of two different games
# {figure}
#
# > **Write down a prediction.** What will each model have learned, the vowel or the pitch?

# %% [markdown]
# With negatives from any sound the loss ends far lower. But the lower loss is not the better score, because the two
# losses belong to two different games, and a frame is easier to tell from those of other singers. Soon after step 30
# the other model is at chance: the little that two of its runs had learned does not help among frames of one singer,
# and it takes 60 to 100 steps to get below chance. (Both begin *above* it: at κ = 0.1 wrong guesses are confident,
# which costs more than an even guess.)
#
# What counts is what each model has learned. Linear probes read vowel and pitch from the Transformer's output, with
# nothing masked, and for comparison from an *untrained* network and from *log spectra*. $R^2$ is the share of the
# variance of the pitch's logarithm that the probe explains: 1 is perfect, and always saying the mean gives 0.

# %% tags=["hide-input"]
probes = listened["probes"]
titles = {"any sound": "negatives: any sound", "one sound": "negatives: same sound",
          "untrained": "untrained", "log spectra": "log spectra"}
output = {title: [(run["vowel"], run["pitch"]) for run in probes[name]]
          for name, title in titles.items()}
figures.two_probes(output, "share of frames whose vowel a linear probe reads",
                   "$R^2$ of the log pitch, by a linear probe", chance=1 / 5)
print("vowels that a probe reads from the frames z, below the Transformer, by seed")
for name in ("untrained", "any sound", "one sound"):
    print(f"{titles[name]:<21}", *(f"{run['vowel of frames']:.0%}" for run in probes[name]))
#| caption: What linear probes read from the output: a mark for each seed, by where the
#|   negatives of the training came from.

# %% [raw] slide
# ## Nothing forces it to keep the rest
# {figure}

# %% [markdown]
# **With negatives from any sound the model learns the pitch; with negatives from the same sound it learns the vowels.**
# From the first model's output a probe reads the pitch nearly perfectly, but the vowels less well than from the
# untrained network. Nor are they hidden in an earlier layer: the frames $z$ (printed) have lost vowels, too. For the
# second model the pitch is useless, since all candidates share it. From its output the probe reads two vowels in three,
# though the network has seen no label. Nearly all of this is already in the frames $z$. Log spectra hold both, and the
# vowels better than either model; but our models had only 400 sounds and began with raw samples.
#
# Our explanation is that the voice is enough to tell a frame from those of other singers, so the vowels were not
# needed. An experiment could refute it: give all singers one pitch and one vocal tract, and change nothing else.
# *Guess:* if there is only one singer, will training with negatives from any sound again take vowels away, or teach
# them?

# %% tags=["hide-input"]
print("vowels that a probe reads if there is only one singer, by seed")
for name, shown in (("one singer, untrained", "untrained"),
                    ("one singer, any sound", "trained, negatives from any sound")):
    for layer, read in (("output", "vowel"), ("frames z", "vowel of frames")):
        print(f"{shown + ', ' + layer:<44}", *(f"{run[read]:.0%}" for run in probes[name]))

# %% [raw] slide
# ## A test of the explanation: only one singer
# {print}

# %% [markdown]
# **It teaches them**: in every seed the probe gains, 15 to 17 points from the frames and 3 to 13 from the output,
# whereas with many singers the same training lost points in every seed. Three seeds are few, but the explanation has
# survived a test that it could have failed. (With one singer the frames hold more of the vowel than the output does,
# before training and after it. Why, we have not tested.)
#
# **A contrastive model learns what tells the target from its negatives, and nothing forces it to keep the rest.** So
# when you meet a new method of this kind, first ask where its negatives come from. They can also be too similar to the
# target: if a sound repeats a vowel, the loss asks the model to tell two equal things apart. Assignment @beyond_text
# counts such **false negatives**.
#
# The paper's largest model heard 53,000 hours without a transcript (**pre-training**). Then it was adapted to the task
# (**fine-tuning**) on *ten minutes* of transcribed speech, with a new last layer for the letters (CTC: see *And more*).
# Helped by a language model, it gets 4.8 % of the words wrong on LibriSpeech's clean test set.
#
# ## Where this went: DeiT, MAE, CLIP, Whisper
#
# Four successors, each of which carries an idea of this page further:
#
# | model | what is new | the idea on this page |
# |---|---|---|
# | DeiT ([@touvron2021]) | ViT on ImageNet's 1.2 million images alone: heavy augmentation brings 83.1 % (at 384 × 384 pixels), a CNN as teacher up to 85.2 % | augmentation teaches what is not built in |
# | MAE ([@he2022]) | masks 75 % of the patches, and reconstructs their pixels; the encoder sees only the visible ones | masking must leave a task that no interpolation solves |
# | CLIP ([@radford2021]) | an image against captions, a caption against images; 400 million pairs | InfoNCE in both directions (*Going further*) |
# | Whisper ([@radford2023]) | lecture @transformer's encoder–decoder, spectrogram in, text out; 680,000 hours with transcripts from the web | with enough labels, no self-supervised loss is needed |
#
# <details><summary>And more: HuBERT, SimCLR, DINO, registers, CTC</summary>
#
# | model | what is new | the idea on this page |
# |---|---|---|
# | HuBERT ([@hsu2021]) | predicts the *cluster* of a masked frame; clusters by k-means, made anew from the model's own features | no negatives, no learned codebook |
# | SimCLR ([@chen2020]) | two augmented crops of an image against other images | augmentation makes useless what is to be ignored |
# | DINO ([@caron2021]) | a student predicts, from one crop, what a slowly moving average of itself says of another; the class token's maps outline objects without a label | no negatives; test the maps all the same |
# | registers ([@darcet2024]) | large ViTs store information about the whole image in a few background patches, which collect weight; a few extra learned tokens take over that job | a map need not show what lies in its patches |
#
# To look up: plain ViT with standard augmentation, 80 % on ImageNet ([@beyer2022]; how to choose: [@steiner2022]); CTC,
# the loss that fine-tunes wav2vec 2.0 to write text: each frame has a logit for every letter and for a blank, and the
# loss sums over all ways to spread the transcript over the frames ([@graves2006]); SigLIP, CLIP without a softmax over
# the batch ([@zhai2023]); Swin, attention within shifting windows ([@liu2021]); 2-D rotary positions ([@heo2024]);
# LLaVA, CLIP's patch vectors as tokens of a language model ([@liu2023]); DiT, a ViT that removes noise from images
# ([@peebles2023]).
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
# An image becomes a sequence of patches, a sound a sequence of frames, and the Transformer between input and output
# stays the same. A ViT has little inductive bias: what is built into a convolution it can learn if the data show it. In
# our runs most of the CNN's lead over an MLP went when its bias was made false, but a larger readout with dropout
# removed about six tenths of its lead over the ViT. Positions became a map when digits stood in many places. A map of
# attention weights needs a test and a baseline. A contrastive model learns what tells the target from its negatives.
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
# > what is to be ignored must be made useless. This is SimCLR's finding ([@chen2020], section 3).
# >
# > </details>
#
# **Now do** [assignment @beyond_text](@beyond_text/assignment) (about two hours): five exercises, two questions in
# words, and two extensions. **Next:** [lecture @errata_lab](@errata_lab) asks about programs what this lecture asks
# about representations: what does a falling loss show? Three more sections follow, for those who have time.
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
# Convolutions are equivariant, and yet the CNN misread four in ten of the shifted digits. The usual answer is that its
# last layer has learned *where* to expect the features. A last layer that averages over places should then not notice a
# shift. But two more things can break the invariance: **pooling** in steps of two pixels, and the **border**, where the
# shift cuts off ink and the convolutions pad with zeros. So we also try this CNN without pooling, in a *wide frame* of
# five empty pixels around each digit, where nothing meets the border, and with both. *Guess:* which of these five
# models reads shifted digits as well as digits in the middle?

# %%
averaging = "CNN, mean over places"
for name in (averaging, f"{averaging}, no pooling", f"{averaging}, wide frame",
             f"{averaging}, wide frame, no pooling", "CNN, wide frame, no pooling"):
    runs = record["models"][name]
    plain, off = (mean(run[key] for run in runs) for key in ("report", "moved"))
    print(f"{name:<45} {plain:.1%} as they are, {off:.1%} shifted")

# %% [markdown]
# **The fourth.** The last two models differ only in their readout, and there the usual answer holds: with a weight for
# each place the CNN reads few of the shifted digits, and with the mean it reads as many of them as of the others.
# **Equivariant layers and a mean over all places are invariant, if nothing meets a border and nothing is pooled in
# steps.** The first three do not meet these conditions. The invariant CNN reads only 73 % of both, but this need not be
# a price of invariance: each change alone costs accuracy, too, without making it invariant.
#
# ## Going further: CLIP, InfoNCE in both directions
#
# A batch has $B$ pairs of an image and its caption. Two encoders make one vector of each: the rows of $U$ are the
# images, those of $V$ the captions, all of length one. The matrix $UV^\top / \kappa$ has a cosine for each image with
# each caption, and the right answers stand on its diagonal. Each row asks *which caption?*, each column *which image?*,
# and the loss is the mean of the two cross-entropies. The negatives are the other pairs of the batch, and κ is learned.
# *What does the second direction add?* Suppose that every caption matches its image except one, the lazy "a photo",
# which lies near all images:

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
      f"at least {own[1:].min():.3f} for the others (chance: {1 / B:.2f})")
assert which_image > 2 * which_caption

# %% [markdown]
# The rows hardly notice, because each image but one has a better caption than the lazy one. The columns do notice: the
# lazy caption gives its own image a probability of only 0.43.
#
# To classify images without training a classifier, write a caption for each class ("a photo of a cat") and take the one
# with the highest cosine (**zero-shot**). The rule of this page holds for CLIP as well: nothing forces the model to
# keep what no caption tells apart.
#
# ## Going further: a codebook, Gumbel-softmax and straight-through gradients
#
# wav2vec 2.0 does not compare its context vectors with frames but with **codes**: each frame is replaced by an entry of
# a small learned table, the **codebook**. (The paper has two tables of 320 entries and takes one of each.) Why? A frame
# is full of detail that is easy to match and worth nothing, such as this microphone or this breath. A choice among a
# few hundred entries has little room for it.
#
# A choice is not differentiable. So the forward pass adds Gumbel noise $g$ to the scores $s$ of the entries and takes
# the best entry, while the backward pass uses a softmax with temperature $T$, the **Gumbel-softmax**, in place of the
# arg max:
#
# $$\text{forward: } \operatorname{onehot}(\arg\max_e (s_e + g_e)) \qquad
# \text{backward, as if: } \operatorname{softmax}((s + g) / T)$$
#
# To treat a hard choice as a soft one in the backward pass is the **straight-through estimator** ([@bengio2013]).
#
# <details><summary>Why noise, and why a temperature?</summary>
#
# With Gumbel noise, $g = -\log(-\log u)$ with $u$ uniform between 0 and 1, each entry has the largest sum with exactly
# its softmax probability (the <b>Gumbel-max trick</b>). The softmax of such sums is from [@jang2017]; [@maddison2017]
# call it the Concrete distribution. $T$ falls during training: at first a soft gradient reaches all entries, later the
# gradient is nearer to the choice.
#
# </details>
#
# We watch this where we know the answer. The points are of eight kinds and are seen twice with different noise. The
# codebook has 16 entries, and the model, which is not told the kinds, is trained for 300 steps.

# %%
codes = {}
for run in listened["codes"]:
    name = run["name"].replace("diversity", "favourite + diversity")
    if not name.endswith(" 100"):
        codes.setdefault(name, []).append(run)
first = {name: torch.tensor(runs[0]["shares"]) for name, runs in codes.items()}
figures.codes_used(first, kinds=8)
print("entries in use (exponential of the entropy), by seed")
for name, runs in codes.items():
    print(f"{name:<28}", *(f"{run['entries']:4.1f}" for run in runs))
#| caption: How often the entries of a codebook are used, in the first of three seeds.

# %% [markdown]
# From a fair start the model comes to use about eight entries, as many as there are kinds. In the second run one
# entry was ahead from the beginning. It wins too often, so the others are seldom chosen and seldom get better, and
# several kinds seem to share one code for good. This is **codebook collapse**, here halfway.
#
# The third run has the same favourite and adds the **diversity loss**: the negative entropy of how often the entries
# are used on average, divided by their number. It is lowest when all are used alike. (Its weight, 1,000, is far above
# the paper's 0.1, because this start was made bad on purpose.) By the count it brings eight or more entries into use in
# every seed. But the figure shows that this is not the fair start again: the favourite still holds as much as three
# kinds, and the others are split over many entries.
