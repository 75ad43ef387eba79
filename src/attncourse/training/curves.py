"""A run as it goes: its loss and its score, drawn again every few seconds in one place on the page."""

import time

import numpy as np
from IPython.display import display
from matplotlib.figure import Figure

from attncourse.training.progress import Progress
from attncourse.viz.style import BLUE, INK, ORANGE, figure, picture


class LiveCurves:
    """A listener for `train`: the loss of every step, smoothed, and `score` at each evaluation.

    The picture is drawn anew at most every `seconds`, and a last time when the run ends; a saved notebook keeps that.

    >>> train(model, pairs, recipe, evaluate=evaluate, listeners=[LiveCurves("exact")])  # doctest: +SKIP
    """

    def __init__(self, score: str, seconds: float = 2.0):
        self.score, self.seconds = score, seconds
        self.drawn = -np.inf
        self.handle = None

    def __call__(self, progress: Progress) -> None:
        if not progress.ended and time.monotonic() < self.drawn + self.seconds:
            return
        drawn, alt = progress_figure(progress, self.score)
        data, metadata = picture(drawn, alt)
        if self.handle is None:
            self.handle = display(data, metadata=metadata, raw=True, display_id=True)
        else:
            self.handle.update(data, metadata=metadata, raw=True)
        self.drawn = time.monotonic()


def progress_figure(progress: Progress, score: str) -> tuple[Figure, str]:
    """The losses so far, and `score` at the evaluations; with the words that say it. Raises ValueError for no step."""
    if not progress.steps:
        raise ValueError("progress: got a run without a step, expected at least one")
    steps = np.array([step.step for step in progress.steps])
    losses = np.array([step.loss for step in progress.steps])
    width = max(1, len(losses) // 60)
    smooth = np.convolve(losses, np.ones(width) / width, mode="valid")
    drawn, (left, right) = figure(7.6, 2.9, columns=2)
    left.plot(steps[width - 1 :], smooth, color=BLUE, linewidth=2)
    right.plot(
        [at["step"] for at in progress.scores], [at[score] for at in progress.scores],
        color=ORANGE, marker="s", linewidth=2, markersize=5,
    )  # fmt: skip
    for ax, name in ((left, "training loss (nats a token)"), (right, f"{score} on the validation pairs")):
        ax.set_xlim(0, progress.recipe.steps)
        ax.set_xlabel("step")
        ax.set_title(name, fontsize=10.5, color=INK)
        ax.grid(axis="y", alpha=0.4)
    how = {"": "so far", "steps": "and done", "patience": "and stopped, as it got no better"}
    said = f"{progress.step} of {progress.recipe.steps} steps {how.get(progress.ended, 'and stopped by hand')}"
    alt = f"{said}: training loss from {smooth[0]:.2f} to {smooth[-1]:.2f} nats a token."
    if progress.scores:
        values = ", ".join(f"{at[score]:.3g} at step {at['step']:.0f}" for at in progress.scores)
        alt += f" {score} on the validation pairs: {values}."
    return drawn, alt
