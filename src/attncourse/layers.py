"""What stands between the attentions: normalisation, the feed-forward network, and the residual path around both."""

from collections.abc import Callable
from typing import Literal

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Shaped
from torch import Tensor, nn

from attncourse._checks import check_at_least, check_boolean, check_dropout, check_one_of, check_shape

Activation = Literal["relu", "gelu", "gelu tanh", "silu", "glu", "geglu", "swiglu", "reglu"]

# The function of a plain network, and the function of the gate in a gated one.
PLAIN: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "gelu": F.gelu,
    "gelu tanh": lambda x: F.gelu(x, approximate="tanh"),
    "silu": F.silu,
}
GATES: dict[str, Callable[[Tensor], Tensor]] = {
    "glu": torch.sigmoid,
    "geglu": F.gelu,
    "swiglu": F.silu,
    "reglu": F.relu,
}
ACTIVATIONS = (*PLAIN, *GATES)


def layer_norm(
    x: Float[Tensor, "*batch d_model"],
    weight: Float[Tensor, " d_model"] | None = None,
    bias: Float[Tensor, " d_model"] | None = None,
    eps: float = 1e-5,
) -> Float[Tensor, "*batch d_model"]:
    """(x − μ) / √(σ² + ε) ∘ weight + bias, with the mean and the (biased) variance of each vector by itself.

    Ba et al. 2016, equations 3 and 4.

    >>> layer_norm(torch.tensor([[1.0, 3.0]]), eps=0.0)
    tensor([[-1.,  1.]])
    """
    mean = x.mean(dim=-1, keepdim=True)                           # (*batch, 1)
    variance = (x - mean).square().mean(dim=-1, keepdim=True)     # (*batch, 1)
    x = (x - mean) / torch.sqrt(variance + eps)
    x = x if weight is None else x * weight
    return x if bias is None else x + bias


def rms_norm(
    x: Float[Tensor, "*batch d_model"], weight: Float[Tensor, " d_model"] | None = None, eps: float = 1e-6
) -> Float[Tensor, "*batch d_model"]:
    """x / √(mean of x² + ε) ∘ weight: LayerNorm without the centring. Zhang and Sennrich 2019, equation 4.

    >>> rms_norm(torch.tensor([[3.0, 4.0]]), eps=0.0).square().mean()
    tensor(1.)
    """
    x = x / torch.sqrt(x.square().mean(dim=-1, keepdim=True) + eps)
    return x if weight is None else x * weight


class LayerNorm(nn.Module):
    """`layer_norm` with a learned weight and bias, in torch's one kernel. `bias=False` leaves the bias out.

    Raises ValueError for vectors of another width.
    """

    def __init__(self, d_model: int, eps: float = 1e-5, bias: bool = True):
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(d_model))
        self.bias = nn.Parameter(torch.zeros(d_model)) if bias else None

    def forward(self, x: Float[Tensor, "*batch d_model"]) -> Float[Tensor, "*batch d_model"]:
        check_shape("x", x, "*batch d_model", d_model=len(self.weight))
        return F.layer_norm(x, self.weight.shape, self.weight, self.bias, self.eps)


class RMSNorm(nn.Module):
    """`rms_norm` with a learned weight, in torch's one kernel. Raises ValueError for vectors of another width."""

    def __init__(self, d_model: int, eps: float = 1e-6):
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(d_model))

    def forward(self, x: Float[Tensor, "*batch d_model"]) -> Float[Tensor, "*batch d_model"]:
        check_shape("x", x, "*batch d_model", d_model=len(self.weight))
        return F.rms_norm(x, self.weight.shape, self.weight, self.eps)


