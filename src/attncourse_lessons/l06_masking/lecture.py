# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3 (ipykernel)
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Lecture @masking · Masking and non-linearity: what a word may see, and what it does with it
#
# *About 55 minutes, of which less than one is computing. You need self-attention with its table of weights
# ([lecture @self_attention](@self_attention)), and of [lecture @bottleneck](@bottleneck) what a language model is: something
# that predicts the next token from those before it.*
#
# When you have finished you will be able to say what a stack of attentions can never do, and which of two remedies
# cures which of its two illnesses; to write every mask that a Transformer needs, so that nothing leaks and nothing
# becomes NaN; to find a leak without training; and to say why a Transformer learns from all words of a text at once.
# In [assignment @masking](@masking/assignment) you build it, and a test that finds leaks in other people's
# models.
#
# ## Six pots of paint
#
# Six pots of paint stand in a circle, each of a different colour. In every round each pot is emptied and filled again,
# with a mixture of what was in the six: this one takes a lot from its neighbour, that one a little of everything.
# Nobody tells you the recipes. What do the pots look like after ten rounds?
#
# The question is about attention. A layer of it gives every word a mixture of all words' values, and the next layer
# mixes the mixtures. [Lecture @self_attention](@self_attention) ended with a list of three things that self-attention lacks.
# Order was the first. This lecture is about the other two: something other than averages, and a way not to see the
# future.

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
import torch.nn.functional as F
from torch import nn

from attncourse.attention import attend, causal_mask, combine_masks, lengths_to_mask, masked_softmax
from attncourse.data.number_words import say
from attncourse.layers import FeedForward, layer_norm
from attncourse.transformer import Encoder, TransformerConfig

torch.set_num_threads(1)  # models as small as these gain nothing from a second thread, and lose when it has to wait

# %% [markdown]
# Let a colour be two numbers, how much red and how much blue, so that it can be drawn. The recipes of a round are a
# table of weights, a row for each pot, made by softmax as always; here the scores are random numbers. *Before you move
# the sliders:* can a pot become redder than the reddest was in the round before? The slider *choosy* multiplies the
# scores, until a pot is filled from hardly more than one other. Will that stop what you see?

# %%
def mix(choosy, rounds=6):
    torch.manual_seed(1)
    pots = [torch.rand(6, 2)]                         # (6, 2)  red and blue
    for _ in range(rounds):
        recipes = (choosy * torch.randn(6, 6)).softmax(dim=-1)            # (6, 6)  each row sums to one
        pots.append(recipes @ pots[-1])               # (6, 2)  every pot is filled anew
    return pots


viz.explore(
    lambda choosy, rounds: figures.mixing_rounds(mix(choosy), rounds),
    choosy=[1.0, 2.0, 5.0], rounds=range(7), start={"choosy": 2.0, "rounds": 2},
)

# %% [markdown]
# It cannot. A weighted average lies between the things that are averaged: in the plane, inside the shape that they span,
# their **convex hull**. So each shape lies in the one before, and they shrink: quickly, or slowly if the recipes are
# choosy, but never back. In the end there are six pots of the same purple.

# %%
angles = torch.linspace(0, 2 * math.pi, 100)          # (100,)
directions = torch.stack([angles.cos(), angles.sin()])                    # (2, 100)
for choosy in (1.0, 2.0, 5.0):
    pots = mix(choosy, rounds=100)
    reach = torch.stack([(colours @ directions).amax(dim=0) for colours in pots])     # (101, 100)  furthest each way
    assert (reach.diff(dim=0) < 1e-6).all(), "no pot goes further than some pot did in the round before"
    assert pots[-1].std(dim=0).max() < 1e-3 * pots[0].std(dim=0).min(), "and in the end they are alike"

# %% [markdown]
# ## And with projections?
#
# Real layers multiply the values by a matrix first, and a matrix can carry points anywhere, out of the hull too. Does
# that help? Write down three layers and look at the order in which things are multiplied. The tables of weights $A$
# stand on the left, because they mix *words*. The matrices $W$ stand on the right, because they mix *features*. Left and
# right do not interfere, so all of one kind can be brought together:
#
# $$A_3\bigl(A_2\,(A_1 X W_1)\,W_2\bigr)W_3 \;=\; (A_3 A_2 A_1)\; X \;(W_1 W_2 W_3)$$

# %%
n, d = 5, 8
torch.manual_seed(0)
X = torch.randn(n, d).double()                        # (n, d)
H, table, matrix = X, torch.eye(n).double(), torch.eye(d).double()
for _ in range(3):
    W_Q, W_K, W_V = torch.randn(3, d, d).double() / math.sqrt(d)
    A = ((H @ W_Q) @ (H @ W_K).mT / math.sqrt(d)).softmax(dim=-1)         # (n, n)
    H = A @ H @ W_V                                   # (n, d)  one layer of self-attention
    table, matrix = A @ table, matrix @ W_V           # (n, n), (d, d)
assert torch.allclose(H, table @ X @ matrix)
assert torch.allclose(table.sum(dim=-1), torch.ones(n).double()) and table.min() > 0

