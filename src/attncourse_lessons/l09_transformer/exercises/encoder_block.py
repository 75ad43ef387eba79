"""encoder_block: One block of an encoder, with a norm before each sublayer and one after it."""

import torch

from lessonkit.exercises.exercise import Exercise
from lessonkit.exercises.judge import explain_missing_gradient, explain_worst
from lessonkit.exercises.observe import apart, gradient_reaches, require_variation

from .common import READY_MADE, Asked, _attends, _thinks, everybody, norms, used, with_padding


def reference(x, mask, attention, feed_forward, norm_1, norm_2, norm_3, norm_4):
    """Sandwich norms: both ends of each branch are normalised, the residual path is not. Gemma 2 (2024), section 2."""
    h = norm_1(x)
    x = x + norm_2(attention(h, h, mask))
    return x + norm_4(feed_forward(norm_3(x)))


def solution(x, mask, attention, feed_forward, norm_1, norm_2, norm_3, norm_4):
    h = norm_1(x)                                          # (batch, n, d_model)
    x = x + norm_2(attention(h, h, mask))
    return x + norm_4(feed_forward(norm_3(x)))


exercise = Exercise(
    "encoder_block",
    reference=reference,
    solution=solution,
    returns=("x",),
    forbidden=READY_MADE,
    difficulty=1,
    minutes=15,
    hints=(
        "Draw the block: a straight line for the residual path, and two loops that leave it and come back to it. Where "
        "on each loop do its two norms stand? If attention and network return zeros, what is added to x?",
        "In self-attention a sequence attends to itself, so the `x` and the `memory` of the attention are one and the "
        "same tensor: which one? The mask has the shape that the attention expects; hand it on as it is.",
        "The second loop starts from the x that the first one has made: `norm_3` reads it, and what `norm_4` returns "
        "is added to it. If anything is detached on the way, the gradient ends there.",
    ),
)
aspect, slip, misconception, variant, alternative = exercise.decorators()


def _encoding(draw, attends=True, thinks=True):
    """(x, a mask that forbids nothing, [attention, feed_forward, norm_1 … norm_4])."""
    batch, n, d = draw.sizes(3, 3, 8)
    x = draw.normal(batch, n, d)
    parts = _attends(draw, d, finds=attends), _thinks(draw, d, finds=thinks)
    return x, everybody(batch, 1, n), [Asked(part) for part in (*parts, *(norms(draw, d) for _ in range(4)))]


def _encoded(answer, draw, attends=True, thinks=True):
    x, mask, parts = _encoding(draw, attends, thinks)
    output = answer(x, mask, *parts)
    found = {"attention": parts[0], "feed_forward": parts[1]}
    used(**{name: part for (name, part), loud in zip(found.items(), (attends, thinks), strict=True) if loud} or found)
    return output


# ----------------------------------------------------------------------------------------------------- what is observed


@aspect("zero sublayers", points=1, hint=1)
def zero_sublayers(answer, draw):
    """if attention and feed-forward network return zeros, only the biases of norm_2 and norm_4 are added to x"""
    return _encoded(answer, draw, attends=False, thinks=False)


@aspect("attention", points=1, hint=2)
def observe_attention(answer, draw):
    """attention reads norm_1(x); its output is normalised and added to x"""
    return _encoded(answer, draw, thinks=False)


@aspect("network", points=1, hint=3)
def network(answer, draw):
    """the feed-forward network reads norm_3(x); its output is normalised and added to x"""
    return _encoded(answer, draw, attends=False)


@aspect("both", points=1, hint=3)
def both(answer, draw):
    """the feed-forward network reads the sum after attention"""
    return _encoded(answer, draw)


@aspect("mask", points=1, hint=2, explain=explain_worst("x {place} changes by {size} when only the padding changes"))
def mask(answer, draw):
    """changing the padding does not change the outputs at the tokens"""
    x, _, parts = _encoding(draw)
    mask = with_padding(draw, *x.shape[:2])                               # (batch, n)
    other = torch.where(mask[..., None], x, 3 * draw.normal(*x.shape))
    output = answer(x, mask[:, None], *parts)
    used(attention=parts[0])
    words = mask[..., None]
    return apart(require_variation(output * words), answer(other, mask[:, None], *parts) * words)


