"""Figures of positions draw what they were given, and say in words what they show."""

import cmath
import math
import re

import pytest
import torch
from drawn import arrows, axes, boxed, cells, curves, grid, joined, labels, strokes, table, texts, written
from matplotlib.colors import to_hex, to_rgb
from matplotlib.patches import Circle
from proven import proven

from attncourse.positions import relative_index, rope_angles, sinusoidal
from attncourse.viz.style import ORANGE, SERIES
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


def test_position_vectors_say_how_often_the_columns_change_their_sign(shown):
    table = sinusoidal(torch.arange(64), 8)
    figures.position_vectors(table, columns=[0, 4], title="vectors")
    flips = (table[2:].sign() != table[1:-1].sign()).sum(dim=0)           # a sine has no sign at 0
    assert "vectors: 64 positions by 8 columns, and 2 of the columns as curves." in shown[0]
    assert f"the sign changes: column 0 {flips[0]} times, column 4 {flips[4]} times" in shown[0]


def test_products_say_what_they_are_at_the_ends_and_how_much_a_diagonal_varies(shown):
    figures.offset_products(torch.tensor([[4.0, 2, 1], [2, 4, 2.5], [1, 2.5, 4]]), rows=[0, 1])
    assert "of position 0 from 4.0 at offset 0 over 4.0 at 0 to 1.0 at 2; of position 1 from 2.0 at" in shown[0]
    assert shown[0].endswith("On a diagonal they differ by at most 0.50.")


def test_a_distance_table_is_read_out_row_by_row(shown):
    figures.distance_table(relative_index(3, 3, 1), ["we", "know", "that"], max_distance=1)
    assert "−1 to 1. we: 0, 1, 1; know: -1, 0, 1; that: -1, -1, 0." in shown[0]


def test_relative_biases_say_how_many_distances_share_a_bucket(shown):
    figures.relative_biases([-2, -1, 0, 1, 2], [5, 5, 0, 7, 7], [-0.5, -0.5, 1, 0.25, 0.25], 0, {"2": 2.0})
    assert "3 buckets for 5 distances, so 4 of them share one" in shown[0] and "slope 2 from 0 down to -4" in shown[0]
    assert "the number learned for 0 is 1.00, those of the others run from -0.50 to 0.25" in shown[0]


def test_yarn_leaves_pairs_that_turn_often_and_slows_those_that_do_not_come_round():
    theta = 2 * math.pi / 100 * torch.tensor([64.0, 32.0, 16.5, 1.0, 0.1])             # their turns in 100 tokens
    assert (figures.yarn(theta, 4, 100) / theta).tolist() == pytest.approx([1, 1, 0.625, 0.25, 0.25], abs=1e-5)


def test_extension_says_how_far_the_first_the_middle_and_the_last_pair_turn(shown):
    figures.context_extension({"a": torch.tensor([8.0, 4, 2]), "b": torch.tensor([8.0, 8, 8])}, 1)
    assert "a: 8.00 in pair 0, 4.00 in pair 1, 2.00 in the last; b" in shown[0]


def test_dials_say_how_fast_each_pair_turns(shown):
    figures.rope_dials(rope_angles(torch.tensor([0, 2, 7]), 4), [0, 2, 7])
    assert "in 4 dimensions: 2 dials, at the positions 0, 2, 7" in shown[0]
    assert "pair 0 turns by 1 radians a position; pair 1 turns by 0.01 radians a position" in shown[0]


def test_points_of_two_scales_are_read_out_seed_by_seed(shown):
    figures.scale_points({"binary": {"× 1": [0.9, 0.95], "× 8": [0.6, 0.65]}}, "share right")
    assert "binary, × 1: 90%, 95%; binary, × 8: 60%, 65%" in shown[0]


def test_reach_tells_the_mean_at_each_length(shown):
    lines = {"a": {"RoPE": {32: [1.0, 0.9], 128: [0.5, 0.7]}}, "b": {"T5": {32: [0.5, 0.4]}}}
    figures.reach(lines, trained=32, shortest=8)
    assert "a, RoPE: 95% at 32, 60% at 128; b, T5: 45% at 32." in shown[0]


