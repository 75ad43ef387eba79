"""What a professor would ask of attention beyond text: each answer is computed by running it."""

import math

import torch

from attncourse.beyond_text import contrastive_loss, count_frames, patchify
from lessonkit.authoring.questions.question import ask


def patches(lots):
    size, patch, channels = lots.choice([(224, 16, 3), (32, 4, 3), (28, 7, 1), (64, 8, 3)])
    seen = tuple(patchify(torch.zeros(1, channels, size, size), patch).shape[1:])
    n = (size // patch) ** 2
    return ask(
        f"An image of {size} × {size} pixels with {channels} channel{'s' * (channels > 1)} is cut into patches of {patch} × {patch}. "
        "How many tokens is that, of how many numbers each?",
        *((f"{a:,} tokens of {b:,}", (a, b) == seen, why) for a, b, why in (
            (n, patch * patch * channels, "(size / patch)² tokens; a patch holds all of its pixels in all channels."),
            (size // patch, patch * patch * channels, "There are as many rows of patches as columns: the square."),
            (n, patch * channels, "A patch is as high as it is wide."),
            (n * channels, patch * size, "Channels belong to one token: they are no further tokens."),
        )),
    )  # fmt: skip


def halved_patches(lots):
    size, patch = lots.choice([(224, 32), (64, 16), (32, 8)])
    tokens = [patchify(torch.zeros(1, 1, size, size), p).shape[1] for p in (patch, patch // 2)]
    seen = (tokens[1] / tokens[0]) ** 2
    return ask(
        f"The side of a ViT's patches is halved, from {patch} to {patch // 2}. By what factor does the number of "
        "attention weights (without the class token) grow?",
        *((str(value), value == seen, why) for value, why in {
            16: "Four times the tokens, and weights are a number for every pair: 4².",
            4: "That is the number of tokens.",
            2: "That is the number of patches along one side.",
            64: "A weight belongs to two tokens, not to three.",
        }.items()),
    )  # fmt: skip


def frames(lots):
    kernels, strides = lots.choice([((10, 3), (5, 2)), ((8, 4), (4, 2)), ((10, 3, 3), (5, 2, 2))])
    n = lots.choice([400, 800, 1600])
    seen = count_frames(n, kernels, strides)
    product = math.prod(strides)
    layers = ", then ".join(f"kernel {k} and stride {s}" for k, s in zip(kernels, strides, strict=True))
    shifted = n
    for k, s in zip(kernels, strides, strict=True):
        shifted = (shifted - k) // s
    return ask(
        f"{n} samples go through convolutions without padding: {layers}. How many frames come out?",
        *((str(value), value == seen, why) for value, why in {
            seen: "Each layer gives ⌊(length − kernel) / stride⌋ + 1.",
            n // product: "That leaves out the kernels' width: the last ones do not fit.",
            n // max(strides): "Strides of several layers multiply.",
            shifted: "The first place of the kernel counts, too: + 1 in each layer.",
        }.items()),
    )  # fmt: skip


def chance_of_contrast(lots):
    negatives = lots.choice([4, 9, 99])
    target = torch.ones(3, 5)
    loss = float(contrastive_loss(target, target, torch.ones(3, negatives, 5)).mean())
    return ask(
        f"A contrastive loss: the true target among {negatives} negatives. What is it if the model cannot tell them apart at all?",
        *((text, math.isclose(value, loss, rel_tol=1e-4), why) for text, value, why in (
            (f"log {negatives + 1} nats", math.log(negatives + 1), "Equal scores for the target and all negatives: cross-entropy of a uniform guess."),
            (f"log {negatives} nats", math.log(negatives), "The target itself is among those on offer."),
            (f"1/{negatives + 1} nats", 1 / (negatives + 1), "That is the probability, not its logarithm."),
            ("0 nats, its smallest", 0.0, "0 is the loss of a model that is sure and right."),
        )),
    )  # fmt: skip


def parameters_per_position(lots):
    size, patch, d = lots.choice([(224, 16, 768), (64, 8, 128), (32, 4, 192)])
    n = patchify(torch.zeros(1, 1, size, size), patch).shape[1]
    seen = torch.nn.Embedding(n + 1, d).weight.numel()
    return ask(
        f"A ViT with {size} × {size} images, patches of {patch}, a class token and d_model = {d} learns its positions. "
        "How many numbers are these?",
        *((f"{value:,}", value == seen, why) for value, why in {
            (n + 1) * d: "A row of width d_model for each patch, and one for the class token.",
            n * d: "The class token has a position, too.",
            n + 1: "Each position is a vector.",
            size * size * d: "Positions are of patches, not of pixels.",
        }.items()),
    )  # fmt: skip


def order_of_patches(lots):
    generator = torch.Generator().manual_seed(lots.randint(0, 999))
    tokens, W = torch.randn(9, 6, generator=generator), torch.randn(6, 6, generator=generator)
    positions = torch.randn(9, 6, generator=generator)
    order = torch.tensor([4, 8, 0, 2, 6, 1, 3, 7, 5])

    def mean_output(x):
        return ((x @ W @ x.mT).softmax(-1) @ x).mean(0)

    without = torch.allclose(mean_output(tokens), mean_output(tokens[order]), atol=1e-4)
    with_positions = torch.allclose(mean_output(tokens + positions), mean_output(tokens[order] + positions), atol=1e-4)
    return ask(
        "The patches of an image are shuffled. A ViT takes the *mean* of its outputs. Is its prediction the same?",
        *((text, (without, with_positions) == pair, why) for text, pair, why in (
            ("without positions yes, with positions no", (True, False), "Attention is equivariant and a mean invariant: only positions tell."),
            ("without positions no, with positions yes", (False, True), "Positions are added by *place*: a shuffled patch gets another one."),
            ("yes, with positions and without them", (True, True), "With positions a patch is another token in another place."),
            ("no, with positions and without them", (False, False), "Without positions nothing in the layer knows a place."),
        )),
    )  # fmt: skip
