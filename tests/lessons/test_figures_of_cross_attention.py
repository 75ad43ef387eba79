"""The drawings join what feeds what; tables carry their sums; lines go through the means of their seeds."""

from itertools import pairwise

import numpy as np
import pytest
import torch
from drawn import axes, boxed, cells, curves, grid, joined, labels, places, strokes, table, texts, written
from matplotlib.collections import PolyCollection
from proven import proven

from attncourse.viz.style import BLUE, GREY, INK, ORANGE
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
        (fed, "$s_t$"),
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
def test_a_table_carries_the_sums_of_its_rows_and_columns():
    weights = torch.tensor([[0.1, 0.9], [0.3, 0.7], [0.85, 0.15]])
    left, right = axes(figures.tables_with_sums, {"a": weights, "b": 2 * weights}, ["x", "y", "z"], ["s", "t"])
    assert (left.get_title(), right.get_title()) == ("a", "b")
    shown = {"x": {"s": 0.1, "t": 0.9}, "y": {"s": 0.3, "t": 0.7}, "z": {"s": 0.85, "t": 0.15}}
    assert table(left) == shown
    twice = {row: {column: 2 * share for column, share in line.items()} for row, line in shown.items()}
    assert table(right) == twice
    assert (left.get_xlabel(), left.get_ylabel()) == ("source (keys)", "target (queries)")
    for ax, factor in ((left, 1), (right, 2)):
        said = {(x, y): words for words, x, y in texts(ax)}
        assert [said[2.5, i + 0.5] for i in range(3)] == [f"{factor:.2f}"] * 3
        assert [said[j + 0.5, 3.5] for j in range(2)] == [f"{factor * total:.2f}" for total in (1.25, 1.75)]
        assert [said[j + 0.5, 0.5] for j in range(2)] == [f"{factor * share:.2f}" for share in (0.1, 0.9)]
        assert [[said[j + 0.5, i + 0.5] for j in range(2)] for i in (1, 2)] == [
            [f"{factor * share:.2f}" for share in row] for row in ((0.3, 0.7), (0.85, 0.15))
        ]
        assert said[2.5, -0.2] == said[-0.12, 3.5] == "sum" and ax.yaxis_inverted()
    bold = [text.get_text() for text in left.texts if text.get_fontweight() == "bold"]
    assert bold == ["1.00"] * 3, "those that are one"
    colours = {text.get_text(): text.get_color() for ax in (left, right) for text in ax.texts}
    assert colours["1.00"] == INK and colours["2.00"] == ORANGE, "a row that does not sum to one is an error"
    assert {colours[total] for total in ("1.25", "1.75", "2.50", "3.50")} == {GREY}, "a column need not"


@proven
def test_wide_tables_stand_below_each_other_and_what_the_mask_forbids_is_hatched():
    weights = torch.tensor([[0.2, 0.8, 0.0, 0.0, 0.0], [0.5, 0.5, 0.0, 0.0, 0.0]])
    mask = torch.tensor([[True, True, False, True, False]])
    tables = {"a": weights, "b": weights.flip(0)}
    above, below = axes(figures.tables_with_sums, tables, ["x", "y"], [*"stuvw"], mask)
    assert (above.get_title(), below.get_title()) == ("a", "b")
    first = dict(zip("stuvw", weights[0].tolist(), strict=True))
    assert table(above)["x"] == table(below)["y"] == pytest.approx(first)
    assert above.get_position().y0 > below.get_position().y1, "one above the other"
    for ax in (above, below):
        hatched = [patch.get_bbox().bounds for patch in ax.patches if patch.get_hatch()]
        assert hatched == [(2, 0, 1, 2), (4, 0, 1, 2)]
        rows = [(words, y) for words, x, y in texts(ax) if x == 5.5 and 0 < y < 2]
        assert rows == [("1.00", 0.5), ("1.00", 1.5)]
        columns = [words for words, x, y in texts(ax) if y == 2.5 and 0 < x < 5]
        assert columns == ["0.70", "1.30", "0.00", "0.00", "0.00"]


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
    assert points == {(10, 0): BLUE, (16.5, 0): ORANGE, (21.25, 1): ORANGE, (30, 2): GREY}
    assert texts(ax) == [
        ("10.00", 10, -0.22), ("16.50", 16.5, -0.22), ("+6.50", 13.25, -0.08), ("21.25", 21.25, 0.78),
        ("30.00", 30, 1.78),
        ("RNNencdec", 10, -0.62), ("RNNsearch", 16.5, -0.62),
    ]  # fmt: skip


