"""Every assignment goes through the grading engine: its solution earns all the points, its release none."""

import shutil
import warnings
from pathlib import Path

import pytest

from attncourse_lessons import course as lessons
from lessonkit.grading.demo.command import prepare
from lessonkit.grading.engine.grade import grade
from lessonkit.grading.gradebook.nbgrader_app import Log, application, nbgrader, own_settings
from lessonkit.grading.report.results import read_results

COURSE = Path(__file__).parents[2]
ASSIGNMENTS = sorted(folder.name for folder in (COURSE / "solutions").iterdir() if folder.is_dir())


@pytest.fixture(scope="module")
def course(tmp_path_factory):
    root = tmp_path_factory.mktemp("every") / "course"
    with own_settings(root.parent / "settings"):
        prepare(root, COURSE, "a03")
        yield root


@pytest.mark.parametrize(
    "assignment", [pytest.param(name, marks=[] if name == lessons.demo else pytest.mark.slow) for name in ASSIGNMENTS]
)
def test_the_solution_earns_everything_and_the_release_nothing(course, assignment):
    (source,) = (COURSE / "solutions" / assignment).glob("*.ipynb")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # SQLAlchemy's, about nbgrader's use of it
        shutil.copytree(COURSE / "solutions" / assignment, course / "solutions" / assignment, dirs_exist_ok=True)
        nbgrader(course, "generate_assignment", assignment, log=Log(course.parent / "log"))
        for student, notebook in {
            "solution": source,
            "release": course / "assignments" / assignment / source.name,
        }.items():
            folder = course / "submitted" / student / assignment
            folder.mkdir(parents=True)
            shutil.copy(notebook, folder)
        outcome = grade(course, assignment)
        results = read_results(application(course, "autograde").coursedir, assignment)
    full = {f"check-{exercise.name}": exercise.out_of for exercise in lessons.exercises_of(assignment)}
    rows = {row.student: row for row in results.rows}
    points = {student: {check: row.points[check] for check in full} for student, row in rows.items()}
    assert not outcome.failed and points == {"solution": full, "release": dict.fromkeys(full, 0.0)}
    measured = {name: verdict["metric"] is not None for name, verdict in rows["solution"].verdicts.items()}
    assert measured == {each.name: each.metric is not None for each in lessons.exercises_of(assignment)}
    assert rows["solution"].log.flags == () and rows["solution"].log.suspicious == ()
