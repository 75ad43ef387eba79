"""A Transformer keeps its promises whatever its config: nothing leaks, nothing is forgotten, and all of it learns."""

import copy
import io
import math
import pickle
import shutil
from dataclasses import replace
from typing import get_args

import pytest
import torch
from copying import assert_close, randomise
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from attncourse.attention import causal_mask, lengths_to_mask
from attncourse.efficient import dense_mask, sliding_window
from attncourse.layers import ACTIVATIONS, LayerNorm, RMSNorm, layer_norm
from attncourse.transformer import (
    Block,
    Embedding,
    Encoder,
    EncoderDecoder,
    LanguageModel,
    Memory,
    Positions,
    Stack,
    TransformerConfig,
    Weights,
)
from attncourse.unpadding import unpadded_loss

WORDS, D_MODEL, MAX_LENGTH = 11, 8, 12
SCHEMES = get_args(Positions)
SMALL = dict(vocab_size=WORDS, d_model=D_MODEL, n_layers=2, n_heads=2, dropout=0.0, max_length=MAX_LENGTH)
some = settings(deadline=None, max_examples=20, derandomize=True)
each_scheme = pytest.mark.parametrize("positions", SCHEMES)


def config(**choices):
    """Distances of "shaw" and "bucketed" are few enough to be clipped."""
    return TransformerConfig(**SMALL | dict(max_distance=5, n_buckets=8) | choices)


def built(model, dtype=torch.float64, **choices):
    """No bias is zero and no norm's weight is one, so none can be forgotten unseen."""
    model = model(config(**choices)).to(dtype).eval()
    randomise(model)
    return model


@st.composite
def configs(draw, **fixed):
    """Any small one. Dropout is on, so a model that forgets to turn it off in evaluation is seen."""
    n_heads = draw(st.sampled_from([1, 2, 4]))
    choices = dict(
        n_layers=draw(st.integers(1, 2)),
        n_layers_decoder=draw(st.sampled_from([None, 1, 2])),
        n_heads=n_heads,
        n_kv_heads=draw(st.sampled_from([None] + [n for n in (1, 2, 4) if n_heads % n == 0])),
        d_head=draw(st.sampled_from([None, 2, 6])),
        d_ff=draw(st.sampled_from([None, 6])),
        activation=draw(st.sampled_from(ACTIVATIONS)),
        norm=draw(st.sampled_from(["layer", "rms"])),
        norm_place=draw(st.sampled_from(["pre", "post"])),
        final_norm=draw(st.sampled_from([None, True, False])),
        embedding_norm=draw(st.booleans()),
        window=draw(st.sampled_from([None, None, 1, 2, 4])),
        positions=draw(st.sampled_from(SCHEMES)),
        rope_style=draw(st.sampled_from(["half", "interleaved"])),
        scale_scores=draw(st.booleans()),
        scale_embedding=draw(st.booleans()),
        n_segments=draw(st.sampled_from([0, 2])),
        tie_output=draw(st.booleans()),
        output_bias=draw(st.booleans()),
        share_embedding=draw(st.booleans()),
        target_vocab_size=draw(st.sampled_from([None, 7])),
        bias=draw(st.booleans()),
        dropout=0.1,
        dropout_attention=0.1,
        dropout_ff=0.1,
    )
    return choices | fixed


batches = st.tuples(st.integers(1, 4), st.integers(1, 6), st.integers(1, 6), st.integers(0, 99))


class Batch:
    """Pairs of token sequences of every length from one on, the last row of each as long as its tensor."""

    def __init__(self, size, choices):
        batch, n_source, n_target, seed = size
        torch.manual_seed(seed)
        words = choices.get("target_vocab_size") or WORDS
        self.words = words
        self.lengths = torch.randint(1, n_source + 1, (batch,))
        self.target_lengths = torch.randint(1, n_target + 1, (batch,))
        self.lengths[-1], self.target_lengths[-1] = n_source, n_target
        self.there, self.real = lengths_to_mask(self.lengths, n_source), lengths_to_mask(self.target_lengths, n_target)
        self.source = torch.randint(1, WORDS, (batch, n_source)) * self.there
        self.target_in = torch.randint(1, words, (batch, n_target)) * self.real
        self.target_out = torch.randint(1, words, (batch, n_target)) * self.real

    def __iter__(self):
        return iter((self.source, self.lengths, self.target_in))

    def __len__(self):
        return len(self.source)


def other_tokens(tokens, words):
    """Each token another one."""
    return (tokens + torch.randint(1, words, tokens.shape)) % words


# What may and may not matter, for any config


@some
@given(configs(), batches)
def test_an_encoders_answer_depends_neither_on_the_batch_nor_on_its_padding(choices, size):
    model, batch = built(Encoder, **choices), Batch(size, choices)
    together = model(batch.source, batch.lengths)
    for row, n in enumerate(batch.lengths.tolist()):
        assert_close(model(batch.source[row : row + 1, :n])[0], together[row, :n])
    changed = torch.where(batch.there, batch.source, other_tokens(batch.source, WORDS))
    assert_close(model(changed, batch.lengths)[batch.there], together[batch.there])


@some
@given(configs(), batches)
def test_an_encoder_decoders_answer_depends_neither_on_the_batch_nor_on_its_padding(choices, size):
    model, batch = built(EncoderDecoder, **choices), Batch(size, choices)
    together = model(*batch)
    assert together.shape == (*batch.target_in.shape, batch.words)
    for row, (n, m) in enumerate(zip(batch.lengths.tolist(), batch.target_lengths.tolist(), strict=True)):
        alone = model(batch.source[row : row + 1, :n], batch.lengths[row : row + 1], batch.target_in[row : row + 1, :m])
        assert_close(alone[0], together[row, :m])
    source = torch.where(batch.there, batch.source, other_tokens(batch.source, WORDS))
    target = torch.where(batch.real, batch.target_in, other_tokens(batch.target_in, batch.words))
    assert_close(model(source, batch.lengths, target)[batch.real], together[batch.real])


