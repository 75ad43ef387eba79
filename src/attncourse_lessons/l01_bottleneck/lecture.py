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
# *About 50 minutes to read, and 80 or more with every guess and check; a good place for a break is marked half-way.
# You need Python, tensors in PyTorch and the skills of [lecture @getting_ready](@getting_ready): shapes, masks and
# softmax. No language model or recurrent network is assumed.*
#
# After this lecture you can
#
# * define a **language model**, and factor the probability of a text with the **chain rule**;
# * compute **cross-entropy** and **perplexity**, and say when two perplexities may be compared;
# * explain how counting makes a language model (**n-grams**), write one as a **window network** and as a **recurrent
#   network**, and train it without leaking the target;
# * write down the **LSTM**, read the **GRU** off its picture, and explain **vanishing gradients**;
# * draw an **encoder–decoder**, and name the three problems of carrying a text along in one vector.
#
# The rest of the course answers these three problems. In [assignment @bottleneck](@bottleneck/assignment) you build
# the models' parts yourself.
#
# ## Language models: a probability for every next token
#
# In 1951 Claude Shannon published a guessing game ([@shannon1951]). One player hides a page of a book. The other
# guesses it letter by letter, and is told the right letter after each guess. Try it with words: what comes after
# *Return the number*? You probably said *of*.
#
# **A language model plays this game with probabilities.** Given the beginning $w_1, \dots, w_t$ of a text, a
# **language model** assigns a probability to every possible next **token**, which is a word or a piece of a word. We
# write this distribution $p(w_{t+1} \mid w_1, \dots, w_t)$. By the **chain rule**, the product of these probabilities
# is the probability of the whole text:
#
# $$p(w_1, \dots, w_n) = \prod_{t=1}^{n-1} p(w_{t+1} \mid w_1, \dots, w_t)$$
#
# Here $w_1$ is a mark for the beginning, which is given and never predicted. If *Return* follows the mark with
# probability ½, *the* follows *Return* with ½, and *number* follows *Return the* with ⅒, then the probability that a
# text begins with *Return the number* is ½ · ½ · ⅒ = 1/40.
#
# A language model can also write: sample the next token, append it to the text, and ask the model again. A model that
# writes in this way is **autoregressive**.
#
# Our text consists of the docstrings of Python's standard library, cut into **subword tokens** from a vocabulary of
# 1,024 ([lecture @training](@training) shows how). A frequent word is one token and a rare word is several, so no
# word is unknown.

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
from attncourse.training import descend
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
# It can also write: sample the next token, append it, ask again (**autoregressive**).

# %%
corpus = docstrings()
tokenizer = Tokenizer.train(corpus.train, size=1024)
train = encode_texts(corpus.train, tokenizer)              # lists of token ids
test = encode_texts(corpus.test, tokenizer)
for name, texts in {"training set": train, "test set": test}.items():
    to_predict = sum(len(text) - 1 for text in texts)
    print(f"{name}: {len(texts):,} texts, {to_predict:,} tokens to predict")
print(" | ".join(tokenizer.pieces("Return the number of bytes that remain in the buffer.")))

# %% [raw] slide
# ## Our text: docstrings in subword tokens
# {print}
#
# - **Subword tokens**: frequent words are one token, rare words several, nothing is unknown.
# - `<bos>` marks the beginning and is given, `<eos>` marks the end and must be predicted.
# - **Training set**: learn. **Validation set**: choose. **Test set**: report; nothing is chosen by it. Each module is in one set only.

# %% [raw] slide
# ## Cross-entropy and perplexity
# $$\text{cross-entropy} = -\frac1N \sum_{i=1}^{N} \ln p_i \qquad \text{perplexity} = \Bigl(\frac{1}{p_1 \, p_2 \cdots p_N}\Bigr)^{1/N}$$
#
# - cross-entropy: in **nats per token**; minimising it maximises the **likelihood** of the text
# - **perplexity** is a number of choices: 30 equally likely tokens, perplexity 30; its logarithm is the cross-entropy
#
# > **Guess first.** $p$ = 0.50, 0.02, 0.90. Which token contributes most to the loss? Is the perplexity nearest to 2, 5 or 20?

# %% [markdown] teaches="language modelling and its objective"
# Each text begins with the token `<bos>`, which is given, and ends with `<eos>`, which must be predicted. A model
# learns from the **training set**. Choices such as the learning rate are made on a **validation set**, a tenth of the
# training texts. The **test set** is for the final report only. It shares no module with the training set, so
# memorising does not help.
#
# ## Cross-entropy and perplexity: how good is a language model?
#
# How do we score a player who answers with probabilities? **A good language model gives a high probability to the token
# that comes next.** So let $p_i$ be the probability that the model gave to the $i$-th token before the token was shown.
# The **cross-entropy** between text and model is the mean of $-\ln p_i$ over all $N$ predicted tokens, in **nats per
# token** ("nat" because the logarithm is natural). It is zero if the model is always certain and right, and infinite if
# a token that came was given the probability zero.
#
# By the chain rule, the sum of all $\ln p_i$ is the logarithm of the whole text's probability, so a model that
# minimises the cross-entropy maximises the **likelihood** of the text. Papers also report the **perplexity**, the
# exponential of the cross-entropy. It is the inverse of the geometric mean of the probabilities:
#
# $$\text{cross-entropy} = -\frac1N \sum_{i=1}^{N} \ln p_i \qquad\qquad
# \text{perplexity} = \Bigl(\frac{1}{p_1 \, p_2 \cdots p_N}\Bigr)^{1/N}$$ (eq:perplexity)
#
# Perplexity is a number of choices: a player who guesses among 30 equally likely tokens has a perplexity of 30.
#
# A model gave the three tokens of a text the probabilities 0.50, 0.02 and 0.90. *Guess:* which token contributes most
# to the loss, and is the perplexity nearest to 2, 5 or 20?

# %%
p = [0.50, 0.02, 0.90]                                     # given to the three tokens of a text
losses = [-math.log(p_i) for p_i in p]                     # in nats
print("losses", [round(loss, 2) for loss in losses])
print("cross-entropy", round(sum(losses) / 3, 2), "nats per token")
print("perplexity", round((1 / math.prod(p)) ** (1 / 3), 2))

# %% tags=["hide-input"]
assert math.isclose(2 ** (-sum(map(math.log2, p)) / 3), (1 / math.prod(p)) ** (1 / 3))
assert math.isclose(perplexity(torch.full((10,), 1 / 30).log()), 30, rel_tol=1e-5)

# %% [raw] slide
# ## The token that was missed costs most
# {print}
#
# In bits, $-\log_2 p$, the loss is another number, but the perplexity, $2^{\text{bits}}$, is the same.

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
# The second token contributes most, because the model hardly expected it, and the perplexity is close to 5. With
# logarithms to base 2 the loss comes out in **bits**, but 2 to the power of the loss is the same perplexity.
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
# Where do the probabilities come from? **The simplest language model counts.** Count how often *number* followed *the*
# in the training set, and divide by how often *the* was followed by any token: this is an estimate of
# $p(\text{number} \mid \text{the})$. A **bigram** model consists of such estimates. It keeps one token of the text so
# far and predicts the next; a trigram model keeps two tokens, and an **n-gram model** keeps $n - 1$.
#
# A longer context says more about the next token, but it is less likely to have been seen before. *Guess:* what share
# of the pairs of neighbouring tokens in the test set never occurs in the training set: 1%, 10% or 50%? And what share
# of its runs of five tokens?

# %% [raw] slide
# ## n-gram models: counting with order
# $$p(\text{number} \mid \text{the}) \approx \frac{\text{count of “the number”}}{\text{count of “the …”}}$$
#
# A **bigram** model keeps one token of the text before, an **n-gram model** $n - 1$.
#
# > **Guess first.** What share of the pairs of neighbouring tokens in the test set was never seen in training: 1%, 10% or 50%? And of the runs of five?

# %%
def runs(texts, n):
    return [tuple(text[i : i + n]) for text in texts for i in range(len(text) - n + 1)]


new = {}
for n in (2, 3, 5):
    seen, tested = set(runs(train, n)), runs(test, n)
    new[n] = sum(run not in seen for run in tested) / len(tested)
    print(f"runs of {n} tokens: {new[n]:.0%} are new")

