"""Lecture 01's language models on one test set: n-grams, a window network, recurrent networks with three cells.

    python benchmarks/language_models.py [--seeds 0 1 2] [--epochs 3] [--texts N] [--save FILE] [--json]

Docstrings of the running Python, cut into 1,024 subword tokens; the test set is whole modules. The training texts come
module by module, so they are shuffled with a seed before a twentieth or a quarter of them is taken: each seed has other
texts there, other weights at the beginning, and another order of batches. N-gram models (interpolated Kneser–Ney) read
the same texts once, which is all that they can use.

All networks have d = 96, one table for reading and scoring, and equal epochs (on a quarter of the texts the window and the
GRU alone, to save time); the window is of four tokens, as the
5-gram's. They are trained on pieces of at most 64 tokens, each read as if nothing had gone before, and tested on whole
texts. Each kind's learning rate is the best of three for a quarter of the texts, on a tenth of the training texts that
is kept apart for it (a validation set); the test set decides nothing. Beside the perplexities: the loss by how many
tokens of the context the 5-gram had seen, and of half of the probability by the 5-gram and half by the GRU.
One thread; about ten minutes of processor time. With --save the file is written anew after each seed.
"""

import argparse
import json
import platform
import random
import re
import time
from importlib.metadata import version
from math import exp
from pathlib import Path

import torch
from torch import Tensor, nn

from attncourse.data import Tokenizer, docstrings, encode_texts, text_batches
from attncourse.metrics import perplexity, text_log_probabilities
from attncourse.ngram import NGram, WindowLanguageModel
from attncourse.recurrent import RecurrentLanguageModel
from attncourse.training import fit_texts

VOCABULARY, D_HIDDEN, ORDERS, LONGEST_ORDER = 1024, 96, (1, 2, 3, 5), 5
SHARES = {"a twentieth": 20, "a quarter": 4, "all": 1}
NETWORKS = ("window", "RNN", "LSTM", "GRU")
TRAINED = {"a twentieth": (), "a quarter": ("window", "GRU"), "all": NETWORKS}
RATES, PILOT_SEED = (5e-3, 1e-2, 2e-2), 100
BATCH = {"batch_tokens": 512, "max_length": 64}
Texts = list[list[int]]


def shuffled(texts: Texts, seed: int) -> Texts:
    return random.Random(seed).sample(texts, len(texts))


def make_network(kind: str, vocab_size: int) -> nn.Module:
    if kind == "window":
        return WindowLanguageModel(vocab_size, LONGEST_ORDER, D_HIDDEN)
    return RecurrentLanguageModel(vocab_size, D_HIDDEN, kind.lower())


def train(kind: str, vocab_size: int, texts: Texts, epochs: int, lr: float, seed: int) -> tuple[nn.Module, int, float]:
    """A network, its steps, and the processor's seconds."""
    torch.manual_seed(seed)
    network = make_network(kind, vocab_size)
    steps = epochs * sum(1 for _ in text_batches(texts, **BATCH, seed=seed))
    began = time.process_time()
    fit_texts(network, texts, steps, **BATCH, lr=lr, seed=1000 * seed, progress=False)
    return network, steps, time.process_time() - began


def by_network(network: nn.Module, texts: Texts) -> Tensor:
    return torch.cat(text_log_probabilities(network, texts)).double()                          # (n_tokens,)


def by_counts(model: NGram, texts: Texts) -> Tensor:
    return torch.cat([model.log_probabilities(text) for text in texts])                        # (n_tokens,)


