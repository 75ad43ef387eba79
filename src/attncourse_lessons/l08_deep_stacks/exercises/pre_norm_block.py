"""pre_norm_block: Attention, then the feed-forward network; each reads a normalised x and is added to x itself."""

import torch

from lessonkit.exercises.exercise import Exercise
from lessonkit.exercises.judge import explain_worst
from lessonkit.exercises.local_runner import AspectFailed, Problem
from lessonkit.exercises.observe import apart, require_variation

from .common import HALVES, READY_MADE, _gradient, _nothing, cut, parts, through_both


def reference(x, attend, feed_forward, norm_1, norm_2):
    """x + attend(norm_1(x)), then the same with the other two. He et al. 2016; Xiong et al. 2020, figure 1b."""
    x = x + attend(norm_1(x))
    return x + feed_forward(norm_2(x))


def solution(x, attend, feed_forward, norm_1, norm_2):
    x = x + attend(norm_1(x))
    return x + feed_forward(norm_2(x))


exercise = Exercise(
    "pre_norm_block",
    reference=reference,
    solution=solution,
    returns=("output",),
    forbidden=READY_MADE,
    difficulty=1,
    minutes=10,
    hints=(
        "Two lines, and both look the same: x becomes x plus what a sublayer found. What does the sublayer get to see, "
        "x or its normalised form? And which of the two is it added to?",
        "If both sublayers return zeros, what must come out? Try it with what you have written.",
    ),
)
aspect, slip, misconception, variant, alternative = exercise.decorators()


# ----------------------------------------------------------------------------------------------------- what is observed


@aspect("sublayers that write nothing", points=2, hint=2, explain=explain_worst("it moves by {size} at {place}"))
def sublayers_that_write_nothing(answer, draw):
    """where both sublayers return zeros, x comes back as it was"""
    x, _, _, norm_1, norm_2 = parts(draw)
    return apart(require_variation(answer(x, _nothing, _nothing, norm_1, norm_2)), x)


@aspect("attention's half", points=1, hint=1)
def attentions_half(answer, draw):
    """attention reads the normalised x, and what it found is added to x"""
    x, attend, _, norm_1, norm_2 = parts(draw)
    return answer(x, attend, _nothing, norm_1, norm_2)


@aspect("feed-forward's half", points=1, hint=1)
def feed_forwards_half(answer, draw):
    """so does the feed-forward network, with a norm of its own"""
    x, _, feed_forward, norm_1, norm_2 = parts(draw)
    return answer(x, _nothing, feed_forward, norm_1, norm_2)


@aspect("together", points=1, hint=2)
def together(answer, draw):
    """the feed-forward network works on what attention has left"""
    return answer(*parts(draw))


@aspect("gradient", points=1, hint=2, explain=explain_worst("got {got} at {place}, expected {expected}"))
def gradient(answer, draw):
    """a gradient at the output arrives at x undiminished, even where the sublayers pass nothing on"""
    if not through_both(answer, draw.child("both")):
        raise AspectFailed(Problem("unusable", "no gradient comes back through one of the sublayers"))
    x, attend, feed_forward, norm_1, norm_2 = parts(draw)
    x.requires_grad_()
    return _gradient(answer(x, cut(attend), cut(feed_forward), norm_1, norm_2), x, draw)


# -------------------------------------------------------------------------------------- one slip away from the solution

PRE = ("sublayers that write nothing", "attention's half", "feed-forward's half", "together", "gradient")
ATTENDS, THINKS = "attend(norm_1(x))", "feed_forward(norm_2(x))"

slip("residual from the normalised x", PRE,
     {"x + attend": "norm_1(x) + attend", "x + feed_forward": "norm_2(x) + feed_forward"},
     {"x + feed_forward": "norm_2(x) + feed_forward"},
     {"x + attend": "norm_1(x) + attend"},
     words="""
    What the sublayer found was added to the *normalised* x, and x itself is gone. It happens when the norm's result
    is stored under the name x. The norm is only for what the sublayer reads: keep x, and add to it.""")
slip("post-norm", PRE, {f"x + {ATTENDS}": "norm_1(x + attend(x))", f"x + {THINKS}": "norm_2(x + feed_forward(x))"},
     words="""
    This is the other order: the sum was normalised, so everything that x carried goes through a norm at each
    sublayer. In a pre-norm block no norm stands on the path from x to the output; it stands on the branch, in front
    of the sublayer.""")
