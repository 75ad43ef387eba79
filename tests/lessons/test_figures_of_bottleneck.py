"""Drawings of recurrence compute what their equations say, and lines go through what was measured."""

import itertools

import pytest
import torch
from drawn import arrows, axes, boxed, cells, curves, dots, joined, labels, places, strokes, texts
from matplotlib.colors import to_hex, to_rgb
from matplotlib.patches import FancyArrowPatch
from proven import proven
from torch import nn

from attncourse import viz
from attncourse_lessons import course

figures = course.part("bottleneck", "figures")


@proven
def test_each_state_of_an_unrolled_network_reads_a_token_and_guesses_the_next():
    (ax,) = axes(figures.unrolled_rnn, ["<bos>", "Return", "the", "lamp"])
    columns = {place: {y: words for words, x, y in texts(ax) if x == 2.6 * place} for place in (0, 1, 2)}
    for t, (read, guess) in enumerate((("<bos>", "Return"), ("Return", "the"), ("the", "lamp")), start=1):
        assert columns[t - 1] == {0.0: read, 1.6: f"$x_{t}$", 3.9: f"$h_{t}$", 6.2: "softmax", 8.2: guess}
    assert boxed(ax) == [words for t in (1, 2, 3) for words in (f"$x_{t}$", f"$h_{t}$", "softmax")]
    heights = sorted(columns[0])
    upright = [(x, low, high) for (x, low), (end, high) in arrows(ax) if x == end]
    for place in (0, 1, 2):
        passed = [(low, high) for x, low, high in upright if x == 2.6 * place]
        assert len(passed) == 4
        for (low, high), below, above in zip(sorted(passed), heights[:-1], heights[1:], strict=True):
            assert below < low < high < above
    level = [(start, end) for start, end in arrows(ax) if start[1] == end[1] == 3.9]
    assert [(round(start[0], 2), round(end[0], 2)) for start, end in level] == [(-1.35, -0.6), (0.6, 2.0), (3.2, 4.6)]
    matrices = {words: [round(x, 2) for said, x, y in texts(ax) if said == words] for words in
                ("$W_x$", "$W_h$", r"$E^\top$")}  # fmt: skip
    assert matrices == {"$W_x$": [0.12, 2.72, 5.32], "$W_h$": [-0.98, 1.25, 3.85], r"$E^\top$": [0.12, 2.72, 5.32]}


def test_a_path_leads_from_what_one_state_reads_to_what_another_predicts(shown):
    tokens = ["<bos>", "Return", "the", "lamp"]
    (ax,) = axes(figures.unrolled_rnn, tokens, path=(2, 3))
    assert on_the_path(ax) == [
        ((2.6, 0.35), (2.6, 1.08)), ((2.6, 2.12), (2.6, 3.38)), ((3.2, 3.9), (4.6, 3.9)), ((5.2, 4.42), (5.2, 5.68)),
        ((5.2, 6.72), (5.2, 7.85)),
    ]  # fmt: skip
    (plain,) = axes(figures.unrolled_rnn, tokens)
    assert on_the_path(plain) == [] and arrows(plain) == arrows(ax)
    for drawn, orange in ((ax, ["lamp"]), (plain, [])):
        assert [text.get_text() for text in drawn.texts if text.get_color() == figures.ORANGE] == orange
    figures.unrolled_rnn(tokens, path=(2, 3))
    assert "from Return to state 3 and its prediction" in shown[-1]


def on_the_path(ax):
    return [tuple((round(x, 2), round(y, 2)) for x, y in patch._posA_posB) for patch in ax.patches
            if isinstance(patch, FancyArrowPatch) and to_hex(patch.get_edgecolor()) == figures.ORANGE]  # fmt: skip


