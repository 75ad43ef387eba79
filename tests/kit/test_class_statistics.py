"""What the report computes of a class: item analysis, totals, misconceptions over the term, what is left to do."""

import csv
import math
import random
import re
from dataclasses import replace
from datetime import datetime, timedelta

import numpy as np
import pytest
from made_up_class import made_up

from commandkit.errors import CommandError
from lessonkit.grading.report import tables
from lessonkit.grading.report.items import ENOUGH, item_analysis
from lessonkit.grading.report.results import Column, Results, Row, RunLog, telling
from lessonkit.grading.report.term import recurring, sign_test, term_rows
from lessonkit.grading.report.todo import tasks
from lessonkit.grading.report.totals import Total, comparable, so_far, spread_of
from lessonkit.grading.submission.lateness import Times

POINTS = {"one": {"a": 1.0, "b": 2.0}, "two": {"c": 3.0}}


def verdict(exercise, fulfilled, misconceptions=(), problem=None, points=POINTS):
    aspects = [{"name": n, "ok": n in fulfilled, "out_of": p, "message": ""} for n, p in points[exercise].items()]
    earned = sum(aspect["out_of"] for aspect in aspects if aspect["ok"])
    return {"exercise": exercise, "points": earned, "out_of": sum(points[exercise].values()), "aspects": aspects,
            "misconceptions": list(misconceptions), "problem": problem}  # fmt: skip


def class_of(answers, marks=None, assignment="a01"):
    """A class whose students fulfil these aspects; `marks` are those of a written answer worth 3, None: it waits."""
    columns = [Column("nb", f"check-{name}", sum(points.values()), False) for name, points in POINTS.items()]
    columns += [Column("nb", "why", 3.0, True)] if marks is not None else []
    rows = []
    for i, fulfilled in enumerate(answers):
        verdicts = {name: verdict(name, fulfilled) for name in POINTS}
        points = {f"check-{name}": one["points"] for name, one in verdicts.items()}
        points |= {"why": marks[i]} if marks is not None else {}
        total = sum(mark or 0.0 for mark in points.values())
        rows.append(Row(f"s{i:03}", f"Student {i:03}", points=points, total=total, verdicts=verdicts))
    return Results(assignment, columns, rows, sum(column.out_of for column in columns))


def drawn(n, seed=0):
    """What each of n students fulfils: the better ones more."""
    draw = random.Random(seed)
    skills = [draw.gauss(0, 1) for _ in range(n)]
    return [{name for name in "abc" if draw.gauss(0, 1) < skill} for skill in skills]


def found(results):
    return {item.aspect or item.exercise: item for item in item_analysis(results)}


# -------------------------------------------------------------------------------------------------------- item analysis


def test_difficulty_and_discrimination_are_those_of_numpy_and_scipy():
    stats = pytest.importorskip("scipy.stats", reason="scipy is not installed")
    answers = drawn(200)
    items = found(class_of(answers))
    right = {name: np.array([name in fulfilled for fulfilled in answers], dtype=float) for name in "abc"}
    worth = {"a": 1.0, "b": 2.0, "c": 3.0}
    total = sum(worth[name] * right[name] for name in "abc")
    for name in "abc":
        rest = total - worth[name] * right[name]
        assert items[name].n == 200 and items[name].points == worth[name]
        assert items[name].difficulty == pytest.approx(right[name].mean())
        assert items[name].discrimination == pytest.approx(np.corrcoef(right[name], rest)[0, 1])
        assert items[name].discrimination == pytest.approx(stats.pointbiserialr(right[name], rest).statistic)
        with_itself = np.corrcoef(right[name], total)[0, 1]
        assert items[name].discrimination < with_itself - 0.05  # not the total: that holds the aspect itself


