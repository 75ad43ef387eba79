"""Without padding a model computes the same loss and the same gradients, and afterwards knows nothing of it."""

import copy
import math
import pickle
from typing import get_args

import pytest
import torch
from copying import assert_close, randomise
from hypothesis import given, settings
from hypothesis import strategies as st

from attncourse.attention import lengths_to_mask
from attncourse.layers import FeedForward
from attncourse.transformer import Encoder, EncoderDecoder, LanguageModel, Positions, TransformerConfig
from attncourse.unpadding import Padding, unpadded, unpadded_loss, unpadded_start

WORDS, D_MODEL = 11, 8
SMALL = dict(vocab_size=WORDS, d_model=D_MODEL, n_layers=2, n_heads=2, max_length=12, max_distance=5, n_buckets=8)
SOURCE = torch.tensor([[1, 2, 3, 4, 5], [6, 7, 0, 0, 0], [8, 9, 1, 0, 0]])
LENGTHS = torch.tensor([5, 2, 3])
TARGET = torch.tensor([[1, 2, 3, 4], [5, 0, 0, 0], [7, 8, 9, 0]])
OUT = torch.tensor([[2, 3, 4, 10], [6, 0, 0, 0], [8, 0, 10, 0]])                   # one is left out in the middle
some = settings(deadline=None, max_examples=20, derandomize=True)
both_kinds = pytest.mark.parametrize("kind", [EncoderDecoder, LanguageModel])
each_scheme = pytest.mark.parametrize("positions", get_args(Positions))


@pytest.fixture(autouse=True)
def fresh_compiler():
    torch.compiler.reset()
    yield
    torch.compiler.reset()


def built(kind, **choices):
    """No bias is zero and no norm's weight is one, so none can be forgotten unseen."""
    model = kind(TransformerConfig(**SMALL | dict(dropout=0.0) | choices)).double().eval()
    randomise(model)
    return model


def batch(kind, out=OUT):
    return (SOURCE, LENGTHS, TARGET, out) if kind is EncoderDecoder else (TARGET, out)


def with_gradients(model, loss, *given):
    value = loss(*given)
    return [value, *torch.autograd.grad(value, [*model.parameters()])]


# Padding, out and in again

masks = st.tuples(st.integers(1, 5), st.integers(1, 6)).flatmap(
    lambda shape: st.lists(
        st.lists(st.booleans(), min_size=shape[1], max_size=shape[1]), min_size=shape[0], max_size=shape[0]
    )
).map(torch.tensor)


@some
@given(masks, st.sampled_from([(), (2,), (2, 3)]))
def test_unpadded_and_padded_is_what_it_was_where_tokens_are_and_zero_elsewhere(mask, rest):
    torch.manual_seed(0)
    x, padding = torch.randn(*mask.shape, *rest), Padding(mask)
    assert torch.equal(padding.unpad(x), x[mask])
    expected = x.clone()
    expected[~mask] = 0
    assert torch.equal(padding.pad(padding.unpad(x)), expected)
    assert torch.equal(padding.unpad(padding.pad(padding.unpad(x))), padding.unpad(x))


@some
@given(masks)
def test_what_works_token_by_token_gives_the_same_with_and_without_padding(mask):
    torch.manual_seed(0)
    module = FeedForward(D_MODEL, 10, "swiglu").double()
    x, padding = torch.randn(*mask.shape, D_MODEL, dtype=torch.float64), Padding(mask)
    torch.testing.assert_close(module(padding.unpad(x)), padding.unpad(module(x)), rtol=0, atol=1e-10)


@pytest.mark.parametrize("dtype", [torch.int64, torch.bool, torch.bfloat16])
def test_unpadding_keeps_the_type(dtype):
    padding, x = Padding(torch.tensor([[True, False], [True, True]])), torch.ones(2, 2, 3).to(dtype)
    assert padding.unpad(x).dtype == padding.pad(padding.unpad(x)).dtype == dtype


def test_gradients_pass_to_the_real_tokens_alone():
    mask, x = torch.tensor([[True] * 4, [True] + [False] * 3, [False] * 4]), torch.randn(3, 4, 2).requires_grad_()
    padding = Padding(mask)
    padding.pad(3 * padding.unpad(x)).sum().backward()
    assert torch.equal(x.grad, 3.0 * mask.unsqueeze(-1).expand_as(x))


def test_what_the_padding_holds_not_even_nan_comes_along():
    mask, x = torch.tensor([[True, True, False, False]] * 3), torch.randn(3, 4, 2)
    x[~mask] = math.nan
    padding = Padding(mask)
    assert padding.pad(padding.unpad(x)).isfinite().all()


