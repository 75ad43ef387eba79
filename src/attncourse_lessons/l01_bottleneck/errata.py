"""Lines of slides that this lesson tests: as printed, as they should be, and what tells them apart."""

import re

from attncourse_lessons.slides.erratum import PARAMETRIC, Erratum, Finding


def _something_is_compared(sentence) -> Finding:
    compared = bool(re.search(r"increase with", sentence()))
    said = "it says with what they do not increase" if compared else "it says what operations do not do to a length"
    return Finding(compared, said)


WITH = Erratum(
    name="a missing with",
    decks=(PARAMETRIC,),
    place="If not recurrence, then what? How about attention?",
    claim="Number of unparallelizable operations does not increase sequence length.",
    correction="does not increase with sequence length, as a twin of the slide has it",
    question="Does the sentence say with what it does not increase?",
    printed=lambda: "does not increase sequence length",
    corrected=lambda: "does not increase with sequence length",
    check=_something_is_compared,
    slip=True,
)

ERRATA = (WITH,)
