"""When a card is asked again: Leitner's boxes, kept by card in a file each, on the learner's machine alone.

A card that was answered rightly goes one box up, one that was not goes back to the first (Leitner 1972, So lernt man
lernen). The higher the box, the longer it rests.
"""

from __future__ import annotations

import contextlib
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path

from commandkit.files import write_whole
from lessonkit.exercises.progress import place

DAYS = (0, 1, 3, 7, 14)  # how long a card rests in each box
FOLDER = "practice"


@dataclass(frozen=True)
class Box:
    """Where a card is: its box, from 1, the day from which it is due, and how each of its drills went last."""

    box: int = 1
    due: int = 0
    asked: Mapping[str, bool] = field(default_factory=dict)

    def after(self, drill: str, right: bool, today: int) -> Box:
        """Where it is after an answer. It goes up only where it was due, so once a day at most."""
        before = {key: went for key, went in self.asked.items() if key != drill}
        asked = {**before, drill: right}
        if right and self.due > today:
            return Box(self.box, self.due, asked)
        box = min(self.box + 1, len(DAYS)) if right else 1
        return Box(box, today + DAYS[box - 1], asked)


def today() -> int:
    """Days since 1 January 1970, as the learner's calendar has them."""
    return (date.today() - date(1970, 1, 1)).days


def in_order(groups: Mapping[str, str], kept: Mapping[str, Box], day: int) -> list[str]:
    """Cards, {name: its lesson}, in the order in which they should be asked, spread over the lessons.

    Those that are due come first, and of them the lowest boxes; in the first box those that went wrong before new ones.
    """
    seen: Counter[tuple] = Counter()
    ranked = []
    for name, group in groups.items():
        card = kept.get(name, Box())
        rank = (card.due > day, card.box, not card.asked, max(card.due - day, 0))
        ranked.append((rank, seen[rank, group], name))
        seen[rank, group] += 1
    return [name for _, _, name in sorted(ranked, key=lambda each: each[:2])]


def in_turn(drills: Sequence[str], card: Box) -> list[int]:
    """In which order a card's drills are asked: those that went wrong last, new ones, the one asked longest ago."""
    order = list(card.asked)

    def rank(key: str) -> tuple[int, int]:
        return ({False: 0, None: 1, True: 2}[card.asked.get(key)], order.index(key) if key in order else 0)

    return sorted(range(len(drills)), key=lambda number: rank(drills[number]))


def read(course: str, card: str) -> Box:
    """What was kept of a card; a new one if nothing was, or it cannot be read."""
    try:
        kept = json.loads(_file(course, card).read_text("utf-8"))
        asked = {str(key): bool(right) for key, right in kept["asked"].items()}
        return Box(min(max(int(kept["box"]), 1), len(DAYS)), int(kept["due"]), asked)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return Box()


def keep(course: str, card: str, box: Box) -> None:
    """Write it down, beside the progress. Never an error: practice must not stop because a disk is full."""
    with contextlib.suppress(OSError):
        write_whole(_file(course, card), json.dumps({"box": box.box, "due": box.due, "asked": dict(box.asked)}))


def folder(course: str) -> Path:
    """Where the cards of a course are kept."""
    return place(course) / FOLDER


def _file(course: str, card: str) -> Path:
    return folder(course) / f"{card}.json"