class Drawn:
    """What a picture of a cell says, read from it alone: words, where they stand, and which arrow leads from which."""

    def __init__(self, ax):
        self.nodes = [(words, x, y) for words, x, y in texts(ax)]
        self.half = [self._half(ax, *node) for node in self.nodes]
        self.feeds = {}
        for start, end in arrows(ax):
            self.feeds.setdefault(self._nearest(*end), []).append(self._nearest(*start))

    @staticmethod
    def _half(ax, words, x, y):
        """Half of a node's width: its box's; without a box, about 1.4 where the words are long."""
        around = [width / 2 for left, low, width, height in cells(ax)
                  if left < x < left + width and low < y < low + height]  # fmt: skip
        return around[0] if around else 1.4 if len(words) > 9 else 0.55

    def _nearest(self, x, y):
        """A node's height is always 1."""
        away = [max(abs(x - at_x) - wide, 0) + max(abs(y - at_y) - 0.5, 0)
                for (_, at_x, at_y), wide in zip(self.nodes, self.half, strict=True)]  # fmt: skip
        return away.index(min(away))

    def computed(self, words, given, boxes):
        """The value of the node with these words: `given` to those where something comes in, by `boxes` elsewhere."""
        (node,) = [i for i, (said, *_) in enumerate(self.nodes) if said == words]
        return self._value(node, given, boxes)

    def _value(self, node, given, boxes):
        words = self.nodes[node][0]
        if words in given:
            assert node not in self.feeds, f"{words} comes in from outside"
            return given[words]
        values = [self._value(each, given, boxes) for each in self.feeds[node]]
        return boxes[words](*values)


X_AND_H = r"$x_t,\ h_{t-1}$"


def test_the_drawn_lstm_computed_along_its_arrows_is_torchs():
    lstm, _ = axes(figures.lstm_and_gru)
    torch.manual_seed(0)
    cell = nn.LSTMCell(3, 5)
    x, h, c = torch.randn(2, 3), torch.randn(2, 5), torch.randn(2, 5)

    def gate(k, curve):
        W, U, b, b_2 = (part[5 * k : 5 * k + 5] for part in cell.parameters())
        return lambda both: curve(both[0] @ W.mT + both[1] @ U.mT + b + b_2)

    boxes = {
        "×": torch.mul, "+": torch.add, "tanh": torch.tanh, "$c_t$": lambda c: c, "$h_t$": lambda h: h,
        "to step t + 1": lambda c: c, "to step t + 1\nand the logits": lambda h: h,
        r"$i=\sigma(\cdot)$": gate(0, torch.sigmoid), r"$f=\sigma(\cdot)$": gate(1, torch.sigmoid),
        r"$\tilde c=\tanh(\cdot)$": gate(2, torch.tanh), r"$o=\sigma(\cdot)$": gate(3, torch.sigmoid),
    }  # fmt: skip
    picture, given = Drawn(lstm), {X_AND_H: (x, h), "$c_{t-1}$": c}
    new_h, new_c = cell(x, (h, c))
    torch.testing.assert_close(picture.computed("to step t + 1\nand the logits", given, boxes), new_h)
    torch.testing.assert_close(picture.computed("to step t + 1", given, boxes), new_c)


def test_the_drawn_gru_computed_along_its_arrows_is_torchs():
    _, gru = axes(figures.lstm_and_gru)
    torch.manual_seed(0)
    cell = nn.GRUCell(3, 5)
    with torch.no_grad():
        cell.bias_hh.zero_()                                      # torch has a second bias, inside r's brackets
    x, h = torch.randn(2, 3), torch.randn(2, 5)
    W, U, b = cell.weight_ih.unflatten(0, (3, 5)).mT, cell.weight_hh.unflatten(0, (3, 5)).mT, cell.bias_ih.view(3, 5)

    def candidate(read, past):
        return torch.tanh(read + past + b[2])

    boxes = {
        "×": torch.mul, "+": torch.add, "1 − z": lambda z: 1 - z, "$h_t$": lambda h: h,
        "to step t + 1\nand the logits": lambda h: h, r"$\tilde h=\tanh(\cdot)$": candidate,
        r"$W_{\tilde h}$": lambda read: read @ W[2], r"$U_{\tilde h}$": lambda past: past @ U[2],
        r"$r=\sigma(\cdot)$": lambda both: torch.sigmoid(both[0] @ W[0] + both[1] @ U[0] + b[0]),
        r"$z=\sigma(\cdot)$": lambda both: torch.sigmoid(both[0] @ W[1] + both[1] @ U[1] + b[1]),
    }  # fmt: skip
    given = {X_AND_H: (x, h), "$h_{t-1}$": h, "$x_t$": x}
    torch.testing.assert_close(Drawn(gru).computed("to step t + 1\nand the logits", given, boxes), cell(x, h))


