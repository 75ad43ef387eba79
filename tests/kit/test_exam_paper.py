"""`attncourse exam`: what is drawn, the notebook and the sheet, and a class that sits it."""

import json
import shutil
import warnings
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import nbformat
import pytest
from nbgrader.api import Gradebook
from test_variations import read, source_of, type_in

from attncourse_lessons import course as lessons
from attncourse_lessons.cli import main
from commandkit.errors import CommandError
from lessonkit.authoring.build import orphans
from lessonkit.authoring.checkout import Checkout
from lessonkit.exercises import exam as exam_mode
from lessonkit.grading.exams import exam as command
from lessonkit.grading.exams.paper import drawn, mark_scheme, notebook, page, sheet
from lessonkit.grading.gradebook.nbgrader_app import application, own_settings
from lessonkit.grading.report.results import read_results
from lessonkit.grading.submission.records import grading_folder
from lessonkit.grading.submission.variations import variations_in
from lessonkit.learner.whole import repaired

ROOT = Path(__file__).parents[2]
EIGHT = [f"0{n}" for n in range(8)]


@dataclass(frozen=True)
class Question:
    """As the bank's are."""

    lesson: str
    name: str
    prompt: str
    options: tuple
    minutes: float
    points: int
    generated: bool


OPTIONS = (
    SimpleNamespace(text="wrong", right=False, reason="no"),
    SimpleNamespace(text="a\nb", right=True, reason="so"),
)
FIRST = {"00": "softmax", "01": "gru_step", "02": "hard_lookup", "03": "attention_scores"}


def bank(lessons, seed=0):
    """Four written questions for each of eight lessons, and for four two more about an exercise's mistakes."""
    found = []
    for lesson in lessons:
        names = [(f"{what}-{lesson}", 1, False) for what in ("shapes", "costs", "limits", "names") if lesson in EIGHT]
        names += [(f"{FIRST[lesson]}-{kind}-1f", 2, True) for kind in ("bug", "gap") if lesson in FIRST]
        found += [Question(lesson, name, f"What is {name}?", OPTIONS, 1.5, worth, made) for name, worth, made in names]
    return found


@pytest.mark.parametrize("seed", range(6))
def test_an_exam_has_exactly_its_points_and_no_question_gives_a_task_away(seed):
    paper = drawn(lessons, EIGHT, 50, seed, bank(EIGHT), "exam")
    assert paper.points == 50 and 30 <= paper.coding <= 50 * 2 / 3
    assigned = [lessons.assignment_of(task.name) for task in paper.tasks]
    assert assigned == sorted(set(assigned)) and all(task.varied for task in paper.tasks)
    shown = [question.name.partition("-")[0] for question in paper.questions if question.generated]
    assert len(shown) == len(set(shown)) and not set(shown) & {task.name for task in paper.tasks}
    again = drawn(lessons, EIGHT, 50, seed, bank(EIGHT), "exam")
    assert (again.variations(), again.questions) == (paper.variations(), paper.questions)


def test_seeds_draw_other_exams():
    papers = [drawn(lessons, EIGHT, 50, seed, bank(EIGHT), "exam").variations() for seed in range(6)]
    assert len({json.dumps(each) for each in papers}) == 6


def test_an_exam_that_there_is_not_enough_for_is_refused():
    with pytest.raises(CommandError, match=r"14: 10 points too few in the question bank, beside 0 of exer"):
        drawn(lessons, ["14"], 10, 0, [], "exam")
    assert drawn(lessons, ["00"], 7, 0, [], "exam", coding=1).points == 7


def test_the_sheet_has_no_answers_and_the_mark_scheme_all_of_them():
    paper = drawn(lessons, EIGHT, 50, 7, bank(EIGHT), "exam")
    asked, told = sheet(paper), mark_scheme(paper)
    assert asked.count("## Question") == len(paper.questions) == told.count("### Question")
    assert "so" not in asked.split() and "lesson" not in asked.split("##")[2] and "- ☐ B.\n\n  a\n  b" in asked
    assert told.count("**B**: so") == len(paper.questions) and "All letters: 1B 2B" in told
    for task in paper.tasks:
        assert task.solution_body in told and task.varied.asks in told and task.varied.asks not in asked
    assert "<table>" in page(told) and "src=" not in page(told) and "href=" not in page(told)


def test_each_task_is_a_stub_and_nothing_of_its_solution_is_left_in_the_released_cell():
    for seed in range(3):
        paper = drawn(lessons, EIGHT, 60, seed, [*bank(EIGHT), *bank(EIGHT)], "exam", coding=0.7)
        made = notebook(paper, lessons, ROOT / "solutions")
        for task in paper.tasks:
            source = source_of(made, task.name)
            between = source.partition("### BEGIN SOLUTION\n")[2].partition("    ### END SOLUTION")[0]
            assert [line[4:] for line in between.splitlines()] == task.solution_body.splitlines()
            assert f'variation="{task.varied.name}"' in source_of(made, f"check-{task.name}")
        text = "\n".join(cell.source for cell in made.cells if cell.cell_type == "markdown")
        assert "next cell" not in text and "](@" not in text
        assert len({cell.id for cell in made.cells}) == len(made.cells)


