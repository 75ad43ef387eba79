"""A sentence that looks at itself: one word's question, the matrices and their shapes, who reaches whom."""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from torch import Tensor

from attncourse.viz.diagrams import arrow, dots, rgb
from attncourse.viz.figures import as_matrix, check_shares
from attncourse.viz.style import BLUE, GREEN, GREY, INK, ORANGE, PALE, PURPLE, figure, show, stage

WINDOW = "#e4eef6"  # what lies between the first and the last that a window lets through


def one_query(
    words: Sequence[str], asking: int, scores: Tensor, weights: Tensor, output: Tensor, features: Sequence[str]
) -> tuple[Figure, str]:
    """What one word asks and gets, for a widget: its scores, its weights, and the average of the values.

    `scores`, `weights` (n,), `output` (d_v,), one name in `features` for each of its numbers. Returns figure and alt.
    Raises ValueError where the lengths do not fit, and for what are no weights.
    """
    rows = as_matrix(torch.stack([scores, weights]), ("scores", "weights"), words)
    check_shares("weights", rows[1])
    received = as_matrix(output[None], ("output",), features, name="output")[0]
    drawn, (left, middle, right) = figure(6.5, 0.8 + 0.27 * len(words), columns=3)
    places = np.arange(len(words))
    for ax, values, name, colour in ((left, rows[0], "scores", GREY), (middle, rows[1], "weights", BLUE)):
        ax.barh(places, values, color=[ORANGE if i == asking else colour for i in places], height=0.7)
        ax.set_yticks(places, words if ax is left else [""] * len(words))
        ax.set_title(name)
        ax.invert_yaxis()
        ax.tick_params(axis="y", length=0)
    left.set_xlim(min(0.0, 1.15 * rows[0].min()), max(1.25, 1.15 * rows[0].max()))
    middle.set_xlim(0, 1.25)
    for i, value in enumerate(rows[1]):
        middle.text(value + 0.03, i, f"{value:.2f}", va="center", fontsize=9, color=INK)
    left.get_yticklabels()[asking].set(fontweight="bold", color=ORANGE)
    right.barh(np.arange(len(features)), received, color=GREEN, height=0.6)
    right.set_yticks(np.arange(len(features)), features)
    right.set_ylim(len(words) - 0.5, -0.5)
    right.set_xlim(0, max(1.25, 1.25 * received.max()))
    right.tick_params(axis="y", length=0)
    right.set_title(f"“{words[asking]}” receives")
    for i, value in enumerate(received):
        right.text(value + 0.03, i, f"{value:.2f}", va="center", fontsize=9, color=INK)
    shares = ", ".join(f"{word} {share:.2f}" for word, share in zip(words, rows[1], strict=True))
    got = ", ".join(f"{name} {value:.2f}" for name, value in zip(features, received, strict=True))
    return drawn, f"“{words[asking]}” asks. Its weights: {shares}. It receives: {got}."


def self_attention_shapes(n: int, d_model: int, d_k: int, d_v: int) -> None:
    """The whole computation as rectangles, drawn to scale: X, the projections, scores, weights, output."""
    unit = 0.11
    drawn, ax = figure(7.7, 4.2)
    stage(ax, (0, 7.7), (0, 4.2))

    def matrix(x: float, y: float, rows: int, columns: int, label: str, shape: str, colour: str, fill=None) -> None:
        width, height = unit * columns, unit * rows
        face = fill if fill is not None else (*rgb(colour), 0.16)
        ax.add_patch(
            Rectangle((x - width / 2, y - height / 2), width, height, facecolor=face, edgecolor=colour, linewidth=1.5)
        )
        ax.text(x, y + height / 2 + 0.13, label, ha="center", va="center", fontsize=11, color=INK)
        ax.text(x, y - height / 2 - 0.13, shape, ha="center", va="center", fontsize=9, color=INK)

    rows_y = (3.45, 2.05, 0.65)
    matrix(0.6, rows_y[1], n, d_model, "$X$", f"{n} × {d_model}", INK, "#ffffff")
    roles = (("Q", d_k, BLUE, "asks"), ("K", d_k, ORANGE, "is found by"), ("V", d_v, GREEN, "hands over"))
    for y, (name, width, colour, role) in zip(rows_y, roles, strict=True):
        arrow(ax, (1.05, rows_y[1] + 0.3 * (y - rows_y[1])), (1.75, y))
        matrix(2.2, y, d_model, width, f"$W_{name}$", f"{d_model} × {width}", colour)
        arrow(ax, (2.6, y), (3.0, y), colour)
        matrix(3.45, y, n, width, f"${name} = XW_{name}$", f"{n} × {width}  {role}", colour)
    arrow(ax, (3.75, rows_y[0]), (4.62, rows_y[0] - 0.35), BLUE)
    arrow(ax, (3.75, rows_y[1]), (4.62, rows_y[1] + 0.42), ORANGE)
    middle = (rows_y[0] + rows_y[1]) / 2
    matrix(5.15, middle, n, n, r"scores  $QK^\top / \sqrt{d_k}$", f"{n} × {n}", GREY, "#f4f4f4")
    arrow(ax, (5.68, middle), (6.27, middle))
    ax.text(5.97, middle - 0.1, "softmax\nalong\nrows", ha="center", va="top", fontsize=9, color=INK)
    matrix(6.8, middle, n, n, r"weights  $A$", f"{n} × {n}", PURPLE)
    arrow(ax, (6.8, middle - 0.75), (6.8, rows_y[2] + 0.75), PURPLE)
    arrow(ax, (3.95, rows_y[2]), (6.4, rows_y[2]), GREEN)
    matrix(6.8, rows_y[2], n, d_v, "$O = AV$", f"{n} × {d_v}", INK, "#ffffff")
    show(
        drawn,
        f"Self-attention in matrices. X, {n} words by {d_model}, is multiplied by three matrices: W_Q and W_K, each "
        f"{d_model} by {d_k}, give Q and K, each {n} by {d_k}; W_V, {d_model} by {d_v}, gives V, {n} by {d_v}. Q times "
        f"K transposed over the root of {d_k} is the {n} by {n} table of scores; softmax along its rows makes it the "
        f"weights A; A times V is the output O, {n} by {d_v}.",
    )


