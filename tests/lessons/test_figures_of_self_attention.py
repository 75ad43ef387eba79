"""Figures of self-attention draw what they were given, and say in words what they show."""

import math

import pytest
import torch
from drawn import arrows, axes, bars, cells, grid, labels, strokes, table, texts, written
from matplotlib.colors import to_hex, to_rgba
from matplotlib.patches import Circle, Rectangle
from proven import proven

from attncourse import viz
from attncourse.viz.style import BLUE, GREEN, INK, ORANGE, PAGE, PURPLE
from attncourse_lessons import course

figures = course.part("self_attention", "figures")

WORDS = ["Anna", "lent", "her"]
TABLE = torch.tensor([[0.2, 0.5, 0.3], [0.4, 0.3, 0.3], [0.9, 0.0, 0.1]])


def test_one_question_says_who_asks_what_is_shared_out_and_what_comes_back():
    scores, received = torch.tensor([2.0, -1.0, 0.0]), torch.tensor([0.9, 0.1])
    figure, words = figures.one_query(WORDS, 2, scores, TABLE[2], received, "ab")
    assert len(figure.axes) == 3
    assert words == "“her” asks. Its weights: Anna 0.90, lent 0.00, her 0.10. It receives: a 0.90, b 0.10."


def test_what_one_token_finds_is_its_row_of_the_whole():
    x = torch.tensor([[1.0, 0.0], [0.0, 2.0], [1.0, 1.0]])
    W_Q, W_K, W_V = torch.tensor([[1.0, 2.0], [0.0, 1.0]]), torch.tensor([[0.0, 1.0], [3.0, 1.0]]), torch.eye(2)
    scores, weights, received = figures.one_token(x, 2, W_Q, W_K, W_V)
    torch.testing.assert_close(scores, torch.tensor([3.0, 12.0, 9.0]) / math.sqrt(2))
    torch.testing.assert_close(weights, scores.exp() / scores.exp().sum())
    torch.testing.assert_close(received, weights @ x)


@pytest.mark.parametrize("numbers", [True, False])
def test_tables_say_for_each_row_where_most_of_it_goes(shown, numbers):
    viz.weight_tables({"one": (WORDS, TABLE), "other": (WORDS[::-1], TABLE)}, numbers=numbers)
    assert "one. Rows are queries, columns keys. Anna: most at lent (0.50); lent: most at Anna" in shown[0]
    assert "her: most at lent (0.50)" in shown[0]


def test_a_table_that_does_not_fit_its_words_is_refused():
    with pytest.raises(ValueError, match=r"weights: got shape \(3, 3\), expected \(2, 2\)"):
        viz.weight_tables({"one": (WORDS[:2], TABLE)})


def test_the_shapes_are_those_that_were_given(shown):
    figures.self_attention_shapes(n=8, d_model=6, d_k=2, d_v=4, asking=3, names=("her", "Anna"))
    assert "The row of “her”, which asks, is striped from X" in shown[0]
    assert "W_V, 6 by 4, gives V, 8 by 4" in shown[0] and "the 8 by 8 matrix of scores" in shown[0]


@pytest.mark.parametrize(("n", "width", "layers"), [(9, 2, 4), (10, 2, 5), (4, 3, 1), (1, 2, 1)])
def test_windows_need_as_many_layers_as_the_way_is_long(shown, n, width, layers):
    figures.path_lengths(n, width)
    assert f"Restricted, {width} on each side: {layers} layers" in shown[0]


def test_the_weight_where_asking_and_answering_meet_is_said_if_it_is_known(shown):
    figures.self_attention_shapes(n=8, d_model=6, d_k=2, d_v=4, asking=3, names=("her", "Anna"), weight=0.909)
    assert shown[0].endswith("A ring is where both meet, with a weight of 0.91.")


# What is drawn


