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
# *About 60 minutes, ten of them a game. You need the course up to [lecture @transformer](@transformer); some of the
# overclaims are about [lecture @cheap_attention](@cheap_attention).*
#
# After this lecture you can
#
# * turn a doubt about an equation, a table or a page of code into a **test** that fails;
# * choose the cheapest test first: shapes, a limiting case, a trusted implementation, training;
# * name what you do: **property-based**, **metamorphic**, **differential** and **mutation testing**;
# * test **that gradients arrive**;
# * say what a falling loss proves about a model, and what it does not;
# * tell an error from an overclaim, a convention, and a line that is right and easily misread.
#
# ## A worked example: one formula, four questions
#
# A slide on self-attention says $o_i = \sum_i \alpha_{ij} v_i$. Is it right? Four questions, the cheapest first:
#
# 1. **Shapes**: does the code give $(n, d)$?
# 2. **A limiting case**: if all values are equal, a weighted average must return that value. Does it?
# 3. **A trusted peer**: is it what torch's own attention returns?
# 4. **Training**: what test loss does a small causal language model reach with this line? (Ten seeds, from a stored run.)
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
from itertools import islice
from operator import itemgetter

import torch
import torch.nn.functional as F

from attncourse.data import Tokenizer, docstrings, encode_texts
from attncourse.layers import layer_norm
from attncourse.metrics import token_loss
from attncourse.training import fit_texts, text_batches
from attncourse_lessons.errata import (
    ERRATA,
    FAULTS,
    ON_NO_SLIDE,
    SlideModel,
    attention_as_torchs,
    erratum,
    structural,
)
from attncourse_lessons.results import measured
from attncourse_lessons.slides.transcriptions import COLUMNS, TRANSCRIBERS, transcriptions

torch.set_num_threads(1)  # models as small as these gain nothing from a second thread

# %% [raw] slide
# ## A worked example: one formula, four questions
# $$o_i = \sum_i \alpha_{ij} v_i$$
#
# 1. **Shapes**: does the code give $(n, d)$?
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
# ## Two see it, one is blind, one says the opposite
# {print}

# %% [markdown]
# Two of the four questions show the fault in one line each: **the limiting case** and **the peer**. The **shape** is
# right, since the table of weights is square. (The formula's letters do not match; see *free indices* below.)
#
# **Training** seems to favour the fault: its loss is far *lower*. That is evidence of a fault, too, but only if you know
# that no model that sees only the past can reach 0.1 nats per token on this text.
#
# *Why is the loss lower?* As printed, the sum runs over the *queries*. So it uses a column of the weights in place of a
# row:

# %% tags=["hide-input"]
causal = torch.ones(4, 4, dtype=torch.bool).tril()
scores = torch.randn(4, 4, generator=torch.Generator().manual_seed(0))        # (4, 4)
figures.row_or_column(scores.masked_fill(~causal, -torch.inf).softmax(dim=-1), 1)
#| caption: Causal weights; hatched: the future. Blue: the row that token 1 should use. Orange:
#|   the column that the printed sum uses.
#| label: column

# %% [raw] slide
# ## A column in place of a row
# {figure}

# %% [markdown]
# A column does not sum to one. In a causal model column $j$ holds the weights of the queries $i \ge j$ only. So token
# $j$ gets the values of *later* tokens, and the model reads the token that it has to predict.

# %% [markdown] teaches="what slides get wrong"
# ## A list of claims, each with a test
#
# That line comes from one of the five good decks of slides from which this course grew ([lecture
# @getting_ready](@getting_ready) names them; you do not need them). You have met some of their mistakes in boxes headed "A
# common mistake". The package has the whole list, `attncourse_lessons.errata`. It has 67 entries, of four kinds:
#
# * **definite**: wrong in every reading that the rest of the slide allows;
# * **overclaim**: true of less than it says;
# * **convention**: a choice that clashes with another choice. The entry's test is written for the other choice, so the
#   line as printed fails it;
# * **no error**: right as it stands, and easily misread.
#
# *Guess first:* which kind is the most frequent, and does it make up more than half of the list?

# %% [raw] slide
# ## A list of claims, each with a test
# Five decks of slides, and a list of 67 things that they print:
#
# | kind | |
# |---|---|
# | **definite** | wrong in every reading that the slide allows |
# | **overclaim** | true of less than it says |
# | **convention** | a choice, until two slides choose differently |
# | **no error** | right, and easily misread |
#
# > **Guess first.** Which kind is the most frequent? Is it more than half of the list?

# %%
print(len(ERRATA), "entries:", dict(Counter(entry.kind for entry in ERRATA)))
definite = [entry for entry in ERRATA if entry.kind == "definite"]
print(f"of the {len(definite)} definite ones {sum(entry.slip for entry in definite)} carry a †")
print(erratum("sum over the query"))

# %% [markdown]
# Definite errors are the most frequent kind, but with 29 of 67 entries they are fewer than half. A † marks a possible
# transcription error: 16 of the 29 have one, 13 do not.
#
# The card above shows one entry. Behind the card stands code: *the line as printed, the line as it should be, and one
# question that tells them apart*. "This looks odd" is an opinion. A failing test is evidence: the author can run it, and
# can see it pass after the repair.

# %% tags=["hide-input"]
tested = Counter()
for entry in ERRATA:
    kind = "no error" if entry.kind == "no error" else "all others"
    tested[kind, "as printed"] += entry.test(entry.printed).passes
    tested[kind, "corrected"] += entry.test(entry.corrected).passes
for (kind, version), passing in tested.items():
    print(f"{kind:>10}, {version:>10}: {passing:>2} pass")

# %% tags=["hide-input"]
assert all(entry.holds for entry in ERRATA) and list(tested.values()) == [0, 57, 10, 10]
assert len(ERRATA) == 67 and len(definite) == 29 and sum(entry.slip for entry in definite) == 16

# %% [raw] slide
# ## Four questions, in the order of their cost
# | ask | costs | the field's name |
# |---|---|---|
# | Do the shapes fit? | a pencil | **shape check** |
# | What comes out where the answer is known? | two calls | **metamorphic testing** |
# | Is it the same as something trusted? | three lines | **differential testing** |
# | Does it train? | a run for each seed | training and evaluation |

# %% [markdown]
# ## Four questions, in the order of their cost
#
# The four questions of the worked example have names:
#
# | ask | it costs | the field's name |
# |---|---|---|
# | **Do the shapes fit?** | a pencil | a **shape check**, also by types or the letters of `einsum` |
# | **What comes out where the answer is known?** Equal values, zeroed sublayers, another future | two calls | a **limiting case**; or **metamorphic testing** ([@chen1998]), if the answer is known only *relative to another call* |
# | **Is it the same as something trusted?** A library, a table that can be counted | three lines | **differential testing** ([@mckeeman1998]), or a parity test |
# | **Does it train?** | a run for each seed | training and evaluation |
#
# **Property-based testing** ([@claessen2000]) suits the first three questions: you state a property that holds for *all*
# inputs, and a program samples the inputs.
#
# Every test needs an **oracle** ([@barr2015]): something that says what the right answer is. For the output of a language
# model there is none; this is the **oracle problem**. A **metamorphic relation** gets around the problem by comparing two
# calls of the same program. We use two such relations:

# %% tags=["hide-input"]
figures.two_relations()
#| caption: Two metamorphic relations. Purple: what changes between two calls. Green: what
#|   must stay equal. Hatched: outputs that are not compared.
#| label: relations

# %% [markdown]
# ## Property-based testing: do the shapes fit?
#
# A slide writes the output of multi-head attention for *one* token, as a column: $\text{output} = Y[\text{output}_1;
# \dots; \text{output}_h]$, with $Y \in \mathbb{R}^{d \times d}$. In the line above it, and in our code, tokens are rows.
# Suppose that we type the slide's line as it stands. We give every length (tokens, features, heads) a size of its own.
# *Guess:* on which side of the heads must $Y$ stand in the code?

