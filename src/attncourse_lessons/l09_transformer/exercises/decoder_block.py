"""decoder_block: One block of the decoder of 2017, post-norm, with cross-attention to a memory."""

import torch

from lessonkit.exercises.exercise import Exercise
from lessonkit.exercises.judge import explain_missing_gradient, explain_worst
from lessonkit.exercises.local_runner import AspectFailed, Problem
from lessonkit.exercises.observe import apart, gradient_reaches, gradients, require_variation

from .common import READY_MADE, Asked, _attends, _thinks, everybody, norms, used, with_padding


def reference(x, memory, mask, memory_mask, attention, cross_attention, feed_forward, norm_1, norm_2, norm_3):
    """Three times "Add & Norm". Vaswani et al. 2017, figure 1 and section 3.1."""
    x = norm_1(x + attention(x, x, mask))
    x = norm_2(x + cross_attention(x, memory, memory_mask))
    return norm_3(x + feed_forward(x))


def solution(x, memory, mask, memory_mask, attention, cross_attention, feed_forward, norm_1, norm_2, norm_3):
    x = norm_1(x + attention(x, x, mask))
    x = norm_2(x + cross_attention(x, memory, memory_mask))
    return norm_3(x + feed_forward(x))                     # (batch, n, d_model)


exercise = Exercise(
    "decoder_block",
    reference=reference,
    solution=solution,
    returns=("x",),
    forbidden=READY_MADE,
    difficulty=1,
    minutes=15,
    hints=(
        "Follow the right-hand column of figure 1 from below, box by box. What does an \"Add & Norm\" box add to what, "
        "and on which side of the sum does its norm stand? If all three sublayers return zeros, what must come out?",
        "The middle sublayer is cross-attention. Which of the two sequences makes the queries, and which the keys and "
        "values? The memory comes in ready. The gradient must reach both sequences.",
        "Two masks, for two attentions. `mask`, (n, n), is about the decoder's own positions. `memory_mask`, (batch, "
        "1, n_memory), is about the padding of the source. Which attention has n keys, and which has n_memory?",
    ),
)
aspect, slip, misconception, variant, alternative = exercise.decorators()


LOUD = ("attention", "cross_attention", "feed_forward")


def _decoding(draw, *loud):
    """([x, memory, mask, memory_mask], parts); masks that forbid nothing; parts that are not `loud` find nothing."""
    batch, n, n_memory, d = draw.sizes(4, 3, 9)
    x, memory = draw.normal(batch, n, d), draw.normal(batch, n_memory, d)
    parts = [_attends(draw, d, name, finds=name in loud) for name in ("attention", "cross_attention")]
    parts += [_thinks(draw, d, finds="feed_forward" in loud), *(norms(draw, d) for _ in range(3))]
    masks = [everybody(n, n), everybody(batch, 1, n_memory)]
    return [x, memory, *masks], [Asked(part) for part in parts]


def _decoded(answer, draw, *loud):
    inputs, parts = _decoding(draw, *loud)
    output = answer(*inputs, *parts)
    used(**{name: part for name, part in zip(LOUD, parts[:3], strict=True) if name in (loud or LOUD)})
    return output


# ----------------------------------------------------------------------------------------------------- what is observed


@aspect("zero sublayers", points=1, hint=1)
def zero_sublayers(answer, draw):
    """if the three sublayers return zeros, x goes through three norms and nothing else"""
    return _decoded(answer, draw)


@aspect("self-attention", points=1, hint=1)
def self_attention(answer, draw):
    """self-attention: queries, keys and values from x; the sum is normalised"""
    return _decoded(answer, draw, "attention")


@aspect("cross-attention", points=1, hint=2)
def cross_attention(answer, draw):
    """cross-attention: queries from x, keys and values from the memory"""
    return _decoded(answer, draw, "cross_attention")


@aspect("network", points=1, hint=1)
def network(answer, draw):
    """the feed-forward network reads the output of the norm before it"""
    return _decoded(answer, draw, "feed_forward")


@aspect("in order", points=1, hint=1)
def in_order(answer, draw):
    """each sublayer starts from the output of the one before"""
    return _decoded(answer, draw, *LOUD)


