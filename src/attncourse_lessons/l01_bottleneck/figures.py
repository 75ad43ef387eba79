"""Drawings of recurrence: unrolled, with gates, encoder and decoder, two readers, a signal's path; lines of seeds."""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
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


def unrolled_rnn(tokens: Sequence[str]) -> None:
    """A recurrent language model over `tokens`: below each state what it has read, above it its target."""
    n = len(tokens) - 1
    drawn, ax = figure(1.3 + 1.55 * n, 3.9)
    stage(ax, (-1.6, 2.6 * n - 0.9), (-0.5, 8.6))
    arrow(ax, (-1.35, 3.9), (-0.6, 3.9))
    ax.text(-1.4, 3.9, "$h_0$", ha="right", va="center", fontsize=11)
    for t, (read, guess) in enumerate(pairwise(tokens), start=1):
        x = 2.6 * (t - 1)
        ax.text(x, 0.0, read, ha="center", va="center", fontsize=10.5)
        ax.text(x, 8.2, guess, ha="center", va="center", fontsize=10.5, color=ORANGE)
        for y, label, colour, width in ((1.6, f"$x_{t}$", GREY, 1.1), (3.9, f"$h_{t}$", BLUE, 1.1),
                                        (6.2, "softmax", GREY, 1.8)):  # fmt: skip
            box(ax, x, y, label, colour, width=width)
        for start, end in ((0.35, 1.08), (2.12, 3.38), (4.42, 5.68), (6.72, 7.85)):
            arrow(ax, (x, start), (x, end))
        for y, matrix in ((2.75, "$W_x$"), (5.05, "$E^\\top$")):
            ax.text(x + 0.12, y, matrix, ha="left", va="center", fontsize=10, color=GREY)
        if t < n:
            arrow(ax, (x + 0.6, 3.9), (x + 2.0, 3.9), width=1.8)
            ax.text(x + 1.25, 4.3, "$W_h$", ha="center", va="center", fontsize=10, color=GREY)
    for y, words in ((0.0, "input"), (1.6, "embedding"), (6.2, "probabilities"), (8.2, "target")):
        ax.text(-1.6, y, words, ha="right", va="center", fontsize=10, color=GREY)
    steps = "; ".join(f"state {t} has read {a} and predicts {b}" for t, (a, b) in enumerate(pairwise(tokens), start=1))
    show(
        drawn,
        "A recurrent network unrolled. Each token becomes an embedding x. Each state is made of the state before and "
        "one embedding, by the same two matrices; E transposed and a softmax make probabilities of it: "
        f"{steps}.",
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
        "rest": ("1 −", 3.7, 3.9), "take": ("×", 5.5, 3.9), "z": (r"$z=\sigma(\cdot)$", 2.0, 2.2),
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
    AMBER: (AMBER, "gates, between 0 and 1: $f$ forget, $i$ input, $o$ output; $z$ update, $r$ reset"),
    PURPLE: ("white", r"candidates $\tilde c$ and $\tilde h$, between −1 and 1: what may be written"),
    MATRIX: (MATRIX, r"matrices, drawn where $r$ comes between one of them and the sum"),
    INK: (INK, "computed number by number: products, sums, 1 minus, tanh"),
}  # fmt: skip
STATES = "the states, from step to step"
DOT = (
    "$(\\cdot)$: $x_t W + h_{t-1} U + b$, each box with its own $W$, $U$, $b$;\n"
    "in $\\tilde h$: what its two arrows bring, plus $b$"
)


