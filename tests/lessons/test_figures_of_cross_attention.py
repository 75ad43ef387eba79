"""The drawings join what feeds what; tables carry their sums; lines go through the means of their seeds."""

from itertools import pairwise

import numpy as np
import pytest
import torch
from drawn import axes, boxed, cells, grid, joined, labels, places, strokes, table, texts, written
from matplotlib.collections import PolyCollection
from matplotlib.patches import FancyArrowPatch, Rectangle
from proven import proven

from attncourse.viz.style import BLUE, GREEN, GREY, INK, ORANGE, PAGE
from attncourse_lessons import course
from attncourse_lessons.results import Compared

figures = course.part("cross_attention", "figures")


@proven
def test_a_decoding_step_goes_from_the_words_by_weighted_values_to_the_next_token():
    (ax,) = axes(figures.decoding_step)
    words, states = ["ninety-", "one", ",", "two"], [f"$h_{i}$" for i in (1, 2, 3, 4)]
    scores, weights = ["0.3", "3.1", "−0.9", "0.6"], ["0.05", "0.86", "0.02", "0.07"]
    values = [rf"$\alpha_{{t{i}}} h_{i}$" for i in (1, 2, 3, 4)]
    columns = [*zip(words, states, scores, weights, values, strict=True)]
    arrows = joined(ax)
    # Of the lines that have corners the last piece alone is an arrow: it begins beside what it ends at.
    queries, valued = ([way for way in arrows if way in {(name, name) for name in row}] for row in (scores, values))
    assert queries == [(score, score) for score in scores] and valued == [(value, value) for value in values]
    # Every score goes into the one softmax, and every weight comes out of it.
    ways = {step for column in columns for step in pairwise((*column[:3], "softmax"))}
    ways |= {step for column in columns for step in pairwise(("softmax", *column[3:], "$c_t$"))}
    assert set(arrows) - {*queries, *valued} == ways | {
        *pairwise(states),
        ("$s_{t-1}$", "$s_t$"), (r"token before, $\tilde s_{t-1}$", "$s_t$"), ("$s_t$", r"$[c_t;\, s_t]$"),
        ("$c_t$", r"$[c_t;\, s_t]$"), (r"$[c_t;\, s_t]$", r"$\tilde s_t$"), (r"$\tilde s_t$", "next token: ein"),
    }  # fmt: skip
    assert boxed(ax) == [
        *(box for column in columns for box in column[1:]), "softmax", "$c_t$", "$s_t$", r"$[c_t;\, s_t]$",
        r"$\tilde s_t$",
    ]  # fmt: skip
    shares = np.exp([0.3, 3.1, -0.9, 0.6])
    assert [f"{share:.2f}" for share in shares / shares.sum()] == weights
    names = ("attention scores", "attention weights", "weights × values", "context vector", "concatenate")
    ((left, low, width, high),) = [at for at in cells(ax) if at[2] > 5]
    assert all(left < x < left + width for x, _ in places(ax, *scores, *weights).values()), "it spans all columns"
    bar = places(ax, "softmax", "their sum: 1.00", "0.3", "0.05", "attention weights")
    assert bar["0.3"][1] < low < bar["softmax"][1] < low + high < bar["0.05"][1]
    assert low < bar["their sum: 1.00"][1] < bar["attention weights"][1]
    at = places(ax, *states, *scores, *weights, *values, "$s_t$", "$c_t$", *names)
    assert [at[name][1] > at[states[0]][1] for name in names] == [True] * 5
    for name, row in zip(names, (scores, weights, values), strict=False):
        assert abs(at[name][1] - at[row[0]][1]) < 0.5
    assert at["context vector"][0] == at["$c_t$"][0] and at["concatenate"][0] == at["$s_t$"][0]
    # A value leaves its state, passes score and weight on their right, and ends at its product.
    ways = strokes(ax)
    for state, score, value, way in zip(states, scores, values, ways[:4], strict=True):
        (x, low), (right, _), (_, high) = way
        assert at[state][0] < x < right and abs(low - at[state][1]) < 0.5 and high == at[value][1]
        assert at[score][0] + 0.55 < right
    over = [line.get_zorder() for line in ax.lines[:4]]
    (softmax_bar,) = [patch for patch in ax.patches if isinstance(patch, Rectangle) and patch.get_width() > 5]
    assert min(over) > softmax_bar.get_zorder(), "the values do not go through the softmax"
    assert all(line.get_path_effects() for line in ax.lines[:4]), "a bridge: white on both sides"
    assert all(abs(bar["softmax"][0] - way[1][0]) > 0.9 for way in ways[:4]), "no value crosses the word"
    named = places(ax, "key", "value")
    assert at["$h_4$"][0] + 0.2 < named["key"][0] < ways[3][1][0] < named["value"][0]
    assert {text.get_text(): text.get_color() for text in ax.texts}["value"] == ax.lines[0].get_color() == BLUE
    # The query meets every key: a line between the states and the scores, and a joint and an arrow at each.
    down, across, *joints = ways[4:]
    assert down[0] == (at["$s_t$"][0], 2.45) and down[1] == across[1]
    assert at["$h_1$"][1] < across[0][1] == across[1][1] < at["0.3"][1]
    assert [joint[0][0] for joint in joints] == pytest.approx([at[state][0] - 0.2 for state in states])


