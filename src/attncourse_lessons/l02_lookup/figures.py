"""Pictures of a lookup: what was asked, who matched how well, and what came back."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.patheffects import withStroke
from torch import Tensor

from attncourse._checks import check_shape
from attncourse.viz.diagrams import arrow, box, rgb
from attncourse.viz.figures import as_weights, cells, check_shares, describe, turn_labels
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
    line_style,
    runs_and_means,
    show,
    stage,
)

# White for a low score to orange for a high one: words on it can be read everywhere.
HEIGHTS = LinearSegmentedColormap.from_list("heights", ["#ffffff", "#fbdcc0", "#f0a868", "#e0761c"])

# Round the clock and back to the same colour, light enough for dark words: blue at night, yellow at noon.
AROUND = LinearSegmentedColormap.from_list("around", ["#7fb2e5", "#8fd3b0", "#f6e27a", "#f0a07c", "#7fb2e5"])


def two_lookups(table: Mapping[float, float], scores: Tensor, T: float, asked: float) -> None:
    """A hash table, in which one key answers or none, beside a soft lookup, in which all keys do.

    `table` {hour: value}, `scores` (n_keys,) of the soft lookup at `asked`, `T` its temperature. The hash table is
    asked for its third key, and for `asked`, which passes under all keys to a KeyError. Raises ValueError for another
    number of scores than keys, and for scores that give no weights.
    """
    check_places(table=len(table))
    check_shape("scores", scores, "n_keys", n_keys=len(table))
    weights = (scores / T).softmax(dim=0)
    check_shares("weights", weights.numpy())
    keys, values = [clock_time(hour) for hour in table], [f"{value:g}" for value in table.values()]
    top, step, equal = 6.0, 1.2, 2
    middle = top - step * (len(keys) - 1) / 2
    found, foot = top - step * equal, top - step * len(keys) - 0.1
    drawn, ax = figure(8.8, 5.1)
    stage(ax, (0, 19.6), (foot - 1.2, 8.1))
    new = clock_time(asked)
    for left, title, query, apart in ((0.0, "hash table", keys[equal], 0.0), (8.9, "soft lookup", new, 2.3)):
        ax.text(left + 3.6 + apart / 2, 7.8, title, ha="center", va="center", fontsize=12, color=INK)
        for column, name in ((0.7, "query"), (3.5, "keys"), (5.5 + apart, "values"), (7.3 + apart, "answer")):
            ax.text(left + column, 6.95, name, ha="center", va="center", fontsize=10.5)
        box(ax, left + 0.7, middle if apart else found, query, GREEN, width=1.2)
        for row, (key, value) in enumerate(zip(keys, values, strict=True)):
            y = top - step * row
            box(ax, left + 3.5, y, key, BLUE, width=1.3)
            box(ax, left + 5.5 + apart, y, value, ORANGE, width=1.3)
            if not apart:
                ax.plot([left + 4.15, left + 4.85], [y, y], color=GREY, linewidth=1)
    box(ax, 0.7, foot, new, GREEN, width=1.2)
    arrow(ax, (1.3, foot), (6.6, foot), colour=GREEN, width=1.2)
    ax.text(6.7, foot, "KeyError", ha="left", va="center", fontsize=11)
    arrow(ax, (1.3, found), (2.8, found), colour=GREEN, width=2.5)
    arrow(ax, (6.2, found), (7.0, found), colour=ORANGE, width=2.5)
    ax.text(7.05, found, values[equal], ha="left", va="center", fontsize=12)
    ax.text(3.6, foot - 0.95, "one key matches, or none", ha="center", va="center", fontsize=10.5)
    ax.text(13.75, 6.95, "scores", ha="center", va="center", fontsize=10.5)
    ax.text(15.15, 6.95, "weights", ha="center", va="center", fontsize=10.5)
    for row, (score, weight) in enumerate(zip(scores.tolist(), weights.tolist(), strict=True)):
        y = top - step * row
        arrow(ax, (10.2, middle), (11.7, y), colour=GREEN, width=0.5 + 3 * weight)
        arrow(ax, (17.4, y), (18.3, middle + 0.12 * (2.5 - row)), colour=ORANGE, width=0.5 + 3 * weight)
        ax.text(13.75, y, f"{score:.2f}".replace("-", "−"), ha="center", va="center", fontsize=10, color=INK)
        ax.text(15.15, y, f"{_weight(weight)} ×", ha="center", va="center", fontsize=10, color=INK)
    answer = sum(weight * value for weight, value in zip(weights.tolist(), table.values(), strict=True))
    ax.text(18.37, middle, f"{answer:.0f}", ha="left", va="center", fontsize=12)
    divided = "scores" if T == 1 else f"scores / {T:g}"
    ax.text(14.1, foot, f"weights = softmax({divided})", ha="center", va="center", fontsize=10.5)
    least = max(0.005, sorted(weights.tolist())[-3])                                    # three terms have room
    pairs = zip(weights.tolist(), values, strict=True)
    terms = [f"{_weight(weight)} × {value}" for weight, value in pairs if weight >= least][:3]
    added = " + ".join(terms) + (" + …" if len(terms) < len(keys) else "")
    ax.text(14.1, foot - 0.75, f"answer = {added} ≈ {answer:.0f}", ha="center", va="center", fontsize=10.5)
    said = ", ".join(f"{key} {_weight(weight)}" for key, weight in zip(keys, weights.tolist(), strict=True))
    scored = ", ".join(f"{key} {score:.2f}" for key, score in zip(keys, scores.tolist(), strict=True)).replace("-", "−")
    show(
        drawn,
        f"Two lookups in a table with the keys {', '.join(keys)} and the values {', '.join(values)}. On the left a "
        f"hash table: the query {keys[equal]} equals one key, and its value comes out, {values[equal]}; the query "
        f"{new} equals none, and comes to a KeyError. On the right a "
        f"soft lookup: the query {new} is compared with every key, which gives the scores {scored}; the softmax "
        f"of {divided} gives the weights {said}; the values, so weighted, add up to {answer:.0f}.",
    )


def clock_keys(hours: Sequence[float], numbers: Tensor, asked: float, title: str = "", alt: str = "") -> None:
    """Keys on a clock of 24 hours, with a number at each (a score, a weight), and a hand at the hour that is asked.

    `numbers` (n_keys,). The disc of a key grows with its number, where that is positive. Raises ValueError for another
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
        ax.text(0.8 * x, 0.8 * y, f"{printed}", ha="center", va="center", fontsize=9, color=GREY)
    x, y = _on_the_clock(asked)
    arrow(ax, (0, 0), (x, y), colour=GREEN, width=2.2)
    below = (0.4 * x - 0.1, 0.4 * y - 0.17)
    ax.text(*below, f"query: {clock_time(asked)}", ha="center", va="center", fontsize=10, color=INK)
    for hour, number in zip(hours, numbers.tolist(), strict=True):
        x, y = _on_the_clock(hour)
        ax.scatter([x], [y], s=40 + 700 * max(0.0, number), color=BLUE, alpha=0.85, edgecolor="white", zorder=3)
        words = f"{clock_time(hour)}\n{_signed(number)}"
        ax.text(1.33 * x, 1.25 * y, words, ha="center", va="center", fontsize=10, color=INK)
    if title:
        ax.set_title(title, fontsize=11)
    said = ", ".join(f"{clock_time(hour)} {_signed(x)}" for hour, x in zip(hours, numbers.tolist(), strict=True))
    of = f", {title}" if title else ""
    show(drawn, alt or f"Clock of 24 hours{of}. The query points at {clock_time(asked)}. Keys: {said}.")


