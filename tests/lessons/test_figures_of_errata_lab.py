"""Pictures of errata: the game of entries, runs side by side, and a table of who catches what."""

import pytest
import torch
from drawn import arrows, axes, boxed, cells, places, strokes, table, texts
from matplotlib.colors import to_hex
from proven import proven

from attncourse_lessons import course
from attncourse_lessons.errata import erratum

figures = course.part("errata_lab", "figures")
game_module = course.part("errata_lab", "review_game")
review_game, QUESTIONS = game_module.review_game, game_module.QUESTIONS


ENTRIES = [erratum(name) for name in ("i > i", "keys and queries", "Qx beside XQ")]


@proven
def test_lines_of_the_game_stand_below_each_other_with_their_labels():
    (ax,) = axes(figures.lines_of, [("says", "it sums to two"), ("", "and so on"), ("then", "judge")], "words")
    at = places(ax)
    heights = [at[said][1] for said in ("it sums to two", "and so on", "judge")]
    assert heights == sorted(heights) and ax.yaxis_inverted()
    assert at["says"][1] == at["it sums to two"][1] and at["says"][0] < at["it sums to two"][0]
    weights = {text.get_text(): text.get_weight() for text in ax.texts}
    assert weights["it sums to two"] == "bold" and weights["judge"] == "normal"


@proven
def test_runs_of_one_seed_are_joined():
    (ax,) = axes(figures.paired_seeds, {"right": [3.0, 3.2, 3.1], "printed": [2.9, 3.1, 3.3]}, "loss")
    joined = [line for line in ax.lines if list(line.get_xdata()) == [0, 1]]
    assert [list(line.get_ydata()) for line in joined] == [[3.0, 2.9], [3.2, 3.1], [3.1, 3.3]]
    assert [line.get_linestyle() for line in joined] == ["-", "-", "--"], "the seed that rises is dashed"
    assert len({line.get_color() for line in joined}) == 2
    points = {line.get_xdata()[0]: list(line.get_ydata()) for line in ax.lines if line.get_marker() == "o"}
    assert points == {0: [3.0, 3.2, 3.1], 1: [2.9, 3.1, 3.3]}
    bars = [line.get_ydata()[0] for line in ax.lines if len(line.get_xdata()) == 2 and line not in joined]
    assert bars == pytest.approx([3.1, 3.1])
    assert [label.get_text() for label in ax.get_xticklabels()] == ["right", "printed"] and ax.get_ylabel() == "loss"
    (said,) = ax.texts
    assert "2 of 3 fall" in said.get_text() and ax.get_legend() is None


@proven
def test_the_residual_path_begins_after_the_norm_as_printed_and_before_it_repaired():
    (ax,) = axes(figures.two_blocks)
    rows = {0.0: (2.5, 9.9), -3.0: (0.2, 7.6)}
    expected = []
    for y, starts in rows.items():
        for start, plus in zip(starts, (6.85, 14.25), strict=True):
            expected += [[(start, y), (start, y + 1), (plus, y + 1)], [(start, y)]]
    assert strokes(ax) == expected
    assert boxed(ax) == 2 * ["norm", "attention", "norm", "feed-forward"]
    assert [words for words, x, y in texts(ax) if x == -0.9] == ["printed", "repaired"]
    said = []
    for words, x, y in texts(ax):
        if words.endswith(" the norm"):
            said.append((words, y))
            continue
        if words.endswith(" sublayer"):
            assert (words, x, y) in (("first sublayer", 3.6, 2.25), ("second sublayer", 11.0, 2.25))
            continue
        assert any(y == pytest.approx(row) for row in rows)
        if words == "+":
            assert x in (6.85, pytest.approx(14.25))
    assert said == [(words, pytest.approx(y + 1.15)) for y, words in
                    zip(rows, ("after the norm", "before the norm"), strict=True) for _ in range(2)]  # fmt: skip
    styles = [line.get_linestyle() for line in ax.lines if line.get_marker() == "None"]
    assert styles == ["--", "--", "-", "-"]
    along = [(start, end) for start, end in arrows(ax) if start[1] == end[1]]
    down = [(start, end) for start, end in arrows(ax) if start[0] == end[0]]
    assert len(along) == 2 * 7 and all(start[0] < end[0] for start, end in along)
    assert len(down) == 2 * 2 and all(start[1] > end[1] for start, end in down)


