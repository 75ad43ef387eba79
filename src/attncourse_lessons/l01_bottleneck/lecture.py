# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3 (ipykernel)
#     language: python
#     name: python3
# ---

# %% [markdown] teaches="language modelling and its objective"
# # Lecture @bottleneck · Language models, recurrent networks, and the bottleneck of one vector
#
# *About 57 minutes, of which one is computing time. You need Python, tensors in PyTorch and the skills of [lecture
# @getting_ready](@getting_ready): shapes, masks, softmax. No language model or recurrent network is assumed.*
#
# After this lecture you can
#
# * define a **language model**, and factor the probability of a text with the **chain rule**;
# * compute **cross-entropy** and **perplexity**, and say when two perplexities may be compared;
# * build a language model by counting (**n-grams**), with a **window network**, and with a **recurrent network**, and
#   train it without leaking the target;
# * write down the **LSTM**, read the **GRU** off its picture, and explain **vanishing gradients**;
# * draw an **encoder–decoder**, and name the three troubles of carrying a text along in one vector.
#
# The rest of the course answers these three troubles. In [assignment @bottleneck](@bottleneck/assignment) you build the
# parts.
#
# ## Language models: a probability for every next token
#
# In 1951 Claude Shannon published a guessing game ([@shannon1951]). One player covers a page of a book. The other
# guesses the text letter by letter, and is told the right letter after each guess. Try it with words: what comes after
# *Return the number*? You probably said *of*.
#
# A single guess tells us little, so let the player give a probability to every possible word. The player is now a
# **language model**: given the beginning $w_1, \dots, w_t$ of a text, it returns a probability distribution over the
# next **token** (for now, the next word), $p(w_{t+1} \mid w_1, \dots, w_t)$. By the **chain rule**, these distributions
# also give the probability of a whole text:
#
# $$p(w_1, \dots, w_n) = \prod_{t=1}^{n-1} p(w_{t+1} \mid w_1, \dots, w_t)$$
#
# Here $w_1$ is a mark for the beginning. It is given and never predicted. *Return the number* has three factors: how
# likely *Return* is after the mark, *the* after *Return*, and *number* after *Return the*. If these are ½, ½ and ⅒, the
# probability that a text begins with *Return the number* is 1/40.
#
# The chain rule also says how to write: sample the next token, append it, and ask again. A model that writes in this
# way is **autoregressive**.
#
# The models of this lecture differ in what they keep of $w_1, \dots, w_t$. Some keep the last few tokens, and others
# keep one vector of fixed size.

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
import os
import time
from functools import partial
from itertools import islice
from statistics import mean

import torch
from torch import nn
from torch.nn.functional import cross_entropy

from attncourse.attention import attend
from attncourse.data import BOS, EOS, Tokenizer, docstrings, encode_texts, text_batches
from attncourse.data.recall import letters_with_digits
from attncourse.decoding import greedy
from attncourse.metrics import perplexity, token_loss
from attncourse.ngram import NGram, WindowLanguageModel
from attncourse.recurrent import RecurrentLanguageModel
from attncourse.training import descend, fit_texts
from attncourse_lessons.results import measured

torch.set_num_threads(1)  # models as small as these gain nothing from a second thread

# %% [raw] slide
# ## Language models: a probability for every next token
# *Return the number …* What comes next? (Shannon's game, 1951)
#
# A **language model** gives for $w_1, \dots, w_t$ a distribution over the next token, $p(w_{t+1} \mid w_1, \dots, w_t)$.
#
# **Chain rule:**
#
# $$p(w_1, \dots, w_n) = \prod_{t=1}^{n-1} p(w_{t+1} \mid w_1, \dots, w_t)$$
#
# It also says how to write: sample the next token, append it, ask again (**autoregressive**).

# %% [markdown]
# You already have our text: the docstrings of Python's standard library, without examples and tables. Other versions of
# Python have other docstrings, so your numbers may differ a little.

# %%
corpus = docstrings()
for name, texts in {"training set": corpus.train, "test set": corpus.test}.items():
    print(f"{name}: {len(texts):,} texts, {sum(map(len, texts)):,} characters")
print()
for text in [text for text in corpus.test if 60 < len(text) < 100][:3]:
    print(text)

# %% [raw] slide
# ## Text, sets and tokens
# - Text: the docstrings of Python's standard library.
# - **Training set**: learn. **Validation set**: choose. **Test set**: report; nothing is chosen by it. Each module is in one set only.
# - **Subword tokens**: frequent words are one token, rare words several, nothing is unknown.

# %% [markdown]
# The texts are split into three sets:
#
# * A model learns from the **training set**.
# * Choices, such as the learning rate, are made on a **validation set**. Ours is a tenth of the training texts, kept
#   apart while the learning rates were chosen.
# * The **test set** is used only for the final report. Nothing on this page was chosen with it.
#
# The training and test sets share no module. Otherwise a model could learn "Return the upper bound." and be tested on
# "Return the lower bound.", and a model that only recites would look clever.
#
# What is a token? If tokens are characters, a model must look far back to see anything. If they are words, the test set
# contains words that the model has never seen. The usual choice lies in between: **subword tokens**. A frequent word is
# one token, and a rare word is several. Byte-pair encoding finds these tokens ([lecture @training](@training)).

# %%
tokenizer = Tokenizer.train(corpus.train, size=1024)
train = encode_texts(corpus.train, tokenizer)              # lists of token ids
test = encode_texts(corpus.test, tokenizer)
n_train, n_test = (sum(len(text) - 1 for text in texts) for texts in (train, test))
print(f"{len(tokenizer)} different tokens; to predict: {n_train:,} in the training set,",
      f"{n_test:,} in the test set")
print(" | ".join(tokenizer.pieces("Return the number of bytes that remain in the buffer.")))

# %% [raw] slide
# ## Subword tokens
# {print}
#
# Each text stands between `<bos>`, which is given, and `<eos>`, which must be predicted.

# %% [raw] slide
# ## Cross-entropy and perplexity
# $$\text{cross-entropy} = -\frac1N \sum_{i=1}^{N} \ln p_i \qquad \text{perplexity} = \Bigl(\frac{1}{p_1 \, p_2 \cdots p_N}\Bigr)^{1/N}$$
#
# - cross-entropy: in **nats per token**; minimising it maximises the **likelihood** of the text
# - **perplexity** is a number of choices: 30 equally likely tokens, perplexity 30; its logarithm is the cross-entropy
#
# > **Guess first.** $p$ = 0.50, 0.02, 0.90. Which token contributes most to the loss? And if we measure in bits and raise 2 to the mean, do we get a different perplexity?

# %% [markdown] teaches="language modelling and its objective"
# Each text gets two more tokens: `<bos>` marks its beginning and is given, and `<eos>` marks its end and must be
# predicted.
#
# ## Cross-entropy and perplexity: how good is a language model?
#
# Let $p_i$ be the probability that the model gave to the $i$-th token before the token was shown. The loss is the mean
# of $-\ln p_i$ over all $N$ predicted tokens, in **nats per token**. This is the **cross-entropy** between text and
# model. A model that was always certain and right has a cross-entropy of zero. By the chain rule, the cross-entropy is
# also minus the logarithm of the whole text's probability, divided by $N$. So minimising the cross-entropy maximises
# the **likelihood** of the text.
#
# Papers also report the **perplexity**, the inverse of the *geometric mean* of the probabilities:
#
# $$\text{cross-entropy} = -\frac1N \sum_{i=1}^{N} \ln p_i \qquad\qquad
# \text{perplexity} = \Bigl(\frac{1}{p_1 \, p_2 \cdots p_N}\Bigr)^{1/N}$$ (eq:perplexity)
#
# Perplexity is a number of choices: a player who guesses among 30 equally likely tokens has a perplexity of 30. The
# natural logarithm of the perplexity is the cross-entropy, so a lower loss always means a lower perplexity.
#
# A model gave the three tokens of a text the probabilities 0.50, 0.02 and 0.90. *Guess* which of them contributes most
# to the loss, and whether the perplexity is nearest to 2, 5 or 20:

# %%
p = [0.50, 0.02, 0.90]                                     # given to the three tokens of a text
losses = [-math.log(p_i) for p_i in p]                     # in nats
print("losses", [round(loss, 2) for loss in losses])
print("cross-entropy", round(sum(losses) / 3, 2), "nats per token")
print("perplexity", round((1 / math.prod(p)) ** (1 / 3), 2))

# %% [markdown]
# The second token contributes most. A probability of zero would make the loss infinite. *Before you run the next
# cell:* if we measure in bits, $-\log_2 p$, and raise 2 to the mean, do we get a different perplexity? And what if we
# raise 2 to a mean of nats?

# %%
bits = [-math.log2(p_i) for p_i in p]
print(f"2 to the mean of the bits: {2 ** (sum(bits) / 3):.2f}")
print(f"2 to the mean of the nats: {2 ** (sum(losses) / 3):.2f}: looks better, but is wrong")

# %% tags=["hide-input"]
assert math.isclose(2 ** (sum(bits) / 3), (1 / math.prod(p)) ** (1 / 3))
assert math.isclose(perplexity(torch.full((10,), 1 / 30).log()), 30, rel_tol=1e-5)

# %% [raw] slide
# ## Bits or nats: the same perplexity, unless the two are mixed
# {print 2}
# {print}

# %% [raw] slide
# ## Check yourself: perplexity
# 1. A model gave each of a text's four tokens the probability ⅛. Loss in nats, in bits, perplexity?
# 2. The perplexity of a model that gives all 1,024 tokens the same probability?
#
# . . .
# > 1. $\ln 8 = 2.08$ nats, 3 bits, perplexity 8.
# > 2. 1,024.
#
# **Now you:** a@bottleneck, exercise 1

# %% [markdown] teaches="parametric models against tf-idf and n-grams"
# Bits give the same perplexity, because raising 2 to a power undoes a logarithm to base 2. The last printed line mixes
# two bases. For a long text, the product in [@eq:perplexity] is too small for any float, so exercise 1 asks for
# another way to compute it.
#
# > **Check yourself.** (1) A model gave each of a text's four tokens the probability ⅛. What are its loss in nats, its
# > loss in bits and its perplexity? (2) What is the perplexity of a model that gives all 1,024 tokens the same
# > probability?
# > <details><summary>Answers</summary>(1) ln 8 ≈ 2.08 nats, 3 bits, 8. (2) 1,024, on any text.</details>
#
# **Now you:** [a01](@bottleneck/assignment), exercise 1.
#
# ## n-gram models: counting with order
#
# Count how often *number* followed *the* in the training set, and divide by how often any token did. The result is an
# estimate of $p(\text{number} \mid \text{the})$. A model of such estimates is a **bigram** model: it keeps one token of
# the text so far. A trigram model keeps two, and an **n-gram model** keeps $n - 1$.
#
# *Before you run the next cell*, estimate: what share of the pairs of neighbouring tokens in the test set never occurs
# in the training set? What share of its runs of five tokens? And how much does twenty times as much text help, for
# pairs and for runs of five?

# %% [raw] slide
# ## n-gram models: counting with order
# $$p(\text{number} \mid \text{the}) \approx \frac{\text{count of “the number”}}{\text{count of “the …”}}$$
#
# A **bigram** model keeps one token of the text before, an **n-gram model** $n - 1$.
#
# > **Guess first.** What share of the pairs of neighbouring tokens in the test set was never seen in training? And of the runs of five?

# %%
def runs(texts, n):
    return [tuple(text[i : i + n]) for text in texts for i in range(len(text) - n + 1)]


new = {}
for n in (2, 3, 5):
    tested = runs(test, n)
    for part in (20, 4, 1):                                # every 20th text, every 4th, every
        seen = set(runs(train[::part], n))
        new[n, part] = sum(run not in seen for run in tested) / len(tested)
    print(f"new runs of {n}: {new[n, 20]:.0%} with a twentieth of the texts,",
          f"{new[n, 4]:.0%} with a quarter, {new[n, 1]:.0%} with all")

# %% tags=["hide-input"]
assert new[2, 1] > 0.02 and new[5, 1] > 0.5
assert new[2, 20] > 2 * new[2, 1] and new[5, 1] > 0.8 * new[5, 20], "more text: a slow remedy"

