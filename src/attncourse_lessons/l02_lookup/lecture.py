# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3 (ipykernel)
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Lecture @lookup · Attention is a lookup
#
# *About 50 minutes, of which a few seconds are computing. You need Python, tensors and the softmax of
# [lecture @getting_ready](@getting_ready), and for one section the idea of learning by gradient descent. The bottleneck of
# [lecture @bottleneck](@bottleneck) is why anybody wants this, but nothing here depends on it.*
#
# When you have finished you will be able to say what queries, keys and values are without mentioning a neural network; to
# build a lookup that always answers, to tune how sharply it chooses, and to say why it can be learned where an ordinary one
# cannot; and to write the four score functions that the literature uses, with what each of them can and cannot tell apart.
# In [assignment @lookup](@lookup/assignment) you build them.
#
# ## A table that refuses
#
# A counter on a bridge has counted bicycles in six hours of one day. (We made the numbers up, but bridges are like that.)
# Somebody would like to know how many there were at seven.

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
import re
from collections import Counter

import torch
from torch import nn

from attncourse.attention import AdditiveScore, BilinearScore, attend, dot_score, scaled_dot_score
from attncourse.data import docstrings

torch.set_num_threads(1)  # models as small as these gain nothing from a second thread, and lose when it has to wait

# %%
bicycles = {2: 12, 5: 45, 8: 310, 12: 120, 17: 280, 23: 40}
try:
    bicycles[7]
except KeyError as error:
    print("KeyError:", error)

# %% [markdown]
# A dictionary knows the hours that it knows, and about seven it knows nothing. It cannot even say that eight is *near*. That
# is how it was made: it turns a key into a hash, a place in a table, and a good hash sends keys that are nearly equal to
# places that have nothing to do with each other.

# %%
print(hash(7.0), hash(7.000001))

# %% [markdown] erratum="exactly one pair"
# Nearness is destroyed, deliberately, and with it goes any hope of an answer when no key is equal. (Small whole numbers are
# their own hash in Python, as you see. But the table never asks whether two keys are near, only whether they are equal.)
#
# > **On the slide.** One deck says of a hash table that each query maps to "exactly one" key–value pair. At most one: the
# > query above mapped to none. It matters, because to *always* answer is the first of the two things that a lookup
# > has to learn before a network can use it. (The second is to have a gradient.)
#
# Two of the six entries are nearly right, though: five o'clock and eight. What would you like the table to answer at seven? Fix
# a number in your mind before you read on. You will probably have done one of two things: taken the nearest entry as it stands,
# or mixed the two nearest. These are the two lookups of this lecture.

# %% [markdown]
# ## A key that one can be near to
#
# For both we need to say how near a key is. Let us put the hours on the face of a clock, one turn a day. Each hour becomes a
# vector of two numbers, and 23:00 comes to lie beside 1:00, where it belongs.

# %%
def clock(hours):
    angle = 2 * math.pi * torch.as_tensor(hours, dtype=torch.float32) / 24  # (n,)
    return torch.stack([angle.sin(), angle.cos()], dim=-1)    # (n, 2)  vectors of length 1


hours = list(bicycles)
keys = clock(hours)                                           # (6, 2)
values = torch.tensor([[float(n)] for n in bicycles.values()])  # (6, 1)
query = clock([7])                                            # (1, 2)
scores = query @ keys.mT                                      # (1, 6)  one for each key
figures.clock_keys(hours, scores[0], asked=7, title="scores")

# %% [markdown]
# We compare by the dot product, $q \cdot k_i$. For vectors of length one it is the cosine of the angle between them: 1 where
# they point the same way, 0 at a right angle (six hours apart), −1 on the other side of the day. Eight o'clock has the highest
# score, five comes second, and the afternoon is below zero.
#
# The **hard lookup** takes the key with the highest score and returns the value beside it:
#
# $$\operatorname{hard}(q) = v_{i^*}, \qquad i^* = \arg\max_i \; q \cdot k_i$$

# %%
best = scores.argmax(dim=-1)                                  # (1,)  a place in the table
print("hard:", values[best].item())
assert hours[best] == 8

# %% [markdown]
# It never refuses. But at 7 it answers 310 bicycles as if it were eight, and so it does at 6:31; two minutes
# earlier it says 45. It throws away what it knows about the second best.
#
# The **soft lookup** lets every key have a say. Softmax turns the scores into shares that sum to one, the **weights**, and the
# answer is the average of the values by these weights:
#
# $$\alpha_i = \frac{\exp(q \cdot k_i)}{\sum_j \exp(q \cdot k_j)} \qquad \operatorname{soft}(q) = \sum_i \alpha_i\, v_i$$
#
# *Before you run the next cell, guess:* how much of the weight goes to eight o'clock? And 17:00, on the other side of the day
# and with a negative score: does it get nothing?

# %%
weights = scores.softmax(dim=-1)                              # (1, 6)  shares
output = weights @ values                                     # (1, 1)  their average
figures.clock_keys(hours, weights[0], asked=7, title="weights")
print("soft:", round(output.item()))
assert torch.isclose(weights.sum(), torch.tensor(1.0)) and weights.min() > 0.02

