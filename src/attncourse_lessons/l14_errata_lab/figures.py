"""Pictures of errata: lines of the game, which test catches what, and runs of several seeds."""

import textwrap
from collections.abc import Collection, Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from torch import Tensor

from attncourse.viz.diagrams import arrow, box
from attncourse.viz.figures import cells
from attncourse.viz.style import (
    BLUE,
    GREEN,
    GREY,
    INK,
    ORANGE,
    PALE,
    PURPLE,
    WEIGHTS,
    figure,
    hold_still,
    line_style,
    name_lines,
    show,
    stage,
)

HATCHED = "#8a8a8a"
WIDTH = 78  # letters in a line of the game
MARKED = {"✓": BLUE, "✗": ORANGE, "●": BLUE}  # what a line of the game begins with, and its colour


def lines_of(rows: Sequence[tuple[str, str]], words: str) -> tuple[Figure, str]:
    """Rows of (label, text), one below the other, wrapped: how the game stands, where it cannot be played.

    A text that begins with a mark (○ ● ✓ ✗) has the mark's colour and stands beside it. Tabs part a text into columns.
    What the slide says is bold.
    """
    widths = {"says": WIDTH - 12}  # bold letters are wider
    wrapped = [(label, [_marked(part, widths.get(label, WIDTH)) for part in text.split("\t")]) for label, text in rows]
    heights = [6.6 * max(len(lines) for _, lines in parts) + 2 for _, parts in wrapped]
    drawn, ax = figure(6.5, 0.2 + 0.032 * sum(heights))
    hold_still(drawn, left=0.02, right=0.98, bottom=0.02, top=0.98)
    stage(ax, (0, 100), (sum(heights) + 4, 0))
    y = 3.0
    for (label, parts), height in zip(wrapped, heights, strict=True):
        font = {"va": "top", "fontsize": 9.5, "weight": "bold" if label == "says" else "normal"}
        ax.text(12, y, label, ha="right", va="top", fontsize=9.5, color=GREY)
        for column, (mark, lines) in enumerate(parts):
            x, colour = 15 + 21 * column, MARKED.get(mark, INK)
            if mark:
                ax.text(x, y, mark, ha="left", color=colour, **font)
            for k, line in enumerate(lines):
                ax.text(x + 3.4 * bool(mark), y + 6.6 * k, line, ha="left", color=colour, **font)
        y += height
    return drawn, words


def _marked(text: str, width: int) -> tuple[str, list[str]]:
    """The mark that a text begins with, or nothing, and the text in lines."""
    mark, rest = (text[0], text[1:].strip()) if text[:1] in ("○", *MARKED) else ("", text)
    return mark, textwrap.wrap(rest, width - 4 * bool(mark))


