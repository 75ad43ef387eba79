"""The example class through nbgrader's whole loop: release, submit, collect, autograde, feedback, export."""

import csv
import shutil
from contextlib import contextmanager
from io import StringIO
from pathlib import Path

import nbformat
import pytest
from nbgrader.api import Gradebook
from nbgrader.apps.api import NbGraderAPI
from nbgrader.utils import notebook_hash
from rich.cells import cell_len
from rich.console import Console

from attncourse_lessons import course as lessons
from attncourse_lessons.cli import main
from commandkit.errors import CommandError
from lessonkit.grading.demo import command as demo
from lessonkit.grading.demo.example_class import CRASH, UNFINISHED, discrepancies, make_class
from lessonkit.grading.gradebook.nbgrader_app import Log, application, nbgrader, own_settings
from lessonkit.grading.report import command as report
from lessonkit.grading.report.results import read_results
from lessonkit.grading.submission.answers import solutions

COURSE = Path(__file__).parents[2]
ASSIGNMENT, NOTEBOOK = "a03", "a03_cross_attention"
EXERCISES = lessons.exercises_of(ASSIGNMENT)
FULL = {f"check-{exercise.name}": exercise.out_of for exercise in EXERCISES}


@contextmanager
def silent():
    yield lambda what, of: lambda: None


@pytest.fixture(scope="module")
def one_in(request):
    """How many misconceptions have one student: each has its own in `make test-all`, and in `make demo`."""
    return 1 if request.config.getoption("--all") else 4


@pytest.fixture(scope="module")
def graded(tmp_path_factory, one_in):
    """The demo's course after the loop: (its folder, its results, what is wrong with them)."""
    root = tmp_path_factory.mktemp("loop") / "demo"
    demo.prepare(root, COURSE, ASSIGNMENT)
    with silent() as stage:
        return root, *demo.grade_class(root, lessons, ASSIGNMENT, stage, one_in)


@pytest.fixture(scope="module")
def students(graded, one_in):
    """The example class by what each one handed in."""
    source = nbformat.read(COURSE / "solutions" / ASSIGNMENT / f"{NOTEBOOK}.ipynb", as_version=4)
    return make_class(EXERCISES, solutions(source), one_in)


def row(graded, student):
    return next(row for row in graded[1].rows if row.student == student.id)


def page(graded, student):
    return (graded[0] / "feedback" / student.id / ASSIGNMENT / f"{NOTEBOOK}.html").read_text(encoding="utf-8")


def checks(row):
    return {name: points for name, points in row.points.items() if name in FULL}


# --------------------------------------------------------------------------------------------------------------- grades


def test_the_class_gets_what_it_should(graded):
    assert graded[2] == []


def test_the_solution_gets_everything(graded, students):
    assert checks(row(graded, students[0])) == FULL


def test_the_untouched_release_gets_nothing(graded, students):
    blank = row(graded, students[1])
    assert students[1].answers == {} and set(blank.points.values()) == {0} and blank.total == 0


def test_another_style_gets_everything(graded, students):
    assert checks(row(graded, students[2])) == FULL


@pytest.mark.parametrize("exercise", EXERCISES, ids=lambda exercise: exercise.name)
def test_each_misconception_loses_points_in_its_own_aspect_and_is_named(graded, students, one_in, exercise):
    assert exercise.misconceptions
    for wrong in exercise.misconceptions[::one_in]:
        student = next(s for s in students if any(loss.misconception is wrong for loss in s.losses.values()))
        got = row(graded, student)
        verdict = got.verdicts[exercise.name]
        assert {aspect["name"] for aspect in verdict["aspects"] if not aspect["ok"]} == set(wrong.fails)
        assert wrong.name in verdict["misconceptions"]
        lost = sum(aspect.points for aspect in exercise.aspects if aspect.name in wrong.fails)
        assert lost > 0 and checks(got) == {**FULL, f"check-{exercise.name}": exercise.out_of - lost}