# %% [markdown]
# Everybody got something: eight o'clock 0.30, hardly more than five, and even 17:00 has 0.05. Softmax takes exponentials, and
# an exponential is never zero (on paper; a float may be rounded down to it), so even the wrong side of the day is listened
# to. That is a promise, because what has a share can be learned from, and it is a debt: where somebody must *not* be listened
# to, a small weight will not do. (Lecture @masking pays it.)
#
# The answer, about 140, is poor: too much of it is noon and night. We shall turn a knob in a moment. First the words, since
# they stay with us for the rest of the course. The **query** asks. It is compared with the **keys**, and nothing else is done
# with those. What comes back is made of the **values**, and of nothing else. The query is said to *attend to* the values. The
# drawing shows three entries of the table, asked in both ways (on the right with the knob turned already).

# %%
figures.two_lookups()

# %% [markdown]
# > **Check yourself.** Why go to the trouble of a clock? Let the keys be the plain numbers 2, 5, 8, 12, 17, 23 and the query
# > the number 7, and score by their product. Which key wins, and what is wrong?
# > <details><summary>Answer</summary>23, with a score of 161. The product measures no nearness: the largest key wins
# > for every query above zero. A dot product measures likeness only between vectors that are about equally long, as on the
# > clock. We shall fall into the same trap with words below, and a score function that can get out of it ends the
# > lecture.</details>

# %% [markdown]
# ## The knob
#
# Divide the scores by a number $T$ before the softmax. It is called the **temperature**:
#
# $$\alpha = \operatorname{softmax}\!\left(\frac{q K^\top}{T}\right)$$
#
# *Two questions before you move the slider.* Which way must it go to bring the answer at seven closer to your first guess?
# And what will the orange curve, the answer at every hour of the day, look like at either end?

# %%
def soft_lookup(query, keys, values, temperature=1.0):
    weights = (query @ keys.mT / temperature).softmax(dim=-1)  # (n_query, n_keys)
    return weights @ values, weights                          # (n_query, d_v), the same


day = torch.linspace(0, 24, 289)                              # every five minutes


def draw(temperature):
    _, weights = soft_lookup(clock([7]), keys, values, temperature)  # (1, 6)
    answers, _ = soft_lookup(clock(day), keys, values, temperature)  # (289, 1)
    title = f"temperature {temperature:g}"
    return figures.lookup_frame(hours, values[:, 0], weights[0], 7, day, answers[:, 0], title)


steps = [0.001, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 100.0]
viz.explore(draw, temperature=steps, start={"temperature": 0.1})

# %% [markdown]
# With the slider on the left the curve freezes into stairs: the hard lookup. On the right it melts into a level line: every
# key counts the same, whatever is asked. That end has a name, too. It is *mean pooling*, the summary with which lecture @bottleneck
# tried to pass on a sentence. So the two things that we knew before, a dictionary and a mean, are the two ends of one knob.

# %%
cold, _ = soft_lookup(clock(day[1:]), keys, values, temperature=1e-5)
hot, _ = soft_lookup(clock(day[1:]), keys, values, temperature=1e5)
hard = values[(clock(day[1:]) @ keys.mT).argmax(dim=-1)]      # (288, 1)
halfway = (cold - hard).abs() > 0.5                           # between two keys
print("cold is hard at", (~halfway).sum().item(), "of 288 times")
print("hot is the mean:", round(hot.mean().item(), 1))
assert (~halfway).float().mean() > 0.95 and torch.allclose(hot, values.mean(), rtol=1e-3)

# %% [markdown]
# (At the few other times the query stands halfway between two keys, like 3:30, between two and five. The hard lookup takes one
# of them, by an accident of rounding. The soft one gives each of the two its half, however cold it is, up to what rounding
# decides.)
#
# The knob has other handles. Multiply every key by ten and you have divided the temperature by ten, and the same goes for the
# query. A network that learns its keys and queries learns how sharply to look as well.
#
# > **Check yourself.** You take the same number away from all scores of a query. What becomes of its weights?
# > <details><summary>Answer</summary>Nothing changes. The factor exp(−c) stands in the numerator and in the denominator.
# > Softmax sees differences of scores and never their level, which is also why a stable softmax may take away the
# > maximum.</details>

# %% [markdown]
# ## Why soft: because it can be learned
#
# Suppose that we know an answer and not the question. Somebody says: "there were 200". When was that? A network is
# in this position all the time: it is told what should have come out, and has to find out what it should have asked.
#
# Below is the squared error of both lookups, for every hour that could have been asked. *What would you do on either of
# the two curves, standing at nine o'clock and able to feel nothing but the slope under your feet?*

# %%
soft = soft_lookup(clock(day), keys, values, temperature=0.1)[0][:, 0]  # (289,)
hard = values[(clock(day) @ keys.mT).argmax(dim=-1)][:, 0]    # (289,)
errors = {"soft, T = 0.1": ((soft - 200) / 100) ** 2, "hard": ((hard - 200) / 100) ** 2}
viz.function_curves(errors, day, x_name="hour that is asked", y_name="squared error / 100²")

