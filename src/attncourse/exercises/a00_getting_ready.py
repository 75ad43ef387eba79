"""Assignment 00: a stable softmax, a batch of unequal sequences, and a mean that knows who is there.

Function bodies below stand in for a learner's: they use torch alone, and the argument names of the contract.
"""

import torch

from attncourse import attention, data
from attncourse.exercises.core import Exercise
from attncourse.exercises.judge import arrives, row_sums, told
from attncourse.exercises.observe import gradients, telling

SOFTMAX = (
    "attncourse.attention",
    "attncourse.efficient",
    "torch.softmax",
    "torch.Tensor.softmax",
    "torch.nn.functional.softmax",
    "torch.nn.Softmax",
    "torch.log_softmax",
    "torch.Tensor.log_softmax",
    "torch.nn.functional.log_softmax",
    "torch.nn.LogSoftmax",
    "torch.nn.functional.softmin",
    "torch.special.softmax",
    "torch.special.log_softmax",
    "torch.logsumexp",
    "torch.Tensor.logsumexp",
    "torch.special.logsumexp",
)


def _coarse(tensor):
    """Rounded so that adding a thousand loses no digits in float32."""
    return (64 * tensor).round() / 64


def _shift(rows):
    """(rows, 1): 1000, −1000, 1000, …"""
    return 1000.0 * (-1) ** torch.arange(rows)[:, None]


# ----------------------------------------------------------------------------------------------------------- pad_batch

pad_batch = Exercise(
    "pad_batch",
    reference=data.pad_batch,
    returns=("tokens", "mask"),
    forbidden=("attncourse.data.batches", "attncourse.attention", "torch.nn.utils.rnn.pad_sequence"),
    difficulty=1,
    minutes=12,
    hints=(
        "How wide must the rectangle be? Fill it with `pad` first, or lengthen each list by as many as it lacks: "
        "`sequence + [pad] * k` is a new list and leaves the old one alone.",
        "A position is real if it lies before the end of its sequence: that is a question about positions and lengths, "
        "not about ids.",
        "`torch.arange(n)` is (n,) and the lengths, with `[:, None]`, are (batch, 1). What shape does a comparison of "
        "the two have?",
    ),
)


def _sequences(draw):
    """Three to five lists of ids of different lengths, a middling one first, and a pad id that none of them has."""
    short = draw.sizes(2 + draw.integers(3, 1).item(), 1, 5)
    longest = 6 + draw.integers(3, 1).item()  # more positions than sequences
    middling = sorted(short)[-1]
    others = [*(n for n in short if n != middling), longest]
    lengths = [middling, *others[:: 1 - 2 * draw.integers(2, 1).item()]]
    return [(1 + draw.integers(89, n)).tolist() for n in lengths], 90 + draw.integers(9, 1).item()


@pad_batch.aspect("tokens", points=2)
def _(answer, draw):
    """a row for each sequence, filled up with the pad's id"""
    return answer(*_sequences(draw))[0]


@pad_batch.aspect("mask", points=2)
def _(answer, draw):
    """True where there is a token, False in the padding"""
    return answer(*_sequences(draw))[1]


@pad_batch.aspect("a token with the pad's id", points=1)
def _(answer, draw):
    """is a token all the same: the lengths decide, not the ids"""
    sequences, pad = _sequences(draw)
    for sequence in sequences:
        sequence[-1] = pad
    return answer(sequences, pad)[1]


def _kind(got, expected):
    """Says that the ids are of the wrong type."""
    return "the tokens are not whole numbers, and nothing can be looked up under the id 3.0"


@pad_batch.aspect("whole numbers", points=1, explain=_kind)
def _(answer, draw):
    """integers, so that an embedding can look them up"""
    tokens, _ = answer(*_sequences(draw))
    telling(tokens)
    return torch.tensor(not tokens.is_floating_point() and tokens.dtype != torch.bool)


MASKS = ("mask", "a token with the pad's id")


@pad_batch.misconception("the mask from the ids", fails=("a token with the pad's id",))
def _(sequences, pad):
    """Whoever compares ids with `pad` takes a real token of that id for padding. That happens: many language models pad
    with their end-of-text token, and then never learn to stop, because every real end is masked away. The lengths know
    better."""
    n = max(len(sequence) for sequence in sequences)
    tokens = torch.tensor([sequence + [pad] * (n - len(sequence)) for sequence in sequences])
    return tokens, tokens != pad


@pad_batch.misconception("pads kept", fails=MASKS)
def _(sequences, pad):
    """Your mask says that every position is real, so an average over it takes in the padding, too. If you measured the
    lengths after filling up, they are all the same by then: measure before, and build new lists (`s + […]`) rather than
    lengthen your caller's (`s += […]`, `s.append`)."""
    n = max(len(sequence) for sequence in sequences)
    tokens = torch.tensor([sequence + [pad] * (n - len(sequence)) for sequence in sequences])
    return tokens, torch.ones_like(tokens, dtype=torch.bool)


@pad_batch.misconception("mask upside down", fails=MASKS)
def _(sequences, pad):
    """The mask is True where the padding is. In this course True means "there is a token here, it counts". (Some of
    torch's functions mean the opposite by their `key_padding_mask`, so always say what True means.)"""
    n = max(len(sequence) for sequence in sequences)
    tokens = torch.tensor([sequence + [pad] * (n - len(sequence)) for sequence in sequences])
    lengths = torch.tensor([len(sequence) for sequence in sequences])
    return tokens, torch.arange(n) >= lengths[:, None]


@pad_batch.variant("mask upside down", "the mask from the ids", fails=MASKS)
def _(sequences, pad):
    """By the ids."""
    n = max(len(sequence) for sequence in sequences)
    tokens = torch.tensor([sequence + [pad] * (n - len(sequence)) for sequence in sequences])
    return tokens, tokens == pad


@pad_batch.misconception("a mask of numbers", fails=MASKS)
def _(sequences, pad):
    """The mask holds zeros and ones. They look like False and True and act differently: `~` of the number 1 is −2, and
    indexing with numbers picks rows 0 and 1 over and over. A mask is boolean; a comparison makes one."""
    n = max(len(sequence) for sequence in sequences)
    tokens = torch.tensor([sequence + [pad] * (n - len(sequence)) for sequence in sequences])
    mask = torch.tensor([[1] * len(sequence) + [0] * (n - len(sequence)) for sequence in sequences])
    return tokens, mask


