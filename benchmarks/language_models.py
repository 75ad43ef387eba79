"""Lecture 01's language models on one test set: n-grams, a window network, recurrent networks with three cells.

    python benchmarks/language_models.py [--seeds 0 1 2] [--epochs 3] [--texts N] [--workers N] [--save FILE] [--json]
    python benchmarks/language_models.py --only MODEL … --save FILE
    python benchmarks/language_models.py --fit --save FILE
    python benchmarks/language_models.py --pilot [--workers N]

Docstrings of the running Python, cut into 1,024 subword tokens; the test set is whole modules. The training texts come
module by module, so they are shuffled with a seed before a twentieth or a quarter of them is taken: each seed has other
texts there, other weights at the beginning, and another order of batches. N-gram models (interpolated Kneser–Ney) read
the same texts once, which is all that they can use.

All networks have d = 96, one table for reading and scoring, and equal epochs; the window is of four tokens, as the
5-gram's. Gated cells have three and four times as many parameters as the RNN's, so there is an RNN of d = 168, too,
which has more parameters than the GRU, in its cell and in all. On a quarter of the texts, to save time, there are the
window and the GRU alone, and a GRU with as many steps as on all of them. Networks are trained on pieces of at most 64
tokens, each read as if nothing had gone before, and tested on whole texts. Their learning rate was chosen by --pilot:
on a tenth of the training texts that it keeps apart (a validation set), trained on a quarter of the texts, 0.02 was the
best of 0.01, 0.02 and 0.04 for each kind of d = 96, and 0.01 of these and 0.005 for the RNN of d = 168; the test set
decides nothing. Beside the perplexities: the loss by how many tokens of the context the 5-gram had seen (the first
three of a text are left out: they have no four before them), and of half of the probability by the 5-gram and half by
the GRU. `--only` measures some models anew, and the record in --save keeps the rest. About fifteen minutes of processor
time, in one process or several of one thread each; with --save the file is written anew after each network.

`--fit` trains the two GRUs on a quarter of the texts once more, and keeps their perplexity on the texts that they
learned from, read whole as the test set is: `fit` in the record, the rest of which stays. Four minutes.
"""

import argparse
import json
import random
import time
from concurrent.futures import ProcessPoolExecutor
from math import exp
from multiprocessing import get_context
from typing import Any, NamedTuple

import torch
from record import about, as_text, hand_over, output_arguments, standing
from torch import Tensor, nn

from attncourse.data import Tokenizer, docstrings, encode_texts, text_batches
from attncourse.metrics import perplexity, text_log_probabilities
from attncourse.ngram import NGram, WindowLanguageModel
from attncourse.recurrent import RecurrentLanguageModel
from attncourse.training import fit_texts

VOCABULARY, D_HIDDEN, ORDERS, LONGEST_ORDER = 1024, 96, (1, 2, 3, 4, 5), 5
SHARES = {"a twentieth": 20, "a quarter": 4, "all": 1}
NETWORKS = ("window", "RNN", "LSTM", "GRU", "RNN, d = 168")
LONGER = "GRU, steps as on all"
TRAINED = {"a twentieth": (), "a quarter": ("window", "GRU", LONGER), "all": NETWORKS}
MODELS = (*(f"{n}-gram" for n in ORDERS), *NETWORKS, LONGER)
RATE, RATES, PILOT_SEED = 2e-2, (5e-3, 1e-2, 2e-2, 4e-2), 100
RATE_OF = {"RNN, d = 168": 1e-2}                                                               # the others: RATE
BATCH: Any = {"batch_tokens": 512, "max_length": 64}
Texts = list[list[int]]


def shuffled(texts: Texts, seed: int) -> Texts:
    return random.Random(seed).sample(texts, len(texts))


def make_network(kind: str, vocab_size: int) -> nn.Module:
    if kind == "window":
        return WindowLanguageModel(vocab_size, LONGEST_ORDER, D_HIDDEN)
    width = 168 if kind == "RNN, d = 168" else D_HIDDEN
    return RecurrentLanguageModel(vocab_size, width, kind.split(",")[0].lower())


