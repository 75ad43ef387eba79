"""Many heads attend as their equation says: fused or spelled out, grouped or not, masked or cached."""

import math

import pytest
import torch
from copying import assert_close, randomise
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from attncourse.attention import (
    KeyValueCache,
    KeyValues,
    MultiHeadAttention,
    attend,
    causal_mask,
    combine_masks,
    lengths_to_mask,
)
from attncourse.positions import RoPE, ShawRelative

BATCH, N_QUERY, N_KEY, D_MODEL, HEADS = 3, 4, 6, 8, 4
some = settings(deadline=None, max_examples=20, derandomize=True)


@pytest.fixture(autouse=True)
def fresh_compiler():
    torch.compiler.reset()
    yield
    torch.compiler.reset()


def attention(positions="none", dtype=torch.float64, **choices):
    """No bias of it is zero, and the distances of Shaw's terms are few enough to be clipped."""
    d_head = choices.get("d_head") or choices.get("d_model", D_MODEL) // choices.get("n_heads", HEADS)
    terms = {
        "none": {},
        "rope": {"rope": RoPE(d_head, 16)} if d_head % 2 == 0 else {},
        "shaw": {"relative": ShawRelative(2, d_head)},
    }
    module = MultiHeadAttention(**{"d_model": D_MODEL, "n_heads": HEADS} | choices | terms[positions]).to(dtype)
    randomise(module)
    return module.eval()


SCHEMES = ("none", "rope", "shaw")
each_scheme = pytest.mark.parametrize("positions", SCHEMES)
both_ways = pytest.mark.parametrize("weights", [False, True], ids=["fused", "spelled out"])


@st.composite
def attentions(draw, schemes=SCHEMES):
    n_heads = draw(st.sampled_from([1, 2, 4]))
    choices = dict(
        n_heads=n_heads,
        n_kv_heads=draw(st.sampled_from([n for n in (1, 2, 4) if n_heads % n == 0])),
        d_head=draw(st.sampled_from([None, 2, 6])),
        bias=draw(st.booleans()),
        scale=draw(st.sampled_from([None, 1.0, 0.3])),
    )
    torch.manual_seed(draw(st.integers(0, 99)))
    return attention(draw(st.sampled_from(schemes)), **choices)


sizes = st.tuples(st.integers(1, 4), st.integers(1, 6), st.integers(1, 7))         # batch, n_query, n_key


def vectors(*shape):
    return torch.randn(*shape, D_MODEL, dtype=torch.float64)


def some_mask(*shape):
    """About half of the pairs; now and then a query is left with nothing."""
    mask = torch.rand(shape) < 0.6
    mask[..., 0, 0] = True                                       # or a small one may be a causal one upside down
    return mask


# One answer by every way to it


@some
@given(attentions(), sizes, st.booleans(), st.booleans(), st.booleans())
def test_asking_for_the_weights_changes_nothing(module, size, cross, causal, biased):
    batch, n, n_key = size
    n_key = max(n, n_key) if cross else n
    x, memory = vectors(batch, n), vectors(batch, n_key) if cross else None
    bias = torch.randn(module.n_heads, n, n_key, dtype=torch.float64) if biased else None
    mask = some_mask(batch, n, n_key)
    kept = []
    fused = module(x, memory, mask, causal, bias)
    assert_close(module(x, memory, mask, causal, bias, weights=kept), fused)
    assert [w.shape for w in kept] == [(batch, module.n_heads, n, n_key)]


@some
@given(attentions(), sizes, st.booleans())
def test_weights_are_shares_of_one_among_the_keys_that_the_mask_allows(module, size, causal):
    batch, n, _ = size
    mask, kept = some_mask(batch, n, n), []
    module(vectors(batch, n), mask=mask, causal=causal, weights=kept)
    seen = combine_masks(causal_mask(n) if causal else None, mask)[:, None].expand_as(kept[0])
    assert (kept[0] >= 0).all() and (kept[0][~seen] == 0).all()
    assert_close(kept[0].sum(-1), seen.any(-1).double())


@some
@given(attentions(schemes=["none"]), sizes)
def test_each_head_is_attend_on_its_own_slice_and_its_groups_keys(module, size):
    batch, n, n_key = size
    x, memory, mask = vectors(batch, n), vectors(batch, n_key), some_mask(batch, n, n_key)
    query, key, value = module.query(x), module.key(memory), module.value(memory)
    d, heads = module.d_head, []
    for h in range(module.n_heads):
        group = h // (module.n_heads // module.n_kv_heads)
        mine, shared = slice(h * d, (h + 1) * d), slice(group * d, (group + 1) * d)
        scores = query[..., mine] @ key[..., shared].mT * module.scale
        heads.append(attend(query[..., mine], key[..., shared], value[..., shared], mask, lambda q, k, s=scores: s)[0])
    assert_close(module(x, memory, mask), module.output(torch.cat(heads, dim=-1)))