def lookup_frame(
    hours: Sequence[float],
    values: Tensor,
    weights: Tensor,
    asked: float,
    xs: Tensor,
    answers: Tensor,
    title: str = "",
    before: Tensor | None = None,
) -> tuple[Figure, str]:
    """How one query shares itself out over the keys, and what the lookup answers at every hour: for `explore`.

    `values`, `weights` (n_keys,); `answers` to the hours `xs`, and others `before`, to compare. Returns the figure and
    the words for it. Raises ValueError where the lengths do not fit, and for what are no weights.
    """
    check_places(hours=len(hours))
    for name, given in (("values", values), ("weights", weights)):
        check_shape(name, given, "n_keys", n_keys=len(hours))
    check_shares("weights", weights.numpy())
    drawn, (left, right) = figure(6.5, 2.875, columns=2)
    hold_still(drawn, left=0.09, right=0.98, bottom=0.18, top=0.88, wspace=0.3)
    places = np.arange(len(hours))
    left.bar(places, weights.tolist(), color=BLUE, width=0.7)
    for place, weight in zip(places, weights.tolist(), strict=True):
        left.text(place, weight + 0.02, _weight(max(weight, 1e-9)), ha="center", va="bottom", fontsize=9, color=INK)
    left.set_ylim(0, 1.12)
    left.set_xticks(places, [f"{hour}" for hour in hours])
    left.set_xlabel("key (hour)")
    left.set_ylabel(f"weight, asked at {clock_time(asked)}")
    if before is not None:
        right.plot(xs.tolist(), before.tolist(), color=GREY, linewidth=1.2, linestyle="--")
    right.plot(xs.tolist(), answers.tolist(), color=ORANGE, linewidth=2)
    right.scatter(hours, values.tolist(), color=BLUE, s=34, zorder=4, edgecolor="white")
    right.axvline(asked, color=GREEN, linewidth=1.2, linestyle=":")
    here = answers[(xs - asked).abs().argmin()].item()
    right.scatter([asked], [here], color=GREEN, s=34, zorder=5, edgecolor="white")
    right.annotate(f"{here:.0f}", (asked, here), (-6, 2), textcoords="offset points", ha="right", va="bottom",
                   fontsize=10, color=INK)  # fmt: skip
    right.set_xlim(0, 24)
    right.set_xticks(range(0, 25, 6))
    right.set_ylim(-10, 1.12 * float(values.max()))
    right.set_xlabel("hour asked for")
    right.set_ylabel("answer (bicycles)")
    if title:
        drawn.suptitle(title, fontsize=11)
    shown = [_weight(max(weight, 1e-9)) for weight in weights.tolist()]          # an exponential is never zero
    said = ", ".join(f"{clock_time(hour)} {words}" for hour, words in zip(hours, shown, strict=True))
    return drawn, (
        f"Soft lookup{f', {title}' if title else ''}. Asked at {clock_time(asked)} the keys get the weights {said}, "
        f"and the answer is {here:.0f}. Over the day the answers lie between {answers.min():.0f} and "
        f"{answers.max():.0f}; "
        f"the table's values between {values.min():.0f} and {values.max():.0f}."
    )


