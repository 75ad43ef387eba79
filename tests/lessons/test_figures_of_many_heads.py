"""The pictures of many heads: what they draw, and what they say, is what they were given."""

import pytest
import torch
from drawn import arrows, axes, bars, cells, labels, places, strokes, texts
from proven import proven

from attncourse_lessons import course

figures = course.part("many_heads", "figures")


def test_the_drawing_of_many_heads_gives_the_shapes_in_words(shown):
    figures.many_heads(n=7, d_model=12, n_heads=3)
    assert "7 words by 12" in shown[0] and "3 blocks" in shown[0] and "7 by 4" in shown[0]


def test_heads_that_do_not_divide_the_width_are_refused():
    with pytest.raises(ValueError, match="n_heads: got 5, expected a divisor of d_model = 12"):
        figures.many_heads(n=7, d_model=12, n_heads=5)


def test_each_head_is_said_to_hold_the_numbers_that_it_was_given(shown):
    x = torch.arange(8).view(2, 4)
    figures.head_pieces({"x": x, "view": x.view(2, 2, 2)}, ["Anna", "Ben"], d_model=4)
    assert "x: A0 A1 A2 A3 B0 B1 B2 B3" in shown[0]
    assert "view: head 0: A0 A1 A2 A3; head 1: B0 B1 B2 B3" in shown[0]


def test_a_frame_of_the_softmax_gives_the_largest_weight_and_the_median_gradient():
    scores = torch.tensor([0.0, 2.0, -1.0])
    gradients = torch.tensor([1e-12, 1e-4, 1.0, 1e-4, 10.0])
    drawn, words = figures.softmax_frame(scores, scores.softmax(dim=0), gradients, title="plain")
    assert len(drawn.axes) == 3
    assert "plain" in words and f"the largest of its weights is {scores.softmax(dim=0).max():.2f}" in words
    assert "half get a gradient of at most 1.0e-04; the largest is 1.0e+01" in words


@pytest.mark.parametrize("gradient", [0.0, 1e-8, 1.0, 1000.0])
def test_every_query_stands_in_a_bar_however_small_or_large_its_gradient(gradient):
    drawn, _ = figures.softmax_frame(torch.zeros(4), torch.full((4,), 0.25), torch.full((50,), gradient))
    assert sum(bar.get_height() for bar in drawn.axes[2].patches) == 50


def test_shares_are_said_in_per_cent_of_their_row(shown):
    figures.stacked_shares({"small": {"a": 1, "b": 3}, "large": {"a": 5, "b": 5}}, {"small": "4", "large": "10"})
    assert "small (4): a 25%, b 75%" in shown[0] and "large (10): a 50%, b 50%" in shown[0]


# What is drawn


@proven
def test_a_projection_is_cut_in_heads_with_a_table_and_an_output_each():
    n, d_model, n_heads = 7, 12, 3
    (ax,) = axes(figures.many_heads, n, d_model, n_heads)
    d_head, at = d_model // n_heads, places(ax, "$X$", "$A_1$", "$A_2$", "$A_3$", "side by side", "$W_O$")
    x, *parts = [(round(height / 0.095), round(width / 0.095), left, low, colour)
                 for (left, low, width, height), (colour, _) in cells(ax).items()]  # fmt: skip
    assert x[:2] == (n, d_model) and x[2] + 0.095 * d_model / 2 == pytest.approx(at["$X$"][0])
    colours = [part[-1] for part in parts[:n_heads]]
    assert len({*colours}) == n_heads
    for head, colour in enumerate(colours):
        shapes = [part[:2] for part in parts if part[-1] == colour]      # of W_Q, its table, its output, again, of W_O
        assert sorted(shapes) == sorted([(d_model, d_head), (n, n), (n, d_head), (n, d_head), (d_head, d_model)])
        (table,) = [part for part in parts if part[-1] == colour and part[:2] == (n, n)]
        half = 0.095 * n / 2
        assert at[f"$A_{head + 1}$"] == pytest.approx((table[2] + half, table[3] + half))
    assert at["$A_1$"][1] > at["$A_2$"][1] > at["$A_3$"][1]

    def in_order(shape):
        """Left and low of these parts, head by head."""
        return [next((left, low) for *part, left, low, mine in parts if tuple(part) == shape and mine == colour)
                for colour in colours]  # fmt: skip

    columns, rows = in_order((d_model, d_head)), in_order((d_head, d_model))
    assert columns == sorted(columns) and len({low for _, low in columns}) == 1      # blocks of columns of W_Q
    assert rows == sorted(rows, reverse=True) and len({left for left, _ in rows}) == 1      # blocks of rows of W_O
    joined = [max(left for *part, left, _, mine in parts if tuple(part) == (n, d_head) and mine == colour)
              for colour in colours]  # fmt: skip
    assert joined == sorted(joined) and joined[0] < at["side by side"][0] < joined[-1]
    assert rows[0][0] < at["$W_O$"][0] < rows[0][0] + 0.095 * d_model
    assert all(start[0] < end[0] for start, end in arrows(ax)) and len(arrows(ax)) == 1 + 3 * n_heads
    said = [words for words, *_ in sorted(texts(ax), key=lambda text: text[1:]) if "×" in words]
    assert said == [
        f"{n} × {d_model}", f"{d_model} × {d_model},", f"{n_heads} tables, {n} × {n}", f"{n} × {d_head} each",
        f"{n} × {d_model}", f"{d_model} × {d_model},",
    ]  # fmt: skip


