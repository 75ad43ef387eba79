"""Pictures of shapes have as many cells as the tensors, and the numbers that torch computes."""

import re

import pytest
import torch
from drawn import arrows, axes, boxed, cells, dots, joined, labels, places, strokes, texts
from matplotlib.colors import to_hex
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
    tables = {(0.0, 11.5): (customers, "g"), (5.2, 11.0): (products.mT / 4, "g"), (10.4, 11.5): (scores, ".2f"),
              (0.0, 5.9): (scores, ".2f"), (14.3, 5.9): (weights, ".2f"), (0.0, 0.4): (weights, ".2f"),
              (5.2, -0.6): (means[:, None], ".2f"), (10.0, 0.4): (expected, ".2f")}  # fmt: skip
    for (left, bottom), (table, form) in tables.items():
        rows, columns = table.shape
        middles = [round(bottom + rows - 0.5 - i, 3) for i in range(rows)]
        there = [[at[round(left + j + 0.5, 3), y] for j in range(columns)] for y in middles]
        assert there == [[f"{number:{form}}" for number in row] for row in table.tolist()]
    named = {(1.5, 13.95): "customers (2, 3)", (7.2, 14.45): "products.mT (3, 4)", (12.4, 13.95): "scores (2, 4)",
             (2.0, 8.35): "scores (2, 4)", (16.3, 8.35): "weights (2, 4)", (2.0, 2.85): "weights (2, 4)",
             (5.7, 3.85): "means (4, 1)", (10.5, 2.85): "expected (2, 1)",
             (1.5, 14.55): "queries", (7.2, 15.05): "keys", (5.7, 4.45): "values",
             (3.5, 12.5): "@", (9.8, 12.5): "=", (4.6, 1.4): "@", (9.4, 1.4): "=",
             (-2.7, 15.4): "① dot products of all pairs", (-2.7, 9.3): "② softmax along each row",
             (-2.7, 4.3): "③ average of the values",
             (12.4, 11.1): f"2 · 0.75 + 0.5 · 0.375 + 1 · 0.625 = {scores[0, 3]:g}",
             (18.45, 7.4): "sum 1.00", (18.45, 6.4): "sum 1.00", (9.15, 7.8): "p's weight for the z:"}  # fmt: skip
    assert {place: at[place] for place in named} == named
    for bottom in (11.5, 5.9, 0.4):
        assert [at[-0.2, round(bottom + 1.5 - i, 3)] for i in range(2)] == ["p", "q"]
    assert [at[round(5.7 + j, 3), 10.8] for j in range(4)] == [at[round(14.8 + j, 3), 5.7] for j in range(4)] == names
    assert [at[6.35, round(2.9 - j, 3)] for j in range(4)] == names
    assert [at[j + 0.5, 11.2] for j in range(3)] == [at[5.1, 13.5 - j] for j in range(3)] == ["l", "h", "d"]
    of_first = " + ".join(f"{a:.3f} · {b:g}" for a, b in zip(weights[0].tolist(), means.tolist(), strict=True))
    assert at[11.2, 1.9] == f"= {of_first}"
    powers = [f"exp({score:g})" for score in scores[0].tolist()]
    assert at[9.15, 7.3] == f"{powers[3]} / ({' + '.join(powers)}) = {weights[0, 3]:.3f}"
    full = {(round(x, 3), round(y, 3)) for (x, y, *_), (face, _) in cells(ax).items() if face in (BLUE, ORANGE, GREEN)}
    first = {(0.0, 12.5), (1.0, 12.5), (2.0, 12.5), (8.2, 13.0), (8.2, 12.0), (8.2, 11.0), (13.4, 12.5)}
    second = {(float(j), 6.9) for j in range(4)} | {(17.3, 6.9)}
    third = {(float(j), 1.4) for j in range(4)} | {(5.2, i - 0.6) for i in range(4)} | {(10.0, 1.4)}
    assert full == first | second | {(x, round(y, 3)) for x, y in third}
    assert arrows(ax) == [((4.4, 6.9), (13.9, 6.9))]


