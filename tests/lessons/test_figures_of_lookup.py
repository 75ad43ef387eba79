"""Pictures of a lookup: keys where they are, weights as large as they are, answers as they were computed."""

import math

import pytest
import torch
from drawn import (
    arrows,
    axes,
    bars,
    boxed,
    cells,
    contours,
    curves,
    dots,
    grid,
    joined,
    labels,
    places,
    sizes,
    strokes,
    table,
    texts,
    written,
)
from matplotlib.colors import to_hex
from matplotlib.patches import FancyArrowPatch
from proven import proven

from attncourse import viz
from attncourse_lessons import course

figures = course.part("lookup", "figures")


@proven
def test_one_key_answers_a_hash_table_and_all_keys_a_soft_lookup():
    entries, weights = {5: 45, 8.5: 310, 12: 120, 23: 41}, torch.tensor([0.3, 0.5, 0.197, 0.003])
    scores = 0.5 * weights.log()
    (ax,) = axes(figures.two_lookups, entries, scores, 0.5, asked=7)
    keys, values, answer = ("5:00", "8:30", "12:00", "23:00"), ("45", "310", "120", "41"), "192"
    assert round(0.3 * 45 + 0.5 * 310 + 0.197 * 120 + 0.003 * 41) == 192
    ways = [way for key, value in zip(keys, values, strict=True) for way in (("7:00", key), (value, answer))]
    missing, *hits = joined(ax)                                           # the hash table is asked for its third key
    assert missing == ("7:00", "KeyError") and hits == [("12:00", "12:00"), ("120", "120"), *ways]
    rows = {words: y for words, x, y in texts(ax) if words in keys and x > 9}
    assert list(rows) == list(keys) and sorted(rows.values(), reverse=True) == list(rows.values())
    assert [(y, words) for words, x, y in texts(ax) if words.endswith("×")] == [
        (rows[key], words) for key, words in zip(keys, ("0.30 ×", "0.50 ×", "0.20 ×", "<0.01 ×"), strict=True)
    ]
    assert [words for words, x, y in texts(ax) if words.startswith("−")] == ["−0.60", "−0.35", "−0.81", "−2.90"]
    assert "weights = softmax(scores / 0.5)" in [words for words, x, y in texts(ax)]
    added = "answer = 0.30 × 45 + 0.50 × 310 + 0.20 × 120 + … ≈ 192"
    assert [words for words, x, y in texts(ax) if words.startswith("answer")] == ["answer", "answer", added]
    thick = [patch.get_linewidth() for patch in ax.patches if isinstance(patch, FancyArrowPatch)]
    assert thick[3::2] == thick[4::2] == pytest.approx(0.5 + 3 * weights)
    pairs = [word for pair in zip(keys, values, strict=True) for word in pair]
    assert boxed(ax) == ["12:00", *pairs, "7:00", *pairs, "7:00"]
    assert strokes(ax) == [[(4.15, rows[key]), (4.85, rows[key])] for key in keys]
    foot, found = min(y for words, x, y in texts(ax) if words == "7:00"), rows["12:00"]
    assert foot < min(rows.values()) - 1                                  # below all keys: it meets none
    hit = [((1.3, found), (2.8, found)), ((6.2, found), (7.0, found))]
    assert arrows(ax)[:3] == [((1.3, foot), (6.6, foot)), *hit]


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
    for said, hour in (("2:00\n−0.50", 2), ("8:00\n0.90", 8)):
        assert (at[said][0] / 1.33, at[said][1] / 1.25) == on_the_clock(hour)
    (circle,) = strokes(ax)
    assert all(math.hypot(x, y) == pytest.approx(1, abs=1e-5) for x, y in circle)
    assert circle[0] == (1, 0) and circle[25][1] > 0.5           # all the way round, from the right upwards


