"""How a search writes its translation, what sampling leaves to draw from, and results as points and intervals."""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch, Rectangle
from matplotlib.ticker import MaxNLocator, NullLocator
from torch import Tensor

from attncourse.viz.figures import as_weights, cells
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

PALE_BLUE, PALE_ORANGE = WEIGHTS(0.25), "#f8dfcc"
Words = tuple[str, ...]


def search(
    tree: Mapping[Words, Mapping[str, float]], p_of: Mapping[Words, float], width: int
) -> tuple[Words, list[tuple[list[Words], list[Words]]]]:
    """Beam search in a tree of words: the likeliest sentence found, and of each round (ended and put aside, open).

    Nothing fills the places of those that end in a round, so width 1 is greedy search.
    """
    open_: list[Words] = [()]
    rounds = []
    while open_:
        longer = sorted(((*words, word) for words in open_ for word in tree[words]), key=lambda w: -p_of[w])
        ended = [words for words in longer[:width] if words[-1].endswith(".")]
        open_ = [words for words in longer[:width] if not words[-1].endswith(".")]
        rounds.append((ended, open_))
    return max((words for ended, _ in rounds for words in ended), key=lambda w: p_of[w]), rounds


def search_frame(
    tree: Mapping[tuple[str, ...], float],
    kept: set[tuple[str, ...]],
    finished: set[tuple[str, ...]],
    best: tuple[str, ...],
    title: str = "",
) -> tuple[Figure, str]:
    """A tree of hypotheses, {words: probability of all of them}: those that a search kept, and what it chose.

    Kept ones are filled, `finished` ones (put aside) have a second, green frame, the chosen way is orange and thick,
    what was dropped is white and dotted. Of a kept one stands by what its probability was multiplied. A column is a
    round. A frame for `explore`.
    """
    place = {words: i for i, words in enumerate(tree)}
    inner = {words[:-1] for words in tree}
    # Depth first, or the lines would cross.
    leaves = sorted(set(tree) - inner, key=lambda words: [place[words[: n + 1]] for n in range(len(words))])
    ys: dict[tuple[str, ...], float] = {words: -i for i, words in enumerate(leaves)}
    for words in sorted(tree, key=len, reverse=True):
        below = [ys[other] for other in tree if other[:-1] == words]
        ys.setdefault(words, sum(below) / len(below) if below else 0)
    drawn, ax = figure(6.5, 1.0 + 0.4 * len(leaves))
    stage(ax, (0.35, max(map(len, tree)) + 0.75), (-len(leaves) + 0.3, 1.5))
    hold_still(drawn, left=0.01, right=0.99, top=0.99, bottom=0.01)
    ax.text(0.4, 1.2, title, fontsize=10.5, color=INK, va="center")
    for words, p in tree.items():
        x, y, on_way = len(words), ys[words], best[: len(words)] == words
        seen, aside = words in kept, words in finished
        colour = ORANGE if on_way else BLUE if seen else GREY
        if len(words) > 1:
            ax.plot([x - 1 + 0.36, x - 0.36], [ys[words[:-1]], y], color=colour, linewidth=3 if on_way else 1.2,
                    linestyle="-" if seen or on_way else ":")  # fmt: skip
        ax.add_patch(FancyBboxPatch((x - 0.36, y - 0.36), 0.72, 0.72, boxstyle="round,pad=0,rounding_size=0.1",
                                    facecolor=PALE_BLUE if seen else "white", edgecolor=colour,
                                    linewidth=2.4 if on_way else 1.2, linestyle="-" if seen else ":"))  # fmt: skip
        if aside:
            ax.add_patch(FancyBboxPatch((x - 0.4, y - 0.44), 0.8, 0.88, boxstyle="round,pad=0,rounding_size=0.12",
                                        facecolor="none", edgecolor=GREEN, linewidth=2))  # fmt: skip
        ax.text(x, y + 0.12, words[-1], ha="center", va="center", fontsize=9.5, color=INK)
        by = f"× {p / tree[words[:-1]]:.2f} = " if seen and len(words) > 1 else ""
        ax.text(x, y - 0.19, f"{by}{p:.3f}", ha="center", va="center", fontsize=8.5, color=INK)
    for x in range(1, max(map(len, tree)) + 1):
        ax.text(x, 0.65, f"round {x}", ha="center", va="center", fontsize=9.5, color=INK)
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

    A row of panels for each step, with its scale, a column for each way; filled bars may be drawn, hatched ones with a
    cross may not. The bars lie beside the names `tokens[step]`, the likeliest on top; one that ends in ✓ is orange.
    """
    ways = list(next(iter(panels.values())))
    inches = [0.21 * len(names) + 0.75 for names in tokens.values()]
    drawn, _ = figure(3.0 * len(ways), sum(inches), rows=len(panels), columns=len(ways))
    drawn.axes[0].get_gridspec().set_height_ratios(inches)
    axes = iter(drawn.axes)
    said = []
    for step, by_way in panels.items():
        top = max(height for p, _ in by_way.values() for height in p)
        for way, (p, kept) in by_way.items():
            ax = next(axes)
            ys = range(len(p))
            for y, token, share, may in zip(ys, tokens[step], p, kept, strict=True):
                colour = ORANGE if token.endswith("✓") else BLUE if may else GREY
                ax.barh(y, share, 0.8, color=colour if may else "white", edgecolor=colour,
                        hatch="" if may else "////", linewidth=0.8)  # fmt: skip
                if not may:
                    ax.text(share + 0.02 * top, y, "×", ha="left", va="center", fontsize=9, color=INK)
            ax.set_yticks(ys, tokens[step])
            ax.tick_params(labelsize=9)
            ax.tick_params(axis="y", length=0)
            ax.set_ylim(len(p) - 0.4, -0.6)
            ax.set_xlim(0, 1.1 * top)
            ax.set_title(f"{step}: {way}", fontsize=10)
            ax.set_xlabel("probability", fontsize=9.5)
            open_ = ", ".join(
                f"{token} {share:.2f}" for token, share, may in zip(tokens[step], p, kept, strict=True) if may
            )
            said.append(f"{step}, {way}: {open_}")
    show(drawn, f"What may be drawn. {'. '.join(said)}.")


def seed_bars(
    panels: Mapping[str, Mapping[str, Sequence[float]]],
    tops: Sequence[float],
    words: str = "{:.0f}",
    inches: float = 0.7,
) -> None:
    """A bar for each run, {name of the y axis: {condition: one value a seed}}, with its number above it.

    `tops` are the values that the axes reach to, `words` is how a number is written, and `inches` how wide the bars of
    one condition are.
    """
    widths = [max(1.4, len(groups)) for groups in panels.values()]
    drawn, _ = figure(inches * sum(widths) + 0.7 * len(panels), 3.4, columns=len(panels))
    drawn.axes[0].get_gridspec().set_width_ratios(widths)
    said = []
    for ax, (y_name, groups), top in zip(drawn.axes, panels.items(), tops, strict=True):
        for seed in range(len(next(iter(groups.values())))):
            heights = [values[seed] for values in groups.values()]
            xs = [x + 0.28 * (seed - 1) for x in range(len(groups))]
            ax.bar(xs, heights, 0.25, label=f"seed {seed}", color=SERIES[seed], edgecolor="white", linewidth=0.6,
                   hatch=HATCHES[seed])  # fmt: skip
            for x, height in zip(xs, heights, strict=True):
                ax.text(x, height + 0.01 * top, words.format(height), ha="center", va="bottom", fontsize=8, color=INK)
        ax.set_xticks(range(len(groups)), [name.replace(" ", "\n", 1) for name in groups], fontsize=9)
        ax.tick_params(axis="x", length=0)
        spare = 0.6 if len(groups) > 1 else 0.7
        ax.set_xlim(-spare, len(groups) - 1 + spare)
        ax.set_ylim(0, 1.04 * top)
        ax.set_ylabel(y_name)
        ax.grid(axis="y", color=PALE, linewidth=0.8)
        ax.set_axisbelow(True)
        listed = "; ".join(
            f"{name}: " + ", ".join(words.format(value) for value in values) for name, values in groups.items()
        )
        said.append(f"{y_name}: {listed}")
    handles, names = drawn.axes[0].get_legend_handles_labels()
    drawn.legend(handles, names, frameon=False, loc="outside upper center", ncols=len(names), fontsize=9)
    show(drawn, f"A bar for each seed. {'. '.join(said)}.")


def _lying(ax: Axes, rows: Mapping[str, tuple[float, float, float]]) -> str:
    """Rows of (low, middle, high), and what they say."""
    for y, (low, middle, high) in enumerate(rows.values()):
        ax.plot([low, high], [y, y], color=BLUE, linewidth=2.4, solid_capstyle="butt")
        ax.plot(middle, y, "o", color=BLUE, markersize=7)
        ax.text(middle, y - 0.22, f"{middle:.1f} ({low:.1f} to {high:.1f})", ha="center", va="bottom", fontsize=8.5,
                color=INK)  # fmt: skip
    ax.axvline(0, color=GREY, linewidth=1.2)
    ax.set_yticks(range(len(rows)), list(rows), fontsize=9)
    ax.set_ylim(len(rows) - 0.5, -0.7)
    ax.xaxis.set_major_locator(MaxNLocator(7, steps=[1, 2, 5, 10]))
    ax.tick_params(axis="y", length=0)
    ax.grid(axis="x", color=PALE, linewidth=0.8)
    ax.set_axisbelow(True)
    return "; ".join(
        f"{name} {middle:.1f} (from {low:.1f} to {high:.1f})" for name, (low, middle, high) in rows.items()
    )


def paired(scores: Mapping[str, Sequence[float]], rows: Mapping[str, tuple[float, float, float]]) -> None:
    """Two systems' scores on the same resamples as dots beside a diagonal, and (low, middle, high) of differences."""
    (x_name, xs), (y_name, ys) = scores.items()
    drawn, _ = figure(9.6, 3.9, columns=2)
    ax, right = drawn.axes
    # Just as far as the dots reach, and the diagonal in one corner or across.
    left_, right_ = min(xs) - 0.4, max(xs) + 0.4
    low, high = min(*ys, max(xs)) - 1.2, max(*ys, min(xs)) + 0.4
    ends = [max(left_, low), min(right_, high)]
    ax.plot(ends, ends, color=GREY, linewidth=1.2)
    ax.text(ends[0], ends[0] + 0.3, "equal scores", ha="right", va="bottom", fontsize=9, color=INK)
    ax.scatter(xs, ys, s=9, facecolor="none", edgecolor=BLUE, linewidth=0.5)
    ax.set_xlim(left_, right_)
    ax.set_ylim(low, high)
    ax.set_aspect("equal")
    ax.set_xlabel(f"BLEU, {x_name}")
    ax.set_ylabel(f"BLEU, {y_name}")
    said = _lying(right, rows)
    right.set_xlabel("difference in BLEU, paired")
    above = sum(y > x for x, y in zip(xs, ys, strict=True))
    ahead = f"On {above} of {len(xs)} resamples {y_name} is above {x_name}"
    show(drawn, f"{ahead}. Paired differences, with intervals that hold 95 % of the resamples: {said}.")