@proven
def test_of_two_decoders_one_asks_with_the_old_state_and_one_with_the_new():
    left, right = axes(figures.two_decoders)
    assert left.get_title().startswith("Bahdanau") and right.get_title().startswith("Luong")
    attention = {("$h_1 … h_n$", "attention"), ("attention", "$c_t$"), ("$s_{t-1}$", "$s_t$")}
    fed = r"$y_{t-1},\ \tilde s_{t-1}$"
    assert set(joined(left)) == attention | {
        ("$s_{t-1}$", "attention"), ("$c_t$", "$s_t$"), ("$c_t$", "next token"), ("$s_t$", "next token"),
        ("$y_{t-1}$", "$s_t$"), ("$y_{t-1}$", "next token"),
    }  # fmt: skip
    assert set(joined(right)) == attention | {
        ("$s_t$", "attention"), ("$c_t$", r"$\tilde s_t$"), ("$s_t$", r"$\tilde s_t$"), (r"$\tilde s_t$", "next token"),
        (fed, "$s_t$"), (r"$\tilde s_t$", "into the\nnext cell\n(input\nfeeding)"),
    }  # fmt: skip
    asked = [words for ax in (left, right) for words, *_ in texts(ax) if "query" in words]
    assert asked == ["the old state\nis the query", "the new state\nis the query"]
    assert "tanh" in texts(left)[-1][0] and "cdot" in texts(right)[-1][0]
    for ax in (left, right):
        assert boxed(ax)[:5] == ["$h_1 … h_n$", "$s_{t-1}$", "$s_t$", "attention", "$c_t$"]
        at = places(ax, "$h_1 … h_n$", "attention", "$s_{t-1}$", "$s_t$", "$c_t$")
        assert at["$h_1 … h_n$"][0] < at["attention"][0] == at["$c_t$"][0] == at["$s_{t-1}$"][0] < at["$s_t$"][0]
    (into_the_cell, low), (on, high) = [(x, y) for words, x, y in texts(left) if words.startswith("into")]
    assert low < at["$c_t$"][1] < high and on < into_the_cell
    assert places(right, "into the output")["into the output"][1] > 6.3


@proven
def test_a_table_carries_the_sums_of_its_rows_and_where_asked_of_its_columns():
    weights = torch.tensor([[0.1, 0.9], [0.3, 0.7], [0.6, 0.4]])
    names = ["x", "y", "z"], ["s", "t"]
    left, right = axes(figures.tables_with_sums, {"a": weights, "b": 2 * weights}, *names, column_sums=True)
    assert (left.get_title(), right.get_title()) == ("a", "b")
    assert table(left) == {"x": {"s": 0.1, "t": 0.9}, "y": {"s": 0.3, "t": 0.7}, "z": {"s": 0.6, "t": 0.4}}
    assert grid(right) == pytest.approx(np.array([[0.2, 1.8], [0.6, 1.4], [1.2, 0.8]]))
    assert (left.get_xlabel(), left.get_ylabel(), right.get_ylabel()) == ("source (keys)", "target (queries)", "")
    for ax, factor in ((left, 1), (right, 2)):
        said = {(x, y): words for words, x, y in texts(ax)}
        assert [said[2.5, i + 0.5] for i in range(3)] == [f"{factor:.2f}"] * 3
        assert [[said[j + 0.5, i + 0.5] for j in range(2)] for i in range(3)] == [
            [f"{factor * share:.2f}" for share in row] for row in ((0.1, 0.9), (0.3, 0.7), (0.6, 0.4))
        ]
        assert said[2.5, -0.15] == "sum" and ax.yaxis_inverted()
        assert list(labels(ax.xaxis).values()) == ["s", "t"]
    bold = [text.get_text() for text in left.texts if text.get_fontweight() == "bold"]
    assert bold == ["1.00"] * 4, "those that are one: all rows, and a column"
    colours = {text.get_text(): text.get_color() for ax in (left, right) for text in ax.texts
               if text.get_position()[0] == 2.5}  # fmt: skip
    assert colours["1.00"] == INK and colours["2.00"] == ORANGE, "a row that does not sum to one is an error"
    below = [[(text.get_text(), text.get_position()[0], text.get_color()) for text in ax.texts
              if text.get_position() in ((0.5, 3.4), (1.5, 3.4))] for ax in (left, right)]  # fmt: skip
    assert below == [[("1.00", 0.5, INK), ("2.00", 1.5, GREY)], [("2.00", 0.5, GREY), ("4.00", 1.5, GREY)]]
    assert left.get_ylim()[0] == right.get_ylim()[0] > 3.4


