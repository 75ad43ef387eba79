"""majority_reading: Several transcriptions of one table: where they differ, and what most of them say."""

from collections import Counter

import numpy as np
import torch

from lessonkit.exercises.exercise import Exercise

from .common import READY_MADE


def reference(readings):
    """Each reading gets as many votes as there are transcriptions that agree with it."""
    votes = (readings[:, None] == readings).sum(dim=1)                   # (k, rows, columns)
    most, winner = votes.max(dim=0)                                      # (rows, columns) each
    agreed = readings.gather(0, winner[None])[0]
    nobody = torch.full_like(agreed, torch.nan)
    return torch.where(2 * most > len(readings), agreed, nobody), most < len(readings)


def solution(readings):
    k = len(readings)
    same = readings.unsqueeze(0) == readings.unsqueeze(1)        # (k, k, rows, columns)
    votes = same.sum(dim=0)                                      # (k, rows, columns)
    most, who = votes.max(dim=0)                                 # (rows, columns) each
    agreed = readings.gather(0, who.unsqueeze(0)).squeeze(0)
    agreed = agreed.masked_fill(2 * most <= k, torch.nan)
    disputed = (readings != readings[0]).any(dim=0)
    return agreed, disputed


exercise = Exercise(
    "majority_reading",
    reference=reference,
    solution=solution,
    returns=("agreed", "disputed"),
    forbidden=READY_MADE,
    difficulty=2,
    minutes=15,
    hints=(
        "A transcription votes for its own reading and for every other one that is equal to it. Compare all with all: "
        "which shape has the table that says for each pair of transcriptions, in each place, whether they agree?",
        "More than half: of three it is two, of four it is three. Which comparison of whole numbers says that without "
        "a division?",
        "Disputed is a place where at least one transcription differs from another, also if a majority is clear.",
    ),
)
aspect, slip, misconception, variant, alternative = exercise.decorators()


def _transcriptions(draw, k, rows, columns, least=0):
    """Tables that mostly agree: (k, rows, columns), each place with one of three readings, none below `least`."""
    truth, other = draw.integers(50, rows, columns), draw.integers(3, k, rows, columns)
    slipped = draw.integers(5, k, rows, columns) < 2
    return least + (truth + torch.where(slipped, other, torch.zeros_like(other))).double() / 4


SOME = -1.0  # stands for a reading, whichever it is
LARGE = 2.0**20  # beside which a quarter is next to nothing; float32 still has it


def _of_several(answer, draw, *numbers, one_column=False):
    """What comes back for so many transcriptions of tables of one size: the agreed readings, and where they differ.

    And where a reading has a majority. All are (numbers, rows, columns); the last of the tables has large numbers.
    """
    rows, columns = (40, 1) if one_column else draw.sizes(2, 5, 8)
    least = [0.0] * (len(numbers) - 1) + [LARGE]
    tables = [_transcriptions(draw.child(str(k)), k, rows, columns, low) for k, low in zip(numbers, least, strict=True)]
    found = [answer(table) for table in tables]
    decided = torch.stack([reference(table)[0].isfinite() for table in tables])
    return [*(torch.stack(each) for each in zip(*found, strict=True)), decided]


def _where(places, agreed):
    """The agreed readings in these places, and 0 elsewhere; all of them where they are of another shape."""
    return torch.where(places, agreed.double(), 0.0) if agreed.shape == places.shape else agreed


def _in_words(*numbers):
    """Says of which tables a number or NaN is wrong, and where."""

    def explain(got, expected):
        which, row, column = np.argwhere(~np.isclose(got, expected, equal_nan=True))[0]
        has, right = got[which, row, column], expected[which, row, column]
        wanted = f"got {has:g}, expected {right:g}"
        if right == SOME:
            wanted = "got NaN, though more than half say the same"
        elif np.isnan(right):
            wanted = "got a reading, expected NaN, since none has more than half"
        return f"of {numbers[which]} transcriptions, row {row}, column {column}: {wanted}"

    return explain


# ----------------------------------------------------------------------------------------------------- what is observed


@aspect("agreed", points=2, hint=1, explain=_in_words(3, 4, 5))
def agreed(answer, draw):
    """what more than half of three, four or five transcriptions say, where there is such a majority"""
    agreed, _, decided = _of_several(answer, draw, 3, 4, 5)
    return _where(decided, agreed)


@aspect("no majority", points=1, hint=2, explain=_in_words(3, 4, 6))
def no_majority(answer, draw):
    """NaN where no reading has more than half, and only there"""
    agreed, _, decided = _of_several(answer, draw, 3, 4, 6, one_column=True)
    if agreed.shape != decided.shape:
        return agreed
    said = torch.where(decided, SOME, agreed.double())
    said[1:] = SOME  # of three transcriptions it shows which reading came back; of others it asks only whether one did
    return torch.where(agreed.isnan(), torch.nan, said)


@aspect("disputed", points=1, hint=3)
def disputed(answer, draw):
    """True where not all say the same"""
    return _of_several(answer, draw, 3, 4, 5)[1]


# -------------------------------------------------------------------------------------- one slip away from the solution

AGREED, UNDECIDED, DISPUTED = ("agreed", "no majority"), ("no majority",), ("disputed",)
MOST = "agreed = agreed.masked_fill(2 * most <= k, torch.nan)"

