"""What a question of the bank is."""

from __future__ import annotations

import random
from dataclasses import dataclass

OPTIONS = 4
TABLE = "table-"  # how the names of questions begin that come from a lesson's drills.py


class NotOne(ValueError):
    """None of a question's options is right, or several are, or two read the same."""


@dataclass(frozen=True)
class Option:
    """One answer on offer, and the reason why it is right or wrong. Markdown texts."""

    text: str
    right: bool
    reason: str


@dataclass(frozen=True)
class Question:
    """A multiple-choice question with one right option. NotOne where that is not so.

    `lesson` is the lesson's number, "04"; `name` is the question's own in the bank; `prompt` is Markdown. `generated`
    says that it comes from a known mistake, and not from a lesson's `questions.py`.
    """

    lesson: str
    name: str
    prompt: str
    options: tuple[Option, ...]
    minutes: float
    points: int
    generated: bool

    def __post_init__(self) -> None:
        right = [option.text for option in self.options if option.right]
        if len(right) != 1 or len({option.text for option in self.options}) < len(self.options):
            raise NotOne(f"{self.lesson} {self.name}: right are {right}, of {[each.text for each in self.options]}")

    @property
    def right(self) -> int:
        """The place of the right option."""
        return next(place for place, option in enumerate(self.options) if option.right)

    @property
    def shows_solution(self) -> bool:
        """Whether it shows code that an exercise asks for: what is generated does, but for a lesson's own tables."""
        return self.generated and not self.name.startswith(TABLE)


@dataclass(frozen=True)
class Asked:
    """A question as a lesson's `questions.py` asks it; see `ask`."""

    prompt: str
    options: tuple[Option, ...]
    minutes: float
    points: int

    def question(self, lesson: str, name: str, lots: random.Random) -> Question:
        """The question in the bank, its options in an order that is drawn."""
        options = tuple(lots.sample(self.options, len(self.options)))
        return Question(lesson, name, self.prompt, options, self.minutes, self.points, generated=False)


def ask(prompt: str, *options: tuple[str, bool, str], minutes: float = 1.5, points: int = 1) -> Asked:
    """A question with its four options, each (text, whether it is right, the reason). NotOne where they are fewer, as
    two came out equal.

    Whether an option is right is computed, by running what the question is about: `(f"({n}, {m})", (n, m) == seen, …)`.
    """
    if len(options) < OPTIONS:
        raise NotOne(f"{len(options)} options, expected {OPTIONS}: {prompt}")
    return Asked(prompt, tuple(Option(text, bool(right), reason) for text, right, reason in options), minutes, points)