@proven
def test_the_word_that_asks_gets_its_scores_its_weights_and_the_average_of_the_values():
    numbers, output = torch.tensor([2.0, -1.0, 0.5]), torch.tensor([0.75, 0.125])
    scores, weights, received = axes(figures.one_query, WORDS, 2, numbers, TABLE[2], output, ["a", "b"])
    assert [ax.get_title() for ax in (scores, weights, received)] == ["scores", "weights", "“her” receives"]
    assert bars(scores) == {"": {"Anna": 2, "lent": -1, "her": 0.5}}
    assert bars(weights) == {"": {0: 0.9, 1: 0, 2: 0.1}}                 # the same rows, with the words at the left
    assert labels(scores.yaxis) == {0: "Anna", 1: "lent", 2: "her"}
    assert scores.get_ylim() == weights.get_ylim() and scores.yaxis_inverted()
    assert [(words, y) for words, _, y in texts(scores)] == [("2.00", 0), ("−1.00", 1), ("0.50", 2)]
    assert [x for _, x, _ in texts(scores)] == pytest.approx([2.0648, 0.0648, 0.5648]), "beside the bars"
    assert [ax.get_xlabel() for ax in (scores, weights, received)] == ["$e$", r"$\alpha$, sum 1", "$o$"]
    assert texts(weights) == [("0.90", 0.93, 0), ("0.00", 0.03, 1), ("0.10", 0.13, 2)]
    assert bars(received) == {"": {"a": 0.75, "b": 0.125}} and received.yaxis_inverted()
    assert texts(received) == [("0.75", 0.78, 0), ("0.12", 0.155, 1)]
    for ax in (scores, weights):                                         # one colour of its own
        colours = [bar.get_facecolor() for bar in ax.containers[0]]
        assert colours[0] == colours[1] != colours[2]


@proven
def test_each_table_of_weights_has_a_row_for_each_of_its_own_words():
    one, other = axes(viz.weight_tables, {"one": (WORDS, TABLE), "other": (WORDS[:2], TABLE[1:, :2])}, numbers=True)
    assert (one.get_title(), other.get_title()) == ("one", "other")
    assert table(one) == {
        "Anna": {"Anna": 0.2, "lent": 0.5, "her": 0.3},
        "lent": {"Anna": 0.4, "lent": 0.3, "her": 0.3},
        "her": {"Anna": 0.9, "lent": 0, "her": 0.1},
    }
    assert grid(one)[2] == [0.9, 0, 0.1] and written(one)["lent"] == {"Anna": "0.4", "lent": "0.3", "her": "0.3"}
    assert table(other) == {"Anna": {"Anna": 0.4, "lent": 0.3}, "lent": {"Anna": 0.9, "lent": 0}}
    assert written(other) == {"Anna": {"Anna": "0.4", "lent": "0.3"}, "lent": {"Anna": "0.9", "lent": "0.0"}}
    assert [(ax.get_xlabel(), ax.get_ylabel()) for ax in (one, other)] == [("key", "query"), ("key", "")]


def test_tables_that_are_wider_than_a_page_begin_another_row():
    tables = {name: (WORDS, TABLE) for name in "abcde"}
    wide = axes(viz.weight_tables, tables, numbers=True)
    assert [ax.get_ylabel() for ax in wide[:5]] == ["query", "", "", "query", ""] and not wide[5].axison
    assert wide[0].figure.get_size_inches()[0] <= PAGE


