"""decoder_block: One block of a decoder that looks at a memory, with its norms in front."""

import torch

from lessonkit.exercises.exercise import Exercise
from lessonkit.exercises.judge import explain_missing_gradient, explain_worst
from lessonkit.exercises.local_runner import AspectFailed, Problem
from lessonkit.exercises.observe import gradient_reaches, require_variation

from .common import READY_MADE, Asked, _attends, _thinks, everybody, norms, passed_on, used, with_padding


def reference(x, memory, mask, memory_mask, attention, cross_attention, feed_forward, norm_1, norm_2, norm_3):
    """Look back, look at the memory, think. Vaswani et al. 2017, figure 1, with the norms in front."""
    h = norm_1(x)
    x = x + attention(h, h, mask)
    x = x + cross_attention(norm_2(x), memory, memory_mask)
    return x + feed_forward(norm_3(x))


def solution(x, memory, mask, memory_mask, attention, cross_attention, feed_forward, norm_1, norm_2, norm_3):
    h = norm_1(x)                                          # (batch, n, d_model)
    x = x + attention(h, h, mask)
    x = x + cross_attention(norm_2(x), memory, memory_mask)
    return x + feed_forward(norm_3(x))


exercise = Exercise(
    "decoder_block",
    reference=reference,
    solution=solution,
    returns=("x",),
    forbidden=READY_MADE,
    difficulty=2,
    minutes=15,
    hints=(
        "Three lines of the form x = x + part(norm(x)), each with a norm of its own, and each starts from the x that "
        "the line before has made. The first and the last you have written before. If all three parts return zeros, "
        "what must come out?",
        "The middle line is cross-attention. Which of the two sequences makes the queries, and which the keys and "
        "values? The encoder has normalised the memory once, for all blocks. The gradient must reach both sequences.",
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


@aspect("silent parts", points=1, hint=1)
def silent_parts(answer, draw):
    """if the three parts find nothing, x comes out as it went in"""
    return _decoded(answer, draw)


@aspect("self-attention", points=1, hint=1)
def self_attention(answer, draw):
    """x asks itself"""
    return _decoded(answer, draw, "attention")


@aspect("cross-attention", points=2, hint=2)
def cross_attention(answer, draw):
    """x asks, the memory answers"""
    return _decoded(answer, draw, "cross_attention")


@aspect("network", points=1, hint=1)
def network(answer, draw):
    """the network reads the normalised x"""
    return _decoded(answer, draw, "feed_forward")


@aspect("in order", points=1, hint=1)
def in_order(answer, draw):
    """each part starts from what the one before has made"""
    return _decoded(answer, draw, *LOUD)


@aspect(
    "past only",
    points=1,
    hint=3,
    explain=explain_worst("x {place} changes by {size} when only the future changes"),
)
def past_only(answer, draw):
    """under a causal mask, what comes later changes nothing"""
    (x, memory, mask, memory_mask), parts = _decoding(draw, *LOUD)
    n = x.shape[1]
    cut = 1 + int(draw.integers(n - 1, 1))
    other = torch.cat([x[:, :cut], draw.normal(*x[:, cut:].shape)], dim=1)
    output, changed = (answer(each, memory, mask.tril(), memory_mask, *parts) for each in (x, other))
    used(attention=parts[0])
    return require_variation(output[:, :cut]) - changed[:, :cut]


@aspect(
    "memory's padding",
    points=1,
    hint=3,
    explain=explain_worst("x {place} changes by {size} when only the memory's padding changes"),
)
def memorys_padding(answer, draw):
    """what stands in the padding of the memory changes nothing"""
    (x, memory, mask, _), parts = _decoding(draw, *LOUD)
    real = with_padding(draw, *memory.shape[:2])                          # (batch, n_memory)
    other = torch.where(real[..., None], memory, 3 * draw.normal(*memory.shape))
    output, changed = (answer(x, each, mask, real[:, None], *parts) for each in (memory, other))
    if torch.equal(output, answer(x, -memory, mask, real[:, None], *parts)):
        raise AspectFailed(Problem("unusable", "changing the memory makes no difference"))
    return require_variation(output) - changed


@aspect("gradient", points=1, hint=2, explain=explain_missing_gradient("x", "memory"))
def gradient(answer, draw):
    """decoder and encoder can both be learned"""
    all_reached = torch.ones(2, dtype=torch.bool)
    for loud in (LOUD, *((part,) for part in LOUD), ()):
        (x, memory, *masks), parts = _decoding(draw, *loud)
        ends = [x.requires_grad_(), memory.requires_grad_()][: 1 + ("cross_attention" in loud)]
        output = answer(x, memory, *masks, *parts)
        found = gradient_reaches(output - x, ends, draw) if loud else passed_on(output, x, draw)
        if loud == LOUD:
            found &= gradient_reaches(output, ends, draw)
        all_reached[: len(ends)] &= found
    return all_reached


# -------------------------------------------------------------------------------------- one slip away from the solution

ALL_WRONG = tuple(aspect.name for aspect in exercise.aspects)
SUMS = ("silent parts", "self-attention", "cross-attention", "network", "in order")
CROSS = ("cross-attention", "in order")
LOOKS = "x = x + cross_attention(norm_2(x), memory, memory_mask)\n"

slip("keys from the decoder", (*CROSS, "memory's padding", "gradient"), {"memory, memory_mask": "norm_2(x), mask"},
     words="""
    The cross-attention asked the decoder's own states, and the memory was never read: the decoder would translate
    without having seen the source. Queries come from the decoder; keys and values from the encoder.""")
slip("the memory asks", ALL_WRONG, {"norm_2(x), memory,": "memory, norm_2(x),"}, words="""
    The two sides of the cross-attention have changed places: the source asked and the target answered. Who is about
    to write a word, and wants to know something?""")
slip("the two masks swapped", ALL_WRONG, {"h, mask": "h, memory_mask", "memory_mask": "mask"}, words="""
    The masks have changed places. `mask` is about the decoder's own positions, (n, n): who may look at whom.
    `memory_mask` knows which positions of the source hold a word, (batch, 1, n_memory). Source and target are of
    different lengths, so it shows at once; were they equal, nothing would crash.""")
slip("the causal mask on the memory", ALL_WRONG, {"memory_mask": "mask"}, words="""
    The cross-attention got the mask of the decoder's own positions. The source has no future: all of it was there
    before the first word was written. What must be hidden of it is its padding.""")
slip("sees the future", ("past only",), {"h, mask": "h, None"}, words="""
    The self-attention got no mask, so each position reads the words that it is about to predict.""")
slip("hears the memory's padding", ("memory's padding",), {"memory_mask": "None"}, words="""
    The cross-attention got no mask: a translation then depends on how far its source was padded.""")
slip("one sentence's mask for all", ("memory's padding",), {"memory_mask": "memory_mask[:1]"}, words="""
    Every source got the mask of the first one in the batch. Each sentence has a length, and a mask, of its own.""")
slip("keys that were not normalised", ("self-attention", "in order"),
     {"h, h, mask": "h, x, mask"},
     {"h, h, mask": "x, h, mask"},  # the other way round
     words="""
    One side of the self-attention got the x from before the norm: the one that asks, or the one that answers. Queries,
    keys and values are all made of what `norm_1` returned.""")
slip("norms exchanged", ("cross-attention", "network", "in order"), {"norm_2": "norm_3", "norm_3": "norm_2"}, words="""
    Two norms have changed places. `norm_2` belongs in front of the cross-attention, `norm_3` in front of the network;
    each has a gain and a bias of its own.""")
slip("the two attentions side by side", ("in order",),
     {"mask)\nx = x + cross": "mask) + cross"},
     words="""
    Both attentions started from the x that came in, and both findings were added. What asks the memory is the x that
    the self-attention has left: it has heard what was written so far.""")
slip("the memory normalised again", CROSS, {"memory,": "norm_2(memory),"}, words="""
    `norm_2` was put over the memory too. Its gain and bias are learned for the decoder's states. The memory comes
    from the encoder, which has a norm after its last block, and all blocks of the decoder read that same memory.""")
slip("asks without a norm", CROSS, {"norm_2(x)": "x"}, words="""
    The x that asks the memory was not normalised. Each of the three parts has a norm in front of it.""")
slip("residual from the normalised x", SUMS,
     {"h = ": "x = h = ", "x + cross_attention": "norm_2(x) + cross_attention",
      "x + feed_forward": "norm_3(x) + feed_forward"},
     words="""
    The normalised x took the place of x, and the sum was made with that: the original is lost. Give what a norm
    returns a name of its own.""")
slip("the memory takes x's place", SUMS, {"x + cross_attention": "cross_attention"}, words="""
    What the memory answered was not added to x but put in its place: what the decoder knew of its own text is gone.
    The cross-attention has a residual path as the other two parts have.""")
slip("asks the memory first", ("in order",), {"h = ": f"{LOOKS}h = ", LOOKS: ""}, words="""
    Cross-attention came before self-attention. A position has to know what has been written before it can ask the
    source a sensible question.""")
slip("the encoder cut off", ("gradient",), {"memory,": "memory.detach(),"}, words="""
    The numbers are right, but no gradient gets back to the encoder (or the decoder), which then never learns:
    `.detach()`, `.data` and `torch.no_grad()` forget where numbers came from.""")


# ------------------------------------------------------------------------------------------------------ further from it


@variant("keys from the decoder", fails=ALL_WRONG)
def keys_from_the_decoder_under_the_memorys_mask(
    x, memory, mask, memory_mask, attention, cross_attention, feed_forward, norm_1, norm_2, norm_3
):
    """With the memory's mask."""
    h = norm_1(x)
    x = x + attention(h, h, mask)
    h = norm_2(x)
    x = x + cross_attention(h, h, memory_mask)
    return x + feed_forward(norm_3(x))


@misconception("norms after the sums", fails=SUMS)
def norms_after_the_sums(
    x, memory, mask, memory_mask, attention, cross_attention, feed_forward, norm_1, norm_2, norm_3
):
    """Each norm stands after its sum, on the residual path, as in 2017. Here they stand in front of the parts: if the
    parts find nothing, x must come out as it went in."""
    x = norm_1(x + attention(x, x, mask))
    x = norm_2(x + cross_attention(x, memory, memory_mask))
    return norm_3(x + feed_forward(x))


@variant("asks the memory first", fails=("self-attention", *CROSS))
def asks_the_memory_first_with_norms_by_place(
    x, memory, mask, memory_mask, attention, cross_attention, feed_forward, norm_1, norm_2, norm_3
):
    """Each with the norm of its place in the code."""
    x = x + cross_attention(norm_1(x), memory, memory_mask)
    h = norm_2(x)
    x = x + attention(h, h, mask)
    return x + feed_forward(norm_3(x))


@misconception("all parts read the old x", fails=("in order",))
def all_parts_read_the_old_x(
    x, memory, mask, memory_mask, attention, cross_attention, feed_forward, norm_1, norm_2, norm_3
):
    """All three parts read the original x, and their findings were added up. Each line starts from what the line before
    has made."""
    h = norm_1(x)
    found = attention(h, h, mask) + cross_attention(norm_2(x), memory, memory_mask)
    return x + found + feed_forward(norm_3(x))


# ------------------------------------------------------------------------------------------------ right in other styles


@alternative("names for everything")
def names_for_everything(
    x, memory, mask, memory_mask, attention, cross_attention, feed_forward, norm_1, norm_2, norm_3
):
    """One thing a line."""
    own = norm_1(x)
    looked_back = x + attention(own, own, mask)
    question = norm_2(looked_back)
    answered = looked_back + cross_attention(question, memory, memory_mask)
    return answered + feed_forward(norm_3(answered))


@alternative("a helper for the residual path, in float64")
def a_helper_for_the_residual_path_in_float64(
    x, memory, mask, memory_mask, attention, cross_attention, feed_forward, norm_1, norm_2, norm_3
):
    """Three times the same function."""
    parts = (
        (norm_1, lambda h: attention(h, h, mask)),
        (norm_2, lambda h: cross_attention(h, memory, memory_mask)),
        (norm_3, feed_forward),
    )
    for norm, part in parts:
        x = (x.double() + part(norm(x)).double()).float()
    return x


@alternative("findings kept, and summed by einsum")
def findings_kept_and_summed_by_einsum(
    x, memory, mask, memory_mask, attention, cross_attention, feed_forward, norm_1, norm_2, norm_3
):
    """The residual path as a sum over all that was found."""
    first = attention(norm_1(x), norm_1(x), mask)
    second = cross_attention(norm_2(x + first), memory, memory_mask)
    third = feed_forward(norm_3(x + first + second))
    return torch.einsum("kbnd->bnd", torch.stack((x, first, second, third)))