def matrix_form(
    Q: Tensor, K: Tensor, V: Tensor, T: float, asked: Sequence[float], hours: Sequence[float]
) -> None:
    """softmax(Q Kᵀ / T) V, number by number. Of each product one factor stands to the left, and the other above it.

    `Q` (n_query, d_k) asks for the hours `asked`, `K` (n_key, d_k) and `V` (n_key, d_v) are the keys and values of
    `hours`. Raises ValueError where the shapes do not fit.
    """
    (n_query, d_k), (n_key, d_v) = Q.shape, V.shape
    check_shape("Q", Q, "n_query d_k", n_query=len(asked))
    check_shape("K", K, "n_key d_k", n_key=len(hours), d_k=d_k)
    check_shape("V", V, "n_key d_v", n_key=len(hours))
    scores = Q @ K.mT                                                                     # (n_query, n_key)
    weights = (scores / T).softmax(dim=-1)                                                # (n_query, n_key)
    keys, above = [clock_time(hour) for hour in hours], n_query + 0.5
    at_scores = d_k + 0.6
    at_weights = at_scores + n_key + 2.4
    at_answers = at_weights + n_key + 2.6
    drawn, ax = figure(9.2, 3.9)
    stage(ax, (-1.3, at_answers + d_v + 0.7), (-1.7, above + n_key + 0.9))
    _table(ax, 0, 0, Q, GREEN, _signed)
    _table(ax, at_scores, above, K.mT, BLUE, _signed)
    _table(ax, at_scores, 0, scores, GREY, _signed)
    _table(ax, at_weights, 0, weights, None, _weight)
    _table(ax, at_answers, above, V, ORANGE, "{:g}".format)
    _table(ax, at_answers, 0, weights @ V, ORANGE, "{:.0f}".format)
    arrow(ax, (at_scores + n_key + 0.2, n_query / 2), (at_weights - 0.2, n_query / 2), colour=INK, width=1.6)
    between = at_scores + n_key + 1.2
    words = {(between, n_query / 2 + 0.75): f"softmax\n(scores / {T:g})", (between, n_query / 2 - 0.65): "row by row"}
    for row, hour in enumerate(asked):
        y = n_query - row - 0.5
        words |= {(-0.7, y): clock_time(hour), (at_weights + n_key + 0.8, y): f"Σ = {weights[row].sum():.2f}"}
    for column, key in enumerate(keys):
        words |= {(at_scores + column + 0.5, above + d_k + 0.35): key, (at_weights + column + 0.5, n_query + 0.35): key}
        words |= {(at_answers - 0.75, above + n_key - column - 0.5): key}
    for (x, y), said in words.items():
        ax.text(x, y, said, ha="center", va="center", fontsize=9, color=INK)
    pairs = f"$(n_\\mathrm{{query}}, n_\\mathrm{{key}})$\n({n_query}, {n_key})"
    names = {
        (d_k / 2, -0.8): f"$Q$\n$(n_\\mathrm{{query}}, d_k)$\n({n_query}, {d_k})",
        (at_scores + n_key / 2, -0.8): f"scores $QK^\\top$\n{pairs}",
        (at_weights + n_key / 2, -0.8): f"weights $\\alpha$\n{pairs}",
        (at_answers + d_v / 2, -0.8): f"answers $C = \\alpha V$\n$(n_\\mathrm{{query}}, d_v)$\n({n_query}, {d_v})",
        (at_scores + n_key / 2, above + d_k + 0.95): f"$K^\\top$  $(d_k, n_\\mathrm{{key}})$  ({d_k}, {n_key})",
        (at_answers + d_v / 2, above + n_key + 0.45): f"$V$  $(n_\\mathrm{{key}}, d_v)$  ({n_key}, {d_v})",
    }
    for (x, y), said in names.items():
        ax.text(x, y, said, ha="center", va="center", fontsize=10, color=INK)
    rows = "; ".join(
        f"{clock_time(hour)}: {', '.join(f'{key} {_weight(w)}' for key, w in zip(keys, row, strict=True))}"
        for hour, row in zip(asked, weights.tolist(), strict=True)
    )
    given = ", ".join("(" + ", ".join(f"{x:.0f}" for x in row) + ")" for row in (weights @ V).tolist())
    show(
        drawn,
        f"A soft lookup in matrices. Q, {n_query} by {d_k}, times K transposed, {d_k} by {n_key}, gives the scores, "
        f"{n_query} by {n_key}. The softmax of scores / {T:g} along each row gives the weights: {rows}. The weights "
        f"times V, {n_key} by {d_v}, give the answers {given}.",
    )


