"""In what way an array is wrong: each kind is told where it holds, and where it does not, nothing is."""

import numpy as np
import pytest

from lessonkit.exercises.difference import kind_of_difference, what_is_seen

RIGHT = np.random.default_rng(0).normal(size=(3, 5, 5))
MASK = np.random.default_rng(1).random((4, 4)) < 0.4
ROLLED = np.roll(RIGHT, 1, 1)
FIRST = np.concatenate([RIGHT[:1], RIGHT[:1] * [[0.3]], RIGHT[:1] + 1])
KINDS = {
    "one number": (np.zeros((3, 5, 5)), "every number is 0"),
    "a sign": (-RIGHT, "every sign is the wrong way round"),
    "a factor": (RIGHT / 8, "each number is 1/8 of what it should be"),
    "a root": (RIGHT * 5**0.5, "each number is √5 times what it should be"),
    "a factor and a sign": (-2 * RIGHT, "each number is −2 times what it should be"),
    "a constant": (RIGHT + 0.25, "each number is 0.25 too large"),
    "a constant less": (RIGHT - 0.25, "each number is 0.25 too small"),
    "two axes": (RIGHT.swapaxes(1, 2), "the numbers are right, but axes 1 and 2 are exchanged"),
    "two axes of other sizes": (RIGHT.swapaxes(0, 1), "the numbers are right, but axes 0 and 1 are exchanged"),
    "three axes": (RIGHT[:, :4].transpose(2, 0, 1), "the numbers are right, but the axes stand in another order"),
    "back to front": (RIGHT[:, ::-1], "the numbers are right, but in the opposite order along axis 1"),
    "a place late": (ROLLED, "the numbers are right, but they come one place too late along axis 1"),
    "a place early": (np.roll(RIGHT, -1, 2), "the numbers are right, but they come one place too early along axis 2"),
    "another order": (RIGHT[:, [2, 0, 1, 4, 3]], "the numbers are right, but in another order along axis 1"),
    "the first alone": (FIRST, "only the first along axis 0 is right: is something of the first used for all?"),
    "the last is wrong": (RIGHT * [1, 1, 1, 1, 0], "all is right but the last along axis 2"),
    "no difference": (RIGHT[:, :1].repeat(5, 1), "it is the same for every place along axis 1, which it should not be"),
    "half precision": (
        RIGHT.astype(np.float16).astype(np.float64),
        "the numbers are right to about three digits: was something computed in half precision?",
    ),
    "an axis too many": (RIGHT[None], "the numbers are right: only the shape is not"),
    "not summed": (np.stack([RIGHT / 2, RIGHT / 2], 1), "summed over axis 1 it would be right"),
    "summed away": (RIGHT.sum(1), "it is right, but summed over axis 1, which should stay"),
    "averaged, with the axis": (
        RIGHT.mean(2, keepdims=True),
        "it is right, but averaged over axis 2, which should stay",
    ),
    "some places": (
        RIGHT * np.array([1, 1, 3, 1, 2])[:, None],
        "it is wrong at 2 and 4 along axis 1 alone, and right elsewhere",
    ),
    "not averaged": (np.stack([RIGHT + 1, RIGHT - 1], -1), "averaged over axis 3 it would be right"),
}


@pytest.mark.parametrize("name", KINDS)
def test_a_kind_of_difference_is_told(name):
    got, words = KINDS[name]
    expected = RIGHT[:, :4] if name == "three axes" else RIGHT
    assert kind_of_difference(got, expected) == words


def test_of_masks_the_sense_and_the_axes_are_told():
    assert kind_of_difference(~MASK, MASK) == "True and False are exchanged"
    assert kind_of_difference(MASK.T, MASK) == "the numbers are right, but axes 0 and 1 are exchanged"


