"""Which variation of an exercise a student was given: drawn from a seed and the student's id, and kept."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from commandkit.errors import CommandError
from commandkit.files import write_whole

FILE = "variations.json"  # in the assignment's folder of grading/


@dataclass(frozen=True)
class Variations:
    """The variations on offer, by exercise, and the seed by which each student gets one of each."""

    seed: int = 0
    offered: Mapping[str, Sequence[str]] = field(default_factory=dict)

    def of(self, student: str) -> dict[str, str]:
        """A student's, by exercise. It depends on nobody else, so that who comes later has one, too."""
        return {name: names[self._draw(name, student) % len(names)] for name, names in self.offered.items()}

    def _draw(self, exercise: str, student: str) -> int:
        text = f"{self.seed}/{exercise}/{student}".encode(errors="surrogateescape")
        return int.from_bytes(hashlib.sha256(text).digest()[:8], "big")

    def keep(self, folder: Path) -> None:
        """Write them into an assignment's folder of grading/."""
        kept = {"seed": self.seed, "offered": {name: list(names) for name, names in self.offered.items()}}
        write_whole(folder / FILE, json.dumps(kept, indent=1, ensure_ascii=False) + "\n", mode=0o600)


def variations_in(folder: Path) -> Variations:
    """What is kept in an assignment's folder; nothing is on offer where nothing is. CommandError where it is damaged.

    Everybody would be judged by another exercise than they were given.
    """
    path = folder / FILE
    try:
        held = json.loads(path.read_text(encoding="utf-8"))
        offered = {str(name): tuple(map(str, names)) for name, names in held["offered"].items()}
        if not all(offered.values()):
            raise ValueError("an exercise without a variation")
        return Variations(int(held["seed"]), offered)
    except FileNotFoundError:
        return Variations()
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CommandError(f"{path} is damaged ({error}): put back a copy of it") from None
