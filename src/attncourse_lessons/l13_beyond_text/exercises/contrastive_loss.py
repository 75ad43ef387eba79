"""contrastive_loss: Cross entropy of telling each target from its negatives, in nats, mean over the rows."""

import torch

from attncourse import beyond_text
from lessonkit.exercises.exercise import Exercise
from lessonkit.exercises.judge import explain_missing_gradient
from lessonkit.exercises.observe import apart, gradient_reaches, require_variation

from .common import READY_MADE


def solution(context, targets, negatives, temperature):
    candidates = torch.cat([targets[:, None], negatives], dim=1)    # (n, 1 + n_negatives, d)
    cosines = torch.cosine_similarity(context[:, None], candidates, dim=-1)  # (n, candidates)
    return -(cosines / temperature).log_softmax(dim=-1)[:, 0].mean()


exercise = Exercise(
    "contrastive_loss",
    reference=beyond_text.contrastive_loss,
    solution=solution,
    returns=("loss",),
    forbidden=READY_MADE,
    numbers=True,
    difficulty=2,
    minutes=20,
    hints=(
        "For each row there are 1 + n_negatives candidates and one of them is right. What do you know that turns "
        "numbers, one for each candidate, into a loss?",
        "The numbers are cosines, divided by the temperature. A cosine is a dot product of vectors that have been made "
        "one unit long, along the last axis.",
        "Put target and negatives side by side, (n, 1 + n_negatives, d); compute their cosines with the context, "
        "(n, 1 + n_negatives); divide; then −log_softmax of the column where the target stands, and the mean.",
    ),
)
aspect, slip, misconception, variant, alternative = exercise.decorators()


def _guesses(draw, unit=False):
    """context, targets, negatives: rows that resemble their targets somewhat."""
    n, n_negatives, d = draw.sizes(3, 4, 8)
    context, negatives = draw.normal(n, d), draw.normal(n, n_negatives, d)
    targets = context + draw.normal(n, d)
    lengths = 0.5 + draw.uniform(n, 1)
    inputs = context * lengths, targets * (0.5 + draw.uniform(n, 1)), negatives * (1.5 - lengths[:, None] / 2)
    if unit:
        inputs = tuple(map(_unit, inputs))
    return inputs


def _unit(x):
    return x / x.norm(dim=-1, keepdim=True)


def _all(losses):
    return torch.stack([loss.double().reshape(()) for loss in losses])


def _first_wrong(*cases):
    """Explains several losses: says in which of these cases the first wrong one came out."""

    def explain(got, expected):
        wrong = ((abs(got - expected) <= 1e-5 + 1e-4 * abs(expected)) == 0).nonzero()[0][0]
        return f"{cases[wrong]} the loss is {got[wrong]:.6g}, expected {expected[wrong]:.6g}"

    return explain


def _first_changed(*cases):
    """Explains differences that should be 0: says in which of these cases the loss changed first."""

    def explain(got, expected):
        wrong = ((abs(got - expected) <= 1e-5) == 0).nonzero()[0][0]
        return f"{cases[wrong]} the loss changes by {-got[wrong]:.6g}, and should stay"

    return explain


# ----------------------------------------------------------------------------------------------------- what is observed


@aspect("loss", points=2, hint=1)
def loss(answer, draw):
    """the mean of −log softmax, in nats"""
    return answer(*_guesses(draw), 0.3 + draw.uniform(1).item())


@aspect(
    "directions alone",
    points=1, hint=2,
    explain=_first_changed("with longer contexts", "with longer targets and negatives"),
)
def directions_alone(answer, draw):
    """a cosine: how long the vectors are does not matter"""
    context, targets, negatives = _guesses(draw)
    stretched = [x * (1 + 3 * draw.uniform(*x.shape[:-1], 1)) for x in (context, targets, negatives)]
    losses = [answer(stretched[0], targets, negatives, 1.0), answer(context, *stretched[1:], 1.0)]
    other = answer(context, negatives[:, 0], negatives, 1.0)              # a loss that is always the same is none
    found = require_variation(_all([answer(context, targets, negatives, 1.0), other, *losses]))
    return apart(found[[0, 0]], _all(losses))


@aspect(
    "temperature",
    points=1, hint=2,
    explain=_first_wrong("at temperature 0.2", "at temperature 0.5", "at temperature 2"),
)
def temperature(answer, draw):
    """the lower the temperature, the more the differences count"""
    inputs = _guesses(draw, unit=True)
    return _all([answer(*inputs, temperature) for temperature in (0.2, 0.5, 2.0)])


