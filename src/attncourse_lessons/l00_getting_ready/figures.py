"""Pictures of shapes: what an axis is, what broadcasting stretches, where padding stands, what float32 can hold."""

import ast
from collections.abc import Mapping, Sequence

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from torch import Tensor

from attncourse.viz.diagrams import arrow, box
from attncourse.viz.drill import Question
from attncourse.viz.style import BLUE, GREEN, GREY, INK, ORANGE, PALE, figure, show, stage

FILL = {BLUE: "#d6e6f2", ORANGE: "#f8e0d2", GREEN: "#d2ece4", GREY: "#f2f2f2"}

SAY_THE_SHAPE = (
    Question({"x": (5, 2, 7)}, "x.sum(dim=-2)", ["(5, 2)", "(2, 7)", "(5, 1, 7)"],
             "The argument dim names the axis that goes, the last but one, of length 2."),
    Question({"x": (5, 2, 7)}, "x / x.amax(dim=1, keepdim=True)", ["(5, 1, 7)", "(5, 7)", "an error"],
             "The shape (5, 1, 7) stands below (5, 2, 7), and its 1 stretches, so x keeps its shape."),
    Question({"x": (6, 4)}, "x - x.mean(dim=1)", ["(6, 4)", "(6,)", "(6, 6)"],
             "The mean is (6,). Aligned on the right, 6 stands below 4. keepdim=True would fit."),
    Question({"a": (6, 1), "b": (2, 1, 3)}, "a * b", ["(2, 1, 3)", "(6, 3)", "an error"],
             "Padded on the left, a is (1, 6, 1). It meets (2, 1, 3), and each 1 stretches."),
    Question({"x": (4, 3)}, "x[:, None] - x", ["(4, 3)", "(4, 1, 3)", "an error"],
             "The shapes (4, 1, 3) and (1, 4, 3) give every row minus every row."),
    Question({"x": (5, 2, 7)}, "x.mT[:, 0]", ["(7, 2)", "(5, 7)", "(5, 1, 2)"],
             "First x.mT is (5, 7, 2). A number in an index takes its axis away, and a colon keeps its own."),
    Question({"w": (2, 5), "x": (2, 5, 3)}, "torch.einsum('bn,bnd->bd', w, x)", ["(2, 5)", "(5, 3)", "an error"],
             "The letter n is missing after the arrow, so n is summed over, in each of 2 sentences."),
    Question({"weights": (3, 5), "values": (5, 2)}, "weights @ values", ["(3, 5)", "(5, 2)", "an error"],
             "Each of the 3 rows of weights averages 5 values."),
    Question({"q": (3, 4), "k": (5, 4)}, "q @ k", ["(3, 5)", "(3, 4)", "(4, 4)"],
             "The last axis of q, 4, meets the last but one of k, 5. k.mT is needed."),
    Question({"values": (2, 3, 4), "weights": (2, 3)}, "values * weights", ["(2, 3, 4)", "(2, 3)", "(2, 4)"],
             "Aligned on the right, 3 stands below 4. A last axis of length 1 would fit."),
    Question({"scores": (2, 3, 5), "bias": (2, 5)}, "scores + bias[:, None]", ["(2, 5)", "(2, 2, 3, 5)", "an error"],
             "The bias is (2, 1, 5), so the bias of a sentence serves all rows of the sentence."),
)  # fmt: skip


