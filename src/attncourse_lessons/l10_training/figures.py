"""Training drawn: tokens, batches, rates, and where a GPU's time and memory go."""

from collections.abc import Collection, Mapping, Sequence
from math import ceil, log10
from statistics import median

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch, Patch, Rectangle
from matplotlib.patheffects import withStroke
from matplotlib.ticker import NullLocator
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
    SERIES,
    WEIGHTS,
    figure,
    hold_still,
    line_style,
    show,
    stage,
)

PALE_BLUE = WEIGHTS(0.25)
BAND = "#f0f0f0"  # behind what belongs together
LATE = "#fcf2eb"  # behind the time that a prediction left out


def run_curve(seconds: Sequence[float], losses: Sequence[float], predicted: float) -> None:
    """A run's loss against its seconds, a point and its loss for each look; where it was to end, and where it did."""
    drawn, ax = figure(7.2, 3.2)
    high, end = 1.35 * max(losses), seconds[-1]
    ax.axvspan(predicted, end, color=LATE, linewidth=0, zorder=0)
    ax.plot(seconds, losses, "o-", color=BLUE, linewidth=2, markersize=6)
    for x, loss in zip(seconds, losses, strict=True):
        last = x == end                                             # beside the line at the end, not on it
        ax.text(x - 0.01 * end * last, loss + 0.045 * high, f"{loss:.1f}", ha="right" if last else "center",
                va="bottom", fontsize=10, color=BLUE)  # fmt: skip
    for x, words, ha in ((predicted, f"predicted end: {predicted:g} s", "left"),
                         (end, f"measured end: {end:.0f} s", "right")):  # fmt: skip
        ax.axvline(x, color=ORANGE, linewidth=1.8, linestyle="--" if x == predicted else "-", zorder=1)
        ax.text(x, 1.03 * high, words, ha=ha, va="bottom", fontsize=10.5, color=ORANGE)
    arrow(ax, (predicted, 0.9 * high), (end, 0.9 * high), colour=ORANGE, width=1.6, both=True)
    ax.text((predicted + end) / 2, 0.92 * high, f"{end - predicted:.0f} s longer", ha="center", va="bottom",
            fontsize=11, color=INK)  # fmt: skip
    ax.set_xlim(0, 1.05 * end)
    ax.set_ylim(0, high)
    _axes(ax, "seconds of training", "validation loss\n(nats per token)")
    ax.set_yticks(range(0, ceil(max(losses)) + 1, 2))
    looks = ", ".join(f"{loss:.1f} at {at:.0f} s" for at, loss in zip(seconds, losses, strict=True))
    show(drawn, f"A run's loss against its seconds: {looks}. The end was predicted at {predicted:g} s.")


def pieces_frame(words: Mapping[str, Sequence[str]], title: str = "") -> tuple[Figure, str]:
    """Words cut into pieces, a row each, and at its end how many they are: one frame for `explore`."""
    longest = max(sum(map(len, pieces)) + 0.4 * len(pieces) for pieces in words.values())
    drawn, ax = figure(6.4, 0.7 + 0.42 * len(words))
    stage(ax, (0, longest + 4), (-len(words) + 0.2, 1.0))
    hold_still(drawn, left=0.01, right=0.99, top=0.99, bottom=0.01)
    ax.text(0, 0.75, title, fontsize=10.5, color=INK, va="center")
    ax.text(longest + 3.8, 0.75, "tokens", ha="right", va="center", fontsize=10, color=GREY)
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
        if ax is drawn.axes[0]:
            ax.set_ylabel("sentences (one per row)")
        ax.set_title(f"{name}\n{1 - tokens / room:.0%} padding", fontsize=10.5)
        sizes = ", ".join(f"{len(lengths)} × {max(lengths)}" for lengths in groups)
        said.append(f"{name}: {1 - tokens / room:.0%} of the rectangles is padding; they are {sizes}")
    key = [Patch(facecolor=BLUE, label="tokens"),
           Patch(facecolor="white", edgecolor=ORANGE, hatch="////", linewidth=0, label="padding")]  # fmt: skip
    drawn.axes[-1].legend(handles=key, frameon=False, loc="upper right")
    show(drawn, f"Batches as rectangles, tokens filled and padding hatched. {'. '.join(said)}.")


