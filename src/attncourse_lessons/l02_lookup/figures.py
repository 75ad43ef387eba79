"""Pictures of a lookup: what was asked, who matched how well, and what came back."""

from collections.abc import Callable, Sequence

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from attncourse._checks import check_shape
from attncourse.viz.diagrams import arrow, box
from attncourse.viz.figures import as_weights, check_shares, describe
from attncourse.viz.style import (
    BLUE,
    GREEN,
    GREY,
    INK,
    ORANGE,
    PALE,
    WEIGHTS,
    check_places,
    figure,
    hold_still,
    show,
    stage,
)


def two_lookups() -> None:
    """A hash table, in which one key answers or none, beside a soft lookup, in which all keys do."""
    keys, values = ("5 h", "8 h", "12 h"), ("45", "310", "120")
    near = np.exp(np.cos(2 * np.pi * (np.array([5, 8, 12]) - 7) / 24) / 0.2)  # on a clock, at temperature 0.2
    weights = near / near.sum()
    drawn, ax = figure(8.2, 3.9)
    stage(ax, (0, 16.4), (-0.2, 7.6))
    for left, title, query in ((0.0, "hash table", "8 h"), (8.6, "soft lookup", "7 h")):
        ax.text(left + 3.6, 7.2, title, ha="center", va="center", fontsize=12, color=INK)
        ax.text(left + 0.7, 6.3, "query", ha="center", va="center", fontsize=10.5)
        ax.text(left + 3.5, 6.3, "keys", ha="center", va="center", fontsize=10.5)
        ax.text(left + 5.5, 6.3, "values", ha="center", va="center", fontsize=10.5)
        box(ax, left + 0.7, 3.6, query, GREEN, width=1.2)
        for row, (key, value) in enumerate(zip(keys, values, strict=True)):
            y = 5.2 - 1.6 * row
            box(ax, left + 3.5, y, key, BLUE, width=1.3)
            box(ax, left + 5.5, y, value, ORANGE, width=1.3)
            ax.plot([left + 4.15, left + 4.85], [y, y], color=GREY, linewidth=1)
    arrow(ax, (1.3, 3.6), (2.8, 3.6), colour=GREEN, width=2.5)
    arrow(ax, (6.2, 3.6), (7.2, 3.6), colour=ORANGE, width=2.5)
    ax.text(7.5, 3.6, "310", ha="center", va="center", fontsize=12)
    ax.text(3.6, 0.4, "one key is equal, or none is", ha="center", va="center", fontsize=10.5)
    for row, weight in enumerate(weights):
        y = 5.2 - 1.6 * row
        arrow(ax, (9.9, 3.6), (11.4, y), colour=GREEN, width=0.8 + 3 * weight)
        arrow(ax, (14.8, y), (15.65, 3.6 + 0.25 * (1 - row)), colour=ORANGE, width=0.8 + 3 * weight)
        ax.text(10.75, [4.85, 3.85, 2.35][row], f"{weight:.2f}", ha="center", va="center", fontsize=10, color=INK)
    answer = sum(weight * float(value) for weight, value in zip(weights, values, strict=True))
    ax.text(15.72, 3.6, f"{answer:.0f}", ha="left", va="center", fontsize=12)
    ax.text(12.2, 0.4, "each key answers, as loudly as it matches", ha="center", va="center", fontsize=10.5)
    said = ", ".join(f"{key} {weight:.2f}" for key, weight in zip(keys, weights, strict=True))
    show(
        drawn,
        f"Two lookups in a table with the keys {', '.join(keys)} and the values {', '.join(values)}. On the left a "
        "hash table: the query 8 h equals one key, and its value comes out, 310. On the right a soft lookup: the query "
        f"7 h is compared with every key, which gives the weights {said}; the values, so weighted, add up to "
        f"{answer:.0f}.",
    )


