"""Pictures of a search, of what sampling leaves, of seeds and intervals: they draw and say what they were given."""

import pytest
import torch
from drawn import axes, bars, cells, labels, strokes, texts
from matplotlib.colors import to_rgba
from proven import proven

from attncourse_lessons import course

figures = course.part("writing", "figures")
ORANGE = to_rgba(figures.ORANGE)


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
    title, *said_of_nodes, first, second = texts(ax)
    words = {(round(x), round(2 * (y - 0.12)) / 2): said for said, x, y in said_of_nodes[::2]}
    shares = {(round(x), round(2 * (y + 0.19)) / 2): said for said, x, y in said_of_nodes[1::2]}
    assert (first, second) == (("round 1", 1, 0.65), ("round 2", 2, 0.65)) and title[0] == "width 2"
    assert words == {(1, -0.5): "a", (1, -2): "b", (2, 0): "x", (2, -1): "z", (2, -2): "y"}
    assert {words[at]: share for at, share in shares.items()} == {
        "a": "0.600", "b": "0.400", "x": "× 0.50 = 0.300", "z": "0.200", "y": "× 1.00 = 0.400"
    }  # fmt: skip
    joins = [(words[round(start[0]), start[1]], words[round(end[0]), end[1]]) for start, end in strokes(ax)]
    assert joins == [("a", "x"), ("a", "z"), ("b", "y")]
    nodes = [box for box in ax.patches if box.get_width() == 0.72]
    framed = [words[round(box.get_x() + 0.4), round(box.get_y() + 0.44, 2)] for box in ax.patches if box not in nodes]
    assert framed == ["x", "y"]  # put aside, the chosen one, too
    of = {words[round(box.get_x() + 0.36), round(box.get_y() + 0.36, 2)]: box for box in nodes}
    assert [word for word, box in of.items() if box.get_facecolor() != to_rgba("white")] == ["a", "b", "x", "y"]
    assert [line.get_linewidth() for line in ax.lines] == [1.2, 1.2, 3]
    assert [word for word, box in of.items() if box.get_linewidth() > 2] == ["b", "y"]  # on the chosen way


def test_a_search_puts_aside_what_ends_and_lets_it_compete_at_the_end():
    tree = {(): {"a": 0.5, "two": 0.4}, ("a",): {"dog.": 0.4, "cat.": 0.3}, ("two",): {"dogs.": 0.6, "dogs": 0.4},
            ("two", "dogs"): {"run.": 1.0}}  # fmt: skip
    p_of = {("a",): 0.5, ("two",): 0.4, ("a", "dog."): 0.2, ("a", "cat."): 0.15, ("two", "dogs."): 0.24,
            ("two", "dogs"): 0.16, ("two", "dogs", "run."): 0.16}  # fmt: skip
    assert figures.search(tree, p_of, 1) == (("a", "dog."), [([], [("a",)]), ([("a", "dog.")], [])])
    best, rounds = figures.search(tree, p_of, 2)
    assert best == ("two", "dogs.")
    assert rounds == [
        ([], [("a",), ("two",)]),
        ([("two", "dogs."), ("a", "dog.")], []),
    ]
    wider, rounds = figures.search(tree, p_of, 3)
    assert wider == ("two", "dogs.")
    assert rounds[1:] == [([("two", "dogs."), ("a", "dog.")], [("two", "dogs")]), ([("two", "dogs", "run.")], [])]


