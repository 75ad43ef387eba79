"""Deep stacks: what a norm does to a vector, how blocks are put together, what flows through them, runs, landscapes."""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.patches import Circle, Rectangle
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter
from matplotlib.transforms import ScaledTranslation
from torch import Tensor

from attncourse.viz.diagrams import arrow, box
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

# Two directions that span the plane of the vectors with mean 0, and the direction that the mean has.
PLANE = np.array([[1, -1, 0], [1, 1, -2]]) / np.sqrt([[2], [6]])
MEAN = np.ones(3) / np.sqrt(3)
# A formula without its marks, for the words beside a picture.
PLAIN = str.maketrans("", "", "$\\,")


def norm_steps(points: Tensor) -> None:
    """What LayerNorm does to vectors of three numbers (m, 3), in two steps: onto a plane, and there onto a circle.

    Raises ValueError for vectors of another width.
    """
    if points.ndim != 2 or points.shape[1] != 3:
        raise ValueError(f"points: got shape {tuple(points.shape)}, expected (m, 3): only these can be drawn")
    vectors = points.numpy().astype(float)
    flat, high = vectors @ PLANE.T, vectors @ MEAN                        # (m, 2), (m,)
    length = np.linalg.norm(flat, axis=1)
    on_circle = flat / length[:, None] * np.sqrt(3)
    drawn, (side, above) = figure(7.6, 3.5, columns=2)
    reach = 1.12 * max(np.abs(flat).max(), np.abs(high).max(), np.sqrt(3))
    for ax in (side, above):
        ax.set_aspect("equal")
        ax.set_xlim(-reach, reach)
        ax.set_ylim(-reach, reach)
        ax.set_xticks([])
        ax.set_yticks([])
        ax.spines[["left", "bottom"]].set_visible(False)
    side.axhline(0, color=BLUE, linewidth=2, zorder=1)
    side.text(reach, -0.06 * reach, "plane of mean 0", ha="right", va="top", fontsize=10, color=BLUE)
    side.set_ylabel("direction (1, 1, 1)")
    side.set_title("1. subtract the mean (seen from the side)")
    above.add_patch(Circle((0, 0), np.sqrt(3), facecolor="none", edgecolor=BLUE, linewidth=2))
    above.plot(0, 0, "+", color=GREY)
    edge = -np.sqrt(3 / 2)                                                # the circle's point at the lower left
    above.plot([0, edge], [0, edge], ":", color=BLUE, linewidth=1.4)
    above.text(0.5 * edge - 0.12, 0.5 * edge + 0.12, r"$\sqrt{3}$", ha="right", fontsize=11, color=BLUE)
    above.set_title("2. divide by σ (the plane from above)")
    side.set_xlabel("first direction in the plane")
    above.set_xlabel("first direction in the plane")
    above.set_ylabel("second direction in the plane")
    on_the_left = _crowded(flat[:, 0], high, 0.15 * reach)
    for i, (start, end, height) in enumerate(zip(flat, on_circle, high, strict=True)):
        colour = SERIES[i % len(SERIES)]
        if abs(height) > 0.05:
            arrow(side, (start[0], height), (start[0], 0), colour=colour)
        left = i in on_the_left
        side.text(start[0], height, f"{i + 1} " if left else f" {i + 1}", fontsize=10, color=INK, va="center",
                  ha="right" if left else "left")  # fmt: skip
        side.plot(start[0], height, "o", color=colour, markersize=6)
        arrow(above, tuple(start), tuple(end), colour=colour)
        above.plot(*start, "o", color=colour, markersize=6)
        beyond = max(1.0, length[i] / np.sqrt(3)) + 0.13                  # behind the arrow's outer end
        above.text(*(end * beyond), f"{i + 1}", fontsize=10, color=INK, ha="center", va="center")
    show(
        drawn,
        f"{len(vectors)} vectors of three numbers, numbered. From the side they lie between {high.min():.1f} and "
        f"{high.max():.1f} along the direction (1, 1, 1); arrows take them to 0, onto the plane of mean 0. From above, "
        f"in that plane, they lie {length.min():.1f} to {length.max():.1f} from the middle; arrows take them all to "
        f"the circle of radius {np.sqrt(3):.2f}.",
    )