def caught_table(
    rows: Mapping[str, Mapping[str, tuple[bool, str]]],
    groups: Mapping[str, int] | None = None,
    broken: Collection[str] = (),
    alt: str = "",
) -> None:
    """Faults down, tests along, {fault: {test: (caught, a word)}}: coloured, with a dot, where one catches it.

    The first test stands apart from the others. `groups` of rows, {name: how many}, have a line between them. Rows of
    `broken` faults, whose model returns no numbers at all, are grey. Below each test is how many faults it catches.
    """
    tests: Sequence[str] = list(next(iter(rows.values())))
    drawn, ax = figure(2.6 + 0.84 * len(tests), 1.25 + 0.29 * len(rows))
    stage(ax, (-3.3, len(tests)), (len(rows) + 0.95, -1.6))
    ax.plot([1, 1], [-1.3, len(rows)], color=INK, linewidth=2, zorder=3)
    top = 0
    for name, count in (groups or {}).items():
        ax.text(-3.15, top + count / 2, name, ha="center", va="center", rotation=90, fontsize=10.5, color=GREY)
        ax.plot([-3.3, len(tests)], [top, top], color=GREY, linewidth=1.6, zorder=3)
        top += count
    for column, name in enumerate(tests):
        for k, line in enumerate(reversed(textwrap.wrap(name, 9, break_long_words=False))):
            ax.text(column + 0.5, -0.25 - 0.48 * k, line, ha="center", va="bottom", fontsize=10.5, color=INK)
        kills = sum(found[name][0] for found in rows.values())
        ax.text(column + 0.5, len(rows) + 0.5, f"{kills}", ha="center", va="center", fontsize=10.5, weight="bold")
    ax.text(-0.1, len(rows) + 0.5, f"kills, of {len(rows)}", ha="right", va="center", fontsize=10.5, weight="bold")
    ax.text(-0.1, -0.25, "mutant", ha="right", va="bottom", fontsize=10.5, style="italic", color=GREY)
    said = []
    for row, (fault, found) in enumerate(rows.items()):
        ax.text(-0.1, row + 0.5, fault, ha="right", va="center", fontsize=10.5, color=INK)
        for column, name in enumerate(tests):
            caught, word = found[name]
            fill = PALE if caught and fault in broken else (0.84, 0.37, 0.0, 0.30) if caught else "white"
            ax.add_patch(Rectangle((column, row), 1, 1, facecolor=fill, edgecolor=PALE))
            words = f"{'●' if caught else ''} {word}".strip()
            ax.text(column + 0.5, row + 0.5, words, ha="center", va="center", fontsize=10.5,
                    color=GREY if fault in broken and not word else INK)  # fmt: skip
        by = [name for name in tests if found[name][0]]
        grey = " (grey)" if fault in broken else ""
        said.append(f"{fault}{grey}: {', '.join(by) if by else 'nothing'}")
    show(drawn, alt or f"Which test catches which fault. {'; '.join(said)}.")


def _name_ends(ax: Axes, x: float, ends: Mapping[str, tuple[float, str]], apart: float) -> None:
    """The names of lines beside their last points {name: (height, colour)}, no two of them on each other."""
    low, high = ax.get_ylim()
    at = low - (high - low)
    for words, (end, colour) in sorted(ends.items(), key=lambda item: item[1][0]):
        at = max(end, at + apart * (high - low))
        ax.annotate(words, (x, end), (1.03, (at - low) / (high - low)), textcoords="axes fraction",
                    va="center", fontsize=10.5, color=colour)  # fmt: skip


def training_and_batches(
    training: Mapping[str, Sequence[Sequence[float]]],
    steps: Sequence[int],
    losses: Mapping[str, Sequence[Sequence[float]]],
    sizes: Sequence[int],
    largest: int | None = None,
) -> None:
    """Two models, {model: a line for each seed}: the loss while they train, and how their loss depends on the batch.

    On the right each model is compared with itself in batches of one: batch invariance asks for a line at 0. Grey are
    the batches of more texts than the `largest` one in training.
    """
    drawn, (curve, batch) = figure(9.2, 3.3, columns=2)
    ends, said = {}, []
    for i, (name, runs) in enumerate(training.items()):
        mean = [sum(values) / len(runs) for values in zip(*runs, strict=True)]
        curve.plot(steps, mean, **line_style(i))
        x, y = ((0.62, 0.27), (0.03, 0.05))[i]                       # above the one curve, below the other
        curve.text(x, y, name, ha="left", va="center", transform=curve.transAxes, fontsize=10.5,
                   color=line_style(i)["color"])  # fmt: skip
        changes = [[loss - run[0] for loss in run] for run in losses[name]]
        for change in changes:
            batch.plot(sizes, change, **line_style(i) | {"linewidth": 1.6})
        ends[name] = sum(change[-1] for change in changes) / len(changes), line_style(i)["color"]
        most = max(abs(value) for change in changes for value in change)
        said.append(f"{name}: the training loss falls from {mean[0]:.2f} to {mean[-1]:.2f}, and the test loss moves by "
                    f"up to {most:.2f} with the batch")  # fmt: skip
    name_lines(curve, "training steps", "nats per token", "training loss")
    batch.set_xscale("log")
    batch.set_xticks(sizes, [f"{size}" for size in sizes])
    batch.minorticks_off()
    name_lines(batch, "texts in a batch", "", "test loss, minus that in batches of one")
    batch.locator_params(axis="y", nbins=5)
    if largest:
        right = batch.get_xlim()[1]
        batch.axvspan(largest, right, color=PALE, alpha=0.6, linewidth=0, zorder=0)
        batch.set_xlim(right=right)
        batch.text(largest * 0.93, 0.97, f"grey: larger than any\nbatch in training ({largest})", ha="right", va="top",
                   transform=batch.get_xaxis_transform(), fontsize=10, color=GREY)  # fmt: skip
    _name_ends(batch, sizes[-1], ends, 0.1)
    show(drawn, f"Two models, {len(runs)} seeds each. {'; '.join(said)}.")


