# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3 (ipykernel)
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Lecture @writing · Writing and measuring: decoding, scores, error analysis
#
# *About 60 minutes, including one minute of computing. For two sittings, break before "BLEU by hand". You need
# [how a model is trained](@training), [teacher forcing and the ladder of decoders](@cross_attention), and
# [the KV cache](@many_heads).*
#
# After this lecture you can
#
# * write a translation by **greedy search**, **beam search** and **sampling**, and say when each is the right one;
# * measure **exposure bias**, the price of teacher forcing;
# * compute **BLEU** by hand, and read its **signature** before you compare it with anything;
# * put a **bootstrap confidence interval** around a score, and a paired one around a difference;
# * find out *why* a model fails: read its errors, count them, name suspects, and change one thing at a time.
#
# <details><summary>Which models this page uses, and where</summary>
#
# | model | task and training | seeds | used in |
# |---|---|---|---|
# | number words | lists of numbers, 550 steps, trained on this page | 1 | all sections without another name |
# | number words, records | the same, by `benchmarks/splits.py` and `benchmarks/exposure.py` | 3 | exposure bias, error analysis, four architectures |
# | captions, short training run | Multi30k, 800 small steps: Transformer and three recurrent models | 1 | signature, bootstrap (1,014 captions), translations |
# | captions, beam width | the same Transformer, trained again by `benchmarks/beam_widths.py` | 3 | beam width (200 captions), bootstrap |
# | captions, profile `cpu` | Multi30k, 2,200 steps: the same four | 1 | the test set (Multi30k test2016) |
# | docstring writer | documentation of programs, a language model | 1 | repetition |
#
# The same seed gives slightly different weights on another processor or in another program. So a record and this page
# may differ a little, and on short lists they may differ a lot ([@fig:forgetting] shows why).
#
# </details>

# %%
try:
    from attncourse import viz

    from . import figures
except ModuleNotFoundError:
    raise ImportError(
        "This page needs the attncourse package: open it with `make lab` in the course's "
        "folder, or choose a kernel of the environment in which you installed the course."
    ) from None

import math
import random
import time
from collections import Counter
from dataclasses import replace

import torch

from attncourse import pretrained
from attncourse.data import EOS, PAD, Pair, Tokenizer, docstrings, encode_pairs
from attncourse.data.batches import collate, epoch_batches
from attncourse.data.number_words import say
from attncourse.decoding import beam_search, greedy, sample, translate, warp_logits
from attncourse.metrics import bleu, bootstrap_bleu, chrf, exact_match
from attncourse.training.recipe import Recipe
from attncourse.training.trainer import train
from attncourse.transformer import EncoderDecoder, TransformerConfig
from attncourse_lessons.results import kept_checkpoint, measured

torch.set_num_threads(1)  # models as small as these gain nothing from a second thread

# %% [markdown]
# ## A model that writes number words
# This lecture needs a model that makes mistakes. It translates lists of one to five numbers from German to English, as
# in lecture @cross_attention. This time we draw the lists ourselves. No list occurs twice; otherwise we might test the
# model on lists that it has memorised.

# %%
rng = random.Random(0)
drawn = {}                                             # German: English, in the order drawn
while len(drawn) < 22_000:
    numbers = [rng.randrange(10 ** rng.randint(1, 3)) for _ in range(rng.randint(1, 5))]
    in_german = ", ".join(say(number, "de") for number in numbers)
    drawn[in_german] = ", ".join(say(number, "en") for number in numbers)

# %%
lists = [Pair(*pair) for pair in drawn.items()]
validation, learned, test = lists[:1_000], lists[1_100:21_000], lists[21_000:]
german = Tokenizer.train((pair.source for pair in learned), size=112, keep_apart="hundert|und")
english = Tokenizer.train((pair.target for pair in learned), size=112)
print(validation[1].source, "->", validation[1].target)
print(" | ".join(english.pieces(validation[1].target)))

# %% [markdown]
# The first thousand lists are the validation set, which this page reads again and again. The last thousand are the test
# set: we open it at the end and base no decision on it. The lists in between are the training set, except for a gap of
# a hundred that stays unused. Now we train a small Transformer for about ten seconds, which is a little more than half
# an epoch. *What share of the validation set will it translate exactly, to the last letter?*

# %% [raw] slide
# ## A model that makes mistakes
# A small Transformer, ten seconds of training: lists of one to five numbers, German to English. No list comes twice; a thousand for validation.
#
# {print}
#
# > **Guess first.** What share will it get right, to the last letter?

# %%
config = TransformerConfig(vocab_size=len(german), target_vocab_size=len(english), d_model=64,
                           n_layers=2, n_heads=4, d_ff=128, dropout=0.0)
recipe = Recipe(steps=550, batch_tokens=256, lr=5e-3, warmup=100, schedule="cosine",
                label_smoothing=0.0)
encoded = encode_pairs(learned, german, english)
torch.manual_seed(0)
transformer = EncoderDecoder(config)
train(transformer, encoded, recipe)
transformer = transformer.eval()
batches = epoch_batches(encoded, recipe.batch_tokens, recipe.seed, epoch=0)[: recipe.steps]
print(f"{recipe.steps} steps, {sum(map(len, batches)):,} of {len(learned):,} lists")

# %%
def write(model, pairs):
    """For each pair what greedy search writes: its text, its tokens (target_pieces), …"""
    return translate(model, [pair.source for pair in pairs], german, english)


answers = write(transformer, validation)
written, truths = [answer.text for answer in answers], [pair.target for pair in validation]
right = sum(exact_match(written, truths)) / len(validation)
print(f"exactly right: {right:.1%}")

# %% tags=["hide-input"]
assert 0.75 < right < 0.95

# %% [raw] slide
# ## One list in six or seven is wrong
# {print}
#
# By the end we shall know why half of them are, and it is not what you would expect. **Keep in mind how the data were made.**

# %% [markdown]
# One list in six or seven is wrong. Remember how the data were made: the section on error analysis comes back to that.
#
# ## Autoregressive decoding: one pass to train, one pass per token to write
#
# It is often said that a Transformer computes the next-token probabilities of *all* positions at once.
# *When is that true?* The cell counts how often the decoder runs, and how many tokens it reads in all.

# %% [raw] slide
# ## One pass to train, one pass per token to write
# It is often said that a Transformer computes the next-token probabilities of *all* positions at once.
#
# > **Guess first.** When is that true? How often does the decoder run to write 11 tokens?

# %%
n_read = []                                                   # tokens, a number for each pass


def count_tokens(module, inputs, output):
    n_read.append(inputs[0].shape[1])


handle = transformer.decoder.register_forward_hook(count_tokens)
unseen = encode_pairs(validation, german, english)
source, lengths, target_in, target_out = collate(unseen[:1])
with torch.no_grad():
    transformer(source, lengths, target_in)
    in_training = n_read.copy()
    n_read.clear()
    n = greedy(transformer, source, lengths).tokens.shape[1]                # written
handle.remove()
print(f"training: {len(in_training)} pass, which reads {sum(in_training)} tokens\n"
      f"writing: {len(n_read)} passes, which read {sum(n_read)} tokens in all "
      f"(without a cache: {sum(range(n + 1))})")

# %% tags=["hide-input"]
assert len(in_training) == 1 and len(n_read) == sum(n_read) == n > 1

# %% [raw] slide
# ## Writing is sequential
# {print}
#
# **Teacher forcing**: one pass predicts every token. **Autoregressive**: each token is read before the next can be predicted.

# %% [markdown]
# It is true in training. There the true target is known, and one pass with a causal mask predicts every token of it.
# This is **teacher forcing**. The model is **autoregressive**: each token's distribution depends on the tokens before
# it. When the model writes, it must first choose these tokens, one pass at a time. So writing is as sequential as in a
# recurrent network.
#
# The **KV cache** ([lecture @many_heads](@many_heads)) makes each step cheaper: the decoder keeps the keys and values
# of the written tokens and reads only the newest one. So it reads each of the $n$ tokens once. Without a cache each
# pass reads the whole prefix again, which makes $1 + 2 + \dots + n$ tokens in all. Beam search, described below, must
# reorder the cache together with its hypotheses.
#
# > **A common mistake: dropout left on.** In training mode a model sets a random part of its activations to zero, and
# > it does so when it writes, too. Nothing warns you: `model.eval()` switches dropout off, and `torch.no_grad()` does
# > not. The cell puts our weights into a model with dropout 0.1:

# %%
careless = EncoderDecoder(replace(config, dropout=0.1))
careless.load_state_dict(transformer.state_dict())
source, lengths, target_in, _ = collate(unseen[:16])
for mode in (True, False):
    careless.train(mode)
    with torch.no_grad():
        once, again = (careless(source, lengths, target_in).argmax(dim=-1) for _ in range(2))
    share = (once != again)[target_in != PAD].float().mean()
    print(f"model.training is {mode!s:>5}: {share:.0%} of the predictions differ in two runs")

# %% tags=["hide-input"]
assert share == 0

# %% [raw] slide
# ## A common mistake: dropout left on
# {print}
#
# `torch.no_grad()` does not switch it off, `model.eval()` does.

# %% [markdown]
# If two runs of one model on the same input differ, check for this first.
#
# ## Greedy search and beam search
# So far our model has written by **greedy search**: it takes the likeliest token, then the likeliest after that. But we
# want the likeliest *sentence*, the sequence $y$ with the largest $p(y \mid x) = \prod_t p(y_t \mid y_{<t}, x)$.
# *Isn't that the same?* Here is a model that knows eleven sentences. Each entry gives the probability of a word after
# the words before it, and a full stop ends the sentence. Follow the greedy path with a finger, then look for a better
# one.

# %% [raw] slide
# ## Greedy search and beam search
# **Greedy search** takes the likeliest token, then the likeliest after that. Wanted is the likeliest *sentence*:
#
# $$p(y \mid x) = \prod_t p(y_t \mid y_{<t}, x)$$
#
# > **Guess first.** Is that not the same?
#
# . . .
# **Beam search** keeps the best few beginnings; a sentence that ends early is put aside and must not be forgotten.

# %%
TREE = {
    (): {"a": 0.5, "two": 0.4, "the": 0.1},
    ("a",): {"dog": 0.4, "cat": 0.35, "boat": 0.25},
    ("two",): {"dogs.": 0.55, "dogs": 0.35, "cats.": 0.1},
    ("the",): {"sea.": 0.6, "dogs": 0.4},
    ("a", "dog"): {"runs.": 0.6, "sits.": 0.4},
    ("a", "cat"): {"sleeps.": 0.7, "runs.": 0.3},
    ("a", "boat"): {"sails.": 1.0},
    ("two", "dogs"): {"run.": 0.9, "sit.": 0.1},
    ("the", "dogs"): {"run.": 1.0},
}
p_of = {(): 1.0}
for words, following in TREE.items():
    for word, p in following.items():
        p_of[(*words, word)] = p_of[words] * p

# %% [markdown]
# **Beam search** keeps several beginnings, called **hypotheses**, instead of one. Their number is the **beam width**.
# In each round all continuations of all kept hypotheses compete, and only the best few stay. A sentence that ends early
# leaves the beam: it is put aside as finished, and compared with the others at the end. Here and in the assignment its
# place stays empty in that round. Our library fills the place with the next best hypothesis. Both rules are in use.

