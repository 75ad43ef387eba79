"""shift_right: What the decoder reads and what it must predict, for sentences of different lengths."""

import torch
from torch import nn

from lessonkit.exercises.exercise import Exercise
from lessonkit.exercises.observe import require_variation


def reference(target, lengths, bos, eos, pad):
    """<bos> and the sentence; the sentence and <eos>. Vaswani et al. 2017, section 3.1: "offset by one position"."""
    place, end = torch.arange(target.shape[1] + 1), lengths[:, None]
    reads, predicts = (nn.functional.pad(target, sides) for sides in ((1, 0), (0, 1)))
    reads, predicts = torch.where(place == 0, bos, reads), torch.where(place == end, eos, predicts)
    return torch.where(place > end, pad, reads), torch.where(place > end, pad, predicts)


def solution(target, lengths, bos, eos, pad):
    edge = torch.full_like(target[:, :1], bos)                  # (batch, 1)
    target_in = torch.cat([edge, target], dim=1)                # (batch, n + 1)
    target_out = torch.cat([target, edge], dim=1)               # (batch, n + 1)
    place = torch.arange(target_in.shape[1])                    # (n + 1,)
    end = lengths[:, None]                                      # (batch, 1)
    target_out = target_out.masked_fill(place == end, eos)
    behind = place > end                                        # (batch, n + 1)
    return target_in.masked_fill(behind, pad), target_out.masked_fill(behind, pad)


exercise = Exercise(
    "shift_right",
    reference=reference,
    solution=solution,
    returns=("target_in", "target_out"),
    difficulty=2,
    minutes=15,
    hints=(
        "Write both rows by hand for one sentence of two tokens in a row of four places. At each position: what has "
        "been written so far, and what comes next? Which of the two rows has bos, and which has eos?",
        "Each sentence ends at a place of its own. Compare a row of the places 0, 1, …, n with a column of the "
        "lengths: the table (batch, n + 1) says for each place whether it lies before the end, at it, or after it.",
        "`torch.cat` joins tensors and `masked_fill` writes a number where a table is True. `torch.full_like` takes "
        "shape and dtype from a tensor that is there already; `torch.ones` makes decimal numbers.",
    ),
)
aspect, slip, misconception, variant, alternative = exercise.decorators()


def _sentences(draw, full=False):
    """[target, lengths, bos, eos, pad]: behind each sentence's end stand tokens like any other."""
    batch, n = draw.sizes(2, 4, 8)
    bos, eos, pad = (40 + 10 * i + int(draw.integers(9, 1)) for i in range(3))
    lengths = 1 + draw.integers(n - 1, batch)
    lengths[:3] = torch.tensor([n, 0, 2])
    return [draw.integers(40, batch, n), torch.full_like(lengths, n) if full else lengths, bos, eos, pad]


def _both(answer, inputs, wanted):
    """The two rows at the places that `wanted(place, end)` names."""
    rows = answer(*inputs)
    place, end = torch.arange(inputs[0].shape[1] + 1), inputs[1][:, None]
    return torch.stack([row[wanted(place, end)] for row in rows])


# ----------------------------------------------------------------------------------------------------- what is observed


@aspect("reads", points=1, hint=1)
def reads(answer, draw):
    """of full sentences the decoder reads `bos`, then every token one place later"""
    return answer(*_sentences(draw, full=True))[0]


@aspect("predicts", points=1, hint=1)
def predicts(answer, draw):
    """of full sentences it must predict every token, then `eos`"""
    return answer(*_sentences(draw, full=True))[1]


@aspect("each its own end", points=2, hint=2)
def each_its_own_end(answer, draw):
    """each sentence has its `eos` where it ends, also where nothing stands in front of it"""
    return _both(answer, _sentences(draw), lambda place, end: place <= end)


@aspect("padding", points=0.5, hint=2)
def padding(answer, draw):
    """after the end both rows have nothing but padding"""
    return _both(answer, _sentences(draw), lambda place, end: place > end)


