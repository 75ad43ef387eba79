"""A class such as a course has: for each thing that the checks must notice, a student who does it."""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from lessonkit.exercises.exercise import Exercise, Misconception
from lessonkit.grading.report.results import Results, Row

FIRST_NAMES = "Aisha Björn Chloé Daniel Efua Farid Grace Hiroshi Inés João Kateryna Liam"
LAST_NAMES = "Adeyemi/Bauer/Costa/Dubois/Eriksen/Fernández, Jr./García/Hoàng/Ito/Jansen/Kaya/O'Brien"

# Compiled code that reads where it must not: the system ends the process.
CRASH = "import ctypes\nctypes.string_at(0)"
UNFINISHED = "return (1 +"
IN_WORDS = "*(The example class leaves its answers in words to your imagination.)*"


@dataclass(frozen=True)
class Loss:
    """Why an exercise does not get all its points: a misconception, or something else that the reason must name."""

    misconception: Misconception | None = None
    reason: str = ""


@dataclass(frozen=True)
class Student:
    """`answers` (grade id -> code or text) go where the release has stubs; None: an empty file is handed in."""

    first: str
    last: str
    answers: Mapping[str, str] | None
    losses: Mapping[str, Loss] = field(default_factory=dict)  # exercises that do not get everything

    @property
    def id(self) -> str:
        plain = unicodedata.normalize("NFKD", f"{self.first}.{self.last.partition(',')[0]}").encode("ascii", "ignore")
        return plain.decode().lower().replace("'", "")


def make_class(exercises: Sequence[Exercise], solutions: Mapping[str, str], one_in: int = 1) -> list[Student]:
    """The class, by family name. `solutions` are the model answers by grade id, those in words too.

    The solution, the untouched release, another style, each misconception, an unfinished cell, a crash, an empty file.
    A smaller class has one in so many misconceptions of each exercise.
    """
    names = [exercise.name for exercise in exercises]
    middle, after = names[len(names) // 2], names[min(len(names) // 2 + 1, len(names) - 1) :]
    solutions = {name: text if name in names else IN_WORDS for name, text in solutions.items()}
    everything: list[tuple[Mapping[str, str] | None, dict[str, Loss]]] = [
        (solutions, {}),
        ({}, {name: Loss(reason="not written") for name in names}),
        ({**solutions, **{e.name: e.alternatives[0].body for e in exercises}}, {}),
    ]
    for exercise in exercises:
        for wrong in exercise.misconceptions[::one_in]:
            everything.append(({**solutions, exercise.name: wrong.body}, {exercise.name: Loss(wrong)}))
    everything += [
        ({**solutions, middle: UNFINISHED}, {middle: Loss(reason="SyntaxError")}),
        ({**solutions, after[0]: CRASH}, {name: Loss(reason="process died") for name in after}),
        (None, {name: Loss(reason="empty") for name in names}),
    ]
    firsts, lasts = FIRST_NAMES.split(), LAST_NAMES.split("/")
    people = sorted((lasts[i % 12], firsts[(i + i // 12) % 12]) for i in range(len(everything)))  # 144 different ones
    return [Student(first, last, *one) for (last, first), one in zip(people, everything, strict=True)]


def discrepancies(results: Results, students: Sequence[Student], exercises: Sequence[Exercise]) -> list[str]:
    """Where what the class got is not what it should have got; a line for each."""
    rows = {row.student: row for row in results.rows}
    found = []
    for student in students:
        row = rows.get(student.id)
        if row is None or not row.submitted:
            found.append(f"{student.id} has no row in the gradebook")
            continue
        for exercise in exercises:
            problem = _problem(row, exercise, student.losses.get(exercise.name))
            if problem:
                found.append(f"{student.id}, {exercise.name}: {problem}")
    return found


def _problem(row: Row, exercise: Exercise, loss: Loss | None) -> str | None:
    verdict = row.verdicts.get(exercise.name)
    if verdict is None:
        return "no verdict"
    fails = set(loss.misconception.fails) if loss and loss.misconception else set()
    wrong = {aspect["name"] for aspect in verdict["aspects"] if not aspect["ok"]}
    if loss and not loss.misconception:
        expected = 0.0
    else:
        expected = exercise.out_of - sum(aspect.points for aspect in exercise.aspects if aspect.name in fails)
        if wrong != fails:
            return f"loses points in {sorted(wrong)}, expected {sorted(fails)}"
    points = row.points.get(f"check-{exercise.name}")
    if points != expected or verdict["points"] != expected:
        return f"{points} points in the gradebook and {verdict['points']} in the verdict, expected {expected:g}"
    if loss and loss.misconception and loss.misconception.name not in verdict["misconceptions"]:
        return f"“{loss.misconception.name}” is not named: {verdict['misconceptions']}"
    if loss and loss.reason not in str(verdict["problem"]):
        return f"the reason does not say “{loss.reason}”: {verdict['problem']}"
    return None
