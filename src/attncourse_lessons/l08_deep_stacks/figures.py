"""Deep stacks: what a norm does to a vector, how blocks are put together, what flows through them, and runs."""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
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
        ax.set_aspect("equal", anchor="N")                                # both titles stand at one height
        ax.set_xlim(-reach, reach)
        ax.set_xticks([])
        ax.set_yticks([])
        ax.spines[["left", "bottom"]].set_visible(False)
    side.set_ylim(min(0, high.min()) - 0.2 * reach, max(0, high.max()) + 0.2 * reach)
    heights = [*flat[:, 1], -np.sqrt(3), np.sqrt(3)]
    above.set_ylim(min(heights) - 0.2 * reach, max(heights) + 0.2 * reach)
    side.axhline(0, color=BLUE, linewidth=2, zorder=1)
    side.text(reach, -0.06 * reach, "plane of mean 0", ha="right", va="top", fontsize=10, color=BLUE)
    side.set_ylabel("direction (1, 1, 1)")
    side.set_title("1. subtract the mean\n(the plane seen edge-on: a line)")
    above.add_patch(Circle((0, 0), np.sqrt(3), facecolor="none", edgecolor=BLUE, linewidth=2))
    above.plot(0, 0, "+", color=GREY)
    edge = -np.sqrt(3 / 2)                                                # the circle's point at the lower left
    above.plot([0, edge], [0, edge], ":", color=BLUE, linewidth=1.4)
    above.text(0.5 * edge - 0.12, 0.5 * edge + 0.12, r"$\sqrt{3}$", ha="right", fontsize=11, color=BLUE)
    above.set_title("2. divide by σ\n(the plane seen from above)")
    side.set_xlabel("first direction in the plane")
    above.set_xlabel("first direction in the plane")
    above.set_ylabel("second direction in the plane")
    on_the_left = _crowded(flat[:, 0], high, 0.15 * reach)
    for i, (start, end, height) in enumerate(zip(flat, on_circle, high, strict=True)):
        colour = SERIES[i % len(SERIES)]
        if abs(height) > 0.05:
            arrow(side, (start[0], height), (start[0], 0), colour=colour)
        left = i in on_the_left
        side.annotate(f"{i + 1} " if left else f" {i + 1}", (start[0], height), (-3 if left else 3, 0), fontsize=10,
                      textcoords="offset points", color=INK, va="center", ha="right" if left else "left")  # fmt: skip
        side.plot(start[0], height, "o", color=colour, markersize=6)
        arrow(above, tuple(start), tuple(end), colour=colour)
        above.plot(*start, "o", color=colour, markersize=6)
        beyond = max(1.0, length[i] / np.sqrt(3)) + 0.17                  # behind the arrow's outer end
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
    """Over which numbers of (batch, n, d) one mean goes: a token's features, or a feature of all tokens.

    `names` are the two panels' titles, in this order.
    """
    drawn, axes = figure(7.0, 0.75 + 1.35 * batch, columns=2)
    sentences = 1, batch                                                  # how many of them enter one mean
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
        f"Twice a batch of {batch} sentences of {n} tokens with {d} features. Blue: the numbers of one mean. "
        f"{names[0]}: one row. {names[1]}: one column, in all sentences.",
    )


def block_diagrams(blocks: Mapping[str, Sequence[str]], jacobians: Sequence[str] = ()) -> None:
    """How blocks are put together, side by side, from the bottom up: {title: steps}.

    `jacobians`, a formula for each block, stand below them: how the output changes with x.

    A step is "norm" (on the way of x), a branch, which x goes around and to which it is added, or "only name" (nothing
    goes around it). A branch is a sublayer's name, or a chain in the order of reading, such as "norm → name → norm".
    """
    top = 1.6 + max(sum(_height(step) for step in steps) for steps in blocks.values())
    bottom = -1.6 if jacobians else -0.4
    drawn, _ = figure(2.22 * len(blocks), 0.37 + 0.36 * (top - bottom), columns=len(blocks))
    said = []
    for ax, (title, steps) in zip(drawn.axes, blocks.items(), strict=True):
        stage(ax, (-2.3, 3.6), (bottom, top))
        ax.set_title(title)
        y = 0.5
        ax.text(0, 0.0, "$x$", ha="center", va="center", fontsize=12)
        for step in steps:
            y = _step(ax, y, step)
        arrow(ax, (0, y), (0, top - 0.3), colour=BLUE, width=2.2)          # all outputs stand at one height
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
    _plus(ax, y + height - 0.35, PURPLE)
    return y + height


