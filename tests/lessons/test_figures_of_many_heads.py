"""The pictures of multi-head attention: what they draw, and what they say, is what they were given."""

import math
from itertools import pairwise

import pytest
import torch
from drawn import arrows, axes, cells, labels, places, strokes, table, texts, written
from matplotlib.colors import to_hex, to_rgb
from matplotlib.patches import Rectangle
from proven import proven

from attncourse.viz.style import BLUE, GREY, INK, ORANGE
from attncourse_lessons import course

figures = course.part("many_heads", "figures")


def test_the_drawing_of_the_layer_gives_the_shapes_in_words(shown):
    figures.multi_head(n=7, d_model=12, n_heads=3, asking=2)
    assert "7 tokens by 12" in shown[0] and "3 blocks of 4 columns" in shown[0] and "head i, 7 by 4" in shown[0]
    assert "The row of token 2 is orange" in shown[0]


def test_heads_that_do_not_divide_the_width_are_refused():
    with pytest.raises(ValueError, match="n_heads: got 5, expected a divisor of d_model = 12"):
        figures.multi_head(n=7, d_model=12, n_heads=5)


def test_each_head_is_said_to_hold_the_numbers_that_it_was_given(shown):
    x = torch.arange(8).view(2, 4)
    figures.head_pieces({"x": x, "view": x.view(2, 2, 2)}, ["Anna", "Ben"], d_model=4)
    assert "x: A0 A1 A2 A3 B0 B1 B2 B3" in shown[0]
    assert "view: head 0: A0 A1 A2 A3; head 1: B0 B1 B2 B3" in shown[0]


def test_two_tables_are_said_number_by_number(shown):
    reads, lost = torch.tensor([[0.5, 0.25]]), torch.tensor([[0.0, 0.75]])
    figures.reads_and_losses(reads, lost, ["head 0"], ["gave", "got"], ["read", "lost"])
    assert "read. head 0: gave 0.50, got 0.25." in shown[0] and "lost. head 0: gave 0.00, got 0.75." in shown[0]


@proven
def test_latent_attention_makes_every_heads_keys_and_values_from_one_vector():
    (latent,) = axes(figures.shared_keys, 3, {}, "latent (MLA)")
    at = places(latent)
    assert latent.get_title() == "latent (MLA)"
    made = {f"k{i}\nv{i}": i for i in range(3)}
    assert {words: at[words][0] for words in made} == made and {f"q{i}": at[f"q{i}"][0] for i in range(3)} == {
        f"q{i}": i for i in range(3)
    }
    dotted = [line for line in latent.lines if line.get_linestyle() == ":"]
    assert [line.get_color() for line in dotted] == [GREY] * 3           # the key that all heads share
    for head, line in enumerate(dotted):
        (start, end), (low, high) = line.get_data()
        assert start == pytest.approx(at["$k^R$"][0]) and end == head
        assert at["$k^R$"][1] < low < high < at[f"k{head}\nv{head}"][1]
    dashed = [line for line in latent.lines if line.get_linestyle() == "--"]
    for head, line in enumerate(dashed):                                 # from c to each head
        (start, end), (low, high) = line.get_data()
        assert start == pytest.approx(at["c"][0]) and end == head
        assert at["c"][1] < low < high < at[f"k{head}\nv{head}"][1]
    solid = [line for line in latent.lines if line.get_linestyle() == "-"]
    for head, line in enumerate(solid):                                  # from its keys and values to each query head
        (x, same), (low, high) = line.get_data()
        assert x == same == head and at[f"k{head}\nv{head}"][1] < low < high < at[f"q{head}"][1]
    colours = [line.get_color() for line in solid]
    assert colours == [line.get_color() for line in dashed] and len({*colours}) == 3
    boxes = {}
    for patch in latent.patches:
        middle = (patch.get_x() + patch.get_width() / 2, patch.get_y() + patch.get_height() / 2)
        (words,) = [words for words, place in at.items() if place == pytest.approx(middle)]
        boxes[words] = to_hex(patch.get_edgecolor()), patch.get_linestyle(), to_hex(patch.get_facecolor())
    for head, colour in enumerate(colours):
        assert boxes[f"k{head}\nv{head}"] == (to_hex(colour), "--", "#ffffff")      # made, not cached
        assert boxes[f"q{head}"][:2] == (to_hex(colour), "solid")
    assert boxes["c"][1] == boxes["$k^R$"][1] == "solid" and len(boxes) == len(latent.patches) == 8
    assert len(dashed) == 3 and at["$k^R$"][1] == at["c"][1] < at["k0\nv0"][1] < at["q0"][1]
    assert "cache: one vector c, one small key $k^R$ with RoPE" in at


