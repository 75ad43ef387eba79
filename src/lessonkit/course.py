"""A course: a package with a folder a lesson, and the calls that its notebooks make: `check`, `hint`, `solved`, …"""

from __future__ import annotations

import difflib
import hashlib
import importlib
import os
import re
import sys
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from commandkit.errors import CommandError

if TYPE_CHECKING:  # torch with them, and a course's folders are looked at without
    from lessonkit.exercises.case import Case
    from lessonkit.exercises.exercise import Exercise
    from lessonkit.exercises.progress import Progress
    from lessonkit.exercises.verdict import Verdict

# Three seeds, because sizes are drawn too: a mistake that one set of sizes hides shows on another.
VISIBLE_SEEDS = (0, 1, 2)
FOLDER = re.compile(r"l(\d\d)_([a-z0-9_]+)")
# @name in a text is the number of the lesson of that name: the numbers stand in the folders' names alone.
REFERENCE = re.compile(r"(?<![\w.@/`])(a?)@([a-z][a-z0-9_]*)")


@dataclass(frozen=True)
class Lesson:
    """A folder `lNN_name`: the lecture NN, the assignment aNN, and its exercises."""

    number: str
    name: str
    folder: Path

    @property
    def assignment(self) -> str:
        return f"a{self.number}"

    @property
    def module(self) -> str:
        """Its name in the course's package."""
        return f"l{self.number}_{self.name}"

    @property
    def lecture_notebook(self) -> str:
        """Its path in the course's folder, as that of the assignment's."""
        return f"lectures/{self.number}_{self.name}.ipynb"

    @property
    def assignment_notebook(self) -> str:
        return f"assignments/{self.assignment}/{self.assignment}_{self.name}.ipynb"


