"""Drawings of recurrence: unrolled, with gates, encoder and decoder, two readers, a signal's path; lines of seeds."""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from math import log10
from typing import Any, NamedTuple

from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import LogLocator, NullFormatter, NullLocator

from attncourse.viz.diagrams import arrow, box
from attncourse.viz.style import (
    AMBER,
    BLUE,
    GREEN,
    GREY,
    INK,
    ORANGE,
    PALE,
    PURPLE,
    WEIGHTS,
    figure,
    line_style,
    show,
    stage,
)

ON_THE_PATH = ORANGE, 3.0  # an arrow's colour and width


def unrolled_rnn(tokens: Sequence[str], path: tuple[int, int] | None = None) -> None:
    """A recurrent language model over `tokens`: below each state what it has read, above it its target.

    `path` (from, to) marks how what one state reads gets to what another predicts.
    """
    first, last = path or (0, -1)
    n = len(tokens) - 1
    drawn, ax = figure(1.3 + 1.55 * n, 3.9)
    stage(ax, (-1.6, 2.6 * n - 0.9), (-0.5, 8.6))
    arrow(ax, (-1.35, 3.9), (-0.6, 3.9))
    ax.text(-1.4, 3.9, "$h_0$", ha="right", va="center", fontsize=11)
    ax.text(-0.98, 4.3, "$W_h$", ha="center", va="center", fontsize=10, color=GREY)
    for t, (read, guess) in enumerate(pairwise(tokens), start=1):
        x = 2.6 * (t - 1)
        ax.text(x, 0.0, read, ha="center", va="center", fontsize=10.5)
        ax.text(x, 8.2, guess, ha="center", va="center", fontsize=10.5, color=ORANGE if t == last else INK)
        for y, label, colour, width in ((1.6, f"$x_{t}$", GREY, 1.1), (3.9, f"$h_{t}$", BLUE, 1.1),
                                        (6.2, "softmax", GREY, 1.8)):  # fmt: skip
            box(ax, x, y, label, colour, width=width)
        for start, end in ((0.35, 1.08), (2.12, 3.38), (4.42, 5.68), (6.72, 7.85)):
            on = t == first if end < 3.9 else t == last
            arrow(ax, (x, start), (x, end), *(ON_THE_PATH if on else ()))
        for y, matrix in ((2.75, "$W_x$"), (5.05, "$E^\\top$")):
            ax.text(x + 0.12, y, matrix, ha="left", va="center", fontsize=10, color=GREY)
        if t < n:
            arrow(ax, (x + 0.6, 3.9), (x + 2.0, 3.9), *(ON_THE_PATH if first <= t < last else (GREY, 1.8)))
            ax.text(x + 1.25, 4.3, "$W_h$", ha="center", va="center", fontsize=10, color=GREY)
    for y, words in ((0.0, "input"), (1.6, "embedding"), (6.2, "probabilities"), (8.2, "target")):
        ax.text(-1.6, y, words, ha="right", va="center", fontsize=10, color=GREY)
    steps = "; ".join(f"state {t} has read {a} and predicts {b}" for t, (a, b) in enumerate(pairwise(tokens), start=1))
    show(
        drawn,
        "A recurrent network unrolled. Each token becomes an embedding x. Each state is made of the state before and "
        "one embedding, by the same two matrices; E transposed and a softmax make probabilities of it: "
        f"{steps}."
        + (f" A marked path leads from {tokens[first - 1]} to state {last} and its prediction." if path else ""),
    )


class Wiring(NamedTuple):
    """A cell as a graph. Each node has a label and a place; each edge says whose number goes into whom.

    The picture is drawn from it, and a test computes with what was drawn: it must give what torch's cell gives.
    """

    nodes: dict[str, tuple[str, float, float]]
    edges: tuple[tuple[str, str], ...]


