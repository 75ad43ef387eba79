"""What are no weights of these tokens is refused at the door, or shown for what it is: no picture is metres wide."""

import inspect
import re

import pytest
import torch

from attncourse import viz
from attncourse_lessons import course

beyond_text_figures = course.part("beyond_text", "figures")
bottleneck_figures = course.part("bottleneck", "figures")
cheap_attention_figures = course.part("cheap_attention", "figures")
lookup_figures = course.part("lookup", "figures")
many_heads_figures = course.part("many_heads", "figures")
masking_figures = course.part("masking", "figures")
order_figures = course.part("order", "figures")
self_attention_figures = course.part("self_attention", "figures")


def words(n):
    return [f"w{i}" for i in range(n)]


def square(n):
    return torch.full((n, n), 1 / n)


def causal(n):
    return torch.ones(n, n).tril() / torch.arange(1, n + 1)[:, None]


# How each function is called with weights, and with tokens where it takes any.
WEIGHTS = {
    "alignment_heatmap": lambda weights, names: viz.alignment_heatmap(weights, names, names),
    "attention_past_training": lambda weights, names: order_figures.attention_past_training({"a": weights}, 2),
    "attention_viewer": lambda weights, names: viz.attention_viewer(weights, names),
    "draw_weights": lambda weights, names: viz.draw_weights(weights, names, names),
    "lookup_table": lambda weights, names: lookup_figures.lookup_table(weights, names, names),
    "attention_on_images": lambda weights, names: beyond_text_figures.attention_on_images(
        [torch.ones(4, 4)], {"a": [weights / len(weights)]}, ["a"]
    ),
    "attention_by_head": lambda weights, names: beyond_text_figures.attention_by_head(
        [torch.ones(4, 4)], (weights / len(weights))[None, None, None], ["a"]
    ),
    "mask_ways": lambda weights, names: masking_figures.mask_ways(
        torch.ones(weights.shape, dtype=torch.bool), {"a": weights}, names
    ),
    "step_through": lambda weights, names: viz.step_through(weights, names, names),
    "weight_maps": lambda weights, names: cheap_attention_figures.weight_maps({"a": weights}),
    "weight_tables": lambda weights, names: viz.weight_tables({"a": (names, weights)}),
    "dependence_maps": lambda weights, names: masking_figures.dependence_maps({"a": weights}),
}
# One row of weights.
ROWS = {
    "clock": lambda weights, names: lookup_figures.clock_keys(range(len(names)), weights, 1),
    "encoder_decoder": lambda weights, names: viz.encoder_decoder(source=names, weights=weights),
    "lookup_frame": lambda weights, names: lookup_figures.lookup_frame(
        range(len(names)), weights, weights, 1, torch.arange(3.0), torch.arange(3.0)
    ),
    "one_question": lambda weights, names: self_attention_figures.one_query(
        names, 0, weights, weights, torch.ones(2), ["f", "g"]
    ),
}
# What takes tokens, masks or tables of other things.
OTHERS = {
    "distance_table": lambda n, m: order_figures.distance_table(torch.ones(n, n, dtype=torch.int64), words(m)),
    "draw_masks": lambda n, m: viz.draw_masks({"a": torch.ones(n, n, dtype=torch.bool)}),
    "head_pieces": lambda n, m: many_heads_figures.head_pieces({"a": torch.arange(2 * n).view(n, 2)}, words(m), 2),
    "position_maps": lambda n, m: beyond_text_figures.position_maps({"a": torch.ones(n, n)}, m),
    "span_frame": lambda n, m: beyond_text_figures.span_frame(torch.ones(1, n, dtype=torch.bool), 0.5),
    "teacher_forcing": lambda n, m: masking_figures.teacher_forcing(words(n)),
    "unrolled": lambda n, m: bottleneck_figures.unrolled_rnn(words(n)),
}
AS_IT_IS = ("draw_weights", "mask_ways", "weight_tables")  # show tables that went wrong: that is what one looks for
NO_TOKENS = {
    "attention_past_training", "attention_on_images", "attention_by_head",
    "weight_maps", "dependence_maps",
}  # fmt: skip
NAMED = {"weights", "words", "tokens", "source", "target", "mask", "masks", "maps", "matrices", "table", "hours"}


@pytest.fixture(autouse=True)
def pages(shown):
    """Nothing is displayed in a test."""


def drawn(name, call, *given):
    """What was drawn, as a figure; what displays its own has gone through the same door, `viz.figure`."""
    got = call(*given)
    if name == "attention_viewer":
        got = got.still()
    return got[0] if isinstance(got, tuple) else got


