# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3 (ipykernel)
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Lecture @training · Training an encoder–decoder
#
# *About 60 minutes, of which one is computing. You need the Transformer ([lecture @transformer](@transformer)), what
# attention is good for in translation ([lecture @cross_attention](@cross_attention)), and, from [lecture
# @deep_stacks](@deep_stacks), what a warm-up does.*
#
# When you have finished you will be able to take two files of sentences to a translator and a number that you can
# defend: to cut text into pieces without looking at the test set, to pack batches, to say what label smoothing,
# clipping, warm-up and sixteen bits do and to measure it, to stop a run and go on as if nothing had happened, to write
# translations greedily and with several hypotheses, and to compute BLEU by hand and say what it hides. In [assignment
# @training](@training/assignment) you build most of these parts.
#
# ## What the blueprint does not say
#
# Lecture @transformer ended with a machine that is right, number by number. Suppose that you give its blueprint to two people,
# with the same 29,000 pairs of sentences, and ask them for a translator. One comes back after a day with a model that
# drops half of every sentence, the other after an hour with a good one. Neither has touched the architecture. What did
# they do differently?
#
# There is a row of decisions between a text and a translation, and not one of them is in the blueprint: what a token
# is, which sentences share a batch, what exactly the loss asks for, how large a step is, in how many bits, which of the
# many weights along the way are kept, how a sentence is written when nobody dictates it, and what counts as good. This
# lecture walks down that row. *Before you go on:* if one of them is done badly, would the training loss tell you? Note
# for which of them you think it would.

# %%
try:
    from attncourse import viz

    from . import figures
except ModuleNotFoundError:
    raise ImportError(
        "This page needs the attncourse package: open it with `make lab` in the course's folder, "
        "or choose a kernel of the environment in which you installed the course."
    ) from None

import math
import tempfile
import time
from collections import Counter
from dataclasses import replace
from itertools import pairwise

import torch
import torch.nn.functional as F

# Models as small as these gain nothing from a second thread, and lose when it has to wait.
torch.set_num_threads(1)

# %%
from attncourse.data import BOS, PAD, Tokenizer, encode_pairs, number_words
from attncourse.data.batches import batch_by_tokens, collate, epoch_batches
from attncourse.data.number_words import aligned_pieces
from attncourse.data.tokenizer import UNK
from attncourse.decoding import beam_search, greedy, translate
from attncourse.metrics import alignment_error, bleu, chrf, exact_match
from attncourse.recurrent import SUMMARIES, Seq2Seq
from attncourse.training.curves import LiveCurves
from attncourse.training.evaluation import mean_loss
from attncourse.training.recipe import Recipe, cosine, inverse_sqrt
from attncourse.training.trainer import train
from attncourse.transformer import EncoderDecoder, Memory, TransformerConfig, source_mask
from attncourse_lessons.results import measured, training_runs

# %% [markdown]
# Our pairs are number words once more, this time from German to English, so that the model has to read *einundneunzig*
# and write *ninety-one*. They have two virtues: there are as many as we like, and we know which answer is right and
# which word belongs to which. Everything below works the same for real captions; near the end we look at those.

# %%
pairs = number_words("de", "en", train=20_000, test=1_000, dates=0, seed=0)
for pair in pairs.test[:3]:
    print(f"{pair.source}\n    {pair.target}")

# %% [markdown]
# ## What is a token?
#
# Whole words would be natural, but German builds new ones all day: *siebenhundertdreiundvierzig* may never have been
# seen, and the model could only say `<unk>`. Single letters never fail, but make sequences long, and lecture @self_attention measured
# what a long sequence costs. **Byte-pair encoding** (Sennrich, Haddow and Birch 2016) finds a middle. Begin with
# letters. Count which two neighbours occur together most often. Make one piece of them. Count again.

# %%
def count_neighbours(cut, counts):
    found = Counter()
    for word, pieces in cut.items():
        for pair in pairwise(pieces):
            found[pair] += counts[word]                   # a frequent word counts often
    return found


def merge(pieces, pair):
    out = []
    for piece in pieces:
        joins = bool(out) and (out[-1], piece) == pair
        out[-1:] = [out[-1] + piece] if joins else [*out[-1:], piece]
    return out

# %%
counts = Counter(word for source, _ in pairs.train for word in source.replace(",", "").split())
cut = {word: list(word) for word in counts}               # letters, to begin with
merges = []
for _ in range(60):
    found = count_neighbours(cut, counts)
    merges.append(max(found, key=lambda pair: (found[pair], pair)))
    cut = {word: merge(pieces, merges[-1]) for word, pieces in cut.items()}
print("  ".join("+".join(pair) for pair in merges[:12]))

# %% [markdown]
# Nobody told it any German, and yet among the first pieces are *und* and, a few merges later, *hundert*. To cut up a
# word, also one that was never seen, apply the merges to its letters in the order in which they were learned. *Before
# you move the slider:* will *einundzwanzig* end as one piece, as three, or as something that no grammar would draw? And
# what becomes of *hundertmeterlauf*, a hundred-metre race, whose second half stands in no number word?

# %%
def cut_up(word, n):
    pieces = list(word)
    for pair in merges[:n]:                               # in the order in which they were learned
        pieces = merge(pieces, pair)
    return pieces


def draw_pieces(merges):
    words = ("einhundert", "einundzwanzig", "siebenhundertdrei", "hundertmeterlauf")
    cuts = {word: cut_up(word, merges) for word in words}
    return figures.pieces_frame(cuts, f"after {merges} merges")


viz.explore(draw_pieces, merges=[0, 2, 4, 6, 8, 10, 15, 20, 30, 40, 60], start={"merges": 10})

# %% [markdown]
# The pieces follow frequency and nothing else. Often that is a word's part, as *zwanzig* after forty merges; after sixty
# *einundzwanzig* has become *ein* and *undzwanzig*, which no grammar would draw. *Hundertmeterlauf* keeps its *hundert*,
# and what is behind it stays letters, but for an *er* from elsewhere. The number of merges is a knob between two costs:
# more pieces make shorter sequences, and a larger table of embeddings, in which many rows are seldom trained. For
# captions some 8,000 to 10,000 pieces are usual. Number words have few parts, so we shall take 112, and keep *hundert*
# and *und* apart, as lecture @cross_attention did, so that alignments can be read.
#
# ### The vocabulary is trained, too
#
# The merges are learned from text, so they are part of the model. If the test set is among that text, the model has
# seen something of it. Does it matter? Let the training texts be numbers and the test texts *dates*: names of weekdays
# and months, which the training texts do not hold.

# %%
dates = number_words("de", "en", train=500, test=1, dates=1.0, seed=1).train
dated = [pair.source for pair in dates]
train_texts = [pair.source for pair in pairs.train[:2_000]]
honest = Tokenizer.train(train_texts, size=160)
leaking = Tokenizer.train(train_texts + dated, size=160)
for name, tokenizer in {"from the training texts": honest, "with the test texts": leaking}.items():
    ids = [tokenizer.encode(text) for text in dated]
    n_pieces, unknown = sum(map(len, ids)) / len(ids), sum(row.count(UNK) for row in ids) / len(ids)
    print(f"{name:>24}: {n_pieces:.0f} pieces a test sentence, {unknown:.1f} of them <unk>")
    print(" | ".join(tokenizer.pieces(dated[0])[:10]), "…")

