# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3 (ipykernel)
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Lecture @deep_stacks · Deep stacks: what has to stand around a layer
#
# *About 60 minutes, of which one is computing. You need a Transformer's two sublayers, attention
# ([lecture @self_attention](@self_attention), [lecture @many_heads](@many_heads)) and the feed-forward network
# ([lecture @masking](@masking)), and to know what a gradient is and that it is carried back through a network by the
# chain rule.*
#
# When you have finished you will be able to say what becomes of a signal and of its gradient in a deep stack, and which
# of the two additions, residual connections and norms, mends what; to write LayerNorm and RMSNorm, to say what they do
# to a vector, and to see at a glance when a slide has them wrong; to choose between pre-norm and post-norm and to know
# what the choice costs; and to find a bug that the loss does not show. In
# [assignment @deep_stacks](@deep_stacks/assignment) you build it, and repair a block.
#
# ## Deeper is worse
#
# We have two kinds of layers, and both are good at something. So let us stack them. If one pair of attention and
# feed-forward network learns a task (a **block**, such a pair is called), six blocks should learn it better, or at
# least not worse: five of them could simply hand on what they were given.
#
# The task is the one of [lecture @masking](@masking): all numbers below a thousand, spelled out, letter by letter.
# *Your guess, please, before we train:* one block against six, sixty steps each. Which of the two curves will be
# lower?

# %%
try:
    from attncourse import viz

    from . import figures
except ModuleNotFoundError:
    raise ImportError(
        "This page needs the attncourse package: open it with `make lab` in the course's folder, "
        "or choose a kernel of the environment in which you installed the course."
    ) from None

import math

import torch
import torch.nn.functional as F
from torch import nn

from attncourse.attention import MultiHeadAttention
from attncourse.data.number_words import say
from attncourse.layers import FeedForward, LayerNorm, RMSNorm
from attncourse.transformer import Block, TransformerConfig, initialise

torch.set_num_threads(1)  # models as small as these gain nothing from a second thread, and lose when it has to wait

# %%
texts = [say(number, "en") for number in range(1000)]
letters = "." + "".join(sorted(set("".join(texts))))      # a full stop for the beginning, and for the end
rows = [torch.tensor([letters.index(letter) for letter in f".{text}."]) for text in texts]
spelled = nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=-1)         # (1000, n + 1)


def loss_of(model, chosen, **options):                    # in nats a letter; −1 is padding
    tokens = spelled[chosen]
    tokens = tokens[:, : int((tokens >= 0).sum(dim=1).max())]
    logits = model(tokens[:, :-1].clamp(min=0), **options)                            # (batch, n, letters)
    return F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten(), ignore_index=-1)

# %% [markdown]
# In this lecture the sublayers stay as they are, and what changes is how x gets past them. So the wiring has a class
# of its own. It starts with a single kind, "no residual": x goes in, and what the sublayer has made of it comes out.
# Others will be added as we find out what is missing.

# %%
WIRINGS = {"no residual": lambda x, sublayer, norm: sublayer(x)}


class Wired(nn.Module):
    """A sublayer, and a way for x to get past it."""

    def __init__(self, kind, sublayer, d):
        super().__init__()
        self.kind, self.sublayer, self.norm = kind, sublayer, LayerNorm(d)            # not every kind has a use for it

    def forward(self, x, **options):
        return WIRINGS[self.kind](x, lambda y: self.sublayer(y, **options), self.norm)

# %%
class Speller(nn.Module):
    def __init__(self, kind, depth, d=32, final_norm=False):
        super().__init__()
        self.token, self.position = nn.Embedding(len(letters), d), nn.Embedding(64, d)
        self.attentions = nn.ModuleList(Wired(kind, MultiHeadAttention(d, n_heads=4), d) for _ in range(depth))
        self.networks = nn.ModuleList(Wired(kind, FeedForward(d, 4 * d), d) for _ in range(depth))
        self.final_norm = LayerNorm(d) if final_norm else nn.Identity()
        self.output = nn.Linear(d, len(letters))
        initialise(self)                                  # matrices by Xavier, biases zero

    def forward(self, tokens, stream=None):               # (batch, n)
        x = self.token(tokens) + self.position.weight[: tokens.shape[1]]              # (batch, n, d)
        for attend, feed_forward in zip(self.attentions, self.networks, strict=True):
            if stream is not None:
                stream.append(x)                          # to look at x on its way
            x = feed_forward(attend(x, causal=True))
        return self.output(self.final_norm(x))            # (batch, n, letters)

# %%
def train(kind, depth, lr=1e-2, warm_up=0, steps=60, seed=0, **options):
    torch.manual_seed(seed)
    model, losses = Speller(kind, depth, **options), []
    optimiser = torch.optim.Adam(model.parameters(), betas=(0.9, 0.98))
    for step in range(steps):
        for group in optimiser.param_groups:
            group["lr"] = lr * min(1.0, (step + 1) / (warm_up + 1))                   # rises to lr, or is lr at once
        loss = loss_of(model, torch.randint(1000, (16,)))
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    return model, losses


def at_the_end(losses):
    return sum(losses[-15:]) / 15

# %%
plain = {f"{depth} deep": train("no residual", depth, lr=3e-3)[1] for depth in (1, 6)}
viz.curves(plain, y_name="loss (nats a letter)")
assert at_the_end(plain["6 deep"]) > at_the_end(plain["1 deep"]) + 0.3, "deeper is worse, in training, too"

# %% [markdown]
# The deep one is worse, and by far. Note that this is the *training* loss: it has not learned too much by heart, it has
# learned less. He et al. (2016) met this with deep networks for images, and it is where residual connections come from.
# The five spare blocks could have handed on what they were given. They did not find out how. A deck puts it well: deep
# networks are surprisingly bad at learning the identity function.
#
# ## Whispering down a corridor
#
# Why should it be hard? In a stack, x is passed from layer to layer like a rumour, and what comes back, the gradient,
# is passed the same way in the other direction. If each layer hands on half of what it hears, then after twenty
# layers a millionth is left. [Lecture @bottleneck](@bottleneck) saw this happen in time. It happens in depth as
# well, and we can look before any training. How large are the numbers in x on their way up? And how large is the
# gradient? We look at one matrix of each block, the second one of its feed-forward network.

# %%
def root_mean_square(x):
    return x.double().square().mean().sqrt().item()


def flow(kind, depth, seed=0):
    torch.manual_seed(seed)
    model, stream = Speller(kind, depth, d=64, final_norm=kind == "pre-norm"), []
    loss_of(model, torch.randint(1000, (32,)), stream=stream).backward()
    gradients = [network.sublayer.down.weight.grad.double().norm().item() for network in model.networks]
    return [root_mean_square(x) for x in stream], gradients                           # from the first layer to the last


