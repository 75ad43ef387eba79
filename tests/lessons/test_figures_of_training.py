"""Pictures of training: they draw what they were given, and the words beside them say it."""

import pytest
from drawn import arrows, axes, bars, boxed, cells, curves, dots, labels, places, strokes, texts
from proven import proven

from attncourse_lessons import course

figures = course.part("training", "figures")


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


def test_the_peak_of_each_schedule_is_named(said):
    figures.learning_rates({"up and down": [0.1, 0.3, 0.2]})
    assert said == ["Learning rate against the step. up and down is highest at step 2, 0.3, and ends at 0.2."]


def test_the_step_says_what_is_kept_and_for_how_long(said):
    figures.training_step()
    assert "from forward to backward activations; from step to step weights and m, v" in said[0]


def test_the_best_rate_is_that_of_the_lowest_median_and_not_of_the_luckiest_run(said):
    figures.rate_sweep({1e-3: [2.0, 0.1, 2.2], 1e-2: [1.0, 1.1, 1.2]})
    assert said == ["Held-out loss against the learning rate, a point for each seed. 0.001: 2.00, 0.10, 2.20; "
                    "0.01: 1.00, 1.10, 1.20. Lowest median at 0.01."]  # fmt: skip


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
    assert said == ["Rooflines from data sheets. one rises to 100 FLOP/s at 10 FLOPs a byte; two rises to 1e+03 FLOP/s "
                    "at 50 FLOPs a byte. Work, by FLOPs per byte: thin at 2 (one 20% of the peak, two 4% of the peak); "
                    "wide at 20 (one 100% of the peak, two 40% of the peak)."]  # fmt: skip


def test_every_part_of_the_memory_is_said_and_what_there_is(said):
    figures.memory_bars({"small": {"state": 1e9, "activations": 2e9}}, {"T4": 16e9})
    assert said == ["Memory of a training step. small: state 1.00 GB, activations 2.00 GB. T4 has 16 GB."]


def test_what_each_gpu_holds_is_said(said):
    figures.data_parallel()
    assert "With DDP each holds all weights" in said[0] and "With FSDP each holds half of each" in said[0]


# What is drawn


@proven
def test_pieces_stand_in_their_order_in_boxes_as_long_as_they_are():
    (ax,) = axes(figures.pieces_frame, {"undzehn": ["und", "ze", "hn"], "ab": ["ab"]}, "after 3 merges")
    rows = {y: [words for words, _, at in sorted(texts(ax), key=lambda text: text[1]) if round(at) == y]
            for y in (1, 0, -1)}  # fmt: skip
    assert rows == {1: ["after 3 merges"], 0: ["und", "ze", "hn", "3"], -1: ["ab", "1"]}
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
def test_learning_rates_are_drawn_from_the_first_step_on_with_their_peaks_marked():
    (ax,) = axes(figures.learning_rates, {"up and down": [0.1, 0.3, 0.2], "down": [0.4, 0.2, 0.1]})
    assert curves(ax) == {"up and down": {1: 0.1, 2: 0.3, 3: 0.2}, "down": {1: 0.4, 2: 0.2, 3: 0.1}}
    assert strokes(ax)[1::2] == [[(2, 0.3)], [(1, 0.4)]]


@proven
def test_a_training_step_goes_round_from_the_weights_to_the_weights():
    (ax,) = axes(figures.training_step)
    at = {name: place for name, place in places(ax).items() if name in boxed(ax)}
    assert {(box_at(at, start), box_at(at, end)) for start, end in arrows(ax)} == {
        ("batch", "forward"), ("forward", "loss"), ("loss", "backward"), ("backward", "gradient"), ("gradient", "clip"),
        ("clip", "AdamW"), ("AdamW", "weights"), ("weights", "forward"), ("forward", "activations"),
        ("activations", "backward"), ("m, v", "AdamW"),
    }  # fmt: skip
    assert sorted(at, key=lambda name: (at[name][1], at[name][0])) == [
        "activations", "m, v", "batch", "forward", "loss", "backward", "gradient", "clip", "AdamW", "weights",
    ]  # fmt: skip
    key = {colour: left for (left, _, width, _), (colour, _) in cells(ax).items() if width == 0.4}
    words = places(ax, "in 16 bits under autocast (activations in part)", "in 32 bits")
    assert list(key) == ["#d55e00", "#0072b2"]
    assert [round(x - left, 6) for left, (x, _) in zip(key.values(), words.values(), strict=True)] == [0.6, 0.6]


def box_at(at, end):
    """The box whose middle is nearest to an arrow's end, seen from the side or from above."""
    return min(at, key=lambda name: abs(at[name][0] - end[0]) / 0.8 + abs(at[name][1] - end[1]) / 0.5)


@proven
def test_a_sweep_draws_each_run_and_joins_the_medians():
    (ax,) = axes(figures.rate_sweep, {1e-3: [2.0, 2.5, 2.2], 1e-2: [1.0, 1.3, 1.2], 1e-1: [3.0, 4.0, 3.1]})
    runs = {0.001: [2.0, 2.5, 2.2], 0.01: [1.0, 1.3, 1.2], 0.1: [3.0, 4.0, 3.1]}
    assert dots(ax) == [(rate, loss) for rate, losses in runs.items() for loss in losses]
    assert strokes(ax) == [[(0.001, 2.2), (0.01, 1.2), (0.1, 3.1)]]
    assert labels(ax.xaxis) == {0.001: "0.001", 0.01: "0.01", 0.1: "0.1"} and ax.get_xscale() == "log"


