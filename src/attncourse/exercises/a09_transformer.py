"""Assignment 09: the Transformer, put together; one part of a newer one; and the mask of a third kind.

What an answer puts together comes from here: attentions, networks and norms with drawn weights, handed over as
functions. So only the wiring is looked at. Function bodies below stand in for a learner's: they use torch alone, and
the argument names of the contract.
"""

import math

import torch
from torch import nn

from attncourse import attention, layers
from attncourse.exercises.answering import AspectFailed, Problem
from attncourse.exercises.core import Exercise
from attncourse.exercises.judge import arrives, told
from attncourse.exercises.observe import reached, telling

READY_MADE = (
    "attncourse.attention",
    "attncourse.efficient",
    "attncourse.layers",
    "attncourse.transformer",
    "torch.nn.Transformer",
    "torch.nn.TransformerEncoderLayer",
    "torch.nn.TransformerDecoderLayer",
)


# The parts that are handed over


def _attends(draw, d, name="attention", finds=True):
    """An attention with drawn projections: `attend(x, memory, mask)`, in which x asks and the memory answers.

    Unless it `finds` something it returns zeros, and still refuses what does not fit.
    """
    W_Q, W_K, W_V = (draw.normal(d, d) / math.sqrt(d) for _ in range(3))

    def attend(x, memory, mask=None):
        n_query, n_key = x.shape[-2], memory.shape[-2]
        if mask is not None and (mask.shape[-1] != n_key or mask.shape[-2] not in (1, n_query)):
            shape = tuple(mask.shape)
            raise ValueError(f"{name}: a mask {shape} does not fit {n_query} queries and {n_key} keys")
        if not finds:
            return torch.zeros_like(x)
        scores = 2 * (x @ W_Q) @ (memory @ W_K).mT / math.sqrt(d)
        scores = scores if mask is None else scores.masked_fill(~mask, -torch.inf)
        return scores.softmax(dim=-1) @ (memory @ W_V)

    return attend


def _thinks(draw, d, finds=True):
    """A feed-forward network with drawn matrices, or one that returns zeros."""
    up, down = draw.normal(d, 2 * d) / math.sqrt(d), draw.normal(2 * d, d) / math.sqrt(d)
    return lambda x: (x @ up).relu() @ (down * finds)


def _norms(draw, d):
    """A LayerNorm with drawn gain and bias: none is like another, and none leaves x as it is."""
    gain, bias = 0.5 + draw.uniform(d), draw.normal(d) / 2

    def norm(x):
        centred = x - x.mean(dim=-1, keepdim=True)
        return gain * centred / torch.sqrt(centred.square().mean(dim=-1, keepdim=True) + 1e-5) + bias

    return norm


class _Asked:
    """A part, and whether it was asked at all."""

    def __init__(self, part):
        self.part, self.times = part, 0

    def __call__(self, *inputs):
        self.times += 1
        return self.part(*inputs)


def _used(**parts):
    """Refuses an answer that did not ask these parts: of what is done with them nothing can be seen."""
    idle = [f"`{name}`" for name, part in parts.items() if not part.times]
    if idle:
        raise AspectFailed(
            Problem("unusable", f"{' and '.join(idle)} {'was' if len(idle) == 1 else 'were'} never called")
        )


def _passed_on(output, x, draw):
    """Whether x that comes out as it went in brings the gradient back; True, too, of an output that is not x."""
    return reached(output, [x], draw) | ((output - x).abs().max() > 1e-5)


def _everybody(*shape):
    return torch.ones(*shape, dtype=torch.bool)


# --------------------------------------------------------------------------------------------------------- shift_right


def _shift_right(target, bos):
    """`bos`, and all but the last token. Vaswani et al. 2017, section 3.1: "offset by one position"."""
    return torch.cat([torch.full_like(target[:, :1], bos), target[:, :-1]], dim=1)


shift_right = Exercise(
    "shift_right",
    reference=_shift_right,
    returns=("target_in",),
    difficulty=1,
    minutes=8,
    hints=(
        "At position t the decoder is to say target[t], and may know what stands before it. What does it read at "
        "position 0? Which token is never read?",
        "Two pieces, one after the other: a column of `bos`, and the target without its last column. "
        "`torch.full_like` and `torch.cat` are enough; mind the axis.",
    ),
)


def _tokens(draw, n=None):
    """(target, bos), with a bos that is no token of the target."""
    batch, length = draw.sizes(2, 3, 8)
    bos = int(draw.integers(5, 1)) + 40
    return draw.integers(40, batch, n or length), bos


@shift_right.aspect("shifted", points=2)
def _(answer, draw):
    """`bos` first, then every token one place later; the last one is dropped"""
    return answer(*_tokens(draw))


@shift_right.aspect("one token", points=1)
def _(answer, draw):
    """of a single token nothing is left but `bos`"""
    return answer(*_tokens(draw, n=1))


@shift_right.aspect("whole numbers", points=1, explain=lambda got, expected: "came back as decimal numbers")
def _(answer, draw):
    """tokens stay whole numbers, or no embedding could look them up"""
    target_in = answer(*_tokens(draw))
    telling(target_in)
    return torch.tensor(not target_in.is_floating_point())


@shift_right.misconception("no shift", fails=("shifted", "one token"))
def _(target, bos):
    """The decoder reads at position t what it is to say at position t. It will learn to copy its input, its loss will
    be next to nothing, and it will not be able to write a single word. What may it know when it says the first one?"""
    return target.clone()


@shift_right.misconception("shifted to the left", fails=("shifted",))
def _(target, bos):
    """The tokens moved one place *forward*: at position t the decoder reads token t + 1, the future. What it reads has
    to lag behind what it says."""
    return torch.cat([target[:, 1:], torch.full_like(target[:, :1], bos)], dim=1)


@shift_right.misconception("the last token comes round", fails=("shifted", "one token"))
def _(target, bos):
    """`roll` turns the row in a circle: the last token of the sentence stands in front, where nothing is known yet.
    What belongs there is the sign for "begin"."""
    return torch.roll(target, 1, dims=1)


@shift_right.misconception("overwritten, not shifted", fails=("shifted",))
def _(target, bos):
    """`bos` took the place of the first token, and all others stayed where they were. So the first token is never read,
    and each of the others is read where it is to be said."""
    target_in = target.clone()
    target_in[:, 0] = bos
    return target_in


@shift_right.misconception("one token too long", fails=("shifted", "one token"))
def _(target, bos):
    """`bos` was put in front and nothing was dropped: the input is one token longer than what is to be said, and its
    last token is read when there is nothing left to say."""
    return torch.cat([torch.full_like(target[:, :1], bos), target], dim=1)


@shift_right.misconception("bos after the text", fails=("shifted", "one token"))
def _(target, bos):
    """`bos` was put at the end. It is what the decoder reads *first*, when nothing has been written yet."""
    return torch.cat([target, torch.full_like(target[:, :1], bos)], dim=1)


@shift_right.variant("bos after the text", fails=("shifted",))
def _(target, bos):
    """In the last token's place."""
    return torch.cat([target[:, :-1], torch.full_like(target[:, :1], bos)], dim=1)


@shift_right.misconception("sentences shifted", fails=("shifted", "one token"))
def _(target, bos):
    """The shift ran along the batch: each sentence became its neighbour, and the first a row of `bos`. Axis 0 counts
    sentences, axis 1 the positions in each."""
    return torch.cat([torch.full_like(target[:1], bos), target[:-1]], dim=0)


@shift_right.misconception("decimal numbers", fails=("whole numbers",))
def _(target, bos):
    """The shift is right, but what came back are decimal numbers: `torch.ones` and `torch.zeros` make those, and `cat`
    turns its other pieces into the same. An embedding refuses them. Say which type you want, or start from `target`."""
    return torch.cat([bos * torch.ones(target.shape[0], 1), target[:, :-1]], dim=1)


@shift_right.alternative("a new tensor, filled in")
def _(target, bos):
    """Writes into its own tensor."""
    target_in = torch.empty_like(target)
    target_in[:, 0] = bos
    target_in[:, 1:] = target[:, :-1]
    return target_in


@shift_right.alternative("rolled, then overwritten")
def _(target, bos):
    """What comes round is painted over."""
    target_in = target.roll(1, dims=1)
    target_in[:, 0] = bos
    return target_in


@shift_right.alternative("padded on the left")
def _(target, bos):
    """A pad of one column, and the last one cut off: a view."""
    return nn.functional.pad(target, (1, 0), value=bos)[:, :-1]


