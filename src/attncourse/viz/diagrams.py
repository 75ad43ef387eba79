"""Drawings of architectures: boxes, arrows, and the symbols of the equations."""

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch

from attncourse.viz.style import GREY, INK, WEIGHTS


def box(ax: Axes, x: float, y: float, label: str, colour: str, width: float = 1.1, fill=None, text: str = INK) -> None:
    """A rounded box around (x, y), one unit high, with its label."""
    patch = FancyBboxPatch(
        (x - width / 2, y - 0.5),
        width,
        1.0,
        boxstyle="round,pad=0.02,rounding_size=0.14",
        linewidth=1.6,
        edgecolor=colour,
        facecolor=fill if fill is not None else (*rgb(colour), 0.14),
    )
    ax.add_patch(patch)
    ax.text(x, y, label, ha="center", va="center", fontsize=11.5, color=text)


def rgb(colour: str) -> tuple[float, float, float]:
    """"#rrggbb" as three numbers from 0 to 1, to put an opacity behind them."""
    red, green, blue = (int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5))
    return red, green, blue


def arrow(
    ax: Axes,
    start: tuple[float, float],
    end: tuple[float, float],
    colour: str = GREY,
    width: float = 1.2,
    both: bool = False,
) -> None:
    """An arrow that begins and ends exactly where it is told to."""
    style = "<|-|>" if both else "-|>"
    ax.add_patch(
        FancyArrowPatch(
            start, end, arrowstyle=style, mutation_scale=9 + width, linewidth=width, color=colour, shrinkA=0, shrinkB=0
        )
    )


def dots(ax: Axes, n: int, levels: Sequence[int] | range) -> None:
    """A row of n dots at each height: positions, layer by layer."""
    for level in levels:
        ax.plot(range(n), [level] * n, "o", markersize=8, color=WEIGHTS(0.25), markeredgecolor=GREY, zorder=3)
