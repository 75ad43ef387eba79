"""Averages that shrink, and masks: who may attend to whom, what that makes of the weights, and what leaks."""

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Polygon, Rectangle
from matplotlib.patheffects import withStroke
from torch import Tensor

from attncourse._checks import check_boolean, check_shape
from attncourse.viz.diagrams import arrow, dots, rgb
from attncourse.viz.figures import as_matrix, turn_labels
from attncourse.viz.style import (
    BLUE,
    GREEN,
    GREY,
    INK,
    MARKERS,
    ORANGE,
    PALE,
    PURPLE,
    SERIES,
    WEIGHTS,
    check_places,
    figure,
    hold_still,
    name_lines,
    show,
    stage,
)

PADDING = "pad"  # how a token is called that fills up a sentence


def mixing_rounds(pots: Sequence[Tensor], at: int, sharpness: float | None = None) -> tuple[Figure, str]:
    """Pots of paint after `at` rounds of mixing, and all rounds before: for a widget. Returns figure and alt.

    `pots` holds tables (n, 2) of red and blue, from 0 to 1, the first one before any round. On the left every pot in
    its colour, a row a round; on the right the same in the plane of red and blue: each pot with the mark that is in
    its square on the left, what the pots span, and in grey, the later the darker, what they spanned in a round before.
    Marks are hollow, so that none hides another; where the pots are close together, they are small, and an inset shows
    their shape enlarged. The first two grey shapes are named at the topmost and the leftmost corner; the first alone is
    filled. The titles say the sharpness, if it is given, and what is left of the spread, the standard deviation of red
    or of blue, whichever is larger.
    """
    drawn, (rows, plane) = figure(7.4, 3.9, columns=2)
    hold_still(drawn, left=0.08, right=0.98, bottom=0.14, top=0.84, wspace=0.3)
    n, names = len(pots[0]), [chr(ord("A") + i) for i in range(len(pots[0]))]
    for turn, colours in enumerate(pots[: at + 1]):
        for i, (red, blue) in enumerate(colours.tolist()):
            square = Rectangle((i + 0.06, turn + 0.06), 0.88, 0.88, facecolor=_paint(red, blue), edgecolor="none")
            rows.add_patch(square)
    rows.set_xlim(0, n)
    rows.set_ylim(len(pots), 0)
    rows.set_xticks(np.arange(n) + 0.5, names)
    rows.xaxis.tick_top()
    rows.set_yticks(np.arange(len(pots)) + 0.5, [str(turn) for turn in range(len(pots))])
    for turn, label in enumerate(rows.get_yticklabels()):                     # a round to come is pale
        label.set_color(INK if turn <= at else PALE)
    rows.set_ylabel("round")
    rows.set_title("the pots" if sharpness is None else f"the pots at sharpness {sharpness:g}", pad=8)
    rows.tick_params(length=0)
    rows.spines[:].set_visible(False)

    shades = {"now": (0, 0.447, 0.698, 0.10), "first": (0.5, 0.5, 0.5, 0.10), "between": "none"}
    hulls = [_hull(points.numpy()) for points in pots[: at + 1]]
    for turn, corners in enumerate(hulls):
        last = turn == at
        shade = 0.75 - 0.3 * turn / max(1, at - 1)                            # the later, the darker
        plane.add_patch(
            Polygon(corners, closed=True, facecolor=shades["now" if last else "between" if turn else "first"],
                    edgecolor=BLUE if last else str(shade), linewidth=1.8 if last else 1.0, zorder=1)
        )  # fmt: skip
    for turn, corners in enumerate(hulls[: min(at, 2)]):
        corner = (corners[:, 1].argmax(), corners[:, 0].argmin())[turn]
        plane.annotate(f"round {turn}", corners[corner], ((0, 8), (-5, 0))[turn], textcoords="offset points",
                       ha=("center", "right")[turn], va="center", fontsize=9.5, color=GREY, zorder=4,
                       path_effects=[withStroke(linewidth=3, foreground="white")])  # fmt: skip
    close = max(np.ptp(hulls[at], axis=0)) < 0.2                              # large marks would hide the shape
    for i, (x, y) in enumerate(pots[at].tolist()):
        plane.plot(x, y, MARKERS[i % 8][0], color=_paint(x, y), markersize=5 if close else 10, markerfacecolor="none",
                   markeredgewidth=1.3 if close else 2.2, zorder=3)  # fmt: skip
        rows.plot(i + 0.5, at + 0.5, MARKERS[i % 8][0], color="white", markersize=7, zorder=3)
    if close:
        _enlarged(plane, pots[at], hulls[at])
    plane.set_xlim(-0.03, 1.05)
    plane.set_ylim(-0.03, 1.05)
    plane.set_xticks(np.linspace(0, 1, 6))
    plane.set_yticks(np.linspace(0, 1, 6))
    plane.set_aspect("equal")
    plane.set_xlabel("red")
    plane.set_ylabel("blue")
    spread = [colours.std(dim=0).max().item() for colours in (pots[0], pots[at])]
    left = spread[1] / spread[0]
    rounds = f"{at} {'round' if at == 1 else 'rounds'}"
    share = f"{left:.0%}" if left > 0.1 else f"{left:.1%}" if left > 0.001 else "< 0.1%"
    plane.set_title(f"after {rounds}:\n{share} of the spread is left" if at else "before", pad=8)
    inside = f"What they span lies inside what they spanned before, and {share} of the spread is left."
    when = f"after {rounds}. {inside}" if at else "before the first round, and the shape that they span."
    mixed = "" if sharpness is None else f"mixed at sharpness {sharpness:g}, "
    return drawn, f"{n} pots of paint, {mixed}each in its colour and as a point in the plane of red and blue, {when}"


