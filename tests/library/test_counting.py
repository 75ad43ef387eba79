"""What is counted from a config is what the built model has and does, and what the papers printed."""

from collections import Counter
from dataclasses import replace
from typing import get_args

import pytest
import torch
import torch.utils.checkpoint
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from torch.utils.flop_counter import FlopCounterMode, sdpa_flop_count
from transformers import T5Config, T5ForConditionalGeneration

from attncourse.counting import (
    GPT_3_REPAIRS,
    GPT_3_TABLE,
    LAYER_KINDS,
    MODELS,
    PRESETS,
    Flops,
    Parameters,
    attention_share,
    cache_bytes,
    count_flops,
    count_parameters,
    count_training_flops,
    layer_cost,
    preset,
    saved_activation_bytes,
)
from attncourse.layers import ACTIVATIONS
from attncourse.transformer import Encoder, EncoderDecoder, LanguageModel, Memory, Positions, TransformerConfig

every_preset = pytest.mark.parametrize("name", PRESETS)
every_model = pytest.mark.parametrize("model", MODELS, ids=lambda model: model.__name__)
SMALL = TransformerConfig(vocab_size=13, d_model=16, n_layers=2, n_layers_decoder=3, max_length=9, dropout=0.0)


def build(config, model):
    """On the meta device, where tensors have shapes and no memory: GPT-3 takes a tenth of a second."""
    with torch.device("meta"):
        return model(config).eval()


def part(name):
    """Which part of a model the parameter of this name belongs to."""
    if ".norm." in name:
        return "norms"
    if any(word in name for word in ("positions", "relative", "stack.bias")):
        return "positions"
    for word, its_part in (("embedding", "embedding"), ("cross", "cross_attention"), ("attention", "attention")):
        if word in name:
            return its_part
    return "feed_forward" if ".ff." in name else "output"


def built_parameters(config, model):
    counted = Counter({name: 0 for name in Parameters._fields})
    for name, parameter in build(config, model).named_parameters():                # a shared one comes once
        counted[part(name)] += parameter.numel()
    return Parameters(**counted)


def forward(model, batch, n, n_target=None, device="meta"):
    """The model's output; an encoder–decoder's without its look at the lengths, which meta tensors do not have."""
    x, y = (torch.zeros(batch, each or n, dtype=torch.long, device=device) for each in (n, n_target))
    return model.output(model.decoder(y, Memory(model.encoder(x)))) if isinstance(model, EncoderDecoder) else model(x)


def flops_of(call, **more):
    with FlopCounterMode(display=False, **more) as counter:
        result = call()
    return counter.get_total_flops(), counter.get_flop_counts(), result


@st.composite
def configs(draw, positions=None):
    """Every field that a count could depend on, and some that it must not depend on."""
    whole, yes = st.integers, st.booleans()
    n_kv_heads = draw(whole(1, 3))
    n_heads = n_kv_heads * draw(whole(1, 2))
    return TransformerConfig(
        vocab_size=draw(whole(1, 20)),
        target_vocab_size=draw(st.none() | whole(1, 20)),
        d_model=4 * n_heads * draw(whole(1, 2)),                                   # heads of even width, as RoPE asks
        n_layers=draw(whole(1, 2)),
        n_layers_decoder=draw(st.none() | whole(1, 3)),
        n_heads=n_heads,
        n_kv_heads=draw(st.sampled_from([None, n_kv_heads])),
        d_head=draw(st.sampled_from([None, 2, 6])),
        d_ff=draw(st.none() | whole(1, 20)),
        activation=draw(st.sampled_from(ACTIVATIONS)),
        norm=draw(st.sampled_from(["layer", "rms"])),
        norm_place=draw(st.sampled_from(["pre", "post"])),
        final_norm=draw(st.none() | yes),
        embedding_norm=draw(yes),
        positions=positions or draw(st.sampled_from(get_args(Positions))),
        max_length=draw(whole(8, 12)),
        max_distance=draw(whole(7, 12)),
        n_buckets=draw(whole(4, 12)),
        rope_style=draw(st.sampled_from(["half", "interleaved"])),
        scale_scores=draw(yes),
        scale_embedding=draw(yes),
        n_segments=draw(whole(0, 3)),
        tie_output=draw(yes),
        output_bias=draw(yes),
        share_embedding=draw(yes),
        bias=draw(yes),
        dropout=draw(st.sampled_from([0.0, 0.1])),
    )