@pad_batch.variant("a mask of numbers", fails=MASKS)
def _(sequences, pad):
    """As floats."""
    n = max(len(sequence) for sequence in sequences)
    tokens = torch.full((len(sequences), n), pad)
    mask = torch.zeros(len(sequences), n)
    for i, sequence in enumerate(sequences):
        tokens[i, : len(sequence)] = torch.tensor(sequence)
        mask[i, : len(sequence)] = 1
    return tokens, mask


@pad_batch.variant("a mask of numbers", "the mask from the ids", fails=MASKS)
def _(sequences, pad):
    """From the ids."""
    n = max(len(sequence) for sequence in sequences)
    tokens = torch.tensor([sequence + [pad] * (n - len(sequence)) for sequence in sequences])
    return tokens, (tokens != pad).long()


@pad_batch.misconception("one position off", fails=MASKS)
def _(sequences, pad):
    """Each mask ends one position too late or too early. A sequence of length 3 has the positions 0, 1 and 2: put these
    numbers into your comparison."""
    n = max(len(sequence) for sequence in sequences)
    tokens = torch.tensor([sequence + [pad] * (n - len(sequence)) for sequence in sequences])
    lengths = torch.tensor([len(sequence) for sequence in sequences])
    return tokens, torch.arange(n) <= lengths[:, None]


@pad_batch.variant("one position off", fails=MASKS)
def _(sequences, pad):
    """Too early."""
    n = max(len(sequence) for sequence in sequences)
    tokens = torch.tensor([sequence + [pad] * (n - len(sequence)) for sequence in sequences])
    lengths = torch.tensor([len(sequence) for sequence in sequences])
    return tokens, torch.arange(n) < lengths[:, None] - 1


@pad_batch.misconception("the lengths lack an axis", fails=("tokens", *MASKS, "whole numbers"))
def _(sequences, pad):
    """Positions are (n,) and lengths are (batch,): two rows, which torch tries to pair one by one. You want every
    position compared with every length, which makes a table, so one of the two has to stand upright. Which one belongs
    to the rows of the result?"""
    n = max(len(sequence) for sequence in sequences)
    tokens = torch.tensor([sequence + [pad] * (n - len(sequence)) for sequence in sequences])
    lengths = torch.tensor([len(sequence) for sequence in sequences])
    return tokens, torch.arange(n) < lengths


@pad_batch.misconception("sorted by length", fails=("tokens", *MASKS))
def _(sequences, pad):
    """The rows are in the order of their lengths. Some recurrent code sorts a batch like that; here row i must be
    sequence i, or nobody can say afterwards whose result is whose."""
    ordered = sorted(sequences, key=len, reverse=True)
    n = len(ordered[0])
    tokens = torch.tensor([sequence + [pad] * (n - len(sequence)) for sequence in ordered])
    lengths = torch.tensor([len(sequence) for sequence in ordered])
    return tokens, torch.arange(n) < lengths[:, None]


@pad_batch.misconception("zeros for the pad", fails=("tokens",))
def _(sequences, pad):
    """The rows were filled up with 0. Which id stands for padding is the caller's choice, and the id 0 may be an
    ordinary token: fill up with `pad`."""
    n = max(len(sequence) for sequence in sequences)
    tokens = torch.zeros(len(sequences), n, dtype=torch.long)
    mask = torch.zeros(len(sequences), n, dtype=torch.bool)
    for i, sequence in enumerate(sequences):
        tokens[i, : len(sequence)] = torch.tensor(sequence)
        mask[i, : len(sequence)] = True
    return tokens, mask


@pad_batch.variant("zeros for the pad", "the mask from the ids", fails=("tokens", *MASKS))
def _(sequences, pad):
    """And looked for `pad`, which is nowhere."""
    n = max(len(sequence) for sequence in sequences)
    tokens = torch.tensor([sequence + [0] * (n - len(sequence)) for sequence in sequences])
    return tokens, tokens != pad


@pad_batch.misconception("padding in front", fails=("tokens", *MASKS))
def _(sequences, pad):
    """The sequences stand at the right edge. Some language models want it so; the contract here wants each sequence to
    begin at position 0 and the padding after it."""
    n = max(len(sequence) for sequence in sequences)
    tokens = torch.tensor([[pad] * (n - len(sequence)) + sequence for sequence in sequences])
    lengths = torch.tensor([len(sequence) for sequence in sequences])
    return tokens, torch.arange(n) >= n - lengths[:, None]


@pad_batch.variant("padding in front", fails=("tokens",))
def _(sequences, pad):
    """With the mask of padding at the end."""
    n = max(len(sequence) for sequence in sequences)
    tokens = torch.tensor([[pad] * (n - len(sequence)) + sequence for sequence in sequences])
    lengths = torch.tensor([len(sequence) for sequence in sequences])
    return tokens, torch.arange(n) < lengths[:, None]


@pad_batch.misconception("cut to the shortest", fails=("tokens", *MASKS))
def _(sequences, pad):
    """Every sequence was cut to the length of the shortest, and what was beyond is lost. (`zip` does this without a
    word.) The rectangle must be as wide as the longest."""
    n = min(len(sequence) for sequence in sequences)
    tokens = torch.tensor([sequence[:n] for sequence in sequences])
    return tokens, torch.ones(len(sequences), n, dtype=torch.bool)


@pad_batch.misconception("as wide as the first", fails=("tokens", *MASKS))
def _(sequences, pad):
    """The first sequence decided how wide the rectangle is. It is the longest only by chance."""
    n = len(sequences[0])
    tokens = torch.tensor([(sequence + [pad] * n)[:n] for sequence in sequences])
    lengths = torch.tensor([len(sequence) for sequence in sequences])
    return tokens, torch.arange(n) < lengths[:, None]


@pad_batch.misconception("positions first", fails=("tokens", *MASKS))
def _(sequences, pad):
    """Rows and columns are swapped: (n, batch). Some older recurrent code wants it so; here the batch comes first, a
    row for each sequence."""
    n = max(len(sequence) for sequence in sequences)
    tokens = torch.tensor([sequence + [pad] * (n - len(sequence)) for sequence in sequences])
    lengths = torch.tensor([len(sequence) for sequence in sequences])
    return tokens.mT, (torch.arange(n) < lengths[:, None]).mT


@pad_batch.misconception("ids as decimal numbers", fails=("whole numbers",))
def _(sequences, pad):
    """The ids are floating-point numbers: `torch.zeros`, `torch.ones` and `torch.empty` make floats unless told a
    dtype. An id is a place in a table, and a table has no row 3.0: an embedding refuses such ids."""
    n = max(len(sequence) for sequence in sequences)
    tokens = torch.zeros(len(sequences), n) + pad
    mask = torch.zeros(len(sequences), n, dtype=torch.bool)
    for i, sequence in enumerate(sequences):
        tokens[i, : len(sequence)] = torch.tensor(sequence, dtype=torch.float)
        mask[i, : len(sequence)] = True
    return tokens, mask