@some
@given(configs(), batches)
def test_a_language_models_answer_depends_neither_on_the_batch_nor_on_its_padding(choices, size):
    model, batch = built(LanguageModel, **choices), Batch(size, choices)
    together = model(batch.target_in)
    for row, m in enumerate(batch.target_lengths.tolist()):
        assert_close(model(batch.target_in[row : row + 1, :m])[0], together[row, :m])


@some
@given(configs(), st.integers(2, 6), st.data())
def test_changing_the_future_leaves_the_past_alone_and_changes_the_present(choices, n, data):
    t, batch = data.draw(st.integers(1, n - 1)), Batch((2, 3, n, n), choices)
    changed = torch.cat([batch.target_in[:, :t], other_tokens(batch.target_in[:, t:], batch.words)], dim=1)
    writer, translator = built(LanguageModel, **choices), built(EncoderDecoder, **choices)
    for call in (writer, lambda target: translator(batch.source, batch.lengths, target)):
        before, after = call(batch.target_in), call(changed)
        assert_close(after[:, :t], before[:, :t])
        assert not torch.allclose(after[:, t], before[:, t])


@each_scheme
def test_a_decoder_never_looks_at_the_future_whatever_the_positions(positions):
    model, text = built(LanguageModel, positions=positions), torch.randint(1, WORDS, (2, 6))
    weights = model(text, with_weights=True)[1]
    assert (weights.masked_select(~causal_mask(6)) == 0).all() and (weights.masked_select(causal_mask(6)) > 0).all()
    assert_close(weights.sum(-1), torch.ones_like(weights.sum(-1)))
    for t in range(1, 6):
        changed = torch.cat([text[:, :t], other_tokens(text[:, t:], WORDS)], dim=1)
        assert_close(model(changed)[:, :t], model(text)[:, :t])


def test_an_encoder_looks_everywhere():
    model, text = built(Encoder), torch.randint(1, WORDS, (1, 6))
    changed = text.clone()
    changed[0, -1] = other_tokens(text[0, -1], WORDS)
    assert not torch.isclose(model(changed), model(text)).all(-1).any()


@some
@given(configs(positions="none", window=None), batches)
def test_without_positions_to_permute_the_source_permutes_the_states_and_leaves_the_target_alone(choices, size):
    model, batch = built(EncoderDecoder, **choices), Batch(size, choices)
    full = torch.full_like(batch.lengths, batch.source.shape[1])
    order = torch.randperm(batch.source.shape[1])
    assert_close(model.encoder(batch.source[:, order]), model.encoder(batch.source)[:, order])
    permuted = model(batch.source[:, order], full, batch.target_in)
    assert_close(permuted, model(batch.source, full, batch.target_in))


@some
@given(configs(), batches)
def test_whatever_the_positions_a_decoder_does_not_see_the_order_of_its_memory(choices, size):
    model, batch = built(EncoderDecoder, **choices), Batch(size, choices)
    memory, mask = model.encoder(batch.source, batch.lengths), batch.there[:, None]
    order = torch.randperm(mask.shape[-1])
    permuted = model.decoder(batch.target_in, Memory(memory[:, order], mask[..., order]))
    assert_close(permuted, model.decoder(batch.target_in, Memory(memory, mask)))


@some
@given(configs(), batches)
def test_the_loss_depends_neither_on_the_padding_nor_on_the_order_of_the_batch(choices, size):
    model, batch = built(EncoderDecoder, **choices), Batch(size, choices)
    expected, loss = model.loss(*batch, batch.target_out), unpadded_loss(model)
    source = torch.where(batch.there, batch.source, other_tokens(batch.source, WORDS))
    target = torch.where(batch.real, batch.target_in, other_tokens(batch.target_in, batch.words))
    assert_close(loss(source, batch.lengths, target, batch.target_out), expected)
    order = torch.randperm(len(batch))
    assert_close(loss(*(tensor[order] for tensor in (*batch, batch.target_out))), expected)
    writer = built(LanguageModel, **choices)
    expected, loss = writer.loss(batch.target_in, batch.target_out), unpadded_loss(writer)
    assert_close(loss(target[order], batch.target_out[order]), expected)


@some
@given(configs(), batches)
def test_the_loss_of_a_batch_is_the_mean_over_its_tokens_and_not_over_its_rows(choices, size):
    model, batch = built(EncoderDecoder, **choices), Batch(size, choices)
    rows = [[t[row : row + 1] for t in (*batch, batch.target_out)] for row in range(len(batch))]
    losses = torch.stack([model.loss(*row) for row in rows])
    weights = batch.target_lengths.double()
    assert_close(unpadded_loss(model)(*batch, batch.target_out), (losses * weights).sum() / weights.sum())


@some
@given(configs(dropout=0.0, dropout_attention=0.0, dropout_ff=0.0))
def test_every_parameter_of_every_model_learns(choices):
    batch = Batch((3, 5, 5, 1), choices)
    losses = {
        Encoder: lambda model: (model(batch.source, batch.lengths) * noise).sum(),
        EncoderDecoder: lambda model: unpadded_loss(model)(*batch, batch.target_out),
        LanguageModel: lambda model: unpadded_loss(model)(batch.target_in, batch.target_out),
    }
    noise = torch.randn(*batch.source.shape, D_MODEL, dtype=torch.float64)
    for kind, loss in losses.items():
        model = built(kind, **choices).train()
        loss(model).backward()
        for name, parameter in model.named_parameters():
            assert parameter.grad is not None and parameter.grad.isfinite().all(), name
            # A bias of the keys adds the same to all scores of a query, unless rope turns it: the softmax forgets it.
            if not name.endswith("key.bias"):
                assert parameter.grad.abs().max() > 0, name


@some
@given(configs())
def test_a_token_alone_goes_through_every_model(choices):
    batch = Batch((2, 1, 1, 0), choices)
    assert built(Encoder, **choices)(batch.source).isfinite().all()
    assert built(EncoderDecoder, **choices)(*batch).shape == (2, 1, batch.words)
    assert built(LanguageModel, **choices)(batch.target_in).shape == (2, 1, batch.words)


