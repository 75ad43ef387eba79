# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3 (ipykernel)
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Assignment @errata_lab · A vote, a page of code to review, and a test of your own
#
# You are the reviewer. [Lecture @errata_lab](@errata_lab) has the questions that find mistakes: shapes, cases whose
# answer is known, something trusted, and training last. Here you ask them about a line (a limiting case), about a
# table that was transcribed three times (a differential test), and about a whole page of code (a metamorphic
# relation, then all four). You also compare two models seed by seed. In the sixth exercise you write a test of your
# own: it gets blocks, some sound and some broken, and must tell them apart.
#
# Below each exercise there is a check. Run it as often as you like, even before you have written anything. It tells
# you what it found, what it expected, and, if it recognises your mistake, what you were probably thinking. Another
# check, on other numbers and sizes, decides your points, so do not fit your answer to the visible one.
#
# Two rules hold throughout. Return new tensors, and leave the ones that come in unchanged. Let a gradient through
# wherever something is to be learned.
#
# {exercises}
#
# If you are stuck, `hint("ReviewedLM", 1)` prints a hint; later hints tell more. Your answers are refused if they
# call the course's own attention, layers and errata, or torch's attention.

# %% locked=true
try:
    from attncourse import check, hint, solved
except ModuleNotFoundError:
    raise ImportError(
        "This notebook needs the attncourse package: open it with `make lab` in the course's "
        "folder, or choose a kernel of the environment in which you installed the course."
    ) from None

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn

torch.set_num_threads(1)  # models as small as these gain nothing from a second thread

# %% [markdown]
# ## 1 · Weights that were masked too late
#
# "Mask out the future by artificially setting attention weights to 0", say two decks. A programmer took this for the
# recipe. Now the scores are gone, and all you have are the weights from a softmax without a mask. You can still
# repair them: up to rounding, the result must be what masking the *scores* would have given.

# %% locked=true
def weights_misread(weights, mask):
    return weights.masked_fill(~mask, 0)


# %% exercise="repair_weights"
def repair_weights(weights: Tensor, mask: Tensor) -> Tensor:
    """The weights that there would be if the scores had been masked before the softmax.

    weights: (..., n_query, n_key), each row summing to one
    mask: the same shape, True where the query may attend
    returns the same shape; a row with nothing allowed is all zeros, and the gradient in it is 0
        (in every other row some allowed weight is above 0)
    """
    ...  # solution

# %% check="repair_weights"
check("repair_weights", repair_weights)

# %% [markdown]
# **Use it.** There are five tokens, with sampled scores. One minus the sum of a row as printed is the weight that the
# future had. *Guess first:* which row loses most, and which loses nothing? Then look at a **limiting case**: all
# values are 1, so each output must be 1. How far off is it as printed, and how far with your repair?

# %%
if solved("repair_weights"):
    scores = torch.randn(5, 5, generator=torch.Generator().manual_seed(0))
    causal = torch.ones(5, 5, dtype=torch.bool).tril()
    printed = weights_misread(scores.softmax(dim=-1), causal)
    print("rows as printed sum to", [round(total, 2) for total in printed.sum(dim=-1).tolist()])
    mended = repair_weights(scores.softmax(dim=-1), causal)
    ones = torch.ones(5, 2)                                       # values that are all alike
    for name, weights in {"as printed": printed, "repaired": mended}.items():
        off = (weights @ ones - 1).abs().max()
        print(f"{name:>10}: the average of ones is off by {off:.1g}")
    right = scores.masked_fill(~causal, -torch.inf).softmax(dim=-1)
    print(f"repaired, and masked before the softmax: {(mended - right).abs().max():.0e} apart")

# %% [markdown]
# <details><summary>What to see</summary>
#
# Row 0 loses most: it may attend to one token of five, and keeps 0.07. The last row loses nothing, since nothing is
# forbidden to it. As printed, the average of ones is off by 0.9; with your repair it is off only by rounding. So one
# call in a limiting case tells the two versions apart, even if you do not know the right weights.
#
# </details>

# %% [markdown]
# ## 2 · A vote of transcriptions
#
# Three decks print one table, and their numbers differ. We do not know which deck made the slips. Write the vote:
# what do *more than half* of the transcriptions say, and where do they not all agree?

# %% exercise="majority_reading"
def majority_reading(readings: Tensor) -> tuple[Tensor, Tensor]:
    """What most transcriptions of one table say, place by place.

    readings: (k, rows, columns), what each of k transcriptions has, number by number
    returns agreed, (rows, columns): what more than half of them have, NaN where there is none
        disputed, (rows, columns), boolean: True where they do not all say the same
        (the same means the same number: 2.29 and 2.291 differ)
    """
    ...  # solution

# %% check="majority_reading"
check("majority_reading", majority_reading)

