"""Every way of telling a position is its equation, and what is relative depends on the distance alone."""

import math
from functools import partial

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from attncourse.positions import (
    TABLES,
    BucketedBias,
    FixedPositions,
    LearnedPositions,
    LearnedPositions2D,
    RoPE,
    ShawRelative,
    binary,
    integer,
    relative_index,
    rope_angles,
    rope_angles_2d,
    rotate,
    shift_matrix,
    sinusoidal,
    sinusoidal_2d,
)

BATCH, HEADS, N, D = 2, 3, 7, 8
STYLES = ("half", "interleaved")


def close(a, b, atol=1e-10):
    torch.testing.assert_close(a, b, rtol=0, atol=atol)


# Added to the embedding


def test_integer_writes_the_position_in_every_column():
    assert integer(torch.tensor([[0, 5]]), 3).tolist() == [[[0.0, 0.0, 0.0], [5.0, 5.0, 5.0]]]


def test_binary_writes_the_lowest_digit_first():
    assert binary(torch.tensor([0, 1, 2, 5]), 3).tolist() == [[0, 0, 0], [1, 0, 0], [0, 1, 0], [1, 0, 1]]


def test_binary_digits_add_up_to_the_position():
    positions = torch.randint(0, 1024, (3, 4))
    assert torch.equal(binary(positions, 10) @ 2.0 ** torch.arange(10), positions.float())


def test_binary_takes_more_columns_than_a_number_has_bits():
    assert binary(torch.tensor([2**62 + 1]), 80)[0].nonzero().flatten().tolist() == [0, 62]


