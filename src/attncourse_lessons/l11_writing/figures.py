"""How a search writes its translation, what sampling leaves to draw from, and results as points and intervals."""

from collections.abc import Mapping, Sequence

from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch

from attncourse.viz.style import (
    BLUE,
    GREEN,
    GREY,
    INK,
    ORANGE,
    PALE,
    WEIGHTS,
    figure,
    hold_still,
    line_style,
    show,
    stage,
)

PALE_BLUE = WEIGHTS(0.25)


def search_frame(
    tree: Mapping[tuple[str, ...], float],
    kept: set[tuple[str, ...]],
    finished: set[tuple[str, ...]],
    best: tuple[str, ...],
    title: str = "",
) -> tuple[Figure, str]:
    """A tree of hypotheses, {words: probability of all of them}: those that a search kept, and what it chose.

    Kept ones are filled, `finished` ones (put aside) have a green frame, the chosen way is orange and thick, what was
    dropped is pale and dotted. A frame for `explore`.
    """
    place = {words: i for i, words in enumerate(tree)}
    inner = {words[:-1] for words in tree}
    # Depth first, or the lines would cross.
    leaves = sorted(set(tree) - inner, key=lambda words: [place[words[: n + 1]] for n in range(len(words))])
    ys: dict[tuple[str, ...], float] = {words: -i for i, words in enumerate(leaves)}
    for words in sorted(tree, key=len, reverse=True):
        below = [ys[other] for other in tree if other[:-1] == words]
        ys.setdefault(words, sum(below) / len(below) if below else 0)
    drawn, ax = figure(6.5, 0.9 + 0.4 * len(leaves))
    stage(ax, (0.35, max(map(len, tree)) + 0.75), (-len(leaves) + 0.3, 1.3))
    hold_still(drawn, left=0.01, right=0.99, top=0.99, bottom=0.01)
    ax.text(0.4, 1.0, title, fontsize=10.5, color=INK, va="center")
    for words, p in tree.items():
        x, y, on_way = len(words), ys[words], best[: len(words)] == words
        seen, aside = words in kept, words in finished
        colour = ORANGE if on_way else GREEN if aside else BLUE if seen else GREY
        if len(words) > 1:
            ax.plot([x - 1 + 0.36, x - 0.36], [ys[words[:-1]], y], color=colour, linewidth=3 if on_way else 1.2,
                    linestyle="-" if seen or on_way else ":")  # fmt: skip
        ax.add_patch(FancyBboxPatch((x - 0.36, y - 0.36), 0.72, 0.72, boxstyle="round,pad=0,rounding_size=0.1",
                                    facecolor=PALE_BLUE if seen else "white", edgecolor=colour,
                                    linewidth=2.4 if on_way or aside else 1.2,
                                    linestyle="-" if seen else ":"))  # fmt: skip
        ax.text(x, y + 0.12, words[-1], ha="center", va="center", fontsize=9.5, color=INK if seen else GREY)
        ax.text(x, y - 0.19, f"{p:.3f}", ha="center", va="center", fontsize=8, color=INK if seen else GREY)
    names = ", ".join(f"{' '.join(words)} ({tree[words]:.3f})" for words in tree if words in kept)
    ended = ", ".join(" ".join(words) for words in tree if words in finished)
    return drawn, (
        f"{title}. Kept on the way: {names}. Put aside because finished: {ended or 'none'}. "
        f"Chosen: {' '.join(best)}, probability {tree[best]:.3f}."
    )