# %% [raw] slide
# ## Do the shapes fit?
# The slide's line, for *one* token, a column ($Y \in \mathbb{R}^{d \times d}$):
#
# $$\text{output} = Y[\text{output}_1; \dots; \text{output}_h]$$
#
# > **Guess first.** In code, tokens are rows. On which side of the heads must $Y$ stand?

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
# $Y$ must stand on the right. The slide's line is right for a column, but not for rows, so the list calls it a
# *convention*. If there were as many tokens as features, the left product would run, and would mix tokens instead of
# features. *Never test
# with $n = d$.* The property is "for all sizes the
# result is $(n, d)$", and a program samples the sizes:

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
print("Y on the right: (n, d) in all 200 samples")
print(f"Y on the left: runs in {blind} of them, fails first with n, d = {failing[0]};"
      f" smallest failing pair: {min(failing, key=sum)}")

# %% [raw] slide
# ## Let a program sample the sizes
# {print}
#
# A single sample might have had $n = d$; 200 samples do not all. (In Python: `hypothesis`.)

# %% [markdown]
# The left product runs only where $n = d$. The library `hypothesis` has such a loop built in:
#
# ```python
# from hypothesis import given, strategies as st
#
# @given(st.integers(1, 8), st.integers(1, 8), st.integers(1, 8))
# def test_shape(n, h, width):
#     assert multi_head_output(n, h, width).shape == (n, h * width)
# ```
#
# When a test fails, `hypothesis` also looks for the smallest sizes that fail, which is called **shrinking**.

# %% [markdown] erratum="Qz for all"
# > **A common mistake: an index that is on one side only.** One deck makes the decoder's queries with "$q_i = Qz$".
# > **Free indices**, over which no sum runs, must be the same on both sides of an equation. Here $i$ stands on the left
# > alone. So either all $q_i$ are the same, or the right-hand side is a whole matrix.
#
# **Shapes find** a product on the wrong side and a missing axis; free indices find a missing index. **They are blind**
# where two lengths are equal, and to everything *inside* a table of the right shape.

# %% [raw] slide
# ## A common mistake: an index on one side only
# $$q_i = Q z$$
#
# A letter on the left that does not occur on the right is a warning. The test: when $z_1$ changes, the other queries do not.

# %% [markdown]
# ## Limiting cases and metamorphic relations: the answer is known
#
# Three slides hide the future with three different lines: "−∞ where $i > i$"; "−∞ where $j \ge i$"; and "set attention
# weights to 0", here done after the softmax. *Before you run the cell:* for each line, do the rows sum to one, and does
# the future get no weight?

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
#| caption: Weights under three masks and the right one. Hatched: the future. Orange: what is
#|   wrong (a leak, NaN, a missing weight, a sum that is not one).

# %% [raw] slide
# ## One question is not enough
# {figure}
#
# **Now you:** a@errata_lab, exercise 1

# %% [markdown]
# One question is not enough: each of the two *questions* passes one wrong table. The rows of *i > i* sum to one, and
# *weights set to 0* leaves the future empty.
#
# * *i > i* is never true, so nothing is forbidden.
# * *j ≥ i*: no token sees itself. The first row sees nothing at all: 0/0, NaN. The other rows pass both questions. A
#   third question finds them: does every token give itself some weight?
# * *Weights set to 0*: all rows except the last sum to less than one. (The slides with this line set the scores to −∞ one
#   slide earlier, so the line is no error. Code that takes it literally is wrong.)
#
# In the third table the future has no weight. *Guess first:* in a model with this mask, can another future still move the
# past? A program samples 50 models with two texts each, and tests *the past stays* ([@fig:relations]):

# %% tags=["hide-input"]
assert [name for name, both in answers.items() if all(both)] == ["−∞ where j > i"]
for faults in ((), ("i > i",), ("weights set to 0",)):
    draws, worst = torch.Generator().manual_seed(0), []
    for _ in range(50):
        n, h, width = torch.randint(2, 9, (3,), generator=draws).tolist()
        kept = int(torch.randint(1, n, (1,), generator=draws))
        text, other = torch.randint(20, (2, 1, n), generator=draws)      # (1, n) each
        other[:, kept:] = (text[:, kept:] + 1 + other[:, kept:] % 19) % 20   # another future
        other[:, :kept] = text[:, :kept]                                 # the same past
        torch.manual_seed(0)
        model = SlideModel(20, d_model=h * width, n_heads=h, d_ff=8, faults=faults)
        with torch.no_grad():
            moved = model(text)[:, :kept] - model(other)[:, :kept]
        worst.append(moved.abs().max().item())
    failed = sum(gap > 1e-4 for gap in worst)
    print(f"the past stays, {' '.join(faults) or 'the right mask'}:"
          f" fails in {failed} of 50 samples")
    assert (failed == 0) == (not faults)

# %% [markdown] teaches="code: a block and a language model"
# Yes, it can. Before the weights were set to 0, the softmax divided them by a sum that contains the future. So the
# relation finds a leak that the question about the weights misses.
#
# **Now you:** [a14](@errata_lab/assignment), exercise 1.
#
# ### A block that is not what its comments say
#
# One deck has a language model in fifty lines of code. Its comments say "pre-normalization" and "residual connection", so
# we know what was meant: the pre-norm block of [lecture @deep_stacks](@deep_stacks). The figure shows the printed block
# and three repairs. To tell them apart we use a **limiting case**: **zeroed** sublayers, which return nothing but zeros.

# %% tags=["hide-input"]
figures.four_blocks()
#| caption: The block as printed, with one residual path repaired, and with both. Each path
#|   begins after the norm (orange, dashed) or before it (blue).
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


def repaired(x, attention, feed_forward):
    x = x + attention(layer_norm(x))
    return x + feed_forward(layer_norm(x))

# %% tags=["hide-input"]
def first_repaired(x, attention, feed_forward):
    x = x + attention(layer_norm(x))
    x = layer_norm(x)
    return x + feed_forward(x)


def second_repaired(x, attention, feed_forward):
    x = layer_norm(x)
    x = x + attention(x)
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
for block in (printed, first_repaired, second_repaired, repaired):
    print(f"{block.__name__:>15}:  a plain x moves by {moves(block, plain):.3f},"
          f"  a normalised one by {moves(block, normed):.0e}")

# %% tags=["hide-input"]
halves = moves(first_repaired, plain), moves(second_repaired, plain)
assert moves(repaired, plain) == 0
assert min(halves) > 1, "half is not enough"
assert moves(printed, normed) < 1e-4, "and on normalised vectors the test is blind"

# %% [raw] slide
# ## Choose ordinary inputs
# {print}
#
# On normalised vectors the broken block passes.

# %% [markdown]
# Only the repaired block returns x; half a repair does not pass. The other three print the same number. Each of them
# returns norm(x), because a second norm changes nothing.
#
# But the test can be blind. On vectors that are already normalised a norm does nothing, and the broken block passes.
# *Choose ordinary inputs.* Choose an ordinary change, too: if two calls differ only by a 1 added to every feature,
# LayerNorm removes the difference. And while the sublayers return 0, this test cannot see where their output is added.
#
# ### Batch invariance: a text alone and in a batch
#
# **Batch invariance** means that a model's output for a text does not depend on the other texts in the batch. Training
# never tests this relation. The same deck's model gives each token a position:
#
# ```python
# pos = torch.arange(x.size(0), device=x.device).unsqueeze(1)
# x = self.embedding(x) + self.pos_encoder(pos)
# ```
#
# Its input `x` has the shape (batch, n), so `x.size(0)` counts *texts*. Then `unsqueeze(1)` makes a column of these
# numbers, (batch, 1): one position for all tokens of a text.

# %% tags=["hide-input"]
figures.position_rows()
#| caption: The row of the position table that each token gets. Orange: rows that depend on the
#|   batch. Below: text 2 alone; the faulty code gives it other rows.
#| label: positions

# %% [markdown]
# `SlideModel` is our repaired version of the deck's model; `faults` puts entries of the list back. We train the right
# model and the faulty one on docstrings, from three seeds. *Guess first:* what will their training losses look like?

# %% [raw] slide
# ## Batch invariance: a text alone and in a batch
# ```python
# pos = torch.arange(x.size(0), device=x.device).unsqueeze(1)
# x = self.embedding(x) + self.pos_encoder(pos)
# ```
#
# The input is (batch, n): this counts *texts*.