def beam_widths(
    at: Sequence[int],
    runs: Mapping[str, tuple[Sequence[float], Sequence[float]]],
    width: int,
    penalised: Mapping[str, tuple[float, float, float]],
) -> None:
    """(BLEU, length in % of the reference's) by beam width, a line for each run; and of each run (low, middle, high) of
    one width with a length penalty, side by side.
    """
    drawn, _ = figure(9.2, 3.4, columns=2)
    left, right = drawn.axes
    for (name, sides), dash, marker in zip(runs.items(), ("-", "--", ":"), "o^s", strict=False):
        for ax, heights in zip((left, right), sides, strict=True):
            ax.plot(at, heights, color=BLUE, linestyle=dash, marker=marker, markerfacecolor="white",
                    markeredgewidth=1.4, linewidth=1.4, label=name)  # fmt: skip
    for i, ((low, middle, high), marker) in enumerate(zip(penalised.values(), "o^s", strict=False)):
        x = width * 1.15 ** (i - (len(penalised) - 1) / 2)                             # or they would hide each other
        left.plot([x, x], [low, high], color=ORANGE, linewidth=2, solid_capstyle="butt")
        left.plot(x, middle, marker, color=ORANGE, markersize=6)
    top = max(high for _, _, high in penalised.values())
    left.text(1.35 * width, top, f"width {width}, length penalty", ha="left", va="center", fontsize=9, color=INK)
    left.set_ylim(0, top + 3)
    left.set_ylabel("BLEU")
    left.legend(frameon=False, loc="lower left", handlelength=3)
    right.axhline(100, color=GREY, linewidth=1.2)
    right.text(at[-1], 103, "the reference's length", ha="right", va="bottom", fontsize=9, color=INK)
    right.set_ylim(0, 1.05 * max(max(words) for _, words in runs.values()))
    right.set_ylabel("words written, in % of the reference")
    for ax in (left, right):
        ax.set_xscale("log")
        ax.set_xticks(at, [str(x) for x in at])
        ax.xaxis.set_minor_locator(NullLocator())
        ax.set_xlabel("beam width, no length penalty")
        ax.grid(axis="y", color=PALE, linewidth=0.8)
        ax.set_axisbelow(True)
    listed = ". ".join(
        f"{name}: " + "; ".join(f"{x}: {b:.1f}, {w:.0f} %" for x, b, w in zip(at, bleu, words, strict=True))
        for name, (bleu, words) in runs.items()
    )
    intervals = "; ".join(
        f"{name}: BLEU {middle:.1f}, from {low:.1f} to {high:.1f}" for name, (low, middle, high) in penalised.items()
    )
    show(drawn, f"BLEU and length by beam width. {listed}. Width {width} with a length penalty: {intervals}.")


