"""An exam: what checks and hints say until its time, and afterwards; what a release holds of it, and of solutions."""

import json
import os
import re
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from nbgrader.api import Gradebook

from attncourse_lessons import course as lessons
from attncourse_lessons.cli import main
from commandkit.errors import CommandError
from lessonkit.authoring import release as module
from lessonkit.authoring.checkout import Checkout
from lessonkit.authoring.release import contents, exam_of, release
from lessonkit.authoring.site import practice
from lessonkit.authoring.solutions import due, until
from lessonkit.exercises import exam, progress
from lessonkit.exercises.exam import FILE, FOR_EVER, Closed, Exam, exam_in

ROOT = Path(__file__).parents[2]
COURSE = Checkout(ROOT, lessons)
NAME = "attention_scores"
EXERCISE = lessons.exercise(NAME)
WRONG = EXERCISE.misconceptions[0]
LATER = datetime.now(UTC) + timedelta(hours=1)


@pytest.fixture
def in_exam(monkeypatch, tmp_path):
    """Hold an exam in this process, until a time."""
    monkeypatch.setenv("LESSONKIT_PROGRESS", str(tmp_path / "progress"))

    def hold(held):
        monkeypatch.setattr(exam, "exam_in", lambda package: held)

    return hold


def test_until_its_time_a_check_says_right_or_wrong_and_no_more(in_exam):
    in_exam(Exam(LATER))
    seen = lessons.judge(NAME, WRONG.answer)
    told = seen.text() + seen._html() + json.dumps(seen.as_dict())
    assert seen.score == "not right yet" and "Something is wrong" in told and "This is an exam until" in told
    assert "0 / 4" not in told and "0 of 4" not in told
    about = [WRONG.name, WRONG.hint, "hint(", "check.case", *(f"“{each.name}”" for each in EXERCISE.aspects)]
    assert not [words for words in about if words in told]
    assert not re.search(r"expected|got \d", told) and len(seen.aspects) == 1
    right = lessons.judge(NAME, EXERCISE.solution)
    assert (right.score, right.points, right.out_of) == ("right", EXERCISE.out_of, EXERCISE.out_of)


def test_every_wrong_answer_looks_the_same_however_far_it_has_come(in_exam):
    in_exam(Exam(LATER))

    def raising(*arguments):
        raise ValueError("mine")

    def unwritten(*arguments):
        raise NotImplementedError

    answers = [code.answer for code in EXERCISE.misconceptions] + [raising, unwritten]
    assert len(answers) > 4 and len({lessons.judge(NAME, each).text() for each in answers}) == 1


def test_until_its_time_there_are_no_hints_no_case_and_no_line(in_exam):
    in_exam(Exam(LATER))
    lessons.check(NAME, WRONG.answer)
    for ask in (
        lambda: lessons.hint(NAME),
        lambda: lessons.hint(NAME, "where"),
        lambda: lessons.check.case(NAME),
        lambda: lessons.check.where(NAME),
    ):
        with pytest.raises(Closed, match=r"this is an exam until .* there are no hints"):
            ask()


def test_when_its_time_is_over_the_full_words_are_back(in_exam, capsys):
    in_exam(Exam(datetime.now(UTC) - timedelta(seconds=1)))
    assert WRONG.hint in " ".join(lessons.judge(NAME, WRONG.answer).text().split())
    lessons.hint(NAME)
    assert "Hint 1" in capsys.readouterr().out


def test_an_exam_of_one_assignment_leaves_the_others_as_they_are(in_exam):
    in_exam(Exam(LATER, ("a04",)))
    assert len(lessons.judge(NAME, WRONG.answer).aspects) == len(EXERCISE.aspects)
    in_exam(Exam(LATER, ("a04", "a03")))
    assert len(lessons.judge(NAME, WRONG.answer).aspects) == 1


def test_how_far_a_wrong_answer_has_come_is_not_kept_either(in_exam, monkeypatch):
    in_exam(Exam(LATER))
    monkeypatch.setattr(progress, "wanted", lambda: True)
    lessons.judge(NAME, WRONG.answer)
    assert progress.read(lessons.distribution, EXERCISE) is None
    lessons.judge(NAME, EXERCISE.solution)
    assert progress.read(lessons.distribution, EXERCISE).best == EXERCISE.out_of


def test_a_file_that_is_damaged_is_an_exam_without_an_end(tmp_path):
    assert exam_in(tmp_path) is None
    for text in ("", "{}", '{"until": "soon", "assignments": []}', '{"until": "2026-12-01T12:00Z"}', "[]", "\x00"):
        (tmp_path / FILE).write_text(text)
        found = exam_in(tmp_path)
        assert found == Exam(FOR_EVER) and found.holds("a03") and "damaged" in found.end
    held = Exam(LATER.replace(second=0, microsecond=0), ("a03",))
    (tmp_path / FILE).write_text(held.text())
    assert exam_in(tmp_path) == held