@proven
def test_lists_right_are_a_line_through_the_means_and_a_band_from_the_worst_seed_to_the_best():
    one = [{"1": 1.0, "2": 0.5, "3": 0.0}, {"1": 0.8, "2": 0.3, "3": 0.1}]
    two = [{"1": 0.9, "2": 0.75, "3": 0.5}, {"1": 0.9, "2": 0.65, "3": 0.7}]
    panels = {"450 steps": {"a": one, "b": two}, "1,800 steps": {"a": two, "b": one}}
    left, right = axes(figures.right_by_length, panels)
    assert (left.get_title(), right.get_title()) == ("450 steps", "1,800 steps")
    a, b = {1: 0.9, 2: 0.4, 3: 0.05}, {1: 0.9, 2: 0.7, 3: 0.6}
    named = {"a": {str(n): share for n, share in b.items()}, "b": {str(n): share for n, share in a.items()}}
    assert curves(right) == named
    assert list(labels(left.xaxis).values()) == ["1", "2", "3"]
    lines = strokes(left)
    assert [lines[0], lines[2]] == [[*a.items()], [*b.items()]]
    for dotted, share in zip(left.lines[1::2], (0.4, 0.7), strict=True):
        assert dotted.get_linestyle() == ":" and [*dotted.get_xdata()] == [2, 3]
        assert [*dotted.get_ydata()] == pytest.approx([share, share**1.5])
    named_dotted = [text.get_text() for text in right.get_legend().get_texts()][-1]
    assert named_dotted == "if numbers went\nwrong independently" and left.get_legend() is None
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
    named = {words: y for words, _, y in texts(ax) if "(" in words}
    assert named == {"source (keys)": 2.2, "target (queries)": -0.2}
    assert len(figures.steps(weights, ["a", "b"], ["x", "y", "z"]).frames) == 3, "it moves as before"


@proven
def test_what_is_hidden_is_hatched_and_beside_it_stand_marks_for_what_is_still_right():
    found = {(0,): [0.9, 0.25], (1, 2): [0.5, 0.0]}
    left, right = axes(figures.hidden_positions, found, ["a", "b", "c"], ["one", "other"], 0.125)
    assert [patch.get_xy() for patch in left.patches if patch.get_hatch()] == [(0, 0), (1, 1), (2, 1)]
    assert texts(left) == [("b", 1.5, 0.5), ("c", 2.5, 0.5), ("a", 0.5, 1.5)]
    assert labels(left.yaxis) == {0.5: "without a", 1.5: "only a"}
    assert left.yaxis_inverted() and right.yaxis_inverted()
    marks = curves(right)
    assert {name: [*points] for name, points in marks.items()} == {"one": [0.9, 0.5], "other": [0.25, 0]}
    for points in marks.values():
        assert [*points.values()] == pytest.approx([0.5, 1.5], abs=0.2), "each in its row"
    assert marks["one"][0.9] != marks["other"][0.25], "neither covers the other"
    assert right.get_title() == "units predicted right"
    (dotted,) = [line for line in right.lines if line.get_linestyle() == ":"]
    assert list(dotted.get_xdata()) == [0.125, 0.125]
    assert [(words, x) for words, x, _ in texts(right)] == [("chance", 0.125)]


@proven
def test_a_bar_for_each_model_is_shared_out_over_the_positions_from_the_true_partner_on():
    counts = {"seed 0": [0, 1, 3], "seed 1": [0, 4, 0], "seed 2": [0, 0, 4]}
    (ax,) = axes(figures.largest_weights, counts, ["a", "b", "c"], "unit")
    assert [*labels(ax.yaxis).values()] == [*counts] and ax.yaxis_inverted()
    bars = [bar for bar in ax.patches if bar.get_width()]
    at = [(bar.get_y() + bar.get_height() / 2, bar.get_x()) for bar in bars]
    widths = dict(zip(at, (bar.get_width() for bar in bars), strict=True))
    assert widths == {(0, 0): 0.75, (0, 0.75): 0.25, (1, 0): 1, (2, 0): 1}
    colour = dict(zip(at, (bar.get_facecolor() for bar in bars), strict=True))
    assert colour[0, 0] == colour[2, 0] != colour[1, 0] == colour[0, 0.75], "a colour is a position"
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["c", "b"], "a was never the largest"
    assert "unit" in ax.get_xlabel()


@proven
def test_a_point_for_each_model_and_position_says_what_it_attends_to_and_what_it_gets_right_without():
    found = {"six": [(1.0, 0.25), (0.0, 0.75), (0.01, 0.99)], "and": [(0.0, 1.0), (0.6, 0.9), (0.3, 0.7)]}
    (ax,) = axes(figures.attended_and_needed, found, [3, 5, 8], 0.125)
    at = places(ax, "chance", "if weights told\nwhat is needed", "2 of 6 points lie in the corner")
    assert at["2 of 6 points lie in the corner"][0] < 0.1 < 0.9 < at["2 of 6 points lie in the corner"][1]
    assert at["chance"][1] < 0.125 < at["if weights told\nwhat is needed"][1]
    assert {name: [*points.items()] for name, points in curves(ax).items()} == found
    beside = {words: (x, y) for words, x, y in texts(ax) if words.isdigit()}
    assert beside == {"3": pytest.approx((0.98, 0.25)), "5": pytest.approx((0.58, 0.9))}, "those with most of them"
    colours = {text.get_text(): text.get_color() for text in ax.texts}
    six, and_ = [line for line in ax.lines if line.get_marker() != "None"]
    assert (colours["3"], colours["5"]) == (six.get_color(), and_.get_color()) and colours["3"] != colours["5"]
    (dotted,) = [line for line in ax.lines if line.get_linestyle() == ":"]
    assert [*zip(*dotted.get_data(), strict=True)] == [(0, 1), (1, 0.125)]
    (level,) = [line for line in ax.lines if line not in (six, and_, dotted)]
    assert [*level.get_ydata()] == [0.125, 0.125]
    assert ax.get_xlabel() == "units whose largest weight is on the position"
    assert ax.get_ylabel() == "units right while it is hidden"


