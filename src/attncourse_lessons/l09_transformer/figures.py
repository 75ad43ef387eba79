"""The Transformer put together: figure 1, stacks of blocks, a block line by line; what it is trained on; sampling."""

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from torch import Tensor

from attncourse.attention import causal_mask
from attncourse.decoding import warp_logits
from attncourse.viz.architectures import transformer_architecture
from attncourse.viz.diagrams import arrow, box, rgb
from attncourse.viz.figures import check_shares
from attncourse.viz.style import (
    AMBER,
    BLUE,
    GREEN,
    GREY,
    INK,
    ORANGE,
    PALE,
    PURPLE,
    figure,
    hold_still,
    line_style,
    name_lines,
    show,
    stage,
)

KINDS = ("encoder", "decoder", "decoder-only", "encoder of 2017")
# Behind words that stand on the lines of a grid.
ON_GRID = {"facecolor": "white", "edgecolor": "none", "pad": 1}
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
    """The three shapes side by side: an encoder alone, a decoder alone, and both with the memory between them.

    Under each stand the masks of its attentions, a row for each query and a column for each key.
    """
    drawn, ax = figure(8.2, 5.65)
    stage(ax, (0, 16.4), (-3.0, 8.3))
    bottom, step = 2.3, 1.35
    tops = [bottom + step * i for i in range(n_blocks)]
    last = tops[-1]

    def tower(x: float, label: str, inputs: str, outputs: str, aside: float = 0.0) -> None:
        ax.text(x, 0.15, inputs, ha="center", va="center", fontsize=9.5, color=INK)
        arrow(ax, (x, 0.45), (x, 0.8))
        ax.text(x, 1.05, "embedding + position", ha="center", va="center", fontsize=9.5, color=GREY)
        arrow(ax, (x, 1.3), (x, bottom - 0.55))
        for i, y in enumerate(tops):
            box(ax, x, y, label, GREY, width=2.7)
            if i:
                arrow(ax, (x, tops[i - 1] + 0.52), (x, y - 0.55))
        arrow(ax, (x, last + 0.52), (x, last + 0.95))
        top = "norm, linear, softmax" if outputs else "norm"
        ax.text(x, last + 1.2, top, ha="center", va="center", fontsize=9.5, color=GREY)
        if outputs:
            arrow(ax, (x + aside, last + 1.45), (x + aside, last + 1.9))
            ax.text(x + aside, last + 2.2, outputs, ha="center", va="center", fontsize=9.5, color=INK)

    for x, name in ((1.9, "encoder-only"), (6.1, "decoder-only"), (12.5, "encoder–decoder")):
        ax.text(x, last + 2.95, name, ha="center", va="center", fontsize=11, fontweight="bold", color=INK)
    tower(1.9, "bidirectional", "the cat [?] here", "sat", aside=0.42)  # above its gap
    tower(6.1, "causal", "<bos> the cat", "the cat sat")
    tower(10.5, "bidirectional", "die Katze hat geschlafen", "")
    tower(14.8, "causal, cross", "<bos> the cat", "the cat slept")
    full, past = torch.ones(4, 4, dtype=torch.bool), causal_mask(3)
    _grid_of_mask(ax, 1.9, full, BLUE, "all")
    _grid_of_mask(ax, 6.1, past, BLUE, "causal")
    _grid_of_mask(ax, 10.5, full, BLUE, "all")
    _grid_of_mask(ax, 13.8, past, BLUE, "causal")
    _grid_of_mask(ax, 15.5, full[:3], ORANGE, "cross: all")  # 3 target tokens, 4 source tokens
    ax.text(1.9, -0.22, "key →", ha="center", va="center", fontsize=9, color=GREY)
    ax.text(0.82, -1.24, "← query", ha="center", va="center", rotation=90, fontsize=9, color=GREY)
    # One memory, from the top of the encoder, for all blocks of the decoder.
    top = last + 1.2
    ax.plot([11.0, 12.6], [top, top], color=ORANGE, linewidth=1.8)
    ax.plot([12.6, 12.6], [bottom, top], color=ORANGE, linewidth=1.8)
    for y in tops:
        arrow(ax, (12.6, y), (13.4, y), colour=ORANGE, width=1.6)
    ax.text(11.9, top + 0.32, "memory", ha="center", va="center", fontsize=10, color=INK)
    show(
        drawn,
        f"Three stacks of {n_blocks} blocks each. Encoder-only: bidirectional self-attention reads a sentence with a "
        "gap and says what was there. Decoder-only: causal self-attention reads the beginning of a text and says at "
        "each position what comes next. Encoder–decoder: one memory leaves the encoder at its top, after a norm, and "
        f"goes to each of the {n_blocks} blocks of the decoder, which have causal self-attention and cross-attention. "
        "Below each stack its masks: all pairs, the lower triangle, or both that triangle and, for cross-attention, a "
        "table of 3 target tokens by 4 source tokens, all allowed.",
    )