# %% [markdown]
# **Use it.** Five people transcribe a table of 1,000 numbers, and each gets one number in ten wrong. *Guess first:*
# in how many places does your vote say something wrong, and in how many does it say nothing? What if two of the five
# have the same table, because one copied it from the other, mistakes and all? Or three, or four? Then the vote is
# taken on the table that three of our decks print: are the three decks outvoted about equally often?

# %%
if solved("majority_reading"):
    draws = torch.Generator().manual_seed(0)
    truth = torch.randint(100, (25, 40), generator=draws)
    for n_copies in (1, 2, 3, 4):
        readings = []
        for person in range(5):
            if 0 < person < n_copies:
                readings.append(readings[0])                 # copied, mistakes and all
                continue
            slips = torch.rand(25, 40, generator=draws) < 0.1
            other = torch.randint(100, (25, 40), generator=draws)
            readings.append(torch.where(slips, other, truth).float())
        agreed, _ = majority_reading(torch.stack(readings))
        nothing = agreed.isnan().sum().item()
        wrong = (agreed != truth).sum().item() - nothing
        print(f"copies of the first: {n_copies - 1}; the vote is wrong in {wrong:>2} places,"
              f" and says nothing in {nothing:>2}")

    from attncourse_lessons.slides.transcriptions import TRANSCRIBERS, transcriptions

    names, readings = transcriptions()                        # (3, rows, columns)
    agreed, _ = majority_reading(readings)
    for deck, reading in zip(TRANSCRIBERS, readings, strict=True):
        outvoted = int(((reading != agreed) & ~agreed.isnan()).sum())
        print(f"outvoted in {outvoted:>2} places: {deck}")

# %% [markdown]
# One deck is outvoted far more often than the others. *What could be the reason, and what would tell which it is?*
#
# <details><summary>What to see</summary>
#
# Five independent voters, each with one number in ten wrong, hardly ever share a mistake. Where their vote fails, it
# mostly says nothing. With one copy it says nothing in more places, because two of the five now make the same
# mistakes. With two copies, three of the five have the same table, and every mistake in it wins. A vote is worth only
# as much as its voters are independent.
#
# *Foundations of NLP* is outvoted nearly always. Either its author was careless, or the other two decks have one
# source. The vote does not tell these apart. A witness from outside would: the table in the paper itself. So would a
# mistake that two decks share, if it can be proved without a vote: a shared mistake points to a common source.
# (Agreement on what is right does not.) The lecture has two such mistakes: 4096 in the row of 8 layers, where the
# number of parameters needs 4608, and ReLU for the paper's GeLU. But the decks that share them are *Foundations* and
# *CSE5321*. They say nothing about *CSE 576*, which agrees with CSE5321 nearly everywhere. Perhaps all three decks
# come from one copy: then someone corrected the two slips in *CSE 576*, and other numbers were changed in
# *Foundations*. The vote cannot decide that.
#
# </details>

# %% [markdown]
# ## 3 · Told apart: a paired comparison of two models
#
# Two models, one as printed and one repaired, were trained from the same seeds. With the same seed both saw the same
# texts in the same order and started with the same embeddings. Is one of them better? Take the difference of the two
# losses for each seed, and divide the mean of these differences by its standard error: the differences' standard
# deviation (with n − 1) over √n. The quotient is the **paired t statistic**.

# %% exercise="told_apart"
def told_apart(printed: Tensor, repaired: Tensor) -> tuple[Tensor, Tensor]:
    """Whether two models differ by more than luck, from their losses at equal seeds.

    printed, repaired: (n,), n at least 2; number i of both is of the same seed
    returns two numbers: the mean difference, printed minus repaired, and the same difference
        divided by its standard error (tensors without axes, or plain numbers); the second
        is NaN where all differences are 0
    """
    ...  # solution

# %% check="told_apart"
check("told_apart", told_apart)

# %% [markdown]
# **Use it** on the experiment of the lecture: fourteen faults, ten seeds each. (Two of them have no losses: a crash
# and a NaN.) How many seeds would have been enough? Your function is called twice: with the first three seeds, and
# with all ten. The 95 % interval excludes 0 if |t| is at least 4.3 with three seeds, or 2.3 with ten. *Guess first:*
# does t grow from three seeds to ten, and for which faults would three have left the question open? (One fault has no
# t. With texts as short as these it *is* the repaired model: all differences are 0, and 0/0 is NaN. Strictly
# speaking, a dozen tests need higher limits, since among many tests some exceed a limit by chance.)