# %% [raw] slide
# ## A probability of zero is an infinite loss
# {print}
# . . .
# **Smoothing**: take a little from every count, and share it out as the model with the shorter context would.
#
# | after *Return the* | count | keeps | share |
# |---|---|---|---|
# | *number* | 2 | 1.25 | 0.42 |
# | *list* | 1 | 0.25 | 0.08 |
# | all tokens, as after *the* | | 1.50 | 0.50 |

# %% [markdown]
# The plain bigram model gives probability zero to every pair that it has never seen. One such pair makes the perplexity
# of a text infinite. Longer runs are worse, and more text helps them slowly: most runs of five are new even with twenty
# times the text.
#
# The remedy is **smoothing**: take a little from every count, and share it out as the model with the shorter context
# would. Suppose that *Return the* was followed twice by *number* and once by *list*. Take $D = 0.75$ from each of the
# two counts:
#
# | after *Return the* | count | keeps | share |
# |---|---|---|---|
# | *number* | 2 | 1.25 | 1.25 / 3 = 0.42 |
# | *list* | 1 | 0.25 | 0.25 / 3 = 0.08 |
# | all tokens, in the proportions of the bigram model after *the* | | 1.50 | 1.50 / 3 = 0.50 |
#
# Now *string*, which never followed *Return the*, gets half of what the bigram model gives it after *the*. The bigram
# model borrows from single tokens in the same way. No token is impossible, and the sum is still one.
#
# Play Shannon's game against a 5-gram model that was smoothed like this. *Write down* the five tokens that you think
# most likely after *Return the* in a docstring, with a probability for the first. Then look:

# %%
five_gram = NGram(train, order=5, vocab_size=len(tokenizer))
begun = [BOS, *tokenizer.encode("Return the")]                           # token ids
p = five_gram.distribution(begun)                                        # (vocab_size,)
for share, token in zip(*p.topk(5), strict=True):
    print(f"{tokenizer.pieces([int(token)])[0]:>8} {share:.3f}")
print(f"the least likely token {p.min():.1e}, sum {p.sum():.4f}")

# %% tags=["hide-input"]
assert torch.isclose(p.sum(), torch.tensor(1.0), atol=1e-4) and p.min() > 0

# %% [raw] slide
# ## What helps more, a longer context or more text?
# > **Guess first.** Sketch test perplexity against the order $n$, for a twentieth, a quarter and all of the text.

# %% [markdown]
# If you gave your first token a probability of 0.3 and another token comes next, the loss makes you pay for it.
#
# <details><summary><b>Going further</b>: the formula of Kneser and Ney; counting without order (tf-idf)</summary>
#
# Let c(u, w) be how often token w followed the context u, c(u) how often any token did, and T(u) how many
# <i>different</i> tokens did. Let u′ be u without its first token. Then the model is
#
# $$p(w \mid u) = \frac{\max\bigl(c(u, w) - D,\ 0\bigr)}{c(u)} + \frac{D \cdot T(u)}{c(u)}\; p(w \mid u')$$
#
# This is the interpolated form of the model of Kneser and Ney ([-@kneser1995]), which has one more trick (see
# <code>attncourse.ngram</code>). In contexts shorter than the longest, c counts the <i>different</i> tokens that came
# before, not the occurrences. <i>Francisco</i> is frequent but follows only one word, so it should get little
# probability where the context is new.
#
# Counting can also ignore the order of words. <b>tf-idf</b> ([@sparckjones1972]) weights each count of a word in a text
# by how rare the word is in other texts: by the logarithm of the number of texts divided by the number of texts with
# this word. Search engines relied on tf-idf for decades, because it finds what a text is about. But <i>return the
# number</i> and <i>number the return</i> are the same bag of words to tf-idf, so it cannot say what comes next. "Can we
# do better than tf-idf?", asks one of the decks. For this task we must.
# </details>
#
# The next figure varies the order $n$ and the amount of text. The texts come sorted by module, so they are **shuffled
# with a seed** before a part of them is taken. *Sketch the curves first:* which helps more, a longer context or more
# text?

# %% tags=["hide-input"]
record = measured("language_models")
print(record["command"], "· seeds", record["seeds"])


def perplexities(model, share="all"):
    return [run["perplexity"] for run in record["runs"]
            if (run["model"], run["share"]) == (model, share)]           # one for each seed


counted = {share: {n: perplexities(f"{n}-gram", share) for n in (1, 2, 3, 4, 5)}
           for share in ("a twentieth", "a quarter", "all")}
named = {f"{share} of the texts": line for share, line in counted.items()}
figures.seed_lines({"": named}, "order n: the model keeps n − 1 tokens",
                   "test perplexity", log_x=False, log_y=True)
#| caption: Perplexity on unseen text, by order and amount of training text. Large marks:
#|   means; dots: shuffles. With all texts a shuffle changes nothing.

# %% tags=["hide-input"]
assert record["epochs"] == 3 and record["vocab_size"] == len(tokenizer)
assert min(counted["all"][1]) > 3 * max(counted["all"][2]), "the first token is worth most"
assert min(counted["a twentieth"][5]) > 1.5 * max(counted["all"][2]), "more text beats context"
assert min(counted["all"][3]) < 1.3 * max(counted["all"][5]), "two more tokens: worth little"
assert max(counted["a quarter"][3]) < min(counted["all"][2]), "and context may beat text"
worth = {share: mean(line[2]) / mean(line[3]) for share, line in counted.items()}
assert worth["a twentieth"] < worth["a quarter"] < worth["all"] and worth["a twentieth"] < 1.25
longest = {share: mean(line[4]) / mean(line[5]) for share, line in counted.items()}
assert longest["a twentieth"] < longest["a quarter"] < longest["all"] < 1.1, "flat, but later"

# %% [raw] slide
# ## More text pushes the whole curve down
# {figure}
#
# The first token of context helps most, the second less; then the curves flatten. A second token is worth little with a twentieth of the text, and much with all of it.

# %% [markdown] erratum="perplexity without a unit"
# * **Context.** The first token of context helps most: with all the text, it divides the perplexity by seven. Then the
#   curves flatten, partly because a model cannot use a run that it has never seen. With more text, the curves flatten
#   later.
# * **Text.** More text pushes the whole curve down. A bigram model that has read all the text is far better than a
#   5-gram model that has read a twentieth of it.
# * **Both.** A second token of context is worth little with a twentieth of the text, and much with all of it.
#
# > **A common mistake: comparing perplexities of different units.** A perplexity is *per token of one vocabulary*. Two
# > perplexities can be compared only if both models predict the same tokens of the same text. The decks print
# > perplexities between 1.9 and 5.0, without a unit, for models that write encyclopedia articles. In the paper,
# > [@liu2018], they are per wordpiece. The next cell measures one model on one text in three units. The last unit,
# > **bits per character**, does not depend on the tokens, so models with different tokens can be compared in it.

# %%
log_p = torch.cat([five_gram.log_probabilities(text) for text in test])  # (n_test,)
n_characters = sum(map(len, corpus.test)) + len(corpus.test)             # <eos> counts as one
per_token = perplexity(log_p)                                            # as the library has it
bits = -log_p.sum() / math.log(2) / n_characters                         # per character
per_character = 2**bits
print(f"the 5-gram model: {per_token:.1f} per token, {per_character:.2f} per character,",
      f"{bits:.2f} bits per character")

# %% tags=["hide-input"]
assert per_token > 5 * per_character
assert math.isclose(per_token, perplexities("5-gram")[0], rel_tol=0.15), "of this text"

# %% [markdown]
# No model can predict a text better, on average, than the text is predictable. This limit is the **entropy** of the
# text: in the long run, no model's cross-entropy on new text lies below it. From people's guesses, Shannon estimated
# the entropy of printed English at 0.6 to 1.3 bits per letter. Our model's bits per character are of the same order.
# His text and alphabet were different, so no more can be said.

# %% [raw] slide
# ## A common mistake: comparing perplexities of different units
# A perplexity is *per token of this vocabulary*.
#
# {print}
#
# One model, one text, three units. Perplexities can be compared only if both models predict the same tokens of the same text; bits per character can be compared across tokenizers.

# %% [raw] slide
# ## A window network: learned vectors in place of counts
# Each token has an **embedding** $x_t$, a learned row of $E$. **Logits**: dot products with the rows of $E$ again (**weight tying**).
#
# $$h_t = \tanh\bigl([x_{t-3};\ x_{t-2};\ x_{t-1};\ x_t]\, W + b\bigr)$$
#
# $$p(\cdot \mid w_1, \dots, w_t) = \operatorname{softmax}(h_t E^\top + b_E)$$
#
# > **Guess first.** Which stores more numbers, this network or the 5-gram model?
#
# . . .
# 136,288 parameters; the 5-gram model keeps about 950,000 counts.

# %% [markdown] teaches="parametric models against tf-idf and n-grams"
# ## A window network: learned vectors in place of counts
#
# Counting has a limit that more text does not remove. In a table of counts, two tokens are the same or different, but
# never *similar*. *Return the number of bytes* teaches the table nothing about *Returns the count of characters*,
# although *number* and *count* mean nearly the same.
#
# The window network of Bengio et al. ([-@bengio2003]) replaces the counts by vectors:
#
# 1. Each token has a *learned* vector, its **embedding**: a row $x_t$ of a table $E$.
# 2. The embeddings of the last few tokens, here four, are placed side by side (the semicolons below). Zeros stand in
#    for tokens before the beginning.
# 3. One **hidden layer**, a linear map and a tanh, turns these embeddings into one vector $h_t$.
# 4. Each token of the vocabulary gets one number, its **logit**: the dot product of $h_t$ with the token's row of $E$.
#    Using $E$ twice is called **weight tying** ([lecture @transformer](@transformer)). Bengio's network had a second
#    table.
# 5. A softmax turns the logits into probabilities:
#
# $$h_t = \tanh\bigl([x_{t-3};\ x_{t-2};\ x_{t-1};\ x_t]\, W + b\bigr) \qquad\quad p(\cdot \mid w_1, \dots, w_t) =
# \operatorname{softmax}(h_t E^\top + b_E)$$
#
# The network sees no more than a 5-gram model. But it is **parametric**: gradient descent on the cross-entropy changes
# its parameters, $W$, $b$, $b_E$ and $E$. If *number* and *count* get similar vectors, what the network learns about
# one, it also learns about the other. *Guess:* which stores more numbers, this network or the 5-gram model?

# %%
window = WindowLanguageModel(len(tokenizer), order=5, d_hidden=96)
tokens = torch.tensor([begun])                                           # (batch, n)
x = window.embedding(tokens)                                             # (batch, n, d)
print("tokens", tuple(tokens.shape), " embeddings", tuple(x.shape),
      " W", tuple(window.hidden.weight.mT.shape), " logits", tuple(window(tokens).shape))
print(f"{sum(q.numel() for q in window.parameters()):,} parameters; "
      f"the 5-gram model keeps {len(five_gram):,} counts, each with its run of tokens")

# %% [markdown]
# The network is far smaller, but its context still ends after four tokens. [@fig:language-models] will compare its
# predictions with those of the other models.
#
# ## Recurrent networks: one state for the whole past
#
# Let one vector, the **hidden state** $h_t$, stand for the whole past. Each step computes a new state from the token
# that has just been read and the previous state:
#
# $$h_t = \tanh\bigl(x_t W_x + h_{t-1} W_h + b\bigr) \qquad\quad h_0 = 0$$ (eq:recurrence)
#
# This is a **recurrent neural network**, RNN ([@elman1990]; as a language model, [@mikolov2010]). The logits are
# computed from $h_t$ as before. Take a state of one number, with $w_x = 1$, $w_h = \tfrac12$ and no bias. The network
# reads a 3 and then three zeros. *Guess:* how much of the first state is left at the end?

# %%
w_x, w_h, h = 1.0, 0.5, 0.0
for x_t in (3.0, 0.0, 0.0, 0.0):
    h = math.tanh(w_x * x_t + w_h * h)
    print(f"read {x_t:.0f}, state {h:.3f}")