def test_discrimination_by_hand():
    # 16 fulfil all, 16 nothing, 8 only a: rest scores of a are 5, 0, 0; of its 24 two thirds have 5.
    items = found(class_of([{"a", "b", "c"}] * 16 + [set()] * 16 + [{"a"}] * 8))
    fulfilled, other = 5 * 16 / 24, 0.0
    deviation = 5 * math.sqrt(16 / 40 * 24 / 40)
    by_hand = (fulfilled - other) / deviation * math.sqrt(24 / 40 * 16 / 40)
    assert items["a"].difficulty == 0.6
    assert items["a"].discrimination == pytest.approx(by_hand) and by_hand == pytest.approx(2 / 3)


def test_below_enough_students_there_is_a_difficulty_and_no_discrimination():
    answers = drawn(ENOUGH, seed=1)
    assert found(class_of(answers))["a"].discrimination is not None
    few = found(class_of(answers[1:]))["a"]
    assert few.discrimination is None and few.difficulty is not None and few.n == ENOUGH - 1
    alone = found(class_of([{"a"}]))["a"]
    assert (alone.n, alone.difficulty, alone.discrimination) == (1, 1.0, None)
    assert item_analysis(class_of([])) == []


def test_what_does_not_vary_has_no_discrimination():
    same = found(class_of([{"a", "b", "c"}] * 50))
    assert {item.difficulty for item in same.values()} == {1.0}
    assert {item.discrimination for item in same.values()} == {None}
    # The aspect varies, and all the rest does not.
    assert found(class_of([{"a", "b", "c"}, {"b", "c"}] * 25))["a"].discrimination is None


def test_a_negative_discrimination_is_pointed_out():
    items = found(class_of([{"b", "c"}] * 25 + [{"a"}] * 25 + [{"a", "b", "c"}] * 3))
    assert items["a"].negative and items["a"].discrimination < -0.8 and not items["b"].negative
    item = items["a"]
    border = -2 / math.sqrt(item.n - 1)  # two standard errors: nearer to 0 it may be chance
    assert not replace(item, discrimination=border + 1e-9).negative
    assert replace(item, discrimination=border - 1e-9).negative
    assert not replace(item, discrimination=None).negative


def test_who_was_not_judged_counts_nowhere_and_who_wrote_nothing_fulfils_nothing():
    results = class_of([{"a", "b", "c"}, {"a"}, set()] * 20)
    results.rows[0].unreadable = "the submitted file is empty"
    del results.rows[1].verdicts["two"]
    results.rows[2].submitted, results.rows[2].verdicts = False, {}
    results.rows[3].verdicts["two"] = verdict("two", set(), problem="not written")
    items = found(results)
    assert items["c"].n == 57 and items["c"].difficulty == pytest.approx(18 / 57)


def test_an_extension_that_was_not_tried_says_nothing_and_is_in_no_rest_score():
    results = class_of(drawn(80))
    plain = found(results)
    columns = [*results.columns, Column("nb", "check-more", 0.0, False)]
    for i, row in enumerate(results.rows):
        problem = "not written" if i % 2 else None
        right = {"d"} if not i % 4 else set()
        row.verdicts["more"] = verdict("more", right, problem=problem, points={"more": {"d": 9.0}})
        row.points["check-more"] = 9.0 if right else 0.0
    items = found(replace(results, columns=columns))
    assert items["d"].n == 40 and items["d"].difficulty == 0.5
    assert {name: items[name] for name in "abc"} == plain
    right = [float(not i % 4) for i in range(0, 80, 2)]
    earned = [sum(results.rows[i].verdicts[name]["points"] for name in POINTS) for i in range(0, 80, 2)]
    assert items["d"].discrimination == pytest.approx(np.corrcoef(right, earned)[0, 1])


