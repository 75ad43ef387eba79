"""The Transformer put together: figure 1, stacks of blocks, a block line by line; what it is trained on; sampling."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle
from torch import Tensor

from attncourse.attention import causal_mask
from attncourse.decoding import warp_logits
from attncourse.viz.architectures import transformer_architecture
from attncourse.viz.diagrams import arrow, box
from attncourse.viz.figures import check_shares
from attncourse.viz.style import (
    AMBER,
    BLUE,
    GREEN,
    GREY,
    INK,
    ORANGE,
    PALE,
    figure,
    hold_still,
    line_style,
    name_lines,
    show,
    stage,
)

KINDS = ("encoder", "decoder", "decoder-only", "encoder of 2017")
# Which lesson a part of figure 1 was built in.
BUILT_IN = {
    "embedding": "bottleneck", "positions": "order", "multi-head": "many_heads", "self-attention": "self_attention",
    "causal": "masking", "cross-attention": "cross_attention", "feed-forward": "masking", "norm": "deep_stacks",
    "linear": "bottleneck", "softmax": "getting_ready",
}  # fmt: skip


def figure_1(norm_place: str = "post") -> None:
    """Figure 1 of "Attention is all you need", its boxes links to the lectures that built them; or as today.

    As published it has N blocks; the form of today has the lecture's L.
    """
    from attncourse_lessons import course

    pages = {lesson.name: Path(lesson.lecture_notebook).name for lesson in course.lessons}
    links = {part: pages[name] for part, name in BUILT_IN.items()}
    transformer_architecture(links, norm_place, times="N" if norm_place == "post" else "L")


class Line(NamedTuple):
    """A line of a block's code, what it computes on the way, and which boxes of the drawing it belongs to."""

    code: str
    shapes: str
    boxes: tuple[str, ...]


def encoder_decoder_stacks(n_blocks: int = 3) -> None:
    """The three shapes side by side: an encoder alone, a decoder alone, and both with the memory between them."""
    drawn, ax = figure(8.2, 4.6)
    stage(ax, (0, 16.4), (-0.2, 8.3))
    bottom, step = 2.3, 1.35
    tops = [bottom + step * i for i in range(n_blocks)]
    last = tops[-1]

    def tower(x: float, colour: str, label: str, inputs: str, outputs: str) -> None:
        ax.text(x, 0.15, inputs, ha="center", va="center", fontsize=9.5, color=INK)
        arrow(ax, (x, 0.45), (x, 0.8))
        ax.text(x, 1.05, "embedding + position", ha="center", va="center", fontsize=9.5, color=GREY)
        arrow(ax, (x, 1.3), (x, bottom - 0.55))
        for i, y in enumerate(tops):
            box(ax, x, y, label, colour, width=2.7)
            if i:
                arrow(ax, (x, tops[i - 1] + 0.52), (x, y - 0.55))
        arrow(ax, (x, last + 0.52), (x, last + 0.95))
        ax.text(x, last + 1.2, "norm", ha="center", va="center", fontsize=9.5, color=GREY)
        if outputs:
            arrow(ax, (x, last + 1.45), (x, last + 1.9))
            ax.text(x, last + 2.2, outputs, ha="center", va="center", fontsize=9.5, color=INK)

    for x, name in ((1.9, "encoder-only"), (6.1, "decoder-only"), (12.5, "encoder–decoder")):
        ax.text(x, last + 2.95, name, ha="center", va="center", fontsize=11, fontweight="bold", color=INK)
    tower(1.9, BLUE, "bidirectional", "the cat [?] here", "[?] = sat")
    tower(6.1, GREEN, "causal", "<bos> the cat", "the cat sat")
    tower(10.5, BLUE, "bidirectional", "die Katze saß", "")
    tower(14.8, GREEN, "causal, cross", "<bos> the cat", "the cat sat")
    # One memory, from the top of the encoder, for all blocks of the decoder.
    top = last + 1.2
    ax.plot([11.0, 12.6], [top, top], color=ORANGE, linewidth=1.8)
    ax.plot([12.6, 12.6], [bottom, top], color=ORANGE, linewidth=1.8)
    for y in tops:
        arrow(ax, (12.6, y), (13.4, y), colour=ORANGE, width=1.6)
    ax.text(12.5, top + 0.32, "memory", ha="center", va="center", fontsize=10, color=INK)
    show(
        drawn,
        f"Three stacks of {n_blocks} blocks each. Encoder-only: bidirectional self-attention reads a sentence with a "
        "gap and says what was there. Decoder-only: causal self-attention reads the beginning of a text and says at "
        "each position what comes next. Encoder–decoder: one memory leaves the encoder at its top, after a norm, and "
        f"goes to each of the {n_blocks} blocks of the decoder, which have causal self-attention and cross-attention.",
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
            Line("x = x + attention(x, mask=mask)", looks, ("attention",)),
            Line("x = norm_1(x)", f"x {x}", ("norm_1",)),
            Line("x = x + feed_forward(x)", thinks, ("feed_forward",)),
            Line("x = norm_2(x)", f"x {x}", ("norm_2",)),
        ]
    masked = "causal=causal" if "decoder" in kind else "mask=mask"
    lines = [
        Line("h = norm_1(x)", f"h {x}", ("norm_1",)),
        Line(f"x = x + attention(h, {masked})", looks, ("attention",)),
    ]
    if kind == "decoder":
        looked = f"memory {memory}; weights {across}; x {x}"
        lines += [
            Line("h = norm_2(x)", f"h {x}", ("norm_2",)),
            Line("x = x + cross(h, memory, source_mask)", looked, ("cross",)),
        ]
    last = "norm_3" if kind == "decoder" else "norm_2"
    lines.append(Line(f"h = {last}(x)", f"h {x}", (last,)))
    return [*lines, Line("x = x + feed_forward(h)", thinks, ("feed_forward",))]