for depth in (2, 6, 12, 24):
    sizes, gradients = flow("no residual", depth)
    print(f"{depth:>2} deep: x {sizes[0]:.1f} → {sizes[-1]:.0e}    gradient at the first block {gradients[0]:.0e}")

# %%
dying = {depth: flow("no residual", depth)[1][0] for depth in (2, 24)}
assert dying[24] < 1e-3 * dying[2]

# %% [markdown]
# The rumour dies, and at 24 blocks a gradient of about a millionth is left at the first block. Which of the two
# sublayers is to blame? *Attention averages, and a feed-forward network has a ReLU. Guess which of them it is; then
# give each of them words, once all different, and once all alike.*

# %%
torch.manual_seed(0)
attend, network = MultiHeadAttention(64, n_heads=4), FeedForward(64, 256)
initialise(nn.ModuleList([attend, network]))
different = torch.randn(32, 9, 64)                        # (batch, n, d)
alike = different[:, :1].expand(-1, 9, -1)                # (batch, n, d)  one word, nine times
shrinks = {}
for name, sublayer in {"attention": attend, "feed-forward": network}.items():
    shrinks[name] = [root_mean_square(sublayer(x)) / root_mean_square(x) for x in (different, alike)]
    print(f"{name:>12}: different words shrink to {shrinks[name][0]:.2f}, equal ones to {shrinks[name][1]:.2f}")
assert shrinks["attention"][0] < 0.6 < 0.8 < shrinks["attention"][1] and max(shrinks["feed-forward"]) < 0.7

# %% [markdown]
# Both are, at first. The average of vectors that point in different directions is shorter than they are, so the first
# attentions shrink x; but each of them makes the words more alike, and nothing is lost in averaging what is equal. What
# takes nearly half, in *every* block, is the feed-forward network: the ReLU throws away half of what it is given, and
# the matrices do not make up for it. (They start with Xavier's variance, $2/(d_\text{in} + d_\text{out})$, a compromise
# that roughly keeps the size of signals and of gradients where layers are *linear*.)
#
# And the gradient? A matrix's gradient is a product of what the matrix hears and what comes back to it. The last
# block gets the full gradient and hears a millionth of x. The first hears x in full and gets a millionth of the
# gradient. Both learn next to nothing.
#
# The remedy is old by now, and the course has used it already: let x go *around* the layer as well, and add.
#
# $$x_\ell = x_{\ell - 1} + f_\ell(x_{\ell - 1})$$
#
# The layer need not repeat what it heard; it says only what there is to add. A layer that finds nothing writes zero,
# and the sum is the identity, for which there is nothing to learn. This is a **residual connection** (He et al. 2016).
# The column of numbers that runs through the whole stack, to which every sublayer adds something, is often called the
# **residual stream**. ([Lecture @masking](@masking) measured another of its merits: without it attention makes all
# words alike.)

# %%
WIRINGS["residual"] = lambda x, sublayer, norm: x + sublayer(x)
figures.block_wiring({"no residual": ["only attention", "only feed-forward"], "residual": ["attention", "feed-forward"]})

# %% [markdown]
# > **On the slide.** "Gradient is great through the residual connection; it's 1!" Through the connection it is. Through
# > the layer it is 1 *plus something*. With $J$ for the layer's own Jacobian (the table of how each output changes with
# > each input), one layer has $I + J_\ell$, and the stack has their product:
# >
# > $$\frac{\partial x_L}{\partial x_0} = \prod_{\ell} (I + J_\ell) = I + \sum_\ell J_\ell + \sum_{k < \ell} J_k J_\ell + \dots$$
# >
# > One of the $2^L$ terms is the identity, and no layer can take it away. That is the good news, and it is half of the
# > story. The next cell checks it for one layer; then look at the other half.

# %%
torch.manual_seed(0)
layer, x = FeedForward(4, 16), torch.randn(4)
alone = torch.autograd.functional.jacobian(layer, x)                                  # (4, 4)  J
around = torch.autograd.functional.jacobian(lambda x: x + layer(x), x)                # (4, 4)
assert torch.allclose(around, torch.eye(4) + alone, atol=1e-6), "I + J, no more and no less"

# %% [markdown]
# *Before you run the next cell:* what will the gradient at the first of twelve blocks be with residual connections?
# About 1, as on the slide? More? Less?

# %%
for depth in (2, 6, 12):
    sizes, gradients = flow("residual", depth)
    print(f"{depth:>2} deep: x {sizes[0]:.1f} → {sizes[-1]:.0e}    gradient at the first block {gradients[0]:.0e}")
assert gradients[0] > 1e3, "one plus something, twenty-four times over: a block has two sublayers"

# %% [markdown]
# It explodes. If $J$ is about as large as $I$, each sublayer makes x larger by some factor, and the next one, hearing a
# louder x, writes louder still. (Had we begun with much smaller matrices it would have taken longer. For image networks
# there is a norm inside every layer that keeps this down.) So a shortcut for the gradient is not all. Something has to
# keep the *sizes* in order, whatever the layers do.
#
# > **Check yourself.** In a trained stack of 12 residual layers you take one out, and the model still works. Would
# > you expect that without residual connections?
# > <details><summary>Answer</summary>No. With them, layer 8 is handed x plus everything that was added, and one term
# > of the sum is missing. Without them, layer 8 would be handed the input of layer 7 in place of its output,
# > something that it has never seen.</details>
#
# ## One vector, put in order
#
# What would it mean to keep sizes in order? Take one word's vector, $d$ numbers. Subtract their mean, divide by their
# standard deviation. Whatever the vector was, it now has mean 0 and variance 1. Then, so that nothing is forbidden
# that the layer may need, let it learn a gain $\gamma$ and a bias $\beta$ for each number. (One can do without these
# two, as two decks note.) This is **LayerNorm** (Ba, Kiros and Hinton 2016):
#
# $$
# \mu = \frac1d \sum_{c=1}^d x_c \qquad \sigma^2 = \frac1d \sum_{c=1}^d (x_c - \mu)^2 \qquad
# \operatorname{LayerNorm}(x) = \frac{x - \mu}{\sqrt{\sigma^2 + \varepsilon}} \circ \gamma + \beta
# $$

# %%
def layer_norm(x, gain=1.0, bias=0.0, eps=1e-5):
    mean = x.mean(dim=-1, keepdim=True)                   # (…, 1)  one number for each vector
    variance = (x - mean).square().mean(dim=-1, keepdim=True)                         # (…, 1)
    return (x - mean) / torch.sqrt(variance + eps) * gain + bias