@pytest.mark.parametrize(
    ("got", "expected"),
    [
        (np.random.default_rng(2).normal(size=(3, 5, 5)), RIGHT),
        (RIGHT * np.nan, RIGHT),
        (np.array([2.0]), np.array([4.0])),
        (RIGHT > 0, RIGHT),
        (np.ones(9), np.ones(9) * 2),
        (RIGHT / np.sqrt(1 + 1e-3 / RIGHT.var(-1, keepdims=True)), RIGHT),
        (RIGHT + 1e-2 * np.random.default_rng(3).normal(size=RIGHT.shape), RIGHT),
    ],
    ids=["other numbers", "NaN", "one number", "another type", "all equal", "another ε", "noise"],
)
def test_where_nothing_known_holds_nothing_is_told(got, expected):
    assert kind_of_difference(got, expected) is None


X = np.random.default_rng(4).normal(size=(3, 5, 5))
BIAS = np.random.default_rng(5).normal(size=5) + 3
INPUTS = {"x": X, "b": BIAS, "query": np.zeros((2, 7, 11)), "temperature": np.array(0.3), "heads": np.array(6)}


@pytest.mark.parametrize(
    ("got", "words"),
    [
        (RIGHT * 11, "each number is 11 times what it should be (11 is the size of the last axis of `query`)"),
        (RIGHT / 7**0.5, "each number is 1/√7 of what it should be (7 is the size of axis 1 of `query`)"),
        (RIGHT * 0.3, "each number is 3/10 of what it should be (0.3 is `temperature`)"),
        (RIGHT / 6, "each number is 1/6 of what it should be (6 is `heads`)"),
        (RIGHT / 8, "each number is 1/8 of what it should be (nothing here is 8: does that number stand in the code?)"),
        (X, "it is `x`, as it came in"),
        (RIGHT - BIAS, "`b` is missing: added to it, it would be right"),
        (RIGHT + X, "`x` is in it once too often: without it, it would be right"),
        (RIGHT / BIAS, "times `b` it would be right"),
        (RIGHT * BIAS, "divided by `b` it would be right"),
    ],
)
def test_a_wrong_factor_and_what_is_missing_are_told_by_the_inputs_names(got, words):
    assert kind_of_difference(got, RIGHT, INPUTS) == words


def test_of_an_array_that_the_learner_has_not_seen_no_axis_is_named():
    for name in ("two axes", "back to front", "the first alone", "some places"):
        assert kind_of_difference(KINDS[name][0], RIGHT, places=False) is None
    assert kind_of_difference(-RIGHT, RIGHT, places=False) == "every sign is the wrong way round"


EACH = "along axis 2 the numbers are right but for a {}, which is another one at each place"
ROWS = np.linspace(2, 4, 15).reshape(3, 5, 1)
LONG = np.random.default_rng(6).normal(size=(3, 12))


@pytest.mark.parametrize(
    ("got", "expected", "words"),
    [
        (RIGHT * ROWS, RIGHT, EACH.format("factor")),
        (RIGHT + ROWS, RIGHT, EACH.format("constant")),
        (LONG + (np.arange(12) > 3), LONG, "along axis 1 it is right up to 3, and wrong from 4 on"),
        (LONG - (np.arange(12) < 7), LONG, "along axis 1 it is wrong up to 6, and right from 7 on"),
        (LONG + (np.arange(12) != 5) * LONG**2, LONG, "it is right at 5 along axis 1 alone; what is wrong"),
        (LONG + LONG**2 + 0.1, LONG, "every number is too large"),
        (MASK | np.eye(4, dtype=bool), MASK, "too much of it is True, and nothing too little"),
    ],
    ids=["a factor each", "a constant each", "begins", "ends", "one place", "too large", "a mask"],
)
def test_where_no_kind_is_known_something_true_is_said(got, expected, words):
    assert words in what_is_seen(got, expected)


def test_of_numbers_in_no_relation_the_size_is_told_and_of_equal_masks_nothing():
    other = np.random.default_rng(2).normal(size=RIGHT.shape)
    assert what_is_seen(other, RIGHT, places=False).startswith("on average the numbers are")
    assert what_is_seen(MASK, MASK) is None and what_is_seen(RIGHT[:, :3], RIGHT) is None
