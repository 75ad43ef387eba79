"""Figures of averages and masks draw what they were given, and say in words what they show."""

from itertools import pairwise

import pytest
import torch
from drawn import arrows, axes, cells, grid, labels, strokes, texts, written
from matplotlib.colors import to_hex
from proven import proven

from attncourse.attention import causal_mask, masked_softmax
from attncourse_lessons import course

figures = course.part("masking", "figures")

WORDS = ["pad", "the", "chef"]


def test_pots_say_how_much_of_what_they_spanned_is_left():
    square = torch.tensor([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0], [1.0, 1.0], [0.5, 0.5]])
    _, before = figures.mixing_rounds([square, square / 2], 0)
    drawn, after = figures.mixing_rounds([square, square / 2], 1)
    assert before.startswith("5 pots of paint, each in its colour") and "before the first round" in before
    assert "after 1 round." in after and "50% of the spread is left" in after
    drawn_at_5, mixed = figures.mixing_rounds([square, square / 2], 1, 5.0)
    assert drawn_at_5.axes[0].get_title() == "the pots at sharpness 5" and "mixed at sharpness 5, each" in mixed
    assert drawn.axes[0].get_title() == "the pots"
    assert drawn.axes[1].get_title() == "after 1 round:\n50% of the spread is left"


def test_who_hears_whom_counts_the_leaks_above_the_diagonal_alone(shown):
    clean = torch.tensor([[1.0, 0.0], [2.0, 1.0]])
    figures.dependence_maps({"masked": clean, "not masked": clean + 1})
    assert "masked: nothing leaks; not masked: 1 of 1 places leak." in shown[0]


def test_teacher_forcing_says_which_beginning_must_give_which_word(shown):
    figures.teacher_forcing(["<start>", "the", "chef"])
    assert "2 positions" in shown[0] and "<start> → the; <start> the → chef." in shown[0]


# What is drawn


POTS = [torch.tensor([[0.0, 0.0], [1.0, 0.0], [0.0, 0.75], [1.0, 0.75], [0.5, 0.25]])]
POTS += [POTS[0] * torch.tensor([0.5, 1.0]), POTS[0] / 2]


@proven
@pytest.mark.parametrize(("at", "title"), [(0, "before"), (1, "after 1 round:\n76% of the spread is left")])
def test_pots_stand_at_their_red_and_blue_inside_the_hulls_of_the_rounds_before(at, title):
    rows, plane = axes(figures.mixing_rounds, POTS, at)
    assert strokes(plane) == [[tuple(place)] for place in POTS[at].tolist()]
    assert strokes(rows) == [[(i + 0.5, at + 0.5)] for i in range(5)]
    assert [mark.get_marker() for mark in rows.lines] == [mark.get_marker() for mark in plane.lines]
    assert (plane.get_xlabel(), plane.get_ylabel(), plane.get_title()) == ("red", "blue", title)
    hulls = [{tuple(corner) for corner in patch.get_xy().tolist()} for patch in plane.patches]
    assert hulls == [{tuple(corner) for corner in pots[:4].tolist()} for pots in POTS[: at + 1]]
    assert texts(plane) == [("round 0", 1, 0.75)][:at]                                    # at a topmost corner
    colours = [line.get_color() for line in plane.lines]
    assert colours == [(x, 0.15, y) for x, y in POTS[at].tolist()]
    assert {line.get_markerfacecolor() for line in plane.lines} == {"none"}
    assert rows.yaxis_inverted() and plane.get_aspect() == 1
    assert labels(rows.xaxis) == {i + 0.5: name for i, name in enumerate("ABCDE")}
    assert labels(rows.yaxis) == {turn + 0.5: str(turn) for turn in range(3)}
    squares = {(int(x), int(y)): colour for (x, y, *_), (colour, _) in cells(rows).items()}
    assert squares == {
        (i, turn): to_hex((red, 0.15, blue))
        for turn, pots in enumerate(POTS[: at + 1]) for i, (red, blue) in enumerate(pots.tolist())
    }  # fmt: skip


