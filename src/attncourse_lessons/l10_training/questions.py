"""What a professor would ask of training: each answer is computed by running it."""

import math

import torch
from torch import nn
from torch.nn import functional as F

from lessonkit.authoring.questions.question import ask


def bytes_of_training(lots):
    millions = lots.choice([100, 250, 500])
    weight = nn.Parameter(torch.ones(10))
    optimizer = torch.optim.AdamW([weight])
    weight.sum().backward()
    optimizer.step()
    assert weight.grad is not None
    held = [weight, weight.grad, *(part for part in optimizer.state[weight].values() if part.shape == weight.shape)]
    seen = sum(part.numel() * part.element_size() for part in held) // 10 * millions
    return ask(
        f"A model of {millions} million parameters is trained in float32 with AdamW. How much memory do weights, gradients and "
        "optimiser take together (without activations)?",
        *((f"{value / 1000:g} GB", value == seen, why) for value, why in {
            16 * millions: "16 bytes per parameter: the weight, its gradient and AdamW's two averages, 4 bytes each.",
            4 * millions: "Those are the weights alone.",
            8 * millions: "AdamW keeps two averages for each parameter: m and v.",
            12 * millions: "One average would be SGD with momentum.",
        }.items()),
    )  # fmt: skip


def first_adam_step(lots):
    gradient, rate = lots.choice([0.01, 5.0, 200.0]), lots.choice([0.001, 0.01])
    weight = nn.Parameter(torch.zeros(1, dtype=torch.float64))
    optimizer = torch.optim.AdamW([weight], lr=rate, weight_decay=0.0)
    weight.grad = torch.full_like(weight, gradient)
    optimizer.step()
    seen = abs(weight.item())
    return ask(
        f"The first step of Adam, learning rate {rate:g}, and a weight's gradient is {gradient:g}. How far does the weight move?",
        *((f"about {value:g}", math.isclose(value, seen, rel_tol=1e-3), why) for value, why in {
            rate: "After bias correction m/√v is g/|g|: the first step is the learning rate, whatever the gradient's size.",
            rate * gradient: "That is SGD. Adam divides by the gradient's size.",
            0.1 * rate: "Without bias correction m would be (1 − β₁) g; and √v would be small, too.",
            rate * gradient**2: "The squared gradient stands below the line, under a root.",
        }.items()),
    )  # fmt: skip


def accumulation(lots):
    sizes = lots.choice([(2, 6), (3, 5), (1, 7)])
    generator = torch.Generator().manual_seed(sizes[0])
    x, w = torch.randn(8, 3, generator=generator, dtype=torch.float64), torch.zeros(3, requires_grad=True, dtype=torch.float64)
    target = torch.randn(8, generator=generator, dtype=torch.float64)

    def gradient(loss):
        return torch.autograd.grad(loss, w)[0]

    whole = gradient(F.mse_loss(x @ w, target))
    one, two = (gradient(F.mse_loss(a @ w, b)) for a, b in zip(x.split(sizes), target.split(sizes), strict=True))

    def same(a, b):
        return torch.allclose(a * one + b * two, whole)

    first, second = sizes
    return ask(
        f"A batch of 8 examples is split into parts of {first} and {second}, whose mean losses have the gradients g₁ and g₂. "
        "Which sum is the gradient of the whole batch's mean loss?",
        (f"({first} g₁ + {second} g₂) / 8", same(first / 8, second / 8), "Each part counts by its number of examples."),
        ("(g₁ + g₂) / 2", same(0.5, 0.5), "A mean of means: right only where the parts are of equal size."),
        ("g₁ + g₂", same(1, 1), "Gradients add up in `.grad`: each loss must be divided first."),
        (f"({second} g₁ + {first} g₂) / 8", same(second / 8, first / 8), "The weights are exchanged: the larger part counts more."),
    )  # fmt: skip


def label_smoothing(lots):
    classes, epsilon = lots.choice([5, 10, 20]), lots.choice([0.1, 0.2])
    target = torch.zeros(1, dtype=torch.long)

    def loss(p):
        rest = torch.full((1, classes - 1), (1 - p) / (classes - 1), dtype=torch.float64)
        log = torch.cat([torch.tensor([[p]], dtype=torch.float64), rest], 1).log()
        return float(F.cross_entropy(log, target, label_smoothing=epsilon))

    values = {
        1 - epsilon + epsilon / classes: "ε is spread over *all* classes, the true one among them.",
        1 - epsilon: "So it would be if ε were spread over the wrong classes alone.",
        1 - epsilon / classes: "The whole of ε is taken from the true class, and 1/classes of it given back.",
        0.9999: "That is the aim without smoothing: there the loss has no minimum at all.",
    }
    best = min(values, key=loss)
    return ask(
        f"Cross-entropy with label smoothing ε = {epsilon}, {classes} classes (torch's, over all classes). Which probability of the "
        "true class has the smallest loss?",
        *((f"{value:.4g}", value == best, why) for value, why in values.items()),
    )


def clipping(lots):
    a, b, limit = lots.choice([(3.0, 4.0, 1.0), (6.0, 8.0, 5.0), (0.3, 0.4, 1.0)])
    weight = nn.Parameter(torch.zeros(2))
    weight.grad = torch.tensor([a, b])
    nn.utils.clip_grad_norm_([weight], limit)
    norm = (a * a + b * b) ** 0.5
    small = norm <= limit
    values = {
        (a * limit / norm, b * limit / norm) if not small else (a, b): "The norm is "
        f"{norm:g}: " + ("at most the limit, so nothing happens." if small else "all entries are multiplied by limit / norm."),
        (min(a, limit), min(b, limit)) if not small else (a * limit / norm, b * limit / norm):
        "Clipping by norm keeps the direction, and it never lengthens a gradient.",
        (limit / 2, limit / 2): "The gradient's direction is kept.",
        (a / limit / 2, b / limit / 2): "The divisor is norm / limit, and only where it is above one.",
    }  # fmt: skip
    return ask(
        f"The gradient is ({a:g}, {b:g}), and it is clipped to a norm of {limit:g}. What is it then?",
        *((f"({x:.3g}, {y:.3g})", torch.allclose(weight.grad, torch.tensor([x, y]), atol=1e-3), why)
          for (x, y), why in values.items()),
    )  # fmt: skip


def half_precision(lots):
    small, large = lots.choice([1e-9, 1e-10]), lots.choice([70_000.0, 100_000.0])

    def told(dtype):
        return (bool(torch.tensor(small).to(dtype) == 0), bool(torch.tensor(large).to(dtype).isinf()))

    seen = (told(torch.float16), told(torch.bfloat16))
    return ask(
        f"A gradient of {small:g} and a score of {large:,.0f} are stored in float16 and in bfloat16. What is lost?",
        *((text, flags == seen, why) for text, flags, why in (
            ("in float16 both; in bfloat16 neither", ((True, True), (False, False)),
             "float16 has 5 bits of exponent: 6·10⁻⁸ to 65,504. bfloat16 has float32's 8, and fewer digits."),
            ("in float16 neither; in bfloat16 both", ((False, False), (True, True)), "It is bfloat16 that has float32's range."),
            ("in both formats both", ((True, True), (True, True)), "bfloat16 has as many bits of exponent as float32."),
            ("in float16 the gradient; in bfloat16 the score", ((True, False), (False, True)), "float16 ends at 65,504."),
        )),
    )  # fmt: skip
