"""Pictures as sequences of patches, and where a model looks in them; sounds as frames, some of them masked."""

from collections.abc import Collection, Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from matplotlib.patches import Rectangle
from matplotlib.ticker import MaxNLocator
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
FOUR = 4  # patches that the test of a map takes away
KAPPA = 0.1  # the temperature of the contrastive loss
MOST_FRAMES = 200  # of a sound: with more of them a frame is less than a line
FAMILIES = {"CNN": ORANGE, "ViT": BLUE}  # by the first word of a row's name: one colour on the whole page
APART = ((BLUE, "o", "-"), (AMBER, "s", "--"), (INK, "^", "-."), (GREY, "D", ":"))  # told apart in grey, too


def mistakes(runs: Mapping[str, Sequence[int]], n: int) -> None:
    """A row for each model, a mark for each run's mistakes of `n`, a line at their mean, and over it the mean.

    CNNs and ViTs have a colour each, other models are dark. Marks of equal runs stand above each other.
    Raises ValueError for more mistakes than n, or fewer than none.
    """
    if not all(0 <= wrong <= n for group in runs.values() for wrong in group):
        raise ValueError(f"runs: got {dict(runs)}, expected mistakes from 0 to n = {n}")
    drawn, ax = figure(7.2, 1.0 + 0.54 * len(runs))
    said = []
    for y, (name, wrongs) in enumerate(runs.items()):
        mean = sum(wrongs) / len(wrongs)
        if len(wrongs) > 1:
            _mean_line(ax, y, mean, f"mean {mean:.1f}")
        else:
            ax.annotate(f"{mean:.0f}", (mean, y), (10, 0), textcoords="offset points", va="center", fontsize=10)
        _marks(ax, y, wrongs, _family(name) or INK)
        said.append(f"{name}: {', '.join(map(str, wrongs))}, mean {mean:.1f}")
    ax.set_xlim(0, 1.08 * max(max(wrongs) for wrongs in runs.values()))
    ax.set_xlabel(f"mistakes in {n} test images (fewer is better)")
    ax.set_yticks(range(len(runs)), list(runs))
    ax.set_ylim(len(runs) - 0.5, -0.7)
    ax.xaxis.set_major_locator(MaxNLocator("auto", integer=True))
    ax.tick_params(axis="y", length=0)
    ax.grid(axis="x", color=PALE, linewidth=0.8)
    ax.set_axisbelow(True)
    show(drawn, f"Mistakes in {n} test images, a mark a seed, a line at the mean. {'; '.join(said)}.")


def _family(name: str) -> str | None:
    """The colour of the model that a row's name begins with."""
    return FAMILIES.get(name.split(",")[0])


def _mean_line(ax: Axes, y: float, mean: float, words: str) -> None:
    """A line at the mean of a row, with words over it."""
    ax.plot([mean] * 2, [y - 0.3, y + 0.3], color=INK, linewidth=1.2, zorder=2)
    ax.annotate(words, (mean, y - 0.3), (0, 1), textcoords="offset points", ha="center", va="bottom", fontsize=10)


def _marks(ax: Axes, y: float, values: Sequence[int], colour: str) -> None:
    """A mark for each value of a row, equal ones above each other."""
    above = [values[:i].count(value) - (values.count(value) - 1) / 2 for i, value in enumerate(values)]
    heights = [y + 0.13 * step for step in above]
    ax.plot(values, heights, **line_style(0) | {"color": colour, "linestyle": "none", "markersize": 6, "zorder": 3})