# %% [raw] slide
# ## The row of the table that each token gets
# {figure}
#
# > **Guess first.** What will the training loss look like?

# %% tags=["hide-input"]
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


FAULT = "positions by the batch"
trainings = {
    "right": [trained(seed=seed) for seed in range(3)],
    FAULT: [trained(FAULT, seed=seed) for seed in range(3)],
}
smooth = {}
for name, pairs in trainings.items():
    losses = torch.tensor([losses for _, losses in pairs])            # (3, 100)  seeds, steps
    smooth[name] = losses.unfold(1, 10, 10).mean(dim=-1).tolist()     # means of ten steps
figures.seed_curves(smooth, range(10, 101, 10), "training steps",
                    "training loss (nats per token)", False)
half = [torch.tensor(lines).mean(dim=0)[5:] for lines in smooth.values()]
assert (half[1] < half[0]).all(), "from step 60 on the faulty mean is the lower one"
#| caption: Training loss of the right model and of the one with positions by the batch, means
#|   of ten steps. Thin lines: one seed each. The axis does not begin at 0.

# %% [raw] slide
# ## Both fall
# {figure}
#
# > **Guess first.** The same 64 texts, read one by one, four at a time, and so on. What do the lines look like?

# %% [markdown]
# Both losses fall. In the second half of the training the mean of the faulty model is even a little *lower*. The curves
# give no reason to suspect a fault.
#
# Now both models read the same 64 test texts one by one, four at a time, and so on. The loss must not depend on the size
# of the batch. *What will the lines look like?*

# %% tags=["hide-input"]
texts = torch.tensor([text[:33] for text in test if len(text) >= 33][:64])     # (64, 33)


@torch.no_grad()
def loss_in_batches(model, size):
    losses = [token_loss(model(part[:, :-1]), part[:, 1:]).item() for part in texts.split(size)]
    return sum(losses) / len(losses)


sizes = (1, 4, 16, 64)
shown = {}
for name, pairs in trainings.items():
    shown[name] = [[loss_in_batches(model, size) for size in sizes] for model, _ in pairs]
figures.batch_curves(shown, sizes, "difference in test loss (nats per token)")
spread = {name: [max(line) - min(line) for line in lines] for name, lines in shown.items()}
assert max(spread["right"]) < 1e-4, "the same in every batch"
assert min(spread[FAULT]) > 0.01, "its loss depends on the batch"
#| caption: Test loss as batches grow, one line per seed. Left: minus the same model's loss in
#|   batches of one. Right: minus the right model's loss.
#| label: batches

# %% tags=["hide-input"]
for by_right, by_fault in zip(*shown.values(), strict=True):
    assert by_fault[0] < by_right[0] and by_fault[1] < by_right[1] and by_fault[3] > by_right[3]

# %% [raw] slide
# ## The loss depends on the batch
# {figure}
#
# The line is right for inputs (n, batch); here they are (batch, n). The test needs two calls and no training.

# %% [markdown]
# The left panel compares each model with itself. The right model's loss does not depend on the batch; the faulty model's
# loss does. Most training batches held 8 texts, and none held more than 26. So the first rows of the table are well
# trained. The rows from 26 on are not trained at all, but a batch of 64 uses them.
#
# The right panel compares the two models. For each seed the faulty loss is *lower* than the right model's in batches of
# one and four, and higher in batches of 64.

# %% tags=["hide-input"]
texts_in = Counter()
for seed in range(3):
    batches = islice(text_batches(train, 512, 64, seed=seed), 100)    # as in training
    texts_in.update(len(batch.tokens_in) for batch in batches)
((usual, times),) = texts_in.most_common(1)
print(f"texts in a training batch: {usual} in {times} of {texts_in.total()},"
      f" at most {max(texts_in)}")
assert (usual, max(texts_in)) == (8, 26)

# %% [markdown]
# A batch of more than 128 texts makes the faulty model crash, because its table has 128 rows:

# %% tags=["hide-input"]
crowd = texts[:1, :-1].expand(256, -1)                    # (256, 32)  one text, 256 times
right, by_batch = (pairs[0][0] for pairs in trainings.values())      # the models of seed 0
print("right:", tuple(right(crowd).shape))
try:
    by_batch(crowd)
except IndexError as error:
    print("by the batch:", type(error).__name__, error)

# %% [markdown]
# The line would be right for inputs of shape (n, batch), the default of torch's own Transformer layers.
#
# > **Check yourself.** A colleague makes the crash go away with `pos % max_len`. Which of the two tests, the large batch
# > or batch invariance, still finds the fault?
# > <details><summary>Answer</summary>Batch invariance. The crash was a symptom, and now it is gone, but every text still
# > gets one position for all its tokens. A repair that removes the error message and not its cause makes the fault
# > harder to find.</details>
#
# ### Three tests of a training: the first loss, one batch, the gradient
#
# An untrained model knows nothing, so its **first loss** must be near the loss of guessing, $\ln |V|$ for a vocabulary
# $V$. If the first loss is far above, something is initialised or indexed wrongly. If it is far below, the loss is
# computed wrongly, or the targets can be read from the input.
#
# A model must be able to **overfit one batch**: trained on the same few texts, it must reach the lowest possible loss
# ([@karpathy2019]). If it does not, suspect the learning rate first, then a cut gradient or wrong targets. The lowest
# possible loss is not always 0. Our eight texts begin with the same token, and from that token alone no model can tell
# which of the eight it is reading.
#
# The third test costs one `backward`: does a gradient *reach* everything that should learn? No parameter may lack a
# gradient, and texts of 32 tokens must reach 32 rows of the table of positions. (The classic **gradient check** is
# another test: `torch.autograd.gradcheck` compares a derivative written by hand with finite differences.)
#
# *Which of the three tests finds the positions by the batch? Which finds the printed block?*

# %% tags=["hide-input"]
def two_tests(*faults, seed, steps=100):
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


def lowest_loss(few):
    """What is left to guess where texts are alike so far, in nats per token."""
    rows, n = few.tolist(), few.shape[1]
    seen = Counter(tuple(row[:k]) for row in rows for k in range(1, n + 1))
    nats = [math.log(seen[tuple(row[:k])] / seen[tuple(row[: k + 1])])
            for row in rows for k in range(1, n)]
    return sum(nats) / len(nats)

# %% tags=["hide-input"]
BLOCK = "the residual from the normalised x"              # the printed block
print(f"guessing: {math.log(128):.2f} nats; one batch, at best: {lowest_loss(texts[:8]):.3f}")
for faults in ((), (FAULT,), (BLOCK,)):
    firsts, lasts = zip(*(two_tests(*faults, seed=seed) for seed in range(3)), strict=True)
    print("untrained", *(f"{loss:.2f}" for loss in firsts), "  one batch",
          *(f"{loss:.3f}" for loss in lasts), f"  {' '.join(faults) or 'right'}")
    assert max(abs(loss - 4.85) for loss in firsts) < 0.4 and max(lasts) < 0.2
    below = max(lasts) < lowest_loss(texts[:8])
    assert below == (FAULT in faults), "better than possible: something names the text"

# %%
class Cut(SlideModel):                                    # a mutant: no gradient for positions
    def embed(self, tokens):
        return self.tokens(tokens) + self.positions.weight.detach()[: tokens.shape[1]]


reached = {}
for name, model in {"right": SlideModel(**SIZES), FAULT: SlideModel(**SIZES, faults=(FAULT,)),
                    "printed block": SlideModel(**SIZES, faults=(BLOCK,)),
                    "cut": Cut(**SIZES)}.items():
    token_loss(model(texts[:8, :-1]), texts[:8, 1:]).backward()       # eight texts of 32 tokens
    slopes = [parameter.grad for parameter in model.parameters()]
    table = model.positions.weight.grad                               # (128, d), or None
    rows = 0 if table is None else int(table.any(dim=-1).sum())
    missing = sum(slope is None for slope in slopes)
    reached[name] = rows, missing
    print(f"{name:>22}: rows of the table with a gradient: {rows:>2};"
          f" parameters without one: {missing} / {len(slopes)}")

