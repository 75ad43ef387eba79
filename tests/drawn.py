"""Reads from a picture what is really drawn in it: curves, bars, grids, words, boxes, arrows. See also proven.py."""

from collections.abc import Callable
from unittest.mock import patch

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.collections import PathCollection, QuadMesh
from matplotlib.colors import to_hex
from matplotlib.container import BarContainer
from matplotlib.contour import QuadContourSet
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from matplotlib.lines import Line2D
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch, Patch, Rectangle
from matplotlib.text import Annotation
from matplotlib.ticker import FixedLocator

from attncourse.viz.live_widget import LiveWidget

pictures: list[Figure] = []  # those that a test has asked for, in order
again: list[Figure] = []  # what it gets when it asks once more, while it is being proven


def axes(draw: Callable, *given, **named) -> list[Axes]:
    """The axes of the one picture that a function of `viz` shows, or returns with its words, or keeps as a still."""
    if again:
        return again.pop(0).axes
    shown: list[Figure] = []
    with (
        patch("attncourse.viz.style.picture", lambda drawn, alt: (shown.append(drawn) or {}, {})),
        patch("attncourse.viz.style.display"),
    ):
        got = draw(*given, **named)
    if isinstance(got, LiveWidget):
        got = got.still()
    (figure,) = shown or [got[0]]
    pictures.append(figure)
    return figure.axes


# What a reader sees in some axes


def plain(values):
    """Numbers as lists, of six digits so that a test can write them down, None for what is masked or NaN."""
    array = np.ma.filled(np.ma.asarray(values, dtype=float), np.nan)
    if array.ndim:
        return [plain(value) for value in array]
    return None if np.isnan(array) else round(float(f"{array:.6g}"), 12) + 0.0              # no −0


def _points(xs, ys) -> list[tuple[float, float]]:
    return list(zip(plain(xs), plain(ys), strict=True))


def strokes(ax: Axes) -> list[list[tuple[float, float]]]:
    """The (x, y) of every line, in the order of drawing."""
    return [_points(*line.get_data(orig=True)) for line in ax.lines]


def curves(ax: Axes) -> dict[str, dict[str | float, float]]:
    """{name: {x, or the tick's label there: y}} of the lines that the legend names, by colour, dashes and marker."""
    names = _legend(ax)
    return {
        names[_look(line)]: {_label(ax.xaxis, x, within=1e-9): y for x, y in stroke}
        for line, stroke in zip(ax.lines, strokes(ax), strict=True)
        if _look(line) in names
    }


def bars(ax: Axes, stacked: bool = False) -> dict[str, dict[str | float, float]]:
    """{name in the legend, or "": {tick label, or place where there is none: height}}, of lying bars their length.

    They begin at 0, unless they are `stacked`.
    """
    found: dict[str, dict[str | float, float]] = {}
    for container in filter(lambda each: isinstance(each, BarContainer), ax.containers):
        lying = container.orientation == "horizontal"
        for bar in container:
            corner, thick = (bar.get_y(), bar.get_height()) if lying else (bar.get_x(), bar.get_width())
            assert stacked or (bar.get_x() if lying else bar.get_y()) == 0, "a bar that hangs in the air"
            at = _label(ax.yaxis if lying else ax.xaxis, corner + thick / 2)
            heights = found.setdefault(_legend(ax).get(_look(bar), ""), {})
            assert at not in heights, f"two bars at {at}"
            heights[at] = plain(bar.get_width() if lying else bar.get_height())
    return found


def dots(ax: Axes) -> list[tuple[float, float]]:
    """The (x, y) of all scattered points."""
    return [point for cloud in _clouds(ax) for point in _points(*np.asarray(cloud.get_offsets()).T)]


def sizes(ax: Axes) -> list[float]:
    """How large each scattered point is."""
    return [size for cloud in _clouds(ax) for size in plain(cloud.get_sizes())]