def runs_over(
    lines: Mapping[str, Mapping[float, Sequence[float]]],
    x_name: str,
    y_name: str,
    level: tuple[str, float],
    event: tuple[str, float] | None = None,
) -> None:
    """A mark for each seed at each x, and a line through the means with its name; `level` is dotted, with its name.

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
        ax.annotate(name, ([*runs][-1], means[-1]), (10, 0), textcoords="offset points", ha="left", va="center",
                    fontsize=10, color=INK, annotation_clip=False)  # fmt: skip
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
    show(drawn, f"{y_name} against {x_name}, a mark a seed, lines through the means. {'; '.join(said)}; dotted, "
                f"{level[0]}: {level[1]:.2f}.{happens}")  # fmt: skip


def two_probes(
    groups: Mapping[str, Sequence[tuple[float, float]]], x_name: str, y_name: str, chance: float
) -> None:  # fmt: skip
    """What two probes read, each as a share: a mark (x, y) a seed of a group; x by `chance` and y = 0 are dotted."""
    drawn, ax = figure(6.8, 3.6)
    said = []
    for i, (name, points) in enumerate(groups.items()):
        xs, ys = zip(*points, strict=True)
        colour, marker, _ = APART[i]
        ax.plot(xs, ys, marker, color=colour, markersize=9, markeredgewidth=1, zorder=3, linestyle="none",
                markeredgecolor="white")  # fmt: skip  # marks that overlap are still told apart
        said.append(f"{name}: " + ", ".join(f"({x:.2f}, {y:.2f})" for x, y in points))
        ax.annotate(name, (max(xs), sum(ys) / len(ys)), (10, 0), fontsize=10, color=INK, textcoords="offset points",
                    ha="left", va="center")  # fmt: skip
    ax.axvline(chance, color=GREY, linestyle=":", linewidth=1.4, zorder=1)
    ax.axhline(0, color=GREY, linestyle=":", linewidth=1.4, zorder=1)
    ax.annotate("chance", (chance, 0.5), (-4, 0), textcoords="offset points", ha="right", va="center", fontsize=10,
                color=GREY)  # fmt: skip
    ax.annotate("always the mean", (1, 0), (-4, 3), textcoords="offset points", ha="right", va="bottom", fontsize=10,
                color=GREY)  # fmt: skip
    ax.set_xlim(0, 1)
    ax.set_ylim(-0.08, 1.03)
    name_lines(ax, x_name, y_name)
    show(drawn, f"{y_name} against {x_name}, a mark a seed. {'; '.join(said)}. Dotted: chance, x = {chance:.2f}, "
                f"and always the mean, y = 0.")  # fmt: skip


def rows_of_runs(
    groups: Mapping[str, Sequence[float]], x_name: str, hollow: Collection[str] = (), start: float | None = None
) -> None:  # fmt: skip
    """A row for each group, a mark for each run's share in percent, a line at their mean, and the mean over it.

    CNNs and ViTs have a colour each; of other groups the hollow ones are dark and the full ones blue.
    Marks of `hollow` groups are hollow; those of a row stand one below the other a little, so that none hides another.
    The axis begins at the share `start`.
    """
    drawn, ax = figure(7.2, 1.0 + 0.54 * len(groups))
    said = []
    for y, (name, shares) in enumerate(groups.items()):
        values = [100 * share for share in shares]
        colour = _family(name) or (INK if name in hollow else BLUE)
        face = "white" if name in hollow else colour
        mean = sum(values) / len(values)
        _mean_line(ax, y, mean, f"mean {mean:.0f}")
        steps = [y + 0.4 * ((i + 0.5) / len(values) - 0.5) for i in range(len(values))]
        ax.plot(values, steps, "s" if name in hollow else "o", color=colour, markerfacecolor=face, markersize=6,
                markeredgewidth=1.6, linestyle="none", clip_on=False, zorder=3)  # fmt: skip
        said.append(f"{name}: {', '.join(f'{value:.1f}' for value in values)}, mean {mean:.0f}")
    ax.set_xlim(left=start and 100 * start)
    ax.set_yticks(range(len(groups)), list(groups))
    ax.set_ylim(len(groups) - 0.5, -0.7)
    ax.tick_params(axis="y", length=0)
    ax.grid(axis="x", color=PALE, linewidth=0.8)
    ax.set_axisbelow(True)
    ax.set_xlabel(x_name)
    show(drawn, f"{x_name}, one mark a run, a vertical line at each mean. {'; '.join(said)}.")


def image_row(images: Sequence[Tensor], names: Sequence[str], alt: str = "") -> None:
    """Small pictures (height, width) in a row, black for most, with their names."""
    drawn, grid = figure(1.5 * len(images), 1.75, columns=len(images))
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
    drawn, ax = figure(9.0, 3.7)
    stage(ax, (-1.7, 27.6), (-6.2, 5.1))
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
    for y, words in ((2.15, "patches"), (-0.6, f"rows of\n{d}"), (-1.7, "positions")):
        ax.text(right + 0.25, y, words, ha="left", va="center", fontsize=9.5, color=GREY)
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
    box(ax, 2.2, -5.3, f"$x_{{{i}}}W\\ (+\\,b)$: {d} numbers", BLUE, width=6.3)


def convolution(image: Tensor, weights: Tensor, at: tuple[int, int]) -> None:
    """One window of a convolution with stride 1 and a border of zeros, and the next one, from the left to the right.

    First the picture (height, width) with its border; then the `weights`, (3, 3), and the sum of their products with
    the window whose middle is the pixel `at`; then all sums, (height, width). Raises ValueError for other weights.
    """
    height, width = image.shape
    check_shape("weights", weights, "rows columns", rows=3, columns=3)
    padded = np.pad(image.numpy(), 1)                                                     # (height + 2, width + 2)
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3))                    # (height, width, 3, 3)
    sums = (windows * weights.numpy()).sum(axis=(2, 3))                                   # (height, width)
    row, column = at
    drawn, ax = figure(8.4, 3.6)
    middle, output = width + 5.0, width + 11.0
    stage(ax, (-0.2, output + width + 0.2), (-height - 1.2, 2.6))
    ax.set_aspect("equal")
    _numbers(ax, padded, (0, 1), "image, with a border of zeros")
    for i, j in np.ndindex(*padded.shape):
        if i in (0, height + 1) or j in (0, width + 1):
            ax.add_patch(Rectangle((j, -i), 1, 1, facecolor="none", edgecolor=PALE, hatch="////", linewidth=0))
    for step, colour, dashes in ((1, PURPLE, (0, (3, 2))), (0, ORANGE, "-")):
        ax.add_patch(Rectangle((column + step, -row - 2), 3, 3, fill=False, edgecolor=colour, linewidth=2.4,
                               linestyle=dashes, zorder=4))  # fmt: skip
        ax.add_patch(Rectangle((output + column + step, -row - 1), 1, 1, fill=False, edgecolor=colour, linewidth=2.4,
                               linestyle=dashes, zorder=4 - step))  # fmt: skip
    _numbers(ax, weights.numpy(), (middle, -row + 1), "× nine weights")
    arrow(ax, (width + 2.3, -row - 0.5), (middle - 0.3, -row - 0.5), colour=ORANGE)
    arrow(ax, (middle + 3.3, -row - 0.5), (output - 0.3, -row - 0.5), colour=ORANGE)
    words = f"the products\nsum to {_signed(sums[row, column])}"
    ax.text(middle + 1.5, -row - 3.3, words, ha="center", va="center", fontsize=10, color=ORANGE)
    ax.text(middle + 1.5, -row - 5.6, "dashed: the\nnext window", ha="center", va="center", fontsize=10, color=PURPLE)
    products = (windows[row, column] * weights.numpy()).flatten()
    terms = " + ".join(_signed(x) for x in products if x > 0) + "".join(f" − {-x:g}" for x in products if x < 0)
    ax.text(middle + 1.5, -row - 4.4, terms, ha="center", va="center", fontsize=9, color=ORANGE)
    _numbers(ax, sums, (output, 0), "output: a sum at every place")
    show(
        drawn,
        f"A convolution. A 3 by 3 window on a picture with a border of zeros, its middle in row {row} and column "
        f"{column}, times nine weights: the products' sum {sums[row, column]:g} is one number of the output. The next "
        f"window is one pixel further to the right, its sum {sums[row, column + 1]:g}.",
    )


def _numbers(ax: Axes, table: np.ndarray, corner: tuple[float, float], title: str) -> None:
    """A table of numbers in cells of one unit, from its upper left `corner`, under its title.

    Darker is more; where some are negative, blue is above zero and red below.
    """
    left, top = corner
    rows, columns = table.shape
    most, signed = 1.8 * float(abs(table).max()), table.min() < 0  # the darkest colours would hide the numbers
    ax.pcolormesh(np.arange(left, left + columns + 0.5), top - np.arange(rows + 1.0), table,
                  vmin=-most if signed else 0, vmax=most, cmap="RdBu" if signed else "Greys", edgecolors="white",
                  linewidth=0.8)  # fmt: skip
    for (i, j), number in np.ndenumerate(table):
        ax.text(left + j + 0.5, top - i - 0.5, _signed(number), ha="center", va="center", fontsize=9, zorder=3)
    ax.text(left + columns / 2, top + 0.25, title, ha="center", va="bottom", fontsize=10)


def _signed(number: float) -> str:
    return f"{number:g}".replace("-", "−")


def attention_on_images(
    pictures: Sequence[Tensor], maps: Mapping[str, Sequence[Tensor]], names: Sequence[str], framed: str = ""
) -> None:
    """Pictures in the first column, and beside each where was looked: {title: a table (rows, columns) a picture}.

    Numbers are percent. Tables are darker for more, each column up to its largest number, with the picture's outline
    over them; `names` stand at the left. In the column that is `framed` the FOUR largest have a frame.
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
            if title == framed:
                _frame_largest(ax, picture, tables[i])
            if i == 0:
                ax.set_title(f"{title} (%)", fontsize=10)
        where = "; ".join(f"{title} most at {_place(tables[i])}" for title, tables in maps.items())
        said.append(f"{name}: {where}")
    grid[0, 0].set_title("image", fontsize=10)
    frames = f" The four patches with most {framed} have a frame." if framed else ""
    show(drawn, f"Shares of patches in percent, by (row, column), counted from 0. {'. '.join(said)}.{frames}")