def test_a_crash_keeps_the_points_of_what_ran_before(graded, students):
    student = next(s for s in students if s.answers and CRASH in s.answers.values())
    got = checks(row(graded, student))
    names = list(FULL)
    at = names.index(f"check-{next(name for name, body in student.answers.items() if body == CRASH)}")
    assert [got[name] for name in names[:at]] == [FULL[name] for name in names[:at]]
    assert {got[name] for name in names[at:]} == {0}


def test_an_unfinished_cell_costs_its_own_points_only(graded, students):
    student = next(s for s in students if s.answers and UNFINISHED in s.answers.values())
    unfinished = next(name for name, body in student.answers.items() if body == UNFINISHED)
    assert checks(row(graded, student)) == {**FULL, f"check-{unfinished}": 0}


def test_an_empty_file_gets_a_row_with_the_reason(graded, students):
    empty = row(graded, next(s for s in students if s.answers is None))
    assert empty.submitted and set(empty.points.values()) == {0}
    assert empty.unreadable == "the submitted file is empty"


def test_written_answers_wait_for_a_person(graded, students):
    written = [column.grade_id for column in graded[1].columns if column.written]
    assert written and all(row(graded, students[0]).points[name] is None for name in written)


def test_a_discrepancy_is_named(graded, students):
    swapped = [*students]
    swapped[0], swapped[4] = (
        type(students[0])(a.first, a.last, b.answers, b.losses)
        for a, b in ((students[0], students[4]), (students[4], students[0]))
    )
    found = discrepancies(graded[1], swapped, EXERCISES)
    assert len(found) == 2 and students[0].id in found[0]


# ------------------------------------------------------------------------------------------ what the loop leaves behind


def test_students_fetched_what_was_released_and_handed_in_what_was_collected(graded, students):
    root = graded[0]
    released = (root / "assignments" / ASSIGNMENT / f"{NOTEBOOK}.ipynb").read_bytes()
    assert (root / "exchange" / "attncourse" / "outbound" / ASSIGNMENT / f"{NOTEBOOK}.ipynb").read_bytes() == released
    for student in students:
        theirs = (root / "students" / student.id / ASSIGNMENT / f"{NOTEBOOK}.ipynb").read_bytes()
        assert (root / "submitted" / student.id / ASSIGNMENT / f"{NOTEBOOK}.ipynb").read_bytes() == theirs
    assert (root / "students" / students[1].id / ASSIGNMENT / f"{NOTEBOOK}.ipynb").read_bytes() == released


def test_the_release_holds_no_solution(graded):
    source = nbformat.read(graded[0] / "solutions" / ASSIGNMENT / f"{NOTEBOOK}.ipynb", as_version=4)
    release = (graded[0] / "assignments" / ASSIGNMENT / f"{NOTEBOOK}.ipynb").read_text(encoding="utf-8")
    for text in ("BEGIN SOLUTION", "HIDDEN TESTS", "seeds="):
        assert text not in release
    for name, solution in solutions(source).items():
        lines = [line for line in solution.splitlines() if len(line.strip()) > 30]
        assert not any(line.strip() in release.encode().decode("unicode_escape", "replace") for line in lines), name


def test_every_student_has_a_feedback_page_with_the_verdicts(graded, students):
    for student in students:
        html = page(graded, student)
        for exercise in EXERCISES:
            assert f"<strong><code>{exercise.name}</code></strong>" in html
        assert "HIDDEN TESTS" not in html and "seeds=" not in html


def test_a_feedback_page_teaches(graded, students):
    student = students[3]
    (loss,) = student.losses.values()
    assert loss.misconception.name in page(graded, student)
    assert loss.misconception.hint.split(". ")[0][:40] in page(graded, student)


def test_feedback_is_released_for_each_student(graded, students):
    assert len(list((graded[0] / "exchange" / "attncourse" / "feedback").glob("*.html"))) == len(students)


