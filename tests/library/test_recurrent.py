"""Recurrent models read every source token, no padding, and answer the same in any batch, step by step or at once."""

import copy
import itertools

import pytest
import torch
from torch import nn

from attncourse.attention import AdditiveScore, BilinearScore, dot_score, scaled_dot_score
from attncourse.data import BOS, EOS, PAD
from attncourse.decoding import greedy
from attncourse.recurrent import (
    CELLS,
    SUMMARIES,
    AttentionDecoderStep,
    LinearRecurrence,
    Seq2Seq,
    linear_recurrence,
)

WORDS = 11
SOURCE = torch.tensor([[4, 5, 6, 7, 8, 9], [5, 4, 7, PAD, PAD, PAD], [9, 8, 7, 6, PAD, PAD]])
LENGTHS = torch.tensor([6, 3, 4])
TARGET = torch.tensor([[BOS, 4, 5, 6], [BOS, 7, 8, 9], [BOS, 9, 4, 4]])


@pytest.fixture(params=itertools.product(CELLS, SUMMARIES), ids=", ".join)
def model(request):
    cell, summary = request.param
    torch.manual_seed(0)
    return Seq2Seq(WORDS, WORDS, d_embedding=6, d_hidden=8, summary=summary, cell=cell).eval()


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


def test_the_same_seed_draws_the_same_step_as_its_parts_built_in_turn(step):
    torch.manual_seed(0)
    parts = {
        "embedding": nn.Embedding(WORDS, 6),
        "cell": nn.GRUCell(6 + 8, 8),
        "combine": nn.Linear(8 + 8, 8),
        "output": nn.Linear(8, WORDS),
    }
    expected = {f"{part}.{name}": p for part, module in parts.items() for name, p in module.named_parameters()}
    assert list(expected) == [name for name, _ in step.named_parameters()]
    assert all(torch.equal(p, expected[name]) for name, p in step.named_parameters())


def test_a_step_with_a_plain_rnn_moves_the_state_on_by_a_tanh(inputs):
    step = AttentionDecoderStep(WORDS, 6, 8, cell="rnn")
    token, before, fed, *_ = inputs
    read = torch.cat([step.embedding(token), fed], dim=-1)
    cell = step.cell
    expected = torch.tanh(read @ cell.weight_ih.mT + cell.bias_ih + before @ cell.weight_hh.mT + cell.bias_hh)
    torch.testing.assert_close(step(*inputs)[1], expected)


def test_a_step_with_an_lstm_carries_c_and_shows_s_alone(inputs):
    step = AttentionDecoderStep(WORDS, 6, 8, cell="lstm")
    token, s, fed, states, mask = inputs
    c = torch.randn(2, 8)
    logits, state, attentional, weights = step(token, torch.cat([s, c], dim=-1), fed, states, mask)
    cell = step.cell
    read = torch.cat([step.embedding(token), fed], dim=-1)
    gates = read @ cell.weight_ih.mT + cell.bias_ih + s @ cell.weight_hh.mT + cell.bias_hh
    write, forget, new, show = gates.chunk(4, dim=-1)
    c = forget.sigmoid() * c + write.sigmoid() * new.tanh()
    s = show.sigmoid() * c.tanh()
    torch.testing.assert_close(state, torch.cat([s, c], dim=-1))
    alpha = (states @ s[:, :, None]).squeeze(-1).masked_fill(~mask, -torch.inf).softmax(-1)
    torch.testing.assert_close(weights, alpha)
    a = (alpha[:, None] @ states).squeeze(1)
    torch.testing.assert_close(attentional, torch.tanh(step.combine(torch.cat([a, s], dim=-1))))
    torch.testing.assert_close(logits, step.output(attentional))


@pytest.mark.parametrize("cell", CELLS)
def test_without_input_feeding_the_vector_of_the_step_before_is_not_read(cell, inputs):
    token, _, fed, *rest = inputs
    for input_feeding in (True, False):
        step = AttentionDecoderStep(WORDS, 6, 8, cell=cell, input_feeding=input_feeding)
        state = torch.randn(2, step.d_state)
        one, other = step(token, state, fed, *rest), step(token, state, -fed, *rest)
        assert [torch.equal(a, b) for a, b in zip(one, other, strict=True)] == [not input_feeding] * 4
    assert step.cell.weight_ih.shape[1] == 6, "the cell reads the embedding alone"


