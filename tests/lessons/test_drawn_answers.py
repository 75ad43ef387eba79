"""Wrong answers that were written from contracts alone lose points, and most are named; right ones on many seeds."""

import pytest

import benchmarks
from attncourse_lessons import course
from lessonkit.course import VISIBLE_SEEDS
from lessonkit.exercises.judge import judge_on_seeds
from lessonkit.exercises.observe import observe

# How many answers each file has.
WRONG = {"drawn_answers": 54, "drawn_again": 106, "drawn_third": 60, "drawn_fourth": 50, "drawn_fifth": 50,
         "drawn_sixth": 50}  # fmt: skip


@pytest.fixture(scope="module", params=WRONG)
def drawn(request):
    return benchmarks.load(request.param)


@pytest.fixture(scope="module")
def verdicts(drawn):
    """Of each drawn answer what the check says."""
    found = {}
    for name, answer in drawn.answers_in(drawn).items():
        exercise = course.exercise(name.partition("__")[0])
        handed_in, seeds = drawn.handed_in(answer), VISIBLE_SEEDS[: exercise.seeds]
        found[name] = judge_on_seeds(exercise, [observe(exercise, handed_in, seed) for seed in seeds], seeds)
    return found


def test_every_wrong_answer_loses_points_and_few_lose_all(drawn, verdicts):
    wrong = [verdict for name, verdict in verdicts.items() if name not in drawn.RIGHT]
    assert len(wrong) == WRONG[drawn.__name__]
    assert all(verdict.points < verdict.out_of for verdict in wrong)
    assert sum(verdict.points > 0 for verdict in wrong) > 0.6 * len(wrong)


def test_a_right_answer_in_an_unusual_style_earns_everything(drawn, verdicts):
    for name in drawn.RIGHT & verdicts.keys():
        assert verdicts[name].points == verdicts[name].out_of, name


def test_most_mistakes_are_named_and_of_two_at_once_both(drawn, verdicts):
    single = [verdict for name, verdict in verdicts.items() if name not in drawn.TWO | drawn.RIGHT]
    double = [verdict for name, verdict in verdicts.items() if name in drawn.TWO]
    assert sum(bool(verdict.misconceptions) for verdict in single) >= 0.8 * len(single)
    assert sum(len(verdict.misconceptions) == 2 for verdict in double) >= 0.5 * len(double)


def test_right_answers_are_judged_on_many_seeds():
    known = benchmarks.load("known_answers")
    exercise = course.exercise("causal_mask")
    row = known.judged(exercise, known.right_answers(exercise), range(5), float("inf"))
    assert row == {"exercise": "causal_mask", "answers": 4, "seeds": 5, "departures": []}


def test_a_right_answer_that_loses_a_point_is_told():
    known = benchmarks.load("known_answers")
    exercise = course.exercise("causal_mask")
    wrong = exercise.misconceptions[0]
    (fault, *_) = known.judged(exercise, {"not at all": (wrong.answer, set())}, range(1), float("inf"))["departures"]
    assert fault["answer"] == "not at all" and fault["aspect"] in wrong.fails and fault["said"]


def test_slips_are_judged_by_the_aspects_that_they_say():
    known = benchmarks.load("known_answers")
    exercise = course.exercise("causal_mask")
    row = known.judged(exercise, known.wrong_answers(exercise), range(5), float("inf"))
    assert row["answers"] == len(exercise.misconceptions) + len(exercise.variants) and row["departures"] == []


def test_a_slip_that_passes_what_it_should_fail_is_told():
    known = benchmarks.load("known_answers")
    exercise = course.exercise("causal_mask")
    aspect = exercise.aspects[0].name
    answers = {"right after all": (exercise.as_answer(exercise.solution), {aspect})}
    (fault,) = known.judged(exercise, answers, range(1), float("inf"))["departures"]
    assert fault == {"answer": "right after all", "seed": 0, "aspect": aspect, "said": "passed"}
