"""Pictures of training: they draw what they were given, and the words beside them say it. And byte-pair encoding."""

from statistics import median

import pytest
import torch
from drawn import arrows, axes, boxed, cells, dots, labels, places, plain, sizes, strokes, texts
from matplotlib.colors import to_hex
from proven import proven

from attncourse_lessons import course, results

figures = course.part("training", "figures")
byte_merges = course.part("training", "byte_merges")
digits = course.part("training", "digits")


def test_the_most_frequent_neighbours_are_merged_first_and_a_new_word_is_cut_by_the_merges_in_their_order():
    merges = byte_merges.learn_merges({"undzehn": 1, "und": 3, "hund": 1}, 3)
    assert merges == [(b"u", b"n"), (b"un", b"d"), (b"und", b"z")]
    assert byte_merges.cut_word("grund", merges) == [b"g", b"r", b"und"]
    assert byte_merges.cut_word("grund", merges[:1]) == [b"g", b"r", b"un", b"d"]
    assert b"".join(byte_merges.cut_word("5 €", merges)).decode() == "5 €"


def test_the_worked_step_of_adamw_is_that_of_torch():
    theta = torch.nn.Parameter(torch.ones(1, dtype=torch.float64))
    optimizer = torch.optim.AdamW([theta], lr=0.01, betas=(0.9, 0.98), eps=0, weight_decay=0.1)
    for gradient in (1.0, -0.5, 3.0):
        theta.grad = torch.full_like(theta, gradient)
        optimizer.step()
    numbers = figures.adamw_numbers([1.0, -0.5, 3.0], 0.01, 0.1, (0.9, 0.98))
    kept = optimizer.state[theta]
    assert [numbers[name] for name in ("m", "v", "theta")] == pytest.approx(
        [kept["exp_avg"].item(), kept["exp_avg_sq"].item(), theta.item()]
    )


def test_the_capstone_says_of_the_rates_what_was_measured():
    record = results.measured("capstone_rates")
    page = (course.lesson("a10").folder / "assignment.py").read_text(encoding="utf-8")
    for steps, rates in record["right"].items():
        row = " | ".join(str(median(runs)) for runs in rates.values())
        assert f"# | {steps} steps | {row} |" in page
    longer = record["right"]["350"]
    assert min(min(longer[rate]) for rate in ("0.003", "0.01", "0.03")) >= 0.8 * record["of"]


def test_within_the_capstones_other_rates_a_step_is_scaled_and_afterwards_nothing_is():
    theta = torch.nn.Parameter(torch.zeros(1, dtype=torch.float64))
    optimizer = torch.optim.SGD([theta], lr=0.5)
    theta.grad = torch.ones_like(theta)
    with digits.rates_times(3.0):
        optimizer.step()
    assert theta.item() == pytest.approx(-1.5) and optimizer.param_groups[0]["lr"] == pytest.approx(0.5)
    optimizer.step()
    assert theta.item() == pytest.approx(-2.0)


def test_the_capstones_digits_say_what_the_words_say_and_no_source_comes_twice(capsys):
    data = digits.digit_pairs(train=300, unseen=40)
    sources = [tuple(source) for source, _ in data.training + data.unseen]
    assert (len(data.training), len(data.unseen)) == (300, 40) and len(set(sources)) == 340
    assert len(data.words) + digits.FIRST <= 40, "the model's vocabulary"
    zeros = [target for _, target in data.unseen if any("0" in n and n != "0" for n in digits.signs(target).split(","))]
    digits.print_mistakes(data, [target[:-1] if i == 0 else target for i, (_, target) in enumerate(data.unseen)])
    printed = capsys.readouterr().out
    assert "wrong: 1, of which too short: 1" in printed and 0 < len(zeros) < 40
    of_zeros = len(zeros) - (data.unseen[0][1] in zeros)
    assert f"with such a zero: {of_zeros} of {len(zeros)} right" in printed


@pytest.fixture
def said(monkeypatch):
    """The words of what was shown."""
    words = []
    monkeypatch.setattr("attncourse_lessons.l10_training.figures.show", lambda drawn, alt: words.append(alt))
    return words


def test_the_pieces_of_each_word_are_named_and_counted():
    _, words = figures.pieces_frame({"undzehn": ["und", "ze", "hn"], "ab": ["ab"]}, "after 3 merges")
    assert words == "after 3 merges. Words cut into pieces. undzehn: und | ze | hn (3); ab: ab (1)."


def test_padding_is_counted_as_a_share_of_the_rectangles(said):
    figures.padded_batches({"one": [[2, 4], [3, 3]], "other": [[5]]})
    assert "one: 14% of the rectangles is padding; they are 2 × 4, 2 × 3" in said[0]
    assert "other: 0% of the rectangles is padding" in said[0]