def places(
    lines: Mapping[str, Sequence[float]], gaps: Sequence[tuple[float, float, float]], x_name: str, y_name: str
) -> None:
    """Two curves by place, from 1, and to the right their paired gap, (low, middle, high), beside a line at 0."""
    drawn, _ = figure(9.2, 3.3, columns=2)
    left, right = drawn.axes
    for i, (name, heights) in enumerate(lines.items()):
        left.plot(range(1, len(heights) + 1), heights, label=name, clip_on=False, **line_style(i))
    left.set_ylabel(y_name)
    left.set_ylim(bottom=0)
    left.legend(frameon=False, loc="upper left", handlelength=2.4)
    right.axhline(0, color=GREY, linewidth=1.2)
    for place, (low, middle, high) in enumerate(gaps, start=1):
        right.plot([place, place], [low, high], color=BLUE, linewidth=2.4, solid_capstyle="butt")
        right.plot(place, middle, "o", color=BLUE, markersize=7)
    right.set_ylabel(f"{' − '.join(list(lines)[::-1])}, in points")
    for ax in (left, right):
        ax.set_xticks(range(1, len(gaps) + 1))
        ax.set_xlabel(x_name)
        ax.grid(axis="y", color=PALE, linewidth=0.8)
        ax.set_axisbelow(True)
    curves = "; ".join(f"{name}: {', '.join(f'{height:.3g}' for height in heights)}" for name, heights in lines.items())
    listed = ", ".join(f"{middle:.3g} ({low:.3g} to {high:.3g})" for low, middle, high in gaps)
    show(drawn, f"{y_name} against {x_name}. {curves}. Gap with its interval: {listed}.")