# %% tags=["hide-input"]
def draw_search(beam_width):
    best, rounds = figures.search(TREE, p_of, beam_width)
    finished = {words for ended, _ in rounds for words in ended}
    kept = finished.union(*(open_ for _, open_ in rounds))
    title = f"beam width {beam_width}: “{' '.join(best)}”"
    everything = {words: p for words, p in p_of.items() if words}
    return figures.search_frame(everything, kept, finished, best, title)


for i, (ended, open_) in enumerate(figures.search(TREE, p_of, 2)[1], start=1):
    for name, kept in (("open", open_), ("put aside", ended)):
        texts = ", ".join(f"{' '.join(words)} ({p_of[words]:.3f})" for words in kept)
        print(f"round {i}, {name:>9}: {texts or 'none'}")
viz.explore(draw_search, beam_width=[1, 2, 3], start={"beam_width": 2})
#| caption: Filled: kept; second, green frame: put aside; thick orange: the path to the best;
#|   dotted: dropped or never reached. The printed rounds are those of width 2.
#| label: beam-search

# %% tags=["hide-input"]
likeliest = figures.search(TREE, p_of, 2)[0]
assert figures.search(TREE, p_of, 1)[0] == ("a", "dog", "runs.")
assert likeliest == ("two", "dogs.")
assert p_of[likeliest] == max(p_of[words] for words in p_of if words and words not in TREE)
never_met = [("two", "dogs", "run."), ("a", "boat", "sails."), ("a", "cat", "sleeps.")]
assert min(p_of[words] for words in never_met) > p_of["a", "dog", "runs."] + 0.002

# %% [raw] slide
# ## Choose the beam width
# {figure}

# %% [markdown]
# Width 1 is greedy search: it takes "a", the likeliest first word, and ends at 0.120. Width 2 also keeps "two", and
# finds "two dogs." at 0.220, the likeliest sentence of all. That sentence ended in round 2 and was put aside. A search
# that forgets it would return "a dog runs.", as greedy search does.
#
# Beam search guarantees nothing: a hypothesis that falls out of the beam never comes back. Besides "two dogs.", three
# more sentences beat "a dog runs." (0.120): "two dogs run." (0.126), "a boat sails." (0.125) and "a cat sleeps."
# (0.122). The beam of width 2 meets none of these three.
#
# ### Length penalty
# A sentence's log-probability is a sum of negative numbers, one for each token. So *every further token makes a
# sentence less likely*. The **length penalty** makes up for this: divide the log-probability by a power of the length
# $|y|$ in tokens ([@wu2016], section 7):
#
# $$\text{score}(y) = \frac{\log p(y \mid x)}{\left((5 + |y|)/6\right)^{\alpha}}$$ (eq:length-penalty)
#
# *One hypothesis has 4 tokens and $\log p = -3.0$, another has 9 tokens and $-4.2$. Which one wins at $\alpha = 0$, and
# which at $\alpha = 1$?*

# %% [raw] slide
# ## Length penalty
# $$\text{score}(y) = \frac{\log p(y \mid x)}{\left((5 + |y|)/6\right)^{\alpha}}$$
#
# > **Guess first.** 4 tokens with $\log p = -3.0$, or 9 tokens with $-4.2$: which wins at α = 0, which at α = 1?

# %%
for alpha in (0.0, 0.6, 1.0):
    short = -3.0 / ((5 + 4) / 6) ** alpha
    long = -4.2 / ((5 + 9) / 6) ** alpha
    print(f"α = {alpha}: 4 tokens {short:.2f}   9 tokens {long:.2f}")

# %% [raw] slide
# ## The order flips
# {print}

# %% [markdown]
# The order flips: the short text wins at $\alpha = 0$ and $0.6$, the long one at $\alpha = 1$. Both scores move towards
# zero, and the longer text, with the larger divisor, moves further. So a larger $\alpha$ helps long texts.
#
# ### Search errors and model errors
#
# Does our model need a better search? *How many of its mistakes will a beam of width 4 fix, without a length penalty?*

# %%
source, lengths, *_ = collate(unseen[:300])
began = time.process_time()
one = greedy(transformer, source, lengths, 60).tokens                       # (300, n)
middle = time.process_time()
four = beam_search(transformer, source, lengths, 4, length_penalty=0.0, max_length=60)
cost = (time.process_time() - middle) / (middle - began)
by_one = [english.decode(row) for row in one.tolist()]
by_four = [english.decode(row) for row in four.tokens[:, 0].tolist()]       # the best of four
right_by_one, right_by_four = (exact_match(each, truths[:300]) for each in (by_one, by_four))
found = {"greedy": sum(right_by_one), "width 4": sum(right_by_four)}
changes = list(zip(right_by_one, right_by_four, strict=True))
fixed, broken = changes.count((False, True)), changes.count((True, False))
n_changed = sum(before != after for before, after in zip(by_one, by_four, strict=True))
n_still_wrong = n_changed - fixed - broken              # wrong before and after
print(f"exactly right of 300: {found}, for {cost:.1f} times the computing\n"
      f"{n_changed} texts change: {fixed} mistakes fixed, {broken} right texts broken, "
      f"{n_still_wrong} wrong both times")

# %% [raw] slide
# ## What beam search is worth
# {print}
#
# > **Guess first.** Is the model wrong, or the search?

# %% [markdown]
# Hardly any. The beam changes few texts, and the new texts are hardly better than the old ones (the second line). There
# are two kinds of error ([@stahlberg2019]):
#
# * a **search error**: the search missed the model's likeliest text;
# * a **model error**: the likeliest text is itself wrong, so a better search does not help.
#
# *Which kind are ours?* Teacher forcing gives the probability of any text. So we compare the text that the model wrote
# with the right translation. A better search can fix a mistake only if the right translation is the likelier one.

# %%
@torch.no_grad()
def log_p_of(pairs):
    """Log-probabilities of the target tokens, (n_pairs, n), 0 for padding, and the targets."""
    source, lengths, target_in, target = collate(encode_pairs(pairs, german, english))
    log_p = transformer(source, lengths, target_in).log_softmax(dim=-1)
    return log_p.gather(-1, target[:, :, None])[:, :, 0] * (target_in != PAD), target


mistakes = [(Pair(pair.source, answer.text), pair)
            for answer, pair in zip(answers, validation, strict=True)
            if answer.text != pair.target and answer.target_pieces[-1] == "<eos>"]
ours, _ = log_p_of([wrong_text for wrong_text, _ in mistakes])
theirs, _ = log_p_of([right_text for _, right_text in mistakes])
preferred = (ours.sum(dim=1) > theirs.sum(dim=1)).sum().item()
print(f"of {len(mistakes)} wrong texts that end,",
      f"the model prefers {preferred} to the right one")

# %% tags=["hide-input"]
assert cost > 1.5 and n_changed < 60 and fixed - broken < 10
assert preferred > 0.7 * len(mistakes)

# %% [raw] slide
# ## Model errors and search errors
# {print}
#
# - **Model error**: the model's likeliest text is wrong. No search fixes it.
# - **Search error**: the search did not find the likeliest text.
#
# > **Guess first.** BLEU of captions against the beam width, without a length penalty: where is the best width?

# %% [markdown]
# Most of the mistakes are model errors. In the few others the search did go wrong: the right text was likelier than the
# one it returned. Even there a better search might have returned some third text, also wrong. (Texts that never end are
# not counted here.)
#
# A caption can be translated in several ways, so a model may be less sure. Does a wider beam help there? We trained a
# Transformer on captions for a short time, from three seeds. Each of the three models translated 200 captions without a
# length penalty. At every width a text that did not end was cut after twice as many tokens as its source has, plus ten.
#
# The score is **BLEU**, from 0 to 100. It measures how many runs of words a translation shares with its reference, and
# the section "BLEU by hand" computes it. Its intervals come from the **bootstrap**: draw 200 captions from these 200
# with replacement, score them again, and repeat this a thousand times. The interval holds the middle 95 % of the
# scores. *Which width gives the best BLEU? How long are the texts?*

# %% tags=["hide-input"]
by_width = measured("beam_widths")
print(by_width["command"])
print(f"{by_width['date']}, {by_width['device_name']}, {by_width['captions']} captions")
trained = {f"seed {run['seed']}": run for run in by_width["runs"]}
widths = list(by_width["runs"][0]["widths"])                                # as texts


def in_brackets(value, ends):
    return f"{value:+.1f} ({ends[0]:+.1f} to {ends[1]:+.1f})"


def by_seed(kind, way, name, scale=1):                  # a number of each seed
    return ", ".join(f"{scale * run[kind][way][name]:.0f}" for run in trained.values())


curves = {seed: ([run["widths"][width]["bleu"] for width in widths],
                 [100 * run["widths"][width]["words"] for width in widths])
          for seed, run in trained.items()}
usual = {seed: run["penalties"]["0.6"] for seed, run in trained.items()}
figures.beam_widths([int(width) for width in widths], curves, 5,
                    {seed: (way["interval"][0], way["bleu"], way["interval"][1])
                     for seed, way in usual.items()})


def print_gains(title, kind, ways):
    print(f"{title:24}" + "".join(f"{seed:>24}" for seed in trained))
    for label, way in ways.items():
        of_seed = [run[kind][way] for run in trained.values()]
        gains = [in_brackets(each["gain"], each["gain_interval"]) for each in of_seed]
        print(f"{label:>23}" + "".join(f"{gain:>24}" for gain in gains))


print_gains("BLEU − width 4's", "widths", {width: width for width in widths if width != "4"})
print("\n  width   words, % of reference   empty texts   mean log p      "
      "likelier than the reference, %")
for width in widths:
    print(f"{width:>7}   {by_seed('widths', width, 'words', 100):21}   "
          f"{by_seed('widths', width, 'empty'):11}   {by_seed('widths', width, 'log_p'):13}   "
          f"{by_seed('widths', width, 'likelier', 100)}")
print_gains("\nwidth 5: BLEU − α = 0's", "penalties", {"α = 0.6": "0.6", "α = 1.0": "1.0"})
print(f"width 5, α = 0: {by_seed('penalties', '0.0', 'words', 100)} words, % of reference")
#| caption: Three trained models, 200 captions of the validation set. Orange: width 5 with a
#|   length penalty (α = 0.6), each with its 95 % interval.
#| label: beam-widths

# %% [raw] slide
# ## A wide beam meets the model errors
# {figure}
#
# With width 128 texts are less than half as long as they should be.
#
# **Now you:** a@writing, exercises 1 and 2

