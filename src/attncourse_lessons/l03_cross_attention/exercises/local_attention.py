"""local_attention: weights times a Gaussian around each target position's centre. Luong et al. 2015."""


import torch

from lessonkit.exercises.exercise import Exercise
from lessonkit.exercises.way_back import explain_way_back, way_back

from .common import READY_MADE


def reference(weights, centers, sigma):
    """Weights times a Gaussian window around each target's centre. Luong et al. 2015, equation 10."""
    distance = torch.arange(weights.shape[-1]) - centers[..., None]
    return weights * torch.exp(-(distance**2) / (2 * sigma**2))


def solution(weights, centers, sigma):
    distance = torch.arange(weights.shape[-1]) - centers[..., None]  # like weights
    return weights * torch.exp(-(distance**2) / (2 * sigma**2))


exercise = Exercise(
    "local_attention",
    reference=reference,
    solution=solution,
    returns=("weights",),
    forbidden=READY_MADE,
    difficulty=2,
    minutes=12,
    extra=True,
    hints=(
        "How far is source position i from the centre of target position t? That is a table, "
        "(batch, n_target, n_source): the positions, counted from 0, minus the centres with a new last axis.",
        "The bell is exp of *minus* the *squared* distance over 2σ², with brackets around all that stands below the "
        "fraction line. It is 1 at the centre, it multiplies the weights, and nothing is normalised again.",
        "Centres come from a network that must learn them: do not round them, and detach neither them nor the weights.",
    ),
)
aspect, slip, misconception, variant, alternative = exercise.decorators()


def _sigma(draw):
    return 1.3 + draw.uniform(1).item()


def _far(draw):
    """Weights over a source that is many σ long, and centres, one of them at its beginning."""
    batch, n_target = draw.sizes(2, 3, 8)
    n_source = 12 + int(draw.integers(4, 1))
    centers = draw.uniform(batch, n_target) * (n_source - 1)
    centers[0, 0] = 0.3
    return (draw.normal(batch, n_target, n_source) / 2).softmax(dim=-1), centers


# ----------------------------------------------------------------------------------------------------- what is observed


@aspect("window", points=1, hint=1)
def window(answer, draw):
    """a bell around each centre, of width σ"""
    return answer(*_far(draw), _sigma(draw))


@aspect("at the centre", points=1, hint=2)
def at_the_centre(answer, draw):
    """a weight right at the centre stays what it was"""
    batch, n_target, n_source = draw.sizes(3, 3, 9)
    weights = draw.normal(batch, n_target, n_source).softmax(dim=-1)
    centers = draw.integers(n_source, batch, n_target)
    return answer(weights, centers.float(), _sigma(draw)).gather(-1, centers[..., None])


@aspect("gradient", points=1, hint=3, explain=explain_way_back("weights", "centers"))
def gradient(answer, draw):
    """the weights can be learned, and so can the centres, which a network predicts"""
    inputs = [tensor.requires_grad_() for tensor in _far(draw)]
    sigma = _sigma(draw)
    return way_back(answer(*inputs, sigma), exercise.reference(*inputs, sigma), inputs, draw)


# -------------------------------------------------------------------------------------- one slip away from the solution

WINDOW, BOTH = ("window",), ("window", "at the centre")
WIDTH = "(2 * sigma**2)"

slip("normalised again", BOTH,
     {"return": "windowed =", f"{WIDTH})": f"{WIDTH})\nreturn windowed / windowed.sum(dim=-1, keepdim=True)"}, words="""
    The rows were made to sum to one again. Equation 10 of the paper does not do that: a centre far from everything that
    matches is allowed to find little.""")
slip("a width other than 2σ²", WINDOW,
     {WIDTH: "(2 * sigma)"},
     {WIDTH: "sigma**2"},
     {WIDTH: "sigma"},
     {WIDTH: "(2 * sigma) ** 2"}, words="""
    The window has the wrong width: a Gaussian divides the squared distance by 2σ², twice the *variance*. Look whether σ
    itself is squared, whether the 2 is there, and whether it was squared along with σ.""")