# %% tags=["hide-input"]
assert 0.02 < new[2] < 0.2 and new[5] > 0.5

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
# **A tenth of the pairs is new, but most runs of five tokens are.** A plain n-gram model gives the last token of such a
# run the probability zero, or no probability at all if the context is new, too. A single zero makes the perplexity of
# the whole text infinite.
#
# The remedy is **smoothing**: take a little from every count, and give it to all tokens in the proportions of the model
# with the shorter context. Suppose that *Return the* occurred three times, twice before *number* and once before
# *list*. Take $D = 0.75$ from each of the two counts:
#
# | after *Return the* | count | keeps | share |
# |---|---|---|---|
# | *number* | 2 | 1.25 | 1.25 / 3 = 0.42 |
# | *list* | 1 | 0.25 | 0.25 / 3 = 0.08 |
# | all tokens, in the proportions of the bigram model after *the* | | 1.50 | 1.50 / 3 = 0.50 |
#
# So *number* gets 0.42, plus half of its bigram probability after *the*. *String*, which never followed *Return the*,
# gets only half of its bigram probability. The bigram model borrows from single tokens in the same way, so no token is
# impossible any more. After a new context, the shorter one decides alone.
#
# > **Check yourself.** After *the*, the bigram model gives *number* 0.10 and *string* 0.04. What does the trigram model
# > give each of them after *Return the*?
# > <details><summary>Answer</summary>*number*: 0.42 + 0.50 · 0.10 = 0.47; *string*: 0.50 · 0.04 = 0.02.</details>
#
# Play Shannon's game against a 5-gram model that was smoothed like this. *Write down* the token that you think most
# likely after *Return the* in a docstring, and the probability that you would give it:

# %%
five_gram = NGram(train, order=5, vocab_size=len(tokenizer))
begun = [BOS, *tokenizer.encode("Return the")]                           # token ids
p = five_gram.distribution(begun)                                        # (vocab_size,)
for share, token in zip(*p.topk(5), strict=True):
    word = tokenizer.pieces([int(token)])[0]
    print(f"{word:>8} {share:.3f}, loss if it comes {-share.log():.2f}")
print(f"the least likely token {p.min():.1e}, sum {p.sum():.4f}")

# %% tags=["hide-input"]
assert torch.isclose(p.sum(), torch.tensor(1.0), atol=1e-4) and p.min() > 0 and p.max() < 0.1

# %% [raw] slide
# ## After *Return the*: the 5-gram model's bet
# {print}
#
# > **Guess first.** Which has the lower perplexity on new text: a bigram model of all the text, or a 5-gram model of a twentieth of it?

# %% [markdown]
# The model is probably less sure than you are: it gives no token as much as a tenth. If you gave *number* one half, you
# lose only ln 2 = 0.69 nats if it comes. If another token comes, you usually lose more than the model does.
#
# A model can also be judged by what it writes. *Guess:* what does the bigram model get wrong that the 5-gram model gets
# right?

# %%
torch.manual_seed(0)
bigram, trigram = (NGram(train, order=n, vocab_size=len(tokenizer)) for n in (2, 3))
for name, model in {"2-gram": bigram, "3-gram": trigram, "5-gram": five_gram}.items():
    text = list(begun)
    while len(text) < 19 and text[-1] != EOS:
        text.append(int(torch.multinomial(model.distribution(text), 1)))
    print(f"{name}: {tokenizer.decode(text)}")

# %% [markdown]
# The 5-gram model writes whole words and now and then a phrase, but no sentence. In the bigram model's text each token
# only has to suit the one before it, so even its words may not be words.
#
# <details><summary><b>Going further</b>: the formula of Kneser and Ney; counting without order (tf-idf)</summary>
#
# Let c(u, w) be how often token w followed the context u, c(u) how often any token did, and T(u) how many
# <i>different</i> tokens did. Let u′ be u without its first token. Then the model is
#
# $$p(w \mid u) = \frac{\max\bigl(c(u, w) - D,\ 0\bigr)}{c(u)} + \frac{D \cdot T(u)}{c(u)}\; p(w \mid u')$$
#
# Where u never occurred, p(w | u) = p(w | u′). This is the model of Kneser and Ney ([-@kneser1995]) in its later,
# interpolated form ([@chen1999]): theirs turned to the shorter context only for tokens that never followed u. It has
# one more trick (see <code>attncourse.ngram</code>): in contexts shorter than the longest, c counts how many
# <i>different</i> tokens came before w, and no longer how often w occurred. <i>Francisco</i> is frequent but follows
# only one word, so it should get little probability where the context is new.
#
# Counting can also ignore the order of words. <b>tf-idf</b> ([@sparckjones1972]) weights each count of a word in a
# text by how rare the word is in other texts, which shows what the text is about. But <i>return the number</i> and
# <i>number the return</i> are the same to tf-idf, so it cannot say what comes next.
# </details>
#
# Smoothing makes long contexts usable, but does it make them useful? The next figure, made beforehand, varies the order
# $n$ and the amount of text. *Guess:* which has the lower perplexity on the test set, a bigram model of all the text or
# a 5-gram model of a twentieth of it?

# %% tags=["hide-input"]
record = measured("language_models")


def perplexities(model, share="all"):
    return [run["perplexity"] for run in record["runs"]
            if (run["model"], run["share"]) == (model, share)]           # one for each seed


counted = {share: {n: perplexities(f"{n}-gram", share) for n in (2, 3, 4, 5)}
           for share in ("a twentieth", "a quarter", "all")}
named = {f"{share} of the texts": line for share, line in counted.items()}
figures.seed_lines({"": named}, "order n: the model keeps n − 1 tokens",
                   "test perplexity", log_x=False, log_y=True)
#| caption: Test perplexity of n-gram models (log scale), by order and amount of text.
#|   Marks: three random samples of the texts (of “all”, only one); lines: means.

# %% tags=["hide-input"]
assert record["epochs"] == 3 and record["vocab_size"] == len(tokenizer)
assert min(counted["a twentieth"][5]) > 1.5 * max(counted["all"][2]), "more text beats context"
assert min(counted["all"][3]) < 1.3 * max(counted["all"][5]), "two more tokens: worth little"
worth = {share: mean(line[2]) / mean(line[3]) for share, line in counted.items()}
assert worth["a twentieth"] < worth["a quarter"] < worth["all"] and worth["a twentieth"] < 1.25
longest = {share: mean(line[4]) / mean(line[5]) for share, line in counted.items()}
assert longest["a twentieth"] < longest["a quarter"] < longest["all"] < 1.1, "flat, but later"

# %% [markdown] erratum="perplexity without a unit"
# **The bigram model of all the text is far better, and a longer context is worth more where there is more text.**
# With a twentieth of the text, the curve is flat from the trigram model on, because most longer runs are new; with
# all the text, it flattens later.
#
# > **A common mistake: comparing perplexities of different units.** A perplexity is *per token of one vocabulary*, so
# > two perplexities can be compared only if both models predict the same tokens of the same text. Models with different
# > tokens can be compared **per character**, usually in **bits per character**. The next cell prints both for one
# > model:

# %% [raw] slide
# ## A longer context is worth more where there is more text
# {figure}

# %% tags=["hide-input"]
log_p = torch.cat([five_gram.log_probabilities(text) for text in test])  # one for each token
n_characters = sum(map(len, corpus.test)) + len(corpus.test)             # <eos> counts as one
per_token = perplexity(log_p)                                            # as the library has it
bits = -log_p.sum() / math.log(2) / n_characters                         # per character
print(f"the 5-gram model: perplexity {per_token:.1f} per token, {bits:.2f} bits per character")

# %% tags=["hide-input"]
assert per_token > 5 * 2**bits and 1.6 < bits < 2
assert math.isclose(per_token, perplexities("5-gram")[0], rel_tol=0.15), "of this text"

# %% [raw] slide
# ## A common mistake: comparing perplexities of different units
# A perplexity is *per token of this vocabulary*.
#
# {print}
#
# One model, one text, two units. Perplexities can be compared only if both models predict the same tokens of the same text; bits per character can be compared across tokenizers.

# %% [raw] slide
# ## A window network: learned vectors in place of counts
# Each token has an **embedding** $x_t$, a learned row of $E$. **Logits**: dot products with the rows of $E$ again (**weight tying**).
#
# $$h_t = \tanh\bigl([x_{t-3};\ x_{t-2};\ x_{t-1};\ x_t]\, W + b\bigr)$$
#
# $$p(\cdot \mid w_1, \dots, w_t) = \operatorname{softmax}(h_t E^\top + b_E)$$
#
# It sees what a 5-gram model sees, but similar tokens can have similar vectors.

