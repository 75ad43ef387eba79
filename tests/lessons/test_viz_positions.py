"""Figures of positions say in words what they show, counted from what they were given."""

import re

import torch

from attncourse import viz
from attncourse.positions import relative_index, sinusoidal


def test_counting_says_the_digits_and_how_far_the_neighbours_are():
    figure, words = viz.counting(8)
    assert len(figure.axes) == 3
    assert "Position 8 is 1000 in binary" in words
    assert "Position 7 is 2.0 away in digits" in words and "Position 9 is 1.0 away in digits" in words


def test_waves_have_neighbours_equally_far_at_every_position():
    away = [re.findall(r"([\d.]+) in waves", viz.counting(position)[1]) for position in range(16)]
    assert len({distance for pair in away for distance in pair}) == 1
    assert [len(pair) for pair in away] == [1, *[2] * 14, 1]


def test_turning_shows_the_same_angle_at_every_shift_and_another_at_another_offset():
    angles = [[viz.turning(offset, shift)[0].axes[0].get_title() for shift in (0, 3, 5)] for offset in (1, 2)]
    assert len(set(angles[0])) == len(set(angles[1])) == 1 and angles[0] != angles[1]
    assert "The key, we, at position 3 and the query, know, at position 5" in viz.turning(2, 3)[1]


def test_bands_say_how_often_the_columns_change_their_sign(shown):
    table = sinusoidal(torch.arange(64), 8)
    viz.bands(table, title="tags", marked=[32])
    flips = (table[1:].sign() != table[:-1].sign()).sum(dim=0)
    assert "tags: 64 positions by 8 columns." in shown[0]
    assert f"the first column changes its sign {flips[0]} times, the middle one {flips[4]} times" in shown[0]


def test_a_distance_table_is_read_out_row_by_row(shown):
    viz.distance_table(relative_index(3, 3, 1), ["we", "know", "that"])
    assert "we: 1, 2, 2; know: 0, 1, 2; that: 0, 0, 1." in shown[0]


def test_accuracy_past_the_end_is_told_inside_and_beyond_and_a_short_line_has_refused(shown):
    viz.past_the_end({"a": [1.0] * 6 + [0.5] * 8, "b": [1.0] * 6}, trained=8, chance=0.25, first=2, smooth=4)
    assert "of 16. a: 100% up to position 8, 50% beyond; b: 100% up to position 8, refuses beyond." in shown[0]
    assert "Guessing: 25%" in shown[0]


def test_attention_past_the_end_tells_the_largest_weights_apart(shown):
    matrix = torch.eye(6)
    matrix[4:] = 1 / 6
    viz.attention_past_the_end({"a": matrix, "b": torch.eye(6)}, trained=4)
    assert "a: largest weight of a query 1.00 inside, 0.17 beyond; b" in shown[0]


def test_a_property_table_says_yes_and_no_and_what_was_measured(shown):
    row = {"unique": (True, ""), "longer\ntexts": (False, "12%")}
    viz.property_table({"binary": row, "RoPE": row | {"longer\ntexts": (True, "99%")}})
    assert "binary: unique yes, longer texts no (12%); RoPE: unique yes, longer texts yes (99%)." in shown[0]