def _enlarged(plane: Axes, pots: Tensor, hull: np.ndarray) -> None:
    """An inset with the pots and the shape that they span, as large as it has room for, and lines to where it is."""
    inset = plane.inset_axes((0.07, 0.06, 0.34, 0.34))
    inset.add_patch(Polygon(hull, closed=True, facecolor=(0, 0.447, 0.698, 0.10), edgecolor=BLUE, linewidth=1.8))
    for i, (x, y) in enumerate(pots.tolist()):
        inset.plot(x, y, MARKERS[i % 8][0], color=_paint(x, y), markersize=7, markerfacecolor="none",
                   markeredgewidth=1.6)  # fmt: skip
    middle, reach = (hull.min(axis=0) + hull.max(axis=0)) / 2, 0.75 * max(*np.ptp(hull, axis=0), 1e-6)
    inset.set_xlim(middle[0] - reach, middle[0] + reach)
    inset.set_ylim(middle[1] - reach, middle[1] + reach)
    inset.set_xticks([])
    inset.set_yticks([])
    inset.spines[:].set_color(GREY)
    inset.set_title("enlarged", fontsize=9.5, color=GREY, pad=3)
    plane.indicate_inset_zoom(inset, edgecolor=GREY, linewidth=0.8)


def _paint(red: float, blue: float) -> tuple[float, float, float]:
    """The two numbers as the colour that they stand for."""
    return max(0.0, min(1.0, red)), 0.15, max(0.0, min(1.0, blue))


def folded_plane(features: Tensor, hidden: Tensor, verdict: Tensor, names: Sequence[str]) -> None:
    """Points in the plane of two features, and in the plane of two hidden units, where one line separates them.

    `features`, `hidden` (n, 2), `verdict` (n, 1), a row for each name. On the left are three lines on which the first
    feature less the second is the same, on the right a ring where each of them lands, and the L that the whole plane
    becomes. The dashed line is hidden 1 + hidden 2 = 1/2.
    """
    drawn, axes = figure(7.4, 3.6, columns=2)
    planes = ((features, "p (praise)", "n (not)", "features"), (hidden, "hidden 1", "hidden 2", "hidden units"))
    for ax, (table, x_name, y_name, title) in zip(axes, planes, strict=True):
        places: dict[tuple[float, float], list[str]] = {}
        for name, (x, y), good in zip(names, table.tolist(), verdict.flatten().tolist(), strict=True):
            ax.plot(x, y, "o" if good else "s", color=BLUE if good else ORANGE, markersize=10, zorder=3)
            places.setdefault((x, y), []).append(name)
        above = ax is axes[1]                                                 # on the left, a line goes through them
        for (x, y), here in places.items():
            ax.annotate(", ".join(here), (x, y), (0, 11) if above else (8, -5), textcoords="offset points",
                        ha="center" if above else "left", va="baseline" if above else "top", fontsize=9.5,
                        path_effects=[withStroke(linewidth=3, foreground="white")], zorder=4)  # fmt: skip
        ax.set_xlim(-0.45, 1.45)
        ax.set_ylim(-0.45, 1.45)
        ax.set_xticks([0, 1])
        ax.set_yticks([0, 1])
        ax.set_aspect("equal")
        ax.set_xlabel(x_name)
        ax.set_ylabel(y_name)
        ax.set_title(title)
    features_plane, hidden_plane = axes
    for less, colour in ((1, PURPLE), (0, INK), (-1, GREEN)):
        low, high = max(-0.45, less - 0.45), min(1.45, less + 1.45)
        features_plane.plot([low, high], [low - less, high - less], color=colour, linewidth=1.6, zorder=1)
        at = (low + high) / 2 - 0.21 * abs(less)                              # beside the point, if one is there
        features_plane.text(at, at - less + 0.04, f"p − n = {less}".replace("-", "−"), color=colour, fontsize=9,
                            rotation=45, rotation_mode="anchor", ha="center", va="bottom")  # fmt: skip
        hidden_plane.plot(max(0, less), max(0, -less), "o", markersize=17, markerfacecolor="none",
                          markeredgecolor=colour, markeredgewidth=1.8, zorder=2)  # fmt: skip
    hidden_plane.plot([0, 0, 1.45], [1.45, 0, 0], color=PALE, linewidth=5, zorder=1)
    hidden_plane.plot([-0.3, 0.8], [0.8, -0.3], color=GREY, linestyle="--", linewidth=1.4)
    hidden_plane.text(0.36, 0.3, "one line\nseparates", fontsize=9.5, color=GREY, va="center")
    marks = [Line2D([], [], marker=mark, color=colour, linestyle="none", markersize=8, label=f"verdict {value}")
             for mark, colour, value in (("o", BLUE, 1), ("s", ORANGE, 0))]  # fmt: skip
    hidden_plane.legend(handles=marks, frameon=False, loc="upper right", fontsize=9.5)
    where = "; ".join(
        f"{name} at {x:g}, {y:g} and at {u:g}, {v:g}"
        for name, (x, y), (u, v) in zip(names, features.tolist(), hidden.tolist(), strict=True)
    )
    show(
        drawn,
        f"Four phrases in two planes, a circle where the verdict is 1. By praise and not, and by hidden 1 and hidden "
        f"2: {where}. By the features no line separates circles from squares. The hidden units take the line p − n = 1 "
        f"to one point, p − n = 0 to another and p − n = −1 to a third; the whole plane becomes an L. There a line "
        f"separates: the two squares lie on one point.",
    )