# %% [markdown]
# The hard curve is a staircase. On a step the slope is zero; between steps there is a cliff, and no slope at all. So torch does
# not even offer one: what comes out of `argmax` is a place, and a place remembers nothing of the scores it was chosen by.

# %%
lookups = {
    "hard": lambda query: values[(query @ keys.mT).argmax(dim=-1)],
    "soft": lambda query: soft_lookup(query, keys, values, temperature=0.1)[0],
}
for name, lookup in lookups.items():
    hour = torch.tensor([9.0], requires_grad=True)
    error = ((lookup(clock(hour)) - 200) / 100).square().sum()
    slope = torch.autograd.grad(error, hour)[0].item() if error.requires_grad else math.nan
    print(f"{name}: error {error:.2f}, has a gradient: {error.requires_grad}, slope {slope:.2f}")

# %% [markdown]
# So we walk downhill on the soft one, a hundred steps.

# %%
hour = torch.tensor([9.0], requires_grad=True)
for _ in range(100):
    error = ((lookups["soft"](clock(hour)) - 200) / 100).square().sum()
    [slope] = torch.autograd.grad(error, hour)
    hour = (hour - 0.1 * slope).detach().requires_grad_()
answer = lookups["soft"](clock(hour)).item()
print(f"after 100 steps: {hour.item():.1f} o'clock, answer {answer:.1f}")
assert abs(answer - 200) < 2

# %% [markdown]
# It has found an hour at which the lookup says 200, a little after ten: the count was falling towards noon, so later was less.
# (There are other such hours, one for each crossing. Downhill finds the one whose slope it stands on.) The same gradient flows
# into the keys and into the values, so a whole table can be learned from wrong answers. This is the reason why attention is
# soft. It is a choice, made so gently that one can differentiate it.

# %% [markdown]
# ## Older than neural networks
#
# Our six entries were exact. Measurements are not. Here are sixty counts on sixty days, at random hours, with the noise that
# rain and holidays make. There would be no sense in asking a dictionary of these, but a soft lookup does not mind.

# %%
def rush(hours):
    """What a bridge is like on average: two peaks. (This is the rule that draws the numbers.)"""
    morning, evening = ((hours - 8) / 1.6) ** 2, ((hours - 17.5) / 2.2) ** 2
    return 30 + 270 * torch.exp(-morning) + 230 * torch.exp(-evening)


generator = torch.Generator().manual_seed(0)
asked = 24 * torch.rand(60, generator=generator)              # (60,)
counted = (rush(asked) + 40 * torch.randn(60, generator=generator)).clamp(min=0)  # (60,)
smoothed = {}
for t in (0.001, 0.03, 1.0):
    answers, _ = soft_lookup(clock(day), clock(asked), counted[:, None], t)  # (289, 1)
    smoothed[f"T = {t:g}"] = answers[:, 0]
viz.function_curves(smoothed, day, points=(asked, counted), x_name="hour", y_name="bicycles")

# %% [markdown]
# Too cold, and every accident of the data is believed. Too hot, and both rush hours are averaged away. Which temperature is
# best? We can let the data say: hide each count in turn, look it up in the other fifty-nine, and see how far off the answer is.
# *Sketch the error against the temperature before you look.*

# %%
def error_when_hidden(temperature):
    scores = clock(asked) @ clock(asked).mT / temperature     # (60, 60)
    scores.fill_diagonal_(-torch.inf)                         # nobody may look itself up
    return (scores.softmax(dim=-1) @ counted - counted).square().mean().sqrt()


temperatures = torch.logspace(-4, 2, 37)
errors = torch.stack([error_when_hidden(t) for t in temperatures])  # (37,)
curve = {"error on a\nhidden count": errors}
viz.function_curves(curve, temperatures, x_name="temperature", y_name="bicycles", log_x=True)
best = temperatures[errors.argmin()]
print(f"best, T = {best:.3f}: off by {errors.min():.0f};  cold: {errors[0]:.0f};  hot: {errors[-1]:.0f}")
assert errors.min() < 0.92 * errors[0] and errors.min() < 0.65 * errors[-1]

# %% [markdown]
# There is a valley in between, and near its floor the error is hardly above the noise that we put in, 40 bicycles.
#
# This method is old. Nadaraya and Watson proposed it in 1964, independently: to estimate a curve at $q$, average the measured
# values, each weighted by a bell around its place, $\exp(-\lVert q - k_i \rVert^2 / 2h^2)$, and divide by the sum of the
# weights. That *is* a soft lookup. For vectors of length one, $\lVert q - k \rVert^2 = 2 - 2\, q \cdot k$, the 2 cancels in the
# division, and a bell of width $h$ is a temperature of $h^2$.

# %%
h = 0.2
bells = torch.exp(-torch.cdist(clock(day), clock(asked)) ** 2 / (2 * h**2))  # (289, 60)
nadaraya_watson = (bells * counted).sum(dim=-1) / bells.sum(dim=-1)  # (289,)
attention, _ = soft_lookup(clock(day), clock(asked), counted[:, None], temperature=h**2)
assert torch.allclose(nadaraya_watson, attention[:, 0], rtol=1e-5)