slip("norm after the sublayer", PRE[:-1], {ATTENDS: "norm_1(attend(x))", THINKS: "norm_2(feed_forward(x))"}, words="""
    The branch was normalised at its end and not at its beginning. The sublayer then reads x at whatever size it has
    grown to, and even where it finds nothing its norm adds a bias.""")
slip("one norm for both", ("feed-forward's half", "together"), {"norm_2": "norm_1"}, words="""
    Both sublayers read through the same norm. The block has two, with gains and biases of their own: `norm_1` for
    attention, `norm_2` for the feed-forward network.""")
slip("norms exchanged", HALVES, {"norm_1": "norm_2", "norm_2": "norm_1"}, words="""
    Each sublayer reads through the other's norm. `norm_1` is attention's.""")
slip("a sublayer reads x as it is", HALVES, {"norm_1(x)": "x", "norm_2(x)": "x"}, words="""
    A norm was left out: a sublayer was handed x itself. x grows from block to block, and a sublayer deep in the
    stack would read something many times as large as the first one does. Each sublayer reads a normalised x.""")
slip("no residual", PRE,
     {"x + attend": "attend", "x + feed_forward": "feed_forward"},
     {"x + feed_forward": "feed_forward"},
     {"x + attend": "attend"},
     words="""
    What a sublayer found *replaced* x. Where it has nothing to say, everything that came before is lost. Add.""")
slip("feed-forward first", ("together",), {ATTENDS: THINKS, THINKS: ATTENDS}, words="""
    The feed-forward network came before attention. First attention collects from other tokens, then the network works
    on each token.""")
slip("cut off from the gradient", ("gradient",),
     {"x + attend": "x.detach() + attend", "x + feed_forward": "x.detach() + feed_forward"},
     {ATTENDS: f"{ATTENDS}.detach()"},  # in attention's branch
     words="""
    The numbers are right, but the gradient does not get through: `.detach()`, `.data` and `no_grad` forget where
    numbers came from. The path that is to carry it is the x that is added to.""")


# ------------------------------------------------------------------------------------------------------ further from it


@variant("a sublayer reads x as it is", fails=("attention's half", "together"))
def attention_hears_x_as_it_is(x, attend, feed_forward, norm_1, norm_2):
    """Attention."""
    x = x + attend(x)
    return x + feed_forward(norm_2(x))


@variant("a sublayer reads x as it is", fails=("feed-forward's half", "together"))
def feed_forward_hears_x_as_it_is(x, attend, feed_forward, norm_1, norm_2):
    """The feed-forward network."""
    x = x + attend(norm_1(x))
    return x + feed_forward(x)


@misconception("side by side", fails=("together",))
def side_by_side(x, attend, feed_forward, norm_1, norm_2):
    """Both sublayers worked on the same x, side by side. (Some models do that on purpose, to save time.) Here they work
    one after the other: the feed-forward network reads what attention has brought."""
    return x + attend(norm_1(x)) + feed_forward(norm_2(x))


@misconception("added to the first x", fails=("attention's half", "together"))
def both_added_to_the_first_x(x, attend, feed_forward, norm_1, norm_2):
    """What the feed-forward network found was added to the x that came in. The network has read what attention found,
    but that is no part of the sum: the block's output lacks it. Add to what attention has left."""
    h = x + attend(norm_1(x))
    return x + feed_forward(norm_2(h))


@misconception("one sum for both", fails=("attention's half", "feed-forward's half", "together"))
def one_sum_for_both(x, attend, feed_forward, norm_1, norm_2):
    """The block has one residual connection around both sublayers. The feed-forward network then reads nothing of x but
    what attention made of it. Each sublayer has a residual connection of its own, so the block has two sums."""
    return x + feed_forward(norm_2(attend(norm_1(x))))


# ------------------------------------------------------------------------------------------------ right in other styles


@alternative("in one expression")
def in_one_expression(x, attend, feed_forward, norm_1, norm_2):
    """With a name for the middle."""
    return (h := x + attend(norm_1(x))) + feed_forward(norm_2(h))


@alternative("a loop over the sublayers")
def a_loop_over_the_sublayers(x, attend, feed_forward, norm_1, norm_2):
    """Both halves are one and the same line."""
    for norm, sublayer in ((norm_1, attend), (norm_2, feed_forward)):
        residual = x
        x = sublayer(norm(x)) + residual
    return x


@alternative("a stream that is written to, returned in float64")
def a_stream_that_is_written_to_returned_in_float64(x, attend, feed_forward, norm_1, norm_2):
    """A copy, added to in place."""
    stream = x.clone()
    stream = torch.add(stream, attend(norm_1(stream)))
    return stream.double() + feed_forward(norm_2(stream)).double()