def on_the_way(panels: Mapping[str, tuple[Mapping[int, int], Sequence[int]]], top: int, y_name: str) -> None:
    """What a model has right after a step of its training, {name: ({step: right}, steps that met such a list)}.

    A panel for each run; the steps are orange lines, `top` is what could be right.
    """
    drawn, _ = figure(3.1 * len(panels), 3.0, columns=len(panels))
    said = []
    for ax, (name, (right, met)) in zip(drawn.axes, panels.items(), strict=True):
        for step in met:
            ax.axvline(step, color=ORANGE, linewidth=1.6, linestyle="--")
        ax.plot(list(right), list(right.values()), color=BLUE, linewidth=1.6)
        ax.set_title(name, fontsize=10)
        ax.set_xlabel("step")
        ax.set_ylim(0, top)
        ax.set_xlim(0, max(right))
        ax.grid(axis="y", color=PALE, linewidth=0.8)
        ax.set_axisbelow(True)
        most = max(right, key=lambda step: right[step])
        steps = ", ".join(map(str, met))
        said.append(f"{name}: met in steps {steps}; most right, {right[most]}, after step {most}; at the end "
                    f"{right[max(right)]}")  # fmt: skip
    drawn.axes[0].set_ylabel(y_name)
    show(drawn, f"{y_name}, by the step of the training. {'. '.join(said)}.")


