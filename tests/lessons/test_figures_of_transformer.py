"""Figures of blocks join what feeds what; they, and those of results, say in words what they show."""

import re
from pathlib import Path

import numpy as np
import pytest
import torch
from drawn import arrows, axes, bars, boxed, cells, joined, labels, strokes, texts
from matplotlib.colors import to_rgba
from proven import proven

from attncourse import viz
from attncourse.viz.style import BLUE, GREY, ORANGE, PURPLE
from attncourse_lessons import course
from attncourse_lessons.l09_transformer.figures import KINDS, block_lines

figures = course.part("transformer", "figures")


@pytest.mark.parametrize("kind", KINDS)
def test_every_line_of_a_block_ends_in_an_x_or_h_of_one_shape(kind):
    for line in block_lines(kind, batch=4, n=7, n_memory=5, d=64, heads=8, d_ff=256):
        assert line.shapes.endswith(("x (4, 7, 64)", "h (4, 7, 64)"))


def test_only_a_decoder_looks_at_a_memory():
    looking = {kind for kind in KINDS if any("memory" in line.code for line in block_lines(kind, 2, 3, 4, 8, 2, 16))}
    assert looking == {"decoder"}


def test_a_frame_names_its_line_and_its_shapes_and_all_are_done_past_the_last():
    assert "line 4 of 6: x = x + cross(h, memory, source_mask). memory (4, 5, 64); weights (4, 8, 7, 5)" in (
        figures.block_frame("decoder", 4)[1]
    )
    assert "all lines done" in figures.block_frame("encoder", 5)[1]
    assert "mask (4, 1, 5); weights (4, 8, 5, 5); x (4, 5, 64)" in figures.block_frame("encoder", 2)[1]


def test_another_kind_of_block_is_refused():
    with pytest.raises(ValueError, match="kind: got 'both'"):
        figures.block_frame("both", 1)


def test_figure_1_leads_from_each_box_to_the_lecture_that_built_it(pages):
    figures.figure_1()
    (page,) = pages
    leads = dict(re.findall(r'<a href="([^"]+)" title="([^"]+)"', page))
    by_part = {part: address for address, part in re.findall(r'<a href="([^"]+)" title="([^"]+)"', page)}
    assert set(leads) <= {Path(lesson.lecture_notebook).name for lesson in course.lessons}
    assert by_part["cross-attention"].endswith("cross_attention.ipynb") and by_part["norm"].endswith("stacks.ipynb")
    assert set(by_part) == set(figures.BUILT_IN)


def test_the_pre_norm_form_has_l_blocks_and_the_published_one_n(pages):
    figures.figure_1()
    figures.figure_1("pre")
    published, today = pages
    assert "N blocks follow" in published and "L blocks follow" in today and "N blocks" not in today


def test_the_towers_say_where_the_memory_goes(shown):
    figures.encoder_decoder_stacks(2)
    assert "goes to each of the 2 blocks of the decoder" in shown[0]


def test_points_ranks_and_differences_are_read_out(shown):
    viz.labelled_points({"one": {"Transformer": (1e18, 27.3), "ByteNet": (1e20, 23.75)}}, "FLOPs", "BLEU")
    viz.ranking([("T5", 90.3)], "score")
    viz.differences_from_baseline({"here": {"RoPE": (-0.15, 0.02), "GELU": (0.01, 0.02)}})
    assert "one: Transformer 27.3 at 1e+18; ByteNet 23.75 at 1e+20" in shown[0]
    assert "T5 90.3" in shown[1]
    assert "RoPE −0.150 ± 0.020; GELU +0.010 ± 0.020" in shown[2]


@pytest.fixture
def pages(monkeypatch):
    """The HTML of the figures that were shown."""
    found = []
    monkeypatch.setattr("attncourse.viz.style.display", lambda data, metadata, raw: found.append(data["text/html"]))
    return found


