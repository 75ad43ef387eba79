"""Many heads: how a vector is cut for them, what they look at, what is lost without one, and what it all weighs."""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import PercentFormatter
from torch import Tensor

from attncourse._checks import check_shape
from attncourse.viz.diagrams import arrow, rgb
from attncourse.viz.figures import check_shares
from attncourse.viz.style import (
    AMBER,
    BLUE,
    GREEN,
    GREY,
    HATCHES,
    INK,
    ORANGE,
    PURPLE,
    SERIES,
    SKY,
    check_places,
    figure,
    hold_still,
    show,
)

WORDS = (BLUE, ORANGE, GREEN, PURPLE, SKY, AMBER)  # a colour for each word, and its initial in every cell


def many_heads(n: int, d_model: int, n_heads: int) -> None:
    """Multi-head self-attention as rectangles, drawn to scale: one projection, cut in heads; a table each; W_O.

    Raises ValueError where the heads do not divide the width.
    """
    if d_model % n_heads:
        raise ValueError(f"n_heads: got {n_heads}, expected a divisor of d_model = {d_model}")
    unit, d_head = 0.095, d_model // n_heads
    wide, long, narrow = unit * d_model, unit * n, unit * d_head
    drawn, ax = figure(8.2, 3.5)
    ax.set_axis_off()
    ax.set_ylim(0, 3.5)
    colours = [SERIES[head % len(SERIES)] for head in range(n_heads)]

    def box(x: float, y: float, width: float, height: float, colour: str) -> None:
        face = (*rgb(colour), 0.18)
        ax.add_patch(Rectangle((x, y - height / 2), width, height, facecolor=face, edgecolor=colour, linewidth=1.4))

    def words(x: float, y: float, said: str, size: float = 9.5) -> None:
        ax.text(x, y, said, ha="center", va="center", fontsize=size, color=INK)

    middle = 1.75
    box(0.1, middle, wide, long, INK)
    words(0.1 + wide / 2, middle + long / 2 + 0.15, "$X$", 11)
    words(0.1 + wide / 2, middle - long / 2 - 0.15, f"{n} × {d_model}")
    left = 0.1 + wide + 0.42
    arrow(ax, (left - 0.36, middle), (left - 0.06, middle))
    for head, colour in enumerate(colours):
        box(left + head * narrow, middle, narrow, wide, colour)
    words(left + wide / 2, middle + wide / 2 + 0.15, "$W_Q$  (and $W_K$, $W_V$)", 10.5)
    words(left + wide / 2, middle - wide / 2 - 0.15, f"{d_model} × {d_model},")
    words(left + wide / 2, middle - wide / 2 - 0.36, f"{n_heads} blocks of columns")
    tables = left + wide + 0.75
    for head, colour in enumerate(colours):
        y = middle + (0.5 * (n_heads - 1) - head) * 1.08
        arrow(ax, (left + wide + 0.06, middle + 0.25 * (y - middle)), (tables - 0.08, y), colour)
        box(tables, y, long, long, colour)
        words(tables + long / 2, y, f"$A_{head + 1}$", 11)
        arrow(ax, (tables + long + 0.06, y), (tables + long + 0.5, y), colour)
        box(tables + long + 0.55, y, narrow, long, colour)
    words(tables + long / 2, 0.14, f"{n_heads} tables, {n} × {n}")
    words(tables + long + 0.62 + narrow / 2, 3.36, f"{n} × {d_head} each")
    beside = tables + long + narrow + 1.15
    for head, colour in enumerate(colours):
        y = middle + (0.5 * (n_heads - 1) - head) * 1.08
        arrow(ax, (tables + long + narrow + 0.62, y), (beside - 0.06, middle + 0.15 * (y - middle)), colour)
        box(beside + head * narrow, middle, narrow, long, colour)
        box(beside + wide + 0.4, middle + wide / 2 - (head + 0.5) * narrow, wide, narrow, colour)
    words(beside + wide / 2, middle + long / 2 + 0.15, "side by side")
    words(beside + wide / 2, middle - long / 2 - 0.15, f"{n} × {d_model}")
    words(beside + wide + 0.22, middle, "·", 15)
    words(beside + 1.5 * wide + 0.4, middle + wide / 2 + 0.15, "$W_O$", 11)
    words(beside + 1.5 * wide + 0.4, middle - wide / 2 - 0.15, f"{d_model} × {d_model},")
    words(beside + 1.5 * wide + 0.4, middle - wide / 2 - 0.36, f"{n_heads} blocks of rows")
    ax.set_xlim(0, beside + 2 * wide + 0.55)
    show(
        drawn,
        f"Multi-head attention. X, {n} words by {d_model}, is multiplied by W_Q, {d_model} by {d_model}, whose columns "
        f"are {n_heads} blocks, one for each head; W_K and W_V likewise. Each head makes its own table of weights, "
        f"{n} by {n}, and an output {n} by {d_head}. The {n_heads} outputs stand side by side, {n} by {d_model}, and "
        f"are multiplied by W_O, {d_model} by {d_model}, whose rows are {n_heads} blocks, one for each head.",
    )


