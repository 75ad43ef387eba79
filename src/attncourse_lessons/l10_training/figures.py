"""Training drawn: tokens, batches, rates, and where a GPU's time and memory go."""

from collections.abc import Mapping, Sequence
from math import log10
from statistics import median

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch, Patch, Rectangle
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter, NullLocator
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


def run_curve(seconds: Sequence[float], scores: Mapping[str, Sequence[float]], predicted: float) -> None:
    """What a run had reached, {score: one for each look}, against its seconds, a panel each, and the predicted end."""
    drawn, _ = figure(7.6, 3.0, columns=len(scores))
    for ax, (name, values) in zip(drawn.axes, scores.items(), strict=True):
        ax.plot(seconds, values, "o-", color=BLUE, linewidth=1.8, markersize=5)
        for at, ha in ((0, "left"), (-1, "right")):
            ax.text(seconds[at], values[at] + 0.05 * max(values), f"{values[at]:.1f}", ha=ha, va="bottom", fontsize=10,
                    color=INK)  # fmt: skip
        ax.axvline(predicted, color=ORANGE, linewidth=1.6, linestyle="--")
        ax.text(predicted + 0.02 * seconds[-1], 0.1 * max(values), f"predicted end: {predicted:g} s", ha="left",
                va="bottom", rotation=90, fontsize=10, color=ORANGE)  # fmt: skip
        ax.set_xlim(0, 1.06 * seconds[-1])
        ax.set_ylim(0, 1.2 * max(values))
        _axes(ax, "seconds of training", name)
    looks = {name: [f"{value:.1f} at {at:.0f} s" for at, value in zip(seconds, values, strict=True)]
             for name, values in scores.items()}  # fmt: skip
    said = "; ".join(f"{name}: {', '.join(values)}" for name, values in looks.items())
    show(drawn, f"A run against its seconds. {said}. The end was predicted at {predicted:g} s.")


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
            ax.set_ylabel("sentences, a row each")
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
    """Calibration gaps in points, {panel: {way of training: one for each seed}}: a row a seed, its runs joined."""
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
            ax.plot(each, list(range(n)), **style, label=name)
            for y, x in enumerate(each):
                ax.text(x, y + 0.18, _minus(f"{x:.1f}"), ha="center", va="top", fontsize=9, color=INK,
                        bbox={"facecolor": "white", "edgecolor": "none", "pad": 1})  # fmt: skip
        ax.axvline(0, color=INK, linewidth=1.4)
        for x, ha, words in ((-0.4, "right", "← underconfident"), (0.4, "left", "overconfident →")):
            ax.text(x, -0.35, words, ha=ha, va="bottom", fontsize=9.5, color=INK)
        ax.set_title(panel, fontsize=11)
        ax.set_yticks(range(n), [f"seed {y}" for y in range(n)] if ax is drawn.axes[0] else [""] * n)
        ax.set_ylim(n - 0.3, -0.85)
        ax.set_xlim(*reach)
        ax.tick_params(axis="y", length=0)
        ax.grid(axis="x", color=PALE, linewidth=0.8)
        ax.set_axisbelow(True)
        ax.set_xlabel("confidence minus accuracy (points)")
        listed = "; ".join(f"{name}: " + ", ".join(f"{x:.1f}" for x in each) for name, each in ways.items())
        said.append(f"{panel}: {listed}")
    drawn.legend(*drawn.axes[0].get_legend_handles_labels(), frameon=False, loc="outside lower center", ncols=3)
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
        ax.text(half + 1, line[half], f"half, step {half + 1:,}  " if i == 0 else f"  half, step {half + 1:,}",
                ha="right" if i == 0 else "left", va="top" if i == 0 else "bottom", fontsize=9, color=INK)  # fmt: skip
        ax.text(len(line) * 1.01, max(line[-1], 0.03 * highest), name, color=style["color"], va="center", fontsize=10.5)
        said.append(f"{name} is highest at step {top + 1}, {line[top]:.2g}, down to half of it at step {half + 1}, "
                    f"and ends at {line[-1]:.2g}")  # fmt: skip
    ax.set_xlim(0, 1.32 * max(len(line) for line in lines.values()))
    ax.set_ylim(0, 1.15 * highest)
    ax.set_xticks(range(0, max(len(line) for line in lines.values()) + 1, 1000))
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
    stage(ax, (-1.1, 13.7), (-3.15, 2.35))
    n = {name: _minus(f"{value:.4g}") for name, value in now.items()}
    boxes = {
        f"gradient g\n{n['gradient']}": (0, 0.5, GREY),
        f"m: {n['m before']} → {n['m']}": (3.0, 1.4, BLUE),
        f"v: {n['v before']} → {n['v']}": (3.0, -0.4, ORANGE),
        f"m corrected\n{n['m_hat']}": (6.55, 1.4, BLUE),
        f"√(v corrected)\n{n['root']}": (6.55, -0.4, ORANGE),
        f"ratio\n{n['ratio']}": (9.2, 0.5, GREEN),
        f"θ\n{n['theta before']}": (0, -2.2, GREY),
        f"decay λθ\n{n['decay']}": (9.2, -2.2, GREY),
        f"new θ\n{n['theta']}": (12.0, 0.5, GREY),
    }
    for words, (x, y, colour) in boxes.items():
        box(ax, x, y, words, colour, width=2.5 if x == 3.0 else 2.2 if x == 6.55 else 2.0)
    new = f"({n['gradient']})" if now["gradient"] < 0 else n["gradient"]
    for start, end in (
        ((1.02, 0.8), (1.73, 1.3)), ((1.02, 0.2), (1.73, -0.3)),
        ((4.27, 1.4), (5.43, 1.4)), ((4.27, -0.4), (5.43, -0.4)),
        ((7.68, 1.4), (8.18, 0.8)), ((7.68, -0.4), (8.18, 0.2)),
        ((10.22, 0.5), (10.98, 0.5)), ((1.02, -2.2), (8.18, -2.2)), ((10.22, -2.0), (11.4, -0.02)),
    ):  # fmt: skip
        arrow(ax, start, end)
    for x, y, words in (
        (3.0, 2.08, f"average of g: {n['beta of m']} · {n['m before']} + {n['rest of m']} · {new}"),
        (3.0, -1.08, f"average of g²: {n['beta of v']} · {n['v before']} + {n['rest of v']} · {new}²"),
        (4.85, 1.5, f"÷ {n['given to m']}"), (4.85, -0.3, f"÷ {n['given to v']}"),
        (9.2, 1.18, "upper ÷ lower"), (4.6, -2.1, f"× λ = {decay:g}, not averaged, not divided"),
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
    "m, v": (11.4, 2.0, False),
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
    for name, (x, y, half) in STEP.items():
        box(ax, x, y, name, GREY if half is None else ORANGE if half else BLUE, width=1.6)
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
                "run: weights and m, v. Kept within one step: activations, from forward to backward, and the gradient, "
                f"from backward to AdamW. In 16 bits under autocast: {halves}; in 32 bits all else.")  # fmt: skip


