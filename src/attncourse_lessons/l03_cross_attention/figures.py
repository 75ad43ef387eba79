"""An encoder and a decoder with attention, drawn; and accuracy by length."""

from collections.abc import Mapping
from itertools import pairwise

from matplotlib.ticker import PercentFormatter

from attncourse.viz.diagrams import arrow, box
from attncourse.viz.style import (
    BLUE,
    GREEN,
    GREY,
    INK,
    ORANGE,
    PURPLE,
    WEIGHTS,
    figure,
    line_style,
    name_lines,
    show,
    stage,
)


def encoder_decoder() -> None:
    """One step of a decoder that looks at its encoder: scores, weights, weighted sum, concatenation, prediction."""
    source = ("ninety-", "one", ",", "two")
    scores = (0.3, 3.1, -0.9, 0.6)
    weights = (0.05, 0.86, 0.02, 0.07)
    drawn, ax = figure(8.2, 4.9)
    stage(ax, (0, 16.4), (0, 9.8))

    columns = [1.3 + 1.9 * j for j in range(len(source))]
    for i, (x, word, e, a) in enumerate(zip(columns, source, scores, weights, strict=True), start=1):
        ax.text(x, 0.35, word, ha="center", va="center", fontsize=11, color=INK)
        arrow(ax, (x, 0.7), (x, 1.35))
        box(ax, x, 1.9, rf"$h_{i}$", BLUE)
        arrow(ax, (x, 2.45), (x, 3.35))
        box(ax, x, 3.85, f"{e:.1f}".replace("-", "−"), GREY, fill="white")
        arrow(ax, (x, 4.35), (x, 5.05))
        box(ax, x, 5.55, f"{a:.2f}", GREY, fill=WEIGHTS(a), text="white" if a > 0.5 else INK)
        arrow(ax, (x, 6.05), (4.15, 7.1), width=0.8 + 5 * a, colour=ORANGE if a > 0.5 else "#e9b48a")
    for left, right in pairwise(columns):
        arrow(ax, (left + 0.55, 1.9), (right - 0.55, 1.9), both=True)
    box(ax, 4.15, 7.6, "$a_t$", ORANGE)

    box(ax, 11.3, 1.9, "$s_t$", GREEN)
    arrow(ax, (9.75, 1.9), (10.7, 1.9))
    ax.text(9.65, 2.15, "$s_{t-1}$", ha="right", va="center", fontsize=11)
    ax.text(11.3, 0.35, "token before, $\\tilde a_{t-1}$", ha="center", va="center", fontsize=10.5)
    arrow(ax, (11.3, 0.7), (11.3, 1.35))
    # The decoder's state is the query: it meets every encoder state.
    ax.plot([11.3, 11.3], [2.45, 2.9], color=GREEN, linewidth=1.6)
    ax.plot([columns[0], 11.3], [2.9, 2.9], color=GREEN, linewidth=1.6)
    arrow(ax, (11.3, 2.9), (11.3, 7.05), colour=GREEN, width=1.6)

    box(ax, 11.3, 7.6, "$[a_t;\\, s_t]$", PURPLE, width=1.8)
    arrow(ax, (4.75, 7.6), (10.35, 7.6), colour=ORANGE, width=1.6)
    arrow(ax, (12.25, 7.6), (13.15, 7.6))
    box(ax, 14.2, 7.6, "$\\tilde a_t$", PURPLE, width=1.9)
    arrow(ax, (14.2, 8.15), (14.2, 8.85))
    ax.text(14.2, 9.25, "next token: ein", ha="center", va="center", fontsize=11)

    for y, name, equation in (
        (3.85, "scores", r"$e_{ti} = s_t \cdot h_i$"),
        (5.55, "weights", r"$\alpha_{ti} = \mathrm{softmax}_i(e_{ti})$"),
    ):
        ax.text(7.75, y + 0.25, name, ha="left", va="center", fontsize=10.5, color=INK)
        ax.text(7.75, y - 0.25, equation, ha="left", va="center", fontsize=10.5, color=INK)
    ax.text(4.15, 8.55, r"$a_t = \sum_i \alpha_{ti} h_i$", ha="center", va="center", fontsize=11)
    ax.text(11.3, 8.55, "concatenate", ha="center", va="center", fontsize=10.5)
    ax.text(14.2, 6.6, r"$\tanh(W[a_t; s_t])$", ha="center", va="center", fontsize=10.5)
    ax.text(12.0, 1.9, "decoder state,\nthe query", ha="left", va="center", fontsize=10.5)
    ax.text(-0.1, 1.9, "encoder\nstates: keys\nand values", ha="right", va="center", fontsize=10.5)

    show(
        drawn,
        "One decoding step. The encoder turns ninety-one, two into the states h1 to h4. The decoder state s_t is "
        "compared with each: scores 0.3, 3.1, −0.9, 0.6. Softmax makes them the weights 0.05, 0.86, 0.02, 0.07. The "
        "states, so weighted, sum to a_t, which is joined to s_t and, through tanh of a linear map, predicts the next "
        "token: ein.",
    )


def accuracy_by_length(
    accuracy: Mapping[str, Mapping[tuple[int, int], float]],
    x_name: str = "length of the source (tokens)",
    title: str = "",
    alt: str = "",
) -> None:
    """Accuracy against length, a line for each model: {model: what `metrics.accuracy_by_length` returns}."""

    def label(bucket: tuple[int, int]) -> str:
        shortest, longest = bucket
        return f"{shortest}" if shortest == longest else f"{shortest}–{longest}"

    buckets = sorted({bucket for line in accuracy.values() for bucket in line})
    drawn, ax = figure(6.6, 3.6)
    for i, (name, line) in enumerate(accuracy.items()):
        xs = [x for x, bucket in enumerate(buckets) if bucket in line]
        ax.plot(xs, [line[buckets[x]] for x in xs], label=name, clip_on=False, **line_style(i))
    ax.set_xticks(range(len(buckets)), map(label, buckets))
    ax.set_ylim(0, 1)
    ax.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    name_lines(ax, x_name, "exactly right", title)
    said = "; ".join(
        f"{name}: " + ", ".join(f"{share:.0%} at {label(bucket)}" for bucket, share in sorted(line.items()))
        for name, line in accuracy.items()
    )
    show(drawn, alt or f"Share of sentences exactly right against {x_name}. {said}.")
