# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3 (ipykernel)
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Lecture @training · Training an encoder–decoder on a GPU
#
# *About 55 minutes. You need [the Transformer](@transformer), what [attention does in translation](@cross_attention),
# and why [deep stacks want a warm-up](@deep_stacks).*
#
# After this lecture you can
# * turn two files of sentences into batches of a fixed number of **tokens**;
# * write the **training loop** of an encoder–decoder, and say what every line is for;
# * explain **label smoothing**, **AdamW**, **warm-up** and **gradient clipping**, and choose a learning rate by a
#   sweep;
# * predict from a data sheet how long a step takes on a GPU, how much memory it needs, and what limits it;
# * train in 16 bits, on one GPU or several, and show that the gradient is still the right one;
# * stop a run and resume it **exactly**.
#
# Suppose that two people get the same Transformer and the 29,000 captions of **Multi30k**, German and English
# ([@elliott2016]). One comes back after a day with a model that drops half of every sentence, the other after an hour with
# a good one. Neither has changed the architecture. This lecture is about everything else that they decided.
#
# The device is chosen once, here. Each cell below runs on the CPU, and on a GPU (CUDA, or Apple's Metal) where there is
# one, and shows what it measures there. What the page says about GPUs that you do not have is computed from their data
# sheets and marked as a **prediction**, or was measured once on an H200, and says so.

# %% tags=["hide-input"]
import os

os.environ["KINETO_LOG_LEVEL"] = "99"  # torch's profiler would write log lines into the page

try:
    from attncourse import viz

    from . import figures
except ModuleNotFoundError:
    raise ImportError(
        "This page needs the attncourse package: open it with `make lab` in the course's "
        "folder, or choose a kernel of the environment in which you installed the course."
    ) from None

import inspect
import math
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from copy import deepcopy
from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import checkpoint

from attncourse.counting import (
    count_parameters,
    count_training_flops,
    preset,
    saved_activation_bytes,
)
from attncourse.data import PAD, Tokenizer, collate, encode_pairs, number_words, read_parallel
from attncourse.data.batches import batch_by_tokens, epoch_batches
from attncourse.training import hardware
from attncourse.training.evaluation import mean_loss
from attncourse.training.hardware import CHIPS, best_device, best_precision
from attncourse.training.recipe import Recipe, cosine, inverse_sqrt
from attncourse.training.trainer import NonFiniteLoss, train
from attncourse.transformer import EncoderDecoder, TransformerConfig
from attncourse_lessons import results

torch.set_num_threads(1)  # models as small as these gain nothing from a second thread

# %% [raw] slide
# ## Two people, the same model, the same pairs
# One comes back after a day with a model that drops half of every sentence, the other after an hour with a good one.
#
# **Everything else** that they decided:
#
# - data, batches, loss
# - optimiser, schedule, learning rate
# - the GPU's time, memory, number formats
# - several GPUs; what to do when it breaks

# %%
device = best_device()
print(f"device: {device.type}, and its best number format: {best_precision(device)}")

# %% [markdown]
# ## Data: from two files to batches of tokens
#
# A parallel corpus is two text files. Line 17 of the one is the translation of line 17 of the other. We write such a
# pair of files, German and English number words, and read it back. Your own files are read in the same way.

# %%
drawn = number_words("de", "en", train=9_000, test=0, max_items=2, dates=0, seed=0).train
folder = tempfile.TemporaryDirectory()
german_file, english_file = Path(folder.name, "numbers.de"), Path(folder.name, "numbers.en")
german_file.write_text("\n".join(pair.source for pair in drawn), encoding="utf-8")
english_file.write_text("\n".join(pair.target for pair in drawn), encoding="utf-8")

pairs = read_parallel(german_file, english_file)
random.Random(0).shuffle(pairs)                           # short lists were drawn first
validation, training = pairs[:1_000], pairs[1_000:]
print(len(training), "pairs to train on, for example", training[0])

# %% [raw] slide
# ## Data: from two files to batches
# Line 17 of one file is the translation of line 17 of the other. **Shuffle before you split**, with a seed.
#
# **Byte-pair encoding**: count which two neighbours occur together most often, merge them everywhere, repeat.
#
# > **Guess first.** Will *einundzwanzig* become one token, three, or something that no grammar would draw? And *hundertmeterlauf*?

# %% [markdown] teaches="subwords"
# We shuffle **before** we split, with a seed. The generator never repeats a list, so the short lists are used up early,
# and a split in the order of drawing would put most of them on one side.
#
# ### Byte-pair encoding: tokens between letters and words
#
# A vocabulary of whole words fails on the first new one, and German builds new ones all day. Single letters make
# sequences long. **Byte-pair encoding** (BPE, [@sennrich2016]) finds **subword tokens** in between. Start with the
# smallest units, count which two neighbours occur together most often, and merge these two everywhere. Repeat.
#
# Which units should it start with? We take **bytes**: every text in the world is a sequence of the same 256.

# %%
def count_neighbours(cut, counts):
    found = Counter()
    for word, pieces in cut.items():
        for pair in pairwise(pieces):
            found[pair] += counts[word]                   # a frequent word counts often
    return found


def merge(pieces, pair):
    merged = []
    for piece in pieces:
        if merged and (merged[-1], piece) == pair:
            merged[-1] += piece
        else:
            merged.append(piece)
    return merged


counts = Counter(word for pair in training for word in pair.source.replace(",", "").split())
cut = {word: [bytes([byte]) for byte in word.encode()] for word in counts}
merges = []
for _ in range(60):
    found = count_neighbours(cut, counts)
    merges.append(max(found, key=found.get))
    cut = {word: merge(pieces, merges[-1]) for word, pieces in cut.items()}
print(*[(left + right).decode(errors="replace") for left, right in merges[:12]])

# %% [markdown]
# To encode a new word, apply the merges to its bytes in the order in which they were learned. *Guess, then move the
# slider:* will *einundzwanzig* become one token, three, or something that no grammar would draw? And
# *hundertmeterlauf*, a hundred-metre race, whose second half stands in no number word?

# %%
def encode_word(word, n_merges):
    pieces = [bytes([byte]) for byte in word.encode()]
    for pair in merges[:n_merges]:
        pieces = merge(pieces, pair)
    return [piece.decode(errors="backslashreplace") for piece in pieces]


def draw_pieces(merges):
    words = ("einundzwanzig", "siebenhundertdrei", "zwölf", "hundertmeterlauf", "5 €")
    cuts = {word: encode_word(word, merges) for word in words}
    return figures.pieces_frame(cuts, f"after {merges} merges")


viz.explore(draw_pieces, merges=[0, 2, 5, 10, 20, 30, 40, 60], start={"merges": 10})
#| caption: Byte-pair encoding: words after more and more merges (bytes that are no letter by
#|   themselves as numbers).
#| label: byte-pairs

# %% [raw] slide
# ## Move the number of merges
# {figure}

# %% [markdown]
# The tokens follow frequency and nothing else. After 60 merges *einundzwanzig* is *ein* and *undzwanzig*, which no grammar
# would draw, and *hundertmeterlauf* has the *hundert* that it shares with numbers. Rarer words such as *zwölf* remain
# several tokens, and what the training text never showed (*meterlauf*, the euro sign) falls back to short tokens, in the
# end to single bytes. **Nothing is unknown.** Compare the package's `Tokenizer`, which starts with the *characters* of its training text:

# %%
german = Tokenizer.train((pair.source for pair in training), size=112)
english = Tokenizer.train((pair.target for pair in training), size=112)
print(german.pieces("zwölf, einundzwanzig"))
print(german.pieces("5 € für Äpfel"))

# %% [raw] slide
# ## Nothing is unknown, with bytes
# Characters instead of bytes:
#
# {print}
# . . .
# Merges are **learned**: train them on the training set alone. If the test set is among the text, its sentences become shorter and easier, and no score says so.