def smoothed_losses(losses: Mapping[float, Tensor], margins: Tensor) -> None:
    """Loss against the margin of the true logit, {ε: losses}; the lowest point is marked where a curve has turned."""
    drawn, ax = figure(6.8, 3.5)
    said, end = [], float(margins[-1])
    for i, (share, line) in enumerate(losses.items()):
        style = line_style(i) | {"marker": "", "linestyle": ("-", "--", "-.", ":")[i % 4]}
        ax.plot(margins.tolist(), line.tolist(), **style)
        ax.text(end + 0.2, float(line[-1]), f"ε = {share:g}", color=style["color"], va="center", fontsize=10.5,
                bbox={"facecolor": "white", "edgecolor": "none", "pad": 1})  # fmt: skip
        lowest = int(line.argmin())
        x, y = float(margins[lowest]), float(line[lowest])
        if lowest < len(line) - 1:
            ax.plot(x, y, "o", color=style["color"], markersize=7, zorder=5)
            ax.text(x, y + 0.2, f"lowest at {x:.1f}", color=INK, ha="center", va="bottom", fontsize=9.5)
            said.append(f"with ε = {share:g} lowest at {x:.1f}, where it is {y:.2f}")
        else:
            ax.text(0.8 * end, y + 0.12, "never rises", color=INK, ha="center", va="bottom", fontsize=9.5)
            said.append(f"with ε = {share:g} it falls to the end")
    ax.set_xlim(0, 1.14 * end)
    ax.set_xticks(range(0, int(end) + 1, 3))
    _axes(ax, "margin of the true logit over all the others", "loss (nats)")
    show(drawn, f"Loss against the margin of the true logit: {'; '.join(said)}.")


def paired_gaps(panels: Mapping[str, Mapping[str, Sequence[float]]]) -> None:
    """Calibration gaps in points, {panel: {way of training: one for each seed}}: a row a seed, its runs joined.

    The number of a gap near 0 stands to the right of the line at 0, so that it does not break the line.
    """
    drawn, _ = figure(9.2, 3.2, columns=len(panels))
    points = {panel: {name: [100 * gap for gap in each] for name, each in ways.items()}
              for panel, ways in panels.items()}  # fmt: skip
    everywhere = [x for ways in points.values() for each in ways.values() for x in each]
    reach = (min(0.0, *everywhere) - 4, max(0.0, *everywhere) + 4)
    said = []
    for ax, (panel, ways) in zip(drawn.axes, points.items(), strict=True):
        n = len(next(iter(ways.values())))
        for y in range(n):
            ax.plot([each[y] for each in ways.values()], [y] * len(ways), color=GREY, linewidth=1.5, zorder=2)
        for i, (name, each) in enumerate(ways.items()):
            style = line_style(i) | {"linestyle": "none", "markersize": 9 - i, "zorder": 4}
            ax.plot(each, list(range(n)), **style)
            ax.text(each[0], -0.16, name, ha="center", va="bottom", fontsize=10, color=style["color"],
                    bbox={"facecolor": "white", "edgecolor": "none", "pad": 1})  # fmt: skip
            for y, x in enumerate(each):
                near = abs(x) < 1
                ax.text(0.5 if near else x, y + 0.18, _minus(f"{x:.1f}"), ha="left" if near else "center", va="top",
                        fontsize=9, color=INK, bbox={"facecolor": "white", "edgecolor": "none", "pad": 1})  # fmt: skip
        ax.axvline(0, color=INK, linewidth=1.4)
        for x, ha, words in ((-0.4, "right", "← underconfident"), (0.4, "left", "overconfident →")):
            ax.text(x, -0.72, words, ha=ha, va="bottom", fontsize=9.5, color=INK)
        ax.set_title(panel, fontsize=11)
        ax.set_yticks(range(n), [f"seed {y}" for y in range(n)] if ax is drawn.axes[0] else [""] * n)
        ax.set_ylim(n - 0.3, -1.15)
        ax.set_xlim(*reach)
        ax.tick_params(axis="y", length=0)
        ax.grid(axis="x", color=PALE, linewidth=0.8)
        ax.set_axisbelow(True)
        ax.set_xlabel("confidence minus accuracy (points)")
        listed = "; ".join(f"{name}: " + ", ".join(f"{x:.1f}" for x in each) for name, each in ways.items())
        said.append(f"{panel}: {listed}")
    show(drawn, f"Calibration gap in percentage points, seed by seed. {'. '.join(said)}. 0 is calibrated.")


def learning_rates(lines: Mapping[str, Sequence[float]], warmup: int) -> None:
    """Rates against the step: the warm-up shaded, the highest point marked, and where each line is at half of it."""
    drawn, ax = figure(6.8, 3.2)
    ax.axvspan(0, warmup, color=BAND, linewidth=0, zorder=0)
    highest = max(max(line) for line in lines.values())
    ax.text(0.1 * warmup, 1.04 * highest, "warm-up", ha="left", va="bottom", fontsize=10, color=INK)
    said = []
    for i, (name, line) in enumerate(lines.items()):
        style = line_style(i) | {"marker": "", "linewidth": 2, "linestyle": ("-", "--", "-.", ":")[i % 4]}
        ax.plot(range(1, len(line) + 1), line, **style)
        top = max(range(len(line)), key=line.__getitem__)
        half = next(step for step in range(top, len(line)) if line[step] <= 0.5000001 * line[top])
        ax.plot([top + 1, half + 1], [line[top], line[half]], "o", color=style["color"], markersize=6, zorder=4)
        near = half + 1 if half < 1000 else round(half + 1, -2)
        shift = -0.015 * len(line) if i == 0 else 0.015 * len(line)
        ax.text(half + 1 + shift, line[half], f"half the peak\nat step {near:,}", ha="right" if i == 0 else "left",
                va="top" if i == 0 else "bottom", fontsize=9, color=INK)  # fmt: skip
        ax.text(len(line) * 1.01, max(line[-1], 0.03 * highest), name, color=style["color"], va="center", fontsize=10.5)
        said.append(f"{name} is highest at step {top + 1}, {line[top]:.2g}, down to half of it at step {half + 1}, "
                    f"and ends at {line[-1]:.2g}")  # fmt: skip
    longest = max(len(line) for line in lines.values())
    ax.set_xlim(0, longest)
    ax.set_ylim(0, 1.15 * highest)
    ticks = range(0, longest + 1, 1000)
    ax.set_xticks(ticks, [f"{step:,}" for step in ticks])
    _axes(ax, "step", "learning rate")
    show(drawn, f"Learning rate against the step. {'; '.join(said)}.")