# %% [markdown] teaches="parametric models against tf-idf and n-grams"
# <details><summary>How low can a perplexity be?</summary>
#
# In the long run, no model's cross-entropy on new text lies below the **entropy** of the text, the loss of a player who
# knows the true probabilities. From people's guesses, Shannon estimated the entropy of printed English at 0.6 to 1.3
# bits per letter. Our 1.8 bits per character leave room for a better model, even though docstrings are not ordinary
# English.
#
# </details>
#
# ## A window network: learned vectors in place of counts
#
# Counting has a limit that more text does not remove. In a table of counts, two tokens are the same or different, but
# never *similar*. So *Return the number of bytes* teaches the table nothing about *Returns the count of characters*,
# although *number* and *count* mean nearly the same.
#
# **A network can share what it learns between similar tokens, because it gives each token a vector.** A window
# network, after Bengio et al. ([-@bengio2003]), predicts the next token in four steps:
#
# 1. Each token $w_t$ has a *learned* vector of $d$ numbers, its **embedding**: a row $x_t$ of a table $E$.
# 2. The embeddings of the last four tokens are placed side by side, with zeros for tokens before the beginning.
# 3. One **hidden layer**, a linear map and a tanh, turns these $4d$ numbers into one vector $h_t$ of $d$ numbers.
# 4. Each token of the vocabulary gets one number, its **logit**: the dot product of $h_t$ with the token's row of
#    $E$, plus the token's bias. A softmax turns the logits into probabilities. Using $E$ twice is called
#    **weight tying** ([lecture @transformer](@transformer)).
#
# $$h_t = \tanh\bigl([x_{t-3};\ x_{t-2};\ x_{t-1};\ x_t]\, W + b\bigr) \qquad\quad p(\cdot \mid w_1, \dots, w_t) =
# \operatorname{softmax}(h_t E^\top + b_E)$$
#
# The network is **parametric**: gradient descent on the cross-entropy changes its parameters $W$, $b$, $b_E$ and $E$.
# If *number* and *count* come to have similar vectors, the network learns about both whenever it reads one of them.

# %%
window = WindowLanguageModel(len(tokenizer), order=5, d_hidden=96)
E, hidden, b_E = window.embedding.weight, window.hidden, window.output.bias


def window_logits(tokens):                                     # (batch, n)
    n = tokens.shape[1]
    x = nn.functional.pad(E[tokens], (0, 0, 3, 0))             # (batch, 3 + n, d)  zeros first
    four = torch.cat([x[:, i : i + n] for i in range(4)], -1)  # (batch, n, 4d)  side by side
    return hidden(four).tanh() @ E.mT + b_E                    # (batch, n, vocab_size)


size = sum(parameter.numel() for parameter in window.parameters())
print(f"{size:,} parameters; the 5-gram model keeps {len(five_gram):,} counts of runs")

# %% tags=["hide-input"]
tokens = torch.tensor([begun, begun[::-1]])
assert torch.allclose(window_logits(tokens), window(tokens), atol=1e-5)

# %% [raw] slide
# ## The window network is much smaller than the table of counts
# {print}

# %% [markdown]
# The network stores far fewer numbers, but its context, too, ends after four tokens.
#
# ## Recurrent networks: one state for the whole past
#
# How can a network keep more than a fixed number of tokens? **A recurrent network keeps one vector for the whole
# past**, the **hidden state** $h_t$. It computes each new state from the token just read and the previous state:
#
# $$h_t = \tanh\bigl(x_t W_x + h_{t-1} W_h + b\bigr) \qquad\quad h_0 = 0$$ (eq:recurrence)
#
# This is a **recurrent neural network**, RNN ([@elman1990]; used as a language model by [@mikolov2010]). The logits
# are computed from $h_t$ as before.
#
# Take a state of one number, with $w_x = 1$, $w_h = \tfrac12$ and no bias. The network reads a 3 and then three
# zeros, so whatever the state holds at the end is what it remembers of the 3:

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
# > **Guess first.** How much of the first state is left after three more steps?
#
# . . .
# {print}

# %% [markdown]
# About a tenth of the first state is left. With vectors, $w_x$ and $w_h$ become matrices. The same two serve every
# step, so the number of parameters does not depend on the length of the text. In the picture, whatever $h_3$ knows of
# *Return* has come along the orange path:

# %%
figures.unrolled_rnn(["<bos>", "Return", "the", "number", "of"], path=(2, 3))
#| caption: A recurrent neural network, unrolled. Every step uses the same three matrices.
#|   Orange path: from *Return* to the prediction of *number*.
#| label: rnn

# %% [raw] slide
# ## Unrolled: the same three matrices at every step
# {figure}
#
# **Now you:** a@bottleneck, exercise 2

# %% [raw] slide
# ## Training without a target leak
# What was computed after $w_1, \dots, w_t$ is compared with $w_{t+1}$: the same text, one step to the left.
#
# > **Guess first.** One network forgets the shift, and is asked about the token that it has just read. Which loss curve is lower, and where does it end?

# %% [markdown]
# The path leads through $h_2$, and every state has the same size.
#
# **Now you:** [a01](@bottleneck/assignment), exercise 2: one step, for texts of several lengths. The extension
# `rnn_states` does all the steps.
#
# ## Training without a target leak: one step to the left
#
# How is such a network trained? At each position it has read $w_1, \dots, w_t$, and its prediction is compared with
# $w_{t+1}$. **So the target is the text itself, one step to the left:** where the input is `<bos>` *Return the*, the
# targets are *Return the number*.
#
# Suppose that we forget this shift and ask about the token just read. We train two networks that differ only in the
# shift, with the optimiser **Adam**, which gives each parameter a step size of its own. *Guess:* which curve is lower,
# and where does it end?

# %%
def train_a_little(leak, steps=120):
    torch.manual_seed(0)
    model = RecurrentLanguageModel(len(tokenizer), d_hidden=64, cell="rnn")
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    losses = []
    batches = text_batches(train, batch_tokens=400, max_length=32, seed=0)
    for tokens_in, tokens_out in islice(batches, steps):     # (batch, n); out is one step ahead
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
#| caption: Training loss (means of three steps) of a network that predicts the next token, and
#|   of one that can see its target.

# %% [raw] slide
# ## A target leak: the best loss of the day
# {figure}

# %% [markdown]
# **The loss of the network that forgot to shift falls to nearly zero**, because repeating the token that it has just
# read takes no knowledge of language. This is a **target leak**. No error message reports it, so let both networks
# continue *Return the* (`greedy` always picks the most likely token):

# %%
prompt, length = torch.tensor([begun]), torch.tensor([len(begun)])
written = {}
for name, model in {"next token": trained, "forgot to shift": leaking}.items():
    written[name] = greedy(model, prompt, length, max_length=6).tokens[0].tolist()
    print(f"{name:>16}: Return the | {' '.join(tokenizer.pieces(written[name]))}")

# %% tags=["hide-input"]
assert sum(leaking_losses[-10:]) < 0.25 * sum(losses[-10:])
assert len(set(written["forgot to shift"])) == 1, "what learned to repeat, repeats"

# %% [raw] slide
# ## Let the models write, and the leak shows
# {print}
#
# **Now you:** a@bottleneck, exercise 3

# %% [markdown] teaches="recurrent networks: LSTMs are powerful"
# **A loss near zero from a model that cannot write gives a leak away.** Neither sign is enough alone: after so few
# steps neither network writes well, and honest models loop, too. But a model that expected every next token would not
# go on with *the the the*. Question 2 of the assignment asks for another test.
#
# **Now you:** [a01](@bottleneck/assignment), exercise 3.
#
# ## LSTM and GRU: a state with gates
#
# The RNN replaces its whole state at each step, so what it knew of the first word must survive a matrix and a tanh
# every time. **A gated network can leave its state alone until there is a reason to change it.** Its **gates** decide
# this. They are numbers between 0 and 1, computed from the input and the state. Hochreiter and Schmidhuber
# ([-@hochreiter1997]) introduced them, and Gers et al. ([-@gers2000]) added the forget gate.
#
# Take a state $c$ of a single number. A **forget gate** $f$ says how much of the state to keep, and an **input gate**
# $i$ says how much of the new number to take in. The network reads 3, 7, −2, 5, and we set the gates by hand: at the
# 3 it takes in everything, and afterwards it keeps 95% at each step and takes in nothing.

# %%
c = 0.0
for number, f, i in ((3.0, 0.0, 1.0), (7.0, 0.95, 0.0), (-2.0, 0.95, 0.0), (5.0, 0.95, 0.0)):
    c = f * c + i * number
    print(f"read {number:>4.0f} with f = {f}, i = {i}: state {c:.2f}")

# %% [raw] slide
# ## Gates: a state that is left alone
# {code}
# . . .
# {print}
#
# **Forget gate** $f$: how much of the state to keep. **Input gate** $i$: how much of what is new to take in.

# %% [markdown]
# Most of the 3 is left, and the later numbers have left no trace. In a network, each component of the state has gates
# of its own, and the network learns when to open them.
#
# The **LSTM** (long short-term memory) keeps such a state $c_t$, the **cell state**, beside the hidden state $h_t$.
# Begin with its last line: the first equation there is the line of code above, now for vectors. $\sigma$ is the
# sigmoid, which turns any number into one between 0 and 1, and $\odot$ is the element-wise product. Each $W$ is for
# the input and each $U$ for the old state, like $W_x$ and $W_h$ in [@eq:recurrence].

