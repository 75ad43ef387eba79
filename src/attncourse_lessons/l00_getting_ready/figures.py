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
             "dim names the axis that goes: the last but one, of length 2."),
    Question({"x": (5, 2, 7)}, "x / x.norm(dim=1, keepdim=True)", ["(5, 1, 7)", "(5, 7)", "an error"],
             "(5, 1, 7) stands below (5, 2, 7), and the 1 stretches: nothing of x is lost."),
    Question({"x": (6, 4)}, "x - x.mean(dim=1)", ["(6, 4)", "(6,)", "(6, 6)"],
             "The mean is (6,), and flush right 6 stands below 4. keepdim=True would fit."),
    Question({"a": (6, 1), "b": (2, 1, 3)}, "a * b", ["(2, 1, 3)", "(6, 3)", "an error"],
             "Flush right: (1, 6, 1) against (2, 1, 3). Each 1 stretches."),
    Question({"x": (4, 3)}, "x[:, None] - x", ["(4, 3)", "(4, 1, 3)", "an error"],
             "(4, 1, 3) against (1, 4, 3): every row minus every row."),
    Question({"x": (5, 2, 7)}, "x.mT[:, 0]", ["(7, 2)", "(5, 7)", "(5, 1, 2)"],
             "x.mT is (5, 7, 2). A number in an index takes its axis away; a colon keeps its own."),
    Question({"q": (2, 3, 4), "k": (2, 5, 4)}, "q @ k.mT", ["(2, 3, 4)", "(3, 5)", "an error"],
             "(3, 4) @ (4, 5) is (3, 5), in each of 2 sentences: all dot products."),
    Question({"q": (3, 4), "k": (5, 4)}, "q @ k", ["(3, 5)", "(3, 4)", "(4, 4)"],
             "The last axis of q, 4, meets the last but one of k, 5. k.mT is needed."),
    Question({"w": (2, 5), "x": (2, 5, 3)}, "torch.einsum('bn,bnd->bd', w, x)", ["(2, 5)", "(5, 3)", "an error"],
             "n is missing after the arrow: it is summed over, in each of 2 sentences."),
    Question({"weights": (3, 5), "values": (5, 2)}, "weights @ values", ["(3, 5)", "(5, 2)", "an error"],
             "A row of weights averages 5 values: one average for each of 3."),
    Question({"values": (2, 3, 4), "weights": (2, 3)}, "values * weights", ["(2, 3, 4)", "(2, 3)", "(2, 4)"],
             "3 stands below 4. weights[..., None], (2, 3, 1), fits."),
    Question({"scores": (2, 3, 5), "bias": (2, 5)}, "scores + bias[:, None]", ["(2, 5)", "(2, 2, 3, 5)", "an error"],
             "(2, 1, 5) against (2, 3, 5): the bias of a sentence serves all of its rows."),
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
        ax.text(corner[0] + 0.5, corner[1] + 0.5, f"{number:{form}}", ha="center", va="center", fontsize=9.5, color=ink)


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
    drawn, ax = figure(9.2, 4.65)
    _square(ax, (-2.7, 20.0), (-2.0, 9.75))
    tables = (  # name, numbers, which are filled, left, bottom, colour, form
        ("customers", customers, (row, slice(None)), 0.0, 6.0, BLUE, "g"),
        ("products.mT", products.mT, (slice(None), column), 4.9, 5.5, BLUE, "g"),
        ("scores", scores, (row, column), 9.8, 6.0, ORANGE, ".2f"),
        ("weights", weights, (row, slice(None)), 9.8, 1.0, ORANGE, ".2f"),
        ("means", means[:, None], slice(None), 15.2, 0.0, BLUE, ".2f"),
        ("expected", expected, (row, 0), 18.9, 1.0, GREEN, ".2f"),
    )
    for name, table, at, left, bottom, colour, form in tables:
        filled = torch.zeros_like(table, dtype=torch.bool)
        filled[at] = True
        _numbers(ax, left, bottom, table, filled, colour, form)
        rows, columns = table.shape
        ax.text(left + columns / 2, bottom + rows + 0.45, f"{name} {tuple(table.shape)}", ha="center", va="center",
                fontsize=10)  # fmt: skip
    for x, top, role in ((1.5, 9.05, "queries"), (6.9, 9.55, "keys"), (15.7, 5.05, "values")):
        ax.text(x, top, role, ha="center", va="center", fontsize=10, color=GREY)
    for j, feature in enumerate(features):                                   # under the customers, beside the products
        ax.text(j + 0.5, 5.75, feature, ha="center", va="center", fontsize=9, color=INK)
        ax.text(4.8, 8 - j, feature, ha="right", va="center", fontsize=9, color=INK)
    for x, y, sign in ((3.4, 7, "@"), (9.35, 7, "="), (14.5, 2, "@"), (18.3, 2, "=")):
        ax.text(x, y, sign, ha="center", va="center", fontsize=13)
    for j, name in enumerate(names):
        for left, top in ((5.4, 5.3), (10.3, 0.8)):                          # under the products, under the weights
            ax.text(left + j, top, name, ha="center", va="top", rotation=90, fontsize=9, color=INK)
        ax.text(16.3, 3.5 - j, name, ha="left", va="center", fontsize=9, color=INK)
    for i, name in enumerate(who):
        for right, bottom in ((-0.2, 6.0), (9.6, 1.0)):                      # beside the customers and the weights
            ax.text(right, bottom + 1.5 - i, name, ha="right", va="center", fontsize=9, color=INK)
    ax.text(-2.6, 9.5, "line 1: dot products", ha="left", va="center", fontsize=9, color=INK)
    ax.text(11.5, 4.5, "line 2: softmax\nalong each row", ha="right", va="center", fontsize=9, color=INK)
    ax.text(14.8, 6.1, "line 3: average of the values", ha="left", va="center", fontsize=9, color=INK)
    ax.text(9.6, -1.7, f"{who[row]}'s average:", ha="right", va="center", fontsize=9.5, color=INK)
    terms = zip(customers[row].tolist(), products[column].tolist(), strict=True)
    dot = f"{' + '.join(f'{a:g} · {b:g}' for a, b in terms)} = {scores[row, column]:g}"
    ax.text(12.2, 5.55, dot, ha="center", va="center", fontsize=9.5)
    arrow(ax, (11.8, 5.15), (11.8, 3.85), colour=INK, width=1.5)
    powers = " + ".join(f"exp({score:g})" for score in scores[row].tolist())
    share = f"exp({scores[row, column]:g}) / ({powers}) = {weights[row, column]:.2f}"
    ax.text(9.6, -1.05, f"{who[row]}'s weight for {names[column]}:", ha="right", va="center", fontsize=9.5, color=INK)
    ax.text(9.8, -1.05, share, ha="left", va="center", fontsize=9.5)
    sums = " and ".join(f"{total:.2f}" for total in weights.sum(dim=-1))
    ax.text(9.6, -0.4, f"sums of the rows: {sums}", ha="right", va="center", fontsize=9.5)
    parts = " + ".join(f"{a:.3f} · {b:g}" for a, b in zip(weights[row].tolist(), means.tolist(), strict=True))
    ax.text(9.8, -1.7, f"{parts} = {expected[row, 0]:.2f}", ha="left", va="center", fontsize=9.5)
    given = ", ".join(f"{name} {weight:.2f}" for name, weight in zip(names, weights[row], strict=True))
    show(
        drawn,
        f"Attention in three lines. Customers (2, 3), the queries, by {', '.join(features)}, times the transposed "
        f"products (3, 4), the keys, are the scores (2, 4), one of them {dot}. A softmax along each row makes weights "
        f"of them, {share}: {given}. The weights times the means (4, 1), the values, are what each customer expects, "
        f"(2, 1): {', '.join(f'{x:.2f}' for x in expected[:, 0])}.",
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
    """What autograd keeps of (w − 1)²: values from left to right above, slopes from right to left below."""
    parameter = torch.tensor(float(w), requires_grad=True)
    difference = parameter - 1
    difference.retain_grad()
    loss = difference**2
    loss.backward()
    slopes = [float(node.grad) for node in (parameter, difference)] + [1.0]  # type: ignore[arg-type]
    values = [parameter.item(), difference.item(), loss.item()]
    names, steps = ("w", "w − 1", "(w − 1)²"), ("subtract 1", "square")
    own = ("1", f"2 (w − 1) = {_number(2 * values[1])}")
    apart = 5.6                                                              # from box to box: the words need room
    drawn, ax = figure(8.4, 2.7)
    _square(ax, (-1.7, 2 * apart + 1.7), (-2.5, 2.1))
    for i, (name, value, slope) in enumerate(zip(names, values, slopes, strict=True)):
        box(ax, apart * i, 0, f"{name} = {_number(value)}", BLUE, width=2.8)
        said = "slope 1: the loss itself" if i == 2 else f"slope {_number(slope)}"
        ax.text(apart * i, -1.1, said, ha="center", va="center", fontsize=10.5, color=ORANGE)
    for i, (step, factor) in enumerate(zip(steps, own, strict=True)):
        left, right, middle = apart * i + 1.45, apart * (i + 1) - 1.45, apart * (i + 0.5)
        arrow(ax, (left, 0.2), (right, 0.2), colour=BLUE, width=1.6)
        ax.text(middle, 0.6, step, ha="center", va="center", fontsize=10.5, color=INK)
        arrow(ax, (right, -0.2), (left, -0.2), colour=ORANGE, width=1.6)
        ax.text(middle, -0.6, f"× {factor}", ha="center", va="center", fontsize=10.5, color=ORANGE)
    ax.text(apart, 1.6, "forward: values →", ha="center", va="center", fontsize=10.5, color=BLUE)
    ax.text(apart, -2.0, "← backward: slopes of the loss", ha="center", va="center", fontsize=10.5, color=ORANGE)
    show(
        drawn,
        f"The computational graph of (w − 1)² at w = {_number(values[0])}. Forward: subtract 1, which gives "
        f"{_number(values[1])}; square, which gives {_number(values[2])}. Backward: the loss's slope by itself is 1; "
        f"times {own[1]} it is {_number(slopes[1])} at w − 1; times 1 it is {_number(slopes[0])} at w.",
    )


def _number(x: float) -> str:
    return f"{x:g}".replace("-", "−")


def padded_batch(
    rows: Mapping[str, Sequence[float]],
    pad: object = "pad",
    title: str = "",
    means: Sequence[float] | None = None,
    counted: bool = False,
) -> None:
    """Sequences of several lengths, by name, as one rectangle. `means` stand at the right, each with its division.

    The padding is hatched, unless it is `counted` like what is real.
    """
    n = max(map(len, rows.values()))
    names, divisions = max(map(len, rows)), []
    drawn, ax = figure(1.0 + 0.1 * names + 0.62 * n + (1.5 if means is not None else 0), 0.5 + 0.42 * len(rows))
    _square(ax, (-0.15 - 0.17 * names, n + (2.6 if means is not None else 0.1)), (-0.1, len(rows) + 0.7))
    ax.set_aspect("auto")
    for i, (name, cells) in enumerate(rows.items()):
        y = len(rows) - 1 - i
        ax.text(-0.15, y + 0.5, name, ha="right", va="center", fontsize=10.5, color=INK)
        for j in range(n):
            real = j < len(cells)
            face, edge, hatch = (FILL[BLUE], BLUE, "") if real else ("white", PALE, "" if counted else "////")
            over = 2 if real else 1                               # a real cell's border lies on its neighbour's
            ax.add_patch(Rectangle((j, y), 1, 1, facecolor=face, edgecolor=edge, hatch=hatch, linewidth=1, zorder=over))
            said = str(cells[j] if real else pad)
            ax.text(j + 0.5, y + 0.5, said, ha="center", va="center", fontsize=10, color=INK if real else GREY)
        if means is not None:
            divisions.append(f"{sum(cells):g} / {n if counted else len(cells)} = {means[i]:.2f}")
            ax.text(n + 0.3, y + 0.5, divisions[i], ha="left", va="center", fontsize=10.5, color=INK)
    if means is not None:
        ax.text(n + 0.3, len(rows) + 0.35, "sum / count = mean", ha="left", va="center", fontsize=9.5, color=GREY)
    if title:
        ax.set_title(title)
    said = "; ".join(
        f"{name}: {', '.join(map(str, cells))}"
        + (f", then {n - len(cells)} of padding ({pad})" if len(cells) < n else "")
        + (f", mean {divisions[i]}" if means is not None else "")
        for i, (name, cells) in enumerate(rows.items())
    )
    show(drawn, f"{title or 'Sequences in one rectangle'}, {n} wide. {said}.")


def scatter_panels(
    points: Mapping[str, tuple[Tensor, Tensor]],
    x_name: str,
    y_name: str,
    impossible: tuple[float, float] | None = None,
    diagonal: str = "",
    band: str = "",
    alt: str = "",
) -> None:
    """Scattered points, (xs, ys) by title, side by side on the same axes. What lies in `impossible` is hatched.

    With `diagonal` a line where y = x, which has this name; `band` is what is said of the hatched band.
    """
    drawn, _ = figure(3.3 * len(points), 3.1, columns=len(points))
    ys = torch.cat([y.flatten() for _, y in points.values()])
    low, high = float(ys.min()), float(ys.max())
    if impossible is not None:
        low, high = min(low, impossible[0]), max(high, impossible[1])
    room = 0.04 * (high - low)
    said = []
    for ax, (name, (x, y)) in zip(drawn.axes, points.items(), strict=True):
        if impossible is not None:
            ax.axhspan(*impossible, facecolor="none", edgecolor=PALE, hatch="////", linewidth=0, zorder=0, label=band)
        if diagonal:
            ends = [float(x.min()), float(x.max())]
            ax.plot(ends, ends, color=GREY, linewidth=1, linestyle="--", zorder=1, label=diagonal)
        ax.scatter(x.numpy(), y.detach().numpy(), s=9, color=BLUE, alpha=0.45, linewidths=0, zorder=2)
        ax.set_ylim(low - room, high + room)
        ax.set_xlabel(x_name)
        ax.set_title(name)
        words = f"{name}: {y_name} from {float(y.min()):.2g} to {float(y.max()):.2g}"
        if impossible is not None:
            inside = ((y >= impossible[0]) & (y < impossible[1])).float().mean().item()
            words += f", {inside:.0%} of them between {impossible[0]:g} and {impossible[1]:g}, which is impossible"
        if diagonal:
            off = (y.detach() - x).abs().mean().item()
            words += f", on average {off:.2g} away from the line where both are equal"
        said.append(words)
    drawn.axes[0].set_ylabel(y_name)
    if diagonal or band:
        drawn.axes[0].legend(loc="upper left", frameon=False, fontsize=9)
    show(drawn, alt or f"{y_name} against {x_name}. {'; '.join(said)}.")


# Beyond these exponents float32 holds e^x no longer: ∞ above, 0 below (the smallest number is 2 to the −149, half of it
# is rounded down).
OVERFLOW, UNDERFLOW = 128 * np.log(2), -150 * np.log(2)
SUBNORMAL = -126 * np.log(2)                                                 # below it e^x has fewer digits


def exp_range(scores: Tensor, shift: float) -> tuple[Figure, str]:
    """Where scores, all shifted by `shift`, meet the range of exp in float32: as written, and less their maximum.

    Over each row of points stand their exponentials, and under it the softmax that comes of them. For `explore`.
    """
    moved = scores + shift
    rows = {"as written": moved, "largest\nsubtracted": moved - moved.max()}
    right = scores.double().softmax(dim=-1)
    drawn, ax = figure(6.5, 2.6)
    ax.set_xlim(-135, 135)
    ax.set_ylim(-0.6, 1.75)
    for start, end, name in ((OVERFLOW, 135, "exp = ∞"), (-135, UNDERFLOW, "exp = 0")):
        ax.axvspan(start, end, facecolor="none", edgecolor=PALE, hatch="////", linewidth=0)
        ax.axvline(start if start > 0 else end, color=GREY, linewidth=1)
        ax.text((start + end) / 2, 1.55, name, ha="center", va="center", fontsize=10, color=INK)
    few = (UNDERFLOW + SUBNORMAL) / 2
    ax.text(few, 0.5, "few digits", ha="center", va="center", rotation=90, fontsize=9, color=INK)
    said = []
    for y, (name, row) in zip((1, 0), rows.items(), strict=True):
        shares = row.exp() / row.exp().sum()
        words = ", ".join("NaN" if torch.isnan(share) else f"{share:.3f}" for share in shares)
        fine = bool(torch.allclose(shares.double(), right, atol=5e-4))
        ax.axhline(y, color=PALE, linewidth=1, zorder=1)
        colour, marker = (BLUE, "o") if fine else (ORANGE, "X")
        ax.scatter(row, [y] * len(row), s=46, color=colour, marker=marker, zorder=3, edgecolors="white", linewidths=0.6)
        verdict = "" if fine else "  wrong"
        powers = ", ".join(f"{x:.3g}" for x in row.exp().tolist()).replace("inf", "∞").replace("e-", "e−")
        for height, text in ((0.23, f"exp = {powers}"), (-0.23, f"softmax = {words}{verdict}")):
            ax.text(-8, y + height, text, ha="center", va="center", fontsize=10, family="monospace")
        values = ", ".join(f"{x:g}" for x in row.tolist())
        given = f"{' '.join(name.split())}, {values}, exp gives {powers}"
        said.append(f"{given}, softmax gives {words}{',' * (not fine)}{verdict[1:]}")
    ax.set_yticks([1, 0], rows)
    ax.tick_params(axis="y", length=0)
    ax.spines["left"].set_visible(False)
    ax.set_xlabel("exponent")
    by = f"{shift:+g}".replace("-", "−") if shift else "0"
    ax.set_title(f"scores shifted by {by}")
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
