"""alibi_bias: What ALiBi adds to the scores of n tokens among each other (Press et al. 2022), in both directions."""

import torch

from lessonkit.exercises.exercise import Exercise
from lessonkit.exercises.local_runner import AspectFailed, Problem

from .common import READY_MADE


def reference(n_heads, n):
    """−m_h |i − j| with m_h = 2^(−8h / n_heads), h from 1. Press et al. 2022, for attention in both directions."""
    slopes = 2 ** (-8 * torch.arange(1, n_heads + 1) / n_heads)
    place = torch.arange(n)
    return -slopes[:, None, None] * (place - place[:, None]).abs()


def solution(n_heads, n):
    slopes = 2 ** (-8 * torch.arange(1, n_heads + 1) / n_heads)  # (n_heads,)
    place = torch.arange(n)
    distance = (place - place[:, None]).abs()  # (n, n)
    return -slopes[:, None, None] * distance  # (n_heads, n, n)


exercise = Exercise(
    "alibi_bias",
    reference=reference,
    solution=solution,
    returns=("bias",),
    forbidden=READY_MADE,
    difficulty=2,
    minutes=12,
    extra=True,
    hints=(
        "Two small tensors: the distances |i − j|, (n, n), and one slope for each head, (n_heads,). What must be done "
        "to the second so that they broadcast to (n_heads, n, n)?",
        "With 8 heads the slopes are 1/2, 1/4, …, 1/256; with 2 heads 1/16 and 1/256. The head's number counts from 1.",
    ),
)
aspect, slip, misconception, variant, alternative = exercise.decorators()


# ----------------------------------------------------------------------------------------------------- what is observed


@aspect("slopes", points=1, hint=2)
def slopes(answer, draw):
    """a neighbour costs each head its slope, the first head most"""
    n = draw.sizes(1, 5, 7)[0]
    tables = [answer(n_heads, n) for n_heads in (2, 8, 16)]  # 16: exponents that are not whole
    # Of the two neighbours the one that costs more: that both sides cost is the other aspect's business.
    return torch.cat([torch.minimum(bias[:, 1, 0], bias[:, 1, 2]) for bias in tables])


@aspect("distances", points=1, hint=1)
def distances(answer, draw):
    """the cost grows in proportion to the distance, to either side"""
    n_heads, n = (2, 4, 8)[draw.sizes(1, 0, 2)[0]], draw.sizes(1, 5, 7)[0]
    bias = answer(n_heads, n)
    if not bias[:, 0, 1].all():
        raise AspectFailed(Problem("unusable", "a neighbour costs nothing"))
    return bias / bias[:, :1, 1:2]


# -------------------------------------------------------------------------------------- one slip away from the solution

SLOPES, DISTANCES = ("slopes",), ("distances",)

slip("rewards distance", SLOPES, {"-slopes": "slopes"}, words="""
    The sign is reversed: the further away a key is, the more it would be attended to. A bias is added to the score, so
    a cost must be negative.""")
slip("heads counted from 0", SLOPES, {"arange(1, n_heads + 1)": "arange(n_heads)"}, words="""
    The first head has the slope 1: the heads were counted from 0. They count from 1 here, so the last one has the slope
    1/256, whatever their number.""")
slip("heads in reverse", SLOPES, {"arange(1, n_heads + 1)": "arange(n_heads, 0, -1)"}, words="""
    The slopes are right and stand in reverse: the first head has the steepest one and sees the least far.""")
slip("slopes of eight heads", SLOPES, {"/ n_heads": "/ 8"}, words="""
    The slopes are 1/2, 1/4, 1/8, … for any number of heads. They should always come down to 1/256 at the last head:
    with fewer heads they fall faster.""")
slip("another smallest slope", SLOPES, {"-8 *": "-4 *"}, {"-8 *": "-2 *"}, {"-8 *": "-16 *"}, {"-8 *": "-"}, words="""
    The exponent's constant is not 8, so the slopes come down to something else than 1/256 at the last head.""")
slip("divided by the head's number", SLOPES,
    {"-8 * torch.arange(1, n_heads + 1) / n_heads": "-8 / torch.arange(1, n_heads + 1)"}, words="""
    The exponent is −8 *divided* by the head's number. It is −8 u / h for head u of h: the number of the head is
    multiplied, and the number of all heads divides.""")
slip("whole exponents", SLOPES,
    {"2 ** (-8": "2.0 ** (-8", "/ n_heads": "// n_heads"},
    {"2 ** (-8": "2.0 ** -(8", "/ n_heads": "// n_heads"},  # towards zero
    words="""
    The exponents were rounded to whole numbers, by `//` or by `int`. Up to 8 heads nothing shows, since 8u / h is whole
    there; with 16 heads, every second slope appears twice and the one between is missing. Divide with `/`.""")
slip("heads on the last axis", (*SLOPES, *DISTANCES),
    {"slopes[:, None, None] * distance": "slopes * distance[..., None]"},
    words="""
    The numbers are right, and the heads are the last axis: (n, n, n_heads). Scores are (batch, n_heads, n, n), so a
    bias that is added to them has its heads first: (n_heads, n, n).""")
slip("signed distance", DISTANCES,
    {"(place - place[:, None]).abs()": "place[:, None] - place"},
    {"(place - place[:, None]).abs()": "place - place[:, None]"},
    words="""
    Without the absolute value, keys on one side cost and keys on the other side are rewarded. In a decoder the mask
    hides that, because it hides the whole future; here both sides can be seen, and both should cost.""")
slip("distance squared", DISTANCES, {".abs()": " ** 2"}, words="""
    The cost grows with the square of the distance. ALiBi means "attention with *linear* biases".""")
slip("the future masked", (*SLOPES, *DISTANCES),
    {"* distance": "* torch.where(place > place[:, None], torch.inf, place[:, None] - place)"},
    words="""
    Keys to the right of their query got −∞, as in a model that sees only its past. Who may look where is a mask's
    business; here attention looks both ways, and the cost is the same to either side.""")


# ------------------------------------------------------------------------------------------------ right in other styles


@alternative("a loop over heads")
def a_loop_over_heads(n_heads, n):
    """One table at a time, in float64."""
    distance = torch.tensor([[abs(i - j) for j in range(n)] for i in range(n)], dtype=torch.float64)
    return torch.stack([-distance * 2.0 ** (-8 * (h + 1) / n_heads) for h in range(n_heads)])


@alternative("einsum, a geometric sequence, not contiguous")
def einsum_a_geometric_sequence_not_contiguous(n_heads, n):
    """The ratio of neighbouring slopes is the first of them."""
    ratio = 2 ** (-8 / n_heads)
    slopes = torch.full((n_heads,), ratio).cumprod(dim=0)
    place = torch.arange(float(n))
    return torch.einsum("h,ij->jih", slopes, -torch.cdist(place[:, None], place[:, None], p=1)).permute(2, 0, 1)


@alternative("ramps to both sides")
def ramps_to_both_sides(n_heads, n):
    """The costs to the left and to the right of each token apart, laid out flat."""
    place = torch.arange(n, dtype=torch.float64)
    left, right = (place[:, None] - place).clamp(min=0), (place - place[:, None]).clamp(min=0)
    slopes = torch.exp2(-8 * torch.arange(1, n_heads + 1, dtype=torch.float64) / n_heads)
    return torch.outer(-slopes, (left + right).flatten()).unflatten(1, (n, n))
