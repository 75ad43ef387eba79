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
# *About 60 minutes, of which less than one is computing time. You need the encoder of [lecture
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
# first images, then sound.

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
# ## Images as sequences: what is a token?
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
# @cheap_attention](@cheap_attention) is about such costs). So in the **Vision Transformer**, ViT ([@dosovitskiy2021]),
# a token is a square **patch** of, say, 16 × 16 pixels. Halve the side of a patch, and there are four times as many
# rows and sixteen times as many weights.
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
#| caption: An image becomes a sequence of patches. Beside each row of patches stand their
#|   numbers.
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
# vector and multiplied by one matrix $W$, the same for all: the **patch embedding** (below the image, for patch 5). The
# **class token** ([CLS], as in BERT) comes first: a learned vector, the same for every image, that belongs to no patch.
# A **learned position embedding** is added to every row. Then comes the encoder, which ends with a norm. Only the class
# token's row is passed to the head:
#
# $$X = [\,\text{class};\ x_0 W;\ \dots;\ x_{n-1} W\,] + P, \qquad
# \text{logits} = \operatorname{norm}\bigl(\operatorname{blocks}(X)\bigr)_0\, W_{\text{head}}$$ (eq:vit)
#
# The matrix $W_{\text{head}}$ turns row 0 into ten logits. (Both matrices also have a bias.) To check the formula, we
# send one image through the package's `ViT`, note what goes into the stack of blocks and what comes out of its norm (in
# torch by a **forward hook**), and compute single rows by hand:

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
# Is the patch embedding a convolution? A **convolution** slides a small window over the image. At each place it
# multiplies the pixels in the window by learned weights and adds the products up. Its **stride** is how far the window
# moves each time. *Guess:* what does a convolution compute if its stride is a whole patch?

# %%
W = torch.randn(64, 1, 2, 2)                                  # (d, channels, patch, patch)
slid = F.conv2d(images, W, stride=2)                          # (1797, 64, 4, 4)
multiplied = patchify(images, 2) @ W.flatten(1).mT            # (1797, 16, 64)
print("the same numbers:", torch.allclose(slid.flatten(2).mT, multiplied, atol=1e-5))

# %% [markdown]
# It computes the same numbers as cutting and multiplying. So the patch embedding is a convolution whose window and
# stride are the patch, and published code often writes it this way. It is the only convolution in a ViT.
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
# which choices are made, such as the learning rate; 397 are the **test set**, whose numbers are reported. Unless stated
# otherwise, every model is trained for 450 steps. The same writers contributed to all three sets, so expect every
# accuracy below to be lower on digits by new writers.

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
# image, which needs no training; a small **convolutional neural network** (CNN). The CNN has two convolutions with
# windows of 3 × 3 and a stride of 1. The figure shows one such window:

# %% tags=["hide-input"]
edge = torch.tensor([[-1, 0, 1]] * 3)                         # more ink right than left
figures.convolution((images[3, 0] * 16).int(), edge, at=(1, 2))
#| caption: A convolution: one window, its nine products and their sum, the next window, all
#|   sums; then max pooling.
#| label: convolution

# %% [raw] slide
# ## A convolution, and max pooling
# {figure}
#
# A **feature**: how well the weights fit at one place.

# %% [markdown]
# The orange window is multiplied by nine weights, and the sum of the products is
# one number of the output. The next window, one pixel further, overlaps with the first. Zeros around the image, the
# **padding**, give the border pixels windows, too, so the output is as large as the image. Each number is a
# **feature**: it says how well the weights fit at one place. These weights find ink that has less ink on its left. Our
# first convolution learns 16 such sets of weights. The windows of the second read all 16 features, and it learns 32
# sets. **ReLU** sets negative sums to zero. **Max pooling** keeps the largest of each 2 × 2. The last layer, the
# **readout**, has a weight for each of the 32 features at each of the
# 4 × 4 places that are left, and for each class. In training, **dropout** sets three in ten of its inputs to zero.
#
# *Which of the three methods will do better than the ViT?*

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
# In the figure each mark is a run, and the long line is the mean. The grey bar is a 95 % interval for the error rate,
# as if the mean were one result on 397 test images. It shows how little 397 images say. It does not show how far seeds
# scatter, so a mark may lie outside it. All models read the same images, so a comparison of two models is more precise
# than their bars suggest.

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
for rate in (0.001, 0.002, 0.004, 0.008):
    end = "" if rate == 0.004 else f", learning rate {rate}"
    wrong = [[round(200 * (1 - run["choose"])) for run in record["models"][name + end][:3]]
             for name in ("ViT", "CNN")]
    print(f"learning rate {rate}: ViT {wrong[0]}, CNN {wrong[1]}")

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
# makes about as many as the ViT. The learning rate is not the reason: of the four rates that we tried, none did better
# on the validation set than ours, for either model. The paper found the same pattern on its own scale. Trained on a
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
def digit_at(left):                                           # in a frame of 12 × 12 pixels
    return F.pad(images[3:4], (left, 4 - left, 2, 2))