def adamw_numbers(
    gradients: Sequence[float], rate: float, decay: float, betas: tuple[float, float], theta: float = 1.0
) -> dict[str, float]:
    """What AdamW computes in the last of some steps from one parameter, every number of it by name."""
    m = v = 0.0
    now: dict[str, float] = {}
    for step, gradient in enumerate(gradients, start=1):
        now = {"gradient": gradient, "m before": m, "v before": v, "theta before": theta}
        now |= {"beta of m": betas[0], "beta of v": betas[1], "rest of m": 1 - betas[0], "rest of v": 1 - betas[1]}
        m = betas[0] * m + (1 - betas[0]) * gradient
        v = betas[1] * v + (1 - betas[1]) * gradient**2
        given = [1 - beta**step for beta in betas]
        m_hat, v_hat = m / given[0], v / given[1]
        ratio = m_hat / v_hat**0.5
        now |= {"m": m, "v": v, "given to m": given[0], "given to v": given[1], "m_hat": m_hat, "root": v_hat**0.5}
        now |= {"ratio": ratio, "decay": decay * theta, "moved": rate * (ratio + decay * theta)}
        theta -= now["moved"]
        now["theta"] = theta
    return now


def adamw_step(now: Mapping[str, float], rate: float, decay: float) -> None:
    """One step of AdamW with its numbers: two averages, their correction, the ratio, and the decay beside it."""
    drawn, ax = figure(9.0, 3.7)
    stage(ax, (-1.1, 13.7), (-2.85, 2.35))
    n = {name: _minus(f"{value:.4g}") for name, value in now.items()}
    boxes = {
        f"gradient g\n{n['gradient']}": (0, 0.5, GREY),
        f"m: {n['m before']} → {n['m']}": (3.0, 1.4, BLUE),
        f"v: {n['v before']} → {n['v']}": (3.0, -0.4, ORANGE),
        f"m corrected\n{n['m_hat']}": (6.55, 1.4, BLUE),
        f"√(v corrected)\n{n['root']}": (6.55, -0.4, ORANGE),
        f"ratio\n{n['ratio']}": (9.2, 0.5, GREEN),
        f"θ\n{n['theta before']}": (0, -2.05, GREY),
        f"decay λθ\n{n['decay']}": (9.2, -1.7, GREY),
        f"new θ\n{n['theta']}": (12.0, 0.5, GREY),
    }
    for words, (x, y, colour) in boxes.items():
        box(ax, x, y, words, colour, width=2.5 if x == 3.0 else 2.2 if x == 6.55 else 2.0)
    new = f"({n['gradient']})" if now["gradient"] < 0 else n["gradient"]
    for start, end in (
        ((1.02, 0.8), (1.73, 1.3)), ((1.02, 0.2), (1.73, -0.3)),
        ((4.27, 1.4), (5.43, 1.4)), ((4.27, -0.4), (5.43, -0.4)),
        ((7.68, 1.4), (8.18, 0.8)), ((7.68, -0.4), (8.18, 0.2)),
        ((10.22, 0.5), (10.98, 0.5)), ((1.02, -1.75), (8.18, -1.75)), ((10.22, -1.5), (11.4, -0.02)),
    ):  # fmt: skip
        arrow(ax, start, end)
    ax.plot([1.02, 12.3], [-2.4, -2.4], color=GREY, linewidth=1.2, solid_capstyle="butt")  # θ itself, round a corner
    arrow(ax, (12.3, -2.4), (12.3, -0.02))
    for x, y, words in (
        (3.0, 2.08, f"average of g: {n['beta of m']} · {n['m before']} + {n['rest of m']} · {new}"),
        (3.0, -1.08, f"average of g²: {n['beta of v']} · {n['v before']} + {n['rest of v']} · {new}²"),
        (4.85, 1.5, f"÷ {n['given to m']}"), (4.85, -0.3, f"÷ {n['given to v']}"),
        (9.2, 1.18, "upper ÷ lower"), (4.6, -1.68, f"× λ = {decay:g}, not averaged, not divided"),
        (6.2, -2.77, "θ itself"),
        (12.0, 1.18, f"θ − {rate:g} × (ratio + decay)"),
    ):  # fmt: skip
        ax.text(x, y, words, ha="center", va="bottom" if y != -1.08 else "top", fontsize=9, color=INK)
    show(drawn, f"One step of AdamW. Gradient {n['gradient']}; m from {n['m before']} to {n['m']}, divided by "
                f"{n['given to m']}: {n['m_hat']}; v from {n['v before']} to {n['v']}, divided by {n['given to v']}, "
                f"root: {n['root']}. Ratio {n['ratio']}, decay {n['decay']}; times {rate:g} they take θ from "
                f"{n['theta before']} to {n['theta']}.")  # fmt: skip


