"""Figures of positions draw what they were given, and say in words what they show."""

import math
import re

import pytest
import torch
from drawn import axes, cells, curves, grid, labels, strokes, table, texts, written
from proven import proven

from attncourse.positions import relative_index, sinusoidal
from attncourse_lessons import course

figures = course.part("order", "figures")


def test_counting_says_the_digits_and_how_far_the_neighbours_are():
    figure, words = figures.binary_and_waves(8)
    assert len(figure.axes) == 3
    assert "Position 8 is 1000 in binary" in words
    assert "Position 7 is 2.0 away in digits" in words and "Position 9 is 1.0 away in digits" in words


def test_waves_have_neighbours_equally_far_at_every_position():
    away = [re.findall(r"([\d.]+) in waves", figures.binary_and_waves(position)[1]) for position in range(16)]
    assert len({distance for pair in away for distance in pair}) == 1
    assert [len(pair) for pair in away] == [1, *[2] * 14, 1]


def test_turning_shows_the_same_angle_at_every_shift_and_another_at_another_offset():
    angles = [[figures.rotated_pair(offset, shift)[0].axes[0].get_title() for shift in (0, 3, 5)] for offset in (1, 2)]
    assert len(set(angles[0])) == len(set(angles[1])) == 1 and angles[0] != angles[1]
    assert "The key, we, at position 3 and the query, know, at position 5" in figures.rotated_pair(2, 3)[1]


def test_bands_say_how_often_the_columns_change_their_sign(shown):
    table = sinusoidal(torch.arange(64), 8)
    figures.position_heatmap(table, title="tags", marked=[32])
    flips = (table[1:].sign() != table[:-1].sign()).sum(dim=0)
    assert "tags: 64 positions by 8 columns." in shown[0]
    assert f"the first column changes its sign {flips[0]} times, the middle one {flips[4]} times" in shown[0]


def test_a_distance_table_is_read_out_row_by_row(shown):
    figures.distance_table(relative_index(3, 3, 1), ["we", "know", "that"])
    assert "we: 1, 2, 2; know: 0, 1, 2; that: 0, 0, 1." in shown[0]


def test_accuracy_past_the_end_is_told_inside_and_beyond_and_a_short_line_has_refused(shown):
    accuracies = {"a": [1.0] * 6 + [0.5] * 8, "b": [1.0] * 6}
    figures.accuracy_past_training(accuracies, trained=8, chance=0.25, first=2, smooth=4)
    assert "of 16. a: 100% up to position 8, 50% beyond; b: 100% up to position 8, refuses beyond." in shown[0]
    assert "Guessing: 25%" in shown[0]


def test_attention_past_the_end_tells_the_largest_weights_apart(shown):
    matrix = torch.eye(6)
    matrix[4:] = 1 / 6
    figures.attention_past_training({"a": matrix, "b": torch.eye(6)}, trained=4)
    assert "a: largest weight of a query 1.00 inside, 0.17 beyond; b" in shown[0]


def test_a_property_table_says_yes_and_no_and_what_was_measured(shown):
    row = {"unique": (True, ""), "longer\ntexts": (False, "12%")}
    figures.property_table({"binary": row, "RoPE": row | {"longer\ntexts": (True, "99%")}})
    assert "binary: unique yes, longer texts no (12%); RoPE: unique yes, longer texts yes (99%)." in shown[0]


# What is drawn


