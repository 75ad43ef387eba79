"""What a translator does with texts: cuts them into pieces, packs them into batches, and searches for its answer."""

from collections.abc import Mapping, Sequence

from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch, Rectangle

from attncourse.viz.style import (
    BLUE,
    GREY,
    INK,
    ORANGE,
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
                ax.add_patch(Rectangle((0, y), length, 1, facecolor=BLUE, edgecolor="white", linewidth=0.3))
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
        ax.set_title(f"{name}\n{1 - tokens / room:.0%} padding", fontsize=10.5)
        sizes = ", ".join(f"{len(lengths)} × {max(lengths)}" for lengths in groups)
        said.append(f"{name}: {1 - tokens / room:.0%} of the rectangles is padding; they are {sizes}")
    show(drawn, f"Batches as rectangles, tokens filled and padding hatched. {'. '.join(said)}.")


def search_frame(
    tree: Mapping[tuple[str, ...], float], kept: set[tuple[str, ...]], best: tuple[str, ...], title: str = ""
) -> tuple[Figure, str]:
    """A tree of hypotheses, {words: probability of all of them}: those that a search kept, and what it chose.

    Kept ones are filled, the chosen way is thick, what was never looked at is pale and dashed. A frame for `explore`.
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
        seen = words in kept
        colour = ORANGE if on_way else BLUE if seen else GREY
        if len(words) > 1:
            ax.plot([x - 1 + 0.36, x - 0.36], [ys[words[:-1]], y], color=colour, linewidth=3 if on_way else 1.2,
                    linestyle="-" if seen or on_way else ":")  # fmt: skip
        ax.add_patch(FancyBboxPatch((x - 0.36, y - 0.36), 0.72, 0.72, boxstyle="round,pad=0,rounding_size=0.1",
                                    facecolor=PALE_BLUE if seen else "white", edgecolor=colour,
                                    linewidth=2.4 if on_way else 1.2, linestyle="-" if seen else ":"))  # fmt: skip
        ax.text(x, y + 0.12, words[-1], ha="center", va="center", fontsize=9.5, color=INK if seen else GREY)
        ax.text(x, y - 0.19, f"{p:.3f}", ha="center", va="center", fontsize=8, color=INK if seen else GREY)
    names = ", ".join(f"{' '.join(words)} ({tree[words]:.3f})" for words in tree if words in kept)
    return drawn, f"{title}. Kept on the way: {names}. Chosen: {' '.join(best)}, probability {tree[best]:.3f}."


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
