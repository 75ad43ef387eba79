"""Multi-head attention: how vectors are cut for heads, what heads read and who misses them, what a cache keeps."""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle
from matplotlib.ticker import PercentFormatter
from torch import Tensor

from attncourse._checks import check_shape
from attncourse.viz import attention_viewer
from attncourse.viz.diagrams import arrow, rgb
from attncourse.viz.figures import as_matrix, hatch
from attncourse.viz.figures import cells as draw_cells
from attncourse.viz.style import (
    AMBER,
    BLUE,
    GREEN,
    GREY,
    INK,
    ORANGE,
    PALE,
    PURPLE,
    SKY,
    WEIGHTS,
    check_places,
    figure,
    show,
    stage,
)

WORDS = (BLUE, ORANGE, GREEN, PURPLE, SKY, AMBER)  # a colour for each word, and its initial in every cell
HEADS = (BLUE, GREEN, PURPLE, SKY, AMBER)  # a colour for each head; orange is the token that is followed
EIGHT = (*HEADS, ORANGE, GREY, INK)  # where no token is followed
PALE_ORANGE = "#eeb68c"  # the followed token where it is read: as key, as value
UNIT = 0.066  # inches of a row or column in the drawing of the layer


def multi_head(n: int, d_model: int, n_heads: int, asking: int = 0) -> None:
    """Multi-head self-attention to scale, from X to the output: projections, heads, values, concatenation, W_O.

    Each head has a colour, and its number in its blocks; the row of the token that asks is orange from X to the output,
    and pale orange where it is a key or a value.
    Raises ValueError where the heads do not divide the width.
    """
    if d_model % n_heads:
        raise ValueError(f"n_heads: got {n_heads}, expected a divisor of d_model = {d_model}")
    check_places(n_heads=n_heads)
    d_k = d_model // n_heads
    colours = [HEADS[head % len(HEADS)] for head in range(n_heads)]
    wide, narrow, long = UNIT * d_model, UNIT * d_k, UNIT * n
    pitch = max(long, wide) + 0.56
    height = pitch * max(n_heads, 3) + 0.55
    middle = height / 2 - 0.1
    drawn, ax = figure(9.9, height)
    stage(ax, (0, 9.9), (0, height))

    def at(i: int, count: int) -> float:
        """The height of the i-th of `count` rows of boxes, from the top."""
        return middle + (0.5 * (count - 1) - i) * pitch

    # X, the three projections, and Q, K, V: a block of columns for each head.
    x = 0.08
    _matrix(ax, x, middle, n, d_model, [INK], "columns", "$X$", f"{n}×{d_model}", asking)
    projections, projected = x + wide + 0.34, x + 2 * wide + 0.62
    for i, role in enumerate("QKV"):
        y = at(i, 3)
        arrow(ax, (x + wide + 0.05, middle + 0.25 * (y - middle)), (projections - 0.05, y))
        _matrix(ax, projections, y, d_model, d_model, colours, "columns", f"$W_{role}$", f"{d_model}×{d_model}")
        arrow(ax, (projections + wide + 0.04, y), (projected - 0.04, y))
        _matrix(ax, projected, y, n, d_model, colours, "columns", f"${role}$", f"{n}×{d_model}",
                asking if role == "Q" else None, pale_row=None if role == "Q" else asking)  # fmt: skip
    # A row for each head: its Q and K make its weights, which average its V.
    bracket = projected + wide + 0.1
    ax.plot([bracket, bracket], [at(2, 3) - long / 2, at(0, 3) + long / 2], color=GREY, linewidth=1.5)
    ax.text(bracket, at(2, 3) - long / 2 - 0.34, "cut into heads: block $i$ of Q, K, V\ngoes to row $i$", ha="center",
            va="top", fontsize=9, color=GREY)  # fmt: skip
    query = bracket + 0.52
    key, weights = query + narrow + 0.24, query + narrow + long + 0.94
    value = weights + long + 0.24
    found = value + narrow + 0.3
    beside = found + narrow + 0.55
    for head, colour in enumerate(colours):
        y = at(head, n_heads)
        arrow(ax, (bracket + 0.03, middle + 0.6 * (y - middle)), (query - 0.06, y), colour)
        _matrix(ax, query, y, n, d_k, [colour], "columns", f"$Q_{head}$", f"{n}×{d_k}", asking)
        ax.text(query + narrow + 0.12, y, "·", ha="center", va="center", fontsize=15, color=INK)
        _matrix(ax, key, y, d_k, n, [colour], "columns", rf"$K_{head}^\top$", f"{d_k}×{n}", pale_column=asking)
        arrow(ax, (key + long + 0.04, y), (weights - 0.04, y), colour)
        between = (key + long + weights) / 2
        ax.text(between, y + 0.1, r"$/\sqrt{d_k}$", ha="center", va="bottom", fontsize=9, color=INK)
        ax.text(between, y - 0.1, "softmax", ha="center", va="top", fontsize=9, color=INK)
        _matrix(ax, weights, y, n, n, [colour], "columns", f"$A_{head}$", f"{n}×{n}", asking, pale_column=asking)
        ax.text(weights + long + 0.12, y, "·", ha="center", va="center", fontsize=15, color=INK)
        _matrix(ax, value, y, n, d_k, [colour], "columns", f"$V_{head}$", f"{n}×{d_k}", pale_row=asking)
        ax.text(value + narrow + 0.15, y, "=", ha="center", va="center", fontsize=12, color=INK)
        _matrix(ax, found, y, n, d_k, [colour], "columns", f"head {head}", f"{n}×{d_k}", asking)
        arrow(ax, (found + narrow + 0.06, y), (beside - 0.06, middle + 0.2 * (y - middle)), colour)
    formula = r"$A_i = \mathrm{softmax}(Q_i K_i^\top / \sqrt{d_k})$,   head$_i = A_i V_i$"
    ax.text((query + beside) / 2, height - 0.02, formula, ha="center", va="top", fontsize=10, color=INK)
    # Side by side, times W_O, whose rows are blocks, is the output.
    joined, output = beside + wide + 0.26, beside + 2 * wide + 0.52
    _matrix(ax, beside, middle, n, d_model, colours, "columns", "Concat", f"{n}×{d_model}", asking)
    ax.text(beside + wide + 0.13, middle, "·", ha="center", va="center", fontsize=15, color=INK)
    _matrix(ax, joined, middle, d_model, d_model, colours, "rows", "$W_O$", f"{d_model}×{d_model}")
    ax.text(joined + wide + 0.13, middle, "=", ha="center", va="center", fontsize=12, color=INK)
    _matrix(ax, output, middle, n, d_model, [INK], "columns", "output", f"{n}×{d_model}", asking)
    ax.set_xlim(0, output + wide + 0.08)
    show(
        drawn,
        f"Multi-head attention, from left to right. X, {n} tokens by {d_model}, times W_Q, W_K and W_V, each {d_model} "
        f"by {d_model}, gives Q, K and V, each {n} by {d_model}. All are cut in {n_heads} blocks of {d_k} columns, one "
        f"for each head: block i of Q, K and V goes to row i. There softmax of Q_i K_i transposed over the root of "
        f"d_k is the head's table of weights A_i, {n} by {n}; A_i times V_i is head i, {n} by {d_k}. The {n_heads} "
        f"heads side by side, {n} by "
        f"{d_model}, times W_O, {d_model} by {d_model}, whose rows are {n_heads} blocks, are the output, {n} by "
        f"{d_model}. The row of token {asking} is orange from X through Q, A, head and Concat to the output, and pale "
        f"where it is key and value: its row of K and V, its column of K_i transposed and A_i.",
    )


