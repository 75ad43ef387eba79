"""What a check says of answers that are wrong, strange or forbidden, and how it says it."""

import copy
import cProfile
import io
import json
import re
import traceback
import warnings

import numpy as np
import pytest
import torch
from torch import nn

from attncourse import check, hint
from attncourse_lessons import course as lessons
from lessonkit.course import Course
from lessonkit.exercises.exercise import Exercise
from lessonkit.exercises.judge import judge, judge_on_seeds
from lessonkit.exercises.local_runner import which_axes
from lessonkit.exercises.observe import apart, observe
from lessonkit.exercises.verdict import Verdict
from lessonkit.grading.sandbox.protocol import pack, unpack
from lessonkit.mimetype import VERDICT

SEEDS = range(8)


def verdicts(exercise, answer, seeds=SEEDS):
    # A known answer to a class exercise borrows the reference's __init__, which the guard would refuse.
    trusted = isinstance(exercise.reference, type)
    return [judge(exercise, observe(exercise, answer, seed, trusted=trusted), seed) for seed in seeds]


def known(exercise, name):
    return next(code.answer for code in lessons.exercise(exercise).misconceptions if code.name == name)


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


def text(verdict):
    """The card without its line breaks."""
    return " ".join(str(verdict).split())


def wrong(name, answer):
    return {line.name: line.message for line in check(name, answer).aspects if not line.ok}


def test_an_unwritten_answer_is_told_what_to_do(softmax):
    def answer(scores):
        raise NotImplementedError()

    verdict = one(softmax, answer)
    assert verdict.points == 0
    assert "Not written yet" in str(verdict) and "raise NotImplementedError()" in str(verdict)


def test_an_answer_that_writes_into_its_input_loses_one_aspect_and_no_gradient(softmax):
    @softmax.aspect("gradient", points=1)
    def gradient(answer, draw):
        """a gradient comes back"""
        scores = draw.normal(3, 4).requires_grad_()
        return torch.autograd.grad(answer(scores).square().sum(), scores)[0]

    def writes(scores):
        scores -= scores.detach().max()
        return by_hand(scores)

    verdict = one(softmax, writes)
    assert [aspect.ok for aspect in verdict.aspects] == [False, True, True]
    assert verdict.aspects[0].message == "it writes into `scores`: work on a copy, or on new tensors"
    assert not verdict.misconceptions


def test_a_gradient_that_is_lost_by_writing_into_an_input_is_told_so_and_gets_no_other_name():
    exercise = lessons.exercise("rnn_step")

    def writes(x, state, there, W_x, W_h, b):
        state[there] = torch.tanh(x @ W_x + state @ W_h + b)[there]
        return state

    verdict = one(exercise, writes)
    failed = {line.name: line.message for line in verdict.aspects if not line.ok}
    assert list(failed) == ["the first step", "gradient"] and not verdict.misconceptions
    assert failed["gradient"].startswith("torch needs for the gradient what stood in an input")


def test_writing_into_an_input_and_another_mistake_are_both_told(softmax):
    def writes(scores):
        scores -= scores.amax(-1, keepdim=True)
        return 2 * by_hand(scores)

    verdict = one(softmax, writes)
    assert "; it writes into `scores`" in verdict.aspects[0].message and not verdict.aspects[1].ok
    assert "writes into" not in verdict.aspects[1].message


def test_shapes_that_do_not_meet_are_told_with_the_arguments(softmax):
    verdict = one(softmax, lambda scores: scores @ scores)
    assert verdict.aspects[0].message.startswith("raised RuntimeError: mat1 and mat2 shapes cannot be multiplied")
    assert "; `scores` is (3, 4)  (line " in verdict.aspects[0].message


def test_of_shapes_that_do_not_meet_it_is_told_which_axes_by_the_names_that_the_docstring_gives_them():
    def hard_lookup(query, keys, values):
        """query: (n_query, d_k)   keys: (n_keys, d_k)   values: (n_keys, d_v)
        returns (n_query, d_v)"""
        return query @ keys

    told = next(iter(wrong("hard_lookup", hard_lookup).values()))
    left, right = r"on its left, (\d+) \(d_k\)", r"with the last but one on its right, (\d+) \(n_keys\)"
    turned = r"both end in \1: `.mT` exchanges the last two axes"
    assert re.search(rf"`@` pairs the last axis {left}, {right}; {turned}", told)
    assert re.search(r"; `query` is \(\d+, (\d+)\) = \(n_query, d_k\), `keys` is \(\d+, \1\) = \(n_keys, d_k\)", told)


@pytest.mark.parametrize(
    ("compute", "words"),
    [
        ("zeros(4, 8) @ zeros(3, 8)", "on its left, 8 (d), with the last but one on its right, 3 (n); both end in 8"),
        ("zeros(4, 8) @ zeros(3, 5)", "on its left, 8 (d), with the last but one on its right, 3 (n)"),
        ("zeros(2, 4, 8) @ zeros(2, 3, 8)", "its left, 8 (d), with the last but one on its right, 3 (n)"),
        ("torch.bmm(zeros(2, 4, 8), zeros(3, 8, 4))", "same first axis on both sides, and 2 meets 3 (n)"),
        ("zeros(4, 8) + zeros(3, 8)", "axis 0 is 4 in one and 3 (n) in the other"),
        ("zeros(4, 8) @ zeros(3)", "its left, 8 (d), with the one axis on its right, 3 (n)"),
        ("zeros(8) @ zeros(3)", "two vectors needs equal lengths, and 8 (d) meets 3 (n)"),
        ("torch.einsum('ij,kj->ik', zeros(4, 8), zeros(3, 3))", "j stands for an axis of 8 (d) and for one of 3 (n)"),
    ],
)
def test_every_way_in_which_shapes_do_not_meet_is_told_by_its_axes(compute, words):
    with pytest.raises(RuntimeError) as error:
        eval(compute, {"torch": torch, "zeros": torch.zeros})
    assert words in (which_axes(str(error.value), {8: "d", 3: "n"}) or "")


def test_an_error_in_the_same_line_is_told_once_whatever_the_sizes_were(softmax):
    verdict = one(softmax, lambda scores: scores @ scores[:, :2])
    assert verdict.problem == "raised" and len({line.message for line in verdict.aspects}) == 2
    assert text(verdict).count("RuntimeError") == 1


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


@pytest.mark.parametrize("answer", [lambda x: 4, lambda x: 4.0, lambda x: torch.tensor(4.0)])
def test_a_plain_number_counts_where_the_exercise_asks_for_one(answer):
    exercise = numbers_exercise(3)
    assert one(exercise, answer).points == 1
    for unfit in (lambda x: True, lambda x: "4", lambda x: None):
        assert "expected a number" in one(exercise, unfit).aspects[0].message