@some
@given(attentions(schemes=["shaw"]), sizes)
def test_shaws_attention_is_the_papers_sums_over_every_pair(module, size):
    batch, n, _ = size
    x, mask, groups = vectors(batch, n), some_mask(batch, n, n), module.n_heads // module.n_kv_heads
    query, key, value = (layer(x).unflatten(-1, (-1, module.d_head)).transpose(1, 2) for layer in
                         (module.query, module.key, module.value))                # (batch, n_heads or fewer, n, d_head)
    key, value = key.repeat_interleave(groups, dim=1), value.repeat_interleave(groups, dim=1)
    distance = (torch.arange(n) - torch.arange(n)[:, None]).clamp(-2, 2) + 2       # (n, n)
    keys = key[:, :, None] + module.relative.key[distance]                         # (batch, n_heads, n, n, d_head)
    values = value[:, :, None] + module.relative.value[distance]
    scores = (query[:, :, :, None] * keys).sum(-1) * module.scale                  # (batch, n_heads, n, n)
    alpha = scores.masked_fill(~mask[:, None], -math.inf).softmax(-1).nan_to_num(0.0)
    output = (alpha[..., None] * values).sum(-2).transpose(1, 2).flatten(2)
    assert_close(module(x, mask=mask), module.output(output))


@some
@given(attentions(), sizes, st.booleans())
def test_causal_is_the_explicit_causal_mask(module, size, cross):
    batch, n, more = size
    n_key = n + more if cross else n
    x, memory = vectors(batch, n), vectors(batch, n_key) if cross else None
    padding = some_mask(batch, 1, n_key)
    expected = module(x, memory, causal_mask(n, n_key))
    assert_close(module(x, memory, causal=True), expected)
    assert_close(module(x, memory, causal_mask(n, n_key)[None, None], causal=True), expected)
    together = combine_masks(causal_mask(n, n_key), padding)
    assert_close(module(x, memory, padding, causal=True), module(x, memory, together))


@some
@given(attentions(), sizes)
def test_a_mask_says_the_same_with_and_without_axes_for_the_heads_and_the_batch(module, size):
    batch, n, _ = size
    x, mask = vectors(batch, n), some_mask(n, n)
    expected = module(x, mask=mask)
    for shape in [(1, n, n), (batch, n, n), (1, 1, n, n), (batch, module.n_heads, n, n)]:
        assert_close(module(x, mask=mask.expand(shape)), expected)


def test_a_mask_is_not_taken_for_a_causal_one_upside_down_by_its_corners_alone():
    mask = torch.tensor([[0, 1, 1], [1, 1, 0], [0, 1, 0]], dtype=torch.bool)
    module, x, kept = attention(), vectors(BATCH, 3), []
    module(x, mask=mask, weights=kept)
    module(x, vectors(BATCH, 3), mask=mask, weights=kept)
    for weights in kept:
        assert torch.equal(weights > 0, mask.expand_as(weights))


def test_each_head_may_have_a_mask_of_its_own():
    module, x, kept = attention(), vectors(BATCH, N_KEY), []
    mask = some_mask(BATCH, HEADS, N_KEY, N_KEY)
    module(x, mask=mask, weights=kept)
    assert (kept[0][~mask] == 0).all() and (kept[0][mask] > 0).all()


@each_scheme
@pytest.mark.parametrize("n_kv_heads", [HEADS, 2, 1])
def test_one_token_at_a_time_through_a_cache_is_all_at_once(n_kv_heads, positions):
    module, x, cache = attention(positions, n_kv_heads=n_kv_heads), vectors(BATCH, 20)[:, :16], KeyValueCache()
    with torch.no_grad():
        steps = [module(token, causal=True, cache=cache) for token in x.split([1] * 5 + [4, 7], dim=1)]
        assert_close(torch.cat(steps, dim=1), module(x, causal=True))
    assert cache.length == 16 and cache.contents[0].shape == (BATCH, n_kv_heads, 16, module.d_head)


@each_scheme
@both_ways
def test_a_projected_memory_says_what_the_memory_says(weights, positions):
    module, x, memory = attention(positions, n_kv_heads=2), vectors(BATCH, N_QUERY), vectors(BATCH, N_KEY)
    mask, kept = lengths_to_mask([6, 1, 3], N_KEY)[:, None], [] if weights else None
    assert_close(module(x, module.keys_values(memory), mask, weights=kept), module(x, memory, mask))


@pytest.mark.parametrize("n_kv_heads", [HEADS, 2, 1])
def test_a_memory_projected_once_serves_all_steps(n_kv_heads):
    module, x, memory = attention(n_kv_heads=n_kv_heads), vectors(BATCH, 3), vectors(BATCH, N_KEY)
    mask, projected = lengths_to_mask([6, 1, 3], N_KEY)[:, None], module.keys_values(memory)
    steps = [module(token, projected, mask) for token in x.split(1, dim=1)]
    assert_close(torch.cat(steps, dim=1), module(x, memory, mask))


def test_a_projected_memory_has_the_shape_and_the_bytes_of_its_heads():
    projected = attention(n_kv_heads=2, d_head=6).keys_values(vectors(BATCH, N_KEY))
    assert projected.key.shape == projected.value.shape == (BATCH, 2, N_KEY, 6)
    assert projected.n_bytes == 2 * BATCH * 2 * N_KEY * 6 * 8