@shift_right.alternative("lists")
def _(target, bos):
    """Row by row."""
    return torch.tensor([[bos, *row[:-1]] for row in target.tolist()])


# ------------------------------------------------------------------------------------------------------- encoder_block


def _encoder_block(x, mask, attention, feed_forward, norm_1, norm_2):
    """Look around, think; a norm in front of each, a residual path around each. Xiong et al. 2020, figure 1b."""
    h = norm_1(x)
    x = x + attention(h, h, mask)
    return x + feed_forward(norm_2(x))


encoder_block = Exercise(
    "encoder_block",
    reference=_encoder_block,
    returns=("x",),
    forbidden=READY_MADE,
    difficulty=2,
    minutes=12,
    hints=(
        "Two lines of the same form: x = x + part(norm(x)). Which x goes into the second?",
        "In self-attention a sequence asks itself, so the same thing is `x` and `memory` of the attention: both are "
        "what `norm_1` made. What is added at the end is added to x as it was before the norm.",
    ),
)

def _encoding(draw, attends=True, thinks=True):
    """(x, a mask that forbids nothing, [attention, feed_forward, norm_1, norm_2])."""
    batch, n, d = draw.sizes(3, 3, 8)
    x = draw.normal(batch, n, d)
    parts = _attends(draw, d, finds=attends), _thinks(draw, d, finds=thinks)
    return x, _everybody(batch, 1, n), [_Asked(part) for part in (*parts, _norms(draw, d), _norms(draw, d))]


def _encoded(answer, draw, attends=True, thinks=True):
    x, mask, parts = _encoding(draw, attends, thinks)
    output = answer(x, mask, *parts)
    found = {"attention": parts[0], "feed_forward": parts[1]}
    _used(**{name: part for (name, part), loud in zip(found.items(), (attends, thinks), strict=True) if loud} or found)
    return output


@encoder_block.aspect("silent parts", points=1)
def _(answer, draw):
    """if attention and network find nothing, x comes out as it went in"""
    return _encoded(answer, draw, attends=False, thinks=False)


@encoder_block.aspect("attention", points=1)
def _(answer, draw):
    """what attention finds in the normalised x is added to x"""
    return _encoded(answer, draw, thinks=False)


@encoder_block.aspect("network", points=1)
def _(answer, draw):
    """what the network makes of the normalised x is added to x"""
    return _encoded(answer, draw, attends=False)


@encoder_block.aspect("both", points=1)
def _(answer, draw):
    """the network thinks about what attention has found"""
    return _encoded(answer, draw)


@encoder_block.aspect("mask", points=1, explain=told("x {place} changes by {size} when only the padding changes"))
def _(answer, draw):
    """what stands in the padding changes nothing for the words"""
    x, _, parts = _encoding(draw)
    mask = draw.padding_mask(*x.shape[:2])                                # (batch, n)
    other = torch.where(mask[..., None], x, 3 * draw.normal(*x.shape))
    output = answer(x, mask[:, None], *parts)
    _used(attention=parts[0])
    words = mask[..., None]
    return telling(output * words) - answer(other, mask[:, None], *parts) * words


@encoder_block.aspect("gradient", points=1, explain=arrives("x"))
def _(answer, draw):
    """the gradient finds its way back through both parts"""
    all_reached = torch.ones(1, dtype=torch.bool)
    for loud in ((True, True), (True, False), (False, True), (False, False)):
        x, mask, parts = _encoding(draw, *loud)
        x.requires_grad_()
        output = answer(x, mask, *parts)
        # What is left of the gradient without the residual path's; and there is one at all.
        all_reached &= reached(output - x, [x], draw) if any(loud) else _passed_on(output, x, draw)
        if all(loud):
            all_reached &= reached(output, [x], draw)
    return all_reached


BLOCK = ("silent parts", "attention", "network", "both")


@encoder_block.misconception("norms after the sum", fails=BLOCK)
def _(x, mask, attention, feed_forward, norm_1, norm_2):
    """This is the block of 2017: each norm stands *after* its sum, on the residual path itself. Here the norms stand in
    front of the parts, and the way from x to the end is nothing but sums. If the parts find nothing, what must come
    out?"""
    x = norm_1(x + attention(x, x, mask))
    return norm_2(x + feed_forward(x))


@encoder_block.misconception("residual from the normalised x", fails=BLOCK)
def _(x, mask, attention, feed_forward, norm_1, norm_2):
    """The normalised x took the place of x, and the sum was made with that. So the original x is lost at the first
    norm, and the residual path with it. Give what the norm returns a name of its own."""
    x = norm_1(x)
    x = x + attention(x, x, mask)
    x = norm_2(x)
    return x + feed_forward(x)


@encoder_block.variant("residual from the normalised x", fails=BLOCK)
def _(x, mask, attention, feed_forward, norm_1, norm_2):
    """In the first half alone."""
    x = norm_1(x)
    x = x + attention(x, x, mask)
    return x + feed_forward(norm_2(x))


@encoder_block.variant("residual from the normalised x", fails=BLOCK)
def _(x, mask, attention, feed_forward, norm_1, norm_2):
    """In the second half alone."""
    h = norm_1(x)
    x = norm_2(x + attention(h, h, mask))
    return x + feed_forward(x)


@encoder_block.misconception("nothing added to x", fails=BLOCK)
def _(x, mask, attention, feed_forward, norm_1, norm_2):
    """What a part found took the place of x. A part's finding is *added* to what was there: that is the residual path,
    and a deep stack does not train without it."""
    h = norm_1(x)
    x = attention(h, h, mask)
    return feed_forward(norm_2(x))


@encoder_block.variant("nothing added to x", fails=BLOCK)
def _(x, mask, attention, feed_forward, norm_1, norm_2):
    """Around the network."""
    h = norm_1(x)
    x = x + attention(h, h, mask)
    return feed_forward(norm_2(x))


@encoder_block.variant("nothing added to x", fails=BLOCK)
def _(x, mask, attention, feed_forward, norm_1, norm_2):
    """Around attention."""
    h = norm_1(x)
    x = attention(h, h, mask)
    return x + feed_forward(norm_2(x))


@encoder_block.misconception("keys that were not normalised", fails=("attention", "both"))
def _(x, mask, attention, feed_forward, norm_1, norm_2):
    """The normalised x asked, and the x from before the norm answered. In self-attention one and the same sequence
    does both: queries, keys and values are all made of what `norm_1` returned."""
    x = x + attention(norm_1(x), x, mask)
    return x + feed_forward(norm_2(x))


@encoder_block.variant("keys that were not normalised", fails=("attention", "both"))
def _(x, mask, attention, feed_forward, norm_1, norm_2):
    """The other way round."""
    x = x + attention(x, norm_1(x), mask)
    return x + feed_forward(norm_2(x))


@encoder_block.misconception("one norm for both parts", fails=("network", "both"))
def _(x, mask, attention, feed_forward, norm_1, norm_2):
    """`norm_1` served both parts. Each norm has a gain and a bias of its own, learned for the part after it."""
    h = norm_1(x)
    x = x + attention(h, h, mask)
    return x + feed_forward(norm_1(x))


@encoder_block.misconception("the two norms swapped", fails=("attention", "network", "both"))
def _(x, mask, attention, feed_forward, norm_1, norm_2):
    """The norms have changed places: `norm_1` belongs in front of attention, `norm_2` in front of the network."""
    h = norm_2(x)
    x = x + attention(h, h, mask)
    return x + feed_forward(norm_1(x))


@encoder_block.misconception("the network reads the old x", fails=("both",))
def _(x, mask, attention, feed_forward, norm_1, norm_2):
    """Both parts read the original x, and both findings were added. (Some models are built so, to save time: "parallel"
    blocks.) Here the second line starts from what the first one made: the network is to think about what attention has
    brought."""
    h = norm_1(x)
    return x + attention(h, h, mask) + feed_forward(norm_2(x))


@encoder_block.misconception("thinks before it looks", fails=("both",))
def _(x, mask, attention, feed_forward, norm_1, norm_2):
    """The network came first and attention second. Each part is wired as it should be; their order is not."""
    x = x + feed_forward(norm_2(x))
    h = norm_1(x)
    return x + attention(h, h, mask)


