"""Training drawn: tokens, batches, rates, and where a GPU's time and memory go."""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from statistics import median

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch, Rectangle
from matplotlib.ticker import NullLocator

from attncourse.viz.diagrams import arrow, box
from attncourse.viz.style import (
    BLUE,
    GREEN,
    GREY,
    HATCHES,
    INK,
    ORANGE,
    PALE,
    SERIES,
    WEIGHTS,
    figure,
    hold_still,
    line_style,
    name_lines,
    show,
    stage,
)

PALE_BLUE = WEIGHTS(0.25)


def pieces_frame(words: Mapping[str, Sequence[str]], title: str = "") -> tuple[Figure, str]:
    """Words cut into pieces, a row each with the number of pieces behind it: one frame for `explore`."""
    longest = max(sum(map(len, pieces)) + 0.4 * len(pieces) for pieces in words.values())
    drawn, ax = figure(6.4, 0.7 + 0.42 * len(words))
    stage(ax, (0, longest + 4), (-len(words) + 0.2, 1.0))
    hold_still(drawn, left=0.01, right=0.99, top=0.99, bottom=0.01)
    ax.text(0, 0.75, title, fontsize=10.5, color=INK, va="center")
    for row, pieces in enumerate(words.values()):
        x = 0.0
        for i, piece in enumerate(pieces):
            width = len(piece) + 0.1
            ax.add_patch(FancyBboxPatch((x, -row - 0.3), width, 0.6, boxstyle="round,pad=0,rounding_size=0.15",
                                        facecolor=PALE_BLUE if i % 2 == 0 else "white", edgecolor=BLUE))  # fmt: skip
            ax.text(x + width / 2, -row - 0.02, piece, ha="center", va="center", fontsize=9.5, family="monospace")
            x += width + 0.3
        ax.text(longest + 3.8, -row, str(len(pieces)), ha="right", va="center", fontsize=10, color=GREY)
    listed = "; ".join(f"{word}: {' | '.join(pieces)} ({len(pieces)})" for word, pieces in words.items())
    return drawn, f"{title}. Words cut into pieces. {listed}."


def padded_batches(batches: Mapping[str, Sequence[Sequence[int]]]) -> None:
    """Batches as rectangles, {panel: the lengths in each batch}: what is token is filled, what is padding hatched."""
    drawn, _ = figure(3.6 * len(batches), 3.4, columns=len(batches))
    said = []
    for ax, (name, groups) in zip(drawn.axes, batches.items(), strict=True):
        y, tokens, room = 0, 0, 0
        for lengths in groups:
            longest = max(lengths)
            for length in lengths:
                ax.add_patch(Rectangle((0, y), length, 1, facecolor=BLUE, linewidth=0))
                ax.add_patch(Rectangle((length, y), longest - length, 1, facecolor="white", edgecolor=ORANGE,
                                       hatch="////", linewidth=0))  # fmt: skip
                y += 1
            ax.add_patch(Rectangle((0, y - len(lengths)), longest, len(lengths), fill=False, edgecolor=INK))
            y += 2
            tokens += sum(lengths)
            room += longest * len(lengths)
        ax.set_xlim(0, 1.02 * max(max(lengths) for groups in batches.values() for lengths in groups))
        ax.set_ylim(y, -1)
        ax.set_yticks([])
        ax.spines[["left"]].set_visible(False)
        ax.set_xlabel("tokens")
        ax.set_ylabel("sentences")
        ax.set_title(f"{name}\n{1 - tokens / room:.0%} padding", fontsize=10.5)
        sizes = ", ".join(f"{len(lengths)} × {max(lengths)}" for lengths in groups)
        said.append(f"{name}: {1 - tokens / room:.0%} of the rectangles is padding; they are {sizes}")
    show(drawn, f"Batches as rectangles, tokens filled and padding hatched. {'. '.join(said)}.")


def learning_rates(lines: Mapping[str, Sequence[float]], title: str = "") -> None:
    """Rates against the step, each line with its highest point marked."""
    drawn, ax = figure(6.6, 3.0)
    for i, (name, line) in enumerate(lines.items()):
        style = line_style(i) | {"marker": "", "linewidth": 2, "linestyle": ("-", "--", "-.", ":")[i % 4]}
        ax.plot(range(1, len(line) + 1), line, label=name, **style)
        top = max(range(len(line)), key=line.__getitem__)
        ax.plot(top + 1, line[top], "o", color=style["color"], markersize=6, zorder=4)
    ax.set_ylim(bottom=0)
    name_lines(ax, "step", "learning rate", title)
    said = "; ".join(f"{name} is highest at step {max(range(len(line)), key=line.__getitem__) + 1}, "
                     f"{max(line):.2g}, and ends at {line[-1]:.2g}" for name, line in lines.items())  # fmt: skip
    show(drawn, f"Learning rate against the step. {said}.")


