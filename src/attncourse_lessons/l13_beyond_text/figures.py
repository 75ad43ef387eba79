"""Pictures as sequences of patches, and where a model looks in them; sounds as frames, some of them masked."""

from collections.abc import Collection, Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle
from matplotlib.ticker import MaxNLocator, NullLocator
from torch import Tensor

from attncourse._checks import check_boolean, check_shape
from attncourse.viz.diagrams import arrow, box, rgb
from attncourse.viz.figures import cells
from attncourse.viz.style import (
    AMBER,
    BLUE,
    GREEN,
    GREY,
    HATCHES,
    INK,
    ORANGE,
    PALE,
    PURPLE,
    SERIES,
    WEIGHTS,
    bare,
    check_places,
    figure,
    hold_still,
    line_style,
    name_lines,
    show,
    stage,
)

FEW = 0.045  # an attention weight: what is less has no number where many maps stand close together
DARKEST = 0.6  # an attention weight: what is more is drawn alike, so that a diffuse map looks diffuse
KAPPA = 0.1  # the temperature of the contrastive loss
MOST_FRAMES = 200  # of a sound: with more of them a frame is less than a line
SURE = 1.96  # standard errors to each side: 95 %
APART = ((BLUE, "o", "-"), (AMBER, "s", "--"), (INK, "^", "-."), (GREY, "D", ":"))  # told apart in grey, too


def mistakes(runs: Mapping[str, Sequence[int]], n: int, groups: Mapping[str, str] | None = None) -> None:
    """A row for each model, a mark for each run's mistakes of `n`; the bar is what n test images can tell of the mean.

    It is Wilson's 95 % interval for a share of n. Marks of equal runs stand above each other. Rows that follow each
    other and have the same of the `groups`, {model: group}, stand between lines, with its name beside them.
    Raises ValueError for more mistakes than n, or fewer than none.
    """
    if not all(0 <= wrong <= n for group in runs.values() for wrong in group):
        raise ValueError(f"runs: got {dict(runs)}, expected mistakes from 0 to n = {n}")
    drawn, ax = figure(7.6 if groups else 7.0, 0.9 + 0.38 * len(runs))
    said = []
    for y, (name, wrongs) in enumerate(runs.items()):
        share = sum(wrongs) / len(wrongs) / n
        middle, half = _wilson(share, n)
        ax.barh(y, 2 * n * half, left=n * (middle - half), height=0.5, color=PALE, zorder=1)
        _marks(ax, y, wrongs)
        said.append(f"{name}: {', '.join(map(str, wrongs))}, interval {n * (middle - half):.0f} to "
                    f"{n * (middle + half):.0f}")  # fmt: skip
    for group in dict.fromkeys((groups or {}).values()):
        rows = [y for y, name in enumerate(runs) if (groups or {})[name] == group]
        ax.annotate(group, (1.02, sum(rows) / len(rows)), xycoords=("axes fraction", "data"), va="center", fontsize=10)
        if rows[0]:
            ax.axhline(rows[0] - 0.5, color=GREY, linewidth=0.8)
    ax.set_xlim(left=0)
    ax.set_xlabel(f"mistakes in {n} test images (fewer is better)")
    ax.set_yticks(range(len(runs)), list(runs))
    ax.set_ylim(len(runs) - 0.5, -0.5)
    ax.xaxis.set_major_locator(MaxNLocator("auto", integer=True))
    ax.tick_params(axis="y", length=0)
    ax.grid(axis="x", color=PALE, linewidth=0.8)
    ax.set_axisbelow(True)
    show(drawn, f"Mistakes in {n} test images, a mark a seed, a line at the mean. {'; '.join(said)}.")


def _marks(ax: Axes, y: float, values: Sequence[int]) -> None:
    """A mark for each value of a row, equal ones above each other, and a line at their mean."""
    ax.plot([sum(values) / len(values)] * 2, [y - 0.3, y + 0.3], color=INK, linewidth=1.2, zorder=2)
    above = [values[:i].count(value) - (values.count(value) - 1) / 2 for i, value in enumerate(values)]
    heights = [y + 0.13 * step for step in above]
    ax.plot(values, heights, **line_style(0) | {"linestyle": "none", "markersize": 6, "zorder": 3})


def runs_over(
    lines: Mapping[str, Mapping[float, Sequence[float]]],
    x_name: str,
    y_name: str,
    level: tuple[str, float],
    event: tuple[str, float] | None = None,
    names_left: bool = False,
) -> None:
    """A mark for each seed at each x, and a line through the means; `level` is dotted, with its name.

    Names stand at the right end of their lines, or with `names_left` at the left end, where lines lie further apart.

    What happens at an x, the `event`, is a thin line over all heights, with its name at the top.
    """
    drawn, ax = figure(7.2, 3.5)
    said = []
    for i, (name, runs) in enumerate(lines.items()):
        colour, marker, dashes = APART[i]
        for x, values in runs.items():
            ax.plot([x] * len(values), values, marker, color=colour, markersize=4, markerfacecolor="white")
        means = [sum(values) / len(values) for values in runs.values()]
        ax.plot(list(runs), means, color=colour, linestyle=dashes, linewidth=2, zorder=3)  # named at its end: no label
        end = 0 if names_left else -1
        ax.annotate(name, ([*runs][end], means[end]), (-10 if names_left else 10, 0), textcoords="offset points",
                    ha="right" if names_left else "left", va="center", fontsize=10, color=INK,
                    annotation_clip=False)  # fmt: skip
        said.append(f"{name} from {means[0]:.2f} to {means[-1]:.2f}, lowest {min(means):.2f}")
    ax.axhline(level[1], color=GREY, linestyle=":", linewidth=1.4, zorder=1)
    ax.annotate(level[0], (1.02, level[1]), xycoords=("axes fraction", "data"), va="center", fontsize=10, color=GREY)
    happens = ""
    if event is not None:
        ax.axvline(event[1], color=INK, linewidth=0.8, zorder=1)
        ax.annotate(event[0], (event[1], 1), (5, -2), xycoords=("data", "axes fraction"), textcoords="offset points",
                    ha="left", va="top", fontsize=9.5, color=INK)  # fmt: skip
        happens = f" At {event[1]:g}: {' '.join(event[0].split())}."
    name_lines(ax, x_name, y_name)
    if names_left:
        least, most = ax.get_xlim()
        ax.set_xlim(least - 0.2 * (most - least), most)
        ax.set_xticks([*dict.fromkeys(x for runs in lines.values() for x in runs)])
    show(drawn, f"{y_name} against {x_name}, a mark a seed, lines through the means. {'; '.join(said)}; dotted, "
                f"{level[0]}: {level[1]:.2f}.{happens}")  # fmt: skip