@proven
def test_each_cell_is_drawn_from_its_wiring():
    panels = {ax.get_title(): ax for ax in axes(figures.lstm_and_gru)}
    assert [*panels] == ["LSTM: two states, $c_t$ and $h_t$", "GRU: one state, $h_t$"]
    for ax, cell in zip(panels.values(), (figures.LSTM_CELL, figures.GRU_CELL), strict=True):
        assert texts(ax) == [*cell.nodes.values()]
        names = list(cell.nodes)
        picture = Drawn(ax)
        fed = [(names[start], names[end]) for end, starts in picture.feeds.items() for start in starts]
        assert sorted(fed) == sorted(cell.edges)
        assert boxed(ax) == [words for name, (words, *_) in cell.nodes.items() if name not in figures.OUTSIDE]
        for (left, low, width, height), (_, x, y) in zip(
            cells(ax), [node for name, node in cell.nodes.items() if name not in figures.OUTSIDE], strict=True
        ):
            assert (left + width / 2, low + height / 2) == pytest.approx((x, y))
    (key,) = next(iter(panels.values())).figure.legends
    said = [words.get_text() for words in key.get_texts()]
    named = [(to_hex(patch.get_edgecolor()), to_hex(patch.get_facecolor()), words)
             for patch, words in zip(key.get_patches(), said, strict=False)]  # fmt: skip
    assert named == [(to_hex(colour), to_hex(face), words) for colour, (face, words) in figures.KEY.items()]
    assert said[len(named) :] == [figures.STATES, figures.DOT]


def test_a_state_goes_to_the_next_step_along_blue_arrows():
    lstm, gru = axes(figures.lstm_and_gru)
    for ax, blue in ((lstm, {"$c_{t-1}$", "$c_t$", "$h_t$", "+", "×"}), (gru, {"$h_{t-1}$", "$h_t$", "+", "×"})):
        picture = Drawn(ax)
        starts = [picture.nodes[picture._nearest(*patch._posA_posB[0])][0] for patch in ax.patches
                  if isinstance(patch, FancyArrowPatch) and to_hex(patch.get_edgecolor()) == figures.BLUE]  # fmt: skip
        assert {*starts} == blue
        last = [words for words, *_ in picture.nodes if words.startswith("to step t + 1")]
        assert len(last) == sum(word in blue for word in ("$c_t$", "$h_t$"))


def test_the_kinds_of_a_cells_boxes_are_told_apart_in_grey_and_are_those_of_the_key():
    def lightness(face):
        red, green, blue = to_rgb(face)
        return 0.299 * red + 0.587 * green + 0.114 * blue

    faces = [face for face, _ in figures.KEY.values()]
    greys = sorted(map(lightness, faces))
    assert all(b - a > 0.25 for a, b in itertools.pairwise(greys))
    for ax in axes(figures.lstm_and_gru):
        assert {colour for colour, _ in cells(ax).values()} <= {to_hex(face) for face in faces}
        for words in boxed(ax):
            kind = figures.INK if words in ("×", "+", "1 − z", "tanh") else figures.AMBER if words in GATES else "white"
            kind = figures.MATRIX if words in (r"$W_{\tilde h}$", r"$U_{\tilde h}$") else kind
            assert _face_behind(ax, words) == {to_hex(kind)}


GATES = tuple(rf"${gate}=\sigma(\cdot)$" for gate in "fiozr")


