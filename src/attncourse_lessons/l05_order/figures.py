"""Pictures of positions: digits, waves, distances, rotations, and what becomes of them past the trained length."""

import math
from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.patches import Arc, Circle, Rectangle
from matplotlib.ticker import NullLocator, PercentFormatter
from torch import Tensor

from attncourse._checks import check_shape
from attncourse.viz.diagrams import arrow, box, rgb
from attncourse.viz.figures import as_matrix, cells, check_shares
from attncourse.viz.style import (
    BLUE,
    GREEN,
    GREY,
    INK,
    ORANGE,
    PALE,
    PURPLE,
    SERIES,
    WEIGHTS,
    figure,
    line_style,
    name_lines,
    show,
    stage,
)

N_DIGITS = 4
# Orange below zero, white at zero, blue above.
SIGNED = LinearSegmentedColormap.from_list("signed", ["#a63d00", "#f2b48c", "#ffffff", "#7fb4d9", "#0b4a80"])


def weights_allowed(weights: Tensor, allowed: Tensor, rows: Sequence[str], columns: Sequence[str]) -> None:
    """Attention weights (rows, columns) with their numbers; where a query may not attend, the cell is hatched."""
    matrix = as_matrix(weights, rows, columns)
    check_shape("allowed", allowed, "rows columns", rows=len(rows), columns=len(columns))
    drawn, ax = figure(1.4 + 0.85 * len(columns), 0.9 + 0.5 * len(rows))
    cells(ax, matrix, rows, columns, numbers=True, allowed=allowed)
    said = []
    for row, line, may in zip(rows, matrix, allowed.tolist(), strict=True):
        shares = [f"{column} {value:.2f}" for column, value, one in zip(columns, line, may, strict=True) if one]
        said.append(f"{row}: {', '.join(shares)}")
    ax.xaxis.tick_top()
    ax.xaxis.set_label_position("top")
    ax.set_xlabel("key", labelpad=14)                                                 # no word of the sentence
    ax.set_ylabel("query")
    show(drawn, f"Attention weights; what is not named is forbidden. {'; '.join(said)}.")


def ways_in() -> None:
    """Where a position can enter attention: the input, query and key, the score, and beside them the values."""
    drawn, ax = figure(8.6, 4.0)
    stage(ax, (-1.9, 14.9), (-3.6, 4.0))
    for x, y, label, width in (
        (0, 0, "input x", 1.9),
        (4.1, 0, "query, key", 2.4),
        (7.8, 0, "score", 1.6),
        (11.0, 0, "weight", 1.8),
        (13.9, 0, "output", 1.8),
        (7.8, 1.9, "value", 1.6),
    ):
        box(ax, x, y, label, GREY, width=width)
    for start, end, name in ((0.97, 2.88, "$W_Q, W_K$"), (5.32, 6.98, "$q \\cdot k$"), (8.62, 10.08, "softmax"),
                             (11.92, 12.98, "sum")):  # fmt: skip
        arrow(ax, (start, 0), (end, 0))
        ax.text((start + end) / 2, 0.22, name, ha="center", va="bottom", fontsize=10.5, color=INK)
    arrow(ax, (0.6, 0.55), (6.98, 1.9))
    ax.text(3.2, 1.5, "$W_V$", ha="center", va="bottom", fontsize=10.5, color=INK)
    arrow(ax, (8.62, 1.9), (13.5, 0.55))
    said = []
    for x, colour, name, how, formula in (
        (0.0, BLUE, "absolute:\nsinusoidal, learned", "add a vector", "$x_p + \\mathrm{PE}(p)$"),
        (4.1, GREEN, "rotary:\nRoPE", "rotate by the position", "$q_m R_m,\\ \\ k_n R_n$"),
        (7.8, PURPLE, "relative:\nT5, ALiBi, Shaw", "add a term", "$b_{j-i}$  or  $q_i \\cdot a^K_{j-i}$"),
    ):
        arrow(ax, (x, -1.2), (x, -0.53), colour=colour, width=2.2)
        ax.text(x, -1.85, name, ha="center", va="center", fontsize=10.5, color=colour, weight="bold")
        ax.text(x, -2.65, how, ha="center", va="center", fontsize=10.5, color=INK)
        ax.text(x, -3.25, formula, ha="center", va="center", fontsize=11.5, color=INK)
        said.append(f"{name} ({how})".replace("\n", " "))
    arrow(ax, (7.8, 3.05), (7.8, 2.43), colour=PURPLE, width=2.2)
    beside = "Shaw, here as well: $v_j + a^V_{j-i}$"
    ax.text(7.8, 3.4, beside, ha="center", va="center", fontsize=11, color=PURPLE, weight="bold")
    show(
        drawn,
        "From the input over query and key, by W_Q and W_K, to the score, their dot product, by the softmax to the "
        "weight, and to the output; beside it, by W_V, from the input over the value to the output. A position enters "
        f"at the input, at query and key, or at the score: {'; '.join(said)}. Shaw's also enters at the value.",
    )


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
    for ax, table, ticks, names, name, order in (
        (left, digits, np.arange(N_DIGITS) + 0.5, periods, "binary digits", "period (lowest digit first)"),
        (middle, waves, 2 * np.arange(N_DIGITS) + 1.0, [2 * period for period in periods], "sines and cosines",
         "period"),
    ):  # fmt: skip
        ax.pcolormesh(table, cmap=SIGNED, vmin=-1.2, vmax=1.2, edgecolors="white", linewidth=1)
        ax.invert_yaxis()
        row = Rectangle((0, position), table.shape[1], 1, fill=False, edgecolor=INK, linewidth=2.5, clip_on=False)
        ax.add_patch(row)
        ax.set_xticks(ticks, names)
        ax.set_yticks(positions[::3] + 0.5, positions[::3] if ax is left else [])
        ax.set_xlabel(order, fontsize=10)
        ax.set_title(name, pad=24)
        ax.tick_params(length=0)
        ax.spines[:].set_visible(False)
    left.set_ylabel("position")
    for i in range(waves.shape[1]):
        middle.text(i + 0.5, -0.2, ("sin", "cos")[i % 2], ha="center", va="bottom", fontsize=8, color=INK)
    for i, digit in enumerate(digits[position]):
        left.text(i + 0.5, position + 0.5, digit, ha="center", va="center", fontsize=9, color="white" if digit else INK)
    apart = {"digits": digits, "waves": waves}
    apart = {name: np.linalg.norm(table - table[position], axis=1) for name, table in apart.items()}
    right.plot(apart["digits"], positions, color=GREY, marker="o", markersize=4, linewidth=1, label="digits")
    right.plot(apart["waves"], positions, color=GREEN, marker="s", markersize=4, linewidth=1.6, label="waves")
    right.axhline(position, color=INK, linewidth=1)
    right.set_ylim(15.5, -0.5)
    right.set_xlim(-0.1, 4)
    right.set_yticks([])
    right.set_xlabel("distance", fontsize=10)
    right.legend(frameon=False, fontsize=9, loc="lower center", bbox_to_anchor=(0.5, 1), ncols=2, borderaxespad=0,
                 handlelength=1.4, columnspacing=1.2)  # fmt: skip
    right.set_title(f"how far from {position}", pad=24)
    written = "".join(str(digit) for digit in digits[position][::-1])
    words = f"Position {position} is {written} in binary. "
    for neighbour in (position - 1, position + 1):
        if 0 <= neighbour < len(positions):
            words += f"Position {neighbour} is {apart['digits'][neighbour]:.1f} away in digits, "
            words += f"{apart['waves'][neighbour]:.1f} in waves. "
    return drawn, words + "In waves the curve of distances is the same for every position; in digits it is not."