@proven
def test_what_may_be_drawn_is_filled_and_the_rest_is_hatched():
    panels = {
        "sure": {"T = 1": ([0.9, 0.1, 0.0], [True, True, False]), "k = 1": ([0.9, 0.1, 0.0], [True, False, False])},
        "unsure": {"T = 1": ([0.5, 0.3, 0.2], [True, True, True]), "k = 1": ([0.5, 0.3, 0.2], [True, False, False])},
    }
    tokens = {"sure": ["one ✓", "two", "six"], "unsure": ["ten", "and", "five ✓"]}
    drawn = axes(figures.kept_tokens, panels, tokens)
    assert [ax.get_title() for ax in drawn] == ["sure: T = 1", "sure: k = 1", "unsure: T = 1", "unsure: k = 1"]
    for ax, (step, (p, kept)) in zip(
        drawn, [(step, given) for step, by_way in panels.items() for given in by_way.values()], strict=True
    ):
        assert bars(ax) == {"": dict(zip(tokens[step], p, strict=True))}
        lying = sorted(ax.patches, key=lambda bar: bar.get_y())
        assert [not bar.get_hatch() for bar in lying] == kept and ax.yaxis_inverted()
        right = [bar.get_edgecolor() == ORANGE for bar in lying]
        assert right == [token.endswith("✓") for token in tokens[step]]
        crossed = {y: x for words, x, y in texts(ax) if words == "×"}
        cut = {y: pytest.approx(share + 0.02 * max(p)) for y, share in enumerate(p) if not kept[y]}
        assert crossed == cut and ax.get_xlim() == pytest.approx((0, 1.1 * max(p)))
    assert {ax.get_xlabel() for ax in drawn} == {"probability"}  # each row has its scale


@proven
def test_every_seed_has_its_bar_in_every_condition_and_its_number_above():
    panels = {"wrong, of 9": {"as it was": [9.0, 8.0], "mixed batches": [6.0, 7.0], "both": [1.0, 3.0]},
              "wrong, of 31": {"as it was": [20.0, 19.0], "mixed batches": [4.0, 5.0], "both": [0.5, 2.0]}}  # fmt: skip
    drawn = axes(figures.seed_bars, panels, [9, 31])
    assert [ax.get_ylabel() for ax in drawn] == list(panels)
    for ax, groups in zip(drawn, panels.values(), strict=True):
        assert list(labels(ax.xaxis).values()) == ["as\nit was", "mixed\nbatches", "both"]
        seen = [[(round(bar.get_x() + bar.get_width() / 2, 2), bar.get_height()) for bar in each]
                for each in ax.containers]  # fmt: skip
        assert seen == [[(round(x + 0.28 * (seed - 1), 2), values[seed]) for x, values in enumerate(groups.values())]
                        for seed in range(2)]  # fmt: skip
        above = [(said, round(x, 2)) for said, x, _ in texts(ax)]
        assert above == [(f"{height:.0f}", x) for each in seen for x, height in each]
        heights = [height for each in seen for _, height in each]
        assert all(y > height for (_, _, y), height in zip(texts(ax), heights, strict=True))
    (legend,) = drawn[0].figure.legends
    assert [each.get_text() for each in legend.get_texts()] == ["seed 0", "seed 1"]


@proven
def test_a_paired_plot_has_a_dot_for_each_resample_and_an_interval_for_each_difference():
    scores = {"a": [20.0, 21.5, 22.5], "b": [24.0, 23.0, 25.5]}
    rows = {"b − a": (1.5, 3.0, 4.0), "a − c": (-1.0, 0.5, 3.0), "b − c": (2.0, 6.0, 7.0)}
    left, right = axes(figures.paired, scores, rows)
    assert left.collections[0].get_offsets().tolist() == [[20.0, 24.0], [21.5, 23.0], [22.5, 25.5]]
    assert left.get_xlabel() == "BLEU, a" and left.get_ylabel() == "BLEU, b"
    assert left.get_xlim() == pytest.approx((19.6, 22.9)) and left.get_ylim() == pytest.approx((21.3, 25.9))
    assert left.get_aspect() == 1
    (start, end), *_ = strokes(left)
    assert start == pytest.approx((21.3, 21.3)) and end == pytest.approx((22.9, 22.9))
    assert [said for said, _, _ in texts(left)] == ["equal scores"]
    assert list(labels(right.yaxis).values()) == list(rows)
    lines = strokes(right)
    for y, (low, middle, high) in enumerate(rows.values()):
        assert lines[2 * y] == [(low, y), (high, y)] and lines[2 * y + 1] == [(middle, y)]
    assert [said for said, _, _ in texts(right)] == [
        f"{middle:.1f} ({low:.1f} to {high:.1f})" for low, middle, high in rows.values()
    ]
    assert {line.get_solid_capstyle() for line in right.lines[: 2 * len(rows) : 2]} == {"butt"}  # no longer than it is
    assert lines[-1] == [(0, 0), (0, 1)]