def lstm_and_gru() -> None:
    """An LSTM and a GRU, each drawn from its `Wiring`, and what the colours mean."""
    drawn, (lstm, gru) = figure(7.8, 8.4, rows=2)
    titles = "LSTM: two states, $c_t$ and $h_t$", "GRU: one state, $h_t$"
    for ax, title, cell in zip((lstm, gru), titles, (LSTM_CELL, GRU_CELL), strict=True):
        stage(ax, (-0.9, 15.5), (-0.5, 6.4))
        ax.set_title(title)
        for name, (label, x, y) in cell.nodes.items():
            if name in OUTSIDE:
                ax.text(x, y, label, ha="center", va="center", fontsize=10 if name in ("next", "out") else 11.5,
                        color=BLUE if name in ("old", "cell", "state") else INK)  # fmt: skip
            else:
                colour = _colour(name)
                words = "white" if colour in (INK, MATRIX) else INK
                box(ax, x, y, label, colour, width=_width(label), fill=KEY[colour][0], text=words)
        for start, end in cell.edges:
            wide = {start, end} <= ON_THE_STATE
            arrow(ax, *_between(cell, start, end), colour=BLUE if wide else _colour(start), width=2.4 if wide else 1.2)
    key = [Patch(facecolor=face, edgecolor=colour, linewidth=1.6, label=words) for colour, (face, words) in KEY.items()]
    lines = [Line2D([], [], color=BLUE, linewidth=2.4, label=STATES), Line2D([], [], color="none", label=DOT)]
    drawn.legend(handles=[*key, *lines], loc="outside lower center", ncols=1, frameon=False, fontsize=10)
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
    return 2.5 if "=\\tanh" in label else 1.9 if "=" in label else 1.4 if label == "tanh" else 1.1


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
    arrow(ax, (2.0 * (n - 1) + 0.6, 2.0), (first - 0.6, 2.0), colour=ORANGE, width=4)
    ax.text((2.0 * (n - 1) + first) / 2, 3.15, f"$s_0 = h_{n}$\none vector:\n$d$ numbers", ha="center", va="center",
            fontsize=10.5, color=ORANGE, fontweight="bold")  # fmt: skip
    for t, word in enumerate(target, start=1):
        x = first + 2.0 * (t - 1)
        box(ax, x, 2.0, f"$s_{t}$", GREEN)
        ax.text(x, 4.0, word, ha="center", va="center", fontsize=10.5, color=ORANGE)
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


DOT_OF_A_SEED: dict[str, Any] = {"s": 14, "edgecolor": "white", "linewidth": 0.7}  # its ring shows on a mark