def paired_seeds(losses: Mapping[str, Sequence[float]], y_name: str) -> None:
    """Losses of two models side by side, {model: one for each seed}: a line joins those of one seed.

    It is blue where the second model's is lower, and orange and dashed where it is not.
    """
    drawn, ax = figure(6.2, 3.4)
    (first, before), (second, behind) = losses.items()
    lower = sum(b < a for a, b in zip(before, behind, strict=True))
    for a, b in zip(before, behind, strict=True):
        ax.plot([0, 1], [a, b], color=BLUE if b < a else ORANGE, linestyle="-" if b < a else "--", linewidth=1.4)
    for x, values, face in ((0, before, "white"), (1, behind, INK)):
        ax.plot([x] * len(values), values, "o", color=INK, markerfacecolor=face, markersize=6, zorder=3)
        ax.plot([x - 0.09, x + 0.09], [sum(values) / len(values)] * 2, color=INK, linewidth=2.6, zorder=4)
    ax.annotate(f"each line: one seed\n{lower} of {len(before)} fall\nshort bars: means", (1, behind[0]), (1.04, 0.5),
                textcoords="axes fraction", va="center", fontsize=10, color=INK)  # fmt: skip
    ax.set_xticks([0, 1], [first, second])
    ax.set_xlim(-0.3, 1.3)
    name_lines(ax, "", y_name)
    said = f"of {len(before)} seeds {lower} are lower for {second} than for {first}"
    show(drawn, f"{y_name.capitalize()}, the runs of one seed joined: {said}.")


def masked_tables(tables: Mapping[str, Tensor], allowed: Tensor) -> None:
    """Weights (n, n) by several masks, {title: weights}: sums of rows beside them, forbidden cells hatched.

    A frame is around what is NaN, a forbidden cell with weight, and an allowed one without. Below its title each table
    says whether its rows sum to one, and whether the future has no weight; a row of NaN answers no to both, which is
    said above the table.
    """
    n = len(allowed)
    names = [f"{i}" for i in range(n)]
    drawn, axes = figure(2.8 * len(tables) + 0.3, 3.3, columns=len(tables))
    said = []
    for at, (ax, (title, weights)) in enumerate(zip(axes, tables.items(), strict=True)):
        cells(ax, weights.numpy(), names, names, True, digits=2)
        wrong = weights.isnan() | ((weights > 0) != allowed)
        for i, j in (~allowed).nonzero().tolist():
            ax.add_patch(Rectangle((j, i), 1, 1, fill=False, hatch="///", edgecolor=HATCHED, linewidth=0))
        for i, j in wrong.nonzero().tolist():
            ax.add_patch(Rectangle((j + 0.06, i + 0.06), 0.88, 0.88, fill=False, edgecolor=ORANGE, linewidth=2.2))
        for label in ax.texts:
            j, i = (int(place) for place in label.get_position())
            if not allowed[i, j]:  # a number over a hatch is read on the colour of its cell
                ground = WEIGHTS(weights[i, j].nan_to_num(0).item())
                label.set_bbox({"boxstyle": "round,pad=0.1", "facecolor": ground, "edgecolor": "none"})
        sums = [f"{total:.2f}" if total == total else "NaN" for total in weights.sum(dim=-1).tolist()]
        for i, total in enumerate(sums):
            off = {"bbox": {"boxstyle": "round,pad=0.15", "facecolor": ORANGE, "edgecolor": "none"}, "weight": "bold"}
            ax.text(n + 0.18, i + 0.5, total, ha="left", va="center", fontsize=9.5,
                    color=INK if total == "1.00" else "white", **({} if total == "1.00" else off))  # fmt: skip
        ax.text(n + 0.18, -0.1, "sum", ha="left", va="bottom", fontsize=9.5, style="italic", color=GREY)
        for row in weights.isnan().any(dim=-1).nonzero().flatten().tolist():  # why it fails both questions
            ax.text(0, -0.1, f"row {row}: NaN, neither 1 nor 0", ha="left", va="bottom", fontsize=9.5, style="italic",
                    color=ORANGE)  # fmt: skip
        ax.set_xlim(0, n + 1.2)  # the sums stand within, away from the next table's queries
        ax.set_title(title, pad=52, x=n / 2 / (n + 1.2))
        for y, (passes, finding) in zip((-0.95, -0.5), _two_answers(weights, allowed), strict=True):
            ax.text(n / 2, y, f"{'✓' if passes else '✗'} {finding}", ha="center", va="bottom", fontsize=10.5,
                    color=BLUE if passes else ORANGE)  # fmt: skip
        ax.set_xlabel("key", x=n / 2 / (n + 1.2))
        ax.set_ylabel("query" if at == 0 else "")
        future = weights.masked_fill(allowed, 0).nan_to_num(1).sum() > 0
        said.append(f"{title}: the rows sum to {', '.join(sums)}, {int(wrong.sum())} cells are framed, and the future "
                    f"gets {'some weight or NaN' if future else 'nothing'}")  # fmt: skip
    show(drawn, f"Weights by several masks, rows are queries, columns keys; hatched is the future. {'; '.join(said)}.")