def kept_tokens(
    panels: Mapping[str, Mapping[str, tuple[Sequence[float], Sequence[bool]]]], tokens: Mapping[str, Sequence[str]]
) -> None:
    """What several ways of cutting leave of next-token distributions: {step: {way: (probabilities, kept?)}}.

    A row of panels for each step, a column for each way; filled bars may be drawn, hatched ones with a cross
    may not. The bars are those of `tokens[step]`, the likeliest first.
    """
    ways = list(next(iter(panels.values())))
    drawn, _ = figure(2.9 * len(ways), 2.3 * len(panels), rows=len(panels), columns=len(ways))
    axes = iter(drawn.axes)
    said = []
    for step, by_way in panels.items():
        for way, (p, kept) in by_way.items():
            ax = next(axes)
            xs = range(len(p))
            for x, height, may in zip(xs, p, kept, strict=True):
                ax.bar(x, height, 0.8, color=BLUE if may else "white", edgecolor=BLUE if may else GREY,
                       hatch="" if may else "////", linewidth=0.8)  # fmt: skip
                if not may:
                    ax.text(x, height + 0.02, "×", ha="center", va="bottom", fontsize=10, color=INK)
            ax.set_xticks(xs, tokens[step], rotation=60, ha="right", rotation_mode="anchor")
            ax.tick_params(labelsize=8.5)
            ax.set_ylim(0, 1.05)
            ax.set_title(f"{step}: {way}", fontsize=9.5)
            if way == ways[0]:
                ax.set_ylabel("probability", fontsize=9.5)
            open_ = ", ".join(
                f"{token} {height:.2f}" for token, height, may in zip(tokens[step], p, kept, strict=True) if may
            )
            said.append(f"{step}, {way}: {open_}")
    show(drawn, f"What may be drawn. {'. '.join(said)}.")


def paired_points(panels: Mapping[str, Mapping[str, Sequence[float]]], y_name: str, low: float = 0.0) -> None:
    """Shares from 0 to 1, {panel: {condition: one value a seed}}: marks, and a line through those of one seed."""
    drawn, _ = figure(1.2 + 3.2 * len(panels), 3.3, columns=len(panels))
    said = []
    for ax, (title, groups) in zip(drawn.axes, panels.items(), strict=True):
        n_seeds = len(next(iter(groups.values())))
        for seed in range(n_seeds):
            style = line_style(seed) | {"linewidth": 1.0}
            ax.plot(range(len(groups)), [values[seed] for values in groups.values()], label=f"seed {seed}", **style)
        ax.set_xticks(range(len(groups)), [name.replace(" ", "\n", 1) for name in groups], fontsize=9)
        ax.set_xlim(-0.3, len(groups) - 0.7)
        ax.set_ylim(low, 1.04)
        ax.grid(axis="y", color=PALE, linewidth=0.8)
        ax.set_axisbelow(True)
        if title:
            ax.set_title(title)
        listed = "; ".join(
            f"{name}: " + ", ".join(f"{value:.3f}" for value in values) for name, values in groups.items()
        )
        said.append(f"{title}: {listed}" if title else listed)
    drawn.axes[0].set_ylabel(y_name)
    drawn.axes[-1].legend(frameon=False, loc="center left", bbox_to_anchor=(1.01, 0.5))
    show(drawn, f"{y_name}, a mark for each seed. {'. '.join(said)}.")


def intervals(panels: Mapping[str, Mapping[str, tuple[float, float, float]]]) -> None:
    """Estimates with their intervals, {panel: {name: (low, middle, high)}}, lying; differences have a line at zero."""
    most = max(map(len, panels.values()))
    drawn, _ = figure(4.9 * len(panels), 0.9 + 0.42 * most, columns=len(panels))
    said = []
    for ax, (title, rows) in zip(drawn.axes, panels.items(), strict=True):
        for y, (low, middle, high) in enumerate(rows.values()):
            ax.plot([low, high], [y, y], color=BLUE, linewidth=2.4)
            ax.plot(middle, y, "o", color=BLUE, markersize=7)
            ax.text(middle, y - 0.22, f"{middle:.1f}", ha="center", va="bottom", fontsize=8.5, color=INK)
        if title.startswith("difference"):
            ax.axvline(0, color=GREY, linewidth=1.2)
        ax.set_yticks(range(len(rows)), list(rows), fontsize=9)
        ax.set_ylim(len(rows) - 0.5, -0.7)
        ax.tick_params(axis="y", length=0)
        ax.grid(axis="x", color=PALE, linewidth=0.8)
        ax.set_axisbelow(True)
        ax.set_xlabel(title)
        listed = "; ".join(
            f"{name} {middle:.1f} (from {low:.1f} to {high:.1f})" for name, (low, middle, high) in rows.items()
        )
        said.append(f"{title}: {listed}")
    show(drawn, f"With intervals that hold 95 % of the resamples. {'. '.join(said)}.")