@aspect(
    "past only",
    points=1,
    hint=3,
    explain=explain_worst("x {place} changes by {size} when only the future changes"),
)
def past_only(answer, draw):
    """under a causal mask, later positions do not change earlier outputs"""
    (x, memory, mask, memory_mask), parts = _decoding(draw, *LOUD)
    n = x.shape[1]
    cut = 1 + int(draw.integers(n - 1, 1))
    other = torch.cat([x[:, :cut], draw.normal(*x[:, cut:].shape)], dim=1)
    output, changed = (answer(each, memory, mask.tril(), memory_mask, *parts) for each in (x, other))
    used(attention=parts[0])
    return apart(require_variation(output[:, :cut]), changed[:, :cut])


@aspect(
    "memory's padding",
    points=1,
    hint=3,
    explain=explain_worst("x {place} changes by {size} when only the memory's padding changes"),
)
def memorys_padding(answer, draw):
    """the padding of the memory does not change the output"""
    (x, memory, mask, _), parts = _decoding(draw, *LOUD)
    real = with_padding(draw, *memory.shape[:2])                          # (batch, n_memory)
    other = torch.where(real[..., None], memory, 3 * draw.normal(*memory.shape))
    output, changed = (answer(x, each, mask, real[:, None], *parts) for each in (memory, other))
    if torch.equal(output, answer(x, -memory, mask, real[:, None], *parts)):
        raise AspectFailed(Problem("unusable", "changing the memory makes no difference"))
    return apart(require_variation(output), changed)


@aspect("gradient", points=1, hint=2, explain=explain_missing_gradient("x", "memory"))
def gradient(answer, draw):
    """the gradient reaches x and the memory, through every sublayer and along the residual path"""
    (x, memory, *masks), parts = _decoding(draw, *LOUD)
    ends = [x.requires_grad_(), memory.requires_grad_()]
    output = answer(x, memory, *masks, *parts)
    reached = gradient_reaches(output, ends, draw)
    whole = gradients(output, [x], draw)
    for i in range(len(LOUD)):
        cut = answer(x, memory, *masks, *(_cut(part) if i == j else part for j, part in enumerate(parts)))
        reached[0] &= (whole - gradients(cut, [x], draw)).abs().max() > 1e-5
    alone = answer(x, memory, *masks, *map(_cut, parts[:3]), *parts[3:])
    reached[0] &= gradient_reaches(alone, [x], draw)[0]                   # along the residual path alone
    return reached


def _cut(part):
    """The same numbers, and no gradient."""
    return lambda *inputs, **named: part(*inputs, **named).detach()


# -------------------------------------------------------------------------------------- one slip away from the solution

ALL_WRONG = tuple(aspect.name for aspect in exercise.aspects)
SUMS = ("zero sublayers", "self-attention", "cross-attention", "network", "in order")
CROSS = ("cross-attention", "in order")
SELF, LOOKS, THINKS = "attention(x, x, mask)", "cross_attention(x, memory, memory_mask)", "feed_forward(x)"

slip("norms in front", SUMS,
     {f"norm_1(x + {SELF})": "x + attention(norm_1(x), norm_1(x), mask)",
      f"norm_2(x + {LOOKS})": "x + cross_attention(norm_2(x), memory, memory_mask)",
      f"norm_3(x + {THINKS})": "x + feed_forward(norm_3(x))"},
     {f"norm_3(x + {THINKS})": "x + feed_forward(norm_3(x))"},
     {f"norm_1(x + {SELF})": "x + attention(norm_1(x), norm_1(x), mask)"},
     {f"norm_2(x + {LOOKS})": "x + cross_attention(norm_2(x), memory, memory_mask)"},
     words="""
    This is the pre-norm block of the lecture (or one of its sublayers is): the norm stands in front, and the sum stays
    as it is. In the block of 2017 the sublayer reads x, its output is added, and the norm is of the *sum*.""")
slip("the norm of the branch alone", SUMS,
     {f"norm_1(x + {SELF})": f"x + norm_1({SELF})", f"norm_2(x + {LOOKS})": f"x + norm_2({LOOKS})",
      f"norm_3(x + {THINKS})": f"x + norm_3({THINKS})"},
     {f"norm_2(x + {LOOKS})": f"x + norm_2({LOOKS})"},
     {f"norm_3(x + {THINKS})": f"x + norm_3({THINKS})"},
     {f"norm_1(x + {SELF})": f"x + norm_1({SELF})"},
     words="""
    What a sublayer returned was normalised, and then added. (OLMo 2 has it so.) "Add & Norm" adds first: the norm is of
    the sum.""")