# %%
n_honest, n_leaking = (sum(len(t.encode(text)) for text in dated) for t in (honest, leaking))
assert n_leaking < 0.8 * n_honest, "the test is cut better than new text will be"

# %% [markdown]
# (▁ marks the beginning of a word; `pieces` shows it only where it stands alone.) With the leak the test sentences are
# a good deal shorter, and none of their letters is unknown. So this test no longer measures how the model will do on
# the next new text, of which nobody asked the tokenizer beforehand, and *nothing in its loss or its score says so*. On
# captions, where training and test come from one source, the effect would be small. But "small" is an argument that has
# to be made anew each time, and the rule that needs no argument is: **merges from the training split alone.**
#
# > **Check yourself.** A course-mate trains the vocabulary on training and *validation* texts. The test set is
# > untouched. Is that clean?
# > <details><summary>Answer</summary>The test score is: nothing of the test was seen. But the validation score is now
# > too kind, and it is the one by which the step to stop at and the size of the vocabulary are chosen. Choices made by
# > a flattering number are not the best ones. Keep it out, too.</details>

# %%
german = Tokenizer.train((pair.source for pair in pairs.train), size=112, keep_apart="hundert|und")
english = Tokenizer.train((pair.target for pair in pairs.train), size=112)
encoded = encode_pairs(pairs.train, german, english)
test_encoded = encode_pairs(pairs.test, german, english)
print(" | ".join(german.pieces(pairs.test[0].source)))
print(" | ".join(english.pieces(pairs.test[0].target)))

# %% [markdown]
# ## Who shares a batch?
#
# A batch is a rectangle, and short sentences are filled up with padding. With 16 sentences drawn at random, how much of
# the rectangle is padding? *Guess.* And there is a second trouble: a batch of 16 long sentences has five times the
# tokens of one of 16 short ones, so memory has to be kept free for the largest, and one step learns from five times as
# much as another.
#
# Both have one remedy. Put sentences of like length together, and count **tokens** instead of sentences: as many rows
# as fit into the budget with their padding.

# %%
lengths = [len(pair.target) + 1 for pair in encoded[:160]]    # <eos> counts
by_number = [lengths[i : i + 16] for i in range(0, 160, 16)]
by_tokens = [[lengths[i] for i in batch] for batch in batch_by_tokens(lengths, batch_tokens=256)]
figures.padded_batches({"16 sentences at random": by_number, "256 tokens, like with like": by_tokens})


def padding(batches):
    return 1 - sum(map(sum, batches)) / sum(len(batch) * max(batch) for batch in batches)


assert padding(by_tokens) < 0.5 * padding(by_number)

# %% [markdown]
# On the right the rectangles are nearly full and nearly equally large; short sentences come in many rows, long ones in
# few. With all 20,000 pairs to choose from, instead of 160, they get fuller still. Two details keep this honest. Which
# pairs of equal length come together, and in which order the batches come, is drawn anew for each epoch, or the model
# would see the same batches for ever, the short ones first. And a pair counts as the longer of its two sides, because
# encoder and decoder each make a rectangle of their own. (`epoch_batches` does both.)
#
# ## Never quite sure
#
# The loss is the cross entropy of each next token. Its ideal is a model that gives the true token the probability 1,
# and with softmax that takes an infinite logit. So the gradient never stops pulling: towards certainty, long after the
# answer is right. **Label smoothing** (Szegedy et al. 2016) asks for a little less. The distribution that the model
# ought to give, $q$, is a mixture of the true token $y$ and of all $V$ tokens alike ($[v = y]$ is 1 where $v$ is the
# true token, and 0 elsewhere):
#
# $$
# q_v = (1 - \varepsilon)\,[v = y] + \frac{\varepsilon}{V} \qquad
# \text{loss} = -\sum_v q_v \log p_v = (1 - \varepsilon)\,(-\log p_y) + \varepsilon \cdot \frac1V \sum_v (-\log p_v)
# $$
#
# The loss is smallest where $p = q$, and that is at a finite logit. *Where?* Let the true token's logit be larger than
# all the others by $m$, in a vocabulary of 112, and draw the loss against $m$.

# %%
margins, V = torch.linspace(0, 15, 301), 112
logits = torch.cat([margins[:, None], torch.zeros(301, V - 1)], dim=1)     # (301, V)  0 is true
smoothed = {}
for share in (0.0, 0.1, 0.3):
    wanted = share / V + (1 - share) * F.one_hot(torch.tensor(0), V)       # (V,)  sums to one
    smoothed[f"ε = {share}"] = -(wanted * logits.log_softmax(dim=-1)).sum(dim=-1)        # (301,)
viz.function_curves(smoothed, margins, y_name="loss (nats)",
                    x_name="how far the true logit is ahead")

# %%
best = margins[smoothed["ε = 0.1"].argmin()]
q = 0.9 + 0.1 / V
assert abs(best - math.log(q * (V - 1) / (1 - q))) < 0.05, "where p equals q"
assert smoothed["ε = 0.0"].argmin() == 300, "without smoothing: the further the better, for ever"
theirs = F.cross_entropy(logits[:1], torch.tensor([0]), label_smoothing=0.1)
assert torch.isclose(theirs, smoothed["ε = 0.1"][0]), "torch's, too, spreads over all V"
print(f"best at {best:.1f}; even there the loss is {smoothed['ε = 0.1'].min():.2f}")

# %% [markdown]
# With ε = 0.1 the valley's floor is near 7, and beyond it certainty *costs*. The floor is not at zero: it is the
# entropy of $q$. So a training loss with smoothing compares with nothing but itself, and the loss that is reported of
# held-out text is always the plain one.
#
# What does it do to a real model? We train three small ones, one layer each, on lists of one or two numbers: one plainly,
# one with ε = 0.1, and a third that is for later. *What do you expect of the second:* more right, less right? A higher or
# a lower plain loss on unseen pairs?

# %%
short = number_words("de", "en", train=8_000, test=500, max_items=2, dates=0, seed=3)
short_train, short_test = (encode_pairs(part, german, english) for part in short)
small = TransformerConfig(vocab_size=len(german), target_vocab_size=len(english), d_model=64,
                          n_layers=1, n_heads=4, d_ff=128, dropout=0.1)
brisk = Recipe(steps=180, batch_tokens=256, lr=6e-3, warmup=30, label_smoothing=0.0)


def train_small(**changes):
    torch.manual_seed(0)
    model = EncoderDecoder(small)
    progress = train(model, short_train, replace(brisk, **changes))
    return model, progress

# %%
changes = {"plain": {}, "smoothed": {"label_smoothing": 0.1}, "averaged": {"ema": 0.97}}
small_models = {name: train_small(**change) for name, change in changes.items()}

# %%
@torch.no_grad()
def tokens_of(model, encoded):
    """For each target token: how sure the model is of its choice, and whether that is right."""
    source, lengths, target_in, target_out = collate(encoded)
    p = model(source, lengths, target_in).softmax(dim=-1)                  # (batch, n, vocab_size)
    sure, choice = p.max(dim=-1)                                           # (batch, n) each
    real = target_out != PAD
    return sure[real], (choice == target_out)[real]


for name in ("plain", "smoothed"):
    sure, right = tokens_of(small_models[name][0], short_test)
    loss = mean_loss(small_models[name][0], short_test)
    print(f"{name:>9}: right {right.float().mean():.1%}   sure {sure.mean():.1%}   loss {loss:.3f}")