@proven
def test_a_composition_is_drawn_with_its_three_ways_and_what_each_exchange_changes():
    new = {"what layer 0 writes": [0.8, 0.5], "the key": [0.0, 0.01], "the value": [0.75, 0.25]}
    old = {"what layer 0 writes": [0.15, 0.4], "the key": [1.0, 0.97], "the value": [0.2, 0.7]}
    (ax,) = axes(figures.composition, ("Anna", "she", "sold"), new, old, "Eva")
    at = [(words, x, y) for words, x, y in texts(ax)]
    heights = sorted({y for words, _, y in at if words == "Anna"})
    rows = [[words for words, x, y in at if y == height and 1 < x < 6] for height in heights]
    assert rows == [["Anna", "she", "sold"], ["Anna", "she: Anna", "sold"], ["Anna", "she: Anna", "sold: Anna"]]
    where = {words: (x, y) for words, x, y in at
             if words in ("k", "v", "q", "sold: Anna") or (words, y) == ("she: Anna", heights[1])}  # fmt: skip
    where["sold"], where["weight"] = next((x, y) for words, x, y in at if words == "sold" and y == heights[1]), (
        next((line.get_xdata()[0], line.get_ydata()[0]) for line in ax.lines if line.get_color() == INK)
    )

    def near(point, words, reach=0.8):
        return math.hypot(point[0] - where[words][0], point[1] - where[words][1]) < reach

    boxes = {(patch.get_x() + patch.get_width() / 2, patch.get_y() + patch.get_height() / 2): patch
             for patch in ax.patches if isinstance(patch, Rectangle)}  # fmt: skip
    assert len(boxes) == 12
    for (x, y), patch in boxes.items():                                  # blue is where the name is
        (words,) = [words for words, *place in at if place == pytest.approx([x, y])]
        expected = INK if words in "kvq" else BLUE if "Anna" in words else GREY
        assert to_hex(patch.get_edgecolor()) == to_hex(expected)
        assert (to_hex(patch.get_facecolor()) == "#ffffff") == (words in "kvq")
    stream = [stroke for stroke in strokes(ax) if len(stroke) == 2 and stroke[0][0] < 6]  # each token's vector goes up
    columns = sorted({x for words, x, y in at if y == heights[0] and 1 < x < 6})
    assert len(stream) == 6 and sorted({start[0] for start, _ in stream}) == columns
    for start, end in stream:
        assert start[0] == end[0] and start[1] < end[1]
        assert any(low < start[1] < end[1] < high for low, high in pairwise(heights))
    ways = arrows(ax)
    assert near(ways[0][1], "she: Anna") and ways[0][0][0] < ways[0][1][0]          # from the name up to the pronoun
    for (start, end), role in zip(ways[1:3], "kv", strict=True):
        assert near(start, "she: Anna") and near(end, role, 0.3)
    met = [("sold", "q"), ("k", "weight"), ("q", "weight"), ("v", "weight"), ("weight", "sold: Anna")]
    for (start, end), (origin, goal) in zip(ways[3:], met, strict=True):
        assert near(start, origin, 0.4) and near(end, goal, 0.4)
        assert math.dist(start, where[origin]) < math.dist(end, where[origin])
    marks = [line for line in ax.lines if line.get_markersize() == 15]
    ((x, y),) = [(x, y) for words, x, y in at if words == "weight: where sold attends"]
    assert x < where["weight"][0] < x + 0.3 and 0 < y - where["weight"][1] < 0.2
    copied = next((x, y) for words, x, y in at if words == "what it copies")
    assert copied[0] > where["weight"][0] and where["weight"][1] < copied[1] < heights[2]
    assert [line.get_color() for line in marks] == [ORANGE] * 6
    middles = [(line.get_xdata()[0], line.get_ydata()[0]) for line in marks]
    for (start, end), place, letter in zip(ways, middles[::2], "abc", strict=False):
        if letter == "a":                                                # where what layer 0 writes comes to the box
            assert math.dist(place, end) < 0.15 and math.dist(place, start) > math.dist(end, start)
        else:
            assert place == pytest.approx(((start[0] + end[0]) / 2, (start[1] + end[1]) / 2))
        assert [words for words, *where in at if where == pytest.approx(place)] == [letter]
    lines = [stroke for stroke in strokes(ax) if len(stroke) == 2 and stroke[0][0] > 6]
    across = sorted((stroke for stroke in lines if stroke[0][1] == stroke[1][1]), key=lambda stroke: -stroke[0][1])
    (from_0, to_1), *others = [(start[0], end[0]) for start, end in across]
    assert len(across) == 6 and {*others} == {(from_0, to_1)}
    ticks = {x: words for words, x, y in at if words in ("0%", "50%", "100%") and from_0 <= x <= to_1}
    assert [words for _, words in sorted(ticks.items())] == ["0%", "50%", "100%"]
    assert sorted(ticks) == pytest.approx([from_0, (from_0 + to_1) / 2, to_1])
    upright = sorted(start[0] for start, end in lines if start[0] == end[0])
    assert upright == pytest.approx(sorted(ticks))
    dots = [(*stroke[0], to_hex(line.get_markerfacecolor())) for stroke, line in zip(strokes(ax), ax.lines, strict=True)
            if line.get_markersize() == 7 and line.get_color() == ORANGE]  # fmt: skip
    rows = iter(across)
    for (place, letter), what in zip(zip(middles[1::2], "abc", strict=True), new, strict=True):
        assert [words for words, *where in at if where == pytest.approx(place)] == [letter]
        assert [words for words, x, y in at if y == place[1] and x > place[0]] == [what]
        for seed in range(2):
            y = next(rows)[0][1]
            assert 0 < place[1] - y < 0.45
            shown = {face: (x - from_0) / (to_1 - from_0) for x, level, face in dots if level == y}
            assert shown == pytest.approx({to_hex(ORANGE): new[what][seed], "#ffffff": old[what][seed]}, abs=1e-4)
            beside = [words for words, x, level in at if level == pytest.approx(y, abs=1e-4)]
            assert beside == [f"seed {seed}", f"{new[what][seed]:.0%}"]
    key = {face: [words for words, x, y in at if y == level and 0 < x - left < 0.3]
           for left, level, face in dots if level > across[0][0][1]}  # fmt: skip
    assert key == {to_hex(ORANGE): ["become Eva"], "#ffffff": ["stay Anna"]}
    heading = "replaced by the vector from Eva's run:\nshare of answers that"
    assert heading in [words for words, *_ in at]
    listed = [y for letter in "abc" for words, x, y in at if words == letter and x > 6]
    assert len(listed) == 3 and listed == sorted(listed, reverse=True)             # from the top


def test_a_composition_of_other_numbers_is_refused():
    with pytest.raises(ValueError, match="words, new: got 2 and 3, expected three of each"):
        figures.composition(("Anna", "she"), {"a": [1.0], "b": [1.0], "c": [1.0]}, {}, "Eva")


def test_a_number_of_key_heads_that_does_not_divide_is_refused():
    with pytest.raises(ValueError, match="odd: got 3 heads of keys, expected a divisor of n_heads = 8"):
        figures.shared_keys(8, {"odd": 3})


def test_a_cache_is_said_to_save_what_it_saves(shown):
    figures.caching(5)
    assert "without a cache, 15 pairs" in shown[0] and "with a KV cache, 5 pairs" in shown[0]


def test_the_weights_on_the_letter_before_and_on_the_one_that_followed_are_said(shown):
    weights = torch.tensor([[1.0, 0.0, 0.0], [0.4, 0.6, 0.0], [0.1, 0.7, 0.2]])
    figures.letters_attended("aba", {"a head": weights})
    assert "a head: mean weight 0.55 on the letter before, 0.70 on the one that followed" in shown[0]


# What is drawn

KEYS = [rf"$K_{i}^\top$" for i in range(3)]


def blocks(ax):
    """{label: the rectangles that touch each other below it, (left, low, width, height, colour), as one reads them}."""
    rectangles = [(*box, colour) for box, (colour, _) in cells(ax).items()]

    def touch(one, other):
        (left, low, width, height, _), (other_left, other_low, *_) = one, other
        beside = abs(low - other_low) < 1e-4 and abs(abs(left - other_left) - width) < 1e-4
        below = abs(left - other_left) < 1e-4 and abs(abs(low - other_low) - height) < 1e-4
        return beside or below

    found = {}
    for label, x, y in texts(ax):
        connected = [box for box in rectangles if -1e-4 <= x - box[0] <= box[2] + 1e-4
                     and abs(box[1] + box[3] + 0.12 - y) < 1e-4]  # fmt: skip
        for box in connected:                                            # which grows meanwhile
            connected += [other for other in rectangles if other not in connected and touch(box, other)]
        if connected:
            found[label] = sorted(connected, key=lambda box: (-round(box[1], 3), box[0]))
    return found