# Where each stands, and whether autocast has products in 16 bits there.
STEP = {
    "batch": (0, 0, None),
    "forward": (1.9, 0, True),
    "loss": (3.8, 0, False),
    "backward": (5.7, 0, True),
    "gradient": (7.6, 0, False),
    "clip": (9.5, 0, False),
    "AdamW": (11.4, 0, False),
    "weights": (6.65, 1.9, False),
    "activations": (3.8, -1.7, True),
    "m, v": (11.4, -1.7, False),
}


def training_step() -> None:
    """One step of training, from the batch to the weights, what is kept on the way, and in how many bits."""
    drawn, ax = figure(9.0, 3.4)
    stage(ax, (-1, 12.5), (-3.1, 2.6))
    for name, (x, y, half) in STEP.items():
        box(ax, x, y, name, GREY if half is None else ORANGE if half else BLUE, width=1.5)
    row = ["batch", "forward", "loss", "backward", "gradient", "clip", "AdamW"]
    for before, after in pairwise(row):
        arrow(ax, (STEP[before][0] + 0.78, 0), (STEP[after][0] - 0.78, 0))
    arrow(ax, (11.4, 0.55), (7.45, 1.9))                          # from AdamW to the weights
    arrow(ax, (5.85, 1.9), (1.9, 0.55))                           # and on to the next forward pass
    arrow(ax, (1.9, -0.55), (3.0, -1.7))
    arrow(ax, (4.6, -1.7), (5.7, -0.55))
    arrow(ax, (11.4, -1.15), (11.4, -0.55), both=True)
    legend = ((2.6, ORANGE, "in 16 bits under autocast (activations in part)"), (8.6, BLUE, "in 32 bits"))
    for x, colour, words in legend:
        ax.add_patch(Rectangle((x - 0.6, -2.95), 0.4, 0.4, facecolor=colour, edgecolor=colour))
        ax.text(x, -2.75, words, va="center", fontsize=9.5, color=INK)
    halves = ", ".join(name for name, (_, _, half) in STEP.items() if half)
    show(drawn, f"One training step: {' → '.join(row)} → weights → the next forward. Kept: from forward to backward "
                f"activations; from step to step weights and m, v. In 16 bits under autocast: {halves}; in 32 bits all "
                "else.")  # fmt: skip


def rate_sweep(losses: Mapping[float, Sequence[float]]) -> None:
    """Final losses, {learning rate: one for each seed}: every run a point, a line through the medians."""
    drawn, ax = figure(6.4, 3.3)
    rates = list(losses)
    for rate, values in losses.items():
        ax.scatter([rate] * len(values), values, s=34, facecolor="white", edgecolor=BLUE, linewidth=1.4, zorder=4)
    medians = [median(values) for values in losses.values()]
    ax.plot(rates, medians, "-", color=BLUE, linewidth=1.6, zorder=3, label="median")
    ax.set_xscale("log")
    ax.set_xticks(rates, [f"{rate:g}" for rate in rates])
    ax.xaxis.set_minor_locator(NullLocator())
    ax.set_xlabel("learning rate")
    ax.set_ylabel("held-out loss (nats per token)")
    ax.grid(axis="y", color=PALE, linewidth=0.8)
    ax.set_axisbelow(True)
    best = rates[medians.index(min(medians))]
    listed = "; ".join(f"{rate:g}: {', '.join(f'{value:.2f}' for value in values)}" for rate, values in losses.items())
    show(drawn, f"Held-out loss against the learning rate, a point for each seed. {listed}. Lowest median at {best:g}.")


