"""A sentence that looks at itself: one word's question, the matrices and their shapes, who reaches whom."""

import math
from collections.abc import Mapping, Sequence

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Circle, Rectangle
from torch import Tensor, nn

from attncourse.attention import attend, scaled_dot_score
from attncourse.data.diary import DAYS
from attncourse.viz.diagrams import arrow, dots, rgb
from attncourse.viz.figures import as_matrix, cells, check_shares, describe, turn_labels
from attncourse.viz.style import (
    BLUE,
    GREEN,
    GREY,
    INK,
    ORANGE,
    PALE,
    PURPLE,
    figure,
    line_style,
    name_lines,
    show,
    stage,
)


def one_row(title: str, words: Sequence[str], weights: Tensor, row: int) -> None:
    """The attention weights (n, n) of a sentence with their numbers, the row of one word framed."""
    side = 1.4 + 0.44 * len(words)
    drawn, ax = figure(side, side - 0.1)
    rows = _table(ax, title, words, weights, numbers=True)
    turn_labels(ax)
    ax.add_patch(Rectangle((0, row), len(words), 1, fill=False, edgecolor=PURPLE, linewidth=2.2, clip_on=False,
                           zorder=3))  # fmt: skip
    ax.get_yticklabels()[row].set(fontweight="bold", color=PURPLE)
    said = f"{title}. Rows are queries, columns keys. {describe(rows, words, words)}"
    show(drawn, f"A table of weights. {said} The row of “{words[row]}” is framed.")


