"""Pictures of patches, looks and spans draw what they were given, and say in words what they show."""

import math

import pytest
import torch
from drawn import (
    arrows,
    axes,
    bars,
    boxed,
    cells,
    contours,
    grid,
    grids,
    joined,
    labels,
    places,
    strokes,
    table,
    texts,
    written,
)
from proven import proven

from attncourse_lessons import course

figures = course.part("beyond_text", "figures")


@pytest.fixture
def alt(monkeypatch):
    said = []
    monkeypatch.setattr("attncourse_lessons.l13_beyond_text.figures.show", lambda drawn, words: said.append(words))
    return said


def test_a_picture_that_is_cut_tells_how_many_patches_there_are(alt):
    figures.picture_to_sequence(torch.rand(8, 8), 2, 64)
    figures.picture_to_sequence(torch.rand(4, 8), 4, 8)
    assert "cut into 16 patches of 2 by 2" in alt[0] and "The 17 rows" in alt[0]
    assert "cut into 2 patches of 4 by 4" in alt[1] and "The 3 rows" in alt[1]
    assert "flattened to 4 numbers and multiplied by W, to 64" in alt[0] and "to 16 numbers" in alt[1]
    with pytest.raises(ValueError, match="patch: got 3"):
        figures.picture_to_sequence(torch.rand(8, 8), 3, 64)


def test_where_was_looked_is_said_by_row_and_column(alt):
    table = torch.zeros(4, 4)
    table[1, 2] = 0.8
    figures.attention_on_images([torch.rand(8, 8)], {"rollout": [table]}, ["a 3"])
    assert "a 3: rollout most at (1, 2)" in alt[0]
    figures.attention_by_head([torch.rand(8, 8)], torch.stack([table, table.T])[None, :, None], ["a 3"])
    assert "a 3, layer 0: by head most at (1, 2). a 3, layer 1: by head most at (2, 1)." in alt[1]
    with pytest.raises(ValueError, match="names: got 2, expected 1"):
        figures.attention_by_head([torch.rand(8, 8)], table[None, None, None], ["a 3", "an 8"])


def test_maps_of_positions_tell_how_alike_places_side_by_side_are(alt):
    side = torch.arange(9) % 3
    line = torch.arange(9) // 3
    beside = ((side[:, None] - side).abs() + (line[:, None] - line).abs()) == 1
    figures.position_maps({"trained": beside.float(), "new": torch.eye(9)}, side=3)
    assert "trained: side by side 1.00, 2 rows apart 0.00; new: side by side 0.00" in alt[0]
    with pytest.raises(ValueError, match="margin: got 1"):
        figures.position_maps({"trained": beside.float()}, side=3, margin=1)


def test_patches_that_a_window_fits_are_told_from_those_that_cut_it(alt):
    figures.patch_grids([torch.rand(4, 4)] * 2, ["one", "two"], 2, [(2, 0), (2, 1)])
    assert "one: the framed window is a patch; two: the framed window is cut by the lines." in alt[0]


def test_a_frame_of_spans_tells_the_share_and_the_longest_stretch():
    mask = torch.tensor([[True, True, False, True], [False, True, True, True]])
    _, words = figures.span_frame(mask, 0.5, "spans")
    assert "2 sounds of 4 frames" in words and "masked (hatched): 75%" in words and "stretch has 3 frames" in words


def test_the_use_of_codes_names_the_most_used(alt):
    figures.codes_used({"even": torch.full((4,), 0.25), "one": torch.tensor([0.0, 1.0, 0.0, 0.0])}, 4)
    assert "even: the most used entry has 25%, 4 of 4" in alt[0]
    assert "one: the most used entry has 100%, 1 of 4" in alt[0]


def test_a_sound_and_the_game_say_what_they_show(alt):
    vowels = [(0.0, 0.05, "hod"), (0.05, 0.1, "heed")]
    figures.waveform_and_spectrogram(torch.randn(800), torch.randn(4, 101), vowels, 8000, 200)
    figures.wav2vec_diagram()
    figures.image_row([torch.rand(8, 8)] * 2, ["one", "two"])
    assert "hod, heed" in alt[0] and "4 frames" in alt[0]
    assert "The darkest stripes lie near F1" in alt[0] and "its own, q5, 0.999, so the loss is about 0.001" in alt[1]
    assert alt[2] == "2 pictures of 8 by 8 pixels: one, two."