# %% [markdown]
# > **On the slide.** One deck closes its tour of attention with "a new idea from after 2010". The average whose weights
# > depend on the query, normalised, over a set of any size, is half a century older, and the same to the last digit that
# > counts, as the cell above asserts. What was new, in Bahdanau et al. (2015), is that queries, keys and values come out of a
# > network, and that the network is trained *through* the average. Such a network would have learned the clock that we chose
# > by hand.
#
# The same deck says that a weighted average is powerful "if the weights are learned". Take that with care. The weights $\alpha$
# are no parameters. No optimiser ever touches them; they are computed, anew for each query, from vectors. What is learned is
# what makes the vectors.

# %% [markdown]
# ## A summary of fixed size, of a set
#
# Seen from a network, a lookup does something else that is worth having. A sentence may have three words or three
# thousand. Whatever comes next wants a vector of one width.

# %%
generator = torch.Generator().manual_seed(0)
one_query = torch.randn(1, 8, generator=generator)            # (1, d_k)
for n in (3, 30, 3000):
    some_keys = torch.randn(n, 8, generator=generator)        # (n, d_k)
    some_values = torch.randn(n, 5, generator=generator)      # (n, d_v)
    output, weights = soft_lookup(one_query, some_keys, some_values)
    print(f"{n:>5} keys: weights {tuple(weights.shape)}, output {tuple(output.shape)}")
    assert output.shape == (1, 5)

# %% [markdown]
# The output is as wide as a value, however many there are. A mean would do that, too. But this summary is *selective*: the
# query says what it should be about, and another query gets another summary of the same values. That is the whole difference
# between mean pooling and attention. (In [lecture @cross_attention](@cross_attention) a translator asks for a fresh one before every
# word.)
#
# Note also what was not needed. Nothing in the formula says which key is the first. *Predict:* we shuffle the keys and the
# values of a table together; then the keys alone. What happens to the answers?

# %%
shuffle = torch.randperm(6, generator=generator)
asked_at = clock([3, 7, 15])                                  # (3, 2)
answer, _ = soft_lookup(asked_at, keys, values, 0.1)
together, _ = soft_lookup(asked_at, keys[shuffle], values[shuffle], 0.1)
alone, _ = soft_lookup(asked_at, keys[shuffle], values, 0.1)
for name, x in {"as it was": answer, "together": together, "keys alone": alone}.items():
    print(f"{name:>10}:", x[:, 0].round().tolist())
assert torch.allclose(together, answer, rtol=1e-4)
assert not torch.allclose(alone, answer, rtol=0.1)

# %% [markdown]
# Together nothing happens: a table is a set of pairs, and a sum does not care about order. Alone, every hour is told another
# hour's count. So attention by itself does not know what came first. If order matters, and in a sentence it does, it has to be
# written into the keys. Hours were, on our clock; [lecture @order](@order) does it for words.

# %% [markdown]
# ## Keys for words
#
# An hour had an obvious vector. What is the vector of a word? The simplest idea that works is Firth's (1957): you shall know
# a word by the company it keeps. We read four thousand docstrings of Python's standard library, which everybody who runs this
# page has, and count for each word which others stand within three places of it.

# %%
texts = docstrings(limit=4000)
texts = [re.findall("[a-z]+", text.lower()) for text in texts.train + texts.test]      # lists of words
occurrences = Counter(word for text in texts for word in text)
print(f"about {round(sum(occurrences.values()), -4):,} words, of which")
print("month:", occurrences["month"], "times, file:", occurrences["file"], "times")

# %% [markdown]
# The table: ten words as keys, each with its topic as the value, written as a 1 in one of five places. Then we ask for
# fifteen words that are not in it. Keys and values need not be alike at all; here a key will have five hundred numbers and a
# value five.

# %%
topics = {
    "time": ("month week", "day year weekday"),
    "numbers": ("integer float", "fraction decimal complex"),
    "network": ("server socket", "client connection port"),
    "threads": ("thread process", "lock threads child"),
    "files": ("file directory", "path filename files"),
}
table = [(word, topic) for topic, (known, _) in topics.items() for word in known.split()]
questions = [(word, topic) for topic, (_, new) in topics.items() for word in new.split()]
numbers = torch.tensor([list(topics).index(topic) for _, topic in table])  # (10,)
word_values = nn.functional.one_hot(numbers).float()          # (10, 5)

# %%
words = [word for word, _ in table + questions]
context = {word: column for column, (word, _) in enumerate(occurrences.most_common(500))}
counts = torch.zeros(len(words), len(context))                # (25, 500)
for text in texts:
    for place, word in enumerate(text):
        if word in words:
            for other in text[max(0, place - 3) : place] + text[place + 1 : place + 4]:
                if other in context:
                    counts[words.index(word), context[other]] += 1

# %% [markdown]
# So each word is a row of 500 counts. We ask by the dot product of rows, and take the hard lookup first, to see who wins. *What
# do you expect?* "Day" should find "month" or "week". Bear in mind how often "month" occurs in these texts, and how often
# "file".

# %%
def who_answers(vectors):
    word_keys, word_queries = vectors.split([len(table), len(questions)])  # (10, 500), (15, 500)
    return [table[place] for place in (word_queries @ word_keys.mT).argmax(dim=-1)]