def test_the_grades_are_exported_as_csv_that_reads_back(graded, students):
    with (graded[0] / "grades.csv").open(newline="", encoding="utf-8-sig") as file:
        lines = {line["student_id"]: line for line in csv.DictReader(file)}
    assert len(lines) == len(students) and "Jr." in str([line["last_name"] for line in lines.values()])
    for student in students:
        line, got = lines[student.id], row(graded, student)
        assert (line["first_name"], line["last_name"]) == (student.first, student.last)
        for exercise in EXERCISES:
            assert float(line[f"{ASSIGNMENT} {exercise.name}"]) == got.points[f"check-{exercise.name}"]
        assert float(line["total_so_far"]) == got.total and (line["total"] == "") == got.waiting


def test_nbgraders_own_settings_folder_is_the_demos(graded):
    assert list((graded[0] / ".settings").glob("jupyter_data_dir/nbgrader_cache/attncourse/*"))


# ------------------------------------------------------------------------------------------ the table, and trying again


def test_the_report_fits_a_terminal_and_names_what_went_wrong(graded):
    console = Console(file=StringIO(), force_terminal=True, width=100, color_system=None)
    report.show(graded[1], console)
    text = console.file.getvalue()
    assert max(map(cell_len, text.splitlines())) <= 100           # a combining tilde takes no place
    words = " ".join(text.split())
    assert "normalises over" in words and "the submitted file is empty" in words and "SyntaxError" in words


def test_the_report_is_one_line_a_student_when_piped(graded, capsys):
    assert main(["report", ASSIGNMENT, "--course", str(graded[0])]) == 0
    lines = capsys.readouterr().out.splitlines()
    for result in graded[1].rows:
        (line,) = [line for line in lines if line.startswith(f"{result.name} ")]
        assert report.why(result, graded[1]) in line and "\x1b" not in line


def test_a_report_on_an_unknown_assignment_lists_the_known_ones(graded, capsys):
    assert main(["report", "a99", "--course", str(graded[0])]) == 1
    assert "a03" in capsys.readouterr().err


def test_a_demo_whose_grades_are_wrong_exits_1_and_says_where(graded, monkeypatch, capsys, tmp_path):
    monkeypatch.chdir(COURSE)
    wrong = ["ada, attention_scores: 3 points"]
    monkeypatch.setattr(demo, "grade_class", lambda root, course, assignment, stage: (graded[1], wrong))
    assert main(["demo", "--to", str(tmp_path / "demo")]) == 1
    said = capsys.readouterr()
    assert "ada, attention_scores: 3 points" in said.err
    assert "gradebook.db" in said.out and "grades.csv" in said.out


def test_the_demo_prints_a_dozen_rows_that_tell_and_ends_with_the_reports_path(graded, monkeypatch, capsys, tmp_path):
    monkeypatch.chdir(COURSE)
    monkeypatch.setattr(demo, "grade_class", lambda root, course, assignment, stage: (graded[1], []))
    assert main(["demo", "--to", str(tmp_path / "demo")]) == 0
    said = capsys.readouterr().out
    rows = [row for row in graded[1].rows if any(line.startswith(f"{row.name} ") for line in said.splitlines())]
    assert len(rows) == demo.TELLING == 12
    for words in ("not written", "the submitted file is empty", "SyntaxError", "process died", "normalises over"):
        assert words in said
    assert f"12 of {len(graded[1].rows)} students" in said
    assert said.rstrip().endswith(str(tmp_path / "demo" / "grading" / ASSIGNMENT / "report.html"))
    assert (graded[0] / "grading" / ASSIGNMENT / "report.html").is_file()


def test_the_term_is_reported_where_no_assignment_is_named(graded, capsys):
    assert main(["report", "--course", str(graded[0])]) == 0
    said = capsys.readouterr().out
    assert "the page:" in said and all(row.name in said for row in graded[1].rows)
    page = (graded[0] / "grading" / "report.html").read_text(encoding="utf-8")
    assert f'href="{ASSIGNMENT}/report.html"' in page and "cut off from the gradient" in page
    for kind in ("students", "aspects", "misconceptions"):
        with (graded[0] / "grading" / f"report-{kind}.csv").open(encoding="utf-8-sig", newline="") as file:
            assert len(list(csv.reader(file))) > 20
        assert f'href="report-{kind}.csv"' in page
    for words in (["report", "--where"], ["report", ASSIGNMENT, ASSIGNMENT, "--names"]):
        assert main([*words, "--course", str(graded[0])]) == 1
    assert "go with one assignment" in capsys.readouterr().err