def test_a_batch_without_padding_is_unpadded_and_padded_without_a_copy():
    x, padding = torch.randn(2, 3, 4), Padding(torch.ones(2, 3, dtype=torch.bool))
    assert padding.unpad(x).data_ptr() == x.data_ptr() == padding.pad(padding.unpad(x)).data_ptr()
    assert torch.equal(padding.unpad(x), x.view(6, 4)) and torch.equal(padding.pad(padding.unpad(x)), x)


# A stack without padding


@each_scheme
@pytest.mark.parametrize("place", ["pre", "post"])
def test_an_unpadded_stack_finds_what_the_padded_one_finds(place, positions):
    model = built(Encoder, positions=positions, norm_place=place, n_kv_heads=1)
    there, x = lengths_to_mask(LENGTHS, 5), torch.randn(3, 5, D_MODEL, dtype=torch.float64)
    padding, mask = Padding(there), there[:, None]
    with unpadded(model.stack, padding):
        got = model.stack(padding.unpad(x), mask)
    assert_close(got, padding.unpad(model.stack(x, mask)))


@each_scheme
def test_the_stack_sees_padding_again_afterwards_even_if_something_failed(positions):
    model = built(Encoder, positions=positions)
    expected = model(SOURCE, LENGTHS)
    with pytest.raises(ValueError, match=r"^x: got 1 tokens, expected 10, as the mask has"), unpadded(
        model.stack, Padding(lengths_to_mask(LENGTHS, 5))
    ):
        model.stack(torch.ones(1, D_MODEL, dtype=torch.float64))
    assert torch.equal(model(SOURCE, LENGTHS), expected)


@both_kinds
def test_a_model_that_was_trained_without_padding_can_be_copied_and_pickled(kind):
    model = built(kind)
    loss = unpadded_loss(model)(*batch(kind))
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert torch.equal(unpadded_loss(other)(*batch(kind)), loss)


@each_scheme
def test_an_unpadded_start_goes_on_as_the_start_does(positions):
    model = built(EncoderDecoder, positions=positions, n_kv_heads=1)
    with torch.no_grad():
        states = [model.start(SOURCE, LENGTHS), unpadded_start(model, SOURCE, LENGTHS)]
        for token in TARGET.unbind(1):
            expected, got = (model.step(token, state)[0] for state in states)
            assert_close(got, expected)


# The loss


@both_kinds
@each_scheme
def test_the_unpadded_loss_and_its_gradients_are_the_losss(positions, kind):
    model = built(kind, positions=positions, n_kv_heads=1)
    got, expected = (with_gradients(model, loss, *batch(kind)) for loss in (unpadded_loss(model), model.loss))
    for ours, theirs in zip(got, expected, strict=True):
        assert_close(ours, theirs)


@both_kinds
def test_smoothing_and_another_token_for_padding_are_as_in_the_loss(kind):
    model, out = built(kind), torch.where(OUT == 0, 5, OUT)
    expected = model.loss(*batch(kind, out), label_smoothing=0.1, pad=5)
    assert_close(unpadded_loss(model)(*batch(kind, out), label_smoothing=0.1, pad=5), expected)


def test_a_mask_of_the_texts_own_is_as_in_the_loss():
    model, window = built(LanguageModel), torch.eye(4, dtype=torch.bool)
    expected = model.loss(TARGET, OUT, mask=window)
    assert_close(unpadded_loss(model)(TARGET, OUT, mask=window), expected)
    assert not torch.allclose(model.loss(TARGET, OUT), expected)


@both_kinds
def test_the_networks_see_real_tokens_alone(kind):
    model, seen = built(kind), []
    for module in model.modules():
        if isinstance(module, FeedForward):
            module.register_forward_pre_hook(lambda _, args: seen.append(args[0].shape[:-1]))
    unpadded_loss(model)(*batch(kind))
    assert set(seen) == ({(10,), (8,)} if kind is EncoderDecoder else {(8,)})


@pytest.mark.slow
@both_kinds
def test_the_compiled_loss_is_the_loss_whatever_is_padding(kind):
    model = built(kind, positions="rope", n_layers=1)
    compiled = unpadded_loss(model, compiled=True, backend="aot_eager", fullgraph=True)
    for lengths in ([4, 2, 4], [1, 1, 3], [4, 4, 4]):
        out = torch.randint(1, WORDS, OUT.shape) * lengths_to_mask(lengths, 4)
        for ours, theirs in zip(
            with_gradients(model, compiled, *batch(kind, out)), with_gradients(model, model.loss, *batch(kind, out)),
            strict=True,
        ):
            assert_close(ours, theirs)


