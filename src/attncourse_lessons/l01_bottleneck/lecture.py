# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3 (ipykernel)
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Lecture @bottleneck · The bottleneck: what a reader carries along
#
# *About 60 minutes, of which one is computing. You need Python, tensors in PyTorch and the habits of
# [lecture @getting_ready](@getting_ready): shapes, masks, softmax. No language model and no recurrent network is assumed.*
#
# When you have finished you will be able to say what a language model is and how two of them are compared, to build one
# by counting and one by gradient descent, to write down the step of a recurrent network and say why its gradient dies,
# and to name the three things that are wrong with carrying a text along in one vector. The rest of the course is the
# answer to these three. In [assignment @bottleneck](@bottleneck/assignment) you build the parts.
#
# ## A parlour game
#
# In 1951 Claude Shannon published a parlour game. One person covers a page of a book, another guesses what stands there,
# letter by letter, and is told the right letter each time. People are good at it. Try: what comes after *Return the number*?
#
# You probably said *of*, and to say it you used more than the last word, and less than everything that you have ever read.
# That is the subject of this lecture: to guess the next word, a reader must carry along something of the words before it. How
# much, and in what form? We shall build readers that carry the last few words, exactly, and one that carries everything,
# squeezed into a vector of fixed size; and we shall find out what neither kind can do.

# %%
try:
    from attncourse import viz

    from . import figures
except ModuleNotFoundError:
    raise ImportError(
        "This page needs the attncourse package: open it with `make lab` in the course's folder, "
        "or choose a kernel of the environment in which you installed the course."
    ) from None

# %%
import math
import re
import time
from collections import Counter
from functools import cache

import torch
from torch import nn
from torch.nn.functional import cross_entropy

from attncourse.attention import attend
from attncourse.data import BOS, EOS, Tokenizer, docstrings, encode_texts, text_batches
from attncourse.decoding import greedy
from attncourse.metrics import perplexity, text_log_probabilities
from attncourse.ngram import NGram
from attncourse.recurrent import RecurrentLanguageModel
from attncourse.training import descend, fit_texts

torch.set_num_threads(1)  # models as small as these gain nothing from a second thread, and lose when it has to wait

# %% [markdown]
# The game needs a text. We take one that you have already: the docstrings of Python's standard library, or rather their
# prose, without examples and tables. It is real English, written by hundreds of people. (Another version of Python has other
# docstrings; the numbers on your machine will differ a little from those saved here, and the conclusions should not.)

# %%
corpus = docstrings()
print(f"{len(corpus.train):,} texts to learn from, {sum(map(len, corpus.train)):,} characters")
print(f"{len(corpus.test):,} texts to be tested on, {sum(map(len, corpus.test)):,} characters\n")
for text in [t for t in corpus.test if 60 < len(t) < 100][:4]:
    print(text)

# %% [markdown]
# Whole modules are in one part or in the other. Were single docstrings dealt out at random, one of two twins ("Return the
# upper bound.", "Return the lower bound.") would be learned and the other tested, and whoever can recite would look clever.
#
# What is a "word"? Characters are few, but a reader who proceeds by characters must look far back to see anything. Words
# are many, and the test text has some that nobody has seen. The usual way out lies between: **pieces** of words. Frequent
# words are one piece, rare ones several, and a word that is new is spelled out, so nothing is ever unknown. (They are
# found by byte-pair encoding, from the training part alone. [Lecture @training](@training) builds it.)

# %%
tokenizer = Tokenizer.train(corpus.train, size=2048)
train, test = encode_texts(corpus.train, tokenizer), encode_texts(corpus.test, tokenizer)   # lists of ids
n_train, n_test = (sum(len(text) - 1 for text in texts) for texts in (train, test))
print(f"{len(tokenizer)} different pieces; {n_train:,} in the training part, {n_test:,} in the test part")
print(" | ".join(tokenizer.pieces("Return the number of bytes that remain in the buffer, unless it overflowed.")))

# %% [markdown]
# The pieces are our **tokens**. Each text stands between two tokens of its own, `<bos>`, the beginning, which is given and
# never guessed, and `<eos>`, the end, which must be guessed like any other.
#
# ## How surprised are you?
#
# A player who shouts one word and is wrong has told us nothing about how nearly right he was. So we let him distribute his
# bets: before each token he gives every possible token a probability, and we look at the probability $p$ of the one that
# came. His **surprise** is $-\ln p$, nothing if he was sure and right, large if he thought it impossible. The mean surprise
# per token is his loss, in *nats*. And because nats say little to most people, we undo the logarithm at the end:
#
# $$\text{perplexity} = \exp\Bigl(\frac{1}{N} \sum_{i=1}^{N} -\ln p_i\Bigr)$$
#
# It is a number of choices: somebody who guesses among 30 equally likely tokens has a perplexity of 30.

# %%
p = torch.tensor([0.50, 0.02, 0.90])                       # (3,)  what three tokens that came had been given
surprise = -p.log()                                        # (3,)  in nats
print("surprise", surprise, "  perplexity", round(surprise.mean().exp().item(), 2))
assert math.isclose(perplexity(torch.full((10,), 1 / 30).log()), 30, rel_tol=1e-5)

# %% [markdown]
# The second of the three was a shock and makes most of the loss: one bet of nothing would make it infinite. Remember
# that; it is about to matter.
#
# Some count surprise in *bits*, $-\log_2 p$, and raise 2 to the mean. *Before you run the next cell:* does that give another
# perplexity? And what do you get if you take nats and raise 2 to them?