# %% [markdown]
# A character that it never saw becomes `<unk>`, and its meaning is lost. GPT-2 and many models since start with bytes
# for this reason; others fall back to bytes for unknown characters. Characters are enough here: number words use few.
#
# The number of merges trades sequence length against the size of the embedding matrix. Captions usually get about
# 10,000 tokens. The merges are **learned**, so they are part of the model: train them **on the training set alone**. If
# the test set is among the text, its words get tokens of their own, the test sentences become shorter and easier than
# the next new text will be, and neither loss nor score says so.
#
# > **Check yourself.** A colleague trains the vocabulary on training *and validation* texts. The test set is untouched.
# > Is that clean?
# > <details><summary>Answer</summary>The test score is. But the validation score is now too kind, and by it you choose
# > the learning rate and the moment to stop. Keep it out, too.</details>
#
# ### Batches by tokens
#
# A batch is a rectangle of token ids, and short sentences are filled up with padding. *Guess:* with 16 sentences drawn
# at random, how much of the rectangle is padding? The remedy is to put sentences of similar length together, and to
# count **tokens** instead of sentences: as many rows as fit into the budget.

# %% [raw] slide
# ## Batches by tokens
# > **Guess first.** 16 sentences drawn at random: how much of the rectangle is padding?

# %%
train_set = encode_pairs(training, german, english)
validation_set = encode_pairs(validation, german, english)
lengths = [len(pair.target) + 1 for pair in train_set[:160]]                 # <eos> counts
by_number = [lengths[i : i + 16] for i in range(0, 160, 16)]
by_tokens = [[lengths[i] for i in rows] for rows in batch_by_tokens(lengths, batch_tokens=150)]
figures.padded_batches({"16 sentences at random": by_number,
                        "150 tokens, similar lengths": by_tokens})
#| caption: Batches as rectangles, a row for each sentence, padding hatched, by how the batches
#|   are made.

# %% [raw] slide
# ## Similar lengths together, as many rows as fit
# {figure}
#
# Batches come in an order that is drawn anew for each epoch.

# %% [markdown]
# On the right the rectangles are nearly full and, but for the last, of nearly equal size, so every step costs about the
# same time and memory, and learns from about as many tokens. Two things keep it honest. A pair counts as the longer of its two sides,
# because encoder and decoder each need a rectangle. And the batches come in an order that is drawn anew for each epoch;
# otherwise the model would see the short sentences first in every epoch. `epoch_batches` does both.
#
# **Now you:** [a10](@training/assignment), the extension "Batches by tokens".

# %%
def first_batches(n, batch_tokens=256, seed=0):
    order = epoch_batches(train_set, batch_tokens, seed=seed, epoch=0)
    return [collate([train_set[i] for i in rows]) for rows in order[:n]]


source, source_lengths, target_in, target_out = first_batches(1)[0]
print("source", tuple(source.shape), "  target_in, target_out", tuple(target_in.shape))

# %% [markdown]
# `target_in` begins with `<bos>` and `target_out` is the same row one step later: **teacher forcing**, as in [lecture
# @cross_attention](@cross_attention). The decoder sees the true past at every position, and learns all positions at
# once.
#
# ## Loss: cross-entropy, label smoothing, calibration
#
# The loss is the **cross-entropy** of each next token, in nats, averaged over the real tokens. It is smallest where the
# true token has probability 1, and with softmax that takes an infinite logit: the gradient pulls towards certainty long
# after the answer is right. **Label smoothing** ([@szegedy2016]) asks for a little less. The target distribution $q$
# mixes the true token $y$ with all $V$ tokens:
#
# $$
# q_v = (1 - \varepsilon)\,[v = y] + \frac{\varepsilon}{V} \qquad
# \text{loss} = -\sum_v q_v \log p_v
# $$
#
# The loss is smallest where $p = q$, and that is at a finite logit. *Where?* Let the true logit be ahead of all others
# by a margin, in a vocabulary of 112.

# %% [raw] slide
# ## Label smoothing
# $$q_v = (1 - \varepsilon)\,[v = y] + \frac{\varepsilon}{V} \qquad\quad \text{loss} = -\sum_v q_v \log p_v$$
#
# > **Guess first.** The loss is smallest at a finite margin of the true logit. Where, for $V = 112$ and ε = 0.1?

# %%
margins, V = torch.linspace(0, 15, 301), 112
logits = torch.cat([margins[:, None], torch.zeros(301, V - 1)], dim=1)     # (301, V)  0 is true
smoothed = {}
for share in (0.0, 0.1, 0.3):
    q = share / V + (1 - share) * F.one_hot(torch.tensor(0), V)             # (V,)  sums to one
    smoothed[f"ε = {share}"] = -(q * logits.log_softmax(dim=-1)).sum(dim=-1)       # (301,)
viz.function_curves(smoothed, margins, y_name="loss (nats)",
                    x_name="how far the true logit is ahead")
best = margins[smoothed["ε = 0.1"].argmin()]
assert abs(best - math.log(0.9 * V / 0.1 + 1)) < 0.05, "where p equals q"
#| caption: Loss against the lead of the true logit, with label smoothing.

# %% [raw] slide
# ## More certainty costs
# {figure}
#
# A smoothed training loss compares with nothing but itself.

# %% [markdown]
# With ε = 0.1 the minimum lies near 7, and more certainty *costs*. The minimum is not zero: it is the entropy of $q$.
# So compare smoothed losses only at the same ε and the same vocabulary; the loss reported of held-out text is always the plain
# one.
#
# **Calibration** is the question of whether a model's confidence agrees with its accuracy. Take the probability of each
# predicted token, averaged, minus the share of tokens that are right: the **calibration gap**. Positive means
# overconfident. (Taken in bins of confidence, absolute gaps average to the *expected calibration error*, ECE.) We train
# with and without smoothing, three seeds each; the seed fixes initial weights and batches, so the runs are paired.
# (`train` is the subject of the next section.) *Guess:* what does smoothing do to the gap?

# %%
config = TransformerConfig(vocab_size=len(german), target_vocab_size=len(english), d_model=64,
                           n_layers=1, n_heads=4, d_ff=128, dropout=0.0)


def new_model(seed=0):
    torch.manual_seed(seed)
    return EncoderDecoder(config).to(device)


@torch.no_grad()
def calibration(model, encoded):
    source, lengths, target_in, target_out = (x.to(device) for x in collate(encoded))
    p = model(source, lengths, target_in).softmax(dim=-1)                   # (batch, n, V)
    confidence, choice = p.max(dim=-1)                                      # (batch, n) each
    real = target_out != PAD
    right = (choice == target_out)[real].float().mean().item()
    return right, confidence[real].mean().item() - right

# %%
gaps = {"plain": [], "ε = 0.1": []}
for name, share in {"plain": 0.0, "ε = 0.1": 0.1}.items():
    for seed in range(3):
        model = new_model(seed)
        train(model, train_set, Recipe(steps=120, batch_tokens=256, lr=6e-3, warmup=20,
                                       schedule="cosine", label_smoothing=share, seed=seed))
        right, gap = calibration(model, validation_set)
        gaps[name].append(gap)
        loss = mean_loss(model, validation_set)
        print(f"{name}, seed {seed}: right {right:.1%}, confidence {right + gap:.1%}, "
              f"loss {loss:.2f}")
viz.strip_plot(gaps, "calibration gap: confidence minus accuracy", zero=True)
#| caption: Calibration gap with and without label smoothing, a mark for each seed (equal seeds
#|   at equal heights). 0, the upright line, is calibrated.

# %% [raw] slide
# ## Calibration: confidence minus accuracy
# {figure}
#
# Smoothing moves the gap down, as asked. Our short runs are *under*confident to begin with; large networks tend to be overconfident.
#
# **Now you:** a@training, exercise 1

# %% [markdown]
# In each of the three pairs smoothing moves the gap down: confidence falls and accuracy hardly does, as asked. Our models,
# trained for 120 steps, are *under*confident to begin with, so here it only hurts. Large networks that are trained for
# long tend to be overconfident ([@guo2017]), and a caption has a dozen right translations of which the data shows one;
# there ε = 0.1 is usual. Vaswani et al. ([-@vaswani2017, section 5.4]) report worse perplexity and better BLEU.
#
# **Now you:** [a10](@training/assignment), exercise 1.

# %% tags=["hide-input"]
assert all(less < plain for less, plain in zip(gaps["ε = 0.1"], gaps["plain"], strict=True))

# %% [markdown]
# ## The training loop in twenty lines
#
# What happens between two looks at the loss? *Guess:* which of these boxes must be kept from one step to the next, and
# which only within a step?

