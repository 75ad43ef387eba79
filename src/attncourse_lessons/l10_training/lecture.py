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
# *About 50 minutes in two halves: 24 minutes on setting up a run that learns, and 26 on what it costs; allow 80 if you
# guess before each output and run the cells. You need [the Transformer](@transformer), what [attention does in
# translation](@cross_attention), and why [deep stacks need a warm-up](@deep_stacks).*
#
# After this lecture you can
# * turn two files of sentences into batches that hold at most a fixed number of **tokens**;
# * write the **training loop** of an encoder–decoder, and say what each line is for;
# * explain **label smoothing**, **AdamW**, **warm-up** and **gradient clipping**, and find a learning rate by a sweep;
# * predict a step's time and memory on a GPU from a data sheet, profile a step, and explain why a measurement
#   differs;
# * train in 16 bits, on one GPU or several, and show that the gradient is still correct;
# * stop a run and resume it **exactly**.
#
# This lecture follows one run, in which a Transformer with 9.9 million parameters learns on one GPU to translate the
# 29,000 German captions of **Multi30k** ([@elliott2016]) into English. From data sheets and three assumptions we
# predicted that training would take 5 seconds, but it took 86 ([@fig:kept-run]).

# %% tags=["hide-input"]
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
import os
import random
import subprocess
import sys
import tempfile
from collections import Counter
from copy import deepcopy
from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from statistics import median

import torch
import torch.nn.functional as F
from torch import nn
from torch.profiler import ProfilerActivity, profile
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
from attncourse.training.evaluation import mean_loss
from attncourse.training.hardware import CHIPS, best_device, best_precision
from attncourse.training.recipe import Recipe, cosine, inverse_sqrt
from attncourse.training.trainer import train
from attncourse.transformer import EncoderDecoder, TransformerConfig
from attncourse_lessons import results

torch.set_num_threads(1)  # models as small as these gain nothing from a second thread
os.environ["KINETO_LOG_LEVEL"] = "99"  # the profiler need not tell that it starts and stops

# %% tags=["hide-input"]
kept_run = results.measured("training_gpu_de_en")         # one run, one seed, on an H200
looks = kept_run["curve"]                                 # the validation set, every 300 steps
figures.run_curve([at["seconds"] for at in looks], [at["loss"] for at in looks], predicted=5)
assert round(100 * 0.998**300) == 55 and round(kept_run["training_seconds"] - 5) == 81
assert looks[-1]["seconds"] == kept_run["training_seconds"]
#| caption: Measured on one H200: the run ended 81 s later than predicted. Points: validation
#|   loss every 300 steps, of weights averaged over the run (see Going further).
#| label: kept-run

# %% [raw] slide
# ## One run: predicted 5 seconds, it took 86
# {figure}
#
# First we set up a run that **learns**: data, batches, loss, optimiser, learning rate.
#
# Then we ask what it **costs**: a GPU's time and memory, several GPUs, what to do when a run breaks.

# %% [markdown]
# Where did the other 81 seconds go? The second half of the lecture explains 50 of them; 31 stay open. The first half
# sets up a run that learns, with a model that translates number words and is small enough for a CPU. Numbers for GPUs
# are **predictions** from data sheets unless we call them measured.

# %%
device = best_device()
print(f"device: {device.type}, and its best number format: {best_precision(device)}")

# %% [markdown]
# ## Data: from two files to batches of tokens
#
# What does a training step see? Its data come from a **parallel corpus**, two text files in which line 17 of one
# translates line 17 of the other. The cell writes two such files of number words, reads them back, and sets 1,000
# pairs aside for validation.

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
# We shuffle **before** we split, because files often come sorted by source, date or length, and then the two parts
# would differ in kind.
#
# ### Byte-pair encoding: tokens between letters and words
#
# Next, the text must become tokens. A vocabulary of whole words fails at the first new word, and German forms new
# compounds all the time. Single letters spell every word, but make sequences long. **Byte-pair encoding** (BPE,
# [@sennrich2016]) finds **subword tokens** in between: it takes the two neighbours that occur together most often,
# merges them everywhere, and repeats.
#
# We start from **bytes**, because any text is a sequence of bytes, and there are only 256 of them. The cell makes 60
# merges in the German words.

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
    return [piece.decode(errors="backslashreplace").replace(" ", "▁") for piece in pieces]


def draw_pieces(merges):
    words = ("einundzwanzig", "siebenhundertdrei", "zwölf", "hundertmeterlauf", "5 €")
    cuts = {word: encode_word(word, merges) for word in words}
    return figures.pieces_frame(cuts, f"after {merges} merges")


viz.explore(draw_pieces, merges=[0, 5, 10, 20, 40, 60], start={"merges": 60})
#| caption: Byte-pair encoding after 0 to 60 merges (move the slider). Shades only separate
#|   tokens. A byte that is no character by itself is in hexadecimal; ▁ is a space.
#| label: byte-pairs

# %% [raw] slide
# ## Move the number of merges
# {figure}

# %% [markdown]
# **Merges follow frequency and know no grammar:** *siebenhundertdrei* happens to be cut as a German would cut it, but
# *einundzwanzig* becomes *ein* and *undzwanzig*. The new word *hundertmeterlauf* shares *hundert* with the numbers, and
# the rest of it falls back to short tokens and single bytes, as the euro sign does. So **nothing is unknown**, which is
# why GPT-2 and many later models start from bytes. (This course's tokenizer starts from characters, so it needs an
# `<unk>`.)
#
# The merges are **learned**, so learn them **from the training set alone**. Otherwise words of the test set get tokens
# of their own, its sentences become easier than truly new text, and no score reveals this.

# %%
german = Tokenizer.train((pair.source for pair in training), size=112)
english = Tokenizer.train((pair.target for pair in training), size=112)

# %% [raw] slide
# ## Nothing is unknown, with bytes
# A tokenizer that starts from **characters** turns one that it never saw into `<unk>`; bytes are all known.
#
# Merges are **learned**: learn them from the training set alone. If the text includes the test set, its sentences become shorter and easier, and no score reveals this.

# %% [markdown]
# > **Check yourself.** A colleague trains the vocabulary on training *and validation* texts. The test set is untouched.
# > Is that clean?
# > <details><summary>Answer</summary>The test score is clean. But the validation score can now be too good, and you use
# > it to choose the learning rate and when to stop. Keep the validation texts out as well.</details>
#
# ### Batches by tokens
#
# Sentences have different lengths, but a batch is a rectangle of token ids, so short sentences are filled up with
# **padding**. To avoid most of it, put sentences of similar length together, and limit a batch by **tokens** instead
# of sentences: it gets as many rows as fit into a budget of tokens.

# %% [raw] slide
# ## Batches by tokens
# > **Guess first.** 16 sentences picked at random: how much of the rectangle is padding?

# %% tags=["hide-input"]
train_set = encode_pairs(training, german, english)
validation_set = encode_pairs(validation, german, english)
lengths = [len(pair.target) + 1 for pair in train_set[:160]]                 # <eos> counts
by_number = [lengths[i : i + 16] for i in range(0, 160, 16)]
by_tokens = [[lengths[i] for i in rows] for rows in batch_by_tokens(lengths, batch_tokens=150)]
figures.padded_batches({"16 sentences at random": by_number,
                        "150 tokens, similar lengths": by_tokens})
for batches, share in ((by_number, 0.38), (by_tokens, 0.06)):
    room = sum(len(batch) * max(batch) for batch in batches)
    assert round(1 - sum(map(sum, batches)) / room, 2) == share
#| caption: The same 160 target sentences in batches of 16 sentences (left) and of at most 150
#|   tokens (right). Each box is a batch, each row a sentence.

# %% [raw] slide
# ## Similar lengths together, as many rows as fit
# {figure}
#
# The batches are shuffled anew in each epoch.

# %% [markdown]
# **Padding falls from 38 % to 6 %.** All rectangles but the last have nearly the same size, so every step should take
# about the same time and memory. In this order, however, the model would always see the short sentences first, so
# `epoch_batches` shuffles the batches anew in each **epoch**, a pass through the training set.

# %%
def first_batches(n, batch_tokens=256, seed=0):
    order = epoch_batches(train_set, batch_tokens, seed=seed, epoch=0)
    return [collate([train_set[i] for i in rows]) for rows in order[:n]]


source, source_lengths, target_in, target_out = first_batches(1)[0]
print("source", tuple(source.shape), "  target_in, target_out", tuple(target_in.shape))