def test_pots_that_are_close_together_have_small_marks_and_their_shape_is_enlarged():
    together = [POTS[0], POTS[0], POTS[0], POTS[0] / 8]
    _, plane = axes(figures.mixing_rounds, together, 2)
    assert not plane.child_axes and {line.get_markersize() for line in plane.lines} == {10}
    _, plane = axes(figures.mixing_rounds, together, 3)
    corners = [("round 0", 1, 0.75), ("round 1", 0, 0)]                  # topmost, leftmost: the first of each
    assert [words for words in texts(plane) if words[0].startswith("round")] == corners
    assert {line.get_markersize() for line in plane.lines} == {5}
    (inset,) = plane.child_axes
    assert strokes(inset) == [[tuple(place)] for place in together[3].tolist()]
    assert inset.get_xlim() == pytest.approx((-0.03125, 0.15625)) and inset.get_title() == "enlarged"


@proven
def test_attention_joins_all_tokens_and_the_network_stays_in_each_ones_column():
    (ax,) = axes(figures.position_wise, ["the", "chef", "ran"], 4, 16)
    lines = strokes(ax)
    assert lines[:9] == [[(j, 0), (i, 1)] for i in range(3) for j in range(3)]
    assert lines[9:] == [[(i, 0) for i in range(3)]]
    boxes = sorted((round(x + width / 2, 6), round(y + height / 2, 6), round(width, 6))
                   for x, y, width, height in cells(ax))  # fmt: skip
    assert boxes == [(i, y, width) for i in range(3) for y, width in ((1.11, 0.21), (2.01, 0.84), (2.91, 0.21))]
    assert all(start[0] == end[0] and start[1] < end[1] for start, end in arrows(ax)) and len(arrows(ax)) == 6
    said = sorted((y, words) for words, x, y in texts(ax) if x > 2.1)
    assert [words for _, words in said][1:] == [
        r"$d_\mathrm{model}$ = 4", r"the same $W_1, b_1$ for all", r"$d_\mathrm{ff}$ = 16, max(0, ·)",
        r"the same $W_2, b_2$ for all", r"$d_\mathrm{model}$ = 4",
    ]  # fmt: skip
    beside = [(round(x, 2), round(y, 2), words) for words, x, y in texts(ax) if "$W" in words and "same" not in words]
    assert beside == [(i + 0.06, y, words) for i in range(3)
                      for y, words in ((1.56, "$W_1, b_1$"), (2.46, "$W_2, b_2$"))]  # fmt: skip
    assert [words for words, x, y in texts(ax) if y < 0] == ["the", "chef", "ran"]


def test_the_network_says_how_wide_it_is_where(shown):
    figures.position_wise(["a", "b"], d_model=4, d_ff=16)
    assert "its vector, 4 wide, times W_1 gives a hidden layer, 16 wide" in shown[0]


RUNS = {"alone": torch.tensor([[1.0, 0.01, 0.0001], [1.0, 0.0001, 0.000001]]),
        "residual": torch.tensor([[0.75, 0.5, 0.25], [0.75, 0.5, 0.25]]),
        "norm": torch.tensor([[0.75, 0.5, 0.5], [0.75, 0.5, 0.5]])}  # fmt: skip


@proven
def test_each_seed_has_its_line_and_a_thick_one_with_its_name_goes_through_the_mean_of_the_logarithms():
    (ax,) = axes(figures.shares_not_common, RUNS, numbers=(1, 2))
    thick = {line.get_color(): stroke for line, stroke in zip(ax.lines, strokes(ax), strict=True)
             if line.get_linewidth() > 2}  # fmt: skip
    said = {words.split(":")[0]: words for words, *_ in texts(ax)}
    assert [said[name] for name in RUNS] == ["alone", "residual: 0.25", "norm: 0.50"]    # where they end, if it is seen
    names = {words.split(":")[0]: (text.get_color(), y) for text, (words, x, y) in zip(ax.texts, texts(ax), strict=True)
             if words.split(":")[0] in RUNS}
    means = {"alone": [1, 0.001, pytest.approx(1e-5, rel=1e-4)], "residual": [0.75, 0.5, 0.25],
             "norm": [0.75, 0.5, 0.5]}  # fmt: skip
    assert {name: thick[colour] for name, (colour, _) in names.items()} == {
        name: [(i, pytest.approx(mean)) for i, mean in enumerate(run)] for name, run in means.items()
    }
    # From the top, in the order of the lines' ends, and no two less than a power of ten apart.
    heights = [y for _, y in names.values()]
    assert sorted(names, key=lambda name: -names[name][1]) == ["norm", "residual", "alone"]
    assert all(high > 10 * low for high, low in pairwise(sorted(heights, reverse=True)))
    thin = [(line.get_color(), [y for _, y in stroke]) for line, stroke in zip(ax.lines, strokes(ax), strict=True)
            if line.get_linewidth() < 1]  # fmt: skip
    assert thin == [(names[name][0], pytest.approx(seed.tolist())) for name, run in RUNS.items() for seed in run]
    rounding = [stroke for line, stroke in zip(ax.lines, strokes(ax), strict=True) if line.get_linestyle() == ":"]
    assert rounding == [[(0, pytest.approx(2.22e-16, rel=1e-2)), (1, pytest.approx(2.22e-16, rel=1e-2))]]
    said = [(words, x) for words, x, _ in texts(ax) if words.split(":")[0] not in RUNS]
    assert said == [("$\\mathbf{1 \\cdot 10^{-3}}$", 1.25), ("$\\mathbf{1 \\cdot 10^{-5}}$", 2.25), ("rounding", 0)]
    assert (ax.get_yscale(), ax.get_xlabel(), ax.get_ylabel()) == ("log", "layer", "share not common to all tokens")


