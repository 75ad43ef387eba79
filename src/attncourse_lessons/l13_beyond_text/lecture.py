# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3 (ipykernel)
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Lecture @beyond_text · Beyond text
#
# *About 60 minutes, of which one is computing. You need the encoder of [lecture @transformer](@transformer), positions
# ([lecture @order](@order)), and temperature ([lecture @lookup](@lookup)). What a convolution is will be
# said where one is needed.*
#
# When you have finished you will be able to feed pictures to a Transformer, and to say what it has to learn that a
# convolution is born with; to look at where it looks without believing too much of what you see; to make a model learn
# from sound that nobody has labelled, by hiding parts of it; and to say beforehand what it will learn, and what it
# will not. In [assignment @beyond_text](@beyond_text/assignment) you build the parts.
#
# ## How much of this was about words?
#
# Go back in your mind over the Transformer of lecture @transformer, line by line, and cross out whatever is about language.
# Queries and keys? They are products of rows with matrices. Softmax, heads, norms, the feed-forward network? Not a
# word in any of them. You will be able to cross out one line only: the first, which looks up a row for each word in a
# table. After that there are rows of numbers, and nobody asks where they came from.
#
# So suppose that somebody hands you a photograph, or a second of somebody singing. *Before you read on:* what would you
# make the rows of? For a picture there is an obvious answer, and it is too expensive. Which, and why?

# %%
try:
    from attncourse import viz

    from . import figures
except ModuleNotFoundError:
    raise ImportError(
        "This page needs the attncourse package: open it with `make lab` in the course's folder, "
        "or choose a kernel of the environment in which you installed the course."
    ) from None

from dataclasses import replace

import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier
from torch import nn

from attncourse.beyond_text import ViT, ViTConfig, attention_rollout, patchify, unpatchify
from attncourse.transformer import Stack

torch.set_num_threads(1)  # models as small as these gain nothing from a second thread

# %% [markdown]
# The obvious answer is one row for each pixel. A photograph of 224 × 224 pixels would be a sequence of fifty thousand,
# and attention compares all with all:

