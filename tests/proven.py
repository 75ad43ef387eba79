"""Proves of a test of a picture that it looks at what is drawn: a picture that is spoilt must fail it."""

import functools
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import drawn
import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.collections import PathCollection, QuadMesh
from matplotlib.container import BarContainer
from matplotlib.contour import QuadContourSet
from matplotlib.figure import Figure
from matplotlib.patches import Arc, Circle, FancyArrowPatch, FancyBboxPatch, Patch, Polygon, Rectangle
from matplotlib.path import Path
from matplotlib.ticker import FuncFormatter


def proven(test: Callable) -> Callable:
    """A test of what is drawn, and the proof that it looks: it must fail when what it drew is spoilt.

    Kind by kind (lines, bars, images, words, …) and axes by axes what is drawn is turned round, turned upside down,
    transposed, or exchanged among its kind. What that leaves as it was (a level line, turned round) proves nothing, so
    draw what is not symmetric. The test draws by `drawn.axes`; the proof hands it the same pictures again, which takes
    milliseconds.
    """

    @functools.wraps(test)
    def checked(*given, **named):
        drawn.pictures.clear()
        test(*given, **named)
        pictures = [*drawn.pictures]
        assert pictures, "the test draws nothing: axes(viz.…, …)"

        def passes() -> bool:
            drawn.again[:] = pictures
            try:
                test(*given, **named)
            except (AssertionError, ValueError, KeyError, IndexError):
                return False
            finally:
                drawn.again.clear()
            return True

        assert passes(), "on the same picture the test fails: does it draw lots, or call `axes` in another order?"
        unnoticed = []
        for fault, spoil in (each for picture in pictures for each in faults(picture)):
            spoil()
            if passes():
                unnoticed.append(fault)
            spoil()                                                      # each is its own inverse
        assert passes(), "a fault was not made good"
        if unnoticed:
            pytest.fail(f"{test.__name__} passes with {'; '.join(unnoticed)}", pytrace=False)

    return checked


def faults(picture: Figure) -> Iterator[tuple[str, Callable[[], None]]]:
    """What can be wrong in a picture, in words, and how to make it so; and to make it good, by the same once more."""
    for kind in KINDS:
        for number, things in enumerate(kind.find(picture)):
            for way, change in kind.ways.items():
                values = [kind.get(thing) for thing in things]
                if _said(change(values)) != _said(values):
                    yield f"{kind.name} {way} in axes {number}", functools.partial(_apply, kind, change, things)


class Kind(NamedTuple):
    """Things of one kind in each axes, what of them may be wrong, and the ways to change a list of these values."""

    name: str
    find: Callable[[Figure], list[list]]
    get: Callable[[Any], Any]
    put: Callable[[Any, Any], Any]
    ways: dict[str, Callable[[list], list]]


def _apply(kind: Kind, change: Callable[[list], list], things: list) -> None:
    for thing, value in zip(things, change([kind.get(thing) for thing in things]), strict=True):
        kind.put(thing, value)


def _said(values) -> str:
    """All of them, in text: arrays are long, and of unequal shapes."""
    if isinstance(values, Path):
        return str(values.vertices.tolist())
    if isinstance(values, np.ndarray):
        return str(drawn.plain(values))
    return str([_said(value) for value in values]) if isinstance(values, list | tuple) else str(values)


def in_each(find: Callable[[Axes], list]) -> Callable[[Figure], list[list]]:
    """What is found in each of a picture's axes, by itself."""
    return lambda picture: [find(ax) for ax in picture.axes if ax.get_label() != "<colorbar>"]


def each(change: Callable) -> Callable[[list], list]:
    return lambda values: [change(value) for value in values]


def exchanged(values: list) -> list:
    return values[::-1] if len({np.shape(value) for value in values if isinstance(value, np.ndarray)}) < 2 else values


TURNED = {"turned round": each(lambda value: value[::-1])}
NEGATED = {"negated": each(lambda value: -value)}
EXCHANGED = {"exchanged": exchanged}
GRID = {
    "upside down": each(lambda grid: grid[::-1]),
    "mirrored": each(lambda grid: grid[:, ::-1]),
    "transposed": each(lambda grid: grid.T if len(grid) == len(grid.T) else grid),
}


def _lying(bars: BarContainer) -> bool:
    return bars.orientation == "horizontal"


def _set_heights(bars: BarContainer, heights: np.ndarray) -> None:
    for bar, height in zip(bars, heights, strict=True):
        (bar.set_width if _lying(bars) else bar.set_height)(height)


def _set_starts(bars: BarContainer, starts: np.ndarray) -> None:
    for bar, start in zip(bars, starts, strict=True):
        (bar.set_x if _lying(bars) else bar.set_y)(start)


def _bars(ax: Axes) -> list[BarContainer]:
    return [each for each in ax.containers if isinstance(each, BarContainer)]


def _patches(kind: type[Patch]) -> Callable[[Figure], list[list]]:
    def find(ax: Axes) -> list[Patch]:
        bars = {id(bar) for bars in _bars(ax) for bar in bars}
        return [patch for patch in ax.patches if type(patch) is kind and id(patch) not in bars]

    return in_each(find)