@proven
def test_the_layer_is_drawn_to_scale_from_x_over_heads_and_values_to_the_output():
    n, d_model, n_heads, asking = 7, 12, 3, 2
    (ax,) = axes(figures.multi_head, n, d_model, n_heads, asking)
    unit, d_k, found = figures.UNIT, d_model // n_heads, blocks(ax)
    box, shape = {}, {}
    for label, parts in found.items():
        left, low = min(part[0] for part in parts), min(part[1] for part in parts)
        right, top = (max(part[i] + part[i + 2] for part in parts) for i in (0, 1))
        box[label], shape[label] = (left, low, right, top), (round((top - low) / unit), round((right - left) / unit))
    wide, square, narrow = (n, d_model), (d_model, d_model), (n, d_k)
    assert shape == {
        "$X$": wide, "$W_Q$": square, "$Q$": wide, "$W_K$": square, "$K$": wide, "$W_V$": square, "$V$": wide,
        **{f"${name}_{head}$": (n, n) if name == "A" else narrow for head in range(3) for name in "QAV"},
        **{key: (d_k, n) for key in KEYS},
        **{f"head {head}": narrow for head in range(3)}, "Concat": wide, "$W_O$": square, "output": wide,
    }  # fmt: skip
    said = {(round(x, 3), round(y, 3)): words for words, x, y in texts(ax)}
    for label, (left, low, right, top) in box.items():                   # its shape stands below it
        assert said[round((left + right) / 2, 3), round(top + 0.12, 3)] == label
        rows, columns = shape[label]
        assert said[round((left + right) / 2, 3), round(low - 0.11, 3)] == f"{rows}×{columns}"
    # Each head has a colour: blocks of columns of the projections, everything of its own, a block of rows of W_O.
    heads = [part[-1] for part in found["$W_Q$"]]
    assert len({*heads}) == n_heads
    for label in ("$W_K$", "$W_V$", "$Q$", "$K$", "$V$", "Concat", "$W_O$"):
        assert [part[-1] for part in found[label]] == heads
    for head, colour in enumerate(heads):
        for label in (f"$Q_{head}$", KEYS[head], f"$A_{head}$", f"$V_{head}$", f"head {head}"):
            assert [part[-1] for part in found[label]] == [colour]
    for label in ("$W_Q$", "$W_K$", "$W_V$", "$Q$", "$K$", "$V$", "Concat", "$W_O$"):
        for i, (x, y, across, up, _) in enumerate(found[label]):          # the number of the head stands in its block
            (number,) = [words for words, at, level in texts(ax) if x < at < x + across and y < level < y + up]
            assert number == f"{i}"
    assert len({part[1] for part in found["Concat"]}) == 1 and len({part[0] for part in found["$W_O$"]}) == 1
    # The symbols stand between what they join.
    times = [("Concat", "$W_O$"), *((f"$A_{i}$", f"$V_{i}$") for i in range(3))]
    times += [(f"$Q_{i}$", KEYS[i]) for i in range(3)]
    equals = [("$W_O$", "output"), *((f"$V_{i}$", f"head {i}") for i in range(3))]
    scores = [(KEYS[i], f"$A_{i}$") for i in range(3)]
    for sign, pairs in (("·", times), ("=", equals), ("softmax", scores), (r"$/\sqrt{d_k}$", scores)):
        at = {(x, y) for words, x, y in texts(ax) if words == sign}
        assert len(at) == len(pairs)
        for before, after in pairs:
            assert any(box[before][2] < x < box[after][0] and box[before][1] < y < box[before][3] for x, y in at)
    assert [words for words, *_ in texts(ax) if "mathrm" in words] == [
        r"$A_i = \mathrm{softmax}(Q_i K_i^\top / \sqrt{d_k})$,   head$_i = A_i V_i$"
    ]

    def nearest(x, y):
        def away(name):
            left, low, right, top = box[name]
            return math.hypot(max(left - x, 0, x - right), max(low - y, 0, y - top))

        return min(box, key=away)

    (bracket,) = [line for line in ax.lines if line.get_color() == GREY]
    (at, _), (low, high) = bracket.get_data()
    assert box["$Q$"][2] < at < box["$Q_0$"][0] and box["$V$"][1] == pytest.approx(low)
    assert high == pytest.approx(box["$Q$"][3])
    ends = ["the bracket" if abs(start[0] - at) < 0.04 else nearest(*start) for start, _ in arrows(ax)]
    assert list(zip(ends, (nearest(*end) for _, end in arrows(ax)), strict=True)) == [
        *((start, end) for name in "QKV" for start, end in (("$X$", f"$W_{name}$"), (f"$W_{name}$", f"${name}$"))),
        *((start, end) for i in range(3)
          for start, end in (("the bracket", f"$Q_{i}$"), (KEYS[i], f"$A_{i}$"), (f"head {i}", "Concat"))),
    ]  # fmt: skip
    # The row of the token that asks.
    striped = []
    for line in ax.lines:
        if line.get_color() == ORANGE:
            (left, right), (y, same) = line.get_data()
            (name,) = [name for name, (x, low, x_end, top) in box.items()
                       if x == pytest.approx(left) and x_end == pytest.approx(right) and low < y < top]  # fmt: skip
            assert y == same and round((box[name][3] - y) / unit - 0.5) == asking
            striped.append(name)
    assert striped == ["$X$", "$Q$", *(name for i in range(3) for name in (f"$Q_{i}$", f"$A_{i}$", f"head {i}")),
                       "Concat", "output"]  # fmt: skip
    # The same token where it is read: a pale row of K and V, a pale column of K transposed and of the weights.
    rows, columns = [], []
    for line in ax.lines:
        if line.get_color() == figures.PALE_ORANGE:
            (left, right), (y, top) = line.get_data()
            (name,) = [name for name, (x, low, x_end, high) in box.items()
                       if x - 0.01 < left <= right < x_end + 0.01 and low - 0.01 < y <= top < high + 0.01]  # fmt: skip
            x, low, x_end, high = box[name]
            if y == top:
                assert (left, right) == pytest.approx((x, x_end)) and round((high - y) / unit - 0.5) == asking
                rows.append(name)
            else:
                assert left == right and (y, top) == pytest.approx((low, high))
                assert round((left - x) / unit - 0.5) == asking
                columns.append(name)
    assert rows == ["$K$", "$V$", *(f"$V_{i}$" for i in range(3))]
    assert columns == [name for i in range(3) for name in (KEYS[i], f"$A_{i}$")]


