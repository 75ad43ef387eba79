"""Variations given out to a class, handed in, graded, reported and fed back: each student by their own."""

import csv
import json
import textwrap
import warnings

import nbformat
import pytest
from bs4 import BeautifulSoup
from small_class import COURSE

from attncourse_lessons import course as lessons
from attncourse_lessons.cli import main
from commandkit.errors import CommandError
from lessonkit.grading.demo.command import prepare
from lessonkit.grading.gradebook.nbgrader_app import Log, application, nbgrader, own_settings
from lessonkit.grading.report.results import read_results
from lessonkit.grading.submission.answers import solutions
from lessonkit.grading.submission.records import grading_folder
from lessonkit.grading.submission.variations import FILE, Variations, variations_in

ASSIGNMENT, NOTEBOOK = "a00", "a00_getting_ready.ipynb"
STUDENTS = ("ada", "ben", "cleo", "dora", "emil")
VARIED = {e.name: e.variations for e in lessons.exercises_of(ASSIGNMENT) if e.variations}


def read(path):
    return nbformat.read(path, as_version=4)


def source_of(notebook, grade_id):
    return next(c.source for c in notebook.cells if c.metadata.get("nbgrader", {}).get("grade_id") == grade_id)


def type_in(notebook, answers):
    """Write answers (exercise -> code) where the stubs are."""
    for cell in notebook.cells:
        name = cell.metadata.get("nbgrader", {}).get("grade_id")
        if cell.cell_type == "code" and name in answers and "NotImplementedError" in cell.source:
            contract = cell.source[: cell.source.index("    # Your code here.")]
            cell.source = contract + textwrap.indent(answers[name], "    ")
    return notebook


@pytest.fixture(scope="module")
def course(tmp_path_factory):
    """(Its folder, who was given which): ada and ben answer what they were asked, cleo what the book asks.

    Dora leaves these exercises out; emil hands in dora's notebook, answered as it asks.
    """
    root = tmp_path_factory.mktemp("varied") / "course"
    with own_settings(root.parent / "settings"), warnings.catch_warnings(), pytest.MonkeyPatch.context() as patched:
        warnings.simplefilter("ignore")  # SQLAlchemy's, about nbgrader's use of it
        prepare(root, COURSE, ASSIGNMENT)
        nbgrader(root, "generate_assignment", ASSIGNMENT, log=Log(root / "log"))
        patched.chdir(root)
        (root / "students.csv").write_text("id,first_name\n" + "".join(f"{name},x\n" for name in STUDENTS))
        give = ["variations", ASSIGNMENT, "--seed", "7", "--to", "given", "--students", "students.csv"]
        assert main(give) == 0
        with open("given/variations.csv", newline="") as file:
            asked = {row.pop("student"): row for row in csv.DictReader(file)}
        model = solutions(read(root / "solutions" / ASSIGNMENT / NOTEBOOK))
        for student in STUDENTS:
            owner = "dora" if student == "emil" else student
            own = {name: VARIED[name][which].solution_body for name, which in asked[owner].items()}
            without = {name: body for name, body in model.items() if name not in VARIED}
            answers = {"cleo": model, "dora": without}.get(student, model | own)
            place = root / "submitted" / student / ASSIGNMENT / NOTEBOOK
            place.parent.mkdir(parents=True)
            nbformat.write(type_in(read(root / "given" / owner / ASSIGNMENT / NOTEBOOK), answers), place)
        for command in ("grade", "feedback", "report"):
            assert main([command, ASSIGNMENT]) == 0
    return root, asked


@pytest.fixture(scope="module")
def rows(course):
    results = read_results(application(course[0], "autograde").coursedir, ASSIGNMENT)
    return {row.student: row for row in results.rows}


@pytest.mark.slow
def test_a_class_gets_all_variations_and_a_student_the_same_whenever_they_are_drawn(course):
    root, asked = course
    assert {which for row in asked.values() for which in row.values()} == {v for each in VARIED.values() for v in each}
    kept = variations_in(grading_folder(root, ASSIGNMENT))
    assert {student: kept.of(student) for student in STUDENTS} == asked and kept.seed == 7
    assert Variations(7, {"masked_mean": kept.offered["masked_mean"]}).of("ada").items() <= asked["ada"].items()
    others = [Variations(seed, kept.offered).of(student) for seed in range(20) for student in STUDENTS]
    pairs = {(a, b) for a in VARIED["softmax"] for b in VARIED["masked_mean"]}
    assert {tuple(other.values()) for other in others} == pairs


def test_a_students_notebook_asks_their_variation_and_nothing_else_differs(course):
    root, asked = course
    plain = read(root / "assignments" / ASSIGNMENT / NOTEBOOK)
    for student in STUDENTS:
        given = read(root / "given" / student / ASSIGNMENT / NOTEBOOK)
        for name, which in asked[student].items():
            assert VARIED[name][which].varied.asks in " ".join(source_of(given, name).split())
            assert source_of(given, f"check-{name}") == f'check("{name}", {name}, variation="{which}")'
        differ = [a.metadata.nbgrader.grade_id for a, b in zip(given.cells, plain.cells, strict=True) if a != b]
        assert sorted(differ) == sorted([*asked[student], *(f"check-{name}" for name in asked[student])])


