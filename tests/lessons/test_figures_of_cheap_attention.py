"""The pad counts what the package counts, offers the package's patterns, and stands still where scripts do not run."""

import pytest
import torch
from drawn import axes, cells, grid, strokes, texts
from proven import proven

from attncourse.attention import causal_mask
from attncourse.efficient import bigbird, dense_mask, longformer, receptive_field, sliding_window
from attncourse.viz.style import BLUE
from attncourse_lessons import course
from attncourse_lessons.l12_cheap_attention.pattern_pad import pattern_in_words

figures = course.part("cheap_attention", "figures")
pattern_pad = course.part("cheap_attention", "pattern_pad")


def test_the_pads_presets_are_the_packages_patterns():
    presets = pattern_pad.pattern_presets(16)
    expected = {
        "causal": causal_mask(16),
        "window": dense_mask(sliding_window(2), 16),
        "window + global": dense_mask(longformer(2, 1), 16),
        "BigBird": dense_mask(bigbird(16, 1, 1, 2), 16),
        "itself alone": torch.eye(16, dtype=torch.bool),
        "full": torch.ones(16, 16, dtype=torch.bool),
    }
    for name, mask in expected.items():
        assert torch.equal(presets[name], mask), name
        assert torch.equal(pattern_pad.pattern_pad(name).mask, mask), name


def test_the_strided_preset_sees_those_just_before_and_every_fourth():
    mask = pattern_pad.pattern_presets(16)["strided"]
    assert mask[13].nonzero().flatten().tolist() == [1, 5, 9, 10, 11, 12, 13]


def test_drawing_changes_the_pads_mask_and_its_words():
    pad = pattern_pad.pattern_pad("itself alone", n=8, asking=3)
    pad.rows = ["1" * 8, *pad.rows[1:]]
    assert pad.mask[0].all() and pad.mask.sum() == 15
    assert "15 of 64 pairs" in pad.still()[1] and "Position 4 hears of 1 after 1" in pad.still()[1]


def test_the_words_of_a_pattern_tell_pairs_blocks_and_layers():
    assert pattern_in_words(dense_mask(sliding_window(2), 16)) == [
        "74 of 256 pairs, 29%",
        "10 of 16 blocks of 4 × 4 hold any",
        "after 8 layers everybody hears of everybody",
    ]
    assert pattern_in_words(causal_mask(6))[1:] == [
        "3 of 4 blocks of 4 × 4 hold any",
        "after 1 layer each hears of all before it",
    ]
    assert pattern_in_words(torch.eye(4, dtype=torch.bool) | (torch.arange(4) == 3))[2].startswith("some never hear")


def test_the_pad_brings_a_still_picture_and_words_without_a_memory_address():
    data, metadata = pattern_pad.pattern_pad("BigBird")._repr_mimebundle_()
    assert {"image/png", "text/plain", "application/vnd.jupyter.widget-view+json"} <= set(data)
    assert "0x" not in data["text/plain"] and metadata["image/png"]["alt"] == data["text/plain"]


def test_the_pad_names_what_it_does_not_know():
    with pytest.raises(ValueError, match="start: got 'star', expected one of itself alone, full"):
        pattern_pad.pattern_pad("star")
    with pytest.raises(ValueError, match="asking: got 16, expected a position from 0 to 15"):
        pattern_pad.pattern_pad(asking=16)


def test_maps_of_weights_say_in_words_whether_they_are_columns_or_diagonals(shown):
    column = torch.zeros(6, 6)
    column[:, 2] = 1.0
    figures.weight_maps({"a": column, "b": torch.eye(6).roll(-1, 1), "c": torch.eye(6).flip(1), "d": torch.eye(6)})
    assert "a: 100% lies in the column of key 3" in shown[0]
    assert "b: 100% lies in the diagonal moved by 1 to the left" in shown[0]
    assert "c: 100% lies in the diagonal that rises, from key 6 at the top" in shown[0]
    assert "d: 100% lies in the diagonal." in shown[0]
    with pytest.raises(ValueError, match=r"maps, a: got shape \(6,\)"):
        figures.weight_maps({"a": torch.ones(6)})


@pytest.mark.parametrize("layers", [0, 1, 3])
def test_whom_the_words_count_is_whom_a_gradient_reaches(layers):
    torch.manual_seed(layers)
    mask = torch.rand(9, 9) < 0.2
    x = torch.randn(9, 4, requires_grad=True)
    h = x
    for _ in range(layers):
        h = h + (mask * torch.rand(9, 9)) @ h
    for i in range(9):
        (gradient,) = torch.autograd.grad(h[i].sum(), x, retain_graph=True)
        assert torch.equal(gradient.abs().sum(dim=-1) > 0, receptive_field(mask, layers)[i])


# What is drawn


@proven
def test_maps_of_weights_have_a_row_a_query_and_a_column_a_key():
    wide = torch.tensor([[0.5, 0.25, 0.25], [0.0, 0.125, 0.875]])
    a, b = axes(figures.weight_maps, {"a": wide, "b": torch.eye(3).roll(1, 1)})
    assert (a.get_title(), b.get_title()) == ("a", "b") and (a.get_xlabel(), a.get_ylabel()) == ("key", "query")
    assert grid(a) == wide.tolist() and grid(b) == [[0, 1, 0], [0, 0, 1], [1, 0, 0]]


PATTERN = ["1100", "0100", "0011", "1001"]


def drawn_on(pad):
    pad.rows = PATTERN
    return pad


def test_the_pad_hands_the_browser_its_rows_its_presets_and_who_asks():
    state = pattern_pad.pattern_pad("causal", n=4, asking=2).get_state()
    assert (state["n"], state["asking"], state["rows"]) == (4, 2, ["1000", "1100", "1110", "1111"])
    assert state["presets"]["causal"] == state["rows"] and state["presets"]["itself alone"][1] == "0100"
    assert [*state["presets"]] == [*pattern_pad.pattern_presets(4)]


@proven
def test_the_pad_stands_still_with_what_is_drawn_and_whom_the_position_that_asks_hears_of():
    square, told = axes(lambda: drawn_on(pattern_pad.pattern_pad("itself alone", n=4, asking=2)))
    assert grid(square) == [[float(sign) for sign in row] for row in PATTERN]
    assert [*cells(square)] == [(0, 2, 4, 1)]                             # a frame around the row that asks
    beside = {y: words for words, x, y in texts(square) if x < 0}
    above = {x: words for words, x, y in texts(square) if y < 0}
    assert beside == above == {0.5: "1", 1.5: "2", 2.5: "3", 3.5: "4"}
    # 3 looks at 3 and 4, 4 at 1 and 4, 1 at 1 and 2: by and by it hears of all.
    heard = [[line.get_color() == BLUE for line in told.lines[4 * layer : 4 * layer + 4]] for layer in range(4)]
    assert heard == [[False, False, True, True], [True, False, True, True], [True] * 4, [True] * 4]
    rows = [-1.4 - 1.3 * layer for layer in range(4)]
    assert strokes(told) == [[(j, pytest.approx(y))] for y in rows for j in range(4)]
    assert [line.get_marker() for line in told.lines[:4]] == ["o", "o", "s", "o"]
    said = [words for words, *_ in sorted(texts(told), key=lambda text: -text[2])]
    assert said[3:] == [
        "whom position 3 hears of", "2 after 1 layer", "3 after 2 layers", "4 after 3 layers", "4 after 4 layers"
    ]  # fmt: skip
    assert said[0] == "7 of 16 pairs, 44%"