def test_of_each_schedule_the_peak_and_the_half_of_it_are_named(said):
    figures.learning_rates({"up and down": [0.1, 0.3, 0.2, 0.15, 0.1]}, 2)
    assert said == ["Learning rate against the step. up and down is highest at step 2, 0.3, down to half of it at step "
                    "4, and ends at 0.1."]  # fmt: skip


def test_the_step_says_what_is_kept_and_for_how_long(said):
    figures.training_step()
    assert "Kept for the whole run: weights and the averages m, v. Kept within one step: activations" in said[0]


def test_the_best_rate_is_that_of_the_lowest_median_and_not_of_the_luckiest_run(said):
    figures.rate_sweep({1e-3: [2.0, 0.1, 2.2], 1e-2: [1.0, 1.1, 1.2]})
    assert said == ["Held-out loss against the learning rate, a point for each seed. 0.001: 2.00, 0.10, 2.20; "
                    "0.01: 1.00, 1.10, 1.20. Lowest median at 0.01."]  # fmt: skip


def test_rates_whose_medians_are_equal_as_written_are_both_named(said):
    figures.rate_sweep({1e-3: [2.0, 2.1, 2.2], 1e-2: [1.0, 1.842, 1.9], 3e-2: [1.7, 1.838, 1.9]})
    assert said[0].endswith("Lowest median at 0.01 and 0.03.")


def test_a_gpu_that_is_faster_than_the_launches_waits(said):
    figures.launches({"slow": 20, "fast": 2}, launch=5, n=3)
    busy = "in the long run the GPU is busy"
    assert said == [
        "When the CPU launches kernels and when the GPU runs them. "
        f"slow: the last of 3 is launched at 15 µs and done at 65 µs; {busy} 100% of the time. "
        f"fast: the last of 3 is launched at 15 µs and done at 17 µs; {busy} 40% of the time."
    ]


def test_the_share_of_the_peak_that_work_can_reach_is_said_for_each_chip(said):
    figures.roofline({"one": (100.0, 10.0), "two": (1000.0, 20.0)}, {"thin": (10.0, 5.0), "wide": (400.0, 20.0)})
    assert said == ["Rooflines from data sheets. one rises to 100 FLOP/s at 10 FLOPs per byte; two rises to 1e+03 "
                    "FLOP/s at 50 FLOPs per byte. Work, by FLOPs per byte: thin at 2 (one 20% of the peak, two 4% of "
                    "the peak); wide at 20 (one 100% of the peak, two 40% of the peak)."]  # fmt: skip


def test_every_part_of_the_memory_is_said_and_what_there_is(said):
    parts = {"state": 1e9, "activations": 2e9}
    figures.memory_bars({"small": parts, "same": parts}, {"T4": 16e9}, {"same": 3.5e9})
    assert said == ["Memory of a training step. small: state 1.00 GB, activations 2.00 GB; same: state 1.00 GB, "
                    "activations 2.00 GB, measured 3.5 GB. T4 has 16 GB."]  # fmt: skip


def test_of_each_step_the_milliseconds_are_said_and_how_long_the_gpu_is_busy(said):
    figures.step_times({"alone": (30.0, 10.0), "run": (76.6, None)})
    assert said == ["Milliseconds of a training step. alone: 30.0, GPU busy 10.0; run: 76.6."]


def test_of_a_run_every_look_is_said_and_the_predicted_end(said):
    figures.run_curve([20.0, 40.0], [6.0, 2.0], 5)
    assert said == ["A run's loss against its seconds: 6.0 at 20 s, 2.0 at 40 s. The end was predicted at 5 s."]


def test_of_each_class_its_share_is_said(said):
    figures.class_shares({"FLOPs": {"products": 3.0, "rest": 1.0}, "bytes": {"products": 1.0, "rest": 3.0}})
    assert said == ["Shares of a training step by class of operations. FLOPs: products 75.0%, rest 25.0%; "
                    "bytes: products 25.0%, rest 75.0%."]  # fmt: skip


def test_the_bits_of_each_format_are_said_and_what_they_buy(said):
    figures.number_formats({"TF32": (8, 10, 13), "fp16": (5, 10, 0)})
    assert said == ["Number formats, a box for each bit, one of them the sign. TF32: exponent 8, fraction 10, not used "
                    "13; from 1.1e-41 to 3.4e+38, 3.3 decimal digits. fp16: exponent 5, fraction 10; from 6.0e-08 to "
                    "6.6e+04, 3.3 decimal digits."]  # fmt: skip


def test_what_each_gpu_holds_is_said(said):
    figures.data_parallel()
    assert "With DDP each holds all weights" in said[0] and "With FSDP each holds half of each" in said[0]


