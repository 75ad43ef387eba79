"""Our models, with the weights of transformers' GPT-2, Llama, Marian, BART, BERT and T5, compute what those compute."""

import pytest
import torch
from copying import TOLERANCE, Pair, assert_same, copy_weights, same, slices
from torch import nn
from transformers import (
    BartConfig,
    BartForConditionalGeneration,
    BertConfig,
    BertModel,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    MarianConfig,
    MarianMTModel,
    MistralConfig,
    MistralForCausalLM,
    T5Config,
    T5ForConditionalGeneration,
)
from transformers.models.llama import modeling_llama
from transformers.models.mistral import modeling_mistral
from transformers.models.t5 import modeling_t5

from attncourse.attention import lengths_to_mask
from attncourse.transformer import Encoder, EncoderDecoder, LanguageModel, TransformerConfig

BATCH, N_SOURCE, N_TARGET, D_MODEL, HEADS, D_FF, WORDS, LONGEST = 3, 9, 7, 16, 4, 24, 23, 32
LENGTHS = torch.tensor([9, 2, 6])
PAD, START = 0, 1


@pytest.fixture(params=TOLERANCE, ids=["float64", "float32"])
def dtype(request):
    return request.param


@pytest.fixture(params=["eager", "sdpa"])
def attention(request):
    return request.param


@pytest.fixture
def no_float32_inside(monkeypatch, dtype):
    """Llama, Mistral and T5 norm in float32, and the first two take angles in it: in float64, drop their casts."""

    def norm(self, x):
        return self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.variance_epsilon))

    def cos_and_sin(self, x, position_ids):
        width, theta = self.config.head_dim, self.config.rope_parameters["rope_theta"]
        inv_freq = 1 / theta ** (torch.arange(0, width, 2, dtype=x.dtype) / width)
        angles = (position_ids[..., None] * inv_freq).repeat(1, 1, 2)              # (batch, n, d_head)
        return angles.cos(), angles.sin()

    if dtype == torch.float64:
        for norms in (modeling_llama.LlamaRMSNorm, modeling_mistral.MistralRMSNorm):
            monkeypatch.setattr(norms, "forward", norm)
        for rotary in (modeling_llama.LlamaRotaryEmbedding, modeling_mistral.MistralRotaryEmbedding):
            monkeypatch.setattr(rotary, "forward", cos_and_sin)
        monkeypatch.setattr(modeling_t5.T5LayerNorm, "forward", norm)


def config(**choices):
    small = dict(vocab_size=WORDS, d_model=D_MODEL, n_heads=HEADS, d_ff=D_FF, max_length=LONGEST, dropout=0.0)
    return TransformerConfig(**small | choices)


def build(model, config, attention, dtype, **more):
    """Random weights, from a config alone: nothing is fetched."""
    config._attn_implementation = attention
    return model(config, **more).to(dtype).eval()


def tokens(n):
    return torch.randint(2, WORDS, (BATCH, n))                                     # neither padding nor the start


def padded_source():
    """(source, lengths) for ours, (input_ids, attention_mask) for theirs."""
    mask = lengths_to_mask(LENGTHS, N_SOURCE)                                      # (batch, n_source)
    source = tokens(N_SOURCE).masked_fill(~mask, PAD)
    return (source, LENGTHS), dict(input_ids=source, attention_mask=mask.long())


def attention_pairs(ours, *theirs):
    return same(*zip((ours.query, ours.key, ours.value, ours.output), theirs, strict=True))


# GPT-2


def gpt2_pairs(ours, theirs):
    theirs = theirs.transformer
    yield from same((ours.decoder.embedding.tokens, theirs.wte), (ours.decoder.stack.norm, theirs.ln_f))
    yield Pair(ours.decoder.embedding.positions.table, theirs.wpe.weight)
    for block, layer in zip(ours.decoder.stack.blocks, theirs.h, strict=True):
        heads, ff = block.attention.sublayer, block.ff.sublayer
        yield from same((block.attention.norm, layer.ln_1), (block.ff.norm, layer.ln_2))
        for linears, conv in (
            ((heads.query, heads.key, heads.value), layer.attn.c_attn),
            ((heads.output,), layer.attn.c_proj),
            ((ff.up,), layer.mlp.c_fc),
            ((ff.down,), layer.mlp.c_proj),
        ):
            # Their Conv1D is a linear layer that keeps its matrix the other way round.
            yield from slices(*linears, weight=conv.weight, bias=conv.bias, transposed=True)


def gpt2(attention, dtype):
    theirs = build(
        GPT2LMHeadModel,
        GPT2Config(
            vocab_size=WORDS, n_positions=LONGEST, n_embd=D_MODEL, n_layer=3, n_head=HEADS, n_inner=D_FF,
            layer_norm_epsilon=1e-5, bos_token_id=START, eos_token_id=None,
        ),
        attention,
        dtype,
    )
    ours = LanguageModel(config(positions="learned", activation="gelu tanh")).to(dtype).eval()
    return ours, theirs, copy_weights(ours, theirs, gpt2_pairs(ours, theirs))


