"""Wrong answers that were written from contracts alone lose points, and most are named; right ones on many seeds."""

import pytest

import benchmarks
from attncourse_lessons import course
from lessonkit.course import VISIBLE_SEEDS
from lessonkit.exercises.judge import judge_on_seeds
from lessonkit.exercises.observe import observe

unseen = benchmarks.load("unseen")
# How many wrong answers each draw has.
WRONG = {
    0: 69, 1: 54, 2: 106, 3: 60, 4: 50, 5: 50, 6: 50, 7: 50, 8: 50, 9: 49, 10: 25, 11: 50, 12: 90, 13: 79, 14: 60,
    15: 60, 16: 60, 17: 60,
}  # fmt: skip


def test_every_draw_is_measured_here():
    assert list(WRONG) == unseen.draws()


# All but the newest are for `make test-all`.
@pytest.fixture(
    scope="module",
    params=[pytest.param(number, marks=[pytest.mark.slow] * (number < max(WRONG))) for number in WRONG],
)
def draw(request):
    return request.param


@pytest.fixture(scope="module")
def drawn(draw):
    return unseen.answers_in(benchmarks.load(f"unseen_{draw}"))


@pytest.fixture(scope="module")
def verdicts(drawn):
    """Of each drawn answer what the check says."""
    found = {}
    for name, answer in drawn.items():
        exercise = course.exercise(name.partition("__")[0])
        handed_in, seeds = unseen.handed_in(answer), VISIBLE_SEEDS[: exercise.seeds]
        found[name] = judge_on_seeds(exercise, [observe(exercise, handed_in, seed) for seed in seeds], seeds)
    return found


TRAINED = "train_translator"  # what a training run comes to is told by its share of right sentences, and has no name


def with_mistakes(number, drawn, verdicts, leave_out=None):
    """What the check says of the answers that have so many."""
    counted = {name: answer for name, answer in drawn.items() if name.partition("__")[0] != leave_out}
    return [verdicts[name] for name, answer in counted.items() if unseen.mistakes(answer) == number]


def test_every_wrong_answer_loses_points_and_few_lose_all(draw, drawn, verdicts):
    wrong = [*with_mistakes(1, drawn, verdicts), *with_mistakes(2, drawn, verdicts)]
    assert len(wrong) == WRONG[draw]
    assert all(verdict.points < verdict.out_of for verdict in wrong)
    assert sum(verdict.points > 0 for verdict in wrong) > 0.6 * len(wrong)


def test_a_right_answer_in_an_unusual_style_earns_everything(drawn, verdicts):
    for verdict in with_mistakes(0, drawn, verdicts):
        assert verdict.points == verdict.out_of, verdict


def test_most_mistakes_are_named_and_of_two_at_once_both(drawn, verdicts):
    single, double = (with_mistakes(number, drawn, verdicts, leave_out=TRAINED) for number in (1, 2))
    told = [verdict for verdict in single if verdict.misconceptions or "it writes into" in str(verdict)]
    assert len(told) >= 0.8 * len(single)
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