# %%
for patch in (1, 8, 16, 32):
    n = (224 // patch) ** 2
    print(f"patches of {patch:>2} × {patch:<2}: {n:>6,} rows, {n * n:>13,} weights in one table")

# %% [markdown]
# Two and a half billion weights, for one head of one layer ([lecture @cheap_attention](@cheap_attention) is about
# that). So pixels are not the words. In the *Vision Transformer*, ViT (Dosovitskiy et al. 2021), a word is a square
# **patch** of, say, 16 × 16 pixels. (The paper's title has it that an image is worth 16x16 words. For the image above
# it is 14 × 14; the 16 are pixels.) Halve the side of the patch, and there are four times as many rows and sixteen
# times as many weights: resolution is what one pays for.
#
# ## A page of squares
#
# Our pictures are small enough to be printed: handwritten digits, 8 × 8 pixels, which come with scikit-learn.

# %%
pixels, labels = load_digits(return_X_y=True)
images = torch.tensor(pixels, dtype=torch.float32).view(-1, 1, 8, 8) / 16     # (1797, 1, 8, 8)
labels = torch.tensor(labels)
print(tuple(images.shape), "  one of them, as numbers:")
print((images[3, 0] * 16).int())
figures.picture_to_sequence(images[3, 0], patch=2)

# %% [markdown]
# Follow the picture from left to right. It is cut into patches, read like a page. Each patch is flattened to a vector
# and multiplied by one matrix $W$, the same for all. In front comes a vector that belongs to no patch, the **class
# token**; it is learned, and the same for every picture. To every row a position is added. Then the encoder takes
# over, and at the top the class token's row is read out:
#
# $$X = [\,\text{class};\ x_0 W;\ \dots;\ x_{n-1} W\,] + P, \qquad
# \text{logits} = \operatorname{norm}\bigl(\operatorname{blocks}(X)\bigr)_0\, V$$
#
# with one more matrix, $V$, that makes ten logits of row 0. (Both products have a bias, too.) Cutting is a reshape, an
# exchange of axes, and a reshape. The reshape alone will not do, for the reason that you know from the heads of
# [lecture @many_heads](@many_heads): a row of pixels runs through several patches.

# %%
def cut(images, patch):
    batch, channels, height, width = images.shape
    x = images.view(batch, channels, height // patch, patch, width // patch, patch)
    x = x.permute(0, 2, 4, 1, 3, 5)                           # (batch, rows, columns, channels, patch, patch)
    return x.flatten(3).flatten(1, 2)                         # (batch, n_patches, channels · patch²)


assert torch.equal(cut(images, 2), patchify(images, 2))
assert torch.equal(unpatchify(cut(images, 2), 2, 8, 8), images), "nothing is lost"
wrong = images.view(-1, 16, 4)                                # the shape fits as well
print("patch 0:", cut(images, 2)[3, 0] * 16, "   of the reshape alone:", wrong[3, 0] * 16)

# %% [markdown]
# If you have met convolutional networks you may have a suspicion. A convolution slides a window over the picture and
# multiplies what it sees by a matrix. What if it slides not by one pixel but by a whole patch?

# %%
W = torch.randn(64, 1, 2, 2)                                  # (d, channels, patch, patch)  64 kernels
slid = F.conv2d(images, W, stride=2)                          # (1797, 64, 4, 4)
multiplied = patchify(images, 2) @ W.flatten(1).mT            # (1797, 16, 64)
assert torch.allclose(slid.flatten(2).mT, multiplied, atol=1e-5)

# %% [markdown]
# It is the same, and published code often does it this way. That is all the convolution there is in a ViT: one, at the
# door, in which no two windows overlap.
#
# Now the model. `Stack` is the encoder of lecture @transformer, blocks and a final norm. Everything else is in sight:

# %%
class SmallViT(nn.Module):
    def __init__(self, config):
        super().__init__()
        n, d, d_patch = config.n_patches, config.d_model, config.channels * config.patch**2
        self.patch = config.patch
        self.embed, self.head = nn.Linear(d_patch, d), nn.Linear(d, config.n_classes)
        self.class_token = nn.Parameter(0.02 * torch.randn(d))
        self.places = nn.Parameter(0.02 * torch.randn(1 + n, d))
        self.stack = Stack(config)

    def forward(self, images):
        x = self.embed(patchify(images, self.patch))                      # (batch, n, d)
        first = self.class_token.expand(len(x), 1, -1)                    # (batch, 1, d)
        x = torch.cat([first, x], dim=1) + self.places                    # (batch, 1 + n, d)
        return self.head(self.stack(x)[:, 0])                             # (batch, n_classes)

# %%
config = ViTConfig(image_size=8, patch=2, channels=1, n_classes=10,
                   d_model=64, n_layers=2, n_heads=4, d_ff=128)
ours, packaged = SmallViT(config).eval(), ViT(config).eval()
ours.load_state_dict(dict(zip(ours.state_dict(), [
    packaged.state_dict()[name] for name in (
        "class_token", "positions.table", "patches.weight", "patches.bias", "head.weight", "head.bias",
        *(name for name in packaged.state_dict() if name.startswith("stack.")),
    )
], strict=True)))
assert torch.allclose(ours(images[:9]), packaged(images[:9]), atol=1e-5)

# %% [markdown]
# (The last lines carry the package's parameters over by their order.) Same numbers, so from here on we take the
# package's, which can also say where it looked.
#
# > **Check yourself.** (1) Why should there be a class token at all? What else could be handed to the head? (2) How
# > many rows does $P$ have here? (3) Which parameters would not fit if the pictures were 16 × 16, with the same patch?
# > <details><summary>Answers</summary>(1) It is a place to collect things that belongs to nobody. The mean of all rows
# > works about as well, when trained so; that is <i>mean pooling</i>, whose poor record in lecture @bottleneck was about reading
# > <i>before</i> anybody had looked around. (2) 17: sixteen patches and the class token. (3) The positions, and nothing
# > else: no other shape knows n. Assignment @beyond_text asks what to do about it.</details>

# %% [markdown]
# ## Does it read?
#
# First, three heaps. The model learns from one; on the second we look as often as we like, to choose the number of
# steps and so on; the third is for the numbers that we report, and nothing is chosen by it. (Each of us has a weakness
# for good news, and so had this page. While it was tuned, figures of the third heap were looked at. So the heaps were
# drawn again, by a seed that had not been used, the number of steps was settled on the new second heap, and what the
# new third heap said has been left as it is. It is not perfect: some of its pictures were in other heaps before. And
# all heaps are by the same thirteen hands; on a stranger's digits every figure below would be worse.)

# %%
order = torch.randperm(len(images), generator=torch.Generator().manual_seed(12))
normed = (images - images[order[:1200]].mean()) / images[order[:1200]].std()      # by the first heap's numbers
learn, choose, report = order[:1200], order[1200:1400], order[1400:]


def right(model, which, images=normed):
    model.eval()
    with torch.no_grad():
        return (model(images[which]).argmax(dim=-1) == labels[which]).float().mean().item()

# %%
def train(model, which=learn, steps=450, lr=4e-3, images=normed, seed=0):
    generator = torch.Generator().manual_seed(seed)
    optimiser = torch.optim.AdamW(model.parameters(), lr=lr, weight_decay=0.05)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, lr, total_steps=steps, pct_start=0.2)
    model.train()
    for _ in range(steps):
        batch = which[torch.randint(len(which), (64,), generator=generator)]
        loss = F.cross_entropy(model(images[batch]), labels[batch])
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        schedule.step()
    return model

# %%
torch.manual_seed(0)
vit = train(ViT(config))
print(f"learned from {right(vit, learn):.1%}   to choose by {right(vit, choose):.1%}")
print(f"never seen   {right(vit, report):.1%} of {len(report)} pictures")
assert right(vit, report) > 0.94

# %% [markdown]
# A Transformer with not a line changed reads digits, from twelve hundred examples and in about ten seconds. (Started
# from four other seeds, the same program got between 95 and 97 % right. A single run's last digit is chance.)
#
# Impressed? Do not answer before the comparison. *Which of these will do better:* a logistic regression, which weighs
# the 64 pixels and no more; the digit of the nearest picture, which learns nothing at all; a small convolutional
# network?

# %%
def small_cnn():
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(),            # (batch, 16, 8, 8)
        nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(),           # (batch, 32, 8, 8)
        nn.MaxPool2d(2), nn.Flatten(), nn.Dropout(0.3), nn.Linear(32 * 16, 10),
    )


torch.manual_seed(0)
cnn = train(small_cnn(), steps=400)
flat = normed.flatten(1).numpy()                              # (1797, 64)
others = {"regression": LogisticRegression(max_iter=500), "neighbour": KNeighborsClassifier(1)}
accuracy = {name: model.fit(flat[learn], labels[learn]).score(flat[report], labels[report])
            for name, model in others.items()}