@pytest.mark.parametrize("answer", [lambda x: True, lambda x: np.bool_(True), lambda x: torch.tensor(True)])
def test_a_plain_truth_counts_where_the_exercise_asks_for_one(answer):
    exercise = Exercise(
        "odd", lambda x: torch.tensor(True), ("odd",), difficulty=1, minutes=1, hints=("one", "two"), truths=True
    )
    exercise.aspect("odd", points=1)(look_at_three)
    assert one(exercise, answer).points == 1
    assert one(exercise, lambda x: False).points == 0
    for unfit in (lambda x: 1, lambda x: "True", lambda x: None):
        assert "expected True or False" in one(exercise, unfit).aspects[0].message


def look_at_three(answer, draw):
    """true of three"""
    return answer(3)


def test_a_wrong_shape_is_told_beside_the_right_one(softmax):
    verdict = one(softmax, lambda scores: by_hand(scores).mT)
    assert verdict.points == 0
    told = "weights has shape (4, 3), expected (3, 4): the numbers are right, but axes 0 and 1 are exchanged"
    assert verdict.aspects[0].message == told


def test_nan_is_told_with_its_place(softmax):
    def answer(scores):
        weights = by_hand(scores).clone()
        weights[-1, 2] = float("nan")
        return weights

    assert "contains NaN, first at [2, 2]" in one(softmax, answer).aspects[0].message


def numbers_exercise(*inputs):
    """One whose answer is called with `inputs` and returns a number."""
    exercise = Exercise(
        "count", lambda x: 4, returns=("cost",), difficulty=1, minutes=1, hints=("one", "two"), numbers=True
    )

    @exercise.aspect("cost", points=1)
    def _(answer, draw):
        """four"""
        return answer(*inputs)

    return exercise


def test_lengthening_the_callers_lists_is_refused():
    def lengthens(sequences):
        sequences[0].append(0)
        return 4

    verdict = one(numbers_exercise([[1], [2, 3]]), lengthens)
    assert verdict.points == 0 and "writes into `sequences`" in text(verdict)
    assert one(numbers_exercise([[1], [2, 3]]), lambda sequences: 4).points == 1


@pytest.mark.parametrize("four", [4, 4.0, np.int64(4), np.float64(4), np.ceil(3.5), np.float32(4), torch.tensor(4)])
def test_a_number_counts_whatever_its_type_here_and_after_the_way_to_the_grader(four):
    assert one(numbers_exercise(0), lambda x: four).points == 1
    arrays = []
    sent = pack(four, arrays)
    assert unpack(sent, io.BytesIO(b"".join(arrays))) == 4


def test_an_input_of_nan_is_not_taken_for_a_changed_one():
    assert one(numbers_exercise(torch.tensor([torch.nan, 1.0])), lambda x: 4).points == 1


def test_equal_looking_numbers_are_told_with_as_many_digits_as_they_differ_in():
    off = wrong("attention_output", lambda weights, states: weights @ states * 1.00013)
    told = [re.search(r"got ([-.0-9]+), expected ([-.0-9]+)", words) for words in off.values()]
    assert all(told) and all(found[1] != found[2] for found in told)
    assert max(len(found[1].lstrip("-")) for found in told) > len("2.541")  # four digits would not do for all


def test_half_precision_is_named_as_the_reason():
    off = wrong("attention_output", lambda weights, states: weights.half() @ states.half())
    assert "computed in float16, the inputs are float32" in off["output"]


def test_double_precision_costs_nothing_and_is_said_once(softmax):
    verdict = one(softmax, lambda scores: by_hand(scores.double()))
    assert verdict.points == verdict.out_of
    said = [aspect.message for aspect in verdict.aspects]
    assert said == ["rows sum to one; it came back in float64, which is twice the size of the inputs’ float32",
                    "one row works too"]  # fmt: skip
    assert "float64" not in str(one(softmax, by_hand))
    assert "float64" not in str(one(softmax, lambda scores: (by_hand(scores) + 1).double()))  # something is wrong


def test_a_plain_number_is_not_said_to_be_in_double_precision():
    exercise = lessons.exercise("layer_cost")
    assert "float64" not in str(one(exercise, exercise.alternatives[0].answer))


def test_half_precision_is_no_reason_where_the_inputs_have_it():
    weights = known("masked_attention", "no mask")
    assert "float16" not in wrong("masked_attention", weights)["half precision"]


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (lambda scores: (scores > 0).float(), "got numbers, expected booleans: True stands where the larger number is"),
        (lambda scores: torch.where(scores > 0, 0.0, -torch.inf), "expected booleans: True stands where the larger"),
        (lambda scores: (scores <= 0).int(), "expected booleans: and they are the wrong way round, too"),
        (lambda scores: scores, "got numbers, expected booleans"),
    ],
)
def test_of_a_mask_of_numbers_it_is_told_what_they_mean(softmax, answer, words):
    exercise = Exercise("positive", lambda scores: scores > 0, ("mask",), difficulty=1, minutes=1, hints=())

    @exercise.aspect("mask", points=1)
    def mask(answer, draw):
        """True for what is positive"""
        return answer(draw.normal(3, 4))

    told = one(exercise, answer).aspects[0].message
    assert words in told and (":" in told) == (":" in words)


@pytest.fixture
def positive():
    exercise = Exercise("positive", lambda scores: scores > 0, ("mask",), difficulty=1, minutes=1, hints=())

    @exercise.aspect("a table", points=1)
    def table(answer, draw):
        """what is positive in a table"""
        return answer(draw.normal(3, 4))

    @exercise.aspect("a row", points=1)
    def row(answer, draw):
        """what is positive in a row"""
        return answer(draw.normal(40))

    @exercise.aspect("everything", points=1)
    def everything(answer, draw):
        """all is positive"""
        return answer(draw.normal(5).abs() + 1)

    return exercise


@pytest.mark.parametrize(
    ("answer", "wrong"),
    [
        (lambda scores: (scores > 0).float(), {"a table"}),
        (lambda scores: torch.where(scores > 0, 0.0, -torch.inf), {"a table", "a row", "everything"}),
        (lambda scores: (scores > 1).int(), {"a table", "a row"}),
        (lambda scores: (scores <= 0).int(), {"a table", "a row", "everything"}),
        (lambda scores: scores, {"a table", "a row", "everything"}),
    ],
)
def test_a_mask_of_numbers_that_is_right_otherwise_costs_the_first_aspect_alone(positive, answer, wrong):
    assert {line.name for line in one(positive, answer).aspects if not line.ok} == wrong


