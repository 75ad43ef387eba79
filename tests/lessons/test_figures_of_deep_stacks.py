"""Figures of norms, blocks and gradients draw what they were given, and say in words what they show."""

import math

import pytest
import torch
from drawn import arrows, axes, boxed, cells, contours, curves, joined, labels, places, strokes, texts
from matplotlib.colors import to_hex
from matplotlib.patches import Circle
from proven import proven

from attncourse import viz
from attncourse.viz.style import BLUE
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


def test_blocks_are_read_out_step_by_step(shown):
    figures.block_diagrams({"post": ["attention", "norm"], "pre": ["norm → attention"], "plain": ["only attention"]})
    assert "post: attention of x added to x, then a norm on the way of x." in shown[0]
    assert "pre: attention of a normalised x added to x." in shown[0]
    assert "plain: attention in place of x." in shown[0]


def test_a_branch_may_have_norms_at_both_ends(shown):
    figures.block_diagrams({"sandwich": ["norm → attention → norm"], "after": ["attention → norm"]})
    assert "sandwich: attention of a normalised x, normalised, added to x." in shown[0]
    assert "after: attention of x, normalised, added to x." in shown[0]


def test_flows_say_where_they_begin_and_end(shown):
    figures.flow_grid({"residual": {2: ([1.5, 3.0, 2e11], [1e12, 20.0])}})
    assert "residual, 2 blocks: x from 1.5 to 2e+11, gradient 1e+12 in the first block and 20 in the last" in shown[0]


def test_runs_over_rates_say_their_medians_and_the_level(shown):
    lines = {"cold": {0.1: [2.0, 3.0, 1.0], 1.0: [None, 4.0, None]}, "warm-up": {0.1: [0.5, 0.25]}}
    figures.runs_over(lines, "rate", "loss", level=("guessing", 2.5), highest=10)
    assert "loss against rate, a mark a seed" in shown[0]
    assert "cold: 2 at 0.1, above 10 at 1; warm-up: 0.38 at 0.1; guessing: 2.50." in shown[0]


def test_runs_by_cause_say_the_runs_at_both_ends(shown):
    groups = {"mixed": [(0.5, 2.0), (0.25, 3.0), (0.75, 1.0)], "looked up": [(0.5, 2.5), (0.4, 2.25)]}
    figures.runs_by_cause({"share": groups}, "loss", ("guessing", 2.75))
    assert shown[0].startswith("loss, a mark a run. mixed: 3.00 at a share of 0.25, 1.00 at 0.75; ")
    assert "looked up: 2.25 at a share of 0.40, 2.50 at 0.50; guessing: 2.75." in shown[0]


def test_rows_say_every_run_and_those_that_left_the_numbers(shown):
    groups = {"norms": {"post": {"0.1": [1.0, None]}}, "others": {"pre": {"0.1": [0.5, 0.25]}}}
    figures.runs_in_rows(groups, "loss", highest=10)
    assert "loss, a mark a seed. norms. post: 0.1 1.00, none. others. pre: 0.1 0.50, 0.25." in shown[0]


def test_token_spreads_say_where_they_end_and_which_sublayer_takes_them(shown):
    figures.spread_by_sublayer([[1.0, 0.5, 0.5, 0.25, 0.25], [1.0, 0.125, 0.125, 0.125, 0.125]], ["mix", "think"])
    assert "after each of 4 sublayers, a line a seed: from 1.00 down to between 0.12 and 0.25." in shown[0]
    assert "On average mix multiplies it by 0.42, think multiplies it by 1.00." in shown[0]


def test_paired_runs_say_the_mean_of_their_differences(shown):
    differences = {"bare": {"slow": ([-0.25, -0.5], 0.125)}}
    figures.paired_runs({"wrong": [0.25, 0.5], "right": [0.5, 1.0]}, differences, "wrong − right", "loss")
    said = "wrong: 0.250, 0.500; right: 0.500, 1.000. wrong − right: bare, slow: mean −0.3750 ± 0.1250."
    assert said in shown[0]


def test_a_branch_and_its_norm_say_how_much_of_x_is_left(shown):
    figures.branch_and_norm((0.75, 2.0))
    assert "r = 0.75: the sum is 1.25 long, and 0.80 of x is left after the norm" in shown[0]
    assert "same branch of 2: 180° apart before, 53° after the norm" in shown[0]