accuracy |= {"ViT": right(vit, report), "convolutions": right(cnn, report)}
viz.ranking([(name, round(100 * share, 1)) for name, share in accuracy.items()], "right (%)", low=90, high=100)

# %% [markdown]
# The nearest neighbour, which has no parameters and no idea, is at least as good as our ViT, and so are a few small
# convolutions; the regression is level with it. (With some four hundred test pictures, a difference of less than two
# in a hundred is not much of a difference; see lecture @transformer.) This is not a slip of ours. It is what the paper found on
# its own scale: trained on a million pictures, ViT was a little behind convolutional networks of its size; it took
# fourteen million, or better three hundred million, to come out ahead.
#
# What do the others know that ViT does not? Let us take it away from them.
#
# ## What a convolution is born with
#
# Shuffle the sixteen patches of every picture: in the same way for all pictures, once and for all. Then go further, and
# shuffle all 64 pixels. To you the digits are now unreadable. *For each of the four, say what happens to the accuracy.*

# %%
shuffle, strew = (torch.randperm(n, generator=torch.Generator().manual_seed(5)) for n in (16, 64))
shuffled = unpatchify(patchify(normed, 2)[:, shuffle], 2, 8, 8)           # (1797, 1, 8, 8)  patches
strewn = normed.flatten(1)[:, strew].view(-1, 1, 8, 8)                    # (1797, 1, 8, 8)  pixels
worlds = {"as they are": normed, "patches shuffled": shuffled, "pixels shuffled": strewn}
figures.image_row([world[i, 0] - normed.min() for world in worlds.values() for i in (3, 15)],
             [f"a {labels[i]}, {name}" for name in ("plain", "patches", "pixels") for i in (3, 15)])

# %%
shares = {"as they are": accuracy}
for world, x in list(worlds.items())[1:]:
    torch.manual_seed(0)
    shares[world] = {"convolutions": right(train(small_cnn(), steps=400, images=x), report, x)}
    for name, model in others.items():
        fitted = model.fit(x[learn].flatten(1).numpy(), labels[learn])
        shares[world][name] = fitted.score(x[report].flatten(1).numpy(), labels[report])
for world, share in shares.items():
    print(f"{world:>17}:", {name: f"{share[name]:.1%}" for name in ("convolutions", *others)})
plain, pixelwise = shares["as they are"], shares["pixels shuffled"]
assert pixelwise["neighbour"] == plain["neighbour"]
assert pixelwise["convolutions"] < plain["convolutions"] - 0.005

# %% [markdown]
# The regression and the neighbour do not notice: a sum over pixels, or a distance, is the same in any order. The
# convolutions make about twice as many mistakes as before. They are built on the assumption that what belongs together
# lies side by side, and that a stroke is a stroke wherever it stands. In a shuffled picture that is false. (With whole
# patches shuffled, pairs of pixels stay together; on this page it saves them next to nothing. And some ten
# mistakes in four hundred are still few: their last layer sees the whole picture, in any order.)
#
# And the ViT? There is no need to train it. Shuffle its positions in the same way, and every row that goes into the
# stack is the same row as before; only the order of the rows has changed, and attention does not care about order
# (lecture @self_attention). So for every ViT that reads pictures there is one, exactly as good, that reads them shuffled:

# %%
torch.manual_seed(0)
moved = ViT(config)
moved.load_state_dict(vit.state_dict())
with torch.no_grad():
    moved.positions.table[1:] = vit.positions.table[1:][shuffle]          # the class token keeps its own
    same = torch.allclose(moved.eval()(shuffled[report]), vit(normed[report]), atol=1e-3)
print("the same logits:", same)
assert same

# %% [markdown]
# Since its positions start as random numbers, neither of the two is harder to find. (Its patches must stay whole: that
# four pixels belong together, and that all patches deserve the same matrix, is what little a ViT is born with.) A ViT
# does not know that a picture is flat. It does not know that patch 5 lies below patch 1. All of this it has to find out
# from examples, and that is what the millions of pictures are for. What is not built in must be learned; what is built
# in cannot be unlearned. With few pictures the first hurts more, with very many the second.
#
# Does it really find out? Take the positions away altogether, and what is left is a bag of patches.

# %%
torch.manual_seed(0)
bag = train(ViT(replace(config, positions="none")), steps=200)
print(f"with positions {right(vit, report):.1%}, without {right(bag, report):.1%}")
assert right(bag, report) < 0.85

# %% [markdown]
# Which patches there are, without where, is good for about two digits in three (after 200 steps in place of 450; after
# 450 it is a few more). The rest is geometry.
#
# And how hungry is it? A tenth of the examples, for everyone:

# %%
few = learn[:120]
torch.manual_seed(0)
hungry = {"ViT": right(train(ViT(config), few, steps=200), report)}
torch.manual_seed(0)
hungry["convolutions"] = right(train(small_cnn(), few, steps=200), report)
for name, model in others.items():
    hungry[name] = model.fit(flat[few], labels[few]).score(flat[report], labels[report])
viz.grouped_bars({"1,200 pictures": accuracy, "120 pictures": {name: hungry[name] for name in accuracy}})

# %%
lost = {name: accuracy[name] - hungry[name] for name in accuracy}
print({name: f"−{share:.0%}" for name, share in lost.items()})
assert lost["ViT"] > lost["convolutions"] and lost["ViT"] > lost["neighbour"]