# %% [raw] slide
# ## The LSTM in equations
# $$\begin{aligned} f_t &= \sigma\bigl(x_t W_f + h_{t-1} U_f + b_f\bigr) && \text{forget gate}\\ i_t &= \sigma\bigl(x_t W_i + h_{t-1} U_i + b_i\bigr) && \text{input gate}\\ o_t &= \sigma\bigl(x_t W_o + h_{t-1} U_o + b_o\bigr) && \text{output gate}\\ \tilde c_t &= \tanh\bigl(x_t W_c + h_{t-1} U_c + b_c\bigr) && \text{candidate}\\ c_t &= f_t \odot c_{t-1} + i_t \odot \tilde c_t \qquad h_t = o_t \odot \tanh c_t \end{aligned}$$
#
# **GRU**: an update gate $z$ does the work of $f$ and $i$, $h_t = z_t \odot h_{t-1} + (1 - z_t) \odot \tilde h_t$, and a reset gate $r$ decides what $\tilde h$ sees of the past.

# %% [markdown]
# $$
# \begin{aligned}
# f_t &= \sigma\bigl(x_t W_f + h_{t-1} U_f + b_f\bigr) && \text{forget gate: how much to keep}\\
# i_t &= \sigma\bigl(x_t W_i + h_{t-1} U_i + b_i\bigr) && \text{input gate: how much to take in}\\
# o_t &= \sigma\bigl(x_t W_o + h_{t-1} U_o + b_o\bigr) && \text{output gate: how much to show}\\
# \tilde c_t &= \tanh\bigl(x_t W_c + h_{t-1} U_c + b_c\bigr) && \text{the candidate: what is new}\\
# c_t &= f_t \odot c_{t-1} + i_t \odot \tilde c_t \qquad\qquad h_t = o_t \odot \tanh c_t
# \end{aligned}
# $$
#
# The **GRU** (gated recurrent unit, [@cho2014]) has only one state and two gates. Its **update gate** $z$ does the work
# of both $f$ and $i$: what is not kept is replaced by the candidate:
#
# $$h_t = z_t \odot h_{t-1} + (1 - z_t) \odot \tilde h_t$$
#
# Its **reset gate** $r$ decides how much of the past the candidate $\tilde h$ sees. In the picture, follow the blue
# state along the top of each cell, which is $c_t$ in the LSTM and $h_t$ in the GRU. Then read off how the GRU's
# candidate is computed.

# %%
figures.lstm_and_gru()
#| caption: The cells of an LSTM, with the states c and h, and of a GRU, with one state h. Gates
#|   and candidates are drawn without their index t.
#| label: gated-cells

# %% [raw] slide
# ## LSTM and GRU
# {figure}

# %% [markdown]
# Now try a GRU whose state is one number. The old state is 0.8 and the input is −1; the candidate's weights are 1 for
# the input and 2 for the state, and there is no bias. We set $(r, z)$ by hand to $(1, 0)$, then $(0, 0)$, then
# $(0, 0.9)$. *Guess* the sign of each new state, then work out all three from the picture:

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

# %% [raw] slide
# ## A GRU of one number
# The state is 0.8, the input −1; the candidate's weights are 1 for the input and 2 for the state.
#
# > **Guess first.** The sign of the new state, for $(r, z)$ = $(1, 0)$, $(0, 0)$, $(0, 0.9)$?
#
# . . .
# {print}

# %% [markdown]
# The signs are plus, minus and plus. With $r = 1$ the past outweighs the input in the candidate; with $r = 0$ the input
# alone makes it. With $z = 0.9$ most of the old state stays.
#
# <details><summary>Three variants of the GRU</summary>
#
# Cho et al. multiply $h_{t-1}$ by $r$ *before* the matrix $U$, and some papers swap $z$ and $1 - z$. The picture shows
# torch's GRU, without the second bias that torch adds inside the product with $r$.
#
# </details>
#
# The LSTM's equations are three lines of code, because all four $W$ stand side by side in one matrix, and `chunk` cuts
# the result:

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
size = {kind.__name__: sum(parameter.numel() for parameter in kind(96, 96).parameters())
        for kind in (nn.RNNCell, nn.LSTMCell, nn.GRUCell)}
print("parameters of a cell of width 96:",
      ", ".join(f"{name} {count:,}" for name, count in size.items()))
assert all(same)
assert size["LSTMCell"] == 4 * size["RNNCell"] and size["GRUCell"] == 3 * size["RNNCell"]

# %% [raw] slide
# ## The LSTM in code, and the sizes of the cells
# {code}
# {print}
#
# **Now you:** a@bottleneck, exercise 4

# %% [markdown]
# Each gate and candidate has its own pair of matrices: four pairs in an LSTM, three in a GRU, one in an RNN.
#
# **Now you:** [a01](@bottleneck/assignment), exercise 4: the GRU's step, from the picture.
#
# ## Which language model predicts best?
#
# Now all the models meet on the test set. The networks have states and embeddings of 96 numbers, and each reads the
# training set three times, in three **epochs**. Gated cells have more parameters, so there is a second RNN: with a
# state of 168 numbers, its cell is as large as the GRU's. One more model averages the probabilities of the 5-gram model
# and the GRU. *Guess:* where do the networks lie: behind the bigram model, between it and the 5-gram model, or ahead of
# both?
#
# <details><summary>How the networks train</summary>
#
# All use Adam, clipped gradients (see below) and a learning rate that rises and falls once. Its peak was chosen on the
# validation set, after training on a quarter of the texts. Of 0.01, 0.02 and 0.04, the best was 0.02 for every network
# except the second RNN. For that one, 0.005 was tried as well, and 0.01 was best. The networks in the figure then
# trained on all training texts, as the n-gram models did. Long texts are cut into pieces of at most 64 tokens. Each
# piece starts from the state 0, so neither the state nor the gradient crosses a cut. (In <b>truncated backpropagation
# through time</b> the state is carried across the cut, and only the gradient stops there.)
# </details>

# %% [raw] slide
# ## Which language model predicts best?
# n-grams, a window network, RNN, LSTM, GRU: states of 96 numbers, three epochs each.
#
# > **Place your bets.** Where do the networks lie among the n-gram models?

# %% tags=["hide-input"]
models = ["2-gram", "3-gram", "5-gram", "window", "RNN", "RNN, d = 168", "LSTM", "GRU",
          "5-gram and GRU"]
kinds = {model: "counting" if model.endswith("gram") else "average" if " and " in model
         else "networks" for model in models}
average = {model: mean(perplexities(model)) for model in models}
models.sort(key=average.get, reverse=True)
row = {model: f"{model}: {average[model]:.1f}" for model in models}
marks = {row[model]: perplexities(model)[: 1 if kinds[model] == "counting" else None]
         for model in models}
viz.strip_plot(marks, "test perplexity", {row[model]: kinds[model] for model in models})
#| caption: Test perplexity of n-gram models and networks, the worst at the top. Marks: runs.
#|   Lines: means, also printed beside the names. The axis does not begin at 0.
#| label: language-models

# %% [raw] slide
# ## With this budget the 5-gram model is best; among networks gates pay
# {figure}
#
# Averaged with the GRU it is better still. Larger networks that train for longer win.

# %% tags=["hide-input"]
cells = [kind(d, d) for kind, d in ((nn.RNNCell, 168), (nn.GRUCell, 96))]
assert [sum(q.numel() for q in cell.parameters()) for cell in cells] == [56_784, 55_872]
assert record["size"]["RNN, d = 168"] > record["size"]["GRU"], "more parameters, yet behind"
assert models[0] == "2-gram" and models[-2:] == ["5-gram", "5-gram and GRU"]
assert average["5-gram"] < average["GRU"] < 0.9 * average["RNN"]
assert average["RNN"] < average["2-gram"]
assert average["LSTM"] < 0.9 * average["RNN"] and average["window"] < 1.1 * average["RNN"]
assert max(perplexities("GRU")) < 0.9 * min(perplexities("RNN, d = 168"))
assert average["RNN, d = 168"] > (average["RNN"] + average["GRU"]) / 2, "less than half of it"
assert max(perplexities("5-gram and GRU")) < 0.9 * average["5-gram"]

# %% [markdown]
# **The networks lie between the bigram model and the 5-gram model: with this little text and these small networks,
# counting wins.** Their order suggests what the gates are worth. The LSTM and the GRU are far ahead of the RNN of the
# same width, which is no better than the window network. Size explains only a part of this lead: the wider RNN has more
# parameters than the GRU, but closes less than half of the gap.
#
# The average of the 5-gram model and the GRU is the best of all, as in Bengio et al. ([-@bengio2003]) and Mikolov et
# al. ([-@mikolov2010]). Perhaps **counting remembers and parameters generalise**. But averages of two models of one
# kind often gain, too. The control is missing here: an average of two GRUs. So this is only a guess.
#
# Larger networks that train for longer overtake counting. On a billion words, a smoothed 5-gram model has a perplexity
# of 68 per *word* ([@chelba2013]), and a large LSTM has 30 ([@jozefowicz2016]).
#
# > **Check yourself.** The 5-gram model and the GRU read ten times as much text. Which of the two grows?
# > <details><summary>Answer</summary>The 5-gram model: most runs of five are new, so it stores more and more counts.
# > The GRU has 1,024 × 96 numbers in its table, 6 × 96 × 96 in its cell and some biases, however much it
# > reads.</details>
#
# *This is a good place for a break.*