def as_text(result: dict) -> str:
    """JSON, a line for each run."""
    return re.sub(r"\n {3,}|\n {2}(?=[\]}])", " ", json.dumps(result, indent=1, ensure_ascii=False)) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--texts", type=int, help="read no more than so many, to try it out")
    parser.add_argument("--save", type=Path, metavar="FILE", help="keep the JSON object in this file, too")
    parser.add_argument("--json", action="store_true", help="print one JSON object as the last line")
    args = parser.parse_args()
    torch.set_num_threads(1)

    corpus = docstrings(args.texts)
    tokenizer = Tokenizer.train(corpus.train, size=VOCABULARY)
    texts, test = encode_texts(corpus.train, tokenizer), encode_texts(corpus.test, tokenizer)
    vocab_size = len(tokenizer)
    command = f"python benchmarks/language_models.py --seeds {' '.join(map(str, args.seeds))} --epochs {args.epochs}"
    if args.texts:
        command += f" --texts {args.texts}"

    apart = shuffled(texts, PILOT_SEED)
    validation, rest = apart[: len(apart) // 10], apart[len(apart) // 10 :][: len(apart) // 4]
    rates = {}
    for kind in NETWORKS:
        found = {}
        for lr in RATES:
            network, *_ = train(kind, vocab_size, rest, args.epochs, lr, PILOT_SEED)
            found[lr] = perplexity(by_network(network, validation)).item()
        rates[kind] = min(found, key=found.__getitem__)
        listed = ", ".join(f"{lr:g}: {value:.1f}" for lr, value in found.items())
        print(f"{kind:>8}, validation perplexity by learning rate: {listed}", flush=True)

    five_gram = NGram(texts, LONGEST_ORDER, vocab_size)
    all_counted = {n: by_counts(NGram(texts, n, vocab_size), test) for n in ORDERS}            # the same for each seed
    five = all_counted[LONGEST_ORDER]
    known = torch.tensor([five_gram.known(text[:i]) for text in test for i in range(1, len(text))]).clamp(min=1)

    def scored(model: str, share: str, seed: int, log_p: Tensor, **more) -> dict:
        by_known = {n: round(-log_p[known == n].mean().item(), 4) for n in range(1, LONGEST_ORDER)}
        return {"seed": seed, "share": share, "model": model, "perplexity": round(exp(-log_p.mean()), 2),
                "nats_by_known": by_known, **more}  # fmt: skip

    result = {
        "benchmark": "language_models", "command": command, "date": time.strftime("%Y-%m-%d"), "device": "cpu",
        "device_name": f"{platform.machine()}, 1 thread",
        "versions": {name: version(name) for name in ("torch", "attncourse")} | {"python": platform.python_version()},
        "seeds": args.seeds, "epochs": args.epochs, "d_hidden": D_HIDDEN, "vocab_size": vocab_size,
        "texts": {"training": len(texts), "test": len(test)},
        "tokens": {"training": sum(len(text) - 1 for text in texts), "test": len(five)},
        "rates": rates, "known": {n: round((known == n).double().mean().item(), 4) for n in range(1, LONGEST_ORDER)},
        "size": {"5-gram": len(five_gram)}
        | {kind: sum(p.numel() for p in make_network(kind, vocab_size).parameters()) for kind in NETWORKS},
        "runs": [],
    }  # fmt: skip
    for seed in args.seeds:
        order = shuffled(texts, seed)
        for share, divisor in SHARES.items():
            some = order[: len(order) // divisor]
            for n in ORDERS:
                log_p = all_counted[n] if share == "all" else by_counts(NGram(some, n, vocab_size), test)
                result["runs"].append(scored(f"{n}-gram", share, seed, log_p))
            for kind in TRAINED[share]:
                network, steps, seconds = train(kind, vocab_size, some, args.epochs, rates[kind], seed)
                log_p = by_network(network, test)
                more = {"steps": steps, "seconds": round(seconds, 1)}
                result["runs"].append(scored(kind, share, seed, log_p, **more))
                if kind == "GRU" and share == "all":
                    half = torch.log((log_p.exp() + five.exp()) / 2)
                    result["runs"].append(scored("5-gram and GRU", share, seed, half))
            done = [run for run in result["runs"] if (run["seed"], run["share"]) == (seed, share)]
            print(f"seed {seed}, {share}:", ", ".join(f"{run['model']} {run['perplexity']:.1f}" for run in done),
                  flush=True)  # fmt: skip
        result["processor_seconds"] = round(time.process_time())
        if args.save:
            args.save.write_text(as_text(result), encoding="utf-8")
    if args.json:
        print(json.dumps(result, ensure_ascii=False))


if __name__ == "__main__":
    main()
