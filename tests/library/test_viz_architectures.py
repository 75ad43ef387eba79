"""The drawing of an encoder and a decoder joins what feeds what, with attention and without."""

import re
from itertools import pairwise

import pytest
from drawn import arrows, axes, boxed, cells, joined, places, strokes, texts
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
    s, c, joint = ([f"${name}_{{{t}}}$" for t in (1, 2, 3)] for name in ("s", "c", r"\tilde s"))
    assert boxed(ax) == [*h, "$s_0$", *(box for step in zip(s, c, joint, strict=True) for box in step)]
    written = [*TARGET, "<eos>"]
    ways = joined(ax)
    assert set(ways) == {
        *zip(SOURCE, h, strict=True), *pairwise([*h, "$s_0$", *s]), (h[0], "$s_0$"), *((i, t) for t in c for i in h),
        *zip(["<bos>", *TARGET], s, strict=True), *zip(s, c, strict=True),
        *zip(c, joint, strict=True), *zip(s, joint, strict=True), *zip(joint, written, strict=True),
    }  # fmt: skip
    widths = dict(zip(ways, (patch.get_linewidth() for patch in ax.patches if isinstance(patch, FancyArrowPatch)),
                      strict=True))  # fmt: skip
    assert [widths[i, "$c_{2}$"] for i in h] == pytest.approx([0.8 + 4 * share for share in (0.1, 0.3, 0.6)])
    assert {widths[i, t] for t in ("$c_{1}$", "$c_{3}$") for i in h} == {0.8}
    shares = [(words, x) for words, x, _ in texts(ax) if words in ("0.1", "0.3", "0.6")]
    assert [words for words, _ in shares] == ["0.1", "0.3", "0.6"] and shares == sorted(shares, key=lambda one: one[1])
    at = places(ax, *s, "query", "attention: an average\nof all encoder states")
    assert abs(at["query"][0] - at["$s_{2}$"][0]) < 0.5 < abs(at["query"][0] - at["$s_{1}$"][0])
    both = _both_ways(ax)
    assert sum(both) == 2 and [way for way, two in zip(ways, both, strict=True) if two] == [*pairwise(h)]
    assert places(ax, "encoder")["encoder"][0] < places(ax, "decoder")["decoder"][0]
    assert all(start[0] < end[0] for start, end in arrows(ax) if start[1] == end[1])


@proven
def test_each_kind_of_vector_has_its_name_beside_it_and_the_drawing_is_the_same():
    given = {"bidirectional": True, "weights": (0.3, 0.7)}
    (ax,), (plain,) = axes(viz.encoder_decoder, **given, named=True), axes(viz.encoder_decoder, **given)
    assert boxed(ax) == boxed(plain) and joined(ax) == joined(plain) and arrows(ax) == arrows(plain)
    names = {words.split(":")[0]: (x, y) for words, x, y in texts(ax)}
    h, s = ([f"${name}_{{{t}}}$" for t in range(1, n + 1)] for name, n in (("h", 2), ("s", 4)))
    at = places(ax, *h, "$s_0$", *s, "$c_{1}$", r"$\tilde s_{1}$")
    for name, vector in (("context vector $c_t$", "$c_{1}$"), (r"attentional vector $\tilde s_t$", r"$\tilde s_{1}$")):
        assert names[name][0] < at[vector][0] and abs(names[name][1] - at[vector][1]) < 0.5
    assert names["initial state $s_0$"][0] == at["$s_0$"][0] and 0 < names["initial state $s_0$"][1] < 1
    for name, left, right in (("encoder", *h), ("decoder", *s[1:3])):
        assert at[left][0] < names[name][0] < at[right][0] and names[name][1] < 0
    assert at[s[0]][1] < names["query"][1] < at["$c_{1}$"][1] and at["$c_{1}$"][0] < names["query"][0] < at[s[0]][0]


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


