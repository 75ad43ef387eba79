"""A decoder's step, two decoders side by side, a table's sums, alignments, BLEU, and accuracy by length."""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from operator import itemgetter

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, Rectangle
from matplotlib.patheffects import withStroke
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
    PAGE,
    PALE,
    PURPLE,
    SKY,
    WEIGHTS,
    figure,
    line_style,
    name_lines,
    show,
    stage,
)
from attncourse.viz.widgets import step_through
from attncourse_lessons.results import Compared

DARK = "#08306b"  # the darkest blue of the weights
POSITIONS = (PURPLE, AMBER, GREY, SKY, INK)  # source positions, the true partner first: not the colours of seeds


def decoding_step() -> None:
    """One step of a decoder with attention: keys to scores, softmax, weights times values, their sum, prediction."""
    source = ("ninety-", "one", ",", "two")
    scores = (0.3, 3.1, -0.9, 0.6)
    weights = (0.05, 0.86, 0.02, 0.07)
    drawn, ax = figure(8.6, 6.4)
    stage(ax, (-1.5, 17.3), (0, 12.7))

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
        # The value goes past score and weight, over the softmax by a bridge, and is multiplied by the weight.
        (value,) = ax.plot([x + 0.6, x + 0.95, x + 0.95], [2.2, 2.2, 8.7], color=BLUE, linewidth=1.6, zorder=3,
                           solid_capstyle="butt")  # fmt: skip
        value.set_path_effects([withStroke(linewidth=5.5, foreground="white")])
        arrow(ax, (x + 0.95, 8.7), (x + 0.67, 8.7), BLUE, 1.6)
        arrow(ax, (x, 9.25), (middle, 10.4), width=0.8 + 5 * a, colour=ORANGE if a > 0.5 else "#e9b48a")
    # Softmax runs across the row: one wide bar, into which all scores go.
    ax.add_patch(Rectangle((0.75, 5.1), 7.4, 0.7, facecolor="#eeeeee", edgecolor=GREY, linewidth=1.6, zorder=1))
    ax.text((columns[2] + columns[1] + 1.9) / 2, 5.45, "softmax", ha="center", va="center", fontsize=10.5, color=INK)
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
    ax.text(14.95, 11.78, r"logits $\tilde s_t W_o$", ha="left", va="center", fontsize=10)
    ax.text(14.7, 12.4, "next token: ein", ha="center", va="center", fontsize=11)

    for y, name, equation in (
        (4.0, "attention scores", r"$e_{ti} = s_t \cdot h_i$"),
        (6.9, "attention weights", r"$\alpha_{ti} = \mathrm{softmax}_i(e_{ti})$"),
        (8.7, "weights × values", r"$c_t = \sum_i \alpha_{ti} h_i$"),
    ):
        ax.text(9.0, y + 0.27, name, ha="left", va="center", fontsize=10, color=INK)
        ax.text(9.0, y - 0.27, equation, ha="left", va="center", fontsize=10, color=INK)
    ax.text(9.0, 6.05, "their sum: 1.00", ha="left", va="center", fontsize=10, color=INK)
    ax.text(columns[-1] + 1.1, 2.3, "value", ha="left", va="center", fontsize=10, color=BLUE)
    ax.text(columns[-1] + 0.3, 3.2, "key", ha="left", va="center", fontsize=10, color=GREY)
    ax.text(middle, 11.85, "context vector", ha="center", va="center", fontsize=10.5, color=ORANGE)
    ax.text(12.0, 11.85, "concatenate", ha="center", va="center", fontsize=10.5)
    ax.text(14.7, 10.05, "attentional vector\n" r"$\tanh([c_t; s_t] W)$", ha="center", va="center", fontsize=10)
    ax.text(12.75, 1.9, "decoder state:\nthe query", ha="left", va="center", fontsize=10.5)
    ax.text(0.5, 1.9, "encoder states:\nkeys and\nvalues", ha="right", va="center", fontsize=10.5)

    show(
        drawn,
        "One decoding step. The encoder turns ninety-one, two into the states h1 to h4. The decoder state s_t, the "
        "query, is compared with each as a key: scores 0.3, 3.1, −0.9, 0.6. One softmax over all four makes them the "
        "weights 0.05, 0.86, 0.02, 0.07, which sum to 1.00. Each state goes on as a value, past the softmax, is "
        "multiplied by its weight, and the products sum to the context vector c_t. It is joined to s_t and, through "
        "tanh of a linear map, gives the attentional vector, whose logits predict the next token: ein.",
    )