def _matrix(
    ax: Axes, left: float, y: float, rows: int, columns: int, colours: Sequence[str], cut: str, label: str, shape: str,
    row: int | None = None, pale_row: int | None = None, pale_column: int | None = None,
) -> None:  # fmt: skip
    """A matrix around the height y, in blocks of "columns" or "rows", a colour each; `row` is orange, others pale."""
    width, height = UNIT * columns, UNIT * rows
    for i, colour in enumerate(colours):
        low, across, up = y - height / 2, width, height
        start = left
        if cut == "columns":
            across = width / len(colours)
            start = left + i * across
        else:
            up = height / len(colours)
            low = y + height / 2 - (i + 1) * up
        face = "#ffffff" if colour == INK else (*rgb(colour), 0.2)
        ax.add_patch(Rectangle((start, low), across, up, facecolor=face, edgecolor=colour, linewidth=1.3))
        if len(colours) > 1:
            ax.text(start + across / 2, low + 0.32 * up, f"{i}", ha="center", va="center", fontsize=9, color=colour)
    if label:
        ax.text(left + width / 2, y + height / 2 + 0.12, label, ha="center", va="center", fontsize=10, color=INK)
    if shape:
        ax.text(left + width / 2, y - height / 2 - 0.11, shape, ha="center", va="center", fontsize=9, color=INK)
    if pale_column is not None:
        x = left + (pale_column + 0.5) * UNIT
        ax.plot([x, x], [y - height / 2, y + height / 2], color=PALE_ORANGE, linewidth=3.2, solid_capstyle="butt")
    for at, colour in ((pale_row, PALE_ORANGE), (row, ORANGE)):
        if at is not None:
            level = y + height / 2 - (at + 0.5) * UNIT
            ax.plot([left, left + width], [level, level], color=colour, linewidth=3.2, solid_capstyle="butt")


def low_rank(n: int, d_model: int, d_k: int) -> None:
    """The scores of one head as a product, to scale: X W_Q W_Kᵀ Xᵀ, which is narrow in the middle.

    Raises ValueError where the head is wider than the layer, or has no column.
    """
    if not 1 <= d_k <= d_model:
        raise ValueError(f"d_k: got {d_k}, expected 1 to d_model = {d_model}")
    factors = (("$X$", n, d_model, INK), ("$W_Q$", d_model, d_k, BLUE), (r"$W_K^\top$", d_k, d_model, BLUE),
               (r"$X^\top$", d_model, n, INK), (r"$QK^\top$", n, n, INK))  # fmt: skip
    gap, x, ends = 0.5, 0.1, {}
    tall = UNIT * max(d_model, n)
    middle = 0.6 + tall / 2
    drawn, ax = figure(0.2 + 4 * gap + UNIT * sum(columns for _, _, columns, _ in factors), tall + 1.25)
    stage(ax, (0, drawn.get_figwidth()), (0, drawn.get_figheight()))
    for (label, rows, columns, colour), sign in zip(factors, "···= ", strict=True):
        _matrix(ax, x, middle, rows, columns, [colour], "columns", label, f"{rows}×{columns}")
        ends[label] = x, x + UNIT * columns
        x += UNIT * columns + gap
        if sign.strip():
            ax.text(x - gap / 2, middle, sign, ha="center", va="center", fontsize=15, color=INK)
    above, below = middle + tall / 2 + 0.38, middle - tall / 2 - 0.32
    for first, last, level, step, colour, words in (
        ("$X$", "$W_Q$", above, 0.16, INK, f"$Q$, {n}×{d_k}"),
        (r"$W_K^\top$", r"$X^\top$", above, 0.16, INK, rf"$K^\top$, {d_k}×{n}"),
        ("$W_Q$", r"$W_K^\top$", below, -0.16, BLUE, f"{d_model}×{d_model}, rank at most {d_k}"),
    ):
        left, right = ends[first][0], ends[last][1]
        ax.plot([left, right], [level, level], color=colour, linewidth=1.5)
        ax.text((left + right) / 2, level + step, words, ha="center", va="center", fontsize=10, color=colour)
    show(drawn, f"The scores of one head as a product, to scale: X, {n} by {d_model}, times W_Q, {d_model} by {d_k}, "
         f"times W_K transposed, {d_k} by {d_model}, times X transposed, {d_model} by {n}, is {n} by {n}. The two "
         f"matrices in the middle make {d_model} by {d_model} numbers of rank at most {d_k}; the first two make Q, {n} "
         f"by {d_k}, and the last two K transposed, {d_k} by {n}.")  # fmt: skip