# What is drawn


@proven
def test_pieces_stand_in_their_order_in_boxes_as_long_as_they_are():
    (ax,) = axes(figures.pieces_frame, {"undzehn": ["und", "ze", "hn"], "ab": ["ab"]}, "after 3 merges")
    rows = {y: [words for words, _, at in sorted(texts(ax), key=lambda text: text[1]) if round(at) == y]
            for y in (1, 0, -1)}  # fmt: skip
    assert rows == {1: ["after 3 merges", "tokens"], 0: ["und", "ze", "hn", "3"], -1: ["ab", "1"]}
    assert boxed(ax) == ["und", "ze", "hn", "ab"]
    wide = {words: width for words, x, y in texts(ax) for (left, low, width, _) in cells(ax)
            if left < x < left + width and low < y < low + 0.6}  # fmt: skip
    assert wide == {"und": 3.1, "ze": 2.1, "hn": 2.1, "ab": 2.1}


@proven
def test_batches_are_filled_as_far_as_their_tokens_go_and_hatched_beyond():
    one, other = axes(figures.padded_batches, {"one": [[2, 4], [3, 3]], "other": [[5, 1]]})
    assert (one.get_title(), other.get_title()) == ("one\n14% padding", "other\n40% padding")
    assert filled(one) == {0: (2, 4), 1: (4, 4), 4: (3, 3), 5: (3, 3)}
    assert filled(other) == {0: (5, 5), 1: (1, 5)}
    assert outlines(one) == [(0, 0, 4, 2), (0, 4, 3, 2)] and outlines(other) == [(0, 0, 5, 2)]
    assert one.get_xlim() == other.get_xlim() and one.yaxis_inverted()
    key = {text.get_text(): patch.get_hatch() for patch, text in zip(*_key(other), strict=True)}
    assert key == {"tokens": None, "padding": "////"}


def _key(ax):
    legend = ax.get_legend()
    return legend.legend_handles, legend.get_texts()


def filled(ax):
    """{row: (how many tokens, how wide with the padding after them)}."""
    ends = {}
    for (left, row, width, height), (colour, hatch) in cells(ax).items():
        if height == 1:
            assert hatch == ("////" if colour == "#ffffff" else "") and left == (ends.get(row, [0])[0] if hatch else 0)
            ends.setdefault(row, []).append(left + width)
    return {row: tuple(both) for row, both in ends.items()}


def outlines(ax):
    return [place for place in cells(ax) if place[3] != 1]


@proven
def test_the_lowest_point_of_a_smoothed_loss_is_marked_and_a_loss_that_only_falls_has_none():
    losses = {0.0: torch.tensor([3.0, 2.0, 1.0]), 0.1: torch.tensor([3.5, 1.5, 2.5])}
    (ax,) = axes(figures.smoothed_losses, losses, torch.tensor([0.0, 4.0, 8.0]))
    plain, smoothed = [(0, 3), (4, 2), (8, 1)], [(0, 3.5), (4, 1.5), (8, 2.5)]
    assert strokes(ax) == [plain, smoothed, [(4, 1.5)]]
    at = places(ax)
    assert at["ε = 0"] == (8.2, 1) and at["ε = 0.1"] == (8.2, 2.5)
    assert at["lowest at 4.0"] == (4, 1.7) and at["never rises"][1] == 1.12
    colours = {text.get_text(): text.get_color() for text in ax.texts}
    assert [line.get_color() for line in ax.lines[:2]] == [colours["ε = 0"], colours["ε = 0.1"]]


@proven
def test_the_gaps_of_a_seed_are_joined_and_written_in_points():
    gaps = {"few": {"plain": [-0.05, -0.06], "smoothed": [-0.1, -0.13]}, "many": {"plain": [0.02], "smoothed": [-0.2]}}
    few, many = axes(figures.paired_gaps, gaps)
    assert labels(few.yaxis) == {0: "seed 0", 1: "seed 1"} and few.yaxis_inverted()
    assert strokes(few) == [[(-5, 0), (-10, 0)], [(-6, 1), (-13, 1)], [(-5, 0), (-6, 1)], [(-10, 0), (-13, 1)],
                            [(0, 0), (0, 1)]]  # fmt: skip
    assert strokes(many) == [[(2, 0), (-20, 0)], [(2, 0)], [(-20, 0)], [(0, 0), (0, 1)]]
    sides = [("← underconfident", -0.4, -0.72), ("overconfident →", 0.4, -0.72)]
    assert texts(few) == [("plain", -5, -0.16), ("−5.0", -5, 0.18), ("−6.0", -6, 1.18), ("smoothed", -10, -0.16),
                          ("−10.0", -10, 0.18), ("−13.0", -13, 1.18), *sides]  # fmt: skip
    assert texts(many) == [("plain", 2, -0.16), ("2.0", 2, 0.18), ("smoothed", -20, -0.16), ("−20.0", -20, 0.18),
                           *sides]  # fmt: skip
    assert [ax.get_title() for ax in (few, many)] == ["few", "many"]
    assert few.get_xlim() == many.get_xlim() == (-24, 6), "one scale for both"