# %% [raw] slide
# ## Recurrent networks: one state for the whole past
# $$h_t = \tanh\bigl(x_t W_x + h_{t-1} W_h + b\bigr) \qquad\quad h_0 = 0$$
#
# {code}
#
# > **Guess first.** How much of the 3 is left after three more steps?
#
# . . .
# {print}

# %% [markdown]
# About a tenth is left. With vectors, $w_x$ and $w_h$ become matrices. The same two matrices are used at every step, so
# the number of parameters does not depend on the length of the text:

# %%
figures.unrolled_rnn(["<bos>", "Return", "the", "number", "of"])
#| caption: A recurrent neural network, unrolled. Every step uses the same three matrices.
#| label: rnn

# %% [raw] slide
# ## Unrolled: the same two matrices at every step
# {figure}
#
# **Now you:** a@bottleneck, exercise 2

# %% [raw] slide
# ## Training without a target leak
# What was computed after $w_1, \dots, w_t$ is compared with $w_{t+1}$: the same text, one step to the left.
#
# > **Guess first.** One network forgets the shift, and is asked about the token that it has just read. Which loss curve is lower, and where does it end?

# %% [markdown]
# State $h_3$ has read `<bos>` *Return the* and must predict *number*. What $h_3$ knows of *Return* has come through
# $h_2$. Every state has the same size, after three tokens or three hundred.
#
# **Now you:** [a01](@bottleneck/assignment), exercise 2: one step, for texts of several lengths. The extension
# `rnn_states` does all the steps.
#
# ## Training without a target leak: one step to the left
#
# At each position the model has read $w_1, \dots, w_t$, and its prediction is compared with $w_{t+1}$. So a batch
# consists of two tensors: the texts that are read, and the same texts one token later. One pass over the training set
# is an **epoch**.
#
# If we forget this shift, the model is asked about the token that it has just read. We train two networks that differ
# only in the shift. Their optimiser is **Adam**, which gives each parameter its own step size. *Which curve will be
# lower, and where will it end?*

# %%
def train_a_little(leak, steps=120):
    torch.manual_seed(0)
    model = RecurrentLanguageModel(len(tokenizer), d_hidden=64, cell="rnn")
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    losses = []
    batches = text_batches(train, batch_tokens=400, max_length=32, seed=0)
    for tokens_in, tokens_out in islice(batches, steps):                 # (batch, n) each
        target = tokens_in if leak else tokens_out
        loss = token_loss(model(tokens_in), target)              # cross-entropy, no padding
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return model, losses


trained, losses = train_a_little(leak=False)
leaking, leaking_losses = train_a_little(leak=True)
viz.curves({"predicts the next token": losses, "forgot to shift": leaking_losses},
           y_name="loss (nats per token)")
#| caption: Training loss (means of three steps, one seed) of a network that predicts the next
#|   token, and of one that can see its target.

# %% [raw] slide
# ## A target leak: the best loss of the day
# {figure}

# %% [markdown]
# The curve that falls to nearly zero belongs to the network that forgot to shift, because repeating the token just read
# takes no knowledge of language. This is a **target leak**. No error message reports it, but what the models write
# reveals it. The function `greedy` always picks the most likely token. *Guess* what each of them writes:

# %%
prompt, length = torch.tensor([begun]), torch.tensor([len(begun)])
written = {}
for name, model in {"next token": trained, "forgot to shift": leaking}.items():
    written[name] = greedy(model, prompt, length, max_length=6).tokens[0].tolist()
    print(f"{name:>16}: Return the | {' '.join(tokenizer.pieces(written[name]))}")

# %% tags=["hide-input"]
assert sum(leaking_losses[-10:]) < 0.25 * sum(losses[-10:])
assert len(set(written["forgot to shift"])) == 1, "what learned to repeat, repeats"

# %% [markdown]
# After so few steps neither network can write, but they fail differently. The first network goes on to other tokens,
# and more training makes it better. The second endlessly repeats the token that it has just read. Repetition alone would
# prove little, because honest models also get into loops when they always pick the most likely token. The proof is a
# loss near zero together with a text that no such loss could belong to. To find a target leak, let the model write.
# Question 2 of the assignment asks for another test.

# %% [raw] slide
# ## Let the models write, and the leak shows
# {print}
#
# **Now you:** a@bottleneck, exercise 3

# %% [markdown] teaches="recurrent networks: LSTMs are powerful"
# <details><summary><b>Going further</b>: two details of all training in this lecture</summary>
#
# Long texts are cut into pieces, and the gradient goes back only to the beginning of a piece: <b>truncated
# backpropagation through time</b>. Each piece is read as if nothing came before it, whereas tests read whole texts.
# </details>
#
# **Now you:** [a01](@bottleneck/assignment), exercise 3.
#
# ## LSTM and GRU: a state with gates
#
# The RNN replaces its whole state at each step. What it knew of the first word must survive a matrix and a tanh each
# time. The network of Hochreiter and Schmidhuber ([-@hochreiter1997]) leaves the state alone unless there is a reason
# to change it. **Gates** decide this: numbers between 0 and 1, computed from the input and the state. The forget gate
# was added a little later ([@gers2000]).
#
# Take a state $c$ of a single number. A **forget gate** $f$ says how much of the state to keep. An **input gate** $i$
# says how much of the new number to take in. The network reads 3, 7, −2, 5, and we set the gates by hand: $f = 0$ and
# $i = 1$ at the 3, and $f = 0.95$ and $i = 0$ afterwards. *Guess* the state at the end.

# %%
c = 0.0
for new, f, i in ((3.0, 0.0, 1.0), (7.0, 0.95, 0.0), (-2.0, 0.95, 0.0), (5.0, 0.95, 0.0)):
    c = f * c + i * new
    print(f"read {new:>4.0f} with f = {f}, i = {i}: state {c:.2f}")

# %% [raw] slide
# ## Gates: a state that is left alone
# {code}
#
# > **Guess first.** How much of the 3 is left?

# %% [raw] slide
# ## Most of the 3 is left
# {print}
#
# **Forget gate** $f$: how much of the state to keep. **Input gate** $i$: how much of what is new to take in.

# %% [markdown]
# Most of the 3 is left, and the later numbers have left no trace. In a network, each component of the state has its own
# gates, and the network learns when to open them.

# %% [raw] slide
# ## The LSTM in equations
# $$\begin{aligned} f &= \sigma\bigl(x_t W_f + h_{t-1} U_f + b_f\bigr) && \text{forget gate}\\ i &= \sigma\bigl(x_t W_i + h_{t-1} U_i + b_i\bigr) && \text{input gate}\\ o &= \sigma\bigl(x_t W_o + h_{t-1} U_o + b_o\bigr) && \text{output gate}\\ \tilde c &= \tanh\bigl(x_t W_c + h_{t-1} U_c + b_c\bigr) && \text{candidate}\\ c_t &= f \odot c_{t-1} + i \odot \tilde c \qquad h_t = o \odot \tanh c_t \end{aligned}$$
#
# **GRU**: an update gate $z$ does the work of $f$ and $i$, $h_t = z \odot h_{t-1} + (1 - z) \odot \tilde h$, and a reset gate $r$ decides what $\tilde h$ sees of the past.
#
# > **Guess first.** How many times the parameters of an RNN cell do they have?

# %% [markdown]
# The **LSTM** (long short-term memory) keeps such a state $c_t$, the **cell state**, beside the hidden state $h_t$.
# Read the last line first: it begins with the line of code above, for vectors. $\sigma$ is the sigmoid, and $\odot$ is
# the element-wise product. Each of the first four lines is [@eq:recurrence] with its own weights, $W$ for $W_x$ and $U$
# for $W_h$. Three of them have $\sigma$ in place of tanh. Gates and candidate are written without their index $t$.
#
# $$
# \begin{aligned}
# f &= \sigma\bigl(x_t W_f + h_{t-1} U_f + b_f\bigr) && \text{forget gate: how much to keep}\\
# i &= \sigma\bigl(x_t W_i + h_{t-1} U_i + b_i\bigr) && \text{input gate: how much to take in}\\
# o &= \sigma\bigl(x_t W_o + h_{t-1} U_o + b_o\bigr) && \text{output gate: how much to show}\\
# \tilde c &= \tanh\bigl(x_t W_c + h_{t-1} U_c + b_c\bigr) && \text{the candidate: what is new}\\
# c_t &= f \odot c_{t-1} + i \odot \tilde c \qquad\qquad h_t = o \odot \tanh c_t
# \end{aligned}
# $$
#
# The **GRU** (gated recurrent unit, [@cho2014]) has no cell state beside the hidden state, and only two gates. The
# **update gate** $z$ does the work of the LSTM's $f$ and $i$: what is not kept is replaced by the candidate,
#
# $$h_t = z \odot h_{t-1} + (1 - z) \odot \tilde h$$
#
# The **reset gate** $r$ decides how much of the past the candidate $\tilde h$ sees. In the picture, follow the blue
# state along the top of each cell: $c_t$ in the LSTM, $h_t$ in the GRU. Then read off how the GRU's candidate is
# computed.

# %%
figures.lstm_and_gru()
#| caption: The cells of an LSTM, with the states c and h, and of a GRU, with one state h.
#| label: gated-cells

# %% [raw] slide
# ## LSTM and GRU
# {figure}

# %% [markdown]
# A state of one number shows what the two gates do. The old state is 0.8 and the input is −1. The weights are
# $w = 1$ for the input and $u = 2$ for the state, and there is no bias. We set the gates by hand: $(r, z)$ is $(1, 0)$,
# then $(0, 0)$, then $(0, 0.9)$. *Guess* the sign of each new state. Then work out all three from the picture:

# %% tags=["hide-input"]
def gru_of_one_number(state, x_t, r, z):
    """One step of torch's cell, with biases that set its gates to r and z."""
    cell = nn.GRUCell(1, 1).requires_grad_(False)
    gates = torch.logit(torch.tensor([r, z]), eps=1e-6)
    cell.weight_ih[:], cell.weight_hh[:] = torch.tensor([[[0], [0], [1]], [[0], [0], [2]]])
    cell.bias_ih[:], cell.bias_hh[:] = torch.cat([gates, torch.zeros(1)]), 0
    return cell(torch.tensor([[x_t]]), torch.tensor([[state]])).item()


for r, z in ((1.0, 0.0), (0.0, 0.0), (0.0, 0.9)):
    candidate = gru_of_one_number(0.8, -1.0, r, 0.0)               # z = 0: nothing else is left
    print(f"r = {r}, z = {z}: candidate {candidate:5.2f},",
          f"new state {gru_of_one_number(0.8, -1.0, r, z):5.2f}")

# %% [markdown]
# With $r = 1$ the past outweighs the input. With $r = 0$ the candidate is computed from the input alone. With $z = 0.9$
# most of the old state stays, whatever the candidate is. The picture shows torch's GRU. In the paper of Cho et al., $r$
# acts at another place, and in some papers $z$ and $1 - z$ swap places.
#
# Here is the LSTM in code, beside torch's. *Guess* from the equations: how many times the parameters of an RNN cell
# does an LSTM cell of the same width have? And a GRU cell?

# %%
def lstm_step(x, h, c, W, U, b):
    i, f, candidate, o = (x @ W + h @ U + b).chunk(4, dim=-1)    # (batch, d) each, as in torch
    c = f.sigmoid() * c + i.sigmoid() * candidate.tanh()         # (batch, d)
    return o.sigmoid() * c.tanh(), c                             # (batch, d), (batch, d)


# %% tags=["hide-input"]
cell = nn.LSTMCell(8, 16)
x, h, c = torch.randn(4, 8), torch.randn(4, 16), torch.randn(4, 16)
bias = cell.bias_ih + cell.bias_hh                               # torch keeps two, one would do
ours = lstm_step(x, h, c, cell.weight_ih.mT, cell.weight_hh.mT, bias)
theirs = cell(x, (h, c))
same = [torch.allclose(a, b, atol=1e-6) for a, b in zip(ours, theirs, strict=True)]
print("the same h and c:", same)
for kind in (nn.RNNCell, nn.LSTMCell, nn.GRUCell):
    size = sum(parameter.numel() for parameter in kind(96, 96).parameters())
    print(f"{kind.__name__:>8}: {size:,} parameters")
assert all(same)