def _minus(number: str) -> str:
    return number.replace("-", "−")


def _axes(ax: Axes, x_name: str, y_name: str) -> None:
    """Axes of a plot whose lines bear their names."""
    ax.set_xlabel(x_name)
    ax.set_ylabel(y_name)
    ax.grid(axis="y", color=PALE, linewidth=0.8)
    ax.set_axisbelow(True)


# Where each stands, and whether autocast has products in 16 bits there. Above: kept for the run. Below: for the step.
STEP = {
    "batch": (0, 0, None),
    "forward": (2.2, 0, True),
    "loss": (4.2, 0, False),
    "backward": (6.2, 0, True),
    "clip": (9.2, 0, False),
    "AdamW": (11.4, 0, False),
    "weights": (4.2, 2.0, False),
    "averages\nm, v": (11.4, 2.0, False),
    "activations": (4.2, -2.0, True),
    "gradient": (7.7, -2.0, False),
}
KEPT = {2.0: "kept for\nthe whole run", 0.0: "", -2.0: "kept within\none step"}


def training_step() -> None:
    """One step of training: what is done, in a row; above it what is kept for the run, below it what for the step."""
    drawn, ax = figure(9.0, 4.0)
    stage(ax, (-1, 12.5), (-3.75, 2.8))
    for y, words in KEPT.items():
        if words:
            ax.add_patch(Rectangle((-0.95, y - 0.75), 13.4, 1.5, facecolor=BAND, edgecolor="none", zorder=0))
            ax.text(-0.8, y, words, ha="left", va="center", fontsize=10.5, color=INK)
    number = 0
    for name, (x, y, half) in STEP.items():
        box(ax, x, y, name, GREY if half is None else ORANGE if half else BLUE, width=1.6)
        if y == 0:
            number += 1
            ax.text(x - 0.72, 0.45, str(number), ha="left", va="top", fontsize=9.5, weight="bold", color=INK)
    for start, end in (
        ((0.83, 0), (1.37, 0)), ((3.03, 0), (3.37, 0)), ((5.03, 0), (5.37, 0)), ((10.03, 0), (10.57, 0)),
        ((2.4, -0.54), (3.6, -1.46)), ((4.8, -1.46), (6.0, -0.54)),          # by the activations
        ((6.4, -0.54), (7.4, -1.46)), ((8.0, -1.46), (9.0, -0.54)),          # by the gradient
        ((3.8, 1.46), (2.4, 0.54)), ((4.7, 1.46), (6.0, 0.54)),              # the weights are read twice
        ((10.8, 0.54), (5.05, 1.9)),                                         # and written once
    ):  # fmt: skip
        arrow(ax, start, end)
    arrow(ax, (11.4, 1.46), (11.4, 0.54), both=True)
    legend = ((2.6, ORANGE, "in 16 bits under autocast (activations in part)"), (9.6, BLUE, "in 32 bits"))
    for x, colour, words in legend:
        ax.add_patch(Rectangle((x - 0.6, -3.55), 0.4, 0.4, facecolor=colour, edgecolor=colour))
        ax.text(x, -3.35, words, va="center", fontsize=9.5, color=INK)
    halves = ", ".join(name for name, (_, _, half) in STEP.items() if half)
    show(drawn, "One training step: batch → forward → loss → backward → clip → AdamW → weights. Kept for the whole "
                "run: weights and the averages m, v. Kept within one step: activations, from forward to backward, and "
                "the gradient, from backward to AdamW. In 16 bits under autocast: "
                f"{halves}; in 32 bits all else.")  # fmt: skip


def rate_sweep(
    losses: Mapping[float, Sequence[float]],
    low: str = "too slow: it has learned too little",
    high: str = "too fast: it overshoots",
) -> None:
    """Final losses, {learning rate: one for each seed}: every run a point, side by side, and the medians.

    Beside the lowest rate and above the highest, what is the matter with rates that are too low and too high.
    """
    drawn, ax = figure(6.8, 3.5)
    rates = list(losses)
    for rate, values in losses.items():
        ax.scatter(_beside(rate, len(values)), values, s=34, facecolor="white", edgecolor=BLUE, linewidth=1.4, zorder=4)
    medians = [median(values) for values in losses.values()]
    ax.plot(rates, medians, "-", color=ORANGE, linewidth=1.8, zorder=3)
    for rate, middle, values in zip(rates, medians, losses.values(), strict=True):
        ax.text(rate, max(values) + 0.06, f"{middle:.2f}", ha="center", va="bottom", fontsize=9.5, color=INK)
    ax.set_xscale("log")
    ax.set_xlim(rates[0] / 1.5, rates[-1] * 1.5)
    ax.set_xticks(rates, [f"{rate:g}" for rate in rates])
    ax.xaxis.set_minor_locator(NullLocator())
    ax.margins(y=0.12)
    ax.text(1.25 * rates[0], medians[0], low, ha="left", va="center", fontsize=10, color=INK)
    ax.text(1.3 * rates[-1], max(losses[rates[-1]]) + 0.22, high, ha="right", va="bottom", fontsize=10, color=INK)
    _axes(ax, "learning rate (log scale)", "held-out loss (nats per token)")
    lowest = f"{min(medians):.2f}"  # as written: rates that are tied there are all named
    best = " and ".join(f"{rate:g}" for rate, middle in zip(rates, medians, strict=True) if f"{middle:.2f}" == lowest)
    listed = "; ".join(f"{rate:g}: {', '.join(f'{value:.2f}' for value in values)}" for rate, values in losses.items())
    show(drawn, f"Held-out loss against the learning rate, a point for each seed. {listed}. Lowest median at {best}.")


