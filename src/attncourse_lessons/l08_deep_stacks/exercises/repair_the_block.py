"""repair_the_block: A pre-norm block."""

import torch
from torch import nn

from lessonkit.exercises.exercise import Exercise
from lessonkit.exercises.judge import explain_missing_gradient, explain_worst
from lessonkit.exercises.local_runner import AspectFailed, Problem
from lessonkit.exercises.observe import apart, gradient_reaches, require_variation

from .common import HALVES


class _Block(nn.Module):
    """What the assignment's class is when it is repaired."""

    def __init__(self, d_model, n_heads, d_ff):
        super().__init__()
        self.norm_1 = nn.LayerNorm(d_model)
        self.norm_2 = nn.LayerNorm(d_model)
        self.attention = nn.MultiheadAttention(d_model, n_heads, batch_first=True)
        self.up = nn.Linear(d_model, d_ff)
        self.down = nn.Linear(d_ff, d_model)

    def forward(self, x, mask):
        normal_x = self.norm_1(x)
        found, _ = self.attention(normal_x, normal_x, normal_x, attn_mask=~mask)
        x = x + found
        return x + self.down(self.up(self.norm_2(x)).relu())


def solution(self, x, mask):
    normal_x = self.norm_1(x)
    answer, _ = self.attention(normal_x, normal_x, normal_x, attn_mask=~mask)
    x = x + answer
    return x + self.down(self.up(self.norm_2(x)).relu())


exercise = Exercise(
    "repair_the_block",
    reference=_Block,
    solution=solution,
    returns=("output",),
    forbidden=("attncourse.layers", "attncourse.transformer", "torch.nn.TransformerEncoderLayer"),
    difficulty=2,
    minutes=25,
    hints=(
        "Imagine sublayers that write nothing: if `found` is zero, what does each line make of x? In a pre-norm block "
        "x must come out as it went in. Where does it stop being x?",
        "Count how often each thing that `__init__` makes is used. And is every argument of `forward` used?",
        "Give what the sublayer reads a name of its own, `normal_x = self.norm_1(x)`, and leave the name x to the "
        "stream. In `nn.MultiheadAttention` a boolean `attn_mask` is True where attending is *forbidden*.",
    ),
)
aspect, slip, misconception, variant, alternative = exercise.decorators()


# What a sublayer writes with: at zero, it writes nothing.
ATTENTION, FEED_FORWARD = ("attention.out_proj.",), ("down.",)


def _without(answer, draw, *parts):
    """A built block in which the sublayers whose last layers begin so write nothing, x, and a mask that forbids
    nothing."""
    batch, n, d_head = draw.sizes(3, 3, 6)
    n_heads = 2
    module = answer.build(draw, n_heads * d_head, n_heads, 3 * d_head)
    values = {name: parameter.detach().clone() for name, parameter in module.runner.parameters().items()}
    for name in values:
        if name.startswith(parts):
            values[name].zero_()
    module.runner.fill(values)
    return module, 2 * draw.normal(batch, n, n_heads * d_head) + 0.5, torch.ones(n, n, dtype=torch.bool)


# ----------------------------------------------------------------------------------------------------- what is observed


@aspect("sublayers that write nothing", points=2, hint=1, explain=explain_worst("it moves by {size} at {place}"))
def sublayers_that_write_nothing(answer, draw):
    """if the sublayers write nothing, x comes back as it was"""
    module, x, mask = _without(answer, draw, *ATTENTION, *FEED_FORWARD)
    return apart(require_variation(module(x, mask)), x)


@aspect("attention's half", points=1, hint=2)
def attentions_half(answer, draw):
    """attention reads the normalised x, and what it found is added to x"""
    module, x, mask = _without(answer, draw, *FEED_FORWARD)
    return module(x, mask)


@aspect("feed-forward's half", points=1, hint=2)
def feed_forwards_half(answer, draw):
    """so does the feed-forward network"""
    module, x, mask = _without(answer, draw, *ATTENTION)
    return module(x, mask)


@aspect("together", points=1, hint=3)
def together(answer, draw):
    """one after the other"""
    module, x, mask = _without(answer, draw, "nothing")
    return module(x, mask)


@aspect(
    "mask", points=1, hint=3, explain=explain_worst("output {place}, which must not see the change, moves by {size}")
)
def mask(answer, draw):
    """under a causal mask, changing the last position changes nothing before it"""
    module, x, mask = _without(answer, draw, "nothing")
    mask = mask.tril()
    other = torch.cat([x[:, :-1], -x[:, -1:]], dim=1)
    output = module(x, mask)
    if torch.equal(output, module(-x, mask)):
        raise AspectFailed(Problem("unusable", "changing x makes no difference"))
    return apart(require_variation(output)[:, :-1], module(other, mask)[:, :-1])