def clock_keys(hours: Sequence[float], numbers: Tensor, asked: float, title: str = "", alt: str = "") -> None:
    """Keys on a clock of 24 hours, with a number at each (a score, a weight), and a hand at the hour that is asked.

    `numbers` (n_keys,). The dot of a key grows with its number, where that is positive. Raises ValueError for another
    number of them, and for NaN or infinity.
    """
    check_places(hours=len(hours))
    check_shape("numbers", numbers, "n_keys", n_keys=len(hours))
    if not numbers.isfinite().all():
        raise ValueError(f"numbers: got {numbers.tolist()}, expected finite ones")
    drawn, ax = figure(4.6, 4.3)
    stage(ax, (-1.55, 1.55), (-1.5, 1.5))
    ax.set_aspect("equal")
    around = np.linspace(0, 2 * np.pi, 200)
    ax.plot(np.cos(around), np.sin(around), color=PALE, linewidth=1.2, zorder=1)
    for printed in range(0, 24, 3):
        x, y = _on_the_clock(printed)
        ax.text(0.8 * x, 0.8 * y, f"{printed}", ha="center", va="center", fontsize=8.5, color=GREY)
    x, y = _on_the_clock(asked)
    arrow(ax, (0, 0), (x, y), colour=GREEN, width=2.2)
    ax.text(0.42 * x - 0.1 * y, 0.42 * y + 0.1 * x, "query", ha="center", va="center", fontsize=10, color=INK)
    for hour, number in zip(hours, numbers.tolist(), strict=True):
        x, y = _on_the_clock(hour)
        ax.scatter([x], [y], s=40 + 700 * max(0.0, number), color=BLUE, alpha=0.85, edgecolor="white", zorder=3)
        ax.text(1.33 * x, 1.25 * y, f"{hour} h\n{_signed(number)}", ha="center", va="center", fontsize=10, color=INK)
    if title:
        ax.set_title(title, fontsize=11)
    said = ", ".join(f"{hour} h {_signed(number)}" for hour, number in zip(hours, numbers.tolist(), strict=True))
    of = f", {title}" if title else ""
    show(drawn, alt or f"Clock of 24 hours{of}. The query points at {asked:g} h. Keys: {said}.")


def lookup_frame(
    hours: Sequence[float], values: Tensor, weights: Tensor, asked: float, xs: Tensor, answers: Tensor, title: str = ""
) -> tuple[Figure, str]:
    """How one query shares itself out over the keys, and what the lookup answers at every hour: for `explore`.

    `values`, `weights` (n_keys,); `answers` to the hours `xs`. Returns the figure and the words for it. Raises
    ValueError where the lengths do not fit, and for what are no weights.
    """
    check_places(hours=len(hours))
    for name, given in (("values", values), ("weights", weights)):
        check_shape(name, given, "n_keys", n_keys=len(hours))
    check_shares("weights", weights.numpy())
    drawn, (left, right) = figure(6.5, 2.9, columns=2)
    hold_still(drawn, left=0.09, right=0.98, bottom=0.18, top=0.88, wspace=0.3)
    places = np.arange(len(hours))
    left.bar(places, weights.tolist(), color=BLUE, width=0.7)
    for place, weight in zip(places, weights.tolist(), strict=True):
        left.text(place, weight + 0.02, f"{weight:.2f}", ha="center", va="bottom", fontsize=8.5, color=INK)
    left.set_ylim(0, 1.12)
    left.set_xticks(places, [f"{hour}" for hour in hours])
    left.set_xlabel("key (hour)")
    left.set_ylabel(f"weight, asked at {asked:g} h")
    right.plot(xs.tolist(), answers.tolist(), color=ORANGE, linewidth=2)
    right.scatter(hours, values.tolist(), color=BLUE, s=34, zorder=4, edgecolor="white")
    right.axvline(asked, color=GREEN, linewidth=1.2, linestyle=":")
    right.set_xlim(0, 24)
    right.set_xticks(range(0, 25, 6))
    right.set_ylim(-10, 1.12 * float(values.max()))
    right.set_xlabel("hour that is asked")
    right.set_ylabel("answer")
    if title:
        drawn.suptitle(title, fontsize=11)
    here = answers[(xs - asked).abs().argmin()].item()
    said = ", ".join(f"{hour} h {weight:.2f}" for hour, weight in zip(hours, weights.tolist(), strict=True))
    return drawn, (
        f"Soft lookup{f', {title}' if title else ''}. Asked at {asked:g} h the keys get the weights {said}, and the "
        f"answer is {here:.0f}. Over the day the answers lie between {answers.min():.0f} and {answers.max():.0f}; "
        f"the table's values between {values.min():.0f} and {values.max():.0f}."
    )


