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
# *About 55 minutes, ten of them a game. You need the course up to [lecture @transformer](@transformer); some of the
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
# Two of the four say that it is wrong. The **shape** is right, since the table of weights is square. (A pencil sees more:
# $i$ is free on the left and summed over on the right; see *free indices* below.) **The limiting case** and **the peer**
# find the fault in one line each. **Training** says the opposite: the loss is far *lower* with the fault. Only a reader who
# knows that less than 0.1 nats is impossible becomes suspicious.
#
# Why lower? The sum runs over the *queries*, so it uses the columns of the weights, which do not sum to one. In a causal
# model column $j$ has weights of the tokens $i \ge j$ only. The sum mixes the values of *later* tokens, and the model reads
# what it has to predict.

# %% [markdown] teaches="what slides get wrong"
# ## A list of claims, each with a test
#
# That line comes from one of the five good decks from which this course grew ([lecture @getting_ready](@getting_ready);
# you do not need them). They contain mistakes; you have met some in boxes headed "A common mistake". The whole list is in
# the package, `attncourse_lessons.errata`. *Guess first:* how many entries does it have, and how many of them are errors
# beyond doubt?

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
# There are 67 entries, of four kinds:
#
# * **definite**: wrong in every reading that the rest of the slide allows;
# * **overclaim**: true of less than it says;
# * **convention**: a choice that clashes with another. Its test is written for the other choice, so it fails as printed;
# * **no error**: right as it stands, and easily misread.
#
# As transcribed, 29 are definite. A † marks a possible transcription error: 16 of the 29 have one, 13 do not.
#
# The card above is one entry: the line, what is right, and, as code, *the line as printed, the line as it should be, and one
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
# **Property-based testing** ([@claessen2000]) suits the first three: state a property of *all* inputs, and let a program
# sample them.
#
# All four must solve one problem, the **oracle problem** ([@barr2015]): a test needs the right answer, and nobody knows what
# a language model should return. A **metamorphic relation** needs no such knowledge. It compares two calls with each other:

# %% tags=["hide-input"]
figures.two_relations()
#| caption: Two metamorphic relations. Purple: what changes between two calls. Green: what
#|   must stay equal. Hatched: outputs that are not compared.
#| label: relations

# %% [markdown]
# ## Property-based testing: do the shapes fit?
#
# A slide whose tokens are rows writes the heads' outputs as $Y[\text{output}_1; \dots; \text{output}_h]$, with $Y \in
# \mathbb{R}^{d \times d}$. Give every length (tokens, features, heads) a size of its own. *Guess:* on which side of the
# heads must $Y$ stand?

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
# features. *Never test with $n = d$.* A property-based test states a property, "for all sizes the result is $(n, d)$", and
# lets a program sample the sizes:

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
print(f"Y on the left: runs in {blind} of them, fails first with n, d = {failing[0]}")

# %% [raw] slide
# ## Let a program sample the sizes
# {print}
#
# A single sample might have had $n = d$; 200 samples do not all. (In Python: `hypothesis`.)

# %% [markdown]
# The left product runs only where $n = d$. (In Python the library for this is `hypothesis`. It also looks for the smallest
# sizes that fail, which is called **shrinking**.) A metamorphic relation can be sampled in the same way:

# %% tags=["hide-input"]
for faults in ((), ("weights set to 0",)):
    draws, worst = torch.Generator().manual_seed(0), []
    for _ in range(50):
        n, h, width = torch.randint(2, 9, (3,), generator=draws).tolist()
        kept = int(torch.randint(1, n, (1,), generator=draws))
        text, other = torch.randint(20, (2, 1, n), generator=draws)      # (1, n) each
        other = torch.cat([text[:, :kept], other[:, kept:]], dim=-1)     # another future
        torch.manual_seed(0)
        model = SlideModel(20, d_model=h * width, n_heads=h, d_ff=8, faults=faults)
        with torch.no_grad():
            moved = model(text)[:, :kept] - model(other)[:, :kept]
        worst.append(moved.abs().max().item())
    failed = sum(gap > 1e-4 for gap in worst)
    print(f"the past stays, {' '.join(faults) or 'the right mask'}:"
          f" fails in {failed} of 50 samples")
    assert (failed == 0) == (not faults)

