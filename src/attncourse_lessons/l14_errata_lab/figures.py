"""Pictures of errata: what a claim says and what its test finds, and which test catches what."""

import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from attncourse.viz.style import BLUE, GREY, INK, ORANGE, PALE, figure, hold_still, show, stage


def erratum_frame(entry: Any, loss: str = "") -> tuple[Figure, str]:
    """One erratum: where it stands, what it says, what its test finds as printed and corrected. For `explore`.

    `entry` is an `attncourse_lessons.errata.Erratum`; to import that here would make every lecture depend on the list.
    `loss` says what training showed of it. Returns the figure and the words for it. """
    drawn, ax = figure(6.5, 3.4)
    hold_still(drawn, left=0.02, right=0.98, bottom=0.02, top=0.98)
    stage(ax, (0, 100), (100, 0))
    printed, corrected = entry.test(entry.printed), entry.test(entry.corrected)
    slip = "  (it may be a slip of the transcription)" * entry.slip
    y = _lines(ax, 3, entry.name, INK, 74, weight="bold", fontsize=11)
    y = _lines(ax, y + 1, f"{entry.found_in}. {entry.place}{slip}", GREY, 88, style="italic")
    y = _lines(ax, y + 2, entry.claim, ORANGE, 74, label="says")
    y = _lines(ax, y + 2, entry.correction, BLUE, 74, label="right")
    y = _lines(ax, y + 5, entry.question, INK, 74, label="asked", weight="bold")
    for name, found, colour in (("printed", printed, ORANGE), ("corrected", corrected, BLUE)):
        y = _lines(ax, y + 2, f"{'✓' if found.passes else '✗'} {found.measured}", colour, 74, label=name)
    if loss:
        _lines(ax, y + 5, loss, INK, 74, label="the loss")
    words = (
        f"{entry.name}. The slide says: {entry.claim}. Right: {entry.correction}. Asked: {entry.question} "
        f"As printed: {printed.measured}; corrected: {corrected.measured}." + f" The loss: {loss}." * bool(loss)
    )
    return drawn, words


def _lines(ax: Axes, y: float, text: str, colour: str, width: int, label: str = "", **font) -> float:
    """Wrapped text from this height downwards, and what it is to the left of it; returns the height below it."""
    if label:
        ax.text(15, y, label, ha="right", va="top", fontsize=8.5, color=GREY)
    for line in textwrap.wrap(text, width):
        ax.text(18 if label else 2, y, line, ha="left", va="top", color=colour, **{"fontsize": 9.5, **font})
        y += 6.6
    return y


def caught_table(rows: Mapping[str, Mapping[str, tuple[bool, str]]], alt: str = "") -> None:
    """Faults down, tests along, {fault: {test: (caught, a word)}}: dark and marked where a test catches the fault."""
    tests: Sequence[str] = list(next(iter(rows.values())))
    drawn, ax = figure(3.3 + 0.84 * len(tests), 1.0 + 0.29 * len(rows))
    stage(ax, (-3.5, len(tests)), (len(rows), -1.6))
    for column, name in enumerate(tests):
        for k, line in enumerate(reversed(textwrap.wrap(name, 9))):
            ax.text(column + 0.5, -0.25 - 0.42 * k, line, ha="center", va="bottom", fontsize=8.6, color=INK)
    said = []
    for row, (fault, found) in enumerate(rows.items()):
        ax.text(-0.1, row + 0.5, fault, ha="right", va="center", fontsize=9.2, color=INK)
        for column, name in enumerate(tests):
            caught, word = found[name]
            fill = (0.84, 0.37, 0.0, 0.30) if caught else "white"
            ax.add_patch(Rectangle((column, row), 1, 1, facecolor=fill, edgecolor=PALE))
            words = f"{'●' if caught else '·'} {word}".strip()
            ax.text(column + 0.5, row + 0.5, words, ha="center", va="center", fontsize=8.6, color=INK)
        by = [name for name in tests if found[name][0]]
        said.append(f"{fault}: {', '.join(by) if by else 'nothing'}")
    show(drawn, alt or f"Which test catches which fault. {'; '.join(said)}.")
