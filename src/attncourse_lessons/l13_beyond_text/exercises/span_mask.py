"""span_mask: which frames to mask."""

import torch

from lessonkit.exercises.exercise import Exercise
from lessonkit.exercises.judge import explain_worst
from lessonkit.exercises.observe import require_variation

from .common import READY_MADE


def reference(lot, lengths, p, span):
    """`beyond_text.span_mask` on random numbers that were drawn already."""
    fits = torch.arange(lot.shape[1]) < (lengths - span + 1)[:, None]
    n_spans = (p * lengths).round().clamp(min=1)[:, None]
    starts = (lot.masked_fill(~fits, 2.0).argsort(dim=1).argsort(dim=1) < n_spans) & fits
    masked = torch.zeros_like(starts)
    for later in range(span):
        masked[:, later:] |= starts[:, : lot.shape[1] - later]
    return masked


def solution(lot, lengths, p, span):
    mask = torch.zeros(lot.shape, dtype=torch.bool)
    for row, numbers, n in zip(mask, lot, lengths.tolist(), strict=True):
        s = max(1, round(p * n))
        for start in numbers[: n - span + 1].argsort()[:s].tolist():
            row[start : start + span] = True
    return mask


exercise = Exercise(
    "span_mask",
    reference=reference,
    solution=solution,
    returns=("mask",),
    forbidden=READY_MADE,
    difficulty=3,
    minutes=30,
    hints=(
        "Three questions, one after the other: where may a span start in this sound? How many spans does it get? "
        "At which of the possible places, given the random numbers?",
        "A span that starts at i covers i, …, i + span − 1, and the last of them must lie within the length. Numbers "
        "at places where no span fits must not win: give them a value that loses against all others.",
        "A loop over the sounds is fine. Order the places at which a span fits by their numbers, the lowest first: "
        "the spans start at the first of them. Spans may overlap; what is masked twice is masked.",
    ),
)
aspect, slip, misconception, variant, alternative = exercise.decorators()


def _lots(draw, batch, n, first=(), never=()):
    """Different random numbers in 0..1 (batch, n). Of each row the lowest stand at the places `first`, in this order,
    and the highest at the places `never`; both are lists of places, one for each row.
    """
    lot = draw.uniform(batch, n)
    for row, places in zip(lot, never, strict=False):
        row[places] += 2.0
    for row, places in zip(lot, first, strict=False):
        row[places] = torch.arange(-len(places), 0.0)
    return (lot.argsort(dim=1).argsort(dim=1) + 0.5) / n


def _share(draw, count, n):
    """A p for `count` spans in n frames, to be rounded down a little."""
    return (count + 0.1 + 0.2 * draw.uniform(1).item()) / n


def _whole(draw, high):
    return int(draw.integers(high, 1))


# ----------------------------------------------------------------------------------------------------- what is observed


@aspect("several spans", points=2, hint=1)
def several_spans(answer, draw):
    """each as long as asked for, and some overlap"""
    n = 20 + _whole(draw, 9)
    span = n // 4 + 1 + _whole(draw, 3)  # long: so p · n and p · (n - span + 1) round to different numbers
    start = 1 + _whole(draw, 4)
    lot = _lots(draw, 4, n, [[start, start + 2]], 4 * [list(range(n - span, n))])
    return answer(lot, torch.full((4,), n), _share(draw, 4, n), span)


@aspect("one span", points=1, hint=1)
def one_span(answer, draw):
    """there is always one, however small p"""
    n, span = 12 + _whole(draw, 9), 3 + _whole(draw, 4)
    lot = _lots(draw, 4, n, never=4 * [list(range(n - span, n))])
    return answer(lot, torch.full((4,), n), 0.3 / n, span)


@aspect("within the sound", points=1, hint=2)
def within_the_sound(answer, draw):
    """no span starts where it does not fit; it may end where the sound ends"""
    n, span = 18 + _whole(draw, 9), 4 + _whole(draw, 3)
    too_late = list(range(n - span + 1, n))
    lot = _lots(draw, 4, n, [[*too_late, n - span, b] for b in range(4)])
    return answer(lot, torch.full((4,), n), _share(draw, 2, n), span)