# %% [markdown] erratum="Qz for all"
# > **A common mistake: an index that is on one side only.** One deck makes the decoder's queries with "$q_i = Qz$".
# > **Free indices**, those that no sum runs over, must be the same on both sides. Here either all $q_i$ are the same, or the
# > right-hand side is a whole matrix.
#
# **Shapes find** a product on the wrong side or a missing axis, and free indices a missing index. **They are blind** where two
# lengths are equal, and to everything *inside* a table of the right shape.

# %% [raw] slide
# ## A common mistake: an index on one side only
# $$q_i = Q z$$
#
# A letter on the left that does not occur on the right is a warning. The test: when $z_1$ changes, the other queries do not.

# %% [markdown]
# ## Limiting cases and metamorphic relations: the answer is known
#
# Three lines on slides forbid the future: "−∞ where $i > i$"; "−∞ where $j \ge i$"; and "set attention weights to 0", here
# done after the softmax. *Before you run the cell:* for each, do the rows sum to one, and does the future get nothing?

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
#| caption: Weights under three masks and the right one. Hatched: the future. Orange: what is
#|   wrong (a leak, NaN, a missing weight, a sum that is not one).

# %% [raw] slide
# ## One question is not enough
# {print}
#
# **Now you:** a@errata_lab, exercise 1

# %% [raw] slide
# ## Four tables
# {figure}

# %% [markdown] teaches="code: a block and a language model"
# One question is not enough: each lets one of the three wrong tables pass.
#
# * *i > i* never happens, so nothing is forbidden.
# * *j ≥ i*: no token sees itself. The first row sees nothing: 0/0, NaN. The other rows pass both questions. A third question
#   finds them: has every token some weight for itself?
# * *Weights set to 0*: all rows except the last sum to less than one. (The slides with this line set the scores to −∞ one slide
#   earlier. So the line is no error; code that takes it literally is.)
#
# **Now you:** [a14](@errata_lab/assignment), exercise 1.
#
# ### A block that is not what its comments say
#
# One deck has a language model in fifty lines of code. Its comments say
# "pre-normalization" and "residual connection", so we know what was meant. The figure shows its block, which you know from
# [lecture @deep_stacks](@deep_stacks), and three repairs. What was meant has a **limiting case**: **zeroed** sublayers,
# which return nothing but zeros.

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


def first_repaired(x, attention, feed_forward):
    x = x + attention(layer_norm(x))
    x = layer_norm(x)
    return x + feed_forward(x)


def second_repaired(x, attention, feed_forward):
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
for block in (printed, first_repaired, second_repaired, repaired):
    print(f"{block.__name__:>15}:  a plain x moves by {moves(block, plain):.3f},"
          f"  a normalised one by {moves(block, normed):.0e}")
halves = moves(first_repaired, plain), moves(second_repaired, plain)
assert moves(repaired, plain) == 0
assert min(halves) > 1, "half is not enough"
assert moves(printed, normed) < 1e-4, "and on normalised vectors the test is blind"

# %% [raw] slide
# ## Choose inputs that have nothing special about them
# {print}
#
# On normalised vectors the broken block passes.

# %% [markdown]
# Only the repaired block returns x; neither half of a repair passes. The other three print one number, since each returns
# norm(x): the norm of a normalised vector is that vector.
#
# But the test can be blind. On vectors that are already normalised a norm does nothing, and the broken block passes. *Choose
# inputs that have nothing special about them.* The same holds for a change: if you add 1 to all features of a token,
# LayerNorm subtracts it again. And with zeroed sublayers the test cannot see where a sublayer's output is added.
#
# ### Batch invariance: a text alone and in a batch
#
# **Batch invariance** means that a model's output for a text does not depend on the other texts in the batch. Training never
# asks for this relation. The same deck's model gives each token a position:
#
# ```python
# pos = torch.arange(x.size(0), device=x.device).unsqueeze(1)
# x = self.embedding(x) + self.pos_encoder(pos)
# ```
#
# Its input is (batch, n), so this counts *texts*. `SlideModel` is our repaired version of the deck's model; `faults` puts
# entries of the list back. We train the right and the faulty model on docstrings, from three seeds.

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