def _face_behind(ax, words):
    """The colours of the boxes in which these words stand."""
    at = [(x, y) for said, x, y in texts(ax) if said == words]
    return {colour for (left, low, width, height), (colour, _) in cells(ax).items()
            for x, y in at if left < x < left + width and low < y < low + height}  # fmt: skip


@proven
def test_only_the_last_state_reaches_the_decoder_which_reads_what_it_wrote():
    (ax,) = axes(figures.encoder_decoder, ["ein", "Wort"], ["one", "word", "<eos>"])
    assert boxed(ax) == ["$h_1$", "$h_2$", "$s_1$", "$s_2$", "$s_3$"]
    at = {words: x for words, x, y in texts(ax) if words in boxed(ax)}
    below = [(words, x) for words, x, y in texts(ax) if y == 0]
    above = [(words, x) for words, x, y in texts(ax) if y == 4]
    assert below == [("ein", at["$h_1$"]), ("Wort", at["$h_2$"]), ("<bos>", at["$s_1$"]), ("one", at["$s_2$"]),
                     ("word", at["$s_3$"])]  # fmt: skip
    assert above == [("one", at["$s_1$"]), ("word", at["$s_2$"]), ("<eos>", at["$s_3$"])]
    level = [(start[0], end[0]) for start, end in arrows(ax) if start[1] == end[1] == 2]
    chain = ["$h_1$", "$h_2$", "$s_1$", "$s_2$", "$s_3$"]
    assert [end for ends in sorted(level) for end in ends] == pytest.approx(
        [end for a, b in itertools.pairwise(chain) for end in (at[a] + 0.6, at[b] - 0.6)]
    )
    upright = [(start, end) for start, end in arrows(ax) if start[0] == end[0]]
    read = [((x, 0.35), (x, 1.45)) for x in at.values()]
    said = [((at[f"$s_{t}$"], 2.55), (at[f"$s_{t}$"], 3.65)) for t in (1, 2, 3)]
    assert sorted(upright) == sorted(read + said)
    (wide,) = [patch for patch in ax.patches if isinstance(patch, FancyArrowPatch) and patch.get_linewidth() > 3]
    assert [x for x, _ in wide._posA_posB] == pytest.approx([at["$h_2$"] + 0.6, at["$s_1$"] - 0.6])
    over = "$s_0 = h_2$\none vector:\n$d$ numbers"
    words = places(ax, over, "encoder", "decoder")
    assert at["$h_2$"] < words[over][0] < at["$s_1$"] and words[over][1] > 2.5
    assert [(x, y) for said, x, y in texts(ax) if said == "not\npassed on"] == [(at["$h_1$"], 2.7)]
    assert at["$h_1$"] < words["encoder"][0] < at["$h_2$"] and words["decoder"][0] == at["$s_2$"]


@proven
def test_two_readers_differ_only_in_which_states_reach_attend():
    one, every = axes(figures.two_readers, ["b4", "f0", "s1"], 2)
    assert "last state" in one.get_title() and "3 × $d$" in every.get_title()
    same = [
        ("b4", "$h_1$"), ("f0", "$h_2$"), ("s1", "$h_3$"), ("$h_1$", "$h_2$"), ("$h_2$", "$h_3$"), ("s?", "attend"),
        ("s?", "scale"), ("scale", "×"), ("attend", "×"), ("×", "combine, tanh"), ("combine, tanh", "answer"),
        ("answer", "1"),
    ]  # fmt: skip
    for ax, kept in ((one, ["$h_3$"]), (every, ["$h_1$", "$h_2$", "$h_3$"])):
        assert boxed(ax) == ["$h_1$", "$h_2$", "$h_3$", "attend", "scale", "×", "combine, tanh", "answer"]
        at = {(words, y): (x, y) for words, x, y in texts(ax)}
        where = {"answer": at["answer", 7.8], **{words: place for (words, y), place in at.items() if y != 2.95}}

        def nearest(x, y, where=where):
            half = {"attend": 1.2, "combine, tanh": 1.8, "answer": 1.1, "scale": 0.9}
            away = {words: max(abs(x - at_x) - half.get(words, 0.5), 0) + max(abs(y - at_y) - 0.5, 0)
                    for words, (at_x, at_y) in where.items() if words not in ("found", "selected")}  # fmt: skip
            return min(away, key=away.__getitem__)

        drawn = [(nearest(*start), nearest(*end)) for start, end in arrows(ax)]
        assert sorted(drawn) == sorted([*same, *((state, "attend") for state in kept)])
        assert [words for words in lit(ax) if words.startswith("$h_")] == kept
        labelled = {x: words for words, x, y in texts(ax) if y == 2.95}
        assert [labelled[x] for x in sorted(labelled)] == (
            ["not kept", "not kept", "1"] if kept == ["$h_3$"] else [r"$\alpha_1$", r"$\alpha_2$", r"$\alpha_3$"]
        )