# %% tags=["hide-input"]
assert reached == {"right": (32, 0), FAULT: (8, 0), "printed block": (32, 0), "cut": (0, 1)}

# %% [markdown]
# The first loss finds neither fault. Overfitting one batch finds the positions by the batch, because the loss is *too
# good*: no model that sees only the tokens can reach it. This model sees more, since each text's number tells it which
# text it is reading. The gradient finds the positions by the batch, too: it reaches 8 rows, one for each text. The
# count of parameters without a gradient finds the cut.
#
# The printed block passes all three tests. They ask whether a model *can learn*. The relations above ask whether it is
# the model that was meant.

# %% [raw] slide
# ## Boundary values: the longest text
# **Boundary value analysis**: the shortest and the longest input that is allowed, and one step beyond each.
#
# Each block's mask is made for its own default, 128, whatever the model was told.

# %% [markdown] erratum="max_len not handed on"
# ### Boundary values: the longest text
#
# > **A common mistake: a size that is not passed on.** The same code lets you choose `max_len`, and makes its table of
# > positions with it. But it builds its blocks by `Block(d_model, nhead, dim_ff)`, so each block's mask is made for its
# > own default, 128. In training, texts are cut to that length, and nobody notices. **Boundary value analysis** finds
# > such faults: try the shortest and the longest input that is allowed, and one step beyond each.

# %%
beyond = torch.zeros(1, 257, dtype=torch.long)            # (batch, n)
for name, faults in {"right": (), "as printed": ("max_len not handed on",)}.items():
    model = SlideModel(**(SIZES | {"max_length": 256}), faults=faults)
    for n in (0, 1, 256, 257):
        try:
            said = f"logits {tuple(model(beyond[:, :n]).shape)}"
        except (ValueError, IndexError, RuntimeError) as error:
            said = str(error).split(" at non")[0]
        print(f"{name:>11}, {n:>3} tokens: {said}")

# %% [raw] slide
# ## 256 tokens
# {print}
#
# > **Guess first.** The final norm is missing. Sketch the size of the logits against the number of blocks: right, as printed, block repaired alone.

# %% [markdown]
# The longest allowed text, 256 tokens, finds the fault. Both models refuse texts of 0 and of 257 tokens, as they
# should.
#
# ### Depth: is the missing final norm an error?
#
# In that code the last block feeds straight into the output layer. Another deck has a final norm between the two. *Sketch
# the size of an untrained model's logits (their standard deviation) against the number of blocks*: for the right model,
# for the code as printed, and for the code with only its block repaired.

# %% tags=["hide-input"]
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
figures.seed_curves(scales, depths, "blocks", "logits: standard deviation")
#| caption: Size of the logits of untrained models against the number of blocks (logarithmic).
#|   Thin lines: one seed each. The vertical axis does not begin at 0.

# %% tags=["hide-input"]
growth = {name: [line[-1] / line[0] for line in lines] for name, lines in scales.items()}
assert min(growth["block repaired"]) > 1.4 and max(growth["block repaired"]) < 1.8
assert all(0.7 < factor < 1.3 for name in ("right", "as printed") for factor in growth[name])
for bare, normed_last in zip(scales["block repaired"], scales["right"], strict=True):
    assert abs(bare[0] / normed_last[0] - math.sqrt(2)) < 0.15, "a sum of two vectors of size 1"

# %% [raw] slide
# ## A repair can make another line wrong
# {figure}
#
# After each repair, run *all* the tests again.

# %% [markdown]
# * *Block repaired* grows: each repaired block adds to x, and no final norm removes the growth before the logits. From 1
#   block to 32 the logits grow by a factor of 1.4 to 1.8, for each seed. They also begin about √2 times as large as the
#   right model's, since x is the sum of a token vector and a position vector. We have not measured whether so
#   large logits harm the training of deep stacks.
# * *As printed* does not grow: the printed block adds to a *normalised* x, so the missing norm is *no error there*.
#
# So repairing one line can make another line wrong. After each repair, run *all* the tests again.
#
# **Limiting cases and relations find** faults that break a relation that you can state. **They are blind** where inputs
# are special, to what a limiting case switches off, and to every relation that you did not think of.

# %% [markdown] erratum="ε outside the root"
# ## Differential testing: is it the same as something trusted?
#
# Where a library has the same function, comparing takes three lines, and you need no idea of what might be wrong.
# LayerNorm is the example: no deck prints the formula that torch uses.
#
# > **A common mistake: to take two conventions for one.** One deck divides by $\sigma + \varepsilon$, another by
# > $\sigma$, torch and this course by $\sqrt{\sigma^2 + \varepsilon}$. Each is a convention and no error, but each is
# > *another* function. *Guess* by how much the first formula and torch's differ for vectors of size 1, 0.1, 0.01:

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

# %% tags=["hide-input"]
assert worst[1.0] < 1e-4 and worst[0.01] > 0.05, "so compare at several sizes, not at one"

# %% [markdown]
# At size 0.01 the variance is $10^{-4}$. An ε of $10^{-5}$ inside the root is a tenth of the variance; outside, it is a
# thousandth of σ. So compare at several sizes.
#
# *How much may two right implementations differ?* They may differ by rounding, which depends on the number type. The
# **machine epsilon** of a type is the step from 1 to the next larger number:

# %% tags=["hide-input"]
for dtype in (torch.float32, torch.bfloat16):
    y = x.to(dtype)                                       # vectors of size 1
    ours, peer = layer_norm(y), F.layer_norm(y, (64,))
    apart, step = (ours - peer).abs().max().item(), torch.finfo(dtype).eps
    print(f"{dtype}: {apart:.0e} apart;"
          f" epsilon × the largest output: {step * peer.abs().max():.0e}")

# %% [markdown]
# Both implementations are right. They differ by about epsilon times the largest output, because they round at different
# steps. So choose a **tolerance** of a few times that size, and smaller than the smallest fault that matters.
# `torch.testing.assert_close(ours, peer)` takes its tolerance from the number type; `rtol` and `atol` set your own.
#
# > **Check yourself.** You want a test that finds the ε outside the root. In which number type, and for vectors of which
# > size, do you compare?
# > <details><summary>Answer</summary>In float32 there is room for a tolerance even at size 1, where the ε outside the
# > root costs 2e-05. In bfloat16 rounding alone costs a thousand times as much, and hides the fault. Test in float32, or
# > at a size where the fault is large: at size 0.01 it is 0.2.</details>
#
# ### Tables: count them
#
# The number of layers and the widths determine the number of parameters ([lecture @many_heads](@many_heads) counts them).
# In four rows of the decks' tables these numbers contradict each other:

# %% tags=["hide-input"]
for name in ("d_ff of the 8 layers", "d_ff of the 6 layers", "24 heads", "a width of 5140"):
    entry = erratum(name)
    print(f"{entry.claim}\n    as printed: {entry.test(entry.printed).measured}")
    print(f"    right:      {entry.correction}")
    print(f"    corrected:  {entry.test(entry.corrected).measured}")

# %% [raw] slide
# ## Tables: count them
# {print}
#
# Two of the four were copied faithfully from the paper. A table does not become right by being published.

# %% [markdown]
# Two of the four rows were copied faithfully from a paper, so a faithful copy can be wrong, too.
#
# ### One table, three transcriptions
#
# Three of the decks show the same table, in which Narang et al. ([-@narang2021]) compare many changes to a Transformer.
# We can no longer tell whether an author mistyped a number or the transcription misread it. *Guess:* of the 304 numbers
# that all three have, in how many places do they disagree?

# %% [raw] slide
# ## One table, three transcriptions
# Narang et al. (2021) in three decks.
#
# > **Guess first.** Of 304 numbers that all three have, in how many places do they disagree?

# %% tags=["hide-input"]
names, readings = transcriptions()                        # (3, rows, columns)
decks = [deck.split(",")[0] for deck in TRANSCRIBERS]     # how each deck's title begins
print(" " * 43, *decks, sep="  ")
disputed = []
for row, name in enumerate(names):
    for column, what in enumerate(COLUMNS):
        said = readings[:, row, column].tolist()
        if len(set(said)) > 1:
            below = [f"{said[k]:>{len(deck)}g}" for k, deck in enumerate(decks)]
            disputed.append("  ".join([f"{name:>30}, {what:<11}", *below]))