# %%
if solved("told_apart"):
    from attncourse_lessons.results import measured

    faults = measured("errata")["faults"]
    right = torch.tensor(faults["nothing"]["losses"])
    for name, row in faults.items():
        losses = row.get("losses", [None])
        if name != "nothing" and None not in losses:
            with_fault = torch.tensor(losses)
            _, of_three = told_apart(with_fault[:3], right[:3])
            difference, t = told_apart(with_fault, right)
            name = name.replace("the residual from the normalised x", "printed block")
            print(f"{name:>28}:  {float(difference):+z.3f} nats, t = {float(of_three):7.1f}"
                  f" from three seeds, {float(t):7.1f} from ten")

# %% [markdown]
# <details><summary>What to see</summary>
#
# Three seeds leave two faults open, with |t| below 4.3: *weights set to 0* and *ε outside the root*. Ten seeds decide
# the first: its loss is *lower*. ε stays open: its difference does not reach the third decimal. Where there is a
# difference, |t| grows from three seeds to ten, by √(10/3) ≈ 1.8 if mean and spread stay the same. A large |t| says
# that a difference is there, not that it is large: the *printed block* changes the loss half as much as *weights set
# to 0*, and its |t| is three times as large.
#
# </details>

# %% [markdown]
# ## 4 · Capstone, first part: test a page of code
#
# This page of code is like the deck's, but we have planted other faults in it. Some are relatives of the lecture's
# faults; most are new. The page is meant to be a decoder-only language model of pre-norm layers. Each layer has norms
# and sublayers of its own. The positions are learned, and token number t gets row t of their table. The model runs,
# and its loss falls. Several of its lines are wrong; we do not say which lines, nor how many. `Attention` and
# `FeedForward` are sound.

# %% locked=true
class Attention(nn.Module):
    """Causal self-attention; its mask is made for texts of max_length tokens."""

    def __init__(self, d_model: int, n_heads: int, max_length: int = 128):
        super().__init__()
        self.n_heads = n_heads
        self.qkv = nn.Linear(d_model, 3 * d_model)                # queries, keys, values
        self.output = nn.Linear(d_model, d_model)
        future = torch.ones(max_length, max_length, dtype=torch.bool).triu(1)
        self.register_buffer("mask", future, persistent=False)

    def forward(self, x: Tensor) -> Tensor:                       # (batch, n, d_model)
        n = x.shape[1]
        heads = self.qkv(x).unflatten(-1, (3, self.n_heads, -1))
        query, key, value = heads.permute(2, 0, 3, 1, 4)          # (batch, n_heads, n, d_head)
        scores = query @ key.mT / math.sqrt(key.shape[-1])
        weights = scores.masked_fill(self.mask[:n, :n], -torch.inf).softmax(dim=-1)
        return self.output((weights @ value).transpose(1, 2).flatten(2))


class FeedForward(nn.Sequential):
    def __init__(self, d_model: int):
        super().__init__(
            nn.Linear(d_model, 4 * d_model), nn.ReLU(), nn.Linear(4 * d_model, d_model)
        )


class PageLM(nn.Module):
    def __init__(self, vocab, dim, nhead, num_layers, max_len=128):
        super().__init__()
        self.embedding = nn.Embedding(vocab, dim)
        self.positions = nn.Embedding(128, dim)
        self.norm_1 = [nn.LayerNorm(dim) for _ in range(num_layers)]
        self.attention = nn.ModuleList(
            [Attention(dim, nhead, max_len) for _ in range(num_layers)]
        )
        self.norm_2 = nn.ModuleList([nn.LayerNorm(dim)] * num_layers)
        self.ff = nn.ModuleList([FeedForward(dim) for _ in range(1, num_layers)])
        self.logits = nn.Linear(dim, vocab)

    def forward(self, tokens):                           # (batch, n)
        n = tokens.size(1)
        x = self.embedding(tokens) + self.positions.weight[-n:]
        layers = zip(self.norm_1, self.attention, self.norm_2, self.ff, strict=False)
        for norm_1, attention, norm_2, ff in layers:
            h = x + attention(norm_1(x))                 # pre-norm, residual connection
            x = x + ff(norm_2(h))                        # pre-norm, residual connection
        return self.logits(norm_2(x))                    # final norm, logits


# %% [markdown]
# **Test it before you read it** line by line. The first test is a metamorphic relation. A causal model gives a token
# the same logits, whether the text goes on or ends after this token. So compare the whole text with each of its
# **beginnings**, and return the largest change.

# %% exercise="prefix_gap"
def prefix_gap(model: Callable[[Tensor], Tensor], tokens: Tensor) -> float:
    """By how much the logits of a text's tokens change when the text goes on.

    model: takes tokens (batch, n) for any n from 1 on, returns logits (batch, n, vocab_size)
    tokens: (batch, n), n at least 2
    returns one number: over all k from 1 to n − 1, the largest absolute difference between the
        logits of `tokens[:, :k]` and the logits of the same tokens in the whole text
    """
    ...  # solution