@proven
def test_masked_tables_print_the_sum_of_each_row_and_hatch_the_future():
    allowed = torch.ones(3, 3).tril().bool()
    right = torch.tensor([[1.0, 0, 0], [0.25, 0.75, 0], [0.2, 0.3, 0.5]])
    for ax, title, weights in zip(axes(figures.masked_tables, {"right": right, "less": right * 0.5}, allowed),
                                  ("right", "less"), (right, right * 0.5), strict=True):  # fmt: skip
        numbers = {f"{i}": {f"{j}": pytest.approx(weights[i, j].item()) for j in range(3)} for i in range(3)}
        assert ax.get_title() == title and table(ax) == numbers
        assert {(x, y) for x, y, *_ in cells(ax)} == {(1, 0), (2, 0), (2, 1)}, "no cell of these is wrong: no frame"
        assert all(hatch for _, hatch in cells(ax).values())
        sums = [(words, y) for words, x, y in texts(ax) if x > 3 and y > 0]
        assert sums == [(f"{weights[i].sum():.2f}", i + 0.5) for i in range(3)]
        inside = {(x, y): words for words, x, y in texts(ax) if x < 3 and y > 0}
        assert inside == {(j + 0.5, i + 0.5): f"{weights[i, j]:.2f}" for i in range(3) for j in range(3)}
        assert ("sum", 3.18, -0.1) in texts(ax)
        assert ("✓ rows sum to 1" if title == "right" else "✗ not all rows sum to 1", 1.5, -0.95) in texts(ax)
        assert ("✓ the future is empty", 1.5, -0.5) in texts(ax)
        assert ax.get_xlim() == pytest.approx((0, 4.2)), "the sums stand within, not in the next table"


def test_a_wrong_cell_is_framed():
    allowed = torch.ones(2, 2).tril().bool()
    leak, blind = torch.tensor([[0.5, 0.5], [0.0, 1.0]]), torch.tensor([[torch.nan, torch.nan], [1.0, 0.0]])
    tables = axes(figures.masked_tables, {"leak": leak, "blind": blind}, allowed)
    framed = [{(int(x), int(y)) for (x, y, *_), (_, hatch) in cells(ax).items() if not hatch} for ax in tables]
    assert framed == [{(1, 0), (0, 1)}, {(0, 0), (1, 0), (1, 1)}]
    found = [[words for words, _, y in texts(ax) if y in (-0.95, -0.5)] for ax in tables]
    assert found == [
        ["✓ rows sum to 1", "✗ the future is not empty"], ["✗ not all rows sum to 1", "✗ the future is not empty"]
    ]  # fmt: skip


LINES = {"right": [[3.0, 3.0], [3.2, 3.0]], "wrong": [[2.9, 4.0], [2.9, 4.0]]}
TESTED = {"right": [[2.0, 2.0], [2.5, 2.5]], "wrong": [[2.1, 3.2], [2.2, 3.1]]}


@proven
def test_means_of_seeds_are_beside_how_each_of_them_depends_on_the_batch():
    curve, batch = axes(figures.training_and_batches, LINES, [10, 20], TESTED, [1, 8])
    assert [list(line.get_xdata()) for line in curve.lines] == 2 * [[10, 20]]
    assert [list(line.get_ydata()) for line in curve.lines] == [pytest.approx([3.1, 3.0]), [2.9, 4.0]]
    assert [list(line.get_xdata()) for line in batch.lines] == 4 * [[1, 8]]
    assert [list(line.get_ydata()) for line in batch.lines] == [
        [0, 0], [0, 0], pytest.approx([0, 1.1]), pytest.approx([0, 0.9])
    ]  # fmt: skip
    colours = [line.get_color() for line in curve.lines]
    assert [line.get_color() for line in batch.lines] == [colours[0]] * 2 + [colours[1]] * 2
    assert texts(batch) == [("right", 8, pytest.approx(0.0)), ("wrong", 8, pytest.approx(1.0))]
    assert [text.get_color() for text in batch.texts] == colours
    assert [words for words, *_ in texts(curve)] == ["right", "wrong"]
    assert [text.get_color() for text in curve.texts] == colours
    assert not any(ax.get_legend() for ax in (curve, batch))
    beside = "test loss, minus that in batches of one"
    for ax, *said in ((curve, "training steps", "nats per token", "training loss"),
                      (batch, "texts in a batch", "", beside)):  # fmt: skip
        assert [ax.get_xlabel(), ax.get_ylabel(), ax.get_title()] == said
    assert batch.get_xscale() == "log" and [label.get_text() for label in batch.get_xticklabels()] == ["1", "8"]