# %% [raw] slide
# ## Problem 1: a long path
# > *The **keys** that my brother left on the small table beside the front door **are** gone.*
#
# - Words at a distance $k$ need $k$ steps to meet.
# - Going backward: $h_t = w\,h_{t-1}$ gives $\partial h_{60} / \partial h_0 = w^{60}$: 0.002 for $w = 0.9$, 304 for $w = 1.1$.
# - RNN: $\partial h_t / \partial h_{t-1} = \operatorname{diag}(1 - h_t^2)\, W_h^\top$. LSTM, gates held fixed: $\partial c_t / \partial c_{t-1} = \operatorname{diag}(f_t)$.
#
# > **Guess first.** Which of an untrained RNN, LSTM and GRU lets the gradient through from 60 steps back? And what changes if 3 is added to the bias of the gate that keeps?

# %% [markdown] teaches="linear interaction distance, locality, vanishing gradients"
# ## Problem 1: a long path, and gradients that vanish on it
#
# A recurrent network *can* carry a word along for as long as it likes, but will it learn to? Take *The keys that my
# brother left on the small table beside the front door **are** gone.* The verb must be *are* because of *keys*,
# thirteen words back. Neighbours interact easily (**locality**). But between two words at a distance $k$ a signal needs
# $k$ steps, even if the words belong together. This is called a **linear interaction distance**.
#
# **A gradient takes the same path backwards, and each step multiplies it by a factor.** Training applies
# backpropagation to the unrolled network of [@fig:rnn], which is called **backpropagation through time**. If the
# state is one number and $h_t = w\, h_{t-1}$, then $\partial h_{60} / \partial h_0 = w^{60}$. This is 0.002 for
# $w = 0.9$, a **vanishing gradient**, and 304 for $w = 1.1$, an **exploding gradient** ([@hochreiter1991];
# [@bengio1994]).
#
# With vectors, each factor is a matrix, the **Jacobian**: row $j$, column $i$ says how the new component $j$ changes
# with the old component $i$. On the left is the RNN's; $1 - h_t^2$ is the slope of tanh. On the right is that of the
# LSTM's cell state, with gates and candidate held fixed:
#
# $$\frac{\partial h_t}{\partial h_{t-1}} = \operatorname{diag}\bigl(1 - h_t^2\bigr)\, W_h^\top \qquad\qquad
# \frac{\partial c_t}{\partial c_{t-1}} = \operatorname{diag}(f_t)$$ (eq:jacobians)
#
# * **RNN:** The slopes of tanh are at most 1. Suppose that $W_h$ shrinks every vector: its largest **singular value**
#   is below 1. Then the product of many Jacobians must vanish. Otherwise it may vanish or explode ([@pascanu2013]).
# * **LSTM:** Each component of $c$ is multiplied by its own forget gate at each step. Gates are at most 1, so along
#   $c$ nothing explodes. The gradient survives if the gates stay near 1.
#
# The next function measures, in an untrained network, the gradient from the last state back to a token's vector $k$
# steps earlier. `factor` multiplies the RNN's $W_h$; `bias` is added to the gate that keeps, $f$ or $z$.

# %%
def gradient_by_distance(kind, seed, factor=1.0, bias=0.0, d=64, n=61):
    torch.manual_seed(seed)
    network = kind(d, d, batch_first=True).double()
    with torch.no_grad():
        network.weight_hh_l0 *= factor                       # all of the old state's matrices
        network.bias_ih_l0[d : 2 * d] += bias                # an LSTM's forget gate, a GRU's z
    x = torch.randn(16, n, d).double().requires_grad_()      # (batch, n, d)
    states, _ = network(x)                                   # (batch, n, d)
    (states[:, -1] * torch.randn(16, d)).sum().backward()    # a random mix of the last state
    sizes = x.grad.norm(dim=-1).mean(dim=0)                  # (n,)
    return {k: sizes[-1 - k].item() for k in (1, 10, 20, 30, 40, 50, 60)}

# %% [markdown]
# A fresh gate is half open, because $\sigma(0) = \tfrac12$, but with 3 added to its bias it keeps $\sigma(3) = 0.95$.
# *Guess:* in how many of the three networks, with torch's default weights, does a gradient reach a token 60 steps
# back: none, one or all? And in how many after one change, a factor of 2.8 or 3 added to the bias?

# %% tags=["hide-input"]
changes = {
    "torch's default weights":
        {"RNN": (nn.RNN, 1, 0), "LSTM": (nn.LSTM, 1, 0), "GRU": (nn.GRU, 1, 0)},
    "one change in each": {
        "RNN, $W_h$ × 2.8": (nn.RNN, 2.8, 0), "LSTM, bias of f + 3": (nn.LSTM, 1, 3),
        "GRU, bias of z + 3": (nn.GRU, 1, 3),
    },
}
gradients = {panel: {} for panel in changes}
for panel, networks in changes.items():
    for name, (kind, factor, bias) in networks.items():
        found = [gradient_by_distance(kind, seed, factor, bias) for seed in range(3)]
        gradients[panel][name] = {k: [run[k] for run in found] for k in found[0]}
figures.seed_lines(gradients, "steps back", "gradient that reaches the token", log_x=False,
                   log_y=True, ratios=True)
#| caption: Gradient that reaches a token (log scale), in untrained networks. Marks: three
#|   seeds. “Left”: the gradient at 60 steps, divided by the gradient at 1 step.
#| label: vanishing-gradient

# %% tags=["hide-input"]
fresh, changed = gradients.values()
left = {name: [far / near for far, near in zip(points[60], points[1], strict=True)]
        for name, points in {**fresh, **changed}.items()}
assert all(max(left[name]) < 1e-8 for name in fresh), "by default nothing arrives"
assert min(left["RNN, $W_h$ × 2.8"]) > 0.1 and max(left["RNN, $W_h$ × 2.8"]) < 20
larger = [gradient_by_distance(nn.RNN, seed, 3.5) for seed in range(3)]
assert min(run[60] / run[1] for run in larger) > 1e2, "and 3.5 makes it explode"
assert min(left["LSTM, bias of f + 3"]) > 0.3 and max(left["LSTM, bias of f + 3"]) < 3, "level"
ten_back = max(fresh["GRU"][10]) / min(fresh["GRU"][1])
assert 0.2 > min(left["GRU, bias of z + 3"]) > ten_back, "less in sixty steps than in ten"
cell, x, h = nn.RNNCell(3, 4), torch.randn(3), torch.randn(4)
slopes = torch.diag(1 - cell(x, h) ** 2)                                             # (4, 4)
jacobian = torch.autograd.functional.jacobian(partial(cell, x), h)                   # (4, 4)
assert torch.allclose(jacobian, slopes @ cell.weight_hh, atol=1e-6), "W_h is weight_hh.mT"
torch.manual_seed(0)
carried, entries = torch.randn(1000, 64), nn.RNN(64, 64).weight_hh_l0                # (64, 64)
shrinks = (carried @ entries.mT).norm(dim=-1) / carried.norm(dim=-1)                 # (1000,)
assert abs(shrinks.mean() - 0.58) < 0.03
assert 1 < torch.linalg.matrix_norm(entries, ord=2) < 1.2, "a few vectors it stretches"

# %% [raw] slide
# ## Vanishing and exploding gradients
# {figure}
#
# - A fresh gate is half open, $\sigma(0) = \tfrac12$. One bias opens it: $\sigma(3) = 0.95$.
# - The right factor makes the RNN's line level, but nothing holds it there. Exploding gradients are **clipped**.

# %% [raw] slide
# ## Does a small gradient at the start keep a network from learning?
# Name the first token after $k$ tokens of noise, after 300 steps of training.
#
# > **Guess first.** Which of the six networks succeed at $k = 20$?

# %% [markdown]
# **None on the left, all three on the right.** The lines on the left fall straight on a logarithmic axis, because each
# step loses about the same share. Even the gated networks lose their gradient: a fresh gate forgets about half of the
# state at every step, and the other paths bring back only a little.
#
# **A gate that starts nearly open keeps the path open.** On the right, the GRU keeps about what
# $0.95^{60} \approx 0.05$ lets through, and loses less in sixty steps than it lost before in ten. The LSTM's line is
# level, because more arrives through $h$ and the gates. The RNN's line is level, too: a factor of 2.8 makes up for
# what $W_h$ and the slope of tanh take away. But nothing holds $W_h$ at this value while the network learns. At 3.5,
# the gradient already explodes.
#
# <details><summary>Why 2.8?</summary>
#
# Torch's $W_h$ stretches a few vectors, so the bound for the RNN does not decide. But it shrinks a *typical* vector to
# about 0.58 of its length. The factor makes up for this and for the slope of tanh. An RNN can also *start* with a level
# line: Le et al. ([-@le2015]) take the identity as $W_h$, and the ReLU instead of tanh.
#
# </details>
#
# In practice, 1 or more is added to the bias of the forget gate ([@jozefowicz2015]), and exploding gradients are
# **clipped**: a gradient with a norm above 1, say, is scaled down to 1.
#
# ## Does a small gradient at the start keep a network from learning?
#
# That was before training. What do the networks *learn*? Each text begins with a *name*, which is one of ten tokens.
# Then come $k$ tokens of noise. From its last state, the network must say which name it read. The six networks of
# [@fig:vanishing-gradient], with states of 64 numbers, were trained for 300 steps, for each $k$ at the best of three
# learning rates. *Guess:* which of the six succeed at $k = 20$?