@aspect(
    "a low temperature",
    points=1, hint=3,
    explain=_first_wrong("where the targets are near their contexts", "where the targets are far from their contexts"),
)
def a_low_temperature(answer, draw):
    """at 0.01 it is right for targets near their contexts, and for targets that look hopeless"""
    context, targets, negatives = _guesses(draw, unit=True)
    targets = _unit(context + 0.03 * draw.normal(*context.shape))         # cosines near 1, and not all decided
    negatives[:, 0] = _unit(targets + 0.03 * draw.normal(*context.shape))
    far = _unit(draw.normal(*context.shape) / 3 - context)                # exp(−150) is 0 in float32; its logarithm −∞
    return _all([answer(context, each, negatives, 0.01) for each in (targets, far)])


@aspect("gradient", points=1, hint=1, explain=explain_missing_gradient("context", "targets", "negatives"))
def gradient(answer, draw):
    """contexts, targets and negatives all learn"""
    inputs = [x.requires_grad_() for x in _guesses(draw)]
    return gradient_reaches(answer(*inputs, 0.5).reshape(1), inputs, draw)


# -------------------------------------------------------------------------------------- one slip away from the solution

ALL_LOSSES = ("loss", "directions alone", "temperature", "a low temperature")
NUMBERS = ("loss", "temperature", "a low temperature")
LENGTHS = ("loss", "directions alone")
CANDIDATES = "[targets[:, None], negatives]"
COSINES = "torch.cosine_similarity(context[:, None], candidates, dim=-1)"
DOT_PRODUCTS = "(context[:, None] * candidates).sum(dim=-1)"
UNIT_CONTEXT = f"{DOT_PRODUCTS} / context.norm(dim=-1, keepdim=True)"

slip("the target missing from the denominator", NUMBERS,
     {"-(cosines / temperature).log_softmax(dim=-1)[:, 0]":
          "((cosines[:, 1:] / temperature).logsumexp(dim=-1) - cosines[:, 0] / temperature)"},
     words="""
    The sum in the denominator runs over the negatives alone. Then the quotient is not a share of a whole: the loss may
    fall below zero, and keeps falling when everything has long been told apart. The target is a candidate like the
    others.""")

slip("the target twice in the denominator", NUMBERS,
     {CANDIDATES: "[targets[:, None], targets[:, None], negatives]"},
     words="""
    The target was counted among the negatives as well, so that it competes with itself: the loss cannot fall below log
    2. Each candidate stands in the denominator once.""")

slip("times the temperature", NUMBERS, {"cosines / temperature": "cosines * temperature"}, words="""
    The cosines were multiplied by the temperature. Divide: a low temperature is to make differences larger (lecture
    @lookup), and cosines, which lie between −1 and 1, need that.""")

slip("times the temperature squared", NUMBERS, {".mean()": ".mean() * temperature**2"}, words="""
    The loss was multiplied by T². That belongs to distillation, where a soft target with the same temperature makes
    the gradient smaller by T²; here the target is one candidate, and the temperature is part of the model.""")

slip("another power of the temperature", NUMBERS,
     {"cosines / temperature": "cosines / temperature**2"},
     {"cosines / temperature": "cosines / temperature**0.5"},
     {"cosines / temperature": "cosines * temperature**2"}, words="""
    The cosines were divided by a power of the temperature. It is T itself that they are divided by.""")

slip("no temperature", NUMBERS, {" / temperature": ""}, words="""
    The temperature was not used. Cosines lie between −1 and 1, so without it even a perfect guess gets little more than
    its share, and the loss stays high whatever is learned.""")

slip("dot products for cosines", LENGTHS,
     {COSINES: DOT_PRODUCTS},
     {COSINES: UNIT_CONTEXT},  # the context alone made one unit long
     {COSINES: f"{DOT_PRODUCTS} / candidates.norm(dim=-1)"},  # the codes alone
     words="""
    Plain dot products: a model could lower the loss by making its vectors longer, without a better guess. Give every
    vector the length 1 first.""")

slip("lengths along the wrong axis", ALL_LOSSES,
     {f"torch.cat({CANDIDATES}, dim=1)": f"torch.nn.functional.normalize(torch.cat({CANDIDATES}, dim=1))",
      COSINES: UNIT_CONTEXT},
     words="""
    The vectors were normalised along the wrong axis: over the candidates, not over the d numbers of each. `F.normalize`
    takes axis 1 unless it is told otherwise, and in (n, candidates, d) that is not the vectors'.""")

slip("the sum for the mean", NUMBERS, {".mean()": ".sum()"}, words="""
    The losses of all rows were added up. Their mean is asked for, or a longer sound would count as a worse guess.""")

