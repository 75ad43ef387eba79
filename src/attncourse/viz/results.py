"""Tables of results as pictures: quality against cost, a leaderboard, differences with their uncertainty."""

from collections.abc import Mapping, Sequence

from attncourse.viz.style import BLUE, GREY, INK, ORANGE, PALE, figure, show

# From where a point's name is written: to the right of it, and where that is taken, elsewhere.
SIDES = {"right": (7, 0), "upper": (7, 7), "lower": (7, -8), "left": (-7, 0)}


def labelled_points(
    panels: Mapping[str, Mapping[str, tuple[float, float]]],
    x_name: str,
    y_name: str,
    ours: str = "Transformer",
    sides: Mapping[str, str] | None = None,
    alt: str = "",
) -> None:
    """A point for each model, {panel: {model: (x, y)}}; squares for those whose name begins with `ours`.

    `sides` says for single models where their name stands: "right" (unless said), "upper" or "lower" right, or "left".
    """
    drawn, _ = figure(4.3 * len(panels), 3.7, columns=len(panels))
    said = []
    for ax, (title, points) in zip(drawn.axes, panels.items(), strict=True):
        for name, (x, y) in points.items():
            own = name.startswith(ours)
            ax.plot(x, y, "s" if own else "o", color=ORANGE if own else BLUE, markersize=9 if own else 7, zorder=3)
            shift = SIDES[(sides or {}).get(name, "right")]
            ax.annotate(name, (x, y), shift, textcoords="offset points", ha="right" if shift[0] < 0 else "left",
                        va="center", fontsize=8.6, fontweight="bold" if own else "normal", color=INK)  # fmt: skip
        ax.set_xscale("log")
        xs, ys = zip(*points.values(), strict=True)
        ax.set_xlim(min(xs) / 2.2, max(xs) * 30)                          # room for the names
        ax.set_ylim(min(ys) - 0.12 * (max(ys) - min(ys)), max(ys) + 0.12 * (max(ys) - min(ys)))
        ax.set_xlabel(x_name)
        ax.set_ylabel(y_name)
        ax.grid(color=PALE, linewidth=0.8)
        ax.set_axisbelow(True)
        ax.set_title(title)
        listed = "; ".join(f"{name} {y:g} at {x:.2g}" for name, (x, y) in points.items())
        said.append(f"{title}: {listed}" if title else listed)
    show(drawn, alt or f"{y_name} against {x_name}. {'. '.join(said)}.")


def ranking(
    rows: Sequence[tuple[str, float]], x_name: str, low: float = 0.0, high: float | None = None, alt: str = ""
) -> None:
    """A point a row, in the order given, with its score, on an axis from `low` to `high`."""
    drawn, ax = figure(7.0, 0.9 + 0.32 * len(rows))
    high = 1.1 * max(score for _, score in rows) if high is None else high
    for y, (_, score) in enumerate(rows):
        ax.axhline(y, color=PALE, linewidth=1, zorder=1)
        ax.plot(score, y, "o", color=BLUE, markersize=7, zorder=3)
        ax.annotate(f"{score:g}", (score, y), (8, 0), textcoords="offset points", va="center", fontsize=9, color=INK)
    ax.set_xlim(low, high)
    ax.set_ylim(len(rows) - 0.5, -0.5)
    ax.set_yticks(range(len(rows)), [name for name, _ in rows])
    ax.tick_params(axis="y", length=0)
    ax.set_xlabel(x_name)
    listed = "; ".join(f"{name} {score:g}" for name, score in rows)
    show(drawn, alt or f"{x_name}. {listed}.")


def differences(
    panels: Mapping[str, Mapping[str, tuple[float, float]]],
    x_name: str = "loss, difference from the baseline (nats a token)",
    alt: str = "",
) -> None:
    """How much each variant differs from the baseline, {panel: {variant: (difference, half a bar)}}, less to the left.

    A filled point differs by more than its bar from zero, a hollow one does not. Where there is no bar, half is 0.
    Panels name the same variants or others; a variant that a panel lacks leaves its row empty.
    """
    names = list(dict.fromkeys(name for points in panels.values() for name in points))
    drawn, _ = figure(1.6 + 3.0 * len(panels), 0.9 + 0.29 * len(names), columns=len(panels))
    said = []
    for k, (ax, (title, points)) in enumerate(zip(drawn.axes, panels.items(), strict=True)):
        ax.axvline(0, color=GREY, linewidth=1.2)
        for name, (middle, half) in points.items():
            y = names.index(name)
            beyond = abs(middle) > half
            colour = GREY if not beyond else BLUE if middle < 0 else ORANGE
            marker = "o" if not beyond else "<" if middle < 0 else ">"
            ax.plot([middle - half, middle + half], [y, y], color=colour, linewidth=2, zorder=2)
            ax.plot(middle, y, marker, color=colour, markerfacecolor=colour if beyond else "white", markersize=7,
                    zorder=3)  # fmt: skip
        ax.set_ylim(len(names) - 0.4, -0.6)
        ax.set_yticks(range(len(names)), names if k == 0 else [""] * len(names))
        ax.tick_params(axis="y", length=0)
        ax.grid(color=PALE, linewidth=0.8)
        ax.set_axisbelow(True)
        ax.set_title(title)
        listed = "; ".join(f"{name} {middle:+.3f} ± {half:.3f}" for name, (middle, half) in points.items())
        said.append(f"{title}: {listed}".replace("-", "−") if title else listed)
    drawn.supxlabel(x_name, fontsize=10.5)
    show(drawn, alt or f"{x_name}. {'. '.join(said)}.")