# Words stand alone for what comes in, for the states, and for what goes out; the others are in boxes.
OUTSIDE = ("read", "x", "past", "old", "cell", "state", "next", "out")
WORDS_HALF = {"read": 1.05, "past": 0.6, "next": 1.5, "out": 1.5, "old": 0.6, "cell": 0.4, "state": 0.4, "x": 0.4}
ON_THE_STATE = {"old", "keep", "sum", "cell", "show", "state", "next", "out"}  # what lies on the path of a state

LSTM_CELL = Wiring(
    nodes={
        "old": ("$c_{t-1}$", 0.0, 5.6), "keep": ("×", 2.0, 5.6), "sum": ("+", 5.5, 5.6), "cell": ("$c_t$", 8.0, 5.6),
        "take": ("×", 5.5, 3.9), "squash": ("tanh", 8.0, 3.9), "show": ("×", 9.9, 3.9), "state": ("$h_t$", 11.4, 3.9),
        "f": (r"$f=\sigma(\cdot)$", 2.0, 2.2), "i": (r"$i=\sigma(\cdot)$", 4.3, 2.2),
        "candidate": (r"$\tilde c=\tanh(\cdot)$", 6.8, 2.2), "o": (r"$o=\sigma(\cdot)$", 9.9, 2.2),
        "read": (r"$x_t,\ h_{t-1}$", 5.5, 0.2), "next": ("to step t + 1", 13.9, 5.6),
        "out": ("to step t + 1\nand the logits", 13.9, 3.9),
    },
    edges=(
        ("old", "keep"), ("f", "keep"), ("keep", "sum"), ("i", "take"), ("candidate", "take"), ("take", "sum"),
        ("sum", "cell"), ("cell", "next"), ("cell", "squash"), ("squash", "show"), ("o", "show"), ("show", "state"),
        ("state", "out"), ("read", "f"), ("read", "i"), ("read", "candidate"), ("read", "o"),
    ),
)  # fmt: skip

GRU_CELL = Wiring(
    nodes={
        "old": ("$h_{t-1}$", 0.0, 5.6), "keep": ("×", 2.0, 5.6), "sum": ("+", 5.5, 5.6), "state": ("$h_t$", 8.0, 5.6),
        "out": ("to step t + 1\nand the logits", 13.9, 5.6),
        "rest": ("1 − z", 3.7, 3.9), "take": ("×", 5.5, 3.9), "z": (r"$z=\sigma(\cdot)$", 2.0, 2.2),
        "candidate": (r"$\tilde h=\tanh(\cdot)$", 7.2, 2.2), "input": (r"$W_{\tilde h}$", 10.2, 2.2),
        "x": ("$x_t$", 12.5, 2.2),
        "read": (r"$x_t,\ h_{t-1}$", 2.0, 0.2), "r": (r"$r=\sigma(\cdot)$", 4.8, 0.2), "reset": ("×", 7.2, 0.2),
        "matrix": (r"$U_{\tilde h}$", 10.2, 0.2), "past": ("$h_{t-1}$", 12.5, 0.2),
    },
    edges=(
        ("old", "keep"), ("z", "keep"), ("keep", "sum"), ("z", "rest"), ("rest", "take"), ("candidate", "take"),
        ("take", "sum"), ("sum", "state"), ("state", "out"), ("read", "z"), ("read", "r"), ("r", "reset"),
        ("past", "matrix"), ("matrix", "reset"), ("reset", "candidate"), ("x", "input"), ("input", "candidate"),
    ),
)  # fmt: skip


MATRIX = "#008f68"  # as green as GREEN, and darker: between amber and ink in grey

# The kinds of boxes differ in lightness, so that they are told apart in grey, too: {colour: (face, words)}.
KEY = {
    AMBER: (AMBER, "gates, between 0 and 1"),
    PURPLE: ("white", "candidates, between −1 and 1"),
    MATRIX: (MATRIX, r"the two matrices of $\tilde h$"),
    INK: (INK, "computed element by element"),
}  # fmt: skip
STATES = "the states, from step to step"
DOT = (
    "$(\\cdot)$: $x_t W + h_{t-1} U + b$, each box with its own;\n"
    "in $\\tilde h$: the sum of its two arrows, plus $b$"
)