@proven
def test_a_lookup_in_matrices_has_a_factor_to_the_left_of_each_product_and_one_above_it():
    Q, K = torch.tensor([[1.0, 2.0, 0.5], [0.25, -1.0, 0.0]]), torch.tensor([[0.5, 0.25, -0.75], [1.0, -0.5, 0.125]])
    V = torch.tensor([[10.0], [30.0]])
    (ax,) = axes(figures.matrix_form, Q, K, V, 0.5, [7, 3], [2, 8])
    scores = Q @ K.mT
    weights = (2 * scores).softmax(dim=-1)
    at = {(x, y): words for words, x, y in texts(ax)}

    def block(left, low, rows, columns):
        return [[at[left + column + 0.5, low + rows - row - 0.5] for column in range(columns)] for row in range(rows)]

    def as_said(numbers, digits=2):
        return [[f"{x:.{digits}f}".replace("-", "−") for x in row] for row in numbers.tolist()]

    assert block(0, 0, 2, 3) == as_said(Q)                                   # Q, and above the scores K transposed
    assert block(3.6, 2.5, 3, 2) == as_said(K.mT) and block(3.6, 0, 2, 2) == as_said(scores)
    assert block(8, 0, 2, 2) == as_said(weights)
    assert block(12.6, 2.5, 2, 1) == [["10"], ["30"]] and block(12.6, 0, 2, 1) == as_said(weights @ V, 0)
    found = places(ax, "7:00", "3:00", "row by row", "softmax\n(scores / 0.5)")
    assert found["7:00"] == (-0.7, 1.5) and found["3:00"] == (-0.7, 0.5)
    assert found["softmax\n(scores / 0.5)"][1] > found["row by row"][1]
    assert arrows(ax) == [((5.8, 1), (7.8, 1))]
    assert [(at[10.8, y], at[11.85, y + 2.5]) for y in (0.5, 1.5)] == [("Σ = 1.00", "8:00"), ("Σ = 1.00", "2:00")]
    assert [at[x, y] for x, y in ((4.1, 5.85), (5.1, 5.85), (8.5, 2.35), (9.5, 2.35))] == ["2:00", "8:00"] * 2
    shapes = {(round(x, 2), round(y, 2)): words[words.rindex("("):] for (x, y), words in at.items() if "$" in words}
    assert shapes == {
        (1.5, -0.8): "(2, 3)", (4.6, -0.8): "(2, 2)", (9, -0.8): "(2, 2)", (13.1, -0.8): "(2, 1)",
        (4.6, 6.45): "(3, 2)", (13.1, 4.95): "(2, 1)",
    }  # fmt: skip
    assert "$Q$" in at[1.5, -0.8] and "K^" in at[4.6, 6.45] and "$V$" in at[13.1, 4.95]
    names = (at[4.6, -0.8], at[9, -0.8], at[13.1, -0.8])
    assert [words.split()[0] for words in names] == ["scores", "weights", "answers"]
    drawn = cells(ax)
    assert len(drawn) == 6 + 6 + 4 + 4 + 2 + 2
    dark = [drawn[8 + column, 1 - row, 1, 1][0] for row in range(2) for column in range(2)]
    assert dark == [to_hex(viz.style.WEIGHTS(0.85 * float(weight))) for weight in weights.flatten()]
    tints = [drawn[corner][0] for corner in ((0, 0, 1, 1), (3.6, 2.5, 1, 1), (3.6, 0, 1, 1), (12.6, 2.5, 1, 1))]
    assert len(set(tints)) == 4 and drawn[12.6, 0, 1, 1][0] == tints[3]


@proven
def test_the_gradient_of_a_lookup_is_a_block_for_each_key_as_wide_as_its_weight():
    values, weights = torch.tensor([10.0, 50.0, 30.0]), torch.tensor([0.5, 0.375, 0.125])
    c = 27.5
    (ax,) = axes(figures.pulls, [2, 8, 17], values, weights, weights * (values - c))
    blocks = [(each.get_x(), each.get_y(), each.get_width(), each.get_height()) for each in ax.patches]
    assert blocks == [(0, 10, 0.5, 17.5), (0.5, c, 0.375, 22.5), (0.875, c, 0.125, 2.5)]
    edges = [to_hex(each.get_edgecolor()) for each in ax.patches]
    for colours in ([colour for colour, _ in cells(ax).values()], edges):
        assert colours[0] != colours[1] == colours[2]
    assert texts(ax) == [
        ("2:00\n−9", 0.25, 18.75), ("8:00\n+8", 0.6875, 38.75), ("17:00\n+0", 0.9375, 35), ("answer c = 28", 1.01, c)
    ]  # fmt: skip                                             # inside, where there is room
    assert strokes(ax) == [[(0, c), (1, c)]] and ax.get_xlim() == (0, 1)
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("attention weights α, side by side", "value v (bicycles)")