# %% [markdown]
# Three layers have done what *one* table and *one* matrix could do, and the same holds for three hundred. The table is
# again one of weights: its rows sum to one. So however deep the stack, what a word receives is an average of the same
# few vectors, the rows of $X W_1 W_2 W_3$: it lies in *their* hull.
#
# > **On the slide.** Three decks say that self-attention has no elementwise non-linearity, so that more layers only
# > re-average the values; "Why? Look at the notes", adds one of them. The cell above is why, and the sentence is right. It
# > is right about what happens to the *values*. The weights are another matter: they come out of a softmax of the input,
# > and the stack as a whole is no linear function of $X$. (Assignment @masking asks you to put the two together.)
#
# ## What an average cannot say
#
# Is that bad? Take a sentence about a restaurant. Attention is good at collecting, so let us suppose that it has done
# its work: into the vector of the word that matters it has brought two features, whether something is *praised* and
# whether there is a *not*. What the next layer needs is the verdict:

# %%
#                      praise  not
phrases = torch.tensor([[1.0, 0.0],                   # "good"
                        [0.0, 0.0],                   # "bad"
                        [1.0, 1.0],                   # "not good"
                        [0.0, 1.0]])                  # "not bad";  (4, 2)
verdict = torch.tensor([[1.0], [0.0], [0.0], [1.0]])  # (4, 1)  is it a reason to go there?

# %% [markdown]
# One feature reverses the other. A layer of attention would now multiply by $W_V$ and average, and averaging has
# nothing left to do: everything is in the vector. So the question is what a *matrix* can make of it. *Guess:* which four
# numbers will the best one give, the one whose squared errors are smallest? (A constant may be added, too.)

# %%
with_one = torch.cat([phrases, torch.ones(4, 1)], dim=1)                  # (4, 3)
best = torch.linalg.lstsq(with_one, verdict).solution                     # (3, 1)  least squares
print("the best linear answer:", [round(x, 3) for x in (with_one @ best)[:, 0].tolist()])
assert torch.allclose(with_one @ best, torch.full((4, 1), 0.5), atol=1e-5)

# %% [markdown]
# "One half", to all four: it has learned nothing. By itself neither feature says anything about the verdict, and all
# that a linear map can do with the two is to weigh and add them. (If it had only to come out on the right side of one
# half, it could get three of the four, and never all. This is the problem known as *exclusive or*.) Nor will ten such
# layers do, since ten matrices are one.
#
# What does it take? Something that bends, that is, does more to a number than stretch it. The cheapest such thing is
# $\max(0, z)$, called ReLU: it keeps what lies above zero and drops what lies below. *Try to find, with pencil and paper,
# two expressions of the form $\max(0, \dots)$ whose sum is the verdict.*

# %%
W_1 = torch.tensor([[1.0, -1.0],                      # (2, 2)  one hidden number for "praise and no not",
                    [-1.0, 1.0]])                     #         one for "not, and no praise"
W_2 = torch.tensor([[1.0], [1.0]])                    # (2, 1)
hidden = (phrases @ W_1).relu()                       # (4, 2)
everything = torch.cat([phrases, hidden, hidden @ W_2], dim=1)            # (4, 5)
viz.draw_weights(everything, rows=["good", "bad", "not good", "not bad"],
                 columns=["praise", "not", "hidden 1", "hidden 2", "verdict"])
assert torch.equal(hidden @ W_2, verdict)

# %% [markdown]
# Each of the two hidden numbers recognises one situation, and is silent in all others. That silence is the whole trick:
# below zero ReLU does not answer. A wider hidden layer recognises more situations; and what we have written down here by
# hand, a network has to learn.
#
# This is the **feed-forward network** that follows every attention in a Transformer: widen, bend, come back.
#
# $$\operatorname{FFN}(x) = \max(0,\ x W_1 + b_1)\,W_2 + b_2$$

# %%
def feed_forward(x, W_1, b_1, W_2, b_2):
    hidden = (x @ W_1 + b_1).relu()                   # (…, d_ff)     usually d_ff = 4 d_model
    return hidden @ W_2 + b_2                         # (…, d_model)


network = FeedForward(d_model=16, d_ff=64)            # the package's
x = torch.randn(3, 7, 16)                             # (batch, n, d_model)
up, down = network.up, network.down                   # linear layers keep their matrices transposed
by_hand = feed_forward(x, up.weight.mT, up.bias, down.weight.mT, down.bias)          # (3, 7, 16)
assert torch.allclose(network(x), by_hand, atol=1e-6)
shuffle = torch.randperm(7)
assert torch.allclose(network(x[:, shuffle]), network(x)[:, shuffle], atol=1e-6)   # nobody looks at others

