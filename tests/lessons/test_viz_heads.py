"""The pictures of many heads: what they say is what they were given."""

import pytest
import torch

from attncourse import viz


def test_the_drawing_of_many_heads_gives_the_shapes_in_words(shown):
    viz.many_heads(n=7, d_model=12, n_heads=3)
    assert "7 words by 12" in shown[0] and "3 blocks" in shown[0] and "7 by 4" in shown[0]


def test_heads_that_do_not_divide_the_width_are_refused():
    with pytest.raises(ValueError, match="n_heads: got 5, expected a divisor of d_model = 12"):
        viz.many_heads(n=7, d_model=12, n_heads=5)


def test_each_head_is_said_to_hold_the_numbers_that_it_was_given(shown):
    x = torch.arange(8).view(2, 4)
    viz.head_pieces({"x": x, "view": x.view(2, 2, 2)}, ["Anna", "Ben"], d_model=4)
    assert "x: A0 A1 A2 A3 B0 B1 B2 B3" in shown[0]
    assert "view: head 0: A0 A1 A2 A3; head 1: B0 B1 B2 B3" in shown[0]


def test_a_frame_of_the_softmax_gives_the_largest_weight_and_the_median_gradient():
    scores = torch.tensor([0.0, 2.0, -1.0])
    gradients = torch.tensor([1e-12, 1e-4, 1.0, 1e-4, 10.0])
    drawn, words = viz.softmax_frame(scores, scores.softmax(dim=0), gradients, title="plain")
    assert len(drawn.axes) == 3
    assert "plain" in words and f"the largest of its weights is {scores.softmax(dim=0).max():.2f}" in words
    assert "half get a gradient of at most 1.0e-04; the largest is 1.0e+01" in words


@pytest.mark.parametrize("gradient", [0.0, 1e-8, 1.0, 1000.0])
def test_every_query_stands_in_a_bar_however_small_or_large_its_gradient(gradient):
    drawn, _ = viz.softmax_frame(torch.zeros(4), torch.full((4,), 0.25), torch.full((50,), gradient))
    assert sum(bar.get_height() for bar in drawn.axes[2].patches) == 50


def test_shares_are_said_in_per_cent_of_their_row(shown):
    viz.shares({"small": {"a": 1, "b": 3}, "large": {"a": 5, "b": 5}}, {"small": "4", "large": "10"})
    assert "small (4): a 25%, b 75%" in shown[0] and "large (10): a 50%, b 50%" in shown[0]