@pad_batch.variant("ids as decimal numbers", "zeros for the pad", fails=("tokens", "whole numbers"))
def _(sequences, pad):
    """Zeros, as floats."""
    n = max(len(sequence) for sequence in sequences)
    tokens = torch.zeros(len(sequences), n)
    mask = torch.zeros(len(sequences), n, dtype=torch.bool)
    for i, sequence in enumerate(sequences):
        tokens[i, : len(sequence)] = torch.tensor(sequence, dtype=torch.float)
        mask[i, : len(sequence)] = True
    return tokens, mask


@pad_batch.misconception("the mask before the tokens", fails=("tokens", *MASKS, "whole numbers"))
def _(sequences, pad):
    """Both are there, in the wrong order: the contract says tokens, then mask."""
    n = max(len(sequence) for sequence in sequences)
    tokens = torch.tensor([sequence + [pad] * (n - len(sequence)) for sequence in sequences])
    lengths = torch.tensor([len(sequence) for sequence in sequences])
    return torch.arange(n) < lengths[:, None], tokens


@pad_batch.alternative("lists, then one tensor")
def _(sequences, pad):
    """Lengthens copies of the lists."""
    n = max(map(len, sequences))
    tokens = torch.tensor([[*sequence, *[pad] * (n - len(sequence))] for sequence in sequences])
    mask = torch.tensor([[i < len(sequence) for i in range(n)] for sequence in sequences])
    return tokens, mask


@pad_batch.alternative("a full rectangle, row by row")
def _(sequences, pad):
    """Fills with the pad and writes over it."""
    n = max(len(sequence) for sequence in sequences)
    tokens = torch.full((len(sequences), n), pad)
    mask = torch.zeros(tokens.shape, dtype=torch.bool)
    for i, sequence in enumerate(sequences):
        tokens[i, : len(sequence)] = torch.as_tensor(sequence)
        mask[i, : len(sequence)] = True
    return tokens, mask


@pad_batch.alternative("poured through the mask")
def _(sequences, pad):
    """The mask first; then all tokens at once into the places that are True."""
    lengths = torch.tensor([len(sequence) for sequence in sequences])
    mask = torch.arange(int(lengths.max())).expand(len(sequences), -1) < lengths.unsqueeze(1)
    tokens = torch.full(mask.shape, pad)
    tokens[mask] = torch.tensor([token for sequence in sequences for token in sequence])
    return tokens, mask


@pad_batch.alternative("columns, not contiguous, int32")
def _(sequences, pad):
    """Builds position by position and returns transposed views."""
    n = max(len(sequence) for sequence in sequences)
    columns = [[sequence[i] if i < len(sequence) else pad for sequence in sequences] for i in range(n)]
    real = [[i < len(sequence) for sequence in sequences] for i in range(n)]
    return torch.tensor(columns, dtype=torch.int32).mT, torch.tensor(real).mT


@pad_batch.alternative("torch's pad, stacked")
def _(sequences, pad):
    """`torch.nn.functional.pad` for each row; the mask padded alike."""
    n = max(len(sequence) for sequence in sequences)
    pairs = [(torch.tensor(sequence), (0, n - len(sequence))) for sequence in sequences]
    tokens = torch.stack([torch.nn.functional.pad(row, missing, value=pad) for row, missing in pairs])
    mask = torch.stack([torch.nn.functional.pad(torch.ones_like(row), missing) for row, missing in pairs])
    return tokens, mask.bool()


# --------------------------------------------------------------------------------------------------------- masked_mean

masked_mean = Exercise(
    "masked_mean",
    reference=attention.masked_mean,
    returns=("mean",),
    forbidden=("attncourse.attention", "torch.masked.mean", "torch.nanmean", "torch.Tensor.nanmean"),
    difficulty=2,
    minutes=15,
    hints=(
        "Two things go into a mean: a sum over the real positions, and how many there are. Write both shapes down: "
        "values are (batch, n, d), the mask (batch, n); which axis must the mask gain, and which must the count keep?",
        "A product does not silence ∞, for 0 · ∞ is NaN. *Choose* between the value and 0 by the mask: "
        "`masked_fill`, with `~mask[..., None]`, or `torch.where`.",
        "Where nothing is real the sum is 0 already. What may you divide it by, so that 0/0 never happens and no "
        "other row's mean changes? See `clamp(min=…)`.",
    ),
)


def _padded(draw, filled_with=0.0):
    """Values (batch, n, d) with something in the padding, and the mask (batch, n) that says where it is."""
    batch, n, d = draw.sizes(3, 3, 8)
    mask = draw.padding_mask(batch, n)
    return torch.where(mask[..., None], draw.normal(batch, n, d), filled_with), mask


@masked_mean.aspect("nothing to leave out", points=1)
def _(answer, draw):
    """where every position is real, the plain mean over them"""
    batch, n, d = draw.sizes(3, 3, 8)
    return answer(draw.normal(batch, n, d), torch.ones(batch, n, dtype=torch.bool))


@masked_mean.aspect("short sequences", points=2)
def _(answer, draw):
    """a short sequence has the mean that it has alone"""
    return answer(*_padded(draw))


@masked_mean.aspect(
    "what stands in the padding",
    points=1,
    explain=told("mean {place} changes by {size} when only the padding changes"),
)
def _(answer, draw):
    """changes nothing"""
    values, mask = _padded(draw)
    other = values + 5 * draw.normal(*values.shape) * ~mask[..., None]
    return telling(answer(values, mask)) - answer(other, mask)


@masked_mean.aspect("∞ in the padding", points=1)
def _(answer, draw):
    """changes nothing either"""
    return answer(*_padded(draw, torch.inf))


@masked_mean.aspect("nothing but padding", points=1)
def _(answer, draw):
    """zeros where nobody is there, and only there"""
    batch, n, d = draw.sizes(3, 3, 8)
    mask = torch.ones(batch, n, dtype=torch.bool)
    mask[1 + draw.integers(batch - 1, 1)] = False
    return answer(draw.normal(batch, n, d), mask)