# What is drawn

STROKE = torch.tensor([[0.0, 0, 0, 1], [0, 0, 1, 0], [0, 1, 0, 0], [0, 0, 0, 0]])  # from bottom left to top right


@proven
def test_pictures_stand_upright_under_their_names():
    one, two = axes(figures.image_row, [STROKE, STROKE[:2]], ["one", "two"])
    assert (one.get_title(), two.get_title()) == ("one", "two")
    assert grid(one) == STROKE.tolist() and grid(two) == STROKE[:2].tolist()


@proven
def test_a_window_times_weights_is_one_sum_of_the_output():
    image, weights = (STROKE[:, [2, 0, 3, 1]] * 2 + STROKE).int(), torch.tensor([[0, 1, 0], [2, 0, -1], [0, 0, 3]])
    (ax,) = axes(figures.convolution, image, weights, (1, 2))
    padded = torch.nn.functional.pad(image, (1, 1, 1, 1))
    sums = torch.nn.functional.conv2d(image[None, None].double(), weights[None, None].double(), padding=1)[0, 0].int()
    assert grids(ax) == [table.tolist() for table in (padded, weights, sums)]
    corners = [(0, 1), (9, 0), (15, 0)]
    titles = ["image, with a border of zeros", "× nine weights", "output: a sum at every place"]
    said = texts(ax)
    for (left, top), title, part in zip(corners, titles, (padded, weights, sums), strict=True):
        for i, row in enumerate(part.tolist()):
            for j, number in enumerate(row):
                words = f"{number:g}".replace("-", "−")
                assert (words, pytest.approx(left + j + 0.5), pytest.approx(top - i - 0.5)) in said
        assert (title, pytest.approx(left + part.shape[1] / 2), top + 0.25) in said
    words = f"the products\nsum to {sums[1, 2]}".replace("-", "−")
    assert [(words, 10.5, -4.3), ("dashed: the\nnext window", 10.5, -6.6)] == [
        (what, pytest.approx(x), pytest.approx(y)) for what, x, y in said if what[:3] in ("the", "das")
    ]  # fmt: skip
    frames = [*cells(ax)]
    border = [(j, -i, 1, 1) for i in range(6) for j in range(6) if i in (0, 5) or j in (0, 5)]
    assert frames[:20] == border and all(cells(ax)[place][1] == "////" for place in border)
    assert frames[20:] == [(3, -3, 3, 3), (18, -2, 1, 1), (2, -3, 3, 3), (17, -2, 1, 1)], "the next one, the window"
    assert arrows(ax) == [(pytest.approx((6.3, -1.5)), pytest.approx((8.7, -1.5))),
                          (pytest.approx((12.3, -1.5)), pytest.approx((14.7, -1.5)))]  # fmt: skip


def test_a_convolution_is_told_in_words_and_its_weights_are_checked(alt):
    image, weights = torch.eye(4).int(), torch.tensor([[0, 1, 0], [2, 0, -1], [0, 0, 3]])
    figures.convolution(image, weights, (1, 1))
    assert "sum 3 is one number" in alt[0] and "its sum 2." in alt[0]
    with pytest.raises(ValueError, match="weights"):
        figures.convolution(image, weights[:2], (1, 1))


