"""Pictures of a search, of what sampling leaves, of seeds and intervals: they draw and say what they were given."""

import pytest
from drawn import axes, bars, labels, places, strokes, texts
from matplotlib.colors import to_rgba
from proven import proven

from attncourse_lessons import course

figures = course.part("writing", "figures")
ORANGE = to_rgba(figures.ORANGE)
RANKS = ("", "1st", "2nd", "3rd", "4th")


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
    aside = [(round(x - 0.45), y) for said, x, y in texts(ax) if said == "put aside"]
    ranks = {(round(x + 0.33), round(2 * (y - 0.12)) / 2): said for said, x, y in texts(ax) if said in RANKS}
    title, *said_of_nodes, first, second = [each for each in texts(ax) if each[0] not in ("put aside", *RANKS)]
    words = {(round(x), round(2 * (y - 0.12)) / 2): said for said, x, y in said_of_nodes[::2]}
    shares = {(round(x), round(2 * (y + 0.19)) / 2): said for said, x, y in said_of_nodes[1::2]}
    assert (first, second) == (("round 1", 1, 0.65), ("round 2", 2, 0.65)) and title[0] == "width 2"
    assert words == {(1, -0.5): "a", (1, -2): "b", (2, 0): "x", (2, -1): "z", (2, -2): "y"}
    assert {words[at]: share for at, share in shares.items()} == {
        "a": "0.600", "b": "0.400", "x": "× 0.50 = 0.300", "z": "0.200", "y": "× 1.00 = 0.400"
    }  # fmt: skip
    assert {words[at]: rank for at, rank in ranks.items() if rank} == {
        "a": "1st", "b": "2nd", "y": "1st", "x": "2nd", "z": "3rd"
    }  # fmt: skip
    joins = [(words[round(start[0]), start[1]], words[round(end[0]), end[1]]) for start, end in strokes(ax)]
    assert joins == [("a", "x"), ("a", "z"), ("b", "y")]
    nodes = [box for box in ax.patches if box.get_width() == 0.72]
    framed = [words[round(box.get_x() + 0.4), round(box.get_y() + 0.44, 2)] for box in ax.patches if box not in nodes]
    assert framed == [words[at] for at in aside] == ["x", "y"]  # put aside, the chosen one, too
    of = {words[round(box.get_x() + 0.36), round(box.get_y() + 0.36, 2)]: box for box in nodes}
    assert [word for word, box in of.items() if box.get_facecolor() != to_rgba("white")] == ["a", "b", "x", "y"]
    assert [line.get_linewidth() for line in ax.lines] == [1.2, 1.2, 3]
    assert [word for word, box in of.items() if box.get_linewidth() > 2] == ["b", "y"]  # on the chosen way