# %%
def surplus(model):                                       # how much surer it is than right
    sure, right = tokens_of(model, short_test)
    return (sure.mean() - right.float().mean()).item()


timid, bold = surplus(small_models["smoothed"][0]), surplus(small_models["plain"][0])
print(f"surer than right by {bold:+.3f} without smoothing, by {timid:+.3f} with")
assert timid < bold - 0.02

# %% [markdown]
# (A negative number says: less sure than right. After so short a training even the plain model is a little too modest.)
# The smoothed one says what it knows more timidly still: it has learned what it was asked for. On the saved
# page its plain loss is *worse*, though it is about as often right. Vaswani et al. (2017, section 5.4) say the same of
# theirs, in one sentence that is worth remembering: smoothing hurts perplexity, as the model learns to be more unsure,
# and improves accuracy and BLEU. On our task, where there is exactly one right answer and nothing to be unsure of,
# there is nothing to gain, so we shall train without it. On captions, where a dozen translations are right and the data
# shows one of them, ε = 0.1 is usual.
#
# ## How large a step?
#
# [Lecture @deep_stacks](@deep_stacks) showed what the first hundred steps can do to a deep stack, and that a warm-up
# prevents it. What comes after the warm-up? The two schedules that are used most:

# %%
steps = range(1, 4001)
rates = {
    "inverse square root": [1e-3 * inverse_sqrt(step, warmup=400) for step in steps],
    "the same, warm-up 1,600": [1e-3 * inverse_sqrt(step, warmup=1600) for step in steps],
    "cosine": [1e-3 * cosine(step, warmup=400, steps=4000) for step in steps],
}
figures.learning_rates(rates)

# %%
paper = [512**-0.5 * min(step**-0.5, step * 4000**-1.5) for step in range(1, 100_001)]
peak = max(paper)
print(f"in the paper: {peak:.1e} at step {paper.index(peak) + 1:,}, {paper[-1]:.1e} at the end")
ours = [peak * inverse_sqrt(step, warmup=4000) for step in range(1, 100_001)]
assert all(map(math.isclose, paper, ours))

# %% [markdown]
# The inverse square root (Vaswani et al. 2017, equation 3) does not need to know how long the run will be: one can look
# in, and go on. (With the peak given, its warm-up sets all that follows: a longer one leaves the rate higher for good.)
# The cosine does, and ends at zero, where the last steps no longer jump about. If the length is known beforehand it is
# usually the better one, and it is what we take.
#
# Steps are counted from one. Whoever counts from zero has a first step of rate zero, or, with the formula as it is
# printed, $0^{-1/2}$.
#
# ## One step, in full
#
# Here is everything that happens between two looks at the loss. The batch comes in parts, *micro-batches*, because the
# whole may not fit into memory, or because each part is on another GPU. Gradients add up until somebody clears them.

# %%
def gradient_of(model, parts, share):
    """The gradient of a batch in parts, one long vector; `share(part)` is a part's weight."""
    model.zero_grad()
    for part in parts:
        loss = model.loss(*collate(part))
        (loss * share(part)).backward()                                    # adds to what is there
    return torch.cat([p.grad.flatten() for p in model.parameters()])


def n_tokens(part):
    return sum(len(pair.target) + 1 for pair in part)

# %% [markdown]
# One question decides whether this is right. Each part's loss is a *mean* over its tokens. How are the means put
# together? Below are two parts, as they come from batches by tokens: many short sentences in one, a few long ones in the
# other. On two GPUs, the obvious thing is to average what the two have computed. *Is it the gradient of the whole
# batch?*

# %%
model = train_small(steps=30)[0].eval()                                    # eval: no dropout
by_length = sorted(test_encoded, key=lambda pair: len(pair.target))
parts = [by_length[:40], by_length[-8:]]
together = parts[0] + parts[1]
whole = gradient_of(model, [together], share=lambda part: 1)
averaged = gradient_of(model, parts, share=lambda part: 1 / len(parts))
weighted = gradient_of(model, parts, share=lambda part: n_tokens(part) / n_tokens(together))
print("tokens in the parts:", [n_tokens(part) for part in parts])
off = {}
for name, gradient in {"mean of means": averaged, "by tokens": weighted}.items():
    off[name] = ((gradient - whole).norm() / whole.norm()).item()
    print(f"{name:>13}: off by {off[name]:.1e} of the gradient's length")
assert off["by tokens"] < 1e-4 and off["mean of means"] > 0.02

# %% [markdown]
# It is not. A token in the smaller part counts for more, so the step depends on how the batch was cut, and a run on
# four GPUs is not the run on one. Divide by the tokens of the *whole step*, on all machines together, and the gradient
# is the same up to rounding. This bug sat for years in the gradient accumulation of widely used training code, and was
# repaired in several libraries in 2024: the loss falls all the same.
#
# What is summed between GPUs is exactly this: each has the whole model and its own part of the batch, computes its own
# gradient, and then all gradients are added up and handed to everybody (an *all-reduce*), so that all take the same
# step. That is data parallelism, in torch `DistributedDataParallel`, which hands everybody the *mean* of the gradients,
# as it cannot know about tokens: the trap of this section, built in, and a trainer has to undo it. Where the model
# itself is too large, each GPU keeps only a slice of the parameters, and they lend each other what they need (*fully
# sharded*, FSDP). The command is the same for one GPU or eight:
#
# ```
# torchrun --nproc-per-node 8 -m attncourse.training train --profile base --data multi30k
# ```
#
# **Clipping** is the last thing before the step: if the gradient, all parameters together, is longer than 1, say, it is
# scaled down to that length. Its direction stays. One odd batch can then do no more harm than any other. (To clip each
# parameter by itself would turn the direction.) How often it happens we shall see below.
#
# > **Check yourself.** With Adam, a step hardly depends on the gradient's size: it is divided by its own recent root
# > mean square. What is clipping for, then?
# > <details><summary>Answer</summary>For "recent". Adam steps along an average of past gradients, too, and a batch
# > whose gradient is a hundred times as long as usual fills both averages. Alone it decides the direction of this step
# > and of the next dozen; and the mean square remembers it, with β₂ = 0.98 for two hundred steps, in which ordinary
# > steps are too small.</details>
#
# ## Sixteen bits
#
# GPUs multiply matrices several times as fast in 16 bits as in 32, and move half the bytes. There are two ways to spend
# 16 bits. **fp16** gives 5 to the exponent and 10 to the digits, **bf16** 8 and 7. *Which of the two would you rather
# lose, digits or range?*

# %%
fp16, bf16 = torch.float16, torch.bfloat16
numbers = torch.tensor([70_000.0, 1e-8, 1 + 1 / 512])                      # in 32 bits
names = ["a large score", "a small gradient", "one and a bit"]
for name, x, half, brain in zip(names, numbers, numbers.to(fp16), numbers.to(bf16), strict=True):
    print(f"{name:>17}: {x:<10.7g}  fp16 {half:<10.7g}  bf16 {brain:.7g}")
assert numbers.to(fp16).tolist() == [math.inf, 0, 1 + 1 / 512]
assert numbers.to(bf16).isfinite().all() and numbers.to(bf16)[1] > 0 and numbers.to(bf16)[2] == 1
scaled = (numbers[1] * 2**16).to(fp16)                     # multiplied before it is rounded
assert math.isclose(scaled.float() / 2**16, 1e-8, rel_tol=1e-3)            # and divided in 32 bits

