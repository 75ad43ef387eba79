"""Pictures of texts on their way: they draw what they were given, and the words beside them say it."""

import pytest
from drawn import axes, boxed, cells, curves, strokes, texts
from proven import proven

from attncourse_lessons import course

figures = course.part("training", "figures")


@pytest.fixture
def said(monkeypatch):
    """The words of what was shown."""
    words = []
    monkeypatch.setattr("attncourse_lessons.l10_training.figures.show", lambda drawn, alt: words.append(alt))
    return words


def test_the_pieces_of_each_word_are_named_and_counted():
    _, words = figures.pieces_frame({"undzehn": ["und", "ze", "hn"], "ab": ["ab"]}, "after 3 merges")
    assert words == "after 3 merges. Words cut into pieces. undzehn: und | ze | hn (3); ab: ab (1)."


def test_padding_is_counted_as_a_share_of_the_rectangles(said):
    figures.padded_batches({"one": [[2, 4], [3, 3]], "other": [[5]]})
    assert "one: 14% of the rectangles is padding; they are 2 × 4, 2 × 3" in said[0]
    assert "other: 0% of the rectangles is padding" in said[0]


def test_a_search_says_what_it_kept_and_what_it_chose():
    tree = {("a",): 0.6, ("b",): 0.4, ("a", "x"): 0.3, ("b", "y"): 0.4}
    _, words = figures.search_frame(tree, {("b",), ("b", "y")}, ("b", "y"), "one beam")
    assert words == "one beam. Kept on the way: b (0.400), b y (0.400). Chosen: b y, probability 0.400."


def test_the_peak_of_each_schedule_is_named(said):
    figures.learning_rates({"up and down": [0.1, 0.3, 0.2]})
    assert said == ["Learning rate against the step. up and down is highest at step 2, 0.3, and ends at 0.2."]


# What is drawn


@proven
def test_pieces_stand_in_their_order_in_boxes_as_long_as_they_are():
    (ax,) = axes(figures.pieces_frame, {"undzehn": ["und", "ze", "hn"], "ab": ["ab"]}, "after 3 merges")
    rows = {y: [words for words, _, at in sorted(texts(ax), key=lambda text: text[1]) if round(at) == y]
            for y in (1, 0, -1)}  # fmt: skip
    assert rows == {1: ["after 3 merges"], 0: ["und", "ze", "hn", "3"], -1: ["ab", "1"]}
    assert boxed(ax) == ["und", "ze", "hn", "ab"]
    wide = {words: width for words, x, y in texts(ax) for (left, low, width, _) in cells(ax)
            if left < x < left + width and low < y < low + 0.6}  # fmt: skip
    assert wide == {"und": 3.1, "ze": 2.1, "hn": 2.1, "ab": 2.1}


@proven
def test_batches_are_filled_as_far_as_their_tokens_go_and_hatched_beyond():
    one, other = axes(figures.padded_batches, {"one": [[2, 4], [3, 3]], "other": [[5, 1]]})
    assert (one.get_title(), other.get_title()) == ("one\n14% padding", "other\n40% padding")
    assert filled(one) == {0: (2, 4), 1: (4, 4), 4: (3, 3), 5: (3, 3)}
    assert filled(other) == {0: (5, 5), 1: (1, 5)}
    assert outlines(one) == [(0, 0, 4, 2), (0, 4, 3, 2)] and outlines(other) == [(0, 0, 5, 2)]
    assert one.get_xlim() == other.get_xlim() and one.yaxis_inverted()


def filled(ax):
    """{row: (how many tokens, how wide with the padding after them)}."""
    ends = {}
    for (left, row, width, height), (colour, hatch) in cells(ax).items():
        if height == 1:
            assert hatch == ("////" if colour == "#ffffff" else "") and left == (ends.get(row, [0])[0] if hatch else 0)
            ends.setdefault(row, []).append(left + width)
    return {row: tuple(both) for row, both in ends.items()}


def outlines(ax):
    return [place for place in cells(ax) if place[3] != 1]


@proven
def test_a_search_joins_each_hypothesis_to_the_one_that_it_goes_on_from():
    tree = {("a",): 0.6, ("b",): 0.4, ("a", "x"): 0.3, ("a", "z"): 0.2, ("b", "y"): 0.4}
    (ax,) = axes(figures.search_frame, tree, {("b",), ("b", "y")}, ("b", "y"), "one beam")
    words = {(round(x), round(2 * (y - 0.12)) / 2): said for said, x, y in texts(ax)[1::2]}
    shares = {(round(x), round(2 * (y + 0.19)) / 2): said for said, x, y in texts(ax)[2::2]}
    assert words == {(1, -0.5): "a", (1, -2): "b", (2, 0): "x", (2, -1): "z", (2, -2): "y"}
    assert {words[at]: share for at, share in shares.items()} == {
        "a": "0.600", "b": "0.400", "x": "0.300", "z": "0.200", "y": "0.400"
    }  # fmt: skip
    joins = [(words[round(start[0]), start[1]], words[round(end[0]), end[1]]) for start, end in strokes(ax)]
    assert joins == [("a", "x"), ("a", "z"), ("b", "y")]
    kept = [words[round(left + 0.36), low + 0.36] for (left, low, *_), (colour, _) in cells(ax).items()
            if colour != "#ffffff"]  # fmt: skip
    assert kept == ["b", "y"] and [line.get_linewidth() for line in ax.lines] == [1.2, 1.2, 3]


@proven
def test_learning_rates_are_drawn_from_the_first_step_on_with_their_peaks_marked():
    (ax,) = axes(figures.learning_rates, {"up and down": [0.1, 0.3, 0.2], "down": [0.4, 0.2, 0.1]})
    assert curves(ax) == {"up and down": {1: 0.1, 2: 0.3, 3: 0.2}, "down": {1: 0.4, 2: 0.2, 3: 0.1}}
    assert strokes(ax)[1::2] == [[(2, 0.3)], [(1, 0.4)]]