def _two_answers(weights: Tensor, allowed: Tensor) -> list[tuple[bool, str]]:
    """Whether the rows of a table of weights sum to one, and whether what is forbidden has no weight, in words."""
    sums = bool(((weights.sum(dim=-1) - 1).abs() < 1e-4).all())
    empty = bool((weights[~allowed] == 0).all())
    return [
        (sums, "rows sum to 1" if sums else "not all rows sum to 1"),
        (empty, "the future is empty" if empty else "the future is not empty"),
    ]


def two_blocks() -> None:
    """Where the residual path begins: after a norm, as printed, or before it, repaired."""
    drawn, ax = figure(8.4, 2.5)
    stage(ax, (-3.0, 15.2), (-3.7, 2.6))
    for x, heading in ((3.6, "first sublayer"), (11.0, "second sublayer")):
        ax.text(x, 2.25, heading, ha="center", va="bottom", fontsize=11, weight="bold", color=INK)
    said = []
    for row, (name, behind) in enumerate({"printed": True, "repaired": False}.items()):
        y = -3.0 * row
        ax.text(-0.9, y, name, ha="right", va="center", fontsize=10.5, family="monospace", color=INK)
        ax.text(-0.45, y, "$x$", ha="center", va="center", fontsize=12, color=INK)
        for half, sublayer in enumerate(("attention", "feed-forward")):
            x = 7.4 * half
            arrow(ax, (x - (0.2 if half else 0.1), y), (x + 0.75, y))
            box(ax, x + 1.4, y, "norm", GREY, width=1.3)
            arrow(ax, (x + 2.1, y), (x + 3.05, y))
            box(ax, x + 4.45, y, sublayer, GREY, width=2.7)
            arrow(ax, (x + 5.85, y), (x + 6.55, y))
            ax.text(x + 6.85, y, "+", ha="center", va="center", fontsize=12, color=INK,
                    bbox={"boxstyle": "circle,pad=0.15", "facecolor": "white", "edgecolor": INK})  # fmt: skip
            start = x + (2.5 if behind else 0.2)
            colour = ORANGE if behind else BLUE
            ax.plot([start, start, x + 6.85], [y, y + 1.0, y + 1.0], color=colour, linewidth=2.4,
                    linestyle="--" if behind else "-")  # fmt: skip
            arrow(ax, (x + 6.85, y + 1.0), (x + 6.85, y + 0.42), colour=colour, width=2.4)
            ax.plot(start, y, "o", color=colour, markersize=6, zorder=3)
            ax.text((start + x + 6.85) / 2, y + 1.15, f"{'after' if behind else 'before'} the norm", ha="center",
                    va="bottom", fontsize=10, color=colour)  # fmt: skip
        arrow(ax, (14.6, y), (15.1, y))
        said.append(f"{name}: each residual path begins {'after' if behind else 'before'} the norm")
    show(drawn, f"Two blocks of two sublayers, each with a norm and a residual path around it. {'; '.join(said)}.")