def test_training_curves_say_how_far_the_seeds_are_apart(shown):
    figures.training_curves({"deep": [[3.0, 2.0, 1.0], [3.0, 2.0, 2.0]]}, "loss")
    assert "deep: from 3 to 1.5, the seeds end between 1 and 2." in shown[0]
    figures.training_curves({"deep": [[3.0, 2.0]]}, "loss", level=("guessing", 2.5))
    assert "; guessing: 2.50." in shown[1]


def test_the_slope_of_a_power_law_is_its_exponent():
    assert figures.log_slope({1: 8.0, 2: 4.0, 8: 1.0}) == -1.0
    assert figures.log_slope({1: 1.0, 2: 2.0, 4: 2.0}) == 0.5


# What is drawn


@proven
def test_norm_steps_take_the_mean_off_and_bring_all_to_one_length():
    side, above = axes(figures.norm_steps, torch.tensor([[1.0, 1.0, 4.0], [-3.0, 0.0, 0.0]]))
    assert "from the side" in side.get_title() and "from above" in above.get_title()
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
    middle, radius, *dots = strokes(above)
    assert radius == [(0, 0), near(-math.sqrt(1.5), -math.sqrt(1.5))]
    assert middle == [(0, 0)] and [dot[0] for dot in dots] == [near(*place) for place in flat]
    ends = [near(x / math.sqrt(2), y / math.sqrt(2)) for x, y in flat]    # from a length of 6 ** 0.5 to one of 3 ** 0.5
    assert arrows(above) == [(near(*place), end) for place, end in zip(flat, ends, strict=True)]
    beyond = places(above)
    assert math.atan2(*beyond["1"]) == pytest.approx(math.atan2(*flat[0]), abs=1e-5)
    assert math.atan2(*beyond["2"]) == pytest.approx(math.atan2(*flat[1]), abs=1e-5)


def near(x, y):
    return pytest.approx((x, y), abs=1e-5)


def near_all(found, expected):
    """The same paths, up to rounding."""
    return [[tuple(map(float, point)) for point in path] for path in found] == [
        [pytest.approx(tuple(point), abs=1e-6) for point in path] for path in expected
    ]


@proven
def test_a_block_is_read_from_x_upwards():
    blocks = {"post": ["attention", "norm"], "pre": ["norm → attention"], "after": ["attention → norm"],
               "plain": ["only attention", "norm"]}  # fmt: skip
    post, pre, after, plain = axes(figures.block_diagrams, blocks)
    assert [ax.get_title() for ax in (post, pre, after, plain)] == ["post", "pre", "after", "plain"]
    assert {("attention", "norm"), ("norm", "+")} <= set(joined(after)) and boxed(after) == ["attention", "norm"]
    assert ("attention", "+") in joined(post) and ("+", "norm") in joined(post) and boxed(post) == ["attention", "norm"]
    assert {("norm", "attention"), ("attention", "+")} <= set(joined(pre)) and boxed(pre) == ["norm", "attention"]
    assert {("$x$", "attention"), ("attention", "norm")} <= set(joined(plain)) and boxed(plain) == ["attention", "norm"]
    for ax, around in ((post, "attention"), (pre, "attention"), (after, "norm")):
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
def test_each_placement_has_a_column_with_its_sizes_above_and_its_gradients_below():
    flows = {"plain": {2: ([1.5, 3.0, 2.0], [4.0, 20.0]), 3: ([1.0, 0.5, 0.25, 7.0], [9.0, 8.0, 6.0])},
             "other": {2: ([2.0, 5.0, 6.0], [0.5, 0.25])}}  # fmt: skip
    above, above_2, below, below_2 = axes(figures.flow_grid, flows)
    assert [ax.get_title() for ax in (above, above_2, below, below_2)] == ["plain", "other", "", ""]
    assert strokes(above)[:2] == [[(0, 1.5), (1, 3), (2, 2)], [(0, 1), (1, 0.5), (2, 0.25), (3, 7)]]
    assert strokes(below)[:2] == [[(1, 4), (2, 20)], [(1, 9), (2, 8), (3, 6)]]
    assert strokes(above_2) == [[(0, 2), (1, 5), (2, 6)], [(0, 1), (1, 1)]]
    assert strokes(below_2) == [[(1, 0.5), (2, 0.25)], [(0, 1), (1, 1)]]
    assert strokes(above)[2] == strokes(below)[2] == [(0, 1), (1, 1)]
    assert curves(above_2) == {"2 blocks": {"0": 2, 1: 5, 2: 6}}
    assert labels(above.xaxis) == {0: "0", 4: "4", 6: "6"} and labels(below.xaxis) == {1: "1", 2: "2", 3: "3"}
    (legend,) = above.figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["2 blocks", "3 blocks"]
    assert {ax.get_yscale() for ax in (above, above_2, below, below_2)} == {"log"}