# %% [markdown]
# The ViT loses most. (Large ViTs are therefore trained once, on as many pictures as can be had, and then adapted; and
# with few pictures one helps by showing each of them shifted, turned, cropped, which is a way of *telling* the model
# what a convolution is born with.)
#
# ## What it has found out
#
# The trained model's positions are sixteen vectors, one for each place in the grid. Compare each with all the others,
# by cosine. *What do you expect to see:* are the positions of two neighbours more alike than those of two corners?

# %%
places = F.normalize(vit.positions.table[1:].detach(), dim=-1)            # (16, d)
cosines = places @ places.mT                                              # (16, 16)
figures.position_maps(cosines, side=4, title="cosines between the learned positions")
grid = torch.stack(torch.meshgrid(torch.arange(4), torch.arange(4), indexing="ij"), dim=-1).view(16, 2)
apart = (grid[:, None] - grid).abs().sum(dim=-1)                          # (16, 16)  steps from place to place
mean_at = {steps: cosines[apart == steps].mean().item() for steps in range(1, 7)}
print({f"{steps} apart": f"{cosine:.2f}" for steps, cosine in mean_at.items()})
assert mean_at[1] < 0.2 and mean_at[2] < 0.2

# %% [markdown]
# (One small map for each place, which has the dot; the darker, the more alike.) Each place resembles itself, and its
# neighbours no more than others: sixteen names, and no map. (Six apart are only the two pairs of opposite corners.) In
# the paper's figure 7 one sees rows and columns with the naked eye, in a model with 49 places that was trained on many
# millions of pictures. We have 16 places and 64 dimensions, so that each place can have a direction to itself, and
# twelve hundred pictures give no reason to do otherwise. The geometry without which it would read two digits in three must be elsewhere, in what the
# layers do with the names. A nice figure in a paper is a finding about that model.
#
# Now, where does it look? The class token's row of weights has a number for each patch. Two layers, four heads each,
# both counted from 0; the line in the picture is the digit's outline. *Before you move the sliders:* to tell a 3 from
# an 8, where would you look?

# %%
with torch.no_grad():
    logits, weights = vit(normed[report], with_weights=True)              # (397, 10), (397, layers, heads, 17, 17)
example = int((labels[report] == 3).nonzero()[0])
picture = images[report][example, 0]


def look(layer, head):
    table = weights[example, layer, head, 0, 1:].view(4, 4)               # the class token's row, without itself
    return figures.attention_on_image(picture, table, title=f"layer {layer}, head {head} (%)")


viz.explore(look, layer=[0, 1], head=[0, 1, 2, 3], start={"layer": 1, "head": 0})

# %% [markdown]
# Heads differ, some look where the ink is and some at the paper, and the numbers rarely make a story. There is a
# deeper reason for caution than untidiness: in layer 1, the row that is called "patch 5" is no longer patch 5. It is
# what layer 0 has made of all patches, at that place.
#
# *Attention rollout* (Abnar and Zuidema 2020) follows the mixing down to the pixels. Each layer's table is averaged
# over its heads, half of each row is what the residual path has kept, and the layers are multiplied:
#
# $$R = \tfrac12 (A_{L-1} + I) \cdots \tfrac12 (A_0 + I)$$

# %%
rolled = attention_rollout(weights)[:, 0, 1:].view(-1, 4, 4)              # (397, 4, 4)
last = weights[:, -1].mean(dim=1)[:, 0, 1:].view(-1, 4, 4)                # the last layer, mean over heads
some = [int((labels[report] == digit).nonzero()[0]) for digit in (3, 8, 0)]
figures.attention_on_images([images[report][i, 0] for i in some],
            {"last layer": [last[i] for i in some], "rollout": [rolled[i] for i in some]},
            [f"a {labels[report][i]}" for i in some])

# %% [markdown]
# Pretty. Is it true? A picture of weights makes a claim, *these patches mattered*, and a claim can be tested. Take away
# the four patches to which rollout gives most: put in their place what stands there on average. If they mattered,
# accuracy must fall by more than for four patches at random, or for the four with least.

# %%
rows = patchify(normed, 2)                                                # (1797, 16, 4)
usual = rows[learn].mean(dim=0)                                           # (16, 4)  what stands there on average


def without(scores):
    taken = scores.flatten(1).topk(4, dim=1).indices                      # (397, 4)
    gone = torch.zeros(len(taken), 16).scatter(1, taken, 1.0).bool()      # (397, 16)
    x = torch.where(gone[..., None], usual, rows[report])
    with torch.no_grad():
        return (vit(unpatchify(x, 2, 8, 8)).argmax(-1) == labels[report]).float().mean().item()


chance = [without(torch.rand(len(report), 16, generator=torch.Generator().manual_seed(i))) for i in range(5)]
variation = (rows[report] - usual).square().sum(dim=-1)                   # (397, 16)  how unusual each patch is
left = {"rollout's most": without(rolled), "rollout's least": without(-rolled),
        "any four": sum(chance) / 5, "the most unusual": without(variation)}
print("right with four patches taken away:", {name: f"{share:.0%}" for name, share in left.items()})

# %%
assert left["rollout's most"] < left["rollout's least"] - 0.1
assert left["the most unusual"] < left["rollout's most"] + 0.1, "pixels alone know as much"

# %% [markdown]
# The patches that rollout points at do matter more than those that it does not. So far, good. Now look at the other two
# numbers. Four patches at random are the yardstick, and the last one is sobering: choose the four patches that differ
# most from what usually stands there, which needs no model at all, and at least as much is lost. A map that lies
# on the ink looks like insight, and a ruler would have drawn it. (Rollout knows the weights and nothing of the values,
# the feed-forward networks, the signs; lecture @many_heads said the same of heads.) Before you believe such a map, ask what a
# dull method would have shown.

