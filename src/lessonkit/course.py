"""A course: a package with a folder a lesson, and the calls that its notebooks make: `check`, `hint`, `solved`, …"""

from __future__ import annotations

import hashlib
import importlib
import json
import os
import re
import sys
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from importlib.metadata import entry_points
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from commandkit.errors import CommandError
from lessonkit import kernel
from lessonkit.kernel import COURSE, NoSuchPart, UnknownName, WrongCall, did_you_mean

if TYPE_CHECKING:  # torch with them, and a course's folders are looked at without
    from lessonkit.exercises.case import Case
    from lessonkit.exercises.drill import Card
    from lessonkit.exercises.exam import Exam
    from lessonkit.exercises.exercise import Exercise
    from lessonkit.exercises.overview import Overview
    from lessonkit.exercises.practice import Practice
    from lessonkit.exercises.progress import Progress
    from lessonkit.exercises.verdict import Verdict

MISSING: Any = object()  # an argument that was not given
# Three seeds, because sizes are drawn too: a mistake that one set of sizes hides shows on another.
VISIBLE_SEEDS = (0, 1, 2)
FOLDER = re.compile(r"l(\d\d)_([a-z0-9_]+)")
# @name in a text is the number of the lesson of that name: the numbers stand in the folders' names alone.
REFERENCE = re.compile(r"(?<![\w.@/`])(a?)@([a-z][a-z0-9_]*)")
RELATIVE_IMPORT = re.compile(r"^( *from )\.(\w*)( import )", re.MULTILINE)


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
    lectures' widgets in the web book; `demo` is the lesson whose assignment the demo grades; `repository` is where a
    code host has the course ("https://github.com/…"), and readers of the web book report errors.

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
        repository: str | None = None,
    ) -> None:
        self.package, self.library, self.widgets = package, tuple(library), widgets
        self.repository = repository
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
        raise UnknownName(f"there is no assignment {assignment!r}. The assignments are: {known}.")

    def source_text(self, lesson: Lesson, path: Path) -> str:
        """The text of a lesson's source. `from .figures import x` has the whole name, as in a notebook, which is in no
        package."""
        package = f"{self.package}.{lesson.module}"

        def whole(found: re.Match[str]) -> str:
            return f"{found[1]}{package}{'.' if found[2] else ''}{found[2]}{found[3]}"

        return RELATIVE_IMPORT.sub(whole, path.read_text(encoding="utf-8"))

    def assignments(self) -> list[str]:
        """The assignments that have exercises, in order: "a03", …"""
        return list(self._assignments)

    @cached_property
    def _assignments(self) -> tuple[str, ...]:
        set_ = [each for each in self.lessons if (each.folder / "exercises" / "__init__.py").is_file()]
        return tuple(lesson.assignment for lesson in set_)

    def numbers(self, text: str) -> list[str]:
        """The numbers of the lessons that `text` names, such as 00-03,07. CommandError for one that there is not."""
        known = [lesson.number for lesson in self.lessons]
        chosen: set[str] = set()
        for part in text.split(","):
            first, _, last = part.strip().partition("-")
            found = [each for each in known if first <= each <= (last or first)]
            if first not in known or (last or first) not in known or not found:
                raise CommandError(f"--lessons: {part.strip()!r} names no lessons; write 04, or 00-07, or 00-03,07")
            chosen.update(found)
        return sorted(chosen)

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
        if assignment not in self._assignments:
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

    def exercise(self, name: str, variation: str | None = None) -> Exercise:
        """The exercise called `name`, or a variation of it. LookupError, with the known names, if there is none."""
        if variation:
            known = self.exercise(name).variations
            if variation not in known:
                raise UnknownName(f"{name} has no variation {variation!r}; it has: {', '.join(known) or 'none'}.")
            return known[variation]
        for lesson in self.lessons:  # the one lesson that has a file of this name; the others need not be imported
            if isinstance(name, str) and (lesson.folder / "exercises" / f"{file_of(name)}.py").is_file():
                for exercise in self.exercises_of(lesson.assignment):
                    if exercise.name == name:
                        return exercise
        known = self.all_exercises()
        raise UnknownName(
            f"there is no exercise {name!r}.{did_you_mean(name, known)} "
            "The name of an exercise stands in the check below its cell."
        )

    def is_exercise(self, name: str) -> bool:
        """Whether an exercise has this name, by the lessons' files: nothing is imported."""
        file = f"{file_of(name)}.py"
        return name != "common" and any((lesson.folder / "exercises" / file).is_file() for lesson in self.lessons)

    def assignment_of(self, exercise: str) -> str:
        """The assignment in which the exercise is set. LookupError for an unknown name."""
        file = f"{file_of(self.exercise(exercise).name)}.py"
        return next(each.assignment for each in self.lessons if (each.folder / "exercises" / file).is_file())

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
        kernel.attach(self.is_exercise)
        return Check(self)

    def judge(
        self, name: str, answer: Any, seeds: Sequence[int] = VISIBLE_SEEDS, variation: str | None = None
    ) -> Verdict:
        """The verdict on `answer` to the exercise `name`, or to a variation of it; see `Check`.

        Where the notebook shows another answer than the one that was handed over, the verdict says so, and nothing is
        kept of it, nor of a check that was handed something else than an answer, or one that is not written.
        """
        from lessonkit.exercises import progress
        from lessonkit.exercises.exam import closed
        from lessonkit.exercises.judge import judge_on_seeds
        from lessonkit.exercises.observe import observe

        exercise = self.exercise(name, variation)
        seeds = seeds[: exercise.seeds]
        verdict = judge_on_seeds(exercise, (observe(exercise, answer, seed) for seed in seeds), seeds)
        written = verdict.problem != "not written"
        if exam := self._exam(exercise.name):
            verdict = closed(verdict, exam)
            written = verdict.points == verdict.out_of  # how far a wrong answer has come is not told
        if (note := kernel.stale(name, answer)) is not None:
            return replace(verdict, note=note)
        self._verdicts[name] = verdict
        if progress.wanted() and callable(answer) and written:
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
        exercise = self.exercise(_name_of(name))
        if os.environ.get("NBGRADER_EXECUTION"):
            return False
        verdict = self._verdicts.get(exercise.name)
        if verdict is not None and verdict.variation:
            print(f"This cell uses the answer to {exercise.name} as the course has it; yours is a variation.")
            return False
        if verdict is not None and verdict.points == verdict.out_of:
            return True
        now = f"now {verdict.score}" if verdict else "not run yet"
        print(f'This cell uses your answer. It waits until check("{exercise.name}", …) gives all points ({now}).')
        return False

    def hint(self, name: Any = None, tier: int | str | None = None) -> None:
        """Print hint number `tier` of the exercise `name`: the first nudges, the last nearly tells.

        Without a name it is about the exercise that was checked last in this notebook: `hint()`, `hint(2)`.
        `hint(name, "where")` looks for the line at fault in the answer that was checked last: it changes the answer by
        one step, in every way that it knows, until it is right. That takes ten seconds at most, and can be stopped.
        LookupError for an unknown name, or if no answer has been checked; ValueError for a hint that there is not.
        """
        from lessonkit.exercises.verdict import WIDTH

        if tier is None and (name == "where" or isinstance(name, int)):
            name, tier = None, name
        name = _name_of(self.check.latest("hint") if name is None else name)
        self.must_be_open(name)
        if tier == "where":
            print(self.check.where(name))
            return
        hints = self.exercise(name, self.check.variation_of(name)).hints
        tier = 1 if tier is None else int(tier) if isinstance(tier, str) and tier.isdecimal() else tier
        if not isinstance(tier, int) or isinstance(tier, bool) or not 1 <= tier <= len(hints):
            raise WrongCall(f'{name} has hints 1 to {len(hints)}, got {tier!r}; "where" looks for the line')
        print(textwrap.fill(self.referred(f"Hint {tier} of {len(hints)}. {hints[tier - 1]}"), WIDTH))
        if tier < len(hints):
            print(f'One more: hint("{name}", {tier + 1})')

    def _exam(self, name: str) -> Exam | None:
        """The exam that is going on about an exercise; None if there is none, or its time is over."""
        from lessonkit.exercises.exam import exam_in

        exam = exam_in(self.folder)
        return exam if exam and exam.holds(self.assignment_of(name)) else None

    def must_be_open(self, name: str) -> None:
        """Raise Closed where an exam is going on about the exercise: there is no help then. LookupError."""
        from lessonkit.exercises.exam import Closed

        if exam := self._exam(name):
            raise Closed(f"this is an exam {exam.end}: a check says right or wrong, and there are no hints")

    def progress(self, assignment: str | int | None = None) -> Progress:
        """The points of your own checks so far, assignment by assignment; they are kept on this machine alone.

        LookupError for an assignment that there is not.
        """
        from lessonkit.exercises.progress import Notebooks, Progress

        chosen = self.assignments() if assignment is None else [self._assignment_called(assignment)]
        tasks = {name: (self.exercises_of(name), self.by_hand(name)) for name in chosen}
        lessons = {name: self.lesson(name) for name in chosen}
        paths = {name: Notebooks(x.number, x.lecture_notebook, x.assignment_notebook) for name, x in lessons.items()}
        return Progress(self.distribution, tasks, paths, self.root)

    def practice(self, assignment: str | int | None = None) -> Practice | None:
        """A round of drills, such as: here is a solution with one slip, which line holds it? Weakest and due first.

        Of one assignment, or of all. An exercise's drills show its solution, so they come when its check has given all
        points. None, in silence, where nbgrader works, and where the course is built. LookupError for an assignment
        that there is not.
        """
        from lessonkit.exercises import progress

        if os.environ.get("NBGRADER_EXECUTION") or os.environ.get(kernel.QUIET) == "":
            return None
        return self.practice_round(assignment, keeps=progress.wanted())

    def practice_round(self, assignment: str | int | None, keeps: bool) -> Practice:
        """`practice`, wherever it is; it is written down how it goes if `keeps`."""
        from lessonkit.exercises import progress
        from lessonkit.exercises.drill import cards
        from lessonkit.exercises.practice import Practice

        chosen = self.assignments() if assignment is None else [self._assignment_called(assignment)]
        found: list[Card] = []
        locked: list[Card] = []
        for card in cards(self, chosen):
            exercise = card.exercise
            if exercise is None:
                found.append(card)
                continue
            reached, verdict = progress.read(self.distribution, exercise), self._verdicts.get(exercise.name)
            best = max(reached.best if reached else 0.0, verdict.points if verdict else 0.0)
            (found if best >= exercise.out_of else locked).append(card)
        return Practice(self.distribution, found, [card.name for card in locked], keeps)

    def _assignment_called(self, name: str | int) -> str:
        """`a02` for "a02", "A2", "02" and 2. LookupError for what is none."""
        number = re.fullmatch(r"[aA]?0*(\d+)", str(name).strip())
        return self.lesson(f"a{number[1]:0>2}" if number else str(name)).assignment

    def check_all(self, notebook: str | Path | None = None) -> Overview | None:
        """Every check of this notebook as it is saved, in a process of its own: what handing it in now would give.

        It is run from the top, after the same repairs as where a class is graded; the checks are the visible ones.
        `notebook` names another file. None, in silence, where nbgrader works, and where the course is built.
        """
        from lessonkit.exercises import overview

        if os.environ.get("NBGRADER_EXECUTION") or os.environ.get(kernel.QUIET) == "":
            return None
        path = kernel.notebook() if notebook is None else Path(str(notebook))
        if path is None:
            raise WrongCall('it cannot be told which notebook this is: name its file, check_all("a02_lookup.ipynb")')
        if not path.is_file():
            raise WrongCall(f"there is no file {path} here: without a name, check_all() is about this notebook")
        return overview.run(self.package, path, kernel.not_saved if notebook is None else lambda: None)

    @property
    def root(self) -> Path | None:
        """The folder with the course's notebooks, where its package lies below it; None where it was installed."""
        folder = self.folder.parents[1]
        return folder if (folder / "assignments").is_dir() and (folder / "lectures").is_dir() else None

    def by_hand(self, assignment: str) -> float | None:
        """The points of an assignment that a person gives, by its notebook; None where that is not at hand."""
        try:
            text = (self.root / self.lesson(assignment).assignment_notebook).read_text("utf-8") if self.root else ""
            grades = [cell["metadata"].get("nbgrader", {}) for cell in json.loads(text)["cells"]]
        except (OSError, ValueError, KeyError):
            return None
        return sum(grade["points"] for grade in grades if grade.get("grade") and grade.get("solution"))