@proven
def test_the_scores_are_a_product_to_scale_that_is_narrow_between_w_q_and_w_k():
    n, d_model, d_k = 5, 12, 3
    (ax,) = axes(figures.low_rank, n, d_model, d_k)
    found, factors = blocks(ax), ["$X$", "$W_Q$", r"$W_K^\top$", r"$X^\top$", r"$QK^\top$"]
    assert sorted(found, key=lambda label: found[label][0][0]) == factors          # from left to right
    box, said = {}, {(round(x, 3), round(y, 3)): words for words, x, y in texts(ax)}
    shapes = [(n, d_model), (d_model, d_k), (d_k, d_model), (d_model, n), (n, n)]
    for label, shape in zip(factors, shapes, strict=True):
        ((left, low, width, height, _),) = found[label]
        assert (round(height / figures.UNIT), round(width / figures.UNIT)) == shape
        assert said[round(left + width / 2, 3), round(low - 0.11, 3)] == f"{shape[0]}×{shape[1]}"
        box[label] = left, left + width
    assert found["$W_Q$"][0][-1] == found[r"$W_K^\top$"][0][-1] != found["$X$"][0][-1] == found[r"$X^\top$"][0][-1]
    signs = [(words, x) for words, x, _ in texts(ax) if words in "·="]
    assert [words for words, _ in signs] == ["·", "·", "·", "="]
    for (_, x), before, after in zip(signs, factors, factors[1:], strict=False):
        assert box[before][1] < x < box[after][0]
    # What two neighbours make stands at a line over or below both.
    made = [("$X$", "$W_Q$", "$Q$, 5×3"), (r"$W_K^\top$", r"$X^\top$", r"$K^\top$, 3×5"),
            ("$W_Q$", r"$W_K^\top$", "12×12, rank at most 3")]  # fmt: skip
    for (start, end), (first, last, words) in zip(strokes(ax), made, strict=True):
        assert (start[0], end[0]) == pytest.approx((box[first][0], box[last][1])) and start[1] == end[1]
        ((x, y),) = [(x, y) for name, x, y in texts(ax) if name == words]
        assert x == pytest.approx((start[0] + end[0]) / 2)
        tops, bottoms = zip(*((low + high, low) for ((_, low, _, high, _),) in found.values()), strict=True)
        assert y < start[1] < min(bottoms) if "rank" in words else y > start[1] > max(tops)


@proven
def test_concat_times_w_o_is_drawn_as_a_sum_of_heads_times_their_blocks():
    n, d_model, n_heads = 5, 12, 3
    (ax,) = axes(figures.sum_of_heads, n, d_model, n_heads)
    found = blocks(ax)
    ((*output, of_output),) = found.pop("output")
    order = ["Concat", "$W_O$", *(label for i in range(3) for label in (f"head {i}", f"$W_O^{{({i})}}$"))]
    assert sorted(found, key=lambda label: found[label][0][0]) == order
    colours = [part[-1] for part in found["Concat"]]
    assert colours == [part[-1] for part in found["$W_O$"]] and len({*colours}) == 3
    said = {(round(x, 3), round(y, 3)): words for words, x, y in texts(ax)}
    edges = {}
    for label in order:
        parts = found[label]
        left, low = min(part[0] for part in parts), min(part[1] for part in parts)
        right, top = (max(part[i] + part[i + 2] for part in parts) for i in (0, 1))
        rows, columns = round((top - low) / figures.UNIT), round((right - left) / figures.UNIT)
        head = label[-1] if label.startswith("head") else label[-4] if "(" in label else None
        assert (rows, columns) == (
            (n, 12) if label == "Concat" else (12, 12) if head is None else (n, 4) if label[0] == "h" else (4, 12)
        )
        assert said[round((left + right) / 2, 3), round(low - 0.11, 3)] == f"{rows}×{columns}"
        assert head is None or [part[-1] for part in parts] == [colours[int(head)]]
        edges[label] = left, right
    line = strokes(ax)[0][0][1]
    signs = sorted((x, words) for words, x, y in texts(ax) if words in ("·", "=", "+") and y > line)
    assert [words for _, words in signs] == ["·", "=", "·", "+", "·", "+", "·"]
    for (x, _), before, after in zip(signs, order[:-1], order[1:], strict=True):
        assert edges[before][1] < x < edges[after][0]
    digits = {words: y for words, x, y in texts(ax) if words in ("0", "1", "2") and x > edges["$W_O$"][0]}
    assert digits["0"] > digits["1"] > digits["2"]
    columns = {words: x for words, x, y in texts(ax) if words in ("0", "1", "2") and x < edges["Concat"][1]}
    assert columns["0"] < columns["1"] < columns["2"]
    lines = strokes(ax)
    assert len(lines) == 3 and [line.get_color() for line in ax.lines] == [*figures.HEADS[:3]]
    for i, (start, end) in enumerate(lines):
        assert (start[0], end[0]) == pytest.approx((edges[f"head {i}"][0], edges[f"$W_O^{{({i})}}$"][1]))
        assert start[1] == end[1] == line
    # Below each line the product in the head's colour, as wide as the output, and their sum.
    products = sorted((*box, colour) for box, (colour, _) in cells(ax).items() if box[1] + box[3] < line)
    assert [colour for *_, colour in products] == [*colours, of_output] and [*products[-1][:4]] == output
    for (left, low, across, up, _), (start, end) in zip(products[:3], lines, strict=True):
        assert (across, up) == pytest.approx((12 * figures.UNIT, n * figures.UNIT)) and low == pytest.approx(output[1])
        assert left + across / 2 == pytest.approx((start[0] + end[0]) / 2)
    for left, low, across, *_ in products:
        assert said[round(left + across / 2, 3), round(low - 0.11, 3)] == f"{n}×12"
    added = sorted((x, words) for words, x, y in texts(ax) if words in ("=", "+") and y < line)
    assert [words for _, words in added] == ["+", "+", "="]
    for (x, _), before, after in zip(added, products[:-1], products[1:], strict=True):
        assert before[0] + before[2] < x < after[0]


def test_a_sum_of_heads_that_do_not_divide_the_width_is_refused():
    with pytest.raises(ValueError, match="n_heads: got 5, expected a divisor of d_model = 12"):
        figures.sum_of_heads(7, 12, 5)