@pytest.mark.parametrize("cell", CELLS)
def test_the_three_models_have_equally_many_parameters(cell):
    models = [Seq2Seq(WORDS, WORDS, 6, 8, summary, cell=cell) for summary in SUMMARIES]
    assert len({sum(p.numel() for p in model.parameters()) for model in models}) == 1


@pytest.mark.parametrize("cell", CELLS)
def test_both_networks_are_of_the_kind_asked_for(cell):
    model = Seq2Seq(WORDS, WORDS, 6, 8, cell=cell)
    kinds = {"rnn": (nn.RNN, nn.RNNCell), "lstm": (nn.LSTM, nn.LSTMCell), "gru": (nn.GRU, nn.GRUCell)}
    assert isinstance(model.encoder, kinds[cell][0]) and isinstance(model.decoder.cell, kinds[cell][1])


def test_a_model_without_input_feeding_does_not_read_the_vector_of_the_step_before():
    for input_feeding in (True, False):
        torch.manual_seed(0)
        model = Seq2Seq(WORDS, WORDS, 6, 8, input_feeding=input_feeding)
        state = model.start(SOURCE, LENGTHS)
        other = state._replace(attentional=torch.randn(3, 8))
        logits = [model.step(TARGET[:, 0], one)[0] for one in (state, other)]
        assert torch.equal(*logits) == (not input_feeding)


SCORES = {
    "dot": dot_score,
    "scaled dot": scaled_dot_score,
    "bilinear": BilinearScore(8, 8),
    "additive": AdditiveScore(8, 8, 5),
}


@pytest.mark.parametrize("score", SCORES.values(), ids=SCORES)
def test_a_model_weighs_the_source_by_the_score_it_was_given(score):
    torch.manual_seed(0)
    model = Seq2Seq(WORDS, WORDS, 6, 8, score=score)
    weights = model(SOURCE, LENGTHS, TARGET[:, :1], with_weights=True)[1]
    memory = model.encode(SOURCE, LENGTHS)
    s = model.step(TARGET[:, 0], model.start(SOURCE, LENGTHS))[1].state
    expected = score(s[:, None], memory.states)[:, 0].masked_fill(~memory.mask, -torch.inf).softmax(-1)
    torch.testing.assert_close(weights[:, 0], expected)


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


@pytest.mark.parametrize("summary", ["last state", "attention"])
@pytest.mark.parametrize("cell", CELLS)
def test_the_last_state_is_that_of_the_last_token_and_not_of_the_padding(cell, summary):
    torch.manual_seed(0)
    model = Seq2Seq(WORDS, WORDS, 6, 8, summary, cell=cell)
    last = model.encoder(model.embedding(SOURCE[1:2, :3]))[1]
    each = last if cell == "lstm" else (last,)                                     # h and c, or h
    expected = torch.cat([direction[0] for vector in each for direction in vector])
    torch.testing.assert_close(model.encode(SOURCE, LENGTHS).start[1], expected)


@pytest.mark.parametrize("cell", CELLS)
def test_the_mean_is_over_words_alone_and_all_that_is_handed_over(cell):
    torch.manual_seed(0)
    mean, attention = (Seq2Seq(WORDS, WORDS, 6, 8, summary, cell=cell) for summary in ("mean pool", "attention"))
    attention.load_state_dict(mean.state_dict())
    states, memory = attention.encode(SOURCE, LENGTHS).states, mean.encode(SOURCE, LENGTHS)
    torch.testing.assert_close(memory.states[1, 0], states[1, :3].mean(0))
    assert torch.equal(memory.start[:, :8], memory.states[:, 0]) and (memory.start[:, 8:] == 0).all()


def test_the_alignment_has_a_row_for_each_target_and_sums_to_one_over_the_source():
    model = Seq2Seq(WORDS, WORDS, 6, 8, "attention")
    _, weights = model(SOURCE, LENGTHS, TARGET, with_weights=True)
    assert weights.shape == (3, 4, 6)
    torch.testing.assert_close(weights.sum(-1), torch.ones(3, 4))
    assert (weights[1, :, 3:] == 0).all()


def test_going_step_by_step_gives_the_logits_and_weights_of_teacher_forcing(model):
    logits, weights = model(SOURCE, LENGTHS, TARGET, with_weights=True)
    state = model.start(SOURCE, LENGTHS)
    for t in range(TARGET.shape[1]):
        one, state, looked = model.step(TARGET[:, t], state, with_weights=True)
        torch.testing.assert_close(one, logits[:, t])
        torch.testing.assert_close(looked, weights[:, t])


