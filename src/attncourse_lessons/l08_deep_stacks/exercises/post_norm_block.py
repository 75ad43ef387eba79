"""post_norm_block: Attention, then the feed-forward network; each is added to x, and the sum is normalised."""

import torch

from lessonkit.exercises.exercise import Exercise
from lessonkit.exercises.judge import arrives, told
from lessonkit.exercises.local_runner import Problem, Stop
from lessonkit.exercises.observe import reached, telling

from .common import READY_MADE, _silent, cut, normed, parts, through_both


def reference(x, attend, feed_forward, norm_1, norm_2):
    """norm_1(x + attend(x)), then the same with the other two. Vaswani et al. 2017, section 3.1."""
    x = norm_1(x + attend(x))
    return norm_2(x + feed_forward(x))


def solution(x, attend, feed_forward, norm_1, norm_2):
    x = norm_1(x + attend(x))
    return norm_2(x + feed_forward(x))


exercise = Exercise(
    "post_norm_block",
    reference=reference,
    solution=solution,
    returns=("output",),
    forbidden=READY_MADE,
    difficulty=1,
    minutes=8,
    hints=(
        "The picture calls it “Add & Norm”, and does both in that order. What is added, and what is then normalised?",
        "In this order the sublayers need no norm in front: what reaches them is what the norm after the last sum has "
        "left. So each norm is called once, and on a sum.",
    ),
)
aspect, slip, misconception, variant, alternative = exercise.decorators()


# ----------------------------------------------------------------------------------------------------- what is observed


@aspect("attention's half", points=1)
def attentions_half(answer, draw):
    """what attention found is added to x, and the sum is normalised"""
    x, attend, _, norm_1, norm_2 = parts(draw)
    return answer(x, attend, _silent, norm_1, norm_2)


@aspect("feed-forward's half", points=1)
def feed_forwards_half(answer, draw):
    """the same for what the feed-forward network found, with a norm of its own"""
    x, _, feed_forward, norm_1, norm_2 = parts(draw)
    return answer(x, _silent, feed_forward, norm_1, norm_2)


@aspect("together", points=2)
def together(answer, draw):
    """one after the other"""
    return answer(*parts(draw))


@aspect(
    "size", points=1, explain=told("with ten times the x and plain norms, the output moves by {size} at {place}")
)
def size(answer, draw):
    """how large x is makes no difference to what comes out: everything passes the norms"""
    x, attend, feed_forward, _, _ = parts(draw)
    plain = [lambda y: normed(y, eps=1e-10)] * 2
    return telling(answer(10 * x, attend, feed_forward, *plain)) - answer(x, attend, feed_forward, *plain)


@aspect("gradient", points=1, explain=arrives("x"))
def gradient(answer, draw):
    """a gradient arrives at x, even where the sublayers pass nothing on"""
    if not through_both(answer, draw.child("both")):
        raise Stop(Problem("unusable", "no gradient comes back through one of the sublayers"))
    x, attend, feed_forward, norm_1, norm_2 = parts(draw)
    x.requires_grad_()
    return reached(answer(x, cut(attend), cut(feed_forward), norm_1, norm_2), [x], draw)


POST = ("attention's half", "feed-forward's half", "together")


# -------------------------------------------------------------------------------------------------------- wrong answers


@misconception("pre-norm", fails=(*POST, "size"))
def pre_norm(x, attend, feed_forward, norm_1, norm_2):
    """This is the other order: the sublayers hear a normalised x, and the sum stays as it is. In the original
    Transformer it is the sum that is normalised, and the sublayers hear x."""
    x = x + attend(norm_1(x))
    return x + feed_forward(norm_2(x))


@misconception("norm at the end of the branch", fails=(*POST, "size"))
def norm_at_the_end_of_the_branch(x, attend, feed_forward, norm_1, norm_2):
    """What the sublayer found was normalised, and then added. It is the sum that passes the norm: first add, then
    norm."""
    x = x + norm_1(attend(x))
    return x + norm_2(feed_forward(x))


@misconception("x normalised, and not the sum", fails=(*POST, "size"))
def x_normalised_and_not_the_sum(x, attend, feed_forward, norm_1, norm_2):
    """The norm took hold of x alone, and what the sublayer found was added after it, at whatever size it has. The box
    is called "Add & Norm", in this order: first the sum, and then the norm of the sum."""
    x = norm_1(x) + attend(x)
    return norm_2(x) + feed_forward(x)