# %%
bits = -p.log2()                                           # (3,)
print(f"2 to the bits {2 ** bits.mean():.3f},  e to the nats {surprise.mean().exp():.3f}")
print(f"2 to the nats {2 ** surprise.mean():.3f}, which looks better and is wrong")
assert torch.isclose(2 ** bits.mean(), surprise.mean().exp()) and 2 ** surprise.mean() < surprise.mean().exp()

# %% [markdown]
# Either base will do, if it is the same on the way out as on the way in.
#
# ## Counting, without order
#
# The oldest way to get hold of a text is to count its words. Weight each count by how rare the word is elsewhere,
# $\ln(N / n_w)$ for a word that stands in $n_w$ of $N$ texts, and you have **tf-idf**, on which search engines lived for
# decades. It works well for what it is for:

# %%
bags = [Counter(re.findall("[a-z]+", text.lower())) for text in corpus.train]
n_texts = Counter(word for bag in bags for word in bag)   # in how many texts each word stands


def tf_idf(bag):
    weights = {w: count * math.log(len(bags) / n_texts[w]) for w, count in bag.items() if w in n_texts}
    length = math.hypot(*weights.values()) or 1.0   # or long texts would win by length
    return {word: weight / length for word, weight in weights.items()}


def match(bag, other):
    return sum(weight * other.get(word, 0.0) for word, weight in bag.items())


# %%
library = [tf_idf(bag) for bag in bags]
query = tf_idf(Counter(re.findall("[a-z]+", "weekday of the first day of the month")))
best = sorted(range(len(bags)), key=lambda i: -match(query, library[i]))[:3]
for i in best:
    print(f"{match(query, library[i]):.2f}  {corpus.train[i][:90]}")

# %% [markdown]
# It found what the texts are about, without a grain of understanding. Now ask it to play the game. What it is given to
# guess from is a bag of words:

# %%
assert tf_idf(Counter(["return", "the", "number"])) == tf_idf(Counter(["number", "the", "return"]))

# %% [markdown]
# What comes next depends on the order, and the order is what it threw away. A slide asks: can we do better than tf-idf? For
# guessing, we must.
#
# ## Counting, with order
#
# Count pairs, then: how often did *number* follow *the*? Divided by how often anything did, this is an estimate of
# $p(\text{number} \mid \text{the})$, and a reader who bets so carries along one word. It is called a **bigram** model; with two
# words it is a trigram model, and in general an *n-gram* model carries $n - 1$.
#
# *Before you run the next cell*, estimate what share of the pairs of neighbours in the test part was never seen in the
# training part. And of the triples? Of the runs of five?

# %%
def runs(texts, n):
    return [tuple(text[i : i + n]) for text in texts for i in range(len(text) - n + 1)]


new = {}
for n in (2, 3, 5):
    seen = set(runs(train, n))
    tested = runs(test, n)
    new[n] = sum(run not in seen for run in tested) / len(tested)
    print(f"runs of {n}: {new[n]:.0%} of those in the test part are new")
assert new[2] > 0.05 and new[5] > 0.6

# %% [markdown]
# A bet of zero on something that then happens is an infinite surprise. So the plain bigram model has an infinite
# perplexity on this text, thousands of times over, and longer runs are worse: most runs of five are new. More text makes
# that better and never good. There are $2048^5 \approx 4 \cdot 10^{16}$ possible runs of five, and nobody has that much.
#
# The remedy: take a little from everything that was seen and give it to what was not, and not to all tokens alike but as the
# shorter context would share it out. With $c(h, w)$ for how often token $w$ followed the context $h$, $c(h)$ for how often
# anything did, and $h'$ for $h$ without its first token:
#
# $$p(w \mid h) = \frac{\max\bigl(c(h, w) - D,\ 0\bigr)}{c(h)} + \frac{D \cdot N(h)}{c(h)}\; p(w \mid h')$$
#
# Each of the $N(h)$ different tokens that followed $h$ pays $D$, a number below one; what was collected goes to the shorter
# context, which does the same in its turn, down to one that gives all tokens the same. (Where $h$ itself is new, the shorter
# context decides alone.) This is the *interpolated* form of Kneser and Ney's model (1995), the best counter that there was
# when networks came. It has a second trick: in shorter contexts it does not count how often a token was seen, but after how
# many *different* tokens. (*Francisco* is frequent and follows one word only. Where the context is new, it is a bad bet.)

# %%
model = NGram(train, order=3, vocab_size=len(tokenizer))
context = [BOS, *tokenizer.encode("Return the")]                          # ids
p = model.distribution(context)                                           # (vocab_size,)
for q, i in zip(*p.topk(5), strict=True):
    print(f"{tokenizer.pieces([int(i)])[0]:>8} {q:.3f}")
print(f"least {p.min():.1e}, sum {p.sum():.4f}")
assert torch.isclose(p.sum(), torch.tensor(1.0), atol=1e-4) and p.min() > 0

# %% [markdown]
# No token gets nothing, and the whole is still one. How well does it play? We vary two things: how many tokens it carries
# along, and how much it has read. *Sketch the curves first:* will a longer memory always help? What helps more, a longer
# memory or a longer education?

# %%
def scores(model):
    return torch.cat([model.log_probabilities(text) for text in test])    # (n_test,)  ln p of each token