def test_sinusoids_are_the_papers_formula():
    table = sinusoidal(torch.arange(N), D)
    for p in range(N):
        for i in range(D // 2):
            angle = p / 10000 ** (2 * i / D)
            assert table[p, 2 * i].item() == pytest.approx(math.sin(angle), abs=1e-6)
            assert table[p, 2 * i + 1].item() == pytest.approx(math.cos(angle), abs=1e-6)


def test_sinusoids_of_far_positions_are_as_accurate_as_of_near_ones():
    far = 2**24 + 1                                                                # float32 has no such number
    expected = [f(far / 10000 ** (2 * i / D)) for i in range(D // 2) for f in (math.sin, math.cos)]
    close(sinusoidal(torch.tensor(far), D), torch.tensor(expected), 1e-6)


def test_sinusoids_take_positions_of_any_shape():
    positions = torch.randint(0, 50, (2, 1, 3))
    table = sinusoidal(torch.arange(50), D)
    assert torch.equal(sinusoidal(positions, D), table[positions])


@pytest.mark.parametrize("k", [5, 0, -3, 1])
def test_a_shift_by_k_is_one_matrix_for_all_sinusoids(k):
    positions = torch.arange(3, 40)
    close(sinusoidal(positions, D) @ shift_matrix(k, D), sinusoidal(positions + k, D), 1e-6)


def test_two_shifts_are_one_and_a_shift_back_undoes_it():
    close(shift_matrix(2, D) @ shift_matrix(5, D), shift_matrix(7, D), 1e-6)
    close(shift_matrix(4, D, base=50.0).mT, shift_matrix(-4, D, base=50.0), 1e-6)


def test_the_sinusoidal_table_is_the_function():
    assert torch.equal(FixedPositions("sinusoidal", N, D)(N), sinusoidal(torch.arange(N), D))


@pytest.mark.parametrize("kind", [LearnedPositions, *(partial(FixedPositions, scheme) for scheme in TABLES)])
def test_a_start_gives_the_rows_from_there_on(kind):
    positions = kind(N, D)
    assert torch.equal(positions(3, start=4), positions(N)[4:])
    assert positions(0, start=N).shape == (0, D)


@pytest.mark.parametrize("kind", [LearnedPositions, *(partial(FixedPositions, scheme) for scheme in TABLES)])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, torch.float64])
def test_position_vectors_have_the_modules_type(kind, dtype):
    assert kind(N, D).to(dtype)(N).dtype == dtype


def test_learned_positions_start_small_and_learn():
    positions = LearnedPositions(500, D)
    assert 0.018 < positions.table.std() < 0.022
    positions(2, start=1).sum().backward()
    assert positions.table.grad[:4, 0].tolist() == [0, 1, 1, 0]


# Relative positions


def test_a_relative_index_is_the_clipped_distance_counted_from_zero():
    index = relative_index(4, 6, 2, start=1)
    for i in range(4):
        for j in range(6):
            assert index[i, j] == max(-2, min(2, j - (1 + i))) + 2


def shaw_by_the_equation(shaw, query, weights, start=0):
    """Equations 3 and 4 with every a_ij written out: the (n_query, n_key, d) tensors that the module avoids."""
    index = relative_index(weights.shape[-2], weights.shape[-1], shaw.max_distance, start)
    a_key, a_value = shaw.key[index], shaw.value[index]                            # (n_query, n_key, d_head)
    return torch.einsum("...id,ijd->...ij", query, a_key), torch.einsum("...ij,ijd->...id", weights, a_value)


@pytest.fixture
def shaw():
    return ShawRelative(2, D).double()


def shaw_inputs(n_query=N, n_key=N):
    query = torch.randn(BATCH, HEADS, n_query, D, dtype=torch.float64)
    return query, torch.randn(BATCH, HEADS, n_query, n_key, dtype=torch.float64).softmax(-1)


@pytest.mark.parametrize(("n_query", "n_key", "start"), [(N, N, 0), (3, N, 4), (1, 2, 0), (2, 9, 30)])
def test_shaws_terms_are_the_equations_with_every_pair_written_out(shaw, n_query, n_key, start):
    query, weights = shaw_inputs(n_query, n_key)
    scores, output = shaw_by_the_equation(shaw, query, weights, start)
    close(shaw.scores(query, n_key, start), scores)
    close(shaw.output(weights, start), output)


def test_shaws_tables_get_the_equations_gradients(shaw):
    query, weights = shaw_inputs()
    scores, output = shaw_by_the_equation(shaw, query, weights)
    expected = torch.autograd.grad(scores.square().sum() + output.square().sum(), (shaw.key, shaw.value))
    ours = shaw.scores(query, N).square().sum() + shaw.output(weights).square().sum()
    for a, b in zip(torch.autograd.grad(ours, (shaw.key, shaw.value)), expected, strict=True):
        close(a, b)


def test_shaw_started_later_gives_the_last_rows(shaw):
    query, weights = shaw_inputs()
    close(shaw.scores(query[..., 4:, :], N, start=4), shaw.scores(query, N)[..., 4:, :])
    close(shaw.output(weights[..., 4:, :], start=4), shaw.output(weights)[..., 4:, :])


def test_shaw_treats_all_distances_beyond_the_last_alike(shaw):
    scores = shaw.scores(torch.ones(1, D, dtype=torch.float64), N, start=2)[0]
    assert scores[4] == scores[5] == scores[6] and scores[3] != scores[4]


@pytest.mark.parametrize("bidirectional", [True, False])
@pytest.mark.parametrize(("n_buckets", "max_distance"), [(32, 128), (8, 20), (9, 7), (4, 3)])
@pytest.mark.parametrize(("n_query", "n_key", "start"), [(300, 300, 0), (5, 400, 395), (400, 5, 0)])
def test_the_bucketed_bias_is_t5s_to_the_bit(bidirectional, n_buckets, max_distance, n_query, n_key, start):
    t5 = pytest.importorskip("transformers.models.t5.modeling_t5")
    config = t5.T5Config(
        d_model=8,
        d_kv=4,
        num_heads=HEADS,
        relative_attention_num_buckets=n_buckets,
        relative_attention_max_distance=max_distance,
        is_decoder=not bidirectional,
    )
    theirs = t5.T5Attention(config, has_relative_attention_bias=True, layer_idx=0)
    ours = BucketedBias(HEADS, n_buckets, max_distance, bidirectional)
    ours.bias.load_state_dict(theirs.relative_attention_bias.state_dict())
    assert torch.equal(ours(n_query, n_key, start), theirs.compute_bias(n_query, n_key, past_seen_tokens=start)[0])


def test_the_bias_started_later_gives_the_last_rows():
    bias = BucketedBias(HEADS, 8, 5)
    assert torch.equal(bias(3, N, start=4), bias(N, N)[:, 4:])


def test_every_bucket_of_the_bias_learns():
    for bidirectional in (True, False):
        bias = BucketedBias(HEADS, 8, 16, bidirectional)
        bias(20, 20).sum().backward()
        # Bucket 4 of 8 would be distance 0 to the right: both directions count 0 as the past.
        unused = [4] if bidirectional else []
        assert (bias.bias.weight.grad == 0).all(dim=1).nonzero().flatten().tolist() == unused


def test_one_way_buckets_do_not_tell_one_future_from_another():
    bias = BucketedBias(HEADS, bidirectional=False)(N, N)
    assert (bias[:, 0] == bias[:, :1, 0]).all() and not torch.equal(bias[:, 6, 0], bias[:, 6, 6])


# Rotary positions


def test_rope_angles_fall_from_pair_to_pair_and_grow_with_the_position():
    close(rope_angles(torch.tensor([0, 3]), 4, base=100.0), torch.tensor([[0, 0], [3, 0.3]], dtype=torch.float64))


def test_a_quarter_turn_takes_the_first_of_a_pair_to_the_second():
    x = torch.tensor([[1.0, 2.0, 3.0, 4.0]])
    angles = torch.full((1, 2), math.pi / 2)
    close(rotate(x, angles, "interleaved"), torch.tensor([[-2.0, 1.0, -4.0, 3.0]]), 1e-6)
    close(rotate(x, angles, "half"), torch.tensor([[-3.0, -4.0, 1.0, 2.0]]), 1e-6)


def test_interleaved_rotation_is_multiplication_by_complex_numbers():
    x = torch.randn(BATCH, N, D, dtype=torch.float64)
    angles = rope_angles(torch.arange(N), D)
    turned = torch.view_as_complex(x.unflatten(-1, (-1, 2))) * torch.polar(torch.ones_like(angles), angles)
    close(rotate(x, angles, "interleaved"), torch.view_as_real(turned).flatten(-2))


def test_the_two_styles_are_one_up_to_a_permutation_of_the_columns():
    x, angles = torch.randn(BATCH, N, D, dtype=torch.float64), rope_angles(torch.arange(N), D)
    evens_first = [*range(0, D, 2), *range(1, D, 2)]
    close(rotate(x[..., evens_first], angles, "half"), rotate(x, angles, "interleaved")[..., evens_first])


def test_rope_is_llamas_in_transformers():
    llama = pytest.importorskip("transformers.models.llama.modeling_llama")
    query, key = torch.randn(2, BATCH, HEADS, N, D, dtype=torch.float64)
    rope = RoPE(D, N).double()
    cos, sin = (torch.cat([t, t], dim=-1)[None] for t in (rope.cos, rope.sin))     # (1, n, d_head), as Llama wants
    for ours, theirs in zip((rope(query), rope(key)), llama.apply_rotary_pos_emb(query, key, cos, sin), strict=True):
        close(ours, theirs)
    config = llama.LlamaConfig(hidden_size=HEADS * D, num_attention_heads=HEADS, max_position_embeddings=N)
    cos, sin = llama.LlamaRotaryEmbedding(config)(query.float(), torch.arange(N)[None])
    close(rope.cos.float(), cos[0, :, : D // 2], 1e-5)
    close(rope.sin.float(), sin[0, :, : D // 2], 1e-5)


@pytest.mark.parametrize("style", STYLES)
def test_rope_makes_the_score_depend_on_the_distance_alone(style):
    rope = RoPE(D, 50, style=style).double()
    query, key = torch.randn(2, 1, D, dtype=torch.float64)
    scores = [(rope(query, start=p + 4) @ rope(key, start=p).mT).item() for p in (0, 1, 17, 45)]
    assert scores == pytest.approx([scores[0]] * 4, abs=1e-10)
    assert (rope(query, start=5) @ rope(key).mT).item() != pytest.approx(scores[0], abs=1e-3)


@pytest.mark.parametrize("style", STYLES)
def test_rope_keeps_the_length_of_every_vector(style):
    x = torch.randn(BATCH, HEADS, N, D, dtype=torch.float64)
    close(RoPE(D, N, style=style)(x).norm(dim=-1), x.norm(dim=-1))


@pytest.mark.parametrize("style", STYLES)
def test_rope_started_later_gives_the_last_rows(style):
    rope, x = RoPE(D, N, style=style), torch.randn(BATCH, HEADS, N, D)
    assert torch.equal(rope(x[..., 4:, :], start=4), rope(x)[..., 4:, :])


@pytest.mark.parametrize("style", STYLES)
def test_rope_is_rotate_by_rope_angles(style):
    x = torch.randn(BATCH, N, D)
    assert torch.equal(RoPE(D, N, 500.0, style)(x), rotate(x, rope_angles(torch.arange(N), D, 500.0), style))


@pytest.mark.parametrize("style", STYLES)
def test_turning_back_undoes_the_turn(style):
    x, angles = torch.randn(BATCH, N, D, dtype=torch.float64), rope_angles(torch.arange(N), D)
    close(rotate(rotate(x, angles, style), -angles, style), x)


@pytest.mark.parametrize("style", STYLES)
def test_rotate_passes_gradcheck(style):
    x, angles = torch.randn(3, D, dtype=torch.float64, requires_grad=True), rope_angles(torch.arange(3), D)
    assert torch.autograd.gradcheck(lambda x: rotate(x, angles, style), x)


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_comes_back_in_its_type_and_rounded_once(style, dtype):
    x, rope = torch.randn(BATCH, N, D).to(dtype), RoPE(D, 5000, style=style).to(dtype)
    exact = rope(x.double(), start=4900)
    turned = rope(x, start=4900)
    assert turned.dtype == dtype
    torch.testing.assert_close(turned.double(), exact, rtol=torch.finfo(dtype).eps / 2, atol=1e-6)


@pytest.mark.parametrize("style", STYLES)
def test_torch_compile_traces_rope_without_a_break(style):
    rope, x = RoPE(D, N, style=style), torch.randn(BATCH, HEADS, 3, D)
    compiled = torch.compile(rope, fullgraph=True, backend="eager")
    for start in (0, 1, 4):
        assert torch.equal(compiled(x, start=start), rope(x, start=start))


@pytest.mark.parametrize(
    "trip",
    [
        lambda m: m,
        lambda m: m.double(),
        lambda m: m.bfloat16().double(),
        lambda m: m.float().double(),
        lambda m: m.to("meta").to_empty(device="cpu").double(),
    ],
    ids=["as built", "double", "through bfloat16", "through float32", "through the meta device"],
)
def test_tables_keep_every_digit_wherever_their_model_goes(trip):
    model = trip(nn.ModuleDict({"rope": RoPE(D, 3000), "sinusoids": FixedPositions("sinusoidal", 3000, D)}))
    angles = torch.arange(3000).double()[:, None] / 10000 ** (torch.arange(0, D, 2).double() / D)
    x = torch.cat([torch.ones(3000, D // 2), torch.zeros(3000, D // 2)], dim=-1).double()
    close(model["rope"](x), torch.cat([angles.cos(), angles.sin()], dim=-1))
    close(model["sinusoids"].double()(3000)[:, 1::2], angles.cos())


def test_tables_built_without_memory_are_there_once_it_is():
    with torch.device("meta"):
        rope = RoPE(D, N)
    assert rope.cos.is_meta
    assert torch.equal(rope.to_empty(device="cpu").cos, RoPE(D, N).cos)


def test_a_device_without_float64_is_never_handed_a_float64_table():
    def move(t):
        assert t.dtype != torch.float64
        return t.clone()

    assert torch.equal(RoPE(D, N)._apply(move).cos, RoPE(D, N).cos)                # what .to(device) calls


def test_tables_are_not_part_of_the_state_of_a_model():
    assert not RoPE(D, N).state_dict() and not FixedPositions("sinusoidal", N, D).state_dict()


def test_a_subclass_keeps_its_own_parameters_and_buffers():
    class Scaled(RoPE):
        def __init__(self):
            super().__init__(D, N)
            self.scale = nn.Parameter(torch.ones(1))
            self.register_buffer("steps", torch.ones(1), persistent=False)

    scaled = Scaled().bfloat16()
    assert scaled.scale.dtype == scaled.steps.dtype == torch.bfloat16 and scaled.cos.dtype == torch.float64


# Images


def test_half_of_the_2d_sinusoids_tell_the_row_and_half_the_column():
    table = sinusoidal_2d(3, 5, D).unflatten(0, (3, 5))
    one = sinusoidal(torch.arange(5), D // 2)
    for row in range(3):
        for column in range(5):
            assert torch.equal(table[row, column], torch.cat([one[row], one[column]]))


@pytest.mark.parametrize("style", STYLES)
def test_2d_rope_makes_the_score_depend_on_the_two_distances_alone(style):
    height, width = 4, 5
    turn = rope_angles_2d(height, width, D)
    query, key = (x.expand(height * width, D) for x in torch.randn(2, 1, D, dtype=torch.float64))
    scores = rotate(query, turn, style) @ rotate(key, turn, style).mT
    scores = scores.reshape(height, width, height, width)
    close(scores[0, 0, 1, 2], scores[2, 1, 3, 3])                                  # one down, two to the right
    assert (scores[0, 0, 1, 2] - scores[0, 0, 2, 1]).abs() > 1e-3                  # two down, one to the right


def test_2d_rope_on_one_row_turns_only_by_the_column():
    angles = rope_angles_2d(1, N, D)
    assert (angles[:, : D // 4] == 0).all()
    assert torch.equal(angles[:, D // 4 :], rope_angles(torch.arange(N), D // 2))


def test_learned_2d_positions_are_row_plus_column_and_both_learn():
    positions = LearnedPositions2D(3, 5, D)
    for patch, vector in enumerate(positions()):
        assert torch.equal(vector, positions.row[patch // 5] + positions.column[patch % 5])
    positions().sum().backward()
    assert (positions.row.grad == 5).all() and (positions.column.grad == 3).all()


# What the mechanisms are for


def test_attention_without_positions_cannot_tell_an_order_and_with_them_can():
    x, order = torch.randn(1, N, D), torch.randperm(N)

    def last(x, positions):
        x = x + positions
        return F.scaled_dot_product_attention(x[:, -1:], x, x)

    shuffled = torch.cat([x[:, :-1][:, order[order < N - 1]], x[:, -1:]], dim=1)
    assert not torch.equal(shuffled, x)
    close(last(x, torch.zeros(N, D)), last(shuffled, torch.zeros(N, D)), 1e-6)
    table = FixedPositions("sinusoidal", N, D)(N)
    assert (last(x, table) - last(shuffled, table)).abs().max() > 1e-2


BAD = {
    "a position that does not fit": (lambda: binary(torch.tensor([3, 8]), 3), ValueError, r"positions: got 3\.\.8"),
    "a position below zero": (lambda: binary(torch.tensor([-1]), 3), ValueError, r"expected 0\.\.7"),
    "binary digits of a fraction": (lambda: binary(torch.tensor([0.5]), 3), TypeError, "whole numbers"),
    "an odd width": (lambda: sinusoidal(torch.arange(3), 5), ValueError, "d_model: got 5, expected an even"),
    "a shift of an odd width": (lambda: shift_matrix(1, 5), ValueError, "d_model: got 5, expected an even"),
    "a shift by half a position": (lambda: shift_matrix(0.5, 4), ValueError, r"k: got 0\.5, expected a whole number"),
    "an odd table": (lambda: FixedPositions("sinusoidal", 4, 5), ValueError, "d_model: got 5"),
    "an odd head": (lambda: rope_angles(torch.arange(3), 5), ValueError, "d_head: got 5, expected an even"),
    "an odd rope": (lambda: RoPE(5, 4), ValueError, "d_head: got 5"),
    **{
        f"a number for {scheme.__name__}": (
            lambda scheme=scheme: scheme(10, 4),
            TypeError,
            r"positions: got int, expected a tensor such as torch\.arange\(n\)",
        )
        for scheme in (integer, binary, sinusoidal, rope_angles)
    },
    "learned rows past the end": (
        lambda: LearnedPositions(4, D)(3, start=2),
        ValueError,
        "n: got 3 positions from 2 on, expected positions below max_length = 4",
    ),
    "learned rows before the start": (lambda: LearnedPositions(4, D)(3, start=-1), ValueError, "3 positions from -1"),
    "sinusoids past the end": (lambda: FixedPositions("sinusoidal", 4, D)(5), ValueError, "n: got 5 positions from 0"),
    "a sequence past the end": (lambda: RoPE(D, 4)(torch.ones(5, D)), ValueError, "n: got 5 positions from 0"),
    "a head of another width": (
        lambda: RoPE(D, 4)(torch.ones(3, 4)),
        ValueError,
        "x: got shape \\(3, 4\\), expected \\(\\*batch, n, d_head = 8\\)",
    ),
    "a style that does not exist": (lambda: RoPE(D, 4, style="both"), ValueError, "style: got 'both'"),
    "a style that rotate does not know": (
        lambda: rotate(torch.ones(1, 2), torch.ones(1, 1), "both"),
        ValueError,
        "style: got 'both', expected one of 'half', 'interleaved'",
    ),
    "angles of another length": (lambda: rotate(torch.ones(3, 4), torch.ones(2, 2)), ValueError, r"angles: got .*2, 2"),
    "angles for every column": (lambda: rotate(torch.ones(3, 4), torch.ones(3, 4)), ValueError, r"\(3, 2"),
    "angles for an odd head": (lambda: rotate(torch.ones(3, 5), torch.ones(3, 2)), ValueError, "angles: got"),
    "a distance below zero": (lambda: relative_index(2, 2, -1), ValueError, "max_distance: got -1"),
    "a table for distances below zero": (lambda: ShawRelative(-1, D), ValueError, "max_distance: got -1"),
    "a query for Shaw of another width": (
        lambda: ShawRelative(2, D).scores(torch.ones(3, 4), 3),
        ValueError,
        "query: got shape \\(3, 4\\), expected \\(\\*batch, n_query, d_head = 8\\)",
    ),
    "too few buckets": (lambda: BucketedBias(2, 3), ValueError, "n_buckets: got 3, expected at least 4"),
    "too few buckets one way": (lambda: BucketedBias(2, 1, bidirectional=False), ValueError, "expected at least 2"),
    "more exact buckets than distances": (lambda: BucketedBias(2, 32, 8), ValueError, "max_distance: got 8"),
    "2d sinusoids in two columns": (lambda: sinusoidal_2d(2, 2, 6), ValueError, "d_model: got 6, expected a multiple"),
    "2d angles for two columns": (lambda: rope_angles_2d(2, 2, 6), ValueError, "d_head: got 6, expected a multiple"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_refused_at_the_door_with_the_arguments_name(case):
    call, error, words = BAD[case]
    with pytest.raises(error, match=words):
        call()