def at_the_end(ax):
    """{name beside the axes: (its share of their height, the points of the line in its colour)}."""
    lines = {to_hex(line.get_color()): stroke for line, stroke in zip(ax.lines, strokes(ax), strict=True)}
    beside = [words for words in ax.texts if words.xycoords == "axes fraction" and words.xy[0] == 1]
    return {words.get_text(): (words.xy[1], lines[to_hex(words.get_color())]) for words in beside}


@proven
def test_lines_of_several_seeds_go_through_the_means_with_a_point_for_each_seed():
    panels = {"one": {"d = 2": {1: [0.9, 1.0], 4: [0.2, 0.4]}, "d = 4": {1: [1.0, 1.0], 4: [0.5, 0.9]}},
              "all": {"d = 2": {1: [1.0, 0.8], 4: [0.7, 0.7]}, "d = 4": {1: [0.6, 0.8], 4: [0.1, 0.3]}}}  # fmt: skip
    one, every = axes(figures.seed_lines, panels, "pairs", "right")
    assert [ax.get_title() for ax in (one, every)] == ["one", "all"]
    assert strokes(one) == [[(1, 0.95), (4, 0.3)], [(1, 1.0), (4, 0.7)]]
    assert strokes(every) == [[(1, 0.9), (4, 0.7)], [(1, 0.7), (4, 0.2)]]
    for ax, lines in ((one, panels["one"]), (every, panels["all"])):
        assert dots(ax) == [(x, value) for points in lines.values() for x, values in points.items() for value in values]
        assert (ax.get_xscale(), ax.get_ylim(), ax.get_xlabel()) == ("log", (0, 1.06), "pairs")
        assert labels(ax.xaxis) == {1: "1", 4: "4"}
        assert {name: line for name, (_, line) in at_the_end(ax).items()} == dict(zip(lines, strokes(ax), strict=True))
    assert one.get_ylabel() == "right"


def test_a_line_is_named_where_it_ends_and_names_do_not_cover_each_other():
    lines = {"low": {1: [1.0], 2: [0.11]}, "lower": {1: [1.0], 2: [0.1]}, "two\nlines": {1: [1.0], 2: [0.13]},
             "high": {1: [1.0], 2: [0.8]}}  # fmt: skip
    (ax,) = axes(figures.seed_lines, {"": lines}, "pairs", "right")
    heights = {name: height for name, (height, _) in at_the_end(ax).items()}
    assert heights["high"] == pytest.approx(0.8 / 1.06)
    assert heights["low"] - heights["lower"] >= 0.066 and heights["two\nlines"] - heights["low"] >= 0.099
    assert heights["lower"] == pytest.approx(0.1 / 1.06, abs=0.12)