@encoder_block.misconception("ignores the mask", fails=("mask",))
def _(x, mask, attention, feed_forward, norm_1, norm_2):
    """The mask was not handed on: change what stands in the padding, and the words change. A block has no use for the
    mask itself; the attention in it has."""
    h = norm_1(x)
    x = x + attention(h, h, None)
    return x + feed_forward(norm_2(x))


@encoder_block.misconception("no norm in front of the network", fails=("network", "both"))
def _(x, mask, attention, feed_forward, norm_1, norm_2):
    """The network got x as it was, with no norm in front, and `norm_2` was not used. Each of the two parts has a norm
    of its own."""
    h = norm_1(x)
    x = x + attention(h, h, mask)
    return x + feed_forward(x)


@encoder_block.misconception("mask upside down", fails=("attention", "both", "mask", "gradient"))
def _(x, mask, attention, feed_forward, norm_1, norm_2):
    """The mask was inverted before it was handed on. In this course True means "may attend", and the attention that you
    are given understands it so. (torch's own layers mean the opposite.)"""
    h = norm_1(x)
    x = x + attention(h, h, ~mask)
    return x + feed_forward(norm_2(x))


@encoder_block.misconception("cut off from the gradient", fails=("gradient",))
def _(x, mask, attention, feed_forward, norm_1, norm_2):
    """The numbers are right, but no gradient goes through the parts: `.detach()`, `.data` and `torch.no_grad()` forget
    where numbers came from."""
    h = norm_1(x.detach())
    x = x + attention(h, h, mask)
    return x + feed_forward(norm_2(x.detach()))


@encoder_block.variant("cut off from the gradient", fails=("gradient",))
def _(x, mask, attention, feed_forward, norm_1, norm_2):
    """The way through attention is cut, and the residual path with it."""
    h = norm_1(x)
    x = (x + attention(h, h, mask)).detach()
    return x + feed_forward(norm_2(x))


@encoder_block.variant("cut off from the gradient", fails=("gradient",))
def _(x, mask, attention, feed_forward, norm_1, norm_2):
    """The network alone learns nothing for those below."""
    h = norm_1(x)
    x = x + attention(h, h, mask)
    return x + feed_forward(norm_2(x).detach())


@encoder_block.alternative("names for everything")
def _(x, mask, attention, feed_forward, norm_1, norm_2):
    """One thing a line."""
    normalised = norm_1(x)
    found = attention(normalised, normalised, mask)
    middle = torch.add(x, found)
    thought = feed_forward(norm_2(middle))
    return torch.add(middle, thought)


@encoder_block.alternative("the norm called twice")
def _(x, mask, attention, feed_forward, norm_1, norm_2):
    """In one line each."""
    x = x + attention(norm_1(x), norm_1(x), mask)
    x = x + feed_forward(norm_2(x))
    return x


@encoder_block.alternative("a helper for the residual path, in float64")
def _(x, mask, attention, feed_forward, norm_1, norm_2):
    """The two halves are one function."""

    def around(x, norm, part):
        return (x.double() + part(norm(x)).double()).float()

    x = around(x, norm_1, lambda h: attention(h, h, mask))
    return around(x, norm_2, feed_forward)


@encoder_block.alternative("all findings added in the end")
def _(x, mask, attention, feed_forward, norm_1, norm_2):
    """einsum sums the three."""
    h = norm_1(x)
    found = attention(h, h, mask)
    return torch.einsum("kbnd->bnd", torch.stack([x, found, feed_forward(norm_2(x + found))]))


# ------------------------------------------------------------------------------------------------------- decoder_block


def _decoder_block(x, memory, mask, memory_mask, attention, cross_attention, feed_forward, norm_1, norm_2, norm_3):
    """Look back, look at the memory, think. Vaswani et al. 2017, figure 1, with the norms in front."""
    h = norm_1(x)
    x = x + attention(h, h, mask)
    x = x + cross_attention(norm_2(x), memory, memory_mask)
    return x + feed_forward(norm_3(x))


decoder_block = Exercise(
    "decoder_block",
    reference=_decoder_block,
    returns=("x",),
    forbidden=READY_MADE,
    difficulty=2,
    minutes=15,
    hints=(
        "Three lines of the form x = x + part(norm(x)). The first and the last you have written before.",
        "In the middle: who asks, and who answers? Whose padding does `memory_mask` know? The memory has been "
        "normalised by the encoder, once for all blocks.",
        "`cross_attention(norm_2(x), memory, memory_mask)`: the x in it is the one that the first line made.",
    ),
)

LOUD = ("attention", "cross_attention", "feed_forward")


def _decoding(draw, *loud):
    """([x, memory, mask, memory_mask], parts); masks that forbid nothing; parts that are not `loud` find nothing."""
    batch, n, n_memory, d = draw.sizes(4, 3, 9)
    x, memory = draw.normal(batch, n, d), draw.normal(batch, n_memory, d)
    parts = [_attends(draw, d, name, finds=name in loud) for name in ("attention", "cross_attention")]
    parts += [_thinks(draw, d, finds="feed_forward" in loud), *(_norms(draw, d) for _ in range(3))]
    masks = [_everybody(n, n), _everybody(batch, 1, n_memory)]
    return [x, memory, *masks], [_Asked(part) for part in parts]


def _decoded(answer, draw, *loud):
    inputs, parts = _decoding(draw, *loud)
    output = answer(*inputs, *parts)
    _used(**{name: part for name, part in zip(LOUD, parts[:3], strict=True) if name in (loud or LOUD)})
    return output


@decoder_block.aspect("silent parts", points=1)
def _(answer, draw):
    """if the three parts find nothing, x comes out as it went in"""
    return _decoded(answer, draw)


@decoder_block.aspect("self-attention", points=1)
def _(answer, draw):
    """x asks itself"""
    return _decoded(answer, draw, "attention")


@decoder_block.aspect("cross-attention", points=2)
def _(answer, draw):
    """x asks, the memory answers"""
    return _decoded(answer, draw, "cross_attention")


@decoder_block.aspect("network", points=1)
def _(answer, draw):
    """the network reads the normalised x"""
    return _decoded(answer, draw, "feed_forward")


@decoder_block.aspect("in order", points=1)
def _(answer, draw):
    """each part starts from what the one before has made"""
    return _decoded(answer, draw, *LOUD)


@decoder_block.aspect("past only", points=1, explain=told("x {place} changes by {size} when only the future changes"))
def _(answer, draw):
    """under a causal mask, what comes later changes nothing"""
    (x, memory, mask, memory_mask), parts = _decoding(draw, *LOUD)
    n = x.shape[1]
    cut = 1 + int(draw.integers(n - 1, 1))
    other = torch.cat([x[:, :cut], draw.normal(*x[:, cut:].shape)], dim=1)
    output, changed = (answer(each, memory, mask.tril(), memory_mask, *parts) for each in (x, other))
    _used(attention=parts[0])
    return telling(output[:, :cut]) - changed[:, :cut]


@decoder_block.aspect(
    "memory's padding", points=1, explain=told("x {place} changes by {size} when only the memory's padding changes")
)
def _(answer, draw):
    """what stands in the padding of the memory changes nothing"""
    (x, memory, mask, _), parts = _decoding(draw, *LOUD)
    real = draw.padding_mask(*memory.shape[:2])                           # (batch, n_memory)
    other = torch.where(real[..., None], memory, 3 * draw.normal(*memory.shape))
    output, changed = (answer(x, each, mask, real[:, None], *parts) for each in (memory, other))
    if torch.equal(output, answer(x, -memory, mask, real[:, None], *parts)):
        raise AspectFailed(Problem("unusable", "changing the memory makes no difference"))
    return telling(output) - changed


@decoder_block.aspect("gradient", points=1, explain=arrives("x", "memory"))
def _(answer, draw):
    """decoder and encoder can both be learned"""
    all_reached = torch.ones(2, dtype=torch.bool)
    for loud in (LOUD, *((part,) for part in LOUD), ()):
        (x, memory, *masks), parts = _decoding(draw, *loud)
        ends = [x.requires_grad_(), memory.requires_grad_()][: 1 + ("cross_attention" in loud)]
        output = answer(x, memory, *masks, *parts)
        found = reached(output - x, ends, draw) if loud else _passed_on(output, x, draw)
        if loud == LOUD:
            found &= reached(output, ends, draw)
        all_reached[: len(ends)] &= found
    return all_reached


