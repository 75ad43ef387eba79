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
# In this assignment you build three ways to write a translation with a model like that of [lecture @writing](@writing), and
# BLEU, the usual score of translations. At the end you read two results: one as a reviewer, one to find out why a model fails.
# Plan about two and a half hours, and 20 minutes more for the extension.
#
# Each exercise has a check below it. Your points come from a check on other numbers and other sizes. The cell after it
# *uses* what you wrote. It waits until the check gives all points, takes seconds, and is not graded.
#
# Functions return new tensors and lists: an answer that changes its arguments in place loses a point.
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
# The cells that use your answers need a model. The first of these cells trains a small translator of German number words, in
# about ten seconds, and keeps it. You know the training loop from lecture @training.

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


def known_lists() -> list[str]:
    """The English lists that the translator is trained on."""
    from attncourse.data import number_words

    pairs = number_words("de", "en", train=4000, test=200, max_items=2, dates=0)
    return [pair.target for pair in pairs.train]


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
# The model is passed to you as a function: `next_logits(tokens)` takes everything written so far, shape `(n_sentences, t)` with
# `bos` in the first column. It returns the logits of the next token of each sentence, shape `(n_sentences, vocab_size)`.
#
# * It remembers nothing between two calls: give it all tokens each time.
# * Give it all sentences of the batch each time, those that have ended included, and ignore its logits for these.
# * At each step take the most likely token, whichever it is. No token is forbidden to the model.
# * Only `eos` ends a sentence; a `pad` that the model chooses is a token like any other. After its `eos` a row holds `pad`.
# * Do not call the model again once all sentences have ended, or once there are `max_length` tokens (not counting `bos`).
#
# *An example.* `pad` is 0, `eos` is 2, `max_length` is 5. The model chooses 7, 2 for one sentence and 5, 5, 2 for another. Three calls
# are made, and the rows are `[7, 2, 0, 0, 0]` and `[5, 5, 2, 0, 0]`.

# %% exercise="greedy_decode"
def greedy_decode(
    next_logits: Callable[[Tensor], Tensor],
    n_sentences: int,
    bos: int,
    eos: int,
    pad: int,
    max_length: int,
) -> Tensor:
    """Write a sentence in each row, token by token, always the most likely one.

    returns whole numbers, (n_sentences, max_length): without bos, with each sentence's eos, and
    pad after it
    """
    ...  # solution

# %% check="greedy_decode"
check("greedy_decode", greedy_decode)

# %% [markdown]
# **Use it.** Translate 200 lists that the model has never seen. (The first run trains the model: about ten seconds.) *How many
# of the 200 will be right to the last letter?* Then read the mistakes: is a whole number wrong, or a part of it?

# %%
if solved("greedy_decode"):
    model, german, english, unseen = translator()
    sources = [pair.source for pair in unseen]
    written = greedy_decode(
        logits_after(sources), len(sources), bos=1, eos=2, pad=0, max_length=24
    )
    greedy = [english.decode(row.tolist()) for row in written]
    right = sum(text == pair.target for pair, text in zip(unseen, greedy, strict=True))
    print(f"{right} of {len(unseen)} unseen lists are right to the last letter; the others:")
    for pair, text in zip(unseen, greedy, strict=True):
        if text != pair.target:
            print(f"    right: {pair.target}\n  written: {text}")

# %% [markdown]
# <details><summary>What to see</summary>
#
# About 190 of the 200 are right. In most mistakes all but one part of one number is right: a part is added ("five hundred
# *and five*"), left out or replaced by another. Now and then the model repeats itself until `max_length`.
# Greedy search takes the most likely token and cannot take it back.</details>