@proven
def test_matrices_are_rectangles_of_their_rows_and_columns_on_the_way_from_x_to_the_output():
    n, d_model, d_k, d_v = 8, 6, 2, 4
    (ax,) = axes(figures.self_attention_shapes, n, d_model, d_k, d_v, 3, 0)
    said = {words: (x, y) for words, x, y in texts(ax)}
    found, at, colours = {}, {}, {}
    for (left, low, width, height), (colour, _) in cells(ax).items():
        above = (left + width / 2, low + height + 0.13)
        name = min(said, key=lambda words, above=above: math.dist(said[words], above))
        found[name] = round(height / 0.11), round(width / 0.11)
        at[name], colours[name] = (left + width / 2, low + height / 2), colour
        rows, columns = found[name]
        assert any(words.startswith(f"{rows} × {columns}") and (x, y) == pytest.approx((at[name][0], low - 0.13))
                   for words, (x, y) in ((words, (x, y)) for words, x, y in texts(ax)))  # fmt: skip
    scores, weights = r"scores  $QK^\top / \sqrt{d_k}$", r"weights  $A$"
    low = {name: y - 0.055 * found[name][0] for name, (_, y) in at.items()}
    symbols = {name: words for words, x, y in texts(ax) for name in at if abs(x - at[name][0]) < 1e-6 and
               y == pytest.approx(low[name] - 0.31)}  # fmt: skip
    to_k, to_v, square = r"$d_{model} \times d_k$", r"$d_{model} \times d_v$", r"$n \times n$"
    assert symbols == {
        "$X$": r"$n \times d_{model}$", "$W_Q$": to_k, "$W_K$": to_k, "$W_V$": to_v,
        "queries  $Q = XW_Q$": r"$n \times d_k$",
        "keys  $K = XW_K$": r"$n \times d_k$", "values  $V = XW_V$": r"$n \times d_v$",
        r"$K^\top$": r"$d_k \times n$", scores: square,
        weights: f"{square}, rows sum to 1", "$O = AV$": r"$n \times d_v$",
    }  # fmt: skip
    assert found == {
        "$X$": (n, d_model), "$W_Q$": (d_model, d_k), "$W_K$": (d_model, d_k), "$W_V$": (d_model, d_v),
        "queries  $Q = XW_Q$": (n, d_k), "keys  $K = XW_K$": (n, d_k), "values  $V = XW_V$": (n, d_v),
        r"$K^\top$": (d_k, n), scores: (n, n), weights: (n, n), "$O = AV$": (n, d_v),
    }  # fmt: skip

    def away(x, y, name):
        rows, columns = found[name]
        return max(0, abs(at[name][0] - x) - 0.055 * columns) + max(0, abs(at[name][1] - y) - 0.055 * rows)

    def nearest(x, y):
        return min(at, key=lambda name: away(x, y, name))

    assert [(nearest(*start), nearest(*end)) for start, end in arrows(ax)] == [
        ("$X$", "$W_Q$"), ("$W_Q$", "queries  $Q = XW_Q$"), ("$X$", "$W_K$"), ("$W_K$", "keys  $K = XW_K$"),
        ("$X$", "$W_V$"), ("$W_V$", "values  $V = XW_V$"),
        ("queries  $Q = XW_Q$", scores), ("keys  $K = XW_K$", r"$K^\top$"), (r"$K^\top$", scores), (scores, scores),
        (scores, weights), (weights, "$O = AV$"), ("values  $V = XW_V$", "$O = AV$"), ("$O = AV$", "$O = AV$"),
    ]  # fmt: skip
    roles = {"Q": "queries", "K": "keys", "V": "values"}
    assert all(colours[f"$W_{each}$"] == colours[f"{role}  ${each} = XW_{each}$"] for each, role in roles.items())
    products = [(nearest(x, y), x < at[nearest(x, y)][0]) for words, x, y in texts(ax) if words == "×"]
    assert products == [("$W_Q$", True), ("$W_K$", True), ("$W_V$", True), (scores, True), ("$O = AV$", True)], (
        "where X meets a matrix, and where two arrows meet, on the left of what they make"
    )
    assert len({colours["$W_Q$"], colours["$W_K$"], colours["$W_V$"]}) == 3
    of_roles = [to_hex(colour) for colour in (GREEN, BLUE, ORANGE)]
    boxes = [box for box in ax.patches if isinstance(box, Rectangle)][1:7:2]
    assert [to_hex(box.get_edgecolor()) for box in boxes] == of_roles
    assert [to_hex(box.get_facecolor()) for box in boxes] == of_roles, "the same, paler"
    assert not {PURPLE, INK} & {GREEN, BLUE, ORANGE}, "a word's colour is nobody's role"

    def stripes(colour):
        """The matrices in which there is a stripe, and the row or column in which it lies."""
        for line in ax.lines:
            (x, x_end), (y, y_end) = line.get_data()
            assert x < x_end or y < y_end
            if line.get_color() == colour:
                name = nearest((x + x_end) / 2, (y + y_end) / 2)
                left, top = at[name][0] - found[name][1] * 0.055, at[name][1] + found[name][0] * 0.055
                yield name, round((top - y) / 0.11 - 0.5) if y == y_end else f"column {round((x - left) / 0.11 - 0.5)}"

    rings = [ring.center for ring in ax.patches if isinstance(ring, Circle)]
    for (x, y), name in zip(rings, (scores, weights), strict=True):
        left, top = at[name][0] - 0.055 * n, at[name][1] + 0.055 * n
        assert (x - left, top - y) == pytest.approx((0.5 * 0.11, 3.5 * 0.11)), "column 0 and row 3 meet"
    assert list(stripes(PURPLE)) == [("$X$", 3), ("queries  $Q = XW_Q$", 3), (scores, 3), (weights, 3), ("$O = AV$", 3)]
    assert list(stripes(INK)) == [
        ("$X$", 0), ("keys  $K = XW_K$", 0), ("values  $V = XW_V$", 0), (r"$K^\top$", "column 0"),
        (scores, "column 0"), (weights, "column 0"),
    ]  # fmt: skip