# %% [markdown]
# It is one and the same network for every position, and it looks at one position at a time. So a Transformer's layer
# has a division of labour. *Attention moves things between words and, apart from a matrix, does nothing to them. The
# feed-forward network does something to each word, and moves nothing.* It is also where most of a layer's parameters
# are: with $d_\text{ff} = 4d$ it has about $8d^2$, and the four matrices of an attention (query, key, value and one for
# the output, [lecture @many_heads](@many_heads)) have $4d^2$.
#
# (Three decks write it for columns, $W_2\,\mathrm{ReLU}(W_1 x + b_1) + b_2$, two of them with a star for the matrix
# product; ours is the same for rows, and so is a fourth deck's, with some $f$ in the place of ReLU. Today's models bend
# by smoother functions, which changes little; [lecture @transformer](@transformer) compares them.)
#
# > **Check yourself.** A sentence of a single word goes through ten layers of attention without feed-forward networks.
# > What comes out, as a function of what went in?
# > <details><summary>Answer</summary>The one weight is 1, in each layer, so what comes out is x W₁W₂…W₁₀: a linear
# > function. Not a single decision has been taken about the word. (The weights' softmax, the only non-linear thing in
# > the stack, had nothing to choose from.)</details>

# %% [markdown]
# ## Does it keep the pots apart?
#
# The decks offer the network as the remedy for "just averages". Then it should stop the mixing of paint, should it not?
# That can be measured. Let us call *apart* the share of a table of vectors that is *not* common to all its rows: 1 if
# the words have nothing in common, 0 if all of them have become the same vector.
#
# We stack twelve layers with random matrices, in four ways: attention alone; with a feed-forward network after each;
# with a **residual connection** around each, which means that a layer *adds* what it has found to what was there, $x +
# \operatorname{attention}(x)$; and with both. *Please draw the four curves before you run it.* Which of the two
# additions keeps the words apart?

# %%
def apart(H):
    common = H.mean(dim=0)                            # (d,)
    return ((H - common).norm() / H.norm()).item()


def stack(feed_forward, residual, seed, layers=12, n=32, d=64):
    torch.manual_seed(seed)
    H, measured = torch.randn(n, d).double(), []      # (n, d)
    for _ in range(layers):
        W_Q, W_K, W_V = torch.randn(3, d, d).double() / math.sqrt(d)
        W_1, W_2 = torch.randn(d, 4 * d).double(), torch.randn(4 * d, d).double()
        x = layer_norm(H, eps=0)                      # every vector at the same size (lecture @deep_stacks)
        found, _ = attend(x @ W_Q, x @ W_K, x @ W_V)  # (n, d)
        H = H + found if residual else found
        if feed_forward:
            found = (layer_norm(H, eps=0) @ W_1).relu() @ W_2 / (d * math.sqrt(2))    # (n, d)
            H = H + found if residual else found
        measured.append(apart(H))
    return measured

# %%
kinds = {"attention alone": (False, False), "+ feed-forward": (True, False),
         "+ residual": (False, True), "+ both": (True, True)}
runs = {kind: torch.tensor([stack(*parts, seed) for seed in range(5)]) for kind, parts in kinds.items()}
typical = {kind: run.log().mean(dim=0).exp() for kind, run in runs.items()}           # (12,)  over five seeds
viz.curves(typical, x_name="layer", y_name="apart", log_y=True)

# %%
worst = {kind: (run[:, 5].min().item(), run[:, 5].max().item()) for kind, run in runs.items()}
for kind, (low, high) in worst.items():
    print(f"{kind:>16}: after six layers between {low:.1e} and {high:.1e}, over five seeds")
assert max(worst["attention alone"][1], worst["+ feed-forward"][1]) < 1e-12
assert min(worst["+ residual"][0], worst["+ both"][0]) > 0.3
assert typical["+ feed-forward"][2] < typical["attention alone"][2], "no help, not even a delay"

# %% [markdown]
# Attention alone has made one vector of thirty-two words by the sixth layer, to the last digit of double precision. And
# faster and faster: a table of weights that is made of nearly equal words has nearly equal rows. The feed-forward
# network has not slowed it down. What keeps the words apart is the residual connection: each pot keeps its own
# paint, and only pours something in.
#
# On second thoughts, how could the network have helped? It is *the same function at every position*. Where two words
# have become the same vector, it returns the same vector for both. It may stretch small differences, and so delay the
# end; it cannot bring back what is gone.
#
# > **On the slide.** Three decks name averages as the problem and the feed-forward network as its easy fix. Two illnesses
# > are mixed up there. That nothing is *computed* from what was averaged is one, and the network cures it, as the
# > restaurant showed. That everything becomes *alike* is another, and the residual connection cures that. Dong,
# > Cordonnier and Loukas (2021) proved how bad it is for attention alone: the differences vanish doubly exponentially
# > with depth. Their abstract says of both, residual connections and feed-forward networks, that they stop it. Their
# > theorems are more careful: the networks can slow it down, if they stretch enough. Ours, with matrices of the usual
# > size, did not.
#
# So the building block is attention and feed-forward network, each with a residual connection around it.
# [Lecture @deep_stacks](@deep_stacks) looks at that connection again, from the side of the gradients. Here we go on to the
# other thing that is missing.

# %% [markdown]
# ## The answers are printed on the back
#
# A language model predicts each token from those before it. A recurrent network, reading from left to right, could not
# have looked ahead if it had wanted to. Self-attention hands every word to every word, the one that is to be predicted
# among them.
#
# Let us see what happens if nobody forbids it. The texts are the numbers from "zero" to "nine hundred and ninety-nine",
# letter by letter. A full stop stands for the beginning and for the end.