def test_many_layers_stand_in_a_panel_of_their_own_with_names_and_numbers():
    late = {"residual": torch.tensor([[1.0, 0.5, 0.25, 0.125]] * 2)}
    early, many = axes(figures.shares_not_common, RUNS, late=late)
    assert [words for words, *_ in texts(many)] == ["0.12"]
    assert [name.get_text() for name in early.figure.legends[0].get_texts()] == [*RUNS]
    assert strokes(many) == [[(0, 1), (1, 0.5), (2, 0.25), (3, 0.125)]] * 3              # the mean, and two seeds
    assert {line.get_color() for line in many.lines} == {early.lines[3].get_color()}     # as in the first panel
    assert (many.get_yscale(), many.get_ylim()[0]) == ("linear", 0)


def test_shares_are_told_and_zero_is_refused_on_a_logarithmic_axis(shown):
    figures.shares_not_common(RUNS)
    assert "2 seeds" in shown[0] and "residual: 0.5 after the first layer, 0.25 after the last" in shown[0]
    with pytest.raises(ValueError, match="expected numbers above 0"):
        figures.shares_not_common({"zero": torch.zeros(1, 2)})


def test_where_minus_infinity_replaces_a_score_no_nan_reaches_the_gradient():
    # The lecture says so in an answer: additive masks spoil the gradient, replaced scores and masked_softmax do not.
    generator = torch.Generator().manual_seed(0)
    values, W = torch.randn(5, 8, generator=generator), torch.randn(8, 8, generator=generator).requires_grad_()
    mask = causal_mask(5) & (torch.arange(5) >= 2)
    scores = values @ W @ values.mT / 8

    def gradient(weights):
        return torch.autograd.grad((weights @ values)[2:].square().mean(), W, retain_graph=True)[0]

    added = (scores + torch.where(mask, 0.0, -torch.inf)).softmax(dim=-1).nan_to_num()
    replaced = torch.where(mask, scores, -torch.inf).softmax(dim=-1).nan_to_num()
    assert gradient(added).isnan().all()
    assert torch.allclose(gradient(replaced), gradient(masked_softmax(scores, mask)), atol=1e-6)