def _plus(ax: Axes, y: float, colour: str) -> None:
    """The sum at height y of the residual stream."""
    ax.add_patch(Circle((0, y), 0.34, facecolor="white", edgecolor=colour, linewidth=1.6, zorder=3))
    ax.text(0, y - 0.02, "+", ha="center", va="center", fontsize=13, color=colour, zorder=4)


def _step_in_words(step: str) -> str:
    if step == "norm":
        return "a norm on the way of x"
    if step.startswith("only "):
        return f"{step.removeprefix('only ')} in place of x"
    *before, name = step.removesuffix(" → norm").split(" → ")
    after = ", normalised," if step.endswith(" → norm") else ""
    return f"{name} of {'a normalised x' if before else 'x'}{after} added to x"


def residual_paths() -> None:
    """The four paths from x through two residual sublayers, each with its term of the Jacobian of the output."""
    terms = {"$I$": (), "$J_1$": (1,), "$J_2$": (2,), "$J_2\\, J_1$": (1, 2)}
    drawn, axes = figure(8.0, 3.4, columns=len(terms))
    said = []
    for i, (ax, (term, through)) in enumerate(zip(axes, terms.items(), strict=True)):
        stage(ax, (-1.4, 2.7), (-1.9, 6.6))
        ax.set_aspect("equal")
        ax.text(0, 0, "$x$", ha="center", va="center", fontsize=12)
        ax.text(0, 6.3, "output", ha="center", va="center", fontsize=10.5, color=INK)
        for f, y in ((1, 0.8), (2, 3.4)):                                 # where x parts
            inside = f in through
            _part(ax, [(0, y), (0, y + 1.4)], not inside)
            _part(ax, [(0, y), (1.7, y), (1.7, y + 0.4)], inside)
            _part(ax, [(1.7, y + 1.4), (1.7, y + 1.75), (0.34, y + 1.75)], inside)
            box(ax, 1.7, y + 0.9, f"$f_{f}$", GREEN if inside else PALE, width=1.3, text=INK if inside else GREY)
            _plus(ax, y + 1.75, BLUE)
        for start, end in ((0.35, 0.8), (2.89, 3.4), (5.49, 5.95)):
            _part(ax, [(0, start), (0, end)], True)
        said.append(f"{term.translate(PLAIN)}, " + (" and ".join(f"through f_{f}" for f in through) or "past both"))
        ax.set_title("around both" if not through else "through " + " and ".join(f"$f_{f}$" for f in through))
        ax.text(0.65, -1.2, term, ha="center", va="center", fontsize=13, color=INK)
        ax.text(-1.4, -1.2, "+" if i else "∂output/∂$x$  =", ha="center", va="center", fontsize=13 if i else 11)
    show(drawn, f"Four paths from x to the output of two residual sublayers, and their terms: {'; '.join(said)}.")


def _part(ax: Axes, corners: Sequence[tuple[float, float]], on_path: bool) -> None:
    """A part of the network, with an arrow's head where it ends: blue where the path goes, else pale."""
    colour, width = (BLUE, 2.4) if on_path else (PALE, 1.4)
    *first, before, last = corners
    ax.plot(*zip(*first, before, strict=True), color=colour, linewidth=width, zorder=2 + on_path)
    arrow(ax, before, last, colour=colour, width=width)


def training_curves(
    runs: Mapping[str, Sequence[Sequence[float]]], y_name: str, level: tuple[str, float] | None = None
) -> None:
    """Losses against steps, {name: a list of losses for each seed}: each seed thin, their mean thick and named.

    `level` is dotted, with its name.
    """
    drawn, ax = figure(6.8, 3.0)
    said, ends = [], {}
    for i, (name, seeds) in enumerate(runs.items()):
        style = line_style(i) | {"markersize": 0}
        steps = range(1, len(seeds[0]) + 1)
        for losses in seeds:
            ax.plot(steps, losses, color=style["color"], linewidth=0.8, alpha=0.6)
        middle = np.mean(seeds, axis=0)
        ax.plot(steps, middle, **style)
        ends[name] = len(middle), float(middle[-1]), style["color"]
        last = sorted(losses[-1] for losses in seeds)
        said.append(
            f"{name}: from {middle[0]:.2g} to {middle[-1]:.2g}, the seeds end between {last[0]:.2g} and {last[-1]:.2g}"
        )
    if level is not None:
        ax.axhline(level[1], color=GREY, linestyle=":", linewidth=1.4, zorder=1)
        ends[level[0]] = len(middle), level[1], GREY
        said.append(f"{level[0]}: {level[1]:.2f}")
    name_lines(ax, "training step", y_name)
    _names_beside(ax, ends)
    show(drawn, f"{y_name} against training step, thin lines for seeds and thick for their mean. {'; '.join(said)}.")