def grids(ax: Axes) -> list[list[list[float]]]:
    """The numbers of each coloured grid as a reader sees them: the highest row first, from left to right."""
    return [plain(_as_seen(ax, *_grid(each))) for each in _coloured(ax)]


def grid(ax: Axes) -> list[list[float]]:
    """The numbers of the one coloured grid."""
    (only,) = grids(ax)
    return only


def contours(ax: Axes) -> list[tuple[float, float, list[tuple[float, float]]]]:
    """Of every contour, or band between two, the least and the greatest height, and the (x, y) of its outline."""
    found = []
    for each in (each for each in ax.collections if isinstance(each, QuadContourSet)):
        between = [-np.inf, *each.levels, np.inf] if each.filled else each.levels       # ours go on at both ends
        bands = zip(between, between[1:] if each.filled else between, strict=False)
        paths = each.get_paths()
        found += [(low, high, _points(*path.vertices.T)) for (low, high), path in zip(bands, paths, strict=True)]
    return [contour for contour in found if contour[2]]


def table(ax: Axes) -> dict[str, dict[str, float]]:
    """{label of the row: {label of the column: number}} of the one coloured grid, read by the ticks beside it."""
    ((xs, ys, numbers),) = map(_grid, _coloured(ax))

    def nearest(places: np.ndarray, at: float) -> int:
        i = int(np.abs(places - at).argmin())
        assert abs(places[i] - at) < 0.01, "the labels stand in the middle of their rows and columns"
        return i

    columns, rows = labels(ax.xaxis), labels(ax.yaxis)
    assert (len(rows), len(columns)) == numbers.shape, "a label for each row and column"
    return {row: {column: plain(numbers[nearest(ys, y), nearest(xs, x)]) for x, column in columns.items()}
            for y, row in rows.items()}  # fmt: skip


def written(ax: Axes) -> dict[str, dict[str, str]]:
    """{label of the row: {label of the column: words}}, of the words that stand where a row and a column meet."""
    found: dict[str, dict[str, str]] = {row: {} for row in labels(ax.yaxis).values()}
    for words, x, y in texts(ax):
        row, column = _label(ax.yaxis, y), _label(ax.xaxis, x)
        if isinstance(row, str) and isinstance(column, str):
            found[row][column] = words
    return found


def texts(ax: Axes) -> list[tuple[str, float, float]]:
    """All words in the drawing, and where they stand; those of an annotation at what they are said of."""
    return [(text.get_text(), *plain(text.xy if isinstance(text, Annotation) else text.get_position()))
            for text in ax.texts]  # fmt: skip


def places(ax: Axes, *among: str) -> dict[str, tuple[float, float]]:
    """Where words stand, of which there is one each; all, or those `among` them."""
    found: dict[str, tuple[float, float]] = {}
    for words, x, y in texts(ax):
        if not among or words in among:
            assert words not in found, f"{words!r} stands there twice"
            found[words] = (x, y)
    assert set(among) <= set(found), f"{set(among) - set(found)} is not there"
    return found


def arrows(ax: Axes) -> list[tuple[tuple[float, float], tuple[float, float]]]:
    """Where each arrow begins and ends."""
    return [tuple(map(tuple, plain(arrow._posA_posB))) for arrow in ax.patches if isinstance(arrow, FancyArrowPatch)]


def joined(ax: Axes) -> list[tuple[str, str]]:
    """For each arrow the words nearest to where it begins, and nearest to where it ends."""
    said = [(words, boxes or [(x, y, x, y)]) for words, x, y, boxes in _in_boxes(ax)]

    def nearest(x: float, y: float) -> str:
        def away(box: tuple[float, float, float, float]) -> float:
            left, low, right, high = box
            return np.hypot(max(left - x, 0, x - right), max(low - y, 0, y - high))

        return min(said, key=lambda named: min(map(away, named[1])))[0]

    return [(nearest(*start), nearest(*end)) for start, end in arrows(ax)]