@aspect("whole numbers", points=0.5, hint=3, explain=lambda got, expected: "came back as decimal numbers")
def whole_numbers(answer, draw):
    """tokens stay whole numbers, or no embedding could look them up"""
    rows = answer(*_sentences(draw))
    require_variation(rows[0])
    return torch.tensor([not row.is_floating_point() for row in rows])


# -------------------------------------------------------------------------------------- one slip away from the solution

NUMBERS = ("reads", "predicts", "each its own end", "padding")
IN, OUT = "torch.cat([edge, target], dim=1)", "torch.cat([target, edge], dim=1)"
RETURNED = "return target_in.masked_fill(behind, pad), target_out.masked_fill(behind, pad)"

slip("eos at the end of the row", ("each its own end",), {"place == end": "place == target.shape[1]"}, words="""
    `eos` went to the last place of every row. Sentences are of different lengths, and each ends at a place of its
    own: a model that is trained on this never learns to stop there.""")
slip("no eos", ("predicts", "each its own end"), {"place == end, eos": "place == end, pad"}, words="""
    Nowhere is `eos` predicted: where a sentence ends there is padding at once. A model that is trained on this never
    learns to stop.""")
slip("eos is read as well", ("padding",),
     {RETURNED: "return target_in.masked_fill(behind, pad).masked_fill(place == end + 1, eos), "
                "target_out.masked_fill(behind, pad)"},
     words="""
    `eos` stands in the row that is read, too, after the last token. When `eos` has been predicted the text is
    finished: nothing is left to be predicted from it.""")
slip("an empty sentence is left out", ("each its own end",),
     {"behind = place > end": "behind = (place > end) | (end == 0)"}, words="""
    A sentence without a token was filled with padding alone. It has a beginning and an end like any other: `bos` is
    read, and `eos` is to be predicted from it.""")
slip("eos one place early", ("predicts", "each its own end"), {"place == end": "place == end - 1"}, words="""
    `eos` took the place of the sentence's last token, which then is never predicted. Counted from 0, the tokens of a
    sentence stand at the places 0 to length − 1.""")
slip("the two rows swapped", NUMBERS[:3], {RETURNED: "return target_out.masked_fill(behind, pad), "
     "target_in.masked_fill(behind, pad)"}, words="""
    The two rows have changed places. `bos` is read and never predicted; `eos` is predicted and never read.""")
slip("what stands after the end", ("padding",),
     {RETURNED: "return target_in, target_out"},
     {RETURNED: "return target_in.masked_fill(behind, pad), target_out"},
     {RETURNED: "return target_in, target_out.masked_fill(behind, pad)"},
     words="""
    After a sentence's end something other than `pad` is left, in one of the rows or in both. The contract does not say
    what stands there in `target`, and a loss that leaves out padding knows it by `pad` alone.""")
AFTER = "return target_in.masked_fill(behind, pad), target_out"
slip("tokens left after the end", ("padding",), *(
    {OUT: f"torch.cat([target, {last}], dim=1)", RETURNED: returned}
    for last in ("torch.full_like(edge, pad)", "torch.full_like(edge, eos)", "torch.zeros_like(edge)")
    for returned in (AFTER, "return target_in, target_out")
), words="""
    `eos` stands where the sentence ends, but after it the row that must be predicted goes on with what `target` holds
    there. A model would be trained to write on after its own `eos`: from there on, every place is `pad`.""")
slip("eos for the padding", ("padding",), {"return ": "pad = eos\nreturn "}, words="""
    After a sentence's end `eos` is repeated. One `eos` is the end; what fills up the row is `pad`, so that the loss can
    leave it out.""")
slip("padding one place early", NUMBERS[:3], {"behind = place > end": "behind = place >= end"}, words="""
    Padding begins one place too early, in both rows: the last token is not read and `eos` is lost. Both rows have
    length + 1 entries that count: what is read has `bos` more than the sentence, and what is predicted `eos` more.""")
slip("the last token is not read", ("reads", "each its own end"),
     {RETURNED: "return target_in.masked_fill(place >= end, pad), target_out.masked_fill(behind, pad)"}, words="""
    The last token of each sentence is padded over in the row that is read. The decoder must read it, to know that
    `eos` comes next.""")