@proven
@pytest.mark.parametrize("w", [4.0, -0.5])
def test_the_record_has_both_paths_with_their_values_and_adds_the_slopes_that_torch_computes(w):
    (ax,) = axes(figures.record, w)
    parameter = torch.tensor(w, requires_grad=True)
    ((parameter - 1) ** 2 + 2 * parameter).backward()
    at = {(round(x, 3), round(y, 3)): words.replace("−", "-") for words, x, y in texts(ax)}
    first = f"{2 * (w - 1):g}"
    boxes = {(0, 0): f"w = {w:g}", (5.6, 1.9): f"w - 1 = {w - 1:g}", (12.6, 1.9): f"(w - 1)² = {(w - 1) ** 2:g}",
             (9.1, -1.9): f"2w = {2 * w:g}", (18.2, 0): f"loss = {(w - 1) ** 2 + 2 * w:g}"}  # fmt: skip
    slopes = {(0, -0.95): f"slope {first} + 2 = {parameter.grad.item():g}", (5.6, 2.85): f"slope {first}",
              (12.6, 2.85): "slope 1", (9.1, -2.85): "slope 1", (18.2, -0.95): "slope 1"}  # fmt: skip
    ways = {(9.1, 3.75): "forward: values →", (9.1, -3.45): "← backward: slopes of the loss"}
    assert {place: at[place] for place in boxes | slopes | ways} == boxes | slopes | ways
    assert sorted(boxed(ax)) == sorted(words.replace("-", "−") for words in boxes.values())
    # What each step does stands over its arrows, and its own slope under them.
    steps = sorted((x, y, words) for (x, y), words in at.items() if (x, y) not in boxes | slopes | ways)
    assert [words for *_, words in steps] == [
        "subtract 1", "× 1", "× 2", "double", f"× 2 (w - 1) = {first}", "square", "add", "× 1", "× 1", "add"
    ]  # fmt: skip
    assert [y > 0 for _, y, _ in steps] == [True, True, False, False, True, True, False, False, True, True]
    named = [(start.split(" = ")[0], end.split(" = ")[0]) for start, end in joined(ax)]
    assert named == [pair for step in (("w", "w − 1"), ("w − 1", "(w − 1)²"), ("(w − 1)²", "loss"), ("w", "2w"),
                                       ("2w", "loss")) for pair in (step, step[::-1])]  # fmt: skip


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
        ["lamp", "5", "0", "5 / 1 = 5"], ["kettle", "4", "3", "7 / 2 = 3.5"], ["bowl", "7", "0", "7 / 1 = 7"]
    ]  # fmt: skip
    assert at[2.3, 3.35] == "sum / count = mean" and at[1.5, -0.35] == "padding"


def test_a_cell_is_hatched_where_its_position_is_not_below_the_length_beside_it():
    lengths = {"lamp": 1, "kettle": 3, "bowl": 2}
    (ax,) = axes(figures.padded_batch, {name: [4] * n for name, n in lengths.items()}, pad=0, compared=True)
    at = {(x, y): words for words, x, y in texts(ax)}
    assert [at[j + 0.5, 3.35] for j in range(3)] == ["0", "1", "2"] and at[1.5, 3.9] == "position"
    assert [(at[-1.4, y], at[-0.65, y]) for y in (2.5, 1.5, 0.5)] == [("lamp", "1"), ("kettle", "3"), ("bowl", "2")]
    assert at[-0.65, 3.35] == "length"
    for (x, y, *_), (_, hatch) in cells(ax).items():
        counts = int(at[x + 0.5, 3.35]) < int(at[-0.65, y + 0.5])
        assert (hatch, at[x + 0.5, y + 0.5]) == (("", "4") if counts else ("////", "0"))


def test_padding_that_is_counted_stands_in_the_divisor():
    rows = {"lamp": [5], "kettle": [4, 3, 1, 1, 1, 1, 1, 1]}
    (ax,) = axes(figures.padded_batch, rows, pad=0, means=[0.625, 1.625], counted=True, marked="lamp")
    assert [text.get_text() for text in ax.texts if text.get_color() == ORANGE] == ["5 / 8 = 0.625"]
    assert [words for words, *_ in texts(ax) if "/ 8" in words] == ["5 / 8 = 0.625", "13 / 8 = 1.625"]
    assert {hatch for _, hatch in cells(ax).values()} == {""}
    assert "#ffffff" not in {face for face, _ in cells(ax).values()}