def test_every_function_that_takes_weights_tokens_or_masks_is_tried_here():
    takes = {name for name in viz.__all__ if NAMED & inspect.signature(getattr(viz, name)).parameters.keys()}
    assert takes <= {*WEIGHTS, *ROWS, *OTHERS}


@pytest.mark.parametrize("name", {**WEIGHTS, **ROWS})
def test_good_weights_are_drawn(name):
    weights, call = (square(3), WEIGHTS[name]) if name in WEIGHTS else (square(3)[0], ROWS[name])
    drawn(name, call, weights, words(3))


def spoilt(weights, value):
    weights = weights.clone()
    weights.view(-1)[1] = value
    return weights


@pytest.mark.parametrize(
    "value", [torch.nan, torch.inf, -0.5, 3.0], ids=["NaN", "infinity", "less than nothing", "more than one"]
)
@pytest.mark.parametrize("name", {**WEIGHTS, **ROWS})
def test_weights_that_are_no_shares_are_refused_or_shown_as_they_are(name, value):
    weights, call = (square(3), WEIGHTS[name]) if name in WEIGHTS else (square(3)[0], ROWS[name])
    any_number = name in AS_IT_IS or (name == "clock" and abs(value) <= 3) or (name == "dependence_maps" and value == 3)
    if any_number:
        drawn(name, call, spoilt(weights, value), words(3))
    else:
        with pytest.raises(ValueError, match=r"(weights|maps|table|numbers).*: got .*(nan|inf|-0\.5|sum).*expected"):
            call(spoilt(weights, value), words(3))


@pytest.mark.parametrize("name", {**WEIGHTS, **ROWS})
def test_weights_of_other_axes_are_refused(name):
    weights, call = (square(3)[None, None, None], WEIGHTS[name]) if name in WEIGHTS else (square(3), ROWS[name])
    if name == "attention_viewer":
        weights = weights[0, 0].expand(2, 1, 1, 1, 3, 3)
    with pytest.raises(ValueError, match=r"got (shape )?\(?[\d, ]+\)?.*expected"):
        call(weights, words(3))


@pytest.mark.parametrize("name", sorted({*WEIGHTS, *ROWS} - NO_TOKENS))
def test_another_number_of_tokens_is_refused(name):
    weights, call = (square(3), WEIGHTS[name]) if name in WEIGHTS else (square(3)[0], ROWS[name])
    with pytest.raises(ValueError, match=r"\w+: got .*expected"):
        call(weights, words(4))


@pytest.mark.parametrize("name", {**WEIGHTS, **ROWS, **OTHERS})
def test_two_thousand_tokens_are_refused_or_shown_on_a_page(name):
    n = 2000
    try:
        if name in OTHERS:
            figure = drawn(name, OTHERS[name], n, n if name != "position_maps" else 44)
        else:
            weights, call = (causal(n), WEIGHTS[name]) if name in WEIGHTS else (causal(n)[-1], ROWS[name])
            figure = drawn(name, call, weights, words(n))
    except ValueError as error:
        assert re.search(r"\w+: got .*2000.*expected|the picture: got \d+ by|similarity: got|side: got", str(error))
    else:
        assert figure is None or max(figure.get_size_inches()) <= 40


@pytest.mark.parametrize(
    ("name", "n", "m", "message"),
    [
        ("distance_table", 3, 4, r"index: got shape \(3, 3\), expected \(4, 4\)"),
        ("head_pieces", 3, 2, r"a: got places 0\.\.5, expected each within 0\.\.3"),
        ("position_maps", 3, 2, r"similarities: got shape \(3, 3\), expected \(n = 4, n = 4\)"),
    ],
)
def test_tables_that_do_not_fit_their_tokens_are_refused(name, n, m, message):
    with pytest.raises(ValueError, match=message):
        OTHERS[name](n, m)


@pytest.mark.parametrize("name", ["draw_masks", "span_frame", "mask_ways"])
def test_a_mask_of_numbers_is_refused(name):
    mask = torch.ones(3, 3)
    calls = {
        "draw_masks": lambda: viz.draw_masks(mask),
        "span_frame": lambda: beyond_text_figures.span_frame(mask, 0.5),
        "mask_ways": lambda: masking_figures.mask_ways(mask, {"a": square(3)}, words(3)),
    }
    with pytest.raises(TypeError, match=r"mask.*: got torch.float32, expected torch.bool with True where"):
        calls[name]()


def test_no_picture_is_larger_than_a_metre():
    with pytest.raises(ValueError, match="the picture: got 4000 by 3 inches, expected at most 40 a side"):
        viz.figure(4000, 3)
