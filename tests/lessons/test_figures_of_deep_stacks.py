"""Figures of norms, blocks and gradients draw what they were given, and say in words what they show."""

import math

import pytest
import torch
from drawn import arrows, axes, boxed, cells, joined, labels, places, strokes, texts
from matplotlib.colors import to_hex
from matplotlib.patches import Circle, FancyArrowPatch
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
    figures.flows_and_walk({"residual": ([1.5, 3.0, 2e11], [1e12, 1e6, 20.0])}, [1.5, 2.0, 2.5])
    assert "residual: x from 1.5 at the bottom to 2e+11 at the top" in shown[0]
    assert "its gradient from 20 at the top to 1e+12 at the bottom" in shown[0]
    assert "; a random walk goes from 1.5 to 2.5." in shown[0]


def test_runs_over_rates_say_their_medians_and_the_level(shown):
    lines = {"cold": {0.1: [2.0, 3.0, 1.0], 1.0: [None, 4.0, None]}, "warm-up": {0.1: [0.5, 0.25]}}
    figures.runs_over(lines, "rate", "loss", level=("guessing", 2.5), highest=10)
    assert "loss against rate, a mark a seed" in shown[0]
    assert "cold: 2 at 0.1, above 10 at 1; warm-up: 0.38 at 0.1; guessing: 2.50." in shown[0]


def test_rows_say_every_run_and_those_that_left_the_numbers(shown):
    groups = {"norms": {"post": {"0.1": [1.0, None]}}, "others": {"pre": {"0.1": [0.5, 0.25]}}}
    figures.runs_in_rows(groups, "loss", highest=10)
    assert "loss, a mark a seed. norms. post: 0.1 1.00, none. others. pre: 0.1 0.50, 0.25." in shown[0]


def test_token_spreads_say_where_they_end_and_which_sublayer_takes_them(shown):
    figures.spread_by_sublayer([[1.0, 0.5, 0.5, 0.25, 0.25], [1.0, 0.125, 0.125, 0.125, 0.125]], ["mix", "think"])
    assert "after each of 4 sublayers, a line a seed: from 1.00 down to between 0.12 and 0.25." in shown[0]
    assert "On average mix multiplies it by 0.42, think multiplies it by 1.00." in shown[0]


def test_a_branch_and_its_norm_say_how_much_of_x_is_left(shown):
    figures.branch_and_norm((0.75, 2.0))
    assert "r = 0.75: the sum is 1.25 long, and 0.80 of x is left after the norm" in shown[0]
    assert "same branch of 2: 180° apart before, 53° after the norm" in shown[0]


def test_training_curves_say_how_far_the_seeds_are_apart(shown):
    figures.training_curves({"deep": [[3.0, 2.0, 1.0], [3.0, 2.0, 2.0]]}, "loss")
    assert "deep: from 3 to 1.5, the seeds end between 1 and 2." in shown[0]
    figures.training_curves({"deep": [[3.0, 2.0]]}, "loss", level=("guessing", 2.5))
    assert "; guessing: 2.50." in shown[1]


# What is drawn


@proven
def test_norm_steps_take_the_mean_off_and_bring_all_to_one_length():
    side, above = axes(figures.norm_steps, torch.tensor([[1.0, 1.0, 4.0], [-3.0, 0.0, 0.0]]))
    assert "edge-on" in side.get_title() and "from above" in above.get_title()
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
def test_each_placement_has_a_line_of_sizes_and_one_of_gradients_and_the_last_is_beside_a_walk():
    flows = {"plain": ([1.5, 3.0, 0.25], [4.0, 20.0, 8.0]), "other": ([2.0, 5.0, 6.0], [0.5, 0.25, 0.75])}
    up, back, alone = axes(figures.flows_and_walk, flows, [2.0, 4.0, 7.0])
    titles = [ax.get_title() for ax in (up, back, alone)]
    assert titles == ["size of x →", "← gradient of x", "size of x in other"]
    assert strokes(up) == [[(0, 1.5), (1, 3), (2, 0.25)], [(0, 2), (1, 5), (2, 6)]]
    assert strokes(back) == [[(0, 4), (1, 20), (2, 8)], [(0, 0.5), (1, 0.25), (2, 0.75)]]
    assert strokes(alone) == [[(0, 2), (1, 5), (2, 6)], [(0, 2), (1, 4), (2, 7)]]
    assert places(up) == {"plain": (2, 0.25), "other": (2, 6)}
    assert places(back) == {"plain": (0, 4), "other": (0, 0.5)}
    assert places(alone) == {"other": (2, 6), "random walk": (2, 7)}
    assert [ax.get_yscale() for ax in (up, back, alone)] == ["log", "log", "linear"]
    assert named_in_colour(up) == named_in_colour(back) == ["plain", "other"]


