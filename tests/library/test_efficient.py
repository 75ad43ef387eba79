"""The cheap attentions compute what they claim: the same numbers as the full one, or their own paper's formula."""

import functools
import math
import shutil
import warnings

import pytest
import torch
import torch.nn.functional as F
from torch.utils._python_dispatch import TorchDispatchMode

from attncourse import efficient
from attncourse.attention import attend, causal_mask, lengths_to_mask
from attncourse.efficient import (
    LinformerAttention,
    all_of,
    any_of,
    bigbird,
    block_mask,
    causal,
    dense_mask,
    dilated,
    flex_attend,
    global_tokens,
    linear_attend,
    linear_attend_step,
    linformer_attend,
    longformer,
    online_softmax,
    online_softmax_step,
    random_keys,
    receptive_field,
    sliding_window,
    sliding_window_attend,
    tiled_attend,
)

BATCH, N, D, D_V = 2, 37, 4, 6


def tensors(n_query=N, n_key=N, dtype=torch.float64):
    return (
        torch.randn(BATCH, n_query, D, dtype=dtype, requires_grad=True),
        torch.randn(BATCH, n_key, D, dtype=dtype, requires_grad=True),
        torch.randn(BATCH, n_key, D_V, dtype=dtype, requires_grad=True),
    )


def with_gradients(function, inputs):
    """The output, and the gradient at each input of a number that weighs every output differently."""
    output = function(*inputs)
    direction = torch.arange(output.numel(), dtype=output.dtype).reshape(output.shape).cos()
    return output, *torch.autograd.grad((output * direction).sum(), inputs)


def assert_same(ours, theirs, tolerance=1e-10):
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=tolerance)


# Patterns


def test_the_causal_pattern_is_the_causal_mask():
    assert torch.equal(dense_mask(causal(), 7), causal_mask(7))


@pytest.mark.parametrize("width", [0, 1, 3, 20])
@pytest.mark.parametrize("forward", [True, False], ids=["causal", "both sides"])
def test_a_window_holds_itself_and_width_keys_on_each_side(width, forward):
    mask = dense_mask(sliding_window(width, causal=forward), 9)
    for i in range(9):
        expected = {j for j in range(9) if abs(i - j) <= width and not (forward and j > i)}
        assert set(mask[i].nonzero().flatten().tolist()) == expected


def test_a_dilated_window_reaches_further_with_as_many_keys():
    mask = dense_mask(dilated(2, dilation=3), 30)
    assert mask[15].nonzero().flatten().tolist() == [9, 12, 15, 18, 21]
    assert dense_mask(dilated(2, 3, causal=True), 30)[15].nonzero().flatten().tolist() == [9, 12, 15]


@pytest.mark.parametrize("tokens", [2, [0, 1]], ids=["a number", "indices"])
def test_global_tokens_see_all_and_are_seen_by_all(tokens):
    mask = dense_mask(global_tokens(tokens), 6, 8)
    assert mask[:2].all() and mask[:, :2].all() and not mask[2:, 2:].any()


def test_every_query_gets_its_random_keys_without_repeats_and_again_from_the_same_seed():
    mask = dense_mask(random_keys(50, 40, n_random=5, seed=1), 50, 40)
    assert (mask.sum(-1) == 5).all() and mask.any(0).all()
    assert torch.equal(mask, dense_mask(random_keys(50, 40, n_random=5, seed=1), 50, 40))
    assert not torch.equal(mask, dense_mask(random_keys(50, 40, n_random=5, seed=2), 50, 40))


def test_combined_patterns_are_the_or_and_the_and_of_their_masks():
    parts = [sliding_window(2), global_tokens([3]), random_keys(9, 9, 2)]
    masks = [dense_mask(part, 9) for part in parts]
    assert torch.equal(dense_mask(any_of(*parts), 9), masks[0] | masks[1] | masks[2])
    assert torch.equal(dense_mask(all_of(*parts), 9), masks[0] & masks[1] & masks[2])


def test_longformer_and_bigbird_are_the_sums_of_their_parts():
    assert torch.equal(dense_mask(longformer(2, 1, 3), 40), dense_mask(any_of(dilated(2, 3), global_tokens(1)), 40))
    parts = sliding_window(1), global_tokens(2), random_keys(40, 40, 3, seed=5)
    assert torch.equal(dense_mask(bigbird(40, 1, 2, 3, seed=5), 40), dense_mask(any_of(*parts), 40))


