"""sliding_window_mask: Who may attend to whom in a (dilated) sliding window."""

import torch
from torch import Tensor

from attncourse import efficient
from lessonkit.exercises.exercise import Exercise

from .common import READY_MADE, truth


def reference(n: int, width: int, dilation: int, causal: bool) -> Tensor:
    """The package's pattern, written out."""
    return efficient.dense_mask(efficient.dilated(width, dilation, causal), n)


def solution(n, width, dilation, causal):
    behind = torch.arange(n)[:, None] - torch.arange(n)          # (n, n)  i − j: how far key j lies behind query i
    allowed = (behind.abs() <= width * dilation) & (behind % dilation == 0)
    return allowed & (behind >= 0) if causal else allowed


exercise = Exercise(
    "sliding_window_mask",
    reference=reference,
    solution=solution,
    returns=("mask",),
    forbidden=READY_MADE,
    difficulty=1,
    minutes=12,
    hints=(
        "Draw n = 7, width = 1, dilation = 2 on squared paper. Whom does position 3 see? What do all True cells of the "
        "table have in common, if you look at query index minus key index?",
        "`i = torch.arange(n)[:, None]` and `j = torch.arange(n)`: then `i - j` is the whole table of distances, with "
        "a sign. Three conditions on it, joined by `&`.",
        "With a dilation the window reaches as far as width · dilation, and within it every distance that is not a "
        "multiple of the dilation is left out.",
    ),
)
aspect, slip, misconception, variant, alternative = exercise.decorators()


# ----------------------------------------------------------------------------------------------------- what is observed


@aspect("both sides", points=1, hint=1, explain=truth)
def both_sides(answer, draw):
    """a position sees itself and `width` on each side"""
    [width], [n] = draw.sizes(1, 3, 5), draw.sizes(1, 12, 16)
    return answer(n, width, 1, False)


@aspect("causal", points=1, hint=2, explain=truth)
def causal(answer, draw):
    """with `causal`, itself and the `width` before it"""
    [width], [n] = draw.sizes(1, 3, 5), draw.sizes(1, 12, 16)
    return answer(n, width, 1, True)


@aspect("dilated", points=1, hint=3, explain=truth)
def dilated(answer, draw):
    """with gaps: `width` on each side, each `dilation` apart"""
    [width], [dilation], [n] = draw.sizes(1, 3, 4), draw.sizes(1, 2, 3), draw.sizes(1, 16, 20)
    return answer(n, width, dilation, False)


@aspect("dilated and causal", points=1, hint=3, explain=truth)
def dilated_and_causal(answer, draw):
    """with both, every `dilation`-th of those before it"""
    [width], [dilation], [n] = draw.sizes(1, 3, 4), draw.sizes(1, 2, 3), draw.sizes(1, 16, 20)
    return answer(n, width, dilation, True)


@aspect("wider than the text", points=1, hint=2, explain=truth)
def wider_than_the_text(answer, draw):
    """a window may be wider than the text"""
    [n] = draw.sizes(1, 5, 7)
    return answer(n, n + 2, 1, True)


# -------------------------------------------------------------------------------------- one slip away from the solution

WINDOWS = ("both sides", "causal", "dilated", "dilated and causal", "wider than the text")
UNDER_CAUSAL = ("causal", "dilated and causal", "wider than the text")
WITH_GAPS = ("dilated", "dilated and causal")
REACH, GAPS = "width * dilation", " & (behind % dilation == 0)"
CAUSAL = "allowed & (behind >= 0) if causal else allowed"

slip("window off by one", ("both sides", "causal", "dilated", "dilated and causal"),
     {"<= width": "< width"},
     {REACH: "(width + 1) * dilation"},  # one too late
     words="""
    The window ends one position too early: `<` where the last one belongs to it. Count the True cells of a row in the
    middle: itself and `width` on each side make how many?""")

slip("the whole window is `width` wide", WINDOWS, {REACH: "width // 2 * dilation"}, words="""
    `width` was taken for the whole window and half of it laid on each side. Papers differ in this (Longformer's w is
    the whole), so read the contract: here it is the number of positions on *each* side.""")

slip("a distance with its sign", ("both sides", "dilated"), {"behind.abs()": "behind"}, words="""
    The window ends where it should in the past, and not at all in the future: there i − j is negative, and so never
    above the width. What counts on both sides is the distance, without its sign.""")

slip("not causal", UNDER_CAUSAL, {CAUSAL: "allowed"}, words="""
    `causal` made no difference: positions still see what comes after them.""")