@proven
def test_padding_has_forbidden_columns_and_ignored_rows():
    (ax,) = axes(figures.padded_scores, ["Anna", "lent"], padding=1)
    for axis in (ax.xaxis, ax.yaxis):
        assert labels(axis) == {0.5: "Anna", 1.5: "lent", 2.5: "pad"}
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("keys: who answers", "queries: who asks") and ax.yaxis_inverted()
    seen = cells(ax)
    assert {place[:2] for place, (_, hatch) in seen.items() if hatch} == {(2, 0), (2, 1), (2, 2)}
    colours = [[seen[j, i, 1, 1][0] for j in range(3)] for i in range(3)]
    assert colours[0] == colours[1] and colours[2][0] == colours[2][1] not in colours[0]
    said = {(x, y): words for words, x, y in texts(ax)}
    assert [[said[j + 0.5, i + 0.5] for j in range(3)] for i in range(3)] == [
        ["$e_{11}$", "$e_{12}$", "−∞"], ["$e_{21}$", "$e_{22}$", "−∞"], ["$e_{31}$", "$e_{32}$", "−∞"],
    ]  # fmt: skip
    assert said[-0.75, 2.5] == "ignored" and said[2.5, 3.35] == "forbidden"


def test_monday_comes_first_and_every_card_keeps_what_is_on_it():
    days, meals = torch.tensor([[2, 0, 1], [1, 2, 0]]), torch.tensor([[30, 10, 20], [5, 6, 4]])
    sorted_days, sorted_meals = figures.monday_first([days, meals])
    assert sorted_days.tolist() == [[0, 1, 2]] * 2 and sorted_meals.tolist() == [[10, 20, 30], [4, 5, 6]]


@proven
def test_the_row_of_the_lost_day_is_framed_and_a_ring_is_where_it_should_find_the_next():
    days, right = ["Mon", "Tue", "Wed"], torch.tensor([[0.0, 1, 0], [0, 0, 1], [1, 0, 0]])
    lost = torch.tensor([[0.006, 0.9, 0.094], [0.25, 0.744, 0.006], [1, 0, 0]])
    one, two = axes(figures.lost_day, {"one": (days, lost), "two": (days, right)}, "Tue", "Wed")
    assert (one.get_title(), two.get_title()) == ("one", "two")
    for ax, weights in ((one, lost), (two, right)):
        rows = zip(days, weights.tolist(), strict=True)
        assert table(ax) == {day: pytest.approx(dict(zip(days, row, strict=True)), abs=1e-5) for day, row in rows}
    assert texts(one) == [
        ("0.90", 1.5, 0.5), ("0.09", 2.5, 0.5), ("0.25", 0.5, 1.5), ("0.74", 1.5, 1.5), ("1.00", 0.5, 2.5),
    ]  # fmt: skip
    assert [words for words, *_ in texts(two)] == ["1.00"] * 3
    frame, ring = one.patches
    assert isinstance(frame, Rectangle) and (frame.get_xy(), frame.get_width(), frame.get_height()) == ((0, 1), 3, 1)
    assert isinstance(ring, Circle) and ring.center == (2.5, 1.5) and not two.patches
    marked = [label.get_text() for label in one.get_yticklabels() if label.get_fontweight() == "bold"]
    assert marked == ["Tue"] and {to_hex(each.get_edgecolor()) for each in (frame, ring)} == {to_hex(ORANGE)}
    assert [(ax.get_xlabel(), ax.get_ylabel()) for ax in (one, two)] == [("key", "query"), ("key", "")]