def share_right(winners):
    """Print who answered whom, and count."""
    pairs = list(zip(winners, questions, strict=True))
    print(", ".join(f"{question} → {found}" for (found, _), (question, _) in pairs))
    return sum(topic == wanted for (_, topic), (_, wanted) in pairs) / len(pairs)


right = share_right(who_answers(counts))
print(f"right: {right:.0%}")
assert right < 0.4

# %% [markdown]
# It is "file" that answers, whatever the question. This is the trap of the largest hour again. "File" occurs so often that
# its row is *long*, and a dot product rewards length as much as direction.
#
# Two repairs, both standard. First, do not count how often a neighbour comes, but how much more often it comes than it would
# by chance. (The logarithm of that ratio, with negatives set to zero, is called positive pointwise mutual information. It
# silences "the", which is everybody's neighbour.) Second, make all rows equally long, so that only direction is left.

# %%
frequency = torch.tensor([float(occurrences[word]) for word in context])  # (500,)
by_chance = counts.sum(dim=1, keepdim=True) * frequency / frequency.sum()  # (25, 500)
information = (counts / by_chance).clamp(min=1.0).log()       # (25, 500)
vectors = information / information.norm(dim=-1, keepdim=True)  # (25, 500)  all of length 1
right = share_right(who_answers(vectors))
print(f"right: {right:.0%}")
assert right > 0.75

# %% [markdown]
# Same lookup, same dot product, better vectors. Nobody told the machine what a month is; it has seen which words stand around
# it. And the soft lookup says more than who wins. Its weights, at a low temperature:

# %%
word_keys, word_queries = vectors.split([len(table), len(questions)])
answers, weights = soft_lookup(word_queries, word_keys, word_values, temperature=0.05)
asked_for, stored = [word for word, _ in questions], [word for word, _ in table]
figures.lookup_table(weights, queries=asked_for, keys=stored)

# %% [markdown]
# Each pair of columns answers for its topic, and where a row is pale the lookup is unsure. The output, the average of the
# values, says how sure: here it is a row of five shares. An average of labels is a vote.

# %%
unsure = answers.max(dim=-1).values.argmin()
shares = zip(topics, answers[unsure].tolist(), strict=True)
print(f"least sure: {questions[unsure][0]}.", ", ".join(f"{topic} {x:.2f}" for topic, x in shares))

# %% [markdown]
# In the models of this course nobody counts. Keys and queries are made by learned layers, and what they come to mean is
# whatever made the loss fall. But the picture stays: a key is how a thing wishes to be found.

# %% [markdown]
# ## Four ways to match
#
# The dot product asks query and key to speak the same language: as wide as each other, coordinate by coordinate of the same
# meaning. In a translator the one comes from a decoder, the other from an encoder, and why should they? A **score function** is
# any rule that says how well a query matches a key. Four have names (vectors are columns here, and rows in the code):
#
# | | score of $q$ and $k$ | learns | proposed by |
# |---|---|---|---|
# | additive | $v^\top \tanh(W q + U k)$ | $W, U, v$ | Bahdanau et al. 2015 |
# | dot | $q^\top k$ | nothing | Luong et al. 2015 |
# | bilinear | $q^\top W k$ | $W$ | Luong et al. 2015 ("general") |
# | scaled dot | $q^\top k / \sqrt{d_k}$ | nothing | Vaswani et al. 2017 |
#
# In code, each maps queries $(n_q, d_q)$ and keys $(n_k, d_k)$ to a table $(n_q, n_k)$:

# %%
def dot(query, key):
    return query @ key.mT                                     # (n_q, n_k)


def scaled_dot(query, key):
    return query @ key.mT / math.sqrt(key.shape[-1])          # (n_q, n_k)


def bilinear(query, key, W):
    return query @ W @ key.mT                                 # (n_q, n_k)


def additive(query, key, W, U, v):
    pairs = (query @ W)[:, None] + (key @ U)[None]            # (n_q, n_k, d)
    return torch.tanh(pairs) @ v                              # (n_q, n_k)

# %% [markdown]
# The bilinear one translates the query, $q^\top W$, and takes a dot product. The additive one is a small network that looks at
# each pair: a hidden layer in which the two are added (hence the name), and a vector $v$ that makes one number of it. One deck
# prints it as $w_2^\top \tanh(W_1 [q; k])$, with query and key put side by side. That is the same: $W_1$ side by side is $W$
# and $U$. Here is the check, and with it that ours are the package's.

# %%
generator = torch.Generator().manual_seed(0)
q, k = torch.randn(3, 6, generator=generator), torch.randn(4, 6, generator=generator)
torch.manual_seed(0)
by_matrix, by_network = BilinearScore(6, 6), AdditiveScore(6, 6, 10)
W, U = by_network.query.weight.mT, by_network.key.weight.mT   # (6, 10) each
v = by_network.v.weight[0]                                    # (10,)
with torch.no_grad():
    assert torch.allclose(dot(q, k), dot_score(q, k))
    assert torch.allclose(scaled_dot(q, k), scaled_dot_score(q, k))
    assert torch.allclose(bilinear(q, k, by_matrix.weight), by_matrix(q, k), atol=1e-6)
    assert torch.allclose(additive(q, k, W, U, v), by_network(q, k), atol=1e-6)
    side_by_side = torch.cat([q[1], k[2]]) @ torch.cat([W, U])  # (12,) · (12, 10)
    assert torch.isclose(torch.tanh(side_by_side) @ v, by_network(q, k)[1, 2], atol=1e-6)