# %% [markdown]
# ## 2 · Beam search: several hypotheses at once
#
# Now you translate one sentence and keep several hypotheses of it. `next_log_p(tokens)` takes hypotheses of equal length, shape
# `(n_hypotheses, t)`, each with `bos` in front. It returns the *log-probabilities* of their next tokens, shape
# `(n_hypotheses, vocab_size)`.
#
# Begin with one open hypothesis: `bos` alone, with the total 0. In each round:
#
# 1. Continue every open hypothesis with every token. A continuation's total is the old total plus the token's log-probability.
# 2. Keep the `n_beams` (the **beam width**) continuations with the largest totals, of all open hypotheses together. The length
#    penalty plays no part here.
# 3. Put aside those of the `n_beams` that end in `eos` ([@sutskever2014], section 3.2). The others are the open hypotheses of the
#    next round; nothing takes the places of the ended ones in this round.
#
# Stop when none is open, or after `max_length` rounds. Then *all* hypotheses that were put aside in any round compete with those
# that are still open. The largest score wins:
#
# $$\text{score} = \frac{\text{total}}{\bigl((5 + n) / 6\bigr)^{\alpha}}$$
#
# Here $n$ is the number of tokens without `bos` (an `eos` counts) and $\alpha$ is `length_penalty` ([@wu2016], section 7).
# Totals are negative, no two totals are equal, and the vocabulary is larger than `n_beams`.
#
# *An example*, with the sentences of [@fig:beam-search] in the lecture (a full stop stands for `eos`) and `n_beams = 2`. Round 1 keeps
# "a" (0.5) and "two" (0.4). Round 2 keeps "two dogs." (0.22), which is put aside, and "a dog" (0.2), the only open one now. ("A cat"
# is third and falls out.) Round 3 keeps the best two continuations of "a dog": "a dog runs." (0.12) and "a dog sits." (0.08). None is open
# any more, and three hypotheses compete. With $\alpha = 0$ "two dogs." wins. (These are probabilities; totals are their logarithms.)

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
# **Use it.** Write number words on the keypad of an old telephone. Eight keys stand for three or four letters each, and one key
# for the space, the comma and the hyphen. You press a key once for each letter, so "one" and "nod" are the same three keys.
# Which letters were meant? A small language model says how likely each letter is after the last one or two letters; it has
# counted them in 4,000 lists. Your beam search looks for the most likely text for the keys.
#
# *How many of 60 lists will a beam of width 1 read correctly, and how many one of width 4?* The output counts two kinds of failure. Where
# the *right* text has the higher total, the search missed it: a search error. Where the *wrong* text has the higher total,
# the model prefers it: a model error. Which kind does a wider beam fix, and which kind does the second letter of context
# fix?

# %%
if solved("beam_search"):
    *_, unseen = translator()
    keys = ["abc", "def", "ghi", "jkl", "mno", "pqrs", "tuv", "wxyz", " ,-"]
    letters = "".join(keys)                                      # then <bos> and <eos>
    key_of = torch.tensor([k for k, on_it in enumerate(keys) for _ in on_it] + [-2, -1])
    n_tokens, bos, eos = len(key_of), len(letters), len(letters) + 1

    def letter_model(n_context):
        """Log-probabilities of a letter after the last n_context tokens, from counts."""
        counts = torch.full((n_tokens,) * (n_context + 1), 0.01)
        for text in known_lists():
            tokens = [bos] * n_context + [letters.index(letter) for letter in text] + [eos]
            for i in range(n_context, len(tokens)):
                counts[tuple(tokens[i - n_context : i + 1])] += 1
        return (counts / counts.sum(dim=-1, keepdim=True)).log()

    def pressed(log_p, wanted):
        """The model of one text: `wanted` says which key was pressed at each step."""
        n_context = log_p.ndim - 1

        def next_log_p(tokens):
            start = torch.full((len(tokens), n_context - 1), bos)
            context = torch.cat([start, tokens], dim=1)[:, -n_context:]
            other_key = key_of != wanted[tokens.shape[1] - 1]
            return log_p[tuple(context.T)] - 100.0 * other_key   # as good as forbidden
        return next_log_p

    for n_context in (1, 2):
        log_p = letter_model(n_context)
        for n_beams in (1, 2, 4, 8):
            right = missed = 0
            for pair in unseen[:60]:
                tokens = torch.tensor([letters.index(letter) for letter in pair.target] + [eos])
                next_log_p = pressed(log_p, key_of[tokens])
                found, total = beam_search(next_log_p, n_beams, 0.0, bos, eos, len(tokens))
                so_far = torch.cat([torch.tensor([bos]), tokens])
                steps = [next_log_p(so_far[None, : t + 1])[0, v] for t, v in enumerate(tokens)]
                right += found.tolist() == tokens.tolist()
                missed += float(sum(steps)) > float(total) + 1e-3
            context = "1 letter, " if n_context == 1 else f"{n_context} letters,"
            print(f"context of {context} width {n_beams}: {right:2} of 60 right, "
                  f"{missed:2} search errors, {60 - right - missed:2} model errors")
        read = "".join(letters[token] for token in found.tolist()[:-1])
        print(f"    the last list: {read} (right: {pair.target})")