def rate_sweep(losses: Mapping[float, Sequence[float]]) -> None:
    """Final losses, {learning rate: one for each seed}: every run a point, side by side, and the medians."""
    drawn, ax = figure(6.8, 3.5)
    rates = list(losses)
    for rate, values in losses.items():
        ax.scatter(_beside(rate, len(values)), values, s=34, facecolor="white", edgecolor=BLUE, linewidth=1.4, zorder=4,
                   label="a run")  # fmt: skip
    medians = [median(values) for values in losses.values()]
    ax.plot(rates, medians, "-", color=ORANGE, linewidth=1.8, zorder=3, label="median")
    for rate, middle, values in zip(rates, medians, losses.values(), strict=True):
        ax.text(rate, max(values) + 0.06, f"{middle:.2f}", ha="center", va="bottom", fontsize=9.5, color=INK)
    ax.set_xscale("log")
    ax.set_xlim(rates[0] / 1.5, rates[-1] * 1.5)
    ax.set_xticks(rates, [f"{rate:g}" for rate in rates])
    ax.xaxis.set_minor_locator(NullLocator())
    ax.margins(y=0.12)
    ax.legend(*_once(ax), frameon=False, loc="upper center", ncols=2)
    _axes(ax, "learning rate (logarithmic)", "held-out loss (nats per token)")
    best = rates[medians.index(min(medians))]
    listed = "; ".join(f"{rate:g}: {', '.join(f'{value:.2f}' for value in values)}" for rate, values in losses.items())
    show(drawn, f"Held-out loss against the learning rate, a point for each seed. {listed}. Lowest median at {best:g}.")


def _beside(x: float, n: int) -> list[float]:
    """Places around x for n points on a logarithmic axis: none hides another."""
    return [x * 1.07 ** (i - (n - 1) / 2) for i in range(n)]