def two_probes(
    groups: Mapping[str, Sequence[tuple[float, float]]],
    x_name: str,
    y_name: str,
    guessing: float,
    before: Mapping[str, Sequence[tuple[float, float]]] | None = None,
    names: tuple[str, str] | None = None,
) -> None:
    """What two probes read, each as a share: a mark (x, y) for each seed of a group; x by `guessing` is dotted.

    Groups may have marks `before`, too: what is read one step earlier. They are hollow and small, with no face, so that
    none hides another. A legend gives the `names` of the full and of the hollow ones.
    """
    drawn, ax = figure(6.8, 3.6)
    said = []
    for i, (name, points) in enumerate(groups.items()):
        xs, ys = zip(*points, strict=True)
        colour, marker, _ = APART[i]
        ax.plot(xs, ys, marker, color=colour, markersize=8, markeredgewidth=2, zorder=3, linestyle="none")
        said.append(f"{name}: " + ", ".join(f"({x:.2f}, {y:.2f})" for x, y in points))
        earlier = (before or {}).get(name, [])
        if earlier:
            ax.plot(*zip(*earlier, strict=True), marker, color=colour, markersize=6, markeredgewidth=1.3, zorder=4,
                    linestyle="none", markerfacecolor="none")  # fmt: skip
            said.append("hollow, before: " + ", ".join(f"({x:.2f}, {y:.2f})" for x, y in earlier))
        ax.annotate(name, (max(x for x, _ in [*points, *earlier]), sum(ys) / len(ys)), (10, 0), fontsize=10, color=INK,
                    textcoords="offset points", ha="left", va="center")  # fmt: skip
    ax.axvline(guessing, color=GREY, linestyle=":", linewidth=1.4, zorder=1)
    ax.annotate("guessing", (guessing, 0), (-4, 4), textcoords="offset points", ha="right", va="bottom", fontsize=10,
                color=GREY)  # fmt: skip
    ax.set_xlim(0, 1)
    ax.set_ylim(0, 1)
    name_lines(ax, x_name, y_name)
    if names is not None:
        marks = [Line2D([], [], linestyle="none", marker="o", color=INK, markerfacecolor=face, markersize=size)
                 for face, size in ((INK, 8), ("none", 6))]  # fmt: skip
        ax.legend(marks, names, loc="center right", fontsize=9.5, frameon=False)
    show(drawn, f"{y_name} against {x_name}, a mark a seed. {'; '.join(said)}. Guessing, dotted: x = {guessing:.2f}.")


def rows_of_runs(
    groups: Mapping[str, Sequence[float]],
    x_name: str,
    hollow: Collection[str] = (),
    guides: Mapping[str, float] | None = None,
) -> None:
    """A row for each group, a mark for each run, a line at their mean; `hollow` groups have hollow marks.

    The marks of a row stand one below the other a little, so that none hides another. A value of the `guides`,
    {name: x}, is a dotted line over all rows, with its name at the top.
    """
    drawn, ax = figure(7.2, 1.0 + 0.38 * len(groups))
    said = []
    for y, (name, values) in enumerate(groups.items()):
        face, colour = ("white", INK) if name in hollow else (BLUE, BLUE)
        steps = [y + 0.5 * ((i + 0.5) / len(values) - 0.5) for i in range(len(values))]
        ax.plot([sum(values) / len(values)] * 2, [y - 0.36, y + 0.36], color=INK, linewidth=1.2, zorder=2)
        ax.plot(values, steps, "s" if name in hollow else "o", color=colour, markerfacecolor=face, markersize=6,
                markeredgewidth=1.6, linestyle="none", clip_on=False, zorder=3)  # fmt: skip
        said.append(f"{name}: " + ", ".join(f"{value:.3f}" for value in values))
    for name, x in (guides or {}).items():
        ax.axvline(x, color=GREY, linestyle=":", linewidth=1.4, zorder=1)
        ax.annotate(name, (x, 1), (0, 3), xycoords=("data", "axes fraction"), textcoords="offset points", ha="center",
                    va="bottom", fontsize=10, color=GREY)  # fmt: skip
        said.append(f"{name}, dotted: {x:.3f}")
    ax.set_yticks(range(len(groups)), list(groups))
    ax.set_ylim(len(groups) - 0.5, -0.5)
    ax.tick_params(axis="y", length=0)
    ax.grid(axis="x", color=PALE, linewidth=0.8)
    ax.set_axisbelow(True)
    ax.set_xlabel(x_name)
    show(drawn, f"{x_name}, one mark a run, an upright line at each mean. {'; '.join(said)}.")


def image_row(images: Sequence[Tensor], names: Sequence[str], alt: str = "") -> None:
    """Small pictures (height, width) in a row, black for most, with their names."""
    drawn, grid = figure(1.25 * len(images), 1.45, columns=len(images))
    for ax, image, name in zip(np.atleast_1d(np.asarray(grid)), images, names, strict=True):
        bare(ax, PALE)
        ax.imshow(image.numpy(), cmap="Greys", interpolation="nearest")
        ax.set_title(name, fontsize=10)
    height, width = images[0].shape
    show(drawn, alt or f"{len(images)} pictures of {height} by {width} pixels: {', '.join(names)}.")