@proven
def test_a_frame_of_a_lookup_has_a_bar_a_key_and_the_answers_over_the_day():
    xs = torch.tensor([0.0, 6, 12, 24])
    left, right = axes(
        figures.lookup_frame, [2, 8], torch.tensor([10.0, 50.0]), torch.tensor([0.25, 0.75]), 7, xs, xs**2 + 1, "",
        50 - xs,
    )
    assert bars(left) == {"": {"2": 0.25, "8": 0.75}}
    assert texts(left) == [("0.25", 0, 0.27), ("0.75", 1, 0.77)]
    before = [(0, 50), (6, 44), (12, 38), (24, 26)]
    assert strokes(right) == [before, [(0, 1), (6, 37), (12, 145), (24, 577)], [(7, 0), (7, 1)]]
    assert dots(right) == [(2, 10), (8, 50), (7, 37)] and texts(right) == [("37", 7, 37)]
    assert left.get_ylabel() == "weight, asked at 7:00"


@pytest.mark.parametrize(("hour", "said"), [(7, "7:00"), (8.5, "8:30"), (10.099, "10:06"), (23.999, "0:00")])
def test_an_hour_is_written_as_a_clock_shows_it(hour, said):
    assert figures.clock_time(hour) == said


@proven
def test_functions_are_drawn_as_they_are_over_their_points():
    xs = torch.tensor([1.0, 10, 100])
    (ax,) = axes(
        viz.function_curves, {"square": xs**2, "line": 3 - xs}, xs, points=(xs[:2], xs[1:] + 1), log_x=True, x_name="x"
    )
    assert curves(ax) == {"square": {1: 1, 10: 100, 100: 10000}, "line": {1: 2, 10: -7, 100: -97}}
    assert all(line.get_marker() in ("", "None") for line in ax.lines), "only what was measured is a point"
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
    assert written(ax) == {"q": {"a": "0.88"}, "r": {"a": "0.20", "b": "0.30", "c": "0.50"}}
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("keys", "queries")


@proven
def test_a_topic_is_a_frame_around_its_queries_and_its_keys():
    weights = torch.tensor([[0.9, 0.1, 0, 0], [0.2, 0.8, 0, 0], [0, 0.7, 0.3, 0], [0, 0, 0.6, 0.4]])
    (ax,) = axes(figures.lookup_table, weights, "qrst", "abcd", topics=["one", "two"])
    assert table(ax)["r"] == {"a": 0.2, "b": 0.8, "c": 0, "d": 0}
    assert written(ax) == {
        "q": {"a": "0.90", "b": "0.10"}, "r": {"a": "0.20", "b": "0.80"},
        "s": {"b": "0.70", "c": "0.30"}, "t": {"c": "0.60", "d": "0.40"},
    }  # fmt: skip
    (plain,) = axes(figures.lookup_table, weights, "qrst", "abcd")
    frames = [(*frame.get_xy(), frame.get_width(), frame.get_height()) for frame in ax.patches]
    assert frames == [(0, 0, 2, 2), (2, 2, 2, 2)]
    beside = [("one", 4.6, 1), ("two", 4.6, 3), ("✗", 4.3, 2.5)]          # the third query's largest weight is astray
    assert texts(ax) == [*texts(plain), *beside]
    assert not plain.patches and table(plain) == table(ax) and written(plain) == written(ax)


