"""What a professor would ask of testing claims: each answer is computed by running it."""

import torch

from attncourse.attention import attend
from lessonkit.authoring.questions.question import ask


def _data(lots):
    return torch.randn(3, 6, 4, generator=torch.Generator().manual_seed(lots.randint(0, 999)), dtype=torch.float64)


def which_test_finds_a_missing_scale(lots):
    q, k, v = _data(lots)

    told, factor = lots.choice([
        ("forgets to divide the scores by √d_k", 1.0),
        ("multiplies the scores by √d_k instead of dividing", 2.0),
        ("divides the scores by d_k, without the root", 0.25),
    ])  # fmt: skip

    def broken(q, k, v):
        weights = (factor * q @ k.mT).softmax(-1)
        return weights @ v, weights

    output, weights = broken(q, k, v)
    order = torch.tensor([2, 0, 1, 5, 3, 4])
    shape = output.shape != (6, 4)
    sums = not torch.allclose(weights.sum(-1), torch.ones(6, dtype=torch.float64))
    moved = not torch.allclose(broken(q, k[order], v[order])[0], output)
    other = not torch.allclose(output, torch.nn.functional.scaled_dot_product_attention(q[None], k[None], v[None])[0])
    return ask(
        f"Somebody's attention {told}. Which of these tests fails?",
        ("it gives what torch's own attention gives", other, "Differential testing: another implementation has the right scale."),
        ("each row of the weights sums to one", sums, "Softmax of any scores sums to one."),
        ("the output has the shape (n, d_v)", shape, "A factor changes no shape."),
        ("keys and values in another order: same output", moved, "A factor treats all keys alike."),
    )  # fmt: skip


def which_test_finds_a_leak(lots):
    q, k, v = _data(lots)
    ahead = lots.choice([1, 2, 3])
    wide = torch.ones(6, 6, dtype=torch.bool).tril(ahead)

    def broken(k, v):
        return attend(q, k, v, mask=wide)

    output, weights = broken(k, v)
    future = v.clone()
    future[-1] += 1
    changed = not torch.allclose(broken(k, future)[0][:-1], output[:-1])
    sums = not torch.allclose(weights.sum(-1), torch.ones(6, dtype=torch.float64))
    finite = not bool(output.isfinite().all())
    same_twice = not torch.allclose(broken(k, v)[0], output)
    return ask(
        f"A causal mask is too wide: token i sees the tokens up to i + {ahead}. Which of these tests fails?",
        ("a changed last token changes no earlier output", changed, "This metamorphic relation is what *causal* means."),
        ("each row of the weights sums to one", sums, "It does, over one key too many."),
        ("no output is NaN or infinite", finite, "More keys are allowed: there is always one."),
        ("the same input gives the same output a second time", same_twice, "The leak is deterministic."),
    )  # fmt: skip


def training_loss_of_a_leak(lots):
    n = lots.choice([5, 8])
    tokens = torch.randint(0, 50, (1, n), generator=torch.Generator().manual_seed(n))
    inputs, targets = tokens[:, :-1], tokens[:, 1:]
    readable = torch.ones(n - 1, n - 1, dtype=torch.bool).tril(1)
    leaks = [bool((inputs[0][readable[i]] == targets[0, i]).any()) for i in range(n - 2)]
    return ask(
        "A language model is trained with a mask that lets each token see the next one. What does the *training* loss do?",
        ("it falls lower than with the right mask", all(leaks), "The answer can be copied: the loss rewards the mistake. When the model writes, there is nothing to copy."),
        ("it stays higher than with the right mask", False, "More is visible, and what is visible is the answer."),
        ("it becomes NaN after the first few steps", False, "No row is without an allowed key."),
        ("it is the same as with the right mask", not all(leaks), "The target of a position stands in what it reads."),
    )  # fmt: skip


def limiting_case(lots):
    q, k, v = _data(lots)
    zero = attend(0 * q, k, v)[0]
    values = {
        "the mean of the values": torch.allclose(zero, v.mean(0).expand(6, 4)),
        "the sum of the values": torch.allclose(zero, v.sum(0).expand(6, 4)),
        "the value of the first key": torch.allclose(zero, v[:1].expand(6, 4)),
        "zero in each of its entries": torch.allclose(zero, 0 * zero),
    }
    whys = (
        "All scores are 0, all weights 1/n: a case whose answer is known without a program.",
        "The weights sum to one.",
        "Equal scores prefer no key.",
        "Zero scores are not zero weights: exp(0) = 1.",
    )
    return ask(
        "A limiting case: the query is the zero vector, the scores are dot products, and nothing is masked. "
        "What must the output be?",
        *((text, right, why) for (text, right), why in zip(values.items(), whys, strict=True)),
    )


def mutation_score(lots):
    mutants = lots.choice([8, 12, 20])
    equal, killed = lots.choice([(2, 3), (2, 5), (3, 4)])
    seen = killed / (mutants - equal)
    return ask(
        f"A function has {mutants} mutants. {equal} of them compute the same as the original on every input, and the tests fail "
        f"for {killed}. What share of the mutants that *can* be killed is killed?",
        *((text, abs(value - seen) < 1e-9, why) for text, value, why in (
            (f"{killed} of {mutants - equal}", killed / (mutants - equal), "No test can kill an equivalent mutant: it does not count."),
            (f"{killed} of {mutants}", killed / mutants, "The equivalent ones are still in the denominator."),
            (f"{killed + equal} of {mutants}", (killed + equal) / mutants, "An equivalent mutant is not a success of the tests."),
            (f"{mutants - killed} of {mutants}", (mutants - killed) / mutants, "That is how many survive."),
        )),
    )  # fmt: skip


def transposed_convention(lots):
    n, d = lots.choice([(5, 3), (7, 4)])
    generator = torch.Generator().manual_seed(n)
    x, W = torch.randn(n, d, generator=generator), torch.randn(d, d, generator=generator)
    rows = x @ W
    same = {
        "qᵀ = Wᵀ xᵀ": torch.allclose((W.mT @ x.mT).mT, rows),
        "qᵀ = W xᵀ": torch.allclose((W @ x.mT).mT, rows),
        "qᵀ = W xᵀ / √d": torch.allclose((W @ x.mT).mT / d**0.5, rows),
        "qᵀ = Wᵀ xᵀ / √d": torch.allclose((W.mT @ x.mT).mT / d**0.5, rows),
    }
    whys = (
        "(x W)ᵀ = Wᵀ xᵀ: a book that writes q = W x for columns means the transpose of our W.",
        "The shapes fit, since W is square, but it is another map. That is why nobody notices the mixture of conventions.",
        "It is another map, and the scale belongs to the scores.",
        "The scale belongs to the scores, not to the query.",
    )
    return ask(
        "Tokens are rows here: q = x W, with a square W. The same equation for tokens as columns is",
        *((text, right, why) for (text, right), why in zip(same.items(), whys, strict=True)),
    )