# %% [markdown]
# fp16 has more digits and runs out of range at both ends: scores overflow, and small gradients vanish. The remedy is
# **loss scaling** (Micikevicius et al. 2018; the cell's last two lines): multiply the loss by a large number, and so
# all gradients; divide again in 32 bits before the step; if something overflowed, skip the step and take a smaller
# number. bf16 has the range of float32 and needs none of this. It is what one takes today wherever the hardware has it.
#
# What bf16 loses is digits, and there is one place where they are dear:

# %%
weight, update = torch.tensor(1.0), torch.tensor(1e-3)
low = weight.to(bf16)
for _ in range(1000):
    weight, low = weight - update, low - update.to(bf16)
print(f"after 1,000 updates of 0.001: in 32 bits {abs(weight):.3f}, in bf16 {low:.3f}")
assert low == 1.0 and abs(weight) < 1e-3

# %% [markdown]
# A thousand updates, and nothing has moved: each was less than half of the last digit. So the *products* are computed
# in 16 bits, and the parameters, the optimiser's averages, sums and losses stay in 32. torch calls this autocast, and
# our `Recipe` calls it `precision="bf16"`.
#
# The other lever on a GPU is `torch.compile(model.loss)`, one line. It fuses the many small operations between the
# matrix products, which otherwise each read and write the whole tensor, into few. It takes a minute to begin with, and
# is worth it for runs that are longer than that. On one thread of a CPU neither of the two pays, and we use neither.
#
# ## The ladder's last rung
#
# In lecture @cross_attention three models translated lists of numbers: the decoder was handed the encoder's last state, or the mean
# of its states, or attention. Today the ladder gets its last rung. What is a fair comparison? The same steps? A step of
# the Transformer computes all positions at once, a step of the recurrent models one after the other. Equal numbers of
# steps would hide that; so **all four get about the same computing time**, some ten seconds of one CPU thread each,
# with batches of the same size. In that time the Transformer gets through 550 steps, the recurrent ones through 370. It
# has slightly fewer parameters than they have.
#
# *Write down your guess:* of a thousand lists of one to five numbers, what share will each of the four get right to the
# last letter? The picture is drawn while the Transformer trains.

# %%
recipe = Recipe(steps=550, batch_tokens=256, lr=5e-3, warmup=100, schedule="cosine",
                label_smoothing=0.0, evaluate_every=185)


def write(model, pairs):
    sources = [pair.source for pair in pairs]
    return [each.text for each in translate(model, sources, german, english)]


def exactly_right(texts, pairs):
    return sum(exact_match(texts, [pair.target for pair in pairs])) / len(pairs)

# %%
watching = []                                              # seconds that looking on takes


def timed(function):
    def call(*arguments):
        began = time.process_time()
        result = function(*arguments)
        watching.append(time.process_time() - began)
        return result
    return call

# %%
validation = pairs.train[:100]                             # kept out of what is trained on
torch.manual_seed(0)
transformer = EncoderDecoder(replace(small, n_layers=2, dropout=0.0))
began = time.process_time()
score = timed(lambda model: {"exact": exactly_right(write(model, validation), validation)})
progress = train(transformer, encoded[100:], recipe, evaluate=score, best_by="exact",
                 listeners=[timed(LiveCurves("exact", seconds=4))])
seconds = {"Transformer": time.process_time() - began - sum(watching)}

# %%
models = {}
for summary in SUMMARIES:
    torch.manual_seed(0)
    models[summary] = Seq2Seq(len(german), len(english), d_embedding=32, d_hidden=128,
                              summary=summary)
    began = time.process_time()
    train(models[summary], encoded[100:], replace(recipe, steps=370, lr=6e-3, warmup=65))
    seconds[summary] = time.process_time() - began
models["Transformer"] = transformer

# %%
written = {name: write(model, pairs.test) for name, model in models.items()}
right = {name: exactly_right(texts, pairs.test) for name, texts in written.items()}
for name, model in models.items():
    size = sum(p.numel() for p in model.parameters())
    print(f"{name:>12}: {right[name]:6.1%} exactly right   {size:,} parameters"
          f"   {seconds[name]:.0f} s of computing")
assert max(right["last state"], right["mean pool"]) < 0.25
assert min(right["attention"], right["Transformer"]) > 0.5

# %% [markdown]
# The two that must do with one vector, lecture @bottleneck's postcards, are far behind, and both models that attend get most of
# the lists. That is the large step of the ladder, and it is lecture @cross_attention's. Between the two of them the race is close,
# and had you put your money on the Transformer you might have lost it here. Why, then, has it replaced the other? Look
# at what this page is: sentences of at most some thirty tokens, and one thread, which computes one thing after the
# other in any case. Here recurrence costs little, about half as much again for each step, and what a step teaches is
# worth as much. Its price is *parallel* computing, which is the argument in the introduction of "Attention is all you
# need", and what lecture @bottleneck timed: on hardware that computes thousands of positions at once, a recurrent model has to
# wait for each of its own. And number words are no language: we come back to the question with real sentences.
#
# > **On the slide.** "We can compute next-token probabilities for *all* positions at once", says one deck under
# > "Transformer Training", and in training that is so: the true words are there, and one pass sees them all. When
# > the model *writes* they are not there. Count how often the decoder has to be asked:

# %%
calls = Counter()
handle = transformer.decoder.register_forward_hook(lambda *_: calls.update(["decoder"]))
source, lengths, target_in, target_out = collate(test_encoded[:1])
transformer(source, lengths, target_in)
in_training, calls["decoder"] = calls["decoder"], 0
with torch.no_grad():
    n_written = greedy(transformer, source, lengths).tokens.shape[1]
handle.remove()
print(f"training: {in_training} pass for {target_in.shape[1]} tokens")
print(f"writing: {calls['decoder']} passes for {n_written}")
assert in_training == 1 and calls["decoder"] == n_written > 1

# %% [markdown]
# Writing is as sequential as in any recurrent network, and that is why so much thought goes into making a step of
# it cheap. First, what the clip did while we trained:

# %%
norms = [step.gradient for step in progress.steps]
viz.curves({"before clipping": norms, "the limit": [recipe.clip] * len(norms)},
           y_name="length of the gradient", log_y=True)
fifths = [norms[i : i + 110] for i in range(0, 550, 110)]
clipped = [sum(norm > recipe.clip for norm in some) / len(some) for some in fifths]
print("clipped, in each fifth of the run:", [f"{share:.0%}" for share in clipped])
assert max(clipped) > 0.5 and clipped[-1] < 0.7 * max(clipped)

# %% [markdown]
# (The line is a running mean.) A limit of 1 is no emergency brake here. For a good part of the run most gradients are
# longer and are all cut to one length, so that each step says only *where* to go; towards the end, where little is left
# to be learned, most pass as they are.
#
# ## Pull the plug
#
# A run of days will be interrupted: by a failing machine, by a queue, by you. What has to be kept so that it can go on
# *as if nothing had happened*? The weights alone will not do. Adam's two averages are needed, or the next steps are out
# of proportion; the step's number, or the rate is wrong; and the order of the data and the state of the dropout, or the
# run is another one. Ours keeps the averages in the checkpoint, and *draws* the other two from seed and step number, so
# there is nothing of them to be kept.
#
# Let us pull the plug at step 25, resume from the checkpoint of step 20, and compare with a run that was left alone.

