"""window_blocks: For each block of queries, the keys that its window can touch, and which of them it may attend to."""

import torch
from torch import Tensor

from attncourse import efficient
from lessonkit.exercises.exercise import Exercise
from lessonkit.exercises.way_back import explain_way_back, way_back

from .common import READY_MADE, truth


def reference(x: Tensor, width: int) -> tuple[Tensor, Tensor]:
    """Position by position: three blocks of x for each block, and the package's pattern, cut out of the whole mask."""
    n = x.shape[1]
    window = efficient.dense_mask(efficient.sliding_window(width), n)
    blocks = x.new_zeros(x.shape[0], n // width, 3 * width, x.shape[2])
    mask = torch.zeros(n // width, width, 3 * width, dtype=torch.bool)
    for block in range(n // width):
        for place in range(3 * width):
            key = (block - 1) * width + place
            if 0 <= key < n:
                blocks[:, block, place] = x[:, key]
                mask[block, :, place] = window[block * width : (block + 1) * width, key]
    return blocks, mask


def solution(x, width):
    n = x.shape[1]
    padded = torch.nn.functional.pad(x, (0, 0, width, width))    # (batch, n + 2 · width, d)
    blocks = padded.unfold(1, 3 * width, width).mT             # (batch, n_blocks, 3 · width, d)
    start = torch.arange(0, n, width)[:, None, None]             # (n_blocks, 1, 1)
    i = start + torch.arange(width)[:, None]                     # (n_blocks, width, 1)
    j = start - width + torch.arange(3 * width)                  # (n_blocks, 1, 3 · width)
    mask = ((i - j).abs() <= width) & (j >= 0) & (j < n)         # (n_blocks, width, 3 · width)
    return blocks, mask


exercise = Exercise(
    "window_blocks",
    reference=reference,
    solution=solution,
    returns=("blocks", "mask"),
    forbidden=READY_MADE,
    difficulty=3,
    minutes=20,
    hints=(
        "Draw n = 8 and width = 2 on squared paper: four blocks of queries. Which keys can the second block's first "
        "query reach, and which its last? Those are three blocks of keys.",
        "Put `width` rows of zeros before x and as many after it. In this longer x, the keys of block b begin at row "
        "b · width and end 3 · width rows later. A list of slices and `torch.stack` will do; `unfold` does it at once.",
        "For the mask you need two numbers for each cell: which position asks, i, and which one answers, j. With `b` a "
        "column of block numbers, i counts on from b · width. Where does j begin to count? One condition is on the "
        "distance of the two, and two are on j alone: there is nothing before the first position and after the last.",
    ),
)
aspect, slip, misconception, variant, alternative = exercise.decorators()


def _answer(answer, draw, n_blocks: int) -> tuple[Tensor, Tensor, int]:
    """The answer for a text of so many blocks, with the width."""
    [width], [batch, d] = draw.sizes(1, 3, 5), draw.sizes(2, 2, 7)
    blocks, mask = answer(draw.normal(batch, n_blocks * width, d), width)
    return blocks, mask, width


# ----------------------------------------------------------------------------------------------------- what is observed


@aspect("own block", points=1, hint=2)
def own_block(answer, draw):
    """the middle third of the keys is the block's own"""
    blocks, _, width = _answer(answer, draw, 4)
    return blocks[:, :, width : 2 * width]


@aspect("neighbours", points=1, hint=2)
def neighbours(answer, draw):
    """the first third is the block before, the last third the block after"""
    blocks, _, width = _answer(answer, draw, 5)
    return torch.cat([blocks[:, 1:-1, :width], blocks[:, 1:-1, 2 * width :]], dim=2)


@aspect("ends", points=1, hint=2)
def ends(answer, draw):
    """where no block is, before the first and after the last, there are zeros"""
    blocks, _, _ = _answer(answer, draw, 3)
    return torch.cat([blocks[:, 0], blocks[:, -1]], dim=1)


@aspect("window", points=2, hint=3, explain=truth)
def window(answer, draw):
    """in the middle of a text, a query may attend to itself and at `width` positions on each side"""
    _, mask, _ = _answer(answer, draw, 4)
    return mask[1:-1]


@aspect("mask at the ends", points=1, hint=3, explain=truth)
def mask_at_the_ends(answer, draw):
    """no query may attend to the zeros"""
    _, mask, _ = _answer(answer, draw, 3)
    return torch.stack([mask[0], mask[-1]])


@aspect("gradient", points=1, hint=2, explain=explain_way_back("x"))
def gradient(answer, draw):
    """gradients reach x wherever a query may attend"""
    [width], [batch, d] = draw.sizes(1, 3, 5), draw.sizes(2, 2, 7)
    x = draw.normal(batch, 3 * width, d).requires_grad_()
    return way_back(answer(x, width)[0], reference(x, width)[0], [x], draw)


# -------------------------------------------------------------------------------------- one slip away from the solution

BLOCKS, MASKS = ("own block", "neighbours", "ends"), ("window", "mask at the ends")
SIDES = ("neighbours", "ends")
DISTANCE, EXISTS = "(i - j).abs() <= width", " & (j >= 0) & (j < n)"
PADDED, CUT = "torch.nn.functional.pad(x, (0, 0, width, width))", "padded.unfold(1, 3 * width, width).mT"

slip("window off by one", MASKS,
     {DISTANCE: "(i - j).abs() < width"},
     {DISTANCE: "(i - j).abs() <= width + 1"},
     words="""
    The window ends one position too early or too late. Count the True cells of a row in the middle: itself and `width`
    on each side make how many?""")
slip("a distance with its sign", MASKS, {DISTANCE: "i - j <= width"}, words="""
    On one side the window does not end. i − j is negative for keys that come later, and so never above the width. What
    counts is the distance, without its sign.""")
slip("all three blocks", MASKS, {f"({DISTANCE})": "(i == i)"}, words="""
    Every query may attend to all three blocks of keys. They are what a block's window *can* touch. Each query's own
    window is narrower: the first query of a block reaches no key of the block after.""")
slip("the zeros may be looked at", ("mask at the ends",), {EXISTS: ""}, words="""
    At the ends of the text queries may attend to rows of zeros, positions that do not exist. A key of zeros gets a
    score of 0, not −∞, and so a weight that is missing elsewhere.""")
slip("one end forgotten", ("mask at the ends",), {" & (j >= 0)": ""}, {" & (j < n)": ""}, words="""
    At one end of the text queries may attend to positions that do not exist. There are two ends: before the first
    position and after the last.""")
slip("causal", MASKS, {EXISTS: f"{EXISTS} & (j <= i)"}, words="""
    The mask leaves out what comes later. That is right in a decoder. Here the window has two sides.""")
slip("True where it is forbidden", MASKS,
     {f"({DISTANCE}){EXISTS}": f"~(({DISTANCE}){EXISTS})"}, words="""
    The mask has the opposite sense. In this course, as in torch's `scaled_dot_product_attention`, True means "may
    attend".""")
slip("keys counted from the block's own", MASKS, {"j = start - width": "j = start"}, words="""
    The mask takes the first of the three blocks of keys for the block's own. The keys begin one block *earlier* than
    the queries: the middle third is the block's own.""")
slip("nothing before the first", BLOCKS, {"(0, 0, width, width)": "(0, 0, 0, 2 * width)"}, words="""
    All zeros were put after the text, none before it. So each block has its own keys and two blocks that come later,
    and none that comes before.""")
slip("round in a circle", ("ends",), {PADDED: "torch.cat([x[:, -width:], x, x[:, :width]], dim=1)"}, words="""
    The text was closed to a circle: before the first block stands the last one. A text has two ends; nothing is there
    but zeros.""")
slip("before and after exchanged", SIDES,
     {CUT: f"{CUT}.unflatten(2, (3, width)).flip(2).flatten(2, 3)"}, words="""
    The block that comes after stands in the first third, and the one that comes before in the last. Keys stand in the
    order of the text.""")
OWN_FIRST = ".unflatten(2, (3, width))[:, :, [1, 0, 2]].flatten(2, 3)"
slip("own block first", ("own block", *SIDES, *MASKS),
     {CUT: f"{CUT}{OWN_FIRST}", f"({DISTANCE}){EXISTS}": f"(({DISTANCE}){EXISTS}){OWN_FIRST}"}, words="""
    The block's own keys stand first, then those before and those after. Attention would not mind, but the contract asks
    for the order of the text: before, own, after.""")
slip("back to front", BLOCKS, {CUT: f"{CUT}.flip(2)"}, words="""
    The 3 · width keys of each block stand in reverse order: the last position comes first.""")
slip("cut off", ("gradient",), {PADDED: "torch.nn.functional.pad(x.detach(), (0, 0, width, width))"}, words="""
    The numbers are right and the gradient is cut off. Copying rows is differentiable; take care not to leave torch, or
    to detach.""")


# ------------------------------------------------------------------------------------------------------ further from it


@misconception("blocks that do not overlap", fails=("own block", "neighbours", "ends", "window", "mask at the ends"))
def blocks_that_do_not_overlap(x, width):
    """Each block of queries has its own keys alone. Then a window is cut at the border of a block: the first query
    never sees the position just before it. Each block needs its two neighbours as well, 3 · width keys."""
    n_blocks = x.shape[1] // width
    return x.unflatten(1, (n_blocks, width)), torch.ones(n_blocks, width, width, dtype=torch.bool)


# ------------------------------------------------------------------------------------------------ right in other styles


@alternative("slices, and the whole mask cut up")
def slices_and_the_whole_mask_cut_up(x, width):
    """A list of slices; the mask is written out for all n positions first."""
    n, zeros = x.shape[1], torch.zeros_like(x[:, :width])
    longer = torch.cat([zeros, x, zeros], dim=1)
    blocks = torch.stack([longer[:, at : at + 3 * width] for at in range(0, n, width)], dim=1)
    i = torch.arange(n)
    near = torch.zeros(n, n + 2 * width, dtype=torch.bool)
    near[:, width : n + width] = (i[:, None] - i).abs() <= width
    mask = torch.stack([near[at : at + width, at : at + 3 * width] for at in range(0, n, width)])
    return blocks, mask


@alternative("three shifted copies")
def three_shifted_copies(x, width):
    """The blocks, moved by one either way, side by side; the mask from the place within the three blocks."""
    own = x.reshape(x.shape[0], -1, width, x.shape[2])                     # (batch, n_blocks, width, d)
    nothing = own[:, :1] * 0
    before, after = torch.cat([nothing, own[:, :-1]], dim=1), torch.cat([own[:, 1:], nothing], dim=1)
    row, place = torch.arange(width).view(-1, 1), torch.arange(3 * width)
    band = (place >= row) & (place <= row + 2 * width)                     # (width, 3 · width), of any block
    mask = band.repeat(own.shape[1], 1, 1)
    mask[0, :, :width] = False
    mask[-1, :, 2 * width :] = False
    return torch.cat([before, own, after], dim=2), mask


@alternative("by index")
def by_index(x, width):
    """The position of each key as an index, moved into the text; what was outside becomes zero."""
    n = x.shape[1]
    j = torch.arange(n // width)[:, None] * width + torch.arange(-width, 2 * width)      # (n_blocks, 3 · width)
    there = (j >= 0) & (j < n)
    blocks = torch.where(there[None, :, :, None], x[:, j.clamp(0, n - 1)], torch.zeros(()))
    i = torch.arange(n).view(-1, width)                                                  # (n_blocks, width)
    return blocks, torch.le((i[:, :, None] - j[:, None]).abs(), width).logical_and(there[:, None])