@proven
@pytest.mark.parametrize("position", [0, 5])
def test_counting_has_a_row_a_position_in_digits_and_in_waves_and_the_distances_beside(position):
    left, middle, right = axes(figures.binary_and_waves, position)
    assert [ax.get_title() for ax in (left, middle, right)] == [
        "binary digits", "sines and cosines", f"how far from {position}"
    ]  # fmt: skip
    digits = [[int(digit) for digit in reversed(f"{p:04b}")] for p in range(16)]      # the fastest first
    waves = [[turn(2 * math.pi * p / period) for period in (4, 8, 16, 32) for turn in (math.sin, math.cos)]
             for p in range(16)]  # fmt: skip
    assert grid(left) == digits
    assert grid(middle) == [pytest.approx(row, abs=1e-5) for row in waves]
    assert [*labels(left.xaxis).values()] == ["2", "4", "8", "16"]
    assert [*labels(middle.xaxis).values()] == ["4", "8", "16", "32"]
    assert labels(left.yaxis) == {p + 0.5: f"{p}" for p in range(0, 16, 3)}
    assert texts(left) == [(f"{digit}", i + 0.5, position + 0.5) for i, digit in enumerate(digits[position])]
    assert [*cells(left)] == [(0, position, 4, 1)] and [*cells(middle)] == [(0, position, 8, 1)]
    in_digits, in_waves, level = strokes(right)
    for line, rows in ((in_digits, digits), (in_waves, waves)):
        assert line == [(pytest.approx(math.dist(row, rows[position]), abs=1e-5), p) for p, row in enumerate(rows)]
    assert level == [(0, position), (1, position)] and right.yaxis_inverted()


@proven
def test_bands_have_a_row_a_position_and_lines_where_they_are_marked():
    ax, _ = axes(figures.position_heatmap, torch.tensor([[1.0, -2, 3], [4, 5, 7]]), marked=[1], title="tags")
    assert grid(ax) == [[1, -2, 3], [4, 5, 7]] and strokes(ax) == [[(0, 1), (1, 1)]]
    assert (ax.get_xlabel(), ax.get_ylabel(), ax.get_title()) == ("column", "position", "tags")


@proven
def test_a_distance_table_has_a_row_a_query_and_a_column_a_key():
    (ax,) = axes(figures.distance_table, relative_index(3, 3, 1), ["we", "know", "that"])
    assert table(ax) == {
        "we": {"we": 1, "know": 2, "that": 2},
        "know": {"we": 0, "know": 1, "that": 2},
        "that": {"we": 0, "know": 0, "that": 1},
    }
    assert written(ax) == {row: {key: f"{x:.0f}" for key, x in line.items()} for row, line in table(ax).items()}
    assert grid(ax) == [[1, 2, 2], [0, 1, 2], [0, 0, 1]] and (ax.get_xlabel(), ax.get_ylabel()) == ("key", "query")


@proven
@pytest.mark.parametrize(("offset", "shift"), [(1, 0), (2, 3)])
def test_turned_vectors_keep_their_angle_and_their_score_and_shifted_ones_do_not(offset, shift):
    circle, lines = axes(figures.rotated_pair, offset, shift)
    query, key = complex(0.95, 0.35), complex(0.6, -0.75)

    def turned(vector, position):
        return vector * complex(math.cos(math.radians(25 * position)), math.sin(math.radians(25 * position)))

    ends = [complex(x, y) for words, x, y in texts(circle) if not words]
    expected = [query, turned(query, shift + offset), key, turned(key, shift)]
    assert ends == [pytest.approx(end, abs=1e-5) for end in expected]
    at = {words: (x, y) for words, x, y in texts(circle) if words}
    for name, end in ((f"know, {shift + offset}", expected[1]), (f"we, {shift}", expected[3])):
        assert at[name] == pytest.approx((1.34 * end.real / abs(end), 1.16 * end.imag / abs(end)), abs=1e-4)
    apart = math.degrees(math.atan2(0.35, 0.95) - math.atan2(-0.75, 0.6)) + 25 * offset
    assert circle.get_title() == f"angle between them: {apart:.0f}°"
    arc = circle.patches[-1]
    start, end = (complex(math.cos(math.radians(a)), math.sin(math.radians(a))) for a in (arc.theta1, arc.theta2))
    assert [start, end] == [pytest.approx(v / abs(v), abs=1e-6) for v in (expected[3], expected[1])]
    score = (turned(query, offset) * key.conjugate()).real
    assert curves(lines)["turned"] == {s: pytest.approx(score, abs=1e-5) for s in range(6)}
    for s, sum_ in curves(lines)["added"].items():
        tag = [complex(math.sin(math.radians(25 * p)), math.cos(math.radians(25 * p))) for p in (s + offset, s)]
        assert sum_ == pytest.approx(((query + tag[0]) * (key + tag[1]).conjugate()).real, abs=1e-4)
    assert strokes(lines)[2:] == [[(shift, 0), (shift, 1)], [(shift, pytest.approx(score, abs=1e-5))]]


