# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3 (ipykernel)
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Lecture @self_attention · Self-attention: a sentence asks itself
#
# *About 55 minutes, of which less than one is computing. You need the weighted average of
# [lecture @lookup](@lookup), query, key and value, and the table of weights of
# [lecture @cross_attention](@cross_attention), whose rows sum to one. Of recurrent networks you need to know that they take
# one step after another ([lecture @bottleneck](@bottleneck)).*
#
# When you have finished you will be able to write self-attention from memory, as a loop and as five matrix products; to
# say why a word needs three vectors and not one; to count what a layer costs, to the last multiply-add; and to name the
# one thing about a sentence that self-attention cannot see. In
# [assignment @self_attention](@self_attention/assignment) you build it.
#
# ## Whose book?
#
# *Anna lent Ben her book because he asked.* Whose book was it, and who asked? You did not hesitate: *her* is Anna, *he*
# is Ben. Now look at it as a network must. It has a table of embeddings with one vector for *her*, the same in every
# sentence that was ever written. Nothing in that vector can say "Anna". The answer stands in the sentence, three words
# to the left, and *her* has to go and get it.
#
# In [lecture @cross_attention](@cross_attention) a decoder went and got things, from an encoder; and the encoder was a
# recurrent network, which brings words together by carrying them along, one step at a time. Two mechanisms, then, that
# pass information on. One of the decks asks the question that changed the field: do we need both? Attention is a way
# for a vector to collect what it needs from a set of vectors. In lecture @cross_attention the set was another sentence: that is
# cross-attention. Let the set be the sentence itself, and it is **self-attention**.

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
import time

import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from attncourse.attention import MultiHeadAttention, attend
from attncourse.counting import layer_cost

torch.set_num_threads(1)  # one thread, so that the times below mean the same on every machine

# %% [markdown]
# Real embeddings have hundreds of numbers and nobody can read them. Here are eight that you can. Each word is described
# by six features; the sentence is a matrix with a word in each row.

# %%
words = ["Anna", "lent", "Ben", "her", "book", "because", "he", "asked"]
features = ["woman's name", "man's name", "she-word", "he-word", "deed", "thing"]
X = torch.zeros(8, 6)                                # (n, d_model)  eight words, six features
for word, feature in enumerate([0, 4, 1, 2, 5, None, 3, 4]):
    if feature is not None:                          # "because" is none of the six
        X[word, feature] = 1.0

# %% [markdown]
# ## First attempt: everybody compares everybody
#
# Attention needs queries, keys and values. The simplest choice, and one deck offers it for a start, is to use the words
# for all three: $q_i = k_i = v_i = x_i$. Then the score of two words is $x_i \cdot x_j$, how alike they are.
#
# *Before you run the next cell:* whom will *her* look at most?

# %%
scores = X @ X.mT                                    # (8, 8)  how alike are word i and word j?
weights = (3 * scores).softmax(dim=-1)               # (8, 8)  the 3 sharpens, so that more can be seen
viz.weight_tables({"every word is its own query and key": (words, weights)}, numbers=True)
her = words.index("her")
assert weights[her].argmax() == her, "it looks at itself"

# %% [markdown]
# At itself. Likeness is the wrong question: nothing in the sentence is more like *her* than *her*. The two deeds have
# found each other, which is of little use, and everybody else is alone. (*Because*, with no features at all, has no
# preference, and takes the plain mean.)
#
# Nor is this due to our tidy features. For vectors of equal length nothing has a larger dot product with $x_i$ than
# $x_i$ itself; that is the Cauchy–Schwarz inequality. And likeness is mutual, $x_i \cdot x_j = x_j \cdot x_i$, while
# need is not: *her* needs *Anna*, and *Anna* can do without *her*.
#
# ## Three things that a word does
#
# So a word must be able to *ask* for something that it is not. And it must be *found* by something other than what it
# asks for. And what it *hands over* once it is found is a third matter. Three roles, and the word's vector serves all
# three after it has been multiplied by a matrix for each:
#
# $$q_i = x_i W_Q \quad \text{what it looks for} \qquad k_i = x_i W_K \quad \text{what it can be found by} \qquad
# v_i = x_i W_V \quad \text{what it hands over}$$
#
# In a network the matrices are learned. We write them by hand once, so that you can see what there is to learn. Queries
# and keys live in a space of two questions, "a woman?" and "a man?". A she-word asks the first, a he-word the second,
# and a deed asks both, because deeds have doers. Only names can be found. Values have four numbers, and pronouns hand
# over nothing.

# %%
#                    woman? man?
W_Q = torch.tensor([[0.0, 0.0],                      # a woman's name asks nothing
                    [0.0, 0.0],                      # a man's name neither
                    [6.0, 0.0],                      # a she-word looks for a woman
                    [0.0, 6.0],                      # a he-word for a man
                    [6.0, 6.0],                      # a deed for anybody who might have done it
                    [0.0, 0.0]])                     # W_Q is (d_model, d_k) = (6, 2)