TAUGHT = ("x", "norm_1.weight", "norm_2.weight", "attention.in_proj_weight", "up.weight", "down.weight")


@aspect("gradient", points=1, hint=2, explain=explain_missing_gradient(*TAUGHT))
def gradient(answer, draw):
    """a gradient reaches x and everything that is learned, both norms included"""
    module, x, mask = _without(answer, draw, "nothing")
    x.requires_grad_()
    found = gradient_reaches(module(x, mask), [x, *(module.parameter(name) for name in TAUGHT[1:])], draw)
    block, x, mask = _without(answer, draw, *ATTENTION, *FEED_FORWARD)
    output = block(x.requires_grad_(), mask)
    if (output - x).abs().max() < 1e-5:  # x came through: so must the gradient, with no sublayer to go through
        found[0] &= gradient_reaches(output, [x], draw)[0]
    return found


# -------------------------------------------------------------------------------------- one slip away from the solution

STREAM = ("sublayers that write nothing", "attention's half", "feed-forward's half", "together")

slip("residual from the normalised x", STREAM,
     {"normal_x = ": "x = normal_x = ", "x + self.down": "self.norm_2(x) + self.down"},
     {"x + self.down": "self.norm_2(x) + self.down"},  # attention's half is repaired, the other is not
     {"normal_x = ": "x = normal_x = "},  # the other way round
     words="""
    A residual connection still starts at the *normalised* x: `x = self.norm_…(x)` forgets the x that is to be added
    to, in one of the halves or in both. If both sublayers write nothing, x must come out as it went in.""")
slip("one norm for both", ("feed-forward's half", "together", "gradient"), {"norm_2": "norm_1"}, words="""
    The feed-forward network reads through attention's norm, and `norm_2` is never called: it would stay as it was
    made, and learn nothing. Nothing crashes, and the loss falls all the same.""")
slip("mask not handed on", ("mask",), {", attn_mask=~mask": ""}, words="""
    `forward` is given a mask and does nothing with it, so every position reads the future. The loss of a language
    model would be far too good (lecture @masking).""")
slip("a mask of numbers", ("mask",),
     {"~mask": "mask.float()"},
     {"~mask": "(~mask).float()"},
     words="""
    The mask was handed on as numbers 0 and 1. `nn.MultiheadAttention` *adds* a mask of numbers to the scores: to add 1
    is a small nudge, and forbids nothing. A mask of numbers needs −∞ where attending is forbidden and 0 elsewhere; a
    boolean one is True where it is forbidden.""")
slip("mask transposed", ("mask",), {"~mask": "~mask.mT"}, words="""
    Rows and columns of the mask have changed places, so that the past is forbidden and the future is open. Row i of our
    mask says to which positions position i may attend, and `attn_mask` is read in the same way.""")
slip("a mask of its own", ("attention's half", "together"),
     {"attn_mask=~mask": "attn_mask=torch.ones_like(mask).triu(1)"},
     words="""
    The block made a causal mask itself and ignored the one that it was given. An encoder hands over one that
    forbids nothing. To which positions a position may attend is the caller's decision.""")
slip("another activation function", ("feed-forward's half", "together"),
     {"self.up(self.norm_2(x)).relu()": "nn.functional.gelu(self.up(self.norm_2(x)))"},
     {".relu()": ".tanh()"},
     words="""
    The ReLU was exchanged for another activation function. The ReLU was not broken: weights that were trained with one
    activation function do not fit another.""")
slip("mask upside down", (*STREAM, "mask", "gradient"), {"~mask": "mask"}, words="""
    Our masks are True where a position may attend. `nn.MultiheadAttention` takes a boolean mask the other way round:
    True where it may *not*. Handed on as it is, all that was allowed is forbidden; a row with nothing left becomes
    NaN.""")
slip("a sublayer reads x as it is", (*HALVES, "gradient"), {"self.norm_1(x)": "x", "self.norm_2(x)": "x"}, words="""
    The stream is right now, but on the way a norm got lost: a sublayer reads x at whatever size it has grown to, in
    part or altogether. In self-attention queries, keys *and* values are made of the normalised x.""")
slip("the feed-forward network works beside attention", ("together",),
     {"x = x + answer\nreturn x": "return x + answer"},
     words="""
    What is normalised for the feed-forward network is the x from before attention, or what attention found was left
    out of the sum. It is to read, and to add to, what attention has left.""")