def position_wise(words: Sequence[str], d_model: int, d_ff: int) -> None:
    """Attention, which joins all tokens, and above it the feed-forward network, the same in each token's own column.

    Each column holds the token's vector, d_model wide, its hidden layer, d_ff wide, and what comes out. Raises
    ValueError for more words than can be shown.
    """
    check_places(words=len(words))
    n = len(words)
    drawn, ax = figure(8.2, 3.1)
    stage(ax, (-0.6, n + 0.85), (-0.45, 3.15))
    widest = 0.84
    for i in range(n):
        for j in range(n):
            ax.plot([j, i], [0, 1], color=ORANGE, linewidth=1.1, alpha=0.6, zorder=1)
        levels = ((1.11, d_model, BLUE), (2.01, d_ff, PURPLE), (2.91, d_model, BLUE))
        for y, width, colour in levels:
            size = widest * width / max(d_model, d_ff)
            ax.add_patch(Rectangle((i - size / 2, y - 0.11), size, 0.22, facecolor=(*rgb(colour), 0.3),
                                   edgecolor=colour, linewidth=1.4))  # fmt: skip
        for start, end, matrix in ((1.24, 1.88, "$W_1, b_1$"), (2.14, 2.78, "$W_2, b_2$")):
            arrow(ax, (i, start), (i, end), GREY)
            ax.text(i + 0.06, (start + end) / 2, matrix, ha="left", va="center", fontsize=9.5, color=INK)
        ax.text(i, -0.2, words[i], ha="center", va="top", fontsize=11, color=INK)
    dots(ax, n, [0])
    for y, said, colour in (
        (0.5, "attention\nmoves information\nbetween tokens", ORANGE),
        (1.11, f"$d_\\mathrm{{model}}$ = {d_model}", BLUE),
        (1.56, r"the same $W_1, b_1$ for all", INK),
        (2.01, f"$d_\\mathrm{{ff}}$ = {d_ff}, max(0, ·)", PURPLE),
        (2.46, r"the same $W_2, b_2$ for all", INK),
        (2.91, f"$d_\\mathrm{{model}}$ = {d_model}", BLUE),
    ):
        ax.text(n - 0.42, y, said, ha="left", va="center", fontsize=10, color=colour)
    show(
        drawn,
        f"{n} tokens, {', '.join(words)}. Attention joins each with all. Above it each token has a column of its own: "
        f"its vector, {d_model} wide, times W_1 gives a hidden layer, {d_ff} wide, with the maximum of 0 and each "
        f"number; times W_2 gives {d_model} again. The matrices are the same in every column, and no line joins two.",
    )