def sum_of_heads(n: int, d_model: int, n_heads: int) -> None:
    """Concat times W_O, to scale, and the same output as a sum: each head times its own block of rows of W_O.

    Raises ValueError where the heads do not divide the width.
    """
    if d_model % n_heads:
        raise ValueError(f"n_heads: got {n_heads}, expected a divisor of d_model = {d_model}")
    check_places(n_heads=n_heads)
    d_v = d_model // n_heads
    colours = [HEADS[head % len(HEADS)] for head in range(n_heads)]
    factors = [("Concat", n, d_model, colours, "columns"), ("$W_O$", d_model, d_model, colours, "rows")]
    for i, colour in enumerate(colours):
        factors += [(f"head {i}", n, d_v, [colour], "columns"), (f"$W_O^{{({i})}}$", d_v, d_model, [colour], "rows")]
    signs = ["·", "=", *["·", "+"] * (n_heads - 1), "·", ""]
    gap, x, below = 0.34, 0.2, 0.35 + UNIT * n / 2                       # below: the row of the products
    line = below + UNIT * n / 2 + 0.36
    middle = line + 0.3 + UNIT * max(n, d_model) / 2
    width = 2 * x + gap * len(factors) + UNIT * (sum(columns for _, _, columns, _, _ in factors) + d_model)
    drawn, ax = figure(width, middle + UNIT * d_model / 2 + 0.35)
    stage(ax, (0, width), (0, drawn.get_figheight()))
    for (label, rows, columns, shades, cut), sign in zip(factors, signs, strict=True):
        _matrix(ax, x, middle, rows, columns, shades, cut, label, f"{rows}×{columns}")
        end = x + UNIT * columns
        if sign == "+" or not sign:                                      # a head and its block are a product
            left = x - gap - UNIT * d_v
            ax.plot([left, end], [line, line], color=shades[0], linewidth=1.5)
            _matrix(ax, (left + end - UNIT * d_model) / 2, below, n, d_model, shades, cut, "", f"{n}×{d_model}")
            ax.text(end + gap / 2, below, sign or "=", ha="center", va="center", fontsize=13, color=INK)
        x = end + gap
        ax.text(x - gap / 2, middle, sign, ha="center", va="center", fontsize=13, color=INK)
    _matrix(ax, x, below, n, d_model, [INK], "columns", "output", f"{n}×{d_model}")
    show(drawn, f"Concat, {n} by {d_model}, times W_O, {d_model} by {d_model}, is a sum of {n_heads} products, one for "
         f"each head: head i, {n} by {d_v}, times its block of rows of W_O, {d_v} by {d_model}. Each product is {n} by "
         f"{d_model}, as wide as the output, which is their sum.")  # fmt: skip


def rows_subtracted(first: Tensor, second: Tensor, values: Tensor, names: Sequence[str]) -> None:
    """One query's weights (n,) in two heads and their difference, with the sum of each row and what it makes of values.

    Raises ValueError for rows of other lengths.
    """
    rows = {"head 0: $A_0$": first, "head 1: $A_1$": second, "$A_0 - A_1$": first - second}
    for name, given in (("second", second), ("values", values), ("names", names)):
        if len(given) != len(first):
            raise ValueError(f"{name}: got {len(given)}, expected {len(first)}")
    drawn, ax = figure(8.6, 2.2)
    n, said = len(names), []
    for i, (label, row) in enumerate(rows.items()):
        for j, weight in enumerate(row.tolist()):
            face = (*rgb(BLUE if weight > 0 else ORANGE), 0.55 * abs(weight))
            ax.add_patch(Rectangle((j, i), 1, 1, facecolor=face, edgecolor=GREY, linewidth=0.8))
            ax.text(j + 0.5, i + 0.5, f"{weight:g}".replace("-", "−"), ha="center", va="center", fontsize=10, color=INK)
        total, made = float(row.sum()), float(row @ values)
        for x, words in ((n + 0.8, f"{total:g}"), (n + 2.0, f"{made:g}°")):
            ax.text(x, i + 0.5, words, ha="center", va="center", fontsize=11, color=INK)
        said.append(f"{label.replace('$', '')}: {', '.join(f'{weight:g}' for weight in row.tolist())}; sum {total:g}, "
                    f"gives {made:g} degrees")  # fmt: skip
    for x, words in ((n + 0.8, "sum"), (n + 2.0, "gives")):
        ax.text(x, -0.25, words, ha="center", va="center", fontsize=10, color=GREY)
    ax.set_xlim(0, n + 2.6)
    ax.set_ylim(3.03, -0.03)
    ax.xaxis.tick_top()
    days = [f"{name}\n{value:g}°" for name, value in zip(names, values.tolist(), strict=True)]
    ax.set_xticks(np.arange(n) + 0.5, days)
    ax.set_yticks(np.arange(3) + 0.5, [*rows])
    ax.tick_params(length=0)
    ax.spines[:].set_visible(False)
    show(drawn, f"One query's weights. {'. '.join(said)}.")


def induction() -> None:
    """A B … A in two blocks: the first writes into B what stood before it, the second finds B by that and copies it."""
    drawn, ax = figure(7.6, 3.5)
    stage(ax, (0, 7.6), (0, 3.5))
    columns, levels = {"A": 1.75, "B": 3.35, "…": 4.55, " A": 6.3}, (0.35, 1.55, 3.1)
    for y, level in zip(levels, ("embeddings", "after block 0", "after block 1"), strict=True):
        ax.text(0.05, y, level, ha="left", va="center", fontsize=9, color=GREY)
    told = {("B", 1): ("B, after A", BLUE), (" A", 2): ("next: B", ORANGE)}
    for letter, x in columns.items():
        if letter == "…":
            ax.text(x, levels[0], letter, ha="center", va="center", fontsize=12, color=INK)
        else:
            for low, high in pairwise(levels):                           # the residual stream
                ax.plot([x, x], [low + 0.22, high - 0.22], color=PALE, linewidth=2, zorder=0)
            for i, y in enumerate(levels):
                _box(ax, x, y, *told.get((letter, i), (letter.strip(), GREY)))
    for start, end, colour in (
        ((columns["A"] + 0.3, levels[0] + 0.24), (columns["B"] - 0.3, levels[1] - 0.24), BLUE),
        ((columns[" A"] - 0.6, levels[1]), (columns["B"] + 0.6, levels[1]), INK),
        ((columns["B"] + 0.2, levels[1] + 0.24), (columns[" A"] - 0.6, levels[2] - 0.1), ORANGE),
    ):
        arrow(ax, start, end, colour)
    for x, y, words, colour in (
        (2.95, 0.8, "1: writes “A stood before me”", BLUE),
        (4.95, 1.84, "2: the query of A\nmeets this in the key", INK),
        (3.75, 2.62, "3: the value brings B", ORANGE),
    ):
        ax.text(x, y, words, ha="left" if y < 1 else "center", va="center", fontsize=9, color=colour,
                bbox={"facecolor": "white", "edgecolor": "none", "pad": 1})  # fmt: skip
    show(drawn, "A B … A in two blocks. Block 0 writes into B's vector that A stood before it; in block 1 the query of "
         "the second A meets this in B's key, and B's value brings B to it: the next letter is B.")  # fmt: skip


