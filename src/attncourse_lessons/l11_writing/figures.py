"""How a search writes its translation, what sampling leaves to draw from, and results as points and intervals."""

from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch, Rectangle
from matplotlib.ticker import MaxNLocator, NullLocator

from attncourse.viz.style import (
    BLUE,
    GREEN,
    GREY,
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
Interval = tuple[float, float, float]


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

    Kept ones are filled, `finished` ones have a second, green frame that says so, the chosen way is orange and thick,
    what was dropped is white and dotted. Of a kept one stands by what its probability was multiplied, and the first
    four that compete in a round have their rank. A column is a round. A frame for `explore`.
    """
    place = {words: i for i, words in enumerate(tree)}
    inner = {words[:-1] for words in tree}
    # Depth first, or the lines would cross.
    leaves = sorted(set(tree) - inner, key=lambda words: [place[words[: n + 1]] for n in range(len(words))])
    ys: dict[tuple[str, ...], float] = {words: -i for i, words in enumerate(leaves)}
    for words in sorted(tree, key=len, reverse=True):
        below = [ys[other] for other in tree if other[:-1] == words]
        ys.setdefault(words, sum(below) / len(below) if below else 0)
    drawn, ax = figure(6.9, 1.0 + 0.4 * len(leaves))
    stage(ax, (0.35, max(map(len, tree)) + 0.95), (-len(leaves) + 0.3, 1.5))
    hold_still(drawn, left=0.01, right=0.99, top=0.99, bottom=0.01)
    ax.text(0.4, 1.2, title, fontsize=10.5, color=INK, va="center")
    rank: dict[tuple[str, ...], str] = {}
    for n in range(1, max(map(len, tree)) + 1):
        competing = [words for words in tree if len(words) == n and (n == 1 or words[:-1] in kept)]
        competing.sort(key=lambda words: -tree[words])
        rank.update(zip(competing, ("1st", "2nd", "3rd", "4th"), strict=False))
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
            ax.text(x + 0.45, y, "put aside", ha="left", va="center", fontsize=9, color=GREEN)
        ax.text(x, y + 0.12, words[-1], ha="center", va="center", fontsize=9.5, color=INK)
        ax.text(x - 0.33, y + 0.12, rank.get(words, ""), ha="left", va="center", fontsize=9, color=GREY)
        by = f"× {p / tree[words[:-1]]:.2f} = " if seen and len(words) > 1 else ""
        ax.text(x, y - 0.19, f"{by}{p:.3f}", ha="center", va="center", fontsize=9, color=INK)
    for x in range(1, max(map(len, tree)) + 1):
        ax.text(x, 0.65, f"round {x}", ha="center", va="center", fontsize=9.5, color=INK)
    names = ", ".join(f"{' '.join(words)} ({tree[words]:.3f})" for words in tree if words in kept)
    ended = ", ".join(" ".join(words) for words in tree if words in finished)
    return drawn, (
        f"{title}. Kept on the way: {names}. Put aside because finished: {ended or 'none'}. "
        f"Chosen: {' '.join(best)}, probability {tree[best]:.3f}."
    )


def kept_tokens(
    panels: Mapping[str, tuple[Sequence[str], Sequence[float], Sequence[float]]],
    cuts: Mapping[str, Mapping[str, int]],
    hot: str,
) -> None:
    """Next-token distributions side by side, {title: (tokens, probabilities, those at the temperature `hot`)}.

    The likeliest token is on top, and one that ends in ✓ is orange. Probabilities at `hot` are white dots. `cuts`,
    {title: {way: how many tokens it keeps}}, are dashed lines: a way keeps what lies above its line. An axis ends at 1,
    or sooner where no probability is above 0.5, and all bars have one height, however many tokens they show.
    """
    rows = max(len(tokens) for tokens, _, _ in panels.values())
    drawn, _ = figure(9.0, 0.235 * rows + 0.8, columns=len(panels))
    said = []
    for ax, (title, (tokens, p, dots)) in zip(drawn.axes, panels.items(), strict=True):
        ys, end = range(len(p)), 1 if max(p) > 0.5 else 1.25 * max(p)
        colours = [ORANGE if token.endswith("✓") else BLUE for token in tokens]
        ax.barh(ys, p, 0.78, color=colours)
        ax.plot(dots, ys, "o", color=INK, markerfacecolor="white", markersize=5, clip_on=False, zorder=4)
        for way, n in cuts[title].items():
            ax.axhline(n - 0.5, color=INK, linewidth=1.2, linestyle="--")
            ax.text(end, n - 0.05, f"↑ {way} keeps {n}", ha="right", va="center", fontsize=9.5, color=INK)
        y = next(y for y in ys if dots[y] > p[y])  # the first circle beside its bar
        ax.text(dots[y] + 0.025 * end, y, f"at {hot}", ha="left", va="center", fontsize=9.5, color=INK)
        ax.set_yticks(ys, tokens)
        ax.tick_params(labelsize=9)
        ax.tick_params(axis="y", length=0)
        ax.set_ylim(len(p) - 0.4, -0.6)
        ax.set_box_aspect(0.062 * len(p))
        ax.set_anchor("N")
        ax.set_xlim(0, 1.02 * end)
        ax.set_title(title, fontsize=10)
        ax.set_xlabel("probability", fontsize=9.5)
        listed = ", ".join(f"{token} {share:.2f}" for token, share in zip(tokens, p, strict=True))
        kept = ", ".join(f"{way} keeps {n}" for way, n in cuts[title].items())
        said.append(f"{title}: {listed}; {kept}")
    show(drawn, f"What may be drawn. {'. '.join(said)}.")


def seed_bars(panels: Mapping[str, Mapping[str, Sequence[float]]], tops: Sequence[int]) -> None:
    """A bar for each run, {title: {condition: one count a seed}}, with its number above it, of `tops` lists.

    Below each bar stands its seed. The last condition is orange, the others are pale.
    """
    two_rows = len(panels) == 4
    drawn, _ = figure(9.0, 5.8 if two_rows else 3.2, 2 if two_rows else 1, 2 if two_rows else len(panels))
    said = []
    for ax, (title, groups), top in zip(drawn.axes, panels.items(), tops, strict=True):
        tallest = max(map(max, groups.values()))
        end = top if top < 3 * tallest else 1.13 * tallest
        places, names = [], []
        for x, (name, values) in enumerate(groups.items()):
            xs = [x + 0.28 * (seed - 1) for seed in range(len(values))]
            last = x == len(groups) - 1
            ax.bar(xs, values, 0.25, color=ORANGE if last else PALE_BLUE, edgecolor=ORANGE if last else BLUE)
            for seed, (at, height) in enumerate(zip(xs, values, strict=True)):
                ax.text(at, height + 0.01 * end, f"{height:.0f}", ha="center", va="bottom", fontsize=9, color=INK)
                names.append(f"{seed}\n{name.replace(' ', chr(10), 1)}" if seed == 1 else str(seed))
            places += xs
        ax.set_xticks(places, names, fontsize=9)
        ax.tick_params(axis="x", length=0)
        ax.set_ylim(0, 1.12 * end)
        ax.set_title(title, fontsize=10.5)
        ax.set_ylabel(f"wrong lists, of {top}", fontsize=9.5)
        ax.grid(axis="y", color=PALE, linewidth=0.8)
        ax.set_axisbelow(True)
        listed = "; ".join(
            f"{name}: " + ", ".join(f"{value:.0f}" for value in values) for name, values in groups.items()
        )
        said.append(f"{title}, wrong of {top}: {listed}")
    show(drawn, f"A bar for each seed. {'. '.join(said)}.")


def _lying(ax: Axes, rows: Mapping[str, Interval], colour: str, up: float = 0.0) -> str:
    """A row of (low, middle, high) for each name, from the top, `up` above its place, and what they say."""
    for y, (low, middle, high) in enumerate(rows.values()):
        ax.plot([low, high], [y - up, y - up], color=colour, linewidth=2.4, solid_capstyle="butt")
        ax.plot(middle, y - up, "o", color=colour, markersize=7)
    said = [f"{name} {middle:.2f} ({low:.2f} to {high:.2f})" for name, (low, middle, high) in rows.items()]
    return "; ".join(said).replace("-", "−")


def extra_loss(rows: Mapping[str, Mapping[str, Interval]], differences: Mapping[str, Interval]) -> None:
    """(low, middle, high) of two kinds, {row: {kind: …}}, orange above blue, and at the right of their differences.

    Both panels have a line at zero.
    """
    drawn, (left, right) = figure(9.0, 0.5 * len(rows) + 1.3, columns=2)
    kinds = list(next(iter(rows.values())))
    said = [
        f"{kind}: {_lying(left, {name: row[kind] for name, row in rows.items()}, colour, up)}"
        for kind, colour, up in zip(kinds, (ORANGE, BLUE), (0.14, -0.14), strict=True)
    ]
    said.append(f"difference: {_lying(right, differences, INK)}")
    left.legend(left.lines[:: 2 * len(rows)], kinds, loc="lower right", fontsize=9.5, frameon=False)
    left.set_title("extra loss of what follows", fontsize=10.5)
    left.set_xlabel("nats per token")
    right.set_title("own mistake − random number, nats per token", fontsize=10.5)
    right.set_xlabel("← own costs less   |   own costs more →")
    furthest = 1.1 * max(abs(end) for low, _, high in differences.values() for end in (low, high))
    right.set_xlim(-furthest, furthest)
    for ax in (left, right):
        ax.axvline(0, color=GREY, linewidth=1.2, zorder=1)
        ax.set_yticks(range(len(rows)), list(rows), fontsize=9.5)
        ax.set_ylim(len(rows) - 0.5, -0.5)
        ax.xaxis.set_major_locator(MaxNLocator(6, steps=[1, 2, 5, 10]))
        ax.tick_params(axis="y", length=0)
        ax.grid(axis="x", color=PALE, linewidth=0.8)
        ax.set_axisbelow(True)
    show(drawn, f"Nats per token, with intervals of 95 %. {'. '.join(said)}.")


def paired(
    scores: Mapping[str, Sequence[float]],
    runs: Mapping[str, tuple[float, float, float]],
    titles: Sequence[str],
    level: Mapping[str, Interval] | None = None,
) -> None:
    """Two systems' scores on the same resamples as dots beside a diagonal, and (low, middle, high) of single runs.

    Both panels have one vertical axis, the second system's scores. With a `level`, {name: (low, score, high)}, that
    score is a dashed line in a grey band beside the runs, and the left panel counts the dots below its line.
    """
    (x_name, xs), (y_name, ys) = scores.items()
    drawn, _ = figure(9.0, 3.9, columns=2)
    ax, right = drawn.axes
    low, high = min(xs) - 0.1, max(*ys, *(top for _, _, top in runs.values())) + 0.5
    end = max(xs) + 0.5
    ax.plot([low, end], [low, end], color=GREY, linewidth=1.2)
    middle = (low + end) / 2
    ax.text(middle, middle + 0.3, "equal scores", ha="center", va="bottom", rotation=45, rotation_mode="anchor",
            transform_rotates_text=True, fontsize=9.5, color=INK)  # fmt: skip
    ax.scatter(xs, ys, s=9, facecolor="none", edgecolor=BLUE, linewidth=0.5)
    ax.set_xlim(low, end)
    ax.set_xlabel(f"BLEU, {x_name}")
    ax.set_ylabel(f"BLEU, {y_name}")
    said = []
    for x, (name, (bottom, score, top)) in enumerate(runs.items()):
        right.plot([x, x], [bottom, top], color=BLUE, linewidth=2.4, solid_capstyle="butt")
        right.plot(x, score, "o", color=BLUE, markersize=7)
        right.text(x + 0.1, score, f"{score:.1f}", ha="left", va="center", fontsize=9.5, color=INK)
        said.append(f"{name} {score:.1f} ({bottom:.1f} to {top:.1f})")
    right.set_xticks(range(len(runs)), list(runs), fontsize=9.5)
    right.set_xlim(-0.5, len(runs) - 0.5)
    right.set_ylabel(f"BLEU, {y_name}")
    for side, title in zip((ax, right), titles, strict=True):
        side.set_ylim(low, high)
        side.yaxis.set_major_locator(MaxNLocator(6, integer=True))
        side.grid(axis="y", color=PALE, linewidth=0.8)
        side.set_axisbelow(True)
        side.set_title(title, fontsize=10.5)
    above = sum(y > x for x, y in zip(xs, ys, strict=True))
    for name, (bottom, middle, top) in (level or {}).items():
        below = f"{len(xs) - above:,} of {len(xs):,} dots\nbelow the line"
        ax.xaxis.set_major_locator(MaxNLocator(6, integer=True))
        ax.text(end - 0.1, low + 0.2, below, ha="right", va="bottom", fontsize=9.5, color=INK)
        right.axhspan(bottom, top, color=PALE, linewidth=0, zorder=0)
        right.axhline(middle, color=GREY, linewidth=1.2, linestyle="--")
        right.text(len(runs) - 0.55, middle + 0.15, f"{name}: {middle:.1f}", ha="right", va="bottom", fontsize=9.5,
                   color=INK)  # fmt: skip
    ahead = f"On {above} of {len(xs)} resamples {y_name} is above {x_name}"
    show(drawn, f"{ahead}. {y_name}, with intervals that hold 95 % of the resamples: {'; '.join(said)}.")


def beam_widths(
    at: Sequence[int],
    runs: Mapping[str, tuple[Sequence[float], Sequence[float]]],
    best: tuple[int, int],
    named: bool = False,
) -> None:
    """(BLEU, length in % of the reference's) by beam width, a line for each run; the `best` widths are shaded.

    The runs' names stand at their first points on the right, if it is `named`.
    """
    drawn, _ = figure(9.0, 3.3, columns=2)
    left, right = drawn.axes
    for (name, sides), dash, marker in zip(runs.items(), ("-", "--", ":"), "o^s", strict=False):
        for ax, heights in zip((left, right), sides, strict=True):
            ax.plot(at, heights, label=name, color=BLUE, linestyle=dash, marker=marker, markerfacecolor="white",
                    markeredgewidth=1.4, linewidth=1.4)  # fmt: skip
    lowest = float("inf")
    for name, (_, lengths) in sorted(runs.items(), key=lambda run: -run[1][1][0]) if named else ():
        lowest = min(lengths[0], lowest - 9)  # or two names would overlap
        right.text(0.8 * at[0], lowest, name, ha="right", va="center", fontsize=9.5, color=INK)
    top = 1.2 * max(max(bleu) for bleu, _ in runs.values())
    left.axvspan(*best, color=PALE_BLUE, linewidth=0, zorder=0)
    left.text((best[0] * best[1]) ** 0.5, 0.97 * top, "best", ha="center", va="top", fontsize=10, color=INK)
    left.set_ylim(0, top)
    left.set_ylabel("BLEU")
    right.axhline(100, color=GREY, linewidth=1.2)
    right.text(at[-1], 103, "the reference's length", ha="right", va="bottom", fontsize=9.5, color=INK)
    right.set_ylim(0, 1.05 * max(max(words) for _, words in runs.values()))
    right.set_ylabel("length, in % of the reference")
    right.text(at[1], 0.97 * right.get_ylim()[1], "greedy texts: too long", ha="left", va="top", fontsize=9.5,
               color=INK, bbox={"facecolor": "white", "edgecolor": "none", "pad": 1.0})  # fmt: skip
    right.text(at[-2], 0.15 * right.get_ylim()[1], "wide beams: too short", ha="right", va="bottom", fontsize=9.5,
               color=INK)  # fmt: skip
    for ax in (left, right):
        ax.set_xscale("log")
        ax.set_xticks(at, [str(x) for x in at])
        ax.xaxis.set_minor_locator(NullLocator())
        ax.set_xlabel("beam width")
        ax.grid(axis="y", color=PALE, linewidth=0.8)
        ax.set_axisbelow(True)
    if named:
        right.set_xlim(left=at[0] / 3.2)  # the names stand there
    listed = ". ".join(
        f"{name}: " + "; ".join(f"{x}: {b:.1f}, {w:.0f} %" for x, b, w in zip(at, bleu, words, strict=True))
        for name, (bleu, words) in runs.items()
    )
    show(drawn, f"BLEU and length by beam width. {listed}.")


def places(
    lines: Mapping[str, Sequence[float]],
    x_name: str,
    y_name: str,
    intervals: Mapping[str, Sequence[tuple[float, float]]] | None = None,
    gap: tuple[float, float] | None = None,
) -> None:
    """Two curves by place, from 1, with their names at their ends, and the gap between these as an arrow.

    With `intervals`, {name: (low, high) of each place}, the points have bars, and the curves stand a little apart;
    `gap` is the interval of the last gap.
    """
    drawn, ax = figure(7.4, 3.5)
    n = len(next(iter(lines.values())))
    aside, end, beside = (0.05, n + 0.15, n + 0.22) if intervals else (0, n, n + 0.12)
    said = []
    for i, (name, heights) in enumerate(lines.items()):
        xs = [x + aside * (2 * i - 1) for x in range(1, n + 1)] if aside else range(1, n + 1)
        small = {"markersize": (7, 5.5)[i]} if intervals else {}
        ax.plot(xs, heights, clip_on=False, **line_style(i) | small)
        ax.text(beside, heights[-1], name, ha="left", va="center", fontsize=10, color=SERIES[i])
        said.append(f"{name}: {', '.join(f'{height:.3g}' for height in heights)}")
        for x, (low, high) in zip(xs, (intervals or {}).get(name, ()), strict=False):
            ax.plot([x, x], [low, high], color=SERIES[i], linewidth=1.6, solid_capstyle="butt", clip_on=False)
    low, high = sorted(heights[-1] for heights in lines.values())
    of_gap = f"gap: {high - low:.0f} points"
    if gap:
        of_gap += f"\n({gap[0]:.0f} to {gap[1]:.0f})"
        said.append(f"gap at the end {high - low:.1f} ({gap[0]:.1f} to {gap[1]:.1f}), interval of 95 %")
    ax.annotate("", (end, high), (end, low), annotation_clip=False,
                arrowprops={"arrowstyle": "<->", "color": INK, "shrinkA": 6, "shrinkB": 6})  # fmt: skip
    ax.text(beside, (low + high) / 2, of_gap, ha="left", va="center", fontsize=9.5, color=INK)
    ax.set_xlim(0.9 - aside, n)  # the names stand beside the axes
    ax.set_ylim(bottom=0)
    ax.set_xticks(range(1, n + 1))
    ax.set_xlabel(x_name)
    ax.set_ylabel(y_name)
    ax.grid(axis="y", color=PALE, linewidth=0.8)
    ax.set_axisbelow(True)
    show(drawn, f"{y_name} against {x_name}. {'; '.join(said)}.")


def ngrams(columns: Sequence[tuple[str, str]], matches: Mapping[int, Sequence[bool]]) -> None:
    """The n-grams of a translation as bars over its words, {n: is each in the reference?}: filled, or white with a ×.

    A column holds what corresponds in (translation, reference), which may be empty on either side; the columns that
    differ are shaded, and the bars that cross them are missing. Bars that would overlap lie in rows of their own.
    """
    at = [x for x, (ours, _) in enumerate(columns) if ours]
    rows = sum(matches)
    drawn, ax = figure(1.35 + 0.51 * len(columns), 0.9 + 0.22 * rows + 0.1 * len(matches))
    base = {n: sum(range(n)) + 0.5 * n for n in matches}  # where the rows of n begin
    top = base[max(matches)] + max(matches)
    stage(ax, (-1.6, len(columns) + 1.05), (-2.9, top + 0.3))
    hold_still(drawn, left=0.01, right=0.99, top=0.99, bottom=0.01)
    for x, (ours, theirs) in enumerate(columns):
        if ours != theirs:
            ax.add_patch(Rectangle((x - 0.02, -2.8), 1.04, top + 3.0, facecolor=PALE_ORANGE, linewidth=0, zorder=0))
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