def test_a_place_is_told_only_of_what_the_answer_returned(softmax):
    @softmax.aspect("stacked", points=1)
    def stacked(answer, draw):
        """two at once"""
        return torch.stack([answer(draw.normal(3, 4)) for _ in range(2)])

    weights, _, both = one(softmax, lambda scores: by_hand(scores) * scores.exp()).aspects
    assert " at [" in weights.message and " at [" not in both.message and "got" in both.message
    assert "NaN, first at [0, 0]:" in one(softmax, lambda scores: scores * torch.nan).aspects[0].message
    assert "contains NaN:" in one(softmax, lambda scores: scores * torch.nan).aspects[2].message


def test_what_is_missing_and_what_a_factor_is_are_told_by_the_arguments_names():
    exercise = Exercise("scale", lambda x, width: (x + 1) / width, ("y",), difficulty=1, minutes=1, hints=())

    @exercise.aspect("y", points=1)
    def y(answer, draw):
        """divided"""
        return answer(draw.normal(4, 3), 7)

    def told(answer):
        return one(exercise, answer).aspects[0].message

    assert told(lambda x, width: x + 1).startswith("each number is 7 times what it should be (7 is `width`)")
    assert told(lambda x, width: x + (x + 1) / width).startswith("`x` is in it once too often")
    assert "does that number stand in the code?" in told(lambda x, width: (x + 1) / 9 / width)


def test_an_answer_that_is_right_on_some_draws_is_told_so(scaling):
    by_two = [observe(scaling, lambda x: x / 2, seed) for seed in range(8)]
    widths = [seen["scale"].value.shape[-1] for seen in by_two]
    four, other = widths.index(4), next(seed for seed, width in enumerate(widths) if width != 4)

    def message(*seeds):
        return judge_on_seeds(scaling, [by_two[seed] for seed in seeds], seeds).aspects[0].message

    assert "but right on 1 of 2 draws of inputs: does it hold for some sizes alone?" in message(four, other)
    assert "draws of inputs" not in message(other)


def test_booleans_are_not_numbers(softmax):
    assert "got booleans, expected numbers" in one(softmax, lambda scores: scores > 0).aspects[0].message


def test_a_call_in_place_of_the_function_is_told(softmax):
    verdict = one(softmax, by_hand(torch.zeros(2, 2)))
    assert "got a Tensor where the function itself is wanted" in str(verdict)


def test_an_instance_in_place_of_the_class_is_told():
    step = lessons.exercise("AttentionDecoderStep")
    verdict = one(step, nn.Linear(2, 2))
    assert (
        verdict.points == 0
        and "got an object of the class Linear: hand over the class itself, without brackets" in text(verdict)
    )


def test_a_parameter_of_another_shape_is_told():
    class AttentionDecoderStep(nn.Module):
        def __init__(self, vocab_size, d_embedding, d_hidden):
            super().__init__()
            self.embedding = nn.Embedding(vocab_size, d_embedding)
            self.cell = nn.GRUCell(d_embedding + d_hidden, d_hidden)
            self.combine = nn.Linear(d_hidden, d_hidden)
            self.output = nn.Linear(d_hidden, vocab_size)

        def forward(self, token, state, attentional, encoder_states, mask):
            state = self.cell(torch.cat([self.embedding(token), attentional], dim=-1), state)
            weights = (encoder_states @ state[..., None])[..., 0].softmax(-1)
            attentional = self.combine((weights[:, None] @ encoder_states)[:, 0]).tanh()
            return self.output(attentional), state, attentional, weights

    verdict = one(lessons.exercise("AttentionDecoderStep"), AttentionDecoderStep)
    assert "the parameter combine.weight has shape" in str(verdict)


@pytest.mark.parametrize(("names", "said"), [
    ([f"p{number}" for number in range(1001)], "the module has 1,001 parameters, each a tensor"),
    (["p" * 1_000_000], "the name of a parameter has 1,000,000 characters"),
])  # fmt: skip
def test_a_module_of_too_many_parameters_or_too_long_a_name_is_told_in_a_line(names, said):
    class AttentionDecoderStep(nn.Module):
        def __init__(self, vocab_size, d_embedding, d_hidden):
            super().__init__()
            for name in names:
                self.register_parameter(name, nn.Parameter(torch.zeros(1)))

    shown = text(one(lessons.exercise("AttentionDecoderStep"), AttentionDecoderStep))
    assert said in shown and len(shown) < 5_000


def test_an_error_inside_torch_is_told_with_the_learners_line():
    @torch.no_grad()
    def answer(decoder_states, encoder_states):
        return torch.dot(decoder_states, encoder_states)

    assert "return torch.dot(decoder_states" in wrong("attention_scores", answer)["scores"]
    assert "line" not in wrong("attention_scores", torch.no_grad()(torch.dot))["scores"]


def test_numpy_is_met_with_better_advice_than_torchs():
    off = wrong("attention_scores", lambda s, h: torch.as_tensor(s.numpy() @ h.numpy().transpose(0, 2, 1)))
    assert set(off) == {"gradient"} and "stay with tensor operations" in off["gradient"] and "detach" not in str(off)


def test_an_array_is_called_an_ndarray_and_a_question_ends_in_one_mark(softmax):
    assert "returned an ndarray" in str(one(softmax, lambda scores: scores.numpy()))
    assert "missing?." not in str(one(softmax, lambda scores: None))


class Step(nn.Module):
    """What the release gives of AttentionDecoderStep."""

    def __init__(self, vocab_size, d_embedding, d_hidden):
        super().__init__()
        self.embedding = nn.Embedding(vocab_size, d_embedding)
        self.cell = nn.GRUCell(d_embedding + d_hidden, d_hidden)
        self.combine = nn.Linear(2 * d_hidden, d_hidden)
        self.output = nn.Linear(d_hidden, vocab_size)

    def forward(self, token, state, attentional, encoder_states, mask):
        state = self.cell(torch.cat([self.embedding(token), attentional], dim=-1), state)
        weights = (encoder_states @ state[..., None])[..., 0].masked_fill(~mask, -torch.inf).softmax(-1)
        attended = (weights[:, None] @ encoder_states)[:, 0]
        attentional = torch.tanh(self.combine(torch.cat([attended, state], dim=-1)))
        return self.predict(attentional), state, attentional, weights

    def predict(self, attentional):
        return self.output(attentional)


def test_a_changed_init_is_told_where_it_matters():
    class Renamed(Step):
        def __init__(self, *sizes):
            super().__init__(*sizes)
            self.out = self.output
            del self.output

        def predict(self, attentional):
            return self.out(attentional)

    off = wrong("AttentionDecoderStep", Renamed)
    assert set(off) == {"logits"}
    assert "`__init__` was changed: of its parameters out.bias, out.weight should not be there" in off["logits"]


def test_a_missing_super_init_is_told():
    class Forgetful(Step):
        def __init__(self, vocab_size, d_embedding, d_hidden):
            self.embedding = nn.Embedding(vocab_size, d_embedding)

    assert "`__init__` must begin with `super().__init__()`" in text(check("AttentionDecoderStep", Forgetful))