def _names_beside(ax: Axes, points: Mapping[str, tuple[float, float, str]]) -> None:
    """Each name right of its point (x, y), in its colour; names at one x that would touch move up and down."""
    low, high = (float(_on_scale(ax, end)) for end in ax.get_ylim())
    place, whole = ax.get_subplotspec(), ax.get_figure(root=True)
    assert place and whole
    per_unit = 52 * whole.get_figheight() / place.get_gridspec().nrows / (high - low)  # printer's points, about
    for at in dict.fromkeys(x for x, _, _ in points.values()):
        names = sorted((name for name, (x, _, _) in points.items() if x == at), key=lambda name: points[name][1])
        wished = [float(_on_scale(ax, points[name][1])) * per_unit for name in names]
        placed: list[float] = []
        for height in wished:
            placed.append(max(height, placed[-1] + 13) if placed else height)
        back = (sum(placed) - sum(wished)) / len(names)                   # the names stay around their lines
        for name, height, wish in zip(names, placed, wished, strict=True):
            _, y, colour = points[name]
            ax.annotate(name, (at, y), (8, height - wish - back), textcoords="offset points", ha="left", va="center",
                        fontsize=10, color=colour, annotation_clip=False, zorder=6,
                        bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.4})  # fmt: skip


def _on_scale(ax: Axes, y: float) -> float:
    return np.log10(y) if ax.get_yscale() == "log" else y


def spread_by_sublayer(seeds: Sequence[Sequence[float]], kinds: Sequence[str]) -> None:
    """Token spread at the start and after each sublayer, for each seed; `kinds` are the sublayers of a block in turn.

    A thin line is a seed. A mark says by its shape and colour which kind of sublayer was passed last, and its name by
    what factor this kind multiplies the token spread, in the geometric mean.
    """
    drawn, ax = figure(6.8, 3.2)
    for i, spreads in enumerate(seeds):
        ax.plot(range(len(spreads)), spreads, ("-", "--", ":")[i % 3], color=GREY, linewidth=1.2, zorder=1)
    ax.plot([0] * len(seeds), [spreads[0] for spreads in seeds], "o", color=GREY, markersize=5)
    said = []
    for i, kind in enumerate(kinds):
        style = line_style(i) | {"linestyle": "none", "markersize": 5.5, "markeredgewidth": 1.3}
        after = range(i + 1, len(seeds[0]), len(kinds))
        points = [(place, spreads[place]) for spreads in seeds for place in after]
        factor = np.exp(np.mean([np.log(spreads[k] / spreads[k - 1]) for spreads in seeds for k in after]))
        ax.plot(*zip(*points, strict=True), label=f"after {kind}: × {factor:.2f}", **style)
        said.append(f"{kind} multiplies it by {factor:.2f}")
    _few_ticks(ax.yaxis, ax)
    name_lines(ax, "sublayers passed", "token spread")
    ax.legend(frameon=False, loc="upper right", handlelength=1, fontsize=10.5)
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
    level_left: bool = False,
    until: tuple[str, float] | None = None,
    join_seeds: bool = False,
    beside: Mapping[str, str] | None = None,
    highest: float = 20.0,
    symlog_x: Sequence[float] = (),
) -> None:
    """A mark for each seed at each x, and a line through the medians, named at its end; `level` is dotted.

    What is above `highest`, or no number any more, stands at the upper edge as an arrow. `until` shades all before an x
    and names it; `join_seeds` draws a thin line through each seed's marks. A line of {line: another} in `beside` has no
    marks, and is dotted in the other's colour. With ticks in `symlog_x`, the x-axis is logarithmic from 1 on.
    """
    drawn, ax = figure(7.2, 3.4)
    if until is not None:
        ax.axvspan(0, until[1], color=PALE, alpha=0.6, zorder=0)
        middle = until[1] / (10 if symlog_x else 2)
        ax.annotate(until[0], (middle, 1), (0, -4), xycoords=("data", "axes fraction"), ha="center", va="top",
                    textcoords="offset points", fontsize=10, color=GREY)  # fmt: skip
    if join_seeds:
        for name, runs in lines.items():
            style = _style(lines, name, beside)
            for seed in zip(*runs.values(), strict=True):
                ax.plot(list(runs), seed, color=style["color"], linestyle=style["linestyle"], linewidth=0.8, alpha=0.6)
    said, medians = _lines_of_runs(ax, lines, log_x, highest, beside)
    if log_y:
        _few_ticks(ax.yaxis, ax)
    if symlog_x:
        ax.set_xscale("symlog", linthresh=1, linscale=0.5)
        ax.set_xticks(symlog_x, [f"{x:g}" for x in symlog_x])
        ax.minorticks_off()
    if level is not None:
        ax.axhline(level[1], color=GREY, linestyle=":", linewidth=1.4, zorder=1)
        _say_level(ax, *level, left=level_left)
        if level_left:
            ax.set_ylim(top=1.1 * ax.get_ylim()[1])                       # room for the name
        said.append(f"{level[0]}: {level[1]:.2f}")
    name_lines(ax, x_name, y_name)
    _names_beside(ax, _ends(medians, beside=beside))
    show(drawn, f"{y_name} against {x_name}, a mark a seed, lines through the medians. {'; '.join(said)}.")


