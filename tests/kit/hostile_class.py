"""A class of troublemakers beside honest students, graded once, and what is right for each of them."""

import json
import re
import shutil
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import nbformat
from nbformat.v4 import new_code_cell

from attncourse_lessons import course as lessons
from lessonkit.grading.demo.command import prepare
from lessonkit.grading.engine.grade import grade
from lessonkit.grading.gradebook.nbgrader_app import Log, application, nbgrader, own_settings
from lessonkit.grading.report.results import read_results
from lessonkit.grading.submission.answers import answer, solutions

COURSE = Path(__file__).parents[2]
ASSIGNMENT, NOTEBOOK = "a03", "a03_cross_attention"
EXERCISES = lessons.exercises_of(ASSIGNMENT)
FULL = {exercise.name: exercise.out_of for exercise in EXERCISES}
SCORES, WEIGHTS, OUTPUT, STEP, FORCING, LOCAL = FULL
HONEST = ("honest", "honest in another style", "honest but mistaken")


@dataclass(frozen=True)
class Trouble:
    """One student's notebook: the model answers, but for `answers` ({model}: the right body), below the cells `first`.

    `gets` are the points of the exercises that do not get all, `says` what their reasons say. After `dies` no exercise
    gets anything. `code` is put in place of the whole source of the cell that it names.
    """

    answers: Mapping[str, str] = field(default_factory=dict)
    first: tuple[str, ...] = ()
    gets: Mapping[str, float] = field(default_factory=dict)
    says: Mapping[str, str] = field(default_factory=dict)
    dies: str = ""  # an exercise, or "first"
    ended: str = ""
    flag: str = ""
    shows: str = ""  # something in the graded notebook
    code: Mapping[str, str] = field(default_factory=dict)
    tags: tuple[str, ...] = ()  # of every check cell

    def points(self):
        """What is right, exercise by exercise."""
        right = {**FULL, **self.gets}
        if self.dies:
            dead = list(FULL)[list(FULL).index(self.dies) if self.dies != "first" else 0 :]
            right |= dict.fromkeys(dead, 0.0)
        return right


class Class:
    """The course's folder, what was handed in, and what it got, by student."""

    def __init__(self, root, limits=""):
        self.root, self.settings = root, root.parent / "settings"
        with own_settings(self.settings), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # SQLAlchemy's, about nbgrader's use of it
            prepare(root, COURSE, ASSIGNMENT)
            nbgrader(root, "generate_assignment", ASSIGNMENT, log=Log(root.parent / "log"))
        with (root / "nbgrader_config.py").open("a") as config:
            config.write(limits)
        self.source = nbformat.read(root / "solutions" / ASSIGNMENT / f"{NOTEBOOK}.ipynb", as_version=4)
        self.release = nbformat.read(root / "assignments" / ASSIGNMENT / f"{NOTEBOOK}.ipynb", as_version=4)
        self.model = solutions(self.source)
        self.handed_in = {}

    def hand_in(self, student, trouble=None, content=None):
        if content is None:
            content = self.written(trouble or Trouble())
        path = self.root / "submitted" / student / ASSIGNMENT / f"{NOTEBOOK}.ipynb"
        path.parent.mkdir(parents=True)
        path.write_bytes(content)
        self.handed_in[student] = content

    def hand_in_honestly(self):
        others = {e.name: e.alternatives[0].body for e in EXERCISES}
        mistakes = {e.name: e.misconceptions[0].body for e in EXERCISES}
        for student, theirs in zip(HONEST, ({}, others, mistakes), strict=True):
            self.hand_in(student, Trouble(theirs))

    def grade_honest_alone(self):
        """Hand in the honest, and keep what they get before the others are there."""
        self.hand_in_honestly()
        self.grade(students=HONEST)
        self.alone = {student: (self.points(student), self.rows[student].verdicts) for student in HONEST}

    def written(self, trouble):
        """The notebook as it is handed in."""
        bodies = {name: body.replace("{model}", self.model[name]) for name, body in trouble.answers.items()}
        notebook = answer(self.source, self.release, {**self.model, **bodies})
        place = next(i for i, cell in enumerate(notebook.cells) if _grade_id(cell) == SCORES)
        for cell in notebook.cells:
            cell.source = trouble.code.get(_grade_id(cell), cell.source)
            if _grade_id(cell).startswith("check-") and trouble.tags:
                cell.metadata["tags"] = list(trouble.tags)
        notebook.cells[place:place] = [new_code_cell(source) for source in trouble.first]
        text = nbformat.writes(notebook)
        try:
            return text.encode()
        except UnicodeEncodeError:  # half a character: as JSON can say it
            return json.dumps(json.loads(text)).encode()

    def grade(self, **options):
        """The outcome of the run; `rows` are the results so far."""
        with own_settings(self.settings), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            outcome = grade(self.root, ASSIGNMENT, **options)
            results = read_results(application(self.root, "autograde").coursedir, ASSIGNMENT)
        self.rows = {row.student: row for row in results.rows}
        return outcome

    def points(self, student):
        """Points by exercise."""
        points = self.rows[student].points
        return {name: points[f"check-{name}"] for name in FULL}

    def reason(self, student, exercise):
        """What the verdict on an exercise says is wrong."""
        verdict = self.rows[student].verdicts[exercise]
        wrong = [aspect["message"] for aspect in verdict["aspects"] if not aspect["ok"]]
        return "; ".join(dict.fromkeys([str(verdict["problem"] or ""), *wrong]))

    def shown(self, student):
        """All text of the graded notebook."""
        return (self.root / "autograded" / student / ASSIGNMENT / f"{NOTEBOOK}.ipynb").read_text(encoding="utf-8")

    def bytes_kept(self, student):
        path = self.root / "submitted" / student / ASSIGNMENT / f"{NOTEBOOK}.ipynb"
        return path.read_bytes() == self.handed_in[student]

    def copy_of_seeds(self, other):
        """Judge on the same seeds as another class."""
        folder = self.root / "grading" / ASSIGNMENT
        folder.mkdir(parents=True, exist_ok=True)
        shutil.copy(other.root / "grading" / ASSIGNMENT / "seeds.json", folder)

    def check(self, student, trouble):
        """AssertionError where a troublemaker did not get what is right, or was not told why."""
        row = self.rows[student]
        right = trouble.points()
        told = {name: self.reason(student, name) for name in FULL if right[name] < FULL[name]}
        assert self.points(student) == right, told or {name: self.reason(student, name) for name in FULL}
        assert all(told.values()), told
        for name, words in trouble.says.items():
            assert words in told[name]
        assert trouble.ended in str(row.log.ended)
        assert bool(row.log.ended) == bool(trouble.dies or trouble.ended), row.log.ended
        flags = [flag for flag in row.log.flags if ": stopped" not in flag]
        assert trouble.flag in "; ".join(flags) and bool(flags) == bool(trouble.flag), row.log.flags
        timed_out = re.search("stopped after [0-9]+ seconds|stopped: all cells together", self.shown(student))
        assert (len(flags) < len(row.log.flags)) == bool(timed_out), row.log.flags
        assert trouble.shows in self.shown(student)
        assert self.bytes_kept(student)


def _grade_id(cell):
    return cell.metadata.get("nbgrader", {}).get("grade_id", "")