@proven
@pytest.mark.parametrize("shape", [(4, 4), (2, 8)], ids=["square", "wide"])
def test_patches_are_counted_beside_the_picture_and_stand_in_a_row_behind_the_class_token(shape):
    image = torch.arange(16.0).view(*shape)
    (ax,) = axes(figures.picture_to_sequence, image, 2, 64)
    patches = image.unfold(0, 2, 2).unfold(1, 2, 2).flatten(0, 1)                # (4, 2, 2), row by row
    assert grids(ax) == [image.tolist(), *patches.tolist()]
    rows, columns = shape[0] // 2, shape[1] // 2
    side = 4.4 / columns
    frames = [place[:3] for place in cells(ax) if place[2] == place[3] and place[0] < 4.4]
    corners = [(side * (i % columns), 4.4 - side * (1 + i // columns), side) for i in range(4)]
    assert frames == [pytest.approx(corner) for corner in corners]
    picture, *pieces = (mesh.get_coordinates() for mesh in ax.collections)
    assert picture[..., 0].max() == pytest.approx(4.4) and picture[..., 1].min() == pytest.approx(4.4 - rows * side)
    for i, piece in enumerate(pieces):
        left, right = piece[..., 0].min(), piece[..., 0].max()
        above = {words for words, x, y in texts(ax) if x == pytest.approx((left + right) / 2) and y == 3.2}
        assert above == {f"{i}"}
    counted = {words: (x, y) for words, x, y in texts(ax) if "–" in words}       # beside each row of patches
    assert counted == {f"{columns * row}–{columns * row + columns - 1}": pytest.approx((-0.2, 4.4 - side * (row + 0.5)))
                       for row in range(rows)}  # fmt: skip
    row = [words for words, x, y in sorted(texts(ax), key=lambda text: text[1]) if y == -0.55 and x > 7]
    tags = [words for words, x, y in sorted(texts(ax), key=lambda text: text[1]) if y == -1.65]
    assert row == ["class", "$x_{0}W$", "$x_{1}W$", "$x_{2}W$", "$x_{3}W$"]
    assert tags == [r"$+\,p_0$", *(rf"$+\,p_{{{i + 1}}}$" for i in range(4))]
    assert {f"$x_{{{i}}}W$" for i in range(4)} < set(boxed(ax))
    assert all(start[0] < end[0] or start[1] > end[1] for start, end in arrows(ax)) and len(arrows(ax)) == 15
    into = [start for start, end in arrows(ax) if end[1] == -2.75 and end[0] > 7]
    above = sorted(x for words, x, y in texts(ax) if y == -1.65)
    assert [x for x, _ in into] == pytest.approx(above) and {y for _, y in into} == {-2.05}
    stack, last = "encoder blocks, then the norm: 5 rows in, 5 rows out", joined(ax)[-3:]
    assert last[:2] == [(stack, "row 0"), ("row 0", "$W_{head}$")]
    assert last[2][0] == "$W_{head}$" and last[2][1].startswith("logits")
    # The last patch, flattened, times W: top to bottom, below the picture.
    flat = [(words, x) for words, x, y in texts(ax) if y == -1.45]
    assert flat == [(f"{number:.2f}", pytest.approx(0.325 + 1.25 * k))
                    for k, number in enumerate(patches[3].flatten().tolist())]  # fmt: skip
    beside = sorted((x, y) for x, y, width, height in cells(ax) if (width, height) == (1.25, 0.9))
    assert beside == [(pytest.approx(-0.3 + 1.25 * k), -1.9) for k in range(4)]
    down = [(start, end) for start, end in arrows(ax) if start[0] == end[0] == 2.2]
    assert down == [((2.2, -2.05), (2.2, -2.75)), ((2.2, -3.85), (2.2, -4.75))]
    below = [words for words, x, y in sorted(texts(ax), key=lambda text: -text[2]) if x == 2.2]
    assert below == ["patch 3, flattened", "× W  (4 × 64)", r"$x_{3}W\ (+\,b)$: 64 numbers"]
    ((start, end),) = [pair for pair in arrows(ax) if pair[0][1] == pair[1][1] == 2.15]
    assert start[0] == pytest.approx(4.6) and end[0] < 9 and ("cut", 6.7, 2.35) in texts(ax)


@proven
def test_where_was_looked_lies_beside_its_picture_under_its_title():
    first, second = torch.tensor([[0.5, 0.25], [0.0, 0.125]]), torch.tensor([[0.0, 0.125], [0.4375, 0.0]])
    maps = {"rollout": [first, second], "last": [second / 2, first / 4]}
    found = axes(figures.attention_on_images, [STROKE, 3 * STROKE.T], maps, ["a 3", "a 7"])
    assert {found[i].images[0].get_clim() for i in (1, 4)} == {(0, 0.5)}, "one scale for a column"
    assert {found[i].images[0].get_clim() for i in (2, 5)} == {(0, 0.21875)}
    assert [ax.get_title() for ax in found] == ["image", "rollout (%)", "last (%)", "", "", ""]
    assert [ax.get_ylabel() for ax in found[::3]] == ["a 3", "a 7"]
    assert [grid(ax) for ax in found] == [
        STROKE.tolist(), first.tolist(), (second / 2).tolist(),
        (3 * STROKE.T).tolist(), second.tolist(), (first / 4).tolist(),
    ]  # fmt: skip
    assert texts(found[1]) == [("50", 0.5, 0.5), ("25", 2.5, 0.5), ("0", 0.5, 2.5), ("12", 2.5, 2.5)]
    assert [words for words, *_ in texts(found[2])] == ["0", "6", "22", "0"]
    assert [words for words, *_ in texts(found[4])] == ["0", "12", "44", "0"]
    assert [words for words, *_ in texts(found[5])] == ["12", "6", "0", "3"]
    for ax, image in zip(found, [STROKE] * 3 + [3 * STROKE.T] * 3, strict=True):
        for level, _, outline in contours(ax):                                   # half as bright as the brightest
            assert level == image.max() / 2
            assert all(at(image, x, y) == pytest.approx(level, abs=1e-4) for x, y in outline)
    assert [len(contours(ax)) for ax in found] == [0, 1, 1, 0, 1, 1]


def test_the_four_largest_of_the_framed_map_have_a_frame_and_no_others():
    table = torch.tensor([[0.2, 0.0, 0.1, 0.0], [0.0, 0.3, 0.0, 0.15]])                  # two rows of patches, 2 × 1
    maps = {"last": [table.roll(1)], "rollout": [table]}
    picture, last, rollout = axes(figures.attention_on_images, [STROKE], maps, ["a 3"], framed="rollout")
    assert not cells(picture) and not cells(last)
    assert sorted(cells(rollout)) == [(-0.5, -0.5, 1, 2), (0.5, 1.5, 1, 2), (1.5, -0.5, 1, 2), (2.5, 1.5, 1, 2)]


def test_a_frame_is_told_in_words(alt):
    figures.attention_on_images([STROKE], {"rollout": [torch.rand(4, 4) / 16]}, ["a 3"], framed="rollout")
    assert "The four patches with most rollout have a frame." in alt[0]


def at(image, x, y):
    """Between pixels, in proportion: for a place on a line between two that are neighbours. Around the image is 0."""
    image, x, y = torch.nn.functional.pad(image, (1, 1, 1, 1)), x + 1, y + 1
    low, left = int(y), int(x)
    beside = image[min(low + (y > low), len(image) - 1), min(left + (x > left), image.shape[1] - 1)]
    share = max(x - left, y - low)
    return float(image[low, left] * (1 - share) + beside * share)


@proven
def test_every_head_has_a_map_in_the_row_of_its_layer_and_picture():
    weights = torch.arange(48.0).view(2, 2, 3, 2, 2).roll(5) / 410
    found = axes(figures.attention_by_head, [STROKE, STROKE.T * 2], weights, ["a 3", "an 8"])
    assert [ax.get_title() for ax in found] == ["", "head 0", "head 1", "head 2", *[""] * 12]
    assert [ax.get_ylabel() for ax in found[::4]] == [
        "a 3,\nlayer 0", "a 3,\nlayer 1", "an 8,\nlayer 0", "an 8,\nlayer 1",
    ]  # fmt: skip
    for row in range(4):
        image = (STROKE, STROKE.T * 2)[row // 2]
        assert grid(found[4 * row]) == image.tolist()
        for head in range(3):
            ax, table = found[4 * row + 1 + head], weights[row // 2, row % 2, head]
            assert grid(ax) == [[pytest.approx(share, rel=1e-5) for share in line] for line in table.tolist()]
            where = [(0.5, 0.5), (2.5, 0.5), (0.5, 2.5), (2.5, 2.5)]
            numbers = [(f"{100 * share:.0f}", x, y)
                       for share, (x, y) in zip(table.flatten().tolist(), where, strict=True) if share >= figures.FEW]
            assert texts(ax) == numbers
            assert ax.images[0].get_clim() == (0, figures.DARKEST), "one scale for all"
            ((level, _, outline),) = contours(ax)
            assert level == image.max() / 2
            assert all(at(image, x, y) == pytest.approx(level, abs=1e-4) for x, y in outline)


@proven
def test_a_cell_is_the_mean_cosine_of_all_places_so_far_apart():
    similarity = torch.arange(16.0).view(4, 4) / 16
    similarity = (similarity + similarity.T) / 2
    one, two, bar = axes(figures.position_maps, {"one": similarity, "two": similarity / 2}, 2, most=0.5)
    right = (similarity[0, 1] + similarity[2, 3]) / 2
    below = (similarity[0, 2] + similarity[1, 3]) / 2
    expected = [[similarity[3, 0], below, similarity[2, 1]], [right, similarity.diag().mean(), right],
                [similarity[1, 2], below, similarity[0, 3]]]  # fmt: skip
    for ax, title, share in ((one, "one", 1), (two, "two", 0.5)):
        assert grid(ax) == [[pytest.approx(share * float(cosine)) for cosine in line] for line in expected]
        assert strokes(ax) == [[(0, 0)]] and ax.images[0].get_clim() == (-0.5, 0.5)
        assert ax.get_title() == f"{title}\nside by side: {share * float(right + below) / 2:.2f}"
        assert ax.get_xlabel() == "columns apart"
    assert (one.get_ylabel(), bar.get_ylabel()) == ("rows apart", "mean cosine")


@proven
def test_places_of_the_margin_and_steps_past_the_reach_are_left_out():
    inner = torch.zeros(5, 5)
    inner[1:4, 1:4] = 1
    both = inner.flatten()[:, None] * inner.flatten()                            # 1 where both places are inner ones
    ax, _ = axes(figures.position_maps, {"one": both}, 5, margin=1)
    assert grid(ax) == [[1] * 5] * 5 and ax.get_title() == "one\nside by side: 1.00"
    ax, _ = axes(figures.position_maps, {"one": both}, 5, margin=1, reach=1)
    assert grid(ax) == [[1] * 3] * 3 and ax.get_title() == "one\nside by side: 1.00"


@proven
def test_a_window_is_framed_over_the_lines_of_the_patches():
    one, two = axes(figures.patch_grids, [STROKE, STROKE.T], ["one", "two"], 2, [(2, 0), (2, 1)])
    assert [grid(one), grid(two)] == [STROKE.tolist(), STROKE.T.tolist()]
    assert [*cells(one)] == [(-0.5, 1.5, 2, 2)] and [*cells(two)] == [(0.5, 1.5, 2, 2)]
    lines = [[(at, 0), (at, 1)] for at in (-0.5, 1.5, 3.5)] + [[(0, at), (1, at)] for at in (-0.5, 1.5, 3.5)]
    assert strokes(one) == lines == strokes(two)
    assert (one.get_title(), two.get_title()) == ("one", "two")


@proven
def test_a_sound_is_drawn_over_its_seconds_with_low_tones_below_and_the_words_between_their_ends():
    wave, loudness = torch.tensor([0.0, 1, -0.75, 0.5]), torch.tensor([[1.0, 2, 4], [8, 16, 32]])
    spoken, formants = [(0.0, 0.25, "hod"), (0.25, 2.0, "heed")], [[0.5, 0.75, 0.95], [0.25, 0.875, 0.96]]
    up, down, bar = axes(figures.waveform_and_spectrogram, wave, loudness, spoken, 2, 2, formants, highest=0.9)
    ends = [[(0.25, 0), (0.25, 1)], [(2, 0), (2, 1)]]
    assert strokes(up) == [[(0, 0), (0.5, 1), (1, -0.75), (1.5, 0.5)], *ends]
    assert strokes(down)[:2] == ends
    assert strokes(down)[2:] == [                                                # each vowel's, while it lasts
        [(0, 0.5), (0.25, 0.5)], [(0, 0.75), (0.25, 0.75)], [(0.25, 0.25), (2, 0.25)], [(0.25, 0.875), (2, 0.875)],
    ]  # fmt: skip
    assert [(words, y) for words, _, y in texts(down)] == [("F1", 0.25), ("F2", 0.875)]
    assert [(words, x) for words, x, _ in texts(up)] == [("hod", 0.125), ("heed", 1.125)]
    assert grid(down) == [[4, 32], [2, 16], [1, 8]]                              # frames go right, frequencies up
    assert down.images[0].get_extent() == [0, 2, 0, 1]                           # seconds, and half the rate in hertz
    assert (down.get_xlabel(), down.get_ylabel(), bar.get_ylabel()) == ("seconds", "hertz", "log power")
    assert not down.yaxis_inverted() and down.get_ylim() == (0, 0.9)             # what is higher is left out


def test_the_pitch_and_its_multiples_are_named():
    wave, loudness = torch.tensor([0.0, 1, -0.75, 0.5]), torch.tensor([[1.0, 2, 4], [8, 16, 32]])
    _, down, _ = axes(figures.waveform_and_spectrogram, wave, loudness, [(0.0, 2.0, "hod")], 2, 2, pitch=0.25)
    assert texts(down) == [("pitch", 1, 0.25), ("2 · pitch", 1, 0.5), ("3 · pitch", 1, 0.75)]


@proven
def test_harmonics_are_stems_under_the_envelope_on_which_formants_are_named():
    hertz, decibels = [0.0, 100.0, 200.0, 300.0], [-20.0, 0.0, -8.0, -30.0]
    voices = {"low": ([50.0, 100.0, 150.0], [-10.0, 0.0, -4.0]), "high": ([200.0, 300.0], [-8.0, -30.0])}
    low, high = axes(figures.harmonics_and_formants, voices, (hertz, decibels), [100, 250], "a vowel")
    outline = [*zip(hertz, decibels, strict=True)]
    assert strokes(low) == [[(50, -34), (50, -10)], [(100, -34), (100, 0)], [(150, -34), (150, -4)], outline]
    assert strokes(high) == [[(200, -34), (200, -8)], [(300, -34), (300, -30)], outline]
    for ax in (low, high):
        assert texts(ax) == [("F1", 100, 0), ("F2", 250, -19)] and ax.get_xlabel() == "hertz"
        assert (ax.get_xlim(), ax.get_ylim()) == ((0, 300), (-34, 12))
    assert (low.get_title(), high.get_title()) == ("low", "high") and low.get_ylabel() == "loudness (decibels)"


def test_harmonics_are_counted_in_words(alt):
    voices = {"low": ([50.0, 100.0, 150.0], [-10.0, 0.0, -4.0]), "high": ([100.0, 200.0], [-8.0, -30.0])}
    figures.harmonics_and_formants(voices, ([0.0, 300.0], [-20.0, 0.0]), [100, 250], "a vowel")
    assert "low: 3 harmonics, 50 hertz apart; high: 2 harmonics, 100 hertz apart" in alt[0]


@proven
def test_every_run_has_a_mark_at_its_mistakes_and_their_mean_is_a_line_with_its_number():
    (ax,) = axes(figures.mistakes, {"CNN": [4, 2, 4, 2], "ViT": [16]}, 100)
    assert labels(ax.yaxis) == {0: "CNN", 1: "ViT"}
    mean, marks, other = strokes(ax)                                             # a single run is its own mean
    assert [x for x, _ in marks] == [4, 2, 4, 2] and other == [(16, 1)]
    assert [y for _, y in marks] == pytest.approx([-0.065, -0.065, 0.065, 0.065])        # equal runs are all to be seen
    assert mean == [(3, -0.3), (3, 0.3)]
    assert texts(ax) == [("mean 3.0", 3, -0.3), ("16", 16, 1)]
    assert ax.get_xlim() == (0, pytest.approx(1.08 * 16))
    with pytest.raises(ValueError, match="mistakes from 0 to n = 3"):
        figures.mistakes({"CNN": [4]}, 3)


@proven
def test_what_happens_at_a_step_is_a_line_with_its_name():
    (ax,) = axes(figures.runs_over, {"one": {10: [2.0, 3.0]}}, "step", "loss", ("guessing", 2.75), ("now", 30))
    assert strokes(ax)[-1] == [(30, 0), (30, 1)]
    assert texts(ax) == [("one", 10, 2.5), ("guessing", 1.02, 2.75), ("now", 30, 1)]
    assert strokes(ax)[:-1] == [[(10, 2), (10, 3)], [(10, 2.5)], [(0, 2.75), (1, 2.75)]]


@proven
def test_a_line_runs_through_the_means_of_the_seeds():
    runs = {"any": {10: [1.0, 3.0], 20: [0.5, 0.5]}, "one": {10: [2.0, 3.0]}}
    (ax,) = axes(figures.runs_over, runs, "step", "loss", ("guessing", 2.75))
    assert strokes(ax) == [
        [(10, 1), (10, 3)], [(20, 0.5), (20, 0.5)], [(10, 2), (20, 0.5)], [(10, 2), (10, 3)], [(10, 2.5)],
        [(0, 2.75), (1, 2.75)],
    ]  # fmt: skip
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("step", "loss")
    assert ax.get_legend() is None and texts(ax) == [("any", 20, 0.5), ("one", 10, 2.5), ("guessing", 1.02, 2.75)]


@proven
def test_runs_of_a_group_stand_in_its_row_under_their_mean():
    groups = {"map": [0.5, 0.75], "ink": [0.25]}
    (ax,) = axes(figures.rows_of_runs, groups, "accuracy", hollow=["ink"], start=0.125)
    assert labels(ax.yaxis) == {0: "map", 1: "ink"}
    assert texts(ax) == [("mean 62", 62.5, -0.3), ("mean 25", 25, 0.7)]
    assert strokes(ax) == [
        [(62.5, -0.3), (62.5, 0.3)], [(50, -0.1), (75, 0.1)], [(25, 0.7), (25, 1.3)], [(25, 1)],
    ]  # fmt: skip
    assert [line.get_markerfacecolor() == "white" for line in ax.lines if line.get_marker() in "os"] == [False, True]
    assert ax.get_xlabel() == "accuracy" and ax.get_xlim()[0] == 12.5


@proven
def test_what_two_probes_read_is_one_mark_a_seed():
    groups = {"one": [(0.25, 0.5), (0.375, 0.625)], "other": [(0.75, 0.125)]}
    (ax,) = axes(figures.two_probes, groups, "vowel", "pitch", 0.2)
    assert strokes(ax) == [groups["one"], groups["other"], [(0.2, 0), (0.2, 1)], [(0, 0), (1, 0)]]
    assert texts(ax) == [
        ("one", 0.375, 0.5625), ("other", 0.75, 0.125), ("chance", 0.2, 0.5), ("always the mean", 1, 0),
    ]  # fmt: skip
    assert (ax.get_xlim(), ax.get_ylim()) == ((0, 1), (-0.08, 1.03))
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("vowel", "pitch")


@proven
def test_the_cells_of_predicted_confusions_are_framed_and_shares_are_of_the_row():
    counts = torch.tensor([[3, 1, 0], [0, 2, 2], [0, 4, 4]])
    (ax,) = axes(figures.confusions, {"probe": counts}, ["a", "b", "c"], [("b", "c")])
    assert table(ax) == {"a": {"a": 0.75, "b": 0.25, "c": 0}, "b": {"a": 0, "b": 0.5, "c": 0.5},
                         "c": {"a": 0, "b": 0.5, "c": 0.5}}  # fmt: skip
    assert written(ax)["a"] == {"a": "0.75", "b": "0.25", "c": "0.00"}
    assert [*cells(ax)] == [(1, 2, 1, 1), (2, 1, 1, 1)]
    assert ax.get_title() == "probe: 56% right" and (ax.get_xlabel(), ax.get_ylabel()) == ("taken for", "sung")


def test_confusions_say_how_many_mistakes_were_predicted(alt):
    figures.confusions({"probe": torch.tensor([[3, 1, 0], [0, 2, 2], [0, 4, 4]])}, ["a", "b", "c"], [("b", "c")])
    assert "probe: 56% right, 86% of the mistakes in the framed cells" in alt[0]


@proven
def test_masked_frames_are_guessed_and_their_codes_are_told_apart():
    (ax,) = axes(figures.wav2vec_diagram)
    around = "Transformer: every frame attends to all"
    masked = {3, 4, 5}
    ways = joined(ax)
    for i in range(8):
        z = f"$z_{i + 1}$"
        gone = i in masked
        assert ways[:3] == [(z, z), (z, "masked" if gone else z), ("masked" if gone else z, around)]
        assert ways[3:4] == [(around, f"$c_{i + 1}$")] or not gone
        ways = ways[4 if gone else 3 :]
    assert boxed(ax)[-5:] == [around, "$q_5$ right", "$q_4$ wrong", "$q_6$ wrong", "codebook"]
    *meets, right, up = arrows(ax)[-5:]
    at = places(ax, "codebook", "$q_5$ right", "$q_6$ wrong", "$c_5$", "$c_4$", "$c_6$")
    near = {name: [x for words, x, _ in texts(ax) if words == name] for name in ("$z_4$", "$z_5$", "$z_6$")}
    assert [*near.values()] == [[at[f"$c_{i}$"][0]] for i in (4, 5, 6)]
    # From the fifth guess over to its own code; from the masked frames into the codebook, and up to the codes.
    wave, way, *drops = strokes(ax)
    assert way[0] == (at["$c_5$"][0], 8.25) and way[1] == (way[0][0], 9.1)
    assert way[2] == (13.6, 9.1) and way[3] == (13.6, at["$q_6$ wrong"][1])
    powers = {"$q_5$ right": math.exp(8), "$q_4$ wrong": math.exp(1), "$q_6$ wrong": math.exp(-2)}
    for (start, end), (q, cosine), power in zip(meets, zip(powers, ("0.8", "0.1", "−0.2"), strict=True),
                                                powers.values(), strict=True):  # fmt: skip
        y = at[q][1] if q in at else next(y for words, _, y in texts(ax) if words == q)
        assert start == (13.6, y) and end == (15.3, y)
        assert (cosine, 14.45, pytest.approx(y + 0.3)) in texts(ax)
        assert (f"{power / sum(powers.values()):.3f}", 18.75, y) in texts(ax)
    assert [drop[0][0] for drop in drops] == [pytest.approx(at[f"$c_{i}$"][0] + 0.25) for i in (4, 5, 6)]
    assert all(drop[0][1] > 2.5 and drop[1][1] == right[0][1] for drop in drops)
    assert right[0] == drops[0][1] and right[0][0] < right[1][0]
    assert at["codebook"][1] < up[0][1] < up[1][1] < at["$q_6$ wrong"][1]
    # The waveform runs from under the first frame to after the last, at the bottom.
    first, last = (next(x for words, x, _ in texts(ax) if words == f"$z_{i}$") for i in (1, 8))
    assert wave[0][0] < first < last < wave[-1][0] and max(y for _, y in wave) < 1.15
    assert wave[100][1] == pytest.approx(0.45 + 0.75 * waveform(wave[100][0]), abs=1e-3)
    grey = [colour for place, (colour, _) in cells(ax).items() if place[2] == 1.5]
    assert len(grey) == 3 and len({*grey}) == 1


def waveform(t):
    return math.sin(9 * t) * (0.3 + 0.25 * math.sin(1.3 * t + 1)) + 0.12 * math.sin(31 * t)


@proven
def test_masked_frames_are_hatched_in_the_row_of_their_sound():
    mask = torch.tensor([[True, True, False, True], [False, True, False, False]])
    (ax,) = axes(figures.span_frame, mask, 0.5, "spans")
    rows = [[hatch for (x, y, *_), (_, hatch) in sorted(cells(ax).items()) if y == row] for row in (1, 0)]
    assert rows == [["////" if masked else "" for masked in row] for row in mask.tolist()]
    assert ax.get_title() == "spans"
    assert [text.get_text() for text in ax.figure.texts] == [
        "masked (hatched): 50% of these frames; 50% expected in very long sounds"
    ]  # fmt: skip
    named = {words: y for words, x, y in texts(ax) if x < 0}
    assert named == {"sound 1": 1.36, "sound 2": 0.36}
    assert [words[:6] for words, _, y in texts(ax) if y < 0] == ["frames"]
    assert len(cells(ax)) == 8 and sorted({x for x, *_ in cells(ax)}) == [0, 1, 2, 3]


@proven
def test_codes_stand_in_the_order_of_their_use():
    even, uneven = axes(figures.codes_used, {"even": torch.tensor([0.125, 0.375, 0.5]),
                                         "uneven": torch.tensor([0.25, 0.0, 0.0, 0.75])}, 2)  # fmt: skip
    assert (even.get_title(), uneven.get_title()) == ("even", "uneven") and even.get_ylabel() == "share of the points"
    assert bars(even) == {"": {"1": 0.5, 2: 0.375, 3: 0.125}}  # ticks at 1 and at every fourth
    assert bars(uneven) == {"": {"1": 0.75, 2: 0.25, 3: 0, "4": 0}}
    assert texts(even) == texts(uneven) == [("one kind: 1/2", 1, 0.5)]
    assert strokes(even) == strokes(uneven) == [[(0, 0.5), (1, 0.5)]]
