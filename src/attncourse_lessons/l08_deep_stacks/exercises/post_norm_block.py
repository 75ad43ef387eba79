"""post_norm_block: Attention, then the feed-forward network; each is added to carry · x, and the sum is normalised."""

import torch

from lessonkit.exercises.exercise import Exercise
from lessonkit.exercises.judge import explain_missing_gradient, explain_worst
from lessonkit.exercises.local_runner import AspectFailed, Problem
from lessonkit.exercises.observe import gradient_reaches, require_variation

from .common import READY_MADE, _nothing, cut, normed, parts, through_both


def reference(x, attend, feed_forward, norm_1, norm_2, carry=1.0):
    """norm_1(carry · x + attend(x)), and the same again. Vaswani et al. 2017, section 3.1; carry: Wang et al. 2022."""
    x = norm_1(carry * x + attend(x))
    return norm_2(carry * x + feed_forward(x))


def solution(x, attend, feed_forward, norm_1, norm_2, carry=1.0):
    x = norm_1(carry * x + attend(x))
    return norm_2(carry * x + feed_forward(x))


exercise = Exercise(
    "post_norm_block",
    reference=reference,
    solution=solution,
    returns=("output",),
    forbidden=READY_MADE,
    difficulty=1,
    minutes=10,
    hints=(
        "The picture calls it “Add & Norm”, and does both in that order. What is added, and what is then normalised?",
        "In this order the sublayers need no norm in front: what reaches them is what the norm after the last sum has "
        "left. So each norm is called once, and on a sum.",
        "`carry` makes x large beside what a sublayer adds to it. The sublayer itself reads x as it is. How often does "
        "x enter a sum in this block?",
    ),
)
aspect, slip, misconception, variant, alternative = exercise.decorators()


# ----------------------------------------------------------------------------------------------------- what is observed


@aspect("attention's half", points=1, hint=1)
def attentions_half(answer, draw):
    """what attention found is added to x, and the sum is normalised"""
    x, attend, _, norm_1, norm_2 = parts(draw)
    return answer(x, attend, _nothing, norm_1, norm_2)


@aspect("feed-forward's half", points=1, hint=2)
def feed_forwards_half(answer, draw):
    """the same for what the feed-forward network found, with a norm of its own"""
    x, _, feed_forward, norm_1, norm_2 = parts(draw)
    return answer(x, _nothing, feed_forward, norm_1, norm_2)


@aspect("together", points=1, hint=2)
def together(answer, draw):
    """one after the other"""
    return answer(*parts(draw))


@aspect("carry", points=1, hint=3)
def carry(answer, draw):
    """in both sums x counts `carry` times, and what a sublayer found counts once"""
    return answer(*parts(draw), 1.5 + 2 * draw.child("carry").uniform(1).item())


@aspect(
    "size",
    points=1, hint=1,
    explain=explain_worst("with ten times the x and plain norms, the output moves by {size} at {place}"),
)
def size(answer, draw):
    """how large x is makes no difference to what comes out: everything passes the norms"""
    x, attend, feed_forward, _, _ = parts(draw)
    plain = [lambda y: normed(y, eps=1e-10)] * 2
    large = require_variation(answer(10 * x, attend, feed_forward, *plain))
    moved = large - answer(x, attend, feed_forward, *plain)
    return torch.where(moved.abs() < 1e-4, 0.0, moved)  # of outputs as large as 1, that is rounding


@aspect("gradient", points=1, hint=1, explain=explain_missing_gradient("x"))
def gradient(answer, draw):
    """a gradient arrives at x, even where the sublayers pass nothing on"""
    if not through_both(answer, draw.child("both")):
        raise AspectFailed(Problem("unusable", "no gradient comes back through one of the sublayers"))
    x, attend, feed_forward, norm_1, norm_2 = parts(draw)
    x.requires_grad_()
    return gradient_reaches(answer(x, cut(attend), cut(feed_forward), norm_1, norm_2), [x], draw)


# -------------------------------------------------------------------------------------- one slip away from the solution

POST = ("attention's half", "feed-forward's half", "together", "carry")
ATTENDS, THINKS = "norm_1(carry * x + attend(x))", "norm_2(carry * x + feed_forward(x))"
ADDS, ADDS_AGAIN = "carry * x + attend(x)", "carry * x + feed_forward(x)"

slip("pre-norm", (*POST, "size"),
     {ATTENDS: "carry * x + attend(norm_1(x))", THINKS: "carry * x + feed_forward(norm_2(x))"}, words="""
    This is the other order: the sublayers read a normalised x, and the sum stays as it is. In the original
    Transformer it is the sum that is normalised, and the sublayers read x.""")
slip("norm at the end of the branch", (*POST, "size"),
     {ATTENDS: "carry * x + norm_1(attend(x))", THINKS: "carry * x + norm_2(feed_forward(x))"},
     words="""
    What the sublayer found was normalised, and then added. It is the sum that passes the norm: first add, then
    norm.""")