def test_a_model_is_its_encoder_and_the_decoder_step_again_and_again(model):
    memory = model.encode(SOURCE, LENGTHS)
    state, attentional = memory.start, torch.zeros(3, 8)
    for t, expected in enumerate(model(SOURCE, LENGTHS, TARGET).unbind(1)):
        logits, state, attentional, _ = model.decoder(TARGET[:, t], state, attentional, memory.states, memory.mask)
        torch.testing.assert_close(logits, expected)


@pytest.mark.parametrize("rows", [[2, 0, 1], [1, 1, 0, 1, 2], [2]], ids=["reordered", "repeated", "dropped"])
def test_selected_rows_go_on_as_the_sentences_they_were(model, rows):
    rows = torch.tensor(rows)
    _, state, _ = model.step(TARGET[:, 0], model.start(SOURCE, LENGTHS))
    selected = state.select(rows)
    for t in (1, 2):
        logits, state, weights = model.step(TARGET[:, t], state, with_weights=True)
        some, selected, looked = model.step(TARGET[rows, t], selected, with_weights=True)
        torch.testing.assert_close(some, logits[rows])
        torch.testing.assert_close(looked, weights[rows])


def test_a_step_without_weights_is_the_same_step(model):
    state = model.start(SOURCE, LENGTHS)
    logits, _, weights = model.step(TARGET[:, 0], state)
    assert weights is None and torch.equal(logits, model.step(TARGET[:, 0], state, with_weights=True)[0])


def test_going_on_leaves_the_state_before_as_it_was(model):
    state = model.start(SOURCE, LENGTHS)
    first = model.step(TARGET[:, 0], state)[0]
    model.step(TARGET[:, 1], state)
    assert torch.equal(model.step(TARGET[:, 0], state)[0], first)


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
    other = copy.deepcopy(model)
    nn.init.normal_(other.decoder.output.weight)
    assert not torch.equal(other(SOURCE, LENGTHS, TARGET), model(SOURCE, LENGTHS, TARGET))
    other.load_state_dict(model.state_dict())
    assert torch.equal(other(SOURCE, LENGTHS, TARGET), model(SOURCE, LENGTHS, TARGET))


def test_an_unknown_summary_an_odd_width_and_an_empty_source_are_refused():
    with pytest.raises(ValueError, match="'last state', 'mean pool', 'attention'"):
        Seq2Seq(WORDS, WORDS, 6, 8, "max pool")
    with pytest.raises(ValueError, match="d_hidden: got 7"):
        Seq2Seq(WORDS, WORDS, 6, 7)
    with pytest.raises(ValueError, match=r"expected each within 1\.\.6"):
        Seq2Seq(WORDS, WORDS, 6, 8)(SOURCE, torch.tensor([6, 0, 4]), TARGET)


def test_gradients_reach_every_parameter(model):
    nn.functional.cross_entropy(model(SOURCE, LENGTHS, TARGET).flatten(0, 1), TARGET.flatten()).backward()
    assert all(p.grad is not None for p in model.parameters())
    assert model.embedding.weight.grad[PAD].abs().sum() == 0, "padding is never read"


@pytest.mark.parametrize("cell", CELLS)
def test_a_step_passes_gradcheck(cell):
    torch.manual_seed(0)
    step = AttentionDecoderStep(WORDS, 3, 4, cell=cell).double()
    mask = torch.tensor([[True, True, True], [True, False, False]])
    shapes = (2, step.d_state), (2, 4), (2, 3, 4)
    vectors = [torch.randn(shape, dtype=torch.float64, requires_grad=True) for shape in shapes]
    assert torch.autograd.gradcheck(lambda *vectors: step(torch.tensor([3, 4]), *vectors, mask), vectors)


BAD_STEP = {
    "tokens with a time axis": (0, torch.zeros(2, 1).long(), ValueError, r"token: got shape \(2, 1\)"),
    "tokens of floats": (0, torch.zeros(2), TypeError, "token: got torch.float32, expected whole numbers"),
    "a list of tokens": (0, [3, 4], TypeError, "token: got list"),
    "a state too wide": (1, torch.randn(2, 9), ValueError, r"\(2, 9\), expected \(batch = 2, d_state = 8\)"),
    "a fed vector of another batch": (2, torch.randn(3, 8), ValueError, r"attentional: .*batch = 2, d_hidden = 8"),
    "encoder states too narrow": (3, torch.randn(2, 5, 7), ValueError, "encoder_states: got shape"),
    "a mask with a query axis": (4, torch.ones(2, 1, 5).bool(), ValueError, "mask: got .* n_source = 5"),
    "a mask of floats": (4, torch.ones(2, 5), TypeError, "expected torch.bool"),
}


