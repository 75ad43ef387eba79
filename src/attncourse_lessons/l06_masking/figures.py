"""Averages that shrink, and masks: who may look at whom, what that makes of the weights, and who hears whom."""

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from matplotlib.figure import Figure
from matplotlib.patches import Polygon, Rectangle
from torch import Tensor

from attncourse._checks import check_boolean, check_shape
from attncourse.viz.diagrams import dots
from attncourse.viz.figures import as_matrix
from attncourse.viz.style import (
    BLUE,
    GREY,
    INK,
    MARKERS,
    ORANGE,
    PALE,
    WEIGHTS,
    check_places,
    figure,
    hold_still,
    show,
    stage,
)


def mixing_rounds(pots: Sequence[Tensor], at: int) -> tuple[Figure, str]:
    """Pots of paint after `at` rounds of mixing, and what they spanned before: for a widget. Returns figure and alt.

    `pots` holds tables (n, 2) of red and blue, from 0 to 1, the first one before any round.
    """
    drawn, ax = figure(5.4, 3.9)
    everything = torch.cat(list(pots)).numpy()
    areas = []
    for turn, points in enumerate(pots[: at + 1]):
        corners = _hull(points.numpy())
        areas.append(_area(corners))
        last = turn == at
        ax.add_patch(
            Polygon(corners, closed=True, facecolor=(0, 0.447, 0.698, 0.10) if last else "none",
                    edgecolor=BLUE if last else GREY, linewidth=1.8 if last else 0.9, zorder=1)
        )  # fmt: skip
    for i, (x, y) in enumerate(pots[at].tolist()):
        paint = (max(0.0, min(1.0, x)), 0.15, max(0.0, min(1.0, y)))      # the numbers as what they stand for
        ax.plot(x, y, MARKERS[i % 8][0], color=paint, markersize=10, markeredgecolor="white", zorder=3)
    low, high = everything.min(axis=0), everything.max(axis=0)
    margin = 0.08 * (high - low)
    ax.set_xlim(low[0] - margin[0], high[0] + margin[0])
    ax.set_ylim(low[1] - margin[1], high[1] + margin[1])
    ax.set_xlabel("red")
    ax.set_ylabel("blue")
    left = areas[-1] / areas[0]
    rounds = f"{at} {'round' if at == 1 else 'rounds'}"
    share = f"{left:.0%}" if left > 0.1 else f"{left:.1%}" if left > 0.001 else "less than 0.1%"
    ax.set_title(f"after {rounds}: {share} of the area" if at else "before")
    inside = f"What they span lies inside what they spanned before, and has {share} of the area that it had at first."
    when = f"after {rounds}. {inside}" if at else "before the first round, and the shape that they span."
    return drawn, f"{len(pots[at])} points in the plane {when}"


def dependence_maps(maps: Mapping[str, Tensor], alt: str = "") -> None:
    """How much each output (rows) depends on each input (columns), side by side; leaks, from the future, are crossed.

    Each map is (n, n), zero where nothing gets through, and is shown on a scale of its own. Raises ValueError for a map
    that is not square, for NaN and numbers below zero, and for more positions than can be shown.
    """
    drawn, _ = figure(2.15 * len(maps), 2.75, columns=len(maps))
    said = []
    for ax, (name, heard) in zip(drawn.axes, maps.items(), strict=True):
        n = len(heard)
        check_shape(f"maps, {name}", heard, "n n", n=n)
        check_places(**{f"positions of {name}": n})
        table = heard.detach().numpy()
        if not (np.isfinite(table) & (table >= 0)).all():
            raise ValueError(f"maps, {name}: got {table.min():.3g}..{table.max():.3g}, expected sizes, from 0 on")
        # The square root shows weak influences too, which is what one looks for.
        ax.imshow(np.sqrt(table / max(table.max(), 1e-30)), cmap=WEIGHTS, vmin=0, vmax=1.15, interpolation="nearest")
        leaks = [(i, j) for i in range(n) for j in range(i + 1, n) if table[i, j] > 0]
        for i, j in leaks:
            ax.plot(j, i, "x", color=ORANGE, markersize=8, markeredgewidth=2.2)
        ax.set_xticks(np.arange(-0.5, n), minor=True)
        ax.set_yticks(np.arange(-0.5, n), minor=True)
        ax.grid(which="minor", color=PALE, linewidth=0.6)
        ax.tick_params(which="both", length=0)
        ax.set_xticks([], [])
        ax.set_yticks([], [])
        ax.set_xlabel("input")
        if ax is drawn.axes[0]:
            ax.set_ylabel("output")
        ax.set_title(name, fontsize=10, pad=7)
        found = f"{len(leaks)} of {n * (n - 1) // 2} places leak" if leaks else "nothing leaks"
        said.append(f"{name.replace(chr(10), ' ')}: {found}")
    show(drawn, alt or f"Which output depends on which input; crosses mark the future. {'; '.join(said)}.")


