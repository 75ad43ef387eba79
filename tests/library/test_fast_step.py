"""The fast step is the model's own step, whatever the config, the rows, the window; what it does not know it leaves."""

import pytest
import torch
from copying import randomise
from hypothesis import given
from hypothesis import strategies as st
from test_transformer import MAX_LENGTH, WORDS, Batch, built, configs, some
from torch import nn

from attncourse.attention import KeyValueCache
from attncourse.decoding import beam_search, greedy, sample
from attncourse.fast_step import COPY_FROM_STEPS, fast_step
from attncourse.transformer import EncoderDecoder, LanguageModel

KINDS = [EncoderDecoder, LanguageModel]
both_kinds = pytest.mark.parametrize("kind", KINDS, ids=["encoder–decoder", "language model"])
sizes = st.tuples(st.sampled_from([1, 5]), st.integers(1, 6), st.just(3), st.integers(0, 99))
TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-10}


def started(model, batch):
    """Two states that nothing is shared between, with three tokens read by a language model."""
    if isinstance(model, EncoderDecoder):
        return [model.start(batch.source, batch.lengths) for _ in range(2)]
    states = [model.start() for _ in range(2)]
    for state in states:
        model.read(batch.target_in, state)
    return states


@some
@given(configs(), sizes, st.sampled_from(KINDS), st.sampled_from([*TOLERANCE]), st.data())
@torch.no_grad()
def test_step_by_step_it_says_what_the_models_own_step_says(choices, size, kind, dtype, data):
    model, batch = built(kind, dtype, **choices), Batch(size, choices)
    n_steps = data.draw(st.sampled_from([1, COPY_FROM_STEPS]))    # with the matrices as they are, and copied
    step, (state, expected_state), n = fast_step(model, n_steps), started(model, batch), len(batch)
    for _ in range(4):
        token = torch.randint(1, batch.words, (n,))
        logits, state, weights = step(token, state)
        expected, expected_state, _ = model.step(token, expected_state)
        assert weights is None and logits.dtype == dtype
        torch.testing.assert_close(logits, expected, rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype])
        rows = torch.tensor(data.draw(st.lists(st.integers(0, n - 1), min_size=1, max_size=5)))
        state, expected_state, n = state.select(rows), expected_state.select(rows), len(rows)


KNOWN = {
    "post-norm": dict(norm_place="post"),
    "rms and a gate": dict(norm="rms", activation="swiglu", bias=False),
    "grouped heads, rope": dict(positions="rope", n_kv_heads=1),
    "interleaved rope, a window": dict(positions="rope", rope_style="interleaved", window=3),
    "learned": dict(positions="learned", embedding_norm=True, n_segments=2, output_bias=True, tie_output=False),
}
known = pytest.mark.parametrize("choices", KNOWN.values(), ids=KNOWN)


@known
@both_kinds
@torch.no_grad()
def test_what_it_knows_never_enters_a_block_of_the_model(kind, choices, monkeypatch):
    """Else the test above would compare a thing with itself."""
    model, batch = built(kind, **choices), Batch((5, 4, 3, 0), {})
    step, (state, other) = fast_step(model, 9), started(model, batch)
    expected = model.step(batch.target_in[:, 0], other)[0]
    monkeypatch.setattr("attncourse.transformer.Block.forward", None)
    torch.testing.assert_close(step(batch.target_in[:, 0], state)[0], expected, rtol=0, atol=1e-10)


@known
@both_kinds
def test_the_searches_write_the_same_with_it_and_without_it(kind, choices, monkeypatch):
    model, batch = built(kind, **choices), Batch((5, 3, 3, 0), {})
    prompts = (batch.source, torch.full((5,), 3)) if kind is LanguageModel else (batch.source, batch.lengths)

    def written():
        generator = torch.Generator().manual_seed(0)
        return (
            greedy(model, *prompts, max_length=9).tokens,
            sample(model, *prompts, max_length=9, generator=generator).tokens,
            *beam_search(model, *prompts, n_beams=3, max_length=9),
        )

    sooner = written()
    monkeypatch.setattr("attncourse.decoding.fast_step", lambda model, n_steps: model.step)
    for got, expected in zip(sooner, written(), strict=True):
        torch.testing.assert_close(got, expected, rtol=0, atol=1e-10)