x = 3 + 5 * torch.randn(2, 7, 512, generator=torch.Generator().manual_seed(0))        # (batch, n, d)
for name, y in {"before": x, "after": layer_norm(x)}.items():
    print(f"{name:>6}: mean {y[0, 0].mean():6.2f}   variance {y[0, 0].var(correction=0):6.2f}")
assert torch.allclose(layer_norm(x), F.layer_norm(x, (512,)), atol=1e-5), "torch's"

# %% [markdown]
# It is easier to remember as a picture than as a formula. Here are seven vectors of three numbers each. To subtract the
# mean is to move along the direction $(1, 1, 1)$, which changes all numbers by the same amount, until the sum is zero.
# That is a projection onto the plane at right angles to that direction. And in the plane, dividing by the standard
# deviation moves every point to the same distance from the middle.

# %%
points = torch.randn(7, 3, generator=torch.Generator().manual_seed(259)) + 0.6       # (7, 3)
figures.norm_steps(points)
normalised = layer_norm(points, eps=0.0)                  # (7, 3)
assert torch.allclose(normalised.sum(dim=-1), torch.zeros(7), atol=1e-5), "in the plane"
assert torch.allclose(normalised.norm(dim=-1), torch.full((7,), math.sqrt(3)), atol=1e-5), "on the circle"

# %% [markdown]
# In $d$ dimensions it is a sphere of radius $\sqrt d$, within the hyperplane of the vectors that sum to zero. What is
# kept of a vector is its direction in that plane. What is lost are two numbers, how high it was and how long. Three
# things follow, and each of them matters later:
#
# * Ten times the vector, or the vector with 7 added to every number, comes out the same.
# * The gradient that comes back has forgotten how to make a vector longer, since that has no effect any more: it is at
#   right angles to the vector, and sums to zero.
# * If x was ten times as large, the same small step does a tenth as much. So the gradient is divided by the vector's
#   size.
#
# *Which of the three is exact, and which is spoiled a little by ε?*

# %%
x = torch.randn(64, generator=torch.Generator().manual_seed(1), dtype=torch.float64)  # (d,)
wish = torch.randn(64, generator=torch.Generator().manual_seed(2), dtype=torch.float64)


def gradient_at(x, eps=1e-5):
    x = x.clone().requires_grad_()
    (layer_norm(x, eps=eps) * wish).sum().backward()
    return x.grad                                         # (d,)


assert torch.allclose(layer_norm(10 * x + 7), layer_norm(x), atol=1e-4)
print("sums to", f"{gradient_at(x).sum():.0e};", "along x:", f"{gradient_at(x) @ x / x.norm():.0e}")
shares = [gradient_at(scale * x).norm() / gradient_at(x).norm() for scale in (10, 100)]
print("gradient, x ten and a hundred times as large:", [f"{share:.4f}" for share in shares])
assert abs(gradient_at(x).sum()) < 1e-12 and abs(gradient_at(x) @ x) < 1e-3
assert abs(shares[0] - 0.1) < 1e-4 and abs(shares[1] - 0.01) < 1e-4

# %% [markdown] erratum="a sum for the mean; a product for the difference; a root too many; unit mean"
# That the gradient sums to zero is exact, and so is the fact that adding 7 changes nothing; the rest is true as far as
# ε is small beside $\sigma^2$. (With ε = 0 it is exact, except for a vector of variance zero, for which 0/0 would be
# NaN. That is what ε is for.)
#
# One deck explains LayerNorm by what comes in: the layer above has an easier life if its input does not keep shifting.
# Two decks add that its success may be due to the *gradients* instead, and cite Xu et al. (2019). Those authors cut the
# mean and the variance out of the gradient, left the forward pass as it was, and found that it trained clearly worse.
# So the second and third points above may be the ones that count.
#
# > **On the slide.** Few formulas are misprinted as often as this one. Two decks have $\mu = \sum_j x_j$: that is a
# > sum, the $\frac1d$ is missing. One of them has $(x_j\,\mu)^2$ where $(x_j - \mu)^2$ is meant (a slip of the
# > transcription, perhaps). Both then define $\sigma$ as the standard deviation, with the root, and divide by
# > $\sqrt\sigma + \epsilon$: one root too many. And both announce vectors of "unit mean and standard deviation"; the
# > mean is zero. (The third has zero mean and standard deviation one, rightly.) Run them, on a vector of usual size
# > and on a small one:

# %%
def moments(x):
    mean = x.mean(dim=-1, keepdim=True)
    return mean, (x - mean).square().mean(dim=-1, keepdim=True).sqrt()                # σ, the standard deviation


PRINTED = {
    "μ without 1/d": lambda x: (x - x.sum(dim=-1, keepdim=True)) / (moments(x)[1] ** 2 + 1e-5).sqrt(),
    "(x − μ)/(√σ + ε)": lambda x: (x - moments(x)[0]) / (moments(x)[1].sqrt() + 1e-5),
    "(x − μ)/(σ + ε)": lambda x: (x - moments(x)[0]) / (moments(x)[1] + 1e-5),
    "(x − μ)/σ": lambda x: (x - moments(x)[0]) / moments(x)[1],
}
x = torch.randn(1000, 64, generator=torch.Generator().manual_seed(3))                 # (words, d)
worst = {}
for name, printed in PRINTED.items():
    worst[name] = [(printed(s * x) - F.layer_norm(s * x, (64,))).abs().max().item() for s in (1, 0.01)]
    print(f"{name:>17}: off by {worst[name][0]:.0e} at scale 1, by {worst[name][1]:.0e} at scale 0.01")

# %%
assert worst["μ without 1/d"][0] > 5 and worst["(x − μ)/(√σ + ε)"][0] > 0.1, "seen at once"
assert worst["(x − μ)/(√σ + ε)"][1] > 2, "and for small vectors, far from variance one"
assert worst["(x − μ)/(σ + ε)"][0] < 1e-4 < 0.1 < worst["(x − μ)/(σ + ε)"][1], "ε outside: seen at small scales alone"

# %% [markdown]
# The last two are in decks as well, and are conventions rather than errors. A third deck has ε outside the root
# (as some older code had), a fourth has none. At the usual scale nobody could tell. But a checkpoint was trained with
# one of them, and where vectors are small the other gives a different model: at scale 0.01 the variance is $10^{-4}$,
# and an ε of $10^{-5}$ *inside* the root is a tenth of it, while *outside* it is a thousandth of σ. How small must a
# vector be before you see it? Move the slider. The bars are the numbers of one vector after each of three formulas; ε
# is $10^{-5}$.