def two_answers(alpha: float) -> None:
    """One head's mixtures of two dinners on a line, by their share of pie, and the thresholds that each answer needs.

    The head gives `alpha` of its weight to tomorrow and the rest to yesterday. Raises ValueError where tomorrow has no
    more than yesterday, or all.
    """
    if not 0.5 < alpha < 1:
        raise ValueError(f"alpha: got {alpha}, expected more than 0.5 and less than 1")
    cases = {0.0: ("soup", "soup"), 1 - alpha: ("soup", "pie"), alpha: ("pie", "soup"), 1.0: ("pie", "pie")}
    looks = {"soup": {"color": BLUE, "marker": "o"}, "pie": {"color": ORANGE, "marker": "s"}}
    drawn, ax = figure(7.6, 2.5)
    said = []
    for which, day in enumerate(("tomorrow", "yesterday")):
        y, answers = 1 - which, [dinners[which] for dinners in cases.values()]
        ax.plot([0, 1], [y, y], color=PALE, linewidth=2, zorder=1)
        for x, dinner in zip(cases, answers, strict=True):
            ax.plot([x], [y], linestyle="none", markersize=10, zorder=3, **looks[dinner])
            ax.text(x, y + 0.2, dinner, ha="center", va="bottom", fontsize=10, color=looks[dinner]["color"])
        ends = pairwise(zip(cases, answers, strict=True))
        cuts = [(low + high) / 2 for (low, before), (high, after) in ends if before != after]
        for x in cuts:
            ax.plot([x, x], [y - 0.3, y + 0.3], color=INK, linestyle="--", linewidth=1.4, zorder=2)
        words = f"{len(cuts)} threshold{'s' * (len(cuts) > 1)}"
        ax.text(1.07, y, words, ha="left", va="center", fontsize=10, color=INK)
        said.append(f"Dinner {day}, from the left: {', '.join(answers)}; {words}")
    ax.set_xlim(-0.05, 1.05)
    ax.set_ylim(-0.45, 1.55)
    ax.set_xticks(list(cases), ["0", "1 − α", "α", "1"])
    ax.set_yticks([1, 0], ["dinner\ntomorrow", "dinner\nyesterday"])
    ax.tick_params(axis="y", length=0)
    ax.spines[["left", "right", "top"]].set_visible(False)
    ax.set_xlabel("share of pie in the mixture")
    show(drawn, f"Four mixtures of two dinners on a line, by their share of pie. {'. '.join(said)}.")


def keys_found(
    line: tuple[Tensor, Tensor], plane: tuple[Tensor, Tensor], names: Sequence[str], found: Sequence[Sequence[bool]]
) -> None:
    """The keys of a head with d_k = 1 on a line, and of one with d_k = 2 in a plane: (queries, keys), (n, d_k) each.

    `found` says of each key, for the line and for the plane, whether it is found: then it is an orange square. Arrows
    have the directions of queries; their length means nothing. On the line, names stand above at even distances, each
    joined to its key. Raises ValueError for tensors of other shapes.
    """
    for d_k, pair in enumerate((line, plane), 1):
        for role, vectors in zip(("queries", "keys"), pair, strict=True):
            if vectors.shape != (len(names), d_k):
                expected = (len(names), d_k)
                raise ValueError(f"d_k = {d_k}: got {role} of shape {tuple(vectors.shape)}, expected {expected}")
    drawn, (on_line, in_plane) = figure(9.4, 4.2, columns=2)
    looks = {True: {"color": ORANGE, "marker": "s"}, False: {"color": GREY, "marker": "o"}}
    mark = {"linestyle": "none", "markersize": 6.5, "markeredgecolor": "white", "markeredgewidth": 0.5, "zorder": 3}
    keys = line[1][:, 0]
    places = (keys / keys.abs().max()).tolist()
    on_line.plot([-1.1, 1.1], [0, 0], color=PALE, linewidth=2, zorder=1)
    order = sorted(range(len(names)), key=places.__getitem__)
    for i, at in zip(order, np.linspace(-1, 1, len(names)).tolist(), strict=True):
        look = looks[found[0][i]]
        on_line.plot([places[i], at], [0, 0.3], color=look["color"], linewidth=0.8, zorder=2)
        on_line.plot([places[i]], [0], **look, **mark)
        on_line.text(at, 0.34, names[i], ha="center", va="bottom", fontsize=10, color=look["color"])
    on_line.plot([0, 0], [-0.04, 0.04], color=GREY, linewidth=1)
    on_line.text(0, -0.07, "0", ha="center", va="top", fontsize=10, color=GREY)
    for way, words in ((-1, "negative queries"), (1, "positive queries")):
        arrow(on_line, (0, -0.3), (0.8 * way, -0.3), BLUE)
        on_line.text(0.5 * way, -0.36, words, ha="center", va="top", fontsize=10, color=BLUE)
    on_line.set_xlim(-1.2, 1.2)
    on_line.set_ylim(-1, 0.9)
    reach = float(plane[1].norm(dim=-1).max())
    for i, (query, key) in enumerate(zip(*plane, strict=True)):
        look = looks[found[1][i]]
        in_plane.plot([float(key[0])], [float(key[1])], **look, **mark)
        out = (key * (1 + 0.2 * reach / key.norm())).tolist()
        in_plane.text(*out, names[i], ha="center", va="center", fontsize=10, color=look["color"])
        tip = (query * (0.38 * reach / query.norm())).tolist()
        arrow(in_plane, (0, 0), tuple(tip), BLUE)
        in_plane.text(*(1.36 * part for part in tip), names[i], ha="center", va="center", fontsize=9.5, color=BLUE)
    in_plane.set_xlim(-1.35 * reach, 1.35 * reach)
    in_plane.set_ylim(-1.35 * reach, 1.35 * reach)
    in_plane.set_aspect("equal")
    in_plane.set_xlabel("first column")
    in_plane.set_ylabel("second column")
    for d_k, ax in enumerate((on_line, in_plane), 1):
        ax.set_title(f"$d_k$ = {d_k}: {sum(found[d_k - 1])} of {len(names)} keys are found")
        ax.set_xticks([0] if ax is in_plane else [])
        ax.set_yticks([0] if ax is in_plane else [])
    on_line.spines[:].set_visible(False)
    in_plane.grid(color=PALE, linewidth=0.8)
    in_plane.set_axisbelow(True)
    entries: dict[str, dict[str, Any]] = {
        "key that is found": looks[True],
        "key that is missed": looks[False],
        "direction of a query": {"color": BLUE, "marker": r"$\rightarrow$"},
    }
    handles = [Line2D([], [], label=words, markersize=16 if "query" in words else 7, **{**look, "linestyle": "none"})
               for words, look in entries.items()]  # fmt: skip
    drawn.legend(handles=handles, frameon=False, loc="outside lower center", ncols=3)
    best = (plane[0] @ plane[1].T).argmax(dim=-1).tolist()
    said = ", ".join(f"{names[i]}{' (found)' if found[0][i] else ''}" for i in order)
    points = ", ".join(f"{name} finds {names[i]}" for name, i in zip(names, best, strict=True))
    show(drawn, f"Keys of one column on a line, from the left: {said}. Keys of two columns as points in a plane, and "
         f"queries as arrows. The key with the highest score: {points}.")  # fmt: skip


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
    drawn, _ = figure(2.55 * len(panels) + 0.4, 3.2, columns=len(panels))
    said = []
    shapes = [(1, *places.shape)[-3:] for places in panels.values()]      # one scale: a number has one size in all
    across = max(columns + (4.4 if heads > 1 else 0.6) for heads, _, columns in shapes)
    tall = max(heads * (rows + 0.6) for heads, rows, _ in shapes)
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
        ax.set_xlim(columns / 2 - across / 2, columns / 2 + across / 2)
        ax.set_ylim(0.15 - tall, 0.15)
        ax.set_aspect("equal")
        ax.set_axis_off()
        ax.set_title(title, fontsize=10.5)
        said.append(f"{title}: {'; '.join(named)}")
    initials = ", ".join(f"{word[0]} for {word}" for word in words)
    show(drawn, f"Which numbers each head gets, row by row ({initials}; the digit is the column). {'. '.join(said)}.")