# ------------------------------------------------------------------------------ what once earned too much or too little


def softmax_of(scores, mask):
    return scores.masked_fill(~mask, -torch.inf).softmax(-1)


def zeros_for_the_whole_batch(scores, mask):
    return torch.zeros_like(scores) if (~mask).all(-1).any() else softmax_of(scores, mask)


def mends_the_first_sentence_only(scores, mask):
    weights = softmax_of(scores, mask)
    return torch.cat([weights[:1].nan_to_num(), weights[1:]])


def adds_infinity(scores, mask):
    return (scores + torch.zeros(mask.shape).masked_fill(~mask, -torch.inf)).softmax(-1).nan_to_num()


@pytest.mark.parametrize(
    ("answer", "aspects"),
    [
        (zeros_for_the_whole_batch, {"nothing but padding", "gradient"}),
        (mends_the_first_sentence_only, {"nothing but padding"}),
        (lambda scores, mask: scores.masked_fill(~mask, -20).softmax(-1) * mask, {"beside padding", "large scores"}),
        (lambda scores, mask: scores.masked_fill(~mask, -100).softmax(-1) * mask, {"large scores"}),
        (lambda scores, mask: torch.tensor(softmax_of(scores, mask).nan_to_num().tolist()), {"gradient"}),
        (adds_infinity, {"gradient"}),
    ],
)
def test_weights_that_are_nearly_right_lose_something(answer, aspects):
    off = set(wrong("attention_distribution", answer))
    assert off and off <= aspects


class Idle(Step):
    """Hands on what came in, and zeros for the rest."""

    def forward(self, token, state, attentional, encoder_states, mask):
        logits = torch.zeros(len(token), self.output.out_features)
        return logits, torch.zeros_like(state), torch.zeros_like(attentional), mask / mask.sum(-1, keepdim=True)


@pytest.mark.parametrize(
    ("name", "answer"),
    [
        ("attention_scores", lambda decoder, encoder: decoder.new_zeros(*decoder.shape[:2], encoder.shape[1])),
        ("attention_distribution", lambda scores, mask: torch.zeros_like(scores)),
        ("attention_distribution", lambda scores, mask: torch.full_like(scores, 1 / scores.shape[-1])),
        ("attention_output", lambda weights, states: weights.new_zeros(*weights.shape[:2], states.shape[-1])),
        ("AttentionDecoderStep", Idle),
        ("local_attention", lambda weights, centers, sigma: torch.zeros_like(weights)),
    ],
)
def test_an_answer_that_is_the_same_whatever_comes_in_earns_nothing(name, answer):
    assert check(name, answer).points == 0


def test_dividing_by_the_sum_after_masking_is_right_until_the_padding_scores_high():
    def answer(scores, mask):
        weights = scores.softmax(-1) * mask
        return weights / weights.sum(-1, keepdim=True).clamp(min=1e-9)

    assert list(wrong("attention_distribution", answer)) == ["high scores in the padding"]


def test_a_width_written_into_the_code_is_noticed():
    def answer(weights, centers, sigma):
        return weights * torch.exp(-((torch.arange(weights.shape[-1]) - centers[..., None]) ** 2) / 4.5)

    assert "window" in wrong("local_attention", answer)


@pytest.mark.parametrize(
    ("name", "aspects"),
    [
        ("[s̃; embedding]", ["new state", "input feeding"]),
        ("the state stands still", ["new state", "input feeding"]),
        ("the old state asks", ["weights"]),
        ("scaled by √d", ["weights"]),
        ("something else in s̃'s place", ["attentional vector"]),
    ],
)
def test_a_slip_in_one_step_is_not_paid_for_in_the_next(name, aspects):
    mistake = next(m for m in lessons.exercise("AttentionDecoderStep").misconceptions if m.name == name)
    assert list(mistake.fails) == aspects  # that it fails these and no others is tested above


def test_differences_are_told_as_what_they_are():
    def told_of(name, aspect):
        exercise = lessons.exercise("AttentionDecoderStep")
        return {line.name: line.message for line in verdicts(exercise, known(exercise.name, name), [0])[0].aspects}[
            aspect
        ]

    assert told_of("words from the state alone", "logits").startswith("the logits differ from `output(attentional)` by")
    assert told_of("ignores the mask", "padding").startswith("the logits change when only the padding does")
    assert "when the fed vector changes, expected" in told_of("no input feeding", "input feeding")
    assert told_of(
        "cut off from the gradient", "gradient"
    ) == "no gradient finds its way from the logits to the cell " + (
        "or from the state to the cell and the previous state or from the state to the vector that is fed in "
        "or from the attentional vector to the cell"
    )
    off = wrong("attention_scores", lambda decoder_states, encoder_states: decoder_states @ encoder_states.detach().mT)
    assert off == {"gradient": "no gradient reaches `encoder_states`"}


class Helpers(Step):
    """A helper method, modules without parameters, a list handed back."""

    def __init__(self, *sizes):
        super().__init__(*sizes)
        self.softmax, self.dropout = nn.Softmax(dim=-1), nn.Dropout(0.1)

    def attend(self, state, states, mask):
        weights = self.softmax((states @ state[..., None]).squeeze(-1).masked_fill(~mask, float("-inf")))
        return torch.einsum("bi,bid->bd", weights, states), weights

    def forward(self, token, state, attentional, encoder_states, mask):
        state = self.cell(torch.hstack([self.embedding.weight[token], attentional]), state)
        attended, weights = self.attend(state, encoder_states, mask)
        attentional = self.dropout(self.combine(torch.hstack([attended, state])).tanh_())
        return [self.output(attentional), state, attentional, weights]


def logarithms(scores, mask):
    scores = scores.masked_fill(~mask, -torch.inf)
    return torch.where(mask, (scores - scores.logsumexp(-1, keepdim=True)).exp(), torch.zeros(())).nan_to_num()


def pairwise(scores, mask):
    differences = scores[..., None, :] - scores[..., :, None]
    differences = differences.double().masked_fill(~mask[..., None, :], -torch.inf).exp()
    return torch.where(mask, 1 / differences.sum(-1).clamp(min=1e-300), 0).float()


def quarter_squares(s, h):
    return ((s[:, :, None] + h[:, None]).pow(2).sum(-1) - (s[:, :, None] - h[:, None]).pow(2).sum(-1)) / 4


def shares(scores, mask):
    scores = scores.masked_fill(~mask, -1e30)
    exponentials = torch.exp(scores - scores.max(-1, keepdim=True).values) * mask
    total = exponentials.sum(-1, keepdim=True)
    return exponentials / (total + (total == 0))