# %% tags=["hide-input"]
long_paths = measured("long_paths")
named_right = {}
for row in long_paths["found"]:
    named_right.setdefault(row["network"], {})[row["k"]] = row["right"]
panels = {"torch's default weights": {
              name: named_right[name] for name in ("RNN", "LSTM", "GRU")},
          "one change in each": {name.replace("W_h", "$W_h$"): line for name, line in
                                 named_right.items() if name not in ("RNN", "LSTM", "GRU")}}
figures.seed_lines(panels, "tokens of noise, k (log scale)", "share correct", chance=0.1,
                   chance_at=27, apart=0.14)
#| caption: How often a trained network names the token that it read before k tokens of noise.
#|   One line for each of three seeds; the marks of one k stand side by side.
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
# A path that is closed at the start can keep a network from learning in 300 steps; an open one does not guarantee it. (An open gate also keeps the name itself.) The fresh GRU learns anyway: for it, not to write is to keep.

# %% [markdown]
# At $k = 20$ both GRUs succeed. The LSTM succeeds only with its forget gate open, and the RNN only with the larger
# $W_h$, in two of three seeds. **A path that is closed at the start can keep a network from learning in 300 steps, but
# an open one does not guarantee learning.** The larger $W_h$ no longer helps at $k = 40$, where a gradient did arrive
# before training.
#
# The experiment has a confound. An open gate keeps more than the gradient: on the way forward, it also keeps the name.
# The figure cannot say which of the two helps.
#
# The unchanged GRU is the surprise: its gradient is about as small as the LSTM's, yet it learns at every distance. The
# box *Going further* tests an explanation.
#
# <details><summary><b>Going further</b>: why does the unchanged GRU learn?</summary>
#
# Here is an explanation that makes a prediction, and a test that it could have failed.
#
# * **Hypothesis.** In a GRU, one gate both keeps and writes, so *not to write is to keep*. Noise in the state disturbs
#   the answer. Raising $z$ towards 1 keeps it out, which pays at once and needs no gradient from far back. Once $z$ is
#   high, the gradient from far back arrives as well. An LSTM can fight the noise in two other ways, neither of which
#   raises $f$: it can close its input gate, or lower its forget gate, which erases the noise and the name together.
# * **Prediction.** $z$ rises even where there is nothing to remember.
#
# To test this, we drew the right answer at random, so that no name helps, and trained both networks for 150 steps at
# $k = 20$. The table has means of three seeds: the gate that keeps, averaged over the noise, and the gradient 20 steps
# back as a share of the gradient 1 step back.
#
# | | gate, untrained | after 150 steps | gradient, untrained | after 150 steps |
# |---|---|---|---|---|
# | GRU, $z$ | 0.51 | 0.67 | 0.00017 | 0.01535 |
# | LSTM, $f$ | 0.51 | 0.36 | 0.00013 | 0.00002 |
#
# The prediction holds: the GRU's $z$ rises, and more of the gradient arrives, whereas the LSTM's $f$ falls. This is one
# test, at one distance, and no proof.
#
# </details>
#
# > **Check yourself.** An LSTM can open its forget gates and its input gates at the same time. What goes wrong if it
# > always leaves all of them open?
# > <details><summary>Answer</summary>Then nothing is ever removed, and everything is added to everything: keeping and
# > taking in compete for the same numbers. That is the second problem.</details>

# %% tags=["hide-input"]
unlearnable = {}
for name in ("GRU", "LSTM"):
    for when in ("before", "after"):
        kept = [run[when] for run in long_paths["unlearnable"] if run["network"] == name]
        means = [mean(run[of] for run in kept) for of in ("gate", "gradient")]
        unlearnable[name, when] = [f"{means[0]:.2f}", f"{means[1]:.5f}"]
for run in long_paths["unlearnable"]:
    opens = run["network"] == "GRU"
    assert (run["after"]["gate"] > run["before"]["gate"] + 0.1) == opens
    grown = run["after"]["gradient"] / run["before"]["gradient"]
    assert grown > 30 if opens else grown < 0.5
gates, shares = zip(*unlearnable.values(), strict=True)
assert gates == ("0.51", "0.67", "0.51", "0.36")
assert shares == ("0.00017", "0.01535", "0.00013", "0.00002")

# %% [markdown] teaches="encoder and decoder, and the bottleneck between them; mean pooling as a starting point"
# ## Problem 2: encoder, decoder, and the bottleneck between them
#
# Even if the path is open, everything that is kept must fit into one vector. This limit was first noticed in
# machine translation. An **encoder** is a network that reads a text. A **decoder** is a language model that starts from
# the encoder's last state and writes another text $y$. It models $p(y \mid x) = \prod_t p(y_t \mid y_{<t}, x)$, where
# $x$ is the source and $y_{<t}$ is what has been written before $y_t$. Together they form the **encoder–decoder** or
# **sequence-to-sequence** model ([@kalchbrenner2013]; [@cho2014]; [@sutskever2014]).
#
# In training the decoder reads the right earlier words (**teacher forcing**, [lecture
# @cross_attention](@cross_attention)), but when it writes, it reads its own. The picture translates *vier und zwanzig*,
# which German writes as one word. Follow what the decoder learns of the source:

# %%
figures.encoder_decoder(["vier", "und", "zwanzig"], ["twenty", "four", "<eos>"])
#| caption: An encoder–decoder: one vector is all that the decoder knows of the source.
#| label: bottleneck

# %% [raw] slide
# ## Problem 2: the bottleneck between encoder and decoder
# {figure}
#
# All that the decoder learns of the source is one vector. Too narrow, or only a long path?
#
# **Now you:** a@bottleneck, extension `mean_pool`

# %% [markdown]
# **Everything that the decoder learns of the source goes through the orange arrow**: one vector of $d$ numbers, for
# three words or three hundred. This vector may be the last state, $s_0 = h_n$, or the mean of all states, called
# **mean pooling**, which is an extension of the assignment.
#
# The first encoder–decoders got worse as the sentences grew longer ([@cho2014properties]), but Sutskever et al.
# ([-@sutskever2014]) had no such difficulty. They read the source backwards, which shortens the path between the
# first words. But they also handed over 8,000 numbers. So which is to blame, the long path or the narrow vector?
#
# ## The bottleneck measured: how much can a network pass through one vector?
#
# To find out, we need a task whose path stays short while we change the width. Translation is not such a task. In
# **associative recall** a GRU reads $n$ different letters, each with a digit, such as *k7 a3 q9 …*, and is then asked
# for the digit of one letter: *a?* While it reads, it does not know which letter this will be.
#
# We compare two readers that differ in one thing: what they still have when the question comes. One keeps a single
# vector. The other keeps all states and uses **attention**, a weighted average that is taken once the question is
# known. How it works is the subject of the next lecture; here it is a box, `attend`, and the α in the picture are its
# weights. Then a **readout** computes the answer. It multiplies what was found by `scale`, a linear map of the
# question, so that the question can block the numbers it does not need.

# %%
figures.two_readers(["k7", "a3", "q9"], asked=1)
#| caption: Two readers built from the same layers, each trained on its own. They differ only
#|   in which states reach `attend`.

# %% [raw] slide
# ## Two readers: one vector, or all states
# {figure}

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

# %% [markdown]
# With one vector, `attend` changes nothing, because that vector has the weight 1. Both readers have states of 16
# numbers. We train them for 800 steps on texts of 1, 2, 4, 8 or 16 pairs, and test them with eight:

# %% tags=["hide-input"]
def losses_of(reader, draws):
    """One loss after another, each of a new batch."""
    for n in 160 * (1, 2, 4, 8, 16):             # pairs: 1, 2, 4, 8, 16, 1, 2 …, 800 batches
        letters, digits, asked, answer = letters_with_digits(64, n, draws)
        yield cross_entropy(reader(letters, digits, asked), answer)


for memory in ("last state", "attention"):
    torch.manual_seed(0)
    reader, draws = Reader(memory, d=16), torch.Generator().manual_seed(0)
    descend(reader, losses_of(reader, draws), steps=800, lr=2e-2, progress=False)
    letters, digits, asked, answer = letters_with_digits(2000, 8, draws)
    right = (reader(letters, digits, asked).argmax(dim=-1) == answer).float().mean()
    print(f"{memory:>10}, d = 16: {right:.0%} right with 8 pairs")