# %% [raw] slide
# ## The training loop
# > **Guess first.** Batch, activations, gradient, Adam's averages, weights: which must be kept from one step to the next?

# %%
figures.training_step()
#| caption: One training step, from the batch to the new parameters.
#| label: training-step

# %% [raw] slide
# ## One step
# {figure}

# %% [markdown]
# The weights and Adam's averages $m$ and $v$ are kept for the whole run. The activations are kept from the forward pass
# to the backward pass, and the gradient until AdamW has used it. Here is the whole step as a loop:

# %%
HALF = {"bf16": torch.bfloat16, "fp16": torch.float16}


def train_loop(model, batches, lr_at, precision="float32"):
    optimizer = torch.optim.AdamW(model.parameters(), betas=(0.9, 0.98), eps=1e-9,
                                  weight_decay=0, fused=True)   # fused: one operation for all
    scaler = torch.amp.GradScaler(device.type, enabled=precision == "fp16")
    losses, norms = [], []
    for step, batch in enumerate(batches, start=1):
        batch = [x.to(device, non_blocking=True) for x in batch]            # data to the device
        with torch.autocast(device.type, HALF.get(precision), enabled=precision in HALF):
            loss = model.loss(*batch)                                       # forward
        scaler.scale(loss).backward()                                       # gradients, scaled
        scaler.unscale_(optimizer)                                          # gradients
        norm = nn.utils.clip_grad_norm_(model.parameters(), max_norm=1.0)   # clip
        for group in optimizer.param_groups:
            group["lr"] = lr_at(step)                                       # schedule
        scaler.step(optimizer)                                              # AdamW
        scaler.update()
        optimizer.zero_grad()                                               # or they add up
        losses.append(loss.detach())                                        # no .item() here:
        norms.append(norm)                                                  # it would wait
    return torch.stack(losses).tolist(), torch.stack(norms).tolist()

# %% [raw] slide
# ## Line by line
# | line | what it is for |
# |---|---|
# | `.to(device)` | compute where the model is |
# | `autocast` | products in 16 bits, sums in 32 |
# | `scale`, `unscale_` | keep small fp16 gradients from vanishing |
# | `clip_grad_norm_` | one odd batch must not do more harm than any other |
# | `lr_at`, `step` | how far, in which direction |
# | `zero_grad` | `backward` **adds** to what is there |

# %% [markdown]
# | line | what it is for | where it is explained |
# |---|---|---|
# | `.to(device)` | a batch is made on the CPU and computed where the model is | *a GPU's time* |
# | `autocast` | matrix products in 16 bits, sums in 32 | *number formats* |
# | `scale`, `unscale_` | keep small fp16 gradients from vanishing; do nothing in other formats | *number formats* |
# | `clip_grad_norm_` | one odd batch must not do more harm than any other | below |
# | `lr_at`, `step` | how far to go, and in which direction | *AdamW* |
# | `zero_grad` | `backward` **adds** to what is there | *memory* |
#
# **Gradient clipping** ([@pascanu2013]): if the gradient, all parameters together, is longer than 1, it is scaled down
# to length 1. The direction stays. (Clipping each parameter by itself would change the direction.)
#
# Is this what the package's trainer does? Hand both the same model, the same batches and the same learning rates.

# %%
precision = best_precision(device)
recipe = Recipe(steps=20, batch_tokens=256, lr=6e-3, warmup=10, label_smoothing=0.0,
                precision=precision)
losses, norms = train_loop(new_model(), first_batches(20), recipe.lr_at, precision)
progress = train(new_model(), train_set, recipe)
apart = max(abs(ours - step.loss) for ours, step in zip(losses, progress.steps, strict=True))
print(f"loss {losses[0]:.3f} → {losses[-1]:.3f}; the trainer's is the same within {apart:.0e}")
print(f"{sum(norm > 1 for norm in norms)} of 20 gradients were clipped")
assert apart < 0.1

# %% [markdown]
# It is. (So early in training nearly every gradient is longer than 1, and clipping sets the length of nearly every step's
# gradient. Later it is for the odd batch.) What `attncourse.training.trainer` adds is bookkeeping: evaluation, checkpoints, resumption, several processes.
# (Dropout is off in this model. Where it is on, `model.train()` zeroes a share $p$ of the numbers and divides the rest
# by $1 - p$, so that the mean stays; `model.eval()` switches it off for measuring and translating.)
#
# ## AdamW, weight decay and the learning rate
#
# **Adam** ([@kingma2015]) keeps two running averages for every parameter: of its gradient $g$, and of $g^2$. AdamW adds
# **decoupled weight decay** ([@loshchilov2019]). At step $t$, counted from one:
#
# $$
# m \leftarrow \beta_1 m + (1 - \beta_1)\, g \qquad v \leftarrow \beta_2 v + (1 - \beta_2)\, g^2 \qquad
# \hat m = \frac{m}{1 - \beta_1^t} \quad \hat v = \frac{v}{1 - \beta_2^t}
# $$
# $$
# \theta \leftarrow \theta - \eta_t \left( \frac{\hat m}{\sqrt{\hat v} + \epsilon} + \lambda\, \theta \right)
# $$
#
# $\hat m$ and $\hat v$ correct for averages that begin at zero. Three parameters start at 1, with gradients 0.001, 1
# and 100. *Guess:* after one step of Adam with η = 0.01, how far has each moved?

# %% [raw] slide
# ## AdamW
# $$m \leftarrow \beta_1 m + (1 - \beta_1)\, g \qquad v \leftarrow \beta_2 v + (1 - \beta_2)\, g^2 \qquad \hat m = \frac{m}{1 - \beta_1^t} \quad \hat v = \frac{v}{1 - \beta_2^t}$$
#
# $$\theta \leftarrow \theta - \eta_t \left( \frac{\hat m}{\sqrt{\hat v} + \epsilon} + \lambda\, \theta \right)$$
#
# > **Guess first.** Gradients 0.001, 1 and 100. How far does each move in one step with η = 0.01?
#
# . . .
# All by η: Adam divides each gradient by its own recent size.

# %%
theta = nn.Parameter(torch.ones(3))
theta.grad = torch.tensor([1e-3, 1.0, 100.0])
torch.optim.AdamW([theta], lr=0.01, weight_decay=0).step()
print("moved by", [round(x, 4) for x in (1 - theta.detach()).tolist()])

# %% [markdown]
# All by η. Adam divides each gradient by its own recent size, so the step depends on the *sign* and on how steady the
# sign is. Why, then, decay outside of the fraction? The older way adds $\lambda\theta$ to $g$, where it is divided by
# $\sqrt{\hat v}$ as well. Two rows of parameters start at 1. Their gradients are pure noise, small in one row and large
# in the other.

# %%
def after_decay(optimizer_class):
    torch.manual_seed(0)
    theta = nn.Parameter(torch.ones(2, 1000))
    optimizer = optimizer_class([theta], lr=1e-3, weight_decay=0.1)
    for _ in range(1000):
        theta.grad = torch.randn(2, 1000) * torch.tensor([[0.1], [10.0]])   # small, large
        optimizer.step()
    return theta.detach().mean(dim=1).tolist()


for optimizer_class in (torch.optim.Adam, torch.optim.AdamW):
    small, large = after_decay(optimizer_class)
    print(f"{optimizer_class.__name__:>5}: θ is {small:.2f} where gradients are small, "
          f"{large:.2f} where they are large")

# %% [raw] slide
# ## Decay outside of the fraction
# {print}
#
# Inside, decay acts on small-gradient parameters alone. Only **matrices** are decayed.

# %% [markdown]
# Inside of the fraction, decay acts on small-gradient parameters and hardly at all on the others. Decoupled, it shrinks
# all alike: $(1 - \eta\lambda)^{1000} \approx 0.905$. One more choice: only **matrices** are decayed. Pulling a norm's
# gain, which belongs near 1, or a bias towards zero makes nothing simpler. (Embeddings are
# often left out, too.)

# %%
model = new_model()
matrices = [p for p in model.parameters() if p.ndim >= 2]
vectors = [p for p in model.parameters() if p.ndim < 2]                     # gains and biases
optimizer = torch.optim.AdamW([{"params": matrices, "weight_decay": 0.1},
                               {"params": vectors, "weight_decay": 0.0}], lr=1e-3)
