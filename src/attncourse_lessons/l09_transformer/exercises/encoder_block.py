"""encoder_block: One block of an encoder, with its norms in front."""

import torch

from lessonkit.exercises.exercise import Exercise
from lessonkit.exercises.judge import explain_missing_gradient, explain_worst
from lessonkit.exercises.observe import gradient_reaches, require_variation

from .common import READY_MADE, Asked, _attends, _thinks, everybody, norms, passed_on, used, with_padding


def reference(x, mask, attention, feed_forward, norm_1, norm_2):
    """Look around, think; a norm in front of each, a residual path around each. Xiong et al. 2020, figure 1b."""
    h = norm_1(x)
    x = x + attention(h, h, mask)
    return x + feed_forward(norm_2(x))


def solution(x, mask, attention, feed_forward, norm_1, norm_2):
    h = norm_1(x)                                          # (batch, n, d_model)
    x = x + attention(h, h, mask)
    return x + feed_forward(norm_2(x))


exercise = Exercise(
    "encoder_block",
    reference=reference,
    solution=solution,
    returns=("x",),
    forbidden=READY_MADE,
    difficulty=2,
    minutes=12,
    hints=(
        "Two lines of the same form, one for attention and one for the feed-forward network: x becomes x plus what the "
        "part makes of the normalised x. If both parts return zeros, what must come out?",
        "In self-attention a sequence attends to itself, so the `x` and the `memory` of the attention are one and the "
        "same tensor: which one? The mask has the shape that the attention expects; hand it on as it is.",
        "The second line starts from the x that the first line has made: `norm_2` reads it, and the network's output "
        "is added to it. If anything is detached on the way, the gradient ends there.",
    ),
)
aspect, slip, misconception, variant, alternative = exercise.decorators()


def _encoding(draw, attends=True, thinks=True):
    """(x, a mask that forbids nothing, [attention, feed_forward, norm_1, norm_2])."""
    batch, n, d = draw.sizes(3, 3, 8)
    x = draw.normal(batch, n, d)
    parts = _attends(draw, d, finds=attends), _thinks(draw, d, finds=thinks)
    return x, everybody(batch, 1, n), [Asked(part) for part in (*parts, norms(draw, d), norms(draw, d))]


def _encoded(answer, draw, attends=True, thinks=True):
    x, mask, parts = _encoding(draw, attends, thinks)
    output = answer(x, mask, *parts)
    found = {"attention": parts[0], "feed_forward": parts[1]}
    used(**{name: part for (name, part), loud in zip(found.items(), (attends, thinks), strict=True) if loud} or found)
    return output


# ----------------------------------------------------------------------------------------------------- what is observed


@aspect("silent parts", points=1, hint=1)
def silent_parts(answer, draw):
    """if attention and network find nothing, x comes out as it went in"""
    return _encoded(answer, draw, attends=False, thinks=False)


@aspect("attention", points=1, hint=2)
def observe_attention(answer, draw):
    """what attention finds in the normalised x is added to x"""
    return _encoded(answer, draw, thinks=False)


@aspect("network", points=1, hint=3)
def network(answer, draw):
    """what the network makes of the normalised x is added to x"""
    return _encoded(answer, draw, attends=False)


@aspect("both", points=1, hint=3)
def both(answer, draw):
    """the network thinks about what attention has found"""
    return _encoded(answer, draw)


@aspect("mask", points=1, hint=2, explain=explain_worst("x {place} changes by {size} when only the padding changes"))
def mask(answer, draw):
    """what stands in the padding changes nothing for the words"""
    x, _, parts = _encoding(draw)
    mask = with_padding(draw, *x.shape[:2])                               # (batch, n)
    other = torch.where(mask[..., None], x, 3 * draw.normal(*x.shape))
    output = answer(x, mask[:, None], *parts)
    used(attention=parts[0])
    words = mask[..., None]
    return require_variation(output * words) - answer(other, mask[:, None], *parts) * words


@aspect("gradient", points=1, hint=3, explain=explain_missing_gradient("x"))
def gradient(answer, draw):
    """the gradient finds its way back through both parts"""
    all_reached = torch.ones(1, dtype=torch.bool)
    for loud in ((True, True), (True, False), (False, True), (False, False)):
        x, mask, parts = _encoding(draw, *loud)
        x.requires_grad_()
        output = answer(x, mask, *parts)
        # What is left of the gradient without the residual path's; and there is one at all.
        all_reached &= gradient_reaches(output - x, [x], draw) if any(loud) else passed_on(output, x, draw)
        if all(loud):
            all_reached &= gradient_reaches(output, [x], draw)
    return all_reached


# -------------------------------------------------------------------------------------- one slip away from the solution

BLOCK = ("silent parts", "attention", "network", "both")
ATTENDS, THINKS = "attention(h, h, mask)", "feed_forward(norm_2(x))"

slip("residual from the normalised x", BLOCK,
     {"h = ": "x = h = ", f"x + {THINKS}": f"norm_2(x) + {THINKS}"},
     {"h = ": "x = h = "},
     {f"x + {THINKS}": f"norm_2(x) + {THINKS}"},
     words="""
    The normalised x took the place of x, and the sum was made with that. So the original x is lost at the first
    norm, and the residual path with it. Give what the norm returns a name of its own.""")