def _crowded(xs: np.ndarray, ys: np.ndarray, reach: float) -> set[int]:
    """Points with another one close by on their right: their numbers stand on the left.

    >>> _crowded(np.array([0.0, 0.1, 5.0]), np.array([0.0, 0.0, 0.0]), reach=1.0)
    {0}
    """
    apart = xs[None, :] - xs[:, None]                                     # (m, m): how far right of i is j
    near = (apart > 0) & (apart < reach) & (abs(ys[None, :] - ys[:, None]) < reach)
    return set(np.flatnonzero(near.any(axis=1)).tolist())


def mean_axes(names: Sequence[str], batch: int = 3, n: int = 4, d: int = 6) -> None:
    """Over which numbers of (batch, n, d) one mean goes: a token's features, a sentence's tokens, all tokens.

    `names` are the three panels' titles, in this order.
    """
    drawn, axes = figure(8.2, 4.4, columns=3)
    sentences = 1, 1, batch                                               # how many of them enter one mean
    for panel, (ax, name) in enumerate(zip(axes, names, strict=True)):
        for b in range(batch):
            for i in range(n):
                for c in range(d):
                    inside = (i == 1 if panel == 0 else c == 2) and b < sentences[panel]
                    ax.add_patch(Rectangle((c, b * (n + 1) + i), 1, 1, edgecolor=GREY, linewidth=0.8,
                                           facecolor=BLUE if inside else "white"))  # fmt: skip
            ax.text(-0.3, b * (n + 1) + n / 2, f"sentence {b + 1}\n{n} tokens", rotation=90, ha="right", va="center",
                    fontsize=9.5, color=INK)  # fmt: skip
        ax.text(d / 2, batch * (n + 1) - 0.7, f"{d} features", ha="center", va="top", fontsize=10, color=INK)
        ax.set(xlim=(-2, d + 0.1), ylim=(batch * (n + 1) + 0.2, -0.1), aspect="equal", title=name)
        ax.axis("off")
    show(
        drawn,
        f"Three times a batch of {batch} sentences of {n} tokens with {d} features. Blue: the numbers of one mean. "
        f"{names[0]}: one row. {names[1]}: one column of one sentence. {names[2]}: that column in all sentences.",
    )


def block_diagrams(blocks: Mapping[str, Sequence[str]], jacobians: Sequence[str] = ()) -> None:
    """How blocks are put together, side by side, from the bottom up: {title: steps}.

    `jacobians`, a formula for each block, stand below them: how the output changes with x.

    A step is "norm" (on the way of x), a branch, which x goes around and to which it is added, or "only name" (nothing
    goes around it). A branch is a sublayer's name, or a chain in the order of reading, such as "norm → name → norm".
    """
    top = 1.6 + max(sum(_height(step) for step in steps) for steps in blocks.values())
    bottom = -1.6 if jacobians else -0.4
    drawn, _ = figure(2.35 * len(blocks) + 0.3, 0.48 + 0.31 * (top - bottom), columns=len(blocks))
    said = []
    for ax, (title, steps) in zip(drawn.axes, blocks.items(), strict=True):
        stage(ax, (-2.3, 3.6), (bottom, top))
        ax.set_title(title)
        y = 0.5
        ax.text(0, 0.0, "$x$", ha="center", va="center", fontsize=12)
        for step in steps:
            y = _step(ax, y, step)
        arrow(ax, (0, y), (0, y + 0.8), colour=BLUE, width=2.2)
        said.append(f"{title}: " + ", then ".join(_step_in_words(step) for step in steps))
    for ax, formula in zip(drawn.axes, jacobians, strict=bool(jacobians)):
        ax.text(0.65, -1.2, f"∂output/∂$x$ = {formula}", ha="center", va="center", fontsize=11, color=INK)
        said[drawn.axes.index(ax)] += f"; its output changes with x by {formula.translate(PLAIN)}"
    show(drawn, f"Blocks, from x upwards. {'. '.join(said)}.")


def _height(step: str) -> float:
    if step == "norm" or step.startswith("only "):
        return 1.7
    return 1.4 + 1.5 * len(step.split(" → "))