def _grid_of_mask(ax: Axes, x: float, mask: Tensor, colour: str, name: str) -> None:
    """A mask as a grid under the words at `x`, forbidden cells hatched; below it its name."""
    top, cell = -0.4, 0.42
    colours = [[colour] * mask.shape[1]] * mask.shape[0]
    _mask_cells(ax, x - cell * mask.shape[1] / 2, top, mask, (cell, cell), colours)
    ax.text(x, top - cell * mask.shape[0] - 0.33, name, ha="center", va="center", fontsize=9, color=GREY)


def _mask_cells(
    ax: Axes, left: float, top: float, mask: Tensor, cell: tuple[float, float], colours: Sequence[Sequence[str]]
) -> None:
    """The cells (width, height) of a mask, its first row at the top: filled where it allows, hatched where not."""
    wide, high = cell
    for i, row in enumerate(mask.tolist()):
        for j, allowed in enumerate(row):
            ax.add_patch(
                Rectangle((left + wide * j, top - high * (i + 1)), wide, high,
                          facecolor=colours[i][j] if allowed else "white",
                          edgecolor="white" if allowed else GREY, hatch=None if allowed else "/////", linewidth=0.5)
            )  # fmt: skip


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
        label = "causal\nattention" if name == "attention" and "decoder" in kind else name.replace("_", " ")
        box(ax, x, y, label, colour, width, fill=colour if now else None, text=text)

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

# Where the name of a model stands, from its mark, in points: above, to the right, below; and how it is aligned.
ASIDE = ((-70, 50, "center"), (46, -96, "center"), (0, -40, "center"))


def budget_curves(loss: Callable[[float, float], float], models: Mapping[str, tuple[float, float]]) -> None:
    """What `loss(n_parameters, n_tokens)` predicts for the budget of each model, however it is split between the two.

    {model: (parameters, tokens)}, at most three. A curve for each budget, 6 N D FLOPs, with a filled mark where the
    model stands, beside it the budget, as a share of the largest, and how many tokens it read for each parameter. Where
    the model lies above the lowest loss, a circle marks that, an arrow leads down to it, and the words say how far.
    """
    drawn, ax = figure(7.4, 4.6)
    sizes = np.geomspace(5e9, 1e12, 301)
    said, highest = [], max(6 * n_parameters * n_tokens for n_parameters, n_tokens in models.values())
    for i, (name, (n_parameters, n_tokens)) in enumerate(models.items()):
        budget = 6 * n_parameters * n_tokens
        losses = [loss(size, budget / (6 * size)) for size in sizes]
        style, at, best = line_style(i), loss(n_parameters, n_tokens), int(np.argmin(losses))
        colour = style["color"]
        ax.plot(sizes, losses, color=colour, linestyle=style["linestyle"], linewidth=2)
        ax.plot(n_parameters, at, **style | {"markersize": 9, "markerfacecolor": colour})
        span = at - losses[best]
        if span > 1e-3:
            ax.plot(sizes[best], losses[best], "o", color=colour, markerfacecolor="white", markersize=7, zorder=4)
            ax.plot([sizes[best], 1.12 * n_parameters], [losses[best]] * 2, color=colour, linewidth=0.9,
                    linestyle=":", zorder=1)  # fmt: skip
            arrow(ax, (n_parameters, at), (n_parameters, losses[best]), colour=colour, width=1.6)
        ratio = f"{n_tokens / n_parameters:.2g} tokens per parameter"
        paid = f"budget {budget / highest:.2g} ×"
        above = f",\n{span:.3f} above the lowest" if span > 1e-3 else ""
        right, up, side = ASIDE[i]
        ax.annotate(f"{name}: {paid},\n{ratio}{above}", (n_parameters, at), (right, up), textcoords="offset points",
                    ha=side, va="center", fontsize=9.5, color=colour, bbox=ON_GRID,
                    arrowprops={"arrowstyle": "-", "color": GREY, "linewidth": 0.8, "shrinkB": 6})  # fmt: skip
        said.append(
            f"{name}, {budget:.1e} FLOPs, {ratio}: {at:.3f} at {n_parameters / 1e9:g} billion parameters, lowest "
            f"{losses[best]:.3f} at {sizes[best] / 1e9:.0f} billion"
        )
    ax.set_xscale("log")
    low, high = ax.get_ylim()
    ax.set_ylim(low - 0.2 * (high - low), low + 0.66 * (high - low))
    ticks = [5, 10, 20, 50, 100, 200, 500, 1000]
    ax.set_xticks([1e9 * tick for tick in ticks], [f"{tick:,}" for tick in ticks])
    ax.minorticks_off()
    name_lines(ax, "parameters (billions)", "predicted loss (nats per token)")
    show(drawn, f"Predicted loss against the number of parameters, a curve for each budget. {'; '.join(said)}.")