print("\n".join(disputed[k] for k in (0, 6, 7)))           # three of them
print(f"{'…':>30}\n{len(disputed)} of {readings[0].numel()} places")
differ = [reading.unique() for reading in readings.flatten(1).T]      # at each place
decided = sum(len(values) == 2 for values in differ)                  # two of the three agree
print(f"a majority decides {decided} of them")
for name in ("d_ff of the 8 layers", "ReLU twice"):
    entry = erratum(name)
    print(f"{entry.claim}\n    right: {entry.correction.split(';')[0].split(':')[0]};"
          f" in {' and '.join(deck.split(',')[0] for deck in entry.decks)}")
assert (len(disputed), decided) == (14, 13)

# %% [raw] slide
# ## Copies are not witnesses
# {print}
#
# A majority can be wrong: a differential test is as good as its peer is independent.
#
# **Now you:** a@errata_lab, exercise 2

# %% [markdown]
# The decks disagree in 14 places, and a majority decides 13 of these. But a majority can be wrong. *Foundations of NLP* and
# *CSE5321* both say *4096* in the row of 8 layers, where the count of parameters gives 4608. Both say *ReLU* where the
# paper has *GeLU*. We guess that these two slips stood in a source that both decks copied. **Copies are not witnesses**:
# they make the same mistake for the same reason.
#
# Independent authors are not enough, either. When 27 programs were written independently from one specification, more of
# them failed on the *same* inputs than independence would explain ([@knight1986]).

# %% [markdown] erratum="BertVis"
# > <details><summary>The nearest peer may stand on the same slide</summary>
# >
# > **A common mistake: reading for the meaning.** "See also BertVis", says a slide, and the link beside these words ends
# > with *bertviz*. The link is the trusted source.
# > </details>
#
# **A peer** also **finds** faults that you did not think of, at the sizes that you compare. **It is blind** to mistakes
# that both share.
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
# The fourth question, training, is the expensive one. Is it a good test? **Mutation testing** ([@demillo1978]) tests the
# *tests*: change a program by one small step, and see whether the tests notice. The changed program is a **mutant**. A
# test that fails on it **kills** it. The share of mutants that are killed is the **mutation score**.
#
# Our mutants are the fourteen entries that can be programmed into the small language model. Two of them are no error and
# two are conventions, but as changes of *our* model they are mutants, too. This is what each mutant does:

# %% tags=["hide-input"]
MUTANTS = {
    "attention": {
        "sum over the query": "uses the columns of the weights in place of the rows",
        "i > i": "masks nothing",
        "not even itself": "masks the future and the token itself",
        "weights set to 0": "sets weights to 0 after the softmax",
        "Y on the left": "multiplies the heads by Y from the left",
    },
    "norm": {
        "a sum for the mean": "subtracts the sum of the features in place of their mean",
        "a product for the difference": "makes σ of the products x · μ in place of x − μ",
        "a root too many": "divides by √σ",
        "unit mean": "adds 1 to each normalised feature",
        "ε outside the root": "divides by σ + ε",
    },
    "model": {
        "the residual from the normalised x": "has the printed block",
        "positions by the batch": "numbers the texts in place of the tokens",
        "max_len not handed on": "has masks for 128 tokens, whatever was asked for",
        "no final norm": "hands the last block's output to the output layer",
    },
}
assert [name for names in MUTANTS.values() for name in names] == list(FAULTS)
for part, names in MUTANTS.items():
    for k, (name, does) in enumerate(names.items()):
        print(f"{'' if k else part:<10} {name:<35} {erratum(name).kind:<11} {does}")
of_kind = Counter(erratum(name).kind for name in FAULTS)
print(*(f"{count} {kind}" for kind, count in of_kind.items()), sep=", ")

# %% [markdown]
# `benchmarks/errata.py` trained the model with each of them, from ten seeds, with equal budgets and one learning rate. It
# measured the loss on held-out texts, in batches as large as those of training.
#
# Which faults would you *notice* by the loss? We fix a rule before we look. Four things are noticed:
#
# 1. a crash;
# 2. a loss that is not a number;
# 3. a mean loss over the ten seeds that is worse than the right model's, by more than the right model's best and worst
#    seed differ;
# 4. a mean loss that is better by half a nat or more.
#
# *Write down your prediction.* Which of the fourteen crash, give no number, are clearly worse, are too good to be true, or
# go unnoticed?

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
    hit = "noticed" if verdicts.get(name, [False])[0] else ""
    if name == "i > i":
        hit += f"; seeds from {min(row['losses']):.2f} to {max(row['losses']):.2f}"
    print(f"{name:>36}:  {said:<24}", hit)
print(f"seeds of the right model differ by up to {luck:.3f}")

# %% [raw] slide
# ## Fourteen mutants and the loss
# {print}

# %% [markdown]
# Seven of the fourteen are noticed: one crashes, one gives no number, three are clearly worse, and two are too good to be
# true. (Rule 4 finds the same two with any limit from 0.05 to 2 nats.) The second number in a row is the mean difference
# from the right model *with the same seed*, ± the half-width of its 95 % confidence interval. Six of the ten definite
# errors are noticed. Four are not: a root too many, the printed block, positions by the batch, and max_len. The fault of
# max_len matters only for texts that are longer than any in this run.
#
# *i > i* lets each token read its target. Why is its loss not near 0? Its mean is near 1 nat, and the ten seeds lie
# between 0.69 and 1.78. We guess that the model must first learn to find the token one place ahead, and that 400 steps
# are too few for that.
#
# Rules 3 and 4 need the right model's loss, which the author of a mistake does not have. Without it four mutants are
# noticed: the crash, the NaN and, if you know what is possible, the two losses below 1 nat. Here are the seven that the
# rule does not notice:

# %% tags=["hide-input"]
unseen = [name for name in FAULTS if not verdicts[name][0]]
rows = {name: run["faults"][name] for name in unseen}
hidden = {name: (row["difference"], 2.26 * row["standard_error"]) for name, row in rows.items()}
hidden = dict(sorted(hidden.items(), key=itemgetter(1)))  # the largest first
viz.differences_from_baseline({"": hidden},
                              x_name="nats per token; left of 0: lower with the change")
#| caption: Test loss of mutants that the rule misses, minus the right model's, same seed: means
#|   of ten seeds, 95 % intervals. Triangles: 0 lies outside; circles: inside.
#| label: hidden

# %% tags=["hide-input"]
better = [name for name, (change, bar) in hidden.items() if change < -bar]
same = [name for name, (change, bar) in hidden.items() if abs(change) <= bar]
assert BLOCK in better and "max_len not handed on" in same
words = [word for hit, word in verdicts.values() if hit]
noticed_as = Counter(word if word in ("crash", "NaN") else word[0] for word in words)
assert noticed_as == {"crash": 1, "NaN": 1, "+": 3, "−": 2} and len(unseen) == 7
assert FAULT in better
definite_ones = [name for name in FAULTS if erratum(name).kind == "definite"]
overlooked = [name for name in definite_ones if name in unseen]
assert (len(definite_ones), len(overlooked)) == (10, 4)
changes = [run["faults"][name].get("difference", 0) for name in FAULTS]
assert not any(-2 < change < -0.05 for change in changes), "any limit between"

# %% [raw] slide
# ## Those that nobody would notice
# {figure}

# %% [markdown]
# Five of the seven *do* differ from the right model: their loss is lower. The printed block is among them. So "it trains
# better with my change" does not show that the change is what you think it is.
#
# *Why is the loss lower with positions by the batch?* torch samples position vectors as long as the token vectors. At the
# start they are noise, different at every position. The fault adds *one* vector to all tokens of a text, which may
# disturb less. *Guess first:* both models start with position vectors ten times shorter. What happens to the fault's
# advantage in batches of one?