# %%
def at_scale(scale):
    vector = scale * torch.linspace(-1.6, 1.6, 9)         # (9,)  σ is about as large as the scale
    formulas = {"ε inside": layer_norm, "ε outside": PRINTED["(x − μ)/(σ + ε)"], "no ε": PRINTED["(x − μ)/σ"]}
    normed = {name: formula(vector) for name, formula in formulas.items()}
    return figures.normed_vector(normed, f"a vector of size {scale:g}, normalised")


viz.explore(
    at_scale, scale=[1.0, 0.1, 0.03, 0.01, 0.003, 0.001, 1e-4, 1e-5], names={"scale": "size of x"},
    start={"scale": 0.003},
)

# %% [markdown]
# With ε inside, vectors below a size of about $\sqrt\varepsilon \approx 0.003$ are no longer blown up to full size.
# That is a choice, too, and a wise one: what is that small may be mere rounding, and should not be blown up.
#
# ## Whose mean?
#
# A table of vectors has other axes along which one could take a mean. Over the features of one word is one way. Over
# the words of the sentence, or over the sentences of the batch (that is batch norm's way, which had been such a
# success for images), are others. The shapes fit every time. *Which of the three may a language model use?* Take a
# causal model, and ask the two questions that [lecture @masking](@masking) taught: does the past move if the future
# changes? And does a sentence get the same answer in other company?

# %%
over = {"features of a word": (-1,), "words of a sentence": (-2,), "sentences of a batch": (0,)}


def standardise(x, axes):
    variance, mean = torch.var_mean(x, dim=axes, keepdim=True, correction=0)
    return (x - mean) / torch.sqrt(variance + 1e-5)


x = torch.randn(4, 6, 8, generator=torch.Generator().manual_seed(4))                  # (batch, n, d)
future, company = x.clone(), x.clone()
future[:, 3:] += 1                                        # other words from the fourth on
company[1:] *= 2                                          # other sentences beside the first
for name, axes in over.items():
    y = standardise(x, axes)                              # (batch, n, d)
    past = (standardise(future, axes) - y)[:, :3].abs().max()
    first = (standardise(company, axes) - y)[0].abs().max()
    print(f"over the {name:>20}: past moves by {past:.2f}, first sentence by {first:.2f}")
    assert ((past < 1e-6) & (first < 1e-6)) == (name == "features of a word")

# %% [markdown]
# Only the first. Over the words the mean contains the end of the sentence: a leak from the future, with the mask in
# perfect order. Over the batch, what you are told depends on who else has asked. (Image networks live with that, by
# keeping running averages for later use. Texts, of all lengths and full of padding, get along badly with it.)
#
# ## The same with less
#
# Which of the two steps does the work, the projection or the sphere? Zhang and Sennrich (2019) left the projection out:
#
# $$\operatorname{RMSNorm}(x) = \frac{x}{\sqrt{\frac1d \sum_c x_c^2 + \varepsilon}} \circ \gamma$$
#
# A vector keeps its direction and gets the size one, by its *root mean square*. No mean, no bias: half of the
# parameters. In their experiments it was as good and faster, and most large models of today have it, Llama for one,
# as a table in a deck says. (The deck prints it without ε. A vector of zeros is then NaN.) On vectors that have mean
# zero anyhow the two are the same function, and in high dimensions random vectors have nearly that:

# %%
def rms_norm(x, gain=1.0, eps=1e-6):
    return x / torch.sqrt(x.square().mean(dim=-1, keepdim=True) + eps) * gain


for d in (4, 64, 1024):
    x = torch.randn(1000, d, generator=torch.Generator().manual_seed(0))              # (words, d)
    apart = (rms_norm(x) - layer_norm(x)).norm(dim=-1) / math.sqrt(d)                 # (words,)
    print(f"d = {d:>4}: RMSNorm and LayerNorm differ by {apart.mean():.0%} of the vector")
assert apart.mean() < 0.05
for by_hand, packaged in ((rms_norm, RMSNorm(1024)), (layer_norm, LayerNorm(1024))):
    assert torch.allclose(by_hand(x), packaged(x), atol=1e-5)

# %% [markdown]
# > **Check yourself.** (1) What does LayerNorm make of the vector (5, 5, 5, 5), and what does RMSNorm make of it? (2) A
# > LayerNorm follows directly on another one, both without gain and bias. What does the second do? (3) In front of a
# > LayerNorm, a linear layer's weights and bias are doubled. What does the norm's output do?
# > <details><summary>Answers</summary>(1) LayerNorm: zeros, since 0/√ε is 0. RMSNorm: (1, 1, 1, 1). (2) Nothing: the
# > vector is on the sphere already (up to ε). (3) Nothing either; the norm takes the factor out.</details>
#
# ## Before or after?
#
# Now we have two parts, the path around and the norm, and two places for the norm. The original Transformer adds and
# then normalises, and its picture says so in one box, "Add & Norm". That is called **post-norm**. The other way is to
# normalise only what the sublayer *hears*, and to leave the sum alone: **pre-norm**.
#
# $$
# \text{post:}\quad x \leftarrow \operatorname{norm}\bigl(x + f(x)\bigr) \qquad\qquad
# \text{pre:}\quad x \leftarrow x + f\bigl(\operatorname{norm}(x)\bigr)
# $$

# %%
WIRINGS["post-norm"] = lambda x, sublayer, norm: norm(x + sublayer(x))
WIRINGS["pre-norm"] = lambda x, sublayer, norm: x + sublayer(norm(x))
figures.block_wiring({
    "post-norm": ["attention", "norm", "feed-forward", "norm"],
    "pre-norm": ["norm → attention", "norm → feed-forward"],
})

# %% [markdown] erratum="x¹ for x in the sum; x_l for x_{l+1}; the final norm of x_{l+1}"
# The two look alike until you follow the thick line. In a post-norm block everything that x carries passes every norm:
# nothing gets to the top without being rescaled at each step. In a pre-norm block the thick line is free from bottom to
# top, and the norms stand on the side roads.
#
# > **On the slide.** Two decks write both blocks out, line by line, and three lines went wrong. One has the pre-norm
# > sum as $x^{3} = x^{2} + x^{1}$, and $x^1$ is the *normalised* x: it must be $x^2 + x$. (Perhaps a slip of the
# > transcription. The other deck has it right. Keep this one in mind; it will come back as code, and with it a test
# > that finds it.) The same deck ends with the final norm of $x_{l+1}$, where that of $x_{L+1}$ is meant, after the
# > *last* block. The other labels the output of post-norm block $l$ as $x_l$ again, and it is $x_{l+1}$.
#
# Here are the flows of all four wirings. Step through the depths for each of them, and read the two pictures
# together: on the left x on its way up, on the right the gradient in each block. *Questions to answer with the
# buttons:* Which two wirings are fit for 24 blocks? In which of these does x grow, and how fast? And where, in those
# two, is the gradient larger, in the first block or in the last?

