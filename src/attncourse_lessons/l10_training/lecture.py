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
# *About 55 minutes in two halves: 23 minutes on making a run right, and 32 on what it costs. You need [the
# Transformer](@transformer), what [attention does in translation](@cross_attention), and why [deep stacks need a
# warm-up](@deep_stacks).*
#
# After this lecture you can
# * turn two files of sentences into batches of at most a fixed number of **tokens**;
# * write the **training loop** of an encoder–decoder, and say what each line is for;
# * explain **label smoothing**, **AdamW**, **warm-up** and **gradient clipping**, and find a learning rate by a sweep;
# * predict a step's time and memory on a GPU from a data sheet, and explain why a measurement differs;
# * train in 16 bits, on one GPU or several, and show that the gradient is still correct;
# * stop a run and resume it **exactly**.
#
# This lecture follows one run. A Transformer with 9.9 million parameters learns to translate the 29,000 German
# captions of **Multi30k** ([@elliott2016]) into English on one GPU. From data sheets and three assumptions, we
# predicted that training would take 5 seconds. It took 86 ([@fig:kept-run]).

# %% tags=["hide-input"]
import os

os.environ["KINETO_LOG_LEVEL"] = "99"  # torch's profiler would write log lines into the page

try:
    from attncourse import viz

    from . import figures
    from .byte_merges import cut_word, learn_merges
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
from torch.utils._pytree import tree_leaves
from torch.utils.checkpoint import checkpoint

