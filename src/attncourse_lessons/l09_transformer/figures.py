"""The Transformer put together: towers of blocks, and one block line by line, with the shapes of what passes."""

from collections.abc import Sequence
from typing import NamedTuple

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from attncourse.viz.diagrams import arrow, box
from attncourse.viz.style import BLUE, GREEN, GREY, INK, ORANGE, PURPLE, figure, hold_still, show, stage

KINDS = ("encoder", "decoder", "decoder-only", "encoder of 2017")


class Line(NamedTuple):
    """A line of a block's code, what it computes on the way, and which boxes of the drawing it belongs to."""

    code: str
    shapes: str
    boxes: tuple[str, ...]


def encoder_decoder_stacks(n_blocks: int = 3) -> None:
    """The three shapes side by side: an encoder alone, a decoder alone, and both with the memory between them."""
    drawn, ax = figure(8.2, 4.5)
    stage(ax, (0, 16.4), (0, 9))
    bottom, step = 2.3, 1.35
    tops = [bottom + step * i for i in range(n_blocks)]

    def tower(x: float, colour: str, label: str, inputs: str, outputs: str) -> None:
        ax.text(x, 0.15, inputs, ha="center", va="center", fontsize=10, color=INK)
        arrow(ax, (x, 0.45), (x, 0.8))
        ax.text(x, 1.05, "embedding + position", ha="center", va="center", fontsize=9.5, color=GREY)
        arrow(ax, (x, 1.3), (x, tops[0] - 0.55))
        for i, y in enumerate(tops):
            box(ax, x, y, label, colour, width=2.5)
            if i:
                arrow(ax, (x, tops[i - 1] + 0.52), (x, y - 0.55))
        arrow(ax, (x, tops[-1] + 0.52), (x, tops[-1] + 0.95))
        ax.text(x, tops[-1] + 1.2, "norm", ha="center", va="center", fontsize=9.5, color=GREY)
        if outputs:
            arrow(ax, (x, tops[-1] + 1.45), (x, tops[-1] + 1.9))
            ax.text(x, tops[-1] + 2.25, outputs, ha="center", va="center", fontsize=10, color=INK)

    for x, name in ((1.7, "encoder alone"), (6.0, "decoder alone"), (12.4, "encoder and decoder")):
        ax.text(x, 8.75, name, ha="center", va="center", fontsize=11, fontweight="bold", color=INK)
    tower(1.7, BLUE, "look around", "the cat [?] here", "sat")
    tower(6.0, GREEN, "look back", "<bos> the cat", "the cat sat")
    tower(10.4, BLUE, "look around", "die Katze saß", "")
    tower(14.6, GREEN, "back, across", "<bos> the cat", "the cat sat")
    # One memory, from the top of the encoder, for all blocks of the decoder.
    top = tops[-1] + 1.2
    ax.plot([10.9, 12.4], [top, top], color=ORANGE, linewidth=1.8)
    ax.plot([12.4, 12.4], [tops[0], top], color=ORANGE, linewidth=1.8)
    for y in tops:
        arrow(ax, (12.4, y), (13.3, y), colour=ORANGE, width=1.6)
    ax.text(12.5, top + 0.32, "memory", ha="center", va="center", fontsize=10, color=INK)
    show(
        drawn,
        f"Three towers of {n_blocks} blocks each. An encoder alone, whose blocks look around, reads a sentence with a "
        "gap and says what was there. A decoder alone, whose blocks look back, reads the beginning of a sentence and "
        "says at each place what comes next. Encoder and decoder: one memory leaves the encoder at its top, after a "
        f"norm, and goes to each of the {n_blocks} blocks of the decoder, which look back and across.",
    )


def block_lines(kind: str, batch: int, n: int, n_memory: int, d: int, heads: int, d_ff: int) -> list[Line]:
    """The code of a block of this kind, a line at a time, with what comes of it for these sizes.

    Raises ValueError for another kind.
    """
    if kind not in KINDS:
        raise ValueError(f"kind: got {kind!r}, expected one of {', '.join(KINDS)}")
    x, memory = f"({batch}, {n}, {d})", f"({batch}, {n_memory}, {d})"
    own = f"({n}, {n})" if "decoder" in kind else f"({batch}, 1, {n})"
    table, across = f"({batch}, {heads}, {n}, {n})", f"({batch}, {heads}, {n}, {n_memory})"
    looks = f"mask {own}; weights {table}; x {x}"
    thinks = f"hidden ({batch}, {n}, {d_ff}); x {x}"
    if kind == "encoder of 2017":
        return [
            Line("x = x + attention(x, x, mask)", looks, ("attention",)),
            Line("x = norm_1(x)", f"x {x}", ("norm_1",)),
            Line("x = x + network(x)", thinks, ("network",)),
            Line("x = norm_2(x)", f"x {x}", ("norm_2",)),
        ]
    lines = [
        Line("h = norm_1(x)", f"h {x}", ("norm_1",)),
        Line("x = x + attention(h, h, mask)", looks, ("attention",)),
    ]
    if kind == "decoder":
        looked = f"memory {memory}; weights {across}; x {x}"
        lines += [
            Line("h = norm_2(x)", f"h {x}", ("norm_2",)),
            Line("x = x + cross(h, memory, m_mask)", looked, ("cross",)),
        ]
    last = "norm_3" if kind == "decoder" else "norm_2"
    return [*lines, Line(f"h = {last}(x)", f"h {x}", (last,)), Line("x = x + network(h)", thinks, ("network",))]