# %% [markdown]
# In all three runs the widths 4, 8 and 16 are about equally good: no paired interval against width 4 excludes zero (the
# first table). From width 32 on BLEU falls in all three runs, and every interval excludes zero. The texts get shorter
# with every width. With width 128 they have less than half of the reference's words, and less than half of the best
# BLEU.
#
# Did the search fail? The second table says no. A wider beam finds likelier texts: the mean $\log p$ rises with every
# width. With width 128 nearly every text is likelier than its reference. A wide beam makes few search errors, and so
# brings the model's own errors to light ([@koehn2017], section 3.6): these models prefer texts that are far too short.
# In two runs some are even empty. Stahlberg and Byrne ([-@stahlberg2019]) searched exactly. For more than half of their
# sentences the likeliest translation was the empty one. A known suspect is label smoothing, because it makes long texts
# less likely ([@shi2020]; [@liang2022]). Our models were trained with it, too, but we have not tested what it does
# here.
#
# The usual choice is a width of 4 or 5 with a length penalty, both chosen on a validation set. The penalty helps where
# texts are too short. At width 5 this is so in the third run alone (the last line), and only in that run does the
# penalty gain anything, about half a point (the third table).
#
# **Now you:** [assignment @writing](@writing/assignment), exercises 1 (greedy search) and 2 (beam search).
#
# ## Sampling: temperature, top-k, top-p
# A story has no single right continuation, and its likeliest continuation tends to be bland and repetitive
# ([@holtzman2020]). So we *sample* each token from the model's distribution. Temperature makes unlikely tokens rarer or
# more frequent. Top-k and top-p forbid them.
#
# * **Temperature** $T$: draw from $\operatorname{softmax}(z / T)$, where $z$ are the logits. $T < 1$ sharpens the
#   distribution, $T > 1$ flattens it, $T \to 0$ is greedy search.
# * **Top-k** ([@fan2018]): keep the $k$ likeliest tokens, and draw among them.
# * **Top-p**, or **nucleus sampling** ([@holtzman2020]): keep the fewest tokens whose probabilities add up to at least
#   $p$.
#
# The figure shows one step at which our model is sure and one at which it is not. *At which of the two does
# top-p with $p = 0.9$ keep more tokens than top-k with $k = 3$, and at which fewer?*

# %% [raw] slide
# ## Sampling: temperature, top-k, top-p
# - **Temperature**: $\operatorname{softmax}(z / T)$
# - **Top-k**: the $k$ likeliest tokens
# - **Top-p**: the fewest tokens with mass $p$
#
# > **Guess first.** One step where the model is sure, one where it is not. At which does $p = 0.9$ keep more tokens than $k = 3$?

# %%
source, lengths, target_in, target_out = collate(unseen[:200])
with torch.no_grad():
    logits = transformer(source, lengths, target_in)[target_in != PAD]  # (n_tokens, vocab_size)