def test_a_sparse_patterns_share_of_all_pairs_falls_as_n_grows():
    shares = [dense_mask(bigbird(n, width=2, n_global=2, n_random=3), n).float().mean() for n in (64, 256)]
    assert shares[1] < shares[0] / 3


def test_windows_hear_a_window_further_with_each_layer():
    mask = dense_mask(sliding_window(2), 20)
    for layers in (0, 1, 3):
        assert torch.equal(receptive_field(mask, layers), dense_mask(sliding_window(2 * layers), 20))


def test_a_global_token_lets_everybody_hear_of_everybody_in_two_layers():
    mask = dense_mask(longformer(0, 1), 12)
    assert not receptive_field(mask, 1).all() and receptive_field(mask, 2).all()


def test_news_travels_from_key_to_query_and_not_back():
    mask = torch.tensor([[True, False], [True, True]])
    assert torch.equal(receptive_field(mask, 5), mask)


@pytest.mark.parametrize(
    ("mask", "layers", "error", "words"),
    [
        (torch.ones(3, 4, dtype=torch.bool), 1, ValueError, r"mask: got shape \(3, 4\), expected a square"),
        (torch.ones(3, 3), 1, TypeError, "mask: got torch.float32"),
        (torch.ones(3, 3, dtype=torch.bool), -1, ValueError, "layers: got -1"),
    ],
)
def test_a_receptive_field_is_asked_for_a_square_mask_and_some_layers(mask, layers, error, words):
    with pytest.raises(error, match=words):
        receptive_field(mask, layers)


# Flex attention


def flex_inputs(n_query=150, n_key=140, dtype=torch.float32):
    return (torch.randn(1, 2, n, 16).to(dtype) for n in (n_query, n_key, n_key))


def with_an_empty_row(batch, head, query_index, key_index):
    return (query_index != 5) & ((query_index - key_index).abs() <= 3)


@pytest.mark.slow
def test_flex_attention_compiled_here_gives_what_attend_gives():
    query, key, value = flex_inputs()
    pattern = all_of(with_an_empty_row, any_of(sliding_window(2), random_keys(150, 140, 2)))
    with warnings.catch_warnings():
        if shutil.which("g++"):
            # A compiler is here, so falling back would be a bug.
            warnings.filterwarnings("error", message="flex_attention does not compile")
        output = flex_attend(query, key, value, pattern)
    expected, _ = attend(query, key, value, dense_mask(pattern, 150, 140))
    torch.testing.assert_close(output, expected, rtol=0, atol=1e-5)
    assert (output[:, :, 5] == 0).all() and (output[:, :, 4] != 0).all()


def test_flex_attend_has_gradients_on_the_cpu_too():
    inputs = [x.double().requires_grad_() for x in flex_inputs(20, 20)]
    ours = with_gradients(lambda q, k, v: flex_attend(q, k, v, with_an_empty_row), inputs)
    mask = dense_mask(with_an_empty_row, 20)
    assert_same(ours, with_gradients(lambda q, k, v: attend(q, k, v, mask)[0], inputs))
    assert all(x.isfinite().all() for x in ours)


def test_where_flex_attention_does_not_compile_attend_answers_and_a_warning_says_so(monkeypatch):
    from torch._dynamo.exc import BackendCompilerFailed

    def broken(*args, **kwargs):
        raise BackendCompilerFailed(lambda: None, RuntimeError("no compiler"), None)

    monkeypatch.setattr(efficient, "_flex_attention", lambda: broken)
    query, key, value = flex_inputs(20, 20)
    with pytest.warns(UserWarning, match="does not compile here"):
        output = flex_attend(query, key, value, with_an_empty_row)
    assert_same([output], [attend(query, key, value, dense_mask(with_an_empty_row, 20))[0]], 1e-6)


def test_a_block_mask_is_built_once_for_a_pattern_and_a_size():
    pattern = sliding_window(4)
    assert block_mask(pattern, 300, 300, "cpu") is block_mask(pattern, 300, 300, "cpu")
    assert block_mask(pattern, 1280, 1280, "cpu").sparsity() > 50


# The window


@pytest.mark.parametrize("forward", [True, False], ids=["causal", "both sides"])
@pytest.mark.parametrize("n_global", [0, 1, 5])
@pytest.mark.parametrize("width, n", [(0, 5), (1, 0), (1, 1), (1, 12), (3, 37), (5, 35), (4, 3), (40, 37)])
def test_window_attention_and_its_gradient_are_those_of_attend_under_the_mask(width, n, n_global, forward):
    inputs = tensors(n, n)
    pattern = any_of(sliding_window(width), global_tokens(n_global))
    mask = dense_mask(all_of(causal(), pattern) if forward else pattern, n)
    ours = with_gradients(lambda q, k, v: sliding_window_attend(q, k, v, width, forward, n_global), inputs)
    assert_same(ours, with_gradients(lambda q, k, v: attend(q, k, v, mask)[0], inputs))