def by_day(tables: Mapping[str, Tensor], names: Sequence[str], digits: int = 2, outlined: bool = False) -> None:
    """Square tables side by side, {title: numbers (n, n)}, darker for more: rows are queries, columns keys.

    With decimals, what rounds to zero is not printed; `outlined` is the largest number of each row. Raises ValueError
    where shapes do not fit.
    """
    matrices = {title: as_matrix(table, names, names) for title, table in tables.items()}
    drawn, _ = figure(0.8 + (0.3 + 0.58 * len(names)) * len(tables), 0.9 + 0.42 * len(names), columns=len(tables))
    said = []
    for ax, (title, table) in zip(drawn.axes, matrices.items(), strict=True):
        beside = names if ax is drawn.axes[0] else [""] * len(names)
        draw_cells(ax, table, beside, names, numbers=True, digits=digits)
        low, top = ax.collections[0].get_clim()
        for value, number in zip(table.flat, ax.texts, strict=True):
            if not number.get_text().strip("−0."):
                number.set_text("" if digits else "0")
            number.set_color("white" if value - low > 0.6 * (top - low) else INK)
        ax.xaxis.tick_top()
        ax.spines[:].set(visible=True, color=GREY)
        ax.set_xlabel("key")
        ax.set_title(title, pad=10)
        most = table.argmax(axis=1).tolist()
        for i, j in enumerate(most) if outlined else ():
            ax.add_patch(Rectangle((j, i), 1, 1, fill=False, edgecolor=ORANGE, linewidth=2, clip_on=False, zorder=4))
        largest = "; ".join(f"{names[i]}: {table[i, j]:.{digits}f} at {names[j]}" for i, j in enumerate(most))
        said.append(f"{title}. The largest number of each row: {largest}.".removeprefix(". "))
    drawn.axes[0].set_ylabel("query")
    show(drawn, f"Rows are queries, columns keys. {' '.join(said)}")


class MarkedViewer(attention_viewer):
    """The attention viewer; in its still picture of all heads a row is framed in some maps, {number of a map: row}."""

    def __init__(self, *given: Any, rows: Mapping[int, int], **named: Any):
        self._rows = dict(rows)
        super().__init__(*given, **named)

    def still(self) -> tuple[Figure, str]:
        drawn, said = super().still()
        for number, row in self._rows.items() if self.view == "all" else ():
            left, right = drawn.axes[number].get_xlim()
            drawn.axes[number].add_patch(
                Rectangle(
                    (left, row - 0.5), right - left, 1, fill=False, edgecolor=ORANGE, linewidth=1.8, clip_on=False
                )
            )
        return drawn, said


def reads_and_losses(
    reads: Tensor, lost: Tensor, rows: Sequence[str], columns: Sequence[str], titles: Sequence[str],
    outlined: Sequence[tuple[int, int]] = (), largest: Sequence[int] = (),
) -> None:  # fmt: skip
    """Two tables beside each other, each darker for more on a scale of its own: what heads read, what is lost without.

    Both (rows, columns), as shares; the second is printed in hundredths. `outlined` are the (row, column) to look at,
    in orange; in these columns the `largest` number of each table is outlined in black.
    Raises ValueError where shapes do not fit.
    """
    tables = [as_matrix(table, rows, columns) for table in (reads, lost)]
    drawn, _ = figure(1.9 + 1.9 * len(columns), 1.1 + 0.36 * len(rows), columns=2)
    drawn.get_layout_engine().set(wspace=0.06)                           # so that the frames of the two do not touch
    said = []
    for ax, table, title, unit in zip(drawn.axes, tables, titles, (1, 100), strict=True):
        top = max(float(table.max()), 0.01)
        shade = np.clip(table, 0, top)
        ax.pcolormesh(shade, cmap=WEIGHTS, vmin=0, vmax=top, edgecolors="white", linewidth=1.5)
        ax.invert_yaxis()
        ax.set_xticks(np.arange(len(columns)) + 0.5, columns)
        ax.set_yticks(np.arange(len(rows)) + 0.5, rows if ax is drawn.axes[0] else [""] * len(rows))
        ax.xaxis.tick_top()
        ax.tick_params(length=0)
        ax.spines[:].set_visible(False)
        ax.set_title(title, pad=10)
        for (i, j), value in np.ndenumerate(table):
            words = f"{value:.2f}" if unit == 1 else f"{round(unit * value)}".replace("-", "−")
            colour = "white" if shade[i, j] > 0.6 * top else INK
            ax.text(j + 0.5, i + 0.5, words, ha="center", va="center", fontsize=9.5, color=colour)
        for places, colour in ((outlined, ORANGE), ([(int(table[:, j].argmax()), j) for j in largest], INK)):
            for i, j in places:
                ax.add_patch(Rectangle((j, i), 1, 1, fill=False, edgecolor=colour, linewidth=2.4, clip_on=False,
                                       zorder=4))  # fmt: skip
        listed = "; ".join(
            f"{row}: " + ", ".join(f"{column} {value:.2f}" for column, value in zip(columns, line, strict=True))
            for row, line in zip(rows, table, strict=True)
        )
        said.append(f"{title}. {listed}.")
    show(drawn, " ".join(said))