# %%
class PowerCut(Exception):
    pass


def cut_the_power(progress):
    if progress.step == 25:
        raise PowerCut


def run(folder, listeners=(), resume=False):
    torch.manual_seed(0)
    run_config, model = replace(brisk, steps=40, save_every=10), EncoderDecoder(small)
    return train(model, short_train, run_config, folder, resume=resume, listeners=listeners)

# %%
with tempfile.TemporaryDirectory() as folder:
    unbroken = [step.loss for step in run(folder).steps]
with tempfile.TemporaryDirectory() as folder:
    try:
        run(folder, listeners=[cut_the_power])
    except PowerCut:
        print("the lights are out")
    resumed = [step.loss for step in run(folder, resume=True).steps]
assert resumed == unbroken and len(resumed) == 40
print("steps 19 to 23, unbroken:", [f"{loss:.6f}" for loss in unbroken[18:23]])
print("                resumed: ", [f"{loss:.6f}" for loss in resumed[18:23]])

# %% [markdown]
# All forty losses are equal, to the last bit, with dropout and all. That is more than neatness. If a resumed run is
# *exactly* the unbroken one, then a difference between two runs has a cause, and can be looked for. (On a GPU some sums
# are added in an order that changes, so there "exactly" becomes "nearly".) A checkpoint is written beside the old one
# and then put into its place in one move, so that a power cut in the middle of writing finds the old one whole.
#
# Which weights are the *result* of a run? The last ones stand wherever the last noisy step has left them. An
# **average** over the last stretch is calmer. For their base model, Vaswani et al. average the last five checkpoints
# (section 6.1); a moving average, $\bar\theta \leftarrow \beta\bar\theta + (1 - \beta)\theta$ after each step, costs
# one copy of the weights. The third of our small models was trained exactly as the first, step by step, but hands over
# its moving average. *Better, or worse?*

# %%
both = ("plain", "averaged")
losses = [[step.loss for step in small_models[name][1].steps] for name in both]
last, average = (mean_loss(small_models[name][0], short_test) for name in both)
print("the same training:", losses[0] == losses[1])
print(f"held-out loss of the last weights {last:.4f}, of their average {average:.4f}")
assert losses[0] == losses[1] and average > last

# %% [markdown]
# Here it *hurts*, and it is worth seeing why. An average looks back. This run is so short that each step still makes
# the model better, and thirty steps ago it was worse. Averaging pays where the loss has levelled out and the rate is
# still high, so that the weights wander about a place instead of moving on; after a cosine that has ended at zero there
# is nothing left to calm. That is why a tool that helped somebody is measured again before it is used.
#
# ## Where does it look?
#
# Nobody told the model which German piece belongs to which English piece. We know it, though, and can ask each head of
# the decoder's cross-attention: of the target pieces, for what share does the largest weight stand at a source piece
# that they do *not* translate? That is the **alignment error**. There are two layers with four heads. *Do you expect
# them to be alike?*

# %%
@torch.no_grad()
def cross_attention(pair):
    """The true alignment, and what each head does when the true target is dictated."""
    ids = encode_pairs([pair], german, english)
    source, lengths, target_in, _ = collate(ids)
    weights = transformer(source, lengths, target_in, with_weights=True)[1].cross[0]
    pieces = german.pieces(ids[0].source), english.pieces(ids[0].target)
    truth = aligned_pieces(pair, *pieces, source="de", target="en")        # (n_target, n_source)
    return truth, weights[:, :, : len(truth)]              # (layers, heads, n_target, n_source)


aligned = [cross_attention(pair) for pair in pairs.test[:300]]

# %%
def error_of(layer, head):
    ours = [weights[layer, head] for _, weights in aligned]
    return alignment_error(ours, [truth for truth, _ in aligned])


errors = torch.tensor([[error_of(layer, head) for head in range(4)] for layer in range(2)])
viz.draw_weights(errors, ["layer 0", "layer 1"], ["head 0", "head 1", "head 2", "head 3"],
                 title="alignment error")
layer, head = divmod(int(errors.argmin()), 4)
print(f"best: layer {layer}, head {head}, {errors.min():.0%};  worst: {errors.max():.0%}")
assert errors.min() < 0.5 * errors.max()

# %% [markdown]
# They are not. Some heads look where a person would draw the line, others somewhere else altogether, and the mean over
# heads, which is what many pictures show, mixes the two. Here is one list, as the best head sees it. Point at a token,
# then ask for all heads, and for the two other kinds of attention. *Before you do:* all heads of the decoder's
# self-attention have one row in common, to the last digit. Which, and why?

# %%
pair = next(pair for pair in pairs.test if pair.target.count("-") == 2 and pair.target.count(",") == 1)
viz.show_attention(transformer, pair.source, german, english, written=pair.target, title=pair.source, layer=layer, head=head)

# %% [markdown]
# The list runs down the diagonal, and within each number the ten and the unit cross, as they must. Take it as in
# lecture @cross_attention: the weights say which states were averaged. That a few heads align well and the others do not is no fault
# of the others: they carry other things, and all are added up.
#
# > <details><summary>The row in common</summary>The first. <code>&lt;bos&gt;</code> may look at nothing but itself, so
# > it gives itself all of its weight, in every head; the corner above the diagonal is empty.</details>

# %%
source, lengths, target_in, _ = collate(encode_pairs([pair], german, english))
with torch.no_grad():
    own = transformer(source, lengths, target_in, with_weights=True)[1].decoder       # (1, layers, heads, n, n)
assert (own[..., 0, 0] == 1).all() and not own.triu(1).any()

# %% [markdown]
# ## Writing, and the road not taken
#
# So far the model wrote **greedily**: the likeliest token, then the likeliest after that. What we should like is the
# likeliest *sentence*. Is that not the same? Here is a model of one sentence, as a tree small enough to see all of it.
# Each line says how likely a word is after the words before it. *Follow the greedy path, and then look for a better
# one.*

# %%
TREE = {
    (): {"a": 0.5, "two": 0.4, "the": 0.1},
    ("a",): {"dog": 0.4, "cat": 0.35, "boat": 0.25},
    ("two",): {"dogs": 0.9, "cats": 0.1},
    ("the",): {"dogs": 0.6, "sea": 0.4},
    ("a", "dog"): {"runs .": 0.6, "by the sea .": 0.4},
    ("two", "dogs"): {"run .": 0.8, "by the sea .": 0.2},
}

# %%
p_of = {(): 1.0}
for words, following in TREE.items():
    p_of |= {(*words, word): p_of[words] * p for word, p in following.items()}


def search(n_beams):
    open_, kept = [()], set()
    while any(words in TREE for words in open_):
        longer = [(*words, word) for words in open_ for word in TREE.get(words, {})]
        open_ = sorted(longer, key=p_of.get, reverse=True)[:n_beams]       # all compete
        kept.update(open_)
    return max(open_, key=p_of.get), kept

# %%
def draw_search(beams):
    best, kept = search(beams)
    title = f"{beams} {'beam' if beams == 1 else 'beams'}: “{' '.join(best)}”"
    return figures.search_frame({words: p for words, p in p_of.items() if words}, kept, best, title)


viz.explore(draw_search, beams=[1, 2, 3], start={"beams": 2})

# %%
assert search(1)[0] == ("a", "dog", "runs .") and search(2)[0] == ("two", "dogs", "run .")
print(f"greedy: {p_of[search(1)[0]]:.3f}   two beams: {p_of[search(2)[0]]:.3f}")
assert p_of[search(2)[0]] > 2 * p_of[search(1)[0]]