W_K = torch.zeros(6, 2)                              # (d_model, d_k)
W_K[0, 0] = W_K[1, 1] = 1.0                          # only names are found, each by its question
hands_over = ["Anna", "Ben", "deed", "thing"]
W_V = torch.zeros(6, 4)                              # (d_model, d_v)
W_V[[0, 1, 4, 5], [0, 1, 2, 3]] = 1.0                # pronouns hand over nothing

# %% [markdown]
# ## One word at a time
#
# Take word $i$. Its query meets the key of every word $j$, its own among them; the scores become shares; the shares
# average the values:
#
# $$e_{ij} = \frac{q_i \cdot k_j}{\sqrt{d_k}} \qquad\quad \alpha_{ij} = \frac{e^{\,e_{ij}}}{\sum_{j'} e^{\,e_{ij'}}}
# \qquad\quad o_i = \sum_j \alpha_{ij}\, v_j$$
#
# The root of $d_k$, the width of the queries and keys, keeps the scores in a range where softmax is neither flat nor
# hard; it is the scaled score of [lecture @lookup](@lookup), and lecture @many_heads shows why it is this root. The code is
# the three equations, in the order in which you would do them with a pencil:

# %%
def self_attention_loop(X, W_Q, W_K, W_V):
    n, d_k = len(X), W_K.shape[1]
    O = torch.zeros(n, W_V.shape[1])                             # (n, d_v)
    for i in range(n):                                           # word i asks …
        q = X[i] @ W_Q                                           # (d_k,)
        e = torch.stack([q @ (X[j] @ W_K) for j in range(n)])    # (n,)   … and every word answers
        alpha = (e / math.sqrt(d_k)).softmax(dim=0)              # (n,)   shares, which sum to one
        for j in range(n):
            O[i] += alpha[j] * (X[j] @ W_V)                      # (d_v,) what it takes of word j
    return O


by_loop = self_attention_loop(X, W_Q, W_K, W_V)                  # (8, 4)
for word in ("her", "he", "asked", "book"):
    received = by_loop[words.index(word)].tolist()
    print(f"{word:>6}: ", *(f"{name} {share:.2f} " for name, share in zip(hands_over, received, strict=True)))
assert by_loop[her, 0] > 0.85 and by_loop[her].argmax() == 0, "her is Anna"

# %% [markdown]
# *Her* has received Anna, nearly pure, and *he* has received Ben. Before, the two vectors were the same in every
# sentence. Now they are *her in this sentence* and *he in this sentence*.
#
# *Asked* has received both, half and half: it looks for a doer, and the sentence offers two. So has *lent*, the other
# deed. Remember it; it will cause trouble. *Book* asks nothing, so its scores are all zero, and it gets the mean of what
# everybody hands over. Choose a word, and follow it from the scores to what it receives.

# %%
def ask(word):
    i = words.index(word)
    scores = (X[i] @ W_Q) @ (X @ W_K).mT / math.sqrt(2)           # (8,)
    weights = scores.softmax(dim=-1)                              # (8,)
    return figures.one_query(words, i, scores, weights, weights @ (X @ W_V), hands_over)


viz.explore(ask, word=words, start={"word": "her"})

# %% [markdown] erratum="sum over the asker"
# Two things to look for. The word that asks stands among those that answer, in another colour; does any of them take
# much of itself? None does, this time. And *because* and *Anna*, who ask nothing, still receive something. Nobody can
# abstain: the shares must go somewhere. (In a whole Transformer a word keeps its own vector too, and adds what it
# received to it; lecture @deep_stacks.)
#
# > **On the slide.** One deck prints the last step as $o_i = \sum_i \alpha_{ij} v_i$. A letter cannot be summed over
# > and still name the result. Read one way, the sum runs over the words that *ask*; but what they give to word $j$ need
# > not sum to one. Read the other way, $\alpha_{ij}$ always meets the same $v_i$, and everybody gets back what was
# > theirs:

# %%
A = ((X @ W_Q) @ (X @ W_K).mT / math.sqrt(2)).softmax(dim=-1)    # (8, 8)  row i: word i's shares
V = X @ W_V                                                      # (8, 4)
print("a word's weights, summed over those who answer:", [round(x, 1) for x in A.sum(dim=1).tolist()])
print("               and summed over those who ask:  ", [round(x, 1) for x in A.sum(dim=0).tolist()])
own_back = torch.stack([sum(A[i, j] * V[i] for j in range(8)) for i in range(8)])       # (8, 4)
as_meant = torch.stack([sum(A[i, j] * V[j] for j in range(8)) for i in range(8)])       # (8, 4)
assert torch.allclose(own_back, V, atol=1e-5) and A.sum(dim=0).max() > 2
assert torch.allclose(as_meant, by_loop, atol=1e-6)

# %% [markdown]
# Three words are looking for *Anna*, and three for *Ben*, so their columns sum to more than two. The sum must run over
# $j$, the words that answer, as two other decks have it.
#
# ## All words at once
#
# Look at the loop again. Does word 5 need to know what word 4 received? It does not. Each needs the words $x_1, \dots,
# x_n$, which are all there from the beginning. The loop's order was an accident of writing it down, and that is the
# difference from a recurrence, where $h_5$ cannot begin before $h_4$ is there. So do all words at once:
#
# $$Q = XW_Q \qquad K = XW_K \qquad V = XW_V \qquad A = \operatorname{softmax}\Bigl(\frac{QK^\top}{\sqrt{d_k}}\Bigr)
# \qquad O = AV$$

