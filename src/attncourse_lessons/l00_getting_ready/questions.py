"""What a professor would ask of tensors, shapes and autograd: each answer is computed by running it."""

import torch

from lessonkit.authoring.questions.question import ask


def broadcast_shape(lots):
    a, b, c = lots.sample(range(2, 9), 3)
    seen = tuple((torch.zeros(a, 1, c) + torch.zeros(b, 1)).shape)
    shapes = {
        (a, b, c): "Shapes are aligned at the right. An axis of length one stretches: 1 to b, and 1 to c.",
        (a, b, 1): "The last axis of the second tensor is 1: it stretches to the other's length, and not the reverse.",
        (a, 1, c): "The axis of length one stretches to the other's length.",
        (a, c, b): "The axes keep their places: nothing is transposed by broadcasting.",
    }
    return ask(
        f"`x` has shape ({a}, 1, {c}) and `y` has shape ({b}, 1). What is the shape of `x + y`?",
        *((str(shape), shape == seen, why) for shape, why in shapes.items()),
    )


def silent_broadcast(lots):
    n = lots.randint(3, 9)
    difference = torch.zeros(n, 1) - torch.zeros(n)
    return ask(
        f"A model's `output` has shape ({n}, 1), the `target` has shape ({n},). The loss is "
        "`((output - target) ** 2).mean()`. What is averaged?",
        (f"{n} squared differences, one for each example", difference.numel() == n,
         "So it would be with equal shapes. Here the two are aligned at the right, and both stretch."),
        (f"{n * n} squared differences, of every output with every target", difference.numel() == n * n,
         "(n, 1) and (n,) broadcast to (n, n). The loss still falls: the outputs go to the targets' mean."),
        (f"{2 * n} squared differences, since the lists are joined", difference.numel() == 2 * n,
         "Broadcasting joins nothing."),
        ("nothing: unlike shapes raise an error in this subtraction", difference.numel() == 0,
         "Shapes that do not fit raise an error. These fit, and that is the trouble."),
    )  # fmt: skip


def softmax_shift(lots):
    c = lots.randint(2, 90)
    scores = torch.randn(5, generator=torch.Generator().manual_seed(c), dtype=torch.float64)
    before = scores.softmax(0)

    def same(other):
        return torch.allclose(before, other.softmax(0))

    return ask(
        "Which change of the scores e leaves softmax(e) as it was? (e is no constant vector.)",
        (f"adding {c} to every score", same(scores + c), "exp(e + c) = exp(c) exp(e), and exp(c) cancels in the quotient."),
        (f"multiplying every score by {c}", same(scores * c), "A factor is an inverse temperature: it sharpens the weights."),
        (f"adding {c} to the largest score", same(scores + c * (scores == scores.max())),
         "Only what all scores share cancels. Here the largest one gains weight."),
        ("replacing every score by its negative", same(-scores), "Then the smallest score gets the largest weight."),
    )  # fmt: skip


def gradient_accumulates(lots):
    x0, times = lots.randint(2, 6), lots.randint(2, 4)
    x = torch.tensor(float(x0), requires_grad=True)
    for _ in range(times):
        (x**2).backward()
    assert x.grad is not None
    seen = int(x.grad)
    return ask(
        f"```python\nx = torch.tensor({x0}.0, requires_grad=True)\nfor _ in range({times}):\n    (x ** 2).backward()\n```\n\n"
        "What is `x.grad` then?",
        *((f"{value}.0", value == seen, why) for value, why in {
            2 * x0 * times: "`backward` adds to `.grad`: 2x, once for each call. Hence `zero_grad` in a training loop.",
            2 * x0: "So it would be after one call. The second call adds to it.",
            x0**2 * times: "These are the values of x², added up, and not their derivatives.",
            (2 * x0) ** times: "Gradients of several calls are added, not multiplied.",
        }.items()),
    )  # fmt: skip


def all_minus_infinity(lots):
    n = lots.randint(3, 8)
    row = torch.full((n,), -torch.inf).softmax(0)
    return ask(
        f"A row of {n} scores is −∞ throughout. What does `softmax` give?",
        ("NaN in every place", bool(row.isnan().all()), "Every exponential is 0, and so is their sum: 0/0. "
         "(The largest score that is subtracted first is −∞ itself: −∞ − (−∞) is NaN.)"),
        ("0 in every place", bool((row == 0).all()), "The numerators are zeros, and the sum that they are divided by is zero, too."),
        (f"1/{n} in every place", bool(torch.allclose(row, torch.full((n,), 1 / n))),
         "So it is for any equal *finite* scores, −10⁹ for one. That a filled mask with −10⁹ hides the fault is no virtue."),
        ("an error, as −∞ is no number", False, "Floating-point numbers have infinities: nothing is raised."),
    )  # fmt: skip


def einsum_shape(lots):
    b, n, m, d = lots.sample(range(2, 10), 4)
    seen = tuple(torch.einsum("bnd,bmd->bnm", torch.zeros(b, n, d), torch.zeros(b, m, d)).shape)
    return ask(
        f"q: ({b}, {n}, {d})   k: ({b}, {m}, {d}). Which shape has `q @ k.mT`, the dot product of every query with every key?",
        *((str(shape), shape == seen, why) for shape, why in {
            (b, n, m): "d is summed over. A row for each query, a column for each key, in each batch.",
            (b, m, n): "That is `k @ q.mT`: the transpose.",
            (b, n, d): "d is the axis that the product sums over: it goes.",
            (b, b, n, m): "The batch is shared by both: no example meets another one's keys.",
        }.items()),
    )  # fmt: skip