# %% tags=["hide-input"]
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
#| caption: Training loss of the right model and of the one with positions by the batch, means
#|   of ten steps. Thin lines: one seed each. The axis does not begin at 0.

# %% [raw] slide
# ## Both fall
# {figure}
#
# > **Guess first.** The same 64 texts, read one by one, four at a time, and so on. What do the lines look like?

# %% [markdown]
# Both fall, along nearly the same curve. Now both models read the same 64 test texts one by one, four at a time, and so on.
# The loss must not depend on the size of the batch. *What will the lines look like?*

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
# On the left of the figure the right model's loss does not depend on the batch, and the faulty one's does: each text gets
# its number in the batch in place of its tokens' positions. Training batches mostly held 8 texts, and 26 at most. So
# the first rows of the table are well trained and those from 26 on not at all, and a batch of 64 uses them.
#
# On the right of the figure the faulty loss is *lower* than the right model's in batches of one and four, and higher in
# batches of 64, for each seed. With a smaller table both effects vanish (folded cell): after 100 steps the right model gains
# next to nothing from its positions. The test by two calls still fails.

# %% tags=["hide-input"]
texts_in = Counter()
for seed in range(3):
    batches = islice(text_batches(train, 512, 64, seed=seed), 100)    # as in training
    texts_in.update(len(batch.tokens_in) for batch in batches)
((usual, times),) = texts_in.most_common(1)
print(f"texts in a training batch: {usual} in {times} of {texts_in.total()},"
      f" at most {max(texts_in)}")
print("test loss in batches of 1, of 64; positions as torch draws them → ten times smaller:")
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
assert (usual, max(texts_in)) == (8, 26)
gains = [old[0] - new[0] for old, new in zip(shown["right"], smaller["right"], strict=True)]
assert min(gains) > 0.1 and max(gains) < 0.35

# %% [markdown]
# A batch of more than 128 makes the model crash: the table has 128 rows, for texts of at most 128 tokens.

# %% tags=["hide-input"]
crowd = texts[:1, :-1].expand(256, -1)                    # (256, 32)  one text, 256 times
right, by_batch = (pairs[0][0] for pairs in trainings.values())      # the models of seed 0
print("right:", tuple(right(crowd).shape))
try:
    by_batch(crowd)
except IndexError as error:
    print("by the batch:", type(error).__name__, error)

# %% [markdown]
# The line would be right for inputs of shape (n, batch), the default of torch's own Transformer layers. The test that finds
# it needs two calls and no training.
#
# > **Check yourself.** Somebody makes the crash go away with `pos % max_len`. Which of the two tests, the large batch
# > or batch invariance, still finds the fault?
# > <details><summary>Answer</summary>Batch invariance. The crash was a symptom, and now there is none: every text still
# > gets one position for all its tokens. A repair that removes the error message and not its cause makes the fault
# > harder to find.</details>
#
# ### Three tests of a training: the first loss, one batch, the gradient
#
# An untrained model knows nothing, so its **first loss** must be near that of guessing, $\ln |V|$ for a vocabulary $V$. If it
# is far above, something is initialised or indexed wrongly; if far below, the loss is computed wrongly.
#
# A model must be able to **overfit one batch**: trained on the same few texts, its loss must fall to the lowest that is
# possible. If it does not, suspect the learning rate first; then a cut gradient or wrong targets ([@karpathy2019]). The
# lowest is not always 0: our eight texts begin with the same token, and after it nobody can know which of the eight goes
# on.
#
# The third test costs one `backward`: does a gradient *reach* everything that should learn? No parameter may be without one,
# and texts of 32 tokens must reach 32 rows of the table of positions. (The classic **gradient check** compares a derivative written by hand with finite
# differences, `torch.autograd.gradcheck`.)
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
print(f"guessing: {math.log(128):.2f} nats; one batch, at best: {lowest_loss(texts[:8]):.3f}")
for faults in ((), (FAULT,), ("the residual from the normalised x",)):
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