def _once(ax: Axes) -> tuple[list, list[str]]:
    """Handles and labels for a legend, each label once."""
    named = dict(zip(*reversed(ax.get_legend_handles_labels()), strict=True))
    return list(named.values()), list(named)


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
        ax.text(free, 0.35, f" done after {free:g} µs", ha="left", va="center", fontsize=9.5, color=INK)
        ax.set_xlim(0, 1.25 * (launch + n * max(launch, *panels.values())))  # one scale for all panels
        ax.set_ylim(-0.1, 1.8)
        ax.set_yticks([0.35, 1.35], ["GPU runs kernels", "CPU launches"])
        ax.tick_params(axis="y", length=0)
        share = work / max(work, launch)                          # once they follow one another
        ax.set_title(f"{name}: in the long run the GPU is busy {share:.0%} of the time", fontsize=10.5, loc="left")
        said.append(f"{name}: the last of {n} is launched at {n * launch:g} µs and done at {free:g} µs; "
                    f"in the long run the GPU is busy {share:.0%} of the time")  # fmt: skip
    drawn.axes[-1].set_xlabel("time (µs)")
    show(drawn, f"When the CPU launches kernels and when the GPU runs them. {'. '.join(said)}.")


def throughput(speeds: Mapping[str, Mapping[int, Sequence[float]]]) -> None:
    """Tokens per second, {number format: {tokens in a batch: one for each measurement}}: all, and the medians."""
    drawn, ax = figure(6.8, 3.6)
    said, sizes = [], sorted({size for points in speeds.values() for size in points})
    for i, (name, points) in enumerate(speeds.items()):
        style = line_style(i) | {"markersize": 5.5, "markeredgewidth": 1.4, "markerfacecolor": "white"}
        medians = [median(values) for values in points.values()]
        ax.plot(list(points), medians, **style | {"marker": "", "linewidth": 1.6})
        xs = [x for size, values in points.items() for x in _beside(size, len(values))]
        ax.plot(xs, [value for values in points.values() for value in values], **style | {"linestyle": "none"})
        ax.text(1.25 * sizes[-1], medians[-1], name, color=style["color"], va="center", fontsize=10.5)
        listed = (f"{middle:,.0f} at {size:,}" for size, middle in zip(points, medians, strict=True))
        said.append(f"{name}: {', '.join(listed)}")
    ax.set_xscale("log")
    ax.set_yscale("log")
    ax.set_xlim(sizes[0] / 1.3, 2.6 * sizes[-1])
    ax.set_xticks(sizes, [f"{size:,}" for size in sizes])
    ax.xaxis.set_minor_locator(NullLocator())
    ax.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    ax.yaxis.set_major_formatter(FuncFormatter(lambda y, _: f"{y:,.10g}"))
    ax.yaxis.set_minor_formatter(NullFormatter())
    _axes(ax, "tokens in a batch (logarithmic)", "target tokens per second (logarithmic)")
    show(drawn, f"Target tokens per second against the tokens in a batch, medians. {'; '.join(said)}.")


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
                ax.add_patch(Rectangle((bit + 0.06, -row - 0.32), 0.88, 0.64, linestyle="-" if colour else ":",
                                       facecolor=colour or "white", edgecolor=colour or GREY))  # fmt: skip
            if n:
                ax.text(x + n / 2, -row, words, ha="center", va="center", fontsize=10, color=INK if n > 1 else "white",
                        bbox={"facecolor": "white", "edgecolor": "none", "pad": 1.5} if n > 1 else None)  # fmt: skip
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

    Each chip is a slope, memory-bound, and a flat roof, compute-bound; a piece of work is an upright line at its FLOPs
    per byte, with a point on every roof: the most that it can reach there. The names stand on steps of their own below
    the roofs, each at the foot of its line.
    """
    drawn, ax = figure(7.8, 5.0)
    intensities = {name: flops / moved for name, (flops, moved) in work.items()}
    corners = [peak / bandwidth for peak, bandwidth in chips.values()]
    low, high = min(intensities.values()) / 2, 10 * max(*intensities.values(), *corners)
    ax.axvspan(low, min(corners), color="#f0f6fa", linewidth=0, zorder=0)
    ax.axvspan(max(corners), high, color="#fcf2eb", linewidth=0, zorder=0)
    for i, (name, (peak, bandwidth)) in enumerate(chips.items()):
        style = line_style(i) | {"marker": ""}
        corner = peak / bandwidth
        ax.plot([low, corner, high], [low * bandwidth, peak, peak], **style)
        reached = [min(peak, intensity * bandwidth) for intensity in intensities.values()]
        ax.scatter(list(intensities.values()), reached, s=26, color=style["color"], zorder=5)
        ax.text(1.15 * high, peak, name, color=style["color"], va="center", fontsize=10.5)
    slowest = low * min(bandwidth for _, bandwidth in chips.values())
    floor, top = slowest / 1e3, 8 * max(peak for peak, _ in chips.values())
    ordered = sorted(intensities.items(), key=lambda item: item[1])
    for i, (name, intensity) in enumerate(ordered):
        foot = floor * 10 ** (0.25 + 0.5 * i)
        highest = max(min(peak, intensity * bandwidth) for peak, bandwidth in chips.values())
        ax.plot([intensity, intensity], [foot, highest], color=GREY, linewidth=1, linestyle=":", zorder=1)
        ax.text(1.08 * intensity, foot, f"{name}: {intensity:.2g}" if intensity < 100 else f"{name}: {intensity:.0f}",
                ha="left", va="center", fontsize=9.5, color=INK)  # fmt: skip
    sides = ((min(corners) / 1.3, "memory-bound", "right"), (1.1 * max(corners), "compute-bound", "left"))
    for x, words, side in sides:
        ax.text(x, top / 1.5, words, ha=side, va="top", fontsize=10.5, color=INK)
    ax.set_xscale("log")
    ax.set_yscale("log")
    ax.set_xlim(low, high)
    ax.set_ylim(floor, top)
    _axes(ax, "arithmetic intensity (FLOPs per byte moved)", "FLOP/s that can be reached")
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

    Bytes that were measured, {bar: bytes}, are diamonds on their bars.
    """
    drawn, ax = figure(7.6, 1.5 + 0.42 * len(parts))
    names = list(next(iter(parts.values())))
    left, key = [0.0] * len(parts), []
    for i, name in enumerate(names):
        widths = [held[name] / 1e9 for held in parts.values()]
        key.append(ax.barh(range(len(parts)), widths, 0.62, left=left, color=SERIES[i], hatch=HATCHES[i],
                           edgecolor="white", label=name))  # fmt: skip
        left = [start + width for start, width in zip(left, widths, strict=True)]
    end = 1.06 * max(*left, *(limit / 1e9 for limit in limits.values()))
    seen: set[str] = set()
    for y, (bar, held) in enumerate(parts.items()):                # a part too thin to be seen is said, once
        thin = [f"{name}: {held[name] / 1e9:.2f} GB" for name in names if held[name] / 1e9 < 0.01 * end]
        if thin and not seen.issuperset(thin):
            x = max(left[y], 0.015 * end + measured.get(bar, 0) / 1e9) + 0.01 * end
            colour = SERIES[next(i for i, name in enumerate(names) if thin[0].startswith(f"{name}: "))]
            ax.text(x, y, ", ".join(thin), ha="left", va="center", fontsize=9.5, color=colour)
        seen.update(thin)
    if measured:
        rows = [list(parts).index(bar) for bar in measured]
        sizes = [size / 1e9 for size in measured.values()]
        for size, y in zip(sizes, rows, strict=True):
            ax.text(size, y - 0.31, f"measured: {size:.1f} GB", ha="left", va="bottom", fontsize=9.5, color=INK)
        key.append(ax.scatter(sizes, rows, s=42, marker="D", color=INK, zorder=5, label="measured"))
    ax.text(1.13 * end, -0.62, "total", ha="right", va="bottom", fontsize=10, color=INK)
    for y, total in enumerate(left):                               # in a column of their own: no line runs through them
        ax.text(1.13 * end, y, f"{total:.1f} GB", ha="right", va="center", fontsize=10, color=INK)
    for name, limit in limits.items():
        ax.axvline(limit / 1e9, color=INK, linewidth=1.6, linestyle="--", zorder=4)
        ax.text(limit / 1e9, -0.62, f"{name}: {limit / 1e9:.0f} GB", ha="center", fontsize=10, color=INK, va="bottom")
    ax.set_yticks(range(len(parts)), list(parts))
    ax.set_ylim(len(parts) - 0.5, -0.6)
    ax.set_xlim(0, end)
    ax.tick_params(axis="y", length=0)
    ax.set_xlabel("memory (GB)")
    drawn.legend(handles=key, frameon=False, loc="outside lower center", ncols=len(key))
    said = "; ".join(f"{bar}: " + ", ".join(f"{name} {held[name] / 1e9:.2f} GB" for name in names)
                     + (f", measured {measured[bar] / 1e9:.1f} GB" if bar in measured else "")
                     for bar, held in parts.items())  # fmt: skip
    there = ", ".join(f"{name} has {limit / 1e9:.0f} GB" for name, limit in limits.items())
    show(drawn, f"Memory of a training step. {said}. {there}.")


