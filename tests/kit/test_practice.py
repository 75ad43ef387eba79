"""`practice()`: boxes that spread what is asked, rounds of what is solved alone, and a page that needs no kernel."""

import io
import json
import re
import shutil
import types
from dataclasses import replace
from pathlib import Path

import pytest

from attncourse_lessons import course as lessons
from commandkit.errors import CommandError
from lessonkit.course import load
from lessonkit.exercises import drill, leitner
from lessonkit.exercises import practice as card
from lessonkit.exercises.exercise import Exercise
from lessonkit.exercises.leitner import DAYS, Box
from lessonkit.exercises.verdict import Verdict
from lessonkit.kernel import WrongCall
from lessonkit.learner import practice as terminal

SOLVED = "softmax"
TOY = Path(__file__).parent / "toy_course" / "src"


@pytest.fixture
def kept(tmp_path, monkeypatch):
    """A learner's kernel, as far as the kit looks; softmax is solved."""
    shell = types.SimpleNamespace(kernel=object(), user_ns={})
    monkeypatch.setattr("lessonkit.kernel.kernel_shell", lambda: shell)
    monkeypatch.setenv("LESSONKIT_PROGRESS", str(tmp_path / "kept"))
    monkeypatch.delenv("NBGRADER_EXECUTION", raising=False)
    monkeypatch.setattr(lessons, "_verdicts", {})
    solve(tmp_path / "kept", SOLVED)
    return tmp_path / "kept"


def solve(folder, *names):
    folder.mkdir(exist_ok=True)
    for name in names:
        points = lessons.exercise(name).out_of
        (folder / f"{name}.json").write_text(json.dumps({"last": points, "best": points}))


# Leitner's boxes


def test_a_right_answer_goes_one_box_up_and_rests_and_a_wrong_one_back_to_the_first():
    box = Box()
    for up in range(2, len(DAYS) + 1):
        box = box.after("a", True, today=box.due)
        assert box.box == up and box.asked == {"a": True}
    assert box.due == sum(DAYS[1:])
    assert box.after("a", True, today=box.due).box == len(DAYS)
    assert box.after("b", False, today=99) == Box(1, 99, {"a": True, "b": False})


def test_a_card_goes_up_once_a_day_at_most():
    once = Box().after("a", True, today=5)
    assert once.after("b", True, today=5) == Box(2, 6, {"a": True, "b": True})
    assert once.after("b", False, today=5).box == 1


def test_what_is_due_comes_first_the_lowest_box_first_and_lessons_take_turns():
    groups = {"a": "1", "b": "1", "c": "2", "d": "2", "e": "1"}
    kept = {"a": Box(2, 0, {"x": True}), "e": Box(1, 0, {"x": False}), "d": Box(3, 9, {"x": True})}
    assert leitner.in_order(groups, kept, day=3) == ["e", "b", "c", "a", "d"]
    assert leitner.in_order({"a": "1", "b": "1", "c": "2"}, {}, day=0) == ["a", "c", "b"]


def test_of_a_card_what_went_wrong_comes_first_then_what_is_new_then_what_was_asked_longest_ago():
    box = Box().after("a", True, 0).after("b", True, 0).after("c", False, 0).after("a", True, 0)
    assert leitner.in_turn(["a", "b", "c", "d"], box) == [2, 3, 1, 0]


@pytest.mark.parametrize("content", ["", "[]", '{"box": "x"}', '{"box": 2, "due": 1, "asked": 3}'])
def test_what_cannot_be_read_is_a_new_card(content, kept):
    (kept / leitner.FOLDER).mkdir()
    (kept / leitner.FOLDER / "softmax.json").write_text(content)
    assert leitner.read("attncourse", "softmax") == Box()


# A round


def test_only_what_is_solved_is_asked_and_the_rest_is_told(kept):
    practice = lessons.practice("a00")
    assert {each.card for each in practice.drills} == {SOLVED} and len(practice.drills) == card.LENGTH
    assert len({each.key for each in practice.drills}) == card.LENGTH
    assert "5 exercises wait" in repr(practice) and str(kept) in repr(practice)
    solve(kept, "pad_batch")
    assert [each.card for each in lessons.practice("a00").drills[:2]] == [SOLVED, "pad_batch"]


def test_where_nothing_is_solved_no_code_of_a_solution_is_shown(kept):
    (kept / "softmax.json").unlink()
    assert "There is nothing to practise yet" in repr(lessons.practice("a00"))
    assert lessons.practice("a00")._repr_mimebundle_().keys() == {"text/plain", "text/html"}
    assert all(each.verdict is None and not each.code for each in lessons.practice().drills)