# %% [markdown] erratum="√|k|"
# > **On the slide.** For the scaled dot product one deck writes $q^\top k / \sqrt{|k|}$ and says "scale by size of the vector".
# > Bars around a vector are read as its length, $\lVert k \rVert$, and then each key is divided by something else, which
# > changes who wins. What is meant is how *many* numbers there are in a key:

# %%
long_keys = torch.tensor([[0.9, 0.0], [2.0, 2.0]])            # two keys: (2, 2)
ask = torch.tensor([[1.0, -0.45]])                            # (1, 2)
by_width = ask @ long_keys.mT / math.sqrt(2)                  # (1, 2)
by_length = ask @ long_keys.mT / long_keys.norm(dim=-1).sqrt()  # (1, 2)
print("√d_k:  ", by_width.numpy().round(2), " best key:", by_width.argmax().item())
print("√‖k‖:  ", by_length.numpy().round(2), " best key:", by_length.argmax().item())
assert torch.allclose(by_width, scaled_dot_score(ask, long_keys))
assert by_width.argmax() != by_length.argmax()

# %% [markdown]
# What kind of rule is each of them? A picture tells more than the formula. Think of all the places in the plane where a key
# might be, and colour each by the score that a given query would give it. Below you choose the score and turn the query (the
# green arrow). The six keys A to F get weights by softmax. The matrix of the bilinear score turns its query by a right angle.
# The additive network was set by hand, and has biases, which the formula above leaves out.
#
# *Before you play:* for the dot product, what shape do the lines of equal score have? Which of the four can prefer a key
# because it is *near*?

# %%
names = ["A", "B", "C", "D", "E", "F"]
places = torch.tensor([[0.9, 0.3], [1.8, 0.6], [-0.2, 1.1], [-1.2, 0.8], [-0.5, -1.5], [1.0, -0.9]])
quarter_turn = torch.tensor([[0.0, 1.0], [-1.0, 0.0]])
sides = 1.5 * torch.tensor([[1.0, -1.0, 0.0, 0.0], [0.0, 0.0, 1.0, -1.0]])  # (2, 4)


def near(query, key):
    """An additive score: its units see how far the key is to the right of the query, left, above, below."""
    pairs = (query @ -sides)[:, None] + (key @ sides)[None] - 1.0  # (n_q, n_k, 4)
    return torch.tanh(pairs) @ torch.full((4,), -2.0) - 3.0   # (n_q, n_k)

# %%
four = {"dot": dot, "scaled dot": scaled_dot, "additive": near}
four["bilinear"] = lambda query, key: bilinear(query, key, quarter_turn)


def draw(score, direction):
    angle = torch.tensor(math.radians(direction))
    query = torch.stack([angle.cos(), angle.sin()])           # (2,)
    return figures.score_landscape(four[score], query, places, names, f"{score}, {direction}°")


directions = [0, 60, 120, 180, 240, 300]
viz.explore(draw, score=list(four), direction=directions, start={"score": "dot", "direction": 0})

# %% [markdown]
# Three of the four are slopes, as even as a roof. A dot product rises steadily in the query's direction, the lines of equal
# score stand across it, and so among keys in one direction the farther one wins: B over A. Dividing by a constant makes the
# same slope gentler, and the weights more equal. The bilinear score is such a slope, too, except that the query is turned
# first. The additive score can be a hill. Its hidden units bend, so it can prefer what is *near* to what is far in the right
# direction, and A beats B.

# %%
east = torch.tensor([[1.0, 0.0]])                             # (1, 2)  the query at 0°
winner = {name: names[score(east, places).argmax()] for name, score in four.items()}
print(winner)
assert winner["dot"] == winner["scaled dot"] == "B" and winner["additive"] == "A"

# %% [markdown]
# ## Which of them can learn what?
#
# A picture in two dimensions can only suggest; let us count. A table has eight keys, one of which belongs to the query, and a
# score function is right if it gives that one the largest weight. There are three worlds:
#
# * **one language**: a key is a direction in four dimensions, and the query is the same vector;
# * **two languages**: the query is the same direction, but in other coordinates (turned and mirrored by a fixed matrix that
#   nobody is told);
# * **plain hours**: a key is one number between −1 and 1, as in the trap above, and the query is the same number.
#
# Every vector gets one more coordinate, which is always 1, so that a learned score may have a constant in it (a bias).

# %%
def tables(world, generator, batch=64, n=8):
    """Queries (batch, 1, d), keys (batch, n, d), and which key is the right one (batch,)."""
    keys = torch.randn(batch, n, 4, generator=generator)
    keys = keys / keys.norm(dim=-1, keepdim=True)
    if world == "plain hours":
        keys = 2 * torch.rand(batch, n, 1, generator=generator) - 1
    right = torch.randint(n, (batch,), generator=generator)
    query = keys[torch.arange(batch), right][:, None]
    if world == "two languages":
        query = query @ rotation
    query, keys = (nn.functional.pad(x, (0, 1), value=1.0) for x in (query, keys))
    return query, keys, right


