"""What a professor would ask of language models and the bottleneck: each answer is computed by running it."""

import math

import torch
from torch import nn
from torch.nn import functional as F

from lessonkit.authoring.questions.question import ask


def uniform_perplexity(lots):
    size = lots.choice([50, 100, 500, 1000])
    loss = float(F.cross_entropy(torch.zeros(7, size), torch.arange(7)))
    seen = round(math.exp(loss))
    return ask(
        f"A language model gives each of {size} tokens the same probability, whatever came before. What is its perplexity?",
        *((f"{value:g}", abs(value - seen) < 1e-6, why) for value, why in {
            float(size): f"The loss is log {size} nats per token, and its exponential is {size}: it chooses among as many.",
            round(math.log(size), 2): "That is its cross-entropy in nats: perplexity is the exponential of it.",
            round(math.log2(size), 2): "That is its cross-entropy in bits.",
            round(1 / size, 4): "That is the probability of each token; perplexity is its inverse.",
        }.items()),
    )  # fmt: skip


def perplexity_of_two(lots):
    p, q = lots.sample([0.5, 0.25, 0.125, 0.0625], 2)
    seen = math.exp(-(math.log(p) + math.log(q)) / 2)
    values = {
        "geometric": (seen, "The exponential of the mean of −log p: the inverse of the *geometric* mean of the probabilities."),
        "arithmetic": ((1 / p + 1 / q) / 2, "The inverse probabilities are averaged in the logarithm, not as they are."),
        "of the mean": (2 / (p + q), "That is the inverse of the arithmetic mean: it forgives the token that was missed."),
        "product": (1 / (p * q), "That is not per token: divide the sum of the logarithms by two."),
    }
    return ask(
        f"A text of two tokens got the probabilities {p} and {q}. What is the model's perplexity on it?",
        *((f"{value:.4g}", math.isclose(value, seen), why) for value, why in values.values()),
    )


def targets_shifted(lots):
    n = lots.randint(5, 9)
    inputs = list(range(n))[:-1]
    return ask(
        f"A recurrent language model is trained on a line of {n} tokens, t₁ … t_{n}, begin and end marks among them. "
        "How many predictions does the line give, if none is wasted?",
        *((str(value), value == len(inputs), why) for value, why in {
            n - 1: "Inputs are all tokens but the last, targets all but the first: one step to the left.",
            n: "The first token has nothing before it, and the last has no token after it.",
            n - 2: "The token after the first is predicted from the first alone, and counts.",
            1: "A loss at the last token alone would waste what every earlier state can learn.",
        }.items()),
    )  # fmt: skip


def recurrent_parameters(lots):
    d_in, d = lots.sample([3, 4, 5, 6, 7, 8, 10], 2)
    seen = sum(p.numel() for p in nn.RNNCell(d_in, d, bias=False).parameters())
    gru = sum(p.numel() for p in nn.GRUCell(d_in, d, bias=False).parameters())
    return ask(
        f"h' = tanh(x W_x + h W_h), with x of width {d_in} and h of width {d}, without biases. "
        "A text has 100 tokens. How many parameters has the layer?",
        *((str(value), value == seen, why) for value, why in {
            d * (d_in + d): "W_x is (d_in, d), W_h is (d, d), and every step uses the same two.",
            100 * d * (d_in + d): "The weights are shared by all steps: length costs time, not parameters.",
            gru: "That is a GRU: three pairs of matrices, for two gates and the candidate.",
            2 * d * d: "The input has a width of its own.",
        }.items()),
    )  # fmt: skip


def vanishing(lots):
    factor, steps = lots.choice([0.5, 0.6, 0.8]), lots.choice([10, 20])
    h = torch.ones(1, requires_grad=True)
    state = h
    for _ in range(steps):
        state = factor * state
    seen = torch.autograd.grad(state.sum(), h)[0].item()
    return ask(
        f"In a linear recurrence h ← {factor} · h + x, by what factor does a change of h reach the state {steps} steps on?",
        *((f"{value:.1e}", math.isclose(value, seen, rel_tol=1e-3), why) for value, why in {
            factor**steps: "The derivative is a product of one factor a step: it shrinks exponentially with the distance.",
            factor: "That is one step; each further step multiplies by it again.",
            factor / steps: "The factors are multiplied, not averaged: the path is a chain.",
            factor * steps: "The factors are multiplied, not added.",
        }.items()),
    )  # fmt: skip


def bottleneck_size(lots):
    d, n = lots.choice([64, 128, 256]), lots.choice([10, 40, 80])
    _, last = nn.GRU(4, d)(torch.zeros(n, 1, 4))
    seen = last.numel()
    return ask(
        f"An encoder–decoder *without attention* reads {n} tokens with a GRU of width {d} in one direction and one layer. "
        "How many numbers does the decoder receive about the source?",
        *((f"{value}", value == seen, why) for value, why in {
            d: "The last state alone, however long the sentence: this is the bottleneck.",
            n * d: "That is what attention gives it: all encoder hidden states.",
            n: "It is no number for each token: the states of the tokens are overwritten.",
            2 * d: "Two vectors would be a bidirectional encoder, or an LSTM's state and cell.",
        }.items()),
    )  # fmt: skip