def _beside(x: float, n: int) -> list[float]:
    """Places around x for n points on a logarithmic axis: none hides another."""
    return [x * 1.07 ** (i - (n - 1) / 2) for i in range(n)]


def launches(panels: Mapping[str, float], launch: float, n: int) -> None:
    """`n` kernels in a row, {panel: microseconds that the GPU needs for each}; the CPU needs `launch` for each.

    The GPU begins a kernel when it has been launched and the one before it is done. A line
    joins a launch and its kernel.
    """
    drawn, _ = figure(7.6, 1.75 * len(panels), rows=len(panels))
    said = []
    for ax, (name, work) in zip(drawn.axes, panels.items(), strict=True):
        free = 0.0
        for i in range(n):
            sent = (i + 1) * launch
            start = max(sent, free)
            ax.plot([sent, start], [1, 0.7], color=GREY, linewidth=0.9, zorder=1)
            for left, low, width, colour in ((sent - launch, 1, launch, ORANGE), (start, 0, work, BLUE)):
                ax.add_patch(Rectangle((left, low), width, 0.7, facecolor=colour, edgecolor="white"))
                ax.text(left + width / 2, low + 0.35, str(i + 1), ha="center", va="center", fontsize=9, color="white")
            free = start + work
        ax.text(free, 0.35, f" {n * work:g} µs of work, done after {free:g} µs", ha="left", va="center", fontsize=9.5,
                color=INK)  # fmt: skip
        ax.set_xlim(0, 1.08 * (launch + n * max(launch, *panels.values())))  # one scale for all panels
        ax.set_ylim(-0.1, 1.8)
        ax.set_yticks([0.35, 1.35], ["GPU runs kernels", "CPU launches"])
        ax.tick_params(axis="y", length=0)
        share = work / max(work, launch)                          # once they follow one another
        ax.set_title(f"{name}: in the long run the GPU is busy {share:.0%} of the time", fontsize=10.5, loc="left")
        said.append(f"{name}: the last of {n} is launched at {n * launch:g} µs and done at {free:g} µs; "
                    f"in the long run the GPU is busy {share:.0%} of the time")  # fmt: skip
    drawn.axes[-1].set_xlabel("time (µs)")
    show(drawn, f"When the CPU launches kernels and when the GPU runs them. {'. '.join(said)}.")


def number_formats(formats: Mapping[str, tuple[int, int, int]]) -> None:
    """The bits of formats, {name: (of the exponent, of the fraction, not used)}: a row each, a box a bit, sign first.

    Beside it what the bits buy: the smallest number above 0 (subnormal), the largest, and how many decimal digits.
    """
    drawn, ax = figure(9.0, 0.9 + 0.5 * len(formats))
    most = 1 + max(map(sum, formats.values()))
    stage(ax, (-3.4, most + 17.2), (0.55 - len(formats), 1.35))
    columns = (most + 3.0, most + 8.2, most + 14.0)
    heads = ("smallest", "largest", "decimal digits")
    for x, words, colour in zip(columns, heads, (ORANGE, ORANGE, BLUE), strict=True):
        ax.text(x, 0.85, words, ha="center", va="center", fontsize=10.5, color=colour)
    said = []
    for row, (name, (exponent, fraction, unused)) in enumerate(formats.items()):
        ax.text(-0.6, -row, name, ha="right", va="center", fontsize=11, color=INK)
        x = 0
        for n, colour, words in ((1, GREY, "S"), (exponent, ORANGE, str(exponent)), (fraction, BLUE, str(fraction)),
                                 (unused, "", "not used")):  # fmt: skip
            for bit in range(x, x + n):
                ax.add_patch(Rectangle((bit, -row - 0.32), 1, 0.64, linewidth=0.9,
                                       facecolor=colour or "white", edgecolor="white" if colour else GREY))  # fmt: skip
            if n:
                around = withStroke(linewidth=4, foreground=colour or "white")      # no gap runs through a digit
                ax.text(x + n / 2, -row, words, ha="center", va="center", fontsize=11 if colour else 10,
                        weight="bold" if colour else "normal", color="white" if colour else INK,
                        path_effects=[around])  # fmt: skip
            x += n
        largest = (2 - 2.0**-fraction) * 2.0 ** (2 ** (exponent - 1) - 1)
        smallest = 2.0 ** (2 - 2 ** (exponent - 1) - fraction)
        digits = f"{(fraction + 1) * log10(2):.1f}"
        for place, words in zip(columns, (_power_of_ten(smallest), _power_of_ten(largest), digits), strict=True):
            ax.text(place, -row, words, ha="center", va="center", fontsize=10.5, color=INK)
        said.append(f"{name}: exponent {exponent}, fraction {fraction}" + (f", not used {unused}" if unused else "")
                    + f"; from {smallest:.1e} to {largest:.1e}, {digits} decimal digits")  # fmt: skip
    exponent, fraction, _ = next(iter(formats.values()))
    for x, words, colour in ((1 + exponent / 2, "exponent: range", ORANGE),
                             (1 + exponent + fraction / 2, "fraction: digits", BLUE)):  # fmt: skip
        ax.text(x, 0.85, words, ha="center", va="center", fontsize=10.5, color=colour)
    show(drawn, f"Number formats, a box for each bit, one of them the sign. {'. '.join(said)}.")