slip("no residual", STREAM,
     {"x + answer": "answer", "x + self.down": "self.down"},
     {"x + self.down": "self.down"},
     words="""
    What a sublayer found replaces x, in one half or in both. Where a sublayer writes nothing, nothing is left of x.""")
slip("no activation function", ("feed-forward's half", "together"), {".relu()": ""}, words="""
    The ReLU got lost in the repair, and two linear layers in a row are one (lecture @masking).""")
slip("cut off from the gradient", ("gradient",),
     {"self.norm_1(x)": "self.norm_1(x).detach()", "x + answer": "x.detach() + answer"},
     words="""
    The numbers are right, but a gradient does not get through everywhere: `.detach()`, `.data` and `no_grad` forget
    where numbers came from.""")


# ------------------------------------------------------------------------------------------------------ further from it


@variant("residual from the normalised x", fails=(*STREAM, "mask"))
def residual_from_the_normalised_x_and_no_mask(self, x, mask):
    """And the mask is not handed on."""
    x = self.norm_1(x)
    x = x + self.attention(x, x, x)[0]
    x = self.norm_2(x)
    return x + self.down(self.up(x).relu())


@variant("one norm for both", "residual from the normalised x", fails=(*STREAM, "gradient"))
def one_norm_for_both_and_the_residual_from_it(self, x, mask):
    """The residuals are not repaired either."""
    x = self.norm_1(x)
    x = x + self.attention(x, x, x, attn_mask=~mask)[0]
    x = self.norm_1(x)
    return x + self.down(self.up(x).relu())


@misconception("post-norm", fails=STREAM)
def post_norm(self, x, mask):
    """This is a correct block, of the other kind: the sums are normalised. A pre-norm block normalises what a sublayer
    reads and leaves the sums alone."""
    x = self.norm_1(x + self.attention(x, x, x, attn_mask=~mask)[0])
    return self.norm_2(x + self.down(self.up(x).relu()))


@variant("a sublayer reads x as it is", fails=("attention's half", "together", "gradient"))
def attention_hears_x_as_it_is(self, x, mask):
    """Attention."""
    x = x + self.attention(x, x, x, attn_mask=~mask)[0]
    return x + self.down(self.up(self.norm_2(x)).relu())


@variant("a sublayer reads x as it is", fails=("feed-forward's half", "together", "gradient"))
def feed_forward_hears_x_as_it_is(self, x, mask):
    """The feed-forward network."""
    normal_x = self.norm_1(x)
    x = x + self.attention(normal_x, normal_x, normal_x, attn_mask=~mask)[0]
    return x + self.down(self.up(x).relu())


@variant("a sublayer reads x as it is", fails=("attention's half", "together"))
def keys_and_values_not_normalised(self, x, mask):
    """Attention's keys and values."""
    x = x + self.attention(self.norm_1(x), x, x, attn_mask=~mask)[0]
    return x + self.down(self.up(self.norm_2(x)).relu())


@variant("the feed-forward network works beside attention", fails=("attention's half", "together"))
def both_added_to_the_first_x(self, x, mask):
    """Added to the first x."""
    normal_x = self.norm_1(x)
    h = x + self.attention(normal_x, normal_x, normal_x, attn_mask=~mask)[0]
    return x + self.down(self.up(self.norm_2(h)).relu())


# ------------------------------------------------------------------------------------------------ right in other styles


@alternative("in two lines")
def in_two_lines(self, x, mask):
    """The norm's result named on the way."""
    x = x + self.attention(y := self.norm_1(x), y, y, attn_mask=mask.logical_not(), need_weights=False)[0]
    return self.down(torch.relu(self.up(self.norm_2(x)))) + x


@alternative("a mask that is added")
def a_mask_that_is_added(self, x, mask):
    """Numbers for truth values, and the residual under a name of its own."""
    residual = x
    x = self.norm_1(x)
    added = torch.zeros(mask.shape).masked_fill(~mask, float("-inf"))
    x, _ = self.attention(query=x, key=x, value=x, attn_mask=added)
    x = residual + x
    residual = x
    x = self.norm_2(x)
    x = self.down(torch.nn.functional.relu(self.up(x)))
    return residual + x


@alternative("copies, returned in float64")
def copies_returned_in_float64(self, x, mask):
    """Adds to a copy of the stream."""
    stream = x.clone()
    normal_x = self.norm_1(stream)
    stream = stream + self.attention(normal_x, normal_x, normal_x, attn_mask=torch.eq(mask, False))[0]
    hidden = self.up(self.norm_2(stream)).clamp(min=0)
    return stream.double() + self.down(hidden).double()