def test_the_number_of_a_gap_near_zero_stands_beside_the_line_at_zero():
    (ax,) = axes(figures.paired_gaps, {"one": {"plain": [-0.003, 0.05]}})
    beside = {text.get_text(): (text.get_position()[0], text.get_ha()) for text in ax.texts}
    assert beside["−0.3"] == (0.5, "left") and beside["5.0"] == (5, "center")


@proven
def test_learning_rates_are_drawn_from_the_first_step_on_with_their_peaks_and_halves_marked():
    (ax,) = axes(figures.learning_rates, {"up and down": [0.1, 0.3, 0.2, 0.15], "down": [0.4, 0.25, 0.1]}, 2)
    assert strokes(ax) == [[(1, 0.1), (2, 0.3), (3, 0.2), (4, 0.15)], [(2, 0.3), (4, 0.15)],
                           [(1, 0.4), (2, 0.25), (3, 0.1)], [(1, 0.4), (3, 0.1)]]  # fmt: skip
    at = places(ax)
    (left, high), (right, low) = at["half the peak\nat step 4"], at["half the peak\nat step 3"]
    assert 3.9 < left < 4 and 3 < right < 3.1 and (high, low) == (0.15, 0.1), "beside their points"
    assert at["up and down"][1] == 0.15 and at["down"][1] == 0.1 and at["warm-up"][0] < 2
    assert [*cells(ax)] == [(0, 0, 2, 1)], "the warm-up is shaded"


def test_a_late_half_is_rounded_to_hundreds():
    falling = [1 - step / 4401 for step in range(4401)]
    assert "half the peak\nat step 2,200" in places(axes(figures.learning_rates, {"down": falling}, 2)[0])


@proven
def test_a_step_of_adamw_is_drawn_with_its_numbers_from_the_gradient_to_the_parameter():
    numbers = figures.adamw_numbers([1.0, -0.5], 0.01, 0.1, (0.9, 0.98))
    (ax,) = axes(figures.adamw_step, numbers, 0.01, 0.1)
    gradient, m, v = "gradient g\n−0.5", "m: 0.1 → 0.04", "v: 0.02 → 0.0246"
    m_hat, root, ratio = "m corrected\n0.2105", "√(v corrected)\n0.7882", "ratio\n0.2671"
    theta, decayed, new = "θ\n0.989", "decay λθ\n0.0989", "new θ\n0.9853"
    assert boxed(ax) == [gradient, m, v, m_hat, root, ratio, theta, decayed, new]
    boxes = {name: place for name, place in places(ax).items() if name in boxed(ax)}
    *straight, (corner, end) = arrows(ax)
    assert {(box_at(boxes, start), box_at(boxes, end)) for start, end in straight} == {
        (gradient, m), (gradient, v), (m, m_hat), (v, root), (m_hat, ratio), (root, ratio), (ratio, new),
        (theta, decayed), (decayed, new),
    }  # fmt: skip
    ((begin, bend),) = strokes(ax)
    assert bend == corner and box_at(boxes, begin) == theta and box_at(boxes, end) == new, "θ itself, round a corner"
    at = places(ax)
    of_m, of_v = "average of g: 0.9 · 0.1 + 0.1 · (−0.5)", "average of g²: 0.98 · 0.02 + 0.02 · (−0.5)²"
    assert at["÷ 0.19"][1] > at["÷ 0.0396"][1] and at[of_m][1] > at[of_v][1]
    assert at["upper ÷ lower"][0] == 9.2 and at["× λ = 0.1, not averaged, not divided"][1] < -1.5
    assert at["θ − 0.01 × (ratio + decay)"][0] == 12


