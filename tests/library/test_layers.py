"""What stands between the attentions looks at one position at a time."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from attncourse.layers import (
    ACTIVATIONS,
    GATES,
    FeedForward,
    LayerNorm,
    RMSNorm,
    layer_norm,
    make_dropout,
    rms_norm,
)

BATCH, N, D_MODEL, D_FF = 3, 4, 6, 10
some = settings(deadline=None, max_examples=20, derandomize=True)
shapes = st.builds(lambda batch, d: (*batch, d), st.lists(st.integers(1, 4), max_size=3), st.integers(2, 9))


@pytest.fixture
def x():
    return torch.randn(BATCH, N, D_MODEL, dtype=torch.float64)


def assert_close(got, expected, atol=1e-10):
    torch.testing.assert_close(got, expected, rtol=0, atol=atol)


def randomised(module):
    """No bias is zero and no norm's weight is one, so none can be forgotten unseen."""
    for parameter in module.parameters():
        nn.init.normal_(parameter)
    return module.double()


MODULES = {
    "LayerNorm": lambda: LayerNorm(D_MODEL),
    "LayerNorm without bias": lambda: LayerNorm(D_MODEL, bias=False),
    "RMSNorm": lambda: RMSNorm(D_MODEL),
    **{f"FeedForward, {name}": lambda name=name: FeedForward(D_MODEL, D_FF, name) for name in ACTIVATIONS},
    "FeedForward without bias": lambda: FeedForward(D_MODEL, D_FF, bias=False),
}
each_module = pytest.mark.parametrize("make", MODULES.values(), ids=MODULES)


# Norms


@some
@given(shapes)
def test_layer_norm_gives_every_vector_mean_zero_and_a_biased_variance_of_one(shape):
    torch.manual_seed(0)
    y = layer_norm(5 + 3 * torch.randn(shape, dtype=torch.float64), eps=0.0)
    assert y.shape == shape
    assert_close(y.mean(-1), torch.zeros_like(y.mean(-1)))
    assert_close(y.var(-1, correction=0), torch.ones_like(y.mean(-1)))


@some
@given(shapes)
def test_rms_norm_gives_every_vector_a_mean_square_of_one_and_leaves_its_direction(shape):
    torch.manual_seed(0)
    x = 5 + 3 * torch.randn(shape, dtype=torch.float64)
    y = rms_norm(x, eps=0.0)
    assert_close(y.square().mean(-1), torch.ones_like(y.mean(-1)))
    assert_close(torch.cosine_similarity(x, y, dim=-1), torch.ones_like(y.mean(-1)))


@some
@given(st.floats(-100, 100), st.floats(0.01, 100))
def test_layer_norm_forgets_a_shift_and_a_scale(shift, scale):
    torch.manual_seed(0)
    x = torch.randn(5, D_MODEL, dtype=torch.float64)
    assert_close(layer_norm(scale * x + shift, eps=0.0), layer_norm(x, eps=0.0))


def test_rms_norm_forgets_a_scale_but_not_a_shift(x):
    assert_close(rms_norm(7 * x, eps=0.0), rms_norm(x, eps=0.0))
    assert not torch.allclose(rms_norm(x + 7, eps=0.0), rms_norm(x, eps=0.0))


NORMS = {
    "layer_norm": lambda x, eps: layer_norm(x, eps=eps),
    "LayerNorm": lambda x, eps: LayerNorm(2, eps).double()(x),
    "rms_norm": lambda x, eps: rms_norm(x, eps=eps),
    "RMSNorm": lambda x, eps: RMSNorm(2, eps).double()(x),
}


@pytest.mark.parametrize("norm", NORMS.values(), ids=NORMS)
def test_epsilon_stands_inside_the_root(norm):
    s = 1e-3                                                     # σ² = ε: inside gives 1/√2, outside almost 1
    expected = torch.tensor([-1.0, 1.0], dtype=torch.float64) / math.sqrt(2)
    assert_close(norm(torch.tensor([-s, s], dtype=torch.float64), s**2), expected)


@pytest.mark.parametrize("norm", NORMS.values(), ids=NORMS)
def test_a_vector_of_zeros_stays_zero_forward_and_has_a_finite_gradient(norm):
    x = torch.zeros(3, 2, dtype=torch.float64, requires_grad=True)
    y = norm(x, 1e-5)
    y[:, 0].sum().backward()
    assert (y == 0).all() and x.grad.isfinite().all()


def test_the_norms_modules_are_their_functions_with_the_learned_weights(x):
    layer, rms = randomised(LayerNorm(D_MODEL)), randomised(RMSNorm(D_MODEL))
    assert_close(layer(x), layer_norm(x, layer.weight, layer.bias, layer.eps))
    assert_close(rms(x), rms_norm(x, rms.weight, rms.eps))


def test_a_layer_norm_may_leave_out_its_bias():
    assert [name for name, _ in LayerNorm(D_MODEL, bias=False).named_parameters()] == ["weight"]


def test_fresh_norms_only_normalise(x):
    assert_close(LayerNorm(D_MODEL).double()(x), layer_norm(x))
    assert_close(RMSNorm(D_MODEL).double()(x), rms_norm(x))


# The feed-forward network


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_a_gated_network_has_three_matrices_and_a_plain_one_two(activation):
    matrices = [p for p in FeedForward(D_MODEL, D_FF, activation).parameters() if p.ndim == 2]
    assert sum(p.numel() for p in matrices) == (3 if activation in GATES else 2) * D_MODEL * D_FF