# %% check="prefix_gap"
check("prefix_gap", prefix_gap)

# %% [markdown]
# **Use it** on untrained models: the page, the lecture's repaired model, and three of its mutants. *Guess first:* for
# which of the five is the gap larger than rounding? (One of the mutants breaks batch invariance.)

# %%
if solved("prefix_gap"):
    from attncourse_lessons.slides.model import SlideModel

    faults = ("i > i", "weights set to 0", "positions by the batch")
    torch.manual_seed(0)
    models = {"the page": PageLM(20, 16, 2, 3), "repaired": SlideModel(20, d_model=16)}
    models |= {name: SlideModel(20, d_model=16, faults=(name,)) for name in faults}
    tokens = torch.randint(20, (3, 9))
    with torch.no_grad():
        for name, model in models.items():
            print(f"{name:>22}: largest change of a logit {prefix_gap(model, tokens):.0e}")

# %% [markdown]
# <details><summary>What to see</summary>
#
# The page has a large gap, so something in it depends on what comes later, or on how long the text is. *i > i* and
# *weights set to 0* have a gap, too. The repaired model and *positions by the batch* have none: a beginning has the
# same place in its batch as the whole text, so this relation is blind to the batch. Each relation finds its own kind
# of fault.
#
# </details>

# %% [markdown]
# ## 5 · Capstone, second part: write what is meant
#
# Ask the page more questions, in cells of your own; `model = PageLM(20, 16, 2, 3)` makes a small model:
#
# * *metamorphic*: which other two calls must agree?
# * *limiting case*: what must come out if sublayers return 0, all of them or only one kind?
# * *gradient*: which parameters have none after one `backward`?
# * *boundary and count*: what does the longest allowed text do, and how many parameters does each part have?
#
# Then write the module that is meant. It has the parts of the page's model under the same names, `embedding`,
# `positions`, `norm_1`, `attention`, `norm_2`, `ff` and `logits`, and one more, `norm`: an `nn.LayerNorm`.

# %% exercise="ReviewedLM"
class ReviewedLM(nn.Module):
    """A decoder-only language model of pre-norm layers."""

    def __init__(
        self, vocab_size: int, d_model: int, n_heads: int, n_layers: int, max_length: int = 128
    ):
        ...  # solution

    def forward(self, tokens: Tensor) -> Tensor:
        """tokens: (batch, n), whole numbers, n at most max_length

        returns logits, (batch, n, vocab_size)
        """
        ...  # solution

# %% check="ReviewedLM"
check("ReviewedLM", ReviewedLM)

# %% [markdown]
# **Use it.** Train the page's model and yours on number words, letter by letter, from three seeds each. *Guess
# first:* would the loss alone make you suspicious? Then each model reads the same 100 texts once more, as it does
# when it writes: each call adds one letter, and only the newest prediction counts. For a causal model both losses are
# equal. Last, each model writes 100 texts, and we count how many of their words exist.

# %%
if solved("ReviewedLM"):
    from attncourse.data import number_words

    pairs = number_words("en", "de", train=2000, test=1).train
    spelled = [f"{pair.source}\n" for pair in pairs]
    words = set("".join(spelled).split())
    letters = sorted(set("".join(spelled)))
    ids = torch.tensor([letters.index(letter) for letter in "".join(spelled)])
    fresh = ids[: 100 * 25].view(100, 25)

    def loss_of(logits, targets):
        return nn.functional.cross_entropy(logits.flatten(0, -2), targets.flatten())

    def write(model, draws):
        texts = torch.full((100, 1), letters.index("\n"))
        for _ in range(24):
            probabilities = model(texts)[:, -1].softmax(dim=-1)
            drawn = torch.multinomial(probabilities, 1, generator=draws)
            texts = torch.cat([texts, drawn], dim=1)
        return ["".join(letters[i] for i in text) for text in texts.tolist()]

    for kind in (PageLM, ReviewedLM):
        for seed in range(3):
            torch.manual_seed(seed)
            model = kind(len(letters), 32, 4, 2)
            optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
            for _ in range(200):
                starts = torch.randint(2500, len(ids) - 25, (16, 1))
                batch = ids[starts + torch.arange(25)]
                loss = loss_of(model(batch[:, :-1]), batch[:, 1:])
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            with torch.no_grad():
                at_once = loss_of(model(fresh[:, :-1]), fresh[:, 1:])
                grown = [loss_of(model(fresh[:, :k])[:, -1], fresh[:, k]) for k in range(1, 25)]
                texts = write(model, torch.Generator().manual_seed(seed))
            written = [word for text in texts for word in text.split()[:-1]]
            real = sum(word in words for word in written) / len(written)
            print(f"{kind.__name__:>10} {seed}: in one call {at_once:.3f}, letter by letter"
                  f" {sum(grown) / 24:.3f}; words that exist: {real:.0%}")
        if solved("prefix_gap"):
            with torch.no_grad():
                gap = prefix_gap(kind(len(letters), 32, 4, 2), fresh)
            print(f"{kind.__name__:>10} before any training: prefix gap {gap:.0e}")
        size = sum(parameter.numel() for parameter in model.parameters())
        print(f"{kind.__name__:>10} has {size:,} parameters, and wrote {texts[0].strip()!r}")

