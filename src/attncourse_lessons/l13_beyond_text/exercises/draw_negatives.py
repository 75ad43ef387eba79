"""draw_negatives: For each of n masked frames, which other frames are its negatives."""

import torch

from lessonkit.exercises.exercise import Exercise
from lessonkit.exercises.judge import explain_worst
from lessonkit.exercises.local_runner import AspectFailed, Problem
from lessonkit.exercises.observe import require_variation

from .common import READY_MADE


def reference(lot):
    n = len(lot)
    drawn = (lot * (n - 1)).long()
    return drawn + (drawn >= torch.arange(n)[:, None])


def solution(lot):
    n = len(lot)
    other = (lot * (n - 1)).long()                         # (n, k)  0..n − 2
    return other + (other >= torch.arange(n)[:, None])     # from i on, one further


exercise = Exercise(
    "draw_negatives",
    reference=reference,
    solution=solution,
    returns=("negatives",),
    forbidden=READY_MADE,
    difficulty=2,
    minutes=12,
    hints=(
        "Among how many others does frame i choose? A number u in 0..1, times that many, cut off after the decimal "
        "point, says which of them it is, if they are counted 0, 1, 2, …",
        "For frame 2 of 5 the others are 0, 1, 3, 4. Others number 0 and 1 are the frames 0 and 1. What are others "
        "number 2 and 3?",
        "From i on, every other frame is one place further on than its number among the others. "
        "`torch.arange(n)[:, None]` is i for all rows at once.",
    ),
)
aspect, slip, misconception, variant, alternative = exercise.decorators()


def _lot_of(draw, n, k):
    """Numbers in 0..1 that stay clear of the steps at multiples of 1/n and of 1/(n − 1)."""
    cells = 20 * n * (n - 1)
    place = draw.integers(n * (n - 1), n, k)
    return (20 * place + 5 + draw.integers(10, n, k)).double().div(cells).float()


# ----------------------------------------------------------------------------------------------------- what is observed


@aspect("negatives", points=2, hint=1)
def negatives(answer, draw):
    """number u is the ⌊u · (n − 1)⌋-th of the others"""
    n, k = draw.sizes(2, 4, 9)
    return answer(_lot_of(draw, n, k))


@aspect(
    "never itself", points=1, hint=2, explain=lambda got, expected: f"{int(got.sum())} frames drew themselves"
)
def never_itself(answer, draw):
    """no frame is its own negative"""
    n, k = 5 + int(draw.integers(3, 1)), 40
    return require_variation(answer(_lot_of(draw, n, k))) == torch.arange(n)[:, None]


@aspect(
    "everybody else equally",
    points=1, hint=3,
    explain=explain_worst("(frame, other) {place} was drawn {got} times, expected {expected}"),
)
def everybody_else_equally(answer, draw):
    """each of the others is drawn as often as any"""
    n = 5 + int(draw.integers(3, 1))
    lot = (torch.arange(4 * n * (n - 1)) + 0.5).div(4 * n * (n - 1)).expand(n, -1).clone()
    drawn = answer(lot)
    if drawn.is_floating_point():
        words = "floating point numbers, which cannot be indices; an integer dtype is needed"
        raise AspectFailed(Problem("unusable", words))
    if drawn.ndim != 2 or drawn.min() < 0 or drawn.max() >= n:
        words = f"not whole numbers from 0 to n − 1 = {n - 1}, one for each number of `lot`"
        raise AspectFailed(Problem("unusable", words))
    return torch.nn.functional.one_hot(drawn.long(), n).sum(dim=1)


# -------------------------------------------------------------------------------------- one slip away from the solution

DRAWS = ("negatives", "never itself", "everybody else equally")
NOT_ITSELF = ("negatives", "everybody else equally")
STEP_OVER = " + (other >= torch.arange(n)[:, None])"

slip("the positive among the negatives", DRAWS, {"n - 1": "n", STEP_OVER: ""}, words="""
    Frame i may draw frame i. Then the right answer stands among the wrong ones, the loss demands that a thing be told
    from itself, and no model can do better than guess between the two. Each frame chooses among the *others*.""")

slip("one too many to choose from", NOT_ITSELF, {"n - 1": "n"}, words="""
    u was multiplied by n, and then one was stepped over. The others are n − 1: the last pieces of 0..1 now lead one
    past the last frame, and all the other pieces are too narrow.""")
slip("the neighbour twice", NOT_ITSELF,
     {"n - 1": "n", f"other{STEP_OVER}": "(other + (other == torch.arange(n)[:, None])) % n"},
     words="""
    A frame that drew itself was sent on to the next. So no frame is its own negative, but the next frame is drawn twice
    as often as any other, and it is the one that resembles it most. Choose among n − 1 from the start.""")

slip("the last is never drawn", DRAWS, {STEP_OVER: ""}, words="""
    There are n − 1 to choose from, and the first n − 1 were taken, whoever asks: frame i is among them, the last is
    not. What is missing is to step over i.""")

slip("steps over too late", DRAWS, {">=": ">"}, words="""
    Those *after* i were moved by one, but i itself was not: a frame that draws number i of the others still gets
    itself, and none gets the one after it. Where must the step begin?""")

slip("its number from the columns", DRAWS,
     {"torch.arange(n)[:, None]": "torch.arange(lot.shape[1])"},
     words="""
    What was stepped over is the number of the *column*, and not the frame's own. In row i all k numbers belong to frame
    i: give i an axis of length one at its end, so that it stays the same along the row.""")

slip("numbers that are not whole", ("everybody else equally",), {".long()": ".floor()"}, words="""
    The numbers are right and of a floating point dtype, so nothing can be looked up with them. Cut off after the
    decimal point, and make integers of them, too.""")

slip("counted on from itself", ("negatives",),
     {f"other{STEP_OVER}": "(torch.arange(n)[:, None] + 1 + other) % n"},
     words="""
    A fair draw: no frame gets itself, and all others are drawn equally often. But they were counted onwards from i, and
    round again from the start. The contract counts them from frame 0, so that there is one right answer.""")

slip("rounded to the nearest", NOT_ITSELF, {".long()": ".round().long()"}, words="""
    `round` gives the first of the others half a chance, and leads one past the last. Cut off after the decimal point:
    then all pieces of 0..1 are equally wide.""")


# ------------------------------------------------------------------------------------------------ right in other styles


@alternative("a list of the others")
def a_list_of_the_others(lot):
    """Looks them up, frame by frame."""
    rows = []
    for i, numbers in enumerate(lot):
        others = torch.tensor([j for j in range(len(lot)) if j != i])
        rows.append(others[(numbers * len(others)).long()])
    return torch.stack(rows)


@alternative("where, floor and int32")
def where_floor_and_int32(lot):
    """Two cases."""
    drawn = torch.floor(lot * (lot.shape[0] - 1))
    own = torch.arange(lot.shape[0]).view(-1, 1)
    return torch.where(drawn < own, drawn, drawn + 1).int()


@alternative("a table of the others")
def a_table_of_the_others(lot):
    """All others of all frames, (n, n − 1), and gather."""
    n = lot.shape[0]
    everybody = torch.arange(n).expand(n, n)
    others = everybody[~torch.eye(n, dtype=torch.bool)].view(n, n - 1)
    return others.gather(1, (lot * (n - 1)).long())
