"""Variations are proven as exercises are: what is right earns everything, what answers another one does not."""

import re

import pytest

from attncourse_lessons import course
from lessonkit.exercises.judge import judge, observe_known
from lessonkit.exercises.observe import observe
from lessonkit.exercises.variation import LEFT_OUT, answer_cell

VARIED = [each for each in course.all_exercises().values() if each.variations]
ALL = [
    pytest.param(base, varied, id=f"{base.name}: {name}") for base in VARIED for name, varied in base.variations.items()
]
SEEDS = (0, 1, 2)


def verdict_on(exercise, answer, seed):
    return judge(exercise, observe_known(exercise, answer, seed), seed)


def cell_of(name):
    """An exercise's cell, as its assignment's source has it."""
    text = (course.lesson(course.assignment_of(name)).folder / "assignment.py").read_text("utf-8")
    return re.search(rf'^# %% exercise="{name}"\n(.*?)^# %%', text, re.MULTILINE | re.DOTALL)[1]


def test_many_exercises_of_many_lessons_have_two_variations():
    assert len(VARIED) >= 6 and [each.name for each in VARIED if len(each.variations) < 2] == ["gru_step"]
    assert {course.assignment_of(each.name) for each in VARIED} >= {f"a0{n}" for n in range(8)}


@pytest.mark.parametrize(("base", "varied"), ALL)
def test_its_solution_and_its_reference_earn_every_point(base, varied):
    for seed in SEEDS:
        assert verdict_on(varied, varied.reference, seed).points == varied.out_of
        verdict = judge(varied, observe(varied, varied.solution, seed), seed)  # as a learner's: nothing forbidden
        assert verdict.points == varied.out_of, str(verdict)


@pytest.mark.parametrize(("base", "varied"), ALL)
def test_it_has_the_exercises_aspects_and_points(base, varied):
    assert varied.name == base.name and varied.arguments == base.arguments
    assert [(a.name, a.points) for a in varied.aspects] == [(a.name, a.points) for a in base.aspects]


@pytest.mark.parametrize(("base", "varied"), ALL)
def test_an_answer_to_the_exercise_itself_loses_points_and_is_told_so(base, varied):
    right = [base.solution, *(code.answer for code in base.alternatives)]
    for answer in right:
        verdict = verdict_on(varied, answer, 0)
        assert verdict.points < verdict.out_of
    assert [m.name for m in verdict_on(varied, base.solution, 0).misconceptions] == [LEFT_OUT]


@pytest.mark.parametrize(("base", "varied"), ALL)
def test_an_answer_to_another_variation_loses_points_here_and_in_the_exercise_itself(base, varied):
    others = [base, *(other for other in base.variations.values() if other is not varied)]
    for other in others:
        verdict = verdict_on(other, varied.solution, 0)
        assert verdict.points < verdict.out_of, other.varied


@pytest.mark.parametrize(("base", "varied"), ALL)
def test_each_mistake_that_it_knows_fails_its_own_aspects_and_no_others(base, varied):
    assert len(varied.misconceptions) >= 2
    for code in varied.misconceptions + varied.variants:
        for seed in SEEDS[:2]:
            verdict = verdict_on(varied, code.answer, seed)
            assert {line.name for line in verdict.aspects if not line.ok} == set(code.fails), (code.name, str(verdict))


@pytest.mark.parametrize(("base", "varied"), ALL)
def test_what_it_asks_stands_in_its_cell_and_the_contract_says_nothing_else(base, varied):
    cell, given = answer_cell(cell_of(base.name), varied), " ".join(answer_cell(cell_of(base.name), varied).split())
    assert varied.varied.asks in given
    assert not [piece for piece, other in varied.varied.contract.items() if piece in cell and piece not in other]
    assert max(map(len, cell.splitlines())) <= 120
    compile(cell, base.name, "exec")


def test_a_variation_that_is_not_told_apart_would_be_noticed():
    base = course.exercise("causal_mask")
    same = base.variation("the same", asks="Nothing.", fails=("past",), reference=base.reference)(base.solution)
    del base.variations["the same"]
    assert verdict_on(same, base.solution, 0).points == same.out_of


def test_a_contract_that_has_changed_is_an_error_and_not_another_text():
    varied = course.exercise("causal_mask").variations["the past alone"]
    with pytest.raises(ValueError, match="0 times in its cell"):
        answer_cell('def causal_mask():\n    """Another text."""\n', varied)