@masked_mean.aspect("gradient", points=1, explain=arrives("values"))
def _(answer, draw):
    """the values can be learned: the gradient reaches them"""
    batch, n, d = draw.sizes(3, 3, 8)
    values = draw.normal(batch, n, d).requires_grad_()
    return gradients(answer(values, torch.ones(batch, n, dtype=torch.bool)), [values], draw)


EVERY_MEAN = (
    "nothing to leave out",
    "short sequences",
    "what stands in the padding",
    "∞ in the padding",
    "nothing but padding",
    "gradient",
)


@masked_mean.misconception("divided by the padded length", fails=("short sequences", "∞ in the padding"))
def _(values, mask):
    """The sum was divided by n, the width of the rectangle, which is the length of the longest sequence in the batch. A
    short sequence's mean is dragged towards zero, and the longer its neighbours are, the further. Divide each sum by
    how many positions of that row are real."""
    return values.masked_fill(~mask[..., None], 0.0).mean(dim=1)


@masked_mean.variant("divided by the padded length", fails=("short sequences", "∞ in the padding"))
def _(values, mask):
    """By hand."""
    return torch.where(mask[..., None], values, 0.0).sum(dim=1) / values.shape[1]


@masked_mean.misconception(
    "pads kept",
    fails=("short sequences", "what stands in the padding", "∞ in the padding", "nothing but padding"),
)
def _(values, mask):
    """This is the mean of everything that stands in the rectangle, padding and all: the mask was never asked. How many
    positions does a row really have, and which?"""
    return values.mean(dim=1)


@masked_mean.misconception(
    "the padding is in the sum", fails=("what stands in the padding", "∞ in the padding", "nothing but padding")
)
def _(values, mask):
    """The count is right and the sum is not: what stands in the padding was added. The padding holds zeros only if
    somebody put them there, and after one layer of a network it no longer does."""
    return values.sum(dim=1) / mask.sum(dim=1, keepdim=True)


@masked_mean.variant(
    "the padding is in the sum", fails=("what stands in the padding", "∞ in the padding", "nothing but padding")
)
def _(values, mask):
    """With the count guarded."""
    return values.sum(dim=1) / mask.sum(dim=1, keepdim=True).clamp(min=1)


@masked_mean.misconception("multiplied by the mask", fails=("∞ in the padding",))
def _(values, mask):
    """Multiplying by the mask makes 0 of every number in the padding, except of ∞ and NaN: 0 · ∞ is NaN. (Such things
    do stand there: scores set to −∞, memory that nobody wrote to.) Do not multiply what is not there; choose between it
    and 0 by a condition."""
    return (values * mask[..., None]).sum(dim=1) / mask.sum(dim=1, keepdim=True).clamp(min=1)


@masked_mean.variant("multiplied by the mask", fails=("∞ in the padding",))
def _(values, mask):
    """As a matrix product."""
    count = mask.sum(dim=1, keepdim=True).clamp(min=1)
    return (mask[:, None].float() @ values)[:, 0] / count


@masked_mean.variant(
    "divided by the padded length", "multiplied by the mask", fails=("short sequences", "∞ in the padding")
)
def _(values, mask):
    """By a product."""
    return (values * mask[..., None]).mean(dim=1)


@masked_mean.variant("multiplied by the mask", fails=("∞ in the padding",))
def _(values, mask):
    """With the NaN mended, which makes zeros of what was harmed."""
    return ((values * mask[..., None]).sum(dim=1) / mask.sum(dim=1, keepdim=True)).nan_to_num()


@masked_mean.misconception("0/0 where nobody is there", fails=("nothing but padding",))
def _(values, mask):
    """A row of padding alone has the sum 0 and the count 0, and 0/0 is NaN, which spreads to everything computed from
    it. See to it that the divisor is never 0, without changing the others."""
    return values.masked_fill(~mask[..., None], 0.0).sum(dim=1) / mask.sum(dim=1, keepdim=True)


@masked_mean.variant("0/0 where nobody is there", fails=("nothing but padding",))
def _(values, mask):
    """A loop."""
    return torch.stack([row[real].mean(dim=0) for row, real in zip(values, mask, strict=True)])


@masked_mean.variant(
    "0/0 where nobody is there", "multiplied by the mask", fails=("∞ in the padding", "nothing but padding")
)
def _(values, mask):
    """Both, as most people write it first."""
    return (values * mask[..., None]).sum(dim=1) / mask.sum(dim=1, keepdim=True)


@masked_mean.misconception("mask upside down", fails=EVERY_MEAN)
def _(values, mask):
    """The padding was averaged and the tokens were left out. In this course True means "this position counts"."""
    return (values * ~mask[..., None]).sum(dim=1) / (~mask).sum(dim=1, keepdim=True)


@masked_mean.variant("mask upside down", fails=EVERY_MEAN)
def _(values, mask):
    """By choosing."""
    return values.masked_fill(mask[..., None], 0.0).sum(dim=1) / (~mask).sum(dim=1, keepdim=True)


@masked_mean.misconception("zeros for those who are there", fails=EVERY_MEAN)
def _(values, mask):
    """Where every position is real your mean is 0. Either the result was made and never filled, or the positions that
    are real were left out: in this course True means "this position counts", and `masked_fill` fills where *its* mask
    is True."""
    return values.masked_fill(mask[..., None], 0.0).sum(dim=1) / mask.sum(dim=1, keepdim=True).clamp(min=1)


@masked_mean.variant("zeros for those who are there", fails=EVERY_MEAN)
def _(values, mask):
    """And counted upside down."""
    return values.masked_fill(mask[..., None], 0.0).sum(dim=1) / (~mask).sum(dim=1, keepdim=True).clamp(min=1)


@masked_mean.variant("zeros for those who are there", fails=EVERY_MEAN)
def _(values, mask):
    """Without the guard."""
    return values.masked_fill(mask[..., None], 0.0).sum(dim=1) / mask.sum(dim=1, keepdim=True)


@masked_mean.variant("zeros for those who are there", fails=EVERY_MEAN)
def _(values, mask):
    """Never filled."""
    return torch.zeros(values.shape[0], values.shape[2])


@masked_mean.misconception("averaged over the batch", fails=EVERY_MEAN)
def _(values, mask):
    """The axis that has gone is the batch: one mean for each position, over different sequences. Each sequence wants
    its own mean, over its positions. Which axis of (batch, n, d) must go?"""
    total = values.masked_fill(~mask[..., None], 0.0).sum(dim=0)
    return total / mask.sum(dim=0)[:, None].clamp(min=1)