def test_the_game_asks_all_entries_and_judgements_count_for_its_score():
    game = review_game(ENTRIES, loss={"i > i": "too good"}, step=2)
    assert [entry["name"] for entry in game.entries] == ["i > i", "Qx beside XQ", "keys and queries"]
    assert game.entries[0]["loss"] == "too good" and "trained no model" in game.entries[1]["loss"]
    assert [name for name, *_ in game.entries[2]["found"]] == ["as printed", "misread", "corrected"]
    assert game.score == (0, 0)
    game.asked, game.judged = ["limiting case", "loss", ""], ["definite", "", ""]
    assert game.score == (1, 1), "what was asked has no score"
    game.judged = ["definite", "overclaim", ""]
    assert game.score == (1, 2)


def test_a_line_that_was_played_comes_first_and_its_picture_tells():
    game = review_game(ENTRIES, step=2, played={"keys and queries": ("trusted", "definite")})
    assert [entry["name"] for entry in game.entries] == ["keys and queries", "i > i", "Qx beside XQ"]
    assert game.score == (0, 1)
    drawn, words = game.still()
    assert "Judged: definite. The list says: no error" in words
    assert [text.get_text() for text in drawn.axes[0].texts].count("●") == 1
    game.at = 1
    assert game.entries[1]["right"] not in game.still()[1]
    with pytest.raises(ValueError, match="played: got typo"):
        review_game(ENTRIES, played={"typo": ("loss", "definite")})


def test_the_still_picture_of_the_game_gives_no_answer_away():
    game = review_game(ENTRIES[1:])
    drawn, words = game.still()
    said = words + " ".join(text.get_text() for text in drawn.axes[0].texts)
    entry = game.entries[0] | {"name": "wasteful"}
    assert entry["claim"] in words and entry["right"] not in said and entry["name"] not in said
    assert all(question in words for question in QUESTIONS.values())


def test_the_game_refuses_what_it_does_not_offer():
    game = review_game(ENTRIES)
    with pytest.raises(ValueError, match="asked: got"):
        game.asked = ["staring", "", ""]
    with pytest.raises(ValueError, match="judged: got"):
        game.judged = ["definite"]
    with pytest.raises(ValueError, match="at: got 3, expected an entry from 0 to 2"):
        game.at = 3
    with pytest.raises(ValueError, match="errata: got none"):
        review_game([])


@proven
def test_a_test_that_catches_a_fault_is_dark_and_marked_in_its_row():
    rows = {"no mask": {"one": (True, "0.3"), "two": (False, "")}, "no scale": {"one": (False, ""), "two": (True, "")},
            "none": {"one": (False, ""), "two": (False, "")}}  # fmt: skip
    (ax,) = axes(figures.caught_table, rows)
    assert ax.yaxis_inverted()
    dark = {place for place, (colour, _) in cells(ax).items() if colour != "#ffffff"}
    assert dark == {(0, 0, 1, 1), (1, 1, 1, 1)} and len(cells(ax)) == 6
    at = {(x, y): words for words, x, y in texts(ax)}
    assert [at[-0.1, y] for y in (0.5, 1.5, 2.5)] == ["no mask", "no scale", "none"]
    assert [at[x, -0.25] for x in (-0.1, 0.5, 1.5)] == ["mutant", "one", "two"]
    assert [[at[x, y] for x in (0.5, 1.5)] for y in (0.5, 1.5, 2.5)] == [["● 0.3", ""], ["", "●"], ["", ""]]
    assert [at[x, 3.5] for x in (-0.1, 0.5, 1.5)] == ["kills, of 3", "1", "1"]
    assert [(list(line.get_xdata()), list(line.get_ydata())) for line in ax.lines] == [([1, 1], [-1.3, 3])]