@both_kinds
def test_the_compiled_loss_is_one_graph_for_batches_of_any_shape(kind):
    model, graphs = built(kind, n_layers=1), []

    def backend(graph, _):
        graphs.append(graph)
        return graph

    compiled = unpadded_loss(model, compiled=True, backend=backend, fullgraph=True, dynamic=True)
    for rows, n in ((3, 5), (4, 6), (5, 3)):
        lengths = torch.arange(rows) % n + 1
        source, target = torch.randint(1, WORDS, (2, rows, n)) * lengths_to_mask(lengths, n)
        given = (source, lengths, target, target) if kind is EncoderDecoder else (target, target)
        assert_close(compiled(*given), model.loss(*given))
    assert len(graphs) == 1


@both_kinds
def test_the_loss_itself_can_be_compiled_too(kind):
    model = built(kind)
    compiled = torch.compile(model.loss, backend="eager", fullgraph=True)
    assert_close(compiled(*batch(kind)), model.loss(*batch(kind)))


# Bad input

PADDING = Padding(torch.ones(2, 3, dtype=torch.bool))
BAD = {
    "another batch, as many positions": lambda: PADDING.unpad(torch.ones(3, 2, 4)),
    "a longer batch": lambda: Padding(torch.tensor([[True, False]])).unpad(torch.ones(4, 2, 4)),
    "a shorter batch": lambda: PADDING.unpad(torch.ones(1, 3, 4)),
    "too few tokens": lambda: PADDING.pad(torch.ones(4, 4)),
    "tokens that are padded": lambda: PADDING.pad(torch.ones(2, 3, 4)),
    "padding from numbers": lambda: Padding(torch.tensor([[1.0, 0.5]])),
    "padding from one row": lambda: Padding(torch.ones(3).bool()),
}
TRANSLATOR, WRITER = EncoderDecoder(TransformerConfig(**SMALL)), LanguageModel(TransformerConfig(**SMALL))
REFUSED = {
    "an empty source": (TRANSLATOR, (SOURCE, LENGTHS * 0, TARGET, OUT)),
    "one length for all": (TRANSLATOR, (SOURCE, LENGTHS[:1], TARGET, OUT)),
    "too many lengths": (TRANSLATOR, (SOURCE, LENGTHS.repeat(2), TARGET, OUT)),
    "a shorter target_out": (TRANSLATOR, (SOURCE, LENGTHS, TARGET, OUT[:, :3])),
    "a longer target_out": (TRANSLATOR, (SOURCE, LENGTHS, TARGET[:, :3], OUT)),
    "a target_out for fewer": (TRANSLATOR, (SOURCE, LENGTHS, TARGET, OUT[:2])),
    "a target_out for more": (TRANSLATOR, (SOURCE, LENGTHS, TARGET[:2], OUT)),
    "one source for three targets": (TRANSLATOR, (SOURCE[:1], LENGTHS[:1], TARGET, OUT)),
    "a target_in past the vocabulary": (TRANSLATOR, (SOURCE, LENGTHS, TARGET + WORDS, OUT)),
    "a target_out past the vocabulary": (TRANSLATOR, (SOURCE, LENGTHS, TARGET, OUT + WORDS)),
    "a target_out of padding alone": (TRANSLATOR, (SOURCE, LENGTHS, TARGET, 0 * OUT)),
    "a shorter tokens_out": (WRITER, (TARGET, OUT[:, :3])),
    "a longer tokens_out": (WRITER, (TARGET[:, :3], OUT)),
    "a tokens_out for fewer": (WRITER, (TARGET, OUT[:2])),
    "a tokens_out on its side": (WRITER, (TARGET, OUT.T)),
    "a tokens_in past the vocabulary": (WRITER, (TARGET + WORDS, OUT)),
    "a tokens_out of padding alone": (WRITER, (TARGET, 0 * OUT)),
}


@pytest.mark.parametrize("case", BAD)
def test_what_does_not_fit_is_neither_padded_nor_unpadded(case):
    with pytest.raises((ValueError, TypeError), match=r"^\w+: got .*, expected "):
        BAD[case]()


def test_an_unpadded_start_refuses_an_empty_source():
    with pytest.raises(ValueError, match=r"^lengths: got \[0, 0, 0\], expected"):
        unpadded_start(TRANSLATOR, SOURCE, 0 * LENGTHS)


@pytest.mark.parametrize("case", REFUSED)
def test_the_unpadded_loss_refuses_what_the_loss_refuses_in_the_same_words(case):
    model, given = REFUSED[case]
    said = []
    for loss in (model.loss, unpadded_loss(model)):
        with pytest.raises((ValueError, TypeError), match=r"^\w+: got .*, expected ") as error:
            loss(*given)
        said.append(str(error.value))
    assert said[0] == said[1]
