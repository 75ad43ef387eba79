"""Attention is what torch computes, and it never lets a masked position through."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from attncourse.attention import (
    AdditiveScore,
    BilinearScore,
    attend,
    causal_mask,
    dot_score,
    lengths_to_mask,
    masked_mean,
    masked_softmax,
    scaled_dot_score,
)

BATCH, N_QUERY, N_KEY, D, D_V = 2, 3, 5, 4, 6


@pytest.fixture
def tensors():
    return torch.randn(BATCH, N_QUERY, D), torch.randn(BATCH, N_KEY, D), torch.randn(BATCH, N_KEY, D_V)


@pytest.fixture
def mask():
    return lengths_to_mask([N_KEY, 2], N_KEY)[:, None]                             # (batch, 1, n_key)


SCORES = {
    "dot": dot_score,
    "scaled dot": scaled_dot_score,
    "bilinear": BilinearScore(D, D),
    "additive": AdditiveScore(D, D, 7),
}


def test_attend_equals_torchs_scaled_dot_product_attention(tensors, mask):
    query, key, value = (t.double() for t in tensors)
    output, _ = attend(query, key, value, mask)
    expected = F.scaled_dot_product_attention(query, key, value, attn_mask=mask)
    torch.testing.assert_close(output, expected, rtol=0, atol=1e-10)


def test_attends_gradient_equals_torchs(tensors, mask):
    ours = [t.double().requires_grad_() for t in tensors]
    theirs = [t.double().requires_grad_() for t in tensors]
    attend(*ours, mask)[0].square().sum().backward()
    F.scaled_dot_product_attention(*theirs, attn_mask=mask).square().sum().backward()
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a.grad, b.grad, rtol=0, atol=1e-10)


@pytest.mark.parametrize("score", SCORES.values(), ids=SCORES)
def test_attend_equals_the_average_written_as_a_loop(score, tensors, mask):
    query, key, value = tensors
    output, weights = attend(query, key, value, mask, score)
    for b in range(BATCH):
        for t in range(N_QUERY):
            there = [i for i in range(N_KEY) if mask[b, 0, i]]
            e = torch.stack([score(query[b, t, None], key[b, i, None])[0, 0] for i in there])
            alpha = e.exp() / e.exp().sum()
            torch.testing.assert_close(weights[b, t, there], alpha)
            torch.testing.assert_close(output[b, t], sum(a * value[b, i] for a, i in zip(alpha, there, strict=True)))


@pytest.mark.parametrize("score", SCORES.values(), ids=SCORES)
def test_every_score_gives_one_number_a_query_and_key(score):
    shape = score(torch.randn(7, 2, N_QUERY, D), torch.randn(7, 2, N_KEY, D)).shape
    assert shape == (7, 2, N_QUERY, N_KEY)


def test_the_scaled_score_keeps_the_variance_near_one_at_every_width():
    for d in (4, 64, 1024):
        scores = scaled_dot_score(torch.randn(200, d), torch.randn(200, d))
        assert 0.8 < scores.var() < 1.25


def test_the_additive_score_is_the_papers_network_on_query_and_key():
    score = AdditiveScore(3, 4, 5)
    q, k = torch.randn(1, 3), torch.randn(1, 4)
    w = torch.cat([score.query.weight, score.key.weight], dim=1)                   # acts on [q; k]
    expected = score.v.weight[0] @ torch.tanh(w @ torch.cat([q[0], k[0]]))
    torch.testing.assert_close(score(q, k)[0, 0], expected)


def test_rows_of_weights_sum_to_one_over_the_keys_that_are_there(tensors, mask):
    weights = attend(*tensors, mask)[1]
    torch.testing.assert_close(weights.sum(-1), torch.ones(BATCH, N_QUERY))
    assert (weights.masked_select(~mask) == 0).all()


def test_what_stands_in_masked_positions_changes_nothing(tensors, mask):
    query, key, value = tensors
    noise = 100 * torch.randn(BATCH, N_KEY, 1) * ~mask.mT
    assert torch.equal(attend(query, key, value, mask)[0], attend(query, key + noise, value + noise, mask)[0])


def test_permuting_the_keys_and_values_together_changes_nothing(tensors):
    query, key, value = tensors
    order = torch.randperm(N_KEY)
    torch.testing.assert_close(attend(query, key, value)[0], attend(query, key[:, order], value[:, order])[0])


def test_a_query_with_nothing_to_attend_to_gets_zeros_and_a_gradient_of_zeros(tensors):
    query, key, value = (t.requires_grad_() for t in tensors)
    nothing = torch.zeros(BATCH, 1, N_KEY, dtype=torch.bool)
    output, weights = attend(query, key, value, nothing)
    output.sum().backward()
    assert (output == 0).all() and (weights == 0).all()
    assert all((t.grad == 0).all() for t in (query, key, value))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_masked_softmax_keeps_the_type_and_masks_in_every_precision(dtype):
    scores = torch.randn(3, 4).to(dtype)
    weights = masked_softmax(scores, torch.tensor([True, True, False, True]))
    assert weights.dtype == dtype and (weights[:, 2] == 0).all()
    torch.testing.assert_close(weights.sum(-1).double(), torch.ones(3).double(), rtol=0, atol=1e-2)


def test_masked_softmax_passes_gradcheck_with_an_empty_row():
    mask = torch.tensor([[True, False, True], [False, False, False]])
    scores = torch.randn(2, 3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda s: masked_softmax(s, mask), scores)


def test_inputs_need_not_be_contiguous(tensors):
    query, key, value = (t.mT.contiguous().mT for t in tensors)
    assert not key.is_contiguous()
    torch.testing.assert_close(attend(query, key, value)[0], attend(*tensors)[0])


def test_a_length_mask_is_true_up_to_each_length():
    assert lengths_to_mask([3, 0, 1], 3).tolist() == [[True] * 3, [False] * 3, [True, False, False]]


def test_a_masked_mean_is_each_sequences_own_mean_whatever_its_batch(tensors):
    values, lengths = tensors[1], [N_KEY, 2]
    mean = masked_mean(values, lengths_to_mask(lengths, N_KEY))
    for row, length, got in zip(values, lengths, mean, strict=True):
        torch.testing.assert_close(got, row[:length].mean(dim=0))


def test_a_masked_mean_is_attention_with_equal_weights(tensors, mask):
    query, key, value = torch.zeros(BATCH, 1, D), *tensors[1:]
    torch.testing.assert_close(masked_mean(value, mask[:, 0]), attend(query, key, value, mask)[0][:, 0])


@pytest.mark.parametrize("anything", [7.0, torch.inf, torch.nan])
def test_what_stands_in_the_padding_does_not_change_a_mean_nor_its_gradient(tensors, anything):
    mask = lengths_to_mask([2, 0], N_KEY)
    values = tensors[1].masked_fill(~mask[..., None], anything).requires_grad_()
    mean = masked_mean(values, mask)
    torch.testing.assert_close(mean, torch.stack([tensors[1][0, :2].mean(dim=0), torch.zeros(D)]))
    (gradient,) = torch.autograd.grad(mean.sum(), values)
    torch.testing.assert_close(gradient, (mask[..., None] / 2).expand_as(values))


def test_one_mask_may_serve_a_whole_batch_and_more_axes(tensors):
    values = torch.stack([tensors[1], -tensors[1]])                                # (2, batch, n, d)
    mask = lengths_to_mask([3], N_KEY)                                             # (1, n)
    torch.testing.assert_close(masked_mean(values, mask), values[..., :3, :].mean(dim=-2))


def test_a_mean_refuses_a_mask_that_does_not_fit(tensors):
    with pytest.raises(TypeError, match=r"mask: got torch\.float32, expected torch\.bool"):
        masked_mean(tensors[1], torch.ones(BATCH, N_KEY))
    with pytest.raises(ValueError, match=r"mask: got shape \(2, 3\), expected \(2, 5\), one for each vector"):
        masked_mean(tensors[1], torch.ones(BATCH, N_QUERY, dtype=torch.bool))
    with pytest.raises(ValueError, match=r"values: got shape \(5,\)"):
        masked_mean(torch.ones(5), torch.ones(5, dtype=torch.bool))


def test_a_causal_mask_lets_a_position_see_itself_and_its_past():
    assert causal_mask(3).int().tolist() == [[1, 0, 0], [1, 1, 0], [1, 1, 1]]


BAD = {
    "widths that differ": (lambda q, k, v: attend(q, k[..., :3], v), ValueError, "key: got width 3"),
    "a value too few": (lambda q, k, v: attend(q, k, v[:, :4]), ValueError, "value: got 4 values for 5 keys"),
    "a mask of floats": (lambda q, k, v: attend(q, k, v, torch.ones(3, 5)), TypeError, "expected torch.bool"),
    "a mask of another shape": (
        lambda q, k, v: attend(q, k, v, torch.ones(2, 5, dtype=torch.bool).expand(7, 2, 5)),
        ValueError,
        "mask: got shape",
    ),
    "a list for a tensor": (lambda q, k, v: attend([1.0], k, v), TypeError, "query: got list"),
    "a vector for a matrix": (lambda q, k, v: attend(q, k, v[0, 0]), ValueError, "value: got shape"),
    "a length past the end": (lambda q, k, v: lengths_to_mask([6], 5), ValueError, "each within 0..5"),
    "keys of another type": (lambda q, k, v: attend(q, k.double(), v), TypeError, "key: got torch.float64 beside"),
    "the name of a score": (lambda q, k, v: attend(q, k, v, score="dot"), TypeError, "score: got 'dot', expected"),
    "a score not yet made": (lambda q, k, v: attend(q, k, v, score=BilinearScore), TypeError, "score: got <class"),
    "a tensor for a number": (lambda q, k, v: causal_mask(q), TypeError, "n: got Tensor, expected a whole number"),
    "lengths that are not whole": (lambda q, k, v: lengths_to_mask(torch.ones(2), 5), ValueError, "whole numbers"),
    "a bilinear score of other widths": (lambda q, k, v: BilinearScore(4, 9)(q, k), ValueError, "expected 9"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_refused_at_the_door_with_the_arguments_name(case, tensors):
    call, error, words = BAD[case]
    with pytest.raises(error, match=words):
        call(*tensors)


def test_a_padding_mask_without_its_query_axis_is_told_how_to_get_one(tensors):
    with pytest.raises(ValueError, match=r"becomes mask\[:, None, :\]"):
        attend(torch.randn(4, 3, D), torch.randn(4, 5, D), torch.randn(4, 5, D), torch.ones(4, 5, dtype=torch.bool))


def test_scores_with_parameters_learn(tensors):
    score = SCORES["bilinear"]
    attend(*tensors, score=score)[0].sum().backward()
    assert isinstance(score, nn.Module) and score.weight.grad.abs().sum() > 0