def test_a_fault_without_numbers_is_grey_where_it_is_caught():
    rows = {"a": {"one": (True, "NaN"), "two": (True, ""), "three": (False, "")},
            "b": {"one": (True, "0.3"), "two": (False, ""), "three": (False, "")}}  # fmt: skip
    (ax,) = axes(figures.caught_table, rows, broken={"a"})
    colours = {place[:2]: colour for place, (colour, _) in cells(ax).items()}
    grey, orange = colours[0, 0], colours[0, 1]
    assert colours[1, 0] == grey != orange and orange != "#ffffff"
    assert {colours[place] for place in ((2, 0), (1, 1), (2, 1))} == {"#ffffff"}


def test_groups_of_faults_have_their_names_beside_them_and_a_line_above():
    rows = {name: {"one": (False, ""), "two": (True, "")} for name in "abc"}
    (ax,) = axes(figures.caught_table, rows, {"norm": 2, "model": 1})
    assert [(words, y) for words, x, y in texts(ax) if x == -3.15] == [("norm", 1), ("model", 2.5)]
    assert [list(line.get_ydata()) for line in ax.lines[1:]] == [[0, 0], [2, 2]]


@proven
def test_what_may_change_is_hatched_and_what_must_be_equal_is_not():
    (ax,) = axes(figures.two_relations)
    small = {(x, y): hatch for (x, y, width, _), (_, hatch) in cells(ax).items() if width == pytest.approx(0.6)}
    seen = texts(ax)
    at = {round(x, 2): {} for _, x, _ in seen}
    for words, x, y in seen:
        at[round(x, 2)][round(y, 2)] = words
    rows = {(x, y): "".join(at[round(x + 0.62 * i, 2)][y] for i in range(5)) for x, y in
            ((0.3, 0), (0.3, -3), (9.6, 0), (9.6, -2.65), (9.6, -3.35))}  # fmt: skip
    assert list(rows.values()) == ["abcde", "abcxy", "abcde", "abcde", "vwxyz"]
    hatched = [sum(bool(hatch) for (x, y), hatch in small.items() if x > left and low < y < low + 0.5)
               for left, low in ((5.5, -0.5), (5.5, -3.4), (14.8, -0.5), (14.8, -3.1), (14.8, -3.8))]  # fmt: skip
    assert hatched[1:] == [2, 0, 0, 5] and hatched[0] == 2
    assert [words for words, _, y in seen if words != "=" and y == -1.4] == [
        "equal before the change", "the whole row equal"
    ]  # fmt: skip
    assert [words for words, _, y in seen if y == 1.2] == ["the past stays", "batch invariance"]
    assert boxed(ax).count("model") == 4
    assert [y for words, _, y in seen if words == "="] == 8 * [-1.4], "three of the past, five of a row, at one height"
    assert arrows(ax) == [
        (pytest.approx((left + begin, y)), pytest.approx((left + begin + 0.4, y)))
        for left in (0, 9.3) for y in (0, -3) for begin in (3.3, 5.1)
    ]  # fmt: skip


@proven
def test_right_positions_count_the_tokens_of_a_text_and_faulty_ones_the_texts_of_a_batch():
    (ax,) = axes(figures.position_rows)
    at = {(round(x, 2), round(y, 2)): words for words, x, y in texts(ax)}
    tops = {"text 0": 0.0, "text 1": -1.0, "text 2": -2.0, "text 2, alone": -4.9}
    read = {
        left: {name: [at[round(left + 1.1 * i + 0.52, 2), top] for i in range(5)] for name, top in tops.items()}
        for left in (0.0, 10.2)
    }
    assert read[0.0] == {name: list("01234") for name in tops}, "alone as in the batch"
    assert read[10.2] == {"text 0": 5 * ["0"], "text 1": 5 * ["1"], "text 2": 5 * ["2"], "text 2, alone": 5 * ["0"]}
    halves = (0.0, "repaired: positions count tokens", "="), (10.2, "faulty: positions count texts", "≠")
    for left, title, sign in halves:
        assert at[left, 1.6] == title
        assert [at[round(left - 0.25, 2), top] for top in tops.values()] == list(tops)
        assert [at[round(left + 1.1 * i + 0.52, 2), -3.45] for i in range(5)] == 5 * [sign]
        assert [at[round(left + 1.1 * i + 0.52, 2), 0.75] for i in range(5)] == ["token 0", "1", "2", "3", "4"]
    found = cells(ax)
    assert len(found) == 2 * 4 * 5 and not any(hatch for _, hatch in found.values())
    edges = {place[0] < 9: to_hex(patch.get_edgecolor()) for patch in ax.patches for place in [patch.get_xy()]}
    assert edges[True] != edges[False], "the faulty rows have another colour"