class Job(NamedTuple):
    """A network to train on some texts, and to ask about others."""

    kind: str
    vocab_size: int
    texts: Texts
    asked: Texts
    epochs: int
    lr: float
    seed: int


def work(job: Job) -> tuple[Tensor, int, float]:
    """ln p of each token that is asked about, how many steps were taken, and the processor's seconds."""
    torch.set_num_threads(1)
    torch.manual_seed(job.seed)
    network = make_network(job.kind, job.vocab_size)
    steps = job.epochs * sum(1 for _ in text_batches(job.texts, **BATCH, seed=job.seed))
    began = time.process_time()
    fit_texts(network, job.texts, steps, **BATCH, lr=job.lr, seed=1000 * job.seed, progress=False)
    seconds = time.process_time() - began
    return torch.cat(text_log_probabilities(network, job.asked)).double(), steps, seconds


def by_counts(model: NGram, texts: Texts) -> Tensor:
    return torch.cat([model.log_probabilities(text) for text in texts])                        # (n_tokens,)


def pilot(pool: ProcessPoolExecutor, texts: Texts, vocab_size: int, epochs: int) -> None:
    """Print what each learning rate gives on texts that are kept apart."""
    apart = shuffled(texts, PILOT_SEED)
    validation, rest = apart[: len(apart) // 10], apart[len(apart) // 10 :][: len(apart) // 4]
    tried = [(kind, lr) for kind in NETWORKS for lr in RATES]
    jobs = [Job(kind, vocab_size, rest, validation, epochs, lr, PILOT_SEED) for kind, lr in tried]
    for (kind, lr), (log_p, *_) in zip(tried, pool.map(work, jobs), strict=True):
        print(f"{kind:>8}, learning rate {lr:g}: validation perplexity {perplexity(log_p):.1f}", flush=True)


def fit(texts: Texts, test: Texts, vocab_size: int, seeds: list[int], epochs: int) -> list[dict]:
    """The perplexities of the GRUs that train on a quarter of the texts, on these texts and on the test set."""
    found = []
    for seed in seeds:
        some = shuffled(texts, seed)[: len(texts) // SHARES["a quarter"]]
        for model, times in {"GRU": 1, LONGER: SHARES["a quarter"]}.items():
            log_p, steps, _ = work(Job(model, vocab_size, some, some + test, epochs * times, RATE, seed))
            learned, new = log_p.split([sum(len(text) - 1 for text in part) for part in (some, test)])
            shares = {name: round(exp(-part.mean()), 2) for name, part in {"training": learned, "test": new}.items()}
            found.append({"seed": seed, "share": "a quarter", "model": model, "steps": steps, **shares})
            print(found[-1], flush=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--texts", type=int, help="read no more than so many, to try it out")
    parser.add_argument("--pilot", action="store_true", help="compare learning rates on a validation set, nothing else")
    parser.add_argument("--workers", type=int, default=1, help="processes")
    parser.add_argument("--only", nargs="+", choices=MODELS, help="these alone; the record in --save keeps the rest")
    parser.add_argument("--fit", action="store_true", help="the GRUs on a quarter, and how well they fit it")
    output_arguments(parser)
    args = parser.parse_args()
    torch.set_num_threads(1)

    corpus = docstrings(args.texts)
    tokenizer = Tokenizer.train(corpus.train, size=VOCABULARY)
    texts, test = encode_texts(corpus.train, tokenizer), encode_texts(corpus.test, tokenizer)
    vocab_size = len(tokenizer)
    command = f"python benchmarks/language_models.py --seeds {' '.join(map(str, args.seeds))} --epochs {args.epochs}"
    if args.texts:
        command += f" --texts {args.texts}"

    if args.fit:
        result = standing(args.save, seeds=args.seeds, epochs=args.epochs, vocab_size=vocab_size)
        result["fit"] = fit(texts, test, vocab_size, args.seeds, args.epochs)
        hand_over(result, args, depth=2)
        return

    pool = ProcessPoolExecutor(args.workers, mp_context=get_context("spawn"))
    if args.pilot:
        pilot(pool, texts, vocab_size, args.epochs)
        return

    five_gram = NGram(texts, LONGEST_ORDER, vocab_size)
    only = args.only or MODELS
    orders = [n for n in ORDERS if f"{n}-gram" in only]
    all_counted = {n: by_counts(NGram(texts, n, vocab_size), test) for n in {*orders, LONGEST_ORDER}}  # for each seed
    five = all_counted[LONGEST_ORDER]
    known = torch.tensor([five_gram.known(text[:i]) for text in test for i in range(1, len(text))]).clamp(min=1)
    far = torch.tensor([i >= LONGEST_ORDER - 1 for text in test for i in range(1, len(text))])  # four tokens before it

    def scored(model: str, share: str, seed: int, log_p: Tensor, **more) -> dict:
        by_known = {n: round(-log_p[far & (known == n)].mean().item(), 4) for n in range(1, LONGEST_ORDER)}
        return {"seed": seed, "share": share, "model": model, "perplexity": round(exp(-log_p.mean()), 2),
                "nats_by_known": by_known, **more}  # fmt: skip

    result = {
        **about("language_models", command),
        "seeds": args.seeds, "epochs": args.epochs, "d_hidden": D_HIDDEN, "vocab_size": vocab_size,
        "texts": {"training": len(texts), "test": len(test)},
        "tokens": {"training": sum(len(text) - 1 for text in texts), "test": len(five)},
        "rate": RATE, "rate_of": RATE_OF,
        "known": {n: round((known[far] == n).double().mean().item(), 4) for n in range(1, LONGEST_ORDER)},
        "size": {"5-gram": len(five_gram)}
        | {kind: sum(p.numel() for p in make_network(kind, vocab_size).parameters()) for kind in NETWORKS},
        "runs": [],
    }  # fmt: skip
    if args.only:
        same = {name: result[name] for name in ("seeds", "epochs", "vocab_size", "texts", "tokens")}
        result = standing(args.save, **same)
        result["runs"] = [run for run in result["runs"] if run["model"] not in only]
    parts = {(seed, share): shuffled(texts, seed)[: len(texts) // divisor]
             for seed in args.seeds for share, divisor in SHARES.items()}  # fmt: skip
    wanted = [(seed, share, kind) for share in reversed(SHARES) for seed in args.seeds for kind in TRAINED[share]
              if kind in only]
    jobs = [Job(kind, vocab_size, parts[seed, share], test, args.epochs * (SHARES[share] if kind == LONGER else 1),
                RATE_OF.get(kind, RATE), seed)
            for seed, share, kind in wanted]  # fmt: skip
    trained = pool.map(work, jobs)
    for (seed, share), some in parts.items():
        for n in orders:
            log_p = all_counted[n] if share == "all" else by_counts(NGram(some, n, vocab_size), test)
            result["runs"].append(scored(f"{n}-gram", share, seed, log_p))
    if args.save:
        args.save.write_text(as_text(result, depth=2), encoding="utf-8")
    for (seed, share, kind), (log_p, steps, seconds) in zip(wanted, trained, strict=True):
        result["runs"].append(scored(kind, share, seed, log_p, steps=steps, seconds=round(seconds, 1)))
        print(f"seed {seed}, {share}, {kind}: {result['runs'][-1]['perplexity']:.1f}", flush=True)
        if (share, kind) == ("all", "GRU"):
            result["runs"] = [run for run in result["runs"] if (run["seed"], run["model"]) != (seed, "5-gram and GRU")]
            half = torch.log((log_p.exp() + five.exp()) / 2)
            result["runs"].append(scored("5-gram and GRU", share, seed, half))
        if args.save:
            args.save.write_text(as_text(result, depth=2), encoding="utf-8")
    pool.shutdown()
    for share in SHARES:
        listed: dict[str, list[float]] = {}
        for run in result["runs"]:
            if run["share"] == share:
                listed.setdefault(run["model"], []).append(run["perplexity"])
        print(f"{share}:", ", ".join(f"{model} {sum(values) / len(values):.1f}" for model, values in listed.items()))
    if args.json:
        print(json.dumps(result, ensure_ascii=False))


if __name__ == "__main__":
    main()