slip("future for past", UNDER_CAUSAL, {"behind >= 0": "behind <= 0"}, words="""
    With `causal` it is the past that is gone. Rows ask and columns answer; in row i, the allowed columns are those up
    to i.""")

slip("not even itself", UNDER_CAUSAL, {"behind >= 0": "behind > 0"}, words="""
    With `causal` a position no longer sees itself, and the first one sees nobody: softmax would make 0/0 of its row.
    What has been read already is no secret; only what comes later is.""")

slip("True where it is forbidden", WINDOWS, {CAUSAL: f"~({CAUSAL})"}, words="""
    The mask has the opposite sense. In this course, as in torch's `scaled_dot_product_attention`, True means "may
    attend".""")

slip("gaps that do not widen the window", WITH_GAPS, {REACH: "width"}, words="""
    Positions were left out, but the window did not get longer for it, so a row sees fewer keys than without dilation.
    Dilation keeps the number of keys, and spends it on a longer reach.""")

slip("a longer window without gaps", WITH_GAPS, {GAPS: ""}, words="""
    The window reaches as far as it should, and nothing in it was left out. Of the distances up to width · dilation only
    the multiples of `dilation` belong to it.""")

slip("dilation ignored", WITH_GAPS, {REACH: "width", GAPS: ""}, words="""
    The window is the one without gaps, whatever the dilation: `dilation` has not been used.""")

slip("causal without the gaps", ("dilated and causal",),
     {"allowed & (behind >= 0)": "(behind >= 0) & (behind <= width)"},
     {"allowed & (behind >= 0)": "(behind >= 0) & (behind <= width * dilation)"},  # as far as it should, no gaps
     words="""
    Each of the two works alone. With `causal` and a dilation together the gaps are gone: the causal case goes its own
    way, in which `dilation` does not occur. Being causal is one more condition, not a different window.""")

slip("dilation counts what is skipped", WINDOWS,
     {REACH: "width * (dilation + 1)", "% dilation": "% (dilation + 1)"},
     words="""
    Here neighbours in the window are dilation + 1 apart. A dilation of 1 means no gaps at all: it is the distance from
    one to the next, not the number of positions that are skipped.""")


# ------------------------------------------------------------------------------------------------------ further from it


@misconception("a slice that begins below zero", fails=WINDOWS)
def a_slice_that_begins_below_zero(n, width, dilation, causal):
    """Near the beginning i − width is negative, and a Python slice that begins at −2 begins at the last but one. The
    first rows come out empty, or wrong. Nobody stands before position 0."""
    mask = torch.zeros(n, n, dtype=torch.bool)
    for i in range(n):
        end = i + 1 if causal else i + width * dilation + 1
        mask[i, i - width * dilation : end : dilation] = True
    return mask


@misconception("no window wider than the text", fails=("wider than the text",))
def no_window_wider_than_the_text(n, width, dilation, causal):
    """Diagonal by diagonal works, until a diagonal would lie outside the table: there is none at a distance of n or
    more. Stop before, or compare distances instead, which asks for no special case."""
    mask = torch.zeros(n, n, dtype=torch.bool)
    for step in range(-width, 1 if causal else width + 1):
        mask |= torch.diag(torch.ones(n - abs(step * dilation), dtype=torch.bool), step * dilation)
    return mask


# ------------------------------------------------------------------------------------------------ right in other styles


@alternative("two loops")
def two_loops(n, width, dilation, causal):
    """Row by row, staying within the table."""
    mask = torch.zeros(n, n, dtype=torch.bool)
    for i in range(n):
        for step in range(-width, 1 if causal else width + 1):
            if 0 <= i + step * dilation < n:
                mask[i, i + step * dilation] = True
    return mask


@alternative("triangles")
def triangles(n, width, dilation, causal):
    """A band cut by `tril` and `triu`, and a comb for the gaps."""
    band = torch.ones(n, n).tril(0 if causal else width * dilation).triu(-width * dilation).bool()
    comb = [[(i - j) % dilation == 0 for j in range(n)] for i in range(n)]
    return torch.logical_and(band, torch.tensor(comb))


@alternative("a list of distances")
def a_list_of_distances(n, width, dilation, causal):
    """`isin`, on a transposed table."""
    ahead = torch.arange(n)[:, None] - torch.arange(n)[None, :]
    steps = [step * dilation for step in range(-width, 1 if causal else width + 1)]
    return torch.isin(ahead, torch.tensor(steps)).T