def score_landscape(
    score: Callable[[Tensor, Tensor], Tensor], query: Tensor, keys: Tensor, labels: Sequence[str], title: str = ""
) -> tuple[Figure, str]:
    """What `score` gives a query (2,) and every place in the plane where a key could be; and the keys that there are.

    `keys` (n_keys, 2); the dot of a key grows with its weight, softmax of the scores. Returns the figure and the words
    for it: for `explore`.
    """
    side = torch.linspace(-2, 2, 41)
    places = torch.stack(torch.meshgrid(side, side, indexing="xy"), dim=-1).view(-1, 2)  # (41 · 41, 2)
    with torch.no_grad():
        heights = score(query[None], places)[0].view(41, 41)
        weights = score(query[None], keys)[0].softmax(dim=-1)
    drawn, (ax, bars) = figure(6.5, 3.4, columns=2)
    hold_still(drawn, left=0.04, right=0.98, bottom=0.09, top=0.83, wspace=0.16)
    levels = np.arange(-3.5, 4, 0.5)
    shade = ax.contourf(side, side, heights, levels=levels, cmap=WEIGHTS, extend="both", alpha=0.55)
    shade.set_rasterized(True)
    lines = ax.contour(side, side, heights, levels=levels[1::2], colors=GREY, linewidths=0.7)
    for number in ax.clabel(lines, fontsize=8, fmt="%g"):
        number.set_visible(max(map(abs, number.get_position())) < 1.85)  # at the edge it would be cut
    arrow(ax, (0, 0), tuple(query.tolist()), colour=GREEN, width=2.2)
    for (x, y), label, weight in zip(keys.tolist(), labels, weights.tolist(), strict=True):
        ax.scatter([x], [y], s=30 + 350 * weight, color=ORANGE, edgecolor="white", zorder=4)
        ax.annotate(label, (x, y), (6, 6), textcoords="offset points", fontsize=10, color=INK, zorder=5)
    ax.set_aspect("equal")
    ax.set_xticks([-2, 0, 2])
    ax.set_yticks([-2, 0, 2])
    ax.set_title("score of a key at each place", fontsize=10)
    _bars(bars, labels, weights)
    bars.set_title("weights of the keys", fontsize=10)
    if title:
        drawn.suptitle(title, fontsize=11)
    best = int(weights.argmax())
    said = ", ".join(f"{label} {weight:.2f}" for label, weight in zip(labels, weights.tolist(), strict=True))
    return drawn, (
        f"Score landscape{f', {title}' if title else ''}, for the query ({query[0]:.2f}, {query[1]:.2f}): scores in "
        f"the plane from {heights.min():.1f} to {heights.max():.1f}. Weights of the keys: {said}; most goes to "
        f"{labels[best]}."
    )


def lookup_table(weights: Tensor, queries: Sequence[str], keys: Sequence[str], title: str = "", alt: str = "") -> None:
    """Who answers whom, (n_queries, n_keys): darker for more, with the number where a weight is 0.1 or more.

    Raises ValueError where the shape does not fit the labels, and for what are no weights.
    """
    matrix = as_weights(weights, queries, keys)
    drawn, ax = figure(1.5 + 0.6 * len(keys), 1.0 + 0.27 * len(queries))
    ax.pcolormesh(matrix, cmap=WEIGHTS, vmin=0, vmax=1, edgecolors="white", linewidth=1)
    for (i, j), value in np.ndenumerate(matrix):
        if value >= 0.1:
            colour = "white" if value > 0.6 else INK
            ax.text(j + 0.5, i + 0.5, f"{value:.1f}", ha="center", va="center", fontsize=8.5, color=colour)
    ax.invert_yaxis()
    ax.spines[:].set_visible(False)
    ax.xaxis.tick_top()
    ax.xaxis.set_label_position("top")
    ax.set_xticks(np.arange(len(keys)) + 0.5, keys, rotation=35, ha="left", rotation_mode="anchor")
    ax.set_yticks(np.arange(len(queries)) + 0.5, queries)
    ax.tick_params(length=0, labelsize=9)
    ax.set_xlabel("keys")
    ax.set_ylabel("queries")
    if title:
        ax.set_title(title, pad=10)
    show(drawn, alt or f"Table of weights{f', {title}' if title else ''}. {describe(matrix, keys, queries)}")


def _bars(ax: Axes, labels: Sequence[str], weights: Tensor) -> None:
    places = range(len(labels))
    ax.barh(places, weights.tolist(), color=ORANGE, height=0.65)
    for place, weight in zip(places, weights.tolist(), strict=True):
        ax.text(weight + 0.02, place, f"{weight:.2f}", ha="left", va="center", fontsize=9, color=INK)
    ax.set_yticks(places, labels)
    ax.invert_yaxis()
    ax.set_xlim(0, 1.15)
    ax.set_xticks([0, 0.5, 1])


def _on_the_clock(hour: float) -> tuple[float, float]:
    """Midnight at the top, and on clockwise; a whole turn is a day."""
    angle = np.pi / 2 - 2 * np.pi * hour / 24
    return float(np.cos(angle)), float(np.sin(angle))


def _signed(number: float) -> str:
    return f"{number:.2f}".replace("-", "−")