def test_the_lost_day_says_in_words_where_each_day_looks(shown):
    figures.lost_day({"one": (WORDS, TABLE), "two": (WORDS, TABLE)}, "Anna", "her")
    assert "one: Anna most at lent, lent most at Anna, her most at Anna." in shown[0]
    assert "Anna, framed, should attend to her; a ring is around that cell." in shown[0]


@proven
def test_vectors_wind_outwards_by_their_angles_and_an_arc_shows_the_step_that_is_missing():
    vectors = torch.tensor([[0.0, 1, 0], [0, 2, 2], [0, 0, 3]])          # 45 degrees from one to the next
    other = torch.tensor([[0.0, 0, 2], [0, 1, 2], [4, 0, 0]])
    runs = {"seed 0": (["Mon", "Tue", "Wed"], vectors), "seed 1": (["Tue", "Wed", "Mon"], other)}
    left, right = axes(figures.winding, runs)
    angles = [0.1 + step * math.pi / 4 for step in range(3)]
    sizes = [1, math.sqrt(8), 3]
    tips = [(size * math.cos(angle), size * math.sin(angle)) for size, angle in zip(sizes, angles, strict=True)]
    *fan, (_, head) = arrows(left)
    assert fan == [((0, 0), pytest.approx(tip, abs=1e-4)) for tip in tips]
    *days, (shadow, beside, under), (should, _, below), (missing, _, low) = texts(left)
    assert shadow == "shadow of\nTue: 2.0", "of (0, 2, 2) on the line of (0, 1, 0)"
    assert [words for words, _, _ in days] == ["Mon\n1.0", "Tue 2.8", "Wed 3.0"]
    assert all(0 < label - tip < 0.2 for label, tip in zip(days[0][1:], tips[0], strict=True)), "above its own head"
    for (_, x, y), angle, size in list(zip(days, angles, sizes, strict=True))[1:]:
        assert math.atan2(y, x) == pytest.approx(angle, abs=1e-4) and math.hypot(x, y) > size
    assert missing == "Wed · Mon = 0  <  Wed · Wed = 9" and low < below < 0 and should == "should find Mon, but"
    down, bracket, arc = strokes(left)
    foot = (2 * math.cos(angles[0]), 2 * math.sin(angles[0]))
    assert down == [pytest.approx(tips[1], abs=1e-4), pytest.approx(foot, abs=1e-4)]
    _, begin, end, _ = bracket
    along = tuple(b - a for a, b in zip(begin, end, strict=True))
    assert along == pytest.approx(foot, abs=1e-4), "as long as the shadow, and along the line of the first"
    assert all(y < x * math.tan(angles[0]) for x, y in bracket), "below the first"
    assert foot[0] < beside < foot[0] + 0.3 and under == pytest.approx(foot[1], abs=0.1)
    assert head == pytest.approx(arc[-1], abs=1e-4), "the arc ends in a head"
    begins, ends = (math.atan2(y, x) for x, y in (arc[0], arc[-1]))
    assert begins == pytest.approx(angles[2] + 0.04, abs=1e-3) and ends == pytest.approx(angles[0] - 0.1, abs=1e-3)
    assert (math.hypot(*arc[0]), math.hypot(*arc[-1])) == pytest.approx((3, 1), abs=1e-3), "inwards, to the first's tip"
    assert strokes(right) == [
        [(1, 1), (2, 2.82843), (3, 3)], [(3, 3)], [(1, 2), (2, 2.23607), (3, 4)], [(3, 4)],
    ]  # fmt: skip
    assert labels(right.xaxis) == {1: "1", 2: "2", 3: "3\nlost day"}
    assert (right.get_xlabel(), right.get_ylabel()) == (
        "place in the week that begins after the lost day", "length of $u_i$"
    )  # fmt: skip
    assert (left.get_title(), right.get_title()) == ("seed 0: each day and its length", "2 seeds: longer every day")