# %% tags=["hide-input"]
print("test loss in batches of 1, of 64; positions as torch draws them → ten times shorter:")
smaller = {}
for name, faults in {"right": (), FAULT: (FAULT,)}.items():
    smaller[name] = []
    for seed in range(3):
        torch.manual_seed(seed)
        model = SlideModel(**SIZES, faults=faults)
        with torch.no_grad():
            model.positions.weight.mul_(0.1)                              # nothing else
        fit_texts(model, train, 100, 512, 64, lr=5e-3, seed=seed, progress=False)
        one, many = (loss_in_batches(model, size) for size in (1, 64))
        with torch.no_grad():
            alone, among = model(texts[-1:, :-1])[0], model(texts[:, :-1])[-1]
        moved = (alone - among).abs().max().item()
        smaller[name].append((one, many, moved))
        before = shown[name][seed]
        print(f"{name:>22}: {before[0]:.3f} → {one:.3f}, {before[3]:.3f} → {many:.3f};"
              f"  two calls: logits {moved:.1g} apart")
for by_right, by_fault in zip(*smaller.values(), strict=True):
    assert all(abs(b - a) < 0.02 for a, b in zip(by_right[:2], by_fault[:2], strict=True))
    assert by_right[2] < 1e-4 and by_fault[2] > 0.1, "the relation needs no size"
gains = [old[0] - new[0] for old, new in zip(shown["right"], smaller["right"], strict=True)]
assert min(gains) > 0.1 and max(gains) < 0.35

# %% [markdown]
# The advantage is gone. The right model's loss falls by about 0.2 nats, and the two models agree to 0.02 nats, in batches
# of one and of 64. So in 100 steps right positions bring no more than faulty ones. Perhaps the table is not learned yet.
# Perhaps it is not needed, since the causal mask alone tells a model something about the order. We have not told these
# two reasons apart. But one text, read in two calls, still gets different logits from the faulty model: the relation
# finds the fault where the loss does not.
#
# *Is the mutant "weights set to 0" really better?* The denominator of its softmax contains the future, which does not
# exist yet when a model writes. So we score the texts **token by token**: each prediction comes from a call that is given
# only the tokens before it. *Guess first:* what happens to the mutant's advantage? The first two lines are our models of
# 100 steps, three of each kind. The lines below are from the stored run: 400 steps, ten models of each kind.

# %%
@torch.no_grad()
def token_by_token(model):
    newest = [model(texts[:, :t])[:, -1] for t in range(1, texts.shape[1])]    # (64, 128) each
    return token_loss(torch.stack(newest, dim=1), texts[:, 1:]).item()

# %% tags=["hide-input"]
LEAK, gaps = "weights set to 0", {}
by_leak = [trained(LEAK, seed=seed) for seed in range(3)]
for name, pairs in {"right": trainings["right"], LEAK: by_leak}.items():
    both = [(loss_in_batches(model, 64), token_by_token(model)) for model, _ in pairs]
    gaps[name] = [slow - at_once for at_once, slow in both]
    print(f"{name:>16}, one call → token by token:",
          *(f" {at_once:.3f} → {slow:.3f}" for at_once, slow in both))
print(f"{run['steps']} steps, means of ten seeds:")
for name in ("nothing", LEAK):
    row = record[name]
    print(f"{name.replace('nothing', 'right'):>16}: {row['mean']:.3f}"
          f" → {row['token_by_token']['mean']:.3f}")
slow, right_slow = (record[name]["token_by_token"] for name in (LEAK, "nothing"))
higher = sum(a > b for a, b in zip(slow["losses"], right_slow["losses"], strict=True))
apart, half = slow["difference"], 2.26 * slow["standard_error"]
print(f"the mutant minus the right model, token by token: {apart:+.2f} ± {half:.2f};"
      f" above 0 for {higher} of {len(slow['losses'])} seeds")

# %% tags=["hide-input"]
assert max(map(abs, gaps["right"])) < 1e-4 and min(gaps[LEAK]) > 0.01
at_once = [[loss_in_batches(model, 64) for model, _ in pairs]
           for pairs in (trainings["right"], by_leak)]
assert all(b - a > -0.01 for a, b in zip(*at_once, strict=True)), "no advantage at 100 steps"
others = [name for name in better if name != LEAK]
assert all(structural(name)["the past stays"].passes for name in others)

# %% [raw] slide
# ## Token by token: the advantage was the future
# *Weights set to 0*: its denominator contains the future, which a model does not have while it writes.
#
# {print}

# %% [markdown]
# The right model has the same loss both ways. The mutant does not:
#
# * After 100 steps it has no clear advantage even in one call, and token by token each seed already loses more than 0.01
#   nats.
# * After 400 steps it has learned to use the leak. In one call its loss is lower by 0.026 nats on average. Token by token
#   the loss is *higher* by 0.25 ± 0.04, and higher for each of the ten seeds.
#
# One call rewards the leak. A model that writes has no future to read, and loses. The other four mutants with a lower
# loss pass *the past stays* (in the table below), so both scores agree for them. We have not tested why three of these
# four have a lower loss.
#
# One difference is exactly 0: "max_len not handed on" changes nothing for texts of at most 128 tokens, and the stored run
# has no longer ones. A mutant that *no* allowed input can tell from the original is an **equivalent mutant**: no test can
# kill it, and the score leaves it out. This mutant is not equivalent: a model for 256 tokens crashes on a text of 256.
#
# The printed block is better by 0.013 nats, and the right model's own seeds differ by up to 0.015. *How can we be sure of
# so small a difference?* Look at pairs of equal seeds:

# %% tags=["hide-input"]
as_printed = record[BLOCK]["losses"]
figures.paired_seeds({"right": nothing["losses"], "printed block": as_printed},
                     "test loss (nats per token)")
equal = sum(b < a for a, b in zip(nothing["losses"], as_printed, strict=True))
print(f"lower with the printed block: in {equal} of {len(as_printed)} pairs of equal seeds")
#| caption: Test loss of the right model and of the one with the printed block, ten seeds. The
#|   axis does not begin at 0.

# %% tags=["hide-input"]
assert equal == 10
assert not structural(BLOCK)["identity at zero"].passes

# %% [raw] slide
# ## The printed block is better, seed by seed
# {figure}
#
# **Now you:** a@errata_lab, exercise 3

# %% [markdown]
# For every seed the printed block has the lower loss. Two models of one seed read the same texts in the same order, so
# their difference varies less than their losses do. At this size, learning rate and length of training there is little
# doubt: the printed block's loss is a little *lower*.
#
# *Why does it train so well?* Write the model, with its final norm, as a row of parts. Then let each block begin one part
# later, after its first norm. *Guess first:* which block of [lecture @deep_stacks](@deep_stacks) is that?

# %% tags=["hide-input"]
figures.regrouped()
#| caption: One model of two blocks, bracketed twice. Above: the printed blocks and a final
#|   norm. Below: a first norm and post-norm blocks.
#| label: regrouped

# %% [raw] slide
# ## One model, bracketed twice
# {figure}

# %% [markdown]
# A green bracket holds two steps $x \leftarrow \text{norm}(x + f(x))$. So with a final norm the printed model *is* a
# post-norm Transformer: the layers of the 2017 paper, with one extra norm on the embeddings. The *block* is sound, as
# a post-norm block, and its comment, "pre-normalization", is wrong. Two such blocks train well; lecture @deep_stacks
# showed what a deep stack of them needs. A test of the brackets:

# %% tags=["hide-input"]
torch.manual_seed(0)
model = SlideModel(**SIZES, faults=(BLOCK,))
with torch.no_grad():
    for parameter in model.parameters():
        parameter.add_(0.1 * torch.randn_like(parameter))    # the norms' gains and biases, too
    norms = [norm for block in model.blocks for norm in (block.norm_1, block.norm_2)]
    x = norms[0](model.embed(texts[:4, :-1]))                    # (4, 32, d)
    for k, block in enumerate(model.blocks):
        after_attention, after_ff = [*norms, model.norm][2 * k + 1 : 2 * k + 3]
        x = after_attention(x + block.attend(x))
        x = after_ff(x + block.down(block.up(x).relu()))
    apart = (model.logits(x) - model(texts[:4, :-1])).abs().max().item()