# %% [markdown]
# ## A second of singing
#
# Now close your eyes. Sound comes as a row of numbers, too, the pressure at the ear, 8,000 or 16,000 of them a second.
# It is one long row, and nobody has put spaces between the words. Nor has anybody written down what is said: recordings
# are cheap, transcripts are not. Can a Transformer learn something from sound *alone*?
#
# We need sound of which we know everything, to see what was learned. So we make it: a voice sings vowel after vowel,
# each for one or two tenths of a second, on one pitch. A voice is a sum of *harmonics*, whole multiples of the pitch. The
# mouth decides how loud each of them is, by its resonances, the *formants*; which vowel you hear lies in the formants,
# and only there. Every sound has a pitch of its own and a head of its own size, which moves all formants.

# %%
import math
from itertools import pairwise

from IPython.display import Audio

from attncourse.beyond_text import (
    FeatureEncoder,
    Quantizer,
    Wav2Vec2,
    Wav2Vec2Config,
    contrastive_loss,
    count_frames,
    diversity_loss,
    sample_negatives,
    span_mask,
)
from attncourse.data.vowels import FORMANTS, RATE, vowels

# %%
generator = torch.Generator().manual_seed(1)
heard, unheard = (vowels(n, noise=0.1, generator=generator) for n in (400, 200))
waveform = heard.waveform[0]                                              # (8000,)
changes = [0, *(1 + (heard.vowel[0, 1:] != heard.vowel[0, :-1]).nonzero()[:, 0]).tolist(), RATE]
spoken = [(start / RATE, end / RATE, list(FORMANTS)[heard.vowel[0, start]])
          for start, end in pairwise(changes)]
print(f"a voice at {heard.pitch[0]:.0f} hertz:", ", ".join(word for *_, word in spoken))
Audio(waveform.numpy(), rate=RATE)

# %%
def spectra(waveform):                                                    # 25 ms at a time, every 20 ms
    frames = waveform.unfold(-1, 200, 160) * torch.hann_window(200)       # (..., n_frames, 200)
    return (torch.fft.rfft(frames).abs().square() + 0.01).log()           # (..., n_frames, 101)


figures.waveform_and_spectrogram(waveform, spectra(waveform), spoken, RATE, hop=160, title="one second of a voice that was made")

# %% [markdown]
# Each vowel is named by an English word that has it. Below the waveform you see what an engineer would look at: how
# loud each frequency is, in short pieces of sound. The dark band lies at the lowest formants, and moves when the vowel
# changes. (The fine stripes in it are harmonics. The higher formants are there as well, and faint: a voice has little
# to give so far up.)
#
# *wav2vec 2.0* (Baevski et al. 2020) is not given this picture. It starts from the waveform, and convolutions make
# **frames** of it, each from a short piece. How short? One can work it out from seven kernels and strides, or ask
# autograd which samples a frame depends on.

# %%
PAPER = {"kernels": (10, 3, 3, 3, 3, 2, 2), "strides": (5, 2, 2, 2, 2, 2, 2)}
encoder, second = FeatureEncoder(8, **PAPER), torch.randn(1, 16000, requires_grad=True)
frames = encoder(second)                                                  # (1, 49, 8)
reaches = []
for i in (20, 21):
    [gradient] = torch.autograd.grad(frames[0, i].sum(), second, retain_graph=True)
    reaches.append(gradient[0].nonzero()[[0, -1], 0].tolist())            # the first sample and the last
(start, end), (later, _) = reaches
print(f"{frames.shape[1]} frames a second, each from {1000 * (end - start + 1) / 16000:.0f} ms,",
      f"{1000 * (later - start) / 16000:.0f} ms after the one before")
assert end - start + 1 == 400 and later - start == 320 and count_frames(16000, **PAPER) == 49

# %% [markdown]
# Forty-nine rows for a second: now it is a sequence like any other. For our sounds, at half the rate, two convolutions
# do: kernels of 80 and 4 samples, strides of 40 and 4, which comes to 25 and 20 milliseconds as well.
#
# ## Hide and guess
#
# What is there to be learned from, without labels? From text one hides a word and has it guessed (lecture @transformer). Do the
# same: hide some frames and have them guessed. But what does it mean to guess a *frame*? A word is right or wrong. A
# frame is a vector of real numbers, much of which is chance; a model that must hit it exactly will spend its strength
# on the noise. So the question is made easier, and better: *here are eleven frames of this sound. One of them was
# hidden at this place. Which?*

# %%
figures.wav2vec_diagram()

# %% [markdown]
# Follow it from below. The waveform becomes frames $z$. A span of them is hidden, each replaced by one and the same
# learned vector. Through the Transformer, every place looks at all others, and at the hidden places comes out a guess
# $c_t$. What was hidden is the **target** $q_t$, and a few frames hidden elsewhere in the same sound are the
# **negatives**. (What the codebook at the right is for comes last; until then take $q_t$ for the frame itself.) The
# loss is the cross entropy of picking the right one, by cosine:
#
# $$\mathcal L_t = -\log \frac{\exp\bigl(\cos(c_t, q_t)/\kappa\bigr)}
# {\sum_{\tilde q} \exp\bigl(\cos(c_t, \tilde q)/\kappa\bigr)}, \qquad \tilde q \text{ over } q_t
# \text{ and the negatives}$$
#
# It is a lookup again, a query among candidates, and $\kappa$ is the temperature of lecture @lookup. Cosines lie between −1
# and 1. *Before you run it:* with ten negatives and $\kappa = 1$, how low can the loss get, for a perfect guess?