def test_a_written_answer_that_waits_is_left_out_and_not_0():
    answers = drawn(80, seed=2)
    marks = [None if i % 2 else float(len(fulfilled)) for i, fulfilled in enumerate(answers)]
    why = found(class_of(answers, marks))["why"]
    given = [(mark, len(fulfilled & {"a"}) + 2 * len(fulfilled & {"b"}) + 3 * len(fulfilled & {"c"}))
             for mark, fulfilled in zip(marks, answers, strict=True) if mark is not None]  # fmt: skip
    assert why.n == 40 and why.difficulty == pytest.approx(np.mean([mark / 3 for mark, _ in given]))
    assert why.discrimination == pytest.approx(np.corrcoef(np.array(given).T)[0, 1])
    some = class_of(answers, [None] * 79 + [0.0])
    some.rows[-1].empty = {"why"}  # nbgrader's own 0, while all others wait
    assert found(some)["why"].n == 0
    waiting = found(class_of(answers, [None] * 80))["why"]
    assert (waiting.n, waiting.difficulty, waiting.discrimination) == (0, None, None)


# --------------------------------------------------------------------------------------------------------------- totals


def test_what_is_not_marked_is_in_no_total():
    results = class_of([{"a", "b", "c"}, {"a"}], [None, 2.0])
    first, second = results.rows
    assert so_far(first, results) == Total(6.0, 6.0) and so_far(second, results) == Total(3.0, 9.0)
    assert comparable(results) == {"s000": Total(6.0, 6.0), "s001": Total(1.0, 6.0)}
    second.submitted = False
    assert so_far(second, results) is None and list(comparable(results)) == ["s000"]


@pytest.mark.parametrize(
    ("shares", "bars", "median"),
    [
        ([], {}, None),
        ([0.5], {"50–60": 1}, 0.5),
        ([1.0] * 4, {"90–100": 4}, 1.0),
        ([0.0, 0.099, 0.1, 0.7, 0.9, 1.2], {"0–10": 2, "10–20": 1, "70–80": 1, "90–100": 1, ">100": 1}, 0.4),
    ],
)
def test_totals_are_spread_over_tenths(shares, bars, median):
    spread = spread_of([*(Total(100 * share, 100.0) for share in shares), Total(0.0, 0.0)])
    assert {label: n for label, n in spread.bars if n} == bars and spread.median == pytest.approx(median)
    assert len(spread.bars) == (0 if not shares else 11 if ">100" in bars else 10)


@pytest.mark.parametrize("tenth", range(10))
def test_a_share_on_a_border_belongs_to_the_upper_tenth(tenth):
    for out_of in (10, 30, 70, 130):
        (place,) = [i for i, (_, n) in enumerate(spread_of([Total(tenth * out_of / 10, out_of)]).bars) if n]
        assert place == tenth


# ------------------------------------------------------------------------------------------------------------- the term


def held(holders, judged, assignment, name="not scaled", exercise="one"):
    """An assignment in which of these students these hold a misconception."""
    rows = [
        Row(student, student, points={"check-one": 3.0}, total=3.0, verdicts={exercise: verdict("one", {"a", "b"})})
        for student in judged
    ]
    for row in rows:
        if row.student in holders:
            row.verdicts[exercise]["misconceptions"] = [name]
    return Results(assignment, [Column("nb", "check-one", 3.0, False)], rows, 3.0)


def students(*numbers):
    return [f"s{i}" for i in numbers]


def test_a_misconception_is_followed_by_its_name_and_a_clear_change_is_said():
    everyone = students(*range(20))
    early, later = held(students(*range(8)), everyone, "a01"), held(students(19), everyone, "a02", exercise="two")
    (one,) = recurring([early, later], {})
    assert [(h.assignment, len(h.holders), len(h.judged)) for h in one.seen] == [("a01", 8, 20), ("a02", 1, 20)]
    assert (one.change, one.exercises, len(one.rows)) == ("fewer", ("one", "two"), 9)
    assert recurring([later, early], {})[0].change == "more"
    few = held(students(*range(5)), everyone, "a01")
    assert recurring([few, held([], everyone, "a02")], {})[0].change == ""  # nobody shows it, and nothing knows it