@proven
def test_beam_widths_show_a_line_for_each_run_an_interval_and_the_length_with_a_line_at_the_reference():
    runs = {"seed 0": ([10.0, 16.0, 12.0], [200.0, 120.0, 40.0]), "seed 1": ([9.0, 15.0, 13.0], [190.0, 130.0, 50.0])}
    penalised = {"seed 0": (14.0, 17.0, 19.0), "seed 1": (13.0, 16.0, 18.0)}
    left, right = axes(figures.beam_widths, [1, 2, 4], runs, 3, penalised)
    scores, lengths = ([list(zip([1, 2, 4], sides[k], strict=True)) for sides in runs.values()] for k in (0, 1))
    first, second = (round(3 * 1.15**side, 5) for side in (-0.5, 0.5))  # beside each other
    assert strokes(left) == [*scores, [(first, 14), (first, 19)], [(first, 17)],
                             [(second, 13), (second, 18)], [(second, 16)]]  # fmt: skip
    assert strokes(right) == [*lengths, [(0, 100), (1, 100)]]
    assert left.get_ylim()[0] == right.get_ylim()[0] == 0 and right.get_ylim()[1] == pytest.approx(210)
    assert texts(left) == [("width 3, length penalty", pytest.approx(4.05), 19)]
    assert texts(right) == [("the reference's length", 4, 103)]
    assert labels(left.xaxis) == labels(right.xaxis) == {1: "1", 2: "2", 4: "4"}
    assert [each.get_text() for each in left.get_legend().get_texts()] == list(runs)
    assert [line.get_linestyle() for line in left.lines[:2]] == [line.get_linestyle() for line in right.lines[:2]]
    assert left.lines[0].get_linestyle() != left.lines[1].get_linestyle()


@proven
def test_places_show_both_curves_and_their_gap_with_its_interval_beside_a_line_at_zero():
    lines, gaps = {"true": [0.1, 0.3, 0.2], "own": [0.1, 0.4, 0.6]}, [(0, 0, 0), (-2, 10, 15), (30, 40, 44)]
    left, right = axes(figures.places, lines, gaps, "place", "wrong")
    assert strokes(left) == [[(1, 0.1), (2, 0.3), (3, 0.2)], [(1, 0.1), (2, 0.4), (3, 0.6)]]
    assert left.get_ylim()[0] == 0 and left.get_ylabel() == "wrong"
    assert [each.get_text() for each in left.get_legend().get_texts()] == ["true", "own"]
    level, *rest = strokes(right)
    assert level == [(0, 0), (1, 0)] and right.get_ylabel() == "own − true, in points"
    assert rest == [each for x, (low, middle, high) in enumerate(gaps, start=1)
                    for each in ([(x, low), (x, high)], [(x, middle)])]  # fmt: skip
    assert labels(left.xaxis) == labels(right.xaxis) == {1: "1", 2: "2", 3: "3"}
    assert {line.get_solid_capstyle() for line in right.lines[1::2]} == {"butt"}  # an interval is no longer than it is


@proven
def test_on_the_way_has_a_curve_for_each_run_and_a_line_for_each_step_that_met_such_lists():
    panels = {"seed 0": ({5: 0, 10: 7, 15: 3}, [6, 13]), "seed 1": ({5: 2, 10: 4, 15: 9}, [9])}
    drawn = axes(figures.on_the_way, panels, 9, "lists right")
    assert [ax.get_title() for ax in drawn] == list(panels) and drawn[0].get_ylabel() == "lists right"
    for ax, (right, met) in zip(drawn, panels.values(), strict=True):
        *lines, curve = strokes(ax)
        assert lines == [[(step, 0), (step, 1)] for step in met] and curve == list(right.items())
        assert ax.get_ylim() == (0, 9) and ax.get_xlim() == (0, 15) and ax.get_xlabel() == "step"