def _frame_largest(ax: Axes, picture: Tensor, table: Tensor) -> None:
    """A frame for each of the FOUR patches of a picture with the largest numbers of the table."""
    height, width = (pixels // patches for pixels, patches in zip(picture.shape, table.shape, strict=True))
    for i in table.flatten().topk(FOUR).indices.tolist():
        row, column = divmod(i, table.shape[1])
        ax.add_patch(Rectangle((column * width - 0.5, row * height - 0.5), width, height, fill=False, edgecolor=PURPLE,
                               linewidth=2.4, zorder=5))  # fmt: skip


def attention_by_head(pictures: Sequence[Tensor], weights: Tensor, names: Sequence[str]) -> None:
    """Where each head looks, (pictures, layers, heads, rows, columns): a row of maps for each layer of each picture.

    The picture stands at the left of its maps, with its name; numbers are percent, those below FEW are left out, and
    all maps have one scale, which ends at DARKEST.
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
                _look(grid[i, layer, 1 + head], picture, weights[i, layer, head], numbers=True, most=DARKEST, least=FEW)
            most = ", ".join(_place(table) for table in weights[i, layer])
            said.append(f"{name}, layer {layer}: by head most at {most}")
    for head in range(n_heads):
        grid[0, 0, 1 + head].set_title(f"head {head}", fontsize=10)
    show(drawn, f"Attention of the class token by layer and head, in percent, on (row, column), counted from 0. "
                f"{'. '.join(said)}.")  # fmt: skip


def position_maps(
    similarities: Mapping[str, Tensor], side: int, margin: int = 0, reach: int | None = None, most: float = 1.0,
    beside: str = "side by side",
) -> None:  # fmt: skip
    """How much positions resemble those some rows and columns away, {title: (side², side²)}: a map for each title.

    A cell is the mean cosine of all pairs of places which lie that far apart, at most `reach` steps, by default as far
    as there are pairs; the dot is a place itself. Places of the `margin`, so many rings at the border, are left out.
    Colours end at ± `most`; a title's number is the mean cosine of places `beside` each other, in these words.
    Raises ValueError for a table of another size, for more places than can be shown, and for fewer than two a row.
    """
    check_places(side=side)
    inner = side - 2 * margin
    if inner < 2:
        raise ValueError(f"margin: got {margin}, expected one that leaves two of the side's {side} places")
    reach = inner - 1 if reach is None else reach
    steps = range(-reach, reach + 1)
    drawn, grid = figure(2.5 * len(similarities) + 0.9, 3.4, columns=len(similarities))
    panels, said = list(np.atleast_1d(np.asarray(grid))), []
    for ax, (title, similarity) in zip(panels, similarities.items(), strict=True):
        check_shape("similarities", similarity, "n n", n=side * side)
        table = similarity.detach().numpy().reshape(side, side, side, side)
        kept = table[(slice(margin, side - margin),) * 4]                                  # (inner,) * 4
        means = np.array([[_mean_apart(kept, down, right) for right in steps] for down in steps])
        edge = reach + 0.5
        image = ax.imshow(means, cmap="RdBu", vmin=-most, vmax=most, extent=(-edge, edge, edge, -edge))
        ax.plot(0, 0, "o", markersize=7, color=ORANGE)
        alike = float(np.mean([means[reach, reach + 1], means[reach + 1, reach]]))
        ax.set_title(f"{title}\n{beside}: {alike:.2f}".replace("-", "−"), fontsize=10.5)
        ax.set_xticks(steps)
        ax.set_yticks(steps, None if ax is panels[0] else ["" for _ in steps])
        ax.tick_params(length=0)
        ax.set_xlabel("columns apart")
        said.append(f"{title}: {beside} {alike:.2f}, {reach} rows apart {means[-1, reach]:.2f}")
    panels[0].set_ylabel("rows apart")
    drawn.colorbar(image, ax=panels, label="mean cosine", fraction=0.03, aspect=25,
                   extend="neither" if most == 1 else "both")  # fmt: skip
    show(drawn, f"Mean cosine of two positions, by how far apart their places lie. {'; '.join(said)}.")


def _mean_apart(table: np.ndarray, down: int, right: int) -> float:
    """The mean over all pairs of places, (row, column, row, column), of which the second lies so far from the first."""
    side = len(table)
    return float(np.mean([table[i, j, i + down, j + right] for i in range(side) for j in range(side)
                          if 0 <= i + down < side and 0 <= j + right < side]))  # fmt: skip


def patch_grids(
    images: Sequence[Tensor], names: Sequence[str], patch: int, windows: Sequence[tuple[int, int]]
) -> None:  # fmt: skip
    """Pictures in a row, cut by the lines of their patches; of each, one window as large as a patch has a frame.

    Each of the `windows` is the (row, column) of its upper left pixel.
    """
    drawn, grid = figure(2.3 * len(images), 2.9, columns=len(images))
    for ax, image, name, (row, column) in zip(np.atleast_1d(np.asarray(grid)), images, names, windows, strict=True):
        bare(ax, PALE)
        height, width = image.shape
        ax.imshow(image.numpy(), cmap="Greys", interpolation="nearest")
        for at in range(0, width + 1, patch):
            ax.axvline(at - 0.5, color=BLUE, linewidth=0.9)
        for at in range(0, height + 1, patch):
            ax.axhline(at - 0.5, color=BLUE, linewidth=0.9)
        ax.add_patch(Rectangle((column - 0.5, row - 0.5), patch, patch, fill=False, edgecolor=ORANGE, linewidth=3,
                               zorder=3))  # fmt: skip
        ax.set_title(name, fontsize=10.5)
    whole = ["is a patch" if not (row % patch or column % patch) else "is cut by the lines" for row, column in windows]
    said = "; ".join(f"{' '.join(name.split())}: the framed window {what}"
                     for name, what in zip(names, whole, strict=True))  # fmt: skip
    show(drawn, f"Pictures, cut into patches of {patch} by {patch} pixels. {said}.")


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
                ax.add_patch(Rectangle((x, y), 1, 1, fill=False, edgecolor=ORANGE, linewidth=2.4, zorder=5,
                                       clip_on=False))  # fmt: skip
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
    pitch: float | None = None,
) -> None:
    """A sound (n_samples,), and below it what each frame sounds like: log spectra (n_frames, n_frequencies).

    `spoken` says what is said from when to when, in seconds; frames are `hop` samples apart. `formants` are lines over
    the spectra, some hertz for each that is spoken. Frequencies end at the `highest`, by default at half the rate.
    The `pitch`, in hertz, and two and three times as much are named at the right.
    """
    drawn, (up, down) = figure(7.6, 4.3, rows=2)
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
                down.plot([start, end], [height, height], color=ORANGE, linewidth=1.8, linestyle=(0, (1, 1.4)))
    for number, height in enumerate(formants[-1] if formants else (), start=1):
        if height < highest:
            down.annotate(f"F{number}", (1, height), (4, 0), xycoords=("axes fraction", "data"), fontsize=9.5,
                          textcoords="offset points", va="center", color=ORANGE)  # fmt: skip
    if pitch is not None:
        for times, name in enumerate(("pitch", "2 · pitch", "3 · pitch"), start=1):
            down.annotate(name, (1, times * pitch), (4, 0), xycoords=("axes fraction", "data"), fontsize=9.5,
                          textcoords="offset points", va="center", color=INK)  # fmt: skip
    down.set_xlim(0, seconds)
    down.set_ylim(0, highest)
    down.set_xlabel("seconds")
    down.set_ylabel("hertz")
    drawn.colorbar(image, ax=down, label="log power", aspect=12, pad=0.03)
    if title:
        drawn.suptitle(title, fontsize=11)
    words = ", ".join(word for _, _, word in spoken)
    lines = " Formants are drawn as dotted lines." if formants else ""
    if pitch is not None:
        lines += f" The lowest stripe, at {pitch:.0f} hertz, is the pitch, and the next lie at its multiples."
    show(
        drawn,
        f"{title or 'A sound'}: {seconds:g} s, its waveform above, and below how loud each frequency is in each of "
        f"{len(loudness)} frames, darker for louder. The darkest stripes lie near F1, and change from vowel to vowel: "
        f"{words}.{lines}",
    )


def wav2vec_diagram(targets: str = "codebook") -> None:
    """wav2vec 2.0 in one picture: frames, some masked, a Transformer, context vectors, and their `targets`."""
    drawn, ax = figure(9.5, 4.3)
    stage(ax, (-3.1, 20.7), (-0.4, 9.9))
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
            ax.texts[-1].set_fontsize(9.5)  # else the word touches its box
        else:
            box(ax, x, 4.3, f"$z_{i + 1}$", BLUE)
        arrow(ax, (x, 4.85), (x, 5.4))
        if gone:
            arrow(ax, (x, 6.6), (x, 7.15), colour=ORANGE)
            box(ax, x, 7.7, f"$c_{i + 1}$", ORANGE)
    ax.add_patch(Rectangle((0.1, 5.45), 12.95, 1.1, facecolor=(*rgb(GREEN), 0.14), edgecolor=GREEN, linewidth=1.6))
    ax.text(6.6, 6.0, "Transformer: every frame attends to all", ha="center", va="center", fontsize=11)
    # One of the masked frames is played through: its vector meets its own target, and those of the other masked ones.
    x, bus, cosines = xs[4], 13.6, {5: 0.8, 4: 0.1, 6: -0.2}
    powers = {i: np.exp(cosine / KAPPA) for i, cosine in cosines.items()}
    ax.plot([x, x, bus, bus], [8.25, 9.1, 9.1, 5.3], color=ORANGE, linewidth=1.8)
    ax.text(10.3, 9.45, "$c_5$: which of these stood there?", ha="center", va="center", fontsize=10.5)
    ax.text(14.45, 8.6, "cosine", ha="center", va="center", fontsize=10, color=ORANGE)
    ax.text(16.5, 8.6, "3 candidates", ha="center", va="center", fontsize=10, color=PURPLE)
    ax.text(18.75, 8.8, f"softmax of\ncos / {KAPPA:g}", ha="center", va="center", fontsize=10)
    ax.text(14.3, 3.85, "$z_4, z_5, z_6$", ha="center", va="center", fontsize=10, color=PURPLE)
    for y, (i, cosine) in zip((7.7, 6.5, 5.3), cosines.items(), strict=True):
        arrow(ax, (bus, y), (15.3, y), colour=ORANGE)
        ax.text(14.45, y + 0.3, f"{cosine:.1f}".replace("-", "−"), ha="center", va="center", fontsize=10, color=ORANGE)
        label = f"$q_{i}$ " + ("right" if i == 5 else "wrong")
        box(ax, 16.5, y, label, PURPLE, width=2.3, fill=None if i == 5 else "white")
        share = powers[i] / sum(powers.values())
        ax.text(18.75, y, f"{share:.3f}", ha="center", va="center", fontsize=10)
    loss = -np.log(powers[5] / sum(powers.values()))
    ax.text(19.0, 3.8, f"loss:\n−log {np.exp(-loss):.3f}\n≈ {loss:.3f}", ha="center", va="center", fontsize=10)
    for i in masked:
        ax.plot([xs[i] + 0.25, xs[i] + 0.25], [3.05, 3.42], color=PURPLE, linewidth=1.2)
    arrow(ax, (xs[masked[0]] + 0.25, 3.42), (15.3, 3.42), colour=PURPLE)
    box(ax, 16.5, 3.7, targets, PURPLE, width=2.3)
    arrow(ax, (16.5, 4.25), (16.5, 4.75), colour=PURPLE)
    for y, words in (
        (0.45, "waveform"),
        (2.5, "frames, by\nconvolutions"),
        (4.3, "a span\nis masked"),
        (7.7, "context\nvectors"),
    ):
        ax.text(-0.35, y, words, ha="right", va="center", fontsize=10.5)
    show(
        drawn,
        "wav2vec 2.0. Convolutions turn a waveform into frames z1 to z8. A span, z4 to z6, is replaced by a learned "
        "vector, and a Transformer in which every frame attends to all puts context vectors c4 to c6 there. The frames "
        f"that were masked go through a {targets} and become q4 to q6. "
        "The vector c5 is compared with each by cosine; softmax makes of the cosines the probability of its own, q5, "
        f"{np.exp(-loss):.3f}, so the loss is about {loss:.3f}.",
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


def codes_used(shares: Mapping[str, Tensor], kinds: int, title: str = "") -> None:
    """How often each entry of a codebook is chosen, {run: (n_entries,)}, the most used first; 1 / `kinds` is dotted."""
    drawn, _ = figure(2.7 * len(shares) + 0.4, 2.5, columns=len(shares))
    most = max(float(used.max()) for used in shares.values())
    said = []
    for i, (ax, (name, used)) in enumerate(zip(drawn.axes, shares.items(), strict=False)):
        heights = used.sort(descending=True).values.numpy()
        ax.bar(range(1, len(heights) + 1), heights, color=SERIES[i], hatch=HATCHES[i % 4], edgecolor="white")
        ax.axhline(1 / kinds, color=INK, linestyle=":", linewidth=1.2)
        ax.annotate(f"one kind: 1/{kinds}", (1, 1 / kinds), (0, 4), textcoords="offset points",
                    xycoords=("axes fraction", "data"), ha="right", va="bottom", fontsize=9.5)  # fmt: skip
        ax.set_ylim(0, 1.15 * most)
        ax.set_xticks([1, *range(4, len(heights) + 1, 4)])
        ax.set_xlabel("entries, the most used first")
        ax.set_title(name, fontsize=10.5)
        used_at_all = int((heights > 0.01).sum())
        said.append(f"{name}: the most used entry has {heights[0]:.0%}, {used_at_all} of {len(heights)} more than 1 %")
    drawn.axes[0].set_ylabel("share of the points")
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