def test_a_projected_memory_passes_gradients_to_the_memory():
    module, x, memory = attention(), vectors(BATCH, N_QUERY), vectors(BATCH, N_KEY).requires_grad_()
    expected = torch.autograd.grad(module(x, memory).square().sum(), memory)[0]
    assert_close(torch.autograd.grad(module(x, module.keys_values(memory)).square().sum(), memory)[0], expected)


def test_selected_rows_of_a_projected_memory_are_the_memory_of_those_rows():
    module, memory, rows = attention(n_kv_heads=2), vectors(BATCH, N_KEY), torch.tensor([2, 0, 2, 1])
    for got, expected in zip(module.keys_values(memory).select(rows), module.keys_values(memory[rows]), strict=True):
        assert_close(got, expected)


def test_rope_turns_a_self_attention_alone():
    """A memory is another sequence: its positions and the query's have no distance."""
    turning, plain, x, memory = attention("rope"), attention(), vectors(BATCH, N_QUERY), vectors(BATCH, N_KEY)
    plain.load_state_dict(turning.state_dict())
    assert_close(turning(x, memory), plain(x, memory))
    assert not torch.allclose(turning(x), plain(x))


# Grouped heads


def test_as_many_key_heads_as_heads_is_plain_multi_head_attention():
    plain, grouped = MultiHeadAttention(D_MODEL, HEADS), MultiHeadAttention(D_MODEL, HEADS, n_kv_heads=HEADS)
    grouped.load_state_dict(plain.state_dict())
    x = torch.randn(BATCH, N_KEY, D_MODEL)
    assert torch.equal(grouped(x), plain(x))


