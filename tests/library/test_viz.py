"""Every picture draws what it was given, says in words what it shows, and comes out the same at every run."""

import ast
import base64
import re
import subprocess
import sys
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
import torch
from drawn import axes, cells, curves, grid, strokes, table, written
from PIL import Image
from proven import proven

from attncourse import viz
from attncourse.attention import causal_mask
from attncourse.viz.style import DPI, figure, png
from attncourse_lessons import course

beyond_text_figures = course.part("beyond_text", "figures")
bottleneck_figures = course.part("bottleneck", "figures")
cross_attention_figures = course.part("cross_attention", "figures")
getting_ready_figures = course.part("getting_ready", "figures")

WEIGHTS = torch.tensor([[0.1, 0.9], [0.5, 0.5], [0.8, 0.2]])
SOURCE, TARGET = ["ninety-", "one"], ["ein", "und", "neunzig"]


@pytest.fixture
def shown(monkeypatch):
    """What the figures hand to the notebook: a list of (data, metadata)."""
    displayed = []
    monkeypatch.setattr("attncourse.viz.style.display", lambda data, metadata, raw: displayed.append((data, metadata)))
    return displayed


FIGURES = {
    "alignment": lambda: viz.alignment_heatmap(WEIGHTS, SOURCE, TARGET),
    "weights": lambda: viz.draw_weights(WEIGHTS, TARGET, SOURCE, title="weights"),
    "two tables": lambda: viz.draw_weights({"rows": WEIGHTS, "columns": 1 - WEIGHTS}, TARGET, SOURCE),
    "masks": lambda: viz.draw_masks({"causal": causal_mask(4), "window": torch.eye(4, dtype=torch.bool)}),
    "accuracy": lambda: cross_attention_figures.right_by_length(
        {"450 steps": {"a": [{"1": 0.5, "2": 0.25}], "b": [{"1": 1.0, "2": 0.5}]}}
    ),
    "curves": lambda: viz.curves({"loss": [3.0, 2.0, 1.0]}),
    "diagram": viz.encoder_decoder,
    "a decoding step": cross_attention_figures.decoding_step,
    "a network unrolled": lambda: bottleneck_figures.unrolled_rnn(["<bos>", "Return", "the"]),
    "gates": bottleneck_figures.lstm_and_gru,
    "measured lines": lambda: viz.line_plot({"a": {1: 100, 2: 30}, "b": {1: 50}}, "order", "perplexity", log_y=True),
    "axes of a batch": lambda: getting_ready_figures.batch_axes(torch.arange(24.0).view(2, 3, 4)),
    "a rectangle with padding": lambda: getting_ready_figures.padded_batch(
        {"lamp": [5], "kettle": [4, 3]}, pad=0, means=[5, 3.5]
    ),
    "clouds": lambda: getting_ready_figures.scatter_panels(
        {"a": (WEIGHTS[:, 0], WEIGHTS[:, 1])}, "x", "y", diagonal="y = x"
    ),
}


@pytest.mark.parametrize("draw", FIGURES.values(), ids=FIGURES)
def test_a_figure_is_a_png_with_alt_text_and_the_same_bytes_each_time(draw, shown):
    draw()
    draw()
    (data, metadata), again = shown
    assert base64.b64decode(data["image/png"]).startswith(b"\x89PNG")
    assert metadata["image/png"]["alt"] == data["text/plain"] and len(data["text/plain"]) > 30
    assert again[0] == data


@proven
def test_a_heatmap_has_a_row_a_target_token_and_a_column_a_source_token():
    (ax,) = axes(viz.alignment_heatmap, WEIGHTS, SOURCE, TARGET, title="91")
    assert table(ax) == {
        "ein": {"ninety-": 0.1, "one": 0.9},
        "und": {"ninety-": 0.5, "one": 0.5},
        "neunzig": {"ninety-": 0.8, "one": 0.2},
    }
    assert grid(ax) == [[0.1, 0.9], [0.5, 0.5], [0.8, 0.2]]
    assert written(ax)["ein"] == {"ninety-": "0.10", "one": "0.90"}
    assert written(ax)["neunzig"] == {"ninety-": "0.80", "one": "0.20"}
    assert (ax.get_xlabel(), ax.get_ylabel(), ax.get_title()) == ("source (keys)", "target (queries)", "91")


