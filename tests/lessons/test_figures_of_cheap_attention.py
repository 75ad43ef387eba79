"""The pad counts what the package counts; tiles, blocks, scans, families and runs are drawn as they are."""

import math

import pytest
import torch
from drawn import arrows, axes, boxed, cells, grid, grids, joined, labels, places, strokes, texts
from matplotlib.patches import Rectangle
from proven import proven

from attncourse.attention import causal_mask
from attncourse.efficient import bigbird, dense_mask, longformer, random_keys, receptive_field, sliding_window
from attncourse.viz.style import AMBER, BLUE, GREEN, ORANGE
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
        "random": dense_mask(random_keys(16, 16, 3), 16),
        "global": (torch.arange(16) == 0) | (torch.arange(16) == 0)[:, None],
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
    assert "15 of 64 pairs" in pad.still()[1] and "Position 4 has a receptive field of 1 after 1" in pad.still()[1]


def test_the_words_of_a_pattern_tell_pairs_blocks_and_layers():
    assert pattern_in_words(dense_mask(sliding_window(2), 16)) == [
        "74 of 256 pairs, 29%",
        "10 of 16 blocks of 4 × 4 contain an allowed pair",
        "after 8 layers each position is reached by all",
    ]
    assert pattern_in_words(causal_mask(6))[1:] == [
        "3 of 4 blocks of 4 × 4 contain an allowed pair",
        "after 1 layer each position is reached by all before it",
    ]
    assert pattern_in_words(torch.eye(4, dtype=torch.bool) | (torch.arange(4) == 3))[2].startswith("some never reach")


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
def test_the_pad_stands_still_with_what_is_drawn_and_the_receptive_field_of_the_position_that_asks():
    square, told = axes(lambda: drawn_on(pattern_pad.pattern_pad("itself alone", n=4, asking=2)))
    assert grid(square) == [[float(sign) for sign in row] for row in PATTERN]
    assert (square.get_title(), told.get_title()) == ("rows: queries; columns: keys", "")
    assert [*cells(square)] == [(0, 2, 4, 1)]                             # a frame around the row that asks
    beside = {y: words for words, x, y in texts(square) if x < 0}
    above = {x: words for words, x, y in texts(square) if y < 0}
    assert beside == above == {0.5: "1", 1.5: "2", 2.5: "3", 3.5: "4"}
    # 3 looks at 3 and 4, 4 at 1 and 4, 1 at 1 and 2: by and by all reach it.
    heard = [[line.get_color() == BLUE for line in told.lines[4 * layer : 4 * layer + 4]] for layer in range(4)]
    assert heard == [[False, False, True, True], [True, False, True, True], [True] * 4, [True] * 4]
    rows = [-1.4 - 1.3 * layer for layer in range(4)]
    assert strokes(told) == [[(j, pytest.approx(y))] for y in rows for j in range(4)]
    assert [line.get_marker() for line in told.lines[:4]] == ["o", "o", "s", "o"]
    said = [words for words, *_ in sorted(texts(told), key=lambda text: -text[2])]
    assert said[3:] == [
        "receptive field of position 3", "2 after 1 layer", "3 after 2 layers", "4 after 3 layers", "4 after 4 layers"
    ]  # fmt: skip
    assert said[0] == "7 of 16 pairs, 44%"


def test_heads_are_named_by_what_they_attend_to():
    marked = torch.zeros(2, 5, dtype=torch.bool)
    marked[0, 1] = marked[1, 3] = True
    mark = marked.float()[:, None].expand(-1, 5, -1)                      # (2, 5, 5)
    before, mirror = torch.eye(5).roll(-1, 1), torch.eye(5).flip(1)
    maps = torch.stack([mirror.expand(2, 5, 5), mark, before.expand(2, 5, 5)], dim=1)
    assert figures.jobs_of_heads(0.7 * maps + 0.06, marked) == ["mirror", "mark", "before"]
    with pytest.raises(ValueError, match="marked: got shape"):
        figures.jobs_of_heads(maps, marked[:, :4])


def joined_in_order(rounds, n):
    """Which steps each place holds after all rounds, those of a round at the same time."""
    held = [[i] for i in range(n)]
    for joins in rounds:
        before = [list(each) for each in held]
        for start, end in joins:
            held[end] = before[start] + before[end]
    return held


@pytest.mark.parametrize("n", [2, 6, 8, 64])
def test_a_scan_gives_every_position_all_steps_up_to_its_own_in_order(n):
    assert joined_in_order(figures.doubling_rounds(n), n) == [list(range(i + 1)) for i in range(n)]


def test_doubling_takes_so_many_rounds_and_joins_as_the_page_says():
    doubling = figures.doubling_rounds(1024)
    assert (len(doubling), sum(map(len, doubling))) == (10, 10 * 1024 - 1023)
    assert len(figures.doubling_rounds(100_000)) == 17