def batch_axes(x: Tensor) -> None:
    """A tensor (batch, n, d) with its numbers, and its mean over each axis: a row for each.

    One cell of each mean is filled, and so are the cells of x that it is the mean of. Sizes up to 2, 3 and 4 fit.
    """
    names = ("batch", "n", "d")
    batch, n, d = x.shape
    drawn, ax = figure(8.6, 6.4)
    _square(ax, (-1.3, 18.2), (-0.9, 3 * (n + 2.2) - 0.9))
    said = []
    for gone in range(3):
        bottom = (2 - gone) * (n + 2.2)
        mean = x.mean(dim=gone)
        at = tuple(size - 1 - (size > 2) for size in mean.shape)             # which cell of the mean is filled
        source = list(at)
        source.insert(gone, slice(None))                                     # type: ignore[arg-type]
        chosen = torch.zeros_like(x, dtype=torch.bool)
        chosen[tuple(source)] = True
        for sheet in range(batch):
            _numbers(ax, sheet * (d + 0.8), bottom, x[sheet], chosen[sheet], BLUE)
            ax.text(sheet * (d + 0.8) + d / 2, bottom + n + 0.4, f"x[{sheet}]", ha="center", va="center", fontsize=10)
        right = batch * (d + 0.8)
        arrow(ax, (right, bottom + n / 2), (right + 2.2, bottom + n / 2), colour=INK, width=1.5)
        ax.text(right + 0.9, bottom + n / 2 + 0.55, f"mean(dim={gone})", ha="center", va="center", fontsize=9.5,
                family="monospace")  # fmt: skip
        rows, columns = mean.shape
        left, low = right + 3.2, bottom + (n - rows) / 2
        filled = torch.zeros_like(mean, dtype=torch.bool)
        filled[at] = True
        _numbers(ax, left, low, mean, filled, ORANGE)
        kept = [name for axis, name in enumerate(names) if axis != gone]
        its_shape = f"({', '.join(kept)}) = {tuple(mean.shape)}"
        ax.text(left + columns / 2, low + rows + 0.4, its_shape, ha="center", va="center", fontsize=10)
        each = " + ".join(f"{number:g}" for number in x[chosen].tolist())
        sum_of = f"({each}) / {x.shape[gone]} = {mean[at]:g}"
        ax.text(left + columns / 2, low - 0.5, sum_of, ha="center", va="center", fontsize=9.5, color=INK)
        on = bottom + n + 0.4
        ax.annotate("", (1.5 * d, on), (d / 2 + 0.8, on), arrowprops={"arrowstyle": "->", "color": GREY})
        ax.text(d + 0.4, on + 0.35, "batch", ha="center", va="center", fontsize=10.5)
        ax.annotate("", (-0.3, bottom), (-0.3, bottom + n), arrowprops={"arrowstyle": "->", "color": GREY})
        ax.text(-0.55, bottom + n / 2, "n", ha="right", va="center", fontsize=10.5)
        ax.annotate("", (d, bottom - 0.3), (0, bottom - 0.3), arrowprops={"arrowstyle": "->", "color": GREY})
        ax.text(d / 2, bottom - 0.62, "d", ha="center", va="center", fontsize=10.5)
        said.append(f"over dim {gone} ({names[gone]}) it is {tuple(mean.shape)}, for instance {sum_of}")
    show(
        drawn,
        f"A tensor of shape (batch, n, d) = ({batch}, {n}, {d}) with its numbers, as {batch} sheets of {n} rows and "
        f"{d} columns, and its means: {'; '.join(said)}. The axis that is averaged over goes, the others stay.",
    )


def _numbers(
    ax: Axes, left: float, bottom: float, table: Tensor, filled: Tensor, colour: str, form: str = "g"
) -> None:
    """A table's cells with their numbers, the first row on top; those that are `filled` in full colour."""
    for (i, j), number in np.ndenumerate(table.numpy()):
        corner = (left + j, bottom + len(table) - 1 - i)
        face, ink = (colour, "white") if filled[i, j] else (FILL[colour], INK)
        ax.add_patch(Rectangle(corner, 1, 1, facecolor=face, edgecolor=colour, linewidth=1.1))
        middle = corner[0] + 0.5, corner[1] + 0.5
        ax.text(*middle, f"{number:{form}}", ha="center", va="center", fontsize=9.5, color=ink)