def test_an_exercise_that_was_solved_in_this_kernel_is_asked(kept):
    (kept / "softmax.json").unlink()
    lessons.judge(SOLVED, lessons.exercise(SOLVED).alternatives[0].answer)
    assert lessons.practice("a00").drills


@pytest.mark.parametrize("setting", [("NBGRADER_EXECUTION", "autograde"), ("LESSONKIT_PROGRESS", "")])
def test_where_somebody_grades_or_builds_there_is_no_practice(setting, kept, monkeypatch):
    monkeypatch.setenv(*setting)
    assert lessons.practice("a00") is None


def test_an_answer_is_told_and_kept_and_the_first_one_counts(kept):
    practice = lessons.practice("a00")
    first, second = practice.drills[:2]
    assert repr(practice.answer(1, "abcd"[first.right])).startswith("Right.")
    assert leitner.read("attncourse", SOLVED) == Box(2, practice.day + 1, {first.key: True})
    told = repr(practice.answer(2, (second.right + 1) % len(second.options)))
    assert told.startswith("No: ") and "The check gives" in told and second.why[:20] in told
    assert practice.given == {1: first.right, 2: (second.right + 1) % len(second.options)}
    assert leitner.read("attncourse", SOLVED) == Box(1, practice.day, {first.key: True, second.key: False})
    practice.answer(2, second.right)
    assert leitner.read("attncourse", SOLVED).asked[second.key] is False
    assert lessons.practice("a00").drills[0].key == second.key


def test_a_script_keeps_nothing(kept, monkeypatch):
    monkeypatch.setattr("lessonkit.kernel.kernel_shell", lambda: None)
    lessons.practice("a00").answer(1, "a")
    assert not (kept / leitner.FOLDER).exists()


@pytest.mark.parametrize("call", [(0, "a"), (99, "a"), (1, "z"), (1, 9), (1, ""), ("1", "a")])
def test_an_answer_that_cannot_be_meant_is_told_in_a_sentence(call, kept):
    with pytest.raises(WrongCall, match="got"):
        lessons.practice("a00").answer(*call)


def test_code_that_is_repaired_is_judged_and_counts_for_nothing(kept):
    practice = lessons.practice("a00")
    before = (kept / "softmax.json").read_text()
    number, shown = next((n, each) for n, each in enumerate(practice.drills, start=1) if each.mended)
    wrong = practice.repaired(number, shown.code)
    assert wrong.points < wrong.out_of and "Stuck?" not in str(wrong)
    right = drill.shown(practice.exercise(number), practice.exercise(number).solution_body)
    verdict = practice.repaired(number, right)
    assert isinstance(verdict, Verdict) and verdict.points == verdict.out_of
    assert (kept / "softmax.json").read_text() == before and not practice.given


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("def softmax(:", "SyntaxError in line 1"),
        ("x = 1", "There is no `def softmax`"),
        ("1 / 0\ndef f(): pass", "ZeroDivisionError"),
    ],
)
def test_code_that_cannot_be_run_is_told_in_a_sentence(code, said, kept):
    assert said in lessons.practice("a00").repaired(1, code)


def test_the_card_in_a_notebook_hears_answers_and_repairs(kept):
    pytest.importorskip("anywidget")
    practice = lessons.practice("a00")
    widget = practice.widget
    right = practice.drills[0].right
    widget.given = {"1": right}
    assert practice.given == {1: right} and leitner.read("attncourse", SOLVED).box == 2
    widget.repair = {"number": 1, "code": "def softmax(:"}
    assert "SyntaxError" in widget.checked["html"] and widget.checked["number"] == 1


# Drills


def test_a_drill_of_a_lesson_needs_exactly_one_option_that_fits():
    def of(options):
        return drill.one_of("key", "Which?", options, 1, lambda one, other: one == other, why="Because.")

    assert of({"a": 0, "b": 1}).right == 1
    for options in ({"a": 0, "b": 2}, {"a": 1, "b": 1}):
        with pytest.raises(ValueError, match="expected one"):
            of(options)


def test_a_slip_that_does_not_fail_what_it_says_makes_no_drill():
    question = drill.questions(lessons.exercise(SOLVED))[0]
    other = next(aspect.name for aspect in question.exercise.aspects if aspect.name not in question.slip.fails)
    false = replace(question.slip, fails=(*question.slip.fails, other))
    with pytest.raises(ValueError, match="does not fail the aspects"):
        drill.Question(question.exercise, false, question.kind).drill()


def test_what_is_proven_is_not_looked_for_again():
    exercise = lessons.exercise(SOLVED)
    told = []
    found = drill.prove(exercise, {}, told.append)
    assert len(told) == len(found) == drill.LINES_FOR
    told.clear()
    assert drill.prove(exercise, found, told.append) == found and told == []