slip("no brackets around 2σ²", WINDOW, {WIDTH: "2 * sigma**2"}, words="""
    `x / 2 * sigma**2` is (x/2) · σ²: Python divides and multiplies from left to right, so a larger σ made the window
    narrower. Put brackets around everything below the fraction line.""")
slip("no minus", WINDOW, {"exp(-": "exp("}, words="""
    The weights grow with the distance from the centre: the exponent lacks its minus.""")
slip("distance not squared", WINDOW, {"(distance**2)": "distance.abs()"}, words="""
    The distance went into the exponent unsquared. That is a tent with a sharp peak; a Gaussian is a bell, flat at the
    centre, because it falls with the *square* of the distance.""")
slip("cut off", WINDOW,
     {f"{WIDTH})": f"{WIDTH}) * (distance.abs() <= 2 * sigma)"},
     {f"{WIDTH})": f"{WIDTH}) * (distance.abs() <= 3 * sigma)"},
     {f"{WIDTH})": f"{WIDTH}) * (distance.abs() <= sigma)"}, words="""
    Outside of some distance the weights were set to 0. The paper looks at a window only, to save work; the bell that
    is asked for here has no edge: it only falls.""")
slip("rounded centres", ("window", "gradient"),
     {"centers[..., None]": "centers.round()[..., None]"},
     {"centers[..., None]": "centers.floor()[..., None]"},
     {"centers[..., None]": "centers.long()[..., None]"}, words="""
    The centres were rounded to whole positions. A centre may lie between two positions, and a rounded one has no
    gradient, so the network that predicts it could never learn.""")
slip("centred on the target's own place", (*BOTH, "gradient"),
     {"centers[..., None]": "torch.arange(weights.shape[-2])[:, None]"}, words="""
    The window of target i is centred on source position i, and `centers` is not used. That is local attention with
    *monotonic* alignment. Here each target has a predicted centre of its own, which must get a gradient.""")
slip("a density", BOTH, {f"{WIDTH})": f"{WIDTH}) / (sigma * (2 * torch.pi) ** 0.5)"}, words="""
    The bell was divided by σ √(2π), as in the density of the normal distribution. Here it is a factor that is 1 at the
    centre.""")
slip("cut off from the gradient", ("gradient",),
     {"centers[": "centers.detach()["},
     {"weights * torch.exp(": "weights.detach() * torch.exp("},
     {"return ": "return (", f"{WIDTH})": f"{WIDTH})).detach()"}, words="""
    The numbers are right, but the gradient does not get through: `.detach()`, `.data`, numpy and `torch.no_grad()`
    forget where numbers came from. A network predicts the centres, and must learn where to look.""")
slip("the window alone", (*BOTH, "gradient"), {"weights * ": ""}, words="""
    This is the window by itself: what the decoder had found by matching is gone. The window multiplies the weights that
    came in.""")
slip("counted from one", BOTH, {"torch.arange(weights.shape[-1])": "torch.arange(1, weights.shape[-1] + 1)"}, words="""
    The window sits one position off: positions are counted from 0, as everywhere in Python.""")


# ------------------------------------------------------------------------------------------------ right in other styles


@alternative("logarithms")
def logarithms(weights, centers, sigma):
    """Adds the window to the logarithm of the weights."""
    positions = torch.arange(weights.shape[-1], dtype=weights.dtype).view(1, 1, -1)
    return (weights.log() - 0.5 * ((positions - centers.unsqueeze(-1)) / sigma).square()).exp()


@alternative("a loop over source positions")
def a_loop_over_source_positions(weights, centers, sigma):
    """One column at a time, in double precision."""
    columns = [
        weights[..., i].double() * torch.exp(-((i - centers.double()) ** 2) / (2 * sigma**2))
        for i in range(weights.shape[-1])
    ]
    return torch.stack(columns, dim=-1)