slip("nothing added to x", BLOCK,
     {f"x + {ATTENDS}": ATTENDS, f"x + {THINKS}": THINKS},
     {f"x + {THINKS}": THINKS},
     {f"x + {ATTENDS}": ATTENDS},
     words="""
    What a part found took the place of x. A part's finding is *added* to what was there: that is the residual path,
    and a deep stack does not train without it.""")
slip("keys that were not normalised", ("attention", "both"),
     {"h, h,": "h, x,"},
     {"h, h,": "x, h,"},  # the other way round
     words="""
    One side of the attention got the x from before the norm: the one that asks, or the one that answers. In
    self-attention one and the same sequence does both: queries, keys and values are all made of what `norm_1`
    returned.""")
slip("one norm for both parts", ("network", "both"), {"norm_2": "norm_1"}, words="""
    `norm_1` served both parts. Each norm has a gain and a bias of its own, learned for the part after it.""")
slip("the two norms swapped", ("attention", "network", "both"), {"norm_1": "norm_2", "norm_2": "norm_1"}, words="""
    The norms have changed places: `norm_1` belongs in front of attention, `norm_2` in front of the network.""")
slip("the network reads the old x", ("both",), {f"x = x + {ATTENDS}\nreturn x": f"return x + {ATTENDS}"}, words="""
    Both parts read the original x, and both findings were added. (Some models are built so, to save time:
    "parallel" blocks.) Here the second line starts from what the first one made: the network is to think about what
    attention has brought.""")
slip("ignores the mask", ("mask",), {"mask": "None"}, words="""
    The mask was not handed on: change what stands in the padding, and the words change. A block has no use for the
    mask itself; the attention in it has.""")
slip("one sentence's mask for all", ("mask",), {"h, h, mask": "h, h, mask[:1]"}, words="""
    Every sentence got the mask of the first one in the batch. Each has a length, and a mask, of its own.""")
slip("no norm in front of the network", ("network", "both"), {"norm_2(x)": "x"}, words="""
    The network got x as it was, with no norm in front, and `norm_2` was not used. Each of the two parts has a norm
    of its own.""")
slip("mask upside down", ("attention", "both", "mask", "gradient"), {"mask": "~mask"}, words="""
    The mask was inverted before it was handed on. In this course True means "may attend", and the attention that
    you are given understands it so. (torch's own layers mean the opposite.)""")
slip("cut off from the gradient", ("gradient",),
     {"norm_1(x)": "norm_1(x.detach())", "norm_2(x)": "norm_2(x.detach())"},
     {f"x + {ATTENDS}": f"(x + {ATTENDS}).detach()"},  # the way through attention, and the residual path with it
     {THINKS: f"{THINKS}.detach()"},  # the network alone learns nothing for those below
     words="""
    The numbers are right, but no gradient goes through the parts: `.detach()`, `.data` and `torch.no_grad()` forget
    where numbers came from.""")


# ------------------------------------------------------------------------------------------------------ further from it


@misconception("norms after the sum", fails=BLOCK)
def norms_after_the_sum(x, mask, attention, feed_forward, norm_1, norm_2):
    """This is the block of 2017: each norm stands *after* its sum, on the residual path itself. Here the norms stand in
    front of the parts, and the way from x to the end is nothing but sums. If the parts find nothing, what must come
    out?"""
    x = norm_1(x + attention(x, x, mask))
    return norm_2(x + feed_forward(x))


@misconception("thinks before it looks", fails=("both",))
def thinks_before_it_looks(x, mask, attention, feed_forward, norm_1, norm_2):
    """The network came first and attention second. Each part is wired as it should be; their order is not."""
    x = x + feed_forward(norm_2(x))
    h = norm_1(x)
    return x + attention(h, h, mask)


# ------------------------------------------------------------------------------------------------ right in other styles


@alternative("names for everything")
def names_for_everything(x, mask, attention, feed_forward, norm_1, norm_2):
    """One thing a line."""
    normalised = norm_1(x)
    found = attention(normalised, normalised, mask)
    middle = torch.add(x, found)
    thought = feed_forward(norm_2(middle))
    return torch.add(middle, thought)


@alternative("the norm called twice")
def the_norm_called_twice(x, mask, attention, feed_forward, norm_1, norm_2):
    """In one line each."""
    x = x + attention(norm_1(x), norm_1(x), mask)
    x = x + feed_forward(norm_2(x))
    return x


@alternative("a helper for the residual path, in float64")
def a_helper_for_the_residual_path_in_float64(x, mask, attention, feed_forward, norm_1, norm_2):
    """The two halves are one function."""

    def around(x, norm, part):
        return (x.double() + part(norm(x)).double()).float()

    x = around(x, norm_1, lambda h: attention(h, h, mask))
    return around(x, norm_2, feed_forward)


@alternative("all findings added in the end")
def all_findings_added_in_the_end(x, mask, attention, feed_forward, norm_1, norm_2):
    """einsum sums the three."""
    h = norm_1(x)
    found = attention(h, h, mask)
    return torch.einsum("kbnd->bnd", torch.stack([x, found, feed_forward(norm_2(x + found))]))