def test_one_distance_tells_how_many_distances_do_harm_and_from_which_match_on(shown):
    matches = {3: 0.25, 4: 0.5, 5: 0.75, 6: 0.5}
    figures.one_distance({3: 1.0, 4: 0.96, 5: 0.25, 6: 1.0}, matches, trained=5)
    assert "3 to 6: below 90% at 1 of 2 new distances, lowest 25%; at trained distances at least 96%." in shown[0]
    assert "The smallest match with −2 of a distance below 90% is 0.75;" in shown[0]
    assert shown[0].endswith("with a match below 0.5, 0 of 0 are below 90%, above 0.8 0 of 0.")


def test_attention_past_the_end_tells_the_largest_weights_apart(shown):
    matrix = torch.eye(6)
    matrix[4:] = 1 / 6
    figures.attention_past_training({"a": matrix, "b": torch.eye(6)}, trained=4)
    assert "a: largest weight of a query 1.00 inside, 0.17 beyond; b" in shown[0]


# What is drawn


@proven
def test_weights_are_written_where_a_query_may_attend_and_hatched_where_it_may_not():
    weights = torch.tensor([[0.75, 0.25, 0.0], [0.125, 0.5, 0.375]])
    allowed = torch.tensor([[True, True, False], [True, True, True]])
    (ax,) = axes(figures.weights_allowed, weights, allowed, ["first", "second"], ["the", "dog", "ran"])
    assert table(ax) == {
        "first": {"the": 0.75, "dog": 0.25, "ran": 0}, "second": {"the": 0.125, "dog": 0.5, "ran": 0.375}
    }  # fmt: skip
    assert written(ax) == {
        "first": {"the": "0.75", "dog": "0.25"}, "second": {"the": "0.12", "dog": "0.50", "ran": "0.38"}
    }  # fmt: skip
    assert {place: hatch for place, (_, hatch) in cells(ax).items()} == {(2, 0, 1, 1): "////"}
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("key", "query") and ax.yaxis_inverted()


@proven
def test_each_family_of_schemes_has_an_arrow_to_the_place_where_the_position_enters():
    (ax,) = axes(figures.ways_in)
    path = ["input x", "query, key", "score", "weight", "output"]
    assert boxed(ax) == [*path, "value"]
    upright = [(start[0] == end[0], pair) for (start, end), pair in zip(arrows(ax), joined(ax), strict=True)]
    places = [pair for straight, pair in upright if straight]
    shaw = "Shaw, here as well: $v_j + a^V_{j-i}$"
    assert places == [("absolute:\nsinusoidal, learned", "input x"), ("rotary:\nRoPE", "query, key"),
                      ("relative:\nT5, ALiBi, Shaw", "score"), (shaw, "value")]  # fmt: skip
    at = {words: (x, y) for words, x, y in texts(ax)}
    assert all(at[family][1] < at[place][1] for family, place in places[:3]), "the families stand below"
    assert at[shaw][1] > at["value"][1] > at["score"][1], "the value's path runs above"
    along = [(start, end) for start, end in arrows(ax) if start[1] == end[1]]
    assert len(along) == 4 and all(start[0] < end[0] for start, end in along)
    assert [at[place][0] for place in path] == sorted(at[place][0] for place in path)
    beside = [(start, end) for start, end in arrows(ax) if start[0] != end[0] and start[1] != end[1]]
    (out, into), (leave, arrive) = beside
    assert abs(out[0] - at["input x"][0]) < 1 and into[1] == leave[1] == at["value"][1]
    assert into[0] < at["value"][0] < leave[0] and abs(arrive[0] - at["output"][0]) < 1