def _step(ax: Axes, y: float, step: str) -> float:
    """Draws one step above height y and returns where the next begins."""
    height = _height(step)
    if step == "norm" or step.startswith("only "):
        arrow(ax, (0, y), (0, y + 0.7), colour=BLUE, width=2.2)
        name = step.removeprefix("only ")
        box(ax, 0, y + 1.2, name, ORANGE if step == "norm" else GREEN, width=1.5 if step == "norm" else 3.1)
        return y + height
    ax.plot([0, 0], [y, y + height], color=BLUE, linewidth=2.2)
    ax.plot([0, 1.9], [y + 0.35, y + 0.35], color=GREY, linewidth=1.4)
    at = y + 0.35
    for label in step.split(" → "):
        arrow(ax, (1.9, at), (1.9, at + 0.5))
        box(ax, 1.9, at + 1.0, label, ORANGE if label == "norm" else GREEN, width=1.5 if label == "norm" else 3.1)
        at += 1.5
    ax.plot([1.9, 1.9], [at, y + height - 0.35], color=GREY, linewidth=1.4)
    arrow(ax, (1.9, y + height - 0.35), (0.36, y + height - 0.35))
    ax.add_patch(Circle((0, y + height - 0.35), 0.34, facecolor="white", edgecolor=PURPLE, linewidth=1.6, zorder=3))
    ax.text(0, y + height - 0.37, "+", ha="center", va="center", fontsize=13, color=PURPLE, zorder=4)
    return y + height


def _step_in_words(step: str) -> str:
    if step == "norm":
        return "a norm on the way of x"
    if step.startswith("only "):
        return f"{step.removeprefix('only ')} in place of x"
    *before, name = step.removesuffix(" → norm").split(" → ")
    after = ", normalised," if step.endswith(" → norm") else ""
    return f"{name} of {'a normalised x' if before else 'x'}{after} added to x"