@pytest.mark.parametrize("n_kv_heads", [2, 1])
@each_scheme
def test_grouped_heads_are_many_heads_whose_keys_and_values_repeat(n_kv_heads, positions):
    grouped, many = attention(positions, n_kv_heads=n_kv_heads), attention(positions)
    state = grouped.state_dict()
    for name in ("key.weight", "key.bias", "value.weight", "value.bias"):
        state[name] = state[name].unflatten(0, (n_kv_heads, -1)).repeat_interleave(HEADS // n_kv_heads, 0).flatten(0, 1)
    many.load_state_dict(state)
    x = vectors(BATCH, N_KEY)
    assert_close(grouped(x), many(x))


@pytest.mark.parametrize("n_kv_heads", [HEADS, 2, 1])
def test_fewer_key_heads_have_smaller_projections_and_a_smaller_cache(n_kv_heads):
    module, cache = attention(n_kv_heads=n_kv_heads, d_head=6, bias=False), KeyValueCache()
    assert module.query.weight.shape == (HEADS * 6, D_MODEL) and module.output.weight.shape == (D_MODEL, HEADS * 6)
    assert module.key.weight.shape == module.value.weight.shape == (n_kv_heads * 6, D_MODEL)
    with torch.no_grad():
        assert module(vectors(BATCH, 5), cache=cache).shape == (BATCH, 5, D_MODEL)
    assert cache.n_bytes == 2 * BATCH * n_kv_heads * 5 * 6 * 8


# What may and may not matter


@some
@given(attentions(), sizes, st.booleans())
def test_the_answer_does_not_depend_on_the_batch(module, size, causal):
    batch, n, _ = size
    x, mask = vectors(batch, n), some_mask(batch, n, n)
    together = module(x, mask=mask, causal=causal)
    for row in range(batch):
        assert_close(module(x[row, None], mask=mask[row, None], causal=causal)[0], together[row])


@some
@given(attentions(), sizes, st.booleans())
def test_what_stands_where_no_query_may_look_changes_nothing(module, size, weights):
    batch, n, n_key = size
    x, memory, there = vectors(batch, n), vectors(batch, n_key), torch.rand(batch, n_key) < 0.6
    noise = 100 * vectors(batch, n_key) * ~there.unsqueeze(-1)
    kept = [] if weights else None
    before, after = (module(x, m, there[:, None], weights=kept) for m in (memory, memory + noise))
    assert_close(after, before)


@some
@given(attentions(), st.integers(1, 4), st.integers(2, 7), st.data())
def test_changing_the_future_leaves_the_past_alone_and_changes_the_present(module, batch, n, data):
    t = data.draw(st.integers(1, n - 1))
    x = vectors(batch, n)
    changed = torch.cat([x[:, :t], vectors(batch, n - t)], dim=1)
    before, after = module(x, causal=True), module(changed, causal=True)
    assert_close(after[:, :t], before[:, :t])
    assert not torch.allclose(after[:, t], before[:, t])


@some
@given(attentions(schemes=["none"]), sizes)
def test_without_positions_to_permute_the_input_is_to_permute_the_output(module, size):
    batch, n, _ = size
    x, mask, order = vectors(batch, n), some_mask(batch, n, n), torch.randperm(n)
    expected = module(x, mask=mask)[:, order]
    assert_close(module(x[:, order], mask=mask[:, order][..., order]), expected)


@pytest.mark.parametrize("positions", ["rope", "shaw"])
def test_with_positions_a_permutation_shows(positions):
    module, x, order = attention(positions), vectors(1, N_KEY), torch.arange(N_KEY).flip(0)
    assert not torch.allclose(module(x[:, order]), module(x)[:, order])


@some
@given(attentions(schemes=["none", "rope"]), sizes)
def test_to_permute_a_memory_with_its_mask_changes_nothing(module, size):
    batch, n, n_key = size
    x, memory, mask, order = vectors(batch, n), vectors(batch, n_key), some_mask(batch, n, n_key), torch.randperm(n_key)
    assert_close(module(x, memory[:, order], mask[..., order]), module(x, memory, mask))


@each_scheme
@both_ways
@pytest.mark.parametrize("biased", [False, True], ids=["no bias", "bias"])
def test_a_query_that_may_attend_to_nothing_gets_the_outputs_bias_and_no_gradient_is_nan(biased, weights, positions):
    module = attention(positions)
    x = vectors(BATCH, N_KEY).requires_grad_()
    mask = torch.ones(BATCH, N_KEY, N_KEY, dtype=torch.bool)
    mask[0], mask[1, 2] = False, False                                             # a whole sequence, and one query
    bias = torch.randn(HEADS, N_KEY, N_KEY, dtype=torch.float64) if biased else None
    output = module(x, mask=mask, bias=bias, weights=[] if weights else None)
    assert_close(output[0], module.output.bias.expand(N_KEY, -1))
    assert_close(output[1, 2], module.output.bias)
    output.square().sum().backward()
    assert x.grad.isfinite().all() and (x.grad[0] == 0).all()
    assert all(p.grad.isfinite().all() for p in module.parameters())


@both_ways
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_a_query_that_may_attend_to_nothing_is_safe_in_every_precision(dtype, weights):
    module, x = attention(dtype=dtype), torch.randn(BATCH, N_KEY, D_MODEL).to(dtype)
    output = module(x, mask=torch.zeros(1, N_KEY, dtype=torch.bool), weights=[] if weights else None)
    torch.testing.assert_close(output, module.output.bias.expand_as(output), rtol=0, atol=1e-2)


@each_scheme
def test_a_token_alone_gets_its_own_value_through(positions):
    module, x = attention(positions), vectors(BATCH, 1)
    value = module.value(x)
    if positions == "shaw":
        value = value + module.relative.value[2].repeat(HEADS)                     # at distance zero
    assert_close(module(x, causal=True), module.output(value))


@each_scheme
@both_ways
def test_inputs_need_not_be_contiguous(weights, positions):
    module, x = attention(positions), vectors(BATCH, N_KEY)
    strange, mask = x.mT.contiguous().mT, some_mask(N_KEY, BATCH, N_KEY).transpose(0, 1)
    assert not strange.is_contiguous() and not mask.is_contiguous()
    expected = module(x, mask=mask.contiguous())
    assert_close(module(strange, mask=mask, weights=[] if weights else None), expected)


@each_scheme
@both_ways
def test_bfloat16_comes_back_as_bfloat16_finite_and_near_float32(weights, positions):
    module, x = attention(positions, torch.float32, n_kv_heads=2), torch.randn(BATCH, N_KEY, D_MODEL)
    bias = torch.randn(HEADS, N_KEY, N_KEY)
    expected = module(x, causal=True, bias=bias)
    kept = [] if weights else None
    got = module.bfloat16()(x.bfloat16(), causal=True, bias=bias.bfloat16(), weights=kept)
    assert got.dtype == torch.bfloat16 and got.isfinite().all()
    assert (got.float() - expected).norm() < 0.03 * expected.norm()


def test_the_scale_multiplies_the_scores():
    module, doubled, x, kept = attention(), attention(scale=2 / math.sqrt(2)), vectors(BATCH, N_KEY), []
    doubled.load_state_dict(module.state_dict())
    doubled(x, weights=kept)
    with torch.no_grad():
        module.query.weight.mul_(2)
        module.query.bias.mul_(2)
    module(x, weights=kept)
    assert_close(kept[1], kept[0])


def test_a_scale_of_zero_looks_everywhere_alike_and_leaves_the_bias_to_decide():
    module, x, kept = attention(scale=0.0), vectors(BATCH, N_KEY), []
    bias = torch.randn(HEADS, N_KEY, N_KEY, dtype=torch.float64)
    module(x, weights=kept)
    module(x, bias=bias, weights=kept)
    assert_close(kept[0], torch.full_like(kept[0], 1 / N_KEY))
    assert_close(kept[1], bias.softmax(-1).expand_as(kept[1]))


@both_ways
def test_dropout_is_off_in_evaluation_and_on_in_training(weights):
    module, x = attention(dropout=0.5), vectors(BATCH, N_KEY)
    plain = attention()
    plain.load_state_dict(module.state_dict())
    kept = [] if weights else None
    assert_close(module(x, weights=kept), plain(x))
    module.train()
    assert not torch.allclose(module(x, weights=kept), module(x, weights=kept))


@both_ways
def test_dropout_keeps_what_is_expected(weights):
    module, x = attention(dropout=0.5), vectors(1, N_KEY)
    expected = module(x)
    module.train()
    mean = module(x.expand(4000, -1, -1), weights=[] if weights else None).mean(0, keepdim=True)
    assert (mean - expected).norm() < 0.1 * expected.norm()


@each_scheme
@both_ways
@pytest.mark.parametrize("n_kv_heads", [HEADS, 1])
def test_every_parameter_learns(n_kv_heads, weights, positions):
    module, x = attention(positions, n_kv_heads=n_kv_heads), vectors(BATCH, N_KEY)
    module(x, mask=lengths_to_mask([6, 3, 4], N_KEY)[:, None], weights=[] if weights else None).sum().backward()
    for name, parameter in module.named_parameters():
        assert parameter.grad is not None and parameter.grad.isfinite().all(), name
        # Without rope, a bias of the keys adds the same to all scores of a query: the softmax forgets it.
        assert (parameter.grad.abs().max() > 1e-9) == (name != "key.bias" or positions == "rope"), name


@each_scheme
@both_ways
@pytest.mark.parametrize("cross", [False, True], ids=["self", "cross"])
def test_every_gradient_is_what_differences_give(cross, weights, positions):
    module = attention(positions, d_model=4, n_heads=2, n_kv_heads=1)
    names = [name for name, _ in module.named_parameters()]
    mask = torch.tensor([[[True, True, False]], [[False, False, False]]])

    def call(x, memory, bias, *parameters):
        given = dict(zip(names, parameters, strict=True))
        kept = [] if weights else None
        return torch.func.functional_call(
            module, given, (x, memory if cross else None, mask, not cross, bias), {"weights": kept}
        )

    shapes = (2, 2 if cross else 3, 4), (2, 3, 4), (2, 2 if cross else 3, 3)
    inputs = [torch.randn(shape, dtype=torch.float64) for shape in shapes]
    inputs = [t.detach().requires_grad_() for t in (*inputs, *module.parameters())]
    assert torch.autograd.gradcheck(call, inputs)


@pytest.mark.parametrize("positions", SCHEMES)
def test_torch_compile_makes_one_graph_of_it(positions):
    module, x = attention(positions, n_kv_heads=2), vectors(BATCH, N_KEY)

    def call(x, lengths):
        return module(x, mask=lengths_to_mask(lengths, x.shape[1])[:, None], causal=True)

    lengths = torch.tensor([6, 2, 4])
    assert_close(torch.compile(call, fullgraph=True, backend="aot_eager")(x, lengths), call(x, lengths))


# Masks


def test_a_causal_mask_for_more_keys_is_the_last_rows_of_a_square_one():
    for n_key in range(1, 6):
        for n in range(n_key + 1):
            assert torch.equal(causal_mask(n, n_key), causal_mask(n_key)[n_key - n :])


def test_every_row_of_a_causal_mask_allows_itself_so_none_is_empty():
    mask = causal_mask(5)
    assert mask.diagonal().all() and mask.any(-1).all() and not mask.triu(1).any()


@some
@given(st.integers(1, 4), st.integers(1, 5))
def test_combined_masks_allow_what_all_allow(batch, n):
    torch.manual_seed(0)
    padding, own = some_mask(batch, 1, n), some_mask(batch, n, n)
    combined = combine_masks(None, causal_mask(n), padding, None, own)
    assert torch.equal(combined, causal_mask(n) & padding & own)
    assert torch.equal(combine_masks(own), own)


def test_no_masks_combine_to_none():
    assert combine_masks() is None and combine_masks(None, None) is None


def test_torch_compile_makes_one_graph_of_the_masks():
    def masks(x, lengths):
        return combine_masks(causal_mask(x.shape[1], device=x.device), lengths_to_mask(lengths, x.shape[1])[:, None])

    x, lengths = torch.randn(2, 3), torch.tensor([3, 1], dtype=torch.int32)
    compiled = torch.compile(masks, fullgraph=True, backend="aot_eager")
    assert torch.equal(compiled(x, lengths), masks(x, lengths))


# The cache


def pieces(lengths, dtype=torch.float32):
    return [tuple(torch.randn(2, BATCH, 2, n, 3).to(dtype)) for n in lengths]


@some
@given(st.lists(st.integers(1, 40), min_size=1, max_size=12))
def test_a_cache_holds_all_that_was_appended_in_order(lengths):
    torch.manual_seed(0)
    cache, appended = KeyValueCache(), pieces(lengths)
    for key, value in appended:
        returned = cache.append(key, value)
    for got, again, parts in zip(returned, cache.contents, zip(*appended, strict=True), strict=True):
        assert torch.equal(got, torch.cat(parts, dim=2)) and torch.equal(again, got)
    assert cache.length == sum(lengths)


def test_a_cache_copies_what_it_has_only_when_it_doubles():
    cache, places = KeyValueCache(), set()
    for key, value in pieces([1] * 500):
        places.add(cache.append(key, value)[0].data_ptr())
    assert len(places) <= 8


@some
@given(st.lists(st.integers(1, 12), min_size=1, max_size=12), st.integers(1, 9))
def test_a_cache_with_a_window_gives_the_new_ones_after_the_last_of_the_old_that_they_may_see(lengths, window):
    torch.manual_seed(0)
    cache, appended, read = KeyValueCache(window), pieces(lengths), 0
    for i, (key, value) in enumerate(appended):
        kept = min(read, window - 1)
        assert cache.n_kept == kept
        returned, read = cache.append(key, value), read + key.shape[2]
        for got, parts in zip(returned, zip(*appended[: i + 1], strict=True), strict=True):
            assert torch.equal(got, torch.cat(parts, dim=2)[:, :, read - key.shape[2] - kept :])
    assert cache.length == read
    assert torch.equal(cache.contents[0], returned[0][:, :, returned[0].shape[2] - cache.n_kept :])


def test_a_cache_with_a_window_needs_no_more_room_for_a_longer_text():
    cache, rooms = KeyValueCache(8), set()
    for key, value in pieces([1] * 300):
        rooms.add(cache.append(key, value)[0].untyped_storage().nbytes())
    assert max(rooms) <= 16 * BATCH * 2 * 3 * 4


@pytest.mark.parametrize("window", [None, 5])
def test_a_cache_that_forgets_what_its_layer_sees_is_refused(window):
    module = MultiHeadAttention(8, 2, window=window)
    with pytest.raises(ValueError, match=rf"^cache: got a window of 4, expected the layer's, {window}, or more"):
        module(torch.randn(1, 2, 8), cache=KeyValueCache(4))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_the_bytes_of_a_cache_are_those_of_its_tokens_and_not_of_its_room(dtype):
    cache = KeyValueCache()
    assert cache.n_bytes == 0
    for n, (key, value) in enumerate(pieces([1] * 20, dtype), start=1):
        cache.append(key, value)
        assert cache.n_bytes == 2 * BATCH * 2 * n * 3 * dtype.itemsize


def test_selected_rows_of_a_cache_may_repeat_and_then_grow_apart():
    cache, first = KeyValueCache(), pieces([4])[0]
    rows = torch.tensor([2, 0, 2, 2, 1])
    cache.append(*first)
    cache.select(rows)
    new = torch.randn(2, len(rows), 2, 1, 3)
    key, value = cache.append(*new)
    assert torch.equal(key, torch.cat([first[0][rows], new[0]], dim=2))
    assert torch.equal(value, torch.cat([first[1][rows], new[1]], dim=2))
    assert cache.n_bytes == 2 * len(rows) * 2 * 5 * 3 * 4


def test_selecting_from_an_empty_cache_leaves_it_empty():
    cache = KeyValueCache()
    cache.select(torch.tensor([0, 0]))
    assert cache.length == 0 and cache.n_bytes == 0


def test_a_cache_takes_tensors_that_ask_for_gradients_only_where_none_are_kept():
    (key, value), cache = pieces([2])[0], KeyValueCache()
    for asks in ((key.clone().requires_grad_(), value), (key, value.clone().requires_grad_())):
        with pytest.raises(ValueError, match=r"got keys that ask for gradients, expected .*torch.no_grad"):
            cache.append(*asks)
        with torch.no_grad():
            assert not cache.append(*asks)[0].requires_grad
    assert cache.length == 4


# Bad input

X = torch.randn(BATCH, N_QUERY, D_MODEL)
MEMORY = torch.randn(BATCH, N_KEY, D_MODEL)
ATTENTION = MultiHeadAttention(D_MODEL, HEADS)
PROJECTED = ATTENTION.keys_values(MEMORY)
OWN = r"expected \(n_query, n_key\) or \(batch, n_query, n_key\), here \(4, 4\) or \(3, 4, 4\)"


def ones(*shape):
    return torch.ones(shape, dtype=torch.bool)


BAD = {
    "heads that do not divide": (
        lambda: MultiHeadAttention(8, 3),
        ValueError,
        r"^n_heads: got 3, expected a divisor of d_model = 8 \(or give d_head\)",
    ),
    "key heads that do not divide": (
        lambda: MultiHeadAttention(8, 4, n_kv_heads=3),
        ValueError,
        "^n_kv_heads: got 3, expected a divisor of n_heads = 4",
    ),
    "more key heads than heads": (lambda: MultiHeadAttention(8, 2, n_kv_heads=4), ValueError, "^n_kv_heads: got 4"),
    "no key heads": (lambda: MultiHeadAttention(8, 4, n_kv_heads=0), ValueError, "^n_kv_heads: got 0, expected"),
    "dropout of everything": (lambda: MultiHeadAttention(8, 4, dropout=1.0), ValueError, "^dropout: got 1.0, expected"),
    "dropout below nothing": (lambda: MultiHeadAttention(8, 4, dropout=-0.1), ValueError, "^dropout: got -0.1"),
    "x of another width": (lambda: ATTENTION(X[..., :7]), ValueError, r"^x: got .*\(3, 4, 7\), expected \(batch.* 8"),
    "x without a batch": (lambda: ATTENTION(X[0]), ValueError, r"^x: got shape \(4, 8\), expected \(batch, n"),
    "x of lists": (lambda: ATTENTION(X.tolist()), TypeError, "^x: got list, expected a tensor"),
    "a memory of another width": (lambda: ATTENTION(X, MEMORY[..., :5]), ValueError, r"^memory: got .*\(3, 6, 5\).* 8"),
    "a memory without a batch": (lambda: ATTENTION(X, MEMORY[0]), ValueError, r"^memory: got .*\(6, 8\), expected"),
    "a memory for fewer": (lambda: ATTENTION(X, MEMORY[:2]), ValueError, r"^memory: got .*2.*expected .*3"),
    "a memory for one": (lambda: ATTENTION(X, MEMORY[:1]), ValueError, r"^memory: got .*1.*expected .*3"),
    "a memory of lists": (lambda: ATTENTION(X, MEMORY.tolist()), TypeError, "^memory: got list, expected a tensor"),
    "a memory of another width to project": (
        lambda: ATTENTION.keys_values(MEMORY[..., :5]), ValueError, r"^memory: got .*\(3, 6, 5\).* 8"
    ),
    "a memory of lists to project": (lambda: ATTENTION.keys_values(MEMORY.tolist()), TypeError, "^memory: got list"),
    "a projected memory for fewer": (
        lambda: ATTENTION(X, PROJECTED.select(torch.arange(2))),
        ValueError,
        r"^memory: got shape \(2, 4, 6, 2\), expected \(batch = 3, n_kv_heads = 4, n_key, d_head = 2\)",
    ),
    "a memory projected by other heads": (
        lambda: ATTENTION(X, MultiHeadAttention(D_MODEL, HEADS, n_kv_heads=2).keys_values(MEMORY)),
        ValueError,
        r"^memory: got shape \(3, 2, 6, 2\), expected .*n_kv_heads = 4",
    ),
    "a memory projected by wider heads": (
        lambda: ATTENTION(X, MultiHeadAttention(D_MODEL, HEADS, d_head=3).keys_values(MEMORY)),
        ValueError,
        r"^memory: got shape \(3, 4, 6, 3\), expected .*d_head = 2",
    ),
    "fewer projected values than keys": (
        lambda: ATTENTION(X, KeyValues(PROJECTED.key, PROJECTED.value[:, :, :5])),
        ValueError,
        r"^memory: got shape \(3, 4, 5, 2\), expected .*n_key = 6",
    ),
    "projected keys without heads": (
        lambda: ATTENTION(X, KeyValues(MEMORY, MEMORY)),
        ValueError,
        r"^memory: got shape \(3, 6, 8\), expected .*n_kv_heads",
    ),
    "a cache for a memory's keys": (
        lambda: ATTENTION(X, MEMORY, cache=KeyValueCache()),
        ValueError,
        "^cache: got one beside a memory, expected None .*keys_values",
    ),
    "a padding mask as it is": (
        lambda: ATTENTION(X, mask=ones(3, 4)),
        ValueError,
        rf"^mask: got shape \(3, 4\), {OWN}; a padding mask \(batch, n_key\) becomes mask\[:, None, :\]",
    ),
    "a mask for other keys": (lambda: ATTENTION(X, mask=ones(4, 6)), ValueError, rf"^mask: got shape \(4, 6\), {OWN}"),
    "a mask for another batch": (lambda: ATTENTION(X, mask=ones(2, 4, 4)), ValueError, r"^mask: got shape \(2, 4, 4\)"),
    "a mask for other heads": (lambda: ATTENTION(X, mask=ones(3, 2, 4, 4)), ValueError, r"^mask: got shape \(3, 2, 4"),
    "a mask that is one row": (lambda: ATTENTION(X, mask=ones(4)), ValueError, r"^mask: got shape \(4,\)"),
    "a mask of five axes": (lambda: ATTENTION(X, mask=ones(1, 1, 1, 4, 4)), ValueError, r"^mask: got shape \(1, 1, 1"),
    "a mask of one column": (lambda: ATTENTION(X, mask=ones(4, 1)), ValueError, r"^mask: got shape \(4, 1\)"),
    "a mask of floats": (
        lambda: ATTENTION(X, mask=torch.zeros(4, 4)),
        TypeError,
        "^mask: got torch.float32, expected torch.bool with True where a query may attend",
    ),
    "a mask of whole numbers": (lambda: ATTENTION(X, mask=ones(4, 4).int()), TypeError, "^mask: got torch.int32"),
    "a mask of lists": (lambda: ATTENTION(X, mask=ones(4, 4).tolist()), TypeError, "^mask: got list"),
    "a causal mask upside down": (
        lambda: ATTENTION(X, mask=~causal_mask(4)),
        ValueError,
        r"^mask: got one in which each token .* expected True where a query may attend .*use ~mask",
    ),
    "one upside down for each head": (
        lambda: ATTENTION(X, mask=~causal_mask(4).expand(3, 4, 4, 4)),
        ValueError,
        "^mask: got one in which each token",
    ),
    "fewer keys than causal queries": (lambda: ATTENTION(X, X[:, :3], causal=True), ValueError, "^n_key: got 3 for 4"),
    "a causal mask of fewer keys": (lambda: causal_mask(3, 2), ValueError, "^n_key: got 2 for 3 queries, expected"),
    "masks that do not broadcast": (
        lambda: combine_masks(causal_mask(2), None, causal_mask(3)),
        ValueError,
        r"^masks: got shapes \(2, 2\) and \(3, 3\), expected ones that broadcast",
    ),
    "floats among masks": (lambda: combine_masks(None, torch.ones(2)), TypeError, "^mask: got torch.float32, expected"),
    "a length below zero": (lambda: lengths_to_mask([-1], 5), ValueError, r"^lengths: got \[-1\], expected .*0\.\.5"),
    "a length for a batch": (lambda: lengths_to_mask(3, 5), ValueError, r"^lengths: got .*\(\), expected .*\(batch,\)"),
    "rope of another width": (lambda: MultiHeadAttention(8, 4, rope=RoPE(4, 9))(X), ValueError, "got .*expected .*4"),
    "Shaw's terms of another width": (
        lambda: MultiHeadAttention(8, 4, relative=ShawRelative(2, 4))(X),
        ValueError,
        "^query: got .*expected .*4",
    ),
    "positions past rope's": (lambda: MultiHeadAttention(8, 4, rope=RoPE(2, 3))(X), ValueError, "^n: got 4 .*expected"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_refused_at_the_door_with_the_arguments_name(case):
    call, error, words = BAD[case]
    with pytest.raises(error, match=words):
        call()


def filled():
    cache = KeyValueCache()
    cache.append(*torch.randn(2, 2, 1, 3, 4))
    return cache


# These gave a wrong answer without a word, or an error of torch's or python's that names no argument of ours.
SILENT = {
    "no heads": lambda: MultiHeadAttention(8, 0),
    "heads without width": lambda: MultiHeadAttention(8, 2, d_head=0),
    "a model without width": lambda: MultiHeadAttention(0, 2),
    "a bias for other heads": lambda: ATTENTION(X, bias=torch.zeros(3, 4, 4)),
    "a bias for other keys": lambda: ATTENTION(X, bias=torch.zeros(4, 4, 5)),
    "a bias that makes the batch larger": lambda: ATTENTION(X[:1], bias=torch.zeros(5, 4, 4, 4), weights=[]),
    "a bias that is a mask": lambda: ATTENTION(X, bias=causal_mask(4).expand(4, 4, 4), weights=[]),
    "keys for a smaller batch than is cached": lambda: filled().append(*torch.randn(2, 1, 1, 1, 4)),
    "keys for a larger batch than is cached": lambda: filled().append(*torch.randn(2, 3, 1, 1, 4)),
    "keys narrower than those cached": lambda: filled().append(*torch.randn(2, 2, 1, 1, 1)),
    "keys of another type than those cached": lambda: filled().append(*torch.randn(2, 2, 1, 1, 4).double()),
    "fewer values than keys": lambda: KeyValueCache().append(torch.randn(2, 1, 3, 4), torch.randn(2, 1, 1, 4)),
    "keys without heads": lambda: KeyValueCache().append(*torch.randn(2, 2, 3, 4)),
    "a projected memory of one row": lambda: ATTENTION(X, PROJECTED.select(torch.tensor([0]))),
    "a projected memory of two rows": lambda: ATTENTION(X, PROJECTED.select(torch.tensor([0, 1]))),
    "a row that is not in the projected memory": lambda: PROJECTED.select(torch.tensor([0, 3])),
    "a row below zero of the projected memory": lambda: PROJECTED.select(torch.tensor([-1])),
    "a row that is not in the cache": lambda: filled().select(torch.tensor([0, 2])),
    "a row below zero": lambda: filled().select(torch.tensor([-1])),
    "rows as a mask": lambda: filled().select(torch.tensor([True, False])),
    "a causal mask of less than nothing": lambda: causal_mask(-1),
    "no lengths at all": lambda: lengths_to_mask(None, 3),
    "lengths as a mask": lambda: lengths_to_mask(torch.tensor([True, False, True]), 3),
}


@pytest.mark.parametrize("case", SILENT)
def test_what_does_not_fit_is_not_answered(case):
    with pytest.raises((ValueError, TypeError), match=r"^\w+: got .*, expected "):
        SILENT[case]()


def test_nothing_of_an_attention_is_trained_but_its_parameters():
    module = attention("shaw", n_kv_heads=2)
    assert {name.split(".")[0] for name, _ in module.named_parameters()} == {
        "query", "key", "value", "output", "relative"
    }
    assert isinstance(module, nn.Module) and not [*attention("rope").rope.parameters()]


def test_weights_are_asked_for_with_a_list():
    with pytest.raises(TypeError, match=r"^weights: got bool, expected a list"):
        ATTENTION(X, weights=True)


def test_an_empty_cache_has_no_contents():
    with pytest.raises(ValueError, match=r"^cache: got an empty one"):
        _ = KeyValueCache().contents