def test_an_assignment_whose_exercise_knows_a_misconception_counts_where_nobody_holds_it():
    everyone = students(*range(20))
    from attncourse_lessons import course as lessons

    exercise = lessons.exercise("attention_scores")
    name = exercise.misconceptions[0].name
    term = [held(students(*range(k)), everyone, a, name, "attention_scores") for k, a in ((7, "a01"), (0, "a02"))]
    term[1].rows[0].verdicts["attention_scores"]["problem"] = "not written"
    (one,) = recurring(term, {"a01": [exercise], "a02": [exercise]})
    assert [(len(h.holders), len(h.judged)) for h in one.seen] == [(7, 20), (0, 19)]
    assert one.change == "fewer"  # six of the seven are judged in both: 2 / 2 ** 6
    term[1].rows[1].verdicts["attention_scores"]["problem"] = "not written"
    assert recurring(term, {"a01": [exercise], "a02": [exercise]})[0].change == "no clear change"


@pytest.mark.parametrize(("one", "other"), [(0, 0), (6, 0), (1, 8), (5, 5), (3, 11)])
def test_the_sign_test_is_scipys(one, other):
    stats = pytest.importorskip("scipy.stats", reason="scipy is not installed")
    expected = stats.binomtest(one, one + other).pvalue if one + other else 1.0
    assert sign_test(one, other) == pytest.approx(expected)


def test_the_total_of_the_term_is_of_what_was_handed_in_and_is_marked():
    first = class_of([{"a", "b", "c"}, {"a"}], [None, 2.0])
    second = class_of([{"a"}, set()], assignment="a02")
    second.rows[1].submitted = False
    rows = {row.student: row for row in term_rows([first, second])}
    assert rows["s000"].totals == {"a01": Total(6.0, 6.0), "a02": Total(1.0, 6.0)}
    assert rows["s000"].total == Total(7.0, 12.0) and rows["s000"].comparable == Total(7.0, 12.0)
    assert rows["s001"].total == Total(3.0, 9.0) and rows["s001"].comparable == Total(1.0, 6.0)


# ----------------------------------------------------------------------------------------------------------- what to do


def test_what_there_is_to_do_comes_by_urgency_and_names_each_student_once():
    results = made_up()
    todo = tasks(results)
    assert [task.kind for task in todo] == [
        "ungraded", "unreadable", "tampering", "reading", "limit", "late", "waiting", "missing"
    ]  # fmt: skip
    by_kind = {task.kind: task for task in todo}
    assert [row.student for row in by_kind["missing"].rows] == ["s007", "s027", "s047"]
    assert len(by_kind["late"].rows) == 6 and by_kind["ungraded"].urgent and not by_kind["late"].urgent
    assert {text for _, text in by_kind["waiting"].about} == {"why"}
    results.rows[5].log = RunLog(ended="stopped after 30 seconds", flags=("a cell timed out",), sandbox="bubblewrap")
    assert [(len(t.about), len(t.rows)) for t in tasks(results) if t.kind == "limit"] == [(2, 1)]
    assert tasks(class_of([{"a"}])) == []


def test_an_ungraded_submission_is_not_missing():
    results = class_of([{"a"}])
    results.rows.append(Row("eve", "eve", submitted=False, ungraded="handed in, not graded yet"))
    assert [(task.kind, len(task.rows)) for task in tasks(results)] == [("ungraded", 1)]


def test_the_rows_that_tell_most_are_of_every_kind():
    results = class_of([{"a", "b", "c"}] * 20 + [set()] * 2 + [{"a", "b"}] * 9)
    results.rows[30].unreadable, results.rows[25].submitted = "empty", False
    chosen = {row.student for row in telling(results, 5)}
    assert chosen == {"s000", "s020", "s022", "s025", "s030"}
    assert len(telling(results, 12)) == 12 and telling(results, 99) == list(results.rows)


# ----------------------------------------------------------------------------------------------------------- the tables

EVIL = '=HYPERLINK("http://x","y")'


def read(path):
    text = path.read_bytes().decode("utf-8-sig")
    return list(csv.DictReader(text.splitlines()))


