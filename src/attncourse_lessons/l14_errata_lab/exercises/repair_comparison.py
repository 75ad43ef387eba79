"""repair_comparison: How far the outputs of one word are apart."""

import torch

from lessonkit.exercises.exercise import Exercise

from .common import READY_MADE


def reference(output, tokens, word):
    """The largest difference in any feature between any two of the word's places."""
    rows = output[tokens == word]
    return (rows.amax(dim=0) - rows.amin(dim=0)).max()


def solution(output, tokens, word):
    rows = output[tokens == word]                                # (times, d)
    apart = rows.max(dim=0).values - rows.min(dim=0).values      # (d,)
    return apart.max()


exercise = Exercise(
    "repair_comparison",
    reference=reference,
    solution=solution,
    returns=("difference",),
    forbidden=READY_MADE,
    difficulty=1,
    minutes=10,
    extra=True,
    numbers=True,
    hints=(
        "Where does the word stand? The tokens say it: `tokens == word` is True there.",
        "A boolean tensor may be an index: it picks the rows of `output`, one for each place of the word. Now compare "
        "each row with every other, feature by feature.",
        "The largest difference between any two numbers is the largest minus the smallest: never negative, and 0 for "
        "one number alone. Which feature has the largest?",
    ),
)
aspect, slip, misconception, variant, alternative = exercise.decorators()


def _repeated(draw, times):
    """Outputs (n, d), tokens (n,) in which one word stands so often, never in a row's first two places alone."""
    n, d = 9 + int(draw.integers(3, 1)), 4
    tokens, word = 1 + draw.integers(8, n), 0
    places = torch.randperm(n - 1, generator=draw.generator)[:times] + 1
    tokens[places] = word
    return draw.normal(n, d), tokens, word


# ----------------------------------------------------------------------------------------------------- what is observed


@aspect("two places", points=2, hint=1)
def two_places(answer, draw):
    """wherever the two stand"""
    draws = [_repeated(draw, 2) for _ in range(3)]
    return torch.stack([answer(sign * output, *where) for output, *where in draws for sign in (1, -1)])


@aspect("many places", points=1, hint=2)
def many_places(answer, draw):
    """of all pairs, the two that differ most"""
    draws = [_repeated(draw, times) for times in (3, 4, 5)]
    return torch.stack([answer(sign * output, *where) for output, *where in draws for sign in (1, -1)])


@aspect("equal, and alone", points=1, hint=3)
def equal_and_alone(answer, draw):
    """0 where they are equal, and for a word that occurs once; not 0 elsewhere"""
    output, tokens, word = _repeated(draw, 2)
    same = output.clone()
    same[tokens == word] = output[0]
    seen = [same, output, -output]
    return torch.stack([*(answer(x, tokens, word) for x in seen), answer(*_repeated(draw, 1))])


# -------------------------------------------------------------------------------------- one slip away from the solution

FOUND = ("two places", "many places", "equal, and alone")
ROWS = "output[tokens == word]"
APART = "rows.max(dim=0).values - rows.min(dim=0).values"

slip("hard-coded places", FOUND,
     {ROWS: "output[[2, 5]]"},
     {ROWS: "output[[1, 4]]"},  # counted without a start token
     words="""
    Two places were written into the code. They are the word's places in one sentence, as one tokenizer cuts it. The
    tokens say where the word is.""")

slip("the first two alone", ("many places",),
     {ROWS: f"{ROWS}[:2]"},
     {ROWS: f"{ROWS}[[0, -1]]"},  # the first and the last
     words="""
    Only two of the word's places were compared. A third may differ from both.""")

slip("differences with their signs", FOUND, {APART: "rows - rows[:1]"}, words="""
    A difference may be large and negative; the largest of signed differences does not see it. Take their sizes.""")

slip("an average in place of the largest", FOUND, {"apart.max()": "apart.mean()"}, words="""
    Differences were averaged. One feature that differs is enough to say that two outputs are not the same, and an
    average over many features hides it.""")

slip("every word is compared", FOUND, {ROWS: "output"}, words="""
    Rows of other words were compared, too. They may differ as they like; the question is about one word.""")

slip("features compared with each other", FOUND, {APART: "rows.max() - rows.min()"}, words="""
    The largest and the smallest number of all were subtracted. They may be of two different features, even of one and
    the same row. Compare feature by feature.""")


# ------------------------------------------------------------------------------------------------ right in other styles


@alternative("all pairs")
def all_pairs(output, tokens, word):
    """Each with each."""
    rows = output[tokens == word]
    return (rows[:, None] - rows[None]).abs().max().item()


@alternative("a loop over pairs, in float64")
def a_loop_over_pairs_in_float64(output, tokens, word):
    """Plain Python."""
    rows = [row.double() for row, token in zip(output, tokens.tolist(), strict=True) if token == word]
    worst = 0.0
    for a in range(len(rows)):
        for b in range(a):
            worst = max(worst, float((rows[a] - rows[b]).abs().max()))
    return worst