def step_times(rows: Mapping[str, tuple[float, float | None]]) -> None:
    """Milliseconds of a step, {row: (all of it, while the GPU is busy, or None where that is not known)}, lying."""
    drawn, ax = figure(7.6, 1.2 + 0.33 * len(rows))
    busy = [0.0 if part is None else part for _, part in rows.values()]
    waits = [0.0 if part is None else all_of_it - part for all_of_it, part in rows.values()]
    unknown = [all_of_it if part is None else 0.0 for all_of_it, part in rows.values()]
    left = [0.0] * len(rows)
    for name, widths, colour, hatch in (
        ("GPU busy", busy, BLUE, ""), ("GPU waits", waits, ORANGE, "////"),
        ("busy time not measured", unknown, GREY, ""),
    ):  # fmt: skip
        ax.barh(range(len(rows)), widths, 0.66, left=left, color=colour, hatch=hatch, edgecolor="white", label=name)
        left = [start + width for start, width in zip(left, widths, strict=True)]
    for y, total in enumerate(left):
        ax.text(total + 0.012 * max(left), y, f"{total:.1f}" if total < 10 else f"{total:.0f}", ha="left", va="center",
                fontsize=10, color=INK)  # fmt: skip
    ax.set_yticks(range(len(rows)), list(rows))
    ax.set_ylim(len(rows) - 0.5, -0.5)
    ax.set_xlim(0, 1.08 * max(left))
    ax.tick_params(axis="y", length=0)
    ax.set_xlabel("milliseconds of a step")
    drawn.legend(frameon=False, loc="outside lower center", ncols=3)
    said = "; ".join(f"{row}: {all_of_it:.1f}" + ("" if part is None else f", GPU busy {part:.1f}")
                     for row, (all_of_it, part) in rows.items())  # fmt: skip
    show(drawn, f"Milliseconds of a training step. {said}.")