# %%
texts = [say(number, "en") for number in range(1000)]
letters = "." + "".join(sorted(set("".join(texts))))
print(len(letters), "characters:", letters)


def batch_of(chosen):
    rows = [torch.tensor([letters.index(letter) for letter in f".{text}."]) for text in chosen]
    tokens = nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=-1)      # (batch, n + 1)
    return tokens[:, :-1].clamp(min=0), tokens[:, 1:]                     # (batch, n) twice: goes in, must come out


goes_in, must_come_out = batch_of(["seven"])
print("".join(letters[i] for i in goes_in[0]), "→", "".join(letters[i] for i in must_come_out[0]))

# %% [markdown]
# What must come out is what goes in, a step later: at each position the next letter. Two models with the same weights at
# the start get the same batches. Their layers are those of the package, with four attention heads
# ([lecture @many_heads](@many_heads)) and with the parts that we have just put together. They differ in one argument. One
# gets a mask that lets position $i$ look at the positions $j \le i$, the other gets none.

# %%
class Speller(nn.Module):
    def __init__(self, masked, d=64):
        super().__init__()
        self.masked = masked
        self.encoder = Encoder(TransformerConfig(
            vocab_size=len(letters), d_model=d, n_layers=2, n_heads=4, d_ff=2 * d, positions="learned",
            max_length=64, dropout=0.0,
        ))
        self.output = nn.Linear(d, len(letters))

    def forward(self, tokens):                                            # (batch, n)
        mask = causal_mask(tokens.shape[1]) if self.masked else None      # (n, n)
        return self.output(self.encoder(tokens, mask=mask))               # (batch, n, letters)

# %%
def loss_of(logits, wanted):                          # in nats a letter; −1 is padding
    return F.cross_entropy(logits.flatten(0, 1), wanted.flatten(), ignore_index=-1)


def train(masked, steps=250, seed=0):
    torch.manual_seed(seed)
    model, losses = Speller(masked), []
    optimiser = torch.optim.Adam(model.parameters(), lr=5e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, 5e-3, total_steps=steps, pct_start=0.2)
    for _ in range(steps):
        goes_in, must_come_out = batch_of([texts[i] for i in torch.randint(1000, (64,))])
        loss = loss_of(model(goes_in), must_come_out)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        schedule.step()
        losses.append(loss.item())
    return model.eval(), losses

# %% [markdown]
# *Before you train:* how small can the loss become? That is not a question about the model. All thousand numbers are
# equally likely, so nobody can say which one is coming: that costs $\ln 1000 \approx 6.9$ nats a number, whoever is
# asked. Shared out among its letters (the full stop at the end counts as one) it is the least that honest prediction can
# cost, the entropy of these texts.

# %%
least = math.log(1000) / (sum(len(text) + 1 for text in texts) / 1000)
models, losses = {}, {}
for name, masked in {"no mask": False, "causal mask": True}.items():
    models[name], losses[name] = train(masked)
losses["least possible"] = [least] * 250
viz.curves(losses, y_name="loss (nats a letter)", log_y=True)

# %%
last = {name: sum(line[-25:]) / 25 for name, line in losses.items()}
print({name: round(loss, 3) for name, loss in last.items()})
assert last["no mask"] < 0.1 * least, "far below what is possible"
assert least - 0.03 < last["causal mask"] < 1.3 * least, "near it (0.03 for the luck of the draw)"

# %% [markdown]
# The model without a mask has a loss that is *impossible*. No prediction can do that; somebody has looked at the back of
# the sheet. Let both of them write, letter by letter, where there is no back.

# %%
@torch.no_grad()
def write(model, count, seed=0):
    generator = torch.Generator().manual_seed(seed)
    tokens = torch.zeros(count, 1, dtype=torch.long)                      # (count, 1)  "." to begin with
    for _ in range(40):
        shares = model(tokens)[:, -1].softmax(dim=-1)                     # (count, letters)
        tokens = torch.cat([tokens, torch.multinomial(shares, 1, generator=generator)], dim=1)
    return ["".join(letters[i] for i in row[1:]).split(".")[0] for row in tokens.tolist()]


written = {name: write(model, 200) for name, model in models.items()}
numbers = {name: sum(text in texts for text in some) / 200 for name, some in written.items()}
for name, some in written.items():
    print(f"{name:>11}: {numbers[name]:4.0%} are numbers, such as", some[:3])
assert numbers["causal mask"] > 0.6 and numbers["no mask"] < 0.1

# %% [markdown]
# One writes numbers, the other rubbish. Copying the next letter from where it stands was so much easier than
# learning to spell that it has learned nothing else; and when it writes, there is nothing to copy. Note what would
# *not* have found it. The training loss is splendid. A validation loss would be as splendid, because unseen texts can
# be copied as well as seen ones. Nothing crashes. A number that is too good is the only warning, and for real text,
# whose entropy nobody knows, we do not have even that.
#
# > **Check yourself.** The loss with the mask is the *average* over letters. Which letters of "four hundred and
# > eighty-one" cost something, and which next to nothing?
# > <details><summary>Answer</summary>Where the number is decided it costs: the f (which digit), the o (four or five: the
# > f leaves both open), the first letters of eighty and of one. A little is left where other numbers
# > begin alike: the u (forty), the i (eleven), the y (eight, eighteen) and the hyphen (eighty may be the end). The rest
# > costs next to nothing, even the space after "hundred", where 99 of 100 go on. In all it comes to ln 1000.</details>

