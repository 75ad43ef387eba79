"""Pictures of shapes have as many cells as the tensors, and the numbers that torch computes."""

from collections import Counter

import pytest
import torch
from drawn import axes, cells, dots, labels, places, strokes, texts
from proven import proven

from attncourse.viz.style import BLUE, ORANGE
from attncourse_lessons import course

figures = course.part("getting_ready", "figures")


@proven
def test_a_batch_is_a_pile_of_sheets_and_each_mean_a_table_without_its_axis():
    (ax,) = axes(figures.batch_axes)
    sheets, tables = Counter(), {}
    for left, low, size, _ in cells(ax):
        if size == 1:
            sheets[round(left % 1, 2)] += 1                      # the second sheet stands 0.55 behind the first
        else:
            tables.setdefault(round(low % 0.72, 2), set()).add(left)
    assert sheets == {0: 3 * 4, 0.55: 3 * 4}
    assert {colour for place, (colour, _) in cells(ax).items() if place[2] == 1} == {figures.FILL[BLUE]}
    x = torch.zeros(2, 3, 4)
    at = places(ax)
    for dim, names in enumerate(("n, d", "batch, d", "batch, n")):
        shape = tuple(x.mean(dim=dim).shape)
        middle, high = at[f"x.mean(dim={dim})"]
        below, low = at[f"({names}) = {shape}"]
        assert below == middle and low < 0 < high
        own = [place for place in cells(ax) if place[2] != 1 and abs(place[0] + 0.36 - middle) < 0.36 * shape[1]]
        columns, rows = {left for left, *_ in own}, {low for _, low, *_ in own}
        assert (len(rows), len(columns), len(own)) == (*shape, shape[0] * shape[1])
        assert (min(columns) + max(columns) + 0.72) / 2 == pytest.approx(middle)
    assert (at["n"], at["d"]) == ((-0.35, 1.5), (2, -0.35))      # beside the rows, below the columns
    assert at["batch"][0] > 4 and at["batch"][1] > 3
    assert at["x: (batch, n, d) = (2, 3, 4)"][0] == 2


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
    at = places(ax, "a", "b", "a − b", "(3, 1)", "(4,)", "(3, 4)", "−", "=")
    assert [name for name, _ in sorted(at.items(), key=lambda each: each[1])] == [
        "(3, 1)", "a", "−", "(4,)", "b", "=", "(3, 4)", "a − b"
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
        ["lamp", "5", "0", "mean 5.00"], ["kettle", "4", "3", "mean 3.50"], ["bowl", "7", "0", "mean 7.00"]
    ]  # fmt: skip


@proven
def test_clouds_are_scattered_where_their_points_are_over_what_is_impossible():
    clouds = {"a": (torch.tensor([1.0, 2, 4]), torch.tensor([0.1, 0.5, 0.2])),
              "b": (torch.tensor([3.0, 5]), torch.tensor([0.7, 0.3]))}  # fmt: skip
    a, b = axes(figures.scatter_panels, clouds, "length", "loss", impossible=(0, 0.25), diagonal=True)
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
    assert labels(ax.yaxis) == {1: "as they come", 0: "less the\nlargest"}
    at = places(ax)
    assert at["softmax = NaN, NaN, NaN  wrong"] == (-8, 0.7) and at["softmax = 0.01, 0.05, 0.95"] == (-8, -0.3)
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
