"""pad_batch: Make one rectangle of sequences of several lengths."""

import torch

from attncourse import data
from lessonkit.exercises.exercise import Exercise
from lessonkit.exercises.observe import require_variation


def solution(sequences, pad):
    n = max(len(sequence) for sequence in sequences)
    # tokens and mask are (batch, n), lengths (batch,)
    tokens = torch.tensor([sequence + [pad] * (n - len(sequence)) for sequence in sequences])
    lengths = torch.tensor([len(sequence) for sequence in sequences])
    return tokens, torch.arange(n) < lengths[:, None]


exercise = Exercise(
    "pad_batch",
    reference=data.pad_batch,
    solution=solution,
    returns=("tokens", "mask"),
    forbidden=("attncourse.data.batches", "attncourse.attention", "torch.nn.utils.rnn.pad_sequence",
               "torch.nested.nested_tensor", "torch.nested.as_nested_tensor"),
    difficulty=1,
    minutes=12,
    hints=(
        "How wide must the rectangle be? Fill it with `pad` first, or add to each list the pads that it lacks: "
        "`sequence + [pad] * k` is a new list and leaves the old one alone. `torch.tensor` turns whole numbers into "
        "whole numbers; `torch.zeros` and `torch.full` make the type that `dtype` names.",
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


@aspect("tokens", points=2, hint=1)
def tokens(answer, draw):
    """a row for each sequence, filled up with the pad's id"""
    return answer(*_sequences(draw))[0]


@aspect("mask", points=2, hint=3)
def mask(answer, draw):
    """True where there is a token, False in the padding"""
    return answer(*_sequences(draw))[1]


@aspect("a token with the pad's id", points=1, hint=2)
def a_token_with_the_pads_id(answer, draw):
    """is a token all the same: the lengths decide, not the ids"""
    sequences, pad = _sequences(draw)
    for sequence in sequences:
        sequence[-1] = pad
    return answer(sequences, pad)[1]


def _kind(got, expected):
    """Says that the ids are of the wrong type."""
    return "the tokens are not whole numbers, and nothing can be looked up under the id 3.0"


@aspect("whole numbers", points=1, hint=1, explain=_kind)
def whole_numbers(answer, draw):
    """integers, so that an embedding can look them up"""
    tokens, _ = answer(*_sequences(draw))
    require_variation(tokens)
    return torch.tensor(not tokens.is_floating_point() and tokens.dtype != torch.bool)


# -------------------------------------------------------------------------------------- one slip away from the solution

MASKS = ("mask", "a token with the pad's id")
BOTH = ("tokens", *MASKS)
ROW, MASK = "sequence + [pad] * (n - len(sequence))", "torch.arange(n) < lengths[:, None]"

slip("the mask from the ids", ("a token with the pad's id",), {MASK: "tokens != pad"}, words="""
    Whoever compares ids with `pad` takes a real token of that id for padding. That happens: many language models pad
    with their end-of-text token, and then never learn to stop, because every real end is masked away. The lengths know
    better.""")
slip("pads kept", MASKS, {MASK: "torch.ones_like(tokens, dtype=torch.bool)"}, words="""
    Your mask says that every position is real, so an average over it takes in the padding, too. If you measured the
    lengths after filling up, they are all the same by then: measure before, and build new lists (`s + […]`) rather than
    lengthen your caller's (`s += […]`, `s.append`).""")
slip("mask upside down", MASKS, {" < ": " >= "}, words="""
    The mask is True where the padding is. In this course True means "there is a token here, it counts". (Some of
    torch's functions mean the opposite by their `key_padding_mask`, so always say what True means.)""")
slip("a mask of numbers", ("mask",), {MASK: f"({MASK}).long()"}, {MASK: f"({MASK}).float()"}, words="""
    The mask holds zeros and ones. They look like False and True and act differently: `~` of the number 1 is −2, and
    indexing with numbers picks rows 0 and 1 over and over. A mask is boolean; a comparison makes one.""")
slip("one position off", MASKS, {" < ": " <= "}, {"lengths[:, None]": "lengths[:, None] - 1"}, words="""
    Each mask ends one position too late or too early. A sequence of length 3 has the positions 0, 1 and 2: put these
    numbers into your comparison.""")
slip("the lengths lack an axis", (*BOTH, "whole numbers"), {"[:, None]": ""}, words="""
    Positions are (n,) and lengths are (batch,): two rows, which torch tries to pair one by one. You want every position
    compared with every length, which makes a table, so one of the two has to stand upright. Which one belongs to the
    rows of the result?""")
slip("sorted by length", BOTH, {"n = max(": "sequences = sorted(sequences, key=len, reverse=True)\nn = max("}, words="""
    The rows are in the order of their lengths. Some recurrent code sorts a batch like that; here row i must be sequence
    i, or nobody can say afterwards whose result is whose.""")
slip("zeros for the pad", ("tokens",), {"[pad]": "[0]"}, words="""
    The rows were filled up with 0. Which id stands for padding is the caller's choice, and the id 0 may be an ordinary
    token: fill up with `pad`.""")
slip("padding in front", BOTH,
     {ROW: "[pad] * (n - len(sequence)) + sequence", MASK: "torch.arange(n) >= n - lengths[:, None]"}, words="""
    The sequences stand at the right edge. Some language models want it so; the contract here wants each sequence to
    begin at position 0 and the padding after it.""")
slip("cut to the shortest", BOTH, {"max(": "min(", ROW: "sequence[:n]"}, words="""
    Every sequence was cut to the length of the shortest, and what was beyond is lost. (`zip` does this without a word.)
    The rectangle must be as wide as the longest.""")
slip("as wide as the first", BOTH,
     {"max(len(sequence) for sequence in sequences)": "len(sequences[0])", ROW: "(sequence + [pad] * n)[:n]"}, words="""
    The first sequence decided how wide the rectangle is. It is the longest only by chance.""")
slip("positions first", BOTH, {"return tokens": "return tokens.mT", MASK: f"({MASK}).mT"}, words="""
    Rows and columns are swapped: (n, batch). Some older recurrent code wants it so; here the batch comes first, a row
    for each sequence.""")
slip("ids as decimal numbers", ("whole numbers",), {"tokens = torch.tensor(": "tokens = torch.Tensor("}, words="""
    The ids are floating-point numbers: `torch.zeros`, `torch.ones` and `torch.empty` make floats unless told a dtype.
    An id is a place in a table, and a table has no row 3.0: an embedding refuses such ids.""")
slip("the mask before the tokens", (*BOTH, "whole numbers"), {f"tokens, {MASK}": f"{MASK}, tokens"}, words="""
    Both are there, in the wrong order: the contract says tokens, then mask.""")


# ------------------------------------------------------------------------------------------------------ further from it


@variant("as wide as the first", fails=(*BOTH, "whole numbers"))
def as_wide_as_the_first_and_not_cut(sequences, pad):
    """Those that are longer stick out, and no rectangle can be made."""
    n = len(sequences[0])
    tokens = torch.tensor([sequence + [pad] * (n - len(sequence)) for sequence in sequences])
    lengths = torch.tensor([len(sequence) for sequence in sequences])
    return tokens, torch.arange(n) < lengths[:, None]


@misconception("one row, many times", fails=("tokens",))
def one_row_many_times(sequences, pad):
    """`[[pad] * n] * batch` is one list that stands there several times, not several lists: whatever is written into
    one row is written into all of them, and each holds what came last. Make a new list for every row."""
    n = max(len(sequence) for sequence in sequences)
    rows = [[pad] * n] * len(sequences)
    for row, sequence in zip(rows, sequences, strict=True):
        row[: len(sequence)] = sequence
    lengths = torch.tensor([len(sequence) for sequence in sequences])
    return torch.tensor(rows), torch.arange(n) < lengths[:, None]


@variant("one row, many times", fails=BOTH)
def one_row_and_one_mask_many_times(sequences, pad):
    """The mask's rows, too."""
    n = max(len(sequence) for sequence in sequences)
    rows, mask = [[pad] * n] * len(sequences), [[False] * n] * len(sequences)
    for i, sequence in enumerate(sequences):
        for j, token in enumerate(sequence):
            rows[i][j], mask[i][j] = token, True
    return torch.tensor(rows), torch.tensor(mask)


@variant("mask upside down", "the mask from the ids", fails=MASKS)
def upside_down_from_the_ids(sequences, pad):
    """By the ids."""
    n = max(len(sequence) for sequence in sequences)
    tokens = torch.tensor([sequence + [pad] * (n - len(sequence)) for sequence in sequences])
    return tokens, tokens == pad


@variant("a mask of numbers", "the mask from the ids", fails=MASKS)
def numbers_from_the_ids(sequences, pad):
    """From the ids."""
    n = max(len(sequence) for sequence in sequences)
    tokens = torch.tensor([sequence + [pad] * (n - len(sequence)) for sequence in sequences])
    return tokens, (tokens != pad).long()


@variant("zeros for the pad", "the mask from the ids", fails=("tokens", *MASKS))
def looked_for_the_pad_among_zeros(sequences, pad):
    """And looked for `pad`, which is nowhere."""
    n = max(len(sequence) for sequence in sequences)
    tokens = torch.tensor([sequence + [0] * (n - len(sequence)) for sequence in sequences])
    return tokens, tokens != pad


@variant("padding in front", fails=("tokens",))
def padding_in_front_masked_at_the_end(sequences, pad):
    """With the mask of padding at the end."""
    n = max(len(sequence) for sequence in sequences)
    tokens = torch.tensor([[pad] * (n - len(sequence)) + sequence for sequence in sequences])
    lengths = torch.tensor([len(sequence) for sequence in sequences])
    return tokens, torch.arange(n) < lengths[:, None]


@variant("ids as decimal numbers", "zeros for the pad", fails=("tokens", "whole numbers"))
def zeros_as_floats(sequences, pad):
    """Zeros, as floats."""
    n = max(len(sequence) for sequence in sequences)
    tokens = torch.zeros(len(sequences), n)
    mask = torch.zeros(len(sequences), n, dtype=torch.bool)
    for i, sequence in enumerate(sequences):
        tokens[i, : len(sequence)] = torch.tensor(sequence, dtype=torch.float)
        mask[i, : len(sequence)] = True
    return tokens, mask


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