# What changes to the block are worth


def changes_to_the_block(
    studies: Mapping[str, Mapping[str, tuple[float, float]]],
    groups: Mapping[str, Sequence[str]] | None = None,
    notes: Mapping[str, str] | None = None,
) -> None:
    """How much each change gains, on one axis for all studies: {study: {change: (gain, half a bar)}}.

    A row for each change, in it a mark for each of at most two studies. Hollow: no further from zero than its bar.
    With `groups`, {title: changes}, the rows stand in their order, under a title for each group. `notes` are words
    after the names of single changes, in brackets.
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
    beside = {name: f"{name} ({note})" for name, note in (notes or {}).items()}
    ax.set_yticks(range(len(names)), [beside.get(name, name) for name in names])
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
    ax.set_xlabel("← worse     gain over the baseline (nats per token)     better →")
    show(drawn, f"Gain over the baseline (nats per token). {'. '.join(said)}.")


def gains_before_and_after(
    rows: Mapping[str, tuple[tuple[float, float], tuple[float, float]]],
    settings: tuple[str, str],
    moves: tuple[str, str, str] = ("grows", "shrinks", "becomes a loss"),
) -> None:
    """How the gain of a change moves with the setting: {row: ((gain, half a bar) before, (gain, half a bar) after)}.

    A row for each, in it a grey square before, a blue dot after, and an arrow from one to the other. `moves` are the
    words for a gain that grows, shrinks or becomes a loss. The names of the two settings stand above the axes.
    """
    drawn, ax = figure(7.4, 1.2 + 0.55 * len(rows))
    ax.axvline(0, color=GREY, linewidth=1.2)
    said = []
    for y, (name, (before, after)) in enumerate(rows.items()):
        arrow(ax, (before[0], y), (after[0], y), colour=GREY)
        for (gain, half), lift, shade, mark in ((before, -0.13, GREY, "s"), (after, 0.13, BLUE, "o")):
            ax.plot([gain - half, gain + half], [y + lift, y + lift], color=shade, linewidth=2, zorder=2)
            ax.plot(gain, y + lift, mark, color=shade, markersize=7, zorder=3)
        right = max(gain + half for gain, half in (before, after))
        grows, shrinks, lost = moves
        does = lost if after[0] < 0 < before[0] else shrinks if after[0] < before[0] else grows
        moved = f"{does}: {before[0]:.2f} → {after[0]:.2f}".replace("-", "−")
        ax.text(right + 0.015, y, moved, va="center", fontsize=9.5, color=INK, bbox=ON_GRID)
        said.append(f"{name}: {before[0]:.3f} ± {before[1]:.3f} before, {after[0]:.3f} ± {after[1]:.3f} after")
    for words, shade, mark in zip(settings, (GREY, BLUE), "so", strict=True):
        ax.plot([], [], mark, color=shade, linestyle="-", linewidth=2, markersize=7, label=words)
    ax.legend(loc="lower center", bbox_to_anchor=(0.45, 1.0), ncols=2, frameon=False)
    ax.set_ylim(len(rows) - 0.4, -0.6)
    ends = [end for both in rows.values() for gain, half in both for end in (gain - half, gain + half)]
    ax.set_xlim(min(-0.02, min(ends) - 0.02), 1.45 * max(ends))
    ax.set_yticks(range(len(rows)), rows)
    ax.tick_params(axis="y", length=0)
    ax.grid(axis="x", color=PALE, linewidth=0.8)
    ax.set_axisbelow(True)
    ax.set_xlabel("gain over the baseline (nats per token)")
    show(drawn, f"Gains over the baseline (nats per token), {settings[0]} and {settings[1]}. {'. '.join(said)}.")


def worth_in_steps(
    baseline: Mapping[int, Sequence[float]], other: Mapping[int, Sequence[float]], name: str
) -> list[float]:
    """How far to the right a weaker model must go for the loss of a better one: {steps: a loss for each run} of both.

    Both have runs of two lengths: a mark for each, and a line through the means. The baseline's goes on, dashed. From
    each mean of the other an arrow leads to it; one more arrow leads from the other's line to the baseline's last mean.
    What comes back are the factors that the arrows show, in the order of the losses, from the highest down.
    """
    baseline_means = {steps: sum(losses) / len(losses) for steps, losses in baseline.items()}
    means = {steps: sum(losses) / len(losses) for steps, losses in other.items()}
    (first, early), (last, late) = baseline_means.items()
    slope = (early - late) / math.log(last / first)                 # nats for each e-fold of the steps
    drawn, ax = figure(7.4, 3.9)
    style, better = line_style(0), line_style(1)
    lowest = min(means.values())
    end = first * math.exp((early - lowest) / slope)
    ax.plot([last, end * 1.15], [late, late - slope * math.log(end * 1.15 / last)], color=style["color"],
            linestyle=(0, (2, 2)), linewidth=1.8)  # fmt: skip
    for points, runs, look in ((baseline_means, baseline, style), (means, other, better)):
        ax.plot([*points], [*points.values()], color=look["color"], linewidth=2)
        each = [(steps, loss) for steps, losses in runs.items() for loss in losses]
        ax.plot(*zip(*each, strict=True), look["marker"], color=look["color"], markersize=4, alpha=0.7, zorder=4)
    factors = []
    (_, high), (_, low) = means.items()
    sooner = first * math.exp((high - late) * math.log(last / first) / (high - low))
    inside = first <= sooner <= last
    if inside:
        arrow(ax, (sooner, late), (last, late), colour=INK, width=1.6)
        ax.text(math.sqrt(sooner * last), late + 0.015, f"{last / sooner:.1f} times", ha="center", va="bottom",
                fontsize=10, color=INK)  # fmt: skip
    for steps, loss in means.items():
        reached = first * math.exp((early - loss) / slope)
        factors.append(reached / steps)
        arrow(ax, (steps, loss), (reached, loss), colour=INK, width=1.6)
        said = f"{factors[-1]:.1f} times the steps"
        if reached <= last:
            ax.text(reached * 1.08, loss, said, ha="left", va="center", fontsize=10, color=INK)
        else:
            ax.text(math.sqrt(steps * reached), loss - 0.035, f"{said} (extrapolated)", ha="center", va="top",
                    fontsize=10, color=INK)  # fmt: skip
    ax.text(last * 1.06, late + 0.02, "baseline", ha="left", va="bottom", fontsize=10.5, color=style["color"])
    ax.text(last * 0.93, lowest - 0.03, name, ha="right", va="center", fontsize=10.5, color=better["color"])
    ax.set_xscale("log")
    ticks = [steps for steps in (300, 600, 1200, 2400, 4800) if first <= steps <= end * 1.4]
    ax.set_xticks(ticks, [f"{steps:,}" for steps in ticks])
    ax.minorticks_off()
    ax.margins(x=0.06, y=0.14)
    name_lines(ax, "training steps (logarithmic)", "test loss (nats per token)")
    listed = ", ".join(f"{factor:.1f} at {steps} steps" for factor, steps in zip(factors, other, strict=True))
    reverse = f" For the baseline's loss at {last} steps: {last / sooner:.1f}, without extrapolation." if inside else ""
    show(
        drawn,
        f"Loss against steps. For the loss of {name} the baseline needs so many times the steps: {listed}.{reverse}",
    )
    return [factors[0], last / sooner, factors[1]] if inside else factors


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

    An encoder–decoder has a third line, what its decoder reads. Tokens that stand for hidden ones are amber. On the
    right stand the masks, a row for each query, a column for each key (the first and the one over another text say
    so), forbidden cells hatched. Raises ValueError for a row with more tokens to predict than are read.
    """
    longest = max(max(len(row.read), len(row.written)) for row in rows)
    cell = 1.65 / max(longest, *(len(mask) for row in rows for mask in row.masks.values()), 1)
    beside = max(sum(cell * mask.shape[1] + MASK_GAP for mask in row.masks.values()) for row in rows)
    unit = 0.58 if beside else 0.66
    pitch = 2.9 if beside or any(row.written for row in rows) else 2.2
    drawn, ax = figure(unit * (longest + 2.5 + beside), 0.1 + unit * SQUARE * pitch * len(rows))
    stage(ax, (-2.3, longest + 0.2 + beside), (-pitch * len(rows) + 0.95, 0.95))
    said, named = [], False
    for i, row in enumerate(rows):
        if len(row.predict) > len(row.read):
            raise ValueError(f"{row.name}: got {len(row.predict)} to predict, expected at most {len(row.read)}")
        y = -pitch * i
        ax.text(0, y + 0.6, row.name, ha="left", va="center", fontsize=10.5, fontweight="bold", color=INK)
        lines = [("reads", row.read, GREY), ("predicts", row.predict, PURPLE)]
        if row.written:
            shifted = ("<bos>", *row.written[:-1])
            lines = [("encoder reads", row.read, GREY), ("decoder reads", shifted, GREY),
                     ("decoder predicts", row.written, PURPLE)]  # fmt: skip
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
            across = mask.shape[0] != mask.shape[1]
            sides = ("query", "key") if not named else ("decoder", "encoder") if across else ("", "")
            _mask(ax, left, y + 0.4, mask, cell, sides)
            named = True
            ax.text(left, y + 0.44, name, ha="left", va="bottom", fontsize=9, color=INK)
            left += cell * mask.shape[1] + MASK_GAP
            share = f"{mask.float().mean():.0%} of the pairs" if not mask.all() else "all pairs"
            said.append(f"its mask {name}, {mask.shape[0]} queries by {mask.shape[1]} keys, allows {share}")
    show(drawn, f"Pre-training objectives on one sentence. {'. '.join(said)}.")