# %% [markdown]
# `target_in` begins with `<bos>`, and `target_out` is the same row shifted by one token. This is **teacher forcing**
# ([lecture @cross_attention](@cross_attention)).
#
# ## Loss: cross-entropy, label smoothing, calibration
#
# What should the model learn from these batches? The loss is the **cross-entropy** of each next token, in nats,
# averaged over the real tokens. It reaches 0 only at an infinite logit, so its gradient keeps asking for more certainty
# long after the answer is right.
#
# **Label smoothing** ([@szegedy2016, section 7]) asks for less certainty. Its target distribution $q$ mixes the true
# token $y$ with a uniform distribution over all $V$ tokens ($[v = y]$ is 1 for $v = y$, otherwise 0), and $p_v$ is the
# probability that the model gives to token $v$:
#
# $$
# q_v = (1 - \varepsilon)\,[v = y] + \frac{\varepsilon}{V} \qquad
# \text{loss} = -\sum_v q_v \log p_v
# $$
#
# The loss is smallest where $p = q$, which finite logits can reach. In the figure, the vocabulary has 112 tokens, and
# the true token's logit exceeds all others, which are equal, by a **margin**.

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
# ## Too much certainty costs
# {figure}
#
# Compare a smoothed training loss only with losses that are smoothed in the same way.

# %% [markdown]
# **With label smoothing, too much certainty costs.** For ε = 0.1, the loss is smallest at a margin of
# $\ln\bigl((1 - \varepsilon)V/\varepsilon + 1\bigr) = 6.9$ and rises beyond it. Even at 6.9 it equals the entropy of
# $q$, not zero, so report the plain loss on held-out text.
#
# Does smoothing also make the probabilities better? **Calibration** asks whether a model's confidence agrees with its
# accuracy. The **calibration gap** is the mean probability of the predicted tokens minus the share of them that are
# right, so a positive gap means overconfidence.
#
# The figure shows recorded runs on 100 training pairs and on 8,000. *Guess:* on which of the two does smoothing
# improve calibration: on 100, on 8,000, or on both?

# %% tags=["hide-input"]
smoothing = results.measured("label_smoothing")
gaps, accuracies = {}, {}
in_words = {"100": "accuracy 60 to 66 %", "8000": "accuracy 99.9 %"}
for size, ways in smoothing["pairs"].items():
    found = {"plain" if share == "0" else f"ε = {share}": runs for share, runs in ways.items()}
    gaps[f"{int(size):,} pairs ({in_words[size]})"] = here = {}
    for name, runs in found.items():
        here[name] = [run["confidence"] - run["right"] for run in runs]
        accuracies[size, name] = [100 * run["right"] for run in runs]
figures.paired_gaps(gaps)
#| caption: Calibration gap without (plain) and with label smoothing (ε = 0.1), on number words:
#|   400 steps of 1,024 tokens, three seeds. A line joins the runs of a seed.
#| label: calibration

# %% [raw] slide
# ## Calibration: confidence minus accuracy
# {figure}
#
# On few pairs, smoothing removes most of the overconfidence. On many, it makes the model **under**confident: ε does not adapt to the error.
#
# **Now you:** a@training, exercise 1

# %% [markdown]
# **Only on 100 pairs.** For every seed, smoothing lowered the gap, whether or not there was overconfidence to remove.
#
# * On 100 pairs, the plain model is 20 to 24 points overconfident, and smoothing brings the gap to 1, −4 and −5 points.
# * On 8,000 pairs, the plain model is calibrated. With ε = 0.1 it is right just as often (99.9 %), but ten points
#   **under**confident, because the target gives the true token no more than $q_y = 0.90$.
#
# So smoothing can help an overconfident network, if ε is well chosen ([@muller2019]). In translation ε = 0.1 is usual,
# because it improves BLEU, the score of [lecture @writing](@writing), although perplexity gets worse ([@vaswani2017,
# section 5.4]).
#
# <details><summary>Another remedy for overconfidence</summary>After training, <b>temperature scaling</b> ([@guo2017])
# divides all logits by one number, which is fitted on the validation set.</details>
#
# **Now you:** [a10](@training/assignment), exercise 1.

# %% tags=["hide-input"]
few, many = (list(ways.values()) for ways in gaps.values())
of_few = accuracies["100", "plain"] + accuracies["100", "ε = 0.1"]
assert round(min(of_few)) == 60 and round(max(of_few)) == 66
assert all(after < before for plain, smooth in (few, many)
           for before, after in zip(plain, smooth, strict=True))
assert min(few[0]) > 0.20 and max(few[0]) < 0.245 and max(map(abs, many[0])) < 0.005
assert sorted(round(100 * gap) for gap in few[1]) == [-5, -4, 1]
assert all(-0.11 < gap < -0.095 for gap in many[1])
assert all(right > 99.85 for name in ("plain", "ε = 0.1") for right in accuracies["8000", name])

# %% [markdown]
# ## The training loop in twenty lines
#
# We have batches and a loss. What happens in one step, and which tensors are kept for the next?

# %% [raw] slide
# ## The training loop
# > **Guess first.** Batch, activations, gradient, optimiser's averages, weights: which are kept for the next step?

# %%
figures.training_step()
#| caption: One training step, from the batch to the new weights: what is done (middle row, 1 to
#|   6 as in the code below), and how long each result is kept.
#| label: training-step

# %% [raw] slide
# ## One step
# {figure}

# %% [markdown]
# **Only the weights and the optimiser's two averages, $m$ and $v$, are kept for the whole run.** Each numbered box
# stands for one or two lines of the code below, marked with the same number. On a first reading, skip AdamW's options,
# `autocast` and the scaler, which are explained below (*AdamW*, *Number formats*).

# %%
HALF = {"bf16": torch.bfloat16, "fp16": torch.float16}


def train_loop(model, batches, lr_at, precision="float32"):
    optimizer = torch.optim.AdamW(model.parameters(), betas=(0.9, 0.98), eps=1e-9,
                                  weight_decay=0, fused=True)   # fused: one operation for all
    scaler = torch.amp.GradScaler(device.type, enabled=precision == "fp16")
    losses = []
    for step, batch in enumerate(batches, start=1):
        batch = [x.to(device, non_blocking=True) for x in batch]            # 1 batch
        with torch.autocast(device.type, HALF.get(precision), enabled=precision in HALF):
            loss = model.loss(*batch)     # 2 forward, 3 loss; smoothed with label_smoothing=0.1
        scaler.scale(loss).backward()              # 4 backward, of the loss times a large scale
        scaler.unscale_(optimizer)                #   divide by the scale again, before clipping
        nn.utils.clip_grad_norm_(model.parameters(), max_norm=1.0)          # 5 clip
        for group in optimizer.param_groups:
            group["lr"] = lr_at(step)                                       #   the schedule
        scaler.step(optimizer)                                              # 6 AdamW
        scaler.update()
        optimizer.zero_grad()
        losses.append(loss.detach())              # no .item() here: it would wait for the GPU
    return torch.stack(losses).tolist()

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
# *Guess:* what goes wrong if `zero_grad` is forgotten, or if it stands directly below `backward`?
# <details><summary>Answer</summary><code>backward</code> <i>adds</i> to the gradient that is there, so without
# <code>zero_grad</code> each step would also use what earlier steps have left. Directly below <code>backward</code>, it
# would delete the gradient before AdamW uses it, so no weight would move.</details>
#
# Is the loop correct? **Make two checks before any long run.** The first loss should be near $\ln V$, the loss of a
# model that gives all tokens the same probability: here $\ln 112 = 4.7$. And on *one* batch, repeated, the loss should
# fall to nearly 0.

# %%
config = TransformerConfig(vocab_size=len(german), target_vocab_size=len(english), d_model=64,
                           n_layers=1, n_heads=4, d_ff=128, dropout=0.0)


def new_model(seed=0):
    torch.manual_seed(seed)
    return EncoderDecoder(config).to(device)


precision = best_precision(device)
recipe = Recipe(steps=20, batch_tokens=256, lr=6e-3, warmup=10, label_smoothing=0.0,
                precision=precision)
losses = train_loop(new_model(), first_batches(1) * 60, recipe.lr_at, precision)
print(f"one batch, 60 times: loss {losses[0]:.2f} → {losses[-1]:.2f}")

# %% tags=["hide-input"]
losses, progress = (
    train_loop(new_model(), first_batches(20), recipe.lr_at, precision),
    train(new_model(), train_set, recipe),
)
apart = max(abs(ours - step.loss) for ours, step in zip(losses, progress.steps, strict=True))
print(f"20 batches: loss {losses[0]:.2f} → {losses[-1]:.2f}; the package's trainer: "
      f"the same within {apart:.0e}")
assert apart < 0.1 and len(english) == 112 and 4.7 < losses[0] < 6.2

# %% tags=["hide-input"]
real = target_out.to(device) != PAD
with torch.no_grad():
    at_start = new_model()(*(x.to(device) for x in (source, source_lengths, target_in)))[real]