@proven
@pytest.mark.parametrize("position", [0, 5])
def test_counting_has_a_row_a_position_in_digits_and_in_waves_and_the_distances_beside(position):
    left, middle, right = axes(figures.binary_and_waves, position)
    assert texts(middle) == [(("sin", "cos")[i % 2], i + 0.5, -0.2) for i in range(8)], "which column is which"
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
    assert [*curves(right)] == ["digits", "waves"] and right.get_xlabel() == "distance"
    assert (left.get_xlabel(), middle.get_xlabel()) == ("period (lowest digit first)", "period")


@proven
def test_position_vectors_have_a_row_a_position_and_some_of_their_columns_are_curves():
    table = torch.tensor([[1.0, -2, 3], [4, 5, 7]])
    left, right, _ = axes(figures.position_vectors, table, columns=[0, 2], title="vectors")
    assert grid(left) == [[1, -2, 3], [4, 5, 7]] and labels(left.xaxis) == {0.5: "0", 2.5: "2"}
    assert (left.get_xlabel(), left.get_ylabel(), left.get_title()) == ("column", "position", "vectors")
    assert curves(right) == {"column 0": {0: 1, 1: 4}, "column 2": {0: 3, 1: 7}}
    assert right.get_xlabel() == "position"


@proven
def test_products_of_all_pairs_have_frames_around_the_rows_that_are_curves_over_the_offset():
    products = torch.tensor([[4.0, 2, 1], [2, 4, 2.5], [1, 2.5, 4]])
    left, right, _ = axes(figures.offset_products, products, rows=[0, 1])
    assert grid(left) == products.tolist() and left.yaxis_inverted()
    assert [*cells(left)] == [(0, 0, 3, 1), (0, 1, 3, 1)]
    assert labels(left.yaxis) == {0.5: "0", 1.5: "1", 2.5: "2"} and labels(left.xaxis) == {0.5: "0", 2.5: "2"}
    assert curves(right) == {"position 0": {0: 4, 1: 2, 2: 1}, "position 1": {-1: 2, 0: 4, 1: 2.5}}
    assert left.get_xlabel() == left.get_ylabel() == "position" and left.get_title() == "dot product of two positions"
    assert (right.get_xlabel(), right.get_ylabel()) == ("offset k", "dot product")


@proven
def test_a_distance_table_has_a_row_a_query_and_a_column_a_key():
    (ax,) = axes(figures.distance_table, relative_index(3, 3, 1), ["we", "know", "that"], max_distance=1)
    assert table(ax) == {
        "we": {"we": 0, "know": 1, "that": 1},
        "know": {"we": -1, "know": 0, "that": 1},
        "that": {"we": -1, "know": -1, "that": 0},
    }
    said = {(x, y): words for words, x, y in texts(ax)}
    for i, line in enumerate(table(ax).values()):
        for j, distance in enumerate(line.values()):
            assert said[j + 0.5, i + 0.5] == {-1: "−1", 0: "0", 1: "+1"}[distance]
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("key j", "query i") and ax.yaxis_inverted()


@proven
def test_buckets_are_bands_behind_the_learned_numbers_and_costs_are_lines_over_the_same_distances():
    given = [-5, -4, -3, -2, -1, 0, 1], [5, 5, 5, 3, 3, 0, 4]
    learned = [-0.5, -0.5, -0.5, 1.0, 1.0, 0.25, 0.0]
    left, right = axes(figures.relative_biases, *given, learned, -2, {"2": 2.0, "1/2": 0.5})
    assert strokes(left) == [[*zip(given[0], learned, strict=True)], [(-2, 1)]]
    assert left.get_lines()[0].get_drawstyle() == "steps-mid"
    shaded = sorted((x, width) for x, _, width, _ in cells(left))
    assert shaded == [(-2.5, 2), (0.5, 1)], "every second bucket, as wide as the distances that share it"
    assert texts(left) == [("−2", -2, 1)]
    assert left.get_ylabel() == "added to the score"
    assert strokes(right) == [[(d, -slope * abs(d)) for d in given[0]] for slope in (2, 0.5)]
    assert texts(right) == [("slope 2", 3, -2), ("slope 1/2", 3, -0.5)]
    assert left.get_xlabel() == right.get_xlabel() == "distance j − i"
    assert [ax.get_title() for ax in (left, right)] == [
        "T5: a learned number for each bucket", "ALiBi: a fixed number"
    ]  # fmt: skip