@proven
def test_clouds_are_scattered_where_their_points_are_the_first_in_orange():
    clouds = {"a": (torch.tensor([1.0, 2, 4]), torch.tensor([0.1, 0.5, 0.2])),
              "b": (torch.tensor([3.0, 5]), torch.tensor([0.7, 0.3]))}  # fmt: skip
    a, b = axes(figures.scatter_panels, clouds, "length", "loss", diagonal="y = x")
    assert texts(a) == [("y = x  ", 3.7, 3.7)] and texts(b) == []
    assert (a.get_title(), b.get_title()) == ("a", "b") and (a.get_xlabel(), a.get_ylabel()) == ("length", "loss")
    assert dots(a) == [(1, 0.1), (2, 0.5), (4, 0.2)] and dots(b) == [(3, 0.7), (5, 0.3)]
    assert strokes(a) == [[(1, 1), (4, 4)]] and strokes(b) == [[(3, 3), (5, 5)]]
    for ax, colour in ((a, ORANGE), (b, BLUE)):
        assert ax.title.get_color() == to_hex(ax.collections[0].get_facecolor()[0]) == colour
        assert ax.get_ylim() == a.get_ylim()


@proven
def test_each_loss_is_drawn_at_its_step_and_named_over_its_end():
    (ax,) = axes(figures.falling, {"a": [8.0, 4.0, 3.0], "b": [8.0, 2.0, 0.5]}, "error")
    assert strokes(ax) == [[(1, 8), (2, 4), (3, 3)], [(1, 8), (2, 2), (3, 0.5)]]
    assert places(ax) == {"a": (3, pytest.approx(3.6)), "b": (3, pytest.approx(0.6))}
    assert [text.get_color() for text in ax.texts] == [line.get_color() for line in ax.lines]
    assert (ax.get_yscale(), ax.get_xlabel(), ax.get_ylabel()) == ("log", "training step", "error")


@proven
def test_exponents_stand_where_they_are_with_the_softmax_of_each_row():
    (ax,) = axes(figures.exp_range, torch.tensor([0.0, 2.0, 5.0]), 90)
    assert dots(ax) == [(90, 1), (92, 1), (95, 1), (-5, 0.22), (-3, 0.22), (0, 0.22)]
    assert labels(ax.yaxis) == {1: "as written", 0.22: "largest\nsubtracted"}
    assert ax.get_title() == "scores 0, 2, 5, shifted by +90"
    at = places(ax)
    assert at["softmax = NaN, NaN, NaN  wrong"] == (0, 0.72) and at["softmax = 0.006, 0.047, 0.946"] == (0, -0.06)
    assert at["exp = ∞, ∞, ∞"] == (0, 1.27)
    assert [f"{x:.2f}" for x in torch.tensor([0.0, 2, 5]).softmax(0)] == ["0.01", "0.05", "0.95"]
    # Where torch's exp is infinite, and where it is 0.
    (high, _, far, _), (low, _, wide, _), (few, _, broad, _) = cells(ax)
    assert torch.tensor([high - 0.001, high + 0.001]).exp().isinf().tolist() == [False, True]
    assert (torch.tensor([low + wide - 0.1, low + wide + 0.1]).exp() == 0).tolist() == [True, False]
    assert (high + far, low) == (135, -135)
    assert high < at["exp = ∞"][0] < 135 and -135 < at["exp = 0"][0] < low + wide
    # Between the smallest number at all and the smallest with all its digits.
    assert few == pytest.approx(low + wide) and torch.tensor(few + broad).exp() == pytest.approx(2.0**-126, rel=1e-4)
    assert few + broad < at["← subnormal: few digits"][0] < 0                # beside the band, which is narrow
    hatched, again, pale = cells(ax).values()
    assert hatched == again and hatched[1] == "////" and pale == (figures.FILL[ORANGE], "")
    up, down, full, *rows = strokes(ax)
    assert full == [(pytest.approx(few + broad), 0), (pytest.approx(few + broad), 1)]
    assert up == [(pytest.approx(high), 0), (pytest.approx(high), 1)]
    assert down == [(pytest.approx(low + wide), 0), (pytest.approx(low + wide), 1)]
    assert rows == [[(0, 1), (1, 1)], [(0, 0.22), (1, 0.22)]]


@pytest.mark.parametrize(
    ("shift", "exponentials", "weights"),
    [
        (-106, "0, 0, 1.4e−44", "0.000, 0.000, 1.000  wrong"),
        (-104, "0, 5.61e−45, 1.01e−43", "0.000, 0.053, 0.947  wrong"),
        (0, "1, 7.39, 148", "0.006, 0.047, 0.946"),
    ],
)
def test_the_exponentials_of_what_is_written_stand_over_it(shift, exponentials, weights):
    drawn, _ = figures.exp_range(torch.tensor([0.0, 2.0, 5.0]), shift)
    at = {(x, y): words for words, x, y in texts(drawn.axes[0])}
    assert at[0, 1.27] == f"exp = {exponentials}" and at[0, 0.72] == f"softmax = {weights}"


