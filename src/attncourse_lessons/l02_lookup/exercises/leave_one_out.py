"""leave_one_out: somebody's lookup with three mistakes, mended: every key is answered by all the others."""

import torch

from lessonkit.exercises.exercise import Exercise
from lessonkit.exercises.way_back import explain_way_back, way_back

from .common import READY_MADE


def solution(keys, values, temperature):
    scores = keys @ keys.mT / temperature                    # (n, n)
    itself = torch.eye(len(keys), dtype=torch.bool)          # (n, n)
    scores = scores.masked_fill(itself, -torch.inf)          # nobody looks themselves up
    weights = scores.softmax(dim=-1)                         # (n, n)
    return weights @ values                                  # (n, d_v)


exercise = Exercise(
    "leave_one_out",
    reference=solution,
    solution=solution,
    returns=("output",),
    forbidden=READY_MADE,
    difficulty=2,
    minutes=12,
    hints=(
        "If all values are equal, every average of them is that value. Whose weights do not sum to one, and since "
        "which line?",
        "Print the weights of three keys and sum them along both axes. Who asks stands in the rows: which axis must "
        "sum to one?",
        "Make the temperature smaller. Does a lookup get sharper? And whoever may not take part is left out *before* "
        "the softmax, by a score that makes the weight exactly 0. (A new tensor of numbers that were tensors, or "
        "`.detach()`, cuts the gradient off; `masked_fill` does not.)",
    ),
)
aspect, slip, misconception, variant, alternative = exercise.decorators()


def _a_table(draw):
    """Keys on a circle and of several lengths, values, a temperature that makes a difference."""
    n, d_k, d_v = draw.sizes(3, 4, 8)
    return draw.normal(n, d_k) / d_k**0.5, draw.normal(n, d_v), float(0.3 + 0.4 * draw.uniform(1))


# ----------------------------------------------------------------------------------------------------- what is observed


@aspect("two keys", points=1, hint=3)
def two_keys(answer, draw):
    """with two keys each gets the other's value, all of it, however low their score is"""
    keys, values, _ = _a_table(draw)
    key = keys[0]
    return answer(torch.stack([key, -key]), values[:2], float(key @ key) / 300)  # scores of 300 and −300


@aspect("equal values", points=1, hint=1)
def equal_values(answer, draw):
    """the weights of each row sum to one: where all values are equal, that value comes out"""
    keys, values, temperature = _a_table(draw)
    return answer(keys, values[:1].expand(len(keys), -1).clone(), temperature)


@aspect("answers", points=2, hint=2)
def answers(answer, draw):
    """each key is answered by all the others, and near ones count more"""
    return answer(*_a_table(draw))


@aspect("very cold", points=1, hint=3)
def very_cold(answer, draw):
    """at a very low temperature the nearest of the others answers alone"""
    gap = 0.0
    while gap < 1 / 64:  # at this temperature all the weight is then the nearest's, in float32, too
        keys, values, _ = _a_table(draw)
        keys = (3 * keys.abs() * 64).round() / 64  # no score is negative, and float32 holds each
        best = (keys @ keys.mT).fill_diagonal_(-torch.inf).topk(2, dim=-1).values
        gap = float((best[:, 0] - best[:, 1]).min())
    return answer(keys, values, 1 / 2048)


@aspect("gradient", points=1, hint=3, explain=explain_way_back("keys", "values"))
def gradient(answer, draw):
    """keys and values can be learned"""
    keys, values, temperature = _a_table(draw)
    inputs = [keys.requires_grad_(), values.requires_grad_()]
    return way_back(answer(*inputs, temperature), exercise.reference(*inputs, temperature), inputs, draw)


# -------------------------------------------------------------------------------------- one slip away from the solution

FILLED, MASK = "scores.masked_fill(itself, -torch.inf)", "masked_fill(itself, -torch.inf)"
WEIGHTS = "scores.softmax(dim=-1)"

slip("softmax along the queries", ("equal values", "answers", "very cold"), {"dim=-1": "dim=0"}, words="""
    Each *column* sums to one. That is hard to see here, because every query is also a key and the scores are symmetric;
    the weights are not. Who asks stands in the row, so the row must sum to one.""")
slip("multiplied by the temperature", ("answers", "very cold"), {"/ temperature": "* temperature"}, words="""
    A low temperature must make the lookup sharp, and this one makes it level. Scores are *divided* by T.""")
slip("the temperature left out", ("answers", "very cold"), {" / temperature": ""}, words="""
    The temperature came in and was not used, so its every value gives the same answers.""")
slip("left out after the softmax", ("two keys", "equal values", "answers", "very cold"),
     {FILLED: "scores + 0", WEIGHTS: f"{WEIGHTS} * (1 - itself.float())"}, words="""
    The weights of those who may not answer were set to 0 after the softmax, and what was taken away from them nobody
    got: the rows sum to less than one. Leave somebody out before the softmax.""")