# %% [markdown]
# <details><summary>What to see</summary>
#
# Width 1 reads a few lists, with either model: it keeps the more likely first letter, and cannot take it back when the next key
# shows that it was wrong. Nearly all of its failures are search errors, and width 4 leaves none of these. With two letters of
# context nearly all lists are right then. With one letter more than half are still wrong: most of the search errors have become
# model errors. The better search now finds the most likely text, but "ond" is more likely than "one" to a model that sees
# one letter. A wider beam cannot fix these; the second letter does.</details>

# %% [markdown]
# ## 3 · Sampling: temperature, top-k, top-p
#
# A model that always takes the most likely token writes the same text each time. To **sample** is to choose a token at random, by
# its probability. Each rare token is unlikely, but all rare tokens together are not. So filter first:
#
# 1. **Temperature** $T$: divide the logits by it. The softmax of that gives the probabilities.
# 2. **Top-k**: keep the $k$ most likely tokens of each sentence, set the others to 0, and divide what is left by its sum. (`top_k` is at
#    most the size of the vocabulary, which keeps all.)
# 3. **Top-p**, or nucleus sampling ([@holtzman2020]), on the result of step 2: keep the smallest number of most likely tokens whose
#    probabilities together reach $p$. The token that crosses $p$ is kept, so at least one is kept. Divide by the sum again. (A `top_p` of 1
#    or more keeps all.)
# 4. **The token**: lay the filtered probabilities side by side on the line from 0 to 1, in the order of the *vocabulary*. The sampled
#    token is the first at which the running sum is larger than the given uniform random number $u$, $0 \le u < 1$. (In another
#    order, such as the most likely first, the same $u$ would stand for another token.)
#
# *An example.* Let the softmax give 0.05, 0.3, 0.5, 0.15, and let `top_k` be 3 and `top_p` 0.8. Step 2 leaves 0, 0.316, 0.526, 0.158. The
# largest, 0.526, does not reach 0.8; with the next, 0.842, they do. Step 3 leaves 0, 0.375, 0.625, 0. With $u = 0.3$ the token is
# number 1 (counted from 0), with $u = 0.4$ it is number 2.
#
# The random numbers are given, so that your answer can be checked. No two tokens of a sentence are equally likely. Rounding may
# move a running sum by its last digit, at the end just below 1. The check keeps $p$ and $u$ away from all such edges.

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
# **Use it.** Here are two tests of a sampler. First: it must draw each text as often as the model says. Your function writes
# one list a thousand times, at $T = 1$. Compare the share of each text with its probability under the model: they should
# agree within about 0.03.
#
# Second: let 25 samples *vote* on each of 40 lists. *At $T = 1.5$, will the most frequent text be wrong as often as a single
# sample?* (The vote is minimum Bayes risk decoding with exact match as the measure. **Self-consistency**,
# [@wang2022consistency], votes in this way on the final answers of sampled reasoning paths.) Look for settings where single samples fail and the vote does not. What does top-p change?