@both_kinds
def test_weights_that_change_between_two_decodings_are_seen(kind):
    model, other, batch = built(kind), built(kind), Batch((5, 3, 3, 0), {})
    prompts = (batch.source, torch.full((5,), 3))
    before = greedy(model, *prompts, max_length=8).tokens
    torch.manual_seed(1)
    randomise(other)
    expected = greedy(other, *prompts, max_length=8).tokens
    assert before.shape != expected.shape or not torch.equal(before, expected)
    model.load_state_dict(other.state_dict())
    assert torch.equal(greedy(model, *prompts, max_length=8).tokens, expected)
    for part in model.modules():                                  # and where the parameters are other ones
        for name, parameter in list(part.named_parameters(recurse=False)):
            setattr(part, name, nn.Parameter(torch.zeros_like(parameter)))
    assert not torch.equal(greedy(model, *prompts, max_length=8).tokens, expected)


@both_kinds
def test_training_and_gradients_go_through_the_models_own_step(kind):
    model, batch = built(kind, dropout=0.5), Batch((5, 3, 3, 0), {})
    with torch.no_grad():
        state, _ = started(model, batch)
    model.decoder.stack.blocks[0].dropout.train()                 # the rest is frozen
    assert fast_step(model, 9) == model.step
    model.eval()
    with pytest.raises(ValueError, match=r"^cache: got keys that ask for gradients"):
        fast_step(model, 9)(batch.target_in[:, 0], state)


@both_kinds
@torch.no_grad()
def test_asked_for_weights_it_gives_the_models(kind):
    model, batch = built(kind), Batch((5, 3, 3, 0), {})
    state, other = started(model, batch)
    got = fast_step(model, 9)(batch.target_in[:, 0], state, True)
    expected = model.step(batch.target_in[:, 0], other, True)
    assert torch.equal(got[0], expected[0]) and torch.equal(got[2], expected[2])


class Twice(nn.Linear):
    def forward(self, x):
        return 2 * super().forward(x)


def replaced(model):
    model.decoder.stack.blocks[0].ff.sublayer.up = Twice(8, 32).double()


def hooked(model):
    model.decoder.stack.blocks[0].register_forward_hook(lambda *_: 0 * _[2])


def stepped(model):
    model.step = lambda token, state, with_weights=False: (0, state, None)


@pytest.mark.parametrize("change", [replaced, hooked, stepped])
@both_kinds
@torch.no_grad()
def test_a_model_that_somebody_changed_steps_as_they_want(kind, change):
    model = built(kind)
    change(model)
    assert fast_step(model, 9) == model.step


@pytest.mark.parametrize("positions", ["shaw", "bucketed"])
@both_kinds
def test_terms_that_it_does_not_know_are_left_to_the_model(kind, positions):
    model = built(kind, positions=positions)
    assert fast_step(model, 9) == model.step


def test_a_cache_that_keeps_more_than_the_window_shows_no_more():
    model = built(LanguageModel, window=2)
    text = torch.randint(1, WORDS, (2, 6))
    with torch.no_grad():
        step, state = fast_step(model, 9), model.start()
        state.caches = [KeyValueCache() for _ in state.caches]
        logits = [step(token, state)[0] for token in text.unbind(1)]
        torch.testing.assert_close(torch.stack(logits, dim=1), model(text), rtol=0, atol=1e-10)


@torch.no_grad()
def test_positions_past_the_maximum_are_refused():
    for positions in ("sinusoidal", "rope"):
        model = built(LanguageModel, positions=positions)
        step, state = fast_step(model, 9), model.start()
        model.read(torch.ones(1, MAX_LENGTH, dtype=torch.long), state)
        with pytest.raises(ValueError, match=rf"^n: got 1 positions from {MAX_LENGTH} on"):
            step(torch.ones(1, dtype=torch.long), state)