echo = torch.zeros_like(at_start).scatter(1, target_in.to(device)[real][:, None], 1).bool()
share, scatter = at_start.softmax(dim=-1)[echo].mean(), at_start[~echo].std()
assert abs(math.log(112) - math.log(1 - share) + scatter**2 / 2 - losses[0]) < 0.1
assert abs(share - 0.37) < 0.01 and abs(scatter - 0.98) < 0.01

# %% [markdown]
# Both checks pass, and the package's **trainer** computes the same losses as our loop. The first loss, 5.7, is a little
# above $\ln 112$, partly because the untrained model prefers the token that it has just read. A first loss of 20 would
# be a bug, and so would one clearly *below* 4.7: an untrained decoder beats chance only if it sees the answer.
#
# <details><summary>Why the first loss is 5.7 and not 4.7, and what else the trainer does</summary>There are two
# reasons. The output layer is tied to the embeddings, so the untrained model gives 37 % to the token that it has just
# read ([lecture @transformer](@transformer)), which costs the others −ln 0.63 = 0.5 nats. The other logits have a
# standard deviation of σ = 0.98, which costs about σ²/2 = 0.5 more. The trainer also calls <code>model.train()</code>
# and <code>model.eval()</code>, so that dropout is on in training and off in evaluation.</details>
#
# ### Gradient clipping: one bad batch
#
# What if a single batch gives a huge gradient? **Gradient clipping** ([@pascanu2013]) treats the gradient of all
# parameters as one vector. If it is longer than a limit (1 in our loop), it is scaled down to the limit, in the same
# direction.
#
# We try it on a single parameter θ, which starts at 0, the minimum of $\theta^2/2$, and takes 100 steps of plain
# gradient descent (SGD) with learning rate η = 0.01. Each gradient is θ plus noise of size 1, except for one in the
# middle, which is −100. The limit is 5, well above the noise.

# %% tags=["hide-input"]
def end_of_sgd(max_norm, seed):
    noise = torch.randn(100, generator=torch.Generator().manual_seed(seed))
    theta = nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.SGD([theta], lr=0.01)
    for step in range(100):
        theta.grad = theta.detach() + noise[step] if step != 50 else torch.tensor([-100.0])
        nn.utils.clip_grad_norm_([theta], max_norm)
        optimizer.step()
    return theta.item()


free, cut = ([end_of_sgd(max_norm, seed) for seed in range(3)] for max_norm in (math.inf, 5.0))
print(f"SGD: θ ends at {median(free):.2f}, and at {median(cut):.2f} if clipped at 5 "
      "(medians of three seeds)")
assert min(free) > 0.5 and max(cut) < 0.2

# AdamW without clipping: the root of the corrected v at the outlier, and 49 steps later
v_now, v_late = 0.98 * (1 - 0.98**50) + 0.02 * 100**2, 0.02 * 100**2 * 0.98**49 + (1 - 0.98**99)
root, late = math.sqrt(v_now / (1 - 0.98**51)), math.sqrt(v_late / (1 - 0.98**100))
assert round(root) == 18 and round(late) == 9
# its share of m (β₁ = 0.9) stays above twice the noise there for 29 steps
noise_in_m = 0.1 / math.sqrt(1 - 0.9**2)
assert 0.1 * 100 * 0.9**29 > 2 * noise_in_m > 0.1 * 100 * 0.9**30

# %% [markdown]
# **The single outlier moves θ by 100 · η = 1**, and fifty steps later θ is still far from 0. Clipping prevents that.
# AdamW steps along *averages* of the gradients, so one outlier harms it for longer, in a way that θ does not show at
# once (*Check yourself* 1, at the end). How do these averages work?
#
# ## AdamW, weight decay and the learning rate
#
# **Adam** ([@kingma2015]) keeps two running averages for every parameter: $m$ averages its gradient $g$, and $v$
# averages $g^2$. They estimate the **first and second moment**, and together they are the **optimiser state**. At each
# step, an average keeps a share β of itself and takes the rest, 1 − β, from the new value.
#
# Both averages begin at zero, so at first they are too small: after two steps with β₁ = 0.9, the gradients have a total
# weight of only $1 - 0.9^2 = 0.19$ in $m$. The **bias correction** divides each average by this total weight. The
# **ratio** is then the corrected $m$ divided by the root of the corrected $v$. A tiny $\epsilon$ is added to the root,
# so that nothing is divided by zero.
#
# AdamW adds **decoupled weight decay** ([@loshchilov2019]): λθ is added to the ratio but enters neither average. The
# step subtracts η times this sum from the parameter, where a hat marks a corrected average:
#
# $$
# \theta \;\leftarrow\; \theta - \eta\,\Bigl(\frac{\hat m}{\sqrt{\hat v} + \epsilon} + \lambda\theta\Bigr)
# $$

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
#| caption: AdamW's second step on a parameter that began at 1; gradients 1, then −0.5
#|   (β₁ = 0.9, β₂ = 0.98, η = 0.01, λ = 0.1). θ enters twice: itself, and in the decay.
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
# The second gradient contradicts the first, so the ratio is only 0.27. But does the gradient's size matter? Three
# parameters start at 1, with gradients 0.001, 1 and 100. *Guess:* after one step of Adam with η = 0.01, how far has
# each moved?

# %%
theta = nn.Parameter(torch.ones(3))
theta.grad = torch.tensor([1e-3, 1.0, 100.0])
torch.optim.AdamW([theta], lr=0.01, weight_decay=0).step()
print("moved by", [round(x, 4) for x in (1 - theta.detach()).tolist()])

# %% [markdown]
# **Each parameter has moved by η.** Adam divides each gradient by its own recent size, so what counts is its *sign*,
# and how steady that is.
#
# Why is the decay outside the ratio? The older method, an **L2 penalty**, adds $\lambda\theta$ to $g$, so the decay is
# divided by the root of $v$ as well. In the cell, two rows of parameters start at 1, and their gradients are pure
# noise, small in one row and large in the other. *Guess:* which row does the penalty shrink?

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
# Inside the ratio, decay acts almost only on parameters with small gradients. Usually only **matrices** are decayed.

# %% [markdown]
# **Inside the ratio, decay shrinks almost only the parameters with small gradients** (`Adam`), whereas decoupled decay
# (`AdamW`) shrinks both rows alike. Usually only **matrices** are decayed, because a norm's gain belongs near 1, and
# pulling a bias towards zero hardly makes the model simpler. Our translators use λ = 0, which makes AdamW plain Adam;
# large language models often use 0.1.
#
# ### Schedules: warm-up, then down
#
# If every step moves a parameter by about η, then η decides how fast we go. Going fast is dangerous in the first
# steps, because $v$ is an average of very few gradients and a deep stack is easily destabilised ([lecture
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
# The **inverse square root** ([@vaswani2017, section 5.3]) falls slowly and does not depend on the length of the run,
# whereas the **cosine** ([@loshchilov2017]) must know it in advance and ends near zero.
#
# ### The learning-rate sweep
#
# The peak of the schedule is still missing. We have no formula for it, so we find it by a **sweep**: runs that differ
# only in the rate, each rate about three times the one before, compared by their held-out loss. We can afford 15 runs
# of 50 steps, three for each of five rates. What does the curve of loss against rate look like?

# %% [raw] slide
# ## The learning-rate sweep
# > **Guess first.** Equal runs, rates in equal ratios. What does held-out loss against rate look like?

# %%
sweep = {rate: [] for rate in (1e-3, 3e-3, 1e-2, 3e-2, 1e-1)}
for rate, final in sweep.items():
    lr_at = Recipe(steps=50, lr=rate, warmup=10, schedule="cosine").lr_at
    for seed in range(3):
        model = new_model(seed)
        train_loop(model, first_batches(50, seed=seed), lr_at)
        final.append(mean_loss(model.eval(), validation_set[:300]))
figures.rate_sweep(sweep, low="too low: it has learned too little",
                   high="too high: worse again")
#| caption: Held-out loss after 50 steps against the learning rate: a point for each seed
#|   (shifted sideways), the medians as a line and in numbers.
#| label: rate-sweep

# %% tags=["hide-input"]
assert min(sweep[1e-3]) > 2.9 and max(*sweep[1e-2], *sweep[3e-2]) < 2.1
floor = [median(sweep[rate]) for rate in (1e-2, 3e-2)]    # less apart than the seeds of a rate
assert abs(floor[0] - floor[1]) < max(sweep[1e-2]) - min(sweep[1e-2])

# %% [raw] slide
# ## A valley
# {figure}
#
# Take the bottom; of two rates that are tied, the lower. Sweep again when batch, width, schedule or steps change.
#
# **Now you:** a@training, exercises 2 and 3