def test_what_lies_outside_the_window_changes_nothing():
    query, key, value = tensors()
    noise = torch.zeros(BATCH, N, 1, dtype=torch.float64)
    noise[:, 20] = 1e6
    before = sliding_window_attend(query, key, value, 3)
    after = sliding_window_attend(query, key + noise, value + noise, 3)
    changed = (before != after).any(-1).any(0).nonzero().flatten().tolist()
    assert changed == list(range(17, 24))


# Linformer


def test_linformer_is_attention_over_mixtures_of_keys_and_values():
    query, key, value = tensors(5, 9)
    E, G = torch.randn(3, 12, dtype=torch.float64), torch.randn(3, 12, dtype=torch.float64)
    expected, weights = attend(query, E[:, :9] @ key, G[:, :9] @ value)
    assert_same([linformer_attend(query, key, value, E, G)], [expected])
    assert weights.shape == (BATCH, 5, 3)


def test_linformer_with_the_identity_for_a_projection_is_full_attention():
    query, key, value = tensors(5, 9)
    identity = torch.eye(9, dtype=torch.float64)
    assert_same([linformer_attend(query, key, value, identity, identity)], [attend(query, key, value)[0]])


def test_linformers_padding_changes_nothing():
    layer = LinformerAttention(8, 2, n_max=12, k=3).double()
    x = torch.randn(BATCH, 10, 8, dtype=torch.float64)
    mask = lengths_to_mask([10, 6], 10)
    noisy = x + 100 * torch.randn_like(x) * ~mask.unsqueeze(-1)
    assert_same([layer(x, mask)[mask]], [layer(noisy, mask)[mask]])
    assert_same([layer(x, mask)[1, :6]], [layer(x[1:, :6])[0]])


def test_linformer_with_no_key_at_all_gives_zeros():
    nothing = torch.zeros(BATCH, 9, dtype=torch.bool)
    E = torch.randn(3, 9, dtype=torch.float64)
    output, *gradients = with_gradients(lambda q, k, v: linformer_attend(q, k, v, E, E, nothing), tensors(5, 9))
    assert (output == 0).all() and all((g == 0).all() for g in gradients)


def test_every_parameter_of_a_linformer_learns():
    layer = LinformerAttention(8, 2, n_max=12, k=3)
    layer(torch.randn(BATCH, 12, 8)).square().sum().backward()
    # The key's bias shifts E K by a different amount for each mixture, so unlike in full attention it is not idle.
    assert all(p.grad.abs().sum() > 0 for p in layer.parameters())


# Linear attention


def linear_by_the_formula(query, key, value, mask):
    weights = (F.elu(query) + 1) @ (F.elu(key) + 1).mT * mask
    return weights / weights.sum(-1, keepdim=True) @ value


@pytest.mark.parametrize("chunk", [1, 5, 37, 64])
def test_causal_linear_attention_and_its_gradient_are_those_of_the_quadratic_formula(chunk):
    inputs = tensors()
    ours = with_gradients(lambda q, k, v: linear_attend(q, k, v, causal=True, chunk=chunk), inputs)
    assert_same(ours, with_gradients(lambda q, k, v: linear_by_the_formula(q, k, v, causal_mask(N)), inputs))


def test_linear_attention_over_padded_keys_is_the_quadratic_formula():
    inputs, mask = tensors(5, 9), lengths_to_mask([9, 4], 9)
    ours = with_gradients(lambda q, k, v: linear_attend(q, k, v, mask), inputs)
    assert_same(ours, with_gradients(lambda q, k, v: linear_by_the_formula(q, k, v, mask[:, None]), inputs))


def test_causal_queries_are_the_last_of_the_keys():
    query, key, value = tensors(3, 9)
    mask = causal_mask(3, 9)
    linear = linear_attend(query, key, value, causal=True, chunk=4)
    assert_same([linear], [linear_by_the_formula(query, key, value, mask)])
    assert_same([tiled_attend(query, key, value, causal=True, tile=2)], [attend(query, key, value, mask)[0]])