# %%
if solved("sample_token"):
    model, german, english, unseen = translator()
    generator = torch.Generator().manual_seed(0)

    def write(sources, temperature, top_p):
        """A sampled text for each source, and its probability under the model at T = 1."""
        next_logits, tokens = logits_after(sources), torch.ones(len(sources), 1).long()
        total, open_ = torch.zeros(len(sources)), torch.ones(len(sources), dtype=torch.bool)
        while open_.any() and tokens.shape[1] < 24:
            logits, u = next_logits(tokens), torch.rand(len(sources), generator=generator)
            _, token = sample_token(logits, temperature, len(english), top_p, u)
            log_p = logits.log_softmax(dim=-1).gather(1, token[:, None])[:, 0]
            total, open_ = total + log_p * open_, open_ & (token != 2)
            tokens = torch.cat([tokens, token[:, None]], dim=1)
        texts = [row[1:].tolist() for row in tokens]
        texts = [text[: text.index(2)] if 2 in text else text for text in texts]
        return [english.decode(text) for text in texts], total.exp().tolist()

    hard = next(pair for pair in unseen if pair.source == "achtunddreißig, fünfhundert")
    texts, p_of_text = write([hard.source] * 1000, 1.0, 1.0)
    says = dict(zip(texts, p_of_text, strict=True))
    print(f"{hard.source}, written a thousand times:")
    for text, times in Counter(texts).most_common(4):
        print(f"  drawn {times / 1000:.3f}, the model says {says[text]:.3f}: {text}")
    asked = unseen[:40]
    for temperature, top_p in ((0.5, 1.0), (1.0, 1.0), (1.5, 1.0), (2.0, 1.0), (2.0, 0.9)):
        texts, _ = write([pair.source for pair in asked] * 25, temperature, top_p)
        single = sum(text == pair.target for text, pair in zip(texts, asked * 25, strict=True))
        by_list = [texts[i :: len(asked)] for i in range(len(asked))]
        votes = [Counter(samples).most_common(1)[0][0] for samples in by_list]
        voted = sum(text == pair.target for text, pair in zip(votes, asked, strict=True))
        print(f"  T = {temperature}, p = {top_p}: right {single / 1000:4.0%} of the samples, "
              f"{voted / len(asked):4.0%} of the votes of 25")

# %% [markdown]
# <details><summary>What to see</summary>
#
# The shares agree with the probabilities. The first test also shows a model error: the most likely text is wrong, so no vote can
# fix this list. At $T = 1.5$ more than a quarter of the samples are wrong, but hardly any vote is: wrong samples differ from
# each other, and the right text comes again and again. At $T = 2$ the vote begins to fail as well. Top-p takes the tail away,
# which helps the single samples most.</details>

# %% [markdown]
# ## 4 · BLEU, by hand
#
# BLEU ([@papineni2002]) measures what share of the runs of words (**n-grams**) of a corpus of translations also occurs in its references.
# Each sentence has one reference, and each sentence is already a list of words.
#
# 1. The **precision** $p_n$, for $n$ from 1 to `max_n`, is the share of all runs of $n$ words in the translations that also stand in
#    the reference of *the same* sentence. A run counts at most as often as that reference has it (**clipping**). First add up the
#    matches and the totals over all sentences of the corpus, then divide. Where the corpus has no run of $n$ words, $p_n$ is 0.
# 2. The **brevity penalty**, with $c$ words in all the translations and $r$ in all the references, is 1 if $c \ge r$, and
#    $\exp(1 - r/c)$ otherwise. With $c = 0$ it is 0.
# 3. The **score** is 100 times the brevity penalty times the geometric mean of the precisions,
#    $\exp\bigl(\frac{1}{n_{\max}} \sum_n \ln p_n\bigr)$. If one of the precisions is 0, so is the score.
#
# A translation may be empty, or shorter than $n$ words.
#
# *An example to check by hand*, with `max_n = 2`: the translation *the cat the sat* and the reference *the cat sat on it*. "the" counts
# once, so $p_1 = 3/4$; of three runs of two words *the cat* alone is found, so $p_2 = 1/3$. The penalty is $\exp(1 - 5/4) = 0.779$, and the score is
# $100 \cdot 0.779 \cdot \sqrt{1/4} = 38.9$.

# %% exercise="bleu"
def bleu(
    hypotheses: list[list[str]], references: list[list[str]], max_n: int
) -> tuple[Tensor, float, float]:
    """BLEU of a corpus, and what it is made of.

    hypotheses, references: lists of equal length, for each sentence a list of words
    returns the precisions, (max_n,), from 0 to 1; the brevity penalty, a number; and the score,
    a number from 0 to 100
    """
    ...  # solution

# %% check="bleu"
check("bleu", bleu)

# %% [markdown]
# **Use it.** Your function and `sacrebleu`, the field's standard program, score the translator's 200 lists. Then both score two
# damaged copies of the references: one lacks the last word of each list, the other has the words in reverse order. *Guess
# both scores.* Which copy do the precisions notice? Which copy does only the brevity penalty notice?

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
    print("(Where no run of n words matches, sacrebleu puts a small number in place of 0.)")