def _style(lines: Mapping[str, object], name: str, beside: Mapping[str, str] | None) -> dict:
    """How a line is drawn; one that is `beside` another has its colour, and dots in place of dashes and marks.

    >>> _style({"run": 1, "guess": 2}, "guess", {"guess": "run"})["color"] == line_style(0)["color"]
    True
    """
    other = (beside or {}).get(name, name)
    style = line_style(list(lines).index(other))
    if beside is not None:
        style |= {"linestyle": "-" if name == other else ":"}
    return style | ({"marker": ""} if name != other else {})


def runs_side_by_side(
    panels: Mapping[str, Mapping[str, Runs]],
    x_name: str,
    y_name: str,
    level: tuple[str, float],
    highest: float = 20.0,
    named_at: Mapping[str, Mapping[str, float]] | None = None,
) -> None:
    """The lines of `runs_over`, {panel: {line: runs}}, on logarithmic axes; the panels share their heights.

    A line's name stands at its end, or at the x of {panel: {line: x}}.
    """
    drawn, _ = figure(9.0, 3.2, columns=len(panels))
    said, medians = [], []
    for ax, (title, lines) in zip(drawn.axes, panels.items(), strict=True):
        words, middles = _lines_of_runs(ax, lines, log_x=True, highest=highest, apart=6)
        said.append(f"{title}: {'; '.join(words)}")
        medians.append(middles)
        _few_ticks(ax.yaxis, ax)
        ax.axhline(level[1], color=GREY, linestyle=":", linewidth=1.4, zorder=1)
        name_lines(ax, x_name, "", title)
    ends = [end for ax in drawn.axes for end in ax.get_ylim()]
    for ax, title, middles in zip(drawn.axes, panels, medians, strict=True):
        ax.set_ylim(min(ends), 1.15 * max(ends))                          # room for the level's name
        _names_beside(ax, _ends(middles, (named_at or {}).get(title)))
        _say_level(ax, *level, left=True)
    drawn.axes[0].set_ylabel(y_name)
    said.append(f"{level[0]}: {level[1]:.2f}")
    y_name = y_name.replace("\n", " ")
    show(drawn, f"{y_name} against {x_name}, a mark a seed, lines through the medians. {'. '.join(said)}.")


def _ends(
    medians: Mapping[str, Mapping[float, float]],
    at: Mapping[str, float] | None = None,
    beside: Mapping[str, str] | None = None,
) -> dict[str, tuple[float, float, str]]:
    """Where the name of each line stands: its last place, or at the x that `at` has for it; and the line's colour."""
    found = {}
    for name, line in medians.items():
        x = (at or {}).get(name, max(line))
        found[name] = x, line[x], _style(medians, name, beside)["color"]
    return found