def _table(
    ax: Axes, left: float, low: float, numbers: Tensor, colour: str | None, write: Callable[[float], str]
) -> None:
    """A matrix as cells of width and height 1, the first row on top; without a colour, darker for more."""
    for (row, column), value in np.ndenumerate(numbers.numpy()):
        corner = (left + column, low + len(numbers) - 1 - row)
        face = (*rgb(colour), 0.16) if colour else WEIGHTS(0.85 * float(value))
        ax.add_patch(Rectangle(corner, 1, 1, facecolor=face, edgecolor="white", linewidth=1.2))
        ink = "white" if not colour and value > 0.6 else INK
        words = write(float(value))
        ax.text(corner[0] + 0.5, corner[1] + 0.5, words, ha="center", va="center", fontsize=8.6, color=ink)


def pulls(hours: Sequence[float], values: Tensor, weights: Tensor, gradient: Tensor) -> None:
    """The gradient of a soft lookup at its scores, α (v − c), as areas: blocks as wide as α, from c to v.

    `values`, `weights`, `gradient` (n_keys,): the last stands in numbers at each block.
    """
    check_places(hours=len(hours))
    for name, given in (("values", values), ("weights", weights), ("gradient", gradient)):
        check_shape(name, given, "n_keys", n_keys=len(hours))
    check_shares("weights", weights.numpy())
    drawn, ax = figure(7.4, 3.7)
    c = float(weights @ values)
    left = 0.0
    for hour, value, weight, slope in zip(hours, values.tolist(), weights.tolist(), gradient.tolist(), strict=True):
        colour = ORANGE if value > c else BLUE
        ax.add_patch(Rectangle((left, min(c, value)), weight, abs(value - c), facecolor=(*rgb(colour), 0.35),
                               edgecolor=colour, linewidth=1.4))  # fmt: skip
        words = f"{clock_time(hour)}\n{slope:+.0f}".replace("-", "−")
        inside = weight >= 0.075 and abs(value - c) >= 0.15 * float(values.max())          # its words fit
        narrow = 0.5 * max(0.0, 0.075 - weight)                          # room for its words, to the right
        place, stands = (value + 5, "bottom") if value > c else (value - 5, "top")
        if inside:
            place, stands = (c + value) / 2, "center"
        ax.text(left + weight / 2 + narrow, place, words, ha="center", va=stands, fontsize=9.5, color=INK,
                linespacing=1.05)  # fmt: skip
        left += weight
    ax.axhline(c, color=INK, linewidth=1.4, linestyle="--")
    ax.text(1.01, c, f"answer c = {c:.0f}", ha="left", va="center", fontsize=10, color=INK)
    ax.set_xlim(0, 1)
    ax.set_ylim(min(0.0, float(values.min())), float(values.max()) + 20)
    ax.set_xlabel("attention weights α, side by side")
    ax.set_ylabel("value v (bicycles)")
    said = ", ".join(
        f"{clock_time(hour)} {slope:+.0f}" for hour, slope in zip(hours, gradient.tolist(), strict=True)
    ).replace("-", "−")
    show(drawn, f"Blocks as wide as the weights, from the answer {c:.0f} to the values. Their areas: {said}.")


def error_curves(answers: Mapping[str, Tensor], target: float, hours: Tensor, at: float) -> None:
    """{name: its answers at `hours`}, above; below the squared error of each, from `target`, in hundreds.

    Above, `target` is a line, and dots stand where the first of the answers crosses it; the same hours are dots below,
    where the error is zero. On each error stands a point at the hour `at` with a piece of tangent. The first name
    stands to the left of the first crossing, the second to the right of its highest answer. The second is a staircase,
    and is drawn without what joins its steps: a jump has no slope.
    """
    drawn, (top, ax) = figure(6.6, 5.2, rows=2)
    here = int((hours - at).abs().argmin())
    first = next(iter(answers.values()))
    above = (first > target).int()
    zeros = []
    for i in above.diff().nonzero()[:, 0].tolist():
        share = float((target - first[i]) / (first[i + 1] - first[i]))
        zeros.append(float(hours[i] + share * (hours[i + 1] - hours[i])))
    top.axhline(target, color=INK, linewidth=1.2)
    top.annotate(f"{target:g}", (0, target), (4, 3), textcoords="offset points", fontsize=9.5, color=INK)
    said = []
    for i, (name, given) in enumerate(answers.items()):
        style = line_style(i) | {"marker": "", "linestyle": "-", "color": (ORANGE, BLUE)[i % 2]}
        line = ((given - target) / 100) ** 2
        drawn_as = _steps if i % 2 else (lambda xs, ys: (xs.tolist(), ys.tolist()))
        top.plot(*drawn_as(hours, given), label=name, **style)
        last_of_highest = int((given == given.max()).nonzero()[-1])
        place = (float(hours[last_of_highest]), float(given.max())) if i % 2 else ([*zeros, 0.0][0], target)
        top.annotate(name, place, ((6, -2), (-12, -16))[1 - i % 2], textcoords="offset points", fontsize=10,
                     ha=("right", "left")[i % 2], va="top", color=style["color"])  # fmt: skip
        ax.plot(*drawn_as(hours, line), **style)
        slope = float((line[here + 1] - line[here - 1]) / (hours[here + 1] - hours[here - 1]))
        x, y = float(hours[here]), float(line[here])
        ax.plot([x - 1.2, x + 1.2], [y - 1.2 * slope, y + 1.2 * slope], color=INK, linewidth=2.2, zorder=5)
        ax.plot([x], [y], marker="o", markersize=8, color=style["color"], markeredgecolor="white", zorder=6)
        ax.annotate(f"{name}: slope {_signed(slope)}", (x, y), ((34, 6), (20, 20))[i % 2], textcoords="offset points",
                    ha="left", va="bottom", fontsize=10, color=style["color"],
                    arrowprops={"arrowstyle": "-", "color": style["color"], "shrinkB": 6})  # fmt: skip
        low, high = f"{line.min():.2f}", f"{line.max():.2f}"
        said.append(f"{name}: from {low} to {high}; at {clock_time(at)} {y:.2f}, slope {slope:.2f}")
    top.scatter(zeros, [target] * len(zeros), color=INK, s=30, zorder=6)
    ax.scatter(zeros, [0.0] * len(zeros), color=INK, s=30, zorder=6, clip_on=False)
    for each in (top, ax):
        each.axvline(float(hours[here]), color=GREEN, linewidth=1.2, linestyle=":")
        each.set_xlim(0, 24)
        each.set_xticks(range(0, 25, 3))
        each.grid(axis="y", color=PALE, linewidth=0.8)
        each.set_axisbelow(True)
    top.set_ylim(bottom=0)
    ax.set_ylim(bottom=-0.1)
    top.set_ylabel("answer (bicycles)")
    ax.set_xlabel("hour asked for")
    ax.set_ylabel("squared error / 100²")
    crossed = ", ".join(clock_time(hour) for hour in zeros)
    show(
        drawn,
        f"Above, the answers at every hour; {next(iter(answers))} gives {target:g} at {crossed}. Below, the squared "
        f"error against the hour asked for. {'; '.join(said)}.",
    )


