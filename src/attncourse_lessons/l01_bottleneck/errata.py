"""Lines of slides that this lesson tests: as printed, as they should be, and what tells them apart."""

import math
import re

from attncourse.counting import layer_cost
from attncourse_lessons.slides.erratum import CSE576, PARAMETRIC, Erratum, Finding


def _says_what_is_counted(sentence) -> Finding:
    """The sentence is to name what varies, and what it says of that is to be what is counted."""
    named = re.fullmatch(r"does not increase with sequence length", sentence())
    steps = {layer_cost("self-attention", n, 64).sequential_steps for n in (10, 100, 1000)}
    said = "it says with what they do not increase" if named else "it says what operations do not do to a length"
    return Finding(bool(named) and len(steps) == 1, f"{said}; counted, {steps} at three lengths")


WITH = Erratum(
    name="a missing with",
    decks=(PARAMETRIC,),
    place="If not recurrence, then what? How about attention?",
    claim="Number of unparallelizable operations does not increase sequence length.",
    correction="does not increase with sequence length, as a twin of the slide has it",
    question="Does the sentence say with what it does not increase?",
    printed=lambda: "does not increase sequence length",
    corrected=lambda: "does not increase with sequence length",
    check=_says_what_is_counted,
    by="trusted",
    slip=True,
)


def _same_model(perplexity) -> Finding:
    """One model, one text: 120 letters, 30 pieces, 60 nats."""
    by_letter, by_piece = perplexity(60, 120), perplexity(60, 30)
    return Finding(abs(by_letter - by_piece) < 1e-6, f"one model: {by_letter:.1f} by letters, {by_piece:.1f} by pieces")


UNIT = Erratum(
    name="perplexity without a unit",
    decks=(CSE576, PARAMETRIC),
    place="Great Results with Transformers, document generation",
    claim="a column of perplexities, 5.0 to 1.9, of models that write encyclopedia articles",
    correction="say per what: there, per wordpiece. The nats of a whole text need no unit of text",
    question="Does one model keep its number when another tokenizer cuts the text?",
    printed=lambda nats, units: math.exp(nats / units),
    corrected=lambda nats, units: float(nats),
    check=_same_model,
    kind="convention",
    by="trusted",
)

ERRATA = (WITH, UNIT)