# %% [markdown]
# <details><summary>What to see</summary>
#
# Without the last word all precisions are 1: every run that is there is right. Only the brevity penalty notices the loss, and
# takes off a quarter. Backwards, all words are right and none is missing, so $p_1$ and the penalty are 1. Only the longer
# runs notice the order: $p_3$ and $p_4$ are 0, and so is the score.</details>

# %% [markdown]
# ## 5 · Read a result like a reviewer
#
# From a report: "We trained our encoder–decoder on Multi30k, German to English. A joint vocabulary of 10,000 subword tokens was
# learned from all the sentences of the data set. We evaluated on test2016 after every epoch and report the best epoch:
# **39.4 BLEU**, computed with our own script on lower-cased, tokenised output. This improves on the 36.2 of [previous
# work], which used sacreBLEU, cased, 13a." (Report and numbers are made up.)
#
# One fault is given to you: a single run, without an interval. Name the **three** others that make the comparison unfair. (Own
# script, lower-casing and tokenisation count as one.) For each, say in which direction it moves the number and why, and what the authors should have done. One of the three probably matters least:
# say which, and why it is forbidden all the same. Write six to ten sentences. (4 points: one for each fault with direction, reason and
# remedy, one for the last question.)

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
# ## 6 · Find out why a model fails
#
# A model reads telephone numbers as words ("null, sieben, neun, …") and writes their digits. Each position has a *learned* vector
# of its own. To save memory, its makers left numbers of 12 or more digits out of the training set. They trained for 2,000 steps,
# then counted wrong digits on the validation set. (The table is made up.)
#
# | digits in the number | numbers seen in training | in how many of the 2,000 steps | wrong digits after a true prefix | after its own prefix |
# |---|---|---|---|---|
# | up to 6 | 30,000 | 1,100 | 1 % | 1 % |
# | 7 to 9 | 26,000 | 860 | 2 % | 3 % |
# | 10 or 11 | 900 | 40 | 14 % | 17 % |
# | 12 or more | 0 | 0 | 45 % | 48 % |
#
# A colleague says: "Long numbers go wrong because of exposure bias. One wrong digit spoils the rest."
#
# * **(a)** Which columns speak against the colleague, and how much of the wrong digits can exposure bias explain at most? Name an
#   experiment that measures whether a wrong digit in the prefix spoils the rest, and its control.
# * **(b)** Add up the column of steps. What does it tell you about the batches? Then name two suspects for the last two rows, one of
#   them from this column, and give a remedy for each. For each remedy *alone*, say what it should do to the row "10 or 11", and what
#   to the row "12 or more".
# * **(c)** A second colleague says: "The missing long numbers are not the reason. The vectors of the positions from the 12th on were never
#   trained, and this alone explains the last row." Name a count or an experiment that tells this from a lack of long numbers. Last:
#   which conditions do you train for (b), and with how many seeds?
#
# Write eight to twelve sentences. (4 points: one for (a), two for (b), one for (c).)