def picture_to_sequence(image: Tensor, patch: int, d: int) -> None:
    """A picture (height, width), its patches counted row by row, and the sequence of them, class token in front.

    Below the picture one patch, with a thick frame, is flattened and multiplied by W, to `d` numbers.
    Raises ValueError where the patch does not divide the picture.
    """
    height, width = image.shape
    if height % patch or width % patch:
        raise ValueError(f"patch: got {patch}, expected a divisor of height and width = {height}, {width}")
    rows, columns = height // patch, width // patch
    n = rows * columns
    pieces = image.unfold(0, patch, patch).unfold(1, patch, patch).flatten(0, 1)          # (n, patch, patch)
    drawn, ax = figure(8.9, 3.9)
    stage(ax, (-1.7, 25.5), (-6.3, 5.1))
    ax.set_aspect("equal")
    side = 4.4 / max(rows, columns)
    _picture(ax, image, (0, 4.4 - rows * side, columns * side, rows * side))
    for i in range(n):
        row, column = divmod(i, columns)
        left, top = column * side, 4.4 - row * side
        one = i == min(5, n - 1)  # the patch that is flattened below
        ax.add_patch(Rectangle((left, top - side), side, side, fill=False, edgecolor=ORANGE,
                               linewidth=2.8 if one else 1.2, zorder=3 if one else 2))  # fmt: skip
        if column == 0:
            ax.text(-0.2, top - side / 2, f"{i}–{i + columns - 1}", ha="right", va="center", fontsize=9.5, color=ORANGE,
                    fontweight="bold")  # fmt: skip
    _flattened(ax, min(5, n - 1), pieces[min(5, n - 1)].flatten(), d)
    arrow(ax, (4.6, 2.15), (8.8, 2.15))
    ax.text(6.7, 2.35, "cut", ha="center", va="bottom", fontsize=10)
    shown = [*range(6), *range(n - 2, n)] if n > 9 else list(range(n))
    x = 7.0
    box(ax, x + 0.5, -0.55, "class", PURPLE, width=1.5)
    for k, i in enumerate(shown):
        x = 9.0 + 1.9 * k + (1.2 if n > 9 and k >= 6 else 0)
        _picture(ax, pieces[i], (x, 1.5, 1.3, 1.3), top=float(image.max()))
        ax.add_patch(Rectangle((x, 1.5), 1.3, 1.3, fill=False, edgecolor=ORANGE, linewidth=1.2))
        ax.text(x + 0.65, 3.2, f"{i}", ha="center", va="center", fontsize=9.5, color=ORANGE, fontweight="bold")
        arrow(ax, (x + 0.65, 1.35), (x + 0.65, 0.1))
        box(ax, x + 0.65, -0.55, f"$x_{{{i}}}W$", BLUE, width=1.5)
        ax.text(x + 0.65, -1.65, f"$+\\,p_{{{i + 1}}}$", ha="center", va="center", fontsize=10.5)
    if n > 9:
        ax.text(9.0 + 1.9 * 6 + 0.25, -0.55, "…", ha="center", va="center", fontsize=14)
        ax.text(9.0 + 1.9 * 6 + 0.25, 2.1, "…", ha="center", va="center", fontsize=14)
    ax.text(7.5, -1.65, "$+\\,p_0$", ha="center", va="center", fontsize=10.5)
    left, right = 6.75, x + 1.4
    rows_at = [7.5, *(9.65 + 1.9 * k + (1.2 if n > 9 and k >= 6 else 0) for k in range(len(shown)))]
    for at in rows_at:
        arrow(ax, (at, -2.05), (at, -2.75))
    box(ax, (left + right) / 2, -3.3, f"encoder blocks, then the norm: {1 + n} rows in, {1 + n} rows out", GREEN,
        width=right - left)  # fmt: skip
    arrow(ax, (7.5, -3.85), (7.5, -4.75))
    box(ax, 7.5, -5.3, "row 0", PURPLE, width=1.7)
    arrow(ax, (8.45, -5.3), (9.4, -5.3))
    box(ax, 10.55, -5.3, "$W_{head}$", BLUE, width=2.1)
    arrow(ax, (11.7, -5.3), (12.65, -5.3))
    ax.text(12.85, -5.3, "logits, one for each class\n(the other rows are not read out)", ha="left", va="center",
            fontsize=10)  # fmt: skip
    words = f"{height} × {width} pixels, cut into {n} patches of {patch} × {patch}"
    ax.text(-1.7, 4.6, words, ha="left", va="bottom", fontsize=10)
    show(
        drawn,
        f"A picture of {height} by {width} pixels is cut into {n} patches of {patch} by {patch}, numbered row by row. "
        f"Each is flattened to {patch * patch} numbers and multiplied by W, to {d}. A class token stands in front; "
        f"every row gets a position, the class token the first. The {1 + n} rows go through encoder blocks and a norm; "
        f"row 0, times the head's matrix, gives the logits.",
    )


def _flattened(ax: Axes, i: int, numbers: Tensor, d: int) -> None:
    """Patch i as a row of numbers, the first four of them, then W, then its row of the sequence; top to bottom."""
    ax.text(2.2, -0.55, f"patch {i}, flattened", ha="center", va="center", fontsize=10)
    for k, number in enumerate(numbers[:4].tolist()):
        ax.add_patch(Rectangle((-0.3 + 1.25 * k, -1.9), 1.25, 0.9, fill=False, edgecolor=ORANGE, linewidth=1.2))
        ax.text(0.325 + 1.25 * k, -1.45, f"{number:.2f}", ha="center", va="center", fontsize=9.5)
    if len(numbers) > 4:
        ax.text(5.0, -1.45, "…", ha="center", va="center", fontsize=12)
    arrow(ax, (2.2, -2.05), (2.2, -2.75))
    box(ax, 2.2, -3.3, f"× W  ({len(numbers)} × {d})", BLUE, width=4.2)
    arrow(ax, (2.2, -3.85), (2.2, -4.75))
    box(ax, 2.2, -5.3, f"$x_{{{i}}}W\\ (+\\,b)$: {d} numbers", BLUE, width=5.9)