def pretraining_objectives() -> None:
    """The four objectives of the lecture on one sentence, with their masks."""
    text = ("Return", "the", "number", "of", "bytes", "in", "it")
    every, past = torch.ones(7, 7, dtype=torch.bool), causal_mask(7)
    prefix = causal_mask(8)
    prefix[:, :4] = True
    objectives([
        Objective("causal LM", ("<bos>", *text), (*text, "<eos>"), masks={"causal": causal_mask(8)}),
        Objective("masked LM", ("Return", "[MASK]", "number", "of", "[MASK]", "in", "it"),
                  ("", "the", "", "", "bytes"), masks={"bidirectional": every}),
        Objective("span corruption", ("Return", "<1>", "of", "bytes", "<2>"), (),
                  written=("<1>", "the", "number", "<2>", "in", "it", "<3>"),
                  masks={"encoder": every[:5, :5], "decoder": past, "cross": every[:, :5]}),
        Objective("prefix LM", ("<bos>", *text), ("", "", "", "of", "bytes", "in", "it", "<eos>"),
                  masks={"prefix of four": prefix}),
    ])  # fmt: skip


def _mask(ax: Axes, left: float, top: float, mask: Tensor, cell: float, sides: tuple[str, str]) -> None:
    """A mask, blue where a text attends to itself, orange where to another; `sides`: the names of rows and columns."""
    high, n, n_keys = cell / SQUARE, *mask.shape
    _mask_cells(ax, left, top, mask, (cell, high), [[BLUE if n == n_keys else ORANGE] * n_keys] * n)
    rows, columns = sides
    bottom, middle = top - high * n, left + cell * n_keys / 2
    if rows:
        ax.text(left - 0.05, (top + bottom) / 2, rows, ha="right", va="center", rotation=90, fontsize=9, color=GREY)
    if columns:
        ax.text(middle, bottom - 0.05, columns, ha="center", va="top", fontsize=9, color=GREY)


