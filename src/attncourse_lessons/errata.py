"""What the five decks get wrong, as data: each claim and its correction as code, and a test that tells them apart.

Lectures' boxes "On the slide" are marked with these names, and the errata lab runs them all.
"""

from dataclasses import replace

from attncourse_lessons import course
from attncourse_lessons.slides.erratum import DECKS, Erratum, Finding
from attncourse_lessons.slides.model import (
    FAULTS,
    ON_NO_SLIDE,
    STRUCTURAL,
    SlideBlock,
    SlideModel,
    attention_as_torchs,
    structural,
)

ERRATA: tuple[Erratum, ...] = tuple(
    replace(entry, lesson=lesson) for lesson, errata in course.parts("errata").items() for entry in errata.ERRATA
)
"""All lessons' own, in the order of the course."""

__all__ = [
    "DECKS", "ERRATA", "FAULTS", "ON_NO_SLIDE", "STRUCTURAL", "Erratum", "Finding", "SlideBlock", "SlideModel",
    "attention_as_torchs", "erratum", "structural",
]  # fmt: skip


def erratum(name: str) -> Erratum:
    """The erratum of this name. Raises ValueError, with the known names, for another.

    >>> erratum("i > i").correction
    '−∞ where j > i'
    """
    known = {entry.name: entry for entry in ERRATA}
    if name not in known:
        raise ValueError(f"name: got {name!r}, expected one of {', '.join(known)}")
    return known[name]
