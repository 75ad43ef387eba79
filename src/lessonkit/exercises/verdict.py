"""What a learner reads after a check: a card in a notebook, plain text elsewhere, a number for nbgrader."""

from __future__ import annotations

import os
import re
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, replace
from html import escape
from typing import TYPE_CHECKING, Any

from lessonkit.mimetype import VERDICT

if TYPE_CHECKING:
    from lessonkit.exercises.exercise import Misconception

WIDTH = 92

# Said once, in place of a line for every aspect, when the same thing stopped them all.
_TODO = {
    "not written": "Not written yet. Put your code where the cell above says `raise NotImplementedError()`, "
    "run that cell, then run this one again.",
    "forbidden": "Refused: the answer {0}.",
    "raised": "The answer {0}.",
    "wrong type": "{0}.",
}


@dataclass(frozen=True)
class AspectVerdict:
    """One line of the card."""

    name: str
    ok: bool
    out_of: float
    message: str

    @property
    def points(self) -> float:
        return self.out_of if self.ok else 0.0


@dataclass(frozen=True)
class Verdict:
    """The judgement of one answer: points by aspect, and the misconceptions that explain what is wrong."""

    exercise: str
    aspects: tuple[AspectVerdict, ...]
    misconceptions: tuple[Misconception, ...] = ()
    unexplained: tuple[str, ...] = ()  # wrong aspects that none of these fails
    problem: str | None = None
    hints: int = 0
    hint: tuple[str, int] | None = None  # the first wrong aspect that has a hint of its own, and which
    extra: bool = False
    metric: tuple[str, float] | None = None  # what answers are ranked by, and how much of it this one has
    variation: str | None = None  # of the exercise, that was asked for
    note: str | None = None  # that the notebook shows something else than what was judged

    @property
    def points(self) -> float:
        return sum(aspect.points for aspect in self.aspects)

    @property
    def out_of(self) -> float:
        return sum(aspect.out_of for aspect in self.aspects)

    @property
    def score(self) -> str:
        return f"{self.points:g} of {self.out_of:g} {'extra points' if self.extra else 'points'}"

    @classmethod
    def over(cls, verdicts: Sequence[Verdict]) -> Verdict:
        """One verdict over several seeds: an aspect is right if it is right on each; the first fault is told."""
        first = next((v for v in verdicts if v.points < v.out_of), verdicts[0])
        aspects = tuple(
            next((line for line in lines if not line.ok), lines[0])
            for lines in zip(*(v.aspects for v in verdicts), strict=True)
        )
        return replace(first, aspects=aspects)

    def summary(self) -> str | None:
        """The one sentence that replaces the aspects' lines, when all of them failed for the same reason."""
        if self.problem not in _TODO:
            return None
        return _TODO[self.problem].format(self.aspects[0].message).replace("?.", "?")

    def advice(self) -> list[str]:
        """One paragraph for each misconception, and one for what none of them explains."""
        told = [f"This is what “{m.name}” gives. {m.hint}" for m in self.misconceptions]
        if self.unexplained:
            aspects = " and ".join(f"“{name}”" for name in self.unexplained)
            told.append(f"Something else is wrong, too: this does not explain {aspects}.")
        return told

    def footer(self) -> str:
        """What was measured, and how to ask for a hint, while there is something left to get right."""
        measured = f"For the leaderboard: {self.metric[1]:.4g} {self.metric[0]}." if self.metric else ""
        asked = f"Judged as the variation “{self.variation}”." if self.variation else ""
        return " ".join(filter(None, [asked, measured, self._way_to_a_hint()]))

    def _way_to_a_hint(self) -> str:
        if self.points == self.out_of or not self.hints:
            return ""
        which = "its only hint" if self.hints == 1 else f"the first of {self.hints} hints"
        asked = f'Stuck? `hint("{self.exercise}")` prints {which}'
        if self.problem in _TODO:
            return f"{asked}."
        if self.hint:
            aspect, number = self.hint
            asked = f'Stuck? `hint("{self.exercise}", {number})` is about “{aspect}”'
        ways = [asked, f'`check.case("{self.exercise}")` shows a call that went wrong']
        if self.metric is None:  # what is measured is trained: too long to be tried a thousand times
            ways.append(f'`hint("{self.exercise}", "where")` looks for the line')
        return f"{', '.join(ways)}."

    def text(self, width: int = WIDTH) -> str:
        """The card as plain text."""
        lines = [f"{self.exercise:<{width - len(self.score)}}{self.score}"]
        if self.note:
            lines += [*textwrap.wrap(self.note, width), ""]
        if summary := self.summary():
            lines += textwrap.wrap(summary, width, initial_indent="  ", subsequent_indent="  ")
        else:
            column = max(len(aspect.name) for aspect in self.aspects) + 2
            for aspect in self.aspects:
                mark = f"  {'✓' if aspect.ok else '✗'} {aspect.name:<{column}}"
                lines += textwrap.wrap(aspect.message, width, initial_indent=mark, subsequent_indent=" " * len(mark))
        for paragraph in self.advice():
            lines += ["", *textwrap.wrap(paragraph, width)]
        if self.footer():
            lines += ["", *textwrap.wrap(self.footer(), width)]
        return "\n".join(lines)

    def __str__(self) -> str:
        return self.text()

    __repr__ = __str__

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, Any]:
        return {"text/html": self._html(), "text/plain": self._plain(), VERDICT: self.as_dict()}

    def _plain(self) -> str:
        """The text card. Under nbgrader it is the number alone, which nbgrader reads as partial credit.

        Extra credit is left out of that number: its cell is worth 0 points to nbgrader, and more would void the cell.
        """
        if not os.environ.get("NBGRADER_EXECUTION"):
            return str(self)
        return self.score if self.extra else f"{self.points:g}"

    def as_dict(self) -> dict[str, Any]:
        """The verdict as JSON data, for reports."""
        return {
            "exercise": self.exercise,
            "points": self.points,
            "out_of": self.out_of,
            "extra": self.extra,
            "aspects": [
                {"name": a.name, "ok": a.ok, "points": a.points, "out_of": a.out_of, "message": a.message}
                for a in self.aspects
            ],
            "misconceptions": [m.name for m in self.misconceptions],
            "problem": self.problem,
            **({"metric": {"name": self.metric[0], "value": self.metric[1]}} if self.metric else {}),
            **({"variation": self.variation} if self.variation else {}),
        }

    def _html(self) -> str:
        # Colours from Okabe and Ito's colour-blind-safe palette; the marks carry the meaning without them. No
        # background, so that the card sits well in light and in dark notebooks.
        full = self.points == self.out_of and not self.note
        edge = "#009E73" if full else "#D55E00"
        note = f"<p style='color:#D55E00; font-weight:bold; margin:0 0 0.4em'>{as_html(self.note or '')}</p>"
        if summary := self.summary():
            rows = f"<tr><td colspan='3' style='text-align:left'>{as_html(summary)}</td></tr>"
        else:
            rows = "".join(_row(aspect) for aspect in self.aspects)
        advice = "".join(f"<p style='margin:0.6em 0 0; max-width:46em'>{as_html(p)}</p>" for p in self.advice())
        footer = f"<p style='margin:0.6em 0 0; opacity:0.75'>{as_html(self.footer())}</p>"
        return (
            f"<div style='border-left:4px solid {edge}; padding:0.3em 0 0.4em 0.9em; margin:0.3em 0'>"
            f"{note if self.note else ''}"
            f"<div style='margin-bottom:0.3em'><strong><code>{escape(self.exercise)}</code></strong>"
            f" &nbsp; {escape(self.score)}</div>"
            f"<table style='border-collapse:collapse; margin:0'><tbody>{rows}</tbody></table>"
            f"{advice}{footer if self.footer() else ''}</div>"
        )