def _token(ax: Axes, x: float, y: float, token: str, colour: str) -> None:
    hidden = token.startswith("[") or (token.startswith("<") and token[1:-1].isdigit())
    plain = (*rgb(PURPLE), 0.14) if colour == PURPLE else "white"
    ax.add_patch(
        Rectangle((x, y - 0.28), 0.94, 0.56, facecolor=(*rgb(AMBER), 0.35) if hidden else plain, edgecolor=colour,
                  linewidth=1.3)
    )  # fmt: skip
    ax.text(x + 0.47, y, token, ha="center", va="center", fontsize=9, color=INK)


# What sampling leaves of a distribution


def sampling_frame(
    logits: Tensor, tokens: Sequence[str], temperature: float = 1.0, cut: str = "everything"
) -> tuple[Figure, str]:
    """What is sampled from after temperature and cut, beside the model's own; `cut` is "everything", "top-k 5", ….

    `logits` (vocab_size,), `tokens` the names of the likeliest, from the likeliest down: a bar for each, and one for
    all the others together. Returns the figure and the words for it, for `explore`. Raises ValueError for another way
    to cut.
    """
    kind, _, amount = cut.partition(" ")
    if kind not in ("everything", "top-k", "top-p"):
        raise ValueError(f"cut: got {cut!r}, expected everything, top-k K or top-p P")
    options: dict = {"top_k": int(amount)} if kind == "top-k" else {"top_p": float(amount)} if kind == "top-p" else {}
    best = logits.argsort(descending=True, stable=True)[: len(tokens)]
    own = logits.softmax(dim=-1)
    after = warp_logits(logits[None], temperature, **options)[0].softmax(dim=-1)          # (vocab_size,)
    check_shares("after", after.numpy())
    left = int((after > 0).sum())
    rows = [*tokens, "all others"]
    bars = [[*p[best].tolist(), float(p.index_fill(0, best, 0.0).sum())] for p in (own, after)]
    drawn, ax = figure(6.5, 3.9)
    hold_still(drawn, left=0.2, right=0.98, bottom=0.13, top=0.92)
    ax.barh(range(len(rows)), bars[1], height=0.72, color=BLUE, label="what we sample from")
    ax.barh(range(len(rows)), bars[0], height=0.72, facecolor="none", edgecolor=ORANGE, linewidth=1.6,
            label="the model's own")  # fmt: skip
    for y, share in enumerate(bars[1]):
        shown = f"{share:.2f}" if share else "cut"
        ax.text(max(share, bars[0][y]) + 0.01, y, shown, va="center", fontsize=9, color=INK)
    ax.set_yticks(range(len(rows)), rows)
    ax.tick_params(axis="y", length=0)
    ax.set_ylim(len(rows) - 0.4, -0.6)
    ax.set_xlim(0, 1.08)
    ax.set_xlabel("probability")
    ax.set_ylabel("next token")
    ax.legend(loc="center right", frameon=False, fontsize=10)
    ax.grid(axis="x", color=PALE, linewidth=0.8)
    ax.set_axisbelow(True)
    tokens_left = f"{left:,} of {len(logits):,} tokens {'is' if left == 1 else 'are'} left"
    ax.set_title(f"T = {temperature:g}, {cut}: {tokens_left}", fontsize=10.5)
    shares = ", ".join(f"{name} {share:.2f}" for name, share in zip(rows, bars[1], strict=True))
    return drawn, f"Temperature {temperature:g}, {cut}: {tokens_left}. Probabilities after the cut: {shares}."


def names_of(checkpoint: Mapping[str, Tensor], block: int = 0) -> list[tuple[str, tuple[int, ...]]]:
    """The tensors of one block of a checkpoint, by the names of GPT-2 or Llama, with their shapes."""
    wanted = (f"h.{block}.", f"layers.{block}.")
    return [(name, tuple(tensor.shape)) for name, tensor in checkpoint.items() if any(part in name for part in wanted)]