# %%
figures.self_attention_shapes(n=8, d_model=6, d_k=2, d_v=4)

# %%
def self_attention(X, W_Q, W_K, W_V):
    Q, K, V = X @ W_Q, X @ W_K, X @ W_V                          # (…, n, d_k), (…, n, d_k), (…, n, d_v)
    scores = Q @ K.mT / math.sqrt(K.shape[-1])                   # (…, n, n)   row i: what word i asked
    A = scores.softmax(dim=-1)                                   # (…, n, n)   each row sums to one
    return A @ V, A                                              # (…, n, d_v)


O, A = self_attention(X, W_Q, W_K, W_V)
assert torch.allclose(O, by_loop, atol=1e-6), "the same numbers as the loop's"

# %% [markdown]
# Five products and a softmax, and the numbers are those of the loop. Check the shapes against the picture: the table is
# square this time, $n \times n$, because the same words ask and answer. That makes it easier to mix up its axes, not
# harder, since nothing will complain. Rows ask.
#
# The function takes a batch of sentences as well, because products, `.mT` and a softmax along the last axis leave all
# earlier axes alone. And it is what the package's `attend` does, if query, key and value come from the same place:

# %%
torch.manual_seed(0)
sentences = torch.randn(3, 7, 16)                                # (batch, n, d_model)
P_Q, P_K, P_V = (torch.randn(16, 16) / 4 for _ in range(3))
output, weights = self_attention(sentences, P_Q, P_K, P_V)       # (3, 7, 16), (3, 7, 7)
packaged, _ = attend(query=sentences @ P_Q, key=sentences @ P_K, value=sentences @ P_V)
assert torch.allclose(output, packaged, atol=1e-5)

# %% [markdown] erratum="Qx beside XQ"
# > **On the slide.** Three decks write $q_i = Q x_i$ on one slide (one of them $W^Q x_i$) and stack the words into $XQ$
# > on a later one, with the same matrix. The first treats a word as a column, the second as a row, and then the one $Q$
# > is the other's transpose. On the slides $Q$ is square, or its shape is not given, so that nothing looks wrong. Give
# > it another width, and something does:

# %%
Q_column = torch.randn(2, 6)                                     # (d_k, d_model), made for columns: q = Q x
columns = torch.stack([Q_column @ x for x in X])                 # (8, 2)  word by word
assert torch.allclose(X @ Q_column.mT, columns)                  # (8, 2)  stacked: the transpose
try:
    X @ Q_column
except RuntimeError as error:
    print("X @ Q:", error)
square = torch.randn(6, 6)                                       # and if it is square, nothing complains
print("Q x_i and X Q agree:", torch.allclose(torch.stack([square @ x for x in X]), X @ square))

# %% [markdown]
# In this course words are rows and matrices stand on the right, $XW$, as in Vaswani et al. (2017). The other convention
# is not wrong, and you will meet it at once: `nn.Linear(d_in, d_out)` keeps its weight as (d_out, d_in) and computes
# $xW^\top$. So whoever copies a matrix into a layer has to transpose it. With that, torch's layers and ours agree; here
# in the package's `MultiHeadAttention`, told to have one head and to leave the output alone:

# %%
layer = MultiHeadAttention(d_model=16, n_heads=1, bias=False)
with torch.no_grad():
    for linear, matrix in ((layer.query, P_Q), (layer.key, P_K), (layer.value, P_V)):
        linear.weight.copy_(matrix.mT)                           # nn.Linear multiplies by the transpose
    layer.output.weight.copy_(torch.eye(16))                     # the output's matrix, of lecture @many_heads: changes nothing
    assert torch.allclose(layer(sentences), output, atol=1e-5)

# %% [markdown]
# > **Check yourself.** (1) Four sentences of 20 words, d_model 64, d_k 16, d_v 32: what are the shapes of Q, of the
# > scores and of the output? (2) Where in the code do the words of one sentence meet those of another? (3) How many
# > parameters has the layer, and how does their number depend on n?
# > <details><summary>Answers</summary>(1) (4, 20, 16),
# > (4, 20, 20), (4, 20, 32). (2) Nowhere: the batch axis is never summed over. (3) 2 · 64 · 16 + 64 · 32 = 4096,
# > whatever n is. The matrices belong to the roles and not to the places, so one set of them serves sentences of every
# > length.</details>
#
# ## Learned, not written
#
# Our matrices were written by somebody who knew the answer. Can they be found by gradient descent, and do we really
# need both $W_Q$ and $W_K$? Here is a task to find out. Somebody kept a diary of a week's dinners on seven cards, one
# for each day, and dropped them:

# %%
DAYS = ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"]
MEALS = ["fish", "rice", "soup", "beans", "pie", "stew", "eggs", "curry", "salad", "pasta", "leeks", "toast"]


