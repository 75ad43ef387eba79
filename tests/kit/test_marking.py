"""Marking by hand: what is similar comes together, marks go into nbgrader's gradebook, and none is lost to another."""

import json
import re
import sqlite3
import threading
import urllib.error
import urllib.request
from contextlib import closing
from pathlib import Path

import nbformat
import pytest
from marked_class import (
    ANSWERS,
    CANCELS,
    HOSTILE,
    NAN,
    QUESTION,
    SHIFT,
    copied,
    coursedir,
    gradebook,
    hand_in,
    kept,
    served,
)
from marked_class import make_course as make
from small_class import ASSIGNMENT, NOTEBOOK

from attncourse_lessons.cli import main
from commandkit.errors import CommandError
from lessonkit.grading.marking.groups import groups
from lessonkit.grading.marking.marks import Changed, Mark, NoMark, begin_to_write, change, opened, try_to_write
from lessonkit.grading.marking.questions import Written, written
from lessonkit.grading.marking.server import LONGEST, Marking, markdown, safe

UNMARKED = Mark(None)
CELLS = {(ASSIGNMENT, NOTEBOOK, QUESTION)}


@pytest.fixture(scope="module")
def without_students(tmp_path_factory):
    return make(tmp_path_factory.mktemp("marking") / "course")


@pytest.fixture(scope="module")
def handed_in(without_students, tmp_path_factory):
    course = copied(without_students, tmp_path_factory.mktemp("handed-in") / "course")
    hand_in(course, ANSWERS)
    return course


@pytest.fixture
def course(handed_in, tmp_path):
    return copied(handed_in, tmp_path / "course")


@pytest.fixture
def marking(course):
    return Marking.of(coursedir(course), ASSIGNMENT)


def grade_of(course, student):
    with gradebook(course) as book:
        return book.find_grade(QUESTION, NOTEBOOK, ASSIGNMENT, student).id


def give(course, student, seen=UNMARKED, **wanted):
    with opened(coursedir(course)) as book:
        return change(book, grade_of(course, student), CELLS, seen, wanted)


# ------------------------------------------------------------------------------------------------------ similar answers


def test_what_shares_its_words_comes_together_and_the_largest_group_first():
    texts = [SHIFT, f"{CANCELS} {NAN}", "No idea.", f"{NAN} {CANCELS}", f"{CANCELS} {NAN} That is why."]
    first, *rest = groups(texts)
    assert set(first) == {1, 3, 4}
    assert sorted(rest) == [[0], [2]]


def test_every_answer_is_in_one_group_whatever_it_is():
    texts = ["", "", "∑", "∑", "?!", "a", "A ", "né", "ne\u0301", "x " * 50_000]
    found = groups(texts)
    assert sorted(i for group in found for i in group) == list(range(len(texts)))
    together = [set(group) for group in found]
    assert {2, 3} in together and {5, 6} in together and {7, 8} in together
    assert groups([]) == []


def test_all_of_a_group_are_like_its_first_and_no_chain_leads_further():
    words = [f"{letter}{letter}" for letter in "abcdefghijklm"]
    chain = [" ".join(words[i : i + 6]) for i in range(8)]  # each shares five words with the next
    found = groups(chain)
    assert len(found[0]) > 1
    assert not [group for group in found if {0, 7} <= set(group)]


# ------------------------------------------------------------------------------------------------------- the gradebook


def test_points_and_a_comment_are_what_nbgrader_reads(course):
    after = give(course, "ada", points=2.5, comment="Why before?")
    assert after == Mark(2.5, "Why before?")
    assert kept(course, "ada") == (2.5, "Why before?", False)
    with gradebook(course) as book:
        submission = book.find_submission(ASSIGNMENT, "ada")
        assert submission.written_score == 2.5 and not submission.needs_manual_grade


def test_a_comment_alone_is_no_mark_and_no_points_are_not_zero(course):
    assert give(course, "ada", comment="Hm.") == Mark(None, "Hm.")
    assert kept(course, "ada") == (None, "Hm.", True)
    give(course, "ben", points=0)
    assert kept(course, "ben") == (0, None, False)