def test_sampling_says_what_is_left_and_refuses_another_cut():
    logits = torch.tensor([2.0, 1.0, 0.0, -9.0])
    said = figures.sampling_frame(logits, ["a", "b"], 1.0, "top-k 2")[1]
    assert "2 of 4 tokens are left" in said and "a 0.73, b 0.27, all others 0.00" in said
    assert "1 of 4 tokens is left" in figures.sampling_frame(logits, ["a"], 0.1, "top-p 0.9")[1]
    with pytest.raises(ValueError, match="cut: got 'beam 3'"):
        figures.sampling_frame(logits, ["a"], 1.0, "beam 3")


def test_more_to_predict_than_is_read_is_refused():
    with pytest.raises(ValueError, match="masked LM: got 2 to predict, expected at most 1"):
        figures.objectives([figures.Objective("masked LM", ("a",), ("a", "b"))])


# What is drawn


@proven
def test_what_is_read_stands_above_what_is_predicted_there_and_what_stands_for_hidden_tokens_is_amber():
    rows = [figures.Objective("masked LM", ("the", "[gap]", "sat"), ("", "cat")),
            figures.Objective("spans", ("<1>", "sat"), (), ("<1>", "the", "cat"))]  # fmt: skip
    (ax,) = axes(figures.objectives, rows)
    at = {(words, round(y, 2)): x for words, x, y in texts(ax) if x > 0}
    assert at == {("the", 0): 0.47, ("[gap]", 0): 1.47, ("sat", 0): 2.47, ("cat", -0.75): 1.47,
                  ("<1>", -2.9): 0.47, ("sat", -2.9): 1.47,
                  ("<bos>", -3.65): 0.47, ("<1>", -3.65): 1.47, ("the", -3.65): 2.47,
                  ("<1>", -4.4): 0.47, ("the", -4.4): 1.47, ("cat", -4.4): 2.47}  # fmt: skip
    assert not any(hatch for _, hatch in cells(ax).values()), "hatching is left to the masks"
    said = [(words, round(y, 2)) for words, x, y in texts(ax) if x <= 0]
    assert said == [("masked LM", 0.6), ("reads", 0), ("predicts", -0.75),
                    ("spans", -2.3), ("encoder reads", -2.9), ("decoder reads", -3.65),
                    ("decoder predicts", -4.4)]  # fmt: skip
    amber = [(left, round(low + 0.28, 2)) for (left, low, _, _), (face, _) in cells(ax).items()
             if face == "#f6dda6"]  # fmt: skip
    assert amber == [(1, 0), (0, -2.9), (1, -3.65), (0, -4.4)] and len(cells(ax)) == 12


@proven
def test_a_mask_stands_beside_its_objective_row_by_row_and_what_it_forbids_is_hatched():
    mask = torch.tensor([[True, False], [True, True], [False, True]])
    rows = [figures.Objective("masked LM", ("the", "[gap]"), ("", "cat")),
            figures.Objective("causal LM", ("the", "cat"), ("cat", "sat"), masks={"causal": mask})]  # fmt: skip
    (ax,) = axes(figures.objectives, rows)
    beside = [(left, low, hatch) for (left, low, _, _), (_, hatch) in cells(ax).items() if left > 2]
    grid = sorted({left for left, _, _ in beside}), sorted({low for _, low, _ in beside}, reverse=True)
    drawn = {(grid[1].index(low), grid[0].index(left)): not hatch for left, low, hatch in beside}
    assert drawn == {(i, j): bool(mask[i, j]) for i in range(3) for j in range(2)}
    assert all(-2 * 2.9 + 0.95 < low < -2.9 + 0.4 for low in grid[1]), "in the row of its objective"
    edges = {round(y, 2): patch.get_edgecolor() for patch in ax.patches for y in [patch.get_y() + 0.28]
             if 0 <= patch.get_x() < 2 and patch.get_width() > 0.9}  # fmt: skip
    assert edges == {y: to_rgba(PURPLE if i % 2 else GREY) for i, y in enumerate((0, -0.75, -2.9, -3.65))}
    said = {words: (x, y) for words, x, y in texts(ax)}
    assert said["causal"] == (pytest.approx(grid[0][0]), pytest.approx(-2.9 + 0.44))
    assert said["query"][0] < grid[0][0] and said["query"][1] == pytest.approx((grid[1][0] + grid[1][1]) / 2, abs=0.01)
    assert grid[0][0] < said["key"][0] < grid[0][1] + 1 and said["key"][1] < grid[1][-1]