def head_pieces(panels: Mapping[str, Tensor], words: Sequence[str], d_model: int) -> None:
    """Which numbers of which word each head got: {title: (n_heads, n, d_head)}, or (n, d_model) for the uncut tensor.

    The numbers are places: word · d_model + column. A cell shows the word's initial and the column, counted from 0.
    Raises ValueError for a tensor of other axes, and for places that no word has.
    """
    check_places(words=len(words))
    for title, places in panels.items():
        check_shape(title, places, "n d_model" if places.ndim == 2 else "n_heads n d_head")
        if not 0 <= places.min() <= places.max() < len(words) * d_model:
            most = len(words) * d_model - 1
            raise ValueError(f"{title}: got places {places.min()}..{places.max()}, expected each within 0..{most}")
    drawn, _ = figure(2.55 * len(panels) + 0.4, 2.9, columns=len(panels))
    said = []
    for ax, (title, places) in zip(drawn.axes, panels.items(), strict=True):
        tables = places[None] if places.ndim == 2 else places
        _, rows, columns = tables.shape
        top, named = 0.0, []
        for head, table in enumerate(tables.tolist()):
            if places.ndim == 3:
                ax.text(-0.25, -top - rows / 2, f"head {head}", ha="right", va="center", fontsize=10, color=INK)
            for i, row in enumerate(table):
                for j, place in enumerate(row):
                    word, column = divmod(int(place), d_model)
                    face = (*rgb(WORDS[word % len(WORDS)]), 0.22)
                    ax.add_patch(Rectangle((j, -top - i - 1), 1, 1, facecolor=face, edgecolor="white", linewidth=1.5))
                    ax.text(j + 0.5, -top - i - 0.5, f"{words[word][0]}{column}", ha="center", va="center", fontsize=10)
            of = [f"{words[place // d_model][0]}{place % d_model}" for row in table for place in map(int, row)]
            named.append((f"head {head}: " if places.ndim == 3 else "") + " ".join(of))
            top += rows + 0.6
        ax.set_xlim(-1.9 if places.ndim == 3 else -0.3, columns + 0.3)
        ax.set_ylim(-top + 0.5, 0.15)
        ax.set_aspect("equal")
        ax.set_axis_off()
        ax.set_title(title, fontsize=10.5)
        said.append(f"{title}: {'; '.join(named)}")
    initials = ", ".join(f"{word[0]} for {word}" for word in words)
    show(drawn, f"Which numbers each head gets, row by row ({initials}; the digit is the column). {'. '.join(said)}.")


def softmax_frame(scores: Tensor, weights: Tensor, gradients: Tensor, title: str = "") -> tuple[Figure, str]:
    """One query's scores and weights (n,), and how much gradient arrives at each of many queries: for `explore`.

    Returns the figure and the words for it. Raises ValueError where the lengths do not fit, and for no weights.
    """
    check_shape("scores", scores, "n")
    check_places(scores=len(scores))
    check_shape("weights", weights, "n", n=len(scores))
    check_shares("weights", weights.numpy())
    drawn, (left, middle, right) = figure(6.5, 2.7, columns=3)
    hold_still(drawn, left=0.09, right=0.98, bottom=0.19, top=0.8, wspace=0.42)
    places = np.arange(len(scores))
    left.bar(places, scores.tolist(), color=GREY, width=0.8)
    reach = max(4.0, 1.1 * float(scores.abs().max()))
    left.set_ylim(-reach, reach)
    left.set_title("scores of one query", fontsize=10)
    middle.bar(places, weights.tolist(), color=BLUE, width=0.8)
    middle.set_ylim(0, 1.02)
    middle.set_title("its weights", fontsize=10)
    for ax in (left, middle):
        ax.set_xticks([])
        ax.set_xlabel("keys")
    # The logarithm first: that of float32's 1e-8 lies below the first bar.
    sizes = np.log10(np.maximum(gradients.numpy(), 1e-30)).clip(-8, 2)
    right.hist(sizes, bins=np.arange(-8, 2.01, 0.5), color=ORANGE, edgecolor="white", linewidth=0.5)
    middle_size = float(np.median(sizes))
    right.axvline(middle_size, color=INK, linestyle=":", linewidth=1.5)
    right.set_xlim(-8, 2)
    right.set_xticks([-8, -4, 0], ["≤10⁻⁸", "10⁻⁴", "1"], fontsize=9)
    right.set_ylim(0, 0.85 * len(sizes))
    right.set_yticks([])
    right.set_xlabel("size of the gradient")
    right.set_title(f"at {len(sizes)} queries", fontsize=10)
    if title:
        drawn.suptitle(title, fontsize=11)
    return drawn, (
        f"{title or 'Softmax'}: scores of one query from {scores.min():.1f} to {scores.max():.1f}; the largest of its "
        f"weights is {weights.max():.2f}. Of {len(sizes)} queries half get a gradient of at most "
        f"{10**middle_size:.1e}; the largest is {gradients.max():.1e}."
    )


def stacked_shares(parts: Mapping[str, Mapping[str, float]], totals: Mapping[str, str], alt: str = "") -> None:
    """What a whole is made of: a bar a row, {row: {part: amount}}, cut in shares; `totals` stands at the right."""
    names = list(next(iter(parts.values())))
    drawn, ax = figure(7.4, 0.9 + 0.34 * len(parts))
    said = []
    for y, (row, amounts) in enumerate(parts.items()):
        start, whole = 0.0, sum(amounts.values())
        for i, name in enumerate(names):
            share = amounts[name] / whole
            label = name if y == 0 else None
            hatch = HATCHES[i % len(HATCHES)]
            ax.barh(y, share, left=start, color=SERIES[i], hatch=hatch, edgecolor="white", height=0.72, label=label)
            start += share
        ax.text(1.01, y, totals[row], va="center", ha="left", fontsize=9.5, color=INK)
        said.append(f"{row} ({totals[row]}): " + ", ".join(f"{name} {amounts[name] / whole:.0%}" for name in names))
    ax.set_yticks(range(len(parts)), list(parts))
    ax.invert_yaxis()
    ax.tick_params(axis="y", length=0)
    ax.set_xlim(0, 1)
    ax.xaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    drawn.legend(frameon=False, loc="outside upper center", ncols=len(names))
    show(drawn, alt or f"Shares of the parameters. {'; '.join(said)}.")