@proven
def test_every_seed_has_a_mark_and_lines_go_through_the_medians():
    lines = {"cold": {0.1: [2.0, 3.0, 1.0], 1.0: [None, 4.0, 40.0]},
             "warm-up": {0.1: [0.5, 0.25, 0.75], 1.0: [8, 6, 7]}}  # fmt: skip
    (ax,) = axes(figures.runs_over, lines, "rate", "loss", log_x=True, level=("guessing", 2.5), highest=10)
    assert strokes(ax) == [
        [(0.1, 2), (0.1, 3), (0.1, 1)], [(1, 4)], [(1, 10)], [(0.1, 2), (1, 10)],
        [(0.1, 0.5), (0.1, 0.25), (0.1, 0.75)], [(1, 8), (1, 6), (1, 7)], [(0.1, 0.5), (1, 7)],
        [(0, 2.5), (1, 2.5)],
    ]  # fmt: skip
    assert curves(ax) == {"cold": {"0.1": 2, "1": 10}, "warm-up": {"0.1": 0.5, "1": 7}}
    assert labels(ax.xaxis) == {0.1: "0.1", 1: "1"} and places(ax) == {"guessing": (1, 2.5)}


@proven
def test_panels_of_runs_share_their_heights_and_one_legend():
    panels = {"cold": {"post": {0.1: [2.0, 3.0, 1.0], 1.0: [4.0, 6.0, 5.0]}, "pre": {0.1: [0.5], 1.0: [0.75]}},
              "warm": {"post": {0.1: [0.25], 1.0: [7.0]}, "pre": {0.1: [1.5], 1.0: [8.0]}}}  # fmt: skip
    cold, warm = axes(figures.runs_side_by_side, panels, "rate", "loss", ("guessing", 2.5))
    assert [ax.get_title() for ax in (cold, warm)] == ["cold", "warm"] and cold.get_ylim() == warm.get_ylim()
    assert curves(warm) == {"post": {"0.1": 0.25, "1": 7}, "pre": {"0.1": 1.5, "1": 8}}
    assert strokes(cold) == [
        [(0.1, 2), (0.1, 3), (0.1, 1)], [(1, 4), (1, 6), (1, 5)], [(0.1, 2), (1, 5)],
        [(0.1, 0.5)], [(1, 0.75)], [(0.1, 0.5), (1, 0.75)], [(0, 2.5), (1, 2.5)],
    ]  # fmt: skip
    assert cold.get_legend() is None
    assert [text.get_text() for text in warm.get_legend().get_texts()] == ["post", "pre"]
    assert places(cold) == places(warm) == {"guessing": (1, 2.5)}
    assert {ax.get_yscale() for ax in (cold, warm)} == {ax.get_xscale() for ax in (cold, warm)} == {"log"}
    assert labels(cold.xaxis) == labels(warm.xaxis) == {0.1: "0.1", 1: "1"}


@proven
def test_each_run_stands_at_what_may_have_caused_its_loss():
    panels = {"share": {"mixed": [(0.25, 3.0), (0.75, 1.0)], "looked up": [(0.5, 2.5)]},
              "spread": {"mixed": [(0.125, 3.0), (0.375, 1.0)], "looked up": [(0.25, 2.5)]}}  # fmt: skip
    share, spread = axes(figures.runs_by_cause, panels, "loss", ("guessing", 2.75), {"half": (0.5, 2.5)})
    assert (share.get_xlabel(), spread.get_xlabel(), share.get_ylabel()) == ("share", "spread", "loss")
    assert strokes(share) == [[(0.25, 3), (0.75, 1)], [(0.5, 2.5)], [(0, 2.75), (1, 2.75)]]
    assert strokes(spread) == [[(0.125, 3), (0.375, 1)], [(0.25, 2.5)], [(0, 2.75), (1, 2.75)]]
    assert share.get_ylim() == spread.get_ylim() and share.get_legend() is None
    assert [text.get_text() for text in spread.get_legend().get_texts()] == ["mixed", "looked up"]
    assert curves(spread) == {"mixed": {0.125: 3, 0.375: 1}, "looked up": {0.25: 2.5}}
    assert places(share) == {"guessing": (1, 2.75), "half": (0.5, 2.5)} and places(spread) == {"guessing": (1, 2.75)}