# %%
c = torch.eye(2)[:1]                                                      # (1, 2)
for kappa in (1.0, 0.3, 0.1):
    best = contrastive_loss(c, c, -c.expand(1, 10, 2), kappa).item()      # all negatives point the other way
    print(f"κ = {kappa}: at best {best:.5f}, by guessing {math.log(11):.2f}")
twice = contrastive_loss(c, c, torch.cat([c[None], -c.expand(1, 9, 2)], 1), 0.1).item()
print(f"with the right one among the negatives: at best {twice:.2f} = log 2")
assert abs(twice - math.log(2)) < 1e-3

# %% [markdown]
# At $\kappa = 1$ a perfect guess still pays 0.86, because no cosine can be far enough above another; at 0.1, the paper's
# choice, it pays nothing worth mentioning. The last line is a mistake that is easily made: who draws negatives from
# *all* hidden frames draws the right one now and then, and asks the model to tell a thing from itself.
#
# How much should be hidden? wav2vec 2.0 lets a span begin at a share $p = 0.065$ of the frames, and each hides
# $M = 10$. Spans may overlap. *How much of the sound is hidden: 6.5 %, 65 %, or what?* A frame stays visible if none of
# the ten places at which a span could reach it is a start:

# %%
long = span_mask(1, 100_000, p=0.065, span=10, generator=torch.Generator().manual_seed(0))
share = 1 - (1 - 0.065) ** 10
print(f"expected {share:.1%}, sampled {long.float().mean():.1%}")
assert abs(long.float().mean().item() - share) < 0.01

# %%
def spans(p, span):
    mask = span_mask(4, 49, p, span, torch.Generator().manual_seed(0))    # (4, 49)
    return figures.span_frame(mask, 1 - (1 - p) ** span, f"p = {p}, spans of {span}")


viz.explore(spans, p=[0.02, 0.065, 0.12, 0.2, 0.5], span=[1, 3, 5, 10], start={"p": 0.065, "span": 10})

# %% [markdown]
# Set the span to 1 and raise $p$: the same share can be hidden in single frames. But a single frame lies between two
# visible ones that sound nearly like it, and the mean of the two is a good guess that requires no understanding. Spans
# must be longer than what can be bridged by drawing a line. In our sounds a vowel lasts 4 to 10 frames; we take spans
# of 3.

# %% [markdown]
# ## The game
#
# The model is the package's `Wav2Vec2`, with one thing left out for now: the paper makes *codes* of its targets, and
# ours are a matrix times the frame. (And positions are RoPE. When this page was tried with sinusoids, the model took
# far longer to begin.)

# %%
def listener(seed):
    torch.manual_seed(seed)
    config = Wav2Vec2Config(d_model=64, n_layers=2, n_heads=4, d_ff=128, dropout=0.0, positions="rope",
                            d_feature=64, kernels=(80, 4), strides=(40, 4), d_code=64)
    model = Wav2Vec2(config)
    model.target = nn.Linear(64, 64)
    return model


def one_sound(mask, generator):                               # negatives from the same sound
    return sample_negatives(mask, 10, generator)


def any_sound(mask, generator):                               # negatives from the whole batch
    return sample_negatives(mask[mask][None], 10, generator)

# %%
def play(model, waveform, draw, generator):
    z = model.frames(waveform)                                            # (batch, 49, 64)
    mask = span_mask(len(z), z.shape[1], p=0.12, span=3, generator=generator)
    c = model.guess(model.contextualise(z, mask=mask)[mask])              # (n_hidden, 64)
    q = model.target(z[mask])                                             # (n_hidden, 64)
    return contrastive_loss(c, q, q[draw(mask, generator)])

# %% [markdown]
# Whom should a frame be told apart from? From the other frames of its sound, says the paper. Somebody proposes to draw
# from the whole batch: there are more of them, and of many voices. It sounds reasonable. Let us try both. (The paper's
# game gets thirty steps of the other one first. A model that has found nothing yet sits at the loss of guessing for a
# hundred or two hundred steps, and this gets it moving.)
#
# *Write down two predictions.* Each sound has one pitch throughout, and its vowels change. What will the one model have
# learned, the vowel or the pitch? And the other?

# %%
def hear(seed, steps, easy, lr=4e-3):
    model, generator = listener(seed), torch.Generator().manual_seed(seed)
    optimiser = torch.optim.Adam(model.parameters(), lr, betas=(0.9, 0.98))
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, lr, total_steps=steps, pct_start=0.2)
    losses = []
    for step in range(steps):
        batch = torch.randint(len(heard.waveform), (24,), generator=generator)
        draw = any_sound if step < easy else one_sound
        loss = play(model, heard.waveform[batch], draw, generator)
        optimiser.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        schedule.step()
        losses.append(loss.item())
    return model.eval(), losses

# %%
models, curves = {"untrained": listener(0).eval()}, {}
for name, steps, easy in (("any sound", 100, 100), ("one sound", 360, 30)):
    models[name], curves[name] = hear(0, steps, easy)
guessing = [math.log(11)] * 360
padded = {name: losses + [math.nan] * (360 - len(losses)) for name, losses in curves.items()}
viz.curves(padded | {"guessing": guessing}, y_name="contrastive loss (nats)",
           alt=f"Loss against step. Any sound: {curves['any sound'][-1]:.2f} after 100 steps. One sound: "
               f"{curves['one sound'][-1]:.2f} after 360. Guessing: {math.log(11):.2f}.")