ALL_WRONG = tuple(aspect.name for aspect in decoder_block.aspects)
SUMS = ("silent parts", "self-attention", "cross-attention", "network", "in order")
CROSS = ("cross-attention", "in order")


@decoder_block.misconception("keys from the decoder", fails=(*CROSS, "memory's padding", "gradient"))
def _(x, memory, mask, memory_mask, attention, cross_attention, feed_forward, norm_1, norm_2, norm_3):
    """The cross-attention asked the decoder's own states, and the memory was never read: the decoder would translate
    without having seen the source. Queries come from the decoder; keys and values from the encoder."""
    h = norm_1(x)
    x = x + attention(h, h, mask)
    h = norm_2(x)
    x = x + cross_attention(h, h, mask)
    return x + feed_forward(norm_3(x))


@decoder_block.variant("keys from the decoder", fails=ALL_WRONG)
def _(x, memory, mask, memory_mask, attention, cross_attention, feed_forward, norm_1, norm_2, norm_3):
    """With the memory's mask."""
    h = norm_1(x)
    x = x + attention(h, h, mask)
    h = norm_2(x)
    x = x + cross_attention(h, h, memory_mask)
    return x + feed_forward(norm_3(x))


@decoder_block.misconception("the memory asks", fails=ALL_WRONG)
def _(x, memory, mask, memory_mask, attention, cross_attention, feed_forward, norm_1, norm_2, norm_3):
    """The two sides of the cross-attention have changed places: the source asked and the target answered. Who is about
    to write a word, and wants to know something?"""
    h = norm_1(x)
    x = x + attention(h, h, mask)
    x = x + cross_attention(memory, norm_2(x), memory_mask)
    return x + feed_forward(norm_3(x))


@decoder_block.misconception("the two masks swapped", fails=ALL_WRONG)
def _(x, memory, mask, memory_mask, attention, cross_attention, feed_forward, norm_1, norm_2, norm_3):
    """The masks have changed places. `mask` is about the decoder's own positions, (n, n): who may look at whom.
    `memory_mask` knows which positions of the source hold a word, (batch, 1, n_memory). Source and target are of
    different lengths, so it shows at once; were they equal, nothing would crash."""
    h = norm_1(x)
    x = x + attention(h, h, memory_mask)
    x = x + cross_attention(norm_2(x), memory, mask)
    return x + feed_forward(norm_3(x))


@decoder_block.misconception("the causal mask on the memory", fails=ALL_WRONG)
def _(x, memory, mask, memory_mask, attention, cross_attention, feed_forward, norm_1, norm_2, norm_3):
    """The cross-attention got the mask of the decoder's own positions. The source has no future: all of it was there
    before the first word was written. What must be hidden of it is its padding."""
    h = norm_1(x)
    x = x + attention(h, h, mask)
    x = x + cross_attention(norm_2(x), memory, mask)
    return x + feed_forward(norm_3(x))


@decoder_block.misconception("sees the future", fails=("past only",))
def _(x, memory, mask, memory_mask, attention, cross_attention, feed_forward, norm_1, norm_2, norm_3):
    """The self-attention got no mask, so each position reads the words that it is about to predict."""
    h = norm_1(x)
    x = x + attention(h, h, None)
    x = x + cross_attention(norm_2(x), memory, memory_mask)
    return x + feed_forward(norm_3(x))


@decoder_block.misconception("hears the memory's padding", fails=("memory's padding",))
def _(x, memory, mask, memory_mask, attention, cross_attention, feed_forward, norm_1, norm_2, norm_3):
    """The cross-attention got no mask: a translation then depends on how far its source was padded."""
    h = norm_1(x)
    x = x + attention(h, h, mask)
    x = x + cross_attention(norm_2(x), memory, None)
    return x + feed_forward(norm_3(x))


@decoder_block.misconception("the memory normalised again", fails=CROSS)
def _(x, memory, mask, memory_mask, attention, cross_attention, feed_forward, norm_1, norm_2, norm_3):
    """`norm_2` was put over the memory too. Its gain and bias are learned for the decoder's states. The memory comes
    from the encoder, which has a norm after its last block, and all blocks of the decoder read that same memory."""
    h = norm_1(x)
    x = x + attention(h, h, mask)
    x = x + cross_attention(norm_2(x), norm_2(memory), memory_mask)
    return x + feed_forward(norm_3(x))


@decoder_block.misconception("asks without a norm", fails=CROSS)
def _(x, memory, mask, memory_mask, attention, cross_attention, feed_forward, norm_1, norm_2, norm_3):
    """The x that asks the memory was not normalised. Each of the three parts has a norm in front of it."""
    h = norm_1(x)
    x = x + attention(h, h, mask)
    x = x + cross_attention(x, memory, memory_mask)
    return x + feed_forward(norm_3(x))


@decoder_block.misconception("norms after the sums", fails=SUMS)
def _(x, memory, mask, memory_mask, attention, cross_attention, feed_forward, norm_1, norm_2, norm_3):
    """Each norm stands after its sum, on the residual path, as in 2017. Here they stand in front of the parts: if the
    parts find nothing, x must come out as it went in."""
    x = norm_1(x + attention(x, x, mask))
    x = norm_2(x + cross_attention(x, memory, memory_mask))
    return norm_3(x + feed_forward(x))


@decoder_block.misconception("residual from the normalised x", fails=SUMS)
def _(x, memory, mask, memory_mask, attention, cross_attention, feed_forward, norm_1, norm_2, norm_3):
    """The normalised x took the place of x, and the sum was made with that: the original is lost. Give what a norm
    returns a name of its own."""
    x = norm_1(x)
    x = x + attention(x, x, mask)
    x = norm_2(x)
    x = x + cross_attention(x, memory, memory_mask)
    x = norm_3(x)
    return x + feed_forward(x)


@decoder_block.misconception("the memory takes x's place", fails=SUMS)
def _(x, memory, mask, memory_mask, attention, cross_attention, feed_forward, norm_1, norm_2, norm_3):
    """What the memory answered was not added to x but put in its place: what the decoder knew of its own text is gone.
    The cross-attention has a residual path as the other two parts have."""
    h = norm_1(x)
    x = x + attention(h, h, mask)
    x = cross_attention(norm_2(x), memory, memory_mask)
    return x + feed_forward(norm_3(x))


@decoder_block.misconception("asks the memory first", fails=("in order",))
def _(x, memory, mask, memory_mask, attention, cross_attention, feed_forward, norm_1, norm_2, norm_3):
    """Cross-attention came before self-attention. A position has to know what has been written before it can ask the
    source a sensible question."""
    x = x + cross_attention(norm_2(x), memory, memory_mask)
    h = norm_1(x)
    x = x + attention(h, h, mask)
    return x + feed_forward(norm_3(x))


@decoder_block.variant("asks the memory first", fails=("self-attention", *CROSS))
def _(x, memory, mask, memory_mask, attention, cross_attention, feed_forward, norm_1, norm_2, norm_3):
    """Each with the norm of its place in the code."""
    x = x + cross_attention(norm_1(x), memory, memory_mask)
    h = norm_2(x)
    x = x + attention(h, h, mask)
    return x + feed_forward(norm_3(x))


@decoder_block.misconception("all parts read the old x", fails=("in order",))
def _(x, memory, mask, memory_mask, attention, cross_attention, feed_forward, norm_1, norm_2, norm_3):
    """All three parts read the original x, and their findings were added up. Each line starts from what the line before
    has made."""
    h = norm_1(x)
    found = attention(h, h, mask) + cross_attention(norm_2(x), memory, memory_mask)
    return x + found + feed_forward(norm_3(x))


@decoder_block.misconception("the encoder cut off", fails=("gradient",))
def _(x, memory, mask, memory_mask, attention, cross_attention, feed_forward, norm_1, norm_2, norm_3):
    """The numbers are right, but no gradient gets back to the encoder (or the decoder), which then never learns:
    `.detach()`, `.data` and `torch.no_grad()` forget where numbers came from."""
    h = norm_1(x)
    x = x + attention(h, h, mask)
    x = x + cross_attention(norm_2(x), memory.detach(), memory_mask)
    return x + feed_forward(norm_3(x))


@decoder_block.alternative("names for everything")
def _(x, memory, mask, memory_mask, attention, cross_attention, feed_forward, norm_1, norm_2, norm_3):
    """One thing a line."""
    own = norm_1(x)
    looked_back = x + attention(own, own, mask)
    question = norm_2(looked_back)
    answered = looked_back + cross_attention(question, memory, memory_mask)
    return answered + feed_forward(norm_3(answered))