class Course:
    """The course whose lessons are the folders of `package`.

    `library` names the packages that its notebooks import, and whose parts a submission may use while it is graded;
    `distribution` is what pip calls it all; `widgets` is the script, a package and a file in it, that draws the
    lectures' widgets in the web book; `demo` is the lesson whose assignment the demo grades.

    Make it in the package's __init__.py, `course = Course(__name__, library=("shapes",))`, which must import nothing
    heavy: a sandbox starts with it.
    """

    def __init__(
        self,
        package: str,
        *,
        library: Sequence[str] = (),
        distribution: str | None = None,
        widgets: tuple[str, str] | None = None,
        demo: str | None = None,
    ) -> None:
        self.package, self.library, self.widgets = package, tuple(library), widgets
        self.distribution, self._demo = distribution or package, demo
        self._loaded: dict[str, Sequence[Exercise]] = {}
        self._verdicts: dict[str, Verdict] = {}  # the last of each exercise in this process

    def __repr__(self) -> str:
        return f"Course({self.package!r})"

    @cached_property
    def folder(self) -> Path:
        """Where the package's files are."""
        return folder_of(self.package)

    @cached_property
    def lessons(self) -> tuple[Lesson, ...]:
        """The lessons in order. CommandError where two have one number, or one name."""
        found = []
        for path in sorted(self.folder.iterdir()):
            if path.is_dir() and (match := FOLDER.fullmatch(path.name)):
                found.append(Lesson(match[1], match[2], path))
        for what in ("number", "name"):
            seen = [getattr(lesson, what) for lesson in found]
            if double := next((each for each in seen if seen.count(each) > 1), None):
                raise CommandError(f"two lessons in {self.folder} have the {what} {double}: rename one's folder")
        return tuple(found)

    def lesson(self, assignment: str) -> Lesson:
        """The lesson of an assignment, such as "a03". LookupError if there is none."""
        for lesson in self.lessons:
            if lesson.assignment == assignment:
                return lesson
        known = ", ".join(self.assignments())
        raise LookupError(f"there is no assignment {assignment!r}. The assignments are: {known}.")

    def assignments(self) -> list[str]:
        """The assignments that have exercises, in order: "a03", …"""
        return [lesson.assignment for lesson in self.lessons if (lesson.folder / "exercises" / "__init__.py").is_file()]

    def part(self, name: str, part: str) -> ModuleType:
        """A module of the lesson called `name`, wherever it stands: `part("masking", "figures")`. LookupError."""
        for lesson in self.lessons:
            if lesson.name == name:
                return importlib.import_module(f"{self.package}.{lesson.module}.{part}")
        known = ", ".join(lesson.name for lesson in self.lessons)
        raise LookupError(f"there is no lesson {name!r}. The lessons are: {known}.")

    def parts(self, part: str) -> dict[str, ModuleType]:
        """That module of every lesson that has it, by the lesson's name: `parts("figures")`."""
        return {lesson.name: self.part(lesson.name, part) for lesson in self.lessons
                if (lesson.folder / f"{part}.py").is_file()}  # fmt: skip

    @property
    def demo(self) -> str:
        """The assignment that the demo grades: the first, if the course has not chosen."""
        chosen = [lesson.assignment for lesson in self.lessons if lesson.name == self._demo]
        return (chosen or self.assignments())[0]

    def exercises_of(self, assignment: str) -> list[Exercise]:
        """The exercises of an assignment (such as "a03"), in the order in which they are set."""
        lesson = self.lesson(assignment)
        if assignment not in self.assignments():
            return []
        if assignment not in self._loaded:  # their words are gone through once, and not at every check
            exercises = importlib.import_module(f"{self.package}.{lesson.module}.exercises").EXERCISES
            for exercise in exercises:
                exercise.reword(self.referred)
            self._loaded[assignment] = exercises
        return list(self._loaded[assignment])

    def all_exercises(self) -> dict[str, Exercise]:
        """Every exercise of the course by its name."""
        return {each.name: each for assignment in self.assignments() for each in self.exercises_of(assignment)}

    def exercise(self, name: str) -> Exercise:
        """The exercise called `name`. LookupError, with the known names, if there is none."""
        for lesson in self.lessons:  # the one lesson that has a file of this name; the others need not be imported
            if isinstance(name, str) and (lesson.folder / "exercises" / f"{file_of(name)}.py").is_file():
                for exercise in self.exercises_of(lesson.assignment):
                    if exercise.name == name:
                        return exercise
        known = self.all_exercises()
        close = difflib.get_close_matches(str(name), known, n=1)
        guess = f" Did you mean {close[0]!r}?" if close else ""
        raise LookupError(f"there is no exercise {name!r}.{guess} The exercises are: {', '.join(known)}.")

    def referred(self, text: str) -> str:
        """`text` with numbers in the place of its references: `@masking` becomes 06, `a@masking` a06.

        ValueError for a lesson that there is not.
        """
        numbers = {lesson.name: lesson.number for lesson in self.lessons}

        def number(match: re.Match[str]) -> str:
            if match[2] not in numbers:
                raise ValueError(f"@{match[2]} is no lesson; the lessons are: {', '.join(numbers)}")
            return match[1] + numbers[match[2]]

        return REFERENCE.sub(number, text)

    @cached_property
    def check(self) -> Check:
        """`check("name", answer)` judges, and `check.case("name")` hands over a call that went wrong."""
        return Check(self)

    def judge(self, name: str, answer: Any, seeds: Sequence[int] = VISIBLE_SEEDS) -> Verdict:
        """The verdict on `answer` to the exercise `name`; see `Check`."""
        from lessonkit.exercises import progress
        from lessonkit.exercises.judge import judge_on_seeds
        from lessonkit.exercises.observe import observe

        exercise = self.exercise(name)
        seeds = seeds[: exercise.seeds]
        verdict = judge_on_seeds(exercise, (observe(exercise, answer, seed) for seed in seeds), seeds)
        self._verdicts[name] = verdict
        if progress.wanted():
            progress.keep(self.distribution, exercise, verdict)
        validated = os.environ.get("NBGRADER_EXECUTION") == "validate"
        if validated and verdict.points < verdict.out_of and not exercise.extra:
            # nbgrader's Validate shows this, cut at some 84 columns, where it would only say "Partial credit".
            print(verdict.text(width=80), file=sys.stderr)
        return verdict

    def solved(self, name: str) -> bool:
        """Whether the last check of `name` in this kernel gave all the points: for a cell that uses the answer.

        Else it says what the cell waits for. Always False, in silence, where nbgrader grades or validates: nothing of
        such a cell is graded, and it must neither fail there nor take time. LookupError for an unknown name.
        """
        exercise = self.exercise(name)
        if os.environ.get("NBGRADER_EXECUTION"):
            return False
        verdict = self._verdicts.get(name)
        if verdict is not None and verdict.points == verdict.out_of:
            return True
        now = f"now {verdict.score}" if verdict else "not run yet"
        print(f'This cell uses your answer. It waits until check("{exercise.name}", …) gives all points ({now}).')
        return False

    def hint(self, name: str, tier: int | str = 1) -> None:
        """Print hint number `tier` of the exercise `name`: the first nudges, the last nearly tells.

        `hint(name, "where")` looks for the line at fault in the answer that was checked last: it changes the answer by
        one step, in every way that it knows, until it is right. That takes ten seconds at most, and can be stopped.
        LookupError for an unknown name, or if no answer has been checked; ValueError for a hint that there is not.
        """
        from lessonkit.exercises.verdict import WIDTH

        if tier == "where":
            print(self.check.where(name))
            return
        hints = self.exercise(name).hints
        if not isinstance(tier, int) or not 1 <= tier <= len(hints):
            raise ValueError(f'{name} has hints 1 to {len(hints)}, got {tier!r}; "where" looks for the line')
        print(textwrap.fill(self.referred(f"Hint {tier} of {len(hints)}. {hints[tier - 1]}"), WIDTH))
        if tier < len(hints):
            print(f'One more: hint("{name}", {tier + 1})')

    def progress(self, assignment: str | None = None) -> Progress:
        """The points of your own checks so far, assignment by assignment; they are kept on this machine alone.

        LookupError for an assignment that there is not.
        """
        from lessonkit.exercises.progress import Progress

        chosen = self.assignments() if assignment is None else [assignment]
        return Progress(self.distribution, {name: self.exercises_of(name) for name in chosen})


