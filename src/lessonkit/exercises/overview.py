"""What `check_all()` shows: every check of a notebook as it is saved, run in a process of its own."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from html import escape
from pathlib import Path

from lessonkit.exercises.verdict import as_html
from lessonkit.kernel import Misuse

SAVED_WITHIN = 40.0  # seconds; JupyterLab saves by itself every thirty
SAVES_WITHIN = 2.0  # seconds; ours is told to, before it runs check_all()
WORKER = "lessonkit.learner.whole"


class NotChecked(Misuse, RuntimeError):
    """The notebook as a whole could not be run."""


@dataclass(frozen=True)
class Line:
    """An exercise or a written question: its points, and the first thing that is wrong."""

    name: str
    cell: str | None  # the notebook's id of the answer's cell
    points: float | None  # None: a person gives them
    out_of: float
    extra: bool
    problem: str


@dataclass(frozen=True)
class Overview:
    """One card for a whole notebook."""

    notebook: str
    lines: tuple[Line, ...]
    repairs: tuple[str, ...]
    errors: tuple[str, ...]  # cells that stopped, which no check looks at
    saved: str  # when, as one says it
    seconds: float

    @property
    def points(self) -> float:
        return sum(line.points or 0 for line in self.lines if not line.extra)

    @property
    def out_of(self) -> float:
        return sum(line.out_of for line in self.lines if line.points is not None and not line.extra)

    @property
    def total(self) -> str:
        """`23 of 26 by checks, 3 by hand`."""
        by_hand = sum(line.out_of for line in self.lines if line.points is None)
        extra = sum(line.points or 0 for line in self.lines if line.extra)
        told = f"{self.points:g} of {self.out_of:g} by checks"
        return told + (f", {by_hand:g} by hand" if by_hand else "") + (f", {extra:g} extra" if extra else "")

    @property
    def remarks(self) -> list[str]:
        """What is to be said beside the table."""
        told = [f"Where it is graded, this would be repaired: {'; '.join(self.repairs)}."] if self.repairs else []
        told += [f"A cell that no check looks at stopped: {error}." for error in self.errors]
        told.append(
            f"This is {self.notebook} as it was saved at {self.saved}, run from the top in {self.seconds:.0f} s. "
            "Points are given on other inputs than these."
        )
        return told

    def __repr__(self) -> str:
        lines = [f"{Path(self.notebook).stem}: {self.total}"]
        lines += [f"  {_mark(line)} {line.name:<28}{_worth(line):<14}{line.problem}".rstrip() for line in self.lines]
        return "\n".join([*lines, "", *self.remarks])

    def _repr_html_(self) -> str:
        full = self.points == self.out_of
        style = "text-align:left; vertical-align:top; padding:0.1em 0.9em 0.1em 0; border:none"
        rows = "".join(
            f"<tr style='background:none'>"
            f"<td style='{style}; font-weight:bold; color:{_colour(line)}'>{_mark(line)}</td>"
            f"<td style='{style}'>{_linked(line)}</td><td style='{style}; white-space:nowrap'>{_worth(line)}</td>"
            f"<td style='{style}'>{as_html(line.problem)}</td></tr>"
            for line in self.lines
        )
        under = "margin:0.5em 0 0; opacity:0.8; max-width:46em"
        said = "".join(f"<p style='{under}'>{as_html(remark)}</p>" for remark in self.remarks)
        return (
            f"<div style='border-left:4px solid {'#009E73' if full else '#D55E00'}; padding:0.3em 0 0.4em 0.9em'>"
            f"<div style='margin-bottom:0.3em'><strong>{escape(self.total)}</strong></div>"
            f"<table style='border-collapse:collapse; margin:0'><tbody>{rows}</tbody></table>{said}</div>"
        )


def _mark(line: Line) -> str:
    if line.points is None:
        return "·"
    return "✓" if line.points == line.out_of else "✗"


def _colour(line: Line) -> str:
    return "inherit" if line.points is None else "#009E73" if line.points == line.out_of else "#D55E00"


def _worth(line: Line) -> str:
    if line.points is None:
        return f"{line.out_of:g} by hand"
    return f"{line.points:g} of {line.out_of:g}{' extra' if line.extra else ''}"


def _linked(line: Line) -> str:
    name = f"<code>{escape(line.name)}</code>"
    return f"<a href='#cell-id={escape(line.cell, quote=True)}'>{name}</a>" if line.cell else name


def _show(text: str) -> None:
    print(text, end="", flush=True)


def run(
    course: str, notebook: Path, not_saved: Callable[[], str | None], show: Callable[[str], None] = _show
) -> Overview:
    """Check all of a notebook's file. It waits a little where `not_saved` says that the file is older than what ran.

    `show` is given how far it is, to print. NotChecked where it stays so, or where the process ends without a result.
    """
    _wait(not_saved)
    command = [sys.executable, "-m", WORKER, course, str(notebook)]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, encoding="utf-8", start_new_session=True
    )
    answer: dict | None = None
    shown = 0
    assert process.stdout is not None and process.stderr is not None
    try:
        for line in process.stdout:
            said = json.loads(line)
            if "cell" in said:
                text = f"\rRunning it from the top: cell {said['cell']} of {said['of']} …"
                shown = len(text)
                show(text)
            else:
                answer = said
        problem = process.stderr.read().strip().splitlines()
    except KeyboardInterrupt:
        raise NotChecked("stopped: nothing was checked") from None
    finally:
        _end(process)
        show("\r" + " " * shown + "\r")
    if answer is None or "refused" in answer:
        last = problem[-1] if problem else "it ended without a word"
        raise NotChecked(answer["refused"] if answer else f"{notebook.name} could not be checked: {last}")
    lines = tuple(Line(**each) for each in answer["lines"])
    return Overview(
        notebook.name, lines, tuple(answer["repairs"]), tuple(answer["errors"]), answer["saved"], answer["seconds"]
    )


def _wait(not_saved: Callable[[], str | None]) -> None:
    start, told = time.monotonic(), False
    while (what := not_saved()) is not None:
        if time.monotonic() - start > SAVED_WITHIN:
            raise NotChecked(f"{what} is not saved yet: save the notebook (Ctrl+S), and run this again")
        if not told and time.monotonic() - start > SAVES_WITHIN:
            print("Waiting until the notebook is saved (Ctrl+S is faster) …", flush=True)
            told = True
        time.sleep(0.3)


def _end(process: subprocess.Popen) -> None:
    """End the process, and the kernel that it has started, if it is still there."""
    if process.poll() is None:
        with contextlib.suppress(OSError):
            if hasattr(os, "killpg"):
                os.killpg(process.pid, signal.SIGKILL)
            else:
                process.kill()
    process.wait()
