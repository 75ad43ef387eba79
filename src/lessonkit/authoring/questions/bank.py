"""The bank of a course: its questions, lesson by lesson."""

from __future__ import annotations

import inspect
import random
from collections.abc import Collection, Iterator

from lessonkit.authoring.questions.generate import generated
from lessonkit.authoring.questions.question import NotOne, Question
from lessonkit.course import Course, Lesson

OF_A_LESSON = 10  # generated
DRAWS = 20        # of sizes, until no two options happen to be equal


def questions(course: Course, lessons: Collection[str] | None = None, seed: int = 0) -> list[Question]:
    """The questions of some lessons ("04"), or of all: those that are written, then those made of known mistakes.

    Each seed gives other numbers, other mistakes and another order of options.
    """
    chosen = [each for each in course.lessons if lessons is None or each.number in lessons]
    return [question for lesson in chosen for question in of_lesson(course, lesson, seed)]


def of_lesson(course: Course, lesson: Lesson, seed: int) -> list[Question]:
    """The questions of one lesson."""
    with_exercises = lesson.assignment in course.assignments()
    made = generated(course, lesson, seed, OF_A_LESSON) if with_exercises else []
    return [*written(course, lesson, seed), *made]


def written(course: Course, lesson: Lesson, seed: int) -> Iterator[Question]:
    """What a lesson's `questions.py` asks: each of its public functions, given a `random.Random`, returns `ask(…)`.

    What it draws is drawn again where two options come out equal. NotOne where it never comes out well.
    """
    if not (lesson.folder / "questions.py").is_file():
        return
    module = course.part(lesson.name, "questions")
    for name, function in list(vars(module).items()):
        if name.startswith("_") or not inspect.isfunction(function) or function.__module__ != module.__name__:
            continue
        for draw in range(DRAWS):
            lots = random.Random(f"{lesson.name}/{name}/{seed}/{draw}")
            try:
                yield function(lots).question(lesson.number, name.replace("_", "-"), lots)
                break
            except NotOne:
                if draw == DRAWS - 1:
                    raise