@proven
def test_what_the_mask_forbids_is_hatched_where_it_has_no_weight():
    weights = torch.tensor([[0.2, 0.8, 0.0, 0.0], [0.5, 0.5, 0.0, 0.0]])
    spread = torch.tensor([[0.1, 0.6, 0.1, 0.2], [0.3, 0.4, 0.2, 0.1]])
    mask = torch.tensor([[True, True, False, False]])
    none, masked = axes(figures.tables_with_sums, {"a": spread, "b\nc": weights}, ["x", "y"], [*"stuv"], mask)
    assert (none.get_title(), masked.get_title()) == ("a", "b\nc")
    assert list(table(none)) == ["x", "y"] and list(table(none)["x"].values()) == pytest.approx(spread[0].tolist())
    assert grid(masked) == pytest.approx(weights.numpy())
    assert none.get_position().x1 < masked.get_position().x0, "side by side"
    hatched = [[patch.get_bbox().bounds for patch in ax.patches if patch.get_hatch()] for ax in (none, masked)]
    assert hatched == [[], [(2, 0, 1, 2), (3, 0, 1, 2)]]
    for ax in (none, masked):
        rows = [(words, y) for words, x, y in texts(ax) if x == 4.5 and 0 < y < 2]
        assert rows == [("1.00", 0.5), ("1.00", 1.5)] and list(labels(ax.xaxis).values()) == [*"stuv"]
        assert max(y for _, _, y in texts(ax)) < 2, "the sums of the columns only where they are asked for"
    assert none.figure.get_size_inches()[0] <= PAGE


@proven
def test_the_two_models_of_one_training_are_joined_and_what_has_no_partner_stands_alone():
    rows = [Compared(*row) for row in (("RNNencdec-7", 10.0, 0), ("RNNsearch-7", 16.5, 0), ("RNNsearch-9*", 21.25, 0),
                                       ("Moses", 30.0, 0))]  # fmt: skip
    (ax,) = axes(figures.with_and_without, rows)
    assert labels(ax.yaxis) == {0: "trained on ≤ 7 words", 1: "trained on ≤ 9 words*", 2: "Moses"}
    assert ax.yaxis_inverted()
    joins = [[(10, 0), (16.5, 0)], [(21.25, 1)], [(30, 2)]]
    assert [way for way in strokes(ax) if way in joins and len(way) == 2] == joins[:1]
    points = {way[0]: line.get_color() for way, line in zip(strokes(ax), ax.lines, strict=True)
              if line.get_marker() == "o"}  # fmt: skip
    assert points == {(10, 0): BLUE, (16.5, 0): GREEN, (21.25, 1): GREEN, (30, 2): GREY}
    assert texts(ax) == [
        ("10.00", 10, -0.22), ("16.50", 16.5, -0.22), ("+6.50", 13.25, -0.08), ("21.25", 21.25, 0.78),
        ("30.00", 30, 1.78),
        ("RNNencdec\n(one vector)", 10, -0.62), ("RNNsearch\n(attention)", 16.5, -0.62),
    ]  # fmt: skip


