"""What a professor would ask of masks and the feed-forward network: each answer is computed by running it."""

import torch

from attncourse.attention import causal_mask, window_mask
from attncourse.layers import FeedForward
from lessonkit.authoring.questions.question import ask


def pairs_in_a_causal_mask(lots):
    n = lots.choice([6, 8, 10, 12, 20])
    seen = int(causal_mask(n).sum())
    return ask(
        f"A causal mask over {n} tokens: how many pairs (query, key) are allowed?",
        *((str(value), value == seen, why) for value, why in {
            n * (n + 1) // 2: "1 + 2 + … + n: token i sees the tokens up to i, itself among them.",
            n * (n - 1) // 2: "The diagonal is allowed, too: a token may attend to itself.",
            n * n // 2: "The whole diagonal is allowed, not half of it.",
            n * n: "That is bidirectional attention.",
        }.items()),
    )  # fmt: skip


def pairs_in_a_window(lots):
    n, w = lots.choice([10, 12, 16]), lots.choice([3, 4, 5])
    seen = int((causal_mask(n) & window_mask(n, window=w)).sum())
    return ask(
        f"A causal window: each of {n} tokens sees itself and the {w - 1} tokens before it. How many pairs are allowed?",
        *((str(value), value == seen, why) for value, why in {
            n * w - w * (w - 1) // 2: "w for each token, less what the first ones lack.",
            n * w: "The first tokens have fewer than w tokens to see.",
            n * (2 * w - 1): "A causal window has one side.",
            n * (n + 1) // 2: "That is the causal mask without a window.",
        }.items()),
    )  # fmt: skip


def ffn_parameters(lots):
    d = lots.choice([64, 128, 256, 512])
    seen = sum(p.numel() for p in FeedForward(d, 4 * d).parameters())
    return ask(
        f"A position-wise feed-forward network, d_model = {d}, d_ff = {4 * d}, with biases. How many parameters does it have?",
        *((f"{value:,}", value == seen, why) for value, why in {
            8 * d * d + 5 * d: "Two matrices of d · 4d, a bias of 4d and one of d.",
            8 * d * d: "That leaves out the two biases.",
            4 * d * d + 4 * d: "That is the first of its two maps.",
            16 * d * d + 8 * d: "The hidden width meets d_model twice, and never itself.",
        }.items()),
    )  # fmt: skip


def position_wise(lots):
    n, changed = 6, lots.randint(0, 5)
    generator = torch.Generator().manual_seed(changed)
    layer, x = FeedForward(4, 8), torch.randn(n, 4, generator=generator)
    other = x.clone()
    other[changed] += 1
    differ = (layer(x) != layer(other)).any(1).nonzero().flatten().tolist()
    return ask(
        f"One of {n} tokens, number {changed + 1}, is changed before a feed-forward network. Which rows of its output change?",
        (f"row {changed + 1} alone", differ == [changed], "Position-wise: the same network for each token by itself."),
        (f"the rows from {changed + 1} on", differ == list(range(changed, n)) and changed < 5, "That would be so behind a causal mask."),
        ("all six rows", len(differ) == n, "That would be so in self-attention without a mask. Here no token meets another."),
        ("none of the rows", not differ, "A row depends on its own token."),
    )  # fmt: skip


def leak(lots):
    n = lots.randint(5, 8)
    i = lots.randint(2, n - 2)
    reach = causal_mask(n)[i - 1].nonzero().flatten() + 1
    seen = (int(reach.min()), int(reach.max()))
    return ask(
        f"A language model with a causal mask reads tokens t₁ … t_{n}. Which tokens may its output at position {i} depend on, "
        f"and which token is it to predict?",
        *((text, (low, high) == seen and predicts == i + 1, why) for text, low, high, predicts, why in (
            (f"t₁ … t_{i}, to predict t_{i + 1}", 1, i, i + 1, "Position i has read token i, and predicts the next."),
            (f"t₁ … t_{i}, to predict t_{i}", 1, i, i, "A target leak: it would predict what it has read."),
            (f"t₁ … t_{i - 1}, to predict t_{i + 1}", 1, i - 1, i + 1, "The diagonal is allowed: t_i is read at position i."),
            (f"t₁ … t_{i + 1}, to predict t_{i + 1}", 1, i + 1, i + 1, "A mask one column too wide: the answer is read."),
        )),
    )  # fmt: skip


def linear_without_activation(lots):
    d, hidden = lots.choice([4, 8]), lots.choice([16, 32, 64])
    generator = torch.Generator().manual_seed(hidden)
    W1, W2 = torch.randn(d, hidden, generator=generator), torch.randn(hidden, d, generator=generator)
    rank = int(torch.linalg.matrix_rank(W1 @ W2))
    return ask(
        f"A feed-forward network {d} → {hidden} → {d} has lost its activation function. What can it still compute?",
        (f"any linear map of {d} numbers, no more", rank == d, f"x W₁ W₂ is one linear map, of rank {d} at most: XOR is none of them."),
        (f"linear maps of rank {hidden}", rank == hidden, f"The product of the two matrices is ({d}, {d}): its rank is at most {d}."),
        ("XOR, given enough hidden units", False, "However wide, two linear maps in a row are linear."),
        ("the identity map of its tokens, and no other", False, "W₁ W₂ can be any matrix, since the hidden layer is wide enough."),
    )  # fmt: skip
