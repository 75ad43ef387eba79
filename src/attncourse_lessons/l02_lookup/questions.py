"""What a professor would ask of attention as a lookup: each answer is computed by running it."""

import math

import torch

from attncourse.attention import AdditiveScore, BilinearScore, attend
from lessonkit.authoring.questions.question import ask


def temperature_limits(lots):
    scores = torch.randn(5, generator=torch.Generator().manual_seed(lots.randint(0, 999)), dtype=torch.float64)
    cold, hot = (scores / 1e-4).softmax(0), (scores / 1e6).softmax(0)
    one_hot = (scores == scores.max()).double()
    even = torch.full((5,), 0.2, dtype=torch.float64)

    def holds(as_cold, as_hot):
        return torch.allclose(cold, as_cold) and torch.allclose(hot, as_hot, atol=1e-5)

    return ask(
        "The weights are softmax(e / T), and no two scores are equal. What do they become as T → 0, and as T → ∞?",
        ("T → 0: all on the largest score; T → ∞: all equal", holds(one_hot, even),
         "A small T widens the differences: hard attention. A large T removes them: the mean."),
        ("T → 0: all equal; T → ∞: all on the largest score", holds(even, one_hot), "T divides: it is the other way round."),
        ("T → 0: all zero; T → ∞: all on the largest score", holds(0 * even, one_hot), "Weights sum to one at every T."),
        ("T → 0: all on the largest score; T → ∞: all zero", holds(one_hot, 0 * even), "Weights sum to one at every T."),
    )  # fmt: skip


def variance_of_a_dot_product(lots):
    d = lots.choice([16, 64, 256])
    generator = torch.Generator().manual_seed(d)
    q, k = torch.randn(2, 200_000 // d, 1, d, generator=generator)
    seen = float((q * k).sum(-1).std())
    values = {
        math.sqrt(d): "d terms of variance one add to a variance of d: a standard deviation of √d, which √d_k divides away.",
        float(d): "That is the variance. Scores are divided by their standard deviation.",
        1.0: "That is after the division by √d_k.",
        1 / math.sqrt(d): "That is the standard deviation of the *mean* of d products, q · k / d.",
    }
    return ask(
        f"q and k have {d} independent entries of mean 0 and variance 1. What is the standard deviation of q · k?",
        *((f"{value:.4g}", abs(value / seen - 1) < 0.1, why) for value, why in values.items()),
    )


def output_shape(lots):
    n_q, n_k, d_k, d_v = lots.sample(range(2, 20), 4)
    output, weights = attend(torch.zeros(n_q, d_k), torch.zeros(n_k, d_k), torch.zeros(n_k, d_v))
    seen = (tuple(output.shape), tuple(weights.shape))
    return ask(
        f"{n_q} queries of width {d_k} look up {n_k} keys of width {d_k} with values of width {d_v}. "
        "Which shapes have the output and the weights?",
        *((f"output {pair[0]}, weights {pair[1]}", pair == seen, why) for pair, why in {
            ((n_q, d_v), (n_q, n_k)): "A row for each query: its weights over the keys, and its average of values.",
            ((n_k, d_v), (n_k, n_q)): "Queries ask and are answered: the rows are theirs.",
            ((n_q, d_k), (n_q, n_k)): "Averages of values are as wide as values: keys only decide the weights.",
            ((n_q, n_k, d_v), (n_q, n_k)): "The average sums over the keys: their axis goes.",
        }.items()),
    )  # fmt: skip


def where_outputs_lie(lots):
    values = torch.tensor([[0.0, 0.0], [4.0, 0.0], [0.0, 4.0]])
    generator = torch.Generator().manual_seed(lots.randint(0, 999))
    weights = (5 * torch.randn(2000, 3, generator=generator)).softmax(-1)
    seen = weights @ values
    points = {
        (1, 1): "x and y are at least 0 and x + y is at most 4: a mean of the three with positive weights.",
        (3, 3): "x + y is 6: outside of the triangle of the values. No weights that sum to one reach it.",
        (-1, 2): "x is negative, and no value's is: an average leaves no convex hull.",
        (4, 4): "The sum of two values is none of their averages: that would take weights of 1 and 1.",
    }
    return ask(
        "The values of three keys are (0, 0), (4, 0) and (0, 4). Which output can soft attention give?",
        *((str(point), bool((seen - torch.tensor(point)).norm(dim=1).min() < 0.2), why) for point, why in points.items()),
    )


def parameters_of_scores(lots):
    d_q, d_k, d_a = lots.sample(range(3, 12), 3)
    additive = sum(p.numel() for p in AdditiveScore(d_q, d_k, d_a).parameters())
    bilinear = sum(p.numel() for p in BilinearScore(d_q, d_k).parameters())
    return ask(
        f"Queries have width {d_q}, keys width {d_k}. How many parameters has the **bilinear** score q W kᵀ?",
        *((str(value), value == bilinear, why) for value, why in {
            d_q * d_k: "W is (d_query, d_key): widths need not be equal.",
            additive: f"That is the additive score with a hidden width of {d_a}: two matrices and a vector w.",
            0: "That is the plain dot product, which needs equal widths.",
            d_q + d_k: "A vector for each side would score q and k apart: the two would never meet.",
        }.items()),
    )  # fmt: skip


def scaling_keys(lots):
    factor = lots.choice([3, 10])
    generator = torch.Generator().manual_seed(factor)
    q, k, v = torch.randn(1, 4, generator=generator), torch.randn(6, 4, generator=generator), torch.randn(6, 4, generator=generator)

    def entropy(weights):
        return float(-(weights * weights.log()).sum())

    before, after = attend(q, k, v)[1], attend(q, factor * k, v)[1]
    same_order = bool((before.argsort() == after.argsort()).all())
    sharper, equal = entropy(after) < entropy(before), torch.allclose(before, after)
    return ask(
        f"All keys are multiplied by {factor}. The scores are dot products. What happens to a query's weights?",
        ("They keep their order and become sharper.", same_order and sharper and not equal,
         f"Every score is multiplied by {factor}: as if the temperature were divided by it."),
        ("They keep their order and become more even.", same_order and not sharper and not equal,
         "That is what smaller keys do."),
        ("They stay, as softmax divides the factor away.", equal, "It divides away what is *added* to all scores."),
        ("They change their order, as keys are longer.", not same_order,
         "All scores have the same positive factor: the largest remains the largest."),
    )  # fmt: skip