@proven
def test_of_lists_of_five_every_seed_is_a_mark_open_after_few_steps_and_filled_after_many():
    few, many = [{"4": 0.9, "5": 0.1}, {"4": 0.8, "5": 0.2}], [{"4": 0.9, "5": 0.5}, {"4": 0.8, "5": 0.7}]
    best = [{"4": 1.0, "5": 0.9}, {"4": 1.0, "5": 0.8}]
    found = {"a": {"450": few, "1,800": many}, "b": {"450": many, "1,800": best}}
    (ax,) = axes(figures.lists_of_five, found, same=1)
    assert labels(ax.yaxis) == {0: "a", 1: "b"} and ax.yaxis_inverted()
    drawn = [(way, line.get_markerfacecolor()) for way, line in zip(strokes(ax), ax.lines, strict=True)
             if line.get_marker() == "o"]  # fmt: skip
    assert [[x for x, _ in way] for way, _ in drawn] == [[0.1, 0.2], [0.5, 0.7], [0.5, 0.7], [0.9, 0.8]]
    assert [way[0][1] for way, _ in drawn] == pytest.approx([-0.14, 0.14, 0.86, 1.14]), "the two stand apart"
    assert [face for _, face in drawn] == ["white", BLUE] * 2
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["450", "1,800"]
    assert ax.get_xlabel() == "lists of five exactly right"
    (parting,) = [line for line in ax.lines if line.get_color() == INK]
    assert list(parting.get_ydata()) == [0.5, 0.5], "between the two kinds"
    beside = {words: y for words, _, y in texts(ax)}
    assert beside == {"the same vector\nat every step": 0, "a new choice\nat every step": 1}


@proven
def test_of_the_variants_one_alone_has_an_arrow_back_from_every_state_of_the_decoder():
    panels = axes(figures.handed_over)
    assert [ax.get_title().replace("\n", " ") for ax in panels] == [
        "one query", "eight averages, one choice", "eight averages, one vector", "eight averages",
    ]  # fmt: skip
    states, eight, source = ["$s_1$", "$s_2$", "$s_3$"], [*"12345678"], "$h_1, …, h_n$"
    for ax, one in zip(panels, ("one average", "one average", "one vector", None), strict=True):
        between = [] if ax is panels[0] else eight
        assert boxed(ax) == [source, *between, *([one] if one else []), *states]
        ways = joined(ax)
        assert [way for way in ways if way[0] == source] == [(source, name) for name in between or [one]]
        if one:
            assert [way for way in ways if way[1] == one] == [(name, one) for name in between or [source]]
            assert ways[-3:] == [(one, state) for state in states], "the same for all"
        else:
            asked = [way for way in ways if way[0] in states]
            assert [state for state, _ in asked] == states and {name for _, name in asked} <= {*eight}
            assert [state for name, state in ways if name in eight] == states
    named = [{words for words, *_ in texts(ax)} & {"query $s_0$", "matrix"} for ax in panels]
    bracket = [[(0.3, 3.4), (0.3, 3.65), (5.7, 3.65), (5.7, 3.4)]]
    assert [strokes(ax) for ax in panels] == [[], [], [], bracket], "over all eight"
    assert named == [{"query $s_0$"}, {"query $s_0$"}, {"matrix"}, set()], "what makes one of the eight"


@proven
def test_gradients_are_a_mark_for_each_seed_and_a_line_through_their_means():
    gradients = {"a": {5: [1.0, 3.0], 10: [0.0005, 0.0003]}, "b": {5: [2.0, 4.0], 10: [1.0, 3.0]}}
    left, near = axes(figures.gradients_by_length, gradients)
    slow = [[(5, 3), (10, 2)], [(5, 2), (5, 4), (10, 1), (10, 3)]]
    fast = [[(5, 2), (10, 0.0004)], [(5, 1), (5, 3), (10, 0.0005), (10, 0.0003)]]
    assert strokes(left) == fast + slow
    assert strokes(near) == [*slow, [(5, 7.5), (10, 3.75)]], "those that fall slowly, and 1/n"
    assert left.get_yscale() == near.get_yscale() == near.get_xscale() == "log" and left.get_xscale() == "linear"
    assert [words for words, *_ in texts(left)] == ["a", "b"] and [words for words, *_ in texts(near)] == ["b", "∝ 1/n"]
    assert [*labels(near.xaxis).values()] == ["5", "10"] and left.get_legend() is None
    assert (left.get_title(), near.get_title()) == ("all three models", "two of them, both axes logarithmic")