@pytest.fixture(scope="module")
def sat(tmp_path_factory):
    """A course in which an exam was put together, sat by three and graded: (its folder, the tasks, what was said)."""
    root = tmp_path_factory.mktemp("exam") / "course"
    root.mkdir()
    shutil.copy(ROOT / "nbgrader_config.py", root)
    shutil.copytree(ROOT / "solutions", root / "solutions")
    with own_settings(root.parent / "settings"), warnings.catch_warnings(), pytest.MonkeyPatch.context() as patched:
        warnings.simplefilter("ignore")  # SQLAlchemy's, about nbgrader's use of it
        patched.chdir(root)
        patched.setattr(command, "questions", lambda course, chosen, seed: bank(chosen, seed))
        said = []
        patched.setattr("builtins.print", lambda *words, **_: said.append(" ".join(map(str, words))))
        assert main(["exam", "--lessons", "00-03", "--points", "30", "--seed", "7"]) == 0
        asked = {name: names[0] for name, names in variations_in(grading_folder(root, "exam")).offered.items()}
        tasks = [lessons.exercise(name, variation) for name, variation in asked.items()]
        right = {task.name: task.solution_body for task in tasks}
        book = {name: lessons.exercise(name).solution_body for name in right}
        for student, answers in {"right": right, "book": book, "blank": {}}.items():
            place = root / "submitted" / student / "exam" / "exam.ipynb"
            place.parent.mkdir(parents=True)
            nbformat.write(type_in(read(root / "assignments/exam/exam.ipynb"), answers), place)
        for words in (["grade", "exam"], ["report", "exam"], ["feedback", "exam"]):
            assert main(words) == 0
    return root, tasks, said


def test_a_class_that_sits_it_gets_its_points(sat):
    root, tasks, _ = sat
    results = read_results(application(root, "autograde").coursedir, "exam")
    rows = {row.student: row for row in results.rows}
    assert results.out_of == sum(task.out_of for task in tasks) and len(tasks) >= 3
    assert rows["right"].total == results.out_of and rows["blank"].total == 0
    for task in tasks:
        assert rows["book"].points[f"check-{task.name}"] < task.out_of
        assert rows["book"].verdicts[task.name]["misconceptions"] == ["the variation left out"]
    assert not [row.student for row in results.rows if row.tampering or row.repairs]
    html = (root / "grading/exam/report.html").read_text("utf-8")
    assert all(aspect.name in html for task in tasks for aspect in task.aspects)


def test_the_released_notebook_holds_no_solution_and_the_gradebook_knows_it(sat):
    root, tasks, _ = sat
    given = read(root / "assignments/exam/exam.ipynb")
    text = "\n".join(cell.source for cell in given.cells)
    assert "SOLUTION" not in text and "HIDDEN" not in text and text.count("NotImplementedError") == len(tasks)
    assert not [task.name for task in tasks if task.solution_body.splitlines()[-1] in text]
    with Gradebook(f"sqlite:///{root / 'gradebook.db'}") as gradebook:
        assert gradebook.find_assignment("exam").max_score == sum(task.out_of for task in tasks)


def test_what_was_made_is_said_and_is_there(sat):
    root, _, said = sat
    words = [word.rstrip(",") for line in said for word in line.split()]
    named = [word for word in words if word.startswith(("assignments/", "grading/exam/", "solutions/"))]
    assert len(named) >= 4 and all((root / name).is_file() for name in named)
    assert "30 points" in said[0] and any("release --to exam.zip --exam-until" in line for line in said)


def test_an_exam_is_no_orphan_and_is_not_written_over(sat, monkeypatch, capsys):
    root, *_ = sat
    (root / "src").mkdir(exist_ok=True)
    assert not [path for path, *_ in orphans(Checkout(root, lessons)) if "exam" in path.parts]
    monkeypatch.chdir(root)
    monkeypatch.setattr(command, "questions", lambda course, chosen, seed: bank(chosen, seed))
    assert main(["exam", "--lessons", "00-03", "--points", "30", "--seed", "8"]) == 1
    assert "is there already: students may have it" in capsys.readouterr().err
    for words, says in (
        (["--lessons", "00-99", "--points", "9"], "names no lessons"),
        (["--lessons", "00", "--points", "9", "--name", "a03"], "is no name for an exam"),
        (["--lessons", "00", "--points", "0"], "at least 1"),
        (["--lessons", "14", "--points", "9", "--name", "other"], "too few"),
    ):
        assert main(["exam", "--seed", "1", *words]) == 1
        assert says in capsys.readouterr().err
    assert not (root / "solutions/other").exists() and not (root / "grading/other").exists()


def test_looked_at_as_a_whole_an_exam_gets_no_cells_of_an_assignment(sat):
    root, *_ = sat
    _, looked_at, notes = repaired(lessons, root / "assignments/exam/exam.ipynb")
    assert notes == [] and len(looked_at.cells) == len(read(root / "assignments/exam/exam.ipynb").cells)


def test_in_an_exam_a_check_of_a_variation_says_right_or_wrong_and_no_more(sat, monkeypatch):
    _, tasks, _ = sat
    monkeypatch.setattr(exam_mode, "exam_in", lambda package: exam_mode.Exam(exam_mode.FOR_EVER))
    for task in tasks:
        verdict = lessons.judge(task.name, lessons.exercise(task.name).solution, variation=task.varied.name)
        assert verdict.score == "not right yet" and "variation left out" not in verdict.text()
        assert lessons.judge(task.name, task.solution, variation=task.varied.name).score == "right"