@proven
def test_a_single_panel_of_seeds_may_have_a_logarithmic_height_and_even_steps():
    lines = {"all": {1: [500.0, 480.0], 2: [70.0, 66.0], 5: [37.0, 37.0]}, "half": {1: [520.0, 500.0], 5: [60.0, 58.0]}}
    (ax,) = axes(figures.seed_lines, {"text": lines}, "order", "perplexity", log_x=False, log_y=True)
    assert (ax.get_title(), ax.get_xlabel(), ax.get_ylabel()) == ("text", "order", "perplexity")
    assert {name: line for name, (_, line) in at_the_end(ax).items()} == {
        "all": [(1, 490), (2, 68), (5, 37)], "half": [(1, 510), (5, 59)],
    }  # fmt: skip
    assert dots(ax) == [(x, value) for points in lines.values() for x, values in points.items() for value in values]
    assert (ax.get_xscale(), ax.get_yscale(), labels(ax.xaxis)) == ("linear", "log", {1: "1", 2: "2", 5: "5"})
    assert at_the_end(ax)["half"][0] > at_the_end(ax)["all"][0]


def test_panels_share_a_logarithmic_height():
    panels = {"fresh": {"a": {1: [1.0], 2: [1e-9]}}, "changed": {"a": {1: [1.0], 2: [1e5]}}}
    fresh, changed = axes(figures.seed_lines, panels, "steps", "gradient", log_y=True)
    assert fresh.get_ylim() == changed.get_ylim()
    assert fresh.get_ylim()[0] < 1e-9 and fresh.get_ylim()[1] > 1e5


def test_small_numbers_are_said(shown):
    figures.seed_lines({"": {"a": {1: [1e-20, 3e-20]}}}, "x", "gradient", log_x=False, log_y=True)
    assert "a: 2e-20 at 1" in shown[0]


def test_a_name_may_say_how_much_is_left_at_the_end():
    lines = {"a": {1: [2.0], 60: [2e-12]}, "b": {1: [0.5], 60: [0.25]}}
    (ax,) = axes(figures.seed_lines, {"": lines}, "steps", "gradient", log_y=True, ratios=True)
    assert [*at_the_end(ax)] == ["a: $10^{-12}$ left", "b: 0.5 left"]


@proven
def test_each_seed_may_have_a_line_and_marks_beside_those_of_other_names():
    lines = {"a": {5: [1.0, 0.9], 10: [0.2, 0.8]}, "b": {5: [1.0, 1.0], 10: [0.5, 0.6]}}
    (ax,) = axes(figures.seed_lines, {"": lines}, "k", "right", log_x=False, apart=1.0)
    assert strokes(ax) == [
        [(4.5, 1.0), (9.5, 0.2)], [(4.5, 0.9), (9.5, 0.8)], [(5.5, 1.0), (10.5, 0.5)], [(5.5, 1.0), (10.5, 0.6)],
    ]  # fmt: skip
    assert dots(ax) == [
        (4.5, 1.0), (4.5, 0.9), (9.5, 0.2), (9.5, 0.8), (5.5, 1.0), (5.5, 1.0), (10.5, 0.5), (10.5, 0.6),
    ]  # fmt: skip
    assert labels(ax.xaxis) == {5: "5", 10: "10"}
    assert {name: line for name, (_, line) in at_the_end(ax).items()} == {"a": strokes(ax)[1], "b": strokes(ax)[3]}


def test_a_line_may_have_a_colour_of_its_own_and_a_wider_vector_a_darker_blue():
    lines = {name: {1: [0.9], 2: [0.5]} for name in ("a", "b", "c")}
    (ax,) = axes(figures.seed_lines, {"": lines}, "pairs", "right", colours={"a": "#d55e00", "c": "#123456"})
    drawn = {words.get_text(): to_hex(words.get_color()) for words in ax.texts}
    assert drawn == {"a": "#d55e00", "b": figures.ORANGE, "c": "#123456"}
    assert [to_hex(line.get_color()) for line in ax.lines] == [*drawn.values()]
    blues = figures.blues((16, 32, 64))
    lightness = [sum(to_rgb(blues[width])) for width in (16, 32, 64)]
    assert lightness[0] > lightness[1] + 0.2 > lightness[2] + 0.4


