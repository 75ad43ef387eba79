"""Tables of results as pictures: quality against cost, a leaderboard, differences with their uncertainty."""

from collections.abc import Collection, Mapping, Sequence

import numpy as np
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter, NullLocator
from torch import Tensor

from attncourse.viz.style import (
    BLUE,
    GREY,
    HATCHES,
    INK,
    ORANGE,
    PALE,
    SERIES,
    figure,
    line_style,
    name_lines,
    show,
)

# From where a point's name is written: to the right of it, and where that is taken, elsewhere.
SIDES = {"right": (7, 0), "upper": (7, 7), "lower": (7, -8), "left": (-7, 0), "lower left": (-7, -8),
         "above": (0, 12), "below": (0, -13)}  # fmt: skip


def labelled_points(
    panels: Mapping[str, Mapping[str, tuple[float, float]]],
    x_name: str,
    y_name: str,
    ours: str = "Transformer",
    sides: Mapping[str, str] | None = None,
    alt: str = "",
    hollow: Collection[str] = (),
    room: float = 30.0,
) -> None:
    """A point for each model, {panel: {model: (x, y)}}; squares for those whose name begins with `ours`.

    `sides` says for single models where their name stands: "right" (unless said), "upper" or "lower" right, "left",
    "lower left", or in the middle "above" or "below". Models in `hollow` have a white mark. A name may have two lines.
    The axis ends at `room` times the largest x, so that the names have a place.
    """
    drawn, _ = figure(4.3 * len(panels), 3.7, columns=len(panels))
    said = []
    for ax, (title, points) in zip(drawn.axes, panels.items(), strict=True):
        for name, (x, y) in points.items():
            own = name.startswith(ours)
            colour = ORANGE if own else BLUE
            ax.plot(x, y, "s" if own else "o", color=colour, markersize=9 if own else 7, zorder=3,
                    markerfacecolor="white" if name in hollow else colour, markeredgewidth=1.6)  # fmt: skip
            right, up = SIDES[(sides or {}).get(name, "right")]
            shift = right, up + 5.5 * name.count("\n") * int(np.sign(up))  # two lines: further from the mark
            side = ("center", "left", "right")[np.sign(right)]
            ax.annotate(name, (x, y), shift, textcoords="offset points", ha=side, va="center",
                        fontsize=8.6, fontweight="bold" if own else "normal", color=INK)  # fmt: skip
        ax.set_xscale("log")
        xs, ys = zip(*points.values(), strict=True)
        ax.set_xlim(min(xs) / 2.2, max(xs) * room)
        ax.set_ylim(min(ys) - 0.12 * (max(ys) - min(ys)), max(ys) + 0.12 * (max(ys) - min(ys)))
        ax.set_xlabel(x_name)
        ax.set_ylabel(y_name)
        ax.grid(color=PALE, linewidth=0.8)
        ax.set_axisbelow(True)
        ax.set_title(title)
        listed = "; ".join(f"{name} {y:g} at {x:.2g}" for name, (x, y) in points.items()).replace("\n", " ")
        said.append(f"{title}: {listed}" if title else listed)
    show(drawn, alt or f"{y_name} against {x_name}. {'. '.join(said)}.")


def ranking(
    rows: Sequence[tuple[str, float]], x_name: str, low: float = 0.0, high: float | None = None, alt: str = ""
) -> None:
    """A point a row, in the order given, with its score, on an axis from `low` to `high`."""
    drawn, ax = figure(7.0, 0.9 + 0.32 * len(rows))
    high = 1.1 * max(score for _, score in rows) if high is None else high
    for y, (_, score) in enumerate(rows):
        ax.axhline(y, color=PALE, linewidth=1, zorder=1)
        ax.plot(score, y, "o", color=BLUE, markersize=7, zorder=3)
        ax.annotate(f"{score:g}", (score, y), (8, 0), textcoords="offset points", va="center", fontsize=9, color=INK)
    ax.set_xlim(low, high)
    ax.set_ylim(len(rows) - 0.5, -0.5)
    ax.set_yticks(range(len(rows)), [name for name, _ in rows])
    ax.tick_params(axis="y", length=0)
    ax.set_xlabel(x_name)
    listed = "; ".join(f"{name} {score:g}" for name, score in rows)
    show(drawn, alt or f"{x_name}. {listed}.")