# %% [markdown]
# ## One word at a time, the slow way
#
# How is it prevented? The direct way is to hand over no more than there is. At step $i$ only word $i$ asks, and only
# words $1, \dots, i$ answer:

# %%
n, d = 4, 8
words = ["<start>", "the", "chef", "who"]
torch.manual_seed(0)
Q, K, V = torch.randn(3, n, d)                        # (n, d) each
slow = []
for i in range(n):
    output, weights = attend(query=Q[i : i + 1], key=K[: i + 1], value=V[: i + 1])    # (1, d), (1, i + 1)
    slow.append(output)
    print(f"{words[i]:>8} asks: queries (1, {d}), keys and values {tuple(K[: i + 1].shape)}")
slow = torch.cat(slow)                                # (n, d)

# %% [markdown] erratum="keys and queries"
# > **On the slide.** Three decks say that at every step one could change the set of "keys and *queries*" to include only
# > past words. It is the *keys and values* that grow, as the shapes above say. A step has one query, that of the newest
# > word; the queries of earlier words have been answered and are of no further use. The slip matters where a model writes:
# > what it keeps between steps is a cache of keys and values ([lecture @many_heads](@many_heads)), and nobody keeps
# > queries.
#
# The slow way is right, and the decks rightly call it inefficient. While a model is *writing* there is no other, because
# word $i + 1$ does not exist before word $i$ has been answered. But in training the whole text is there, and to go through
# it word by word is to give up the best thing about attention: that no word has to wait for another.
#
# ## All words at once, and minus infinity
#
# So compute the whole table of scores, and forbid. A weight must become exactly zero, and softmax makes
# $e^{\text{score}}$ of a score, so the forbidden score is the one "number" whose exponential is zero:
#
# $$e_{ij} = \begin{cases} q_i \cdot k_j / \sqrt d & j \le i\\ -\infty & j > i \end{cases}$$

# %%
mask = causal_mask(n)                                 # (4, 4)  True where j ≤ i: row i may look at column j
scores = (Q @ K.mT / math.sqrt(d)).masked_fill(~mask, -torch.inf)         # (4, 4)
weights = scores.softmax(dim=-1)                      # (4, 4)
viz.draw_weights({"scores": scores, "weights": weights}, rows=words, columns=words)
assert torch.allclose(weights @ V, slow, atol=1e-6), "all at once is what it was one by one"

# %% [markdown] erratum="i > i; not even itself"
# The same numbers, in one product. A triangle of the arithmetic is done for nothing, and that is cheaper than waiting.
# Each row still sums to one: what was forbidden was never in the denominator.
#
# > **On the slide.** This formula is misprinted in two decks. In one, the second case reads "$-\infty$ where $i > i$",
# > which never happens (it may be a slip of the transcription): $j > i$ is meant. The other has $j < i$ in the first case
# > and $j \ge i$ in the second, and draws the table that way, with $-\infty$ in the whole first row. Then a word may not
# > look at itself, and the first one may look at nobody:

# %%
strict = torch.ones(n, n, dtype=torch.bool).tril(-1)  # (4, 4)  True where j < i
printed = (Q @ K.mT / math.sqrt(d)).masked_fill(~strict, -torch.inf).softmax(dim=-1)  # (4, 4)
viz.draw_weights(printed, rows=words, columns=words, title="as printed")
assert printed[0].isnan().all(), "0/0"
assert torch.equal(strict[1:, :-1], causal_mask(n - 1)), "less a row and a column, the right one"

# %% [markdown]
# > There is one reading in which that table makes sense: row $i$ must then not stand for the word that was read but for
# > the word that is to be predicted, which looks at all before it. The last assertion says so: without its first row and
# > its last column it is the causal mask. But the first row would have to go, and the slide's words, "for encoding these
# > words", are about reading.
#
# > **Check yourself.** Why may position $i$ look at itself at all? Is that not a leak?
# > <details><summary>Answer</summary>At position i, word i has been read, and word i + 1 is to be predicted. Its own
# > word is no secret. The secret is one place further to the right, and inputs and targets are shifted against
# > each other so that it is.</details>
#
# ## Who hears whom
#
# A mask is easily wrong by one, and you have seen that the loss will not tell. So we want to *test* it. [Lecture
# @self_attention](@self_attention) had the idea: ask for the gradient. Output $i$ depends on input $j$ exactly where a gradient gets
# through (or so it seems; we shall come back to that). For $n$ positions that makes a table, which for an honest model
# must be empty above the diagonal. Here is the detector:

# %%
def who_hears_whom(model, x):                         # x (n, d)  ->  (n, n)
    x = x.clone().requires_grad_()
    rows = []
    for output in model(x):                           # (d_out,)  one for each position
        gradients = [torch.autograd.grad(number, x, retain_graph=True)[0] for number in output]
        rows.append(torch.stack(gradients).norm(dim=(0, 2)))              # (n,)
    return torch.stack(rows)                          # (n, n)  row i: how much output i depends on each input