def _named(picture: Figure) -> list[list]:
    """The axes (x, y) whose ticks somebody has named."""
    both = [axis for ax in picture.axes for axis in (ax.xaxis, ax.yaxis)]
    return [[axis] for axis in both if isinstance(axis.get_major_formatter(), FuncFormatter)]


def _legends(picture: Figure) -> list[list]:
    return [legend.get_texts() for legend in (*picture.legends, *(ax.get_legend() for ax in picture.axes)) if legend]


def _box(patch) -> np.ndarray:
    return np.array([patch.get_x(), patch.get_width()])


def _set_angles(arc: Arc, angles: np.ndarray) -> None:
    arc.theta1, arc.theta2 = angles


BOX = (_box, lambda patch, box: patch.set_x(box[0]), {"mirrored": each(lambda box: np.array([-box.sum(), box[1]]))})
KINDS = [
    Kind("lines", in_each(lambda ax: [*ax.lines]), lambda line: np.asarray(line.get_ydata(), float),
         lambda line, ys: line.set_ydata(ys), TURNED | NEGATED),
    Kind("lines", in_each(lambda ax: [*ax.lines]), lambda line: line.get_data(),
         lambda line, xy: line.set_data(*xy), {"exchanged": lambda values: values[::-1]}),
    Kind("one of the curves", lambda picture: [[line] for ax in picture.axes for line in ax.lines
                                               if len(line.get_xdata()) > 2],
         lambda line: np.asarray(line.get_ydata(), float), lambda line, ys: line.set_ydata(ys), TURNED | NEGATED),
    Kind("bars", in_each(_bars),
         lambda bars: np.array([bar.get_width() if _lying(bars) else bar.get_height() for bar in bars]),
         _set_heights, TURNED | NEGATED | EXCHANGED),
    Kind("where bars begin", in_each(_bars),
         lambda bars: np.array([bar.get_x() if _lying(bars) else bar.get_y() for bar in bars]), _set_starts, NEGATED),
    Kind("grids", in_each(lambda ax: [*ax.images, *(each for each in ax.collections if isinstance(each, QuadMesh))]),
         lambda grid: np.ma.asarray(grid.get_array()), lambda grid, to: grid.set_array(to),
         GRID | NEGATED | EXCHANGED),
    Kind("points", in_each(lambda ax: [each for each in ax.collections if isinstance(each, PathCollection)]),
         lambda cloud: np.asarray(cloud.get_offsets()), lambda cloud, to: cloud.set_offsets(to),
         TURNED | NEGATED | EXCHANGED | {"with x for y": each(lambda xy: xy[:, ::-1])}),
    Kind("sizes of points", in_each(lambda ax: [each for each in ax.collections if isinstance(each, PathCollection)]),
         lambda cloud: cloud.get_sizes(), lambda cloud, to: cloud.set_sizes(to), EXCHANGED),
    Kind("contours", in_each(lambda ax: [each for each in ax.collections if isinstance(each, QuadContourSet)]),
         lambda lines: lines.get_paths(), lambda lines, to: lines.set_paths(to),
         {"mirrored": each(lambda paths: [Path(path.vertices * [-1, 1], path.codes) for path in paths]),
          "upside down": each(lambda paths: [Path(path.vertices * [1, -1], path.codes) for path in paths])}),
    Kind("words", in_each(lambda ax: [text for text in ax.texts if text.get_text()]), lambda text: text.get_text(),
         lambda text, words: text.set_text(words),
         {"exchanged": lambda words: words[::-1] if len(words) > 1 else [each[::-1] for each in words]}),
    Kind("titles", lambda picture: [[ax.title for ax in picture.axes]], lambda title: title.get_text(),
         lambda title, words: title.set_text(words), EXCHANGED),
    Kind("names in the legend", _legends, lambda text: text.get_text(), lambda text, words: text.set_text(words),
         EXCHANGED),
    Kind("labels of the ticks", _named, lambda axis: [*drawn.labels(axis).values()],
         lambda axis, names: axis.set_ticks(axis.get_majorticklocs(), names), TURNED),
    Kind("arrows", _patches(FancyArrowPatch), lambda arrow: arrow._posA_posB,
         lambda arrow, ends: arrow.set_positions(*ends), TURNED),
    Kind("boxes", _patches(FancyBboxPatch), *BOX),
    Kind("rectangles", _patches(Rectangle), *BOX),
    Kind("colours of the rectangles", _patches(Rectangle),
         lambda cell: (cell.get_fill(), cell.get_facecolor(), cell.get_hatch()),
         lambda cell, look: cell.set(fill=look[0], facecolor=look[1], hatch=look[2]), EXCHANGED),
    Kind("circles", _patches(Circle), lambda circle: np.array(circle.center),
         lambda circle, to: setattr(circle, "center", tuple(to)), NEGATED),
    Kind("arcs", _patches(Arc), lambda arc: np.array([arc.theta1, arc.theta2]), _set_angles,
         {"mirrored": each(lambda angles: -angles[::-1])}),
    Kind("polygons", _patches(Polygon), lambda corners: corners.get_xy(), lambda patch, to: patch.set_xy(to), NEGATED),
]  # fmt: skip