@proven
def test_a_row_of_causal_weights_sums_to_one_and_a_column_mixes_later_tokens():
    weights = torch.tensor([[1.0, 0, 0], [0.25, 0.75, 0], [0.2, 0.3, 0.5]])
    (ax,) = axes(figures.row_or_column, weights, 1)
    frames = {place: hatch for place, (_, hatch) in cells(ax).items() if not hatch}
    assert list(frames) == [pytest.approx((0.05, 1.05, 2.9, 0.9)), pytest.approx((1.05, 0.05, 0.9, 2.9))]
    row, column = [patch for patch in ax.patches if not patch.get_hatch()]
    assert to_hex(row.get_edgecolor()) != to_hex(column.get_edgecolor()) and column.get_linestyle() == "--"
    numbers = {f"{i}": {f"{j}": pytest.approx(weights[i, j].item()) for j in range(3)} for i in range(3)}
    assert table(ax) == numbers
    below = [(i, j) for i in range(3) for j in range(3) if j <= i]
    inside = {(x, y): words for words, x, y in texts(ax) if x < 3 and y < 3}
    assert inside == {(j + 0.5, i + 0.5): f"{weights[i, j]:.2f}" for i, j in below}, "the future has no number"
    said = [(words, x, y) for words, x, y in texts(ax) if x > 3 or y > 3]
    assert said == [
        ("corrected:\ntoken 1 mixes tokens 0, 1\nsum 1.00", 3.25, 1.5),
        ("as printed: token 1 mixes tokens 1, 2; sum 1.05", 1.5, 4.0),
    ]
    assert [text.get_color() for text in ax.texts if text.get_text() in {words for words, *_ in said}] == [
        patch.get_edgecolor() if isinstance(patch.get_edgecolor(), str) else to_hex(patch.get_edgecolor())
        for patch in (row, column)
    ]  # fmt: skip
    (joined,) = ax.lines
    assert list(joined.get_xdata()) == pytest.approx([1.1, 1.1])
    assert list(joined.get_ydata()) == pytest.approx([3, 3.88]), "from the column down to its words"
    assert (ax.get_xlabel(), ax.get_ylabel(), ax.get_xlim()) == ("key", "query", (0, pytest.approx(5.4)))
    ticks = [[label.get_text() for label in labels] for labels in (ax.get_xticklabels(), ax.get_yticklabels())]
    assert ticks == 2 * [["0", "1", "2"]]