# %% [markdown]
# (Each number of an output is asked separately, and not their sum. After a LayerNorm as it comes that sum is always zero,
# and a constant has no gradient, however much leaks.)
#
# Four suspects: no mask; the causal mask; the recipe of two decks, which speak of setting the attention *weights* to 0
# (after the softmax, that is); and a model with a proper mask whose inputs were centred first, by subtracting the mean
# over the sentence, as careful people do with data. *Which of the four leak?* (In the picture a cross marks a leak.)

# %%
torch.manual_seed(1)
projections = torch.randn(3, 8, 8) / math.sqrt(8)


def scores_of(x):
    return (x @ projections[0]) @ (x @ projections[1]).mT / math.sqrt(8)  # (n, n)


suspects = {
    "no mask": lambda x: scores_of(x).softmax(dim=-1) @ x @ projections[2],
    "causal mask": lambda x: masked_softmax(scores_of(x), causal_mask(len(x))) @ x @ projections[2],
    "weights set to 0": lambda x: (scores_of(x).softmax(dim=-1) * causal_mask(len(x))) @ x @ projections[2],
    "centred inputs": lambda x: suspects["causal mask"](x - x.mean(dim=0)),
}
heard = {name: who_hears_whom(model, torch.randn(6, 8)) for name, model in suspects.items()}
figures.dependence_maps(heard)

# %%
leaks = {name: bool(table.triu(1).any()) for name, table in heard.items()}
print(leaks)
assert [name for name, leak in leaks.items() if not leak] == ["causal mask"]

# %% [markdown]
# Three of four. That centring leaks is easy to see afterwards: the mean over the sentence contains its end. Any statistic
# over all positions does, and that is one reason why the norms of a Transformer are taken over the features of one
# position ([lecture @deep_stacks](@deep_stacks)).
#
# > **On the slide.** The third suspect is the one to remember. Two decks sum up their masking as "setting attention
# > *weights* to 0", where their own formula sets scores to $-\infty$. [Lecture @cross_attention](@cross_attention) showed that
# > rows then no longer sum to one. Here it is worse. No forbidden value arrives, and yet the future is heard: each allowed
# > weight is $e^{e_{ij}}$ over a sum of *all* exponentials, the forbidden ones too. How small a row has become tells what
# > is coming.
#
# Now the promised caveat. One more suspect adds to each word how many numbers of the whole sentence are positive:

# %%
def counts(x):
    return suspects["causal mask"](x) + (x > 0).float().mean()


x, other_end = torch.randn(2, 6, 8)
other_end[:3] = x[:3]                                 # the same beginning, a different end
print("above the diagonal:", who_hears_whom(counts, x).triu(1).sum().item())
print("yet the first three outputs move by", round((counts(x) - counts(other_end))[:3].abs().max().item(), 3))
assert not who_hears_whom(counts, x).triu(1).any() and not torch.allclose(counts(x)[:3], counts(other_end)[:3])

# %% [markdown]
# The detector acquits it, and it leaks. A count goes up in steps, between the steps it has no slope, and the gradient is
# a slope. So a gradient that is not zero proves a leak, and one that is zero proves nothing. A better test does what was
# done with `other_end`: change the future, and see whether the past has moved. In
# [assignment @masking](@masking/assignment) you write one, and it has to catch leaks that hide rather well.

# %% [markdown]
# ## One pass is all steps
#
# Back to the trained model. In training it answered all positions of a text in one pass, and at every position it was
# told the true beginning, whatever it would have written itself. That is called **teacher forcing**. When it writes, it
# is asked for one letter after the other. Are those the same question?

# %%
figures.teacher_forcing(["<start>", "the", "chef", "who", "ran"])

# %% [markdown]
# In the picture each upper dot is one question: "given these words, what comes next?" Thanks to the mask it has no line
# from the right. So cutting off everything to the right must change nothing, at any layer. *But how much longer will it
# take to ask the questions one by one?* Take all thousand numbers.

# %%
goes_in, must_come_out = batch_of(texts)              # (1000, 32) each
with torch.no_grad():
    start = time.process_time()
    one_pass = models["causal mask"](goes_in)         # (1000, 32, letters)
    middle = time.process_time()
    steps = [models["causal mask"](goes_in[:, : i + 1])[:, -1] for i in range(goes_in.shape[1])]
    end = time.process_time()
step_by_step = torch.stack(steps, dim=1)              # (1000, 32, letters)
print(f"they differ by {(one_pass - step_by_step).abs().max().item():.1e}")
print(f"one pass {middle - start:.2f} s, step by step {end - middle:.2f} s")
assert torch.allclose(one_pass, step_by_step, atol=1e-3) and end - middle > 4 * (middle - start)

# %% [markdown]
# The same logits up to rounding, for a fraction of the work: step by step 32 passes are made, each through half of the
# text on average, which is about sixteen times as much. One pass through a text of $n$ tokens gives $n$ losses and the
# gradients of all of them. This is what the mask has bought. A recurrent network can be taught with the true words,
# too, but it has to walk along the text. Here every position is computed at the same time, and on a GPU, which has room
# for all of them at once, this is a large part of the reason why Transformers could be trained on so much more text.
#
# For the model without a mask the two questions are *not* the same, and so the comparison is a leak test as well:

