"""A game of entries: read a line of a slide, choose what to ask of it, see what the test found, and judge the line."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

import traitlets
from matplotlib.figure import Figure

from attncourse.viz.live_widget import LiveWidget
from attncourse_lessons.slides.erratum import By, Erratum, Kind

from .figures import lines_of

QUESTIONS = {
    "shapes": "Do the shapes fit?",
    "limiting case": "What does it give where the answer is known?",
    "trusted": "Is it the same as something trusted?",
    "loss": "Does the loss show it?",
}
KINDS = get_args(Kind)
UNTRAINED = "We trained no model with it."


class review_game(LiveWidget):
    """One entry after another: first what to ask, then which kind of line it is; without a kernel, by mouse or keys.

    `loss` says of an entry's name what training showed. The first judgement counts: with a kernel, `score` is how
    many were right, of how many. What is asked has no score, since a line may fall to several questions. Every order
    is as good; this one takes the entries from all lessons in turn. Those in `played`, {name: (asked, judged)}, come
    first, and are answered. Raises ValueError for no entries, and for a name in `played` that none of them has.
    """

    _esm = Path(__file__).with_suffix(".js")
    _css = Path(__file__).with_suffix(".css")
    kept = ("asked", "judged", "at")

    entries: traitlets.List = traitlets.List().tag(sync=True)
    questions: traitlets.Dict = traitlets.Dict(QUESTIONS).tag(sync=True)
    kinds: traitlets.List = traitlets.List(list(KINDS)).tag(sync=True)
    asked = traitlets.List(traitlets.Unicode()).tag(sync=True)
    """Of each entry the key of the question that was chosen, or nothing."""
    judged = traitlets.List(traitlets.Unicode()).tag(sync=True)
    """Of each entry the kind that was chosen, or nothing."""
    at = traitlets.Int().tag(sync=True)

    def __init__(
        self,
        errata: Sequence[Erratum],
        loss: Mapping[str, str] | None = None,
        step: int = 8,
        played: Mapping[str, tuple[str, str]] | None = None,
    ):
        if not errata:
            raise ValueError("errata: got none, expected at least one")
        played = played or {}
        if unknown := {*played} - {entry.name for entry in errata}:
            raise ValueError(f"played: got {', '.join(sorted(unknown))}, expected names of entries")
        order = [entry for start in range(step) for entry in errata[start::step]]
        order.sort(key=lambda entry: entry.name not in played)               # stable: the others keep their order
        asked, judged = zip(*(played.get(entry.name, ("", "")) for entry in order), strict=True)
        told = [_told(entry, (loss or {}).get(entry.name, UNTRAINED)) for entry in order]
        super().__init__(entries=told, asked=list(asked), judged=list(judged), at=0)

    @traitlets.validate("asked", "judged")
    def _check_answers(self, proposal):
        answers, known = proposal["value"], QUESTIONS if proposal["trait"].name == "asked" else KINDS
        if len(answers) != len(self.entries) or any(one and one not in known for one in answers):
            raise ValueError(f"{proposal['trait'].name}: got {answers}, expected one of {', '.join(known)}, or nothing")
        return answers

    @traitlets.validate("at")
    def _check_at(self, proposal):
        if not 0 <= proposal["value"] < len(self.entries):
            raise ValueError(f"at: got {proposal['value']}, expected an entry from 0 to {len(self.entries) - 1}")
        return proposal["value"]

    @property
    def score(self) -> tuple[int, int]:
        """How many judgements were right, of how many that were given."""
        given = [(one, entry["kind"]) for one, entry in zip(self.judged, self.entries, strict=True) if one]
        return sum(one == right for one, right in given), len(given)

    def still(self) -> tuple[Figure, str]:
        """The entry with the questions, and as far as it is played what was asked and found, judged and right."""
        entry, asked, judged = self.entries[self.at], self.asked[self.at], self.judged[self.at]
        rows = [("says", entry["claim"]), ("in", f"{entry['deck']}. {entry['place']}")]
        for n, (key, question) in enumerate(QUESTIONS.items()):
            rows.append(("1. ask" if n == 0 else "", f"{'●' if key == asked else '○'} {question}"))
        words = (
            f"A game of {len(self.entries)} entries. A slide says: {entry['claim']} "
            f"({entry['deck']}, {entry['place']}). "
            f"Choose what to ask: {' '.join(QUESTIONS.values())} Then judge: {', '.join(KINDS)}."
        )
        if asked:
            found = [(name, passes, said) for name, passes, said in entry["found"] if judged or name == "as printed"]
            rows.append(("found", entry["question"]))
            rows += [("", f"{'✓' if passes else '✗'} {name}: {said}") for name, passes, said in found]
            words += f" Asked: {QUESTIONS[asked]} Found: {'; '.join(f'{name}: {said}' for name, _, said in found)}."
        marks = {kind: "○" for kind in KINDS}
        if judged:
            marks |= {judged: "✗", entry["kind"]: "✓"}
            words += f" Judged: {judged}. The list says: {entry['kind']}. {entry['right']}."
        rows.append(("2. judge", "\t".join(f"{mark} {kind}" for kind, mark in marks.items())))
        if judged:
            rows.append(("right", entry["right"]))
        return lines_of(rows, words)


def _told(entry: Erratum, loss: str) -> dict[str, Any]:
    found = [[name, *entry.test(reading)] for name, reading in entry.readings.items()]
    by: By = entry.by
    return {
        "name": entry.name, "deck": entry.found_in, "place": entry.place, "claim": entry.claim, "slip": entry.slip,
        "by": by, "kind": entry.kind, "question": entry.question, "found": found, "right": entry.correction,
        "loss": loss,
    }  # fmt: skip
