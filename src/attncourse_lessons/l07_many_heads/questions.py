"""What a professor would ask of multi-head attention: each answer is computed by running it."""

import torch

from attncourse.attention import MultiHeadAttention
from lessonkit.authoring.questions.question import ask


def _size(**made):
    return sum(p.numel() for p in MultiHeadAttention(**made).parameters())


def parameters_and_heads(lots):
    d, h = lots.choice([128, 256, 512]), lots.choice([2, 4, 8])
    one, many = (_size(d_model=d, n_heads=heads, bias=False) for heads in (1, h))
    return ask(
        f"Multi-head attention, d_model = {d}, no biases: from 1 head to {h} heads of width d_model / h. "
        "How many parameters before, how many after?",
        *((f"{before:,} and {after:,}", (before, after) == (one, many), why) for before, after, why in (
            (4 * d * d, 4 * d * d, "The heads share out the columns of the same W_Q, W_K, W_V; W_O is (d, d)."),
            (4 * d * d, 4 * d * d * h, "Each head is narrower by the factor that there are more of them."),
            (3 * d * d, 3 * d * d + d * d, "W_O is there with one head, too."),
            (4 * d * d * h, 4 * d * d, "Splitting a width neither adds nor saves parameters."),
        )),
    )  # fmt: skip


def weights_shape(lots):
    batch, n, h = lots.sample([2, 3, 4, 5, 6, 8, 10], 3)
    d = h * lots.choice([3, 7])
    layer = MultiHeadAttention(d, h)
    weights: list[torch.Tensor] = []
    layer(torch.zeros(batch, n, d), weights=weights)
    seen = tuple(weights[0].shape)
    return ask(
        f"x: ({batch}, {n}, {d}), {h} heads. What shape do the attention weights have?",
        *((str(shape), shape == seen, why) for shape, why in {
            (batch, h, n, n): "A table of n² weights for each head of each sentence.",
            (batch, n, n): "That is one head's: heads have weights of their own.",
            (batch, h, n, d // h): "That is the shape of the queries, split into heads.",
            (batch, n, h, h): "Heads do not attend to each other: tokens do.",
        }.items()),
    )  # fmt: skip


def cache_of_gqa(lots):
    h, groups, d_head = lots.choice([32, 48]), lots.choice([2, 4, 8]), 64
    full, shared = (_kv_numbers(h, kv, d_head) for kv in (h, groups))
    factor = full // shared
    return ask(
        f"{h} query heads share {groups} heads of keys and values (GQA). By what factor is the KV cache smaller than with "
        "multi-head attention?",
        *((str(value), value == factor, why) for value, why in {
            h // groups: "The cache holds keys and values alone: as many heads of them as there are groups.",
            groups: "That is how many heads of keys and values are left.",
            h: "That is MQA: one head of keys and values for all.",
            h - groups: "That is how many heads are saved: a difference, not a factor.",
        }.items()),
    )  # fmt: skip


def _kv_numbers(heads, kv_heads, d_head):
    layer = MultiHeadAttention(heads * d_head, heads, n_kv_heads=kv_heads, bias=False)
    return sum(p.numel() for p in layer.parameters()) - 2 * (heads * d_head) ** 2


def rank_of_a_head(lots):
    d, h = lots.choice([(32, 4), (64, 4), (96, 6), (128, 8)])
    W_Q, W_K = torch.randn(2, d, d // h, generator=torch.Generator().manual_seed(h), dtype=torch.float64)
    seen = int(torch.linalg.matrix_rank(W_Q @ W_K.mT))
    return ask(
        f"d_model = {d}, {h} heads. The scores of one head before the softmax are x (W_Q W_Kᵀ) xᵀ / √d_k. "
        "What rank has the matrix W_Q W_Kᵀ at most?",
        *((str(value), value == seen, why) for value, why in {
            d // h: "It goes through d_k = d_model / h dimensions: more heads, lower rank each.",
            d: "That is the rank with one head.",
            h: "The number of heads is not the width of a head.",
            2 * d // h: "The rank of a product is at most that of each factor; they do not add.",
        }.items()),
    )  # fmt: skip


def scale_in_a_head(lots):
    d, h = lots.choice([(64, 4), (768, 12), (512, 8), (1024, 16)])
    generator = torch.Generator().manual_seed(d)
    q, k = torch.randn(2, 20_000, d // h, generator=generator)
    seen = float((q * k).sum(1).std())
    return ask(
        f"d_model = {d}, {h} heads, and the entries of queries and keys have variance 1. By what number must the scores of a head be "
        "divided to have variance 1?",
        *((f"{value:.4g}", abs(value / seen - 1) < 0.05, why) for value, why in {
            (d / h) ** 0.5: "√d_k, and d_k = d_model / h is the width of the vectors that are multiplied.",
            d**0.5: "√d_model would be right for one head.",
            d / h: "That is the variance; divide by its root.",
            h**0.5: "The number of heads does not enter the sum.",
        }.items()),
    )  # fmt: skip


def subtracting_heads(lots):
    factor = lots.choice([2, 3, 5])
    x, y = torch.randn(2, 1000, generator=torch.Generator().manual_seed(0))
    share = torch.linspace(0, 1, 101)[:, None]                            # one head's weight on x
    averages, wanted = share * x + (1 - share) * y, factor * (x - y)      # (101, 1000), (1000,)
    fit = (averages @ wanted) ** 2 / (averages.square().sum(1) * wanted.square().sum())    # after the best factor of W_O
    one_is_enough = bool(fit.max() > 0.99)
    return ask(
        f"Two tokens have the values x and y, any two numbers, on which the attention weights do not depend. A layer is to "
        f"give {factor}x − {factor}y. What is the least that this takes?",
        ("two heads, and an output matrix W_O with a minus", not one_is_enough,
         "Each head gives an average of the values. W_O adds the heads up with any factors and signs."),
        ("one head whose attention weights are negative", False, "Weights come from a softmax: they are positive."),
        ("one head, if its temperature is low enough", one_is_enough,
         "At a low temperature it hands on one of the values, and W_O can only multiply that."),
        ("two heads whose outputs are concatenated, without any W_O", False, "Side by side they are two numbers; nothing subtracts them."),
    )  # fmt: skip