@proven
def test_small_matrices_stand_side_by_side_with_their_numbers():
    scores = torch.tensor([[2.5, -torch.inf], [-1.0, 0.125]])
    both = {"scores": scores, "weights": scores.softmax(-1)}
    left, right = axes(viz.draw_weights, both, ["a", "b"], ["x", "y"], row_name="who asks", column_name="who answers")
    for ax in (left, right):
        assert (ax.get_xlabel(), ax.get_ylabel()) == ("who answers", "who asks")
    assert (left.get_title(), right.get_title()) == ("scores", "weights")
    assert table(left) == {"a": {"x": 2.5, "y": -1.0}, "b": {"x": -1.0, "y": 0.125}}  # −∞ has the lightest colour
    assert written(left) == {"a": {"x": "2.50", "y": "−∞"}, "b": {"x": "−1.00", "y": "0.12"}}
    share = 1 / (1 + np.exp(1.125))
    assert table(right) == {"a": {"x": 1, "y": 0}, "b": {"x": pytest.approx(share), "y": pytest.approx(1 - share)}}
    assert written(right) == {"a": {"x": "1.00", "y": "0.00"}, "b": {"x": "0.25", "y": "0.75"}}


@proven
def test_masks_are_filled_where_a_query_may_attend_and_hatched_where_it_may_not():
    left, right = axes(viz.draw_masks, {"causal": causal_mask(3), "window": torch.eye(3, dtype=torch.bool).roll(1, 1)})
    assert (left.get_title(), right.get_title()) == ("causal", "window")
    assert grid(left) == [[1, 0, 0], [1, 1, 0], [1, 1, 1]]
    assert grid(right) == [[0, 1, 0], [0, 0, 1], [1, 0, 0]]
    for ax in (left, right):
        hatched = {(key, query) for (key, query, *_), (_, hatch) in cells(ax).items() if hatch}
        assert hatched == {(j, i) for i, row in enumerate(grid(ax)) for j, filled in enumerate(row) if not filled}
    assert (left.get_xlabel(), left.get_ylabel()) == ("key", "query")


@proven
def test_curves_go_through_their_numbers_on_the_axes_that_were_asked_for():
    (ax,) = axes(viz.curves, {"loss": [3.0, 1.0, 2.0], "gradient": [10.0, 100.0, 1.0]}, xs=[1, 8, 64], log_x=True)
    assert curves(ax) == {"loss": {"1": 3, "8": 1, "64": 2}, "gradient": {"1": 10, "8": 100, "64": 1}}
    assert (ax.get_xscale(), ax.get_yscale()) == ("log", "linear")


@proven
def test_a_long_curve_is_the_mean_over_a_fortieth_of_it():
    (ax,) = axes(viz.curves, {"squares": np.arange(1, 81) ** 2, "none": np.zeros(80)})
    assert curves(ax)["squares"] == {x: (x**2 + (x - 1) ** 2) / 2 for x in range(2, 81)}


def test_a_single_line_is_what_the_axis_says_and_has_no_legend():
    (one,) = axes(viz.curves, {"squares": np.arange(1, 10)})
    (two,) = axes(viz.curves, {"squares": np.arange(1, 10), "none": np.zeros(9)})
    assert one.get_legend() is None and len(two.get_legend().get_texts()) == 2


def test_the_alt_text_of_an_alignment_says_where_each_target_token_looks(shown):
    FIGURES["alignment"]()
    assert "ein: most at one (0.90)" in shown[0][0]["text/plain"]
    assert "neunzig: most at ninety- (0.80)" in shown[0][0]["text/plain"]


def test_the_alt_text_of_masks_says_how_much_is_allowed(shown):
    FIGURES["masks"]()
    assert "causal: 4 queries by 4 keys, 62% of the pairs allowed" in shown[0][0]["text/plain"]


def test_the_alt_text_of_a_rectangle_tells_padding_from_what_is_there(shown):
    FIGURES["a rectangle with padding"]()
    words = shown[0][0]["text/plain"]
    assert "lamp: 5, then 1 of padding (0), mean 5 / 1 = 5; kettle: 4, 3, mean 7 / 2 = 3.5" in words


