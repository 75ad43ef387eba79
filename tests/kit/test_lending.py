"""A check may hand an answer a function. It stays with the grader, and the learner's process asks what it returns."""

import contextlib
from types import SimpleNamespace

import pytest
import torch

from attncourse_lessons import course as lessons
from lessonkit.exercises.exercise import Exercise
from lessonkit.exercises.judge import judge
from lessonkit.exercises.observe import observe
from lessonkit.grading.sandbox.forkserver import ForkServer
from lessonkit.grading.sandbox.limits import Limits
from lessonkit.grading.sandbox.observer import Run
from lessonkit.mimetype import VERDICT

MATRIX = torch.tensor([[1.0, 2.0], [0.0, -1.0]])


def model(x):
    """The function handed over. It uses what the answer may not."""
    return torch.matmul(x, MATRIX).tanh()


def both_ways(function, x):
    x = x.clone().requires_grad_()
    y = function(x)
    y.square().sum().backward()
    return torch.cat([y.detach(), x.grad])


@pytest.fixture
def exercise(monkeypatch):
    """An exercise of the tests' own, known to the grader by its name."""
    exercise = Exercise(
        "callback",
        reference=both_ways,
        returns=("both",),
        difficulty=1,
        minutes=1,
        hints=("one", "two"),
        forbidden=("torch.matmul",),
    )

    @exercise.aspect("there and back", points=1)
    def _(answer, draw):
        """what the function returns, and the gradient that comes back through it"""
        return answer(model, draw.normal(3, 2))

    monkeypatch.setattr(lessons, "exercise", lambda name, variation=None: {"callback": exercise}[name])
    return exercise


@pytest.fixture(scope="module")
def fork_server():
    with contextlib.closing(ForkServer(lessons, "a03", "none")) as fork_server:
        yield fork_server


@pytest.fixture
def graded(exercise, fork_server):
    """What a learner's cells come to: the execution, and the verdict on `answer`."""

    def grade(*sources):
        cells = [{"source": source, "grade_id": None, "exercise": None, "skip": False} for source in sources]
        source = "check('callback', answer)"
        check = {"source": source, "grade_id": "check-callback", "exercise": "callback", "skip": False}
        cells.insert(1, check)
        job = {"course": "attncourse_lessons", "cells": cells, "files": {}, "seeds": {"callback": [5]}, "limits": {}}
        with contextlib.closing(Run(job, lambda: fork_server.start(Limits()), Limits())) as run:
            execution = run.execution()
        verdict = execution["cells"][1]["verdict"]
        return execution, verdict and SimpleNamespace(**verdict[VERDICT])

    return grade


RIGHT = """
def answer(function, x):
    x = x.clone().requires_grad_()
    y = function(x)
    y.square().sum().backward()
    return torch.cat([y.detach(), x.grad])
"""


def answer(body):
    return f"import torch\ndef answer(function, x):\n    {body}\n"


def test_a_function_is_called_and_gone_back_through_as_if_it_were_here(graded):
    execution, verdict = graded("import torch\n" + RIGHT)
    assert verdict.points == verdict.out_of and not execution["flags"] and execution["ended"] is None


def test_a_cell_that_asks_for_a_failing_case_is_quiet_where_a_notebook_is_graded(graded):
    asks = "from attncourse import check\nassert check.case('callback') is None, 'a case'"
    execution, verdict = graded("import torch\n" + RIGHT, asks)
    assert verdict.points == verdict.out_of and not execution["flags"]
    assert execution["cells"][2]["outputs"] == []


def test_the_grader_may_go_back_through_the_answer_and_what_it_called_in_it(graded, exercise):
    exercise.aspects.clear()
    exercise.reference = lambda function, x: function(x) + x

    @exercise.aspect("the gradient at the input", points=1)
    def _(answer, draw):
        """the gradient that comes back to the grader, through the answer and the function it was handed"""
        x = draw.normal(3, 2).requires_grad_()
        return torch.autograd.grad(answer(model, x).square().sum(), x)[0]

    execution, verdict = graded(answer("return function(x) + x"))
    assert verdict.points == 1 and not execution["flags"] and execution["ended"] is None
    _, verdict = graded(answer("return function(x.detach()) + x"))
    assert verdict.points == 0


