# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3 (ipykernel)
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Assignment @writing · Writing and measuring
#
# In this assignment you build three ways to write a translation with the model of [lecture @writing](@writing), and the
# measure by which translations are compared.
#
# Under each exercise stands a check. A check on other numbers and other sizes decides your points. After the check comes
# a cell that *uses* what you wrote. It waits until the check gives all points, takes seconds, and is not graded.
#
# Functions return new tensors and lists: an answer that writes into its arguments is refused.
#
# {exercises}
#
# If you are stuck, `hint("greedy_decode", 1)` prints a hint; the later ones of an exercise tell more. Your answers are
# refused if they call the course's own decoding or metrics.

# %% locked=true
try:
    from attncourse import check, hint, solved
except ModuleNotFoundError:
    raise ImportError(
        "This notebook needs the attncourse package: open it with `make lab` in the course's "
        "folder, or choose a kernel of the environment in which you installed the course."
    ) from None

import functools
import math
from collections import Counter
from collections.abc import Callable

import torch
from torch import Tensor

torch.set_num_threads(1)  # models as small as these gain nothing from a second thread

# %% [markdown]
# The cells that use your answers need a model. The first of them that you run trains a small translator of German number
# words, in about ten seconds, and keeps it. You know the loop from lecture @training.

# %% locked=true
@functools.cache
def translator():
    """A small trained encoder–decoder, its two tokenizers, and pairs that it has not seen."""
    from attncourse.data import Tokenizer, collate, encode_pairs, number_words
    from attncourse.transformer import EncoderDecoder, TransformerConfig

    pairs = number_words("de", "en", train=4000, test=200, max_items=2, dates=0)
    german = Tokenizer.train(
        (pair.source for pair in pairs.train), size=112, keep_apart="hundert|und"
    )
    english = Tokenizer.train((pair.target for pair in pairs.train), size=112)
    torch.manual_seed(0)
    config = TransformerConfig(
        vocab_size=len(german),
        target_vocab_size=len(english),
        d_model=48,
        d_ff=128,
        n_layers=1,
        n_heads=4,
    )
    model, steps = EncoderDecoder(config), 400
    optimizer = torch.optim.Adam(model.parameters(), betas=(0.9, 0.98))
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 1e-2, steps)
    encoded = sorted(encode_pairs(pairs.train, german, english), key=lambda pair: len(pair[1]))
    for i in torch.randint(len(encoded) // 64, (steps,)).tolist():
        batch = collate(encoded[64 * i : 64 * (i + 1)])          # of like length
        optimizer.zero_grad()
        model.loss(batch.source, batch.lengths, batch.target_in, batch.target_out).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
    return model.eval(), german, english, pairs.test


def logits_after(sources: list[str]) -> Callable[[Tensor], Tensor]:
    """The translator as a function of what is written so far.

    It returns the logits of the next token of each sentence.
    """
    from attncourse.data import collate, encode_pairs
    from attncourse.data.parallel import Pair

    model, german, english, _ = translator()
    batch = collate(encode_pairs([Pair(source, "") for source in sources], german, english))

    @torch.no_grad()
    def next_logits(tokens):
        n = len(tokens) // len(sources)                          # hypotheses of each sentence
        return model(batch.source.repeat(n, 1), batch.lengths.repeat(n), tokens)[:, -1]

    return next_logits

# %% [markdown]
# ## 1 · Greedy decoding
#
# You are handed a model as a function. `next_logits(tokens)` takes all that is written so far, `(n_sentences, t)`, with `bos` in the
# first column, and returns the logits of the next token of each sentence, `(n_sentences, vocab_size)`. It remembers nothing
# between two calls. It has to be asked about all sentences of the batch at once, also about those that have ended; what it says of
# these means nothing.
#
# Take the likeliest token at each step, whichever it is: nothing is forbidden to the model, and only `eos` ends a sentence
# (a `pad` that the model writes itself does not). After `eos` there is `pad`. Stop when all have ended, or when there are
# `max_length` tokens, not counting `bos`.

# %% exercise="greedy_decode"
def greedy_decode(
    next_logits: Callable[[Tensor], Tensor],
    n_sentences: int,
    bos: int,
    eos: int,
    pad: int,
    max_length: int,
) -> Tensor:
    """Write a sentence in each row, token by token, always the likeliest.

    returns (n_sentences, max_length) whole numbers: no bos, eos where the sentence ends, pad
    behind it
    """
    ...  # solution

# %% check="greedy_decode"
check("greedy_decode", greedy_decode)

# %% [markdown]
# **Use it.** Translate what the model has never seen. (The first time, it has to be trained: about ten seconds.)

# %%
if solved("greedy_decode"):
    model, german, english, unseen = translator()
    sources = [pair.source for pair in unseen]
    written = greedy_decode(
        logits_after(sources), len(sources), bos=1, eos=2, pad=0, max_length=24
    )
    greedy = [english.decode(row.tolist()) for row in written]
    for pair, text in list(zip(unseen, greedy, strict=True))[:8]:
        print(f"{pair.source:>55} → {text}{'' if text == pair.target else '   ✗'}")
    right = sum(text == pair.target for pair, text in zip(unseen, greedy, strict=True))
    print(f"{right} of {len(unseen)} unseen lists are right to the last letter")

# %% [markdown]
# ## 2 · Beam search: several hypotheses at once
#
# Now for one sentence, but with several hypotheses. `next_log_p(tokens)` takes hypotheses of one length, `(n_hypotheses, t)`, each
# with `bos` in front, and returns the *log-probabilities* of their next tokens, `(n_hypotheses, vocab_size)`.
#
# Begin with one open hypothesis, which is `bos` alone and has the total 0. In each round:
#
# 1. Continue every open hypothesis with every token. A continuation's total is the old total plus the token's log-probability.
# 2. Of all these continuations together keep the `n_beams` with the largest totals.
# 3. Of the ones that you kept, those that end in `eos` have ended: put them aside. (So the beam gets narrower; [@sutskever2014], section 3.2.) The others are open.
#
# It is over when none is open, or after `max_length` rounds. Then all that were put aside compete with those still open, on
# equal terms, by
#
# $$\text{score} = \frac{\text{total}}{\bigl((5 + n) / 6\bigr)^{\alpha}}$$
#
# where $n$ is the number of tokens without `bos` (an `eos` counts) and $\alpha$ is `length_penalty` ([@wu2016], section 7).
# Totals are negative. No two totals are equal. The vocabulary is larger than `n_beams`.

# %% exercise="beam_search"
def beam_search(
    next_log_p: Callable[[Tensor], Tensor],
    n_beams: int,
    length_penalty: float,
    bos: int,
    eos: int,
    max_length: int,
) -> tuple[Tensor, float]:
    """The hypothesis with the best score, and that score.

    returns its tokens, a tensor (n,), without bos and with its eos if it has one; and its
    score, a number
    """
    ...  # solution

# %% check="beam_search"
check("beam_search", beam_search)

# %% [markdown]
# **Use it.** One beam and four on sixty unseen lists: only where they differ is something printed. Is the hypothesis with
# the higher score the better translation?

# %%
if solved("beam_search"):
    model, german, english, unseen = translator()

    def best(source, n_beams):
        next_logits = logits_after([source])

        def next_log_p(tokens):
            return next_logits(tokens).log_softmax(dim=-1)

        tokens, _ = beam_search(next_log_p, n_beams, 0.6, bos=1, eos=2, max_length=24)
        return english.decode([token for token in tokens.tolist() if token != 2])

    mended = spoilt = 0
    for pair in unseen[:60]:
        one, four = best(pair.source, 1), best(pair.source, 4)
        mended += one != pair.target == four
        spoilt += one == pair.target != four
        if one != four:
            print(f"{pair.source}\n    one beam: {one}\n    four:     {four}\n"
                  f"    right:    {pair.target}")
    print(f"of 60: {mended} mended by four beams, {spoilt} spoilt")

# %% [markdown]
# ## 3 · Sampling: temperature, top-k, top-p
#
# A model that always takes the likeliest token says the same thing each time. To **sample** is to choose a token by its
# probability. Rare tokens are many, and together they are not that rare, so one filters first:
#
# 1. **Temperature** $T$: the logits are divided by it, and softmax makes probabilities of them.
# 2. **Top-k**: the $k$ likeliest tokens of each sentence are left (`top_k` is at most the size of the vocabulary, which leaves
#    all). What is left is divided by its sum.
# 3. **Top-p**, or nucleus sampling ([@holtzman2020]): the smallest number of the likeliest tokens whose probabilities
#    together reach $p$. The one that crosses $p$ belongs to them, so at least one is left (`top_p` of 1 or more leaves all).
#    What is left is divided by its sum again.
# 4. **The token**: lay the probabilities side by side on the line from 0 to 1, in the order of the vocabulary. A uniform
#    random number $u$, at least 0 and less than 1, falls into one of them: the first at which the running sum is larger
#    than $u$.
#
# Random numbers come from outside, so that your answer can be checked. No two tokens of a sentence are equally likely.

# %% exercise="sample_token"
def sample_token(
    logits: Tensor, temperature: float, top_k: int, top_p: float, u: Tensor
) -> tuple[Tensor, Tensor]:
    """Sample the next token of each sentence from what temperature, top-k and top-p leave.

    logits: (batch, vocab_size)   u: (batch,), a random number for each sentence
    returns the filtered probabilities, (batch, vocab_size), 0 for what was taken out, each row
    with sum 1; and the tokens, (batch,), whole numbers
    """
    ...  # solution

# %% check="sample_token"
check("sample_token", sample_token)

# %% [markdown]
# **Use it.** The same sentence five times, written by your sampler at three temperatures. At which of them does the model
# begin to invent numbers, and what does top-p do about it?

# %%
if solved("sample_token"):
    model, german, english, unseen = translator()
    generator = torch.Generator().manual_seed(0)

    def write(source, temperature, top_p):
        next_logits, tokens = logits_after([source] * 5), torch.ones(5, 1).long()
        for _ in range(16):
            u = torch.rand(5, generator=generator)
            _, token = sample_token(next_logits(tokens), temperature, len(english), top_p, u)
            tokens = torch.cat([tokens, token[:, None]], dim=1)
        texts = [row[1:].tolist() for row in tokens]
        return [english.decode(text[: text.index(2)] if 2 in text else text) for text in texts]

    print(unseen[3].source)
    for temperature, top_p in ((0.5, 1.0), (1.0, 1.0), (2.0, 1.0), (2.0, 0.9)):
        texts = write(unseen[3].source, temperature, top_p)
        print(f"  T = {temperature}, p = {top_p}: {' | '.join(texts)}")

# %% [markdown]
# ## 4 · BLEU, by hand
#
# BLEU ([@papineni2002]) asks how many runs of words (**n-grams**) a corpus of translations shares with its references, one
# reference for each here. The sentences are lists of words already: nothing is to be cut up.
#
# 1. The **precision** $p_n$, for $n$ from 1 to `max_n`: which share of all the translations' runs of $n$ words stands in the
#    reference of *their* sentence. A run counts at most as often as that reference has it (**clipping**). Matches and
#    totals are added up over all sentences of the corpus before they are divided. Where there is no run of $n$ words at all,
#    $p_n$ is 0.
# 2. The **brevity penalty**: with $c$ words in all the translations and $r$ in all the references, it is 1 if $c \ge r$, else
#    $e^{1 - r/c}$ (and 0 if there is no word at all).
# 3. The **score** is 100 times the brevity penalty times the geometric mean of the precisions,
#    $\exp\bigl(\frac{1}{n_{\max}} \sum_n \ln p_n\bigr)$. If one of the precisions is 0, so is the score.
#
# A translation may be empty, or shorter than $n$.

# %% exercise="bleu"
def bleu(
    hypotheses: list[list[str]], references: list[list[str]], max_n: int
) -> tuple[Tensor, float, float]:
    """BLEU of a corpus, and what it is made of.

    hypotheses, references: a list of words for each sentence, as many of the one as of the
    other
    returns the precisions, (max_n,), from 0 to 1; the brevity penalty, a number; and the score
    of 100, a number
    """
    ...  # solution

# %% check="bleu"
check("bleu", bleu)

# %% [markdown]
# **Use it.** The translator's 200 lists, scored by you and by `sacrebleu`, the field's own program. Then the score of
# translations that lack their last word, and of some that say their words in the reverse order. Guess both.

# %%
if solved("bleu") and solved("greedy_decode"):
    from attncourse import metrics

    references = [pair.target for pair in unseen]

    def cut(text):
        return text.replace(",", " ,").split()

    shorter = [text.rsplit(" ", 1)[0] for text in references]
    backwards = [" ".join(reversed(text.split())) for text in references]
    cut_references = [cut(text) for text in references]
    systems = {"greedy": greedy, "without the last word": shorter, "backwards": backwards}
    for name, texts in systems.items():
        precisions, brevity, score = bleu([cut(text) for text in texts], cut_references, 4)
        theirs = metrics.bleu(texts, references).score
        rounded = [round(p, 2) for p in precisions.tolist()]
        print(f"{name:>22}: you {score:.1f}, sacrebleu {theirs:.1f}; "
              f"penalty {brevity:.2f}, precisions {rounded}")
    print("(Where no run of four matches, sacrebleu puts a small number in place of 0.)")

# %% [markdown]
# ## 5 · Read a result like a reviewer
#
# From a report: "We trained our encoder–decoder on Multi30k, German to English. A joint vocabulary of 10,000 subword tokens was
# learned from *all* the sentences of the data set. We evaluated on test2016 after every epoch and report *the best epoch*:
# **39.4 BLEU**, computed with our own script on lower-cased, tokenised output. This improves on the 36.2 of [previous
# work], which used sacreBLEU, cased, 13a." (Report and numbers are made up.)
#
# Besides the single run without an interval, name the **three** things that make the comparison unfair. Say for each in which direction it moves the number and why, and
# what the authors should have done. One of the three is likely to matter least: which, and why do we forbid it all the same?
# Six to ten sentences. (4 points)

# %% [markdown] written="read-like-a-reviewer" points=4 minutes=15 difficulty=2
# ### BEGIN SOLUTION
# **Mark scheme.** One point for each of 1–3, which needs the direction with its reason *and* the remedy (half a point for a fault
# without one of these), and one for 4.
#
# 1. *Chosen on the test set.* The maximum over epochs of a noisy score lies above what any one of them would get on new data, so
#    the number is too high. Choose the epoch on the validation pairs, and use the test set once.
# 2. *Another measure.* Lower-casing makes pairs of words equal that were not, so it can only raise the number of matches; another
#    tokenisation changes what counts as a word, in either direction (splitting off punctuation creates easy matches). The two
#    numbers are not of one scale. Use sacreBLEU on plain, cased text, and print its signature. (Direction "up" for the
#    case and "either" for the tokenisation, or "up, as a rule" with a reason.)
# 3. *Vocabulary from the test set.* Words that occur in the test set alone get tokens of their own or longer ones, so the test
#    is cut better than other text will be: as a rule too high. Learn the merges on the training split and apply them to the
#    others. (Who argues that a token from the test set alone has an embedding that was never trained, so that the number may
#    even suffer, has the point.)
# 4. The vocabulary is likely to matter least: a thousand test captions among 31,000 hardly change which pairs are frequent. It is
#    forbidden because nobody can tell from the number how much it did matter, because it grows with small data and odd
#    domains, and because what has to be argued about case by case will sooner or later be argued wrongly. (Any one of the
#    reasons. Another choice of "least" earns the point only with a reason of the same strength.)
# ### END SOLUTION

# %% [markdown]
# ## Extension: better, or only luckier?
#
# This one is worth extra credit, and nothing is lost by leaving it out.
#
# Two systems have translated the same test set. Would the better one also be better on another test set of the kind? The
# **paired bootstrap** ([@koehn2004]) makes other test sets out of this one: it samples sentences from it with replacement, as
# many as there are, scores *both* systems on the same sample, and does so many times. Here the measure is a plain one, of which
# BLEU's precisions are made: all matches over all totals, times 100.

# %% exercise="paired_bootstrap"
def paired_bootstrap(
    ours: Tensor, theirs: Tensor, draws: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Whether one system is better than another, with its uncertainty.

    ours, theirs: (n_sentences, 2), of each sentence the matches and the total, above 0, of the
    one and the other system
    draws: (n_draws, n_sentences), whole numbers: which sentences each resampled test set holds
    returns four numbers: ours less theirs on the test set itself, in scores of 100; the 2.5 %
    and the 97.5 % quantile of that difference over the resampled test sets; and the share of
    those on which ours has the higher score
    """
    ...  # solution

# %% check="paired_bootstrap"
check("paired_bootstrap", paired_bootstrap)

# %% [markdown]
# **Use it.** Two systems to hold against greedy decoding. One always says "one". The other is greedy decoding with the
# mistakes of the first hundred sentences mended, and with the last word lost in every twentieth. Guess both intervals.

# %%
if solved("paired_bootstrap") and solved("greedy_decode"):
    def counts(texts):
        rows = []
        for text, pair in zip(texts, unseen, strict=True):
            said, true = Counter(text.split()), Counter(pair.target.split())
            rows.append([(said & true).total(), max(said.total(), true.total())])
        return torch.tensor(rows).float()

    other = [pair.target if i < 100 else greedy[i] for i, pair in enumerate(unseen)]
    other = [text.rsplit(" ", 1)[0] if i % 20 == 0 else text for i, text in enumerate(other)]
    resamples = torch.randint(200, (2000, 200), generator=torch.Generator().manual_seed(0))
    for name, texts in (('always "one"', ["one"] * 200), ("the other", other)):
        found, low, high, share = paired_bootstrap(counts(greedy), counts(texts), resamples)
        print(f"greedy against {name}: {found:+.1f}, "
              f"95 % of resamples in [{low:+.1f}, {high:+.1f}], better on {share:.0%}")
