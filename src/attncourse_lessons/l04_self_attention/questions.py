"""What a professor would ask of self-attention: each answer is computed by running it."""

import torch

from attncourse.attention import attend
from attncourse.counting import layer_cost
from lessonkit.authoring.questions.question import ask


def shapes(lots):
    n, d_model, d_k, d_v = lots.sample(range(3, 30), 4)
    x = torch.zeros(n, d_model)
    output, weights = attend(x @ torch.zeros(d_model, d_k), x @ torch.zeros(d_model, d_k), x @ torch.zeros(d_model, d_v))
    seen = (tuple(weights.shape), tuple(output.shape))
    return ask(
        f"x: ({n}, {d_model})   W_Q, W_K: ({d_model}, {d_k})   W_V: ({d_model}, {d_v}). "
        "What are the shapes of the attention weights and of the output?",
        *((f"{pair[0]} and {pair[1]}", pair == seen, why) for pair, why in {
            ((n, n), (n, d_v)): "A weight for every pair of tokens; each output is an average of values.",
            ((n, n), (n, d_model)): "Values are d_v wide. Only an output matrix W_O would bring them back to d_model.",
            ((n, d_k), (n, d_v)): "d_k is summed over in every score q · k.",
            ((d_k, d_k), (n, d_v)): "That is QᵀK: features were compared, and not tokens.",
        }.items()),
    )  # fmt: skip


def permutation(lots):
    generator = torch.Generator().manual_seed(lots.randint(0, 999))
    x, W = torch.randn(6, 4, generator=generator), torch.randn(3, 4, 4, generator=generator)
    order = torch.tensor([3, 0, 5, 1, 4, 2])

    def layer(tokens):
        return attend(tokens @ W[0], tokens @ W[1], tokens @ W[2])[0]

    before, after = layer(x), layer(x[order])
    same, moved = torch.allclose(before, after, atol=1e-5), torch.allclose(before[order], after, atol=1e-5)
    means = torch.allclose(before.mean(0), after.mean(0), atol=1e-5)
    return ask(
        "The tokens of a sentence are shuffled before a self-attention layer without positions and without a mask. "
        "What happens to its output?",
        ("Its rows are shuffled alike.", moved and not same, "Permutation equivariance: each token gets what it got, in its new place."),
        ("Every row stays where it was.", same, "That is invariance. A *mean* over the rows would be invariant."),
        ("Its rows all get other values.", not moved, "No score and no value knows a place: a token meets the same others."),
        ("The mean of its rows changes.", not means, "The mean over the rows is the one thing that cannot change."),
    )  # fmt: skip


def doubled_length(lots):
    n = lots.choice([512, 1024, 2048])
    tokens = [torch.zeros(length // 16, 2) for length in (n, 2 * n)]
    weights = [attend(x, x, x)[1].numel() for x in tokens]
    factor = weights[1] / weights[0]
    return ask(
        f"A sentence of {n} tokens becomes one of {2 * n}. By what factor does the number of attention *weights* of a layer grow?",
        *((text, value == factor, why) for text, value, why in (
            ("2", 2, "So do the projections. The weights are a number for every *pair* of tokens."),
            ("4", 4, "n² pairs: twice the length, four times the weights."),
            ("8", 8, "Cubic would be a weight for every three tokens."),
            ("1", 1, "The *parameters* do not grow. The weights are computed anew for each sentence."),
        )),
    )  # fmt: skip


def parameters_and_length(lots):
    d, n = lots.choice([32, 64, 128]), lots.choice([10, 100, 1000])
    seen = sum(layer.weight.numel() for layer in (torch.nn.Linear(d, d, bias=False) for _ in range(3)))
    return ask(
        f"Self-attention with d_model = d_k = d_v = {d}, without biases and W_O, reads {n} tokens. How many parameters does it have?",
        *((f"{value:,}", value == seen, why) for value, why in {
            3 * d * d: "W_Q, W_K and W_V. Length does not enter: the same matrices serve each token.",
            3 * d * d * n: "The matrices are shared by all tokens.",
            3 * d * d + n * n: "The n² weights are computed, not learned.",
            d * d: "Three roles, three matrices.",
        }.items()),
    )  # fmt: skip


def crossover(lots):
    d = lots.choice([64, 256, 512])

    def costs(n):
        attention, recurrent = (layer_cost(kind, n, d).multiply_adds for kind in ("self-attention", "recurrent"))
        return attention - 3 * n * d * d < recurrent - n * d * d

    first = next(n for n in range(1, 4 * d) if not costs(n))
    return ask(
        f"At width d = {d}, scores and average together take 2 n² d multiply-adds, the hidden states' product of a recurrent "
        "layer takes n d². From which length on does the former cost more?",
        *((f"n = {value}", abs(value - first) <= 1, why) for value, why in {
            d // 2: "2 n² d = n d² at n = d/2. (The projections of both are left out.)",
            d: "That forgets that every pair is met twice: for its score and in the average.",
            2 * d: "The factor 2 belongs to the quadratic part: it brings the crossing nearer.",
            d * d: "One n cancels: 2 n d = d².",
        }.items()),
    )  # fmt: skip


def steps_that_wait(lots):
    n, d = lots.choice([50, 100, 400]), 64
    cost = {kind: layer_cost(kind, n, d) for kind in ("self-attention", "recurrent")}
    seen = (cost["self-attention"].sequential_steps, cost["recurrent"].sequential_steps)
    return ask(
        f"{n} tokens, one layer. How many sequential steps do self-attention and a recurrent layer take?",
        *((f"{pair[0]} and {pair[1]}", pair == seen, why) for pair, why in {
            (1, n): "All pairs are compared at once; a state waits for the state before.",
            (n, n): "Self-attention needs no earlier output: its rows are computed at the same time.",
            (n, 1): "It is the recurrent layer that waits.",
            (1, 1): "A recurrent state is computed from the one before it: that takes n steps.",
        }.items()),
    )  # fmt: skip
