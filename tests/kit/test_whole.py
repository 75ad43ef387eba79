"""`check_all()`: a whole notebook, as it is saved and as the grader would repair it, in a process of its own."""

import copy
import threading
from pathlib import Path

import nbformat
import pytest
from learners_kernel import learners_kernel
from nbformat.v4 import new_code_cell

from attncourse_lessons import course as lessons
from lessonkit.exercises import overview
from lessonkit.exercises.overview import NotChecked
from lessonkit.grading.submission.answers import answer, solutions
from lessonkit.learner import whole

COURSE = Path(__file__).parents[2]
ASSIGNMENT, NAME = "a03", "a03_cross_attention.ipynb"
FIRST, SECOND, THIRD, *_ = lessons.exercises_of(ASSIGNMENT)
MISTAKE = SECOND.misconceptions[0]
WRITTEN = "why-mask-first"


@pytest.fixture(scope="module")
def notebooks():
    """The assignment with its solutions, and as released."""
    folders = ("solutions", "assignments")
    return [nbformat.read(COURSE / folder / ASSIGNMENT / NAME, as_version=4) for folder in folders]


def named(notebook, name):
    return next(cell for cell in notebook.cells if cell.metadata.get("nbgrader", {}).get("grade_id") == name)


@pytest.fixture(scope="module")
def messy(notebooks, tmp_path_factory):
    """A learner's: one right, one wrong, the others unwritten; a check copied, one deleted, a cell that stops."""
    source, release = notebooks
    mine = answer(source, release, {FIRST.name: solutions(source)[FIRST.name], SECOND.name: MISTAKE.body})
    copied = copy.deepcopy(named(mine, f"check-{FIRST.name}"))
    mine.cells.insert(1, copied)  # the same id and the same name, above everything that it needs
    mine.cells.remove(named(mine, f"check-{THIRD.name}"))
    mine.cells.append(new_code_cell("1 / 0  # I was here"))
    path = tmp_path_factory.mktemp("learner") / "mine.ipynb"
    path.write_text(nbformat.v4.writes(mine))  # as JupyterLab saves it: nothing is validated
    return path


@pytest.fixture(scope="module")
def seen(messy):
    before = messy.read_bytes()
    shown = overview.run(lessons.package, messy, lambda: None)
    assert messy.read_bytes() == before
    return shown


def test_each_exercise_has_its_points_and_its_first_problem(seen):
    by_name = {line.name: line for line in seen.lines}
    wrong = [aspect for aspect in SECOND.aspects if aspect.name in MISTAKE.fails]
    assert (by_name[FIRST.name].points, by_name[FIRST.name].problem) == (FIRST.out_of, "")
    assert by_name[SECOND.name].points == SECOND.out_of - sum(aspect.points for aspect in wrong)
    told = by_name[SECOND.name].problem
    assert told.startswith(f"{wrong[0].name}: ") and MISTAKE.name in told
    assert (by_name[THIRD.name].points, by_name[THIRD.name].problem) == (0, "not written yet")
    assert (by_name[WRITTEN].points, by_name[WRITTEN].problem) == (None, "not answered")
    assert {line.name for line in seen.lines} == {each.name for each in lessons.exercises_of(ASSIGNMENT)} | {WRITTEN}


def test_the_total_is_by_checks_and_by_hand(seen):
    points = sum(line.points for line in seen.lines if line.points and not line.extra)
    assert seen.total == f"{points:g} of 32 by checks, 3 by hand" and points > FIRST.out_of
    assert repr(seen).startswith(f"mine: {seen.total}\n") and seen.total in seen._repr_html_()


def test_what_the_grader_would_repair_is_repaired_and_told(seen):
    told = " ".join(seen.repairs)
    assert f"`check-{FIRST.name}` was there twice" in told and f"`check-{THIRD.name}` was missing" in told
    assert all(note in repr(seen) for note in seen.repairs)


def test_a_cell_that_stops_is_told_although_no_check_looks_at_it(seen):
    assert seen.errors == ("`1 / 0  # I was here`, ZeroDivisionError",)


def test_every_exercise_links_to_its_cell(seen, notebooks):
    ids = {cell.id for cell in notebooks[1].cells}
    assert {line.cell for line in seen.lines} <= ids
    assert f"<a href='#cell-id={FIRST.name}'><code>{FIRST.name}</code></a>" in seen._repr_html_()