slip("divided again after the softmax", ("two keys", "very cold"),
     {FILLED: "scores + 0",
      WEIGHTS: f"{WEIGHTS} * (1 - itself.float())\nweights = weights / weights.sum(dim=-1, keepdim=True)"}, words="""
    On paper this is right: set to 0 after the softmax, and divide by what is left. But at a low temperature the key
    itself takes all the weight, what is left is rounded down to 0, and 0/0 is NaN. A score of −∞ before the softmax has
    no such end.""")
slip("exponentials by hand", ("two keys", "very cold"),
     {WEIGHTS: "scores.exp() / scores.exp().sum(dim=-1, keepdim=True)"},
     words="""
    The exponentials were taken as they stand. At a low temperature a score of 100 is nothing unusual, exp(100) does not
    fit into float32, and ∞/∞ is NaN. `softmax` takes the row's largest score away first: whoever writes `exp` out has
    to do the same.""")
slip("a score of 0", ("two keys", "answers"), {"-torch.inf": "0.0"}, words="""
    The key's score with itself was set to 0. A 0 is a score like any other, and better than all negative ones: softmax
    makes exp(0) = 1 of it. What makes a weight of exactly 0?""")
slip("a score that is not low enough", ("two keys",), {"-torch.inf": "-100.0"}, words="""
    The score of the key itself is low, and not low enough: where the others' scores are in the hundreds below 0, it has
    all the weight. Only −∞, or something as far below every score as −1e9, leaves it nothing.""")
slip("the key itself answers, too", ("two keys", "answers", "very cold"), {FILLED: "scores + 0"}, words="""
    Each key looks itself up, and nobody is nearer. So at a low temperature every answer is the key's own value, the
    error falls to 0, and the coldest lookup looks best. That is what leave-one-out is there to prevent.""")
slip("only the key itself answers", ("two keys", "answers", "very cold", "gradient"),
     {"(itself,": "(~itself,"}, words="""
    The mask is the wrong way round. All but the key itself were left out, so what comes back are the values as they
    came in.""")
slip("the average of all others", ("answers", "very cold", "gradient"),
     {"keys @ keys.mT": "0 * keys @ keys.mT"}, words="""
    Every other key counts the same: this is mean pooling over the rest. The scores are the dot products of keys.""")
slip("the nearest alone", ("answers", "gradient"),
     {WEIGHTS: "torch.nn.functional.one_hot(scores.argmax(dim=-1), len(keys)).float()"}, words="""
    Only the nearest other key answers. That is hard attention, which has no temperature and no gradient for the keys.
    Take the softmax of the scores.""")
slip("cut off from the gradient", ("gradient",),
     {"return weights @ values": "return (weights @ values).detach()"},
     {WEIGHTS: f"{WEIGHTS}.detach()"}, words="""
    The numbers are right, but the gradient does not get through: `.detach()`, `.item()`, `.data` and
    `torch.tensor(...)` forget where numbers came from.""")


# ------------------------------------------------------------------------------------------------------ further from it


@misconception("as it came", fails=("two keys", "equal values", "answers", "very cold"))
def as_it_came(keys, values, temperature):
    """This is the code with its three mistakes. Test it: with two keys, with equal values, at two temperatures."""
    weights = (keys @ keys.mT * temperature).softmax(dim=0)
    return weights * (1 - torch.eye(len(keys))) @ values


# ------------------------------------------------------------------------------------------------ right in other styles


@alternative("one at a time")
def one_at_a_time(keys, values, temperature):
    """As the lecture does it: the others of each key, and their softmax."""
    rows = []
    for i in range(len(keys)):
        others = torch.arange(len(keys)) != i
        rows.append((keys[others] @ keys[i] / temperature).softmax(dim=0) @ values[others])
    return torch.stack(rows)


@alternative("infinity on the diagonal, float64")
def infinity_on_the_diagonal_float64(keys, values, temperature):
    """−∞ added on the diagonal, in double precision, by einsum."""
    keys, values = keys.double(), values.double()
    alone = torch.zeros(len(keys), len(keys), dtype=torch.float64).fill_diagonal_(-torch.inf)
    weights = torch.softmax(torch.einsum("id,jd->ij", keys, keys) / temperature + alone, dim=1)
    return torch.einsum("ij,jv->iv", weights, values)


@alternative("exponentials of the others alone")
def exponentials_of_the_others_alone(keys, values, temperature):
    """The softmax by hand: the largest of the others is subtracted before the exponential."""
    others = ~torch.eye(len(keys), dtype=torch.bool)
    scores = keys @ keys.mT / temperature
    largest = scores.masked_fill(~others, -torch.inf).amax(dim=1, keepdim=True).detach()
    shares = torch.where(others, scores - largest, -torch.inf).exp()
    return shares @ values / shares.sum(dim=1, keepdim=True)