def class_shares(shares: Mapping[str, Mapping[str, float]]) -> None:
    """The share of each class of operations, of several amounts, {amount: {class: how much}}: a bar for each, lying."""
    drawn, ax = figure(7.6, 4.4)
    classes = list(next(iter(shares.values())))
    high = 0.8 / len(shares)
    said = []
    for i, (what, amounts) in enumerate(shares.items()):
        parts = [100 * amounts[kind] / sum(amounts.values()) for kind in classes]
        places = [row + (i - (len(shares) - 1) / 2) * high for row in range(len(classes))]
        ax.barh(places, parts, 0.92 * high, color=SERIES[i], hatch=HATCHES[i], edgecolor="white", label=what)
        for y, part in zip(places, parts, strict=True):
            words = f"{part:.0f}%" if part >= 1 else "< 1%"
            ax.text(part + 1, y, words, ha="left", va="center", fontsize=9, color=INK)
        listed = ", ".join(f"{kind} {part:.1f}%" for kind, part in zip(classes, parts, strict=True))
        said.append(f"{what}: {listed}")
    ax.set_yticks(range(len(classes)), classes)
    ax.set_ylim(len(classes) - 0.5, -0.5)
    ax.set_xlim(0, 109)
    ax.tick_params(axis="y", length=0)
    ax.set_xlabel("share of a step (%)")
    drawn.legend(frameon=False, loc="outside lower center", ncols=len(shares))
    show(drawn, f"Shares of a training step by class of operations. {'; '.join(said)}.")


HELD = ("weights", "gradient", "Adam's m, v")


# What is sharded, and what travels between two GPUs, {height of the row: words}.
SHARDING = {
    "DDP: each GPU holds everything": ((), {1.25: "all-reduce"}),
    "ZeRO stage 1 (the cell below): each GPU holds a slice of m and v": (
        HELD[2:], {2.15: "all-gather, after the step", 1.25: "all-reduce"}),
    "FSDP (ZeRO stage 3): each GPU holds a slice of everything": (
        HELD, {2.15: "all-gather, block by block", 1.25: "reduce-scatter"}),
}  # fmt: skip


def data_parallel() -> None:
    """Two GPUs, three times: what each holds under DDP, ZeRO stage 1 and FSDP, and what travels between them."""
    drawn, _ = figure(9.0, 6.6, rows=len(SHARDING))
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
                "the whole gradient and all of Adam's averages; the gradients are averaged by an all-reduce. With ZeRO "
                "stage 1 each holds half of Adam's averages, and after the step the new weights are gathered. With "
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