def differences_from_baseline(
    panels: Mapping[str, Mapping[str, tuple[float, float]]],
    x_name: str = "loss, difference from the baseline (nats a token)",
    alt: str = "",
) -> None:
    """How much each variant differs from the baseline, {panel: {variant: (difference, half a bar)}}, less to the left.

    A filled point differs by more than its bar from zero, a hollow one does not. Where there is no bar, half is 0.
    Panels name the same variants or others; a variant that a panel lacks leaves its row empty.
    """
    names = list(dict.fromkeys(name for points in panels.values() for name in points))
    drawn, _ = figure(1.6 + 3.0 * len(panels), 0.9 + 0.29 * len(names), columns=len(panels))
    said = []
    for k, (ax, (title, points)) in enumerate(zip(drawn.axes, panels.items(), strict=True)):
        ax.axvline(0, color=GREY, linewidth=1.2)
        for name, (middle, half) in points.items():
            y = names.index(name)
            beyond = abs(middle) > half
            colour = GREY if not beyond else BLUE if middle < 0 else ORANGE
            marker = "o" if not beyond else "<" if middle < 0 else ">"
            ax.plot([middle - half, middle + half], [y, y], color=colour, linewidth=2, zorder=2)
            ax.plot(middle, y, marker, color=colour, markerfacecolor=colour if beyond else "white", markersize=7,
                    zorder=3)  # fmt: skip
        ax.set_ylim(len(names) - 0.4, -0.6)
        ax.set_yticks(range(len(names)), names if k == 0 else [""] * len(names))
        ax.tick_params(axis="y", length=0)
        ax.grid(color=PALE, linewidth=0.8)
        ax.set_axisbelow(True)
        ax.set_title(title)
        listed = "; ".join(f"{name} {middle:+.3f} ± {half:.3f}" for name, (middle, half) in points.items())
        said.append(f"{title}: {listed}".replace("-", "−") if title else listed)
    drawn.supxlabel(x_name, fontsize=10.5)
    show(drawn, alt or f"{x_name}. {'. '.join(said)}.")


def strip_plot(
    groups: Mapping[str, Sequence[float]], x_name: str, kinds: Mapping[str, str] | None = None, zero: bool = False
) -> None:
    """Single measurements, a row for each group, a mark for each: how far groups differ, and how far their members.

    The marks of a row stand one below the other a little, in their order, so that none hides another.
    With `zero` there is a line at 0. Groups of one of the `kinds` {group: kind} have the same colour and marker, which
    a legend names; without kinds each has its own.
    """
    drawn, ax = figure(6.6, 0.9 + 0.42 * len(groups))
    said = []
    kind_of = {name: kinds[name] if kinds else name for name in groups}
    order = list(dict.fromkeys(kind_of.values()))
    for y, (name, values) in enumerate(groups.items()):
        style = line_style(order.index(kind_of[name])) | {"linestyle": "none"}
        label = kind_of[name] if kinds and kind_of[name] not in ax.get_legend_handles_labels()[1] else None
        steps = [y + 0.4 * ((i + 0.5) / len(values) - 0.5) for i in range(len(values))]
        ax.plot(values, steps, clip_on=False, label=label, **style)
        ax.plot([sum(values) / len(values)] * 2, [y - 0.3, y + 0.3], color=INK, linewidth=1.2)
        said.append(f"{name}: " + ", ".join(f"{value:.3f}" for value in values))
    if zero:
        ax.axvline(0, color=GREY, linewidth=1.2)
    ax.set_yticks(range(len(groups)), list(groups))
    ax.set_ylim(len(groups) - 0.5, -0.5)
    ax.tick_params(axis="y", length=0)
    ax.grid(axis="x", color=PALE, linewidth=0.8)
    ax.set_axisbelow(True)
    ax.set_xlabel(x_name)
    if kinds:
        ax.legend(frameon=False, loc="lower right")
    show(drawn, f"{x_name}, one mark a run, an upright line at each mean. {'; '.join(said)}.")