from attncourse.counting import (
    count_flops,
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

# %% tags=["hide-input"]
kept_run = results.measured("training_gpu_de_en")         # one run, one seed, on an H200
looks = kept_run["curve"]                                 # the validation set, every 300 steps
figures.run_curve([at["seconds"] for at in looks],
                  {"loss (nats per token)": [at["loss"] for at in looks],
                   "BLEU": [at["bleu"] for at in looks]}, predicted=5)
#| caption: Measured on one H200: validation loss and BLEU of the run's averaged weights, every
#|   300 steps, against seconds of training. Dashed: the predicted end.
#| label: kept-run

# %% [raw] slide
# ## One run: predicted 5 seconds, it took 86
# {figure}
#
# First we make it **right**: data, batches, loss, optimiser, learning rate.
#
# Then we ask what it **costs**: a GPU's time and memory, several GPUs, what to do when a run breaks.

# %% [markdown]
# BLEU, a score from 0 to 100, measures how much translations share with human ones ([lecture 11](@writing)). The
# curves belong to *averaged* weights, a second copy that keeps 0.998 of itself at each step and takes the rest from
# the current weights. After 300 steps, 0.998³⁰⁰ = 55 % of the copy is still the random start, so the loss of 6.2 there
# says little.
#
# We rehearse with a small model on number words. Every cell runs on a CPU, or on a GPU (CUDA, or Apple's Metal) if
# there is one. Numbers for other GPUs are **predictions** from data sheets unless we call them measured.

# %%
device = best_device()
print(f"device: {device.type}, and its best number format: {best_precision(device)}")

# %% [markdown]
# ## Data: from two files to batches of tokens
#
# What does a step see? Its data come from a **parallel corpus**: two text files in which line 17 of one translates
# line 17 of the other. The cell writes such files of German and English number words and reads them back.

# %%
drawn = number_words("de", "en", train=9_000, test=0, max_items=2, dates=0, seed=0).train
folder = tempfile.TemporaryDirectory()
german_file, english_file = Path(folder.name, "numbers.de"), Path(folder.name, "numbers.en")
german_file.write_text("\n".join(pair.source for pair in drawn), encoding="utf-8")
english_file.write_text("\n".join(pair.target for pair in drawn), encoding="utf-8")

pairs = read_parallel(german_file, english_file)
random.Random(0).shuffle(pairs)                           # with a seed, before the split
validation, training = pairs[:1_000], pairs[1_000:]
print(len(training), "pairs to train on, for example", training[0])

# %% [raw] slide
# ## Data: from two files to batches
# Line 17 of one file is the translation of line 17 of the other. **Shuffle before you split**, with a seed.
#
# **Byte-pair encoding**: find the two neighbours that occur together most often, merge them everywhere, repeat.
#
# > **Guess first.** Will *einundzwanzig* become one token, three, or something else? And *hundertmeterlauf*?

# %% [markdown] teaches="subwords"
# We shuffle with a seed **before** we split, because files often come sorted by source, date or length.
#
# ### Byte-pair encoding: tokens between letters and words
#
# A vocabulary of whole words fails at the first new word, and German forms new compounds all the time. Single letters
# make sequences long. **Byte-pair encoding** (BPE, [@sennrich2016]) finds **subword tokens** in between. It finds the
# two neighbours that occur together most often, merges them everywhere, and repeats.
#
# We start from **bytes**, because any text is a sequence of bytes, of which there are only 256. The cell counts the
# neighbours for the first merge; then a function makes 60 merges. (You write such a function in the extension "Grow a
# vocabulary".)

# %% tags=["hide-input"]
counts = Counter(word for pair in training for word in pair.source.replace(",", "").split())
found = Counter()
for word, often in counts.items():
    for two in pairwise(word.encode()):                   # bytes
        found[bytes(two)] += often                        # a frequent word counts often
print("neighbours:", *[f"{two.decode()} {n:,}," for two, n in found.most_common(5)], "…")
merges = learn_merges(counts, 60)                         # merge, count again, merge …
print("merges:", *[(left + right).decode(errors="replace") for left, right in merges[:12]], "…")

# %% [markdown]
# To encode a new word, apply the merges in the order in which they were learned. *Guess:* does *einundzwanzig*
# (twenty-one) become one token, three (*ein*, *und*, *zwanzig*), or something else? And *hundertmeterlauf*
# (hundred-metre race), whose second half occurs in no number word?

# %% tags=["hide-input"]
def encode_word(word, n_merges):
    pieces = cut_word(word, merges[:n_merges])
    return [piece.decode(errors="backslashreplace").replace(" ", "␣") for piece in pieces]


def draw_pieces(merges):
    words = ("einundzwanzig", "siebenhundertdrei", "zwölf", "hundertmeterlauf", "5 €")
    cuts = {word: encode_word(word, merges) for word in words}
    return figures.pieces_frame(cuts, f"after {merges} merges")


viz.explore(draw_pieces, merges=[0, 5, 10, 20, 40, 60], start={"merges": 60})
#| caption: Byte-pair encoding after 0 to 60 merges (move the slider). A byte that is not a
#|   character on its own is shown in hexadecimal, a space as ␣.
#| label: byte-pairs

# %% [raw] slide
# ## Move the number of merges
# {figure}

# %% [markdown]
# After 60 merges, *einundzwanzig* is *ein* and *undzwanzig*: tokens follow frequency, not grammar. *hundertmeterlauf*
# shares *hundert* with the numbers. The rest of it, like the euro sign, falls back to short tokens, in the end to
# single bytes. **Nothing is unknown.** The package's **tokenizer** starts instead from the *characters* of its
# training text:

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
# Merges are **learned**: learn them from the training set alone. If the text includes the test set, its sentences become shorter and easier, and no score reveals this.

# %% [markdown]
# A character that this tokenizer never saw becomes `<unk>`, and its meaning is lost. Therefore GPT-2 and many later
# models start from bytes.
#
# More merges give shorter sequences and a larger embedding matrix. The merges are **learned**, so learn them **from
# the training set alone**. Otherwise words of the test set get tokens of their own, its sentences become easier than
# truly new text, and no score reveals this.
#
# > **Check yourself.** A colleague trains the vocabulary on training *and validation* texts. The test set is untouched.
# > Is that clean?
# > <details><summary>Answer</summary>The test score is clean. But the validation score can now be too good, and you use
# > it to choose the learning rate and when to stop. Keep the validation texts out, too.</details>
#
# ### Batches by tokens
#
# A batch is a rectangle of token ids, so short sentences are filled up with **padding**. *Guess:* with 16 sentences
# sampled at random, how much of the rectangle is padding? The remedy is to group sentences by length and to count
# **tokens** instead of sentences: a batch gets as many rows as fit into a budget of tokens.

# %% [raw] slide
# ## Batches by tokens
# > **Guess first.** 16 sentences sampled at random: how much of the rectangle is padding?

# %% tags=["hide-input"]
train_set = encode_pairs(training, german, english)
validation_set = encode_pairs(validation, german, english)
lengths = [len(pair.target) + 1 for pair in train_set[:160]]                 # <eos> counts
by_number = [lengths[i : i + 16] for i in range(0, 160, 16)]
by_tokens = [[lengths[i] for i in rows] for rows in batch_by_tokens(lengths, batch_tokens=150)]
figures.padded_batches({"16 sentences at random": by_number,
                        "150 tokens, similar lengths": by_tokens})
#| caption: The same 160 sentences in batches of 16 sentences (left) and of at most 150 tokens
#|   (right). Each box is a batch, each row a sentence.

# %% [raw] slide
# ## Similar lengths together, as many rows as fit
# {figure}
#
# The order of the batches is sampled anew for each epoch.

# %% [markdown]
# On the right, the rectangles are nearly full, and all but the last have nearly the same size. So every step takes
# about the same time and memory. `epoch_batches` samples a new order of the batches for each **epoch**; otherwise the
# model would always see the short sentences first.
#
# **Now you:** [a10](@training/assignment), the extension "Batches by tokens".

# %%
def first_batches(n, batch_tokens=256, seed=0):
    order = epoch_batches(train_set, batch_tokens, seed=seed, epoch=0)
    return [collate([train_set[i] for i in rows]) for rows in order[:n]]


source, source_lengths, target_in, target_out = first_batches(1)[0]
print("source", tuple(source.shape), "  target_in, target_out", tuple(target_in.shape))

# %% [markdown]
# `target_in` begins with `<bos>`, and `target_out` is the same row shifted by one token. This is **teacher forcing**
# ([lecture @cross_attention](@cross_attention)): at every position the decoder sees the true past, so it learns all
# positions at once.
#
# ## Loss: cross-entropy, label smoothing, calibration
#
# The loss is the **cross-entropy** of each next token, in nats, averaged over the real tokens (padding does not
# count). This loss reaches 0 only at an infinite logit, so its gradient keeps asking for more certainty long after the
# answer is right. **Label smoothing** ([@szegedy2016]) asks for slightly less certainty. Its target distribution $q$
# mixes the true token $y$ with a uniform distribution over all $V$ tokens ($[v = y]$ is 1 for $v = y$, otherwise 0):
#
# $$
# q_v = (1 - \varepsilon)\,[v = y] + \frac{\varepsilon}{V} \qquad
# \text{loss} = -\sum_v q_v \log p_v
# $$
#
# The loss is smallest where $p = q$, and there the logits are finite. In the figure, the vocabulary has 112 tokens,
# and the true token's logit exceeds all others, which are equal, by a margin. *At which margin is the loss smallest?*

# %% [raw] slide
# ## Label smoothing
# $$q_v = (1 - \varepsilon)\,[v = y] + \frac{\varepsilon}{V} \qquad\quad \text{loss} = -\sum_v q_v \log p_v$$
#
# > **Guess first.** The loss is smallest at a finite margin of the true logit. At which margin, for $V = 112$ and ε = 0.1?

# %% tags=["hide-input"]
margins, V = torch.linspace(0, 15, 301), 112
logits = torch.cat([margins[:, None], torch.zeros(301, V - 1)], dim=1)     # (301, V)  0 is true
truth = torch.zeros(301, dtype=torch.long)
smoothed = {share: F.cross_entropy(logits, truth, label_smoothing=share, reduction="none")
            for share in (0.0, 0.1, 0.3)}                                  # (301,) each
figures.smoothed_losses(smoothed, margins)
best = margins[smoothed[0.1].argmin()]
assert abs(best - math.log(0.9 * V / 0.1 + 1)) < 0.05, "where p equals q"
#| caption: Cross-entropy of one token against the margin of its logit, without (ε = 0) and with
#|   label smoothing, 112 tokens.

# %% [raw] slide
# ## More certainty costs
# {figure}
#
# Compare a smoothed training loss only with losses that are smoothed in the same way.

# %% [markdown]
# With ε = 0.1, the loss is smallest at a margin of
# $\ln(q_y / q_v) = \ln\bigl((1 - \varepsilon)V/\varepsilon + 1\bigr) = 6.9$, where $v$ is any other token. More
# certainty *costs*. Even at its minimum the loss is not zero: it is the entropy of $q$. So report the plain loss on
# held-out text.
#
# **Calibration** asks whether a model's confidence agrees with its accuracy. The **calibration gap** is the mean
# probability of the predicted tokens minus the share of them that are right. A positive gap means overconfidence. In
# this gap, over- and underconfident predictions can cancel; the **expected calibration error** (ECE) averages the
# *size* of the gap over ten bins of confidence, each weighted by its tokens.
#
# We train on only 100 pairs, so that the model overfits, once without smoothing and once with it. *Guess:* what does
# smoothing do?

# %%
config = TransformerConfig(vocab_size=len(german), target_vocab_size=len(english), d_model=64,
                           n_layers=1, n_heads=4, d_ff=128, dropout=0.0)


def new_model(seed=0):
    torch.manual_seed(seed)
    return EncoderDecoder(config).to(device)

# %% tags=["hide-input"]
@torch.no_grad()
def calibration(model, encoded):
    source, lengths, target_in, target_out = (x.to(device) for x in collate(encoded))
    p = model(source, lengths, target_in).softmax(dim=-1)                   # (batch, n, V)
    confidence, choice = p.max(dim=-1)                                      # (batch, n) each
    real = target_out != PAD
    right, confidence = (choice == target_out)[real].float(), confidence[real]     # (tokens,)
    bins = (10 * confidence).long().clamp(max=9)
    gaps = torch.zeros(10, device=device).index_add(0, bins, confidence - right)
    ece = gaps.abs().sum().item() / len(right)
    return right.mean().item(), (confidence - right).mean().item(), ece


for name, share in {"plain": 0.0, "ε = 0.1": 0.1}.items():
    model = new_model()
    train(model, train_set[:100],
          Recipe(steps=150, batch_tokens=256, lr=6e-3, warmup=20, schedule="cosine",
                 label_smoothing=share))
    right, gap, ece = calibration(model, validation_set[:500])
    loss = mean_loss(model, validation_set[:500])
    print(f"{name:>7}: right {right:.0%}, confidence {right + gap:.0%}, ECE {ece:.0%}, "
          f"loss {loss:.2f} nats per token")

# %% [markdown]
# Here smoothing removes the overconfidence. Is it a cure, or did ε = 0.1 happen to fit the error of this model? By the
# formula above, a model that is right about *every* token stops at a confidence of $q_y = 0.9 + 0.1/112 = 0.90$.
# *Guess:* what does smoothing do to the same model on 8,000 pairs? The figure comes from recorded runs with both
# sizes, longer training (400 steps of 1,024 tokens) and three seeds.

# %% tags=["hide-input"]
smoothing = results.measured("label_smoothing")
gaps, errors, accuracies = {}, {}, {}
for size, ways in smoothing["pairs"].items():
    found = {"plain" if share == "0" else f"ε = {share}": runs for share, runs in ways.items()}
    gaps[f"{int(size):,} pairs"] = here = {}
    for name, runs in found.items():
        here[name] = [run["confidence"] - run["right"] for run in runs]
        for what, kept in (("ece", errors), ("right", accuracies)):
            kept[size, name] = [100 * run[what] for run in runs]
        print(f"{int(size):>5,} pairs, {name:>7}:",
              "  right (%)", *[f"{100 * run['right']:.1f}" for run in runs],
              "  ECE (%)", *[f"{100 * run['ece']:.1f}" for run in runs],
              "  loss", *[f"{run['loss']:.3f}" for run in runs])
figures.paired_gaps(gaps)
#| caption: Calibration gap without and with label smoothing, after 400 steps on few pairs and
#|   on many. Lines join runs with the same seed.
#| label: calibration

# %% [raw] slide
# ## Calibration: confidence minus accuracy
# {figure}
#
# On few pairs, smoothing removes overconfidence. On many, it makes the model **under**confident: ε does not adapt to the error.
#
# **Now you:** a@training, exercise 1

# %% [markdown]
# * On 100 pairs, smoothing improves calibration. The plain model is 20 to 24 points overconfident; with ε = 0.1 the
#   ECE is 3 to 6 points.
# * On 8,000 pairs, smoothing spoils calibration. The plain model is right about 99.9 % of the tokens, and calibrated.
#   With ε = 0.1 the model is right just as often, but its confidence stops just below the 0.90 of the formula. It is
#   ten points **under**confident, and its plain loss is about 20 times as high.
#
# So label smoothing lowers confidence whether or not it was too high, because ε does not adapt to the size of the
# error. On 100 pairs, smoothing lowers the plain loss for every seed, but also the accuracy, by less than two points.
# Large networks tend to be overconfident ([@guo2017]), and then a well-chosen ε helps ([@muller2019]). The usual
# remedy after training is **temperature scaling** ([@guo2017]): divide all logits by one number, fitted on the
# validation set. In translation, ε = 0.1 is usual: with it, Vaswani et al. ([-@vaswani2017, section 5.4]) report worse
# perplexity but better BLEU.
#
# **Now you:** [a10](@training/assignment), exercise 1.

# %% tags=["hide-input"]
few, many = (list(gaps[size].values()) for size in ("100 pairs", "8,000 pairs"))
assert min(few[0]) > 0.20 and max(few[0]) < 0.245 and max(map(abs, many[0])) < 0.005
assert all(-0.11 < gap < -0.095 for gap in many[1])
assert min(errors["100", "ε = 0.1"]) > 2.5 and max(errors["100", "ε = 0.1"]) < 6
assert all(right > 99.85 for name in ("plain", "ε = 0.1") for right in accuracies["8000", name])
losses = [[run["loss"] for run in runs] for runs in smoothing["pairs"]["8000"].values()]
assert all(18 < smoothed / plain < 24 for plain, smoothed in zip(*losses, strict=True))
assert all(0 < plain - smoothed < 2 for plain, smoothed in zip(
    accuracies["100", "plain"], accuracies["100", "ε = 0.1"], strict=True))
losses = [[run["loss"] for run in runs] for runs in smoothing["pairs"]["100"].values()]
assert all(smoothed < plain for plain, smoothed in zip(*losses, strict=True))

# %% [markdown]
# ## The training loop in twenty lines
#
# What happens in one step? Some tensors are kept from one step to the next, others only within a step.

# %% [raw] slide
# ## The training loop
# > **Guess first.** Batch, activations, gradient, Adam's averages, weights: which must be kept from one step to the next?

# %%
figures.training_step()
#| caption: One training step, from the batch to the new weights: what is done (middle row), and
#|   how long each result is kept.
#| label: training-step

# %% [raw] slide
# ## One step
# {figure}

# %% [markdown]
# The weights and Adam's averages $m$ and $v$ are kept for the whole run. The activations are kept from the forward
# pass to the backward pass, and the gradient until AdamW has used it. In the code, `autocast` and `GradScaler` are for
# 16 bits (see *Number formats*); in float32 they do nothing.

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
# | `autocast` | matrix products in 16 bits; softmax, norms, losses in 32 |
# | `scale`, `unscale_` | keep small fp16 gradients from vanishing |
# | `clip_grad_norm_` | limit the harm that one unusual batch can do |
# | `lr_at`, `step` | how far, in which direction |
# | `zero_grad` | clear the gradient, because `backward` **adds** to it |

# %% [markdown]
# | line | what it is for |
# |---|---|
# | `.to(device)` | copy the batch from the CPU to where the model is (`non_blocking`: do not wait for the copy; this helps only from memory pinned by `pin_memory()`) |
# | `autocast` | matrix products in 16 bits; softmax, norms and losses in 32 (on a GPU) |
# | `scale`, `unscale_` | keep small fp16 gradients from vanishing |
# | `clip_grad_norm_` | limit the harm that one unusual batch can do |
# | `lr_at`, `step` | how far to go, and in which direction (*AdamW*) |
# | `zero_grad` | clear the gradient, because `backward` **adds** to it |
#
# **Gradient clipping** ([@pascanu2013]) treats the gradient of all parameters as one vector. If it is longer than a
# limit (1 in our loop), it is scaled down to the limit, in the same direction.
#
# Does clipping help? One parameter starts at 0, the minimum of $\theta^2/2$, and takes 100 steps with learning rate
# η = 0.01. Each gradient is θ plus noise of size 1, but one in the middle is −100. We clip at 5, which the noise does
# not reach. *Guess:* where does θ end with plain gradient descent (SGD), and where with AdamW, which divides gradients
# by their recent size (next section)?

# %% tags=["hide-input"]
def end_of(optimizer_class, max_norm, seed):
    noise = torch.randn(100, generator=torch.Generator().manual_seed(seed))
    theta = nn.Parameter(torch.zeros(1))
    optimizer = optimizer_class([theta], lr=0.01, weight_decay=0)
    for step in range(100):
        theta.grad = theta.detach() + noise[step] if step != 50 else torch.tensor([-100.0])
        nn.utils.clip_grad_norm_([theta], max_norm)
        optimizer.step()
    return theta.item()


ends = {}
for optimizer_class in (torch.optim.SGD, torch.optim.AdamW):
    for name, max_norm in {"not clipped": math.inf, "clipped at 5": 5.0}.items():
        here = [end_of(optimizer_class, max_norm, seed) for seed in range(3)]
        ends[optimizer_class, name] = here
        print(f"{optimizer_class.__name__:>5}, {name:>12}, three seeds: θ ends at",
              "  ".join(f"{end:5.2f}" for end in here))

# %% tags=["hide-input"]
assert min(ends[torch.optim.SGD, "not clipped"]) > 0.5
assert max(ends[torch.optim.SGD, "clipped at 5"]) < 0.2
free, cut = (ends[torch.optim.AdamW, name] for name in ("not clipped", "clipped at 5"))
assert all(one > other for one, other in zip(free, cut, strict=True))

# %% [markdown]
# With SGD, the single outlier moves θ by 100 · η = 1, and fifty steps later θ is still far from 0. With AdamW the
# outlier does little harm, but θ ends higher without clipping than with it, for every seed.
#
# Does the package's trainer do what our loop does, given the same model, batches and learning rates?

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
# Yes. The trainer also calls `model.train()` and `model.eval()`, so that dropout is on in training, and off in
# evaluation and translation. Most of these first gradients are longer than 1, so here the limit does more than catch
# outliers.
#
# ## AdamW, weight decay and the learning rate
#
# How far does a step of AdamW move each parameter? **Adam** ([@kingma2015]) keeps two running averages for every
# parameter: $m$ averages its gradient $g$, and $v$ averages $g^2$. They estimate the **first and second moment**;
# together they are the **optimiser state**. At each step, an average keeps a share β of itself, and the new value gets
# the rest.
#
# Both averages begin at zero, so at first they are too small: after two steps the gradients have a total weight of
# only $1 - 0.9^2 = 0.19$ in $m$. The **bias correction** divides each average by this total weight. Then the corrected
# $m$ is divided by the root of the corrected $v$; the result is the **ratio**. (A tiny $\epsilon$ is added to the
# root, so that nothing is divided by zero.)
#
# AdamW adds **decoupled weight decay** ([@loshchilov2019]): λθ is added to the ratio but enters neither average. The
# step subtracts η times this sum from the parameter.

# %%
betas, rate, decay, gradients = (0.9, 0.98), 0.01, 0.1, [1.0, -0.5]
numbers = figures.adamw_numbers(gradients, rate, decay, betas)
figures.adamw_step(numbers, rate, decay)
theta = nn.Parameter(torch.ones(1))
optimizer = torch.optim.AdamW([theta], lr=rate, betas=betas, eps=0, weight_decay=decay)
for gradient in gradients:
    theta.grad = torch.tensor([gradient])
    optimizer.step()
print(f"torch's AdamW: θ = {theta.item():.4f}")
assert abs(theta.item() - numbers["theta"]) < 1e-6
#| caption: AdamW's second step on a parameter that began at 1, with gradients 1, then −0.5
#|   (β₁ = 0.9, β₂ = 0.98, η = 0.01, λ = 0.1). The lower arrow is the decay alone.
#| label: adamw

# %% [raw] slide
# ## AdamW: two averages, a ratio, and decay beside it
# {figure}
#
# > **Guess first.** Gradients 0.001, 1 and 100. How far does each move in the *first* step with η = 0.01?
#
# . . .
# All by η: Adam divides each gradient by its own recent size.

# %% [markdown]
# The second gradient contradicts the first, so the ratio is only 0.27. Does the gradient's size matter? Three
# parameters start at 1, with gradients 0.001, 1 and 100. *Guess:* after one step of Adam with η = 0.01, how far has
# each moved?

# %%
theta = nn.Parameter(torch.ones(3))
theta.grad = torch.tensor([1e-3, 1.0, 100.0])
torch.optim.AdamW([theta], lr=0.01, weight_decay=0).step()
print("moved by", [round(x, 4) for x in (1 - theta.detach()).tolist()])

# %% [markdown]
# Each parameter has moved by η. Adam divides each gradient by its own recent size, so the step depends on the
# gradient's *sign*, and on how steady that sign is.
#
# Why is the decay outside the ratio? The older method, an **L2 penalty**, adds $\lambda\theta$ to $g$, so the decay is
# divided by the root of $v$ as well. Two rows of parameters start at 1. Their gradients are pure noise, small in one
# row and large in the other. *Guess:* which row does the penalty shrink?

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
# ## Decay outside the ratio
# {print}
#
# Inside the ratio, decay acts on small-gradient parameters alone. Only **matrices** are decayed.

# %% [markdown]
# Inside the ratio (`Adam`), decay shrinks parameters with small gradients and hardly touches those with large ones.
# Decoupled decay (`AdamW`) shrinks all parameters alike. Usually only **matrices** are decayed: a norm's gain belongs
# near 1, and pulling a bias towards zero does not make the model simpler.
#
# ### Schedules: warm-up, then down
#
# In the first steps, $v$ is an average of very few gradients, and a deep stack is easily destabilised ([lecture
# @deep_stacks](@deep_stacks)). So the learning rate first rises in a straight line (the **warm-up**) and then falls.

# %% tags=["hide-input"]
steps = range(1, 4001)
figures.learning_rates({
    "inverse square root": [1e-3 * inverse_sqrt(step, warmup=400) for step in steps],
    "cosine": [1e-3 * cosine(step, warmup=400, steps=4000) for step in steps],
}, warmup=400)
#| caption: Learning rate against the step for two schedules with a warm-up of 400 steps. Dots
#|   mark each schedule's peak and where it is down to half of it.
#| label: schedules

# %% [raw] slide
# ## Schedules: warm-up, then down
# {figure}

# %% [markdown]
# The **inverse square root** ([@vaswani2017, section 5.3]) falls slowly, and does not depend on the length of the run.
# The **cosine** ([@loshchilov2017]) needs this length, and ends at nearly zero. Many recent runs hold the rate and let
# it fall only at the end (**warm-up–stable–decay**, [@hu2024]).
#
# ### The learning-rate sweep
#
# The peak η is still missing, and no formula gives it. It is found by a **sweep**: equal runs at rates in nearly equal
# *ratios*, compared by their held-out loss. Our budget is 15 runs of 50 steps: five rates with three seeds each.
# *Guess:* how far apart do runs end if they differ in η alone? Is the loss curve steeper at low or at high rates?

# %% [raw] slide
# ## The learning-rate sweep
# > **Guess first.** Equal runs, rates in equal ratios. What shape has held-out loss against rate? Which side is steeper?

# %%
sweep, began = {rate: [] for rate in (1e-3, 3e-3, 1e-2, 3e-2, 1e-1)}, time.process_time()
for rate, final in sweep.items():
    lr_at = Recipe(steps=50, lr=rate, warmup=10, schedule="cosine").lr_at
    for seed in range(3):
        model = new_model(seed)
        train_loop(model, first_batches(50, seed=seed), lr_at)
        final.append(mean_loss(model.eval(), validation_set[:300]))
took = time.process_time() - began
print(f"{len(sweep)} rates × 3 seeds × 50 steps: {took:.0f} s of CPU time")
figures.rate_sweep(sweep)
#| caption: Held-out loss after 50 steps against the learning rate: a point for each seed
#|   (shifted sideways), the medians as a line and in numbers.
#| label: rate-sweep

# %% tags=["hide-input"]
assert min(sweep[1e-3]) > 2.9 and max(sweep[1e-2]) < 2.1

# %% [raw] slide
# ## A valley
# {figure}
#
# Take the bottom, or a little to its left. Sweep again when batch, width or schedule changes.
#
# **Now you:** a@training, exercises 2 and 3

# %% [markdown]
# The curve is a valley. The same model on the same batches ends at 3.1 nats per token with a rate of 0.001, and at 1.8
# with 0.01. On the left, the model has learned too little in 50 steps; on the right, the steps overshoot. Here both
# sides are about equally steep, and three seeds do not separate the two rates at the bottom. Take the rate with the
# lowest loss, or a slightly lower one. Sweep again when the batch size, the width, the schedule or the number of steps
# changes.
#
# <details><summary>A first guess when the batch grows</summary>For a batch <i>k</i> times as large, multiply the rate
# by about √<i>k</i> with Adam ([@malladi2022] derive this rule), and by <i>k</i> with SGD ([@goyal2017]). Beyond some
# batch size, a larger batch no longer saves steps ([@shallue2019]).</details>
#
# **Now you:** [a10](@training/assignment), exercises 2 and 3.
#
# **Half-way.** The run is right. This is a good place to stop for today.
#
# ## A GPU's time
#
# How long will the run on captions take? To predict that, we need to know how a GPU spends its time. A GPU is a second
# computer with its own memory. The program runs on the CPU, and for each operation it **launches a kernel**: it asks
# the GPU to run one function.
#
# **First: both operands must be on the same device.** In the cell, the model and the batch are on different devices.
# (The device "meta", which every machine has, keeps shapes but no numbers.)

# %%
left_behind = EncoderDecoder(config).to("meta")
try:
    left_behind.loss(*first_batches(1)[0])
except RuntimeError as error:
    print(error)

# %% [raw] slide
# ## A GPU's time: three things
# 1. Both operands must be on the same device.
# 2. Launches are **asynchronous**: to time, `synchronize`. Anything that needs a value waits: `.item()`.
# 3. A launch costs time, say 5 µs.
#
# > **Guess first.** What happens when the GPU needs only 2 µs to run a kernel?

# %% [markdown]
# **Second: launches are asynchronous.** A call returns as soon as the kernel is in the queue. Before you read the
# clock, wait with `synchronize`; otherwise you measure only the launch.

# %%
# On a CPU, count this program's time alone: others may be running.
clock = time.process_time if device.type == "cpu" else time.perf_counter


def seconds(work, repeats=5, wait=True, first=True):
    if first:
        work()                                            # the first call prepares things
    hardware.synchronize(device)
    started = clock()
    for _ in range(repeats):
        work()
    if wait:
        hardware.synchronize(device)
    return (clock() - started) / repeats


side = 1024 if device.type == "cpu" else 4096              # a GPU needs more to do
x = torch.randn(side, side, device=device)
multiply = partial(torch.matmul, x, x)                    # call it, and it multiplies x by x
for wait in (False, True):
    print(f"wait={wait}: {1000 * seconds(multiply, wait=wait):.2f} ms per product")

# %% [markdown]
# A CPU has no queue, so there the two times are about the same. On a GPU, we predict that the first time is much
# shorter. **Anything that needs a value waits, too**: `.item()`, `print(loss)`, `if loss > 3`.
#
# **Third: a launch costs time.** A bare launch takes the CPU a few microseconds; we assume 5 µs. *Guess* what happens
# when the GPU needs only 2 µs to run a kernel.

# %%
figures.launches({"kernels of 10 µs": 10, "kernels of 2 µs": 2}, launch=5, n=6)
#| caption: A CPU that launches six kernels, 5 µs for each, and a GPU that runs them in order.

# %% [raw] slide
# ## Overhead-bound
# {figure}
#
# A GPU twice as fast would train no faster. Larger batches make larger kernels.

# %% [markdown]
# With long kernels, the GPU is always busy. With short kernels, it mostly waits for the next launch. A GPU twice as
# fast would train no faster: the step is **overhead-bound**. How many operations does a step take? Every operation
# passes through torch's dispatcher, so we count there. The model is the one for captions (the package's profile
# `gpu`).

# %% tags=["hide-input"]
class CountOperations(TorchDispatchMode):
    n = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.n += not function.is_view                    # a view costs the GPU nothing
        return function(*args, **(kwargs or {}))

# %%
captions = TransformerConfig(vocab_size=10_000, d_model=256, n_layers=4, n_heads=4, d_ff=1024)
rows, lengths = torch.full((8, 14), 5, device=device), torch.full((8,), 14, device=device)
captions_model = EncoderDecoder(captions).to(device)
with CountOperations() as operations:
    captions_model.loss(rows, lengths, rows, rows).backward()
launching = 5e-6 * operations.n
print(f"{operations.n} operations; prediction: {1000 * launching:.1f} ms per step to launch")

# %% [markdown]
# We counted the forward and backward pass, without clipping and AdamW. The number of operations does not depend on the
# batch, so overhead matters less in larger batches. Which **throughput**, in tokens per second, does *this* device
# reach?

# %% tags=["hide-input"]
formats = {"cpu": ["float32", "bf16"], "mps": ["float32"],
           "cuda": ["float32", "tf32", "bf16", "fp16"]}


def tokens_per_second(batch_tokens, number_format):           # measured three times
    n = max(1, 256 // batch_tokens)                           # small batches: more steps
    torch.set_float32_matmul_precision("high" if number_format == "tf32" else "highest")
    batches = first_batches(1, batch_tokens) * n
    run = partial(train_loop, new_model(), batches, recipe.lr_at, number_format)
    tokens = sum(int((target_out != PAD).sum()) for *_, target_out in batches)
    run()                                                     # the first call prepares things
    return [tokens / seconds(run, repeats=1, first=False) for _ in range(3)]


sizes = (32, 128, 512, 2048)
speeds = {number_format: {size: tokens_per_second(size, number_format) for size in sizes}
          for number_format in formats[device.type]}
figures.throughput(speeds)
#| caption: Target tokens per second on this device against the tokens in a batch: each
#|   measurement (shifted sideways), and lines through the medians.

# %% [raw] slide
# ## Throughput against batch size
# {figure}

# %% [markdown]
# Throughput rises with the batch size. Where the curve levels off, a larger batch gives fewer steps per hour but no
# more tokens. bf16 is not always faster than float32: on the saved page, made on a CPU, it is slower.
#
# ### Number formats: fp32, TF32, bf16, fp16
#
# We predict 2.9 ms per step for launching. How long does computing take? That depends on the number format: with
# special units, the **tensor cores**, GPUs multiply matrices in 16 bits several times as fast as in float32. A format
# divides its bits between range (the **exponent**) and digits (the **fraction**). *Which would you rather lose?*

# %% [raw] slide
# ## Number formats: range or digits?
# > **Guess first.** 16 bits can be spent on range or on digits. Which would you rather lose?

# %%
figures.number_formats({"fp32": (8, 23, 0), "TF32": (8, 10, 13),        # exponent, fraction,
                        "bf16": (8, 7, 0), "fp16": (5, 10, 0)})         # and bits not used
#| caption: A box for each bit; S is the sign. The exponent decides how large and how small
#|   (above 0, subnormal numbers included) a number can be.
#| label: number-formats

# %% [raw] slide
# ## Where the bits go
# {figure}
#
# > **Guess first.** What happens to 70,000, to 10⁻⁸ and to 1 + 1/512 in bf16 and in fp16?

# %% [markdown]
# **TF32** stores numbers as float32 and multiplies them with ten bits of fraction;
# `torch.set_float32_matmul_precision("high")` switches it on. *Predict from the picture:* in bf16 and in fp16, what
# happens to a large score of 70,000, to a small gradient of 10⁻⁸, and to 1 + 1/512?

# %%
numbers = torch.tensor([70_000.0, 1e-8, 1 + 1 / 512])
print("format    eps       large score  small gradient  1 + 1/512")
for name, dtype in {"float32": torch.float32, **HALF}.items():
    score, small, near_one = numbers.to(dtype).tolist()
    eps = torch.finfo(dtype).eps
    print(f"{name:<8}  {eps:.1e}   {score:<11.7g}  {small:<14.7g}  {near_one:.7g}")

scale = 2**16
scaled = (numbers[1] * scale).to(torch.float16)           # multiplied before it is rounded
print(f"the small gradient in fp16, scaled and unscaled: {scaled.float() / scale:.1e}")

# %% [raw] slide
# ## fp32, bf16, fp16
# {print}
#
# **fp16** overflows, and loses small gradients without **loss scaling**. **bf16** has the range but few digits: parameters, averages and sums stay in 32 bits (**mixed precision**).

# %% [markdown]
# **fp16** turns the large score into infinity, and the small gradient into zero. The remedy for lost gradients is
# **loss scaling** ([@micikevicius2018]). Multiply the loss, and so all gradients, by a large number. Before the step,
# divide the gradients by it in 32 bits. If something overflowed, skip the step and lower the scale.
#
# **bf16** has the range of float32 and needs no scaling, so use it where the hardware has it. But 1 + 1/512 needs nine
# bits of fraction; bf16 has seven, so it rounds the number to 1. In one place such rounding matters. *Guess:* start at
# 1 and subtract 0.001 a thousand times. Where do you end up?

# %%
weight, low, update = torch.tensor(1.0), torch.tensor(1.0, dtype=torch.bfloat16), 1e-3
for _ in range(1000):
    weight, low = weight - update, low - update
print(f"in float32 {abs(weight):.3f}, in bf16 {low:.3f}")
assert low == 1

# %% [markdown]
# In bf16 the weight has not moved: just below 1, neighbouring numbers are eps/2 apart, and each update is less than
# half of that. So parameters and Adam's averages stay in 32 bits, and on a GPU `autocast` also keeps softmax, norms
# and losses in 32 bits. The matrix products are computed in 16 bits, and their results stay in 16 bits through simple
# operations such as ReLU and dropout. This is **mixed precision**.
#
# **Now you:** [a10](@training/assignment), the extension "Loss scaling".
#
# ### The roofline: memory-bound or compute-bound
#
# Apart from overhead, an operation needs time for computing and for moving its operands between memory and processors.
# Both happen at the same time, so the slower one counts (the **roofline model**, [@williams2009]):
#
# $$
# \text{time} \;\ge\; \max\left(\frac{\text{FLOPs}}{\text{peak FLOP/s}},\; \frac{\text{bytes}}{\text{bandwidth}}\right)
# $$
#
# The **arithmetic intensity**, FLOPs per byte moved, decides which is slower. The figure puts parts of a training step
# of the captions model under the roofs of three GPUs (`CHIPS` names the data sheets). A product of $(m, k)$ and
# $(k, n)$ in 16 bits, for example, has $2mkn$ FLOPs and moves $2(mk + kn + mn)$ bytes. *Guess* which parts lie left of
# the corner, where the slope ends.

# %% [raw] slide
# ## The roofline
# $$\text{time} \;\ge\; \max\left(\frac{\text{FLOPs}}{\text{peak FLOP/s}},\; \frac{\text{bytes}}{\text{bandwidth}}\right)$$
#
# **Arithmetic intensity**: FLOPs per byte moved.
#
# > **Guess first.** Feed-forward product, LayerNorm, attention, AdamW: which lie left of the corner, **memory-bound**?

# %% tags=["hide-input"]
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
#| caption: Rooflines from data sheets; the flat roofs hold for 16-bit matrix products. Shaded
#|   blue: memory-bound on all three chips; red: compute-bound on all three.
#| label: roofline

# %% tags=["hide-input"]
for name, chip in CHIPS.items():
    flops, moved = work["feed-forward"]
    computing, moving = flops / chip.flops["fp16"], moved / chip.bandwidth
    print(f"prediction, {name:>4}: feed-forward product, computing {1e6 * computing:.0f} µs, "
          f"moving {1e6 * moving:.0f} µs; corner at {chip.balance['fp16']:.0f} FLOPs per byte")

# %% [raw] slide
# ## Under three roofs (from data sheets)
# {figure}

# %% [markdown]
# Under the slope, an operation is **memory-bound**: the processors wait for bytes. Under the flat roof, it is
# **compute-bound**.
#
# * LayerNorm, AdamW and the attention of short sentences are far to the left on every chip.
# * Our narrow feed-forward product lies within two percent of the corner on T4 and A100, and left of it on the H100.
#   Wider matrices lie further to the right, which is one reason why large models use a GPU better.
# * A feed-forward product for one token, as in decoding, reaches less than a hundredth of the peak.
#
# ## A GPU's memory
#
# Does the run fit into memory at all? We take one step and count the bytes per parameter.

# %%
model, batch = new_model(), [x.to(device) for x in first_batches(1)[0]]
optimizer = torch.optim.AdamW(model.parameters())
model.loss(*batch).backward()
optimizer.step()
n = sum(p.numel() for p in model.parameters())
print("bytes per parameter: weights", sum(p.nbytes for p in model.parameters()) / n,
      "gradient", sum(p.grad.nbytes for p in model.parameters()) / n)
for name, average in {"m": "exp_avg", "v": "exp_avg_sq"}.items():
    print(name, sum(optimizer.state[p][average].nbytes for p in model.parameters()) / n)

# %% [raw] slide
# ## A GPU's memory: 16 bytes per parameter
# {print}
#
# Weights, gradient, and Adam's two averages. On top: the **activations**.

# %% [markdown]
# **16 bytes per parameter**: weights, gradient and Adam's two averages take four bytes each. Autocast does not shrink
# this; within a step it adds 16-bit copies of the weights. For seven billion parameters, 16 bytes each are 112 GB.
#
# These 16 bytes are the **state**. On top come the **activations**: everything that the forward pass keeps for
# `backward`. A folded function adds up the tensors that autograd saves. It runs on the meta device, so it works even
# for batches that would never fit here. *Guess:* for our captions model with 8,192 tokens on each side, which is
# larger, the state or the activations?

# %% tags=["hide-input"]
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
        "state": 16 * count_parameters(model_config, EncoderDecoder).total,
        "activations": activation_bytes(model_config, tokens),
    }

sizes_of = {f"captions, {size:,} tokens": memory(captions, size)
            for size in (8192, 65_536, 131_072)}
sizes_of["Transformer (big), 2017, 8,192 tokens"] = memory(preset("vaswani big").config, 8192)
figures.memory_bars(sizes_of, {"T4": CHIPS["T4"].memory},
                    {"captions, 8,192 tokens": kept_run["training_memory_bytes"]})
kept = activation_bytes(captions, 8192)
fits = 8192 * (CHIPS["T4"].memory - 16 * n_weights) / kept
print(f"{kept / 8192 / 1e3:.0f} kB per token (of source and of target) in float32; "
      f"prediction: about {round(fits, -4):,.0f} tokens fill a T4's 16 GB")
#| caption: Predicted memory of one training step in float32: the state (16 bytes per parameter)
#|   and the activations. Diamond: the run's peak on an H200, in bf16.

# %% [raw] slide
# ## Activations grow with batch and model, the state with the model
# {figure}

# %% [markdown]
# For our captions model, the activations are nearly everything. For Transformer (big) of 2017, with 214 M parameters,
# the state is more than a quarter. Activations grow with the batch *and* the model, the state with the model alone.
#
# <details><summary>Does the prediction of 1.7 GB hold on a real GPU?</summary>No. The run on an H200 below took 2.2 GB
# at peak, although it ran in bf16, where activations need less than in the float32 of our prediction. The prediction
# leaves out the running average of the weights (9.9 M × 4 bytes = 40 MB), dropout in the attention, and the gradients
# of activations. The logits' gradient alone takes 8,192 × 10,000 × 4 bytes = 0.33 GB in float32. We did not measure
# what each part contributes.</details>
#
# What happens if memory runs out?

# %% tags=["hide-input"]
try:
    torch.empty(10**15, device=device)                    # four petabytes
except RuntimeError as error:
    print(str(error)[:140])

# %% [raw] slide
# ## Out of memory: three common ways out
# 1. **Gradient accumulation**: the batch in parts; with which weights?
# 2. **Activation checkpointing**: keep each block's input, compute it again on the way back.
# 3. **Sharding**: each GPU keeps a slice of the state.
#
# **Now you:** a@training, exercise 4

# %% [markdown]
# **Out of memory.** Three common ways out leave the gradient as it was, if they are done right.
#
# 1. **Gradient accumulation**: compute the batch in parts (*micro-batches*), one after the other; `backward` adds up.
# 2. **Activation checkpointing** ([@chen2016]): keep only each block's input, and compute the block again on the way
#    back. The price is one more forward pass, about a third more computing.
# 3. **Sharding**: each of several GPUs keeps a slice of the state (see *Several GPUs*).
#
# We try the first two on one batch. For accumulation, we cut it into two parts and give them equal weights. *Guess:*
# is this right? By which factor does checkpointing shrink the activations? (A third gradient is computed in bf16.)

# %%
def gradient_of(model, parts, share, precision="float32"):
    """The gradient of a batch in parts, one long vector; `share(part)` is a part's weight."""
    model.zero_grad()
    for part in parts:
        with torch.autocast(device.type, HALF.get(precision), enabled=precision in HALF):
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
in_parts = gradient_of(model, parts, lambda part: 1 / len(parts))
recomputed = gradient_of(with_checkpoints(model), [whole], lambda part: 1)
rounded = gradient_of(model, [whole], lambda part: 1, "bf16")


def off(gradient):
    return ((gradient - expected).norm() / expected.norm()).item()


print(f"accumulation:  gradient off by {off(in_parts):.0e}")
less = activation_bytes(captions, 8192, recompute=True)
print(f"checkpointing: gradient off by {off(recomputed):.0e}; "
      f"activations of 8,192 tokens {kept / 1e9:.2f} → {less / 1e9:.2f} GB")
print(f"bf16 autocast: gradient off by {off(rounded):.0e}")
assert off(recomputed) < 1e-4 < off(rounded) < 0.02 < off(in_parts)

# %% [raw] slide
# ## Does the gradient stay as it was?
# {print}
#
# bf16 rounds. But why is our accumulation so far off?

# %% [markdown]
# Checkpointing gives the expected gradient up to rounding, and cuts activation memory to less than a third. In bf16,
# coarser rounding puts the gradient off by about 1 %. Our accumulation is wrong. Each loss is a *mean* over the part's
# own tokens, so which weights do the parts need?
#
# **Now you:** [a10](@training/assignment), exercise 4, which adds accumulation. Do it now: the section *Several GPUs*
# gives the answer away.
#
# ## FLOPs, 6N and MFU
#
# The forecast needs one more number: how much arithmetic is a step? Each weight is used once per token forward (a
# multiplication and an addition: 2 FLOPs) and twice backward, for the gradients of input and weight. Together that is
# **6 FLOPs per parameter and token**, $6N$ ([@kaplan2020]). *Guess:* does the rule hold for an encoder–decoder, where
# a token meets only half of the model?

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
# > **Guess first.** Matrix products are nearly all of the FLOPs. What share of the *bytes*? Of the *time*?

# %% [markdown]
# The rule holds here if you count *pairs* of a source and a target token. Together they meet every weight once,
# because the token embeddings and the output projection share one matrix (**weight tying**). (Kaplan's $N$ leaves out
# the embeddings.)
#
# **Model FLOPs utilisation** (MFU, [@chowdhery2022]) is the model's FLOP/s, by this count, divided by the device's
# peak. A folded cell computes ours. (On a CPU, the speed of one large product counts as the peak.)

# %% tags=["hide-input"]
chip = hardware.chip_of(device)
peak = chip.flops["float32"] if chip else 2 * side**3 / seconds(multiply)
batch = first_batches(1, batch_tokens=1024)[0]
shape = (*batch.source.shape, batch.target_in.shape[1])   # sentences, source and target length
flops = count_training_flops(config, EncoderDecoder, *shape)
took = seconds(partial(train_loop, new_model(), [batch] * 3, recipe.lr_at)) / 3
mfu = flops / took / peak
print(f"{1000 * took:.0f} ms per step, peak {peak / 1e9:,.0f} GFLOP/s: MFU {mfu:.1%}")

# %% [markdown]
# ### Forecast of the training time: 5 seconds
#
# **How long does it take to train on Multi30k?** The run has 1,800 steps of 8,192 tokens. We *assume* that the GPU
# reaches 20 % of its peak while it computes. (PaLM, a far wider model, had an MFU of 46 %, waiting included,
# [@chowdhery2022].) The CPU launches while the GPU computes, so the slower of the two counts. (*The profiler* will
# count bytes.)
#
# <details><summary>The rest of the recipe: the package's profile <code>gpu</code></summary>AdamW has no weight decay.
# Its rate peaks at 0.002 after 800 steps of warm-up, and then falls as the inverse square root. Dropout is 0.3 (0.1 in
# the attention), label smoothing 0.1, and the number format bf16. The weights are averaged with a decay of 0.998.
# There is one seed, and the rate was not swept for this run.</details>

# %% tags=["hide-input"]
assumed_share, steps = 0.20, 1800        # of the peak, while the GPU is busy
print(f"at 14 tokens per caption: at most {steps * 8192 / 14 / 29_000:.0f} epochs")
predicted = {}
for name, chip in CHIPS.items():
    number_format = "bf16" if "bf16" in chip.flops else "fp16"
    computing = step_flops / (assumed_share * chip.flops[number_format])
    predicted[name] = steps * max(computing, launching)
    print(f"prediction, {name:>4}, {number_format}: {predicted[name]:.0f} s "
          f"(ms per step: computing {1000 * computing:.1f}, launching {1000 * launching:.1f})")

# %% [markdown]
# ### Measured training time: 86 seconds
#
# On one H200, which computes as fast as an H100, the run took 86 s. *Guess first:* which assumption failed: the 20 %
# of the peak, the number of operations, or the 5 µs per launch?

# %% tags=["hide-input"]
measured_seconds = kept_run["training_seconds"]
times = measured_seconds / predicted["H100"]
run_ms = 1000 * measured_seconds / steps
print(f"{kept_run['device_name']}, {kept_run['steps']:,} steps: {measured_seconds:.0f} s, "
      f"{times:.0f} times the prediction; {run_ms:.0f} ms per step; "
      f"{kept_run['training_memory_bytes'] / 1e9:.1f} GB at most")
print(f"BLEU {kept_run['bleu']:.1f} (test set of 2016, {kept_run['measured']['beams']} beams; "
      f"the validation set's curve ends at {looks[-1]['bleu']:.1f})")
print("command:", kept_run["command"].replace(" --source", " \\\n           --source"))

in_bf16, in_tf32 = (kept_run["step"][number_format] for number_format in ("bf16", "float32"))
rows = {"predicted, bf16": (1000 * launching, 1000 * computing)}     # (whole step, GPU busy)
for name, step in {"a step alone, TF32": in_tf32, "a step alone, bf16": in_bf16}.items():
    rows[name] = step["ms"], step["gpu_busy_ms"]
    print(f"{name}: {step['operations']:,} operations, {step['kernels']:,.0f} kernels, "
          f"{1000 * step['ms'] / step['kernels']:.0f} µs for each "
          f"(GPU busy: {1000 * step['gpu_busy_ms'] / step['kernels']:.0f} µs)")
stamps = [0.0, *(at["seconds"] for at in kept_run["curve"])]         # without evaluations
blocks = [1000 * (end - start) / 300 for start, end in pairwise(stamps)]
late_ms = sum(blocks[-2:]) / 2
rows["a step of the run, mean"] = run_ms, None
print(f"the run: {blocks[0]:.0f} ms per step in the first 300, {late_ms:.0f} in the last 600")
whole, busy = (step_flops / (1e-3 * in_bf16[what]) / CHIPS["H100"].flops["bf16"]
               for what in ("ms", "gpu_busy_ms"))
print(f"bf16: MFU {whole:.1%}; while the GPU is busy, {busy:.1%} of its peak")
figures.step_times(rows)
#| caption: Milliseconds of a training step: predicted for an H100, and measured on an H200 for
#|   a step alone and for the run.
#| label: step-times

# %% tags=["hide-input"]
assert kept_run["steps"] == steps and 2.1e9 < kept_run["training_memory_bytes"] < 2.3e9
assert 0.04 < busy < 0.06 and in_bf16["operations"] == 1041 and in_tf32["operations"] == 679
assert kept_run["steps"] == steps and predicted["H100"] == steps * launching
assert 14 < times < 22 and in_bf16["kernels"] > 2 * operations.n
assert in_bf16["gpu_busy_ms"] < in_bf16["ms"] / 2.9 and in_tf32["ms"] < 0.85 * in_bf16["ms"]
assert round(in_bf16["kernels"]) == 1356 and in_tf32["gpu_busy_ms"] > in_bf16["gpu_busy_ms"]
assert round(1000 * in_bf16["ms"] / in_bf16["kernels"]) == 22
assert round(measured_seconds) == 86 and round(predicted["H100"]) == 5
assert in_bf16["operations"] - in_tf32["operations"] == 362
factors = in_bf16["kernels"] / operations.n, in_bf16["ms"] / in_bf16["kernels"] / 5e-3
factors = *factors, run_ms / in_bf16["ms"]
assert [round(factor, 1) for factor in factors] == [2.3, 4.5, 1.6] and operations.n == 580
assert abs(math.prod(factors) - times) < 1e-6 and round(times) == 16 and round(100 * busy) == 5
assert round(100 * whole, 1) == 1.6 and round(in_bf16["ms"]) == 31
assert round(run_ms) == 48 and name == "a step alone, bf16" and len(blocks) * 300 == steps
assert [round(ms) for ms in blocks] == [77, 51, 46, 42, 32, 37] and round(late_ms) == 35

# %% [raw] slide
# ## Predicted 5 seconds, measured 86
# {figure}
#
# 1,356 kernels, not 580 operations; 22 µs for each, not 5. **Overhead-bound**, as predicted.

# %% [markdown]
# The run took 16 times as long as predicted. Look at the third bar, a step alone in bf16: the GPU is busy for a third
# of the time and waits for the CPU otherwise. As predicted, the step is overhead-bound. Yet all three assumptions were
# wrong.
#
# | assumption | assumed | measured, bf16 | where the difference comes from |
# |---|---|---|---|
# | share of the peak, while the GPU is busy | 20 % | 5 % (MFU: 1.6 %) | many bytes are moved for few FLOPs (next section, in TF32); we did not measure how the busy time divides |
# | launches in a step | 580 (counted: forward and backward, float32) | 1,356 | the whole step has 679 operations in TF32 (clipping and AdamW, among others); autocast adds 362; some operations launch several kernels |
# | time per launch | 5 µs | 22 µs | Python, autograd and the dispatcher work before each launch (a guess) |
#
# The factor of 16 is 2.3 (1,356 launches, not 580) × 4.5 (22 µs each, not 5) × 1.6 (a step of the run takes 48 ms, a
# step alone 31). The wrong 20 % plays no part: even at 5 % the GPU needs only 10 of the 31 ms.
#
# The step in TF32 fits this diagnosis: the GPU is busy for *longer* than in bf16, but without casts there are fewer
# kernels, so the step is shorter.
#
# <details><summary>Why the run's steps took 48 ms on average, and what the evidence is</summary>In the run, a step
# also makes the batch, moves it to the GPU and averages the weights. This should take the same time in every step. But
# the means over blocks of 300 steps were 77, 51, 46, 42, 32 and 37 ms. So most of the excess fades; we did not measure
# its cause. (At the 35 ms of the last 600 steps, the whole run would take 63 s.) The evidence is one card, one run of
# 1,800 steps, and a separate measurement of single steps without label smoothing.</details>
#
# > **Check yourself.** If you double the assumed 20 %, the first prediction for the fastest chip does not change. What
# > would make training faster on this chip?
# > <details><summary>Answer</summary>Fewer and larger kernels: a larger batch with fewer steps (and a new sweep), or
# > <code>torch.compile</code>, whose minutes of compiling pay off in a long run. A <b>CUDA graph</b> also helps: it
# > records all launches of a step once and replays them with one (<code>mode="reduce-overhead"</code>; it needs batches
# > of fixed shapes). A faster CPU helps, too. A still faster GPU would change nothing.</details>
#
# **Now you:** [a10](@training/assignment), the extension "What a step costs".
#
# ## The profiler: where does the time go?
#
# Launching explains why the GPU waits. What does it do in the rest of the step? A **profiler** records the time of
# every operation. We profile steps of the captions model on *this* device and sort the operations into classes.
# Besides their time, the figure shows two counts of the same step: FLOPs, and bytes read and written. *Guess:* the
# matrix products are 99 % of the FLOPs. What are their shares of the bytes and of the time?

# %% tags=["hide-input"]
CLASSES = {                                               # the first class with a fitting word
    "matrix products": ("::mm", "::addmm"),
    "logits' softmax, loss": ("log_softmax", "nll_loss"),
    "attention": ("attention", "softmax", "bmm"),
    "LayerNorm": ("layer_norm",),
    "AdamW, clipping": ("adamw", "foreach", "vector_norm"),
    "element-wise, rest": ("",),                          # sums, dropout, ReLU, copies …
}


def class_of(operation):
    for kind, words in CLASSES.items():
        if any(word in operation.lower() for word in words):
            return kind


class CountWork(TorchDispatchMode):
    """Counts, by class of operations, the bytes read and written and the numbers written."""

    def __init__(self):
        super().__init__()
        self.moved, self.written = dict.fromkeys(CLASSES, 0), dict.fromkeys(CLASSES, 0)

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        if not function.is_view and "view" not in function.name():
            kind = class_of(function.name())
            for x in tree_leaves((args, result)):
                self.moved[kind] += x.nbytes if isinstance(x, torch.Tensor) else 0
            for x in tree_leaves(result):
                self.written[kind] += x.numel() if isinstance(x, torch.Tensor) else 0
        return result


def count_work(batch):
    """FLOPs and bytes of a step; outside the matrix products a FLOP for each number written."""
    with CountWork() as counted:
        train_loop(captions_model, [batch], recipe.lr_at)
    sentences, n = batch[0].shape
    forward = count_flops(captions, EncoderDecoder, sentences, n, n)
    in_attention, all_of_them = 3 * forward.scores_and_average, 3 * sum(forward)
    products = {"attention": in_attention, "matrix products": all_of_them - in_attention}
    return {"FLOPs": counted.written | products, "bytes": counted.moved}

# %% tags=["hide-input"]
ids, ends = torch.full((72, 14), 5), torch.full((72,), 14)
batch = (ids, ends, ids, ids)                             # source, its lengths, target in, out
counted = count_work(batch)                               # folded above; it also warms up
with torch.profiler.profile() as profile:
    train_loop(captions_model, [batch] * 2, recipe.lr_at)
spent = dict.fromkeys(CLASSES, 0)
for row in profile.key_averages():
    if device.type != "cuda":
        spent[class_of(row.key)] += row.self_cpu_time_total
    elif row.key.startswith("aten::"):                    # a kernel's time is its operation's
        spent[class_of(row.key)] += row.self_device_time_total
figures.class_shares({**counted, f"time on this device ({device.type})": spent})
#| caption: A training step of the captions model, 1,008 tokens, float32: the share of each
#|   class in FLOPs and bytes (counted), and in time (on the saved page, on a CPU).
#| label: classes

# %% [raw] slide
# ## Where does the time go?
# {figure}

# %% tags=["hide-input"]
flops, moved = (sum(counted[what].values()) for what in ("FLOPs", "bytes"))
h200 = replace(CHIPS["H100"], bandwidth=4.8e12)           # computes as an H100 does
by_flops = 1000 * step_flops / h200.flops["tf32"]
by_bytes = 1000 * moved * tokens / ids.numel() / h200.bandwidth
print(f"this step: {flops / moved:.0f} FLOPs per byte; the H200's corner in TF32: "
      f"{h200.balance['tf32']:.0f} FLOPs per byte")
print(f"8,192 tokens on an H200: FLOPs {by_flops:.1f} ms, bytes at most {by_bytes:.1f} ms; "
      f"measured, GPU busy: {in_tf32['gpu_busy_ms']:.1f} ms")
busy_in_tf32 = by_flops / in_tf32["gpu_busy_ms"]          # at full speed, and measured
print(f"in TF32, while the GPU is busy: {busy_in_tf32:.0%} of its peak; "
      f"waiting for bytes alone would allow {by_flops / by_bytes:.0%}")
share_of = {what: amounts["matrix products"] / sum(amounts.values())
            for what, amounts in {**counted, "time": spent}.items()}
print("matrix products:", ", ".join(f"{part:.0%} of {what}" for what, part in share_of.items()))

# %% [markdown]
# On the saved page's CPU, the matrix products take most of the time, but move less than a third of the bytes. Most
# bytes belong to operations with hardly any FLOPs: they read a tensor, do one thing to each number, and write it back.
# The remedy is **kernel fusion**: one kernel reads the tensor, does several operations in the chip's fast memory, and
# writes once. Fusion saves bytes *and* launches. `torch.compile` looks for such chains, `fused=True` fuses AdamW, and
# FlashAttention ([@dao2022]) fuses attention, so that its scores never reach memory.
#
# The profile looks different on a machine that waits for bytes. Does the H200? Our step has 22 FLOPs per byte, and the
# corner of the H200's roof in TF32 lies at 103 (its bandwidth is 4.8 TB/s, [data
# sheet](https://www.nvidia.com/en-us/data-center/h200/)).
#
# * Computing waits for the bytes, if each tensor goes to memory and back (some fit into the chip's cache).
# * At the data sheet's full bandwidth, the bytes explain only a part of the busy time: 4.6 of the 11.8 ms. They would
#   still allow 22/103 = 21 % of the peak, and the busy GPU reaches 8 %.
# * Real kernels move bytes more slowly than that, so bytes may explain more, but our record does not say how much.
#
# On a GPU, also look for gaps in which it waits for data, and for values read in every step (`.item()` appears as
# `aten::_local_scalar_dense`).
#
# With these measurements we can **forecast again** for the three data sheets. We *assume* that all of the GPU's busy
# time grows as the bandwidth shrinks. This is a guess: we know only what the bytes would take at full bandwidth. Where
# the CPU is slower than the GPU, we take 48 ms per step, the mean of the run.

# %% tags=["hide-input"]
busy_ms, forecast = in_bf16["gpu_busy_ms"], {}
for name, chip in CHIPS.items():
    forecast[name] = busy_ms * h200.bandwidth / chip.bandwidth
    longer = max(forecast[name], run_ms)
    print(f"second forecast, {name:>4}: GPU busy {forecast[name]:.0f} ms per step, measured "
          f"mean {run_ms:.0f} ms; the run {steps * longer / 60_000:.1f} minutes")

# %% tags=["hide-input"]
assert 20 < flops / moved < 25 and round(h200.balance["tf32"]) == 103
assert round(100 * busy_in_tf32) == 8 and round(by_flops, 1) == 1.0
assert device.type != "cpu" or (round(flops / moved), round(by_bytes, 1)) == (22, 4.6)
assert share_of["FLOPs"] > 0.98 and share_of["bytes"] < 1 / 3
assert device.type != "cpu" or share_of["time"] > 0.5
assert forecast["T4"] > 3 * run_ms and forecast["H100"] < forecast["A100"] < run_ms
assert round(steps * late_ms / 1000) in (62, 63) and round(busy_ms, 1) == 10.3
assert device.type != "cpu" or round(100 * by_flops / by_bytes) == 21
assert 3.5 * predicted["T4"] < steps * forecast["T4"] / 1000 < 4.5 * predicted["T4"]
assert round(steps * forecast["T4"] / 60_000) == 5

# %% [markdown]
# Under this assumption the GPU is slower than the CPU on a T4, and the run takes about five minutes, four times as
# long as first predicted. On an A100 and an H100 the CPU is slower, if it is as fast as ours. We measured none of
# this.
#
# ## Several GPUs: all-reduce, DDP and FSDP
#
# Would a second GPU help? Not in our run: with half of the batch, each GPU would still wait for the same number of
# launches. But a larger model keeps its GPU busy.
#
# In **data parallelism**, each GPU has its own part of the batch. An **all-reduce** adds up the gradients and gives
# every GPU the result, so that all take the same step. In torch's `DistributedDataParallel` (DDP), each GPU has the
# whole model and gets the *mean* of the gradients. **Fully sharded** data parallelism (FSDP) keeps only a slice of
# weights, gradient and averages on each GPU. FSDP is stage 3 of ZeRO ([@rajbhandari2020]); stage 1 shards only Adam's
# averages.
#
# The price is communication. In a **ring all-reduce**, each GPU sends about twice the gradient's bytes (more exactly
# $2(p-1)/p$ times, for $p$ GPUs). In our run this is up to 80 MB. Sending them takes 0.2 ms at the 450 GB/s of an
# H100's NVLink (in one direction, by the data sheet), and 26 ms over a network of 3 GB/s. DDP hides part of this time:
# it sends gradients in **buckets** while `backward` computes the next ones.

# %% [raw] slide
# ## Several GPUs: data parallelism
# > **Guess first.** Two processes, 60 short sentences for one, 15 long ones for the other. Is the mean of the two gradients the gradient of the whole batch?

# %%
figures.data_parallel()
#| caption: Data parallelism: what each of two GPUs holds, and what they exchange (orange), with
#|   DDP, ZeRO stage 1 and FSDP.

# %% [raw] slide
# ## All-reduce
# {figure}

# %% [markdown]
# We try this without a GPU: two processes on this machine exchange numbers through torch's backend *gloo*. One process
# gets the 60 short sentences from above, and the other the 15 long ones. Each process computes its gradient, averages
# it with the other's in two ways, updates *one half* of the weights, and sends this half to the other (ZeRO stage 1).
# *Guess:* is the mean of the two gradients the gradient of the whole batch?

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
        dist.broadcast(slices[i], src=i)                  # and each sends its half
    if rank == 0:
        torch.save([mean, gradient, torch.cat(slices)], f"{folder}/found.pt")

# %% tags=["hide-input"]
imports = "import sys\nimport torch\nimport torch.distributed as dist\n\n\n"
code = imports + inspect.getsource(worker) + "\n\nworker(int(sys.argv[1]), sys.argv[2])\n"
script = Path(folder.name, "two_processes.py")
script.write_text(code, encoding="utf-8")
torch.save([new_model().cpu(), [list(part) for part in parts]], Path(folder.name, "given.pt"))
command = [sys.executable, str(script)]
team = [subprocess.Popen([*command, str(rank), folder.name]) for rank in (0, 1)]
assert [process.wait(timeout=300) for process in team] == [0, 0]

# %%
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
# No: the mean is as far off as our accumulation was. **A common mistake** is this **mean of means**, which gives the
# tokens of the smaller part more weight. Divide by the tokens of the *whole step*, on all machines together. (DDP
# divides by the number $p$ of GPUs. So multiply each GPU's mean loss by $p$ · its tokens / all tokens before
# `backward`.) The loss falls either way, so the mistake is hard to see. It was reported in 2021, and stayed in the
# gradient accumulation of widely used libraries until [October 2024](https://unsloth.ai/blog/gradient).
#
# The sharded AdamW takes the same step as the unsharded one. On real GPUs, one command of the package averages by
# tokens; with `--shard` it also shards:
#
# ```
# torchrun --nproc-per-node 8 -m attncourse.training train --profile base --data multi30k
# ```
#
# ## When it breaks: NaN, checkpoints, exact resumption
#
# Sooner or later a loss is NaN. In which module did the NaN begin? We set one number of one matrix to infinity, and a
# **forward hook** on each module reports an output that is not finite.

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
# The usual causes are a learning rate that is too high, an overflow in fp16, a division by zero, and a row of the mask
# without a single allowed key. The trainer stops at once, because a NaN in the weights never goes away. If every
# output is finite but the gradient is not, the fault is in `backward`: `torch.autograd.set_detect_anomaly(True)` names
# the forward operation to which it belongs. This check is slow, so use it only for the bad batch.
#
# A run of many hours *will* be interrupted. What must a **checkpoint** hold so that the run goes on **as if nothing
# had happened**? Without Adam's averages, the next steps have the wrong size; without the step number, the wrong rate.
# Without the order of the data and the state of the random number generators (for dropout), it is a different run.
#
# Our checkpoint keeps the weights (and their average, if there is one), Adam's averages, the step number, and in fp16
# the loss scale. The order of the data and the dropout masks follow from the seed and the step. To test this, we stop
# a run at step 25, resume from the checkpoint of step 20, and compare with an unbroken run.

# %% tags=["hide-input"]
class PowerCut(Exception):
    pass


def cut_the_power(progress):
    if progress.step == 25:
        raise PowerCut

# %%
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
# A checkpoint holds weights, Adam's averages, the step, the loss scale, the order of the data, the random state.
#
# {print}
#
# **Now you:** a@training, exercise 5

# %% [markdown]
# With dropout on, the twenty losses after the checkpoint are equal to the last bit on a CPU. (A GPU adds some sums in
# an order that varies, so there "exactly" may become "nearly".)
#
# ## On a free GPU
#
# Hosted notebooks (Colab, Kaggle) lend a GPU for some hours, often a **T4**. Switch it on in the runtime's settings,
# upload the course's zip file, and type the commands below. Keep the checkpoints on a drive that survives the session.
# **A T4 has no bf16** and no TF32. Its fast format is fp16, with the loss scale of our loop; `best_precision` chooses
# it.
#
# <details><summary>The commands, for Colab</summary>
#
# ```
# !nvidia-smi                                          # which GPU, how much memory
# !unzip -q attncourse.zip && pip install -q ./attncourse
# from google.colab import drive; drive.mount("/content/drive")        # checkpoints survive here
# !attncourse train --profile t4 --data multi30k --to /content/drive/MyDrive/captions
# !attncourse train --resume --to /content/drive/MyDrive/captions      # after the session has ended
# ```
# </details>

# %% [raw] slide
# ## In short
# | | |
# |---|---|
# | smoothed loss | $-\sum_v q_v \log p_v,\quad q_v = (1-\varepsilon)[v=y] + \varepsilon/V$ |
# | AdamW; $\hat m, \hat v$: averages of $g, g^2$ with their bias corrected | $\theta \leftarrow \theta - \eta\,\bigl(\hat m / (\sqrt{\hat v} + \epsilon) + \lambda\theta\bigr)$ |
# | time of an operation | $\ge \max(\text{FLOPs}/\text{peak},\ \text{bytes}/\text{bandwidth})$ |
# | a step; the state | $6N \cdot \text{tokens}$ FLOPs; $16N$ bytes |
# | gradient of a step | $\sum_i \frac{\text{tokens}_i}{\text{tokens}}\, g_i$ over parts $i$ |
#
# **Now do** assignment a@training. **Next:** lecture @writing.

# %% [markdown]
# **Now you:** [a10](@training/assignment), question 6, and exercise 5, the capstone: train a translator within a budget.
#
# <details><summary><b>Going further</b>: averaging weights</summary>
#
# The last weights are where the last noisy step left them. Vaswani et al. ([-@vaswani2017, section 6.1]) average the
# last five checkpoints of the base model (20 of the big one). A moving average of the weights (<b>EMA</b>), updated
# after each step, costs one more copy of them. Expect a gain where the loss has levelled out and the rate is still
# high, and little in a short run or after a cosine that ends near zero. <code>Recipe(ema=0.998)</code> switches EMA
# on.
# </details>
#
# ## In short
#
# A run can be wrong and look right. In the first four rows, the loss falls all the same.
#
# | what goes wrong quietly | what it cost on this page | what to do instead |
# |---|---|---|
# | batches of random sentences | 38 % padding | similar lengths, batches by tokens: 6 % |
# | ε = 0.1 where the model was calibrated | ten points of underconfidence | choose ε by the score that you report; if you use the probabilities, measure their gap |
# | a learning rate of 0.001 | 3.1 nats per token after 50 steps | a sweep: 1.8 |
# | equal weights for the parts of a batch | gradient off by 8 % | weights by tokens |
# | a forecast without a measurement | 86 seconds, not 5 | measure steps, then look at the profile |
#
# | | | shape or unit |
# |---|---|---|
# | smoothed loss | $-\sum_v q_v \log p_v,\quad q_v = (1-\varepsilon)[v=y] + \varepsilon/V$ | $p, q$: (tokens, V) → one number |
# | AdamW; $\hat m, \hat v$: averages of $g, g^2$ with their bias corrected | $\theta \leftarrow \theta - \eta\,\bigl(\hat m / (\sqrt{\hat v} + \epsilon) + \lambda\theta\bigr)$ | $\theta, m, v, g$: the same shape |
# | time of an operation | $\ge \max(\text{FLOPs}/\text{peak},\ \text{bytes}/\text{bandwidth})$ | seconds |
# | FLOPs of a step; memory of the state | $6N \cdot \text{tokens}$; $16N$ | FLOPs; bytes |
# | gradient of a step | $\sum_i \frac{\text{tokens}_i}{\text{tokens}}\, g_i$ over parts $i$ | as $\theta$ |
#
# Learn merges from the training set alone. A GPU's time goes into computing, moving bytes and launching; its memory
# goes into 16 bytes per parameter and the activations. Kernel fusion saves bytes and launches. Parameters and Adam's
# averages stay in 32 bits.
#
# > **Check yourself.**
# > 1. Adam's step hardly depends on the gradient's size. What is clipping for, then?
# > 2. Your loop calls `loss.item()` in every step. Why is that costly on a GPU and nearly free on a CPU?
# > 3. A model of 100 M parameters runs out of memory on a GPU with 16 GB. What do you try first?
# > <details><summary>Answers</summary>
# >
# > 1. Adam steps along *averages*. A gradient a hundred times as long as usual dominates both averages. It decides the
# >    direction of the next twenty steps or so. After that, all steps are too small until $v$ has forgotten it.
# > 2. `.item()` waits until the GPU has done everything in its queue. Meanwhile nothing is launched, so the GPU is idle
# >    afterwards. A CPU has no queue.
# > 3. The state is 1.6 GB, so activations fill the rest. First try smaller micro-batches with accumulation, which cost
# >    only a little speed, and then checkpointing. Sharding needs a second GPU.</details>
#
# **Now do** [assignment @training](@training/assignment). **Next:** [lecture @writing](@writing): the trained model
# writes, and we measure how well.
#
# **Further reading.** Data and loss: [+@sennrich2016]; [+@szegedy2016], section 7; [+@guo2017]. Optimisation:
# [+@kingma2015]; [+@loshchilov2017]; [+@loshchilov2019]; [+@pascanu2013]. Hardware: [+@micikevicius2018]; [+@williams2009]; [+@chen2016];
# [+@rajbhandari2020]; [+@kaplan2020], section 2.1; [+@chowdhery2022], section 4.1. To go on: Horace He, [*Making deep
# learning go brrrr from first principles*](https://horace.io/brrr_intro.html) (2022); Stanford's
# [CS336](https://cs336.stanford.edu), lecture 2; [*How to scale your model*](https://jax-ml.github.io/scaling-book/)
# and the [*Ultra-scale playbook*](https://huggingface.co/spaces/nanotron/ultrascale-playbook).