@proven
def test_a_scan_is_drawn_with_a_dot_where_two_are_joined():
    (ax,) = axes(figures.scan_circuit, 4)
    rounds = figures.doubling_rounds(4)
    upright, joins = strokes(ax)[:4], strokes(ax)[4:]
    assert upright == [[(i, 0), (i, 2)] for i in range(4)]
    expected = []
    for level, joined_now in enumerate(rounds):
        for start, end in joined_now:
            expected += [[(start, level), (end, level + 1)], [(end, level + 1)]]
    assert joins == expected
    inside = [(words, x, y) for words, x, y in texts(ax) if x <= 3]
    above = [words for words, x, y in sorted(inside, key=lambda text: text[1]) if y > 2]
    below = [(words, x) for words, x, y in inside if y < 0]
    sides = [(words, y) for words, x, y in inside if x < 0]
    assert above == ["1", "1–2", "1–3", "1–4"] and below == [(f"{i + 1}", i) for i in range(4)]
    assert sides == [("round 1", 1), ("round 2", 2)]
    beside = {words: y for words, x, y in texts(ax) if x > 3}
    assert [*beside] == ["3–4", "1–4", "steps joined", "step"] and (beside["3–4"], beside["1–4"]) == (1, 2)
    assert beside["steps joined"] > 2 > 0 > beside["step"]


def test_a_scan_of_a_single_step_is_refused():
    with pytest.raises(ValueError, match="n: got 1, expected at least two steps"):
        figures.scan_circuit(1)