def launches(panels: Mapping[str, float], launch: float, n: int) -> None:
    """`n` kernels in a row, {panel: microseconds that the GPU needs for each}; the CPU needs `launch` for each.

    The GPU begins a kernel when it has been launched and the one before it is done.
    """
    drawn, _ = figure(3.7 * len(panels), 1.9, columns=len(panels))
    said = []
    for ax, (name, work) in zip(drawn.axes, panels.items(), strict=True):
        free = 0.0
        for i in range(n):
            sent = (i + 1) * launch
            ax.add_patch(Rectangle((sent - launch, 1), launch, 0.7, facecolor=ORANGE, edgecolor="white"))
            start = max(sent, free)
            ax.add_patch(Rectangle((start, 0), work, 0.7, facecolor=BLUE, edgecolor="white"))
            free = start + work
        ax.set_xlim(0, 1.02 * (launch + n * max(launch, *panels.values())))  # one scale for all panels
        ax.set_ylim(-0.15, 1.85)
        ax.set_yticks([0.35, 1.35], ["GPU runs kernels", "CPU launches"])
        ax.tick_params(axis="y", length=0)
        ax.set_xlabel("microseconds")
        share = work / max(work, launch)                          # once they follow one another
        ax.set_title(f"{name}\nGPU busy {share:.0%}", fontsize=10.5)
        said.append(f"{name}: the last of {n} is launched at {n * launch:g} µs and done at {free:g} µs; "
                    f"in the long run the GPU is busy {share:.0%} of the time")  # fmt: skip
    show(drawn, f"When the CPU launches kernels and when the GPU runs them. {'. '.join(said)}.")


def roofline(chips: Mapping[str, tuple[float, float]], work: Mapping[str, tuple[float, float]]) -> None:
    """What chips can do at most, {name: (FLOP/s, bytes/s)}, and where work lies on it, {name: (FLOPs, bytes)}.

    Each chip is a slope, memory-bound, and a flat roof, compute-bound; a piece of work is an upright line at its FLOPs
    per byte, with a point on every roof: the most that it can reach there.
    """
    drawn, ax = figure(7.2, 4.3)
    intensities = {name: flops / moved for name, (flops, moved) in work.items()}
    corners = [peak / bandwidth for peak, bandwidth in chips.values()]
    low, high = min(intensities.values()) / 2, 10 * max(*intensities.values(), *corners)
    for i, (name, (peak, bandwidth)) in enumerate(chips.items()):
        style = line_style(i) | {"marker": "", "linestyle": "-"}
        corner = peak / bandwidth
        ax.plot([low, corner, high], [low * bandwidth, peak, peak], label=name, **style)
        reached = [min(peak, intensity * bandwidth) for intensity in intensities.values()]
        ax.scatter(list(intensities.values()), reached, s=26, color=style["color"], zorder=5)
    floor = low * min(bandwidth for _, bandwidth in chips.values()) / 300
    before = 0.0
    for name, intensity in sorted(intensities.items(), key=lambda item: item[1]):
        ax.axvline(intensity, color=GREY, linewidth=0.9, linestyle=":", zorder=1)
        side = "left" if intensity < 1.5 * before else "right"    # of two that are near, the second stands to the right
        ax.text(intensity, floor * 1.3, f" {name}", rotation=90, ha=side, va="bottom", fontsize=8.5, color=INK)
        before = intensity
    top = 6 * max(peak for peak, _ in chips.values())
    for x, words, side in ((min(corners) / 1.6, "memory-bound ←", "right"), (max(corners), "→ compute-bound", "left")):
        ax.text(x, top / 1.4, words, ha=side, va="top", fontsize=9.5, color=GREY)
    ax.set_xscale("log")
    ax.set_yscale("log")
    ax.set_xlim(low, high)
    ax.set_ylim(floor, top)
    name_lines(ax, "arithmetic intensity (FLOPs per byte moved)", "FLOP/s that can be reached")
    roofs = "; ".join(f"{name} rises to {peak:.3g} FLOP/s at {peak / bandwidth:.0f} FLOPs a byte"
                      for name, (peak, bandwidth) in chips.items())  # fmt: skip
    where = "; ".join(
        f"{name} at {intensity:.3g} ("
        + ", ".join(f"{chip} {_percent(min(1, intensity * b / p))} of the peak" for chip, (p, b) in chips.items()) + ")"
        for name, intensity in intensities.items()
    )  # fmt: skip
    show(drawn, f"Rooflines from data sheets. {roofs}. Work, by FLOPs per byte: {where}.")


def _percent(share: float) -> str:
    return f"{share:.0%}" if share >= 0.01 else f"{100 * share:.1g}%"