def _row(aspect: AspectVerdict) -> str:
    mark, word, colour = ("✓", "right", "#009E73") if aspect.ok else ("✗", "wrong", "#D55E00")
    cell = "text-align:left; vertical-align:top; padding:0.1em 0.9em 0.1em 0; border:none"
    return (
        f"<tr style='background:none'><td style='{cell}; color:{colour}; font-weight:bold' title='{word}'>{mark}</td>"
        f"<td style='{cell}; white-space:nowrap'>{escape(aspect.name)}</td>"
        f"<td style='{cell}; white-space:nowrap; opacity:0.75'>{aspect.points:g} / {aspect.out_of:g}</td>"
        f"<td style='{cell}'>{as_html(aspect.message)}</td></tr>"
    )


def as_html(text: str) -> str:
    """Escaped text with `backticks` set as code and *asterisks* as emphasis."""
    parts = escape(text).split("`")
    if len(parts) % 2 == 0:  # an odd backtick: leave the text as it is
        return escape(text)
    emphasis = r"(?<![\w*])\*(\w|\w[^*]*\w)\*(?![\w*])"  # not the star of (*batch, n), nor of a product
    return "".join(
        f"<code>{part}</code>" if i % 2 else re.sub(emphasis, r"<em>\1</em>", part) for i, part in enumerate(parts)
    )