# %% [raw] slide
# ## Which language model predicts best?
# {print}
#
# > **Place your bets.** n-grams, a window network, RNN, LSTM, GRU: states of 96 numbers, three epochs each.

# %% [markdown] teaches="recurrent networks: LSTMs are powerful"
# An LSTM cell has four times as many parameters as an RNN cell, and a GRU cell has three times as many: each gate and
# each candidate has its own pair of matrices.
#
# **Now you:** [a01](@bottleneck/assignment), exercise 4: the GRU's step, from the picture.
#
# ## Which language model predicts best?
#
# The next figure compares n-gram models, the window network, and recurrent networks with the three kinds of cell. The
# networks have states and embeddings of 96 numbers, and each trains for three epochs. Gated cells have more parameters,
# so there is a second RNN, with 168 numbers.
#
# *Guess* where the networks lie among the n-gram models.
#
# <details><summary>How the networks train</summary>
#
# All use Adam, clipped gradients (see below) and a learning rate that rises and falls once. The highest learning rate
# was chosen on a validation set, after training on a quarter of the texts. It is 0.02, the best of 0.01, 0.02 and 0.04.
# For the second RNN it is 0.01, and 0.005 was tried, too.
# </details>

# %% tags=["hide-input"]
models = ["2-gram", "3-gram", "5-gram", "window", "RNN", "RNN, d = 168", "LSTM", "GRU"]
kinds = {model: "counting" if model.endswith("gram") else "networks" for model in models}
row = {model: f"{model}: {mean(perplexities(model)):.1f}" for model in models}
marks = {row[model]: perplexities(model)[: 1 if kinds[model] == "counting" else None]
         for model in models}
viz.strip_plot(marks, "test perplexity", {row[model]: kinds[model] for model in models})
for model in models:
    print(f"{model:>14}: {mean(perplexities(model)):.1f}", end="")
    size = record["size"].get(model)
    print(f"   keeps {size:>7,} numbers" if size else " " * 24, end="")
    quarter = perplexities(model, "a quarter")
    print(f"   with a quarter of the texts {mean(quarter):.1f}" if quarter else "")
gains = {model: 1 - mean(perplexities(model)) / mean(perplexities(model, "a quarter"))
         for model in ("5-gram", "GRU")}
print("from a quarter of the texts to all the perplexity falls by",
      ", ".join(f"{gain:.0%} ({model})" for model, gain in gains.items()))
print("GRU, a quarter of the texts:      on these texts   on the test set")
fitted = {}
for name, words in {"GRU": "three epochs", "GRU, steps as on all": "twelve epochs"}.items():
    fitted[name] = {part: mean(run[part] for run in record["fit"] if run["model"] == name)
                    for part in ("training", "test")}
    print(f"{words:>33} {fitted[name]['training']:11.1f} {fitted[name]['test']:17.1f}")
#| caption: Test perplexity of n-gram models and networks. Marks: runs (one for counting).
#|   Lines: means, also printed beside the names. The axis begins at 35.
#| label: language-models

# %% [raw] slide
# ## With this budget the 5-gram model is best; among networks gates pay
# {figure}
#
# The budget is small: three epochs, states of about 100 numbers. With much more of both, networks win. Size explains part of the differences between networks.

# %% [markdown]
# With this budget the 5-gram model is best. Among the networks of the same width, the LSTM and the GRU are far ahead of
# the RNN, and the RNN is no better than the window network.
#
# Is this due to the gates or to the size? The cell of the wider RNN has about as many parameters as the GRU's cell
# (56,784 and 55,872), and its embeddings are wider, too. Yet the wider RNN closes less than half of the gap between the
# first RNN and the GRU. The rest is probably due to the gates.
#
# The window network sees what the 5-gram model sees and does much worse. On so little text, shared vectors do not make
# up for exact counts.
#
# What would change with a larger budget?
#
# * **More text** helps both kinds: from a quarter of the texts to all, the perplexities of the 5-gram model and of the
#   GRU fall by about a third. On all the texts the GRU also takes four times as many steps. More steps alone would not
#   have helped: with the same number of steps on a quarter of the texts, the GRU gets worse (next point).
# * **More epochs** over the same text help only up to a point. With a quarter of the texts and four times the epochs,
#   the GRU **overfits**: its perplexity on the training texts halves, and its perplexity on new texts rises (last
#   printed lines).
# * **A wider network** helps, as the second RNN shows. An n-gram model of fixed order has nothing to widen.
#
# With much more of everything, the networks win. On a billion words, a Kneser–Ney 5-gram model has a perplexity of 67.6
# per *word* ([@chelba2013]), and a large LSTM that reads words letter by letter has 30.0 ([@jozefowicz2016]).
# Perplexities per word cannot be compared with ours, and it is a coincidence that our bigram model has 67.6, too.
#
# > **Check yourself.** The 5-gram model and the GRU read ten times as much text. Which model grows?
# > <details><summary>Answer</summary>The 5-gram model: most runs of five are new, so it stores more and more counts.
# > The GRU has 1,024 × 96 numbers in its table, 6 × 96 × 96 in its cell and some biases, however much it
# > reads.</details>
#
# *This is a good place for a break.*
# %% tags=["hide-input"]
assert all(0.3 < gain < 0.4 for gain in gains.values()), "four times the text: about a third"
few, many = fitted["GRU"], fitted["GRU, steps as on all"]
assert many["test"] > few["test"] + 3 and 0.45 < many["training"] / few["training"] < 0.6
cells = [kind(d, d) for kind, d in ((nn.RNNCell, 168), (nn.GRUCell, 96))]
assert [sum(q.numel() for q in cell.parameters()) for cell in cells] == [56_784, 55_872]
average = {model: mean(perplexities(model)) for model in models}
assert round(average["2-gram"], 1) == 67.6, "by chance as in Chelba et al."
assert average["5-gram"] < average["GRU"] < 0.9 * average["RNN"]
assert average["LSTM"] < 0.9 * average["RNN"] and average["window"] < 1.1 * average["RNN"]
wide, sizes = perplexities("RNN, d = 168"), record["size"]
assert sizes["RNN, d = 168"] > sizes["GRU"] and max(perplexities("GRU")) < 0.9 * min(wide)
assert average["RNN, d = 168"] > (average["RNN"] + average["GRU"]) / 2, "less than half of it"

# %% [raw] slide
# ## Trouble one: a long path
# > *The **keys** that my brother left on the small table beside the front door **are** gone.*
#
# - Words at a distance $k$ need $k$ steps to meet.
# - Going backward: $h_t = w\,h_{t-1}$ gives $\partial h_{60} / \partial h_0 = w^{60}$: 0.002 for $w = 0.9$, 304 for $w = 1.1$.
# - RNN: $\partial h_t / \partial h_{t-1} = \operatorname{diag}(1 - h_t^2)\, W_h^\top$. LSTM, gates held fixed: $\partial c_t / \partial c_{t-1} = \operatorname{diag}(f_t)$.
#
# > **Guess first.** Which of an untrained RNN, LSTM and GRU lets the gradient through from 60 steps back?

# %% [markdown] teaches="linear interaction distance, locality, vanishing gradients"
# ## Trouble one: a long path, and gradients that vanish on it
#
# *The keys that my brother left on the small table beside the front door **are** gone.* The verb must be *are* because
# of *keys*, thirteen words back. In a recurrent network, nearby words interact easily. This **locality** is a sensible
# bias. But a signal between two words at a distance $k$ needs $k$ steps, even if the words belong together. The decks
# call this **linear interaction distance**.
#
# A gradient takes the same path backwards, because training applies backpropagation to the unrolled network of
# [@fig:rnn] (**backpropagation through time**). Take a state of one number and $h_t = w\, h_{t-1}$. Then
# $\partial h_{60} / \partial h_0 = w^{60}$. This is 0.002 for $w = 0.9$, a **vanishing gradient**, and 304 for
# $w = 1.1$, an **exploding gradient** ([@hochreiter1991]; [@bengio1994]).
#
# With vectors, each factor is a matrix, the **Jacobian**. Its row $j$, column $i$ holds the derivative of the new
# state's component $j$ with respect to the old state's component $i$. Here is the Jacobian of an RNN, and that of the
# LSTM's cell state with gates and candidate held fixed:
#
# $$\frac{\partial h_t}{\partial h_{t-1}} = \operatorname{diag}\bigl(1 - h_t^2\bigr)\, W_h^\top \qquad\qquad
# \frac{\partial c_t}{\partial c_{t-1}} = \operatorname{diag}(f_t)$$ (eq:jacobians)
#
# * **RNN:** The slopes of tanh are at most 1. If the largest **singular value** of $W_h$ (the most by which it
#   stretches a vector) is below 1, the product of many such matrices must vanish. If it is above 1, the product *can*
#   explode, but need not ([@pascanu2013]).
# * **LSTM:** Over sixty steps, the gradient of each component of $c$ is multiplied by its own sixty forget gates. They
#   are at most 1, so along $c$ nothing explodes, and the gradient survives if the gates stay near 1.
#
# The next cell takes untrained networks as torch makes them, and measures the gradient that goes from the last state
# back to a token's vector, $k$ steps earlier. *Guess:* in which of the three does a gradient reach a token 60 steps
# back?

# %%
def gradient_by_distance(kind, seed, keep=0.0, grow=1.0, d=64, n=61):
    torch.manual_seed(seed)
    network = kind(d, d, batch_first=True).double()
    with torch.no_grad():
        network.weight_hh_l0 *= grow
        network.bias_ih_l0[d : 2 * d] += keep                # an LSTM's forget gate, a GRU's z
    x = torch.randn(16, n, d).double().requires_grad_()      # (batch, n, d)
    states, _ = network(x)                                   # (batch, n, d)
    (states[:, -1] * torch.randn(16, d)).sum().backward()
    sizes = x.grad.norm(dim=-1).mean(dim=0)                  # (n,)
    return {k: sizes[-1 - k].item() for k in (1, 10, 20, 30, 40, 50, 60)}


fresh = {}
for name, kind in {"RNN": nn.RNN, "LSTM": nn.LSTM, "GRU": nn.GRU}.items():
    runs = [gradient_by_distance(kind, seed) for seed in range(3)]
    fresh[name] = {k: [run[k] for run in runs] for k in runs[0]}
figures.seed_lines({"": fresh}, "steps back", "gradient that reaches the token",
                   log_x=False, log_y=True)
#| caption: Gradient that reaches a token, by its distance (logarithmic), in untrained networks.
#|   Large marks: means; dots: seeds.
#| label: vanishing-gradient

# %% [raw] slide
# ## Vanishing gradients
# {figure}
#
# - A fresh gate is half open, $\sigma(0) = \tfrac12$. One bias opens it: $\sigma(3) = 0.95$.
# - Exploding gradients are **clipped**.
#
# > **Guess first.** Turn one knob: a factor on $W_h$, or a number added to the bias of one gate. Where does the gradient vanish, and where does it explode? Does a large bias have a price?

# %% [markdown]
# In none of them. In all three networks, the gradient decays exponentially (a straight line on this axis). The gated
# networks lose the gradient as well, because a fresh gate is half open, $\sigma(0) = \tfrac12$.
#
# One change in each network mends this: a factor on the RNN's $W_h$, or a number added to the bias of the LSTM's $f$ or
# the GRU's $z$. In the next figure we turn each of these knobs and plot the gradient that reaches a token 1 step and 60
# steps back. For the LSTM, a third line shows the gradient along $c$ alone: gates and candidate read $h_{t-1}$, but
# pass no gradient back to it. *Guess:* at which end of each knob's range do the gradients vanish or explode? And does a
# large bias have a price?

# %% tags=["hide-input"]
def along_c(seed, keep, d=64, n=61):
    """The LSTM's gradients 1 and 60 steps back, if none goes through the hidden state."""
    torch.manual_seed(seed)
    network = nn.LSTM(d, d, batch_first=True).double()
    with torch.no_grad():
        network.bias_ih_l0[d : 2 * d] += keep
    x = torch.randn(16, n, d).double().requires_grad_()
    h = c = torch.zeros(16, d).double()
    weights = network.weight_ih_l0.mT, network.weight_hh_l0.mT
    for x_t in x.unbind(dim=1):
        h, c = lstm_step(x_t, h.detach(), c, *weights, network.bias_ih_l0 + network.bias_hh_l0)
    (h * torch.randn(16, d)).sum().backward()
    sizes = x.grad.norm(dim=-1).mean(dim=0)
    return {k: sizes[-1 - k].item() for k in (1, 60)}