def two_prefixes(rows: Mapping[str, Sequence[str]], at: int) -> None:
    """Two runs that read the same list but for the number `at`; what follows it, and <eos>, is hatched."""
    columns = [*zip(*rows.values(), strict=True), ("<eos>",) * len(rows)]
    widths = [0.085 * max(map(len, column)) + 0.3 for column in columns]
    drawn, ax = figure(1.3 + sum(widths), 1.7)
    stage(ax, (-1.3, sum(widths)), (-0.45 - 0.6 * len(rows), 0.35))
    hold_still(drawn, left=0.01, right=0.99, top=0.99, bottom=0.01)
    for y, name in enumerate(rows):
        ax.text(-0.12, -0.6 * y - 0.2, name, ha="right", va="center", fontsize=9.5, color=INK)
    x = 0.0
    for k, (column, wide) in enumerate(zip(columns, widths, strict=True)):
        for y, words in enumerate(column):
            ax.add_patch(FancyBboxPatch((x + 0.05, -0.6 * y - 0.4), wide - 0.1, 0.4,
                                        boxstyle="round,pad=0,rounding_size=0.06",
                                        facecolor=PALE_ORANGE if k == at else "white",
                                        edgecolor=ORANGE if k == at else BLUE if k > at else GREY,
                                        linewidth=2 if k == at else 1.2, hatch="///" if k > at else ""))  # fmt: skip
            ax.text(x + wide / 2, -0.6 * y - 0.2, words, ha="center", va="center", fontsize=9.5, color=INK,
                    bbox={"facecolor": "white", "edgecolor": "none", "pad": 1} if k > at else None)  # fmt: skip
        x += wide
    ax.text(x - 0.05, -0.6 * len(rows) - 0.05, "the loss is measured here", ha="right", va="top", fontsize=9.5,
            color=BLUE)  # fmt: skip
    said = "; ".join(f"{name}: {', '.join(words)}" for name, words in rows.items())
    show(drawn, f"Two runs that differ in number {at + 1} alone; the loss is that of what follows. {said}.")


def ngrams(columns: Sequence[tuple[str, str]], matches: Mapping[int, Sequence[bool]]) -> None:
    """The n-grams of a translation as bars over its words, {n: is each in the reference?}: filled, or white with a ×.

    A column holds what corresponds in (translation, reference), which may be empty on either side; the columns that
    differ are shaded, and the bars that cross them are missing. Bars that would overlap lie in rows of their own.
    """
    at = [x for x, (ours, _) in enumerate(columns) if ours]
    rows = sum(matches)
    drawn, ax = figure(1.8 + 0.56 * len(columns), 0.9 + 0.23 * rows + 0.1 * len(matches))
    base = {n: sum(range(n)) + 0.5 * n for n in matches}                              # where the rows of n begin
    top = base[max(matches)] + max(matches)
    stage(ax, (-1.8, len(columns) + 1.2), (-2.9, top + 0.3))
    hold_still(drawn, left=0.01, right=0.99, top=0.99, bottom=0.01)
    for x, (ours, theirs) in enumerate(columns):
        if ours != theirs:
            ax.add_patch(Rectangle((x + 0.04, -2.8), 0.92, top + 3.0, facecolor=PALE_ORANGE, linewidth=0, zorder=0))
        ax.text(x + 0.5, -0.35, ours, ha="center", va="center", fontsize=9.5, color=INK)
        ax.text(x + 0.5, -1.9, theirs.replace(" ", "\n"), ha="center", va="center", fontsize=9.5, color=INK)
    said = []
    for n, found in matches.items():
        middle = base[n] + n / 2
        ax.text(-0.15, middle, f"{n}-grams", ha="right", va="center", fontsize=9.5, color=INK)
        for i, there in enumerate(found):
            left, right, low = at[i] + 0.06, at[i + n - 1] + 0.94, base[n] + i % n
            ax.add_patch(Rectangle((left, low + 0.12), right - left, 0.76, facecolor=PALE_BLUE if there else "white",
                                   edgecolor=BLUE if there else ORANGE, linewidth=1.2))  # fmt: skip
            if not there:
                ax.text((left + right) / 2, low + 0.5, "×", ha="center", va="center", fontsize=9, color=ORANGE)
        ax.text(len(columns) + 0.15, middle, f"{sum(found)} of {len(found)}", ha="left", va="center", fontsize=9.5,
                color=INK)  # fmt: skip
        said.append(f"{n}-grams: {sum(found)} of {len(found)}")
    for y, name in ((-0.35, "translation"), (-1.9, "reference")):
        ax.text(-0.15, y, name, ha="right", va="center", fontsize=9.5, color=INK)
    ours, theirs = (" ".join(side[k] for side in columns if side[k]) for k in (0, 1))
    show(drawn, f"Which n-grams of “{ours}” are in “{theirs}”. {'; '.join(said)}.")


