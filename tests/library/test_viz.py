"""Every picture says in words what it shows, and comes out the same at every run."""

import base64
import subprocess
import sys
from io import BytesIO

import numpy as np
import pytest
import torch
from PIL import Image

from attncourse import viz
from attncourse.attention import causal_mask
from attncourse.viz.style import DPI, png

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
    "accuracy": lambda: viz.accuracy_by_length({"a": {(1, 4): 0.5, (5, 9): 0.25}, "b": {(1, 4): 1.0}}),
    "curves": lambda: viz.curves({"loss": [3.0, 2.0, 1.0]}),
    "diagram": viz.encoder_decoder,
    "a network unrolled": lambda: viz.unrolled(["<bos>", "Return", "the"]),
    "gates": viz.gates,
    "measured lines": lambda: viz.measured({"a": {1: 100, 2: 30}, "b": {1: 50}}, "order", "perplexity", log_y=True),
    "axes of a batch": viz.batch_axes,
    "a rectangle with padding": lambda: viz.rectangle({"lamp": [5], "kettle": [4, 3]}, pad=0, means=[2.5, 3.5]),
    "clouds": lambda: viz.clouds({"a": (WEIGHTS[:, 0], WEIGHTS[:, 1])}, "x", "y", impossible=(0, 0.3), diagonal=True),
}


@pytest.mark.parametrize("draw", FIGURES.values(), ids=FIGURES)
def test_a_figure_is_a_png_with_alt_text_and_the_same_bytes_each_time(draw, shown):
    draw()
    draw()
    (data, metadata), again = shown
    assert base64.b64decode(data["image/png"]).startswith(b"\x89PNG")
    assert metadata["image/png"]["alt"] == data["text/plain"] and len(data["text/plain"]) > 30
    assert again[0] == data


def test_the_alt_text_of_an_alignment_says_where_each_target_token_looks(shown):
    FIGURES["alignment"]()
    assert "ein looks most at one (0.90)" in shown[0][0]["text/plain"]
    assert "neunzig looks most at ninety- (0.80)" in shown[0][0]["text/plain"]


def test_the_alt_text_of_masks_says_how_much_is_allowed(shown):
    FIGURES["masks"]()
    assert "causal: 4 queries by 4 keys, 62% of the pairs allowed" in shown[0][0]["text/plain"]


def test_the_alt_text_of_a_rectangle_tells_padding_from_what_is_there(shown):
    FIGURES["a rectangle with padding"]()
    assert "lamp: 5, then 1 of padding (0), mean 2.50; kettle: 4, 3, mean 3.50" in shown[0][0]["text/plain"]


def test_the_alt_text_of_clouds_counts_what_is_impossible(shown):
    FIGURES["clouds"]()
    assert "33% of them between 0 and 0.3, which is impossible" in shown[0][0]["text/plain"]


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
    assert said in viz.broadcasting(a, b)[1]


def test_shares_survive_a_shift_only_when_the_largest_score_is_taken_away():
    for shift, spoilt in ((0, False), (-106, True), (90, True)):
        words = viz.exponents(torch.tensor([0.0, 2.0, 5.0]), shift)[1]
        assert ("wrong" in words) == spoilt and "less the largest, -5, -3, 0, softmax gives 0.01, 0.05, 0.95." in words


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


def test_a_picture_in_few_colours_looks_as_it_did():
    drawn, _ = viz.looking_frame(torch.arange(64.0).view(8, 8), torch.arange(16).view(4, 4) / 120)
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
    _, words = viz.walk(12, 3)
    assert "goes through 4 cells" in words and "after 12 steps" in words and "after 1 step" in words


def test_drawing_a_curve_loads_no_widgets_and_no_models():
    code = "import sys; from attncourse import viz; viz.curves; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert "attncourse.viz.figures" in loaded
    assert {"anywidget", "attncourse.transformer", "attncourse_lessons.l07_many_heads.figures"}.isdisjoint(loaded)


def test_every_name_that_viz_offers_is_there():
    assert [name for name in viz.__all__ if not callable(getattr(viz, name))] == []
    assert dir(viz) == viz.__all__