lengths = st.integers(1, 8)
PHASES = (Phase.generate, Phase.shrink)                           # explaining a failure takes a minute and more


# Parameters


@every_preset
def test_the_parameters_of_every_published_size_are_those_of_the_built_model(name):
    config, model, *_ = preset(name)
    assert count_parameters(config, model) == built_parameters(config, model)


@every_model
@pytest.mark.parametrize("positions", get_args(Positions))
@settings(max_examples=6, deadline=None, derandomize=True, phases=PHASES)
@given(data=st.data())
def test_the_parameters_of_any_config_are_those_of_the_built_model(model, positions, data):
    config = data.draw(configs(positions))
    assert count_parameters(config, model) == built_parameters(config, model)


RELEASED = {
    "bert base": 109_482_240 - (768**2 + 768),                                     # without the pooler
    "t5 small": 60_506_624,
    "t5 base": 222_903_552,
    "gpt-2 small": 124_439_808,
    "llama 2 7b": 6_738_415_616,
    "llama 3 8b": 8_030_261_248,
}


@pytest.mark.parametrize("name", RELEASED)
def test_the_count_is_that_of_the_released_weights_to_the_last_one(name):
    config, model, *_ = preset(name)
    assert count_parameters(config, model).total == RELEASED[name]


@pytest.mark.parametrize("name", ["t5 small", "t5 base"])
def test_t5s_count_is_that_of_transformers_t5(name):
    config, model, *_ = preset(name)
    theirs = T5Config(
        vocab_size=config.vocab_size, d_model=config.d_model, d_kv=config.d_head, d_ff=config.d_ff,
        num_layers=config.n_layers, num_heads=config.n_heads,
    )  # fmt: skip
    with torch.device("meta"):
        built = T5ForConditionalGeneration(theirs)
    assert count_parameters(config, model).total == sum(parameter.numel() for parameter in built.parameters())


# Where the count does not round to what was printed; each preset's note says why.
OTHERWISE = {
    "vaswani base": "63M",
    "vaswani big": "214M",
    "bert base": "109M",
    "t5 small": "61M",
    "t5 base": "223M",
    "gpt-2 small": "124M",
    "gpt-3 medium": "356M",
    "gpt-3 13b": "12.9B",
    "gpt-3 175b": "174.6B",
}


@pytest.mark.parametrize("name", [name for name, size in PRESETS.items() if size.printed])
def test_the_count_rounds_to_what_was_printed_or_the_note_says_what_else(name):
    config, model, printed, _, note = preset(name)
    digits, unit = printed[:-1], {"M": 1e6, "B": 1e9}[printed[-1]]
    decimals = len(digits.partition(".")[2])
    ours = f"{count_parameters(config, model).total / unit:.{decimals}f}{printed[-1]}"
    assert ours == OTHERWISE.get(name, printed)
    assert name not in OTHERWISE or (ours != printed and note)


def test_no_one_vocabulary_gives_both_of_vaswanis_counts():
    def in_millions(name, words):
        config, model, *_ = preset(name)
        return round(count_parameters(replace(config, vocab_size=words), model).total / 1e6)

    vocabularies = range(30_000, 50_000, 100)
    base = [words for words in vocabularies if in_millions("vaswani base", words) == 65]
    big = [words for words in vocabularies if in_millions("vaswani big", words) == 213]
    assert (min(base), max(base)) == (39_800, 41_700)
    assert (min(big), max(big)) == (35_300, 36_200)


# GPT-3's tables


def test_two_rows_of_gpt_3s_table_do_not_multiply_out():
    assert {row.name for row in GPT_3_TABLE if not row.multiplies_out} == {"gpt-3 xl", "gpt-3 13b"} == {*GPT_3_REPAIRS}


def test_every_gpt_3_that_we_build_multiplies_out():
    for row in GPT_3_TABLE:
        config = preset(row.name).config
        assert config.n_heads * config.width_head == config.d_model
        assert config.n_layers == row.n_layers


