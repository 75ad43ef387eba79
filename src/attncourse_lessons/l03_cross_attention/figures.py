"""A decoder's step, two decoders side by side, a table's sums, alignments, BLEU, and accuracy by length."""

from collections.abc import Mapping, Sequence
from itertools import pairwise

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle
from matplotlib.ticker import PercentFormatter
from torch import Tensor

from attncourse.viz.diagrams import arrow, box
from attncourse.viz.figures import as_matrix, cells, describe
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
    figure,
    line_style,
    name_lines,
    runs_and_means,
    show,
    stage,
)
from attncourse.viz.widgets import step_through
from attncourse_lessons.results import Compared

POSITIONS = (PURPLE, AMBER, GREY, SKY, INK)  # source positions, the true partner first: not the colours of seeds


def decoding_step() -> None:
    """One step of a decoder with attention: keys to scores, softmax, weights times values, their sum, prediction."""
    source = ("ninety-", "one", ",", "two")
    scores = (0.3, 3.1, -0.9, 0.6)
    weights = (0.05, 0.86, 0.02, 0.07)
    drawn, ax = figure(8.6, 6.4)
    stage(ax, (-1.5, 16.6), (0, 12.7))

    columns = [1.3 + 2.1 * j for j in range(len(source))]
    middle = (columns[0] + columns[-1]) / 2
    for i, (x, word, e, a) in enumerate(zip(columns, source, scores, weights, strict=True), start=1):
        ax.text(x, 0.35, word, ha="center", va="center", fontsize=11, color=INK)
        arrow(ax, (x, 0.7), (x, 1.35))
        box(ax, x, 1.9, rf"$h_{i}$", BLUE)
        arrow(ax, (x + 0.2, 2.45), (x + 0.2, 3.45))
        box(ax, x, 4.0, f"{e:.1f}".replace("-", "−"), GREY, fill="white")
        arrow(ax, (x, 4.55), (x, 5.05))
        arrow(ax, (x, 5.85), (x, 6.35))
        box(ax, x, 6.9, f"{a:.2f}", GREY, fill=WEIGHTS(a), text="white" if a > 0.5 else INK)
        arrow(ax, (x, 7.45), (x, 8.15))
        box(ax, x, 8.7, rf"$\alpha_{{t{i}}} h_{i}$", ORANGE, width=1.3)
        # The value goes past score and weight, and is multiplied by the weight.
        ax.plot([x + 0.57, x + 0.95, x + 0.95], [2.2, 2.2, 8.7], color=BLUE, linewidth=1.6)
        arrow(ax, (x + 0.95, 8.7), (x + 0.67, 8.7), BLUE, 1.6)
        arrow(ax, (x, 9.25), (middle, 10.4), width=0.8 + 5 * a, colour=ORANGE if a > 0.5 else "#e9b48a")
    # Softmax runs across the row: one wide bar, into which all scores go. Its word stands between two values' lines.
    ax.add_patch(Rectangle((0.75, 5.1), 7.4, 0.7, facecolor="white", edgecolor=GREY, linewidth=1.6, zorder=1))
    ax.text(5.4, 5.45, "softmax", ha="center", va="center", fontsize=10.5, color=INK)
    for left, right in pairwise(columns):
        arrow(ax, (left + 0.57, 1.75), (right - 0.57, 1.75), both=True)
    box(ax, middle, 10.95, "$c_t$", ORANGE)

    box(ax, 12.0, 1.9, "$s_t$", GREEN)
    arrow(ax, (10.75, 1.9), (11.4, 1.9))
    ax.text(10.7, 1.9, "$s_{t-1}$", ha="right", va="center", fontsize=11)
    ax.text(12.0, 0.35, "token before, $\\tilde s_{t-1}$", ha="center", va="center", fontsize=10.5)
    arrow(ax, (12.0, 0.7), (12.0, 1.35))
    # The decoder's state is the query: one line, and from it an arrow into every score.
    ax.plot([12.0, 12.0], [2.45, 2.95], color=GREEN, linewidth=1.6)
    ax.plot([columns[0] - 0.2, 12.0], [2.95, 2.95], color=GREEN, linewidth=1.6)
    for x in columns:
        ax.plot([x - 0.2], [2.95], "o", markersize=4, color=GREEN)
        arrow(ax, (x - 0.2, 2.95), (x - 0.2, 3.45), GREEN, 1.6)
    arrow(ax, (12.0, 2.95), (12.0, 10.4), colour=GREEN, width=1.6)

    box(ax, 12.0, 10.95, "$[c_t;\\, s_t]$", PURPLE, width=1.8)
    arrow(ax, (middle + 0.6, 10.95), (11.05, 10.95), colour=ORANGE, width=1.6)
    arrow(ax, (12.95, 10.95), (13.75, 10.95))
    box(ax, 14.7, 10.95, "$\\tilde s_t$", PURPLE, width=1.8)
    arrow(ax, (14.7, 11.5), (14.7, 12.1))
    ax.text(14.7, 12.4, "next token: ein", ha="center", va="center", fontsize=11)

    for y, name, equation in (
        (4.0, "attention scores", r"$e_{ti} = s_t \cdot h_i$"),
        (6.9, "attention weights", r"$\alpha_{ti} = \mathrm{softmax}_i(e_{ti})$"),
        (8.7, "weights × values", r"$c_t = \sum_i \alpha_{ti} h_i$"),
    ):
        ax.text(9.0, y + 0.27, name, ha="left", va="center", fontsize=10, color=INK)
        ax.text(9.0, y - 0.27, equation, ha="left", va="center", fontsize=10, color=INK)
    ax.text(9.0, 6.05, "their sum: 1.00", ha="left", va="center", fontsize=10, color=INK)
    ax.text(middle, 11.85, "context vector", ha="center", va="center", fontsize=10.5, color=ORANGE)
    ax.text(12.0, 11.85, "concatenate", ha="center", va="center", fontsize=10.5)
    ax.text(14.7, 10.05, "attentional vector\n" r"$\tanh([c_t; s_t] W)$", ha="center", va="center", fontsize=10)
    ax.text(12.75, 1.9, "decoder state:\nthe query", ha="left", va="center", fontsize=10.5)
    ax.text(0.5, 1.9, "encoder states:\nkeys and\nvalues", ha="right", va="center", fontsize=10.5)

    show(
        drawn,
        "One decoding step. The encoder turns ninety-one, two into the states h1 to h4. The decoder state s_t, the "
        "query, is compared with each as a key: scores 0.3, 3.1, −0.9, 0.6. One softmax over all four makes them the "
        "weights 0.05, 0.86, 0.02, 0.07, which sum to 1.00. Each state goes on as a value, is multiplied by its "
        "weight, and the products sum to the context vector c_t. It is joined to s_t and, through tanh of a linear "
        "map, gives the attentional vector, from which the next token is predicted: ein.",
    )