@pytest.mark.slow
def test_an_answered_notebook_has_all_the_points(notebooks, tmp_path):
    source, release = notebooks
    nbformat.write(answer(source, release, solutions(source)), tmp_path / NAME)
    shown = overview.run(lessons.package, tmp_path / NAME, lambda: None)
    assert shown.total == "32 of 32 by checks, 3 by hand, 3 extra" and shown.repairs == shown.errors == ()
    assert {line.problem for line in shown.lines} == {""}


def test_without_the_released_notebook_the_learners_own_says_what_was_given(notebooks):
    given = whole.released(lessons, ASSIGNMENT, notebooks[1])
    own = whole.Released.of_notebook(ASSIGNMENT, "x", notebooks[1])
    assert [cell.name for cell in own.cells] == [cell.name for cell in given.cells]
    twice = copy.deepcopy(notebooks[1])
    twice.cells.append(copy.deepcopy(named(twice, f"check-{FIRST.name}")))
    assert len(whole.Released.of_notebook(ASSIGNMENT, "x", twice).cells) == len(given.cells)


def test_a_notebook_of_the_course_without_checks_is_told():
    told = whole.whole(lessons, COURSE / "lectures/03_cross_attention.ipynb")
    assert told == {"refused": "03_cross_attention.ipynb holds no check: it is none of the course's assignments"}


def test_what_cannot_be_read_is_told(tmp_path):
    (tmp_path / "x.ipynb").write_text("{")
    with pytest.raises(NotChecked, match=r"x\.ipynb: the submitted file is damaged"):
        overview.run(lessons.package, tmp_path / "x.ipynb", lambda: None)


def test_it_waits_until_the_notebook_is_saved_and_not_for_ever(capsys, monkeypatch):
    moment = iter(["the cell of `softmax`", None])
    overview._wait(lambda: next(moment))
    assert capsys.readouterr().out == ""  # a moment is nothing to speak of
    monkeypatch.setattr(overview, "SAVES_WITHIN", 0.1)
    waits = iter(["the cell of `softmax`", "the cell of `softmax`", "the cell of `softmax`", None])
    overview._wait(lambda: next(waits))
    assert capsys.readouterr().out.count("Waiting until the notebook is saved") == 1
    monkeypatch.setattr(overview, "SAVED_WITHIN", 0.1)
    with pytest.raises(NotChecked, match=r"a cell is not saved yet: save the notebook \(Ctrl\+S\)"):
        overview._wait(lambda: "a cell")


@pytest.mark.slow
def test_in_a_notebook_it_is_about_that_notebook_once_it_is_saved(notebooks, tmp_path):
    """The kernel ran an answer; the file is saved seconds later, as JupyterLab does."""
    source, release = notebooks
    mine = answer(source, release, {FIRST.name: solutions(source)[FIRST.name]})
    with learners_kernel(tmp_path) as kernel:
        nbformat.write(release, kernel.notebook)
        kernel("from torch import Tensor\nfrom attncourse import check_all")
        kernel(named(mine, FIRST.name).source, FIRST.name)
        saving = threading.Timer(3, nbformat.write, (mine, kernel.notebook))
        saving.start()
        shown = kernel("check_all()")
        saving.join()
    assert "Waiting until the notebook is saved" in shown.printed and shown.error == ""
    assert f"{FIRST.out_of:g} of 32 by checks, 3 by hand" in shown.html


@pytest.mark.parametrize(("name", "value"), [("NBGRADER_EXECUTION", "validate"), ("LESSONKIT_PROGRESS", "")])
def test_where_somebody_grades_or_builds_it_does_nothing(name, value, monkeypatch):
    monkeypatch.setenv(name, value)
    assert lessons.check_all("nowhere.ipynb") is None


def test_a_notebook_in_which_python_ends_is_told_so(notebooks, tmp_path):
    notebook = copy.deepcopy(notebooks[1])
    notebook.cells = [*notebook.cells[:4], new_code_cell("quit()  # enough"), *notebook.cells[4:]]
    path = tmp_path / "mine.ipynb"
    nbformat.write(notebook, path)
    told = whole.whole(lessons, path)["refused"]
    assert told.startswith("mine.ipynb: Python ended in the cell `")
    assert told.endswith("` or above it: is there an exit() or quit()?")
