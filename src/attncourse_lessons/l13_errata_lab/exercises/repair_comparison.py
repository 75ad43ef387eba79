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
    numbers=True,
    hints=(
        "Where does the word stand? The tokens say it: `tokens == word` is True there.",
        "A boolean tensor may be an index: `output[tokens == word]` has one row for each place of the word. Now "
        "compare each row with every other.",
        "The largest difference between any two numbers is the largest minus the smallest.",
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


@aspect("two places", points=2)
def two_places(answer, draw):
    """wherever the two stand"""
    draws = [_repeated(draw, 2) for _ in range(3)]
    return torch.stack([answer(sign * output, *where) for output, *where in draws for sign in (1, -1)])


@aspect("many places", points=1)
def many_places(answer, draw):
    """of all pairs, the two that differ most"""
    draws = [_repeated(draw, times) for times in (3, 4, 5)]
    return torch.stack([answer(sign * output, *where) for output, *where in draws for sign in (1, -1)])


@aspect("equal, and alone", points=1)
def equal_and_alone(answer, draw):
    """0 where they are equal, and for a word that occurs once; not 0 elsewhere"""
    output, tokens, word = _repeated(draw, 2)
    same = output.clone()
    same[tokens == word] = output[0]
    seen = [same, output, -output]
    return torch.stack([*(answer(x, tokens, word) for x in seen), answer(*_repeated(draw, 1))])


FOUND = ("two places", "many places", "equal, and alone")


# -------------------------------------------------------------------------------------------------------- wrong answers


@misconception("hard-coded places", fails=FOUND)
def hard_coded_places(output, tokens, word):
    """Two places were written into the code. They are the word's places in one sentence, as one tokenizer cuts it. The
    tokens say where the word is."""
    return (output[2] - output[5]).abs().max()


@variant("hard-coded places", fails=FOUND)
def hard_coded_places_2(output, tokens, word):
    """Counted without a start token."""
    return (output[1] - output[4]).abs().max()


@misconception("the first two alone", fails=("many places",))
def the_first_two_alone(output, tokens, word):
    """Only two of the word's places were compared. A third may differ from both."""
    places = (tokens == word).nonzero().flatten()
    return (output[places[0]] - output[places[1]]).abs().max() if len(places) > 1 else torch.tensor(0.0)


@variant("the first two alone", fails=("many places",))
def the_first_two_alone_2(output, tokens, word):
    """The first and the last."""
    places = (tokens == word).nonzero().flatten()
    return (output[places[0]] - output[places[-1]]).abs().max()


@misconception("differences with their signs", fails=FOUND)
def differences_with_their_signs(output, tokens, word):
    """A difference may be large and negative; the largest of signed differences does not see it. Take their sizes."""
    rows = output[tokens == word]
    return (rows - rows[:1]).max()


@misconception("an average in place of the largest", fails=FOUND)
def an_average_in_place_of_the_largest(output, tokens, word):
    """Differences were averaged. One feature that differs is enough to say that two outputs are not the same, and an
    average over many features hides it."""
    rows = output[tokens == word]
    return (rows.amax(dim=0) - rows.amin(dim=0)).mean()


@misconception("every word is compared", fails=FOUND)
def every_word_is_compared(output, tokens, word):
    """Rows of other words were compared, too. They may differ as they like; the question is about one word."""
    return (output.amax(dim=0) - output.amin(dim=0)).max()


@misconception("features compared with each other", fails=FOUND)
def features_compared_with_each_other(output, tokens, word):
    """The largest and the smallest number of all were subtracted. They may be of two different features, even of one
    and the same row. Compare feature by feature."""
    rows = output[tokens == word]
    return rows.max() - rows.min()


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