@proven
def test_two_prefixes_differ_in_one_number_and_hatch_what_follows():
    rows = {"true prefix": ["one", "six", "ten"], "own mistake": ["one", "sixteen", "ten"]}
    (ax,) = axes(figures.two_prefixes, rows, 1)
    said = [words for words, _, _ in texts(ax)]
    assert said == ["true prefix", "own mistake", "one", "one", "six", "sixteen", "ten", "ten", "<eos>", "<eos>",
                    "the loss is measured here"]  # fmt: skip
    boxes = sorted(ax.patches, key=lambda box: (box.get_x(), -box.get_y()))
    at = {words: (x, y) for words, x, y in texts(ax)}
    assert at["sixteen"][1] < at["six"][1] and at["one"][0] < at["six"][0] < at["ten"][0] < at["<eos>"][0]
    assert [bool(box.get_hatch()) for box in boxes] == [False] * 4 + [True] * 4
    assert [box.get_linewidth() for box in boxes] == [1.2, 1.2, 2, 2, 1.2, 1.2, 1.2, 1.2]
    for box, words in zip(boxes, said[2:-1], strict=True):
        assert box.get_x() < at[words][0] < box.get_x() + box.get_width()


@proven
def test_alignments_stand_side_by_side_frame_the_largest_weights_and_underline_spans():
    models = {"first": (torch.tensor([[0.75, 0.25], [0.4, 0.6], [0.1, 0.9]]), ["Eine", "Frau"], ["A", "woman", "."]),
              "second": (torch.tensor([[0.3, 0.7], [0.8, 0.2]]), ["Eine", "Frau"], ["The", "lady"])}  # fmt: skip
    left, right = axes(figures.alignments, models, {"one": (0, 0), "both": (0, 1)})
    assert left.get_title() == "first" and right.get_title() == "second" and left.get_ylabel() == "written (queries)"
    for ax, (weights, source, target) in zip((left, right), models.values(), strict=True):
        assert list(labels(ax.xaxis).values()) == source and list(labels(ax.yaxis).values()) == target
        assert ax.get_xlabel() == "source (keys)" and ax.xaxis.get_label_position() == "top" and ax.yaxis_inverted()
        shown = ax.collections[0].get_array()
        assert torch.allclose(torch.tensor(shown.tolist()).view(weights.shape), weights)
        largest = [(int(row.argmax()), i, 1, 1) for i, row in enumerate(weights)]
        assert list(cells(ax)) == largest and {patch.get_edgecolor() for patch in ax.patches} == {ORANGE}
        numbers = [(f"{row.max():.2f}", j + 0.5, i + 0.5) for row, (j, i, *_) in zip(weights, largest, strict=True)]
        low = len(target) + 0.25
        assert texts(ax) == [*numbers, ("one", 0.5, low + 0.2), ("both", 1, low + 0.2)]
        assert strokes(ax) == [[(0.1, low), (0.9, low)], [(0.1, low), (1.9, low)]]
        assert [each.get_color() == "white" for each in ax.texts[: len(numbers)]] == [
            row.max() > 0.7 for row in weights
        ]


def test_the_row_of_the_first_wrong_token_is_named_in_orange_and_the_rows_below_it_are_grey():
    weights = torch.tensor([[0.75, 0.25], [0.4, 0.6], [0.1, 0.9]])
    (ax,) = axes(figures.alignments, {"": (weights, ["sechs", "und"], ["six", "ty", "<eos>"])}, marked=1)
    assert list(labels(ax.yaxis).values()) == ["six", "first wrong: ty", "<eos>"]
    names = ax.get_yticklabels()
    assert [to_rgba(name.get_color()) == ORANGE for name in names] == [False, True, False]
    assert [to_rgba(name.get_color()) == to_rgba(figures.GREY) for name in names] == [False, False, True]
    assert [name.get_fontweight() for name in names] == ["normal", "bold", "normal"]