def hidden_units(token: Tensor, W_1: Tensor, W_2: Tensor) -> None:
    """A feed-forward network without biases, unit by unit: what fires adds its value to the output.

    `token` (d_model,), `W_1` (d_model, d_ff), whose columns are keys, `W_2` (d_ff, d_model), whose rows are values. A
    row for each unit: key, dot product, ReLU, value; the arrows are as wide as the unit fires. Raises ValueError where
    the shapes do not fit.
    """
    d_model, d_ff = len(token), W_1.shape[-1]
    check_shape("W_1", W_1, "d_model d_ff", d_model=d_model)
    check_shape("W_2", W_2, "d_ff d_model", d_ff=d_ff, d_model=d_model)
    check_places(units=d_ff, features=d_model)
    sums = token @ W_1                                                        # (d_ff,)
    strengths = sums.relu()
    output = strengths @ W_2                                                  # (d_model,)
    drawn, ax = figure(8.6, 0.75 * d_ff + 1.25)
    wide = 0.62 * d_model                                                     # of a vector
    at = [wide / 2, wide * 1.5 + 0.9, 2 * wide + 1.7, 2 * wide + 2.75, wide * 2.5 + 4.3, wide * 3.5 + 5.5]
    middle = (d_ff - 1) / 2
    stage(ax, (-0.3, at[5] + wide / 2 + 0.3), (-0.55, d_ff + 0.35))

    def vector(x: float, y: float, numbers: Tensor, colour: str, silent: bool = False) -> None:
        for k, number in enumerate(numbers.tolist()):
            left = x - wide / 2 + 0.62 * k
            ax.add_patch(Rectangle((left, y - 0.24), 0.62, 0.48, facecolor="white" if silent else (*rgb(colour), 0.2),
                                   edgecolor=PALE if silent else colour, linewidth=1.3))  # fmt: skip
            ax.text(left + 0.31, y, _signed(number), ha="center", va="center", fontsize=9.5,
                    color=GREY if silent else INK)  # fmt: skip

    vector(at[0], middle, token, BLUE)
    vector(at[5], middle, output, BLUE)
    for unit, (total, strength) in enumerate(zip(sums.tolist(), strengths.tolist(), strict=True)):
        y, fires = d_ff - 1 - unit, strength > 0
        vector(at[1], y, W_1[:, unit], PURPLE)
        vector(at[4], y, W_2[unit], PURPLE, silent=not fires)
        arrow(ax, (wide, middle), (at[1] - wide / 2, y), GREY)
        ax.text(at[2], y, _signed(total), ha="center", va="center", fontsize=10.5, color=INK)
        arrow(ax, (at[2] + 0.35, y), (at[3] - 0.35, y), GREY)
        ax.text(at[3], y, _signed(strength), ha="center", va="center", fontsize=10.5, fontweight="bold",
                color=ORANGE if fires else GREY)  # fmt: skip
        if fires:
            arrow(ax, (at[3] + 0.35, y), (at[4] - wide / 2, y), ORANGE, width=3 * strength)
            arrow(ax, (at[4] + wide / 2, y), (at[5] - wide / 2, middle), ORANGE, width=3 * strength)
    for x, said in zip(at, ("token x", "keys: columns\nof $W_1$", "x · key", "max(0, ·)", "values: rows\nof $W_2$",
                            "output"), strict=True):  # fmt: skip
        ax.text(x, d_ff - 0.35, said, ha="center", va="bottom", fontsize=10, color=INK)
    ax.text(at[5], middle - 0.42, "sum of\nmax(0, ·) times value", ha="center", va="top", fontsize=9, color=GREY)
    units = "; ".join(
        f"unit {k + 1}: x · key = {_signed(total)}, " + (f"fires with {_signed(total)}" if total > 0 else "silent")
        for k, total in enumerate(sums.tolist())
    )
    result = ", ".join(map(_signed, output.tolist()))
    show(drawn, f"A token goes to {d_ff} hidden units. {units}. Each that fires adds its value, times that: {result}.")


def _signed(number: float) -> str:
    """With two digits at most, and a true minus sign."""
    return f"{round(number, 2) + 0.0:g}".replace("-", "−")


def shares_not_common(
    runs: Mapping[str, Tensor],
    numbers: Sequence[int] = (),
    late: Mapping[str, Tensor] | None = None,
    label: str = "share not common to all tokens",
) -> None:
    """How different the tokens still are, {kind: (seeds, 1 + layers)}, before any layer and after each.

    A thin line a seed, a thick one through the geometric means, with its name at its end. The axis is logarithmic; a
    dotted line is where rounding is all that is left. Beside the first kind stand its numbers after the layers
    `numbers`, and with the names of the others where they end, if that is above 0.01. `late`, if given, holds more
    layers of some of the kinds, which stand in a second panel with a linear axis; then the names stand above both
    panels, and where the lines end, the numbers alone. Raises ValueError for numbers that are not above 0.
    """
    drawn, _ = figure(9.0 if late else 8.4, 4.2, columns=2 if late else 1)
    ax = drawn.axes[0]
    said, ends = [], []
    for k, (name, run) in enumerate(runs.items()):
        check_shape(f"runs, {name}", run, "seeds layers")
        if not (run > 0).all():
            raise ValueError(f"runs, {name}: got {run.min():.3g}, expected numbers above 0: the axis is logarithmic")
        layers = np.arange(run.shape[1])
        typical = run.log().mean(dim=0).exp()                                 # (layers,)
        colour = SERIES[k % 8]
        # Dashed over solid: where two lines lie on each other, both are seen.
        ax.plot(layers, typical, color=colour, linewidth=2.4, linestyle=("-", "--")[k % 2], zorder=3)
        for seed in run:
            ax.plot(layers, seed, color=colour, linewidth=0.7, alpha=0.5, zorder=2)
        end = typical[-1].item()
        number = f"{end:.2f}" if k and end > 0.01 else ""
        ends.append((np.log10(end), number if late else f"{name}: {number}" if number else name, colour))
        said.append(f"{name}: {typical[1]:.2g} after the first layer, {typical[-1]:.2g} after the last")
        for layer in numbers if k == 0 else ():
            share = typical[layer].item()
            ax.text(layer + 0.25, share, f"{share:.1g}" if share > 1e-3 else _power(share), color=colour,
                    fontsize=10.5, fontweight="bold", va="center",
                    path_effects=[withStroke(linewidth=3, foreground="white")], zorder=4)  # fmt: skip
    rounding, height = torch.finfo(torch.float64).eps, np.inf
    for end, name, colour in sorted(ends, reverse=True):                      # powers of ten, from the top
        height = min(end + 0.45, height - 1.1)                                # no name touches the one above it
        ax.text(layers[-1] + 0.2, 10**height, name, color=colour, fontsize=10.5, va="center")
    ax.axhline(rounding, color=GREY, linewidth=1.2, linestyle=":", zorder=1)
    ax.text(0, rounding * 3, "rounding", ha="left", va="bottom", fontsize=9.5, color=GREY)
    ax.set_yscale("log")
    ax.set_xticks(layers[::2])
    name_lines(ax, "layer", label)
    if late:                                                                  # the names of both panels, once
        ax.set_title(f"{layers[-1]} layers, logarithmic axis", pad=8)
        lines = [Line2D([], [], color=SERIES[k % 8], linewidth=2.4, linestyle=("-", "--")[k % 2], label=name)
                 for k, name in enumerate(runs)]  # fmt: skip
        drawn.legend(handles=lines, loc="outside upper center", ncols=len(lines), frameon=False, fontsize=10,
                     handlelength=2.6, columnspacing=1.4)  # fmt: skip
    for name, run in (late or {}).items():
        k, right = list(runs).index(name), drawn.axes[1]
        typical = run.log().mean(dim=0).exp()                                 # (1 + layers,)
        colour, far = SERIES[k % 8], run.shape[1] - 1
        right.plot(range(far + 1), typical, color=colour, linewidth=2.4, linestyle=("-", "--")[k % 2], zorder=3)
        for seed in run:
            right.plot(range(far + 1), seed, color=colour, linewidth=0.7, alpha=0.5, zorder=2)
        right.text(far * 1.03, typical[-1].item(), f"{typical[-1]:.2f}", color=colour, fontsize=10.5, va="center")
        right.set_ylim(0, 1.02)
        right.set_title(f"{far} layers, linear axis", pad=8)
        name_lines(right, "layer", label)
        said.append(f"{name}, more layers: {typical[-1]:.2g} after {far}")
    show(
        drawn,
        f"What is not common to all tokens, as a share of their vectors, layer by layer on a logarithmic axis, a line "
        f"for each of {len(run)} seeds and one through their geometric mean. {'; '.join(said)}.",
    )