def _lines_of_runs(
    ax: Axes,
    lines: Mapping[str, Runs],
    log_x: bool,
    highest: float,
    beside: Mapping[str, str] | None = None,
    apart: float = 0.0,
) -> tuple[list[str], dict[str, dict[float, float]]]:
    """Draws each line's seeds and medians, and returns the medians, in words and as {line: {x: median}}.

    The marks of several lines at one x stand `apart` side by side, in printer's points.
    """
    said, medians = [], {}
    for i, (name, runs) in enumerate(lines.items()):
        style = _style(lines, name, beside)
        # A mark at the median would hide those of the seeds. Marks of earlier lines are larger, so that they show
        # behind later ones at the same place, and full marks have a white edge, so that they show on one another.
        later = sum(each not in (beside or {}) for each in list(lines)[i + 1 :])
        mark = style | {"linestyle": "none", "markersize": 5 + 1.5 * later, "markeredgewidth": 1.2 if i == 0 else 0.7}
        mark |= {} if i == 0 else {"markersize": 6 + later, "markeredgecolor": "white"}
        mark["zorder"] = style["zorder"] + 1
        middles = []
        for x, values in runs.items():
            ys = [_at_most(value, highest) for value in values]
            middles.append(float(np.median(ys)))
            within = [y for y in ys if y < highest]
            beneath = ScaledTranslation(apart * (i - (len(lines) - 1) / 2) / 72, 0, ax.figure.dpi_scale_trans)
            ax.plot([x] * len(within), within, transform=ax.transData + beneath, **mark)
            if len(within) < len(ys):
                # Arrows of several lines at one place stand side by side.
                aside = ScaledTranslation((i - (len(lines) - 1) / 2) / 9, 0, ax.figure.dpi_scale_trans)
                ax.plot(x, highest, marker=r"$\uparrow$", color=style["color"], markersize=12, clip_on=False,
                        transform=ax.transData + aside)  # fmt: skip
        style |= {"marker": ""} | ({} if min(middles) < highest else {"linestyle": "none"})
        ax.plot(list(runs), middles, **style)
        medians[name] = dict(zip(runs, middles, strict=True))
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
    return said, medians