def two_decoders() -> None:
    """One step of Bahdanau's decoder beside one of Luong's: which state asks, and where the context vector goes."""
    drawn, (left, right) = figure(8.6, 4.3, columns=2)
    for ax, title in ((left, "Bahdanau et al. 2015: additive"), (right, "Luong et al. 2015: multiplicative")):
        stage(ax, (0.3, 10.4), (-0.4, 9.3))
        ax.set_title(title)
        box(ax, 1.6, 4.0, "$h_1 … h_n$", BLUE, width=2.2)
        box(ax, 4.6, 1.2, "$s_{t-1}$", GREEN)
        box(ax, 7.6, 1.2, "$s_t$", GREEN)
        box(ax, 4.6, 4.0, "attention", ORANGE, width=2.0)
        box(ax, 4.6, 6.3, "$c_t$", ORANGE)
        arrow(ax, (2.75, 4.0), (3.55, 4.0), BLUE)
        arrow(ax, (4.6, 4.55), (4.6, 5.75), ORANGE, 1.6)
        arrow(ax, (5.2, 1.2), (7.0, 1.2), GREEN)
        arrow(ax, (7.6, 0.0), (7.6, 0.65))
        ax.text(7.6, 8.15, "next token", ha="center", va="center", fontsize=11)
    left.text(7.6, -0.25, "$y_{t-1}$", ha="center", va="center", fontsize=11)
    right.text(7.6, -0.25, r"$y_{t-1},\ \tilde s_{t-1}$", ha="center", va="center", fontsize=11)
    arrow(left, (4.6, 1.75), (4.6, 3.45), GREEN, 1.6)
    left.text(4.4, 2.6, "the old state\nis the query", ha="right", va="center", fontsize=10, color=GREEN)
    arrow(left, (5.2, 6.0), (7.3, 1.75), ORANGE, 1.6)
    left.text(6.75, 5.0, "into\nthe cell", ha="center", va="center", fontsize=10, color=ORANGE)
    arrow(left, (5.2, 6.5), (7.3, 7.75), ORANGE)
    left.text(5.9, 7.35, "into the output", ha="right", va="center", fontsize=10, color=ORANGE)
    arrow(left, (7.75, 1.75), (7.75, 7.75), GREEN)
    left.text(9.7, 6.2, "$y_{t-1}$", ha="center", va="center", fontsize=11)
    arrow(left, (9.5, 6.6), (8.3, 7.75))
    equation = r"$e_{ti} = \tanh(s_{t-1} W_a + h_i U_a) \cdot v_a$"
    left.text(5.35, 9.05, equation, ha="center", va="center", fontsize=11)
    arrow(right, (7.2, 1.75), (5.4, 3.45), GREEN, 1.6)
    right.text(5.75, 2.6, "the new state\nis the query", ha="right", va="center", fontsize=10, color=GREEN)
    box(right, 7.6, 6.3, r"$\tilde s_t$", PURPLE)
    arrow(right, (5.2, 6.3), (7.0, 6.3), ORANGE, 1.6)
    right.text(5.9, 7.35, "into the output", ha="center", va="center", fontsize=10, color=ORANGE)
    arrow(right, (7.8, 1.75), (7.8, 5.75), GREEN)
    arrow(right, (7.6, 6.85), (7.6, 7.75))
    equation = r"$e_{ti} = s_t \cdot h_i$   or   $s_t W_a \cdot h_i$"
    right.text(5.35, 9.05, equation, ha="center", va="center", fontsize=11)
    show(
        drawn,
        "Two decoders. Bahdanau: the old state s_{t−1} is the query of an additive attention over h_1 to h_n; its "
        "context vector c_t goes into the cell, together with s_{t−1} and the token before, and gives the new state "
        "s_t; both and the token before predict the next token. Luong: the cell makes s_t first; s_t is the query of a "
        "multiplicative attention; c_t and s_t together give the attentional vector, from which the next token is "
        "predicted.",
    )