def memory_bars(parts: Mapping[str, Mapping[str, float]], limits: Mapping[str, float]) -> None:
    """Bytes that are held, {bar: {part: bytes}}, stacked and lying; what there is, {name: bytes}, as upright lines."""
    drawn, ax = figure(7.2, 0.9 + 0.42 * len(parts))
    names = list(next(iter(parts.values())))
    left = [0.0] * len(parts)
    for i, name in enumerate(names):
        widths = [held[name] / 1e9 for held in parts.values()]
        ax.barh(range(len(parts)), widths, 0.62, left=left, color=SERIES[i], hatch=HATCHES[i], edgecolor="white",
                label=name)  # fmt: skip
        left = [start + width for start, width in zip(left, widths, strict=True)]
    for y, end in enumerate(left):
        ax.text(end, y, f" {end:.1f} GB", va="center", fontsize=9, color=INK, zorder=5,
                bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.6})  # fmt: skip
    for name, limit in limits.items():
        ax.axvline(limit / 1e9, color=INK, linewidth=1.4, linestyle="--")
        ax.text(limit / 1e9, -0.55, f" {name}: {limit / 1e9:.0f} GB", fontsize=9, color=INK, va="bottom")
    ax.set_yticks(range(len(parts)), list(parts))
    ax.set_ylim(len(parts) - 0.5, -0.95)
    ax.set_xlim(0, 1.2 * max(*left, *(limit / 1e9 for limit in limits.values())))
    ax.tick_params(axis="y", length=0)
    ax.set_xlabel("memory (GB)")
    ax.legend(frameon=False, loc="center left", bbox_to_anchor=(1.01, 0.5))
    said = "; ".join(f"{bar}: " + ", ".join(f"{name} {held[name] / 1e9:.2f} GB" for name in names)
                     for bar, held in parts.items())  # fmt: skip
    there = ", ".join(f"{name} has {limit / 1e9:.0f} GB" for name, limit in limits.items())
    show(drawn, f"Memory of a training step. {said}. {there}.")


HELD = ("weights", "gradient", "Adam's averages")


def data_parallel() -> None:
    """Two GPUs, twice: what each holds under DDP and under FSDP, and what travels between them."""
    drawn, _ = figure(8.6, 3.6, columns=2)
    for ax, sharded in zip(drawn.axes, (False, True), strict=True):
        stage(ax, (-0.35, 6.35), (-0.45, 4.95))
        ax.set_title("FSDP: each holds a slice" if sharded else "DDP: each holds everything", fontsize=11)
        for gpu in (0, 1):
            _gpu(ax, gpu, sharded)
        travels = ("all-gather,\nby blocks", "reduce-\nscatter") if sharded else ("", "all-reduce")
        for y, words in zip((2.55, 1.55), travels, strict=True):
            if words:
                arrow(ax, (2.25, y - 0.17), (3.75, y - 0.17), colour=ORANGE, width=2, both=True)
                ax.text(3, y - 0.05, words, ha="center", va="bottom", fontsize=8, color=INK)
    show(drawn, "Two GPUs in data parallelism; each has its own part of the batch. With DDP each holds all weights, "
                "the whole gradient and all of Adam's averages; the gradients are averaged by an all-reduce. With FSDP "
                "each holds half of each; weights are gathered block by block when they are needed (all-gather); of "
                "the summed gradient each gets its slice (reduce-scatter).")  # fmt: skip


def _gpu(ax: Axes, gpu: int, sharded: bool) -> None:
    """One of two GPUs, a column: its part of the batch, and below it what it holds, filled as far as it holds it."""
    x = 4.0 * gpu
    ax.add_patch(Rectangle((x - 0.2, -0.3), 2.4, 5.0, fill=False, edgecolor=GREY))
    ax.text(x + 1, 4.45, f"GPU {gpu}", ha="center", va="center", fontsize=10, color=INK)
    ax.add_patch(Rectangle((x, 3.3), 2, 0.7, facecolor=GREEN, edgecolor=INK, alpha=0.45))
    ax.text(x + 1, 3.65, f"part {gpu} of the batch", ha="center", va="center", fontsize=8.5, color=INK)
    for i, name in enumerate(HELD):
        y = 2.2 - i
        ax.add_patch(Rectangle((x, y), 2, 0.7, facecolor="white", edgecolor=GREY, linestyle=":"))
        start, width = (x + gpu, 1) if sharded else (x, 2)
        ax.add_patch(Rectangle((start, y), width, 0.7, facecolor=WEIGHTS(0.25), edgecolor=BLUE))
        ax.text(x + 1, y + 0.35, name, ha="center", va="center", fontsize=8.5, color=INK)