# %%
flows = {(kind, depth): flow(kind, depth) for kind in WIRINGS for depth in (2, 6, 12, 24)}
viz.explore(
    lambda wiring, depth: figures.gradient_flow(*flows[wiring, depth], f"{wiring}, {depth} deep"),
    wiring=list(WIRINGS), depth=[2, 6, 12, 24], start={"wiring": "pre-norm", "depth": 12},
)

# %%
for kind in ("post-norm", "pre-norm"):
    first, last = flows[kind, 24][1][0], flows[kind, 24][1][-1]
    assert 0.05 < first < 50 and 0.05 < last < 50, "neither dies nor explodes, at 24 blocks"
assert flows["no residual", 24][1][0] < 1e-4 and flows["residual", 24][1][0] > 1e8

# %% [markdown]
# Two wirings survive, and they are different. In post-norm x is of size one everywhere, and the gradient is of about
# one size in all blocks (it wavers, from one random start to another, by a factor of a few). In pre-norm x *grows*:
# each sublayer adds something of about the same size, since it always hears something of size one. Independent
# contributions would add up like the steps of a random walk, and x grows about as that does, like the root of the
# number of sublayers that it has passed. And then the third property of norms applies: after the last block stands a
# norm, its input has grown like $\sqrt L$, so the gradients that come back through it are smaller by $\sqrt L$. (The
# first block gets more than the last, since whatever it writes is heard by all the others, too.)
#
# This is what Xiong et al. (2020) are about, who named the difference: not that gradients vanish, but how large they
# are *near the output*. Measure it in the last block, at several depths and over three seeds.

# %%
depths = [2, 8, 32]
last = {}
for kind in ("post-norm", "pre-norm"):
    runs = [[flow(kind, depth, seed)[1][-1] for depth in depths] for seed in range(3)]
    last[kind] = torch.tensor(runs).mean(dim=0).tolist()  # (3,)
last["2 / √depth"] = [2 / math.sqrt(depth) for depth in depths]
viz.curves(last, xs=depths, x_name="depth", y_name="gradient at the last block", log_x=True)
assert last["pre-norm"][-1] < 0.8 * last["pre-norm"][0], "falls with depth"
assert last["post-norm"][-1] > last["post-norm"][0], "does not"

# %% [markdown]
# In post-norm the last block is pulled harder in a deep stack than in a shallow one; in pre-norm it is pulled less
# and less. (The third line falls exactly like 1/√depth, to compare. A stack of two is below it: there x is still for
# the most part what it was at the beginning, and has not grown. A caution. It is often said that in post-norm the
# gradient *vanishes* towards the input. With this initialisation, Xavier's, it does not, as the widget has shown: the
# last and the first block get about the same. With others it may.)
#
# Why a **final norm**, then? A post-norm stack ends in one by nature. A pre-norm stack ends in a sum that no norm has
# touched, of a size that depends on the depth, and the output layer would have to live with that. So one more is put
# after the last block. Remember it; somebody will forget it in a moment.

# %%
sizes = {depth: flow("pre-norm", depth)[0][-1] for depth in (6, 24)}
print({depth: f"size {size:.1f}" for depth, size in sizes.items()}, " ratio", round(sizes[24] / sizes[6], 2))
assert 1.6 < sizes[24] / sizes[6] < 2.6, "four times the depth, twice the size"

# %% [markdown]
# ## Does it train?
#
# So far we have looked at the first gradient of an untrained model. Now train all four wirings, six deep, at a learning
# rate that is generous, 0.01. And do it twice: once with the full rate from the first step on, and once with a
# **warm-up**, in which the rate rises from nearly nothing to the full one within the first thirty steps. (The
# original Transformer had one, of 4,000 steps. [Lecture @training](@training) has the whole schedule.)
#
# *Eight runs: which of them will fail?*

# %%
WARM_UPS = {"full rate at once": 0, "warm-up": 30}
trained = {}
for name, warm_up in WARM_UPS.items():
    for kind in WIRINGS:
        trained[name, kind] = train(kind, depth=6, warm_up=warm_up, final_norm=kind == "pre-norm")
    losses = {kind: trained[name, kind][1] for kind in WIRINGS}
    viz.curves(losses, y_name="loss (nats a letter)", log_y=True, title=name)

# %%
counts = torch.bincount(spelled[:, 1:][spelled[:, 1:] >= 0]).double()                 # (letters,)  those to be guessed
shares = counts / counts.sum()
frequencies = -(shares[counts > 0] * shares[counts > 0].log()).sum().item()
print(f"who knows how frequent each letter is, and no more, pays {frequencies:.2f}")
ends = {key: at_the_end(losses) for key, (_, losses) in trained.items()}
for kind in WIRINGS:
    print(f"{kind:>12}: " + "   ".join(f"{name} {ends[name, kind]:8.2f}" for name in WARM_UPS))
at_once, warmed = ({kind: ends[name, kind] for kind in WIRINGS} for name in WARM_UPS)
assert max(at_once["pre-norm"], warmed["pre-norm"]) < 0.6, "pre-norm does not care"
assert abs(at_once["post-norm"] - frequencies) < 0.2 and warmed["post-norm"] < 0.8, "post-norm needs the warm-up"
assert min(run[kind] for run in (at_once, warmed) for kind in ("no residual", "residual")) > 2

# %% [markdown]
# Without norms there is nothing to be had, with or without a warm-up. Pre-norm trains either way. Post-norm trains
# well *with* a warm-up, and without one it does not train at all: it sits at the loss that one gets for knowing how
# frequent each letter is. Is that bad luck with one random start, and does post-norm *always* need a warm-up? Two more
# starts at the same rate, and one at a third of it:

# %%
without = {}
for seed, lr in ((1, 0.01), (2, 0.01), (0, 0.003)):
    without[seed, lr] = at_the_end(train("post-norm", 6, lr=lr, seed=seed)[1])
    print(f"post-norm, no warm-up, start {seed}, rate {lr}: {without[seed, lr]:.2f}")
assert min(without[1, 0.01], without[2, 0.01]) > 2 > 1 > without[0, 0.003]