# %% [markdown]
# With negatives from any sound the loss falls at once, and deep. With negatives from the same sound it stays for a good
# while at the loss of guessing, and then comes down slowly. So the first is the better idea?
#
# ## What was learned
#
# A loss says how well a game is played, and the game itself is of no use to anybody. The usual way to ask what a model
# knows is a **linear probe**: the model is frozen, its outputs are taken for what they are, and a linear map is fitted
# on top of them to something that we care about. What a *linear* map can read lies there openly. Two questions: which
# vowel (of five) is it, in this frame? And how high is the pitch?

# %%
centre = 100 + 160 * torch.arange(49)                                     # (49,)  the middle sample of each frame


def fit(x, y):                                                            # least squares, with a little ridge
    x = F.pad(x.flatten(0, 1), (0, 1), value=1.0).double()                # (n, d + 1)
    stays = 1e-3 * len(x) * torch.eye(x.shape[1])
    return torch.linalg.solve(x.mT @ x + stays, x.mT @ y.flatten(0, 1).double())


def read(x, weight):
    return F.pad(x, (0, 1), value=1.0).double() @ weight                  # (sounds, 49, answers)

# %%
def probe(inputs, outputs, seed):
    keep = torch.randperm(400, generator=torch.Generator().manual_seed(seed))[:300]       # of the sounds
    mean, std = inputs.mean((0, 1)), inputs.std((0, 1)) + 1e-6
    a, b = (inputs[keep] - mean) / std, (outputs - mean) / std            # (sounds, 49, d)
    said = read(b, fit(a, F.one_hot(heard.vowel[keep][:, centre])))       # (200, 49, 5)
    height = heard.pitch[keep].log().view(-1, 1, 1).expand(-1, 49, 1)
    truth = unheard.pitch.log().view(-1, 1, 1)
    unexplained = (read(b, fit(a, height)) - truth).square().mean() / truth.var()
    return (said.argmax(-1) == unheard.vowel[:, centre]).double().mean().item(), 1 - unexplained.item()

# %%
known = {"log spectra": [spectra(sounds.waveform) for sounds in (heard, unheard)]}
with torch.no_grad():
    for name, model in models.items():
        known[name] = [model.features(sounds.waveform) for sounds in (heard, unheard)]    # (sounds, 49, 64)
vowel, pitch = {}, {}
for name, (inputs, outputs) in known.items():
    vowel[name], pitch[name] = zip(*(probe(inputs, outputs, seed) for seed in range(4)), strict=True)
viz.strip_plot(vowel, "share of frames whose vowel a linear probe reads (four probes each)")
viz.strip_plot(pitch, "share of the pitch's variance that a linear probe explains")

# %%
vowel, pitch = ({name: sum(v) / len(v) for name, v in each.items()} for each in (vowel, pitch))
print("vowel:", {name: f"{share:.0%}" for name, share in vowel.items()})
print("pitch:", {name: f"{share:.0%}" for name, share in pitch.items()})
assert pitch["any sound"] > 0.9 and vowel["any sound"] < vowel["untrained"] + 0.1
assert vowel["one sound"] > vowel["untrained"] + 0.2 and pitch["one sound"] < 0.5
assert vowel["log spectra"] > vowel["one sound"], "an engineer still does better"

# %% [markdown]
# Read the two pictures together, from the second row down. (The four marks of a row are probes fitted to different
# three quarters of the sounds; all are asked about sounds that neither model nor probe has heard.) The untrained
# network shows little of either; guessing among five vowels would be right in 20 % of the frames. With negatives from
# any sound the model knows the pitch nearly perfectly, and of the vowels no more than before. It is what you would
# have done, too: to tell a frame from those of other singers, listen to the voice. With negatives from the same sound,
# pitch is of no use, for all candidates share it; and now, with no label anywhere, about two vowels in three can be
# read off. And the better loss belongs to the model that knows nothing of vowels.
#
# **A contrastive model learns what tells the target from its negatives, and nothing obliges it to keep the rest.** When
# you read of a new method of this kind, look first for where its negatives come from.
#
# And the first row? Log spectra, which an engineer designed, still beat our model at vowels. It had some fifteen seconds
# and 400 sounds to find out by itself, from bare samples, that frequencies are worth looking at. The paper's models had
# up to fifty-three thousand hours. What they win is not that some probe is better: fine-tuned on *ten minutes* of
# transcribed speech, they recognise it.

# %% [markdown]
# ## Why a codebook
#
# One thing was left out. The paper does not compare guesses with frames but with **codes**: each frame is replaced by
# the best matching entry of a small table, the codebook, which is learned as well. (In the paper there are two tables
# of 320 entries, and an entry of each is taken.) What for? A frame is full of detail that is easy to match and worth
# nothing, this microphone, this breath. In the choice among a few hundred entries there is little room for it, and in
# the paper's ablation continuous targets did worse.
#
# To choose is not differentiable. So noise is added to the scores (Gumbel's, so that each entry wins with its softmax
# probability), the winner is taken, and the gradient is computed as if softmax had been used. Let us watch it where we
# know the answer: points of eight kinds, seen twice with different noise, a codebook of 16 entries, and nobody says
# which kinds there are.

# %%
kinds = 2 * torch.randn(8, 16, generator=torch.Generator().manual_seed(0))