def cells(ax: Axes) -> dict[tuple[float, float, float, float], tuple[str, str]]:
    """{(left, low, width, height): (colour of the face, hatch)} of all rectangles but bars; the last drawn is seen."""
    bars = {id(bar) for container in ax.containers for bar in container}
    return {
        tuple(plain([patch.get_x(), patch.get_y(), patch.get_width(), patch.get_height()])): _look(patch)
        for patch in ax.patches
        if isinstance(patch, Rectangle | FancyBboxPatch) and id(patch) not in bars
    }


def boxed(ax: Axes) -> list[str]:
    """The words that stand in a box."""
    return [words for words, _, _, boxes in _in_boxes(ax) if boxes]


def _in_boxes(ax: Axes) -> list[tuple[str, float, float, list[tuple[float, float, float, float]]]]:
    """All words, where they stand, and the boxes (left, low, right, high) that this is in."""
    boxes = [(left, low, left + width, low + height) for left, low, width, height in cells(ax)]
    return [(words, x, y, [box for box in boxes if box[0] <= x <= box[2] and box[1] <= y <= box[3]])
            for words, x, y in texts(ax)]  # fmt: skip


def _look(artist: Artist) -> tuple:
    """How a reader tells it from others."""
    if isinstance(artist, Line2D):
        return to_hex(artist.get_color()), str(artist.get_marker()), artist.get_linestyle()
    if isinstance(artist, Patch):
        *rgb, alpha = artist.get_facecolor()
        return to_hex([alpha * part + 1 - alpha for part in rgb]), artist.get_hatch() or ""      # as it is on white
    return ()


def _legend(ax: Axes) -> dict[tuple, str]:
    legends = filter(None, (ax.get_legend(), *ax.figure.legends))
    return {_look(handle): text.get_text() for legend in legends
            for handle, text in zip(legend.legend_handles, legend.get_texts(), strict=True)}  # fmt: skip


def labels(axis: Axis) -> dict[float, str]:
    """{place: label}, of the ticks that somebody has set."""
    if not isinstance(axis.get_major_locator(), FixedLocator):
        return {}
    at = axis.get_majorticklocs()
    names = map(str, axis.get_major_formatter().format_ticks(at))
    return {place: name for place, name in zip(at, names, strict=True) if name}


def _label(axis: Axis, place: float, within: float = 0.5) -> str | float:
    named = labels(axis)
    nearest = min(named, key=lambda at: abs(at - place), default=np.inf)
    return named[nearest] if abs(nearest - place) < within else plain(place)


def _clouds(ax: Axes) -> list[PathCollection]:
    return [each for each in ax.collections if isinstance(each, PathCollection)]


def _coloured(ax: Axes) -> list[AxesImage | QuadMesh]:
    return [*ax.images, *(each for each in ax.collections if isinstance(each, QuadMesh))]


def _grid(each: AxesImage | QuadMesh) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The middles of the columns (n,) and of the rows (m,), and the numbers (m, n)."""
    numbers = np.ma.asarray(each.get_array())
    least, most = each.to_rgba(np.array([numbers.min(), numbers.max()]))[:, :3].sum(axis=1)
    assert most < least or numbers.min() == numbers.max(), "darker for more"
    if isinstance(each, QuadMesh):
        corners = np.asarray(each.get_coordinates())                                         # (m + 1, n + 1, 2)
        xs, ys = corners[0, :, 0], corners[:, 0, 1]
    else:
        left, right, low, high = each.get_extent()
        m, n = numbers.shape
        xs, ys = np.linspace(left, right, n + 1), np.linspace(low, high, m + 1)
        ys = ys if each.origin == "lower" else ys[::-1]
    return (xs[1:] + xs[:-1]) / 2, (ys[1:] + ys[:-1]) / 2, numbers


def _as_seen(ax: Axes, xs: np.ndarray, ys: np.ndarray, numbers: np.ndarray) -> np.ndarray:
    right, up = xs[0] <= xs[-1], ys[0] <= ys[-1]
    numbers = numbers[:, :: 1 if right != ax.xaxis_inverted() else -1]
    return numbers[:: -1 if up != ax.yaxis_inverted() else 1]