@proven
def test_what_fires_sends_its_value_to_the_output_by_an_arrow_as_wide_as_it_fires():
    W_1 = torch.tensor([[1.0, -1.0, 0.25], [0.5, 1.0, 0.5]])
    W_2 = torch.tensor([[0.5, 2.0], [-3.0, 4.0], [1.0, -0.75]])
    (ax,) = axes(figures.hidden_units, torch.tensor([1.0, 0.5]), W_1, W_2)
    said = sorted(texts(ax), key=lambda text: (-text[2], text[1]))
    rows = {y: [words for words, _, at in said if at == y] for y in (2, 1, 0)}
    assert rows[2] == ["1", "0.5", "1.25", "1.25", "0.5", "2"]
    assert rows[1] == ["1", "0.5", "−1", "1", "−0.5", "0", "−3", "4", "1.12", "2.12"]     # token, unit 2, output
    assert rows[0] == ["0.25", "0.5", "0.5", "0.5", "1", "−0.75"]
    assert said[0][0].startswith(("keys", "max", "output", "token", "values", "x"))
    columns = {words: round(x, 2) for words, x, y in said if y > 2.5}
    assert columns == {"token x": 0.62, "keys: columns\nof $W_1$": 2.76, "x · key": 4.18, "max(0, ·)": 5.23,
                       "values: rows\nof $W_2$": 7.4, "output": 9.84}  # fmt: skip
    firing = [(arrow._posA_posB[0][1], arrow._posA_posB[1][1], arrow.get_linewidth()) for arrow in ax.patches
              if hasattr(arrow, "_posA_posB") and to_hex(arrow.get_edgecolor()) == "#d55e00"]  # fmt: skip
    assert firing == [(2, 2, 3.75), (2, 1, 3.75), (0, 0, 1.5), (0, 1, 1.5)]
    ways = [tuple(round(number, 2) for point in way for number in point) for way in arrows(ax)]
    assert [way for way in ways if way[0] == 1.24] == [(1.24, 1, 2.14, y) for y in (2, 1, 0)]      # x to every key
    assert [way for way in ways if way[2] == 9.22] == [(8.02, 2, 9.22, 1), (8.02, 0, 9.22, 1)]     # values to output
    assert [way for way in ways if way[0] == 4.53] == [(4.53, y, 4.88, y) for y in (2, 1, 0)]
    looks = {(round(x, 2), round(y, 2)): colour for (x, y, *_), (colour, _) in cells(ax).items()}
    assert looks[6.78, 0.76] == looks[7.4, 0.76] == "#ffffff" not in {looks[6.78, 1.76], looks[6.78, -0.24]}
    assert looks[0, 0.76] == looks[9.22, 0.76] != looks[2.14, 0.76] == looks[2.14, 1.76] == looks[6.78, 1.76]


def test_hidden_units_are_told_and_matrices_that_do_not_fit_are_refused(shown):
    figures.hidden_units(torch.ones(2), torch.tensor([[1.0, -1.0], [1.0, -1.0]]), torch.eye(2))
    assert "unit 1: x · key = 2, fires with 2; unit 2: x · key = −2, silent." in shown[0]
    assert shown[0].endswith("times that: 2, 0.")
    with pytest.raises(ValueError, match="W_2"):
        figures.hidden_units(torch.ones(2), torch.ones(2, 3), torch.ones(2, 2))


@proven
def test_a_loss_is_a_line_a_seed_and_the_least_possible_lies_level():
    runs = {"no mask": [[2.0, 1.0, 0.1], [2.0, 1.5, 0.2]], "mask": [[2.0, 1.0, 0.5]]}
    (ax,) = axes(figures.losses_of_runs, runs, 0.3)
    assert [[y for _, y in stroke] for stroke in strokes(ax)] == [[2, 1, 0.1], [2, 1.5, 0.2], [2, 1, 0.5], [0.3, 0.3]]
    names = [(words, y, text.get_color()) for text, (words, _, y) in zip(ax.texts, texts(ax), strict=True)]
    assert names == [("no mask: 0.10–0.20", pytest.approx(0.02**0.5, rel=1e-4), ax.lines[0].get_color()),
                     ("mask: 0.50", 0.5, ax.lines[2].get_color()),
                     ("least possible: 0.300", pytest.approx(0.261), ax.lines[3].get_color())]  # fmt: skip
    assert [[x for x, _ in stroke] for stroke in strokes(ax)[:3]] == [[1, 2, 3]] * 3
    assert len({line.get_color() for line in ax.lines}) == 3
    assert all(float(words) == at for at, words in labels(ax.yaxis).items()) and 0.3 in labels(ax.yaxis)
    assert ax.lines[0].get_color() == ax.lines[1].get_color() and ax.get_yscale() == "log"


def test_losses_are_smoothed_over_a_fortieth(shown):
    figures.losses_of_runs({"a": [[4.0] * 40 + [2.0] * 39 + [3.0]]}, 1.0)
    assert "the least possible is 1.000. a ends at 2.5." in shown[0]