def test_linear_attention_one_step_at_a_time_is_the_causal_one():
    query, key, value = tensors()
    state, outputs = None, []
    for t in range(N):
        output, state = linear_attend_step(query[:, t], key[:, t], value[:, t], state)
        outputs.append(output)
    assert_same([torch.stack(outputs, 1)], [linear_attend(query, key, value, causal=True)])
    assert state.s.shape == (BATCH, D, D_V) and state.z.shape == (BATCH, D)


@pytest.mark.parametrize("forward", [True, False], ids=["causal", "both sides"])
def test_linear_attention_with_no_key_at_all_gives_zeros_and_not_nan(forward):
    nothing = torch.zeros(BATCH, N, dtype=torch.bool)
    for result in with_gradients(lambda q, k, v: linear_attend(q, k, v, nothing, causal=forward), tensors()):
        assert (result == 0).all()


# Tiles


@pytest.mark.parametrize("sizes", [[7], [1] * 7, [3, 4], [5, 2]], ids=str)
def test_the_online_softmax_is_the_softmax_however_the_scores_are_cut(sizes):
    scores = 50 * torch.randn(3, 7, dtype=torch.float64)
    scores[0, :3] = -math.inf
    assert_same([online_softmax(scores.split(sizes, dim=-1))], [scores.softmax(-1)])


def test_a_chunk_of_minus_infinity_changes_nothing_first_or_later():
    masked, scores = torch.full((2, 3), -math.inf), torch.randn(2, 5)
    start = torch.full((2, 1), -math.inf), torch.zeros(2, 1)
    state = online_softmax_step(masked, *start)
    assert torch.equal(state[0], start[0]) and torch.equal(state[1], start[1])
    state = online_softmax_step(masked, *online_softmax_step(scores, *state))
    torch.testing.assert_close(state[0] + state[1].log(), scores.logsumexp(-1, keepdim=True))


def test_the_running_sum_stays_finite_for_scores_of_any_size():
    largest, total = torch.full((1, 1), -math.inf), torch.zeros(1, 1)
    for level in (-1e4, 300.0, 1e4, 0.0):
        largest, total = online_softmax_step(level + torch.tensor([[0.0, 1.0]]), largest, total)
    assert largest.item() == 10_001 and total.item() == pytest.approx(1 + math.exp(-1), abs=1e-3)


def test_a_state_of_another_shape_is_refused():
    with pytest.raises(ValueError, match=r"total: got shape \(2,\), expected \(2, 1\): one number for each row"):
        online_softmax_step(torch.zeros(2, 3), torch.zeros(2, 1), torch.zeros(2))


def test_the_online_softmax_of_nothing_allowed_is_zeros():
    assert (online_softmax(torch.full((2, 6), -math.inf).split(2, dim=-1)) == 0).all()


MASKS = {
    "no mask": lambda n_query, n_key: None,
    "random, with empty rows": lambda n_query, n_key: torch.rand(BATCH, n_query, n_key) < torch.rand(n_query, 1) - 0.3,
    "padding": lambda n_query, n_key: lengths_to_mask([n_key, 2], n_key)[:, None],
    "nothing allowed": lambda n_query, n_key: torch.zeros(1, 1, dtype=torch.bool),
}


@pytest.mark.parametrize("make_mask", MASKS.values(), ids=MASKS)
@pytest.mark.parametrize("forward", [True, False], ids=["causal", "both sides"])
@pytest.mark.parametrize("tile", [1, 8, 64])
def test_tiled_attention_and_its_gradient_are_those_of_attend(tile, forward, make_mask):
    inputs, mask = tensors(N, 43), make_mask(N, 43)
    full = torch.ones(N, 43, dtype=torch.bool) if mask is None else mask
    full = full & causal_mask(N, 43) if forward else full
    ours = with_gradients(lambda q, k, v: tiled_attend(q, k, v, mask, forward, tile), inputs)
    assert_same(ours, with_gradients(lambda q, k, v: attend(q, k, v, full)[0], inputs))


def test_tiled_attention_passes_gradcheck_with_an_empty_row():
    mask = torch.ones(4, 5, dtype=torch.bool)
    mask[1], mask[2, 0] = False, False
    inputs = tensors(4, 5)
    assert torch.autograd.gradcheck(lambda q, k, v: tiled_attend(q, k, v, mask, tile=2), inputs)


def test_tiled_attention_stands_large_scores():
    query, key, value = tensors(dtype=torch.float32)
    ours = tiled_attend(1e3 * query, 1e3 * key, value, tile=4)
    torch.testing.assert_close(ours, attend(1e3 * query, 1e3 * key, value)[0], rtol=0, atol=1e-5)


