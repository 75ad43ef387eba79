"""The exercises of the course, and the calls that a notebook makes: `check`, `hint` and `progress`."""

from __future__ import annotations

import difflib
import hashlib
import importlib
import os
import pkgutil
import sys
import textwrap
from collections.abc import Sequence
from functools import cache
from typing import Any

from attncourse.exercises import record
from attncourse.exercises.core import Alternative, Aspect, Exercise, Misconception
from attncourse.exercises.judge import judge
from attncourse.exercises.observe import Observation, observe
from attncourse.exercises.verdict import WIDTH, Verdict

__all__ = [
    "Alternative",
    "Aspect",
    "Exercise",
    "Misconception",
    "Observation",
    "Verdict",
    "assignments",
    "by_name",
    "check",
    "get",
    "hidden_seeds",
    "hint",
    "judge",
    "observe",
    "of",
    "progress",
]

# Three seeds, because sizes are drawn too: a mistake that one set of sizes hides shows on another.
VISIBLE_SEEDS = (0, 1, 2)


def hidden_seeds(name: str) -> tuple[int, ...]:
    """The seeds that decide the points of the exercise `name`: the same at every grading, and not the visible ones."""
    digest = hashlib.sha256(name.encode()).digest()
    return tuple(int.from_bytes(digest[i : i + 4], "big") for i in (0, 4, 8))


def check(name: str, answer: Any, seeds: Sequence[int] = VISIBLE_SEEDS) -> Verdict:
    """Judge `answer` to the exercise `name`. The last line of a cell shows the verdict as a card.

    The answer must be right on the inputs of every seed. LookupError if no exercise has that name.
    """
    exercise = get(name)
    verdicts: list[Verdict] = []
    for seed in seeds:
        right_so_far = all(verdict.points == verdict.out_of for verdict in verdicts)
        verdicts.append(judge(exercise, observe(exercise, answer, seed), seed, name=right_so_far))  # named once
    verdict = Verdict.over(verdicts)
    if record.wanted():
        record.keep(exercise, verdict)
    if os.environ.get("NBGRADER_EXECUTION") == "validate" and verdict.points < verdict.out_of and not exercise.extra:
        # nbgrader's Validate shows this, cut at some 84 columns, where it would only say "Partial credit".
        print(verdict.text(width=80), file=sys.stderr)
    return verdict


def hint(name: str, tier: int = 1) -> None:
    """Print hint number `tier` of the exercise `name`: the first nudges, the last nearly tells."""
    hints = get(name).hints
    if not 1 <= tier <= len(hints):
        raise ValueError(f"{name} has hints 1 to {len(hints)}, got {tier}")
    print(textwrap.fill(f"Hint {tier} of {len(hints)}. {hints[tier - 1]}", WIDTH))
    if tier < len(hints):
        print(f'One more: hint("{name}", {tier + 1})')


def progress(assignment: str | None = None) -> record.Progress:
    """The points of your own checks so far, assignment by assignment; they are kept on this machine alone.

    LookupError for an assignment that there is not.
    """
    chosen = assignments() if assignment is None else [assignment]
    return record.Progress({name: of(name) for name in chosen})


def get(name: str) -> Exercise:
    """The exercise called `name`. LookupError, with the known names, if there is none."""
    known = by_name()
    if name not in known:
        close = difflib.get_close_matches(str(name), known, n=1)
        guess = f" Did you mean {close[0]!r}?" if close else ""
        raise LookupError(f"there is no exercise {name!r}.{guess} The exercises are: {', '.join(known)}.")
    return known[name]


def by_name() -> dict[str, Exercise]:
    """Every exercise of the course by its name."""
    return {exercise.name: exercise for assignment in assignments() for exercise in of(assignment)}


def of(assignment: str) -> list[Exercise]:
    """The exercises of an assignment (such as "a03"), in the order in which they are set."""
    if assignment not in _modules():
        raise LookupError(f"there is no assignment {assignment!r}. The assignments are: {', '.join(assignments())}.")
    module = importlib.import_module(f"{__name__}.{_modules()[assignment]}")
    return [thing for thing in vars(module).values() if isinstance(thing, Exercise)]


def assignments() -> list[str]:
    """The assignments that have exercises, in order: "a03", …"""
    return sorted(_modules())


@cache
def _modules() -> dict[str, str]:
    names = (module.name for module in pkgutil.iter_modules(__path__))
    return {name.split("_")[0]: name for name in names if name[0] == "a" and name[1:3].isdigit()}