@pytest.mark.parametrize("case", BAD_STEP)
def test_a_step_refuses_bad_input_with_the_arguments_name(case, step, inputs):
    place, value, error, words = BAD_STEP[case]
    inputs[place] = value
    with pytest.raises(error, match=words):
        step(*inputs)


BAD_CALL = {
    "lengths of another batch": ((SOURCE, LENGTHS[:2], TARGET), ValueError, r"lengths: .* expected \(batch = 3\)"),
    "lengths of floats": ((SOURCE, LENGTHS.float(), TARGET), TypeError, "lengths: got torch.float32"),
    "a length past the end": ((SOURCE, LENGTHS + 1, TARGET), ValueError, r"expected each within 1\.\.6"),
    "one source sentence alone": ((SOURCE[0], LENGTHS, TARGET), ValueError, r"source: got shape \(6,\)"),
    "a source word unheard of": ((SOURCE + 2, LENGTHS, TARGET), ValueError, r"source: got tokens 2\.\.11, .* 0\.\.10"),
    "no source": ((SOURCE[:0], LENGTHS[:0], TARGET[:0]), ValueError, "at least one token"),
    "a target for another batch": ((SOURCE, LENGTHS, TARGET[:2]), ValueError, "target_in: got .*batch = 3"),
    "a negative target word": ((SOURCE, LENGTHS, TARGET - 100), ValueError, "target_in: got tokens -9"),
    "an empty target": ((SOURCE, LENGTHS, TARGET[:, :0]), ValueError, "target_in: .* at least one token"),
}


@pytest.mark.parametrize("case", BAD_CALL)
def test_a_model_refuses_bad_input_with_the_arguments_name(case):
    arguments, error, words = BAD_CALL[case]
    with pytest.raises(error, match=words):
        Seq2Seq(WORDS, WORDS, 6, 8)(*arguments)


def test_an_unknown_cell_and_rows_that_are_a_mask_are_refused():
    with pytest.raises(ValueError, match="cell: got 'GRU', expected one of 'rnn', 'lstm', 'gru'"):
        AttentionDecoderStep(WORDS, 6, 8, cell="GRU")
    with pytest.raises(ValueError, match="cell: got 'mamba'"):
        Seq2Seq(WORDS, WORDS, 6, 8, cell="mamba")
    with pytest.raises(TypeError, match=r"rows: got torch\.bool"):
        Seq2Seq(WORDS, WORDS, 6, 8).start(SOURCE, LENGTHS).select(torch.tensor([True, False, True]))


# ---------------------------------------------------------------------------------------------------- linear recurrence


def loop(decay, inputs, start):
    h, states = start, []
    for t in range(inputs.shape[-2]):
        h = decay[..., t, :] * h + inputs[..., t, :]
        states.append(h)
    return torch.stack(states, dim=-2)


def draw(*shape):
    torch.manual_seed(0)
    decay, inputs = torch.rand(shape, dtype=torch.float64), torch.randn(shape, dtype=torch.float64)
    return decay, inputs, torch.randn(*shape[:-2], shape[-1], dtype=torch.float64)


@pytest.mark.parametrize("n", [1, 2, 3, 7, 8, 9, 100])
@pytest.mark.parametrize("batch", [(), (2,), (2, 3)])
def test_the_parallel_recurrence_equals_the_loop(batch, n):
    decay, inputs, start = draw(*batch, n, 4)
    torch.testing.assert_close(linear_recurrence(decay, inputs, start), loop(decay, inputs, start), rtol=0, atol=1e-10)
    from_zero = loop(decay, inputs, torch.zeros_like(start))
    torch.testing.assert_close(linear_recurrence(decay, inputs), from_zero, rtol=0, atol=1e-10)


def test_a_recurrence_over_nothing_is_nothing():
    assert linear_recurrence(torch.ones(2, 0, 3), torch.ones(2, 0, 3), torch.ones(2, 3)).shape == (2, 0, 3)


def test_a_constant_decay_is_an_exponential_average_and_no_decay_a_running_sum():
    _, inputs, _ = draw(9, 4)
    torch.testing.assert_close(linear_recurrence(torch.tensor(1.0), inputs), inputs.cumsum(0))
    powers = 0.5 ** torch.arange(9.0, dtype=torch.float64)
    torch.testing.assert_close(linear_recurrence(torch.tensor(0.5), inputs)[-1], powers.flip(0) @ inputs)