slip("decimal numbers", ("whole numbers",),
     {"torch.full_like(target[:, :1], bos)": "bos * torch.ones(target.shape[0], 1)"},
     words="""
    The rows are right, but what came back are decimal numbers: `torch.ones` and `torch.zeros` make those, and `cat`
    turns its other pieces into the same. An embedding refuses them. Say which type you want, or start from
    `target`.""")
slip("shifted to the left", ("reads", "each its own end"), {IN: "torch.cat([target, edge], dim=1).roll(-1, dims=1)"},
     words="""
    The tokens moved one place *forward*: at position t the decoder reads token t + 1, the future. What it reads has
    to lag behind what it says.""")


# ------------------------------------------------------------------------------------------------------ further from it


@misconception("no shift", fails=("reads", "each its own end"))
def no_shift(target, lengths, bos, eos, pad):
    """The decoder reads at position t what it is to say at position t. It will learn to copy its input, its loss will
    be next to nothing, and it will not be able to write a single word. What may it know when it says the first one?"""
    edge = torch.full_like(target[:, :1], eos)
    place, end = torch.arange(target.shape[1] + 1), lengths[:, None]
    row = torch.cat([target, edge], dim=1).masked_fill(place == end, eos).masked_fill(place > end, pad)
    return row, row.clone()


@variant("eos at the end of the row", fails=("each its own end", "padding"))
def eos_behind_the_padding(target, lengths, bos, eos, pad):
    """After the padding."""
    begin, end = torch.full_like(target[:, :1], bos), torch.full_like(target[:, :1], eos)
    real = torch.arange(target.shape[1]) < lengths[:, None]
    words = target.where(real, pad)
    return torch.cat([begin, words], dim=1), torch.cat([words, end], dim=1)


@misconception("the last token dropped for all", fails=NUMBERS)
def the_last_token_dropped_for_all(target, lengths, bos, eos, pad):
    """The rows are as long as `target`: the last token was dropped to make room for `bos`, as if `target` held its
    `eos` already. Here it does not: both rows are one place longer than `target`."""
    begin = torch.full_like(target[:, :1], bos)
    place = torch.arange(target.shape[1])
    real = place < lengths[:, None]
    return torch.cat([begin, target[:, :-1]], dim=1).where(real, pad), target.where(real, pad)


# ------------------------------------------------------------------------------------------------ right in other styles


@alternative("lists")
def lists(target, lengths, bos, eos, pad):
    """Row by row, as one would write it by hand."""
    reads, predicts = [], []
    for row, length in zip(target.tolist(), lengths.tolist(), strict=True):
        behind = [pad] * (len(row) - length)
        reads.append([bos, *row[:length], *behind])
        predicts.append([*row[:length], eos, *behind])
    return torch.tensor(reads), torch.tensor(predicts)


@alternative("new tensors, filled in")
def new_tensors_filled_in(target, lengths, bos, eos, pad):
    """Begins with padding alone, and writes what is there."""
    batch, n = target.shape
    reads = torch.full((batch, n + 1), pad)
    predicts = reads.clone()
    reads[:, 0] = bos
    for b in range(batch):
        reads[b, 1 : lengths[b] + 1] = target[b, : lengths[b]]
        predicts[b, : lengths[b]] = target[b, : lengths[b]]
    predicts[torch.arange(batch), lengths] = eos
    return reads, predicts


@alternative("one longer row, two windows")
def one_longer_row_two_windows(target, lengths, bos, eos, pad):
    """`bos`, the sentence, `eos`, padding; then all but the last of it, and all but the first. The `eos` that would be
    read is padded over."""
    longer = nn.functional.pad(target, (1, 1))
    place, end = torch.arange(longer.shape[1]), lengths[:, None] + 1
    longer[:, 0] = bos
    longer = torch.where(place == end, eos, longer).where(place <= end, pad)
    return longer[:, :-1].where(place[:-1] < end, pad), longer[:, 1:]