@proven
def test_one_distance_is_a_dot_against_the_distance_and_against_the_match_with_the_right_key():
    shares = {3: 1.0, 4: 0.75, 5: 0.375, 6: 0.5, 7: 1.0}
    matches = {3: 0.25, 4: -0.5, 5: 0.75, 6: 0.0, 7: -1.0}
    left, right = axes(figures.one_distance, shares, matches, trained=5)
    level = [(0, 0.9), (1, 0.9)]
    borders = [[(0.5, 0), (0.5, 1)], [(0.8, 0), (0.8, 1)]]
    assert strokes(left) == [[(5, 0.375), (6, 0.5), (7, 1)], [(3, 1), (4, 0.75)], level]
    assert strokes(right) == [[(0.75, 0.375), (0, 0.5), (-1, 1)], [(0.25, 1), (-0.5, 0.75)], level, *borders]
    assert [words for words, _, _ in texts(right)] == ["below 90%: 1 of 2", "0 of 0"] and texts(left) == []
    for ax in (left, right):
        new, known = ax.get_lines()[:2]
        assert to_hex(known.get_color()) == to_hex(ORANGE) != to_hex(new.get_color())
        assert known.get_markerfacecolor() == "none" and known.get_markersize() > new.get_markersize()
        assert ax.get_ylim() == (0, 1.03) and ax.yaxis.get_major_formatter()(0.5) == "50%"
    assert left.get_xlim()[1] >= 7 and right.get_xlim()[0] < -1 and right.get_xlim()[1] > 1
    assert [text.get_text() for text in right.get_legend().get_texts()] == ["new distances", "trained distances"]
    assert (left.get_xlabel(), left.get_ylabel()) == ("distance D of all far keys", "accuracy")
    assert right.get_xlabel() == "match of the two fastest pairs with −2"


@proven
def test_dials_are_turned_by_their_pair_and_position_and_columns_have_the_colour_of_their_pair():
    angles = rope_angles(torch.tensor([0, 2, 5]), 4)
    (ax,) = axes(figures.rope_dials, angles, [0, 2, 5])
    needles = strokes(ax)[1::2]
    assert len(needles) == 6 and ax.yaxis_inverted()
    for needle, (pair, column) in zip(needles, [(i, j) for i in range(2) for j in range(3)], strict=True):
        turned = angles[column, pair].item()
        tip = (column + 0.38 * math.cos(turned), pair - 0.38 * math.sin(turned))
        assert needle == [(column, pair), (pytest.approx(tip[0], abs=1e-4), pytest.approx(tip[1], abs=1e-4))]
    assert strokes(ax)[::2] == [[(j, i), (pytest.approx(j + 0.4), i)] for i in range(2) for j in range(3)]
    at = {words: (x, y) for words, x, y in texts(ax)}
    assert [at[f"m = {m}"] for m in (0, 2, 5)] == [(0, -0.62), (1, -0.62), (2, -0.62)]
    assert at["interleaved"] == (-0.6, -1.75) and at["half"] == (-0.6, -1.2)
    assert [at[f"pair {i}\n$\\theta_{i}$ = {theta}"] for i, theta in enumerate((1, 0.01))] == [(-0.6, 0), (-0.6, 1)]
    boxes = {place: colour for place, (colour, _) in cells(ax).items()}
    rows = {y: [colour for (_, low, _, _), colour in sorted(boxes.items()) if low == pytest.approx(y - 0.24)]
            for y in (-1.75, -1.2)}  # fmt: skip
    first, second = (to_hex([0.35 * part + 0.65 for part in to_rgb(colour)]) for colour in SERIES[:2])
    assert rows[-1.75] == [first, first, second, second] and rows[-1.2] == [first, second, first, second]
    centres = [patch.center for patch in ax.patches if isinstance(patch, Circle)]
    assert centres == [(column, pair) for pair in range(2) for column in range(3)]
    inside = sorted(texts(ax), key=lambda each: each[1])
    for y, pairs in ((-1.75, (0, 0, 1, 1)), (-1.2, (0, 1, 0, 1))):
        assert [words for words, x, at_y in inside if at_y == y - 0.1 and x > -0.5] == [
            f"$x_{{{column}}}$" for column in range(4)
        ]  # fmt: skip
        assert [words for words, x, at_y in inside if at_y == y + 0.12] == [f"pair {pair}" for pair in pairs]