slip("nothing added", (*SUMS, "gradient"),
     {f"x + {SELF}": SELF, f"x + {LOOKS}": LOOKS, f"x + {THINKS}": THINKS},
     {f"x + {SELF}": SELF},
     {f"x + {LOOKS}": LOOKS},
     {f"x + {THINKS}": THINKS},
     words="""
    A sublayer's output took the place of x. It is *added* to x first, and then comes the norm: without the residual
    connection the decoder loses what it knew of its own text.""")
slip("a norm left out", SUMS,
     {f"norm_3(x + {THINKS})": f"x + {THINKS}"},
     {f"norm_2(x + {LOOKS})": f"x + {LOOKS}"},
     {f"norm_1(x + {SELF})": f"x + {SELF}"},
     words="""
    One of the three sums goes on without its norm. Every sublayer of 2017 is followed by "Add & Norm", the last one
    too.""")
slip("keys from the decoder", (*CROSS, "memory's padding", "gradient"), {"memory, memory_mask": "x, mask"},
     words="""
    The cross-attention asked the decoder's own states, and the memory was never read: the decoder would translate
    without having seen the source. Queries come from the decoder; keys and values from the encoder.""")
slip("the memory asks", ALL_WRONG, {"cross_attention(x, memory,": "cross_attention(memory, x,"}, words="""
    The two sides of the cross-attention have changed places: the source asked and the target answered. Which side
    writes the next token, and so makes the queries?""")
slip("the two masks swapped", ALL_WRONG, {"x, mask": "x, memory_mask", "memory_mask": "mask"}, words="""
    The masks have changed places. `mask` is about the decoder's own positions, (n, n): which one may attend to which.
    `memory_mask` knows which positions of the source hold a token, (batch, 1, n_memory). Source and target are of
    different lengths, so it shows at once; were they equal, nothing would crash.""")
slip("the causal mask on the memory", ALL_WRONG, {"memory_mask": "mask"}, words="""
    The cross-attention got the mask of the decoder's own positions. The source has no future: all of it was there
    before the first token was written. What must be hidden of it is its padding.""")
slip("sees the future", ("past only",), {"x, mask": "x, None"}, words="""
    The self-attention got no mask, so each position reads the tokens that it is about to predict.""")
slip("attends to the memory's padding", ("memory's padding",), {"memory_mask": "None"}, words="""
    The cross-attention got no mask: a translation then depends on how far its source was padded.""")
slip("one sentence's mask for all", ("memory's padding",), {"memory_mask": "memory_mask[:1]"}, words="""
    Every source got the mask of the first one in the batch. Each sentence has a length, and a mask, of its own.""")
slip("norms exchanged", SUMS, {"norm_2": "norm_3", "norm_3": "norm_2"}, words="""
    Two norms have changed places. `norm_2` belongs to the cross-attention, `norm_3` to the network; each has a gain
    and a bias of its own.""")
slip("one norm for two sums", SUMS,
     {"norm_3": "norm_2"},
     {"norm_2": "norm_1"},
     {"norm_3": "norm_1"},
     {"norm_2": "norm_1", "norm_3": "norm_1"},
     words="""
    One norm was used for two sums, or for all three, and another was never called. Each has a gain and a bias of its
    own, which are learned for what comes out of *its* sublayer.""")
slip("added to an older x", SUMS,
     {f"x = norm_1(x + {SELF})\nx = norm_2(x + cross_attention(x,":
      f"h = norm_1(x + {SELF})\nx = norm_2(x + cross_attention(h,"},
     {f"x = norm_2(x + {LOOKS})\nreturn norm_3(x + feed_forward(x))":
      f"h = norm_2(x + {LOOKS})\nreturn norm_3(x + feed_forward(h))"},
     words="""
    The sublayer read the right x, and what it found was added to an older one: what the sublayer before it had found,
    and its norm, are then missing from the sum. "Add & Norm" adds to what the sublayer has read.""")
slip("the two attentions side by side", CROSS,
     {f"x = norm_1(x + {SELF})\nx = norm_2(x + {LOOKS})": f"x = norm_2(norm_1(x + {SELF} + {LOOKS}))"},
     words="""
    Both attentions started from the x that came in, and both outputs went into one sum. The queries of the
    cross-attention come from the x after self-attention and its norm: it has read what was written so far.""")
slip("the memory normalised again", CROSS, {"memory,": "norm_2(memory),"}, words="""
    `norm_2` was put over the memory too. Its gain and bias are learned for the decoder's states. The memory comes
    from the encoder ready for use, and all blocks of the decoder read that same memory.""")