def two_decoders() -> None:
    """One step of Bahdanau's decoder beside one of Luong's: which state asks, and where the context vector goes."""
    drawn, (left, right) = figure(8.6, 4.3, columns=2)
    for ax, title in ((left, "Bahdanau et al. 2015: additive"), (right, "Luong et al. 2015: multiplicative")):
        stage(ax, (0.3, 11.2), (-0.4, 9.3))
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
    arrow(right, (8.2, 6.3), (9.1, 6.3), PURPLE, 1.6)
    right.text(9.2, 6.3, "into the\nnext cell\n(input\nfeeding)", ha="left", va="center", fontsize=10, color=PURPLE)
    equation = r"$e_{ti} = s_t \cdot h_i$   or   $s_t W_g \cdot h_i$"
    right.text(5.35, 9.05, equation, ha="center", va="center", fontsize=11)
    show(
        drawn,
        "Two decoders. Bahdanau: the old state s_{t−1} is the query of an additive attention over h_1 to h_n; its "
        "context vector c_t goes into the cell, together with s_{t−1} and the token before, and gives the new state "
        "s_t; both and the token before predict the next token. Luong: the cell makes s_t first; s_t is the query of a "
        "multiplicative attention; c_t and s_t together give the attentional vector, from which the next token is "
        "predicted, and which goes into the next step's cell (input feeding).",
    )


def tables_with_sums(
    tables: Mapping[str, Tensor],
    rows: Sequence[str],
    columns: Sequence[str],
    mask: Tensor | None = None,
    column_sums: bool = False,
) -> None:
    """Tables of weights side by side, queries down and keys across, each with the sums of its rows.

    A row that sums to one says so in bold, one that does not in the colour of an error. Columns where `mask`, (1,
    n_key), is False are hatched, in every table whose padding has no weight. With `column_sums` the sums of the columns
    stand below, in bold where they are one.
    """
    n, m = len(rows), len(columns)
    height = n + 0.7 if column_sums else n
    drawn, _ = figure(min(PAGE, 1.3 + len(tables) * (0.4 + 0.7 * (m + 1))), 1.9 + 0.42 * height, columns=len(tables))
    said = []
    for ax, (name, values) in zip(drawn.axes, tables.items(), strict=True):
        first = ax is drawn.axes[0]
        matrix = as_matrix(values, rows, columns)
        cells(ax, matrix, rows if first else [""] * n, columns, numbers=True)
        for j, allowed in enumerate([True] * m if mask is None else mask[0].tolist()):
            if not allowed and not matrix[:, j].any():
                ax.add_patch(Rectangle((j, 0), 1, n, fill=False, hatch="///", edgecolor=PALE, linewidth=0))
        ax.xaxis.tick_top()
        ax.xaxis.set_label_position("top")
        ax.set_xlabel("source (keys)", labelpad=6)
        ax.set_ylabel("target (queries)" if first else "", labelpad=6)
        ax.set_title(name, pad=8)
        by_row = matrix.sum(axis=1)
        for i, total in enumerate(by_row):
            one = abs(total - 1) < 0.005
            ax.text(m + 0.5, i + 0.5, f"{total:.2f}", ha="center", va="center", fontsize=10,
                    color=INK if one else ORANGE, fontweight="bold" if one else "normal")  # fmt: skip
        ax.text(m + 0.5, -0.15, "sum", ha="center", va="bottom", fontsize=10, color=GREY)
        by_column = matrix.sum(axis=0)
        if column_sums:
            for j, total in enumerate(by_column):
                one = abs(total - 1) < 0.005
                ax.text(j + 0.5, n + 0.4, f"{total:.2f}", ha="center", va="center", fontsize=10,
                        color=INK if one else GREY, fontweight="bold" if one else "normal")  # fmt: skip
            if first:
                ax.text(-0.07, n + 0.4, "sum", ha="right", va="center", fontsize=10, color=GREY)
        ax.set_xlim(0, m + 1)
        ax.set_ylim(height, 0)
        each = "; ".join(
            f"{row} {', '.join(f'{value:.2f}' for value in line)}" for row, line in zip(rows, matrix, strict=True)
        )
        flat = name.replace("\n", " ")
        sums = f"the rows sum to {', '.join(f'{total:.2f}' for total in by_row)}"
        if column_sums:
            sums += f", the columns to {', '.join(f'{total:.2f}' for total in by_column)}"
        said.append(f"{flat}: {each}; {sums}.")
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

    A line is as wide as its weight; weights below 0.05 have none, and those from 0.5 to 0.95 have their number.
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
            if 0.5 < weight < 0.95:
                ax.text(below[t] + 0.2 * (above[i] - below[t]), 0.4, f"{weight:.2f}", ha="center", va="center",
                        fontsize=9, color=INK, bbox={"facecolor": "white", "edgecolor": "none", "pad": 1})  # fmt: skip
        return drawn, f"Attention step by step. {describe(self._weights, self._source, self._target)}"