def shuffled_weeks(batch, generator):
    days = torch.rand(batch, 7, generator=generator).argsort(dim=-1)      # (batch, 7)  in any order
    meals = torch.randint(len(MEALS), (batch, 7), generator=generator)    # (batch, 7)
    of_day = torch.zeros_like(meals).scatter(1, days, meals)              # (batch, 7)  Monday's first
    return days, meals, of_day.gather(1, (days + 1) % 7)                  # and tomorrow's, card by card


days, meals, tomorrow = shuffled_weeks(1, torch.Generator().manual_seed(1))
for day, meal, answer in zip(days[0], meals[0], tomorrow[0], strict=True):
    print(f"{DAYS[day]}  {MEALS[meal]:<6} → {MEALS[answer]}")

# %% [markdown]
# For every card the question is what there will be *tomorrow*. (After Sunday comes Monday.) Every card must look at one
# particular other card, and which one depends on what is written on it.
#
# Three layers try. All embed the day and the meal, add the two, and predict from $o_i$. They differ in how they weigh:
# one with queries and keys as above, one with **one projection** for both, $W_K = W_Q$, and one that does not look at
# all but takes the plain **mean** of all the values.

# %%
class Diary(nn.Module):
    def __init__(self, kind, d=32):
        super().__init__()
        self.kind, self.day, self.meal = kind, nn.Embedding(7, d), nn.Embedding(len(MEALS), d)
        self.query = nn.Linear(d, d, bias=False)
        self.key = self.query if kind == "one projection" else nn.Linear(d, d, bias=False)
        self.value = nn.Linear(d, len(MEALS), bias=False)

    def forward(self, days, meals):
        x = self.day(days) + self.meal(meals)                             # (batch, 7, d)
        scores = self.query(x) @ self.key(x).mT / math.sqrt(x.shape[-1])  # (batch, 7, 7)
        if self.kind == "mean":
            scores = 0 * scores                                           # everybody counts the same
        A = scores.softmax(dim=-1)                                        # (batch, 7, 7)
        return A @ self.value(x), A                                       # (batch, 7, meals)

# %% [markdown]
# *Guess before you train.* The mean knows which seven meals there are, though not whose. How often can it be right? And
# what will one projection do, with which a card asks by the very vector that it is found by?

# %%
diaries, right = {}, {}
for kind in ("mean", "one projection", "two projections"):
    torch.manual_seed(0)
    draws, model = torch.Generator().manual_seed(0), Diary(kind)
    optimiser = torch.optim.Adam(model.parameters(), lr=3e-3)
    for _ in range(800):
        days, meals, tomorrow = shuffled_weeks(64, draws)
        loss = nn.functional.cross_entropy(model(days, meals)[0].flatten(0, 1), tomorrow.flatten())
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    days, meals, tomorrow = shuffled_weeks(2000, draws)                   # weeks that it has never seen
    hit = model(days, meals)[0].argmax(dim=-1) == tomorrow                # (2000, 7)
    diaries[kind], right[kind] = model, [hit[days == day].float().mean().item() for day in range(7)]

# %%
print(" " * 15, *(f"{day:>5}" for day in DAYS))
for kind, shares in right.items():
    print(f"{kind:>15}", *(f"{share:5.0%}" for share in shares))
assert max(right["mean"]) < 0.5, "an average that is the same for everybody cannot choose"
assert min(right["two projections"]) > 0.98, "asking and being found, separately, solve it"
assert max(right["one projection"]) > 0.9 and min(right["one projection"]) < 0.5, "one projection loses a day"

# %% [markdown]
# The mean guesses among what is there, and best by naming what is there most often. (With twelve meals for seven days,
# one is usually there twice. So it does better than one in seven.) Two projections make hardly a mistake, after a few
# hundred steps. But what is this in the middle? One projection gets most days right, against all that was said above,
# and **one day it gets wrong**, nearly always. Which one depends on the seed, and with a few seeds it is two. With no
# seed that we tried did it get every day right. Look where the cards look, here with the days put in order:

# %%
in_order, some_meals = torch.arange(7)[None], torch.arange(7)[None]       # (1, 7)  fish on Monday, rice on …
kinds = ("one projection", "two projections")
tables = {kind: diaries[kind](in_order, some_meals)[1][0].detach() for kind in kinds}    # (7, 7) each
viz.weight_tables({kind: (DAYS, table) for kind, table in tables.items()}, numbers=True)

# %% [markdown]
# On the right each day looks at the next, and Sunday at Monday: a clean line beside the diagonal, found from nothing
# but right and wrong dinners. On the left most days do the same, and one breaks the line.
#
# How can it work at all, if a word matches nobody better than itself? That was said of vectors of *equal length*. Let
# $u_i = x_i W$ be the one vector that a day has for asking and being found, and see what the network has made of it:

# %%
one = diaries["one projection"]
with torch.no_grad():
    U = one.query(one.day.weight + one.meal.weight.mean(dim=0))           # (7, d)  the days, with an average meal