def lstm_and_gru() -> None:
    """An LSTM and a GRU, each drawn from its `Wiring`, and what the colours mean."""
    drawn, (lstm, gru) = figure(7.8, 7.9, rows=2)
    titles = "LSTM: two states, $c_t$ and $h_t$", "GRU: one state, $h_t$"
    for ax, title, cell in zip((lstm, gru), titles, (LSTM_CELL, GRU_CELL), strict=True):
        stage(ax, (-0.9, 15.5), (-0.5, 6.4))
        ax.set_title(title)
        for name, (label, x, y) in cell.nodes.items():
            if name in OUTSIDE:
                ax.text(x, y, label, ha="center", va="center", fontsize=10 if name in ("next", "out") else 11.5,
                        color=BLUE if name in ("old", "past", "cell", "state") else INK)  # fmt: skip
            else:
                colour = _colour(name)
                words = "white" if colour in (INK, MATRIX) else INK
                box(ax, x, y, label, colour, width=_width(label), fill=KEY[colour][0], text=words)
        for start, end in cell.edges:
            wide = {start, end} <= ON_THE_STATE
            arrow(ax, *_between(cell, start, end), colour=BLUE if wide else _colour(start), width=2.4 if wide else 1.2)
    key = [Patch(facecolor=face, edgecolor=colour, linewidth=1.6, label=words) for colour, (face, words) in KEY.items()]
    lines = [Line2D([], [], color=BLUE, linewidth=2.4, label=STATES), Line2D([], [], color="none", label=DOT)]
    drawn.legend(handles=[*key, *lines], loc="outside lower center", ncols=2, frameon=False, fontsize=10)
    show(
        drawn,
        "Two gated cells. LSTM: f times the old cell state, plus i times the candidate, is the new cell state c; tanh "
        "of c, times o, is the new hidden state h; f, i, o and the candidate are computed from the input and the old "
        "h, each with matrices of its own; both states go to the next step. GRU: z times the old h, plus 1 − z times "
        "the candidate, is the new h; the candidate is computed from the "
        "input after its matrix and from r times the old h after its matrix; r and z from the input and the old h.",
    )


def _colour(name: str) -> str:
    if name in ("f", "i", "o", "z", "r"):
        return AMBER
    if name in OUTSIDE:
        return GREY
    return PURPLE if name == "candidate" else MATRIX if name in ("input", "matrix") else INK


def _width(label: str) -> float:
    return 2.5 if "=\\tanh" in label else 1.9 if "=" in label else 1.4 if label in ("tanh", "1 − z") else 1.1


def _between(cell: Wiring, start: str, end: str) -> tuple[tuple[float, float], tuple[float, float]]:
    """From the rim of one node to the rim of the other."""
    (_, x, y), (_, x_end, y_end) = cell.nodes[start], cell.nodes[end]

    def rim(name: str, dx: float, dy: float) -> tuple[float, float]:
        label, at_x, at_y = cell.nodes[name]
        half = WORDS_HALF.get(name, _width(label) / 2)
        share = min(half / abs(dx) if dx else 9.0, 0.52 / abs(dy) if dy else 9.0)
        return at_x + share * dx, at_y + share * dy

    return rim(start, x_end - x, y_end - y), rim(end, x - x_end, y - y_end)