# %% [markdown]
# <details><summary>What to see</summary>
#
# The page's loss falls too, but it stays higher. You might think that this small model learns slowly. Letter by
# letter, however, its loss is *higher* than in one call, for each seed, and no training curve shows that. The prefix
# gap tells the two models apart before any training.
#
# <details><summary>The six faults: open this only when your check passes</summary>
#
# | line | what finds it |
# |---|---|
# | `weight[-n:]`: the *last* n rows, so a token's row depends on the length of the text | a text and its beginnings |
# | `norm_1 = […]` is a plain list: a module does not look into it, so these norms are never trained or saved | count the parameters: `norm_1` has none |
# | `x = x + ff(norm_2(h))`: the sum begins before attention, and what attention found is lost | zero the feed-forward networks alone (with all sublayers zeroed the fault does not show) |
# | `Embedding(128, …)`, whatever `max_len` says | the longest text |
# | `[norm] * n` is *one* module, n times over; `norm_2(x)` after the loop is the last layer's norm again | count the parameters of `norm_2` |
# | `range(1, n)` makes one network too few, and `zip` drops the last layer | no gradient reaches `attention[-1]` |
#
# </details>
#
# </details>

# %% [markdown]
# ## 6 · A test of your own, and its mutants
#
# You get a block that is said to be the pre-norm block of a decoder, and the losses of a training run with it. You
# cannot read its code, but you can call it, and it has two knobs. `block(x, a, f)` multiplies the output of attention
# by the number `a`, and that of the feed-forward network by `f`, before it is added. So `block(x, 1.0, 1.0)` is the
# block as it is, and with 0 a sublayer is zeroed.
#
# A block is **sound** if all of this is true:
#
# * The output of each sublayer is added to the x that came in. With both zeroed, x comes out.
# * Each sublayer gets a normalised x. Its output does not change when x is multiplied by ten.
# * Neither sublayer's output is zero.
# * Attention comes first, and the feed-forward network gets the sum that attention returns: the block is its two halves,
#   one after the other.
# * A position attends to itself and to all positions before it, and to none after it. (Lecture @masking has a test
#   for half of this.)
# * A text gets the same output alone and in a batch: **batch invariance**. (Lecture @order has a test.)
#
# You may rely on this:
#
# * *The input.* `x` is (batch, n, d), with two or more texts of five or more positions. Its numbers are a few units in
#   size, and its vectors are not centred.
# * *The calls.* The same call gives the same output. Calls of `block` do not pass on gradients: compare outputs.
# * *Equal or broken.* Sound blocks may have any kind of norm, and they round: two outputs that should be equal differ by
#   less than 1e-4. In a broken block they differ by more than 1e-2.
# * *The past.* If the vectors at one position are replaced by others of the same size, a sound attention's output moves
#   by more than 1e-3 at this position and at every later one, in at least one text of the batch.

# %% exercise="structural_test"
def structural_test(
    block: Callable[[Tensor, float, float], Tensor], x: Tensor, losses: list[float]
) -> bool:
    """Whether `block` is a sound pre-norm block of a decoder.

    block: block(x, a, f), in this order and without names; takes (batch, n, d) for any batch
        and n, and two numbers, and returns (batch, n, d)
    x: (batch, n, d), an input to begin with; leave it as it is
    losses: those of a training run with this block, first to last
    returns True if the block is sound, False if it is broken
    """
    ...  # solution

# %% check="structural_test"
check("structural_test", structural_test)

# %% [markdown]
# **Use it:** mutation testing of your test. Ten of the lecture's fourteen faults change a block: five change its
# wiring or its mask, five its norms. *Guess first:* which of the ten must your test let live, because a sound block
# may have any kind of norm? And which two of the changed norms must it kill all the same?