def test_a_mark_can_be_taken_away(course):
    give(course, "ada", points=2)
    assert give(course, "ada", seen=Mark(2.0), points=None) == UNMARKED
    assert kept(course, "ada") == (None, None, True)


def test_an_empty_answer_has_its_0_from_nbgrader_and_can_be_marked_all_the_same(course, marking):
    automatic = Mark(0.0, is_automatic=True)
    assert next(one["mark"] for one in marking.answers(0)["answers"] if one["empty"]) == automatic.as_dict()
    assert give(course, "finn", seen=automatic, points=1) == Mark(1.0)
    assert give(course, "finn", seen=Mark(1.0), points=None) == automatic


def test_what_was_graded_again_waits_for_another_look(course):
    give(course, "ada", points=2)
    with gradebook(course) as book:
        book.find_grade(QUESTION, NOTEBOOK, ASSIGNMENT, "ada").needs_manual_grade = True  # as `autograde` leaves it
        book.db.commit()
    again = Mark(2.0, again=True)
    assert give(course, "ada", seen=again, comment="Seen.") == Mark(2.0, "Seen.", again=True)
    assert give(course, "ada", seen=again, points=2) == Mark(2.0, "Seen.")


def test_two_markers_do_not_overwrite_each_other(course):
    give(course, "ada", points=2, comment="Mine.")
    with pytest.raises(Changed) as changed:
        give(course, "ada", points=3)
    assert changed.value.now == Mark(2.0, "Mine.")
    with pytest.raises(Changed):
        give(course, "ada", comment="No, mine.")
    assert kept(course, "ada") == (2, "Mine.", False)
    assert give(course, "ada", seen=changed.value.now, points=3) == Mark(3.0, "Mine.")


def test_what_came_twice_is_no_conflict_and_parts_that_others_did_not_touch_are_none(course):
    give(course, "ada", points=2)
    assert give(course, "ada", points=2) == Mark(2.0)  # sent again, because the answer was lost
    assert give(course, "ada", comment="And a word.") == Mark(2.0, "And a word.")


def test_a_mark_and_its_comment_are_written_both_or_not_at_all(course):
    give(course, "ada", comment="Theirs.")
    with pytest.raises(Changed):
        give(course, "ada", points=3, comment="Mine.")
    assert kept(course, "ada") == (None, "Theirs.", True)


@pytest.mark.parametrize(
    "wanted",
    [{}, {"points": 3.5}, {"points": -1}, {"points": "3"}, {"points": True}, {"points": float("nan")},
     {"points": 10**400}, {"comment": None}, {"comment": "x" * 10_001}, {"comment": "\0"},
     {"points": 1, "auto_score": 3}],
)  # fmt: skip
def test_what_is_no_mark_changes_nothing(course, wanted):
    with pytest.raises(NoMark):
        give(course, "ada", **wanted)
    assert kept(course, "ada") == (None, None, True)


def test_only_written_answers_of_the_assignment_can_be_marked(course):
    with gradebook(course) as book:
        grades = book.find_submission_notebook(NOTEBOOK, ASSIGNMENT, "ada").grades
        check = next(grade.id for grade in grades if grade.name != QUESTION)
    with opened(coursedir(course)) as book:
        for other in (check, "nobody"):
            with pytest.raises(NoMark):
                change(book, other, CELLS, UNMARKED, {"points": 1})
    with pytest.raises(NoMark):
        Marking.of(coursedir(course), ASSIGNMENT).change(check, "", UNMARKED.as_dict(), {"points": 1})


def test_points_for_an_answer_that_was_replaced_meanwhile_are_not_given(course, marking):
    (ada,) = [one for one in marking.answers(0)["answers"] if one["student"] == "ada"]
    path = course / "autograded" / "ada" / ASSIGNMENT / f"{NOTEBOOK}.ipynb"
    path.write_text(path.read_text(encoding="utf-8").replace("0/0 = NaN", "0/0"), encoding="utf-8")
    asked = ada["id"], ada["text"], ada["mark"], {"points": 3}
    assert marking.change(*asked) == {"changed": ada["mark"], "rewritten": True}
    assert kept(course, "ada") == (None, None, True)
    (ada,) = [one for one in marking.answers(0)["answers"] if one["student"] == "ada"]
    assert marking.change(ada["id"], ada["text"], *asked[2:]) == {"mark": Mark(3.0).as_dict()}