@proven
def test_the_drills_picture_asks_and_does_not_answer():
    (ax,) = axes(viz.shape_drill, figures.SAY_THE_SHAPE[:2], told=False)
    said = [words for words, *_ in texts(ax)]
    assert said[3:] == [
        "1", "x (5, 2, 7)", "x.sum(dim=-2)", "(5, 2)   (2, 7)   (5, 7)   (5, 1, 7)",
        "2", "x (5, 2, 7)", "x / x.amax(dim=1, keepdim=True)", "(5, 1, 7)   (5, 7)   an error   (5, 2, 7)",
    ]  # fmt: skip
    assert [y for _, _, y in texts(ax)] == [-1] * 3 + [0] * 4 + [1] * 4 and texts(ax)[3][1] < texts(ax)[4][1]
    assert "Answers" not in viz.shape_drill(figures.SAY_THE_SHAPE[:2], told=False).still()[1]


def test_the_page_folds_every_answer_of_the_drills():
    page = (course.lesson("a00").folder / "lecture.py").read_text(encoding="utf-8")
    folded = " ".join(re.sub(r"\n# ", " ", page).split())
    for question in figures.SAY_THE_SHAPE:
        right = f"<code>{question.right}</code>." if question.right.startswith("(") else "An error."
        assert f"<li>{right} {question.why}</li>" in folded
    assert folded.count("<li>") == len(figures.SAY_THE_SHAPE)


@proven
def test_a_row_and_a_column_of_a_matrix_product_cross_in_their_dot_product():
    customers = torch.tensor([[2.0, 0.5, 1.0], [0.0, 1.0, 1.5]])
    products = torch.tensor([[0.0, 3.0, 4.0], [5.0, 2.0, 0.5], [6.0, 7.0, 3.0], [3.0, 1.5, 2.5]])
    names = ["w", "x", "y", "z"]
    (ax,) = axes(figures.row_times_column, customers, products, ["p", "q"], names, ["l", "h", "t"], 1, 2)
    at = {(round(x, 3), round(y, 3)): words for words, x, y in texts(ax)}
    tables = {(0.0, 0.0): customers, (5.3, 3.1): products.mT, (5.3, 0.0): customers @ products.mT}
    for (left, bottom), table in tables.items():
        rows, columns = table.shape
        middles = [round(bottom + rows - 0.5 - i, 3) for i in range(rows)]
        there = [[at[round(left + j + 0.5, 3), y] for j in range(columns)] for y in middles]
        assert there == [[f"{number:g}" for number in row] for row in table.tolist()]
    named = {(1.5, 2.45): "customers (n, d)", (7.3, 8.3): "products.mT (d, m)", (7.3, -0.45): "scores (n, m)",
             (-0.2, 1.5): "p", (-0.2, 0.5): "q", (9.7, 3.7): "d is summed over",
             (9.7, 0.5): "0 · 6 + 1 · 7 + 1.5 · 3 = 11.5"}  # fmt: skip
    assert {place: at[place] for place in named} == named
    assert [at[j + 0.5, -0.3] for j in range(3)] == [at[5.1, round(5.6 - j, 3)] for j in range(3)] == ["l", "h", "t"]
    assert [at[round(5.8 + j, 3), 6.3] for j in range(4)] == names
    for y, said in ((5.5, "(n, d) @ (d, m) = (n, m)"), (4.6, "(2, 3) @ (3, 4) = (2, 4)")):
        assert [at[round(9.7 + 0.2 * i, 3), y] for i in range(len(said))] == list(said)
    green = sorted(text.get_text() for text in ax.texts if text.get_color() == GREEN)
    assert green == sorted(["d", "d", "3", "3", "d is summed over", *"lht", *"lht"])
    full = {(round(x, 3), round(y, 3)) for (x, y, *_), (face, _) in cells(ax).items() if face in (BLUE, ORANGE)}
    assert full == {(0.0, 0.0), (1.0, 0.0), (2.0, 0.0), (7.3, 3.1), (7.3, 4.1), (7.3, 5.1), (7.3, 0.0)}
    assert arrows(ax) == [((3.15, 0.5), (5.15, 0.5)), ((7.8, 2.95), (7.8, 2.15))]