def row_times_column(
    customers: Tensor,
    products: Tensor,
    who: Sequence[str],
    names: Sequence[str],
    features: Sequence[str],
    row: int,
    column: int,
) -> None:
    """customers @ products.mT, the right matrix over the product: a `row` and a `column` cross in their dot product.

    `who` names the customers, `names` the products, `features` what both have. Two rows of three features, and four
    columns, fit.
    """
    right = products.mT
    scores = customers @ right
    (n, d), m = customers.shape, len(products)
    beside, over = d + 2.3, n + 1.1                                          # where the products stand
    end = beside + m + 0.4                                                   # what stands right of both tables
    drawn, ax = figure(7.8, 3.75)
    _square(ax, (-3.0, end + 6.2), (-0.8, over + d + 2.6))
    tables = (  # name, numbers, which are filled, left, bottom, colour
        ("customers (n, d)", customers, (row, slice(None)), 0.0, 0.0, BLUE),
        ("products.mT (d, m)", right, (slice(None), column), beside, over, BLUE),
        ("scores (n, m)", scores, (row, column), beside, 0.0, ORANGE),
    )
    for name, table, at, left, bottom, colour in tables:
        filled = torch.zeros_like(table, dtype=torch.bool)
        filled[at] = True
        _numbers(ax, left, bottom, table, filled, colour)
        high = {"c": n + 0.45, "p": over + d + 2.2, "s": -0.45}[name[0]]
        ax.text(left + table.shape[1] / 2, high, name, ha="center", va="center", fontsize=10)
    for i, name in enumerate(who):
        ax.text(-0.2, n - 0.5 - i, name, ha="right", va="center", fontsize=9, color=INK)
    for j, name in enumerate(features):                                      # under the customers, beside the products
        ax.text(j + 0.5, -0.3, name, ha="center", va="center", fontsize=9, color=GREEN)
        ax.text(beside - 0.2, over + d - 0.5 - j, name, ha="right", va="center", fontsize=9, color=GREEN)
    for j, name in enumerate(names):
        ax.text(beside + j + 0.5, over + d + 0.2, name, ha="center", va="bottom", rotation=90, fontsize=9, color=INK)
    across, down = n - 0.5 - row, beside + column + 0.5
    arrow(ax, (d + 0.15, across), (beside - 0.15, across), colour=INK, width=1.5)
    arrow(ax, (down, over - 0.15), (down, n + 0.15), colour=INK, width=1.5)
    for y, (rows, inner, columns) in ((over + 2.4, "ndm"), (over + 1.5, (n, d, m))):
        said = f"({rows}, {inner}) @ ({inner}, {columns}) = ({rows}, {columns})"
        for place, letter in enumerate(said):                                # d, which is summed over, in green
            ink = GREEN if place in (4, 10) else INK
            ax.text(end + 0.2 * place, y, letter, ha="left", va="center", fontsize=10, family="monospace", color=ink)
    ax.text(end, over + 0.6, "d is summed over", ha="left", va="center", fontsize=10, color=GREEN)
    terms = zip(customers[row].tolist(), products[column].tolist(), strict=True)
    dot = f"{' + '.join(f'{a:g} · {b:g}' for a, b in terms)} = {scores[row, column]:g}"
    ax.text(end, across, dot, ha="left", va="center", fontsize=10)
    show(
        drawn,
        f"The matrix product customers @ products.mT, (n, d) @ (d, m) = (n, m), here ({n}, {d}) @ ({d}, {m}) = ({n}, "
        f"{m}): d, the axis of {', '.join(features)}, is summed over. The customers stand beside the scores, the "
        f"transposed products over them. The row “{who[row]}” and the column “{names[column]}” cross in the number "
        f"{dot}.",
    )