scores, length = U @ U.mT, U.norm(dim=-1)                                 # (7, 7), (7,)
lost = right["one projection"].index(min(right["one projection"]))
week = [(lost + 1 + step) % 7 for step in range(7)]                       # from the day after the lost one
print(f"{'':<20}", *(f"{DAYS[day]:>6}" for day in week))
print(f"{'length of its vector':<20}", *(f"{length[day]:6.1f}" for day in week))
print(f"{'product with itself':<20}", *(f"{scores[day, day]:6.0f}" for day in week))
print(f"{'and with tomorrow':<20}", *(f"{scores[day, (day + 1) % 7]:6.0f}" for day in week))
assert torch.allclose(scores, scores.mT), "i matches j as j matches i"
for day in range(7):
    if scores[day].argmax() == (day + 1) % 7:
        assert length[(day + 1) % 7] > length[day], "who finds tomorrow, finds a longer vector"

# %% [markdown]
# The vectors grow along the week. The network has found the way out that the inequality leaves: to have a larger
# product with the next day's vector than with its own, $u_i \cdot u_{i+1} > u_i \cdot u_i$, the next must be *longer*
# (since $u_i \cdot u_{i+1} \le |u_i|\,|u_{i+1}|$). So the week winds outwards, each day longer than the last and
# turned away from it by some angle. It is a clever answer to a silly restriction, and it cannot close the circle: a
# vector that is longer than its predecessor all the way round would have to be longer than itself. With two
# projections there is nothing to get around. (The assignment asks you for another proof, from the symmetry of the
# scores alone.)
#
# Let us also look at the general case, by counting, without training and without tidy features: random words, random
# matrices. How many words look most at themselves?

# %%
def looks_at_itself(n=32, d=64, trials=50):
    torch.manual_seed(0)
    X = torch.randn(trials, n, d)                                         # (trials, n, d)
    W_Q, W_K = torch.randn(2, trials, d, d) / math.sqrt(d)                # (trials, d, d), twice
    Q, K = X @ W_Q, X @ W_K                                               # (trials, n, d)
    scores = {"q = k = x": X @ X.mT, "one projection": Q @ Q.mT, "two projections": Q @ K.mT}
    best = {name: table.argmax(dim=-1) for name, table in scores.items()}                # (trials, n)
    return {name: (j == torch.arange(n)).float().mean().item() for name, j in best.items()}


shares = looks_at_itself()
print({name: f"{share:.0%}" for name, share in shares.items()})
assert min(shares["q = k = x"], shares["one projection"]) > 0.9 and shares["two projections"] < 0.15

# %% [markdown]
# Before any training a layer with one projection has every word staring at itself. With two it looks anywhere, itself
# included, one time in $n$. Learning starts from an open mind.
#
# ## Nobody knows their place
#
# Back to Anna, and to something that we passed over. Swap the two names: *Ben lent Anna her book because he asked.* The
# sentence has another meaning; now it is Ben who lends. *What will change in the layer's output?* Think of *her*, of
# *lent*, and of the table as a whole, before you go on.

# %%
swap = [2, 1, 0, 3, 4, 5, 6, 7]                                  # Ben lent Anna her book because he asked
swapped = [words[i] for i in swap]
O_swapped, A_swapped = self_attention(X[swap], W_Q, W_K, W_V)
viz.weight_tables({"Anna lent Ben …": (words, A), "Ben lent Anna …": (swapped, A_swapped)})

# %%
lent = words.index("lent")
print("“lent” received", O[lent], "\n        and now", O_swapped[lent])
assert torch.allclose(O_swapped, O[swap], atol=1e-6), "every word takes its output along to its new place"
assert torch.allclose(O_swapped[lent], O[lent], atol=1e-6)

# %% [markdown]
# Nothing has changed. The names have swapped places and have taken their rows, their columns and their outputs along.
# *Lent* gets Anna and Ben, half and half, as before: it can find out that the two had to do with lending, and never who
# gave and who got. Our hand-made matrices are not to blame:

# %%
torch.manual_seed(1)
worst = 0.0
for _ in range(200):
    Z, order = torch.randn(9, 6, dtype=torch.float64), torch.randperm(9)
    matrices = [torch.randn(6, 5, dtype=torch.float64) for _ in range(3)]
    difference = self_attention(Z[order], *matrices)[0] - self_attention(Z, *matrices)[0][order]
    worst = max(worst, difference.abs().max().item())
print(f"200 random sentences, shuffled: largest difference {worst:.1e}")
assert worst < 1e-12

rnn = nn.RNN(6, 5, batch_first=True).double()                    # a recurrence, for comparison
print(f"the same for a recurrence:      {(rnn(Z[order])[0] - rnn(Z)[0][order]).abs().max().item():.1e}")
assert (rnn(Z[order])[0] - rnn(Z)[0][order]).abs().max() > 0.1

