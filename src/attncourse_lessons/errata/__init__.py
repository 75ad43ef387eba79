"""What the five decks get wrong, as data: each claim and its correction as code, and a test that tells them apart.

Lectures' boxes "On the slide" are marked with these names, and the errata lab runs them all.
"""

from attncourse_lessons.errata.attention import ATTENTION
from attncourse_lessons.errata.claims import CLAIMS
from attncourse_lessons.errata.depth import DEPTH
from attncourse_lessons.errata.entry import DECKS, Erratum, Finding
from attncourse_lessons.errata.language_model import FAULTS, LANGUAGE_MODEL, STRUCTURAL, SlideModel, structural

ERRATA: tuple[Erratum, ...] = (*ATTENTION, *DEPTH, *LANGUAGE_MODEL, *CLAIMS)
"""In the order of the course, roughly: attention, order, depth, the code slide's model, tables, claims."""

__all__ = ["DECKS", "ERRATA", "FAULTS", "STRUCTURAL", "Erratum", "Finding", "SlideModel", "erratum", "structural"]


def erratum(name: str) -> Erratum:
    """The erratum of this name. Raises ValueError, with the known names, for another.

    >>> erratum("i > i").correction
    '−∞ where j > i'
    """
    known = {entry.name: entry for entry in ERRATA}
    if name not in known:
        raise ValueError(f"name: got {name!r}, expected one of {', '.join(known)}")
    return known[name]
