"""Figures of averages and masks draw what they were given, and say in words what they show."""

import pytest
import torch
from drawn import axes, cells, grid, strokes, texts, written
from proven import proven

from attncourse.attention import causal_mask, masked_softmax
from attncourse_lessons import course

figures = course.part("masking", "figures")

WORDS = ["pad", "the", "chef"]


def test_pots_say_how_much_of_what_they_spanned_is_left():
    square = torch.tensor([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0], [1.0, 1.0], [0.5, 0.5]])
    _, before = figures.mixing_rounds([square, square / 2], 0)
    drawn, after = figures.mixing_rounds([square, square / 2], 1)
    assert before.startswith("5 points in the plane before the first round")
    assert "after 1 round." in after and "25% of the area" in after
    assert drawn.axes[0].get_title() == "after 1 round: 25% of the area"


def test_who_hears_whom_counts_the_leaks_above_the_diagonal_alone(shown):
    clean = torch.tensor([[1.0, 0.0], [2.0, 1.0]])
    figures.dependence_maps({"masked": clean, "not masked": clean + 1})
    assert "masked: nothing leaks; not masked: 1 of 1 places leak." in shown[0]


def frame(mask, weights):
    return figures.mask_frame(mask, weights, WORDS)[1]


def test_a_frame_tells_nan_from_strays_from_rows_that_sum_to_too_little():
    scores, mask = torch.zeros(3, 3), causal_mask(3) & torch.tensor([False, True, True])
    assert frame(mask, scores.masked_fill(~mask, -torch.inf).softmax(-1)).endswith("the weights: rows of NaN: 1.")
    assert "forbidden places that have weight, framed: 3." in frame(mask, scores.masked_fill(~mask, -1e9).softmax(-1))
    assert "rows that sum to less than one: 2." in frame(mask, scores.softmax(-1) * mask)


def test_a_frame_finds_nothing_wrong_with_zeros_where_nothing_is_allowed():
    mask = causal_mask(3) & torch.tensor([False, True, True])
    words = frame(mask, masked_softmax(torch.zeros(3, 3), mask))
    assert "allows 3 of 9 places" in words
    assert "or to zero where nothing is allowed (1 rows); nothing forbidden has weight." in words


def test_a_frame_that_does_not_fit_its_words_is_refused():
    with pytest.raises(ValueError, match=r"got shape \(2, 2\), expected \(3, 3\)"):
        figures.mask_frame(causal_mask(2), torch.eye(2), WORDS)


def test_teacher_forcing_says_which_beginning_must_give_which_word(shown):
    figures.teacher_forcing(["<start>", "the", "chef"])
    assert "2 positions" in shown[0] and "<start> → the; <start> the → chef." in shown[0]


# What is drawn


POTS = [torch.tensor([[0.0, 0.0], [1.0, 0.0], [0.0, 0.75], [1.0, 0.75], [0.5, 0.25]])]
POTS += [POTS[0] * torch.tensor([0.5, 1.0]), POTS[0] / 2]


@proven
@pytest.mark.parametrize(("at", "title"), [(0, "before"), (1, "after 1 round: 50% of the area")])
def test_pots_stand_at_their_red_and_blue_inside_the_hulls_of_the_rounds_before(at, title):
    (ax,) = axes(figures.mixing_rounds, POTS, at)
    assert strokes(ax) == [[tuple(place)] for place in POTS[at].tolist()]
    assert (ax.get_xlabel(), ax.get_ylabel(), ax.get_title()) == ("red", "blue", title)
    hulls = [{tuple(corner) for corner in patch.get_xy().tolist()} for patch in ax.patches]
    assert hulls == [{tuple(corner) for corner in pots[:4].tolist()} for pots in POTS[: at + 1]]
    colours = [line.get_color() for line in ax.lines]
    assert colours == [(x, 0.15, y) for x, y in POTS[at].tolist()]


