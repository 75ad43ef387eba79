"""Figures of averages and masks say in words what they show, counted from what they were given."""

import pytest
import torch

from attncourse import viz
from attncourse.attention import causal_mask, masked_softmax

WORDS = ["pad", "the", "chef"]


def test_pots_say_how_much_of_what_they_spanned_is_left():
    square = torch.tensor([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0], [1.0, 1.0], [0.5, 0.5]])
    _, before = viz.shrinking([square, square / 2], 0)
    drawn, after = viz.shrinking([square, square / 2], 1)
    assert before.startswith("5 points in the plane before the first round")
    assert "after 1 round." in after and "25% of the area" in after
    assert drawn.axes[0].get_title() == "after 1 round: 25% of the area"


def test_who_hears_whom_counts_the_leaks_above_the_diagonal_alone(shown):
    clean = torch.tensor([[1.0, 0.0], [2.0, 1.0]])
    viz.who_hears_whom({"masked": clean, "not masked": clean + 1})
    assert "masked: nothing leaks; not masked: 1 of 1 places leak." in shown[0]


def frame(mask, weights):
    return viz.mask_frame(mask, weights, WORDS)[1]


def test_a_frame_tells_nan_from_strays_from_rows_that_sum_to_too_little():
    scores, mask = torch.zeros(3, 3), causal_mask(3) & torch.tensor([False, True, True])
    assert frame(mask, scores.masked_fill(~mask, -torch.inf).softmax(-1)).endswith("the weights: rows of NaN: 1.")
    assert "forbidden places that have weight, framed: 3." in frame(mask, scores.masked_fill(~mask, -1e9).softmax(-1))
    assert "rows that sum to less than one: 2." in frame(mask, scores.softmax(-1) * mask)


def test_a_frame_finds_nothing_wrong_with_zeros_where_nothing_is_allowed():
    mask = causal_mask(3) & torch.tensor([False, True, True])
    words = frame(mask, masked_softmax(torch.zeros(3, 3), mask))
    assert "allows 3 of 9 places" in words
    assert "or to zero where nothing is allowed (1 rows); nothing forbidden has weight." in words


def test_a_frame_that_does_not_fit_its_words_is_refused():
    with pytest.raises(ValueError, match=r"got shape \(2, 2\), expected \(3, 3\)"):
        viz.mask_frame(causal_mask(2), torch.eye(2), WORDS)


def test_teacher_forcing_says_which_beginning_must_give_which_word(shown):
    viz.teacher_forcing(["<start>", "the", "chef"])
    assert "2 positions" in shown[0] and "<start> → the; <start> the → chef." in shown[0]