def test_what_follows_a_dropped_hypothesis_does_not_compete_and_the_fifth_has_no_rank():
    tree = {
        ("a",): 0.6,
        ("b",): 0.4,
        ("b", "v"): 0.4,
        **{("a", word): p for word, p in zip("xyzuw", (0.2, 0.15, 0.1, 0.09, 0.06), strict=True)},
    }
    (ax,) = axes(figures.search_frame, tree, {("a",), ("a", "x")}, {("a", "x")}, ("a", "x"), "width 1")
    assert [said for said, _, _ in texts(ax) if said in RANKS[1:]] == ["1st", "2nd", "1st", "2nd", "3rd", "4th"]


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
def test_what_a_cut_keeps_lies_above_its_line_and_the_other_temperature_is_a_dot():
    panels = {
        "sure": (["one ✓", "two", "six"], [0.9, 0.1, 0.0], [0.7, 0.2, 0.1]),
        "unsure": (["ten", "and", "five ✓"], [0.2, 0.15, 0.1], [0.15, 0.12, 0.11]),
    }
    cuts = {"sure": {"top-k": 2, "top-p": 1}, "unsure": {"top-k": 2, "top-p": 3}}
    drawn = axes(figures.kept_tokens, panels, cuts, "T = 2")
    assert [ax.get_title() for ax in drawn] == list(panels)
    for ax, (title, (tokens, p, hot)), end in zip(drawn, panels.items(), (1, 0.25), strict=True):
        assert bars(ax) == {"": dict(zip(tokens, p, strict=True))} and ax.yaxis_inverted()
        lying = sorted(ax.patches, key=lambda bar: bar.get_y())
        assert [bar.get_facecolor() == ORANGE for bar in lying] == [token.endswith("✓") for token in tokens]
        dots, *lines = strokes(ax)
        assert dots == [(x, y) for y, x in enumerate(hot)]
        assert lines == [[(0, n - 0.5), (1, n - 0.5)] for n in cuts[title].values()]
        *said, (circle, x, y) = texts(ax)
        kept = [(f"↑ {way} keeps {n}", end, pytest.approx(n - 0.05)) for way, n in cuts[title].items()]
        beside = 1 if title == "sure" else 2  # the first that lies beside its bar
        assert said == kept and (circle, y) == ("at T = 2", beside) and x > hot[beside]
        assert ax.get_xlim() == pytest.approx((0, 1.02 * end)) and ax.get_xlabel() == "probability"
        assert ax.get_ylim() == pytest.approx((len(p) - 0.4, -0.6))


@proven
def test_every_seed_has_its_bar_in_every_condition_and_its_number_above():
    panels = {"2 tokens": {"as it was": [9.0, 8.0], "mixed batches": [6.0, 7.0], "both": [1.0, 3.0]},
              "4 tokens": {"as it was": [20.0, 19.0], "mixed batches": [4.0, 5.0], "both": [0.5, 2.0]}}  # fmt: skip
    drawn = axes(figures.seed_bars, panels, [9, 31])
    assert [ax.get_title() for ax in drawn] == list(panels)
    assert [ax.get_ylabel() for ax in drawn] == ["wrong lists, of 9", "wrong lists, of 31"]
    for ax, groups in zip(drawn, panels.values(), strict=True):
        assert list(labels(ax.xaxis).values()) == ["0", "1\nas\nit was", "0", "1\nmixed\nbatches", "0", "1\nboth"]
        seen = [[(round(bar.get_x() + bar.get_width() / 2, 2), bar.get_height()) for bar in each]
                for each in ax.containers]  # fmt: skip
        assert seen == [[(round(x + 0.28 * (seed - 1), 2), value) for seed, value in enumerate(values)]
                        for x, values in enumerate(groups.values())]  # fmt: skip
        assert [round(x, 2) for x in ax.get_xticks()] == [x for each in seen for x, _ in each]
        assert [bar.get_facecolor() == ORANGE for bar in ax.patches] == [False] * 4 + [True] * 2
        above = [(said, round(x, 2)) for said, x, _ in texts(ax)]
        assert above == [(f"{height:.0f}", x) for each in seen for x, height in each]
        heights = [height for each in seen for _, height in each]
        assert all(y > height for (_, _, y), height in zip(texts(ax), heights, strict=True))


@proven
def test_a_paired_plot_has_a_dot_for_each_resample_and_an_interval_for_each_run_on_one_axis():
    scores = {"a": [20.0, 21.5, 22.5], "b": [24.0, 23.0, 25.5]}
    runs = {"seed 0": (21.5, 23.0, 24.0), "seed 1": (22.0, 24.5, 27.0)}
    left, right = axes(figures.paired, scores, runs, ("captions", "seeds"))
    assert left.collections[0].get_offsets().tolist() == [[20.0, 24.0], [21.5, 23.0], [22.5, 25.5]]
    assert left.get_xlabel() == "BLEU, a" and left.get_ylabel() == "BLEU, b"
    assert left.get_title() == "captions" and right.get_title() == "seeds"
    assert left.get_xlim() == pytest.approx((19.9, 23.0))
    assert left.get_ylim() == right.get_ylim() == pytest.approx((19.9, 27.5))
    ((start, end),) = strokes(left)
    assert start == pytest.approx((19.9, 19.9)) and end == pytest.approx((23.0, 23.0))
    assert [said for said, _, _ in texts(left)] == ["equal scores"] and right.get_ylabel() == "BLEU, b"
    assert list(labels(right.xaxis).values()) == list(runs)
    assert strokes(right) == [each for x, (low, middle, high) in enumerate(runs.values())
                              for each in ([(x, low), (x, high)], [(x, middle)])]  # fmt: skip
    assert [(said, y) for said, _, y in texts(right)] == [("23.0", 23.0), ("24.5", 24.5)]
    assert {line.get_solid_capstyle() for line in right.lines[: 2 * len(runs) : 2]} == {"butt"}  # no longer than it is