for name, model in {"right": SlideModel(**SIZES), FAULT: SlideModel(**SIZES, faults=(FAULT,)),
                    "cut": Cut(**SIZES)}.items():
    token_loss(model(texts[:8, :-1]), texts[:8, 1:]).backward()       # eight texts of 32 tokens
    slopes = [parameter.grad for parameter in model.parameters()]
    table = model.positions.weight.grad                               # (128, d), or None
    rows = 0 if table is None else int(table.any(dim=-1).sum())
    print(f"{name:>22}: rows of the table with a gradient: {rows:>2}; parameters without one:"
          f" {sum(slope is None for slope in slopes)} / {len(slopes)}")

# %% [markdown]
# The first loss finds neither. Overfitting one batch finds the positions by the batch, because the loss is *too good*, lower
# than anybody can get who sees only the tokens: each text has a number that names it. The gradient finds them, too. It
# reaches 8 rows, one for each text, instead of 32. A cut gradient shows in the count of parameters.
#
# The printed block passes all three tests. They ask whether a model *can learn*; the relations above ask whether it is the
# model that was meant.

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
# > default, 128. In training texts are cut to that length, and nobody sees it. **Boundary value analysis** does: try the
# > first, the last, none, and one more.

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
# The last finds it; none and one more are refused, as they should be.
#
# In that code the last block feeds straight into the output layer. Another deck has a final norm there. Is its absence an
# error? Each repaired block adds to x, so x grows with depth; a final norm removes this growth before the logits. *Sketch
# the size of the logits (their standard deviation) against the number of blocks*, for the right model, for the code as
# printed, and for the code with only its block repaired.

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

# %% [raw] slide
# ## One fault hid another
# {figure}
#
# After each repair, run *all* the tests again.

# %% [markdown]
# As printed the size does not grow, since each sublayer begins from a normalised x. So the missing norm is *no
# error there*. With only the block repaired the *untrained* logits grow with depth, for each seed. Whether training suffers
# from it in deep stacks we have not measured. After each repair, run *all* the tests again.
#
# **Limiting cases and relations find** what breaks a relation that you can state. **They are blind** where inputs are special, to what a
# limiting case switches off, and to every relation that nobody thought of.

# %% [markdown] erratum="ε outside the root"
# ## Differential testing: is it the same as something trusted?
#
# Where a library has the same thing, comparing takes three lines, and needs no idea of what might be wrong. LayerNorm is the
# example: none of the decks prints the formula that torch uses.
#
# > **A common mistake: to take two conventions for one.** One deck divides by $\sigma + \varepsilon$, another by
# > $\sigma$, torch and this course by $\sqrt{\sigma^2 + \varepsilon}$. Each is a convention and no error, but *another*
# > function. *Guess* by how much the first and the last differ for vectors of size 1, 0.1, 0.01:

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
# At size 0.01 the variance is $10^{-4}$: an ε of
# $10^{-5}$ inside the root is a tenth of it; outside, it is a thousandth of σ. So compare at several sizes.
#
# *How much may two right implementations differ?* By rounding, and that depends on the type of the numbers. Its **machine
# epsilon** is the step from 1 to the next larger number:

# %% tags=["hide-input"]
for dtype in (torch.float32, torch.bfloat16):
    y = x.to(dtype)                                       # vectors of size 1
    ours, peer = layer_norm(y), F.layer_norm(y, (64,))
    apart, step = (ours - peer).abs().max().item(), torch.finfo(dtype).eps
    print(f"{dtype}: {apart:.0e} apart;"
          f" epsilon × the largest output: {step * peer.abs().max():.0e}")