# All of them

MIXTURES = torch.linspace(-1, 1, 2 * 3 * 512).reshape(2, 3, 512).bfloat16()       # the same numbers in every dtype
CHEAP = {
    "window": functools.partial(sliding_window_attend, width=4),
    "causal window": functools.partial(sliding_window_attend, width=4, causal=True),
    "window and global tokens": functools.partial(sliding_window_attend, width=4, n_global=2),
    "linear": linear_attend,
    "causal linear": functools.partial(linear_attend, causal=True, chunk=8),
    "tiled": functools.partial(tiled_attend, tile=8),
    "causal tiled": functools.partial(tiled_attend, causal=True, tile=8),
    "linformer": lambda q, k, v: linformer_attend(q, k, v, *MIXTURES.to(q.dtype)),
}
CAUSAL = {name: CHEAP[name] for name in CHEAP if name.startswith("causal")}


class Largest(TorchDispatchMode):
    """Remembers the most numbers that any tensor held."""

    numel = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        tensors = [result] if isinstance(result, torch.Tensor) else result if isinstance(result, (list, tuple)) else []
        self.numel = max([self.numel, *(x.numel() for x in tensors if isinstance(x, torch.Tensor))])
        return result


@pytest.mark.parametrize("attention", CHEAP.values(), ids=CHEAP)
def test_no_tensor_of_n_by_n_numbers_is_ever_made_forward_or_backward(attention):
    largest = {}
    for n in (256, 512):
        with Largest() as seen:
            with_gradients(attention, tensors(n, n, torch.float32))
        largest[n] = seen.numel
    assert largest[512] < 512 * 512 / 4 and largest[512] <= 2.2 * largest[256]


@pytest.mark.parametrize("attention", CHEAP.values(), ids=CHEAP)
def test_sixteen_bits_in_sixteen_bits_out_with_sums_in_thirty_two(attention):
    inputs = [x.detach().bfloat16().requires_grad_() for x in tensors(300, 300)]
    exact = attention(*(x.detach().double() for x in inputs))
    output, *gradients = with_gradients(attention, inputs)
    assert all(x.dtype == torch.bfloat16 for x in (output, *gradients))
    # Half a unit in the last of bfloat16's 8 bits, and little more: only the result has been rounded.
    torch.testing.assert_close(output.double(), exact, rtol=2**-8, atol=1e-4)


@pytest.mark.parametrize("attention", CHEAP.values(), ids=CHEAP)
def test_inputs_need_not_be_contiguous(attention):
    inputs = tensors()
    strided = [x.detach().mT.contiguous().mT.requires_grad_() for x in inputs]
    assert not strided[1].is_contiguous()
    assert_same(with_gradients(attention, strided), with_gradients(attention, inputs))


@pytest.mark.parametrize("attention", CHEAP.values(), ids=CHEAP)
def test_more_batch_axes_or_none_give_the_same_numbers(attention):
    inputs = [x.detach() for x in tensors()]
    together = attention(*inputs)
    assert_same(attention(*(x[:, None] for x in inputs)), together[:, None])
    assert_same([attention(*(x[1] for x in inputs))], [together[1]])


@pytest.mark.parametrize("attention", CAUSAL.values(), ids=CAUSAL)
def test_changing_the_future_leaves_the_past_alone(attention):
    query, key, value = tensors()
    noise = torch.randn(BATCH, N, 1, dtype=torch.float64) * (torch.arange(N) >= 20).unsqueeze(-1)
    before, after = attention(query, key, value), attention(query + noise, key + noise, value + noise)
    assert_same([before[:, :20]], [after[:, :20]])
    assert (before[:, 20:] != after[:, 20:]).any(-1).all()


COMPILED = {name: CHEAP[name] for name in CHEAP if name not in ("linformer", "tiled", "causal tiled")}


@pytest.mark.parametrize("attention", COMPILED.values(), ids=COMPILED)
def test_it_compiles_in_one_graph(attention):
    inputs = tensors()
    torch._dynamo.reset()
    compiled = torch.compile(attention, backend="eager", fullgraph=True)
    assert_same(with_gradients(compiled, inputs), with_gradients(attention, inputs))