@proven
def test_a_score_landscape_has_each_height_where_a_key_would_get_that_score():
    query, keys = torch.tensor([1.0, 0.5]), torch.tensor([[1.0, 0.0], [2.0, -1.0], [0.0, 1.5]])
    steep = {"gentle": 0.5, "as it is": 1.0, "backwards": -1.0, "steep": 1.5}
    scores = {name: lambda q, k, by=by: by * (q @ k.mT) for name, by in steep.items()}
    *panels, key = axes(figures.score_landscapes, scores, query, keys, ["A", "B", "C"])
    shades = [row[0] for row in grid(key)]
    assert key.get_ylabel() == "score of a key at this place" and shades == sorted(shades, reverse=True)
    assert shades[0] == -shades[-1] == 3.25
    for plane, (name, by) in zip(panels, steep.items(), strict=True):
        for low, high, outline in contours(plane):
            assert all(low - 1e-4 <= by * (x + 0.5 * y) <= high + 1e-4 for x, y in outline)
        assert {low for low, high, _ in contours(plane) if low == high and abs(low) < 1.3} == {-1, 0, 1}
        assert dots(plane) == [(1, 0), (2, -1), (0, 1.5)]
        weights = (by * keys @ query).softmax(dim=0).tolist()
        assert sizes(plane) == pytest.approx([20 + 300 * weight for weight in weights], rel=1e-5)
        said = zip("ABC", weights, dots(plane), strict=True)
        assert texts(plane) == [(f"{label} {weight:.2f}", *place) for label, weight, place in said]
        assert arrows(plane) == [((0, 0), (1, 0.5))]
        best = max(zip(weights, "ABC", strict=True))[1]
        assert plane.get_title() == f"{name}: {best} gets most"
    whole = panels[0].figure
    assert (whole.get_supxlabel(), whole.get_supylabel()) == ("key, first number", "key, second number")