@proven
def test_forbidden_scores_are_hatched_and_a_low_score_is_not():
    scores = torch.tensor([[0.5, 9.0, 9.0], [-3.0, 1.0, 9.0], [0.25, 2.0, -1.0]])
    left, right = axes(figures.masked_scores, scores, causal_mask(3), WORDS)
    assert (left.get_title(), right.get_title()) == ("scores", "weights")
    assert written(left) == {
        "pad": {"pad": "0.50", "the": "−∞", "chef": "−∞"},
        "the": {"pad": "−3.00", "the": "1.00", "chef": "−∞"},
        "chef": {"pad": "0.25", "the": "2.00", "chef": "−1.00"},
    }
    weights = masked_softmax(scores, causal_mask(3))
    assert written(right) == {
        row: {word: f"{weights[i, j]:.2f}" if j <= i else "0" for j, word in enumerate(WORDS)}
        for i, row in enumerate(WORDS)
    }
    for ax in (left, right):
        looks = {(y, x): look for (x, y, *_), look in cells(ax).items()}
        assert {place for place, (_, hatch) in looks.items() if hatch} == {(0, 1), (0, 2), (1, 2)}
        assert all(colour != "#ffffff" for colour, hatch in looks.values() if not hatch)  # the lowest has one, too
    dark = {place: -sum(int(colour[i : i + 2], 16) for i in (1, 3, 5))
            for place, (colour, hatch) in looks.items() if not hatch}  # fmt: skip
    assert sorted(dark, key=dark.get)[::-1][:2] == [(0, 0), (1, 1)]
    assert [words for words, x, _ in sorted(texts(right), key=lambda text: text[2]) if x > 3] == ["sum"] + ["1.00"] * 3


def test_masked_scores_are_told_row_by_row(shown):
    figures.masked_scores(torch.zeros(3, 3), causal_mask(3), WORDS)
    assert "3 forbidden cells are hatched" in shown[0] and "the gives 0.50 to pad, 0.50 to the" in shown[0]
    with pytest.raises(TypeError, match="mask"):
        figures.masked_scores(torch.zeros(3, 3), torch.ones(3, 3), WORDS)


ZOO = {"causal": (["1", "2", "3"], ["1", "2", "3"], causal_mask(3)),
       "cross": (["t1", "pad"], ["s1", "s2", "pad"], torch.tensor([True, True, False]).expand(2, 3))}  # fmt: skip


@proven
def test_each_mask_of_the_zoo_hatches_what_is_forbidden_and_pales_rows_of_padding():
    causal, cross = axes(figures.mask_zoo, ZOO, columns=2)
    for ax, (asking, answering, mask) in zip((causal, cross), ZOO.values(), strict=True):
        assert list(labels(ax.yaxis).values()) == asking and list(labels(ax.xaxis).values()) == answering
        looks = {(y, x): look for (x, y, *_), look in cells(ax).items()}
        allowed = {tuple(place) for place in mask.nonzero().tolist()}
        assert {place for place, (_, hatch) in looks.items() if not hatch} == allowed
        assert ax.yaxis_inverted()
    colours = {place: colour for place, (colour, hatch) in looks.items() if not hatch}
    assert colours[0, 0] == colours[0, 1] != colours[1, 0] == colours[1, 1]
    assert (causal.get_title(), cross.get_title()) == ("causal", "cross")
    assert (causal.get_ylabel(), cross.get_ylabel()) == ("queries", "target queries")
    assert (causal.get_xlabel(), cross.get_xlabel()) == ("keys", "source keys")
    assert causal.get_anchor() == cross.get_anchor() == "N"
    assert causal.title.get_position()[1] == cross.title.get_position()[1] == 1


def test_the_zoo_says_how_many_pairs_and_refuses_what_is_no_mask(shown):
    figures.mask_zoo(ZOO)
    assert "causal: 6 of 9 pairs; 3, the last, attends to 1, 2, 3. cross: 4 of 6 pairs" in shown[0]
    with pytest.raises(TypeError, match="mask 'a'"):
        figures.mask_zoo({"a": (["1"], ["1"], torch.ones(1, 1))})


@proven
def test_a_map_of_influence_has_a_row_an_output_and_a_cross_at_each_leak():
    maps = {"masked": torch.tensor([[1.0, 0.0, 0.0], [2.0, 1.0, 0.0], [0.5, 0.0, 2.0]]),
            "leaky": torch.tensor([[4.0, 1.0, 0.0], [0.0, 0.25, 0.0], [0.25, 0.0, 1.0]])}  # fmt: skip
    masked, leaky = axes(figures.dependence_maps, maps)
    assert (masked.get_title(), leaky.get_title()) == ("masked:\nno leak", "leaky:\nleaks")
    root = round(0.5**0.5, 6)                                            # the scale goes by roots
    assert grid(masked) == [[root, 0, 0], [1, root, 0], [0.5, 0, 1]]
    assert grid(leaky) == [[1, 0.5, 0], [0, 0.25, 0], [0.25, 0, 0.5]]
    assert strokes(masked) == [] and strokes(leaky) == [[(1, 0)]]        # input 1 reaches output 0, which is earlier
    assert (masked.get_xlabel(), masked.get_ylabel()) == ("input position", "output position")
    for axis in (masked.xaxis, masked.yaxis, leaky.xaxis, leaky.yaxis):
        assert labels(axis) == {0: "1", 1: "2", 2: "3"}


