# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3 (ipykernel)
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Lecture @errata_lab · Errata lab: testing equations, tables and code
#
# *About 55 minutes, ten of them a game, and less than one of computing. You need the course up to [lecture
# @transformer](@transformer); what is used of it is linked where it is used. (The section on overclaims takes up a few
# things of lecture @cheap_attention.)*
#
# After this lecture you can
#
# * turn a doubt about an equation, a table or a page of code into a **test** that fails;
# * choose the cheapest test first: shapes, a case whose answer is known, a trusted implementation, training;
# * name what you do: **property-based**, **metamorphic**, **differential** and **mutation testing**, a **gradient check**;
# * say what a falling loss proves about a model, and what it does not;
# * tell an error from an overclaim, a convention, and a line that is right and easily misread.
#
# ## A worked example: one formula, four questions
#
# A slide on self-attention says $o_i = \sum_i \alpha_{ij} v_i$. It looks right. How would you find out whether it is? We ask
# four questions, the cheapest first:
#
# 1. **Shapes**: is the result $(n, d)$?
# 2. **A limiting case**: if all values are equal, a weighted average must return that value. Does it?
# 3. **A trusted peer**: is it what torch's own attention returns?
# 4. **Training**: what test loss does a small causal language model reach with this line? (Ten trained ones are stored.)
#
# *Guess first:* which of the four show that something is wrong?

# %% tags=["hide-input"]
try:
    from attncourse import viz

    from . import figures
    from .review_game import review_game
except ModuleNotFoundError:
    raise ImportError(
        "This page needs the attncourse package: open it with `make lab` in the course's "
        "folder, or choose a kernel of the environment in which you installed the course."
    ) from None

import math
from collections import Counter
from textwrap import shorten

import torch
import torch.nn.functional as F

from attncourse.data import PAD, Tokenizer, docstrings, encode_texts, text_batches
from attncourse.layers import layer_norm
from attncourse.metrics import token_loss
from attncourse.training import fit_texts
from attncourse_lessons.errata import ERRATA, FAULTS, SlideModel, erratum, structural
from attncourse_lessons.results import measured
from attncourse_lessons.slides.transcriptions import COLUMNS, TRANSCRIBERS, transcriptions

torch.set_num_threads(1)  # models as small as these gain nothing from a second thread

# %% [raw] slide
# ## A worked example: one formula, four questions
# $$o_i = \sum_i \alpha_{ij} v_i$$
#
# 1. **Shapes**: is the result $(n, d)$?
# 2. **A limiting case**: do equal values come back?
# 3. **A trusted peer**: is it torch's result?
# 4. **Training**: which test loss?
#
# > **Guess first.** Which of the four show that something is wrong?

# %%
n, d = 5, 4
draws = torch.Generator().manual_seed(0)
query, key, value = torch.randn(3, n, d, generator=draws)          # (5, 4) each
alpha = (query @ key.mT / math.sqrt(d)).softmax(dim=-1)            # (5, 5)  rows: queries
torchs = F.scaled_dot_product_attention(query[None], key[None], value[None])[0]
record = measured("errata")["faults"]
for name, mixing, stored in (("as printed", alpha.mT, "sum over the query"),
                             ("corrected", alpha, "nothing")):
    output = mixing @ value                                        # (5, 4)
    back = mixing @ torch.ones(n, d)                               # (5, 4)  equal values
    off, apart = (back - 1).abs().max(), (output - torchs).abs().max()
    print(f"{name:>10}: shape {tuple(output.shape)}; off by {off:.1g} for equal values,"
          f" by {apart:.1g} from torch; test loss {record[stored]['mean']:.3f}")

# %% [raw] slide
# ## Two see it, one is blind, one is deceived
# {print}

# %% [markdown]
# The sum runs over the *queries*: literally it uses the columns of the weights, which do not sum to one. **Shapes** are blind,
# because the table of weights is square. **The limiting case** finds the fault in one line, and so does **the peer**.
# **Training** is worse than blind: the loss is far *lower* with the fault. In a causal model column $j$ has weights of the
# tokens $i \ge j$ only, so the sum mixes the values of *later* tokens: the model reads what it has to predict. Whoever looks
# at the loss alone keeps the fault.
#
# That is the thread of this lecture. Each section takes one question, and ends with what it finds and where it is blind.

# %% [markdown] teaches="what slides get wrong"
# ## A list of claims, each with a test
#
# That line comes from one of five good decks of slides from which this course grew ([lecture @getting_ready](@getting_ready)
# introduces them; you do not need them). They contain mistakes, as everything does that people write, this course
# included. You have met some of them in boxes headed "A common mistake". The package has the whole list,
# `attncourse_lessons.errata`. *Guess first:* how many entries does it have, and how many of them are errors beyond doubt?

# %% [raw] slide
# ## A list of claims, each with a test
# Five decks of slides, and a list of what they print:
#
# | kind | |
# |---|---|
# | **definite** | wrong in every reading that the slide allows |
# | **overclaim** | true of less than it says |
# | **convention** | a choice, until two slides choose differently |
# | **no error** | right, and easily misread |
#
# > **Guess first.** How many entries does the list have, and how many are definite errors?

# %%
print(len(ERRATA), "entries:", dict(Counter(entry.kind for entry in ERRATA)))
definite = [entry for entry in ERRATA if entry.kind == "definite"]
print(f"of the {len(definite)} definite ones {sum(entry.slip for entry in definite)} carry a †")
print(erratum("sum over the query"))

# %% [raw] slide
# ## An entry is code that fails
# {print}

# %% [markdown]
# There are 67 entries. As transcribed, 29 are definite errors, but we have seen transcriptions and not the slides. A †
# marks what the transcription may have got wrong: a single letter or number, or a line that another deck has right on
# the same slide. It stands at 16 of the 29, so 13 are beyond that doubt. An entry belongs to one of four kinds:
#
# * **definite**: wrong in every reading that the rest of the slide allows;
# * **overclaim**: true of less than it says;
# * **convention**: a choice, as good as another until two slides choose differently and nobody says so. Its test is
#   written for the other choice, so it fails as printed;
# * **no error**: right as it stands, and easily misread; a hasty reviewer would have reported it.
#
# The card above shows what an entry is: the line, what is right, and, as code, *the line as printed, the line as it should
# be, and one question that tells them apart*. (Its numbers are drawn anew: 0.35 there, 0.5 above.) "This looks odd" in a
# margin is an opinion. A failing cell is evidence: the author can run it, and can see it pass after the repair.

# %%
for entry in ERRATA:
    assert entry.holds, f"{entry.name}: its test does not say what its class says"
print("as printed: definite errors, overclaims and conventions fail their tests,")
print("entries of the class 'no error' pass; all corrections pass")

# %% tags=["hide-input"]
assert len(ERRATA) == 67 and len(definite) == 29 and sum(entry.slip for entry in definite) == 16

# %% [raw] slide
# ## Four questions, in the order of their cost
# | ask | costs | the field's name |
# |---|---|---|
# | Do the shapes fit? | a pencil | **property-based testing** |
# | What comes out where the answer is known? | two calls | **metamorphic testing** |
# | Is it the same as something trusted? | three lines | **differential testing** |
# | Does it train? | a run for each seed | training and evaluation |
#
# Fourteen entries can be programmed into a small language model. How many would somebody who watches the loss notice? Note a number; we count in the end.

