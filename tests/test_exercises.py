"""The graders are proven: what is right earns everything, what is wrong loses its own points and is named."""

import copy
import json

import numpy as np
import pytest
import torch
from torch import nn

from attncourse import check, exercises, hint
from attncourse.exercises import judge, observe
from attncourse.exercises.core import Exercise
from attncourse.exercises.verdict import MIMETYPE

ALL = [exercise for assignment in exercises.assignments() for exercise in exercises.of(assignment)]
SEEDS = range(12)


def verdicts(exercise, answer, seeds=SEEDS):
    # A known answer to a class exercise borrows the reference's __init__, which the guard would refuse.
    trusted = isinstance(exercise.reference, type)
    return [judge(exercise, observe(exercise, answer, seed, trusted=trusted), seed) for seed in seeds]


def each(kind):
    return [
        pytest.param(exercise, code, id=f"{exercise.name}: {code.name}")
        for exercise in ALL
        for code in getattr(exercise, kind)
    ]


@pytest.mark.parametrize("exercise", ALL, ids=lambda e: e.name)
def test_the_reference_earns_every_point_on_every_seed(exercise):
    # trusted: the reference may of course call the package
    for seed in SEEDS:
        verdict = judge(exercise, observe(exercise, exercise.reference, seed, trusted=True), seed)
        assert verdict.points == exercise.out_of, str(verdict)
        assert verdict.misconceptions == ()


@pytest.mark.parametrize(("exercise", "alternative"), each("alternatives"))
def test_another_style_earns_every_point(exercise, alternative):
    for verdict in verdicts(exercise, alternative.answer):
        assert verdict.points == verdict.out_of, str(verdict)


@pytest.mark.parametrize(("exercise", "misconception"), each("misconceptions"))
def test_a_misconception_loses_its_own_aspects_and_no_others(exercise, misconception):
    for verdict in verdicts(exercise, misconception.answer):
        assert {line.name for line in verdict.aspects if not line.ok} == set(misconception.fails), str(verdict)


@pytest.mark.parametrize(("exercise", "misconception"), each("misconceptions"))
def test_a_misconception_is_named_and_no_other_is(exercise, misconception):
    for verdict in verdicts(exercise, misconception.answer):
        assert verdict.misconceptions == (misconception,), str(verdict)


@pytest.mark.parametrize(("exercise", "code"), each("misconceptions") + each("alternatives"))
def test_known_answers_keep_the_names_of_the_contract(exercise, code):
    def arguments(answer):
        function = answer.forward if isinstance(answer, type) else answer
        return function.__code__.co_varnames[: function.__code__.co_argcount]

    contract = {arguments(known.answer) for known in exercise.misconceptions + exercise.alternatives}
    assert len(contract) == 1
    assert code.body and "return" in code.body


@pytest.mark.parametrize("exercise", ALL, ids=lambda e: e.name)
def test_every_exercise_has_what_the_syllabus_asks(exercise):
    assert len({m.name for m in exercise.misconceptions}) >= 3
    assert len(exercise.alternatives) >= 2
    assert 2 <= len(exercise.hints) <= 3
    assert exercise.difficulty in (1, 2, 3) and exercise.minutes > 0
    assert exercise.out_of > 0 and all(aspect.points > 0 for aspect in exercise.aspects)
    assert {name for m in exercise.misconceptions for name in m.fails} == {a.name for a in exercise.aspects}, (
        "an aspect that no known misconception fails is not proven to catch anything"
    )


def test_exercise_names_are_unique_in_the_course():
    names = [exercise.name for exercise in ALL]
    assert len(names) == len(set(names))


# ------------------------------------------------------------------------------- answers that are not even wrong


@pytest.fixture
def softmax():
    """A small exercise of the tests' own."""
    exercise = Exercise(
        "softmax",
        reference=lambda scores: scores.softmax(dim=-1),
        returns=("weights",),
        difficulty=1,
        minutes=1,
        hints=("one", "two"),
        forbidden=("torch.nn.functional.softmax", "torch.nn.Softmax", "torch.Tensor.softmax", "attncourse.attention"),
    )

    @exercise.aspect("weights", points=2)
    def _(answer, draw):
        """rows sum to one"""
        return answer(draw.normal(3, 4))

    @exercise.aspect("single row", points=0.5)
    def _(answer, draw):
        """one row works too"""
        return answer(draw.normal(1, 4))

    return exercise


def by_hand(scores):
    exponentials = (scores - scores.amax(-1, keepdim=True)).exp()
    return exponentials / exponentials.sum(-1, keepdim=True)


def one(exercise, answer, seed=0):
    return judge(exercise, observe(exercise, answer, seed), seed)


def test_an_unwritten_answer_is_told_what_to_do(softmax):
    def answer(scores):
        raise NotImplementedError()

    verdict = one(softmax, answer)
    assert verdict.points == 0
    assert "Not written yet" in str(verdict) and "raise NotImplementedError()" in str(verdict)