@proven
def test_each_way_of_a_mask_has_a_panel_with_its_weights_and_their_sums():
    ways = {"a": torch.tensor([[1.0, 0.0, 0.0], [0.5, 0.3, 0.2], [torch.nan] * 3]),
            "b": torch.tensor([[0.0, 0.0, 0.0], [0.25, 0.5, 0.0], [0.75, 0.15, 0.1]])}  # fmt: skip
    panels = axes(figures.mask_ways, causal_mask(3), ways, WORDS)
    assert [ax.get_title() for ax in panels] == ["a", "b"] and all(ax.yaxis_inverted() for ax in panels)
    numbers = [sorted((y, x, words) for words, x, y in texts(ax) if x < 3) for ax in panels]
    assert [[words for *_, words in said] for said in numbers] == [
        ["1.00", "0", "0", "0.50", "0.30", "0.20", "NaN", "NaN", "NaN"],
        ["0", "0", "0", "0.25", "0.50", "0", "0.75", "0.15", "0.10"],
    ]  # fmt: skip
    sums = [[words for words, x, _ in sorted(texts(ax), key=lambda text: text[2]) if x > 3] for ax in panels]
    assert sums == [["sum", "1.00", "1.00", "NaN"], ["sum", "0.00", "0.75", "1.00"]]
    frames = [[place for place in cells(ax) if place[2] < 1] for ax in panels]
    assert frames == [[(2.06, 1.06, 0.88, 0.88)], []]
    hatched = [{(y, x) for (x, y, *_), (_, hatch) in cells(ax).items() if hatch} for ax in panels]
    assert hatched == [{(0, 1), (0, 2)}, {(0, 1), (0, 2), (1, 2)}]
    colours = {place[:2]: colour for ax in panels for place, (colour, _) in cells(ax).items() if place[2] == 1}
    assert len({colours[0, 0], colours[0, 1], colours[1, 1], colours[0, 2]}) == 4
    looks = [{(y, x): colour for (x, y, w, _), (colour, _) in cells(ax).items() if w == 1} for ax in panels]
    assert looks[0][2, 0] == looks[0][2, 1] == looks[0][2, 2] not in looks[1].values()
    dark = [{place: -sum(int(colour[i : i + 2], 16) for i in (1, 3, 5)) for place, colour in look.items()}
            for look in looks]  # fmt: skip
    assert dark[0][0, 0] > dark[0][1, 0] > dark[0][1, 1] > dark[0][1, 2]
    assert dark[1][2, 0] > dark[1][1, 1] > dark[1][1, 0] > dark[1][2, 1] > dark[1][2, 2] > dark[1][0, 0]
    assert [list(labels(ax.yaxis).values()) for ax in panels] == [WORDS, []]
    assert all(list(labels(ax.xaxis).values()) == WORDS for ax in panels)


def test_ways_are_told_by_their_faults(shown):
    mask, scores = causal_mask(3) & torch.tensor([False, True, True]), torch.zeros(3, 3)
    figures.mask_ways(mask, {"−∞": scores.masked_fill(~mask, -torch.inf).softmax(-1),
                             "zeros": masked_softmax(scores, mask)}, WORDS)  # fmt: skip
    assert "allows 3 of 9 places" in shown[0] and "−∞: rows of NaN: 1; zeros: nothing forbidden has weight" in shown[0]
    with pytest.raises(TypeError, match="mask"):
        figures.mask_ways(torch.ones(3, 3), {"a": scores}, WORDS)