def _name_of(exercise: Any) -> str:
    """The name of an exercise, of which the answer itself may have been given. LookupError for what is neither."""
    name = exercise if isinstance(exercise, str) else getattr(exercise, "__name__", None)
    if not isinstance(name, str):
        raise UnknownName(f"{exercise!r:.60} names no exercise: its name stands in the check, in quotation marks")
    return name


class Check:
    """What the notebooks of a course call `check`."""

    def __init__(self, course: Course) -> None:
        self._course = course
        self._answers: dict[str, Any] = {}  # the last of each exercise; the last of all is at the end
        self._variations: dict[str, str | None] = {}  # of these answers

    def __call__(
        self,
        name: Any = MISSING,
        answer: Any = MISSING,
        seeds: Sequence[int] = VISIBLE_SEEDS,
        variation: str | None = None,
    ) -> Verdict:
        """Judge `answer` to the exercise `name`. The last line of a cell shows the verdict as a card.

        The answer must be right on the inputs of every seed. Without an answer, the notebook's own of that name is
        taken. `variation` names the one that the notebook's cell asks for, where it does not ask what everybody is
        asked. LookupError if no exercise has that name, or nothing in the notebook.
        """
        name, answer = self._understood(name, answer)
        try:
            verdict = self._course.judge(name, answer, seeds, variation)
        except KeyboardInterrupt as error:
            if kernel.kernel_shell() is None:
                raise
            from lessonkit.exercises.local_runner import where_in

            line = where_in(error, answer)
            at = f"in your answer, {line}. Does what it does there end?" if line else "before it was done."
            raise kernel.Stopped(f"{name} was not judged: the check was stopped {at}") from None
        self._answers.pop(name, None)
        self._answers[name], self._variations[name] = answer, variation
        return verdict

    def variation_of(self, name: str) -> str | None:
        """The variation that the answer checked last was judged as."""
        return self._variations.get(name)

    def __repr__(self) -> str:
        return 'check: judges an answer. Call it: check("name", name)'

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        raise NoSuchPart(f"`check` has no `{name}`.{did_you_mean(name, ('case', 'where'))}")

    def __getitem__(self, name: Any) -> Any:
        raise WrongCall(f'round brackets call a check: check("{name}")')

    def latest(self, call: str) -> str:
        """The exercise that was checked last in this notebook. LookupError, about `call`, if none was."""
        if not self._answers:
            raise UnknownName(f'nothing has been checked in this notebook yet: name the exercise, {call}("its_name")')
        return list(self._answers)[-1]

    def _understood(self, name: Any, answer: Any) -> tuple[str, Any]:
        """What `check("f", f)` was given, also where it was `check("f")`, `check(f)` or `check(f, "f")`."""
        if name is MISSING:
            raise WrongCall('say what to check: check("name", name), as in the cell below each exercise')
        if isinstance(answer, str) and callable(name):
            name, answer = answer, name
        if answer is MISSING and callable(name):
            name, answer = _name_of(name), name
        exercise = self._course.exercise(_name_of(name)).name
        if isinstance(answer, str) or answer is MISSING:  # its name stands for it
            if exercise not in kernel.variables():
                raise UnknownName(kernel.undefined(exercise))
            answer = kernel.variables()[exercise]
        return exercise, answer

    def case(self, name: Any = None, aspect: str | None = None) -> Case | None:
        """A call of your answer that went wrong: its inputs, what came out, and what should have come out.

        Of the answer that `check` has judged last, in its first failing aspect or in the one that you name. None where
        nothing went wrong. LookupError for an unknown name, or if the answer has not been checked in this notebook.
        """
        from lessonkit.exercises.case import failing_case

        exercise, answer = self._last(name, "check.case")
        self._course.must_be_open(exercise.name)
        known = [each.name for each in exercise.aspects]
        if aspect is not None and aspect not in known:
            guess = did_you_mean(aspect, known)
            raise UnknownName(f"{exercise.name} has no aspect {aspect!r}; its aspects are: {', '.join(known)}.{guess}")
        found = failing_case(exercise, answer, VISIBLE_SEEDS[: exercise.seeds], aspect)
        if found is None:
            print(f"{exercise.name}: nothing to show. Either all is right, or your answer could not be called.")
        return found

    def where(self, name: Any = None) -> str:
        """In words, at which line of the answer that `check` has judged last one step makes it right.

        Says how far it is while it looks. LookupError as from `case`.
        """
        from lessonkit.exercises.repair import where

        chosen = _name_of(self.latest("check.where") if name is None else name)
        if os.environ.get("NBGRADER_EXECUTION") or self._course.exercise(chosen).metric:
            return f"{chosen}: no line is looked for here."  # where somebody grades, and what takes long to train
        exercise, answer = self._last(chosen, "check.where")
        self._course.must_be_open(exercise.name)
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
        nothing = f"{chosen}: nothing to look for. All is right, or your code cannot be read here."
        return str(found) if found else nothing

    def _last(self, name: Any, call: str) -> tuple[Exercise, Any]:
        exercise = self._course.exercise(_name_of(self.latest(call) if name is None else name))
        name = exercise.name
        if name not in self._answers:
            raise UnknownName(f'{name} has not been checked in this notebook: run check("{name}", {name}) first')
        return self._course.exercise(name, self.variation_of(name)), self._answers[name]


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


def the_course() -> Course:
    """The course that is at work: the one that $LESSONKIT_COURSE names, else the one that is installed.

    CommandError where there is none, or several.
    """
    if named := os.environ.get(COURSE):
        return load(named)
    found = sorted({entry.value for entry in entry_points(group="lessonkit.courses")})
    if len(found) != 1:
        which = f"several courses are installed ({', '.join(found)})" if found else "no course is installed"
        raise CommandError(f"{which}: name the package of its lessons in the environment variable {COURSE}")
    return load(found[0])


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