UNUSUAL = {
    "three times vmap": ("attention_scores", torch.vmap(torch.vmap(torch.vmap(torch.dot, (None, 0)), (0, None)))),
    "quarter squares": ("attention_scores", quarter_squares),
    "a subclass of Tensor": ("attention_scores", lambda s, h: (s @ h.mT).as_subclass(nn.Parameter)),
    "logsumexp": ("attention_distribution", logarithms),
    "no softmax at all": ("attention_distribution", pairwise),
    "shares of exponentials": ("attention_distribution", shares),
    "the diagonal of all pairs": (
        "attention_output",
        lambda w, h: torch.diagonal(torch.tensordot(w, h, dims=([2], [1])), dim1=0, dim2=2).permute(2, 0, 1),
    ),
    "linear layers": (
        "attention_output",
        lambda w, h: torch.stack([nn.functional.linear(a, b.T) for a, b in zip(w, h, strict=True)]),
    ),
    "the plain step": ("AttentionDecoderStep", Step),
    "helpers": ("AttentionDecoderStep", Helpers),
}


@pytest.mark.parametrize("style", UNUSUAL)
def test_an_unusual_style_earns_every_point(style):
    assert wrong(*UNUSUAL[style]) == {}


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

    verdict = one(lessons.exercise("attention_output"), lambda weights, states: innocent(weights, weights, weights))
    assert "scaled_dot_product_attention" in str(verdict) and verdict.points == 0


def test_a_function_that_the_answer_is_given_may_be_called_by_keyword():
    asks = Exercise("asks", reference=lambda ask: ask(2, to=3), returns=("n",), forbidden=("torch.mm",), numbers=True,
                    difficulty=1, minutes=1, hints=())  # fmt: skip

    @asks.aspect("asked", points=1)
    def asked(answer, draw):
        """the function is called"""
        return answer(lambda value, to: torch.tensor(value * to))

    assert one(asks, lambda ask: ask(to=3, value=2)).points == 1
    assert "unexpected keyword argument 'two'" in str(one(asks, lambda ask: ask(2, two=3)))


def test_a_check_works_under_a_profiler():
    profiler = cProfile.Profile()
    verdict = profiler.runcall(check, "attention_output", lambda weights, states: weights @ states)
    assert verdict.points == verdict.out_of


def test_a_slip_in_a_forbidden_name_does_not_disarm_the_guard(softmax):
    softmax.forbidden = ("torch.nn.functional.sotfmax",)
    with pytest.raises(LookupError, match="sotfmax"):
        one(softmax, by_hand)


def test_what_is_the_same_twice_may_differ_by_rounding_and_by_no_more():
    one = torch.tensor([1000.0, 1.0])
    assert not apart(one + torch.tensor([0.0, 5e-3]), one).any()
    assert apart(one + torch.tensor([0.0, 5e-2]), one).tolist() == pytest.approx([0, 5e-2], rel=1e-3)
    assert apart(one / 1000 + 5e-5, one / 1000).all() and apart(torch.tensor([torch.nan]), one[:1]).isnan().all()


# --------------------------------------------------------------------------------------- judging is pure and steady


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
    class Twice(Step):
        def forward(self, token, state, attentional, encoder_states, mask):
            _, state, _, weights = super().forward(token, state, 0 * attentional, encoder_states, mask)
            attended = (weights[:, None] @ encoder_states)[:, 0]
            attentional = self.combine(torch.cat([attended, state], dim=-1))
            return self.output(attentional), state, attentional, weights

    names = {m.name for m in check("AttentionDecoderStep", Twice).misconceptions}
    assert names == {"no input feeding", "tanh left out"}


@pytest.fixture
def slips():
    """An exercise whose wrong answers are slips: two that can be made at once, and one in the place of another."""

    def solution(scores):
        exponentials = scores.exp()
        return exponentials / exponentials.sum(-1, keepdim=True)

    exercise = Exercise("softmax", solution, ("weights",), difficulty=1, minutes=1, hints=(), solution=solution)

    @exercise.aspect("weights", points=1)
    def weights(answer, draw):
        """rows sum to one"""
        return answer(draw.normal(3, 4))

    exercise.slip("over the queries", ("weights",), {"-1": "-2"}, {"-1": "0"}, words="The softmax ran down.")
    exercise.slip("the wrong sign", ("weights",), {"scores.exp": "(-scores).exp"}, words="The scores were negated.")
    exercise.slip("no exponential", ("weights",), {"scores.exp()": "scores"}, words="Scores were divided.")
    return exercise


def test_a_slip_is_the_solution_with_a_piece_replaced_and_each_further_edit_a_variant(slips):
    down, negated, _ = slips.misconceptions
    assert down.body == slips.solution_body.replace("-1", "-2") and slips.variants[0].body.count("sum(0,") == 1
    assert [m.name for m in one(slips, negated.answer).misconceptions] == ["the wrong sign"]
    assert [m.name for m in one(slips, slips.variants[0].answer).misconceptions] == ["over the queries"]


def test_an_error_in_a_slip_is_placed_in_its_own_line(slips):
    slips.slip("no axis kept", ("weights",), {", keepdim=True": ""}, words="The sum lost its axis.")
    said = one(slips, slips.misconceptions[-1].answer).aspects[0].message
    assert said.startswith("raised RuntimeError") and "(line 3: return exponentials / exponentials.sum(-1))" in said


def test_two_slips_at_once_are_both_named_where_neither_explains_it_alone(slips):
    def both(scores):
        exponentials = (-scores).exp()
        return exponentials / exponentials.sum(0)

    assert [m.name for m in one(slips, both).misconceptions] == ["over the queries", "the wrong sign"]
    pairs = [{one.name, other.name} for one, other, _ in slips.pairs]  # two of them stand at the same place
    assert (
        pairs.count({"over the queries", "the wrong sign"}) == 2 == pairs.count({"over the queries", "no exponential"})
    )
    assert len(pairs) == 4


def test_two_slips_are_both_named_where_one_replaces_a_part_of_what_the_other_does():
    def solution(x):
        return x.sum(-1) / x.shape[-1]

    exercise = Exercise("mean", solution, ("mean",), difficulty=1, minutes=1, hints=(), solution=solution)

    @exercise.aspect("values", points=1)
    def values(answer, draw):
        """the mean"""
        return answer(draw.normal(3, 4))

    exercise.slip("one too many", ("values",), {"x.shape[-1]": "(x.shape[-1] + 1)"}, words="Count again.")
    exercise.slip("over the queries", ("values",), {"sum(-1) / x.shape[-1]": "sum(0) / x.shape[-1]"}, words="Down.")
    names = [m.name for m in one(exercise, lambda x: x.sum(0) / (x.shape[-1] + 1)).misconceptions]
    assert names == ["one too many", "over the queries"]