@proven
def test_a_training_step_goes_round_from_the_weights_to_the_weights():
    (ax,) = axes(figures.training_step)
    at = {name: place for name, place in places(ax).items() if name in figures.STEP}
    assert {(box_at(at, start), box_at(at, end)) for start, end in arrows(ax)} == {
        ("batch", "forward"), ("forward", "loss"), ("loss", "backward"), ("clip", "AdamW"), ("AdamW", "weights"),
        ("weights", "forward"), ("weights", "backward"), ("forward", "activations"), ("activations", "backward"),
        ("backward", "gradient"), ("gradient", "clip"), ("averages\nm, v", "AdamW"),
    }  # fmt: skip
    assert sorted(at, key=lambda name: (at[name][1], at[name][0])) == [
        "activations", "gradient", "batch", "forward", "loss", "backward", "clip", "AdamW", "weights", "averages\nm, v",
    ]  # fmt: skip
    for name, (x, y) in at.items():
        assert [tuple(plain(box)) for box in boxes_around(ax, x, y)] == [(plain(x - 0.8), 1.6)], name
    lanes = {low + height / 2 for (_, low, width, height) in cells(ax) if width == 13.4}
    words = {words: y for words, _, y in texts(ax) if words.startswith("kept")}
    assert lanes == {2, -2} and words == {"kept for\nthe whole run": 2, "kept within\none step": -2}
    assert all(left == -0.95 for (left, _, width, _) in cells(ax) if width == 13.4)
    key = {colour: left for (left, _, width, _), (colour, _) in cells(ax).items() if width == 0.4}
    words = places(ax, "in 16 bits under autocast (activations in part)", "in 32 bits")
    assert list(key) == ["#d55e00", "#0072b2"]
    assert [round(x - left, 6) for left, (x, _) in zip(key.values(), words.values(), strict=True)] == [0.6, 0.6]


def boxes_around(ax, x, y):
    """(left, width) of the boxes, one unit high, that a place is in."""
    return [(left, width) for left, low, width, height in cells(ax)
            if height == 1 and left < x < left + width and low < y < low + height]  # fmt: skip


def box_at(at, end):
    """The box whose middle is nearest to an arrow's end, seen from the side or from above."""
    return min(at, key=lambda name: abs(at[name][0] - end[0]) / 0.8 + abs(at[name][1] - end[1]) / 0.5)


@proven
def test_a_sweep_draws_each_run_and_joins_the_medians():
    (ax,) = axes(figures.rate_sweep, {1e-3: [2.0, 2.5, 2.2], 1e-2: [1.0, 1.3, 1.2], 1e-1: [3.0, 4.0, 3.1]})
    runs = {0.001: [2.0, 2.5, 2.2], 0.01: [1.0, 1.3, 1.2], 0.1: [3.0, 4.0, 3.1]}
    seen = dots(ax)
    assert [loss for _, loss in seen] == [loss for losses in runs.values() for loss in losses]
    beside = [rate * factor for rate in runs for factor in (1 / 1.07, 1, 1.07)]
    assert [rate for rate, _ in seen] == pytest.approx(beside, rel=1e-4)
    assert strokes(ax) == [[(0.001, 2.2), (0.01, 1.2), (0.1, 3.1)]]
    assert [(words, x) for words, x, _ in texts(ax)] == [
        ("2.20", 0.001), ("1.20", 0.01), ("3.10", 0.1),
        ("too slow: it has learned too little", 0.00125), ("too fast: it overshoots", 0.13),
    ]  # fmt: skip
    height = {words: y for words, _, y in texts(ax)}
    assert height["too slow: it has learned too little"] == 2.2 and height["too fast: it overshoots"] > height["3.10"]
    assert labels(ax.xaxis) == {0.001: "0.001", 0.01: "0.01", 0.1: "0.1"} and ax.get_xscale() == "log"


@proven
def test_a_kernel_starts_when_it_is_launched_and_the_one_before_it_is_done():
    slow, fast = axes(figures.launches, {"slow": 20, "fast": 2}, launch=5, n=3)
    busy = "in the long run the GPU is busy"
    titles = [ax.get_title(loc="left") for ax in (slow, fast)]
    assert titles == [f"slow: {busy} 100% of the time", f"fast: {busy} 40% of the time"]
    assert spans(slow) == {"CPU launches": [(0, 5), (5, 10), (10, 15)],
                           "GPU runs kernels": [(5, 25), (25, 45), (45, 65)]}  # fmt: skip
    assert spans(fast) == {"CPU launches": [(0, 5), (5, 10), (10, 15)],
                           "GPU runs kernels": [(5, 7), (10, 12), (15, 17)]}  # fmt: skip
    assert colours(slow) == colours(fast) == {"CPU launches": {"#d55e00"}, "GPU runs kernels": {"#0072b2"}}
    assert strokes(slow) == [[(5, 1), (5, 0.7)], [(10, 1), (25, 0.7)], [(15, 1), (45, 0.7)]]
    assert strokes(fast) == [[(5, 1), (5, 0.7)], [(10, 1), (10, 0.7)], [(15, 1), (15, 0.7)]]
    assert texts(slow)[:3] == [("1", 2.5, 1.35), ("1", 15, 0.35), ("2", 7.5, 1.35)]
    assert texts(slow)[-1] == (" 60 µs of work, done after 65 µs", 65, 0.35)
    assert texts(fast)[-1] == (" 6 µs of work, done after 17 µs", 17, 0.35)


