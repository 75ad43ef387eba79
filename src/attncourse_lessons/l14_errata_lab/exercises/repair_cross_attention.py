"""repair_cross_attention: The decoder's tokens attend to the encoder's, by the scaled dot product."""

import math

import torch

from attncourse import attention
from lessonkit.exercises.exercise import Exercise
from lessonkit.exercises.judge import explain_missing_gradient, row_sums

from .common import READY_MADE, reached_where_heard


def reference(Z, H, W_Q, W_K, W_V):
    """softmax(ZQ(HK)ᵀ/√d_k) HV, and the weights."""
    return attention.attend(Z @ W_Q, H @ W_K, H @ W_V)


def solution(Z, H, W_Q, W_K, W_V):
    query, key, value = Z @ W_Q, H @ W_K, H @ W_V
    scores = query @ key.mT / math.sqrt(key.shape[-1])           # (n_target, n_source)
    weights = scores.softmax(dim=-1)
    return weights @ value, weights


exercise = Exercise(
    "repair_cross_attention",
    reference=reference,
    solution=solution,
    returns=("output", "weights"),
    forbidden=READY_MADE,
    difficulty=2,
    minutes=12,
    extra=True,
    hints=(
        "Who asks, and who answers? How many rows has the table of weights, how many columns, and which of the two "
        "lengths is which?",
        "Three things are to be repaired: the shape into which the table is forced, the missing scale, and a sign "
        "that is not a matrix product in Python.",
    ),
)
aspect, slip, misconception, variant, alternative = exercise.decorators()


def _two_texts(draw, n_target, n_source):
    d, d_k, d_v = draw.sizes(3, 3, 9)
    Z, H = draw.normal(n_target, d), draw.normal(n_source, d)
    return (Z, H, *(draw.normal(d, width) for width in (d_k, d_k, d_v)))


# ----------------------------------------------------------------------------------------------------- what is observed


@aspect("weights", points=1, hint=2, explain=row_sums)
def weights(answer, draw):
    """what each target token gives to each source token"""
    return answer(*_two_texts(draw, n_target=4, n_source=6))[1]


@aspect("output", points=1, hint=2)
def output(answer, draw):
    """their averages of the values"""
    return answer(*_two_texts(draw, n_target=4, n_source=6))[0]


@aspect("a long source", points=1, hint=1)
def a_long_source(answer, draw):
    """two target tokens that attend to eleven"""
    output, weights = answer(*_two_texts(draw, n_target=2, n_source=11))
    return torch.cat([output, weights], dim=-1)


@aspect("a long target", points=1, hint=1)
def a_long_target(answer, draw):
    """eleven that attend to two"""
    output, weights = answer(*_two_texts(draw, n_target=11, n_source=2))
    return torch.cat([output, weights], dim=-1)


@aspect("gradient", points=1, hint=2, explain=explain_missing_gradient("Z", "H", "W_Q", "W_K", "W_V"))
def gradient(answer, draw):
    """both texts' states and all three matrices can be learned"""
    inputs = _two_texts(draw, n_target=5, n_source=5)                     # lengths are not the matter here
    return reached_where_heard(lambda *each: answer(*each)[0], inputs, draw)


# -------------------------------------------------------------------------------------- one slip away from the solution

ACROSS = ("weights", "output", "a long source", "a long target")
VALUES, SCALE = "H @ W_V", " / math.sqrt(key.shape[-1])"

slip("as printed", ACROSS, {f"query @ key.mT{SCALE}": "(query @ key.mT).view(len(Z), len(Z))"}, words="""
    The table is still forced into T × T. With two texts of the same length nothing shows; with others there is an
    error, or something worse than one.""")

slip("cut to one length", ACROSS,
     {"Z @": "Z[: len(H)] @", "H @ W_K": "H[: len(Z)] @ W_K", VALUES: "H[: len(Z)] @ W_V"},
     words="""
    The longer text was cut, or the shorter one filled up, until both had the same length. The crash is gone, but so are
    the tokens at the end of the source. Nothing needs to be of the same length: the table is n_target × n_source.""")

slip("unscaled", ACROSS, {SCALE: ""}, words="""
    The scores are not divided by √d_k. The slide has no scale there, the Transformer does: it is the same function as
    in self-attention, and without the scale the weights are far too sharp.""")

slip("scaled by the wrong width", ACROSS,
     {"key.shape": "Z.shape"},  # the states'
     {"key.shape": "value.shape"},  # the values'
     words="""
    The scores are divided by the root of a width that is not the keys'. A score is a sum of d_k products.""")

slip("the encoder asks", ACROSS, {"Z @ W_Q, H @ W_K, H @ W_V": "H @ W_Q, Z @ W_K, Z @ W_V"}, words="""
    The source asks here and the target answers. It is the decoder that attends: its states Z make the queries, the
    encoder's H make keys and values.""")

slip("softmax over the targets", ACROSS, {"dim=-1": "dim=0"}, words="""
    The columns sum to one. A row holds the weights of one target token, so each *row* must sum to one.""")

slip("keys for values", ("output", "a long source", "a long target"),
     {VALUES: "H @ W_K"},
     {VALUES: "H"},  # the states
     words="""
    The weights are right, but they average something other than HV: the keys, or the encoder's states themselves.""")


slip("cut off from the gradient", ("gradient",),
     {"scores.softmax(dim=-1)": "scores.softmax(dim=-1).detach()"},
     {VALUES: f"({VALUES}).detach()"},
     words="""
    The numbers are right, but no gradient gets through, or not everywhere: `.detach()`, `.data`, numpy and
    `torch.no_grad()` forget where numbers came from. A repaired line stands in a model that is to be trained.""")


# ------------------------------------------------------------------------------------------------------ further from it


@variant("cut to one length", fails=("weights", "output", "a long source"))
def the_source_alone_is_cut(Z, H, W_Q, W_K, W_V):
    """The source alone is cut."""
    H = H[: len(Z)]
    weights = (Z @ W_Q @ (H @ W_K).mT / math.sqrt(W_K.shape[1])).softmax(dim=-1)
    return weights @ (H @ W_V), weights


# ------------------------------------------------------------------------------------------------ right in other styles


@alternative("a loop over the target")
def a_loop_over_the_target(Z, H, W_Q, W_K, W_V):
    """One question at a time, exponentials by hand."""
    keys, values = H @ W_K, H @ W_V
    outputs, rows = [], []
    for z in Z:
        scores = keys @ (z @ W_Q) / keys.shape[-1] ** 0.5
        shares = (scores - scores.max()).exp()
        shares = shares / shares.sum()
        rows.append(shares)
        outputs.append(shares @ values)
    return torch.stack(outputs), torch.stack(rows)


@alternative("einsum, as a list")
def einsum_as_a_list(Z, H, W_Q, W_K, W_V):
    """Letters for lengths; the scale in front."""
    query, key = torch.einsum("td,dk->tk", Z, W_Q), torch.einsum("sd,dk->sk", H, W_K)
    weights = torch.einsum("tk,sk->ts", query * W_Q.shape[1] ** -0.5, key).softmax(1)
    return [torch.einsum("ts,sd,dv->tv", weights, H, W_V), weights]


@alternative("in float64, weights turned over twice")
def in_float64_weights_turned_over_twice(Z, H, W_Q, W_K, W_V):
    """Not contiguous."""
    key = (H @ W_K).double()
    weights = torch.softmax(key @ (Z @ W_Q).double().T / math.sqrt(key.size(1)), dim=0).T
    return weights @ (H @ W_V).double(), weights