@proven
def test_a_window_in_blocks_shows_what_is_used_what_is_forbidden_and_what_is_never_computed():
    (ax,) = axes(figures.blocked_window, 6, 2)
    drawn = cells(ax)
    window = dense_mask(sliding_window(2), 6)
    for i in range(6):
        for j in range(6):
            colour, hatch = drawn[j, i, 1, 1]
            used, computed = bool(window[i, j]), abs(i // 2 - j // 2) <= 1
            assert (colour == BLUE) == used and bool(hatch) == (computed and not used)
    assert strokes(ax) == [line for at in (0, 2, 4, 6) for line in ([(0, at), (1, at)], [(at, 0), (at, 1)])]
    assert labels(ax.xaxis) == labels(ax.yaxis) == {1: "block 1", 3: "block 2", 5: "block 3"}
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("keys", "queries")
    assert [text.get_text() for text in ax.get_legend().get_texts()] == [
        f"used: {int(window.sum())}", f"computed, forbidden: {28 - int(window.sum())}", "never computed: 8"
    ]  # fmt: skip


def test_a_window_that_does_not_fit_into_blocks_is_refused():
    with pytest.raises(ValueError, match="n: got 7, expected a multiple of the width, 2"):
        figures.blocked_window(7, 2)


@proven
def test_a_rolling_cache_holds_the_last_tokens_each_in_its_slot_and_the_newest_is_orange():
    (ax,) = axes(figures.rolling_cache, 3, [1, 2, 3, 7])
    drawn = cells(ax)
    held = [{0: 0, 1: 1}, {0: 0, 1: 1, 2: 2}, {0: 3, 1: 1, 2: 2}, {0: 6, 1: 7, 2: 5}]
    inside = {(x, y): words for words, x, y in texts(ax)}
    for row, (t, tokens) in enumerate(zip((1, 2, 3, 7), held, strict=True)):
        for slot in range(3):
            colour, hatch = drawn[slot, row, 1, 0.84]
            assert (colour == AMBER) == (tokens.get(slot) == t) and bool(hatch) == (slot not in tokens)
            words = f"$k_{{{tokens[slot]}}}, v_{{{tokens[slot]}}}$" if slot in tokens else None
            assert inside.get((slot + 0.5, row + 0.42)) == words
    beside = [words for words, x, _ in sorted(texts(ax), key=lambda text: text[2]) if x > 3]
    spans = {1: "0 to 1", 2: "0 to 2", 3: "1 to 3", 7: "5 to 7"}
    assert beside == [f"token {t} attends to tokens {span}" for t, span in spans.items()]
    assert [inside[-0.2, row + 0.42] for row in range(4)] == [f"after token {t}" for t in (1, 2, 3, 7)]
    assert [inside[slot + 0.5, -0.3] for slot in range(3)] == ["slot 0", "slot 1", "slot 2"]
    with pytest.raises(ValueError, match="expected at least one slot"):
        figures.rolling_cache(0, [1])


@proven
def test_tiles_are_numbered_down_the_columns_in_2022_and_along_the_rows_in_2023():
    old, new = axes(figures.tile_orders, 2, 3, 3)
    orders = {}
    for ax in (old, new):
        inside = sorted((x, y, words) for words, x, y in texts(ax) if words.isdigit())
        orders[ax] = [[words for _, y, words in inside if y == row] for row in (0.5, 1.5)]
    assert orders[old] == [["1", "3", "5"], ["2", "4", "6"]] and orders[new] == [["1", "2", "3"], ["4", "5", "6"]]
    assert old.get_title().startswith("FlashAttention (2022)") and new.get_title().startswith("FlashAttention-2 (2023)")
    names = [words.get_text() for words in old.figure.legends[0].get_texts()]
    assert names == ["stays for the inner loop", "comes and goes", "step 3", "done"]
    stays, passes, at_work, done = old.figure.legends[0].get_patches()
    for ax, kept, moved in ((old, {"$K_2, V_2$"}, {"$Q_1$", "$O_1$"}), (new, {"$Q_1$", "$O_1$"}, {"$K_3, V_3$"})):
        lit = {sample: {words for words, x, y in texts(ax) for patch in ax.patches if isinstance(patch, Rectangle)
                        if patch.get_facecolor() == sample.get_facecolor() and patch.get_fill()
                        if patch.get_bbox().contains(x, y)}
               for sample in (stays, passes, done)}  # fmt: skip
        assert lit == {stays: kept, passes: moved, done: {"1", "2"}}
        (frame,) = [patch for patch in ax.patches if isinstance(patch, Rectangle) and not patch.get_fill()]
        assert [words for words, x, y in texts(ax) if frame.get_bbox().contains(x, y)] == ["3"]
        assert frame.get_edgecolor() == at_work.get_edgecolor()
        assert len([patch for patch in ax.patches if isinstance(patch, Rectangle)]) == 2 * 3 + 2 * 2 + 3 + 1
    [(start, end)], [(left, right)] = arrows(old), arrows(new)
    assert start[0] == end[0] < 0 < start[1] < end[1] < 2 and left[1] == right[1] < -1 and 0 < left[0] < right[0] < 3
    assert places(old)["inner loop"][0] < start[0] and places(new)["inner loop"][1] < left[1]
    with pytest.raises(ValueError, match="now: got 7, expected a step from 1 to 6"):
        figures.tile_orders(2, 3, 7)


@proven
def test_the_memories_stand_one_above_the_other_with_their_rates():
    (ax,) = axes(figures.memory_levels, (68e6, 17e6))
    at = places(ax)
    names = ["HBM, beside the chip: 80 GB", "SRAM, on the chip: 108 × 192 KB", "arithmetic: 312 TFLOP/s"]
    framed = [box for box in cells(ax) if box[3] == 1]
    levels = [at[name][1] for name in names]
    assert sorted(low + 0.5 for _, low, _, _ in framed) == pytest.approx(levels) and levels == sorted(levels)
    widths = [wide for _, low, wide, _ in sorted(framed, key=lambda box: box[1])]
    assert widths == sorted(widths, reverse=True)
    assert [left + wide / 2 for left, _, wide, _ in framed] == pytest.approx([at[name][0] for name in names])
    assert levels[0] < at["2.0 TB/s"][1] < levels[1] < at["about 19 TB/s"][1] < levels[2]
    assert joined(ax) == [(names[0], names[1]), (names[1], names[2])]
    usual, fused = sorted(box for box in cells(ax) if box[3] != 1)
    assert usual[3] == pytest.approx(4 * fused[3]) and usual[1] == fused[1]
    for bar, numbers, words in ((usual, "68 million", "usual attention"), (fused, "17 million", "one fused kernel")):
        middle = bar[0] + bar[2] / 2
        assert at[numbers] == pytest.approx((middle, bar[1] + bar[3] + 0.1))
        (below,) = [name for name in at if name.startswith(words)]
        assert at[below][0] == pytest.approx(middle) and at[below][1] < bar[1]
    assert ["4n^2" in words for words in at if "attention:" in words or "kernel:" in words] == [True, False]
    assert at["numbers moved to and from HBM"][1] > at["68 million"][1]


@proven
def test_online_softmax_is_drawn_with_what_the_factor_leaves_of_the_old():
    scores, values = torch.tensor([1.0, 3, 2, 4]), torch.tensor([10.0, 20, 30, 50])
    first, second = axes(figures.online_softmax_steps, scores, values, 2)
    e = [math.exp(-by) for by in range(4)]
    assert bars_of(first) == [[pytest.approx(e[2]), 1]]
    assert bars_of(second) == [[pytest.approx(e[3]), pytest.approx(e[1])], [pytest.approx(e[2]), 1]]
    assert [[bar.get_x() for bar in bars] for bars in second.containers] == [
        [pytest.approx(-0.4), pytest.approx(0.6)], [pytest.approx(1.6), pytest.approx(2.6)]
    ]  # fmt: skip
    assert [bar.get_x() for bar in first.containers[0]] == [pytest.approx(-0.4), pytest.approx(0.6)]
    outlines = {(left, high): look for (left, _, _, high), look in cells(second).items()}
    assert [*outlines] == [pytest.approx((-0.4, e[2]), abs=1e-5), pytest.approx((0.6, 1))] and not cells(first)
    written = [words for words, *_ in sorted(texts(second), key=lambda text: text[1])]
    assert written == ["0.05", "0.37", "0.14", "1"] and [words for words, *_ in texts(first)] == ["0.14", "1"]
    total, output = 1 + e[2], 20 + 10 * e[2]
    new = 1 + e[2], 50 + 30 * e[2]
    assert first.get_title().splitlines() == [
        "chunk 1: $m$ = 3", f"$\\ell$ = {total:.3f}", f"$o$ = {output:.2f}",
    ]  # fmt: skip
    both = scores.softmax(dim=0) @ values
    assert second.get_title().splitlines() == [
        "chunk 2: $m$ = 4", f"factor = exp(3 − 4) = {e[1]:.2f}",
        f"$\\ell$ = factor · {total:.3f} + {new[0]:.3f} = {total * e[1] + new[0]:.3f}",
        f"$o$ = factor · {output:.2f} + {new[1]:.2f} = {output * e[1] + new[1]:.2f}", f"$o / \\ell$ = {both:.4f}",
    ]  # fmt: skip
    assert labels(first.xaxis) == {0: "1\n10", 1: "3\n20", 2: "?", 3: "?"}
    assert labels(second.xaxis) == {0: "1\n10", 1: "3\n20", 2: "2\n30", 3: "4\n50"}
    assert labels(first.yaxis) == labels(second.yaxis)

    legend = first.figure.legends[0]
    assert [text.get_text() for text in legend.get_texts()] == ["new", "old, times the factor", "old, before it"]

def test_without_a_larger_score_no_bar_of_online_softmax_has_an_outline():
    _, later = axes(figures.online_softmax_steps, torch.tensor([4.0, 3, 2, 1]), torch.arange(4.0), 2)
    assert not cells(later) and later.get_title().splitlines()[1] == "factor = exp(4 − 4) = 1.00"


def bars_of(ax):
    return [[bar.get_height() for bar in bars] for bars in ax.containers]


@proven
def test_softmax_takes_the_first_product_first_and_linear_attention_the_last():
    (ax,) = axes(figures.two_orders_of_products, 5, 2)
    whole = "attention\nmatrix"
    order = ["$Q$", "$K^T$", whole, "$V$", "$O$", "$\\phi(K)^T$", "$V$", "$S$", "$\\phi(Q)$", "$S$", "$O$"]
    shapes = [(5, 2), (2, 5), (5, 5), (5, 2), (5, 2), (2, 5), (5, 2), (2, 2), (5, 2), (2, 2), (5, 2)]
    boxes = sorted(cells(ax), key=lambda box: (box[1] + box[3] / 2 < -9, box[0]))
    assert [(round(high, 6), round(wide, 6)) for _, _, wide, high in boxes] == shapes
    inside = {(x, y): words for words, x, y in texts(ax)}
    middles = [(left + wide / 2, low + high / 2) for left, low, wide, high in boxes]
    assert [next(words for at, words in inside.items() if at == pytest.approx(middle)) for middle in middles] == order
    below = [next(words for (x, y), words in inside.items() if x == pytest.approx(middle[0]) and low - 1 < y < low)
             for middle, (_, low, _, _) in zip(middles, boxes, strict=True)]  # fmt: skip
    assert below == [f"${'nd'[high == 2]} × {'nd'[wide == 2]}$" for high, wide in shapes]
    colours = {}
    for name, box in zip(order, boxes, strict=True):
        colours.setdefault(name.replace("\\phi(", "").replace(")", ""), set()).add(cells(ax)[box])
    assert all(len(each) == 1 for each in colours.values()) and colours[whole] == colours["$S$"]
    assert len({*map(str, colours.values())}) == 5
    costs = ["$n·d·n$ = 50", "$n·n·d$ = 50", "$d·n·d$ = 20", "$n·d·d$ = 20"]
    for cost, (start, end), before in zip(costs, arrows(ax), (1, 3, 6, 9), strict=True):
        left, right = boxes[before], boxes[before + 1]
        assert left[0] + left[2] < start[0] < end[0] < right[0]
        assert start[1] == end[1] == pytest.approx(middles[before][1])
        x, y = places(ax, cost)[cost]
        assert start[0] < x < end[0] and y < start[1]
    times = sorted((y < -9, x) for words, x, y in texts(ax) if words == "×")
    assert times == [(boxes[at][1] < -9, pytest.approx(boxes[at][0] - 0.4)) for at in (1, 3, 6, 9)]
    [[(x, low), (again, high)]] = strokes(ax)
    assert boxes[7][0] + boxes[7][2] < x == again < boxes[8][0]
    assert [low, high] == pytest.approx([boxes[8][1], boxes[8][1] + boxes[8][3]])
    assert start[0] < end[0] and places(ax, "exp, divide")["exp, divide"][0] == places(ax, costs[0])[costs[0]][0]
    titles = [words for words, x, y in sorted(texts(ax), key=lambda text: -text[2]) if x == 0]
    assert titles == ["softmax attention: the attention matrix first, 100 multiplications",
                      "linear attention: the state first, 40 multiplications"]  # fmt: skip


@proven
def test_chunks_write_out_their_own_pairs_and_take_earlier_ones_from_the_state_before():
    (ax,) = axes(figures.chunkwise, 6, 2)
    drawn = cells(ax)
    inside = {(x, y): words for words, x, y in texts(ax)}
    for i in range(6):
        for j in range(6):
            look = drawn.get((j, i, 1, 1))
            assert (look is None) == (i // 2 != j // 2)
            assert look is None or ((look[0] == BLUE) == (j <= i) and bool(look[1]) == (j > i))
    states = {place: look for place, look in drawn.items() if place[2:] != (1, 1) and place[0] == 0 != place[1]}
    assert [*states] == [(0, 2, 2, 2), (0, 4, 4, 2)] and len({*states.values()}) == 1
    assert inside[1, 3] == "$\\phi(Q_2)\\,S_1$" and inside[2, 5] == "$\\phi(Q_3)\\,S_2$"
    frames = [place for place in drawn if place[2:] == (2, 2) and place[0] == place[1]]
    assert frames == [(0, 0, 2, 2), (2, 2, 2, 2), (4, 4, 2, 2)]
    assert labels(ax.xaxis) == {1: "$K_1, V_1$", 3: "$K_2, V_2$", 5: "$K_3, V_3$"}
    assert labels(ax.yaxis) == {1: "$Q_1$", 3: "$Q_2$", 5: "$Q_3$"}
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("keys and values, by chunk", "queries, by chunk")
    beside = [words for words, x, y in sorted(texts(ax), key=lambda text: -text[2]) if x == 1.06]
    assert beside == ["$S_1 = \\phi(K_1)^T V_1$", "$S_2 = S_1 + \\phi(K_2)^T V_2$"]
    assert [text.get_text() for text in ax.get_legend().get_texts()] == [
        "pairs written out: 9", "forbidden, set to 0: 3", "through the state: 12"
    ]  # fmt: skip
    with pytest.raises(ValueError, match="n: got 7, expected a multiple of the chunk, 2"):
        figures.chunkwise(7, 2)


@proven
def test_a_context_stands_beside_six_times_the_width_with_the_share_of_the_pairs():
    [ax] = axes(figures.context_lengths, {"short": (2018, 512, 1024), "long": (2024, 131_072, 16_384)})
    assert strokes(ax) == [
        [(0, 512), (0, 6144)], [(0, 6144)], [(0, 512)], [(1, 131_072), (1, 98_304)], [(1, 98_304)], [(1, 131_072)]
    ]  # fmt: skip
    halves, contexts = ax.lines[1::3], ax.lines[2::3]
    assert {line.get_color() for line in halves} == {ORANGE} and {line.get_color() for line in contexts} == {BLUE}
    assert [label.get_text() for label in ax.get_yticklabels()] == ["512", "2,048", "8,192", "32,768", "131,072"]
    assert texts(ax) == [
        ("8%", 0, 512), ("57%", 1, 131_072),
        ("$6\\,d_\\mathrm{model}$: here the pairs\nare half of the operations", 1, 98_304),
        ("context n, and\nthe share of the pairs", 1, 131_072),
    ]  # fmt: skip
    assert [text.get_color() for text in ax.texts] == [BLUE, BLUE, ORANGE, BLUE]
    assert [label.get_text() for label in ax.get_xticklabels()] == ["short\n2018", "long\n2024"]


@proven
def test_a_cache_stands_in_its_row_beside_a_plain_one_with_the_factor_between_them():
    used, plain = {"dense": 64.0, "shared": 8.0, "mixed": 0.5}, {"dense": 64.0, "shared": 32.0, "mixed": 128.0}
    [ax] = axes(figures.cache_sizes, used, plain)
    assert strokes(ax) == [
        [(64, 0), (64, 0)], [(64, 0)], [(64, 0)],
        [(8, 1), (32, 1)], [(32, 1)], [(8, 1)],
        [(0.5, 2), (128, 2)], [(128, 2)], [(0.5, 2)],
    ]  # fmt: skip
    for lines, colour, mark in ((ax.lines[1::3], ORANGE, "^"), (ax.lines[2::3], BLUE, "o")):
        assert {(line.get_color(), line.get_marker()) for line in lines} == {(colour, mark)}
    assert texts(ax) == [
        ("64, no saving", 64, 0), ("8", 8, 1), ("÷ 4", 16, 1), ("0.5", 0.5, 2), ("÷ 256", 8, 2),
        ("as it is", 64, 0), ("with plain multi-head\nattention in every layer", 64, 0),
    ]  # fmt: skip
    assert [text.get_color() for text in ax.texts[-2:]] == [BLUE, ORANGE]
    assert [label.get_text() for label in ax.get_yticklabels()] == ["dense", "shared", "mixed"]
    assert [label.get_text() for label in ax.get_xticklabels()] == ["0.25", "1", "4", "16", "64", "256", "1024"]


@proven
def test_every_family_stands_beside_its_pairs_what_it_keeps_what_it_changes_and_its_examples():
    (ax,) = axes(figures.taxonomy)
    names = {words: (x, y) for words, x, y in texts(ax) if words in figures.FAMILIES}
    assert boxed(ax) == [*names] == [*figures.FAMILIES]
    heights = [y for _, y in names.values()]
    assert heights == sorted(heights, reverse=True)
    framed = {y: (left, left + wide) for left, low, wide, high in cells(ax) for y in heights
              if high == 1 and low + high / 2 == pytest.approx(y)}  # fmt: skip
    assert [framed[y] for y in heights] == 7 * [pytest.approx((0.7 - 1.65, 0.7 + 1.65))]
    kept = sorted((box for box in cells(ax) if box[0] == 5.5), key=lambda box: -box[1] - box[3] / 2)
    tables = {y: image for image, y in zip(grids(ax), heights, strict=False)}
    assert [image.get_extent()[0] for image in ax.images] == 5 * [2.7]
    said = [words for words, *_ in texts(ax)]
    for (name, family), y, box in zip(figures.FAMILIES.items(), heights, kept, strict=True):
        changed, members, pairs, computed, (tokens, width), size = family
        assert box[1] + box[3] / 2 == pytest.approx(y) and box[2] / box[3] == pytest.approx(1.4 * tokens / (2 * width))
        assert (y in tables) == (pairs is not None) and (pairs is None or tables[y] == pairs.tolist())
        row = [words for words, x, at in sorted(texts(ax), key=lambda text: text[1]) if at == pytest.approx(y)]
        assert row[-3:] == [name, computed, size]
        beside = [words for words, x, at in texts(ax) if x == 9.2 and abs(at - y) < 0.5]
        assert beside == [changed, members] and said.count(changed) == 1
    for extent, y in zip((image.get_extent() for image in ax.images), heights, strict=False):
        assert (extent[2] + extent[3]) / 2 == pytest.approx(y)
    edges = [cells(ax)[box][0] for box in kept]
    assert edges[0] not in edges[1:] and len({*edges[1:5]}) == len({*edges[5:]}) == 1 and edges[1] != edges[5]
    at = places(ax, "exact", "softmax kept", "softmax\nreplaced")
    kinds = dict(zip(at, strokes(ax)[:3], strict=True))
    rows_of = (heights[:1], heights[1:5], heights[5:])
    for (words, [(_, low), (_, high)]), rows in zip(kinds.items(), rows_of, strict=True):
        assert [y for y in heights if low < y < high] == rows and at[words][1] == pytest.approx((low + high) / 2)
    heads = [words for words, x, y in sorted(texts(ax), key=lambda text: text[1]) if y == 0.65]
    assert heads == ["pairs computed", "stored for keys, values", "what changes, for example"]
    lines = strokes(ax)[3:]
    expected = []
    for image in ax.images:
        left, right, low, high = image.get_extent()
        rows, columns = image.get_array().shape
        expected += [[left + at * (right - left) / columns, low, high] for at in range(columns + 1)]
        expected += [[left, right, low + at * (high - low) / rows] for at in range(rows + 1)]
    drawn = [[a[0], a[1], b[1]] if a[0] == b[0] else [a[0], b[0], a[1]] for a, b in lines]
    assert len(drawn) == len(expected)
    for got, right in zip(drawn, expected, strict=True):
        assert got == pytest.approx(right, abs=1e-4)


@proven
def test_sparse_patterns_stand_side_by_side_with_the_layers_that_they_need():
    window, never = dense_mask(sliding_window(2), 6), torch.eye(6, dtype=torch.bool)
    never[0, 3] = True
    a, b = axes(figures.pattern_panels, {"window": window, "apart": never})
    assert (a.get_title(), b.get_title()) == ("window:\n24 pairs, 3 layers", "apart:\n7 pairs, never complete")
    assert grid(a) == window.float().tolist() and grid(b) == never.float().tolist()
    assert (a.get_xlabel(), b.get_xlabel(), a.get_ylabel(), b.get_ylabel()) == ("key", "key", "query", "")
    with pytest.raises(ValueError, match="expected a square one"):
        figures.pattern_panels({"a": window[:4]})


@proven
def test_steps_of_learning_stand_in_rows_in_the_colour_of_their_group():
    groups = {"one": {"full": [45, 40], "few": [41, 44]}, "two": {"far": [125, 230], "twice": [90, 80, 90]},
              "none": {"window": [None, None]}}  # fmt: skip
    (ax,) = axes(figures.learning_steps, groups, 350)
    assert labels(ax.yaxis) == {0: "full", 1: "few", 2: "far", 3: "twice", 4: "window"} and ax.yaxis_inverted()
    assert strokes(ax) == [
        [(0, 0), (1, 0)], [(45, 0), (40, 0)], [(0, 1), (1, 1)], [(41, 1), (44, 1)], [(0, 2), (1, 2)],
        [(125, 2), (230, 2)], [(0, 3), (1, 3)], [(90, 2.85), (80, 3), (90, 3.15)], [(0, 4), (1, 4)],
    ]  # fmt: skip
    assert places(ax) == {"one": (357, 0), "two": (357, 2), "not learned in 350 steps": (7, 4), "none": (357, 4)}
    colours = [line.get_color() for line in ax.lines if line.get_marker() not in ("None", "")]
    assert colours == [BLUE, BLUE, ORANGE, ORANGE]
    assert {text.get_text(): text.get_color() for text in ax.texts} == {
        "one": BLUE, "two": ORANGE, "not learned in 350 steps": GREEN, "none": GREEN
    }  # fmt: skip
    assert ax.get_xlim() == (0, 350) and ax.get_xlabel() == "training steps until the loss is below 0.5"


@proven
def test_lines_over_sizes_have_a_mark_a_seed_and_pass_through_the_medians():
    lines = {"a": {2: [1.0, 0.9, 0.95], 4: [0.5, 0.7, 0.4]}, "b": {2: [0.3], 4: [0.2]}}
    panels, beside = {"16": lines, "64": {"b": {2: [0.6], 4: [0.5]}}}, {"s": {2: [0.8, 0.85, 0.7], 4: [0.75]}}
    left, right = axes(figures.seed_lines, panels, "pairs", "right", 0.125, beside, {"64": (0.55, "9/16")})
    assert (left.get_title(), right.get_title(), left.get_ylabel()) == ("16", "64", "right")
    assert strokes(right)[0] == [(2, 0.8), (4, 0.75)] and strokes(right)[3] == [(2, 0.6), (4, 0.5)]
    assert strokes(left)[:4] == [
        [(2, 0.8), (4, 0.75)],
        [(2, 1.0), (2, 0.9), (2, 0.95)], [(4, 0.5), (4, 0.7), (4, 0.4)], [(2, 0.95), (4, 0.5)],
    ]  # fmt: skip
    assert strokes(left)[4:7] == [[(2, 0.3)], [(4, 0.2)], [(2, 0.3), (4, 0.2)]]
    assert places(left) == {"s: 75%": (4, 0.75), "a: 50%": (4, 0.5), "b: 20%": (4, 0.2), "guessing": (0, 0.125)}
    assert places(right) == {"s: 75%": (4, 0.75), "b: 50%": (4, 0.5), "guessing": (0, 0.125), "9/16": (0, 0.55)}
    assert strokes(left)[-1] == strokes(right)[-2] == [(0, 0.125), (1, 0.125)]
    assert strokes(right)[-1] == [(0, 0.55), (0.65, 0.55)] and right.lines[-1].get_linestyle() == ":"
    for ax in (left, right):
        assert ax.get_xlabel() == "pairs" and labels(ax.xaxis) == {2: "2", 4: "4"}
    colours = [{line.get_label(): line.get_color() for line in ax.lines} for ax in (left, right)]
    assert colours[0]["b"] == colours[1]["b"] != colours[0]["a"], "a name keeps its colour"


def test_shares_without_a_level_of_guessing_say_nothing_of_it():
    (ax,) = axes(figures.shares_in_rows, {"x": {"mark": [1.0, 0.9]}}, "loss")
    assert texts(ax) == [] and strokes(ax)[-1] == [(1.0, 0), (0.9, 0)]


@proven
def test_shares_in_rows_are_points_on_their_row():
    rows = {"x": {"mark": [1.0, 0.9], "before": [0.3, 0.2]}, "y": {"mark": [0.5, 0.6], "before": [0.7, 0.8]}}
    (ax,) = axes(figures.shares_in_rows, rows, "share", 0.125)
    assert labels(ax.yaxis) == {0: "x", 1: "y"} and ax.get_xlabel() == "share" and ax.yaxis_inverted()
    points = [line for line in strokes(ax) if len(line) == 2 and line[0][1] == line[1][1] and line[0][0] not in (0, 1)]
    every = strokes(ax)
    assert every[1] == [(1.0, -0.14), (0.9, -0.14)] and every[2] == [(0.3, 0.14), (0.2, 0.14)]
    assert every[4] == [(0.5, 0.86), (0.6, 0.86)] and every[5] == [(0.7, 1.14), (0.8, 1.14)] and points
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["mark", "before"]
    assert texts(ax) == [(" guessing", 0.125, -0.75)] and every[-1] == [(0.125, 0), (0.125, 1)]


@proven
def test_what_was_measured_has_its_name_and_its_growth_at_the_end_of_its_line():
    measures = {
        "time": {"a": {2: 1.0, 8: 16.0}, "b": {2: 1.0, 8: 4.0}},
        "memory": {"a": {2: 2.0, 8: 8.0}, "b": {2: 1.0, 8: 9.0}},
    }
    grown = {"time": (4, 2), "memory": (2, 3)}
    for ax, (measure, lines) in zip(axes(figures.against_length, measures), measures.items(), strict=True):
        assert strokes(ax) == [list(line.items()) for line in lines.values()] and ax.get_ylabel() == measure
        assert places(ax) == {f"{name}:\n× {factor}.0 when n doubles": (8, line[8])
                              for (name, line), factor in zip(lines.items(), grown[measure], strict=True)}  # fmt: skip
        assert [text.get_color() for text in ax.texts] == [line.get_color() for line in ax.lines] == [BLUE, ORANGE]
        assert 8 < ax.get_xlim()[1] < 10, "the names stand beside the axes"
        assert labels(ax.xaxis) == {2: "2", 8: "8"} and labels(ax.yaxis)[10] == "10" and ax.get_xlabel() == "length n"


@proven
def test_a_roofline_rises_to_its_ridge_and_has_a_point_for_each_piece_of_work():
    work = {"decode": 1.0, "table": 32.0, "tiles": 400.0, "more": 800.0}
    (ax,) = axes(figures.roofline, 300e12, 1.5e12, work)
    assert (ax.get_xscale(), ax.get_yscale()) == ("log", "log")
    assert ax.get_xlabel().startswith("arithmetic intensity") and ax.get_ylabel() == "highest possible, TFLOP/s"
    lines = strokes(ax)
    assert lines[0] == [(0.5, 0.75), (200.0, 300.0), (4096.0, 300.0)] and lines[1][0][0] == lines[1][1][0] == 200.0
    points = {line.get_xdata()[0]: (line.get_ydata()[0], line.get_marker()) for line in ax.lines
              if line.get_marker() in ("o", "s")}  # fmt: skip
    assert points == {1.0: (1.5, "s"), 32.0: (48.0, "s"), 400.0: (300.0, "o"), 800.0: (300.0, "o")}
    assert labels(ax.xaxis) == {1: "1", 4: "4", 16: "16", 64: "64", 256: "256", 1024: "1024"}
    assert labels(ax.yaxis) == {1: "1", 10: "10", 100: "100"}
    (memory_bound,) = cells(ax)
    assert (memory_bound[0], memory_bound[2]) == (0.5, 199.5)
    said = [words for words, *_ in texts(ax)]
    assert said == ["decode: 1", "table: 32", "tiles: 400", "more: 800", "memory-bound, below 200", "compute-bound"]


def test_measured_speeds_are_brackets_in_the_margin_at_their_height():
    (ax,) = axes(figures.roofline, 300e12, 1.5e12, {"table": 32.0}, {"first": (0.25, 0.5)})
    (bracket,) = [line for line in ax.lines if line.get_marker() == "_"]
    assert min(bracket.get_xdata()) > 4096 == ax.get_xlim()[1] and not bracket.get_clip_on()
    assert [*bracket.get_ydata()] == pytest.approx([75, 150])
    x, y = places(ax)["first:\n75 to 150"]
    assert x > 4096 and 75 < y < 150


@proven
def test_states_are_drawn_to_scale_under_what_they_recall():
    shares = {(16, 64): [0.5, 0.7, 0.6], (64, 16): [0.9, 0.8, 0.95], (64, 64): [0.99, 0.97, 0.96]}
    above, below = axes(figures.states_to_scale, shares, "share")
    xs = [x for (x, _), *_ in strokes(above)]
    assert xs == sorted({*xs}) and above.get_ylabel() == "share"
    assert strokes(above) == [[(x, share) for share in values] for x, values in zip(xs, shares.values(), strict=True)]
    medians = {words: y for words, (_, y) in places(above).items()}
    assert medians == {"60%": 0.6, "90%": 0.9, "97%": 0.97}
    assert [text.get_position()[0] > x for text, x in zip(above.texts, xs, strict=True)] == [True] * 3
    for cell, x, (d_k, d_v) in zip(cells(below), xs, shares, strict=True):
        assert cell == pytest.approx((x - d_v / 2, -d_k, d_v, d_k))
    names = [f"keys {d_k}, values {d_v}:\n{d_k * d_v:,} numbers" for d_k, d_v in shares]
    assert {name: x for name, (x, _) in places(below).items()} == dict(zip(names, xs, strict=True))
    assert above.get_xlim() == below.get_xlim()