def hidden_positions(
    found: Mapping[Sequence[int], Sequence[float]], positions: Sequence[str], models: Sequence[str], chance: float
) -> None:
    """What is still right when source positions are hidden, {the hidden positions: a share for each of the models}.

    On the left a row is named by what is hidden or by what alone is left, and what is hidden is hatched; on the right
    there is a mark for each model, named in the first row where they differ by more than half, and a line at `chance`.
    """
    drawn, _ = figure(8.8, 1.0 + 0.46 * len(found), columns=2)
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
    # Marks that would cover each other stand a little above and below their line. They are named where they part.
    named = int(np.argmax(matrix.max(axis=1) - matrix.min(axis=1) > 0.5))
    for j, name in enumerate(models):
        shift = 0.2 * (j - (len(models) - 1) / 2)
        style = line_style(j) | {"linestyle": "none", "markersize": 7}
        right.plot(matrix[:, j], rows + shift, label=name, clip_on=False, **style)
        x = matrix[named, j]
        right.text(x + (0.03 if x < 0.8 else -0.03), rows[named] + shift, name, va="center", fontsize=9.5,
                   ha="left" if x < 0.8 else "right", color=style["color"])  # fmt: skip
    right.set_xlim(0, 1)
    right.set_ylim(len(found), 0)
    right.set_yticks([])
    right.xaxis.tick_top()
    right.xaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    right.set_title("units predicted right", pad=24)
    show(drawn, f"Units predicted right. {'; '.join(said)}. Chance is {chance:.0%}.")


def largest_weights(counts: Mapping[str, Sequence[int]], positions: Sequence[str], token: str) -> None:
    """Where the largest weight of a target `token` lies, {model: a count for each source position}: a bar a model.

    The models stand in the order of their share on the true partner, the last position. A key above names them.
    """
    drawn, ax = figure(7.4, 0.9 + 0.3 * len(counts))
    counts = dict(sorted(counts.items(), key=_on_the_partner, reverse=True))
    shares = np.array([[*row] for row in counts.values()]) / np.array([[sum(row)] for row in counts.values()])
    used = [j for j in range(len(positions)) if shares[:, j].max() > 0]
    colours = dict(zip(reversed(used), POSITIONS, strict=False))
    before = np.zeros(len(counts))
    for j in reversed(used):  # the true partner first
        ax.barh(range(len(counts)), shares[:, j], left=before, height=0.76, color=colours[j], label=positions[j])
        before = before + shares[:, j]
    ax.set_yticks(range(len(counts)), [*counts])
    ax.set_ylim(len(counts) - 0.5, -0.5)
    ax.set_xlim(0, 1)
    ax.tick_params(axis="y", length=0)
    ax.xaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    ax.set_xlabel(f"share of the numbers, by where the {token} attends most")
    ax.legend(frameon=False, loc="lower left", bbox_to_anchor=(0, 1), ncols=len(used), borderaxespad=0.2)
    each = "; ".join(
        f"{name}: {', '.join(f'{positions[j]} {row[j]}' for j in reversed(used))}" for name, row in counts.items()
    )
    show(drawn, f"Where the largest weight of the {token} lies. {each}.")