@masked_mean.misconception("averaged over the features", fails=EVERY_MEAN)
def _(values, mask):
    """The axis that has gone is d: each position's features were averaged with each other. The mean keeps the features
    and runs over the positions. Which axis of (batch, n, d) must go?"""
    return values.masked_fill(~mask[..., None], 0.0).mean(dim=-1)


@masked_mean.misconception("one mean for the whole batch", fails=EVERY_MEAN)
def _(values, mask):
    """`values[mask]` picks the real positions of all sequences and puts them into one long list, so the batch is gone
    and the mean is that of them all. Each sequence wants its own."""
    return values[mask].mean(dim=0)


@masked_mean.misconception(
    "divided by the whole batch's count",
    fails=("nothing to leave out", "short sequences", "∞ in the padding", "nothing but padding", "gradient"),
)
def _(values, mask):
    """`mask.sum()` without an axis counts the real positions of the whole batch. Each sequence is divided by its own
    count: sum the mask along one axis."""
    return values.masked_fill(~mask[..., None], 0.0).sum(dim=1) / mask.sum()


@masked_mean.misconception(
    "a sum, not a mean",
    fails=("nothing to leave out", "short sequences", "∞ in the padding", "nothing but padding", "gradient"),
)
def _(values, mask):
    """The positions were added up and not divided by how many there are: a long sequence gets a large result, whatever
    stands in it."""
    return values.masked_fill(~mask[..., None], 0.0).sum(dim=1)


@masked_mean.misconception(
    "one more in the count",
    fails=("nothing to leave out", "short sequences", "∞ in the padding", "nothing but padding", "gradient"),
)
def _(values, mask):
    """Adding 1 to the count keeps 0 from being divided by 0, and makes everybody else's mean too small: four values are
    divided by five. Guard the divisor so that only a count of 0 is changed."""
    return values.masked_fill(~mask[..., None], 0.0).sum(dim=1) / (mask.sum(dim=1, keepdim=True) + 1)


@masked_mean.misconception(
    "an axis of length one is left",
    fails=(
        "nothing to leave out",
        "short sequences",
        "what stands in the padding",
        "∞ in the padding",
        "nothing but padding",
    ),
)
def _(values, mask):
    """The axis of the positions is still there, with length one. Keeping it helps in a division; the result is (batch,
    d) and has it no longer."""
    total = values.masked_fill(~mask[..., None], 0.0).sum(dim=1, keepdim=True)
    return total / mask.sum(dim=1)[:, None, None].clamp(min=1)


@masked_mean.misconception("the count lost its axis", fails=EVERY_MEAN)
def _(values, mask):
    """The counts are (batch,), and torch lines shapes up from the right: next to (batch, d) it takes them for one row
    of d numbers. Here the sizes differ and you are told; were they equal, you would get wrong numbers and no message.
    Keep the axis, with length one."""
    return values.masked_fill(~mask[..., None], 0.0).sum(dim=1) / mask.sum(dim=1)


@masked_mean.variant("the count lost its axis", fails=EVERY_MEAN)
def _(values, mask):
    """Guarded, after a product."""
    return (values * mask[..., None]).sum(dim=1) / mask.sum(dim=1).clamp(min=1)


@masked_mean.misconception("the mask lacks an axis", fails=EVERY_MEAN)
def _(values, mask):
    """The mask is (batch, n) and the values are (batch, n, d). torch lines shapes up from the right, so it would pair n
    with d. Give the mask an axis of length one at its end, and it stretches over the features."""
    return (values * mask).sum(dim=1) / mask.sum(dim=1, keepdim=True)


@masked_mean.variant("the mask lacks an axis", fails=EVERY_MEAN)
def _(values, mask):
    """Without a product."""
    return values.masked_fill(~mask, 0.0).sum(dim=1) / mask.sum(dim=1, keepdim=True).clamp(min=1)


@masked_mean.misconception("cut off from the gradient", fails=("gradient",))
def _(values, mask):
    """The numbers are right, but the gradient does not get through: `.detach()`, `.data`, numpy, `.tolist()` and
    `torch.tensor(...)` hand over bare numbers and forget where they came from, so nothing before them can learn. Stay
    with tensor operations."""
    total = values.detach().masked_fill(~mask[..., None], 0.0).sum(dim=1)
    return total / mask.sum(dim=1, keepdim=True).clamp(min=1)


@masked_mean.alternative("where and keepdim")
def _(values, mask):
    """Chooses with `torch.where`; the count from float sums."""
    kept = torch.where(mask[..., None], values, torch.zeros_like(values))
    count = mask.float().sum(dim=1, keepdim=True)
    return kept.sum(dim=-2) / torch.maximum(count, torch.ones(()))


@masked_mean.alternative("einsum with weights")
def _(values, mask):
    """Equal weights that sum to one, then a weighted average: attention without scores."""
    weights = mask.double() / mask.sum(dim=-1, keepdim=True).clamp(min=1)
    return torch.einsum("bn,bnd->bd", weights, values.double().nan_to_num())


@masked_mean.alternative("one sequence at a time")
def _(values, mask):
    """Picks the real positions of each row, if there are any."""
    means = []
    for row, real in zip(values, mask, strict=True):
        means.append(row[real].mean(dim=0) if real.any() else torch.zeros(row.shape[-1]))
    return torch.stack(means)


@masked_mean.alternative("NaN mended at the end")
def _(values, mask):
    """Lets 0/0 happen and puts zeros there."""
    total = values.masked_fill(~mask.unsqueeze(2), 0).sum(1)
    return (total / mask.sum(1).unsqueeze(1)).nan_to_num(0.0)


@masked_mean.alternative("float64, not contiguous")
def _(values, mask):
    """Features first, double precision, a transposed view returned."""
    first = values.double().permute(2, 0, 1).masked_fill(~mask, 0.0)
    return (first.sum(dim=-1) / (mask.sum(dim=-1) + 1e-12)).mT


# ------------------------------------------------------------------------------------------------------------- softmax

softmax = Exercise(
    "softmax",
    reference=lambda scores: scores.softmax(dim=-1),
    returns=("shares",),
    forbidden=SOFTMAX,
    difficulty=1,
    minutes=15,
    hints=(
        "Write the shapes down: the exponentials are (*batch, n), and so is the result. What shape must their sums "
        "have to divide them row by row, and which argument of `sum` keeps it so?",
        "`dim=-1` is the last axis whatever stands before it.",
        "Any number may be taken away from all the scores of a row, and the shares stay the same. Which number makes "
        "the largest exponential exactly 1, in each row?",
    ),
)