@proven
def test_two_rows_of_weights_and_their_difference_stand_with_their_sums_and_what_they_give():
    first, second = torch.tensor([0.25, 0.75, 0.0]), torch.tensor([0.5, 0.0, 0.5])
    (ax,) = axes(figures.rows_subtracted, first, second, torch.tensor([4.0, 8.0, 2.0]), ["Mon", "Tue", "Wed"])
    rows = [[0.25, 0.75, 0.0], [0.5, 0.0, 0.5], [-0.25, 0.75, -0.5]]
    at = {(round(x, 2), round(y, 2)): words for words, x, y in texts(ax)}
    for i, (row, total, made) in enumerate(zip(rows, ("1", "1", "0"), ("7°", "3°", "4°"), strict=True)):
        assert [at[j + 0.5, i + 0.5] for j in range(3)] == [f"{weight:g}".replace("-", "−") for weight in row]
        assert at[3.8, i + 0.5] == total and at[5.0, i + 0.5] == made
    assert at[3.8, -0.25] == "sum" and at[5.0, -0.25] == "gives"
    low, high = ax.get_ylim()
    assert low > high and [label.get_text() for label in ax.get_yticklabels()] == [
        "head 0: $A_0$", "head 1: $A_1$", "$A_0 - A_1$",
    ]  # fmt: skip
    assert [label.get_text() for label in ax.get_xticklabels()] == ["Mon\n4°", "Tue\n8°", "Wed\n2°"]
    assert [*ax.get_xticks()] == [*ax.get_yticks()] == [0.5, 1.5, 2.5]
    assert len(ax.patches) == 9
    for patch in ax.patches:
        weight = rows[round(patch.get_y())][round(patch.get_x())]
        *colour, alpha = patch.get_facecolor()
        assert alpha == pytest.approx(0.55 * abs(weight))
        assert to_hex(colour) == to_hex(BLUE if weight > 0 else ORANGE)


def test_rows_of_other_lengths_are_not_subtracted():
    with pytest.raises(ValueError, match="values: got 2, expected 3"):
        figures.rows_subtracted(torch.ones(3), torch.ones(3), torch.ones(2), ["a", "b", "c"])


@proven
def test_an_induction_head_needs_what_the_block_below_wrote():
    (ax,) = axes(figures.induction)
    at = texts(ax)
    heights = [y for words, _, y in at if words.startswith(("embeddings", "after"))]
    assert [words for words, *_ in at if words.startswith(("embeddings", "after"))] == [
        "embeddings", "after block 0", "after block 1",
    ]  # fmt: skip
    assert heights == sorted(heights)
    rows = [[words for words, x, y in sorted(at, key=lambda it: it[1]) if y == level and x > 1] for level in heights]
    assert rows == [["A", "B", "…", "A"], ["A", "B, after A", "A"], ["A", "B", "next: B"]]
    places = {(words, level): (x, y) for words, x, y in at for level in range(3) if y == heights[level]}
    boxes = {(round(patch.get_x() + patch.get_width() / 2, 3), round(patch.get_y() + patch.get_height() / 2, 3)):
             (to_hex(patch.get_edgecolor()), to_hex(patch.get_facecolor()))
             for patch in ax.patches if isinstance(patch, Rectangle)}  # fmt: skip
    assert len(boxes) == 9
    for (words, _), (x, y) in places.items():
        if x > 1 and words != "…":
            expected = BLUE if "after" in words else ORANGE if "next" in words else GREY
            assert boxes[round(x, 3), round(y, 3)] == (to_hex(expected), to_hex(expected))
    first_a, found, goal = min(x for words, x, y in at if words == "A"), places["B, after A", 1], places["next: B", 2]
    (write, ask, bring) = arrows(ax)
    assert abs(write[0][0] - first_a) < 0.4 and write[0][1] < heights[1] and math.dist(write[1], found) < 0.5
    assert ask[0][0] > ask[1][0] and ask[0][1] == ask[1][1] == heights[1] and math.dist(ask[1], found) < 0.7
    assert math.dist(bring[0], found) < 0.5 and math.dist(bring[1], goal) < 0.7
    told = {words[0]: (x, y) for words, x, y in at if words[:2] in ("1:", "2:", "3:")}
    assert told["1"][1] < heights[1] < told["2"][1] < told["3"][1] < heights[2]
    stream = [stroke for stroke in strokes(ax) if len(stroke) == 2]
    tops = [x for words, x, y in at if y == heights[2] and x > 1]
    assert [start[0] for start, _ in stream] == [x for x in tops for _ in range(2)]
    assert all(low[1][1] < high[0][1] for low, high in zip(stream[::2], stream[1::2], strict=True))
    for start, end in stream:
        assert start[0] == end[0] and start[1] < end[1] and any(
            low < start[1] < end[1] < high for low, high in pairwise(heights)
        )


def test_a_head_that_is_wider_than_the_layer_has_no_low_rank():
    with pytest.raises(ValueError, match="d_k: got 13, expected 1 to d_model = 12"):
        figures.low_rank(5, 12, 13)


@proven
def test_two_answers_stand_on_a_line_with_a_threshold_wherever_the_dinner_changes():
    (ax,) = axes(figures.two_answers, 0.75)
    line = {y: [(stroke[0][0], drawn.get_color()) for drawn, stroke in zip(ax.lines, strokes(ax), strict=True)
                if len(stroke) == 1 and stroke[0][1] == y] for y in (0, 1)}  # fmt: skip
    assert line[1] == [(0, BLUE), (0.25, BLUE), (0.75, ORANGE), (1, ORANGE)]       # tomorrow
    assert line[0] == [(0, BLUE), (0.25, ORANGE), (0.75, BLUE), (1, ORANGE)]       # yesterday
    cuts = [stroke for drawn, stroke in zip(ax.lines, strokes(ax), strict=True) if drawn.get_color() == INK]
    ends = [[(x, round(y, 6)) for x, y in cut] for cut in cuts]
    assert ends == [[(x, y - 0.3), (x, y + 0.3)] for x, y in ((0.5, 1), (0.125, 0), (0.5, 0), (0.875, 0))]
    assert [(0, 1), (1, 1)] in strokes(ax) and [(0, 0), (1, 0)] in strokes(ax)
    for words, x, y in texts(ax):
        if "threshold" not in words:
            colour = dict(line[int(y > 0.9)])[x]
            assert (words, colour) in {("soup", BLUE), ("pie", ORANGE)}
    assert {words: y for words, _, y in texts(ax) if "threshold" in words} == {"1 threshold": 1, "3 thresholds": 0}
    assert labels(ax.xaxis) == {0: "0", 0.25: "1 − α", 0.75: "α", 1: "1"}
    assert labels(ax.yaxis) == {1: "dinner\ntomorrow", 0: "dinner\nyesterday"}
    assert ax.get_xlabel() == "share of pie in the mixture"


def test_a_mixture_that_prefers_no_day_has_no_line():
    with pytest.raises(ValueError, match=r"alpha: got 0\.5, expected more than 0\.5 and less than 1"):
        figures.two_answers(0.5)


LINE = torch.tensor([[1.0], [-1.0], [0.5]]), torch.tensor([[1.0], [-2.0], [0.5]])
PLANE = torch.tensor([[3.0, 0.0], [0.0, -0.5], [-1.0, 0.0]]), torch.tensor([[-4.0, 0.0], [4.0, 0.0], [0.0, -2.0]])
FOUND = [[True, True, False], [True, True, True]]