@proven
def test_pairs_that_have_not_come_full_circle_meet_new_angles_above_one():
    ratios = {"no change": torch.tensor([4.0, 4, 4, 4]), "some": torch.tensor([4.0, 3, 2, 1])}
    (ax,) = axes(figures.context_extension, ratios, 2)
    border, *lines = strokes(ax)
    assert border == [(1.5, 0), (1.5, 1)] and lines == [[(i, 4) for i in range(4)], [(i, 4 - i) for i in range(4)]]
    assert [*cells(ax)] == [(1.5, 1, 2, pytest.approx(4.4))]
    assert labels(ax.yaxis) == {1: "× 1", 2: "× 2", 4: "× 4"} and ax.get_yscale() == "log"
    assert texts(ax) == [("no change", 0, 4), ("some", 0, 4), ("new angles", 3, pytest.approx(3.6)),
                         ("← full circle in training", 1, 0.74)]  # fmt: skip
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("pair of columns", "largest angle (trained: × 1)")


@proven
def test_three_settings_of_a_scheme_have_less_room_each():
    (ax,) = axes(figures.scale_points, {"a": {"1": [0.5], "8": [0.25], "8 longer": [0.75]}, "b": {"1": [0.5]}}, "right")
    assert [points for line in strokes(ax) for points in line] == [
        (pytest.approx(x, abs=1e-5), y) for x, y in ((-0.8 / 3, 0.5), (0, 0.25), (0.8 / 3, 0.75), (1, 0.5))
    ]  # fmt: skip
    assert labels(ax.xaxis) == {0: "a", 1: "b"}
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["1", "8", "8 longer"]


@proven
def test_points_of_a_scheme_stand_above_it_the_settings_side_by_side():
    groups = {"binary": {"× 1": [0.9, 0.95], "× 8": [0.6, 0.65]},
              "relative (T5)": {"× 1": [0.5, 0.7], "× 8": [0.3, 0.4]}}  # fmt: skip
    (ax,) = axes(figures.scale_points, groups, "accuracy", chance=0.125, chance_name="chance")
    assert strokes(ax)[:4] == [
        [(pytest.approx(x), y) for x, y in points] for points in (
            [(-0.26, 0.9), (-0.14, 0.95)], [(0.14, 0.6), (0.26, 0.65)],
            [(0.74, 0.5), (0.86, 0.7)], [(1.14, 0.3), (1.26, 0.4)],
        )
    ]  # fmt: skip
    assert strokes(ax)[4] == [(0, 0.125), (1, 0.125)] and ax.get_ylabel() == "accuracy"
    assert labels(ax.xaxis) == {0: "binary", 1: "relative\n(T5)"}
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["× 1", "× 8", "chance"]


@proven
def test_a_note_stands_where_a_scheme_has_no_points_of_the_second_setting():
    groups = {"none": {"32": [0.5], "128": [0.25]}, "learned": {"32": [0.75], "128": []}}
    (ax,) = axes(figures.scale_points, groups, "accuracy", notes={"learned": "refuses"})
    assert texts(ax) == [("refuses", 1.1, 0.1)]
    assert [points for line in strokes(ax) for points in line] == [
        (pytest.approx(x), y) for x, y in ((-0.2, 0.5), (0.2, 0.25), (0.8, 0.75))
    ]  # fmt: skip
    assert labels(ax.xaxis) == {0: "none", 1: "learned"}
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["32", "128"]