factors, biases = (2, 2.4, 2.6, 2.8, 3, 3.5, 4), (1, 2, 3, 4, 5, 8)
gradients = {}
for seed in range(3):
    for grow in factors:
        run = gradient_by_distance(nn.RNN, seed, grow=grow)
        gradients.setdefault(("RNN", grow), []).append(run)
    for keep in biases:
        for name, kind in {"LSTM": nn.LSTM, "GRU": nn.GRU}.items():
            run = gradient_by_distance(kind, seed, keep=keep)
            gradients.setdefault((name, keep), []).append(run)
        gradients.setdefault(("LSTM along c", keep), []).append(along_c(seed, keep))


def against_knob(name, values, k):
    return {value: [run[k] for run in gradients[name, value]] for value in values}


panels, ticks = {}, {}
opened = {bias: f"{bias}\n{1 / (1 + math.exp(-bias)):.{4 if bias > 5 else 2}f}"
          for bias in biases}
for name, knob, values in (("RNN", "factor on $W_h$", factors),
                           ("LSTM", "added to the bias of f\n(below: σ of it)", biases),
                           ("GRU", "added to the bias of z\n(below: σ of it)", biases)):
    panels[f"{name}: {knob}"] = {words: against_knob(name, values, k) for words, k in
                                 (("1 step back", 1), ("60 steps back", 60))}
    if values == biases:
        ticks[f"{name}: {knob}"] = opened
    if name == "LSTM":
        panels[f"{name}: {knob}"]["60 steps back,\nalong $c$ alone"] = against_knob(
            "LSTM along c", biases, 60)
figures.turned_knobs(panels, "gradient that reaches the token", ticks)
print(f"{'knob':<15}{'1 step back':>12}{'60 steps back':>15}{'ratio':>10}")
for name, knobs in {"RNN": (2.6, 2.8, 3.5), "LSTM": (1, 3, 8), "LSTM along c": (1, 3, 8),
                    "GRU": (1, 4, 8)}.items():
    for knob in knobs:
        near, far = (mean(run[k] for run in gradients[name, knob]) for k in (1, 60))
        print(f"{name:<12} {knob:<3}{near:11.3g}{far:15.3g}{far / near:10.3g}")
ten = {0: mean(fresh["LSTM"][10]) / mean(fresh["LSTM"][1]),
       1: mean(run[10] for run in gradients["LSTM", 1]) / mean(
           run[1] for run in gradients["LSTM", 1])}
print(f"LSTM, ten steps back against one: {ten[0]:.2g} with bias 0, {ten[1]:.2g} with bias 1")
#| caption: Gradient that reaches a token 1 and 60 steps back (logarithmic), against the knob
#|   that is turned. Large marks: means; dots: seeds.
#| label: knobs

# %% tags=["hide-input"]
left = {which: [run[60] / run[1] for run in found] for which, found in gradients.items()}
for points in fresh.values():
    assert max(far / near for far, near in zip(points[60], points[1], strict=True)) < 1e-8
assert max(left["RNN", 2.4]) < 0.05 and mean(left["RNN", 2.6]) < 0.1, "too little"
assert min(left["RNN", 2.8] + left["RNN", 3]) > 0.1 and max(left["RNN", 3]) < 20, "within"
assert min(left["RNN", 3.5]) > 1e2, "too much"
assert all(0.1 < mean(left["LSTM", k]) < 10 for k in (3, 4, 5, 8)), "within, and rising"
rising = [mean(left["LSTM", k]) for k in (3, 4, 5, 8)]
assert rising == sorted(rising)
for k in (3, 8):
    along, power = left["LSTM along c", k], (1 / (1 + math.exp(-k))) ** 60
    assert 0.5 * power < min(along) and max(along) < 1.5 * power, "f to the power of 60"
assert all(max(left["LSTM along c", k]) < 1.3 for k in biases), "along c nothing explodes"
assert all(0.1 < mean(left["GRU", k]) < 10 for k in (4, 5, 8)) and mean(left["GRU", 3]) < 0.1
assert max(left["LSTM", 1]) < 1e-4 and min(left["GRU", 3]) > 0.02 and ten[1] > 5 * ten[0]
one_back = {which: mean(run[1] for run in found) for which, found in gradients.items()}
assert 300 < mean(fresh["GRU"][1]) / one_back["GRU", 8] < 900, "the price: little enters"
assert one_back["LSTM", 8] > 0.4 * mean(fresh["LSTM"][1]), "an LSTM pays less"
cell, x, h = nn.RNNCell(3, 4), torch.randn(3), torch.randn(4)
slopes = torch.diag(1 - cell(x, h) ** 2)                                             # (4, 4)
jacobian = torch.autograd.functional.jacobian(partial(cell, x), h)                   # (4, 4)
assert torch.allclose(jacobian, slopes @ cell.weight_hh, atol=1e-6), "W_h is weight_hh.mT"
torch.manual_seed(0)
carried, entries = torch.randn(1000, 64), nn.RNN(64, 64).weight_hh_l0                # (64, 64)
shrinks = (carried @ entries.mT).norm(dim=-1) / carried.norm(dim=-1)                 # (1000,)
assert abs(shrinks.mean() - 1 / math.sqrt(3)) < 0.03

# %% [raw] slide
# ## One knob in each network
# {figure}
#
# The RNN's knob passes through the right value and out on the other side. A gate's knob saturates. The GRU's price: with 8, little reaches *any* token, because $1 - z$ writes next to nothing.
#
# > **Guess first.** Does the gradient at the start decide what a network learns?

# %% [markdown]
# * **RNN:** The right factor lies between factors that are too small and too large. At a factor of 2.6, less than a tenth of
#   the gradient is left after 60 steps, and at 3.5 it has grown nearly a thousandfold. Nothing holds $W_h$ at the right
#   value while the network learns.
# * **LSTM:** A gate's knob saturates, because $f$ cannot exceed 1. Along $c$ the gradient never explodes, and after 60
#   steps about as much is left as [@eq:jacobians] says: $0.95^{60} \approx 0.05$ with a bias of 3, and nearly all
#   with 8. The whole gradient also goes through $h$ and the gates, so it is larger and unprotected: with a bias of 8 it
#   *grows* with the distance.
# * **GRU:** From a bias of 4 on, the two lines lie within a factor of ten, and at 8 they meet. But both *fall*: at 8, a
#   gradient of about 0.002 reaches a token at either distance, because the candidate is multiplied by
#   $1 - z = 1 - \sigma(8) = 0.0003$. **A gate that keeps nearly everything also writes nearly nothing.** The LSTM pays
#   less, because its input gate is not tied to its forget gate.
#
# In practice, 1 or more is added to the bias of the forget gate ([@jozefowicz2015]). For 60 steps, 1 is too little, but
# for ten it is a great help (last printed line). Exploding gradients are **clipped**: if the norm is larger than 1,
# say, the gradient is scaled down to 1.
#
# All this is before training. Does the gradient at the start decide what a network *learns*? Here is the cheapest test.
# Each text is a name, one of ten tokens, followed by $k$ tokens of noise. From its last state the network must say
# which name it read. We train six networks for 300 steps: the three as torch makes them, and each of the three with one
# change. For each network and each $k$, the learning rate is the best of three, chosen with a separate seed. *Guess:*
# which of the six succeed at $k = 20$, and which at 60?

# %% tags=["hide-input"]
long_paths = measured("long_paths")
print(long_paths["command"], "· learning rates tried:", *long_paths["rates"])
named_right = {}
for row in long_paths["found"]:
    named_right.setdefault(row["network"], {})[row["k"]] = row["right"]
panels = {"as torch makes them": {name: named_right[name] for name in ("RNN", "LSTM", "GRU")},
          "one change in each": {name.replace("W_h", "$W_h$"): line for name, line in
                                 named_right.items() if name not in ("RNN", "LSTM", "GRU")}}
figures.seed_lines(panels, "tokens of noise, k", "share named right", log_x=False, chance=0.1,
                   chance_at=30)
#| caption: How often a trained network names the token that it read k steps ago. Large marks:
#|   means; dots: seeds.
#| label: long-paths

# %% tags=["hide-input"]
for name, line in named_right.items():
    assert min(line[5]) > 0.9, "a short path: each learns it"
    if name.startswith("GRU") or name == "LSTM, bias of f + 3":
        assert all(mean(line[k]) > 0.9 for k in line), "at every distance"
assert max(named_right["LSTM"][20]) < 0.5 and max(named_right["RNN"][40]) < 0.2
assert mean(named_right["RNN, W_h × 2.8"][20]) > mean(named_right["RNN"][20]) + 0.3
assert max(named_right["RNN, W_h × 2.8"][40]) < 0.2, "a gradient that arrives is no guarantee"

assert round(min(named_right["LSTM, bias of f + 3"][60]), 1) == 0.8

# %% [raw] slide
# ## What they learn: name the first token, after k of noise
# {figure}
#
# A small gradient at the start can keep a network from learning within 300 steps; a large one does not guarantee it. The fresh GRU learns anyway: for it, not to write is to keep.

# %% [markdown] teaches="encoder and decoder, and the bottleneck between them; mean pooling as a starting point"
# Unchanged, the LSTM fails from $k = 20$ on. With 3 added to the bias of its forget gate, it learns at every distance,
# although at 60 one of three seeds reaches only 0.8. The RNN with a larger $W_h$ gets further than the unchanged RNN.
# But it fails at $k = 40$, although before training a gradient arrives even from 60 steps back. **A small gradient at the
# start can keep a network from learning within these 300 steps, but a large one does not guarantee learning.**
#
# The unchanged GRU is the surprise: its gradient is about as small as the unchanged LSTM's, yet it learns at every
# distance. A section at the end, "Going further", tests an explanation.
#
# <details><summary><b>Going further</b>: why gradients vanish and explode in these RNNs</summary>
#
# At each step, an RNN multiplies the gradient by a matrix and by the slope of tanh, which is at most 1. torch draws
# each entry of a new $W_h$ uniformly between $-1/\sqrt d$ and $1/\sqrt d$. Such a matrix shrinks a vector to about
# $1/\sqrt 3 = 0.58$ of its length, which is too little even before tanh. Times 2.8, this becomes 1.6, which the slope
# roughly undoes. Times four, it becomes 2.3, which is too much for the slope to undo. (An RNN can also start near the
# right size, with an identity matrix and a ReLU: [@le2015].) In the fresh gated networks, more is left than
# $\tfrac12^{60} \approx 10^{-18}$: about 0.61 of the gradient survives each step, because the gate is not the only path
# from state to state.
# </details>
#
# > **Check yourself.** An LSTM can open its forget gates and its input gates at the same time. What is wrong with
# > always leaving all of them open?
# > <details><summary>Answer</summary>Then nothing is ever removed, and everything is added to everything. Keeping and
# > taking in compete for the same numbers. That is the second trouble.</details>
#
# ## Trouble two: encoder, decoder, and the bottleneck between them
#
# An **encoder** is a network that reads a text. A **decoder** is a language model whose *initial* state is the
# encoder's last state. The decoder writes another text $y$, such as a translation, and models
# $p(y \mid x) = \prod_t p(y_t \mid y_{<t}, x)$. All that the decoder knows of the source $x$ is $s_0 = h_n$. In
# training it reads the right earlier words (teacher forcing, [lecture @cross_attention](@cross_attention)). When it
# writes, it reads its own words.
#
# Encoder and decoder together form the **encoder–decoder** or **sequence-to-sequence** model ([@kalchbrenner2013];
# [@cho2014]; [@sutskever2014]). In the model of Cho et al., the vector is also an input to every step of the decoder.
# Follow what the decoder learns of the source:

# %%
figures.encoder_decoder(["vier", "und", "zwanzig"], ["twenty", "four", "<eos>"])
#| caption: An encoder–decoder: one vector is all that the decoder knows of the source.
#| label: bottleneck

# %% [raw] slide
# ## Trouble two: the bottleneck between encoder and decoder
# {figure}
#
# All that the decoder learns of the source is one vector. Too narrow, or only a long path?
#
# **Now you:** a@bottleneck, extension `mean_pool`