# %% [markdown]
# **The curve is a valley.** With a rate of 0.001, the model ends at 3.1 nats per token, and with 0.01 at 1.8. The floor
# is flat: three seeds cannot tell 0.01 and 0.03 apart. At 0.1, the steps probably overshoot. Take the rate with the
# lowest loss, or the lower of two that are tied, and sweep again when the batch size, the width, the schedule or the
# number of steps changes.
#
# <details><summary>A third schedule, and a first guess when the batch grows</summary>Many recent runs hold the rate
# after the warm-up and let it fall only at the end (<b>warm-up–stable–decay</b>, [@hu2024]). For a batch <i>k</i> times
# as large, multiply the rate by about √<i>k</i> with Adam ([@malladi2022] derive this rule), and by <i>k</i> with SGD
# ([@goyal2017]). Beyond some batch size, a larger batch no longer saves steps ([@shallue2019]).</details>
#
# **Now you:** [a10](@training/assignment), exercises 2 and 3.
#
# **Halfway.** The run is set up: a good place to stop for today.
#
# ## A GPU's time: kernels, launches, overhead
#
# How long will the run on captions take? A GPU is a second computer with its own memory. The program itself runs on
# the CPU, and for each operation it **launches a kernel**: it asks the GPU to run one function. Three things follow.
#
# 1. **Both operands must be on the same device.** Otherwise torch stops with an error.
# 2. **Launches are asynchronous.** A call returns as soon as the kernel is in the queue, so wait with `synchronize`
#    before you read the clock, or you measure only the launches. Whatever needs a value waits, too: `.item()`, `print`,
#    `if`.
# 3. **A launch costs time.** A bare launch takes the CPU a few microseconds; we assume 5 µs.
#
# *Guess:* what share of the time is the GPU busy if it needs only 2 µs to run a kernel?

# %% [raw] slide
# ## A GPU's time: three things
# 1. Both operands must be on the same device.
# 2. Launches are **asynchronous**: to time, `synchronize`. Anything that needs a value waits: `.item()`.
# 3. A launch costs time, say 5 µs.
#
# > **Guess first.** What share of the time is the GPU busy if it needs only 2 µs to run a kernel?

# %%
figures.launches({"kernels of 10 µs": 10, "kernels of 2 µs": 2}, launch=5, n=6)
#| caption: A CPU that launches six kernels, 5 µs for each, and a GPU that runs them in order.

# %% [raw] slide
# ## Overhead-bound
# {figure}
#
# A GPU twice as fast would train no faster. Larger batches make larger kernels.

# %% [markdown]
# **With short kernels, the GPU mostly waits for the next launch:** in the lower panel it is busy for 40 % of the time.
# The step is **overhead-bound**, so a GPU twice as fast would train no faster. Larger batches help, since a step
# launches about the same number of kernels for a batch of any size.
#
# <details><summary>Measure it on your machine</summary>The function times any work, with the clock in the right places.
# Compare the tokens per second (the <b>throughput</b>) of batches of 32 and of 2,048 tokens. Even on a CPU, larger
# batches should have a higher throughput, because each operation has an overhead there, too.
#
# ```python
# import time
#
# from attncourse.training import hardware
#
# def seconds(work, repeats=5):
#     work()                                # the first call prepares things
#     hardware.synchronize(device)          # the queue is empty: start the clock
#     started = time.perf_counter()
#     for _ in range(repeats):
#         work()
#     hardware.synchronize(device)          # wait until all is done
#     return (time.perf_counter() - started) / repeats
#
# batches = first_batches(1, batch_tokens=2048) * 4
# tokens = 4 * int((batches[0].target_out != PAD).sum())
# tokens / seconds(partial(train_loop, new_model(), batches, recipe.lr_at, precision))
# ```
# </details>
#
# How many operations does a step of the captions model take? Torch sends every operation through one place, its
# **dispatcher**, so we count there. We count the forward and the backward pass in float32, and assume that the rest of
# the step is small and that each operation is one launch of 5 µs.

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
print(f"{operations.n} operations, forward and backward; "
      f"prediction: {1000 * launching:.1f} ms per step to launch")

# %% [markdown]
# ### Number formats: fp32, TF32, bf16, fp16
#
# How long the GPU needs to compute depends on the number format. With special units, the **tensor cores**, GPUs
# multiply matrices of 16-bit numbers at best 8 to 16 times as fast as ordinary float32 (data sheets). A format divides
# its bits between range (the **exponent**) and digits (the **fraction**).

# %%
figures.number_formats({"fp32": (8, 23, 0), "TF32": (8, 10, 13),        # exponent, fraction,
                        "bf16": (8, 7, 0), "fp16": (5, 10, 0)})         # and bits not used
#| caption: A box for each bit; S is the sign. The exponent decides the range. “Smallest” means
#|   the smallest number above 0, subnormal numbers included.
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
print("format    large score  small gradient  1 + 1/512")
for name, dtype in {"float32": torch.float32, **HALF}.items():
    score, small, near_one = numbers.to(dtype).tolist()
    print(f"{name:<8}  {score:<11.7g}  {small:<14.7g}  {near_one:.7g}")

scale = 2**16
scaled = (numbers[1] * scale).to(torch.float16)           # multiplied before it is rounded
print(f"the small gradient in fp16, scaled and unscaled: {scaled.float() / scale:.1e}")

# %% [raw] slide
# ## fp32, bf16, fp16
# {print}
#
# **fp16** overflows, and loses small gradients without **loss scaling**. **bf16** has the range but few digits: parameters, averages and sums stay in 32 bits (**mixed precision**).

# %% [markdown]
# **fp16 loses range:** the large score becomes infinity, and the small gradient zero. **Loss scaling**
# ([@micikevicius2018]) saves the gradients: multiply the loss, and so all gradients, by a large number, and divide the
# gradients by it in 32 bits before the step. If something overflowed, skip the step and lower the scale. *Guess:* what
# goes wrong if `clip_grad_norm_` stands above `unscale_` in the training loop?
# <details><summary>Answer</summary>There the gradient is still multiplied by the scale, at first 65,536, so clipping
# would shorten nearly <i>every</i> gradient, not only the outliers.</details>
#
# **bf16 loses digits:** its seven bits of fraction round 1 + 1/512 to 1. But it has the range of float32 and needs no
# scaling, so use it where the hardware has it. *Guess:* if you start at 1 in bf16 and subtract 0.001 a thousand times,
# where do you end up?

# %%
weight, low, update = torch.tensor(1.0), torch.tensor(1.0, dtype=torch.bfloat16), 1e-3
for _ in range(1000):
    weight, low = weight - update, low - update
print(f"in float32 {abs(weight):.3f}, in bf16 {low:.3f}")
assert low == 1

# %% [markdown]
# **In bf16 the weight has not moved.** Just below 1, neighbouring numbers are 1/256 apart, and each update is less than
# half of that, so every result is rounded back to 1. This is why parameters and Adam's averages stay in 32 bits while
# the matrix products are computed in 16, which is called **mixed precision**.
#
# **Now you** (if you like): [a10](@training/assignment), the extension "Loss scaling".
#
# ### The roofline: memory-bound or compute-bound
#
# Fast arithmetic helps only if the operands arrive from memory in time. Data sheets say how fast a chip computes, and
# how fast it moves bytes, at best:

# %% tags=["hide-input"]
print(f"{'':<12}  {'peak in 16 bits':<16}  {'memory bandwidth':<18}  peak / bandwidth")
for name, chip in CHIPS.items():
    peak, bandwidth = chip.flops["fp16"], chip.bandwidth
    gigabytes = f"({chip.memory / 1e9:.0f} GB)"
    print(f"{name:<4} {gigabytes:<7}  {peak / 1e12:>3.0f}·10¹² FLOP/s   "
          f"{bandwidth / 1e12:.2f}·10¹² bytes/s  {peak / bandwidth:.0f} FLOPs per byte")

# %% [markdown]
# <details><summary>Reading a data sheet</summary>NVIDIA's sheet for the H100 prints 1,979, but <i>with sparsity</i>,
# for matrices with two zeros in every four numbers. Ours have none, so half of it counts.</details>
#
# At best, computing and moving happen at the same time, so the slower one counts (the **roofline model**,
# [@williams2009]):
#
# $$
# \text{time} \;\ge\; \max\left(\frac{\text{FLOPs}}{\text{peak FLOP/s}},\; \frac{\text{bytes}}{\text{bandwidth}}\right)
# $$
#
# Which of the two is slower depends on the **arithmetic intensity**, the FLOPs per byte moved. A product of $(m, k)$
# and $(k, n)$ in 16 bits, for example, has $2mkn$ FLOPs and moves $2(mk + kn + mn)$ bytes.
#
# In the figure, each GPU's line rises up to a corner at peak / bandwidth, because bandwidth is the limit there. Beyond
# the corner it is flat, because the peak is the limit.

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
flops, moved = work["feed-forward"]
corners = {name: peak / bandwidth for name, (peak, bandwidth) in roofs.items()}
assert round(roofs["H100"][0] / 1e12) == 1979 // 2
assert all(0.98 < flops / moved / corners[name] < 1 for name in ("T4", "A100"))
of_logits = work["logits"][0] / work["logits"][1]
assert max(corners["T4"], corners["A100"]) < of_logits < corners["H100"]
assert flops / moved < corners["H100"] and 1 / min(corners.values()) < 0.01
assert all(flops / moved < corners["H100"] for flops, moved in work.values())
#| caption: Rooflines from data sheets (16-bit products). Dots: the most that parts of a
#|   captions step can reach. On an H100, all six parts are memory-bound.
#| label: roofline