# %% [markdown]
# Both are right, and they differ by about epsilon times the largest output, since they round at different steps. So a
# **tolerance** is a few times that, and less than the smallest fault that matters.
#
# <details><summary>Which type, and which size?</summary>In float32 there is room for a tolerance even at size 1, where the ε
# outside the root costs 2e-05. In bfloat16 rounding alone costs a thousand times as much, and hides the fault. Test in
# float32, or at a size where the fault is large: at size 0.01 it is 0.2.</details>
#
# ### Tables: count them
#
# The number of layers and the widths give the number of parameters ([lecture @many_heads](@many_heads) counts them). In four
# rows of the decks' tables they do not fit each other:

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
# Two of the four were copied faithfully from the paper.
#
# ### One table, three transcriptions
#
# Three of the decks show the same table, in which Narang et al. ([-@narang2021]) compare many changes to a Transformer. We
# can no longer tell whether an author mistyped a number or the transcription misread it.
# *Guess:* of the 304 numbers that all three have, in how many places do they disagree?

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
print("\n".join(disputed[:3]))
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
# They disagree in 14 places; a majority decides 13. But a majority can be wrong, too. *Foundations of NLP* and *CSE5321* both
# say *4096* in the row of 8 layers, where the count of parameters says 4608, and both say *ReLU* where the paper has *GeLU*.
# A guess: these slips stood in something that both copied. They do not join CSE5321 to *CSE 576*, with which it outvotes
# *Foundations*; all three may go back to one copy. **Copies are not witnesses**: they make the same mistake for the same
# reason.
#
# Even independent authors are not enough. When 27 programs were written independently from one specification, more of them
# failed on the *same* inputs than independence would explain ([@knight1986]).

# %% [markdown] erratum="BertVis"
# > **A common mistake: reading for the meaning.** "See also BertVis", says a slide, and the link beside it ends with
# > *bertviz*. The link beside it is the trusted source.
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
# The fourth question is the expensive one. Change a program by one small step, and ask whether the tests notice: that is
# **mutation testing** ([@demillo1978]), a test of the *tests*. The changed program is a **mutant**, and a test that fails
# on it **kills** it. The share of mutants that are killed is the **mutation score**.
#
# Our mutants are the fourteen entries that can be programmed into the small language model. Two are no error and two are
# conventions; as *mutants* of our model they are changes all the same. This is what each of them does:

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
# measured the loss on texts that no model had read, in batches as large as those of training.
#
# What would somebody *notice*? We fix a rule before we look. Four things are noticed:
#
# 1. a crash;
# 2. a loss that is not a number;
# 3. a loss that is worse than the right model's, in the mean of ten seeds, by more than the right model's best and worst
#    seed differ;
# 4. a mean that is better by half a nat or more.
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
# true (by any limit from 0.05 to 2 nats). The second number is the mean difference from the right model *with the same seed*,
# with half of its 95 % interval. Of the ten definite errors six are noticed and four are not: a root too many, the printed
# block, positions by the batch, and max_len, whose line this run never reaches.
#
# Rules 3 and 4 need the right model's loss, which the author of a mistake does not have. Without it four are noticed: the
# crash, the NaN and, by a reader who knows what is possible, two losses below 1 nat. Here are the seven that pass the rule:

# %%
unseen = [name for name in FAULTS if not verdicts[name][0]]
rows = {name: run["faults"][name] for name in unseen}
hidden = {name: (row["difference"], 2.26 * row["standard_error"]) for name, row in rows.items()}
hidden = dict(sorted(hidden.items(), key=itemgetter(1)))  # the largest first
viz.differences_from_baseline({"": hidden},
                              x_name="nats per token; left of 0: lower with the change")
#| caption: Test loss of mutants that pass the rule, minus the right model's, same seed: means
#|   of ten seeds, 95 % intervals. Triangles: 0 lies outside; circles: inside.