# %% [markdown]
# The greedy path takes "a", because it is the likeliest first word, and pays for it afterwards. **Beam search** keeps
# the best few beginnings instead of one. With two beams it finds a sentence that is more than twice as likely. It is no
# guarantee: what falls out of the beam early is never looked at again (the third, pale here, might have been the best),
# and to be certain one would have to look at everything.
#
# One thing has to be mended before it can be used on real sentences. A sentence's log-probability is a sum of negative
# numbers, one a token, so *long sentences lose by being long*. The score is therefore divided by a power of the length,
# $|y|$ tokens (Wu et al. 2016, section 7):
#
# $$\text{score}(y) = \frac{\log p(y)}{\left(\frac{5 + |y|}{6}\right)^{\alpha}}$$
#
# It *divides*. The numerator is negative, so a large divisor brings the score nearer to zero, which is better; whoever
# multiplies makes long sentences lose twice.

# %%
scores = {}
for name, log_p, n in (("short", -3.0, 4), ("long", -4.2, 9)):
    scores[name] = {alpha: log_p / ((5 + n) / 6) ** alpha for alpha in (0.0, 0.6, 1.0)}
    listed = "   ".join(f"α = {alpha}: {score:.2f}" for alpha, score in scores[name].items())
    print(f"{name:>5}, {n} tokens:  {listed}")
assert scores["short"][0.0] > scores["long"][0.0] and scores["short"][1.0] < scores["long"][1.0]

# %% [markdown]
# > **Check yourself.** All hypotheses of one step have equally many tokens. Why is the penalty not needed to choose
# > which of *them* are kept?
# > <details><summary>Answer</summary>The divisor is the same for all, so it changes no order. It is needed where
# > hypotheses of different length meet: among those that have ended, and when asking whether an open one can still beat
# > them.</details>
#
# And our model? *How many of its mistakes will four beams mend?*

# %%
source, lengths, *_ = collate(test_encoded[:300])
began = time.process_time()
tokens = {"greedy": greedy(transformer, source, lengths, 60).tokens}       # (300, n)
middle = time.process_time()
beams = beam_search(transformer, source, lengths, 4, length_penalty=0.6, max_length=60).tokens
tokens["four beams"] = beams[:, 0]                                         # the best of the four
cost = (time.process_time() - middle) / (middle - began)

# %%
answers = [pair.target for pair in pairs.test[:300]]
texts = {name: [english.decode(row) for row in rows.tolist()] for name, rows in tokens.items()}
found = {name: sum(exact_match(some, answers)) for name, some in texts.items()}
differ = sum(a != b for a, b in zip(*texts.values(), strict=True))
print(f"exactly right of 300: {found}   {differ} differ, for {cost:.1f} times the computing")
assert cost > 1.5 and abs(found["four beams"] - found["greedy"]) <= 15

# %% [markdown]
# Hardly any. Where one answer is right and the model knows it, the greedy path *is* the best one; where it does not
# know, the likeliest sentence is wrong as well. On captions, where much can be said in several ways, four or five beams
# usually gain a little, for several times the computing. (And more beams are not better for ever: with hundreds,
# translations get worse, because the likeliest sentence of all is often a very short one. Koehn and Knowles 2017,
# section 3.6.)
#
# ### What is kept between two tokens
#
# Written naively, each new token means a pass over everything that was written. But the keys and values of the old
# tokens do not change (the decoder sees only its past), so one keeps them: the cache of [lecture
# @many_heads](@many_heads). Is it the same, and what is it worth?

# %%
@torch.no_grad()
def write_without(tokens, steps):
    mask = source_mask(source[:16], lengths[:16])
    memory = Memory(transformer.encoder(source[:16], lengths[:16]), mask)
    for _ in range(steps):
        states = transformer.decoder(tokens, memory)                       # all of it, again
        logits = transformer.output(states[:, -1])                         # (batch, vocab_size)
        tokens = torch.cat([tokens, logits.argmax(dim=-1, keepdim=True)], dim=1)
    return tokens


@torch.no_grad()
def write_with(tokens, steps):
    state = transformer.start(source[:16], lengths[:16])
    for _ in range(steps):
        logits, state, _ = transformer.step(tokens[:, -1], state)          # the new one alone
        tokens = torch.cat([tokens, logits.argmax(dim=-1, keepdim=True)], dim=1)
    return tokens

# %%
def measure(writing, steps):
    first = torch.full((16, 1), BOS)
    began = time.process_time()
    tokens = writing(first, steps)                         # all of them go on behind <eos>, too
    return tokens, time.process_time() - began


took = {"without a cache": {}, "with a cache": {}}
for steps in (15, 30, 60, 120):
    plain, took["without a cache"][steps] = measure(write_without, steps)
    cached, took["with a cache"][steps] = measure(write_with, steps)
    assert (plain == cached).float().mean() > 0.95         # a tie may fall the other way
viz.line_plot(took, x_name="tokens written", y_name="seconds", low=0)
assert took["without a cache"][120] > 1.5 * took["with a cache"][120]

# %% [markdown]
# The same tokens. Without a cache each token pays for all those before it once more, so the time grows faster than the
# length, in the end with its square. With one it grows, at these lengths, about in proportion: a token still looks back
# at all the kept keys, but that is the cheap part here.
#
# One more thing can go wrong while a model writes, and it is the silliest. Dropout belongs to training. A model that is
# left in training mode translates with a tenth of its numbers missing, another tenth each time, and nothing warns of
# it:

# %%
model = small_models["plain"][0]
quiet = mean_loss(model.eval(), short_test)
noisy = [mean_loss(model.train(), short_test) for _ in range(2)]
model.eval()
print(f"held-out loss in evaluation mode {quiet:.3f},")
print(f"in training mode {noisy[0]:.3f}, and once more {noisy[1]:.3f}")
assert min(noisy) > 1.02 * quiet and noisy[0] != noisy[1]

# %% [markdown]
# Two measurements of one model that differ are the sign to look for. (`torch.no_grad()` does not help: it saves memory,
# and dropout takes no notice of it. What is needed is `model.eval()`.)
#
# ## How good is a translation?
#
# For number words we count what is right to the last letter. For a caption that would be unfair: *a boy runs along the
# beach* and *a boy is running on the beach* are both right. **BLEU** (Papineni et al. 2002) counts what a translation
# and a reference have in common: of the translation's words, pairs, triples and quadruples of words, which share occurs
# in the reference, too? Let us compute it by hand.

# %%
hypothesis = "a boy in a red coat runs along the beach with two dogs ."
reference = "a boy in a red coat is running along the beach with his two dogs ."


def n_grams(text, n):
    words = text.split()
    return Counter(tuple(words[i : i + n]) for i in range(len(words) - n + 1))


precisions = []
for n in (1, 2, 3, 4):
    ours, theirs = n_grams(hypothesis, n), n_grams(reference, n)
    common = (ours & theirs).total()                       # at most as often as in the reference
    precisions.append(common / ours.total())
    print(f"{n}: {common} of {ours.total()}")