def block_frame(
    kind: str, line: int, batch: int = 4, n: int = 7, n_memory: int = 5, d: int = 64, heads: int = 8, d_ff: int = 256
) -> tuple[Figure, str]:
    """A block of one of `KINDS` as a drawing and as code, `line` (from 1) marked in both; past the last: all done.

    Returns the figure and the words for it, for `explore`. Raises ValueError for another kind.
    """
    lines = block_lines(kind, batch, n, n_memory, d, heads, d_ff)
    active = lines[line - 1] if line <= len(lines) else None
    drawn, ax = figure(6.5, 3.5)
    hold_still(drawn, left=0.01, right=0.99, bottom=0.01, top=0.99)
    stage(ax, (0, 13.6), (0, 7.3))
    _wires(ax, kind, active.boxes if active else ())
    for i, (code, _, _) in enumerate(lines):
        now = active is lines[i]
        y = 6.5 - 0.62 * i
        if now:
            ax.text(6.35, y, "▶", fontsize=9, va="center", ha="right", color=ORANGE)
        ax.text(6.5, y, code, fontsize=9.2, family="monospace", va="center", ha="left", color=INK if now else GREY,
                fontweight="bold" if now else "normal")  # fmt: skip
    said = active.shapes.split("; ") if active else [f"x ({batch}, {n}, {d}), the shape it came in"]
    for i, shape in enumerate(said):
        name, _, size = shape.partition(" ")
        ax.text(6.5, 1.9 - 0.55 * i, name, fontsize=9.8, va="center", ha="left", color=INK)
        ax.text(8.6, 1.9 - 0.55 * i, size, fontsize=9.8, va="center", ha="left", family="monospace", color=INK)
    what = f"line {line} of {len(lines)}: {active.code}" if active else "all lines done"
    return drawn, f"A block, {kind}; {what}. {'; '.join(said)}."


def _wires(ax: Axes, kind: str, active: Sequence[str]) -> None:
    """The residual path upwards, and beside it what each part reads and adds."""
    stream, part = 1.0, 4.2
    colours = {"attention": BLUE, "cross": ORANGE, "network": PURPLE}

    def draw(x: float, y: float, name: str, width: float) -> None:
        colour = colours.get(name, GREEN)
        now = name in active
        box(ax, x, y, name.replace("_", " "), colour, width, fill=colour if now else None, text="white" if now else INK)

    def plus(y: float) -> None:
        ax.plot(stream, y, "o", markersize=13, markerfacecolor="white", markeredgecolor=INK, zorder=5)
        ax.text(stream, y - 0.02, "+", ha="center", va="center", fontsize=11, color=INK, zorder=6)

    ax.text(stream, 0.25, "x", ha="center", va="center", fontsize=11.5, color=INK)
    arrow(ax, (stream, 0.5), (stream, 7.2), colour=INK, width=1.6)
    if kind == "encoder of 2017":
        for name, norm, y in (("attention", "norm_1", 1.1), ("network", "norm_2", 4.2)):
            ax.plot([stream, part - 1.0], [y, y], color=GREY, linewidth=1.2)
            arrow(ax, (part - 1.2, y), (part - 1.0, y))
            draw(part, y, name, 1.9)
            ax.plot([part, part], [y + 0.52, y + 1.05], color=GREY, linewidth=1.2)
            arrow(ax, (part, y + 1.05), (stream + 0.28, y + 1.05))
            plus(y + 1.05)
            ax.add_patch(_blank(stream, y + 1.95, 1.5))
            draw(stream, y + 1.95, norm, 1.5)
        return
    names = ["attention", "cross", "network"] if kind == "decoder" else ["attention", "network"]
    room = 6.4 / len(names)
    for i, name in enumerate(names):
        y = 1.15 + room * i
        ax.plot([stream, 1.7], [y, y], color=GREY, linewidth=1.2)
        arrow(ax, (1.6, y), (1.78, y))
        draw(2.5, y, f"norm_{i + 1}", 1.4)
        arrow(ax, (3.2, y), (3.4, y))
        draw(part + 0.2, y, name, 1.9)
        ax.plot([part + 0.2, part + 0.2], [y + 0.52, y + 0.95], color=GREY, linewidth=1.2)
        arrow(ax, (part + 0.2, y + 0.95), (stream + 0.28, y + 0.95))
        plus(y + 0.95)
        if name == "cross":
            ax.text(part + 0.35, y - 0.72, "↑ memory", ha="center", va="center", fontsize=9, color=ORANGE)


def _blank(x: float, y: float, width: float) -> Rectangle:
    """White behind a box that stands on the residual path."""
    return Rectangle((x - width / 2, y - 0.5), width, 1.0, facecolor="white", edgecolor="none", zorder=1)