kernel = torch.randn(8, 1, 3, 3)
a, b = F.conv2d(digit_at(1), kernel), F.conv2d(digit_at(2), kernel)      # (1, 8, 10, 10)
print("convolution: the output has moved along:", torch.equal(a[..., :-1], b[..., 1:]))
old = patchify(digit_at(1), 2)[0]                             # (36, 4), a row for each patch
for pixels in (1, 2):
    inked = [x for x in patchify(digit_at(1 + pixels), 2)[0] if x.sum() > 0]
    known = [x for x in inked if (old == x).all(dim=1).any()]            # equals an old row
    print(f"moved by {pixels}: of {len(inked)} patches with ink, {len(known)} are old ones")

# %% [markdown]
# The convolution's output has moved along. The ViT's rows have not: after a move by one pixel, every patch with ink is
# new. After a move by a whole patch the rows are the old ones at other places. So the patch embedding is equivariant to
# moves by whole patches alone, and the position embedding then breaks even this.
#
# Now make both assumptions of the CNN false. Shuffle the sixteen patches, in the same way for all images. Then go
# further, and shuffle all 64 pixels. To you the digits are now unreadable. *What happens to the CNN? To the nearest
# neighbour? To a plain **multilayer perceptron** (MLP: 64 pixels → 128 → 10, with the CNN's dropout)? To the ViT?*

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

# %% tags=["hide-input"]
compared = ("CNN", "CNN, patches shuffled", "CNN, pixels shuffled",
            "MLP", "MLP, pixels shuffled", "ViT", "ViT, pixels shuffled")
figures.mistakes({name: mistakes(name) for name in compared}, n=397)
#| caption: Test errors when patches or pixels are shuffled, six seeds each.

# %% [raw] slide
# ## The CNN's bias is worth something; the MLP is ahead of the ViT, too
# {figure}
#
# A ViT's positions start as random numbers: shuffle them along, and it computes the same logits.

# %% [markdown]
# The nearest neighbour cannot notice: a distance between images is the same in any order of their pixels. The MLP does
# not notice, either. The CNN makes more mistakes in every seed: its bias is worth something. But look at the MLP once
# more. It knows nothing of neighbours, and is ahead of the ViT, too. (Like the CNN, it has dropout and a weight for
# every place.)
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
# A ViT's positions start as random numbers, so training finds either of the two models equally easily. A ViT does not
# know that an image has two dimensions, or that patch 5 lies below patch 1. It assumes only that the four pixels of a
# patch belong together, and that all patches deserve the same matrix.
#
# ## How much of the CNN's lead is inductive bias? Shuffle for both
#
# On shuffled *pixels* the CNN's assumptions are false. Even so, it makes **fewer mistakes than the ViT on intact
# images**. So something else must differ, too. *Make a list before you look.*
#
# One suspect is the **readout**. The CNN's last layer is **dense**: it has a weight for every feature *at every place*.
# The ViT's head reads one row. So give the ViT a dense last layer ("ViT, all rows read"). Then shuffle the pixels for
# both models *with the same readout*, because the ViT has some locality, too: the four pixels of a patch. In the figure
# above shuffling cost the CNN about five mistakes. *Guess:* does shuffling cost a ViT with a dense readout more, less,
# or the same? And how much of the CNN's **lead** goes with the geometry: one part in four, or more than half?
#
# There are two ways to count a lead: as a difference (how many *more* mistakes the ViT makes) or as a ratio (how many
# *times as many*). For ratios we average the differences of logarithms. That gives the logarithm of the geometric mean
# of the ratios: 0.69 means $e^{0.69} = 2$ times as many. *Guess again:* will the two counts agree?

# %% [raw] slide
# ## How much of the CNN's lead is inductive bias?
# On shuffled pixels the CNN still makes fewer mistakes than the ViT on intact images. A suspect: the **readout**.
#
# - "ViT, all rows read": a dense last layer, like the CNN's
# - "CNN, mean over places": the CNN without it (later)
#
# > **Guess first.** Shuffle the pixels for both models with the dense readout. The CNN pays five mistakes. The ViT more, less, the same? How much of the lead goes: one part in four, or more than half?

# %% tags=["hide-input"]
def interval(values):                                         # 2.57: Student's t, six seeds
    return f"{mean(values):5.2f} ± {2.57 * stdev(values) / math.sqrt(6):.2f}"


def lead(count, end=""):                                      # of the CNN, by seed
    cnn, vit = mistakes("CNN" + end), mistakes("ViT, all rows read" + end)
    return [count(b) - count(a) for a, b in zip(cnn, vit, strict=True)]


shuffling = ", pixels shuffled"
print("dense readout, mean mistakes       intact  shuffled")
for name in ("CNN", "ViT, all rows read"):
    print(f"{name:<35}{mean(mistakes(name)):6.1f}  {mean(mistakes(name + shuffling)):8.1f}")
leads = {}
for scale, count in (("mistakes", float), ("logarithms", math.log)):
    before, after = leads[scale] = lead(count), lead(count, shuffling)
    gone = [b - a for a, b in zip(after, before, strict=True)]
    print(f"the CNN's lead in {scale + ':':<11}", interval(before), "intact,",
          interval(after), "shuffled,", interval(gone), "gone")
figures.leads({"how many more mistakes the ViT makes": leads["mistakes"],
               "how many times as many": leads["logarithms"]},
              times=2.57, ratios=["how many times as many"])