@proven
def test_a_map_of_influence_has_a_row_an_output_and_a_cross_at_each_leak():
    maps = {"masked": torch.tensor([[1.0, 0.0, 0.0], [2.0, 1.0, 0.0], [0.5, 0.0, 2.0]]),
            "leaky": torch.tensor([[4.0, 1.0, 0.0], [0.0, 0.25, 0.0], [0.25, 0.0, 1.0]])}  # fmt: skip
    masked, leaky = axes(figures.dependence_maps, maps)
    assert (masked.get_title(), leaky.get_title()) == ("masked", "leaky")
    root = round(0.5**0.5, 6)                                            # the scale goes by roots
    assert grid(masked) == [[root, 0, 0], [1, root, 0], [0.5, 0, 1]]
    assert grid(leaky) == [[1, 0.5, 0], [0, 0.25, 0], [0.25, 0, 0.5]]
    assert strokes(masked) == [] and strokes(leaky) == [[(1, 0)]]        # input 1 reaches output 0, which is earlier
    assert (masked.get_xlabel(), masked.get_ylabel()) == ("input", "output")


@proven
def test_a_frame_frames_the_weight_that_no_mask_allows_and_says_what_rows_sum_to():
    weights = torch.tensor([[1.0, 0.0, 0.0], [0.5, 0.3, 0.2], [torch.nan, 0.001, 0.25]])
    mask, shares = axes(figures.mask_frame, causal_mask(3), weights, WORDS)
    assert (mask.get_title(), shares.get_title()) == ("mask", "weights") and mask.yaxis_inverted()
    assert written(mask) == {"pad": {"pad": "✓"}, "the": {"pad": "✓", "the": "✓"}, "chef": dict.fromkeys(WORDS, "✓")}
    filled = {(round(y), round(x)) for (x, y, *_), (colour, _) in cells(mask).items() if colour != "#ffffff"}
    assert filled == {tuple(place) for place in causal_mask(3).nonzero().tolist()}
    assert written(shares) == {
        "pad": {"pad": "1.00", "the": "0", "chef": "0"},
        "the": {"pad": "0.50", "the": "0.30", "chef": "0.20"},
        "chef": {"pad": "NaN", "the": "~0", "chef": "0.25"},
    }
    looks = {(y, x): look for (x, y, width, _), look in cells(shares).items() if width == 1}
    assert [place for place, (_, hatch) in looks.items() if hatch] == [(2, 0)]
    dark = {place: -sum(int(colour[i : i + 2], 16) for i in (1, 3, 5)) for place, (colour, _) in looks.items()}
    assert sorted(dark, key=dark.get)[-5:] == [(1, 2), (2, 2), (1, 1), (1, 0), (0, 0)]
    assert [place for place in cells(shares) if place[2] < 1] == [(2.06, 1.06, 0.88, 0.88)]
    sums = [words for words, x, _ in sorted(texts(shares), key=lambda text: text[2]) if x > 3]
    assert sums == ["sum", "1.00", "1.00", "NaN"]


@proven
def test_each_position_is_joined_to_itself_and_all_before_it():
    (ax,) = axes(figures.teacher_forcing, ["<start>", "the", "chef", "cooks"])
    lines = [(stroke, line.get_linewidth()) for line, stroke in zip(ax.lines, strokes(ax), strict=True)]
    assert lines[:6] == [([(j, 0), (i, 1)], 2.4 if i == j else 1.3) for i in range(3) for j in range(i + 1)]
    assert [stroke for stroke, _ in lines[6:]] == [[(i, level) for i in range(3)] for level in (0, 1)]
    below = [words for words, x, y in sorted(texts(ax), key=lambda text: text[1]) if y < 0]
    above = [words for words, x, y in sorted(texts(ax), key=lambda text: text[1]) if y > 1]
    assert below == ["goes in", "<start>", "the", "chef"] and above == ["must come out", "the", "chef", "cooks"]