@misconception("norm in front, and the residual from it", fails=POST)
def norm_in_front_and_the_residual_from_it(x, attend, feed_forward, norm_1, norm_2):
    """The norms stand before the sums and not after them. Nothing is normalised after the last sum, and the first thing
    that happens is a norm that nobody asked for."""
    x = norm_1(x)
    x = x + attend(x)
    x = norm_2(x)
    return x + feed_forward(x)


@misconception("no residual", fails=(*POST, "gradient"))
def no_residual(x, attend, feed_forward, norm_1, norm_2):
    """Norm, but no add: what a sublayer found replaced x. Where it has nothing to say, everything that came before is
    lost."""
    x = norm_1(attend(x))
    return norm_2(feed_forward(x))


@variant("no residual", fails=(*POST, "gradient"))
def no_residual_2(x, attend, feed_forward, norm_1, norm_2):
    """Around the feed-forward network."""
    x = norm_1(x + attend(x))
    return norm_2(feed_forward(x))


@misconception("one norm for both", fails=POST)
def one_norm_for_both(x, attend, feed_forward, norm_1, norm_2):
    """Both sums pass the same norm. The block has two, with gains and biases of their own."""
    x = norm_1(x + attend(x))
    return norm_1(x + feed_forward(x))


@misconception("norms exchanged", fails=POST)
def norms_exchanged(x, attend, feed_forward, norm_1, norm_2):
    """Each sum passes the other's norm. `norm_1` comes after attention."""
    x = norm_2(x + attend(x))
    return norm_1(x + feed_forward(x))


@misconception("one norm left out", fails=POST)
def one_norm_left_out(x, attend, feed_forward, norm_1, norm_2):
    """One of the two sums was not normalised. There is a norm after each: one after attention's sum, one after that of
    the feed-forward network."""
    x = norm_1(x + attend(x))
    return x + feed_forward(x)


@variant("one norm left out", fails=POST)
def one_norm_left_out_2(x, attend, feed_forward, norm_1, norm_2):
    """The first."""
    x = x + attend(x)
    return norm_2(x + feed_forward(x))


@misconception("added to the first x", fails=(*POST, "size"))
def added_to_the_first_x(x, attend, feed_forward, norm_1, norm_2):
    """What the feed-forward network found was added to the original x, which has been through neither attention nor its
    norm. Each sublayer adds to what the one before it has left."""
    h = norm_1(x + attend(x))
    return norm_2(x + feed_forward(h))


@misconception("sublayers hear through a norm, too", fails=(*POST, "size"))
def sublayers_hear_through_a_norm_too(x, attend, feed_forward, norm_1, norm_2):
    """The sums are normalised as they should be, but the sublayers were handed a normalised x as well. (Some recent
    models have norms in both places, with parameters for each.) Here each norm is called once."""
    x = norm_1(x + attend(norm_1(x)))
    return norm_2(x + feed_forward(norm_2(x)))


@misconception("cut off from the gradient", fails=("gradient",))
def cut_off_from_the_gradient(x, attend, feed_forward, norm_1, norm_2):
    """The numbers are right, but the gradient does not get through: `.detach()`, `.data` and `no_grad` forget where
    numbers came from."""
    x = norm_1(x.detach() + attend(x))
    return norm_2(x.detach() + feed_forward(x))


# ------------------------------------------------------------------------------------------------ right in other styles


@alternative("in one expression")
def in_one_expression(x, attend, feed_forward, norm_1, norm_2):
    """With a name for the middle."""
    return norm_2((h := norm_1(x + attend(x))) + feed_forward(h))


@alternative("a loop over the sublayers, returned in float64")
def a_loop_over_the_sublayers_returned_in_float64(x, attend, feed_forward, norm_1, norm_2):
    """Both halves are one and the same line."""
    for sublayer, norm in ((attend, norm_1), (feed_forward, norm_2)):
        x = norm(torch.stack([sublayer(x), x]).sum(dim=0))
    return x.double()


@alternative("add and norm by name")
def add_and_norm_by_name(x, attend, feed_forward, norm_1, norm_2):
    """A helper inside."""

    def add_and_norm(old, new, norm):
        return norm(torch.add(old, new))

    x = add_and_norm(x, attend(x), norm_1)
    return add_and_norm(x, feed_forward(x), norm_2)