def tables_with_sums(
    tables: Mapping[str, Tensor], rows: Sequence[str], columns: Sequence[str], mask: Tensor | None = None
) -> None:
    """Tables of weights, queries down and keys across, each with the sums of its rows and columns.

    The sums stand under a header of their own. A row that sums to one says so in bold, one that does not in the colour
    of an error; a column need not sum to anything. Columns where `mask`, (1, n_key), is False are hatched. Wide tables
    stand below each other.
    """
    across, high = 2.9 + 0.85 * len(columns), 1.7 + 0.5 * len(rows)
    if across * len(tables) > 12:
        drawn, _ = figure(across, high * len(tables), rows=len(tables))
    else:
        drawn, _ = figure(across * len(tables), high, columns=len(tables))
    said = []
    for ax, (name, values) in zip(drawn.axes, tables.items(), strict=True):
        matrix = as_matrix(values, rows, columns)
        cells(ax, matrix, rows, columns, numbers=True)
        for j, allowed in enumerate([True] * len(columns) if mask is None else mask[0].tolist()):
            if not allowed:
                ax.add_patch(Rectangle((j, 0), 1, len(rows), fill=False, hatch="///", edgecolor=PALE, linewidth=0))
        ax.xaxis.tick_top()
        ax.xaxis.set_label_position("top")
        ax.set_xlabel("source (keys)", labelpad=10)
        ax.set_ylabel("target (queries)", labelpad=8)
        ax.set_title(name, pad=8)
        n, m = len(rows), len(columns)
        by_row, by_column = matrix.sum(axis=1), matrix.sum(axis=0)
        for i, total in enumerate(by_row):
            one = abs(total - 1) < 0.005
            ax.text(m + 0.5, i + 0.5, f"{total:.2f}", ha="center", va="center", fontsize=9.5,
                    color=INK if one else ORANGE, fontweight="bold" if one else "normal")  # fmt: skip
        for j, total in enumerate(by_column):
            ax.text(j + 0.5, n + 0.5, f"{total:.2f}", ha="center", va="center", fontsize=9.5, color=GREY)
        ax.text(m + 0.5, -0.2, "sum", ha="center", va="center", fontsize=10, color=GREY)
        ax.text(-0.12, n + 0.5, "sum", ha="right", va="center", fontsize=10, color=GREY)
        ax.set_xlim(0, m + 1)
        ax.set_ylim(n + 1, 0)
        each = "; ".join(
            f"{row} {', '.join(f'{value:.2f}' for value in line)}" for row, line in zip(rows, matrix, strict=True)
        )
        said.append(
            f"{name}: {each}; the rows sum to {', '.join(f'{total:.2f}' for total in by_row)}, the columns to "
            f"{', '.join(f'{total:.2f}' for total in by_column)}."
        )
    show(drawn, " ".join(said))