def test_a_level_is_a_line_in_a_band_beside_the_runs_and_the_dots_below_the_diagonal_are_counted():
    scores = {"a": [20.0, 21.5, 22.5], "b": [24.0, 21.0, 25.5]}
    runs = {"seed 0": (21.5, 23.0, 24.0), "seed 1": (22.0, 24.5, 27.0)}
    left, right = axes(figures.paired, scores, runs, ("captions", "seeds"), {"a": (20.5, 21.2, 22.4)})
    assert [said for said, _, _ in texts(left)] == ["equal scores", "1 of 3 dots\nbelow the line"]
    (band,) = right.patches
    assert (band.get_y(), band.get_height()) == (20.5, pytest.approx(1.9))
    assert strokes(right)[-1] == [(0, 21.2), (1, 21.2)]
    assert texts(right)[-1][0] == "a: 21.2" and texts(right)[-1][2] > 21.2


@proven
def test_extra_loss_has_two_colours_in_a_row_beside_a_line_at_zero_and_differences_have_a_panel():
    rows = {"seed 0": {"own": (0.05, 0.1, 0.2), "random": (-0.1, 0.3, 0.4)},
            "seed 1": {"own": (0.02, 0.15, 0.3), "random": (0.01, 0.12, 0.25)}}  # fmt: skip
    differences = {"seed 0": (-0.2, -0.1, 0.05), "seed 1": (0.01, 0.03, 0.07)}
    left, right = axes(figures.extra_loss, rows, differences)
    for ax, kinds in ((left, {"own": -0.14, "random": 0.14}), (right, {"": 0})):
        *lines, zero = [[(x, round(y, 2)) for x, y in stroke] for stroke in strokes(ax)]
        assert zero == [(0, 0), (0, 1)]
        shown = [(row[kind] if kind else differences[seed], round(y + down, 2))
                 for kind, down in kinds.items() for y, (seed, row) in enumerate(rows.items())]  # fmt: skip
        assert lines == [each for (low, middle, high), y in shown
                         for each in ([(low, y), (high, y)], [(middle, y)])]  # fmt: skip
        assert list(labels(ax.yaxis).values()) == list(rows) and ax.yaxis_inverted()
    assert [line.get_color() == figures.ORANGE for line in left.lines[:-1]] == [True] * 4 + [False] * 4
    assert [line.get_color() == figures.BLUE for line in left.lines[:-1]] == [False] * 4 + [True] * 4
    assert {line.get_color() for line in right.lines[:-1]} == {figures.INK}
    legend = left.get_legend()
    named = zip(legend.get_texts(), legend.get_lines(), strict=True)
    assert {said.get_text(): line.get_color() for said, line in named} == {
        "own": figures.ORANGE, "random": figures.BLUE
    }  # fmt: skip
    assert left.get_xlabel() == "nats per token" and right.get_xlabel().startswith("← own costs less")
    assert left.get_title() == "extra loss of what follows" and "own mistake − random" in right.get_title()
    assert right.get_xlim() == pytest.approx((-0.22, 0.22))