@pytest.mark.parametrize(
    ("a", "b", "said"),
    [
        ("(3, 1)", "(4,)", "(3, 4), with a and b stretched"),
        ("(3, 4)", "(1, 4)", "(3, 4), with b stretched"),
        ("(3,)", "(3,)", "(3,), with nothing stretched: [9, 18, 27]"),
        ("(3,)", "(3, 1)", "(3, 3), with a and b stretched: [[9, 19, 29], [8, 18, 28], [7, 17, 27]]"),
        ("(3, 4)", "(3,)", "does not fit: 4 against 3 in the last axis"),
        ("(3, 1)", "(2, 4)", "does not fit: 3 against 2 in the last axis but one"),
    ],
)
def test_broadcasting_is_drawn_as_torch_does_it(a, b, said):
    assert said in getting_ready_figures.broadcasting(a, b)[1]


def test_shares_survive_a_shift_only_when_the_largest_score_is_taken_away():
    for shift, spoilt in ((0, False), (-102, True), (-106, True), (90, True)):
        words = getting_ready_figures.exp_range(torch.tensor([0.0, 2.0, 5.0]), shift)[1]
        assert ("wrong" in words) == spoilt
        own = "exp gives 0.00674, 0.0498, 1, softmax gives 0.006, 0.047, 0.946."
        assert f"largest subtracted, -5, -3, 0, {own}" in words


def test_a_mask_that_is_not_one_is_refused():
    with pytest.raises(TypeError, match=r"mask 'a': got torch\.float32, expected torch\.bool"):
        viz.draw_masks({"a": torch.ones(2, 2)})
    with pytest.raises(ValueError, match=r"mask 'a': got shape \(2,\), expected"):
        viz.draw_masks({"a": torch.ones(2, dtype=torch.bool)})


def test_a_figure_without_words_is_refused():
    with pytest.raises(ValueError, match="alt: got nothing"):
        viz.show(viz.figure()[0], " ")


@pytest.mark.parametrize("draw", [viz.alignment_heatmap, viz.step_through])
def test_weights_that_do_not_fit_the_tokens_are_refused(draw):
    with pytest.raises(ValueError, match=r"weights: got shape \(3, 2\), expected \(2, 3\)"):
        draw(WEIGHTS, TARGET, SOURCE)


def test_the_widget_has_a_frame_for_each_target_token():
    widget = viz.step_through(WEIGHTS, SOURCE, TARGET)
    (slider,) = widget.controls
    assert slider["labels"] == ["1: ein", "2: und", "3: neunzig"] and len(widget.frames) == 3
    assert "<b>neunzig</b>" in widget.frames[2] and "0.80" in widget.frames[2]


def test_the_widget_brings_a_still_picture_and_words_without_a_memory_address():
    data, metadata = viz.step_through(WEIGHTS, SOURCE, TARGET)._repr_mimebundle_()
    assert {"image/png", "text/plain", "application/vnd.jupyter.widget-view+json"} <= set(data)
    assert "0x" not in data["text/plain"] and metadata["image/png"]["alt"] == data["text/plain"]


def lines(height, colour="blue"):
    figure, ax = viz.figure(2, 1)
    ax.plot([0, height], color=colour)
    return figure, f"a {colour} line that rises to {height}"


def test_an_explorer_has_a_picture_with_words_for_every_setting():
    widget = viz.explore(lines, names={"colour": "ink"}, height=[1, 2.5, 3], colour=["blue", "red"])
    assert widget.controls == [
        {"name": "height", "labels": ["1", "2.5", "3"], "slider": True},
        {"name": "ink", "labels": ["blue", "red"], "slider": False},
    ]
    assert [frame.split('alt="')[1].split('"')[0] for frame in widget.frames] == [
        f"a {colour} line that rises to {height}" for height in (1, 2.5, 3) for colour in ("blue", "red")
    ]


def test_each_frame_of_an_explorer_is_the_picture_of_its_setting():
    heights, colours = [1, 2.5, 3], ["blue", "red"]
    widget = viz.explore(lines, height=heights, colour=colours)
    pictures = [re.search('base64,([^"]*)', frame)[1] for frame in widget.frames]
    assert [base64.b64decode(picture) for picture in pictures] == [
        png(lines(height, colour)[0], 128) for height in heights for colour in colours
    ]
    assert len({*pictures}) == 6