@decoder_block.alternative("a helper for the residual path, in float64")
def _(x, memory, mask, memory_mask, attention, cross_attention, feed_forward, norm_1, norm_2, norm_3):
    """Three times the same function."""
    parts = (
        (norm_1, lambda h: attention(h, h, mask)),
        (norm_2, lambda h: cross_attention(h, memory, memory_mask)),
        (norm_3, feed_forward),
    )
    for norm, part in parts:
        x = (x.double() + part(norm(x)).double()).float()
    return x


@decoder_block.alternative("findings kept, and summed by einsum")
def _(x, memory, mask, memory_mask, attention, cross_attention, feed_forward, norm_1, norm_2, norm_3):
    """The residual path as a sum over all that was found."""
    first = attention(norm_1(x), norm_1(x), mask)
    second = cross_attention(norm_2(x + first), memory, memory_mask)
    third = feed_forward(norm_3(x + first + second))
    return torch.einsum("kbnd->bnd", torch.stack((x, first, second, third)))


# --------------------------------------------------------------------------------------------------------- transformer


def _transformer(
    source, target, source_mask, bos, embed_source, embed_target,
    encoder_blocks, decoder_blocks, encoder_norm, decoder_norm, output,
):  # fmt: skip
    """Read, then write with everything shifted by one. Vaswani et al. 2017, figure 1; norms as in Xiong et al. 2020."""
    memory = embed_source(source)
    for block in encoder_blocks:
        memory = block(memory, source_mask)
    memory = encoder_norm(memory)
    x = embed_target(_shift_right(target, bos))
    mask = attention.causal_mask(target.shape[1])
    for block in decoder_blocks:
        x = block(x, memory, mask, source_mask)
    return output(decoder_norm(x))


transformer = Exercise(
    "transformer",
    reference=_transformer,
    returns=("logits",),
    forbidden=READY_MADE,
    difficulty=3,
    minutes=25,
    hints=(
        "Two loops. The first runs through the encoder's blocks and makes the memory; the second through the "
        "decoder's, and each of those gets the memory. With norms in front of all parts, something is missing after "
        "the last block.",
        "What does the decoder read at position 0? And which mask keeps it from reading further than that? Neither of "
        "the two is handed to you.",
        "Source: embed, blocks, `encoder_norm`. Target: shift, embed, blocks with a causal mask (n_target, n_target) "
        "and the `source_mask`, `decoder_norm`, `output`.",
    ),
)


def _machine(draw, reads=True, looks=True):
    """[source, target, source_mask, bos], and the parts; without `looks` the decoder's blocks look at no memory."""
    batch, n_source, n_target, d = draw.sizes(4, 3, 8)
    words, bos = 30, 30 + int(draw.integers(3, 1))
    source, target = draw.integers(words, batch, n_source), draw.integers(words, batch, n_target)
    tables = [draw.normal(words + 3, d) for _ in range(2)]
    places = draw.normal(12, d)
    attends = [[_attends(draw, d) for _ in range(2)] for _ in range(2)]
    crosses = [_attends(draw, d) for _ in range(2)]

    def embed(table):
        return lambda tokens: table[tokens] + places[: tokens.shape[-1]]

    def encoder_block(attend):
        return lambda x, mask=None: x + attend(x, x, mask)

    def decoder_block(attend, cross):
        def block(x, memory, mask=None, memory_mask=None):
            x = x + attend(x, x, mask) if reads else x
            return x + cross(x, memory, memory_mask) if looks else x

        return block

    rows = draw.normal(d, words)
    parts = [
        *map(embed, tables),
        [encoder_block(attend) for attend in attends[0]],
        [decoder_block(attend, cross) for attend, cross in zip(attends[1], crosses, strict=True)],
        _norms(draw, d),
        _norms(draw, d),
        lambda x: x @ rows,
    ]
    return [source, target, _everybody(batch, 1, n_source), bos], parts


@transformer.aspect("logits", points=2)
def _(answer, draw):
    """everything in its place"""
    inputs, parts = _machine(draw)
    return answer(*inputs, *parts)


@transformer.aspect("the writing side", points=1)
def _(answer, draw):
    """with no memory to look at, a decoder alone predicts each token from those before it"""
    inputs, parts = _machine(draw, looks=False)
    return answer(*inputs, *parts)


@transformer.aspect("the reading side", points=1)
def _(answer, draw):
    """every block of the decoder looks at what the whole encoder has made of the source"""
    inputs, parts = _machine(draw, reads=False)
    return answer(*inputs, *parts)[:, :1]                                 # where only `bos` has been read


@transformer.aspect(
    "no peeking", points=1, explain=told("logits {place} change by {size} when only that token, or a later one, does")
)
def _(answer, draw):
    """what is predicted at a place does not depend on what stands there, or later"""
    (source, target, mask, bos), parts = _machine(draw)
    cut = int(draw.integers(target.shape[1] - 1, 1))
    other = torch.cat([target[:, :cut], (target[:, cut:] + 7) % 30], dim=1)
    logits, changed = (answer(source, each, mask, bos, *parts) for each in (target, other))
    if torch.equal(logits, changed):
        raise AspectFailed(Problem("unusable", "changing the target makes no difference"))
    return telling(logits[:, : cut + 1]) - changed[:, : cut + 1]


@transformer.aspect(
    "source's padding", points=1, explain=told("logits {place} change by {size} when only the source's padding does")
)
def _(answer, draw):
    """what stands in the padding of the source changes nothing"""
    (source, target, _, bos), parts = _machine(draw)
    real = draw.padding_mask(*source.shape)                               # (batch, n_source)
    other = torch.where(real, source, (source + 11) % 30)
    logits, changed = (answer(each, target, real[:, None], bos, *parts) for each in (source, other))
    if torch.equal(logits, answer((source + 7) % 30, target, real[:, None], bos, *parts)):
        raise AspectFailed(Problem("unusable", "changing the source makes no difference"))
    return telling(logits) - changed


WRITES, READS = ("logits", "the writing side"), ("logits", "the reading side")


@transformer.misconception("no shift", fails=(*WRITES, "the reading side", "no peeking"))
def _(
    source, target, source_mask, bos, embed_source, embed_target,
    encoder_blocks, decoder_blocks, encoder_norm, decoder_norm, output,
):  # fmt: skip
    """The decoder read the target as it is: at each place the very token that it is to predict there. A causal mask
    does not help against that, because it lets every position see itself."""
    memory = embed_source(source)
    for block in encoder_blocks:
        memory = block(memory, source_mask)
    memory = encoder_norm(memory)
    x = embed_target(target)
    mask = torch.ones(target.shape[1], target.shape[1], dtype=torch.bool).tril()
    for block in decoder_blocks:
        x = block(x, memory, mask, source_mask)
    return output(decoder_norm(x))


@transformer.misconception("no causal mask", fails=(*WRITES, "no peeking"))
def _(
    source, target, source_mask, bos, embed_source, embed_target,
    encoder_blocks, decoder_blocks, encoder_norm, decoder_norm, output,
):  # fmt: skip
    """The input was shifted, and then every position was free to look to its right, where the answer stands one place
    further on. The shift and the mask need each other."""
    memory = embed_source(source)
    for block in encoder_blocks:
        memory = block(memory, source_mask)
    memory = encoder_norm(memory)
    x = embed_target(torch.cat([torch.full_like(target[:, :1], bos), target[:, :-1]], dim=1))
    for block in decoder_blocks:
        x = block(x, memory, None, source_mask)
    return output(decoder_norm(x))


@transformer.variant("no causal mask", fails=(*WRITES, "no peeking"))
def _(
    source, target, source_mask, bos, embed_source, embed_target,
    encoder_blocks, decoder_blocks, encoder_norm, decoder_norm, output,
):  # fmt: skip
    """A mask of True."""
    memory = embed_source(source)
    for block in encoder_blocks:
        memory = block(memory, source_mask)
    memory = encoder_norm(memory)
    x = embed_target(torch.cat([torch.full_like(target[:, :1], bos), target[:, :-1]], dim=1))
    mask = torch.ones(target.shape[1], target.shape[1], dtype=torch.bool)
    for block in decoder_blocks:
        x = block(x, memory, mask, source_mask)
    return output(decoder_norm(x))