@softmax.aspect("shares", points=2, explain=row_sums)
def _(answer, draw):
    """each row shares out exactly one, in proportion to the exponentials"""
    rows, n = draw.sizes(2, 3, 7)
    return answer(draw.normal(rows, n))


@softmax.aspect("any number of axes", points=1)
def _(answer, draw):
    """one row alone works, and so does a batch of tables"""
    batch, rows, n = draw.sizes(3, 2, 6)
    one, many = answer(draw.normal(n)), answer(draw.normal(batch, rows, n))
    return torch.cat([one.flatten(), many.flatten()])


@softmax.aspect("large scores", points=1, explain=row_sums)
def _(answer, draw):
    """a row whose scores are all 1000 larger, or all 1000 smaller, is shared out as before"""
    rows, n = draw.sizes(2, 3, 7)
    return answer(_coarse(draw.normal(rows, n)) + _shift(rows))


@softmax.aspect("scores far apart", points=1, explain=row_sums)
def _(answer, draw):
    """when two scores of a row are far above the others, these two share everything"""
    rows, n = draw.sizes(2, 4, 8)
    first = 1 + draw.integers(n - 2, rows)  # never the score in front
    high = torch.arange(n) == first[:, None]
    return answer(_coarse(draw.normal(rows, n)) + 500 * (high | high.roll(1, dims=-1)))


@softmax.aspect("a score of −∞", points=1, explain=row_sums)
def _(answer, draw):
    """gets exactly nothing, and the others share everything"""
    rows, n = draw.sizes(2, 4, 8)
    scores = draw.normal(rows, n)
    scores[0, 0] = scores[1:, -1] = -torch.inf
    return answer(scores)


@softmax.aspect("gradient", points=1, explain=arrives("scores"))
def _(answer, draw):
    """the scores can be learned: the gradient reaches them"""
    scores = draw.normal(*draw.sizes(2, 3, 7)).requires_grad_()
    return gradients(answer(scores), [scores], draw)


ALL_SOFTMAX = ("shares", "any number of axes", "large scores", "scores far apart", "a score of −∞", "gradient")


@softmax.misconception("exponentials out of range", fails=("large scores", "scores far apart"))
def _(scores):
    """exp(89) is more than float32 can hold and exp(−104) is 0: ∞/∞ and 0/0 are NaN. The formula is right, the numbers
    on the way to it do not fit. (Cutting the scores off at some limit, or mending NaN afterwards, only makes different
    scores equal.) Shares depend only on how far the scores of a row are from each other, so you may move the row before
    you exponentiate. Where to?"""
    exponentials = scores.exp()
    return exponentials / exponentials.sum(dim=-1, keepdim=True)


@softmax.variant("exponentials out of range", fails=("large scores", "scores far apart"))
def _(scores):
    """With a small number below the line."""
    exponentials = torch.exp(scores)
    return exponentials / (exponentials.sum(dim=-1, keepdim=True) + 1e-9)


@softmax.variant("exponentials out of range", fails=("large scores", "scores far apart"))
def _(scores):
    """With the NaN mended."""
    exponentials = torch.exp(scores)
    return (exponentials / exponentials.sum(dim=-1, keepdim=True)).nan_to_num()


@softmax.variant("exponentials out of range", fails=("large scores", "scores far apart"))
def _(scores):
    """With large scores cut off."""
    exponentials = scores.clamp(min=-80, max=80).exp()
    return exponentials / exponentials.sum(dim=-1, keepdim=True)


@softmax.variant("exponentials out of range", fails=("large scores",))
def _(scores):
    """In double precision, whose range ends at 709."""
    exponentials = scores.double().exp()
    return exponentials / exponentials.sum(dim=-1, keepdim=True)


@softmax.misconception("one maximum for all rows", fails=("large scores",))
def _(scores):
    """The same number was taken from every row: the largest of the whole tensor. A row that lies far below it then has
    only exponentials of 0, and 0/0 is NaN. Each row needs its own maximum, kept as an axis of length one so that it
    lines up with its row."""
    exponentials = (scores - scores.max()).exp()
    return exponentials / exponentials.sum(dim=-1, keepdim=True)


@softmax.variant("one maximum for all rows", fails=("large scores",))
def _(scores):
    """With a small number below the line."""
    exponentials = (scores - scores.amax()).exp()
    return exponentials / (exponentials.sum(dim=-1, keepdim=True) + 1e-9)


@softmax.misconception("moved, but not by the maximum", fails=("scores far apart", "a score of −∞"))
def _(scores):
    """The row was moved by its mean, its minimum, one of its scores or its largest absolute value, and the largest
    score may still be far above that: its exponential overflows. (And where a score is −∞, so is the mean, and −∞ −
    (−∞) is NaN.) By how much must you move a row so that no exponent is above 0?"""
    exponentials = (scores - scores.mean(dim=-1, keepdim=True)).exp()
    return exponentials / exponentials.sum(dim=-1, keepdim=True)


@softmax.variant("moved, but not by the maximum", fails=("scores far apart", "a score of −∞"))
def _(scores):
    """By the minimum."""
    exponentials = (scores - scores.amin(dim=-1, keepdim=True)).exp()
    return exponentials / exponentials.sum(dim=-1, keepdim=True)


@softmax.variant("moved, but not by the maximum", fails=("scores far apart", "a score of −∞"))
def _(scores):
    """By the score in front."""
    exponentials = (scores - scores[..., :1]).exp()
    return exponentials / exponentials.sum(dim=-1, keepdim=True)


@softmax.variant("moved, but not by the maximum", fails=("large scores", "a score of −∞"))
def _(scores):
    """By the largest size."""
    exponentials = (scores - scores.abs().amax(dim=-1, keepdim=True)).exp()
    return exponentials / exponentials.sum(dim=-1, keepdim=True)


@softmax.misconception("two tensors from max", fails=ALL_SOFTMAX)
def _(scores):
    """Along an axis, `max` returns two tensors, the largest values and the places where they stand, and a pair cannot
    be subtracted from a tensor. Take its `.values`, or ask for the values alone: `amax`."""
    exponentials = (scores - scores.max(dim=-1, keepdim=True)).exp()
    return exponentials / exponentials.sum(dim=-1, keepdim=True)


@softmax.misconception("along the wrong axis", fails=ALL_SOFTMAX)
def _(scores):
    """The columns sum to one, and the rows do not. Which of the axes is one row's own scores? Count it from the end, so
    that its number fits however many axes stand before it."""
    exponentials = (scores - scores.amax(dim=0, keepdim=True)).exp()
    return exponentials / exponentials.sum(dim=0, keepdim=True)