# %% [raw] slide
# ## Under three roofs (from data sheets)
# {figure}

# %% [markdown]
# **LayerNorm, AdamW and the attention scores of short sentences are memory-bound** on all three chips: they lie under
# the slope, where the processors wait for bytes. Under the flat roof, an operation is **compute-bound**, as the logits
# are on T4 and A100. Our narrow feed-forward product lies just before the corner of T4 and A100; wider matrices lie
# further to the right, which is one reason why large models use a GPU better. For one token, as in decoding, the
# product can reach less than a hundredth of the peak.
#
# ## A GPU's memory
#
# Does the run fit into memory at all? We take one step and count the bytes per parameter.

# %%
model, batch = new_model(), [x.to(device) for x in first_batches(1)[0]]
optimizer = torch.optim.AdamW(model.parameters())
model.loss(*batch).backward()
optimizer.step()
n, kept = sum(p.numel() for p in model.parameters()), optimizer.state
held = {"weights": list(model.parameters()), "gradient": [p.grad for p in kept],
        "m": [kept[p]["exp_avg"] for p in kept], "v": [kept[p]["exp_avg_sq"] for p in kept]}
print("bytes per parameter:", {name: sum(x.nbytes for x in held[name]) / n for name in held})

# %% [raw] slide
# ## A GPU's memory: 16 bytes per parameter
# {print}
#
# Weights, gradient, and Adam's two averages. On top: the **activations**.

# %% [markdown]
# The **state** takes **16 bytes per parameter**, four each for weights, gradient and Adam's two averages. Autocast does
# not shrink it, and for seven billion parameters it comes to 112 GB.
#
# On top come the **activations**: everything that the forward pass keeps for `backward`. *Guess:* for our captions
# model with 8,192 tokens on each side, which is larger, the state or the activations?

# %% tags=["hide-input"]
def activation_bytes(model_config, tokens, n=14, recompute=False):
    with torch.device("meta"):                            # shapes, but no numbers
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


def bytes_in_bf16(sentences):                             # as the kernels of a CPU keep them
    ids, ends = torch.full((sentences, 14), 5), torch.full((sentences,), 14)
    with torch.autocast("cpu", torch.bfloat16):
        return saved_activation_bytes(partial(on_cpu.loss, ids, ends, ids, ids))


on_cpu = EncoderDecoder(captions)
small, double = bytes_in_bf16(36), bytes_in_bf16(72)      # a straight line to 585 sentences
halves = {"activations": small + (double - small) * 549 / 36}
sizes_of = {f"captions model,\n{size:,} tokens, fp32": memory(captions, size)
            for size in (8192, 131_072)}
first, longer = sizes_of
lighter = "captions model,\n8,192 tokens, bf16"
sizes_of = {first: sizes_of[first], lighter: sizes_of[first] | halves, longer: sizes_of[longer]}
big = preset("vaswani big").config                        # of 2017
sizes_of["Transformer (big),\n8,192 tokens, fp32"] = memory(big, 8192)
figures.memory_bars(sizes_of, {"T4": CHIPS["T4"].memory},
                    {lighter: kept_run["training_memory_bytes"]})
kept = sizes_of[first]["activations"]
assert 0.89 < kept / sum(sizes_of[first].values()) < 0.92, "nine tenths"
assert 0.58 < sum(sizes_of[lighter].values()) / kept_run["training_memory_bytes"] < 0.62
#| caption: Predicted memory of a training step. Diamond: the peak measured in the run (bf16,
#|   H200). Dashed: what a T4 has.

# %% [raw] slide
# ## Activations grow with batch and model, the state with the model
# {figure}

# %% [markdown]
# **For our captions model with 8,192 tokens, the activations are nine tenths of the predicted memory.** They grow with
# the batch *and* the model, the state with the model alone. Autocast to bf16 saves about a quarter of the activations
# (second bar). But the run, also in bf16, needed 2.2 GB: the prediction is two fifths too low.
#
# <details><summary>What the prediction leaves out</summary>The running average of the weights (9.9 M × 4 bytes = 40
# MB), dropout in the attention, and the gradients of activations. The logits' gradient alone takes 8,192 × 10,000 × 4
# bytes = 0.33 GB in float32. The activations in bf16 were counted on a CPU, and a GPU's kernels keep other tensors. We
# did not measure what each part contributes.</details>
#
# What if torch stops with "CUDA out of memory"? Three common ways out leave the gradient as it was, if they are done
# right.
#
# 1. **Gradient accumulation**: compute the batch in parts (*micro-batches*), one after the other; `backward` adds up.
# 2. **Activation checkpointing** ([@chen2016]): keep only each block's input, and compute the block again on the way
#    back. The price is one more forward pass, about a third more computing.
# 3. **Sharding**: each of several GPUs keeps a slice of the state (see *Several GPUs*).
#
# We try the first two on one batch. For accumulation, we cut the batch into two parts and give them equal weights.
# *Guess:* is this right? We also compute the gradient in bf16.

# %% [raw] slide
# ## Out of memory: three common ways out
# 1. **Gradient accumulation**: the batch in parts; with which weights?
# 2. **Activation checkpointing**: keep each block's input, compute it again on the way back.
# 3. **Sharding**: each GPU keeps a slice of the state.
#
# **Now you:** a@training, exercise 4

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


less = activation_bytes(captions, 8192, recompute=True)
print(f"gradient off by: {off(in_parts):.1%} with accumulation, {off(recomputed):.1%} with "
      f"checkpointing, {off(rounded):.1%} in bf16")
print(f"checkpointing: activations {kept / 1e9:.2f} → {less / 1e9:.2f} GB")

# %% tags=["hide-input"]
assert off(recomputed) < 1e-4 < off(rounded) < 0.015 < 0.08 < off(in_parts) < 0.09
assert less < kept / 3

# %% [raw] slide
# ## Does the gradient stay as it was?
# {print}
#
# bf16 rounds. But why is our accumulation so far off?

# %% [markdown]
# **Checkpointing leaves the gradient as it was, and keeps less than a third of the activations.** In bf16, rounding
# puts the gradient 0.7 % off. But our accumulation is wrong by more than 8 %. Each loss is a *mean* over the part's own
# tokens, so which weights do the parts need?
#
# **Now you:** [a10](@training/assignment), exercise 4, which adds accumulation and counts its costs. Do it now: the
# section *Several GPUs* gives the answer away.
#
# ## FLOPs, 6N and the forecast
#
# The run fits, so back to its time: how much arithmetic does a step take? Each weight is used once per token on the way
# forward (a multiplication and an addition: 2 FLOPs) and twice on the way back, for the gradients of input and weight.
# Together that is **6 FLOPs per parameter and token**, $6N$ ([@kaplan2020, section 2.1]).