def alignments(
    models: Mapping[str, Tensor], rows: Sequence[str], columns: Sequence[str], partners: Mapping[str, str]
) -> None:
    """The weights (n_target, n_source) of several models in a row, with a frame at each true partner, {target: source}.

    Weights of 0.05 or more have their number. Raises ValueError where a shape does not fit the labels.
    """
    drawn, _ = figure(0.9 + 2.6 * len(models), 1.4 + 0.36 * len(rows), columns=len(models))
    said = []
    for ax, (name, weights) in zip(drawn.axes, models.items(), strict=True):
        matrix = as_matrix(weights, rows, columns)
        cells(ax, matrix, rows if ax is drawn.axes[0] else [""] * len(rows), columns, numbers=False)
        for (i, j), weight in np.ndenumerate(matrix):
            if weight >= 0.05:
                ax.text(j + 0.5, i + 0.5, f"{weight:.2f}", ha="center", va="center", fontsize=8.5,
                        color="white" if weight > 0.7 else INK)  # fmt: skip
        for target, partner in partners.items():
            place = columns.index(partner), rows.index(target)
            ax.add_patch(Rectangle(place, 1, 1, fill=False, edgecolor=ORANGE, linewidth=2)).set_clip_on(False)
        ax.xaxis.tick_top()
        ax.xaxis.set_label_position("top")
        ax.set_xticks(np.arange(len(columns)) + 0.5, columns, rotation=35, ha="left", rotation_mode="anchor")
        ax.spines[:].set(visible=True, color=PALE, zorder=0.5)  # where one table ends and the next begins
        ax.set_xlabel("source (keys)")
        ax.set_title(name, pad=8)
        most = ", ".join(
            f"{row} {columns[int(line.argmax())]} {line.max():.2f}" for row, line in zip(rows, matrix, strict=True)
        )
        said.append(f"{name}, where each target token attends most: {most}")
    drawn.axes[0].set_ylabel("target (queries)")
    pairs = ", ".join(f"{target} and {partner}" for target, partner in partners.items())
    show(drawn, f"Alignments. {'. '.join(said)}. Framed, the true partners: {pairs}.")


class steps(step_through):
    """`step_through` whose still picture joins tokens: the source above, the target below, so that a swap is a cross.

    A line is as wide as its weight; weights below 0.05 have none.
    """

    def still(self) -> tuple[Figure, str]:
        """Every step at once."""
        n = max(len(self._source), len(self._target))
        drawn, ax = figure(1.9 + 0.72 * n, 2.9)
        stage(ax, (-2.3, n - 0.4), (-0.45, 2.45))
        above, below = ([j + (n - len(row)) / 2 for j in range(len(row))] for row in (self._source, self._target))
        for y, name, places, row in (
            (2.2, "source (keys)", above, self._source),
            (-0.2, "target (queries)", below, self._target),
        ):
            ax.text(-2.3, y, name, ha="left", va="center", fontsize=10, color=GREY)
            for x, token in zip(places, row, strict=True):
                ax.text(x, y, token, ha="center", va="center", fontsize=10.5, color=INK)
        for (t, i), weight in np.ndenumerate(self._weights):
            if weight >= 0.05:
                ax.plot([below[t], above[i]], [0.0, 2.0], color=BLUE, alpha=0.75, linewidth=5 * weight)
        return drawn, f"Attention step by step. {describe(self._weights, self._source, self._target)}"