# %% [markdown]
# It is not luck, and it is not a law either: at a third of the rate it trains without a warm-up. The question is how
# large a first step the model survives.
#
# What has happened to it? The gradients near the output are larger in post-norm, and Xiong et al. say that this
# makes a full-sized first step dangerous. That is convincing for plain gradient descent. But Adam divides each
# gradient by its own size, so that a large one makes no larger step than a small one. So let us look inside instead,
# after ten steps. [Lecture @masking](@masking) had a measure for how different the words of a text still are: the
# share of the vectors that is not common to all of them. And we ask how *loud* each attention is: how large is what
# it writes, beside the x to which it is added?

# %%
def apart(x):                                             # (batch, n, d)
    return ((x - x.mean(dim=(0, 1))).norm() / x.norm()).item()


def inside(kind, warm_up, steps=10):
    model, stream = train(kind, 6, warm_up=warm_up, steps=steps, final_norm=kind == "pre-norm")[0], []
    model.zero_grad()
    loss_of(model, torch.arange(0, 1000, 30), stream=stream).backward()
    first = model.networks[0].sublayer.down.weight.grad.norm().item()
    louds = []
    for x, wired in zip(stream, model.attentions, strict=True):
        written = wired.sublayer(wired.norm(x) if kind == "pre-norm" else x, causal=True)         # (batch, n, d)
        louds.append(root_mean_square(written) / root_mean_square(x))
    return [apart(x.detach()) for x in stream], sum(louds) / len(louds), first


looked = {"post-norm, full rate": inside("post-norm", 0), "post-norm, warm-up": inside("post-norm", 30),
          "pre-norm, full rate": inside("pre-norm", 0)}
measured = {name: words for name, (words, _, _) in looked.items()}
viz.curves(measured, x_name="block", y_name="apart, after ten steps", log_y=True)

# %%
for name, (words, loud, first) in looked.items():
    print(f"{name:>20}: loud {loud:.1f}, apart at the last block {words[-1]:.3f}, gradient at the first {first:.0e}")
at_full, warmed_up, pre = looked.values()
assert at_full[1] > 1.3 * warmed_up[1] and at_full[1] > 1.3 * pre[1], "loud"
assert at_full[0][-1] < 0.1 < min(warmed_up[0][-1], pre[0][-1]), "every word the same"
assert at_full[2] < 0.05 * min(warmed_up[2], pre[2]), "and the gradient all but gone"

# %% [markdown]
# There it is. Ten full-sized steps have made post-norm's attentions loud: they write more than x itself. In pre-norm x
# goes on beneath whatever is added to it, and is never scaled down. In post-norm the sum is scaled to size one again,
# *x with it*. Loud sublayers leave little of x after each norm, six blocks have twelve norms, and in the end every
# position holds the same vector, of which nothing can be learned; the gradient in the first block is all but gone. The
# residual connection is there in the code, and it has been drowned. The harm is done in the first steps, and the later
# ones find nothing to mend it with.
#
# A warm-up keeps the sublayers quiet until they have something to say. (Liu et al. 2020 look at it in this way: it is
# post-norm's *reliance on its branches* that amplifies small changes, more than the size of its gradients.)
#
# "The one thing everyone agrees on", two decks write above their slide about pre-norm, and it is nearly so. BERT and
# the original are post-norm; GPT-2 and almost all large language models since are pre-norm. (A slide notes one
# exception, OPT's 350 M.) Where a post-norm model can be trained it has been found to end a little better (Liu et al.
# 2020), so it is not forgotten. For us pre-norm is the default of the package, and the warm-up is kept all the same.

# %%
x = torch.randn(2, 5, 16, generator=torch.Generator().manual_seed(0))                 # (batch, n, d)
for place in ("pre", "post"):
    block = Block(TransformerConfig(vocab_size=1, d_model=16, norm_place=place, dropout=0.0))
    y = x
    for part in (block.attention, block.ff):
        y = WIRINGS[f"{place}-norm"](y, part.sublayer, part.norm)
    assert torch.allclose(block(x), y, atol=1e-5), "the package's block is our wiring, twice"

# %% [markdown]
# > **Check yourself.** A pre-norm stack of 100 blocks has been trained. What attention adds in block 90 is of size 1.
# > How large is it beside x? What does that suggest about deep pre-norm stacks?
# > <details><summary>Answer</summary>By then x is of size √180 or so (two sublayers a block), more if training has
# > made the sublayers louder. The contribution of one sublayer is a thirteenth of it or less. Late blocks change
# > little, and one can often take some of them out: the price of a free path.</details>
#
# ## What the loss looks like from above
#
# Two decks show a famous pair of pictures: the loss of a deep network as a landscape, a mountain range without
# residual connections, a smooth bowl with them (Li et al. 2018). The claim is that residual connections *smooth the
# loss*. The landscape has as many dimensions as there are parameters, so a picture can only be a slice: from the
# trained parameters, go some way in one random direction, some way in another, and write down the loss. Can we see it
# ourselves?
#
# The networks are small, but real: 16 feed-forward layers, 32 wide, that learn to tell two spirals apart. Both have a
# norm in front of each layer, so that the residual connection is the only difference.

# %%
generator = torch.Generator().manual_seed(0)
angle = math.pi * torch.linspace(0.5, 2.5, 200)           # (200,)
arm = angle[:, None] / 6 * torch.stack([angle.cos(), angle.sin()], dim=1)             # (200, 2)
points = torch.cat([arm, -arm]) + 0.02 * torch.randn(400, 2, generator=generator)     # (400, 2)
points, side = torch.cat([points, torch.ones(400, 1)], dim=1), torch.arange(2).repeat_interleave(200)


def spiral_loss(matrices, residual):
    """The loss, for one set of matrices (d_in, d_out) each, or for many at once, (many, d_in, d_out)."""
    first, *layers, output = matrices
    x = points @ first                                    # (…, 400, 32)
    for W in layers:
        found = (F.layer_norm(x, (32,)) @ W).relu()       # (…, 400, 32)
        x = x + found if residual else found
    logits = F.layer_norm(x, (32,)) @ output              # (…, 400, 2)
    return -logits.log_softmax(dim=-1)[..., torch.arange(400), side].mean(dim=-1)     # (…,)