class FeedForward(nn.Module):
    """The same small network at every position: widen to d_ff, bend, and come back.

    Plain ("relu", "gelu", "gelu tanh", "silu"): down(f(up(x))). Vaswani et al. 2017, equation 2.
    Gated ("glu", "geglu", "swiglu", "reglu"): down(f(gate(x)) ∘ up(x)), three matrices instead of two. Shazeer 2020.
    Raises ValueError for an unknown activation, or vectors of another width.
    """

    def __init__(
        self, d_model: int, d_ff: int, activation: Activation = "relu", bias: bool = True, dropout: float = 0.0
    ):
        super().__init__()
        check_one_of("activation", activation, ACTIVATIONS)
        check_at_least(1, d_model=d_model, d_ff=d_ff)
        self.activation = activation
        self.up = nn.Linear(d_model, d_ff, bias=bias)
        self.gate = nn.Linear(d_model, d_ff, bias=bias) if activation in GATES else None
        self.down = nn.Linear(d_ff, d_model, bias=bias)
        self.dropout = drop(dropout)

    def forward(self, x: Float[Tensor, "*batch d_model"]) -> Float[Tensor, "*batch d_model"]:
        check_shape("x", x, "*batch d_model", d_model=self.up.in_features)
        if self.gate is None:
            hidden = PLAIN[self.activation](self.up(x))                               # (*batch, d_ff)
        else:
            hidden = GATES[self.activation](self.gate(x)) * self.up(x)                # (*batch, d_ff)
        return self.down(self.dropout(hidden))                                        # (*batch, d_model)


class _Residual(nn.Module):
    def __init__(self, norm: nn.Module, sublayer: nn.Module, dropout: float = 0.0):
        super().__init__()
        self.norm = norm
        self.sublayer = sublayer
        self.dropout = drop(dropout)


class PreNorm(_Residual):
    """x + sublayer(norm(x)): the path from x to the sum is left alone. He et al. 2016; Xiong et al. 2020.

    What else a sublayer is told goes behind x. With a sublayer that returns zeros, this is the identity.
    """

    def forward(self, x: Float[Tensor, "*batch d_model"], *args, **kwargs) -> Float[Tensor, "*batch d_model"]:
        return x + self.dropout(self.sublayer(self.norm(x), *args, **kwargs))


class PostNorm(_Residual):
    """norm(x + sublayer(x)): the original Transformer's order. Vaswani et al. 2017, section 3.1."""

    def forward(self, x: Float[Tensor, "*batch d_model"], *args, **kwargs) -> Float[Tensor, "*batch d_model"]:
        return self.norm(x + self.dropout(self.sublayer(x, *args, **kwargs)))


class Packing:
    """Where the real tokens of a padded batch are, to lay them in one row, and back.

    What treats every position by itself (norms, feed-forward networks, projections, the loss) then computes nothing for
    padding, which in a batch of captions as they come is nearly half of the positions.

    >>> packing = Packing(torch.tensor([[True, True, True], [True, False, False]]))
    >>> packing.pack(torch.arange(6.0).view(2, 3, 1)).squeeze(-1)
    tensor([0., 1., 2., 3.])

    Raises ValueError for tensors of another shape than the mask's, TypeError for a mask that is not boolean.
    """

    def __init__(self, mask: Bool[Tensor, "batch n"]):
        check_shape("mask", mask, "batch n")
        check_boolean("mask", mask, "a token is real")
        self.shape = mask.shape
        self.index = mask.flatten().nonzero().squeeze(-1)                             # (n_tokens,)
        self.full = len(self.index) == mask.numel()               # then there is nothing to leave out, or to copy

    def pack(self, x: Shaped[Tensor, "batch n ..."]) -> Shaped[Tensor, "n_tokens ..."]:
        if x.shape[:2] != self.shape:
            raise ValueError(f"x: got shape {tuple(x.shape)}, expected {tuple(self.shape)} in front, as the mask has")
        x = x.flatten(0, 1)                                                           # (batch · n, ...)
        return x if self.full else x.index_select(0, self.index)

    def unpack(self, x: Shaped[Tensor, "n_tokens ..."]) -> Shaped[Tensor, "batch n ..."]:
        """Zeros where the padding is."""
        if x.shape[0] != self.index.shape[0]:
            raise ValueError(f"x: got {x.shape[0]} tokens, expected {self.index.shape[0]}, as the mask has")
        if not self.full:
            x = x.new_zeros(self.shape.numel(), *x.shape[1:]).index_copy(0, self.index, x)
        return x.unflatten(0, self.shape)                                             # (batch, n, ...)


def drop(p: float) -> nn.Module:
    """Dropout; nothing at all for p = 0, where torch's would still draw and multiply.

    Raises ValueError for a p that is not a probability below 1.
    """
    check_dropout(dropout=p)
    return nn.Dropout(p) if p else nn.Identity()
