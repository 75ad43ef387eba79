"""What a professor would ask of decoding and its measures: each answer is computed by running it."""

import math

import torch

from attncourse.decoding import warp_logits
from attncourse.metrics import bleu
from lessonkit.authoring.questions.question import ask


def greedy_against_beam(lots):
    a, later = lots.choice([(0.6, 0.45), (0.55, 0.4), (0.6, 0.4)])
    other = round(1 - a, 2)
    best = {("A", "x"): a * later, ("B", "y"): other * 0.9}
    winner = max(best, key=lambda pair: best[pair])
    greedy = ("A", "x")
    rest = round((1 - later) / 2, 3)
    return ask(
        f"First token: A with {a}, B with {other}. After A, x has {later} and two others {rest:g} each; after B, y has 0.9. "
        "What do greedy search and a beam of 2 write?",
        *((text, pair == (greedy, winner), why) for text, pair, why in (
            ("greedy: A x; beam: B y", (("A", "x"), ("B", "y")),
             f"Greedy takes A and is left with {a * later:.3g}; the beam keeps B, whose best end has {other * 0.9:.3g}."),
            ("greedy: B y; beam: A x", (("B", "y"), ("A", "x")), "Greedy takes the likelier *first* token, A."),
            ("greedy: A x; beam: A x", (("A", "x"), ("A", "x")), f"B y is likelier: {other * 0.9:.3g} against {a * later:.3g}."),
            ("greedy: B y; beam: B y", (("B", "y"), ("B", "y")), "Greedy does not look ahead: it takes A."),
        )),
    )  # fmt: skip


def temperature_of_two(lots):
    ratio, temperature = lots.choice([4, 9, 16]), lots.choice([0.5, 2.0])
    logits = torch.tensor([[math.log(ratio), 0.0]])
    p = warp_logits(logits, temperature=temperature).softmax(-1)[0]
    seen = float(p[0] / p[1])
    return ask(
        f"At T = 1 a token is {ratio} times as likely as another. How many times at T = {temperature:g}?",
        *((f"{value:g}", math.isclose(value, seen, rel_tol=1e-4), why) for value, why in {
            ratio ** (1 / temperature): "Logits are divided by T: the ratio is raised to the power 1/T.",
            float(ratio**temperature): "The exponent is 1/T: a small T widens the difference.",
            ratio / temperature: "The logits are divided, not the probabilities.",
            ratio + 1 / temperature: "What is added to a logarithm multiplies the ratio; here it is multiplied.",
        }.items()),
    )  # fmt: skip


def clipped_precision(lots):
    word, other = lots.sample(["the", "dog", "tree", "house"], 2)
    repeated = lots.choice([4, 5, 6])
    hypothesis, reference = [word] * repeated, [word, other, "and", word, "again"]
    seen = min(hypothesis.count(word), reference.count(word)) / len(hypothesis)
    return ask(
        f"Translation: “{' '.join(hypothesis)}”. Reference: “{' '.join(reference)}”. What is BLEU's precision of single words?",
        *((text, math.isclose(value, seen), why) for text, value, why in (
            (f"2/{repeated}", 2 / repeated, "Clipped: the word counts as often as the reference has it, twice."),
            (f"{repeated}/{repeated}", 1.0, "Without clipping a word could be repeated for ever."),
            (f"1/{repeated}", 1 / repeated, "The reference has the word twice."),
            ("2/3", 2 / 3, "It is divided by the words of the translation: precision."),
        )),
    )  # fmt: skip


def brevity(lots):
    length, reference = lots.choice([(8, 10), (6, 8), (15, 20)])
    words = [f"w{i}" for i in range(reference)]
    seen = bleu([" ".join(words[:length])], [" ".join(words)]).score / 100
    values = {
        math.exp(1 - reference / length): "All n-grams are right, and the brevity penalty is exp(1 − r/h).",
        1.0: "All precisions are one. Without a penalty the shortest translations would win.",
        length / reference: "That is the recall of words. The penalty is exponential.",
        math.exp(1 - length / reference): "The quotient is turned: for short translations it must be below one.",
    }
    return ask(
        f"A translation consists of the first {length} of the {reference} words of its reference. What is its BLEU (from 0 to 1)?",
        *((f"{value:.3f}", abs(value - seen) < 5e-4, why) for value, why in values.items()),
    )


def passes(lots):
    n = lots.choice([12, 20, 30])
    written = [step for step in range(n)]  # greedy search: a pass for each token
    return ask(
        f"A decoder is trained on a target of {n} tokens, then it writes {n} tokens by greedy search. How many passes through the "
        "decoder does each take?",
        *((f"{a} to train, {b} to write", (a, b) == (1, len(written)), why) for a, b, why in (
            (1, n, "Teacher forcing knows all inputs at once; in writing each token waits for the one before."),
            (n, n, "The causal mask makes all steps of training one pass."),
            (n, 1, "It is writing that goes token by token."),
            (1, 1, "The second token cannot be computed before the first is chosen."),
        )),
    )  # fmt: skip


def cached_keys(lots):
    n = lots.choice([10, 20, 50])
    without = sum(range(1, n + 1))
    return ask(
        f"A decoder writes {n} tokens, one a step. For how many tokens, over all steps, are keys computed in one layer: "
        "without a KV cache, and with one?",
        *((f"{a} and {b}", (a, b) == (without, n), why) for a, b, why in (
            (without, n, "Without it step t computes the keys of all t tokens again: 1 + 2 + … + n."),
            (n * n, n, "At step t there are t tokens, not n."),
            (without, without, "With it, each token's keys are computed once."),
            (n, 1, "Each new token needs keys of its own."),
        )),
    )  # fmt: skip