def test_each_is_judged_by_their_own_whatever_the_notebook_says(course, rows):
    _, asked = course
    full = {name: lessons.exercise(name).out_of for name in VARIED}
    for student in ("ada", "ben"):
        assert {name: rows[student].points[f"check-{name}"] for name in VARIED} == full
        assert {name: rows[student].verdicts[name]["variation"] for name in VARIED} == asked[student]
    for name in VARIED:
        assert rows["cleo"].points[f"check-{name}"] < full[name]
        assert rows["cleo"].verdicts[name]["misconceptions"] == ["the variation left out"]
        assert rows["dora"].points[f"check-{name}"] == 0
        same = asked["emil"][name] == asked["dora"][name]
        assert (rows["emil"].points[f"check-{name}"] == full[name]) == same
    assert {name for name in VARIED if asked["emil"][name] == asked["dora"][name]} not in (set(), set(VARIED))


def test_the_report_flags_who_hands_in_what_another_was_asked_and_nobody_else(course, rows):
    _, asked = course
    other = [name for name in VARIED if asked["emil"][name] != asked["dora"][name]]
    signs = [f"the check cell `check-{name}` asks the variation “{asked['dora'][name]}”" for name in other]
    assert len(rows["emil"].tampering) == len(signs) == 1 and rows["emil"].tampering[0].startswith(signs[0])
    assert not [row.student for row in rows.values() if row.student != "emil" and (row.tampering or row.repairs)]


def test_the_words_that_many_were_given_are_no_sign_of_copying(course):
    root, _ = course
    page = BeautifulSoup((root / "grading" / ASSIGNMENT / "report.html").read_text("utf-8"), "html.parser")
    assert "the same but for names" in page.text and "“your variation" not in page.text


def test_feedback_shows_the_question_and_the_card_of_a_students_own_variation(course):
    root, asked = course
    for student in STUDENTS:
        html = (root / "feedback" / student / ASSIGNMENT / NOTEBOOK.replace("ipynb", "html")).read_text("utf-8")
        text = " ".join(BeautifulSoup(html, "html.parser").text.split())
        assert "seeds=" not in text
        for name, which in asked[student].items():
            if student != "dora":
                assert f"Judged as the variation “{which}”" in text
            if student != "emil":
                assert VARIED[name][which].varied.asks.split(".")[0] in text


def test_graded_again_nothing_changes_and_another_seed_changes_what_is_judged(course, capsys, monkeypatch):
    root, _ = course
    monkeypatch.chdir(root)
    assert main(["grade", ASSIGNMENT]) == 0
    assert "5 unchanged" in capsys.readouterr().out
    path = grading_folder(root, ASSIGNMENT) / FILE
    text = path.read_text("utf-8")
    try:
        path.write_text(json.dumps({**json.loads(text), "seed": 8}))
        assert main(["grade", ASSIGNMENT]) == 0
        assert "5 graded" in capsys.readouterr().out
        path.write_text("{}")
        assert main(["grade", ASSIGNMENT, "--force"]) == 1
        assert "variations.json is damaged" in capsys.readouterr().err
    finally:
        path.write_text(text)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["a00", "--seed", "8", "--to", "new"], "drawn with the seed 7: students may have them"),
        (["a09", "--seed", "7", "--to", "new"], "no exercise of a09 has variations; there are some in a00"),
        (["a00", "--seed", "7", "--to", "new", "--only", "pad_batch"], "pad_batch: no exercise of a00 with variations"),
        (["a00", "--seed", "7", "--to", "new", "--students", "no.csv"], "no.csv: cannot be read"),
    ],
)
def test_what_cannot_be_meant_is_a_line_and_nothing_is_written(course, monkeypatch, capsys, words, says):
    root, _ = course
    monkeypatch.chdir(root)
    students = [] if "--students" in words else ["--students", "students.csv"]
    assert main(["variations", *words, *students]) == 1
    told = capsys.readouterr().err
    assert says in told and not (root / "new").exists()


def test_a_notebook_that_is_there_is_not_written_over(course, monkeypatch, capsys):
    root, _ = course
    monkeypatch.chdir(root)
    place = root / "given" / "ada" / ASSIGNMENT / NOTEBOOK
    text = place.read_text("utf-8")
    again = ["variations", ASSIGNMENT, "--seed", "7", "--to", "given", "--students", "students.csv"]
    assert main(again) == 0 and place.read_text("utf-8") == text
    try:
        place.write_text(text.replace("raise NotImplementedError()", "return scores", 1), encoding="utf-8")
        assert main(again) == 1 and "name another folder" in capsys.readouterr().err
    finally:
        place.write_text(text, encoding="utf-8")


def test_the_check_of_a_learner_judges_the_variation_that_it_names(capsys):
    varied = lessons.exercise("masked_mean").variations["by the root of the count"]
    name = varied.varied.name
    seen = lessons.check("masked_mean", varied.solution, variation=name)
    assert seen.points == seen.out_of and f"variation “{name}”" in seen.footer()
    assert not lessons.solved("masked_mean") and "yours is a variation" in capsys.readouterr().out
    assert lessons.check("masked_mean", varied.solution).points < seen.out_of
    wrong = lessons.check("masked_mean", lessons.exercise("masked_mean").solution, variation=name)
    assert [m.name for m in wrong.misconceptions] == ["the variation left out"]
    case = lessons.check.case("masked_mean")
    assert not case.got.allclose(case.expected)
    with pytest.raises(LookupError, match="has no variation 'x'; it has: True where there is padding"):
        lessons.check("masked_mean", varied.solution, variation="x")


def test_the_seeds_file_says_what_is_wrong_with_it(tmp_path):
    assert variations_in(tmp_path) == Variations() and not Variations().of("ada")
    for text in ("", "[]", '{"seed": 1}', '{"seed": 1, "offered": {"softmax": []}}', '{"seed": "x", "offered": {}}'):
        (tmp_path / FILE).write_text(text)
        with pytest.raises(CommandError, match="is damaged"):
            variations_in(tmp_path)