def seed_lines(
    panels: Mapping[str, Mapping[str, Mapping[int, Sequence[float]]]],
    x_name: str,
    y_name: str,
    log_x: bool = True,
    log_y: bool = False,
    y_range: tuple[float, float] = (0, 1.06),
    ticks: Mapping[int, str] | None = None,
    chance: float | None = None,
    colours: Mapping[str, str] | None = None,
    chance_at: float | None = None,
    band: tuple[str, Mapping[int, float]] | None = None,
    on_band: str = "",
) -> None:
    """Lines through means, a point for each seed: {panel: {line: {x: a value for each seed}}}. Panels share both axes.

    x is drawn to base 2 or even, y over `y_range`, or on a logarithmic axis as wide as its values. `ticks` are the
    words at an x, where the number is not enough. What guessing gives, `chance`, is a dotted line. Lines that have the
    same names in all panels are named in the last, others in each. `colours` {line: colour} are given where they say
    something; the other lines have theirs by order. "guessing" stands at the right, or below the line at `chance_at`.
    `band` (name, {x: y}) is a broad grey line under the others of a single panel; `on_band` says which lines lie on it.
    """
    drawn, _ = figure(4.1 * len(panels) if len(panels) > 1 else 6.6, 3.4, columns=len(panels))
    said, words = [], ticks or {}
    ys = [y for lines in panels.values() for points in lines.values() for values in points.values() for y in values]
    for ax, (title, lines) in zip(drawn.axes, panels.items(), strict=True):
        for i, (name, points) in enumerate(lines.items()):
            means = [sum(values) / len(values) for values in points.values()]
            style = line_style(i)
            if colours and name in colours:
                style |= {"color": colours[name], "markerfacecolor": "white" if i == 0 else colours[name]}
            ax.plot(list(points), means, label=name, **style)
            for x, values in points.items():
                ax.scatter([x] * len(values), values, color=style["color"], zorder=4, **DOT_OF_A_SEED)
            listed = ", ".join(f"{mean:.3g} at {words.get(x, x)}" for x, mean in zip(points, means, strict=True))
            said.append(f"{title}, {name}: {listed}" if title else f"{name}: {listed}")
        if log_x:
            ax.set_xscale("log", base=2)
        if ticks:
            ax.margins(x=0.1)  # words are wide
        xs = sorted({x for points in lines.values() for x in points})
        ax.set_xticks(xs, [words.get(x, str(x)) for x in xs])
        ax.xaxis.set_minor_locator(NullLocator())
        if log_y:
            ax.set_yscale("log")
            if len(panels) > 1:
                room = (max(ys) / min(ys)) ** 0.05
                ax.set_ylim(min(ys) / room, max(ys) * room)
            if max(ys) < 1000 * min(ys):  # few powers of ten to mark
                ax.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
                ax.yaxis.set_major_formatter("{x:g}")
            ax.yaxis.set_minor_formatter(NullFormatter())
        else:
            ax.set_ylim(y_range)
        if chance is not None:
            ax.axhline(chance, color=GREY, linestyle=":", linewidth=1.4, zorder=1)
            right = chance_at is None
            ax.annotate("guessing", (1 if right else chance_at, chance), (-3 if right else 0, -3),
                        xycoords=("axes fraction" if right else "data", "data"), textcoords="offset points",
                        ha="right" if right else "center", va="top", fontsize=9.5, color=GREY)  # fmt: skip
        if band:
            name, heights = band
            ax.plot(list(heights), list(heights.values()), label=name, color=GREY, alpha=0.4, linewidth=13,
                    solid_capstyle="butt", zorder=1.5)  # fmt: skip
            said.append(f"{name}, a grey band: " + ", ".join(f"{y:.3g} at {x}" for x, y in heights.items()))
            second = list(heights)[1]
            ax.annotate(on_band, (second, heights[second]), (0, -48), textcoords="offset points", ha="center",
                        va="top", fontsize=9.5, color=GREY)  # fmt: skip
        ax.grid(color=PALE, linewidth=0.8)
        ax.set_axisbelow(True)
        ax.set_title(title)
        ax.set_xlabel(x_name)
    drawn.axes[0].set_ylabel(y_name)
    if len(panels) > 1:
        alike = len({tuple(lines) for lines in panels.values()}) == 1
        for ax in drawn.axes[-1:] if alike else drawn.axes:
            ax.legend(frameon=False, loc="lower left" if chance is None else "best")
    else:
        ax = drawn.axes[0]                                       # names in the order of the lines' right ends
        handles, _ = ax.get_legend_handles_labels()
        drawn_lines = sorted(handles, key=lambda line: float(line.get_ydata()[-1]), reverse=True)
        ax.legend(handles=drawn_lines, frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5))
    show(drawn, f"{y_name} against {x_name}, means over seeds. {'; '.join(said)}."
         + ("" if chance is None else f" Guessing gives {chance:g}."))  # fmt: skip


def times(lines: Mapping[str, Mapping[int, float]], alike: tuple[str, str], at: int) -> None:
    """Microseconds per position, {name: {length: microseconds}}; a bracket at one length joins the two lines `alike`.

    Those two do the same multiplications: what lies between them is waiting.
    """
    drawn, ax = figure(7.4, 3.6)
    for i, (name, line) in enumerate(lines.items()):
        ax.plot(list(line), list(line.values()), label=name, **line_style(i))
    low, high = sorted(lines[name][at] for name in alike)
    ax.annotate("", (at, low * 1.12), (at, high / 1.15), zorder=2,
                arrowprops={"arrowstyle": "<->", "color": INK, "linewidth": 1.6, "shrinkA": 0,
                            "shrinkB": 0})  # fmt: skip
    ax.annotate("the same\nmultiplications", (at, (low * high) ** 0.5), (8, 0), textcoords="offset points", ha="left",
                va="center", fontsize=10, color=INK)  # fmt: skip
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
    handles, _ = ax.get_legend_handles_labels()
    drawn_lines = sorted(handles, key=lambda line: float(line.get_ydata()[-1]), reverse=True)
    ax.legend(handles=drawn_lines, frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5))
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
    places = [0.45 + 0.55 * i / max(len(widths) - 1, 1) for i in range(len(widths))]
    return {width: to_hex(WEIGHTS(place)) for width, place in zip(sorted(widths), places, strict=True)}