# Brown et al. 2020, table D.1: parameters in millions, to a million below a thousand and to ten above.
TABLE_D1 = {
    "gpt-3 small": 125, "gpt-3 medium": 356, "gpt-3 large": 760, "gpt-3 xl": 1320, "gpt-3 2.7b": 2650,
    "gpt-3 6.7b": 6660, "gpt-3 13b": 12850, "gpt-3 175b": 174600,
}  # fmt: skip


def millions(config):
    count = count_parameters(config, LanguageModel).total / 1e6
    return round(count) if count < 1000 else round(count, -1)


@pytest.mark.parametrize("name", TABLE_D1)
def test_the_counts_of_gpt_3_round_to_those_of_the_papers_second_table(name):
    assert millions(preset(name).config) == TABLE_D1[name]


@pytest.mark.parametrize("row", [row for row in GPT_3_TABLE if row.name in GPT_3_REPAIRS], ids=lambda row: row.name)
def test_a_row_taken_as_printed_does_not_give_the_second_tables_count(row):
    config = replace(preset(row.name).config, d_model=row.d_model, n_heads=row.n_heads, d_head=row.d_head)
    assert millions(config) != TABLE_D1[row.name]


def test_six_n_times_the_tokens_is_the_compute_that_gpt_3_printed():
    tokens = 300e9
    rule = 6 * count_parameters(preset("gpt-3 175b").config, LanguageModel).total * tokens
    assert f"{rule:.2E}" == "3.14E+23"                                             # table D.1; it ignores attention


# Narang et al. 2021, table 1: T5 base, deeper or shallower, at one count, 223M. Two decks misprint the last two widths.
@pytest.mark.parametrize("n_layers, d_ff, n_heads", [(18, 2048, 8), (8, 4608, 18), (6, 6144, 24)])
def test_the_shapes_that_were_compared_at_one_count_have_it(n_layers, d_ff, n_heads):
    config = replace(preset("t5 base").config, n_layers=n_layers, d_ff=d_ff, n_heads=n_heads)
    assert round(count_parameters(config, EncoderDecoder).total / 1e6) == 223


@pytest.mark.parametrize("n_layers, d_ff, n_heads", [(8, 4096, 18), (6, 1044, 24)])
def test_the_misprinted_widths_miss_that_count(n_layers, d_ff, n_heads):
    config = replace(preset("t5 base").config, n_layers=n_layers, d_ff=d_ff, n_heads=n_heads)
    assert count_parameters(config, EncoderDecoder).total < 215e6


# FLOPs


@every_preset
def test_the_flops_at_every_published_width_are_what_torch_counts(name):
    config, model, *_ = preset(name)
    config, n = replace(config, n_layers=min(config.n_layers, 4)), 512             # torch takes 15 ms a block to count
    counted, *_ = flops_of(lambda: forward(build(config, model).requires_grad_(False), 2, n))
    assert count_flops(config, model, 2, n).total == counted


@every_model
@settings(max_examples=15, deadline=None, derandomize=True, phases=PHASES)
@given(config=configs(), batch=st.integers(1, 3), n=lengths, n_target=lengths)
def test_the_flops_of_any_config_are_what_torch_counts_part_by_part(model, config, batch, n, n_target):
    n_target = n_target if model is EncoderDecoder else None
    counted, by_module, _ = flops_of(
        lambda: forward(build(config, model).requires_grad_(False), batch, n, n_target)
    )

    def those_of(*ends):
        return sum(sum(counts.values()) for name, counts in by_module.items() if name.endswith(ends))

    projections = those_of("sublayer.query", "sublayer.key", "sublayer.value", "sublayer.output")
    heads, feed_forward = those_of(".attention.sublayer", ".cross.sublayer"), those_of(".ff.sublayer")
    expected = Flops(projections, heads - projections, feed_forward, counted - heads - feed_forward)
    assert count_flops(config, model, batch, n, n_target) == expected


def test_a_real_pass_with_padding_does_the_flops_that_are_counted():
    def fused(query, key, value, *args, out_shape=None, **kwargs):                 # torch does not count the CPU's own
        return sdpa_flop_count(query, key, value)

    mapping = {torch.ops.aten._scaled_dot_product_flash_attention_for_cpu: fused}
    source, target = torch.ones(2, 7, dtype=torch.long), torch.ones(2, 5, dtype=torch.long)
    model, sizes = EncoderDecoder(SMALL), torch.tensor([7, 3])
    counted, by_module, _ = flops_of(lambda: model(source, sizes, target), custom_mapping=mapping)
    assert any("flash" in str(operation) for operation in by_module["Global"])
    assert count_flops(SMALL, EncoderDecoder, 2, 7, 5).total == counted


