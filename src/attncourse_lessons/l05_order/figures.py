"""Pictures of where a token is: digits, waves, distances, turns, and what becomes of them past the trained length."""

import math
from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Arc, Circle, Rectangle
from matplotlib.ticker import PercentFormatter
from torch import Tensor

from attncourse._checks import check_shape
from attncourse.viz.figures import as_matrix, cells, check_shares
from attncourse.viz.style import BLUE, GREEN, GREY, INK, ORANGE, PALE, WEIGHTS, figure, show, stage

N_DIGITS = 4


def binary_and_waves(position: int) -> tuple[Figure, str]:
    """Counting to 15 in binary digits and, beside it, in pairs of waves; and how far all are from the chosen position.

    Returns the figure and its alt text, for `explore`.
    """
    positions = np.arange(2**N_DIGITS)
    digits = positions[:, None] >> np.arange(N_DIGITS) & 1  # (16, 4)
    angles = np.pi * positions[:, None] / 2 ** np.arange(1, N_DIGITS + 1)  # (16, 4)  periods 4, 8, 16, 32
    waves = np.stack([np.sin(angles), np.cos(angles)], axis=-1).reshape(len(positions), -1)  # (16, 8)
    drawn, (left, middle, right) = figure(6.5, 3.4, columns=3)
    periods = [2 ** (i + 1) for i in range(N_DIGITS)]
    for ax, table, ticks, names, name in (
        (left, digits, np.arange(N_DIGITS) + 0.5, periods, "binary digits"),
        (middle, waves, 2 * np.arange(N_DIGITS) + 1.0, [2 * period for period in periods], "sines and cosines"),
    ):
        ax.pcolormesh(table, cmap=WEIGHTS, vmin=table.min(), vmax=1.25, edgecolors="white", linewidth=1)
        ax.invert_yaxis()
        row = Rectangle((0, position), table.shape[1], 1, fill=False, edgecolor=ORANGE, linewidth=2.5, clip_on=False)
        ax.add_patch(row)
        ax.set_xticks(ticks, names)
        ax.set_yticks(positions[::3] + 0.5, positions[::3] if ax is left else [])
        ax.set_xlabel("period")
        ax.set_title(name)
        ax.tick_params(length=0)
        ax.spines[:].set_visible(False)
    left.set_ylabel("position")
    for i, digit in enumerate(digits[position]):
        left.text(i + 0.5, position + 0.5, digit, ha="center", va="center", fontsize=9, color="white" if digit else INK)
    apart = {"digits": digits, "waves": waves}
    apart = {name: np.linalg.norm(table - table[position], axis=1) for name, table in apart.items()}
    right.plot(apart["digits"], positions, color=GREY, marker="o", markersize=4, linewidth=1)
    right.plot(apart["waves"], positions, color=BLUE, marker="s", markersize=4, linewidth=1.6)
    right.axhline(position, color=ORANGE, linewidth=1)
    right.set_ylim(15.5, -0.5)
    right.set_xlim(-0.1, 4.2)
    right.set_yticks([])
    right.set_xlabel("distance (● digits, ■ waves)", fontsize=9)
    right.set_title(f"how far from {position}")
    written = "".join(str(digit) for digit in digits[position][::-1])
    words = f"Position {position} is {written} in binary. "
    for neighbour in (position - 1, position + 1):
        if 0 <= neighbour < len(positions):
            words += f"Position {neighbour} is {apart['digits'][neighbour]:.1f} away in digits, "
            words += f"{apart['waves'][neighbour]:.1f} in waves. "
    return drawn, words + "In waves the curve of distances is the same for every position; in digits it is not."


def position_heatmap(table: Tensor, title: str = "", marked: Sequence[int] = (), alt: str = "") -> None:
    """Position vectors as a picture: a row for each position, a column for each number, darker for more."""
    n, d_model = table.shape
    values = table.detach().float().numpy()
    drawn, ax = figure(6.4, 3.4)
    mesh = ax.pcolormesh(values, cmap=WEIGHTS)
    ax.invert_yaxis()
    for position in marked:
        ax.axhline(position, color=ORANGE, linewidth=2)
    ax.set_xlabel("column")
    ax.set_ylabel("position")
    bar = drawn.colorbar(mesh, ax=ax)
    bar.outline.set_visible(False)
    if title:
        ax.set_title(title)
    sign_changes = (np.diff(np.sign(values), axis=0) != 0).sum(axis=0)
    show(
        drawn,
        alt
        or f"{title or 'Position vectors'}: {n} positions by {d_model} columns. Over the positions the first column "
        f"changes its sign {sign_changes[0]} times, the middle one {sign_changes[d_model // 2]} times, the last one "
        f"{sign_changes[-1]} times.",
    )