slip("half is enough", UNDECIDED,
     {"2 * most <= k": "2 * most < k"},
     {"2 * most <= k": "most < 2"},  # two, however many there are
     words="""
    Half of the votes, or two of them, were taken for a majority. With four transcriptions two may say one thing and two
    another, and then which of them comes back is chance.""")
slip("the most frequent reading", UNDECIDED, {MOST: "pass"}, words="""
    The reading with the most votes came back, also where it has no majority: of three different readings each has one
    vote, and which of them comes back is the program's choice. NaN is asked for there.""")
slip("all must agree", AGREED, {"2 * most <= k": "most < k"}, words="""
    NaN came back wherever there is any dispute. One slip in one of the transcriptions is just what the others can
    correct.""")
slip("disputed where nobody wins", DISPUTED,
     {"(readings != readings[0]).any(dim=0)": "2 * most <= k"},
     {"(readings != readings[0]).any(dim=0)": "agreed.isnan()"},
     words="""
    A place counts as disputed only where there is no majority. Where two of three agree, the third has slipped, and
    that is a place to look at.""")
slip("disputed for undisputed", DISPUTED,
     {"(readings != readings[0]).any(dim=0)": "(readings == readings[0]).all(dim=0)"}, words="""
    It is True where all agree. Disputed are the other places.""")
slip("an axis of length one left", AGREED, {".squeeze(0)": ""}, words="""
    What `gather` found still has the axis of the transcriptions, of length one. The agreed table is
    (rows, columns).""")
slip("two of them compared", DISPUTED,
     {"(readings != readings[0]).any(dim=0)": "readings[0] != readings[1]"},
     {"(readings != readings[0]).any(dim=0)": "readings[0] != readings[-1]"},
     words="""
    Only two of the transcriptions were compared. A third may differ from both.""")
slip("nearly equal counts as equal", UNDECIDED,
     {"readings.unsqueeze(0) == readings.unsqueeze(1)":
      "torch.isclose(readings.unsqueeze(0), readings.unsqueeze(1))"},
     words="""
    Readings that lie close together were taken for the same. `torch.isclose` allows a hundred-thousandth of the number,
    which is a lot of a large one. A transcription is right or wrong: compare for equality.""")


@variant("nearly equal counts as equal", fails=(*UNDECIDED, *DISPUTED))
def nearly_equal_in_both(readings):
    """For both of what comes back."""
    votes = torch.isclose(readings[:, None], readings[None]).sum(dim=1)
    winner = votes.argmax(dim=0, keepdim=True)
    agreed = readings.gather(0, winner)[0].masked_fill(2 * votes.amax(dim=0) <= len(readings), torch.nan)
    return agreed, votes.amin(dim=0) < len(readings)


@misconception("the first transcription", fails=("agreed",))
def the_first_transcription(readings):
    """What came back is what the first transcription says. It may be the one that slipped."""
    votes = (readings[:, None] == readings).sum(dim=1)
    most = votes.max(dim=0).values
    return readings[0].masked_fill(2 * most <= len(readings), torch.nan), most < len(readings)


@misconception("the mean", fails=("agreed", "no majority"))
def the_mean(readings):
    """The readings were averaged. A misread 1 for a 7 then moves the number a little, to one that nobody has printed. A
    vote is on what stands there, not on how large it is."""
    return readings.mean(dim=0), (readings != readings[0]).any(dim=0)


@variant("the most frequent reading", fails=UNDECIDED)
def the_mode(readings):
    """As torch has it, and of several that are equally frequent the smallest."""
    return readings.mode(dim=0).values, (readings != readings[0]).any(dim=0)


@misconception("the median", fails=UNDECIDED)
def the_median(readings):
    """The median of the readings came back. With three readings, of which two are equal, that is their value; with
    three different ones it is the middle one, which has no majority: there NaN is asked for."""
    return readings.median(dim=0).values, (readings != readings[0]).any(dim=0)


# ------------------------------------------------------------------------------------------------ right in other styles


@alternative("place by place, with a counter")
def place_by_place(readings):
    """Plain Python."""
    rows, columns = readings.shape[1:]
    agreed, disputed = torch.full((rows, columns), float("nan"), dtype=readings.dtype), torch.zeros(rows, columns)
    for i in range(rows):
        for j in range(columns):
            said, votes = Counter(readings[:, i, j].tolist()).most_common(1)[0]
            disputed[i, j] = votes < len(readings)
            if votes > len(readings) / 2:
                agreed[i, j] = said
    return agreed, disputed.bool()


@alternative("the median, if it has a majority")
def the_median_if_it_has_a_majority(readings):
    """What more than half say stands in the middle when they are sorted."""
    middle = readings.sort(dim=0).values[len(readings) // 2]
    votes = (readings == middle).float().mean(dim=0)
    lost = torch.tensor(float("nan"), dtype=readings.dtype)
    return torch.where(votes > 0.5, middle, lost), readings.amax(dim=0) > readings.amin(dim=0)


@alternative("the mode, counted")
def the_mode_counted(readings):
    """torch.mode finds the most frequent; whether it is a majority must be counted."""
    agreed = readings.mode(dim=0).values
    votes = (readings == agreed).sum(dim=0)
    agreed[votes * 2 <= readings.shape[0]] = float("nan")
    return agreed, votes != readings.shape[0]
