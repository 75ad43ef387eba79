"""One style for every figure, and one door through which figures reach the page: as a PNG with alt text."""

import base64
import math
from collections.abc import Mapping, Sequence
from html import escape
from io import BytesIO
from typing import Any, NamedTuple

from IPython.display import display
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.text import Text
from PIL import Image
from PIL.PngImagePlugin import PngInfo

# Okabe and Ito's colours, told apart by every common kind of colour vision.
INK, GREY, PALE = "#1b1b1b", "#6b6b6b", "#d9d9d9"
BLUE, ORANGE, GREEN, PURPLE = "#0072b2", "#d55e00", "#009e73", "#aa4499"
SKY, AMBER = "#56b4e9", "#e69f00"
SERIES = (BLUE, ORANGE, GREEN, PURPLE, SKY, AMBER, INK, GREY)
MARKERS = (
    ("o", 11, "-"), ("s", 5.5, "--"), ("^", 8, "-"), ("D", 6, "-."),
    ("v", 7, ":"), ("P", 7, "--"), ("X", 7, "-"), ("*", 9, "-."),
)  # fmt: skip
HATCHES = ("", "///", "...", "xxx")
# White to dark blue, lightness falling evenly: reads the same in grey.
WEIGHTS = LinearSegmentedColormap.from_list("weights", ["#ffffff", "#cfe1f2", "#7fb4d9", "#2f7ab5", "#08306b"])
DPI = 144
PAGE = 9.0  # inches of a page's column: what is wider is shown smaller, and so are its words
MOST_INCHES = 40  # a side of a picture: a metre
MOST_PLACES = 40  # rows, columns or words that a picture has a place of their own for


def check_places(**counts: int) -> None:
    """Raises ValueError, which names the argument, where there are more things than can be told apart."""
    for name, n in counts.items():
        if n > MOST_PLACES:
            raise ValueError(
                f"{name}: got {n}, expected at most {MOST_PLACES} in one picture (attention_viewer takes more: it "
                "shows them in blocks)"
            )


def figure(width: float = 6.4, height: float = 3.6, rows: int = 1, columns: int = 1):
    """A figure (inches) and its axes, in the course's style. No global state: it belongs to nobody's `plt`.

    Raises ValueError for one that is larger than any page.
    """
    if not max(width, height) <= MOST_INCHES:
        size = f"{width:.0f} by {height:.0f} inches"
        raise ValueError(f"the picture: got {size}, expected at most {MOST_INCHES} a side: show fewer things in it")
    drawn = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(drawn)
    axes = drawn.subplots(rows, columns)
    for ax in drawn.axes:
        ax.spines[["top", "right"]].set_visible(False)
        ax.spines[["left", "bottom"]].set_color(GREY)
        ax.tick_params(colors=INK, labelsize=10)
        ax.title.set_fontsize(11)
        ax.xaxis.label.set_fontsize(10.5)
        ax.yaxis.label.set_fontsize(10.5)
    return drawn, axes


def line_style(i: int) -> dict:
    """How the i-th line of a plot is drawn: where two lines coincide, both are still to be seen."""
    marker, size, dashes = MARKERS[i % len(MARKERS)]
    colour = SERIES[i % len(SERIES)]
    face = "white" if i == 0 else colour
    return {
        "color": colour,
        "marker": marker,
        "markersize": size,
        "markerfacecolor": face,
        "markeredgewidth": 2 if i == 0 else 1,
        "linestyle": dashes,
        "linewidth": 2,
        "zorder": 3 + i / 10,
    }


def stage(ax: Axes, xlim: tuple[float, float], ylim: tuple[float, float]) -> None:
    """Axes for a drawing: no lines, no numbers, only a place to draw in."""
    ax.set_axis_off()
    ax.set_xlim(*xlim)
    ax.set_ylim(*ylim)


def bare(ax: Axes, colour: str = GREY) -> None:
    """Axes for a small picture: no numbers, a thin frame all around."""
    ax.set_xticks([])
    ax.set_yticks([])
    ax.spines[:].set(visible=True, color=colour)


def hold_still(drawn: Figure, **margins: float) -> None:
    """The same places in every frame: nothing jumps while a slider moves (and a frame takes half the time)."""
    drawn.set_layout_engine(None)
    drawn.subplots_adjust(**margins)


def name_lines(ax: Axes, x_name: str, y_name: str, title: str = "") -> None:
    """What a plot of named lines ends with: names of the axes, faint lines to read heights by, the lines' own names.

    A single line is what the y axis says: it needs no legend.
    """
    ax.set_xlabel(x_name)
    ax.set_ylabel(y_name)
    ax.grid(axis="y", color=PALE, linewidth=0.8)
    ax.set_axisbelow(True)
    if len(ax.get_legend_handles_labels()[1]) > 1:
        ax.legend(frameon=False, loc="center left", bbox_to_anchor=(1.01, 0.5), handlelength=2.4)
    if title:
        ax.set_title(title)