@transformer.misconception("the mask's other half", fails=(*WRITES, "no peeking"))
def _(
    source, target, source_mask, bos, embed_source, embed_target,
    encoder_blocks, decoder_blocks, encoder_norm, decoder_norm, output,
):  # fmt: skip
    """The mask allows the future and forbids the past. True means "may attend": query i is a row, key j a column. Which
    triangle is j ≤ i?"""
    memory = embed_source(source)
    for block in encoder_blocks:
        memory = block(memory, source_mask)
    memory = encoder_norm(memory)
    x = embed_target(torch.cat([torch.full_like(target[:, :1], bos), target[:, :-1]], dim=1))
    mask = torch.ones(target.shape[1], target.shape[1], dtype=torch.bool).triu()
    for block in decoder_blocks:
        x = block(x, memory, mask, source_mask)
    return output(decoder_norm(x))


@transformer.misconception("not even itself", fails=(*WRITES, "no peeking", "source's padding"))
def _(
    source, target, source_mask, bos, embed_source, embed_target,
    encoder_blocks, decoder_blocks, encoder_norm, decoder_norm, output,
):  # fmt: skip
    """The mask forbids each position to see itself, so one of them sees nothing (the first, or with the other triangle
    the last), and softmax over nothing is NaN. True means "may attend"; and the input has been shifted, so that what
    stands at a position has been written already, and may be read."""
    memory = embed_source(source)
    for block in encoder_blocks:
        memory = block(memory, source_mask)
    memory = encoder_norm(memory)
    x = embed_target(torch.cat([torch.full_like(target[:, :1], bos), target[:, :-1]], dim=1))
    mask = torch.ones(target.shape[1], target.shape[1], dtype=torch.bool).tril(diagonal=-1)
    for block in decoder_blocks:
        x = block(x, memory, mask, source_mask)
    return output(decoder_norm(x))


@transformer.misconception("un-normed memory", fails=READS)
def _(
    source, target, source_mask, bos, embed_source, embed_target,
    encoder_blocks, decoder_blocks, encoder_norm, decoder_norm, output,
):  # fmt: skip
    """The memory left the encoder without its norm. With norms in front of the parts, nothing else normalises the sum
    that comes out of the last block, and no block of the decoder does it either."""
    memory = embed_source(source)
    for block in encoder_blocks:
        memory = block(memory, source_mask)
    x = embed_target(torch.cat([torch.full_like(target[:, :1], bos), target[:, :-1]], dim=1))
    mask = torch.ones(target.shape[1], target.shape[1], dtype=torch.bool).tril()
    for block in decoder_blocks:
        x = block(x, memory, mask, source_mask)
    return output(decoder_norm(x))


@transformer.misconception("un-normed logits", fails=(*WRITES, "the reading side"))
def _(
    source, target, source_mask, bos, embed_source, embed_target,
    encoder_blocks, decoder_blocks, encoder_norm, decoder_norm, output,
):  # fmt: skip
    """The decoder's states went into the output without the last norm: the size of the logits then grows with every
    block. The encoder ends in a norm, and so does the decoder."""
    memory = embed_source(source)
    for block in encoder_blocks:
        memory = block(memory, source_mask)
    memory = encoder_norm(memory)
    x = embed_target(torch.cat([torch.full_like(target[:, :1], bos), target[:, :-1]], dim=1))
    mask = torch.ones(target.shape[1], target.shape[1], dtype=torch.bool).tril()
    for block in decoder_blocks:
        x = block(x, memory, mask, source_mask)
    return output(x)


@transformer.misconception("a memory for each floor", fails=READS)
def _(
    source, target, source_mask, bos, embed_source, embed_target,
    encoder_blocks, decoder_blocks, encoder_norm, decoder_norm, output,
):  # fmt: skip
    """Each block of the decoder looked at the encoder's block with the same number. In the picture the two towers stand
    side by side, and it may look that way; but one arrow leaves the encoder, at its top, and goes to all the decoder's
    blocks."""
    read = embed_source(source)
    x = embed_target(torch.cat([torch.full_like(target[:, :1], bos), target[:, :-1]], dim=1))
    mask = torch.ones(target.shape[1], target.shape[1], dtype=torch.bool).tril()
    for encoder_block, decoder_block in zip(encoder_blocks, decoder_blocks, strict=True):
        read = encoder_block(read, source_mask)
        x = decoder_block(x, encoder_norm(read), mask, source_mask)
    return output(decoder_norm(x))


@transformer.misconception("the encoder left out", fails=READS)
def _(
    source, target, source_mask, bos, embed_source, embed_target,
    encoder_blocks, decoder_blocks, encoder_norm, decoder_norm, output,
):  # fmt: skip
    """The decoder looked at the source's embeddings: words that have not heard of each other. The memory is what comes
    out of the encoder's last block, and its norm."""
    memory = encoder_norm(embed_source(source))
    x = embed_target(torch.cat([torch.full_like(target[:, :1], bos), target[:, :-1]], dim=1))
    mask = torch.ones(target.shape[1], target.shape[1], dtype=torch.bool).tril()
    for block in decoder_blocks:
        x = block(x, memory, mask, source_mask)
    return output(decoder_norm(x))


@transformer.misconception("blocks that start over", fails=(*WRITES, "the reading side"))
def _(
    source, target, source_mask, bos, embed_source, embed_target,
    encoder_blocks, decoder_blocks, encoder_norm, decoder_norm, output,
):  # fmt: skip
    """Every block was given the embeddings, and only what the last one made was kept. A stack is a chain: each block
    starts from what the one below has made."""
    embedded = embed_source(source)
    for block in encoder_blocks:
        memory = block(embedded, source_mask)
    memory = encoder_norm(memory)
    embedded = embed_target(torch.cat([torch.full_like(target[:, :1], bos), target[:, :-1]], dim=1))
    mask = torch.ones(target.shape[1], target.shape[1], dtype=torch.bool).tril()
    for block in decoder_blocks:
        x = block(embedded, memory, mask, source_mask)
    return output(decoder_norm(x))


@transformer.misconception("the source's padding heard", fails=("source's padding",))
def _(
    source, target, source_mask, bos, embed_source, embed_target,
    encoder_blocks, decoder_blocks, encoder_norm, decoder_norm, output,
):  # fmt: skip
    """Somebody heard the padding. The source's mask is needed twice: by the encoder, whose words look at each other,
    and by the decoder, which looks at the memory."""
    memory = embed_source(source)
    for block in encoder_blocks:
        memory = block(memory, source_mask)
    memory = encoder_norm(memory)
    x = embed_target(torch.cat([torch.full_like(target[:, :1], bos), target[:, :-1]], dim=1))
    mask = torch.ones(target.shape[1], target.shape[1], dtype=torch.bool).tril()
    for block in decoder_blocks:
        x = block(x, memory, mask, None)
    return output(decoder_norm(x))


@transformer.variant("the source's padding heard", fails=("source's padding",))
def _(
    source, target, source_mask, bos, embed_source, embed_target,
    encoder_blocks, decoder_blocks, encoder_norm, decoder_norm, output,
):  # fmt: skip
    """By the encoder."""
    memory = embed_source(source)
    for block in encoder_blocks:
        memory = block(memory, None)
    memory = encoder_norm(memory)
    x = embed_target(torch.cat([torch.full_like(target[:, :1], bos), target[:, :-1]], dim=1))
    mask = torch.ones(target.shape[1], target.shape[1], dtype=torch.bool).tril()
    for block in decoder_blocks:
        x = block(x, memory, mask, source_mask)
    return output(decoder_norm(x))


@transformer.variant("the source's padding heard", fails=("source's padding",))
def _(
    source, target, source_mask, bos, embed_source, embed_target,
    encoder_blocks, decoder_blocks, encoder_norm, decoder_norm, output,
):  # fmt: skip
    """By both."""
    memory = embed_source(source)
    for block in encoder_blocks:
        memory = block(memory, None)
    memory = encoder_norm(memory)
    x = embed_target(torch.cat([torch.full_like(target[:, :1], bos), target[:, :-1]], dim=1))
    mask = torch.ones(target.shape[1], target.shape[1], dtype=torch.bool).tril()
    for block in decoder_blocks:
        x = block(x, memory, mask, None)
    return output(decoder_norm(x))