# %% [raw] slide
# ## How much can a network pass through one vector?
# *k7 a3 q9 …* and then: *a?*
#
# {print}
#
# > **Guess first.** Draw the share of right answers against the number of pairs: one vector of 16, 32, 64, 128, 256 numbers, and attention with 16. With sixteen pairs, attention keeps 256 numbers, too: will the two be equal?

# %% [markdown]
# Is the vector of 16 numbers merely too narrow? The next figure shows five widths, the wider the darker. Each reader
# has the best of four learning rates. At d = 16, 128 and 256 this is the highest or the lowest of the four, so a rate
# beyond might do better. The grey dotted line is the score of a player who knows which digits were read, but not with
# which letters, and names the most frequent one. With sixteen pairs, attention keeps 16 states of 16 numbers, as many
# as the widest vector has. *Guess:* will these two be equal?

# %% tags=["hide-input"]
recall = measured("recall")
counts = (1, 2, 4, 8, 16)
by_reader = {(reader["memory"], reader["readout"], reader["d"], reader["steps"]):
             {n: [run["right"][str(n)] for run in reader["runs"]] for n in counts}
             for reader in [*recall["readers"], *recall["longer"]]}
one = {d: by_reader["last state", "product", d, 800] for d in (256, 128, 64, 32, 16)}
every = {d: by_reader["attention", "product", d, 800] for d in (16, 32, 64, 128)}
lines = {"attention, 16 per pair": every[16], **{f"one vector, d = {d}": one[d] for d in one}}
colours = {"attention, 16 per pair": figures.ORANGE,
           **{f"one vector, d = {d}": blue for d, blue in figures.blues(list(one)).items()}}
letter_blind, draws = {}, torch.Generator().manual_seed(0)
for n in counts:
    letters, digits, asked, answer = letters_with_digits(20_000, n, draws)
    letter_blind[n] = (digits.mode(dim=1).values == answer).double().mean().item()
figures.seed_lines({"": lines}, "pairs to remember", "share of right answers", colours=colours,
                   floor=("knows the digits,\nnot the letters", letter_blind))
sizes = {(reader["memory"], reader["d"]): reader["parameters"] for reader in recall["readers"]
         if reader["readout"] == "product"}
longer_at_16 = [run["right"]["16"] for run in recall["widest"]["runs"]]
print("sixteen pairs, 256 numbers kept:",
      f"one vector {mean(one[256][16]):.2f}, attention {mean(every[16][16]):.3f};",
      f"{sizes['last state', 256] / sizes['attention', 16]:.0f} times the parameters")
print(f"one vector with {recall['widest']['steps']:,} steps (at a lower learning rate):",
      f"{mean(longer_at_16):.2f}")
#| caption: Right answers after 800 steps, by the number of pairs. One vector keeps d numbers,
#|   attention 16 for each pair. Dots: seeds; lines: means.
#| label: one-vector

# %% tags=["hide-input"]
for d in (16, 32, 64, 128):
    assert min(every[d][16]) > 0.95, "attention: right at every width"
    assert max(one[d][16]) < 0.85, "one vector: not even with 128"
halves = [sum(one[d][8]) for d in sorted(one)]
assert halves == sorted(halves), "wider is better"
eight_each = [f"{mean(one[8 * n][n]):.2f}" for n in (2, 4, 8, 16)]
assert eight_each == ["0.88", "0.85", "0.81", "0.77"], "more than twice the width"
assert max(one[256][16]) < min(every[16][16]), "and attention is better"
assert round(mean(longer_at_16), 2) == 0.98, "six times the training: closer"
assert 0 < mean(one[16][16]) - letter_blind[16] < 0.06, "next to nothing is looked up"
rate = {(reader["memory"], reader["d"]): reader["lr"] for reader in recall["readers"]
        if reader["readout"] == "product"}
lowest, *between, highest = recall["rates"]
assert [rate["last state", d] for d in (128, 256)] == [lowest, lowest], "at the edge"
assert rate["last state", 16] == rate["attention", 16] == highest, "at the other edge"
assert {rate["last state", 32], rate["last state", 64]} <= set(between)
assert recall["widest"]["lr"] == lowest / 2
assert math.log2(10**8 * math.comb(26, 8)) < 50, "the bits of eight pairs, in any order"

# %% [raw] slide
# ## One vector is a bottleneck
# {figure}
#
# A wider vector's line falls later. With attention, 16 numbers are enough: what is kept grows with the text.
#
# **With the same memory**, 256 numbers: 0.89 against 0.995, with 184 times the parameters.

# %% [markdown]
# **One vector is a bottleneck.** Both readers keep 256 numbers, yet one vector reaches 0.89, and attention 0.995. A
# wider vector's line falls later, but within these 800 steps each of them falls. Only attention's stays near 1. Twice
# the pairs need a little more than twice the width: with eight numbers per pair, the share falls from 0.88 with two
# pairs to 0.77 with sixteen. Six times the training, at half the lowest rate, lifts the widest vector from 0.89 to
# 0.98. It still has 184 times attention's parameters.
#
# **Yet the vector is not full.** Eight pairs are fewer than 50 bits, and even sixteen floats of 32 bits have 512. So
# the limit is not what the numbers could hold. It is what the network learns, in these steps, to pack and unpack.
#
# ## Is it the width of the vector? One change at a time
#
# The fault may also lie with the size of the network, the path, the training or the readout. So we start from one
# vector of 64 numbers and eight pairs, and change one thing at a time:
#
# * **Width:** the vector has 128 numbers.
# * **Network:** the same network of 128 hands over only the first 64 numbers of its state.
# * **Path:** the reader keeps the mean of all states, so each is one step away.
# * **Training:** it trains for six times as many steps.
# * **Readout:** it puts vector and question side by side (*concatenation*) instead of multiplying them.
#
# Three more rows are for comparison: attention, which keeps all states, with either readout, and concatenation with
# longer training. Only the learning rate is not held fixed: each row has the best of four, for some the lowest.
# *Guess:* which of the five changes hurts most, and which two help most?

# %% tags=["hide-input"]
part = {reader["kept"]: [run["right"]["8"] for run in reader["runs"]]
        for reader in recall["kept"]}
rows = {
    "width 128": one[128][8],
    "first 64 numbers of a GRU of 128": part[64],
    "mean of all states": by_reader["mean pool", "product", 64, 800][8],
    "six times the training": by_reader["last state", "product", 64, 4800][8],
    "concatenation": by_reader["last state", "concatenation", 64, 800][8],
}
compared = {
    "attention": every[64][8],
    "attention + concatenation": by_reader["attention", "concatenation", 64, 800][8],
    "concatenation + six times the training":
        by_reader["last state", "concatenation", 64, 4800][8],
}
figures.one_change(("one vector of 64 numbers", one[64][8]), rows,
                   "share of right answers with eight pairs",
                   ("most frequent digit", letter_blind[8]), compared)
#| caption: One vector of 64 numbers (black line), and where one change takes it. Below the grey
#|   line: for comparison. Dots: three seeds; numbers: means.
#| label: readout

# %% tags=["hide-input"]
means = {row: mean(values) for row, values in {**rows, **compared}.items()}
base = mean(one[64][8])
assert min(rows["width 128"]) > max(rows["six times the training"]) > base + 0.1
gained = {row: value - base for row, value in means.items()}
assert 0 < gained["first 64 numbers of a GRU of 128"] < 0.5 * gained["width 128"], "size: less"
assert -0.06 < gained["mean of all states"] < 0, "a short path does not help"
assert abs(means["concatenation"] - letter_blind[8]) < 0.03 and letter_blind[8] < 0.35
assert letter_blind[8] + 0.05 < means["concatenation + six times the training"] < 0.5
assert min(compared["attention"] + compared["attention + concatenation"]) > 0.99, "either way"
columns = zip(*(run["right"]["16"] for run in recall["by_quarter"]["runs"]), strict=True)
quarters = [f"{mean(column):.2f}" for column in columns]
assert quarters == ["0.56", "0.52", "0.56", "0.64"], "hardly the path"

# %% [raw] slide
# ## One change at a time
# {figure}
#
# Width and training make most of the difference, the size of the network less; a short path does not help. The readout must be able to select: vary one thing at a time.

