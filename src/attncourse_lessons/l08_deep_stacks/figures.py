"""Deep stacks: what a norm does to a vector, how blocks are wired, how gradients come down, and slices of the loss."""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Circle
from torch import Tensor

from attncourse.viz.diagrams import arrow, box
from attncourse.viz.style import (
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
    figure,
    hold_still,
    show,
    stage,
)

# Two directions that span the plane of the vectors with mean 0, and the direction that the mean has.
PLANE = np.array([[1, -1, 0], [1, 1, -2]]) / np.sqrt([[2], [6]])
MEAN = np.ones(3) / np.sqrt(3)


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
    side.text(reach, 0.06 * reach, "mean 0", ha="right", va="bottom", fontsize=10, color=BLUE)
    side.set_ylabel("direction (1, 1, 1)")
    side.set_title("from the side: the mean is taken off")
    above.add_patch(Circle((0, 0), np.sqrt(3), facecolor="none", edgecolor=BLUE, linewidth=2))
    above.plot(0, 0, "+", color=GREY)
    above.set_title("from above: all to one length")
    for i, (start, end, height) in enumerate(zip(flat, on_circle, high, strict=True)):
        colour = SERIES[i % len(SERIES)]
        if abs(height) > 0.05:
            arrow(side, (start[0], height), (start[0], 0), colour=colour)
        side.text(start[0], height, f" {i + 1}", fontsize=10, color=INK, va="center")
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


def block_wiring(blocks: Mapping[str, Sequence[str]]) -> None:
    """How blocks are wired, side by side, from the bottom up: {title: steps}.

    A step is "norm" (on the way of x), a sublayer's name (x goes round it and is added to what it finds), "norm → name"
    (the sublayer hears a normalised x), or "only name" (nothing goes round it).
    """
    top = 1.6 + max(sum(_height(step) for step in steps) for steps in blocks.values())
    drawn, _ = figure(2.35 * len(blocks) + 0.3, 0.6 + 0.31 * top, columns=len(blocks))
    said = []
    for ax, (title, steps) in zip(drawn.axes, blocks.items(), strict=True):
        stage(ax, (-2.3, 3.6), (-0.4, top))
        ax.set_title(title)
        y = 0.5
        ax.text(0, 0.0, "$x$", ha="center", va="center", fontsize=12)
        for step in steps:
            y = _step(ax, y, step)
        arrow(ax, (0, y), (0, y + 0.8), colour=BLUE, width=2.2)
        said.append(f"{title}: " + ", then ".join(_step_in_words(step) for step in steps))
    show(drawn, f"Wiring of blocks, from x upwards. {'. '.join(said)}.")


def _height(step: str) -> float:
    if step == "norm" or step.startswith("only "):
        return 1.7
    return 4.3 if " → " in step else 2.9


def _step(ax: Axes, y: float, step: str) -> float:
    """Draws one step above height y and returns where the next begins."""
    height = _height(step)
    if step == "norm" or step.startswith("only "):
        arrow(ax, (0, y), (0, y + 0.7), colour=BLUE, width=2.2)
        name = step.removeprefix("only ")
        box(ax, 0, y + 1.2, name, ORANGE if step == "norm" else GREEN, width=1.5 if step == "norm" else 3.1)
        return y + height
    norm, _, name = step.rpartition(" → ")
    ax.plot([0, 0], [y, y + height], color=BLUE, linewidth=2.2)
    ax.plot([0, 1.9], [y + 0.35, y + 0.35], color=GREY, linewidth=1.4)
    at = y + 0.35
    for label, colour, width in ((norm, ORANGE, 1.5), (name, GREEN, 3.1)):
        if label:
            arrow(ax, (1.9, at), (1.9, at + 0.5))
            box(ax, 1.9, at + 1.0, label, colour, width=width)
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
    norm, _, name = step.rpartition(" → ")
    return f"{name} of {'a normalised x' if norm else 'x'} added to x"


def _short(value: float) -> str:
    """A number in at most six signs."""
    if not np.isfinite(value):
        return "∞"
    return f"{value:.2g}" if 0.01 <= value < 100 else f"{value:.0e}".replace("e-0", "e-").replace("e+0", "e+")


SHOWN = (1e-9, 1e9)  # what a gradient's axis holds, in all frames the same