def test_the_axes_of_the_masks_are_named_once_and_a_mask_over_another_text_is_orange():
    masks = {"decoder": torch.ones(2, 2).bool(), "cross": torch.ones(2, 3).bool()}
    (ax,) = axes(figures.objectives, [figures.Objective("spans", ("a", "b"), (), ("c",), masks)] * 2)
    assert sorted(words for words, _, _ in texts(ax) if words in ("query", "key")) == ["key", "query"]
    sides = [(words, x) for words, x, y in texts(ax) if words in ("decoder", "encoder") and y < 0.4]
    assert [words for words, _ in sides[:2]] == ["decoder", "encoder"] and sides[0][1] < sides[1][1]
    colours = [colour for (left, _, _, _), (colour, _) in cells(ax).items() if left > 2]
    assert colours == ([BLUE] * 4 + [ORANGE] * 6) * 2


def test_the_objectives_of_the_lecture_have_the_masks_that_they_say(shown):
    figures.pretraining_objectives()
    assert "its mask prefix of four, 8 queries by 8 keys, allows 66% of the pairs" in shown[0]
    assert "decoder reads <bos> <1> the number <2> in it; decoder predicts <1> the number <2> in it <3>" in shown[0]


@proven
def test_changes_of_two_studies_lie_on_one_axis_hollow_where_the_bar_reaches_zero(shown):
    studies = {
        "here": {"RoPE": (-0.15, 0.02), "GELU": (-0.01, 0.02)}, "there": {"GELU": (0.3, 0.1), "none": (0.07, 0.01)}
    }
    figures.changes_to_the_block(studies)
    assert "here: RoPE −0.150 ± 0.020; GELU −0.010 ± 0.020. there: GELU +0.300 ± 0.100" in shown[0]
    (ax,) = axes(figures.changes_to_the_block, studies)
    assert labels(ax.yaxis) == {0: "RoPE", 1: "GELU", 2: "none"} and ax.yaxis_inverted()
    zero, *drawn = [stroke for stroke in strokes(ax) if stroke]
    assert zero == [(0, 0), (0, 1)]
    assert drawn == [
        [(-0.17, -0.17), (-0.13, -0.17)], [(-0.15, -0.17)], [(-0.03, 0.83), (0.01, 0.83)], [(-0.01, 0.83)],
        [(0.2, 1.17), (0.4, 1.17)], [(0.3, 1.17)], [(0.06, 2.17), (0.08, 2.17)], [(0.07, 2.17)],
    ]  # fmt: skip
    marks = [line for line in ax.lines if len(line.get_xdata()) == 1]
    assert [line.get_marker() for line in marks] == ["o", "o", "s", "s"]
    assert [line.get_markerfacecolor() == "white" for line in marks] == [False, True, False, False]
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["here", "there"]


def test_groups_of_changes_stand_under_their_titles_in_their_order():
    studies = {"here": {"RoPE": (-0.15, 0.02), "GELU": (-0.01, 0.02)}}
    (ax,) = axes(figures.changes_to_the_block, studies, {"network": ("GELU",), "positions": ("RoPE",)})
    assert labels(ax.yaxis) == {0: "network", 1: "GELU", 2: "positions", 3: "RoPE"}
    marks = [line for line in ax.lines if len(line.get_xdata()) == 1]
    assert [(line.get_xdata()[0], round(line.get_ydata()[0], 2)) for line in marks] == [(-0.15, 2.83), (-0.01, 0.83)]
    (ax,) = axes(figures.changes_to_the_block, studies, {"all": ("GELU", "RoPE")}, {"GELU": "−7 %"})
    assert labels(ax.yaxis) == {0: "all", 1: "GELU (−7 %)", 2: "RoPE"}


