"""A class of seven in a course of its own, for tests that grade it as a person does: with the command, as a process."""

import json
import os
import shutil
import sys
import warnings
from pathlib import Path

import nbformat
from nbgrader.api import Gradebook

from attncourse_lessons import course as lessons
from lessonkit.grading.demo.command import prepare
from lessonkit.grading.gradebook.nbgrader_app import Log, nbgrader, own_settings
from lessonkit.grading.submission.answers import answer, solutions
from lessonkit.grading.submission.records import records_of

COURSE = Path(__file__).parents[2]
ASSIGNMENT, NOTEBOOK = "a03", "a03_cross_attention"
WRONG = lessons.exercise("attention_distribution")
STUDENTS = ("crashes", "empty", "honest", "late-crash", "other-style", "unfinished", "wrong")


def make_course(root):
    """A course in `root` in which all STUDENTS have submitted."""
    with own_settings(root.parent / "settings"), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # SQLAlchemy's, about nbgrader's use of it
        prepare(root, COURSE, ASSIGNMENT)
        nbgrader(root, "generate_assignment", ASSIGNMENT, log=Log(root / "log"))
    source = nbformat.read(root / "solutions" / ASSIGNMENT / f"{NOTEBOOK}.ipynb", as_version=4)
    release = nbformat.read(root / "assignments" / ASSIGNMENT / f"{NOTEBOOK}.ipynb", as_version=4)
    model = solutions(source)
    others = {e.name: e.alternatives[0].body for e in lessons.exercises_of(ASSIGNMENT)}
    last = lessons.exercises_of(ASSIGNMENT)[-1].name
    answers = {
        "honest": model,
        "other-style": {**model, **others},
        "wrong": {**model, WRONG.name: WRONG.misconceptions[0].body},
        "unfinished": {name: model[name] for name in list(model)[:2]},
        "crashes": {**model, "attention_output": "import os; os._exit(3)"},
        "late-crash": {**model, last: "import ctypes\nctypes.string_at(0)"},
    }
    for student in STUDENTS:
        path = root / "submitted" / student / ASSIGNMENT / f"{NOTEBOOK}.ipynb"
        path.parent.mkdir(parents=True)
        text = nbformat.writes(answer(source, release, answers[student])) if student in answers else ""
        path.write_text(text, encoding="utf-8")
    shutil.copy(root / "gradebook.db", root / "released.db")
    return root


def command(course, *words):
    """`attncourse grade a03` as a person calls it: the words, and what else `subprocess` must be given."""
    settings = dict.fromkeys(("JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "IPYTHONDIR"), str(course.parent / "settings"))
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    return (
        [sys.executable, "-m", "attncourse_lessons.cli", "grade", ASSIGNMENT, f"--course={course}", *words],
        {"env": {**os.environ, **settings, "PATH": path}, "text": True},
    )


def ungraded(course, folder, keep=""):
    """A copy of a graded course as it was before, but with the same seeds: it must come to the same grades."""
    made = {"executions", "records", "autograded", "gradebook.db"}
    left_out = shutil.ignore_patterns(*made - {keep})
    copy = shutil.copytree(course, folder / "course", ignore=left_out)
    shutil.copy(course / "released.db", copy / "gradebook.db")
    return copy


def grades(course):
    """All that a class got: points, comments, and the scores in the autograded notebooks, as JSON text by student."""
    found = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with Gradebook(f"sqlite:///{course / 'gradebook.db'}") as gradebook:
            for submission in gradebook.assignment_submissions(ASSIGNMENT):
                (notebook,) = submission.notebooks
                points = [(g.cell.name, g.auto_score, g.extra_credit, g.needs_manual_grade) for g in notebook.grades]
                comments = [(c.cell.name, c.auto_comment) for c in notebook.comments]
                place = course / "autograded" / submission.student.id / ASSIGNMENT / f"{NOTEBOOK}.ipynb"
                shown = [
                    (cell.metadata.nbgrader.grade_id, cell.outputs[0].data["text/plain"])
                    for cell in nbformat.read(place, as_version=4).cells
                    if cell.cell_type == "code" and cell.metadata.get("nbgrader", {}).get("grade")
                ]
                found[submission.student.id] = json.dumps([submission.score, sorted(points), sorted(comments), shown])
    return found


def record(course, student):
    """Where a student's submission stands."""
    return records_of(course, ASSIGNMENT).of(student)


def attempts(course):
    """What was cut off while it was executed, of students who are still there."""
    return [key for student in STUDENTS for key in record(course, student)["attempts"]]