def test_a_submission_that_is_not_graded_and_one_that_came_again_are_said(graded, students):
    root, coursedir = graded[0], application(graded[0], "autograde").coursedir
    new, again = root / "submitted" / "new" / ASSIGNMENT, root / "submitted" / students[3].id / ASSIGNMENT
    stamp = again / "timestamp.txt"
    before = stamp.read_text()
    new.mkdir(parents=True)
    stamp.write_text("2999-01-01 00:00:00 UTC")
    try:
        found = {row.student: row.ungraded for row in read_results(coursedir, ASSIGNMENT).rows if row.ungraded}
    finally:
        stamp.write_text(before)
        shutil.rmtree(new.parent)
    assert found == {"new": "handed in, not graded yet", students[3].id: "handed in again since it was graded"}
    assert not any(row.ungraded for row in graded[1].rows)


def test_the_demo_deletes_no_folder_that_is_not_its_own(tmp_path):
    (tmp_path / "thesis.tex").touch()
    with pytest.raises(CommandError, match="--to"):
        demo.prepare(tmp_path, COURSE, ASSIGNMENT)
    assert (tmp_path / "thesis.tex").exists()


def test_a_demo_that_was_interrupted_is_made_anew(tmp_path):
    demo.prepare(tmp_path / "demo", COURSE, ASSIGNMENT)
    (tmp_path / "demo" / "submitted").mkdir()
    demo.prepare(tmp_path / "demo", COURSE, ASSIGNMENT)
    assert not (tmp_path / "demo" / "submitted").exists()


# ----------------------------------------------------------------------------------------------- nbgrader's other doors


def test_the_formgraders_autograde_button_gives_the_same_points(graded, students):
    root, student = graded[0], students[3]
    app = application(root, "formgrade")
    with own_settings(root / ".settings"):
        outcome = NbGraderAPI(app.coursedir, parent=app).autograde(ASSIGNMENT, student.id)
    assert outcome["success"], outcome
    again = read_results(app.coursedir, ASSIGNMENT)
    assert next(r for r in again.rows if r.student == student.id).points == row(graded, student).points


def test_nbgraders_own_commands_make_the_same_page_and_release_it(graded, students):
    root, student = graded[0], students[3]
    before = page(graded, student)
    released = root / "exchange" / "attncourse" / "feedback"
    secret = (root / "submitted" / student.id / ASSIGNMENT / "submission_secret.txt").read_text()
    theirs = released / f"{notebook_hash(secret=secret, notebook_id=NOTEBOOK)}.html"
    theirs.unlink()
    with own_settings(root / ".settings"):
        for words in (["generate_feedback", ASSIGNMENT, "--force"], ["release_feedback", ASSIGNMENT]):
            nbgrader(root, *words, f"--student={student.id}", log=Log(root / "log"))
    assert page(graded, student) == before == theirs.read_text(encoding="utf-8")


def test_a_mark_given_by_hand_survives_another_autograde(graded, students):
    root, student = graded[0], students[5]
    written = next(column for column in graded[1].columns if column.written)
    with Gradebook(f"sqlite:///{root / 'gradebook.db'}") as gradebook:
        gradebook.find_grade(written.grade_id, NOTEBOOK, ASSIGNMENT, student.id).manual_score = 1.5
        gradebook.db.commit()
    with own_settings(root / ".settings"):
        nbgrader(root, "autograde", ASSIGNMENT, "--force", f"--student={student.id}", log=Log(root / "log"))
    again = read_results(application(root, "autograde").coursedir, ASSIGNMENT)
    got = next(r for r in again.rows if r.student == student.id)
    assert got.total == row(graded, student).total + 1.5