def gradient_flow(sizes: Sequence[float], gradients: Sequence[float], title: str = "") -> tuple[Figure, str]:
    """How large x is on its way up, block by block, and the gradient in each block.

    For `explore`. What is beyond the axes stands at their ends. Returns the figure and the words for it.
    """
    drawn, (up, down) = figure(6.5, 2.9, columns=2)
    hold_still(drawn, left=0.11, right=0.97, bottom=0.18, top=0.8, wspace=0.33)
    for ax, values, start, name in ((up, sizes, 0, "size of x"), (down, gradients, 1, "gradient in the block")):
        ys = np.clip(np.nan_to_num(np.asarray(values, dtype=float), nan=SHOWN[1], posinf=SHOWN[1]), *SHOWN)
        xs = np.arange(start, start + len(ys))
        ax.plot(xs, ys, color=BLUE if ax is up else ORANGE, marker="o", markersize=4, linewidth=1.8)
        ax.axhline(1, color=GREY, linestyle=":", linewidth=1)
        for i in (0, -1):
            x, value, y = xs[i], values[i], ys[i]
            low = y > 1e7 or (i and len(ys) < 4)                          # there is no room above
            at = (0, -13 if low else 8)
            ax.annotate(_short(value), (x, y), at, textcoords="offset points", ha="center", fontsize=9, color=INK)
        ax.set_yscale("log")
        ax.set_ylim(SHOWN[0] / 3, SHOWN[1] * 3)
        ax.set_yticks([1e-8, 1e-4, 1, 1e4, 1e8])
        ax.set_xlim(-1.6, 25.6)
        ax.set_xticks([0, 6, 12, 18, 24])
        ax.grid(axis="y", color=PALE, linewidth=0.8)
        ax.minorticks_off()
        ax.set_title(name, fontsize=10)
    up.set_xlabel("blocks passed →")
    down.set_xlabel("block (the loss comes after the last)")
    if title:
        drawn.suptitle(title, fontsize=11)
    return drawn, (
        f"{title or 'A stack'}: on the way up x goes from size {sizes[0]:.2g} to {sizes[-1]:.2g}. The gradient is "
        f"{gradients[-1]:.2g} in the last block and {gradients[0]:.2g} in the first."
    )


def loss_landscapes(slices: Mapping[str, tuple[Tensor, Tensor]]) -> None:
    """Slices through losses, side by side: {title: (places along a side (m,), losses (m, m))}. Dark is low.

    Lines of equal loss stand at the same heights in all, each ten times the one below it.
    """
    drawn, _ = figure(3.5 * len(slices) + 0.3, 3.6, columns=len(slices))
    levels = [0.01, 0.1, 1.0]
    said = []
    for ax, (title, (side, losses)) in zip(drawn.axes, slices.items(), strict=True):
        low = np.log10(np.clip(losses.numpy().astype(float), 1e-4, 10))
        fills = np.linspace(-4, 1, 21)
        shade = ax.contourf(side, side, low, levels=fills, cmap=WEIGHTS.reversed(), alpha=0.75, extend="both")
        shade.set_rasterized(True)
        lines = ax.contour(side, side, low, levels=np.log10(levels), colors=INK, linewidths=0.9, linestyles="solid")
        ax.clabel(lines, fmt={level: f"{10**level:.2g}" for level in lines.levels}, fontsize=8)
        ax.plot(0, 0, "+", color="white", markersize=10, markeredgewidth=2)
        ax.set_aspect("equal")
        ticks = [float(side[0]), 0.0, float(side[-1])]
        ax.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
        ax.set_yticks(ticks, [f"{tick:g}" for tick in ticks])
        ax.set_title(title)
        middle = losses[len(side) // 2, len(side) // 2].item()
        share = (losses < 0.1).float().mean().item()
        said.append(
            f"{title}: {middle:.2g} in the middle, at most {losses.max().item():.2g}; below 0.1 in {share:.0%} of it"
        )
    show(drawn, f"Loss on a square slice around where training ended. {'; '.join(said)}.")


def normed_vector(formulas: Mapping[str, Tensor], title: str = "") -> tuple[Figure, str]:
    """The numbers of one vector, normalised in several ways, {name: (d,)}, side by side: for `explore`.

    Returns the figure and the words for it.
    """
    drawn, ax = figure(6.3, 2.9)
    hold_still(drawn, left=0.09, right=0.8, bottom=0.09, top=0.87)
    width = 0.82 / len(formulas)
    for i, (name, numbers) in enumerate(formulas.items()):
        places = np.arange(len(numbers)) + width * (i - (len(formulas) - 1) / 2)
        hatch = HATCHES[i % len(HATCHES)]
        ax.bar(places, numbers.tolist(), width=width, color=SERIES[i], hatch=hatch, edgecolor="white", label=name)
    ax.axhline(0, color=GREY, linewidth=0.8)
    ax.set_ylim(-1.9, 1.9)
    ax.set_xticks([])
    ax.set_title(title)
    ax.legend(frameon=False, loc="center left", bbox_to_anchor=(1.01, 0.5))
    largest = ", ".join(f"{name} {numbers.max().item():.2f}" for name, numbers in formulas.items())
    return drawn, f"The numbers of {title or 'one vector'}. The largest of them: {largest}."