def lane(ax, low, height):
    middle = low + height / 2
    (name,) = [name for y, name in labels(ax.yaxis).items() if abs(y - middle) < 0.1]
    return name


def spans(ax):
    """{lane: (from, to) of each bar in it}."""
    found = {}
    for left, low, width, height in cells(ax):
        found.setdefault(lane(ax, low, height), []).append((left, left + width))
    return {name: sorted(each) for name, each in found.items()}


def colours(ax):
    found = {}
    for (_, low, _, height), (colour, _) in cells(ax).items():
        found.setdefault(lane(ax, low, height), set()).add(colour)
    return found


@proven
def test_a_format_has_a_box_for_each_bit_and_beside_them_what_they_buy():
    (ax,) = axes(figures.number_formats, {"wide": (8, 23, 0), "short": (5, 10, 2)})
    found = {}
    for (left, low, width, height), (colour, _) in cells(ax).items():
        found.setdefault(round(-low - height / 2), []).append((round(left + width / 2 - 0.5, 3), colour))
    grey, orange, blue, white = "#6b6b6b", "#d55e00", "#0072b2", "#ffffff"
    wide = [grey, *[orange] * 8, *[blue] * 23]
    short = [grey, *[orange] * 5, *[blue] * 10, *[white] * 2]
    assert {row: [colour for _, colour in bits] for row, bits in found.items()} == {0: wide, 1: short}
    assert {row: [x for x, _ in bits] for row, bits in found.items()} == {0: [*range(32)], 1: [*range(18)]}
    rows = {row: [(words, x) for words, x, y in texts(ax) if y == -row] for row in (0, 1)}
    assert rows[0][:4] == [("wide", -0.6), ("S", 0.5), ("8", 5), ("23", 20.5)]
    assert rows[1][:5] == [("short", -0.6), ("S", 0.5), ("5", 3.5), ("10", 11), ("not used", 17)]
    (smallest, near), (largest, x), (digits, further) = rows[0][4:]
    assert (smallest, largest, digits) == (r"$1.4 \cdot 10^{-45}$", r"$3.4 \cdot 10^{38}$", "7.2")
    assert rows[1][5:] == [(r"$6.0 \cdot 10^{-8}$", near), ("65,504", x), ("3.3", further)]
    float16 = torch.finfo(torch.float16)
    assert float16.smallest_normal * float16.eps == pytest.approx(6.0e-8, abs=0.05e-8) and float16.max == 65_504
    heads = {words: x for words, x, y in texts(ax) if y == 0.85}
    assert heads == {"smallest": near, "largest": x,
                     "decimal digits": further, "exponent: range": 5, "fraction: digits": 20.5}


@proven
def test_a_roof_rises_with_the_bandwidth_to_the_peak_and_work_lies_on_it():
    work = {"thin": (10.0, 5.0), "wide": (400.0, 20.0)}
    (ax,) = axes(figures.roofline, {"one": (100.0, 10.0), "two": (1000.0, 20.0)}, work)
    one, two, thin, wide = strokes(ax)
    assert one == [(0.0625, 0.625), (10, 100), (750, 100)] and two == [(0.0625, 1.25), (50, 1000), (750, 1000)]
    assert dots(ax) == [(2.0, 20.0), (20.0, 100.0), (2.0, 40.0), (20.0, 400.0)]
    assert sizes(ax) == [18, 44], "larger on the chip in question"
    floor = ax.get_ylim()[0]
    assert thin == [(2, floor), (2, 40)] and wide == [(20, floor), (20, 400)], "up to the chip in question"
    at = places(ax)
    assert 1.8 < at["thin: 4%"][0] < 2 and 40 < at["thin: 4%"][1] < 80, "above its slope"
    assert 18 < at["wide: 40% of the two's peak"][0] < 20 and 400 < at["wide: 40% of the two's peak"][1] < 800
    assert at["one"] == (862.5, 100) and at["two"] == (862.5, 1000), "each chip is named at its roof"
    assert at["memory-bound"][0] < 50 < at["compute-bound"][0], "on their sides of its corner"
    assert [(left, width) for left, _, width, _ in cells(ax)] == [(0.0625, 49.9375), (50, 700)]
    assert [colour for colour, _ in cells(ax).values()] == ["#f0f6fa", "#fcf2eb"]
    assert ax.get_xscale() == ax.get_yscale() == "log" and ax.get_ylim()[1] > at["memory-bound"][1] > 1000
    widths = [line.get_linewidth() for line in ax.lines[:2]]
    assert widths[1] > 2 * widths[0] and [line.get_linestyle() for line in ax.lines[:2]] == ["--", "-"]