def named_in_colour(ax):
    """The words beside lines in the order of the lines, found by their colours."""
    words = {to_hex(text.get_color()): text.get_text() for text in ax.texts}
    return [words[colour] for line in ax.lines if (colour := to_hex(line.get_color())) in words]


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
    assert labels(ax.xaxis) == {0.1: "0.1", 1: "1"}
    assert places(ax) == {"guessing": (1, 2.5), "cold": (1, 10), "warm-up": (1, 7)}
    assert list(dict.fromkeys(named_in_colour(ax)))[:2] == ["cold", "warm-up"]


@proven
def test_panels_of_runs_share_their_heights_and_name_each_line():
    panels = {"cold": {"post": {0.1: [2.0, 3.0, 1.0], 1.0: [4.0, 6.0, 5.0]}, "pre": {0.1: [0.5], 1.0: [0.75]}},
              "warm": {"post": {0.1: [0.25], 1.0: [7.0]}, "pre": {0.1: [1.5], 1.0: [8.0]}}}  # fmt: skip
    at = {"cold": {"post": 0.1}}
    cold, warm = axes(figures.runs_side_by_side, panels, "rate", "loss", ("guessing", 2.5), named_at=at)
    assert [ax.get_title() for ax in (cold, warm)] == ["cold", "warm"] and cold.get_ylim() == warm.get_ylim()
    assert strokes(cold) == [
        [(0.1, 2), (0.1, 3), (0.1, 1)], [(1, 4), (1, 6), (1, 5)], [(0.1, 2), (1, 5)],
        [(0.1, 0.5)], [(1, 0.75)], [(0.1, 0.5), (1, 0.75)], [(0, 2.5), (1, 2.5)],
    ]  # fmt: skip
    assert strokes(warm) == [
        [(0.1, 0.25)], [(1, 7)], [(0.1, 0.25), (1, 7)], [(0.1, 1.5)], [(1, 8)], [(0.1, 1.5), (1, 8)],
        [(0, 2.5), (1, 2.5)],
    ]  # fmt: skip
    assert places(cold) == {"post": (0.1, 2), "pre": (1, 0.75), "guessing": (0, 2.5)}
    assert places(warm) == {"post": (1, 7), "pre": (1, 8), "guessing": (0, 2.5)}
    assert list(dict.fromkeys(named_in_colour(warm)))[:2] == ["post", "pre"]
    assert {ax.get_yscale() for ax in (cold, warm)} == {ax.get_xscale() for ax in (cold, warm)} == {"log"}
    assert labels(cold.xaxis) == labels(warm.xaxis) == {0.1: "0.1", 1: "1"}


def test_names_that_would_touch_stand_one_above_the_other_and_the_others_beside_their_lines():
    lines = {"low": {1: [1.0]}, "high": {1: [1.01]}, "far": {1: [9.0]}}
    (ax,) = axes(figures.runs_over, lines, "rate", "loss")
    moved = {text.get_text(): text.xyann[1] for text in ax.texts}
    assert moved["high"] - moved["low"] > 12 and abs(moved["far"]) < 7


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
def test_the_norm_brings_the_sum_of_x_and_branch_back_to_length_one():
    one, both = axes(figures.branch_and_norm, (0.75,))
    assert (one.get_title(), both.get_title()) == ("r = 0.75", "the same branch for both, r = 0.75")
    assert near_all(arrows(one), [((0, 0), (1, 0)), ((1, 0), (1, 0.75)), ((0, 0), (1, 0.75)), ((0, 0), (0.8, 0.6))])
    assert near_all(strokes(one), [[(0.8, 0.6), (0.8, -0.22)], [(0, -0.22), (0.8, -0.22)]])
    assert near_all([[places(one)[word]] for word in ("0.80 left", "branch, 0.75", "$x$")],
                    [[(0.4, -0.29)], [(1.06, 0.375)], [(1.06, -0.06)]])  # fmt: skip
    ends = [[end] for _, end in arrows(both)]
    assert near_all(ends, [[(-1, 0)], [(-1, 0.75)], [(-0.8, 0.6)], [(1, 0)], [(1, 0.75)], [(0.8, 0.6)]])
    assert near_all(strokes(both), [[(-0.8, 0.6), (-1, 0.75)], [(0.8, 0.6), (1, 0.75)]])
    assert places(both) == {"two tokens: 180° apart": (0, -0.12), "after the norm:\n106° apart": (0, 1.08)}