def block_frame(
    kind: str, line: int, batch: int = 4, n: int = 7, n_memory: int = 5, d: int = 64, heads: int = 8, d_ff: int = 256
) -> tuple[Figure, str]:
    """A block of one of `KINDS` as a drawing and as code, `line` (from 1) marked in both; past the last: all done.

    Returns the figure and the words for it, for `explore`. Raises ValueError for another kind.
    """
    if kind.startswith("encoder"):  # it reads the source
        n = n_memory
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
    colours = {"attention": BLUE, "cross": ORANGE, "feed_forward": GREEN}  # figure 1's

    def draw(x: float, y: float, name: str, width: float) -> None:
        colour = colours.get(name, AMBER)
        now = name in active
        text = "white" if now and colour != AMBER else INK
        box(ax, x, y, name.replace("_", " "), colour, width, fill=colour if now else None, text=text)

    def plus(y: float) -> None:
        ax.plot(stream, y, "o", markersize=13, markerfacecolor="white", markeredgecolor=INK, zorder=5)
        ax.text(stream, y - 0.02, "+", ha="center", va="center", fontsize=11, color=INK, zorder=6)

    ax.text(stream, 0.25, "x", ha="center", va="center", fontsize=11.5, color=INK)
    arrow(ax, (stream, 0.5), (stream, 7.2), colour=INK, width=1.6)
    if kind == "encoder of 2017":
        for name, norm, y in (("attention", "norm_1", 1.1), ("feed_forward", "norm_2", 4.2)):
            ax.plot([stream, part - 1.2], [y, y], color=GREY, linewidth=1.2)
            arrow(ax, (part - 1.4, y), (part - 1.2, y))
            draw(part, y, name, 2.3)
            ax.plot([part, part], [y + 0.52, y + 1.05], color=GREY, linewidth=1.2)
            arrow(ax, (part, y + 1.05), (stream + 0.28, y + 1.05))
            plus(y + 1.05)
            ax.add_patch(_blank(stream, y + 1.95, 1.5))
            draw(stream, y + 1.95, norm, 1.5)
        return
    names = ["attention", "cross", "feed_forward"] if kind == "decoder" else ["attention", "feed_forward"]
    room = 6.4 / len(names)
    for i, name in enumerate(names):
        y = 1.15 + room * i
        ax.plot([stream, 1.7], [y, y], color=GREY, linewidth=1.2)
        arrow(ax, (1.6, y), (1.78, y))
        draw(2.5, y, f"norm_{i + 1}", 1.4)
        arrow(ax, (3.2, y), (3.4, y))
        draw(part + 0.4, y, name, 2.3)
        ax.plot([part + 0.4, part + 0.4], [y + 0.52, y + 0.95], color=GREY, linewidth=1.2)
        arrow(ax, (part + 0.4, y + 0.95), (stream + 0.28, y + 0.95))
        plus(y + 0.95)
        if name == "cross":
            ax.text(part + 0.35, y - 0.72, "↑ memory", ha="center", va="center", fontsize=9, color=ORANGE)