def test_a_language_model_with_gpt2s_choices_is_gpt2(attention, dtype):
    ours, theirs, pairs = gpt2(attention, dtype)
    text = tokens(N_TARGET)
    assert_same(lambda: ours(text), lambda: theirs(text).logits, pairs=pairs)


def test_stepping_through_the_cache_writes_what_gpt2_generates(attention, dtype):
    ours, theirs, _ = gpt2(attention, dtype)
    prompt = tokens(4)
    expected = theirs.generate(
        prompt, attention_mask=torch.ones_like(prompt), pad_token_id=PAD, max_new_tokens=12, do_sample=False
    )
    with torch.no_grad():
        state, written = ours.start(), [prompt]
        logits = ours.read(prompt, state)
        for _ in range(12):
            written.append(logits.argmax(-1, keepdim=True))
            logits, state, _ = ours.step(written[-1].squeeze(1), state)
    assert torch.equal(torch.cat(written, dim=1), expected)


# Llama


def llama_pairs(ours, theirs):
    yield from same((ours.decoder.embedding.tokens, theirs.model.embed_tokens), (ours.output, theirs.lm_head))
    yield from same((ours.decoder.stack.norm, theirs.model.norm))
    for block, layer in zip(ours.decoder.stack.blocks, theirs.model.layers, strict=True):
        its, ff = layer.self_attn, block.ff.sublayer
        yield from attention_pairs(block.attention.sublayer, its.q_proj, its.k_proj, its.v_proj, its.o_proj)
        yield from same((block.attention.norm, layer.input_layernorm), (block.ff.norm, layer.post_attention_layernorm))
        yield from same((ff.gate, layer.mlp.gate_proj), (ff.up, layer.mlp.up_proj), (ff.down, layer.mlp.down_proj))


@pytest.mark.parametrize("n_kv_heads", [HEADS, 2, 1])
@pytest.mark.usefixtures("no_float32_inside")
def test_a_language_model_with_llamas_choices_is_llama(n_kv_heads, dtype):
    theirs = build(
        LlamaForCausalLM,
        LlamaConfig(
            vocab_size=WORDS, hidden_size=D_MODEL, head_dim=6, intermediate_size=D_FF, num_hidden_layers=3,
            num_attention_heads=HEADS, num_key_value_heads=n_kv_heads, max_position_embeddings=LONGEST,
            rms_norm_eps=1e-5, rope_parameters=dict(rope_type="default", rope_theta=500.0),
        ),
        "sdpa",  # their eager softmax is float32
        dtype,
    )
    ours = LanguageModel(
        config(
            norm="rms", norm_eps=1e-5, activation="swiglu", positions="rope", rope_style="half", rope_base=500.0,
            d_head=6, n_kv_heads=n_kv_heads, bias=False, tie_output=False,
        )
    ).to(dtype).eval()
    pairs = copy_weights(ours, theirs, llama_pairs(ours, theirs))
    text = tokens(20)
    assert_same(lambda: ours(text), lambda: theirs(text).logits, pairs=pairs)


def mistral(dtype):
    theirs = build(
        MistralForCausalLM,
        MistralConfig(
            vocab_size=WORDS, hidden_size=D_MODEL, head_dim=6, intermediate_size=D_FF, num_hidden_layers=3,
            num_attention_heads=HEADS, num_key_value_heads=2, max_position_embeddings=LONGEST, sliding_window=3,
            rms_norm_eps=1e-5, rope_parameters=dict(rope_type="default", rope_theta=500.0), eos_token_id=None,
        ),
        "sdpa",  # their eager softmax is float32
        dtype,
    )
    ours = LanguageModel(
        config(
            norm="rms", norm_eps=1e-5, activation="swiglu", positions="rope", rope_style="half", rope_base=500.0,
            d_head=6, n_kv_heads=2, bias=False, tie_output=False, window=3,
        )
    ).to(dtype).eval()
    return ours, theirs, copy_weights(ours, theirs, llama_pairs(ours, theirs))


@pytest.mark.usefixtures("no_float32_inside")
def test_a_language_model_with_mistrals_choices_is_mistral_window_and_all(dtype):
    ours, theirs, pairs = mistral(dtype)
    text = tokens(20)
    assert_same(lambda: ours(text), lambda: theirs(text).logits, pairs=pairs)