@proven
def test_beam_widths_show_a_line_for_each_run_the_best_widths_and_the_length_with_a_line_at_the_reference():
    runs = {"seed 0": ([10.0, 16.0, 12.0], [200.0, 120.0, 40.0]), "seed 1": ([9.0, 15.0, 13.0], [190.0, 130.0, 50.0])}
    left, right = axes(figures.beam_widths, [1, 2, 4], runs, (1, 4))
    scores, lengths = ([list(zip([1, 2, 4], sides[k], strict=True)) for sides in runs.values()] for k in (0, 1))
    assert strokes(left) == scores and strokes(right) == [*lengths, [(0, 100), (1, 100)]]
    assert left.get_ylim()[0] == right.get_ylim()[0] == 0 and right.get_ylim()[1] == pytest.approx(210)
    (shade,) = left.patches
    assert (shade.get_x(), shade.get_width()) == (1, 3)
    assert texts(left) == [("best", 2, pytest.approx(18.624))]
    reference, long, short = texts(right)
    assert reference == ("the reference's length", 4, 103)
    assert long[0] == "greedy texts: too long" and long[2] > 100 > short[2] and short[0] == "wide beams: too short"
    assert labels(left.xaxis) == labels(right.xaxis) == {1: "1", 2: "2", 4: "4"}
    assert [line.get_linestyle() for line in left.lines[:2]] == [line.get_linestyle() for line in right.lines[:2]]
    assert left.lines[0].get_linestyle() != left.lines[1].get_linestyle()


@proven
def test_places_show_both_curves_with_their_names_and_the_gap_at_their_ends():
    lines = {"true": [10, 30, 20], "own": [10, 40, 60]}
    (ax,) = axes(figures.places, lines, "place", "wrong")
    assert strokes(ax) == [[(1, 10), (2, 30), (3, 20)], [(1, 10), (2, 40), (3, 60)]]
    assert ax.get_ylim()[0] == 0 and ax.get_ylabel() == "wrong" and ax.get_xlabel() == "place"
    assert ax.get_xlim() == (0.9, 3)
    assert [each for each in texts(ax) if each[0]] == [
        ("true", 3.12, 20),
        ("own", 3.12, 60),
        ("gap: 40 points", 3.12, 40),
    ]
    (arrow,) = [each for each in ax.texts if not each.get_text()]
    assert (arrow.xy, arrow.xyann) == ((3, 60), (3, 20))
    assert labels(ax.xaxis) == {1: "1", 2: "2", 3: "3"}


@proven
def test_places_with_intervals_have_bars_beside_each_other_and_the_gap_has_its_range():
    lines = {"true": [10, 30], "own": [12, 40]}
    ranges = {"true": [(8, 12), (25, 35)], "own": [(9, 13), (31, 47)]}
    (ax,) = axes(figures.places, lines, "place", "wrong", ranges, (4.4, 15.2))
    true, *of_true, own = strokes(ax)[:4]
    assert true == [(0.95, 10), (1.95, 30)] and own == [(1.05, 12), (2.05, 40)]
    assert of_true == [[(0.95, 8), (0.95, 12)], [(1.95, 25), (1.95, 35)]]
    assert strokes(ax)[4:] == [[(1.05, 9), (1.05, 13)], [(2.05, 31), (2.05, 47)]]
    colours = [line.get_color() for line in ax.lines]
    assert colours == [colours[0]] * 3 + [colours[3]] * 3 and colours[0] != colours[3]
    assert [each for each in texts(ax) if each[0]] == [
        ("true", 2.22, 30), ("own", 2.22, 40), ("gap: 10 points\n(4 to 15)", 2.22, 35)]  # fmt: skip
    (arrow,) = [each for each in ax.texts if not each.get_text()]
    assert (arrow.xy, arrow.xyann) == ((2.15, 40), (2.15, 30)), "right of both curves"