def test_a_row_a_student_says_what_is_known_and_nothing_else(tmp_path):
    results = class_of([{"a", "b", "c"}, {"a"}, set()], [None, 2.0, 1.0])
    rows = results.rows
    due = datetime(2026, 11, 20, 18)
    rows[0].times, rows[1].times = Times(due - timedelta(hours=2), due), Times(due + timedelta(hours=1.5), due)
    rows[1].name, rows[1].verdicts["two"]["misconceptions"] = EVIL, ["@SUM(1)", "-2+3"]
    rows[2] = Row("eve", "eve", submitted=False)
    tables.write(tmp_path / "x.csv", tables.students_table(results))
    first, second, third = read(tmp_path / "x.csv")
    told = ("one", "why", "total_so_far", "out_of_so_far", "hours_late", "not_marked_yet", "one: a", "two: c")
    assert [first[key] for key in told] == ["3.0", "", "6.0", "6.0", "0.0", "why", "1", "1"]
    assert [second[key] for key in told] == ["1.0", "2.0", "3.0", "9.0", "1.5", "", "1", "0"]
    assert [third[key] for key in told] == [""] * 8 and third["what_went_wrong"] == "nothing submitted"
    assert (second["handed_in"], second["due"]) == ("2026-11-20 19:30:00", "2026-11-20 18:00:00")
    assert second["name"] == f"'{EVIL}" and second["misconceptions"].startswith("'@SUM(1) (two)")


def test_no_cell_of_any_table_is_a_formula(tmp_path):
    results = class_of(drawn(40))
    results.rows[0].unreadable = "-1+1"
    for row in results.rows:
        row.student, row.name, row.tampering = f"={row.student}", f"+{EVIL}", ["\t=1"]
        row.verdicts["one"]["misconceptions"] = [EVIL]
        row.verdicts["one"]["aspects"][0]["name"] = "@a"
    found = recurring([results], {})
    for table in (
        tables.students_table(results),
        tables.aspects_table([results]),
        tables.term_table([results], term_rows([results])),
        tables.misconceptions_table(found),
    ):
        assert len(table) > 1
        for cell in (cell for line in table for cell in line if isinstance(cell, str)):
            for piece in re.split(r"[;\t\r\n]", cell):  # with other settings each of these begins a cell
                assert not piece.strip(' "').startswith(("=", "+", "-", "@")), cell


def test_a_row_an_aspect_is_the_item_analysis(tmp_path):
    results = class_of(drawn(40), [None] * 40)
    tables.write(tmp_path / "x.csv", tables.aspects_table([results]))
    lines = read(tmp_path / "x.csv")
    assert [line["aspect"] for line in lines] == ["a", "b", "c", ""]
    for line, item in zip(lines, item_analysis(results), strict=True):
        assert line["n"] == str(item.n)
        if item.n:
            assert float(line["discrimination"]) == pytest.approx(item.discrimination, abs=1e-4)
    assert (lines[3]["exercise"], lines[3]["difficulty"], lines[3]["discrimination"]) == ("why", "", "")


def test_the_terms_tables_say_who_has_what(tmp_path):
    everyone = students(*range(9))
    term = [held(students(0, 1), everyone, "a01"), held(students(1), everyone, "a02")]
    tables.write(tmp_path / "m.csv", tables.misconceptions_table(recurring(term, {})))
    lines = read(tmp_path / "m.csv")
    assert [(line["assignment"], line["students"], line["judged"], line["who"]) for line in lines] == [
        ("a01", "2", "9", "s0; s1"), ("a02", "1", "9", "s1")
    ]  # fmt: skip
    tables.write(tmp_path / "t.csv", tables.term_table(term, term_rows(term)))
    line = read(tmp_path / "t.csv")[0]
    assert (line["student_id"], line["a01"], line["total_so_far"], line["handed_in"]) == ("s0", "3.0", "6.0", "2")


def test_a_table_is_not_written_into_a_folder_that_is_not_there(tmp_path):
    with pytest.raises(CommandError, match="cannot write"):
        tables.write(tmp_path / "no" / "x.csv", [["a"]])