def three_lines(
    customers: Tensor,
    products: Tensor,
    means: Tensor,
    who: Sequence[str],
    names: Sequence[str],
    features: Sequence[str],
    row: int,
    column: int,
) -> None:
    """Attention in three lines: all dot products, a softmax along each row, an average of `means` by the weights.

    `who` names the customers, `names` the products, `features` what both have. What goes into the result of one `row`
    is filled, and so is the `column` that meets it in one score. Two rows of three features, and four columns, fit.
    """
    scores = customers @ products.mT                                         # (2, 4)
    weights = scores.softmax(dim=-1)
    expected = weights @ means[:, None]                                      # (2, 1)
    drawn, ax = figure(9.2, 6.7)
    _square(ax, (-2.8, 20.0), (-0.9, 15.7))
    tables = (  # name, numbers, which are filled, left, bottom, colour, form
        ("customers", customers, (row, slice(None)), 0.0, 11.5, BLUE, "g"),
        ("products.mT", products.mT, (slice(None), column), 5.2, 11.0, BLUE, "g"),
        ("scores", scores, (row, column), 10.4, 11.5, ORANGE, ".2f"),
        ("scores", scores, (row, slice(None)), 0.0, 5.9, ORANGE, ".2f"),
        ("weights", weights, (row, column), 14.3, 5.9, ORANGE, ".2f"),
        ("weights", weights, (row, slice(None)), 0.0, 0.4, ORANGE, ".2f"),
        ("means", means[:, None], slice(None), 5.2, -0.6, BLUE, ".2f"),
        ("expected", expected, (row, 0), 10.0, 0.4, GREEN, ".2f"),
    )
    for name, table, at, left, bottom, colour, form in tables:
        filled = torch.zeros_like(table, dtype=torch.bool)
        filled[at] = True
        _numbers(ax, left, bottom, table, filled, colour, form)
        rows, columns = table.shape
        ax.text(left + columns / 2, bottom + rows + 0.45, f"{name} {tuple(table.shape)}", ha="center", va="center",
                fontsize=10)  # fmt: skip
    for top, line in ((15.4, "① dot products of all pairs"), (9.3, "② softmax along each row"),
                      (4.3, "③ average of the values")):  # fmt: skip
        ax.text(-2.7, top, line, ha="left", va="center", fontsize=10.5, color=INK, weight="bold")
    for x, top, role in ((1.5, 14.55, "queries"), (7.2, 15.05, "keys"), (5.7, 4.45, "values")):
        ax.text(x, top, role, ha="center", va="center", fontsize=10, color=GREY)
    for x, y, sign in ((3.5, 12.5, "@"), (9.8, 12.5, "="), (4.6, 1.4, "@"), (9.4, 1.4, "=")):
        ax.text(x, y, sign, ha="center", va="center", fontsize=13)
    for j, feature in enumerate(features):                                   # under the customers, beside the products
        ax.text(j + 0.5, 11.2, feature, ha="center", va="center", fontsize=9, color=INK)
        ax.text(5.1, 13.5 - j, feature, ha="right", va="center", fontsize=9, color=INK)
    for j, name in enumerate(names):
        for left, top in ((5.7, 10.8), (14.8, 5.7)):                         # under the products, under the weights
            ax.text(left + j, top, name, ha="center", va="top", rotation=90, fontsize=9, color=INK)
        ax.text(6.35, 2.9 - j, name, ha="left", va="center", fontsize=9, color=INK)
    for i, name in enumerate(who):
        for bottom in (11.5, 5.9, 0.4):                                      # beside the first table of each line
            ax.text(-0.2, bottom + 1.5 - i, name, ha="right", va="center", fontsize=9, color=INK)
        total = f"sum {weights[i].sum():.2f}"
        ax.text(18.45, 7.4 - i, total, ha="left", va="center", fontsize=9, color=INK)
    terms = zip(customers[row].tolist(), products[column].tolist(), strict=True)
    dot = f"{' + '.join(f'{a:g} · {b:g}' for a, b in terms)} = {scores[row, column]:g}"
    ax.text(12.4, 11.1, dot, ha="center", va="center", fontsize=9.5)
    arrow(ax, (4.4, 6.9), (13.9, 6.9), colour=INK, width=1.5)
    powers = " + ".join(f"exp({score:g})" for score in scores[row].tolist())
    share = f"exp({scores[row, column]:g}) / ({powers}) = {weights[row, column]:.3f}"
    ax.text(9.15, 7.8, f"{who[row]}'s weight for the {names[column]}:", ha="center", va="center", fontsize=9.5)
    ax.text(9.15, 7.3, share, ha="center", va="center", fontsize=9)
    parts = " + ".join(f"{a:.3f} · {b:g}" for a, b in zip(weights[row].tolist(), means.tolist(), strict=True))
    ax.text(11.2, 1.9 - row, f"= {parts}", ha="left", va="center", fontsize=9.5)
    given = ", ".join(f"{name} {weight:.3f}" for name, weight in zip(names, weights[row], strict=True))
    show(
        drawn,
        f"Attention in three lines. First, customers (2, 3), the queries, by {', '.join(features)}, times the "
        f"transposed products (3, 4), the keys, are the scores (2, 4), one of them {dot}. Second, a softmax along each "
        f"row makes weights of them, {share}: {given}. Third, the weights times the means (4, 1), the values, are what "
        f"each customer expects, (2, 1): {', '.join(f'{x:.2f}' for x in expected[:, 0])}, the "
        f"{'first' if row == 0 else 'second'} as {parts}.",
    )