def test_a_slip_of_a_known_name_is_another_code_that_may_fail_other_aspects(slips):
    @slips.aspect("one row", points=1)
    def one_row(answer, draw):
        """a row by itself"""
        return answer(draw.normal(1, 4))

    slips.slip("the wrong sign", ("weights", "one row"), {"scores.exp()": "scores.exp().reciprocal()"})
    assert [m.name for m in slips.misconceptions].count("the wrong sign") == 1
    assert slips.variants[-1].hint == "The scores were negated." and slips.variants[-1].fails == ("weights", "one row")


@pytest.fixture
def sums():
    """An exercise of two tables, of which the slips spoil one each."""

    def solution(x, y):
        first, second = x + 1, y + 2
        return first, second

    exercise = Exercise("sums", solution, ("first", "second"), difficulty=1, minutes=1, hints=(), solution=solution)

    @exercise.aspect("first", points=1)
    def first(answer, draw):
        """one more"""
        return answer(draw.normal(3, 4), draw.normal(3, 4))[0]

    @exercise.aspect("second", points=1)
    def second(answer, draw):
        """two more"""
        return answer(draw.normal(3, 4), draw.normal(3, 4))[1]

    exercise.slip("no 1", ("first",), {"x + 1": "x"}, words="Nothing was added to x.")
    exercise.slip("no 2", ("second",), {"y + 2": "y"}, words="Nothing was added to y.")
    return exercise


def test_two_slips_are_both_named_where_only_together_they_spoil_a_third_thing(sums):
    @sums.aspect("larger", points=1)
    def larger(answer, draw):
        """the larger of the two, for zeros"""
        return torch.maximum(*answer(torch.zeros(2), torch.zeros(2))) > 0

    verdict = one(sums, lambda x, y: (x, y))
    assert [line.ok for line in verdict.aspects] == [False, False, False]
    assert [m.name for m in verdict.misconceptions] == ["no 1", "no 2"]
    assert verdict.unexplained == ()


def test_what_a_name_does_not_explain_is_said(sums):
    verdict = one(sums, lambda x, y: (x, y.exp()))
    assert verdict.unexplained == ()  # half of what is wrong: no name, and so nothing that it leaves
    assert [m.name for m in verdict.misconceptions] == []

    @sums.aspect("first again", points=1)
    def again(answer, draw):
        """one more"""
        return answer(draw.normal(2, 4), draw.normal(2, 4))[0]

    sums.misconceptions.clear()
    sums.slip("no 1", ("first", "first again"), {"x + 1": "x"}, words="Nothing was added to x.")
    for verdict in (
        one(sums, lambda x, y: (x, y.exp())),
        judge_on_seeds(sums, [observe(sums, lambda x, y: (x, y.exp()), seed) for seed in (0, 1)], (0, 1)),
    ):
        assert [m.name for m in verdict.misconceptions] == ["no 1"] and verdict.unexplained == ("second",)
        assert "Something else is wrong, too: this does not explain “second”." in text(verdict)


def test_where_several_pairs_fit_what_they_share_is_named(slips):
    def both(scores):
        exponentials = (-scores).exp()
        return exponentials / exponentials.sum(0)

    slips.slip("minus", ("weights",), {"scores.exp": "(0 - scores).exp"}, words="They were taken from 0.")
    assert [m.name for m in one(slips, both).misconceptions] == ["over the queries"]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"exponentials": "x"}, "'exponentials' is 3 times in the solution, expected once"),
        ({"logits": "x"}, "'logits' is 0 times in the solution"),
        ({"scores.exp": "x", "exp()": "y"}, "overlaps another piece"),
    ],
)
def test_a_slip_in_what_the_solution_does_not_hold_once_is_told(slips, change, words):
    with pytest.raises(ValueError, match=re.escape(words)):
        slips.slip("new", ("weights",), change, words="No.")


def test_a_traceback_shows_the_line_of_a_slip(slips):
    slips.slip("breaks", ("weights",), {"scores.exp()": "scores.expp()"}, words="No.")
    with pytest.raises(AttributeError) as error:
        slips.misconceptions[-1].answer(torch.zeros(1, 2))
    assert "exponentials = scores.expp()" in "".join(traceback.format_tb(error.tb))


class Twice(nn.Module):
    """The solution of an exercise in which the learner writes the whole module."""

    def __init__(self, d):
        super().__init__()
        self.once = nn.Linear(d, d)
        self.again = nn.Linear(d, 2 * d, bias=False)

    def forward(self, x):
        return self.again(self.once(x))


@pytest.fixture
def whole():
    """An exercise in which the learner writes `__init__`, too."""
    exercise = Exercise("Twice", Twice, ("y",), difficulty=1, minutes=1, hints=("one",), solution=Twice)

    @exercise.aspect("known", points=1, explain=lambda got, expected: f"{got.sum():g} numbers")
    def known(answer, draw):
        """the module knows what it learns"""
        return torch.tensor([p.numel() for p in answer.build(draw, 3).parameters.values()]).sum()[None]

    @exercise.aspect("output", points=1)
    def output(answer, draw):
        """one after the other"""
        module, x = answer.build(draw, 3), draw.normal(2, 3)
        return module(x) - module.reference_with_same_weights(x)

    @exercise.aspect("start", points=1)
    def start(answer, draw):
        """numbers of its own to begin with"""
        return answer.build(draw, 3, fill=False).parameter("once.weight").abs().max() < 1

    once, large = "self.once = nn.Linear(d, d)", "nn.init.constant_(self.once.weight, 2.0)"
    in_a_list = {once: "self.parts = [nn.Linear(d, d)]", "self.once(x)": "self.parts[0](x)"}
    exercise.slip("a list", ("known", "output", "start"), in_a_list, words="A list is no container.")
    exercise.slip("once", ("output",), {"self.again(self.once(x))": "self.once(x).repeat(1, 2)"}, words="No again.")
    exercise.slip("large", ("start",), {once: f"{once}\n    {large}"}, words="Too large.")
    return exercise


def test_a_whole_module_is_judged_by_its_own_init(whole):
    assert one(whole, Twice).points == 3
    for mistake in whole.misconceptions:
        verdict = one(whole, mistake.answer)
        assert {line.name for line in verdict.aspects if not line.ok} == set(mistake.fails)
        assert [m.name for m in verdict.misconceptions] == [mistake.name]
    assert whole.as_answer(Twice) is Twice and len(whole.solution_bodies) == 2
    assert whole.solution_bodies[0].splitlines()[0] == "super().__init__()"