# %%
if solved("structural_test"):
    from attncourse_lessons.slides.model import SlideModel

    def block_with(*faults):
        torch.manual_seed(0)
        inner = SlideModel(20, d_model=16, d_ff=32, max_length=32, faults=faults).blocks[0]

        @torch.no_grad()
        def block(x, a, f):
            if "the residual from the normalised x" in faults:
                x = inner.norm_1(x)
                x = x + a * inner.attend(x)
                x = inner.norm_2(x)
                return x + f * inner.down(inner.up(x).relu())
            x = x + a * inner.attend(inner.norm_1(x))
            return x + f * inner.down(inner.up(inner.norm_2(x)).relu())

        return block

    x = 2 * torch.randn(3, 7, 16, generator=torch.Generator().manual_seed(1)) + 1
    mutants = ("i > i", "not even itself", "weights set to 0", "sum over the query",
               "the residual from the normalised x", "a sum for the mean",
               "a product for the difference", "a root too many", "unit mean",
               "ε outside the root")
    for faults in [(), *((name,) for name in mutants)]:
        sound = structural_test(block_with(*faults), x, [3.0, 2.5, 2.2])
        name = " ".join(faults).replace("the residual from the normalised x", "printed block")
        print(f"{name or 'the repaired one':>28}: {'lives' if sound else 'killed'}")

# %% [markdown]
# <details><summary>What to see</summary>
#
# Three must live: *a sum for the mean*, *unit mean* and *ε outside the root*. Each is another norm, but its output
# stays the same when x is multiplied by ten. *A root too many* is killed: it divides by √σ, so its output grows by a
# factor of √10. *A product for the difference* is killed, too: its σ is made of products, which grow with the square
# of x, so its output shrinks. To kill the other three you need a peer: torch's LayerNorm, if LayerNorm was promised.
#
# Your test had no use for `losses`. A falling loss does not show that the block is the one that was promised.
#
# </details>

# %% [markdown]
# ## 7 · In your own words: the loss fell
#
# A fellow student has copied the block of a slide, in which both residual connections start at the normalised x. You
# say so, and get the answer: "I trained it. The loss fell to what the paper reports, within the spread over three
# seeds. So it cannot be wrong."
#
# **(a)** What does the falling loss show, and what does it not show? **(b)** Name one circumstance in which the two
# blocks *would* train differently, and say why. **(c)** Which single test, without any training, shows that this
# block is *not* what its comment says, "pre-normalization"? Say what is compared with what. And name a block that passes
# this test and is not pre-norm either.
#
# Answer in five to eight sentences. (3 points)

# %% [markdown] written="the-loss-fell" points=3 minutes=10 difficulty=2
# ### BEGIN SOLUTION
# **Mark scheme.** One point for each.
#
# 1. (a) It shows that something is learned at this size with these settings, and that gradients arrive. It does not
#    show that the model is the one that was meant: many faults can be learned around, and here the printed stack is
#    (but for its ends) a post-norm stack, a good model of another kind. (Half a point for "a loss is not enough"
#    without a reason.)
# 2. (b) One of: many blocks, where post-norm's gradients are uneven; the full learning rate from the first step,
#    without a warm-up; with a reason (the free path through the sums is gone, so that every gradient goes through
#    each norm). "With other data" earns nothing.
# 3. (c) Zero the sublayers (set the matrices that they write with to zero) and compare the block's output with its
#    input, on vectors that are neither centred nor of size one: in a pre-norm block they are equal, here they are not.
#    Half a point; none where x is, or may be, normalised already, since then the test sees nothing. Half a point for a
#    block that passes: one without any norm, x + f(x), or with res-post-norm, x + norm(f(x)). (Comparing with
#    a trusted implementation after copying the weights is as good; that nothing else passes it is then the second half.)
# ### END SOLUTION

# %% [markdown]
# ## 8 · In your own words: be fair
#
# A slide says: "After LayerNorm, the mean and variance of vector elements is 0 and 1 … variance of sum = sum of
# variances = $d_k$."
#
# **(a)** Write the strongest version of this claim that is true, with its conditions. **(b)** What has to be computed
# or measured to see that it does not hold for the q and k of an untrained layer? Give the quantity, not a number. **(c)** You are about
# to write to the author. Which three things belong in the message, so that it can be checked in a minute?
#
# Answer in five to eight sentences. (3 points)

# %% [markdown] written="be-fair" points=3 minutes=10 difficulty=2
# ### BEGIN SOLUTION
# **Mark scheme.** One point for each.
#
# 1. (a) If the components of q and k are independent, with mean 0 and variance 1, then q · k has mean 0 and variance
#    d_k. Conditions and conclusion are both needed; "for random vectors" alone gets half a point.
# 2. (b) The variance of the components of $xW_Q$ and $yW_K$ (or of their product), for normalised x and y: it is
#    decided by the matrices, and for the usual start of a linear layer it is not 1. LayerNorm acts on x, before the
#    matrices.
# 3. (c) Where it stands (slide or heading), what it says and what it should say, and a small piece of code that fails
#    on the one and passes on the other. Also good: what follows from it in practice, and that it may be a slip of a
#    transcription. Two of the three get half a point.
# ### END SOLUTION