@aspect("lengths", points=1, hint=2)
def lengths(answer, draw):
    """shorter sounds get fewer spans, and none past their end"""
    n, span = 32 + 4 * _whole(draw, 3), 3 + _whole(draw, 3)
    lengths = [n, n // 2, n // 4]
    behind = [[1, 2], *(list(range(length, n)) for length in lengths[1:])]
    lot = _lots(draw, 3, n, behind, [list(range(length - span, length)) for length in lengths])
    order = torch.randperm(3, generator=draw.generator)
    return answer(lot[order], torch.tensor(lengths)[order], _share(draw, 4, n), span)


@aspect("how many", points=1, hint=1, explain=explain_worst("sound {place}: {got} spans, expected {expected}"))
def how_many(answer, draw):
    """p · length spans, rounded"""
    n = 20 + _whole(draw, 20)
    lot, lengths = _lots(draw, 2, n), torch.full((2,), n)
    counts = [4 + side * (0.2 + 0.2 * draw.uniform(1).item()) for side in (1, -1)]
    masks = [answer(lot, lengths, count / n, 1) for count in counts]
    return torch.cat([require_variation(mask).sum(dim=1) for mask in masks])


# -------------------------------------------------------------------------------------- one slip away from the solution

EVERY_SPAN = ("several spans", "one span", "within the sound", "lengths")
FIT, SPAN = "n - span + 1", "start : start + span"

slip("single frames for spans", EVERY_SPAN, {SPAN: "start"}, words="""
    Single frames are masked, where spans should start. A frame between two visible ones is guessed from its neighbours,
    without understanding anything. What makes the task worth solving is that `span` frames in a row are gone.""")

slip("one frame too many", (*EVERY_SPAN, "how many"), {SPAN: f"{SPAN} + 1"}, words="""
    Each span is one frame too long. A slice ends *before* its second number: from start to start + span there are
    `span` frames.""")

slip("one frame too few", (*EVERY_SPAN, "how many"), {SPAN: f"{SPAN} - 1"}, words="""
    Each span is one frame too short: a slice already ends before its second number, so nothing more is to be taken
    off.""")

slip("spans run over the end", ("within the sound",), {FIT: "n", SPAN: "start : min(start + span, n)"}, words="""
    A span may start here at any frame, and those near the end come out shorter: what would reach past the end was cut
    off. (The paper allows that. Our contract does not: every span is whole.) The last start at which a span fits is
    length − span.""")

slip("the last start forgotten", ("within the sound",), {FIT: "n - span"}, words="""
    One start is missing: the last place at which a whole span fits. A span of 3 fits into 5 frames at 0, 1 and 2: that
    is 5 − 3 + 1 places.""")

slip("lengths ignored", ("lengths",),
     {"lengths.tolist()": "[lot.shape[1]] * len(lot)"},
     {"p * n": "p * lot.shape[1]"},  # in the number of spans alone
     {FIT: "len(numbers) - span + 1"},  # in the places alone
     words="""
    Every sound was taken to be as long as the batch is wide. So spans stand in the padding after a shorter sound,
    where there is nothing to guess, and it got as many spans as a long one.""")

slip("the highest numbers", EVERY_SPAN, {"argsort()": "argsort(descending=True)"}, words="""
    The places with the *highest* numbers won. It would be as good a lottery; the contract says that the lowest win, so
    that there is one right answer.""")

slip("places taken for ranks", EVERY_SPAN,
     {f"numbers[: {FIT}].argsort()[:s].tolist()": f"(numbers[: {FIT}].argsort() < s).nonzero()[:, 0].tolist()"},
     words="""
    `argsort` was read as the rank of each place. It is the other way round: its first number is the *place* of the
    lowest, its second the place of the second lowest. The starts are its first s numbers (or sort twice for
    ranks).""")

slip("p as the share that is masked", ("several spans", "within the sound", "lengths"),
     {"p * n": "p * n / span"},
     words="""
    There are too few spans: p was taken for the share of *frames* to mask, and divided by the span. In the paper, and
    here, p is the share of frames at which a span *starts*. (That is why 0.065 masks nearly half.)""")

slip("p of the possible starts", ("several spans",), {"p * n": "p * (n - span + 1)"}, words="""
    p was multiplied by the number of places at which a span fits, n − span + 1. The contract multiplies it by the
    number of frames, n. With short spans both round to the same number; with long ones a span is missing.""")

slip("perhaps none", ("one span",), {"max(1, round(p * n))": "round(p * n)"}, words="""
    A short sound, or a small p, and nothing is masked: then there is nothing to guess, and the mean over no frames is
    NaN. Every sound gets one span at least.""")

slip("rounded down", ("how many",), {"round(": "int("}, words="""
    p · length was cut off after the decimal point, `int(…)` or `//`, not rounded: 3.7 spans became 3.""")

slip("one lot for all", EVERY_SPAN, {"numbers[:": "lot[0, :"}, words="""
    All sounds were masked at the same places, those that the first row of random numbers gives. Each row of `lot` is
    for the sound with that number.""")

slip("upside down", (*EVERY_SPAN, "how many"), {"return mask": "return ~mask"}, words="""
    True stands where a frame stays visible. (In attention's masks True means "may be looked at"; this one is of a
    different kind, and says which frames are *masked*, as in the paper.)""")


# ------------------------------------------------------------------------------------------------------ further from it


@misconception("spans that may not overlap", fails=("several spans", "lengths"))
def spans_that_may_not_overlap(lot, lengths, p, span):
    """A start that lay in an earlier span was passed over for the next. The starts are drawn without looking at each
    other; spans may overlap, and then fewer frames are masked."""
    mask = torch.zeros(lot.shape, dtype=torch.bool)
    for b, length in enumerate(lengths.tolist()):
        left = max(1, round(p * length))
        for start in lot[b, : length - span + 1].argsort().tolist():
            if left and not mask[b, start : start + span].any():
                mask[b, start : start + span] = True
                left -= 1
    return mask


# ------------------------------------------------------------------------------------------------ right in other styles


@alternative("ranks, and sums of starts")
def ranks_and_sums_of_starts(lot, lengths, p, span):
    """No loop: the rank of each number, then how many spans have begun and not ended."""
    n = lot.shape[1]
    fits = torch.arange(n) < (lengths - span + 1).unsqueeze(1)
    rank = torch.where(fits, lot, torch.inf).argsort(dim=1).argsort(dim=1)
    starts = fits & (rank < (p * lengths.double()).round().clamp(min=1).unsqueeze(1))
    begun = starts.long().cumsum(dim=1)
    ended = torch.cat([torch.zeros(len(lot), span, dtype=torch.long), begun], dim=1)[:, :n]
    return begun > ended


@alternative("a maximum that slides")
def a_maximum_that_slides(lot, lengths, p, span):
    """Places by topk, spread over the span by max_pool1d."""
    starts = torch.zeros_like(lot)
    for b in range(lot.shape[0]):
        length = int(lengths[b])
        chosen = torch.topk(lot[b, : length - span + 1], max(1, round(length * p)), largest=False).indices
        starts[b, chosen] = 1.0
    padded = torch.nn.functional.pad(starts, (span - 1, 0))
    return torch.nn.functional.max_pool1d(padded[:, None], span, stride=1)[:, 0].bool()


@alternative("plain Python")
def plain_python(lot, lengths, p, span):
    """Sorts pairs, frame by frame."""
    rows = []
    for numbers, length in zip(lot.tolist(), lengths.tolist(), strict=True):
        places = sorted(range(length - span + 1), key=lambda i: numbers[i])
        row = [False] * len(numbers)
        for start in places[: max(1, round(p * length))]:
            for i in range(start, start + span):
                row[i] = True
        rows.append(row)
    return torch.tensor(rows)