slip("no minus", NUMBERS, {"return -": "return "}, words="""
    This is log p, which grows with a better guess. A loss falls: it is −log p.""")

slip("a negative taken for the target", NUMBERS,
     {CANDIDATES: "[negatives, targets[:, None]]"},
     {"[:, 0]": "[:, -1]"},
     words="""
    The candidates stand in a different order from the one the answer states: what was raised is a negative's share. If
    the target stands last, its column is the last; if column 0 is said to be right, it must stand first.""")

slip("softmax twice", NUMBERS, {".log_softmax(": ".softmax(dim=-1).log_softmax("}, words="""
    The shares of a softmax were handed to `cross_entropy`, which takes scores and applies a softmax of its own. A
    softmax of shares, which lie between 0 and 1, is nearly even, so even the best guess still pays. Give it the cosines
    divided by the temperature.""")

slip("shares over the rows", (*NUMBERS, "gradient"), {"log_softmax(dim=-1)": "log_softmax(dim=0)"}, words="""
    Softmax ran down the rows, over the frames, so that guesses compete with each other for column 0, and the negatives
    are never looked at (no gradient reaches them). Each row is a question of its own: its candidates stand along the
    last axis.""")

slip("exponentials overflow", ("a low temperature",),
     {"return -(cosines / temperature).log_softmax(dim=-1)":
          "shares = (cosines / temperature).exp()\nreturn -(shares / shares.sum(dim=-1, keepdim=True)).log()"},
     words="""
    Right as long as exp(1/temperature) fits into float32; at 0.01 that is e¹⁰⁰. Let `log_softmax`, `logsumexp` or
    `cross_entropy` do it, which take the largest away first (lecture @getting_ready).""")

slip("the logarithm of a share that is 0", ("a low temperature",),
     {".log_softmax(dim=-1)[:, 0]": ".softmax(dim=-1)[:, 0].log()"},
     {"-(cosines / temperature).log_softmax(dim=-1)[:, 0]":
          "-((cosines / temperature).softmax(dim=-1)[:, 0] + 1e-8).log()"},
     {".log_softmax(dim=-1)[:, 0]": ".softmax(dim=-1)[:, 0].clamp(min=1e-12).log()"},
     words="""
    First the softmax, then its logarithm. Where the target is far from its context the share is too small for float32
    and becomes 0: the loss is ∞, or, with a small number added, stops growing, and its gradient is NaN or 0. That
    happens in the first steps of training, when everything is far off. Take both at once: `log_softmax`, `logsumexp`
    or `cross_entropy`.""")
slip("cut off from the gradient", ("gradient",),
     {"dim=1)": "dim=1).detach()"},
     {".mean()": ".mean().item()"},  # everything
     words="""
    The number is right, but nothing, or not everything, can learn from it. Some methods do hold their targets still;
    here the targets are learned along with the contexts, so a gradient must reach `targets` and `negatives` as well.
    Look for `.detach()`, `.item()`, `.data` or `torch.no_grad()`.""")


# ------------------------------------------------------------------------------------------------ right in other styles


@alternative("cross entropy")
def cross_entropy(context, targets, negatives, temperature):
    """The target in column 0."""
    candidates = torch.cat([targets.unsqueeze(1), negatives], dim=1)
    cosines = torch.cosine_similarity(context.unsqueeze(1), candidates, dim=2)
    return torch.nn.functional.cross_entropy(cosines / temperature, torch.zeros(len(context), dtype=torch.long))


@alternative("einsum and logsumexp, float64")
def einsum_and_logsumexp_float64(context, targets, negatives, temperature):
    """The target last."""
    def unit(x):
        return x.double() / x.double().pow(2).sum(-1, keepdim=True).sqrt()

    right = torch.einsum("nd,nd->n", unit(context), unit(targets)) / temperature
    wrong = torch.einsum("nd,nkd->nk", unit(context), unit(negatives)) / temperature
    return (torch.logsumexp(torch.cat([wrong, right[:, None]], 1), 1) - right).mean()


@alternative("row by row")
def row_by_row(context, targets, negatives, temperature):
    """A loop over the frames; differences from the target, log1p where it can."""
    losses = []
    for c, q, others in zip(context, targets, negatives, strict=True):
        right = torch.dot(c, q) / (c.norm() * q.norm())
        wrong = (others @ c) / (others.norm(dim=1) * c.norm())
        losses.append(torch.nn.functional.softplus(((wrong - right) / temperature).logsumexp(0)))
    return sum(losses) / len(losses)