@proven
def test_a_kernel_starts_when_it_is_launched_and_the_one_before_it_is_done():
    slow, fast = axes(figures.launches, {"slow": 20, "fast": 2}, launch=5, n=3)
    assert slow.get_title() == "slow\nGPU busy 100%" and fast.get_title() == "fast\nGPU busy 40%"
    assert spans(slow) == {"CPU launches": [(0, 5), (5, 10), (10, 15)],
                           "GPU runs kernels": [(5, 25), (25, 45), (45, 65)]}  # fmt: skip
    assert spans(fast) == {"CPU launches": [(0, 5), (5, 10), (10, 15)],
                           "GPU runs kernels": [(5, 7), (10, 12), (15, 17)]}  # fmt: skip
    assert colours(slow) == colours(fast) == {"CPU launches": {"#d55e00"}, "GPU runs kernels": {"#0072b2"}}


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
def test_a_roof_rises_with_the_bandwidth_to_the_peak_and_work_lies_on_it():
    work = {"thin": (10.0, 5.0), "wide": (400.0, 20.0)}
    (ax,) = axes(figures.roofline, {"one": (100.0, 10.0), "two": (1000.0, 20.0)}, work)
    one, two = (curves(ax)[name] for name in ("one", "two"))
    assert one == {1.0: 10.0, 10.0: 100.0, 500.0: 100.0} and two == {1.0: 20.0, 50.0: 1000.0, 500.0: 1000.0}
    assert dots(ax) == [(2.0, 20.0), (20.0, 100.0), (2.0, 40.0), (20.0, 400.0)]
    assert [stroke[0][0] for stroke in strokes(ax)[2:]] == [2.0, 20.0], "an upright line for each piece of work"
    at = places(ax)
    assert at[" thin"][0] == 2.0 and at[" wide"][0] == 20.0
    assert at["memory-bound ←"][0] < 10 < 50 <= at["→ compute-bound"][0], "on their sides of all corners"
    assert ax.get_xscale() == ax.get_yscale() == "log"


@proven
def test_memory_is_stacked_beside_what_there_is():
    held = {"small": {"state": 1e9, "activations": 2e9}, "large": {"state": 3e9, "activations": 30e9}}
    (ax,) = axes(figures.memory_bars, held, {"T4": 16e9})
    assert bars(ax, stacked=True) == {"state": {"small": 1, "large": 3}, "activations": {"small": 2, "large": 30}}
    starts = [[bar.get_x() for bar in container] for container in ax.containers]
    assert starts == [[0, 0], [1, 3]]
    assert places(ax)[" 3.0 GB"] == (3, 0) and places(ax)[" 33.0 GB"] == (33, 1)
    assert places(ax)[" T4: 16 GB"][0] == 16 and strokes(ax) == [[(16, 0), (16, 1)]]


@proven
def test_ddp_holds_everything_twice_and_fsdp_each_half_once():
    ddp, fsdp = axes(figures.data_parallel)
    assert ddp.get_title() == "DDP: each holds everything" and fsdp.get_title() == "FSDP: each holds a slice"
    assert held_by(ddp) == {(name, gpu): (0, 2) for name in figures.HELD for gpu in (0, 1)}
    assert held_by(fsdp) == {(name, gpu): (gpu, gpu + 1) for name in figures.HELD for gpu in (0, 1)}
    assert [texts_near(ddp, arrow) for arrow in arrows(ddp)] == ["all-reduce"]
    assert [texts_near(fsdp, arrow) for arrow in arrows(fsdp)] == ["all-gather,\nby blocks", "reduce-\nscatter"]
    for ax in (ddp, fsdp):
        names = [words for words, _, _ in sorted(texts(ax), key=lambda text: (text[1], -text[2]))]
        columns = [["GPU 0", "part 0 of the batch", *figures.HELD], ["GPU 1", "part 1 of the batch", *figures.HELD]]
        assert names[:5] == columns[0] and names[-5:] == columns[1]
        assert all(start == (2.25, y) and end == (3.75, y) for (start, end) in arrows(ax) for y in [start[1]])


def held_by(ax):
    """{(what, on which GPU): (from, to), of the two units that all of it would take}."""
    found = {}
    for (left, low, width, height), (colour, _) in cells(ax).items():
        if height == 0.7 and colour == "#cfe1f2":
            gpu = int(left >= 3)
            ((name, _, _),) = [text for text in texts(ax)
                               if low < text[2] < low + height and 4 * gpu < text[1] < 4 * gpu + 2]  # fmt: skip
            found[name, gpu] = (left - 4 * gpu, left - 4 * gpu + width)
    return found


def texts_near(ax, arrow):
    (start, end) = arrow
    (words,) = [words for words, x, y in texts(ax) if start[0] < x < end[0] and 0 < y - start[1] < 0.5]
    return words