@some
@given(configs(), batches)
def test_tokens_need_not_be_contiguous(choices, size):
    model, batch = built(EncoderDecoder, **choices), Batch(size, choices)
    strange = [t.T.contiguous().T for t in (batch.source, batch.target_in, batch.target_out)]
    for loss in (model.loss, unpadded_loss(model)):
        got = loss(strange[0], batch.lengths, strange[1], strange[2])
        assert_close(got, model.loss(*batch, batch.target_out))


@each_scheme
def test_bfloat16_gives_bfloat16_finite_and_near_float32(positions):
    batch = Batch((3, 6, 4, 0), {})
    for model, inputs in ((LanguageModel(config(positions=positions)), (batch.target_in,)),
                          (EncoderDecoder(config(positions=positions)), batch)):
        expected = model.eval()(*inputs)
        got = model.bfloat16()(*inputs)
        assert got.dtype == torch.bfloat16 and got.isfinite().all()
        assert (got.float() - expected).norm() < 0.05 * expected.norm()


def test_source_and_target_may_differ_in_length_and_the_weights_have_the_shape_of_both():
    batch = Batch((3, 6, 4, 0), {})
    logits, weights = built(EncoderDecoder, n_layers=1, n_layers_decoder=3)(*batch, with_weights=True)
    assert logits.shape == (3, 4, WORDS)
    assert [tuple(w.shape) for w in weights] == [(3, 1, 2, 6, 6), (3, 3, 2, 4, 4), (3, 3, 2, 4, 6)]


def test_a_batch_may_have_more_rows_than_there_are_positions():
    """Positions go by the axis of the tokens: row 20 of the batch stands where row 0 does."""
    model, text = built(LanguageModel, positions="learned"), torch.randint(1, WORDS, (1, 5))
    logits = model(text.expand(2 * MAX_LENGTH, -1))
    assert_close(logits, logits[:1].expand_as(logits))


@each_scheme
def test_as_many_tokens_as_the_positions_allow_and_not_one_more(positions):
    model = built(LanguageModel, positions=positions)
    assert model(torch.ones(1, MAX_LENGTH, dtype=torch.long)).isfinite().all()
    longer = torch.ones(1, MAX_LENGTH + 1, dtype=torch.long)
    assert model.max_positions == (None if positions in ("none", "shaw", "bucketed") else MAX_LENGTH)
    if model.max_positions is None:
        assert model(longer).isfinite().all()
    else:
        with pytest.raises(ValueError, match=f"got {MAX_LENGTH + 1} .*expected .*{MAX_LENGTH}"):
            model(longer)


@pytest.mark.parametrize("name", ["dropout", "dropout_attention", "dropout_ff"])
def test_each_dropout_is_off_in_evaluation_and_on_in_training(name):
    batch, rate = Batch((3, 5, 4, 0), {}), {name: 0.5}
    model, plain = built(EncoderDecoder, **rate), built(EncoderDecoder)
    plain.load_state_dict(model.state_dict())
    assert_close(model(*batch), plain(*batch))
    model.train()
    assert not torch.allclose(model(*batch), model(*batch))


def test_one_seed_makes_one_model():
    models = []
    for _ in range(2):
        torch.manual_seed(3)
        models.append(EncoderDecoder(config()).state_dict())
    assert all(torch.equal(models[0][name], models[1][name]) for name in models[0])


# Blocks and stacks


def silence(sublayer):
    """A sublayer whose last layer is zero says zero."""
    last = sublayer.down if hasattr(sublayer, "down") else sublayer.output
    for parameter in last.parameters():
        nn.init.zeros_(parameter)


def block(**choices):
    block = Block(config(**choices), causal=True, cross=True).double()
    randomise(block)
    return block


def states(*shape):
    return torch.randn(*shape, D_MODEL, dtype=torch.float64)


@pytest.mark.parametrize("norm", ["layer", "rms"])
@pytest.mark.parametrize("positions", ["none", "shaw"])
def test_a_pre_norm_block_with_silent_sublayers_is_the_identity(norm, positions):
    silent, x = block(norm=norm, norm_place="pre", positions=positions), states(2, 5)
    for path in (silent.attention, silent.cross, silent.ff):
        silence(path.sublayer)
    memory = Memory(states(2, 3))
    assert torch.equal(silent(x, memory=memory), x)
    jacobian = torch.autograd.functional.jacobian(lambda x: silent(x, memory=memory), x[:, :1])
    assert torch.equal(jacobian.view(2 * D_MODEL, -1), torch.eye(2 * D_MODEL, dtype=torch.float64))


@pytest.mark.parametrize("place", ["pre", "post"])
def test_dropout_falls_on_what_a_sublayer_says_and_never_on_the_residual(place):
    one, x, memory = block(norm_place=place, dropout=0.5), states(2, 5), Memory(states(2, 3))
    for path in (one.attention, one.cross, one.ff):
        silence(path.sublayer)
        nn.init.ones_((path.sublayer.down if path is one.ff else path.sublayer.output).bias)
        path.norm = nn.Identity()
    added = (one(x, memory=memory) - x).round(decimals=9)         # of three ones, each doubled or dropped
    assert {*added.flatten().tolist()} == {0.0, 2.0, 4.0, 6.0}
    assert_close(one.eval()(x, memory=memory), x + 3)


@pytest.mark.parametrize("norm", ["layer", "rms"])
def test_a_post_norm_block_with_silent_sublayers_is_its_three_norms_and_not_the_identity(norm):
    silent, x = block(norm=norm, norm_place="post"), states(2, 5)
    for path in (silent.attention, silent.cross, silent.ff):
        silence(path.sublayer)
    got = silent(x, memory=Memory(states(2, 3)))
    assert_close(got, silent.ff.norm(silent.cross.norm(silent.attention.norm(x))))
    assert not torch.allclose(got, x)


@pytest.mark.parametrize("speaks", ["attention", "cross", "ff"])
def test_each_residual_of_a_pre_norm_block_starts_from_the_x_that_is_not_normalised(speaks):
    one, x, memory = block(), states(2, 5), states(2, 3)
    for name in {"attention", "cross", "ff"} - {speaks}:
        silence(getattr(one, name).sublayer)
    path = getattr(one, speaks)
    told = {"attention": {"causal": True}, "cross": {"memory": memory}, "ff": {}}[speaks]
    assert_close(one(x, memory=Memory(memory)) - x, path.sublayer(path.norm(x), **told))