@proven
def test_each_head_has_cells_of_its_own_with_the_word_and_the_column_of_each_number():
    x = torch.arange(8).view(2, 4)
    uncut, cut = axes(figures.head_pieces, {"x": x, "cut": x.view(2, 2, 2).mT}, ["Anna", "Ben"], d_model=4)
    assert (uncut.get_title(), cut.get_title()) == ("x", "cut")
    assert rows_of(uncut) == [["A0", "A1", "A2", "A3"], ["B0", "B1", "B2", "B3"]]
    assert rows_of(cut) == [["head 0"], ["A0", "A2"], ["A1", "A3"], ["head 1"], ["B0", "B2"], ["B1", "B3"]]
    found = []
    for ax in (uncut, cut):
        at = {(x - 0.5, y - 0.5): words for words, x, y in texts(ax) if not words.startswith("head")}
        colours = {}
        for (left, low, *_), (colour, _) in cells(ax).items():
            (words,) = [words for place, words in at.items() if place == pytest.approx((left, low))]
            colours.setdefault(words[0], set()).add(colour)
        assert [*map(len, colours.values())] == [1, 1] and colours["A"] != colours["B"]
        found.append(colours)
    assert found[0] == found[1]                                          # a word has one colour in all panels


def rows_of(ax):
    """The words from the top down; a head's name comes before its rows, in whose middle it stands."""
    rows = {}
    for words, _, y in texts(ax):
        rows.setdefault(y + 0.75 * words.startswith("head"), []).append(words)
    return [rows[height] for height in sorted(rows, reverse=True)]


@proven
def test_a_softmax_has_a_bar_a_score_a_bar_a_weight_and_a_bar_for_gradients_of_one_size():
    gradients = torch.tensor([1e-12, 3e-4, 1.5, 2e-4, 30.0])
    scores, weights, sizes = axes(
        figures.softmax_frame, torch.tensor([0.5, 2.0, -1.0]), torch.tensor([0.25, 0.7, 0.05]), gradients
    )
    assert [ax.get_title() for ax in (scores, weights, sizes)] == ["scores of one query", "its weights", "at 5 queries"]
    assert bars(scores) == {"": {0: 0.5, 1: 2, 2: -1}} and bars(weights) == {"": {0: 0.25, 1: 0.7, 2: 0.05}}
    # A bar is half a power of ten wide; what is smaller than the first stands there.
    counted = {bar.get_x(): bar.get_height() for bar in sizes.patches if bar.get_height()}
    assert counted == {-8: 1, -4: 2, 0: 1, 1: 1}
    assert strokes(sizes) == [[(pytest.approx(torch.tensor(3e-4).log10().item()), y) for y in (0, 1)]]
    assert labels(sizes.xaxis) == {-8: "≤10⁻⁸", -4: "10⁻⁴", 0: "1"}


@proven
def test_shares_lie_end_to_end_and_fill_the_row():
    parts = {"small": {"a": 1, "b": 3, "c": 4}, "large": {"a": 6, "b": 4, "c": 10}}
    (ax,) = axes(figures.stacked_shares, parts, {"small": "8", "large": "20"})
    assert bars(ax, stacked=True) == {"a": {"small": 0.125, "large": 0.3}, "b": {"small": 0.375, "large": 0.2},
                                      "c": {"small": 0.5, "large": 0.5}}  # fmt: skip
    starts = [bar.get_x() for container in ax.containers for bar in container]
    assert starts == [0, 0.125, 0.5, 0, 0.3, 0.5]
    assert labels(ax.yaxis) == {0: "small", 1: "large"} and texts(ax) == [("8", 1.01, 0), ("20", 1.01, 1)]