print(f"the printed block with a final norm, and a post-norm stack: logits {apart:.1g} apart")
assert apart < 1e-5

# %% [markdown]
# **Now you:** [a14](@errata_lab/assignment), exercise 3.
#
# *Do cheap tests do better than the loss?* Here are seven **structural tests** of models that have *not* been trained:
#
# | test | what must hold |
# |---|---|
# | the past stays | another future does not change the outputs before it |
# | rows sum to 1 | $\sum_j \alpha_{ij} = 1$ |
# | identity at zero | $\text{block}(x) = x$ where both sublayers return 0 |
# | norm as torch's | the norm is that of `F.layer_norm` |
# | batch invariance | a text has the same logits alone and in a batch |
# | 200 tokens | a text of 200 tokens runs where 256 are allowed |
# | size at depth | the logits of 2 and of 24 blocks differ by less than 20 % in size |
#
# *Guess first:* how many of the fourteen do the seven tests kill together?

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
        word = "crash" if "Error:" in finding.measured else "NaN" * ("nan" in finding.measured)
        table[name][test_name] = (not finding.passes, word)
kinds = {name: erratum(name).kind for name in FAULTS}
labels = {name: name if kind == "definite" else f"{name} ({kind})"
          for name, kind in kinds.items()}
figures.caught_table({labels[name]: row for name, row in table.items()},
                     {part: len(names) for part, names in MUTANTS.items()})
caught = [name for name in FAULTS if any(hit for hit, _ in list(table[name].values())[1:])]
noticed = len(FAULTS) - len(unseen)
right_model = [finding.passes for finding in structural().values()]
print(f"the right model passes {sum(right_model)} of {len(right_model)} structural tests")
better_too = [name for name in unseen if run["faults"][name]["difference"] < -luck]
plain_to_see = [name for name in FAULTS if run["faults"][name].get("mean", 0) < 1]
print("mutation scores:")
for test_name, score in (("the loss, without a right model", len(plain_to_see)),
                         ("the loss, by the rule", noticed),
                         (f"the same, and better by more than {luck:.3f}",
                          noticed + len(better_too)),
                         ("the seven structural tests", len(caught))):
    print(f"{test_name:>40}: {score:>2}/{len(FAULTS)} = {score / len(FAULTS):.2f}")
assert (len(plain_to_see), noticed, len(better_too)) == (4, 7, 4)
assert all(right_model), "a test that fails on the right model kills mutants for nothing"
assert len(caught) == len(FAULTS), "every mutant is killed without any training"
#| caption: A dot: the column's test kills the row's mutant (wrong value, NaN or crash).
#|   First column: this section's rule. In brackets: what is not a definite error.
#| label: caught

# %% [raw] slide
# ## Which test kills which mutant
# {figure}
#
# **Now you:** a@errata_lab, exercises 4 to 6

# %% [markdown]
# Read a row: each of *these* mutants is killed by at least one structural test, without any training. Read a column: no
# test kills all of them. Some dots need a reason:
#
# * *Not even itself* fails *identity at zero*, because NaN times 0 is NaN.
# * *Weights set to 0* fails *the past stays*, because the softmax's sum contains the future.
# * *A product for the difference* and *a root too many* fail *size at depth*. The output of their norms depends on the
#   size of x, which changes with depth.
#
# The right model passes all seven. Without that the score would say nothing: a test that always fails also scores 1. Each
# test asks for a property that *this* model was meant to have; a post-norm model would rightly fail *identity at zero*.
#
# The score of the loss, seven, depends on rule 4. If we also noticed losses that are *better* by more than the spread of
# the seeds, the score would be eleven. But who looks for a mistake when the loss has fallen?
#
# Fourteen out of fourteen flatters the tests: we knew these mutants when we wrote the tests. So we chose five new mutants
# that are on no slide, and wrote them down before we ran any test on them:
#
# 1. no division by $\sqrt{d_k}$;
# 2. the softmax over the queries, after the mask;
# 3. the heads merged without the transpose;
# 4. keys in place of values;
# 5. no residual connection around the feed-forward network.
#
# *Guess first:* which of the five do the seven tests kill, and by which test?

# %% [raw] slide
# ## Five mutants that are on no slide
# 1. no division by $\sqrt{d_k}$
# 2. the softmax over the queries, after the mask
# 3. the heads merged without the transpose
# 4. keys in place of values
# 5. no residual connection around the feed-forward network
#
# > **Guess first.** Which of the five do the seven tests kill, and by which test?

# %%
for number, (name, block) in enumerate(ON_NO_SLIDE.items(), start=1):
    killed_by = [test for test, found in structural(block=block).items() if not found.passes]
    print(f"{number}. {name:>32}: {', '.join(killed_by) or 'survives'}")
    print(f"{'':>37}{attention_as_torchs(block).measured}")

# %% [raw] slide
# ## Three of five
# {print}
#
# Every relation that we state holds for many functions. A peer states the function itself.

# %% tags=["hide-input"]
survivors = {name for name, block in ON_NO_SLIDE.items()
             if all(found.passes for found in structural(block=block).values())}
assert survivors == {"no 1/√d_k", "keys in place of values"}
assert attention_as_torchs().passes
assert not any(attention_as_torchs(ON_NO_SLIDE[name]).passes for name in survivors)

# %% [markdown]
# The tests kill three of the five. Without $1/\sqrt{d_k}$, or with keys in place of values, the layer is still causal,
# its rows still sum to one, and the block with zeroed sublayers still returns x. Every relation that we state holds for
# many functions. A peer states the function itself. Each second line compares the mutant's attention with torch's own
# layer, given the same parameters *and the same mask*. This peer kills both survivors. Only mutant 5 passes it, because
# its attention is right. But a peer that takes its input from the suspect shares the suspect's mistake.
#
# > **Check yourself.** Which of the fourteen is a fault of attention that this peer would miss?
# > <details><summary>Answer</summary>The mutant "i > i". It builds a mask that forbids nothing. torch's layer gets this mask, too,
# > so both outputs are the same.</details>
#
# **Training finds** crashes, NaN, and faults that a model cannot learn around. **It is blind** to faults that a model
# learns around, and it rewards faults that leak the future.
#
# **Now you:** [a14](@errata_lab/assignment), exercises 4 and 5, the capstone: test a page with faults that you have not
# seen, then write what was meant; and 6, in which you test your own test. They take well over an hour, so finish this
# page first.
#
# > **Check yourself.** "The loss fell, so it is right." Write down the strongest sentence of this kind that is true.
# > <details><summary>Answer</summary>For instance: on several seeds, the loss on unseen texts fell to what another
# > implementation of the same model reaches with the same data and settings, and not below what the data allow. So the
# > model learns about as much as that one. Even that does not show that it is the same model: post-norm and pre-norm can
# > reach nearly the same loss.</details>