def _power_of_ten(number: float) -> str:
    mantissa, power = f"{number:.1e}".split("e")
    return f"{number:,.0f}" if 1 <= number < 1e6 else rf"${mantissa} \cdot 10^{{{int(power)}}}$"


def roofline(chips: Mapping[str, tuple[float, float]], work: Mapping[str, tuple[float, float]]) -> None:
    """What chips can do at most, {name: (FLOP/s, bytes/s)}, and where work lies on it, {name: (FLOPs, bytes)}.

    Each chip is a slope, memory-bound, and a flat roof, compute-bound. A piece of work is an upright line at its FLOPs
    per byte with a point on every roof: the most that it can reach there. The last chip is drawn as the one in
    question: its line is thick, the colours behind it change at its corner, and each piece of work is named above its
    slope, with the share of its peak that the work can reach.
    """
    drawn, ax = figure(7.8, 4.6)
    intensities = {name: flops / moved for name, (flops, moved) in work.items()}
    *_, (shown, (peak, bandwidth)) = chips.items()
    corner, highest = peak / bandwidth, max(top for top, _ in chips.values())
    low, high = min(intensities.values()) / 32, 15 * max(*intensities.values(), corner)
    ax.axvspan(low, corner, color="#f0f6fa", linewidth=0, zorder=0)
    ax.axvspan(corner, high, color="#fcf2eb", linewidth=0, zorder=0)
    floor = 0.25 * min(intensities.values()) * min(speed for _, speed in chips.values())
    for i, (name, (top, speed)) in enumerate(chips.items()):
        last = i == len(chips) - 1
        colour = BLUE if last else GREY
        ax.plot([low, top / speed, high], [low * speed, top, top], color=colour, linewidth=3 if last else 1.3,
                linestyle="-" if last else ("--", "-.")[i % 2], zorder=3)  # fmt: skip
        reached = [min(top, intensity * speed) for intensity in intensities.values()]
        ax.scatter(list(intensities.values()), reached, s=44 if last else 18, color=colour, zorder=5)
        ax.text(1.15 * high, top, name, color=colour, va="center", fontsize=11 if last else 10,
                weight="bold" if last else "normal")  # fmt: skip
    above = 0.0
    for name, intensity in sorted(intensities.items(), key=lambda item: item[1]):
        y = min(peak, intensity * bandwidth)
        ax.plot([intensity, intensity], [floor, y], color=GREY, linewidth=0.9, linestyle=":", zorder=1)
        above = max(1.25 * y, 2 * above)                                # a name stands above the one before it
        share = _percent(min(1, y / peak)) + f" of the {shown}'s peak" * (intensity == max(intensities.values()))
        ax.text(0.93 * intensity, above, f"{name}: {share}", ha="right", va="bottom", fontsize=10, color=INK,
                bbox={"facecolor": "#f0f6fa", "edgecolor": "none", "pad": 0.5})  # fmt: skip
    for x, words, side in ((corner / 1.15, "memory-bound", "right"), (1.15 * corner, "compute-bound", "left")):
        ax.text(x, 7 * highest, words, ha=side, va="center", fontsize=11, color=INK)
    ax.set_xscale("log")
    ax.set_yscale("log")
    ax.set_xlim(low, high)
    ax.set_ylim(floor, 12 * highest)
    ax.yaxis.set_minor_locator(NullLocator())
    _axes(ax, "arithmetic intensity (FLOPs per byte moved)", "attainable FLOP/s")
    roofs = "; ".join(f"{name} rises to {peak:.3g} FLOP/s at {peak / bandwidth:.0f} FLOPs per byte"
                      for name, (peak, bandwidth) in chips.items())  # fmt: skip
    where = "; ".join(
        f"{name} at {intensity:.3g} ("
        + ", ".join(f"{chip} {_percent(min(1, intensity * b / p))} of the peak" for chip, (p, b) in chips.items()) + ")"
        for name, intensity in intensities.items()
    )  # fmt: skip
    show(drawn, f"Rooflines from data sheets. {roofs}. Work, by FLOPs per byte: {where}.")