def position_vectors(table: Tensor, columns: Sequence[int], title: str = "") -> None:
    """Position vectors as a picture, a row for each position, and some of the columns as curves beside it.

    `table` (n, d_model); orange is below zero, blue above. Columns that are curves are numbered below the picture.
    """
    n, d_model = table.shape
    values = table.detach().float().numpy()
    top = float(np.abs(values).max())
    drawn, (left, right) = figure(7.6, 3.5, columns=2)
    mesh = left.pcolormesh(values, cmap=SIGNED, vmin=-top, vmax=top)
    left.invert_yaxis()
    left.set_xlabel("column")
    left.set_ylabel("position")
    named = [column for column in columns if column - 1 not in columns]               # no room for neighbours
    named = [*named, d_model - 1] if d_model - 1 not in named else named
    left.set_xticks([column + 0.5 for column in named], [str(column) for column in named])
    key = drawn.colorbar(mesh, ax=left, ticks=[-top, 0, top], format="%.2g")
    key.outline.set_visible(False)
    key.set_label("value", fontsize=10)
    if title:
        left.set_title(title)
    for i, column in enumerate(columns):
        style = line_style(i) | {"marker": "", "linestyle": ("-", "--", "-.", ":")[i % 4]}
        right.plot(range(n), values[:, column], label=f"column {column}", **style)
    name_lines(right, "position", "value")
    right.legend(frameon=False, fontsize=9, loc="lower center", bbox_to_anchor=(0.5, 1), ncols=len(columns),
                 handlelength=1.6, columnspacing=1.0)  # fmt: skip
    changes = (values[1:] * values[:-1] < 0).sum(axis=0)
    said = ", ".join(f"column {column} {changes[column]} times" for column in columns)
    show(
        drawn,
        f"{title or 'Position vectors'}: {n} positions by {d_model} columns, and {len(columns)} of the columns as "
        f"curves. Over the positions the sign changes: {said}.",
    )


