"""Pictures of shapes have as many cells as the tensors, and the numbers that torch computes."""

import re

import pytest
import torch
from drawn import arrows, axes, boxed, cells, dots, labels, places, strokes, texts
from proven import proven

from attncourse import viz
from attncourse.viz.style import BLUE, GREEN, ORANGE
from attncourse_lessons import course

figures = course.part("getting_ready", "figures")


@proven
def test_each_mean_stands_beside_the_cells_that_it_is_the_mean_of():
    x = torch.arange(24.0).view(2, 3, 4) ** 2 % 17
    (ax,) = axes(figures.batch_axes, x)
    corners, full = cells(ax), {BLUE, ORANGE}
    at = {(round(x, 3), round(y, 3)): words for words, x, y in texts(ax)}
    for gone in range(3):
        bottom = (2 - gone) * 5.2
        sheets = [
            [at[round(4.8 * sheet + j + 0.5, 3), round(bottom + 2.5 - i, 3)] for i in range(3) for j in range(4)]
            for sheet in (0, 1)
        ]
        assert sheets == [[f"{number:g}" for number in x[sheet].flatten().tolist()] for sheet in (0, 1)]
        mean = x.mean(dim=gone)
        rows, columns = mean.shape
        low = bottom + (3 - rows) / 2
        beside = [at[12.8 + j + 0.5, round(low + rows - 0.5 - i, 3)] for i in range(rows) for j in range(columns)]
        assert beside == [f"{number:g}" for number in mean.flatten().tolist()]
        names = ", ".join(name for axis, name in enumerate(("batch", "n", "d")) if axis != gone)
        assert at[12.8 + columns / 2, round(low + rows + 0.4, 3)] == f"({names}) = {tuple(mean.shape)}"
        assert at[10.5, round(bottom + 2.05, 3)] == f"mean(dim={gone})"
        # What is filled: one cell of the mean, and of x those that were averaged.
        here = {place for place, (face, _) in corners.items() if face in full and bottom - 1 < place[1] < bottom + 3}
        averaged = [float(at[round(left + 0.5, 3), round(y + 0.5, 3)]) for left, y, *_ in here if left < 10]
        (result,) = (float(at[round(left + 0.5, 3), round(y + 0.5, 3)]) for left, y, *_ in here if left > 10)
        assert len(averaged) == x.shape[gone] and result == pytest.approx(sum(averaged) / len(averaged), rel=1e-4)
        assert at[12.8 + columns / 2, round(low - 0.5, 3)].endswith(f"/ {x.shape[gone]} = {result:g}")
        named = [(-0.55, 1.5), (2, -0.62), (4.4, 3.75), (2, 3.4), (6.8, 3.4)]
        said = [at[x_, round(bottom + y, 3)] for x_, y in named]
        assert said == ["n", "d", "batch", "x[0]", "x[1]"]
    assert arrows(ax) == [((9.6, y), (11.8, y)) for y in (11.9, 6.7, 1.5)]