def _percent(share: float) -> str:
    return f"{share:.0%}" if share >= 0.01 else f"{100 * share:.1g}%"


def memory_bars(
    parts: Mapping[str, Mapping[str, float]], limits: Mapping[str, float], measured: Mapping[str, float]
) -> None:
    """Bytes that are held, {bar: {part: bytes}}, stacked and lying; what there is, {name: bytes}, as upright lines.

    Beside each bar its parts in numbers, or in it where they would meet a line. Bytes that were measured,
    {bar: bytes}, are diamonds, named on the right.
    """
    drawn, ax = figure(7.6, 1.1 + 0.5 * len(parts))
    names = list(next(iter(parts.values())))
    left = [0.0] * len(parts)
    for i, name in enumerate(names):
        widths = [held[name] / 1e9 for held in parts.values()]
        ax.barh(range(len(parts)), widths, 0.6, left=left, color=SERIES[i], hatch=HATCHES[i], edgecolor="white",
                label=name)  # fmt: skip
        left = [start + width for start, width in zip(left, widths, strict=True)]
    end = 1.3 * max(*left, *(limit / 1e9 for limit in limits.values()))
    for name, limit in limits.items():
        ax.axvline(limit / 1e9, color=INK, linewidth=1.6, linestyle="--", zorder=4)
        ax.text(limit / 1e9, -0.5, f"{name}: {limit / 1e9:.0f} GB", ha="center", fontsize=10, color=INK, va="bottom")
    for y, (bar, held) in enumerate(parts.items()):
        sizes = [held[name] / 1e9 for name in names]
        summed = " + ".join(f"{size:.2f}" if size < 1 else f"{size:.1f}" for size in sizes) + " GB"
        lines: dict[float, str] = {y: summed}
        last = left[y]
        if bar in measured:
            last = measured[bar] / 1e9
            lines = {y - 0.01: f"measured {last:.1f} GB", y + 0.36: f"predicted {summed}"}
            ax.plot(last, y, "D", color=INK, markersize=6.5, zorder=5)
        meets = any(left[y] < limit / 1e9 < left[y] + 0.2 * end for limit in limits.values())
        inside = meets and left[y] > 0.3 * end          # long enough for the words
        for height, words in lines.items():
            ax.text(max(last, left[y]) + (-0.015 if inside else 0.015) * end, height, words,
                    ha="right" if inside else "left", va="center", fontsize=9.5, color=INK,
                    zorder=6, bbox={"facecolor": "white", "edgecolor": "none", "pad": 3})  # fmt: skip
    ax.set_yticks(range(len(parts)), list(parts))
    ax.set_ylim(len(parts) - 0.4, -0.45)
    ax.set_xlim(0, end)
    ax.tick_params(axis="y", length=0)
    ax.set_xlabel("memory (GB)")
    ax.legend(frameon=False, loc="upper right", fontsize=10)
    said = "; ".join(f"{bar}: " + ", ".join(f"{name} {held[name] / 1e9:.2f} GB" for name in names)
                     + (f", measured {measured[bar] / 1e9:.1f} GB" if bar in measured else "")
                     for bar, held in parts.items()).replace("\n", " ")  # fmt: skip
    there = ", ".join(f"{name} has {limit / 1e9:.0f} GB" for name, limit in limits.items())
    show(drawn, f"Memory of a training step. {said}. {there}.")


def step_times(rows: Mapping[str, tuple[float, float | None]], forecasts: Collection[str] = ()) -> None:
    """Milliseconds of a step, {row: (all of it, while the GPU is busy, or None where that is not known)}, lying.

    What was measured is filled, and its parts are named in the bar. A forecast is an outline; its busy time stands
    beside it where it is not the whole.
    """
    drawn, ax = figure(7.8, 1.0 + 0.5 * len(rows))
    longest = max(total for total, _ in rows.values())
    said = []
    for y, (row, (total, busy)) in enumerate(rows.items()):
        end = f"{total:.1f} ms" if total < 10 else f"{total:.0f} ms"
        forecast = row in forecasts
        ax.barh(y, total, 0.66, color="white" if forecast else BAND, edgecolor=BLUE if forecast else GREY,
                linewidth=1.4, linestyle="--" if forecast else "-")  # fmt: skip
        waits = total - (busy or 0)
        if busy is not None and not forecast:
            ax.barh(y, busy, 0.66, color=BLUE, edgecolor=BLUE, linewidth=1.4)
            ax.text(busy / 2, y, f"GPU busy: {busy:.0f}", ha="center", va="center", fontsize=9.5, color="white")
            ax.text(busy + waits / 2, y, "GPU waits", ha="center", va="center", fontsize=9.5, color=INK)
        elif busy is None:
            ax.text(total / 2, y, "busy time not measured", ha="center", va="center", fontsize=9.5, color=INK)
        elif busy < total:
            end += f" (GPU busy: {busy:.1f})"
        ax.text(total + 0.012 * longest, y, end, ha="left", va="center", fontsize=10.5, color=INK)
        said.append(f"{row}: {total:.1f}" + ("" if busy is None else f", GPU busy {busy:.1f}"))
    ax.set_yticks(range(len(rows)), list(rows))
    ax.set_ylim(len(rows) - 0.5, -0.5)
    ax.set_xlim(0, 1.13 * longest)
    ax.tick_params(axis="y", length=0)
    ax.set_xlabel("milliseconds per step")
    show(drawn, f"Milliseconds of a training step. {'; '.join(said)}.")


