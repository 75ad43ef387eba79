"""Pictures of a lookup: keys where they are, weights as large as they are, answers as they were computed."""

import math

import numpy as np
import pytest
import torch
from drawn import (
    arrows,
    axes,
    bars,
    boxed,
    contours,
    curves,
    dots,
    joined,
    labels,
    places,
    sizes,
    strokes,
    table,
    texts,
    written,
)
from matplotlib.patches import FancyArrowPatch
from proven import proven

from attncourse import viz
from attncourse_lessons import course

figures = course.part("lookup", "figures")


@proven
def test_one_key_answers_a_hash_table_and_all_keys_a_soft_lookup():
    (ax,) = axes(figures.two_lookups)
    keys = ("5 h", "8 h", "12 h")
    values = ("45", "310", "120")
    ways = [way for key, value in zip(keys, values, strict=True) for way in (("7 h", key), (value, "208"))]
    assert joined(ax) == [("8 h", "8 h"), ("310", "310"), *ways]
    assert arrows(ax)[:2] == [((1.3, 3.6), (2.8, 3.6)), ((6.2, 3.6), (7.2, 3.6))]
    near = np.exp([5 * math.cos(2 * math.pi * (hour - 7) / 24) for hour in (5, 8, 12)])
    weights = near / near.sum()
    assert round(weights @ [45, 310, 120]) == 208
    at = places(ax, *(f"{weight:.2f}" for weight in weights))
    heights = [y for _, y in at.values()]
    assert heights == sorted(heights, reverse=True)              # beside the arrows to the keys, from above
    thick = [patch.get_linewidth() for patch in ax.patches if isinstance(patch, FancyArrowPatch)]
    assert thick[2::2] == thick[3::2] == pytest.approx(0.8 + 3 * weights)
    entries = ["5 h", "45", "8 h", "310", "12 h", "120"]
    assert boxed(ax) == ["8 h", *entries, "7 h", *entries]
    # A line from each key to its value, in both tables.
    rows = {words: y for words, x, y in texts(ax) if words in keys and x > 10}
    gaps = ((4.15, 4.85), (12.75, 13.45))
    assert strokes(ax) == [[(left, rows[key]), (right, rows[key])] for left, right in gaps for key in keys]


@proven
def test_keys_stand_on_the_clock_at_their_hours_and_the_hand_at_the_one_that_is_asked():
    (ax,) = axes(figures.clock_keys, [2, 8], torch.tensor([-0.5, 0.9]), asked=7)

    def on_the_clock(hour):
        angle = 2 * math.pi * hour / 24                          # clockwise from the top
        return pytest.approx((math.sin(angle), math.cos(angle)), abs=1e-5)

    assert dots(ax) == [on_the_clock(2), on_the_clock(8)]
    assert sizes(ax) == [40, pytest.approx(40 + 700 * 0.9)]
    assert arrows(ax) == [((0, 0), on_the_clock(7))]
    at = places(ax)
    for hour in range(0, 24, 3):
        assert (at[f"{hour}"][0] / 0.8, at[f"{hour}"][1] / 0.8) == on_the_clock(hour)
    for said, hour in (("2 h\n−0.50", 2), ("8 h\n0.90", 8)):
        assert (at[said][0] / 1.33, at[said][1] / 1.25) == on_the_clock(hour)
    (circle,) = strokes(ax)
    assert all(math.hypot(x, y) == pytest.approx(1, abs=1e-5) for x, y in circle)
    assert circle[0] == (1, 0) and circle[25][1] > 0.5           # all the way round, from the right upwards