# %%
def learn_spirals(residual, seed, depth=16, steps=160):
    generator = torch.Generator().manual_seed(seed)
    shapes = [(3, 32), *[(32, 32)] * depth, (32, 2)]
    matrices = [torch.randn(shape, generator=generator) * math.sqrt(2 / shape[0]) for shape in shapes]
    matrices = [W.requires_grad_() for W in matrices]
    optimiser = torch.optim.Adam(matrices)
    for step in range(steps):
        for group in optimiser.param_groups:
            group["lr"] = 3e-3 * min(1, (step + 1) / 20) * (1 - step / steps)
        loss = spiral_loss(matrices, residual)
        optimiser.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(matrices, 1.0)
        optimiser.step()
    return [W.detach() for W in matrices]

# %%
nets = {(residual, seed): learn_spirals(residual, seed) for residual in (False, True) for seed in range(3)}
for residual in (False, True):
    ends = [spiral_loss(nets[residual, seed], residual).item() for seed in range(3)]
    print("residual:   " if residual else "no residual:", ", ".join(f"{end:.4f}" for end in ends))
    assert max(ends) < 0.02

# %% [markdown]
# Both kinds learn it, to the same loss. *Guess what their surroundings look like.*
#
# One detail decides whether such pictures can be compared. A step of length one is a large step for small weights and
# a small one for large weights. So Li et al. give each random direction the size of what it is added to: filter by
# filter for images, and here, column by column, for each neuron's weights. A distance of 0.5 then means "half of each
# neuron's own size".

# %%
def direction(matrices, generator):
    drawn = [torch.randn(W.shape, generator=generator) for W in matrices]
    return [D * W.norm(dim=0) / D.norm(dim=0) for D, W in zip(drawn, matrices, strict=True)]


@torch.no_grad()
def losses_around(matrices, residual, places, seed=0):    # places (many, 2)
    generator = torch.Generator().manual_seed(seed)
    one, two = direction(matrices, generator), direction(matrices, generator)
    a, b = places[:, 0, None, None], places[:, 1, None, None]
    return spiral_loss([W + a * D + b * E for W, D, E in zip(matrices, one, two, strict=True)], residual)   # (many,)


ticks = torch.linspace(-0.5, 0.5, 27)                     # (27,)
grid = torch.cartesian_prod(ticks, ticks)                 # (729, 2)
slices = {}
for residual in (False, True):
    around = torch.cat([losses_around(nets[residual, 0], residual, part) for part in grid.split(81)])
    slices["residual" if residual else "no residual"] = ticks, around.view(27, 27)
figures.loss_landscapes(slices)

# %% [markdown]
# On the left a narrow gully between steep walls. On the right a wide valley. (Dark is low, and the lines are at the
# same heights in both pictures. In this slice left and right matter more than up and down, to both nets. Another draw
# of the two directions looks different.) That is one pair of nets and one pair of directions, and pictures persuade
# too easily. So put two numbers on it: walk from the middle outwards in 36 directions of the slice. On what share of
# the steps does the loss rise, as it would in a bowl? And in what share of the slice's disc is the loss below 0.1?

# %%
steps, turns = torch.linspace(0, 0.5, 21), 2 * math.pi * torch.arange(36) / 36
rays = torch.stack([turns.cos(), turns.sin()], dim=1)[:, None] * steps[:, None]       # (36, 21, 2)


def bowl(residual, seed):
    losses = torch.stack([losses_around(nets[residual, seed], residual, ray, seed) for ray in rays])    # (36, 21)
    rising = (losses.diff(dim=1) > 0).float().mean().item()
    low = ((losses < 0.1) * steps).sum() / (steps.sum() * 36)         # a ring counts for more, the larger it is
    return rising, low.item()


bowls = {residual: [bowl(residual, seed) for seed in range(3)] for residual in (False, True)}
for residual, measured in bowls.items():
    said = "   ".join(f"rising {rising:.0%}, low {low:.0%}" for rising, low in measured)
    print("residual:   " if residual else "no residual:", said)

# %%
for seed in range(3):
    assert bowls[True][seed][0] > bowls[False][seed][0] + 0.03, "more of it slopes towards the middle"
assert sum(low for _, low in bowls[True]) > 1.5 * sum(low for _, low in bowls[False]), "and the bottom is wider"

# %% [markdown] erratum="the residual from the normalised x; no final norm"
# For each seed the net with residual connections has the smoother slice, and on average more than one and a half times
# as much low ground. "Thought to smooth the loss landscape", as two decks say, is carefully put and holds
# here. Two things have not been shown. Both nets have norms, so we do not know what the plus sign would do alone (take
# the two `F.layer_norm` out of `spiral_loss`, and see). And a landscape seen from the place where training has ended
# does not prove anything about how one gets there. It suggests.
#
# ## A bug that the loss does not show
#
# One deck ends its lecture with code, a small language model in fifty lines. This is the heart of its block, in our
# words:
#
# ```python
# x = norm_1(x)                  # pre-normalisation
# x = x + attention(x)           # residual connection
# x = norm_2(x)                  # pre-normalisation
# x = x + feed_forward(x)        # residual connection
# ```
#
# The comments tell what is meant. The model runs; it was trained, and its loss fell. *Read it again. What is wrong,
# and will a training run show it?*
#
# > **On the slide.** Each norm's result is stored under the name x, so it is the *normalised* x to which attention's
# > finding is added: the slip of the other deck's equation, come to life. The free path is gone. And after the last
# > block the deck goes straight to the output layer: there is no final norm either, which a pre-norm stack needs.
#
# Let us train three models, two deep, on three seeds each: the block as printed, the block repaired, and the repaired
# one with a final norm. *How far apart will they be?*

# %%
WIRINGS["as printed"] = lambda x, sublayer, norm: (heard := norm(x)) + sublayer(heard)
MODELS = {
    "as printed": ("as printed", False), "block repaired": ("pre-norm", False), "and final norm": ("pre-norm", True),
}
final = {}
for name, (kind, final_norm) in MODELS.items():
    final[name] = []
    for seed in range(3):
        model, _ = train(kind, depth=2, lr=5e-3, warm_up=30, steps=90, seed=seed, final_norm=final_norm)
        with torch.no_grad():
            final[name].append(loss_of(model, torch.arange(1000)).item())
viz.strip_plot(final, "loss on all numbers (nats a letter)")

# %%
means = {name: sum(losses) / 3 for name, losses in final.items()}
spread = max(max(losses) - min(losses) for losses in final.values())
print({name: round(mean, 3) for name, mean in means.items()}, " spread over seeds", round(spread, 3))
assert abs(means["as printed"] - means["block repaired"]) < spread, "within the luck of the draw"

# %% [markdown]
# You would not have found it here. Between the wrong block and the right one lie a few hundredths of a nat at most,
# less than between one seed and another; on the saved page the wrong one is even ahead. Nobody who looks at loss curves
# can see this.
#
# But ask for a *property*, and it takes a millisecond. If the sublayers are silent, a pre-norm block must return its
# input. That follows from the equation, for every x, before any training:

# %%
def moves_when_silent(kind, d=32):
    torch.manual_seed(0)
    attend, feed_forward = MultiHeadAttention(d, n_heads=4), FeedForward(d, 4 * d)
    block = nn.Sequential(Wired(kind, attend, d), Wired(kind, feed_forward, d))
    for last in (attend.output, feed_forward.down):       # what each of them writes with
        nn.init.zeros_(last.weight)
        nn.init.zeros_(last.bias)
    x = 2 * torch.randn(3, 5, d) + 1                      # (batch, n, d)  neither centred nor of size one
    return (block(x) - x).abs().max().item()


for kind in ("as printed", "pre-norm"):
    print(f"{kind:>10}: x moves by {moves_when_silent(kind):.3f}")
assert moves_when_silent("pre-norm") == 0 and moves_when_silent("as printed") > 1

# %% [markdown]
# This is a **structural test**: it does not ask whether a model is good, but whether it is what it says it is. You
# have met others, the leak test of [lecture @masking](@masking), the shuffle of [lecture
# @self_attention](@self_attention), the same answer at every batch size above. They need no data and no training, and they
# fail loudly.
#
# > **Check yourself.** What would be a structural test for a post-norm block? Silent sublayers do not make it the
# > identity.
# > <details><summary>Answer</summary>Several will do. With silent sublayers it must be norm(norm(x)), which for norms
# > without gain and bias is norm(x). Its output has mean 0 and variance 1 for every word if gain is 1 and bias 0.
# > With silent sublayers, ten times x must give the same as x.</details>
#
# ## Caught by its own wiring
#
# What *is* the printed block, if it is not pre-norm? Write down two blocks of it, and set the brackets elsewhere.
#
# $$
# \operatorname{norm}\ \bigl[\,x + f(x) \to \operatorname{norm}\,\bigr]\ \bigl[\,x + g(x) \to \operatorname{norm}\,\bigr]\
# \bigl[\,x + f'(x) \to \operatorname{norm}\,\bigr]\ \dots
# $$
#
# Norm, add, norm, add, norm, add. Each bracket is "Add & Norm". *It is a post-norm stack*, with a norm in front and
# the last one missing, not just similar to one but the same function, number by number:

# %%
torch.manual_seed(0)
d, depth = 32, 12
norms = [LayerNorm(d) for _ in range(depth + 1)]
for norm in norms:                                        # gains and biases as if they had been trained
    nn.init.normal_(norm.weight, mean=1.0, std=0.2)
    nn.init.normal_(norm.bias, std=0.2)
sublayers = [FeedForward(d, 4 * d) for _ in range(depth)]
start = torch.randn(3, 5, d)                              # (batch, n, d)

x = start
for norm, sublayer in zip(norms, sublayers, strict=False):
    x = WIRINGS["as printed"](x, sublayer, norm)
x = norms[-1](x)                                          # the norm that is missing at the end

y = norms[0](start)
for norm, sublayer in zip(norms[1:], sublayers, strict=True):
    y = WIRINGS["post-norm"](y, sublayer, norm)
assert torch.equal(x, y)

# %% [markdown]
# So the loss was not blind after all; it had nothing to complain of. Two blocks deep, with a warm-up, post-norm
# trains as well as pre-norm. But now you can *predict* how the printed model will behave, from the equation alone.
# Six deep, at the full rate from the first step: what will its curve look like?

# %%
for name, warm_up in WARM_UPS.items():
    trained[name, "as printed"] = train("as printed", depth=6, warm_up=warm_up)
both = ("as printed", "pre-norm")
shown = {f"{kind}, {name}": trained[name, kind][1] for name in WARM_UPS for kind in both}
viz.curves(shown, y_name="loss (nats a letter)", log_y=True)
ends = [at_the_end(trained[name, "as printed"][1]) for name in WARM_UPS]
assert ends[0] > 2 > 1 > ends[1], "stuck at the full rate, fine with a warm-up: as post-norm is"

# %% [markdown]
# As predicted. Whoever takes that code, believes its comments, makes it six blocks deep and leaves out the warm-up
# "because pre-norm does not need one", will look for the fault everywhere but in four lines that have always worked.
#
# That is worth more than this one bug. The loss answers one question, whether something is learned at this size with
# these settings. What a model *is* must be asked in other ways. The last lecture of the course collects what the
# decks have wrong, and a test for each.
#
# ## What you have
#
# A path around each sublayer, so that there is always a way that no layer can block. A norm, so that no layer hears
# anything that is too loud. The norm on the side road, so that the path stays free, and one more at the end. With
# these the two sublayers become a block that can be stacked as high as one can pay for; in [lecture
# @transformer](@transformer) it becomes a Transformer.
#
# > **Check yourself.** One deck says of residual connections, norms and the scaled dot product that these tricks do
# > not improve what a model *is able* to do, only how it trains. For which of the three is that exactly true?
# > <details><summary>Answer</summary>For the scale it is: W_Q can take up any factor. For the residual connection
# > nearly so, as a feed-forward network with enough hidden numbers can represent x + f(x); but a head that averages
# > over the other words cannot pass a word's own vector on unchanged as well, so around attention it does add
# > something (lecture @masking). A norm even takes something away, the vector's size. It is right in spirit: what they buy
# > is training.</details>
#
# On a GPU these experiments could be run at the sizes that matter; nothing in the code of the wirings would change.
#
# **In the package.** `attncourse.layers` has `LayerNorm` and `RMSNorm` (and both as functions).
# `attncourse.transformer.Block` has the two wirings around attention and feed-forward network, a line for each
# sublayer; `norm_place`, `norm` and `final_norm` in its config choose. That a block with zeroed sublayers returns its
# input is one of the package's tests.
#
# **Read next.** Ba, Kiros and Hinton, *Layer normalization* (2016): section 3. He et al., *Deep residual
# learning for image recognition* (2016): figure 1, deeper is worse; and *Identity mappings in deep residual networks*
# (2016), on the free path. Xiong et al., *On layer normalization in the Transformer
# architecture* (2020): figure 1 and section 3, on the gradients near the output. Liu et al., *Understanding the
# difficulty of training Transformers* (2020), on what else there is to it. Zhang and Sennrich, *Root mean square
# layer normalization* (2019). Xu et al., *Understanding and improving layer normalization* (2019). Li et al.,
# *Visualizing the loss landscape of neural nets* (2018): the section on filter normalisation, and then the pictures.