def test_a_stop_loses_nothing_that_was_proven(monkeypatch, tmp_path):
    def prove(exercise, before, told):
        if exercise == "second":
            raise KeyboardInterrupt
        return {"new": [1]}

    monkeypatch.setattr(terminal, "prove", prove)
    course = types.SimpleNamespace(folder=tmp_path, all_exercises=lambda: {x: x for x in ("first", "second", "third")})
    (tmp_path / "drills.json").write_text('{"first": {"old": []}, "third": {"old": [2]}, "gone": {"old": []}}')
    with pytest.raises(KeyboardInterrupt):
        terminal._prove(course)
    assert json.loads((tmp_path / "drills.json").read_text()) == {"first": {"new": [1]}, "third": {"old": [2]}}


def test_another_course_has_drills_too(monkeypatch):
    monkeypatch.syspath_prepend(str(TOY))
    toy = load("shapes_lessons")
    said = terminal.counted(toy)
    assert said.splitlines()[1].startswith("a00") and "of 1" in said


# The terminal


def test_a_round_in_a_terminal(kept, monkeypatch, capsys):
    right = "abcd"[lessons.practice_round("a00", keeps=False).drills[0].right]
    monkeypatch.setattr("sys.stdin", io.StringIO(f"x\n{right}\nq\n"))
    terminal._round(lessons, "a00")
    said = capsys.readouterr().out
    assert "1. a00, softmax" in said and "Right.\n" in said and "Right: 1 of 1." in said
    assert leitner.read("attncourse", SOLVED).box == 2


def test_the_count_of_drills_is_printed_by_lesson():
    said = terminal.counted(lessons).splitlines()
    assert [line[:3] for line in said[1:]] == [*lessons.assignments(), "all"]
    numbers = [list(map(int, re.findall(r"\d+", line[4:]))) for line in said[1:]]
    assert all(sum(row[:3]) == row[3] for row in numbers)
    assert [sum(column) for column in zip(*numbers[:-1], strict=True)] == numbers[-1]


def test_an_unknown_assignment_is_told_in_one_line(kept):
    with pytest.raises(CommandError, match="there is no assignment 'a99'"):
        terminal.main(types.SimpleNamespace(assignment="a99", count=False, prove=False))


# The page


@pytest.fixture
def few(monkeypatch, tmp_path):
    """A course with the one card that shows no solution, and the cache in a folder of its own."""
    page = pytest.importorskip("lessonkit.authoring.site.practice")
    monkeypatch.setattr(page, "cache", lambda: tmp_path / "cache")
    free = [each for each in drill.cards(lessons, ["a06"]) if not each.exercise]
    monkeypatch.setattr(page, "cards", lambda course, names: iter(free))
    return page


def test_the_page_holds_its_drills_and_no_other_page_is_touched(few):
    for other in ("# No drills", "The line `<!-- practice -->` is spoken of."):
        assert few.filled(other, lessons, {}) == other
    made = few.filled("# Drills\n\n<!-- practice -->\n", lessons, {})
    data = json.loads(re.search(r'id="practice-data">(.*?)</script>', made, re.DOTALL)[1])
    assert len(data["drills"]) == 16 and all(each["free"] for each in data["drills"])
    assert data["days"] == list(DAYS) and made.count("````{raw} html") == 1


def test_drills_are_made_again_only_where_something_changed(few, monkeypatch):
    first = few.drills_of(lessons)
    monkeypatch.setattr(few, "cards", lambda *_: pytest.fail("they were made again"))
    assert few.drills_of(lessons) == first
    monkeypatch.setattr(few, "_content", lambda course: "changed")
    monkeypatch.setattr(few, "cards", lambda *_: iter(()))
    assert few.drills_of(lessons) == []


def test_where_nothing_can_be_kept_the_page_is_made_all_the_same(few, tmp_path):
    (tmp_path / "cache").write_text("a file in the folder's place")
    assert len(few.drills_of(lessons)) == 16


def test_a_change_of_a_lesson_a_library_or_the_kit_changes_the_content(few, monkeypatch, tmp_path):
    folder = tmp_path / "package"
    shutil.copytree(TOY / "shapes", folder)
    monkeypatch.setattr(few, "folder_of", lambda package: folder)
    before = few._content(lessons)
    assert few._content(lessons) == before
    (folder / "polygons.py").write_text("# another")
    assert few._content(lessons) != before


def test_nothing_of_what_is_measured_is_asked():
    measured = Exercise("f", reference=len, returns=("n",), difficulty=1, minutes=1, hints=(), metric="right")
    assert drill.slips(measured) == []