def _on_the_partner(counted: tuple[str, Sequence[int]]) -> int:
    return counted[1][-1]


def handed_over() -> None:
    """Eight averages, made once: chosen from once for all steps, or anew by every state of the decoder."""
    drawn, panels = figure(7.6, 4.5, columns=2)
    steps_at, middles = (1.2, 3.0, 4.8), [0.55 + 0.7 * j for j in range(8)]
    titles = ("eight averages, one choice", "eight averages, a choice at every step")
    for ax, title, anew in zip(panels, titles, (False, True), strict=True):
        stage(ax, (-0.1, 6.1), (0.0, 9.5))
        ax.set_title(title)
        box(ax, 3.0, 0.6, "encoder states", BLUE, width=3.4)
        for j, x in enumerate(middles):
            arrow(ax, (3.0, 1.15), (x, 2.25), width=0.8)
            box(ax, x, 2.8, str(j + 1), ORANGE, width=0.45)
        for t, x in enumerate(steps_at, start=1):
            box(ax, x, 8.9, f"step {t}", GREEN, width=1.4)
        if anew:
            _choose(ax, middles, dict(zip(steps_at, (1, 6, 4), strict=True)), 0.1)
            for t, x in enumerate(steps_at, start=1):
                box(ax, x, 6.1, f"$c_{t}$", ORANGE, width=0.9)
                arrow(ax, (x - 0.25, 8.35), (x - 0.25, 6.65), GREEN, 1.6)
                arrow(ax, (x + 0.25, 6.65), (x + 0.25, 8.35), ORANGE, 1.6)
            ax.text(0.85, 7.5, "query", ha="right", va="center", fontsize=10, color=GREEN)
        else:
            _choose(ax, middles, {3.0: 2}, 0.25)
            box(ax, 3.0, 6.1, "one vector $c$", ORANGE, width=3.0)
            ax.text(4.65, 6.1, "the same\nat every step", ha="left", va="center", fontsize=10, color=ORANGE)
            box(ax, 0.5, 6.1, "$s_0$", GREEN, width=0.8)
            arrow(ax, (0.9, 6.1), (1.5, 6.1), GREEN, 1.6)
            ax.text(0.5, 6.9, "query", ha="center", va="center", fontsize=10, color=GREEN)
            for x in steps_at:
                arrow(ax, (3.0 + 0.6 * (x - 3.0), 6.65), (x, 8.35), ORANGE, 1.6)
    show(
        drawn,
        "Two models with eight averages of the encoder's states. One choice: the query s_0 makes one vector of the "
        "eight, and all the decoder's steps receive it. A choice at every step: each step's state is a query of its "
        "own to the eight, and the step receives its own average of them. A thick line is a large weight.",
    )


def _choose(ax: Axes, middles: Sequence[float], most: Mapping[float, int], spread: float) -> None:
    """Lines from the eight averages to each vector, {its x: which average has the largest weight}, those thick ones."""
    ends = [(j, middle, x, (x + spread * (middle - x), 5.55)) for x in most for j, middle in enumerate(middles)]
    for j, middle, x, end in ends:  # the small weights lie below, and have no heads, which would hide each other
        if j != most[x]:
            line = FancyArrowPatch((middle, 3.35), end, arrowstyle="-", linewidth=0.8, color="#dfa06c", shrinkA=0,
                                   shrinkB=0)  # fmt: skip
            ax.add_patch(line)
    for j, middle, x, end in ends:
        if j == most[x]:
            arrow(ax, (middle, 3.35), end, ORANGE, 3.2)