@proven
def test_attention_in_three_lines_has_the_numbers_of_each_line_and_fills_what_meets():
    customers = torch.tensor([[2.0, 0.5, 1.0], [0.0, 1.0, 1.5]])
    products = torch.tensor([[0.0, 3.0, 4.0], [5.0, 2.0, 0.5], [6.0, 7.0, 3.0], [3.0, 1.5, 2.5]])
    means, names = torch.tensor([4.0, 2.25, 1.5, 5.0]), ["w", "x", "y", "z"]
    (ax,) = axes(figures.three_lines, customers, products / 4, means, ["p", "q"], names, ["l", "h", "d"], 0, 3)
    at = {(round(x, 3), round(y, 3)): words for words, x, y in texts(ax)}
    scores = customers @ products.mT / 4
    weights = scores.softmax(dim=-1)
    expected = weights @ means[:, None]
    tables = {(0.0, 6.0): (customers, "g"), (4.9, 5.5): (products.mT / 4, "g"), (9.8, 6.0): (scores, ".2f"),
              (9.8, 1.0): (weights, ".2f"), (15.2, 0.0): (means[:, None], ".2f"),
              (18.9, 1.0): (expected, ".2f")}  # fmt: skip
    for (left, bottom), (table, form) in tables.items():
        rows, columns = table.shape
        middles = [round(bottom + rows - 0.5 - i, 3) for i in range(rows)]
        there = [[at[round(left + j + 0.5, 3), y] for j in range(columns)] for y in middles]
        assert there == [[f"{number:{form}}" for number in row] for row in table.tolist()]
    named = {(1.5, 8.45): "customers (2, 3)", (6.9, 8.95): "products.mT (3, 4)", (11.8, 8.45): "scores (2, 4)",
             (11.8, 3.45): "weights (2, 4)", (15.7, 4.45): "means (4, 1)", (19.4, 3.45): "expected (2, 1)",
             (1.5, 9.05): "queries", (6.9, 9.55): "keys", (15.7, 5.05): "values",
             (3.4, 7): "@", (9.35, 7): "=", (14.5, 2): "@", (18.3, 2): "=",
             (11.5, 4.5): "line 2: softmax\nalong each row",
             (-2.6, 9.5): "line 1: dot products", (14.8, 6.1): "line 3: average of the values",
             (9.6, -1.7): "p's average:",
             (-0.2, 7.5): "p", (-0.2, 6.5): "q", (9.6, 2.5): "p", (9.6, 1.5): "q",
             (12.2, 5.55): f"2 · 0.75 + 0.5 · 0.375 + 1 · 0.625 = {scores[0, 3]:g}",
             (9.6, -0.4): "sums of the rows: 1.00 and 1.00", (9.6, -1.05): "p's weight for z:"}  # fmt: skip
    assert {place: at[place] for place in named} == named
    assert [at[round(5.4 + j, 3), 5.3] for j in range(4)] == [at[round(10.3 + j, 3), 0.8] for j in range(4)] == names
    assert [at[16.3, 3.5 - j] for j in range(4)] == names
    assert [at[j + 0.5, 5.75] for j in range(3)] == [at[4.8, 8 - j] for j in range(3)] == ["l", "h", "d"]
    of_first = " + ".join(f"{a:.3f} · {b:g}" for a, b in zip(weights[0].tolist(), means.tolist(), strict=True))
    assert at[9.8, -1.7] == f"{of_first} = {expected[0, 0]:.2f}"
    powers = [f"exp({score:g})" for score in scores[0].tolist()]
    assert at[9.8, -1.05] == f"{powers[3]} / ({' + '.join(powers)}) = {weights[0, 3]:.2f}"
    full = {(round(x, 3), round(y, 3)) for (x, y, *_), (face, _) in cells(ax).items() if face in (BLUE, ORANGE, GREEN)}
    of_the_row = {(0.0, 7.0), (1.0, 7.0), (2.0, 7.0), (7.9, 7.5), (7.9, 6.5), (7.9, 5.5), (12.8, 7.0)}
    below = {(9.8 + j, 2.0) for j in range(4)} | {(15.2, float(i)) for i in range(4)} | {(18.9, 2.0)}
    assert full == of_the_row | {(round(x, 3), y) for x, y in below}
    assert arrows(ax) == [((11.8, 5.15), (11.8, 3.85))]


@proven
@pytest.mark.parametrize("w", [4.0, -0.5])
def test_the_record_has_each_step_its_value_and_the_slope_that_torch_computes(w):
    (ax,) = axes(figures.record, w)
    parameter = torch.tensor(w, requires_grad=True)
    ((parameter - 1) ** 2).backward()
    slope = f"{parameter.grad.item():g}".replace("-", "−")
    at = {(round(x, 3), y): words.replace("−", "-") for words, x, y in texts(ax)}
    assert [at[x, 0] for x in (0, 5.6, 11.2)] == [f"w = {w:g}", f"w - 1 = {w - 1:g}", f"(w - 1)² = {(w - 1) ** 2:g}"]
    assert [at[x, -1.1].replace("-", "−") for x in (0, 5.6)] == [f"slope {slope}"] * 2
    assert at[11.2, -1.1] == "slope 1: the loss itself"
    assert (at[2.8, 0.6], at[8.4, 0.6]) == ("subtract 1", "square")
    assert (at[2.8, -0.6], at[8.4, -0.6].replace("-", "−")) == ("× 1", f"× 2 (w − 1) = {slope}")
    assert (at[5.6, 1.6], at[5.6, -2]) == ("forward: values →", "← backward: slopes of the loss")
    ends = [((1.45, 0.2), (4.15, 0.2)), ((4.15, -0.2), (1.45, -0.2)), ((7.05, 0.2), (9.75, 0.2)),
            ((9.75, -0.2), (7.05, -0.2))]  # fmt: skip
    assert [end for pair in arrows(ax) for end in pair] == [pytest.approx(end) for pair in ends for end in pair]
    assert boxed(ax) == [words for words, _, y in texts(ax) if y == 0]