def test_a_causal_mask_does_not_make_fewer_flops():
    config = replace(SMALL, n_layers_decoder=SMALL.n_layers)
    one_way, both_ways = count_flops(config, LanguageModel, 1, 8), count_flops(config, Encoder, 1, 8)
    assert one_way.scores_and_average == both_ways.scores_and_average


@every_model
@pytest.mark.parametrize("positions", ["sinusoidal", "learned", "shaw", "bucketed", "rope"])
def test_a_training_step_is_three_forward_passes(model, positions):
    config = replace(SMALL, positions=positions, n_layers=1, n_layers_decoder=1)
    counted, *_ = flops_of(lambda: forward(build(config, model), 2, 8, 6).sum().backward())
    n_target = 6 if model is EncoderDecoder else None
    assert count_training_flops(config, model, 2, 8, n_target) == counted


def test_without_the_output_the_share_of_attention_is_n_to_n_and_six_widths():
    for d_model in (64, 512, 4096):
        config = TransformerConfig(vocab_size=10, d_model=d_model, positions="none")
        for n in (1, 128, 4096):
            assert attention_share(config, n, Encoder) == pytest.approx(n / (n + 6 * d_model), rel=1e-12)


def test_the_share_of_attention_falls_as_gpt_3_widens():
    shares = [attention_share(preset(row.name).config, 2048) for row in GPT_3_TABLE]
    assert shares == sorted(shares, reverse=True)
    assert shares[0] > 0.2 and shares[-1] < 0.03


# The cache


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("n_kv_heads, window", [(4, None), (2, None), (1, None), (2, 4), (2, 6), (2, 9)])
def test_the_bytes_of_a_cache_are_those_of_a_real_one(n_kv_heads, window, dtype):
    config = replace(SMALL, n_kv_heads=n_kv_heads, d_head=6, window=window)
    model = LanguageModel(config).to(dtype).eval()
    state = model.start()
    with torch.no_grad():
        model.read(torch.ones(2, 5, dtype=torch.long), state)
        model.step(torch.ones(2, dtype=torch.long), state)
    held = sum(cache.n_bytes for cache in state.caches)
    assert cache_bytes(config, 2, 6, dtype.itemsize) == held


def test_an_encoder_decoder_also_holds_the_keys_and_values_of_its_source():
    model = EncoderDecoder(SMALL).eval()
    with torch.no_grad():
        state = model.start(torch.ones(2, 7, dtype=torch.long), torch.tensor([7, 3]))
        for _ in range(4):
            model.step(torch.ones(2, dtype=torch.long), state)
    held = sum(each.n_bytes for each in (*state.caches, *(memory.states for memory in state.memory)))
    assert cache_bytes(SMALL, 2, 4, bytes_per_number=4, n_source=7) == held


# At the door


def test_an_unknown_preset_is_refused_and_the_known_ones_are_named():
    with pytest.raises(ValueError, match=r"name: got 'gpt-5', expected one of .*vaswani base, .*llama 3 8b"):
        preset("gpt-5")


@pytest.mark.parametrize("model", ["encoder", torch.nn.Linear, None, []], ids=str)
def test_an_unknown_model_is_refused(model):
    for count in (count_parameters, lambda *args: count_flops(*args, 1, 4)):
        with pytest.raises(ValueError, match=r"model: got .*expected one of Encoder, EncoderDecoder, LanguageModel"):
            count(SMALL, model)


@pytest.mark.parametrize("n", [0, -1, 10])
def test_a_length_that_the_positions_do_not_allow_is_refused(n):
    with pytest.raises(ValueError, match=f"n: got {n}, expected 1 to 9"):
        count_flops(SMALL, LanguageModel, 1, n)
    with pytest.raises(ValueError, match=f"n_target: got {n}, expected 1 to 9"):
        count_flops(SMALL, EncoderDecoder, 1, 4, n)
    with pytest.raises(ValueError, match=f"n: got {n}, expected 1 to 9"):
        attention_share(SMALL, n)
    with pytest.raises(ValueError, match=f"n: got {n}, expected 1 to 9"):
        cache_bytes(SMALL, 1, n)
    with pytest.raises(ValueError, match="n_source: got 10, expected 1 to 9"):
        cache_bytes(SMALL, 1, 4, n_source=10)