slip("x normalised, and not the sum", (*POST, "size"),
     {ATTENDS: "carry * norm_1(x) + attend(x)", THINKS: "carry * norm_2(x) + feed_forward(x)"},
     words="""
    The norm took hold of x alone, and what the sublayer found was added after it, at whatever size it has. The box
    is called "Add & Norm", in this order: first the sum, and then the norm of the sum.""")
slip("no residual", (*POST, "gradient"),
     {"carry * x + attend": "attend", "carry * x + feed_forward": "feed_forward"},
     {"carry * x + feed_forward": "feed_forward"},
     {"carry * x + attend": "attend"},
     words="""
    Norm, but no add: what a sublayer found replaced x. Where it has nothing to say, everything that came before is
    lost.""")
slip("one norm for both", POST, {"norm_2": "norm_1"}, {"norm_1": "norm_2"}, words="""
    Both sums pass the same norm. The block has two, with gains and biases of their own.""")
slip("norms exchanged", POST, {"norm_1": "norm_2", "norm_2": "norm_1"}, words="""
    Each sum passes the other's norm. `norm_1` comes after attention.""")
slip("one norm left out", POST,
     {"norm_2": ""},
     {"norm_1": ""},
     words="""
    One of the two sums was not normalised. There is a norm after each: one after attention's sum, one after that of
    the feed-forward network.""")
slip("added to the first x", (*POST, "size"), {"x = norm_1": "h = norm_1", "feed_forward(x)": "feed_forward(h)"},
     words="""
    What the feed-forward network found was added to the original x, which has been through neither attention nor
    its norm. Each sublayer adds to what the one before it has left.""")
slip("sublayers read through a norm, too", (*POST, "size"),
     {"attend(x)": "attend(norm_1(x))", "feed_forward(x)": "feed_forward(norm_2(x))"},
     words="""
    The sums are normalised as they should be, but the sublayers were handed a normalised x as well. (Some recent
    models have norms in both places, with parameters for each.) Here each norm is called once.""")
slip("cut off from the gradient", ("gradient",),
     {"* x + attend": "* x.detach() + attend", "* x + feed_forward": "* x.detach() + feed_forward"},
     words="""
    The numbers are right, but the gradient does not get through: `.detach()`, `.data` and `no_grad` forget where
    numbers came from.""")
slip("carry on the branch", ("carry",),
     {ADDS: "x + carry * attend(x)", ADDS_AGAIN: "x + carry * feed_forward(x)"},
     words="""
    The factor stands on what the sublayer found. It makes the branch larger beside x, and x was to be larger beside
    the branch.""")
slip("carry without effect", ("carry",),
     {ADDS: "x + attend(x)", ADDS_AGAIN: "x + feed_forward(x)"},
     {ADDS_AGAIN: "x + feed_forward(x)"},
     {ADDS: "x + attend(x)"},
     {ADDS: "carry * (x + attend(x))", ADDS_AGAIN: "carry * (x + feed_forward(x))"},
     {ADDS_AGAIN: "carry * (x + feed_forward(x))"},
     {"attend(x)": "attend(carry * x)", "forward(x)": "forward(carry * x)"},
     words="""
    In at least one of the two sums x counts no more than once beside what the sublayer found. Either `carry` is
    missing there, or it makes the branch larger as well, and the norm takes such a common factor out again. x counts
    `carry` times in both sums, and the sublayers read x without it.""")
slip("carry behind the norm", ("carry",),
     {ATTENDS: "carry * norm_1(x + attend(x))", THINKS: "carry * norm_2(x + feed_forward(x))"},
     words="""
    The factor multiplies what leaves the norm. It belongs inside, on the x of the sum.""")


# ------------------------------------------------------------------------------------------------------ further from it


@misconception("norm in front, and the residual from it", fails=POST)
def norm_in_front_and_the_residual_from_it(x, attend, feed_forward, norm_1, norm_2, carry=1.0):
    """The norms stand before the sums and not after them. Nothing is normalised after the last sum, and the first thing
    that happens is a norm that nobody asked for."""
    x = norm_1(x)
    x = carry * x + attend(x)
    x = norm_2(x)
    return carry * x + feed_forward(x)


# ------------------------------------------------------------------------------------------------ right in other styles


@alternative("in one expression")
def in_one_expression(x, attend, feed_forward, norm_1, norm_2, carry=1.0):
    """With a name for the middle."""
    return norm_2(carry * (h := norm_1(carry * x + attend(x))) + feed_forward(h))


@alternative("a loop over the sublayers, returned in float64")
def a_loop_over_the_sublayers_returned_in_float64(x, attend, feed_forward, norm_1, norm_2, carry=1.0):
    """Both halves are one and the same line."""
    for sublayer, norm in ((attend, norm_1), (feed_forward, norm_2)):
        x = norm(torch.stack([sublayer(x), carry * x]).sum(dim=0))
    return x.double()


@alternative("add and norm by name")
def add_and_norm_by_name(x, attend, feed_forward, norm_1, norm_2, carry=1.0):
    """A helper inside."""

    def add_and_norm(old, new, norm):
        return norm(torch.add(new, old, alpha=carry))

    x = add_and_norm(x, attend(x), norm_1)
    return add_and_norm(x, feed_forward(x), norm_2)