def distance_table(index: Tensor, words: Sequence[str], alt: str = "") -> None:
    """Which distance each pair of words looks up: the row of the table, and a shade that grows from left to right.

    `index` (n, n). Raises ValueError where it does not fit the words.
    """
    table = as_matrix(index, words, words, name="index").astype(int)
    drawn, ax = figure(1.5 + 0.8 * len(words), 0.9 + 0.45 * len(words))
    cells(ax, table, words, words, numbers=True, digits=0)
    ax.xaxis.tick_top()
    ax.set_xlabel("key", labelpad=6)
    ax.xaxis.set_label_position("top")
    ax.set_ylabel("query")
    said = "; ".join(f"{word}: {', '.join(map(str, line))}" for word, line in zip(words, table, strict=True))
    show(drawn, alt or f"Row of the table of distances for each query, key by key. {said}.")


def rotated_pair(offset: int, shift: int) -> tuple[Figure, str]:
    """Two tokens whose vectors are turned by their positions, and the score of the two: for `explore`.

    The key stands at position `shift`, the query `offset` places later; each position turns by 25 degrees. On the right
    the score at every shift, turned and, for comparison, with the same angles' sines and cosines added.
    """
    step = math.radians(25)
    query, key = np.array([0.95, 0.35]), np.array([0.6, -0.75])
    turned_query, turned_key = _turned(query, (shift + offset) * step), _turned(key, shift * step)
    drawn, (circle, lines) = figure(6.5, 3.2, columns=2)
    circle.set_aspect("equal")
    circle.set_xlim(-1.55, 1.55)
    circle.set_ylim(-1.25, 1.25)
    circle.set_axis_off()
    circle.add_patch(Circle((0, 0), 1, fill=False, edgecolor=PALE))
    for vector, first, colour, name in (
        (turned_query, query, ORANGE, f"know, {shift + offset}"),
        (turned_key, key, BLUE, f"we, {shift}"),
    ):
        _vector(circle, first, PALE, 1.2)
        _vector(circle, vector, colour, 2.4)
        x, y = vector / np.linalg.norm(vector) * (1.34, 1.16)
        circle.text(x, y, name, ha="center", va="center", fontsize=9.5, color=colour)
    low, high = sorted(math.degrees(math.atan2(v[1], v[0])) for v in (turned_query, turned_key))
    if high - low > 180:
        low, high = high, low + 360
    circle.add_patch(Arc((0, 0), 0.7, 0.7, theta1=low, theta2=high, color=INK, linewidth=1.4))
    circle.set_title(f"angle between them: {high - low:.0f}°")

    shifts = np.arange(6)
    turns = [_turned(query, (s + offset) * step) @ _turned(key, s * step) for s in shifts]
    added = [(query + _point((s + offset) * step)) @ (key + _point(s * step)) for s in shifts]
    lines.plot(shifts, added, color=GREY, marker="s", linestyle="--", label="added", markersize=5)
    lines.plot(shifts, turns, color=GREEN, marker="o", label="turned", markersize=6)
    lines.axvline(shift, color=INK, linewidth=0.8)
    lines.plot([shift], [turns[shift]], marker="o", markersize=11, markerfacecolor="none", color=INK)
    lines.set_xlabel("shift of both")
    lines.set_ylabel("score")
    lines.set_ylim(-2.2, 4.6)
    lines.legend(frameon=False, fontsize=9, loc="lower center", bbox_to_anchor=(0.5, 1), ncols=2)
    return drawn, (
        f"The key, we, at position {shift} and the query, know, at position {shift + offset}, each turned by 25 "
        f"degrees a position. The angle between them is {high - low:.0f} degrees, their score {turns[shift]:.2f}, the "
        f"same at every shift. With positions added instead of turned, the score over the shifts runs from "
        f"{min(added):.2f} to {max(added):.2f}."
    )