# %% tags=["hide-input"]
better = [name for name, (change, bar) in hidden.items() if change < -bar]
same = [name for name, (change, bar) in hidden.items() if abs(change) <= bar]
assert "the residual from the normalised x" in better and "max_len not handed on" in same
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
# Five of the seven *do* differ from the right model, and in the mutant's favour: the loss is lower. The printed block is
# among them. "It trains better with my change" does not say that the change is what you think it is.
#
# For the positions we asked *why* in a shorter run (below [@fig:batches]). torch samples their table as large as the tokens';
# for the right model it begins as noise, and the fault escapes most of it. With a table ten times smaller the right model
# gains about 0.2 nats, and the fault's advantage is gone. Right and faulty are then equal: in 100 steps the right model has
# gained next to nothing from positions. So "not noticed" may mean: not noticed *so early*.
#
# Nor is *weights set to 0* better. Its denominator contains the future, which a model that writes does not have. Read the
# texts **letter by letter**: each prediction from a call with the tokens before it alone.

# %%
@torch.no_grad()
def letter_by_letter(model):
    newest = [model(texts[:, :t])[:, -1] for t in range(1, texts.shape[1])]    # (64, 128) each
    return token_loss(torch.stack(newest, dim=1), texts[:, 1:]).item()


LEAK, gaps = "weights set to 0", {}
by_leak = [trained(LEAK, seed=seed) for seed in range(3)]
for name, pairs in {"right": trainings["right"], LEAK: by_leak}.items():
    both = [(loss_in_batches(model, 64), letter_by_letter(model)) for model, _ in pairs]
    gaps[name] = [slow - at_once for at_once, slow in both]
    print(f"{name:>16}, one call → letter by letter:",
          *(f" {at_once:.3f} → {slow:.3f}" for at_once, slow in both))

# %% tags=["hide-input"]
assert max(map(abs, gaps["right"])) < 1e-4 and min(gaps[LEAK]) > 0.01
others = [name for name in better if name != LEAK]
assert all(structural(name)["the past stays"].passes for name in others)

# %% [raw] slide
# ## Letter by letter
# *Weights set to 0*: its denominator contains the future, which a model that writes does not have.
#
# {print}

# %% [markdown]
# The right model loses nothing. The mutant, for each seed, loses about its whole advantage in the figure, or more. (After 100
# steps it has none in one call either.) The other four keep the past as it is (the table below tests it), so for them both
# ways of reading agree. Why three of these are lower nobody has tested.
#
# One difference is exactly 0: "max_len not handed on" changes nothing for texts of at most 128 tokens, and the stored run has
# no longer ones. A mutant that *no* allowed input can tell from the original is an **equivalent mutant**: no test can
# kill it, and the score leaves it out. This one is not equivalent: a model for 256 tokens crashes on a text of 256.
#
# The printed block's loss is lower by less than the right model's seeds lie apart. *How can the interval be so narrow?* Look at
# pairs of equal seeds:

# %% tags=["hide-input"]
as_printed = record["the residual from the normalised x"]["losses"]
figures.paired_seeds({"right": nothing["losses"], "printed block": as_printed},
                     "test loss (nats per token)")
equal = sum(b < a for a, b in zip(nothing["losses"], as_printed, strict=True))
print(f"lower with the printed block: in {equal} of {len(as_printed)} pairs of equal seeds")
#| caption: Test loss of the right model and of the one with the printed block, ten seeds. The
#|   axis does not begin at 0.

# %% tags=["hide-input"]
assert equal == 10
assert not structural("the residual from the normalised x")["identity at zero"].passes

# %% [raw] slide
# ## The printed block is better, seed by seed
# {figure}
#
# **Now you:** a@errata_lab, exercise 3

# %% [markdown]
# For every seed the printed block has the lower loss. Two models of one seed read the same texts in the same order, so their
# difference varies less than their losses do. At this size, learning rate and length of training, a careful comparison leaves
# hardly a doubt: the printed block's loss is a little *lower*.
#
# No wonder it trains. Write the norms one place later: norm the embeddings once, then $x \leftarrow \text{norm}(x +
# f(x))$. The model with the printed block and a final norm *is* a post-norm Transformer ([lecture
# @deep_stacks](@deep_stacks)), the paper's of 2017 but for that first norm. (As printed, its last norm is left out.) The
# *block* is sound, as a post-norm block; its comment, "pre-normalization", is wrong. Two blocks of it train well; what a deep
# stack of them needs, that lecture showed.

