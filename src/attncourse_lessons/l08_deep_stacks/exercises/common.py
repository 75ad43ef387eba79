"""What several exercises of this lesson share: inputs, references, and words."""

import math

import torch

from lessonkit.exercises.judge import explain_worst
from lessonkit.exercises.observe import gradients

READY_MADE = (
    "attncourse.layers",
    "attncourse.transformer",
    "torch.nn.functional.layer_norm",
    "torch.nn.functional.rms_norm",
    "torch.nn.functional.normalize",
    "torch.nn.functional.batch_norm",
    "torch.nn.functional.group_norm",
    "torch.nn.functional.instance_norm",
    "torch.layer_norm",
    "torch.rms_norm",
)

def vectors(draw, *in_front, scale=2.0):
    """Vectors of this shape, about `scale` in size and not centred, and their width: no two sizes alike."""
    (width,) = [size for size in draw.sizes(1 + len(in_front), 4, 9) if size not in in_front][:1]
    shift = 1 + draw.uniform(*in_front, 1)
    return scale * (draw.normal(*in_front, width) + shift), width

def slopes(answer, inputs, draw):
    """For each input whether its gradient is the slope that small steps show, and not zero everywhere."""
    inputs = [x.requires_grad_() for x in inputs]
    output = answer(*inputs, 1e-5)
    if not output.requires_grad:
        return torch.zeros(len(inputs), dtype=torch.bool)
    # A larger x must not lengthen the outputs, a shifted one not raise them: that is what the statistics see to.
    directions = output.detach(), torch.ones_like(output), draw.normal(*output.shape)
    said = []
    for i, x in enumerate(inputs):
        ok = torch.tensor(True)
        for direction, step in zip(directions, (x, torch.ones_like(x), draw.normal(*x.shape)), strict=True):
            (gradient,) = torch.autograd.grad(
                (output * direction).sum(), [x], retain_graph=True, materialize_grads=True
            )
            step = 2e-3 * step.detach()
            with torch.no_grad():
                there, back = (answer(*inputs[:i], x + sign * step, *inputs[i + 1 :], 1e-5) for sign in (1, -1))
            slope, expected = ((there - back).double() * direction).sum() / 2, (gradient * step).sum()
            ok = ok & ((slope - expected).abs() < 1e-3 + 0.03 * (gradient.norm() * step.norm() + slope.abs()))
        said.append(ok & gradient.isfinite().all() & (gradient.abs().max() > 1e-5))
    return torch.stack(said)

def wrong_slopes(*names):
    def explain(got, expected):
        lost = [f"`{name}`" for name, ok in zip(names, got, strict=True) if not ok]
        return f"the gradient for {' and '.join(lost)} is not the slope of your function"

    return explain

ALONE = explain_worst("alone, a vector comes out different: by {size} at {place}")

def _nothing(y):
    """A sublayer that has nothing to say."""
    return torch.zeros_like(y)

def cut(sublayer):
    """The same numbers, and no gradient."""
    return lambda y: sublayer(y).detach()

def _gradient(output, x, draw):
    """That of `gradients` at x alone, in the shape of x."""
    return gradients(output, [x], draw)[0].view_as(x)

def through_both(answer, draw):
    """Whether each of the two sublayers passes some of the gradient on to x."""
    x, attend, feed_forward, norm_1, norm_2 = parts(draw)
    x.requires_grad_()
    whole = _gradient(answer(x, attend, feed_forward, norm_1, norm_2), x, draw)
    for pair in ((cut(attend), feed_forward), (attend, cut(feed_forward))):
        if (whole - _gradient(answer(x, *pair, norm_1, norm_2), x, draw)).abs().max() < 1e-5:
            return False
    return True

def normed(y, gain=1.0, bias=0.0, eps=1e-5):
    """LayerNorm. In a list of functions the answer's watch cannot tell ours: so nothing is called that is forbidden."""
    y = y - y.mean(dim=-1, keepdim=True)
    return y / (y.square().mean(dim=-1, keepdim=True) + eps).sqrt() * gain + bias

def parts(draw):
    """x (batch, n, d), attention, feed-forward network, two norms: drawn functions that stand for trained sublayers."""
    batch, n, d = draw.sizes(3, 3, 7)
    mix = draw.normal(n, n).softmax(dim=-1)                               # (n, n)  attention: tokens read each other
    W, W_1, W_2 = draw.normal(d, d), draw.normal(d, 2 * d), draw.normal(2 * d, d)
    (gain_1, gain_2), (bias_1, bias_2) = 1 + draw.normal(2, d) / 3, draw.normal(2, d) / 2

    def attend(y):
        return mix @ y @ W / math.sqrt(d)

    def feed_forward(y):
        return torch.nn.functional.leaky_relu(y @ W_1, 0.1) @ W_2 / d

    def norm_1(y):
        return normed(y, gain_1, bias_1)

    def norm_2(y):
        return normed(y, gain_2, bias_2)

    return 2 * draw.normal(batch, n, d) + 0.5, attend, feed_forward, norm_1, norm_2

HALVES = ("attention's half", "feed-forward's half", "together")