def offset_products(products: Tensor, rows: Sequence[int]) -> None:
    """Dot products of all pairs of positions, and some of the rows against the offset, one over the other.

    `products` (n, n). Where it depends on the offset alone, the diagonals are equal and the curves lie on one another.
    """
    check_shape("products", products, "n n", n=len(products))
    values = products.detach().float().numpy()
    n, top = len(values), float(values.max())
    drawn, (left, right) = figure(7.8, 3.3, columns=2)
    mesh = left.pcolormesh(values, cmap=WEIGHTS, vmin=min(0.0, float(values.min())), vmax=top)
    left.set_aspect("equal")
    left.invert_yaxis()
    left.set_xlabel("position")
    left.set_ylabel("position")
    left.set_xticks([0.5, n - 0.5], ["0", str(n - 1)])
    named = sorted({0, *rows, n - 1})
    left.set_yticks([row + 0.5 for row in named], [str(row) for row in named])
    left.set_title("dot product of two positions")
    drawn.colorbar(mesh, ax=left, ticks=[0, top], format="%.2g", shrink=0.85).outline.set_visible(False)
    said = []
    for i, row in enumerate(rows):
        colour = SERIES[i]
        left.add_patch(Rectangle((0, row), n, 1, fill=False, edgecolor=colour, linewidth=1.4, clip_on=False))
        style = {"color": colour, "linewidth": 3 if i == 0 else 1.6, "linestyle": "-" if i == 0 else "--"}
        right.plot(np.arange(n) - row, values[row], label=f"position {row}", **style)
        said.append(f"of position {row} from {values[row, 0]:.1f} at offset {-row} over {values[row, row]:.1f} at 0 to "
                    f"{values[row, -1]:.1f} at {n - 1 - row}")  # fmt: skip
    right.set_ylim(min(0.0, float(values.min())), 1.06 * top)
    name_lines(right, "offset k", "dot product")
    right.legend(frameon=False, fontsize=9.5, loc="lower center", bbox_to_anchor=(0.5, 1), ncols=len(rows))
    apart = max(float(np.ptp(np.diagonal(values, k))) for k in range(n))
    show(
        drawn,
        f"Dot products of {n} positions with each other: {'; '.join(said)}. On a diagonal they differ by at most "
        f"{apart:.2f}.",
    )


def distance_table(index: Tensor, words: Sequence[str], max_distance: int = 2) -> None:
    """The clipped distance of each key from each query.

    `index` (n, n), distance + max_distance. Raises ValueError where it does not fit the words.
    """
    rows = as_matrix(index, words, words, name="index").astype(int)
    distance = rows - max_distance
    drawn, ax = figure(1.5 + 0.8 * len(words), 0.9 + 0.45 * len(words))
    ax.pcolormesh(
        distance, cmap=SIGNED, vmin=-2.4 * max_distance, vmax=2.4 * max_distance, edgecolors="white", linewidth=1.5
    )
    ax.invert_yaxis()
    for i, line in enumerate(distance):
        for j, value in enumerate(line):
            said = f"{value:+d}".replace("-", "−") if value else "0"
            ax.text(j + 0.5, i + 0.5, said, ha="center", va="center", fontsize=12, color=INK)
    ax.set_xticks(np.arange(len(words)) + 0.5, words)
    ax.set_yticks(np.arange(len(words)) + 0.5, words)
    ax.tick_params(length=0)
    ax.spines[:].set_visible(False)
    ax.xaxis.tick_top()
    ax.set_xlabel("key j", labelpad=6)
    ax.xaxis.set_label_position("top")
    ax.set_ylabel("query i")
    said = "; ".join(f"{word}: {', '.join(map(str, line))}" for word, line in zip(words, distance, strict=True))
    show(drawn, f"The clipped distance of each key from each query, −{max_distance} to {max_distance}. {said}.")


def relative_biases(
    distances: Sequence[int], buckets: Sequence[int], learned: Sequence[float], marked: int, slopes: Mapping[str, float]
) -> None:
    """The number that a trained head of T5 adds at each distance, and what ALiBi adds: a line for each {name: slope}.

    `learned` and `buckets` are those of the `distances`. Each bucket has a band, every second one shaded. The number of
    the `marked` distance has a ring.
    """
    drawn, (left, right) = figure(7.8, 3.2, columns=2)
    found = list(dict.fromkeys(buckets))
    blocks = [[distance for distance, bucket in zip(distances, buckets, strict=True) if bucket == one] for one in found]
    for block in blocks[1::2]:
        left.axvspan(block[0] - 0.5, block[-1] + 0.5, color=PALE, alpha=0.7, linewidth=0)
    left.step(distances, learned, where="mid", color=BLUE, linewidth=1.8)
    top = learned[distances.index(marked)]
    left.plot([marked], [top], marker="o", markersize=10, markerfacecolor="none", color=ORANGE, linestyle="none")
    left.annotate(f"{marked}".replace("-", "−"), (marked, top), (9, 0), textcoords="offset points", va="center",
                  fontsize=10, color=ORANGE)  # fmt: skip
    left.set_title("T5: a learned number for each bucket")
    name_lines(left, "distance j − i", "added to the score")
    left.set_xlim(distances[0] - 0.5, distances[-1] + 0.5)
    lowest = {}
    for i, (name, slope) in enumerate(slopes.items()):
        style = line_style(i) | {"marker": "", "linestyle": ("-", "--", "-.", ":")[i % 4]}
        line = [-slope * abs(distance) for distance in distances]
        right.plot(distances, line, **style)
        end = (distances[-1] + 2, line[-1])
        right.text(*end, f"slope {name}", ha="left", va="center", fontsize=10, color=style["color"])
        lowest[name] = min(line)
    right.set_title("ALiBi: a fixed number")
    name_lines(right, "distance j − i", "")
    shared = sum(buckets.count(bucket) > 1 for bucket in buckets)
    said = "; ".join(f"slope {name} from 0 down to {low:.3g}" for name, low in lowest.items())
    show(
        drawn,
        f"T5: {len(set(buckets))} buckets for {len(buckets)} distances, so {shared} of them share one; the number "
        f"learned for {marked} is {top:.2f}, those of the others run from {min(learned):.2f} to "
        f"{max(x for x, d in zip(learned, distances, strict=True) if d != marked):.2f}. ALiBi: a cost in proportion to "
        f"the distance; {said}.",
    )