def encoder_decoder(source: Sequence[str], target: Sequence[str]) -> None:
    """An encoder reads `source` into one vector, from which a decoder writes `target`, token by token."""
    n, m = len(source), len(target)
    drawn, ax = figure(1.6 + 1.15 * (n + m), 3.1)
    stage(ax, (-1.6, 2.0 * (n + m) + 2.4), (-1.0, 4.6))
    first = 2.0 * n + 2.4                                                     # where the decoder begins
    for t, word in enumerate(source, start=1):
        x = 2.0 * (t - 1)
        ax.text(x, 0.0, word, ha="center", va="center", fontsize=10.5)
        arrow(ax, (x, 0.35), (x, 1.45))
        box(ax, x, 2.0, f"$h_{t}$", BLUE)
        if t < n:
            arrow(ax, (x + 0.6, 2.0), (x + 1.4, 2.0), width=1.8)
            ax.text(x, 2.7, "not\npassed on", ha="center", va="bottom", fontsize=10, color=GREY)
    arrow(ax, (2.0 * (n - 1) + 0.6, 2.0), (first - 0.6, 2.0), colour=ORANGE, width=4)
    ax.text((2.0 * (n - 1) + first) / 2, 3.15, f"$s_0 = h_{n}$\none vector:\n$d$ numbers", ha="center", va="center",
            fontsize=10.5, color=ORANGE, fontweight="bold")  # fmt: skip
    for t, word in enumerate(target, start=1):
        x = first + 2.0 * (t - 1)
        box(ax, x, 2.0, f"$s_{t}$", GREEN)
        ax.text(x, 4.0, word, ha="center", va="center", fontsize=10.5)
        arrow(ax, (x, 2.55), (x, 3.65))
        ax.text(x, 0.0, ("<bos>", *target)[t - 1], ha="center", va="center", fontsize=10.5)
        arrow(ax, (x, 0.35), (x, 1.45))
        if t < m:
            arrow(ax, (x + 0.6, 2.0), (x + 1.4, 2.0), width=1.8)
    for x, name in ((n - 1.0, "encoder"), (first + m - 1.0, "decoder")):
        ax.text(x, -0.75, name, ha="center", va="center", fontsize=10.5, color=GREY)
    show(
        drawn,
        f"An encoder reads {' '.join(source)}: hidden states h 1 to h {n}, each made of the one before and a token. "
        f"Only the last, h {n}, one vector of d numbers, reaches the decoder: it is s 0. The states s 1 to s {m} read "
        f"<bos> {' '.join(target[:-1])} and write {' '.join(target)}.",
    )


def two_readers(pairs: Sequence[str], asked: int) -> None:
    """Two readers of `pairs` that are asked for one of them: what the last state keeps, and what attention keeps.

    All that differs is which states reach `attend`. Three pairs fit.
    """
    drawn, panels = figure(9.6, 4.4, columns=2)
    last, (letter, digit) = len(pairs) - 1, list(pairs[asked])
    states = f"h 1 to h {len(pairs)}"
    titles = (
        "one vector: keeps the last state,\n$d$ numbers",
        f"attention: keeps all states,\n{len(pairs)} × $d$ numbers",
    )
    for ax, title, kept in zip(panels, titles, ([last], range(len(pairs))), strict=True):
        stage(ax, (-1.0, 9.4), (-0.5, 8.7))
        ax.set_title(title, fontsize=11)
        for t, pair in enumerate(pairs):
            x = 2.0 * t
            ax.text(x, 0.0, pair, ha="center", va="center", fontsize=11)
            arrow(ax, (x, 0.35), (x, 1.45))
            box(ax, x, 2.0, f"$h_{t + 1}$", BLUE if t in kept else GREY, fill=None if t in kept else "white")
            if t < last:
                arrow(ax, (x + 0.6, 2.0), (x + 1.4, 2.0), width=1.8)
            if t in kept:
                arrow(ax, (x, 2.55), (2.0 + 0.35 * (t - 1), 3.65), colour=ORANGE, width=2.6)
                weight = "1" if len(kept) == 1 else f"$\\alpha_{t + 1}$"
                ax.text(x + (-0.3 if t == 0 else 0.3), 2.95, weight, ha="center", va="center", fontsize=11, color=INK)
            else:
                ax.text(x, 2.95, "not kept", ha="center", va="center", fontsize=10, color=GREY)
        box(ax, 2.0, 4.2, "attend", ORANGE, width=2.4)
        ax.text(6.9, 4.2, f"{letter}?", ha="center", va="center", fontsize=11)
        arrow(ax, (6.4, 4.2), (3.25, 4.2))
        arrow(ax, (6.9, 4.6), (6.9, 5.45))
        box(ax, 6.9, 6.0, "scale", GREEN, width=1.8)
        arrow(ax, (2.0, 4.75), (2.0, 5.45))
        ax.text(2.2, 5.1, "found", ha="left", va="center", fontsize=10, color=GREY)
        box(ax, 2.0, 6.0, "×", PURPLE)
        arrow(ax, (5.95, 6.0), (2.6, 6.0))
        arrow(ax, (2.0, 6.55), (2.0, 7.25))
        ax.text(2.2, 6.9, "selected", ha="left", va="center", fontsize=10, color=GREY)
        box(ax, 2.0, 7.8, "combine, tanh", BLUE, width=3.6)
        arrow(ax, (3.85, 7.8), (5.75, 7.8))
        box(ax, 6.9, 7.8, "answer", BLUE, width=2.2)
        arrow(ax, (8.05, 7.8), (8.75, 7.8))
        ax.text(9.05, 7.8, digit, ha="center", va="center", fontsize=11, color=ORANGE)
    show(
        drawn,
        f"Two readers of {' '.join(pairs)}, asked for {letter}. A recurrent network makes the states {states}. On the "
        "left the last state alone reaches the box attend, with the weight 1; on the right all states do, with weights "
        "α. The rest is the same: attend averages what reaches it, by the question; a scale from the question "
        f"multiplies what was found; a layer with tanh and a last layer make the answer, {digit}.",
    )