def hidden_positions(
    found: Mapping[Sequence[int], Sequence[float]], positions: Sequence[str], models: Sequence[str], chance: float
) -> None:
    """What is still right when source positions are hidden, {the hidden positions: a share for each of the models}.

    On the left a row is named by what is hidden or by what alone is left, and what is hidden is hatched; on the right
    there is a mark for each model, and a line at `chance`.
    """
    drawn, _ = figure(9.2, 1.0 + 0.42 * len(found), columns=2)
    left, right = drawn.axes
    names = []
    for hidden in found:
        seen = [name for j, name in enumerate(positions) if j not in hidden]
        out = " and ".join(name for j, name in enumerate(positions) if j in hidden)
        names.append(f"only {seen[0]}" if len(seen) == 1 else f"without {out}")
    cells(left, np.zeros((len(found), len(positions))), names, positions, numbers=False)
    matrix = np.array([[*shares] for shares in found.values()])                          # (rows, models)
    rows = np.arange(len(found)) + 0.5
    said = []
    for i, (hidden, shares) in enumerate(found.items()):
        for j, name in enumerate(positions):
            if j in hidden:
                left.add_patch(Rectangle((j, i), 1, 1, fill=False, hatch="////", edgecolor=GREY, linewidth=0))
            else:
                left.text(j + 0.5, i + 0.5, name, ha="center", va="center", fontsize=9.5, color=INK)
        each = ", ".join(f"{name} {share:.0%}" for name, share in zip(models, shares, strict=True))
        said.append(f"without {' and '.join(positions[j] for j in hidden)}: {each}")
    left.spines[:].set(visible=True, color=PALE)
    left.set_xticks([])
    left.set_title("what the decoder may attend to", pad=24)
    for row in rows:
        right.axhline(row, color=PALE, linewidth=1, zorder=1)
    right.axvline(chance, color=GREY, linestyle=":", linewidth=1.5, zorder=2)
    right.text(chance, len(found) + 0.02, "chance", ha="center", va="top", fontsize=9, color=GREY)
    for j, name in enumerate(models):
        # Marks that would cover each other stand a little above and below their line.
        shift = 0.16 * (j - (len(models) - 1) / 2)
        style = line_style(j) | {"linestyle": "none", "markersize": 7}
        right.plot(matrix[:, j], rows + shift, label=name, clip_on=False, **style)
    right.set_xlim(0, 1)
    right.set_ylim(len(found), 0)
    right.set_yticks([])
    right.xaxis.tick_top()
    right.xaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    right.set_title("units predicted right", pad=24)
    right.legend(frameon=False, loc="center left", bbox_to_anchor=(1.02, 0.5))
    show(drawn, f"Units predicted right. {'; '.join(said)}. Chance is {chance:.0%}.")


def largest_weights(counts: Mapping[str, Sequence[int]], positions: Sequence[str], token: str) -> None:
    """Where the largest weight of a target `token` lies, {model: a count for each source position}: a bar a model."""
    drawn, ax = figure(7.4, 1.2 + 0.27 * len(counts))
    shares = np.array([[*row] for row in counts.values()]) / np.array([[sum(row)] for row in counts.values()])
    used = [j for j in range(len(positions)) if shares[:, j].max() > 0]
    colours = dict(zip(reversed(used), POSITIONS, strict=False))
    before = np.zeros(len(counts))
    for j in reversed(used):  # the true partner first
        ax.barh(range(len(counts)), shares[:, j], left=before, height=0.72, color=colours[j], label=positions[j])
        before = before + shares[:, j]
    ax.set_yticks(range(len(counts)), [*counts])
    ax.set_ylim(len(counts) - 0.5, -0.5)
    ax.set_xlim(0, 1)
    ax.tick_params(axis="y", length=0)
    ax.xaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    ax.set_xlabel(f"numbers in which the largest weight of the {token} lies on …")
    ax.legend(frameon=False, loc="center left", bbox_to_anchor=(1.01, 0.5))
    each = "; ".join(
        f"{name}: {', '.join(f'{positions[j]} {row[j]}' for j in reversed(used))}" for name, row in counts.items()
    )
    show(drawn, f"Where the largest weight of the {token} lies. {each}.")