def numbers(ax, left, right):
    """The numbers between two places, row by row from the top, and those of them that are real: not copies, dotted."""
    inside = [(-y, x, int(words.replace("−", "-"))) for words, x, y in texts(ax)
              if left < x < right and words.lstrip("−").isdigit()]  # fmt: skip
    rows = sorted({y for y, *_ in inside})
    real = {(x + 0.5, y + 0.5) for (x, y, *_), (colour, _) in cells(ax).items() if colour != "#ffffff"}
    table = [[(number, (x, -y) in real) for at, x, number in sorted(inside) if at == y] for y in rows]
    return [[number for number, _ in row] for row in table], [[is_real for _, is_real in row] for row in table]


@proven
def test_broadcasting_writes_copies_in_dotted_cells_and_the_difference_beside():
    (ax,) = axes(figures.broadcasting, "(3, 1)", "(4,)")
    a, b = torch.tensor([[10], [20], [30]]), torch.arange(1, 5)
    assert numbers(ax, 0, 5) == (a.expand(3, 4).tolist(), [[True, False, False, False]] * 3)
    assert numbers(ax, 6, 11) == (b.expand(3, 4).tolist(), [[True] * 4, [False] * 4, [False] * 4])
    assert numbers(ax, 12, 18) == ((a - b).tolist(), [[True] * 4] * 3)
    a_shapes, b_shapes = "(3, 1) → (3, 4)", "(4,) → (1, 4) → (3, 4)"  # 1s on the left first, then stretched
    at = places(ax, "a", "b", "a − b", a_shapes, b_shapes, "(3, 4)", "−", "=")
    assert [name for name, _ in sorted(at.items(), key=lambda each: each[1])] == [
        a_shapes, "a", "−", b_shapes, "b", "=", "(3, 4)", "a − b"
    ]  # fmt: skip


@proven
def test_what_does_not_broadcast_is_drawn_as_it_is_and_said():
    (ax,) = axes(figures.broadcasting, "(3, 4)", "(3,)")
    a = [[10, 20, 30, 40], [50, 60, 70, 80], [90, 100, 110, 120]]
    assert numbers(ax, 0, 5) == (a, [[True] * 4] * 3) and numbers(ax, 6, 11) == ([[1, 2, 3]], [[True] * 3])
    assert places(ax, "a", "b", "does not fit:\n4 against 3\nin the last axis")["a"][0] == 2.3
    assert [colour for colour, _ in cells(ax).values()] == [figures.FILL[BLUE]] * 12 + [figures.FILL[ORANGE]] * 3


@proven
def test_a_rectangle_is_hatched_where_it_is_padded():
    (ax,) = axes(figures.padded_batch, {"lamp": [5], "kettle": [4, 3], "bowl": [7]}, pad=0, means=[5, 3.5, 7])
    assert {(x, y): hatch for (x, y, *_), (_, hatch) in cells(ax).items()} == {
        (0, 2): "", (1, 2): "////", (0, 1): "", (1, 1): "", (0, 0): "", (1, 0): "////",
    }  # fmt: skip
    at = {(x, y): words for words, x, y in texts(ax)}
    rows = [[at[x, y] for x in (-0.15, 0.5, 1.5, 2.3)] for y in (2.5, 1.5, 0.5)]
    assert rows == [
        ["lamp", "5", "0", "5 / 1 = 5.00"], ["kettle", "4", "3", "7 / 2 = 3.50"], ["bowl", "7", "0", "7 / 1 = 7.00"]
    ]  # fmt: skip
    assert at[2.3, 3.35] == "sum / count = mean"


def test_padding_that_is_counted_stands_in_the_divisor():
    (ax,) = axes(figures.padded_batch, {"lamp": [5], "kettle": [4, 3]}, pad=0, means=[2.5, 3.5], counted=True)
    assert [words for words, *_ in texts(ax) if "/ 2" in words] == ["5 / 2 = 2.50", "7 / 2 = 3.50"]
    assert {hatch for _, hatch in cells(ax).values()} == {""}