# %%
cheat = models["no mask"]
with torch.no_grad():
    in_one = cheat(goes_in)                           # (1000, 32, letters)
    steps = [cheat(goes_in[:, : i + 1])[:, -1] for i in range(goes_in.shape[1])]
cheating = [loss_of(logits, must_come_out).item() for logits in (in_one, torch.stack(steps, dim=1))]
honest = [loss_of(logits, must_come_out).item() for logits in (one_pass, step_by_step)]
print("loss without a mask: {:.3f} in one pass, {:.2f} step by step".format(*cheating))
print("loss with the mask:  {:.3f} in one pass, {:.3f} step by step".format(*honest))
assert cheating[1] > 1 and cheating[1] > 20 * cheating[0] and abs(honest[0] - honest[1]) < 1e-3

# %% [markdown]
# ## Nobody there, and not yet there
#
# Padding is the other reason for a mask, and [lecture @cross_attention](@cross_attention) met it. In self-attention the two
# come together. The padding mask depends on the sentence and is the same for all queries; the causal mask depends on the
# place and is the same for all sentences. Both must allow a look, so they are joined by *and*. Broadcasting does the
# rest, if the axes are where they belong:

# %%
lengths = torch.tensor([5, 3])
words_there = lengths_to_mask(lengths, n=5)           # (2, 5)      (batch, n)
padding = words_there[:, None, :]                     # (2, 1, 5)   (batch, any query, key): forbids columns
both = padding & causal_mask(5)                       # (2, 5, 5)   (batch, query, key)
assert torch.equal(both, combine_masks(padding, causal_mask(5)))
viz.draw_masks({"padding": padding[1].expand(5, 5), "causal": causal_mask(5), "both": both[1]})

# %% [markdown]
# The axis of length one stands in the middle. Put it at the end, `words_there[:, :, None]`, and the mask forbids *rows*:
# padding may not ask, and everybody may look at padding. Nothing crashes. But the rows of padding do not matter,
# whatever they ask is thrown away; it is the columns that must go.
#
# *A question before the next cell.* In a decoder the causal mask is there anyhow, and the padding stands at the end.
# Suppose that somebody forgets the padding mask. Which outputs change?

# %%
torch.manual_seed(0)
x = torch.randn(2, 5, 8)                              # (batch, n, d)
with_padding, _ = attend(x, x, x, both)               # (2, 5, 8)
without, _ = attend(x, x, x, causal_mask(5))          # (2, 5, 8)
moved = (with_padding - without).abs().amax(dim=-1)   # (2, 5)
print("the short sentence moves by", [round(m, 2) for m in moved[1].tolist()])
assert (moved[words_there] == 0).all() and (moved[~words_there] > 0.01).all()

# %% [markdown]
# None that is used: padding after a sentence lies in the future of all its words. So a language model that is padded at
# the end can do without a padding mask (the package's does). An encoder cannot. It is the same block without the causal
# mask, as the decks say: it looks both ways (it is **bidirectional**, and the decoder *unidirectional*), so it would see
# the padding. And where a decoder attends to an encoder ([lecture @cross_attention](@cross_attention)) the padding of the
# source must be masked as well, since that is nobody's future.
#
# And padding in *front*? That is usual when a batch of prompts is to be continued, since then all of them end at the same
# place. Now the first rows have no past but padding, and nobody at all to look at. Play with it. Each setting below has
# a mask, and a way of carrying it out; framed cells have weight where they must not, and hatched ones are NaN.
#
# 1. Which masks make NaN out of −∞? What have their rows in common?
# 2. Replace −∞ by −1e9, a large negative number, as much code does. The NaN is gone. What has come in its place?
# 3. With which of the four ways are all six masks carried out without a frame, without NaN, and with rows that sum to
#    one or to zero?

# %%
chef = ["pad", "pad", "the", "chef", "who"]
place = torch.arange(5)
masks = {
    "everybody": torch.ones(5, 5, dtype=torch.bool),
    "causal, j ≤ i": causal_mask(5),
    "j < i": causal_mask(5).tril(-1),
    "padding in front": (place >= 2).expand(5, 5),
    "causal and padding": causal_mask(5) & (place >= 2),
    "words to words": (place[:, None] >= 2) & (place >= 2),
}

# %%
ways = {
    "−∞": lambda scores, mask: scores.masked_fill(~mask, -torch.inf).softmax(dim=-1),
    "−1e9": lambda scores, mask: scores.masked_fill(~mask, -1e9).softmax(dim=-1),
    "weights · mask": lambda scores, mask: scores.softmax(dim=-1) * mask,
    "masked_softmax": masked_softmax,
}
table = torch.randn(5, 5, generator=torch.Generator().manual_seed(3))                 # (5, 5)  some scores
viz.explore(
    lambda mask, way: figures.mask_frame(masks[mask], ways[way](table, masks[mask]), chef),
    mask=list(masks), way=list(ways), start={"mask": "causal and padding", "way": "−∞"},
)