@proven
def test_gains_are_grey_before_blue_after_and_labelled(shown):
    rows = {"RoPE": ((0.15, 0.03), (0.38, 0.02)), "untied": ((0.1, 0.02), (0.05, 0.02))}
    figures.gains_before_and_after(rows, ("300", "1200"))
    assert "RoPE: 0.150 ± 0.030 before, 0.380 ± 0.020 after. untied: 0.100 ± 0.020 before" in shown[0]
    (ax,) = axes(figures.gains_before_and_after, rows, ("300", "1200"))
    marks = [line for line in ax.lines if len(line.get_xdata()) == 1]
    assert [line.get_xdata()[0] for line in marks] == [0.15, 0.38, 0.1, 0.05]
    assert [(line.get_marker(), line.get_color()) for line in marks] == [
        ("s", GREY), ("o", BLUE), ("s", GREY), ("o", BLUE)
    ]  # fmt: skip
    assert [words for words, _, _ in texts(ax)] == ["grows: 0.15 → 0.38", "shrinks: 0.10 → 0.05"]
    legend = ax.get_legend()
    assert [text.get_text() for text in legend.get_texts()] == ["300", "1200"]
    assert [(line.get_marker(), line.get_color()) for line in legend.get_lines()] == [("s", GREY), ("o", BLUE)]
    assert labels(ax.yaxis) == {0: "RoPE", 1: "untied"} and ax.yaxis_inverted()
    assert arrows(ax) == [((0.15, 0), (0.38, 0)), ((0.1, 1), (0.05, 1))]
    assert strokes(ax)[1:-2] == [
        [(0.12, -0.13), (0.18, -0.13)], [(0.15, -0.13)], [(0.36, 0.13), (0.4, 0.13)], [(0.38, 0.13)],
        [(0.08, 0.87), (0.12, 0.87)], [(0.1, 0.87)], [(0.03, 1.13), (0.07, 1.13)], [(0.05, 1.13)],
    ]  # fmt: skip
    assert strokes(ax)[0] == [(0, 0), (0, 1)]


def test_a_gain_that_becomes_a_loss_lies_left_of_zero_inside_the_axes():
    (ax,) = axes(figures.gains_before_and_after, {"none": ((0.05, 0.01), (-0.04, 0.02))}, ("a", "b"))
    assert [words for words, _, _ in texts(ax)] == ["becomes a loss: 0.05 → −0.04"]
    assert ax.get_xlim()[0] < -0.06 and [(-0.06, 0.13), (-0.02, 0.13)] in strokes(ax)


@proven
def test_a_curve_is_what_a_budget_buys_with_the_model_and_the_lowest_loss_on_it(shown):
    def loss(n_parameters, n_tokens):
        return 10 + abs(np.log(n_parameters / 5e10)) + 0 * n_tokens

    def tokens_alone(n_parameters, n_tokens):
        return n_tokens

    models = {"small": (1e10, 6e11), "large": (2e11, 3e11)}
    figures.budget_curves(loss, models)
    assert "small, 3.6e+22 FLOPs, 60 tokens per parameter: 11.609 at 10 billion parameters, lowest 10.0" in shown[0]
    (ax,) = axes(figures.budget_curves, loss, models)
    lines = strokes(ax)
    assert [len(line) for line in lines] == [301, 1, 1, 2] * 2
    for (curve, (mark,), (cross,), foot), size in zip((lines[:4], lines[4:]), (1e10, 2e11), strict=True):
        assert [y for _, y in curve] == pytest.approx([loss(x, 1) for x, _ in curve], abs=1e-3)
        assert mark == (size, pytest.approx(loss(size, 1), abs=1e-3))
        assert cross == min(curve, key=lambda point: point[1]) and cross[0] == pytest.approx(5e10, rel=0.02)
        assert foot == [cross, (pytest.approx(1.12 * size), cross[1])]
    lowest = lines[2][0][1]
    downwards = [((size, pytest.approx(loss(size, 1), abs=1e-3)), (size, pytest.approx(lowest, abs=1e-3)))
                 for size in (1e10, 2e11)]  # fmt: skip
    assert arrows(ax)[:2] == downwards
    assert [words for words, _, _ in texts(ax)] == [
        "small: budget 0.1 ×,\n60 tokens per parameter,\n1.603 above the lowest",
        "large: budget 1 ×,\n1.5 tokens per parameter,\n1.380 above the lowest",
    ]
    assert [text.xy[0] for text in ax.texts] == [1e10, 2e11] and ax.get_legend() is None
    billions = {1e9 * number: f"{number:,}" for number in [5, 10, 20, 50, 100, 200, 500, 1000]}
    assert labels(ax.xaxis) == billions
    (ax,) = axes(figures.budget_curves, tokens_alone, {"one": (1e10, 6e11)})
    (words,) = (words for words, _, _ in texts(ax))
    assert words.startswith("one: budget 1 ×,\n60 tokens per parameter")
    assert arrows(ax) == [((1e10, 6e11), (1e10, pytest.approx(6e9)))]
    assert labels(ax.xaxis) == billions
    paid = [x * y for x, y in strokes(ax)[0]]
    assert paid == pytest.approx([6e21] * 301, rel=1e-3), "of one budget"