def rotated_pair(offset: int, shift: int) -> tuple[Figure, str]:
    """Two tokens whose vectors are turned by their positions, and the score of the two: for `explore`.

    The key stands at position `shift`, the query `offset` places later; each position turns by 25 degrees. On the right
    the score at every shift, turned and, for comparison, with the same angles' sines and cosines added.
    """
    step = math.radians(25)
    start = np.array([1.0, 0.0])
    query, key = _turned(start, math.radians(20)), 0.96 * _turned(start, math.radians(-52))
    turned_query, turned_key = _turned(query, (shift + offset) * step), _turned(key, shift * step)
    drawn, (circle, lines) = figure(6.5, 3.2, columns=2)
    circle.set_aspect("equal")
    circle.set_xlim(-1.55, 1.55)
    circle.set_ylim(-1.25, 1.25)
    circle.set_axis_off()
    circle.add_patch(Circle((0, 0), 1, fill=False, edgecolor=PALE))
    for vector, first, colour, name in (
        (turned_query, query, GREEN, f"know, {shift + offset}"),
        (turned_key, key, BLUE, f"we, {shift}"),
    ):
        _vector(circle, first, colour, 1.2, faint=True)
        _vector(circle, vector, colour, 2.4)
        x, y = vector / np.linalg.norm(vector) * (1.34, 1.16)
        circle.text(x, y, name, ha="center", va="center", fontsize=9.5, color=colour)
    circle.text(*0.62 * key, "before", ha="center", va="top", fontsize=9, color=GREY, rotation=-52,
                rotation_mode="anchor")  # fmt: skip
    low, high = sorted(math.degrees(math.atan2(v[1], v[0])) for v in (turned_query, turned_key))
    if high - low > 180:
        low, high = high, low + 360
    circle.add_patch(Arc((0, 0), 0.7, 0.7, theta1=low, theta2=high, color=INK, linewidth=1.4))
    circle.set_title(f"angle between them: {high - low:.0f}°")

    shifts = np.arange(6)
    turns = [_turned(query, (s + offset) * step) @ _turned(key, s * step) for s in shifts]
    added = [(query + _point((s + offset) * step)) @ (key + _point(s * step)) for s in shifts]
    lines.plot(shifts, added, color=GREY, marker="s", linestyle="--", label="added", markersize=5)
    lines.plot(shifts, turns, color=PURPLE, marker="o", label="rotated", markersize=6)
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


def score_decay(scores: Mapping[str, Tensor], distances: Tensor, a_decade: int = 12) -> None:
    """Scores {name: (n,)} against `distances` (n,), ascending from 1, on a logarithmic axis.

    Of `a_decade` groups of neighbouring distances in each power of ten, a line goes through the means, and a band
    reaches from the lowest score to the highest. Every second band is hatched, so that two can be told apart.
    """
    drawn, ax = figure(6.6, 3.4)
    at = distances.double().numpy()
    edges = np.unique(np.ceil(10 ** (np.arange(np.log10(at[-1]) * a_decade + 2) / a_decade - 1e-9)))
    starts = np.searchsorted(at, edges[edges < at[-1]])
    size = np.diff([*starts, len(at)])
    middle = 10 ** (np.add.reduceat(np.log10(at), starts) / size)
    ax.axhline(0, color=GREY, linewidth=1)
    said = []
    for i, (name, line) in enumerate(scores.items()):
        values = line.double().numpy()
        means = np.add.reduceat(values, starts) / size
        low, high = np.minimum.reduceat(values, starts), np.maximum.reduceat(values, starts)
        if i % 2:
            ax.fill_between(
                middle, low, high, facecolor="none", edgecolor=SERIES[i], alpha=0.6, hatch="///", linewidth=0
            )
        else:
            ax.fill_between(middle, low, high, color=SERIES[i], alpha=0.25, linewidth=0)
        ax.plot(middle, means, color=SERIES[i], linewidth=2, linestyle=("-", "--")[i % 2])
        place = int(len(middle) * 0.55)
        across, up, away = (("right", "top", (-8, -8)), ("left", "bottom", (8, 12)))[i % 2]
        ax.annotate(name, (middle[place], means[place]), away, textcoords="offset points", ha=across, va=up,
                    fontsize=10.5, color=SERIES[i])  # fmt: skip
        said.append(f"{name}: from {means[0]:.2f} to a mean of {means[-1]:.2f}, lowest {values.min():.2f}")
    ax.set_xscale("log")
    name_lines(ax, "distance (tokens)", "score (1 at distance 0)")
    show(drawn, f"Scores against the distance, 1 to {at[-1]:,.0f}. {'; '.join(said)}.")