# %% [markdown]
# The four shares are multiplied and the fourth root is taken, so one poor share spoils it all. And as it would be easy
# to have good shares with a translation of three safe words, there is a **brevity penalty** for one that is shorter
# than the reference:
#
# $$\text{BLEU} = 100 \cdot \min\bigl(1,\ e^{\,1 - r/c}\bigr) \cdot \Bigl(\prod_{n=1}^{4} \text{precision}_n\Bigr)^{1/4}$$
#
# with $c$ words in the translation and $r$ in the reference. Over a corpus, the counts are added up first and divided
# afterwards: BLEU of a corpus is not the mean of its sentences' BLEU.

# %%
brevity = min(1.0, math.exp(1 - len(reference.split()) / len(hypothesis.split())))
by_hand = 100 * brevity * math.prod(precisions) ** (1 / 4)
score = bleu([hypothesis], [reference])
print(f"by hand {by_hand:.2f}   sacrebleu {score.score:.2f}\n{score.signature}")
assert math.isclose(by_hand, score.score, abs_tol=1e-6)

# %% [markdown]
# The line below the number is its **signature**: how the text was cut into words (`tok:13a`), whether capitals count
# (`case:mixed`), how zeros are smoothed, which version. It looks like pedantry. *The next cell scores one and the same
# output against one and the same reference, five ways. How far apart can the numbers be?*

# %%
import sacrebleu

outputs = ["Two dogs, a brown one and a white one, run along the beach.",
           "A woman in a T-shirt sells ice-cream at the lake."]
references = ["two dogs, one brown and one white, run along the beach .",
              "A woman in a t-shirt is selling ice-cream by the lake."]
points = []
for tokenise, lowercase in [("13a", 0), ("13a", 1), ("none", 0), ("intl", 0), ("char", 0)]:
    metric = sacrebleu.BLEU(tokenize=tokenise, lowercase=bool(lowercase))
    points.append(metric.corpus_score(outputs, [references]).score)
    print(f"{points[-1]:5.1f}   {metric.get_signature()}")
assert max(points) - min(points) > 20

# %% [markdown]
# More than fifty points from the lowest to the highest, and still twenty-five without the last line, which counts
# letters; and not a letter of the translations has changed. Lower-casing makes more words equal; cutting at spaces
# alone makes "beach." and "beach" two different words. So: *two BLEU scores compare only where their signatures are
# the same*, and a score without one compares with nothing. Post (2018) counted differences of up to 1.8 points among
# configurations in common use, more than many papers claim as their gain.
#
# > **On the slide.** Three decks print a column "BLEU" for English–German and English–French, from the Transformer's
# > own paper, and no deck says *which* BLEU. The paper's numbers were computed on tokenised output by the authors' own
# > scripts. They may stand beside each other in one table; a number that you compute today with sacreBLEU must not be
# > put into that table as another row.
#
# ## Real sentences
#
# Multi30k (Elliott et al. 2016) is 29,000 captions of photographs in English, and in the German that translators made
# of them, with 1,014 pairs to choose by and 1,000 to test on. The data set's own repository states no licence, so the
# files are not part of this course; the loader fetches them once from there, checks them, and keeps them:
#
# ```python
# from attncourse.data import multi30k
#
# captions = multi30k("de", "en")            # 29,000 pairs in captions.train, 1,014 in .val, 1,000 in .test
# ```
#
# From there on nothing is new. The same tokenizer, batches, loss, schedule, checkpoints and search are behind one
# command, with one profile that is made for a laptop and one for a GPU:
#
# ```
# attncourse train --profile cpu --data multi30k      # or --profile gpu
# attncourse translate "Zwei Hunde rennen am Strand entlang."
# ```
#
# What comes out of it takes a laptop twenty minutes, so it was measured beforehand, by `benchmarks/training.py`, and so
# were the three rungs below it, on the same pairs, with the same tokenizer, recipe and number of steps. On lists of
# numbers the rungs with one vector got hardly any list right, and the upper two were close. *What do you expect of
# sentences? Put the four in order, and say between which two the largest step is.*

# %%
runs = training_runs()[::-1]
for kept in runs:
    print(f"BLEU {kept.bleu:.1f}, lower-cased {kept.bleu_lowercase:.1f}   "
          f"{kept.model}, {kept.source}→{kept.target}, {kept.parameters / 1e6:.1f} M parameters\n"
          f"    {kept.seconds:,.0f} s on {kept.device}   {kept.signature}\n    {kept.command}")
if all("x86" in kept.device or "cpu" in kept.device.lower() for kept in runs):
    print("None was made on a GPU.")

# %%
files = {"recurrent, mean pool": "training_cpu_de_en_mean_pool",
         "recurrent, last state": "training_cpu_de_en_last_state",
         "recurrent, attention": "training_cpu_de_en_attention", "Transformer": "training_cpu_de_en"}
records = {model: measured(file) for model, file in files.items()}
curves = {model: [at["test"] for at in record["curve"]] for model, record in records.items()}
every = records["Transformer"]["steps"] // len(curves["Transformer"])
looks = range(every, 4 * every + 1, every)
viz.curves(curves, xs=looks, x_name="steps", y_name="BLEU on the test set, greedy")
reached, entire = ([record["measured"][of] for record in records.values()] for of in ("bleu", "exact"))
assert abs(reached[0] - reached[1]) < 1 and min(reached) > 15
assert reached[2] > max(reached[:2]) + 8 and reached[3] > reached[2] + 2
print("right as a whole:",
      *(f"{share:.1%}  {model}" for model, share in zip(records, entire, strict=True)), sep="\n    ")
assert max(entire) < 0.05

# %% [markdown]
# One vector does far better on captions than on lists, or seems to: BLEU pays for every stretch that is right, where a
# list is right or wrong as a whole. Hardly a caption is right as a whole, on any rung. Which single vector it is hardly
# matters: with half a point of BLEU between them and one run each, the two are level. Letting the decoder look back is
# worth eleven points, the largest step of the ladder.
#
# The Transformer is above that from the first look on. Sentences are longer than our lists, their words stand in a
# different order from the translation's, and a word means what its neighbours make it mean: there is more to look up,
# and the Transformer looks things up in every layer, also in the source itself. (Each was trained once, by a recipe
# that was written for the Transformer, so take the last four points with a pinch of salt. And do not compare the
# seconds: the recurrent models had one thread each of a machine that was busy with other things. The steps compare,
# and the sizes nearly.)
#
# Note as well how the recurrent models gain two to three points when five hypotheses are kept in place of one, from the
# end of their curves to the BLEU that was printed, and the Transformer next to nothing. One that is less sure of its next
# word has more to gain from a second thought.

# %% [markdown]
# Beside this, what others have reported on the same 1,000 captions (their numbers, not measured again here). Mind the
# third column.
#
# | German → English | BLEU | measured on | source |
# |---|---|---|---|
# | recurrent (LSTM), last state | 13.8 | spaCy's tokens, lower-cased | Trevett, notebook 1 |
# | recurrent (GRU), one vector still | 20.6 | spaCy's tokens, lower-cased | Trevett, notebook 2 |
# | recurrent (GRU), attention | 28.3 | spaCy's tokens, lower-cased | Trevett, notebook 3 |
# | Transformer, 9.04 M parameters | 36.5 | spaCy's tokens, lower-cased | Trevett, notebook 6 |
# | **English → German** | | | |
# | Transformer (tiny), beam 5 | 41.0 | the authors' tokens | Wu et al. 2021, their code's README |
#
# (Ben Trevett's tutorials are at `github.com/bentrevett/pytorch-seq2seq`: notebooks 1 to 3 as he has rewritten them,
# notebook 6 in its edition of 2021. Wu et al., *Good for misconceived reasons*: `github.com/LividWo/Revisit-MMT`.)
#
# It is the ladder that you have just climbed, in the same order: attention adds more than seven points to the best
# single vector, and the Transformer eight more. The first four rows were measured in one way, so they compare with each
# other, as far as models of different sizes and recipes do. They do not compare with ours, not even with our lower-cased
# numbers, as spaCy cuts words differently from `13a`. The last row is another language and a third measure.
#
# ## What went wrong
#
# A score says how much is wrong, never what. So read the worst. Which lists did our Transformer spoil most? We ask
# *chrF* (Popović 2015), which counts what two texts have in common as BLEU does, but in letters.