def mask_frame(mask: Tensor, weights: Tensor, words: Sequence[str]) -> tuple[Figure, str]:
    """A mask and the weights that came of it, with what each row sums to: for a widget. Returns figure and alt.

    `mask` (n, n) of booleans, `weights` (n, n), which may have gone wrong: that is what one looks for. Raises TypeError
    for a mask that is not boolean, ValueError where the shapes do not fit the words.
    """
    n = len(words)
    check_boolean("mask", mask, "a query may attend")
    allowed = as_matrix(mask, words, words, name="mask").astype(bool)
    table = as_matrix(weights, words, words)
    drawn, (left, right) = figure(6.5, 3.1, columns=2)
    hold_still(drawn, left=0.09, right=0.88, bottom=0.02, top=0.72, wspace=0.394)
    for ax, title in ((left, "mask"), (right, "weights")):
        ax.set_xlim(0, n)
        ax.set_ylim(n, 0)
        ax.xaxis.tick_top()
        ax.set_xticks(np.arange(n) + 0.5, words, rotation=40, ha="left", rotation_mode="anchor")
        ax.set_yticks(np.arange(n) + 0.5, words)
        ax.tick_params(length=0, labelsize=9)
        ax.spines[:].set_visible(False)
        ax.set_title(title, fontsize=10.5, pad=4)
    for (i, j), may in np.ndenumerate(allowed):
        left.add_patch(Rectangle((j, i), 1, 1, facecolor=WEIGHTS(0.55) if may else "white", edgecolor=PALE))
        if may:
            left.text(j + 0.5, i + 0.52, "✓", ha="center", va="center", fontsize=9, color="white")
    strays, nans = 0, int(np.isnan(table).any(axis=1).sum())
    for (i, j), weight in np.ndenumerate(table):
        if np.isnan(weight):
            right.add_patch(Rectangle((j, i), 1, 1, facecolor="white", edgecolor=ORANGE, hatch="////", linewidth=0.5))
            right.text(j + 0.5, i + 0.52, "NaN", ha="center", va="center", fontsize=7.5, fontweight="bold", color=INK,
                       bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.6})  # fmt: skip
            continue
        right.add_patch(Rectangle((j, i), 1, 1, facecolor=WEIGHTS(min(1.0, weight)), edgecolor=PALE))
        stray = weight > 0.005 and not allowed[i, j]
        strays += stray
        label = f"{weight:.2f}" if weight > 0.005 else "0" if weight == 0 else "~0"
        right.text(j + 0.5, i + 0.52, label, ha="center", va="center", fontsize=8,
                   color="white" if weight > 0.7 else INK)  # fmt: skip
        if stray:
            frame = Rectangle((j + 0.06, i + 0.06), 0.88, 0.88, facecolor="none", edgecolor=ORANGE, linewidth=2)
            right.add_patch(frame)
    sums = table.sum(axis=1)
    wanted = allowed.any(axis=1).astype(float)        # a row that may look at nobody has nothing to share out
    short = int((sums < wanted - 0.005).sum())
    right.text(n + 0.15, -0.25, "sum", fontsize=8.5, color=GREY, va="center")
    for i, total in enumerate(sums):
        off = not np.isclose(total, wanted[i], atol=0.005)
        right.text(n + 0.15, i + 0.52, "NaN" if np.isnan(total) else f"{total:.2f}", va="center", fontsize=8.5,
                   color=ORANGE if off else GREY, fontweight="bold" if off else "normal")  # fmt: skip
    found = [f"rows of NaN: {nans}"] * bool(nans) + [f"rows that sum to less than one: {short}"] * bool(short)
    found += [f"forbidden places that have weight, framed: {strays}"] * bool(strays)
    lonely = int((wanted == 0).sum())
    clean = "every row sums to one" + f", or to zero where nothing is allowed ({lonely} rows)" * bool(lonely)
    return drawn, (
        f"A mask that allows {int(allowed.sum())} of {n * n} places, and the weights: "
        f"{'; '.join(found) or f'{clean}; nothing forbidden has weight'}."
    )


def teacher_forcing(words: Sequence[str]) -> None:
    """One pass over a sentence: each position reads the words so far, and predicts the next.

    Raises ValueError for more words than can be shown.
    """
    check_places(words=len(words))
    n = len(words) - 1
    drawn, ax = figure(7.2, 2.7)
    stage(ax, (-1.3, n - 0.3), (-0.55, 1.55))
    for i in range(n):
        for j in range(i + 1):
            newest = j == i
            ax.plot([j, i], [0, 1], color=BLUE if newest else PALE, linewidth=2.4 if newest else 1.3, zorder=1)
        ax.text(i, -0.18, words[i], ha="center", va="top", fontsize=11, color=INK)
        ax.text(i, 1.2, words[i + 1], ha="center", va="bottom", fontsize=11, color=ORANGE, fontweight="bold")
    dots(ax, n, [0, 1])
    ax.text(-0.45, -0.18, "goes in", ha="right", va="top", fontsize=10.5, color=GREY)
    ax.text(-0.45, 1.2, "must come out", ha="right", va="bottom", fontsize=10.5, color=GREY)
    pairs = "; ".join(f"{' '.join(words[: i + 1])} → {words[i + 1]}" for i in range(n))
    show(drawn, f"Teacher forcing in one pass: {n} positions, each joined to itself and all before it. {pairs}.")


def _hull(points: np.ndarray) -> np.ndarray:
    """The corners of the convex hull, in order (Andrew's monotone chain)."""
    ordered = sorted(map(tuple, points))

    def half(chain: list) -> list:
        kept: list = []
        for p in chain:
            while len(kept) > 1 and _turn(kept[-2], kept[-1], p) <= 0:
                kept.pop()
            kept.append(p)
        return kept[:-1]

    return np.array(half(ordered) + half(ordered[::-1]))


def _turn(a, b, c) -> float:
    return (b[0] - a[0]) * (c[1] - a[1]) - (b[1] - a[1]) * (c[0] - a[0])


def _area(corners: np.ndarray) -> float:
    x, y = corners.T
    return 0.5 * abs(float(x @ np.roll(y, -1) - y @ np.roll(x, -1)))