@pytest.mark.usefixtures("no_float32_inside")
def test_stepping_through_the_forgetting_cache_writes_what_mistral_generates(dtype):
    ours, theirs, _ = mistral(dtype)
    prompt = tokens(5)
    expected = theirs.generate(
        prompt, attention_mask=torch.ones_like(prompt), pad_token_id=PAD, max_new_tokens=14, do_sample=False
    )
    with torch.no_grad():
        state, written = ours.start(), [prompt]
        logits = ours.read(prompt, state)
        for _ in range(14):
            written.append(logits.argmax(-1, keepdim=True))
            logits, state, _ = ours.step(written[-1].squeeze(1), state)
    assert torch.equal(torch.cat(written, dim=1), expected)


# Marian and BART, one shape


def bart_pairs(ours, theirs, read=lambda table: table):
    """`read` gives the rows of their tables of positions that are read at all."""
    yield from same((ours.encoder.embedding.tokens, theirs.model.shared))
    for mine, its in ((ours.encoder, theirs.model.encoder), (ours.decoder, theirs.model.decoder)):
        yield Pair(mine.embedding.positions.table, its.embed_positions.weight, read)
        if not isinstance(mine.embedding.norm, nn.Identity):
            yield from same((mine.embedding.norm, its.layernorm_embedding))
        for block, layer in zip(mine.stack.blocks, its.layers, strict=True):
            residuals = [(block.attention, layer.self_attn, layer.self_attn_layer_norm)]
            if block.cross is not None:
                residuals += [(block.cross, layer.encoder_attn, layer.encoder_attn_layer_norm)]
            for residual, heads, norm in residuals:
                yield from attention_pairs(residual.sublayer, heads.q_proj, heads.k_proj, heads.v_proj, heads.out_proj)
                yield from same((residual.norm, norm))
            ff = block.ff.sublayer
            yield from same((block.ff.norm, layer.final_layer_norm), (ff.up, layer.fc1), (ff.down, layer.fc2))


# Marian's config and BART's: three layers to read, two to write.
SIZES = dict(
    vocab_size=WORDS, d_model=D_MODEL, encoder_layers=3, decoder_layers=2, max_position_embeddings=LONGEST,
    encoder_attention_heads=HEADS, decoder_attention_heads=HEADS, encoder_ffn_dim=D_FF, decoder_ffn_dim=D_FF,
    pad_token_id=PAD, decoder_start_token_id=START, eos_token_id=None, forced_eos_token_id=None,
)
OURS = dict(n_layers=3, n_layers_decoder=2, norm_place="post", positions="learned")


def marian(attention, dtype):
    choices = MarianConfig(**SIZES, activation_function="swish", scale_embedding=True)
    theirs = build(MarianMTModel, choices, attention, dtype)
    # Their positions are sinusoids in another order, so ours are "learned" and given their table.
    ours = EncoderDecoder(config(**OURS, activation="silu", scale_embedding=True)).to(dtype).eval()
    return ours, theirs, copy_weights(ours, theirs, bart_pairs(ours, theirs))


def test_an_encoder_decoder_with_marians_choices_is_marian(attention, dtype):
    ours, theirs, pairs = marian(attention, dtype)
    (mine, its), target = padded_source(), tokens(N_TARGET)
    assert_same(lambda: ours(*mine, target), lambda: theirs(**its, decoder_input_ids=target).logits, pairs=pairs)


def test_our_sinusoids_are_marians_in_another_order(dtype):
    _, theirs, _ = marian("sdpa", dtype)
    ours = EncoderDecoder(config(positions="sinusoidal")).to(dtype).encoder.embedding.positions(LONGEST)
    table = theirs.model.encoder.embed_positions.weight                            # computed by them in float32
    torch.testing.assert_close(torch.cat([ours[:, ::2], ours[:, 1::2]], dim=1), table, rtol=0, atol=1e-6)


def test_stepping_through_the_cache_writes_what_marian_generates(attention, dtype):
    ours, theirs, _ = marian(attention, dtype)
    mine, its = padded_source()
    expected = theirs.generate(**its, max_new_tokens=12, do_sample=False, num_beams=1)
    with torch.no_grad():
        state, written = ours.start(*mine), [torch.full((BATCH,), START)]
        for _ in range(12):
            logits, state, _ = ours.step(written[-1], state)
            written.append(logits.argmax(-1))
    assert torch.equal(torch.stack(written, dim=1), expected)


def test_an_encoder_decoder_with_barts_choices_is_bart(attention, dtype):
    choices = BartConfig(**SIZES, activation_function="gelu")
    theirs = build(BartForConditionalGeneration, choices, attention, dtype)
    ours = EncoderDecoder(config(**OURS, activation="gelu", embedding_norm=True)).to(dtype).eval()
    pairs = copy_weights(ours, theirs, bart_pairs(ours, theirs, read=lambda table: table[2:]))
    (mine, its), target = padded_source(), tokens(N_TARGET)
    assert_same(lambda: ours(*mine, target), lambda: theirs(**its, decoder_input_ids=target).logits, pairs=pairs)