def two_views(n, generator):
    kind = torch.randint(8, (n,), generator=generator)
    return (kinds[kind] + 0.5 * torch.randn(n, 16, generator=generator) for _ in range(2))


def code_loss(quantizer, guess, alpha, generator):
    a, b = two_views(128, generator)                                      # (128, 16) each
    codes, probabilities = quantizer(a, generator)                        # (128, 16), (128, 1, 16)
    negatives = codes[sample_negatives(torch.ones(1, 128).bool(), 10, generator)]
    return contrastive_loss(guess(b), codes, negatives) + alpha * diversity_loss(probabilities)

# %%
def learn_codes(alpha, favourite=0.0, steps=300):
    torch.manual_seed(0)
    generator, quantizer = torch.Generator().manual_seed(0), Quantizer(16, 16, n_groups=1, n_entries=16)
    quantizer.scores.bias.data[0] = favourite                             # one entry may start as the favourite
    guess = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 16))
    optimiser = torch.optim.Adam([*quantizer.parameters(), *guess.parameters()], lr=5e-3)
    for step in range(steps):
        quantizer.temperature = 2 * 0.25 ** (step / steps)                # softer at first
        loss = code_loss(quantizer, guess, alpha, generator)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    return quantizer

# %%
def used(quantizer):
    a, _ = two_views(4000, torch.Generator().manual_seed(1))
    return F.one_hot(quantizer.scores(a).argmax(dim=-1), 16).float().mean(dim=0)          # (16,)


runs = {"fair start": used(learn_codes(0.0)), "a favourite": used(learn_codes(0.0, 30.0)),
        "a favourite, diversity": used(learn_codes(100.0, 30.0))}
figures.codes_used(runs)
entropy = {name: math.exp(-(s[s > 0] * s[s > 0].log()).sum().item()) for name, s in runs.items()}
print({name: f"{e:.1f} entries in use" for name, e in entropy.items()})
assert entropy["a favourite"] < entropy["fair start"] - 1
assert entropy["a favourite"] < entropy["a favourite, diversity"] - 0.8

# %% [markdown]
# (The number printed is the exponential of the entropy: how many entries there would be, if all were used alike.) From a
# fair start it finds the eight kinds by itself, with an entry or so for each. In the middle one entry was ahead of the
# others from the beginning. It wins too often, the others are seldom chosen and seldom get better, and several kinds
# share one code for good: **collapse**, here halfway. (If it is complete, all targets are one code, and nothing can be
# told from anything.) The third run adds the *diversity loss*, the negative entropy of how often the entries are used
# on average, which is lowest when all are used alike. It pulls others back into the game. (Part of the way: how far it
# gets hangs on where the codes started. Its weight is 100 here, where the paper has 0.1, because it must undo a start
# that was made bad on purpose.)
#
# With codes in the loop our small listener takes several times as long to get going, longer than this page should
# run. (`Wav2Vec2.loss` is the whole game, with codes, if you would like to let it run over lunch.)
#
# > **In the papers.** One deck ends with the names of these two models, and leaves the rest to the papers. If you open
# > them, look at the first figure of each, where one thing is easily misread. In that of ViT the "extra learnable
# > embedding" in front of the patches is the class token, and it has a position, numbered 0. In that of wav2vec 2.0 the
# > codes are made of what stands *below* the mask: what is hidden from the Transformer is not hidden from the targets.

# %% [markdown]
# > **Check yourself.** (1) A second of sound at 16 kHz, wav2vec's frames: how many weights has one table? And for a
# > minute? (2) You draw 100 negatives in place of 10. What happens to the loss of a model that only guesses? (3) A
# > friend trains a contrastive model on photographs, two crops of one picture against crops of other pictures, and
# > finds that it knows colours well and shapes badly. Explain, and suggest something.
# > <details><summary>Answers</summary>(1) 49² = 2,401; 2,999² is nine million. (2) It rises, from log 11 to log 101:
# > losses with different numbers of negatives cannot be compared. (3) Two crops of a picture share their colours, and
# > colours tell them from other pictures. So colour is all that is needed. Change the colours of each crop at random:
# > what is to be ignored must be made useless. (It is what such methods do.)</details>
#
# ## What you have
#
# A picture became 17 rows, a second of sound 49, and the machine of lecture @transformer did not notice the difference. What
# changed was the door. Behind it the same two questions came up in both halves of this lecture. What does the model
# know before it has seen anything? Less than its rivals, and it pays with examples. And what does the task oblige it
# to learn? What the loss needs, no less and no more. [Lecture @errata_lab](@errata_lab) turns that second question on
# ourselves: what does a falling loss oblige a *program* to get right?
#
# A GPU changes nothing on this page but the waiting; the models in the papers could not be trained without many.
#
# **In the package.** `attncourse.beyond_text` has `patchify`, `ViT`, `attention_rollout`, `FeatureEncoder`,
# `span_mask`, `sample_negatives`, `contrastive_loss`, `Quantizer`, `diversity_loss` and `Wav2Vec2`;
# `attncourse.data.vowels` makes the sounds.
#
# **Read next.** Dosovitskiy et al., *An image is worth 16x16 words* (2021): section 3 is two pages, section 4.3 is about
# the hunger for pictures. Abnar and Zuidema, *Quantifying attention flow in Transformers* (2020), section 3. Baevski et
# al., *wav2vec 2.0* (2020): sections 2 and 3 are what you have played. Van den Oord et al., *Representation learning
# with contrastive predictive coding* (2018), where the loss comes from.