DOT_OF_A_SEED: dict[str, Any] = {"s": 34, "edgecolor": "white", "linewidth": 0.8}  # its ring shows on another dot


def seed_lines(
    panels: Mapping[str, Mapping[str, Mapping[int, Sequence[float]]]],
    x_name: str,
    y_name: str,
    log_x: bool = True,
    log_y: bool = False,
    chance: float | None = None,
    colours: Mapping[str, str] | None = None,
    chance_at: float | None = None,
    floor: tuple[str, Mapping[int, float]] | None = None,
    apart: float = 0,
    ratios: bool = False,
) -> None:
    """Lines through means, a mark for each seed: {panel: {line: {x: a value for each seed}}}. Panels share both axes.

    Each line is named at its right end, in its colour. x is drawn to base 2 or even, y from 0 to 1, or on a logarithmic
    axis as wide as its values. What guessing gives, `chance`, is a dotted line; "guessing" stands at the right, or
    below the line at `chance_at`. A player to compare with, `floor` (name, {x: value}), has a dotted line of its own.
    `colours` {line: colour} are given where they say something; these lines are all alike but for them, and the other
    lines have colour, dashes and marks by order. With `apart`, each seed has a line of its own, and the marks of
    different lines stand side by side, so far apart (to base 2: so many doublings). With `ratios`, a name also says how
    much is left at the last x.
    """
    drawn, _ = figure(4.8 * len(panels) if len(panels) > 1 else 6.6, 3.4, columns=len(panels))
    engine = drawn.get_layout_engine()
    if isinstance(engine, ConstrainedLayoutEngine):
        engine.set(wspace=0.06)                          # between the names of one panel and the numbers of the next
    said = []
    ys = [y for lines in panels.values() for points in lines.values() for values in points.values() for y in values]
    for ax, (title, lines) in zip(drawn.axes, panels.items(), strict=True):
        ends: dict[str, tuple[float, float, Any]] = {}
        for i, (name, points) in enumerate(lines.items()):
            means = [sum(values) / len(values) for values in points.values()]
            style = line_style(i)
            if colours and name in colours:
                style |= {"color": colours[name], "marker": "o", "linestyle": "-"}
            colour, marker, shift = style["color"], style["marker"], apart * (i - (len(lines) - 1) / 2)
            places = [x * 2.0**shift if log_x else x + shift for x in points]
            for drawn_line in zip(*points.values(), strict=True) if apart else (means,):
                ax.plot(places, drawn_line, color=colour, linestyle=style["linestyle"], linewidth=1.2 if apart else 2)
            ends[f"{name}: {_short(means[-1] / means[0])} left" if ratios else name] = max(places), means[-1], colour
            for x, values in zip(places, points.values(), strict=True):
                ax.scatter([x] * len(values), values, color=colour, marker=marker, zorder=4, **DOT_OF_A_SEED)
            listed = ", ".join(f"{mean:.3g} at {x}" for x, mean in zip(points, means, strict=True))
            said.append(f"{title}, {name}: {listed}" if title else f"{name}: {listed}")
        if floor:
            name, levels = floor
            ax.plot(list(levels), list(levels.values()), color=GREY, linestyle=":", linewidth=1.6, zorder=1)
            ends[name] = max(levels), levels[max(levels)], GREY
        if log_x:
            ax.set_xscale("log", base=2)
        xs = sorted({x for points in lines.values() for x in points})
        ax.set_xticks(xs, [str(x) for x in xs])
        ax.xaxis.set_minor_locator(NullLocator())
        if log_y:
            ax.set_yscale("log")
            room = (max(ys) / min(ys)) ** 0.05
            ax.set_ylim(min(ys) / room, max(ys) * room)
            if max(ys) < 1000 * min(ys):  # few powers of ten to mark
                subs = (1, 1.5, 2, 3, 4, 5, 7) if max(ys) < 10 * min(ys) else (1, 2, 5)
                ax.yaxis.set_major_locator(LogLocator(subs=subs))
                ax.yaxis.set_major_formatter("{x:g}")
            ax.yaxis.set_minor_formatter(NullFormatter())
        else:
            ax.set_ylim(0, 1.06)
        if chance is not None:
            ax.axhline(chance, color=GREY, linestyle=":", linewidth=1.4, zorder=1)
            right = chance_at is None
            ax.annotate("guessing", (1 if right else chance_at, chance), (-3 if right else 0, -3),
                        xycoords=("axes fraction" if right else "data", "data"), textcoords="offset points",
                        ha="right" if right else "center", va="top", fontsize=9.5, color=GREY)  # fmt: skip
        ax.grid(color=PALE, linewidth=0.8)
        ax.set_axisbelow(True)
        ax.set_title(title)
        ax.set_xlabel(x_name)
        _name_at_the_end(ax, ends)
    drawn.axes[0].set_ylabel(y_name)
    show(drawn, f"{y_name} against {x_name}, means over seeds. {'; '.join(said)}."
         + ("" if chance is None else f" Guessing gives {chance:g}.")
         + (f" {' '.join(floor[0].split())}: {', '.join(f'{y:.3g} at {x}' for x, y in floor[1].items())}."
            if floor else ""))  # fmt: skip