shares = {"a 20th of the texts": len(train) // 20, "a quarter": len(train) // 4, "all of them": len(train)}
counters, counted = {}, {share: {} for share in shares}
for share, size in shares.items():
    for n in (1, 2, 3, 5):
        counters[share, n] = NGram(train[:size], n, len(tokenizer))
        counted[share][n] = perplexity(scores(counters[share, n])).item()
viz.line_plot(counted, x_name="order n: carries n − 1 tokens", y_name="perplexity, new text", log_y=True)

# %% [markdown]
# From no memory to one token is a leap, to two a step, and then the curves flatten: there is more to be known from further
# back, but a counter that has never seen the run cannot use it. More text pushes the whole curve down, and helps far more
# than memory does: a bigram that has read everything beats a 5-gram that has read a twentieth. For a generation, better
# language models meant more text and cleverer ways to count it.

# %%
all_read = counted["all of them"]
assert all_read[1] > 3 * all_read[2] and all_read[2] > 1.2 * all_read[3], "the first tokens are worth most"
assert all_read[3] / all_read[5] < 1.25, "two more are worth little"
assert counted["a 20th of the texts"][5] > 3 * all_read[2], "much text and a short memory beat the reverse"

# %% [markdown]
# > **On the slide.** Three decks print a table of *test perplexities* between 1.9 and 5.0 for models that write encyclopedia
# > articles, and do not say what a token is there. A perplexity has a unit, *per token of this vocabulary*, and the unit
# > decides the number. Here is one model and one text, counted per piece and per character. Which of them is the good one?

# %%
bigram, five_gram = counters["all of them", 2], counters["all of them", 5]
nats = -scores(five_gram).sum()                                            # of the whole test part
n_characters = sum(map(len, corpus.test)) + len(corpus.test)               # each <eos> counts as one, too
print(f"per piece {math.exp(nats / n_test):.1f}, per character {math.exp(nats / n_characters):.2f}")
assert math.exp(nats / n_test) > 10 * math.exp(nats / n_characters)

# %% [markdown]
# They are one and the same. So perplexities may be compared only where both count the same tokens of the same text, as
# all of ours do. (Whether the numbers on the slide are per word, per piece, or logarithms, cannot be seen from the slide.)
#
# ## Parameters for counts
#
# There is something that no counting can do. From *Return the number of bytes* it learns nothing about *Returns the count of
# characters*: three of the five words differ, and to a counter different is different. You know that *number* and *count* are
# nearly the same word, and you know it from everything that you have read about either.
#
# So give each token a vector that can be *learned*, its **embedding**. Similar tokens may then come to lie close together.
# And let the past be a vector, too, the **state**. Each step computes a new state $h_t$ from the vector $x_t$ of the token
# that has just been read and from the state before:
#
# $$h_t = \tanh\bigl(x_t W_x + h_{t-1} W_h + b\bigr)$$
#
# From the state, a linear map makes one number for each possible next token, the *logits*, and a softmax turns these into
# probabilities. This is a **recurrent network** (Elman 1990), and it is *parametric*: its probabilities are a function with
# knobs, $W_x$, $W_h$, $b$ and the vectors, the same knobs at every step and for every text. We set an objective, which is the
# mean surprise, and turn the knobs by gradient descent.

# %%
def read(x, W_x, W_h, b):
    h = torch.zeros(len(x), len(b))                        # (batch, d)  nothing has been read
    states = []
    for x_t in x.unbind(dim=1):                            # (batch, d_in)  one position after the other
        h = torch.tanh(x_t @ W_x + h @ W_h + b)            # (batch, d)
        states.append(h)
    return torch.stack(states, dim=1)                      # (batch, n, d)


network = nn.RNN(8, 16, batch_first=True)                  # torch's matrices are for columns
x = torch.randn(4, 10, 8)                                  # (batch, n, d_in)
ours = read(x, network.weight_ih_l0.mT, network.weight_hh_l0.mT, network.bias_ih_l0 + network.bias_hh_l0)
assert torch.allclose(ours, network(x)[0], atol=1e-6)

# %% [markdown]
# Ours and torch's agree: the loop with one line in it is all there is to a recurrent network. (torch keeps two biases where
# one would do.) As a language model it reads a text like this:

# %%
figures.unrolled_rnn(["<bos>", "Return", "the", "number", "of"])

# %% [markdown]
# Drawn side by side, the steps look like a network with many layers, and the picture says all that matters. State $h_3$
# has seen *Return the* and nothing after it; it must guess *number*. What it remembers of *Return* has gone through
# every state in between. And each state is a vector of the same size, whether it stands for three tokens or for three
# hundred.
#
# ## One step to the left
#
# To train it, all texts of a batch are read at once. The logits at position $t$ were made when tokens $0, \dots, t$ had been
# read, so they are to be compared with token $t + 1$: cut the last off the logits and the first off the tokens.
# (`cross_entropy` is the mean surprise of which we spoke, straight from logits; `descend` takes one step downhill on each
# loss that it is handed.)
#
# The cut is easily forgotten. *What happens then?* Two networks, the same in all but this one line. Which of the two
# curves will be lower, and where will it end?

# %%
def train_one(shift, steps=120):
    torch.manual_seed(0)
    model = RecurrentLanguageModel(len(tokenizer), d_hidden=64, cell="rnn")
    batches = text_batches(train, batch_tokens=400, max_length=32, seed=0)

    def losses():
        for tokens, _ in batches:                                          # (batch, n)
            logits = model(tokens)                                         # (batch, n, vocab_size)
            logits, target = (logits[:, :-1], tokens[:, 1:]) if shift else (logits, tokens)
            yield cross_entropy(logits.flatten(0, 1), target.flatten(), ignore_index=0)

    return model, descend(model, losses(), steps, lr=2e-2, progress=False).losses


(right, right_losses), (leaking, leaking_losses) = train_one(shift=True), train_one(shift=False)
viz.curves({"guesses the next token": right_losses, "forgot to shift": leaking_losses})

# %% [markdown]
# The curve that falls to nearly nothing is the wrong one. Asked about the token that it has just read, a network has an easy
# time, and the best loss of the day means that nothing was learned. It is called a **target leak**, and no error message will
# ever tell you. Ask the model to write, always the likeliest token (`greedy`), and it does:

# %%
prompt = torch.tensor([[BOS, *tokenizer.encode("Return the")]])                       # (1, n)
length = torch.tensor([prompt.shape[1]])
for name, model in {"next token": right, "forgot to shift": leaking}.items():
    written = greedy(model, prompt, length, max_length=6).tokens[0].tolist()
    print(f"{name:>16}: Return the | {' '.join(tokenizer.pieces(written))}")
assert sum(leaking_losses[-10:]) < 0.25 * sum(right_losses[-10:])
assert len(set(written)) == 1, "who learned to repeat, repeats"

# %% [markdown]
# (`ignore_index=0` in the cell above leaves the padding out of the loss. Padding is the most predictable token there is, and
# a loss that counts it looks better than the model is. In the assignment you build the whole line: shift, padding and all.)
#
# ## A state with gates
#
# The step that we have written replaces the whole state each time. What was known about the first word must survive a
# matrix and a tanh at every step, or be gone. In 1997 Hochreiter and Schmidhuber proposed to leave the state alone unless
# there is a reason, and to let **gates** decide: numbers between 0 and 1, one for each component of the state, which the
# network computes from what it reads. (The gate that forgets came a little later: Gers et al. 2000.)

# %%
figures.lstm_and_gru()

# %% [markdown]
# The **LSTM** has a second vector $c_t$, the cell, which runs along the top of the picture and meets nothing but a
# product and a sum:
#
# $$
# \begin{aligned}
# f &= \sigma\bigl(x_t W_f + h_{t-1} U_f + b_f\bigr) && \text{how much to keep}\\
# i &= \sigma\bigl(x_t W_i + h_{t-1} U_i + b_i\bigr) && \text{how much to take in}\\
# o &= \sigma\bigl(x_t W_o + h_{t-1} U_o + b_o\bigr) && \text{how much to show}\\
# \tilde c &= \tanh\bigl(x_t W_c + h_{t-1} U_c + b_c\bigr) && \text{a candidate: what might be added}\\
# c_t &= f \circ c_{t-1} + i \circ \tilde c && \text{keep a share, add a share}\\
# h_t &= o \circ \tanh c_t && \text{show a share}
# \end{aligned}
# $$
#
# ($\circ$ multiplies number by number.) The **GRU** (Cho et al. 2014) makes do with one vector and one decision fewer: what
# is not kept is replaced, $h_t = z \circ h_{t-1} + (1 - z) \circ \tilde h$, and a second gate $r$ says how much of the past
# the candidate $\tilde h$ may see. Here is the LSTM in code; the GRU is yours, in the assignment.

# %%
def lstm_step(x, h, c, W, U, b):
    i, f, candidate, o = (x @ W + h @ U + b).chunk(4, dim=-1)              # (batch, d) each, in torch's order
    c = f.sigmoid() * c + i.sigmoid() * candidate.tanh()                   # (batch, d)
    return o.sigmoid() * c.tanh(), c                                       # (batch, d), (batch, d)


cell = nn.LSTMCell(8, 16)
x, h, c = torch.randn(4, 8), torch.randn(4, 16), torch.randn(4, 16)
ours = lstm_step(x, h, c, cell.weight_ih.mT, cell.weight_hh.mT, cell.bias_ih + cell.bias_hh)
assert all(torch.allclose(a, b, atol=1e-6) for a, b in zip(ours, cell(x, (h, c)), strict=True))

# %% [markdown]
# Again the same as torch's. (It keeps the four matrices side by side, and so do we.)
#
# ## The match
#
# Now let one play. A GRU with a state of 128 numbers reads the training part about once, which takes nearly half of this
# page's minute. Then it guesses the same tokens of the same test part as the counters, and at each it is told what they are
# told, the tokens before it.
#
# *Place your bets:* who will be the better player? The 5-gram has looked up every run of five in the whole training text and
# keeps a count of each. The network keeps no text at all.

# %%
torch.manual_seed(0)
gru = RecurrentLanguageModel(len(tokenizer), d_hidden=128, cell="gru")
fit_texts(gru, train, steps=900, batch_tokens=448, max_length=32, lr=1.5e-2, seed=0, name="GRU")
print(f"{len(five_gram):,} counts against {sum(p.numel() for p in gru.parameters()):,} parameters")

# %%
def mixed(log_p, log_q):
    return torch.log((log_p.exp() + log_q.exp()) / 2)                      # half of the bet by each


five = scores(five_gram)                                                   # (n_test,)
network = torch.cat(text_log_probabilities(gru, test)).double()            # (n_test,)
table = {"bigram": scores(bigram), "5-gram": five, "GRU": network, "5-gram and GRU": mixed(five, network)}
for name, log_p in table.items():
    print(f"{name:>15}: {-log_p.mean():.2f} nats a token, perplexity {perplexity(log_p):.1f}")
assert perplexity(five) < perplexity(network) < 0.9 * perplexity(table["bigram"])
assert perplexity(table["5-gram and GRU"]) < 0.9 * perplexity(five)

# %% [markdown]
# The network is far better than the bigram, and after one reading of this small text it has not caught up with the
# 5-gram. That is no accident of ours: where there is less than half a million tokens to read, well-smoothed counts are
# hard to beat, and for twenty years they were hardly beaten.
#
# But look at the last line. If half of the bet is placed by one and half by the other, they lose much less than either does
# alone. That can only be if they are good at *different* tokens. Which? We ask, for each token of the test part, how much of the
# context before it the 5-gram had ever seen: all four tokens, or three, or no more than one. *Guess* what the curves of
# the two look like.

# %%
known = [five_gram.known(text[:i]) for text in test for i in range(1, len(text))]
known = torch.tensor(known).clamp(min=1)                                   # (n_test,)  from 1 to 4
lines = {
    name: {n: -log_p[known == n].mean().item() for n in (1, 2, 3, 4)}
    for name, log_p in {"5-gram": five, "GRU": network, "half and half": mixed(five, network)}.items()
}
viz.line_plot(lines, x_name="tokens of the context that the 5-gram knows", y_name="nats a token")
print("share of the tokens:", {n: f"{(known == n).double().mean():.0%}" for n in (1, 2, 3, 4)})
lead = {n: lines["GRU"][n] - lines["5-gram"][n] for n in lines["GRU"]}     # of the 5-gram, in nats a token
print("the 5-gram's lead:", {n: f"{nats:+.2f}" for n, nats in lead.items()})
assert lead[1] < 0.02 and lead[1] + 0.05 < lead[2] < lead[4] - 0.2, "the less is known, the smaller the lead"
assert all(lines["half and half"][n] < min(lines["GRU"][n], lines["5-gram"][n]) - 0.05 for n in lead)

# %% [markdown]
# There it is. Where the last four tokens are old acquaintances, looking up what followed them is hard to beat, and the
# network, which has no such table, is clumsy: it loses by several tenths of a nat. The less of the context is known, the
# smaller the counter's lead, and where it knows one token or none, the lead is gone: there the network, worse on average,
# is as good or even a little better. A state that it has never been in is *something like* states that it has been in, and
# similar states give similar guesses. **Counting remembers, parameters generalise**, and so the mixture gains everywhere.
#
# How does that change with the amount of text? Here is the same match on a twentieth of it. (The network reads it a few
# times over. More readings make it worse: it begins to learn the few texts by heart.)

# %%
torch.manual_seed(0)
small = RecurrentLanguageModel(len(tokenizer), d_hidden=128, cell="gru")
few = train[: shares["a 20th of the texts"]]
fit_texts(small, few, steps=200, batch_tokens=256, seed=0, name="GRU, a 20th")
little = {
    "5-gram": scores(counters["a 20th of the texts", 5]),
    "GRU": torch.cat(text_log_probabilities(small, test)).double(),
}
print({name: f"perplexity {perplexity(log_p):.0f}" for name, log_p in little.items()})
assert perplexity(little["5-gram"]) < perplexity(little["GRU"])

# %% [markdown]
# So n-grams win where there is little text, and where the new text repeats the old; and one pass over the text, a matter of
# seconds, is all that they need. But new contexts never run out, since most runs of five will always be new, and there the
# network holds its own. With more text, and with a larger network to hold what is in it, it overtakes: Mikolov et al. (2010)
# report so for news articles, with the mixture better still. This is the change that the slides call *parametric language
# modelling*, and everything since has been a better network.

# %% [markdown]
# Here is what they write when their bets are drawn by lot. (Each probability is squared first, for all three alike. As they
# are, all three mumble.) Which sins are the bigram's, and which are those of the others?

# %%
begun = [BOS, *tokenizer.encode("Return the")]


def write(distribution, seed, length=24):
    generator, text = torch.Generator().manual_seed(seed), list(begun)
    while len(text) < length and text[-1] != EOS:
        text.append(int(torch.multinomial(distribution(text) ** 2, 1, generator=generator)))
    return tokenizer.decode(text)


@torch.no_grad()
def next_token(text):
    return gru(torch.tensor([text]))[0, -1].softmax(dim=-1)                # (vocab_size,)


for seed in (0, 2):
    print("bigram:", write(bigram.distribution, seed))
    print("5-gram:", write(five_gram.distribution, seed))
    print("GRU:   ", write(next_token, seed), "\n")

# %% [markdown]
# The bigram loses the thread after every piece. The 5-gram writes what somebody has written, in runs that are glued together
# where a few tokens fit. The network's sentences are its own, and a beginner's. (Another machine may draw other texts.)

# %% [markdown]
# > **Check yourself.** How many numbers does the 5-gram keep, and how many the GRU? And if you read ten times as much text,
# > which of the two grows?
# > <details><summary>Answer</summary>Both numbers stand above, where the GRU was trained. The counts grow on with the text,
# > because most runs of five are new. The GRU has 2048 × 128 numbers in its table of vectors, which serves again as the map
# > to the logits, 6 × 128 × 128 in the matrices of its cell, and some biases, whatever it reads.</details>
#
# ## Trouble one: the walk
#
# *The keys that my brother left on the small table beside the front door **are** gone.* Which word says that it must be
# *are*? It stands thirteen words back, and what was noted there has been through a dozen steps since. Recurrence makes near
# words interact easily, and that is a good habit, because near words usually belong together. But words at a distance $k$ need
# $k$ steps to meet, even where they belong together as *keys* and *are* do: the order of the words is built in, and the
# grammar is not. The slides call it **linear interaction distance**.
#
# Going forward, the walk mixes what is carried with all that is read on the way. Going backward, it is worse. The gradient of
# the last state at an early input is a product, with one factor for each step in between:
#
# $$\frac{\partial h_n}{\partial x_t} = \frac{\partial h_t}{\partial x_t}\, \prod_{s = t + 1}^{n} \frac{\partial h_s}{\partial h_{s-1}}$$
#
# Numbers that are multiplied many times seldom stay of a size. *Guess:* of fresh networks of the three kinds, which let the
# gradient through from 60 steps back, and how much of it?

# %%
distances = (1, 10, 20, 30, 40, 50, 60)


def gradient_by_distance(kind, keep=0.0, grow=1.0, d=64, n=61):
    torch.manual_seed(0)
    network = kind(d, d, batch_first=True).double()
    with torch.no_grad():
        network.weight_hh_l0 *= grow
        network.bias_ih_l0[d : 2 * d] += keep              # an LSTM's forget gate f, a GRU's update gate z
    x = torch.randn(16, n, d).double().requires_grad_()    # (batch, n, d)
    states, _ = network(x)                                 # (batch, n, d)
    (states[:, -1] * torch.randn(16, d)).sum().backward()
    return {k: x.grad[:, -1 - k].norm(dim=-1).mean().item() for k in distances}


kinds = {"RNN": nn.RNN, "LSTM": nn.LSTM, "GRU": nn.GRU}
fresh = {name: gradient_by_distance(kind) for name, kind in kinds.items()}
viz.line_plot(fresh, x_name="steps back", y_name="gradient of the last state", log_y=True)

# %% [markdown]
# All three die, exponentially: on this axis that is a straight line. From 60 steps back practically nothing arrives, and a
# network cannot learn that the *keys* mattered if no gradient ever reaches them. That the gated ones die as well may have
# surprised you. A fresh gate stands half open, $\sigma(0) = \tfrac12$, and a half, multiplied by itself sixty times, is
# nothing.
#
# The difference is what can be *done* about it. The factor of the plain network is a matrix and a slope of tanh: make the
# matrix larger, and the product grows without end instead of dying. In the gated ones the factor is, above all, the
# gate, and a gate can be told, or can learn, to stand open.

# %%
tuned = {
    "RNN, W_h × 4": gradient_by_distance(nn.RNN, grow=4.0),
    "LSTM, f open": gradient_by_distance(nn.LSTM, keep=3.0),
    "GRU, z open": gradient_by_distance(nn.GRU, keep=3.0),
    "RNN": fresh["RNN"],
}
viz.line_plot(tuned, x_name="steps back", y_name="gradient of the last state", log_y=True)

# %%
left = {name: line[60] / line[1] for name, line in {**fresh, **tuned}.items()}
print({name: f"{share:.0e}" for name, share in left.items()})
assert max(left["RNN"], left["LSTM"], left["GRU"]) < 1e-8, "fresh networks let nothing through"
assert left["RNN, W_h × 4"] > 1e2, "a larger matrix makes it explode"
assert min(left["LSTM, f open"], left["GRU, z open"]) > 1e-3, "open gates let it through"

# %% [markdown]
# Vanish or explode, says a slide, and here are both. With three added to the bias of the forget gate, an LSTM lets the
# gradient through from sixty steps back nearly undiminished, and a GRU, with its gate opened likewise, lets through a
# twentieth. This is why the LSTM carried the field for twenty years, and why one starts that bias at 1 or more. Gradients
# that explode are clipped, in this course as well.
#
# > **Check yourself.** An open gate keeps what is there. Why not open all of them for good?
# > <details><summary>Answer</summary>Then nothing new gets in (GRU: 1 − z is closed), or everything is added to everything
# > (LSTM), and a state of fixed size fills up. Keeping and taking compete for the same numbers. That is the second
# > trouble.</details>
#
# ## Trouble two: the suitcase
#
# In 2014 two groups had the same idea: if one network can read a text and carry its state, a second one can start from that
# state and write. Read English, write French. It is called **sequence to sequence** (Sutskever et al. 2014; Cho et al. 2014),
# and for some years it was how nearly everything was done: encode with an LSTM (or two, from both ends, since the whole
# source is there to be read), and decode with another.
#
# All that the writer learns of the source is one vector. Which one? There are two simple ways. Hand over the **last state**,
# which has seen everything, most of it long ago. Or hand over the mean of all states, **mean pooling**, in which each
# position counts the same: the most basic way to pass information on, and where a whole family of ideas starts.
#
# A small game shows what each of them holds. A reader is shown $n$ letters, each with a digit, *k7 a3 q9 …*, all letters
# different. Then the book is closed, and it is asked for one of them: *a?* Everything needed was there. It was not known in
# advance which would be asked.

# %%
def deal(batch, n, generator):
    letters = torch.rand(batch, 26, generator=generator).argsort(dim=1)[:, :n]   # (batch, n)  none twice
    digits = torch.randint(10, (batch, n), generator=generator)                  # (batch, n)
    which = torch.randint(n, (batch, 1), generator=generator)                    # (batch, 1)
    return letters, digits, letters.gather(1, which)[:, 0], digits.gather(1, which)[:, 0]


letters, digits, asked, answer = deal(1, 5, torch.Generator().manual_seed(0))
pairs = [f"{chr(97 + letter)}{digit}" for letter, digit in zip(letters[0], digits[0], strict=True)]
print(*pairs, f"   {chr(97 + asked[0])}?  {answer[0]}")

# %% [markdown]
# Three readers play it. All have the same GRU, the same parameters, the same training. They differ in what is left on the
# desk when the question comes: the last state, the mean of the states, or all the states, of which *attention* makes a
# weighted average when it knows the question. How attention finds its weights is the next lecture. Take it here as a box
# into which one puts the question and the states.

# %%
class Reader(nn.Module):
    def __init__(self, summary, d=64):
        super().__init__()
        self.summary = summary
        self.letter, self.digit = nn.Embedding(26, d), nn.Embedding(10, d)
        self.network = nn.GRU(d, d, batch_first=True)
        self.combine, self.answer = nn.Linear(2 * d, d), nn.Linear(d, 10)

    def forward(self, letters, digits, asked):
        states, _ = self.network(self.letter(letters) + self.digit(digits))      # (batch, n, d)
        question = self.letter(asked)                                            # (batch, d)
        if self.summary == "last state":
            states = states[:, -1:]                                              # (batch, 1, d)
        if self.summary == "mean pool":
            states = states.mean(dim=1, keepdim=True)                            # (batch, 1, d)
        found, _ = attend(question[:, None], states, states)                     # (batch, 1, d)
        combined = self.combine(torch.cat([found[:, 0], question], dim=-1))      # (batch, d)
        return self.answer(combined.tanh())                                      # (batch, 10)


# %% [markdown]
# (Over a single vector attention can only say: all of it. So the first two run through the same code.)
#
# *Write down three curves:* the share of right answers against $n$, for $n$ from 1 to 16. Guessing gives one in ten.

# %%
def play(summary, lengths=(1, 2, 4, 8, 16), steps=400):
    torch.manual_seed(0)
    reader, generator = Reader(summary), torch.Generator().manual_seed(0)

    def losses():
        for step in range(steps):
            letters, digits, asked, answer = deal(64, lengths[step % len(lengths)], generator)
            yield cross_entropy(reader(letters, digits, asked), answer)

    descend(reader, losses(), steps, lr=5e-3, progress=False)
    right = {}
    for n in lengths:
        letters, digits, asked, answer = deal(1000, n, generator)
        right[n] = (reader(letters, digits, asked).argmax(dim=-1) == answer).double().mean().item()
    return right


recalled = {summary: play(summary) for summary in ("last state", "mean pool", "attention")}
viz.line_plot(recalled, x_name="pairs to remember", y_name="share of right answers", log_x=True, low=0)

# %% [markdown]
# With one pair everybody is right. With two, both summaries are already unsure, and with sixteen they are wrong most of the
# time; the reader that kept its states stays at the top. Mean pooling has no walk to suffer from, every state is one average
# away, and it does hardly better than the last state. So distance is not the whole trouble.

# %%
assert all(recalled[summary][1] > 0.95 for summary in recalled)
assert recalled["attention"][16] > 0.9
for line in (recalled["last state"], recalled["mean pool"]):
    assert line[2] < 0.8 and line[1] > line[2] > line[4] > line[16] and line[16] < 0.35

# %% [markdown]
# Could sixty-four numbers not hold sixteen digits? They could, many times over. What they cannot do, or not learn to do in
# the time, is hold them *so that any one can be asked for*. Whoever packs a suitcase without knowing the journey must pack
# for all journeys; that is the **bottleneck**, and its remedy is not a larger suitcase but to leave things where they are and
# fetch what is asked for. (Try `play("last state", steps=2400)`: six times the training helps with two pairs, and with
# sixteen not at all. In [lecture @cross_attention](@cross_attention) the comparison is made with translations.)
#
# > **Check yourself.** All three readers have the same number of parameters. What does the third one need more of, and how
# > does it grow with $n$?
# > <details><summary>Answer</summary>Memory and work at the time of the question: it keeps n states instead of one, and
# > compares the question with each. That is the price, and for very long texts a real one: lecture @cheap_attention.</details>
#
# ## Trouble three: one after the other
#
# The third trouble has nothing to do with learning. To compute $h_{100}$ one needs $h_{99}$, for which one needs $h_{98}$. A
# machine that could do a thousand things at once must do these a hundred one after the other. Here is the same
# arithmetic twice, $n$ vectors each multiplied by two matrices and bent by tanh: once as a recurrence, and once with nobody
# waiting for anybody. *What will the ratio be?*

# %%
d = 128
W_x, W_h = torch.randn(d, d) / 12, torch.randn(d, d) / 12


def recurrence(x):
    h = torch.zeros(1, d)
    for x_t in x.split(1):                                 # (1, d)  n steps, each waits for the one before
        h = torch.tanh(x_t @ W_x + h @ W_h)                # (1, d)


def all_at_once(x):
    return torch.tanh(x @ W_x + x @ W_h)                   # (n, d)  as many products, and one step


def milliseconds(function, x):
    times = []
    for _ in range(7):
        start = time.perf_counter()
        function(x)
        times.append(1000 * (time.perf_counter() - start))
    return min(times)                                      # whatever else the machine does only adds to it


# %%
taken = {
    name: {n: milliseconds(function, torch.randn(n, d)) for n in (16, 64, 256, 1024)}
    for name, function in {"recurrence: n steps": recurrence, "all at once: 1 step": all_at_once}.items()
}
viz.line_plot(taken, x_name="length n", y_name="milliseconds", log_x=True, log_y=True)
recurrent, parallel = (line[1024] for line in taken.values())
print(f"at length 1024 the recurrence takes {recurrent / parallel:.0f} times as long")
assert recurrent > 3 * parallel and recurrent > 5 * taken["recurrence: n steps"][64]

# %% [markdown]
# The recurrence grows in proportion to the length, and it is many times slower at every length, though it does no more
# arithmetic. And that is one thread of a processor that does few things at a time. A GPU does tens of thousands: it would
# press the lower line nearly flat, and do little for the upper one, which has only one thing at a time to offer. What keeps a
# GPU busy in spite of this is a batch, many texts side by side. But training holds all states of all of them in memory, and
# the longer the texts, the fewer fit: where the waiting is longest, there is least to do in the meantime. So recurrence was
# slow to train on very much text.
#
# Move the widget: how many cells does a signal walk through, and how many steps must be waited for? The number in each box
# says after how many steps, at the earliest, that state can be there.

# %%
def draw_walk(length, signal):
    distance = {"from the neighbour": 1, "from half way": length // 2, "from the first": length - 1}
    return figures.signal_path(length, distance[signal])


signals = ["from the neighbour", "from half way", "from the first"]
viz.explore(draw_walk, length=[4, 8, 12, 16], signal=signals, start={"length": 12, "signal": signals[-1]})

# %% [markdown] erratum="a missing with"
# > **On the slide.** One deck says of attention: "Number of unparallelizable operations does not increase sequence length." A
# > *with* is missing, as a twin of the slide shows: it does not increase *with* sequence length. Let us not take it from
# > either. Autograd keeps a graph of what was computed from what; its longest chain is the operations that had to wait for
# > each other.

# %%
def longest_chain(tensor):
    @cache
    def depth(node):
        return 1 + max((depth(before) for before, _ in node.next_functions if before), default=0)

    return depth(tensor.grad_fn)


chains = {"recurrence": {}, "attention": {}}
for n in (10, 20, 40):
    x = torch.randn(1, n, d, requires_grad=True)                           # (1, n, d)
    chains["recurrence"][n] = longest_chain(read(x, W_x, W_h, torch.zeros(d)))
    chains["attention"][n] = longest_chain(attend(x, x, x)[0])
print(chains)
assert chains["recurrence"][40] > 3.5 * chains["recurrence"][10]
assert len(set(chains["attention"].values())) == 1

# %% [markdown]
# A few operations for each step of the recurrence; for attention a few, and no more for a longer text. (It does more of them
# side by side: every position is compared with every other. What that costs is weighed in
# [lecture @self_attention](@self_attention).)

# %% [markdown]
# ## What the reader should carry
#
# | carries along | remembers | generalises | a word $k$ back is | text of length $n$ takes |
# |---|---|---|---|---|
# | the last four tokens (5-gram) | exactly, if seen before | no | out of sight, if $k > 4$ | one look-up a token |
# | one state (RNN, LSTM, GRU) | what survived | yes | $k$ steps away | $n$ steps, one after the other |
# | the mean of the states | a blend | yes | one average away, with all the others | as its states, and one step more |
# | **all the states** (attention) | what is asked for | yes | one average away, by its own weight | as its states, and one step more |
#
# Read the last row again. It cures the walk and the suitcase. It does not cure the waiting, as long as the states come from a
# recurrence: [lecture @cross_attention](@cross_attention) lives with that, and [lecture @self_attention](@self_attention) throws the
# recurrence away. But first, in [lecture @lookup](@lookup), we open the box: what is a weighted average that depends
# on a question?
#
# > **Check yourself.** (1) A model gave each of four tokens that came the probability ⅛. Its loss in nats, in bits, its
# > perplexity? (2) Why is a perplexity of 1.02 on a new text a reason to worry? (3) Two tokens stand 50 apart. Through how
# > many cells does a signal walk in a network that reads from left to right, and in one that reads from right to left?
# > <details><summary>Answers</summary>(1) ln 8 ≈ 2.08 nats, 3 bits, 8. (2) Nobody can guess text so well: something of the
# > answer leaks into the input. (3) In the first network a signal gets from the earlier token to the later, through 51 cells,
# > counting both ends; in the second only from the later to the earlier, through as many. A reader from both ends has both
# > walks and no short cut.</details>
#
# **In the package.** `attncourse.ngram` has `NGram`, which fits on a screen; `attncourse.recurrent` has
# `RecurrentLanguageModel`; `attncourse.data` has `docstrings`, `encode_texts` and `text_batches`, which lecture @transformer uses again
# for a Transformer; `attncourse.training.fit_texts` trains both, and `attncourse.metrics` has `perplexity`.
#
# **Read next.** Shannon, *Prediction and entropy of printed English* (1951), is the game, and a pleasure. Chen and Goodman, *An
# empirical study of smoothing techniques for language modeling* (1999), on everything that counting can do. Bengio et al., *A
# neural probabilistic language model* (2003), section 1, on why counts do not generalise. Mikolov et al., *Recurrent neural
# network based language model* (2010). Hochreiter and Schmidhuber, *Long short-term memory* (1997), and Pascanu, Mikolov and
# Bengio, *On the difficulty of training recurrent neural networks* (2013), section 2, on gradients that vanish and explode.
# Sutskever, Vinyals and Le, *Sequence to sequence learning with neural networks* (2014).