def test_of_many_who_write_at_once_one_is_heard_and_the_others_are_told(course):
    grade, outcomes, begin, where = grade_of(course, "ada"), [], threading.Barrier(4), coursedir(course)

    def write(points):
        with opened(where) as book:
            begin.wait()
            try:
                change(book, grade, CELLS, UNMARKED, {"points": points})
                outcomes.append("kept")
            except Changed:
                outcomes.append("told")

    threads = [threading.Thread(target=write, args=(points,)) for points in (0, 1, 2, 3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(outcomes) == ["kept", "told", "told", "told"]


def test_a_locked_gradebook_is_told_in_a_line(course):
    with closing(sqlite3.connect(course / "gradebook.db")) as other:
        other.execute("BEGIN EXCLUSIVE")
        locked = pytest.raises(CommandError, match="is locked: another program")
        with locked as told, opened(coursedir(course)) as book:
            book.db.connection().connection.execute("PRAGMA busy_timeout = 10")
            begin_to_write(book)
        assert "\n" not in str(told.value)


def test_a_gradebook_that_may_not_be_written_is_told_in_a_line(course):
    where = coursedir(course)
    where.db_url = f"sqlite:///file:{course / 'gradebook.db'}?mode=ro&uri=true"
    with pytest.raises(CommandError, match="cannot be written: look at who may write it"), opened(where) as book:
        try_to_write(book)


# ------------------------------------------------------------------------------------------------------- what is shown


def test_the_question_and_its_mark_scheme_come_from_the_source(marking):
    (question,) = marking.questions
    assert question.name == QUESTION and question.out_of == 3 and not question.is_code
    assert question.text.startswith("## 6 · In your own words") and "(3 points)" in question.text
    assert question.scheme.startswith("**Mark scheme.**") and "SOLUTION" not in question.scheme


def test_similar_answers_stand_together_and_empty_ones_last(marking):
    listed = marking.answers(0)["answers"]
    by_group = {}
    for one in listed:
        by_group.setdefault(one["group"], []).append(one["student"])
    first, *_, last = by_group.values()
    assert set(first) == {"ada", "ben", "dora"} and last == ["finn"]
    assert [one["group"] for one in listed] == sorted(one["group"] for one in listed)
    assert {one["name"] for one in listed} == {f"{student.capitalize()} Example" for student in ANSWERS}


def test_hidden_names_are_not_sent(course):
    said = json.dumps(Marking.of(coursedir(course), ASSIGNMENT, hide_names=True).answers(0))
    # As words: an identifier in hexadecimal has "ada" in it now and then.
    assert not [student for student in ANSWERS if re.search(rf"\b{student}\b", said, re.IGNORECASE)]


def test_progress_counts_what_a_person_has_to_mark(course, marking):
    assert marking.progress() == [{"of": 5, "marked": 0, "automatic": 1}]
    give(course, "ada", points=0)
    give(course, "ben", comment="Hm.")
    assert marking.progress() == [{"of": 5, "marked": 1, "automatic": 1}]


def test_an_answer_runs_and_loads_nothing(course, marking):
    listed = marking.answers(0)["answers"]
    html = marking.shown(0, grade_of(course, "emil"))
    assert len(listed) == 6
    for bad in ("<script", "onerror", "javascript:document", "position", "<form", "<input", "src="):
        assert bad in HOSTILE and bad not in html
    assert "https://example.org/x" in html  # a link to elsewhere may be followed


def test_what_is_too_long_or_too_much_for_the_parser_is_shown_as_text(course):
    path = course / "autograded" / "ada" / ASSIGNMENT / f"{NOTEBOOK}.ipynb"
    notebook = nbformat.read(path, as_version=4)
    (cell,) = [cell for cell in notebook.cells if cell.metadata.get("nbgrader", {}).get("grade_id") == QUESTION]
    cell.source = "<b>" + "x" * LONGEST
    nbformat.write(notebook, path)
    marking = Marking.of(coursedir(course), ASSIGNMENT)
    marking.answers(0)
    html = marking.shown(0, grade_of(course, "ada"))
    assert html.startswith("<p><em>This is its beginning") and "&lt;b&gt;x" in html and len(html) < LONGEST + 200
    assert "deep" in markdown("> " * 5_000 + "deep")


def test_attached_pictures_are_shown_unless_they_are_too_much(marking):
    (question,) = marking.questions
    attached = {"a.png": {"image/png": "iVBORw0KGgo="}, "b.png": 3}
    assert 'src="data:image/png;base64,iVBORw0KGgo="' in safe(Written("![a](attachment:a.png)", attached), question)
    assert "<img" not in safe(Written("![b](attachment:b.png)", attached), question)
    often = Written("![a](attachment:a.png)" * 500, {"a.png": {"image/png": "i" * 20_000}})
    assert len(safe(often, question)) < 100_000


@pytest.mark.parametrize(
    "content", [b"", b"{", b'{"cells": 3}', b'{"cells": [1, {"metadata": 2}]}', b"[" * 100_000, None]
)
def test_a_notebook_that_cannot_be_read_is_no_error(tmp_path, content):
    path = tmp_path / "notebook.ipynb"
    if content is not None:
        path.write_bytes(content)
    assert written(path, QUESTION).source is None


# -------------------------------------------------------------------------------------------------------- the command


def mark(course, *words):
    return main(["mark", ASSIGNMENT, f"--course={course}", "--no-browser", *words])


def test_nobody_has_handed_in(without_students, capsys):
    assert mark(without_students) == 1
    assert capsys.readouterr().err.startswith(f"error: nobody has handed in {ASSIGNMENT}: there is nothing in ")


def test_what_was_handed_in_is_to_be_graded_first(without_students, tmp_path, capsys):
    course = copied(without_students, tmp_path / "course")
    (course / "submitted/ada" / ASSIGNMENT).mkdir(parents=True)
    assert mark(course) == 1
    assert capsys.readouterr().err == (
        f"error: nothing of {ASSIGNMENT} is graded yet (1 handed in): run `attncourse grade {ASSIGNMENT}` first\n"
    )


def test_an_assignment_without_written_questions(course, capsys):
    with closing(sqlite3.connect(course / "gradebook.db")) as book, book:
        book.execute("UPDATE base_cell SET name = name || '-' WHERE type = 'SolutionCell'")
    assert mark(course) == 1
    said = f"error: {ASSIGNMENT} has no written questions: there is nothing to mark by hand\n"
    assert capsys.readouterr().err == said


def test_a_question_that_there_is_not(course, capsys):
    assert mark(course, "--question=why") == 1
    assert capsys.readouterr().err == f"error: {ASSIGNMENT} has no written question 'why'; it has: {QUESTION}\n"


def test_no_gradebook_is_made_by_looking(without_students, tmp_path, capsys):
    course = copied(without_students, tmp_path / "course")
    (course / "gradebook.db").unlink()
    assert mark(course) == 1
    assert capsys.readouterr().err.startswith("error: there is no gradebook at ")
    assert not (course / "gradebook.db").exists()


def status(address, headers=None, body=None):
    try:
        request = urllib.request.Request(address, body, headers or {})
        with urllib.request.build_opener(urllib.request.HTTPCookieProcessor()).open(request) as answer:
            return answer.status
    except urllib.error.HTTPError as error:
        return error.code


def test_the_server_answers_on_this_machine_to_who_has_the_token_alone(course):
    with served(course, "--port=0") as (address, _):
        start, _, token = address.partition("?")
        port = int(start.rstrip("/").rpartition(":")[2])
        assert start.startswith("http://127.0.0.1:") and len(token) > 40
        assert status(address) == 200
        for path in ("", "answers", "marks", "page.js", "answer?grade=x", "?token=", "?token=é"):
            assert status(start + urllib.request.quote(path, safe="?=")) == 403
        assert status(address, {"Host": f"elsewhere.example:{port}"}) == 403
        assert status(f"{start}marks?{token}", body=b"{}") == 403  # without the page's own header
        listening = Path("/proc/net/tcp")
        if listening.is_file():
            lines = [line.split()[1] for line in listening.read_text().splitlines() if f":{port:04X} " in line]
            assert lines and all(line.startswith("0100007F") for line in lines if line.endswith(f"{port:04X}"))
