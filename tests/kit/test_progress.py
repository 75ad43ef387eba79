"""`progress()`: the points of a learner's own checks."""

import json
import os
import subprocess
import sys
import types

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
    assert f"{verdict.points:g} of {everything:g} points" in shown.splitlines()[0]
    assert str(at_work) in shown


def test_the_last_check_counts_and_a_better_one_before_is_remembered(at_work):
    best = check("pad_batch", right).points
    assert check("pad_batch", wrong).points == 0
    assert f"0 of {best:g} (was {best:g})" in repr(progress("a00"))


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