# %%
for mask in masks.values():
    weights = {way: carry_out(table, mask) for way, carry_out in ways.items()}        # (5, 5) each
    lonely = ~mask.any(dim=-1)                        # (5,)  queries that may look at nobody
    assert torch.equal(weights["−∞"].isnan().any(dim=-1), lonely), "NaN exactly where nothing is allowed"
    if lonely.any():
        assert (weights["−1e9"][lonely] == 0.2).all(), "an even share for everybody who is forbidden"
    sums = weights["masked_softmax"].sum(dim=-1)      # (5,)
    assert (weights["masked_softmax"][~mask] == 0).all() and torch.allclose(sums, (~lonely).float())

# %% [markdown]
# A row in which nothing is allowed is −∞ throughout, and softmax divides zero by zero. With −1e9 throughout, all scores of
# the row are equal again, and everybody gets a fifth, the future included: no crash, and a leak. (Some code *adds* −1e9 to
# the scores, and might hope that they survive below it. They do not: at that size float32 goes in steps of 64.) The
# package takes the lowest finite number, and afterwards puts zeros where the mask is False, which leaves such a row at
# zero. It is the only one of the four ways that carries out all six masks.
#
# Does it matter, if it happens to padding only? With NaN it does. *Guess:* in the setting of the still picture two rows of
# padding are NaN, and no word may look at padding. After how many further layers do the words become NaN?

# %%
mask = masks["causal and padding"]                    # (5, 5)
first = ways["−∞"](table, mask) @ x[0]                # (5, 8)  a layer: two rows of NaN
second = ways["−∞"](table, mask) @ first              # (5, 8)  and one more
print("NaN rows after one layer: ", first.isnan().any(dim=-1).tolist())
print("NaN rows after two layers:", second.isnan().any(dim=-1).tolist())
assert first.isnan().any(dim=-1).tolist() == [True, True, False, False, False] and second.isnan().all()

# %% [markdown]
# One. The words give padding the weight zero, and zero times NaN is NaN. A mask cannot keep out what is not a
# number. That is why a row with nothing to look at must be given something finite, and why zeros are a good choice.
#
# Last, the habit of writing −1e9. In float16, in which large models were trained for years, the lowest number is
# −65504:

# %%
half = table.half()                                   # (5, 5)
try:
    half.masked_fill(~mask, -1e9)
except RuntimeError as error:
    print("RuntimeError:", str(error).splitlines()[0])
print("lowest in float16:", torch.finfo(torch.float16).min, "  in bfloat16:", torch.finfo(torch.bfloat16).min)
assert not masked_softmax(half, mask).isnan().any(), "the lowest number of the scores' own type always fits"
assert torch.tensor(-1e9) + 3 == torch.tensor(-1e9)

# %% [markdown]
# > **Check yourself.** (1) Somebody adds the two masks as numbers, −1e9 for the future and −1e9 for padding, and a row has
# > places that are forbidden once and others that are forbidden twice, but none that is allowed. Where does its weight go?
# > (2) A boolean mask in `nn.MultiheadAttention` is True where looking is *forbidden*, in `scaled_dot_product_attention`
# > where it is allowed. You mix them up in a decoder. What does each position see, and what about the last one?
# > <details><summary>Answers</summary>(1) To those that are forbidden once: they score −1e9, the others −2e9. Should these
# > be the future, the model reads it. (2) Its future alone. The last position has none, and nothing left to look at.
# > The module, asked for its weights, makes NaN of that row. The function puts zeros there (in older versions of torch it
# > made NaN too), and then nothing gives the mistake away but a loss that is splendid.</details>
#
# ## What you have
#
# The list from [lecture @self_attention](@self_attention) is complete:
#
# | what was missing | what mends it |
# |---|---|
# | order | positions, [lecture @order](@order) |
# | something other than averages | a feed-forward network after each attention, and a residual connection around both |
# | not to see the future | scores of −∞ before the softmax, where $j > i$ |
#
# One of the decks stops here and says that this is all that a building block needs, and yet not what people call a
# Transformer. What is still to come makes it strong and trainable: several attentions side by side
# ([lecture @many_heads](@many_heads)), norms and residual connections that let the block be stacked
# ([lecture @deep_stacks](@deep_stacks)), and the assembly itself ([lecture @transformer](@transformer)).
#
# **In the package.** `attncourse.layers.FeedForward` is the network, with the bends of today beside ReLU.
# `attncourse.attention` has `causal_mask`, `lengths_to_mask` and `combine_masks`, and `masked_softmax`, by which every
# attention of the package obeys them. That changing the future leaves the past alone is one of the tests that its
# decoders have to pass.
#
# **Read next.** Vaswani et al., *Attention is all you need* (2017): section 3.2.3, third point, is the causal mask in one
# sentence, section 3.3 the feed-forward network. Dong, Cordonnier and Loukas, *Attention is not all you need: pure
# attention loses rank doubly exponentially with depth* (2021), prove what the pots of paint suggest. Geva et al.,
# *Transformer feed-forward layers are key-value memories* (2021), look into trained networks for what the hidden numbers
# have learned to recognise; after the restaurant above you will feel at home.