# %% [markdown] erratum="production models are quadratic; two types of Transformers; Llama 2 shares its keys; a new idea from after 2010; only matrix multiplications; a T × T matrix must be stored; tricks that change nothing; a logarithm without its dilation" teaches='what the tricks improve: training or ability; "fast: only matrix multiplications"' teaches="what the tricks improve: training or ability; fast, with only matrix multiplications"
# ## Overclaims: find the condition
#
# > **A common mistake: a sentence without its condition.** An overclaim is true of *something*. Finish each sentence with
# > "true, if …" before you open the list below.
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
# > 1. all layers of Llama 2 ([@touvron2023]), every other layer of GPT-3 ([@brown2020]), no layer of Mistral 7B v0.1 ([@jiang2023]: a window of 4,096 tokens; later versions dropped it)
# > 2. the two types that the deck is about; encoder-only models, such as BERT, are a third
# > 3. its models of 34B and 70B parameters (the paper of item 1)
# > 4. the two recipes that the slide names, learning rates included; it does not say what is ten times better, nor at which loss and budget
# > 5. attention in neural translation (2014); averages weighted by similarity are older (kernel regression, 1964), and fast weights, which learn their keys and values, are from 1991 (published as [@schmidhuber1992])
# > 6. most of the arithmetic, and less of the time
# > 7. the plain implementation; one that works in tiles never stores the whole matrix
# > 8. what the tricks were introduced for, which is training; but the residual connection also changes what a model can do: without it, equal attention weights make all tokens the same
# > 9. *dilated* convolutions
# > </details>
#
# All but the fourth are entries of the list; the fourth leaves out too much to be tested. This is the entry of the
# seventh:

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
# > **A common mistake: to mix two conventions.**
# >
# > * *Who has read what?* "$p(\cdot \mid x_{<t}) = \text{softmax}(W h_t^\top)$", says a recap, and the line above it
# >   makes $h_t$ from $x_1, \dots, x_t$. The recap is right if the inputs were shifted by one, as in training code.
# >   Otherwise it is off by one ([lecture @bottleneck](@bottleneck) shows what that slip costs).
# > * *Softmax over what?* "$\alpha_{ij} = \text{softmax}(e_{ij})$": literally, the softmax of one number is 1. In code
# >   the axis must be given, `dim=-1`.
# > * *What is a word?* In "$x_i = E w_i$" it is a one-hot vector, which picks a column of $E$; in code, the number of a
# >   row.
#
# The list has nine more conventions. The remedy is to choose one convention, say so once, and convert where data come in.
#
# > **Check yourself.** You take the weights of a model whose sinusoids have the first frequency $10000^{-2/d}$, and put
# > them into one whose first frequency is 1. Which of the four questions finds the fault?
# > <details><summary>Answer</summary>Shapes do not: both tables are (n, d). Limiting cases of attention hardly do, since
# > both tables are good positional encodings. A peer does: compare the two tables. The loss finds it too, this time,
# > because the trained weights expect other positions. Trained from the beginning, either table can be expected to work;
# > that would have to be measured.</details>

# %% [raw] slide
# ## Conventions: each is right, the mixture is wrong
# - *Who has read what?* $p(\cdot \mid x_{<t}) = \text{softmax}(W h_t^\top)$: right if the inputs were shifted.
# - *Softmax over what?* `dim=-1` must be said.
# - *What is a word?* A one-hot vector, or a number.
#
# Choose one convention, say so once, and convert where data come in.

# %% [markdown] erratum="each other word; the one thing everyone agrees on"
# ## No error: look for the reading in which it is right
#
# Ten entries are no error. Our own first list judged eight of them more severely, each with a test that failed.
# Those tests checked our own reading of the line, but the slide means something else.
#
# > **A common mistake: to test one's own misreading.**
# >
# > * "Each word attends to each *other* word": taken literally, a word must not attend to itself. But the deck's own
# >   formula sums over all $j$.
# > * "We could change the set of keys and queries to include only past words (Inefficient!)": not a cache that keeps the
# >   wrong things, but attention over the prefix, recomputed in full at every step. That is right, and inefficient, as
# >   the slide says.
# > * "The one thing everyone agrees on", pre-norm: a heading. Further down, the same slide says "almost all", and names
# >   BERT and OPT 350M.
#
# Two cards show such lines. The second line says that for $n \ll d$ a Transformer's layer costs less than "the recurrent
# models we've learned about". *Guess first:* is that true of every recurrence?

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
# No: at 50 tokens attention costs about half of an LSTM's arithmetic, but twice a simple recurrence's. The deck's
# recap means LSTM and GRU, so the line is right. Before you write to an author:
#
# 1. **Derive it yourself**, from the definition. Some of your findings will turn out to be wrong.
# 2. **Look for the reading in which it is right**, on the slides before and after.
# 3. **Make the cell that fails**, as small as possible, and the cell that passes.
# 4. **Measure the effect**, and say so when there is none.

# %% [markdown]
# ## A game: what would you ask?
#
# Now you are the reviewer. You see a line as a slide has it, its deck and its heading, but not the slides around it.
# Choose the question that you would ask first, and compare it with the question of the list. Then judge the line: definite
# error, overclaim, convention, or no error? Your first judgement is scored. Play ten lines.

# %% tags=["hide-input"]
def said_by_the_loss(name):
    seen, word = verdicts[name]
    if word in ("crash", "NaN"):
        return f"programmed and trained, it cannot be overlooked ({word})."
    judged = "it may be noticed" if seen else "it goes unnoticed"
    return f"programmed and trained, {word} nats per token: {judged}."

# %%
game = review_game(ERRATA, loss={name: said_by_the_loss(name) for name in FAULTS})
game

# %% [raw] slide
# ## A game: what would you ask?
# You see a line as a slide has it. Choose the question that you would ask first, then judge the line.
#
# {figure}

# %% [markdown]
# ## In short
#
# | question | relation to test | shapes |
# |---|---|---|
# | shapes | the result is $(n, d)$ for sampled $n \ne d$ | all sizes different |
# | causal weights | $\sum_j \alpha_{ij} = 1$, and $\alpha_{ij} = 0$ for $j > i$ | $\alpha$: $(n, n)$ |
# | residual connection | $\text{block}(x) = x$ for zeroed sublayers | $x$: $(b, n, d)$, not normalised |
# | batch invariance | $f([x; y])_1 = f([x])_1$ | $(2, n)$ against $(1, n)$ tokens |
# | peer | $\text{norm}(s x) = \text{torch's}(s x)$ at several sizes $s$ | $(n, d)$ |
# | gradients arrive | no parameter without one; $n$ tokens reach $n$ rows of the position table | each parameter |
#
# Ask the cheap questions first: shapes, a limiting case, a trusted peer, and only then training. A metamorphic relation
# tests a program whose right output is unknown. A differential test is only as good as its peer is independent. Mutation
# testing tests the tests. A falling loss shows that something is learned, not that it is the model you meant.
#
# **In the package.** `attncourse_lessons.errata`: the list (`ERRATA`, `erratum(name)`), the code slide's model repaired
# (`SlideModel`, with `faults`), and the seven tests (`structural`).
#
# > **Check yourself.**
# > 1. Which of the seven structural tests are metamorphic, and which are differential?
# > 2. Two implementations of a mask agree on a thousand random inputs. Name a reason why both may be wrong.
# > 3. A deck says "nothing in a Transformer is sequential". Find the condition.
# > <details><summary>Answers</summary>
# >
# > 1. Metamorphic: the past stays, batch invariance, size at depth (each compares two calls). Differential: the norm as
# >    torch's. The other three need a single call: rows that sum to 1 are a property of every input, zeroed sublayers
# >    are a limiting case, and *200 tokens* is an input inside the allowed range, beyond the mask's default of 128. (A
# >    boundary value would be 256.)
# > 2. Both were written from the same page, or one was copied from the other, or the inputs never reach the critical
# >    case, such as a row with nothing allowed.
# > 3. It is true within a layer, if the whole sequence is given. But each layer waits for the layer below it, and in
# >    generation each token waits for the token before it.</details>
#
# **Now do** [assignment @errata_lab](@errata_lab/assignment) (somewhat over two hours): a repair, a vote of
# transcriptions, a page of code to test and repair, and a test that is itself tested. From here on the slides are yours.

# %% [raw] slide
# ## In short
# | question | relation to test |
# |---|---|
# | shapes | the result is $(n, d)$ for sampled $n \ne d$ |
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
# The paper's own finding: few of these changes help in its code base, the gated activations and RMSNorm among them, and
# those that help most are large or slow. Mixtures of experts have become common since. (The abstract of *Attention is all
# you need* names one more result that the decks copy beside translation: English constituency parsing, with little and
# with much training data.)
# </details>
#
# **Further reading.** *Testing*: [+@claessen2000]. [+@chen1998]. [+@mckeeman1998]. [+@knight1986]. [+@demillo1978].
# [+@barr2015]. [+@karpathy2019], on networks that fail silently. *Models*: [+@vaswani2017], with a pencil, now that you
# can. [+@xiong2020], for both blocks written out. [+@narang2021]. [+@phuong2022], an attempt to write all of it down
# with every shape. *Textbooks*: Jurafsky and Martin, [*Speech and language
# processing*](https://web.stanford.edu/~jurafsky/slp3/); Rush et al., [*The annotated
# Transformer*](https://nlp.seas.harvard.edu/annotated-transformer/), the paper as a program.