def attended_and_needed(
    found: Mapping[str, Sequence[tuple[float, float]]], seeds: Sequence[int], chance: float
) -> None:
    """{position: (how often it has the largest weight, what is right while it is hidden) for each of the seeds}.

    A point for each; the seed stands beside those that have most of the largest weights.
    """
    drawn, ax = figure(6.6, 4.0)
    ax.plot([0, 1], [1, chance], ":", color=GREY, linewidth=1.5, zorder=1)
    ax.text(0.04, 0.6, "if weights told\nwhat is needed", ha="left", va="top", fontsize=9, color=GREY)
    ax.axhline(chance, color=PALE, linewidth=1.5, zorder=1)
    ax.text(0.02, chance - 0.02, "chance", ha="left", va="top", fontsize=9, color=GREY)
    said = []
    for (name, points), marker, colour in zip(found.items(), "^so", POSITIONS, strict=False):
        ax.plot(*zip(*points, strict=True), marker, color=colour, markersize=7, markeredgecolor="white",
                clip_on=False, zorder=3, label=name)  # fmt: skip
        for (x, y), seed in zip(points, seeds, strict=True):
            if x > 0.5:
                ax.text(x - 0.02, y, str(seed), ha="right", va="center", fontsize=9, color=colour)
        said.append(f"{name}: {', '.join(f'{x:.0%} and {y:.0%}' for x, y in points)}")
    every = [point for points in found.values() for point in points]
    hiding = sum(x < 0.02 and y > 0.98 for x, y in every)
    if hiding > 1:  # they lie on each other
        ax.text(0.075, 0.955, f"{hiding} of {len(every)} points lie in the corner", va="center", fontsize=9, color=GREY)
    ax.set_xlim(0, 1)
    ax.set_ylim(0, 1)
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    ax.set_xlabel("units whose largest weight is on the position")
    ax.set_ylabel("units right while it is hidden")
    ax.legend(frameon=False, loc="center left", bbox_to_anchor=(1.03, 0.5), title="position")
    show(
        drawn,
        "For each model the units whose largest weight is on a position, and the units right while it is hidden. "
        f"{'; '.join(said)}.",
    )


def handed_over() -> None:
    """What four variants of attention make of the encoder's states once, and what a step of the decoder may choose."""
    drawn, _ = figure(10.0, 3.5, columns=4)
    panels: list[Axes] = drawn.axes
    titles = ("one query", "eight averages,\none choice", "eight averages,\none vector", "eight averages")
    steps_at = (1.2, 3.0, 4.8)
    for ax, title in zip(panels, titles, strict=True):
        stage(ax, (-0.1, 6.1), (0.0, 8.7))
        ax.set_title(title)
        box(ax, 3.0, 0.6, "$h_1, …, h_n$", BLUE, width=3.0)
        anew = title == "eight averages"
        eight = title != "one query"
        if eight:
            for j in range(8):
                arrow(ax, (3.0, 1.15), (0.55 + 0.7 * j, 2.25), width=0.8)
                box(ax, 0.55 + 0.7 * j, 2.8, str(j + 1), ORANGE, width=0.45)
        if not anew:
            one = {"one query": "one average", "eight averages,\none choice": "one average"}.get(title, "one vector")
            box(ax, 3.0, 5.1, one, ORANGE, width=3.0)
            by, colour = ("matrix", GREY) if one == "one vector" else ("query $s_0$", GREEN)
            ax.text(0.6 if eight else 1.9, 4.3 if eight else 3.0, by, ha="center", va="center", fontsize=10,
                    color=colour)  # fmt: skip
            for x in [0.55 + 0.7 * j for j in range(8)] if eight else [3.0]:
                arrow(ax, (x, 3.35 if eight else 1.15), (3.0 + 0.25 * (x - 3.0), 4.55), width=0.8)
        if anew:  # a bracket over the eight: each state attends to them all
            ax.plot([0.3, 0.3, 5.7, 5.7], [3.4, 3.65, 3.65, 3.4], color=ORANGE, linewidth=1.6)
        for t, x in enumerate(steps_at, start=1):
            box(ax, x, 7.9, f"$s_{t}$", GREEN, width=1.2)
            if anew:
                arrow(ax, (x - 0.2, 7.35), (x - 0.2, 3.7), GREEN, 1.6)
                arrow(ax, (x + 0.2, 3.7), (x + 0.2, 7.35), ORANGE, 1.6)
            else:
                arrow(ax, (3.0 + 0.6 * (x - 3.0), 5.65), (x, 7.35), ORANGE, 1.6)
    show(
        drawn,
        "What four variants hand over. One query: s_0 makes one average of the encoder's states, and all decoder "
        "states s_1, s_2, s_3 receive it. Eight averages, one choice: of eight averages s_0 makes one, for all steps. "
        "Eight averages, one vector: a matrix makes one vector of the eight, for all steps. Eight averages: each "
        "decoder state is a query of its own to the eight, and receives its own average of them.",
    )


