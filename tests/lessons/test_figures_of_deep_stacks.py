"""Figures of norms, wirings and gradients draw what they were given, and say in words what they show."""

import math

import pytest
import torch
from drawn import arrows, axes, bars, boxed, contours, joined, labels, places, strokes, texts
from matplotlib.patches import Circle
from proven import proven

from attncourse import viz
from attncourse_lessons import course

figures = course.part("deep_stacks", "figures")


def test_norm_steps_say_where_the_vectors_were_and_where_they_go(shown):
    figures.norm_steps(torch.tensor([[1.0, 1.0, 4.0], [-3.0, 0.0, 0.0]]))
    assert "2 vectors of three numbers" in shown[0]
    assert "between -1.7 and 3.5 along the direction (1, 1, 1)" in shown[0]
    assert "they lie 2.4 to 2.4 from the middle" in shown[0] and "circle of radius 1.73" in shown[0]


def test_norm_steps_refuse_vectors_that_no_plane_shows():
    with pytest.raises(ValueError, match=r"points: got shape \(5, 4\), expected \(m, 3\)"):
        figures.norm_steps(torch.randn(5, 4))


def test_wirings_are_read_out_step_by_step(shown):
    figures.block_wiring({"post": ["attention", "norm"], "pre": ["norm → attention"], "plain": ["only attention"]})
    assert "post: attention of x added to x, then a norm on the way of x." in shown[0]
    assert "pre: attention of a normalised x added to x." in shown[0]
    assert "plain: attention in place of x." in shown[0]


def test_a_gradient_that_explodes_is_shown_and_said():
    drawn, words = figures.gradient_flow([1.5, 3.0, 2e11], [float("inf"), 20.0], "residual, 2 deep")
    assert "x goes from size 1.5 to 2e+11" in words and "20 in the last block and inf in the first" in words
    assert [text.get_text() for text in drawn.axes[1].texts] == ["∞", "20"]


def test_frames_of_the_gradient_flow_have_the_same_axes():
    still, moved = (figures.gradient_flow([1.0, size], [size, 1.0])[0] for size in (1e-7, 1e7))
    assert [ax.get_ylim() for ax in still.axes] == [ax.get_ylim() for ax in moved.axes]


def test_landscapes_say_how_much_of_them_is_low(shown):
    side = torch.linspace(-1, 1, 5)
    bowl = 2 * (side[:, None] ** 2 + side**2) + 0.01
    figures.loss_landscapes({"bowl": (side, bowl), "plain": (side, torch.full((5, 5), 0.05))})
    assert "bowl: 0.01 in the middle, at most 4; below 0.1 in 4% of it" in shown[0]
    assert "plain: 0.05 in the middle, at most 0.05; below 0.1 in 100% of it" in shown[0]


def test_runs_are_read_out_by_group(shown):
    viz.strip_plot({"right": [0.25, 0.5], "wrong": [0.125]}, "loss")
    assert shown[0] == "loss, one mark a run, an upright line at each mean. right: 0.250, 0.500; wrong: 0.125."


def test_one_vector_normalised_in_several_ways_says_its_largest_numbers():
    vectors = {"inside": torch.tensor([-1.0, 1.0]), "none": torch.tensor([-2.0, 1.5])}
    _, words = figures.normed_vector(vectors, "a vector")
    assert words == "The numbers of a vector. The largest of them: inside 1.00, none 1.50."


# What is drawn


@proven
def test_norm_steps_take_the_mean_off_and_bring_all_to_one_length():
    side, above = axes(figures.norm_steps, torch.tensor([[1.0, 1.0, 4.0], [-3.0, 0.0, 0.0]]))
    assert side.get_title().startswith("from the side") and above.get_title().startswith("from above")
    # In the plane of mean 0 the first lies along (1, 1, -2), and both are 6 ** 0.5 from its middle.
    flat = [(0, -math.sqrt(6)), (-3 / math.sqrt(2), -math.sqrt(1.5))]
    high = [6 / math.sqrt(3), -3 / math.sqrt(3)]
    level, *dots = strokes(side)
    assert level == [(0, 0), (1, 0)]
    assert [dot[0] for dot in dots] == [near(x, up) for (x, _), up in zip(flat, high, strict=True)]
    assert arrows(side) == [(near(x, up), near(x, 0)) for (x, _), up in zip(flat, high, strict=True)]
    assert places(side, " 1", " 2") == {f" {i + 1}": near(flat[i][0], high[i]) for i in (0, 1)}
    (circle,) = (patch for patch in above.patches if isinstance(patch, Circle))
    assert circle.center == (0, 0) and circle.radius == pytest.approx(math.sqrt(3))
    middle, *dots = strokes(above)
    assert middle == [(0, 0)] and [dot[0] for dot in dots] == [near(*place) for place in flat]
    ends = [near(x / math.sqrt(2), y / math.sqrt(2)) for x, y in flat]    # from a length of 6 ** 0.5 to one of 3 ** 0.5
    assert arrows(above) == [(near(*place), end) for place, end in zip(flat, ends, strict=True)]
    beyond = places(above)
    assert math.atan2(*beyond["1"]) == pytest.approx(math.atan2(*flat[0]), abs=1e-5)
    assert math.atan2(*beyond["2"]) == pytest.approx(math.atan2(*flat[1]), abs=1e-5)


