"""Points, ranks and differences stand where their numbers are, beside their names."""

from drawn import axes, labels, strokes, texts
from proven import proven

from attncourse import viz


@proven
def test_a_point_stands_for_each_model_with_its_name_and_ours_are_square():
    one = {"Transformer": (1e18, 27.3), "ByteNet": (1e20, 23.75)}
    two = {"GNMT": (1e19, 39.0), "other": (3e17, 41.0)}
    left, right = axes(viz.labelled_points, {"one": one, "two": two}, "F", "B")
    assert (left.get_title(), right.get_title()) == ("one", "two")
    assert strokes(left) == [[(1e18, 27.3)], [(1e20, 23.75)]]
    assert texts(left) == [("Transformer", 1e18, 27.3), ("ByteNet", 1e20, 23.75)]
    assert [line.get_marker() for line in left.lines] == ["s", "o"]
    assert strokes(right) == [[(1e19, 39.0)], [(3e17, 41.0)]]
    assert texts(right) == [("GNMT", 1e19, 39.0), ("other", 3e17, 41.0)]
    assert (left.get_xlabel(), left.get_ylabel(), left.get_xscale()) == ("F", "B", "log")


def test_hollow_points_are_white_inside_and_names_stand_on_the_side_that_is_asked_for():
    points = {"Transformer": (1e18, 27.3), "GNMT": (1e20, 26.0), "both": (1e19, 25.0), "MoE": (2e19, 24.0)}
    sides = {"GNMT": "below", "both": "above", "MoE": "left"}
    (ax,) = axes(viz.labelled_points, {"one": points}, "F", "B", sides=sides, hollow=("GNMT",), room=6)
    white = [line.get_markerfacecolor() == "white" for line in ax.lines]
    assert white == [False, True, False, False]
    shifts = {note.get_text(): (note.get_ha(), note.xyann) for note in ax.texts}
    assert shifts == {"Transformer": ("left", (7, 0)), "GNMT": ("center", (0, -13)), "both": ("center", (0, 12)),
                      "MoE": ("right", (-7, 0))}  # fmt: skip
    assert ax.get_xlim()[1] == 6e20


@proven
def test_a_ranking_has_a_point_a_row_in_the_order_given():
    (ax,) = axes(viz.ranking, [("T5", 90.3), ("BERT", 80.5), ("baseline", 66.1)], "score")
    points = [stroke for line, stroke in zip(ax.lines, strokes(ax), strict=True) if line.get_marker() == "o"]
    assert strokes(ax)[::2] == [[(0, y), (1, y)] for y in range(3)]      # a faint line all along each row
    assert points == [[(90.3, 0)], [(80.5, 1)], [(66.1, 2)]]
    assert labels(ax.yaxis) == {0: "T5", 1: "BERT", 2: "baseline"} and ax.yaxis_inverted()
    assert texts(ax) == [("90.3", 90.3, 0), ("80.5", 80.5, 1), ("66.1", 66.1, 2)]


@proven
def test_differences_lie_on_their_side_of_zero_with_bars_to_both_sides():
    panels = {"here": {"RoPE": (-0.15, 0.02), "GELU": (0.01, 0.02)}, "there": {"GELU": (0.3, 0.1), "none": (0.05, 0.0)}}
    here, there = axes(viz.differences_from_baseline, panels)
    assert (here.get_title(), there.get_title()) == ("here", "there")
    assert labels(here.yaxis) == {0: "RoPE", 1: "GELU", 2: "none"} and here.yaxis_inverted() and there.yaxis_inverted()
    zero, *drawn = strokes(here)
    assert zero == [(0, 0), (0, 1)]  # all the way up
    assert drawn == [[(-0.17, 0), (-0.13, 0)], [(-0.15, 0)], [(-0.01, 1), (0.03, 1)], [(0.01, 1)]]
    assert strokes(there)[0] == zero
    assert strokes(there)[1:] == [[(0.2, 1), (0.4, 1)], [(0.3, 1)], [(0.05, 2), (0.05, 2)], [(0.05, 2)]]
    assert [line.get_marker() for line in here.lines[2::2]] == ["<", "o"]  # beyond its bar; not so
    assert [line.get_marker() for line in there.lines[2::2]] == [">", ">"]