def weeks_as_they_fell(named: Mapping[str, tuple[Sequence[str], Tensor]]) -> None:
    """Attention weights of weeks, {title: (days as they fell, (7, 7))}, two beside each other.

    In each row the card of the next day has a frame, and the weight on it is written there.
    """
    lines = -(-len(named) // 2)
    drawn, _ = figure(7.2, 3.4 * lines, lines, 2)
    said = []
    for at, (ax, (title, (days, weights))) in enumerate(zip(drawn.axes, named.items(), strict=True)):
        rows = _table(ax, title, days, weights, first=at % 2 == 0)
        turn_labels(ax)
        found = []
        for i, day in enumerate(days):
            j = days.index(DAYS[(DAYS.index(day) + 1) % 7])
            ax.add_patch(Rectangle((j, i), 1, 1, fill=False, edgecolor=ORANGE, linewidth=2, clip_on=False, zorder=3))
            ax.text(j + 0.5, i + 0.5, f"{rows[i, j]:.2f}", ha="center", va="center", fontsize=9.5,
                    color="white" if rows[i, j] > 0.7 else INK)  # fmt: skip
            found.append(f"{day} {rows[i, j]:.2f}")
        said.append(f"{title}, weight on the next day's card: {', '.join(found)}.")
    show(drawn, f"Attention weights of weeks as the cards fell, the next day's card framed. {' '.join(said)}")


def one_token(x: Tensor, i: int, W_Q: Tensor, W_K: Tensor, W_V: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """What token i of (n, d_model) finds: its scores (n,), its weights (n,), and what it receives (d_v,)."""
    output, weights = attend(x[i : i + 1] @ W_Q, x @ W_K, x @ W_V)
    return scaled_dot_score(x[i : i + 1] @ W_Q, x @ W_K)[0], weights[0], output[0]


def one_query(
    words: Sequence[str], asking: int, scores: Tensor, weights: Tensor, output: Tensor, features: Sequence[str]
) -> tuple[Figure, str]:
    """What one word asks and gets, for a widget: its scores, its weights, and the average of the values.

    `scores`, `weights` (n,), `output` (d_v,), one name in `features` for each of its numbers. Returns figure and alt.
    Raises ValueError where the lengths do not fit, and for what are no weights.
    """
    rows = as_matrix(torch.stack([scores, weights]), ("scores", "weights"), words)
    check_shares("weights", rows[1])
    received = as_matrix(output[None], ("output",), features, name="output")[0]
    drawn, (left, middle, right) = figure(6.5, 0.8 + 0.27 * len(words), columns=3)
    places = np.arange(len(words))
    for ax, values, name, symbol, colour in (
        (left, rows[0], "scores", "$e$", GREY), (middle, rows[1], "weights", r"$\alpha$, sum 1", BLUE),
    ):  # fmt: skip
        ax.barh(places, values, color=[PURPLE if i == asking else colour for i in places], height=0.7)
        ax.set_yticks(places, words if ax is left else [""] * len(words))
        ax.set_title(name)
        ax.set_xlabel(symbol)
        ax.invert_yaxis()
        ax.tick_params(axis="y", length=0)
    reach = max(1.25, 1.35 * rows[0].max())
    left.set_xlim(min(0.0, 1.15 * rows[0].min()), reach)
    middle.set_xlim(0, 1.25)
    for i, value in enumerate(rows[0]):
        said = f"{value:.2f}".replace("-", "−")
        left.text(max(value, 0) + 0.024 * reach, i, said, va="center", fontsize=9, color=INK if value else GREY)
    for i, value in enumerate(rows[1]):
        colour = INK if value > 0.05 else GREY
        middle.text(value + 0.03, i, f"{value:.2f}", va="center", fontsize=9, color=colour)
    left.get_yticklabels()[asking].set(fontweight="bold", color=PURPLE)
    right.barh(np.arange(len(features)), received, color=ORANGE, height=0.6)
    right.set_yticks(np.arange(len(features)), features)
    middle_of_both = (len(features) - 1) / 2
    right.set_ylim(middle_of_both + len(words) / 2, middle_of_both - len(words) / 2)    # as thick, but not in line
    right.set_xlim(0, max(1.25, 1.25 * received.max()))
    right.tick_params(axis="y", length=0)
    right.set_title(f"“{words[asking]}” receives")
    right.set_xlabel("$o$")
    for i, value in enumerate(received):
        right.text(value + 0.03, i, f"{value:.2f}", va="center", fontsize=9, color=INK)
    shares = ", ".join(f"{word} {share:.2f}" for word, share in zip(words, rows[1], strict=True))
    got = ", ".join(f"{name} {value:.2f}" for name, value in zip(features, received, strict=True))
    return drawn, f"“{words[asking]}” asks. Its weights: {shares}. It receives: {got}."


def self_attention_shapes(
    n: int, d_model: int, d_k: int, d_v: int, asking: int = 0, answering: int = 0, names: Sequence[str] = ("i", "j"),
    weight: float | None = None,
) -> None:
    """The whole computation as rectangles, drawn to scale: X, the projections, scores, weights, output.

    A colour for each role, as in all lessons before: queries green, keys blue, values orange. The row
    of the token that asks is striped in purple from X through Q, scores and weights to the output; that of one that
    answers in black from X through K and V, and its column in Kᵀ, scores and weights. A ring is where both
    meet; beside the one in A stands `weight`. `names` are theirs, and stand beside their rows of X.
    """
    unit = 0.11
    drawn, ax = figure(8.2, 4.8)
    stage(ax, (-0.5, 7.7), (0, 4.8))

    def row(x: float, y: float, rows: int, columns: int, which: int, colour: str) -> None:
        level = y + unit * (rows / 2 - which - 0.5)
        ends = [x - unit * columns / 2, x + unit * columns / 2]
        ax.plot(ends, [level, level], color=colour, linewidth=4.5, alpha=0.8, solid_capstyle="butt")

    def matrix(
        x: float, y: float, rows: int, columns: int, label: str, shape: str, axes: str, colour: str, fill=None
    ) -> None:
        width, height = unit * columns, unit * rows
        face = fill if fill is not None else (*rgb(colour), 0.16)
        ax.add_patch(
            Rectangle((x - width / 2, y - height / 2), width, height, facecolor=face, edgecolor=colour, linewidth=1.5)
        )
        ax.text(x, y + height / 2 + 0.13, label, ha="center", va="center", fontsize=11, color=INK)
        ax.text(x, y - height / 2 - 0.13, shape, ha="center", va="center", fontsize=9, color=INK)
        ax.text(x, y - height / 2 - 0.31, axes, ha="center", va="center", fontsize=9, color=GREY)

    rows_y = (4.05, 2.45, 0.85)
    matrix(0.6, rows_y[1], n, d_model, "$X$", f"{n} × {d_model}", r"$n \times d_{model}$", INK, "#ffffff")
    roles = (("Q", d_k, GREEN, "queries"), ("K", d_k, BLUE, "keys"), ("V", d_v, ORANGE, "values"))
    for y, (name, width, colour, role) in zip(rows_y, roles, strict=True):
        arrow(ax, (1.05, rows_y[1] + 0.3 * (y - rows_y[1])), (1.64, y))
        ax.text(1.78, y, "×", ha="center", va="center", fontsize=15, color=INK)
        wide = "d_v" if name == "V" else "d_k"
        matrix(2.2, y, d_model, width, f"$W_{name}$", f"{d_model} × {width}", rf"$d_{{model}} \times {wide}$", colour)
        arrow(ax, (2.5, y), (2.85, y), colour)
        axes = rf"$n \times {wide}$"
        matrix(3.2, y, n, width, f"{role}  ${name} = XW_{name}$", f"{n} × {width}", axes, colour)
    middle = (rows_y[0] + rows_y[1]) / 2
    matrix(4.2, rows_y[1], d_k, n, r"$K^\top$", f"{d_k} × {n}", r"$d_k \times n$", BLUE)
    arrow(ax, (3.5, rows_y[0] - 0.1), (4.2, middle + 0.12), GREEN)
    arrow(ax, (3.36, rows_y[1]), (3.71, rows_y[1]), BLUE)
    arrow(ax, (4.28, rows_y[1] + 0.36), (4.28, middle - 0.14), BLUE)
    arrow(ax, (4.4, middle), (4.67, middle))
    square = r"$n \times n$"
    matrix(5.15, middle, n, n, r"scores  $QK^\top / \sqrt{d_k}$", f"{n} × {n}", square, GREY, "#f4f4f4")
    arrow(ax, (5.68, middle), (6.27, middle))
    ax.text(5.97, middle - 0.1, "softmax\nalong\nrows", ha="center", va="top", fontsize=9, color=INK)
    matrix(6.8, middle, n, n, r"weights  $A$", f"{n} × {n}", f"{square}, rows sum to 1", GREY, "#f4f4f4")
    arrow(ax, (6.4, middle - 0.88), (6.4, rows_y[2] + 0.14))
    arrow(ax, (3.6, rows_y[2]), (6.28, rows_y[2]), ORANGE)
    arrow(ax, (6.52, rows_y[2]), (6.82, rows_y[2]))
    for product in ((4.28, middle), (6.4, rows_y[2])):
        ax.text(*product, "×", ha="center", va="center", fontsize=15, color=INK)
    matrix(7.1, rows_y[2], n, d_v, "$O = AV$", f"{n} × {d_v}", r"$n \times d_v$", INK, "#ffffff")
    for x, y, columns in (
        (0.6, rows_y[1], d_model), (3.2, rows_y[0], d_k), (5.15, middle, n), (6.8, middle, n), (7.1, rows_y[2], d_v),
    ):  # fmt: skip
        row(x, y, n, columns, asking, PURPLE)
    for x, y, columns in ((0.6, rows_y[1], d_model), (3.2, rows_y[1], d_k), (3.2, rows_y[2], d_v)):
        row(x, y, n, columns, answering, INK)
    for x, y, rows in ((4.2, rows_y[1], d_k), (5.15, middle, n), (6.8, middle, n)):
        at = x + unit * (answering + 0.5 - n / 2)
        ax.plot([at, at], [y - unit * rows / 2, y + unit * rows / 2], color=INK, linewidth=4.5, alpha=0.6,
                solid_capstyle="butt")  # fmt: skip
        if rows < n:
            continue
        level = middle + unit * (n / 2 - asking - 0.5)
        ax.add_patch(Circle((at, level), 0.12, fill=False, edgecolor=INK, linewidth=1.5, zorder=3))
    if weight is not None:
        ax.text(at - 0.14, level + 0.17, rf"$\alpha$ = {weight:.2f}", ha="right", va="center", fontsize=9, color=INK)
    for which, name, colour in ((asking, names[0], PURPLE), (answering, names[1], INK)):
        level = rows_y[1] + unit * (n / 2 - which - 0.5)
        ax.text(0.22, level, name, ha="right", va="center", color=colour, fontsize=10, fontweight="bold")
    ax.text(-0.35, 0.35, f"“{names[0]}” asks", color=PURPLE, fontsize=10.5, fontweight="bold")
    ax.text(-0.35, 0.08, f"“{names[1]}” answers", color=INK, fontsize=10.5, fontweight="bold")
    show(
        drawn,
        f"Self-attention in matrices. X, {n} words by {d_model}, is multiplied by three matrices: W_Q and W_K, each "
        f"{d_model} by {d_k}, give Q and K, each {n} by {d_k}; W_V, {d_model} by {d_v}, gives V, {n} by {d_v}. Q times "
        f"K transposed ({d_k} by {n}) over the root of {d_k} is the {n} by {n} matrix of scores; softmax along its "
        f"rows makes it the weights A; A times V is the output O, {n} by {d_v}. The row of “{names[0]}”, which asks, "
        f"is striped from X through Q, scores and A to O; “{names[1]}”, which answers, is a row of X, K, V and a "
        "column of K transposed, scores and weights. A ring is where both meet"
        + (f", with a weight of {weight:.2f}." if weight is not None else "."),
    )


def monday_first(cards: Sequence[Tensor]) -> list[Tensor]:
    """Weeks with their cards sorted: the days on the cards, and what else is on them, (batch, 7) each."""
    order = cards[0].argsort(dim=-1)                                        # (batch, 7)  where Monday lies, …
    return [each.gather(1, order) for each in cards]


def padded_scores(words: Sequence[str], padding: int) -> None:
    """The scores of a sentence and its padding, a square: whose columns are forbidden, whose rows are ignored."""
    real, n = len(words), len(words) + padding
    drawn, ax = figure(5.0, 3.4)
    for i in range(n):
        for j in range(n):
            forbidden, ignored = j >= real, i >= real
            face = "white" if forbidden else "#f0f0f0" if ignored else "#c9dcef"
            hatch = "///" if forbidden else None
            ax.add_patch(Rectangle((j, i), 1, 1, facecolor=face, hatch=hatch, edgecolor=PALE, linewidth=1))
            score = "−∞" if forbidden else f"$e_{{{i + 1}{j + 1}}}$"
            ax.text(j + 0.5, i + 0.5, score, ha="center", va="center", fontsize=9.5, color=GREY if ignored else INK)
    names = [*words, *["pad"] * padding]
    ax.set_xticks(np.arange(n) + 0.5, names)
    ax.set_yticks(np.arange(n) + 0.5, names)
    ax.tick_params(length=0)
    ax.xaxis.tick_top()
    for label in (*ax.get_xticklabels()[real:], *ax.get_yticklabels()[real:]):
        label.set_color(GREY)
    ax.xaxis.set_label_position("top")
    ax.set_xlabel("keys: who answers", labelpad=7)
    ax.set_ylabel("queries: who asks", y=1 - n / 2 / (n + 0.6))
    ax.spines[:].set_visible(False)
    ax.set_xlim(0, n)
    ax.set_ylim(n + 0.6, 0)
    ax.text(-0.75, (real + n) / 2, "ignored", ha="right", va="center", fontsize=10, color=GREY)
    ax.text((real + n) / 2, n + 0.35, "forbidden", ha="center", va="center", fontsize=10, color=INK)
    show(
        drawn,
        f"A matrix of scores, {n} by {n}: {real} tokens, {', '.join(words)}, and {padding} times padding behind them. "
        "In the columns of the padding every score is −∞. Its rows have scores like the others, and what they give is "
        "ignored.",
    )


def lost_day(named: Mapping[str, tuple[Sequence[str], Tensor]], lost: str, found: str) -> None:
    """Attention weights of days, {title: (days, (n, n))}, a frame around the row of the lost day.

    Weights of 0.01 or more are written. The frame is in the first table alone, and in its row a dashed ring around the
    cell of the day that should be `found`.
    """
    drawn, axes = figure(8.6, 4.2, columns=len(named))
    said = []
    for ax, (title, (days, weights)) in zip(axes, named.items(), strict=True):
        rows = _table(ax, title, days, weights, first=ax is axes[0])
        for (i, j), value in np.ndenumerate(rows):
            if value >= 0.01:
                ax.text(j + 0.5, i + 0.5, f"{value:.2f}", ha="center", va="center", fontsize=9.5,
                        color="white" if value > 0.7 else INK)  # fmt: skip
        most = {day: days[int(row.argmax())] for day, row in zip(days, rows, strict=True)}
        said.append(f"{title}: {', '.join(f'{day} most at {at}' for day, at in most.items())}.")
    days, _ = next(iter(named.values()))
    row, column = days.index(lost), days.index(found)
    axes[0].add_patch(Rectangle((0, row), len(days), 1, fill=False, edgecolor=ORANGE, linewidth=2.2, clip_on=False,
                                zorder=3))  # fmt: skip
    axes[0].add_patch(Circle((column + 0.5, row + 0.5), 0.34, fill=False, edgecolor=ORANGE, linewidth=1.8,
                             linestyle="--", zorder=4))  # fmt: skip
    axes[0].get_yticklabels()[row].set(fontweight="bold", color=ORANGE)
    framed = f"{lost}, framed, should attend to {found}; a ring is around that cell."
    show(drawn, f"Attention weights of days. {' '.join(said)} {framed}")


def winding(runs: Mapping[str, tuple[Sequence[str], Tensor]]) -> None:
    """Vectors that each find the next by the largest product: the first run unrolled in a plane, the lengths of all.

    `runs`, {name: (names of the days, (n, d))}, the lost one last. On the left each vector of the first run is drawn as
    long as it is, and turned from the one before by the angle between the two; a dashed arc leads from the last to the
    first, which it does not find. Grey, below the first, is the shadow of the second on its line: longer than the first
    itself, or the second would not be found. On the right the lengths, a line for each run.
    """
    title, (names, first) = next(iter(runs.items()))
    n, size = len(names), first.norm(dim=-1)
    cosines = nn.functional.cosine_similarity(first[:-1], first[1:], dim=-1)
    angles = np.cumsum([0.0, *cosines.clamp(-1, 1).acos().tolist()]) + 0.1
    tips, top = np.stack([np.cos(angles), np.sin(angles)], axis=1) * size.numpy()[:, None], float(size.max())
    drawn, (left, right) = figure(8.8, 4.4, columns=2)
    (x_low, y_low), (x_high, y_high) = np.minimum(tips.min(axis=0), 0), tips.max(axis=0)
    stage(left, (x_low - 0.3 * top, x_high + 0.35 * top), (y_low - 0.87 * top, y_high + 0.15 * top))
    left.set_aspect("equal")
    left.set_title(f"{title}: each day and its length")
    shadow = (first[0] @ first[1] / size[0]).item()
    foot = shadow * np.array([np.cos(angles[0]), np.sin(angles[0])])
    left.plot(*np.stack([tips[1], foot], axis=1), color=GREY, linestyle=":", linewidth=1.5)
    below = 0.05 * top * np.array([np.sin(angles[0]), -np.cos(angles[0])])               # at right angles to the line
    bracket = [below / 2, below, foot + below, foot + below / 2]
    left.plot(*np.stack(bracket, axis=1), color=GREY, linewidth=1.5)
    for i, (name, (x, y)) in enumerate(zip(names, tips, strict=True)):
        arrow(left, (0, 0), (x, y), ORANGE if i == n - 1 else BLUE, width=1.8)
        near_next = i < n - 1 and angles[i + 1] - angles[i] < 0.15
        near_last = i > 0 and angles[i] - angles[i - 1] < 0.15
        turned = angles[i] - 0.12 * near_next + 0.12 * near_last             # apart, where two arrows nearly coincide
        at = (size[i].item() + 0.06 * top) * np.array([np.cos(turned), np.sin(turned)])
        side = "left" if at[0] > 0.2 * top else "right" if at[0] < -0.35 * top else "center"
        if i == 0:                                                           # above its head, clear of the shadow
            left.text(x + 0.035 * top, y + 0.02 * top, f"{name}\n{size[i]:.1f}", ha="center", va="bottom", fontsize=9.5,
                      linespacing=0.95, color=BLUE)  # fmt: skip
            continue
        left.text(*at, f"{name} {size[i]:.1f}", ha=side, va="center" if at[1] < 0.6 * top else "bottom", fontsize=10,
                  color=ORANGE if i == n - 1 else INK)  # fmt: skip
    left.text(foot[0] + 0.05 * top, foot[1] + 0.01 * top, f"shadow of\n{names[1]}: {shadow:.1f}", ha="left",
              va="top", fontsize=10, color=GREY)  # fmt: skip
    round_ = np.linspace(angles[-1] + 0.04, 2 * np.pi + angles[0] - 0.1, 60)         # the step that is missing
    reach = np.linspace(top, float(size[0]), 60)
    way = np.stack([reach * np.cos(round_), reach * np.sin(round_)], axis=1)
    left.plot(*way.T, color=ORANGE, linestyle="--", linewidth=1.5)
    arrow(left, tuple(way[-2]), tuple(way[-1]), ORANGE, width=1.5)
    lowest = way[way[:, 1].argmin()]
    left.text(lowest[0], lowest[1] - 0.04 * top, f"should find {names[0]}, but", ha="center", va="top", fontsize=10,
              color=ORANGE)  # fmt: skip
    found, itself = (first[-1] @ first[0]).item(), (first[-1] @ first[-1]).item()
    sign = "<" if found < itself else ">"
    missing = f"{names[-1]} · {names[0]} = {found:.0f}  {sign}  {names[-1]} · {names[-1]} = {itself:.0f}"
    left.text((x_low + x_high) / 2, y_low - 0.75 * top, missing.replace("-", "−"), ha="center", va="top", fontsize=10,
              color=ORANGE)  # fmt: skip
    days, said = list(range(1, n + 1)), []
    for name, (_, vectors) in runs.items():
        lengths = vectors.norm(dim=-1).tolist()
        right.plot(days, lengths, color=BLUE, marker="o", markersize=4.5, linewidth=1.2)
        right.plot(days[-1:], lengths[-1:], color=ORANGE, marker="o", markersize=6, linestyle="none")
        said.append(f"{name} {', '.join(f'{each:.1f}' for each in lengths)}")
    longest = max(vectors.norm(dim=-1).max().item() for _, vectors in runs.values())
    name_lines(right, "place in the week that begins after the lost day", "length of $u_i$")
    right.set_title(f"{len(runs)} seeds: longer every day")
    right.set_xticks(days, [*map(str, days[:-1]), f"{n}\nlost day"])
    right.set_ylim(0, 1.12 * longest)
    turned = ", ".join(f"{name} {math.degrees(angle - 0.1):.0f}°" for name, angle in zip(names, angles, strict=True))
    show(
        drawn,
        f"Arrows of growing length that open like a fan, each turned from the one before by the angle between them: "
        f"{turned}. The shadow of {names[1]} on the line of {names[0]} is {shadow:.1f} long. A dashed arc from "
        f"{names[-1]} to {names[0]}, which it should find: {missing.replace('-', '−')}. "
        f"Lengths: {'; '.join(said)}.",
    )


def two_orders(named: Mapping[str, tuple[Sequence[str], Tensor]], followed: Sequence[str]) -> None:
    """The attention matrices of one sentence in two orders, {title: (words, weights (n, n))}.

    The words in `followed`, at most two, have a colour each, and so has a frame around the column of each, in which the
    weights are written.
    """
    drawn, axes = figure(8.6, 4.2, columns=len(named))
    colours: dict[str, str] = dict(zip(followed, (INK, GREEN), strict=False))
    said: list[str] = []
    for ax, (title, (words, weights)) in zip(axes, named.items(), strict=True):
        rows = _table(ax, title, words, weights, first=ax is axes[0])
        turn_labels(ax)
        for label in (*ax.get_xticklabels(), *ax.get_yticklabels()):
            if label.get_text() in colours:
                label.set(color=colours[label.get_text()], fontweight="bold")
        for word, colour in colours.items():
            column = words.index(word)
            ax.add_patch(Rectangle((column, 0), 1, len(words), fill=False, edgecolor=colour, linewidth=2.2,
                                   clip_on=False, zorder=3))  # fmt: skip
            for i, value in enumerate(rows[:, column]):
                ax.text(column + 0.5, i + 0.5, f"{value:.2f}", ha="center", va="center", fontsize=9.5,
                        color="white" if value > 0.7 else INK)  # fmt: skip
        places = ", ".join(f"{word} is word {words.index(word) + 1}" for word in followed)
        asking = {word: [each for each, row in zip(words, rows, strict=True) if row[words.index(word)] > 0.3]
                  for word in followed}  # fmt: skip
        taken = "; ".join(f"{word} gets more than 0.3 from {', '.join(each)}" for word, each in asking.items())
        said.append(f"{title}: {places}; {taken}.")
    show(drawn, f"Attention matrices of one sentence in two orders. {' '.join(said)}")


def path_lengths(n: int, width: int) -> None:
    """How a signal gets from the first of `n` positions to the last: by recurrence, attention, restricted attention."""
    layers = max(1, -(-(n - 1) // width))
    drawn, (recurrent, full, windows) = figure(8.4, 3.3, columns=3)
    restricted = f"restricted, {width} on each side"
    for ax, title in ((recurrent, "recurrent"), (full, "self-attention"), (windows, restricted)):
        ax.set_axis_off()
        ax.set_title(title)
        ax.set_xlim(-0.6, n - 0.4)
    dots(recurrent, n, [0, 1])
    for t in range(n):
        _line(recurrent, (t, 0), (t, 1), on=t == 0)
        if t:
            _line(recurrent, (t - 1, 1), (t, 1), on=True)
    dots(full, n, [0, 1])
    for i in range(n):
        for j in range(n):
            _line(full, (j, 0), (i, 1), on=(j, i) == (0, n - 1))
    dots(windows, n, range(layers + 1))
    way = [min(n - 1, layer * width) for layer in range(layers + 1)]
    for layer in range(layers):
        for i in range(n):
            for j in range(max(0, i - width), min(n, i + width + 1)):
                _line(windows, (j, layer), (i, layer + 1), on=(j, i) == (way[layer], way[layer + 1]))
    for ax, count, unit, top in (
        (recurrent, n, "cells", 1), (full, 1, "layer", 1), (windows, layers, "layers", layers),
    ):  # fmt: skip
        ax.set_ylim(-0.5 * top, 1.2 * top)
        ax.text((n - 1) / 2, -0.22 * top, f"path: {count} {unit}", ha="center", va="top", fontsize=10.5)
        ax.text(-0.55, 0, "in", ha="right", va="center", fontsize=9, color=INK)
        ax.text(-0.55, top, "out", ha="right", va="center", fontsize=9, color=INK)
        ax.text(0, -0.07 * top, "first", ha="center", va="top", fontsize=9, color=INK)
        ax.text(n - 1, 1.07 * top, "last", ha="center", va="bottom", fontsize=9, color=INK)
    show(
        drawn,
        f"The way from the first of {n} positions to the last. Recurrent: through all {n} cells, one after the other. "
        f"Self-attention: one arrow, one layer. Restricted, {width} on each side: {layers} layers, {width} positions "
        "further in each.",
    )


def race(
    sizes: Sequence[int], times: Mapping[str, Sequence[float]], arithmetic: Sequence[float], marked: Sequence[int]
) -> None:
    """The times (seconds) of two layers against the length of their input, logarithmic axes, a name at each curve.

    `arithmetic` says, for each size, how many times the arithmetic of the second layer the first one does. At the sizes
    in `marked` this and the ratio of the times stand beside the first layer's point.
    """
    drawn, ax = figure(7.4, 4.0)
    (one, first), (other, second) = times.items()
    for i, (name, line) in enumerate(times.items()):
        ax.plot(sizes, [1000 * each for each in line], label=name, **line_style(i))
    ax.set_xscale("log")
    ax.set_yscale("log")
    name_lines(ax, "length n", "processor time (ms)")
    ax.get_legend().remove()
    ax.set_xticks(sizes, [f"{n:g}" for n in sizes])
    ax.yaxis.set_major_formatter("{x:g}")
    ax.minorticks_off()
    ax.set_xlim(0.8 * sizes[0], 1.4 * sizes[-1])
    ax.set_ylim(0.4 * 1000 * min(*first, *second), 2 * 1000 * max(*first, *second))
    middle = len(sizes) // 2
    for name, line, colour, place in ((one, first, BLUE, (10, -6)), (other, second, ORANGE, (-10, 6))):
        lower = place[0] > 0
        ax.annotate(name, (sizes[middle], 1000 * line[middle]), place, textcoords="offset points", fontsize=11,
                    ha="left" if lower else "right", va="top" if lower else "bottom", color=colour)  # fmt: skip
    said = []
    for n in marked:
        i = sizes.index(n)
        note = f"{arithmetic[i]:g} × the arithmetic\n{first[i] / second[i]:.2g} × the time"
        slower = first[i] > second[i]                                        # then its own point is the upper one
        ax.annotate(note, (n, 1000 * first[i]), (-12, 2) if slower else (10, -8), textcoords="offset points",
                    ha="right" if slower else "left", va="bottom" if slower else "top", fontsize=10, color=BLUE,
                    bbox={"facecolor": "white", "edgecolor": "none", "pad": 1})  # fmt: skip
        said.append(f"at {n}, {note.replace(chr(10), ' in ')}")
    show(
        drawn,
        f"Processor time against length. {one} goes from {1000 * first[0]:.2g} to {1000 * first[-1]:.2g} ms, {other} "
        f"from {1000 * second[0]:.2g} to {1000 * second[-1]:.2g} ms. {one}, beside {other}: {'; '.join(said)}.",
    )


def _line(ax: Axes, start: tuple[float, float], end: tuple[float, float], on: bool) -> None:
    ax.plot(
        [start[0], end[0]], [start[1], end[1]], color=ORANGE if on else "#bdbdbd", linewidth=2.6 if on else 0.9,
        zorder=2 if on else 1,
    )  # fmt: skip
    if on:
        before = [a + 0.7 * (b - a) for a, b in zip(start, end, strict=True)]             # a head that no dot covers
        arrow(ax, start, (before[0], before[1]), ORANGE, width=2.6)


def _table(
    ax: Axes, title: str, names: Sequence[str], weights: Tensor, first: bool = True, numbers: bool = False
) -> np.ndarray:
    """Weights (n, n) as a table, queries down and keys across; the `first` beside others names the queries."""
    rows = as_matrix(weights, names, names)
    check_shares("weights", rows)
    cells(ax, rows, names, names, numbers=numbers)
    ax.collections[0].set(edgecolor=PALE, linewidth=0.8)                # a row of zeros can be followed to its name
    ax.set_title(title, pad=8)
    ax.set_xlabel("key")
    ax.set_ylabel("query" if first else "")
    ax.xaxis.tick_top()
    ax.xaxis.set_label_position("bottom")
    return rows
