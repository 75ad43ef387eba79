"""What learners are given: assignments without answers, and tables that say what the exercises are."""

import re
import sys
from pathlib import Path

import nbformat
import pytest

from attncourse_lessons import course as lessons
from lessonkit.grading.engine.preprocessors import ExecuteOrReplay
from lessonkit.grading.gradebook.nbgrader_app import application

ROOT = Path(__file__).parents[2]
RELEASED = sorted(ROOT.glob("assignments/*/*.ipynb"))


def cells(path):
    return nbformat.read(path, as_version=4).cells


@pytest.mark.parametrize("path", RELEASED, ids=lambda path: path.stem)
def test_an_assignment_holds_no_solution_no_mark_scheme_and_no_hidden_seeds(path):
    released = "\n".join(cell.source for cell in cells(path))
    solution = "\n".join(cell.source for cell in cells(ROOT / "solutions" / path.parent.name / path.name))
    answers = re.findall(r"### BEGIN SOLUTION\n(.*?)### END SOLUTION", solution, flags=re.DOTALL)
    assert answers
    for line in (line.strip() for answer in answers for line in answer.splitlines()):
        assert len(line) < 12 or line not in released or line == "super().__init__()"  # every module's first line
    assert not re.search(r"SOLUTION|HIDDEN|seeds=|Mark scheme", released)


@pytest.mark.parametrize("path", RELEASED, ids=lambda path: path.stem)
def test_an_assignment_has_no_outputs(path):
    assert not any(cell.get("outputs") or cell.get("execution_count") for cell in cells(path))


@pytest.mark.parametrize("path", RELEASED, ids=lambda path: path.stem)
def test_an_assignments_table_says_what_its_exercises_are(path):
    row = r"^\|[^|]*\| `(\w+)`[^|]*\| ([●○]{3}) \| (\d+) \| ([\d.]+)( extra)? \|$"
    table = {
        name: (dots.count("●"), int(minutes), float(points), bool(extra))
        for name, dots, minutes, points, extra in re.findall(row, cells(path)[0].source, flags=re.MULTILINE)
    }
    exercises = lessons.exercises_of(path.parent.name)
    assert table == {e.name: (e.difficulty, e.minutes, e.out_of, e.extra) for e in exercises}


@pytest.mark.parametrize("path", RELEASED, ids=lambda path: path.stem)
def test_an_assignment_has_a_check_under_every_exercise_and_a_written_question(path):
    graders = [cell.metadata.nbgrader for cell in cells(path) if "nbgrader" in cell.metadata]
    checks = [meta.grade_id for meta in graders if meta.grade and not meta.solution]
    assert checks == [f"check-{exercise.name}" for exercise in lessons.exercises_of(path.parent.name)]
    assert any(meta.grade and meta.solution for meta in graders)


@pytest.mark.parametrize("path", sorted(ROOT.glob("lectures/*.ipynb")), ids=lambda path: path.stem)
def test_every_picture_of_a_lecture_says_what_it_shows(path):
    pictures = [out for cell in cells(path) for out in cell.get("outputs", []) if "image/png" in out.get("data", {})]
    assert len(pictures) >= 3
    assert all(len(out.metadata["image/png"]["alt"]) > 30 for out in pictures)


@pytest.mark.parametrize("path", sorted(ROOT.glob("lectures/*.ipynb")) + RELEASED, ids=lambda path: path.stem)
def test_every_link_of_a_notebook_leads_to_a_file(path):
    text = "\n".join(cell.source for cell in cells(path) if cell.cell_type == "markdown")
    links = re.findall(r"\]\((?!https?:)([^)#]+)\)", text)
    assert links and all((path.parent / link).exists() for link in links)


@pytest.mark.parametrize("path", sorted(ROOT.glob("lectures/*.ipynb")) + RELEASED, ids=lambda path: path.stem)
def test_a_notebook_opened_where_the_course_is_not_installed_says_what_to_do(path, monkeypatch):
    first = next(cell.source for cell in cells(path) if cell.cell_type == "code")
    monkeypatch.setattr(sys, "meta_path", [])
    for name in [name for name in sys.modules if name.partition(".")[0] in ("attncourse", "attncourse_lessons")]:
        monkeypatch.delitem(sys.modules, name)
    with pytest.raises(ImportError, match="open it with `make lab` in the course's folder"):
        exec(first, {})


def test_the_limits_in_the_instructors_page_are_those_in_force():
    told = re.findall(r"^c\.ExecuteOrReplay\.(\w+) = (\d+)", (ROOT / "docs" / "grading.md").read_text(), re.MULTILINE)
    step = ExecuteOrReplay(parent=application(ROOT, "autograde"))
    assert len(told) == 5 and all(getattr(step, name) == int(value) for name, value in told)