for name, group in {"decayed": matrices, "not decayed": vectors}.items():
    print(f"{name}: {len(group)} tensors, {sum(p.numel() for p in group):,} numbers")

# %% [markdown]
# ### Schedules: warm-up, then down
#
# In the first steps $\hat v$ is an average of very few gradients, and a deep stack is easily thrown off ([lecture
# @deep_stacks](@deep_stacks)). So the rate rises in a **warm-up** and falls afterwards.

# %%
steps = range(1, 4001)
figures.learning_rates({
    "inverse square root": [1e-3 * inverse_sqrt(step, warmup=400) for step in steps],
    "cosine": [1e-3 * cosine(step, warmup=400, steps=4000) for step in steps],
})
#| caption: Learning rate against the step, for two schedules.
#| label: schedules

# %% [raw] slide
# ## Schedules: warm-up, then down
# {figure}

# %% [markdown]
# The inverse square root ([@vaswani2017], equation 3) need not know how long the run will be. The cosine must, and ends
# at nearly zero. Steps are counted from one: counted from zero, the first step has rate zero.
#
# ### The learning-rate sweep
#
# No formula gives η. It is found by a **sweep**: equal runs, rates in equal *ratios*, held-out loss against rate.
# *Guess the shape first:* which side is steeper?

# %% [raw] slide
# ## The learning-rate sweep
# > **Guess first.** Equal runs, rates in equal ratios. What shape has held-out loss against rate? Which side is steeper?

# %%
sweep = {rate: [] for rate in (1e-3, 3e-3, 1e-2, 3e-2, 1e-1)}
for rate, final in sweep.items():
    lr_at = Recipe(steps=50, lr=rate, warmup=10, schedule="cosine").lr_at
    for seed in range(3):
        model = new_model(seed)
        train_loop(model, first_batches(50, seed=seed), lr_at)
        final.append(mean_loss(model.eval(), validation_set[:300]))
figures.rate_sweep(sweep)
#| caption: Held-out loss against the learning rate: a point for each seed, a line through the
#|   medians. The axes do not begin at 0; the rates are on a logarithmic one.

# %% [raw] slide
# ## A valley
# {figure}
#
# Take the bottom, or a little to its left. Sweep again when batch, width or schedule changes.
#
# **Now you:** a@training, exercises 2 and 3

# %% [markdown]
# A valley: to the left the model has not got far in 50 steps, to the right the steps overshoot. In this short run of a
# shallow model both sides rise about alike from one rate to the next, and three seeds do not separate the two lowest. In a
# long run of a deep one we expect the right side to be the steeper: there the run may be lost. So take the bottom, or a
# little to its left. Sweep again when the batch, the width or the
# schedule changes.
#
# **Now you:** [a10](@training/assignment), exercises 2 and 3.
#
# ## A GPU's time
#
# A GPU is a second computer with its own memory. The program runs on the CPU. For each operation it sends the GPU an
# order: it **launches a kernel**, a function that runs on the GPU. Three things follow.
#
# **First: both sides of an operation must be on the same device.** Here the model stays behind. (The device "meta" has
# shapes and no numbers; any machine has it. With a real GPU the sentence is nearly the same.)

# %%
left_behind = EncoderDecoder(config).to("meta")
try:
    left_behind.loss(*first_batches(1)[0])
except RuntimeError as error:
    print(error)

# %% [raw] slide
# ## A GPU's time: three things
# 1. Both sides of an operation must be on the same device.
# 2. Launches are **asynchronous**: to time, `synchronize`. Anything that needs a value waits: `.item()`.
# 3. A launch costs time, say 5 µs.
#
# > **Guess first.** What happens when the GPU needs only 2 µs to run a kernel?

# %% [markdown]
# **Second: launches are asynchronous.** A call returns as soon as the kernel is in the queue. To time it, wait with
# `synchronize`, or you measure only how long the launch took.

# %%
def seconds(work, repeats=5, wait=True):
    work()                                                # the first call prepares things
    hardware.synchronize(device)
    started = time.perf_counter()
    for _ in range(repeats):
        work()
    if wait:
        hardware.synchronize(device)
    return (time.perf_counter() - started) / repeats


side = 1024 if device.type == "cpu" else 4096              # a GPU needs more to do
x = torch.randn(side, side, device=device)
multiply = partial(torch.matmul, x, x)                    # call it, and it multiplies x by x
for wait in (False, True):
    print(f"wait={wait}: {1000 * seconds(multiply, wait=wait):.2f} ms a product")

# %% [markdown]
# A CPU has no queue, so both lines are about the same there. On a GPU the first is some microseconds, whatever the
# size of the product. **Anything that needs a value waits, too**: `.item()`, `print(loss)`, `if loss > 3`. The loop
# above keeps losses on the device for this reason.
#
# **Third: a launch costs time.** Below we assume that it takes the CPU 5 µs. *Guess* what happens when the GPU needs
# only 2 µs to run a kernel.

# %%
figures.launches({"kernels of 20 µs": 20, "kernels of 2 µs": 2}, launch=5, n=6)
#| caption: A CPU that launches kernels and a GPU that runs them.

# %% [raw] slide
# ## Overhead-bound
# {figure}
#
# A GPU twice as fast would train no faster. Larger batches, larger kernels.

# %% [markdown]
# On the left the GPU is always busy. On the right it mostly waits for the next launch, and a GPU twice as fast would
# train no faster: the step is **overhead-bound**. How many operations has a step? We count them by listening to torch's
# dispatcher, for a captions model of the size of the package's profile `gpu`. (A *view*, the same numbers in another
# shape, costs the GPU nothing.)

# %%
captions = TransformerConfig(vocab_size=10_000, d_model=256, n_layers=4, n_heads=4, d_ff=1024)


class CountOperations(TorchDispatchMode):
    n = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.n += not function.is_view
        return function(*args, **(kwargs or {}))


rows, lengths = torch.full((8, 14), 5, device=device), torch.full((8,), 14, device=device)
captions_model = EncoderDecoder(captions).to(device)
with CountOperations() as operations:
    captions_model.loss(rows, lengths, rows, rows).backward()
launching = 5e-6 * operations.n
print(f"{operations.n} operations; prediction: {1000 * launching:.1f} ms a step to launch them")

# %% [markdown]
# Their number does not depend on the batch, so larger batches mean larger kernels, and overhead matters less.
# (`torch.compile` lowers the number: it fuses many small operations into one kernel.) Which **throughput** does *this*
# device reach?

# %%
formats = {"cpu": ["float32", "bf16"], "mps": ["float32"],
           "cuda": ["float32", "tf32", "bf16", "fp16"]}


def tokens_per_second(batch_tokens, number_format, n=3):
    torch.set_float32_matmul_precision("high" if number_format == "tf32" else "highest")
    batches = first_batches(1, batch_tokens) * n
    run = partial(train_loop, new_model(), batches, recipe.lr_at, number_format)
    tokens = sum(int((target_out != PAD).sum()) for *_, target_out in batches)
    return tokens / seconds(run, repeats=1)


sizes = (64, 256, 1024, 4096)
speeds = {number_format: {size: tokens_per_second(size, number_format) for size in sizes}
          for number_format in formats[device.type]}
viz.line_plot(speeds, "tokens in a batch", "target tokens a second", log_x=True, log_y=True)
#| caption: Target tokens a second against the tokens in a batch.

# %% [raw] slide
# ## Throughput rises more and more slowly
# {figure}

# %% [markdown]
# Throughput rises with the batch, and ever more slowly, as the device fills up; on a GPU expect the rise to go on for
# longer. Where it has levelled off, a larger batch brings fewer steps an hour and no more tokens. And bf16 is not the
# faster format by itself: on the saved page, made on a CPU, it is the slower one at every size. (Casting to it is work,
# too, and we have not separated the two.)
#
# ### Number formats: fp32, TF32, bf16, fp16
#
# GPUs multiply matrices several times as fast in 16 bits. There are two ways to spend 16 bits, on range (exponent) or
# on digits (fraction). *Which would you rather lose?*

# %% [raw] slide
# ## Number formats: range or digits?
# > **Guess first.** 16 bits can be spent on range or on digits. Which would you rather lose?

