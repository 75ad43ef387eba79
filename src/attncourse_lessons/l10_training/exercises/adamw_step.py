"""adamw_step: One update of one parameter by AdamW."""

import math

import torch
from torch import Tensor

from lessonkit.exercises.exercise import Exercise
from lessonkit.exercises.judge import explain_case
from lessonkit.exercises.observe import Draw


def solution(parameter, gradient, m, v, step, lr, betas, eps, weight_decay):
    beta_1, beta_2 = betas
    m = beta_1 * m + (1 - beta_1) * gradient
    v = beta_2 * v + (1 - beta_2) * gradient**2
    m_hat = m / (1 - beta_1**step)
    v_hat = v / (1 - beta_2**step)
    update = m_hat / (v_hat.sqrt() + eps)
    if parameter.ndim >= 2:
        update = update + weight_decay * parameter
    return parameter - lr * update, m, v


exercise = Exercise(
    "adamw_step",
    reference=solution,
    solution=solution,
    returns=("parameter", "m", "v"),
    # What torch's Adam and AdamW come to, so that their own names may stand in the cell that compares with them.
    forbidden=(
        "attncourse.training",
        "torch.optim.adam._single_tensor_adam",
        "torch.optim.adam._multi_tensor_adam",
        "torch.optim.adam._fused_adam",
    ),
    difficulty=2,
    minutes=15,
    hints=(
        "Five lines, in the order of the contract: m, v, the two corrected, the step. If all gradients were 1, m would "
        "be 1 − β₁ after one step and 1 − β₁² after two. What comes back as m and v is not corrected: the next step "
        "begins with it.",
        "ϵ is added to the root, and the root is taken of the corrected v. Weight decay is not part of the gradient: "
        "m and v never see it. It is added to the step after them, and lr multiplies it as well.",
        "Let `update` be the corrected m over (the root of the corrected v, plus ϵ). Where the parameter has two axes "
        "or more, λ times the parameter is added to it. At the end, subtract lr times `update`.",
    ),
)
aspect, slip, misconception, variant, alternative = exercise.decorators()

LATE = 100_000  # where βᵗ is 0, and nothing is left to correct