def path_lengths(n: int, width: int) -> None:
    """How a signal gets from the first of `n` positions to the last: by recurrence, by attention, by windows."""
    layers = max(1, -(-(n - 1) // width))
    drawn, (recurrent, full, windows) = figure(8.4, 2.9, columns=3)
    for ax, title in ((recurrent, "recurrent"), (full, "self-attention"), (windows, f"windows, {width} on each side")):
        ax.set_axis_off()
        ax.set_title(title)
        ax.set_xlim(-0.6, n - 0.4)
    dots(recurrent, n, [0, 1])
    for t in range(n):
        _line(recurrent, (t, 0), (t, 1), on=t == 0)
        if t:
            _line(recurrent, (t - 1, 1), (t, 1), on=True)
    dots(full, n, [0, 1])
    for i in range(n):
        for j in range(n):
            _line(full, (j, 0), (i, 1), on=(j, i) == (0, n - 1))
    dots(windows, n, range(layers + 1))
    way = [min(n - 1, layer * width) for layer in range(layers + 1)]
    for layer in range(layers):
        for i in range(n):
            for j in range(max(0, i - width), min(n, i + width + 1)):
                _line(windows, (j, layer), (i, layer + 1), on=(j, i) == (way[layer], way[layer + 1]))
    for ax, count, unit, top in (
        (recurrent, n, "cells", 1), (full, 1, "layer", 1), (windows, layers, "layers", layers),
    ):  # fmt: skip
        ax.set_ylim(-0.14 * top - 0.35, top + 0.2 * top)
        ax.text((n - 1) / 2, -0.12 * top - 0.12, f"path: {count} {unit}", ha="center", va="top", fontsize=10.5)
    show(
        drawn,
        f"The way from the first of {n} positions to the last. Recurrent: through all {n} cells, one after the other. "
        f"Self-attention: one arrow, one layer. Windows of {width} on each side: {layers} layers, {width} positions "
        "further in each.",
    )


def receptive_field(n: int, width: int, layers: int, asking: int | None = None) -> tuple[Figure, str]:
    """Whom one position hears of through stacked windows, for a widget. Returns figure and alt.

    `width` positions on each side in every layer; `asking` is the middle position unless given.
    """
    asking = n // 2 if asking is None else asking
    drawn, ax = figure(6.5, 0.9 + 0.42 * layers)
    stage(ax, (-0.8, n - 0.2), (-0.75, layers + 0.4))
    ends = [(max(0, asking - k * width), min(n - 1, asking + k * width)) for k in range(layers + 1)]  # from the top
    for below, (above, heard) in zip(range(layers - 1, -1, -1), pairwise(ends), strict=True):
        ax.fill([above[0], above[1], heard[1], heard[0]], [below + 1, below + 1, below, below], color=WINDOW, zorder=0)
        for i in dict.fromkeys(above):  # the two at the ends show how far a window goes: it is the same for all
            for j in range(max(0, i - width), min(n, i + width + 1)):
                ax.plot([j, i], [below, below + 1], color=GREY, linewidth=0.6, zorder=1)
    for level, (first, last) in zip(range(layers, -1, -1), ends, strict=True):
        for i in range(n):
            top = level == layers and i == asking
            colour = ORANGE if top else BLUE if first <= i <= last else "white"
            marker, size = ("s", 8) if top else ("o", 7)
            ax.plot(i, level, marker, markersize=size, color=colour, markeredgecolor=GREY, zorder=2)
    (first, last), pairs = ends[-1], min(2 * width + 1, n)
    words = f"hears of {last - first + 1} of {n} positions"
    said = f"{words};  pairs a word: {pairs} in a layer, {pairs * layers} in all, against {n}"
    ax.text(-0.5, -0.7, said, fontsize=10, va="bottom").set_in_layout(False)  # all frames of one width
    return drawn, (
        f"{layers} {'layer' if layers == 1 else 'layers'} of windows, {width} on each side: position {asking + 1} "
        f"{words}, from {first + 1} to {last + 1}. Each layer compares {pairs} pairs a word, all of them together "
        f"{pairs * layers}; a layer without windows compares {n}."
    )


def _line(ax: Axes, start: tuple[float, float], end: tuple[float, float], on: bool) -> None:
    ax.plot(
        [start[0], end[0]], [start[1], end[1]], color=ORANGE if on else PALE, linewidth=2.6 if on else 0.8,
        zorder=2 if on else 1,
    )  # fmt: skip