@proven
def test_families_stand_above_their_schemes_and_seeds_are_joined_from_scheme_to_scheme():
    groups = {"none": {"32": [0.5, 0.25]}, "a": {"32": [0.75, 1.0]}, "b": {"32": []}}
    families = {"no": 1, "both": 2}
    (ax,) = axes(figures.scale_points, groups, "accuracy", families=families, joined=["32"])
    assert texts(ax) == [("no", 0, 1.06), ("both", 1.5, 1.06)]
    assert labels(ax.xaxis) == {0: "none", 1: "a", 2: "b"}
    paths, border = strokes(ax)[-3:-1], strokes(ax)[-1]
    assert [[y for _, y in path] for path in paths] == [[0.5, 0.75], [0.25, 1]] and border == [(0.5, 0), (0.5, 1)]
    assert [x for x, _ in paths[0]] < [x for x, _ in paths[1]]


@proven
@pytest.mark.parametrize(("offset", "shift"), [(1, 0), (2, 3)])
def test_turned_vectors_keep_their_angle_and_their_score_and_shifted_ones_do_not(offset, shift):
    circle, lines = axes(figures.rotated_pair, offset, shift)
    query, key = cmath.rect(1, math.radians(20)), cmath.rect(0.96, math.radians(-52))

    def turned(vector, position):
        return vector * complex(math.cos(math.radians(25 * position)), math.sin(math.radians(25 * position)))

    ends = [complex(x, y) for words, x, y in texts(circle) if not words]
    assert [words for words, _, _ in texts(circle)].count("before") == 1
    expected = [query, turned(query, shift + offset), key, turned(key, shift)]
    assert ends == [pytest.approx(end, abs=1e-5) for end in expected]
    at = {words: (x, y) for words, x, y in texts(circle) if words}
    for name, end in ((f"know, {shift + offset}", expected[1]), (f"we, {shift}", expected[3])):
        assert at[name] == pytest.approx((1.34 * end.real / abs(end), 1.16 * end.imag / abs(end)), abs=1e-4)
    assert circle.get_title() == f"angle between them: {72 + 25 * offset}°"
    arc = circle.patches[-1]
    start, end = (complex(math.cos(math.radians(a)), math.sin(math.radians(a))) for a in (arc.theta1, arc.theta2))
    assert [start, end] == [pytest.approx(v / abs(v), abs=1e-6) for v in (expected[3], expected[1])]
    score = (turned(query, offset) * key.conjugate()).real
    assert curves(lines)["rotated"] == {s: pytest.approx(score, abs=1e-5) for s in range(6)}
    for s, sum_ in curves(lines)["added"].items():
        tag = [complex(math.sin(math.radians(25 * p)), math.cos(math.radians(25 * p))) for p in (s + offset, s)]
        assert sum_ == pytest.approx(((query + tag[0]) * (key + tag[1]).conjugate()).real, abs=1e-4)
    assert strokes(lines)[2:] == [[(shift, 0), (shift, 1)], [(shift, pytest.approx(score, abs=1e-5))]]