# %% tags=["hide-input"]
torch.manual_seed(0)
model = SlideModel(**SIZES, faults=("the residual from the normalised x",))
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
# Now all fourteen mutants meet the loss, and seven **structural tests** of models that have *not* been trained:
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
# **Now you:** a@errata_lab, exercises 4 and 5

# %% [markdown]
# Read a row: each of *these* mutants is killed by at least one structural test, without any training. Read a column: no test kills
# all. Some dots need a reason. *Not even itself* fails *identity at zero*, since NaN times 0 is NaN. *Weights set to 0*
# fails *the past stays*, since the softmax's sum contains the future. *A product for the difference* and *a root too many*
# fail *size at depth*, since their norm's output depends on the size of x, which changes with depth.
#
# The right model passes all seven. Without that the score would say nothing: a test that always fails also scores 1. Each
# test asks for a property that *this* model was meant to have; a post-norm model would rightly fail *identity at zero*.
#
# The score of the loss, seven, depends on rule 4. If we also noticed losses that are *better* by more than the spread of the
# seeds, it would be eleven. But who looks for a mistake when the loss has fallen?
#
# A score of fourteen out of fourteen flatters the tests: we wrote them with these mutants in hand. So we wrote down five more
# mutants, mistakes that are on no slide, before we ran anything. *Guess* which of the five the same seven tests kill.

# %%
for name, block in ON_NO_SLIDE.items():
    killed_by = [test for test, found in structural(block=block).items() if not found.passes]
    print(f"{name:>32}: {', '.join(killed_by) or 'survives'}")
    print(f"{'':>34}{attention_as_torchs(block).measured}")

# %% tags=["hide-input"]
survivors = {name for name, block in ON_NO_SLIDE.items()
             if all(found.passes for found in structural(block=block).values())}
assert survivors == {"no 1/√d_k", "keys in place of values"}
assert attention_as_torchs().passes
assert not any(attention_as_torchs(ON_NO_SLIDE[name]).passes for name in survivors)