@proven
def test_a_frame_of_a_lookup_has_a_bar_a_key_and_the_answers_over_the_day():
    xs = torch.tensor([0.0, 6, 12, 24])
    left, right = axes(
        figures.lookup_frame, [2, 8], torch.tensor([10.0, 50.0]), torch.tensor([0.25, 0.75]), 7, xs, xs**2 + 1
    )
    assert bars(left) == {"": {"2": 0.25, "8": 0.75}}
    assert texts(left) == [("0.25", 0, 0.27), ("0.75", 1, 0.77)]
    assert strokes(right) == [[(0, 1), (6, 37), (12, 145), (24, 577)], [(7, 0), (7, 1)]]
    assert dots(right) == [(2, 10), (8, 50)]
    assert left.get_ylabel() == "weight, asked at 7 h"


@proven
def test_functions_are_drawn_as_they_are_over_their_points():
    xs = torch.tensor([1.0, 10, 100])
    (ax,) = axes(
        viz.function_curves, {"square": xs**2, "line": 3 - xs}, xs, points=(xs[:2], xs[1:] + 1), log_x=True, x_name="x"
    )
    assert curves(ax) == {"square": {1: 1, 10: 100, 100: 10000}, "line": {1: 2, 10: -7, 100: -97}}
    assert dots(ax) == [(1, 11), (10, 101)] and (ax.get_xscale(), ax.get_xlabel()) == ("log", "x")


@proven
def test_bars_of_each_series_stand_side_by_side_above_their_group():
    shares = {"dot": {"near": 0.25, "far": 0.5}, "cosine": {"near": 0.75, "far": 0.125}}
    (ax,) = axes(viz.grouped_bars, shares, chance=0.3)
    assert bars(ax) == shares
    assert labels(ax.xaxis) == {0: "near", 1: "far"}
    assert texts(ax) == [("0.25", -0.2, 0.265), ("0.50", 0.8, 0.515), ("0.75", 0.2, 0.765), ("0.12", 1.2, 0.14)]
    assert strokes(ax) == [[(0, 0.3), (1, 0.3)]]


@proven
def test_a_table_of_weights_has_a_row_a_query_with_what_is_large_in_numbers():
    weights = torch.tensor([[0.875, 0.0625, 0.0625], [0.2, 0.3, 0.5]])
    (ax,) = axes(figures.lookup_table, weights, ["q", "r"], ["a", "b", "c"])
    assert table(ax) == {"q": {"a": 0.875, "b": 0.0625, "c": 0.0625}, "r": {"a": 0.2, "b": 0.3, "c": 0.5}}
    assert written(ax) == {"q": {"a": "0.9"}, "r": {"a": "0.2", "b": "0.3", "c": "0.5"}}
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("keys", "queries")


@proven
def test_a_score_landscape_has_each_height_where_a_key_would_get_that_score():
    query, keys = torch.tensor([1.0, 0.5]), torch.tensor([[1.0, 0.0], [2.0, -1.0], [0.0, 1.5]])
    plane, beside = axes(figures.score_landscape, lambda q, k: q @ k.mT, query, keys, ["A", "B", "C"])
    for low, high, outline in contours(plane):
        assert all(low - 1e-4 <= x + 0.5 * y <= high + 1e-4 for x, y in outline)
    assert {low for low, high, _ in contours(plane) if low == high and abs(low) < 3} == {-2, -1, 0, 1, 2}
    assert dots(plane) == [(1, 0), (2, -1), (0, 1.5)]
    weights = (keys @ query).softmax(dim=0).tolist()
    assert sizes(plane) == pytest.approx([30 + 350 * weight for weight in weights], rel=1e-5)
    assert texts(plane)[-3:] == [("A", 1, 0), ("B", 2, -1), ("C", 0, 1.5)]
    assert arrows(plane) == [((0, 0), (1, 0.5))]
    assert bars(beside) == {"": {name: pytest.approx(weight) for name, weight in zip("ABC", weights, strict=True)}}
    assert [words for words, *_ in texts(beside)] == [f"{weight:.2f}" for weight in weights]
    assert [y for *_, y in texts(beside)] == [0, 1, 2]
    assert (plane.get_title(), beside.get_title()) == ("score of a key at each place", "weights of the keys")