# BERT


def bert_pairs(ours, theirs):
    embedding, its = ours.embedding, theirs.embeddings
    yield from same((embedding.tokens, its.word_embeddings), (embedding.segments, its.token_type_embeddings))
    yield Pair(embedding.positions.table, its.position_embeddings.weight)
    yield from same((embedding.norm, its.LayerNorm))
    for block, layer in zip(ours.stack.blocks, theirs.encoder.layer, strict=True):
        heads, after, ff = layer.attention.self, layer.attention.output, block.ff.sublayer
        yield from attention_pairs(block.attention.sublayer, heads.query, heads.key, heads.value, after.dense)
        yield from same((block.attention.norm, after.LayerNorm), (block.ff.norm, layer.output.LayerNorm))
        yield from same((ff.up, layer.intermediate.dense), (ff.down, layer.output.dense))


def test_an_encoder_with_berts_choices_is_bert(attention, dtype):
    theirs = build(
        BertModel,
        BertConfig(
            vocab_size=WORDS, hidden_size=D_MODEL, intermediate_size=D_FF, num_hidden_layers=3,
            num_attention_heads=HEADS, max_position_embeddings=LONGEST, type_vocab_size=2, layer_norm_eps=1e-12,
            pad_token_id=PAD,
        ),
        attention,
        dtype,
        add_pooling_layer=False,
    )
    ours = Encoder(
        config(
            positions="learned", norm_place="post", norm_eps=1e-12, embedding_norm=True, n_segments=2,
            activation="gelu",
        )
    ).to(dtype).eval()
    pairs = copy_weights(ours, theirs, bert_pairs(ours, theirs))
    (mine, its), segments = padded_source(), torch.randint(2, (BATCH, N_SOURCE))
    real = its["attention_mask"].bool()                                            # what stands after it means nothing
    assert_same(
        lambda: ours(*mine, segments)[real],
        lambda: theirs(**its, token_type_ids=segments).last_hidden_state[real],
        pairs=pairs,
    )


# T5


def t5_pairs(ours, theirs):
    yield from same((ours.encoder.embedding.tokens, theirs.shared))
    for stack, its in ((ours.encoder.stack, theirs.encoder), (ours.decoder.stack, theirs.decoder)):
        yield from same((stack.norm, its.final_layer_norm))
        # Their first layer keeps the biases of all.
        yield Pair(stack.bias.bias.weight, its.block[0].layer[0].SelfAttention.relative_attention_bias.weight)
        for block, layer in zip(stack.blocks, its.block, strict=True):
            own, *cross, ff = layer.layer
            heads = own.SelfAttention
            yield from attention_pairs(block.attention.sublayer, heads.q, heads.k, heads.v, heads.o)
            for each in cross:
                heads = each.EncDecAttention
                yield from attention_pairs(block.cross.sublayer, heads.q, heads.k, heads.v, heads.o)
                yield from same((block.cross.norm, each.layer_norm))
            yield from same((block.attention.norm, own.layer_norm), (block.ff.norm, ff.layer_norm))
            for linear, name in ((block.ff.sublayer.up, "wi"), (block.ff.sublayer.down, "wo")):
                yield from same((linear, ff.DenseReluDense.get_submodule(name)))


@pytest.mark.parametrize("scaled", [True, False], ids=["scaled before the output", "not scaled"])
@pytest.mark.usefixtures("no_float32_inside")
def test_an_encoder_decoder_with_t5s_choices_is_t5(scaled, attention, dtype):
    theirs = build(
        T5ForConditionalGeneration,
        T5Config(
            vocab_size=WORDS, d_model=D_MODEL, d_kv=6, d_ff=D_FF, num_layers=2, num_decoder_layers=3, num_heads=HEADS,
            relative_attention_num_buckets=8, relative_attention_max_distance=7, layer_norm_epsilon=1e-5,
            feed_forward_proj="relu", pad_token_id=PAD, decoder_start_token_id=START,
            # In transformers, whether to scale the states before the output; the matrices are tied either way.
            tie_word_embeddings=scaled,
        ),
        attention,
        dtype,
    )
    ours = EncoderDecoder(
        config(
            positions="bucketed", n_buckets=8, max_distance=7, norm="rms", norm_eps=1e-5, bias=False,
            scale_scores=False, d_head=6, n_layers=2, n_layers_decoder=3,
        )
    ).to(dtype).eval()
    pairs = copy_weights(ours, theirs, t5_pairs(ours, theirs))
    (mine, its), target = padded_source(), tokens(12)
    # Ours leaves the scale to its user; the output has no bias, so it may as well be multiplied after it.
    scale = D_MODEL**-0.5 if scaled else 1.0
    assert_same(
        lambda: scale * ours(*mine, target), lambda: theirs(**its, decoder_input_ids=target).logits, pairs=pairs
    )
