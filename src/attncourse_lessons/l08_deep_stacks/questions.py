"""What a professor would ask of residual connections and norms: each answer is computed by running it."""

import torch

from attncourse.layers import LayerNorm, RMSNorm, layer_norm, rms_norm
from lessonkit.authoring.questions.question import ask


def invariances_of_layer_norm(lots):
    a, c = lots.choice([2.0, 3.0, 10.0]), lots.choice([1.0, 5.0])
    x = torch.randn(4, 16, generator=torch.Generator().manual_seed(int(a)), dtype=torch.float64)

    def invariant(norm, change):
        return torch.allclose(norm(x), norm(change(x)), atol=1e-4)

    def norm(y):
        return layer_norm(y, torch.ones(16, dtype=torch.float64), torch.zeros(16, dtype=torch.float64))

    def rms(y):
        return rms_norm(y, torch.ones(16, dtype=torch.float64))

    scaled, moved = [invariant(each, lambda y: a * y) for each in (norm, rms)], [invariant(each, lambda y: y + c) for each in (norm, rms)]
    seen = (scaled[0], moved[0], scaled[1], moved[1])
    return ask(
        f"x is multiplied by {a:g}, or {c:g} is added to every entry. What do LayerNorm and RMSNorm not notice (up to ε)?",
        *((text, flags == seen, why) for text, flags, why in (
            ("LayerNorm: neither; RMSNorm: not the factor", (True, True, True, False), "RMSNorm subtracts no mean, so a shift goes through."),
            ("LayerNorm: neither; RMSNorm: neither", (True, True, True, True), "Without a mean that is subtracted, a shift changes the result."),
            ("LayerNorm: not the factor; RMSNorm: neither", (True, False, True, True), "It is LayerNorm that subtracts the mean."),
            ("LayerNorm: not the shift; RMSNorm: not the factor", (False, True, True, False), "LayerNorm divides by the standard deviation as well."),
        )),
    )  # fmt: skip


def norm_parameters(lots):
    d, layers = lots.choice([64, 128, 256]), lots.choice([6, 12, 24])
    one = [sum(p.numel() for p in norm.parameters()) for norm in (LayerNorm(d), RMSNorm(d))]
    seen = 2 * layers * (one[0] - one[1])
    return ask(
        f"A model of {layers} pre-norm blocks, d_model = {d}, each with two norms, changes from LayerNorm (with bias) to RMSNorm. "
        "How many fewer parameters do these blocks then have?",
        *((f"{value:,}", value == seen, why) for value, why in {
            2 * layers * d: "The bias β of each norm goes; the scale γ stays.",
            4 * layers * d: "RMSNorm keeps a scale γ.",
            layers * d: "There are two norms a block.",
            0: "LayerNorm has a bias, RMSNorm has none.",
        }.items()),
    )  # fmt: skip


def norm_axis(lots):
    batch, n, d = lots.sample([3, 4, 5, 6, 8, 16], 3)
    x = 5 + torch.randn(batch, n, d, generator=torch.Generator().manual_seed(d))
    y = LayerNorm(d)(x)
    zero = {axes: bool(y.mean(axes).abs().max() < 1e-4) for axes in ((2,), (0, 1), (1,), (0,))}
    return ask(
        f"x: ({batch}, {n}, {d}), a batch of sentences. After LayerNorm(d_model) (γ = 1, β = 0), which means are zero?",
        (f"of the {d} features of each token", zero[(2,)] and not zero[(1,)], "Each token is normalised by itself: no other token, and no other sentence, enters."),
        (f"of each feature over all {batch * n} tokens", zero[(0, 1)], "That is batch normalisation: it needs the other sentences."),
        (f"of each feature over a sentence's {n} tokens", zero[(1,)], "Then a token would depend on those after it: a leak."),
        (f"of each feature over the {batch} sentences", zero[(0,)], "Then a sentence's output would depend on the rest of its batch."),
    )  # fmt: skip


def residual_variance(lots):
    layers = lots.choice([8, 16, 32])
    generator = torch.Generator().manual_seed(layers)
    x = torch.randn(20_000, generator=generator)
    for _ in range(layers):
        x = x + torch.randn(20_000, generator=generator)
    seen = float(x.var())
    return ask(
        f"A pre-norm stack: x ← x + f(norm(x)), {layers} times, and each branch adds independent numbers of variance 1 to an x "
        "that begins with variance 1. What variance has x at the end?",
        *((f"{value:.4g}", abs(value / seen - 1) < 0.1, why) for value, why in {
            1.0 + layers: "Variances of independent parts add: linear in depth. (The last norm brings it back to one.)",
            2.0**layers: "That would be branches as large as x itself: here the norm keeps each at variance 1.",
            1.0: "Pre-norm normalises what goes *into* the branch, not the sum.",
            (1.0 + layers) ** 0.5: "That is the standard deviation.",
        }.items()),
    )  # fmt: skip


def residual_gradient(lots):
    layers, slope = lots.choice([12, 20]), lots.choice([0.1, 0.2])
    x = torch.ones(1, requires_grad=True, dtype=torch.float64)
    y = x
    for _ in range(layers):
        y = y + slope * y
    seen = torch.autograd.grad(y.sum(), x)[0].item()
    return ask(
        f"{layers} layers, and each branch f has the derivative {slope}. By what factor does a change of the input reach the top "
        "with residual connections, x + f(x)?",
        *((f"{value:.2g}", abs(value / seen - 1) < 1e-6, why) for value, why in {
            (1 + slope) ** layers: "Each layer multiplies by 1 + f': the 1 is the residual connection's.",
            slope**layers: "That is the stack without them: the product vanishes.",
            1.0: "The branches have a derivative, too.",
            slope * layers: "Layers are composed: factors are multiplied.",
        }.items()),
    )  # fmt: skip


def placement(lots):
    n = lots.choice([4, 8])
    norm = LayerNorm(n)
    x = 100 * torch.randn(3, n, generator=torch.Generator().manual_seed(n))

    def branch(y):
        return 0 * y

    post, pre = norm(x + branch(x)), x + branch(norm(x))
    identity = (torch.allclose(post, x), torch.allclose(pre, x))
    return ask(
        "The last matrix of every branch is zero at the start. Which blocks are then the identity?",
        *((text, pair == identity, why) for text, pair, why in (
            ("pre-norm: x + f(norm(x))", (False, True), "Nothing stands on the residual path: x goes through as it is."),
            ("post-norm: norm(x + f(x))", (True, False), "The norm stands on the residual path, and normalises x."),
            ("both pre-norm and post-norm", (True, True), "Post-norm gives norm(x), which is x for a normalised x alone."),
            ("neither of these two", (False, False), "x + 0 is x: pre-norm has no norm on that path."),
        )),
    )  # fmt: skip