@aspect("gradient", points=1, hint=3, explain=explain_missing_gradient("x"))
def gradient(answer, draw):
    """the gradient reaches x through both sublayers"""
    all_reached = torch.ones(1, dtype=torch.bool)
    for loud in ((True, True), (True, False), (False, True)):
        x, mask, parts = _encoding(draw, *loud)
        x.requires_grad_()
        output = answer(x, mask, *parts)
        all_reached &= gradient_reaches(output - x, [x], draw)            # without the residual path's
        if all(loud):
            all_reached &= gradient_reaches(output, [x], draw)
    return all_reached


# -------------------------------------------------------------------------------------- one slip away from the solution

BLOCK = ("zero sublayers", "attention", "network", "both")
HALF = ("attention", "both"), ("network", "both")
ATTENDS, THINKS = "attention(h, h, mask)", "feed_forward(norm_3(x))"

slip("norms in front alone", BLOCK,
     {f"norm_2({ATTENDS})": ATTENDS, f"norm_4({THINKS})": THINKS},
     {f"norm_2({ATTENDS})": ATTENDS},
     {f"norm_4({THINKS})": THINKS},
     words="""
    This is the pre-norm block of the lecture (or one half of it is): a norm in front, and what the sublayer returns is
    added as it is. Here each sublayer has a second norm *after* it, before the sum.""")
slip("norms after it alone", ("attention", "network", "both"), {"norm_1(x)": "x", "norm_3(x)": "x"}, words="""
    The sublayers read x as it was, and only what they returned was normalised. (The blocks of OLMo 2 are like this.)
    Here each sublayer has a norm in front as well.""")
slip("no norm in front of the network", HALF[1], {"norm_3(x)": "x"}, words="""
    The network got x as it was, with no norm in front, and `norm_3` was not used.""")
slip("norms after the sums", BLOCK,
     {f"x + norm_2({ATTENDS})": f"norm_2(x + {ATTENDS})", f"x + norm_4({THINKS})": f"norm_4(x + {THINKS})"},
     {f"x + norm_2({ATTENDS})": f"norm_2(x + {ATTENDS})"},
     {f"x + norm_4({THINKS})": f"norm_4(x + {THINKS})"},
     words="""
    The second norm of a sublayer stands *after* its sum, on the residual path. It belongs on the branch: what the
    sublayer returned is normalised, and then added. If the sublayers find nothing, what must come out?""")
slip("residual from the normalised x", BLOCK,
     {"h = ": "x = h = ", f"x + norm_4({THINKS})": f"norm_3(x) + norm_4({THINKS})"},
     {"h = ": "x = h = "},
     {f"x + norm_4({THINKS})": f"norm_3(x) + norm_4({THINKS})"},
     {"x + norm_2": "h + norm_2"},  # as the second, with both names kept
     words="""
    The normalised x took the place of x, and the sum was made with that. So the original x is lost at the first
    norm, and the residual path with it. Give what the norm returns a name of its own.""")
slip("nothing added to x", BLOCK,
     {"x + norm_2": "norm_2", "x + norm_4": "norm_4"},
     {"x + norm_4": "norm_4"},
     {"x + norm_2": "norm_2"},
     words="""
    A sublayer's output took the place of x. It is *added* to what was there: that is the residual path, and a deep
    stack does not train without it.""")
slip("keys that were not normalised", HALF[0],
     {"h, h,": "h, x,"},
     {"h, h,": "x, h,"},  # the other way round
     words="""
    The queries, or the keys and values, were made of the x from before the norm. In self-attention one sequence makes
    all three: queries, keys and values come from what `norm_1` returned.""")
slip("front and back exchanged", BLOCK,
     {"norm_1": "norm_2", "norm_2": "norm_1", "norm_3": "norm_4", "norm_4": "norm_3"},
     {"norm_1": "norm_2", "norm_2": "norm_1"},
     {"norm_3": "norm_4", "norm_4": "norm_3"},
     words="""
    The norm before a sublayer and the one after it have changed places. Each has a gain and a bias of its own,
    learned for what it reads: x, or what the sublayer returned.""")
slip("the middle norms exchanged", BLOCK, {"norm_2": "norm_3", "norm_3": "norm_2"}, words="""
    The four norms were taken in another order: the two before, then the two after. `norm_1` and `norm_2` are
    attention's, `norm_3` and `norm_4` the network's.""")