def test_an_answer_that_raises_is_told_the_error_and_its_own_line(softmax):
    def answer(scores):
        rows = scores.unbind()
        return rows[7]

    verdict = one(softmax, answer)
    assert verdict.points == 0
    assert "IndexError: tuple index out of range" in str(verdict)
    assert "return rows[7]" in str(verdict)


def test_an_error_in_one_aspect_leaves_the_points_of_the_others(softmax):
    def answer(scores):
        if len(scores) == 1:
            raise RuntimeError("cannot do one row")
        return by_hand(scores)

    verdict = one(softmax, answer)
    assert verdict.points == 2
    assert "RuntimeError: cannot do one row" in verdict.aspects[1].message


@pytest.mark.parametrize(
    ("result", "words"),
    [
        (None, "returned None, expected a tensor: is a `return` missing?"),
        ([1.0, 2.0], "returned a list of 2, expected a tensor"),
        (0.5, "returned a float, expected a tensor"),
    ],
)
def test_a_wrong_type_is_named(softmax, result, words):
    verdict = one(softmax, lambda scores: result)
    assert verdict.points == 0 and words in str(verdict)


def test_a_wrong_shape_is_told_beside_the_right_one(softmax):
    verdict = one(softmax, lambda scores: by_hand(scores).mT)
    assert verdict.points == 0
    assert verdict.aspects[0].message == "weights has shape (4, 3), expected (3, 4)"


def test_nan_is_told_with_its_place(softmax):
    def answer(scores):
        weights = by_hand(scores).clone()
        weights[-1, 2] = float("nan")
        return weights

    assert "contains NaN, first at [2, 2]" in one(softmax, answer).aspects[0].message


def test_writing_into_the_input_is_refused_and_the_argument_named(softmax):
    def answer(scores):
        scores -= scores.amax(-1, keepdim=True)
        return by_hand(scores)

    verdict = one(softmax, answer)
    assert verdict.points == 0 and "it writes into `scores`" in str(verdict)


def test_booleans_are_not_numbers(softmax):
    assert "got booleans, expected numbers" in one(softmax, lambda scores: scores > 0).aspects[0].message


def test_a_call_in_place_of_the_function_is_told(softmax):
    verdict = one(softmax, by_hand(torch.zeros(2, 2)))
    assert "got a Tensor where the function itself is wanted" in str(verdict)


def test_an_instance_in_place_of_the_class_is_told():
    step = exercises.get("AttentionDecoderStep")
    verdict = one(step, nn.Linear(2, 2))
    assert verdict.points == 0 and "got a Linear where the class itself is wanted" in str(verdict)


def test_a_parameter_of_another_shape_is_told():
    class AttentionDecoderStep(nn.Module):
        def __init__(self, vocabulary, d_embedding, d_hidden):
            super().__init__()
            self.embedding = nn.Embedding(vocabulary, d_embedding)
            self.cell = nn.GRUCell(d_embedding + d_hidden, d_hidden)
            self.combine = nn.Linear(d_hidden, d_hidden)
            self.output = nn.Linear(d_hidden, vocabulary)

        def forward(self, token, state, attentional, encoder_states, mask):
            state = self.cell(torch.cat([self.embedding(token), attentional], dim=-1), state)
            weights = (encoder_states @ state[..., None])[..., 0].softmax(-1)
            attentional = self.combine((weights[:, None] @ encoder_states)[:, 0]).tanh()
            return self.output(attentional), state, attentional, weights

    verdict = one(exercises.get("AttentionDecoderStep"), AttentionDecoderStep)
    assert "the parameter combine.weight has shape" in str(verdict)


# ------------------------------------------------------------------------------------------------ forbidden names


def helper(scores):
    return torch.nn.functional.softmax(scores, dim=-1)


FORBIDDEN = {
    "the function": lambda scores: torch.nn.functional.softmax(scores, dim=-1),
    "a method": lambda scores: scores.softmax(-1),
    "a class": lambda scores: nn.Softmax(dim=-1)(scores),
    "a helper that calls it": lambda scores: helper(scores),
}


@pytest.mark.parametrize("way", FORBIDDEN)
def test_forbidden_names_are_refused_with_the_reason(softmax, way):
    verdict = one(softmax, FORBIDDEN[way])
    assert verdict.points == 0
    assert "Refused" in str(verdict) and "which does what you are asked to build" in " ".join(str(verdict).split())


def test_a_forbidden_module_is_refused_as_a_whole(softmax):
    from attncourse.attention import masked_softmax

    verdict = one(softmax, masked_softmax)
    assert verdict.points == 0 and "attncourse.attention" in str(verdict)


def test_a_refusal_cannot_be_caught(softmax):
    def answer(scores):
        try:
            return scores.softmax(-1)
        except Exception:
            return by_hand(scores)

    assert one(softmax, answer).points == 0


def test_torchs_own_attention_is_refused_under_any_name():
    from torch.nn.functional import scaled_dot_product_attention as innocent

    verdict = one(exercises.get("attention_output"), lambda weights, states: innocent(weights, weights, weights))
    assert "scaled_dot_product_attention" in str(verdict) and verdict.points == 0