@transformer.misconception("probabilities for logits", fails=(*WRITES, "the reading side"))
def _(
    source, target, source_mask, bos, embed_source, embed_target,
    encoder_blocks, decoder_blocks, encoder_norm, decoder_norm, output,
):  # fmt: skip
    """A softmax was put after the output. The contract wants the scores from before it: the cross entropy takes the
    logarithm of the softmax itself, in one stable step, and a second softmax would flatten the first."""
    memory = embed_source(source)
    for block in encoder_blocks:
        memory = block(memory, source_mask)
    memory = encoder_norm(memory)
    x = embed_target(torch.cat([torch.full_like(target[:, :1], bos), target[:, :-1]], dim=1))
    mask = torch.ones(target.shape[1], target.shape[1], dtype=torch.bool).tril()
    for block in decoder_blocks:
        x = block(x, memory, mask, source_mask)
    return output(decoder_norm(x)).softmax(dim=-1)


@transformer.alternative("functions for the two sides")
def _(
    source, target, source_mask, bos, embed_source, embed_target,
    encoder_blocks, decoder_blocks, encoder_norm, decoder_norm, output,
):  # fmt: skip
    """Encoder and decoder by name."""

    def encode(x):
        for block in encoder_blocks:
            x = block(x, source_mask)
        return encoder_norm(x)

    def decode(x, memory):
        position = torch.arange(x.shape[1])
        mask = position <= position[:, None]
        for block in decoder_blocks:
            x = block(x, memory, mask, source_mask)
        return decoder_norm(x)

    target_in = target.roll(1, dims=1)
    target_in[:, 0] = bos
    return output(decode(embed_target(target_in), encode(embed_source(source))))


@transformer.alternative("by index, and a mask for each sentence")
def _(
    source, target, source_mask, bos, embed_source, embed_target,
    encoder_blocks, decoder_blocks, encoder_norm, decoder_norm, output,
):  # fmt: skip
    """The mask is (batch, n, n)."""
    batch, n = target.shape
    memory = embed_source(source)
    for i in range(len(encoder_blocks)):
        memory = encoder_blocks[i](memory, source_mask)
    memory = encoder_norm(memory)
    mask = ~torch.triu(torch.ones(batch, n, n, dtype=torch.bool), diagonal=1)
    x = embed_target(nn.functional.pad(target, (1, 0), value=bos)[:, :-1])
    for i in range(len(decoder_blocks)):
        x = decoder_blocks[i](x, memory, mask, source_mask)
    return output(decoder_norm(x)).double()


@transformer.alternative("word by word")
def _(
    source, target, source_mask, bos, embed_source, embed_target,
    encoder_blocks, decoder_blocks, encoder_norm, decoder_norm, output,
):  # fmt: skip
    """As in writing: one pass for each place, over what came before it."""
    memory = embed_source(source)
    for block in encoder_blocks:
        memory = block(memory, source_mask)
    memory = encoder_norm(memory)
    target_in = torch.cat([torch.full((len(target), 1), bos), target[:, :-1]], dim=1)
    columns = []
    for n in range(1, target.shape[1] + 1):
        x = embed_target(target_in[:, :n])
        for block in decoder_blocks:
            x = block(x, memory, torch.ones(n, n).tril() == 1, source_mask)
        columns.append(output(decoder_norm(x))[:, -1])
    return torch.stack(columns, dim=1)


# -------------------------------------------------------------------------------------------------------------- swiglu


def _swiglu(x, W_gate, W_up, W_down):
    """(silu(x W_gate) ∘ x W_up) W_down. Shazeer 2020, equation 6."""
    return (layers.GATES["swiglu"](x @ W_gate) * (x @ W_up)) @ W_down


swiglu = Exercise(
    "swiglu",
    reference=_swiglu,
    returns=("output",),
    forbidden=READY_MADE,
    difficulty=1,
    minutes=8,
    hints=(
        "Two products lead from d_model to d_ff. One of them goes through the bend; then the two are multiplied, "
        "number by number; and one product leads back.",
        "silu(z) = z · σ(z). torch has `torch.sigmoid`, and `torch.nn.functional.silu` too. Exponentials by hand "
        "overflow where z is large.",
    ),
)


def _gated(draw, *in_front):
    """[x, W_gate, W_up, W_down], no two sizes alike."""
    batch, n, d, d_ff = draw.sizes(4, 3, 9)
    matrices = [draw.normal(*size) for size in ((d, d_ff), (d, d_ff), (d_ff, d))]
    return [draw.normal(*(in_front or (batch, n)), d), *matrices]


@swiglu.aspect("output", points=3)
def _(answer, draw):
    """one product bent, the other as it is, number times number, and back"""
    return answer(*_gated(draw))


@swiglu.aspect(
    "axes in front", points=1, explain=told("a vector by itself gets an output that differs by {size} at {place}")
)
def _(answer, draw):
    """one vector, a sentence, or a batch of them: each position by itself"""
    x, *matrices = _gated(draw, 2, 3)
    alone = torch.stack([torch.stack([answer(vector, *matrices) for vector in row]) for row in x])
    return telling(answer(x, *matrices)) - alone


@swiglu.aspect("large numbers", points=1, explain=lambda got, expected: "some come out as NaN or ∞")
def _(answer, draw):
    """a gate that is wide open, or shut, gives finite numbers"""
    x, *matrices = _gated(draw)
    return telling(answer(100 * x, *matrices).nan_to_num(1e30, 1e30, 1e30)).abs() < 1e20


@swiglu.aspect("gradient", points=1, explain=arrives("x", "W_gate", "W_up", "W_down"))
def _(answer, draw):
    """all three matrices can be learned"""
    inputs = [tensor.requires_grad_() for tensor in _gated(draw)]
    return reached(answer(*inputs), inputs, draw)


@swiglu.misconception("gate and value swapped", fails=("output",))
def _(x, W_gate, W_up, W_down):
    """The wrong product was bent. It is the product with `W_gate` that is bent. (A model trained from scratch would not
    mind; weights from a checkpoint would.)"""
    return (x @ W_gate * nn.functional.silu(x @ W_up)) @ W_down


@swiglu.misconception("sigmoid for silu", fails=("output",))
def _(x, W_gate, W_up, W_down):
    """The gate is σ(z), between 0 and 1: that is the gated linear unit of 2016. In SwiGLU it is z · σ(z), which may be
    as large as it likes."""
    return (torch.sigmoid(x @ W_gate) * (x @ W_up)) @ W_down


@swiglu.misconception("a different bend", fails=("output",))
def _(x, W_gate, W_up, W_down):
    """The gate is bent by a function other than silu. With ReLU it is called ReGLU, with GELU GEGLU: relatives, and
    hardly worse, but a checkpoint knows its own."""
    return (nn.functional.gelu(x @ W_gate) * (x @ W_up)) @ W_down


@swiglu.variant("a different bend", fails=("output",))
def _(x, W_gate, W_up, W_down):
    """ReLU."""
    return (torch.relu(x @ W_gate) * (x @ W_up)) @ W_down


@swiglu.variant("a different bend", fails=("output",))
def _(x, W_gate, W_up, W_down):
    """tanh."""
    return (torch.tanh(x @ W_gate) * (x @ W_up)) @ W_down


@swiglu.misconception("both bent", fails=("output",))
def _(x, W_gate, W_up, W_down):
    """Both products went through the bend. One is left as it is: it is the value that the gate lets through, and may
    well be negative."""
    return (nn.functional.silu(x @ W_gate) * nn.functional.silu(x @ W_up)) @ W_down


@swiglu.misconception("bent after the product", fails=("output",))
def _(x, W_gate, W_up, W_down):
    """The two were multiplied first and bent together. The gate is bent alone, and then multiplies."""
    return nn.functional.silu((x @ W_gate) * (x @ W_up)) @ W_down


@swiglu.misconception("added, not multiplied", fails=("output",))
def _(x, W_gate, W_up, W_down):
    """The two products were added. A gate *multiplies*: where it is 0, nothing gets through, whatever the value."""
    return (nn.functional.silu(x @ W_gate) + x @ W_up) @ W_down


@swiglu.misconception("no gate", fails=("output", "gradient"))
def _(x, W_gate, W_up, W_down):
    """This is the plain network of 2017 with a different bend: one matrix up, one down, and the third learns
    nothing."""
    return nn.functional.silu(x @ W_up) @ W_down


@swiglu.variant("no gate", fails=("output", "gradient"))
def _(x, W_gate, W_up, W_down):
    """With the gate's matrix."""
    return nn.functional.silu(x @ W_gate) @ W_down