@pytest.mark.parametrize("activation", GATES)
def test_a_closed_gate_lets_nothing_but_the_bias_through(activation, x):
    ff = randomised(FeedForward(D_MODEL, D_FF, activation))
    nn.init.zeros_(ff.gate.weight)
    nn.init.constant_(ff.gate.bias, -1e3)
    assert_close(ff(x), ff.down.bias.expand_as(x))


def test_dropout_falls_on_the_hidden_layer_in_training_alone(x):
    ff = randomised(FeedForward(D_MODEL, D_FF, dropout=0.5))
    nn.init.zeros_(ff.up.weight)
    nn.init.ones_(ff.up.bias)                                    # every hidden number is one: in training, zero or two
    nn.init.eye_(ff.down.weight)
    nn.init.zeros_(ff.down.bias)
    assert {*ff(x).flatten().tolist()} == {0.0, 2.0}
    assert (ff.eval()(x) == 1).all()


# What all of them promise


@each_module
def test_every_position_is_treated_by_itself(make, x):
    module = randomised(make())
    together = module(x)
    for b in range(BATCH):
        for t in range(N):
            assert_close(module(x[b, t]), together[b, t])


@each_module
def test_inputs_need_not_be_contiguous(make, x):
    module, strange = randomised(make()), x.mT.contiguous().mT
    assert not strange.is_contiguous()
    assert_close(module(strange), module(x))


@each_module
def test_every_gradient_is_what_differences_give(make, x):
    module = randomised(make())
    names = [name for name, _ in module.named_parameters()]

    def call(x, *parameters):
        return torch.func.functional_call(module, dict(zip(names, parameters, strict=True)), x)

    inputs = [t.detach().requires_grad_() for t in (x[:2, :2], *module.parameters())]
    assert torch.autograd.gradcheck(call, inputs)


@pytest.mark.parametrize("function", [layer_norm, rms_norm])
def test_the_plain_norms_pass_gradcheck_with_and_without_weights(function, x):
    weights = [torch.randn(D_MODEL, dtype=torch.float64) for _ in range(2 if function is layer_norm else 1)]
    for given_weights in ([], weights):
        assert torch.autograd.gradcheck(function, [t.requires_grad_() for t in (x[0], *given_weights)])


@each_module
def test_bfloat16_comes_back_as_bfloat16_finite_and_near_float32(make, x):
    module = make().float()
    expected = module(x.float())
    got = module.bfloat16()(x.bfloat16())
    assert got.dtype == torch.bfloat16 and got.isfinite().all()
    assert (got.float() - expected).norm() < 0.03 * expected.norm()


@each_module
def test_an_empty_batch_goes_through(make):
    assert randomised(make())(torch.empty(0, N, D_MODEL, dtype=torch.float64)).shape == (0, N, D_MODEL)


def test_no_dropout_draws_no_random_numbers(x):
    before = torch.random.get_rng_state()
    assert torch.equal(make_dropout(0.0).train()(x), x)
    assert torch.equal(torch.random.get_rng_state(), before)


# Bad input

BAD = {
    "a layer norm of another width": (lambda: LayerNorm(6)(torch.ones(2, 5)), ValueError, r"^x: got .*\(2, 5\).* 6"),
    "an rms norm of another width": (lambda: RMSNorm(6)(torch.ones(2, 5)), ValueError, r"^x: got .*\(2, 5\).* 6"),
    "a network of another width": (lambda: FeedForward(6, 9)(torch.ones(2, 9)), ValueError, r"^x: got .*\(2, 9\).* 6"),
    "a width of one, as broadcasts": (lambda: LayerNorm(6)(torch.ones(2, 1)), ValueError, r"^x: got .*\(2, 1\)"),
    "a number for a vector": (lambda: RMSNorm(1)(torch.tensor(1.0)), ValueError, r"^x: got shape \(\)"),
    "a list for a norm": (lambda: LayerNorm(1)([1.0]), TypeError, "^x: got list, expected a tensor"),
    "a list for a network": (lambda: FeedForward(1, 1)([1.0]), TypeError, "^x: got list, expected a tensor"),
    "an unknown activation": (
        lambda: FeedForward(6, 9, "tanh"),
        ValueError,
        "^activation: got 'tanh', expected one of .*relu.*reglu",
    ),
    "dropout of everything": (lambda: FeedForward(6, 9, dropout=1.0), ValueError, "^dropout: got 1.0, .*below 1"),
    "dropout below nothing": (lambda: FeedForward(6, 9, dropout=-0.1), ValueError, "^dropout: got -0.1, .*from 0"),
    "dropout that is no number": (lambda: FeedForward(6, 9, dropout=math.nan), ValueError, "^dropout: got nan"),
    "dropout above one": (lambda: make_dropout(2), ValueError, "^dropout: got 2, expected a probability"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_refused_at_the_door_with_the_arguments_name(case):
    call, error, words = BAD[case]
    with pytest.raises(error, match=words):
        call()


# These gave a wrong answer without a word, or an error of torch's that names no argument of ours.
SILENT = {
    "a network of no width": lambda: FeedForward(6, 0),
}


@pytest.mark.parametrize("case", SILENT)
def test_what_does_not_fit_is_not_answered(case):
    with pytest.raises((ValueError, TypeError), match=r"^\w+: got .*, expected "):
        SILENT[case]()