@proven
def test_a_row_shows_its_runs_setting_by_setting():
    groups = {"norms": {"post": {"0.1": [1.0, 3.0], "1": [None, 2.0]}},
              "others": {"pre": {"0.1": [0.5, 0.25], "1": [0.75, 1.5]}}}  # fmt: skip
    (ax,) = axes(figures.runs_in_rows, groups, "loss", level=("guessing", 2.5), highest=10)
    assert strokes(ax) == [
        [(0, 1), (1, 1)], [(1, 0.88), (3, 0.88)], [(2, 1.12)], [(10, 1.12)],
        [(0, 3), (1, 3)], [(0.5, 2.88), (0.25, 2.88)], [(0.75, 3.12), (1.5, 3.12)], [(2.5, 0), (2.5, 1)],
    ]  # fmt: skip
    assert labels(ax.yaxis) == {0: "norms", 1: "post", 2: "others", 3: "pre"} and ax.yaxis_inverted()
    assert [tick.get_fontweight() for tick in ax.get_yticklabels()] == ["bold", "normal"] * 2
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["0.1", "1"]
    assert places(ax) == {"guessing": (2.5, 1)}
    assert ax.xaxis.get_major_formatter()(0.5, 0) == "0.5"


@proven
def test_a_line_joins_the_runs_of_a_seed_and_the_differences_stand_beside():
    groups = {"wrong": [0.25, 0.5], "right": [0.75, 1.5]}
    differences = {"bare": {"slow": ([-0.5, -1.0], 0.125), "fast": ([0.5, 0.25], 0.25)}}
    left, right = axes(figures.paired_runs, groups, differences, "wrong − right", "loss")
    assert strokes(left) == [[(0.25, 0), (0.75, 1)], [(0.5, 0), (1.5, 1)]]
    assert labels(left.yaxis) == {0: "wrong", 1: "right"} and left.yaxis_inverted()
    assert left.get_title().startswith("a line joins") and right.get_title() == "wrong − right"
    assert strokes(right) == [
        [(0, 0), (0, 1)], [(-0.5, -0.05), (-1, -0.05)], [(-0.875, -0.18), (-0.625, -0.18)], [(-0.75, -0.18)],
        [(0.5, 0.31), (0.25, 0.31)], [(0.125, 0.18), (0.625, 0.18)], [(0.375, 0.18)],
    ]  # fmt: skip
    assert labels(right.yaxis) == {0: "bare"} and right.yaxis_inverted()
    assert [text.get_text() for text in right.get_legend().get_texts()] == ["slow", "fast"]


@proven
def test_the_norm_brings_the_sum_of_x_and_branch_back_to_length_one():
    one, both = axes(figures.branch_and_norm, (0.75,))
    assert (one.get_title(), both.get_title()) == ("r = 0.75", "the same branch for both, r = 0.75")
    assert near_all(arrows(one), [((0, 0), (1, 0)), ((1, 0), (1, 0.75)), ((0, 0), (1, 0.75)), ((0, 0), (0.8, 0.6))])
    assert near_all(strokes(one), [[(0.8, 0.6), (0.8, -0.12)], [(0, -0.12), (0.8, -0.12)]])
    assert near_all([[places(one)[word]] for word in ("0.80 left", "branch, 0.75", "$x$")],
                    [[(0.4, -0.19)], [(1.06, 0.375)], [(1.06, -0.02)]])  # fmt: skip
    ends = [[end] for _, end in arrows(both)]
    assert near_all(ends, [[(-1, 0)], [(-1, 0.75)], [(-0.8, 0.6)], [(1, 0)], [(1, 0.75)], [(0.8, 0.6)]])
    assert near_all(strokes(both), [[(-0.8, 0.6), (-1, 0.75)], [(0.8, 0.6), (1, 0.75)]])
    assert places(both) == {"two tokens: 180° apart": (0, -0.12), "106° apart": (0, 1.08)}