@pytest.mark.parametrize("truth", ["True", "bool(function(x).shape)", "numpy.bool_(True)", "torch.tensor(True)"])
def test_an_answer_may_return_a_plain_truth(graded, exercise, truth):
    exercise.truths, exercise.reference = True, lambda function, x: torch.tensor(True)
    execution, verdict = graded("import numpy, torch\n" + f"def answer(function, x):\n    return {truth}\n")
    assert verdict.points == 1 and execution["ended"] is None


def test_in_the_notebook_a_handed_function_may_use_what_the_answer_may_not(exercise):
    assert judge(exercise, observe(exercise, both_ways, 5), 5).points == 1
    verdict = judge(exercise, observe(exercise, lambda function, x: torch.matmul(function(x), MATRIX), 5), 5)
    assert verdict.points == 0 and verdict.problem == "forbidden"
    after = judge(exercise, observe(exercise, lambda function, x: (function(x), torch.matmul(x, x.mT))[0], 5), 5)
    assert after.problem == "forbidden"


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("return function('hello')", "ValueError: TypeError"),
        ("return function(x, x)", "ValueError: TypeError"),
        ("return function(torch.zeros(400_000, 2))", "more numbers than it takes"),
        ("return function(object())", "ValueError: TypeError"),
    ],
)
def test_what_it_does_not_take_is_the_answers_own_error(graded, body, words):
    execution, verdict = graded(answer(body))
    assert words in verdict.aspects[0]["message"] and not execution["flags"] and execution["ended"] is None


def test_an_error_of_the_functions_may_be_caught(graded):
    caught = "try:\n        function('hello')\n    except ValueError:\n        return torch.cat([x, x])"
    execution, verdict = graded(answer(caught))
    assert verdict.points == 0 and "raised" not in verdict.aspects[0]["message"] and execution["ended"] is None


def test_outside_the_check_it_is_not_there_and_nobody_is_accused(graded):
    keeps = "import torch\nkept = []\n" + RIGHT.replace("    y =", "    kept.append(function)\n    y =")
    execution, verdict = graded(keeps, "kept[0](torch.zeros(1, 2))", "1 + 1")
    assert verdict.points == 1 and not execution["flags"] and execution["ended"] is None
    assert execution["cells"][2]["outputs"][0]["ename"] == "RuntimeError"
    assert execution["cells"][3]["outputs"][0]["data"]["text/plain"] == "2"


@pytest.mark.parametrize(
    "asks", ["request='call', number=7", "request='back', call=99, gradients=[]", "request='sing'", "number=0, other=1"]
)
def test_a_forged_request_gets_an_error_and_no_more(graded, asks):
    execution, verdict = graded(
        "import torch, gc\n"
        "def answer(function, x):\n"
        "    process = next(o for o in gc.get_objects() if type(o).__name__ == 'Process' and hasattr(o, 'channel'))\n"
        f"    process.say('callback', {asks})\n"
        "    kind, fields = process.channel.receive()\n"
        "    assert kind == 'raised', kind\n"
        "    return torch.cat([x, x])\n"
    )
    assert "raised" not in verdict.aspects[0]["message"] and execution["ended"] is None


def test_a_request_when_no_function_was_handed_over_is_tampering(graded):
    execution, verdict = graded(
        "import gc\n"
        "process = next(o for o in gc.get_objects() if type(o).__name__ == 'Process' and hasattr(o, 'channel'))\n"
        "process.say('callback', request='call', number=0, arguments=())\n"
    )
    assert verdict is None and "tampered" in execution["ended"]
