"""`progress()`: the points of a learner's own checks."""

import json
import os
import subprocess
import sys
import types
from pathlib import Path

import pytest

import attncourse
from attncourse import check, progress
from attncourse_lessons import course as lessons
from lessonkit.exercises import progress as record


@pytest.fixture
def at_work(tmp_path, monkeypatch):
    """A notebook's kernel, as far as `wanted` looks; what is kept lies in the folder."""
    shell = types.SimpleNamespace(kernel=object())
    monkeypatch.setitem(sys.modules, "IPython", types.SimpleNamespace(get_ipython=lambda: shell))
    monkeypatch.setenv("LESSONKIT_PROGRESS", str(tmp_path / "kept"))
    monkeypatch.delenv("NBGRADER_EXECUTION", raising=False)
    return tmp_path / "kept"


def wrong(*inputs):
    return inputs[0]


right = lessons.exercise("pad_batch").alternatives[0].answer


def test_a_check_is_kept_and_shown_with_what_there_is_to_get(at_work):
    verdict = check("pad_batch", right)
    assert verdict.points == verdict.out_of > 0
    shown = repr(progress("a00"))
    everything = sum(exercise.out_of for exercise in lessons.exercises_of("a00") if not exercise.extra)
    assert f"{verdict.points:g} of {everything:g} by checks, 3 by hand" in shown.splitlines()[0]
    assert str(at_work) in shown


def test_the_best_check_counts_and_the_last_one_is_told(at_work):
    best = check("pad_batch", right).points
    before = repr(progress("a00")).splitlines()[0]
    assert check("pad_batch", wrong).points == 0
    shown = repr(progress("a00"))
    assert f"{best:g} of {best:g} (the last check: 0)" in shown and shown.splitlines()[0] == before


def test_what_is_no_answer_is_not_recorded(at_work):
    best = check("pad_batch", right).points
    assert check("pad_batch", right([[1], [2, 3]], 0)).points == 0
    assert record.read("attncourse", lessons.exercise("pad_batch")) == (best, best)


def test_what_is_not_written_is_not_checked_yet(at_work):
    def pad_batch(rows, pad):
        raise NotImplementedError()

    check("pad_batch", pad_batch)
    assert record.read("attncourse", lessons.exercise("pad_batch")) is None


def test_extra_points_are_counted_beside_the_others(at_work):
    extra = next(exercise for exercise in lessons.exercises_of("a02") if exercise.extra)
    record.keep("attncourse", extra, lessons.judge(extra.name, extra.alternatives[0].answer))
    everything = sum(exercise.out_of for exercise in lessons.exercises_of("a02") if not exercise.extra)
    expected = f"0 of {everything:g} by checks, 3 by hand, {extra.out_of:g} extra"
    assert repr(progress("a02")).splitlines()[0].endswith(expected)


def test_the_assignment_at_work_is_open_and_what_comes_next_is_told(at_work):
    first, second, *_ = lessons.exercises_of("a02")
    record.keep("attncourse", first, lessons.judge(first.name, first.alternatives[0].answer))
    card = progress()._repr_html_()
    assert card.count("<details open>") == 1 and "<details open><summary><strong>a02</strong>" in card
    assert f"Next: <code>{second.name}</code> in a02." in card
    for exercise in lessons.exercises_of("a02"):
        if not exercise.extra:
            record.keep("attncourse", exercise, lessons.judge(exercise.name, exercise.alternatives[0].answer))
    assert "a02 is done. Next: lecture 03, then a03." in repr(progress())


def test_the_card_links_to_the_notebooks_that_lie_beside_it(at_work, monkeypatch):
    assert lessons.root is not None
    monkeypatch.chdir(lessons.root / "lectures")
    card = progress("a02")._repr_html_()
    links = ["02_lookup.ipynb", "../assignments/a02/a02_lookup.ipynb"]
    assert all(f"href='{link}'" in card and Path(link).is_file() for link in links)
    monkeypatch.chdir(at_work.parent)
    assert "href" not in progress("a02")._repr_html_()


def test_the_card_names_every_exercise_and_says_which_were_not_checked_yet(at_work):
    check("pad_batch", right)
    card = progress("a00")._repr_html_()
    assert all(exercise.name in card for exercise in lessons.exercises_of("a00"))
    assert card.count("not checked yet") == len(lessons.exercises_of("a00")) - 1


def test_all_assignments_are_shown_unless_one_is_asked_for(at_work):
    assert {"a00", "a01", "a09"} <= {line[:3] for line in repr(attncourse.progress()).splitlines()}
    with pytest.raises(LookupError, match="a99"):
        progress("a99")


@pytest.mark.parametrize("setting", [("NBGRADER_EXECUTION", "autograde"), ("LESSONKIT_PROGRESS", "")])
def test_nothing_is_kept_where_somebody_grades_or_builds(setting, at_work, monkeypatch):
    monkeypatch.setenv(*setting)
    assert not record.wanted()


def test_nothing_is_kept_by_a_script(tmp_path):
    code = "from attncourse import check; check('pad_batch', lambda *inputs: inputs[0])"
    environment = os.environ | {"LESSONKIT_PROGRESS": str(tmp_path / "kept")}
    subprocess.run([sys.executable, "-c", code], check=True, env=environment)
    assert not (tmp_path / "kept").exists()


def test_a_check_does_not_fail_where_nothing_can_be_kept(at_work):
    at_work.write_text("a file in the folder's place")
    assert check("pad_batch", right).points > 0
    assert "not checked yet" in progress("a00")._repr_html_()


def test_what_cannot_be_read_counts_as_not_checked(at_work):
    at_work.mkdir()
    (at_work / "pad_batch.json").write_text(json.dumps({"last": None}))
    assert record.read("attncourse", lessons.exercise("pad_batch")) is None
    check("pad_batch", right)
    assert record.read("attncourse", lessons.exercise("pad_batch")).last > 0