@proven
def test_an_arrow_leads_from_the_better_loss_to_where_the_baseline_reaches_it(shown):
    baseline, other = {100: [4.1, 3.9], 400: [3.0]}, {100: [3.5], 400: [1.9, 2.1]}
    between = 4 ** (2 / 3)                                     # 3.0 is a third of the way down from 3.5 to 2.0
    assert figures.worth_in_steps(baseline, other, "RoPE") == pytest.approx([2.0, between, 4.0])
    assert "many times the steps: 2.0 at 100 steps, 4.0 at 400 steps. For the baseline's loss at 400 steps: 2.5" in (
        shown[0]
    )
    (ax,) = axes(figures.worth_in_steps, baseline, other, "RoPE")
    assert arrows(ax) == [
        ((pytest.approx(400 / between, rel=1e-3), 3.0), (400, 3.0)), ((100, 3.5), (pytest.approx(200), 3.5)),
        ((400, 2.0), (pytest.approx(1600), 2.0)),
    ]  # fmt: skip
    (begin, end), *measured = strokes(ax)
    assert begin == (400, 3.0) and end == (pytest.approx(1840), pytest.approx(3 - np.log(4.6) / np.log(4), abs=1e-3))
    assert measured == [
        [(100, 4.0), (400, 3.0)], [(100, 4.1), (100, 3.9), (400, 3.0)],
        [(100, 3.5), (400, 2.0)], [(100, 3.5), (400, 1.9), (400, 2.1)],
    ]  # fmt: skip
    assert [words for words, _, _ in texts(ax)] == [
        "2.5 times", "2.0 times the steps", "4.0 times the steps (extrapolated)", "baseline", "RoPE"
    ]  # fmt: skip
    assert labels(ax.xaxis) == {300: "300", 600: "600", 1200: "1,200"} and ax.get_xscale() == "log"


@proven
def test_bars_of_the_likeliest_tokens_before_and_after_the_cut_and_one_of_all_others():
    logits = torch.tensor([0.0, 2.0, 1.0, -1.0])
    (ax,) = axes(figures.sampling_frame, logits, ["b", "c", "a"], 0.5, "top-k 2")
    own = logits.softmax(dim=0).sort(descending=True).values.tolist()
    after = (logits[1:3] / 0.5).softmax(dim=0).tolist()
    rows = ["b", "c", "a", "all others"]
    found = bars(ax)
    assert found["the model's own"] == pytest.approx(dict(zip(rows, own, strict=True)), abs=1e-4)
    assert found["what we sample from"] == pytest.approx(dict(zip(rows, [*after, 0, 0], strict=True)), abs=1e-4)
    assert [words for words, _, _ in texts(ax)] == ["0.88", "0.12", "cut", "cut"] and ax.yaxis_inverted()
    assert ax.get_title() == "T = 0.5, top-k 2: 2 of 4 tokens are left"