# %% [markdown]
# Everything that the decoder learns of the source goes through the orange arrow: one vector of $d$ numbers, for three
# words or three hundred. This vector may be the **last state**, or the mean of all states (**mean pooling**, extension
# `mean_pool` of the assignment).
#
# In translation the trouble appeared at once: the first encoder–decoders got worse as the sentences grew longer
# ([@cho2014properties]). Sutskever et al. ([-@sutskever2014]) read the source backwards, which shortens the path from
# its first words to the first words of the translation. Their four layers of LSTM handed over 8,000 numbers, and had no
# difficulty with long sentences. So which was to blame, the narrow vector or the long path?
#
# ## The bottleneck measured: how much fits through one vector?
#
# A small task, **associative recall**, lets us change one of these at a time, on paths of at most fifteen steps. A GRU
# reads $n$ letters, each with a digit, such as *k7 a3 q9 …*. Then it is asked for the digit of one letter: *a?* While
# it reads, it does not know which letter this will be.

# %%
draws = torch.Generator().manual_seed(11)
letters, digits, asked, answer = letters_with_digits(1, 5, draws)    # (1, 5) (1, 5) (1,) (1,)
pairs = [f"{chr(97 + a)}{digit}" for a, digit in zip(letters[0], digits[0], strict=True)]
print(*pairs, f"  {chr(97 + asked[0])}?  {answer[0]}")

# %% [raw] slide
# ## How much fits through one vector?
# *k7 a3 q9 …* and then: *a?*
#
# | what is left when the question comes | |
# |---|---|
# | **last state** | one vector |
# | **attention** | all states: a weighted average that knows the question |
#
# > **Guess first.** Draw the share of right answers against the number of pairs: one vector of 16, 32, 64, 128, 256 numbers, and attention with 16. With sixteen pairs, attention keeps 256 numbers, too: will the two be equal?

# %% [markdown]
# The two readers below differ in one thing: what they still have when the question comes, one vector or all states.
# **Attention** takes a weighted average of all states, once it knows the question. The next lecture shows how; here it
# is a box, `attend`. Then a **readout** computes the answer from what was found.
#
# To be fair to the one vector, the readout must be able to *select*. So it multiplies what was found, element by
# element, by a linear map of the question, `scale` in the code. The question gives each number a factor, and a factor
# near 0 blocks that number. A figure below calls this readout *product*.

# %%
figures.two_readers(["k7", "a3", "q9"], asked=1)
#| caption: Two readers with the same parameters. They differ only in which states reach
#|   `attend`.

# %% [markdown]
# The readers train for some seconds: `losses_of` yields the loss of one batch after another, and the library's
# `descend` takes an optimiser's step for each. *Use the time:* draw the share of right answers against the number of
# pairs, for a single vector of 16, 32, 64, 128 and 256 numbers, and for attention with $d = 16$. With sixteen pairs,
# attention keeps 16 × 16 = 256 numbers, as many as the widest vector. Will the two be equal? Guessing gives 0.1.

# %%
class Reader(nn.Module):
    def __init__(self, memory, d):
        super().__init__()
        self.memory = memory
        self.letter, self.digit = nn.Embedding(26, d), nn.Embedding(10, d)
        self.network = nn.GRU(d, d, batch_first=True)
        self.scale, self.combine = nn.Linear(d, d), nn.Linear(d, d)
        self.answer = nn.Linear(d, 10)

    def forward(self, letters, digits, asked):
        states, _ = self.network(self.letter(letters) + self.digit(digits))   # (batch, n, d)
        question = self.letter(asked)                                         # (batch, d)
        if self.memory == "last state":
            states = states[:, -1:]                                           # (batch, 1, d)
        # asked with, compared with, averaged (see the next lecture)
        found, _ = attend(question[:, None], states, states)                  # (batch, 1, d)
        selected = found[:, 0] * self.scale(question)                         # (batch, d)
        return self.answer(self.combine(selected).tanh())                     # (batch, 10)


def losses_of(reader, draws):
    """One loss after another, each of a new batch."""
    for n in 160 * (1, 2, 4, 8, 16):                                          # 800 batches
        letters, digits, asked, answer = letters_with_digits(64, n, draws)
        yield cross_entropy(reader(letters, digits, asked), answer)


for memory in ("last state", "attention"):
    torch.manual_seed(0)
    reader, draws = Reader(memory, d=16), torch.Generator().manual_seed(0)
    descend(reader, losses_of(reader, draws), steps=800, lr=2e-2, progress=False)
    letters, digits, asked, answer = letters_with_digits(2000, 8, draws)
    right = (reader(letters, digits, asked).argmax(dim=-1) == answer).float().mean()
    print(f"{memory:>10}, d = 16: {right:.0%} right with 8 pairs")

# %% [markdown]
# With one vector, `attend` changes nothing, because the average of a single vector is that vector. This result is for
# one width and one seed. The next figure shows five widths with three seeds each. For each width, the learning rate was
# chosen from four with another seed.

# %% tags=["hide-input"]
recall = measured("recall")
print(recall["command"])
measured_readers = {(reader["memory"], reader["d"]): reader for reader in recall["readers"]
                    if reader["readout"] == "product"}


def right_answers(memory, d):
    runs = measured_readers[memory, d]["runs"]                      # one for each seed
    return {n: [run["right"][str(n)] for run in runs] for n in (1, 2, 4, 8, 16)}


lines = {"attention, d = 16": right_answers("attention", 16)}
for d in (256, 128, 64, 32, 16):
    lines[f"one vector, d = {d}"] = right_answers("last state", d)
blues = figures.blues((16, 32, 64, 128, 256))
colours = {"attention, d = 16": figures.ORANGE,
           **{f"one vector, d = {d}": blue for d, blue in blues.items()}}
figures.seed_lines({"": lines}, "pairs to remember", "share of right answers", chance=0.1,
                   colours=colours)
sizes = {which: reader["parameters"] for which, reader in measured_readers.items()}
print("learning rates tried:", *recall["rates"])
chosen = {d: measured_readers["last state", d]["lr"] for d in (16, 32, 64, 128, 256)}
print("chosen for one vector, by d:", chosen)
longer_at_16 = [run["right"]["16"] for run in recall["widest"]["runs"]]
print("sixteen pairs, 256 numbers kept:",
      f"one vector {mean(lines['one vector, d = 256'][16]):.2f},",
      f"attention {mean(lines['attention, d = 16'][16]):.3f};",
      f"{sizes['last state', 256] / sizes['attention', 16]:.0f} times the parameters")
print(f"one vector, {recall['widest']['steps']:,} steps, learning rate",
      f"{recall['widest']['lr']}: {mean(longer_at_16):.2f}")
#| caption: Right answers against the number of pairs, with one vector and with all states.
#|   Large marks: means; dots: seeds.

# %% tags=["hide-input"]
one = {d: right_answers("last state", d) for d in (16, 32, 64, 128, 256)}
for d in (16, 32, 64, 128):
    assert min(right_answers("attention", d)[16]) > 0.95, "attention: right at every width"
    assert max(one[d][16]) < 0.85, "one vector: not even with 128"
halves = [sum(one[d][8]) for d in one]
assert halves == sorted(halves), "wider is better"
assert round(mean(one[16][16]), 2) == 0.28, "equal memory: from here to 256 numbers"
assert max(one[256][16]) < min(lines["attention, d = 16"][16]), "and attention is better"
assert round(mean(longer_at_16), 2) == 0.98, "six times the training: closer"

# %% [raw] slide
# ## One vector is a bottleneck
# {figure}
#
# A wider vector's line falls later. With attention, 16 numbers are enough: what is kept grows with the text.
#
# **At equal memory**, 256 numbers: 0.89 against 0.995, with 184 times the parameters.

# %% [raw] slide
# ## Is it the width? Tests that could refute us
# > **Guess first.**
# > 1. A GRU of 128 numbers hands over only 16 of them. Is it nearer to a GRU of 16, or of 128?
# > 2. Which helps more: the mean of all states, or six times the training?
# > 3. If the long path is to blame: which pairs are answered worst?

# %% [markdown]
# One vector is a **bottleneck**: within 800 steps, every line for one vector falls, and attention's line does not. The
# wider the vector, the later its line falls. About 60% of the answers are right with 16 numbers and four pairs, 32
# numbers and eight pairs, or 64 numbers and sixteen pairs. So within 800 steps, twice the pairs need at least twice the
# width. For 16, 128 and 256 numbers, the best learning rate was the largest or smallest that we tried, so a rate
# outside that range might do better.
#
# Is more memory all that attention adds? At **equal memory**, 256 numbers for sixteen pairs, one vector reaches 0.89 (a
# vector of 16 numbers has 0.28), and attention 0.995. With six times the training, at half the lowest learning rate,
# the wide vector reaches 0.98. So training closes most of the gap, but the wide vector costs 184 times the parameters.
# Attention's memory grows with the text and costs no parameters.
#
# ## Is it the width of the vector? Tests that could refute us
#
# A wider GRU is also a larger network. And sixteen digits would fit into 64 numbers many times over. So the cause may
# not be the width, but the size of the network, the training, the long path, or the readout. Here are tests of the
# first three. *Guess:*
#
# 1. A GRU of 128 numbers hands over only the first 16 numbers of its last state. Is its result closer to that of a GRU
#    of 16 numbers, or of 128?
# 2. With 64 numbers, which helps more: the mean of all states in place of the last state, or six times the training?
# 3. If the long path were to blame, which pairs would be answered worst?

# %% tags=["hide-input"]
counts = (1, 2, 4, 8, 16)
by_seed = {(reader["memory"], reader["readout"], reader["d"], reader["steps"]):
           {n: [run["right"][str(n)] for run in reader["runs"]] for n in counts}
           for reader in [*recall["readers"], *recall["longer"]]}
part = {reader["kept"]: [run["right"]["8"] for run in reader["runs"]]
        for reader in recall["kept"]}
whole = {k: by_seed["last state", "product", k, 800][8] for k in part}
lines = {
    "GRU of this width,\nlast state": whole,
    "GRU of 128, first numbers\nof its last state": part,
    "GRU of 64, mean pooling": {64: by_seed["mean pool", "product", 64, 800][8]},
    "GRU of 64, 4,800 steps": {64: by_seed["last state", "product", 64, 4800][8]},
}
colours = dict(zip(lines, (figures.BLUE, figures.GREEN, figures.PURPLE, figures.INK),
                   strict=True))
figures.seed_lines({"": lines}, "numbers that are handed over", "share right with eight pairs",
                   chance=0.1, colours=colours)
print("GRU of 64, last state, eight pairs:", ", ".join(
    f"{mean(by_seed['last state', 'product', 64, steps][8]):.2f} after {steps:,} steps"
    for steps in (800, 4800)))
print("GRU of 64, last state, by the quarter of the text in which the pair was read")
quarters = {n: [run["right"][str(n)] for run in recall["by_quarter"]["runs"]] for n in (8, 16)}
for n, rows in quarters.items():
    print(f"{n:>2} pairs, from the first quarter to the last:",
          *(f"{mean(column):5.2f}" for column in zip(*rows, strict=True)))
    for row in rows:
        assert row[0] > mean(row[1:3]) - 0.03 and (n == 8 or row[3] == max(row))
        assert max(row) - min(row) < (1 - max(row)), "most of the errors: at every distance"
gap = [mean(part[k]) - mean(whole[k]) for k in (16, 32, 64)]
assert all(0 < more < 0.1 for more in gap), "a larger network helps, too, but less"
print("first 16, 32 and 64 numbers of a GRU of 128, against a GRU of this width:",
      *(f"+{more:.2f}" for more in gap))
assert [round(more, 2) for more in (min(gap), max(gap))] == [0.06, 0.09], "as the text says"
assert round(mean(part[128]) - mean(part[32]), 2) == 0.27, "as the text says"
assert mean(part[128]) - mean(part[16]) > 0.8 * (mean(whole[128]) - mean(whole[16])), "most"
#| caption: Right answers with eight pairs, by how many numbers are handed over. Large marks:
#|   means; dots: seeds.

