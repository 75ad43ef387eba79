"""What a question of the bank is."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Option:
    """One answer on offer, and the reason why it is right or wrong. Markdown texts."""

    text: str
    right: bool
    reason: str


@dataclass(frozen=True)
class Question:
    """A multiple-choice question with one right option.

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