def broadcasting(a: str, b: str) -> tuple[Figure, str]:
    """What a − b is for tensors of two shapes, given as "(3, 1)": real cells in frames, stretched ones dotted.

    For `explore`. One or two axes each.
    """
    shapes = {"a": ast.literal_eval(a), "b": ast.literal_eval(b)}
    values = {"a": 10 * torch.arange(1, 13), "b": torch.arange(1, 13)}
    tensors = {k: values[k][: int(np.prod(shape))].reshape(shape) for k, shape in shapes.items()}
    drawn, ax = figure(6.5, 2.1)
    _square(ax, (-0.4, 18.2), (-1.2, 4.4))
    ax.text(5.5, 1.5, "−", ha="center", va="center", fontsize=16)
    try:
        result = tensors["a"] - tensors["b"]
    except RuntimeError:
        for left, name, colour in ((0.3, "a", BLUE), (6.7, "b", ORANGE)):
            _tensor(ax, left, name, tensors[name], None, colour)
        axes = [tuple(reversed(shape)) for shape in shapes.values()]
        place, sizes = next((i, pair) for i, pair in enumerate(zip(*axes, strict=False)) if len({*pair, 1}) == 3)
        which = "last axis" if place == 0 else "last axis but one"
        ax.text(15.3, 1.5, f"does not fit:\n{sizes[0]} against {sizes[1]}\nin the {which}", ha="center", va="center")
        return drawn, f"{a} minus {b} does not fit: {sizes[0]} against {sizes[1]} in the {which}."
    for left, name, colour in ((0.3, "a", BLUE), (6.7, "b", ORANGE)):
        _tensor(ax, left, name, tensors[name], tuple(result.shape), colour)
    ax.text(11.9, 1.5, "=", ha="center", va="center", fontsize=16)
    _tensor(ax, 13.1, "a − b", result, None, GREEN)
    stretched = [name for name, tensor in tensors.items() if tensor.shape != result.shape]
    how = f"{' and '.join(stretched)} stretched" if stretched else "nothing stretched"
    return drawn, f"{a} minus {b} is {tuple(result.shape)}, with {how}: {result.tolist()}."


def record(w: float) -> None:
    """What autograd keeps of (w − 1)² + 2w: values from left to right in blue, slopes from right to left in orange."""
    parameter = torch.tensor(float(w), requires_grad=True)
    difference, double = parameter - 1, 2 * parameter
    square = difference**2
    loss = square + double
    for node in (difference, double, square, loss):
        node.retain_grad()
    loss.backward()
    nodes = {  # its name: where, its value and the slope there
        "w": (0.0, 0.0, parameter), "w − 1": (5.6, 1.9, difference), "(w − 1)²": (12.6, 1.9, square),
        "2w": (9.1, -1.9, double), "loss": (18.2, 0.0, loss),
    }  # fmt: skip
    slopes = {name: _number(float(node.grad)) for name, (_, _, node) in nodes.items()}  # type: ignore[arg-type]
    own = f"2 (w − 1) = {_number(2 * difference.item())}"
    drawn, ax = figure(9.0, 3.3)
    _square(ax, (-1.8, 19.9), (-3.7, 4.1))
    for name, (x, y, node) in nodes.items():
        box(ax, x, y, f"{name} = {_number(node.item())}", BLUE, width=3.0)
        said = f"slope {slopes['w − 1']} + 2 = {slopes['w']}" if name == "w" else f"slope {slopes[name]}"
        ax.text(x, y + (0.95 if y > 0 else -0.95), said, ha="center", va="center", fontsize=10.5, color=ORANGE)
    steps = (  # from, to, what the step does, its own slope
        ("w", "w − 1", "subtract 1", "1"), ("w − 1", "(w − 1)²", "square", own), ("(w − 1)²", "loss", "add", "1"),
        ("w", "2w", "double", "2"), ("2w", "loss", "add", "1"),
    )  # fmt: skip
    for start, end, does, factor in steps:
        (x0, y0, _), (x1, y1, _) = nodes[start], nodes[end]
        left, right = np.array([x0 + 1.75, y0 + np.sign(y1 - y0) * 0.2]), np.array([x1 - 1.72, y1])
        if end == "loss":
            left, right = np.array([x0 + 1.72, y0]), np.array([x1 - 1.72, y1 + np.sign(y0) * 0.3])
        along = (right - left) / np.hypot(*(right - left))
        beside = 0.17 * np.array([-along[1], along[0]])
        arrow(ax, tuple(left + beside), tuple(right + beside), colour=BLUE, width=1.6)
        arrow(ax, tuple(right - beside), tuple(left - beside), colour=ORANGE, width=1.6)
        middle, level = (left + right) / 2, abs(along[1]) < 0.01
        side = "center" if level else "right" if along[1] > 0 else "left"
        other = "center" if level else "left" if along[1] > 0 else "right"
        shift = 0.0 if level else np.sign(along[1]) * 0.25
        ax.text(middle[0] - shift, middle[1] + 0.55, does, ha=side, va="center", fontsize=10.5, color=BLUE)
        ax.text(middle[0] + shift, middle[1] - 0.6, f"× {factor}", ha=other, va="center", fontsize=10.5, color=ORANGE)
    ax.text(9.1, 3.75, "forward: values →", ha="center", va="center", fontsize=10.5, color=BLUE)
    ax.text(9.1, -3.45, "← backward: slopes of the loss", ha="center", va="center", fontsize=10.5, color=ORANGE)
    show(
        drawn,
        f"The computational graph of (w − 1)² + 2w at w = {_number(w)}. Forward, on two paths: subtract 1, which gives "
        f"{_number(difference.item())}, and square, which gives {_number(square.item())}; double, which gives "
        f"{_number(double.item())}. Their sum is the loss, {_number(loss.item())}. Backward: slope 1 at the loss; "
        f"times {own} it is {slopes['w − 1']} at w − 1; through 2w comes 2. Together the slope at w is "
        f"{slopes['w']}.",
    )