def lists_of_five(found: Mapping[str, Mapping[str, Sequence[Mapping[str, float]]]], same: int) -> None:
    """{model: {budget: {numbers: share right} for each seed}}: of lists of five a mark a seed, in two rows.

    The first `same` models use the same vector at every step; a line parts them from those that choose anew.
    """
    drawn, ax = figure(8.2, 1.3 + 0.42 * len(found))
    said = []
    for y, (model, budgets) in enumerate(found.items()):
        ax.axhline(y, color=PALE, linewidth=1, zorder=1)
        for (budget, seeds), shift, face in zip(budgets.items(), (-0.14, 0.14), ("white", BLUE), strict=True):
            shares = [right["5"] for right in seeds]
            ax.plot(shares, [y + shift] * len(shares), "o", color=BLUE, markerfacecolor=face, markersize=7,
                    clip_on=False, zorder=3, label=budget if y == 0 else None)  # fmt: skip
            said.append(f"{model}, {budget}: {', '.join(f'{share:.0%}' for share in shares)}")
    ax.set_xlim(0, 1)
    ax.set_ylim(len(found) - 0.5, -0.5)
    ax.set_yticks(range(len(found)), [*found])
    ax.tick_params(axis="y", length=0)
    ax.xaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    ax.set_xlabel("lists of five exactly right")
    ax.axhline(same - 0.5, color=INK, linewidth=1.2, zorder=2)
    for middle, words in (
        ((same - 1) / 2, "the same vector\nat every step"),
        ((same + len(found) - 1) / 2, "a new choice\nat every step"),
    ):
        ax.text(1.04, middle, words, ha="left", va="center", fontsize=10, color=INK)
    ax.legend(frameon=False, loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=2)
    parted = f"The first {same} use the same vector at every step, the others choose anew"
    show(drawn, f"Lists of five exactly right, by seed. {parted}. {'; '.join(said)}.")


def with_and_without(rows: Sequence[Compared]) -> None:
    """BLEU of the first attention model: RNNencdec and RNNsearch of one training joined, what has no partner alone.

    A model's name is its family, a hyphen, and its longest training sentence; one without a hyphen is another system.
    """
    pairs: dict[str, dict[str, float]] = {}
    for row in rows:
        family, _, trained = row.model.partition("-")
        pairs.setdefault(trained, {})[family] = row.bleu
    others = pairs.pop("", {})
    colours = {"RNNencdec": BLUE, "RNNsearch": ORANGE} | dict.fromkeys(others, GREY)
    named = {f"trained on ≤ {longest} words".replace("* words", " words*"): both for longest, both in pairs.items()}
    lines = [*named.items()]
    lines += [*((name, {name: bleu}) for name, bleu in others.items())]
    drawn, ax = figure(7.0, 1.0 + 0.42 * len(lines))
    for y, (_, scores) in enumerate(lines):
        ax.axhline(y, color=PALE, linewidth=1, zorder=1)
        ax.plot([*scores.values()], [y] * len(scores), color=GREY, linewidth=2, zorder=2)
        for family, bleu in scores.items():
            ax.plot(bleu, y, "o", color=colours[family], markersize=8, zorder=3)
            ax.text(bleu, y - 0.22, f"{bleu:.2f}", ha="center", va="bottom", fontsize=9, color=INK)
        if len(scores) == 2:
            low, high = scores.values()
            ax.text((low + high) / 2, y - 0.08, f"{high - low:+.2f}", ha="center", va="bottom", fontsize=9, color=GREY)
    for family, bleu in lines[0][1].items():
        ax.text(bleu, -0.62, family, ha="center", va="bottom", fontsize=10, color=colours[family])
    ax.set_xlim(0, 38)
    ax.set_ylim(len(lines) - 0.5, -1.0)
    ax.set_yticks(range(len(lines)), [name for name, _ in lines])
    ax.tick_params(axis="y", length=0)
    ax.set_xlabel("BLEU on newstest2014, all sentences")
    said = "; ".join(
        f"{name}: {', '.join(f'{family} {bleu:.2f}' for family, bleu in scores.items())}" for name, scores in lines
    )
    show(drawn, f"BLEU on newstest2014, all sentences. {said}.")


