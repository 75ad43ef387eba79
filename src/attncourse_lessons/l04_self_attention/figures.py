"""A sentence that looks at itself: one word's question, the matrices and their shapes, who reaches whom."""

import math
from collections.abc import Mapping, Sequence

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Circle, Rectangle
from torch import Tensor, nn

from attncourse.attention import attend, scaled_dot_score
from attncourse.viz.diagrams import arrow, dots, rgb
from attncourse.viz.figures import as_matrix, cells, check_shares, turn_labels
from attncourse.viz.style import (
    BLUE,
    GREEN,
    GREY,
    INK,
    ORANGE,
    PALE,
    PURPLE,
    figure,
    line_style,
    name_lines,
    show,
    stage,
)


def one_token(x: Tensor, i: int, W_Q: Tensor, W_K: Tensor, W_V: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """What token i of (n, d_model) finds: its scores (n,), its weights (n,), and what it receives (d_v,)."""
    output, weights = attend(x[i : i + 1] @ W_Q, x @ W_K, x @ W_V)
    return scaled_dot_score(x[i : i + 1] @ W_Q, x @ W_K)[0], weights[0], output[0]


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
    for ax, values, name, symbol, colour in (
        (left, rows[0], "scores", "$e$", GREY), (middle, rows[1], "weights", r"$\alpha$, sum 1", BLUE),
    ):  # fmt: skip
        ax.barh(places, values, color=[PURPLE if i == asking else colour for i in places], height=0.7)
        ax.set_yticks(places, words if ax is left else [""] * len(words))
        ax.set_title(name)
        ax.set_xlabel(symbol)
        ax.invert_yaxis()
        ax.tick_params(axis="y", length=0)
    reach = max(1.25, 1.35 * rows[0].max())
    left.set_xlim(min(0.0, 1.15 * rows[0].min()), reach)
    middle.set_xlim(0, 1.25)
    for i, value in enumerate(rows[0]):
        said = f"{value:.2f}".replace("-", "−")
        left.text(max(value, 0) + 0.024 * reach, i, said, va="center", fontsize=9, color=INK)
    for i, value in enumerate(rows[1]):
        middle.text(value + 0.03, i, f"{value:.2f}", va="center", fontsize=9, color=INK)
    left.get_yticklabels()[asking].set(fontweight="bold", color=PURPLE)
    right.barh(np.arange(len(features)), received, color=ORANGE, height=0.6)
    right.set_yticks(np.arange(len(features)), features)
    right.set_ylim(len(words) - 0.5, -0.5)
    right.set_xlim(0, max(1.25, 1.25 * received.max()))
    right.tick_params(axis="y", length=0)
    right.set_title(f"“{words[asking]}” receives")
    right.set_xlabel("$o$")
    for i, value in enumerate(received):
        right.text(value + 0.03, i, f"{value:.2f}", va="center", fontsize=9, color=INK)
    shares = ", ".join(f"{word} {share:.2f}" for word, share in zip(words, rows[1], strict=True))
    got = ", ".join(f"{name} {value:.2f}" for name, value in zip(features, received, strict=True))
    return drawn, f"“{words[asking]}” asks. Its weights: {shares}. It receives: {got}."


def self_attention_shapes(
    n: int, d_model: int, d_k: int, d_v: int, asking: int = 0, answering: int = 0, names: Sequence[str] = ("i", "j")
) -> None:
    """The whole computation as rectangles, drawn to scale: X, the projections, scores, weights, output.

    A colour for each role, as in all lessons before: queries green, keys blue, values orange. The row
    of the token that asks is striped in purple from X through Q, scores and weights to the output; that of one that
    answers in black from X through K and V, and its column in scores and weights. A ring is where both meet. `names`
    are theirs.
    """
    unit = 0.11
    drawn, ax = figure(7.7, 4.8)
    stage(ax, (0, 7.7), (0, 4.8))

    def row(x: float, y: float, rows: int, columns: int, which: int, colour: str) -> None:
        level = y + unit * (rows / 2 - which - 0.5)
        ends = [x - unit * columns / 2, x + unit * columns / 2]
        ax.plot(ends, [level, level], color=colour, linewidth=4.5, alpha=0.8, solid_capstyle="butt")

    def matrix(
        x: float, y: float, rows: int, columns: int, label: str, shape: str, axes: str, colour: str, fill=None
    ) -> None:
        width, height = unit * columns, unit * rows
        face = fill if fill is not None else (*rgb(colour), 0.16)
        ax.add_patch(
            Rectangle((x - width / 2, y - height / 2), width, height, facecolor=face, edgecolor=colour, linewidth=1.5)
        )
        ax.text(x, y + height / 2 + 0.13, label, ha="center", va="center", fontsize=11, color=INK)
        ax.text(x, y - height / 2 - 0.13, shape, ha="center", va="center", fontsize=9, color=INK)
        ax.text(x, y - height / 2 - 0.31, axes, ha="center", va="center", fontsize=9, color=GREY)

    rows_y = (4.05, 2.45, 0.85)
    matrix(0.6, rows_y[1], n, d_model, "$X$", f"{n} × {d_model}", r"$n \times d_{model}$", INK, "#ffffff")
    roles = (("Q", d_k, GREEN, "asks"), ("K", d_k, BLUE, "is found by"), ("V", d_v, ORANGE, "hands over"))
    for y, (name, width, colour, role) in zip(rows_y, roles, strict=True):
        arrow(ax, (1.05, rows_y[1] + 0.3 * (y - rows_y[1])), (1.75, y))
        wide = "d_v" if name == "V" else "d_k"
        matrix(2.2, y, d_model, width, f"$W_{name}$", f"{d_model} × {width}", rf"$d_{{model}} \times {wide}$", colour)
        arrow(ax, (2.6, y), (3.0, y), colour)
        axes = rf"$n \times {wide}$"
        matrix(3.45, y, n, width, f"${name} = XW_{name}$", f"{n} × {width}  {role}", axes, colour)
    arrow(ax, (3.75, rows_y[0]), (4.62, rows_y[0] - 0.58), GREEN)
    arrow(ax, (3.75, rows_y[1]), (4.62, rows_y[1] + 0.58), BLUE)
    middle = (rows_y[0] + rows_y[1]) / 2
    square = r"$n \times n$"
    matrix(5.15, middle, n, n, r"scores  $QK^\top / \sqrt{d_k}$", f"{n} × {n}", square, GREY, "#f4f4f4")
    arrow(ax, (5.68, middle), (6.27, middle))
    ax.text(5.97, middle - 0.1, "softmax\nalong\nrows", ha="center", va="top", fontsize=9, color=INK)
    matrix(6.8, middle, n, n, r"weights  $A$", f"{n} × {n}", f"{square}, rows sum to 1", GREY, "#f4f4f4")
    arrow(ax, (6.8, middle - 0.88), (6.8, rows_y[2] + 0.7))
    arrow(ax, (3.95, rows_y[2]), (6.4, rows_y[2]), ORANGE)
    matrix(6.8, rows_y[2], n, d_v, "$O = AV$", f"{n} × {d_v}", r"$n \times d_v$", INK, "#ffffff")
    for x, y, columns in (
        (0.6, rows_y[1], d_model), (3.45, rows_y[0], d_k), (5.15, middle, n), (6.8, middle, n), (6.8, rows_y[2], d_v),
    ):  # fmt: skip
        row(x, y, n, columns, asking, PURPLE)
    for x, y, columns in ((0.6, rows_y[1], d_model), (3.45, rows_y[1], d_k), (3.45, rows_y[2], d_v)):
        row(x, y, n, columns, answering, INK)
    for x in (5.15, 6.8):
        at = x + unit * (answering + 0.5 - n / 2)
        ax.plot([at, at], [middle - unit * n / 2, middle + unit * n / 2], color=INK, linewidth=4.5, alpha=0.6,
                solid_capstyle="butt")  # fmt: skip
        level = middle + unit * (n / 2 - asking - 0.5)
        ax.add_patch(Circle((at, level), 0.12, fill=False, edgecolor=INK, linewidth=1.5, zorder=3))
    ax.text(0.15, 0.35, f"“{names[0]}” asks", color=PURPLE, fontsize=10.5, fontweight="bold")
    ax.text(0.15, 0.08, f"“{names[1]}” answers", color=INK, fontsize=10.5, fontweight="bold")
    show(
        drawn,
        f"Self-attention in matrices. X, {n} words by {d_model}, is multiplied by three matrices: W_Q and W_K, each "
        f"{d_model} by {d_k}, give Q and K, each {n} by {d_k}; W_V, {d_model} by {d_v}, gives V, {n} by {d_v}. Q times "
        f"K transposed over the root of {d_k} is the {n} by {n} matrix of scores; softmax along its rows makes it the "
        f"weights A; A times V is the output O, {n} by {d_v}. The row of “{names[0]}”, which asks, is striped from X "
        f"through Q, scores and A to O; “{names[1]}”, which answers, is a row of X, K, V and a column of scores "
        "and weights. A ring is where both meet.",
    )


def monday_first(cards: Sequence[Tensor]) -> list[Tensor]:
    """Weeks with their cards sorted: the days on the cards, and what else is on them, (batch, 7) each."""
    order = cards[0].argsort(dim=-1)                                        # (batch, 7)  where Monday lies, …
    return [each.gather(1, order) for each in cards]


def padded_scores(words: Sequence[str], padding: int) -> None:
    """The scores of a sentence and its padding, a square: whose columns are forbidden, whose rows are ignored."""
    real, n = len(words), len(words) + padding
    drawn, ax = figure(5.6, 3.4)
    for i in range(n):
        for j in range(n):
            forbidden, ignored = j >= real, i >= real
            face = "white" if forbidden else "#f0f0f0" if ignored else "#c9dcef"
            hatch = "///" if forbidden else None
            ax.add_patch(Rectangle((j, i), 1, 1, facecolor=face, hatch=hatch, edgecolor=PALE, linewidth=1))
            score = "−∞" if forbidden else f"$e_{{{i + 1}{j + 1}}}$"
            ax.text(j + 0.5, i + 0.5, score, ha="center", va="center", fontsize=9.5, color=GREY if ignored else INK)
    names = [*words, *["pad"] * padding]
    ax.set_xticks(np.arange(n) + 0.5, names)
    ax.set_yticks(np.arange(n) + 0.5, names)
    ax.tick_params(length=0)
    ax.xaxis.tick_top()
    for label in (*ax.get_xticklabels()[real:], *ax.get_yticklabels()[real:]):
        label.set_color(GREY)
    ax.xaxis.set_label_position("top")
    ax.set_xlabel("keys: who answers", labelpad=7, x=n / 2 / (n + 1.7))
    ax.set_ylabel("queries: who asks", y=1 - n / 2 / (n + 0.6))
    ax.spines[:].set_visible(False)
    ax.set_xlim(0, n + 1.7)
    ax.set_ylim(n + 0.6, 0)
    ax.text(n + 0.15, (real + n) / 2, "ignored", ha="left", va="center", fontsize=10, color=GREY)
    ax.text((real + n) / 2, n + 0.35, "forbidden", ha="center", va="center", fontsize=10, color=INK)
    show(
        drawn,
        f"A matrix of scores, {n} by {n}: {real} tokens, {', '.join(words)}, and {padding} times padding behind them. "
        "In the columns of the padding every score is −∞. Its rows have scores like the others, and what they give is "
        "ignored.",
    )


def winding(names: Sequence[str], runs: Mapping[str, Tensor]) -> None:
    """Vectors that each find the next by the largest product: the first run unrolled in a plane, and all in numbers.

    `runs`, {name: (n, d)}, each in the order of `names`, the lost one last. On the left each vector of the first run is
    drawn as long as it is, and turned from the one before by the angle between the two. On the right, for all runs, the
    lengths, and the margins: the score of the next minus the score of itself, products over the root of d. The last
    one's margin is far below the others: a triangle at the lower edge, and the range in words.
    """
    first, n = next(iter(runs.values())), len(names)
    size = first.norm(dim=-1)
    cosines = nn.functional.cosine_similarity(first[:-1], first[1:], dim=-1)
    angles = np.cumsum([0.0, *cosines.clamp(-1, 1).acos().tolist()]) + 0.1
    way = np.stack([np.cos(angles), np.sin(angles)], axis=1)                # (n, 2)
    tips, top = way * size.numpy()[:, None], float(size.max())
    drawn, ((left, above), (empty, below)) = figure(8.8, 4.4, rows=2, columns=2)
    empty.remove()
    left.set_subplotspec(left.get_gridspec()[:, 0])
    (x_low, y_low), (x_high, y_high) = np.minimum(tips.min(axis=0), 0), tips.max(axis=0)
    stage(left, (x_low - 0.3 * top, x_high + 0.35 * top), (y_low - 0.1 * top, y_high + 0.2 * top))
    left.set_aspect("equal")
    left.set_title(f"{next(iter(runs))}: each day and its length")
    for i, (name, (x, y)) in enumerate(zip(names, tips, strict=True)):
        colour = ORANGE if i == n - 1 else BLUE
        arrow(left, (0, 0), (x, y), colour, width=1.8)
        near_next = i < n - 1 and angles[i + 1] - angles[i] < 0.15
        near_last = i > 0 and angles[i] - angles[i - 1] < 0.15
        turned = angles[i] - 0.12 * near_next + 0.12 * near_last             # apart, where two arrows nearly coincide
        at = (size[i].item() + 0.06 * top) * np.array([np.cos(turned), np.sin(turned)])
        side = "left" if at[0] > 0.2 * top else "right" if at[0] < -0.35 * top else "center"
        left.text(*at, f"{name} {size[i]:.1f}", ha=side, va="center" if at[1] < 0.6 * top else "bottom", fontsize=10,
                  color=ORANGE if i == n - 1 else INK)  # fmt: skip
    said, days = [], range(1, n + 1)
    margins = {
        name: ((vectors * (vectors.roll(-1, dims=0) - vectors)).sum(dim=-1) / math.sqrt(vectors.shape[-1])).tolist()
        for name, vectors in runs.items()
    }
    highest = max(max(each[:-1]) for each in margins.values())
    floor = -0.45 * highest
    for i, (name, vectors) in enumerate(runs.items()):
        lengths = vectors.norm(dim=-1)
        style = line_style(i) | {"markersize": 4.5, "linewidth": 1.4}
        beside = [day + 0.08 * (i - (len(runs) - 1) / 2) for day in days]      # no mark hides another
        above.plot(beside, lengths.tolist(), label=name, **style)
        below.plot(beside[:-1], margins[name][:-1], label=name, **style)
        below.plot(beside[-1:], [floor], **style | {"marker": "v", "linestyle": "none"})
        said.append(f"{name}, lengths {', '.join(f'{each:.1f}' for each in lengths.tolist())}, margins "
                    f"{', '.join(f'{each:.1f}' for each in margins[name])}")  # fmt: skip
    below.axhline(0, color=INK, linewidth=1)
    below.text(1, -0.06 * highest, "0: tomorrow scores no higher than the day itself", ha="left", va="top", fontsize=9,
               color=INK)  # fmt: skip
    lost = sorted(each[-1] for each in margins.values())
    off = f"lost day, off the scale: {lost[0]:.0f} to {lost[-1]:.0f}".replace("-", "−")
    below.text(n - 0.4, floor, off, ha="right", va="center", fontsize=9, color=INK)
    below.set_ylim(1.5 * floor, 1.15 * highest)
    for ax, y_name in ((above, "length of $u_i$"), (below, "margin of tomorrow")):
        name_lines(ax, "", y_name)
        ax.get_legend() and ax.get_legend().remove()
        ax.set_xticks(days, [*map(str, days[:-2]), f"{n - 1}\nbefore", f"{n}\nlost"])
    above.set_ylim(0, None)
    above.legend(frameon=False, fontsize=9, loc="lower right", ncols=2)
    below.set_xlabel("days after the lost day")
    turned = ", ".join(f"{name} {math.degrees(angle - 0.1):.0f}°" for name, angle in zip(names, angles, strict=True))
    show(
        drawn,
        f"Arrows of growing length that open like a fan, each turned from the one before by the angle between them: "
        f"{turned}. {'; '.join(said).replace('-', '−')}.",
    )


def attention_graph(words: Sequence[str], weights: Tensor, least: float = 0.2) -> None:
    """Tokens as nodes, attention weights as edges: an arrow from the token that answers to the one that asks.

    An arrow is as thick as its weight, which stands beside it, on the outer side.

    `weights` (n, n), a row for each that asks; edges below `least` and a token's edge to itself are not drawn. Raises
    ValueError where words and weights do not fit.
    """
    rows = as_matrix(weights, words, words)
    check_shares("weights", rows)
    drawn, ax = figure(5.2, 4.4)
    stage(ax, (-1.65, 1.65), (-1.3, 1.3))
    angles = np.pi / 2 - 2 * np.pi * np.arange(len(words)) / len(words)
    places = np.stack([np.cos(angles), 0.9 * np.sin(angles)], axis=1)
    edges = [(i, j) for i in range(len(words)) for j in range(len(words)) if i != j and rows[i, j] >= least]
    for i, j in edges:
        way = (places[i] - places[j]) / np.linalg.norm(places[i] - places[j])
        start, end = places[j] + 0.1 * way, places[i] - 0.1 * way
        arrow(ax, tuple(start), tuple(end), BLUE, width=4 * rows[i, j])
        across = np.array([-way[1], way[0]])
        at = end - 0.3 * way                                  # near its head: arrows cross in the middle
        x, y = at + (0.13 if at @ across > -1e-9 else -0.13) * across
        ax.text(x, y, f"{rows[i, j]:.2f}", ha="center", va="center", fontsize=9.5, color=INK)
    for (x, y), word in zip(places, words, strict=True):
        ax.plot(x, y, "o", markersize=11, color=GREY, markeredgecolor="white", zorder=3)
        ax.text(1.27 * x, 1.22 * y, word, ha="center", va="center", fontsize=11, color=INK)
    said = "; ".join(f"{words[j]} to {words[i]} {rows[i, j]:.2f}" for i, j in edges)
    show(
        drawn,
        f"A graph of {len(words)} tokens. Arrows lead from who answers to who asks, as thick as the "
        f"attention weight, from {least:g} on: {said}.",
    )


def two_orders(named: Mapping[str, tuple[Sequence[str], Tensor]], followed: Sequence[str]) -> None:
    """The attention matrices of one sentence in two orders, {title: (words, weights (n, n))}.

    The words in `followed`, at most two, have a colour each, and so has a frame around the column of each.
    """
    drawn, axes = figure(8.6, 4.2, columns=len(named))
    colours: dict[str, str] = dict(zip(followed, (PURPLE, ORANGE), strict=False))
    said: list[str] = []
    for ax, (title, (words, weights)) in zip(axes, named.items(), strict=True):
        rows = as_matrix(weights, words, words)
        check_shares("weights", rows)
        cells(ax, rows, words, words, numbers=False)
        ax.set_title(title, pad=8)
        ax.set_xlabel("key")
        ax.set_ylabel("query" if ax is axes[0] else "")
        ax.xaxis.tick_top()
        ax.xaxis.set_label_position("bottom")
        turn_labels(ax)
        for label in (*ax.get_xticklabels(), *ax.get_yticklabels()):
            if label.get_text() in colours:
                label.set(color=colours[label.get_text()], fontweight="bold")
        for word, colour in colours.items():
            ax.add_patch(Rectangle((words.index(word), 0), 1, len(words), fill=False, edgecolor=colour, linewidth=2.2,
                                   clip_on=False, zorder=3))  # fmt: skip
        places = ", ".join(f"{word} is word {words.index(word) + 1}" for word in followed)
        asking = {word: [each for each, row in zip(words, rows, strict=True) if row[words.index(word)] > 0.3]
                  for word in followed}  # fmt: skip
        taken = "; ".join(f"{word} gets more than 0.3 from {', '.join(each)}" for word, each in asking.items())
        said.append(f"{title}: {places}; {taken}.")
    show(drawn, f"Attention matrices of one sentence in two orders. {' '.join(said)}")


def path_lengths(n: int, width: int) -> None:
    """How a signal gets from the first of `n` positions to the last: by recurrence, attention, restricted attention."""
    layers = max(1, -(-(n - 1) // width))
    drawn, (recurrent, full, windows) = figure(8.4, 2.9, columns=3)
    restricted = f"restricted, {width} on each side"
    for ax, title in ((recurrent, "recurrent"), (full, "self-attention"), (windows, restricted)):
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
        ax.set_ylim(-0.5 * top, 1.2 * top)
        ax.text((n - 1) / 2, -0.22 * top, f"path: {count} {unit}", ha="center", va="top", fontsize=10.5)
        ax.text(-0.55, 0, "in", ha="right", va="center", fontsize=9, color=INK)
        ax.text(-0.55, top, "out", ha="right", va="center", fontsize=9, color=INK)
    show(
        drawn,
        f"The way from the first of {n} positions to the last. Recurrent: through all {n} cells, one after the other. "
        f"Self-attention: one arrow, one layer. Restricted, {width} on each side: {layers} layers, {width} positions "
        "further in each.",
    )


def _line(ax: Axes, start: tuple[float, float], end: tuple[float, float], on: bool) -> None:
    ax.plot(
        [start[0], end[0]], [start[1], end[1]], color=ORANGE if on else PALE, linewidth=2.6 if on else 0.8,
        zorder=2 if on else 1,
    )  # fmt: skip