#| caption: The CNN's lead with dense readouts, counted in two ways: a line for each seed,
#|   diamonds the means with 95 % intervals.
#| label: leads

# %% [raw] slide
# ## The CNN's lead, counted in two ways
# {figure}
#
# An answer that depends on the scale is not yet an answer.

# %% [markdown]
# **With the same readout, shuffling costs both models something**: the CNN five mistakes, the ViT four. Each line of
# the figure is one seed. Does the lead fall from intact to shuffled pixels? Counted in mistakes, it falls in some seeds
# and not in others, by one mistake on average. Counted in ratios, it falls in every seed. How much of the CNN's lead
# was inductive bias?
#
# | we count | lead on intact pixels | lead on shuffled pixels | so bias explains |
# |---|---|---|---|
# | mistakes | 4.2 more | 3.2 more | one part in four; the interval includes zero (1.0 ± 2.7) |
# | ratios | 2.1 times as many | 1.4 times as many | more than half, in logarithms; the interval excludes zero (0.45 ± 0.37) |
#
# The data do not choose between the two scales, and an answer that depends on the scale is not yet an answer. By either
# count a part of the lead remains without the geometry: both intervals on the right lie above "no lead".
#
# Now exchange the readouts: the ViT has the dense layer, and the CNN takes the mean of each feature over all places
# ("CNN, mean over places"). *Which makes fewer mistakes?*

# %% tags=["hide-input"]
readouts = {"CNN": "dense", "ViT, all rows read": "dense",
            "CNN, mean over places": "mean", "ViT": "class token"}
figures.mistakes({name: mistakes(name) for name in readouts}, n=397, groups=readouts)
#| caption: Test errors of CNN and ViT by readout, on intact pixels, six seeds each.

# %% tags=["hide-input"]
print("mean mistakes, six seeds")
for name in (*readouts, "ViT, pixels shuffled"):
    print(f"{name:<36} {mean(mistakes(name)):5.1f}")
grid = {"ViT, class token": ("ViT", "ViT, dropout before the head"),
        "ViT, all rows read": ("ViT, all rows read, no dropout", "ViT, all rows read"),
        "CNN, mean over places": ("CNN, mean over places", None),
        "CNN, dense": ("CNN, no dropout", "CNN")}
print("\nmean mistakes, the first three seeds  no dropout  dropout 0.3")
for name, both in grid.items():
    shown = [f"{mean(mistakes(one)[:3]):.1f}" if one else "–" for one in both]
    print(f"{name:<36} {shown[0]:>11} {shown[1]:>12}")
for name in ("ViT, three times the steps", "ViT, no positions"):
    print(f"{name:<36} {mean(mistakes(name)):>11.1f}")

# %% [raw] slide
# ## Give each the other readout, and the order is reversed
# {figure}
#
# A table that fits your explanation is not a test of it.

# %% [markdown]
# **Give each model the other kind of readout, and the order is reversed.** The CNN with the mean makes 19.0 mistakes,
# the ViT with the dense readout 7.7, and no seed contradicts it. (The mean and the class token are two different
# readouts, so do not compare 19.0 with 14.2.) After 450 steps the ViT makes about eleven mistakes more than the CNN. A
# dense readout with dropout removes six or seven of them.
#
# Is this the work of the layer or of the dropout? In the control (three seeds, printed above) the ViT makes 15.0
# mistakes with the class token and 15.3 with dropout before its head. A dense layer without dropout brings them down to
# 9.7, and both together to 8.3. So the layer does most of the work. Our guess at the reason: every digit here stands in
# the middle, at one size, so a weight for each place is useful. We do not know what makes up the rest of the lead.
#
# <details><summary>Is it the number of parameters? Would more steps help? And how sure is all this?</summary>
#
# *Parameters*: the CNN's last layer has $512 \cdot 10 + 10 = 5{,}130$ of its 9,930; the mean over places leaves it
# 330. The ViT's head has $64 \cdot 10 + 10 = 650$; to read all rows takes $17 \cdot 64 \cdot 10 + 10 = 10{,}890$,
# beside the 68,544 of the rest. No control here separates the number of parameters from what they read. The averaging
# CNN has also lost its only global layer, since its features see 6 × 6 pixels. So the ViT's half of the exchange is the
# cleaner one.
#
# *Optimisation*: three times the steps help the ViT with the class token, in two of three seeds. So a part of what the
# dense readout gains may be speed.
#
# *Positions*: without them the ViT reads a bag of patches, and about three digits in four.
#
# *How sure?* The intervals are over seeds. All seeds share the same test images: another 397 could move every row. The
# authors saw test results while they wrote this page, but based no choice on them.
#
# </details>
#
# What is not built in must be learned: that part of the usual explanation stands. But "a CNN is better because of its
# inductive bias" is a claim about a cause, and a part of the lead has another cause. **A table that fits your
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

# %% tags=["hide-input"]
def read_moved(*names):
    for name in names:
        runs = record["models"][name]
        plain, moved = ([run[key] for run in runs] for key in ("report", "moved"))
        print(f"{name:<45} {mean(plain):.1%} as they are, {mean(moved):.1%} moved "
              f"({len(runs)} seeds: {min(moved):.0%} to {max(moved):.0%})")


