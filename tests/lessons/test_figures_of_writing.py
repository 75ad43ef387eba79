"""Pictures of a search, of what sampling leaves, of seeds and intervals: they draw and say what they were given."""

import pytest
from drawn import axes, bars, cells, curves, labels, strokes, texts
from proven import proven

from attncourse_lessons import course

figures = course.part("writing", "figures")


def test_a_search_says_what_it_kept_what_it_put_aside_and_what_it_chose():
    tree = {("a",): 0.6, ("b",): 0.4, ("a", "x"): 0.3, ("b", "y"): 0.4}
    _, words = figures.search_frame(tree, {("b",), ("b", "y")}, {("b", "y")}, ("b", "y"), "width 1")
    assert words == (
        "width 1. Kept on the way: b (0.400), b y (0.400). Put aside because finished: b y. "
        "Chosen: b y, probability 0.400."
    )


@proven
def test_a_search_joins_each_hypothesis_to_the_one_that_it_goes_on_from():
    tree = {("a",): 0.6, ("b",): 0.4, ("a", "x"): 0.3, ("a", "z"): 0.2, ("b", "y"): 0.4}
    kept, finished = {("a",), ("b",), ("b", "y"), ("a", "x")}, {("b", "y"), ("a", "x")}
    (ax,) = axes(figures.search_frame, tree, kept, finished, ("b", "y"), "width 2")
    words = {(round(x), round(2 * (y - 0.12)) / 2): said for said, x, y in texts(ax)[1::2]}
    shares = {(round(x), round(2 * (y + 0.19)) / 2): said for said, x, y in texts(ax)[2::2]}
    assert words == {(1, -0.5): "a", (1, -2): "b", (2, 0): "x", (2, -1): "z", (2, -2): "y"}
    assert {words[at]: share for at, share in shares.items()} == {
        "a": "0.600", "b": "0.400", "x": "0.300", "z": "0.200", "y": "0.400"
    }  # fmt: skip
    joins = [(words[round(start[0]), start[1]], words[round(end[0]), end[1]]) for start, end in strokes(ax)]
    assert joins == [("a", "x"), ("a", "z"), ("b", "y")]
    filled = [words[round(left + 0.36), low + 0.36] for (left, low, *_), (colour, _) in cells(ax).items()
              if colour != "#ffffff"]  # fmt: skip
    assert filled == ["a", "b", "x", "y"] and [line.get_linewidth() for line in ax.lines] == [1.2, 1.2, 3]
    framed = [words[round(box.get_x() + 0.36), box.get_y() + 0.36] for box in ax.patches if box.get_linewidth() > 2]
    assert framed == ["b", "x", "y"]  # on the chosen way, or put aside


@proven
def test_what_may_be_drawn_is_filled_and_the_rest_is_hatched():
    panels = {
        "sure": {"T = 1": ([0.9, 0.1, 0.0], [True, True, False]), "k = 1": ([0.9, 0.1, 0.0], [True, False, False])},
        "unsure": {"T = 1": ([0.5, 0.3, 0.2], [True, True, True]), "k = 1": ([0.5, 0.3, 0.2], [True, False, False])},
    }
    tokens = {"sure": ["one", "two", "six"], "unsure": ["ten", "and", "five"]}
    drawn = axes(figures.kept_tokens, panels, tokens)
    assert [ax.get_title() for ax in drawn] == ["sure: T = 1", "sure: k = 1", "unsure: T = 1", "unsure: k = 1"]
    for ax, (step, (p, kept)) in zip(
        drawn, [(step, given) for step, by_way in panels.items() for given in by_way.values()], strict=True
    ):
        assert bars(ax) == {"": dict(zip(tokens[step], p, strict=True))}
        assert [not bar.get_hatch() for bar in sorted(ax.patches, key=lambda bar: bar.get_x())] == kept
        crossed = {x: y for words, x, y in texts(ax) if words == "×"}
        cut = {x: pytest.approx(share + 0.02) for x, share in enumerate(p) if not kept[x]}
        assert crossed == cut


@proven
def test_seeds_are_points_joined_across_the_conditions():
    panels = {"2 tokens": {"as it was": [1.0, 0.9], "mixed batches": [0.7, 0.8], "both": [0.1, 0.3]},
              "4 tokens": {"as it was": [0.6, 0.5], "mixed batches": [0.2, 0.25], "both": [0.0, 0.05]}}  # fmt: skip
    drawn = axes(figures.paired_points, panels, "share wrong")
    assert [ax.get_title() for ax in drawn] == list(panels) and drawn[0].get_ylabel() == "share wrong"
    for ax, groups in zip(drawn, panels.values(), strict=True):
        assert list(labels(ax.xaxis).values()) == ["as\nit was", "mixed\nbatches", "both"]
        assert strokes(ax) == [[(x, values[seed]) for x, values in enumerate(groups.values())] for seed in range(2)]
    assert list(curves(drawn[1])) == ["seed 0", "seed 1"]
    assert curves(drawn[1])["seed 1"]["both"] == 0.05


@proven
def test_an_interval_reaches_from_low_to_high_with_its_middle_in_it():
    panels = {"BLEU": {"a": (20.0, 21.5, 22.0), "b": (30.0, 31.0, 33.0), "c": (9.0, 9.5, 12.0)},
              "difference": {"b − a": (8.0, 9.5, 11.0), "a − c": (-1.0, 0.5, 3.0)}}  # fmt: skip
    left, right = axes(figures.intervals, panels)
    for ax, title in ((left, "BLEU"), (right, "difference")):
        rows = panels[title]
        assert ax.get_xlabel() == title and list(labels(ax.yaxis).values()) == list(rows)
        lines = [stroke for stroke in strokes(ax) if stroke[0][0] != 0]
        for y, (low, middle, high) in enumerate(rows.values()):
            assert lines[2 * y] == [(low, y), (high, y)] and lines[2 * y + 1] == [(middle, y)]
        assert [said for said, _, _ in texts(ax)] == [f"{middle:.1f}" for _, middle, _ in rows.values()]
    assert strokes(right)[-1] == [(0, 0), (0, 1)] and len(strokes(left)) == 6


@pytest.mark.parametrize("name", ["kept_tokens", "paired_points", "intervals"])
def test_every_picture_says_its_numbers(name, monkeypatch):
    said = []
    monkeypatch.setattr(figures, "show", lambda drawn, alt: said.append(alt))
    if name == "kept_tokens":
        figures.kept_tokens({"sure": {"k = 1": ([0.9, 0.1], [True, False])}}, {"sure": ["one", "two"]})
        assert said == ["What may be drawn. sure, k = 1: one 0.90."]
    elif name == "paired_points":
        figures.paired_points({"": {"a": [0.5, 0.25], "b": [0.75, 1.0]}}, "right")
        assert said == ["right, a mark for each seed. a: 0.500, 0.250; b: 0.750, 1.000."]
    else:
        figures.intervals({"BLEU": {"a": (1.0, 2.0, 4.0)}})
        assert said == ["With intervals that hold 95 % of the resamples. BLEU: a 2.0 (from 1.0 to 4.0)."]