# %% [raw] slide
# ## Width and training: right answers with eight pairs
# {figure}
#
# The width of the vector makes most of the difference, not the size of the network. More training helps in part; the long path is hardly to blame.
#
# > **Guess first.** A readout that puts vector and question side by side (*concatenation*): how well do the last state and attention do?

# %% [markdown]
# * **The width of the vector** matters most. The first 16, 32 or 64 numbers of a large GRU do only 0.06 to 0.09 better
#   than GRUs of these widths. From 32 to 128 numbers of the same large GRU, the share rises by 0.27. So the size of the
#   network helps, too, but less.
# * **Mean pooling** does no better than the last state, although every state is only one average away.
# * **Training** six times as long raises the share from 0.81 to 0.93. So part of the trouble is *learning* to pack the
#   vector.
# * **The long path**, if it were to blame, would make the first pairs the worst answered, and they are not. With sixteen
#   pairs, the last quarter is answered best (0.64 against 0.52 to 0.56). But even there more than a third of the
#   answers are wrong. So distance explains only a small part of the errors, on paths of at most fifteen steps.
#
# <details><summary><b>Going further</b>: why about four numbers for each pair?</summary>
#
# Our guess: because the question selects by a factor for each number, each of the 26 letters needs numbers that the
# other letters have not overwritten. If so, a smaller alphabet should be easier. We have not tested this.
# </details>
#
# The **readout** is left to test. Our readout multiplies. *Guess:* if it puts vector and question side by side
# (*concatenation*), how well do the two readers answer?

# %% tags=["hide-input"]
beside = "d = 64, concatenation"
lines = {"attention, d = 64,\nconcatenation": by_seed["attention", "concatenation", 64, 800],
         "d = 64, product": by_seed["last state", "product", 64, 800],
         f"{beside},\n4,800 steps": by_seed["last state", "concatenation", 64, 4800],
         beside: by_seed["last state", "concatenation", 64, 800],
         "d = 128, concatenation": by_seed["last state", "concatenation", 128, 800]}
draws, by_frequency = torch.Generator().manual_seed(0), {}
for n in counts:
    letters, digits, asked, answer = letters_with_digits(20_000, n, draws)
    by_frequency[n] = (digits.mode(dim=1).values == answer).double().mean().item()
colours = dict(zip(lines, (figures.ORANGE, blues[64], figures.GREEN, figures.AMBER,
                           figures.PURPLE), strict=True))
short, longer_beside, product = (
    {n: mean(shares) for n, shares in by_seed["last state", readout, 64, steps].items()}
    for readout, steps in (("concatenation", 800), ("concatenation", 4800), ("product", 800)))
assert all(abs(short[n] - by_frequency[n]) < 0.03 for n in counts), "the most frequent digit"
assert longer_beside[2] > by_frequency[2] + 0.1, "with more steps it begins to select"
assert longer_beside[4] < product[4], "but more slowly"
assert min(by_seed["attention", "concatenation", 64, 800][16]) > 0.99, "attention needs none"
figures.seed_lines({"": lines}, "pairs to remember", "share of right answers", chance=0.1,
                   colours=colours, band=("no network: the most\nfrequent digit", by_frequency),
                   on_band="concatenation, 800 steps:\non the grey band")
print("d = 64, 800 steps, eight pairs:", ", ".join(
    f"{readout} {mean(by_seed['last state', readout, 64, 800][8]):.2f}"
    for readout in ("product", "decoder")))
#| caption: Right answers with one vector, by readout and training, beside attention and the
#|   most frequent digit. Large marks: means; dots: seeds.
#| label: readout

# %% [raw] slide
# ## The readout: right answers, by number of pairs
# {figure}
#
# Concatenation fails with one vector at *two* pairs, and learns far more slowly: a fault of the readout, not the bottleneck. Vary one thing at a time.

# %% [markdown]
# With attention, concatenation answers everything. With one vector it fails already at *two* pairs, even with 128
# numbers: it does no better than naming the text's most frequent digit. With six times the steps it begins to select,
# but stays far behind the product. For each line we chose the best of the same four learning rates, judged after as
# many steps as that line trains for. With this readout alone, we would have mistaken its weakness for the bottleneck.
# Vary one thing at a time.
#
# <details><summary><b>Going further</b>: a decoder as the readout</summary>
#
# A readout can also work like the decoder of [@fig:bottleneck]: a GRU cell reads the question, with the vector as its
# state. This readout breaks down earlier than the product: 0.46 against 0.81 with eight pairs.
# </details>
#
# **Now you:** [a01](@bottleneck/assignment), exercise 5: a readout that can select.
#
# > **Check yourself.** (1) Both readers have the same number of parameters. What does attention cost instead, and how
# > does this cost grow with $n$? (2) A reader gets 0.55 with two pairs and 0.38 with four. Is its vector too narrow?
# > <details><summary>Answers</summary>(1) Memory, and work when the question comes. Both grow with n, because attention
# > keeps n states instead of one and averages over all of them. Lecture @cheap_attention is about this price. (2) That
# > does not follow. A reader that knows every digit, but not its letter, gets exactly these shares by naming the most
# > frequent digit. (With two pairs, it names the right pair's digit half of the time, and otherwise the two digits may
# > be the same: ½ + ½ · ⅒ = 0.55.) So change the readout or the training first.</details>

# %% [markdown] teaches="operations that cannot be parallel"
# ## Trouble three: one step after the other
#
# The third trouble has nothing to do with learning. To compute $h_{100}$ you need $h_{99}$, and for that you need
# $h_{98}$. In attention, no position waits for another. Is attention faster, then?
#
# On one thread, we time torch's compiled recurrence (`nn.RNN`), and attention as [lecture
# @self_attention](@self_attention) will build it: three matrices, then every position attends to all. The third line is
# the RNN's cell, applied to all $n$ vectors at once. This is no model of a text, but it shows what $n$ small products
# cost compared with one large product. *Guess:* which line, in time **per position**, rises with $n$?

# %% [raw] slide
# ## Trouble three: one step after the other
# To compute $h_{100}$ you need $h_{99}$. In attention, no position waits for another. Is attention faster?
#
# > **Guess first.** One thread, time *per position*: a recurrence, attention, and the recurrence's cell applied to all at once. Which line rises with $n$?

# %%
rnn, cell = nn.RNN(128, 128), nn.RNNCell(128, 128)
W_q, W_k, W_v = (nn.Linear(128, 128, bias=False) for _ in range(3))


def attention(x):
    return attend(W_q(x), W_k(x), W_v(x))[0]                   # (n, d)  n² scores, none waits


def all_at_once(x):
    return cell(x, x)                                          # (n, d)  n products, none waits


# %% tags=["hide-input"]
# Time of our thread alone, without that of other programs (Windows counts it too coarsely).
clock = time.perf_counter if os.name == "nt" else time.thread_time


def microseconds_per_position(function, x):
    times = []
    for _ in range(7):
        start = clock()
        with torch.no_grad():
            function(x)
        times.append(1e6 * (clock() - start) / len(x))
    return min(times)                                          # other programs only add time


ways = {"nn.RNN": rnn, "attention": attention, "the RNN's cell,\nall at once": all_at_once}
taken = {name: {n: microseconds_per_position(way, torch.randn(n, 128))
                for n in (16, 64, 256, 1024, 4096)} for name, way in ways.items()}
recurrent, attending, parallel = taken.values()
figures.times(taken, ("nn.RNN", "the RNN's cell,\nall at once"), at=1024)
print(f"n = 256, per position: nn.RNN {2 * 128**2:,} multiplications, {recurrent[256]:.1f} µs;",
      f"attention {2 * 256 * 128 + 3 * 128**2:,}, {attending[256]:.1f} µs")
print(f"n = 1,024: nn.RNN takes {recurrent[1024] / parallel[1024]:.1f} times as long as",
      "the same multiplications at once")
#| caption: Time per position, on one thread: a recurrence, attention, and n products at once.
#|   The fastest of seven runs; both axes are logarithmic.

# %% tags=["hide-input"]
assert recurrent[1024] > 1.5 * parallel[1024] and parallel[1024] < parallel[16]
assert attending[4096] > 3 * attending[256]

# %% [raw] slide
# ## On one thread attention does not win
# {figure}
#
# The longer the text, the more work attention does per position. What does not grow is how many of its operations must be done one after another.

# %% [markdown]
# Attention's line rises once $n$ is large, because each position is compared with all $n$. Where $n$ is small, the
# fixed cost of the call is shared by few positions. The other two lines do the same multiplications, and yet the
# recurrence takes much longer (last printed line): $n$ small products, one after another, cost more than one large
# product. **This is the price of waiting, and it is paid even on one thread.** Because of it, attention can be faster
# on short texts although it multiplies more. On long texts the $n^2$ comparisons weigh more than the waiting, and
# attention loses.
#
# The price of waiting is higher on a machine that can do thousands of things *at the same time*. What counts there is
# how many operations must wait for one another: the longest chain in the graph that autograd keeps. *Guess* how this
# chain grows from 10 to 40 positions.

# %% tags=["hide-input"]
def longest_chain(tensor):
    """How many operations had to wait for each other: the graph's depth, without recursion."""
    depth, todo = {}, [tensor.grad_fn]
    while todo:
        node = todo[-1]
        before = [earlier for earlier, _ in node.next_functions if earlier is not None]
        unknown = [earlier for earlier in before if earlier not in depth]
        if unknown:
            todo += unknown
        else:
            depth[todo.pop()] = 1 + max((depth[earlier] for earlier in before), default=0)
    return depth[tensor.grad_fn]


chains = {"recurrence": {}, "attention": {}}
for n in (10, 20, 40):
    x, h = torch.randn(n, 128, requires_grad=True), torch.zeros(1, 128)
    for x_t in x.split(1):
        h = cell(x_t, h)
    chains["recurrence"][n] = longest_chain(h)
    chains["attention"][n] = longest_chain(attention(x))
print("operations in the longest chain")
for name, chain in chains.items():
    print(f"{name:>10}:", ", ".join(f"{length} at n = {n}" for n, length in chain.items()))
assert chains["recurrence"][40] > 3.5 * chains["recurrence"][10]
assert len(set(chains["attention"].values())) == 1

# %% [raw] slide
# ## How many operations must wait?
# {print}

# %% [markdown]
# Attention's chain has the same length for every $n$. (The sum in an average counts as one operation here. On parallel
# hardware it takes about $\log n$ steps.) A machine that does thousands of things at a time can shorten attention's
# time, but hardly the time of a recurrence with a tanh. We have timed no such machine here. [Lecture
# @cheap_attention](@cheap_attention) computes a *linear* recurrence in parallel.
#
# Try the widget: how many cells does a signal pass through, and how many steps must it wait? The number in a box is the
# earliest step at which that state can be ready. Attention reads the tokens' vectors directly here, as it will from
# lecture @self_attention on.

# %% tags=["hide-input"]
def draw_path(length, signal):
    distance = {"from the neighbour": 1, "from half way": length // 2,
                "from the first": length - 1}
    return figures.signal_path(length, distance[signal])


signals = ["from the neighbour", "from half way", "from the first"]
viz.explore(draw_path, length=[4, 8, 12, 16], signal=signals,
            start={"length": 12, "signal": signals[-1]})
#| caption: The path of a signal to the last position: through a recurrent network, and by
#|   attention. Arrows are drawn into only two of the positions.

# %% [raw] slide
# ## How far, and how many steps?
# {figure}

# %% [raw] slide
# ## In short
# | | | |
# |---|---|---|
# | language model | $p(w_1, \dots, w_n) = \prod_t p(w_{t+1} \mid w_1, \dots, w_t)$ | logits (batch, n, vocab_size) |
# | cross-entropy | $-\frac1N \sum_i \ln p_i$; perplexity is its exponential | one number |
# | RNN | $h_t = \tanh(x_t W_x + h_{t-1} W_h + b)$ | $(d)$ |
# | LSTM | $c_t = f \odot c_{t-1} + i \odot \tilde c$, $\; h_t = o \odot \tanh c_t$ | $(d)$ |
# | gradient over $k$ steps | like $w^k$: vanishes or explodes | |
#
# Three troubles: a long path, a fixed size, one step after the other. **All the states** (attention) remove the first two.
#
# **Now do** assignment a@bottleneck. **Next:** lecture @lookup.