@swiglu.misconception("exponentials that overflow", fails=("large numbers",))
def _(x, W_gate, W_up, W_down):
    """The formula is right, and e to the power of some hundreds is ∞: ∞/∞ is NaN. Divide so that the large exponential
    stands in the denominator alone, or leave the sigmoid to torch."""
    z = x @ W_gate
    return (z * z.exp() / (1 + z.exp()) * (x @ W_up)) @ W_down


@swiglu.misconception("cut off from the gradient", fails=("gradient",))
def _(x, W_gate, W_up, W_down):
    """The numbers are right, but no gradient gets through: `.detach()`, `.data` and `torch.no_grad()` forget where
    numbers came from."""
    return (nn.functional.silu(x @ W_gate).detach() * (x @ W_up)) @ W_down


@swiglu.misconception("a batch expected", fails=("axes in front",))
def _(x, W_gate, W_up, W_down):
    """For a batch of sentences it works; a single vector, without axes in front, is refused or mistaken for something
    else. `@` takes the last axis of x, whatever stands in front of it."""
    batch, n, d = x.shape
    flat = x.reshape(batch * n, d)
    return ((nn.functional.silu(flat @ W_gate) * (flat @ W_up)) @ W_down).reshape(batch, n, -1)


@swiglu.alternative("the sigmoid by name")
def _(x, W_gate, W_up, W_down):
    """silu written out."""
    z = torch.matmul(x, W_gate)
    hidden = z * torch.sigmoid(z) * torch.matmul(x, W_up)
    return torch.matmul(hidden, W_down)


@swiglu.alternative("einsum in float64")
def _(x, W_gate, W_up, W_down):
    """Axes by name; e^(−z) overflows to ∞ and 1/∞ is 0, as it should be."""
    gate, up, down = W_gate.double(), W_up.double(), W_down.double()
    z = torch.einsum("...d,df->...f", x.double(), gate)
    hidden = z / (1 + torch.exp(-z)) * torch.einsum("...d,df->...f", x.double(), up)
    return torch.einsum("...f,fd->...d", hidden, down)


@swiglu.alternative("one product for both")
def _(x, W_gate, W_up, W_down):
    """The two matrices side by side, as fast kernels have it; the result is a view that is not contiguous."""
    z, up = (x @ torch.cat([W_gate, W_up], dim=1)).chunk(2, dim=-1)
    return (W_down.mT @ (nn.functional.silu(z) * up).unsqueeze(-1)).squeeze(-1)


@swiglu.alternative("linear layers")
def _(x, W_gate, W_up, W_down):
    """Which multiply by the transpose."""
    hidden = nn.functional.silu(nn.functional.linear(x, W_gate.T)) * nn.functional.linear(x, W_up.T)
    return nn.functional.linear(hidden, W_down.T)


# --------------------------------------------------------------------------------------------------------- prefix_mask


def _prefix_mask(lengths, n):
    """(batch, n, n): all of the prefix, and the past. Raffel et al. 2020, section 3.2.1."""
    return attention.causal_mask(n) | attention.lengths_to_mask(lengths, n)[:, None]


prefix_mask = Exercise(
    "prefix_mask",
    reference=_prefix_mask,
    returns=("mask",),
    forbidden=READY_MADE,
    difficulty=2,
    minutes=12,
    extra=True,
    hints=(
        "Two reasons may allow a pair (i, j): the key j lies in the prefix, or it does not come after the query. "
        "Either one is enough.",
        "`torch.arange(n) < lengths[:, None]` is (batch, n): which keys are prefix. Where does it need another axis, "
        "to be joined with a causal mask (n, n)?",
    ),
)


def _prefixes(draw):
    batch, n = draw.sizes(2, 4, 8)
    lengths = 2 + draw.integers(n - 2, batch)                             # 2 … n - 1
    lengths[0] = 2
    return lengths, n


def _places(got, expected):
    b, i, j = (int(places[0]) for places in (got != expected).nonzero())
    may = "may" if expected[b, i, j] else "must not"
    return f"in text {b} position {i} {may} look at position {j} (counted from 0)"


@prefix_mask.aspect("prefix and rest", points=1, explain=_places)
def _(answer, draw):
    """the prefix is read by all, the rest from left to right"""
    return answer(*_prefixes(draw))


@prefix_mask.aspect("no prefix", points=0.5, explain=_places)
def _(answer, draw):
    """without a prefix it is the causal mask"""
    lengths, n = _prefixes(draw)
    return answer(torch.zeros_like(lengths), n)


@prefix_mask.aspect("nothing but prefix", points=0.5, explain=lambda got, expected: "some pairs are forbidden")
def _(answer, draw):
    """where everything is prefix, everybody sees everybody"""
    lengths, n = _prefixes(draw)
    if answer(torch.zeros_like(lengths), n).all():
        raise AspectFailed(Problem("unusable", "everything is allowed, whatever the prefix"))
    return answer(torch.full_like(lengths, n), n)


EVERY_PREFIX = ("prefix and rest", "no prefix", "nothing but prefix")


@prefix_mask.misconception("causal alone", fails=("prefix and rest", "nothing but prefix"))
def _(lengths, n):
    """The prefix is read from left to right like the rest. Nobody has to predict the prefix: it may be read as an
    encoder would, in both directions."""
    return torch.ones(len(lengths), n, n, dtype=torch.bool).tril()


@prefix_mask.misconception("the prefix sees the rest", fails=("prefix and rest",))
def _(lengths, n):
    """Positions of the prefix were allowed to look at everything, the answer included; and the answer's positions look
    at the prefix, so it leaks to them. It is the *key* that must lie in the prefix."""
    prefix = torch.arange(n) < lengths[:, None]
    return torch.ones(n, n, dtype=torch.bool).tril() | prefix[:, :, None]


@prefix_mask.misconception("only the prefix is seen", fails=("prefix and rest", "no prefix"))
def _(lengths, n):
    """Everybody sees the prefix, and nobody anything else: what has been written so far is forgotten."""
    prefix = torch.arange(n) < lengths[:, None]
    return prefix[:, None].expand(-1, n, -1)


@prefix_mask.misconception("both reasons needed", fails=("prefix and rest", "no prefix", "nothing but prefix"))
def _(lengths, n):
    """A pair was allowed only if the key lies in the prefix *and* does not come after the query. One of the two is
    enough."""
    prefix = torch.arange(n) < lengths[:, None]
    return torch.ones(n, n, dtype=torch.bool).tril() & prefix[:, None]


@prefix_mask.misconception("one position too many", fails=("prefix and rest",))
def _(lengths, n):
    """The prefix has grown by one: positions are counted from 0, so the last of `length` positions is length − 1. The
    first word of the answer is now read by those who are to predict it."""
    prefix = torch.arange(n) <= lengths[:, None]
    return torch.ones(n, n, dtype=torch.bool).tril() | prefix[:, None]


@prefix_mask.misconception("upside down", fails=EVERY_PREFIX)
def _(lengths, n):
    """Allowed and forbidden have changed places. In this course True means "may attend"."""
    prefix = torch.arange(n) < lengths[:, None]
    return ~(torch.ones(n, n, dtype=torch.bool).tril() | prefix[:, None])


@prefix_mask.misconception("the future for the past", fails=("prefix and rest", "no prefix"))
def _(lengths, n):
    """After the prefix each position sees what is to come and not what was. Queries are rows, keys are columns: the
    past is the lower triangle."""
    prefix = torch.arange(n) < lengths[:, None]
    return torch.ones(n, n, dtype=torch.bool).triu() | prefix[:, None]


@prefix_mask.alternative("the square of the prefix")
def _(lengths, n):
    """Query and key both in the prefix, or the past."""
    prefix = torch.arange(n) < lengths[:, None]
    square = prefix.unsqueeze(2) & prefix.unsqueeze(1)
    return torch.logical_or(square, torch.tril(torch.ones(n, n)).bool())


@prefix_mask.alternative("a loop over the texts")
def _(lengths, n):
    """Columns are painted."""
    masks = []
    for length in lengths.tolist():
        mask = torch.tril(torch.ones(n, n, dtype=torch.bool))
        mask[:, :length] = True
        masks.append(mask)
    return torch.stack(masks)


@prefix_mask.alternative("the first forbidden position of each row")
def _(lengths, n):
    """A key is allowed if it lies before the later of two limits."""
    position = torch.arange(n)
    limit = torch.maximum(position[None, :] + 1, lengths[:, None])
    return position < limit[..., None]