slip("cross-attention first", ("self-attention", *CROSS),
     {f"x = norm_1(x + {SELF})\nx = norm_2(x + {LOOKS})": f"x = norm_1(x + {LOOKS})\nx = norm_2(x + {SELF})"},
     words="""
    Cross-attention came before self-attention. Its query should depend on what has been written so far, and
    self-attention brings that.""")
slip("cut off from the gradient", ("gradient",),
     {THINKS: "feed_forward(x.detach())"},
     {SELF: "attention(x.detach(), x.detach(), mask)"},
     {f"x + {SELF}": f"x.detach() + {SELF}"},
     {f"x + {LOOKS}": f"x.detach() + {LOOKS}"},
     {f"x + {THINKS}": f"x.detach() + {THINKS}"},
     words="""
    The numbers are right, but a way back to x is cut: through a sublayer, or along the residual path around it.
    `.detach()`, `.data` and `torch.no_grad()` forget where numbers came from.""")
slip("the encoder cut off", ("gradient",), {"memory,": "memory.detach(),"}, words="""
    The numbers are right, but no gradient gets back to the encoder, which then never learns: `.detach()`,
    `.data` and `torch.no_grad()` forget where numbers came from.""")


# ------------------------------------------------------------------------------------------------------ further from it


@variant("keys from the decoder", fails=ALL_WRONG)
def keys_from_the_decoder_under_the_memorys_mask(
    x, memory, mask, memory_mask, attention, cross_attention, feed_forward, norm_1, norm_2, norm_3
):
    """With the memory's mask."""
    x = norm_1(x + attention(x, x, mask))
    x = norm_2(x + cross_attention(x, x, memory_mask))
    return norm_3(x + feed_forward(x))


@misconception("all parts read the old x", fails=(*CROSS, "network"))
def all_parts_read_the_old_x(
    x, memory, mask, memory_mask, attention, cross_attention, feed_forward, norm_1, norm_2, norm_3
):
    """All three sublayers read the x that came in. Each line starts from what the line before has made."""
    own = norm_1(x + attention(x, x, mask))
    asked = norm_2(own + cross_attention(x, memory, memory_mask))
    return norm_3(asked + feed_forward(x))


@misconception("the sum goes on without its norm", fails=SUMS)
def the_sum_goes_on_without_its_norm(
    x, memory, mask, memory_mask, attention, cross_attention, feed_forward, norm_1, norm_2, norm_3
):
    """The sublayers read the normalised sums, but what was *added to* was the sum from before its norm: the residual
    path went round the norms. In the block of 2017 the norm stands on the residual path itself."""
    x = x + attention(x, x, mask)
    x = x + cross_attention(norm_1(x), memory, memory_mask)
    return norm_3(x + feed_forward(norm_2(x)))


# ------------------------------------------------------------------------------------------------ right in other styles


@alternative("names for everything")
def names_for_everything(
    x, memory, mask, memory_mask, attention, cross_attention, feed_forward, norm_1, norm_2, norm_3
):
    """One thing a line, and by keyword what the contract names."""
    found = attention(x, x, mask)
    looked_back = norm_1(x + found)
    answered = cross_attention(looked_back, memory=memory, mask=memory_mask)
    asked = norm_2(looked_back + answered)
    thought = feed_forward(asked)
    return norm_3(asked + thought)


@alternative("a helper for Add & Norm, in float64")
def a_helper_for_add_and_norm_in_float64(
    x, memory, mask, memory_mask, attention, cross_attention, feed_forward, norm_1, norm_2, norm_3
):
    """Three times the same function."""
    parts = (
        (norm_1, lambda h: attention(h, h, mask)),
        (norm_2, lambda h: cross_attention(h, memory, memory_mask)),
        (norm_3, feed_forward),
    )
    for norm, part in parts:
        x = norm((x.double() + part(x).double()).float())
    return x


@alternative("sums by einsum")
def sums_by_einsum(x, memory, mask, memory_mask, attention, cross_attention, feed_forward, norm_1, norm_2, norm_3):
    """Each sum is over a stack of two."""

    def add(*both):
        return torch.einsum("kbnd->bnd", torch.stack(both))

    x = norm_1(add(attention(x, x, mask), x))
    x = norm_2(add(cross_attention(x, memory, memory_mask), x))
    return norm_3(add(feed_forward(x), x))