def test_a_slip_in_a_forbidden_name_does_not_disarm_the_guard(softmax):
    softmax.forbidden = ("torch.nn.functional.sotfmax",)
    with pytest.raises(LookupError, match="sotfmax"):
        one(softmax, by_hand)


# --------------------------------------------------------------------------------------- judging is pure and steady


def test_the_same_seed_gives_the_same_verdict():
    exercise = exercises.get("attention_distribution")
    answer = exercise.misconceptions[1].answer
    assert one(exercise, answer, seed=7) == one(exercise, answer, seed=7)


def test_judging_leaves_the_observations_as_they_were(softmax):
    observations = observe(softmax, by_hand, 3)
    before = copy.deepcopy(observations)
    judge(softmax, observations, 3)
    assert all(np.array_equal(before[name].value, seen.value) for name, seen in observations.items())


def test_observing_leaves_the_learners_random_state_alone(softmax):
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    observe(softmax, lambda scores: torch.rand_like(scores), 0)
    assert torch.equal(torch.rand(3), expected)


def test_two_mistakes_at_once_are_both_named():
    def attention_distribution(scores, mask):
        exponentials = scores.exp()  # overflows, and does not mask
        return exponentials / exponentials.sum(dim=-1, keepdim=True)

    names = {m.name for m in one(exercises.get("attention_distribution"), attention_distribution).misconceptions}
    assert names == {"ignores the mask", "exponentials overflow"}


def test_a_wrong_answer_that_nobody_foresaw_gets_a_message_and_no_name(softmax):
    verdict = one(softmax, lambda scores: by_hand(scores) + 0.25)
    assert verdict.misconceptions == ()
    assert "12 of 12 numbers differ" in verdict.aspects[0].message


def test_an_aspect_must_be_right_on_every_seed(softmax):
    def answer(scores):  # right for some inputs alone
        return by_hand(scores) if scores[0, 0] > 0 else by_hand(scores) * 2

    by_seed = verdicts(softmax, answer)
    assert max(v.points for v in by_seed) > 0 and exercises.Verdict.over(by_seed).points == 0


# ----------------------------------------------------------------------------------------------- what a learner meets


@pytest.fixture
def half_right():
    return check("attention_distribution", exercises.get("attention_distribution").misconceptions[1].answer)


def test_the_card_shows_points_marks_the_mistake_and_the_way_to_a_hint(half_right):
    card = str(half_right)
    assert "attention_distribution" in card and "5 of 6 points" in card
    assert "✗ beside padding" in card and "✓ weights" in card
    assert "masks after the softmax" in card and 'hint("attention_distribution", 1)' in card
    assert max(len(line) for line in card.splitlines()) <= 92


def test_a_right_answer_is_not_offered_hints():
    verdict = check("attention_output", exercises.get("attention_output").alternatives[0].answer)
    assert verdict.points == verdict.out_of and "hint(" not in str(verdict)


def test_in_a_notebook_the_card_comes_as_html_text_and_data(half_right, monkeypatch):
    monkeypatch.delenv("NBGRADER_EXECUTION", raising=False)
    bundle = half_right._repr_mimebundle_()
    assert bundle["text/plain"] == str(half_right)
    assert "<table" in bundle["text/html"] and "masks after the softmax" in bundle["text/html"]
    assert json.loads(json.dumps(bundle[MIMETYPE]))["misconceptions"] == ["masks after the softmax"]


def test_for_nbgrader_the_text_is_the_number(half_right, monkeypatch):
    monkeypatch.setenv("NBGRADER_EXECUTION", "autograde")
    bundle = half_right._repr_mimebundle_()
    assert float(bundle["text/plain"]) == 5.0
    assert "masks after the softmax" in bundle["text/html"]


def test_extra_credit_never_prints_a_number_for_nbgrader(monkeypatch):
    monkeypatch.setenv("NBGRADER_EXECUTION", "autograde")
    verdict = check("local_attention", exercises.get("local_attention").alternatives[0].answer)
    assert verdict.points == 2
    with pytest.raises(ValueError, match="could not convert"):
        float(verdict._repr_mimebundle_()["text/plain"])


def test_html_from_a_learners_error_is_escaped(softmax):
    def answer(scores):
        raise ValueError("<script>alert(1)</script>")

    assert "<script>" not in one(softmax, answer)._repr_mimebundle_()["text/html"]


def test_an_unknown_exercise_lists_the_known_ones():
    with pytest.raises(LookupError, match="Did you mean 'attention_scores'") as error:
        check("atention_scores", None)
    assert "attention_distribution" in str(error.value)


def test_an_unknown_assignment_lists_the_known_ones():
    with pytest.raises(LookupError, match="a03"):
        exercises.of("a99")


def test_hints_come_one_by_one(capsys):
    hint("attention_scores")
    assert capsys.readouterr().out.startswith("Hint 1 of 3.")
    with pytest.raises(ValueError, match="hints 1 to 3, got 4"):
        hint("attention_scores", 4)


def test_a_misconception_must_fail_a_known_aspect(softmax):
    with pytest.raises(ValueError, match="must fail known aspects"):
        softmax.misconception("nothing", fails=("nonsense",))(by_hand)