def test_of_a_whole_module_parameters_of_other_names_are_no_changed_init(whole):
    class Other(nn.Module):
        def __init__(self, d):
            super().__init__()
            self.first, self.again = nn.Linear(d, d), nn.Linear(d, 2 * d, bias=False)

        def forward(self, x):
            return self.again(self.first(x))

    verdict = one(whole, Other)
    assert [line.ok for line in verdict.aspects] == [True, False, False]
    assert "`__init__` was changed" not in str(verdict) and "there is no parameter once.weight" in text(verdict)


def test_of_a_whole_module_a_parameter_of_another_shape_and_a_wrong_output_are_told(whole):
    class Wide(Twice):
        def __init__(self, d):
            super().__init__(d)
            self.once = nn.Linear(d, d + 1)
            self.again = nn.Linear(d + 1, 2 * d, bias=False)

    class Narrow(nn.Module):
        def __init__(self, d):
            super().__init__()
            self.only = nn.Linear(d, d)

        def forward(self, x):
            return self.only(x)

    assert "the parameter again.weight has shape (6, 4), expected (6, 3)" in text(one(whole, Wide))
    assert "y has shape (2, 3), expected (2, 6)" in text(one(whole, Narrow))


def test_an_unwritten_init_is_not_written_yet(whole):
    class Twice(nn.Module):
        def __init__(self, d):
            raise NotImplementedError()

    verdict = one(whole, Twice)
    assert verdict.points == 0 and "Not written yet" in str(verdict)


def test_a_wrong_answer_that_nobody_foresaw_gets_a_message_and_no_name(softmax):
    verdict = one(softmax, lambda scores: by_hand(scores) + 0.25)
    assert verdict.misconceptions == ()
    assert "each number is 0.25 too large; at [" in verdict.aspects[0].message
    verdict = one(softmax, lambda scores: by_hand(scores) ** 2)
    assert verdict.misconceptions == () and "12 of 12 numbers differ" in verdict.aspects[0].message


def test_an_aspect_must_be_right_on_every_seed(softmax):
    def answer(scores):  # right for some inputs alone
        return by_hand(scores) if scores[0, 0] > 0 else by_hand(scores) * 2

    by_seed = verdicts(softmax, answer)
    assert max(v.points for v in by_seed) > 0 and Verdict.over(by_seed).points == 0


@pytest.fixture
def scaling():
    """Divide by √d, where d is drawn: what divides by a constant does on some seed as what divides by d."""

    def solution(x):
        return x / x.shape[-1] ** 0.5

    facts = {"returns": ("x",), "difficulty": 1, "minutes": 1, "hints": ()}
    exercise = Exercise("scaling", reference=solution, solution=solution, **facts)

    @exercise.aspect("scale", points=1)
    def scale(answer, draw):
        """divided by the root"""
        return answer(draw.normal(3, draw.sizes(1, 3, 6)[0]))

    exercise.slip("by d for √d", ("scale",), {" ** 0.5": ""}, words="It was divided by d.")
    return exercise


def test_a_name_is_given_only_if_every_seed_that_fails_gives_it(scaling):
    def width(seed):
        return observe(scaling, lambda x: x, seed)["scale"].value.shape[-1]

    four = next(seed for seed in range(50) if width(seed) == 4)
    other = next(seed for seed in range(50) if width(seed) not in (4, 16))

    def named(answer, *seeds):
        seen = [observe(scaling, answer, seed) for seed in seeds]
        return [m.name for m in judge_on_seeds(scaling, seen, seeds).misconceptions]

    by_four, by_d = (lambda x: x / 4), (lambda x: x / x.shape[-1])
    assert named(by_four, four) == ["by d for √d"]  # on this seed nobody could tell
    assert named(by_four, four, other) == named(by_four, other, four) == []
    assert named(by_d, four, other) == named(by_d, other, four) == ["by d for √d"]


def test_two_slips_are_named_together_on_every_seed_or_not_at_all(slips):
    def both(scores):
        exponentials = (-scores).exp()
        return exponentials / exponentials.sum(0)

    def judged(answer):
        return judge_on_seeds(slips, [observe(slips, answer, seed) for seed in range(3)], range(3))

    assert [m.name for m in judged(both).misconceptions] == ["over the queries", "the wrong sign"]


# ----------------------------------------------------------------------------------------------- what a learner meets


@pytest.fixture
def half_right():
    return check("attention_distribution", known("attention_distribution", "masks after the softmax"))


def test_the_card_shows_points_marks_the_mistake_and_the_way_to_a_hint(half_right):
    card = str(half_right)
    assert "attention_distribution" in card and "5 of 7 points" in card
    assert "✗ beside padding" in card and "✓ weights" in card
    assert "masks after the softmax" in card and 'hint("attention_distribution", 2)' in card
    assert 'check.case("attention_distribution")' in card
    assert max(len(line) for line in card.splitlines()) <= 92


def test_the_card_offers_the_hint_of_the_first_aspect_that_is_wrong():
    exercise = Exercise("pair", lambda x: x, ("y",), difficulty=1, minutes=1, hints=("one", "two", "three"))
    for name, factor, tier in (("small", 1, None), ("large", 100, 3), ("huge", 1e6, 2)):

        def of_this_size(answer, draw, factor=factor):
            """right"""
            return answer(factor * draw.normal(3))

        exercise.aspect(name, 1, hint=tier)(of_this_size)

    def offered(answer):
        return judge(exercise, observe(exercise, answer, 0), 0, name=False).footer()

    assert offered(lambda x: x.clamp(-1e3, 1e3)).startswith('Stuck? `hint("pair", 2)` is about “huge”')
    assert offered(lambda x: x.clamp(-10, 10)).startswith('Stuck? `hint("pair", 3)` is about “large”')
    assert offered(lambda x: x + 1).startswith('Stuck? `hint("pair", 3)` is about “large”')


def test_an_aspect_cannot_have_a_hint_that_there_is_not():
    exercise = Exercise("pair", lambda x: x, ("y",), difficulty=1, minutes=1, hints=("one", "two"))
    with pytest.raises(ValueError, match="pair, 'large': got hint 3, expected 1 to 2"):
        exercise.aspect("large", 1, hint=3)


def test_a_right_answer_is_not_offered_hints():
    verdict = check("attention_output", lessons.exercise("attention_output").alternatives[0].answer)
    assert verdict.points == verdict.out_of and "hint(" not in str(verdict)


def test_in_a_notebook_the_card_comes_as_html_text_and_data(half_right, monkeypatch):
    monkeypatch.delenv("NBGRADER_EXECUTION", raising=False)
    bundle = half_right._repr_mimebundle_()
    assert bundle["text/plain"] == str(half_right)
    assert "<table" in bundle["text/html"] and "masks after the softmax" in bundle["text/html"]
    assert json.loads(json.dumps(bundle[VERDICT]))["misconceptions"] == ["masks after the softmax"]