def test_relative_positions_know_no_longest():
    assert count_flops(replace(SMALL, positions="bucketed"), LanguageModel, 1, 10_000).total > 0


def test_an_empty_batch_is_refused():
    with pytest.raises(ValueError, match="batch: got 0, expected at least 1"):
        count_flops(SMALL, LanguageModel, 0, 4)


@pytest.mark.parametrize("model", [Encoder, LanguageModel])
def test_a_target_is_refused_where_there_is_one_sequence(model):
    with pytest.raises(ValueError, match=f"n_target: got 4 for {model.__name__}, expected none"):
        count_flops(SMALL, model, 1, 4, 4)


# What one layer costs


def self_attention_layer(x, width):
    query, key, value = (x @ torch.randn(x.shape[1], x.shape[1]) for _ in range(3))
    return (query @ key.mT).softmax(-1) @ value


def restricted_layer(x, width):
    n, d = x.shape
    query, key, value = (x @ torch.randn(d, d) for _ in range(3))
    rows = torch.arange(n)[:, None] + torch.arange(-width, width + 1)
    near = rows.clamp(0, n - 1)                                   # (n, 2 width + 1)
    scores = (query[:, None] @ key[near].mT)[:, 0]
    weights = scores.masked_fill(rows != near, -torch.inf).softmax(-1)
    return (weights[:, None] @ value[near])[:, 0]


def recurrent_layer(x, width):
    w, u = (torch.randn(x.shape[1], x.shape[1]) for _ in range(2))
    states = [torch.zeros(1, x.shape[1])]
    for t in range(len(x)):
        states.append(torch.tanh(x[t : t + 1] @ w + states[-1] @ u))
    return torch.cat(states[1:])


def convolution_layer(x, width):
    matrices = torch.randn(2 * width + 1, x.shape[1], x.shape[1])
    padded = torch.nn.functional.pad(x, (0, 0, width, width))
    return sum(padded[i : i + len(x)] @ matrix for i, matrix in enumerate(matrices))


BUILT = (self_attention_layer, restricted_layer, recurrent_layer, convolution_layer)
LAYERS = dict(zip(LAYER_KINDS, BUILT, strict=True))
WINDOWED = ("restricted", "convolution")


@pytest.mark.parametrize("kind", LAYERS)
@pytest.mark.parametrize(("n", "d"), [(12, 5), (7, 16), (1, 3)])
def test_a_layers_multiply_adds_are_those_that_torch_counts(kind, n, d):
    width = 2 if n > 4 else 1
    with FlopCounterMode(display=False) as counter:
        LAYERS[kind](torch.randn(n, d), width)
    cost = layer_cost(kind, n, d, width if kind in WINDOWED else None)
    if n > 2 * width or kind not in WINDOWED:
        assert counter.get_total_flops() == 2 * cost.multiply_adds
    else:  # the layers above pad their windows even where the whole sequence is shorter
        assert counter.get_total_flops() > 2 * cost.multiply_adds


@pytest.mark.parametrize("kind", LAYERS)
def test_a_signal_needs_as_many_cells_or_layers_as_the_path_is_long(kind):
    torch.manual_seed(0)
    n, d, width = 9, 4, 3
    cost = layer_cost(kind, n, d, width if kind in WINDOWED else None)
    cells = kind == "recurrent"                                   # there the way leads through cells of one layer
    for layers in (1,) if cells else range(1, cost.path_length + 1):
        x = torch.randn(n, d, requires_grad=True)
        y = x
        for _ in range(layers):
            y = LAYERS[kind](y / y.std().detach(), width)  # scaled, or the softmax saturates
        (first,) = torch.autograd.grad(y[-1].sum(), x)
        reached = int(first.abs().sum(-1).gt(0).nonzero()[0])
        assert reached == (0 if cells else max(0, n - 1 - layers * width) if kind in WINDOWED else 0)
    assert cost.path_length == {"self-attention": 1, "recurrent": 9}.get(kind, 3)


def test_only_a_recurrence_takes_its_steps_one_after_the_other():
    steps = {kind: layer_cost(kind, 9, 4, 3 if kind in WINDOWED else None).sequential_steps for kind in LAYER_KINDS}
    assert steps == {"self-attention": 1, "restricted": 1, "recurrent": 9, "convolution": 1}