# %%
numbers = torch.tensor([70_000.0, 1e-8, 1 + 1 / 512])
print("format    largest  eps        a large score, a small gradient, one and a bit")
for name, dtype in {"float32": torch.float32, **HALF}.items():
    limits, rounded = torch.finfo(dtype), [f"{x:.7g}" for x in numbers.to(dtype)]
    print(f"{name:<9} {limits.max:.1e}   {limits.eps:.1e}", *rounded, sep="  ")

scale = 2**16
scaled = (numbers[1] * scale).to(torch.float16)           # multiplied before it is rounded
print(f"the small gradient in fp16, scaled and unscaled: {scaled.float() / scale:.1e}")

# %% [raw] slide
# ## fp32, bf16, fp16
# {print}
#
# **fp16** overflows and loses small gradients: **loss scaling**. **bf16** has the range and few digits: parameters, averages and sums stay in 32 bits (**mixed precision**).

# %% [markdown]
# **fp16** overflows and loses small gradients. The remedy is **loss scaling** ([@micikevicius2018]), the cell's end:
# multiply the loss, and so all gradients, by a large number; divide in 32 bits before the step; if something
# overflowed, leave this step out and lower the scale. **bf16** has the range of float32 and needs none of this.
# **TF32** is float32 in memory, multiplied with ten bits of fraction; one line switches it on. Take bf16 where the
# hardware has it.
#
# bf16 lacks digits, and there is one place where they matter. *Guess:* start at 1 and subtract 0.001 a thousand times.

# %%
weight, low, update = torch.tensor(1.0), torch.tensor(1.0, dtype=torch.bfloat16), 1e-3
for _ in range(1000):
    weight, low = weight - update, low - update
print(f"in float32 {abs(weight):.3f}, in bf16 {low:.3f}")
assert low == 1

# %% [markdown]
# Nothing has moved: each update is less than half of the last digit. So the *products* are computed in 16 bits, while
# parameters, Adam's averages, sums and losses stay in 32. This is **mixed precision**, and `autocast` does it.
#
# **Now you:** [a10](@training/assignment), the extension "Loss scaling".
#
# ### The roofline: memory-bound or compute-bound
#
# Apart from overhead, an operation needs time for two things: computing, and moving its operands between memory and
# processors. Both happen at the same time, so the slower one counts (the **roofline model**, [@williams2009]):
#
# $$
# \text{time} \;\ge\; \max\left(\frac{\text{FLOPs}}{\text{peak FLOP/s}},\; \frac{\text{bytes}}{\text{bandwidth}}\right)
# $$
#
# What decides is the **arithmetic intensity**, FLOPs per byte moved. We put the pieces of one training step of the
# captions model ($d_\text{model}$ = 256, four layers, a vocabulary of 10,000) under the roofs of three GPUs, from their
# data sheets (`CHIPS` names the sources). *Guess* which of them lie left of the corner.

# %% [raw] slide
# ## The roofline
# $$\text{time} \;\ge\; \max\left(\frac{\text{FLOPs}}{\text{peak FLOP/s}},\; \frac{\text{bytes}}{\text{bandwidth}}\right)$$
#
# **Arithmetic intensity**: FLOPs per byte moved.
#
# > **Guess first.** Feed-forward product, LayerNorm, attention, AdamW: which lie left of the corner, **memory-bound**?

# %%
def product(m, k, n):                                     # (m, k) @ (k, n), in 16 bits
    return 2 * m * k * n, 2 * (m * k + k * n + m * n)     # FLOPs, bytes moved


tokens, n_weights = 8192, count_parameters(captions, EncoderDecoder).total
work = {
    "logits": product(tokens, 256, 10_000),
    "feed-forward": product(tokens, 256, 1024),
    "feed-forward, one token": product(1, 256, 1024),
    "scores of a head": product(14, 64, 14),              # 14 tokens a sentence
    "LayerNorm": (8 * 256 * tokens, 8 * 256 * tokens),    # in 32 bits; 8 FLOPs a number or so
    "AdamW": (12 * n_weights, 28 * n_weights),            # reads 16 bytes, writes 12
}
roofs = {name: (chip.flops["fp16"], chip.bandwidth) for name, chip in CHIPS.items()}
figures.roofline(roofs, work)
#| caption: Rooflines of three chips.
#| label: roofline

# %%
for name, chip in CHIPS.items():
    flops, moved = work["feed-forward"]
    computing, moving = flops / chip.flops["fp16"], moved / chip.bandwidth
    print(f"prediction, {name:>4}: feed-forward product, computing {1e6 * computing:.0f} µs, "
          f"moving {1e6 * moving:.0f} µs; corner at {chip.balance['fp16']:.0f} FLOPs a byte")

# %% [raw] slide
# ## Under three roofs (from data sheets)
# {figure}

# %% [markdown]
# Under the slope an operation is **memory-bound**: the processors wait for bytes. Under the flat roof it is
# **compute-bound**. LayerNorm, AdamW and the attention of short sentences are far to the left on every chip. Even our
# feed-forward product sits only at the corner of T4 and A100, and left of the H100's, since $d_\text{model}$ = 256 is
# narrow: wider matrices move right, and that is one reason why large models use a GPU better. One token at a time, as in
# decoding, can use less than a hundredth of the peak.
#
# ## A GPU's memory
#
# What has to be in memory during a step? We add it up after one real step, in bytes a parameter.

# %%
model, batch = new_model(), [x.to(device) for x in first_batches(1)[0]]
optimizer = torch.optim.AdamW(model.parameters())
model.loss(*batch).backward()
optimizer.step()
n = sum(p.numel() for p in model.parameters())
print("bytes a parameter: weights", sum(p.nbytes for p in model.parameters()) / n,
      "gradient", sum(p.grad.nbytes for p in model.parameters()) / n)
for name, average in {"m": "exp_avg", "v": "exp_avg_sq"}.items():
    print(name, sum(optimizer.state[p][average].nbytes for p in model.parameters()) / n)

# %% [raw] slide
# ## A GPU's memory: 16 bytes a parameter
# {print}
#
# Weights, gradient, and Adam's two averages. On top: the **activations**.

# %% [markdown]
# **16 bytes a parameter**: weights, gradient and Adam's two averages, four bytes each. Autocast does not change this. A
# model of seven billion parameters needs 112 GB before it has seen a token.
#
# On top come the **activations**: whatever the forward pass keeps for `backward`. Autograd tells us exactly, through
# hooks on every tensor that it saves; `saved_activation_bytes` counts each piece of memory once, parameters left out.
# On the meta device the count itself costs nothing, so it works for batches that would never fit here. ("8,192 tokens"
# are 8,192 on each side.)