# %% [markdown] written="find-the-cause" points=4 minutes=15 difficulty=2
# ### BEGIN SOLUTION
# **Mark scheme.** One point for (a), one for each suspect with remedy *and* prediction in (b), one for (c); half a point where one
# of the parts is missing.
#
# * **(a)** After a true prefix the model reads no mistake of its own, and yet 14 % and 45 % of the digits are wrong. Exposure bias can
#   only be in the gap between the last two columns, which is 3 points in both rows. Even the gap is an upper limit, because it also holds
#   numbers in which a digit was skipped or that ended early. The experiment: teacher forcing on the same numbers, once with the
#   true prefix and once with the model's own wrong digit in it, and compare the loss of the rest. The control: a *random* wrong digit
#   in the same place.
# * **(b1)** *Nothing to learn from*: no number of 12 or more digits was seen. Remedy: put such numbers into the training set. Alone, it
#   should help the last row, but perhaps little, because batches of like length pack these numbers into a few steps. The row "10 or 11"
#   should hardly change. (Who expects some help there, because the lengths are close, has the point.)
# * **(b2)** *Length bucketing*: the steps add up to 2,000, the number of steps, so no batch held numbers of two rows. Numbers of 10 or
#   11 digits were met in only 40 steps, and all other steps teach other lengths. Remedy: mixed batches. Alone, it should help the row
#   "10 or 11". The last row should hardly change, because mixed batches hold no number of 12 digits either. (Who names another suspect
#   here needs a remedy and a prediction for both rows, and half a point goes with the sum of the steps.)
# * **(c)** A count: wrong digits of the long numbers by position, after a true prefix. If the vectors are to blame, the first 11 digits
#   are mostly right and the errors begin at the 12th; if the model lacks long numbers, it may go wrong before, for instance at the end
#   of what it takes for a number. An experiment: train on the same short numbers, but begin each at a random position, so that all
#   vectors are trained and no long number is seen. If the last row gets much better, the second colleague is right. (One of these,
#   with what each explanation predicts: half a point.) The conditions for (b) are all four: neither remedy, each alone, both, because
#   the two may interact, each with at least three seeds and the same number of steps. Restored numbers must not be counted in
#   validation. (Half a point for all four conditions with the reason, and seeds.)
# ### END SOLUTION

# %% [markdown]
# ## Extension: better, or only luckier?
#
# This exercise gives extra credit; you lose nothing by leaving it out.
#
# Two systems have translated the same test set. Would the better one also be better on another test set of the same kind? The
# **paired bootstrap** ([@koehn2004]) makes other test sets out of this one. It samples as many sentences as there are, with replacement,
# scores *both* systems on the same sample, and does so many times. Here the score is 100 times all matches over all totals, each
# summed over the sentences of the set first: a precision, as in BLEU.

# %% exercise="paired_bootstrap"
def paired_bootstrap(
    ours: Tensor, theirs: Tensor, draws: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Whether one system is better than another, with its uncertainty.

    ours, theirs: (n_sentences, 2), for each sentence the matches and the total (above 0)
    draws: (n_draws, n_sentences), whole numbers: which sentences each resampled test set holds
    returns four numbers: the score of ours minus that of theirs on the test set itself; the
    2.5 % and the 97.5 % quantile of that difference over the resampled test sets, as
    torch.quantile computes them; and the share of these on which ours has the higher score (a
    tie is not higher)
    """
    ...  # solution

# %% check="paired_bootstrap"
check("paired_bootstrap", paired_bootstrap)

# %% [markdown]
# **Use it.** Compare greedy decoding with two copies of its texts. In the first, every fifth text has lost its last word. In
# the second, the mistakes of the first hundred texts are fixed, and then every twentieth text has lost its last word.
# *Which of the two intervals will contain zero?* For that one, say in a sentence what you may report, and what would make
# the interval narrower.

# %%
if solved("paired_bootstrap") and solved("greedy_decode"):
    def counts(texts):
        rows = []
        for text, pair in zip(texts, unseen, strict=True):
            said, true = Counter(text.split()), Counter(pair.target.split())
            rows.append([(said & true).total(), max(said.total(), true.total())])
        return torch.tensor(rows).float()

    def without_last_words(texts, every):
        return [text.rsplit(" ", 1)[0] if i % every == 0 else text
                for i, text in enumerate(texts)]

    fixed = [pair.target if i < 100 else greedy[i] for i, pair in enumerate(unseen)]
    copies = {"every fifth cut": without_last_words(greedy, 5),
              "fixed, every twentieth cut": without_last_words(fixed, 20)}
    resamples = torch.randint(200, (2000, 200), generator=torch.Generator().manual_seed(0))
    for name, texts in copies.items():
        found, low, high, share = paired_bootstrap(counts(greedy), counts(texts), resamples)
        print(f"greedy against {name}: {found:+.1f}, "
              f"95 % of resamples in [{low:+.1f}, {high:+.1f}], better on {share:.0%}")

# %% [markdown]
# <details><summary>What to see</summary>
#
# The second interval contains zero. You may report the difference with its interval, and that these 200 sentences cannot tell
# the two systems apart. You may not report that one is better, nor that they are equally good. More sentences make the
# interval narrower: four times as many make it about half as wide. The first interval is far from zero.</details>