def test_what_guessing_gives_may_be_a_line_in_each_panel(shown):
    lines = {"a": {1: [0.9], 2: [0.5]}}
    pair = axes(figures.seed_lines, {"one": lines, "all": lines}, "pairs", "right", chance=0.125)
    for ax in pair:
        assert [(0, 0.125), (1, 0.125)] in strokes(ax) and "guessing" in [words for words, *_ in texts(ax)]
    (alone,) = axes(figures.seed_lines, {"": lines}, "pairs", "right", chance=0.125)
    assert [*at_the_end(alone)] == ["a"]
    figures.seed_lines({"": lines}, "pairs", "right", chance=0.125)
    assert "Guessing gives 0.125." in shown[-1]


def test_guessing_may_be_named_where_no_mark_is():
    lines = {"a": {5: [0.9], 60: [0.1]}}
    for ax in axes(figures.seed_lines, {"one": lines, "all": lines}, "k", "right", chance=0.1, chance_at=30):
        assert places(ax, "guessing") == {"guessing": pytest.approx((30, 0.1))}


@proven
def test_a_player_to_compare_with_has_a_dotted_line_and_a_name_at_its_end(shown):
    lines, player = {"a": {1: [1.0, 0.8], 2: [0.5]}}, ("no\nletters", {1: 1.0, 2: 0.55})
    (ax,) = axes(figures.seed_lines, {"": lines}, "pairs", "right", floor=player)
    assert strokes(ax) == [[(1, 0.9), (2, 0.5)], [(1, 1.0), (2, 0.55)]]
    assert [line.get_linestyle() for line in ax.lines] == ["-", ":"]
    assert dots(ax) == [(1, 1.0), (1, 0.8), (2, 0.5)], "the player has no seeds"
    ends = at_the_end(ax)
    assert {name: line for name, (_, line) in ends.items()} == dict(zip(("a", "no\nletters"), strokes(ax), strict=True))
    assert ends["no\nletters"][0] > ends["a"][0] and labels(ax.xaxis) == {1: "1", 2: "2"}
    figures.seed_lines({"": lines}, "pairs", "right", floor=player)
    assert "no letters: 1 at 1, 0.55 at 2." in shown[-1]


@proven
def test_a_bracket_joins_the_two_lines_that_do_the_same_multiplications(shown):
    lines = {"one by one": {16: 6.0, 1024: 5.0}, "attention": {16: 2.0, 1024: 8.0}, "at once": {16: 2.0, 1024: 1.0}}
    (ax,) = axes(figures.times, lines, ("one by one", "at once"), 1024)
    assert {name: line for name, (_, line) in at_the_end(ax).items()} == {
        "one by one": [(16, 6), (1024, 5)], "attention": [(16, 2), (1024, 8)], "at once": [(16, 2), (1024, 1)],
    }  # fmt: skip
    assert labels(ax.xaxis) == {16: "16", 1024: "1,024"} and (ax.get_xscale(), ax.get_yscale()) == ("log", "log")
    (bracket,) = [words for words in ax.texts if words.arrow_patch is not None]
    (x, low), (x_high, high) = bracket.xy, bracket.xyann
    assert x == x_high == 1024 and 1.0 < low < 1.3 and 4.0 < high < 5.0
    said = "the same\nmultiplications:\n5.0 times as long"
    where, height = places(ax, said)[said]
    assert where == 1024 and 1.0 < height < 5.0
    heights = {name: height for name, (height, _) in at_the_end(ax).items()}
    assert sorted(heights, key=heights.get) == ["at once", "one by one", "attention"]
    figures.times(lines, ("one by one", "at once"), 1024)
    assert "at 1,024 the first takes 5 times as long" in shown[-1]


