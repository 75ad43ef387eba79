"""Figures of self-attention say in words what they show, counted from what they were given."""

import pytest
import torch

from attncourse import viz

WORDS = ["Anna", "lent", "her"]
TABLE = torch.tensor([[0.2, 0.5, 0.3], [0.4, 0.3, 0.3], [0.9, 0.0, 0.1]])


def test_one_question_says_who_asks_what_is_shared_out_and_what_comes_back():
    figure, words = viz.one_question(WORDS, 2, torch.tensor([2.0, -1.0, 0.0]), TABLE[2], torch.tensor([0.9, 0.1]), "ab")
    assert len(figure.axes) == 3
    assert words == "“her” asks. Its weights: Anna 0.90, lent 0.00, her 0.10. It receives: a 0.90, b 0.10."


@pytest.mark.parametrize("numbers", [True, False])
def test_tables_say_for_each_row_where_most_of_it_goes(shown, numbers):
    viz.weight_tables({"one": (WORDS, TABLE), "other": (WORDS[::-1], TABLE)}, numbers=numbers)
    assert "one: rows ask, columns answer; most of the weight of Anna at lent (0.50); lent at Anna (0.40)" in shown[0]
    assert "other: rows ask, columns answer; most of the weight of her at lent (0.50)" in shown[0]


def test_a_table_that_does_not_fit_its_words_is_refused():
    with pytest.raises(ValueError, match=r"weights: got shape \(3, 3\), expected \(2, 2\)"):
        viz.weight_tables({"one": (WORDS[:2], TABLE)})


def test_the_shapes_are_those_that_were_given(shown):
    viz.self_attention_shapes(n=8, d_model=6, d_k=2, d_v=4)
    assert "W_V, 6 by 4, gives V, 8 by 4" in shown[0] and "the 8 by 8 table of scores" in shown[0]


@pytest.mark.parametrize(("n", "width", "layers"), [(9, 2, 4), (10, 2, 5), (4, 3, 1), (1, 2, 1)])
def test_windows_need_as_many_layers_as_the_way_is_long(shown, n, width, layers):
    viz.path_lengths(n, width)
    assert f"Windows of {width} on each side: {layers} layers" in shown[0]


@pytest.mark.parametrize(("width", "layers", "heard"), [(1, 1, 3), (3, 3, 19), (6, 2, 24), (12, 1, 24)])
def test_stacked_windows_hear_of_layers_times_width_on_each_side(width, layers, heard):
    _, words = viz.reach(24, width, layers)
    assert f"position 13 hears of {heard} of 24 positions" in words
