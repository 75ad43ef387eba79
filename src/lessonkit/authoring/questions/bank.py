"""The bank of a course: its questions, lesson by lesson."""

from __future__ import annotations

from collections.abc import Collection

from lessonkit.authoring.questions.question import Question
from lessonkit.course import Course


def questions(course: Course, lessons: Collection[str] | None = None, seed: int = 0) -> list[Question]:
    """The questions of some lessons ("04"), or of all; each `seed` gives a variant of them."""
    raise NotImplementedError