@proven
def test_keys_are_points_on_a_line_and_in_a_plane_and_queries_arrows_in_their_directions():
    names, found = ["Mon", "Tue", "Wed"], [FOUND[0], [True, True, False]]
    on_line, in_plane = axes(figures.keys_found, LINE, PLANE, names, found)
    # On a line: each key below its name, which is joined to it.
    keys = {"Mon": (0.5, ORANGE, "s"), "Tue": (-1, ORANGE, "s"), "Wed": (0.25, GREY, "o")}
    drawn = [*zip(on_line.lines, strokes(on_line), strict=True)]
    points = [(stroke[0], line.get_color(), line.get_marker()) for line, stroke in drawn if len(stroke) == 1]
    assert sorted(points) == sorted(((x, 0), colour, marker) for x, colour, marker in keys.values())
    above = sorted((text.get_position()[0], text.get_text(), text.get_color()) for text in on_line.texts
                   if text.get_text() in keys)  # fmt: skip
    assert above == [(-1, "Tue", ORANGE), (0, "Wed", GREY), (1, "Mon", ORANGE)]
    assert all(y > 0.3 for words, _, y in texts(on_line) if words in keys)
    joins = [([(keys[name][0], 0), (x, pytest.approx(0.3))], colour) for x, name, colour in above]
    joined = [(stroke, line.get_color()) for line, stroke in drawn if len(stroke) == 2 and stroke[1][1] > 0.1]
    assert sorted(joined, key=lambda join: join[0][1]) == joins
    assert [(-1.1, 0), (1.1, 0)] in strokes(on_line)
    at = places(on_line)
    for (start, end), words in zip(arrows(on_line), ("negative queries", "positive queries"), strict=True):
        assert start[0] == 0 and start[1] == end[1] > at[words][1]
        assert end[0] * at[words][0] > 0 and (end[0] > 0) == words.startswith("positive")
    (tick,) = [stroke for stroke in strokes(on_line) if len(stroke) == 2 and stroke[0][0] == stroke[1][0] == 0]
    assert tick[0][1] == -tick[1][1] < 0 and at["0"][0] == 0 > tick[0][1] > at["0"][1]
    # In a plane.
    queries, keys = PLANE
    assert strokes(in_plane) == [[tuple(key)] for key in keys.tolist()]
    looks = [(line.get_color(), line.get_marker()) for line in in_plane.lines]
    assert looks == [(ORANGE, "s"), (ORANGE, "s"), (GREY, "o")]
    for (start, end), query in zip(arrows(in_plane), queries, strict=True):
        assert start == (0, 0)
        assert torch.allclose(torch.tensor(end) / math.hypot(*end), query / query.norm())
    assert len({round(math.hypot(*end), 6) for _, end in arrows(in_plane)}) == 1   # a direction, no length
    at = [(words, (x, y)) for words, x, y in texts(in_plane)]
    assert [words for words, _ in at] == ["Mon", "Mon", "Tue", "Tue", "Wed", "Wed"]  # a key, then its query
    for (_, place), vector in zip(at, [v for pair in zip(keys, queries, strict=True) for v in pair], strict=True):
        assert torch.allclose(torch.tensor(place) / math.hypot(*place), vector / vector.norm())
    (legend,) = on_line.figure.legends
    assert [text.get_text() for text in legend.get_texts()] == [
        "key that is found", "key that is missed", "direction of a query",
    ]  # fmt: skip
    assert (in_plane.get_xlabel(), in_plane.get_ylabel()) == ("first column", "second column")
    titles = [f"$d_k$ = {d_k}: 2 of 3 keys are found" for d_k in (1, 2)]
    assert [ax.get_title() for ax in (on_line, in_plane)] == titles


def test_keys_of_other_numbers_of_columns_are_neither_on_a_line_nor_in_a_plane():
    with pytest.raises(ValueError, match=r"d_k = 2: got queries of shape \(3, 1\), expected \(3, 2\)"):
        figures.keys_found(LINE, LINE, ["Mon", "Tue", "Wed"], FOUND)
    with pytest.raises(ValueError, match=r"d_k = 1: got queries of shape \(3, 2\), expected \(3, 1\)"):
        figures.keys_found(PLANE, PLANE, ["Mon", "Tue", "Wed"], FOUND)


def test_the_keys_that_are_found_and_the_highest_key_of_each_query_are_said(shown):
    figures.keys_found(LINE, PLANE, ["Mon", "Tue", "Wed"], FOUND)
    assert "from the left: Tue (found), Wed, Mon (found)" in shown[0]
    assert "Mon finds Tue, Tue finds Wed, Wed finds Mon" in shown[0]


@proven
def test_each_head_has_cells_of_its_own_with_the_word_and_the_column_of_each_number():
    x = torch.arange(8).view(2, 4)
    uncut, cut = axes(figures.head_pieces, {"x": x, "cut": x.view(2, 2, 2).mT}, ["Anna", "Ben"], d_model=4)
    assert (uncut.get_title(), cut.get_title()) == ("x", "cut")
    assert rows_of(uncut) == [["A0", "A1", "A2", "A3"], ["B0", "B1", "B2", "B3"]]
    assert rows_of(cut) == [["head 0"], ["A0", "A2"], ["A1", "A3"], ["head 1"], ["B0", "B2"], ["B1", "B3"]]
    found = []
    for ax in (uncut, cut):
        at = {(x - 0.5, y - 0.5): words for words, x, y in texts(ax) if not words.startswith("head")}
        colours = {}
        for (left, low, *_), (colour, _) in cells(ax).items():
            (words,) = [words for place, words in at.items() if place == pytest.approx((left, low))]
            colours.setdefault(words[0], set()).add(colour)
        assert [*map(len, colours.values())] == [1, 1] and colours["A"] != colours["B"]
        found.append(colours)
    assert found[0] == found[1]                                          # a word has one colour in all panels
    spans = [(round(high - low, 6) for low, high in (ax.get_xlim(), ax.get_ylim())) for ax in (uncut, cut)]
    assert [*spans[0]] == [*spans[1]]                                    # and one size


def rows_of(ax):
    """The words from the top down; a head's name comes before its rows, in whose middle it stands."""
    rows = {}
    for words, _, y in texts(ax):
        rows.setdefault(y + 0.75 * words.startswith("head"), []).append(words)
    return [rows[height] for height in sorted(rows, reverse=True)]