def lists_of_five(found: Mapping[str, Mapping[str, Sequence[Mapping[str, float]]]], same: int) -> None:
    """{model: {budget: {numbers: share right} for each seed}}: of lists of five a mark a seed.

    A budget has its own mark, of one hue from light to dark, and a key above names them. The first `same` models use
    the same vector at every step; a line parts them from those that choose anew.
    """
    drawn, ax = figure(8.6, 1.2 + 0.46 * len(found))
    budgets = sorted({budget for model in found.values() for budget in model}, key=_steps)
    marks = dict(zip(budgets, (("o", "white"), ("o", BLUE), ("D", DARK)), strict=False))
    said = []
    for y, (model, by_budget) in enumerate(found.items()):
        ax.axhline(y, color=PALE, linewidth=1, zorder=1)
        for budget, seeds in by_budget.items():
            shares, (marker, face) = [right["5"] for right in seeds], marks[budget]
            ax.plot(shares, [y] * len(shares), marker, color=BLUE if marker == "o" else DARK, markerfacecolor=face,
                    markersize=7, clip_on=False, zorder=3)  # fmt: skip
            said.append(f"{model}, {budget}: {', '.join(f'{share:.0%}' for share in shares)}")
    for x, (budget, (marker, face)) in zip((0.02, 0.28, 0.54), marks.items(), strict=False):
        colour = BLUE if marker == "o" else DARK
        ax.plot([x], [-0.75], marker, color=colour, markerfacecolor=face, markersize=7, clip_on=False)
        ax.text(x + 0.02, -0.75, budget, ha="left", va="center", fontsize=10, color=colour)
    ax.set_xlim(0, 1)
    ax.set_ylim(len(found) - 0.5, -1.1)
    ax.set_yticks(range(len(found)), [*found])
    ax.tick_params(axis="y", length=0, pad=8)
    ax.xaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    ax.set_xlabel("lists of five exactly right")
    ax.axhline(same - 0.5, color=INK, linewidth=1.2, zorder=2)
    for middle, words in (
        ((same - 1) / 2, "the same vector\nat every step"),
        ((same + len(found) - 1) / 2, "a new choice\nat every step"),
    ):
        ax.text(1.04, middle, words, ha="left", va="center", fontsize=10, color=INK)
    parted = f"The first {same} use the same vector at every step, the others choose anew"
    show(drawn, f"Lists of five exactly right, by seed. {parted}. {'; '.join(said)}.")


def _steps(budget: str) -> int:
    return int(budget.split()[0].replace(",", ""))


def with_and_without(rows: Sequence[Compared]) -> None:
    """BLEU of the first attention model: RNNencdec and RNNsearch of one training joined, what has no partner alone.

    A model's name is its family, a hyphen, and its longest training sentence; one without a hyphen is another system.
    """
    pairs: dict[str, dict[str, float]] = {}
    for row in rows:
        family, _, trained = row.model.partition("-")
        pairs.setdefault(trained, {})[family] = row.bleu
    others = pairs.pop("", {})
    colours = {"RNNencdec": BLUE, "RNNsearch": GREEN} | dict.fromkeys(others, GREY)
    named = {f"trained on ≤ {longest} words".replace("* words", " words*"): both for longest, both in pairs.items()}
    lines = [*named.items()]
    lines += [*((name, {name: bleu}) for name, bleu in others.items())]
    drawn, ax = figure(7.0, 1.2 + 0.42 * len(lines))
    for y, (_, scores) in enumerate(lines):
        ax.axhline(y, color=PALE, linewidth=1, zorder=1)
        ax.plot([*scores.values()], [y] * len(scores), color=GREY, linewidth=2, zorder=2)
        for family, bleu in scores.items():
            ax.plot(bleu, y, "o", color=colours[family], markersize=8, zorder=3)
            ax.text(bleu, y - 0.22, f"{bleu:.2f}", ha="center", va="bottom", fontsize=9, color=INK)
        if len(scores) == 2:
            low, high = scores.values()
            ax.text((low + high) / 2, y - 0.08, f"{high - low:+.2f}", ha="center", va="bottom", fontsize=9, color=GREY)
    kinds = {"RNNencdec": "\n(one vector)", "RNNsearch": "\n(attention)"}
    for family, bleu in lines[0][1].items():
        words = family + kinds.get(family, "")
        ax.text(bleu, -0.62, words, ha="center", va="bottom", fontsize=10, color=colours[family])
    ax.set_xlim(0, 38)
    ax.set_ylim(len(lines) - 0.5, -1.45)
    ax.set_yticks(range(len(lines)), [name for name, _ in lines])
    ax.tick_params(axis="y", length=0)
    ax.set_xlabel("BLEU on newstest2014, all sentences")
    said = "; ".join(
        f"{name}: {', '.join(f'{family} {bleu:.2f}' for family, bleu in scores.items())}" for name, scores in lines
    )
    show(drawn, f"BLEU on newstest2014, all sentences. {said}.")