def test_a_pre_norm_block_does_not_normalise_the_memory():
    one, x, memory = block(), states(2, 5), states(2, 3)
    assert not torch.allclose(one(x, memory=Memory(7 * memory)), one(x, memory=Memory(memory)))


def test_a_block_attends_to_itself_then_to_the_memory_then_thinks():
    one, x, memory = block(norm_place="post"), states(2, 5), states(2, 3)
    expected = one.attention.norm(x + one.attention.sublayer(x, causal=True))
    expected = one.cross.norm(expected + one.cross.sublayer(expected, memory))
    expected = one.ff.norm(expected + one.ff.sublayer(expected))
    assert_close(one(x, memory=Memory(memory)), expected)


@pytest.mark.parametrize("n_layers", [1, 6])
def test_a_pre_norm_stack_ends_in_a_norm_so_its_states_have_one_size_at_every_depth(n_layers):
    stack = Stack(config(n_layers=n_layers, norm_eps=1e-14)).double()
    out = stack(10 * states(2, 5))                               # the sum after the last block is far from size one
    assert_close(out, layer_norm(out, eps=0.0))


@pytest.mark.parametrize(
    ("choices", "kind"),
    [
        ({"norm_place": "pre"}, LayerNorm),
        ({"norm_place": "pre", "norm": "rms"}, RMSNorm),
        ({"norm_place": "post"}, nn.Identity),
        ({"norm_place": "pre", "final_norm": False}, nn.Identity),
        ({"norm_place": "post", "final_norm": True}, LayerNorm),
    ],
    ids=str,
)
def test_the_final_norm_stands_behind_pre_norm_blocks_unless_said_otherwise(choices, kind):
    assert type(Stack(config(**choices)).norm) is kind


def test_a_stack_is_its_blocks_one_after_the_other_and_its_norm():
    stack, x, mask = built(Stack, n_layers=3), states(2, 5), lengths_to_mask([5, 2], 5)[:, None]
    expected = x
    for one in stack.blocks:
        expected = one(expected, mask)
    assert_close(stack(x, mask), stack.norm(expected))


def test_all_blocks_have_weights_of_their_own_and_share_the_buckets_of_the_bias():
    stack = Stack(config(positions="bucketed", n_layers=3))
    assert len({id(p) for one in stack.blocks for p in one.parameters()}) == 3 * len([*stack.blocks[0].parameters()])
    assert sum("bias.bias" in name for name, _ in stack.named_parameters()) == 1


@pytest.mark.parametrize("kind", [Encoder, EncoderDecoder, LanguageModel])
def test_without_biases_no_parameter_of_a_model_is_a_bias(kind):
    names = [name for name, _ in kind(config(bias=False)).named_parameters()]
    assert names and not [name for name in names if name.endswith("bias")]


def test_weights_of_a_stack_come_one_for_each_block_from_the_first_up():
    model, text, weights = built(Encoder, n_layers=3), torch.randint(1, WORDS, (2, 5)), Weights()
    model(text, weights=weights)
    assert [tuple(w.shape) for w in weights.self_attn] == 3 * [(2, 2, 5, 5)] and weights.cross_attn == []
    x, kept = model.embedding(text), []
    first = model.stack.blocks[0].attention
    first.sublayer(first.norm(x), weights=kept)
    assert_close(weights.self_attn[0], kept[0])


@pytest.mark.parametrize("place", ["pre", "post"])
@pytest.mark.parametrize("activation", ["gelu", "swiglu"])
def test_every_gradient_of_a_block_is_what_differences_give(place, activation):
    one = Block(config(d_model=4, d_ff=3, n_kv_heads=1, norm_place=place, activation=activation), True, True).double()
    randomise(one)
    mask = lengths_to_mask([2, 1], 2)[:, None]
    inputs = [torch.randn(2, n, 4, dtype=torch.float64, requires_grad=True) for n in (3, 2)]
    assert torch.autograd.gradcheck(lambda x, memory: one(x, memory=Memory(memory, mask)), inputs)


# Embeddings


@pytest.mark.parametrize("positions", ["none", "integer", "binary", "sinusoidal", "learned"])
def test_an_embedding_is_the_scaled_token_plus_its_position_plus_its_segment_normalised(positions):
    choices = dict(positions=positions, scale_embedding=True, n_segments=2, embedding_norm=True)
    embedding = Embedding(config(**choices), WORDS).double()
    randomise(embedding)
    tokens, segments = torch.randint(WORDS, (2, 5)), torch.randint(2, (2, 5))
    expected = math.sqrt(D_MODEL) * embedding.tokens.weight[tokens] + embedding.segments.weight[segments]
    if positions != "none":
        expected = expected + embedding.positions(5)
    assert_close(embedding(tokens, segments=segments), embedding.norm(expected))
    assert_close(embedding(tokens), embedding(tokens, segments=torch.zeros_like(tokens)))


@pytest.mark.parametrize("positions", ["integer", "binary", "sinusoidal", "learned"])
def test_one_token_at_two_places_has_two_embeddings_and_in_two_rows_has_one(positions):
    x = Embedding(config(positions=positions), WORDS)(torch.full((3, 5), 4))
    assert len(x[0].unique(dim=0)) == 5
    assert torch.equal(x, x[:1].expand_as(x))


def test_an_embedding_that_starts_later_gives_the_last_rows():
    embedding, tokens = Embedding(config(), WORDS), torch.randint(WORDS, (2, 5))
    assert torch.equal(embedding(tokens[:, 3:], start=3), embedding(tokens)[:, 3:])


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_tokens_and_lengths_may_be_of_either_whole_type(dtype):
    model, batch = built(EncoderDecoder), Batch((2, 5, 4, 0), {})
    assert_close(model(*(t.to(dtype) for t in batch)), model(*batch))


# Which weights are one