@proven
def test_accuracy_past_the_end_is_the_mean_of_some_positions_in_their_middle():
    lines = {"a": [1.0] * 6 + [0.5] * 4 + [0.25] * 3, "b": [1.0, 0.5] * 3}
    a, b, *rest = axes(figures.accuracy_past_training, lines, trained=8, chance=0.125, first=2, smooth=4)
    assert (a.get_title(), b.get_title()) == ("a", "b")
    level = [(0, 0.125), (1, 0.125)]
    assert strokes(a) == [level, [(3.5, 1), (7.5, 0.75), (11.5, 0.375), (14, 0.25)]]      # the last one by itself
    assert strokes(b) == [level, [(3.5, 0.75), (6.5, 0.75)]]
    for ax in (a, b):
        assert [*cells(ax)] == [(0, 0, 8, 1)] and labels(ax.xaxis) == {0: "0", 8: "8", 15: "15"}
        assert labels(ax.yaxis) == {0: "0%", 0.5: "50%", 1: "100%"}
    assert texts(a) == [] and texts(b) == [("refuses", 12, 0.5)]
    for ax in rest:
        assert [words.split(":")[0] for words, *_ in texts(ax)] == ["shaded", "x"]


@proven
def test_attention_past_the_end_has_lines_where_the_training_ended():
    matrix = torch.eye(4)
    matrix[2:] = torch.tensor([0.125, 0.5, 0.125, 0.25])
    a, b = axes(figures.attention_past_training, {"a": matrix, "b": torch.eye(4).roll(1, 1)}, trained=2)
    assert (a.get_title(), b.get_title()) == ("a", "b") and (a.get_xlabel(), a.get_ylabel()) == ("key", "query")
    assert grid(a) == [[1, 0, 0, 0], [0, 1, 0, 0], [0.125, 0.5, 0.125, 0.25], [0.125, 0.5, 0.125, 0.25]]
    assert grid(b) == [[0, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1], [1, 0, 0, 0]]
    for ax in (a, b):
        assert strokes(ax) == [[(0, 1.5), (1, 1.5)], [(1.5, 0), (1.5, 1)]]


@proven
def test_a_property_that_holds_is_filled_and_ticked_in_the_row_of_its_scheme():
    rows = {"binary": {"unique": (True, ""), "longer": (False, "12%"), "near": (False, "3")},
            "RoPE": {"unique": (False, "1"), "longer": (True, "99%"), "near": (False, "5")}}  # fmt: skip
    (ax,) = axes(figures.property_table, rows)
    at = {(x, y): words.strip() for words, x, y in texts(ax)}
    assert [at[x, -0.5] for x in (0.5, 1.5, 2.5)] == ["unique", "longer", "near"] and ax.yaxis_inverted()
    assert [[at[x, y] for x in (-0.08, 0.5, 1.5, 2.5)] for y in (0.5, 1.5)] == [
        ["binary", "✓", "✗ 12%", "✗ 3"], ["RoPE", "✗ 1", "✓ 99%", "✗ 5"]
    ]  # fmt: skip
    filled = {place[:2] for place, (colour, _) in cells(ax).items() if colour != "#ffffff"}
    assert filled == {(0, 0), (1, 1)} and len(cells(ax)) == 6