def _blank(x: float, y: float, width: float) -> Rectangle:
    """White behind a box that stands on the residual path."""
    return Rectangle((x - width / 2, y - 0.5), width, 1.0, facecolor="white", edgecolor="none", zorder=1)


# How large a model a budget pays for


def budget_curves(loss: Callable[[float, float], float], models: Mapping[str, tuple[float, float]]) -> None:
    """What `loss(n_parameters, n_tokens)` predicts for the budget of each model, however it is split between the two.

    {model: (parameters, tokens)}. A curve for each budget, 6 N D FLOPs, with a mark where the model stands, and an
    upright stroke at the lowest loss.
    """
    drawn, ax = figure(7.4, 3.6)
    sizes = np.geomspace(5e9, 1e12, 301)
    said = []
    for i, (name, (n_parameters, n_tokens)) in enumerate(models.items()):
        budget = 6 * n_parameters * n_tokens
        losses = [loss(size, budget / (6 * size)) for size in sizes]
        style, at, best = line_style(i), loss(n_parameters, n_tokens), int(np.argmin(losses))
        ax.plot(sizes, losses, color=style["color"], linestyle=style["linestyle"], linewidth=2)
        ax.plot(n_parameters, at, label=f"{name}: {budget:.1e} FLOPs", **style | {"markersize": 8})
        ax.plot(sizes[best], losses[best], "|", color=style["color"], markersize=22, markeredgewidth=2, zorder=1)
        said.append(
            f"{name}, {budget:.1e} FLOPs: {at:.3f} at {n_parameters / 1e9:g} billion parameters, lowest "
            f"{losses[best]:.3f} at {sizes[best] / 1e9:.0f} billion"
        )
    ax.set_xscale("log")
    ax.margins(y=0.12)
    ticks = [5, 10, 20, 50, 100, 200, 500, 1000]
    ax.set_xticks([1e9 * tick for tick in ticks], [f"{tick:,}" for tick in ticks])
    ax.minorticks_off()
    name_lines(ax, "parameters (billions)", "predicted loss (nats per token)")
    show(drawn, f"Predicted loss against the number of parameters, a curve for each budget. {'; '.join(said)}.")


# What changes to the block are worth


def changes_to_the_block(
    studies: Mapping[str, Mapping[str, tuple[float, float]]], groups: Mapping[str, Sequence[str]] | None = None
) -> None:
    """How much each change moves the loss, on one axis for all studies: {study: {change: (difference, half a bar)}}.

    A row for each change, in it a mark for each of at most two studies. Hollow: no further from zero than its bar.
    With `groups`, {title: changes}, the rows stand in their order, under a title for each group.
    """
    names = list(dict.fromkeys(name for points in studies.values() for name in points))
    if groups:
        names = [row for title, members in groups.items() for row in (title, *members)]
    drawn, ax = figure(7.4, 1.1 + (0.33 if groups else 0.37) * len(names))
    ax.axvline(0, color=GREY, linewidth=1.2)
    said = []
    looks = ((BLUE, "o", -0.17), (ORANGE, "s", 0.17))
    for (study, points), (colour, marker, lift) in zip(studies.items(), looks, strict=False):
        for name, (middle, half) in points.items():
            y = names.index(name) + lift
            ax.plot([middle - half, middle + half], [y, y], color=colour, linewidth=2, zorder=2)
            ax.plot(middle, y, marker, color=colour, markerfacecolor=colour if abs(middle) > half else "white",
                    markersize=7, zorder=3)  # fmt: skip
        ax.plot([], [], marker, color=colour, linestyle="-", linewidth=2, markersize=7, label=study)
        listed = "; ".join(f"{name} {middle:+.3f} ± {half:.3f}" for name, (middle, half) in points.items())
        said.append(f"{study}: {listed}".replace("-", "−"))
    ax.set_ylim(len(names) - 0.4, -0.6)
    ax.set_yticks(range(len(names)), names)
    ax.tick_params(axis="y", length=0)
    ax.grid(color=PALE, linewidth=0.8)
    for title in groups or ():
        ax.get_yticklabels()[names.index(title)].set_fontweight("bold")
        ax.get_ygridlines()[names.index(title)].set_visible(False)
        top = names.index(title) - 0.45
        if top > 0:
            ax.axhspan(top - 0.02, top + 0.02, color=GREY, linewidth=0)
    ax.set_axisbelow(True)
    ax.legend(loc="lower center", bbox_to_anchor=(0.45, 1.0), ncols=len(studies), frameon=False)
    ax.set_xlabel("← better     loss minus the baseline's (nats per token)     worse →")
    show(drawn, f"Loss, difference from the baseline (nats per token). {'. '.join(said)}.")


