"""Lecture 09's kept language model: of Llama's shape, trained on docstrings.

    python benchmarks/writer.py [--minutes 60] [--steps 12000] [--lr 0.01] [--run runs/writer] [--resume]
                                [--keep] [--validate]

The texts are those of the lecture, `attncourse.data.docstrings`, and the docstrings of three packages that every reader
of the course has: torch, numpy and matplotlib, whose licences are permissive, as the standard library's is. Tokens are
the lecture's, too, 2,048 of them. The last modules of the training set are kept apart to choose the weights by
(validation); the test set, other modules of the standard library, is scored once, at the end, with `--keep`. The
5-gram model counts all that the network has read, and what was kept apart as well. One process, one thread. A run ends
after so many minutes, and each evaluation keeps the best weights in the folder `--run`, so that it can be stopped
earlier, and gone on with by `--resume`. `--validate` prints the validation loss alone, to compare learning rates and
sizes.

`--keep` writes what the lecture loads: the folder src/attncourse_lessons/measured/writer, a checkpoint of Llama's kind
in half precision (`attncourse.pretrained.load` reads it, and so does transformers) with its tokenizer, and beside it
writer.json, what was measured.
"""

import argparse
import csv
import json
import signal
import time
from dataclasses import replace
from math import log
from pathlib import Path

import tokenizers
import torch
from record import about

from attncourse import pretrained
from attncourse.data import Tokenizer, docstrings, encode_texts
from attncourse.data.batches import cut
from attncourse.metrics import text_log_probabilities
from attncourse.ngram import NGram
from attncourse.training.evaluation import mean_text_loss
from attncourse.training.recipe import Recipe
from attncourse.training.runs import load_run
from attncourse.training.trainer import train
from attncourse.transformer import LanguageModel, TransformerConfig
from commandkit import files

VOCABULARY, ORDER, TEST_SHARE, APART, LR = 2048, 5, 0.1, 0.04, 1e-2
PACKAGES = ("torch", "numpy", "matplotlib")   # every reader of the course has them; their licences are permissive
MEASURED = Path(__file__).parents[1] / "src/attncourse_lessons/measured"
CHECKPOINT, RECORD = MEASURED / "writer", MEASURED / "writer.json"
SIZE = {"d_model": 128, "n_layers": 3, "n_heads": 4, "dropout": 0.1, "max_length": 256}
SHAPE = {"positions": "rope", "norm": "rms", "activation": "swiglu", "bias": False, "tie_output": False}


def parts() -> tuple[list[str], list[str], list[str], list[str]]:
    """Texts of the packages, and of the standard library for training, validation and test: whole modules each.

    The test set is the lecture's, and no text stands in two parts.
    """
    corpus = docstrings(test_share=TEST_SHARE)
    wider = docstrings(test_share=TEST_SHARE + APART)
    apart = wider.test[len(corpus.test) :]
    assert wider.test[: len(corpus.test)] == corpus.test and wider.train + apart
    with_packages = docstrings(test_share=TEST_SHARE, packages=PACKAGES).train
    return with_packages[: len(with_packages) - len(corpus.train)], wider.train, apart, corpus.test


def model_of(vocab_size: int, size: dict) -> LanguageModel:
    """Llama's shape; the gated network is 8/3 of d_model wide, so that it has the parameters of a plain one.

    Embeddings are scaled while it learns: unscaled, their numbers are about 1 / √d_model, and it begins more slowly.
    """
    d_ff = 16 * round(size["d_model"] / 6)
    return LanguageModel(TransformerConfig(vocab_size=vocab_size, d_ff=d_ff, scale_embedding=True, **SHAPE, **size))


def unscaled(model: LanguageModel) -> LanguageModel:
    """The same function without the factor √d_model: it goes into the table, which the output does not share."""
    same = LanguageModel(replace(model.config, scale_embedding=False))
    same.load_state_dict(model.state_dict())
    with torch.no_grad():
        same.decoder.embedding.tokens.weight *= model.config.d_model**0.5
    return same.eval()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=60.0, help="stop after so many (of this session)")
    parser.add_argument("--lr", type=float, default=LR, help="the highest learning rate")
    parser.add_argument("--batch-tokens", type=int, default=512)
    parser.add_argument("--steps", type=int, default=12_000, help="the learning rate falls to zero over so many")
    parser.add_argument("--d-model", type=int, default=SIZE["d_model"])
    parser.add_argument("--n-layers", type=int, default=SIZE["n_layers"])
    parser.add_argument("--dropout", type=float, default=SIZE["dropout"])
    parser.add_argument("--run", type=Path, default=Path("runs/writer"), help="the run's folder")
    parser.add_argument("--resume", action="store_true", help="go on with the run in that folder")
    parser.add_argument("--validate", action="store_true", help="train, print validation losses, keep nothing")
    parser.add_argument("--keep", action="store_true", help="train nothing; score the run, write checkpoint and record")
    args = parser.parse_args()
    torch.set_num_threads(1)

    of_packages, training, apart, test = parts()
    tokenizer = Tokenizer.train(training + apart, VOCABULARY)
    texts, kept_apart = encode_texts(of_packages + training, tokenizer), encode_texts(apart, tokenizer)
    size = SIZE | {"d_model": args.d_model, "n_heads": args.d_model // 32, "n_layers": args.n_layers,
                   "dropout": args.dropout}  # fmt: skip
    torch.manual_seed(0)
    model = model_of(len(tokenizer), size)
    if args.keep:
        alone = encode_texts(training + apart, tokenizer)
        keep(tokenizer, args.run, texts, kept_apart, alone, encode_texts(test, tokenizer), test)
        return

    every = 100 if args.validate else 1000
    recipe = Recipe(
        steps=args.steps, batch_tokens=args.batch_tokens, lr=args.lr, warmup=200, schedule="cosine", weight_decay=0.05,
        label_smoothing=0.0, evaluate_every=every, save_every=every,
    )  # fmt: skip
    began, spent = time.perf_counter(), time.process_time()
    before = {"minutes": 0, "processor_minutes": 0}
    if args.resume:
        before = json.loads((args.run / "spent.json").read_text())
    print(f"{sum(p.numel() for p in model.parameters()):,} parameters, {sum(map(len, texts)):,} tokens", flush=True)

    def listen(progress) -> None:
        if progress.scores and progress.scores[-1]["step"] == progress.step:
            lately = [step.loss for step in progress.steps[-50:]]
            print(f"step {progress.step}: training {sum(lately) / len(lately):.3f}, validation "
                  f"{progress.scores[-1]['loss']:.4f}; {progress.tokens:,} tokens, {time.process_time() - spent:.0f} s "
                  f"of the processor, {time.perf_counter() - began:.0f} s", flush=True)  # fmt: skip
        if not args.validate:
            say_what_was_spent(args, before, began, spent)
        if time.perf_counter() - began > 60 * args.minutes:
            signal.raise_signal(signal.SIGINT)                    # the trainer ends after the step that is under way

    if not args.validate:
        args.run.mkdir(parents=True, exist_ok=True)
    train(
        model, texts, recipe, None if args.validate else args.run, lambda m: {"loss": mean_text_loss(m, kept_apart)},
        "loss", args.resume, listeners=(listen,), tokenizers=None if args.validate else tokenizer,
    )  # fmt: skip