def accuracy_past_training(
    lines: Mapping[str, Sequence[float]], trained: int, chance: float, first: int = 0, smooth: int = 8
) -> None:
    """Accuracy at each position from `first` on, a panel for each scheme; the trained positions are shaded.

    A line that is shorter than the others ends where its model refused to go on. Smoothed over `smooth` positions.
    """
    columns = 4
    rows = -(-len(lines) // columns)
    drawn, _ = figure(7.6, 0.5 + 1.75 * rows, rows=rows, columns=columns)
    longest = first + max(map(len, lines.values()))
    said = []
    for ax, (name, line) in zip(drawn.axes, lines.items(), strict=False):
        values = np.asarray(line, dtype=float)
        starts = np.arange(0, len(values), smooth)
        lengths = np.diff([*starts, len(values)])                         # the last may be shorter
        means = np.add.reduceat(values, starts) / lengths
        ax.axvspan(0, trained, color=PALE, alpha=0.6, linewidth=0)
        ax.axhline(chance, color=GREY, linewidth=0.8, linestyle=":")
        ax.plot(
            first + starts + lengths / 2 - 0.5,
            means,
            color=BLUE,
            marker="o",
            markersize=3.2,
            linewidth=1.6,
            clip_on=False,
        )
        inside, outside = values[: trained - first].mean(), values[trained - first :]
        if first + len(values) < longest:
            ax.text(trained + 4, 0.5, "refuses", fontsize=10, color=INK, va="center")
        ax.set_title(name)
        ax.set_ylim(0, 1.03)
        ax.set_xlim(0, longest)
        ax.set_xticks([0, trained, longest])
        ax.set_yticks([0, 0.5, 1])
        ax.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
        ax.tick_params(labelsize=9)
        beyond = f"{outside.mean():.0%} beyond" if len(outside) else "refuses beyond"
        said.append(f"{name}: {inside:.0%} up to position {trained}, {beyond}")
    for ax in drawn.axes[len(lines) :]:
        ax.set_axis_off()
        ax.text(0, 0.62, "shaded: the trained lengths\ndotted: guessing", fontsize=9.5, color=INK, va="center")
        ax.text(0, 0.18, "x: position\ny: exactly right", fontsize=9.5, color=INK, va="center")
    show(drawn, f"Share of answers right at each position, of {longest}. {'; '.join(said)}. Guessing: {chance:.0%}.")


def attention_past_training(weights: Mapping[str, Tensor], trained: int) -> None:
    """Who looks at whom in a sequence longer than those of the training, a panel for each scheme; lines at the end.

    Each is (n, n). Raises ValueError for a table that is not square, and for what are no weights.
    """
    drawn, _ = figure(2.5 * len(weights), 2.9, columns=len(weights))
    said = []
    for ax, (name, matrix) in zip(np.atleast_1d(drawn.axes), weights.items(), strict=True):
        check_shape(f"weights, {name}", matrix, "n n", n=len(matrix))
        values = matrix.detach().numpy()
        check_shares(f"weights, {name}", values)
        ax.imshow(values, cmap=WEIGHTS, vmin=0, vmax=1, interpolation="nearest")
        ax.axhline(trained - 0.5, color=ORANGE, linewidth=1.4)
        ax.axvline(trained - 0.5, color=ORANGE, linewidth=1.4)
        ax.set_title(name)
        ax.set_xlabel("key")
        ax.set_xticks([0, trained])
        ax.set_yticks([0, trained])
        ax.tick_params(labelsize=9)
        top = values.max(axis=1)
        said.append(
            f"{name}: largest weight of a query {top[:trained].mean():.2f} inside, {top[trained:].mean():.2f} beyond"
        )
    drawn.axes[0].set_ylabel("query")
    show(
        drawn,
        f"Attention weights inside the trained length of {trained} positions and beyond. {'; '.join(said)}.",
    )


def property_table(results: Mapping[str, Mapping[str, tuple[bool, str]]], title: str = "") -> None:
    """Schemes down, properties along: in each cell whether the test was passed, and what it measured."""
    properties = list(next(iter(results.values())))
    drawn, ax = figure(1.1 + 1.15 * len(properties), 0.95 + 0.42 * len(results))
    stage(ax, (-0.95, len(properties)), (len(results), -1.05))
    for column, name in enumerate(properties):
        ax.text(column + 0.5, -0.5, name, ha="center", va="center", fontsize=10, color=INK)
    said = []
    for row, (scheme, found) in enumerate(results.items()):
        ax.text(-0.08, row + 0.5, scheme, ha="right", va="center", fontsize=10.5, color=INK)
        for column, name in enumerate(properties):
            passed, measured = found[name]
            fill = (0, 0.45, 0.7, 0.22) if passed else "white"
            ax.add_patch(Rectangle((column, row), 1, 1, facecolor=fill, edgecolor=PALE))
            words = f"{'✓' if passed else '✗'} {measured}"
            ax.text(column + 0.5, row + 0.5, words, ha="center", va="center", fontsize=10, color=INK)
        listed = ", ".join(
            f"{name.replace(chr(10), ' ')} {'yes' if found[name][0] else 'no'}"
            + (f" ({found[name][1]})" if found[name][1] else "")
            for name in properties
        )
        said.append(f"{scheme}: {listed}")
    if title:
        ax.set_title(title)
    show(drawn, f"Which scheme has which property, tested. {'; '.join(said)}.")


def _turned(vector: np.ndarray, angle: float) -> np.ndarray:
    a, b = vector
    return np.array([a * math.cos(angle) - b * math.sin(angle), a * math.sin(angle) + b * math.cos(angle)])


def _point(angle: float) -> np.ndarray:
    return np.array([math.sin(angle), math.cos(angle)])


def _vector(ax: Axes, end: np.ndarray, colour: str, width: float) -> None:
    ax.annotate(
        "",
        (end[0], end[1]),
        (0, 0),
        arrowprops={"arrowstyle": "-|>", "color": colour, "lw": width, "shrinkA": 0, "shrinkB": 0},
    )