@softmax.variant("along the wrong axis", fails=ALL_SOFTMAX)
def _(scores):
    """The last but one."""
    exponentials = (scores - scores.amax(dim=-2, keepdim=True)).exp()
    return exponentials / exponentials.sum(dim=-2, keepdim=True)


@softmax.variant("along the wrong axis", fails=ALL_SOFTMAX)
def _(scores):
    """The right maximum, the wrong sum."""
    exponentials = (scores - scores.amax(dim=-1, keepdim=True)).exp()
    return exponentials / exponentials.sum(dim=0, keepdim=True)


@softmax.variant("along the wrong axis", fails=ALL_SOFTMAX)
def _(scores):
    """And out of range."""
    exponentials = scores.exp()
    return exponentials / exponentials.sum(dim=0)


@softmax.misconception("axis 1 for the last axis", fails=("any number of axes",))
def _(scores):
    """`dim=1` is the last axis of a table and of nothing else: a single row has no axis 1, and in a batch of tables it
    is the middle one. Count from the end."""
    exponentials = (scores - scores.amax(dim=1, keepdim=True)).exp()
    return exponentials / exponentials.sum(dim=1, keepdim=True)


@softmax.variant(
    "axis 1 for the last axis",
    "exponentials out of range",
    fails=("any number of axes", "large scores", "scores far apart"),
)
def _(scores):
    """And out of range."""
    exponentials = torch.exp(scores)
    return exponentials / exponentials.sum(dim=1, keepdim=True)


@softmax.misconception("everything together sums to one", fails=ALL_SOFTMAX)
def _(scores):
    """`sum()` without an axis adds up the whole tensor, so all rows together have one unit to share. Each row has a
    unit of its own: sum along one axis."""
    exponentials = (scores - scores.max()).exp()
    return exponentials / exponentials.sum()


@softmax.variant("everything together sums to one", fails=ALL_SOFTMAX)
def _(scores):
    """Without the maximum."""
    exponentials = scores.exp()
    return exponentials / exponentials.sum()


@softmax.variant("everything together sums to one", fails=ALL_SOFTMAX)
def _(scores):
    """Each row's own maximum, one sum."""
    exponentials = (scores - scores.amax(dim=-1, keepdim=True)).exp()
    return exponentials / exponentials.sum()


@softmax.misconception("the sum lost its axis", fails=ALL_SOFTMAX)
def _(scores):
    """A sum (or a maximum) over the last axis of (rows, n) is (rows,), and torch lines shapes up from the right: it
    takes these numbers for one row of n. Here the sizes differ and you are told; were they equal, you would get wrong
    numbers and no message. Keep the axis, with length one."""
    exponentials = (scores - scores.max(dim=-1).values).exp()
    return exponentials / exponentials.sum(dim=-1)


@softmax.variant("the sum lost its axis", fails=ALL_SOFTMAX)
def _(scores):
    """The sum alone."""
    exponentials = scores.exp()
    return exponentials / exponentials.sum(dim=-1)


@softmax.misconception("no exponentials", fails=ALL_SOFTMAX)
def _(scores):
    """The scores themselves were divided by their sum. Scores may be negative, and may add up to 0, so such shares can
    be negative or enormous. Softmax shares out in proportion to the *exponentials*, which are positive."""
    return scores / scores.sum(dim=-1, keepdim=True)


@softmax.misconception("not divided by the sum", fails=ALL_SOFTMAX)
def _(scores):
    """These are the exponentials: positive, in the right proportion, but they do not sum to one. One division is
    missing."""
    return (scores - scores.amax(dim=-1, keepdim=True)).exp()


@softmax.variant("not divided by the sum", fails=ALL_SOFTMAX)
def _(scores):
    """Nor moved."""
    return scores.exp()


@softmax.misconception("logarithms of the shares", fails=ALL_SOFTMAX)
def _(scores):
    """None of these is above 0: they are the logarithms of the shares. A loss likes logarithms; an average needs the
    shares themselves."""
    moved = scores - scores.amax(dim=-1, keepdim=True)
    return moved - moved.exp().sum(dim=-1, keepdim=True).log()


@softmax.misconception("divided by the maximum", fails=ALL_SOFTMAX)
def _(scores):
    """The scores were divided by the largest of them. That changes how far apart they are, and with it the shares (and
    if the largest is negative it reverses their order). A row may be *moved* without harm, not stretched: which
    operation moves it?"""
    exponentials = (scores / scores.amax(dim=-1, keepdim=True)).exp()
    return exponentials / exponentials.sum(dim=-1, keepdim=True)


@softmax.misconception("the lowest score gets most", fails=ALL_SOFTMAX)
def _(scores):
    """The order is reversed: the lowest score has received the largest share. Look at the sign of the exponent."""
    exponentials = (scores.amin(dim=-1, keepdim=True) - scores).exp()
    return exponentials / exponentials.sum(dim=-1, keepdim=True)


@softmax.variant("the lowest score gets most", fails=ALL_SOFTMAX)
def _(scores):
    """Maximum minus score, for score minus maximum."""
    exponentials = (scores.amax(dim=-1, keepdim=True) - scores).exp()
    return exponentials / exponentials.sum(dim=-1, keepdim=True)


@softmax.misconception("cut off from the gradient", fails=("gradient",))
def _(scores):
    """The numbers are right, but the gradient does not get through: `.detach()`, `.data`, numpy, `.tolist()` and
    `torch.tensor(...)` hand over bare numbers and forget where they came from, so nothing before them can learn. Stay
    with tensor operations."""
    exponentials = (scores - scores.amax(dim=-1, keepdim=True)).exp()
    return (exponentials / exponentials.sum(dim=-1, keepdim=True)).detach()


@softmax.alternative("the maximum with its place")
def _(scores):
    """`max` returns two tensors; its values still need their axis."""
    e = torch.exp(scores - scores.max(dim=-1, keepdim=True).values)
    return e / e.sum(-1, keepdim=True)


@softmax.alternative("None for the lost axis")
def _(scores):
    """Puts the axis back by indexing."""
    e = torch.exp(scores - torch.amax(scores, -1)[..., None])
    return e / torch.einsum("...n->...", e)[..., None]


@softmax.alternative("row by row")
def _(scores):
    """A loop over all rows, stacked again."""
    rows = []
    for row in scores.reshape(-1, scores.shape[-1]):
        e = (row - row.max()).exp()
        rows.append(e / e.sum())
    return torch.stack(rows).reshape(scores.shape)