# %%
ours = zip(written["Transformer"], pairs.test, strict=True)
spoilt = [(text, pair) for text, pair in ours if text != pair.target]
wrong = [(chrf([text], [pair.target]).score, pair, text) for text, pair in spoilt]
for score, pair, text in sorted(wrong, key=lambda each: each[0])[:4]:
    print(f"chrF {score:.0f}\n   source {pair.source}")
    print(f"  written {text[:70]}{' …' * (len(text) > 70)}\n    truth {pair.target}")

# %% [markdown]
# Look at the sources. Did you expect *these* to be the hardest? Guessing from four examples is how legends begin,
# though, so count all of them: what kind of mistake, and in lists of how many numbers?

# %%
def what_went_wrong(text, truth):
    ours, theirs = text.split(", "), truth.split(", ")
    if len(ours) != len(theirs):
        return "a number too few" if len(ours) < len(theirs) else "a number too many"
    off = sum(a != b for a, b in zip(ours, theirs, strict=True))
    return "one number wrong" if off == 1 else "several numbers wrong"


def numbers_in(pair):
    return pair.source.count(",") + 1

# %%
kinds = Counter(what_went_wrong(text, pair.target) for _, pair, text in wrong)
print(f"{len(wrong)} of 1000 wrong:", dict(kinds))
asked = Counter(map(numbers_in, pairs.test))
missed = Counter(numbers_in(pair) for _, pair, _ in wrong)
shares = {n: missed[n] / asked[n] for n in range(1, 6)}
print("wrong, by numbers in the list:", {n: f"{share:.0%}" for n, share in shares.items()})
assert min(shares[1], shares[5]) > 2 * shares[3], "both ends, not only the long one"

# %% [markdown]
# Two things go wrong. The longest lists fail because everything has to be right in them, and some end too soon. But the
# *shortest* fail as well, a single number, which ought to be the easiest, and how they fail is telling: a number said
# again and again, or a last syllable stammered for ever. It has said what there was to say and does not know how to
# stop. Why? *What would you count next?*

# %%
def length(pair):
    return len(english.encode(pair.target)) + 1            # <eos> counts


seen, asked = Counter(map(length, pairs.train[100:])), Counter(map(length, pairs.test))
missed = Counter(length(pair) for _, pair, _ in wrong)
for n in range(2, 9):
    print(f"{n} tokens: {seen[n]:5,} pairs to learn from   {missed[n]:2} of {asked[n]} wrong")
assert seen[2] < 20 and missed[2] > 0.5 * asked[2]

# %% [markdown]
# Translations of two tokens, one word and `<eos>`, hardly occur among what it has learned from, and the test asks for
# them all the same. Nearly every one comes out wrong. How can a test set differ so much from its training set, when
# both come from one generator? Look for the rule that `number_words` keeps to: *no source occurs twice*, so that
# nothing of the test is in the training set. It deals out the test set first. But there are only ten numbers of one
# digit and ninety of two. The thousand lists of the test take all of the former and more than half of the latter, and
# what is left to learn from is, but for a few, numbers of three digits, and lists. Our model has seen the word *zwölf*
# hundreds of times, and never alone.
#
# So a rule that was to keep the test honest has bent it. Nothing in the loss shows that, and had the cards been dealt
# the other way round, the test would not have shown it either: it would have asked for hardly any short number. There
# is a second suspect. Pairs of like length share a batch. In how many *steps* of the run
# was there a list of one number?

# %%
batches = epoch_batches(encoded[100:], recipe.batch_tokens, recipe.seed, epoch=0)[: recipe.steps]
single = [numbers_in(pair) == 1 for pair in pairs.train[100:]]
met = [any(single[i] for i in batch) for batch in batches]
of_pairs, of_steps = sum(single) / len(single), sum(met) / len(met)
print(f"one number alone: {of_pairs:.0%} of all pairs, in {of_steps:.0%} of the steps")
assert of_steps < 0.15

# %% [markdown]
# A handful of visits, each with a batch full of them, and in between long stretches in which every list goes on. The
# padding that we saved has a price, perhaps. Which of the two suspects did it? Two runs would tell, one with the test
# set dealt out last, one with batches mixed at random, and that is how such a question is settled. What *raised* it is
# reading the worst translations: the training loss cannot ask for what the training set does not hold. And what does
# BLEU make of them?

# %%
corpus = bleu(written["Transformer"], [pair.target for pair in pairs.test])
print(f"BLEU {corpus.score:.1f} ({corpus.signature}), and {right['Transformer']:.1%} exactly right")
assert corpus.score > 65

# %% [markdown]
# BLEU does not know what a number is. To it, *four hundred and six* for *four hundred and seven* has three words of
# four right. For a caption that may be fair; for a number it is a wrong number. **The measure is a decision, too**,
# and the last one in the row: it says what you wanted.
#
# ## What you have
#
# > **Check yourself.** The question from the beginning of this page, with what you know now. Which of these would the
# > *training loss* have told you: (1) the vocabulary has seen the test set, (2) two GPUs average means, (3) the schedule
# > counts from zero, (4) dropout is on while you translate, (5) the length penalty multiplies, (6) the score is
# > lower-cased and the one you compare with is not?
# > <details><summary>Answer</summary>None of the six. (3) wastes one batch; (2) trains something slightly different, and
# > the loss falls; the other four happen where the training loss is not looking. That is the rule rather than the
# > exception, and the reason why each part of this lecture ended in an assertion.</details>
#
# With a GPU nothing on this page changes but the sizes: bf16 and `torch.compile` are switched on, a batch has thousands
# of tokens, and the captions become a matter of minutes.
#
# **In the package.** `attncourse.data` has `Tokenizer`, `batch_by_tokens`, `epoch_batches` and `multi30k`;
# `attncourse.training.recipe` the schedules and every choice of a run; `attncourse.training.trainer.train` the loop,
# with accumulation, clipping, averaging and exact resumption; `attncourse.decoding` has `greedy`, `beam_search` and
# `translate`; `attncourse.metrics` has `bleu`, `chrf` and `alignment_error`.
#
# **Read next.** Vaswani et al., *Attention is all you need* (2017): section 5 is one page, and you can now read every
# line of it. Sennrich, Haddow and Birch, *Neural machine translation of rare words with subword units* (2016): section
# 3. Post, *A call for clarity in reporting BLEU scores* (2018): a few pages that everybody who prints a number should
# have read. Wu et al., *Google's neural machine translation system* (2016): section 7, on beams. Müller, Kornblith and
# Hinton, *When does label smoothing help?* (2019). Popel and Bojar, *Training tips for the Transformer model* (2018):
# what batch size, rate and averaging do, measured patiently.