@proven
def test_what_heads_read_and_what_is_lost_are_two_tables_each_on_its_own_scale():
    reads, lost = torch.tensor([[0.75, 0.25], [0.5, 0.0]]), torch.tensor([[0.02, 0.08], [-0.01, 0.04]])
    names = ["head 0", "head 1"], ["gave", "got"], ["read", "lost"]
    left, right = axes(figures.reads_and_losses, reads, lost, *names, [(1, 0)], largest=[1])
    # The cell to look at is row 1, column 0; the largest of column 1 stands in row 0, on both sides.
    for ax in (left, right):
        frames = {to_hex(frame.get_edgecolor()): frame for frame in ax.patches}
        assert {colour: frame.get_xy() for colour, frame in frames.items()} == {
            to_hex(ORANGE): (0, 1), to_hex(INK): (1, 0)
        }  # fmt: skip
        for frame in frames.values():
            assert (frame.get_width(), frame.get_height()) == (1, 1) and not frame.get_fill()
    assert (left.get_title(), right.get_title()) == ("read", "lost")
    assert table(left) == {"head 0": {"gave": 0.75, "got": 0.25}, "head 1": {"gave": 0.5, "got": 0}}
    assert written(left) == {"head 0": {"gave": "0.75", "got": "0.25"}, "head 1": {"gave": "0.50", "got": "0.00"}}
    assert labels(right.xaxis) == {0.5: "gave", 1.5: "got"} and not labels(right.yaxis)
    (grid,) = right.collections
    assert torch.tensor(grid.get_array().tolist()).tolist() == pytest.approx(lost.clamp(min=0).numpy())
    assert grid.get_clim() == (0, pytest.approx(0.08)) and left.collections[0].get_clim() == (0, 0.75)
    assert [words for words, *_ in texts(right)] == ["2", "8", "−1", "4"]
    assert [(x, y) for _, x, y in texts(right)] == [(0.5, 0.5), (1.5, 0.5), (0.5, 1.5), (1.5, 1.5)]
    assert right.yaxis_inverted()


@proven
def test_each_letters_weights_are_a_row_the_future_is_hatched_and_last_the_letter_that_followed_is_outlined():
    draws = torch.Generator().manual_seed(0)
    heads = {name: torch.rand(5, 5, generator=draws).tril() for name in ("one head", "another")}
    places = {0.5: "a", 1.5: "b", 2.5: "c", 3.5: "a", 4.5: "b"}
    for ax, (name, weights) in zip(axes(figures.letters_attended, "abcab", heads), heads.items(), strict=True):
        (grid,) = ax.collections
        assert torch.tensor(grid.get_array().tolist()).numpy() == pytest.approx(weights.numpy())
        assert ax.get_title() == name and ax.yaxis_inverted()
        assert labels(ax.xaxis) == labels(ax.yaxis) == places
        assert (ax.get_xlabel(), ax.get_ylabel()) == ("key", "query")
        hatched = {(left, low) for (left, low, *_), (_, hatch) in cells(ax).items() if hatch}
        assert hatched == {(key, query) for query in range(5) for key in range(query + 1, 5)}  # the future
        outlined = {(left, low) for (left, low, *_), (_, hatch) in cells(ax).items() if not hatch}
        # The second a has b after the first, the second b has c.
        assert outlined == ({(1, 3), (2, 4)} if name == "another" else set())
        assert not any(patch.get_clip_on() for patch in ax.patches if not patch.get_hatch())  # nothing cut off


@proven
def test_each_query_head_is_joined_to_the_keys_of_its_group():
    every, grouped = axes(figures.shared_keys, 4, {"all": 4, "two": 2})
    assert (every.get_title(), grouped.get_title()) == ("all", "two")
    for ax, kept in ((every, 4), (grouped, 2)):
        tiles = {words: (x, y) for words, x, y in texts(ax) if words[0] in "qkv" and words[1:].isdigit()}
        assert sorted(tiles) == [*(f"k{i}" for i in range(kept)), *(f"q{i}" for i in range(4)),
                                 *(f"v{i}" for i in range(kept))]  # fmt: skip
        colour = {}
        for (left, low, width, height), (face, _) in cells(ax).items():
            middle = (left + width / 2, low + height / 2)
            (words,) = [words for words, at in tiles.items() if at == pytest.approx(middle)]
            colour[words] = face
        assert colour.keys() == tiles.keys() and len({*colour.values()}) == kept
        for head in range(4):
            group = head // (4 // kept)
            assert colour[f"q{head}"] == colour[f"k{group}"] == colour[f"v{group}"]
            (start, end) = strokes(ax)[head]
            assert (start[0], end[0]) == (tiles[f"k{group}"][0], tiles[f"q{head}"][0]) and start[1] < end[1]
            pale = [0.22 * part + 0.78 for part in to_rgb(ax.lines[head].get_color())]
            assert colour[f"q{head}"] == to_hex(pale)
        assert tiles["q0"][1] > tiles["k0"][1] > tiles["v0"][1] and tiles["q0"][0] < tiles["q3"][0]
        below, above = min(texts(ax), key=lambda text: text[2]), max(texts(ax), key=lambda text: text[2])
        assert below[0] == f"cache: {kept} heads of keys and values" and above[0] == "query heads"


@proven
def test_sizes_of_caches_are_bars_with_their_numbers_beside_the_parameters():
    (ax,) = axes(figures.cache_sizes, {"8 heads": 4.0, "1 head": 0.5}, 3.2)
    bars = sorted((patch.get_y() + patch.get_height() / 2, patch.get_x(), patch.get_width()) for patch in ax.patches)
    assert bars == [(pytest.approx(0), 0, 4.0), (pytest.approx(1), 0, 0.5)]
    assert labels(ax.yaxis) == {0: "8 heads", 1: "1 head"} and ax.yaxis_inverted()
    at = places(ax)
    assert at["4 GiB"] == (pytest.approx(4.8), 0) and at["0.5 GiB"] == (pytest.approx(1.3), 1)
    assert strokes(ax) == [[(3.2, 0), (3.2, 1)]] and at["all parameters: 3 GiB"][0] == 3.2
    assert ax.get_xlabel() == "memory (GiB)" and ax.get_xlim()[0] == 0 and ax.get_xlim()[1] > 4


@proven
def test_without_a_cache_all_tokens_so_far_are_computed_at_each_step_and_with_one_the_newest():
    n = 4
    without, with_cache = axes(figures.caching, n)
    assert (without.get_title(), with_cache.get_title()) == ("without a cache", "with a KV cache")
    (legend,) = without.figure.legends
    names = [text.get_text() for text in legend.get_texts()]
    assert names == ["computed at this step", "read from the cache", "the future"]
    for ax in (without, with_cache):
        look = {(left, low): look for (left, low, *_), look in cells(ax).items()}
        fresh, later = look[0, 0], look[n - 1, 0]
        kept = cells(with_cache)[0, 1, 1, 1]                             # token 0 at step 1
        assert len({fresh, kept, later}) == 3 and later[1] == "////" and not fresh[1] and not kept[1]
        for step in range(n):
            for token in range(n):
                computed = token == step or (ax is without and token < step)
                assert look[token, step] == (fresh if computed else kept if token < step else later)
        assert (ax.get_xlabel(), ax.get_ylabel()) == ("token", "step") and ax.yaxis_inverted()
        assert labels(ax.xaxis) == labels(ax.yaxis) == {i + 0.5: f"{i}" for i in range(n)}