def training_curves(
    runs: Mapping[str, Sequence[Sequence[float]]], y_name: str, level: tuple[str, float] | None = None
) -> None:
    """Losses against steps, {name: a list of losses for each seed}: each seed thin, their mean thick.

    `level` is dotted, with its name.
    """
    drawn, ax = figure(6.6, 3.2)
    said = []
    for i, (name, seeds) in enumerate(runs.items()):
        style = line_style(i)
        steps = range(1, len(seeds[0]) + 1)
        for losses in seeds:
            ax.plot(steps, losses, color=style["color"], linewidth=0.8, alpha=0.6)
        middle = np.mean(seeds, axis=0)
        ax.plot(steps, middle, label=name, markevery=max(1, len(middle) // 8), **style)
        ends = sorted(losses[-1] for losses in seeds)
        said.append(
            f"{name}: from {middle[0]:.2g} to {middle[-1]:.2g}, the seeds end between {ends[0]:.2g} and {ends[-1]:.2g}"
        )
    if level is not None:
        _named_level(ax, *level, below=True)
        said.append(f"{level[0]}: {level[1]:.2f}")
    name_lines(ax, "training step", y_name)
    show(drawn, f"{y_name} against training step, thin lines for seeds and thick for their mean. {'; '.join(said)}.")


def spread_by_sublayer(seeds: Sequence[Sequence[float]], kinds: Sequence[str]) -> None:
    """Token spread at the start and after each sublayer, for each seed; `kinds` are the sublayers of a block in turn.

    A thin line is a seed. A mark says by its shape and colour which kind of sublayer was passed last.
    """
    drawn, ax = figure(7.2, 3.4)
    for spreads in seeds:
        ax.plot(range(len(spreads)), spreads, color=GREY, linewidth=1, zorder=1)
    ax.plot([0] * len(seeds), [spreads[0] for spreads in seeds], "o", color=GREY, markersize=5)
    for i, kind in enumerate(kinds):
        style = line_style(i) | {"linestyle": "none", "markersize": 5.5, "markeredgewidth": 1.3}
        after = range(i + 1, len(seeds[0]), len(kinds))
        points = [(place, spreads[place]) for spreads in seeds for place in after]
        ax.plot(*zip(*points, strict=True), label=f"after {kind}", **style)
    _few_ticks(ax.yaxis, ax)
    name_lines(ax, "sublayers passed", "token spread")
    said = []
    for i, kind in enumerate(kinds):
        changes = [spreads[k] / spreads[k - 1] for spreads in seeds for k in range(i + 1, len(spreads), len(kinds))]
        said.append(f"{kind} multiplies it by {np.exp(np.mean(np.log(changes))):.2f}")
    ends = sorted(spreads[-1] for spreads in seeds)
    show(
        drawn,
        f"Token spread after each of {len(seeds[0]) - 1} sublayers, a line a seed: from {seeds[0][0]:.2f} down "
        f"to between {ends[0]:.2g} and {ends[-1]:.2g}. On average {', '.join(said)}.",
    )


Runs = Mapping[float, Sequence[float | None]]  # {x: a value for each seed}, None where it is no number any more


def runs_over(
    lines: Mapping[str, Runs],
    x_name: str,
    y_name: str,
    log_x: bool = False,
    log_y: bool = False,
    level: tuple[str, float] | None = None,
    highest: float = 20.0,
) -> None:
    """A mark for each seed at each x, and a line through the medians; `level` is dotted, with its name.

    What is above `highest`, or no number any more, stands at the upper edge as an arrow.
    """
    drawn, ax = figure(7.2, 3.6)
    said = _lines_of_runs(ax, lines, log_x, highest)
    if log_y:
        _few_ticks(ax.yaxis, ax)
    if level is not None:
        _named_level(ax, *level)
        said.append(f"{level[0]}: {level[1]:.2f}")
    name_lines(ax, x_name, y_name)
    show(drawn, f"{y_name} against {x_name}, a mark a seed, lines through the medians. {'; '.join(said)}.")


def runs_side_by_side(
    panels: Mapping[str, Mapping[str, Runs]],
    x_name: str,
    y_name: str,
    level: tuple[str, float],
    highest: float = 20.0,
) -> None:
    """The lines of `runs_over`, {panel: {line: runs}}, on logarithmic axes; the panels share their heights."""
    drawn, _ = figure(9.0, 3.4, columns=len(panels))
    said = []
    for ax, (title, lines) in zip(drawn.axes, panels.items(), strict=True):
        said.append(f"{title}: {'; '.join(_lines_of_runs(ax, lines, log_x=True, highest=highest))}")
        _few_ticks(ax.yaxis, ax)
        _named_level(ax, *level)
        name_lines(ax, x_name, "", title)
    _share_heights(drawn, y_name)
    said.append(f"{level[0]}: {level[1]:.2f}")
    show(drawn, f"{y_name} against {x_name}, a mark a seed, lines through the medians. {'. '.join(said)}.")


def runs_by_cause(
    panels: Mapping[str, Mapping[str, Sequence[tuple[float, float]]]],
    y_name: str,
    level: tuple[str, float],
    words: Mapping[str, tuple[float, float]] | None = None,
) -> None:
    """Panels side by side, {name of the x axis: {group: (x, y) of each run}}: a mark a run. They share their heights.

    `level` is dotted, with its name. `words` stand above their places (x, y) in the first panel.
    """
    drawn, _ = figure(8.6, 3.2, columns=len(panels))
    said = []
    for ax, (x_name, groups) in zip(drawn.axes, panels.items(), strict=True):
        for i, (name, runs) in enumerate(groups.items()):
            style = line_style(i) | {"linestyle": "none", "markersize": 6}
            ax.plot(*zip(*runs, strict=True), label=name, **style)
            first, last = min(runs), max(runs)
            said.append(f"{name}: {first[1]:.2f} at a {x_name} of {first[0]:.2f}, {last[1]:.2f} at {last[0]:.2f}")
        _named_level(ax, *level)
        name_lines(ax, x_name, "")
    for word, place in (words or {}).items():
        drawn.axes[0].annotate(word, place, (0, 6), textcoords="offset points", ha="center", va="bottom", fontsize=9.5,
                               color=INK)  # fmt: skip
        said.append(f"{word} at {place[0]:.2f}")
    _share_heights(drawn, y_name)
    said.append(f"{level[0]}: {level[1]:.2f}")
    show(drawn, f"{y_name}, a mark a run. {'; '.join(said)}.")


def _share_heights(drawn: Figure, y_name: str) -> None:
    """One scale for all panels, named at the first; the legend stays in the last alone."""
    ends = [end for ax in drawn.axes for end in ax.get_ylim()]
    for ax in drawn.axes:
        ax.set_ylim(min(ends), max(ends))
        if (legend := ax.get_legend()) and ax is not drawn.axes[-1]:
            legend.remove()
    drawn.axes[0].set_ylabel(y_name)


def _lines_of_runs(ax: Axes, lines: Mapping[str, Runs], log_x: bool, highest: float) -> list[str]:
    """Draws each line's seeds and medians, and returns the medians in words."""
    said = []
    for i, (name, runs) in enumerate(lines.items()):
        style = line_style(i)
        middles = []
        for x, values in runs.items():
            ys = [_at_most(value, highest) for value in values]
            middles.append(float(np.median(ys)))
            within = [y for y in ys if y < highest]
            ax.plot([x] * len(within), within, style["marker"], color=style["color"], markersize=4, alpha=0.7)
            if len(within) < len(ys):
                # Arrows of several lines at one place stand side by side.
                aside = ScaledTranslation((i - (len(lines) - 1) / 2) / 9, 0, ax.figure.dpi_scale_trans)
                ax.plot(x, highest, marker=r"$\uparrow$", color=style["color"], markersize=12, clip_on=False,
                        transform=ax.transData + aside)  # fmt: skip
        inside = [place for place, middle in enumerate(middles) if middle < highest]
        style |= {"markersize": 5, "markeredgewidth": 1} | ({} if inside else {"linestyle": "none"})
        ax.plot(list(runs), middles, label=name, markevery=inside, **style)
        listed = ", ".join(
            f"{'above ' if middle >= highest else ''}{middle:.2g} at {x:g}"
            for x, middle in zip(runs, middles, strict=True)
        )
        said.append(f"{name}: {listed}")
    if log_x:
        ax.set_xscale("log")
        xs = sorted({x for runs in lines.values() for x in runs})
        ax.set_xticks(xs, [f"{x:g}" for x in xs])
        ax.minorticks_off()
    return said


def _named_level(ax: Axes, name: str, height: float, below: bool = False) -> None:
    """A dotted level, its name above (or well below) it on the right, left of where the last marks stand."""
    ax.axhline(height, color=GREY, linestyle=":", linewidth=1.4, zorder=1)
    ax.annotate(name, (1, height), (-24, -10 if below else 3), xycoords=("axes fraction", "data"),
                textcoords="offset points", ha="right", va="top" if below else "bottom", fontsize=10,
                color=GREY)  # fmt: skip


def _at_most(value: float | None, highest: float) -> float:
    return highest if value is None or not np.isfinite(value) else min(value, highest)


def _few_ticks(axis: Axis, ax: Axes) -> None:
    """A logarithmic axis with plain numbers: 0.5, 1, 2, 5, and over many powers of ten these alone."""
    (ax.set_yscale if axis is ax.yaxis else ax.set_xscale)("log")
    low, high = axis.get_view_interval()
    axis.set_major_locator(LogLocator(subs=(1, 2, 5) if high < 500 * low else (1,)))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_formatter(NullFormatter())


def log_slope(line: Mapping[float, float]) -> float:
    """The exponent of the power law that fits positive points {x: y} best.

    >>> log_slope({1: 8.0, 2: 4.0, 4: 2.0})
    -1.0
    """
    return round(float(np.polyfit(np.log(list(line)), np.log(list(line.values())), 1)[0]), 6)


def runs_in_rows(
    groups: Mapping[str, Mapping[str, Mapping[str, Sequence[float | None]]]],
    x_name: str,
    level: tuple[str, float] | None = None,
    highest: float = 20.0,
) -> None:
    """{heading: {row: {setting: a value for each seed}}}: a row for each variant, settings in marks of their own.

    A heading stands in bold above its rows. What is above `highest`, or no number any more, stands at the right edge as
    an arrow.
    """
    lines = [line for heading, rows in groups.items() for line in ((heading, None), *rows.items())]
    drawn, ax = figure(7.6, 0.9 + 0.34 * len(lines))
    settings = list(dict.fromkeys(setting for _, row in lines if row for setting in row))
    said, named = [], set()
    for y, (name, row) in enumerate(lines):
        if row is None:
            said.append(name)
            continue
        ax.axhline(y, color=PALE, linewidth=1, zorder=1)
        for setting, values in row.items():
            i = settings.index(setting)
            style = line_style(i) | {"linestyle": "none", "markersize": 6}
            at = y + 0.24 * (i - (len(settings) - 1) / 2)
            xs = [_at_most(value, highest) for value in values]
            within = [x for x in xs if x < highest]
            ax.plot(within, [at] * len(within), label=None if setting in named else setting, **style)
            named.add(setting)
            if len(within) < len(xs):
                ax.plot(highest, at, marker=r"$\rightarrow$", color=style["color"], markersize=12, clip_on=False)
            # Seeds whose marks coincide are counted.
            beyond = len(xs) - len(within)
            together = len(within) > 2 and max(within) < 1.02 * min(within)
            if beyond > 1 or together:
                place, count = (highest, beyond) if beyond > 1 else (max(within), len(within))
                ax.annotate(f"× {count}", (place, at), (8, 0), textcoords="offset points", fontsize=9,
                            va="top" if 2 * i >= len(settings) else "bottom", color=style["color"],
                            annotation_clip=False)  # fmt: skip
        listed = "; ".join(f"{setting} " + ", ".join("none" if v is None else f"{v:.2f}" for v in values)
                           for setting, values in row.items())  # fmt: skip
        said.append(f"{name}: {listed}")
    _few_ticks(ax.xaxis, ax)
    if level is not None:
        ax.axvline(level[1], color=GREY, linestyle=":", linewidth=1.4, zorder=1)
        ax.annotate(level[0], (level[1], 1), (0, 2), xycoords=("data", "axes fraction"), textcoords="offset points",
                    ha="center", va="bottom", fontsize=10, color=GREY)  # fmt: skip
    ax.set_yticks(range(len(lines)), [name for name, _ in lines])
    for tick, (_, row) in zip(ax.get_yticklabels(), lines, strict=True):
        tick.set_fontweight("bold" if row is None else "normal")
    ax.set_ylim(len(lines) - 0.4, -0.6)
    ax.tick_params(axis="y", length=0)
    ax.set_xlabel(x_name)
    ax.legend(frameon=False, loc="center left", bbox_to_anchor=(1.01, 0.5))
    show(drawn, f"{x_name}, a mark a seed. {'. '.join(said)}.")


Paired = Mapping[str, Mapping[str, tuple[Sequence[float], float]]]  # {row: {setting: (differences, half interval)}}


def paired_runs(groups: Mapping[str, Sequence[float]], differences: Paired, title: str, x_name: str) -> None:
    """Runs of the same seeds, joined across groups; beside them paired differences, a row each, settings in colours.

    A small mark is a seed's difference, a large one the mean, and a bar its interval, of which `half` is half.
    """
    drawn, (left, right) = figure(9.4, 3.1, columns=2)
    names = list(groups)
    for values in zip(*groups.values(), strict=True):
        left.plot(values, range(len(names)), "o-", color=GREY, markerfacecolor=BLUE, markersize=5, linewidth=0.9)
    left.set_yticks(range(len(names)), names)
    left.set_ylim(len(names) - 0.5, -0.5)
    left.tick_params(axis="y", length=0)
    left.set_xlabel(x_name)
    left.set_title("a line joins the runs of a seed")
    right.axvline(0, color=INK, linewidth=1)
    said = []
    for y, (row, settings) in enumerate(differences.items()):
        for i, (setting, (found, half)) in enumerate(settings.items()):
            style = line_style(i)
            at, middle = y + 0.36 * (i - (len(settings) - 1) / 2), float(np.mean(found))
            small = {"color": style["color"], "markersize": 3.5, "alpha": 0.6}
            right.plot(found, [at + 0.13] * len(found), style["marker"], **small)
            right.plot([middle - half, middle + half], [at, at], color=style["color"], linewidth=2.4)
            right.plot(middle, at, style["marker"], color=style["color"], markersize=7.5, linestyle="none",
                       label=None if y else setting)  # fmt: skip
            said.append(f"{row}, {setting}: mean {middle:.4f} ± {half:.4f}".replace("-", "−"))
    right.set_yticks(range(len(differences)), list(differences))
    right.set_ylim(len(differences) - 0.5, -0.5)
    right.tick_params(axis="y", length=0)
    right.set_xlabel("difference (nats per letter)")
    right.set_title(title)
    right.legend(frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5))
    listed = "; ".join(f"{name}: " + ", ".join(f"{value:.3f}" for value in values) for name, values in groups.items())
    show(drawn, f"{x_name}, runs of one seed joined. {listed}. {title}: {'; '.join(said)}.")


def branch_and_norm(ratios: Sequence[float]) -> None:
    """x of length 1, a branch of each ratio at right angles to it, and their sum, which the norm brings to length 1.

    In the last panel two opposite tokens get the same branch, of the last ratio.
    """
    top = max(ratios)
    drawn, axes = figure(8.8, 3.0, columns=len(ratios) + 1)
    said = []
    for ax, r in zip(axes, ratios, strict=False):
        stage(ax, (-0.12, 1.75), (-0.5, top + 0.15))
        ax.set_aspect("equal")
        length = float(np.hypot(1, r))
        left = 1 / length
        arrow(ax, (0, 0), (1, 0), colour=BLUE, width=1.6)
        arrow(ax, (1, 0), (1, r), colour=ORANGE, width=1.6)
        arrow(ax, (0, 0), (1, r), colour=GREY, width=1.2)
        arrow(ax, (0, 0), (left, r / length), colour=PURPLE, width=2.6)
        ax.plot([left, left], [r / length, -0.12], ":", color=PURPLE, linewidth=1.3)
        ax.plot([0, left], [-0.12, -0.12], color=PURPLE, linewidth=3)
        ax.text(left / 2, -0.19, f"{left:.2f} left", ha="center", va="top", fontsize=10, color=PURPLE)
        ax.text(1.06, r / 2, f"branch, {r:g}", va="center", fontsize=10, color=ORANGE)
        ax.text(1.06, -0.02, "$x$", va="center", fontsize=11, color=BLUE)
        ax.set_title(f"r = {r:g}")
        said.append(f"r = {r:g}: the sum is {length:.2f} long, and {left:.2f} of x is left after the norm")
    last = axes[-1]
    stage(last, (-1.35, 1.35), (-0.5, top + 0.15))
    last.set_aspect("equal")
    length = float(np.hypot(1, top))
    circle = last.add_patch(Circle((0, 0), 1, facecolor="none", edgecolor=GREY, linestyle=":", linewidth=1))
    circle.set_clip_path(Rectangle((-1.35, 0), 2.7, 2, transform=last.transData))
    for side in (-1, 1):
        arrow(last, (0, 0), (side, 0), colour=BLUE, width=1.6)
        arrow(last, (side, 0), (side, top), colour=ORANGE, width=1.6)
        arrow(last, (0, 0), (side / length, top / length), colour=PURPLE, width=2.6)
        last.plot([side / length, side], [top / length, top], color=GREY, linewidth=1)
    angle = 2 * np.degrees(np.arctan(1 / top))
    last.text(0, -0.12, "two tokens: 180° apart", ha="center", va="top", fontsize=10, color=BLUE)
    last.text(0, 1.08, f"{angle:.0f}° apart", ha="center", va="bottom", fontsize=10, color=PURPLE)
    last.set_title(f"the same branch for both, r = {top:g}")
    said.append(f"two opposite tokens with the same branch of {top:g}: 180° apart before, {angle:.0f}° after the norm")
    show(drawn, f"A branch at right angles to x, added, and the sum brought to length 1. {'; '.join(said)}.")


Flow = tuple[Sequence[float], Sequence[float]]  # sizes of x, gradients in the blocks


def flow_grid(flows: Mapping[str, Mapping[int, Flow]]) -> None:
    """{placement: {depth: flow}}: above, how large x is after each sublayer; below, the gradient in each block.

    A column for each placement, a line for each depth. Each column has its own scale, with 1 marked.
    """
    drawn, _ = figure(2.35 * len(flows) + 0.6, 4.6, rows=2, columns=len(flows))
    said = []
    for k, (name, by_depth) in enumerate(flows.items()):
        up, down = drawn.axes[k], drawn.axes[k + len(flows)]
        for i, (depth, (sizes, gradients)) in enumerate(by_depth.items()):
            style = line_style(i) | {"markersize": 0, "linestyle": ("-.", "--", "-")[i % 3]}  # the longest is solid
            up.plot(range(len(sizes)), sizes, label=f"{depth} blocks", **style)
            down.plot(range(1, len(gradients) + 1), gradients, **style)
            said.append(
                f"{name}, {depth} blocks: x from {sizes[0]:.2g} to {sizes[-1]:.2g}, gradient {gradients[0]:.2g} in the "
                f"first block and {gradients[-1]:.2g} in the last"
            )
        up.set_title(name)
        up.set_xticks([0, *(2 * depth for depth in by_depth)])
        down.set_xticks([1, *by_depth])
        for ax, values in ((up, [s for sizes, _ in by_depth.values() for s in sizes]),
                           (down, [g for _, gradients in by_depth.values() for g in gradients])):  # fmt: skip
            ax.set_yscale("log")
            ax.set_ylim(min(0.09, 0.5 * min(values)), max(11, 2 * max(values)))
            ax.axhline(1, color=GREY, linestyle=":", linewidth=1)
            ax.minorticks_off()
            ax.tick_params(labelsize=9.5)
        up.set_xlabel("sublayers passed")
        down.set_xlabel("block")
    drawn.axes[0].set_ylabel("size of x")
    drawn.axes[len(flows)].set_ylabel("gradient in the block")
    drawn.legend(*drawn.axes[0].get_legend_handles_labels(), loc="outside upper center", ncols=3, frameon=False,
                 fontsize=9.5)  # fmt: skip
    show(drawn, f"Flows through untrained stacks. {'; '.join(said)}.")


def loss_landscapes(slices: Mapping[str, tuple[Tensor, Tensor]]) -> None:
    """Slices through losses, side by side: {title: (places along a side (m,), losses (m, m))}. Dark is low.

    Lines of equal loss stand at the same heights in all, each ten times the one below it.
    """
    drawn, _ = figure(3.2 * len(slices) + 0.3, 3.3, columns=len(slices))
    levels = [0.01, 0.1, 1.0]
    said = []
    for ax, (title, (side, losses)) in zip(drawn.axes, slices.items(), strict=True):
        low = np.log10(np.clip(losses.numpy().astype(float), 1e-4, 10))
        fills = np.linspace(-4, 1, 21)
        shade = ax.contourf(side, side, low, levels=fills, cmap=WEIGHTS.reversed(), alpha=0.75, extend="both")
        shade.set_rasterized(True)
        lines = ax.contour(side, side, low, levels=np.log10(levels), colors=INK, linewidths=0.9, linestyles="solid")
        ax.clabel(lines, fmt={level: f"{10**level:.2g}" for level in lines.levels}, fontsize=9.5, inline_spacing=2)
        ax.plot(0, 0, "+", color="white", markersize=10, markeredgewidth=2)
        ax.set_aspect("equal")
        ticks = [float(side[0]), 0.0, float(side[-1])]
        ax.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
        ax.set_yticks(ticks, [f"{tick:g}" for tick in ticks])
        ax.set_title(title)
        ax.set_xlabel("along one direction")
        middle = losses[len(side) // 2, len(side) // 2].item()
        share = (losses < 0.1).float().mean().item()
        said.append(
            f"{title}: {middle:.2g} in the middle, at most {losses.max().item():.2g}; below 0.1 in {share:.0%} of it"
        )
    drawn.axes[0].set_ylabel("along another direction")
    key = drawn.colorbar(shade, ax=drawn.axes[: len(slices)], shrink=0.8, ticks=[-4, -3, -2, -1, 0, 1])
    key.ax.set_yticklabels([f"{10.0**tick:g}" for tick in key.get_ticks()], fontsize=9.5)
    key.set_label("loss (nats)", fontsize=10)
    show(drawn, f"Loss on a square slice around where training ended. {'; '.join(said)}.")