# %% [markdown]
# Three of five. Without $1/\sqrt{d_k}$, or with keys for values, the layer is still causal, its rows still sum to one, and
# zeroed sublayers are still zero: every relation that we state holds for many functions. A peer states the function itself.
# torch's own layer, given the same parameters (second lines), kills both survivors; only the missing residual passes it.
#
# **Training finds** crashes, NaN, and what a model cannot learn around. **It is blind** to what it learns around, and rewards
# what leaks the future.
#
# **Now you:** [a14](@errata_lab/assignment), exercise 4, the capstone: a page with faults that you have not seen; and 5, in
# which you test your test. Both take more than half an hour, so finish the page first.
#
# > **Check yourself.** "The loss fell, so it is right." Write down the strongest sentence of this kind that is true.
# > <details><summary>Answer</summary>For instance: the loss on unseen texts fell to what another implementation of
# > the same model reaches with the same data and settings, on several seeds, and is not below what the data allow; so
# > it learns about as much as that one. Even that does not say that it is the same model: post-norm and pre-norm pass
# > it side by side.</details>

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
# > 1. all layers of Llama 2, every other layer of GPT-3, no layer of Mistral 7B v0.1 (a window of 4,096 tokens; later versions dropped it)
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
# All but the fourth are entries of the list. One of them:

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
# > * *Who has read what?* "$p(\cdot \mid x_{<t}) = \text{softmax}(W h_t^\top)$", says a recap, and the line above it makes
# >   $h_t$ from $x_1, \dots, x_t$. It is right if the inputs were shifted by one, as in training code, and off by one if not
# >   ([lecture @bottleneck](@bottleneck) pays for that slip).
# > * *Softmax over what?* "$\alpha_{ij} = \text{softmax}(e_{ij})$": literally, the softmax of one number is 1. In code
# >   the axis must be said, `dim=-1`.
# > * *What is a word?* In "$x_i = E w_i$" it is a one-hot vector, which picks a column of $E$. In code it is a number, and
# >   one looks up a row.
#
# The list has nine more. The remedy:
# choose one convention, say so once, and convert where data come in.
#
# > **Check yourself.** You take the weights of a model whose sinusoids have the first frequency $10000^{-2/d}$, and put them
# > into one whose first frequency is 1. Which of the four questions finds the fault?
# > <details><summary>Answer</summary>Shapes do not: both tables are (n, d). Limiting cases of attention hardly do: both
# > tables are good position encodings. Comparing the two tables finds it at once. The loss finds it too, this time: the
# > trained weights expect other positions. In training from the beginning, either would do equally well.</details>

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
# Ten entries are no error. Our own first list had eight of them as something worse, each with a test that failed. That was a
# test of our reading; the slide means another.
#
# > **A common mistake: to test one's own misreading.**
# >
# > * "Each word attends to each *other* word": taken literally, a word must not attend to itself. But the deck's own
# >   formula sums over all $j$.
# > * "We could change the set of keys and queries to include only past words (Inefficient!)": not a cache that keeps the
# >   wrong things, but attention over the prefix, recomputed in full at every step. That is right, and inefficient, as the
# >   slide says.
# > * "The one thing everyone agrees on", pre-norm: a heading. Further down, the same slide says "almost all", and names BERT
# >   and OPT 350M.

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
# So before you write to an author:
#
# 1. **Derive it yourself**, from the definition. Some of your findings will turn out to be wrong.
# 2. **Look for the reading in which it is right**, on the slides before and after.
# 3. **Make the cell that fails**, as small as possible, and the cell that passes.
# 4. **Measure the effect**, and say so when there is none.

# %% [markdown]
# ## A game: what would you ask?
#
# Now you are the reviewer. You see a line as a slide has it, and nothing else. Choose the question that you would ask
# first. The game shows what the list asks, and what its test finds. Then judge the line: definite error, overclaim,
# convention, or no error? Your first judgement counts. The question is not scored, since several can find one mistake. Play
# ten.

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
# | shapes | the result is $(n, d)$ for sampled $n \ne d$ | all sizes different |
# | causal weights | $\sum_j \alpha_{ij} = 1$, and $\alpha_{ij} = 0$ for $j > i$ | $\alpha$: $(n, n)$ |
# | residual connection | $\text{block}(x) = x$ for zeroed sublayers | $x$: $(b, n, d)$, not normalised |
# | batch invariance | $f([x; y])_1 = f([x])_1$ | $(2, n)$ against $(1, n)$ tokens |
# | peer | $\text{norm}(s x) = \text{torch's}(s x)$ at several sizes $s$ | $(n, d)$ |
# | gradients arrive | no parameter without one; $n$ tokens reach $n$ rows of the position table | each parameter |
#
# Ask the cheap questions first: shapes, a limiting case, a trusted peer, and only then training. A metamorphic relation
# tests a program whose right output nobody knows. A differential test is as good as its peer is independent. Mutation
# testing tests the tests. A falling loss says that something is learned, not that it is the model you meant.
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
# >    torch's. Rows that sum to 1 and zeroed sublayers are limiting cases of a single call, 200 tokens a boundary value.
# > 2. Both were written from the same page, or one was copied from the other; or the inputs never reach the critical
# >    case, such as a row with nothing allowed.
# > 3. Within a layer, when the whole sequence is given. The layers wait for one another, and in generation each token
# >    waits for the one before it.</details>
#
# **Now do** [assignment @errata_lab](@errata_lab/assignment) (somewhat over two hours): a repair, a vote of transcriptions,
# a page of code to review, and a test that is itself tested. It is the last one. From here on the slides are yours.

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