def test_for_nbgrader_the_text_is_the_number(half_right, monkeypatch):
    monkeypatch.setenv("NBGRADER_EXECUTION", "autograde")
    bundle = half_right._repr_mimebundle_()
    assert float(bundle["text/plain"]) == 5.0
    assert "masks after the softmax" in bundle["text/html"]


def test_extra_credit_never_prints_a_number_for_nbgrader(monkeypatch):
    monkeypatch.setenv("NBGRADER_EXECUTION", "autograde")
    verdict = check("local_attention", lessons.exercise("local_attention").alternatives[0].answer)
    assert verdict.points == 3
    with pytest.raises(ValueError, match="could not convert"):
        float(verdict._repr_mimebundle_()["text/plain"])


def test_a_warning_costs_nothing_and_is_not_shown(capsys):
    def answer(weights, encoder_states):
        warnings.warn("careful", stacklevel=1)
        return weights @ encoder_states

    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        verdict = check("attention_output", answer)
    assert verdict.points == verdict.out_of and seen == [] and capsys.readouterr().err == ""


def test_validate_is_told_what_is_wrong_on_stderr_and_nothing_else_is(capsys, monkeypatch):
    answers = lessons.exercise("local_attention"), lessons.exercise("attention_distribution")
    for execution, shown in (("validate", True), ("autograde", False)):
        monkeypatch.setenv("NBGRADER_EXECUTION", execution)
        check("attention_distribution", known("attention_distribution", "masks after the softmax"))
        told = capsys.readouterr().err
        assert ("masks after the softmax" in told) == shown and max(map(len, told.split("\n"))) <= 80
    monkeypatch.setenv("NBGRADER_EXECUTION", "validate")
    for exercise in answers:
        check(exercise.name, exercise.alternatives[0].answer)
    check("local_attention", known("local_attention", "no minus"))  # extra credit: nothing is lost
    assert capsys.readouterr().err == ""


def test_html_from_a_learners_error_is_escaped(softmax):
    def answer(scores):
        raise ValueError("<script>alert(1)</script>")

    assert "<script>" not in one(softmax, answer)._repr_mimebundle_()["text/html"]


def test_an_unknown_exercise_is_told_with_the_one_that_is_like_it():
    with pytest.raises(LookupError, match="Did you mean `attention_scores`") as error:
        check("atention_scores", None)
    assert "attention_distribution" not in str(error.value)  # seventy names help nobody


def test_an_unknown_assignment_lists_the_known_ones():
    with pytest.raises(LookupError, match="a03"):
        lessons.exercises_of("a99")


def test_hints_come_one_by_one_in_lines_that_a_notebook_need_not_break(capsys):
    hint("attention_scores")
    printed = capsys.readouterr().out
    assert printed.startswith("Hint 1 of 3.") and printed.endswith('\nOne more: hint("attention_scores", 2)\n')
    assert all(len(line) <= 92 for line in printed.splitlines())
    with pytest.raises(ValueError, match="hints 1 to 3, got 4"):
        hint("attention_scores", 4)


@pytest.fixture
def ranked():
    """A number to come close to: the closer, the higher in the leaderboard."""
    exercise = Exercise("close", lambda x: 2 * x, ("y",), 1, 1, ("Twice.",), numbers=True, metric="of 10", seeds=2)

    @exercise.aspect("number", points=1)
    def number(answer, draw):
        """twice as much"""
        x = draw.uniform(1)
        y = answer(x)
        answer.measure(10 - 10 * float(abs(y - 2 * x)) / float(x))
        return y

    return exercise


def test_a_metric_is_measured_on_each_seed_and_its_mean_is_told(ranked):
    right, near = (
        judge_on_seeds(ranked, [observe(ranked, f, s) for s in (0, 1)], (0, 1))
        for f in (lambda x: 2 * x, lambda x: 1.5 * x)
    )
    assert right.metric == ("of 10", 10.0) and right.points == 1
    assert near.metric == ("of 10", pytest.approx(5.0)) and near.points == 0
    assert "For the leaderboard: 5 of 10. Stuck?" in str(near) and str(right).endswith("For the leaderboard: 10 of 10.")
    assert near.as_dict()["metric"] == {"name": "of 10", "value": pytest.approx(5.0)}
    assert "metric" not in check("attention_scores", None).as_dict()


def test_an_answer_that_does_not_get_so_far_has_no_metric(ranked):
    verdict = one(ranked, lambda x: None)
    assert verdict.metric is None and "leaderboard" not in str(verdict)


def test_an_exercise_says_on_how_many_seeds_it_is_judged(ranked, monkeypatch):
    course, seen = Course("attncourse_lessons"), []
    monkeypatch.setattr(course, "exercise", lambda name, variation=None: ranked)
    assert course.check("close", lambda x: seen.append(float(x)) or 2 * x, seeds=(5, 6, 7)).points == 1
    assert len(seen) == 2


def test_what_uses_an_answer_waits_until_its_check_gives_all_points(capsys, monkeypatch):
    course = Course("attncourse_lessons")
    assert not course.solved("attention_distribution")
    assert "not run yet" in capsys.readouterr().out
    course.check("attention_distribution", known("attention_distribution", "masks after the softmax"))
    assert not course.solved("attention_distribution")
    assert 'It waits until check("attention_distribution", …) gives all points (now ' in capsys.readouterr().out
    right = course.exercise("attention_distribution").solution
    course.check("attention_distribution", right)
    assert course.solved("attention_distribution") and capsys.readouterr().out == ""
    with pytest.raises(LookupError, match="Did you mean"):
        course.solved("atention_distribution")


@pytest.mark.parametrize("execution", ["validate", "autograde"])
def test_where_nbgrader_works_nothing_that_uses_an_answer_runs_and_nothing_is_said(execution, capsys, monkeypatch):
    course = Course("attncourse_lessons")
    course.check("attention_distribution", course.exercise("attention_distribution").solution)
    monkeypatch.setenv("NBGRADER_EXECUTION", execution)
    assert not course.solved("attention_distribution") and capsys.readouterr().out == ""


def test_a_misconception_must_fail_a_known_aspect(softmax):
    with pytest.raises(ValueError, match="must fail known aspects"):
        softmax.misconception("nothing", fails=("nonsense",))(by_hand)


def test_a_variant_must_fail_a_known_aspect(softmax):
    softmax.misconception("adds a quarter", fails=("weights",))(by_hand_with_docstring)
    with pytest.raises(ValueError, match="must fail known aspects"):
        softmax.variant("adds a quarter", fails=("nonsense",))(by_hand_with_docstring)


def test_a_variant_must_belong_to_a_misconception(softmax):
    with pytest.raises(KeyError, match="nothing"):
        softmax.variant("nothing", fails=("weights",))(by_hand_with_docstring)


def by_hand_with_docstring(scores):
    """Another code."""
    return scores
