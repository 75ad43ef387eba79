"""`way_back` says of each input whether a gradient is cut, right, NaN or wrong by itself."""

import numpy as np
import pytest
import torch

from lessonkit.exercises.observe import Draw
from lessonkit.exercises.way_back import CUT, NAN, RIGHT, WRONG, explain_way_back, way_back


def square_sum(x, y):
    return (x * x + y).sum(dim=-1)


@pytest.mark.parametrize(
    ("answer", "kinds"),
    [
        (square_sum, [RIGHT, RIGHT]),
        (lambda x, y: (x * x + y.detach()).sum(dim=-1), [RIGHT, CUT]),
        (lambda x, y: (x * x.detach() + y).sum(dim=-1), [WRONG, RIGHT]),
        (lambda x, y: (x * x + y).sum(dim=-1) + (x * 0).sqrt().sum(dim=-1), [NAN, RIGHT]),
        (lambda x, y: (x * x.detach() + y).sum(dim=-1) + 1, [RIGHT, RIGHT]),  # wrong in its values: told elsewhere
        (lambda x, y: torch.zeros(3), [CUT, CUT]),
    ],
)
def test_each_input_is_told_what_arrives_there(answer, kinds):
    draw = Draw(0, "way back")
    inputs = [draw.normal(3, 4).requires_grad_() for _ in range(2)]
    assert way_back(answer(*inputs), square_sum(*inputs), inputs, draw).tolist() == kinds


def test_the_words_name_the_inputs():
    explain = explain_way_back("x", "W", "b")
    right = np.full(3, RIGHT)
    assert explain(np.array([CUT, RIGHT, CUT]), right) == "no gradient reaches `x` and `b`"
    words = explain(np.array([NAN, WRONG, RIGHT]), right)
    assert "at `x` is NaN" in words and "at `W` is not" in words and "`b`" not in words
    assert explain(right, np.array([CUT, RIGHT, RIGHT])) == "a gradient arrives where none belongs"
