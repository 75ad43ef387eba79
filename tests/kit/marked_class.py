"""A small class whose written answers wait to be marked: autograded notebooks and a gradebook, no code was run."""

import os
import shutil
import subprocess
import sys
import warnings
from contextlib import contextmanager

import nbformat
from nbgrader.api import Gradebook
from small_class import ASSIGNMENT, COURSE, NOTEBOOK

from lessonkit.grading.demo.command import prepare
from lessonkit.grading.gradebook.nbgrader_app import Log, application, nbgrader, own_settings

QUESTION = "why-mask-first"
CANCELS = "On paper both divide $\\exp(e_i)$ by the sum over the **tokens**, so the common denominator cancels."
NAN = "With scores (0, 200) and the second one padded, $\\exp(-200)$ underflows and masking afterwards gives 0/0 = NaN."
SHIFT = "The softmax is invariant under a shift of all scores, so it is all the same."
HOSTILE = (
    "<script>document.title = 'taken'</script><img src=x onerror=\"document.title = 'taken'\">"
    '<a href="javascript:document.title=\'taken\'">click</a><div style="position:fixed; inset:0">over</div>'
    "<form action='/marks'><input name=a></form>\n\n[elsewhere](https://example.org/x)\n\n$\\href{javascript:alert(1)}{x}$"
)
ANSWERS = {
    "ada": f"{CANCELS} {NAN}",
    "ben": f"{NAN} {CANCELS}",
    "cleo": SHIFT,
    "dora": f"{CANCELS} {NAN} That is why.",
    "emil": HOSTILE,
    "finn": "*Your answer here.*",
}


def make_course(root):
    """A course in `root` in which nobody has handed in yet."""
    with own_settings(root.parent / "settings"), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # SQLAlchemy's, about nbgrader's use of it
        prepare(root, COURSE, ASSIGNMENT)
        nbgrader(root, "generate_assignment", ASSIGNMENT, log=Log(root / "log"))
    return root


def hand_in(course, answers):
    """Put answers, graded by the checks, into a course: {student: text of the written answer}."""
    release = nbformat.read(course / "assignments" / ASSIGNMENT / f"{NOTEBOOK}.ipynb", as_version=4)
    (cell,) = [cell for cell in release.cells if cell.metadata.get("nbgrader", {}).get("grade_id") == QUESTION]
    stub = cell.source
    with gradebook(course) as book:
        for student, text in answers.items():
            cell.source = text
            folder = course / "autograded" / student / ASSIGNMENT
            folder.mkdir(parents=True)
            nbformat.write(release, folder / f"{NOTEBOOK}.ipynb")
            book.update_or_create_student(student, first_name=student.capitalize(), last_name="Example")
            book.add_submission(ASSIGNMENT, student)
            for grade in book.find_submission_notebook(NOTEBOOK, ASSIGNMENT, student).grades:
                is_written = grade.name == QUESTION
                grade.auto_score = 0.0 if is_written and text == stub else None if is_written else grade.max_score
                grade.needs_manual_grade = grade.auto_score is None
        book.db.commit()


def copied(course, to):
    """The course once more, for a test that changes it."""
    return shutil.copytree(course, to)


def coursedir(course):
    return application(course, "autograde").coursedir


@contextmanager
def gradebook(course):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # SQLAlchemy's, about nbgrader's use of it
        with Gradebook(f"sqlite:///{course / 'gradebook.db'}", "attncourse") as found:
            yield found


def kept(course, student):
    """What the gradebook says of a student's written answer: points, comment, whether it waits."""
    with gradebook(course) as book:
        grade = book.find_grade(QUESTION, NOTEBOOK, ASSIGNMENT, student)
        comment = book.find_comment(QUESTION, NOTEBOOK, ASSIGNMENT, student)
        return grade.manual_score, comment.manual_comment, grade.needs_manual_grade


@contextmanager
def served(course, *words):
    """The command as a person calls it: the address that it prints, and the process."""
    program = [sys.executable, "-m", "attncourse_lessons.cli"]
    process = subprocess.Popen(
        [*program, "mark", ASSIGNMENT, f"--course={course}", "--no-browser", *words],
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"JUPYTER_CONFIG_DIR": str(course.parent / "settings")},
    )
    try:
        address = next(line for line in process.stdout if "http" in line).split()[-1]
        yield address, process
    finally:
        process.terminate()
        process.wait()
        process.stdout.close()