read_moved("CNN", "CNN, shifts", "ViT", "ViT, shifts", "ViT, shifts, three times the steps")

# %% [raw] slide
# ## Both need shifts
# {print}
#
# Data can make up for much of a bias that is not built in, at the price of more steps.

# %% [markdown]
# Both need the shifts: one pixel in eight is a large shift. Trained on digits in the middle, both models fail on moved
# digits, the ViT more often. Trained with shifts, the CNN reads moved digits nearly as well as unmoved ones. The ViT
# with shifts misreads 15 % of both. Are shifts not enough, or are 450 steps too few? With three times the steps it
# misreads one in twenty. So data can make up for much of a bias that is not built in, at the price of more steps. Even
# after three times as many, the ViT still makes more than three times the CNN's mistakes on moved digits.
#
# Why does the CNN fail without shifts, although convolutions are equivariant? The usual answer is that its last layer
# has learned *where* to expect the features. *Going further* puts this answer to a test.
#
# ## The position map: what makes it appear?
#
# A trained ViT has a position embedding for each place, and nothing in the model says which places are neighbours. In
# figure 7 of the paper, the **cosine similarity** of each position embedding with all others shows rows and columns.
# *What do you expect from our model:* are neighbours more alike than opposite corners?
#
# The paper's model was trained on many millions of images. Ours saw 1,200 digits that all stand in the middle. So we
# take three conditions, for digits in a frame of 12 × 12 pixels (36 patches): always in the middle; each digit **moved
# once**, by up to two pixels, before training; each digit **moved anew** at every step. The second condition is the
# control: digits stand everywhere, but no single drawing is ever seen in two places. (400 steps, three seeds.)

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
# belongs to one place, the one with the orange dot, and shows the whole grid: blue where the position is similar to
# that of the orange place, red where it is opposite, white where it is neither:

# %% tags=["hide-input"]
maps = {how: torch.tensor(table) / 100 for how, table in record["maps"].items()}   # (36, 36)
figures.position_maps(maps, side=6, every=2, most=0.6)
place = torch.arange(36)
row, column = place // 6, place % 6
down = (column[:, None] == column) & ((row[:, None] - row).abs() == 3)   # (36, 36)
across = (row[:, None] == row) & ((column[:, None] - column).abs() == 3)
apart = (row[:, None] - row).abs() + (column[:, None] - column).abs()    # (36, 36)
inner = (row % 5 > 0) & (column % 5 > 0)                      # (36,)  not at the border
beside = (apart == 1) & inner[:, None] & inner
print("cosines: three steps down or up, three left or right, one step between inner places")
for how, cosine in maps.items():
    print(f"{how:<14}", *(f"{cosine[pairs].mean():6.2f}" for pairs in (down, across, beside)))
#| caption: Similarity of learned positions: nine places, each to all others, in three
#|   conditions. Colours end at ± 0.6.

# %% [raw] slide
# ## The control gives the same map
# {figure}

# %% [markdown]
# With digits in the middle, neighbours are no more alike than other places. The twenty patches of the border are always
# empty, and their positions resemble each other, however far apart they are. (Our guess: they always carry the same
# patch, so little in training tells them apart.) So the maps of border places, in the top row and the left column, show
# a blue ring, and the curve rises with the distance. The other two curves rise again at the longest distances, between
# opposite corners, perhaps for the same reason: corners are mostly empty there, too.
#
# With digits moved anew, neighbours resemble each other. So a model can learn from its data which places are near each
# other, as the paper's did. Our map tells *top from bottom* better than left from right: in the first seed the cosine
# is −0.3 three steps down or up, and about 0 three steps left or right.
#
# But look at the control. Digits that were moved *once* give the same kind of map. Neighbours are less alike (cosines
# of 0.29 against 0.44 at one step), but top and bottom are told apart as clearly. Yet that model never saw a drawing in
# two places. So it was enough that digits stood in **many places**. The empty border alone does not explain why the
# first condition has no map: among its sixteen inner places, too, neighbours are not alike (the last column printed
# above). Our guess at the reason for a map: positions that are alike let the same weights recognise a stroke at either
# place.
#
# (Each model reads best the kind of digits on which it was trained. After 400 steps the two with moved digits are far
# from finished. We have not tested whether the map stays when they are trained longer.)
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
figures.attention_by_head(pictures[:2], looks[:2], ["a 3", "an 8"], framed=[(1, 1), (2, 1)],
                          marked=[(0, 3, 2, 1)])
#| caption: The class token's attention in percent (below 5: no number; colours end at 60).
#|   Dashed: where an 8 is closed. Thick: the same patch in both.

# %% tags=["hide-input"]
open_side = looks[0, :, :, 1:3, 1].amax(dim=-1)               # (layers, heads)
assert open_side.min() < 0.05 < 0.2 < open_side.max()

# %% [raw] slide
# ## Layer by layer, head by head
# {figure}