def turned_knobs(
    panels: Mapping[str, Mapping[str, Mapping[float, Sequence[float]]]],
    y_name: str,
    ticks: Mapping[str, Mapping[float, str]] | None = None,
) -> None:
    """Lines through means on one logarithmic height, a panel for each knob, a point for each seed.

    {what is turned: {line: {how far: a value for each seed}}}. Lines of one name look alike, and are named in the first
    panel that has them. `ticks` {what is turned: {how far: words}} are the words below a panel.
    """
    drawn, _ = figure(3.3 * len(panels), 3.6, columns=len(panels))
    said: list[str] = []
    named: list[str] = []
    low, high = (pick(value for lines in panels.values() for points in lines.values() for values in points.values()
                      for value in values) for pick in (min, max))  # fmt: skip
    for ax, (turned, lines) in zip(drawn.axes, panels.items(), strict=True):
        new = [name for name in lines if name not in named]
        named += new
        for name, points in lines.items():
            style, means = line_style(named.index(name)), [sum(values) / len(values) for values in points.values()]
            ax.plot(list(points), means, label=name if name in new else None, **style)
            for x, values in points.items():
                ax.scatter([x] * len(values), values, color=style["color"], zorder=4, **DOT_OF_A_SEED)
            listed = ", ".join(f"{mean:.2g} at {x}" for x, mean in zip(points, means, strict=True))
            said.append(f"{turned}, {name}: {listed}")
        ax.set_yscale("log")
        ax.set_ylim(low / 10, high * 10)
        ax.yaxis.set_minor_formatter(NullFormatter())
        ax.grid(color=PALE, linewidth=0.8)
        ax.set_axisbelow(True)
        ax.set_xlabel(turned)
        if ticks and turned in ticks:
            ax.set_xticks(list(ticks[turned]), list(ticks[turned].values()))
        if new:
            ax.legend(frameon=False, loc="lower right")
    drawn.axes[0].set_ylabel(y_name)
    show(drawn, f"{y_name}, means over seeds. {'; '.join(said)}.")


def signal_path(n: int, distance: int) -> tuple[Figure, str]:
    """How a signal gets to the last of `n` positions from `distance` before: by recurrence and by attention.

    The numbers in the boxes say after how many steps, at the earliest, a state can be there. Attention's arrows are
    drawn into the last position and into one in the middle. For `explore`.
    """
    start, end, middle = n - 1 - distance, n - 1, n // 2 - 1
    drawn, (recurrent, attention) = figure(6.4, 4.4, rows=2)
    recurrent.get_gridspec().set_height_ratios((1.0, 1.4))
    cells = distance + 1
    for ax, title in (
        (recurrent, f"recurrent: the signal goes through {cells} cells; {n} steps, one after the other"),
        (attention, "attention: the signal goes through 1 average; 1 step"),
    ):
        high = 1.3 if ax is attention else 0.0
        stage(ax, ((n - 1) / 2 - 8.4, (n - 1) / 2 + 8.4), (-0.55, 2.6 + high))   # as wide for any n, and in the middle
        ax.set_title(title, fontsize=10.5)
    for t in range(n):
        on = start <= t <= end
        _cell(recurrent, t, f"{t + 1}", on)
        arrow(recurrent, (t, 0.15), (t, 1.05), ORANGE if t == start else PALE, 2.2 if t == start else 1.0)
        if t:
            arrow(recurrent, (t - 0.66, 1.55), (t - 0.34, 1.55), *((ORANGE, 2.2) if start < t <= end else (GREY, 1.0)))
        _cell(attention, t, "1", t == end, 2.9)
        if t <= middle:
            arrow(attention, (t, 0.15), (middle, 2.35), PALE, 1.0)
        if t != start:
            arrow(attention, (t, 0.15), (end, 2.35), GREY, 0.8)
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