@proven
def test_clouds_are_scattered_where_their_points_are_over_what_is_impossible():
    clouds = {"a": (torch.tensor([1.0, 2, 4]), torch.tensor([0.1, 0.5, 0.2])),
              "b": (torch.tensor([3.0, 5]), torch.tensor([0.7, 0.3]))}  # fmt: skip
    a, b = axes(figures.scatter_panels, clouds, "length", "loss", impossible=(0, 0.25), diagonal="y = x", band="no")
    assert [words.get_text() for words in a.get_legend().get_texts()] == ["no", "y = x"] and b.get_legend() is None
    assert (a.get_title(), b.get_title()) == ("a", "b") and (a.get_xlabel(), a.get_ylabel()) == ("length", "loss")
    assert dots(a) == [(1, 0.1), (2, 0.5), (4, 0.2)] and dots(b) == [(3, 0.7), (5, 0.3)]
    assert strokes(a) == [[(1, 1), (4, 4)]] and strokes(b) == [[(3, 3), (5, 5)]]
    for ax in (a, b):
        assert [*cells(ax)] == [(0, 0, 1, 0.25)]                 # all along, in shares of the axes
        assert ax.get_ylim() == a.get_ylim()


@proven
def test_exponents_stand_where_they_are_with_the_softmax_of_each_row():
    (ax,) = axes(figures.exp_range, torch.tensor([0.0, 2.0, 5.0]), 90)
    assert dots(ax) == [(90, 1), (92, 1), (95, 1), (-5, 0), (-3, 0), (0, 0)]
    assert labels(ax.yaxis) == {1: "as written", 0: "largest\nsubtracted"}
    assert ax.get_title() == "scores shifted by +90"
    at = places(ax)
    assert at["softmax = NaN, NaN, NaN  wrong"] == (-8, 0.77) and at["softmax = 0.006, 0.047, 0.946"] == (-8, -0.23)
    assert at["exp = ∞, ∞, ∞"] == (-8, 1.23) and at["exp = 0.00674, 0.0498, 1"] == (-8, 0.23)
    assert [f"{x:.2f}" for x in torch.tensor([0.0, 2, 5]).softmax(0)] == ["0.01", "0.05", "0.95"]
    # Where torch's exp is infinite, and where it is 0.
    (high, _, far, _), (low, _, wide, _) = cells(ax)
    assert torch.tensor([high - 0.001, high + 0.001]).exp().isinf().tolist() == [False, True]
    assert (torch.tensor([low + wide - 0.1, low + wide + 0.1]).exp() == 0).tolist() == [True, False]
    assert (high + far, low) == (135, -135)
    assert high < at["exp = ∞"][0] < 135 and -135 < at["exp = 0"][0] < low + wide
    up, down, *rows = strokes(ax)
    assert up == [(pytest.approx(high), 0), (pytest.approx(high), 1)]
    assert down == [(pytest.approx(low + wide), 0), (pytest.approx(low + wide), 1)]
    assert rows == [[(0, 1), (1, 1)], [(0, 0), (1, 0)]]


@pytest.mark.parametrize(
    ("shift", "exponentials", "weights"),
    [
        (-106, "0, 0, 1.4e−44", "0.000, 0.000, 1.000  wrong"),
        (-102, "5.61e−45, 3.78e−44, 7.47e−43", "0.007, 0.048, 0.945  wrong"),
        (0, "1, 7.39, 148", "0.006, 0.047, 0.946"),
    ],
)
def test_the_exponentials_of_what_is_written_stand_over_it(shift, exponentials, weights):
    drawn, _ = figures.exp_range(torch.tensor([0.0, 2.0, 5.0]), shift)
    at = {(x, y): words for words, x, y in texts(drawn.axes[0])}
    assert at[-8, 1.23] == f"exp = {exponentials}" and at[-8, 0.77] == f"softmax = {weights}"


@proven
def test_the_drills_picture_asks_and_does_not_answer():
    (ax,) = axes(viz.shape_drill, figures.SAY_THE_SHAPE[:2], told=False)
    said = [words for words, *_ in texts(ax)]
    assert said[3:] == [
        "1", "x (5, 2, 7)", "x.sum(dim=-2)", "(5, 2)   (2, 7)   (5, 7)   (5, 1, 7)",
        "2", "x (5, 2, 7)", "x / x.norm(dim=1, keepdim=True)", "(5, 1, 7)   (5, 7)   an error   (5, 2, 7)",
    ]  # fmt: skip
    assert [y for _, _, y in texts(ax)] == [-1] * 3 + [0] * 4 + [1] * 4 and texts(ax)[3][1] < texts(ax)[4][1]
    assert "Answers" not in viz.shape_drill(figures.SAY_THE_SHAPE[:2], told=False).still()[1]


def test_the_page_folds_every_answer_of_the_drills():
    page = (course.lesson("a00").folder / "lecture.py").read_text(encoding="utf-8")
    folded = " ".join(re.sub(r"\n# ", " ", page).split())
    for place, question in enumerate(figures.SAY_THE_SHAPE):
        assert f"({place % 6 + 1}) {question.right}: {question.why}" in folded
