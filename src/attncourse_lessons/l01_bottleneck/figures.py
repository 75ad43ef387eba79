"""Drawings of recurrence: a network unrolled, its gates, and how far a signal walks; and lines through measurements."""

from collections.abc import Sequence
from itertools import pairwise

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from attncourse.viz.diagrams import arrow, box
from attncourse.viz.style import (
    BLUE,
    GREEN,
    GREY,
    INK,
    ORANGE,
    PALE,
    PURPLE,
    figure,
    show,
    stage,
)


def unrolled_rnn(tokens: Sequence[str]) -> None:
    """A recurrent language model over `tokens`: below each state what it has read, above it what it must guess."""
    n = len(tokens) - 1
    drawn, ax = figure(1.3 + 1.55 * n, 2.9)
    stage(ax, (-1.6, 2.6 * n - 0.9), (-0.5, 5.0))
    arrow(ax, (-1.35, 2.1), (-0.6, 2.1))
    ax.text(-1.4, 2.1, "$h_0$", ha="right", va="center", fontsize=11)
    for t, (read, guess) in enumerate(pairwise(tokens), start=1):
        x = 2.6 * (t - 1)
        ax.text(x, 0.0, read, ha="center", va="center", fontsize=10.5)
        arrow(ax, (x, 0.35), (x, 1.55))
        box(ax, x, 2.1, f"$h_{t}$", BLUE)
        arrow(ax, (x, 2.65), (x, 3.75))
        ax.text(x, 4.1, guess, ha="center", va="center", fontsize=10.5, color=ORANGE)
        if t < n:
            arrow(ax, (x + 0.6, 2.1), (x + 2.0, 2.1), width=1.8)
    for y, words in ((0.0, "is read"), (4.1, "is to be guessed")):
        ax.text(-1.6, y, words, ha="right", va="center", fontsize=10, color=GREY)
    steps = "; ".join(f"state {t} has read {a} and guesses {b}" for t, (a, b) in enumerate(pairwise(tokens), start=1))
    show(drawn, f"A recurrent network unrolled. Each state is made of the state before and one token: {steps}.")