# %% [markdown]
# ## Extension: what a step needs of the past
#
# The four extensions from here on are more lines to repair. They are worth extra credit, and you lose nothing by leaving
# them out.
#
# "At every timestep, we could change the set of keys and queries to include only past words (Inefficient!)", say three
# decks. They mean attention over the prefix, recomputed in full. A programmer took the line for a list of what must be
# *kept*, and programmed this:

# %% locked=true
def past_misread(x, W_Q, W_K, W_V):
    rows = []
    for t, _ in enumerate(x):
        queries, keys, value = x[: t + 1] @ W_Q, x[: t + 1] @ W_K, x[t : t + 1] @ W_V
        weights = torch.softmax(queries @ keys.mT / math.sqrt(keys.shape[-1]), -1)
        rows.append(weights @ value)
    return torch.stack(rows)


# %% exercise="repair_past"
def repair_past(x: Tensor, W_Q: Tensor, W_K: Tensor, W_V: Tensor) -> Tensor:
    """Causal self-attention of a text that comes token by token.

    x: (n, d)   W_Q, W_K: (d, d_k)   W_V: (d, d_v)
    returns (n, d_v): row t is the output of token t when it is the newest
        (scaled dot product)
    """
    ...  # solution

# %% check="repair_past"
check("repair_past", repair_past)

# %% [markdown]
# **Use it:** two metamorphic relations. *Guess first:* of a text of eight tokens, which rows of the output may move if
# token 3 changes, and which if the last three tokens are left out?

# %%
if solved("repair_past"):
    draws = torch.Generator().manual_seed(0)
    x = torch.randn(8, 6, generator=draws)
    matrices = 0.4 * torch.randn(3, 6, 4, generator=draws)        # W_Q, W_K, W_V
    rows, other = repair_past(x, *matrices), x.clone()
    other[3] += 1
    moved = (repair_past(other, *matrices) - rows).abs().amax(dim=-1) > 1e-6
    print("token 3 changed: rows", moved.nonzero().flatten().tolist(), "move")
    shorter = repair_past(x[:5], *matrices)
    off = (shorter - rows[:5]).abs().max()
    print(f"three tokens fewer: the first five rows move by {off:.0e}")
    try:
        past_misread(x, *matrices)
    except RuntimeError as error:
        print("the misread line:", error)

# %% [markdown]
# <details><summary>What to see</summary>
#
# Rows 3 to 7 move: token 3 itself and all that attend to it. Rows 0 to 2 stay, and so do the first five when the last
# three tokens are left out. That is why a cache works: what is computed for a token never changes later. The misread line
# keeps t + 1 queries and one value, so its shapes do not fit at the second token. (Here `+= 1` changes the outputs. In a
# block whose norm subtracts the mean it would change nothing.)
#
# </details>

# %% [markdown]
# ## Extension: absolute, or relative?
#
# One deck prints Shaw's formula, $e_{ij} = x_i W_Q\,(x_j W_K + a_{ij})^\top / \sqrt d$, under the heading *Absolute*.
# A programmer believed the heading:

# %% locked=true
def relative_as_printed(query, key, table):
    a = table[: len(key)]
    return query @ (key + a).mT / math.sqrt(query.shape[-1])


# %% exercise="repair_relative"
def repair_relative(query: Tensor, key: Tensor, table: Tensor) -> Tensor:
    """Scaled dot products; to each key the vector of its distance from the query is added.

    query, key: (n, d)
    table: (2 k + 1, d), a row for each distance j − i from −k to k, in this order
        (distances beyond count as −k or k)
    returns (n, n): in row i and column j the score of the query at i with the key at j
    """
    ...  # solution

# %% check="repair_relative"
check("repair_relative", repair_relative)

# %% [markdown]
# **Use it:** a metamorphic relation that says what *relative* means. Five tokens stand at the places 0 to 4, then, after
# three other tokens, at 3 to 7. *Guess first:* which version gives the five the same scores with each other in both
# places?

# %%
if solved("repair_relative"):
    draws = torch.Generator().manual_seed(0)
    query, key = torch.randn(2, 8, 4, generator=draws)            # (8, 4) each
    table = torch.randn(2 * 7 + 1, 4, generator=draws)            # distances −7 to 7
    for version in (relative_as_printed, repair_relative):
        later = version(query, key, table)[3:, 3:]                # (5, 5)
        first = version(query[3:], key[3:], table)                # (5, 5)  the same five tokens
        print(f"{version.__name__:>19}: scores move by {(later - first).abs().max():.0e}")

# %% [markdown]
# <details><summary>What to see</summary>
#
# Your scores do not move: the five tokens have the same distances from each other in both places. As printed, the vector
# belongs to the key's own place, and all five places have changed: that is an absolute position, whatever the formula
# says.
#
# </details>