# %% [markdown]
# An 8 is closed on the left where a 3 is open, so a person looks at the two patches with dashed frames: column 1 of
# rows 1 and 2, counted from 0. Some heads give them much weight, others hardly any. Some heads follow the place and not
# the digit: head 3 of layer 0 gives nearly all its weight to the same patch in both (thick frames). Others change with
# the digit, by no rule that we can name. There is a further reason for caution. In layer 1 the row at the place of
# patch 5 is no longer patch 5 alone, because layer 0 has mixed all patches into it.
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
#| caption: Attention of the class token in percent, in the last layer (mean over heads) and by
#|   rollout. Each column has its own scale of colours.
#| label: attention-on-images

# %% [markdown]
# Rollout's numbers are smaller, partly because at least a quarter of its row stays with the class token (half in each
# of two layers). The maps look plausible. Are they right? A map of attention weights claims that *these patches
# mattered*, and this claim can be tested. Replace the four patches to which rollout gives most by the average of what
# stands there. If they mattered, accuracy must fall more than for four patches at random, and more than for the four to
# which rollout gives least.
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

# %% [raw] slide
# ## Rollout passes, and a baseline without a model
# {figure}

# %% [markdown]
# Rollout passes: its patches matter more than four at random, and the patches to which it gives least matter less. But
# a map can pass for many reasons, so each reason gets its own control:
#
# | question | compare rollout's four with | answer |
# |---|---|---|
# | Does it help to follow the mixing? | both layers' weights *added*: for two layers $R = \tfrac14 (A_1 A_0 + A_1 + A_0 + I)$, so the sum is rollout without its product | Yes: the sum does worse in all six models, and so does each layer alone. But the sum already gives a little more than half of rollout's gain over the last layer |
# | Does rollout only pick unusual patches? | four at random that change the image *as much* | No: rollout's cost more in all six models. But unusual patches account for a little more than half of the extra damage |
# | Does rollout only follow ink? | the four with most ink | No: on average these cost no more than any four |
# | Could a rule without a model do better? | the four that differ most from what usually stands there | Yes, in all six models; but this test favours a rule that picks the largest change |
#
# Before you believe a map, compare it with a **baseline** that does not use the model; a13's first extension asks the
# same of your ViT. Such controls have a literature: *sanity checks* ([@adebayo2018] compare
# maps with an edge detector) and removal with retraining (ROAR, [@hooker2019]). Rollout uses neither the values nor the
# feed-forward networks; [@chefer2021] use gradients, too.
#
# ## Sound as a sequence: harmonics, formants, spectrogram
#
# *Half of the lecture is behind you: a good place for a break.* At the end of this half you will know why one changed
# line decides whether a model hears *what* is sung or *who* sings.
#
# Sound, too, is a sequence of numbers: the pressure at the ear, measured 8,000 or 16,000 times a second. Recordings are
# cheap, but transcripts are not. Can a Transformer learn something from sound *alone*?
#
# To see what was learned, we need sounds about which we know everything. So we make them: a voice sings vowel after
# vowel on one pitch, each for 0.08 to 0.2 seconds (the first and the last may be cut short). A voice is a sum of
# **harmonics**, whole multiples of the pitch. The resonances of the mouth, the **formants**, decide how loud each
# harmonic is. In our sounds the formants alone decide the vowel. Here is one vowel on two pitches, from our formula:

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
# The pitch decides where the harmonics stand; the formants decide how loud they are. So pitch and vowel are two
# different things in one sound. Each voice of ours has its own pitch and its own size of head, a factor of all
# formants. Each vowel is named by an English word that contains it (the values are from [@peterson1952]).

# %% [raw] slide
# ## Sound as a sequence
# - The pressure at the ear, 8,000 or 16,000 times a second.
# - A voice is a sum of **harmonics**; **formants** decide how loud each is.
# - We make the sounds: vowel after vowel, on one pitch.

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
def spectra(waveform):                                        # 25 ms at a time, every 20 ms
    frames = waveform.unfold(-1, 200, 160) * torch.hann_window(200)      # (..., n_frames, 200)
    return (torch.fft.rfft(frames).abs().square() + 0.01).log()          # (..., n_frames, 101)


# %% tags=["hide-input"]
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
# louder). The dashed orange lines are the formants of each vowel; the voice glides from one to the next within 40 ms.
# The lowest formant, F1, follows the dark band; the fine stripes in the band are harmonics. F2 and F3 are mostly lost
# in the noise, because a voice is weak at high frequencies: about 20 and 30 decibels weaker than at F1 (see the figure
# before).
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
# map on new sounds. Any later layer can use directly what a *linear* map can read. Ours is fitted by least squares
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