@proven
def test_lists_right_are_a_line_through_the_means_and_a_band_from_the_worst_seed_to_the_best():
    one = [{"1": 1.0, "2": 0.5, "3": 0.0}, {"1": 0.8, "2": 0.3, "3": 0.1}]
    two = [{"1": 0.9, "2": 0.75, "3": 0.5}, {"1": 0.9, "2": 0.65, "3": 0.7}]
    panels = {"450 steps": {"a": one, "b": two}, "1,800 steps": {"a": two, "b": one}}
    left, right = axes(figures.right_by_length, panels)
    assert (left.get_title(), right.get_title()) == ("450 steps", "1,800 steps")
    a, b = {1: 0.9, 2: 0.4, 3: 0.05}, {1: 0.9, 2: 0.7, 3: 0.6}
    lines = [[[*map(float, ys)] for ys in (line.get_ydata() for line in ax.lines)] for ax in (left, right)]
    assert lines[0] == [pytest.approx([*a.values()]), pytest.approx([*b.values()])]
    assert lines[1] == [pytest.approx([*b.values()]), pytest.approx([*a.values()])]
    assert [[*line.get_xdata()] for ax in (left, right) for line in ax.lines] == [[1, 2, 3]] * 4
    assert left.get_legend() is None and right.get_legend() is None
    named = {text.get_text(): (*text.xy, text.get_color()) for text in right.texts}
    inside = {text.get_text(): (*text.xy, text.get_color()) for text in left.texts}
    assert inside == {
        name: (2, pytest.approx(y), line.get_color())
        for (name, y), line in zip({"a": 0.4, "b": 0.7}.items(), left.lines, strict=True)
    }, "beside the middle points"
    assert named == {
        name: (3, pytest.approx(y), line.get_color())
        for (name, y), line in zip({"a": 0.6, "b": 0.05}.items(), right.lines, strict=True)
    }
    assert list(labels(right.xaxis).values()) == ["1", "2", "3"]
    assert left.get_ylabel() == "lists exactly right" and left.get_xlabel() == right.get_xlabel()
    for ax, spans in ((left, (one, two)), (right, (two, one))):
        bands = [each for each in ax.collections if isinstance(each, PolyCollection)]
        for band, seeds in zip(bands, spans, strict=True):
            found = {}
            for x, y in band.get_paths()[0].vertices:
                found.setdefault(round(x), set()).add(round(float(y), 6))
            assert {n: (min(ys), max(ys)) for n, ys in found.items()} == {
                int(n): (min(seed[n] for seed in seeds), max(seed[n] for seed in seeds)) for n in seeds[0]
            }


def test_names_at_the_ends_of_lines_that_meet_stand_apart():
    same = [{"1": 1.0, "2": 0.4}]
    _, ax = axes(figures.right_by_length, {"x": {"a": same, "b": same}, "y": {"a": same, "b": same}})
    high, low = (text.xy[1] for text in ax.texts)
    assert high == pytest.approx(0.4) and low == pytest.approx(0.31)


@proven
def test_alignments_stand_in_a_row_with_a_frame_at_each_true_partner():
    rows, columns = ["x", "y", "z"], ["a", "b"]
    first = torch.tensor([[0.9, 0.1], [0.04, 0.96], [0.5, 0.5]])
    second = torch.tensor([[0.2, 0.8], [1.0, 0.0], [0.3, 0.7]])
    left, right = axes(figures.alignments, {"seed 0": first, "seed 1": second}, rows, columns, {"x": "a", "z": "b"})
    assert (left.get_title(), right.get_title()) == ("seed 0", "seed 1")
    assert table(left) == {"x": {"a": 0.9, "b": 0.1}, "y": {"a": 0.04, "b": 0.96}, "z": {"a": 0.5, "b": 0.5}}
    assert grid(right) == [[0.2, 0.8], [1, 0], [0.3, 0.7]] and list(labels(right.xaxis).values()) == columns
    assert written(left) == {"x": {"a": "0.90", "b": "0.10"}, "y": {"b": "0.96"}, "z": {"a": "0.50", "b": "0.50"}}
    assert [words for words, _, _ in texts(right)] == ["0.20", "0.80", "1.00", "0.30", "0.70"]
    for ax in (left, right):
        assert [(*frame.get_xy(), frame.get_width(), frame.get_height()) for frame in ax.patches] == [
            (0, 0, 1, 1), (1, 2, 1, 1),
        ]  # fmt: skip
    assert (left.get_xlabel(), left.get_ylabel()) == ("source (keys)", "target (queries)")


