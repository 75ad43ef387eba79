"""A decoder's step, two decoders side by side, a table's sums, alignments, BLEU, and accuracy by length."""

from collections.abc import Mapping, Sequence
from itertools import pairwise

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import PercentFormatter
from torch import Tensor

from attncourse.viz.diagrams import arrow, box
from attncourse.viz.figures import as_matrix, cells, describe
from attncourse.viz.style import (
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
    name_lines,
    runs_and_means,
    show,
    stage,
)
from attncourse.viz.widgets import step_through
from attncourse_lessons.results import Compared


def decoding_step() -> None:
    """One step of a decoder with attention: keys to scores, softmax, weights times values, their sum, prediction."""
    source = ("ninety-", "one", ",", "two")
    scores = (0.3, 3.1, -0.9, 0.6)
    weights = (0.05, 0.86, 0.02, 0.07)
    drawn, ax = figure(8.6, 5.9)
    stage(ax, (-1.5, 16.6), (0, 11.6))

    columns = [1.3 + 2.1 * j for j in range(len(source))]
    middle = (columns[0] + columns[-1]) / 2
    for i, (x, word, e, a) in enumerate(zip(columns, source, scores, weights, strict=True), start=1):
        ax.text(x, 0.35, word, ha="center", va="center", fontsize=11, color=INK)
        arrow(ax, (x, 0.7), (x, 1.35))
        box(ax, x, 1.9, rf"$h_{i}$", BLUE)
        arrow(ax, (x + 0.2, 2.45), (x + 0.2, 3.45))
        box(ax, x, 4.0, f"{e:.1f}".replace("-", "−"), GREY, fill="white")
        arrow(ax, (x, 4.55), (x, 5.25))
        box(ax, x, 5.8, f"{a:.2f}", GREY, fill=WEIGHTS(a), text="white" if a > 0.5 else INK)
        arrow(ax, (x, 6.35), (x, 7.05))
        box(ax, x, 7.6, rf"$\alpha_{{t{i}}} h_{i}$", ORANGE, width=1.3)
        # The value goes past score and weight, and is multiplied by the weight.
        ax.plot([x + 0.57, x + 0.95, x + 0.95], [2.2, 2.2, 7.6], color=BLUE, linewidth=1.6)
        arrow(ax, (x + 0.95, 7.6), (x + 0.67, 7.6), BLUE, 1.6)
        arrow(ax, (x, 8.15), (middle, 9.3), width=0.8 + 5 * a, colour=ORANGE if a > 0.5 else "#e9b48a")
    for left, right in pairwise(columns):
        arrow(ax, (left + 0.57, 1.75), (right - 0.57, 1.75), both=True)
    box(ax, middle, 9.85, "$c_t$", ORANGE)

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
    arrow(ax, (12.0, 2.95), (12.0, 9.3), colour=GREEN, width=1.6)

    box(ax, 12.0, 9.85, "$[c_t;\\, s_t]$", PURPLE, width=1.8)
    arrow(ax, (middle + 0.6, 9.85), (11.05, 9.85), colour=ORANGE, width=1.6)
    arrow(ax, (12.95, 9.85), (13.75, 9.85))
    box(ax, 14.7, 9.85, "$\\tilde s_t$", PURPLE, width=1.8)
    arrow(ax, (14.7, 10.4), (14.7, 11.0))
    ax.text(14.7, 11.3, "next token: ein", ha="center", va="center", fontsize=11)

    for y, name, equation in (
        (4.0, "attention scores", r"$e_{ti} = s_t \cdot h_i$"),
        (5.8, "attention weights", r"$\alpha_{ti} = \mathrm{softmax}_i(e_{ti})$"),
        (7.6, "weights × values", r"$c_t = \sum_i \alpha_{ti} h_i$"),
    ):
        ax.text(9.0, y + 0.27, name, ha="left", va="center", fontsize=10, color=INK)
        ax.text(9.0, y - 0.27, equation, ha="left", va="center", fontsize=10, color=INK)
    ax.text(middle, 10.75, "context vector", ha="center", va="center", fontsize=10.5, color=ORANGE)
    ax.text(12.0, 10.75, "concatenate", ha="center", va="center", fontsize=10.5)
    ax.text(14.7, 8.95, "attentional vector\n" r"$\tanh(W[c_t; s_t])$", ha="center", va="center", fontsize=10)
    ax.text(12.75, 1.9, "decoder state:\nthe query", ha="left", va="center", fontsize=10.5)
    ax.text(0.5, 1.9, "encoder states:\nkeys and\nvalues", ha="right", va="center", fontsize=10.5)

    show(
        drawn,
        "One decoding step. The encoder turns ninety-one, two into the states h1 to h4. The decoder state s_t, the "
        "query, is compared with each as a key: scores 0.3, 3.1, −0.9, 0.6. Softmax makes them the weights 0.05, 0.86, "
        "0.02, 0.07. Each state goes on as a value, is multiplied by its weight, and the products sum to the context "
        "vector c_t. It is joined to s_t and, through tanh of a linear map, gives the attentional vector, from which "
        "the next token is predicted: ein.",
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
    equation = r"$e_{ti} = v_a \cdot \tanh(W_a s_{t-1} + U_a h_i)$"
    left.text(5.35, 9.05, equation, ha="center", va="center", fontsize=11)
    arrow(right, (7.2, 1.75), (5.4, 3.45), GREEN, 1.6)
    right.text(5.75, 2.6, "the new state\nis the query", ha="right", va="center", fontsize=10, color=GREEN)
    box(right, 7.6, 6.3, r"$\tilde s_t$", PURPLE)
    arrow(right, (5.2, 6.3), (7.0, 6.3), ORANGE, 1.6)
    right.text(5.9, 7.35, "into the output", ha="center", va="center", fontsize=10, color=ORANGE)
    arrow(right, (7.8, 1.75), (7.8, 5.75), GREEN)
    arrow(right, (7.6, 6.85), (7.6, 7.75))
    equation = r"$e_{ti} = s_t \cdot h_i$   or   $s_t \cdot W_a h_i$"
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
    found: Mapping[Sequence[int], Sequence[float]], positions: Sequence[str], models: Sequence[str]
) -> None:
    """What is still right when source positions are hidden, {the hidden positions: a share for each of the models}.

    On the left a row has what is hidden, hatched, on the right the shares.
    """
    drawn, _ = figure(8.6, 1.0 + 0.42 * len(found), columns=2)
    left, right = drawn.axes
    cells(left, np.zeros((len(found), len(positions))), [""] * len(found), positions, numbers=False)
    matrix = np.array([[*shares] for shares in found.values()])
    cells(right, matrix, [""] * len(found), models, numbers=False)
    said = []
    for i, (hidden, shares) in enumerate(found.items()):
        for j, name in enumerate(positions):
            if j in hidden:
                left.add_patch(Rectangle((j, i), 1, 1, fill=False, hatch="////", edgecolor=GREY, linewidth=0))
            else:
                left.text(j + 0.5, i + 0.5, name, ha="center", va="center", fontsize=9.5, color=INK)
        for j, share in enumerate(shares):
            right.text(j + 0.5, i + 0.5, f"{share:.0%}", ha="center", va="center", fontsize=9.5,
                       color="white" if share > 0.7 else INK)  # fmt: skip
        each = ", ".join(f"{name} {share:.0%}" for name, share in zip(models, shares, strict=True))
        said.append(f"without {' and '.join(positions[j] for j in hidden)}: {each}")
    left.spines[:].set(visible=True, color=PALE)
    left.set_xticks([])
    left.set_title("what the decoder may attend to", pad=24)
    right.xaxis.tick_top()
    right.set_title("units written right", pad=24)
    show(drawn, f"Units written right. {'; '.join(said)}.")


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
    """{model: {source length: one gradient a seed}}: every run a mark, a line through their means."""
    drawn, ax = figure(6.6, 3.4)
    found = runs_and_means(ax, gradients)
    said = [f"{name} goes from {means[0]:.2g} to {means[-1]:.2g}" for name, means in found.items()]
    lengths = np.array([*next(iter(gradients.values()))])
    as_one_over_n = 4 * max(means[0] for means in found.values()) * lengths[0] / lengths   # above the lines, to compare
    ax.plot(lengths, as_one_over_n, ":", color=INK, linewidth=1.8, zorder=1)
    ax.text(lengths[-1], 2 * as_one_over_n[-1], "∝ 1/n", ha="center", va="bottom", fontsize=9.5, color=INK)
    ax.set_yscale("log")
    name_lines(ax, "source length n", "gradient at the middle token")
    show(drawn, f"Gradient at the middle token against the source length, marks for seeds. {'; '.join(said)}. "
                "Dotted, a fall by 1/n.")  # fmt: skip


def right_by_length(panels: Mapping[str, Mapping[str, Sequence[Mapping[str, float]]]]) -> None:
    """Lists exactly right against how many numbers they hold, {panel: {model: a {numbers: share} for each seed}}.

    A line joins the means over the seeds, a band reaches from the lowest to the highest.
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
            spans = ", ".join(
                f"{mean:.0%} ({low:.0%} to {high:.0%}) at {x}"
                for x, mean, low, high in zip(xs, ys.mean(axis=0), ys.min(axis=0), ys.max(axis=0), strict=True)
            )
            said.append(f"{title}, {name}: {spans}")
        ax.set_xticks(xs)
        ax.set_ylim(0, 1)
        ax.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
        name_lines(ax, "numbers in the list", "lists exactly right" if ax is axes[0] else "", title)
        legend = ax.get_legend()
        if legend is not None and ax is not axes[-1]:
            legend.remove()
    show(drawn, f"Lists exactly right, mean and range of the seeds. {'; '.join(said)}.")