def yarn(theta: Tensor, stretch: float, trained: int, low: float = 1, high: float = 32) -> Tensor:
    """YaRN's angles per token (pairs,) for texts `stretch` times as long. Peng et al. 2024, section 3.2."""
    slow = ((high - trained * theta / (2 * math.pi)) / (high - low)).clamp(0, 1)      # (pairs,)
    return theta * (1 - slow + slow / stretch)


def context_extension(ratios: Mapping[str, Tensor], circled: int) -> None:
    """How far RoPE's pairs turn in a longer text, as a multiple of the training: a line {method: (pairs,)} each.

    The first `circled` pairs have come full circle in training. Pairs above 1 to the right of them meet new angles;
    that region is shaded. Each line has its name where it is furthest from the others.
    """
    drawn, ax = figure(6.8, 3.5)
    lines = {name: line.double().numpy() for name, line in ratios.items()}
    pairs = len(next(iter(lines.values())))
    top = max(line.max() for line in lines.values())
    ax.add_patch(Rectangle((circled - 0.5, 1), pairs - circled, 1.35 * top - 1, color=PALE, alpha=0.7, linewidth=0))
    ax.axvline(circled - 0.5, color=GREY, linewidth=1, linestyle=":")
    said = []
    for i, (name, line) in enumerate(lines.items()):
        style = {"color": SERIES[i], "linestyle": ("-", "-", "--", "-.")[i % 4], "linewidth": (5, 5, 2.2, 2.2)[i % 4]}
        ax.plot(range(pairs), line, alpha=0.45 if i < 2 else 1, **style)
        apart = np.min([np.abs(np.log(line / other)) for key, other in lines.items() if key != name], axis=0)
        place = int(apart[: max(1, circled * 7 // 10)].argmax())
        side, away = ("right", (-5, -13)) if i == 2 else ("left", (4, 7))
        ax.annotate(name, (place, line[place]), away, textcoords="offset points", ha=side, fontsize=10.5,
                    color=SERIES[i])  # fmt: skip
        middle = f"{line[circled]:.2f} in pair {circled}"
        said.append(f"{name}: {line[0]:.2f} in pair 0, {middle}, {line[-1]:.2f} in the last")
    ax.set_yscale("log", base=2)
    ax.set_xlim(-0.5, pairs - 0.5)
    ax.set_ylim(0.7 * min(line.min() for line in lines.values()), 1.35 * top)
    ticks = [2**power for power in range(math.floor(math.log2(top)) + 1)]
    ax.set_yticks(ticks, [f"× {tick}" for tick in ticks])
    ax.yaxis.set_minor_locator(NullLocator())
    ax.text(pairs - 1, 0.9 * top, "new angles", ha="right", va="top", fontsize=10, color=INK)
    ax.text(circled - 1, 0.74, "← full circle in training", ha="right", va="bottom", fontsize=10, color=GREY)
    name_lines(ax, "pair of columns", "largest angle (trained: × 1)")
    show(drawn, f"Largest angle of each pair as a multiple of the largest in training. {'; '.join(said)}.")


def rope_dials(angles: Tensor, positions: Sequence[int]) -> None:
    """What RoPE does in many dimensions: a dial for each pair and position; above, which columns are a pair.

    `angles` (positions, pairs) in radians. A vector that pointed to the right is drawn where its pair has turned it.
    Above the dials the columns of the vector, with the colours and numbers of their pairs, in both layouts.
    """
    n, pairs = angles.shape
    drawn, ax = figure(1.6 + 0.95 * max(n, 5), 1.9 + 0.95 * pairs)
    stage(ax, (-1.9, max(n, 5) - 0.4), (pairs - 0.35, -2.0))
    ax.set_aspect("equal")
    size = (max(n, 5) - 0.2) / (2 * pairs)
    for y, name, order in (
        (-1.75, "interleaved", [column // 2 for column in range(2 * pairs)]),
        (-1.2, "half", [column % pairs for column in range(2 * pairs)]),
    ):
        ax.text(-0.6, y, name, ha="right", va="center", fontsize=10, color=INK)
        for column, pair in enumerate(order):
            x = -0.5 + column * size
            face = (*rgb(SERIES[pair]), 0.35)
            ax.add_patch(Rectangle((x, y - 0.24), 0.94 * size, 0.48, facecolor=face, edgecolor=SERIES[pair]))
            ax.text(x + 0.47 * size, y - 0.1, f"$x_{{{column}}}$", ha="center", va="center", fontsize=10, color=INK)
            ax.text(x + 0.47 * size, y + 0.12, f"pair {pair}", ha="center", va="center", fontsize=9, color=INK)
    said = []
    for i in range(pairs):
        colour = SERIES[i]
        theta = float(angles[1, i] - angles[0, i]) / (positions[1] - positions[0])
        ax.text(-0.6, i, f"pair {i}\n$\\theta_{i}$ = {theta:.4g}", ha="right", va="center", fontsize=10, color=colour)
        for column in range(n):
            angle = float(angles[column, i])
            ax.add_patch(Circle((column, i), 0.4, facecolor="white", edgecolor=PALE))
            ax.plot([column, column + 0.4], [i, i], color=PALE, linewidth=1.2)
            tip = (column + 0.38 * math.cos(angle), i - 0.38 * math.sin(angle))       # the axis runs downwards
            ax.plot([column, tip[0]], [i, tip[1]], color=colour, linewidth=2.6, solid_capstyle="round")
        said.append(f"pair {i} turns by {theta:.4g} radians a position")
    for column, position in enumerate(positions):
        ax.text(column, -0.62, f"m = {position}", ha="center", va="center", fontsize=10, color=INK)
    show(
        drawn,
        f"Rotary embeddings in {2 * pairs} dimensions: {pairs} dials, at the positions "
        f"{', '.join(map(str, positions))}. {'; '.join(said)}. Interleaved, pair i is the columns 2i and 2i + 1; half, "
        f"the columns i and i + {pairs}.",
    )


def scale_points(
    groups: Mapping[str, Mapping[str, Sequence[float]]],
    y_name: str,
    chance: float | None = None,
    chance_name: str = "guessing",
    notes: Mapping[str, str] | None = None,
    families: Mapping[str, int] | None = None,
    joined: Sequence[str] = (),
) -> None:
    """A point for each seed, {scheme: {setting: a value for each seed}}: settings, and in them seeds, side by side.

    `notes` {scheme: a word} stand where its second setting has no points. `families` {name: number of schemes} stand
    above neighbouring schemes, with a line between them. Points of one seed are joined in the settings `joined`.
    """
    drawn, ax = figure(1.6 + 0.95 * len(groups), 3.4)
    said, named = [], set()
    most = max(len(settings) for settings in groups.values())
    paths: dict[str, list[list[tuple[float, float]]]] = {}
    for x, (scheme, settings) in enumerate(groups.items()):
        for i, (setting, values) in enumerate(settings.items()):
            style = line_style(i) | {"linestyle": "none", "markersize": 5.5, "markeredgewidth": 1.5}
            style |= {"markersize": 4.2, "markeredgewidth": 1} if most > 2 else {}
            middle = x + 0.8 / most * (i - (len(settings) - 1) / 2)
            at = [middle + 0.24 / most * (seed - (len(values) - 1) / 2) for seed in range(len(values))]
            ax.plot(at, values, label="" if setting in named else setting, clip_on=False, **style)
            named.add(setting)
            paths.setdefault(setting, []).append([*zip(at, values, strict=True)])
            if values:
                said.append(f"{scheme}, {setting}: {', '.join(f'{value:.0%}' for value in values)}")
    for setting in joined:
        for path in zip(*filter(None, paths[setting]), strict=True):                  # of one seed
            ax.plot(*zip(*path, strict=True), color=GREY, linewidth=0.7, alpha=0.6, zorder=1)
    first = -0.5
    for i, (family, size) in enumerate((families or {}).items()):
        ax.text(first + size / 2, 1.06, family, ha="center", va="bottom", fontsize=9.5, color=INK)
        if i:
            ax.axvline(first, color=GREY, linewidth=0.8)
        first += size
    for scheme, note in (notes or {}).items():
        ax.text([*groups].index(scheme) + 0.1, 0.1, note, ha="center", va="center", fontsize=9.5, color=ORANGE)
        said.append(f"{scheme}: {note}")
    if chance is not None:
        ax.axhline(chance, color=GREY, linewidth=0.8, linestyle=":", label=chance_name)
        named.add(chance_name)
    ax.set_xticks(range(len(groups)), [scheme.replace(" (", "\n(") for scheme in groups], fontsize=9.5)
    ax.set_xlim(-0.6, len(groups) - 0.4)
    ax.set_ylim(0, 1.03)
    ax.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    name_lines(ax, "", y_name)
    above = 1.08 if families else 1
    ax.legend(frameon=False, fontsize=9.5, loc="lower center", bbox_to_anchor=(0.5, above), ncols=len(named))
    show(drawn, f"{y_name}, a point for each seed. {'; '.join(said)}.")


def reach(panels: Mapping[str, Mapping[str, Mapping[int, Sequence[float]]]], trained: int, shortest: int) -> None:
    """Accuracy against the length of the text, {panel: {name: {length: a value a seed}}}.

    Means are joined, seeds are marks side by side. Lines of one name look alike in all panels, and each has its name at
    its end; the second and the third have open marks, so that those of the others show. The axis begins at `shortest`;
    up to `trained` it is shaded.
    """
    drawn, _ = figure(4 * len(panels), 3.3, columns=len(panels))
    said = []
    names = list(dict.fromkeys(name for lines in panels.values() for name in lines))
    for ax, (title, lines) in zip(drawn.axes, panels.items(), strict=True):
        ends = {}
        for name, points in lines.items():
            means = [sum(values) / len(values) for values in points.values()]
            i = names.index(name)
            style = {"color": SERIES[i], "zorder": 4 - i / 10, "clip_on": False}
            dashes = ("-", "--", ":", "-.")[i % 4]
            ax.plot(list(points), means, label=name, linestyle=dashes, linewidth=(2, 2, 1.6, 2)[i % 4], **style)
            xs = [n * 1.05 ** (seed - (len(values) - 1) / 2) for n, values in points.items()
                  for seed in range(len(values))]  # fmt: skip
            ys = [value for values in points.values() for value in values]
            ax.plot(xs, ys, linestyle="none", marker=("o", "s", "^", "D")[i % 4], markersize=(4, 5.5, 6.5, 4)[i % 4],
                    markerfacecolor=(None, "none", "none", None)[i % 4], **style)  # fmt: skip
            ends[name] = means[-1]
            listed = ", ".join(f"{mean:.0%} at {n}" for n, mean in zip(points, means, strict=True))
            said.append(f"{title}, {name}: {listed}")
        last = max(n for points in lines.values() for n in points)
        height = 2.0
        for name, end in sorted(ends.items(), key=lambda each: -each[1]):
            height = min(end, height - 0.085)                                         # below the label before
            ax.annotate(name, (1.25 * last, height), (7, 0), textcoords="offset points", ha="left", va="center",
                        fontsize=9.5, color=SERIES[names.index(name)], annotation_clip=False)  # fmt: skip
        ax.axvspan(shortest, trained, color=PALE, alpha=0.6, linewidth=0)
        ax.set_xscale("log", base=2)
        xs = sorted({n for points in lines.values() for n in points})
        apart = [n for n in xs if n == xs[-1] or 2 * n < xs[-1]]                      # labels need room
        ax.set_xticks(apart, [f"{n:,}" for n in apart], fontsize=9)
        ax.xaxis.set_minor_locator(NullLocator())
        ax.set_xlim(shortest, 1.15 * max(xs))
        ax.set_ylim(0, 1.03)
        ax.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
        ax.set_xlabel("length of the text")
        ax.set_ylabel("accuracy" if ax is drawn.axes[0] else "")
        ax.tick_params(labelleft=ax is drawn.axes[0])
        ax.set_title(title)
        ax.grid(axis="y", color=PALE, linewidth=0.8)
        ax.set_axisbelow(True)
    show(drawn, f"Share right against the length of the text, means over seeds. {'; '.join(said)}.")


def one_distance(
    shares: Mapping[int, float], matches: Mapping[int, float], trained: int, named: int | None = None
) -> None:
    """Where all far keys are rotated as if at one distance: the accuracy, and how a match with the right key matters.

    A dot is a distance: `shares` {distance: accuracy} against the distance and, on the right, against `matches`
    {distance: a number, 1 where fast pairs have exactly the angles of the right key}. Distances below `trained`
    occurred in training and are open. Lines mark 90% and, on the right, the matches 0.5 and 0.8; above them is how many
    new distances below 0.5 and above 0.8 fall under 90%. The dot of the distance `named` has a black ring and its name
    in both panels.
    """
    drawn, (left, right) = figure(7.8, 3.4, columns=2)
    groups = {
        "new distances": ([far for far in shares if far >= trained], BLUE),
        "trained distances": ([far for far in shares if far < trained], ORANGE),
    }
    for ax, across in ((left, {far: far for far in shares}), (right, matches)):
        for name, (fars, colour) in groups.items():
            known = colour == ORANGE
            ax.plot([across[far] for far in fars], [shares[far] for far in fars], linestyle="none", marker="o",
                    markersize=6 if known else 3, markerfacecolor="none" if known else colour, color=colour,
                    markeredgewidth=1 if known else 0, alpha=1 if known else 0.6, label=name,
                    clip_on=False)  # fmt: skip
        ax.axhline(0.9, color=INK, linewidth=0.8, linestyle="--")
        ax.set_ylim(0, 1.03)
        ax.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
        ax.grid(axis="y", color=PALE, linewidth=0.8)
        ax.set_axisbelow(True)
    new = groups["new distances"][0]
    fallen = [far for far in new if shares[far] < 0.9]
    low, high = [far for far in new if matches[far] < 0.5], [far for far in new if matches[far] > 0.8]
    counts = [f"{len({*fallen} & {*some})} of {len(some)}" for some in (low, high)]
    for border, x, words in ((0.5, 0.45, f"below 90%: {counts[0]}"), (0.8, 1.04, counts[1])):
        right.axvline(border, color=INK, linewidth=0.8, linestyle="--")
        right.text(x, 1.05, words, ha="right", va="bottom", fontsize=9.5, color=INK)
    if named is not None:
        line = {"arrowstyle": "-", "color": INK, "linewidth": 0.9, "shrinkA": 0, "shrinkB": 5}
        for ax, at, away in ((left, named, (-8, -51)), (right, matches[named], (-122, -15))):
            ax.plot([at], [shares[named]], linestyle="none", marker="o", markersize=9, markerfacecolor="none",
                    markeredgewidth=1.4, color=INK)  # fmt: skip
            ax.annotate(f"D = {named}", (at, shares[named]), away, textcoords="offset points", va="center", ha="left",
                        fontsize=9.5, color=INK, arrowprops=line)  # fmt: skip
    left.set_xlim(0, max(shares) + 1)
    left.set_xlabel("distance D of all far keys")
    left.set_ylabel("accuracy")
    right.set_xlim(min(0.0, *matches.values()) - 0.05, 1.02)
    right.set_xlabel("match of the two fastest pairs with −2")
    right.tick_params(labelleft=False)
    right.set_xticks([0, 0.5, 1])
    right.legend(frameon=False, fontsize=9.5, loc="lower left", handletextpad=0.2, borderaxespad=0.2)
    familiar = [shares[far] for far in shares if far < trained]
    show(
        drawn,
        f"Accuracy where all far keys are at one distance, {min(shares)} to {max(shares)}: below 90% at {len(fallen)} "
        f"of {len(new)} new distances, lowest {min(shares.values()):.0%}; at trained distances at least "
        f"{min(familiar):.0%}. The smallest match with −2 of a distance below 90% is "
        f"{min((matches[far] for far in fallen), default=1):.2f}; with a match below 0.5, {counts[0]} are below 90%, "
        f"above 0.8 {counts[1]}.",
    )


def attention_past_training(
    weights: Mapping[str, Tensor],
    trained: int,
    circled: Mapping[str, tuple[int, int]] | None = None,
    enlarged: Mapping[str, int] | None = None,
) -> None:
    """Who looks at whom in a sequence longer than those of the training, a panel for each scheme; lines at the end.

    Each is (n, n). `circled` {scheme: (query, key)} is a weight that has a ring and its number. `enlarged` {scheme:
    start}: eight queries and keys from `start` on stand larger in the lower left corner, with the main diagonal.
    Raises ValueError for a table that is not square, and for what are no weights.
    """
    drawn, _ = figure(2.5 * len(weights) + 1.1, 2.9, columns=len(weights))
    said, panels = [], list(drawn.axes)
    for ax, (name, matrix) in zip(panels, weights.items(), strict=True):
        check_shape(f"weights, {name}", matrix, "n n", n=len(matrix))
        values = matrix.detach().numpy()
        check_shares(f"weights, {name}", values)
        shade = ax.imshow(values, cmap=WEIGHTS, vmin=0, vmax=1, interpolation="nearest")
        ax.axhline(trained - 0.5, color=ORANGE, linewidth=1.4)
        ax.axvline(trained - 0.5, color=ORANGE, linewidth=1.4)
        if circled and name in circled:
            query, key = circled[name]
            ax.add_patch(Circle((key, query), len(matrix) / 24, fill=False, edgecolor=ORANGE, linewidth=1.6))
            where = f"{key - query} places to\nthe right: " if key > query else ""
            ax.annotate(f"{where}{values[query, key]:.2f}", (key, query), (-7, -28), textcoords="offset points",
                        ha="center", va="center", fontsize=9, color=INK)  # fmt: skip
        if enlarged and name in enlarged:
            start, end = enlarged[name], enlarged[name] + 8
            inset = ax.inset_axes((0.02, 0.03, 0.44, 0.44))
            inset.imshow(values[start:end, start:end], cmap=WEIGHTS, vmin=0, vmax=1, interpolation="nearest")
            inset.plot([-0.5, 7.5], [-0.5, 7.5], color=GREY, linewidth=0.9, linestyle=":")
            inset.set_xticks([])
            inset.set_yticks([])
            inset.spines[:].set_visible(True)
            corner = start - 0.5, start - 0.5
            ax.add_patch(Rectangle(corner, 8, 8, fill=False, edgecolor=INK, linewidth=0.8))
        ax.set_title(name)
        ax.set_xlabel("key")
        ax.set_xticks([0, trained, len(matrix) - 1])
        ax.set_yticks([0, trained, len(matrix) - 1])
        ax.tick_params(labelsize=9)
        top = values.max(axis=1)
        said.append(
            f"{name}: largest weight of a query {top[:trained].mean():.2f} inside, {top[trained:].mean():.2f} beyond"
        )
    panels[0].set_ylabel("query")
    key = drawn.colorbar(shade, ax=panels, shrink=0.75, ticks=[0, 0.25, 0.5, 0.75, 1])
    key.ax.set_yticklabels(["0 (white)", "0.25", "0.5", "0.75", "1 (dark)"], fontsize=9)
    key.set_label("attention weight", fontsize=10)
    show(
        drawn,
        f"Attention weights inside the trained length of {trained} positions and beyond, from white, 0, to dark, 1. "
        f"{'; '.join(said)}.",
    )


def _turned(vector: np.ndarray, angle: float) -> np.ndarray:
    a, b = vector
    return np.array([a * math.cos(angle) - b * math.sin(angle), a * math.sin(angle) + b * math.cos(angle)])


def _point(angle: float) -> np.ndarray:
    return np.array([math.sin(angle), math.cos(angle)])


def _vector(ax: Axes, end: np.ndarray, colour: str, width: float, faint: bool = False) -> None:
    ax.annotate(
        "",
        (end[0], end[1]),
        (0, 0),
        arrowprops={"arrowstyle": "-|>", "color": colour, "lw": width, "shrinkA": 0, "shrinkB": 0,
                    "alpha": 0.4 if faint else 1},
    )