@proven
def test_the_still_of_the_steps_joins_each_target_token_to_what_it_attends_to():
    weights = torch.tensor([[0.9, 0.1], [0.04, 0.96], [0.5, 0.5]])
    (ax,) = axes(figures.steps, weights, ["a", "b"], ["x", "y", "z"])
    at = places(ax, "a", "b", "x", "y", "z")
    assert [at[name][0] for name in "xyz"] == [0, 1, 2] and [at[name][0] for name in "ab"] == [0.5, 1.5]
    assert {at[name][1] for name in "ab"} == {2.2} and {at[name][1] for name in "xyz"} == {-0.2}
    ways = [("x", "a", 0.9), ("x", "b", 0.1), ("y", "b", 0.96), ("z", "a", 0.5), ("z", "b", 0.5)]
    assert strokes(ax) == [[(at[target][0], 0), (at[source][0], 2)] for target, source, _ in ways]
    assert [line.get_linewidth() for line in ax.lines] == pytest.approx([5 * weight for *_, weight in ways])
    assert places(ax, "0.90")["0.90"] == pytest.approx((0.1, 0.4)), "on its line"
    assert [words for words, *_ in texts(ax) if words.startswith("0.")] == ["0.90"], "from 0.5 to 0.95"
    named = {words: y for words, _, y in texts(ax) if "(" in words}
    assert named == {"source (keys)": 2.2, "target (queries)": -0.2}
    assert len(figures.steps(weights, ["a", "b"], ["x", "y", "z"]).frames) == 3, "it moves as before"


@proven
def test_what_is_hidden_is_hatched_and_beside_it_stand_marks_for_what_is_still_right():
    found = {(0,): [0.9, 0.25], (1, 2): [0.5, 0.0]}                  # in the first row they differ by more than half
    left, right = axes(figures.hidden_positions, found, ["a", "b", "c"], ["one", "other"], 0.125)
    assert [patch.get_xy() for patch in left.patches if patch.get_hatch()] == [(0, 0), (1, 1), (2, 1)]
    assert texts(left) == [("b", 1.5, 0.5), ("c", 2.5, 0.5), ("a", 0.5, 1.5)]
    assert labels(left.yaxis) == {0.5: "without a", 1.5: "only a"}
    assert left.yaxis_inverted() and right.yaxis_inverted()
    marks = {line.get_label(): dict(zip(*line.get_data(), strict=True)) for line in right.lines[-2:]}
    assert {name: [*points] for name, points in marks.items()} == {"one": [0.9, 0.5], "other": [0.25, 0]}
    for points in marks.values():
        assert [*points.values()] == pytest.approx([0.5, 1.5], abs=0.2), "each in its row"
    assert marks["one"][0.9] != marks["other"][0.25], "neither covers the other"
    assert right.get_title() == "units predicted right"
    (dotted,) = [line for line in right.lines if line.get_linestyle() == ":"]
    assert list(dotted.get_xdata()) == [0.125, 0.125]
    said = [(words, pytest.approx(x), y) for words, x, y in texts(right)]
    assert said[0][:2] == ("chance", 0.125)
    beside = [("one", 0.87, marks["one"][0.9]), ("other", 0.28, marks["other"][0.25])]
    assert said[1:] == beside, "where they differ most"


@proven
def test_a_softmax_barfor_each_model_is_shared_out_over_the_positions_from_the_true_partner_on():
    counts = {"seed 0": [0, 1, 3], "seed 1": [0, 4, 0], "seed 2": [0, 0, 4]}
    (ax,) = axes(figures.largest_weights, counts, ["a", "b", "c"], "unit")
    assert [*labels(ax.yaxis).values()] == ["seed 2", "seed 0", "seed 1"] and ax.yaxis_inverted(), "most first"
    bars = [bar for bar in ax.patches if bar.get_width()]
    at = [(bar.get_y() + bar.get_height() / 2, bar.get_x()) for bar in bars]
    widths = dict(zip(at, (bar.get_width() for bar in bars), strict=True))
    assert widths == {(0, 0): 1, (1, 0): 0.75, (1, 0.75): 0.25, (2, 0): 1}
    colour = dict(zip(at, (bar.get_facecolor() for bar in bars), strict=True))
    assert colour[0, 0] == colour[1, 0] != colour[2, 0] == colour[1, 0.75], "a colour is a position"
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["c", "b"], "a was never the largest"
    assert "unit" in ax.get_xlabel() and not ax.texts