def _number(x: float) -> str:
    return f"{x:g}".replace("-", "−")


def padded_batch(
    rows: Mapping[str, Sequence[float]],
    pad: object = "pad",
    title: str = "",
    means: Sequence[float] | None = None,
    counted: bool = False,
    marked: str = "",
    compared: bool = False,
) -> None:
    """Sequences of several lengths, by name, as one rectangle. `means` stand at the right, each with its division.

    The padding is hatched, unless it is `counted` like what is real: then the divisor is the width. The mean of the
    row that is `marked` is orange. What a mask compares stands at the edges, if `compared`: positions and lengths.
    """
    n = max(map(len, rows.values()))
    names, divisions = max(map(len, rows)), []
    beside = 1.4 if compared else 0.15                            # the names stand left of the lengths
    drawn, ax = figure(
        1.0 + 0.1 * names + 0.62 * n + (1.5 if means is not None else 0) + (0.8 if compared else 0),
        0.75 + 0.42 * len(rows) + (0.23 if compared else 0),
    )
    top = len(rows) + (1.25 if compared else 0.7)
    _square(ax, (-beside - 0.17 * names, n + (2.6 if means is not None else 0.1)), (-0.7, top))
    ax.set_aspect("auto")
    if compared:
        ax.text(n / 2, len(rows) + 0.9, "position", ha="center", va="center", fontsize=9.5, color=GREY)
        ax.text(-0.65, len(rows) + 0.35, "length", ha="center", va="center", fontsize=9.5, color=GREY)
        for j in range(n):
            ax.text(j + 0.5, len(rows) + 0.35, str(j), ha="center", va="center", fontsize=10, color=ORANGE)
    for i, (name, cells) in enumerate(rows.items()):
        y = len(rows) - 1 - i
        ax.text(-beside, y + 0.5, name, ha="right", va="center", fontsize=10.5, color=INK)
        if compared:
            ax.text(-0.65, y + 0.5, str(len(cells)), ha="center", va="center", fontsize=10, color=ORANGE)
        for j in range(n):
            real = j < len(cells)
            filler = (FILL[GREY], PALE, "") if counted else ("white", PALE, "////")
            face, edge, hatch = (FILL[BLUE], BLUE, "") if real else filler
            over = 2 if real else 1                               # a real cell's border lies on its neighbour's
            ax.add_patch(Rectangle((j, y), 1, 1, facecolor=face, edgecolor=edge, hatch=hatch, linewidth=1, zorder=over))
            said = str(cells[j] if real else pad)
            ax.text(j + 0.5, y + 0.5, said, ha="center", va="center", fontsize=10, color=INK if real else GREY)
        if means is not None:
            divisions.append(f"{sum(cells):g} / {n if counted else len(cells)} = {round(means[i], 3):g}")
            ink = ORANGE if name == marked else INK
            ax.text(n + 0.3, y + 0.5, divisions[i], ha="left", va="center", fontsize=10.5, color=ink)
    last = len(list(rows.values())[-1])
    if last < n:                                                  # under the padding of the last row
        ax.text((last + n) / 2, -0.35, "padding", ha="center", va="center", fontsize=9.5, color=GREY)
    if means is not None:
        divided = "sum / width = mean" if counted else "sum / count = mean"
        ax.text(n + 0.3, len(rows) + 0.35, divided, ha="left", va="center", fontsize=9.5, color=GREY)
    if title:
        ax.set_title(title)
    said = "; ".join(
        f"{name}: {', '.join(map(str, cells))}"
        + (f", then {n - len(cells)} of padding ({pad})" if len(cells) < n else "")
        + (f", mean {divisions[i]}" if means is not None else "")
        for i, (name, cells) in enumerate(rows.items())
    )
    if compared:
        said += (
            f". Over the columns stand the positions 0 to {n - 1}, before the rows the lengths "
            f"{', '.join(str(len(cells)) for cells in rows.values())}: a cell counts where its position is below the "
            "length, and the others are hatched"
        )
    show(drawn, f"{title or 'Sequences in one rectangle'}, {n} wide. {said}.")