def gains_before_and_after(rows: Mapping[str, tuple[tuple[float, float], tuple[float, float]]]) -> None:
    """How the gain of a change moves with the setting: {row: ((gain, half a bar) before, (gain, half a bar) after)}.

    A row for each, in it a hollow mark before, a filled mark after, and an arrow from one to the other. Where the gain
    grows they are orange, where it shrinks or becomes a loss blue.
    """
    drawn, ax = figure(7.4, 1.3 + 0.5 * len(rows))
    ax.axvline(0, color=GREY, linewidth=1.2)
    said = []
    for y, (name, (before, after)) in enumerate(rows.items()):
        colour = BLUE if after[0] < before[0] else ORANGE
        arrow(ax, (before[0], y), (after[0], y), colour=GREY)
        for (gain, half), lift, face in ((before, -0.13, "white"), (after, 0.13, colour)):
            ax.plot([gain - half, gain + half], [y + lift, y + lift], color=colour, linewidth=2, zorder=2)
            ax.plot(gain, y + lift, "o", color=colour, markerfacecolor=face, markersize=7, zorder=3)
        right = max(gain + half for gain, half in (before, after))
        does = "becomes a loss" if after[0] < 0 < before[0] else "shrinks" if after[0] < before[0] else "grows"
        moved = f"{does}: {before[0]:.2f} → {after[0]:.2f}".replace("-", "−")
        ax.text(right + 0.015, y, moved, va="center", fontsize=9.5, color=INK)
        said.append(f"{name}: {before[0]:.3f} ± {before[1]:.3f} before, {after[0]:.3f} ± {after[1]:.3f} after")
    ax.set_ylim(len(rows) - 0.4, -0.6)
    ends = [end for both in rows.values() for gain, half in both for end in (gain - half, gain + half)]
    ax.set_xlim(min(-0.02, min(ends) - 0.02), 1.6 * max(ends))
    ax.set_yticks(range(len(rows)), rows)
    ax.tick_params(axis="y", length=0)
    ax.grid(axis="x", color=PALE, linewidth=0.8)
    ax.set_axisbelow(True)
    keys = {"first setting": "white", "second setting (after the arrow)": INK}
    handles = [
        Line2D([], [], color=INK, linewidth=2, marker="o", markersize=7, markerfacecolor=face, label=label)
        for label, face in keys.items()
    ]
    ax.legend(handles=handles, loc="lower center", bbox_to_anchor=(0.4, 1.0), ncols=2, frameon=False)
    ax.set_xlabel("gain over the baseline (nats per token)")
    show(drawn, f"Gains over the baseline (nats per token). {'. '.join(said)}.")


# What a model is pre-trained on

# In the drawing of the objectives a unit up is so much shorter than one to the right; and what is left between masks.
SQUARE, MASK_GAP = 0.79, 0.5


class Objective(NamedTuple):
    """A way to make a task of plain text: what is read, and what each position is to predict ("" for nothing)."""

    name: str
    read: tuple[str, ...]
    predict: tuple[str, ...]
    written: tuple[str, ...] = ()
    """Of an encoder–decoder: what the decoder is to predict. It reads the same, shifted right."""
    masks: Mapping[str, Tensor] = {}
    """Who may attend to whom, by name: (n_query, n_key) booleans each."""