def runs_and_means(ax: Axes, runs: Mapping[str, Mapping[int, Sequence[float]]]) -> dict[str, list[float]]:
    """{line: {x: a value for each run}}: every run a mark, and a line through the means, which come back by name."""
    found = {}
    for i, (name, points) in enumerate(runs.items()):
        style = line_style(i) | {"markersize": 5.5, "markeredgewidth": 1.5 if i == 0 else 1}
        means = found[name] = [sum(values) / len(values) for values in points.values()]
        # Where a mean is, there need not be a run: the line has its marker in the legend alone.
        ax.plot(list(points), means, label=name, **style | {"markevery": []})
        xs = [x for x, values in points.items() for _ in values]
        ys = [y for values in points.values() for y in values]
        ax.plot(xs, ys, **style | {"linestyle": "none"})
    return found


def smallest_text(drawn: Figure) -> float:
    """How high the smallest letters of a drawn figure are, in pixels of the page; infinity where it has none."""
    said = (text for text in drawn.findobj(Text) if text.get_visible() and text.get_text().strip())
    return min((float(text.get_fontsize()) * 96 / 72 for text in said), default=math.inf)


def png(drawn: Figure, colours: int = 256) -> bytes:
    """The figure as PNG, the same bytes for the same picture. In few colours it takes a third of the space.

    It notes how high its smallest letters are: a narrow page shows it no smaller than they can be read.
    """
    drawn.savefig(full := BytesIO(), format="png", dpi=DPI, facecolor="white", metadata={"Software": None})
    # Maximum coverage: Pillow's usual way, the median cut, turns a small orange square in a blue picture brown. The
    # k-means (until fewer pixels than this change) moves the colours to those that are there: grey does not turn pink.
    few = Image.open(full).convert("RGB").quantize(colours, Image.Quantize.MAXCOVERAGE, kmeans=1000)
    note = PngInfo()
    if (letters := smallest_text(drawn)) < math.inf:
        note.add_text("Smallest text", f"{letters:.1f}")
    few.save(small := BytesIO(), format="png", optimize=True, pnginfo=note)
    return small.getvalue()


def show(drawn: Figure, alt: str) -> None:
    """Display a figure. `alt` says what it shows, for readers who cannot see it, and stands in where pictures do not.

    Raises ValueError for an empty `alt`.
    """
    if not alt.strip():
        raise ValueError("alt: got nothing, expected a sentence that says what the figure shows")
    data, metadata = picture(drawn, alt)
    display(data, metadata=metadata, raw=True)


class Link(NamedTuple):
    """A place of a picture that can be clicked, in the coordinates of its axes; where it leads, and what is there."""

    left: float
    low: float
    right: float
    high: float
    address: str
    words: str


def show_linked(drawn: Figure, alt: str, ax: Axes, links: Sequence[Link]) -> None:
    """Display a figure whose places can be clicked, in a notebook and in the web book.

    The picture is an image, and over each place lies a link of its own: an SVG's links JupyterLab does not open. Where
    a viewer leaves out styles (JupyterLab does, of a notebook that it does not trust), picture and links stand one
    after the other. Raises ValueError for an empty `alt`.
    """
    if not alt.strip():
        raise ValueError("alt: got nothing, expected a sentence that says what the figure shows")
    image, width = base64.b64encode(png(drawn)).decode(), drawn.get_size_inches()[0]
    over = []
    for link in links:
        corners = ax.transData.transform([(link.left, link.low), (link.right, link.high)])
        (left, low), (right, high) = drawn.transFigure.inverted().transform(corners)
        place = f"left:{left:.2%};top:{1 - high:.2%};width:{right - left:.2%};height:{high - low:.2%}"
        words = escape(link.words)
        over.append(
            f'<a href="{escape(link.address)}" title="{words}" style="position:absolute;{place};overflow:hidden;'
            f'color:transparent">{words}</a>'
        )
    page = (
        f'<div style="position:relative;max-width:{96 * width:.0f}px"><img src="data:image/png;base64,{image}" '
        f'alt="{escape(alt)}" width="{96 * width:.0f}" style="max-width:100%;height:auto">\n'
        f"{chr(10).join(over)}\n</div>"
    )
    data, metadata = picture(drawn, alt)
    display(data | {"text/html": page}, metadata=metadata, raw=True)


def picture(drawn: Figure, alt: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """What a notebook keeps of a figure: the data of its output, and beside it alt text and the size on the page.

    The PNG has half as many pixels again as the page shows.
    """
    width, height = (round(inches * 96) for inches in drawn.get_size_inches())
    data = {"image/png": base64.b64encode(png(drawn)).decode(), "text/plain": alt}
    return data, {"image/png": {"alt": alt, "width": width, "height": height}}