def test_names_of_work_of_one_intensity_stand_above_each_other_on_the_roofline():
    (ax,) = axes(figures.roofline, {"one": (100.0, 10.0)}, {"thin": (10.0, 5.0), "as thin": (20.0, 10.0)})
    at = {words: place for words, place in places(ax).items() if "thin" in words}
    (x, low), (same, high) = at.values()
    assert x == same and high >= 2 * low


@proven
def test_memory_is_stacked_beside_what_there_is_with_its_parts_in_numbers_at_its_end():
    held = {"small": {"state": 1e9, "activations": 2e9}, "large": {"state": 3e9, "activations": 30e9}}
    held |= {"thin": {"state": 1e7, "activations": 5e9}}
    (ax,) = axes(figures.memory_bars, held, {"T4": 16e9}, {"thin": 7e9})
    lengths = [[bar.get_width() for bar in container] for container in ax.containers]
    starts = [[bar.get_x() for bar in container] for container in ax.containers]
    assert lengths == [[1, 3, 0.01], [2, 30, 5]] and starts == [[0, 0, 0], [1, 3, 0.01]]
    assert labels(ax.yaxis) == {0: "small", 1: "large", 2: "thin"} and ax.yaxis_inverted()
    assert strokes(ax) == [[(16, 0), (16, 1)], [(7, 2)]] and places(ax)["T4: 16 GB"][0] == 16
    at, end = places(ax), ax.get_xlim()[1]
    written = {"1.0 + 2.0 GB": (3, 0), "3.0 + 30.0 GB": (33, 1), "measured 7.0 GB": (7, 1.99),
               "predicted 0.01 + 5.0 GB": (7, 2.36)}  # fmt: skip
    for words, (last, row) in written.items():
        assert last < at[words][0] < last + 0.02 * end and at[words][1] == row
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["state", "activations"]


def test_a_bar_whose_words_would_meet_a_line_has_them_inside():
    held = {"met": {"state": 3e9, "activations": 9e9}, "beyond": {"state": 1e9, "activations": 29e9}}
    (ax,) = axes(figures.memory_bars, held, {"T4": 16e9}, {})
    sides = {text.get_text(): (text.get_ha(), text.get_position()[0]) for text in ax.texts}
    (side, x), (other, further) = sides["3.0 + 9.0 GB"], sides["1.0 + 29.0 GB"]
    assert side == "right" and 11 < x < 12 and other == "left" and further > 30


@proven
def test_a_step_is_divided_where_the_busy_time_is_known_and_its_parts_are_named():
    rows = {"predicted": (3.0, 2.5), "alone": (30.0, 10.0), "run": (50.0, None), "next": (12.0, 12.0)}
    (ax,) = axes(figures.step_times, rows, ("predicted", "next"))
    bars = [(round(bar.get_y() + bar.get_height() / 2), bar.get_x(), bar.get_width())
            for each in ax.containers for bar in each]  # fmt: skip
    assert bars == [(0, 0, 3), (1, 0, 30), (1, 0, 10), (2, 0, 50), (3, 0, 12)]
    outlined = [bar.get_linestyle() == "--" for each in ax.containers for bar in each]
    assert outlined == [True, False, False, False, True], "forecasts alone"
    colours = [to_hex(bar.get_facecolor()) for each in ax.containers for bar in each]
    assert len({*colours}) == 3 and colours[0] == colours[4] == "#ffffff" and colours[1] == colours[3] != colours[2]
    assert labels(ax.yaxis) == {0: "predicted", 1: "alone", 2: "run", 3: "next"} and ax.yaxis_inverted()
    at = {words: (x, y) for words, x, y in texts(ax)}
    assert (at["GPU busy: 10"], at["GPU waits"], at["busy time not measured"]) == ((5, 1), (20, 1), (25, 2))
    assert [at[words][1] for words in ("3.0 ms (GPU busy: 2.5)", "30 ms", "50 ms", "12 ms")] == [0, 1, 2, 3]
    assert 3 < at["3.0 ms (GPU busy: 2.5)"][0] < 4 and 30 < at["30 ms"][0] < 31 and 50 < at["50 ms"][0] < 51