def convolution(image: Tensor, weights: Tensor, at: tuple[int, int]) -> None:
    """One window of a convolution with stride 1 and a border of zeros, the next one, and max pooling 2 × 2.

    From left to right: the picture (height, width) with its border; the `weights`, (3, 3), and their products with the
    window whose middle is the pixel `at`; all sums, (height, width); the largest of each 2 × 2 of them.
    Raises ValueError for weights of another size, and for a picture that 2 × 2 do not divide.
    """
    height, width = image.shape
    check_shape("weights", weights, "rows columns", rows=3, columns=3)
    if height % 2 or width % 2:
        raise ValueError(f"image: got {height} by {width}, expected even numbers")
    padded = np.pad(image.numpy(), 1)                                                     # (height + 2, width + 2)
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3))                    # (height, width, 3, 3)
    products = windows * weights.numpy()
    sums = products.sum(axis=(2, 3))                                                      # (height, width)
    pooled = sums.reshape(height // 2, 2, width // 2, 2).max(axis=(1, 3))
    row, column = at
    drawn, ax = figure(10.4, 4.6)
    middle, output = width + 3.6, width + 9.0
    right = output + width + 2.4
    stage(ax, (-0.2, right + width / 2 + 0.4), (-height - 4.2, 2.4))
    ax.set_aspect("equal")
    _numbers(ax, padded, (0, 1), "image, with a border\nof zeros (padding)")
    for i, j in np.ndindex(*padded.shape):
        if i in (0, height + 1) or j in (0, width + 1):
            ax.add_patch(Rectangle((j, -i), 1, 1, facecolor="none", edgecolor=PALE, hatch="////", linewidth=0))
    for step, colour, dashes in ((1, BLUE, (0, (3, 2))), (0, ORANGE, "-")):
        ax.add_patch(Rectangle((column + step, -row - 2), 3, 3, fill=False, edgecolor=colour, linewidth=2.4,
                               linestyle=dashes, zorder=4))  # fmt: skip
        ax.add_patch(Rectangle((output + column + step, -row - 1), 1, 1, fill=False, edgecolor=colour, linewidth=2.4,
                               linestyle=dashes, zorder=4 - step))  # fmt: skip
    _numbers(ax, weights.numpy(), (middle, 0), "× weights")
    _numbers(ax, products[row, column], (middle, -5), "= nine products")
    ax.add_patch(Rectangle((middle, -8), 3, 3, fill=False, edgecolor=ORANGE, linewidth=2.4, zorder=4))
    arrow(ax, (width + 2.1, -1.5), (middle - 0.2, -1.5), colour=ORANGE)
    words = f"sum: {_signed(sums[row, column])}"
    ax.text(middle + 1.5, -8.8, words, ha="center", va="center", fontsize=11, color=ORANGE)
    arrow(ax, (middle + 3.2, -6.5), (output - 0.2, -row - 0.5), colour=ORANGE)
    _numbers(ax, sums, (output, 0), "all sums: one\nfeature at every place")
    for i, j in np.ndindex(*pooled.shape):
        ax.add_patch(Rectangle((output + 2 * j, -2 * i - 2), 2, 2, fill=False, edgecolor=PURPLE, linewidth=1.4))
    _numbers(ax, pooled, (right, -height / 4), "max pooling: the\nlargest of each 2 × 2")
    arrow(ax, (output + width + 0.3, -height / 2), (right - 0.3, -height / 2), colour=PURPLE)
    for x, words in (
        (0, "stride 1: the next window (dashed)\nis one pixel further; they overlap"),
        (output, "stride 2: windows of 2 × 2 (purple) do not overlap,\nnor do those of the patch embedding"),
    ):
        ax.text(x, -height - 2.7, words, ha="left", va="center", fontsize=10)
    show(
        drawn,
        f"A convolution. A 3 by 3 window on a picture with a border of zeros, its middle in row {row} and column "
        f"{column}, times nine weights: the products' sum {sums[row, column]:g} is one number of the output. The next "
        f"window is one pixel further to the right, its sum {sums[row, column + 1]:g}. Of each 2 by 2 sums max pooling "
        f"keeps the largest: {height} by {width} become {height // 2} by {width // 2}.",
    )


def _numbers(ax: Axes, table: np.ndarray, corner: tuple[float, float], title: str) -> None:
    """A table of numbers in cells of one unit, darker for more, from its upper left `corner`, under its title."""
    left, top = corner
    rows, columns = table.shape
    most = float(abs(table).max())
    low = -most if table.min() < 0 else 0.0
    ax.pcolormesh(np.arange(left, left + columns + 0.5), top - np.arange(rows + 1.0), table, vmin=low, vmax=2.2 * most,
                  cmap="Greys", edgecolors="white", linewidth=0.8)  # fmt: skip
    for (i, j), number in np.ndenumerate(table):
        ax.text(left + j + 0.5, top - i - 0.5, _signed(number), ha="center", va="center", fontsize=9, zorder=3)
    ax.text(left + columns / 2, top + 0.25, title, ha="center", va="bottom", fontsize=10)


def _signed(number: float) -> str:
    return f"{number:g}".replace("-", "−")


def leads(panels: Mapping[str, tuple[Sequence[float], Sequence[float]]], times: float, ratios: Collection[str]) -> None:
    """Leads before and after, a line for each seed, {title: (before, after)}; beside them the means with intervals.

    An interval goes `times` the standard error to each side. Leads of the `ratios` are logarithms: they are drawn as
    the ratios themselves, on a logarithmic axis. The level of no lead is dotted.
    """
    drawn, axes = figure(8.6, 3.3, columns=len(panels))
    said = []
    for ax, (title, pair) in zip(np.atleast_1d(np.asarray(axes)), panels.items(), strict=True):
        shown = np.exp if title in ratios else np.asarray
        for before, after in zip(*pair, strict=True):
            ax.plot([0, 1], shown([before, after]), "-o", color=BLUE, linewidth=1.1, markersize=5, mfc="white")
        for x, values in zip((-0.22, 1.22), pair, strict=True):
            middle = float(np.mean(values))
            half = times * float(np.std(values, ddof=1)) / np.sqrt(len(values))
            low, at, high = shown([middle - half, middle, middle + half])
            ax.plot([x, x], [low, high], color=INK, linewidth=2)
            ax.plot([x], [at], "D", color=INK, markersize=7)
            ax.annotate(f"{at:.1f}", (x, at), (9 if x > 0 else -9, 0), textcoords="offset points", fontsize=10.5,
                        ha="left" if x > 0 else "right", va="center")  # fmt: skip
            said.append(f"{title}, {'before' if x < 0 else 'after'}: mean {at:.2f}, from {low:.2f} to {high:.2f}")
        if title in ratios:
            ax.set_yscale("log")
            ax.set_ylim(bottom=0.9)
            ax.set_yticks([1, 2, 3, 4], ["1", "2", "3", "4"])
            ax.yaxis.set_minor_locator(NullLocator())
        level = float(shown([0.0])[0])
        ax.axhline(level, color=GREY, linestyle=":", linewidth=1.4)
        ax.annotate("no lead", (0.5, level), (0, 3), textcoords="offset points", ha="center", va="bottom", fontsize=9.5,
                    color=GREY)  # fmt: skip
        ax.set_xlim(-0.6, 1.6)
        ax.set_xticks([0, 1], ["intact", "shuffled"])
        ax.set_title(title, fontsize=10.5)
    show(drawn, f"Leads by seed, lines from intact to shuffled, diamonds their means and intervals. {'; '.join(said)}.")


def attention_on_images(
    pictures: Sequence[Tensor], maps: Mapping[str, Sequence[Tensor]], names: Sequence[str]
) -> None:
    """Pictures in the first column, and beside each where was looked: {title: a table (rows, columns) a picture}.

    Numbers are percent. Tables are darker for more, each column up to its largest number, with the picture's outline
    over them; `names` stand at the left.
    Raises ValueError where tables or names are not as many as the pictures, and for what are no shares.
    """
    for what, given in {"names": names, **maps}.items():
        if len(given) != len(pictures):
            raise ValueError(f"{what}: got {len(given)}, expected {len(pictures)}, one a picture")
    drawn, grid = figure(1.45 * (1 + len(maps)) + 0.6, 1.45 * len(pictures) + 0.4, len(pictures), 1 + len(maps))
    grid = np.asarray(grid).reshape(len(pictures), -1)
    said = []
    for i, (picture, name) in enumerate(zip(pictures, names, strict=True)):
        bare(grid[i, 0], PALE)
        grid[i, 0].imshow(picture.numpy(), cmap="Greys", interpolation="nearest")
        grid[i, 0].set_ylabel(name, rotation=0, ha="right", va="center", labelpad=8)
        for ax, (title, tables) in zip(grid[i, 1:], maps.items(), strict=True):
            _look(ax, picture, tables[i], numbers=True, most=max(float(table.max()) for table in tables))
            if i == 0:
                ax.set_title(f"{title} (%)", fontsize=10)
        where = "; ".join(f"{title} most at {_place(tables[i])}" for title, tables in maps.items())
        said.append(f"{name}: {where}")
    grid[0, 0].set_title("image", fontsize=10)
    show(drawn, f"Shares of patches in percent, by (row, column), counted from 0. {'. '.join(said)}.")


def attention_by_head(
    pictures: Sequence[Tensor], weights: Tensor, names: Sequence[str], framed: Collection[tuple[int, int]] = (),
    marked: Collection[tuple[int, int, int, int]] = (),
) -> None:  # fmt: skip
    """Where each head looks, (pictures, layers, heads, rows, columns): two rows of maps and more for each picture.

    The picture stands at the left of its maps, with its name; numbers are percent, those below FEW are left out, and
    all maps have one scale, which ends at DARKEST. Places that are `framed`, (row, column), have a dashed frame in
    every map; what is `marked`, (layer, head, row, column), has a thick one for each picture.
    Raises ValueError where names or maps are not as many as the pictures, and for what are no shares.
    """
    check_shape("weights", weights, "n n_layers n_heads rows columns", n=len(pictures))
    n, n_layers, n_heads = weights.shape[:3]
    if len(names) != n:
        raise ValueError(f"names: got {len(names)}, expected {n}, one a picture")
    drawn, grid = figure(1.2 * (1 + n_heads) + 0.9, 1.2 * n * n_layers + 0.4, n * n_layers, 1 + n_heads)
    grid = np.asarray(grid).reshape(n, n_layers, 1 + n_heads)
    said = []
    for i, (picture, name) in enumerate(zip(pictures, names, strict=True)):
        for layer in range(n_layers):
            first = grid[i, layer, 0]
            bare(first, PALE)
            first.imshow(picture.numpy(), cmap="Greys", interpolation="nearest")
            first.set_ylabel(f"{name},\nlayer {layer}", rotation=0, ha="right", va="center", labelpad=8)
            for head in range(n_heads):
                ax = grid[i, layer, 1 + head]
                _look(ax, picture, weights[i, layer, head], numbers=True, most=DARKEST, least=FEW)
                high, wide = (size / count for size, count in zip(picture.shape, weights.shape[3:], strict=True))
                for row, column in framed:
                    ax.add_patch(Rectangle((column * wide - 0.5, row * high - 0.5), wide, high, fill=False,
                                           edgecolor=INK, linewidth=1.2, linestyle=(0, (3, 2)), zorder=4))  # fmt: skip
                for row, column in [place[2:] for place in marked if place[:2] == (layer, head)]:
                    ax.add_patch(Rectangle((column * wide - 0.5, row * high - 0.5), wide, high, fill=False,
                                           edgecolor=ORANGE, linewidth=3, zorder=5))  # fmt: skip
            most = ", ".join(_place(table) for table in weights[i, layer])
            said.append(f"{name}, layer {layer}: by head most at {most}")
    for head in range(n_heads):
        grid[0, 0, 1 + head].set_title(f"head {head}", fontsize=10)
    show(drawn, f"Attention of the class token by layer and head, in percent, on (row, column), counted from 0. "
                f"{'. '.join(said)}.")  # fmt: skip


def position_maps(similarities: Mapping[str, Tensor], side: int, every: int = 1, most: float = 1.0) -> None:
    """How much the position of a patch resembles those of all, {title: (side², side²)}: a small map for each place.

    Places are those of every so-manieth row and column, and colours end at ± `most`.
    Raises ValueError for a table of another size, and for more places than can be shown.
    """
    check_places(side=side)
    gap, shown = 1, range(0, side, every)  # a column of maps is left out between two titles
    columns = (len(shown) + gap) * len(similarities) - gap
    panel = 0.44 if every == 1 else 0.8
    drawn, grid = figure(panel * columns + 0.9, panel * len(shown) + 0.5, len(shown), columns)
    grid = np.asarray(grid).reshape(len(shown), columns)
    said = []
    for k, (title, similarity) in enumerate(similarities.items()):
        check_shape("similarities", similarity, "n n", n=side * side)
        table, left = similarity.detach().numpy(), k * (len(shown) + gap)
        for i, row in enumerate(shown):
            for j, column in enumerate(shown):
                ax = grid[i, left + j]
                bare(ax, PALE)
                image = ax.imshow(table[row * side + column].reshape(side, side), cmap="RdBu", vmin=-most, vmax=most,
                                  interpolation="nearest")  # fmt: skip
                ax.plot(column, row, "o", markersize=5.6 * panel, color=ORANGE)
        places = np.arange(side * side)
        steps = abs(places[:, None] // side - places // side) + abs(places[:, None] % side - places % side)
        over = grid[0, left + len(shown) // 2].annotate(
            title, (0.5 if len(shown) % 2 else -0.12, 1), (0, 5), xycoords="axes fraction", textcoords="offset points",
            ha="center", va="bottom", fontsize=11,
        )  # fmt: skip
        over.set_in_layout(False)  # as wide as several maps, it would push them apart
        grid[0, left].set_title(" ", fontsize=11)  # keeps its height free
        said.append(
            f"{title}: {len(shown) ** 2} maps, a dot at the place of each; places side by side have a cosine "
            f"of {table[steps == 1].mean():.2f} on average, those further apart of {table[steps > 1].mean():.2f}"
        )
        if k:
            for ax in grid[:, left - gap]:
                ax.set_axis_off()
    drawn.colorbar(image, ax=grid, label="cosine", fraction=0.03, aspect=30, extend="neither" if most == 1 else "both")
    show(drawn, f"Cosines of positions. {'. '.join(said)}.")


def info_nce(cosines: Sequence[float], kappas: Sequence[float]) -> None:
    """Cosines of a guess with its candidates, the target first, and what softmax makes of them at each temperature."""
    drawn, axes = figure(2.8 * (1 + len(kappas)), 2.7, columns=1 + len(kappas))
    names = ["target", *(f"{k}" for k in range(1, len(cosines)))]
    panels = {"cosine with the guess": np.asarray(cosines, dtype=float)}
    for kappa in kappas:
        powers = np.exp((panels["cosine with the guess"] - max(cosines)) / kappa)
        panels[f"probability, κ = {kappa:g}"] = powers / powers.sum()
    said = []
    for ax, (title, heights) in zip(axes, panels.items(), strict=True):
        ax.bar(range(len(heights)), heights, color=[ORANGE, *[BLUE] * (len(heights) - 1)], width=0.7)
        ax.axhline(0, color=GREY, linewidth=0.8)
        ax.set_xticks(range(len(heights)), names)
        ax.tick_params(axis="x", labelsize=8.5)
        ax.get_xticklabels()[0].set_rotation(90)
        ax.set_title(title, fontsize=10.5)
        ax.set_ylim((-1, 1) if heights.min() < 0 else (0, 1))
        if ax is axes[0]:
            ax.set_ylabel("cosine")
        else:
            words = f"target: {heights[0]:.3f}\nloss: −ln {heights[0]:.3f} = {-np.log(heights[0]):.2f}"
            ax.text(len(heights) - 0.5, 0.97, words, ha="right", va="top", fontsize=9.5, color=ORANGE)
            ax.set_ylabel("probability")
        said.append(f"{title}: {heights[0]:.2f} for the target, at most {heights[1:].max():.2f} for a negative")
        ax.set_xlabel("candidates")
    show(drawn, f"A guess, its target and {len(cosines) - 1} negatives. {'; '.join(said)}.")


def confusions(tables: Mapping[str, Tensor], words: Sequence[str], predicted: Sequence[tuple[str, str]] = ()) -> None:
    """Which word (row) was taken for which (column), in shares of the row, {title: counts (n, n)}.

    Both cells of each `predicted` pair are framed. Raises ValueError where words and table do not fit.
    """
    drawn, grid = figure(4.1 * len(tables), 3.6, columns=len(tables))
    said = []
    for k, (ax, (title, counts)) in enumerate(zip(np.atleast_1d(np.asarray(grid)), tables.items(), strict=True)):
        check_shape("tables", counts, "n n", n=len(words))
        shares = (counts / counts.sum(dim=1, keepdim=True)).numpy()
        cells(ax, shares, list(words), list(words), True, digits=2)
        wrong = float(counts.sum() - counts.diag().sum())
        inside = 0.0
        for one, other in predicted:
            i, j = words.index(one), words.index(other)
            inside += float(counts[i, j] + counts[j, i])
            for x, y in ((i, j), (j, i)):
                ax.add_patch(Rectangle((x, y), 1, 1, fill=False, edgecolor=ORANGE, linewidth=2.4, zorder=5))
        right = float(counts.diag().sum() / counts.sum())
        ax.set_title(f"{title}: {right:.0%} right", fontsize=10.5)
        ax.set_xlabel("taken for")
        if k == 0:
            ax.set_ylabel("sung")
        framed = f", {inside / wrong:.0%} of the mistakes in the framed cells" if predicted and wrong else ""
        said.append(f"{title}: {right:.0%} right{framed}")
    show(drawn, f"Which vowel was taken for which, in shares of the vowel that was sung. {'; '.join(said)}.")


def harmonics_and_formants(
    panels: Mapping[str, tuple[Sequence[float], Sequence[float]]], envelope: tuple[Sequence[float], Sequence[float]],
    formants: Sequence[float], title: str = "",
) -> None:  # fmt: skip
    """The spectrum of one vowel in several voices, {name: (hertz, decibels) of its harmonics}: a stem for each.

    The `envelope`, (hertz, decibels), is the same dashed line in all panels, and its `formants` are named over it.
    """
    drawn, axes = figure(3.9 * len(panels), 2.7, columns=len(panels))
    xs, ys = (np.asarray(values, dtype=float) for values in envelope)
    floor = float(ys.min()) - 4
    for ax, (name, (hertz, loud)) in zip(np.atleast_1d(np.asarray(axes)), panels.items(), strict=True):
        for x, y in zip(hertz, loud, strict=True):
            ax.plot([x, x], [floor, y], color=BLUE, linewidth=2)
        ax.plot(xs, ys, color=ORANGE, linewidth=1.4, linestyle=(0, (4, 3)))
        for number, at in enumerate(formants, start=1):
            ax.annotate(f"F{number}", (at, float(np.interp(at, xs, ys))), (0, 4), textcoords="offset points",
                        ha="center", va="bottom", fontsize=10, color=ORANGE)  # fmt: skip
        ax.set_xlim(0, xs.max())
        ax.set_ylim(floor, ys.max() + 12)
        ax.set_xlabel("hertz")
        ax.set_title(name, fontsize=10.5)
    drawn.axes[0].set_ylabel("loudness (decibels)")
    said = "; ".join(f"{name}: {len(hertz)} harmonics, {hertz[1] - hertz[0]:.0f} hertz apart"
                     for name, (hertz, _) in panels.items())  # fmt: skip
    where = ", ".join(f"{at:.0f}" for at in formants)
    show(drawn, f"{title or 'Spectra of one vowel'}: an upright line for each harmonic. {said}. Their tips lie on one "
                f"envelope, dashed, with bumps at {where} hertz, the formants.")  # fmt: skip


def waveform_and_spectrogram(
    waveform: Tensor,
    loudness: Tensor,
    spoken: Sequence[tuple[float, float, str]],
    rate: int,
    hop: int,
    formants: Sequence[Sequence[float]] = (),
    title: str = "",
    highest: float | None = None,
) -> None:
    """A sound (n_samples,), and below it what each frame sounds like: log spectra (n_frames, n_frequencies).

    `spoken` says what is said from when to when, in seconds; frames are `hop` samples apart. `formants` are lines over
    the spectra, some hertz for each that is spoken. Frequencies end at the `highest`, by default at half the rate.
    """
    drawn, (up, down) = figure(7.6, 3.9, rows=2)
    seconds, highest = len(waveform) / rate, highest or rate / 2
    up.plot(np.arange(len(waveform)) / rate, waveform.numpy(), color=BLUE, linewidth=0.4)
    up.set_xlim(0, seconds)
    up.set_yticks([])
    up.set_xticks([])
    top = 1.05 * float(waveform.abs().max())
    up.set_ylim(-top, top)
    for start, end, word in spoken:
        up.axvline(end, color=GREY, linewidth=0.9, linestyle=":")
        down.axvline(end, color=GREY, linewidth=0.9, linestyle=":")
        up.text((start + end) / 2, 1.08 * top, word, ha="center", va="bottom", fontsize=9.5, color=INK)
    shown = loudness.numpy().T
    low, high = np.quantile(shown, [0.2, 0.998])
    extent = (0.0, len(loudness) * hop / rate, 0.0, rate / 2)
    image = down.imshow(shown, cmap=WEIGHTS, vmin=low, vmax=high, origin="lower", aspect="auto", extent=extent)
    for (start, end, _), hertz in zip(spoken, formants, strict=False):
        for height in hertz:
            if height < highest:
                down.plot([start, end], [height, height], color=ORANGE, linewidth=1.1, linestyle=(0, (4, 3)))
    for number, height in enumerate(formants[-1] if formants else (), start=1):
        if height < highest:
            down.annotate(f"F{number}", (1, height), (4, 0), xycoords=("axes fraction", "data"), fontsize=9.5,
                          textcoords="offset points", va="center", color=ORANGE)  # fmt: skip
    down.set_xlim(0, seconds)
    down.set_ylim(0, highest)
    down.set_xlabel("seconds")
    down.set_ylabel("hertz")
    drawn.colorbar(image, ax=down, label="log power", aspect=12, pad=0.06)
    if title:
        drawn.suptitle(title, fontsize=11)
    words = ", ".join(word for _, _, word in spoken)
    lines = " Formants are drawn as dashed lines." if formants else ""
    show(
        drawn,
        f"{title or 'A sound'}: {seconds:g} s, its waveform above, and below how loud each frequency is in each of "
        f"{len(loudness)} frames, darker for louder. A band lies at F1, and moves from vowel to vowel: {words}.{lines}",
    )


def wav2vec_diagram(targets: str = "codebook") -> None:
    """wav2vec 2.0 in one picture: frames, some masked, a Transformer, guesses, and their `targets`."""
    drawn, ax = figure(10.0, 4.7)
    stage(ax, (-3.1, 20.4), (-0.6, 10.4))
    masked = (3, 4, 5)
    xs = [0.8 + 1.65 * i for i in range(8)]
    wave = np.linspace(0, 13.2, 900)
    shape = np.sin(9 * wave) * (0.3 + 0.25 * np.sin(1.3 * wave + 1)) + 0.12 * np.sin(31 * wave)
    ax.plot(wave, 0.45 + 0.75 * shape, color=BLUE, linewidth=0.6)
    for i, x in enumerate(xs):
        arrow(ax, (x, 1.15), (x, 1.95))
        box(ax, x, 2.5, f"$z_{i + 1}$", BLUE)
        gone = i in masked
        arrow(ax, (x, 3.05), (x, 3.75), colour=PALE if gone else GREY)
        if gone:
            box(ax, x, 4.3, "masked", GREY, width=1.5, fill=PALE)
        else:
            box(ax, x, 4.3, f"$z_{i + 1}$", BLUE)
        arrow(ax, (x, 4.85), (x, 5.4))
        if gone:
            arrow(ax, (x, 6.6), (x, 7.15), colour=ORANGE)
            box(ax, x, 7.7, f"$c_{i + 1}$", ORANGE)
    ax.add_patch(Rectangle((0.1, 5.45), 12.95, 1.1, facecolor=(*rgb(GREEN), 0.14), edgecolor=GREEN, linewidth=1.6))
    ax.text(6.6, 6.0, "Transformer: every frame attends to all", ha="center", va="center", fontsize=11)
    # One of the masked frames is played through: its guess meets its own target, and those of the other masked ones.
    x, bus, cosines = xs[4], 13.6, {5: 0.8, 4: 0.1, 6: -0.2}
    powers = {i: np.exp(cosine / KAPPA) for i, cosine in cosines.items()}
    ax.plot([x, x, bus, bus], [8.25, 9.1, 9.1, 5.3], color=ORANGE, linewidth=1.8)
    ax.text(10.3, 9.45, "$c_5$: which of these stood there?", ha="center", va="center", fontsize=10.5)
    ax.text(14.45, 8.6, "cosine", ha="center", va="center", fontsize=10, color=ORANGE)
    ax.text(18.75, 8.6, f"softmax(cos / {KAPPA:g})", ha="center", va="center", fontsize=10)
    for y, (i, cosine) in zip((7.7, 6.5, 5.3), cosines.items(), strict=True):
        arrow(ax, (bus, y), (15.3, y), colour=ORANGE)
        ax.text(14.45, y + 0.3, f"{cosine:.1f}".replace("-", "−"), ha="center", va="center", fontsize=10, color=ORANGE)
        label = f"$q_{i}$ " + ("right" if i == 5 else "wrong")
        box(ax, 16.5, y, label, PURPLE, width=2.3, fill=None if i == 5 else "white")
        share = powers[i] / sum(powers.values())
        ax.text(18.75, y, f"{share:.3f}", ha="center", va="center", fontsize=10)
    for i in masked:
        ax.plot([xs[i] + 0.25, xs[i] + 0.25], [3.05, 3.42], color=PURPLE, linewidth=1.2)
    arrow(ax, (xs[masked[0]] + 0.25, 3.42), (15.3, 3.42), colour=PURPLE)
    box(ax, 16.5, 3.7, targets, PURPLE, width=2.3)
    arrow(ax, (16.5, 4.25), (16.5, 4.75), colour=PURPLE)
    for y, words in (
        (0.45, "waveform"),
        (2.5, "frames, by\nconvolutions"),
        (4.3, "a span\nis masked"),
        (7.7, "guesses"),
    ):
        ax.text(-0.35, y, words, ha="right", va="center", fontsize=10.5)
    show(
        drawn,
        "wav2vec 2.0. Convolutions turn a waveform into frames z1 to z8. A span, z4 to z6, is replaced by a learned "
        "vector, and a Transformer in which every frame attends to all makes guesses c4 to c6 there. The frames "
        f"that were masked go through a {targets} and become q4 to q6. "
        "The guess c5 is compared with each by cosine; softmax makes of the cosines the probability of its own, q5.",
    )


def span_frame(mask: Tensor, expected: float, title: str = "") -> tuple[Figure, str]:
    """Which frames of a few sounds are masked, (batch, n_frames), and the share that was to be expected: for `explore`.

    Returns the figure and the words for it. Raises TypeError for a mask that is not boolean, ValueError for one of
    other axes, or with more frames than can be shown.
    """
    check_boolean("mask", mask, "a frame is masked")
    check_shape("mask", mask, "batch n_frames")
    batch, n = mask.shape
    if n > MOST_FRAMES:
        raise ValueError(f"mask: got {n} frames, expected at most {MOST_FRAMES}, such as mask[:, :{MOST_FRAMES}]")
    drawn, ax = figure(6.5, 2.3)
    hold_still(drawn, left=0.13, right=0.98, bottom=0.26, top=0.86)
    stage(ax, (-0.5, n), (-0.1, batch + 0.1))
    ax.text(0, -0.2, "frames, in the order of time →", ha="left", va="top", fontsize=9.5, color=GREY)
    for b, row in enumerate(mask.tolist()):
        ax.text(-0.8, batch - 1 - b + 0.36, f"sound {b + 1}", ha="right", va="center", fontsize=10, color=INK)
        for i, masked in enumerate(row):
            face, hatch = (PALE, "////") if masked else (WEIGHTS(0.55), "")
            ax.add_patch(Rectangle((i, batch - 1 - b), 0.92, 0.72, facecolor=face, hatch=hatch, edgecolor="white"))
    ax.set_title(title)
    share = mask.float().mean().item()
    words = f"masked (hatched): {share:.0%} of these frames; {expected:.0%} expected in very long sounds"
    drawn.text(0.5, 0.06, words, ha="center", va="center", fontsize=10.5)
    longest = max(len(run) for row in mask.tolist() for run in "".join(" x"[x] for x in row).split() or [""])
    stretch = f"The longest masked stretch has {longest} {'frame' if longest == 1 else 'frames'}."
    return drawn, f"{title}: {batch} sounds of {n} frames. {words}. {stretch}"


def codes_used(shares: Mapping[str, Tensor], title: str = "") -> None:
    """How often each entry of a codebook is chosen, {run: (n_entries,)}, the most used first; evenly is dotted."""
    columns = min(len(shares), 2)
    rows = -(-len(shares) // columns)
    drawn, _ = figure(3.6 * columns + 0.4, 2.4 * rows, rows, columns)
    said = []
    for i, (ax, (name, used)) in enumerate(zip(drawn.axes, shares.items(), strict=False)):
        heights = used.sort(descending=True).values.numpy()
        ax.bar(range(1, len(heights) + 1), heights, color=SERIES[i], hatch=HATCHES[i % 4], edgecolor="white")
        ax.axhline(1 / len(heights), color=INK, linestyle=":", linewidth=1.2)
        ax.annotate(f"all alike: 1/{len(heights)}", (1, 1 / len(heights)), (0, 4), textcoords="offset points",
                    xycoords=("axes fraction", "data"), ha="right", va="bottom", fontsize=9.5)  # fmt: skip
        ax.set_ylim(0, 1)
        ax.xaxis.set_major_locator(MaxNLocator(integer=True))
        ax.set_xlabel("entries, the most used first")
        ax.set_ylabel("share of the points")
        ax.set_title(name, fontsize=10.5)
        used_at_all = int((heights > 0.01).sum())
        said.append(f"{name}: the most used entry has {heights[0]:.0%}, {used_at_all} of {len(heights)} more than 1 %")
    for ax in drawn.axes[len(shares) :]:
        ax.set_axis_off()
    if title:
        drawn.suptitle(title, fontsize=11)
    show(drawn, f"{title or 'How often the entries of a codebook are used'}. {'; '.join(said)}.")


def _picture(ax: Axes, image: Tensor, place: tuple[float, float, float, float], top: float | None = None) -> None:
    """Pixels as squares, black for most, in the rectangle (left, bottom, width, height) of a drawing."""
    left, bottom, width, height = place
    top = float(image.max()) if top is None else top
    xs = np.linspace(left, left + width, image.shape[1] + 1)
    ys = np.linspace(bottom + height, bottom, image.shape[0] + 1)
    ax.pcolormesh(xs, ys, image.numpy(), cmap="Greys", vmin=0, vmax=top)


def _look(
    ax: Axes, picture: Tensor, table: Tensor, numbers: bool = False, most: float | None = None, least: float = 0
) -> AxesImage:  # fmt: skip
    """How much each patch was looked at, with the picture's outline over it; `most` is darkest, else the largest.

    With `numbers`, those from `least` on are written in percent.
    """
    check_shape("table", table, "rows columns")
    check_places(rows=table.shape[0], columns=table.shape[1])
    if not 0 <= float(table.min()) <= float(table.sum()) <= 1.01:  # not so either where one is NaN
        total = float(table.sum())
        raise ValueError(f"table: got a sum of {total:.3g}, expected shares from 0 to 1 that sum to at most 1")
    height, width = picture.shape
    extent = (-0.5, width - 0.5, height - 0.5, -0.5)
    shares = table.detach().numpy()
    bare(ax, PALE)
    top = float(shares.max()) if most is None else most
    image = ax.imshow(shares, cmap=WEIGHTS, vmin=0, vmax=top, extent=extent, interpolation="nearest")
    ringed = np.pad(picture.numpy(), 1)  # empty pixels around it: no outline stays open at an edge
    ax.contour(np.arange(-1, width + 1), np.arange(-1, height + 1), ringed, levels=[0.5 * float(picture.max())],
               colors=[ORANGE], linewidths=1.1, alpha=0.45)  # fmt: skip
    ax.set_xlim(extent[0], extent[1])
    ax.set_ylim(extent[2], extent[3])
    for (i, j), share in np.ndenumerate(shares) if numbers else ():
        if share < least:
            continue
        high, wide = height / shares.shape[0], width / shares.shape[1]
        colour = "white" if share > 0.6 * top else INK
        ax.text((j + 0.5) * wide - 0.5, (i + 0.5) * high - 0.5, f"{100 * share:.0f}", ha="center", va="center",
                fontsize=9, color=colour, zorder=6)  # fmt: skip
    return image


def _place(table: Tensor) -> str:
    row, column = divmod(int(table.argmax()), table.shape[1])
    return f"({row}, {column})"


def _wilson(share: float, n: int) -> tuple[float, float]:
    """Middle and half width of the 95 % interval for a share that was found in n cases."""
    middle = (share + SURE**2 / (2 * n)) / (1 + SURE**2 / n)
    half = SURE * np.sqrt(share * (1 - share) / n + SURE**2 / (4 * n * n)) / (1 + SURE**2 / n)
    return float(middle), float(half)