@proven
def test_a_mark_says_which_sublayer_was_passed_before_the_token_spread_was_measured():
    seeds = [[1.0, 0.5, 0.4, 0.2, 0.1], [0.9, 0.8, 0.7, 0.6, 0.3]]
    (ax,) = axes(figures.spread_by_sublayer, seeds, ["mix", "think"])
    assert strokes(ax) == [
        [(0, 1), (1, 0.5), (2, 0.4), (3, 0.2), (4, 0.1)], [(0, 0.9), (1, 0.8), (2, 0.7), (3, 0.6), (4, 0.3)],
        [(0, 1), (0, 0.9)], [(1, 0.5), (3, 0.2), (1, 0.8), (3, 0.6)], [(2, 0.4), (4, 0.1), (2, 0.7), (4, 0.3)],
    ]  # fmt: skip
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["after mix: × 0.66", "after think: × 0.65"]
    assert ax.get_yscale() == "log" and (ax.get_xlabel(), ax.get_ylabel()) == ("sublayers passed", "token spread")


@proven
def test_thin_lines_are_seeds_and_the_thick_one_is_their_mean():
    (ax,) = axes(figures.training_curves, {"one": [[3.0, 2.0, 1.0], [5.0, 2.0, 2.0]], "six": [[4.0, 3.0, 2.5]]}, "loss")
    assert strokes(ax)[:2] == [[(1, 3), (2, 2), (3, 1)], [(1, 5), (2, 2), (3, 2)]]
    assert strokes(ax)[3] == [(1, 4), (2, 3), (3, 2.5)]
    assert strokes(ax)[2] == [(1, 4), (2, 2), (3, 1.5)] and strokes(ax)[4] == [(1, 4), (2, 3), (3, 2.5)]
    assert places(ax) == {"one": (3, 1.5), "six": (3, 2.5)}
    assert list(dict.fromkeys(named_in_colour(ax))) == ["one", "six"]


def test_seeds_whose_marks_coincide_are_counted():
    rows = {"norms": {"far": {"0.1": [None, 20.0, 0.5], "1": [2.0, 2.01, 2.0]}, "near": {"0.1": [1.0, 2.0, 3.0]}}}
    (ax,) = axes(figures.runs_in_rows, rows, "loss", highest=10)
    assert places(ax) == {"2 seeds above 10": (10, 0.88), "3 seeds": (2.01, 1.12)}


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
def test_a_mean_goes_over_a_row_or_over_a_column_of_all_sentences():
    panels = axes(figures.mean_axes, ["layer", "batch"], 2, 3, 4)
    assert [ax.get_title() for ax in panels] == ["layer", "batch"]
    blue = [{where[:2] for where, (face, _) in cells(ax).items() if face == to_hex(BLUE)} for ax in panels]
    row, column = {(x, 1) for x in range(4)}, {(2, y) for y in range(3)}     # the second sentence begins at 4
    assert blue == [row, column | {(2, 4 + y) for y in range(3)}]
    for ax in panels:
        assert {where[:2] for where in cells(ax)} == {(x, y) for x in range(4) for y in (0, 1, 2, 4, 5, 6)}
        assert [words.partition("\n")[0] for words, _, _ in texts(ax)] == ["sentence 1", "sentence 2", "4 features"]


def test_each_path_is_said_with_its_term(shown):
    figures.residual_paths()
    terms = "I, past both; J_1, through f_1; J_2, through f_2; J_2 J_1, through f_1 and through f_2."
    assert f"and their terms: {terms}" in shown[0]


# The parts of the network, where each bends and where its arrow ends: of each branch the way around, out and back, and
# the stream before, between and after.
PARTS = (
    [(0, 0.8), (0, 2.2)], [(0, 0.8), (1.7, 0.8), (1.7, 1.2)], [(1.7, 2.2), (1.7, 2.55), (0.34, 2.55)],
    [(0, 3.4), (0, 4.8)], [(0, 3.4), (1.7, 3.4), (1.7, 3.8)], [(1.7, 4.8), (1.7, 5.15), (0.34, 5.15)],
    [(0, 0.35), (0, 0.8)], [(0, 2.89), (0, 3.4)], [(0, 5.49), (0, 5.95)],
)  # fmt: skip
STREAM = {6, 7, 8}