def missed_mutants(differences: Mapping[str, tuple[float, float]], luck: float) -> None:
    """How far mutants' losses lie from the repaired model's, {mutant: (difference, half a bar)}, less to the left.

    A filled point differs by more than its bar from zero, a hollow one does not. Grey is what differs from zero by no
    more than `luck`, which is by how much the repaired model's own seeds differ.
    """
    drawn, ax = figure(6.4, 1.1 + 0.32 * len(differences))
    ax.axvspan(-luck, luck, color=PALE, alpha=0.6, linewidth=0, zorder=0)
    ax.axvline(0, color=GREY, linewidth=1.2)
    for y, (middle, half) in enumerate(differences.values()):
        beyond = abs(middle) > half
        colour = GREY if not beyond else BLUE if middle < 0 else ORANGE
        marker = "o" if not beyond else "<" if middle < 0 else ">"
        ax.plot([middle - half, middle + half], [y, y], color=colour, linewidth=2, zorder=2)
        ax.plot(middle, y, marker, color=colour, markerfacecolor=colour if beyond else "white", markersize=7, zorder=3)
    ax.annotate(f"grey: the repaired model's own seeds differ by up to {luck:.3f}", (0, 1.5), (luck, 1.02), ha="right",
                textcoords=("data", "axes fraction"), va="bottom", fontsize=10, color=GREY)  # of the band, above it
    ax.set_xlim(min(middle - half for middle, half in differences.values()) - 0.2 * luck, 1.2 * luck)
    ax.set_ylim(len(differences) - 0.4, -0.6)
    ax.set_yticks(range(len(differences)), list(differences))
    ax.tick_params(axis="y", length=0)
    name_lines(ax, "nats per token; left of 0: a lower loss", "")
    listed = "; ".join(f"{name} {middle:+.3f} ± {half:.3f}" for name, (middle, half) in differences.items())
    said = f"The repaired model's own seeds differ by up to {luck:.3f}. {listed}."
    show(drawn, f"Loss of each mutant minus the repaired model's, nats per token. {said}".replace("-", "−"))


def row_or_column(weights: Tensor, k: int) -> None:
    """Causal weights (n, n): framed are row k, which token k should use, and column k, which it uses as printed."""
    n = len(weights)
    allowed = weights.new_ones(n, n).tril().bool()
    names = [f"{i}" for i in range(n)]
    drawn, ax = figure(6.4, 3.0)
    hold_still(drawn, left=0.1, right=0.99, bottom=0.28, top=0.98)
    cells(ax, weights.numpy(), names, names, True, allowed=allowed)
    said = []
    for colour, style, corner, size, mixed, where in (
        (BLUE, "-", (0.05, k + 0.05), (n - 0.1, 0.9), weights[k], (n + 0.25, k + 0.5)),
        (ORANGE, "--", (k + 0.05, 0.05), (0.9, n - 0.1), weights[:, k], (k + 0.5, n + 1.0)),
    ):
        ax.add_patch(Rectangle(corner, *size, fill=False, edgecolor=colour, linestyle=style, linewidth=2.6))
        tokens = ", ".join(f"{i}" for i in mixed.nonzero().flatten().tolist())
        name = "corrected" if colour == BLUE else "as printed"
        words = f"{name}: token {k} mixes tokens {tokens}; sum {mixed.sum():.2f}"
        beside = {"ha": "left", "va": "center"} if colour == BLUE else {"ha": "center", "va": "top"}
        shown = words.replace(": ", ":\n").replace("; ", "\n") if colour == BLUE else words
        ax.text(*where, shown, fontsize=10.5, color=colour, **beside)
        said.append(words)
    ax.plot([k + 0.1, k + 0.1], [n, n + 0.88], color=ORANGE, linewidth=1.2, clip_on=False)  # the column and its words
    ax.set_ylim(n, 0)
    ax.set_xlim(0, n + 2.4)
    ax.set_ylabel("query")
    ax.set_xlabel("key", x=n / 2 / (n + 2.4), labelpad=0)
    show(drawn, f"Causal weights, rows are queries, columns keys; the future is hatched. {'. '.join(said)}.")