def right_by_length(panels: Mapping[str, Mapping[str, Sequence[Mapping[str, float]]]]) -> None:
    """Lists exactly right against how many numbers they hold, {panel: {model: a {numbers: share} for each seed}}.

    A line joins the means over the seeds, a band reaches from the lowest to the highest. The lines are named in the
    first panel, beside their middle points, and at their ends in the last.
    """
    drawn, _ = figure(min(PAGE, 3.6 * len(panels) + 1.4), 3.5, columns=len(panels))
    axes: list[Axes] = drawn.axes
    said = []
    for ax, (title, lines) in zip(axes, panels.items(), strict=True):
        ends = {}
        for i, (name, seeds) in enumerate(lines.items()):
            xs = [int(n) for n in seeds[0]]
            ys = np.array([[one[n] for n in seeds[0]] for one in seeds])                  # (seeds, lengths)
            style = line_style(i)
            ax.fill_between(xs, ys.min(axis=0), ys.max(axis=0), color=style["color"], alpha=0.18, linewidth=0)
            ax.plot(xs, ys.mean(axis=0), label=name, clip_on=False, **style)
            ends[name] = float(ys.mean(axis=0)[-1])
            spans = ", ".join(
                f"{mean:.0%} ({low:.0%} to {high:.0%}) at {x}"
                for x, mean, low, high in zip(xs, ys.mean(axis=0), ys.min(axis=0), ys.max(axis=0), strict=True)
            )
            said.append(f"{title}, {name}: {spans}")
        ax.set_xticks(xs)
        ax.set_ylim(0, 1)
        ax.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
        name_lines(ax, "numbers in the list", "lists exactly right" if ax is axes[0] else "", title)
        if (legend := ax.get_legend()) is not None:
            legend.remove()
        if ax is axes[0]:
            _name_inside(ax)
        if ax is axes[-1]:
            _name_ends(ax, xs[-1], ends, 0.09)
    show(drawn, f"Lists exactly right, mean and range of the seeds. {'; '.join(said)}.")


def _name_inside(ax: Axes) -> None:
    """The names of falling lines at their middle points: under the highest, right of the next, left of the lowest."""
    curves = [(np.asarray(line.get_xydata()), line) for line in ax.lines]
    middles = [(*points[len(points) // 2], line) for points, line in curves]
    middles.sort(key=itemgetter(1), reverse=True)
    for (x, y, line), (offset, side) in zip(middles, (((0, -12), "center"), ((9, 5), "left"), ((-9, -9), "right")),
                                            strict=False):  # fmt: skip
        ax.annotate(line.get_label(), (x, y), xytext=offset, textcoords="offset points", ha=side, va="center",
                    fontsize=10, color=line.get_color())  # fmt: skip


def _name_ends(ax: Axes, x: float, ends: Mapping[str, float], apart: float) -> None:
    """The names of lines at the right of their last point, in their colours; names that would meet stand apart."""
    colours = {name: line_style(i)["color"] for i, name in enumerate(ends)}
    above = None
    for name, y in sorted(ends.items(), key=_height, reverse=True):
        if above is not None:
            y = min(y, above - apart)
        ax.annotate(name, (x, y), xytext=(9, 0), textcoords="offset points", va="center", fontsize=10,
                    color=colours[name], annotation_clip=False)  # fmt: skip
        above = y


def _height(named: tuple[str, float]) -> float:
    return named[1]