slip("both norms in front", BLOCK,
     {f"norm_2({ATTENDS})": ATTENDS, "h = norm_1(x)": "h = norm_2(norm_1(x))",
      f"norm_4({THINKS})": "feed_forward(norm_4(norm_3(x)))"},
     words="""
    Both norms of a sublayer stand in front of it, one after the other. In a sandwich block one norm reads x, and the
    other reads what the sublayer returned.""")
slip("one norm for both parts", HALF[1], {"norm_3": "norm_1"}, words="""
    `norm_1` served both sublayers. Each norm has a gain and a bias of its own, learned for the part after it.""")
slip("the network reads the old x", HALF[1],
     {f"x = x + norm_2({ATTENDS})\nreturn x": f"return x + norm_2({ATTENDS})"}, words="""
    Both sublayers read the original x, and both findings were added. (Some models do this on purpose, to save
    time: "parallel" blocks.) Here the second line starts from what the first one made: the network is to work on what
    attention has brought.""")
slip("added to the first x", (*BLOCK, "gradient"),
     {f"x = x + norm_2({ATTENDS})": f"y = x + norm_2({ATTENDS})", THINKS: "feed_forward(norm_3(y))"},
     words="""
    The network read what attention had brought, but its output was added to the *old* x. So what attention found goes
    through the network and no further. If the network returns zeros, what should come out?""")
slip("ignores the mask", ("mask",), {"mask": "None"}, words="""
    The mask was not handed on: change the padding, and the outputs at the tokens change. A block has no use for the
    mask itself; the attention in it has.""")
slip("one sentence's mask for all", ("mask",), {"h, h, mask": "h, h, mask[:1]"}, words="""
    Every sentence got the mask of the first one in the batch. Each has a length, and a mask, of its own.""")
slip("mask upside down", ("attention", "both", "mask", "gradient"), {"mask": "~mask"}, words="""
    The mask was inverted before it was handed on. In this course True means "may attend", and the attention that
    you are given understands it so. (torch's own layers mean the opposite.)""")
slip("cut off from the gradient", ("gradient",),
     {"norm_1(x)": "norm_1(x.detach())", "norm_3(x)": "norm_3(x.detach())"},
     {f"x + norm_2({ATTENDS})": f"(x + norm_2({ATTENDS})).detach()"},  # through attention, and the residual path
     {f"norm_4({THINKS})": f"norm_4({THINKS}).detach()"},  # the network alone learns nothing for those below
     words="""
    The numbers are right, but no gradient goes through the parts: `.detach()`, `.data` and `torch.no_grad()` forget
    where numbers came from.""")


# ------------------------------------------------------------------------------------------------------ further from it


@misconception("feed-forward network first", fails=("attention", "network", "both"))
def feed_forward_network_first(x, mask, attention, feed_forward, norm_1, norm_2, norm_3, norm_4):
    """The network came first and attention second. Each part is connected as it should be; their order is not."""
    x = x + norm_4(feed_forward(norm_3(x)))
    h = norm_1(x)
    return x + norm_2(attention(h, h, mask))


# ------------------------------------------------------------------------------------------------ right in other styles


@alternative("names for everything")
def names_for_everything(x, mask, attention, feed_forward, norm_1, norm_2, norm_3, norm_4):
    """One thing a line, and by keyword what the contract names."""
    normalised = norm_1(x)
    found = attention(normalised, memory=normalised, mask=mask)
    middle = torch.add(x, norm_2(found))
    thought = feed_forward(norm_3(middle))
    return torch.add(middle, norm_4(thought))


@alternative("a helper for the residual path, in float64")
def a_helper_for_the_residual_path_in_float64(x, mask, attention, feed_forward, norm_1, norm_2, norm_3, norm_4):
    """The two halves are one function."""

    def around(x, front, part, back):
        return (x.double() + back(part(front(x))).double()).float()

    x = around(x, norm_1, lambda h: attention(h, h, mask), norm_2)
    return around(x, norm_3, feed_forward, norm_4)


@alternative("all findings added in the end")
def all_findings_added_in_the_end(x, mask, attention, feed_forward, norm_1, norm_2, norm_3, norm_4):
    """einsum sums the three."""
    found = norm_2(attention(norm_1(x), norm_1(x), mask))
    return torch.einsum("kbnd->bnd", torch.stack([x, found, norm_4(feed_forward(norm_3(x + found)))]))