@softmax.alternative("float64, not contiguous")
def _(scores):
    """The axis moved to the front, double precision, a view returned."""
    first = scores.double().movedim(-1, 0)
    e = torch.exp(first - first.amax(dim=0))
    return (e / e.sum(dim=0)).movedim(0, -1)


@softmax.alternative("one over the sum of differences")
def _(scores):
    """Every pair of scores: 1 / Σ exp(other − own). Overflow is ∞ there, and 1/∞ is 0, as it should be."""
    own = scores.masked_fill(scores == -torch.inf, -1e30)
    return 1 / (own[..., None, :] - own[..., :, None]).exp().sum(dim=-1)


@softmax.alternative("by logarithms")
def _(scores):
    """The logarithms first."""
    moved = scores - scores.amax(dim=-1, keepdim=True).detach()
    return (moved - moved.exp().sum(dim=-1, keepdim=True).log()).exp()


# ----------------------------------------------------------------------------------------------------------- logsumexp

logsumexp = Exercise(
    "logsumexp",
    reference=lambda scores: torch.logsumexp(scores, dim=-1),
    returns=("result",),
    forbidden=(*SOFTMAX, "torch.nn.functional.cross_entropy", "torch.nn.CrossEntropyLoss"),
    difficulty=2,
    minutes=10,
    extra=True,
    hints=(
        "Write m for the largest score of a row. What is Σ exp(sᵢ), if every sᵢ is written as (sᵢ − m) + m?",
        "exp(m) comes out of the sum, and its logarithm out of the product. Which axis has to go in the end?",
    ),
)


@logsumexp.aspect("value", points=1)
def _(answer, draw):
    """the logarithm of the sum of the exponentials, one number for each row of a batch of tables"""
    return answer(draw.normal(*draw.sizes(3, 3, 7)))


@logsumexp.aspect(
    "large scores",
    points=1,
    explain=told("every score of a row moved by ±1000; the result, less that, is {got}, expected {expected}"),
)
def _(answer, draw):
    """add 1000 to every score of a row, or subtract it, and the result moves by exactly that"""
    rows, n = draw.sizes(2, 3, 7)
    return answer(_coarse(draw.normal(rows, n)) + _shift(rows)).double() - _shift(rows)[:, 0].double()


BOTH = ("value", "large scores")


@logsumexp.misconception("exponentials out of range", fails=("large scores",))
def _(scores):
    """exp(89) is more than float32 can hold, and the logarithm of ∞ is ∞; exp(−104) is 0, and the logarithm of 0 is −∞.
    Move the row before you exponentiate, as in softmax, and this time put back what you took away."""
    return scores.exp().sum(dim=-1).log()


@logsumexp.variant("exponentials out of range", fails=("large scores",))
def _(scores):
    """Guarded."""
    return (scores.exp().sum(dim=-1) + 1e-9).log()


@logsumexp.variant("exponentials out of range", fails=("large scores",))
def _(scores):
    """In double precision."""
    return scores.double().exp().sum(dim=-1).log()


@logsumexp.misconception("one maximum for all rows", fails=("large scores",))
def _(scores):
    """The same number was taken from every row: the largest of the whole tensor. In a row far below it every
    exponential is 0, and log 0 is −∞. Each row needs its own maximum."""
    largest = scores.max()
    return largest + (scores - largest).exp().sum(dim=-1).log()


@logsumexp.misconception("the maximum was not put back", fails=BOTH)
def _(scores):
    """You took the maximum away and did not give it back. In softmax it cancels between numerator and denominator; here
    there is nothing to cancel it."""
    return (scores - scores.amax(dim=-1, keepdim=True)).exp().sum(dim=-1).log()


@logsumexp.misconception("the maximum alone", fails=BOTH)
def _(scores):
    """This is the largest score. The result is always above it, by as much as log n when all scores are equal: the
    other exponentials count, too."""
    return scores.amax(dim=-1)


@logsumexp.misconception("along the wrong axis", fails=BOTH)
def _(scores):
    """There is one number for each column. One for each row is asked for: which axis has to go?"""
    largest = scores.amax(dim=0)
    return largest + (scores - largest).exp().sum(dim=0).log()


@logsumexp.misconception("axis 1 for the last axis", fails=("value",))
def _(scores):
    """`dim=1` is the last axis of a table and of nothing else: in a batch of tables it is the middle one. Count from
    the end."""
    largest = scores.amax(dim=1, keepdim=True)
    return ((scores - largest).exp().sum(dim=1, keepdim=True).log() + largest).squeeze(1)


@logsumexp.variant("axis 1 for the last axis", "exponentials out of range", fails=BOTH)
def _(scores):
    """And out of range."""
    return scores.exp().sum(dim=1).log()


@logsumexp.misconception("an axis of length one is left", fails=BOTH)
def _(scores):
    """The numbers may be right, the shape is not: an axis of length one still stands where the scores were. Keeping it
    was right for the subtraction; the result has it no longer."""
    largest = scores.amax(dim=-1, keepdim=True)
    return largest + (scores - largest).exp().sum(dim=-1, keepdim=True).log()


@logsumexp.misconception("a table of all sums", fails=BOTH)
def _(scores):
    """The result holds rows *times rows* numbers. The maximum kept its axis, (rows, 1), and the logarithms have lost
    theirs, (rows,): their sum pairs every row with every other, and nothing crashed. Both need the same shape."""
    largest = scores.amax(dim=-1, keepdim=True)
    return largest + (scores - largest).exp().sum(dim=-1).log()


@logsumexp.misconception("a mean for the sum", fails=BOTH)
def _(scores):
    """The result is too small by log n: the exponentials were averaged, not added."""
    largest = scores.amax(dim=-1, keepdim=True)
    return largest[..., 0] + (scores - largest).exp().mean(dim=-1).log()


@logsumexp.alternative("the maximum put back")
def _(scores):
    """As in the book."""
    largest = scores.max(dim=-1, keepdim=True).values
    return (largest + (scores - largest).exp().sum(-1, keepdim=True).log()).squeeze(-1)


@logsumexp.alternative("two at a time")
def _(scores):
    """A running total in logarithms, in double precision."""
    total = scores[..., 0].double()
    for i in range(1, scores.shape[-1]):
        total = torch.logaddexp(total, scores[..., i].double())
    return total


@logsumexp.alternative("einsum over exponentials")
def _(scores):
    """Sums by naming the axis that goes."""
    largest = torch.amax(scores, dim=-1)
    return torch.log(torch.einsum("...n->...", torch.exp(scores - largest[..., None]))) + largest
