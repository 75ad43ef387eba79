"""Our modules compute what torch's do, forward and backward; and our quick ways what our plain ones do."""

import itertools
from typing import get_args

import pytest
import torch
import torch.nn.functional as F
from copying import TOLERANCE, Pair, assert_close, assert_same, copy_weights, randomise, same, slices
from torch import nn

from attncourse.attention import MultiHeadAttention, attend, causal_mask, combine_masks, lengths_to_mask
from attncourse.layers import GATES, PLAIN, FeedForward, LayerNorm, RMSNorm, layer_norm, rms_norm
from attncourse.transformer import (
    Block,
    Encoder,
    EncoderDecoder,
    LanguageModel,
    Memory,
    Positions,
    Stack,
    TransformerConfig,
)
from attncourse.unpadding import unpadded_loss

BATCH, N_QUERY, N_KEY, D_MODEL, HEADS, D_FF, WORDS = 3, 4, 6, 16, 4, 24, 13
LENGTHS = torch.tensor([6, 2, 5])
SCHEMES = get_args(Positions)


@pytest.fixture(params=TOLERANCE, ids=["float64", "float32"])
def dtype(request):
    return request.param


def config(**changes):
    """Small, and with the distances of "shaw" and "bucketed" short enough to be clipped."""
    small = dict(vocab_size=WORDS, d_model=D_MODEL, n_layers=2, n_heads=HEADS, d_ff=D_FF, dropout=0.0, max_length=16)
    return TransformerConfig(**small | dict(max_distance=5, n_buckets=8) | changes)


def padding(lengths=LENGTHS, n=N_KEY):
    return lengths_to_mask(lengths, n)[:, None]                                    # (batch, 1, n)


# Attention


MASKS = {
    "no mask": None,
    "padding": padding(),
    "any mask": torch.rand(BATCH, N_QUERY, N_KEY, generator=torch.Generator().manual_seed(3)) < 0.6,
    "a query with nothing to see": padding() & (torch.arange(N_QUERY) != 1)[:, None],
    "causal": causal_mask(N_QUERY, N_KEY),
}


@pytest.mark.parametrize("mask", MASKS.values(), ids=MASKS)
def test_attend_is_torchs_scaled_dot_product_attention(mask, dtype):
    query, key, value = (torch.randn(BATCH, n, 5, dtype=dtype) for n in (N_QUERY, N_KEY, N_KEY))
    assert_same(
        lambda q, k, v: attend(q, k, v, mask)[0],
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, attn_mask=mask),
        query, key, value,
    )


def test_attend_with_a_causal_mask_is_torchs_is_causal(dtype):
    tensors = [torch.randn(BATCH, N_KEY, 5, dtype=dtype) for _ in range(3)]
    assert_same(
        lambda q, k, v: attend(q, k, v, causal_mask(N_KEY))[0],
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True),
        *tensors,
    )


