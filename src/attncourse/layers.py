"""What stands between the attentions: normalisation and the feed-forward network."""

from collections.abc import Callable
from typing import Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from attncourse._checks import check_at_least, check_dropout, check_one_of, check_shape

Activation = Literal["relu", "gelu", "gelu tanh", "silu", "glu", "geglu", "geglu tanh", "swiglu", "reglu"]

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
    "geglu tanh": PLAIN["gelu tanh"],
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
    Gated ("glu", "geglu", "geglu tanh", "swiglu", "reglu"): down(f(gate(x)) ∘ up(x)), three matrices instead of two.
    Shazeer 2020.
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
        self.dropout = make_dropout(dropout)

    def forward(self, x: Float[Tensor, "*batch d_model"]) -> Float[Tensor, "*batch d_model"]:
        check_shape("x", x, "*batch d_model", d_model=self.up.in_features)
        if self.gate is None:
            hidden = PLAIN[self.activation](self.up(x))                               # (*batch, d_ff)
        else:
            hidden = GATES[self.activation](self.gate(x)) * self.up(x)                # (*batch, d_ff)
        return self.down(self.dropout(hidden))                                        # (*batch, d_model)


def make_dropout(p: float) -> nn.Module:
    """Dropout; nothing at all for p = 0, where torch's would still draw and multiply.

    Raises ValueError for a p that is not a probability below 1.
    """
    check_dropout(dropout=p)
    return nn.Dropout(p) if p else nn.Identity()
