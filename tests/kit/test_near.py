"""Mistakes that nobody has written down, named by the one step that lies between them and the solution."""

import torch

from lessonkit.exercises.exercise import Exercise
from lessonkit.exercises.judge import judge_on_seeds
from lessonkit.exercises.near import near
from lessonkit.exercises.observe import observe

SEEDS = (1, 2)


def solution(x, W, b):
    weights = (x @ W).softmax(dim=-1)
    return weights.sum(dim=-2) - b


exercise = Exercise("shares", solution, ("shares",), 1, 5, ("Look.",), solution)
aspect, slip, misconception, variant, alternative = exercise.decorators()


@aspect("shares", points=1)
def shares(answer, draw):
    """what each column gets"""
    return answer(draw.normal(3, 4, 6), draw.normal(6, 5), draw.normal(5))


def named(answer):
    seen = [observe(exercise, answer, seed) for seed in SEEDS]
    return [(m.name, m.hint) for m in judge_on_seeds(exercise, seen, SEEDS).misconceptions]


def test_an_axis_for_an_axis_is_named_though_the_answer_is_written_in_another_way():
    def answer(x, W, b):
        e = torch.exp(x @ W)
        return torch.sum(e / e.sum(1, keepdim=True), 1) - b

    ((name, words),) = named(answer)
    assert name == "a softmax along another axis" and "meant for a softmax" in words


def test_what_is_left_out_is_named_by_the_argument():
    assert named(lambda x, W, b: (x @ W).softmax(-1).sum(1))[0][0] == "`b` left out"


def test_a_function_for_another():
    assert named(lambda x, W, b: (x @ W).softmax(-1).mean(1) - b)[0][0] == "`mean` for `sum`"


def test_two_steps_away_or_an_error_without_shapes_have_no_name():
    assert not named(lambda x, W, b: (x @ W).softmax(-1).mean(1) + b)
    assert not named(lambda x, W, b: None.sum())


def test_what_steps_of_two_names_would_do_has_none():
    kept = Exercise("kept", as_it_is, ("x",), 1, 5, ("Look.",), as_it_is)
    kept.aspect("x", points=1)(one_matrix)
    assert {"`x` left out", "multiplied, not added"} <= {code.name for code in near(kept)}
    assert not judge_on_seeds(kept, [observe(kept, lambda x: 0 * x, seed) for seed in SEEDS], SEEDS).misconceptions


def as_it_is(x):
    return x + x * 0


def one_matrix(answer, draw):
    """one matrix"""
    return answer(draw.normal(3, 3))


def test_what_is_trained_or_true_or_false_has_none():
    assert near(exercise) and not near(Exercise("t", solution, ("t",), 1, 5, (), solution, truths=True))