# %%
step_flops = count_training_flops(captions, EncoderDecoder, batch=tokens // 14, n=14)
rule = 6 * n_weights * (tokens // 14 * 14)
print(f"N = {n_weights / 1e6:.1f} M parameters; counted {step_flops:.2e}, rule {rule:.2e}, "
      f"ratio {step_flops / rule:.2f}")

# %% [raw] slide
# ## FLOPs and 6N
# {print}
#
# **MFU**: the FLOP/s that the model gets, over the device's peak.

# %% [markdown]
# The rule holds if a "token" is a *pair* of a source and a target token: only together do they meet every weight once.
#
# ### Forecast of the training time: 5 seconds
#
# **How long does it take to train on Multi30k?** The run has 1,800 steps of 8,192 tokens. To the 580 launches and the
# 5 µs for each we add a third assumption, that the GPU reaches 20 % of its peak while it computes. Launching and
# computing overlap, so the slower one counts.
#
# <details><summary>The rest of the recipe: the package's profile <code>gpu</code></summary>AdamW has no weight decay.
# Its rate peaks at 0.002 after 800 steps of warm-up, and then falls as the inverse square root. Dropout is 0.3 (0.1 in
# the attention), label smoothing 0.1, and the number format bf16. The weights are averaged with a decay of 0.998.
# There is one seed, and the rate was not swept for this run.</details>

# %% tags=["hide-input"]
assumed_share, steps = 0.20, 1800        # of the peak, while the GPU is busy
predicted = {}
for name, chip in CHIPS.items():
    number_format = "bf16" if "bf16" in chip.flops else "fp16"
    computing = step_flops / (assumed_share * chip.flops[number_format])
    predicted[name] = steps * max(computing, launching)
    print(f"prediction, {name:>4}, {number_format}: {predicted[name]:.0f} s "
          f"(ms per step: computing {1000 * computing:.1f}, launching {1000 * launching:.1f})")

# %% [markdown]
# On an H100, launching takes a little longer (2.9 ms) than computing (2.5 ms), so 1,800 steps take 5 seconds.
#
# ### Measured training time: 86 seconds
#
# On one H200, which computes as fast as an H100, the run took 86 s. And it did learn to translate: the cell prints its
# BLEU, a score that [lecture @writing](@writing) explains. *Guess:* which assumption failed, the 20 % of the peak, the
# number of operations, or the 5 µs per launch?

# %% tags=["hide-input"]
measured_seconds = kept_run["training_seconds"]
times = measured_seconds / predicted["H100"]
run_ms = 1000 * measured_seconds / steps
print(f"{kept_run['device_name']}, {kept_run['steps']:,} steps: {measured_seconds:.0f} s, "
      f"{times:.0f} times the prediction")
print("BLEU on the test set after 600, 900 and 1,800 steps:",
      ", ".join(f"{looks[i]['test']:.1f}" for i in (1, 2, 5)),
      f"({kept_run['bleu']:.1f} with beam search)")

in_bf16, in_tf32 = (kept_run["step"][number_format] for number_format in ("bf16", "float32"))
forecasts = "forecast: bf16, H100", "forecast: bf16, CUDA graph"
rows = {                                                             # (whole step, GPU busy)
    forecasts[0]: (1000 * launching, 1000 * computing),
    "measured: a step alone, bf16": (in_bf16["ms"], in_bf16["gpu_busy_ms"]),
    "measured: a step alone, TF32": (in_tf32["ms"], in_tf32["gpu_busy_ms"]),
    "measured: in the run, bf16 (mean)": (run_ms, None),
    forecasts[1]: (in_bf16["gpu_busy_ms"], in_bf16["gpu_busy_ms"]),
}
stamps = [0.0, *(at["seconds"] for at in kept_run["curve"])]         # without evaluations
blocks = [1000 * (end - start) / 300 for start, end in pairwise(stamps)]
late_ms = sum(blocks[-2:]) / 2
whole, busy, in_run = (step_flops / (1e-3 * ms) / CHIPS["H100"].flops["bf16"]
                       for ms in (in_bf16["ms"], in_bf16["gpu_busy_ms"], run_ms))
figures.step_times(rows, forecasts)
#| caption: A training step on an H200, and two forecasts (dashed). In both steps that were
#|   timed alone, the GPU waits for more than half of the time.
#| label: step-times

# %% tags=["hide-input"]
assert kept_run["steps"] == steps and 2.1e9 < kept_run["training_memory_bytes"] < 2.3e9
assert 0.04 < busy < 0.06 and in_bf16["operations"] == 1041 and in_tf32["operations"] == 679
assert kept_run["steps"] == steps and predicted["H100"] == steps * launching
assert 14 < times < 22 and in_bf16["kernels"] > 2 * operations.n
assert in_bf16["gpu_busy_ms"] < in_bf16["ms"] / 2.9 and in_tf32["ms"] < 0.85 * in_bf16["ms"]
assert in_tf32["gpu_busy_ms"] < in_tf32["ms"] / 2
assert round(in_bf16["kernels"]) == 1356 and in_tf32["gpu_busy_ms"] > in_bf16["gpu_busy_ms"]
assert round(in_tf32["kernels"]) == 987 and round(in_tf32["ms"]) == 25
assert round(1000 * in_bf16["ms"] / in_bf16["kernels"]) == 22
assert round(measured_seconds) == 86 and round(predicted["H100"]) == 5
assert in_bf16["operations"] - in_tf32["operations"] == 362
factors = in_bf16["kernels"] / operations.n, in_bf16["ms"] / in_bf16["kernels"] / 5e-3
factors = *factors, run_ms / in_bf16["ms"]
assert [round(factor, 1) for factor in factors] == [2.3, 4.5, 1.6] and operations.n == 580
assert abs(math.prod(factors) - times) < 1e-6 and round(times) == 16 and round(100 * busy) == 5
assert round(100 * whole, 1) == 1.6 and round(100 * in_run, 1) == 1.0
assert round(in_bf16["ms"]) == 31
assert round(in_bf16["gpu_busy_ms"]) == 10 and round(in_tf32["gpu_busy_ms"]) == 12
assert round(run_ms) == 48 and len(blocks) * 300 == steps
assert 18 < steps * in_bf16["gpu_busy_ms"] / 1000 < 19
assert kept_run["command"] == (
    "python benchmarks/training.py --profile gpu --data multi30k --source de --target en "
    "--no-compile --length 1800 --only quality")
assert [round(ms) for ms in blocks] == [77, 51, 46, 42, 32, 37] and round(late_ms) == 35
assert round(steps * late_ms / 1000) in (62, 63)
assert round(steps * in_bf16["ms"] / 1000) == 55      # seconds, if the run's steps were like it
assert round(measured_seconds - steps * in_bf16["ms"] / 1000) == 31
assert (round(measured_seconds, 1), round(predicted["H100"], 1)) == (85.7, 5.2)

# %% [raw] slide
# ## Predicted 5 seconds, measured 86
# {figure}
#
# 1,356 kernels, not 580 operations; 22 µs for each, not 5. The step is **overhead-bound**.

# %% [markdown]
# **The step is overhead-bound.** In the second bar, a step in bf16 timed outside the run, the GPU is busy for a third
# of the time and waits for the CPU otherwise. The forecast said so, too, but only just (2.9 against 2.5 ms), and **all
# three assumptions were wrong.**
#
# | assumption | assumed | measured, bf16 | where the difference comes from |
# |---|---|---|---|
# | share of the peak, while the GPU is busy | 20 % | 5 % | in part: many bytes for few FLOPs (next section); the rest was not measured |
# | launches in a step | 580 | 1,356 | we left out clipping, AdamW and the casts of autocast; some operations launch several kernels |
# | time per launch | 5 µs | 22 µs (step time per kernel) | Python, autograd and the dispatcher work before each launch (a guess) |
#
# The factor of 16 (85.7 s / 5.2 s) is 2.3 (launches) × 4.5 (time per launch) × 1.6 (a step of the run takes 48 ms, a
# step alone 31). **The wrong 20 % does not lengthen the step:** even at 5 % the GPU needs only 10 of the 31 ms.
#
# So more and slower launches turn 5 seconds into 55. The last 31 come from something in the run that we did not measure
# and that mostly fades: a step took 77 ms in the first 300 steps, and 37 in the last.
#
# By definition, the factors multiply to 16. The *evidence* that the CPU sets the pace is the idle GPU, and the step in
# TF32: there the GPU is busy for longer, but it runs fewer kernels (987), and the step takes 25 ms instead of 31.
#
# **The diagnosis makes a prediction.** A **CUDA graph** records many launches once and replays them with one. If *all*
# launches were recorded, our step should take about as long as the GPU is busy, 10 ms instead of 31. The last bar is
# this forecast; it is not measured.
#
# <details><summary>MFU, and the rule 6<i>N</i> for seven billion parameters and a trillion tokens</summary>The share of
# the peak that the whole step reaches, waiting included, is the <b>model FLOPs utilisation</b> (MFU, [@chowdhery2022,
# section 4.1]). Ours is 1.0 % in the run (1.6 % for a step alone), whereas PaLM, a far wider model, reached 46 %. A
# decoder with seven billion parameters needs 6 · 7 · 10⁹ · 10¹² = 4.2 · 10²² FLOPs for a trillion tokens. At an assumed
# MFU of 40 %, 64 H100s take 4.2 · 10²² / (64 · 0.4 · 989 · 10¹²) = 1.7 million seconds, or 19 days. In Kaplan et al.,
# <i>N</i> leaves the embeddings out. Ours does not, because the same matrix also computes the logits.</details>
#
# <details><summary>The evidence, the 48 ms, and <code>torch.compile</code></summary>The evidence is one card, one run
# of 1,800 steps (<code>python benchmarks/training.py --profile gpu --data multi30k --source de --target en --no-compile
# --length 1800 --only quality</code>), and a separate measurement of single steps without label smoothing. In the run,
# a step also makes the batch, moves it to the GPU and averages the weights. This should take the same time in every
# step, but the means over blocks of 300 steps were 77, 51, 46, 42, 32 and 37 ms. At the 35 ms of the last 600 steps,
# the whole run would take 63 s. The wrong 20 % did no harm to the step, but it might have misled the forecast: with the
# measured share and our other two assumptions, we would have predicted more than 18 s, and called the run
# compute-bound. The run was not compiled; <code>torch.compile(…, mode="reduce-overhead")</code> would record forward
# and backward for each shape of batch, but not clipping and AdamW, and it would also fuse kernels.</details>
#
# > **Check yourself.** If you double the assumed 20 %, the forecast for the H100 does not change. Which purchase would
# > make our run faster: a GPU that computes twice as fast, or a CPU that is twice as fast?
# > <details><summary>Answer</summary>The CPU. The GPU waits for launches during two thirds of a step, so a faster GPU
# > would only wait longer.</details>
#
# ## Profiling a step, and kernel fusion
#
# Launching explains why the GPU waits. But why is it *busy* for so long? We ask this of the step in TF32: all its
# tensors are float32, so their bytes are easy to count. A **profiler** also measures the *time* of each operation. We
# did not record this on the GPU, so we profile a smaller step, of 504 tokens, on the CPU. *Guess:* the matrix products
# are 99 % of the FLOPs. Are they nine tenths of the bytes, a half, or a third? And of the CPU's time?

# %% tags=["hide-input"]
CLASSES = {                                               # the first class with a fitting word
    "matrix products": ("::mm", "::addmm"),
    "logits' softmax, loss": ("log_softmax", "nll_loss"),
    "attention": ("attention", "softmax", "bmm"),
    "LayerNorm": ("layer_norm",),
    "AdamW, clipping": ("adamw", "foreach", "vector_norm"),
    "sums, dropout, ReLU, rest": ("",),
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


def count_of(sentences):
    ids, ends = torch.full((sentences, 14), 5), torch.full((sentences,), 14)
    return count_work((ids, ends, ids, ids))              # source, its lengths, target in, out


captions_model.zero_grad()                                # nothing is left to add to
small, double = count_of(9), count_of(18)                 # each class: a straight line to 585
counted = {what: {kind: small[what][kind] + (double[what][kind] - small[what][kind]) * 576 / 9
                  for kind in CLASSES} for what in small}
ids, ends = torch.full((36, 14), 5), torch.full((36,), 14)           # for the profile
optimizer = torch.optim.AdamW(on_cpu.parameters(), fused=True)


def step_on_cpu():
    on_cpu.loss(ids, ends, ids, ids).backward()
    nn.utils.clip_grad_norm_(on_cpu.parameters(), max_norm=1.0)
    optimizer.step()
    optimizer.zero_grad()

# %%
def profiled(step):
    """The milliseconds of a step, by class of operations."""
    with profile(activities=[ProfilerActivity.CPU]) as seen:
        step()
    times = dict.fromkeys(CLASSES, 0.0)
    for event in seen.key_averages():                     # one for each kind of operation
        if event.key.startswith("aten::"):                # an operation of torch
            times[class_of(event.key)] += event.self_cpu_time_total / 1000
    return times


rounds = [profiled(step_on_cpu) for _ in range(3)]        # other programs only add time
on_this_cpu = {kind: min(times[kind] for times in rounds) for kind in CLASSES}
figures.class_shares(counted | {"time on this CPU": on_this_cpu})
#| caption: A captions step: FLOPs and bytes (counted, 8,190 tokens) and time (profiled on the
#|   CPU that built this page, 504 tokens), all in float32.
#| label: classes

# %% [raw] slide
# ## Profiling a step: FLOPs, bytes, time
# {figure}
#
# **Kernel fusion**: read once, do several operations, write once. It saves bytes *and* launches.

# %% tags=["hide-input"]
flops, moved = (sum(counted[what].values()) for what in ("FLOPs", "bytes"))
h200 = replace(CHIPS["H100"], bandwidth=4.8e12)           # computes as an H100 does
by_flops = 1000 * step_flops / h200.flops["tf32"]
by_bytes = 1000 * moved / h200.bandwidth
print(f"8,192 tokens on an H200, TF32: FLOPs {by_flops:.1f} ms, bytes {by_bytes:.1f} ms "
      f"(predicted); GPU busy {in_tf32['gpu_busy_ms']:.1f} ms (measured)")
share_of = {what: amounts["matrix products"] / sum(amounts.values())
            for what, amounts in (counted | {"time": on_this_cpu}).items()}
assert round(by_flops, 1) == 1.0 and share_of["FLOPs"] > 0.98
assert 0.32 < share_of["bytes"] < 0.34
if sys.platform != "darwin":                              # Apple's CPUs have matrix units
    assert share_of["bytes"] < share_of["time"] < share_of["FLOPs"]
    assert on_this_cpu["attention"] < 0.1 * sum(on_this_cpu.values())
assert device.type != "cpu" or round(by_bytes, 1) == 3.5

# %% [markdown]
# **The matrix products move only a third of the bytes.** Most of the other operations read a tensor, do little to each
# number, and write it back. At the [data sheet's](https://www.nvidia.com/en-us/data-center/h200/) 4.8 TB/s, the bytes
# take 3.5 ms, so they matter more than the FLOPs (1.0 ms). But even together, the two explain less than half of the
# 11.8 ms in which the GPU is busy.
#
# **Time follows neither count alone:** on the CPU, the products' share of the time lies between those of their bytes
# and their FLOPs. Attention takes little, because captions are short. This says nothing about the GPU's 11.8 ms: for
# those, profile there, with `ProfilerActivity.CUDA` and `self_device_time_total`.
#
# **Kernel fusion** saves bytes and launches: one kernel reads the tensor, does several operations in the chip's fast
# memory, and writes once. `torch.compile` looks for such chains, `fused=True` fuses AdamW, and FlashAttention
# ([@dao2022]) fuses attention, so that its scores never reach the GPU's main memory.
#
# **Now you** (if you like): [a10](@training/assignment), the extension "What a step costs".
#
# ## Several GPUs: all-reduce, DDP and FSDP
#
# Would a second GPU help? Not if our 8,192 tokens are split between the two, because each GPU would still wait for the
# same number of launches. But it would with a larger model, which keeps its GPU busy.
#
# In **data parallelism**, each GPU has its own part of the batch. An **all-reduce** adds up the gradients and gives
# every GPU the result, so that all take the same step. In torch's `DistributedDataParallel` (DDP), each GPU has the
# whole model and gets the *mean* of the gradients.
#
# **Fully sharded** data parallelism (FSDP, stage 3 of ZeRO, [@rajbhandari2020]) saves memory: each GPU keeps only a
# slice of weights, gradient and averages. The GPUs collect a block's weights whenever it computes (an **all-gather**),
# and each receives its slice of the summed gradient (a **reduce-scatter**).

# %% [raw] slide
# ## Several GPUs: data parallelism
# > **Guess first.** Two processes, 60 short sentences for one, 15 long ones for the other. Is the mean of the two gradients the gradient of the whole batch?

# %%
figures.data_parallel()
#| caption: Data parallelism: what each of two GPUs holds, and what they exchange (orange), with
#|   DDP and with FSDP.

# %% [raw] slide
# ## All-reduce
# {figure}

# %% [markdown]
# <details><summary>What the communication costs</summary>In a ring all-reduce, each of <i>p</i> GPUs sends 2(<i>p</i> −
# 1)/<i>p</i> times the gradient. With two GPUs and our gradient of 40 MB, this is 40 MB per step; with many, it
# approaches 80 MB. Over 25-gigabit Ethernet (3.1 GB/s), 40 MB take 13 ms, and far less between GPUs that share one
# machine's fast links. DDP hides part of this time: it sends gradients while <code>backward</code> computes the next
# ones. FSDP sends half as much again as DDP.</details>
#
# We try data parallelism with two processes on this machine. One gets the 60 short sentences from above, the other the
# 15 long ones. The two gradients are then combined in two ways: as their plain mean (an all-reduce of `own / 2`, as in
# DDP), and with weights by tokens (an all-reduce of `own * tokens / total`). *Guess:* which is the whole batch's gradient?

# %% tags=["hide-input"]
def worker(rank, folder):
    """One of two processes: it has all of the model and a part of the batch."""
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
    by_tokens = own * tokens / total
    dist.all_reduce(by_tokens)                            # each token counts the same
    if rank == 0:
        torch.save([mean, by_tokens], f"{folder}/found.pt")
    dist.destroy_process_group()

# %% tags=["hide-input"]
imports = "import sys\nimport torch\nimport torch.distributed as dist\n\n\n"
code = imports + inspect.getsource(worker) + "\n\nworker(int(sys.argv[1]), sys.argv[2])\n"
script = Path(folder.name, "two_processes.py")
script.write_text(code, encoding="utf-8")
torch.save([new_model().cpu(), [list(part) for part in parts]], Path(folder.name, "given.pt"))
command = [sys.executable, str(script)]
team = [subprocess.Popen([*command, str(rank), folder.name], stderr=subprocess.PIPE, text=True)
        for rank in (0, 1)]
said = [process.communicate(timeout=300)[1] for process in team]
assert [process.returncode for process in team] == [0, 0], "\n".join(said)

mean, averaged = (x.to(device) for x in torch.load(Path(folder.name, "found.pt")))
print("tokens in the parts:", [int((part.target_out != PAD).sum()) for part in parts])
print(f"gradient off by: {off(mean):.1%} for the mean of means, "
      f"{off(averaged):.1%} by tokens")
assert off(averaged) < 1e-4 and abs(off(mean) - off(in_parts)) < 1e-3
gradient_bytes = 4 * n_weights                            # what each of two GPUs sends
assert round(gradient_bytes / 1e6) == 40 and round(1e3 * gradient_bytes / (25e9 / 8)) == 13

# %% [raw] slide
# ## A common mistake: the mean of means
# {print}
#
# Divide by the tokens of the *whole step*, on all machines together.

# %% [markdown]
# **The plain mean is as far off as our accumulation was**, and for the same reason. **A common mistake** is this
# **mean of means**: it gives each token of the smaller part more weight. Divide by the tokens of the *whole step*, on
# all machines together.
#
# Since the loss falls either way, the mistake is hard to see. It was reported in 2021, and stayed in the gradient
# accumulation of widely used libraries until [October 2024](https://unsloth.ai/blog/gradient).
#
# <details><summary>The right weights with DDP</summary>DDP divides the sum of the gradients by the number <i>p</i> of
# GPUs. To undo this, multiply each GPU's mean loss by <i>p</i> · (its tokens) / (all tokens) before
# <code>backward</code>.</details>
#
# ## When it breaks: NaN, checkpoints, exact resumption
#
# The longer a run, the more likely it breaks. Suppose that its loss is NaN. In which module did the NaN begin? We set
# one number of one matrix to infinity, and let a **forward hook** on each module report an output that is not finite.

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

# %% [markdown]
# Stop at once, because a NaN in the weights never goes away.
#
# <details><summary>The usual causes of a NaN</summary>A learning rate that is too high, an overflow in fp16, a division
# by zero, or a row of the mask without a single allowed key. If only the gradient is not finite,
# <code>torch.autograd.set_detect_anomaly(True)</code> names the operation.</details>
#
# Save **checkpoints**, because a run of many hours is likely to be interrupted. They must hold more than the weights:
# without Adam's averages, the next steps have the wrong size, and without the step number, the wrong rate. Without the
# order of the data and the state of the random numbers (for dropout), it is a different run. To test our trainer, we
# stop a run at step 25, resume from the checkpoint of step 20, and compare with an unbroken run.

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
print("unbroken, steps 21, 30, 40:", [f"{unbroken[step - 1]:.6f}" for step in (21, 30, 40)])
print("resumed:                   ", [f"{resumed[step - 1]:.6f}" for step in (21, 30, 40)])
print("all 40 losses equal:", resumed == unbroken)
assert device.type != "cpu" or resumed == unbroken

# %% [raw] slide
# ## When it breaks: resume exactly
# A checkpoint holds weights, Adam's averages, the step, the loss scale, the order of the data, the random state.
#
# {print}
#
# **Now you:** a@training, exercise 5

# %% [markdown]
# **On a CPU, the losses of the resumed run are equal to the last bit**, with dropout on. A GPU adds some sums in an
# order that varies, so there "exactly" may become "nearly".
#
# **Now you:** [a10](@training/assignment), question 6, and exercise 5, the capstone: train a translator within a
# budget.
#
# <details><summary><b>Going further</b>: on a free GPU (Colab, Kaggle)</summary>
#
# Hosted notebooks lend a GPU for some hours, often a <b>T4</b>. Switch it on in the runtime's settings, upload the
# course's zip file, and type the commands below. Keep the checkpoints on a drive that survives the session. A T4 has
# neither bf16 nor TF32, so <code>best_precision</code> chooses its fast format, fp16, with the loss scale of our loop.
#
# ```
# !nvidia-smi                                          # which GPU, how much memory
# !unzip -q attncourse.zip && pip install -q ./attncourse
# from google.colab import drive; drive.mount("/content/drive")        # checkpoints survive here
# !attncourse train --profile t4 --data multi30k --to /content/drive/MyDrive/captions
# !attncourse train --resume --to /content/drive/MyDrive/captions      # after the session has ended
# ```
# </details>
#
# <details><summary><b>Going further</b>: averaging weights</summary>
#
# The last weights are where the last noisy step left them. Vaswani et al. ([-@vaswani2017, section 6.1]) average the
# last five checkpoints of the base model (20 of the big one). A moving average of the weights (<b>EMA</b>), updated
# after each step, costs one more copy of them; <code>Recipe(ema=0.998)</code> switches it on. The curve of
# [@fig:kept-run] belongs to such averaged weights, which keep 0.998 of themselves at each step. After 300 steps,
# 0.998³⁰⁰ = 55 % of the average is still the random start, so the first point says little about the weights
# themselves. </details>

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
# ## In short
#
# A run can be wrong or wasteful and look right. In the first four rows, the loss falls all the same.
#
# | what goes wrong quietly | what it cost on this page | what to do instead |
# |---|---|---|
# | batches of random sentences | 38 % padding | similar lengths, batches by tokens: 6 % |
# | ε = 0.1 where the model was calibrated | ten points of underconfidence | choose ε by the score that you report |
# | a learning rate of 0.001 | 3.1 nats per token after 50 steps | a sweep: 1.8 |
# | equal weights for the parts of a batch | gradient off by more than 8 % | weights by tokens |
# | a forecast without a measurement | 86 seconds, not 5 | measure single steps, then ask what the GPU waits for |
#
# | | | shape or unit |
# |---|---|---|
# | smoothed loss | $-\sum_v q_v \log p_v,\quad q_v = (1-\varepsilon)[v=y] + \varepsilon/V$ | $p, q$: (tokens, V) → one number |
# | AdamW; $\hat m, \hat v$: averages of $g, g^2$ with their bias corrected | $\theta \leftarrow \theta - \eta\,\bigl(\hat m / (\sqrt{\hat v} + \epsilon) + \lambda\theta\bigr)$ | $\theta, m, v, g$: the same shape |
# | time of an operation | $\ge \max(\text{FLOPs}/\text{peak},\ \text{bytes}/\text{bandwidth})$ | seconds |
# | FLOPs of a step (tokens: pairs of a source and a target token); memory of the state | $6N \cdot \text{tokens}$; $16N$ | FLOPs; bytes |
# | gradient of a step | $\sum_i \frac{\text{tokens}_i}{\text{tokens}}\, g_i$ over parts $i$ | as $\theta$ |
#
# Learn merges from the training set alone. A GPU's time goes into computing, moving bytes and launching; its memory
# goes into 16 bytes per parameter and the activations. Kernel fusion saves bytes and launches. Parameters and Adam's
# averages stay in 32 bits.
#
# > **Check yourself.**
# > 1. Adam's step hardly depends on the gradient's size. What is clipping for, then?
# > 2. Your loop calls `loss.item()` in every step. When is that costly on a GPU, and why is it nearly free on a CPU?
# > 3. A model of 100 M parameters runs out of memory on a GPU with 16 GB. What do you try first?
# > <details><summary>Answers</summary>
# >
# > 1. Adam steps along *averages*, and a gradient a hundred times as long as usual dominates both. In the clipping
# >    example, with β₁ = 0.9, it would decide the direction of about the next thirty steps. After that, all steps are
# >    too small until $v$ has forgotten it: with β₂ = 0.98, its root would jump from 1 to 18, and be 9 fifty steps later.
# > 2. `.item()` waits until the GPU has done everything in its queue. Meanwhile nothing is launched, so the GPU is idle
# >    afterwards, which hurts where the CPU runs *ahead* of the GPU. In our overhead-bound run the queue should be nearly
# >    empty anyway, so one `.item()` per step would cost little. A CPU has no queue.
# > 3. The state is 1.6 GB, so activations fill the rest. First try smaller micro-batches with accumulation, which cost
# >    little speed as long as each of them still keeps the GPU busy, and then checkpointing. Sharding needs a second
# >    GPU.</details>
#
# **Now do** [assignment @training](@training/assignment). **Next:** [lecture @writing](@writing): the trained model
# writes, and we measure how well.
#
# **Further reading.** [+@sennrich2016]; [+@loshchilov2019]; [+@micikevicius2018]; [+@williams2009];
# [+@rajbhandari2020]. To go on: Horace He, [*Making deep learning go brrrr from first
# principles*](https://horace.io/brrr_intro.html) (2022); Stanford's [CS336](https://cs336.stanford.edu), lecture 2;
# [*How to scale your model*](https://jax-ml.github.io/scaling-book/) and the [*Ultra-scale
# playbook*](https://huggingface.co/spaces/nanotron/ultrascale-playbook).