# %% [markdown]
# ## Four questions, in the order of their cost
#
# The four questions of the worked example are the same for every line, and they have names:
#
# | ask | it costs | the field's name |
# |---|---|---|
# | **Do the shapes fit?** | a pencil | stated as a property and tried on sizes that a program draws: **property-based testing** ([@claessen2000]), which is used for other properties as well |
# | **What comes out where the answer is known?** Equal values, zeroed sublayers, another future, another batch | two calls | a **limiting case**; and **metamorphic testing** ([@chen1998]), where the answer is known only *relative to another call* |
# | **Is it the same as something trusted?** A library, another slide, a table that can be counted | three lines, if the peer exists | **differential testing** ([@mckeeman1998]), or a parity test |
# | **Does it train?** | a training run for each seed | training and evaluation |
#
# All four have to solve one problem, the **oracle problem** ([@barr2015]): to test a program one must know what it
# should return, and nobody knows what a language model should return. A **metamorphic relation** compares two calls
# with each other, so it needs no such knowledge. Here are two:

# %% tags=["hide-input"]
figures.two_relations()
#| caption: Two metamorphic relations of a language model: what changes between two calls
#|   (orange), what must stay equal, and what is not compared (hatched).
#| label: relations

# %% [markdown]
# Fourteen of the entries can be programmed into a small language model. How many of them would somebody who watches
# the loss notice? Note a number in the margin now; the section *Mutation testing* counts them.
#
# ## Property-based testing: do the shapes fit?
#
# A slide whose tokens are rows writes the heads' outputs as $Y[\text{output}_1; \dots; \text{output}_h]$, with $Y \in
# \mathbb{R}^{d \times d}$. Give every length a size of its own, so that no two can be mistaken for each other. *Guess:* on
# which side of the heads must $Y$ stand?

# %% [raw] slide
# ## Do the shapes fit?
# Tokens are rows, $Y \in \mathbb{R}^{d \times d}$:
#
# $$Y[\text{output}_1; \dots; \text{output}_h]$$
#
# > **Guess first.** On which side of the heads must $Y$ stand?

