"""An instructor in nbgrader's formgrader: presses Autograde, reads the points, marks a written answer by hand."""

import shutil
import subprocess
import warnings
from contextlib import contextmanager

import pytest
from jupyter_lab import expect, running
from nbgrader.api import Gradebook
from small_class import ASSIGNMENT, NOTEBOOK, STUDENTS, command, make_course

GRADED, LATE = "honest", "wrong"
WRITTEN = "why-mask-first"
MATHJAX = "https://cdnjs.cloudflare.com/ajax/libs/mathjax/**"
NO_MATHJAX = "MathJax = {Hub: {Config() {}, Queue() {}, Startup: {signal: {Interest(heard) { heard('End') }}}}}"

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def course(chromium, tmp_path_factory):
    """A course of two, of whom one handed in after `attncourse grade` had graded the other."""
    home = tmp_path_factory.mktemp("instructor")
    course = make_course(home / "course")
    for student in set(STUDENTS) - {GRADED}:
        shutil.move(course / "submitted" / student, home / student)
    words, how = command(course)
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL, **how)
    shutil.move(home / LATE, course / "submitted")
    return course


@pytest.fixture(scope="module")
def lab(course):
    with running(course, course.parent / "home") as lab:
        yield lab


@pytest.fixture
def visit(lab, new_page):
    """Go to a page of the formgrader."""

    def to(path):
        page = new_page()
        # nbgrader's page has MathJax from a public server, and breaks off where there is none. Here it gets a stub.
        page.route(MATHJAX, lambda route: route.fulfill(content_type="text/javascript", body=NO_MATHJAX))
        return lab.visit(page, f"formgrader/{path}")

    return to


@contextmanager
def gradebook(course):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # SQLAlchemy's, about nbgrader's use of it
        with Gradebook(f"sqlite:///{course / 'gradebook.db'}") as found:
            yield found


@pytest.fixture
def submission(course, visit):
    """Where the graded submission is marked, reached from the list of submissions."""
    with gradebook(course) as book:
        number = book.find_submission_notebook(NOTEBOOK, ASSIGNMENT, GRADED).id
    page = visit(f"gradebook/{ASSIGNMENT}/{NOTEBOOK}")
    page.locator(f"a[href*='{number}']:visible").first.click()
    page.wait_for_function("window.formgrader?.grades?.loaded && formgrader.comments.loaded")
    return page


def test_the_autograde_button_grades_a_submission(course, visit):
    row = visit(f"manage_submissions/{ASSIGNMENT}").get_by_role("row").filter(has_text=LATE)
    expect(row).to_contain_text("needs autograding")
    row.locator(".autograde").get_by_role("link").click()
    expect(row.page.locator(".modal-dialog")).to_contain_text(
        f"Successfully autograded '{ASSIGNMENT}' for student '{LATE}'."
    )
    with gradebook(course) as book:
        got = book.find_submission(ASSIGNMENT, LATE)
        assert 0 < got.score < got.max_score - 3
        expect(row.locator(".score")).to_have_text(f"{got.score:g} / {got.max_score:g}")
    expect(row).to_contain_text("needs manual grading")


def test_a_submission_shows_the_points_of_the_gradebook(course, submission):
    with gradebook(course) as book:
        grades = book.find_submission_notebook(NOTEBOOK, ASSIGNMENT, GRADED).grades
        automatic = [grade for grade in grades if grade.auto_score is not None]
        assert sum(grade.auto_score for grade in automatic) == 32
        for grade in automatic:
            assert submission.locator(f"#{grade.name}").get_attribute("placeholder") == f"{grade.auto_score:g}"
            extra = submission.locator(f"#{grade.name}_extra_credit").input_value()
            assert float(extra or 0) == (grade.extra_credit or 0)


def test_a_mark_and_a_comment_for_a_written_answer_are_kept(course, submission):
    score = submission.locator(f"#{WRITTEN}")
    assert "needs_manual_grade" in score.get_attribute("class")
    with submission.expect_response("**/api/grade/*") as saved:
        score.fill("2.5")
        submission.keyboard.press("Tab")
    assert saved.value.ok
    with submission.expect_response("**/api/comment/*") as saved:
        submission.locator(f"#{WRITTEN}-comment").fill("Why before, and not after?")
        submission.keyboard.press("Tab")
    assert saved.value.ok
    with gradebook(course) as book:
        grade = book.find_grade(WRITTEN, NOTEBOOK, ASSIGNMENT, GRADED)
        assert (grade.manual_score, grade.score, grade.needs_manual_grade) == (2.5, 2.5, False)
        assert book.find_comment(WRITTEN, NOTEBOOK, ASSIGNMENT, GRADED).comment == "Why before, and not after?"