def letters_attended(letters: str, heads: Mapping[str, Tensor]) -> None:
    """Each head's weights (n, n) on a text of letters; in the last map, outlined, the letter that followed last time.

    A row is the letter that asks; the future, which a causal mask forbids, is hatched. Raises ValueError where shapes
    do not fit.
    """
    followed = [(i, letters.rindex(letter, 0, i) + 1) for i, letter in enumerate(letters) if letter in letters[:i]]
    drawn, _ = figure(4.4 * len(heads), 4.6, columns=len(heads))
    said = []
    for ax, (title, weights) in zip(drawn.axes, heads.items(), strict=True):
        table = as_matrix(weights, letters, letters)
        past = torch.ones(weights.shape, dtype=torch.bool).tril()
        draw_cells(ax, table, letters, letters, numbers=False, allowed=past)
        for i, j in followed if ax is drawn.axes[-1] else ():
            ax.add_patch(Rectangle((j, i), 1, 1, fill=False, edgecolor=ORANGE, linewidth=1.4, clip_on=False))
        ax.xaxis.tick_top()
        ax.set_title(title, pad=10)
        ax.set_xlabel("key")
        ax.set_ylabel("query")
        mean = sum(table[i, j] for i, j in followed) / max(len(followed), 1)
        before = sum(table[i, i - 1] for i in range(1, len(letters))) / (len(letters) - 1)
        said.append(f"{title}: mean weight {before:.2f} on the letter before, {mean:.2f} on the one that followed")
    show(drawn, f"Attention on {letters}; the future is hatched. {'; '.join(said)}.")


