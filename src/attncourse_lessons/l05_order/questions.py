"""What a professor would ask of positions: each answer is computed by running it."""

import math

import torch

from attncourse.positions import BucketedBias, LearnedPositions, RoPE, ShawRelative, shift_matrix, sinusoidal
from lessonkit.authoring.questions.question import ask


def what_rope_depends_on(lots):
    m, n, shift = lots.randint(5, 9), lots.randint(1, 4), lots.randint(10, 40)
    rope = RoPE(8, 100)
    q, k = torch.randn(2, 1, 8, generator=torch.Generator().manual_seed(shift))

    def score(i, j):
        return float(rope(q, start=i) @ rope(k, start=j).mT)

    seen = score(m, n)
    places = {
        (m + shift, n + shift): "Both are turned further by the same angles: the score depends on the distance m − n alone.",
        (m + shift, n): "The distance has grown: q is turned further, k is not.",
        (n + shift, m + shift): "The distance has changed its sign: the turn goes the other way.",
        (m, n + shift): "The distance has changed: k is turned further, q is not.",
    }
    return ask(
        f"With RoPE a query at position {m} and a key at position {n} have the score s. At which positions have the same two "
        "vectors the score s again?",
        *((f"query at {i}, key at {j}", abs(score(i, j) - seen) < 1e-4, why) for (i, j), why in places.items()),
    )


def rope_and_length(lots):
    x = torch.randn(6, 16, generator=torch.Generator().manual_seed(lots.randint(0, 999)))
    turned = RoPE(16, 64)(x, start=lots.randint(1, 20))
    norms, sums = torch.allclose(x.norm(dim=1), turned.norm(dim=1), atol=1e-4), torch.allclose(x.sum(1), turned.sum(1))
    return ask(
        "What does RoPE leave unchanged in each query and key?",
        ("its norm", norms, "Pairs of columns are *rotated*, and a rotation keeps lengths."),
        ("its direction", torch.allclose(x, turned), "The direction is what it changes: the more, the later the position."),
        ("the sum of its entries", sums, "A rotation keeps the sum of *squares*."),
        ("its score with each key", False, "The scores are what it is for: they come to depend on the distance."),
    )  # fmt: skip


def parameters_of_schemes(lots):
    n, d = lots.choice([128, 512, 1024]), lots.choice([64, 128])

    def learned(module):
        return sum(p.numel() for p in module.parameters())

    values = {
        "learned table": learned(LearnedPositions(n, d)),
        "Shaw": learned(ShawRelative(16, d)),
        "T5": learned(BucketedBias(8)),
        "RoPE": learned(RoPE(d, n)),
    }
    return ask(
        f"Up to {n} positions, width {d}, 8 heads. Which of these learns the most numbers for positions?",
        ("a learned table of absolute positions", values["learned table"] == max(values.values()),
         f"A row of width {d} for each of {n} positions: {values['learned table']:,}."),
        ("Shaw's relative vectors, distances clipped at 16", values["Shaw"] == max(values.values()),
         f"A vector for each of 33 distances, for keys and for values: {values['Shaw']:,}."),
        ("T5's biases, 32 buckets of distances", values["T5"] == max(values.values()),
         f"A number for each bucket and head: {values['T5']:,}."),
        ("RoPE, in each pair of columns", values["RoPE"] == max(values.values()), "Its angles are computed: nothing is learned."),
    )  # fmt: skip


def shift_is_linear(lots):
    k, d = lots.choice([1, 5, 17]), 16
    table = sinusoidal(torch.arange(60), d).double()
    one = torch.allclose(table[:30] @ shift_matrix(k, d).double().mT, table[k : 30 + k], atol=1e-4)
    back = torch.allclose(table[:30] @ shift_matrix(k, d).double(), table[k : 30 + k], atol=1e-4)
    one = one or back
    return ask(
        f"PE(p) is the sinusoidal encoding of position p. What leads from PE(p) to PE(p + {k}), for every p?",
        ("a rotation of each pair of columns", one, "sin and cos of (p + k) θ are a rotation of those of p θ by k θ: one matrix for all p."),
        ("the addition of the vector PE(k)", bool(torch.allclose(table[:30] + table[k], table[k : 30 + k])),
         "sin(a + b) is not sin a + sin b."),
        (f"a multiplication of each column by {k}", bool(torch.allclose(k * table[:30], table[k : 30 + k])), "All entries lie between −1 and 1."),
        ("a matrix that is a different one for every p", not one, "The angle k θ does not contain p."),
    )  # fmt: skip


def slowest_wave(lots):
    d, base = lots.choice([64, 128, 512]), 10000.0
    frequencies = base ** (-torch.arange(0, d, 2).double() / d)
    seen = float(2 * math.pi / frequencies.min())
    values = {
        2 * math.pi * base ** (1 - 2 / d): "The last frequency is base^(−(d − 2)/d): a period of nearly 2π · 10,000.",
        2 * math.pi: "That is the first pair's period, the shortest.",
        (2 * math.pi) ** 2 * base: "2π enters once: a wave of frequency θ has the period 2π / θ.",
        base / (2 * math.pi): "The period is 2π / θ: the factor belongs above.",
    }
    return ask(
        f"Sinusoidal encoding, d_model = {d}, base 10,000: what is the longest period, in positions, about?",
        *((f"{value:,.0f}", math.isclose(value, seen, rel_tol=1e-6), why) for value, why in values.items()),
    )


def relative_table(lots):
    n, clip = lots.choice([50, 100, 200]), lots.choice([4, 8, 16])
    i = torch.arange(n)
    seen = (i[:, None] - i).clamp(-clip, clip).unique().numel()
    return ask(
        f"Shaw's relative positions, {n} tokens, distances clipped at {clip}. How many different vectors are needed for the keys?",
        *((str(value), value == seen, why) for value, why in {
            2 * clip + 1: "Distances −k … k, and 0 is one of them. All that is further shares the outermost.",
            2 * clip: "Distance 0 has a vector, too.",
            2 * n - 1: "So many distances there are without clipping.",
            n * n: "Pairs of equal distance share a vector: that is the point.",
        }.items()),
    )  # fmt: skip