def test_a_release_for_an_exam_closes_its_own_checks_and_the_graders_copy_has_none(tmp_path):
    count = release(COURSE, tmp_path / "exam", exam=Exam(LATER, ("a03",)))
    assert count == len(dict(contents(COURSE))) + 1
    code = f"""import attncourse
seen = attncourse.check({NAME!r}, lambda *inputs: inputs[0])
print(seen.score)
attncourse.hint({NAME!r})"""
    ran = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True,
                         env=os.environ | {"PYTHONPATH": str(tmp_path / "exam/src")})  # fmt: skip
    assert ran.stdout == "not right yet\n" and "Closed: this is an exam until" in ran.stderr
    assert not (lessons.folder / FILE).exists()
    assert not [name for name, _ in contents(COURSE) if name.endswith(FILE)]


def test_the_solutions_up_to_an_assignment_are_released_and_no_others():
    chosen = until(lessons, "a02")
    assert chosen == ["a00", "a01", "a02"]
    found = {name for name, _ in contents(COURSE, chosen) if name.startswith("solutions/")}
    ours = [path for each in chosen for path in (ROOT / "solutions" / each).glob("*.ipynb")]
    assert found == {path.relative_to(ROOT).as_posix() for path in ours} and len(found) == 3


def test_due_are_the_assignments_whose_date_in_the_gradebook_is_past(tmp_path):
    (tmp_path / "nbgrader_config.py").write_text((ROOT / "nbgrader_config.py").read_text())
    with pytest.raises(CommandError, match=r"there is no gradebook at .*--solutions-until a05"):
        due(tmp_path, lessons)
    now = datetime.now(UTC).replace(tzinfo=None)  # as nbgrader keeps them
    with Gradebook(f"sqlite:///{tmp_path / 'gradebook.db'}", "attncourse") as gradebook:
        gradebook.add_assignment("a00", duedate=now - timedelta(days=7))
        gradebook.add_assignment("a01", duedate=now - timedelta(minutes=2))
        gradebook.add_assignment("a02", duedate=now + timedelta(minutes=2))
        gradebook.add_assignment("a03")
    assert due(tmp_path, lessons) == ["a00", "a01"]


def test_the_drills_of_the_web_book_show_no_solution_that_is_not_released(monkeypatch):
    kinds = [{"assignment": "a01", "n": 1}, {"assignment": "a02", "n": 2}, {"assignment": "a02", "n": 3, "free": True}]
    monkeypatch.setattr(practice, "drills_of", lambda course: kinds)

    def shown(*solved):
        page = practice.filled("<!-- practice -->", lessons, {}, *solved)
        data = re.search(r'id="practice-data">(.*?)</script>', page)[1]
        return [each["n"] for each in json.loads(data)["drills"]]

    assert (shown(), shown(["a01"]), shown([])) == ([1, 2, 3], [1, 3], [3])


@pytest.mark.parametrize(
    "words, says",
    [
        (["--exam-until", "tomorrow"], "--exam-until: 'tomorrow' is no time; write it as 2026-12-01T12:00+01:00"),
        (["--exam-until", "2036-12-01"], "'2036-12-01' is no time"),
        (["--exam-until", "2020-12-01T12:00+01:00"], "2020-12-01T12:00+01:00 is past"),
        (["--exam-until", "9999-12-31T23:59-23:00"], "is no time"),
        (["--exam-until", "2036-12-01T12:00Z", "--exam", "a99"], "there is no assignment 'a99'"),
        (["--exam", "a03"], "say until when"),
        (["--solutions-until", "a99"], "there is no assignment 'a99'"),
    ],
)
def test_what_cannot_be_meant_is_said_in_a_line_and_nothing_is_released(monkeypatch, capsys, tmp_path, words, says):
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(module, "drifts", lambda course, targets: iter([]))
    assert main(["release", "--to", str(tmp_path / "out"), *words]) == 1
    told = capsys.readouterr().err
    assert says in told and len(told.splitlines()) == 1 and not list(tmp_path.iterdir())


def test_the_command_says_what_is_in_the_release(monkeypatch, capsys, tmp_path):
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(module, "drifts", lambda course, targets: iter([]))
    assert main(["release", "--to", str(tmp_path / "out.zip"), "--solutions-until", "a01", "--exam", "a09",
                 "--exam-until", "2036-12-01T12:00+01:00"]) == 0  # fmt: skip
    told = capsys.readouterr().out
    assert "with the solutions of a00, a01" in told and "for a09: checks say right or wrong" in told


def test_a_time_without_a_zone_is_this_machines():
    here = (datetime.now() + timedelta(days=1)).replace(microsecond=0)
    assert exam_of(lessons, here.isoformat(), []).until == here.astimezone(UTC)