# %% [markdown]
# Shuffle the words, and the outputs are shuffled along, for all matrices and all sentences. The name for it is
# **permutation equivariance**. It can be read off the equations, with a matrix $P$ that reorders rows. The scores of
# $PX$ are $P Q K^\top P^\top$, with rows and columns reordered; a softmax along rows does not care in which order they
# come; and $(P A P^\top)(P V) = P A V$, because $P^\top P = I$.
#
# Self-attention is an operation on *sets*, says one deck, and that is it: a sentence is a bag of words that ask each
# other. (Some call the function itself unordered. Take care: the output as a whole is not the same for every order, it
# moves along. What is the same for every order is a sum or mean over it.)
#
# For the shuffled diary this was no loss, and even a gift, since the order of the cards meant nothing. For a sentence
# it is the one thing that has to be mended, and it is not mended by more layers: what each layer treats as a set
# remains a set. [Lecture @order](@order) is about how a word can be told where it stands.
#
# > **Check yourself.** A sentence contains the same word twice: "the dog chased another dog". What can you say of the
# > two outputs for *dog*?
# > <details><summary>Answer</summary>They are equal. Swapping the two dogs changes nothing in X,
# > so it must change nothing in the output; but it also swaps their two rows. (This is for attention without a mask.
# > Lecture @order looks at what a mask changes.)</details>
#
# ## What it costs
#
# Vaswani et al. put three questions to a layer (their section 4). How much arithmetic does it take? How many steps must
# be taken one after the other? And how far must a signal travel from one word to another, since what travels far is
# hard to learn ([lecture @bottleneck](@bottleneck) measured how the gradient fades)? Begin with the last one. The thick
# line is the shortest way from the first word to the last.

# %%
figures.path_lengths(n=7, width=2)

# %% [markdown]
# In a recurrence the first word reaches the last by passing through every cell between. In self-attention every pair of
# words is one step apart, however long the sentence. For the third picture, imagine that $n^2$ pairs are too many, and
# let each word meet only its neighbours: itself and `width` words on each side. That is **restricted** self-attention.
# One layer then sees no further than its window, but layers can be stacked, and what a neighbour has heard it passes
# on.
#
# How far do we hear? By the picture, `layers` × `width` positions in either direction. Rather than believe a picture,
# ask for the gradient: it is nonzero exactly where something gets through.

# %%
n, d, width = 24, 8, 2
position = torch.arange(n)
near = (position[:, None] - position).abs() <= width             # (n, n)  True: may attend
for layers in (1, 2, 3, 4):
    torch.manual_seed(layers)
    words_in = torch.randn(n, d, requires_grad=True)
    h = words_in                                                 # (n, d)
    for _ in range(layers):
        W = torch.randn(3, d, d) / math.sqrt(d)
        h, _ = attend(h @ W[0], h @ W[1], h @ W[2], near)        # (n, d)
    (gradient,) = torch.autograd.grad(h[12].sum(), words_in)     # (n, d)  of word 12's output, at every word
    heard = gradient.abs().sum(dim=-1) > 0                       # (n,)
    assert torch.equal(heard, (position - 12).abs() <= layers * width)
    print(f"layers: {layers}   word 12 hears of words {heard.nonzero()[[0, -1], 0].tolist()}, and all between")

# %% [markdown]
# Now find the trade for yourself. The square in the top row is one word; filled dots are those of whom it has heard,
# layer by layer. The lines are windows, drawn for the outermost words only. Which settings let it hear of everybody?
# And which of these compares the fewest pairs in all layers together?

# %%
viz.explore(
    lambda width, layers: figures.receptive_field(24, width, layers),
    names={"width": "words on each side"}, start={"width": 3, "layers": 3},
    width=[1, 2, 3, 4, 6, 12], layers=[1, 2, 3, 4],
)

# %% [markdown]
# Twelve words in one direction need one layer of width 12, or two of 6, three of 4, four of 3. In each case the pairs
# of all layers together are nearly the same, from 24 to 28 a word. Windows do not make the way to a distant word
# cheaper. They make a layer cheaper, and the way longer: about $n / \texttt{width}$ layers across the sentence.
#
# Next, the arithmetic. A product of an $(a, b)$ matrix with a $(b, c)$ matrix takes $abc$ multiplications, each with an
# addition. If every vector is $d$ wide, self-attention has these five products:
#
# | product | sizes | multiply-adds |
# |---|---|---|
# | $XW_Q$, $XW_K$, $XW_V$ | three times $(n, d)(d, d)$ | $3nd^2$ |
# | $QK^\top$ | $(n, d)(d, n)$ | $n^2d$ |
# | $AV$ | $(n, n)(n, d)$ | $n^2d$ |
#
# and a simple recurrence $h_t = \tanh(x_t W + h_{t-1} U)$ has two products of a vector with a $d \times d$ matrix at
# each of $n$ steps, $2nd^2$. We need not trust the sum: torch can count while it computes, and counts two operations
# for each multiply-add.

# %%
def recurrence(X, W, U):
    h, states = torch.zeros(1, U.shape[0]), []
    for x in X:                                                  # one after the other: each needs the last
        h = torch.tanh(x[None] @ W + h @ U)                      # (1, d)
        states.append(h)
    return torch.cat(states)                                     # (n, d)


def counted(layer, n, d, matrices):
    with FlopCounterMode(display=False) as counter:
        layer(torch.randn(n, d), *torch.randn(matrices, d, d))
    return counter.get_total_flops() // 2                        # multiply-adds


for n, d in ((10, 64), (96, 64), (300, 32)):
    assert counted(self_attention, n, d, 3) == 3 * n * d**2 + 2 * n**2 * d
    assert counted(recurrence, n, d, 2) == 2 * n * d**2
    assert layer_cost("self-attention", n, d).multiply_adds == 3 * n * d**2 + 2 * n**2 * d

