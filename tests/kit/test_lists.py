"""An exercise may ask for a list of lists: whatever stands for one is taken, and anything else is told apart."""

import numpy as np
import pytest
import torch

from lessonkit.exercises.exercise import Exercise
from lessonkit.exercises.judge import judge
from lessonkit.exercises.observe import observe


@pytest.fixture
def rows():
    """A small exercise of the tests' own."""
    exercise = Exercise("rows", lambda: [[1, 2], [3]], ("rows",), difficulty=1, minutes=1, hints=("a", "b"), lists=True)

    @exercise.aspect("rows", points=1)
    def _(answer, draw):
        """the rows"""
        return torch.tensor([item for row in answer() for item in row])

    return exercise


def one(exercise, answer):
    return judge(exercise, observe(exercise, answer, 0), 0)


@pytest.mark.parametrize(
    "answer",
    [
        lambda: [[1, 2], [3]],
        lambda: ((1, 2), (3,)),
        lambda: [torch.tensor([1, 2]), [torch.tensor(3)]],
        lambda: [[np.int64(1), 2], [3]],
    ],
)
def test_lists_tuples_and_whole_tensors_count_as_lists(rows, answer):
    assert one(rows, answer).points == 1


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (lambda: None, "is a `return` missing?"),
        (lambda: [1, 2, 3], "item 0 is an int, expected a list"),
        (lambda: [[1.0, 2.0], [3.0]], "a float in item 0"),
        (lambda: [[True, 2], [3]], "a bool in item 0"),
        (lambda: [torch.tensor([1.0, 2.0]), [3]], "a float in item 0"),
    ],
)
def test_what_is_no_list_of_lists_is_told(rows, answer, told):
    assert told in one(rows, answer).aspects[0].message