@proven
def test_a_table_of_one_sentence_has_all_numbers_and_a_frame_around_one_row():
    (ax,) = axes(figures.one_row, "weights", WORDS, TABLE, row=2)
    assert table(ax)["her"] == {"Anna": 0.9, "lent": 0, "her": 0.1} and ax.get_title() == "weights"
    assert written(ax)["lent"] == {"Anna": "0.40", "lent": "0.30", "her": "0.30"}
    (frame,) = ax.patches
    assert (frame.get_xy(), frame.get_width(), frame.get_height()) == ((0, 2), 3, 1)
    bold = [label.get_text() for label in ax.get_yticklabels() if label.get_fontweight() == "bold"]
    assert bold == ["her"] and to_hex(frame.get_edgecolor()) == to_hex(PURPLE)


def test_the_framed_row_is_said(shown):
    figures.one_row("weights", WORDS, TABLE, row=2)
    assert shown[0].endswith("The row of “her” is framed.") and "lent: most at Anna (0.40)" in shown[0]


@proven
def test_in_each_row_of_a_week_the_next_days_card_is_framed_and_its_weight_written():
    fell = ["Wed", "Mon", "Sun", "Tue", "Sat", "Fri", "Thu"]
    following = [6, 3, 1, 0, 2, 4, 5]
    found = torch.eye(7)[following]
    one, two = axes(figures.weeks_as_they_fell, {"fixed": (fell, torch.full((7, 7), 1 / 7)), "found": (fell, found)})
    for ax, weight in ((one, "0.14"), (two, "1.00")):
        assert [frame.get_xy() for frame in ax.patches] == [(j, i) for i, j in enumerate(following)]
        assert texts(ax) == [(weight, j + 0.5, i + 0.5) for i, j in enumerate(following)]
        assert list(labels(ax.xaxis).items()) == list(labels(ax.yaxis).items()) == [
            (i + 0.5, day) for i, day in enumerate(fell)
        ]  # fmt: skip
    assert grid(one) == [[pytest.approx(1 / 7, abs=1e-5)] * 7] * 7 and grid(two) == found.tolist()
    assert [(ax.get_title(), ax.get_xlabel(), ax.get_ylabel()) for ax in (one, two)] == [
        ("fixed", "key", "query"), ("found", "key", "")
    ]  # fmt: skip


@proven
def test_two_layers_race_and_the_marked_lengths_say_arithmetic_and_time():
    times = {"self-attention": [0.001, 0.002, 0.012], "recurrence": [0.002, 0.004, 0.008]}
    (ax,) = axes(figures.race, [16, 64, 256], times, [2.25, 3, 6], marked=(64, 256))
    assert strokes(ax) == [[(16, 1), (64, 2), (256, 12)], [(16, 2), (64, 4), (256, 8)]]
    assert (ax.get_xscale(), ax.get_yscale(), ax.get_xlabel(), ax.get_ylabel()) == (
        "log", "log", "length n", "processor time (ms)"
    )  # fmt: skip
    assert labels(ax.xaxis) == {16: "16", 64: "64", 256: "256"} and ax.get_legend() is None
    beside = {note.get_text(): tuple(note.xy) for note in ax.texts}
    assert beside == {
        "self-attention": (64, 2), "recurrence": (64, 4),
        "3 × the arithmetic\n0.5 × the time": (64, 2), "6 × the arithmetic\n1.5 × the time": (256, 12),
    }  # fmt: skip
    colours = {note.get_text(): note.get_color() for note in ax.texts}
    assert [colours[line.get_label()] for line in ax.lines] == [line.get_color() for line in ax.lines]