def _say_level(ax: Axes, name: str, height: float, left: bool = False) -> None:
    """The name of a dotted level, above it: at its left end, or left of where the last marks stand."""
    ax.annotate(name, (0 if left else 1, height), (8 if left else -24, 3), xycoords=("axes fraction", "data"),
                textcoords="offset points", ha="left" if left else "right", va="bottom", fontsize=10,
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
            style |= {} if i == 0 else {"markeredgecolor": "white", "markeredgewidth": 0.7, "markersize": 7}
            at = y + 0.24 * (i - (len(settings) - 1) / 2)
            xs = [_at_most(value, highest) for value in values]
            within = [x for x in xs if x < highest]
            ax.plot(within, [at] * len(within), label=None if setting in named else setting, **style)
            named.add(setting)
            if len(within) < len(xs):
                ax.plot(highest, at, marker=r"$\rightarrow$", color=style["color"], markersize=12, clip_on=False)
            # Seeds whose marks coincide are counted, and so are those beyond the edge.
            beyond = len(xs) - len(within)
            together = len(within) > 2 and max(within) < 1.02 * min(within)
            if beyond > 1 or together:
                place, words = max(within, default=highest), f"{len(within)} seeds"
                if beyond > 1:
                    place, words = highest, f"{beyond} seeds above {highest:g}"
                ax.annotate(words, (place, at), (8, 0), textcoords="offset points", fontsize=9,
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
    ax.legend(frameon=False, loc="lower left", bbox_to_anchor=(0, 1), ncols=len(settings), handlelength=1,
              columnspacing=1.2, borderaxespad=0.2)  # fmt: skip
    show(drawn, f"{x_name}, a mark a seed. {'. '.join(said)}.")


def branch_and_norm(ratios: Sequence[float]) -> None:
    """x of length 1, a branch of each ratio at right angles to it, and their sum, which the norm brings to length 1.

    In the last panel two opposite tokens get the same branch, of the last ratio.
    """
    top = max(ratios)
    drawn, axes = figure(8.8, 3.0, columns=len(ratios) + 1)
    said = []
    for ax, r in zip(axes, ratios, strict=False):
        stage(ax, (-0.12, 1.75), (-0.6, top + 0.15))
        ax.set_aspect("equal")
        length = float(np.hypot(1, r))
        left = 1 / length
        arrow(ax, (0, 0), (1, 0), colour=BLUE, width=1.6)
        arrow(ax, (1, 0), (1, r), colour=ORANGE, width=1.6)
        arrow(ax, (0, 0), (1, r), colour=GREY, width=1.2)
        arrow(ax, (0, 0), (left, r / length), colour=PURPLE, width=2.6)
        ax.plot([left, left], [r / length, -0.22], ":", color=PURPLE, linewidth=1.3)
        ax.plot([0, left], [-0.22, -0.22], color=PURPLE, linewidth=3)
        ax.text(left / 2, -0.29, f"{left:.2f} left", ha="center", va="top", fontsize=10, color=PURPLE)
        ax.text(1.06, max(r / 2, 0.16), f"branch, {r:g}", va="center", fontsize=10, color=ORANGE)
        ax.text(1.06, -0.06, "$x$", va="center", fontsize=11, color=BLUE)
        if r == top:                                                      # where there is room beside the arrows
            ax.text(0.72, 1.55, "$x$ + branch", ha="right", va="center", fontsize=10, color=GREY)
            ax.text(0.19, 0.55, "after the norm", ha="right", va="center", fontsize=10, color=PURPLE)
        else:
            ax.text(left / 2, r / length + 0.05, "after the norm", ha="center", fontsize=10, color=PURPLE)
        ax.set_title(f"r = {r:g}")
        said.append(f"r = {r:g}: the sum is {length:.2f} long, and {left:.2f} of x is left after the norm")
    last = axes[-1]
    stage(last, (-1.35, 1.35), (-0.6, top + 0.15))
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
    last.text(0, 1.08, f"after the norm:\n{angle:.0f}° apart", ha="center", va="bottom", fontsize=10, color=PURPLE)
    last.set_title(f"the same branch for both, r = {top:g}")
    said.append(f"two opposite tokens with the same branch of {top:g}: 180° apart before, {angle:.0f}° after the norm")
    show(drawn, f"A branch at right angles to x, added, and the sum brought to length 1. {'; '.join(said)}.")


Flow = tuple[Sequence[float], Sequence[float]]  # sizes of x, gradients with respect to x


def flows_and_walk(
    flows: Mapping[str, Flow], walk: Sequence[float], others: Mapping[str, Sequence[Flow]] | None = None
) -> None:
    """{placement: flow}: how large x is after each sublayer, and its gradient there, on logarithmic scales.

    `others` are the flows of more seeds, drawn thin. The last panel has x in the last placement once more, beside a
    random walk of as many steps, and no logarithm.
    """
    drawn, (up, back, alone) = figure(9.0, 3.1, columns=3)
    said, tops, ends = [], {}, {}
    for i, (name, (sizes, gradients)) in enumerate(flows.items()):
        style = line_style(i) | {"markersize": 0}
        up.plot(range(len(sizes)), sizes, **style)
        back.plot(range(len(gradients)), gradients, **style)
        for flow in (others or {}).get(name, ()):
            for ax, heights in zip((up, back), flow, strict=True):
                ax.plot(range(len(heights)), heights, color=style["color"], linewidth=0.9, alpha=0.7)
        tops[name] = len(sizes) - 1, sizes[-1], style["color"]
        # A name stands over or under its line, where this is free.
        falls = gradients[0] < 0.1 * gradients[-1]
        at = len(gradients) // (2 if falls else 6)
        above = gradients[0] > 1e3 or (not falls and i % 2 == 0)
        there = [gradients[at], *(each[at] for _, each in (others or {}).get(name, ()))]
        aside = 4 if above or falls else -14
        ends[name] = at, (max if above else min)(there), style["color"], (aside, 6 if above else -6)
        said.append(
            f"{name}: x from {sizes[0]:.2g} at the bottom to {sizes[-1]:.2g} at the top, its gradient from "
            f"{gradients[-1]:.2g} at the top to {gradients[0]:.2g} at the bottom"
        )
    for ax, title in ((up, "size of x →"), (back, "← gradient of x")):
        ax.set_yscale("log")
        ax.minorticks_off()
        ax.set_title(title)
    _names_beside(up, tops)
    for name, (x, y, colour, shift) in ends.items():
        back.annotate(name, (x, y), shift, textcoords="offset points", ha="left",
                      va="bottom" if shift[1] > 0 else "top", fontsize=10, color=colour)  # fmt: skip
    steps = len(sizes) - 1
    alone.plot(range(steps + 1), sizes, **style | {"linestyle": "-"})
    alone.plot(range(len(walk)), walk, color=INK, linestyle=":", linewidth=2)
    alone.set_ylim(0, 1.15 * max(*sizes, *walk))
    alone.set_title(f"size of x in {name}")
    _names_beside(alone, {name: tops[name], "random walk": (len(walk) - 1, walk[-1], INK)})
    said.append(f"a random walk goes from {walk[0]:.2g} to {walk[-1]:.2g}")
    for ax, where in ((up, "sublayers passed"), (back, "⟵ sublayers below"), (alone, "sublayers passed")):
        ax.set_xticks([0, steps // 2, steps])
        ax.set_xlabel(where)
    show(drawn, f"Flows through untrained stacks. {'; '.join(said)}.")