@proven
def test_a_run_is_drawn_against_its_seconds_between_its_predicted_end_and_its_end():
    (ax,) = axes(figures.run_curve, [20.0, 40.0, 50.0], [6.0, 3.0, 2.0], 5)
    assert strokes(ax) == [[(20, 6), (40, 3), (50, 2)], [(5, 0), (5, 1)], [(50, 0), (50, 1)]]
    assert [(words, x) for words, x, _ in texts(ax)] == [
        ("6.0", 20), ("3.0", 40), ("2.0", 49.5), ("predicted end: 5 s", 5), ("measured end: 50 s", 50),
        ("45 s longer", 27.5)]  # fmt: skip
    at = places(ax)
    assert all(0 < at[words][1] - loss < 0.5 for words, loss in (("6.0", 6), ("3.0", 3), ("2.0", 2))), "over its point"
    assert [(left, width) for left, _, width, _ in cells(ax)] == [(5, 45)], "what the prediction left out"
    ((start, end),) = arrows(ax)
    assert (start[0], end[0]) == (5, 50) and start[1] == end[1] < at["45 s longer"][1]
    assert [line.get_linestyle() for line in ax.lines[1:]] == ["--", "-"]
    assert ax.get_ylabel() == "validation loss\n(nats per token)"


@proven
def test_classes_of_operations_have_a_bar_for_each_share():
    flops = {"products": 996.0, "norms": 1.0, "rest": 3.0}
    panels = axes(figures.class_shares, {"FLOPs": flops, "bytes": {"products": 3.0, "norms": 1.0, "rest": 4.0}})
    assert [ax.get_title(loc="left") for ax in panels] == ["FLOPs", "bytes"]
    widths = [[bar.get_width() for each in ax.containers for bar in each] for ax in panels]
    assert widths[0] == pytest.approx([99.6, 0.1, 0.3]) and widths[1] == pytest.approx([37.5, 12.5, 50])
    for ax, words in zip(panels, (["100%", "< 1%", "< 1%"], ["38%", "12%", "50%"]), strict=True):
        bars = [bar for each in ax.containers for bar in each]
        assert [bar.get_x() for bar in bars] == [0] * 3 and ax.yaxis_inverted() and ax.get_xlim() == (0, 128)
        assert [bar.get_y() + bar.get_height() / 2 for bar in bars] == pytest.approx([0, 1, 2])
        assert [(said, y) for said, _, y in texts(ax)] == [*zip(words, (0, 1, 2), strict=True)]
        assert [x for _, x, _ in texts(ax)] == pytest.approx([bar.get_width() + 2 for bar in bars])
    assert labels(panels[0].yaxis) == {0: "products", 1: "norms", 2: "rest"}, "once, on the left"


@proven
def test_ddp_holds_everything_twice_and_what_is_sharded_is_held_once():
    ddp, fsdp = axes(figures.data_parallel)
    assert [ax.get_title(loc="left")[:6] for ax in (ddp, fsdp)] == ["DDP (t", "FSDP ("]
    assert held_by(ddp) == {(name, gpu): (0, 2, "all of it") for name in figures.HELD for gpu in (0, 1)}
    assert held_by(fsdp) == {(name, gpu): (gpu, gpu + 1, ("1st half", "2nd half")[gpu])
                             for name in figures.HELD for gpu in (0, 1)}  # fmt: skip
    assert [texts_near(ddp, arrow) for arrow in arrows(ddp)] == ["all-reduce"]
    assert [texts_near(fsdp, arrow) for arrow in arrows(fsdp)] == ["all-gather, block by block", "reduce-scatter"]
    for ax in (ddp, fsdp):
        assert rows_of(ax) == {"batch": 3.05, "weights": 2.15, "gradient": 1.25, "Adam's m, v": 0.35}
        at = places(ax, "GPU 0", "GPU 1", "part 0", "part 1")
        assert [x for x, _ in at.values()] == [1, 1, 5.7, 5.7] and [*at] == ["GPU 0", "part 0", "GPU 1", "part 1"]
        assert all(start == (2.25, y) and end == (4.45, y) for (start, end) in arrows(ax) for y in [start[1]])


def rows_of(ax):
    """{name: height} of the rows."""
    return {words: y for words, x, y in texts(ax) if x == -0.4}


def held_by(ax):
    """{(what, on which GPU): (from, to, what is written there), of the two units that all of it would take}."""
    found = {}
    for (left, low, width, height), (colour, _) in cells(ax).items():
        if height == 0.6 and colour == "#cfe1f2":
            gpu = int(left >= 4)
            (name,) = [name for name, y in rows_of(ax).items() if low < y < low + height]
            (words,) = [words for words, x, y in texts(ax) if low < y < low + height and left < x < left + width]
            found[name, gpu] = (round(left - 4.7 * gpu, 6), round(left + width - 4.7 * gpu, 6), words)
    return found


def texts_near(ax, arrow):
    (start, end) = arrow
    (words,) = [words for words, x, y in texts(ax) if start[0] < x < end[0] and 0 < y - start[1] < 0.5]
    return words