@proven
def test_stacks_are_read_from_their_inputs_up_and_the_memory_goes_across_to_each_block():
    (ax,) = axes(figures.encoder_decoder_stacks, 2)
    alone = [("the cat [?] here", "bidirectional", "sat"), ("<bos> the cat", "causal", "the cat sat")]
    both = [("die Katze hat geschlafen", "bidirectional", None), ("<bos> the cat", "causal, cross", "the cat slept")]
    position = "embedding + position"
    expected = []
    for inputs, block, outputs in alone + both:
        top = "norm, linear, softmax" if outputs else "norm"
        expected += [(inputs, position), (position, block), (block, block), (block, top)]
        expected += [(top, outputs)] if outputs else []
    assert joined(ax)[:-2] == expected
    assert all(start[1] < end[1] for start, end in arrows(ax)[:-2])
    assert boxed(ax) == [block for _, block, _ in alone + both for _ in range(2)]
    tops = sorted({low + 0.5 for _, low, width, _ in cells(ax) if width > 1})
    # From above the encoder's last norm down beside its blocks, with an arrow to each of the decoder's.
    (start, corner), (foot, head) = strokes(ax)
    norm = {x: y for words, x, y in texts(ax) if words == "norm"}
    assert start == (11.0, norm[10.5]) and corner == head and foot == (corner[0], tops[0])
    assert [start for start, _ in arrows(ax)[-2:]] == [(corner[0], y) for y in tops]
    assert [end for _, end in arrows(ax)[-2:]] == [(13.4, y) for y in tops]
    named = {words: x for words, x, y in texts(ax) if words.startswith(("encoder", "decoder"))}
    assert named == {"encoder-only": 1.9, "decoder-only": 6.1, "encoder–decoder": 12.5}
    # Under each stack its masks, a row for each query and a column for each key.
    masks = {1.9: (BLUE, 4, 4, False), 6.1: (BLUE, 3, 3, True), 10.5: (BLUE, 4, 4, False), 13.8: (BLUE, 3, 3, True),
             15.5: (ORANGE, 3, 4, False)}  # fmt: skip
    expected = {}
    for x, (colour, n, n_keys, causal) in masks.items():
        for i in range(n):
            for j in range(n_keys):
                place = round(x + 0.42 * (j - n_keys / 2), 2), round(-0.4 - 0.42 * (i + 1), 2)
                expected[place] = (colour.lower(), False) if j <= i or not causal else ("#ffffff", True)
    drawn = {(round(left, 2), round(low, 2)): (face, bool(hatch))
             for (left, low, width, _), (face, hatch) in cells(ax).items() if width < 1}  # fmt: skip
    assert drawn == expected
    (beside,) = ((x, y) for words, x, y in texts(ax) if words == "← query")
    (above,) = ((x, y) for words, x, y in texts(ax) if words == "key →")
    assert beside == (pytest.approx(1.9 - 2 * 0.42 - 0.24), pytest.approx(-0.4 - 2 * 0.42)) and above == (1.9, -0.22)
    named = [(words, x) for words, x, y in texts(ax) if y < 0 and words not in ("key →", "← query")]
    assert named == [("all", 1.9), ("causal", 6.1), ("all", 10.5), ("causal", 13.8), ("cross: all", 15.5)]


PARTS = {
    "encoder": [("norm 1", "attention"), ("norm 2", "feed forward")],
    "decoder": [("norm 1", "causal\nattention"), ("norm 2", "cross"), ("norm 3", "feed forward")],
    "decoder-only": [("norm 1", "causal\nattention"), ("norm 2", "feed forward")],
}


@pytest.mark.parametrize("line", [1, 2, 5])
@pytest.mark.parametrize("kind", KINDS)
def test_a_block_marks_its_line_in_the_code_and_its_box_in_the_drawing(kind, line):
    (ax,) = axes(figures.block_frame, kind, line)
    n = 5 if kind.startswith("encoder") else 7
    lines = block_lines(kind, batch=4, n=n, n_memory=5, d=64, heads=8, d_ff=256)
    code = [words for words, x, y in sorted(texts(ax), key=lambda text: -text[2]) if x == 6.5 and y > 3]
    assert code == [each.code for each in lines]
    height = {words: y for words, x, y in texts(ax) if x == 6.5}
    marked = [y for words, _, y in texts(ax) if words == "▶"]
    assert marked == ([height[lines[line - 1].code]] if line <= len(lines) else [])
    full = [words for words, x, y in texts(ax) for (left, low, width, _), (colour, _) in cells(ax).items()
            if left < x < left + width and low < y < low + 1 and min(bytes.fromhex(colour[1:])) < 0x60]  # fmt: skip
    assert [words.removeprefix("causal\n") for words in full] == [
        box.replace("_", " ") for box in (lines[line - 1].boxes if line <= len(lines) else ())
    ]
    said = [(name, size) for name, x, y in texts(ax) for size, right, same in texts(ax)
            if x == 6.5 and right == 8.6 and y == same]  # fmt: skip
    shapes = lines[line - 1].shapes if line <= len(lines) else f"x (4, {n}, 64), the shape it came in"
    assert [" ".join(both) for both in said] == shapes.split("; ")


