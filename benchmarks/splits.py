"""Lecture 11's detective story: short lists missing, batches of like length; and the ladder on an even split.

    python benchmarks/splits.py [--seeds 0 1 2] [--steps 550] [--only PART ...] [--save FILE] [--json]

22,000 lists of numbers are drawn, none twice. The last 1,000 are the test set. The others are dealt out in two ways:
1,000 for validation, 19,900 for training, 100 stay unused. Uneven: in the order drawn, so nearly all of the few short
lists are in the validation set. Even: they are shuffled before. A batch is a rectangle of at most 256 tokens, padding
included. Batches are made in two ways: of lists of like length; and mixed at random, which fit fewer lists.

Suspects: the Transformer on the uneven split, batches of like length or mixed, and with or without ten one-word lists
of the validation set given to the training set, each twenty times; these ten are left out of the count in all four.
What is wrong is counted by the target's tokens. Kept, too, are the steps that met a list of two, or of at most four
tokens, and how many such lists they met; and without remedies how many of the short validation lists the model has
right after a step: each fifth, and the ten from one that met a short list. (Greedy search writes a list exactly where,
after every true prefix, the likeliest token is the right one: one pass with teacher forcing tells.) Here a seed decides
the weights at the beginning and the order of the batches.

Ladder: on the even split, with batches of like length, what each rung gets exactly right, also of the test set, which
nothing else here reads; it was drawn last, so it has no short list. The recurrent rungs take fewer steps, 37 for 55 of
the Transformer's: about the same seconds, which are printed and kept. Here a seed decides the weights at the beginning
alone: the order of the batches is the same for all. One thread. `--only` measures some parts anew and leaves the others
in FILE.
"""

import argparse
import random
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from record import about, hand_over, output_arguments, standing
from torch import nn

from attncourse.data import PAD, EncodedPair, Pair, Tokenizer, collate, encode_pairs, epoch_batches
from attncourse.data.batches import combined_seed
from attncourse.data.number_words import say
from attncourse.decoding import translate
from attncourse.metrics import exact_match, token_loss
from attncourse.recurrent import Seq2Seq
from attncourse.training.recipe import cosine
from attncourse.transformer import EncoderDecoder, TransformerConfig

BATCH_TOKENS = 256
PARTS = ("suspects", "ladder")
RUNGS = ("mean pool", "last state", "attention", "Transformer")
MakeBatches = Callable[[Sequence[EncodedPair], int, int, int], list[list[int]]]


class Task(NamedTuple):
    """A split, ready to train on."""

    train: list[EncodedPair]
    validation: list[Pair]
    tokenizers: tuple[Tokenizer, Tokenizer]
    test: list[Pair]


def draw_lists(n: int) -> list[Pair]:
    """Lists of one to five numbers below 1000, German and English, none twice, in the order drawn. As on the page."""
    rng, drawn = random.Random(0), {}
    while len(drawn) < n:
        numbers = [rng.randrange(10 ** rng.randint(1, 3)) for _ in range(rng.randint(1, 5))]
        german, english = (", ".join(say(number, language) for number in numbers) for language in ("de", "en"))
        drawn[german] = english
    return [Pair(*pair) for pair in drawn.items()]


def make_task(lists: Sequence[Pair], test: Sequence[Pair] = ()) -> Task:
    """The first thousand are the validation set, the next hundred are left out, the others are trained on."""
    validation, train = list(lists[:1000]), lists[1100:]
    german = Tokenizer.train((pair.source for pair in train), size=112, keep_apart="hundert|und")
    english = Tokenizer.train((pair.target for pair in train), size=112)
    return Task(encode_pairs(train, german, english), validation, (german, english), list(test))


def mixed_batches(pairs: Sequence[EncodedPair], batch_tokens: int, seed: int, epoch: int) -> list[list[int]]:
    """As `epoch_batches`, but in the order drawn: a batch takes what comes next for as long as it fits."""
    generator = torch.Generator().manual_seed(combined_seed(seed, epoch))
    made: list[list[int]] = []
    longest = 0
    for i in torch.randperm(len(pairs), generator=generator).tolist():
        length = max(len(pairs[i].source), len(pairs[i].target) + 1)
        longest = max(longest, length)
        if not made or (len(made[-1]) + 1) * longest > batch_tokens:
            made.append([])
            longest = length
        made[-1].append(i)
    return made


def make_model(rung: str, task: Task) -> nn.Module:
    german, english = (len(tokenizer) for tokenizer in task.tokenizers)
    if rung != "Transformer":
        return Seq2Seq(german, english, d_embedding=32, d_hidden=128, summary=rung)
    return EncoderDecoder(TransformerConfig(vocab_size=german, target_vocab_size=english, d_model=64, n_layers=2,
                                            n_heads=4, d_ff=128, dropout=0.0))  # fmt: skip


@torch.no_grad()
def n_right(model: nn.Module, pairs: Sequence[EncodedPair]) -> int:
    """How many lists greedy search would write exactly."""
    source, lengths, target_in, target_out = collate(pairs)
    model.eval()
    right = (model(source, lengths, target_in).argmax(dim=-1) == target_out) | (target_in == PAD)
    model.train()
    return int(right.all(dim=1).sum())


