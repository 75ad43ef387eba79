"""Lecture 11's exposure bias on three seeds: is the rest of a list harder after the model's own wrong number?

    python benchmarks/exposure.py [--seeds 0 1 2] [--steps 550] [--save FILE] [--json]

The page's model, trained on the page's uneven split; a seed decides the initial weights and the order of the batches.
Of the validation set's lists in which a number goes wrong and others follow, each is run with teacher forcing: with the
true prefix, with the model's own wrong number in it, and with DRAWN random numbers of as many tokens as the wrong one.
Left out are wrong numbers that are the next of the list (one was skipped) or no number below 1,000 (two were merged).
Kept: the loss of the tokens after that number, for each list (of the random numbers the mean); and whether the wrong
number has as many tokens as the true one, so that all that follows stands where it stood. And of the lists of five, how
many last numbers are wrong after a true and after the model's own prefix: all, and where the text has fewer than five
numbers; and of those whose first wrong number is the fourth, how many hold in it a word of the third or of the fifth.
"""

import argparse
import random

import torch
from record import about, hand_over, output_arguments
from splits import BATCH_TOKENS, Task, draw_lists, make_model, make_task

from attncourse.data import EOS, PAD, Pair, Tokenizer, collate, encode_pairs
from attncourse.data.number_words import say
from attncourse.decoding import translate
from attncourse.metrics import exact_match
from attncourse.training.recipe import Recipe
from attncourse.training.trainer import train
from attncourse.transformer import EncoderDecoder

NUMBERS = {say(number, "en") for number in range(1000)}
DRAWN = 5  # random numbers in place of each wrong one


def fit(task: Task, steps: int, seed: int) -> EncoderDecoder:
    """The page's model, from the initial weights and with the order of the batches of a seed."""
    recipe = Recipe(steps=steps, batch_tokens=BATCH_TOKENS, lr=5e-3, warmup=100, schedule="cosine", label_smoothing=0.0,
                    seed=seed)  # fmt: skip
    torch.manual_seed(seed)
    model = make_model("Transformer", task)
    train(model, task.train, recipe)
    return model.eval()


@torch.no_grad()
def loss_of_last(model: EncoderDecoder, pairs: list[Pair], n_tokens: list[int], tokenizers) -> torch.Tensor:
    """Mean cross-entropy of the last n tokens of each target, with teacher forcing."""
    source, lengths, target_in, target = collate(encode_pairs(pairs, *tokenizers))
    log_p = model(source, lengths, target_in).log_softmax(dim=-1).gather(-1, target[:, :, None])[:, :, 0]
    ends = (target == EOS).long().argmax(dim=1)
    return torch.stack([-row[end + 1 - n : end + 1].mean() for row, end, n in zip(log_p, ends, n_tokens, strict=True)])


def splice(pair: Pair, text: str) -> str | None:
    """The true list with the first wrong number of `text` in it; None where the list is left out."""
    ours, theirs = text.split(", "), pair.target.split(", ")
    wrong_at = [k for k in range(min(len(ours), len(theirs) - 1)) if ours[k] != theirs[k]]
    if not wrong_at or ours[wrong_at[0]] not in NUMBERS or ours[wrong_at[0]] == theirs[wrong_at[0] + 1]:
        return None
    k = wrong_at[0]
    return ", ".join([*theirs[:k], ours[k], *theirs[k + 1 :]])


def differs_at(changed: str, truth: str) -> int:
    """Which number of two lists of equal length is the first that differs."""
    return next(k for k, (a, b) in enumerate(zip(changed.split(", "), truth.split(", "), strict=True)) if a != b)


def with_random_numbers(changed: str, truth: str, english: Tokenizer, lots: random.Random) -> list[str]:
    """The true list with DRAWN other numbers, of as many tokens, in place of the one in which `changed` differs."""
    k, ours, theirs = differs_at(changed, truth), changed.split(", "), truth.split(", ")
    n = len(english.encode(ours[k]))
    others = [number for number in sorted(NUMBERS - {ours[k], theirs[k]}) if len(english.encode(number)) == n]
    return [", ".join([*theirs[:k], other, *theirs[k + 1 :]]) for other in lots.choices(others, k=DRAWN)]


def rest_of(spliced: str, truth: str, english: Tokenizer) -> int:
    """How many tokens follow the number in which two lists differ, with <eos>."""
    return len(english.encode(", ".join(truth.split(", ")[differs_at(spliced, truth) + 1 :]))) + 1