def test_a_tied_output_is_the_targets_embedding():
    for model in (EncoderDecoder(config(target_vocab_size=7)), LanguageModel(config())):
        assert model.output.weight is model.decoder.embedding.tokens.weight
    untied = EncoderDecoder(config(tie_output=False))
    assert untied.output.weight is not untied.decoder.embedding.tokens.weight


def test_source_and_target_share_their_embedding_if_they_have_one_vocabulary():
    def shared(**choices):
        model = EncoderDecoder(config(**choices))
        return model.encoder.embedding.tokens is model.decoder.embedding.tokens

    assert shared() and shared(target_vocab_size=WORDS)
    assert not shared(target_vocab_size=7) and not shared(share_embedding=False)


# Compiling, exporting, keeping


@pytest.fixture
def fresh_compiler():
    torch.compiler.reset()
    yield
    torch.compiler.reset()


LITTLE = dict(n_layers=1, dtype=torch.float32)


def inputs(kind, rows=3, seed=0):
    batch = Batch((rows, 5, 4, seed), {})
    return {Encoder: (batch.source, batch.lengths), EncoderDecoder: (*batch,), LanguageModel: (batch.target_in,)}[kind]


@pytest.mark.parametrize(
    ("kind", "positions"), [(Encoder, "sinusoidal"), (EncoderDecoder, "shaw"), (LanguageModel, "bucketed")]
)
@torch.no_grad()
def test_the_forward_of_every_model_compiles_into_one_graph(kind, positions, fresh_compiler):
    model, batch = built(kind, positions=positions, **LITTLE), inputs(kind)
    assert_close(torch.compile(model, fullgraph=True, backend="aot_eager")(*batch), model(*batch))


def test_a_loss_over_padded_batches_compiles_into_one_graph_and_has_the_same_gradient(fresh_compiler):
    model, batch = built(EncoderDecoder, positions="rope", **LITTLE).train(), Batch((3, 5, 4, 0), {})
    compiled = torch.compile(model.loss, fullgraph=True, backend="aot_eager")
    values = [loss(*batch, batch.target_out, label_smoothing=0.1) for loss in (compiled, model.loss)]
    assert_close(*values)
    gradients = [torch.autograd.grad(value, [*model.parameters()]) for value in values]
    for ours, theirs in zip(*gradients, strict=True):
        assert_close(ours, theirs)


@pytest.mark.slow  # the compiler takes half a minute
@pytest.mark.skipif(shutil.which("g++") is None, reason="inductor needs a C++ compiler")
@torch.no_grad()
def test_inductors_kernels_give_the_same_logits(fresh_compiler):
    model, text = built(LanguageModel, positions="rope", **LITTLE), torch.randint(1, WORDS, (2, 4))
    assert_close(torch.compile(model, fullgraph=True)(text), model(text))


@pytest.mark.parametrize(
    ("kind", "positions"),
    [(Encoder, "rope"), (EncoderDecoder, "shaw"), (EncoderDecoder, "bucketed"), (LanguageModel, "sinusoidal")],
)
def test_an_exported_model_takes_batches_of_any_size(kind, positions):
    model, example = built(kind, positions=positions, **LITTLE), inputs(kind)
    rows = torch.export.Dim("batch", min=2, max=64)
    exported = torch.export.export(model, example, dynamic_shapes=tuple({0: rows} for _ in example)).module()
    for again in (inputs(kind, seed=1), inputs(kind, rows=5)):
        assert_close(exported(*again), model(*again))


@pytest.mark.parametrize("kind", [Encoder, EncoderDecoder, LanguageModel])
def test_an_exported_model_of_one_size_is_the_model(kind):
    model = built(kind, **LITTLE)
    exported = torch.export.export(model, inputs(kind)).module()
    assert_close(exported(*inputs(kind, seed=1)), model(*inputs(kind, seed=1)))


@some
@given(configs(), batches)
def test_a_saved_state_in_a_fresh_model_gives_the_same_answers(choices, size):
    batch, file = Batch(size, choices), io.BytesIO()
    model, fresh = built(EncoderDecoder, **choices), built(EncoderDecoder, **choices)
    torch.save(model.state_dict(), file)
    file.seek(0)
    fresh.load_state_dict(torch.load(file, weights_only=True), strict=True)
    assert torch.equal(fresh(*batch), model(*batch))


@each_scheme
@pytest.mark.parametrize("kind", [EncoderDecoder, LanguageModel])
def test_a_model_goes_through_safetensors_with_its_tied_weights(kind, positions, tmp_path):
    safetensors = pytest.importorskip("safetensors.torch")
    model, fresh = built(kind, positions=positions), built(kind, positions=positions)
    safetensors.save_model(model, tmp_path / "model.safetensors")
    missing, unexpected = safetensors.load_model(fresh, tmp_path / "model.safetensors", strict=True)
    assert not missing and not unexpected
    assert torch.equal(fresh(*inputs(kind)), model(*inputs(kind)))


@each_scheme
def test_a_deep_copy_gives_the_same_answers_stays_tied_and_goes_its_own_way(positions):
    model, batch = built(EncoderDecoder, positions=positions), Batch((3, 5, 4, 0), {})
    before, copied = model(*batch), copy.deepcopy(model)
    assert torch.equal(copied(*batch), before)
    assert copied.output.weight is copied.encoder.embedding.tokens.weight is not model.output.weight
    randomise(copied)
    assert torch.equal(model(*batch), before)


def test_a_config_and_a_model_can_be_pickled():
    choices = config(positions="rope", n_kv_heads=1, activation="swiglu")
    assert pickle.loads(pickle.dumps(choices)) == choices
    model, batch = built(EncoderDecoder, positions="shaw"), Batch((3, 5, 4, 0), {})
    assert torch.equal(pickle.loads(pickle.dumps(model))(*batch), model(*batch))


def test_a_config_cannot_be_changed_and_equal_ones_are_one_key():
    choices = config()
    with pytest.raises(AttributeError):
        choices.d_model = 16
    assert len({choices, config(), config(norm="rms")}) == 2


# Bad input