@proven
def test_an_n_gram_spans_its_words_and_is_crossed_where_the_reference_lacks_it():
    columns = [("a", "a"), ("red", "blue one"), ("", "big"), ("dog", "dog")]
    (ax,) = axes(figures.ngrams, columns, {1: [True, False, True], 2: [False, False]})
    shaded = [box for box in ax.patches if box.get_height() > 1]
    bars_ = [box for box in ax.patches if box.get_height() < 1]
    assert [round(box.get_x()) for box in shaded] == [1, 2]
    spans = [(round(box.get_x() - 0.06), round(box.get_x() + box.get_width() + 0.06)) for box in bars_]
    assert spans == [(0, 1), (1, 2), (3, 4), (0, 2), (1, 4)]
    heights = [round(box.get_y() - 0.12, 2) for box in bars_]
    assert heights == [0.5, 0.5, 0.5, 2, 3]  # what would overlap lies higher
    missing = [tuple(box.get_edgecolor()) == ORANGE for box in bars_]
    assert missing == [False, True, False, True, True]
    assert [tuple(box.get_facecolor()) == to_rgba("white") for box in bars_] == missing
    crosses = [(x, y) for words, x, y in texts(ax) if words == "×"]
    assert crosses == [pytest.approx(at) for at in ((1.5, 1), (1, 2.5), (2.5, 3.5))]
    at = [(words, x - 0.5) for words, x, y in texts(ax) if y in (-0.35, -1.9) and x > 0]
    assert at == [("a", 0), ("a", 0), ("red", 1), ("blue\none", 1), ("", 2), ("big", 2), ("dog", 3), ("dog", 3)]
    said = [words for words, x, _ in texts(ax) if words and (x < 0 or x > 4)]
    assert said == ["1-grams", "2 of 3", "2-grams", "0 of 2", "translation", "reference"]


@pytest.mark.parametrize(
    "name",
    ["kept_tokens", "seed_bars", "paired", "places", "on_the_way", "beam_widths", "ngrams", "two_prefixes",
     "alignments"],
)
def test_every_picture_says_its_numbers(name, monkeypatch):
    said = []
    monkeypatch.setattr(figures, "show", lambda drawn, alt: said.append(alt))
    if name == "kept_tokens":
        figures.kept_tokens({"sure": {"k = 1": ([0.9, 0.1], [True, False])}}, {"sure": ["one", "two"]})
        assert said == ["What may be drawn. sure, k = 1: one 0.90."]
    elif name == "seed_bars":
        figures.seed_bars({"right": {"a": [50, 25], "b": [75, 100]}}, [100], "{:.1f} %")
        assert said == ["A bar for each seed. right: a: 50.0 %, 25.0 %; b: 75.0 %, 100.0 %."]
    elif name == "paired":
        figures.paired({"a": [1.0, 2.0], "b": [3.0, 1.5]}, {"b − a": (1.0, 2.0, 4.0)})
        assert said == [
            "On 1 of 2 resamples b is above a. Paired differences, with intervals that hold 95 % of the resamples: "
            "b − a 2.0 (from 1.0 to 4.0)."
        ]
    elif name == "places":
        figures.places({"true": [0.1], "own": [0.3]}, [(10.0, 20.0, 25.0)], "place", "wrong")
        assert said == ["wrong against place. true: 0.1; own: 0.3. Gap with its interval: 20 (10 to 25)."]
    elif name == "on_the_way":
        figures.on_the_way({"seed 0": ({5: 2, 10: 7, 15: 3}, [6, 13])}, 9, "right")
        assert said == [
            "right, by the step of the training. seed 0: met in steps 6, 13; most right, 7, after step 10; "
            "at the end 3."
        ]
    elif name == "beam_widths":
        figures.beam_widths([1, 2], {"seed 0": ([10.0, 16.0], [200.0, 120.0])}, 3, {"seed 0": (14.0, 17.0, 19.0)})
        assert said == [
            "BLEU and length by beam width. seed 0: 1: 10.0, 200 %; 2: 16.0, 120 %. "
            "Width 3 with a length penalty: seed 0: BLEU 17.0, from 14.0 to 19.0."
        ]
    elif name == "ngrams":
        figures.ngrams([("a", "a"), ("dog", "cat")], {1: [True, False], 2: [False]})
        assert said == ["Which n-grams of “a dog” are in “a cat”. 1-grams: 1 of 2; 2-grams: 0 of 1."]
    elif name == "alignments":
        figures.alignments({"one": (torch.tensor([[0.75, 0.25]]), ["Eine", "Frau"], ["A"])})
        assert said == ["Where each written token attends most, and the weight. one: A Eine 0.75."]
    else:
        figures.two_prefixes({"true": ["one", "two"], "own": ["six", "two"]}, 0)
        assert said == [
            "Two runs that differ in number 1 alone; the loss is that of what follows. true: one, two; own: six, two."
        ]