def _short(ratio: float) -> str:
    """A ratio in few signs: a power of ten if it is tiny."""
    return f"{ratio:.2g}" if ratio > 0.01 else f"$10^{{{round(log10(ratio))}}}$"


def _name_at_the_end(ax: Axes, ends: Mapping[str, tuple[float, float, str]]) -> None:
    """Writes {name: (x, y, colour) of a line's right end} beside the axes, as high as the end or a little apart."""
    ax.get_ylim()  # fits the axes to what is drawn
    to_share = ax.transData + ax.transAxes.inverted()
    at = {name: float(to_share.transform((x, y))[1]) for name, (x, y, _) in ends.items()}
    high = {name: 0.068 * (1 + name.count("\n")) for name in ends}                # of a name's lines
    order = sorted(at, key=at.__getitem__)
    for _ in range(40):                                                          # neighbours push each other away
        for below, above in pairwise(order):
            lacks = (high[below] + high[above]) / 2 - (at[above] - at[below])
            if lacks > 1e-4:
                at[below], at[above] = at[below] - lacks / 2, at[above] + lacks / 2
    for name, (_, _, colour) in ends.items():
        ax.annotate(name, (1, at[name]), (8, 0), xycoords="axes fraction", textcoords="offset points", ha="left",
                    va="center", fontsize=10, color=colour)  # fmt: skip


