"""The drawing of an encoder and a decoder joins what feeds what, with attention and without."""

from itertools import pairwise

import pytest
from drawn import arrows, axes, boxed, joined, places, texts
from matplotlib.patches import ArrowStyle, FancyArrowPatch
from proven import proven

from attncourse import viz

SOURCE, TARGET = ("two", "red", "cats"), ("zwei", "Katzen")


@proven
def test_without_attention_one_vector_joins_the_encoder_and_the_decoder():
    (ax,) = axes(viz.encoder_decoder, attention=False, source=SOURCE, target=TARGET)
    h, s = [f"$h_{{{i}}}$" for i in (1, 2, 3)], [f"$s_{{{t}}}$" for t in (1, 2, 3)]
    assert boxed(ax) == [*h, "$c$", *s]
    assert set(joined(ax)) == {
        *zip(SOURCE, h, strict=True), *pairwise([*h, "$c$", *s]),
        *zip(["<bos>", *TARGET], s, strict=True), *zip(s, [*TARGET, "<eos>"], strict=True),
    }  # fmt: skip
    assert not any(_both_ways(ax)), "one direction"
    assert places(ax, "encoder")["encoder"][0] < places(ax, "decoder")["decoder"][0]
    assert [words for words, *_ in texts(ax)][-1].startswith("context vector")


@proven
def test_with_attention_every_encoder_state_reaches_every_context_vector():
    (ax,) = axes(viz.encoder_decoder, source=SOURCE, target=TARGET, bidirectional=True, step=2, weights=(0.1, 0.3, 0.6))
    h = [f"$h_{{{i}}}$" for i in (1, 2, 3)]
    s, c = ([f"${name}_{{{t}}}$" for t in (1, 2, 3)] for name in "sc")
    assert boxed(ax) == [*h, "$s_0$", *(box for both in zip(s, c, strict=True) for box in both)]
    written = [*TARGET, "<eos>"]
    ways = joined(ax)
    assert set(ways) == {
        *zip(SOURCE, h, strict=True), *pairwise([*h, "$s_0$", *s]), *((i, t) for t in c for i in h),
        *zip(["<bos>", *TARGET], s, strict=True), *zip(s, c, strict=True),
        *zip(c, written, strict=True), *zip(s, written, strict=True),
    }  # fmt: skip
    widths = dict(zip(ways, (patch.get_linewidth() for patch in ax.patches if isinstance(patch, FancyArrowPatch)),
                      strict=True))  # fmt: skip
    assert [widths[i, "$c_{2}$"] for i in h] == pytest.approx([0.8 + 4 * share for share in (0.1, 0.3, 0.6)])
    assert {widths[i, t] for t in ("$c_{1}$", "$c_{3}$") for i in h} == {0.8}
    at = places(ax, *s, "query", "attention: an average\nof all encoder states")
    assert abs(at["query"][0] - at["$s_{2}$"][0]) < 0.5 < abs(at["query"][0] - at["$s_{1}$"][0])
    both = _both_ways(ax)
    assert sum(both) == 2 and [way for way, two in zip(ways, both, strict=True) if two] == [*pairwise(h)]
    assert places(ax, "encoder")["encoder"][0] < places(ax, "decoder")["decoder"][0]
    assert all(start[0] < end[0] for start, end in arrows(ax) if start[1] == end[1])


def _both_ways(ax) -> list[bool]:
    """Of each arrow whether it has a head at both ends."""
    return [isinstance(patch.get_arrowstyle(), ArrowStyle.CurveFilledAB) for patch in ax.patches
            if isinstance(patch, FancyArrowPatch)]  # fmt: skip


@pytest.mark.parametrize(
    ("wrong", "words"),
    [({"step": 0}, "step: got 0"), ({"step": 5}, "from 1 to 4"), ({"weights": (0.5, 0.6)}, "sum to 1.1"),
     ({"weights": (1.0,)}, r"expected \(2,\)")],
)  # fmt: skip
def test_a_step_or_weights_that_do_not_fit_are_refused(wrong, words):
    with pytest.raises(ValueError, match=words):
        viz.encoder_decoder(**wrong)