@proven
def test_a_mark_says_which_sublayer_was_passed_before_the_token_spread_was_measured():
    seeds = [[1.0, 0.5, 0.4, 0.2, 0.1], [0.9, 0.8, 0.7, 0.6, 0.3]]
    (ax,) = axes(figures.spread_by_sublayer, seeds, ["mix", "think"])
    assert strokes(ax) == [
        [(0, 1), (1, 0.5), (2, 0.4), (3, 0.2), (4, 0.1)], [(0, 0.9), (1, 0.8), (2, 0.7), (3, 0.6), (4, 0.3)],
        [(0, 1), (0, 0.9)], [(1, 0.5), (3, 0.2), (1, 0.8), (3, 0.6)], [(2, 0.4), (4, 0.1), (2, 0.7), (4, 0.3)],
    ]  # fmt: skip
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["after mix", "after think"]
    assert ax.get_yscale() == "log" and (ax.get_xlabel(), ax.get_ylabel()) == ("sublayers passed", "token spread")


@proven
def test_thin_lines_are_seeds_and_the_thick_one_is_their_mean():
    (ax,) = axes(figures.training_curves, {"one": [[3.0, 2.0, 1.0], [5.0, 2.0, 2.0]], "six": [[4.0, 3.0, 2.5]]}, "loss")
    assert strokes(ax)[:2] == [[(1, 3), (2, 2), (3, 1)], [(1, 5), (2, 2), (3, 2)]]
    assert strokes(ax)[3] == [(1, 4), (2, 3), (3, 2.5)]
    assert curves(ax) == {"one": {1: 4, 2: 2, 3: 1.5}, "six": {1: 4, 2: 3, 3: 2.5}}


@proven
def test_a_landscape_is_as_high_as_the_losses_are():
    side = torch.linspace(-1, 1, 9)
    steep = 10 ** (-1.5 * side + 0.5 * side[:, None] - 1)                 # rows go up, columns to the right
    flat = 10 ** (side + side[:, None] - 1.25)
    first, second, key = axes(figures.loss_landscapes, {"steep": (side, steep), "flat": (side, flat)})
    heights = {-4: "0.0001", -3: "0.001", -2: "0.01", -1: "0.1", 0: "1", 1: "10"}
    assert labels(key.yaxis) == heights
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


def test_seeds_whose_marks_coincide_are_counted():
    rows = {"norms": {"far": {"0.1": [None, 20.0, 0.5], "1": [2.0, 2.01, 2.0]}, "near": {"0.1": [1.0, 2.0, 3.0]}}}
    (ax,) = axes(figures.runs_in_rows, rows, "loss", highest=10)
    assert places(ax) == {"× 2": (10, 0.88), "× 3": (2.01, 1.12)}


@proven
def test_each_run_has_a_mark_in_the_row_of_its_group_and_each_group_its_mean():
    (ax,) = axes(viz.strip_plot, {"right": [0.25, 0.75], "wrong": [0.125]}, "loss")
    assert strokes(ax) == [
        [(0.25, -0.1), (0.75, 0.1)], [(0.5, -0.3), (0.5, 0.3)], [(0.125, 1)], [(0.125, 0.7), (0.125, 1.3)]
    ]  # fmt: skip
    assert labels(ax.yaxis) == {0: "right", 1: "wrong"} and ax.yaxis_inverted() and ax.get_xlabel() == "loss"


def test_groups_of_one_kind_look_alike():
    groups = {"a": [1.0], "b": [2.0], "c": [3.0]}

    def looks(kinds):
        (ax,) = axes(viz.strip_plot, groups, "loss", kinds=kinds)
        return [(line.get_color(), line.get_marker()) for line in ax.lines[::2]]

    a, b, c = looks({"a": "counts", "b": "networks", "c": "networks"})
    assert a != b == c and len(set(looks(None))) == 3


@proven
def test_a_mean_goes_over_a_row_or_a_column_of_one_sentence_or_a_column_of_all():
    panels = axes(figures.mean_axes, ["layer", "instance", "batch"], 2, 3, 4)
    assert [ax.get_title() for ax in panels] == ["layer", "instance", "batch"]
    blue = [{where[:2] for where, (face, _) in cells(ax).items() if face == to_hex(BLUE)} for ax in panels]
    row, column = {(x, 1) for x in range(4)}, {(2, y) for y in range(3)}     # the second sentence begins at 4
    assert blue == [row, column, column | {(2, 4 + y) for y in range(3)}]
    for ax in panels:
        assert {where[:2] for where in cells(ax)} == {(x, y) for x in range(4) for y in (0, 1, 2, 4, 5, 6)}
        assert [words.partition("\n")[0] for words, _, _ in texts(ax)] == ["sentence 1", "sentence 2", "4 features"]