p = logits.softmax(dim=-1)
entropy = -(p * p.clamp(min=1e-9).log()).sum(dim=-1)                        # (n_tokens,)
order = entropy.argsort()
steps = {"sure": logits[order[len(order) // 2]],              # the median
         "unsure": logits[order[-1]]}                         # the least sure of all

# %% tags=["hide-input"]
ways = {"T = 2": {"temperature": 2.0}, "top-k, k = 3": {"top_k": 3},
        "top-p, p = 0.9": {"top_p": 0.9}}
panels, names, n_kept = {}, {}, {}
rights = target_out[target_in != PAD]
right_at = {"sure": rights[order[len(order) // 2]], "unsure": rights[order[-1]]}


def as_shown(token, right_one):
    begins = " " in english.decode([*english.encode("one"), token])       # a word of its own
    return "▁" * begins + english.pieces([token])[0] + " ✓" * (token == right_one)


for step, z in steps.items():
    likeliest = z.argsort(descending=True)[: 4 if step == "sure" else 15]
    names[step] = [as_shown(token, right_at[step]) for token in likeliest.tolist()]
    panels[step], n_kept[step] = {}, {}
    for way, knobs in ways.items():
        left = warp_logits(z[None], **knobs)[0]
        n_kept[step][way] = int(left.isfinite().sum())
        heights = (z / knobs.get("temperature", 1.0)).softmax(dim=-1)
        panels[step][way] = heights[likeliest].tolist(), left.isfinite()[likeliest].tolist()
of_list = (target_in != PAD).nonzero()      # (n_tokens, 2): which list, which token of it
for step, i in (("sure", order[len(order) // 2]), ("unsure", order[-1])):
    row, column = of_list[i].tolist()
    prefix = english.decode(target_in[row, 1 : column + 1].tolist())
    k = prefix.count(",")                                 # the number that is being written
    nearby = validation[row].source.split(", ")[max(0, k - 1) : k + 1]
    tail = ", ".join(prefix.split(", ")[-2:])
    print(f"{step:>6} step, source:  … {', '.join(nearby)}\n{'written:':>21} … {tail} ___")
figures.kept_tokens(panels, names)
print(f"{'tokens that may be drawn':>24}" + "".join(f"{way:>16}" for way in ways))
for step, by_way in n_kept.items():
    print(f"{step:>24}" + "".join(f"{by_way[way]:16}" for way in ways))
p_right = (steps["sure"] / 2).softmax(dim=-1)[right_at["sure"]]
print(f"sure step, T = 2: a wrong token is drawn in {1 - p_right:.0%}")
three, _ = steps["sure"].softmax(dim=-1).topk(3)
print(f"sure step, k = 3: the two wrong tokens are drawn in {1 - three[0] / three.sum():.2%}")
rank = int((steps["unsure"] > steps["unsure"][right_at["unsure"]]).sum()) + 1
print(f"unsure step: the right token has rank {rank}")
cut = {}
for way in ("top-k, k = 3", "top-p, p = 0.9"):
    still = warp_logits(logits, **ways[way]).isfinite()               # (n_tokens, vocab_size)
    cut[way] = int((~still.gather(1, rights[:, None])).sum())
    print(f"all {len(rights):,} steps, {way}: right token cut off at {cut[way]}; "
          f"{still.sum(dim=1).float().mean():.1f} tokens kept on average")
#| caption: Above, a sure step; below, the least sure one (other scale). Crossed: cut off; ✓:
#|   the right token; ▁: begins a word. Top-k and top-p: not yet rescaled.

# %% tags=["hide-input"]
assert n_kept["sure"]["top-p, p = 0.9"] == 1 and n_kept["unsure"]["top-p, p = 0.9"] > 3
assert max(cut.values()) < 30 and still.sum(dim=1).float().mean() < 1.3     # top-p's

# %% [raw] slide
# ## Top-p adapts
# {figure}

# %% [markdown]
# * **Temperature cuts nothing off.** At $T = 2$ a wrong token is often drawn even at the sure step (the line *sure
#   step, T = 2*).
# * **Top-k keeps three tokens at both steps.** At the sure step this does little harm, because the two wrong tokens are
#   rarely drawn. At the unsure step it cuts off the right token.
# * **Top-p adapts to the step.** It keeps one token at the sure step and many at the unsure one.
#
# The unsure step is the least sure of all. Over all steps neither setting often cuts off the right token (the last two
# lines). The difference is in what else they let through: top-k always keeps three tokens, top-p on average hardly more
# than one.
#
# *A translation is right or wrong. What will sampling do to our lists?*

# %%
source, lengths, target_in, _ = collate(unseen[:300])
lengths_out = (target_in != PAD).sum()
settings = {"T = 0.5": {"temperature": 0.5}, "T = 1": {}, "T = 1, k = 3": {"top_k": 3},
            "T = 1, p = 0.9": {"top_p": 0.9}, "T = 1.5": {"temperature": 1.5}}
print(f"{lengths_out / 300:.1f} tokens a list\n{'greedy':>15}: {found['greedy'] / 300:.0%}")
shares = {}
for name, knobs in settings.items():
    shares[name] = []
    for seed in range(3):
        chance = torch.Generator().manual_seed(seed)
        tokens = sample(transformer, source, lengths, 60, generator=chance, **knobs).tokens
        texts = [english.decode(row) for row in tokens.tolist()]
        shares[name].append(sum(exact_match(texts, truths[:300])) / 300)
    print(f"{name:>15}: " + "  ".join(f"{share:.0%}" for share in shares[name]))

# %% tags=["hide-input"]
assert max(shares["T = 1.5"]) < min(shares["T = 1"]) < found["greedy"] / 300
assert min(shares["T = 1, p = 0.9"]) > max(shares["T = 1"])
assert sum(shares["T = 1, p = 0.9"]) > sum(shares["T = 1, k = 3"]) > sum(shares["T = 1"])

# %% [raw] slide
# ## Search where there is a right answer, sample where there are many
# {print}
#
# Lists right, three seeds. Nearly every draw from the tail is a mistake here.
#
# **Now you:** a@writing, exercise 3

# %% [markdown]
# Each column is a seed. At $T = 1$ fewer lists are right than with greedy search, because an unlikely token is nearly
# always a mistake here, and every token of a list is another chance to draw one. Top-p cuts off these tokens and
# recovers most of the loss. A low temperature does so, too, and top-k with $k = 3$ recovers less. Each result depends
# on its setting: $k = 1$ is greedy search.
#
# ### Open-ended text and repetition
# Where no single text is right, what goes wrong with greedy search? The small language model of docstrings from lecture
# @transformer continues 12 openings. We count the runs of four words that have occurred before in the same text. *What
# share will it be with greedy search, and what share with top-p?*

# %% tags=["hide-input"]
writer = pretrained.load(kept_checkpoint("writer"))
openings = ["Return the", "Return a list of", "This function", "Create a new", "Check if",
            "Raise", "The name of the", "Set the", "Read the file", "Compute the",
            "Convert a", "Get the"]


def repeated(texts):
    """The share of runs of four words that the same text has had before."""
    n_runs = n_new = 0
    for words in map(str.split, texts):
        runs = [tuple(words[i : i + 4]) for i in range(len(words) - 3)]
        n_runs, n_new = n_runs + len(runs), n_new + len(set(runs))
    return 1 - n_new / n_runs


told = {"greedy": [writer.complete(openings, max_length=60)]}
for name, knobs in {"top-k, k = 3": {"top_k": 3}, "top-p, p = 0.9": {"top_p": 0.9}}.items():
    told[name] = [writer.complete(openings, max_length=60, temperature=1.0, **knobs,
                                  generator=torch.Generator().manual_seed(seed))
                  for seed in range(3)]
for name, by_seed in told.items():
    n_words = [sum(len(text.split()) for text in texts) / len(texts) for texts in by_seed]
    print(f"{name:>14}: repeated " + "  ".join(f"{repeated(texts):.0%}" for texts in by_seed),
          "  words a text " + "  ".join(f"{n:.0f}" for n in n_words))
    for opening, text in list(zip(openings, by_seed[0], strict=True))[:2]:
        print(f"{'':>16}{opening} {' '.join(text.split())[:74]}")
print(f"{'people':>14}: repeated {repeated(docstrings().test):.0%}")

# %% tags=["hide-input"]
assert repeated(told["greedy"][0]) > 0.3
assert max(map(repeated, told["top-p, p = 0.9"])) < 0.1 < repeated(told["greedy"][0])
assert max(map(repeated, told["top-k, k = 3"])) > 0.04

# %% [markdown]
# Greedy search falls into loops. Top-p avoids them, and top-k with $k = 3$ avoids only some. Docstrings written by
# people hardly repeat themselves (the last line). None of the three methods makes the small model write much sense. So
# search where the source fixes the meaning, as in translation, and sample where it does not, as in a story.
#
# <details><summary>Going further: four more ways to write</summary>
#
# * **Minimum Bayes risk decoding**: sample many translations, and take the one that agrees best with all the others, by
#   chrF or COMET ([@kumar2004]; [@eikema2020]). It looks for a typical text, not for the likeliest.
# * **Repetition penalty** ([@keskar2019]): divide the logits of the tokens that have been written by a number above 1.
#   Libraries multiply the negative ones by it instead, because division would make those tokens *likelier*.
# * **Constrained decoding**: give −∞ to every token that a grammar forbids, as for a program or a form.
# * **Speculative decoding**: a small model writes a few tokens ahead, and the large one checks them all in one pass. It
#   accepts each with a probability that depends on both models, and redraws the first one that it rejects
#   ([@leviathan2023]). The distribution stays the large model's.
#
# </details>
#
# **Now you:** [assignment @writing](@writing/assignment), exercise 3 (temperature, top-k, top-p).
#
# ## Exposure bias: the price of teacher forcing
# In training the model reads only *true* prefixes. When it writes, it reads its own prefixes, mistakes included. This
# difference is called **exposure bias** ([@ranzato2016]). How much does it cost? For lists of five numbers the next
# figure shows how often the number at each position is wrong, after a true prefix and after the model's own. A number
# counts as right if all of its tokens and its comma or `<eos>` are right. *At which position must the two curves agree
# exactly? Where will they differ most?*

# %% [raw] slide
# ## Exposure bias: the price of teacher forcing
# In training the model reads *true* prefixes; when it writes, its own.
#
# > **Guess first.** Lists of five: wrong at each position (a) after a true prefix, (b) after its own. At which position do the two differ most?

# %% tags=["hide-input"]
COMMA = english.encode("one, two")[1]


@torch.no_grad()
def right_when_dictated(pairs):
    """(n_lists, 5): is all of a number right, its comma or <eos> too, after a true prefix?"""
    source, lengths, target_in, target = collate(encode_pairs(pairs, german, english))
    wrong = transformer(source, lengths, target_in).argmax(dim=-1) != target     # (n_lists, n)
    ends = (target == COMMA) | (target == EOS)
    place = ends.cumsum(dim=1) - ends.long()            # which number a token belongs to
    real = target_in != PAD
    return torch.stack([~(wrong & real & (place == k)).any(dim=1) for k in range(5)], dim=1)


def right_when_writing(text, truth):
    ours, theirs = (f"{line} .".split(", ") for line in (text, truth))      # "." for the end
    return [ours[k : k + 1] == theirs[k : k + 1] for k in range(5)]

# %% tags=["hide-input"]
fives = [pair for pair in validation if pair.target.count(",") == 4]
texts = [answer.text for answer in write(transformer, fives)]
dictated = right_when_dictated(fives).float()                               # (n_lists, 5)
own = torch.tensor([right_when_writing(text, pair.target)
                    for text, pair in zip(texts, fives, strict=True)]).float()
chance = torch.Generator().manual_seed(0)
rows = torch.randint(len(fives), (2_000, len(fives)), generator=chance)     # lists, drawn again


def interval(values):
    ordered, count = values.sort().values, len(values)
    return [ordered[int(share * count)].item() for share in (0.025, 0.5, 0.975)]


by_place = {"true prefix": 1 - dictated.mean(dim=0), "own prefix": 1 - own.mean(dim=0)}
for name, shares in by_place.items():
    print(f"{name:>12}: " + "  ".join(f"{share:5.1%}" for share in shares.tolist()))
redrawn = 100 * (dictated - own)[rows].mean(dim=1)                          # (2000, 5)
gaps = []
for k in range(5):
    low, _, high = interval(redrawn[:, k])
    gaps.append((low, 100 * (dictated - own)[:, k].mean().item(), high))
figures.places({name: (100 * shares).tolist() for name, shares in by_place.items()}, gaps,
               "position in the list", "numbers wrong, in %")
#| caption: Left: numbers wrong by their position in 201 lists. Right: the gap between the two
#|   curves, in percentage points, with its 95 % interval over the lists.
#| label: exposure-bias

# %% tags=["hide-input"]
gap = by_place["own prefix"] - by_place["true prefix"]
assert gap[0].abs() < 1e-6 and gap[4] > 0.02 and gap[4] == gap.max()

# %% [raw] slide
# ## Its own prefix costs numbers at the end
# {figure}

# %% [markdown]
# At the first position the two curves agree, because the model has read nothing wrong yet. At the fourth *both* curves
# jump. So the jump is not exposure bias: the fourth number itself is hard for this model, and the section on error
# analysis reads these mistakes. Exposure bias can only be in the *gap* between the curves, and only at the fifth
# position does the bootstrap interval of the gap stay clear of zero. Is the gap at the fifth position the price of
# *reading* a wrong prefix? *What else can be wrong with a fifth number?*

# %% tags=["hide-input"]
fewer = torch.tensor([text.count(",") < 4 for text in texts])
print(f"{fewer.sum()} of {len(texts)} texts have fewer than five numbers; fifth numbers wrong:")
for name, right_here in (("true prefix", dictated), ("own prefix", own)):
    lost = 1 - right_here[:, 4]
    print(f"{name:>12}: {lost[fewer].sum():2.0f} in those, "
          f"{lost[~fewer].sum():2.0f} in the others")
gaps = dictated[:, 4] - own[:, 4]               # 1: wrong after its own prefix alone
print(f"gap: {gaps.sum():.0f} of {len(gaps)} lists, {gaps[fewer].sum():.0f} of them in those")
wrong_in_both = ((1 - own) * (1 - dictated)).sum() / (1 - own).sum()
print(f"of all numbers wrong after its own prefix,"
      f" {wrong_in_both:.0%} are wrong after the true one")
assert gaps[fewer].sum() > 0.5 * gaps.sum() and wrong_in_both > 0.6

# %% [markdown]
# Most of the gap comes from texts that have no fifth number at all, because the model skipped a number, merged two, or
# stopped early. So the figure alone does not show that a wrong prefix spoils what follows.
#
# The next experiment changes only the prefix. We take the lists in which one number went wrong and others follow. We
# run the model with teacher forcing twice: once with the true prefix, and once with the model's own wrong number in its
# place. The rest of the list, and its right translation, are the same in both runs. We leave out lists in which the
# model skipped a number, and lists in which its wrong "number" is not a number from 0 to 999. The figure shows one
# list: only the orange number differs, and the loss is measured on the hatched rest.

# %% [raw] slide
# ## Is the wrong prefix the cause?
# Change that one thing: run each list with teacher forcing twice, with the true prefix and with the model's own wrong number in it.

# %% tags=["hide-input"]
numbers_in_english = {say(number, "en") for number in range(1000)}
true_lists, changed_lists, places = [], [], []
for text, pair in zip(written, validation, strict=True):
    ours, theirs = text.split(", "), pair.target.split(", ")
    wrong_at = [k for k in range(min(len(ours), len(theirs) - 1)) if ours[k] != theirs[k]]
    if not wrong_at:
        continue
    k = wrong_at[0]
    if ours[k] in numbers_in_english and ours[k] != theirs[k + 1]:
        changed = ", ".join([*theirs[:k], ours[k], *theirs[k + 1 :]])
        true_lists.append(pair)
        changed_lists.append(Pair(pair.source, changed))
        places.append(k)


def numbers_of(lists, i):
    return lists[i].target.split(", ")


def same_length(i):
    """Has the wrong number as many tokens as the true one? Then the rest does not move."""
    return len({len(english.encode(numbers_of(lists, i)[places[i]]))
                for lists in (true_lists, changed_lists)}) == 1


i = min((i for i, k in enumerate(places) if k > 0 and same_length(i)),
        key=lambda i: len(true_lists[i].target))
figures.two_prefixes({"true prefix": numbers_of(true_lists, i),
                      "own mistake": numbers_of(changed_lists, i)}, places[i])
print("source:", true_lists[i].source)
#| caption: What the model reads in the two runs. Orange: the one number that differs; hatched:
#|   the rest, on which the loss is measured.
#| label: spliced-prefix

# %% [markdown]
# We did this for three trained models and kept the results. A higher loss could have another cause: a wrong number with
# more or fewer tokens than the true one *moves* the rest to other positions. So we also report the lists in which the
# two numbers have the *same length*. In a third condition *random* numbers replace the wrong one: five for each list,
# each with as many tokens as the wrong number. *Will the model's own wrong number cost more than a random one, or
# less?*

# %% tags=["hide-input"]
exposure = measured("exposure")
print(exposure["command"])


def mean_and_interval(values):
    chance = torch.Generator().manual_seed(0)
    rows = torch.randint(len(values), (10_000, len(values)), generator=chance)
    low, _, high = interval(values[rows].mean(dim=1))
    return low, values.mean().item(), high


columns, changes = [], []
for run in exposure["runs"]:
    truth, mistake, other = (torch.tensor(run[f"after_{name}"])
                             for name in ("truth", "mistake", "random"))
    same = torch.tensor(run["as_many_tokens"])
    changes.append({"mistake − truth": mean_and_interval(mistake - truth),
                    "random − truth": mean_and_interval(other - truth),
                    "mistake − random": mean_and_interval(mistake - other),
                    "  mistake − truth": mean_and_interval((mistake - truth)[same]),
                    "  random − truth": mean_and_interval((other - truth)[same])})
    shown_here = [f"{mean:+.2f} ({low:+.2f} to {high:+.2f})"
                  for low, mean, high in changes[-1].values()]
    columns.append([str(len(truth)), f"{truth.mean():.2f}", *shown_here[:3],
                    str(same.sum().item()), *shown_here[3:]])
row_names = ["lists", "after the truth", *list(changes[0])[:3], "of them, same length:",
             *list(changes[0])[3:]]
print("loss of the rest, nats per token; differences with their 95 % intervals")
print(" " * 22 + "".join(f"{'seed ' + str(run['seed']):>24}" for run in exposure["runs"]))
for name, *cells in zip(row_names, *columns, strict=True):
    print(f"{name:22}" + "".join(f"{cell:>24}" for cell in cells))
assert all(each["  mistake − truth"][0] > 0 for each in changes)
assert all(each["mistake − truth"][1] > 0.05 for each in changes)
assert all(each["random − truth"][1] > each["mistake − truth"][1] for each in changes)
assert sum(each["mistake − random"][2] < 0 for each in changes) == 1

# %% [raw] slide
# ## The rest gets harder
# {print}
#
# What helps: **scheduled sampling**, training on whole sentences, a better model.

# %% [markdown]
# **A wrong number in the prefix hurts what follows, but the model's own mistake hurts no more than a random one.** Look
# first at the lists of the same length, where nothing else changes. The model's own wrong number raises the loss of the
# rest by 0.05 to 0.12 nats in all three runs, and no interval contains zero. A random number raises it by 0.04 to 0.16
# nats. Over all lists, where the rest may move as well, the effects are larger, but for seed 2 the intervals reach
# zero.
#
# Exposure bias is not this model's main problem. In lists of five, most of the numbers that are wrong after its own
# prefix are wrong after the true prefix, too (the line printed after [@fig:exposure-bias]).
#
# What helps? **Scheduled sampling** ([@bengio2015]) sometimes feeds the model its own tokens in training, although its
# objective can lead to a wrong model ([@huszar2015]). Ranzato et al. ([-@ranzato2016]) train on whole sentences that
# the model has written, with BLEU as the reward. Researchers
# disagree on the size of the effect: in open-ended text, He et al. ([-@he2021]) found a small one, and Arora et al.
# ([-@arora2022]) found that errors accumulate.
#
# ## BLEU by hand
# How do we score a caption? For number words we count exact matches. For a caption that would be unfair: *a boy runs
# along the beach* and *a boy is running on the beach* are both right. **BLEU** ([@papineni2002]) compares **n-grams**,
# which are runs of $n$ words. The **precision** $p_n$ is the share of the translation's n-grams that also occur in the
# reference. Take a pencil:
#
# > translation: a boy in a red coat runs along the beach with two dogs .
# >
# > reference: a boy in a red coat is running along the beach with his two dogs .
#
# *How many of the translation's 14 words (the full stop is one) are in the reference? How many 4-grams does one wrong
# word cost?*

# %% [raw] slide
# ## BLEU by hand
# $$\text{BLEU} = 100 \cdot \min\bigl(1,\ \exp(1 - r/c)\bigr) \cdot \bigl(p_1\, p_2\, p_3\, p_4\bigr)^{1/4}$$
#
# - $p_n$: what share of the translation's n-grams also occurs in the reference?
# - **Clipped counts**, and a **brevity penalty**
#
# > **Count with a pencil.**
# > *a boy in a red coat runs along the beach with two dogs .*
# > against
# > *a boy in a red coat is running along the beach with his two dogs .*

# %%
hypothesis = "a boy in a red coat runs along the beach with two dogs ."
reference = "a boy in a red coat is running along the beach with his two dogs ."
words, matches = hypothesis.split(), {}
for n in (1, 2, 3, 4):
    runs = [" ".join(words[i : i + n]) for i in range(len(words) - n + 1)]
    matches[n] = [f" {run} " in f" {reference} " for run in runs]
    print(f"{n}-grams: {sum(matches[n])} of {len(runs)}")
columns = [(word, word) for word in words]
columns[6] = ("runs", "is running")
columns.insert(11, ("", "his"))
figures.ngrams(columns, matches)
#| caption: A bar is an n-gram and lies over its words. Filled: in the reference; ×: missing.
#|   Shaded: where the two sentences differ.
#| label: n-grams

# %% tags=["hide-input"]
assert [sum(found_here) for found_here in matches.values()] == [13, 10, 7, 4]

# %% [raw] slide
# ## What one wrong word costs
# {figure}

# %% [markdown]
# The word *runs* costs one 1-gram, two 2-grams, three 3-grams and four 4-grams: all bars that cross its column. Before
# *two* the word *his* is missing. This costs no 1-gram, only the longer n-grams that cross the gap. So $p_1$ checks the
# words, and the longer n-grams check their order.
#
# BLEU takes the **geometric mean** of the four precisions (the fourth root of their product), so one low precision
# pulls it down. Two rules make cheating harder.
#
# * **Clipped counts.** All four words of "the the the the" are in the reference. So an n-gram is counted at most as
#   often as it occurs in the reference. In our example this changes nothing.
# * **Brevity penalty.** A translation of three safe words has a high precision. So if a translation of $c$ words is
#   shorter than its reference of $r$ words, its score is multiplied by $\exp(1 - r/c)$.
#
# $$\text{BLEU} = 100 \cdot \min\bigl(1,\ \exp(1 - r/c)\bigr) \cdot \bigl(p_1\, p_2\, p_3\, p_4\bigr)^{1/4}$$ (eq:bleu)
#
# For a corpus, add up all counts first ($c$ and $r$, too) and divide afterwards: the BLEU of a corpus is not the mean
# of its sentences' BLEU.

# %%
by_hand = 100 * math.exp(1 - 16 / 14) * (13 / 14 * 10 / 13 * 7 / 12 * 4 / 11) ** (1 / 4)
score = bleu([hypothesis], [reference])
print(f"by hand {by_hand:.2f}   sacreBLEU {score.score:.2f}\n{score.signature}")
assert math.isclose(by_hand, score.score, abs_tol=1e-6)

# %% [raw] slide
# ## A number and its signature
# {print}
#
# > **Guess first.** The same 1,014 translations, the same references, five signatures. How far apart will they be?

# %% [markdown]
# The line below the number is its **signature**. It says how many references a sentence has (`nrefs:1`), whether
# capitals count (`case:mixed`), whether short texts leave out the n-grams that they cannot have (`eff:no`), how the
# text was cut into words (`tok:13a`), how zeros are smoothed, and which version was used. *The next cell prints five
# scores of the same 1,014 translations of captions. How far apart will they be?*

# %%
captions = measured("translations_de_en")
ways = captions["rungs"]["Transformer"]["beam"]["other_measures"]
for signature, value in ways.items():
    print(f"{value:5.1f}   {signature}")

# %% [raw] slide
# ## Not a letter has changed
# {print}
#
# Compare two BLEU scores only if their signatures are the same.

# %% [markdown]
# Even without `tok:char` the scores span more than a point. `tok:none` cuts at spaces alone, so "beach." and "beach"
# differ; `tok:char` counts characters instead of words. *You can compare two BLEU scores only if their signatures are
# the same.* Post ([-@post2018]) found up to 1.8 points between configurations in common use.
#
# > **A common mistake.** Slides print a column "BLEU" from the paper *Attention is all you need*. Its English–German
# > scores were computed with a script (`get_ende_bleu.sh`) that also splits compounds at their hyphens. The output of a
# > later model scored 29.3 with this rule and 28.6 with sacreBLEU ([fairseq, issue
# > 435](https://github.com/facebookresearch/fairseq/issues/435)). So do not add a number that you compute with
# > sacreBLEU to that table.
#
# ### chrF, and learned metrics
#
# Is a wrong ending as bad as a wrong word? For BLEU it is, because BLEU sees only whether words are equal. **chrF**
# ([@popovic2015]) counts runs of one to six characters, with recall as well as precision. So it gives credit for the
# right word with a wrong ending.

# %%
truth = "the dogs are playing on the beach ."
for text in ("the dog was playing on the beach .", "the man was playing on the beach ."):
    words, letters = bleu([text], [truth]).score, chrf([text], [truth]).score
    print(f"BLEU {words:.0f}   chrF {letters:.0f}   {text}")

# %% [raw] slide
# ## chrF, and learned metrics
# {print}
#
# **chrF** counts runs of letters. **COMET** reads source, translation and reference, and was trained on people's grades.
#
# **Now you:** a@writing, exercise 4

# %% [markdown]
# BLEU gives both sentences the same score, and chrF tells them apart. Neither measure knows that *pier* and *jetty*
# mean nearly the same. **Learned metrics** can know this: **COMET** ([@rei2020]) is a neural network that reads source,
# translation and reference, and is trained to predict the grades that people give. In the yearly comparison at the
# conference on machine translation (WMT), learned metrics agree with people better than BLEU does, and the organisers
# titled their report "Stop using BLEU" ([@freitag2022]). A learned metric has errors of its own. Report one beside BLEU
# and chrF, and read the sentences.
#
# **Now you:** [assignment @writing](@writing/assignment), exercise 4 (BLEU of a corpus).
#
# ## Is the difference real? Bootstrap confidence intervals
# Four models were trained on captions in the same way. They are the **rungs** of the ladder of lecture
# @cross_attention: two recurrent models with one context vector (*mean pool*, *last state*), one with attention, and
# the Transformer. The next cell prints their BLEU on the validation set, with a beam of width 5. On other captions the
# scores would be different. How different?
#
# We have no other captions, so the bootstrap draws 1,014 captions *from these 1,014, with replacement* ([@koehn2004]).
# Each draw is a **resample**, and the interval that holds the middle 95 % of its scores is a **confidence interval**.
# To compare two systems, score both on *the same* resamples and take the differences. This is the **paired bootstrap**
# (sacreBLEU's option `--paired-bs`).
#
# Four times as many captions halve the interval. *For 200 captions the orange intervals of [@fig:beam-widths] reached
# about three points to either side. How far will they reach for 1,014? Will another seed move a score further than
# other captions do?*

# %% [raw] slide
# ## Is the difference real? The bootstrap
# Draw 1,014 captions *from these 1,014, with replacement*; compute BLEU; a thousand times. The middle 95 % are a **confidence interval**. **Paired**: the same drawn captions for both systems.
#
# > **Guess first.** With 200 captions the interval reached about three points to either side. How far with 1,014?

# %%
def resampled(rung):
    rows = torch.tensor(captions["rungs"][rung]["beam"]["statistics"])     # (1014, 5)
    ours, theirs = rows[:, 4], torch.tensor(captions["validation_words"])  # words a caption
    return bootstrap_bleu(rows[:, :4], ours, theirs, samples=1000, seed=0)


def shown(score, values):
    low, _, high = interval(values)
    return f"{score:.1f} ({low:.1f} to {high:.1f})"


rungs = ("mean pool", "last state", "attention", "Transformer")
by_rung = {rung: resampled(rung) for rung in rungs}
bleu_of = {rung: captions["rungs"][rung]["beam"]["bleu"] for rung in rungs}
for rung in rungs:
    print(f"{rung:>12}: {shown(bleu_of[rung], by_rung[rung])}")

# %% tags=["hide-input"]
print("the Transformer, trained again with three seeds")
print(f"{'':>12}{'greedy':>22}{'width 5':>22}{'width 5 − greedy':>24}"
      f"{'words, in %':>16}")
for seed, run in trained.items():
    greedily, widely = run["all"]["1"], run["all"]["5"]
    scores = ("{:.1f} ({:.1f} to {:.1f})".format(way["bleu"], *way["interval"])
              for way in (greedily, widely))
    print(f"{seed:>12}" + "".join(f"{score:>22}" for score in scores)
          + f"{in_brackets(widely['gain'], widely['gain_interval']):>24}"
          f"{100 * greedily['words']:>11.0f}, {100 * widely['words']:.0f}")

# %% tags=["hide-input"]
best, second = by_rung["Transformer"], by_rung["attention"]
differences = {f"Transformer − {rung}": interval(best - by_rung[rung]) for rung in rungs[:3]}
figures.paired({"attention": second.tolist(), "Transformer": best.tolist()}, differences)
shuffled = second[torch.randperm(1000, generator=chance)]                   # not paired now
ahead = bleu_of["Transformer"] - bleu_of["attention"]
for name, other in (("paired", second), ("not paired", shuffled)):
    print(f"Transformer − attention, {name:>10}: {shown(ahead, best - other)}")
#| caption: Left, 1,000 resamples of 1,014 captions, beam width 5: a dot is a resample, scored
#|   for both. Right, paired differences with 95 % intervals.
#| label: bleu-intervals

# %% tags=["hide-input"]
assert min(low for low, _, _ in differences.values()) > 0

# %% [raw] slide
# ## About a point to either side, for other captions
# {figure}
#
# Another *seed* moves the Transformer by up to four points.

# %% [markdown]
# *Left:* every dot lies above the diagonal. The cloud rises to the right, because captions that are easy for one model
# are easy for the other. The paired difference takes this common part away. So its interval is narrower than the
# interval from two separate draws (the two lines below the figure).
#
# *Right:* a thousand captions leave about a point to either side. Our differences are larger, and no interval contains
# zero.
#
# > **What this interval does not know.** It covers other *captions*, but not another *seed*. Each of the four models
# > was trained once, and no bootstrap tells how far a seed moves its BLEU. Only more runs can. With a beam, the three
# > Transformers of the second table differ by up to four points, although nothing but the seed differs. Other captions
# > move a score by little more than one. So one run of each model cannot settle a difference of 3.7 points, however
# > narrow its interval is.
#
# **How a model decodes belongs to its score, too.** With greedy search the same three models score about five points
# lower. The last column suggests why: greedily they write 30 to 40 % too many words. Where a text that does not end is
# cut must be the same for both searches, and must be reported. In the second table it was cut by its own source, as for
# [@fig:beam-widths].
#
# **Now you:** [assignment @writing](@writing/assignment), the extension (a paired bootstrap).
#
# ## Reading translations: hallucination and repetition
#
# A score says how much is wrong, but not what. Here are five of ten sentences that we wrote ourselves in the style of
# captions. We picked these five for their mistakes, and the cell can print the others. Below each sentence are our own
# translation ("truth") and those of the four rungs with a beam of width 5. The rungs were trained on the 29,000
# captions of Multi30k ([@elliott2016]), but for only 800 small steps, so their translations are bad. *In each sentence,
# find the first word that is wrong. What kind of mistake do the models with one vector make, and what kind do the
# models with attention make?*

# %%
sentences = list(captions["sentences"].items())
for i in (1, 3, 6, 7, 8):                               # the record holds ten
    german_text, truth = sentences[i]
    print(f"{german_text}\n{'truth':>12}  {truth}")
    for rung in rungs:
        print(f"{rung:>12}  {captions['rungs'][rung]['beam']['texts'][i]}")
stammer = captions["rungs"]["Transformer"]["greedy"]["texts"][8]
print(f"The ball, greedily: {' '.join(stammer.split()[:8])} … {' '.join(stammer.split()[-3:])}")

# %% [raw] slide
# ## Read the translations
# | | |
# |---|---|
# | source | Eine Frau in einem roten Mantel wartet auf den Bus. |
# | truth | A woman in a red coat is waiting for the bus. |
# | mean pool | A woman in a red shirt is walking down the street. |
# | last state | A woman in a red dress is walking down the street. |
# | attention | A woman in a red coat is walking down the street. |
# | Transformer | A woman in a red coat is waiting on the sidewalk. |
#
# > **Guess first.** What kind of mistake does one vector make, and what kind attention?

# %% [markdown]
# In four of the five sentences the models with one vector keep the topic, such as a woman in something red. They lose
# the details: the coat becomes a shirt or a dress. In the other one, the basket of apples becomes people standing
# around. The English is mostly fluent, so without the German you would not see the mistakes. Fluent text that the
# source does not support is called a **hallucination**. Attention does not rule it out: for the green apples the
# recurrent model with attention writes "a green field with a green dog", and the Transformer writes "a green dress with
# green hairs".
#
# In the sentences with the coat, the helmet and the mother the Transformer keeps more: the red coat, the helmet, the
# bicycle, the mother who watches. The recurrent model with attention keeps the coat, too, but it turns the helmet into
# a shirt. Both models fail at the passive *wird ... getragen*. With greedy search the Transformer repeats itself (the
# last line). With the beam it writes only "The ball.", which is short, safe and useless. Even with the beam it repeats
# itself elsewhere: "while her her her mother".
#
# ### The test set, once
# How good do the same four models become if they are trained longer? The next figure shows one run of each with the
# full profile `cpu`. The curves are from the **validation set**, on which you choose the checkpoint, the beam width and
# the length penalty. *If a look at the test set leads to a choice, the test set has become a validation set.* So use
# the test set once, at the very end, for the number that you report. Learn nothing from it, not even the tokenizer's
# vocabulary. (Our runs did score it at every evaluation, but no choice depends on those scores.) *How much will the
# beam gain for a model that has been trained longer?*

# %% tags=["hide-input"]
files = {"mean pool": "training_cpu_de_en_mean_pool",
         "last state": "training_cpu_de_en_last_state",
         "attention": "training_cpu_de_en_attention", "Transformer": "training_cpu_de_en"}
records = {rung: measured(file) for rung, file in files.items()}
curves = {}
for rung, record in records.items():
    each = record["steps"] // len(record["curve"])
    curves[rung] = {each * (i + 1): look["bleu"] for i, look in enumerate(record["curve"])}
viz.line_plot(curves, x_name="steps", y_name="BLEU on the validation set, greedy", low=0)
for rung, record in records.items():
    print(f"{rung:>12}: on the test set {record['curve'][-1]['test']:.1f} greedily, "
          f"{record['bleu']:.1f} with beam width 5")
print(records["Transformer"]["bleu_signature"], "\n" + records["Transformer"]["command"])
#| caption: BLEU on the validation set, greedy, while four models train, one run each.

# %% [raw] slide
# ## The test set, once
# {figure}
#
# If a look at the test set leads to a choice, it has become a validation set.

# %% [markdown]
# With the beam, attention gains 11 points over the models with one vector, and the Transformer gains 4 more. With
# greedy search the Transformer gains 7 more. Read these numbers with caution: the recipe was written for the
# Transformer, each model was trained once, and the records keep no counts for each sentence, so there are no intervals.
#
# The beam gains two to three points for the recurrent models, but hardly anything for the Transformer. After the short
# training it had gained about five points, for each of three seeds. Our guess is that the short training had not yet
# taught the model to end its texts. We cannot test this, because the records of the long runs do not include the
# lengths.
#
# ## Error analysis: what went wrong, and why
#
# Back to the number words and to the first question: why are so many lists wrong? We read the validation set, and the
# test set stays closed. We read the worst translations first, by chrF. *Which lists do you expect to be the hardest?*

# %% [raw] slide
# ## Error analysis: read the worst first
# > **Guess first.** Which lists are the hardest?

# %%
failed = [(answer, pair) for answer, pair in zip(answers, validation, strict=True)
          if answer.text != pair.target]
failed.sort(key=lambda each: chrf([each[0].text], [each[1].target]).score)
for answer, pair in failed[:5]:
    print(f"{pair.source:>12} -> {answer.text[:60]}{' …' * (len(answer.text) > 60)}")

# %% [raw] slide
# ## Single numbers!
# {print}

# %% [markdown]
# Single numbers! They are the easiest lists there are, and the model repeats itself. *Guess:* is the translation wrong,
# or only its end? Five examples prove nothing. So the next cell counts *all* mistakes by the length of the right
# translation in tokens, `<eos>` included. Beside them it prints how many lists of that length the model saw in
# training.

# %% tags=["hide-input"]
def length(pair):
    return len(english.encode(pair.target)) + 1


read = [learned[i] for batch in batches for i in batch]       # in these 550 steps
seen, asked = Counter(map(length, read)), Counter(map(length, validation))
wrong = Counter(length(pair) for _, pair in failed)
log_p, target = log_p_of(validation)
lengths_of = (target != PAD).sum(dim=1)
nats = -log_p.sum(dim=1) / lengths_of                                       # (1000,) a token
for n in range(2, 9):
    example = next(pair.target for pair in validation if length(pair) == n)
    print(f"{n} tokens: {seen[n]:5,} lists seen   "
          f"{wrong[n]:2} of {asked[n]:2} wrong, loss {nats[lengths_of == n].mean():.2f}"
          f"   ({example})")
longer = sum(wrong[n] for n in wrong if n > 8), sum(asked[n] for n in asked if n > 8)
print(f"longer:                      {longer[0]} of {longer[1]} wrong")
short = [(answer, pair) for answer, pair in failed if length(pair) <= 5]
go_on = sum(answer.target_pieces[: length(pair) - 1] == english.pieces(pair.target)
            for answer, pair in short)
print(f"of the {len(short)} wrong lists of up to 5 tokens"
      f" {go_on} begin with all tokens of the right text")
print(f"loss of all, nats per token: {-log_p.sum() / lengths_of.sum():.2f}")
word = failed[0][1].source                                                  # the worst of all
n_with_word = sum(word in pair.source.split(", ") for pair in read)
print(f"lists seen with {word} as one of their numbers: {n_with_word}")

# %% tags=["hide-input"]
assert seen[2] < 10 and wrong[2] > 0.7 * asked[2]
assert seen[4] > 100 and wrong[4] > 0.3 * asked[4] and wrong[6] < 0.1 * asked[6]
assert go_on > 0.9 * len(short), "what fails is the end"
assert 0.3 < len(short) / len(failed) < 0.7 and wrong[3] > 0.15 * asked[3]
assert n_with_word > 50 and "," not in word

# %% [raw] slide
# ## Count all mistakes, by length
# {print}
#
# > **Write down a suspect** for the first row. Does it explain the third, too?

# %% [markdown]
# In this run about half of the mistakes are in *short* lists. Nearly all lists of two tokens (one word and `<eos>`) are
# wrong, and so are many lists of three and four tokens, but hardly any lists of six. What fails is the end: the wrong
# texts of up to five tokens begin with the whole right translation and then go on (the line below the table).
# *Write down a suspect for the first row. Does it explain the third row, too?* The answer comes after the long lists.
#
# The other half are in long lists, and most of these have *five* numbers. The fourth number is the hard one
# ([@fig:exposure-bias]). The cell prints three lists in which the fourth is the first wrong number. *Where does its
# wrong word come from?*

# %%
fourth = []                             # of five numbers the fourth is the first wrong one
for text, pair in zip(written, validation, strict=True):
    ours, theirs = text.split(", "), pair.target.split(", ")
    if len(theirs) == 5 and len(ours) > 3 and ours[:3] == theirs[:3] and ours[3] != theirs[3]:
        fourth.append((ours, theirs, pair.source))
for ours, theirs, _ in fourth[:3]:
    print(f"  right: … {', '.join(theirs[3:])}\nwritten: … {', '.join(ours[3:])}")
n_of_five = sum(pair.target.count(",") == 4 for _, pair in failed)
print(f"{n_of_five} of the {longer[0]} wrong long lists have five numbers;",
      f"the fourth is the first wrong one in {len(fourth)}")

# %% [markdown]
# The wrong words seem to come from the fifth number. If they do, words of the third number should turn up less often.
# So we count both.

# %%
def words_of(number):
    return set(number.replace("-", " ").split()) - {"and", "hundred"}


mixed = {}
for name, k in (("third", 2), ("fifth", 4)):
    mixed[name] = 0
    for ours, theirs, _ in fourth:
        wrong_words = words_of(ours[3]) - words_of(theirs[3])
        mixed[name] += bool(wrong_words & words_of(theirs[k]))
    print(f"{mixed[name]} of {len(fourth)} wrong fourth numbers hold a word of the {name}")

# %% tags=["hide-input"]
assert n_of_five > 0.5 * longer[0] and len(fourth) > 0.4 * n_of_five
assert mixed["fifth"] > 0.6 * len(fourth) > 2 * mixed["third"]

# %% [raw] slide
# ## The long lists: the last two positions are confused
# {print}
#
# > **Guess first.** Where does the cross-attention look while the model writes the fourth number?

# %% [markdown]
# Most wrong fourth numbers hold a word of the fifth number, and far fewer hold a word of the third. That was one run.
# Here are three:

# %% tags=["hide-input"]
for run in exposure["runs"]:
    n = run["fourth_first_wrong"]
    print(f"seed {run['seed']}: of {n['lists']} wrong fourth numbers {n['fifth']} hold a word "
          f"of the fifth, {n['third']} one of the third")

# %% [markdown]
# All three agree: the model confuses the last two numbers. *Where does the cross-attention look while the model writes
# the fourth number?*

# %% tags=["hide-input"]
def number_of(pieces):
    """Which number of its list a token belongs to, from 0; −1 for commas and <eos>."""
    return torch.tensor([-1 if piece in (",", "<eos>") else pieces[:i].count(",")
                         for i, piece in enumerate(pieces)])


def first_wrong_row(written_pieces, right_text):
    right_pieces = [*english.pieces(right_text), "<eos>"]
    pairs = zip(written_pieces, right_pieces, strict=False)
    return next(i for i, (ours, theirs) in enumerate(pairs) if ours != theirs)


def weight_on(each, row):
    """The weight of one row on the source's fourth and on its fifth number."""
    columns = number_of(each.source_pieces)
    return [each.weights[row][columns == k].sum().item() for k in (3, 4)]


def begins_at(each):
    """The row that writes the first token of the fourth number."""
    return number_of(each.target_pieces).tolist().index(3)


wrong_rows = []                         # (which token of the fourth number, its two weights)
failures = translate(transformer, [source for *_, source in fourth], german, english)
for each, (_, truth, _) in zip(failures, fourth, strict=True):
    row = first_wrong_row(each.target_pieces, ", ".join(truth))
    wrong_rows.append((row - begins_at(each), weight_on(each, row)))
by_token = {}                           # the same token of fourth numbers that are right
all_right = [pair.source for pair, text in zip(fives, texts, strict=True)
             if text == pair.target]
for each in translate(transformer, all_right, german, english):
    n_pieces = int((number_of(each.target_pieces) == 3).sum())
    for k in range(n_pieces):
        by_token.setdefault(k, []).append(weight_on(each, begins_at(each) + k))
matched = [torch.tensor(by_token[k]).mean(dim=0).tolist() for k, _ in wrong_rows]
at_first_wrong = [weights for _, weights in wrong_rows]
looked_at = {name: torch.tensor(rows).mean(dim=0).tolist()
             for name, rows in (("first wrong token", at_first_wrong),
                                ("right, same place", matched))}

ours, theirs, example = fourth[2]
shown = translate(transformer, [example], german, english)[0]
columns = number_of(shown.source_pieces)
first = begins_at(shown)
row = first_wrong_row(shown.target_pieces, ", ".join(theirs))
begin = columns.tolist().index(2)                            # the third number of the source
print(f"weight on the first two numbers, at most: {shown.weights[first:, :begin].max():.2f}")
rows = shown.weights[first:, begin:], shown.source_pieces[begin:], shown.target_pieces[first:]
at = {name: (columns[begin:] == k).nonzero()[:, 0].tolist()
      for name, k in (("4th", 3), ("5th", 4))}
spans = {f"{name}: {100 * share:.0f} %": (where[0], where[-1])
         for (name, where), share in zip(at.items(), weight_on(shown, row), strict=True)}
figures.alignments({"": rows}, spans, marked=row - first)
print(f"source: {example}\nfourth number: right {theirs[3]}, written {ours[3]}")
print(f"mean of {len(wrong_rows)} wrong and {len(all_right)} right lists:")
for name, (at_fourth, at_fifth) in looked_at.items():
    print(f"{name:>20}: weight {at_fourth:.0%} on the source's fourth number, "
          f"{at_fifth:.0%} on its fifth")
#| caption: Cross-attention weights from a wrong fourth number on (last layer, mean of heads).
#|   Framed: a row's largest. Below: the orange row's weight on two numbers.
#| label: fourth-number

# %% tags=["hide-input"]
first_wrong, all_of_right = looked_at.values()
assert first_wrong[1] > 1.5 * all_of_right[1] and first_wrong[0] < all_of_right[0]
assert first_wrong[1] > 0.25 and abs(first_wrong[1] - first_wrong[0]) < 0.2

# %% [raw] slide
# ## It looks at the last two numbers
# {figure}

# %% [markdown]
# In the orange row the model writes its first wrong token, and the bars below say how much of its weight lies on the
# fourth and on the fifth number of the source. (In the grey rows it has already read its mistake.) One list may be an
# extreme case, so the last two printed lines give means over all such lists. At the first wrong token the fifth number
# gets about as much weight as the fourth. At the same place of a fourth number that comes out right, the fifth number
# gets much less. So the weights fit the mistake: this run confuses the last two positions. We do not know why it
# learned to.
#
# Back to the short lists, and to your suspect.
#
# **Suspect 1: there was nothing to learn from.** No list occurs twice, and the first thousand lists drawn are the
# validation set. One draw in five is a single number, and one number in 27 is, say, *four*. So the list *four* comes up
# about once in 135 draws. Nearly every such list has therefore turned up among the first thousand, and all its later
# copies are dropped. So the split is **biased**: the rule "no
# list twice" left the training set hardly any lists of one word. The model has seen its worst number in many longer
# lists (the last printed line), but hardly any number alone.
#
# This explains the row of two tokens. It does not explain the row of four: the model saw more than a hundred lists of
# that length.
#
# **Suspect 2: length bucketing.** To save padding, lists of similar length share a batch. *How many of the 550 steps
# had a list of at most four tokens?*

# %%
is_short = [length(pair) <= 4 for pair in learned]
met = [step for step, batch in enumerate(batches, start=1) if any(is_short[i] for i in batch)]
print(f"{sum(is_short)} short lists among {len(is_short):,}, "
      f"met in {len(met)} of {len(batches)} steps: {met}")

# %% tags=["hide-input"]
assert len(met) == 3

# %% [markdown]
# Three, and none of them in the second half. In all other steps every list goes on after four tokens, so each of these
# updates teaches the model not to end early. Has it forgotten the short lists (**catastrophic forgetting**)? We can
# test that by counting how many of them are right in the course of training. `benchmarks/splits.py` did this in three
# runs, in which a seed decides the initial weights *and* the order of the batches. It follows 87 of the 97 short lists,
# and the other ten are set aside for the next experiment. *Draw the curve that forgetting would give.*

# %% tags=["hide-input"]
splits = measured("splits")
print(splits["command"])
as_it_was = splits["suspects"]["as it was"]
n_watched = as_it_was[0]["watched"]
panels = {}
for run in as_it_was:
    right_after = {int(step): n for step, n in run["watched_right"].items()}
    panels[f"seed {run['seed']}"] = right_after, run["met"]["4"]
figures.on_the_way(panels, n_watched, f"short lists right, of {n_watched}")
asked_here, wrong_here = (as_it_was[0][which]["3"] for which in ("asked", "wrong"))
print(f"lists of three tokens wrong, seed 0: on this page {wrong[3]} of {asked[3]}, "
      f"in the record {wrong_here} of {asked_here}")
#| caption: Lists of at most four tokens of the validation set that are right, in the course of
#|   three training runs. Orange: the steps that met such a list.
#| label: forgetting

# %% [raw] slide
# ## Forgotten, or never decided?
# {figure}
#
# Up at an orange line, down again: forgetting. But between the lines the count rises, too, and falls.

# %% [markdown]
# Forgetting would draw the teeth of a saw: up at each orange line, down again, and flat until the next line. There are
# such teeth. In the first run 9 lists are right at step 212, 67 are right six steps later, and none at step 225. But
# far from any orange line the count also rises and falls, between almost none and more than two thirds, in all three
# runs. So some of what longer lists teach carries over to short ones, and the next batches may take it away.
#
# The model has not simply forgotten: hardly any batch *decides* whether a list may end early. It seems to be chance how
# many short lists are right when the learning rate reaches zero. The printed line supports this. The page and the
# record share the seed and the batches, and differ only in the program and its rounding, but their counts differ
# widely.
#
# ### A factorial experiment: two suspects, four conditions
#
# Two suspects make four conditions, a **factorial experiment**. Each of two remedies is used or not:
#
# * *mixed batches*: each batch holds lists of any length, chosen at random;
# * *short lists restored*: ten one-word lists of the validation set go to the training set, each twenty times.
#
# The number of steps stays the same, and so do the lists that are counted: the other 990 of the validation set, nine of
# them one word long. Mixed batches hold fewer lists, because padding takes up room. So if mixing helps, it is not
# because the model saw more data. If mixing hurts, less data may be the cause. *In how many of the 550 steps will the
# model meet a list of two tokens, in each condition? Which lengths does each remedy fix?*

# %% [raw] slide
# ## Two suspects, four conditions
# 1. **Nothing to learn from**: the validation set was drawn first, and took nearly all one-word lists.
# 2. **Length bucketing**: lists of like length share a batch, so short ones are met in a handful of steps.
#
# Mix the batches, or not. Restore ten short lists, or not.

# %% tags=["hide-input"]
def wrong_of(runs, n):
    return [run["wrong"][str(n)] for run in runs]


conditions = {"as it was": "as it was", "mixed batches": "mixed batches",
              "lists restored": "short lists given back", "both": "both"}
asked_of = {n: splits["suspects"]["both"][0]["asked"][str(n)] for n in (2, 3, 4)}
figures.seed_bars({f"wrong, of {asked_of[n]} lists of {n} tokens":
                   {name: wrong_of(splits["suspects"][key], n)
                    for name, key in conditions.items()}
                   for n in (2, 3, 4)}, tops=list(asked_of.values()))
print(f"{'':>16}  {'lists of 2 tokens':29}  lists of at most 4 tokens\n"
      f"{'by seed:':>16}  {'seen':15}{'in steps':14}  {'seen':17}in steps")
for name, key in conditions.items():
    runs = splits["suspects"][key]
    short_seen = {n: [run["short_seen"][n] for run in runs] for n in ("2", "4")}
    in_steps = {n: [len(run["met"][n]) for run in runs] for n in ("2", "4")}
    print(f"{name:>16}  {short_seen['2']!s:15}{in_steps['2']!s:14}  "
          f"{short_seen['4']!s:17}{in_steps['4']!s}")


def long_ones(run, which):                              # longer than eight tokens
    return sum(count for n, count in run[which].items() if int(n) > 8)


wrong_long = {name: [long_ones(run, "wrong") for run in splits["suspects"][key]]
              for name, key in conditions.items()}
print(f"\n{'':>16}  {'lists':23}{'wrong':17}wrong, of {long_ones(as_it_was[0], 'asked')}\n"
      f"{'by seed:':>16}  {'read':23}{'of 990':17}longer than 8 tokens")
for name, key in conditions.items():
    runs = splits["suspects"][key]
    read_in_all = [run["lists_seen"] for run in runs]
    wrong_in_all = [sum(run["wrong"].values()) for run in runs]
    print(f"{name:>16}  {read_in_all!s:23}{wrong_in_all!s:17}{wrong_long[name]}")
#| caption: Wrong lists of three lengths before and after two remedies; one labelled bar per
#|   seed. The axes end at the number of lists.

# %% [raw] slide
# ## Both suspects are guilty
# {figure}

# %% [markdown]
# **Both suspects are guilty**, and the counts say how.
#
# * *Two tokens*: neither remedy alone fixes many lists, and both together fix most. The effects **interact**. Batches
#   of like length pack the restored lists together, so about a hundred are seen, but in only *one* of the 550 steps. In
#   mixed batches fewer are seen, but in about sixty steps. If you had only restored lists and seen no change, you would
#   have wrongly ruled out suspect 1. Two suspects need all four conditions.
# * *Four tokens*: mixed batches alone fix half or more. Fewer short lists are seen than before, but in at least 65
#   steps instead of two or three. Restoring short lists alone shows no clear effect.
# * *Three tokens*: mixed batches alone leave 21, 3 and 2 of 47 lists wrong, and both remedies leave 1, 2 and 2. No list
#   of this length was restored. So in one seed the restored lists of two tokens seem to help the lists of three,
#   because both need an early `<eos>`. In the other two seeds mixing alone was enough.
#
# **Mixing has a price.** Padding leaves about 40 % fewer lists in the same steps, and in all three seeds more *long*
# lists are wrong than before (the second table). With both remedies this is still so, in one seed by a single list.
# Fewer lists are the likely cause, and a run that reads equally many lists would test it. The price hides part of the
# gain: with both remedies about a hundred lists are still wrong, and with one remedy alone the total does not clearly
# improve, because the seeds differ by more than the conditions do. A seed here varies the order of the batches, too. *A
# seed should vary everything that chance decided*, or the differences look clearer than they are.
#
# Would a **random split**, shuffled before the validation set is taken, have shown the fault?

# %%
shuffled = lists[:21_000]
random.Random(0).shuffle(shuffled)
for name, some in (("first drawn", validation), ("shuffled before", shuffled[:1_000])):
    n_short = sum(length(pair) <= 4 for pair in some)
    print(f"{name:>15}: {n_short} of {len(some):,} validation lists have at most four tokens")

# %% tags=["hide-input"]
assert n_short < 20

# %% [raw] slide
# ## A random split hides the fault
# {print}

# %% [markdown]
# No. A random split removes part of suspect 1, because nearly all short lists are now in the training set. But it
# **hides what is left**, because its validation set contains almost no short lists. If all of them were wrong, the
# score would fall by only about a point. A good test looks like the model's later use. The mean loss did not show the
# fault, but the loss by length would have shown it.
#
# ### A prediction for the test set
# Did the *lengths* of the validation lists make our score so low? The lists of the test set were drawn last, so hardly
# any of them is short. If each length keeps its share of mistakes, what share of the test set will be right? The next
# cell predicts this share from the validation set, with a bootstrap interval, and then opens the test set. *Guess
# first: higher or lower than in validation, and by how many points?*

# %% tags=["hide-input"]
def pooled_length(pair):                                # few lists are longer than 24 tokens
    return min(24, length(pair))


n_tokens = [pooled_length(pair) for pair in validation]
is_wrong = [text != truth for text, truth in zip(written, truths, strict=True)]
test_lengths = [pooled_length(pair) for pair in test]


def predict(rows):
    """The share right in the test set if each length keeps the mistakes of these lists."""
    asked, wrong = Counter(n_tokens[i] for i in rows), Counter()
    for i in rows:
        wrong[n_tokens[i]] += is_wrong[i]
    return sum(1 - wrong[n] / asked[n] for n in test_lengths) / len(test)


lots = random.Random(0)
everything = range(len(validation))
redrawn = [lots.choices(everything, k=len(validation)) for _ in range(1_000)]
again = [predict(rows) for rows in redrawn]
texts = [answer.text for answer in write(transformer, test)]
hits = exact_match(texts, [pair.target for pair in test])
right_in_test = sum(hits) / len(test)
found_again = [sum(lots.choices(hits, k=len(test))) / len(test) for _ in again]
n_short = sum(n <= 4 for n in test_lengths)
print(f"lists of at most four tokens in the test set: {n_short} of {len(test):,}\n"
      f"exactly right in validation: {right:.1%}")
difference = [b - a for a, b in zip(again, found_again, strict=True)]
gained = [b - 1 + sum(is_wrong[i] for i in rows) / len(rows)
          for rows, b in zip(redrawn, found_again, strict=True)]
for name, value, many in (("predicted", predict(everything), again),
                          ("found", right_in_test, found_again)):
    ordered = sorted(many)
    print(f"{name:>18}: {value:.1%} ({ordered[25]:.1%} to {ordered[974]:.1%})")
verdicts = {"found − validation": ("so the gain is real", "so the gain may be chance"),
            "found − predicted": ("so something else differs", "so lengths may explain it all")}
for name, base, many in (("found − validation", right, gained),
                         ("found − predicted", predict(everything), difference)):
    low, high = (100 * sorted(many)[i] for i in (25, 974))
    with_zero = low <= 0 <= high
    print(f"{name:>18}: {100 * (right_in_test - base):+.1f} points "
          f"({low:+.1f} to {high:+.1f}), "
          f"{'zero is' if with_zero else 'zero is not'} inside, {verdicts[name][with_zero]}")

# %% tags=["hide-input"]
assert right + 0.02 < predict(everything) and right < right_in_test
assert abs(right_in_test - predict(everything)) < 0.06

# %% [markdown]
# The same model scores higher on the test set, as predicted. The last two lines say how sure we may be: first whether
# the gain is real, then whether length is the whole reason. The second is not a proof, because an interval of several
# points leaves room for another effect. One conclusion is safe,
# because the model is the same and only the lists changed: *a score belongs to a model and a test set together.*
#
# ## Comparing four architectures
# How much does each rung of the ladder of lecture @cross_attention gain on the number words? The lists are shuffled
# before they are split, all four models get batches of like length, and each is trained with three seeds of the initial
# weights. A recurrent step is slower, so the recurrent models get fewer steps (and another learning rate). All are
# scored on the last thousand lists drawn, which is the same test set, read a second time. No choice depends on it. *Put
# the four in order, and say how far the seeds will scatter.*

# %% tags=["hide-input"]
ladder = splits["ladder"]
for rung, runs in ladder.items():
    spent = sum(run["seconds"] for run in runs) / len(runs)
    print(f"{rung:>12}: {runs[0]['steps']} steps, {spent:.0f} s of one CPU thread, "
          f"{runs[0]['lists_seen']:,} lists read, {runs[0]['parameters']:,} parameters")
reached = {rung: [100 * run["right_in_test"] for run in runs] for rung, runs in ladder.items()}
figures.seed_bars({"lists exactly right, in %": reached}, (100,), words="{:.1f}", inches=1.5)
#| caption: Share of the test set's lists that are exactly right; a bar for each of three seeds.

# %% [raw] slide
# ## Four architectures
# {figure}
#
# One vector is not enough. One order of the batches: be careful with the last step.
#
# **Now you:** a@writing, exercises 5 and 6

# %% [raw] slide
# ## In short
# | | |
# |---|---|
# | probability of a sentence | $\log p(y \mid x) = \sum_t \log p(y_t \mid y_{<t}, x)$ |
# | beam search score | $\log p(y \mid x) \,/\, ((5 + \lvert y \rvert)/6)^{\alpha}$ |
# | sampling | $y_t \sim \operatorname{softmax}(z / T)$, cut to the top $k$ or to mass $p$ |
# | BLEU | $100 \cdot \min(1, \exp(1 - r/c)) \cdot (p_1 p_2 p_3 p_4)^{1/4}$ |
# | bootstrap interval | the middle 95 % of BLEU over resampled corpora |
#
# **Now do** assignment a@writing. **Next:** lecture @cheap_attention.

# %% [markdown]
# Both models with one vector get about four lists in a hundred right. Attention is the large step: no seed moves a
# score that far. The last step is small. Every score of the Transformer is above every score of the recurrent model
# with attention. But the Transformer also read about 1.5 times as many lists, and each model saw only *one* order of
# its batches. Another order may move a score by as much as this step, as the seeds of the last experiment suggest. So
# this record does not settle which of the two is better.
#
# **Now you:** [assignment @writing](@writing/assignment), exercises 5 and 6 (in words): read a result as a reviewer
# would, and find out why a model fails.
#
# ## In short
#
# | | | shape |
# |---|---|---|
# | probability of a sentence | $\log p(y \mid x) = \sum_t \log p(y_t \mid y_{<t}, x)$ | one per hypothesis |
# | beam search score | $\log p(y \mid x) \,/\, ((5 + \lvert y \rvert)/6)^{\alpha}$ | (batch, width) |
# | sampling | $y_t \sim \operatorname{softmax}(z / T)$, cut to the top $k$ or to mass $p$ | $z$: (batch, vocab_size) |
# | BLEU | $100 \cdot \min(1, \exp(1 - r/c)) \cdot (p_1 p_2 p_3 p_4)^{1/4}$ | one per corpus |
# | bootstrap interval | the middle 95 % of BLEU over resampled corpora | (samples,) |
#
# A model is trained on all positions at once and writes them one by one, and a KV cache makes each step cheap. Search
# where the source fixes the meaning, sample where it does not, and put finished hypotheses aside. A wrong number in the
# prefix raises the loss of the rest, and a random wrong number raises it no less than the model's own. A score needs
# its signature, an interval over sentences and several seeds. A score says how much is wrong. To learn why, read the
# mistakes, count them, and change one thing at a time.
#
# > **Check yourself.**
# > 1. All hypotheses of one round have equally many tokens. Why does the length penalty not change which of *them* are
# >    kept?
# > 2. With top-p = 0.9 the likeliest token has probability 0.95. How many tokens may be drawn?
# > 3. A translation is a perfect copy of the first half of its reference. Is its BLEU 50?
# > 4. System A beats B by 0.4 BLEU; the paired interval of the difference is −0.1 to 0.9. What may you say?
# > 5. Which of these would the *training loss* have told you: dropout on while writing, a length penalty with the wrong
# >    sign, a biased split, a lower-cased score?
# > <details><summary>Answers</summary>
# >
# > 1. The divisor is the same for all of them, so it changes no order. It matters among finished hypotheses, which have
# >    different lengths.
# > 2. One.
# > 3. No: its precisions are 1, and the brevity penalty is $\exp(1 - 2)$, so its BLEU is 37.
# > 4. This test set cannot tell A and B apart. Even if it could, one seed each would not settle it.
# > 5. None of them. These faults lie where the training loss does not look.</details>
#
# **Now do** [assignment @writing](@writing/assignment). **Next:** [cheap attention](@cheap_attention), for texts so
# long that a table of $n^2$ weights does not fit.
#
# ## Going further: where the two models with attention looked
#
# The section on translations shows what the two models wrote with a beam. These are their greedy translations of the
# sentence with the coat. A row is a token that was written, and a column is a token of the source. The largest weight
# of each row is framed. The Transformer's weights are the mean over the heads of its last layer. *Which model looks at
# "wartet", and which looks at "Bus."?*

# %% tags=["hide-input"]
looked = {}
for rung in ("attention", "Transformer"):
    chosen = captions["rungs"][rung]["alignments"][1]
    weights = torch.tensor(chosen["weights"]) / 1000
    weights = weights / weights.sum(dim=1, keepdim=True)                    # they were rounded
    looked[rung] = weights, chosen["source"], chosen["target"]
figures.alignments(looked)
#| caption: Attention weights of one caption in two trained models: white is 0, the darkest blue
#|   1, and each row sums to 1.

# %% [markdown]
# Both models follow the source and find the coat. When the Transformer writes *waiting*, it looks at *wartet*. Then it
# looks at *Bus.* in five rows, but it writes *street* and *sidewalk*. Only in its row of `<eos>` does it go back to the
# beginning of the source. When the recurrent model writes *walking*, it looks at *auf*, the word after *wartet*, and
# none of its rows has the largest weight at *wartet*. No row of the recurrent model gives *Bus.* more than a few
# hundredths, and the model writes "down the street". The weights fit the mistakes, but they do not prove the cause:
# each encoder state also carries information about its neighbours.
#
# **Further reading.** [+@wu2016], section 7: beams. [+@koehn2017], section 3.6, and [+@stahlberg2019]: why wider is not
# better. [+@holtzman2020]. [+@ranzato2016], and [+@bengio2015]. [+@papineni2002]; [+@popovic2015]; [+@post2018];
# [+@koehn2004]. [+@rei2020]; [+@freitag2022].