BATCH = Batch((3, 5, 4, 0), {})
SOURCE, LENGTHS, TARGET, OUT = *BATCH, BATCH.target_out
ENCODER, TRANSLATOR, WRITER = Encoder(config()), EncoderDecoder(config()), LanguageModel(config())
EMBEDDING = Embedding(config(), WORDS)
LONG = torch.ones(3, MAX_LENGTH + 1, dtype=torch.long)

NOT_ONE = {
    name: (lambda name=name: config(**{name: 0}), ValueError, f"^{name}: got 0, expected")
    for name in ("vocab_size", "target_vocab_size", "d_model", "n_layers", "n_layers_decoder", "n_heads", "n_kv_heads",
                 "d_head", "d_ff", "max_length", "max_distance", "n_buckets")
}
UNKNOWN = {
    name: (lambda name=name: config(**{name: "odd"}), ValueError, f"^{name}: got 'odd', expected one of '")
    for name in ("activation", "norm", "norm_place", "positions", "rope_style")
}
NO_PROBABILITY = {
    f"{name} of {p}": (
        lambda name=name, p=p: config(**{name: p}),
        ValueError,
        f"^{name}: got {p}, expected a probability from 0 to below 1",
    )
    for name in ("dropout", "dropout_attention", "dropout_ff")
    for p in (-0.1, 1.0, math.nan)
}
BAD = {
    **{f"no {name}": case for name, case in NOT_ONE.items()},
    **{f"an unknown {name}": case for name, case in UNKNOWN.items()},
    **NO_PROBABILITY,
    "a negative width": (lambda: config(d_ff=-3), ValueError, "^d_ff: got -3, expected at least 1"),
    "fewer than no segments": (lambda: config(n_segments=-1), ValueError, "^n_segments: got -1, expected at least 0"),
    "heads that do not divide": (
        lambda: config(d_model=5140, n_heads=40),                                  # as a table of GPT-3's sizes has it
        ValueError,
        r"^n_heads: got 40, expected a divisor of d_model = 5140 \(or give d_head\)",
    ),
    "key heads that do not divide": (
        lambda: config(n_heads=4, n_kv_heads=3),
        ValueError,
        "^n_kv_heads: got 3, expected a divisor of n_heads = 4",
    ),
    "rope on odd heads": (lambda: Encoder(config(positions="rope", d_head=3)), ValueError, "^d_head: got 3, .*even"),
    "sinusoids of odd width": (lambda: Encoder(config(d_model=9, n_heads=3)), ValueError, "^d_model: got 9, .*even"),
    "more exact buckets than distances": (
        lambda: Encoder(config(positions="bucketed", n_buckets=32, max_distance=4)),
        ValueError,
        "^max_distance: got 4, expected more than 8",
    ),
    "too few buckets": (lambda: Encoder(config(positions="bucketed", n_buckets=1)), ValueError, "^n_buckets: got 1"),
    "a token past the vocabulary": (lambda: ENCODER(SOURCE + 9), ValueError, r"^tokens: got .*1\d, expected .*0.*10"),
    "a token below zero": (lambda: WRITER(TARGET - 5), ValueError, "^tokens: got .*-5.*, expected"),
    "a source's token for the target": (
        lambda: EncoderDecoder(config(target_vocab_size=3))(SOURCE, LENGTHS, torch.full((3, 2), 3)),
        ValueError,
        r"^target_in: got .*3, expected .*\b0\b.*2",
    ),
    "tokens with a fraction": (lambda: WRITER(TARGET.float()), (TypeError, ValueError), "^tokens: got torch.float32"),
    "tokens that are true or false": (lambda: ENCODER(SOURCE > 3), (TypeError, ValueError), "^tokens: got torch.bool"),
    "tokens in a list": (lambda: ENCODER(SOURCE.tolist()), (TypeError, ValueError), "^tokens: got list, expected"),
    "tokens without a batch": (lambda: ENCODER(SOURCE[0]), ValueError, r"^tokens: got .*\(5,\), expected .*batch"),
    "no tokens": (lambda: WRITER(TARGET[:, :0]), ValueError, r"^tokens: got shape \(3, 0\), expected at least one"),
    "a text that is too long": (lambda: WRITER(LONG), ValueError, f"^n: got 13 positions from 0 on, .*{MAX_LENGTH}"),
    "one too long for rope": (lambda: Encoder(config(positions="rope"))(LONG), ValueError, "^n: got 13 positions"),
    "one that starts too late": (lambda: EMBEDDING(SOURCE, start=9), ValueError, "^n: got 5 positions from 9 on"),
    "one that starts too soon": (lambda: EMBEDDING(SOURCE, start=-1), ValueError, "^n: got 5 positions from -1 on"),
    "lengths for another batch": (lambda: ENCODER(SOURCE, LENGTHS[:2]), ValueError, "got .*2.*, expected .*3"),
    "lengths past the end": (lambda: ENCODER(SOURCE, LENGTHS + 5), ValueError, r"^lengths: got \[.*\], expected .*5"),
    "lengths with a fraction": (lambda: ENCODER(SOURCE, LENGTHS / 2), (TypeError, ValueError), "^lengths: got .*float"),
    "lengths of two axes": (lambda: ENCODER(SOURCE, LENGTHS[None]), ValueError, r"^lengths: got .*\(1, 3\), expected"),
    "a mask for lengths": (lambda: ENCODER(SOURCE, SOURCE > 0), (TypeError, ValueError), "^lengths: got .*, expected"),
    "a source without a token": (
        lambda: TRANSLATOR(SOURCE, LENGTHS * 0, TARGET),
        ValueError,
        r"^lengths: got \[0, 0, 0\], expected",
    ),
    "an empty source to start": (lambda: TRANSLATOR.start(SOURCE, LENGTHS * 0), ValueError, "^lengths: got"),
    "an empty source in the loss": (
        lambda: TRANSLATOR.loss(SOURCE, LENGTHS * 0, TARGET, OUT),
        ValueError,
        "^lengths: got .*, expected",
    ),
    "a target for another batch": (lambda: TRANSLATOR(SOURCE, LENGTHS, TARGET[:2]), ValueError, "^target_in: got"),
    "a memory of another width": (
        lambda: TRANSLATOR.decoder(TARGET, Memory(torch.ones(3, 5, 7))),
        ValueError,
        "^memory: got",
    ),
    "states that are no Memory": (
        lambda: TRANSLATOR.decoder(TARGET, torch.ones(3, 5, D_MODEL)),
        TypeError,
        r"^memory: got Tensor, expected Memory\(states, mask\)",
    ),
    "states in a list": (lambda: TRANSLATOR.decoder(TARGET, Memory([[1.0]])), TypeError, "^memory: got list, expected"),
    "a memory for another batch": (
        lambda: TRANSLATOR.decoder(TARGET, Memory(torch.ones(2, 5, D_MODEL))),
        ValueError,
        r"^memory: got shape \(2, 5, 8\), expected \(batch = 3",
    ),
    "a mask for another memory": (
        lambda: TRANSLATOR.decoder(TARGET, Memory(torch.ones(3, 5, D_MODEL), BATCH.there[:, None, :4])),
        ValueError,
        r"^mask: got shape \(3, 1, 4\)",
    ),
    "a padding mask as it is": (
        lambda: TRANSLATOR.decoder(TARGET, Memory(torch.ones(3, 5, D_MODEL), BATCH.there)),
        ValueError,
        r"^mask: got shape \(3, 5\), .*becomes mask\[:, None, :\]",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_refused_at_the_door_with_the_arguments_name(case):
    call, error, words = BAD[case]
    with pytest.raises(error, match=words):
        call()


def stepped(model, first, then):
    """A decoding that goes on with another batch than it began with."""
    with torch.no_grad():
        state = model.start()
        model.read(first, state)
        return model.read(then, state)


@torch.no_grad()
def selected(*rows):
    return TRANSLATOR.start(SOURCE, LENGTHS).select(torch.tensor(rows))


def segmented(segments):
    return Encoder(config(n_segments=2))(SOURCE, segments=segments)


# These gave a wrong answer without a word, or an error of torch's or python's that names no argument of ours.
SILENT = {
    "a variance that is negative": lambda: config(norm_eps=-1.0),
    "a base of rope that is zero": lambda: config(rope_base=0.0),
    "no blocks in a stack": lambda: Stack(config(), n_layers=0),
    "one length for all sources": lambda: ENCODER(SOURCE, LENGTHS[:1]),
    "one length for all that are translated": lambda: TRANSLATOR(SOURCE, LENGTHS[:1], TARGET),
    "one length for all in the loss": lambda: TRANSLATOR.loss(SOURCE, LENGTHS[:1], TARGET, OUT),
    "too many lengths in the loss": lambda: TRANSLATOR.loss(SOURCE, LENGTHS.repeat(2), TARGET, OUT),
    "no lengths to translate": lambda: TRANSLATOR(SOURCE, None, TARGET),
    "tokens in a list with lengths": lambda: ENCODER(SOURCE.tolist(), LENGTHS),
    "tokens without a batch with lengths": lambda: ENCODER(SOURCE[0], LENGTHS),
    "a shorter target_out": lambda: TRANSLATOR.loss(SOURCE, LENGTHS, TARGET, OUT[:, :3]),
    "a longer target_out": lambda: TRANSLATOR.loss(SOURCE, LENGTHS, TARGET[:, :3], OUT),
    "a target_out for fewer": lambda: TRANSLATOR.loss(SOURCE, LENGTHS, TARGET, OUT[:2]),
    "a target_out for more": lambda: TRANSLATOR.loss(SOURCE, LENGTHS, TARGET[:2], OUT),
    "one source for three targets": lambda: TRANSLATOR.loss(SOURCE[:1], LENGTHS[:1], TARGET, OUT),
    "a target_out past the vocabulary": lambda: TRANSLATOR.loss(SOURCE, LENGTHS, TARGET, OUT + WORDS),
    "a target_out of padding alone": lambda: TRANSLATOR.loss(SOURCE, LENGTHS, TARGET, 0 * OUT),
    "a shorter tokens_out": lambda: WRITER.loss(TARGET, OUT[:, :3]),
    "a longer tokens_out": lambda: WRITER.loss(TARGET[:, :3], OUT),
    "a tokens_out for fewer": lambda: WRITER.loss(TARGET, OUT[:2]),
    "a tokens_out on its side": lambda: WRITER.loss(TARGET, OUT.T),
    "a tokens_out of padding alone": lambda: WRITER.loss(TARGET, 0 * OUT),
    "a decoder without a memory": lambda: TRANSLATOR.decoder(TARGET),
    "a memory for a block that looks at none": lambda: Block(config())(
        torch.ones(1, 2, D_MODEL), memory=Memory(torch.ones(1, 2, D_MODEL))
    ),
    "a memory for a language model": lambda: WRITER.decoder(TARGET, Memory(torch.ones(3, 5, D_MODEL))),
    "rows that a memory has not": lambda: Memory(torch.ones(3, 5, D_MODEL)).select(torch.tensor([3])),
    "segments for a model without any": lambda: ENCODER(SOURCE, segments=0 * SOURCE),
    "segments past the last": lambda: segmented(torch.full_like(SOURCE, 2)),
    "segments for other tokens": lambda: segmented(torch.zeros(3, 4, dtype=torch.long)),
    "one row of segments": lambda: segmented(torch.zeros(1, 5, dtype=torch.long)),
    "another batch than was read": lambda: stepped(WRITER, TARGET, TARGET[:2]),
    "one row after three were read": lambda: stepped(WRITER, TARGET, TARGET[:1]),
    "a row that is not there": lambda: selected(0, 3),
    "a row below zero": lambda: selected(-1),
}


@pytest.mark.parametrize("case", SILENT)
def test_what_does_not_fit_is_not_answered(case):
    with pytest.raises((ValueError, TypeError), match=r"^\w+: got .*, expected "):
        SILENT[case]()


def test_a_row_can_be_selected_more_than_once():
    state = selected(2, 0, 2)
    for (key, _), mask in state.memory:
        assert key.shape[0] == 3 and torch.equal(key[0], key[2]) and not torch.equal(key[0], key[1])
        assert torch.equal(mask, BATCH.there[[2, 0, 2]][:, None])


def test_a_decoder_sees_the_same_in_a_memory_and_in_what_its_blocks_have_made_of_it():
    decoder, mask = built(EncoderDecoder).decoder, BATCH.there[:, None]
    memory = Memory(states(3, 5), mask)
    assert_close(decoder(TARGET, decoder.stack.project(memory)), decoder(TARGET, memory))


def test_selected_rows_of_a_memory_are_its_states_and_mask_in_that_order():
    memory, rows = Memory(states(3, 5), lengths_to_mask([1, 2, 5], 5)[:, None]), torch.tensor([2, 0, 2])
    chosen = memory.select(rows)
    assert torch.equal(chosen.states, memory.states[rows]) and torch.equal(chosen.mask, memory.mask[rows])
    assert Memory(memory.states).select(rows).mask is None


@pytest.mark.parametrize("places", [slice(0, 2), slice(1, 3)], ids=["in front", "in the middle"])
def test_answers_left_out_in_front_or_in_the_middle_are_still_read(places):
    model, read, said = built(LanguageModel).double(), torch.randint(1, WORDS, (3, 5)), torch.randint(1, WORDS, (3, 5))
    said[:, places] = 0
    expected = torch.nn.functional.cross_entropy(model(read).flatten(0, 1), said.flatten(), ignore_index=0)
    torch.testing.assert_close(model.loss(read, said), expected, rtol=0, atol=1e-10)


@pytest.mark.parametrize("kind", [EncoderDecoder, LanguageModel])
def test_a_model_made_on_no_device_and_tied_again_is_the_model(kind):
    model = built(kind)
    with torch.device("meta"):
        other = kind(model.config)
    other = other.double().to_empty(device="cpu").eval()
    other.load_state_dict(model.state_dict())
    other.tie()
    assert other.output.weight is other.decoder.embedding.tokens.weight
    given = (SOURCE, LENGTHS, TARGET) if kind is EncoderDecoder else (TARGET,)
    torch.testing.assert_close(other(*given), model(*given), rtol=0, atol=1e-10)


@pytest.mark.parametrize("kind", [Encoder, EncoderDecoder, LanguageModel, Stack])
def test_a_config_that_is_none_is_refused(kind):
    with pytest.raises(TypeError, match=r"^config: got dict, expected a TransformerConfig"):
        kind({"vocab_size": 5})


def test_a_smoothing_below_zero_is_refused():
    with pytest.raises(ValueError, match=r"^label_smoothing: got -0\.1, expected 0 to 1"):
        WRITER.loss(TARGET, TARGET, label_smoothing=-0.1)


def test_a_trained_model_reads_longer_texts_when_its_config_allows_them():
    model = built(LanguageModel, positions="rope")
    longer = LanguageModel(replace(model.config, max_length=2 * MAX_LENGTH)).double().eval()
    longer.load_state_dict(model.state_dict())
    text = torch.randint(1, WORDS, (2, 2 * MAX_LENGTH))
    torch.testing.assert_close(longer(text)[:, :MAX_LENGTH], model(text[:, :MAX_LENGTH]), rtol=0, atol=1e-10)


def test_a_language_model_in_a_window_sees_no_further_than_its_depth_allows():
    model = built(LanguageModel, positions="none", n_layers=2, window=2)
    text = torch.randint(1, WORDS, (2, MAX_LENGTH))
    other = text.clone()
    other[:, 0] = text[:, 0] % (WORDS - 1) + 1
    change = (model(text) - model(other)).abs().amax(dim=(0, 2))      # (n,)
    assert (change[:3] > 1e-6).all() and (change[3:] == 0).all()


@pytest.mark.parametrize("kind", [LanguageModel, Encoder])
@pytest.mark.parametrize("window", [1, 2, 5])
def test_a_window_in_the_config_is_the_mask_of_the_sparse_pattern(kind, window):
    model, text = built(kind, window=window), torch.randint(1, WORDS, (2, 8))
    whole = kind(replace(model.config, window=None)).double().eval()
    whole.load_state_dict(model.state_dict())
    assert_close(model(text), whole(text, mask=dense_mask(sliding_window(window - 1), 8)))


def test_a_mask_beside_a_window_forbids_more():
    model, text = built(LanguageModel, window=3), torch.randint(1, WORDS, (2, 6))
    alone = built(LanguageModel, window=1)
    alone.load_state_dict(model.state_dict())
    assert_close(model(text, mask=torch.eye(6, dtype=torch.bool)), alone(text))


def test_a_mask_is_in_the_loss_too():
    model, text = built(LanguageModel), torch.randint(1, WORDS, (2, 6))
    window = dense_mask(sliding_window(1, causal=True), 6)
    expected = torch.nn.functional.cross_entropy(model(text, mask=window).flatten(0, 1), text.flatten())
    torch.testing.assert_close(model.loss(text, text, mask=window), expected, rtol=0, atol=1e-10)


def test_decoding_in_a_window_takes_the_same_memory_however_long_the_text():
    model = built(LanguageModel, window=4, positions="bucketed")
    state, held = model.start(), []
    with torch.no_grad():
        for token in torch.randint(1, WORDS, (40, 2)):
            _, state, weights = model.step(token, state, with_weights=True)
            held.append(sum(cache.n_bytes for cache in state.caches))
            assert weights.shape == (2, state.length) and (weights[:, :-4] == 0).all() and (weights[:, -4:] > 0).all()
    assert len(set(held[2:])) == 1 and state.length == 40


def test_an_encoder_takes_a_mask_beside_its_lengths():
    model = built(Encoder, positions="none", n_layers=1)
    alone = torch.eye(SOURCE.shape[1], dtype=torch.bool)
    states = model(SOURCE, LENGTHS, mask=alone)
    shuffled = model(SOURCE.flip(1), mask=alone).flip(1)
    real = torch.arange(SOURCE.shape[1]) < LENGTHS[:, None]
    torch.testing.assert_close(states[real], shuffled[real], rtol=0, atol=1e-10)