def test_the_hill_is_an_additive_score_and_prefers_what_is_near():
    query = torch.tensor([[1.0, 0.0], [-0.5, 0.5]])
    near, far = query + torch.tensor([0.1, 0.1]), query * 2 + torch.tensor([0.0, 0.3])
    assert (figures.hill(query, near).diagonal() > figures.hill(query, far).diagonal()).all()
    assert figures.hill(query, torch.randn(5, 2)).shape == (2, 5)
    here = figures.hill(query, query).diagonal()
    for way in ([1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [0.0, -1.0]):
        assert (figures.hill(query, query + torch.tensor(way)).diagonal() < here - 0.5).all()


@proven
def test_learned_keys_stand_where_they_are_each_with_its_hour_and_joined_in_their_order():
    vectors = torch.tensor([[2.0, 0.5], [0.0, 3.0], [-1.0, -2.0], [1.0, -1.0]])
    (ax,) = axes(figures.learned_keys, vectors, "after 7 steps")
    assert dots(ax) == [(2, 0.5), (0, 3), (-1, -2), (1, -1)]
    assert texts(ax) == [(f"{hour}", *place) for hour, place in enumerate(dots(ax))]
    assert strokes(ax) == [[*dots(ax), (2, 0.5)]]
    colours = [to_hex(colour) for colour in ax.collections[0].get_facecolors()]
    assert colours == [to_hex(figures.AROUND(hour / 4)) for hour in range(4)] and len(set(colours)) == 4
    assert ax.get_title() == "after 7 steps" and ax.get_xlim() == ax.get_ylim() == (-3.5, 3.5)
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("first number of the vector", "second number of the vector")


def test_of_crowded_keys_two_neighbours_alone_have_their_hours():
    (ax,) = axes(figures.learned_keys, 0.1 * torch.randn(24, 2), "after 0 steps")
    assert len(dots(ax)) == 24 and [words for words, x, y in texts(ax)] == ["7", "8"]
    vectors = torch.zeros(24, 2)
    vectors[7, 0], vectors[8, 1] = 0.5, -0.25
    (ax,) = axes(figures.learned_keys, vectors, "after 0 steps")
    assert texts(ax) == [("7", 0.5, 0), ("8", 0, -0.25)]
    assert [tuple(round(x, 3) for x in each.xyann) for each in ax.texts] == [(1.3, 0), (0, -1.3)]


@pytest.mark.parametrize("times", [1, -1, 2])
def test_turns_are_counted_on_the_way_from_each_vector_to_the_next(times):
    angle = times * 2 * math.pi * torch.arange(24) / 24 + 0.3
    vectors = torch.stack([angle.cos(), angle.sin()], dim=-1) * torch.linspace(1, 2, 24)[:, None]
    assert figures.turns(vectors) == pytest.approx(times, abs=1e-4)
    assert f"{times:+.1f} turns".replace("-", "−") in figures.learned_keys(vectors)[1]


@proven
def test_an_error_has_its_slope_at_one_hour_and_is_zero_where_the_answer_is_right():
    hours = torch.tensor([0.0, 6, 8, 10, 24])
    answers = {"soft": torch.tensor([100.0, 300, 350, 50, 50]), "hard": torch.tensor([0.0, 300, 300, 300, 100])}
    top, ax = axes(figures.error_curves, answers, 200, hours, at=8)
    line = [*zip(hours.tolist(), answers["soft"].tolist(), strict=True)]
    gap = (None, None)                                                   # a staircase, without what joins its steps
    stairs = [(0, 0), gap, (6, 300), (8, 300), (10, 300), gap, (24, 100)]
    assert strokes(top) == [[(0, 200), (1, 200)], line, stairs, [(8, 0), (8, 1)]]
    soft, tangent, point, hard, flat, other, level = strokes(ax)
    assert level == [(8, 0), (8, 1)]
    assert soft == [*zip(hours.tolist(), [1, 1, 2.25, 2.25, 2.25], strict=True)]
    assert hard == [(0, 4), gap, (6, 1), (8, 1), (10, 1), (24, 1)]
    assert tangent == [(pytest.approx(6.8), pytest.approx(1.875)), (pytest.approx(9.2), pytest.approx(2.625))]
    assert flat == [(pytest.approx(6.8), 1), (pytest.approx(9.2), 1)]
    assert [point, other] == [[(8, 2.25)], [(8, 1)]]
    assert texts(ax) == [("soft: slope 0.31", 8, 2.25), ("hard: slope 0.00", 8, 1)]
    crossed = [3, 9]
    assert [x for x, y in dots(top)] == [x for x, y in dots(ax)] == crossed
    assert texts(top) == [("200", 0, 200), ("soft", 3, 200), ("hard", 10, 300)]
    assert {y for x, y in dots(top)} == {200} and {y for x, y in dots(ax)} == {0}
    colours = [[line.get_color() for line in each.lines if len(line.get_xdata()) > 4] for each in (top, ax)]
    assert colours[0] == colours[1] == [viz.style.ORANGE, viz.style.BLUE]
    assert labels(ax.xaxis) == labels(top.xaxis) == {hour: f"{hour}" for hour in range(0, 25, 3)}
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("hour asked for", "squared error / 100²")
    assert top.get_ylabel() == "answer (bicycles)" and ax.get_ylim()[0] == pytest.approx(-0.1)


@proven
def test_counts_have_a_panel_for_each_curve_through_them():
    hours, counted, xs = torch.tensor([1.0, 5, 9]), torch.tensor([10.0, 50, 20]), torch.tensor([0.0, 12, 24])
    curves_ = {0.001: torch.tensor([0.0, 30, 5]), 1.0: torch.tensor([20.0, 25, 22])}
    truth = torch.tensor([15.0, 40, 10])
    panels = axes(figures.smoothings, curves_, {0.001: 8.25, 1.0: 12.5}, xs, hours, counted, truth)
    for ax, curve, title in zip(panels, curves_.values(), ("T = 0.001: RMSE 8", "T = 1: RMSE 12"), strict=True):
        assert dots(ax) == [(1, 10), (5, 50), (9, 20)] and ax.get_title() == title
        assert strokes(ax) == [[*zip(xs.tolist(), line.tolist(), strict=True)] for line in (truth, curve)]
        assert labels(ax.xaxis) == {hour: f"{hour}" for hour in range(0, 25, 6)}
        assert ax.get_xlabel() == "hour of the day" and ax.get_ylim() == (-10, 52.5)
    assert not texts(panels[0]) and [words for words, x, y in texts(panels[1])] == ["true curve", "soft\nlookup"]
    assert panels[0].get_ylabel() == "bicycles in an hour"


@proven
def test_every_run_is_a_mark_and_a_line_joins_the_medians():
    runs = {"dot": {8: [1.0, 2.0, 4.5], 32: [3.0, 4.0, 3.5]}, "scaled": {8: [0.5, 1.0, 0.75], 32: [0.25, 0.5, 1.5]}}
    (ax,) = axes(figures.losses_by_width, runs, 2.25, ("dot", 8, "one of three"))
    level_line, *lines = strokes(ax)
    assert level_line == [(0, 2.25), (1, 2.25)]
    for medians, marks, aside, points in zip(lines[::2], lines[1::2], (0.96, 1.04), runs.values(), strict=True):
        assert medians == [(pytest.approx(aside * x), sorted(ys)[1]) for x, ys in points.items()]
        assert marks == [(pytest.approx(aside * x), y) for x, ys in points.items() for y in ys]
    assert texts(ax) == [
        ("equal weights: nothing learned", 8, 2.25), ("dot", pytest.approx(38.4), 3.5),
        ("one of three", pytest.approx(7.68), 4.5), ("scaled", pytest.approx(38.4), 0.5),
    ]  # fmt: skip
    assert labels(ax.xaxis) == {8: "8", 32: "32"} and ax.get_xscale() == "log" and ax.get_ylim()[0] == 0


@proven
def test_spread_and_entropy_stand_side_by_side_against_the_width():
    spread = {"plain": {4: [1.5, 2.0, 3.0], 16: [4.0, 4.5, 5.5]}, "scaled": {4: [1.0, 1.25, 1.5], 16: [0.75, 1.0, 2.0]}}
    entropy = {
        "plain": {4: [1.0, 1.5, 2.5], 16: [0.25, 0.5, 0.75]}, "scaled": {4: [2.0, 2.5, 3.0], 16: [1.5, 2.5, 2.75]},
    }  # fmt: skip
    panels = axes(figures.scores_by_width, spread, entropy, n_keys=20)
    for ax, runs in zip(panels, (spread, entropy), strict=True):
        drawn = []
        for points in runs.values():
            drawn += [[(x, sum(ys) / 3) for x, ys in points.items()], [(x, y) for x, ys in points.items() for y in ys]]
        most = pytest.approx(math.log(20), abs=1e-4)
        found = strokes(ax)
        assert len(found) == len(drawn) + (runs is entropy)
        for got, expected in zip(found, drawn, strict=False):
            assert got == [pytest.approx(point, abs=1e-4) for point in expected]
        names = [(name, 16, pytest.approx(sum(points[16]) / 3)) for name, points in runs.items()]
        if runs is entropy:
            assert found[-1] == [(0, most), (1, most)]
            names.append(("equal weights: ln 20", 4, most))
        assert texts(ax) == names
        assert labels(ax.xaxis) == {4: "4", 16: "16"} and ax.get_xscale() == "log"
    assert panels[0].get_yscale() == "log" and panels[1].get_ylim()[0] == 0
    assert panels[0].get_ylabel() == "standard deviation of the scores"
    assert panels[1].get_ylabel() == "entropy of the weights (nats)"


@proven
def test_worlds_are_a_table_with_each_seed_in_numbers_and_darker_for_a_higher_median():
    runs = {"one": {"dot": [0.9, 0.95, 0.5], "additive": [0.2, 0.4, 0.3]},
            "two": {"dot": [0.1, 0.3, 0.2], "additive": [0.7, 0.8, 1.0]}}  # fmt: skip
    (ax,) = axes(figures.worlds, runs, chance=0.125)
    assert table(ax) == {"one": {"dot": 0.9, "additive": 0.3}, "two": {"dot": 0.2, "additive": 0.8}}
    assert written(ax) == {
        "one": {"dot": "0.90   0.95   0.50", "additive": "0.20   0.40   0.30"},
        "two": {"dot": "0.10   0.30   0.20", "additive": "0.70   0.80   1.00"},
    }
    assert list(table(ax)) == ["one", "two"] and ax.yaxis_inverted()
    assert ax.get_xlabel() == "accuracy of three seeds; guessing gives 0.125"