rotation = torch.linalg.qr(torch.randn(4, 4, generator=torch.Generator().manual_seed(0)))[0]

# %% [markdown]
# Training is what it will be in every lecture: the loss is the negative logarithm of the weight that the right key gets, and
# its gradient flows through softmax and score into $W$, $U$ and $v$. The dot products have nothing to learn.
#
# *Your prediction, please, a table of three worlds by four scores:* who gets nearly all right, and who is left guessing?

# %%
def train(score, world, steps=500):
    generator = torch.Generator().manual_seed(1)
    if isinstance(score, nn.Module):
        optimizer = torch.optim.Adam(score.parameters(), lr=0.02)
        for _ in range(steps):
            query, keys, right = tables(world, generator)
            loss = nn.functional.cross_entropy(score(query, keys)[:, 0], right)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    query, keys, right = tables(world, generator, batch=2000)
    return (score(query, keys)[:, 0].argmax(dim=-1) == right).float().mean().item()

# %%
accuracy = {name: {} for name in ("dot", "scaled dot", "bilinear", "additive")}
for world, d in {"one language": 5, "two languages": 5, "plain hours": 2}.items():
    torch.manual_seed(0)
    candidates = dot_score, scaled_dot_score, BilinearScore(d, d), AdditiveScore(d, d, 32)
    for name, score in zip(accuracy, candidates, strict=True):
        accuracy[name][world] = train(score, world)
viz.grouped_bars(accuracy, y_name="right key has the largest weight", chance=1 / 8)

# %%
right = {world: [line[world] for line in accuracy.values()] for world in accuracy["dot"]}
assert min(right["one language"]) > 0.9
assert max(right["two languages"][:2]) < 0.5 and min(right["two languages"][2:]) > 0.9
assert max(right["plain hours"][:3]) < 0.4 and right["plain hours"][3] > 0.9

# %% [markdown]
# In one language all four are right. In two, the dot product compares coordinates that have nothing to do with each other,
# and is as sure of itself as before. (Here it does worse than guessing, because this matrix happens to turn three queries in
# four away from their own keys.) A matrix in between mends that. And among plain hours no even slope can help, because the
# query's number sits somewhere in the middle of the others, and a slope is highest at an edge: the three pick the largest or
# the smallest, which is right two times in eight. Only the score that can be a hill finds the middle.
#
# (The two dot products share every answer. To divide all scores by one number does not change which is the largest.)
#
# So is the additive score simply the best? It is the most flexible, and it has a price. For each pair of a query and a key it
# needs a hidden vector, that is $n_q \cdot n_k \cdot d$ numbers and as many tanh, where a matrix product needs only the scores.
# And the weakness of the dot product can be mended elsewhere: on the clock, we turned hours into vectors of equal length, and
# the dot product was all we needed. This is the road that the field has taken. Let learned layers make keys and queries that
# speak one language, $(x W_Q) \cdot (y W_K)$, and keep the score as cheap as it can be. (Multiplied out, that is
# $x\, W_Q W_K^\top y^\top$: a bilinear score, whose matrix comes in two factors.)
#
# > **Check yourself.** Take the 1 away from every vector, in the world of two languages, and the additive score learns nothing:
# > its average loss cannot fall below $\ln 8$, that of equal weights, however long it is trained. Why? (The package's network
# > has no bias, and $\tanh(-x) = -\tanh(x)$.)
# > <details><summary>Answer</summary>Without a constant the network is odd: if query and keys change their signs, so do all
# > scores. But a query and its key match as well after both have changed sign, and they come with either sign equally often.
# > What the network wins on a table it loses on the mirrored one, and at least as much, because the loss is convex in the
# > scores. The best that it can do is to give all keys the same weight.</details>

# %% [markdown]
# ## What the root is for
#
# The last experiment changed nothing between dot and scaled dot. So why does anybody divide? Let queries and keys come from
# learned layers of width $d_k$, whose outputs are of size about 1 in each coordinate. The dot product is then a sum of $d_k$
# terms, and a sum of many terms is large. Softmax over large scores is a hard lookup, from the first step on and between
# *random* vectors.
#
# We learn the two languages again, with eight dimensions, sixteen keys, two learned layers and one training recipe for all
# widths. *Guess:* by what factor does the loss at the start grow, when $d_k$ goes from 8 to 512, with the root and without?

# %%
def losses(score, d_k, lr=0.01, steps=150, d=8, n=16, batch=32):
    generator = torch.Generator().manual_seed(0)
    rotation = torch.linalg.qr(torch.randn(d, d, generator=generator))[0]
    W_Q, W_K = (nn.Parameter(torch.randn(d, d_k, generator=generator) / math.sqrt(d)) for _ in range(2))
    optimizer, history = torch.optim.Adam([W_Q, W_K], lr=lr), []
    for _ in range(steps):
        x = torch.randn(batch, n, d, generator=generator)
        scores = score(x[:, :1] @ rotation @ W_Q, x @ W_K)    # (batch, 1, n)  the first key is right
        loss = -scores.log_softmax(dim=-1)[:, 0, 0].mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        history.append(loss.item())
    return sum(history[:3]) / 3, sum(history[-25:]) / 25      # at the start, at the end