# %%
n, d, h = 7, 32, 2
heads, Y = torch.randn(h, n, d // h), torch.randn(d, d)   # (2, 7, 16), (32, 32)
beside = torch.cat(list(heads), dim=-1)                   # (7, 32)  a row for each token
try:
    Y @ beside
except RuntimeError as error:
    print("Y on the left: ", error)
print("Y on the right:", tuple((beside @ Y).shape))       # (7, 32)

# %% [raw] slide
# ## Never test with n = d
# {print}

# %% [markdown]
# On the right. With as many tokens as features the left product would have run, and would have mixed tokens instead of
# features. *Never test with $n = d$.* A property-based test goes one step further. It states a property, "for all sizes the
# result is $(n, d)$", and lets a program draw the sizes:

# %%
draws, blind, failing = torch.Generator().manual_seed(0), 0, []
for _ in range(200):
    n, h, width = torch.randint(1, 9, (3,), generator=draws).tolist()
    d = h * width
    beside = torch.cat(list(torch.randn(h, n, width)), dim=-1)    # (n, d)
    assert (beside @ torch.randn(d, d)).shape == (n, d), f"n = {n}, d = {d}, h = {h}"
    try:
        torch.randn(d, d) @ beside
        blind += 1
    except RuntimeError:
        failing.append((n, d))
print("Y on the right: (n, d) in all 200 draws")
print(f"Y on the left: runs in {blind} of them, fails first with n, d = {failing[0]}")

# %% [raw] slide
# ## Let a program draw the sizes
# {print}
#
# A single draw might have had $n = d$; 200 draws do not all. (In Python: `hypothesis`.)

# %% [markdown]
# The left product runs only where $n = d$. A single draw might have had $n = d$; 200 draws do not all. (The checks of your
# assignments draw their sizes, too. In Python the library for this is `hypothesis`. It also looks for the smallest sizes
# that fail, which is called **shrinking**.)

# %% [markdown] erratum="Qz for all"
# > **A common mistake: an index that is on one side only.** One deck makes the decoder's queries with "$q_i = Qz$". (The
# > $i$ of $z_i$ may have been lost in the transcription.) A letter on the left that does not occur on the right is a
# > warning: either all $q_i$ are the same, or the right-hand side is a whole matrix.
#
# **Shapes find** a product on the wrong side, a missing axis or index. **They are blind** where two lengths are equal, and to
# everything that happens *inside* a table of the right shape. So we ask the second question.

# %% [raw] slide
# ## A common mistake: an index on one side only
# $$q_i = Q z$$
#
# A letter on the left that does not occur on the right is a warning. The test: when $z_1$ changes, the other queries do not.

# %% [markdown]
# ## Limiting cases and metamorphic relations: the answer is known
#
# We begin with masks. Three lines of slides forbid the future: "−∞ where $i > i$"; "−∞ where $j \ge i$"; and "set attention
# weights to 0", here done after the softmax. *Before you run the cell:* what does the sum of a row say about each?

# %% [raw] slide
# ## Known answers: three masks
# 1. −∞ where $i > i$
# 2. −∞ where $j \ge i$
# 3. weights set to 0 after the softmax
#
# > **Guess first.** What does the sum of a row say about each? Does the future get nothing?

# %%
scores = torch.randn(4, 4, generator=torch.Generator().manual_seed(0))         # (4, 4)
i, j = torch.arange(4)[:, None], torch.arange(4)
tables = {
    "−∞ where i > i": scores.masked_fill(i > i, -torch.inf).softmax(dim=-1),
    "−∞ where j ≥ i": scores.masked_fill(j >= i, -torch.inf).softmax(dim=-1),
    "weights set to 0": scores.softmax(dim=-1) * (j <= i),
    "−∞ where j > i": scores.masked_fill(j > i, -torch.inf).softmax(dim=-1),
}                                                                              # (4, 4) each
figures.masked_tables(tables, allowed=j <= i)


def two_questions(table):
    ones = torch.allclose(table.sum(dim=-1), torch.ones(4))
    return ones, bool((table.triu(1) == 0).all())     # rows sum to one; nothing in the future


answers = {name: two_questions(table) for name, table in tables.items()}
for name, (ones, past) in answers.items():
    print(f"{name:>17}:  rows sum to one: {ones!s:<6} the future gets nothing: {past}")
assert [name for name, both in answers.items() if all(both)] == ["−∞ where j > i"]
#| caption: Weights under three masks and the right one. Hatched: the future. Orange
#|   frames: a cell that is NaN, leaks, or should have weight; orange sums: not one.

# %% [raw] slide
# ## One question is not enough
# {print}
#
# **Now you:** a@errata_lab, exercise 1

# %% [raw] slide
# ## Four tables
# {figure}

# %% [markdown] teaches="code: a block and a language model"
# One question is not enough: each lets one of the three wrong tables pass. In the first nothing is forbidden: $i > i$ never
# happens. In the third the future gets nothing, but all rows except the last sum to less than one. (The slides that print this
# line set the scores to −∞ one slide earlier, so the line itself is no error; careless code is.) In the second no token
# sees itself, and the first row, which sees nothing, is 0/0, NaN. That row fails both questions; the other rows of this
# table would pass both. A third question finds them: has every token some weight for itself?
#
# **Now you:** [a14](@errata_lab/assignment), exercise 1.
#
# ### A block that is not what its comments say
#
# The most instructive page of the five decks has fifty lines of code. We test it here. (Exercise 4 gives you a page like it,
# with other faults.) The figure shows its block, which you know from [lecture @deep_stacks](@deep_stacks), and three repairs.
# Its comments say "pre-normalization" and "residual connection", twice each. So we know what was meant, and that has a
# **limiting case**: **zeroed** sublayers, which return nothing but zeros.

# %% tags=["hide-input"]
figures.four_blocks()
#| caption: The block as printed, its two half repairs, and repaired. A residual path begins
#|   after the norm (orange, dashed) or before it (blue).
#| label: blocks

# %% [raw] slide
# ## A block that is not what its comments say
# ```python
# x = norm_1(x)                  # pre-normalisation
# x = x + attention(x)           # residual connection
# x = norm_2(x)                  # pre-normalisation
# x = x + feed_forward(x)        # residual connection
# ```
#
# A **limiting case**: **zeroed** sublayers, which return nothing but zeros.
#
# > **Guess first.** What do the printed, the half-repaired and the repaired block return? For which $x$ would you see no difference?

# %%
def printed(x, attention, feed_forward):
    x = layer_norm(x)
    x = x + attention(x)
    x = layer_norm(x)
    return x + feed_forward(x)


def half_repaired(x, attention, feed_forward):
    x = x + attention(layer_norm(x))
    x = layer_norm(x)
    return x + feed_forward(x)


def other_half(x, attention, feed_forward):
    x = layer_norm(x)
    x = x + attention(x)
    return x + feed_forward(layer_norm(x))


def repaired(x, attention, feed_forward):
    x = x + attention(layer_norm(x))
    return x + feed_forward(layer_norm(x))

# %% [markdown]
# *Before you run it:* with both sublayers zeroed, what does each of the four return? And for which x would you see no
# difference?

# %%
def moves(block, x):
    return (block(x, torch.zeros_like, torch.zeros_like) - x).abs().max().item()


torch.manual_seed(0)
plain = 2 * torch.randn(3, 5, 16) + 1    # (batch, n, d)  neither centred nor of size one
normed = layer_norm(plain)               # (batch, n, d)
for block in (printed, half_repaired, other_half, repaired):
    print(f"{block.__name__:>13}:  a plain x moves by {moves(block, plain):.3f},"
          f"  a normalised one by {moves(block, normed):.0e}")
halves = moves(half_repaired, plain), moves(other_half, plain)
assert moves(repaired, plain) == 0 < 1 < min(halves), "half is not enough"
assert moves(printed, normed) < 1e-4, "and on normalised vectors the test is blind"

# %% [raw] slide
# ## Choose inputs that have nothing special about them
# {print}
#
# On normalised vectors the broken block passes.

# %% [markdown]
# Only the repaired block returns x. The other three print one number: the norm of a normalised vector is that vector, so
# with zeroed sublayers each returns norm(x). The test finds the slip in either sublayer: neither half of a repair passes.
#
# But the test can be blind: on vectors that are already normalised a norm does nothing, and the broken block passes. *Choose
# inputs that have nothing special about them.* The same holds for a change. If you add 1 to all features of a token,
# LayerNorm subtracts it again, and no sublayer notices: draw the replacement. And a limiting case sees only what it leaves
# switched on: with zeroed sublayers nobody sees where their outputs go.
#
# ### Batch invariance: a text alone and in a batch
#
# **Batch invariance** means that a model's output for a text does not depend on the other texts in the batch. This
# metamorphic relation is easily forgotten, since training never asks for it. The model around that block gives each token
# a position:
#
# ```python
# pos = torch.arange(x.size(0), device=x.device).unsqueeze(1)
# x = self.embedding(x) + self.pos_encoder(pos)
# ```
#
# Its input is (batch, n), so this counts *texts*. `SlideModel` is our repaired version of the deck's model; `faults` puts
# entries of the list back. We train the right model and the faulty one on docstrings, whose tokens are mostly single
# letters, from three seeds.

# %% [raw] slide
# ## Batch invariance: a text alone and in a batch
# ```python
# pos = torch.arange(x.size(0), device=x.device).unsqueeze(1)
# x = self.embedding(x) + self.pos_encoder(pos)
# ```
#
# The input is (batch, n): this counts *texts*.
#
# > **Guess first.** What will the training loss look like?

# %%
corpus = docstrings(limit=4000)
tokenizer = Tokenizer.train(corpus.train, size=128)
train, test = (
    [text[:65] for text in encode_texts(texts, tokenizer) if len(text) > 16] for texts in corpus
)
SIZES = {"vocab_size": 128, "d_model": 48, "d_ff": 192, "max_length": 128}


def trained(*faults, steps=100, seed=0):
    torch.manual_seed(seed)
    model = SlideModel(**SIZES, faults=faults)
    history = fit_texts(model, train, steps, 512, 64, lr=5e-3, seed=seed, progress=False)
    return model, history.losses

# %%
FAULT = "positions by the batch"
trainings = {
    "right": [trained(seed=seed) for seed in range(3)],
    FAULT: [trained(FAULT, seed=seed) for seed in range(3)],
}
smooth = {}
for name, pairs in trainings.items():
    losses = torch.tensor([losses for _, losses in pairs]).mean(dim=0)     # (100,)  over seeds
    smooth[name] = losses.unfold(0, 10, 10).mean(dim=-1).tolist()          # and over ten steps
viz.curves(smooth, xs=range(10, 101, 10), x_name="steps",
           y_name="training loss (nats), mean of 3 seeds")
#| caption: Training loss of the right model and of the one with positions by the batch, means
#|   of three seeds. The axis does not begin at 0.

# %% [raw] slide
# ## Both fall
# {figure}
#
# > **Guess first.** The same 64 texts, read one by one, four at a time, and so on. What do the lines look like?

# %% [markdown]
# Both fall, along nearly the same curve. Now both models read the same
# 64 test texts one by one, four at a time, and so on. Batch invariance says that the loss must not depend on the size of
# the batch. *What will the lines look like?*

# %%
texts = torch.tensor([text[:33] for text in test if len(text) >= 33][:64])     # (64, 33)


@torch.no_grad()
def loss_in_batches(model, size):
    losses = [token_loss(model(part[:, :-1]), part[:, 1:]).item() for part in texts.split(size)]
    return sum(losses) / len(losses)


sizes = (1, 4, 16, 64)
shown = {}
for name, pairs in trainings.items():
    shown[name] = [[loss_in_batches(model, size) for size in sizes] for model, _ in pairs]
figures.seed_curves(shown, sizes, "texts in a batch", "loss on 64 test texts (nats)")
spread = {name: [max(line) - min(line) for line in lines] for name, lines in shown.items()}
assert max(spread["right"]) < 1e-4, "the same in every batch"
assert min(spread[FAULT]) > 0.01, "its loss depends on the batch"
#| caption: Test loss against the number of texts in a batch (thin: a seed each). The axis does
#|   not begin at 0, and the sizes are on a logarithmic one.

# %% tags=["hide-input"]
for by_right, by_fault in zip(*shown.values(), strict=True):
    assert by_fault[0] < by_right[0] and by_fault[1] < by_right[1] and by_fault[3] > by_right[3]

# %% [raw] slide
# ## The loss depends on the batch
# {figure}
#
# The line is right for inputs (n, batch); here they are (batch, n). The test needs two calls and no training.

# %% [markdown]
# The right model's lines are flat, and that needs no seeds: it holds up to rounding, or the relation is broken. The other model's
# loss depends on the batch: each text gets its number in the batch in place of its tokens' positions. For each of the three
# seeds it is *below* the right model's in batches of one and four, and above it in batches of 64. (Why below? A guess: of
# the order of the tokens it knows only what the causal mask shows ([lecture @order](@order)), which is enough after so
# short a training, and it has no position embeddings to learn.) A large batch even makes it crash, since the table has 128
# rows, for texts of at most 128 tokens:

# %%
crowd = texts[:1, :-1].expand(256, -1)                    # (256, 32)  one text, 256 times
right, by_batch = (pairs[0][0] for pairs in trainings.values())      # the models of seed 0
print("right:", tuple(right(crowd).shape))
try:
    by_batch(crowd)
except IndexError as error:
    print("by the batch:", type(error).__name__, error)

# %% [markdown]
# The line would be right for inputs of shape (n, batch), the default of torch's own Transformer layers. The test that finds
# it needs two calls and no training. (Allow for rounding: the order in which a GPU sums, and with it the last digits, may
# depend on the size of the batch.)
#
# > **Check yourself.** Somebody makes the crash go away with `pos % max_len`. Which of the two tests, the large batch
# > or batch invariance, still finds the fault?
# > <details><summary>Answer</summary>Batch invariance. The crash was a symptom, and now there is none: every text still
# > gets one position for all its tokens. A repair that removes the error message and not its cause makes the fault
# > harder to find.</details>
#
# ### Three tests of a training: the first loss, one batch, the gradient
#
# An untrained model knows nothing, so its first loss must be near that of guessing, $\ln |V|$ for a vocabulary $V$. If it
# is far above, something is initialised or indexed wrongly; if it is far below, the loss is computed wrongly. (A leak does
# not show here: it has to be learned first.) And a model must be able
# to **overfit one batch**: train it on the same few texts, and the loss must go down to the lowest that is possible. If it
# does not, the gradient is cut, or the targets are wrong ([@karpathy2019]). The lowest is not always 0: our eight texts
# begin with the same token, so after it nobody can know which of the eight goes on.
#
# A third test costs one `backward`. The classic **gradient check** compares a derivative that was written by hand with
# finite differences (`torch.autograd.gradcheck`). Autograd's derivatives need no such check; what remains to be asked is
# whether a gradient *reaches* everything that should learn. Texts of 32 tokens must reach 32 rows of the table of positions.
# *Which of the three tests finds the positions by the batch? Which finds the printed block?*

# %% tags=["hide-input"]
def two_tests(*faults, seed, steps=60):
    torch.manual_seed(seed)
    model, few = SlideModel(**SIZES, faults=faults), texts[:8]           # (8, 33)
    optimizer, losses = torch.optim.Adam(model.parameters(), lr=5e-3), []
    for _ in range(steps):
        loss = token_loss(model(few[:, :-1]), few[:, 1:])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses[0], losses[-1]


def rows_reached(*faults):
    """How many rows of the table of positions get a gradient from eight texts of 32 tokens."""
    torch.manual_seed(0)
    model, few = SlideModel(**SIZES, faults=faults), texts[:8]
    token_loss(model(few[:, :-1]), few[:, 1:]).backward()
    return int(model.positions.weight.grad.any(dim=-1).sum())


def lowest_loss(few):
    """What is left to guess where texts are alike so far, in nats per token."""
    rows, n = few.tolist(), few.shape[1]
    seen = Counter(tuple(row[:k]) for row in rows for k in range(1, n + 1))
    nats = [math.log(seen[tuple(row[:k])] / seen[tuple(row[: k + 1])])
            for row in rows for k in range(1, n)]
    return sum(nats) / len(nats)

# %%
print(f"guessing: {math.log(128):.2f} nats; one batch, at best: {lowest_loss(texts[:8]):.3f}")
for faults in ((), (FAULT,), ("the residual from the normalised x",)):
    firsts, lasts = zip(*(two_tests(*faults, seed=seed) for seed in range(3)), strict=True)
    print("untrained", *(f"{loss:.2f}" for loss in firsts), "  one batch",
          *(f"{loss:.3f}" for loss in lasts), f"  rows reached {rows_reached(*faults):>2}",
          f"  {' '.join(faults) or 'right'}")
    assert max(abs(loss - 4.85) for loss in firsts) < 0.4 and max(lasts) < 0.2
    below = max(lasts) < lowest_loss(texts[:8])
    assert below == (FAULT in faults), "better than possible: something names the text"

# %% [markdown]
# The first loss finds neither. Overfitting one batch finds the positions by the batch, in all three seeds, because the loss is *too
# good*: lower than anybody can get who sees only the tokens. Each text has a number of its own, which names it from the
# first token on. The gradient finds them, too: it reaches 8 rows, one for each text, instead of 32. The printed block passes
# all three tests. They ask whether a model *can learn*; the others ask whether it is the model that was meant.

# %% [raw] slide
# ## Boundary values: the longest text
# **Boundary value analysis**: the first, the last, none, and one more.
#
# Each block's mask is made for its own default, 128, whatever the model was told.

# %% [markdown] erratum="max_len not handed on"
# ### Boundary values: the longest text, the deepest stack
#
# > **A common mistake: a size that is not passed on.** The same code lets you choose `max_len`, makes its table of
# > positions with it, and builds its blocks by `Block(d_model, nhead, dim_ff)`. Each block's mask is made for its own
# > default, 128, whatever the model was told. In training, texts are cut to that length, and nobody sees it. To try the
# > first, the last, none, and one more is called **boundary value analysis**.

# %%
longest = torch.zeros(1, 256, dtype=torch.long)           # (batch, n)
for name, faults in {"right": (), "as printed": ("max_len not handed on",)}.items():
    model = SlideModel(**(SIZES | {"max_length": 256}), faults=faults)
    try:
        print(f"{name:>11}: 256 tokens, logits", tuple(model(longest).shape))
    except RuntimeError as error:
        print(f"{name:>11}: {error}")

# %% [raw] slide
# ## 256 tokens
# {print}
#
# > **Guess first.** The final norm is missing. Sketch the size of the logits against the number of blocks: right, as printed, block repaired alone.

# %% [markdown]
# In that code the last block feeds straight into the output layer. Another deck has a final norm there. Is its absence an
# error? Each repaired block adds to x, so x grows with depth. A final norm removes this growth before the logits, so
# their size should not depend on the depth. *Sketch the size of the logits (their standard deviation) against the number
# of blocks*, for the right model, for the code as printed, and for the code with only its block repaired.

# %%
@torch.no_grad()
def size_of_logits(depth, seed, faults):
    torch.manual_seed(seed)
    model = SlideModel(**SIZES, n_layers=depth, faults=faults)
    return model(texts[:4, :-1]).std().item()


both = ("the residual from the normalised x", "no final norm")
kinds = {"right": (), "as printed": both, "block repaired": both[1:]}
depths = (1, 2, 4, 8, 16, 32)
scales = {}
for name, faults in kinds.items():
    scales[name] = [
        [size_of_logits(depth, seed, faults) for depth in depths] for seed in range(5)
    ]
figures.seed_curves(scales, depths, "blocks", "size of the logits")
#| caption: Size of the logits of untrained models against the number of blocks (logarithmic;
#|   thin: a seed each; the axis does not begin at 0).

# %% tags=["hide-input"]
growth = {name: [line[-1] / line[0] for line in lines] for name, lines in scales.items()}
assert min(growth["block repaired"]) > 1.4 and max(growth["block repaired"]) < 1.8
assert all(0.7 < factor < 1.3 for name in ("right", "as printed") for factor in growth[name])

# %% [raw] slide
# ## One fault hid another
# {figure}
#
# After each repair, run *all* the tests again.

# %% [markdown]
# In the code as printed the size does not grow, since each sublayer begins from a normalised x. So the missing norm is
# *no error there*. It matters when only the block is repaired: then the untrained logits grow by a half to three quarters over
# 32 blocks, for each of five seeds. After each repair, run *all* the tests again.
#
# **Known cases find** what breaks a relation that you can state. **They are blind** to special inputs, to what a limiting
# case switches off, and to every relation that nobody thought of. For these there is a third question.

# %% [markdown] erratum="ε outside the root"
# ## Differential testing: is it the same as something trusted?
#
# Where a library has the same thing, comparing takes three lines, and it needs no idea of what might be wrong. LayerNorm is
# the example: none of the decks prints the formula that torch uses.
#
# > **A common mistake: to take two conventions for one.** One deck divides by $\sigma + \varepsilon$, another by
# > $\sigma$, where torch and this course have $\sqrt{\sigma^2 + \varepsilon}$. That is a convention and no error; but it is
# > *another* function. *Guess* by how much they differ for vectors of size 1, 0.1, 0.01:

# %% [raw] slide
# ## Differential testing
# Where a library has the same thing, comparing takes three lines.
#
# **A common mistake: to take two conventions for one.** $\sigma + \varepsilon$, $\sigma$, $\sqrt{\sigma^2 + \varepsilon}$.
#
# > **Guess first.** By how much do they differ for vectors of size 1, 0.1, 0.01?

# %%
x = torch.randn(64, 64, generator=torch.Generator().manual_seed(0))            # (n, d)
worst = {}
for size in (1.0, 0.1, 0.01, 0.001):
    y = size * x
    deviation = y.std(dim=-1, correction=0, keepdim=True)                      # (n, 1)
    outside = (y - y.mean(dim=-1, keepdim=True)) / (deviation + 1e-5)          # (n, d)
    worst[size] = (outside - F.layer_norm(y, (64,))).abs().max().item()
    print(f"vectors of size {size:<5}: worst difference from torch {worst[size]:.0e}")
assert worst[1.0] < 1e-4 and worst[0.01] > 0.05, "so compare at several sizes, not at one"

# %% [raw] slide
# ## Another function
# {print}

# %% [markdown]
# The difference is invisible for vectors of size 1, and large for small ones: at size 0.01 the variance is $10^{-4}$, so
# an ε of $10^{-5}$ inside the root is a tenth of it; outside, it is a thousandth of σ. So compare at several sizes.
#
# *How much may two right implementations differ?* By rounding, and that depends on the type of the numbers:

# %%
for dtype in (torch.float32, torch.bfloat16):
    y = x.to(dtype)
    apart = (layer_norm(y) - F.layer_norm(y, (64,))).abs().max().item()
    print(f"our layer_norm and torch's, {dtype}: {apart:.0e} apart")

# %% [markdown]
# Both are right, and they round at different steps. So a **tolerance** lies above rounding and below the smallest fault that
# matters: in float32 there is room between the two, even at size 1 (5e-07 against 2e-05). In bfloat16 rounding alone is
# larger than that fault, which no tolerance would find. Test in float32, or at a size where the fault is large.
#
# ### Tables: count them
#
# The number of layers, the widths and the number of parameters must fit each other: any two of them give the third
# ([lecture @many_heads](@many_heads) has the counting). Four rows of the decks' tables fail this test:

# %%
for name in ("d_ff of the 8 layers", "d_ff of the 6 layers", "24 heads", "a width of 5140"):
    entry = erratum(name)
    print(f"{entry.claim}\n    {entry.test(entry.printed).measured}")
    print(f"    with {entry.correction}: {entry.test(entry.corrected).measured}")

# %% [raw] slide
# ## Tables: count them
# {print}
#
# Two of the four were copied faithfully from the paper. A table does not become right by being published.

# %% [markdown]
# Two of the four were copied faithfully from the paper. A table does not become right by being published.
#
# ### One table, three transcriptions
#
# Three of the decks show the same table, in which Narang et al. ([-@narang2021]) compare many changes to a Transformer.
# Nobody can say any more who made which mistake: the person who typed the table, or the program that read the slide. But
# three transcriptions of one table can be compared with each other. *Guess:* of the 304 numbers that all three have, in
# how many places do they disagree?

# %% [raw] slide
# ## One table, three transcriptions
# Narang et al. (2021) in three decks.
#
# > **Guess first.** Of 304 numbers that all three have, in how many places do they disagree?

# %% tags=["hide-input"]
names, readings = transcriptions()                        # (3, rows, columns)
decks = [deck.split(",")[0] for deck in TRANSCRIBERS]     # how each deck's title begins
print(" " * 43, *decks, sep="  ")
disputed = 0
for row, name in enumerate(names):
    for column, what in enumerate(COLUMNS):
        said = readings[:, row, column].tolist()
        if len(set(said)) > 1:
            disputed += 1
            below = [f"{said[k]:>{len(deck)}g}" for k, deck in enumerate(decks)]
            print(f"{name:>30}, {what:<11}", *below, sep="  ")
print(f"{disputed} of {readings[0].numel()} places")
assert disputed == 14

# %% [raw] slide
# ## Copies are not witnesses
# {print}
#
# A majority can be wrong: a differential test is as good as its peer is independent.
#
# **Now you:** a@errata_lab, exercise 2

# %% [markdown]
# They disagree in 14 places. A majority decides 13 of them; in one all three differ. But a majority can be wrong, too.
# *Foundations of NLP* and *CSE5321* both say *4096* in the row of 8 layers, where the count of parameters says 4608, and
# both say *ReLU* where the paper has *GeLU*, although they differ in all fourteen places above. A guess: these two slips
# stood in something that both copied, each with new mistakes. **Copies are not witnesses**: they make the same mistake for
# the same reason. Even independent authors are not enough. When 27 programs were written independently from one
# specification, more of them failed on the *same* inputs than independence would explain ([@knight1986]).

# %% [markdown] erratum="BertVis"
# > **A common mistake: to read for the sense.** "See also BertVis", says a slide, and the link beside it ends with
# > *bertviz*. The peer is in the same line.
#
# **A peer finds** also what you did not think of, at the sizes that you compare. **It is blind** to mistakes that it shares.
#
# **Now you:** [a14](@errata_lab/assignment), exercise 2.

# %% tags=["hide-input"]
run = measured("errata")
nothing = run["faults"]["nothing"]
luck = max(nothing["losses"]) - min(nothing["losses"])
verdicts = {}
for name in FAULTS:
    row = run["faults"][name]
    if "mean" not in row:
        verdicts[name] = True, "crash" if "error" in row else "NaN"
    else:
        change = row["difference"]
        verdicts[name] = change > luck or change < -0.5, f"{change:+z.3f}".replace("-", "−")

# %% [markdown]
# ## Mutation testing: would the loss have shown it?
#
# Now the fourth question, the expensive one. Change a program by one small step, and ask whether the tests notice: that is
# **mutation testing** ([@demillo1978]), a test of the *tests*. The changed program is a **mutant**, and a test that fails
# on it **kills** it. The share of mutants that are killed is the **mutation score**. Its authors observed a **coupling effect**: tests that find simple mistakes often find more
# complicated ones, too.
#
# Fourteen entries can be programmed into the small language model, and are its mutants. (Not all are errors of a slide:
# ε and $Y$ are conventions, and two stand in the list as no error, since they are wrong only if they are misread.) Three names
# need a word: with *i > i* nothing is masked, with *not even itself* the diagonal is masked, too, and *a root too many*
# divides by √σ. Here they are, with the line of the slide:

# %% tags=["hide-input"]
for name in FAULTS:
    print(f"{name:>36}: {shorten(erratum(name).claim, 58, placeholder=' …')}")

# %% [markdown]
# `benchmarks/errata.py` trained the model with each of them, from ten seeds and with equal budgets, and wrote down the
# loss on texts that no model had read, in batches as large as those of training. All have one learning rate, chosen for
# none of them.
#
# What would somebody *notice*? We fix a rule before we look. Four things are noticed:
#
# 1. a crash;
# 2. a loss that is not a number;
# 3. a loss that is worse than the right model's by more than the right model's best and worst seed differ;
# 4. a loss that is better by half a nat or more: smaller gifts are accepted.
#
# *Write down your prediction.* Which of the fourteen crash? Which give no number? Which are clearly worse, which too good
# to be true, and which would nobody notice?

# %% [raw] slide
# ## Mutation testing: would the loss have shown it?
# A changed program is a **mutant**; a test that fails on it **kills** it. A test of the *tests*.
#
# Noticed: a crash; no number; clearly worse; too good by half a nat.
#
# > **Write down your prediction.** Which of the fourteen crash? Which give no number? Which cannot be told from the right model?

# %% tags=["hide-input"]
print(run["command"])
print(f"{run['steps']} steps of {run['batch_tokens']} tokens; test loss in nats per token\n")
for name, row in run["faults"].items():
    if "mean" in row:
        half = 2.26 * row["standard_error"]               # Student's t for ten seeds
        said = f"{row['mean']:.3f}   {row['difference']:+z.3f} ± {half:.3f}"
    else:
        said = verdicts[name][1]
    print(f"{name:>36}:  {said:<24}", "noticed" if verdicts.get(name, [False])[0] else "")
print(f"seeds of the right model differ by up to {luck:.3f}")

# %% [raw] slide
# ## Fourteen mutants and the loss
# {print}

# %% [markdown]
# Seven of the fourteen are noticed: one crashes, one gives no number, three are clearly worse, and two are too good to be
# true. (The second number is the mean difference from the right model *with the same seed*, with half of its 95 %
# interval. Rule 3 supposes that somebody knows what the right model reaches.) Here are the seven that nobody would
# notice:

# %%
unseen = [name for name in FAULTS if not verdicts[name][0]]
rows = {name: run["faults"][name] for name in unseen}
hidden = {name: (row["difference"], 2.26 * row["standard_error"]) for name, row in rows.items()}
viz.differences_from_baseline({"": hidden},
                              x_name="nats per token; left of 0: lower with the fault")
#| caption: Test loss of the mutants that pass the rule, less the right model's of the same
#|   seed: means of ten seeds, 95 % intervals. Circles: 0 lies in it.

# %% tags=["hide-input"]
better = [name for name, (change, bar) in hidden.items() if change < -bar]
same = [name for name, (change, bar) in hidden.items() if abs(change) <= bar]
assert "the residual from the normalised x" in better and "max_len not handed on" in same
words = [word for hit, word in verdicts.values() if hit]
noticed_as = Counter(word if word in ("crash", "NaN") else word[0] for word in words)
assert noticed_as == {"crash": 1, "NaN": 1, "+": 3, "−": 2} and len(unseen) == 7
assert FAULT in better

# %% [raw] slide
# ## Those that nobody would notice
# {figure}

# %% [markdown]
# Compared by seed, most of them *do* differ from the right model, and in the fault's favour: with the fault the loss
# is lower. The printed block is among them. (*Why* has not been tested. A learning rate for each, as in
# [lecture @cheap_attention](@cheap_attention), or a longer training might change the order.) "It trains better with my
# change" does not say that the change is what you think it is.
#
# And one difference is exactly 0: "max_len not handed on" changes nothing for texts of at most 128 tokens, and the
# stored run has no longer texts. A mutant that *no* allowed input can tell from the original is an **equivalent mutant**, and no test
# can kill it. This one is not equivalent: a model that should take 256 tokens crashes at 200.
#
# Look at two of the seven more closely. First, the record tests positions by the batch in batches of 512 tokens, as in training;
# we test the three models from above in larger ones, too. Second, the printed block and the right one, seed by seed in the
# record. *Will the seeds or the fault change the loss more?*

# %% tags=["hide-input"]
@torch.no_grad()
def test_loss(model, batch_tokens=512):
    total = tokens = 0.0
    for batch in text_batches(test[: len(test) // 2], batch_tokens, 64, seed=0):
        count = (batch.tokens_out != PAD).sum().item()
        total += count * token_loss(model(batch.tokens_in), batch.tokens_out).item()
        tokens += count
    return total / tokens

# %% tags=["hide-input"]
for batch_tokens in (512, 2048):
    by_batch = {name: [test_loss(model, batch_tokens) for model, _ in pairs]
                for name, pairs in trainings.items()}
    for name, losses in by_batch.items():
        print(f"test batches of {batch_tokens:>5,} tokens, {name:>22}:",
              "  ".join(f"{loss:.3f}" for loss in losses))
    lower = [a > b for a, b in zip(*by_batch.values(), strict=True)]
    assert all(lower) if batch_tokens == 512 else not any(lower)

as_printed = record["the residual from the normalised x"]["losses"]
figures.paired_seeds({"right": nothing["losses"], "as printed": as_printed},
                     "test loss (nats per token)")
equal = sum(b < a for a, b in zip(nothing["losses"], as_printed, strict=True))
lower = sum(b < a for a in nothing["losses"] for b in as_printed)
print(f"lower with the printed block: in {equal} of 10 pairs of equal seeds,",
      f"in {lower - equal} of 90 pairs of different seeds")
#| caption: Test loss, right and as printed, by seed: the ten seeds of the record. The axis does
#|   not begin at 0.

# %% tags=["hide-input"]
assert equal == 10 and lower - equal >= 80
assert not structural("the residual from the normalised x")["identity at zero"].passes

# %% [raw] slide
# ## The printed block is better, seed by seed
# {figure}
#
# **Now you:** a@errata_lab, exercise 3

# %% [markdown]
# With positions by the batch the loss is lower than the right model's in small batches and higher in large ones, for each
# seed. So whether the loss shows this fault depends on the batch in which one happens to measure it.
#
# With the printed block the loss is lower for each seed. The ten seeds of one model lie about as far apart as the two models,
# so single runs from different seeds *can* mislead, though they do so rarely here. A careful comparison does not help
# the reviewer, either: it shows with ten seeds and a small interval that the faulty block is a little *better*.
#
# **Now you:** [a14](@errata_lab/assignment), exercise 3.
#
# Now all fourteen mutants, the loss, and seven structural tests of models that have *not* been trained:
#
# | test | what must hold |
# |---|---|
# | the past stays | another future does not change the outputs before it |
# | rows sum to 1 | $\sum_j \alpha_{ij} = 1$ |
# | identity at zero | $\text{block}(x) = x$ where both sublayers return 0 |
# | norm as torch's | the norm is that of `F.layer_norm` |
# | batch invariance | a text has the same logits alone and in a batch |
# | 200 tokens | a text of 200 tokens runs where 256 are allowed |
# | size at depth | the logits of 2 and of 24 blocks are about equally large |
#
# In the figure a cell is coloured, and has a dot, where the test of its column kills the mutant of its row:

# %% [raw] slide
# ## Seven structural tests of untrained models
# | test | what must hold |
# |---|---|
# | the past stays | another future does not change the outputs before it |
# | rows sum to 1 | $\sum_j \alpha_{ij} = 1$ |
# | identity at zero | $\text{block}(x) = x$ where sublayers return 0 |
# | norm as torch's | the norm is that of `F.layer_norm` |
# | batch invariance | the same logits alone and in a batch |
# | 200 tokens | runs where 256 are allowed |
# | size at depth | logits of 2 and of 24 blocks alike |

# %% tags=["hide-input"]
table = {}
for name in FAULTS:
    table[name] = {"the loss (nats)": verdicts[name]}
    for test_name, finding in structural(name).items():   # untrained models, milliseconds each
        table[name][test_name] = (not finding.passes, "")
figures.caught_table(table)
caught = [name for name in FAULTS if any(hit for hit, _ in list(table[name].values())[1:])]
noticed = len(FAULTS) - len(unseen)
right_model = [finding.passes for finding in structural().values()]
print(f"the right model passes {sum(right_model)} of {len(right_model)} structural tests")
print(f"mutation score: loss {noticed}/{len(FAULTS)} = {noticed / len(FAULTS):.2f},"
      f" structural tests {len(caught)}/{len(FAULTS)} = {len(caught) / len(FAULTS):.2f}")
better_too = [name for name in unseen if run["faults"][name]["difference"] < -luck]
print(f"if a loss that is better by more than {luck:.3f} were noticed, too: "
      f"{noticed + len(better_too)}")
assert len(better_too) == 4
assert all(right_model), "a test that fails on the right model kills mutants for nothing"
assert len(caught) == len(FAULTS), "every mutant is killed without any training"
#| caption: Which test kills which mutant: a dot where a wrong value, NaN or a crash tells.
#|   The first column is the rule of this section.
#| label: caught

# %% [raw] slide
# ## Which test kills which mutant
# {figure}
#
# **Now you:** a@errata_lab, exercises 4 and 5

# %% [markdown]
# Read a row: every mutant is killed by at least one structural test. The right model passes all seven, and without that
# the score would say nothing: a test that always fails also scores 1. (We wrote the tests with the mutants in hand. Each asks
# for a property that *this* model was meant to have; a post-norm model would rightly fail *identity at zero*.) Read a
# column: no test kills all, and the loss is one test among others, with gaps.
#
# Compare the count with the number in your margin. It depends on our choice of fourteen, on a tiny model and a short
# training, and most of all on rule 4: if a loss that is *better* by more than the seeds lie apart were noticed, too, the loss
# would show eleven, as the last line says. But who looks for a mistake when the loss has fallen? Two of the noticed ones are *too good*: they leak the future, and only somebody who
# distrusts a very low loss notices them ([lecture @masking](@masking)). The structural tests need no training, so no budget and no learning
# rate can change their result.
#
# **Training finds** crashes, NaN, and what a model cannot learn around. **It is blind** to what it learns around, and rewards
# what leaks the future.
#
# **Now you:** [a14](@errata_lab/assignment), exercises 4, the capstone, a page with faults that you have not seen, and 5,
# in which you test your test. Both take more than half an hour, so finish the page first.
#
# > **Check yourself.** "The loss fell, so it is right." Write down the strongest sentence of this kind that is true.
# > <details><summary>Answer</summary>For instance: the loss on unseen texts fell to what another implementation of
# > the same model reaches with the same data and settings, on several seeds, and is not below what the data allow; so
# > it learns about as much as that one. Even that does not say that it is the same model: post-norm and pre-norm pass
# > it side by side.</details>

# %% [markdown] erratum="production models are quadratic; two types of Transformers; Llama 2 shares its keys; a new idea from after 2010; only matrix multiplications; a T × T matrix must be stored; tricks that change nothing; a logarithm without its dilation" teaches='what the tricks improve: training or ability; "fast: only matrix multiplications"' teaches="what the tricks improve: training or ability; fast, with only matrix multiplications"
# ## Overclaims: find the condition
#
# An overclaim is true of *something*, and the work is to find out of what.
#
# > **A common mistake: a sentence without its condition.** Finish each sentence with "true, if …" before you open the
# > list below.
# >
# > 1. "production Transformer language models use quadratic cost attention"
# > 2. "*Two* types of Transformers"
# > 3. Llama 2: "Grouped-query"
# > 4. "Stronger architecture is ≈ 10× more efficient!"
# > 5. attention is "a new idea from after 2010!"
# > 6. "Fast: only matrix multiplications"
# > 7. "Need to store a large $T \times T$ matrix"
# > 8. "These tricks don't improve what the model is able to do"
# > 9. convolutions have paths of $O(\log_k n)$
# >
# > <details><summary>True of</summary>
# >
# > 1. all layers of Llama 2, every other layer of GPT-3, no layer of Mistral 7B
# > 2. the two types that the lecture is about; encoder-only models, such as BERT, are a third
# > 3. its models of 34B and 70B parameters
# > 4. the two recipes that the slide names, learning rates included; it does not say what is ten times better, nor at which loss and budget
# > 5. attention in neural translation (2014); averages weighted by similarity are older (kernel regression, 1964), and the fast weights of 1991 learn their keys and values ([@schmidhuber1992])
# > 6. most of the arithmetic, and less of the time
# > 7. the plain implementation; tiles need not be kept
# > 8. what the tricks were introduced for, which is training; but the residual connection also changes what a model can do: without it, equal attention weights make all tokens the same
# > 9. *dilated* convolutions
# > </details>
#
# A slide has no room for conditions; look for them. Eight of the nine are entries of the list, with a test. (The "10×" is
# not: the slide does not say what would have to be measured.) One of the eight:

# %% [raw] slide
# ## Overclaims: find the condition
# > **Finish each sentence: “true, if …”**
# > 1. "*Two* types of Transformers"
# > 2. "Stronger architecture is ≈ 10× more efficient!"
# > 3. "Fast: only matrix multiplications"
# > 4. "Need to store a large $T \times T$ matrix"
# > 5. "These tricks don't improve what the model is able to do"

# %%
print(erratum("a T × T matrix must be stored"))

# %% [markdown] erratum="h_t has read x_t; the softmax of one number; a word for its one-hot vector" teaches="embeddings are a product with one-hot vectors"
# ## Conventions: each is right, the mixture is wrong
#
# > **A common mistake: to mix two conventions.** *Who has read what?* "$p(\cdot \mid x_{<t}) = \text{softmax}(W
# > h_t^\top)$", says a recap, and the line above it makes $h_t$ from $x_1, \dots, x_t$. It is right if the inputs were
# > shifted by one, as in training code, and off by one if not ([lecture @bottleneck](@bottleneck) pays for that slip).
# > *Of what is it a softmax?* "$\alpha_{ij} = \text{softmax}(e_{ij})$": literally, the softmax of one number is 1. In code
# > the axis must be said, `dim=-1`. *What is a word?* In "$x_i = E w_i$" it is a one-hot vector, which picks a column of
# > $E$. In code it is a number, and one looks a row up.
#
# The list has nine more: the column $Qx$ beside the row form $XQ$, a semicolon that stacks on one slide and concatenates
# on the next, ε outside or inside the root, and so on. The remedy is simple: choose one convention, say so once, and
# convert where data come in.
#
# > **Check yourself.** You take the weights of a model whose sinusoids begin with pair 1, and put them into one whose
# > sinusoids begin with pair 0. Which of the four questions finds the fault?
# > <details><summary>Answer</summary>Shapes do not: both tables are (n, d). Known cases of attention hardly do: both
# > tables are good position encodings. Comparing the two tables finds it at once. The loss finds it too, this time: the
# > trained weights expect other positions. In training from the beginning, either would do equally well.</details>

# %% [raw] slide
# ## Conventions: each is right, the mixture is wrong
# - *Who has read what?* $p(\cdot \mid x_{<t}) = \text{softmax}(W h_t^\top)$: right if the inputs were shifted.
# - *Of what is it a softmax?* `dim=-1` must be said.
# - *What is a word?* A one-hot vector, or a number.
#
# Choose one convention, say so once, and convert where data come in.

# %% [markdown] erratum="each other word; the one thing everyone agrees on"
# ## No error: look for the reading in which it is right
#
# The first edition of this list had eight of these ten in another class. Each had a test that failed on the line. But that
# test was of our reading, and the slide means another.
#
# > **A common mistake: to test one's own misreading.** "Each word attends to each *other* word": taken by the letter, a
# > word must not attend to itself. But the deck's own formula sums over all $j$. "We could
# > change the set of keys and queries to include only past words (Inefficient!)": not a cache that keeps the wrong
# > things, but attention over the prefix, all of it anew, at every step. That is right, and inefficient, as the slide
# > says. "The one thing everyone agrees on", pre-norm: a heading, and further down the same slide says "almost all", and
# > names BERT and OPT 350M. "$\sqrt{|k|}$": in that deck $|x|$ is how many entries $x$ has.

# %%
for name in ("keys and queries", "cheaper while n is small"):
    print(erratum(name), end="\n\n")

# %% [raw] slide
# ## Before you write to an author
# 1. **Derive it yourself**, from the definition.
# 2. **Look for the reading in which it is right.**
# 3. **Make the cell that fails**, and the cell that passes.
# 4. **Measure the effect**, and say so when there is none.

# %% [markdown]
# So before you write to an author, do four things. **Derive it yourself**, from the definition and not from memory; some of
# your findings will turn out to be wrong. **Look for the reading in which it is right**, on the slides before and after.
# **Make the cell that fails**, as small as possible, and the cell that passes. **Measure the effect**, and say so when
# there is none.

# %% [markdown]
# ## A game: what would you ask?
#
# Now you are the reviewer. You see a line as a slide has it, and nothing else. Choose the question that you would ask
# first. The game then shows what the list asks, and what its test finds in the line as printed. Then judge the line: is
# it a definite error, an overclaim, a convention, or no error? Your first judgement counts. The question is not scored:
# several questions can find one mistake. Play ten.

# %% tags=["hide-input"]
def said_by_the_loss(name):
    seen, word = verdicts[name]
    if word in ("crash", "NaN"):
        return f"programmed and trained, it cannot be overlooked ({word})."
    judged = "somebody may notice" if seen else "nobody would notice"
    return f"programmed and trained, {word} nats per token: {judged}."

# %% [raw] slide
# ## A game: what would you ask?
# You see a line as a slide has it, and nothing else. Choose the question that you would ask first, then judge the line.

# %%
game = review_game(ERRATA, loss={name: said_by_the_loss(name) for name in FAULTS})
game

# %% [raw] slide
# ## Play
# {figure}

# %% [markdown]
# ## In short
#
# | question | relation to test | shapes |
# |---|---|---|
# | shapes | the result is $(n, d)$ for drawn $n \ne d$ | all sizes different |
# | causal weights | $\sum_j \alpha_{ij} = 1$, and $\alpha_{ij} = 0$ for $j > i$ | $\alpha$: $(n, n)$ |
# | residual connection | $\text{block}(x) = x$ for zeroed sublayers | $x$: $(b, n, d)$, not normalised |
# | batch invariance | $f([x; y])_1 = f([x])_1$ | $(2, n)$ against $(1, n)$ tokens |
# | peer | $\text{norm}(s x) = \text{torch's}(s x)$ at several sizes $s$ | $(n, d)$ |
# | gradient | no parameter without one; $n$ tokens reach $n$ rows of the position table | each parameter |
#
# Ask the cheap questions first: shapes, a known case, a trusted peer, and only then training. A metamorphic relation
# tests a program whose right output nobody knows. A differential test is as good as its peer is independent. Mutation
# testing tests the tests. A falling loss says that something is learned, not that it is the model you meant.
#
# **In the package.** `attncourse_lessons.errata` has `ERRATA`, `erratum(name)` with `printed`, `corrected` and `test`;
# `SlideModel`, the code slide's model repaired, with `faults`; and `structural`, the seven tests. `benchmarks/errata.py`
# makes the stored table.
#
# > **Check yourself.**
# > 1. Which of the seven structural tests are metamorphic, and which are differential?
# > 2. Two implementations of a mask agree on a thousand random inputs. Name a reason why both may be wrong.
# > 3. A deck says "nothing in a Transformer is sequential". Find the condition.
# > <details><summary>Answers</summary>
# >
# > 1. Metamorphic: the past stays, batch invariance, size at depth (each compares two calls). Differential: the norm as
# >    torch's. Rows that sum to 1, zeroed sublayers and 200 tokens are known cases of a single call.
# > 2. Both were written from the same page, or one was copied from the other; or the inputs never reach the critical
# >    case, such as a row with nothing allowed.
# > 3. Within a layer, when the whole sequence is given. The layers wait for one another, and in writing each token waits
# >    for the one before it.</details>
#
# **Now do** [assignment @errata_lab](@errata_lab/assignment) (somewhat over two hours): a repair, a vote of transcriptions,
# a page of code to review, and a test that is itself tested. It is the last one. From here on the slides are yours.

# %% [raw] slide
# ## In short
# | question | relation to test |
# |---|---|
# | shapes | the result is $(n, d)$ for drawn $n \ne d$ |
# | causal weights | $\sum_j \alpha_{ij} = 1$, and $\alpha_{ij} = 0$ for $j > i$ |
# | residual connection | $\text{block}(x) = x$ for zeroed sublayers |
# | batch invariance | $f([x; y])_1 = f([x])_1$ |
# | peer | $\text{norm}(s x) = \text{torch's}(s x)$ at several sizes $s$ |
#
# A falling loss says that something is learned, not that it is the model you meant.
#
# **Now do** assignment a@errata_lab. From here on the slides are yours.

# %% [markdown] teaches="the rows of that table: mixture of experts, Universal, Funnel, Synthesizer and others; its columns: steps per second, SuperGLUE, XSum, WebQ; constituency parsing; The Annotated Transformer; textbooks of NLP"
# ## Going further: what the rows and columns of that table are
#
# <details><summary>The architectures that Narang et al. compare, a line each</summary>
#
# The columns: parameters; operations; training steps per second; the loss early and late in pre-training; after
# **fine-tuning**, SuperGLUE (understanding), XSum (one-sentence summaries) and WebQ (questions answered from memory
# alone); and WMT, translation from English to German by models that were trained for that alone. A change may help one
# column and harm another, and steps per second are what its training costs.
#
# | row | the idea |
# |---|---|
# | **mixture of experts** ([@shazeer2017]), **Switch** ([@fedus2021]) | many feed-forward networks, and a router that sends each token to a few of them, in Switch to one: parameters grow, the arithmetic for a token does not |
# | **Universal Transformer** ([@dehghani2019]) | one block, applied again and again |
# | block sharing, factorised embeddings (ALBERT, [@lan2020]) | layers share their parameters; the table of tokens is a product of two narrow matrices |
# | **Funnel** ([@dai2020]) | the sequence is pooled, and gets shorter from layer to layer |
# | **Synthesizer** ([@tay2021]) | weights without $q \cdot k$: computed from the query token alone, or learned as a fixed table |
# | lightweight and dynamic convolution ([@wu2019]) | a narrow convolution over positions in place of attention; its kernel is fixed, or computed from the token |
# | **product-key memory** ([@lample2019]) | a feed-forward layer replaced by a very large table of keys and values, of which a few are looked up |
# | adaptive softmax ([@grave2017]), mixture of softmaxes ([@yang2018]) | rare tokens get narrower vectors; several softmaxes are averaged |
# | transparent attention ([@bapna2018]), weighted Transformer ([@ahmed2017]) | the decoder attends to a learned mixture of all encoder layers; branches with learned weights in place of heads |
# | Evolved Transformer ([@so2019]) | found by a search over architectures |
#
# The paper's own finding: few of them help in its code base, the gated activations and RMSNorm among them, and those
# that help most are large or slow. Mixtures of experts have become common since, in models large enough to be short of
# arithmetic and not of memory. (The abstract of *Attention is all you need* names one more result that the decks copy
# beside translation: English constituency parsing, with little and with much training data.)
# </details>
#
# **Further reading.** *Testing*: [+@claessen2000]. [+@chen1998]. [+@mckeeman1998]. [+@knight1986]. [+@demillo1978].
# [+@barr2015]. [+@karpathy2019], on networks that fail silently. *Models*: [+@vaswani2017], with a pencil, now that you
# can. [+@xiong2020], for both blocks written out. [+@narang2021]. [+@phuong2022], an attempt to write all of it down
# with every shape. *Textbooks*: Jurafsky and Martin, [*Speech and language
# processing*](https://web.stanford.edu/~jurafsky/slp3/); Rush et al., [*The annotated
# Transformer*](https://nlp.seas.harvard.edu/annotated-transformer/), the paper as a program.