# %% [markdown]
# **The readout hurts most; twice the width and longer training help most.** With concatenation the reader does no
# better than a player who knows all digits, forgets their letters and names the most frequent one. Six times the
# training lifts it only a little above this player. Attention answers everything with either readout. Had we tested
# one vector with this readout alone, we would have mistaken its weakness for the bottleneck.
#
# **The width decides more than the size of the network.** A GRU of 128 that hands over only 64 numbers gains less than
# half of what 128 numbers gain. Longer training helps nearly as much as twice the width, so part of the difficulty is
# *learning* to pack.
#
# **The path is hardly to blame.** If it were, the first of sixteen pairs would be recalled worst, but from the first
# quarter of the text to the last, the shares are 0.56, 0.52, 0.56 and 0.64. The mean of all states, with its short
# path, does no better than the last state either, but it may blur them.
#
# **Now you:** [a01](@bottleneck/assignment), exercise 5: a readout that can select.
#
# > **Check yourself.** (1) Both readers have the same number of parameters. What does attention cost instead, and how
# > does this cost grow with $n$? (2) A reader gets 0.55 with two pairs and 0.38 with four. Is its vector too narrow?
# > <details><summary>Answers</summary>(1) Memory, and work when the question comes. Both grow with n, because attention
# > keeps n states instead of one and averages over all of them. Lecture @cheap_attention is about this price. (2) That
# > does not follow, because a reader that knows every digit, but not its letter, gets these very shares by naming the
# > most frequent digit (the grey line of [@fig:one-vector]). With two pairs, it names the right pair's digit half of
# > the time, and otherwise the two digits may be the same: ½ + ½ · ⅒ = 0.55. So change the readout or the training
# > first.</details>

# %% [raw] slide
# ## Problem 3: one step after the other
# To compute $h_{100}$ you need $h_{99}$. In attention, no position waits for another.
#
# > **Guess first.** How many cells does a signal pass through, and how many steps must it wait?

# %% [markdown] teaches="operations that cannot be parallel"
# ## Problem 3: one step after the other
#
# The third problem has nothing to do with learning. **To compute $h_{100}$ you need $h_{99}$, and for that you need
# $h_{98}$. In attention, no position waits for another.** In the widget, the number in a box is the earliest step at
# which that state can be ready. Change the length, and see what grows:

# %% tags=["hide-input"]
def draw_path(length, signal):
    distance = {"from the neighbour": 1, "from half way": length // 2,
                "from the first": length - 1}
    return figures.signal_path(length, distance[signal])


signals = ["from the neighbour", "from half way", "from the first"]
viz.explore(draw_path, length=[4, 8, 12, 16], signal=signals,
            start={"length": 12, "signal": signals[-1]})
#| caption: The path of a signal (orange) to the last position. Attention looks only back here;
#|   lines lead into two positions, the last and one in the middle (pale).

# %% [raw] slide
# ## How far, and how many steps?
# {figure}
#
# > **Guess first.** Does waiting cost time even on one thread? Time *per position*: a recurrence, attention, and the recurrence's cell applied to all at once. Which line rises with $n$?

# %% [markdown]
# Does waiting cost time even on one thread, where nothing runs in parallel anyway? We time `nn.RNN`, attention as
# [lecture @self_attention](@self_attention) will build it, looking both ways, and the RNN's cell applied to all $n$
# vectors at once. The last is no model of a text, but does the same multiplications as the RNN in one large product.
# *Guess:* which line, in time **per position**, rises with $n$?

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
    start = clock()
    with torch.no_grad():
        function(x)
    return 1e6 * (clock() - start) / len(x)


ways = {"nn.RNN": rnn, "attention": attention, "the RNN's cell,\nall at once": all_at_once}
texts = [torch.randn(n, 128) for n in (16, 64, 256, 1024, 4096)]
taken = {name: {len(x): math.inf for x in texts} for name in ways}
for _ in range(10):             # in turn, so that a slow moment does not fall on one length
    for x in texts:
        for name, way in ways.items():                         # other programs only add time
            found = microseconds_per_position(way, x)
            taken[name][len(x)] = min(found, taken[name][len(x)])
recurrent, attending, parallel = taken.values()
figures.times(taken, ("nn.RNN", "the RNN's cell,\nall at once"), at=4096)
#| caption: Time per position, on one thread: a recurrence, attention, and n products at once.
#|   The fastest of ten runs; both axes are logarithmic.

# %% tags=["hide-input"]
assert all(recurrent[n] > 1.5 * parallel[n] for n in (1024, 4096))
assert parallel[1024] < parallel[16]
assert attending[4096] > 3 * attending[256]

# %% [raw] slide
# ## Waiting costs time even on one thread
# {figure}
#
# The longer the text, the more work attention does per position. What does not grow is how many of its operations must be done one after another.

# %% [raw] slide
# ## In short
# | | | |
# |---|---|---|
# | language model | $p(w_1, \dots, w_n) = \prod_t p(w_{t+1} \mid w_1, \dots, w_t)$ | logits (batch, n, vocab_size) |
# | cross-entropy | $-\frac1N \sum_i \ln p_i$; perplexity is its exponential | one number |
# | RNN | $h_t = \tanh(x_t W_x + h_{t-1} W_h + b)$ | $(d)$ |
# | LSTM | $c_t = f_t \odot c_{t-1} + i_t \odot \tilde c_t$, $\; h_t = o_t \odot \tanh c_t$ | $(d)$ |
# | gradient over $k$ steps | like $w^k$: vanishes or explodes | |
#
# Three problems: a long path, a fixed size, one step after the other. **All the states** (attention) remove the first two.
#
# **Now do** assignment a@bottleneck. **Next:** lecture @lookup.

# %% [markdown] erratum="a missing with"
# Only attention's line rises clearly with $n$, because each position is compared with all $n$. **But working one step
# at a time has a price even on one thread.** The RNN's $n$ small products, one after another, take several times as
# long as one large product. Probably each small product pays the fixed cost of a call and reads the whole matrix again.
# Attention, too, is made of large products, so on short texts it can be faster although it multiplies more.
# [Lecture @cheap_attention](@cheap_attention) computes a *linear* recurrence in parallel.
#
# > **A common mistake: confusing the number of operations with the number that must wait.** Attention does *more*
# > multiplications, of the order of $n^2$ instead of $n$. What does not grow with the length is how many of them must
# > be done one after another.
#
# ## In short
#
# | | | shape |
# |---|---|---|
# | language model | $p(w_1, \dots, w_n) = \prod_t p(w_{t+1} \mid w_1, \dots, w_t)$ | logits (batch, n, vocab_size) |
# | cross-entropy, perplexity | [@eq:perplexity] | one number |
# | RNN | $h_t = \tanh(x_t W_x + h_{t-1} W_h + b)$ | $h_t$: (d,) |
# | gradient over $k$ steps | a product of $k$ Jacobians [@eq:jacobians]: it vanishes or explodes | (d, d) |
# | LSTM | $c_t = f_t \odot c_{t-1} + i_t \odot \tilde c_t$, $\; h_t = o_t \odot \tanh c_t$ | $c_t$, $h_t$: (d,) |
# | GRU | $h_t = z_t \odot h_{t-1} + (1 - z_t) \odot \tilde h_t$ | $h_t$: (d,) |
# | encoder–decoder | $s_0 = h_n$, $\; p(y_t \mid y_{<t}, x)$ from $s_t$ | $h_n$: (d,) |
#
# A language model predicts the next token from what it keeps of the text, and cross-entropy on new text says how well.
# A recurrent network keeps one state, which brings three problems: (1) the path between tokens is long, (2) one vector
# of fixed size must hold everything that may be asked for, and (3) the steps must be computed one after the other.
#
# | keeps | remembers | a token $k$ back is | sequential steps for $n$ tokens |
# |---|---|---|---|
# | the last four tokens (5-gram, window) | exactly | out of sight, if $k > 4$ | 1 |
# | one state (RNN, LSTM, GRU) | what survived | $k$ steps away | $n$ |
# | **all the states** (attention) | what is asked for | one average away, with a weight of its own | $n$, if the states are recurrent; 1 otherwise |
#
# Keeping all the states removes the first two problems. The third remains as long as the states come from a
# recurrence, which [lecture @cross_attention](@cross_attention) accepts and [lecture
# @self_attention](@self_attention) does without.
#
# > **Check yourself.**
# > 1. Two tokens stand 50 apart. Through how many cells does a signal go in a network that reads from left to right?
# >    And what if a second network reads from right to left (a **bidirectional** encoder)? Why can a language model not
# >    have it?
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
# >    write, and see whether it gets worse. For the bottleneck, widen the state and leave the path as it is.
# >    Comparing positions, as we did with early pairs, does not decide here, because a word that is read first is
# >    also written first, so every word's path is about as long as the source.
# > 3. Compare with [@fig:bottleneck]. All of $h_1$ to $h_3$ and $s_1$ are computed before *twenty*, and everything
# >    passes through the arrow $s_0 = h_3$. While training, $s_2$ reads the right word, *twenty*; while writing, it
# >    reads the word that the decoder has just written, right or wrong.</details>
#
# **Now do** [assignment @bottleneck](@bottleneck/assignment) (about 80 minutes, and about 30 more for the two
# extensions): exercises 1 to 5, two questions in words, and, as extensions, the mean of states and all states of a
# batch. **Next:** [lecture @lookup](@lookup) opens the box: what is a weighted average that depends on a question?
#
# **Further reading.** [+@shannon1951], describes the game. [+@chen1999]. [+@bengio2003], sections 1 and 2.
# [+@mikolov2010]. [+@hochreiter1997]. [+@pascanu2013], section 2, on gradients that vanish and explode.
# [+@cho2014], and [+@sutskever2014].