@proven
@pytest.mark.parametrize("norm_place", ["post", "pre"])
def test_a_transformers_boxes_stand_in_their_order_and_the_memory_goes_across(norm_place):
    (ax,) = axes(viz.transformer_architecture, {}, norm_place)
    attention = ["multi-head", "bidirectional self-attention"], ["multi-head", "causal self-attention"]
    cross, network = ["multi-head", "cross-attention"], ["position-wise", "feed-forward network"]
    ends = ["linear", "softmax"]

    def stack(*sublayers: list[str]) -> list[str]:
        post = [words for sublayer in sublayers for words in (*sublayer, "add, then LayerNorm")]
        pre = [words for sublayer in sublayers for words in ("LayerNorm", *sublayer)] + ["LayerNorm"]
        return ["embedding", *(post if norm_place == "post" else pre)]

    boxes = [words for words in boxed(ax) if words not in ("+", "memory: keys and values", "Q", "Q, K, V")]
    columns = {left: [words for words in _upwards(ax, left)] for left in (2.9, 8.6)}
    assert columns[2.9] == stack(attention[0], network)
    assert columns[8.6] == [*stack(attention[1], cross, network), *ends]
    assert sorted(boxes) == sorted(columns[2.9] + columns[8.6])
    ways = arrows(ax)
    across = [(start, end) for start, end in ways if start[0] < 7 < end[0] + 0.2 and start[1] == end[1]]
    assert len(across) == 1 and across[0][1][0] == pytest.approx(8.6 - 1.68)
    at = {words: y for words, x, y in texts(ax) if x == 8.6}
    # What comes into attention stands under it, beside the path, away from the residual connection.
    into = {"bidirectional self-attention": ("Q, K, V", 3.05), "causal self-attention": ("Q, K, V", 8.45),
            "cross-attention": ("Q", 8.45)}  # fmt: skip
    brought = [(words, x, y) for words, x, y in texts(ax) if words in ("Q", "Q, K, V")]
    told = places(ax, *into)
    for (words, x, y), (name, comes) in zip(brought, into.items(), strict=True):
        assert (words, x) == comes and 0 < told[name][1] - y < 0.5, name
    assert places(ax, "K, V")["K, V"][0] < told["cross-attention"][0] - 1.68, "the memory brings its keys and values"
    assert abs(across[0][1][1] - at["cross-attention"]) < 0.4
    assert all(start[1] <= end[1] for start, end in ways if start[0] == end[0])
    # Residual connections go around on the outer side, upwards; a point is a sum; the memory turns between the columns.
    lines = strokes(ax)
    around = [line for line in lines if len(line) == 3 and line[1][0] in (0.8, 10.7)]
    assert [line[0][0] for line in around] == [2.9] * 2 + [8.6] * 3
    for start, corner, end in around:
        assert corner == ({2.9: 0.8, 8.6: 10.7}[start[0]], start[1]) and end[0] == corner[0] and end[1] > start[1]
    assert all(upper[0][1] > lower[2][1] for lower, upper in pairwise(around) if lower[0][0] == upper[0][0])
    (memory,) = (line for line in lines if len(line) == 3 and line not in around)
    assert memory[0][0] == 2.9 and memory[0][1] == memory[1][1] and memory[1][0] == memory[2][0] == across[0][0][0]
    assert memory[2][1] == across[0][0][1] < memory[1][1]
    points = sorted(line[0] for line in lines if len(line) == 1)
    assert points == sorted((x, y) for words, x, y in texts(ax) if words == "+")
    frames = [place for place in cells(ax) if place[3] > 2]
    assert [(round(left, 2), round(width, 2)) for left, _, width, _ in frames] == [(0.45, 4.4), (6.65, 4.4)]
    assert all(low < line[0][1] < line[2][1] < low + height for line in around
               for left, low, width, height in frames if left < line[0][0] < left + width)  # fmt: skip
    assert {(round(left, 2), round(width, 2)) for left, _, width, height in cells(ax) if height < 2} == {
        (1.22, 3.36), (6.92, 3.36)
    }  # fmt: skip
    assert {words for words, *_ in texts(ax)} >= {"source", "target, shifted right", "N ×", "positional\nencoding"}


def test_the_number_of_blocks_has_the_name_that_is_given():
    (ax,) = axes(viz.transformer_architecture, {}, "pre", times="L")
    assert [words for words, *_ in texts(ax) if words.endswith(" ×")] == ["L ×", "L ×"]


def _upwards(ax, x: float) -> list[str]:
    """The words in boxes of the column at x, from below; a box's own lines as they are read."""
    column = [(y, words) for words, at, y in texts(ax) if at == x and words in boxed(ax) and words != "+"]
    lines = [words for _, words in sorted(column)]
    pairs = {"multi-head", "position-wise"}
    for i in range(1, len(lines)):                                # the first line of two stands above the second
        if lines[i] in pairs:
            lines[i - 1], lines[i] = lines[i], lines[i - 1]
    return lines


def test_a_transformers_boxes_lead_where_they_are_told(monkeypatch):
    pages = []
    monkeypatch.setattr("attncourse.viz.style.display", lambda data, metadata, raw: pages.append(data["text/html"]))
    viz.transformer_architecture({"softmax": "a.ipynb", "norm": "b.ipynb"})
    links = re.findall(r'<a href="(.)\.ipynb" title="(\w+)" style="[^"]*left:([\d.]+)%;top:([\d.]+)%', pages[0])
    assert sorted((address, part) for address, part, *_ in links) == [("a", "softmax"), *[("b", "norm")] * 5]
    (softmax,) = [(float(left), float(top)) for address, _, left, top in links if address == "a"]
    assert softmax[0] > 50 and softmax[1] < min(float(top) for address, *_, top in links if address == "b")
    assert 'alt="The Transformer.' in pages[0]


def test_a_transformer_with_another_norm_place_or_part_is_refused():
    with pytest.raises(ValueError, match="norm_place: got 'sandwich'"):
        viz.transformer_architecture({}, "sandwich")
    with pytest.raises(ValueError, match="links: got 'roof'"):
        viz.transformer_architecture({"roof": "a.ipynb"})