# %% [markdown]
# The formulas hold to the last operation, and the package has them as `layer_cost`. What grows how fast? Here is $d =
# 64$, over lengths from a short phrase to a chapter. *Guess first* where the pairs overtake the projections.

# %%
lengths, d = [4**k for k in range(1, 7)], 64
viz.curves(
    {
        "projections, 3nd²": [3 * n * d**2 for n in lengths],
        "pairs, 2n²d": [2 * n**2 * d for n in lengths],
        "recurrence, 2nd²": [2 * n * d**2 for n in lengths],
    },
    xs=lengths, x_name="length n  (d = 64)", y_name="multiply-adds", log_x=True, log_y=True,
)
crossing = next(n for n in range(1, 4096) if 2 * n**2 * d >= 3 * n * d**2)
print("pairs cost as much as the projections at n =", crossing)
assert crossing == 1.5 * d

# %% [markdown] erratum="O(n²d) alone"
# > **On the slide.** Four of the five decks give the cost of self-attention as $O(n^2 d)$, and where a recurrence
# > stands beside it, give $O(nd^2)$ for that. As orders of growth in $n$ alone both are right. But the projections,
# > $3nd^2$, are left out, and they are the larger part as long as $n < 1.5\,d$. Two of the decks even propose numbers:
# > d about 1,000, a sentence of at most 30 words, a usual bound of 512, and documents of 50,000. Put them in:

# %%
d, share = 1000, {}
for n in (30, 512, 50_000):
    share[n] = 2 * n**2 * d / layer_cost("self-attention", n, d).multiply_adds
    print(f"n = {n:>6}, d = {d}: the pairs are {share[n]:5.1%} of the arithmetic")
assert share[30] < 0.03 and share[50_000] > 0.95

# %% [markdown] erratum="cheaper while n is small"
# In the sentence the famous square is next to nothing, in the document nearly everything. Both belong to the picture:
# *up to about d words self-attention is a few matrix products a word; far beyond, it is its square*. (Lecture @cheap_attention is
# about that other end.) The same two decks remark that the larger a Transformer, the more of its work lies elsewhere,
# "despite the quadratic cost". Here is one reason: the pairs' share is $2n / (3d + 2n)$, which falls as $d$ grows.
#
# > **On the slide.** One deck concludes that if $n \ll d$, a layer of self-attention costs less than the recurrent
# > ones. By the orders of growth, $n^2d$ is then less than $nd^2$. Count everything, and the simple recurrence is
# > cheaper at *every* length, since $2nd^2 < 3nd^2 + 2n^2d$. The gated ones are dearer: a GRU has three such pairs of
# > matrices, an LSTM four. So the sentence holds for an LSTM, as the next cell counts, and does not for the simple
# > recurrence.

# %%
d = 512
for n in (10, 100, 1000, 10_000):
    attention, *_ = layer_cost("self-attention", n, d)
    simple, *_ = layer_cost("recurrent", n, d)
    print(f"n = {n:>6}: {attention / simple:4.1f} × the simple recurrence, {attention / (4 * simple):3.1f} × an LSTM")
    assert attention > simple
for n, less in ((1279, True), (1281, False)):                    # 3 d + 2 n < 8 d as long as n < 2.5 d = 1280
    assert (layer_cost("self-attention", n, d)[0] < 4 * layer_cost("recurrent", n, d)[0]) is less

# %% [markdown]
# So it is not by doing less that self-attention won. It won by the second question, the steps. Here is table 1 of
# Vaswani et al., with all three answers as orders of growth, for windows of $r$ words and convolutions of $k$:
#
# | layer | complexity | sequential operations | maximum path length |
# |---|---|---|---|
# | self-attention | $O(n^2 d)$ | $O(1)$ | $O(1)$ |
# | recurrent | $O(n d^2)$ | $O(n)$ | $O(n)$ |
# | convolutional | $O(k\,n d^2)$ | $O(1)$ | $O(\log_k n)$ |
# | self-attention, restricted | $O(r\,n d)$ | $O(1)$ | $O(n/r)$ |
#
# (A convolution multiplies each position of a window by a matrix of its own. The logarithm is for windows with gaps
# that widen from layer to layer; without gaps it is $n/k$, as the paper says beside the table.) And here are exact
# numbers, projections and all, for windows without gaps:

# %%
n, d, width = 100, 512, 4
print(f"n = {n}, d = {d}, windows of {width} on each side\n{'':>15}  multiply-adds   steps   path")
for kind in ("self-attention", "restricted", "recurrent", "convolution"):
    cost = layer_cost(kind, n, d, width if kind in ("restricted", "convolution") else None)
    print(f"{kind:>15}  {cost.multiply_adds:>13,}   {cost.sequential_steps:>5}   {cost.path_length:>4}")

# %% [markdown]
# All but one have a single step: whatever the sentence's length, their products can be done at once. The recurrence has
# one for each word. Does that matter for the clock? *Two guesses, please.* At 64 words of width 64 self-attention does
# more than twice the arithmetic of the recurrence: which one is faster? And at 2,048 words?