@proven
def test_rows_of_seeds_have_a_mark_for_each_their_mean_in_words_and_dotted_references():
    rows = {"one": [0.4, 0.6, 0.2], "two": [0.9, 1.0, 0.8]}
    (ax,) = axes(figures.seed_rows, rows, "share right", {"chance": 0.3, "best": 0.7})
    one, two, *references = strokes(ax)
    assert [x for x, _ in one] == rows["one"] and [x for x, _ in two] == rows["two"]
    for y, marks in enumerate((one, two)):
        heights = [height for _, height in marks]
        assert heights == sorted(set(heights)) and all(abs(height - y) < 0.3 for height in heights)
    assert references == [[(0.3, 0), (0.3, 1)], [(0.7, 0), (0.7, 1)]]
    said = places(ax)
    assert said["mean 0.40"] == (1.04, 0) and said["mean 0.90"] == (1.04, 1)
    assert said["chance"][0] == 0.3 and said["best"][0] == 0.7
    assert labels(ax.yaxis) == {0: "one", 1: "two"} and ax.yaxis_inverted()
    assert (ax.get_xlim(), ax.get_xlabel(), ax.get_ylabel()) == ((0, 1), "share right", "")


@proven
def test_removed_heads_are_a_line_and_a_point_in_a_panel_for_each_seed_beside_what_is_enough():
    lines = {"seed 0": [1.0, 0.9, 0.2], "seed 1": [0.95, 0.5, 0.1]}
    points = {"seed 0": (2, 0.3), "seed 1": (1, 0.4)}
    panels = axes(figures.heads_removed, lines, points, 0.8)
    words = {"seed 0": "2 at once: 30%", "seed 1": "1 at once: 40%"}
    for ax, (name, line) in zip(panels, lines.items(), strict=True):
        n, share = points[name]
        assert ax.get_title() == name
        assert strokes(ax) == [[*enumerate(line)], [(n, line[n]), (n, share)], [(n, share)], [(0, 0.8), (1, 0.8)]]
        assert [each.get_color() for each in ax.lines] == [BLUE, ORANGE, ORANGE, INK]
        x, y = places(ax)[words[name]]
        assert n - 1 < x < n and y == share
        assert ax.yaxis.get_major_formatter()(0.8) == "80%" and ax.get_ylim() == (0, 1.06)
        assert "removed" in ax.get_xlabel() and [*ax.get_xticks()] == [0, 1, 2]
    assert "accuracy" in panels[0].get_ylabel()
    told = [(text.get_text(), text.get_color()) for ax in panels for text in ax.texts]
    assert told == [
        ("2 at once: 30%", ORANGE), ("one after the other,\nthe cheapest first", BLUE), ("1 at once: 40%", ORANGE),
    ]  # fmt: skip


BY_DAY = torch.tensor([[0.001, 0.9, 0.1], [1.0, 0.0, 0.0], [0.25, 0.004, 0.75]])


@proven
def test_tables_by_day_print_what_does_not_round_to_zero():
    names = ["Mon", "Tue", "Wed"]
    one, other = axes(figures.by_day, {"one": BY_DAY, "other": BY_DAY.flip(0)}, names)
    for ax, title, shown in ((one, "one", BY_DAY), (other, "other", BY_DAY.flip(0))):
        assert (ax.get_title(), ax.get_xlabel()) == (title, "key") and ax.yaxis_inverted() and not ax.patches
        (grid,) = ax.collections
        assert torch.tensor(grid.get_array().tolist()).numpy() == pytest.approx(shown.numpy())
        assert grid.get_clim() == (0, 1) and labels(ax.xaxis) == {0.5: "Mon", 1.5: "Tue", 2.5: "Wed"}
        said = {(x, y): words for words, x, y in texts(ax) if words}
        assert said == {(j + 0.5, i + 0.5): f"{shown[i, j]:.2f}" for i, j in (shown > 0.005).nonzero().tolist()}
    assert labels(one.yaxis) == {0.5: "Mon", 1.5: "Tue", 2.5: "Wed"} and not labels(other.yaxis)
    assert one.get_ylabel() == "query"


@proven
def test_whole_numbers_by_day_have_their_zeros_and_the_largest_of_each_row_is_outlined():
    scores = torch.tensor([[-7.2, 11.4, 0.3], [12.6, -0.4, 2.0], [3.0, 20.7, -1.0]])
    (ax,) = axes(figures.by_day, {"": scores}, ["Mon", "Tue", "Wed"], 0, True)
    assert [words for words, *_ in texts(ax)] == ["−7", "11", "0", "13", "0", "2", "3", "21", "−1"]
    assert [(x, y) for _, x, y in texts(ax)] == [(j + 0.5, i + 0.5) for i in range(3) for j in range(3)]
    assert [patch.get_xy() for patch in ax.patches] == [(1, 0), (0, 1), (1, 2)]
    assert {to_hex(patch.get_edgecolor()) for patch in ax.patches} == {to_hex(ORANGE)}
    assert not any(patch.get_fill() for patch in ax.patches) and ax.yaxis_inverted()
    assert ax.collections[0].get_clim() == pytest.approx((-7.2, 20.7))
    assert labels(ax.xaxis) == labels(ax.yaxis) == {0.5: "Mon", 1.5: "Tue", 2.5: "Wed"}
    (grid,) = ax.collections
    assert torch.tensor(grid.get_array().tolist()).numpy() == pytest.approx(scores.numpy())


def test_the_largest_number_of_each_day_is_said(shown):
    figures.by_day({"one": BY_DAY}, ["Mon", "Tue", "Wed"])
    assert "one. The largest number of each row: Mon: 0.90 at Tue; Tue: 1.00 at Mon; Wed: 0.75 at Wed." in shown[0]


def test_a_marked_viewer_frames_its_rows_where_it_shows_all_heads_and_is_still():
    weights = torch.rand(2, 2, 3, 3, generator=torch.Generator().manual_seed(0)).softmax(dim=-1)
    viewer = figures.MarkedViewer(weights, ["a", "b", "c"], view="all", rows={1: 2, 2: 0})
    drawn, said = viewer.still()
    assert said.startswith("Attention viewer")
    framed = {number: [patch.get_y() for patch in ax.patches] for number, ax in enumerate(drawn.axes) if ax.patches}
    assert framed == {1: [1.5], 2: [-0.5]}
    for patch in (patch for ax in drawn.axes for patch in ax.patches):
        assert (patch.get_x(), patch.get_width(), to_hex(patch.get_edgecolor())) == (-0.5, 3, to_hex(ORANGE))
    viewer.view = "one"
    assert not any(ax.patches for ax in viewer.still()[0].axes)