@proven
def test_each_term_of_the_jacobian_is_a_path_around_or_through_each_branch():
    panels = axes(figures.residual_paths)
    titles = ["around both", "through $f_1$", "through $f_2$", "through $f_1$ and $f_2$"]
    assert [ax.get_title() for ax in panels] == titles
    terms = [[(words, x) for words, x, y in texts(ax) if y < 0] for ax in panels]
    before = [("∂output/∂$x$  =", -1.4)] + 3 * [("+", -1.4)]
    assert terms == [[(term, 0.65), sign]
                     for term, sign in zip(("$I$", "$J_1$", "$J_2$", "$J_2\\, J_1$"), before, strict=True)]  # fmt: skip
    pale, _ = next(iter(cells(panels[0]).values()))
    for ax, path in zip(panels, ({0, 3}, {1, 2, 3}, {0, 4, 5}, {1, 2, 4, 5}), strict=True):
        heads = [patch for patch in ax.patches if isinstance(patch, FancyArrowPatch)]
        assert [[*line, end] for line, (_, end) in zip(strokes(ax), arrows(ax), strict=True)] == [*PARTS]
        for drawn in ([line.get_color() for line in ax.lines], [to_hex(head.get_edgecolor()) for head in heads]):
            assert {i for i, colour in enumerate(drawn) if to_hex(colour) == to_hex(BLUE)} == STREAM | path
        at = places(ax, "$f_1$", "$f_2$", "$x$", "output")
        assert at == {"$f_1$": (1.7, 1.7), "$f_2$": (1.7, 4.3), "$x$": (0, 0), "output": (0, 6.3)}
        inside = [name for name, (colour, _) in zip(boxed(ax), cells(ax).values(), strict=True) if colour != pale]
        assert inside == [name for name, around in (("$f_1$", 0), ("$f_2$", 3)) if around not in path]
        assert [circle.center for circle in ax.patches if isinstance(circle, Circle)] == [(0, 2.55), (0, 5.15)]


@proven
def test_more_seeds_of_a_flow_are_drawn_thin_in_its_colour():
    flows = {"plain": ([1.5, 3.0], [4.0, 20.0]), "other": ([2.0, 5.0], [0.5, 0.25])}
    up, back, alone = axes(figures.flows_and_walk, flows, [2.0, 4.0], {"other": [([2.5, 6.0], [0.4, 0.2])]})
    assert strokes(up) == [[(0, 1.5), (1, 3)], [(0, 2), (1, 5)], [(0, 2.5), (1, 6)]]
    assert strokes(back) == [[(0, 4), (1, 20)], [(0, 0.5), (1, 0.25)], [(0, 0.4), (1, 0.2)]]
    for ax in (up, back):
        plain, other, seed = ax.lines
        assert seed.get_color() == other.get_color() != plain.get_color()
        assert seed.get_linewidth() < 1 < other.get_linewidth()
    assert strokes(alone) == [[(0, 2), (1, 5)], [(0, 2), (1, 4)]], "of the first seed alone"
    assert places(up) == {"plain": (1, 3), "other": (1, 5)}
    assert places(back) == {"plain": (0, 4), "other": (0, 0.4)}, "under the lowest of its seeds"
    assert places(alone) == {"other": (1, 5), "random walk": (1, 4)}
    assert [ax.get_title() for ax in (up, back, alone)] == ["size of x →", "← gradient of x", "size of x in other"]


@proven
def test_a_line_beside_another_has_its_colour_and_dots_and_no_marks():
    runs = {"run": {1: [1.0, 2.0, 4.0], 2: [4.0, 5.0, 7.0]}, "third": {1: [9.0], 2: [8.0]},
            "guess": {1: [1.5], 2: [2.5]}}  # fmt: skip
    (ax,) = axes(figures.runs_over, runs, "x", "y", join_seeds=True, beside={"guess": "run"})
    thin, lines = ax.lines[:5], [line for line in ax.lines[5:] if len({*line.get_xdata()}) > 1]
    assert strokes(ax)[:5] == [[(1, 1), (2, 4)], [(1, 2), (2, 5)], [(1, 4), (2, 7)], [(1, 9), (2, 8)],
                               [(1, 1.5), (2, 2.5)]]  # fmt: skip
    assert [[*line.get_ydata()] for line in lines] == [[2, 5], [9, 8], [1.5, 2.5]]
    run, third, guess = lines
    assert run.get_color() == guess.get_color() == thin[4].get_color() != third.get_color()
    assert [line.get_linestyle() for line in (*lines, thin[0], thin[4])] == ["-", "-", ":", "-", ":"]
    marks = [[*map(tuple, zip(*line.get_data(), strict=True))] for line in ax.lines[5:]
             if line.get_marker() not in ("", "None")]  # fmt: skip
    assert marks[:4] == [[(1, 1), (1, 2), (1, 4)], [(2, 4), (2, 5), (2, 7)], [(1, 9)], [(2, 8)]]
    assert len(marks) == 4, "none of the guess"
    assert places(ax) == {"run": (2, 5), "third": (2, 8), "guess": (2, 2.5)}
    named = {text.get_text(): text.get_color() for text in ax.texts}
    assert named == {name: line.get_color() for name, line in zip(runs, lines, strict=True)}