def falling(losses: Mapping[str, Sequence[float]], y_name: str) -> None:
    """Losses against the training step, on a logarithmic axis; each line's name stands over its end."""
    drawn, ax = figure(6.6, 3.2)
    for (name, line), colour in zip(losses.items(), (ORANGE, BLUE), strict=True):
        ax.plot(range(1, len(line) + 1), line, color=colour, linewidth=2)
        ax.text(len(line), 1.2 * line[-1], name, ha="right", va="bottom", fontsize=10.5, color=colour)
    ax.set_yscale("log")
    ax.set_xlabel("training step")
    ax.set_ylabel(y_name)
    said = "; ".join(f"{name} goes from {line[0]:.2g} to {line[-1]:.2g}" for name, line in losses.items())
    show(drawn, f"{y_name} against the training step. {said}.")


def scatter_panels(
    points: Mapping[str, tuple[Tensor, Tensor]], x_name: str, y_name: str, diagonal: str = "", alt: str = ""
) -> None:
    """Scattered points, (xs, ys) by title, side by side on the same axes, the first in orange and the second in blue.

    With `diagonal` a line where y = x, which has this name in the first panel, and both axes alike.
    """
    drawn, _ = figure(3.3 * len(points), 3.1, columns=len(points))
    ys = torch.cat([y.flatten() for _, y in points.values()])
    low, high = float(ys.min()), float(ys.max())
    if diagonal:                                             # both axes show the range of xs and ys
        xs = torch.cat([x.flatten() for x, _ in points.values()])
        low, high = min(low, float(xs.min())), max(high, float(xs.max()))
    room = 0.04 * (high - low)
    said = []
    for ax, (name, (x, y)), colour in zip(drawn.axes, points.items(), (ORANGE, BLUE), strict=False):
        if diagonal:
            ends = [float(x.min()), float(x.max())]
            ax.plot(ends, ends, color=GREY, linewidth=1, linestyle="--", zorder=1)
        ax.scatter(x.numpy(), y.detach().numpy(), s=9, color=colour, alpha=0.45, linewidths=0, zorder=2)
        ax.set_ylim(low - room, high + room)
        if diagonal:
            ax.set_xlim(low - room, high + room)
            ax.set_box_aspect(1)
            ax.locator_params(nbins=4)
        ax.set_xlabel(x_name)
        ax.set_title(name, fontsize=10.5 if len(name) > 25 else "large", color=colour)
        words = f"{name}: {y_name} from {float(y.min()):.2g} to {float(y.max()):.2g}"
        if diagonal:
            off = (y.detach() - x).abs().mean().item()
            words += f", on average {off:.2g} away from the line where both are equal"
        said.append(words)
    drawn.axes[0].set_ylabel(y_name)
    if diagonal:
        xs = next(iter(points.values()))[0]
        at = float(xs.max() - 0.1 * (xs.max() - xs.min()))
        drawn.axes[0].text(at, at, f"{diagonal}  ", ha="right", va="center", fontsize=9.5, color=INK)
    show(drawn, alt or f"{y_name} against {x_name}. {'; '.join(said)}.")


# Beyond these exponents float32 holds e^x no longer: ∞ above, 0 below (the smallest number is 2 to the −149, half of it
# is rounded down).
OVERFLOW, UNDERFLOW = 128 * np.log(2), -150 * np.log(2)
SUBNORMAL = -126 * np.log(2)                                                 # below it e^x has fewer digits