# %%
widths = [8, 32, 128, 512]
starts, ends = {}, {}
for name, score in {"dot": dot_score, "scaled dot": scaled_dot_score}.items():
    pairs = torch.tensor([losses(score, d_k) for d_k in widths])  # (4, 2)
    starts[name], ends[name] = pairs.unbind(dim=-1)
    print(f"{name}: loss at the start", starts[name].numpy().round(1), "at widths", widths)
lines = {name: dict(zip(widths, line.tolist(), strict=True)) for name, line in ends.items()}
viz.line_plot(lines, x_name="width of queries and keys, d_k", y_name="loss after 150 steps", log_x=True)

# %% [markdown]
# Somebody who gives all sixteen keys the same weight has a loss of $\ln 16 \approx 2.8$. The scaled dot product starts about
# there, at every width. The plain one starts above it, and the wider the vectors, the farther. From 8 to 512 the width grows
# 64-fold, the scores eightfold (by the root of that), and this loss roughly follows the scores: it is sure of itself before
# it has seen anything, and wrong. After the same 150 steps it has caught up where vectors are narrow, and not where they are
# wide.

# %%
assert starts["dot"][-1] > 3 * starts["scaled dot"][-1], "sure of itself, and wrong"
assert ends["dot"][-1] > 2 * ends["scaled dot"][-1]
assert abs(ends["dot"][0] - ends["scaled dot"][0]) < 0.2

# %% [markdown]
# In fairness to the plain dot product, it can be helped by a recipe of its own. Here it gets a tenth of the learning rate:

# %%
_, helped = losses(dot_score, 512, lr=0.001)
print(f"dot, width 512, lr 0.001: {helped:.2f}  (lr 0.01: {ends['dot'][-1]:.2f})")
assert helped < 0.7 * ends["dot"][-1]

# %% [markdown]
# What the root buys, then, is that *one* recipe fits all widths. It is the knob of this lecture, set once and for all:
# $T = \sqrt{d_k}$. Why it is the root and not $d_k$ itself, and what a hard softmax does to a gradient, is the subject of
# lecture @many_heads.

# %% [markdown]
# ## What you have
#
# > **Given a set of values and a query, attention computes a weighted sum of the values, where the weights depend on the
# > query**, by comparing it with one key for each value.
#
# This is how the decks define it, almost word for word, and you can now say what each part is there for. *Weighted sum*: so
# that it has a gradient, a fixed size, and always an answer. *Depend on the query*: or else it would be mean pooling. *Keys*:
# so that what a thing is asked by may differ from what it answers. Programmers have a word for the hard version, a pointer;
# attention is a pointer with a gradient. The package says it in one line, with the scaled dot product unless you choose another
# score:

# %%
def cool_dot(query, key):
    return dot_score(query, key) / 0.1


output, weights = attend(clock([7]), keys, values, score=cool_dot)  # (1, 1), (1, 6)
same_output, same_weights = soft_lookup(clock([7]), keys, values, temperature=0.1)
assert torch.allclose(output, same_output) and torch.allclose(weights, same_weights)
print(f"at seven o'clock: {output.item():.0f} bicycles")

# %% [markdown]
# That is perhaps closer to what you had in mind at the beginning. What it costs: every query meets every key, so $m$ queries
# on $n$ keys take $m \times n$ scores. A hash table finds its key in one step, however large it is. This is the price of an
# answer from everybody, and it will be with us until lecture @cheap_attention. A GPU changes nothing on this page; it is for tables of
# thousands of keys, and there it computes all scores at once.
#
# > **Check yourself.** (1) Five queries, nine keys of width 16, values of width 3: what are the shapes of scores, weights and
# > output? (2) Two keys are equal and their values are not. What does the soft lookup answer when asked for that key, at a very
# > low temperature? And a Python dictionary? (3) One value is changed. Which weights change?
# > <details><summary>Answers</summary>(1) Scores and weights (5, 9), output (5, 3). The 16 has been summed away. (2) The mean
# > of the two values: equal keys get equal shares. The dictionary keeps the one that was written last. (3) None. Weights come
# > from queries and keys alone.</details>
#
# **In the package.** `attncourse.attention` has `dot_score`, `scaled_dot_score`, `BilinearScore`, `AdditiveScore` and `attend`,
# in one short file. Assignment @lookup asks for the same functions, and for the two lookups of the bridge.
#
# **Read next.** Bahdanau, Cho and Bengio, *Neural machine translation by jointly learning to align and translate* (2015),
# section 3.1 and appendix A.1.2: the additive score. Luong, Pham and Manning, *Effective approaches to attention-based neural
# machine translation* (2015), section 3.1: dot, general, and a third that they call concat. Vaswani et al., *Attention is all
# you need* (2017), section 3.2.1: the scaled dot product, and why it is scaled. Nadaraya, *On estimating regression* (1964),
# and Watson, *Smooth regression analysis* (1964): the same average, before there was a network to learn it. Then [lecture
# @cross_attention](@cross_attention), where a translator asks.