@proven
def test_reach_joins_means_and_has_a_mark_a_seed():
    lines = {"as it is": {32: [1.0, 0.5], 128: [0.5, 0.25]}, "window": {32: [0.75, 0.25], 128: [0.25, 0.5]}}
    left, right = axes(figures.reach, {"ours": lines, "theirs": {"window": {32: [0.5, 0.25]}}}, trained=32, shortest=8)

    def seeds(*points):                                                              # the first to the left
        beside = (1.05**-0.5, 1.05**0.5)
        return [(pytest.approx(n * x, rel=1e-4), y) for n, *ys in points for x, y in zip(beside, ys, strict=True)]

    assert strokes(left) == [
        [(32, 0.75), (128, 0.375)], seeds((32, 1, 0.5), (128, 0.5, 0.25)),
        [(32, 0.5), (128, 0.375)], seeds((32, 0.75, 0.25), (128, 0.25, 0.5)),
    ]  # fmt: skip
    assert strokes(right) == [[(32, 0.375)], seeds((32, 0.5, 0.25))]
    assert texts(left) == [("as it is", 160, 0.375), ("window", 160, pytest.approx(0.29))], "one below the other"
    assert texts(right) == [("window", 40, 0.375)]
    assert (left.get_title(), right.get_title()) == ("ours", "theirs")
    looks = [(line.get_color(), line.get_linestyle()) for ax in (left, right) for line in ax.get_lines()]
    assert looks[2:4] == looks[4:], "a line looks the same in all panels"
    assert len(set(looks)) == 4
    for ax in (left, right):
        assert [*cells(ax)] == [(8, 0, 24, 1)]
        assert labels(ax.xaxis) == {32: "32"} | ({128: "128"} if ax is left else {})
        assert ax.get_xlabel() == "length of the text" and ax.get_ylabel() == ("accuracy" if ax is left else "")


@proven
def test_scores_are_means_of_neighbouring_distances_in_a_band():
    at = torch.arange(1, 101)
    (ax,) = axes(figures.score_decay, {"flat": 0 * at + 0.5, "odd": at % 2}, at, a_decade=1)
    assert strokes(ax)[0] == [(0, 0), (1, 0)]
    groups = (range(1, 10), range(10, 101))
    middles = [pytest.approx(math.exp(sum(math.log(p) for p in group) / len(group)), rel=1e-4) for group in groups]
    flat, odd = strokes(ax)[1:]
    assert flat == [(x, 0.5) for x in middles]
    assert odd == [(x, pytest.approx(y, abs=1e-5)) for x, y in zip(middles, (5 / 9, 45 / 91), strict=True)]
    bands = [band.get_paths()[0].vertices[:, 1] for band in ax.collections]
    assert [(band.min(), band.max()) for band in bands] == [(0.5, 0.5), (0, 1)]
    beside = {words: y for words, _, y in texts(ax)}
    assert beside == {"flat": 0.5, "odd": pytest.approx(45 / 91, abs=1e-5)} and ax.get_xscale() == "log"
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("distance (tokens)", "score (1 at distance 0)")


@proven
def test_attention_past_the_end_has_lines_where_the_training_ended():
    matrix = torch.eye(4)
    matrix[2:] = torch.tensor([0.125, 0.5, 0.125, 0.25])
    tables = {"a": matrix, "b": torch.eye(4).roll(1, 1)}
    a, b, key = axes(figures.attention_past_training, tables, trained=2, circled={"a": (3, 1)}, enlarged={"b": 1})
    assert [*cells(b)] == [(0.5, 0.5, 8, 8)]
    (inset,) = b.child_axes
    assert grid(inset) == [[0, 1, 0], [0, 0, 1], [0, 0, 0]] and a.child_axes == []
    assert key.get_ylabel() == "attention weight"
    assert labels(key.yaxis) == {0: "0 (white)", 0.25: "0.25", 0.5: "0.5", 0.75: "0.75", 1: "1 (dark)"}
    for ax in (a, b):
        assert labels(ax.xaxis) == labels(ax.yaxis) == {0: "0", 2: "2", 3: "3"}
    assert (a.get_title(), b.get_title()) == ("a", "b") and (a.get_xlabel(), a.get_ylabel()) == ("key", "query")
    assert grid(a) == [[1, 0, 0, 0], [0, 1, 0, 0], [0.125, 0.5, 0.125, 0.25], [0.125, 0.5, 0.125, 0.25]]
    assert grid(b) == [[0, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1], [1, 0, 0, 0]]
    for ax in (a, b):
        assert strokes(ax) == [[(0, 1.5), (1, 1.5)], [(1.5, 0), (1.5, 1)]]
    assert texts(a) == [("0.50", 1, 3)] and texts(b) == []
    assert [patch.center for patch in a.patches if isinstance(patch, Circle)] == [(1, 3)]