@proven
def test_an_explorer_stands_still_where_it_starts():
    (ax,) = axes(viz.explore, lines, start={"height": 3}, height=[1, 2, 3])
    assert strokes(ax) == [[(0, 0), (1, 3)]]


def test_a_still_of_several_settings_has_the_picture_of_each_on_one_sheet():
    widget = viz.explore(lines, still=[{"height": 3}, {"height": 1}], height=[1, 2, 3], colour=["red"])
    sheet, words = widget.still()
    assert words == "a red line that rises to 3 a red line that rises to 1"
    both = np.asarray(Image.open(BytesIO(png(sheet))).convert("RGB"), int)
    each = [np.asarray(Image.open(BytesIO(png(lines(height, "red")[0]))).convert("RGB"), int) for height in (3, 1)]
    assert both.shape == np.hstack(each).shape
    assert abs(both - np.hstack(each)).max() < 20, "the same pixels, twice in few colours"
    assert widget.chosen == ["2", "red"], "the widget itself stands where it starts"
    with pytest.raises(ValueError, match="still: got height = 5"):
        viz.explore(lines, still=[{"height": 5}], height=[1])


@pytest.mark.parametrize("step", [0, 1, 2])
def test_a_step_has_a_bar_for_each_source_token_as_long_as_its_weight(step):
    frame = viz.step_through(WEIGHTS, SOURCE, TARGET).frames[step]
    found = re.findall(r'row">([^<]*)</th>.*?width:([\d.]+)%.*?<td>([\d.]+)</td>', frame)
    assert found == [(token, f"{100 * w:.1f}", f"{w:.2f}") for token, w in zip(SOURCE, WEIGHTS[step], strict=True)]
    written, now = [["", "ein"], ["ein", "und"], ["ein und", "neunzig"]][step]
    assert f"<p>{written} <b>{now}</b> looks at</p>" in frame


@proven
def test_the_steps_stand_still_as_a_heatmap_of_all():
    (ax,) = axes(viz.step_through, WEIGHTS, SOURCE, TARGET)
    assert table(ax)["ein"] == {"ninety-": 0.1, "one": 0.9} and table(ax)["neunzig"] == {"ninety-": 0.8, "one": 0.2}
    assert written(ax)["ein"] == {"ninety-": "0.10", "one": "0.90"}


def test_what_is_shown_is_the_figure(monkeypatch):
    kept = []
    monkeypatch.setattr("attncourse.viz.style.display", lambda data, metadata, raw: kept.append((data, metadata)))
    viz.show(lines(3)[0], "a line that rises")
    ((data, metadata),) = kept
    assert base64.b64decode(data["image/png"]) == png(lines(3)[0])
    assert metadata["image/png"] == {"alt": "a line that rises", "width": 192, "height": 96}


def test_a_picture_in_few_colours_looks_as_it_did():
    drawn, _ = beyond_text_figures.span_frame(torch.arange(40).view(2, 20) % 3 == 0, 0.5)
    drawn.savefig(full := BytesIO(), dpi=DPI, facecolor="white")
    every, few = (np.asarray(Image.open(image).convert("RGB"), int) for image in (full, BytesIO(png(drawn, 128))))
    assert (abs(every - few).max(axis=-1) > 8).mean() < 0.001


def test_an_explorer_starts_in_the_middle_or_where_it_is_told_and_stands_still_there():
    assert viz.explore(lines, height=[1, 2, 3])._repr_mimebundle_()[0]["text/plain"] == "a blue line that rises to 2"
    told = viz.explore(lines, start={"height": 3, "colour": "blue"}, height=[1, 2, 3], colour=["blue", "red"])
    data, metadata = told._repr_mimebundle_()
    assert data["text/plain"] == metadata["image/png"]["alt"] == "a blue line that rises to 3"
    assert told.chosen == ["3", "blue"]