# %% [markdown]
# ## Extension: two texts of one length
#
# "output = softmax(ZQ(HK)ᵀ) × HV", say two decks of cross-attention, and one of them adds that the table of scores is
# in R^(T×T). A programmer typed the line as it stands, with its ×:

# %% locked=true
def cross_attention_as_printed(Z, H, W_Q, W_K, W_V):
    T = len(Z)
    table = torch.softmax((Z @ W_Q @ (H @ W_K).mT).view(T, T), -1)
    return table * (H @ W_V), table


# %% [markdown]
# Three things in it are not what a Transformer does.

# %% exercise="repair_cross_attention"
def repair_cross_attention(
    Z: Tensor, H: Tensor, W_Q: Tensor, W_K: Tensor, W_V: Tensor
) -> tuple[Tensor, Tensor]:
    """Cross-attention: each target token attends to all source tokens (scaled dot product).

    Z: (n_target, d), the decoder's states   H: (n_source, d), the encoder's
    W_Q, W_K: (d, d_k)   W_V: (d, d_v)
    returns the output (n_target, d_v) and the weights (n_target, n_source)
    """
    ...  # solution

# %% check="repair_cross_attention"
check("repair_cross_attention", repair_cross_attention)

# %% [markdown]
# **Use it** on three target and five source tokens. *Guess first:* the source tokens come in another order. What happens
# to the outputs, and what happens to the weights?

# %%
if solved("repair_cross_attention"):
    draws = torch.Generator().manual_seed(0)
    Z, H = torch.randn(3, 6, generator=draws), torch.randn(5, 6, generator=draws)
    matrices, order = torch.randn(3, 6, 4, generator=draws), torch.tensor([4, 2, 0, 1, 3])
    output, weights = repair_cross_attention(Z, H, *matrices)     # (3, 4), (3, 5)
    output_again, weights_again = repair_cross_attention(Z, H[order], *matrices)
    print(f"another order: the outputs move by {(output_again - output).abs().max():.0e}")
    exchanged = torch.allclose(weights_again, weights[:, order])
    print("the columns of the weights are exchanged in the same way:", exchanged)
    try:
        cross_attention_as_printed(Z, H, *matrices)
    except RuntimeError as error:
        print("as printed:", error)

# %% [markdown]
# <details><summary>What to see</summary>
#
# The outputs stay, up to rounding: a weighted sum does not depend on the order of its terms. The columns of the weights
# change places as the source tokens do. So cross-attention alone does not know the source's order; the encoder's states
# must say it. As printed, the view (T, T) fails as soon as the two texts differ in length.
#
# </details>

# %% [markdown]
# ## Extension: which number is wrong?
#
# One deck copies a table of model sizes from a paper, faithfully. In two rows the heads, side by side, are not as
# wide as the model: 24 heads of 128 for a width of 2048, and 40 heads of 128 for 5140. In each *one* of the two
# numbers, the width or the number of heads, is a misprint. The number of parameters in the blocks tells which: a
# block has four matrices of $d \times d$, and two of $d \times 4d$.

# %% locked=true
def row_as_printed(n_layers, d_model, n_heads, d_head, parameters):
    return d_model, n_heads


# %% exercise="repair_row"
def repair_row(
    n_layers: int, d_model: int, n_heads: int, d_head: int, parameters: int
) -> tuple[int, int]:
    """The width and the number of heads that were meant.

    n_layers, d_model, n_heads, d_head: as printed; d_model or n_heads may be wrong, not both
    parameters: how many numbers all blocks hold, to within one part in three hundred
    returns d_model and n_heads, with n_heads · d_head = d_model
    """
    ...  # solution

# %% check="repair_row"
check("repair_row", repair_row)

# %% [markdown]
# **Use it** on the two rows. The paper gives the parameters of the whole model; from these we subtract the embeddings of
# 50,257 tokens and 2,048 positions. *Guess first:* is the misprint in the same column both times?

# %%
if solved("repair_row"):
    rows = {"XL": (24, 2048, 24, 1_320_000_000), "13B": (40, 5140, 40, 12_850_000_000)}
    for name, (n_layers, d_model, n_heads, in_all) in rows.items():
        in_blocks = in_all - (50_257 + 2_048) * d_model
        width, heads = repair_row(n_layers, d_model, n_heads, 128, in_blocks)
        print(f"{name:>3}: printed {d_model}, {n_heads} heads; meant {width}, {heads} heads")

# %% [markdown]
# <details><summary>What to see</summary>
#
# It is not. In XL the number of heads is wrong, 24 for 16; in 13B the width is wrong, 5140 for 5120. The first relation,
# heads times their width is the model's width, says *that* something is wrong. The second, the number of parameters, says
# *what*.
#
# </details>