@proven
def test_a_bar_leads_from_the_reader_to_compare_with_to_what_one_change_makes_of_it(shown):
    rows = {"wider": [0.9, 0.94], "other readout": [0.2, 0.3]}
    given = ("one vector", [0.7, 0.8]), rows, "right", ("most frequent", 0.35)
    (ax,) = axes(figures.one_change, *given)
    assert labels(ax.yaxis) == {0: "wider", 1: "other readout"} and ax.get_ylim()[0] > ax.get_ylim()[1]
    base, floor, *bars = strokes(ax)
    assert base == [(0.75, 0), (0.75, 1)] and floor == [(0.35, 0), (0.35, 1)]
    assert bars == [[(0.75, 0), (0.92, 0)], [(0.75, 1), (0.25, 1)]]
    assert dots(ax) == [(0.9, 0), (0.94, 0), (0.2, 1), (0.3, 1)]
    assert [to_hex(line.get_color()) for line in ax.lines[2:]] == [figures.BLUE, figures.ORANGE]
    assert places(ax, "one vector: 0.75", "most frequent: 0.35", "0.92", "0.25") == {
        "one vector: 0.75": pytest.approx((0.75, 1)), "most frequent: 0.35": pytest.approx((0.35, 1)),
        "0.92": pytest.approx((1, 0)), "0.25": pytest.approx((1, 1)),
    }  # fmt: skip
    figures.one_change(*given)
    assert "one vector: 0.75; most frequent: 0.35; wider: 0.92; other readout: 0.25" in shown[-1]


@proven
def test_a_signal_walks_through_every_cell_or_straight_to_the_end():
    recurrent, attention = axes(figures.signal_path, 4, 2)
    assert recurrent.get_title() == "recurrent: the signal goes through 3 cells; 4 steps, one after the other"
    assert attention.get_title() == "attention: the signal goes through 1 average; 1 step"
    steps = [("1", "2"), ("2", "3"), ("3", "4")]
    assert sorted(joined(recurrent)) == sorted([*steps, *((f"$x_{{{t}}}$", f"{t}") for t in (1, 2, 3, 4))])
    assert lit(recurrent) == ["2", "3", "4"]
    (signal,) = arrows(attention)
    assert signal == ((1, 0.15), (3, 2.35))
    into_last = sorted(start for start, end in strokes(attention) if end == (3, 2.35))
    into_middle = sorted(start for start, end in strokes(attention) if end == (1, 2.35))
    assert into_last == [(t, 0.15) for t in (0, 2, 3)] and into_middle == [(0, 0.15), (1, 0.15)]
    assert len(strokes(attention)) == len(into_last) + len(into_middle)
    led = {(to_hex(line.get_color()), end) for line, (_, end) in zip(attention.lines, strokes(attention), strict=True)}
    assert led == {(figures.GREY, (3, 2.35)), (figures.PALE, (1, 2.35))}
    for ax, high in ((recurrent, 1.6), (attention, 2.9)):
        assert places(ax, "step") == {"step": (-0.5, pytest.approx(high))}
    assert [words for words, *_ in texts(attention)[:5]] == ["step", *["1"] * 4]
    assert [left for left, *_ in lit_cells(attention)] == [pytest.approx(2.7)]
    for ax in (recurrent, attention):
        assert places(ax, *(f"$x_{{{t + 1}}}$" for t in range(4))) == {f"$x_{{{t + 1}}}$": (t, -0.15) for t in range(4)}


def lit_cells(ax):
    return [place for place, (colour, _) in cells(ax).items() if colour != "#ffffff"]


def lit(ax):
    """The words in coloured boxes."""
    return [words for words, x, y in texts(ax) for left, low, width, height in lit_cells(ax)
            if left < x < left + width and low < y < low + height]  # fmt: skip


@proven
def test_measured_lines_have_a_tick_and_a_point_where_something_was_measured():
    lines = {"a": {100: 900.0, 200: 30.0, 4000: 50.0}, "b": {100: 50.0, 4000: 7.0}}
    (ax,) = axes(viz.line_plot, lines, "order", "perplexity", log_x=True, log_y=True, low=1)
    assert curves(ax) == {"a": {"100": 900, "200": 30, "4,000": 50}, "b": {"100": 50, "4,000": 7}}
    assert labels(ax.xaxis) == {100: "100", 200: "200", 4000: "4,000"}
    assert (ax.get_xscale(), ax.get_yscale(), ax.get_ylim()[0]) == ("log", "log", 1)