# %% tags=["hide-input"]
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
# The prediction holds. The probe on the left was given nothing but the true F1 (its logarithm, squared and cubed as
# well). It gets 72 % of the frames right, and nearly all of its mistakes are in the framed cells. (It also takes a few
# *hod* for *head*, although their ranges do not touch: a linear map by least squares is not the best possible reader of
# F1. That reader would be right in 74 %.) The right probe was given the log spectra. It reads 78 %, more than any
# reader of F1 alone could: it uses part of F2 and F3, too, or loudness. Most of its mistakes, too, are the predicted
# ones.
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
# are enough. With kernels of 80 and 4 samples and strides of 40 and 4, their frames, too,
# are made from 25 milliseconds of sound, one every 20 milliseconds.
#
# ## Self-supervised learning: mask, and tell the target from negatives
#
# How can a model learn without labels? In text, a token is masked and the model predicts it ([lecture
# @transformer](@transformer)). The label is made from the data itself: this is **self-supervised learning**. The same
# can be done with frames. But what does it mean to predict a *frame*? It is a vector of real numbers, and much of it is
# noise. And if the frames are themselves learned, there is a trivial solution: make them all equal, and every
# prediction is right (**collapse**). Wrong candidates rule this solution out. So wav2vec 2.0 asks: *here are 101 frames
# of this sound* (on this page, eleven). *One of them was masked at this place. Which?*

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
# This **contrastive loss** is known as **InfoNCE** ([@oord2018]; NCE is *noise-contrastive estimation*). It is a lookup
# again [@eq:soft-attention]: the guess is the query, the candidates are the keys, and $\kappa$ is the temperature of
# lecture @lookup. ($c$ is the Transformer's output, not the context vector of lecture @cross_attention.)
#
# <details><summary>Why "Info"?</summary>
#
# If the $K$ negatives are independent draws, then $\log(1 + K) - \mathcal L$ is, on average, a lower bound of the
# <b>mutual information</b> of guess and target. So $K$ negatives can certify at most $\log(1 + K)$. Our negatives come
# from the same sound, so they are not independent draws, and we claim no bound.
#
# </details>
#
# > **A common mistake: "what is masked is masked for the targets, too."** It is not. In the first figure of the wav2vec
# > 2.0 paper the targets are made of what stands *below* the mask: what is hidden from the Transformer is not hidden from
# > the targets.
#
# Here are a guess's cosines with eleven candidates, and the probabilities that softmax makes of them:

# %% tags=["hide-input"]
figures.info_nce([0.8, 0.3, -0.2, 0.5, 0.1, -0.5, 0.0, 0.6, -0.1, 0.2, -0.3], kappas=(1.0, 0.1))
#| caption: The contrastive loss: one target among ten negatives.

# %% [raw] slide
# ## The temperature of the game
# > **Guess first.** Ten negatives, κ = 1, a perfect guess: how low can the loss get?

# %% [markdown]
# Cosines lie between −1 and 1. *Before you run it:* with ten negatives and $\kappa = 1$, how low can the loss get, for
# a perfect guess?

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
# If the negatives may include the target's own frame, the target is sometimes among its own negatives. Then the model
# is asked to tell a frame from itself, and the loss of that guess is at least log 2.
#
# ## Span masking: how much, and why not single frames
#
# How much should be masked? In wav2vec 2.0 a share $p = 0.065$ of the frames is drawn at random, and a span of $M = 10$ frames
# starts at each. (We draw each frame by itself.) Spans may overlap. *How much of the sound is masked: 6.5 %, 65 %, or
# another share?* (A frame stays visible if no span starts at it or at one of the nine frames before it.)

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
# About half of it: a frame is visible with probability $(1 - p)^M$, and masked with $1 - (1 - p)^M$.
#
# Why spans? Set the span to 1 at p = 0.5. Half is masked, and three in four of the masked frames have a visible
# neighbour, 20 milliseconds away, most often in the same vowel. A copy of the neighbour is then a good guess, and
# nothing has to be learned. So a span should be longer than the time over which neighbours are alike. Our vowels last
# 4 to 10 frames, and our spans have three: an easier task than the paper's, for a small model. (a13 measures the price:
# copying the nearest visible frame names the right vowel in 68 % of such spans, in 44 % with spans of ten. Both models
# below have the same spans, so the comparison is fair.)
#
# **Now you:** [a13](@beyond_text/assignment), exercises 3 to 5.
#
# ## Negatives decide what is learned: an experiment
#
# Where should the negatives come from? The paper draws them from other masked frames of the same sound. We could draw
# them from the whole batch instead, which has more frames, from many voices. Is that better? The two variants differ
# only in the line that draws the negatives:

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
# The untrained model is worse than guessing, because at κ = 0.1 random cosines count as confident guesses. Both models
# are trained for 360 steps on batches of 24 sounds, with three seeds. The first draws its negatives from any sound
# throughout. The second does so for its first 30 steps only, as a head start, and from then on draws them from the same
# sound. (Without the head start, one seed of three was still at guessing after 360 steps.)
#
# *Write down two predictions.* (1) Whose loss falls faster, and what happens to the other model's loss at step 30? (2)
# Each sound has one pitch throughout, and its vowels change. Which model will encode the vowel, and which the pitch?