def one_change(
    base: tuple[str, Sequence[float]],
    rows: Mapping[str, Sequence[float]],
    x_name: str,
    floor: tuple[str, float],
    compared: Mapping[str, Sequence[float]] | None = None,
) -> None:
    """What each of several changes does to one measurement: a row each, (name, a value for each seed) of the `base`.

    A bar leads from the base's mean to the mean of the row: blue where the row is better, orange where it is worse. The
    means are written at the right. `floor` (words, x) is an upright line below which nothing was learned. More rows,
    `compared`, stand below a level line.
    """
    changes, rows = len(rows), {**rows, **(compared or {})}
    drawn, ax = figure(8.2, 1.5 + 0.42 * len(rows))
    name, values = base
    start = sum(values) / len(values)
    ax.axvline(start, color=INK, linewidth=1.4, zorder=1)
    ax.axvline(floor[1], color=GREY, linestyle=":", linewidth=1.4, zorder=1)
    for x, words, side, colour in ((start, f"{name}: {start:.2f}", "center", INK),
                                   (floor[1], f"{floor[0]}: {floor[1]:.2f}", "center", GREY)):  # fmt: skip
        ax.annotate(words, (x, 1), (0, 4), xycoords=("data", "axes fraction"), textcoords="offset points", ha=side,
                    va="bottom", fontsize=10, color=colour)  # fmt: skip
    said = [f"{name}: {start:.2f}", f"{floor[0]}: {floor[1]:.2f}"]
    for y, (row, values) in enumerate(rows.items()):
        mean = sum(values) / len(values)
        colour = BLUE if mean > start else ORANGE
        ax.plot([start, mean], [y, y], color=colour, linewidth=7, alpha=0.35, solid_capstyle="butt", zorder=2)
        ax.scatter(values, [y] * len(values), color=colour, zorder=4, **DOT_OF_A_SEED)
        ax.annotate(f"{mean:.2f}", (1, y), (8, 0), xycoords=("axes fraction", "data"), textcoords="offset points",
                    ha="left", va="center", fontsize=10, color=colour)  # fmt: skip
        said.append(f"{row}: {mean:.2f}")
    if compared:
        ax.axhline(changes - 0.5, color=GREY, linewidth=1.2, zorder=1)
    ax.set_yticks(range(len(rows)), list(rows))
    ax.set_ylim(len(rows) - 0.5, -0.5)
    ax.set_xlim(0, 1.04)
    ax.tick_params(axis="y", length=0)
    ax.grid(axis="x", color=PALE, linewidth=0.8)
    ax.set_axisbelow(True)
    ax.set_xlabel(x_name)
    show(drawn, f"{x_name}, means over seeds, an upright line at the reader to compare with. {'; '.join(said)}.")


def times(lines: Mapping[str, Mapping[int, float]], alike: tuple[str, str], at: int) -> None:
    """Microseconds per position, {name: {length: microseconds}}; a bracket at one length joins the two lines `alike`.

    Those two do the same multiplications: what lies between them is what it costs to do them one after the other.
    """
    drawn, ax = figure(7.4, 3.6)
    for i, line in enumerate(lines.values()):
        ax.plot(list(line), list(line.values()), **line_style(i) | {"markersize": 6})
    low, high = sorted(lines[name][at] for name in alike)
    ax.annotate("", (at, low * 1.12), (at, high / 1.15), zorder=2,
                arrowprops={"arrowstyle": "<->", "color": INK, "linewidth": 1.6, "shrinkA": 0,
                            "shrinkB": 0})  # fmt: skip
    words = f"the same\nmultiplications:\n{high / low:.1f} times as long"
    left = at == max(map(max, lines.values()))                                  # right of the last length are names
    ax.annotate(words, (at, (low * high) ** 0.5), (-8 if left else 8, 0), textcoords="offset points",
                ha="right" if left else "left", va="center", fontsize=10, color=INK)  # fmt: skip
    ax.set_xscale("log", base=2)
    ax.set_yscale("log")
    ax.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    ax.yaxis.set_major_formatter("{x:g}")
    ax.yaxis.set_minor_formatter(NullFormatter())
    xs = sorted({x for line in lines.values() for x in line})
    ax.set_xticks(xs, [f"{x:,}" for x in xs])
    ax.xaxis.set_minor_locator(NullLocator())
    ax.grid(color=PALE, linewidth=0.8)
    ax.set_axisbelow(True)
    ax.set_xlabel("length n")
    ax.set_ylabel("microseconds per position")
    _name_at_the_end(ax, {name: (max(line), line[max(line)], line_style(i)["color"])
                          for i, (name, line) in enumerate(lines.items())})  # fmt: skip
    said = "; ".join(
        f"{name}: " + ", ".join(f"{y:.2g} at {x:,}" for x, y in line.items()) for name, line in lines.items()
    )
    show(
        drawn,
        f"Microseconds per position against the length. {said}. {alike[0]} and {alike[1]} do the same multiplications: "
        f"at {at:,} the first takes {lines[alike[0]][at] / lines[alike[1]][at]:.2g} times as long.",
    )