@proven
def test_post_norm_blocks_begin_after_the_first_norm_and_end_with_the_last():
    (ax,) = axes(figures.regrouped)
    assert boxed(ax) == [*(2 * ["norm", "attn", "norm", "ff"]), "norm"]
    lines = strokes(ax)
    residuals = [stroke for stroke in lines if len(stroke) == 3]
    starts, pluses = [0.95, 5.15, 9.35, 13.55], [3.1, 7.3, 11.5, 15.7]
    assert residuals == [[(x, 0), (x, 0.95), (end, 0.95)] for x, end in zip(starts, pluses, strict=True)]
    assert [stroke for stroke in lines if len(stroke) == 1] == [[(x, 0)] for x in starts]
    brackets = [stroke for stroke in lines if len(stroke) == 4]
    alone = [brackets.pop(2), brackets.pop()]
    assert [(stroke[0][0], stroke[-1][0], stroke[0][1] > 0) for stroke in alone] == [
        (pytest.approx(16.0), pytest.approx(17.5), True), (-0.8, 0.7, False)
    ]  # fmt: skip
    assert [(stroke[0][0], pytest.approx(stroke[-1][0]), stroke[0][1] > 0) for stroke in brackets] == [
        (-0.8, 7.48, True), (7.6, 15.88, True), (0.8, 9.08, False), (9.2, 17.48, False)
    ]  # fmt: skip
    assert all(abs(stroke[1][1]) > abs(stroke[0][1]) and stroke[1][1] == stroke[2][1] for stroke in brackets)
    norms = [0, 4.2, 8.4, 12.6, 16.8]
    for left, right, above in [(stroke[0][0], stroke[-1][0], stroke[0][1] > 0) for stroke in brackets]:
        assert sum(left < x < right for x in norms) == 2 and sum(left < x < right for x in pluses) == 2
        assert [left < x < right for x in starts] == [left < x < right for x in pluses], "its residual paths, whole"
        assert (min(x for x in norms if x > left) < min(x for x in pluses if x > left)) == above
    at = {words: (x, y) for words, x, y in texts(ax)}
    for k, (upper, lower) in enumerate(zip(brackets[:2], brackets[2:], strict=True), start=1):
        for name, stroke in ((f"printed block {k}", upper), (f"post-norm block {k}", lower)):
            x, y = at[name]
            assert x == pytest.approx((stroke[0][0] + stroke[-1][0]) / 2) and abs(y) > abs(stroke[1][1])
            assert y * stroke[1][1] > 0
    assert at["final norm"] == pytest.approx((16.75, 1.95)) and at["first norm"] == pytest.approx((-0.05, -1.5))
    assert at["embed-\ndings"] == (-1.7, 0) and at["logits"] == (19.4, 0)
    assert [x for words, x, _ in texts(ax) if words == "+"] == pytest.approx(pluses)
    along = [(start[0], end[0]) for start, end in arrows(ax) if start[1] == end[1]]
    down = [(start, end) for start, end in arrows(ax) if start[0] == end[0]]
    assert len(along) == 1 + 4 * 3 + 1 and all(start < end for start, end in along)
    assert [start[0] for start, _ in down] == pytest.approx(pluses) and all(a[1] > b[1] for a, b in down)
    first, second = (next(text.get_color() for text in ax.texts if text.get_text() == name)
                     for name in ("final norm", "first norm"))  # fmt: skip
    colours = [line.get_color() for line in ax.lines if len(line.get_xdata()) == 4]
    assert colours == 3 * [first] + 3 * [second] and first != second


@proven
def test_missed_mutants_are_filled_beyond_their_bars_and_luck_is_grey():
    missed = {"lower": (-0.04, 0.01), "open": (-0.002, 0.003), "higher": (0.003, 0.001)}
    (ax,) = axes(figures.missed_mutants, missed, 0.015)
    points = [line for line in ax.lines if len(line.get_xdata()) == 1]
    assert [(line.get_xdata()[0], line.get_ydata()[0]) for line in points] == [(-0.04, 0), (-0.002, 1), (0.003, 2)]
    assert [line.get_marker() for line in points] == ["<", "o", ">"]
    assert [line.get_markerfacecolor() == "white" for line in points] == [False, True, False]
    bars = [line for line in ax.lines if len(line.get_xdata()) == 2 and list(line.get_xdata()) != [0, 0]]
    assert [list(line.get_xdata()) for line in bars] == [
        pytest.approx([middle - half, middle + half]) for middle, half in missed.values()
    ]
    assert [list(line.get_ydata()) for line in bars] == [[0, 0], [1, 1], [2, 2]]
    assert [to_hex(line.get_color()) for line in bars] == [to_hex(line.get_color()) for line in points]
    assert len({line.get_color() for line in bars}) == 3
    (zero,) = [line for line in ax.lines if list(line.get_xdata()) == [0, 0]]
    assert list(zero.get_ydata()) == [0, 1]
    (band,) = ax.patches
    assert band.get_bbox().x0 == pytest.approx(-0.015) and band.get_bbox().x1 == pytest.approx(0.015)
    ((words, x, y),) = texts(ax)
    assert "up to 0.015" in words and (x, y) == (0, 1.5)
    assert [label.get_text() for label in ax.get_yticklabels()] == ["lower", "open", "higher"] and ax.yaxis_inverted()
    assert ax.get_xlabel().startswith("nats per token") and ax.get_legend() is None
