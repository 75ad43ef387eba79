"""`check.case`: a call that went wrong, in the learner's hands."""

import pytest
import torch
from torch import nn

from attncourse import check
from lessonkit.course import Check


def overflowing(scores):
    return scores.exp() / scores.exp().sum(dim=-1, keepdim=True)


def stable(scores):
    return overflowing(scores - scores.amax(dim=-1, keepdim=True))


def constant(scores):
    return torch.zeros_like(scores) + 0 * scores


def test_a_case_holds_the_inputs_what_came_out_and_what_should_have():
    check("softmax", overflowing)
    case = check.case("softmax")
    (scores,) = case.arguments.values()
    assert list(case.arguments) == ["scores"] and case.aspect == "large scores" and scores.abs().max() > 100
    assert case.got.isnan().any() and torch.allclose(case.expected, scores.softmax(-1), atol=1e-6)
    assert torch.equal(case.answer(*case.arguments.values()).isnan(), case.got.isnan())
    assert "large scores" in repr(case) and "scores = a tensor" in repr(case) and "expected" in repr(case)


def test_an_aspect_can_be_asked_for_by_name():
    check("softmax", constant)
    assert check.case("softmax").aspect == "weights"
    assert check.case("softmax", "any number of axes").aspect == "any number of axes"
    with pytest.raises(LookupError, match="no aspect 'speed'; its aspects are: weights, any number of axes"):
        check.case("softmax", "speed")


def test_where_the_outputs_agree_it_says_that_the_fault_is_elsewhere():
    check("softmax", lambda scores: stable(scores).detach())
    case = check.case("softmax", "gradient")
    assert torch.allclose(case.got, case.expected, atol=1e-6) and "The two agree here" in repr(case)


def test_of_a_module_it_hands_over_the_one_that_was_built_with_its_weights():
    class TrainStep(nn.Module):
        def __init__(self, d, n_classes, dropout):
            super().__init__()
            self.model = nn.Sequential(nn.Linear(d, 8), nn.Tanh(), nn.Dropout(dropout), nn.Linear(8, n_classes),
                                       nn.LogSoftmax(dim=-1))  # fmt: skip

        def forward(self, micro_batches, held_out, lr, clip):
            x, target = held_out
            loss = nn.functional.nll_loss(self.model(x), target)
            return loss, loss, loss

    check("TrainStep", TrainStep)
    case = check.case("TrainStep")
    assert list(case.arguments) == ["micro_batches", "held_out", "lr", "clip"]
    assert isinstance(case.answer, TrainStep) and len(case.got) == len(case.expected) == 3
    again = case.answer(*case.arguments.values())
    assert [round(n.item(), 4) for n in again] == [round(n.item(), 4) for n in case.got]


def test_a_right_answer_has_no_case_and_is_told_so(capsys):
    check("softmax", stable)
    assert check.case("softmax") is None
    assert "nothing to show" in capsys.readouterr().out


def test_what_has_not_been_checked_is_told():
    fresh = Check(check._course)
    with pytest.raises(LookupError, match=r'run check\("softmax", softmax\) first'):
        fresh.case("softmax")


def test_a_case_is_not_changed_by_what_the_answer_writes():
    def shifts_in_place(scores):
        scores -= 1
        return stable(scores)

    check("softmax", shifts_in_place)
    case = check.case("softmax")
    assert (case.got - case.expected).abs().max() < 1e-6 and "or of the arguments" in repr(case)
    assert (case.arguments["scores"].softmax(-1) - case.expected).abs().max() < 1e-6