def words_of_fourth(texts: list[str], truths: list[str]) -> dict[str, int]:
    """Of lists of five whose first wrong number is the fourth: how many hold in it a word of another number."""

    def words(number: str) -> set[str]:
        return set(number.replace("-", " ").split()) - {"and", "hundred"}

    found = {"lists": 0, "third": 0, "fifth": 0}
    for text, truth in zip(texts, truths, strict=True):
        ours, theirs = text.split(", "), truth.split(", ")
        if len(ours) > 3 and ours[:3] == theirs[:3] and ours[3] != theirs[3]:
            found["lists"] += 1
            for name, k in (("third", 2), ("fifth", 4)):
                found[name] += bool((words(ours[3]) - words(theirs[3])) & words(theirs[k]))
    return found


@torch.no_grad()
def last_of_five(model: EncoderDecoder, pairs: list[Pair], texts: list[str], tokenizers) -> dict[str, int]:
    """Wrong fifth numbers, <eos> included, after a true prefix and after the model's own."""
    english = tokenizers[1]
    source, lengths, target_in, target = collate(encode_pairs(pairs, *tokenizers))
    wrong = model(source, lengths, target_in).argmax(dim=-1) != target
    comma = english.encode("one, two")[1]
    ends = (target == comma) | (target == EOS)
    last = (ends.cumsum(dim=1) - ends.long() == 4) & (target_in != PAD)
    forced = (wrong & last).any(dim=1).tolist()
    own = [text.split(", ")[4:] != pair.target.split(", ")[4:] for text, pair in zip(texts, pairs, strict=True)]
    fewer = [text.count(",") < 4 for text in texts]
    return {
        "lists": len(pairs), "texts_with_fewer": sum(fewer),
        "true_prefix": sum(forced), "own_prefix": sum(own),
        "true_prefix_where_fewer": sum(a and b for a, b in zip(forced, fewer, strict=True)),
        "own_prefix_where_fewer": sum(a and b for a, b in zip(own, fewer, strict=True)),
    }  # fmt: skip


def run(task: Task, steps: int, seed: int) -> dict:
    model = fit(task, steps, seed)
    english = task.tokenizers[1]
    asked = task.validation
    texts = [one.text for one in translate(model, [pair.source for pair in asked], *task.tokenizers)]
    pairs = [(pair, spliced) for pair, text in zip(asked, texts, strict=True) if (spliced := splice(pair, text))]
    true_lists = [pair for pair, _ in pairs]
    spliced_lists = [Pair(pair.source, spliced) for pair, spliced in pairs]
    n_rest = [rest_of(spliced, pair.target, english) for pair, spliced in pairs]
    after_truth = loss_of_last(model, true_lists, n_rest, task.tokenizers)
    after_mistake = loss_of_last(model, spliced_lists, n_rest, task.tokenizers)
    lots = random.Random(seed)
    drawn = [with_random_numbers(spliced, pair.target, english, lots) for pair, spliced in pairs]
    after_random = torch.stack([
        loss_of_last(model, [Pair(pair.source, others[i]) for (pair, _), others in zip(pairs, drawn, strict=True)],
                     n_rest, task.tokenizers) for i in range(DRAWN)
    ]).mean(dim=0)  # fmt: skip
    fives = [(pair, text) for pair, text in zip(asked, texts, strict=True) if pair.target.count(",") == 4]
    right = exact_match(texts, [pair.target for pair in asked])
    return {
        "seed": seed, "right": sum(right) / len(right),
        "last_of_five": last_of_five(model, *(list(side) for side in zip(*fives, strict=True)), task.tokenizers),
        "fourth_first_wrong": words_of_fourth([text for _, text in fives], [pair.target for pair, _ in fives]),
        "after_truth": [round(loss, 4) for loss in after_truth.tolist()],
        "after_mistake": [round(loss, 4) for loss in after_mistake.tolist()],
        "after_random": [round(loss, 4) for loss in after_random.tolist()],
        "as_many_tokens": [len(english.encode(pair.target)) == len(english.encode(s)) for pair, s in pairs],
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=550)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    output_arguments(parser)
    args = parser.parse_args()
    torch.set_num_threads(1)

    task = make_task(draw_lists(21_000))
    runs = []
    for seed in args.seeds:
        runs.append(run(task, args.steps, seed))
        truth, mistake, other = (torch.tensor(runs[-1][f"after_{key}"]) for key in ("truth", "mistake", "random"))
        print(f"seed {seed}: {runs[-1]['right']:.1%} right; the rest of {len(truth)} lists, nats per token: "
              f"{truth.mean():.2f} after the truth, {mistake.mean():.2f} after the mistake, "
              f"{other.mean():.2f} after a random number; last of five: {runs[-1]['last_of_five']}, fourth: "
              f"{runs[-1]['fourth_first_wrong']}", flush=True)  # fmt: skip
    command = f"python benchmarks/exposure.py --steps {args.steps} --seeds {' '.join(map(str, args.seeds))}"
    hand_over({**about("exposure", command), "seeds": args.seeds, "runs": runs}, args, depth=2)


if __name__ == "__main__":
    main()