def near(x, y):
    return pytest.approx((x, y), abs=1e-5)


@proven
def test_a_wiring_is_read_from_x_upwards():
    wirings = {"post": ["attention", "norm"], "pre": ["norm → attention"], "plain": ["only attention", "norm"]}
    post, pre, plain = axes(figures.block_wiring, wirings)
    assert [ax.get_title() for ax in (post, pre, plain)] == ["post", "pre", "plain"]
    assert ("attention", "+") in joined(post) and ("+", "norm") in joined(post) and boxed(post) == ["attention", "norm"]
    assert {("norm", "attention"), ("attention", "+")} <= set(joined(pre)) and boxed(pre) == ["norm", "attention"]
    assert {("$x$", "attention"), ("attention", "norm")} <= set(joined(plain)) and boxed(plain) == ["attention", "norm"]
    for ax, around in ((post, "attention"), (pre, "attention")):
        # Past the sublayer x goes straight up to the plus; the sublayer hears x from below and comes back in there.
        stream, out, back = strokes(ax)
        at = places(ax)
        assert [x for x, _ in stream] == [0, 0] and stream[0][1] < at[around][1] < at["+"][1] < stream[1][1]
        assert out[0] == (0, out[1][1]) and out[1][0] == at[around][0] and out[1][1] < at[around][1]
        assert [x for x, _ in back] == [at[around][0]] * 2 and at[around][1] < back[0][1] < back[1][1]
        (plus,) = (patch for patch in ax.patches if isinstance(patch, Circle))
        assert plus.center == pytest.approx((0, back[1][1]))
    assert strokes(plain) == []                                           # nothing goes round


@proven
def test_the_sizes_of_x_go_up_the_blocks_and_the_gradients_stand_in_theirs():
    up, down = axes(figures.gradient_flow, [1.5, 3.0, 2e11], [float("inf"), 20.0, 1e-12])
    assert (up.get_title(), down.get_title()) == ("size of x", "gradient in the block")
    assert strokes(up) == [[(0, 1.5), (1, 3), (2, 1e9)], [(0, 1), (1, 1)]]        # from before the first block on
    assert strokes(down) == [[(1, 1e9), (2, 20), (3, 1e-9)], [(0, 1), (1, 1)]]    # beyond the axes: at their ends
    assert texts(up) == [("1.5", 0, 1.5), ("2e+11", 2, 1e9)]
    assert texts(down) == [("∞", 1, 1e9), ("1e-12", 3, 1e-9)]
    assert up.get_yscale() == down.get_yscale() == "log"


@proven
def test_a_landscape_is_as_high_as_the_losses_are():
    side = torch.linspace(-1, 1, 9)
    steep = 10 ** (-1.5 * side + 0.5 * side[:, None] - 1)                 # rows go up, columns to the right
    flat = 10 ** (side + side[:, None] - 1.25)
    first, second = axes(figures.loss_landscapes, {"steep": (side, steep), "flat": (side, flat)})
    assert (first.get_title(), second.get_title()) == ("steep", "flat")
    for ax, height in ((first, lambda x, y: -1.5 * x + 0.5 * y - 1), (second, lambda x, y: x + y - 1.25)):
        assert len(contours(ax)) >= 5
        for low, high, outline in contours(ax):
            assert all(low - 1e-4 <= height(x, y) <= high + 1e-4 for x, y in outline)
        assert {low for low, high, _ in contours(ax) if low == high} == {-2, -1, 0}
        said = {"0.01": -2, "0.1": -1, "1": 0}
        assert ax.texts and all(height(x, y) == pytest.approx(said[words], abs=0.05) for words, x, y in texts(ax))
        assert strokes(ax) == [[(0, 0)]]                                  # where training ended
        assert labels(ax.xaxis) == labels(ax.yaxis) == {-1: "-1", 0: "0", 1: "1"}


@proven
def test_each_run_has_a_mark_in_the_row_of_its_group_and_each_group_its_mean():
    (ax,) = axes(viz.strip_plot, {"right": [0.25, 0.75], "wrong": [0.125]}, "loss")
    assert strokes(ax) == [
        [(0.25, 0), (0.75, 0)], [(0.5, -0.3), (0.5, 0.3)], [(0.125, 1)], [(0.125, 0.7), (0.125, 1.3)]
    ]  # fmt: skip
    assert labels(ax.yaxis) == {0: "right", 1: "wrong"} and ax.yaxis_inverted() and ax.get_xlabel() == "loss"


@proven
def test_the_numbers_of_a_vector_are_bars_one_beside_the_other_for_each_formula():
    (ax,) = axes(figures.normed_vector, {"inside": torch.tensor([-1.0, 0.5]), "none": torch.tensor([-1.75, 1.5])})
    assert bars(ax) == {"inside": {-0.205: -1, 0.795: 0.5}, "none": {0.205: -1.75, 1.205: 1.5}}
    assert strokes(ax) == [[(0, 0), (1, 0)]]