def say_what_was_spent(args, before: dict, began: float, spent: float) -> None:
    """Keep the command, and the minutes of this session and those before it, beside the run."""
    said = {
        "command": f"python benchmarks/writer.py --minutes {args.minutes:g}" + f" --lr {args.lr:g}" * (args.lr != LR),
        "minutes": round(before["minutes"] + (time.perf_counter() - began) / 60, 1),
        "processor_minutes": round(before["processor_minutes"] + (time.process_time() - spent) / 60, 1),
    }
    files.write_whole(args.run / "spent.json", json.dumps(said))


def scored(model: LanguageModel, texts: list[list[int]]) -> torch.Tensor:
    """ln p of every token, in the texts' order; longer texts than the positions allow are read in pieces."""
    return torch.cat(text_log_probabilities(model, cut(texts, model.max_positions or 0))).double()


def keep(
    tokenizer: Tokenizer, run: Path, texts: list, apart: list, alone: list, test: list, test_texts: list[str]
) -> None:
    """Score the run's best weights on the test set, beside 5-gram models; write checkpoint and record.

    One of these has counted what the network has read, the other the standard library `alone`, as the lecture's does.
    """
    model = unscaled(load_run(run).model)
    pretrained.save(model.half(), CHECKPOINT, "llama", tokenizers.Tokenizer.from_str(tokenizer.to_json()))
    model = pretrained.load(CHECKPOINT).model                                 # what was kept is what is measured
    counted = NGram(texts + apart, ORDER, len(tokenizer))
    by_counts = torch.cat([counted.log_probabilities(text) for text in test])
    fewer = NGram(alone, ORDER, len(tokenizer))
    by_fewer = torch.cat([fewer.log_probabilities(text) for text in test])
    ours = scored(model, test)
    half = torch.log((ours.exp() + by_counts.exp()) / 2)
    n_bytes = sum(len(text.encode()) + 1 for text in test_texts)              # the end of a text counts as one
    lengths = [len(text) - 1 for text in test]
    by_text = torch.stack([part.sum() for part in (ours - by_counts).split(lengths)])          # nats, of each text
    draws = torch.randint(len(test), (2000, len(test)), generator=torch.Generator().manual_seed(0))
    gains = by_text[draws].sum(dim=1) / torch.tensor(lengths, dtype=torch.double)[draws].sum(dim=1)
    losses = csv.DictReader((run / "losses.csv").open())
    scores = list(csv.DictReader((run / "scores.csv").open()))
    described = json.loads((run / "spent.json").read_text())
    result = {
        **about("writer", described["command"], ("torch", "attncourse", "numpy", "matplotlib")),
        "minutes": described["minutes"], "processor_minutes": described["processor_minutes"],
        "parameters": sum(p.numel() for p in model.parameters()), "vocab_size": len(tokenizer), "order": ORDER,
        "tokens": {"training": sum(len(text) - 1 for text in texts), "validation": sum(len(text) - 1 for text in apart),
                   "test": len(ours)},
        "bytes": n_bytes, "steps": len(list(losses)),
        "validation": [{"step": int(float(row["step"])), "loss": round(float(row["loss"]), 4)} for row in scores],
        "nats_per_token": {"5-gram": round(-by_counts.mean().item(), 4), "kept": round(-ours.mean().item(), 4),
                           "5-gram and kept": round(-half.mean().item(), 4),
                           "5-gram, standard library alone": round(-by_fewer.mean().item(), 4)},
        "bits_per_byte": {"5-gram": round(-by_counts.sum().item() / log(2) / n_bytes, 4),
                          "kept": round(-ours.sum().item() / log(2) / n_bytes, 4)},
        "gain": {"mean": round(gains.mean().item(), 4), "low": round(gains.quantile(0.025).item(), 4),
                 "high": round(gains.quantile(0.975).item(), 4), "texts": len(test)},
    }  # fmt: skip
    files.write_whole(RECORD, json.dumps(result, indent=1) + "\n")
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