def gradients_by_length(gradients: Mapping[str, Mapping[int, Sequence[float]]]) -> None:
    """{model: {source length: one gradient a seed}}: every run a mark, a line through their means, named at its end.

    On the right again those models alone that fall by less than a factor of 1000, on two logarithmic axes.
    """
    drawn, (ax, near) = figure(8.8, 3.5, columns=2)
    found = runs_and_means(ax, gradients)
    lengths = np.array([*next(iter(gradients.values()))])
    slow = [name for name, means in found.items() if means[-1] > 1e-3 * means[0]]
    for i, (name, means) in enumerate(found.items()):
        if name not in slow:
            ax.text(0.55 * lengths[-1], means[-1] ** 0.6 * means[0] ** 0.4, name, ha="right", va="top", fontsize=10,
                    color=line_style(i)["color"])  # fmt: skip
            continue
        style = line_style(i) | {"markersize": 5.5, "markevery": []}
        near.plot(lengths, found[name], **style)
        points = [(n, value) for n, values in gradients[name].items() for value in values]
        near.plot(*zip(*points, strict=True), **style | {"linestyle": "none", "markevery": None})
        near.text(1.08 * lengths[-1], means[-1], name, ha="left", va="bottom" if name == slow[0] else "top",
                  fontsize=10, color=style["color"])  # fmt: skip
    ax.text(lengths[-1], 8 * found[slow[0]][-1], " and ".join(slow), ha="right", va="bottom", fontsize=10, color=INK)
    as_one_over_n = 2.5 * max(found[name][0] for name in slow) * lengths[0] / lengths  # above the lines, to compare
    near.plot(lengths, as_one_over_n, ":", color=INK, linewidth=1.8, zorder=1)
    near.text(lengths[1], 1.2 * as_one_over_n[1], "∝ 1/n", ha="left", va="bottom", fontsize=9.5, color=INK)
    near.set_xscale("log")
    near.set_xticks(lengths, [str(n) for n in lengths])
    near.minorticks_off()
    for each, name in ((ax, "norm of the gradient"), (near, "")):
        each.set_yscale("log")
        name_lines(each, "source length n", name)
        if each.get_legend() is not None:
            each.get_legend().remove()
    ax.set_title("all three models")
    near.set_title("two of them, both axes logarithmic")
    said = [f"{name} goes from {means[0]:.2g} to {means[-1]:.2g}" for name, means in found.items()]
    show(drawn, f"Gradient at the middle token against the source length, marks for seeds. {'; '.join(said)}. "
                "Dotted, a fall by 1/n.")  # fmt: skip


def right_by_length(panels: Mapping[str, Mapping[str, Sequence[Mapping[str, float]]]]) -> None:
    """Lists exactly right against how many numbers they hold, {panel: {model: a {numbers: share} for each seed}}.

    A line joins the means over the seeds, a band reaches from the lowest to the highest. Dotted: what the share at two
    numbers would give if the numbers of a longer list went wrong independently, share(2)^(n/2).
    """
    drawn, _ = figure(3.9 * len(panels) + 1.2, 3.5, columns=len(panels))
    axes: list[Axes] = drawn.axes
    said = []
    for ax, (title, lines) in zip(axes, panels.items(), strict=True):
        for i, (name, seeds) in enumerate(lines.items()):
            xs = [int(n) for n in seeds[0]]
            ys = np.array([[one[n] for n in seeds[0]] for one in seeds])                  # (seeds, lengths)
            style = line_style(i)
            ax.fill_between(xs, ys.min(axis=0), ys.max(axis=0), color=style["color"], alpha=0.18, linewidth=0)
            ax.plot(xs, ys.mean(axis=0), label=name, clip_on=False, **style)
            from_two = [x for x in xs if x >= 2]
            independent = [ys.mean(axis=0)[xs.index(2)] ** (x / 2) for x in from_two]
            ax.plot(from_two, independent, ":", color=style["color"], linewidth=1.8, zorder=2)
            spans = ", ".join(
                f"{mean:.0%} ({low:.0%} to {high:.0%}) at {x}"
                for x, mean, low, high in zip(xs, ys.mean(axis=0), ys.min(axis=0), ys.max(axis=0), strict=True)
            )
            said.append(f"{title}, {name}: {spans}; independent numbers would give {independent[-1]:.0%} at {xs[-1]}")
        ax.set_xticks(xs)
        ax.set_ylim(0, 1)
        ax.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
        name_lines(ax, "numbers in the list", "lists exactly right" if ax is axes[0] else "", title)
        if (legend := ax.get_legend()) is not None:
            legend.remove()
    dotted = Line2D([], [], color=GREY, linestyle=":", linewidth=1.8, label="if numbers went\nwrong independently")
    handles = [*axes[-1].get_legend_handles_labels()[0], dotted]
    axes[-1].legend(handles=handles, frameon=False, loc="center left", bbox_to_anchor=(1.01, 0.5), handlelength=2.4)
    show(drawn, f"Lists exactly right, mean and range of the seeds. {'; '.join(said)}.")