def test_an_explorer_refuses_what_it_cannot_draw():
    with pytest.raises(TypeError, match="controls: got 0, expected one or two"):
        viz.explore(lines)
    with pytest.raises(ValueError, match="height: got no values"):
        viz.explore(lines, height=[])
    with pytest.raises(ValueError, match=r"height: got \['0.1', '0.1'\], expected values that look different"):
        viz.explore(lines, height=[0.1, 0.1000000001])
    with pytest.raises(ValueError, match="start: got height = 5"):
        viz.explore(lines, start={"height": 5}, height=[1])
    with pytest.raises(ValueError, match="controls: got 200 settings, expected at most 120"):
        viz.explore(lines, height=list(range(200)))
    with pytest.raises(ValueError, match="draw: got no words"):
        viz.explore(lambda height: (viz.figure()[0], ""), height=[1])


def test_tokens_are_escaped_in_the_widget():
    assert "<script>" not in "".join(viz.step_through(WEIGHTS, ["<script>", "b"], TARGET).frames)


def test_the_alt_text_of_measured_lines_holds_every_number(shown):
    FIGURES["measured lines"]()
    assert shown[0][0]["text/plain"] == "perplexity against order. a: 100 at 1, 30 at 2; b: 50 at 1."


def test_a_walk_says_how_many_cells_and_how_many_steps():
    _, words = bottleneck_figures.signal_path(12, 3)
    assert "goes through 4 cells" in words and "after 12 steps" in words and "after 1 step" in words


def test_drawing_a_curve_loads_no_widgets_and_no_models():
    code = "import sys; from attncourse import viz; viz.curves; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert "attncourse.viz.figures" in loaded
    assert {"anywidget", "attncourse.transformer", "attncourse_lessons.l07_many_heads.figures"}.isdisjoint(loaded)


def test_every_name_that_viz_offers_is_there():
    assert [name for name in viz.__all__ if not callable(getattr(viz, name))] == []
    assert dir(viz) == viz.__all__


# What hands on a figure that somebody else drew, or has none; the tests above see to them.
DRAWS_NOTHING = {
    "figure", "show", "pattern_presets", "pattern_in_words", "Line", "Question", "hill", "turns", "block_lines",
    "names_of", "doubling_rounds", "jobs_of_heads", "one_token", "monday_first",
    "search", "adamw_numbers", "pretraining_objectives", "clock_time", "blues", "yarn",
    "figure_1",  # viz.transformer_architecture with the lectures' addresses, which a test of the lesson asks for
}  # fmt: skip


def drawing_functions():
    """The names of everything that draws: what viz offers, and what the lessons' own modules define."""
    names = {*viz.__all__}
    for lesson in course.lessons:
        for path in lesson.folder.glob("*.py"):
            if path.stem in ("figures", "pattern_pad"):
                tree = ast.parse(path.read_text(encoding="utf-8"))
                names |= {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    return {name for name in names if not name.startswith("_")}


def test_every_function_that_draws_is_tested_by_what_it_draws():
    tests = next(folder for folder in Path(__file__).resolve().parents if folder.name == "tests")
    tested = set()
    for file in tests.rglob("test_*.py"):
        source = file.read_text(encoding="utf-8")
        for node in ast.parse(source).body if "@proven" in source else ():
            if isinstance(node, ast.FunctionDef) and any(ast.unparse(each) == "proven" for each in node.decorator_list):
                calls = (each for each in ast.walk(node) if isinstance(each, ast.Call))
                draws = (call.args[0] for call in calls if ast.unparse(call.func) == "axes")
                tested |= {each.attr for draw in draws for each in ast.walk(draw) if isinstance(each, ast.Attribute)}
    assert len(drawing_functions()) > 70 and drawing_functions() - tested <= DRAWS_NOTHING


def test_a_picture_notes_how_high_its_smallest_letters_are():
    def noted():
        return float(Image.open(BytesIO(png(drawn))).text["Smallest text"])  # the web book reads it

    drawn, ax = figure()
    ax.set_xticks([])
    ax.set_yticks([])
    ax.set_title("large", fontsize=11)
    assert noted() == pytest.approx(11 * 96 / 72, abs=0.1)
    ax.text(0, 0, "small", fontsize=6)
    ax.text(0, 0, "unseen", fontsize=3, visible=False)
    assert noted() == 8