def objectives(rows: Sequence[Objective]) -> None:
    """Pre-training objectives on one sentence: the tokens that are read, and under each what is to be predicted there.

    An encoder–decoder has a third line, what its decoder reads. Gaps that the encoder reads are hatched. On the right
    stand the masks, a row for each query, a column for each key, forbidden cells hatched. Raises ValueError for a row
    with more tokens to predict than are read.
    """
    longest = max(max(len(row.read), len(row.written)) for row in rows)
    cell = 1.65 / max(longest, *(len(mask) for row in rows for mask in row.masks.values()), 1)
    beside = max(sum(cell * mask.shape[1] + MASK_GAP for mask in row.masks.values()) for row in rows)
    unit = 0.58 if beside else 0.66
    pitch = 2.9 if beside or any(row.written for row in rows) else 2.2
    drawn, ax = figure(unit * (longest + 2.5 + beside), 0.1 + unit * SQUARE * pitch * len(rows))
    stage(ax, (-2.3, longest + 0.2 + beside), (-pitch * len(rows) + 0.95, 0.95))
    said = []
    for i, row in enumerate(rows):
        if len(row.predict) > len(row.read):
            raise ValueError(f"{row.name}: got {len(row.predict)} to predict, expected at most {len(row.read)}")
        y = -pitch * i
        ax.text(0, y + 0.6, row.name, ha="left", va="center", fontsize=10.5, fontweight="bold", color=INK)
        lines = [("reads", row.read, BLUE), ("predicts", row.predict, ORANGE)]
        if row.written:
            shifted = ("<bos>", *row.written[:-1])
            lines = [("encoder reads", row.read, BLUE), ("decoder reads", shifted, GREEN),
                     ("decoder predicts", row.written, ORANGE)]  # fmt: skip
        for down, (words, tokens, colour) in enumerate(lines):
            level = y - 0.75 * down
            ax.text(-0.15, level, words, ha="right", va="center", fontsize=9, color=GREY)
            for j, token in enumerate(tokens):
                if token:
                    _token(ax, j, level, token, colour)
        said.append(
            f"{row.name}: " + "; ".join(f"{does} {' '.join(filter(None, tokens))}" for does, tokens, _ in lines)
        )
        left = longest + MASK_GAP
        for name, mask in row.masks.items():
            _mask(ax, left, y + 0.4, mask, cell)
            ax.text(left, y + 0.44, name, ha="left", va="bottom", fontsize=9, color=INK)
            left += cell * mask.shape[1] + MASK_GAP
            share = f"{mask.float().mean():.0%} of the pairs" if not mask.all() else "all pairs"
            said.append(f"its mask {name}, {mask.shape[0]} queries by {mask.shape[1]} keys, allows {share}")
    show(drawn, f"Pre-training objectives on one sentence. {'. '.join(said)}.")


def pretraining_objectives() -> None:
    """The four objectives of the lecture on one sentence, with their masks."""
    text = ("Return", "the", "number", "of", "bytes", "in", "it")
    every, past = torch.ones(7, 7, dtype=torch.bool), causal_mask(7)
    prefix = past.clone()
    prefix[:, :3] = True
    objectives([
        Objective("causal LM", ("<bos>", *text), (*text, "<eos>"), masks={"causal": causal_mask(8)}),
        Objective("masked LM", ("Return", "[MASK]", "number", "of", "[MASK]", "in", "it"),
                  ("", "the", "", "", "bytes"), masks={"bidirectional": every}),
        Objective("span corruption", ("Return", "<1>", "of", "bytes", "<2>"), (),
                  written=("<1>", "the", "number", "<2>", "in", "it", "<3>"),
                  masks={"encoder": every[:5, :5], "decoder": past, "cross": every[:, :5]}),
        Objective("prefix LM", text, ("", "", "of", "bytes", "in", "it", "<eos>"), masks={"prefix of three": prefix}),
    ])  # fmt: skip


def _mask(ax: Axes, left: float, top: float, mask: Tensor, cell: float) -> None:
    """A mask as a grid, its first row at the top: filled where a query may attend, hatched where not."""
    high = cell / SQUARE
    for i, row in enumerate(mask.tolist()):
        for j, allowed in enumerate(row):
            ax.add_patch(
                Rectangle((left + cell * j, top - high * (i + 1)), cell, high, facecolor=BLUE if allowed else "white",
                          edgecolor="white" if allowed else GREY, hatch=None if allowed else "//////", linewidth=0.4)
            )  # fmt: skip
    bottom, middle = top - high * mask.shape[0], left + cell * mask.shape[1] / 2
    ax.text(left - 0.05, (top + bottom) / 2, "query", ha="right", va="center", rotation=90, fontsize=8, color=GREY)
    ax.text(middle, bottom - 0.05, "key", ha="center", va="top", fontsize=8, color=GREY)


def _token(ax: Axes, x: float, y: float, token: str, colour: str) -> None:
    hidden = token.startswith("[") or (token.startswith("<") and token[1:-1].isdigit())
    ax.add_patch(
        Rectangle((x, y - 0.28), 0.94, 0.56, facecolor="#f4f4f4" if hidden else "white", edgecolor=colour,
                  hatch="////" if hidden and colour == BLUE else None, linewidth=1.3)
    )  # fmt: skip
    backed = {"facecolor": "#f4f4f4", "edgecolor": "none", "pad": 0.6} if hidden else None
    ax.text(x + 0.47, y, token, ha="center", va="center", fontsize=9, color=INK, bbox=backed)