def _steps(xs: Tensor, ys: Tensor) -> tuple[np.ndarray, np.ndarray]:
    """A staircase as a line with a gap at every jump."""
    jumps = np.flatnonzero(np.abs(np.diff(ys.numpy())) > 1e-6) + 1
    return np.insert(xs.numpy().astype(float), jumps, np.nan), np.insert(ys.numpy().astype(float), jumps, np.nan)


def smoothings(
    curves: Mapping[float, Tensor],
    errors: Mapping[float, float],
    xs: Tensor,
    hours: Tensor,
    counted: Tensor,
    truth: Tensor,
) -> None:
    """Measured `counted` at `hours`, and a panel for each curve {temperature: its heights at `xs`} through them.

    `truth` is what the counts scatter around, at `xs`: the same dashed line in each panel. `errors` {temperature: an
    error on hidden counts} stand in the titles. A panel in the middle names its two lines.
    """
    drawn, axes = figure(8.8, 2.9, columns=len(curves))
    said, highest = [], float(counted.max())
    for ax, (T, curve) in zip(axes, curves.items(), strict=True):
        ax.scatter(hours.tolist(), counted.tolist(), color=[(*rgb(BLUE), 0.5)], s=16, zorder=2)
        ax.plot(xs.tolist(), truth.tolist(), color=INK, linewidth=1.3, linestyle="--", zorder=3)
        ax.plot(xs.tolist(), curve.tolist(), color=ORANGE, linewidth=2, zorder=3)
        ax.set_title(f"T = {T:g}: RMSE {errors[T]:.0f}", fontsize=11)
        ax.set_xlim(0, 24)
        ax.set_ylim(-10, 1.05 * highest)
        ax.set_xticks(range(0, 25, 6))
        ax.set_xlabel("hour of the day")
        ax.grid(axis="y", color=PALE, linewidth=0.8)
        ax.set_axisbelow(True)
        ax.tick_params(labelleft=ax is axes[0])
        said.append(f"T = {T:g}: from {curve.min():.0f} to {curve.max():.0f}, RMSE {errors[T]:.0f}")
    ax = axes[len(axes) // 2]
    ax.text(12.8, 0.86 * highest, "true curve", ha="center", va="center", fontsize=10, color=INK)
    ax.text(12.3, 0.5 * highest, "soft\nlookup", ha="center", va="center", fontsize=10, color=ORANGE)
    axes[0].set_ylabel("bicycles in an hour")
    show(
        drawn,
        f"{len(hours)} counts, up to {counted.max():.0f}, the curve that they scatter around, from {truth.min():.0f} "
        f"to {truth.max():.0f}, and a soft lookup of them. {'; '.join(said)}.",
    )


def score_landscapes(
    scores: Mapping[str, Callable[[Tensor, Tensor], Tensor]],
    query: Tensor,
    keys: Tensor,
    labels: Sequence[str],
    title: str = "",
) -> tuple[Figure, str]:
    """Score functions {name: score}, a panel each: what they give a query (2,) and every place where a key could be.

    `keys` (n_keys, 2) are the keys that there are: each is a dot that grows with its weight, softmax of the scores,
    which stands beside it. Returns the figure and the words for it: for `explore`.
    """
    side = torch.linspace(-2, 2, 41)
    plane = torch.stack(torch.meshgrid(side, side, indexing="xy"), dim=-1).view(-1, 2)  # (41 · 41, 2)
    drawn, axes = figure(9.2, 3.4, columns=len(scores))
    hold_still(drawn, left=0.07, right=0.91, bottom=0.15, top=0.86, wspace=0.08)
    drawn.supxlabel("key, first number", fontsize=10.5)
    drawn.supylabel("key, second number", fontsize=10.5)
    levels, said = np.arange(-3.5, 4, 0.5), []
    for ax, (name, score) in zip(axes, scores.items(), strict=True):
        with torch.no_grad():
            heights = score(query[None], plane)[0].view(41, 41)
            weights = score(query[None], keys)[0].softmax(dim=-1)
        shade = ax.contourf(side, side, heights, levels=levels, cmap=HEIGHTS, extend="both")
        shade.set_rasterized(True)
        ax.contour(side, side, heights, levels=levels[1::2], colors=GREY, linewidths=0.7)
        arrow(ax, (0, 0), tuple(query.tolist()), colour=GREEN, width=2.2)
        for (x, y), label, weight in zip(keys.tolist(), labels, weights.tolist(), strict=True):
            ax.scatter([x], [y], s=20 + 300 * weight, color=BLUE, edgecolor="white", zorder=4)
            side_of = "right" if x > 1.4 else "center"                                      # inside of the panel
            ax.annotate(f"{label} {weight:.2f}", (x, y), (0, 4 + 7 * weight**0.5), textcoords="offset points",
                        ha=side_of, va="bottom", fontsize=9, color=INK, zorder=5,
                        path_effects=[withStroke(linewidth=2.5, foreground="white")])  # fmt: skip
        ax.set_aspect("equal")
        ax.set_xticks([-2, 0, 2])
        ax.set_yticks([-2, 0, 2])
        ax.tick_params(labelleft=ax is axes[0])
        best = labels[int(weights.argmax())]
        ax.set_title(f"{name}: {best} gets most", fontsize=10.5)
        each = ", ".join(f"{label} {weight:.2f}" for label, weight in zip(labels, weights.tolist(), strict=True))
        said.append(f"{name}: scores from {heights.min():.1f} to {heights.max():.1f}; weights {each}")
    key = drawn.colorbar(shade, cax=drawn.add_axes((0.93, 0.2, 0.014, 0.6)), ticks=range(-3, 4))
    key.set_label("score of a key at this place", fontsize=10)
    if title:
        drawn.suptitle(title, fontsize=11)
    return drawn, (
        f"Score landscapes{f', {title}' if title else ''}, for the query ({query[0]:.2f}, {query[1]:.2f}), darker "
        f"where a key would get a higher score. {'. '.join(said)}."
    )


def hill(query: Tensor, key: Tensor) -> Tensor:
    """An additive score, set by hand, that prefers what is near: (n_query, 2), (n_key, 2) to (n_query, n_key).

    Its four hidden units see how far the key lies to the right of the query, to its left, above it, and below it.
    """
    sides = 1.5 * torch.tensor([[1.0, -1.0, 0.0, 0.0], [0.0, 0.0, 1.0, -1.0]])          # (2, 4)
    pairs = (query @ -sides)[:, None] + (key @ sides)[None] - 1.0                       # (n_query, n_key, 4)
    return torch.tanh(pairs) @ torch.full((4,), -2.0) - 3.0


def learned_keys(vectors: Tensor, title: str = "") -> tuple[Figure, str]:
    """The vectors of the hours, (n_hours, 2), each with its number and colour, joined in the order of the day.

    All frames have the same frame, ±3.5. Where all vectors are shorter than 1, the discs are small, and only 7 and 8
    have their numbers, outside of the crowd. Returns the figure and the words for it: for `explore`.
    """
    drawn, ax = figure(4.5, 4.5)                             # whole pixels, also side by side
    hold_still(drawn, left=0.13, right=0.98, bottom=0.12, top=0.92)
    ax.set_xlabel("first number of the vector")
    ax.set_ylabel("second number of the vector")
    crowded = float(vectors.norm(dim=-1).max()) < 1.0
    around = torch.cat([vectors, vectors[:1]])
    ax.plot(around[:, 0].tolist(), around[:, 1].tolist(), color=GREY, linewidth=1, zorder=2)
    colours = [AROUND(hour / len(vectors)) for hour in range(len(vectors))]
    ax.scatter(vectors[:, 0].tolist(), vectors[:, 1].tolist(), s=36 if crowded else 190, color=colours,
               edgecolor=INK, linewidth=0.5, zorder=3)  # fmt: skip
    for hour, (x, y) in () if crowded else enumerate(vectors.tolist()):
        ax.text(x, y, f"{hour}", ha="center", va="center", fontsize=9, color=INK, zorder=4)
    for hour in (7, 8) if crowded and len(vectors) > 8 else ():
        place = vectors[hour] / vectors[hour].norm().clamp(min=1e-9) * 1.3
        ax.annotate(f"{hour}", tuple(vectors[hour].tolist()), tuple(place.tolist()), ha="center", va="center",
                    fontsize=9, color=INK, zorder=5, arrowprops={"arrowstyle": "-", "color": INK})  # fmt: skip
    ax.set_xlim(-3.5, 3.5)
    ax.set_ylim(-3.5, 3.5)
    ax.set_aspect("equal")
    ax.set_xticks([-3, 0, 3])
    ax.set_yticks([-3, 0, 3])
    if title:
        ax.set_title(title, fontsize=11)
    lengths = vectors.norm(dim=-1)
    return drawn, (
        f"The vectors of {len(vectors)} hours in the plane{f', {title}' if title else ''}, joined from hour to hour. "
        f"Their lengths lie between {lengths.min():.2f} and {lengths.max():.2f}; steps from one hour to the next add "
        f"up to {turns(vectors):+.1f} turns.".replace("-", "−")
    )


def turns(vectors: Tensor) -> float:
    """How often vectors (n, 2) go round the origin on the way from each to the next and back to the first."""
    angle = torch.atan2(vectors[:, 1], vectors[:, 0])
    steps = (angle.roll(-1) - angle + np.pi) % (2 * np.pi) - np.pi
    return float(steps.sum() / (2 * np.pi))


def losses_by_width(
    ends: Mapping[str, Mapping[int, Sequence[float]]], equal_weights: float, lone: tuple[str, int, str] | None = None
) -> None:
    """{score: {d_k: one loss a seed}}, with a dotted level at the loss of equal weights.

    Every run is a mark, those of the first score a little to the left; a line joins the medians of a score. `lone`, a
    score, a width and words: these are said of its worst run there.
    """
    drawn, ax = figure(6.4, 3.4)
    ax.axhline(equal_weights, color=INK, linewidth=1.2, linestyle=":")
    ax.annotate("equal weights: nothing learned", (min(next(iter(ends.values()))), equal_weights), (-10, 3),
                textcoords="offset points", ha="left", va="bottom", fontsize=10, color=INK)  # fmt: skip
    said = []
    for i, (name, points) in enumerate(ends.items()):
        style = line_style(i) | {"markersize": 8, "markeredgewidth": 1.6, "markerfacecolor": "white"}
        aside = (0.96, 1.04)[i % 2]
        medians = [float(np.median(values)) for values in points.values()]
        ax.plot([aside * x for x in points], medians, **style | {"marker": "", "linewidth": 1.4})
        ax.plot([aside * x for x, ys in points.items() for _ in ys], [y for ys in points.values() for y in ys],
                **style | {"linestyle": "none"})  # fmt: skip
        ax.text(1.2 * max(points), medians[-1], name, ha="left", va="center", fontsize=10, color=style["color"])
        each = ", ".join(f"{min(ys):.2f} to {max(ys):.2f} at {x}" for x, ys in points.items())
        said.append(f"{name}: {each}")
        if lone and lone[0] == name:
            ax.annotate(lone[2], (aside * lone[1], max(points[lone[1]])), (-10, 0), textcoords="offset points",
                        ha="right", va="center", fontsize=10, color=style["color"])  # fmt: skip
    ax.set_xscale("log")
    ax.set_xticks(list(points), [f"{x}" for x in points])
    ax.minorticks_off()
    ax.set_xlim(right=2.8 * max(points))
    ax.set_ylim(bottom=0)
    ax.grid(axis="y", color=PALE, linewidth=0.8)
    ax.set_axisbelow(True)
    ax.set_xlabel("width $d_k$ of queries and keys")
    ax.set_ylabel("squared error after 150 steps")
    words = f"{'; '.join(said)}; equal weights have {equal_weights:.2f}"
    show(drawn, f"Loss after 150 steps against the width d_k, a point for each seed. {words}.")


def scores_by_width(
    spread: Mapping[str, Mapping[int, Sequence[float]]],
    entropy: Mapping[str, Mapping[int, Sequence[float]]],
    n_keys: int,
) -> None:
    """What the width of queries and keys makes of scores and weights: {name: {d_k: one value a seed}} each.

    On the left the scores' standard deviation, on the right the entropy of the weights, with its most, ln n_keys.
    """
    drawn, (left, right) = figure(8.6, 3.3, columns=2)
    said = ["standard deviation of the scores: " + "; ".join(_runs(left, spread))]
    left.set_yscale("log", base=2)
    left.yaxis.set_major_formatter("{x:g}")
    left.set_ylabel("standard deviation of the scores")
    most = float(np.log(n_keys))
    said.append("entropy of the weights: " + "; ".join(_runs(right, entropy)))
    right.axhline(most, color=INK, linewidth=1.2, linestyle=":")
    widths = sorted(next(iter(entropy.values())))
    right.annotate(f"equal weights: ln {n_keys}", (widths[0], most), (0, -3), textcoords="offset points", ha="left",
                   va="top", fontsize=9.5, color=INK)  # fmt: skip
    right.set_ylim(0, 1.08 * most)
    right.set_ylabel("entropy of the weights (nats)")
    for ax in (left, right):
        ax.set_xlabel("width $d_k$ of queries and keys")
        ax.grid(axis="y", color=PALE, linewidth=0.8)
        ax.set_axisbelow(True)
    show(drawn, f"Against the width d_k, a point for each seed. {'. '.join(said)}. Equal weights have {most:.2f}.")


def _runs(ax: Axes, runs: Mapping[str, Mapping[int, Sequence[float]]]) -> list[str]:
    """Every run a point, a line through their means with its name at a middle width. Says the means of each line."""
    said = []
    widths = list(next(iter(runs.values())))
    middle = len(widths) // 2
    for i, (name, means) in enumerate(runs_and_means(ax, runs).items()):
        each = ", ".join(f"{mean:.2f} at {x}" for x, mean in zip(runs[name], means, strict=True))
        said.append(f"{name}: means {each}")
        aside = {"ha": "right", "xytext": (-6, 6)} if means[middle] < means[-1] else {"ha": "left", "xytext": (6, 6)}
        ax.annotate(name, (widths[middle], means[middle]), textcoords="offset points", va="bottom", fontsize=10,
                    color=line_style(i)["color"], **aside)  # fmt: skip
    ax.set_xscale("log")
    ax.set_xticks(widths, [f"{x}" for x in widths])
    ax.minorticks_off()
    return said


def worlds(runs: Mapping[str, Mapping[str, Sequence[float]]], chance: float) -> None:
    """{world: {score: one accuracy a seed}} as a table, a row a world and a column a score: each seed in numbers.

    The darker a cell, the higher the median of its seeds.
    """
    rows, columns = list(runs), list(next(iter(runs.values())))
    medians = [[float(np.median(runs[world][score])) for score in columns] for world in rows]
    drawn, ax = figure(6.8, 2.3)
    ax.pcolormesh(np.array(medians), cmap=HEIGHTS, vmin=0, vmax=1, edgecolors="white", linewidth=2)
    said = []
    for i, world in enumerate(rows):
        for j, score in enumerate(columns):
            each = "   ".join(f"{value:.2f}" for value in runs[world][score])
            ax.text(j + 0.5, i + 0.5, each, ha="center", va="center", fontsize=10.5, color=INK)
        ranges = ", ".join(f"{score} {min(values):.2f} to {max(values):.2f}" for score, values in runs[world].items())
        said.append(f"{world}: {ranges}")
    ax.invert_yaxis()
    ax.spines[:].set_visible(False)
    ax.xaxis.tick_top()
    ax.set_xticks(np.arange(len(columns)) + 0.5, columns)
    ax.set_yticks(np.arange(len(rows)) + 0.5, rows)
    ax.tick_params(length=0, labelsize=10.5)
    ax.set_xlabel(f"accuracy of three seeds; guessing gives {chance:g}")
    ax.xaxis.set_label_position("bottom")
    show(drawn, f"Accuracy of score functions, from seed to seed. {'. '.join(said)}. Guessing gives {chance:.2f}.")


def lookup_table(
    weights: Tensor, queries: Sequence[str], keys: Sequence[str], topics: Sequence[str] = ()
) -> None:
    """Who answers whom, (n_queries, n_keys): darker for more, with the number where a weight is 0.1 or more.

    Each of the `topics`, equally many queries and keys each, in order, has a frame, and its name at the right end of
    its rows; there ✗ marks a query whose largest weight is in another topic. Raises ValueError where the shape does not
    fit the labels, and for what are no weights.
    """
    matrix = as_weights(weights, queries, keys)
    drawn, ax = figure(1.5 + 0.6 * len(keys), 1.0 + 0.27 * len(queries))
    cells(ax, matrix, queries, keys, numbers=False)
    ax.collections[0].set(edgecolor=PALE, linewidth=0.8)
    for (i, j), value in np.ndenumerate(matrix):
        if value >= 0.1:
            colour = "white" if value > 0.6 else INK
            ax.text(j + 0.5, i + 0.5, f"{value:.2f}", ha="center", va="center", fontsize=9, color=colour)
    high, across = len(queries) // max(1, len(topics)), len(keys) // max(1, len(topics))
    for i, topic in enumerate(topics):
        frame = Rectangle((i * across, i * high), across, high, fill=False, edgecolor=ORANGE, linewidth=1.6)
        ax.add_patch(frame).set_clip_on(False)
        ax.text(len(keys) + 0.6, (i + 0.5) * high, topic, ha="left", va="center", fontsize=10, color=ORANGE)
    wrong = [i for i, best in enumerate(matrix.argmax(axis=1)) if topics and best // across != i // high]
    for i in wrong:
        ax.text(len(keys) + 0.3, i + 0.5, "✗", ha="center", va="center", fontsize=10, color=INK)
    ax.xaxis.tick_top()
    ax.xaxis.set_label_position("top")
    turn_labels(ax)
    ax.tick_params(labelsize=9)
    ax.set_xlabel("keys")
    ax.set_ylabel("queries")
    missed = f" In another topic: {', '.join(queries[i] for i in wrong)}." if wrong else ""
    show(drawn, f"Table of weights. {describe(matrix, keys, queries)}{missed}")


def clock_time(hour: float) -> str:
    """An hour of the day as a clock shows it, to the minute: 8.5 is 8:30, and 24 is 0:00."""
    hours, minutes = divmod(round(60 * float(hour)) % (24 * 60), 60)
    return f"{hours}:{minutes:02}"


def _on_the_clock(hour: float) -> tuple[float, float]:
    """Midnight at the top, and on clockwise; a whole turn is a day."""
    angle = np.pi / 2 - 2 * np.pi * hour / 24
    return float(np.cos(angle)), float(np.sin(angle))


def _weight(weight: float) -> str:
    """Two digits; a small weight is not written as if it were zero."""
    return "<0.01" if 0 < weight < 0.005 else f"{weight:.2f}"


def _signed(number: float) -> str:
    return f"{round(number, 2) + 0.0:.2f}".replace("-", "−")   # no −0.00