@proven
def test_a_name_that_moves_keeps_its_colour_and_takes_the_frame_of_its_column_along():
    order = [2, 1, 0]
    swapped = [WORDS[i] for i in order], TABLE[order][:, order]
    one, other = axes(figures.two_orders, {"one": (WORDS, TABLE), "other": swapped}, ("Anna", "her"))
    assert (one.get_title(), other.get_title()) == ("one", "other")
    assert grid(one)[0] == [0.2, 0.5, 0.3] and grid(other)[2] == [0.3, 0.5, 0.2]
    assert table(one)["her"] == table(other)["her"], "the same weights for the same words"
    assert written(one) == {row: written(other)[row] for row in WORDS}, "in numbers, too"
    assert written(one)["her"] == {"Anna": "0.90", "her": "0.10"} and [*written(one)] == [*written(other)][::-1]
    colours = {"Anna": INK, "her": GREEN}
    for ax, places in ((one, {"Anna": 0, "her": 2}), (other, {"Anna": 2, "her": 0})):
        frames = {patch.get_x(): patch for patch in ax.patches}
        assert {word: frames.pop(place).get_edgecolor() for word, place in places.items()} == {
            word: to_rgba(colour) for word, colour in colours.items()
        }  # fmt: skip
        assert not frames
        for axis in (ax.get_xticklabels(), ax.get_yticklabels()):
            coloured = {label.get_text(): label.get_color() for label in axis if label.get_fontweight() == "bold"}
            assert coloured == colours
    assert [(ax.get_xlabel(), ax.get_ylabel()) for ax in (one, other)] == [("key", "query"), ("key", "")]


def test_two_orders_say_where_the_names_are_and_who_attends_to_them(shown):
    figures.two_orders({"one": (WORDS, TABLE), "other": (WORDS, TABLE)}, ("Anna", "lent"))
    assert "one: Anna is word 1, lent is word 2; Anna gets more than 0.3 from lent, her;" in shown[0]


def lit(ax):
    """The thick lines: the way of the signal."""
    return [stroke for line, stroke in zip(ax.lines, strokes(ax), strict=True) if line.get_linewidth() > 2 and
            line.get_marker() == "None"]  # fmt: skip


@proven
def test_a_signal_goes_through_all_cells_through_one_layer_or_from_window_to_window():
    recurrent, full, windows = axes(figures.path_lengths, 4, 2)
    assert [ax.get_title() for ax in (recurrent, full, windows)] == [
        "recurrent", "self-attention", "restricted, 2 on each side"
    ]  # fmt: skip
    assert lit(recurrent) == [[(0, 0), (0, 1)], [(0, 1), (1, 1)], [(1, 1), (2, 1)], [(2, 1), (3, 1)]]
    assert lit(full) == [[(0, 0), (3, 1)]]
    assert lit(windows) == [[(0, 0), (2, 1)], [(2, 1), (3, 2)]]
    assert len(full.lines) == 2 + 4 * 4 and len(windows.lines) == 3 + 2 * 14
    assert all(abs(start[0] - end[0]) <= 2 for start, end in strokes(windows)[3:])
    for ax in (recurrent, full, windows):                                 # a head on each step, which no dot covers
        assert arrows(ax) == [
            ((x, y), pytest.approx((x + 0.7 * (right - x), y + 0.7 * (up - y)))) for (x, y), (right, up) in lit(ax)
        ]  # fmt: skip
    for ax, path, levels in ((recurrent, "4 cells", 2), (full, "1 layer", 2), (windows, "2 layers", 3)):
        assert [words for words, *_ in texts(ax)] == [f"path: {path}", "in", "out", "first", "last"]
        assert strokes(ax)[:levels] == [[(x, level) for x in range(4)] for level in range(levels)]