@proven
def test_named_runs_of_beam_widths_are_named_at_their_first_points_and_no_two_names_touch():
    runs = {"seed 0": ([9.0, 15.0], [128.0, 80.0]), "seed 1": ([10.0, 16.0], [130.0, 90.0]),
            "seed 2": ([8.0, 14.0], [60.0, 50.0])}  # fmt: skip
    left, right = axes(figures.beam_widths, [1, 2], runs, (1, 2), named=True)
    assert strokes(left) == [[(1, 9), (2, 15)], [(1, 10), (2, 16)], [(1, 8), (2, 14)]]
    assert strokes(right)[:3] == [[(1, 128), (2, 80)], [(1, 130), (2, 90)], [(1, 60), (2, 50)]]
    at = places(right, *runs)
    assert at == {"seed 1": (0.8, 130), "seed 0": (0.8, 121), "seed 2": (0.8, 60)}, "the highest first"
    assert right.get_xlim()[0] == pytest.approx(1 / 3.2) and left.get_legend() is right.get_legend() is None
    assert [words for words, _, _ in texts(left)] == ["best"], "the names stand on the right alone"
    assert labels(left.xaxis) == labels(right.xaxis) == {1: "1", 2: "2"}
    assert strokes(right)[3] == [(0, 100), (1, 100)] and left.patches[0].get_x() == left.patches[0].get_width() == 1


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
    [
        "kept_tokens",
        "seed_bars",
        "extra_loss",
        "paired",
        "places",
        "beam_widths",
        "ngrams",
    ],
)
def test_every_picture_says_its_numbers(name, monkeypatch):
    said = []
    monkeypatch.setattr(figures, "show", lambda drawn, alt: said.append(alt))
    if name == "kept_tokens":
        figures.kept_tokens({"sure": (["one", "two"], [0.9, 0.1], [0.6, 0.4])}, {"sure": {"k = 1": 1}}, "T = 2")
        assert said == ["What may be drawn. sure: one 0.90, two 0.10; k = 1 keeps 1."]
    elif name == "seed_bars":
        figures.seed_bars({"2 tokens": {"a": [50, 25], "b": [75, 100]}}, [100])
        assert said == ["A bar for each seed. 2 tokens, wrong of 100: a: 50, 25; b: 75, 100."]
    elif name == "extra_loss":
        figures.extra_loss(
            {"seed 0": {"own": (0.0, 0.25, 0.5), "random": (0.1, 0.2, 0.3)}}, {"seed 0": (-0.1, 0.05, 0.1)}
        )
        assert said == [
            "Nats per token, with intervals of 95 %. own: seed 0 0.25 (0.00 to 0.50). random: seed 0 0.20 (0.10 to "
            "0.30). difference: seed 0 0.05 (−0.10 to 0.10)."
        ]
    elif name == "paired":
        figures.paired({"a": [1.0, 2.0], "b": [3.0, 1.5]}, {"seed 0": (1.0, 2.0, 4.0)}, ("left", "right"))
        assert said == [
            "On 1 of 2 resamples b is above a. b, with intervals that hold 95 % of the resamples: "
            "seed 0 2.0 (1.0 to 4.0)."
        ]
    elif name == "places":
        figures.places({"true": [0.1], "own": [0.3]}, "place", "wrong")
        figures.places({"true": [10], "own": [30]}, "x", "y", {"true": [(8, 12)], "own": [(25, 36)]}, (15.5, 26.25))
        assert said == [
            "wrong against place. true: 0.1; own: 0.3.",
            "y against x. true: 10; own: 30; gap at the end 20.0 (15.5 to 26.2), interval of 95 %.",
        ]
    elif name == "beam_widths":
        figures.beam_widths([1, 2], {"seed 0": ([10.0, 16.0], [200.0, 120.0])}, (1, 2))
        assert said == ["BLEU and length by beam width. seed 0: 1: 10.0, 200 %; 2: 16.0, 120 %."]
    else:
        figures.ngrams([("a", "a"), ("dog", "cat")], {1: [True, False], 2: [False]})
        assert said == ["Which n-grams of “a dog” are in “a cat”. 1-grams: 1 of 2; 2-grams: 0 of 1."]