def run(
    rung: str, task: Task, make_batches: MakeBatches, steps: int, seed: int, order: int | None = None,
    watched: Sequence[EncodedPair] = (),
) -> dict:  # fmt: skip
    """Train one model from one seed; how often it is right, and where it is wrong.

    `order` is the seed of the batches' order where it is another; `watched` are lists to count on the way.
    """
    torch.manual_seed(seed)
    model = make_model(rung, task)
    steps, lr = (steps, 5e-3) if rung == "Transformer" else (round(steps * 37 / 55), 6e-3)
    optimizer = torch.optim.AdamW(model.parameters(), betas=(0.9, 0.98), eps=1e-9, weight_decay=0.0)
    warmup = round(steps * 10 / 55)
    done, epoch, lists_seen = 0, 0, 0
    met: dict[int, list[int]] = {2: [], 4: []}
    short_seen = {2: 0, 4: 0}
    watch: dict[int, int] = {}
    began = time.process_time()
    while done < steps:
        batches = make_batches(task.train, BATCH_TOKENS, seed if order is None else order, epoch)[: steps - done]
        for step, batch in enumerate(batches, start=done + 1):
            source, lengths, target_in, target_out = collate([task.train[i] for i in batch])
            loss = token_loss(model(source, lengths, target_in), target_out)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            for group in optimizer.param_groups:
                group["lr"] = lr * cosine(step, warmup, steps)
            optimizer.step()
            lists_seen += len(batch)
            tokens_of = [len(task.train[i].target) + 1 for i in batch]                  # <eos> counts
            for n, steps_with in met.items():
                steps_with += [step] * (min(tokens_of) <= n)
                short_seen[n] += sum(tokens <= n for tokens in tokens_of)
            if watched and (step % 5 == 0 or step - max(met[4], default=-10) < 10):
                watch[step] = n_right(model, watched)
        done, epoch = done + len(batches), epoch + 1
    seconds = time.process_time() - began

    def is_right(pairs: list[Pair]) -> list[bool]:
        written = [one.text for one in translate(model, [pair.source for pair in pairs], *task.tokenizers)]
        return exact_match(written, [pair.target for pair in pairs])

    right, truths = is_right(task.validation), [pair.target for pair in task.validation]
    tokens = [len(task.tokenizers[1].encode(truth)) + 1 for truth in truths]           # <eos> counts
    asked, wrong = Counter(tokens), Counter(n for n, ok in zip(tokens, right, strict=True) if not ok)
    return {
        "seed": seed, "right": sum(right) / len(right), "steps": steps, "lists_seen": lists_seen,
        "seconds": round(seconds, 1), "parameters": sum(p.numel() for p in model.parameters()),
        "asked": {n: asked[n] for n in sorted(asked)}, "wrong": {n: wrong[n] for n in sorted(asked)},
        "met": met, "short_seen": short_seen, **({"watched": len(watched), "watched_right": watch} if watched else {}),
        **({"right_in_test": sum(is_right(task.test)) / len(task.test)} if task.test else {}),
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=550, help="of the Transformer; the recurrent models': 37 for 55")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS)
    output_arguments(parser)
    args = parser.parse_args()
    torch.set_num_threads(1)

    lists = draw_lists(22_000)
    drawn, test = lists[:21_000], lists[21_000:]
    shuffled = drawn.copy()
    random.Random(0).shuffle(shuffled)
    uneven, even = make_task(drawn), make_task(shuffled, test)

    def length(pair: Pair) -> int:
        return len(uneven.tokenizers[1].encode(pair.target)) + 1                       # <eos> counts

    def all_seeds(name: str, task: Task, make_batches: MakeBatches, **more) -> list[dict]:
        runs = []
        print(f"{name}:")
        for seed in args.seeds:
            each = run("Transformer", task, make_batches, args.steps, seed, **more)
            short = "  ".join(f"{each['wrong'].get(n, 0)}/{each['asked'].get(n, 0)}" for n in range(2, 7))
            print(f"  seed {seed}: {each['right']:.1%} right; wrong of 2 to 6 tokens: {short}; steps that met at most "
                  f"2 tokens: {len(each['met'][2])}, 4: {len(each['met'][4])}", flush=True)  # fmt: skip
            runs.append(each)
        return runs

    given = [pair for pair in uneven.validation if length(pair) == 2][::2]
    rest = uneven._replace(validation=[pair for pair in uneven.validation if pair not in given])
    back = rest._replace(train=rest.train + encode_pairs(20 * given, *uneven.tokenizers))
    short = encode_pairs([pair for pair in rest.validation if length(pair) <= 4], *uneven.tokenizers)
    parts: dict[str, dict[str, list[dict]]] = {}
    if "suspects" in args.only:
        parts["suspects"] = {
            "as it was": all_seeds("as it was", rest, epoch_batches, watched=short),
            "mixed batches": all_seeds("mixed batches", rest, mixed_batches),
            "short lists given back": all_seeds("short lists given back", back, epoch_batches),
            "both": all_seeds("both", back, mixed_batches),
        }
    if "ladder" in args.only:
        parts["ladder"] = {}
        for rung in RUNGS:
            runs = [run(rung, even, epoch_batches, args.steps, seed, order=0) for seed in args.seeds]
            each = "  ".join(f"{r['right']:.1%}, test {r['right_in_test']:.1%} ({r['seconds']:.0f} s)" for r in runs)
            print(f"{rung:>12}: {each}   {runs[0]['parameters']:,} parameters, {runs[0]['steps']} steps", flush=True)
            parts["ladder"][rung] = runs

    command = f"python benchmarks/splits.py --steps {args.steps} --seeds {' '.join(map(str, args.seeds))}"
    before = {} if set(args.only) == set(PARTS) else standing(args.save, command=command)
    result = {
        **before, **about("splits", command),
        "seeds": args.seeds, "given_back": [pair.target for pair in given], **parts,
    }  # fmt: skip
    hand_over(result, args, depth=3)


if __name__ == "__main__":
    main()