def regrouped() -> None:
    """A model of two printed blocks and a final norm; above and below it the two ways to bracket its parts."""
    drawn, ax = figure(9.4, 2.2)
    hold_still(drawn, left=0.005, right=0.995, bottom=0.01, top=0.99)
    stage(ax, (-2.4, 20.3), (-2.1, 2.7))
    ax.text(-1.7, 0, "embed-\ndings", ha="center", va="center", fontsize=10, color=INK)
    ax.text(19.4, 0, "logits", ha="center", va="center", fontsize=10.5, color=INK)
    step = 4.2
    arrow(ax, (-1.05, 0), (-0.65, 0))
    for k, sublayer in enumerate(("attn", "ff", "attn", "ff")):
        x = step * k
        box(ax, x, 0, "norm", GREY, width=1.25)
        arrow(ax, (x + 0.65, 0), (x + 1.3, 0))
        box(ax, x + 1.9, 0, sublayer, GREY, width=1.15)
        arrow(ax, (x + 2.5, 0), (x + 2.85, 0))
        ax.text(x + 3.1, 0, "+", ha="center", va="center", fontsize=11, color=INK,
                bbox={"boxstyle": "circle,pad=0.1", "facecolor": "white", "edgecolor": INK})  # fmt: skip
        ax.plot([x + 0.95, x + 0.95, x + 3.1], [0, 0.95, 0.95], color=INK, linewidth=1.6)
        arrow(ax, (x + 3.1, 0.95), (x + 3.1, 0.36), colour=INK, width=1.6)
        ax.plot(x + 0.95, 0, "o", color=INK, markersize=4.5, zorder=3)
        arrow(ax, (x + 3.35, 0), (x + step - 0.65, 0))
    box(ax, 4 * step, 0, "norm", GREY, width=1.25)
    arrow(ax, (4 * step + 0.65, 0), (18.6, 0))
    said = []
    for y, colour, name, first, alone, at in (
        (1.45, ORANGE, "printed block", -0.8, "final norm", 4 * step),
        (-1.0, GREEN, "post-norm block", 0.8, "first norm", 0),  # cut between a norm and where its residual path begins
    ):
        tip, words = (y + 0.35, y + 0.5) if y > 0 else (y - 0.35, y - 0.5)
        starts = first, first + 2 * step
        spans = {f"{name} {k + 1}": (left, left + 2 * step - 0.12) for k, left in enumerate(starts)}
        for label, (left, right) in (spans | {alone: (at - 0.8, at + 0.7)}).items():
            ax.plot([left, left, right, right], [y, tip, tip, y], color=colour, linewidth=2.4)
            ax.text((left + right) / 2, words, label, ha="center", va="bottom" if y > 0 else "top", fontsize=10.5,
                    color=colour)  # fmt: skip
        said.append(f"{name} 1, {name} 2 and a {alone}")
    show(
        drawn,
        "Embeddings, then four times norm, sublayer and sum (attention, feed-forward, attention, feed-forward), then a "
        "norm and the logits; each residual path begins after a norm and ends at the next sum. Brackets above: from "
        f"norm to sum, {said[0]}. Brackets below: from sublayer to the next norm, {said[1]}.",
    )


