"""Pictures of errata: lines of the game, which test catches what, and runs of several seeds."""

import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from attncourse.viz.style import GREY, INK, PALE, figure, hold_still, line_style, name_lines, show, stage


def lines_of(rows: Sequence[tuple[str, str]], words: str) -> tuple[Figure, str]:
    """Rows of (label, text), one below the other, wrapped: how the game stands, where it cannot be played."""
    drawn, ax = figure(6.5, 3.0)
    hold_still(drawn, left=0.02, right=0.98, bottom=0.02, top=0.98)
    stage(ax, (0, 100), (90, 0))
    y = 3.0
    for label, text in rows:
        y = 2 + _lines(ax, y, text, INK, 78, label=label, **({"weight": "bold"} if label == "says" else {}))
    return drawn, words


def _lines(ax: Axes, y: float, text: str, colour: str, width: int, label: str, **font: Any) -> float:
    """Wrapped text from this height downwards, and what it is to the left of it; returns the height below it."""
    ax.text(12, y, label, ha="right", va="top", fontsize=9.5, color=GREY)
    for line in textwrap.wrap(text, width):
        ax.text(15, y, line, ha="left", va="top", color=colour, **{"fontsize": 9.5, **font})
        y += 6.6
    return y


def caught_table(rows: Mapping[str, Mapping[str, tuple[bool, str]]], alt: str = "") -> None:
    """Faults down, tests along, {fault: {test: (caught, a word)}}: coloured, with a dot, where one catches it."""
    tests: Sequence[str] = list(next(iter(rows.values())))
    drawn, ax = figure(2.9 + 0.74 * len(tests), 1.0 + 0.29 * len(rows))
    stage(ax, (-3.7, len(tests)), (len(rows), -1.6))
    for column, name in enumerate(tests):
        for k, line in enumerate(reversed(textwrap.wrap(name, 9))):
            ax.text(column + 0.5, -0.25 - 0.48 * k, line, ha="center", va="bottom", fontsize=9.5, color=INK)
    ax.text(-0.1, -0.25, "mutant", ha="right", va="bottom", fontsize=9.5, style="italic", color=GREY)
    said = []
    for row, (fault, found) in enumerate(rows.items()):
        ax.text(-0.1, row + 0.5, fault, ha="right", va="center", fontsize=9.5, color=INK)
        for column, name in enumerate(tests):
            caught, word = found[name]
            fill = (0.84, 0.37, 0.0, 0.30) if caught else "white"
            ax.add_patch(Rectangle((column, row), 1, 1, facecolor=fill, edgecolor=PALE))
            words = f"{'●' if caught else '·'} {word}".strip()
            ax.text(column + 0.5, row + 0.5, words, ha="center", va="center", fontsize=9.5, color=INK)
        by = [name for name in tests if found[name][0]]
        said.append(f"{fault}: {', '.join(by) if by else 'nothing'}")
    show(drawn, alt or f"Which test catches which fault. {'; '.join(said)}.")


def seed_curves(
    lines: Mapping[str, Sequence[Sequence[float]]], xs: Sequence[float], x_name: str, y_name: str
) -> None:
    """Lines over one axis, {name: a line for each seed}: thin for each seed, thick for their mean."""
    drawn, ax = figure(6.6, 3.4)
    said = []
    for i, (name, runs) in enumerate(lines.items()):
        mean = [sum(values) / len(runs) for values in zip(*runs, strict=True)]
        ax.plot(xs, mean, label=f"{name} (mean)", **line_style(i))
        for run in runs:
            ax.plot(xs, run, color=line_style(i)["color"], linewidth=0.8, alpha=0.6)
        said.append(f"{name} goes from {mean[0]:.2f} to {mean[-1]:.2f} in the mean of {len(runs)} seeds")
    ax.set_xscale("log")
    ax.set_xticks(xs, [f"{x:g}" for x in xs])
    ax.minorticks_off()
    name_lines(ax, x_name, y_name)
    show(drawn, f"{y_name} against {x_name}. {'; '.join(said)}.")


def paired_seeds(losses: Mapping[str, Sequence[float]], y_name: str) -> None:
    """Losses of models side by side, {model: one for each seed}: a line joins those of one seed."""
    drawn, ax = figure(5.2, 3.2)
    names, seeds = list(losses), range(len(next(iter(losses.values()))))
    for seed in seeds:
        values = [losses[name][seed] for name in names]
        ax.plot(range(len(names)), values, label=f"seed {seed}", **line_style(seed))
    ax.set_xticks(range(len(names)), names)
    ax.set_xlim(-0.3, len(names) - 0.5)
    name_lines(ax, "", y_name)
    said = "; ".join(f"seed {s}: {', '.join(f'{name} {losses[name][s]:.3f}' for name in names)}" for s in seeds)
    show(drawn, f"{y_name.capitalize()}, the runs of one seed joined. {said}.")