def blues(widths: Sequence[int]) -> dict[int, str]:
    """A blue for each width, the wider the darker."""
    places = [0.55 + 0.45 * i / max(len(widths) - 1, 1) for i in range(len(widths))]
    return {width: to_hex(WEIGHTS(place)) for width, place in zip(sorted(widths), places, strict=True)}


def signal_path(n: int, distance: int) -> tuple[Figure, str]:
    """How a signal gets to the last of `n` positions from `distance` before: by recurrence and by attention.

    The numbers in the boxes say after how many steps, at the earliest, a state can be there. Attention's lines are
    drawn into the last position and into one in the middle. For `explore`.
    """
    start, end, middle = n - 1 - distance, n - 1, n // 2 - 1
    drawn, (recurrent, attention) = figure(7.8, 4.4, rows=2)
    recurrent.get_gridspec().set_height_ratios((1.0, 1.4))
    cells = distance + 1
    for ax, title in (
        (recurrent, f"recurrent: the signal goes through {cells} cells; {n} steps, one after the other"),
        (attention, "attention: the signal goes through 1 average; 1 step"),
    ):
        high = 1.3 if ax is attention else 0.0
        stage(ax, ((n - 1) / 2 - 9.2, (n - 1) / 2 + 9.2), (-0.55, 2.6 + high))   # as wide for any n, and in the middle
        ax.set_title(title, fontsize=10.5)
        ax.text(-0.5, 1.6 + high, "step", ha="right", va="center", fontsize=10, color=GREY)
    for t in range(n):
        on = start <= t <= end
        _cell(recurrent, t, f"{t + 1}", on)
        arrow(recurrent, (t, 0.15), (t, 1.05), ORANGE if t == start else PALE, 2.2 if t == start else 1.0)
        if t:
            arrow(recurrent, (t - 0.66, 1.55), (t - 0.34, 1.55), *((ORANGE, 2.2) if start < t <= end else (GREY, 1.0)))
        _cell(attention, t, "1", t == end, 2.9)
        if t <= middle:
            attention.plot([t, middle], [0.15, 2.35], color=PALE, linewidth=1.0, zorder=0.8)
        if t != start:
            attention.plot([t, end], [0.15, 2.35], color=GREY, linewidth=0.8, zorder=0.8)
    arrow(attention, (start, 0.15), (end, 2.35), ORANGE, 2.2)
    for ax in (recurrent, attention):
        for t in range(n):
            ends = t in (start, end)
            ax.text(t, -0.15, f"$x_{{{t + 1}}}$", ha="center", va="center", fontsize=9.5, color=INK if ends else GREY)
    return drawn, (
        f"{n} positions, a signal from x{start + 1} to the last. Recurrent: it goes through {cells} cells, and the "
        f"last state is there after {n} steps. Attention: through one average, and all states are there after 1 step."
    )


def _cell(ax: Axes, x: float, label: str, on: bool, y: float = 1.6) -> None:
    box(ax, x, y, label, ORANGE if on else GREY, width=0.6, fill=None if on else "white")
    ax.texts[-1].set_fontsize(10.5)                                              # two digits fit, too
