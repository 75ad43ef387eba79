"""gated_readout: What was found, with each number let through as far as the question says."""

import torch

from lessonkit.exercises.exercise import Exercise
from lessonkit.exercises.judge import explain_worst
from lessonkit.exercises.observe import apart, require_variation
from lessonkit.exercises.way_back import explain_way_back, way_back


def solution(found, questions, W, b):
    shares = torch.sigmoid(questions @ W + b)    # (batch, n_questions, d)
    return found[:, None] * shares               # (batch, 1, d) stretches over the questions


exercise = Exercise(
    "gated_readout",
    reference=lambda found, questions, W, b: found[:, None] * torch.sigmoid(questions @ W + b),
    solution=solution,
    returns=("selected",),
    forbidden=("attncourse.recurrent", "attncourse.attention"),
    difficulty=2,
    minutes=10,
    hints=(
        "Two steps: from each question a share for each of the d numbers, (batch, n_questions, d); then what was "
        "found, (batch, d), meets all questions of its own text. Which axis does it lack?",
        "What is computed from two vectors by adding can shift a number and cannot switch it off. For that the two "
        "must be multiplied, number by number, and no function goes around the product.",
        "A share lies between 0 and 1, and each number has its own share: which function turns any number into one? "
        "(If the shares had to add up to one, it would be another function.) Use tensors throughout: after `.detach()` "
        "or numpy the question could never learn what to ask for.",
    ),
)
aspect, slip, misconception, variant, alternative = exercise.decorators()


def _asked(draw):
    """What was found, the questions about it, and the map from a question to its gate."""
    batch, questions, d_q, d = draw.sizes(4, 2, 7)
    return draw.normal(batch, d), draw.normal(batch, questions, d_q), draw.normal(d_q, d), draw.normal(d)


# ----------------------------------------------------------------------------------------------------- what is observed


@aspect("the shares", points=2, hint=1)
def the_shares(answer, draw):
    """each number of what was found, times the share that each question gives it"""
    return answer(*_asked(draw))


@aspect(
    "twice the memory",
    points=1,
    hint=2,
    explain=explain_worst("number {place} is off by {size} when what was found is doubled and the result halved"),
)
def twice_the_memory(answer, draw):
    """gives twice the result: the questions alone decide the shares"""
    found, *rest = _asked(draw)
    return apart(require_variation(answer(found, *rest)), answer(2 * found, *rest) / 2)


@aspect("a gate that closes", points=1, hint=3,
        explain=explain_worst("number {place} is {got}, and its gate is closed: {expected}"))
def a_gate_that_closes(answer, draw):
    """a number whose gate is closed is 0, whatever was found"""
    found, questions, W, b = _asked(draw)
    closed = torch.arange(len(b)) % 2 == 0
    return require_variation(answer(found, questions, W, b - 1000 * closed))[..., ::2]


@aspect("gradient", points=1, hint=3, explain=explain_way_back("found", "questions", "W", "b"))
def gradient(answer, draw):
    """everything can be learned: what is kept, what is asked, and how a question selects"""
    inputs = [tensor.requires_grad_() for tensor in _asked(draw)]
    return way_back(answer(*inputs), exercise.reference(*inputs), inputs, draw)


# -------------------------------------------------------------------------------------- one slip away from the solution

SHARES, CLOSES = ("the shares",), ("the shares", "a gate that closes")
ALL = ("the shares", "twice the memory", "a gate that closes")
GATE = "torch.sigmoid(questions @ W + b)"

slip("added, not multiplied", ALL,
     {" * shares": " + shares"},
     {GATE: "questions @ W + b", " * shares": " + shares"}, words="""
    What was found and what the question says were added. So the difference between the answers to two questions is the
    same for every memory: the question shifts the result and selects nothing. With a product one vector decides how
    much of the other gets through.""")
slip("softmax for the sigmoid", SHARES, {GATE: "torch.softmax(questions @ W + b, dim=-1)"}, words="""
    A softmax hands one unit out among the d numbers: what one gets, the others lose. A gate has a share of its own for
    each number; all may be open, or all closed.""")
slip("tanh for the sigmoid", CLOSES, {"torch.sigmoid": "torch.tanh"}, words="""
    This is the other S-shaped curve, from −1 to 1: closed at −1 it hands on the negative of what was found. A share
    lies between 0 and 1.""")
slip("no sigmoid", CLOSES, {GATE: "questions @ W + b"}, words="""
    What was found was multiplied by a linear map of the question. That can select (the lecture's reader does it), but a
    factor of −7 is no share: the contract asks for numbers between 0 and 1.""")
slip("the sigmoid around everything", ALL,
     {GATE: "questions @ W + b", "found[:, None] * shares": "torch.sigmoid(found[:, None] * shares)"}, words="""
    The product went through the sigmoid, so what comes back lies between 0 and 1, and a closed gate gives ½ or an end
    of the curve. The sigmoid makes the *shares*; what was found is multiplied by them and not bent.""")
slip("closed where it should be open", CLOSES, {" * shares": " * (1 - shares)"}, words="""
    Open and closed are exchanged: a share of 1 lets a number through as it is, a share of 0 makes it 0.""")
slip("the bias outside of the sigmoid", CLOSES, {GATE: "torch.sigmoid(questions @ W) + b"}, words="""
    `b` was added to the shares, so they leave the range from 0 to 1. It is added in front of the sigmoid: it says how
    far a gate stands open before anything is asked.""")
slip("bias left out", ("the shares", "a gate that closes", "gradient"), {" + b": ""}, words="""
    `b` was never used. It says how far a gate stands open before anything is asked.""")
slip("one question for all", SHARES,
     {"questions @ W": "questions[:, :1].expand_as(questions) @ W"},
     {"questions @ W": "questions.mean(dim=1, keepdim=True).expand_as(questions) @ W"}, words="""
    All questions of a text got the same shares. Each question has a gate of its own: keep the axis n_questions up to
    the end.""")
slip("what was found lacks an axis", (*ALL, "gradient"), {"found[:, None]": "found"}, words="""
    What was found is (batch, d), the shares are (batch, n_questions, d). torch lines shapes up from the right and would
    pair the batch with the questions. Give it an axis of length one, along which it serves all questions of its
    text.""")
slip("cut off from the gradient", ("gradient",),
     {"* shares": "* shares.detach()"}, {"found[:, None]": "found.detach()[:, None]"}, words="""
    The numbers are right, but the gradient does not get through, or only a part of it: `.detach()`, `.data`, numpy and
    `torch.no_grad()` forget where numbers came from. Neither could learn then what to keep and what to ask for.""")


# ------------------------------------------------------------------------------------------------ right in other styles


@alternative("einsum")
def einsum(found, questions, W, b):
    """The product by letters."""
    return torch.einsum("bd,bqd->bqd", found, (torch.einsum("bqi,id->bqd", questions, W) + b).sigmoid())


@alternative("a loop over the questions, float64")
def a_loop_over_the_questions_float64(found, questions, W, b):
    """One question after the other, the sigmoid by an exponential, in double precision."""
    selected = [found / (1 + torch.exp(-(q.double() @ W.double() + b))) for q in questions.unbind(dim=1)]
    return torch.stack(selected, dim=1)


@alternative("torch's linear layer, a softmax over open and closed")
def a_linear_layer_and_two_shares(found, questions, W, b):
    """A sigmoid is the softmax of a number and 0."""
    opened = torch.nn.functional.linear(questions, W.mT, b)
    shares = torch.stack([opened, torch.zeros_like(opened)]).softmax(dim=0)[0]
    return found.unsqueeze(1).expand_as(shares) * shares
