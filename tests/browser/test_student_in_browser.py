"""A student opens assignment 03 in JupyterLab, errs, reads why, mends it, and validates."""

import re
import shutil
from pathlib import Path

import nbformat
import pytest
from jupyter_lab import cell, expect, faults, run, running, write

from attncourse_lessons import course as lessons
from lessonkit.grading.submission.answers import answer, solutions

COURSE = Path(__file__).parents[2]
ASSIGNMENT, NOTEBOOK = "a03", "a03_cross_attention.ipynb"
EXERCISE = lessons.exercises_of(ASSIGNMENT)[0]
MISTAKE, RIGHT = EXERCISE.misconceptions[0], EXERCISE.alternatives[0]


@pytest.fixture(scope="module")
def notebooks():
    """The assignment with its solutions, and as released."""
    folders = ("solutions", "assignments")
    return [nbformat.read(COURSE / folder / ASSIGNMENT / NOTEBOOK, as_version=4) for folder in folders]


@pytest.fixture(scope="module")
def lab(chromium, notebooks, tmp_path_factory):
    """JupyterLab in a student's course: the assignment as released, and all of it answered."""
    source, release = notebooks
    home = tmp_path_factory.mktemp("student")
    shutil.copytree(COURSE / "assignments" / ASSIGNMENT, home / "course/assignments" / ASSIGNMENT)
    nbformat.write(answer(source, release, solutions(source)), home / "course/answered.ipynb")
    with running(home / "course", home) as lab:
        yield lab


@pytest.fixture
def page(lab, new_page):
    """The assignment as released, open, its imports run."""
    page = lab.open(new_page(), f"assignments/{ASSIGNMENT}/{NOTEBOOK}")
    run(cell(page, "from attncourse import check, hint"))
    return page


@pytest.fixture
def attempt(page, notebooks):
    """Write an answer to the first exercise and run its check: the card."""

    def of(body):
        written = cell(page, f"def {EXERCISE.name}(")
        filled = answer(*notebooks, {EXERCISE.name: body}).cells
        write(written, next(one.source for one in filled if one.source.startswith(f"def {EXERCISE.name}(")))
        assert run(written).inner_text() == ""
        return run(cell(page, f'check("{EXERCISE.name}"')).locator(".jp-RenderedHTML")

    return of


def validate(page):
    """What *Validate* says."""
    page.get_by_role("button", name="Validate").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("Validation Results")
    return dialog.inner_text()


def plain(text):
    """As it is read: the signs that set code and emphasis are not shown."""
    return re.sub("[`*]", "", text)


def test_a_mistake_is_named_explained_mended_and_validated(page, attempt):
    card = attempt(MISTAKE.body)
    expect(card).to_contain_text(f"This is what “{MISTAKE.name}” gives.")
    expect(card).to_contain_text(plain(MISTAKE.hint))
    expect(card).not_to_contain_text(f"{EXERCISE.out_of:g} of {EXERCISE.out_of:g}")
    card = attempt(RIGHT.body)
    expect(card).to_contain_text(f"{EXERCISE.out_of:g} of {EXERCISE.out_of:g} points")
    expect(card).not_to_contain_text("✗")
    said = validate(page)
    for exercise in lessons.exercises_of(ASSIGNMENT):
        missing = exercise is not EXERCISE and not exercise.extra
        assert (f'check("{exercise.name}", {exercise.name})' in said) == missing
    assert said.count("Not written yet.") == 3 and "You did not provide a response." in said


@pytest.mark.slow
def test_a_hint_nudges_and_progress_shows_the_points_of_the_checks(page, attempt):
    attempt(RIGHT.body)
    page.keyboard.press("b")  # a new cell, below
    asked = f'import attncourse\nhint("{EXERCISE.name}", 1)\nattncourse.progress("{ASSIGNMENT}")'
    write(page.locator(".jp-CodeCell.jp-mod-active"), asked)
    said = run(cell(page, "attncourse.progress("))
    expect(said).to_contain_text(f"Hint 1 of {len(EXERCISE.hints)}. {EXERCISE.hints[0]}")
    total = sum(exercise.out_of for exercise in lessons.exercises_of(ASSIGNMENT) if not exercise.extra)
    expect(said.locator("summary")).to_contain_text(f"{ASSIGNMENT} █░░░░░░░░░ {EXERCISE.out_of:g} of {total:g} points")
    said.locator("summary").click()
    expect(said.get_by_role("row").filter(has_text=EXERCISE.name)).to_contain_text(f"{EXERCISE.out_of:g} of")
    assert faults(said) == []


@pytest.mark.parametrize("colours", ["#fff; color:#212121", "#111; color:#e0e0e0"])  # JupyterLab's: light, dark
@pytest.mark.parametrize("body", [MISTAKE, RIGHT])
def test_axe_finds_no_serious_fault_in_a_verdict(open_page, body, colours):
    # In a page of its own: within JupyterLab axe-core does not look at the contrast of colours.
    card = lessons.check(EXERCISE.name, body.answer)._repr_mimebundle_()["text/html"]
    page = open_page(f"<!doctype html><html data-ready><body style='background:{colours}'><main>{card}</main></body>")
    assert faults(page.locator("main")) == []


@pytest.mark.slow
def test_an_assignment_that_is_answered_validates(lab, new_page):
    said = validate(lab.open(new_page(), "answered.ipynb"))
    assert "Success! Your notebook passes all the tests." in said