def test_the_parallel_recurrence_passes_gradcheck_twice():
    vectors = [x.requires_grad_() for x in draw(2, 5, 3)]
    assert torch.autograd.gradcheck(linear_recurrence, vectors)
    assert torch.autograd.gradgradcheck(linear_recurrence, vectors)


def test_twice_the_length_costs_one_round_more():
    def operations(n):
        decay = torch.rand(n, 1, requires_grad=True)
        todo, seen = [linear_recurrence(decay, torch.randn(n, 1)).grad_fn], set()
        while todo:
            node = todo.pop()
            if node is not None and node not in seen:
                seen.add(node)
                todo += [before for before, _ in node.next_functions]
        return len(seen)

    rounds = [operations(2**k) - operations(2 ** (k - 1)) for k in range(5, 12)]
    assert len(set(rounds)) == 1
    assert operations(1024) == operations(1000) == operations(513) < operations(1025)


@pytest.fixture
def layer():
    torch.manual_seed(0)
    return LinearRecurrence(5, 4).double()


@pytest.fixture
def x():
    torch.manual_seed(1)
    return torch.randn(2, 11, 5, dtype=torch.float64)


def test_a_linear_recurrence_step_by_step_equals_it_in_parallel(layer, x):
    states, h = layer(x), torch.zeros(2, 4, dtype=torch.float64)
    for t in range(11):
        h = layer.step(x[:, t], h)
        torch.testing.assert_close(h, states[:, t], rtol=0, atol=1e-10)


def test_a_linear_recurrence_goes_on_from_where_it_stopped(layer, x):
    before = layer(x[:, :6])
    torch.testing.assert_close(layer(x[:, 6:], before[:, -1]), layer(x)[:, 6:], rtol=0, atol=1e-10)


def test_changing_the_future_leaves_a_linear_recurrences_past_alone(layer, x):
    for t in range(11):
        changed = x.clone()
        changed[:, t:] += 1
        assert torch.equal(layer(changed)[:, :t], layer(x)[:, :t])
        assert not torch.isclose(layer(changed)[:, t], layer(x)[:, t]).any()


def test_a_closed_gate_keeps_the_state_and_an_open_one_replaces_it(layer, x):
    start = torch.randn(2, 4, dtype=torch.float64)
    with torch.no_grad():
        layer.gate.bias.fill_(-1e3)
    torch.testing.assert_close(layer(x, start), start[:, None].expand(2, 11, 4))
    with torch.no_grad():
        layer.gate.bias.fill_(1e3)
    torch.testing.assert_close(layer(x, start), layer.candidate(x))


def test_a_state_stays_within_the_range_of_its_candidates_over_4096_positions():
    torch.manual_seed(0)
    layer = LinearRecurrence(8)
    x = (100 * torch.randn(2, 4096, 8)).requires_grad_()
    states = layer(x)
    states.sum().backward()
    assert states.shape == (2, 4096, 8) and (states.abs() <= layer.candidate(x).abs().max() * 1.001).all()
    assert x.grad.isfinite().all()


def test_a_linear_recurrence_passes_gradcheck(layer, x):
    assert torch.autograd.gradcheck(layer, x[:, :4].clone().requires_grad_())


BAD_RECURRENCE = {
    "a decay too short": (lambda d, b, h: linear_recurrence(d[:, 1:], b), ValueError, r"decay: got shape \(2, 4, 3\)"),
    "a start with a time axis": (lambda d, b, h: linear_recurrence(d, b, b), ValueError, r"broadcasts to \(2, 3\)"),
    "a decay that is a number": (lambda d, b, h: linear_recurrence(0.5, b), TypeError, "decay: got float"),
    "inputs that are a vector": (lambda d, b, h: linear_recurrence(d, b[0, 0]), ValueError, "inputs: got shape"),
    "an input of another width": (lambda d, b, h: LinearRecurrence(4)(b.float()), ValueError, "x: .*d_model = 4"),
    "a step with a time axis": (lambda d, b, h: LinearRecurrence(3).step(b.float(), h), ValueError, "x: got shape"),
    "a state of another batch": (
        lambda d, b, h: LinearRecurrence(3).step(b[:, 0].float(), h[:1].float()),
        ValueError,
        "state: got .*batch = 2, d_hidden = 3",
    ),
}


@pytest.mark.parametrize("case", BAD_RECURRENCE)
def test_a_recurrence_refuses_bad_input_with_the_arguments_name(case):
    call, error, words = BAD_RECURRENCE[case]
    with pytest.raises(error, match=words):
        call(*draw(2, 5, 3))