def two_relations() -> None:
    """Metamorphic relations: the same past before another future, and the same text alone and in a batch."""
    drawn, ax = figure(8.8, 3.1)
    stage(ax, (-0.3, 18.4), (-4.3, 1.5))

    def row(x: float, y: float, letters: str, changed: Sequence[int] = (), hatched: Sequence[int] = ()) -> None:
        for i, letter in enumerate(letters):
            colour = PURPLE if i in changed else BLUE
            ax.add_patch(Rectangle((x + 0.62 * i, y - 0.31), 0.6, 0.62, facecolor="white", edgecolor=colour,
                                   hatch="////" if i in hatched else "", linewidth=1.4))  # fmt: skip
            ax.text(x + 0.62 * i + 0.3, y, letter, ha="center", va="center", fontsize=10.5, color=colour)

    for left, title in ((0.0, "the past stays"), (9.3, "batch invariance")):
        ax.text(left, 1.2, title, ha="left", va="center", fontsize=11, weight="bold", color=INK)
        for y in (0.0, -3.0):
            arrow(ax, (left + 3.3, y), (left + 3.7, y))
            box(ax, left + 4.4, y, "model", GREY, width=1.3)
            arrow(ax, (left + 5.1, y), (left + 5.5, y))
    row(0, 0, "abcde")
    row(0, -3, "abcxy", changed=(3, 4))
    row(5.6, 0, "     ", hatched=(3, 4))
    row(5.6, -3, "     ", hatched=(3, 4), changed=(3, 4))
    _equal(ax, 5.6, 3, -1.4, "equal before the change")
    row(9.3, 0, "abcde")
    for k, word in enumerate(("abcde", "vwxyz")):
        row(9.3, -2.65 - 0.7 * k, word, changed=range(5) if k else ())
        row(14.9, -2.65 - 0.7 * k, "     ", hatched=range(5) if k else (), changed=range(5) if k else ())
    row(14.9, 0, "     ")
    _equal(ax, 14.9, 5, -1.4, "the whole row equal")
    show(
        drawn,
        "Two relations. Left: a text and the same text with other tokens at its end go through the model; the outputs "
        "before the change must be equal, those after it are not compared. Right: a text alone and the same text in a "
        "batch with another; its row of outputs must be equal, the other row is not compared.",
    )


def position_rows() -> None:
    """Which row of the position table each token gets, if positions count tokens and if they count texts.

    Above three texts of five tokens in one batch, below the last of them alone.
    """
    n_texts, n = 3, 5
    drawn, ax = figure(8.8, 3.4)
    stage(ax, (-2.9, 16.4), (-5.6, 2.0))
    said = []
    for left, title, by_text in ((0.0, "repaired: positions count tokens", False),
                                 (10.2, "faulty: positions count texts", True)):  # fmt: skip
        colour = ORANGE if by_text else BLUE
        ax.text(left, 1.6, title, ha="left", va="center", fontsize=11, weight="bold", color=INK)
        read = {f"text {k}": [k if by_text else i for i in range(n)] for k in range(n_texts)}
        read[f"text {n_texts - 1}, alone"] = [0 if by_text else i for i in range(n)]
        for top, (name, rows) in zip((0.0, -1.0, -2.0, -4.9), read.items(), strict=True):
            ax.text(left - 0.25, top, name, ha="right", va="center", fontsize=10, color=INK)
            for i, row in enumerate(rows):
                ax.add_patch(Rectangle((left + 1.1 * i, top - 0.42), 1.04, 0.84, facecolor="white", edgecolor=colour,
                                       linewidth=1.4))  # fmt: skip
                ax.text(left + 1.1 * i + 0.52, top, f"{row}", ha="center", va="center", fontsize=10.5, color=colour)
        for i in range(n):
            x = left + 1.1 * i + 0.52
            ax.text(x, 0.75, f"{'' if i else 'token '}{i}", ha="center", va="center", fontsize=9.5, color=GREY)
            ax.text(x, -3.45, "≠" if by_text else "=", ha="center", va="center", fontsize=13,
                    color=ORANGE if by_text else GREEN)  # fmt: skip
        said.append("; ".join(f"{name}: {' '.join(map(str, rows))}" for name, rows in read.items()))
    show(
        drawn,
        "The row of the position table that each of five tokens gets, for three texts in a batch and the last of them "
        f"alone. Repaired, {said[0]}. Faulty, {said[1]}.",
    )


def _equal(ax: Axes, x: float, n: int, y: float, words: str) -> None:
    """An equals sign below each of n cells, and words beside them."""
    for i in range(n):
        ax.text(x + 0.62 * i + 0.3, y, "=", ha="center", va="center", fontsize=13, color=GREEN)
    ax.text(x - 0.25, y, words, ha="right", va="center", fontsize=10, color=GREEN)