@pytest.mark.parametrize("fused", [True, False], ids=["fused", "spelled out"])
@pytest.mark.parametrize("n_kv_heads", [HEADS, 2, 1])
@pytest.mark.parametrize("mask", MASKS.values(), ids=MASKS)
def test_grouped_heads_are_torchs_attention_with_each_key_head_repeated(mask, n_kv_heads, fused, dtype):
    ours = MultiHeadAttention(D_MODEL, HEADS, n_kv_heads, d_head=6, scale=0.7).to(dtype)
    randomise(ours)
    heads = None if mask is None else mask if mask.ndim == 2 else mask.unsqueeze(1)
    bias = torch.randn(HEADS, N_QUERY, N_KEY, dtype=dtype)

    def theirs(x, memory, bias):
        query = ours.query(x).unflatten(-1, (HEADS, 6)).transpose(1, 2)
        key, value = (
            layer(memory).unflatten(-1, (n_kv_heads, 6)).transpose(1, 2).repeat_interleave(HEADS // n_kv_heads, dim=1)
            for layer in (ours.key, ours.value)
        )
        if heads is not None:
            bias = bias.masked_fill(~heads, -torch.inf)
        output = F.scaled_dot_product_attention(query, key, value, attn_mask=bias, scale=0.7)
        return ours.output(output.transpose(1, 2).flatten(2))

    x, memory = torch.randn(BATCH, N_QUERY, D_MODEL, dtype=dtype), torch.randn(BATCH, N_KEY, D_MODEL, dtype=dtype)
    parameters = [Pair(parameter, parameter) for parameter in ours.parameters()]
    weights = None if fused else []
    assert_same(lambda x, m, b: ours(x, m, mask, bias=b, weights=weights), theirs, x, memory, bias, pairs=parameters)


def attention_of_torch(ours, theirs):
    yield from slices(ours.query, ours.key, ours.value, weight=theirs.in_proj_weight, bias=theirs.in_proj_bias)
    yield from same((ours.output, theirs.out_proj))


HEAD_MASK = torch.rand(BATCH, HEADS, 1, N_KEY, generator=torch.Generator().manual_seed(4)) < 0.6
HEAD_MASK[..., 0] = True                                                           # torch gives NaN for an empty row


@pytest.mark.parametrize("bias", [True, False], ids=["bias", "no bias"])
@pytest.mark.parametrize("mask", [None, padding(), HEAD_MASK], ids=["no mask", "padding", "a mask for each head"])
@pytest.mark.parametrize("causal", [False, True], ids=["all", "causal"])
@pytest.mark.parametrize("cross", [False, True], ids=["self", "cross"])
def test_multi_head_attention_is_torchs(cross, causal, mask, bias, dtype):
    ours = MultiHeadAttention(D_MODEL, HEADS, bias=bias).to(dtype)
    theirs = nn.MultiheadAttention(D_MODEL, HEADS, bias=bias, batch_first=True, dtype=dtype)
    pairs = copy_weights(ours, theirs, attention_of_torch(ours, theirs))
    x = torch.randn(BATCH, N_QUERY if cross else N_KEY, D_MODEL, dtype=dtype)
    inputs = (x, torch.randn(BATCH, N_KEY, D_MODEL, dtype=dtype)) if cross else (x,)
    future = causal_mask(x.shape[1], N_KEY) if causal else torch.ones(x.shape[1], N_KEY, dtype=torch.bool)
    seen = combine_masks(future, mask if mask is None or mask.ndim == 4 else mask.unsqueeze(1))
    forbidden = ~seen.expand(BATCH, HEADS, -1, -1).flatten(0, 1)                   # (batch · n_heads, n_query, n_key)

    def torchs(x, memory=None, need_weights=False):
        memory = x if memory is None else memory
        return theirs(x, memory, memory, attn_mask=forbidden, need_weights=need_weights, average_attn_weights=False)

    assert_same(lambda *i: ours(*i, mask=mask, causal=causal), lambda *i: torchs(*i)[0], *inputs, pairs=pairs)
    weights = []
    assert_same(
        lambda *i: ours(*i, mask=mask, causal=causal, weights=weights),
        lambda *i: torchs(*i, need_weights=True)[0],
        *inputs,
        pairs=pairs,
    )
    assert len(weights) == 1
    assert_close(weights[0], torchs(*inputs, need_weights=True)[1], "weights")


# Norms and feed-forward networks


SCALES = [1.0, 1e-2, 1e-4, 1e4]


@pytest.mark.parametrize("eps", [1e-5, 1e-12])
@pytest.mark.parametrize("bias", [True, False], ids=["bias", "no bias"])
@pytest.mark.parametrize("scale", SCALES)
def test_layer_norm_is_torchs_at_every_scale_of_its_input(scale, bias, eps, dtype):
    ours, theirs = LayerNorm(D_MODEL, eps, bias).to(dtype), nn.LayerNorm(D_MODEL, eps, bias=bias, dtype=dtype)
    pairs = copy_weights(ours, theirs, same((ours, theirs)))
    x = torch.randn(BATCH, N_KEY, D_MODEL, dtype=dtype) + 0.5
    # The scale is inside, so that the gradient at x is neither huge nor lost in the tolerance.
    assert_same(lambda x: ours(scale * x), lambda x: theirs(scale * x), x, pairs=pairs)
    assert_same(
        lambda x: layer_norm(scale * x, ours.weight, ours.bias, eps), lambda x: theirs(scale * x), x, pairs=pairs
    )


@pytest.mark.parametrize("eps", [1e-6, 1e-5])
@pytest.mark.parametrize("scale", SCALES)
def test_rms_norm_is_torchs_at_every_scale_of_its_input(scale, eps, dtype):
    ours, theirs = RMSNorm(D_MODEL, eps).to(dtype), nn.RMSNorm(D_MODEL, eps, dtype=dtype)
    pairs = copy_weights(ours, theirs, same((ours, theirs)))
    x = torch.randn(BATCH, N_KEY, D_MODEL, dtype=dtype) + 0.5
    assert_same(lambda x: ours(scale * x), lambda x: theirs(scale * x), x, pairs=pairs)
    assert_same(lambda x: rms_norm(scale * x, ours.weight, eps), lambda x: theirs(scale * x), x, pairs=pairs)


def test_norms_without_weights_are_torchs(dtype):
    x = torch.randn(BATCH, N_KEY, D_MODEL, dtype=dtype)
    assert_same(layer_norm, lambda x: F.layer_norm(x, (D_MODEL,)), x)
    assert_same(rms_norm, lambda x: F.rms_norm(x, (D_MODEL,), eps=1e-6), x)


FUNCTIONS = {"relu": nn.ReLU(), "gelu": nn.GELU(), "gelu tanh": nn.GELU(approximate="tanh"), "silu": nn.SiLU()}


def test_every_activation_is_held_to_torch():
    assert {*FUNCTIONS} == {*PLAIN} and {*GATED} == {*GATES}


@pytest.mark.parametrize("bias", [True, False], ids=["bias", "no bias"])
@pytest.mark.parametrize("activation", FUNCTIONS)
def test_a_plain_feed_forward_network_is_two_linear_layers_and_torchs_function(activation, bias, dtype):
    ours = FeedForward(D_MODEL, D_FF, activation, bias).to(dtype)
    up, down = nn.Linear(D_MODEL, D_FF, bias, dtype=dtype), nn.Linear(D_FF, D_MODEL, bias, dtype=dtype)
    theirs = nn.Sequential(up, FUNCTIONS[activation], down)
    pairs = copy_weights(ours, theirs, same((ours.up, up), (ours.down, down)))
    assert_same(ours, theirs, torch.randn(BATCH, N_KEY, D_MODEL, dtype=dtype), pairs=pairs)


# What torch's F.glu does with σ: the first half, times a function of the second.
GATED = {
    "glu": F.glu,
    "geglu": lambda both: both.chunk(2, -1)[0] * F.gelu(both.chunk(2, -1)[1]),
    "geglu tanh": lambda both: both.chunk(2, -1)[0] * F.gelu(both.chunk(2, -1)[1], approximate="tanh"),
    "swiglu": lambda both: both.chunk(2, -1)[0] * F.silu(both.chunk(2, -1)[1]),
    "reglu": lambda both: both.chunk(2, -1)[0] * F.relu(both.chunk(2, -1)[1]),
}


@pytest.mark.parametrize("bias", [True, False], ids=["bias", "no bias"])
@pytest.mark.parametrize("activation", GATED)
def test_a_gated_feed_forward_network_is_one_wide_layer_cut_in_two(activation, bias, dtype):
    ours = FeedForward(D_MODEL, D_FF, activation, bias).to(dtype)
    wide, down = nn.Linear(D_MODEL, 2 * D_FF, bias, dtype=dtype), nn.Linear(D_FF, D_MODEL, bias, dtype=dtype)
    pairs = [*slices(ours.up, ours.gate, weight=wide.weight, bias=wide.bias), *same((ours.down, down))]
    copy_weights(ours, nn.ModuleList([wide, down]), pairs)
    x = torch.randn(BATCH, N_KEY, D_MODEL, dtype=dtype)
    assert_same(ours, lambda x: down(GATED[activation](wide(x))), x, pairs=pairs)


# Blocks and stacks


def block_of_torch(ours, theirs):
    norms = [theirs.norm1, theirs.norm2] + ([theirs.norm3] if ours.cross is not None else [])
    yield from attention_of_torch(ours.attention.sublayer, theirs.self_attn)
    if ours.cross is not None:
        yield from attention_of_torch(ours.cross.sublayer, theirs.multihead_attn)
        yield from same((ours.cross.norm, norms[1]))
    yield from same((ours.attention.norm, norms[0]), (ours.ff.norm, norms[-1]))
    yield from same((ours.ff.sublayer.up, theirs.linear1), (ours.ff.sublayer.down, theirs.linear2))


def stack_of_torch(ours, theirs):
    for block, layer in zip(ours.blocks, theirs.layers, strict=True):
        yield from block_of_torch(block, layer)
    yield from same((ours.norm, theirs.norm))


def torch_layer(kind, place, activation, bias, dtype):
    return kind(
        D_MODEL, HEADS, D_FF, 0.0, activation, batch_first=True, norm_first=place == "pre", bias=bias, dtype=dtype
    )


blocks = pytest.mark.parametrize(
    ("place", "activation", "bias", "train"),
    [*itertools.product(("pre", "post"), ("relu", "gelu"), (True, False), (True, False))],
)


@blocks
def test_a_block_is_torchs_encoder_layer(place, activation, bias, train, dtype):
    ours = Block(config(norm_place=place, activation=activation, bias=bias)).to(dtype).train(train)
    theirs = torch_layer(nn.TransformerEncoderLayer, place, activation, bias, dtype).train(train)
    pairs = copy_weights(ours, theirs, block_of_torch(ours, theirs))
    x, mask = torch.randn(BATCH, N_KEY, D_MODEL, dtype=dtype), padding()
    assert_same(
        lambda x: ours(x, mask), lambda x: theirs(x, src_key_padding_mask=~mask.squeeze(1)), x, pairs=pairs
    )
    with torch.no_grad():                                        # in eval mode, torch's other, fused implementation
        assert_close(ours(x), theirs(x))


@blocks
def test_a_causal_block_with_a_memory_is_torchs_decoder_layer(place, activation, bias, train, dtype):
    choices = config(norm_place=place, activation=activation, bias=bias)
    ours = Block(choices, causal=True, cross=True).to(dtype).train(train)
    theirs = torch_layer(nn.TransformerDecoderLayer, place, activation, bias, dtype).train(train)
    pairs = copy_weights(ours, theirs, block_of_torch(ours, theirs))
    x, memory = torch.randn(BATCH, N_QUERY, D_MODEL, dtype=dtype), torch.randn(BATCH, N_KEY, D_MODEL, dtype=dtype)
    own, mask = padding(torch.tensor([4, 1, 3]), N_QUERY), padding()

    def torchs(x, memory):
        return theirs(
            x,
            memory,
            tgt_mask=~causal_mask(N_QUERY),
            tgt_key_padding_mask=~own.squeeze(1),
            memory_key_padding_mask=~mask.squeeze(1),
        )

    assert_same(lambda x, memory: ours(x, own, Memory(memory, mask)), torchs, x, memory, pairs=pairs)


@pytest.mark.parametrize("place", ["pre", "post"])
def test_a_stack_is_torchs_encoder(place, dtype):
    ours = Stack(config(norm_place=place, final_norm=True)).to(dtype)
    layer = torch_layer(nn.TransformerEncoderLayer, place, "relu", True, dtype)
    theirs = nn.TransformerEncoder(layer, 2, nn.LayerNorm(D_MODEL, dtype=dtype), enable_nested_tensor=False)
    pairs = copy_weights(ours, theirs, stack_of_torch(ours, theirs))
    x, mask = torch.randn(BATCH, N_KEY, D_MODEL, dtype=dtype), padding()
    assert_same(
        lambda x: ours(x, mask), lambda x: theirs(x, src_key_padding_mask=~mask.squeeze(1)), x, pairs=pairs
    )


@pytest.mark.parametrize("place", ["pre", "post"])
def test_a_causal_stack_with_a_memory_is_torchs_decoder(place, dtype):
    ours = Stack(config(norm_place=place, final_norm=True), n_layers=3, causal=True, cross=True).to(dtype)
    layer = torch_layer(nn.TransformerDecoderLayer, place, "relu", True, dtype)
    theirs = nn.TransformerDecoder(layer, 3, nn.LayerNorm(D_MODEL, dtype=dtype))
    pairs = copy_weights(ours, theirs, stack_of_torch(ours, theirs))
    x, memory = torch.randn(BATCH, N_QUERY, D_MODEL, dtype=dtype), torch.randn(BATCH, N_KEY, D_MODEL, dtype=dtype)
    mask = padding()

    def torchs(x, memory):
        forbidden = ~causal_mask(N_QUERY)
        return theirs(x, memory, forbidden, memory_key_padding_mask=~mask.squeeze(1), tgt_is_causal=True)

    assert_same(lambda x, memory: ours(x, memory=Memory(memory, mask)), torchs, x, memory, pairs=pairs)


# The whole Transformer


class TorchTransformer(nn.Module):
    """nn.Transformer, with the embeddings and the output that it leaves to its user."""

    def __init__(self, words_target, place):
        super().__init__()
        self.source, self.target = nn.Embedding(WORDS, D_MODEL), nn.Embedding(words_target, D_MODEL)
        self.source_positions, self.target_positions = nn.Embedding(16, D_MODEL), nn.Embedding(16, D_MODEL)
        self.transformer = nn.Transformer(
            D_MODEL, HEADS, 2, 3, D_FF, dropout=0.0, batch_first=True, norm_first=place == "pre"
        )
        self.output = nn.Linear(D_MODEL, words_target, bias=False)

    def forward(self, source, lengths, target):
        ignored = torch.arange(source.shape[1]) >= lengths[:, None]                # (batch, n_source)
        states = self.transformer(
            D_MODEL**0.5 * self.source(source) + self.source_positions.weight[: source.shape[1]],
            D_MODEL**0.5 * self.target(target) + self.target_positions.weight[: target.shape[1]],
            tgt_mask=torch.ones(target.shape[1], target.shape[1], dtype=torch.bool).triu(1),
            src_key_padding_mask=ignored,
            memory_key_padding_mask=ignored,
        )
        return self.output(states)                                                 # (batch, n_target, words_target)


def tokens(n, words=WORDS):
    return torch.randint(1, words, (BATCH, n))


@pytest.mark.filterwarnings("ignore:enable_nested_tensor is True")
@pytest.mark.parametrize("place", ["pre", "post"])
def test_an_encoder_decoder_is_torchs_transformer_between_embeddings(place, dtype):
    choices = dict(n_layers_decoder=3, target_vocab_size=9, norm_place=place, final_norm=True, positions="learned")
    ours = EncoderDecoder(config(scale_embedding=True, tie_output=False, **choices)).to(dtype)
    theirs = TorchTransformer(9, place).to(dtype)
    embeddings = ours.encoder.embedding, ours.decoder.embedding
    pairs = copy_weights(
        ours,
        theirs,
        [
            *same((embeddings[0].tokens, theirs.source), (embeddings[1].tokens, theirs.target)),
            Pair(embeddings[0].positions.table, theirs.source_positions.weight),
            Pair(embeddings[1].positions.table, theirs.target_positions.weight),
            *stack_of_torch(ours.encoder.stack, theirs.transformer.encoder),
            *stack_of_torch(ours.decoder.stack, theirs.transformer.decoder),
            *same((ours.output, theirs.output)),
        ],
    )
    batch = tokens(N_KEY), LENGTHS, tokens(N_QUERY, 9)
    assert_same(lambda: ours(*batch), lambda: theirs(*batch), pairs=pairs)


# One answer by every way to it


variants = pytest.mark.parametrize(
    ("positions", "n_kv_heads"),
    [(scheme, None) for scheme in SCHEMES] + [("rope", 2), ("shaw", 2), ("bucketed", 1), ("learned", 1)],
)


def built(kind, dtype, **choices):
    model = kind(config(**choices)).to(dtype)
    randomise(model)
    return model


@variants
@pytest.mark.parametrize("pieces", [[1] * 12, [12], [5, 1, 4, 2], [1, 11]], ids=str)
def test_a_language_model_reads_in_pieces_what_it_reads_at_once(pieces, positions, n_kv_heads, dtype):
    model = built(LanguageModel, dtype, positions=positions, n_kv_heads=n_kv_heads).eval()
    text = tokens(12)
    with torch.no_grad():
        logits, state, n = model(text), model.start(), 0
        for piece in text.split(pieces, dim=1):
            n += piece.shape[1]
            assert_close(model.read(piece, state), logits[:, n - 1], f"after {n} tokens")
            assert state.length == n


@variants
@pytest.mark.parametrize("pieces", [[1] * 12, [12], [5, 1, 4, 2]], ids=str)
def test_an_encoder_decoder_writes_in_pieces_what_it_writes_at_once(pieces, positions, n_kv_heads, dtype):
    model = built(EncoderDecoder, dtype, positions=positions, n_kv_heads=n_kv_heads).eval()
    source, target = tokens(N_KEY), tokens(12)
    with torch.no_grad():
        logits, state = model(source, LENGTHS, target), model.start(source, LENGTHS)
        states = [model.decoder(piece, state.memory, state.caches) for piece in target.split(pieces, dim=1)]
        assert_close(model.output(torch.cat(states, dim=1)), logits)


@variants
@pytest.mark.parametrize("kind", [LanguageModel, EncoderDecoder], ids=["language model", "encoder–decoder"])
def test_stepping_with_other_rows_selected_is_reading_those_rows(kind, positions, n_kv_heads, dtype):
    model = built(kind, dtype, positions=positions, n_kv_heads=n_kv_heads).eval()
    source, text, after, rows = tokens(N_KEY), tokens(4), torch.randint(1, WORDS, (4, 3)), torch.tensor([2, 0, 2, 1])
    whole = torch.cat([text[rows], after], dim=1)                                  # (4, 4 + 3)
    with torch.no_grad():
        if kind is LanguageModel:
            state, logits = model.start(), model(whole)
        else:
            state, logits = model.start(source, LENGTHS), model(source[rows], LENGTHS[rows], whole)
        for token in text.unbind(1):
            model.step(token, state)
        assert state.select(rows) is state
        for n, token in enumerate(after.unbind(1), start=len(text[0])):
            assert_close(model.step(token, state)[0], logits[:, n], f"after {n + 1} tokens")


@variants
def test_asking_for_the_weights_changes_no_logit(positions, n_kv_heads, dtype):
    choices = dict(positions=positions, n_kv_heads=n_kv_heads)
    translator, writer = built(EncoderDecoder, dtype, **choices), built(LanguageModel, dtype, **choices)
    batch, text = (tokens(N_KEY), LENGTHS, tokens(N_QUERY)), tokens(12)
    parameters = [Pair(parameter, parameter) for parameter in translator.parameters()]
    assert_same(lambda: translator(*batch, with_weights=True)[0], lambda: translator(*batch), pairs=parameters)
    logits, weights = writer(text, with_weights=True)
    assert_close(logits, writer(text))
    assert weights.shape == (BATCH, 2, HEADS, 12, 12)
    looked = translator(*batch, with_weights=True)[1].cross                        # (batch, n_layers, n_heads, 4, 6)
    assert (looked.masked_select(~padding()[:, None, None]) == 0).all()
    assert_close(looked.sum(-1), torch.ones_like(looked.sum(-1)))


@pytest.mark.parametrize("kind", [LanguageModel, EncoderDecoder], ids=["language model", "encoder–decoder"])
def test_a_step_looks_where_the_full_pass_looks(kind, dtype):
    model = built(kind, dtype).eval()
    source, text = tokens(N_KEY), tokens(5)
    with torch.no_grad():
        if kind is LanguageModel:
            state, looked = model.start(), model(text, with_weights=True)[1]
        else:
            state, looked = model.start(source, LENGTHS), model(source, LENGTHS, text, with_weights=True)[1].cross
        for n, token in enumerate(text.unbind(1)):
            step = model.step(token, state, with_weights=True)[2]
            assert_close(step, looked[:, -1].mean(dim=1)[:, n, : step.shape[1]])


# (batch, n_target) each, ending where the target's last real token is. 0 is padding.
TARGET_IN = torch.tensor([[1, 5, 6, 7, 8], [1, 9, 4, 0, 0], [1, 0, 0, 0, 0]])
TARGET_OUT = torch.tensor([[5, 6, 7, 8, 2], [9, 4, 2, 0, 0], [2, 0, 0, 0, 0]])


def assert_same_loss(model, loss, logits, label_smoothing=0.0):
    """The value, and the gradient at every parameter."""
    parameters = dict(model.named_parameters())
    expected = F.cross_entropy(
        logits().flatten(0, 1), TARGET_OUT.flatten(), ignore_index=0, label_smoothing=label_smoothing
    )
    got = loss()
    assert_close(got, expected)
    gradients = [torch.autograd.grad(value, [*parameters.values()]) for value in (got, expected)]
    for name, ours, theirs in zip(parameters, *gradients, strict=True):
        assert_close(ours, theirs, name)


both_losses = pytest.mark.parametrize("loss_of", [lambda model: model.loss, unpadded_loss], ids=["loss", "unpadded"])


@variants
@both_losses
@pytest.mark.parametrize("label_smoothing", [0.0, 0.1])
def test_an_encoder_decoders_loss_is_the_cross_entropy_of_what_it_writes(
    label_smoothing, loss_of, positions, n_kv_heads, dtype
):
    model = built(EncoderDecoder, dtype, positions=positions, n_kv_heads=n_kv_heads)
    source = tokens(N_KEY) * padding().squeeze(1)
    assert_same_loss(
        model,
        lambda: loss_of(model)(source, LENGTHS, TARGET_IN, TARGET_OUT, label_smoothing),
        lambda: model(source, LENGTHS, TARGET_IN),
        label_smoothing,
    )


@variants
@both_losses
def test_a_language_models_loss_is_the_cross_entropy_of_what_it_writes(loss_of, positions, n_kv_heads, dtype):
    model = built(LanguageModel, dtype, positions=positions, n_kv_heads=n_kv_heads)
    assert_same_loss(model, lambda: loss_of(model)(TARGET_IN, TARGET_OUT), lambda: model(TARGET_IN))


def tells_the_order(**choices):
    model = built(Encoder, torch.float64, **choices).eval()
    text, order = torch.randperm(WORDS)[None, :N_KEY], torch.tensor([3, 0, 4, 1, 5, 2])
    return not torch.allclose(model(text)[:, order], model(text[:, order]))


@pytest.mark.parametrize("positions", SCHEMES)
def test_every_scheme_but_none_tells_an_encoder_the_order_of_its_tokens(positions):
    assert tells_the_order(positions=positions, norm="rms") == (positions != "none")


def test_a_layer_norm_in_front_takes_integer_positions_away_again():
    # The same number in every column moves the mean alone.
    assert not tells_the_order(positions="integer", norm="layer", norm_place="pre")
    assert tells_the_order(positions="integer", norm="layer", norm_place="post")