def _state(draw: Draw, *shape: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """A parameter, its gradient, and moments such as others have left."""
    return draw.normal(*shape), draw.normal(*shape), draw.normal(*shape), 0.2 + draw.uniform(*shape)


def _betas(draw: Draw) -> tuple[float, float]:
    one, two = draw.uniform(2).tolist()
    return 0.6 + 0.3 * one, 0.93 + 0.05 * two


def _moved(answer, state, step, lr, betas, eps):
    """How far the parameter went, over lr; beside it how far it had to go by the m and v that came back.

    The second is taken away and the reference's put in its place: a mistake in m or v is not paid for twice.
    """
    after, m, v = answer(*state, step, lr, betas, eps, 0.0)
    _, right_m, right_v = exercise.reference(*state, step, lr, betas, eps, 0.0)
    return (state[0] - after) / lr - _update(m, v, step, betas, eps) + _update(right_m, right_v, step, betas, eps)


def _update(m, v, step, betas, eps):
    return m / (1 - betas[0] ** step) / ((v / (1 - betas[1] ** step)).sqrt() + eps)


def _decayed(answer, draw, *shape):
    """What weight decay alone does to a parameter."""
    state, betas = _state(draw, *shape), _betas(draw)
    with_decay, without = (answer(*state, 3, 0.5, betas, 1e-8, decay)[0] for decay in (0.3, 0.0))
    return with_decay - without


# ----------------------------------------------------------------------------------------------------- what is observed


@aspect("first moment", points=1, hint=1)
def first_moment(answer, draw):
    """m is the moving average of the gradients, as the next step will find it"""
    return answer(*_state(draw, 3, 5), 2, 0.1, _betas(draw), 1e-8, 0.0)[1]


@aspect("second moment", points=1, hint=1)
def second_moment(answer, draw):
    """v is the moving average of their squares"""
    return answer(*_state(draw, 3, 5), 2, 0.1, _betas(draw), 1e-8, 0.0)[2]


@aspect("a late step", points=2, hint=3)
def a_late_step(answer, draw):
    """where there is nothing left to correct the parameter moves by lr · m / √v, with the m and v that you return"""
    return _moved(answer, _state(draw, 3, 5), LATE, 0.5, _betas(draw), 1e-8)


@aspect("bias correction", points=2, hint=1, explain=explain_case("at step 1", "at step 2", "at step 4"))
def bias_correction(answer, draw):
    """in the first steps m and v are corrected, each by its own β and by the number of the step"""
    steps = [(draw.child(str(step)), step) for step in (1, 2, 4)]
    return torch.stack([_moved(answer, _state(d, 3, 4), step, 0.5, _betas(d), 1e-8) for d, step in steps])


@aspect("ϵ", points=1, hint=2, explain=explain_case("at step 2", "at a late step"))
def epsilon(answer, draw):
    """ϵ is added to the root of the corrected v, and to nothing else"""
    steps = [(draw.child(str(step)), step) for step in (2, LATE)]
    return torch.stack([_moved(answer, _state(d, 3, 4), step, 0.5, _betas(d), 0.4) for d, step in steps])


@aspect("weight decay", points=1, hint=2)
def weight_decay(answer, draw):
    """a matrix shrinks by lr · λ of itself, whatever the gradient is"""
    return _decayed(answer, draw, 3, 5)


def _decays(got, expected):
    kinds = "a vector, which should stay", "a matrix, which should shrink", "of three axes, which should shrink"
    wrong = next(i for i in range(3) if bool(got[i]) != bool(expected[i]))
    return f"weight decay {'changes' if got[wrong] else 'does not change'} what is {kinds[wrong]}"


@aspect("matrices alone", points=1, hint=3, explain=_decays)
def matrices_alone(answer, draw):
    """what has one axis (a bias, a norm's gain) does not decay; what has two or more does"""
    shapes = (5,), (3, 5), (2, 3, 4)
    return torch.stack([_decayed(answer, draw.child(str(shape)), *shape).abs().max() > 1e-3 for shape in shapes])


# -------------------------------------------------------------------------------------- one slip away from the solution

EARLY = ("bias correction", "ϵ")
MOVED = ("a late step", *EARLY)
DECAY = ("weight decay",)
M_HAT, V_HAT = "m / (1 - beta_1**step)", "v / (1 - beta_2**step)"
M_NEW, V_NEW = "beta_1 * m + (1 - beta_1) * gradient\n", "beta_2 * v + (1 - beta_2) * gradient**2"
DENOMINATOR, DECAYED = "(v_hat.sqrt() + eps)", "update = update + weight_decay * parameter"

slip("no bias correction", EARLY, {M_HAT: "m", V_HAT: "v"},
     {M_HAT: "m", V_HAT: "v", " + eps": ""}, words="""
    m and v were used as they are. They begin at zero, so for the first steps both are far too small, and not by the
    same factor: with β₂ = 0.999 the first step is three times too long. Divide each by one minus its β to the power of
    the step.""")
slip("only m corrected", EARLY, {V_HAT: "v"}, words="""
    m was corrected for having begun at zero, and v was not. Both have begun there. v's average is the longer one, so it
    is wrong for longer: the first steps are far too large.""")
slip("only v corrected", EARLY, {M_HAT: "m"}, words="""
    v was corrected for having begun at zero, and m was not, so the first steps are too short by 1 − β₁ᵗ.""")
slip("one β for both corrections", EARLY, {V_HAT: "v / (1 - beta_1**step)"}, {M_HAT: "m / (1 - beta_2**step)"},
     words="""
    Both moments were corrected with the same β. Each average has forgotten its zero as fast as its own β lets it.""")
slip("the correction of the step before", EARLY,
     {M_HAT: "m / (1 - beta_1 ** (step - 1) + 1e-12)", V_HAT: "v / (1 - beta_2 ** (step - 1) + 1e-12)"},
     {M_HAT: "m / (1 - beta_1 ** max(step - 1, 1))", V_HAT: "v / (1 - beta_2 ** max(step - 1, 1))"},
     words="""
    The correction is that of the step before this one. `step` is 1 at the first update, as t is in the contract: it
    can be used as it is.""")
slip("corrected as at step 1", MOVED,
     {M_HAT: "m / (1 - beta_1)", V_HAT: "v / (1 - beta_2)"},
     words="""
    The correction is that of the first step, at every step: the power is missing. What is left of the zero after t
    steps is βᵗ, which soon is nothing.""")
slip("the step counted from 0", EARLY,
     {M_HAT: "m / (1 - beta_1 ** (step + 1))", V_HAT: "v / (1 - beta_2 ** (step + 1))"},
     words="""
    The correction is that of the step after this one. `step` is 1 at the first update already, so there is nothing to
    be added.""")
slip("ϵ inside the root", ("ϵ",), {DENOMINATOR: "(v_hat + eps).sqrt()"}, words="""
    ϵ was added before the root was taken, so what is added to the root is about √ϵ: with 10⁻⁸ that is 10⁻⁴, ten
    thousand times more than meant. Root first, then ϵ.""")
slip("ϵ added before the correction", ("ϵ",), {DENOMINATOR: "((v.sqrt() + eps) / (1 - beta_2**step) ** 0.5)"}, words="""
    ϵ was added to the root of v as it is, and corrected along with it. That is a shortcut from Adam's paper, where it
    has an ϵ of another size. torch, and this contract, correct v first and add ϵ to its root.""")
slip("an ϵ of its own", ("a late step", "bias correction", "ϵ"), {" + eps": " + 1e-3"}, {" + eps": " + 1e-2"}, words="""
    A number stands where `eps` should, and a large one: it makes steps shorter that have nothing to do with it. ϵ is an
    argument; 10⁻⁸ is usual, and whoever calls decides.""")
slip("ϵ left out", ("ϵ",), {" + eps": ""}, words="""
    ϵ has no effect. Where a gradient has always been zero, as that of a token that has not come yet, v is 0 and the
    step is 0/0.""")
slip("no root", MOVED, {"v_hat.sqrt()": "v_hat"}, words="""
    m was divided by v itself. v is an average of *squares*: its root is as large as the gradients are, and only m over
    that root is a step whose length does not depend on the gradients' scale.""")
slip("corrected moments handed on", ("first moment", "second moment", *EARLY),
     {"- lr * update, m, v": "- lr * update, m_hat, v_hat"}, words="""
    The corrected m and v came back. The next step would average over them and correct them once more. Keep the plain
    averages, and correct a copy at each step.""")
slip("the last moments used", MOVED,
     {"m = beta_1 * m": "old, m = m, beta_1 * m", M_HAT: "old / (1 - beta_1**step)"},
     {"v = beta_2 * v": "old, v = v, beta_2 * v", V_HAT: "old / (1 - beta_2**step)"},
     words="""
    The step was taken with a moment as it was before this gradient came in. First bring m and v up to date, then
    move.""")
slip("the βs' sides exchanged", ("first moment",),
     {M_NEW: "(1 - beta_1) * m + beta_1 * gradient\n"},
     words="""
    The new gradient was given the share β₁, and the average of the old ones what is left. β is near 1: it is the share
    of what was there.""")
slip("nothing taken off what comes in", ("first moment", "second moment"),
     {"(1 - beta_1) * gradient": "gradient", "(1 - beta_2) * gradient**2": "gradient**2"}, words="""
    The gradient came in with a weight of 1, as it does in SGD's momentum. These are *averages*: β of what was there and
    1 − β of what comes in.""")
slip("v never falls", ("second moment",),
     {V_NEW: f"{V_NEW}\nv = torch.maximum(v, (v - (1 - beta_2) * gradient**2) / beta_2)"},
     words="""
    v was kept from falling, as in AMSGrad. AdamW takes the average as it is.""")
slip("the gradient once more", MOVED, {M_HAT: "(beta_1 * m + (1 - beta_1) * gradient) / (1 - beta_1**step)"}, words="""
    The gradient went into the step once more, beside m, which holds it already. That is Nesterov's form (NAdam); AdamW
    steps by m.""")
slip("v with β₁", ("second moment",), {V_NEW: "beta_1 * v + (1 - beta_1) * gradient**2"}, words="""
    Both averages were taken with the first β. `betas` holds two: v's average is to be the longer one.""")
slip("sizes in place of squares", ("second moment",), {"gradient**2": "gradient.abs()"}, words="""
    v averages the gradients' sizes. It is their squares that are averaged, so that the root of v is of the gradients'
    own size.""")
slip("old gradients forgotten", ("first moment", "second moment"),
     {M_NEW: "gradient\n", V_NEW: "gradient**2"}, words="""
    m and v are those of this gradient alone. They are averages over many steps: β of what was there, and 1 − β of what
    comes in.""")
slip("decay in the gradient", DECAY,
     {"beta_1, beta_2 = betas": "beta_1, beta_2 = betas\nif parameter.ndim >= 2:\n"
                                "    gradient = gradient + weight_decay * parameter", DECAYED: "pass"},
     words="""
    The decay was added to the gradient, as in Adam with L2 regularisation. m and v then average over it, and the root
    of v divides it away: weights with large gradients hardly decay. That is the very thing that the W in AdamW mends:
    take lr · λ of the parameter away by itself.""")
slip("the decay of the moved parameter", DECAY,
     {DECAYED: "parameter = parameter - lr * update\n    update = weight_decay * parameter"}, words="""
    First the parameter moved, and then it decayed. The difference is of second order, lr · lr · λ, but it is there: in
    the contract the decay is a share of the parameter *before* the step.""")
slip("vectors decay, and matrices do not", (*DECAY, "matrices alone"), {">= 2": "< 2"}, words="""
    The condition is the wrong way round: what has one axis decays here, and what has two does not.""")
slip("decay without the rate", DECAY, {DECAYED: "parameter = (1 - weight_decay) * parameter"}, words="""
    The parameter shrank by λ of itself, whatever the rate is. Here, as in torch, the rate multiplies the decay too:
    lr · λ of it, so that a schedule turns down both.""")
slip("decay that grows", DECAY, {DECAYED: "update = update - weight_decay * parameter"}, words="""
    The weights grow: the decay has the wrong sign. What is in `update` is taken away from the parameter.""")
slip("no weight decay", (*DECAY, "matrices alone"), {DECAYED: "pass"}, words="""
    `weight_decay` has no effect. That is Adam; the W adds λ times the parameter to the update.""")
slip("everything decays", ("matrices alone",), {f"if parameter.ndim >= 2:\n    {DECAYED}": DECAYED}, words="""
    Biases and the norms' gains decay as well. To pull a gain towards zero is to switch its layer off. Look at how many
    axes the parameter has.""")
slip("only two axes decay", ("matrices alone",), {">= 2": "== 2"}, words="""
    A parameter with three axes does not decay. Kernels and stacked matrices have three axes or four: two *or more*.""")
slip("uphill", (*MOVED, *DECAY), {"parameter - lr": "parameter + lr"}, words="""
    The parameter went uphill. A gradient points to where the loss grows: subtract.""")


# ------------------------------------------------------------------------------------------------ right in other styles


@alternative("as torch writes it")
def as_torch_writes_it(parameter, gradient, m, v, step, lr, betas, eps, weight_decay):
    """Decay first, then one division with both corrections in it."""
    decayed = parameter * (1 - lr * weight_decay) if parameter.dim() > 1 else parameter
    m = m.lerp(gradient, 1 - betas[0])
    v = (v * betas[1]).addcmul(gradient, gradient, value=1 - betas[1])
    denominator = v.sqrt() / math.sqrt(1 - betas[1] ** step) + eps
    return torch.addcdiv(decayed, m, denominator, value=-lr / (1 - betas[0] ** step)), m, v


@alternative("on copies, in place")
def on_copies_in_place(parameter, gradient, m, v, step, lr, betas, eps, weight_decay):
    """As an optimiser does it, but on clones."""
    parameter, m, v = parameter.clone(), m.clone(), v.clone()
    m.mul_(betas[0]).add_(gradient, alpha=1 - betas[0])
    v.mul_(betas[1]).add_(gradient.square(), alpha=1 - betas[1])
    if len(parameter.shape) != 1 and len(parameter.shape) != 0:
        parameter.sub_(lr * weight_decay * parameter)
    parameter.sub_(lr * (m / (1 - betas[0] ** step)) / (torch.sqrt(v / (1 - betas[1] ** step)) + eps))
    return parameter, m, v


@alternative("in float64")
def in_float64(parameter, gradient, m, v, step, lr, betas, eps, weight_decay):
    """More digits than asked for."""
    theta, g, m, v = (x.double() for x in (parameter, gradient, m, v))
    (b1, b2), decay = betas, weight_decay * (parameter.ndim > 1)
    m, v = g + b1 * (m - g), g.pow(2) + b2 * (v - g.pow(2))
    rate = lr * math.sqrt(1 - b2**step) / (1 - b1**step)
    eps = eps * math.sqrt(1 - b2**step)
    return theta - rate * m / (v.sqrt() + eps) - lr * decay * theta, m, v