BAD = {
    "a negative width": (lambda q, k, v: sliding_window_attend(q, k, v, -1), ValueError, "width: got -1"),
    "a width that is not whole": (lambda q, k, v: sliding_window_attend(q, k, v, 1.5), ValueError, "width: got 1.5"),
    "a window between sequences": (
        lambda q, k, v: sliding_window_attend(q, k[:, 1:], v[:, 1:], 1),
        ValueError,
        "key: got 36 keys for 37 queries",
    ),
    "a negative pattern": (lambda q, k, v: sliding_window(-1), ValueError, "width: got -1"),
    "no dilation": (lambda q, k, v: dilated(1, 0), ValueError, "dilation: got 0"),
    "a negative token": (lambda q, k, v: global_tokens([0, -1]), ValueError, "tokens: got -1"),
    "more random keys than keys": (lambda q, k, v: random_keys(3, 3, 4), ValueError, "n_random: got 4"),
    "any of nothing": (lambda q, k, v: any_of(), ValueError, "patterns: got none"),
    "a pattern of numbers": (lambda q, k, v: dense_mask(lambda b, h, i, j: i - j, 3), TypeError, "pattern: got"),
    "flex without heads": (lambda q, k, v: flex_attend(q, k, v, causal()), ValueError, "query: got shape"),
    "a tile of nothing": (lambda q, k, v: tiled_attend(q, k, v, tile=0), ValueError, "tile: got 0"),
    "a tiled mask of floats": (lambda q, k, v: tiled_attend(q, k, v, torch.ones(N, N)), TypeError, "mask: got"),
    "a tiled mask of another shape": (
        lambda q, k, v: tiled_attend(q, k, v, torch.ones(N, 3, dtype=torch.bool)),
        ValueError,
        "mask: got shape",
    ),
    "more causal queries than keys": (
        lambda q, k, v: tiled_attend(q, k[:, 1:], v[:, 1:], causal=True),
        ValueError,
        "key: got 36 keys for 37 causal queries",
    ),
    "a linear mask of floats": (lambda q, k, v: linear_attend(q, k, v, torch.ones(N)), TypeError, "mask: got"),
    "a linear mask of another length": (
        lambda q, k, v: linear_attend(q, k, v, torch.ones(3, dtype=torch.bool)),
        ValueError,
        "mask: got shape",
    ),
    "a chunk of nothing": (lambda q, k, v: linear_attend(q, k, v, chunk=0), ValueError, "chunk: got 0"),
    "a step of another width": (
        lambda q, k, v: linear_attend_step(q[:, 0, 1:], k[:, 0], v[:, 0]),
        ValueError,
        "got shapes",
    ),
    "more keys than n_max": (
        lambda q, k, v: linformer_attend(q, k, v, torch.ones(2, 9), torch.ones(2, 9)),
        ValueError,
        "n_max = 9",
    ),
    "E and F that differ": (
        lambda q, k, v: linformer_attend(q, k, v, torch.ones(2, N), torch.ones(3, N)),
        ValueError,
        "F: got shape",
    ),
    "heads that do not divide": (lambda q, k, v: LinformerAttention(8, 3, 9, 2), ValueError, "n_heads: got 3"),
    "a value too few": (lambda q, k, v: tiled_attend(q, k, v[:, 1:]), ValueError, "value: got 36 values"),
    "a batch of another size": (lambda q, k, v: linear_attend(q[:1], k, v), ValueError, "key: got the batch axes"),
    "a list for a tensor": (lambda q, k, v: linear_attend([1.0], k, v), TypeError, "query: got list"),
    "no chunks": (lambda q, k, v: online_softmax([]), ValueError, "chunks: got none"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_refused_at_the_door_with_the_arguments_name(case):
    call, error, words = BAD[case]
    with pytest.raises(error, match=words):
        call(*tensors())


def test_keys_far_below_zero_still_have_weight_in_linear_attention():
    query, key, value = torch.full((1, 3, 4), -20.0), torch.full((1, 5, 4), -20.0), torch.randn(1, 5, 2)
    torch.testing.assert_close(linear_attend(query, key, value), value.mean(dim=1, keepdim=True).expand(1, 3, 2))


def test_tiles_keep_their_precision_under_autocast():
    query, key, value = (torch.randn(1, 64, 8) for _ in range(3))
    with torch.autocast("cpu", torch.bfloat16):
        output = tiled_attend(query, key, value, tile=16)
    torch.testing.assert_close(output, attend(query, key, value)[0], rtol=0, atol=1e-5)


def test_a_pattern_that_says_and_is_told_what_to_say():
    with pytest.raises(ValueError, match="pattern: got one that wants a single truth value, expected &"):
        dense_mask(lambda batch, head, i, j: 0 <= i - j < 2, 4)