def test_the_projections_are_most_of_self_attention_until_n_is_one_and_a_half_times_d():
    for n, more in ((95, True), (96, False), (97, False)):
        projections = 3 * n * 64**2
        pairs = layer_cost("self-attention", n, 64).multiply_adds - projections
        assert (projections > pairs) is more


@pytest.mark.parametrize("kind", LAYERS)
def test_one_position_has_the_shortest_path(kind):
    assert layer_cost(kind, 1, 4, 3 if kind in WINDOWED else None)[1:] == (1, 1)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("attention", 3, 4), "kind: got 'attention', expected one of 'self-attention'"),
        (("recurrent", 0, 4), "n: got 0, expected at least 1"),
        (("recurrent", 3, 2.5), "d: got 2.5, expected a whole number"),
        (("recurrent", 3, 4, 1), "width: got 1 for 'recurrent', expected none"),
        (("restricted", 3, 4), "width: got None for 'restricted', expected how many"),
        (("convolution", 3, 4, 0), "width: got 0, expected at least 1"),
    ],
)
def test_a_layer_that_cannot_be_is_refused(arguments, words):
    with pytest.raises(ValueError, match=words):
        layer_cost(*arguments)


# What the way back needs


@pytest.fixture
def layer():
    return torch.nn.Linear(10, 20)


X = torch.ones(5, 10)


def test_a_linear_layer_keeps_its_input_and_not_its_weights(layer):
    assert saved_activation_bytes(lambda: layer(X)) == 5 * 10 * 4
    assert saved_activation_bytes(lambda: layer(X) @ layer.weight) == (5 * 10 + 5 * 20) * 4
    cast = (layer.weight * 1,)                                            # what autocast makes is new, and counts
    assert saved_activation_bytes(lambda: layer(X) @ cast[0]) == (5 * 10 + 5 * 20 + 20 * 10) * 4


def test_what_two_operations_keep_counts_once(layer):
    def twice():
        hidden = layer(X)                                                 # (5, 20)
        return hidden.relu() + hidden.exp()                               # each keeps its own output

    assert saved_activation_bytes(twice) == (5 * 10 + 2 * 5 * 20) * 4
    assert saved_activation_bytes(lambda: layer(X) + 2 * layer(X)) == 5 * 10 * 4


def test_a_view_counts_as_all_that_it_looks_into(layer):
    def half():
        hidden = layer(X).exp()                                           # kept by exp
        return hidden[:, :10] * hidden[:, 10:]                            # and two views of it, kept by the product

    assert saved_activation_bytes(half) == (5 * 10 + 5 * 20) * 4


def test_without_a_way_back_nothing_is_kept(layer):
    with torch.no_grad():
        assert saved_activation_bytes(lambda: layer(X).relu()) == 0


def test_recomputing_keeps_the_inputs_alone(layer):
    def recomputed():
        hidden = layer(X)
        return torch.utils.checkpoint.checkpoint(lambda x: x.exp().relu().exp(), hidden, use_reentrant=False)

    assert saved_activation_bytes(recomputed) == (5 * 10 + 5 * 20) * 4


def activations(batch, device="meta"):
    with torch.device(device):
        torch.manual_seed(0)
        model = EncoderDecoder(SMALL)
        tokens = torch.full((batch, 7), 5)
        lengths = torch.full((batch,), 7)
    return saved_activation_bytes(lambda: model.loss(tokens, lengths, tokens, tokens))


def test_activations_grow_with_the_batch_and_not_with_the_parameters():
    one, two, four = (activations(batch) for batch in (1, 2, 4))
    assert four - two == 2 * (two - one) > 0
    parameters = 4 * count_parameters(SMALL, EncoderDecoder).total
    assert one < parameters, "less than the weights, which are not in it"


def test_the_function_runs_once_and_its_gradient_is_what_it_was(layer):
    calls = []

    def run():
        calls.append(layer(X).exp().sum())

    saved_activation_bytes(run)
    assert len(calls) == 1
    calls[0].backward()
    expected, *_ = torch.autograd.grad(layer(X).exp().sum(), [layer.weight])
    assert torch.equal(layer.weight.grad, expected)