@proven
def test_each_position_is_joined_to_itself_and_all_before_it():
    (ax,) = axes(figures.teacher_forcing, ["<start>", "the", "chef", "cooks"])
    assert strokes(ax) == [[(i, level) for i in range(3)] for level in (0, 1, 2)]
    ways = [[(j, layer), (i, layer + 1)] for layer in range(2) for i in range(3) for j in range(i + 1)]
    ends = [[(round(x), round(y)) for x, y in way] for way in arrows(ax)]
    assert ends == [*ways, [(2, 0), (1, 1)]]                                             # the last one is forbidden
    assert all(0.05 < abs(y - round(y)) < 0.08 or abs(x - round(x)) > 0.05 for way in arrows(ax) for x, y in way)
    assert all(start[1] < end[1] for start, end in arrows(ax))                           # heads at the upper dots
    path = [[(1, 0), (2, 1)], [(2, 1), (2, 2)]]
    looks = [(patch.get_linewidth(), patch.get_linestyle()) for patch in ax.patches]
    assert looks[:-1] == [(3 if way in path else 1.1, "solid") for way in ways] and looks[-1][1] == (0, (4, 2))
    below = [words for words, x, y in sorted(texts(ax), key=lambda text: text[1]) if y < 0]
    above = [words for words, x, y in sorted(texts(ax), key=lambda text: text[1]) if y > 2]
    assert [(words, y) for words, _, y in texts(ax) if 0 < y < 2] == [
        ("dashed: forbidden, as\n“chef” is the answer here", 0.42), ("layer 1", 0.5), ("layer 2", 1.5),
        ("thick: a path from input\n“the” to the position that\npredicts “cooks”", 1.5),
    ]  # fmt: skip
    assert below == ["input", "<start>", "the", "chef"] and above == ["target", "the", "chef", "cooks"]


@proven
def test_phrases_stand_in_both_planes_and_one_line_parts_them_in_the_second():
    features = torch.tensor([[0.0, 0], [1, 0], [0, 1], [1, 1]])
    hidden = torch.tensor([[0.0, 0], [1, 0], [0, 1], [0, 0]])
    verdict = torch.tensor([[0.0], [1], [1], [0]])
    planes = axes(figures.folded_plane, features, hidden, verdict, ["a", "b", "c", "d"])
    assert [(ax.get_title(), ax.get_xlabel(), ax.get_ylabel()) for ax in planes] == [
        ("features", "p (praise)", "n (not)"), ("hidden units", "hidden 1", "hidden 2")
    ]  # fmt: skip
    assert [[(line.get_marker(), *line.get_xydata()[0].tolist()) for line in ax.lines[:4]] for ax in planes] == [
        [("o" if good else "s", *place) for place, good in zip(table.tolist(), verdict.flatten().tolist(), strict=True)]
        for table in (features, hidden)
    ]
    legend = planes[1].get_legend()
    pairs = zip(legend.get_texts(), legend.get_lines(), strict=True)
    said = {text.get_text(): mark.get_marker() for text, mark in pairs}
    assert said == {"verdict 1": "o", "verdict 0": "s"}
    assert texts(planes[0])[:4] == [("a", 0, 0), ("b", 1, 0), ("c", 0, 1), ("d", 1, 1)]
    assert texts(planes[1])[:3] == [("a, d", 0, 0), ("b", 1, 0), ("c", 0, 1)]
    assert texts(planes[1])[3:] == [("one line\nseparates", 0.36, 0.3)]
    # A line on the left, and the ring on the right where max(0, p − n), max(0, n − p) takes it, are of one colour.
    names = {f"{words}": (x, y) for words, x, y in texts(planes[0])[4:]}
    assert list(names) == ["p − n = 1", "p − n = 0", "p − n = −1"]
    for k, (less, (x, y)) in enumerate(zip((1, 0, -1), names.values(), strict=True)):
        line, ring, words = planes[0].lines[4 + k], planes[1].lines[4 + k], planes[0].texts[4 + k]
        assert [a - b for a, b in strokes(planes[0])[4 + k]] == [pytest.approx(less)] * 2 and 0 < y - (x - less) < 0.1
        assert strokes(planes[1])[4 + k] == [(max(0, less), max(0, -less))]
        assert line.get_color() == ring.get_markeredgecolor() == words.get_color()
    assert strokes(planes[1])[7] == [(0, 1.45), (0, 0), (1.45, 0)]
    ends = [pytest.approx((-0.3, 0.8)), pytest.approx((0.8, -0.3))]
    assert len(planes[0].lines) == 7 and strokes(planes[1])[8] == ends
