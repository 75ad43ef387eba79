"""The three sequence-to-sequence models read every source token, no padding, and answer the same in any batch."""

import pytest
import torch
from torch import nn

from attncourse.attention import AdditiveScore
from attncourse.data import BOS, EOS, PAD
from attncourse.decoding import greedy
from attncourse.recurrent import SUMMARIES, AttentionDecoderStep, Seq2Seq

WORDS = 11
SOURCE = torch.tensor([[4, 5, 6, 7, 8, 9], [5, 4, 7, PAD, PAD, PAD], [9, 8, 7, 6, PAD, PAD]])
LENGTHS = torch.tensor([6, 3, 4])
TARGET = torch.tensor([[BOS, 4, 5, 6], [BOS, 7, 8, 9], [BOS, 9, 4, 4]])


@pytest.fixture(params=SUMMARIES)
def model(request):
    torch.manual_seed(0)
    return Seq2Seq(WORDS, WORDS, d_embedding=6, d_hidden=8, summary=request.param).eval()


@pytest.fixture
def step():
    torch.manual_seed(0)
    return AttentionDecoderStep(WORDS, d_embedding=6, d_hidden=8)


@pytest.fixture
def inputs():
    torch.manual_seed(1)
    mask = torch.tensor([[True] * 5, [True, True, False, False, False]])
    return [torch.tensor([3, 4]), torch.randn(2, 8), torch.randn(2, 8), torch.randn(2, 5, 8), mask]


def test_a_step_is_its_six_equations(step, inputs):
    token, before, fed, states, mask = inputs
    logits, state, attentional, weights = step(*inputs)
    s = step.cell(torch.cat([step.embedding(token), fed], -1), before)
    for b in range(2):
        h = states[b][mask[b]]
        alpha = (h @ s[b]).softmax(0)
        a_tilde = torch.tanh(step.combine(torch.cat([alpha @ h, s[b]])))
        torch.testing.assert_close(weights[b][mask[b]], alpha)
        torch.testing.assert_close(attentional[b], a_tilde)
        torch.testing.assert_close(logits[b], step.output(a_tilde))
    torch.testing.assert_close(state, s)


def test_a_step_takes_any_score_function(inputs):
    step = AttentionDecoderStep(WORDS, 6, 8, score=AdditiveScore(8, 8, 5))
    assert step(*inputs)[3].shape == (2, 5)
    assert {name.split(".")[0] for name, _ in step.named_parameters()} >= {"score", "cell", "combine"}


def test_the_three_models_have_equally_many_parameters():
    sizes = {sum(p.numel() for p in Seq2Seq(WORDS, WORDS, 6, 8, summary).parameters()) for summary in SUMMARIES}
    assert len(sizes) == 1


def test_what_stands_in_the_padding_changes_nothing(model):
    other = SOURCE.masked_fill(SOURCE == PAD, 10)
    assert torch.equal(model(SOURCE, LENGTHS, TARGET), model(other, LENGTHS, TARGET))


def test_the_answer_does_not_depend_on_the_batch(model):
    together = model(SOURCE, LENGTHS, TARGET)
    for b, n in enumerate(LENGTHS):
        alone = model(SOURCE[b : b + 1, :n], LENGTHS[b : b + 1], TARGET[b : b + 1])
        torch.testing.assert_close(alone[0], together[b])


def test_every_source_token_can_change_the_answer(model):
    answer = model(SOURCE, LENGTHS, TARGET)[0, -1]
    for i in range(int(LENGTHS[0])):
        changed = SOURCE.clone()
        changed[0, i] = 10
        assert not torch.allclose(model(changed, LENGTHS, TARGET)[0, -1], answer)


def test_a_later_target_token_does_not_change_an_earlier_answer(model):
    changed = TARGET.clone()
    changed[:, 3] = 10
    assert torch.equal(model(SOURCE, LENGTHS, TARGET)[:, :3], model(SOURCE, LENGTHS, changed)[:, :3])


def test_the_last_state_is_that_of_the_last_token_and_not_of_the_padding():
    torch.manual_seed(0)
    model = Seq2Seq(WORDS, WORDS, 6, 8, "last state")
    memory = model.encode(SOURCE, LENGTHS)
    hidden = model.encoder(model.embedding(SOURCE[1:2, :3]))[1]
    torch.testing.assert_close(memory.start[1], torch.cat([hidden[0, 0], hidden[1, 0]]))


def test_the_mean_is_over_words_alone():
    torch.manual_seed(0)
    mean, attention = Seq2Seq(WORDS, WORDS, 6, 8, "mean pool"), Seq2Seq(WORDS, WORDS, 6, 8, "attention")
    attention.load_state_dict(mean.state_dict())
    states = attention.encode(SOURCE, LENGTHS).states
    torch.testing.assert_close(mean.encode(SOURCE, LENGTHS).states[1, 0], states[1, :3].mean(0))


def test_the_alignment_has_a_row_for_each_target_and_sums_to_one_over_the_source():
    model = Seq2Seq(WORDS, WORDS, 6, 8, "attention")
    _, weights = model(SOURCE, LENGTHS, TARGET, with_weights=True)
    assert weights.shape == (3, 4, 6)
    torch.testing.assert_close(weights.sum(-1), torch.ones(3, 4))
    assert (weights[1, :, 3:] == 0).all()


def test_greedy_decoding_follows_the_models_own_best_guess(model):
    decoded = greedy(model, SOURCE, LENGTHS, max_length=5).tokens
    fed = torch.cat([torch.full((3, 1), BOS), decoded[:, :-1]], dim=1)
    best = model(SOURCE, LENGTHS, fed).argmax(-1)
    after_eos = (decoded == EOS).cumsum(1) - (decoded == EOS).int() > 0
    assert torch.equal(decoded, best.masked_fill(after_eos, PAD))


def test_greedy_decoding_stops_when_every_sentence_has_ended(model):
    with torch.no_grad():
        model.decoder.output.weight.zero_()
        model.decoder.output.bias.zero_()[EOS] = 1.0
    assert greedy(model, SOURCE, LENGTHS, max_length=50).tokens.tolist() == [[EOS]] * 3


def test_greedy_decoding_leaves_the_mode_of_the_model_alone(model):
    model.train()
    greedy(model, SOURCE, LENGTHS, max_length=2)
    assert model.training


def test_a_state_dict_survives_a_round_trip(model):
    other = Seq2Seq(WORDS, WORDS, 6, 8, model.summary).eval()
    other.load_state_dict(model.state_dict())
    assert torch.equal(other(SOURCE, LENGTHS, TARGET), model(SOURCE, LENGTHS, TARGET))


def test_an_unknown_summary_an_odd_width_and_an_empty_source_are_refused():
    with pytest.raises(ValueError, match="'last state', 'mean pool', 'attention'"):
        Seq2Seq(WORDS, WORDS, 6, 8, "max pool")
    with pytest.raises(ValueError, match="d_hidden: got 7"):
        Seq2Seq(WORDS, WORDS, 6, 7)
    with pytest.raises(ValueError, match="at least one token"):
        Seq2Seq(WORDS, WORDS, 6, 8)(SOURCE, torch.tensor([6, 0, 4]), TARGET)


def test_gradients_reach_every_parameter(model):
    nn.functional.cross_entropy(model(SOURCE, LENGTHS, TARGET).flatten(0, 1), TARGET.flatten()).backward()
    assert all(p.grad is not None for p in model.parameters())
    assert model.embedding.weight.grad[PAD].abs().sum() == 0, "padding is never read"