def function_curves(
    lines: Mapping[str, Tensor],
    xs: Tensor,
    points: tuple[Tensor, Tensor] | None = None,
    x_name: str = "",
    y_name: str = "",
    log_x: bool = False,
    title: str = "",
    alt: str = "",
    x_ticks: Sequence[float] | None = None,
) -> None:
    """Named functions over one axis, each as it is (nothing is smoothed here), and the points that they belong to.

    A function has no markers, so that only what was measured is drawn as points. `x_ticks` are the places that the axis
    names; without them they are chosen.
    """
    drawn, ax = figure(6.6, 3.4)
    if points is not None:
        ax.scatter(points[0].tolist(), points[1].tolist(), color=GREY, s=16, zorder=2, label="measured")
    for i, (name, line) in enumerate(lines.items()):
        style = line_style(i) | {"marker": "", "linestyle": ("-", "--", "-.", ":")[i % 4]}
        ax.plot(xs.tolist(), line.tolist(), label=name, **style)
    if log_x:
        ax.set_xscale("log")
    if x_ticks is not None:
        ax.set_xticks(list(x_ticks))
    name_lines(ax, x_name, y_name, title)
    said = "; ".join(
        f"{name} lies between {line.min():.3g} and {line.max():.3g}, lowest at {xs[line.argmin()]:.3g}, highest at "
        f"{xs[line.argmax()]:.3g}"
        for name, line in lines.items()
    )
    measured = f" {len(points[0])} measured points." if points is not None else ""
    show(drawn, alt or f"{y_name} against {x_name}. {said}.{measured}")


def grouped_bars(
    values: Mapping[str, Mapping[str, float]],
    y_name: str = "share right",
    chance: float | None = None,
    title: str = "",
    alt: str = "",
) -> None:
    """Bars side by side, {series: {group: height from 0 to 1}}, told apart by hatches too; `chance` is dotted."""
    groups = list(next(iter(values.values())))
    drawn, ax = figure(7.2, 3.4)
    width = 0.8 / len(values)
    for i, (name, heights) in enumerate(values.items()):
        xs = np.arange(len(groups)) + (i - (len(values) - 1) / 2) * width
        ys = [heights[group] for group in groups]
        ax.bar(xs, ys, width * 0.94, color=SERIES[i], hatch=HATCHES[i], edgecolor="white", label=name)
        for x, y in zip(xs, ys, strict=True):
            ax.text(x, y + 0.015, f"{y:.2f}", ha="center", va="bottom", fontsize=8, color=INK)
    if chance is not None:
        ax.axhline(chance, color=INK, linewidth=1.2, linestyle=":", label="guessing")
    ax.set_xticks(range(len(groups)), groups)
    ax.set_ylim(0, 1.1)
    ax.set_ylabel(y_name)
    ax.legend(frameon=False, loc="center left", bbox_to_anchor=(1.01, 0.5))
    if title:
        ax.set_title(title)
    said = "; ".join(
        f"{name}: " + ", ".join(f"{heights[group]:.2f} for {group}" for group in groups)
        for name, heights in values.items()
    ).replace("\n", " ")
    guess = f" Guessing gives {chance:.2f}." if chance is not None else ""
    show(drawn, alt or f"{y_name}. {said}.{guess}")


def line_plot(
    lines: Mapping[str, Mapping[float, float]],
    x_name: str,
    y_name: str,
    log_x: bool = False,
    log_y: bool = False,
    low: float | None = None,
    title: str = "",
    alt: str = "",
) -> None:
    """Lines through what was measured, {name: {x: y}}, with a tick at each x: nothing is smoothed.

    `low` is where the y axis begins, if not just below the lowest.
    """
    drawn, ax = figure(6.6, 3.4)
    for i, (name, line) in enumerate(lines.items()):
        ax.plot(list(line), list(line.values()), label=name, **line_style(i))
    if log_x:
        ax.set_xscale("log")
    if log_y:
        ax.set_yscale("log")
        ys = [y for line in lines.values() for y in line.values()]
        if max(ys) < 1000 * min(ys):  # few powers of ten to mark
            ax.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
            ax.yaxis.set_major_formatter(FuncFormatter(lambda y, _: f"{y:,.10g}"))
        ax.yaxis.set_minor_formatter(NullFormatter())
    xs = sorted({x for line in lines.values() for x in line})
    ax.set_xticks(xs)
    ax.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:,.10g}"))
    ax.xaxis.set_minor_locator(NullLocator())
    if low is not None:
        top = max(y for line in lines.values() for y in line.values())
        ax.set_ylim(low, top + 0.05 * (top - low))  # room for the highest marker
    name_lines(ax, x_name, y_name, title)
    said = "; ".join(
        f"{name}: " + ", ".join(f"{y:.3g} at {x:,.10g}" for x, y in line.items()) for name, line in lines.items()
    )
    show(drawn, alt or f"{y_name} against {x_name}. {said}.")