class Check:
    """What the notebooks of a course call `check`."""

    def __init__(self, course: Course) -> None:
        self._course = course
        self._answers: dict[str, Any] = {}  # the last of each exercise

    def __call__(self, name: str, answer: Any, seeds: Sequence[int] = VISIBLE_SEEDS) -> Verdict:
        """Judge `answer` to the exercise `name`. The last line of a cell shows the verdict as a card.

        The answer must be right on the inputs of every seed. LookupError if no exercise has that name.
        """
        verdict = self._course.judge(name, answer, seeds)
        self._answers[name] = answer
        return verdict

    def case(self, name: str, aspect: str | None = None) -> Case | None:
        """A call of your answer that went wrong: its inputs, what came out, and what should have come out.

        Of the answer that `check` has judged last, in its first failing aspect or in the one that you name. None where
        nothing went wrong. LookupError for an unknown name, or if the answer has not been checked in this notebook.
        """
        from lessonkit.exercises.case import failing_case

        exercise, answer = self._last(name)
        found = failing_case(exercise, answer, VISIBLE_SEEDS[: exercise.seeds], aspect)
        if found is None:
            print(f"{name}: nothing to show. Either all is right, or your answer could not be called.")
        return found

    def where(self, name: str) -> str:
        """In words, at which line of the answer that `check` has judged last one step makes it right.

        Says how far it is while it looks. LookupError as from `case`.
        """
        from lessonkit.exercises.repair import where

        if os.environ.get("NBGRADER_EXECUTION") or self._course.exercise(name).metric:
            return f"{name}: no line is looked for here."  # where somebody grades, and what takes long to train
        exercise, answer = self._last(name)
        shown = -1

        def progress(share: float) -> None:
            nonlocal shown
            tenth = int(10 * share)
            if tenth > shown:
                shown = tenth
                print(f"\rLooking for the line … {10 * tenth} %", end="", flush=True)

        try:
            found = where(exercise, answer, VISIBLE_SEEDS[: exercise.seeds], progress=progress)
        except KeyboardInterrupt:
            return "\nStopped."
        finally:
            print("\r" + " " * 32 + "\r", end="")
        return str(found) if found else f"{name}: nothing to look for. All is right, or your code cannot be read here."

    def _last(self, name: str) -> tuple[Exercise, Any]:
        exercise = self._course.exercise(name)
        if name not in self._answers:
            raise LookupError(f'{name} has not been checked in this notebook: run check("{name}", {name}) first')
        return exercise, self._answers[name]


def course_of(config: Mapping[str, Any]) -> Course:
    """The course that an nbgrader_config.py names. CommandError where it names none, or one that is not installed."""
    return load(str(config.get("Lessonkit", {}).get("course", "")))


def load(package: str) -> Course:
    """The course whose lessons are in `package`. CommandError where there is no such package, or it is no course's."""
    if not package:
        raise CommandError('nbgrader_config.py names no course: add c.Lessonkit.course = "the_package_of_its_lessons"')
    try:
        return importlib.import_module(package).course
    except (ModuleNotFoundError, AttributeError) as error:
        if isinstance(error, ModuleNotFoundError) and error.name != package:
            raise
        raise CommandError(
            f"nbgrader_config.py names the course {package!r}, which is not to be found here ({error}): "
            "install it (pip install -e . in its folder); its __init__.py must make `course = Course(…)`"
        ) from None


def folder_of(package: str) -> Path:
    """Where the files of an installed package are. It is not imported. CommandError if there is none."""
    spec = find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise CommandError(f"there is no package {package} here")
    return Path(next(iter(spec.submodule_search_locations)))


def file_of(exercise: str) -> str:
    """The stem of an exercise's file: `multi_head_attention` for `MultiHeadAttention`."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", exercise).lower()


def hidden_seeds(name: str) -> tuple[int, ...]:
    """The seeds that decide the points of the exercise `name`: the same at every grading, and not the visible ones."""
    digest = hashlib.sha256(name.encode()).digest()
    return tuple(int.from_bytes(digest[i : i + 4], "big") for i in (0, 4, 8))