@proven
def test_of_lists_of_five_every_seed_is_a_mark_and_a_key_names_the_budgets():
    few, many = [{"4": 0.9, "5": 0.1}, {"4": 0.8, "5": 0.2}], [{"4": 0.9, "5": 0.5}, {"4": 0.8, "5": 0.7}]
    best = [{"4": 1.0, "5": 0.9}, {"4": 1.0, "5": 0.8}]
    first, second, third = "450 steps", "1,800 steps", "5,400 steps"
    found = {"a": {second: many, third: best}, "b": {second: many}, "c": {first: few, second: best}}
    (ax,) = axes(figures.lists_of_five, found, same=2)
    assert labels(ax.yaxis) == {0: "a", 1: "b", 2: "c"} and ax.yaxis_inverted()
    open_, full, square = ("o", "white"), ("o", BLUE), ("D", figures.DARK)
    drawn = [(way, (line.get_marker(), line.get_markerfacecolor()))
             for way, line in zip(strokes(ax), ax.lines, strict=True) if line.get_marker() in "oD"]  # fmt: skip
    assert drawn[:5] == [
        ([(0.5, 0), (0.7, 0)], full), ([(0.9, 0), (0.8, 0)], square), ([(0.5, 1), (0.7, 1)], full),
        ([(0.1, 2), (0.2, 2)], open_), ([(0.9, 2), (0.8, 2)], full),
    ]  # fmt: skip
    key = {words: (x, y) for words, x, y in texts(ax) if words.endswith("steps")}
    assert list(key) == [first, second, third], "from the fewest to the most"
    for (((x, y),), look), (words, (right, level)), expected in zip(
        drawn[5:], key.items(), (open_, full, square), strict=True
    ):
        assert look == expected and x < right < x + 0.05 and y == level < 0, words
    assert ax.get_xlabel() == "lists of five exactly right" and ax.get_legend() is None
    (parting,) = [line for line in ax.lines if line.get_color() == INK]
    assert list(parting.get_ydata()) == [1.5, 1.5], "between the two kinds"
    beside = {words: y for words, _, y in texts(ax) if "vector" in words or "choice" in words}
    assert beside == {"the same vector\nat every step": 0.5, "a new choice\nat every step": 2}


@proven
def test_one_choice_is_the_same_for_all_and_a_new_choice_has_an_arrow_back_to_every_step():
    one, anew = axes(figures.handed_over)
    assert [ax.get_title() for ax in (one, anew)] == ["eight averages, one choice",
                                                      "eight averages, a choice at every step"]  # fmt: skip
    steps, eight, source = ["step 1", "step 2", "step 3"], [*"12345678"], "encoder states"
    vectors, only = ["$c_1$", "$c_2$", "$c_3$"], "one vector $c$"
    assert boxed(one) == [source, *eight, *steps, only, "$s_0$"]
    assert boxed(anew) == [source, *eight, *steps, *vectors]
    for ax in (one, anew):
        assert [way for way in joined(ax) if way[0] == source] == [(source, name) for name in eight]
    ways = joined(one)
    assert sorted(way for way in ways if way[1] == only) == [(name, only) for name in ("$s_0$", *eight)], "it chooses"
    assert ways[-3:] == [(only, step) for step in steps], "the same for all"
    assert set(joined(anew)) == {
        *((source, name) for name in eight), *((name, vector) for name in eight for vector in vectors),
        *zip(steps, vectors, strict=True), *zip(vectors, steps, strict=True),
    }  # fmt: skip
    thick = [[way for way, patch in zip(joined(ax), filter(_is_arrow, ax.patches), strict=True)
              if patch.get_linewidth() > 3] for ax in (one, anew)]  # fmt: skip
    assert thick == [[("3", only)], [("2", "$c_1$"), ("7", "$c_2$"), ("5", "$c_3$")]], "each a choice of its own"
    named = [{said: x for said, x, _ in texts(ax) if said == "query"} for ax in (one, anew)]
    assert named == [{"query": 0.5}, {"query": 0.85}], "beside the first query"


def _is_arrow(patch) -> bool:
    return isinstance(patch, FancyArrowPatch)