# %% tags=["hide-input"]
print(listened["command"])
steps = range(10, 361, 10)
lines = {}
for name in ("any sound", "one sound"):
    lines[name] = {step: [losses[step // 10 - 1] for losses in listened["losses"][name]]
                   for step in steps}
figures.runs_over(lines, "training step", "contrastive loss (nats, mean of 10 steps)",
                  level=("guessing", math.log(11)),
                  event=("step 30: “one sound” changes its negatives", 30))
#| caption: Contrastive loss in training, with negatives from any sound and from the same sound.

# %% [raw] slide
# ## Two losses of two different games
# {figure}
#
# > **Write down two predictions.** What will each model have learned, the vowel or the pitch?

# %% [markdown]
# With negatives from any sound the loss drops early and far. The other model's loss returns to the level of guessing
# after step 30, stays there for another 60 to 100 steps, depending on the seed, and then falls, less far. (We come back
# to the reason.)
#
# But the two losses belong to two different games. Frames of other singers are easier to tell apart, so the lower loss
# is not the better score. What counts is what each model has learned: your second guess. Linear probes read vowel and
# pitch from the Transformer's output, with nothing masked, and once more from the frames $z$ before the Transformer.
# $R^2$ is the share of the variance of the pitch's logarithm that the probe explains.

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
                   "$R^2$ of the log pitch, by a linear probe", guessing=1 / 5, before=frames_z,
                   names=("output", "frames z"))
for name in ("untrained", "any sound, 30 steps", "one sound, from the start"):
    print(f"{name:<25}  vowels", *(f"{run['vowel']:.0%}" for run in probes[name]),
          "  R² of the pitch", *(f"{run['pitch']:.2f}" for run in probes[name]))
#| caption: What linear probes read from output and frames, a mark for each seed, by where the
#|   negatives of the training came from.

# %% [raw] slide
# ## Nothing forces it to keep the rest
# {figure}

# %% [markdown]
# With negatives from any sound the output holds the pitch nearly perfectly, and a linear probe reads the vowels less
# well than from the untrained network. With negatives from the same sound the pitch is useless, since all candidates
# share it. Now the probe reads about two vowels in three, though the network has seen no label. (All sounds are new to
# model and probe.) Most of this is already in the frames: the hollow marks of the trained models lie close to the full
# ones. The frames receive gradients from two sides, through the Transformer and through the targets. We have not
# separated their effects.
#
# The printed lines explain the head start. After 30 steps with negatives from any sound a probe reads more of the pitch
# than before, and no more of the vowels. Among frames of one singer the pitch does not help, so the loss goes back to
# guessing. Without the head start, the two seeds that learned anything read as many vowels, and even less of the pitch.
#
# Our explanation: to tell a frame from those of other singers, the voice is enough. An experiment could refute it. Give
# all singers one pitch and one size of head, and change nothing else. *Guess:* what will negatives from any sound teach
# if there is only one singer?

# %% [raw] slide
# ## A test of the explanation
# To tell a frame from those of other singers, the voice is enough. So give all singers one pitch and one size of head.
#
# > **Guess first.** What will negatives from *any* sound teach if there is only one singer?

# %% tags=["hide-input"]
print("vowels that a probe reads if there is only one singer, by seed")
for name in ("one singer, untrained", "one singer, any sound"):
    for what, where in (("vowel of frames", "frames z"), ("vowel", "output")):
        print(f"{name:<22} {where:<9}", *(f"{run[what]:.0%}" for run in probes[name]))

# %% [raw] slide
# ## If there is only one singer
# {print}

# %% [markdown]
# Now the same negatives teach vowels: a probe reads more vowels than before the training, in every seed. With many
# singers the same training took vowels away. So the explanation has survived a test that it could have failed.
# (Compare within these four rows only: with one singer, vowels are easier to read even before training. And the output
# holds *less* of the vowel than the frames. A representation is not always best at its top.)
#
# **A contrastive model learns what tells the target from its negatives, and nothing forces it to keep the rest.** When
# you read of a new method of this kind, look first for where its negatives come from. A negative can also be too
# similar to its target: where a sound repeats a vowel, the loss asks the model to tell two equal things apart.
# Assignment @beyond_text counts such **false negatives**.
#
# Back to the model trained with negatives from one sound. Does it confuse the pairs that we predicted for a listener
# who hears only F1?

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
# The predicted pairs fill 4 of the 20 cells off the diagonal, so chance would put a fifth of the mistakes there. The
# model with negatives from any sound is near chance. The model with negatives from one sound makes eight in ten of its
# mistakes there. But a probe of log spectra makes seven in ten there, too: these vowels sound alike to any reader. So
# the mistakes are consistent with a model that uses F1, but they do not prove it.
#
# Log spectra, which engineers designed, are still better: the model had only 400 sounds, and began with raw samples.
# The paper's largest model had 53,000 hours. Fine-tuned with CTC (below) on *ten minutes* of transcribed speech, and
# helped by a language model, it gets 4.8 % of the words wrong on LibriSpeech's clean test set.
#
# ## Where this went: DeiT, MAE, CLIP, HuBERT, Whisper
#
# The main successors, and where each uses an idea of this page:
#
# | model | what is new | the idea on this page |
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
# | model | what is new | the idea on this page |
# |---|---|---|
# | SimCLR ([@chen2020]) | two augmented crops of an image against other images | augmentation makes useless what is to be ignored |
# | SigLIP ([@zhai2023]) | CLIP with a sigmoid for each pair: match or not? No softmax over the batch | negatives without competition |
# | Swin ([@liu2021]) | attention within windows that shift from layer to layer: cost linear in the image | locality put back (lecture @cheap_attention) |
# | DINO ([@caron2021]) | a student predicts, from one crop, what a slowly moving average of itself says of another; the class token's maps outline objects without a label | no negatives; test the maps all the same |
# | registers ([@darcet2024]) | in large ViTs the vectors of a few background patches become large and collect weight: the model stores information about the whole image there; a few extra learned tokens take over that job, and the maps become clean | a map need not show what lies in its patches |
# | 2-D rotary positions ([@heo2024]) | axial: half of the pairs turn with the row, half with the column; the paper's own variant learns for each pair a mixture of both. No learned table, so other image sizes fit | the map need not be learned (lecture @order) |
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
# An image becomes a sequence of patches, a sound a sequence of frames; the Transformer in between stays the same. A ViT
# has little inductive bias, so it must learn from data what is built into a convolution. But with the same readout
# shuffled pixels cost both, and how much of the CNN's lead this explains depends on how mistakes are compared: by
# difference or by ratio. After 450 steps the readout (a dense layer, its dropout and 10,240 more parameters) made up
# about six tenths of the lead. An explanation needs a control, and so does a map of attention weights. Positions became
# a map when digits stood in many places. A contrastive model learns what tells the target from its negatives.
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
# words, and two extensions. **Next:** [lecture @errata_lab](@errata_lab). It asks about programs
# what this lecture asks about representations: what does a falling loss show? Four more sections follow, for those who
# have time.
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

# %% [markdown]
# The last two rows differ in the readout alone, and there the usual answer holds. With a weight for each place the CNN
# reads 98 % of the digits, and 41 % of the moved ones. With the mean it reads exactly as many moved as unmoved digits,
# in every seed: **equivariant layers and a mean over all places are invariant, if nothing meets a border and nothing
# is pooled in steps.**
#
# In the other rows these conditions do not hold. Pooling alone costs the averaging CNN 19 points (from 91.5 % to
# 72.7 %). The border alone costs 35 points (from 87.8 % to 52.8 %), as many as both together. (Invariance has a price,
# too: after 450 steps that CNN reads only 73 % of both.)
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
# The rows hardly notice: each image but one has a better caption than the lazy one. The columns notice: the lazy
# caption gives its own image a probability of only 0.43, and every other caption gives its own image more than 0.99.
#
# To classify images without training a classifier, write a caption for each class ("a photo of a cat") and take the one
# with the highest cosine (**zero-shot**). The rule of this page holds here, too: nothing forces the model to keep what
# no caption tells apart.
#
# ## Going further: a tenth of the images
#
# How much does each model lose with fewer images? The figure shows the same 450 steps with 120 images in place of
# 1,200, for three seeds:

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

# %% [markdown]
# The ViT loses most, by far. (Large ViTs are usually trained once, on as many images as possible, and then adapted:
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
# A choice is not differentiable. Three tricks make it trainable. First, Gumbel noise $g$ is added to the scores $s$;
# each entry then has the largest sum with exactly its softmax probability (the **Gumbel-max trick**). Second, a softmax
# with temperature $T$ takes the place of the arg max, and can be differentiated: the **Gumbel-softmax** ([@jang2017];
# [@maddison2017] call it the Concrete distribution). Third, the forward pass uses the hard choice all the same, and
# only the backward pass uses the softmax:
#
# $$\text{forward: } \operatorname{onehot}(\arg\max_e (s_e + g_e)) \qquad
# \text{backward, as if: } \operatorname{softmax}((s + g) / T)$$
#
# This is the **straight-through estimator** ([@bengio2013]). The temperature $T$ falls during training: at first a soft
# gradient reaches all entries, later the gradient is nearer to the choice. We watch this where we know the answer. The
# points are of eight kinds and are seen twice with different noise. The codebook has 16 entries, and the model is not
# told the kinds. It is trained for 300 steps.

# %%
codes = {}
for run in listened["codes"]:
    name = run["name"].replace("diversity", "favourite + diversity")
    codes.setdefault(name, []).append(run)
figures.codes_used({name: torch.tensor(runs[0]["shares"]) for name, runs in codes.items()})
for name, runs in codes.items():
    print(f"{name:<28} entries in use, by seed:", *(f"{run['entries']:.1f}" for run in runs))
#| caption: How often the entries of a codebook are used, in the first of three seeds.

# %% [markdown]
# (The printed number is the exponential of the entropy: how many equally used entries would have the same entropy.)
# From a fair start the model finds the eight kinds by itself, with about one entry for each. In the second run one
# entry was ahead from the beginning. This entry wins too often, so the others are seldom chosen and seldom get better.
# Several kinds share one code for good: **codebook collapse**, here halfway. (In a complete collapse all targets are
# one code, and no two of them can be told apart.)
#
# The last two runs have the same favourite, and add the **diversity loss**: the negative entropy of how often the
# entries are used on average, divided by the number of entries (16 here, 640 in the paper). It is lowest when all are
# used alike. With a weight of 100 eight or more entries are in use in two seeds of three, with 1,000 in all three. The
# paper's weight is 0.1. Ours must undo a start that was made bad on purpose: the favourite is so far ahead that the
# softmax is nearly one-hot, and almost no gradient comes through it.
#
# With codes our small listener takes several times as long before its loss falls. `Wav2Vec2.loss` is the whole loss, if
# you would like to train one yourself.