def class_shares(shares: Mapping[str, Mapping[str, float]]) -> None:
    """The share of each class of operations, of several amounts, {amount: {class: how much}}: a panel for each."""
    drawn, _ = figure(9.0, 2.9, columns=len(shares))
    classes = list(next(iter(shares.values())))
    said = []
    for i, (ax, (what, amounts)) in enumerate(zip(drawn.axes, shares.items(), strict=True)):
        parts = [100 * amounts[kind] / sum(amounts.values()) for kind in classes]
        ax.barh(range(len(classes)), parts, 0.7, color=SERIES[i])
        for row, part in enumerate(parts):
            ax.text(part + 2, row, f"{part:.0f}%" if part >= 1 else "< 1%", ha="left", va="center", fontsize=10,
                    color=INK)  # fmt: skip
        ax.set_title(what, color=SERIES[i], fontsize=11, loc="left")
        ax.set_yticks(range(len(classes)), [""] * len(classes) if i else classes)
        ax.set_ylim(len(classes) - 0.5, -0.5)
        ax.set_xlim(0, 128)
        ax.set_xticks([])
        ax.tick_params(axis="y", length=0)
        ax.spines[["bottom"]].set_visible(False)
        listed = ", ".join(f"{kind} {part:.1f}%" for kind, part in zip(classes, parts, strict=True))
        said.append(f"{what}: {listed}")
    show(drawn, f"Shares of a training step by class of operations. {'; '.join(said)}.")


HELD = ("weights", "gradient", "Adam's m, v")


# What is sharded, and what travels between two GPUs, {height of the row: words}.
SHARDING = {
    "DDP (the cell below): each GPU holds everything": ((), {1.25: "all-reduce"}),
    "FSDP (ZeRO stage 3): each GPU holds a slice of everything": (
        HELD, {2.15: "all-gather, block by block", 1.25: "reduce-scatter"}),
}  # fmt: skip


def data_parallel() -> None:
    """Two GPUs, twice: what each holds under DDP and under FSDP, and what travels between them."""
    drawn, _ = figure(9.0, 4.4, rows=len(SHARDING))
    for ax, (title, (sharded, travels)) in zip(drawn.axes, SHARDING.items(), strict=True):
        stage(ax, (-2.3, 7.2), (-0.5, 4.0))
        ax.set_title(title, fontsize=11, loc="left")
        for row, name in enumerate(("batch", *HELD)):
            ax.text(-0.4, 3.05 - 0.9 * row, name, ha="right", va="center", fontsize=10, color=INK)
        for gpu in (0, 1):
            _gpu(ax, gpu, sharded)
        for y, words in travels.items():
            arrow(ax, (2.25, y), (4.45, y), colour=ORANGE, width=2, both=True)
            ax.text(3.35, y + 0.1, words, ha="center", va="bottom", fontsize=9, color=INK)
    show(drawn, "Two GPUs in data parallelism; each has its own part of the batch. With DDP each holds all weights, "
                "the whole gradient and all of Adam's averages; the gradients are averaged by an all-reduce. With "
                "FSDP each holds half of each; weights are gathered block by block when they are needed (all-gather); "
                "of the summed gradient each gets its slice (reduce-scatter).")  # fmt: skip


def _gpu(ax: Axes, gpu: int, sharded: Sequence[str]) -> None:
    """One of two GPUs, a column: its part of the batch, and below it what it holds, filled as far as it holds it."""
    x = 4.7 * gpu
    ax.add_patch(Rectangle((x - 0.2, -0.15), 2.4, 3.65, fill=False, edgecolor=GREY))
    ax.text(x + 1, 3.56, f"GPU {gpu}", ha="center", va="bottom", fontsize=10, color=INK)
    ax.add_patch(Rectangle((x, 2.75), 2, 0.6, facecolor=GREEN, edgecolor=INK, alpha=0.45))
    ax.text(x + 1, 3.05, f"part {gpu}", ha="center", va="center", fontsize=9.5, color=INK)
    for i, name in enumerate(HELD):
        y = 1.85 - 0.9 * i
        ax.add_patch(Rectangle((x, y), 2, 0.6, facecolor="white", edgecolor=GREY, linestyle=":"))
        start, width = (x + gpu, 1) if name in sharded else (x, 2)
        ax.add_patch(Rectangle((start, y), width, 0.6, facecolor=PALE_BLUE, edgecolor=BLUE))
        ax.text(start + width / 2, y + 0.3, ("1st half", "2nd half")[gpu] if name in sharded else "all of it",
                ha="center", va="center", fontsize=9.5, color=INK)  # fmt: skip