# %%
def activation_bytes(model_config, tokens, n=14, recompute=False):
    with torch.device("meta"):
        model = EncoderDecoder(model_config)
        rows = torch.zeros(tokens // n, n, dtype=torch.long)
        lengths = torch.full((tokens // n,), n)
    if recompute:
        model = with_checkpoints(model)
    return saved_activation_bytes(partial(model.loss, rows, lengths, rows, rows))


def memory(model_config, tokens):
    return {
        "16 bytes a parameter": 16 * count_parameters(model_config, EncoderDecoder).total,
        "activations": activation_bytes(model_config, tokens),
    }


sizes_of = {f"captions, {size:,} tokens": memory(captions, size)
            for size in (8192, 65_536, 131_072)}
sizes_of["big of 2017, 8,192 tokens"] = memory(preset("vaswani big").config, 8192)
figures.memory_bars(sizes_of, {"T4": CHIPS["T4"].memory})
kept = activation_bytes(captions, 8192)
fits = 8192 * (CHIPS["T4"].memory - 16 * n_weights) / kept
print(f"{kept / 8192 / 1e3:.0f} kB a token (of source and of target) in float32; "
      f"prediction: {fits:,.0f} tokens fill a T4's 16 GB")
#| caption: Memory of one training step, by what it is needed for.

# %% [raw] slide
# ## Activations grow with batch and model, the state with the model
# {figure}

# %% [markdown]
# Activations grow with the batch *and* the model, the state with the model alone. For our captions model the activations
# are nearly all; for the big model of 2017 (214 M parameters) the state begins to show. Predicted are 1.7 GB for 8,192
# tokens. The run on an H200 of which you will read below took 2.2 GB at its highest: autocast makes a part of the
# activations half as large, but intermediate results, which are not kept, need room, too. What if it is too much?

# %%
try:
    torch.empty(10**15, device=device)                    # four petabytes
except RuntimeError as error:
    print(str(error)[:140])

# %% [raw] slide
# ## Out of memory: three ways out
# 1. **Gradient accumulation**: the batch in parts; a part counts by its **tokens**.
# 2. **Activation checkpointing**: keep each block's input, compute it again on the way back.
# 3. **Sharding**: each GPU keeps a slice of the state.
#
# **Now you:** a@training, exercise 4

# %% [markdown]
# **Out of memory.** There are three ways out, two for the activations and one for the state, and each must leave the
# gradient as it was.
#
# 1. **Gradient accumulation**: the batch in parts (*micro-batches*), one after the other; `backward` adds up.
# 2. **Activation checkpointing** ([@chen2016]): keep only each block's input, and compute the block again on the
#    way back. One more forward pass buys the memory. (Nothing is saved to a disk, in spite of the name.)
# 3. **Sharding**: each of several GPUs keeps a slice of the state. We come to it under *several GPUs*.

# %%
def gradient_of(model, parts, share):
    """The gradient of a batch in parts, one long vector; `share(part)` is a part's weight."""
    model.zero_grad()
    for part in parts:
        loss = model.loss(*(x.to(device) for x in part))
        (loss * share(part)).backward()                   # adds to what is there
    return torch.cat([p.grad.flatten() for p in model.parameters()])


def with_checkpoints(model):
    model = deepcopy(model)
    for block in [*model.encoder.stack.blocks, *model.decoder.stack.blocks]:
        block.forward = partial(checkpoint, block.forward, use_reentrant=False)
    return model


def n_tokens(batch):
    return int((batch.target_out != PAD).sum())

# %%
by_length = sorted(validation_set, key=lambda pair: len(pair.target))
parts = [collate(by_length[:60]), collate(by_length[-15:])]
whole = collate(by_length[:60] + by_length[-15:])
model = new_model()
expected = gradient_of(model, [whole], lambda part: 1)
in_parts = gradient_of(model, parts, lambda part: n_tokens(part) / n_tokens(whole))
recomputed = gradient_of(with_checkpoints(model), [whole], lambda part: 1)


def off(gradient):
    return ((gradient - expected).norm() / expected.norm()).item()


print(f"accumulation:  gradient off by {off(in_parts):.0e}")
less = activation_bytes(captions, 8192, recompute=True)
print(f"checkpointing: gradient off by {off(recomputed):.0e}; "
      f"activations of 8,192 tokens {kept / 1e9:.2f} → {less / 1e9:.2f} GB")

# %% [raw] slide
# ## The gradient stays as it was
# {print}

# %% [markdown]
# Both agree up to rounding. Note the share: a part counts by its **tokens**, since each part's loss is a *mean* over
# its own. What happens with plain averages is shown below.
#
# **Now you:** [a10](@training/assignment), exercise 4, where the loop gets accumulation.
#
# ## FLOPs, 6N and MFU
#
# How much arithmetic is a step? Each weight is used once per token forward (a multiplication and an addition: 2 FLOPs)
# and twice on the way back, for the gradients of input and weight: **6 FLOPs a parameter and token**, $6N$
# ([@kaplan2020]). *Guess:* does the rule hold for an encoder–decoder, where a token meets only half of the model?

# %%
step_flops = count_training_flops(captions, EncoderDecoder, batch=tokens // 14, n=14)
rule = 6 * n_weights * (tokens // 14 * 14)
print(f"N = {n_weights / 1e6:.1f} M parameters; counted {step_flops:.2e}, rule {rule:.2e}, "
      f"ratio {step_flops / rule:.2f}")

# %% [raw] slide
# ## FLOPs, 6N and MFU
# {print}
#
# **MFU**: the FLOP/s that the model gets, over the device's peak.
#
# > **Guess first.** Matrix products are nearly all of the FLOPs. Which share of the *time*?

# %% [markdown]
# It holds if you count *pairs* of a source and a target token: together they meet every weight once. (Also because one
# embedding matrix serves source, target and output: with three, two of them would count in $N$ and cost nothing. The scores
# are extra, and small in short sentences.) **Model FLOPs utilisation** (MFU, [@chowdhery2022]) is the FLOP/s that the model
# gets, by this count, divided by the device's peak. Ours, here; a CPU has no entry in our data sheets, so its own
# fastest large product stands in:

# %%
chip = hardware.chip_of(device)
peak = chip.flops["float32"] if chip else 2 * side**3 / seconds(multiply)
batch = first_batches(1, batch_tokens=1024)[0]
shape = (*batch.source.shape, batch.target_in.shape[1])   # sentences, source and target length
flops = count_training_flops(config, EncoderDecoder, *shape)
took = seconds(partial(train_loop, new_model(), [batch] * 3, recipe.lr_at)) / 3
mfu = flops / took / peak
print(f"{1000 * took:.0f} ms a step, peak {peak / 1e9:,.0f} GFLOP/s: MFU {mfu:.1%}")

# %% [markdown]
# PaLM reports 46 % on 6,144 TPUs. Memory-bound operations, overhead and communication take the rest. Now the question
# that you wanted to ask: **how long does it take to train on Multi30k?** 1,800 steps of 8,192 tokens are about 33
# epochs. We *assume* that computing and memory allow an MFU of 20 %; where launching takes longer than that, launching
# decides.

# %%
assumed_mfu, steps = 0.20, 1800
predicted = {}
for name, chip in CHIPS.items():
    number_format = "bf16" if "bf16" in chip.flops else "fp16"
    computing = step_flops / (assumed_mfu * chip.flops[number_format])
    predicted[name] = steps * max(computing, launching)
    print(f"prediction, {name:>4}, {number_format}: {predicted[name]:.0f} s "
          f"({1000 * computing:.1f} ms a step computing, {1000 * launching:.1f} ms launching)")

# %% [markdown]
# We ran it on one H200, which computes as fast as an H100 and has more memory. *Guess first:* is the prediction
# right within a factor of two? If not, which of three assumptions failed: the MFU of 20 %, the number of operations,
# or the 5 µs?

# %%
kept_run = results.measured("training_gpu_de_en")         # one run, one seed
measured_seconds = kept_run["training_seconds"]
times = measured_seconds / predicted["H100"]
print(f"{kept_run['device_name']}, {kept_run['steps']:,} steps: {measured_seconds:.0f} s, "
      f"{times:.0f} times the prediction; BLEU {kept_run['bleu']:.1f}")
print("a step, its batch on the GPU:")
for number_format, step in kept_run["step"].items():
    name = "TF32" if number_format == "float32" else number_format
    each = 1000 * step["ms"] / step["kernels"]
    print(f"{name:>5}: {step['ms']:.1f} ms, {step['operations']:,} operations, "
          f"{step['kernels']:,.0f} kernels, {each:.0f} µs for each; "
          f"GPU busy {step['gpu_busy_ms']:.1f} ms")
in_bf16, in_tf32 = (kept_run["step"][number_format] for number_format in ("bf16", "float32"))
whole, busy = (step_flops / (1e-3 * in_bf16[what]) / CHIPS["H100"].flops["bf16"]
               for what in ("ms", "gpu_busy_ms"))
print(f"MFU in bf16: {whole:.1%} of the step, {busy:.1%} while the GPU is busy")

# %% tags=["hide-input"]
assert kept_run["steps"] == steps and 2.1e9 < kept_run["training_memory_bytes"] < 2.3e9
assert 0.04 < busy < 0.06 and in_bf16["operations"] == 1041 and in_tf32["operations"] == 679
assert kept_run["steps"] == steps and predicted["H100"] == steps * launching
assert 14 < times < 22 and in_bf16["kernels"] > 2 * operations.n
assert in_bf16["gpu_busy_ms"] < in_bf16["ms"] / 2.9 and in_tf32["ms"] < 0.85 * in_bf16["ms"]
assert round(in_bf16["kernels"]) == 1356 and in_tf32["gpu_busy_ms"] > in_bf16["gpu_busy_ms"]
assert round(1000 * in_bf16["ms"] / in_bf16["kernels"]) == 22
assert round(measured_seconds) == 86 and round(predicted["H100"]) == 5
assert 45 < 1000 * measured_seconds / steps < 50

# %% [raw] slide
# ## Predicted 5 seconds, measured 86
# - The GPU computes in a third of the step: **overhead-bound**, as predicted
# - but 1,356 kernels, not 580 operations: AdamW, clipping, casts to bf16
# - and 22 µs of Python, autograd and dispatcher for each, not 5

# %% [markdown]
# The diagnosis was right, and all three assumptions were wrong. The GPU is busy for a third of the step; for the rest it
# waits for the CPU, so the step is overhead-bound. But while it is busy, its MFU is 5 % and not 20: so small a model does
# not fill it. We had counted the operations of one loss and its gradients in float32, 580. A whole step, which also clips
# and runs AdamW, has 679; autocast, which casts numbers to bf16 and back, makes 1,041 of them; and some operations launch
# several kernels, 1,356 in all. And each took the CPU not 5 µs but more than four times as long: before a launch, Python,
# autograd and the dispatcher do their work. TF32 shows it from another side. There the GPU computes *longer*, but without casts
# there are fewer kernels to launch, and the step is shorter.
#
# The steps of the run took 48 ms each. On top of what the table shows they make the batch, move it, and average the
# weights. All of this is one machine: with another CPU the times of launching differ.

# %% [markdown]
# > **Check yourself.** Double the assumed MFU, and the prediction for the fastest chip stays where it is. What would
# > make training faster there?
# > <details><summary>Answer</summary>Fewer and larger kernels: a larger batch with fewer steps (and a new sweep), or
# > <code>torch.compile</code>, which takes minutes first; or a faster CPU. A still faster GPU would change
# > nothing.</details>
#
# **Now you:** [a10](@training/assignment), the extension "What a step costs".
#
# ## The profiler: where does the time go?
#
# *Guess:* matrix products are nearly all of the FLOPs. Which share of the time do they take? The profiler knows, after
# five steps.

# %%
model, batches = new_model(), first_batches(5, batch_tokens=1024)
with torch.profiler.profile() as profile:
    train_loop(model, batches, recipe.lr_at)
spent = {}
for row in profile.key_averages():
    if device.type != "cuda":
        spent[row.key] = row.self_cpu_time_total
    elif row.key.startswith("aten::"):                    # a kernel's time is its operation's
        spent[row.key] = row.self_device_time_total
total = sum(spent.values())
for name in sorted(spent, key=spent.get, reverse=True)[:8]:
    print(f"{spent[name] / total:>5.0%}  {name}")
products = sum(spent.get(name, 0) for name in ("aten::mm", "aten::addmm", "aten::bmm"))
print(f"matrix products outside of the attention, all together: {products / total:.0%}")

# %% [raw] slide
# ## Where does the time go?
# {print}

# %% [markdown]
# On the saved page it is far less than their share of the FLOPs. The largest part of the rest is the fused attention, whose
# products are tiny, and its way back; what is left is memory-bound (norms, sums, copies, AdamW) or overhead: it moves
# numbers and hardly computes. On a GPU look for three things: gaps in which it waits for data
# (let other processes make the batches, in pinned memory), values looked at in every step (`aten::_local_scalar_dense`,
# which is what `.item()` does), and many tiny operations (`torch.compile`).
#
# ## Several GPUs: all-reduce, DDP and FSDP
#
# In **data parallelism** each GPU has the whole model and its own part of the batch. Then all gradients are added up
# and handed to everybody, an **all-reduce**, so that all take the same step. torch's `DistributedDataParallel` (DDP)
# hands out the *mean*. **Fully sharded** data parallelism (FSDP; ZeRO, [@rajbhandari2020]) keeps only a slice of
# weights, gradient and averages on each GPU.

# %% [raw] slide
# ## Several GPUs: data parallelism
# > **Guess first.** Two processes, 60 short sentences for one, 15 long ones for the other. Is the mean of the two gradients the gradient of the whole batch?

# %%
figures.data_parallel()
#| caption: Data parallelism: what each of two GPUs holds and sends, with DDP and with FSDP.

# %% [raw] slide
# ## All-reduce
# {figure}

# %% [markdown]
# It needs no GPU to try: two processes on this machine, talking through *gloo*. Each gets one of the two parts from
# above: 60 short sentences for one, 15 long ones for the other. *Guess:* is the mean of the two gradients the gradient
# of the whole batch?

# %%
def worker(rank, folder):
    """One of two processes: all of the model, a part of the batch, half of Adam's state."""
    store = dist.FileStore(f"{folder}/meet", 2)           # where the two find each other
    dist.init_process_group("gloo", store=store, rank=rank, world_size=2)
    model, parts = torch.load(f"{folder}/given.pt", weights_only=False)
    source, lengths, target_in, target_out = parts[rank]
    model.loss(source, lengths, target_in, target_out).backward()
    own = torch.cat([p.grad.flatten() for p in model.parameters()])
    tokens = (target_out != 0).sum().float()              # 0 is <pad>
    total = tokens.clone()
    dist.all_reduce(total)                                # the sum, in every process
    mean = own / 2
    dist.all_reduce(mean)                                 # DDP: the mean of the means
    gradient = own * tokens / total
    dist.all_reduce(gradient)                             # by tokens

    weights = torch.cat([p.detach().flatten() for p in model.parameters()])
    slices = [weights.tensor_split(2)[i].clone() for i in (0, 1)]
    slices[rank].grad = gradient.tensor_split(2)[rank]
    torch.optim.AdamW([slices[rank]], lr=0.01).step()     # m and v of one half
    for i in (0, 1):
        dist.broadcast(slices[i], src=i)                  # and each lends its half
    if rank == 0:
        torch.save([mean, gradient, torch.cat(slices)], f"{folder}/found.pt")

# %%
imports = "import sys\nimport torch\nimport torch.distributed as dist\n\n\n"
code = imports + inspect.getsource(worker) + "\n\nworker(int(sys.argv[1]), sys.argv[2])\n"
script = Path(folder.name, "two_processes.py")
script.write_text(code, encoding="utf-8")
torch.save([new_model().cpu(), [list(part) for part in parts]], Path(folder.name, "given.pt"))
command = [sys.executable, str(script)]
team = [subprocess.Popen([*command, str(rank), folder.name]) for rank in (0, 1)]
assert [process.wait(timeout=60) for process in team] == [0, 0]
mean, gradient, sharded = (x.to(device) for x in torch.load(Path(folder.name, "found.pt")))

one = torch.cat([p.detach().flatten() for p in new_model().parameters()])
one.grad = gradient
torch.optim.AdamW([one], lr=0.01).step()                  # the same step, nothing sharded
print("tokens in the parts:", [n_tokens(part) for part in parts])
print(f"mean of means: gradient off by {off(mean):.0e}; by tokens: {off(gradient):.0e}")
print(f"sharded AdamW: weights off by at most {(sharded - one).abs().max().item():.0e}")
assert off(gradient) < 1e-4 < 0.02 < off(mean)

# %% [raw] slide
# ## A common mistake: the mean of means
# {print}
#
# Divide by the tokens of the *whole step*, on all machines together.

# %% [markdown]
# It is not. **A common mistake** is this **mean of means**: it gives the tokens of the smaller part more weight, so the
# step depends on how the batch was cut. Divide by the tokens of the *whole step*, on all machines together, and one
# process and two agree. The loss falls either way, which is why this bug stayed for years in the gradient accumulation
# of widely used libraries, until [October 2024](https://unsloth.ai/blog/gradient). The sharded AdamW, half of the state
# in each process, takes the same step, too. On real GPUs one command does all this:
#
# ```
# torchrun --nproc-per-node 8 -m attncourse.training train --profile base --data multi30k
# ```
#
# ## When it breaks: NaN, checkpoints, exact resumption
#
# Sooner or later a loss is NaN. Where did it begin? We spoil one number of one matrix, and let a **forward hook** on
# each module report the first output that is not finite.

# %%
broken, blamed = new_model(), []
with torch.no_grad():
    broken.decoder.stack.blocks[0].ff.sublayer.up.weight[3, 5] = math.inf


def report(name, module, inputs, output):
    if isinstance(output, torch.Tensor) and not output.isfinite().all():
        blamed.append(name)


for name, module in broken.named_modules():
    module.register_forward_hook(partial(report, name))
loss = broken.loss(*(x.to(device) for x in first_batches(1)[0]))
print(f"loss {loss:.3f}; it began in {blamed[0]}")
try:
    train(broken, train_set, recipe)
except NonFiniteLoss as error:
    print("the trainer stops:", str(error)[:118], "…")

# %% [markdown]
# Usual causes, in order: a learning rate that is too high, an overflow in fp16, log or division of zero, a row without
# a single allowed key. The trainer stops at once and names the pairs, because a NaN in the weights never goes away.
#
# A run of hours *will* be interrupted. What must a **checkpoint** hold so that the run goes on **as if nothing had
# happened**? The weights alone will not do: without Adam's averages the next steps are out of proportion; without the
# step number the rate is wrong; without the order of the data and the state of dropout it is another run. Ours keeps
# the averages, and computes the order of the data and the dropout masks from the seed and the step number. The test: pull the plug at step 25, resume from the
# checkpoint of step 20, compare with an unbroken run.

# %%
class PowerCut(Exception):
    pass


def cut_the_power(progress):
    if progress.step == 25:
        raise PowerCut


def losses_of(to, listeners=(), resume=False):
    torch.manual_seed(0)
    model = EncoderDecoder(replace(config, dropout=0.1)).to(device)
    plan = Recipe(steps=40, batch_tokens=256, lr=6e-3, warmup=10, save_every=10)
    progress = train(model, train_set, plan, to, resume=resume, listeners=listeners)
    return [step.loss for step in progress.steps]


unbroken = losses_of(Path(folder.name, "unbroken"))
try:
    losses_of(Path(folder.name, "broken"), listeners=[cut_the_power])
except PowerCut:
    print("the power is off")
resumed = losses_of(Path(folder.name, "broken"), resume=True)
print("unbroken, steps 19 to 23:", [f"{loss:.6f}" for loss in unbroken[18:23]])
print("resumed:                 ", [f"{loss:.6f}" for loss in resumed[18:23]])
assert device.type != "cpu" or resumed == unbroken

# %% [raw] slide
# ## When it breaks: resume exactly
# A checkpoint holds weights, Adam's averages, the step, the order of the data, the state of dropout.
#
# {print}
#
# **Now you:** a@training, exercise 5

# %% [markdown]
# The twenty losses after the checkpoint are equal, dropout and all, to the last bit on a CPU. (A GPU adds some sums in an
# order that varies, so there "exactly" may become "nearly".) So an interruption cannot be the reason why two runs differ.
#
# ## On a free GPU
#
# Hosted notebooks (Colab, Kaggle) lend a GPU for some hours, often a **T4**. Switch it on in the runtime's settings,
# upload the course's zip file, and type, for Colab:
#
# ```
# !nvidia-smi                                          # which GPU, how much memory
# !unzip -q attncourse.zip && pip install -q ./attncourse
# from google.colab import drive; drive.mount("/content/drive")        # checkpoints survive here
# !attncourse train --profile t4 --data multi30k --to /content/drive/MyDrive/captions
# !attncourse train --resume --to /content/drive/MyDrive/captions      # when the session has ended
# ```
#
# Which number formats does a T4 have?

# %%
print(list(CHIPS["T4"].flops))

# %% [raw] slide
# ## In short
# | | |
# |---|---|
# | smoothed loss | $-\sum_v q_v \log p_v,\quad q_v = (1-\varepsilon)[v=y] + \varepsilon/V$ |
# | AdamW | $\theta \leftarrow \theta - \eta_t\,(\hat m / (\sqrt{\hat v} + \epsilon) + \lambda\theta)$ |
# | time of an operation | $\ge \max(\text{FLOPs}/\text{peak},\ \text{bytes}/\text{bandwidth})$ |
# | a step; the state | $6N \cdot \text{tokens}$ FLOPs; $16N$ bytes |
# | gradient of a step | $\sum_i \frac{\text{tokens}_i}{\text{tokens}}\, g_i$ over parts $i$ |
#
# **Now do** assignment a@training. **Next:** lecture @writing.

# %% [markdown]
# **A T4 has no bf16** and no TF32. torch emulates bf16 there, correctly and slowly; what is fast is fp16, with the loss
# scale of our loop. `best_precision` chooses. On a Mac (Metal) the course computes in float32. `docs/training.md` says
# more.
#
# **Now you:** [a10](@training/assignment), question 6, and exercise 5, the capstone: train number words within a budget.
#
# <details><summary><b>Going further</b>: averaging weights</summary>
#
# Which weights are the result of a run? The last ones stand wherever the last noisy step left them. Vaswani et al.
# ([-@vaswani2017, section 6.1]) average the last five checkpoints; a moving average of the weights (<b>EMA</b>),
# updated after each step, costs one more copy of them. It pays where the loss has levelled out and the rate is still
# high. In a short run, where each step still makes the model better, and after a cosine that ends near zero, it gains
# nothing and can hurt.
# <code>Recipe(ema=0.998)</code> switches it on.
# </details>
#
# ## In short
#
# | | | shape or unit |
# |---|---|---|
# | smoothed loss | $-\sum_v q_v \log p_v,\quad q_v = (1-\varepsilon)[v=y] + \varepsilon/V$ | $p, q$: (tokens, V) → one number |
# | AdamW | $\theta \leftarrow \theta - \eta_t\,(\hat m / (\sqrt{\hat v} + \epsilon) + \lambda\theta)$ | $\theta, m, v, g$: alike |
# | time of an operation | $\ge \max(\text{FLOPs}/\text{peak},\ \text{bytes}/\text{bandwidth})$ | seconds |
# | FLOPs of a step; memory of the state | $6N \cdot \text{tokens}$; $16N$ | FLOPs; bytes |
# | gradient of a step | $\sum_i \frac{\text{tokens}_i}{\text{tokens}}\, g_i$ over parts $i$ | as $\theta$ |
#
# Batches are counted in tokens, and merges come from the training set alone. A step is forward, backward, clip, AdamW
# at the schedule's rate; the rate comes from a sweep. A GPU's time goes into computing, moving bytes, and launching;
# wide matrices and large batches use it best. Its memory goes into 16 bytes a parameter and into activations, and
# accumulation, checkpointing and sharding trade for it without changing the gradient. A run that resumes exactly can be
# trusted.
#
# > **Check yourself.**
# > 1. Adam hardly depends on the gradient's size. What is clipping for, then?
# > 2. Your loop calls `loss.item()` in every step. Why is that nearly free on a CPU and costly on a GPU?
# > 3. A model of 100 M parameters runs out of memory on 16 GB. What do you try first?
# > <details><summary>Answers</summary>
# >
# > 1. Adam steps along *averages*. A gradient a hundred times as long as usual fills both, decides the direction of the
# >    next dozen steps, and makes ordinary steps too small for as long as $v$ remembers it.
# > 2. It waits until the GPU has done everything in its queue; meanwhile nothing is launched, and the GPU then idles.
# > 3. Its state is 1.6 GB, so activations fill the rest: smaller micro-batches with accumulation cost nothing but a
# >    little speed. Then checkpointing. Sharding needs a second GPU.</details>
#
# **Now do** [assignment @training](@training/assignment). **Next:** [lecture @writing](@writing): the trained model
# writes, and we measure how well.
#
# **Further reading.** Data and loss: [+@sennrich2016]; [+@szegedy2016], section 7; [+@guo2017]. Optimisation:
# [+@kingma2015]; [+@loshchilov2019]; [+@pascanu2013]. Hardware: [+@micikevicius2018]; [+@williams2009]; [+@chen2016];
# [+@rajbhandari2020]; [+@kaplan2020], section 2.1; [+@chowdhery2022], section 4.1. To go on: Horace He, [*Making deep
# learning go brrrr from first principles*](https://horace.io/brrr_intro.html) (2022); Stanford's
# [CS336](https://cs336.stanford.edu), lecture 2; [*How to scale your model*](https://jax-ml.github.io/scaling-book/)
# and the [*Ultra-scale playbook*](https://huggingface.co/spaces/nanotron/ultrascale-playbook).
