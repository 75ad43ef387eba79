"""pad_batch: Make one rectangle of sequences of several lengths."""

import torch

from attncourse import data
from lessonkit.exercises.exercise import Exercise
from lessonkit.exercises.observe import telling


def solution(sequences, pad):
    n = max(len(sequence) for sequence in sequences)
    tokens = torch.tensor([sequence + [pad] * (n - len(sequence)) for sequence in sequences])     # (batch, n)
    lengths = torch.tensor([len(sequence) for sequence in sequences])                             # (batch,)
    return tokens, torch.arange(n) < lengths[:, None]                                             # (batch, n)


exercise = Exercise(
    "pad_batch",
    reference=data.pad_batch,
    solution=solution,
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
aspect, slip, misconception, variant, alternative = exercise.decorators()


def _sequences(draw):
    """Three to five lists of ids of different lengths, a middling one first, and a pad id that none of them has."""
    short = draw.sizes(2 + draw.integers(3, 1).item(), 1, 5)
    longest = 6 + draw.integers(3, 1).item()  # more positions than sequences
    middling = sorted(short)[-1]
    others = [*(n for n in short if n != middling), longest]
    lengths = [middling, *others[:: 1 - 2 * draw.integers(2, 1).item()]]
    return [(1 + draw.integers(89, n)).tolist() for n in lengths], 90 + draw.integers(9, 1).item()


# ----------------------------------------------------------------------------------------------------- what is observed


@aspect("tokens", points=2)
def tokens(answer, draw):
    """a row for each sequence, filled up with the pad's id"""
    return answer(*_sequences(draw))[0]


@aspect("mask", points=2)
def mask(answer, draw):
    """True where there is a token, False in the padding"""
    return answer(*_sequences(draw))[1]


@aspect("a token with the pad's id", points=1)
def a_token_with_the_pads_id(answer, draw):
    """is a token all the same: the lengths decide, not the ids"""
    sequences, pad = _sequences(draw)
    for sequence in sequences:
        sequence[-1] = pad
    return answer(sequences, pad)[1]


def _kind(got, expected):
    """Says that the ids are of the wrong type."""
    return "the tokens are not whole numbers, and nothing can be looked up under the id 3.0"


@aspect("whole numbers", points=1, explain=_kind)
def whole_numbers(answer, draw):
    """integers, so that an embedding can look them up"""
    tokens, _ = answer(*_sequences(draw))
    telling(tokens)
    return torch.tensor(not tokens.is_floating_point() and tokens.dtype != torch.bool)


MASKS = ("mask", "a token with the pad's id")


# -------------------------------------------------------------------------------------------------------- wrong answers


@misconception("the mask from the ids", fails=("a token with the pad's id",))
def the_mask_from_the_ids(sequences, pad):
    """Whoever compares ids with `pad` takes a real token of that id for padding. That happens: many language models pad
    with their end-of-text token, and then never learn to stop, because every real end is masked away. The lengths know
    better."""
    n = max(len(sequence) for sequence in sequences)
    tokens = torch.tensor([sequence + [pad] * (n - len(sequence)) for sequence in sequences])
    return tokens, tokens != pad


@misconception("pads kept", fails=MASKS)
def pads_kept(sequences, pad):
    """Your mask says that every position is real, so an average over it takes in the padding, too. If you measured the
    lengths after filling up, they are all the same by then: measure before, and build new lists (`s + […]`) rather than
    lengthen your caller's (`s += […]`, `s.append`)."""
    n = max(len(sequence) for sequence in sequences)
    tokens = torch.tensor([sequence + [pad] * (n - len(sequence)) for sequence in sequences])
    return tokens, torch.ones_like(tokens, dtype=torch.bool)


@misconception("mask upside down", fails=MASKS)
def mask_upside_down(sequences, pad):
    """The mask is True where the padding is. In this course True means "there is a token here, it counts". (Some of
    torch's functions mean the opposite by their `key_padding_mask`, so always say what True means.)"""
    n = max(len(sequence) for sequence in sequences)
    tokens = torch.tensor([sequence + [pad] * (n - len(sequence)) for sequence in sequences])
    lengths = torch.tensor([len(sequence) for sequence in sequences])
    return tokens, torch.arange(n) >= lengths[:, None]


@variant("mask upside down", "the mask from the ids", fails=MASKS)
def mask_upside_down_2(sequences, pad):
    """By the ids."""
    n = max(len(sequence) for sequence in sequences)
    tokens = torch.tensor([sequence + [pad] * (n - len(sequence)) for sequence in sequences])
    return tokens, tokens == pad


@misconception("a mask of numbers", fails=MASKS)
def a_mask_of_numbers(sequences, pad):
    """The mask holds zeros and ones. They look like False and True and act differently: `~` of the number 1 is −2, and
    indexing with numbers picks rows 0 and 1 over and over. A mask is boolean; a comparison makes one."""
    n = max(len(sequence) for sequence in sequences)
    tokens = torch.tensor([sequence + [pad] * (n - len(sequence)) for sequence in sequences])
    mask = torch.tensor([[1] * len(sequence) + [0] * (n - len(sequence)) for sequence in sequences])
    return tokens, mask


@variant("a mask of numbers", fails=MASKS)
def a_mask_of_numbers_2(sequences, pad):
    """As floats."""
    n = max(len(sequence) for sequence in sequences)
    tokens = torch.full((len(sequences), n), pad)
    mask = torch.zeros(len(sequences), n)
    for i, sequence in enumerate(sequences):
        tokens[i, : len(sequence)] = torch.tensor(sequence)
        mask[i, : len(sequence)] = 1
    return tokens, mask


@variant("a mask of numbers", "the mask from the ids", fails=MASKS)
def a_mask_of_numbers_3(sequences, pad):
    """From the ids."""
    n = max(len(sequence) for sequence in sequences)
    tokens = torch.tensor([sequence + [pad] * (n - len(sequence)) for sequence in sequences])
    return tokens, (tokens != pad).long()


@misconception("one position off", fails=MASKS)
def one_position_off(sequences, pad):
    """Each mask ends one position too late or too early. A sequence of length 3 has the positions 0, 1 and 2: put these
    numbers into your comparison."""
    n = max(len(sequence) for sequence in sequences)
    tokens = torch.tensor([sequence + [pad] * (n - len(sequence)) for sequence in sequences])
    lengths = torch.tensor([len(sequence) for sequence in sequences])
    return tokens, torch.arange(n) <= lengths[:, None]


@variant("one position off", fails=MASKS)
def one_position_off_2(sequences, pad):
    """Too early."""
    n = max(len(sequence) for sequence in sequences)
    tokens = torch.tensor([sequence + [pad] * (n - len(sequence)) for sequence in sequences])
    lengths = torch.tensor([len(sequence) for sequence in sequences])
    return tokens, torch.arange(n) < lengths[:, None] - 1


@misconception("the lengths lack an axis", fails=("tokens", *MASKS, "whole numbers"))
def the_lengths_lack_an_axis(sequences, pad):
    """Positions are (n,) and lengths are (batch,): two rows, which torch tries to pair one by one. You want every
    position compared with every length, which makes a table, so one of the two has to stand upright. Which one belongs
    to the rows of the result?"""
    n = max(len(sequence) for sequence in sequences)
    tokens = torch.tensor([sequence + [pad] * (n - len(sequence)) for sequence in sequences])
    lengths = torch.tensor([len(sequence) for sequence in sequences])
    return tokens, torch.arange(n) < lengths


@misconception("sorted by length", fails=("tokens", *MASKS))
def sorted_by_length(sequences, pad):
    """The rows are in the order of their lengths. Some recurrent code sorts a batch like that; here row i must be
    sequence i, or nobody can say afterwards whose result is whose."""
    ordered = sorted(sequences, key=len, reverse=True)
    n = len(ordered[0])
    tokens = torch.tensor([sequence + [pad] * (n - len(sequence)) for sequence in ordered])
    lengths = torch.tensor([len(sequence) for sequence in ordered])
    return tokens, torch.arange(n) < lengths[:, None]


@misconception("zeros for the pad", fails=("tokens",))
def zeros_for_the_pad(sequences, pad):
    """The rows were filled up with 0. Which id stands for padding is the caller's choice, and the id 0 may be an
    ordinary token: fill up with `pad`."""
    n = max(len(sequence) for sequence in sequences)
    tokens = torch.zeros(len(sequences), n, dtype=torch.long)
    mask = torch.zeros(len(sequences), n, dtype=torch.bool)
    for i, sequence in enumerate(sequences):
        tokens[i, : len(sequence)] = torch.tensor(sequence)
        mask[i, : len(sequence)] = True
    return tokens, mask


@variant("zeros for the pad", "the mask from the ids", fails=("tokens", *MASKS))
def zeros_for_the_pad_2(sequences, pad):
    """And looked for `pad`, which is nowhere."""
    n = max(len(sequence) for sequence in sequences)
    tokens = torch.tensor([sequence + [0] * (n - len(sequence)) for sequence in sequences])
    return tokens, tokens != pad


@misconception("padding in front", fails=("tokens", *MASKS))
def padding_in_front(sequences, pad):
    """The sequences stand at the right edge. Some language models want it so; the contract here wants each sequence to
    begin at position 0 and the padding after it."""
    n = max(len(sequence) for sequence in sequences)
    tokens = torch.tensor([[pad] * (n - len(sequence)) + sequence for sequence in sequences])
    lengths = torch.tensor([len(sequence) for sequence in sequences])
    return tokens, torch.arange(n) >= n - lengths[:, None]


@variant("padding in front", fails=("tokens",))
def padding_in_front_2(sequences, pad):
    """With the mask of padding at the end."""
    n = max(len(sequence) for sequence in sequences)
    tokens = torch.tensor([[pad] * (n - len(sequence)) + sequence for sequence in sequences])
    lengths = torch.tensor([len(sequence) for sequence in sequences])
    return tokens, torch.arange(n) < lengths[:, None]


@misconception("cut to the shortest", fails=("tokens", *MASKS))
def cut_to_the_shortest(sequences, pad):
    """Every sequence was cut to the length of the shortest, and what was beyond is lost. (`zip` does this without a
    word.) The rectangle must be as wide as the longest."""
    n = min(len(sequence) for sequence in sequences)
    tokens = torch.tensor([sequence[:n] for sequence in sequences])
    return tokens, torch.ones(len(sequences), n, dtype=torch.bool)


@misconception("as wide as the first", fails=("tokens", *MASKS))
def as_wide_as_the_first(sequences, pad):
    """The first sequence decided how wide the rectangle is. It is the longest only by chance."""
    n = len(sequences[0])
    tokens = torch.tensor([(sequence + [pad] * n)[:n] for sequence in sequences])
    lengths = torch.tensor([len(sequence) for sequence in sequences])
    return tokens, torch.arange(n) < lengths[:, None]


@misconception("positions first", fails=("tokens", *MASKS))
def positions_first(sequences, pad):
    """Rows and columns are swapped: (n, batch). Some older recurrent code wants it so; here the batch comes first, a
    row for each sequence."""
    n = max(len(sequence) for sequence in sequences)
    tokens = torch.tensor([sequence + [pad] * (n - len(sequence)) for sequence in sequences])
    lengths = torch.tensor([len(sequence) for sequence in sequences])
    return tokens.mT, (torch.arange(n) < lengths[:, None]).mT


@misconception("ids as decimal numbers", fails=("whole numbers",))
def ids_as_decimal_numbers(sequences, pad):
    """The ids are floating-point numbers: `torch.zeros`, `torch.ones` and `torch.empty` make floats unless told a
    dtype. An id is a place in a table, and a table has no row 3.0: an embedding refuses such ids."""
    n = max(len(sequence) for sequence in sequences)
    tokens = torch.zeros(len(sequences), n) + pad
    mask = torch.zeros(len(sequences), n, dtype=torch.bool)
    for i, sequence in enumerate(sequences):
        tokens[i, : len(sequence)] = torch.tensor(sequence, dtype=torch.float)
        mask[i, : len(sequence)] = True
    return tokens, mask


@variant("ids as decimal numbers", "zeros for the pad", fails=("tokens", "whole numbers"))
def ids_as_decimal_numbers_2(sequences, pad):
    """Zeros, as floats."""
    n = max(len(sequence) for sequence in sequences)
    tokens = torch.zeros(len(sequences), n)
    mask = torch.zeros(len(sequences), n, dtype=torch.bool)
    for i, sequence in enumerate(sequences):
        tokens[i, : len(sequence)] = torch.tensor(sequence, dtype=torch.float)
        mask[i, : len(sequence)] = True
    return tokens, mask


@misconception("the mask before the tokens", fails=("tokens", *MASKS, "whole numbers"))
def the_mask_before_the_tokens(sequences, pad):
    """Both are there, in the wrong order: the contract says tokens, then mask."""
    n = max(len(sequence) for sequence in sequences)
    tokens = torch.tensor([sequence + [pad] * (n - len(sequence)) for sequence in sequences])
    lengths = torch.tensor([len(sequence) for sequence in sequences])
    return torch.arange(n) < lengths[:, None], tokens


# ------------------------------------------------------------------------------------------------ right in other styles


@alternative("lists, then one tensor")
def lists_then_one_tensor(sequences, pad):
    """Lengthens copies of the lists."""
    n = max(map(len, sequences))
    tokens = torch.tensor([[*sequence, *[pad] * (n - len(sequence))] for sequence in sequences])
    mask = torch.tensor([[i < len(sequence) for i in range(n)] for sequence in sequences])
    return tokens, mask


@alternative("a full rectangle, row by row")
def a_full_rectangle_row_by_row(sequences, pad):
    """Fills with the pad and writes over it."""
    n = max(len(sequence) for sequence in sequences)
    tokens = torch.full((len(sequences), n), pad)
    mask = torch.zeros(tokens.shape, dtype=torch.bool)
    for i, sequence in enumerate(sequences):
        tokens[i, : len(sequence)] = torch.as_tensor(sequence)
        mask[i, : len(sequence)] = True
    return tokens, mask


@alternative("poured through the mask")
def poured_through_the_mask(sequences, pad):
    """The mask first; then all tokens at once into the places that are True."""
    lengths = torch.tensor([len(sequence) for sequence in sequences])
    mask = torch.arange(int(lengths.max())).expand(len(sequences), -1) < lengths.unsqueeze(1)
    tokens = torch.full(mask.shape, pad)
    tokens[mask] = torch.tensor([token for sequence in sequences for token in sequence])
    return tokens, mask


@alternative("columns, not contiguous, int32")
def columns_not_contiguous_int32(sequences, pad):
    """Builds position by position and returns transposed views."""
    n = max(len(sequence) for sequence in sequences)
    columns = [[sequence[i] if i < len(sequence) else pad for sequence in sequences] for i in range(n)]
    real = [[i < len(sequence) for sequence in sequences] for i in range(n)]
    return torch.tensor(columns, dtype=torch.int32).mT, torch.tensor(real).mT


@alternative("torch's pad, stacked")
def torchs_pad_stacked(sequences, pad):
    """`torch.nn.functional.pad` for each row; the mask padded alike."""
    n = max(len(sequence) for sequence in sequences)
    pairs = [(torch.tensor(sequence), (0, n - len(sequence))) for sequence in sequences]
    tokens = torch.stack([torch.nn.functional.pad(row, missing, value=pad) for row, missing in pairs])
    mask = torch.stack([torch.nn.functional.pad(torch.ones_like(row), missing) for row, missing in pairs])
    return tokens, mask.bool()