@proven
@pytest.mark.parametrize("kind", PARTS)
def test_each_part_of_a_block_reads_a_normed_x_and_is_added_to_it_further_up(kind):
    (ax,) = axes(figures.block_frame, kind, 1)
    ways = [way for norm, part in PARTS[kind] for way in ((norm, norm), (norm, part), (part, "+"))]
    assert joined(ax) == [("x", "+"), *ways] and arrows(ax)[0] == ((1, 0.5), (1, 7.2))
    assert boxed(ax) == [box for pair in PARTS[kind] for box in pair]
    at = {words: (x, y) for words, x, y in texts(ax) if words in boxed(ax)}
    for i, (norm, part) in enumerate(PARTS[kind]):
        out, back, (plus,) = strokes(ax)[3 * i : 3 * i + 3]
        assert out == [(1, at[norm][1]), (1.7, at[norm][1])] and at[norm][1] == at[part][1]
        assert [x for x, _ in back] == [at[part][0]] * 2 and at[part][1] < back[0][1] < back[1][1]
        assert plus == (1, back[1][1])
    code = {words: y for words, x, y in texts(ax) if x == 6.5}
    assert code["h = norm_1(x)"] == 6.5 and (code["h"], len(code)) == (1.9, 2 * len(PARTS[kind]) + 1)
    assert [words for words, x, y in texts(ax) if words == "▶" and y == 6.5] == ["▶"]
    assert [colour for _, (colour, _) in cells(ax).items() if min(bytes.fromhex(colour[1:])) < 0x60] == ["#e69f00"]
    assert {words for words, _, y in texts(ax) if words == "↑ memory"} == ({"↑ memory"} if kind == "decoder" else set())


@proven
def test_the_block_of_2017_is_normed_on_the_way_of_x():
    (ax,) = axes(figures.block_frame, "encoder of 2017", 2)
    assert joined(ax)[0][0] == "x" and [way for way in joined(ax)[1:] if way[0] != way[1]] == [
        ("attention", "+"), ("feed forward", "+")
    ]  # fmt: skip
    at = {words: (x, y) for words, x, y in texts(ax) if words in boxed(ax)}
    assert [*at] == ["attention", "norm 1", "feed forward", "norm 2"] and len(cells(ax)) == 4
    heights = [at[name][1] for name in at]
    assert heights == sorted(heights)
    assert at["norm 1"][0] == at["norm 2"][0] == 1 and at["attention"][0] == at["feed forward"][0] == 4.2
    for i, part in enumerate(("attention", "feed forward")):
        out, back, (plus,) = strokes(ax)[3 * i : 3 * i + 3]
        assert out == [(1, at[part][1]), (3.0, at[part][1])]
        assert [x for x, _ in back] == [4.2] * 2 and at[part][1] < back[0][1] < back[1][1] == plus[1]
        assert plus[0] == 1 and plus[1] < at[f"norm {i + 1}"][1]
    assert [words for words, _, y in texts(ax) if words == "▶" and y == pytest.approx(5.88)] == ["▶"]
    full = [place for place, (colour, _) in cells(ax).items() if colour == "#e69f00"]
    assert [place[0] + place[2] / 2 for place in full] == [1] and full[0][1] + 0.5 == at["norm 1"][1]
    shapes = {words: (x, y) for words, x, y in texts(ax) if y == 1.9}
    assert shapes == {"x": (6.5, 1.9), "(4, 5, 64)": (8.6, 1.9)}