# %%
def seconds(layer, *inputs, repeats=7):
    """The shortest of several calls: what else the machine was doing only ever adds to the time."""
    taken = []
    with torch.no_grad():
        for _ in range(repeats + 1):                             # the first call warms up
            start = time.perf_counter()
            layer(*inputs)
            taken.append(time.perf_counter() - start)
    return min(taken[1:])

# %%
def both(n, d):
    matrices, rnn = torch.randn(3, d, d) / math.sqrt(d), nn.RNN(d, d, batch_first=True)
    X = torch.randn(1, n, d)                                     # (batch, n, d)
    return seconds(self_attention, X, *matrices), seconds(rnn, X)


sizes = [16, 64, 256, 1024, 2048]
attention, recurrent = zip(*(both(n, 64) for n in sizes), strict=True)
times = {"self-attention": attention, "recurrence (nn.RNN)": recurrent}
viz.curves(times, xs=sizes, x_name="length n  (d = 64)", y_name="seconds", log_x=True, log_y=True)

# %%
ratio = [a / r for a, r in zip(attention, recurrent, strict=True)]
for n, times_as_long in zip(sizes, ratio, strict=True):
    print(f"n = {n:>4}: self-attention takes {times_as_long:4.2f} times as long as the recurrence")
assert ratio[1] < 0.8, "more arithmetic, less time: nobody waits"
assert ratio[-1] > 3 * ratio[1], "until the square catches up"

# %% [markdown]
# At 64 words the layer that does more arithmetic takes a fraction of the time. (The recurrence is torch's own, whose
# loop is not written in Python.) Each of its steps is a tiny product, over before the processor has got going, and the
# next one has to wait for it. The times of self-attention rise more steeply towards the end, because doubling the length
# makes four times the pairs, and the square eats up the advantage. Where the curves cross depends on the machine, and
# we claim nothing about it.
#
# It depends on $d$ as well. The wider the vectors, the more there is to do in each step of the recurrence, and the less
# is lost by waiting:

# %%
widths = [16, 64, 256, 512]
attention, recurrent = zip(*(both(128, d) for d in widths), strict=True)
times = {"self-attention": attention, "recurrence (nn.RNN)": recurrent}
viz.curves(times, xs=widths, x_name="width d  (n = 128)", y_name="seconds", log_x=True, log_y=True)
ratio = [a / r for a, r in zip(attention, recurrent, strict=True)]
for d, times_as_long in zip(widths, ratio, strict=True):
    print(f"d = {d:>3}: self-attention takes {times_as_long:4.2f} times as long as the recurrence")
assert ratio[-1] > 1.5 * ratio[0], "the wider, the smaller the advantage"

# %% [markdown]
# One processor core does a few multiply-adds at a time, so it is filled early. A GPU does thousands at once, and on it
# the steps that wait cost so much, and the square so little, that the crossing moves to far longer sentences: that is
# what a GPU changes here, and why this layer and that hardware grew up together.
#
# > **Check yourself.** (1) d = 4096, as in a large model: up to about which n do the projections outweigh the pairs?
# > (2) You double n. What happens to the table of weights in memory? (3) A convolution of width 4 and a restricted
# > attention of width 4 have the same path. Which takes more arithmetic at d = 512, and why?
# > <details><summary>Answers</summary>(1) 1.5 · 4096 = 6144. (2) It takes four times as much: n² numbers, for every
# > sentence of the batch. (3) The convolution, about three times as much: it has a matrix for each of its 9 places and
# > multiplies each neighbour by one, 9nd², where attention projects each word three times and then takes dot products,
# > 3nd² + 18nd. In return the convolution knows which neighbour stood where.</details>
#
# ## What you have, and what is missing
#
# A layer in which every word asks every word, in one step; three matrices that serve sentences of any length; a price
# of $3nd^2 + 2n^2d$. Nothing recurs, and nothing waits. Can it simply take the recurrence's place? Not yet. Three
# things are missing, and the decks list them in a table that they fill as they go:
#
# | what is missing | why | where it is mended |
# |---|---|---|
# | order | a set has none, as you have just proved | [lecture @order](@order) |
# | something other than averages | the values are averaged and averaged again, however many layers you stack | lecture @masking |
# | blindness to the future | a word that is to be predicted must not be among those that answer | lecture @masking |
#
# And the layer has one table of weights, so that *lent* had to look for giver and receiver with one question. Lecture
# @many_heads gives it several.
#
# **In the package.** `attncourse.attention.attend` is the layer's core, and `MultiHeadAttention` has the projections
# with it, for any number of heads. `attncourse.counting.layer_cost` counts one layer, and its neighbours there whole
# models. What restricted attention looks like if it is to save work and not only to forbid is in
# `attncourse.efficient`.
#
# **Read next.** Vaswani et al., *Attention is all you need* (2017): section 3.2.1 for the equation, section 4 with
# table 1 for "why self-attention", which you are now in a position to criticise. Cheng, Dong and Lapata, *Long
# short-term memory-networks for machine reading* (2016), let a recurrent network attend to its own past: self-attention
# before the recurrence was thrown away. Lee et al., *Set Transformer* (2019), take the set at its word, and use
# attention where order truly means nothing.