def shared_keys(n_heads: int, kinds: Mapping[str, int], latent: str = "") -> None:
    """Which head of keys and values each query head uses, {title: number of heads of keys and values}: a panel each.

    With a title for `latent`, one more panel below, across all: keys and values of every head are made from one cached
    vector. Raises ValueError for a number that does not divide `n_heads`.
    """
    check_places(n_heads=n_heads)
    for title, kept in kinds.items():
        if not 1 <= kept <= n_heads or n_heads % kept:
            raise ValueError(f"{title}: got {kept} heads of keys, expected a divisor of n_heads = {n_heads}")
    panels = len(kinds) + bool(latent)
    wide = min(panels, 2) if latent else panels
    rows = -(-panels // wide)
    drawn, _ = figure(3.6 * wide if latent else 3.0 * wide, 2.7 * rows, rows=rows, columns=wide)
    said = []
    for ax, (title, kept) in zip(drawn.axes, kinds.items(), strict=False):
        stage(ax, (-0.7, n_heads - 0.3), (-1.25, 2.75))
        group = n_heads // kept
        for head in range(n_heads):
            colour = EIGHT[head // group % len(EIGHT)]
            at = head // group * group + (group - 1) / 2
            ax.plot([at, head], [0.76, 1.6], color=colour, linewidth=1.4, zorder=1)
            _tile(ax, head, 1.9, f"q{head}", colour)
        for i in range(kept):
            colour, at = EIGHT[i % len(EIGHT)], i * group + (group - 1) / 2
            _tile(ax, at, 0.45, f"k{i}", colour)
            _tile(ax, at, -0.25, f"v{i}", colour)
        ax.text((n_heads - 1) / 2, 2.45, "query heads", ha="center", va="center", fontsize=9, color=INK)
        cached = f"cache: {kept} head{'s' * (kept > 1)} of keys and values"
        ax.text((n_heads - 1) / 2, -0.85, cached, ha="center", va="center", fontsize=9, color=INK)
        ax.set_title(title)
        uses = ", ".join(f"{head} uses {head // group}" for head in range(n_heads))
        said.append(f"{title}: {kept} heads of keys and values; query head {uses}")
    if latent:
        _latent(drawn.axes[len(kinds)], n_heads, latent)
        said.append(f"{latent}: keys and values of all {n_heads} heads are made from one cached vector c; one small "
                    "key with RoPE is cached beside it, and all heads share it")  # fmt: skip
        for ax in drawn.axes[panels:]:
            ax.set_axis_off()
    show(drawn, f"{n_heads} query heads and the keys that they share. {'. '.join(said)}.")


def _latent(ax: Axes, n_heads: int, title: str) -> None:
    """Multi-head latent attention: what is made of the cached vector is dashed; dotted, the key that all share."""
    stage(ax, (-0.7, n_heads - 0.3), (-1.25, 2.75))
    middle = (n_heads - 1) / 2
    for head in range(n_heads):
        colour = EIGHT[head % len(EIGHT)]
        ax.plot([head, head], [1.36, 1.6], color=colour, linewidth=1.4, zorder=1)
        ax.plot([middle - 1.2, head], [-0.08, 0.6], color=colour, linewidth=1, linestyle="--", zorder=1)
        ax.plot([middle + 1.2, head], [-0.08, 0.6], color=GREY, linewidth=1, linestyle=":", zorder=1)
        _tile(ax, head, 1.9, f"q{head}", colour)
        ax.add_patch(Rectangle((head - 0.4, 0.6), 0.8, 0.76, facecolor="white", edgecolor=colour, linestyle="--",
                               zorder=2))  # fmt: skip
        ax.text(head, 0.98, f"k{head}\nv{head}", ha="center", va="center", fontsize=9, color=INK, zorder=3)
    _tile(ax, middle - 1.2, -0.38, "c", INK)
    _tile(ax, middle + 1.2, -0.38, "$k^R$", INK)
    ax.text(middle, 2.45, "query heads", ha="center", va="center", fontsize=9, color=INK)
    words = "cache: one vector c, one small key $k^R$ with RoPE"
    ax.text(middle, -0.95, words, ha="center", va="center", fontsize=9, color=INK)
    ax.set_title(title)


def cache_sizes(gib: Mapping[str, float], parameters: float) -> None:
    """Caches in GiB as bars, {name: size}, beside a dotted line for the memory of the model's parameters."""
    drawn, ax = figure(8.4, 1.0 + 0.5 * len(gib))
    for y, size in enumerate(gib.values()):
        ax.barh([y], [size], height=0.6, color=(*rgb(BLUE), 0.5), edgecolor=BLUE)
        ax.text(size + 0.8, y, f"{size:.3g} GiB", ha="left", va="center", fontsize=11, color=INK)
    ax.axvline(parameters, color=ORANGE, linestyle=":", linewidth=1.8, zorder=3)
    ax.text(parameters, -0.55, f"all parameters: {parameters:.0f} GiB", ha="center", va="bottom", fontsize=10,
            color=ORANGE)  # fmt: skip
    ax.set_yticks(range(len(gib)), list(gib))
    ax.set_ylim(len(gib) - 0.5, -0.5)
    ax.set_xlim(0, 1.15 * max(*gib.values(), parameters))
    ax.tick_params(axis="y", length=0)
    ax.set_xlabel("memory (GiB)")
    said = "; ".join(f"{name}: {size:.3g}" for name, size in gib.items())
    show(drawn, f"The cache's GiB. {said}. All parameters: {parameters:.1f} GiB.")


def seed_rows(rows: Mapping[str, Sequence[float]], x_name: str, references: Mapping[str, float]) -> None:
    """Shares from 0 to 1, a row for each model, a mark for each seed and the mean beside it; dotted references."""
    drawn, ax = figure(8.2, 1.45 + 0.5 * len(rows))
    said = []
    for y, (name, values) in enumerate(rows.items()):
        steps = [y + 0.5 * ((i + 0.5) / len(values) - 0.5) for i in range(len(values))]  # so that none hides another
        ax.plot(values, steps, linestyle="none", marker="o", markersize=7, color=BLUE, markerfacecolor="white",
                markeredgewidth=1.8, clip_on=False, zorder=3)  # fmt: skip
        ax.text(1.04, y, f"mean {sum(values) / len(values):.2f}", ha="left", va="center", fontsize=10, color=INK)
        said.append(f"{name}: " + ", ".join(f"{value:.3f}" for value in values))
    for words, x in references.items():
        ax.axvline(x, color=ORANGE, linestyle=":", linewidth=1.8, zorder=1)
        ax.text(x, -0.6, words, ha="center", va="bottom", fontsize=10, color=ORANGE)
        said.append(f"{words}: {x:.2f}")
    ax.set_xlim(0, 1)
    ax.set_xticks([0, 0.25, 0.5, 0.75, 1])
    ax.set_yticks(range(len(rows)), list(rows))
    ax.set_ylim(len(rows) - 0.5, -0.5)
    ax.tick_params(axis="y", length=0)
    ax.grid(axis="x", color=PALE, linewidth=0.8)
    ax.set_axisbelow(True)
    ax.set_xlabel(x_name)
    show(drawn, f"{x_name}, one mark a seed. {'; '.join(said)}.")


def heads_removed(
    lines: Mapping[str, Sequence[float]], together: Mapping[str, tuple[int, float]], enough: float
) -> None:
    """The accuracy after each removal of a head, {name: from none removed to all}: a panel each; and what is `enough`.

    `together`: {name: (number of heads that can each go alone, accuracy without all of them)}, an orange point each.
    """
    drawn, _ = figure(3.2 * len(lines), 3.3, columns=len(lines))
    for ax, (name, line) in zip(drawn.axes, lines.items(), strict=True):
        n, share = together[name]
        ax.plot(range(len(line)), line, color=BLUE, linewidth=1.8, marker="o", markersize=6, markerfacecolor="white",
                markeredgewidth=1.6, clip_on=False, zorder=2)  # fmt: skip
        ax.plot([n, n], [line[n], share], color=ORANGE, linewidth=1.4, zorder=1)
        ax.plot([n], [share], linestyle="none", marker="D", markersize=8, color=ORANGE, zorder=3)
        ax.text(n - 0.35, share, f"{n} at once: {share:.0%}", ha="right", va="center", fontsize=10, color=ORANGE)
        ax.axhline(enough, color=INK, linestyle=":", linewidth=1.4, zorder=1)
        ax.set_xlim(-0.3, len(line) - 0.7)
        ax.set_ylim(0, 1.06)
        ax.yaxis.set_major_formatter(PercentFormatter(1))
        ax.set_xticks(range(len(line)))
        ax.grid(color=PALE, linewidth=0.8)
        ax.set_axisbelow(True)
        ax.set_xlabel("number of heads removed")
        ax.set_title(name)
    drawn.axes[0].set_ylabel("accuracy, worst question")
    drawn.axes[0].text(-0.1, 0.62, "one after the other,\nthe cheapest first", ha="left", va="center", fontsize=10,
                       color=BLUE)  # fmt: skip
    said = "; ".join(f"{name}: " + ", ".join(f"{share:.2f}" for share in line) for name, line in lines.items())
    at_once = "; ".join(f"{name}: {n} heads, {share:.2f}" for name, (n, share) in together.items())
    show(drawn, f"Accuracy with more and more heads removed, one after the other. {said}. Without all heads that can "
         f"each go alone: {at_once}. A dotted line at {enough:.0%}.")  # fmt: skip


def composition(
    words: Sequence[str], new: Mapping[str, Sequence[float]], old: Mapping[str, Sequence[float]], other: str
) -> None:
    """A name, a pronoun and a verb through two layers: how the name reaches the verb, and what is exchanged on the way.

    `new` has three places, from below: what layer 0 writes into the pronoun, the pronoun's key, its value; each with
    the share of answers, of each seed, that become the name of the `other` run; `old` has the share that stay. Raises
    ValueError for other numbers of words or places.
    """
    if not len(words) == len(new) == 3:
        raise ValueError(f"words, new: got {len(words)} and {len(new)}, expected three of each")
    name, pronoun, verb = words
    drawn, ax = figure(9.9, 4.0)
    stage(ax, (0, 9.9), (0, 4.0))
    columns, levels = (1.55, 3.35, 5.15), (0.45, 1.7, 3.45)
    has_name = (levels[1], pronoun), (levels[2], pronoun), (levels[2], verb)  # a vector keeps what was written into it
    for y, level in zip(levels, ("embeddings", "after layer 0", "after layer 1"), strict=True):
        ax.text(0.05, y, level, ha="left", va="center", fontsize=9, color=GREY)
        for x, word in zip(columns, words, strict=True):
            holds = f"{word}: {name}" if (y, word) in has_name else word
            colour = BLUE if name in holds else GREY
            _box(ax, x, y, holds, colour)
    for x in columns:                                                    # the residual stream
        for low, high in pairwise(levels):
            ax.plot([x, x], [low + 0.22, high - 0.22], color=PALE, linewidth=2, zorder=0)
    key, value, query, meet = (3.8, 2.55), (4.38, 2.3), (5.5, 2.45), (4.72, 2.85)
    for (x, y), role in ((key, "k"), (value, "v"), (query, "q")):
        ax.add_patch(Rectangle((x - 0.17, y - 0.17), 0.34, 0.34, facecolor="white", edgecolor=INK, zorder=2))
        ax.text(x, y, role, ha="center", va="center", fontsize=10, color=INK, zorder=3)
    ways = (
        ((columns[0] + 0.3, levels[0] + 0.24), (columns[1] - 0.35, levels[1] - 0.24), BLUE),
        ((columns[1] + 0.1, levels[1] + 0.24), (key[0] - 0.08, key[1] - 0.2), INK),
        ((columns[1] + 0.57, levels[1] + 0.06), (value[0] - 0.2, value[1] - 0.08), BLUE),
    )
    for start, end, colour in ways:
        arrow(ax, start, end, colour)
    arrow(ax, (columns[2] + 0.2, levels[1] + 0.24), (query[0] - 0.02, query[1] - 0.2), INK)
    arrow(ax, (key[0] + 0.2, key[1] + 0.05), (meet[0] - 0.1, meet[1] - 0.03), INK)  # they meet in the weight
    arrow(ax, (query[0] - 0.2, query[1] + 0.08), (meet[0] + 0.1, meet[1] - 0.03), INK)
    arrow(ax, (value[0] + 0.03, value[1] + 0.2), (meet[0] - 0.01, meet[1] - 0.1), BLUE)
    arrow(ax, (meet[0] + 0.03, meet[1] + 0.1), (columns[2] - 0.2, levels[2] - 0.24), BLUE)
    ax.plot([meet[0]], [meet[1]], marker="o", markersize=7, color=INK, zorder=4)
    ax.text(meet[0] - 0.12, meet[1] + 0.13, f"weight: where {verb} attends", ha="right", va="center", fontsize=9,
            color=INK, bbox={"facecolor": "white", "edgecolor": "none", "pad": 1})  # fmt: skip
    ax.text(columns[2] + 0.08, 2.98, "what it copies", ha="left", va="center", fontsize=9, color=BLUE,
            bbox={"facecolor": "white", "edgecolor": "none", "pad": 1})  # fmt: skip
    said, heights = [], (2.82, 1.92, 1.02)
    from_0, to_1 = 7.3, 9.2                                              # the axis of shares
    for (start, end, _), (what, became), letter, y in zip(ways, new.items(), "abc", heights, strict=True):
        x_at, y_at = (start[0] + end[0]) / 2, (start[1] + end[1]) / 2
        if letter == "a":  # all that the layer writes there, where it arrives at the box
            x_at, y_at = end[0] + 0.07, end[1] + 0.01
        for at in ((x_at, y_at), (6.45, y)):
            ax.plot([at[0]], [at[1]], marker="o", markersize=15, color=ORANGE, zorder=4)
            ax.text(*at, letter, ha="center", va="center", fontsize=11, color="white", zorder=5)
        ax.text(6.65, y, what, ha="left", va="center", fontsize=11, color=INK,
                bbox={"facecolor": "white", "edgecolor": "none", "pad": 1})  # fmt: skip
        for seed, (changed, kept) in enumerate(zip(became, old[what], strict=True)):
            row = y - 0.2 * (seed + 1)
            ax.text(from_0 - 0.15, row, f"seed {seed}", ha="right", va="center", fontsize=9, color=GREY)
            ax.plot([from_0, to_1], [row, row], color=PALE, linewidth=1, zorder=0)
            for share, face in ((kept, "white"), (changed, ORANGE)):
                ax.plot([from_0 + share * (to_1 - from_0)], [row], marker="o", markersize=7, color=ORANGE,
                        markerfacecolor=face, zorder=4)  # fmt: skip
            ax.text(to_1 + 0.15, row, f"{changed:.0%}", ha="left", va="center", fontsize=10, color=ORANGE)
        named, stayed = (", ".join(f"{share:.0%}" for share in shares) for shares in (became, old[what]))
        said.append(f"{letter}, {what} exchanged: {named}, and {stayed} stay {name}")
    for share in (0, 0.5, 1):
        x = from_0 + share * (to_1 - from_0)
        ax.plot([x, x], [heights[-1] - 0.7, heights[0] - 0.1], color=PALE, linewidth=1, zorder=0)
        ax.text(x, heights[-1] - 0.8, f"{share:.0%}", ha="center", va="center", fontsize=9, color=GREY)
    heading = f"replaced by the vector from {other}'s run:\nshare of answers that"
    ax.text(6.35, 3.72, heading, ha="left", va="center", fontsize=10, color=INK)
    for x, face, words_beside in ((6.45, ORANGE, f"become {other}"), (8.0, "white", f"stay {name}")):
        ax.plot([x], [3.3], marker="o", markersize=7, color=ORANGE, markerfacecolor=face)
        ax.text(x + 0.15, 3.3, words_beside, ha="left", va="center", fontsize=10, color=INK)
    show(drawn, f"Layer 0 writes {name} into the vector of {pronoun}, where it stays. Layer 1 makes a key and a value "
         f"of this vector: by the key {verb} finds {pronoun}, and by the value it copies {name}. Answers that become "
         f"{other}, by seed: {'; '.join(said)}.")  # fmt: skip


def _box(ax: Axes, x: float, y: float, words: str, colour: str) -> None:
    ax.add_patch(Rectangle((x - 0.55, y - 0.22), 1.1, 0.44, facecolor=(*rgb(colour), 0.18), edgecolor=colour, zorder=2))
    ax.text(x, y, words, ha="center", va="center", fontsize=10, color=INK, zorder=3)


def _tile(ax: Axes, x: float, y: float, words: str, colour: str) -> None:
    ax.add_patch(Rectangle((x - 0.4, y - 0.3), 0.8, 0.6, facecolor=(*rgb(colour), 0.22), edgecolor=colour, zorder=2))
    ax.text(x, y, words, ha="center", va="center", fontsize=9, color=INK, zorder=3)


def caching(n: int) -> None:
    """Whose keys and values are computed at each step of writing n tokens, without a cache and with one.

    A row for each step, a column for each token: computed, read from the cache (pale), in the future (hatched).
    """
    check_places(n=n)
    drawn, _ = figure(7.4, 1.1 + 0.34 * n, columns=2)
    said = []
    for ax, title in zip(drawn.axes, ("without a cache", "with a KV cache"), strict=True):
        computed = 0
        hatch(ax, torch.ones(n, n, dtype=torch.bool).tril())
        for step in range(n):
            for token in range(step + 1):
                fresh = token == step or title == "without a cache"
                computed += fresh
                face = (*rgb(ORANGE), 0.75) if fresh else (*rgb(BLUE), 0.3)
                ax.add_patch(Rectangle((token, step), 1, 1, facecolor=face, linewidth=0.8, edgecolor=GREY))
        ax.set_xlim(-0.05, n + 0.05)
        ax.set_ylim(n + 0.05, -0.05)
        ax.set_xticks(np.arange(n) + 0.5, [f"{token}" for token in range(n)])
        ax.set_yticks(np.arange(n) + 0.5, [f"{step}" for step in range(n)])
        ax.tick_params(length=0)
        ax.spines[:].set_visible(False)
        ax.set_xlabel("token")
        ax.set_ylabel("step")
        ax.set_title(title)
        said.append(f"{title}, {computed} pairs of key and value are computed in {n} steps")
    names = {"computed at this step": ((*rgb(ORANGE), 0.75), ""), "read from the cache": ((*rgb(BLUE), 0.3), ""),
             "the future": ("white", "////")}  # fmt: skip
    handles = [Rectangle((0, 0), 1, 1, facecolor=face, hatch=lines, edgecolor=GREY, label=name)
               for name, (face, lines) in names.items()]  # fmt: skip
    drawn.legend(handles=handles, frameon=False, loc="outside lower center", ncols=3)
    show(drawn, f"Keys and values while generating, a row for each step, the future hatched: {'; '.join(said)}.")