def exp_range(scores: Tensor, shift: float) -> tuple[Figure, str]:
    """Where scores, all shifted by `shift`, meet the range of exp in float32: as written, and less their maximum.

    Over the scores as written stand their exponentials, and under each row the softmax. For `explore`.
    """
    moved = scores + shift
    rows = {"as written": moved, "largest\nsubtracted": moved - moved.max()}
    right = scores.double().softmax(dim=-1)
    drawn, ax = figure(6.5, 2.25)
    ax.set_xlim(-135, 135)
    ax.set_ylim(-0.25, 1.95)
    for start, end, name in ((OVERFLOW, 135, "exp = ∞"), (-135, UNDERFLOW, "exp = 0")):
        ax.axvspan(start, end, facecolor="none", edgecolor=PALE, hatch="////", linewidth=0)
        ax.axvline(start if start > 0 else end, color=GREY, linewidth=1)
        ax.text((start + end) / 2, 1.7, name, ha="center", va="center", fontsize=10, color=INK)
    ax.axvspan(UNDERFLOW, SUBNORMAL, facecolor=FILL[ORANGE], linewidth=0, zorder=0)
    ax.axvline(SUBNORMAL, color=GREY, linewidth=1)
    ax.text(SUBNORMAL + 3, 1.7, "← subnormal: few digits", ha="left", va="center", fontsize=10, color=INK)
    said = []
    for y, (name, row) in zip((1, 0.22), rows.items(), strict=True):
        shares = row.exp() / row.exp().sum()
        words = ", ".join("NaN" if torch.isnan(share) else f"{share:.3f}" for share in shares)
        fine = bool(torch.allclose(shares.double(), right, atol=5e-4))
        ax.axhline(y, color=PALE, linewidth=1, zorder=1)
        colour = BLUE if fine else ORANGE
        ax.scatter(row, [y] * len(row), s=190, color=colour, marker="|", zorder=3, linewidths=2)
        verdict = "" if fine else "  wrong"
        powers = ", ".join(f"{x:.3g}" for x in row.exp().tolist()).replace("inf", "∞").replace("e-", "e−")
        ink = INK if fine else ORANGE
        ax.text(0, y - 0.28, f"softmax = {words}{verdict}", ha="center", va="center", fontsize=10, family="monospace",
                color=ink)  # fmt: skip
        if y == 1:
            ax.text(0, 1.27, f"exp = {powers}", ha="center", va="center", fontsize=10, family="monospace", color=INK)
        values = ", ".join(f"{x:g}" for x in row.tolist())
        given = f"{' '.join(name.split())}, {values}, exp gives {powers}"
        said.append(f"{given}, softmax gives {words}{',' * (not fine)}{verdict[1:]}")
    ax.set_yticks([1, 0.22], rows)
    ax.set_yticks([0.58], minor=True)                                        # a line between the two lanes
    ax.grid(visible=True, axis="y", which="minor", color=GREY, linewidth=0.8)
    ax.tick_params(axis="y", which="both", length=0)
    ax.spines["left"].set_visible(False)
    ax.set_xlabel("exponent")
    by = f"{shift:+g}".replace("-", "−") if shift else "0"
    named = ", ".join(f"{score:g}" for score in scores.tolist())
    ax.set_title(f"scores {named}, shifted by {by}")
    return drawn, f"Scores shifted by {shift:g}. {'; '.join(said)}."


def _square(ax: Axes, xlim: tuple[float, float], ylim: tuple[float, float]) -> None:
    stage(ax, xlim, ylim)
    ax.set_aspect("equal")


def _tensor(ax: Axes, left: float, name: str, tensor: Tensor, shape: tuple[int, ...] | None, colour: str) -> None:
    """A tensor's cells with their numbers, three rows of four at most; stretched to `shape`, the copies dotted."""
    own = (1,) * (2 - tensor.ndim) + tuple(tensor.shape)
    whole = own if shape is None else (1,) * (2 - len(shape)) + tuple(shape)
    cells = tensor.reshape(own).expand(whole)
    top = 1.5 + whole[0] / 2
    left += (4 - whole[1]) / 2
    for i in range(whole[0]):
        for j in range(whole[1]):
            real = i < own[0] and j < own[1]
            face, edge, line = (FILL[colour], colour, "-") if real else ("white", GREY, ":")
            corner = (left + j, top - 1 - i)
            ax.add_patch(Rectangle(corner, 1, 1, linewidth=1.1, facecolor=face, edgecolor=edge, linestyle=line))
            number = str(cells[i, j].item()).replace("-", "−")
            ink, slant = (INK, "normal") if real else (GREY, "italic")
            place = (left + j + 0.5, top - 0.5 - i)
            ax.text(*place, number, ha="center", va="center", fontsize=9.5, color=ink, style=slant)
    middle = left + whole[1] / 2
    ax.text(middle, 3.95, name, ha="center", va="center", fontsize=11)
    steps = [tuple(tensor.shape)]
    if shape is not None and len(shape) == 2:
        steps += [own, shape]                                                # 1s on the left, then stretched
    said = " → ".join(map(str, dict.fromkeys(steps)))
    ax.text(middle, -0.75, said, ha="center", va="center", fontsize=10)