def lstm_and_gru() -> None:
    """An LSTM and a GRU: what is kept of the old state, and what is added to it."""
    drawn, (lstm, gru) = figure(9.2, 3.3, columns=2)
    for ax, title in ((lstm, "LSTM"), (gru, "GRU")):
        stage(ax, (-1.3, 10.2), (-0.3, 7.4))
        ax.set_title(title)
    for ax, old in ((lstm, "$c_{t-1}$"), (gru, "$h_{t-1}$")):
        ax.text(-0.7, 5.2, old, ha="center", va="center", fontsize=11)
        arrow(ax, (-0.1, 5.2), (1.5, 5.2), width=2.4)
        box(ax, 2.0, 5.2, "×", PURPLE, width=0.9)
        arrow(ax, (2.5, 5.2), (4.6, 5.2), width=2.4)
        box(ax, 5.1, 5.2, "+", PURPLE, width=0.9)
    for ax, keep, take, fresh in ((lstm, "$f$", "$i$", r"$\tilde c$"), (gru, "$z$", "$1-z$", r"$\tilde h$")):
        box(ax, 2.0, 2.6, keep, GREEN, width=1.2)
        arrow(ax, (2.0, 3.15), (2.0, 4.65), colour=GREEN)
        box(ax, 4.4, 2.6, take, GREEN, width=1.4)
        box(ax, 6.3, 2.6, fresh, BLUE, width=1.2)
        arrow(ax, (4.5, 3.15), (4.95, 4.65), colour=GREEN)
        arrow(ax, (6.2, 3.15), (5.25, 4.65), colour=BLUE)
    for ax, reset in ((lstm, False), (gru, True)):
        ax.plot([2.0, 6.3 if reset else 8.2], [1.2, 1.2], color=GREY, linewidth=1.2)
        for x in (2.0, 4.4, 6.3, *(() if reset else (8.2,))):
            arrow(ax, (x, 1.2), (x, 2.05))
        ax.text(1.7, 1.2, "$x_t,\\ h_{t-1}$", ha="right", va="center", fontsize=11)
    arrow(lstm, (5.6, 5.2), (9.2, 5.2), width=2.4)
    lstm.text(9.7, 5.2, "$c_t$", ha="center", va="center", fontsize=11)
    box(lstm, 8.2, 2.6, "$o$", GREEN, width=1.2)
    arrow(lstm, (8.2, 3.15), (8.2, 6.0), colour=GREEN)
    lstm.text(8.2, 6.45, r"$h_t = o \circ \tanh c_t$", ha="center", va="center", fontsize=11)
    arrow(gru, (5.6, 5.2), (9.2, 5.2), width=2.4)
    gru.text(9.7, 5.2, "$h_t$", ha="center", va="center", fontsize=11)
    gru.text(7.1, 2.6, "sees the past\nthrough $r$", ha="left", va="center", fontsize=10, color=INK)
    for ax in (lstm, gru):
        ax.text(2.0, 6.1, "keep", ha="center", va="center", fontsize=10, color=GREY)
        ax.text(5.1, 6.1, "add", ha="center", va="center", fontsize=10, color=GREY)
        ax.text(4.4, 0.2, "gates, 0 to 1, and a candidate, −1 to 1", ha="center", va="center", fontsize=10, color=GREY)
    show(
        drawn,
        "Two gated cells. LSTM: the old cell state c is multiplied by the forget gate f, and the input gate i times "
        "the candidate is added; the output gate o times tanh of the new cell state is h. GRU: the old state h is "
        "multiplied by z, and 1 − z times the candidate is added; the candidate sees the past through the reset gate "
        "r. All gates are computed from the input and the old h.",
    )


def signal_path(n: int, distance: int) -> tuple[Figure, str]:
    """How a signal gets to the last of `n` positions from `distance` before: by recurrence and by attention.

    The numbers in the boxes say after how many steps, at the earliest, a state can be there. For `explore`.
    """
    start, end = n - 1 - distance, n - 1
    drawn, (recurrent, attention) = figure(6.4, 3.4, rows=2)
    cells = distance + 1
    for ax, title in (
        (recurrent, f"recurrent: the signal goes through {cells} cells; {n} steps, one after the other"),
        (attention, "attention: the signal goes through 1 average; 1 step, all positions at once"),
    ):
        stage(ax, (-0.9, 15.9), (-0.55, 2.6))
        ax.set_title(title, fontsize=10.5)
    for t in range(n):
        on = start <= t <= end
        _cell(recurrent, t, f"{t + 1}", on)
        arrow(recurrent, (t, 0.15), (t, 1.05), ORANGE if t == start else PALE, 2.2 if t == start else 1.0)
        if t:
            arrow(recurrent, (t - 0.66, 1.55), (t - 0.34, 1.55), *((ORANGE, 2.2) if start < t <= end else (GREY, 1.0)))
        _cell(attention, t, "1", t == end)
        if t != start:
            arrow(attention, (t, 0.15), (end, 1.05), PALE, 1.0)
    arrow(attention, (start, 0.15), (end, 1.05), ORANGE, 2.2)
    for ax in (recurrent, attention):
        for t in range(n):
            ends = t in (start, end)
            ax.text(t, -0.15, f"$x_{{{t + 1}}}$", ha="center", va="center", fontsize=9.5, color=INK if ends else GREY)
    return drawn, (
        f"{n} positions, a signal from x{start + 1} to the last. Recurrent: it goes through {cells} cells, and the "
        f"last state is there after {n} steps. Attention: through one average, and all states are there after 1 step."
    )


def _cell(ax: Axes, x: float, label: str, on: bool) -> None:
    box(ax, x, 1.6, label, ORANGE if on else GREY, width=0.6, fill=None if on else "white")