def alignments(
    models: Mapping[str, tuple[Tensor, Sequence[str], Sequence[str]]],
    spans: Mapping[str, tuple[int, int]] | None = None,
    marked: int | None = None,
) -> None:
    """Weights of several models side by side, {name: (weights (n_target, n_source), source, target)}.

    The largest weight of each row has a frame and its number. `spans`, {name: (first, last)}, are underlined and named
    below the columns. The row `marked` is the first wrong token: its name is bold and orange, those below it are grey.
    """
    n_rows = max(len(target) for _, _, target in models.values())
    n_columns = sum(len(source) for _, source, _ in models.values())
    drawn, _ = figure(1.1 * len(models) + 0.42 * n_columns, 1.3 + 0.26 * n_rows, columns=len(models))
    said = []
    for ax, (name, (weights, source, target)) in zip(drawn.axes, models.items(), strict=True):
        matrix = as_weights(weights, target, source)
        cells(ax, matrix, target, source, numbers=False)
        most = []
        for i, row in enumerate(matrix):
            j = int(np.argmax(row))
            ax.add_patch(Rectangle((j, i), 1, 1, fill=False, edgecolor=ORANGE, linewidth=1.8)).set_clip_on(False)
            ax.text(j + 0.5, i + 0.5, f"{row[j]:.2f}", ha="center", va="center", fontsize=8.5,
                    color="white" if row[j] > 0.7 else INK)  # fmt: skip
            most.append(f"{target[i]} {source[j]} {row[j]:.2f}")
        ax.xaxis.tick_top()
        ax.xaxis.set_label_position("top")
        ax.set_xticks(np.arange(len(source)) + 0.5, source, rotation=40, ha="left", rotation_mode="anchor", fontsize=9)
        ax.set_xlabel("source (keys)")
        if marked is not None:
            written = [f"first wrong: {token}" if i == marked else token for i, token in enumerate(target)]
            ax.set_yticks(np.arange(len(target)) + 0.5, written)
            names = ax.get_yticklabels()
            names[marked].set(color=ORANGE, fontweight="bold")
            for later in names[marked + 1 :]:
                later.set_color(GREY)
            said.append(f"first wrong: {target[marked]}, row {marked + 1}")
        ax.set_title(name, pad=8)
        for named, (first, last) in (spans or {}).items():
            low = len(target) + 0.25
            ax.plot([first + 0.1, last + 0.9], [low, low], color=BLUE, linewidth=2.4, clip_on=False)
            ax.text((first + last + 1) / 2, low + 0.2, named, ha="center", va="top", fontsize=9, color=INK)
        said.append(f"{name}: {', '.join(most)}" if name else ", ".join(most))
    drawn.axes[0].set_ylabel("written (queries)")
    show(drawn, f"Where each written token attends most, and the weight. {'. '.join(said)}.")
