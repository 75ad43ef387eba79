"""Pictures of shapes: what an axis is, what broadcasting stretches, where padding stands, what float32 can hold."""

import ast
from collections.abc import Mapping, Sequence

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from torch import Tensor

from attncourse.viz.style import BLUE, GREEN, GREY, INK, ORANGE, PALE, figure, show, stage

FILL = {BLUE: "#d6e6f2", ORANGE: "#f8e0d2", GREEN: "#d2ece4", GREY: "#f2f2f2"}


def batch_axes() -> None:
    """A tensor (batch, n, d) as a pile of sheets, and what is left of it when one of its axes is averaged away."""
    batch, n, d = 2, 3, 4
    drawn, ax = figure(8.6, 2.7)
    _square(ax, (-0.9, 17.6), (-1.5, 4.3))
    for sheet in reversed(range(batch)):
        _grid(ax, 0.55 * sheet, 0.55 * sheet, n, d, BLUE)
    _along(ax, (0, 0), (0, n), "n", side=(-0.35, 0), ha="right")
    _along(ax, (0, 0), (d, 0), "d", side=(0, -0.35), va="top")
    _along(ax, (d, n), (d + 0.55, n + 0.55), "batch", side=(0.1, 0.15), ha="left", va="bottom", shift=(0.3, 0))
    ax.text(d / 2, -1.25, f"x: (batch, n, d) = {batch, n, d}", ha="center", va="center", fontsize=10)
    left = 6.8
    for gone, (rows, columns), names in ((0, (n, d), "n, d"), (1, (batch, d), "batch, d"), (2, (batch, n), "batch, n")):
        _grid(ax, left, (n - rows) / 2, rows, columns, ORANGE, size=0.72)
        middle = left + 0.36 * columns
        ax.text(middle, n + 0.45, f"x.mean(dim={gone})", ha="center", va="center", fontsize=10, family="monospace")
        ax.text(middle, -1.25, f"({names}) = {rows, columns}", ha="center", va="center", fontsize=10)
        left += 0.72 * columns + 1.3
    show(
        drawn,
        f"A tensor of shape (batch, n, d) = ({batch}, {n}, {d}), drawn as {batch} sheets of {n} rows and {d} columns. "
        f"Its mean over dim 0 is one sheet of ({n}, {d}), over dim 1 a table of ({batch}, {d}), over dim 2 a table of "
        f"({batch}, {n}): the axis that is averaged over goes, the others stay.",
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


def padded_batch(
    rows: Mapping[str, Sequence[object]], pad: object = "pad", title: str = "", means: Sequence[float] | None = None
) -> None:
    """Sequences of several lengths, by name, as one rectangle, its padding hatched. `means` stand at the right."""
    n = max(map(len, rows.values()))
    names = max(map(len, rows))
    drawn, ax = figure(1.0 + 0.1 * names + 0.62 * n + (1.2 if means is not None else 0), 0.5 + 0.42 * len(rows))
    _square(ax, (-0.15 - 0.17 * names, n + (2.1 if means is not None else 0.1)), (-0.1, len(rows) + 0.7))
    ax.set_aspect("auto")
    for i, (name, cells) in enumerate(rows.items()):
        y = len(rows) - 1 - i
        ax.text(-0.15, y + 0.5, name, ha="right", va="center", fontsize=10.5, color=INK)
        for j in range(n):
            real = j < len(cells)
            face, edge, hatch = (FILL[BLUE], BLUE, "") if real else ("white", PALE, "////")
            ax.add_patch(Rectangle((j, y), 1, 1, facecolor=face, edgecolor=edge, hatch=hatch, linewidth=1))
            said = str(cells[j] if real else pad)
            ax.text(j + 0.5, y + 0.5, said, ha="center", va="center", fontsize=10, color=INK if real else GREY)
        if means is not None:
            ax.text(n + 0.3, y + 0.5, f"mean {means[i]:.2f}", ha="left", va="center", fontsize=10.5, color=INK)
    if title:
        ax.set_title(title)
    said = "; ".join(
        f"{name}: {', '.join(map(str, cells))}"
        + (f", then {n - len(cells)} of padding ({pad})" if len(cells) < n else "")
        + (f", mean {means[i]:.2f}" if means is not None else "")
        for i, (name, cells) in enumerate(rows.items())
    )
    show(drawn, f"{title or 'Sequences in one rectangle'}, {n} wide. {said}.")


def scatter_panels(
    points: Mapping[str, tuple[Tensor, Tensor]],
    x_name: str,
    y_name: str,
    impossible: tuple[float, float] | None = None,
    diagonal: bool = False,
    alt: str = "",
) -> None:
    """Scattered points, (xs, ys) by title, side by side on the same axes. What lies in `impossible` is shaded.

    With `diagonal` a line where y = x.
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
            ax.axhspan(*impossible, facecolor="none", edgecolor=PALE, hatch="////", linewidth=0, zorder=0)
        if diagonal:
            ends = [float(x.min()), float(x.max())]
            ax.plot(ends, ends, color=GREY, linewidth=1, linestyle="--", zorder=1)
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
    show(drawn, alt or f"{y_name} against {x_name}. {'; '.join(said)}.")


# Beyond these exponents float32 holds e^x no longer: ∞ above, 0 below (the smallest number is 2 to the −149, half of it
# is rounded down).
OVERFLOW, UNDERFLOW = 128 * np.log(2), -150 * np.log(2)


def exp_range(scores: Tensor, shift: float) -> tuple[Figure, str]:
    """Where scores, all moved by `shift`, meet the range of exp in float32: as they come, and less their maximum.

    Beside each row of points stands the softmax that comes of it. For `explore`.
    """
    moved = scores + shift
    rows = {"as they come": moved, "less the\nlargest": moved - moved.max()}
    right = scores.double().softmax(dim=-1)
    drawn, ax = figure(6.5, 2.2)
    ax.set_xlim(-135, 135)
    ax.set_ylim(-0.6, 1.75)
    for start, end, name in ((OVERFLOW, 135, "exp = ∞"), (-135, UNDERFLOW, "exp = 0")):
        ax.axvspan(start, end, facecolor="none", edgecolor=PALE, hatch="////", linewidth=0)
        ax.axvline(start if start > 0 else end, color=GREY, linewidth=1)
        ax.text((start + end) / 2, 1.55, name, ha="center", va="center", fontsize=10, color=INK)
    said = []
    for y, (name, row) in zip((1, 0), rows.items(), strict=True):
        shares = row.exp() / row.exp().sum()
        words = ", ".join("NaN" if torch.isnan(share) else f"{share:.2f}" for share in shares)
        fine = bool(torch.allclose(shares.double(), right, atol=5e-3))
        ax.axhline(y, color=PALE, linewidth=1, zorder=1)
        colour, marker = (BLUE, "o") if fine else (ORANGE, "X")
        ax.scatter(row, [y] * len(row), s=46, color=colour, marker=marker, zorder=3, edgecolors="white", linewidths=0.6)
        verdict = "" if fine else "  wrong"
        ax.text(-8, y - 0.3, f"softmax = {words}{verdict}", ha="center", va="center", fontsize=10, family="monospace")
        values = ", ".join(f"{x:g}" for x in row.tolist())
        said.append(f"{' '.join(name.split())}, {values}, softmax gives {words}{',' * (not fine)}{verdict[1:]}")
    ax.set_yticks([1, 0], rows)
    ax.tick_params(axis="y", length=0)
    ax.spines["left"].set_visible(False)
    ax.set_xlabel("exponent")
    return drawn, f"Scores moved by {shift:g}. {'; '.join(said)}."


def _square(ax: Axes, xlim: tuple[float, float], ylim: tuple[float, float]) -> None:
    stage(ax, xlim, ylim)
    ax.set_aspect("equal")


def _grid(ax: Axes, left: float, bottom: float, rows: int, columns: int, colour: str, size: float = 1.0) -> None:
    for i in range(rows):
        for j in range(columns):
            corner = (left + size * j, bottom + size * i)
            ax.add_patch(Rectangle(corner, size, size, facecolor=FILL[colour], edgecolor=colour, linewidth=1.1))


def _along(ax: Axes, start, end, name: str, side, ha="center", va="center", shift=(0.0, 0.0)) -> None:
    """Names an axis beside the middle of the line from start to end."""
    x, y = (start[0] + end[0]) / 2 + side[0] + shift[0], (start[1] + end[1]) / 2 + side[1] + shift[1]
    ax.text(x, y, name, ha=ha, va=va, fontsize=10.5, color=INK)


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
    ax.text(middle, -0.75, str(tuple(tensor.shape)), ha="center", va="center", fontsize=10)