def _power(number: float) -> str:
    """Such as 4 · 10⁻⁸."""
    digit, exponent = f"{number:.0e}".split("e")
    return f"$\\mathbf{{{digit} \\cdot 10^{{{int(exponent)}}}}}$"


def losses_of_runs(runs: Mapping[str, Sequence[Sequence[float]]], least: float) -> None:
    """Losses step by step on a logarithmic axis, a thin line a seed: {kind: its runs}; and the least possible, dotted.

    Every line is smoothed over a fortieth of its length. Where its lines end, the kind's name stands, and from what to
    what they reach there.
    """
    drawn, ax = figure(7.6, 3.5)
    said = []
    for k, (name, lines) in enumerate(runs.items()):
        ends = []
        for line in lines:
            width = max(1, len(line) // 40)
            smooth = np.convolve(line, np.ones(width) / width, mode="valid")
            ax.plot(np.arange(width, len(line) + 1), smooth, color=SERIES[k], linewidth=1.3,
                    linestyle=("-", "--")[k % 2])  # fmt: skip
            ends.append(smooth[-1])
        end = float(np.exp(np.log(ends).mean()))
        raised = 1.25 if least < end < 1.5 * least else 1                     # it leaves room for the least possible
        reach = "–".join(dict.fromkeys(f"{each:.2f}" for each in (min(ends), max(ends))))
        ax.text(len(line) * 1.02, end * raised, f"{name}: {reach}", color=SERIES[k], fontsize=10.5, va="center")
        said.append(f"{name} ends at {', '.join(f'{each:.2g}' for each in ends)}")
    ax.axhline(least, color=INK, linewidth=1.2, linestyle=":")
    ax.text(len(line) * 1.02, least * 0.87, f"least possible: {least:.3f}", color=INK, fontsize=10.5, va="center")
    ax.set_yscale("log")
    ax.set_yticks([3, 1, 0.3, 0.1, 0.03, 0.01], ["3", "1", "0.3", "0.1", "0.03", "0.01"])
    ax.minorticks_off()
    ax.set_xlim(0, len(line))
    name_lines(ax, "training step", "loss (nats per letter)")
    show(drawn, f"Training losses, a line a seed; the least possible is {least:.3f}. {'; '.join(said)}.")


def masked_scores(scores: Tensor, mask: Tensor, words: Sequence[str]) -> None:
    """Scores with what a mask forbids at −∞, and the weights that softmax makes of them, forbidden cells hatched.

    `scores`, `mask` (n, n), a row for each word that asks. What each row of weights sums to is printed beside it.
    Raises TypeError for a mask that is not boolean, ValueError where shapes do not fit the words.
    """
    n = len(words)
    check_boolean("mask", mask, "a query may attend")
    allowed = as_matrix(mask, words, words, name="mask").astype(bool)
    table = as_matrix(scores, words, words, name="scores")
    weights = scores.masked_fill(~mask, -torch.inf).softmax(dim=-1).numpy()
    drawn, (left, right) = figure(8.0, 1.2 + 0.48 * n, columns=2)
    low, high = table[allowed].min(), table[allowed].max()
    shades = 0.15 + 0.6 * (table - low) / max(high - low, 1e-9)               # every allowed score has a colour
    for ax, title, values, colours, forbidden in (
        (left, "scores", table, shades, "−∞"), (right, "weights", weights, 0.15 + 0.6 * weights, "0"),
    ):  # fmt: skip
        _squares(ax, words, words)
        ax.set_title(title, pad=8)
        for (i, j), may in np.ndenumerate(allowed):
            _cell(ax, i, j, WEIGHTS(colours[i, j]) if may else None)
            label = f"{values[i, j]:.2f}".replace("-", "−") if may else forbidden
            _write(ax, i, j, label, "white" if may and colours[i, j] > 0.7 else INK, boxed=not may)
    right.text(n + 0.15, -0.25, "sum", fontsize=9, color=INK, va="center")
    for i, total in enumerate(weights.sum(axis=1)):
        right.text(n + 0.15, i + 0.5, f"{total:.2f}", fontsize=9.5, color=INK, va="center")
    right.set_xlim(0, n + 0.75)
    rows = "; ".join(
        f"{word} gives " + ", ".join(f"{weights[i, j]:.2f} to {words[j]}" for j in range(n) if allowed[i, j])
        for i, word in enumerate(words)
    )
    show(
        drawn,
        f"Scores and weights of {n} tokens; rows are queries, columns keys; {int((~allowed).sum())} forbidden cells "
        f"are hatched, −∞ in the scores and 0 in the weights. {rows}. Every row sums to 1.",
    )


def mask_zoo(
    masks: Mapping[str, tuple[Sequence[str], Sequence[str], Tensor]], columns: int = 4, unit: float = 0.2
) -> None:
    """Masks side by side, {title: (tokens that ask, tokens that answer, mask)}: filled is allowed, hatched forbidden.

    A token called "pad" is written in grey, and where it asks its row is pale: nobody uses what comes out. Cells are
    `unit` inches. The masks of a row stand at one height, and so do their titles, above the longest token. Raises
    TypeError for a mask that is not boolean, ValueError where shapes do not fit the tokens.
    """
    rows = -(-len(masks) // columns)
    widest = max(len(answering) for _, answering, _ in masks.values())
    highest = max(len(asking) for asking, _, _ in masks.values())
    drawn, _ = figure((unit * widest + 0.65) * columns, (unit * highest + 1.1) * rows, rows=rows, columns=columns)
    turned = max(len(token) for _, answering, _ in masks.values() for token in answering) > 2
    said = []
    for number, (ax, (title, (asking, answering, mask))) in enumerate(zip(drawn.axes, masks.items(), strict=False)):
        check_boolean(f"mask {title!r}", mask, "a query may attend")
        allowed = as_matrix(mask, asking, answering, name=f"mask {title!r}").astype(bool)
        _squares(ax, asking, answering, small=True)
        ax.set_anchor("N")
        ax.set_title(title, fontsize=10, y=1, pad=26 if turned else 18)       # points: the tokens stand below
        if max(map(len, answering)) > 2:
            turn_labels(ax)
        across = asking != answering                                          # two sequences: cross-attention
        ax.set_xlabel("source keys" if across else "keys", fontsize=9)
        ax.xaxis.set_label_position("bottom")
        ax.set_ylabel("target queries" if across else "queries" if number % columns == 0 else "", fontsize=9,
                      labelpad=9 if across else 4)  # fmt: skip
        for (i, j), may in np.ndenumerate(allowed):
            _cell(ax, i, j, WEIGHTS(0.2 if asking[i] == PADDING else 0.65) if may else None)
        for label in (*ax.get_xticklabels(), *ax.get_yticklabels()):
            label.set_color(GREY if label.get_text() == PADDING else INK)
        pairs = f"{int(allowed.sum())} of {allowed.size} pairs"
        first = ", ".join(token for token, may in zip(answering, allowed[-1], strict=True) if may) or "nobody"
        said.append(f"{' '.join(title.split())}: {pairs}; {asking[-1]}, the last, attends to {first}")
    for ax in drawn.axes[len(masks) :]:
        ax.set_visible(False)
    show(drawn, f"Masks, a row for each query, a column for each key. {'. '.join(said)}.")


def _squares(ax: Axes, asking: Sequence[str], answering: Sequence[str], small: bool = False) -> None:
    """Axes for a table of cells, with tokens at its left and above it."""
    ax.set_xlim(0, len(answering))
    ax.set_ylim(len(asking), 0)
    ax.xaxis.tick_top()
    ax.set_xticks(np.arange(len(answering)) + 0.5, answering)
    ax.set_yticks(np.arange(len(asking)) + 0.5, asking)
    ax.tick_params(length=0, labelsize=9 if small else 10, pad=1 if small else 3)
    ax.spines[:].set_visible(False)
    if small:
        ax.set_aspect("equal")
    else:
        ax.set_xlabel("key")
        ax.xaxis.set_label_position("bottom")
        ax.set_ylabel("query")


def _cell(ax: Axes, i: int, j: int, colour) -> None:
    """One cell: filled if it has a colour, hatched, forbidden, if it has none."""
    if colour is None:
        ax.add_patch(Rectangle((j, i), 1, 1, facecolor="white", edgecolor=PALE, hatch="////", linewidth=0.5))
    else:
        ax.add_patch(Rectangle((j, i), 1, 1, facecolor=colour, edgecolor="white", linewidth=0.8))


def _write(ax: Axes, i: int, j: int, label: str, colour: str, boxed: bool) -> None:
    box = {"facecolor": "white", "edgecolor": "none", "pad": 0.8} if boxed else None
    ax.text(j + 0.5, i + 0.5, label, ha="center", va="center", fontsize=9.5, color=colour, bbox=box)


def dependence_maps(maps: Mapping[str, Tensor], alt: str = "") -> None:
    """How much each output (rows) depends on each input (columns), side by side; leaks, from the future, are crossed.

    Each map is (n, n), zero where nothing gets through (hatched), and is shown on a scale of its own. Raises ValueError
    for a map that is not square, for NaN and numbers below zero, and for more positions than can be shown.
    """
    drawn, _ = figure(min(2.8, 9 / len(maps)) * len(maps), 3.4 if len(maps) < 4 else 3.0, columns=len(maps))
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
        least = 1e-6 * table.max()                                            # rounding is no leak
        leaks = [(i, j) for i in range(n) for j in range(i + 1, n) if table[i, j] > least]
        square = np.array([(-0.5, -0.5), (0.5, -0.5), (0.5, 0.5), (-0.5, 0.5)])
        zeros = [square + place[::-1] for place in np.argwhere(table == 0)]   # unlike a weak influence, which is pale
        ax.add_collection(PolyCollection(zeros, facecolor="white", edgecolor=PALE, hatch="////", linewidth=0),
                          autolim=False)  # fmt: skip
        for i, j in leaks:
            ax.plot(j, i, "x", color=ORANGE, markersize=8, markeredgewidth=2.2)
        ax.set_xticks(np.arange(-0.5, n), minor=True)
        ax.set_yticks(np.arange(-0.5, n), minor=True)
        ax.grid(which="minor", color=PALE, linewidth=0.6)
        ax.tick_params(which="both", length=0)
        ax.set_xticks(range(n), range(1, n + 1))
        ax.set_yticks(range(n), range(1, n + 1))
        ax.tick_params(labelsize=9.5)
        ax.set_xlabel("input position")
        if ax is drawn.axes[0]:
            ax.set_ylabel("output position")
        ax.set_title(f"{name}:\n{'leaks' if leaks else 'no leak'}", fontsize=10.5, pad=7)
        found = f"{len(leaks)} of {n * (n - 1) // 2} places leak" if leaks else "nothing leaks"
        said.append(f"{name.replace(chr(10), ' ')}: {found}")
    show(drawn, alt or f"Which output depends on which input; crosses mark the future. {'; '.join(said)}.")


def _weights_that_came(ax: Axes, allowed: np.ndarray, table: np.ndarray, size: float) -> list[str]:
    """Draws weights, NaN and weight where none is allowed included, with the sums of the rows; returns the faults."""
    strays, nans = 0, int(np.isnan(table).any(axis=1).sum())
    for (i, j), weight in np.ndenumerate(table):
        if np.isnan(weight):
            ax.add_patch(Rectangle((j, i), 1, 1, facecolor=(*rgb(ORANGE), 0.3), edgecolor="white", linewidth=0.8))
            ax.text(j + 0.5, i + 0.52, "NaN", ha="center", va="center", fontsize=size, fontweight="bold",
                    color=INK)  # fmt: skip
            continue
        _cell(ax, i, j, WEIGHTS(min(1.0, weight)) if allowed[i, j] or weight > 0.005 else None)
        stray = weight > 0.005 and not allowed[i, j]
        strays += stray
        label = f"{weight:.2f}" if weight > 0.005 else "0" if weight == 0 else "~0"
        ax.text(j + 0.5, i + 0.52, label, ha="center", va="center", fontsize=size,
                color="white" if weight > 0.7 else INK,
                bbox=None if allowed[i, j] or stray else {"facecolor": "white", "edgecolor": "none", "pad": 0.6})
        if stray:
            frame = Rectangle((j + 0.06, i + 0.06), 0.88, 0.88, facecolor="none", edgecolor=ORANGE, linewidth=2)
            ax.add_patch(frame)
    sums = table.sum(axis=1)
    wanted = allowed.any(axis=1).astype(float)        # a row that may look at nobody has nothing to share out
    short = int((sums < wanted - 0.005).sum())
    ax.text(len(table) + 0.15, -0.25, "sum", fontsize=size + 0.5, color=GREY, va="center")
    for i, total in enumerate(sums):
        off = not np.isclose(total, wanted[i], atol=0.005)
        ax.text(len(table) + 0.15, i + 0.52, "NaN" if np.isnan(total) else f"{total:.2f}", va="center",
                fontsize=size + 0.5, color=ORANGE if off else GREY, fontweight="bold" if off else "normal")  # fmt: skip
    found = [f"rows of NaN: {nans}"] * bool(nans) + [f"rows that sum to less than one: {short}"] * bool(short)
    found += [f"forbidden places that have weight, framed: {strays}"] * bool(strays)
    return found


def mask_ways(mask: Tensor, ways: Mapping[str, Tensor], words: Sequence[str]) -> None:
    """The weights that come of one mask in several ways, side by side: {way: weights (n, n)}, with row sums.

    The weights may have gone wrong: that is what one looks for. NaN has a colour of its own, weight where none is
    allowed is framed, and forbidden cells without weight are hatched. Raises TypeError for a mask that is not boolean,
    ValueError where the shapes do not fit the words.
    """
    n = len(words)
    check_boolean("mask", mask, "a query may attend")
    allowed = as_matrix(mask, words, words, name="mask").astype(bool)
    drawn, _ = figure(2.9 * len(ways), 3.25, columns=len(ways))
    said = []
    for ax, (way, weights) in zip(drawn.axes, ways.items(), strict=True):
        found = _weights_that_came(ax, allowed, as_matrix(weights, words, words, name=way), size=9)
        ax.set_xlim(0, n + 0.8)
        ax.set_ylim(n + 0.02, 0)
        ax.set_aspect("equal")
        ax.xaxis.tick_top()
        ax.set_xticks(np.arange(n) + 0.5, words)
        turn_labels(ax)
        ax.set_yticks(np.arange(n) + 0.5, words if ax is drawn.axes[0] else [""] * n)
        ax.tick_params(length=0, labelsize=9.5)
        ax.spines[:].set_visible(False)
        ax.set_xlabel("key", fontsize=9)
        if ax is drawn.axes[0]:
            ax.set_ylabel("query", fontsize=9)
        ax.set_title(way, fontsize=10.5, pad=6)
        said.append(f"{way}: {', '.join(found) or 'nothing forbidden has weight, and no sum is wrong'}")
    allows = f"allows {int(allowed.sum())} of {n * n} places"
    show(drawn, f"One mask, which {allows}, applied in {len(ways)} ways. {'; '.join(said)}.")


def teacher_forcing(words: Sequence[str]) -> None:
    """One pass over a sentence: each position reads the words so far, through two layers, and predicts the next.

    One path from the second input (the first, if there is one alone) to the last output is drawn thick, and the one
    way that the mask forbids from the last input to its neighbour on the left is dashed. Raises ValueError for more
    words than can be shown.
    """
    check_places(words=len(words))
    n = len(words) - 1
    drawn, ax = figure(7.6, 3.9)
    stage(ax, (-1.1, n + 1.2), (-0.55, 2.55))
    path = [min(1, n - 1), min(2, n - 1), n - 1]
    for layer in range(2):
        for i in range(n):
            for j in range(i + 1):
                chosen = path[layer : layer + 2] == [j, i]
                _way(ax, (j, layer), (i, layer + 1), BLUE if chosen else GREY, width=3 if chosen else 1.1)
    if n > 1:
        _way(ax, (n - 1, 0), (n - 2, 1), ORANGE, width=1.8)
        ax.patches[-1].set_linestyle((0, (4, 2)))
        ax.text(n - 0.7, 0.42, f"dashed: forbidden, as\n“{words[n - 1]}” is the answer here", va="center", fontsize=10,
                color=ORANGE)  # fmt: skip
    for i in range(n):
        ax.text(i, -0.18, words[i], ha="center", va="top", fontsize=11, color=INK)
        ax.text(i, 2.2, words[i + 1], ha="center", va="bottom", fontsize=11, color=ORANGE, fontweight="bold")
    dots(ax, n, [0, 1, 2])
    for y, said, va in ((-0.18, "input", "top"), (0.5, "layer 1", "center"), (1.5, "layer 2", "center"),
                        (2.2, "target", "bottom")):  # fmt: skip
        ax.text(-0.45, y, said, ha="right", va=va, fontsize=10.5, color=GREY)
    ax.text(n - 0.7, 1.5, f"thick: a path from input\n“{words[path[0]]}” to the position that\npredicts “{words[n]}”",
            va="center", fontsize=10, color=BLUE)  # fmt: skip
    pairs = "; ".join(f"{' '.join(words[: i + 1])} → {words[i + 1]}" for i in range(n))
    show(
        drawn,
        f"Teacher forcing in one pass: {n} positions, in each of two layers joined to itself and all before it; no "
        f"arrow goes to the left but a dashed one, which is forbidden. {pairs}.",
    )


def _way(ax: Axes, start: tuple[float, float], end: tuple[float, float], colour: str, width: float) -> None:
    """An arrow from dot to dot that ends where the dots begin, so that its head is seen."""
    away = np.subtract(end, start) * 0.075 / np.hypot(*np.subtract(end, start))
    arrow(ax, tuple(np.add(start, away)), tuple(np.subtract(end, away)), colour, width)


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