# What sampling leaves of a distribution


def sampling_frame(
    logits: Tensor, tokens: Sequence[str], temperature: float = 1.0, cut: str = "everything"
) -> tuple[Figure, str]:
    """What the likeliest tokens have together, before and after truncation; `cut` is "everything", "top-k 5", ….

    `logits` (vocab_size,), `tokens` the names of the likeliest, from the likeliest down. Returns the figure and the
    words for it, for `explore`. Raises ValueError for another way to cut.
    """
    kind, _, amount = cut.partition(" ")
    if kind not in ("everything", "top-k", "top-p"):
        raise ValueError(f"cut: got {cut!r}, expected everything, top-k K or top-p P")
    options: dict = {"top_k": int(amount)} if kind == "top-k" else {"top_p": float(amount)} if kind == "top-p" else {}
    order = logits.argsort(descending=True, stable=True)
    before = (logits / temperature).softmax(dim=-1)
    after = warp_logits(logits[None], temperature, **options)[0].softmax(dim=-1)          # (vocab_size,)
    check_shares("after", after.numpy())
    drawn, ax = figure(6.5, 3.5)
    hold_still(drawn, left=0.1, right=0.98, bottom=0.23, top=0.83)
    ranks, left = np.arange(1, len(logits) + 1), int((after > 0).sum())
    own, warm, kept = (p[order].cumsum(dim=0).numpy() for p in (logits.softmax(dim=-1), before, after))
    if temperature != 1:
        ax.plot(ranks, own, color=GREY, linestyle=":", linewidth=1.8, label="the model's own, T = 1", zorder=2)
    ax.plot(ranks[:left], kept[:left], color=BLUE, linewidth=4.5, marker="o", markevery=[0, left - 1], markersize=7,
            label="what we sample from", zorder=3)  # fmt: skip
    ax.plot(ranks, warm, color=ORANGE, linestyle="--", linewidth=1.8, label=f"before the cut, T = {temperature:g}",
            zorder=4)  # fmt: skip
    ax.axvline(left, color=INK, linewidth=1.1, zorder=1)
    if kind == "top-p":
        ax.axhline(float(amount), color=INK, linewidth=1.1, linestyle=(0, (1, 2)), zorder=1)
        ax.text(0.88, float(amount) - 0.02, f"p = {amount}", ha="left", va="top", fontsize=9, color=INK,
                bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.5})  # fmt: skip
    ax.set_xscale("log")
    ax.set_xlim(0.85, len(logits) * 1.15)
    ticks = [rank for rank in (1, 2, 3, 5, 10, 30, 100, 300, 1000) if rank <= len(logits)]
    ax.set_xticks(ticks, [f"{rank:,}" + (f"\n{tokens[rank - 1]}" if rank <= len(tokens) else "") for rank in ticks])
    ax.minorticks_off()
    ax.set_ylim(0, 1.04)
    ax.set_xlabel("k: number of tokens, likeliest first (and the token of that rank)", labelpad=0)
    ax.set_ylabel("cumulative probability")
    ax.grid(axis="y", color=PALE, linewidth=0.8)
    ax.legend(frameon=False, fontsize=9, loc="lower center", bbox_to_anchor=(0.47, 1.0), ncols=3, handlelength=2.2,
              columnspacing=1.4, borderaxespad=0.1)  # fmt: skip
    entropy = float(torch.special.entr(after).sum())
    best = order[: len(tokens)]
    tokens_left = f"{left:,} {'token is' if left == 1 else 'tokens are'} left, perplexity {np.exp(entropy):.1f}"
    ax.set_title(tokens_left, fontsize=10, pad=24)
    shares = ", ".join(f"{name} {share:.2f}" for name, share in zip(tokens, after[best].tolist(), strict=True))
    return drawn, (
        f"Temperature {temperature:g}, {cut}: {tokens_left}. {shares}; "
        f"all tokens not shown {1 - float(after[best].sum()):.2f}. Curves: the cumulative probability of the likeliest "
        "tokens, against how many they are, before and after the cut."
    )


def names_of(checkpoint: Mapping[str, Tensor], block: int = 0) -> list[tuple[str, tuple[int, ...]]]:
    """The tensors of a checkpoint's embeddings, one of its blocks and its end, with their shapes."""
    wanted = (f"h.{block}.", "wte", "wpe", "ln_f")
    return [(name, tuple(tensor.shape)) for name, tensor in checkpoint.items() if any(part in name for part in wanted)]