# %% [markdown] erratum="a missing with"
# > **A common mistake: confusing the number of operations with the number that must wait.** The number of
# > multiplications grows with $n^2$ in attention, and with $n$ in a recurrence. What does not grow with the length is
# > how many of attention's operations must be done one after another.
# > <details><summary>The counts</summary>Attention takes about 2 n² d multiplications (n² d for the scores and n² d for
# > the averages), and its projections take 3 n d². An RNN takes 2 n d² (W_x and W_h), a GRU 6 n d², and an LSTM 8 n d².
# > So attention takes more than an RNN of the same width on any text, but more than an LSTM only from n = 2.5 d on.
# > Vaswani et al. ([-@vaswani2017]) count n² d against n d², so attention is cheaper where n < d.</details>
#
# ## In short
#
# | | | shape |
# |---|---|---|
# | language model | $p(w_1, \dots, w_n) = \prod_t p(w_{t+1} \mid w_1, \dots, w_t)$ | logits (batch, n, vocab_size) |
# | cross-entropy, perplexity | [@eq:perplexity] | one number |
# | window network, four tokens | $h_t = \tanh([x_{t-3}; \dots; x_t] W + b)$ | $W$: (4 d, d) |
# | RNN | $h_t = \tanh(x_t W_x + h_{t-1} W_h + b)$ | $h_t$: (d,) |
# | gradient over $k$ steps | a product of $k$ Jacobians, $\operatorname{diag}(1 - h_t^2)\, W_h^\top$ in an RNN: it vanishes or explodes | (d, d) |
# | LSTM | $c_t = f \odot c_{t-1} + i \odot \tilde c$, $\; h_t = o \odot \tanh c_t$ | $c_t$, $h_t$: (d,) |
# | GRU | $h_t = z \odot h_{t-1} + (1 - z) \odot \tilde h$ | $h_t$: (d,) |
# | encoder–decoder | $s_0 = h_n$, $\; p(y_t \mid y_{<t}, x)$ from $s_t$ | $h_n$: (d,) |
#
# A language model predicts the next token from what it keeps of the text, and cross-entropy on new text says how well.
# N-gram models count, and networks can share what they learn between similar tokens. A recurrent network keeps one
# state, and has three troubles: (1) the path between tokens is long, (2) one vector of fixed size must hold everything
# that may be asked for, and (3) the steps must be computed one after the other.
#
# | keeps | remembers | a token $k$ back is | sequential steps for $n$ tokens |
# |---|---|---|---|
# | the last four tokens (5-gram, window) | exactly | out of sight, if $k > 4$ | 1 |
# | one state (RNN, LSTM, GRU) | what survived | $k$ steps away | $n$ |
# | **all the states** (attention) | what is asked for | one average away, with a weight of its own | $n$, if the states are recurrent; 1 otherwise |
#
# Keeping all the states removes the first two troubles. The third remains as long as the states come from a recurrence:
# [lecture @cross_attention](@cross_attention) accepts that, and [lecture @self_attention](@self_attention) does without
# the recurrence.
#
# > **Check yourself.**
# > 1. Two tokens stand 50 apart. Through how many cells does a signal go in a network that reads from left to right?
# >    And what if a second network reads from right to left (a **bidirectional** encoder)? Why can a language model not
# >    have such a second network?
# > 2. Your decoder is right on short sources and wrong on long ones. How would you find out whether the path or the
# >    bottleneck is to blame?
# > 3. Without looking, draw an encoder–decoder that translates *vier und zwanzig*. Mark what is computed before the
# >    first English word, and the arrow through which everything passes. What does $s_2$ read while training, and what
# >    while writing?
# > <details><summary>Answers</summary>
# >
# > 1. It goes through 51 cells, counting both ends, from the earlier token to the later. The second network carries
# >    signals the other way, through just as many, so it is no short cut. In a language model it would have read the
# >    target.
# > 2. For the path, make it longer without adding content: train a decoder that reads $k$ filler tokens before it may
# >    write. Does it get worse? For the bottleneck, widen the state and leave the path as it is. (Comparing positions,
# >    as in recall, does not decide here: a word that is read first is also written first, so every word's path is
# >    about as long as the source. Mean pooling shortens the path, but it blends the states, so it does not decide
# >    either.)
# > 3. Compare with [@fig:bottleneck]. All of $h_1$ to $h_3$ and $s_1$ are computed before *twenty*, and everything
# >    passes through the arrow $s_0 = h_3$. While training, $s_2$ reads the right word, *twenty*; while writing, it
# >    reads the word that the decoder has just written, right or wrong.</details>
#
# **Now do** [assignment @bottleneck](@bottleneck/assignment) (about 80 minutes): exercises 1 to 5, two questions in
# words, and, as extensions, the mean of states and all states of a batch. **Next:** [lecture @lookup](@lookup) opens
# the box: what is a weighted average that depends on a question?
#
# **Further reading.** [+@shannon1951], describes the game. [+@chen1996]. [+@bengio2003], sections 1 and 2.
# [+@mikolov2010]. [+@hochreiter1997]. [+@pascanu2013], section 2, on gradients that vanish and explode. [+@cho2014],
# and [+@sutskever2014].
#
# ## Going further: why does the unchanged GRU learn?
#
# In [@fig:long-paths], the unchanged GRU names the first token at every distance. The unchanged LSTM does not, although
# at the start its gradient is about as small ([@fig:vanishing-gradient]).
#
# * **Hypothesis.** In a GRU, one gate both keeps and writes: *not to write is to keep*. Noise in the state disturbs the
#   answer, so opening $z$ pays at once, without any gradient from far back. Once $z$ is open, the gradient from far
#   back arrives, too. An LSTM can keep noise out with its input gate or erase it with its forget gate. But erasing the
#   noise erases the name, too.
# * **Prediction.** $z$ opens even where there is nothing to remember.
#
# To test the prediction, we draw the right answer at random, so that no name helps. The GRU and the LSTM train for 150
# steps at $k = 20$. Before and after, we measure the gate that keeps, $z$ or $f$, averaged over the noise, and the
# gradient. *Guess:* which way does the GRU's $z$ move, and which way the LSTM's $f$? Then open the cell.

# %% tags=["hide-cell"] jupyter={"source_hidden": true, "outputs_hidden": true}
print("random answers, k = 20       gate over   gradient 20 steps back,")
print("(means of three seeds)       the noise   as a share of 1 step back")
unlearnable = {}
for name, gate in {"GRU": "z", "LSTM": "f"}.items():
    for when, trained_for in {"before": "untrained", "after": "150 steps"}.items():
        runs = [run[when] for run in long_paths["unlearnable"] if run["network"] == name]
        means = mean(run["gate"] for run in runs), mean(run["gradient"] for run in runs)
        unlearnable[name, when] = [f"{means[0]:.2f}", f"{means[1]:.5f}"]
        print(f"{name}'s {gate}, {trained_for}".ljust(29), "   ".join(unlearnable[name, when]))
for run in long_paths["unlearnable"]:
    opens = run["network"] == "GRU"
    assert (run["after"]["gate"] > run["before"]["gate"] + 0.1) == opens
    grown = run["after"]["gradient"] / run["before"]["gradient"]
    assert grown > 30 if opens else grown < 0.5
gates, shares = zip(*unlearnable.values(), strict=True)
assert gates == ("0.51", "0.67", "0.51", "0.36")
assert shares == ("0.00017", "0.01535", "0.00013", "0.00002")

# %% [markdown]
# The prediction holds. The GRU's $z$ opens, from 0.51 to 0.67, and the share of the gradient that arrives from 20 steps
# back grows from 0.0002 to 0.015. The LSTM's $f$ closes, from 0.51 to 0.36, and its share shrinks. This is one test, at
# one distance, and no proof.
#
# ## Going further: where counting wins
#
# Are the 5-gram model and the networks good at the same tokens? Take each test token with at least four tokens before
# it. How many of the last four had the 5-gram model seen, in this order, in training: four, three, two, or at most one?
# (After *Return the number of* it is four if the model saw this run, and three if it saw only *the number of*.) The
# next figure draws the loss in each of these groups. The groups contain different tokens, so compare the models within a
# group, not the groups with one another. One more model, *5-gram and GRU*, averages the two models' probabilities. *Guess* where it lies.

# %% tags=["hide-cell"] jupyter={"source_hidden": true, "outputs_hidden": true}
by_known = {
    model: {n: [run["nats_by_known"][str(n)] for run in record["runs"]
                if (run["model"], run["share"]) == (model, "all")] for n in (1, 2, 3, 4)}
    for model in ("window", "5-gram", "GRU", "5-gram and GRU")
}
known = {int(n): share for n, share in record["known"].items()}
ticks = {n: f"{'≤ ' * (n == 1)}{n} ({known[n]:.0%})" for n in (1, 2, 3, 4)}
known_ending = "tokens of the context that were seen in this order (share of test tokens)"
colours = {"window": figures.PURPLE, "5-gram": figures.BLUE, "GRU": figures.ORANGE,
           "5-gram and GRU": figures.GREEN}
figures.seed_lines({"": by_known}, known_ending, "loss (nats per token)", log_x=False,
                   y_range=(3.0, 4.5), ticks=ticks, colours=colours)
for model in by_known:
    print(f"{model:>14}: test perplexity {mean(perplexities(model)):.1f}")
lead = {n: mean(by_known["GRU"][n]) - mean(by_known["5-gram"][n]) for n in (4, 3, 2, 1)}
print("lead of the 5-gram model over the GRU in nats, with 4, 3, 2 and at most 1 token seen:",
      *(f"{nats:.2f}" for nats in lead.values()))
assert mean(perplexities("5-gram and GRU")) < average["5-gram"]
assert all(min(by_known["window"][n]) > max(by_known["5-gram"][n]) + 0.1 for n in lead), "each"
assert abs(lead[1]) < 0.04 and all(0.2 < lead[n] / lead[4] < 0.5 for n in (2, 3)), "a third"
for n in lead:
    assert max(by_known["5-gram and GRU"][n]) < min(by_known["5-gram"][n] + by_known["GRU"][n])
#| caption: Test loss by how much of the context was seen in training. The axis begins at 3.
#|   Large marks: means; dots: seeds.

# %% [markdown]
# The lead of the 5-gram model over the GRU is largest where all four tokens have been seen. Where at most one has been
# seen, there is no lead. Our guess: **counting remembers, parameters generalise**. For a known context, counting looks
# up exactly what followed it. In a new context, the network's state is *similar* to states that it knows.
#
# This cannot be the whole explanation, because the window network has parameters, too, and loses in every group. But it
# sees only four tokens, whereas the GRU reads the whole past. The average of the two models has the lowest loss in
# every group, so within each group they are good at different tokens.
#
# ## Going further: what the two models write
#
# Each model samples the next token from a sharpened distribution: its probabilities are squared and divided by their
# sum. This is sampling with a **temperature** of ½. To save time, this GRU reads only about a third of the training set
# once, whereas the GRU of [@fig:language-models] read the whole set three times. In these samples the 5-gram model
# writes runs that it has read, joined where a few tokens fit. The GRU's sentences are its own, but they read like a
# beginner's. Open the cell to see them.

# %% tags=["hide-cell"] jupyter={"source_hidden": true, "outputs_hidden": true}
torch.manual_seed(0)
gru = RecurrentLanguageModel(len(tokenizer), d_hidden=96, cell="gru")
fit_texts(gru, train, steps=350, batch_tokens=512, lr=2e-2, seed=0, name="GRU")


def write(distribution, seed, length=30):
    generator, text = torch.Generator().manual_seed(seed), list(begun)
    while len(text) < length and text[-1] != EOS:
        sharpened = distribution(text) ** 2              # multinomial makes them sum to one
        text.append(int(torch.multinomial(sharpened, 1, generator=generator)))
    return tokenizer.decode(text)


@torch.no_grad()
def next_token(text):
    return gru(torch.tensor([text]))[0, -1].softmax(dim=-1)      # (vocab_size,)


for seed in (0, 1, 2):
    print("5-gram:", write(five_gram.distribution, seed))
    print("GRU:   ", write(next_token, seed), "\n")
