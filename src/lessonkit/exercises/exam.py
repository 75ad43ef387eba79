"""An exam: until a time, checks say right or wrong and no more, and there are no hints.

It is on where the course's package holds a file exam.json, which `release` writes into what students get and nowhere
else: a grader's copy of the course has none.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from lessonkit.exercises.verdict import AspectVerdict, Verdict
from lessonkit.kernel import Misuse

FILE = "exam.json"


class Closed(Misuse, PermissionError):
    """There is no help during an exam."""


@dataclass(frozen=True)
class Exam:
    """Until when, and of which assignments; of all if none is named."""

    until: datetime
    assignments: tuple[str, ...] = ()

    @property
    def end(self) -> str:
        """In words, by the clock of this machine."""
        if self.until == FOR_EVER:
            return f"for ever: {FILE} in the course's package is damaged, ask for a new copy"
        here = self.until.astimezone()
        return f"until {here.day} {here:%B %Y, %H:%M %Z}"

    def holds(self, assignment: str) -> bool:
        """Whether it is going on, for this assignment, by the clock of this machine."""
        return (not self.assignments or assignment in self.assignments) and datetime.now(UTC) < self.until

    def text(self) -> str:
        """As the file has it."""
        until = self.until.astimezone(UTC).isoformat(timespec="minutes")
        return json.dumps({"until": until, "assignments": list(self.assignments)}) + "\n"


FOR_EVER = datetime.max.replace(tzinfo=UTC)


def exam_in(package: Path) -> Exam | None:
    """The exam that the course in this folder is released for, over or not; None if there is none.

    A damaged file is an exam without an end, so that no accident opens one.
    """
    try:
        held = json.loads((package / FILE).read_text("utf-8"))
        return Exam(moment(held["until"]), tuple(map(str, held["assignments"])))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError, OverflowError):
        return Exam(FOR_EVER)


def moment(text: str) -> datetime:
    """A time such as 2026-12-01T12:00+01:00; without a zone it is this machine's. ValueError for what is none."""
    if len(text) <= len("2026-12-01"):
        raise ValueError(f"{text} has no time of the day")
    return datetime.fromisoformat(text).astimezone(UTC)


@dataclass(frozen=True)
class RightOrWrong(Verdict):
    """What a check says during an exam. The points of a wrong answer are not known from it: aspects have their own."""

    end: str = ""

    @property
    def score(self) -> str:
        return "right" if self.points == self.out_of else "not right yet"

    def summary(self) -> str | None:
        """In place of lines with points, which a wrong answer has perhaps some of."""
        return None if self.points == self.out_of else "Something is wrong, or not there yet."

    def footer(self) -> str:
        return f"This is an exam {self.end}. A check says right or wrong; points are given by aspect when it is graded."


def closed(verdict: Verdict, exam: Exam) -> RightOrWrong:
    """A verdict as an exam shows it."""
    right = verdict.points == verdict.out_of
    whole = AspectVerdict("your answer", right, verdict.out_of, "right" if right else "something is wrong")
    return RightOrWrong(verdict.exercise, (whole,), extra=verdict.extra, variation=verdict.variation, end=exam.end)
