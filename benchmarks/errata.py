"""Would the loss have shown it? A small language model is given back one erratum at a time, and trained.

    python benchmarks/errata.py [--steps 400] [--seeds 0 1 … 9] [--lr 0.005] [--only NAME ...] [--json]
                                [--save FILE] [--merge] [--token-by-token]

The model is the code slide's in our words and repaired (`attncourse_lessons.slides.model`), and reads the standard
library's docstrings, in pieces that are mostly single letters. Each variant has one fault, and gets the same texts in
the same order, the same number of steps, the same schedule and learning rate. What counts is the loss on modules that
no model has read, in nats a token, and its difference from the right model's *with the same seed*. They are read in
batches as large as those of training: one of the faults breaks batch invariance, and its loss depends on that size. A
variant that crashes is written down with its error, one whose loss is no number with null.

With `--token-by-token` each model also reads the same texts as a model does when it writes: each prediction comes from
a call with the tokens before it alone. The row keeps these losses under "token_by_token". For a causal model they are
those of one call, up to rounding.

The errata lab draws what `--save src/attncourse_lessons/measured/errata.json` keeps. With `--only … --merge` the file
keeps its other rows, if its run was of the same steps, seeds, texts and rate, and the right model comes out as it did.
"""

import argparse
import datetime
import json
import math
import platform
import time
from importlib.metadata import version
from pathlib import Path

import torch
from modifications import compared, held_out_loss

from attncourse.data import PAD, Tokenizer, docstrings, encode_texts, text_batches
from attncourse.metrics import token_loss
from attncourse.training import fit_texts
from attncourse_lessons.errata import FAULTS, SlideModel

VOCABULARY, LONGEST, BATCH_TOKENS, LR = 128, 64, 512, 5e-3
SIZES = {"d_model": 48, "n_heads": 4, "n_layers": 2, "d_ff": 192, "max_length": 512}
RIGHT = "nothing"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=400, help="training steps of each model")
    parser.add_argument("--seeds", type=int, nargs="+", default=list(range(10)), help="one model a seed and variant")
    parser.add_argument("--lr", type=float, default=LR, help="the highest learning rate of the schedule")
    parser.add_argument("--only", nargs="+", default=list(FAULTS), choices=list(FAULTS), metavar="NAME")
    parser.add_argument("--token-by-token", action="store_true", help="also the loss from one call for each token")
    parser.add_argument("--json", action="store_true", help="print one JSON object as the last line")
    parser.add_argument("--save", type=Path, help="write the same object to this file, after each seed")
    parser.add_argument("--merge", action="store_true", help="with --save: put the rows into the file, after all seeds")
    args = parser.parse_args()
    if args.merge and not args.save:
        parser.error("--merge needs --save FILE")
    torch.set_num_threads(1)

    corpus = docstrings()
    tokenizer = Tokenizer.train(corpus.train, size=VOCABULARY)
    train, test = encode_texts(corpus.train, tokenizer), encode_texts(corpus.test, tokenizer)
    losses: dict[str, list[float | None]] = {name: [] for name in (RIGHT, *args.only)}
    grown: dict[str, list[float]] = {name: [] for name in losses} if args.token_by_token else {}
    errors: dict[str, str] = {}
    started = time.process_time()
    for done, seed in enumerate(args.seeds, start=1):
        for name in losses:
            if name in errors:
                continue
            try:
                model = trained(name, train, args.steps, seed, args.lr)
                loss = held_out_loss(model, test, BATCH_TOKENS, LONGEST)
                losses[name].append(round(loss, 5) if math.isfinite(loss) else None)
                if args.token_by_token:
                    grown[name].append(round(token_by_token_loss(model, test), 5))
            except (RuntimeError, IndexError) as error:
                errors[name] = f"{type(error).__name__}: {str(error).splitlines()[0]}"
            found = errors.get(name) or losses[name][-1]
            print(f"seed {seed}  {name:<36} {found}", *grown.get(name, [])[-1:], flush=True)
        result = summary(losses, grown, errors, args.seeds[:done], args, len(train), len(test))
        result["cpu_seconds"] = round(time.process_time() - started)
        if args.save and not args.merge:
            write(result, args.save)
    if args.merge:
        write(merged(json.loads(args.save.read_text()), result), args.save)
    if args.json:
        print(json.dumps(result, ensure_ascii=False))


def trained(name: str, train: list, steps: int, seed: int, lr: float) -> SlideModel:
    torch.manual_seed(seed)
    model = SlideModel(VOCABULARY, **SIZES, faults=() if name == RIGHT else (name,))
    fit_texts(model, train, steps, BATCH_TOKENS, LONGEST, lr, seed, progress=False)
    return model


@torch.no_grad()
def token_by_token_loss(model: SlideModel, texts: list) -> float:
    """As `held_out_loss`, and each prediction from a call with the tokens before it alone."""
    total = tokens = 0.0
    for batch in text_batches(texts, BATCH_TOKENS, LONGEST, seed=0):
        ends = range(1, batch.tokens_in.shape[1] + 1)
        newest = [model(batch.tokens_in[:, :end])[:, -1] for end in ends]  # (batch, vocabulary) each
        n = (batch.tokens_out != PAD).sum().item()
        total, tokens = total + n * token_loss(torch.stack(newest, dim=1), batch.tokens_out).item(), tokens + n
    return total / tokens


def summary(losses: dict, grown: dict, errors: dict, seeds: list[int], args, n_train: int, n_test: int) -> dict:
    """Losses by seed, and the differences from the right model's at the same seed."""
    faults = {}
    for name, found in losses.items():
        row: dict = {"error": errors[name]} if name in errors else {"losses": found}
        if name not in errors and None not in found:
            row |= compared(found, losses[RIGHT])
            if grown:
                row["token_by_token"] = {"losses": grown[name]} | compared(grown[name], grown[RIGHT])
        faults[name] = row
    options = f" --lr {args.lr:g}" * (args.lr != LR)
    if len(args.only) < len(FAULTS):
        options += " --only " + " ".join(f"'{name}'" for name in args.only)
    options += " --token-by-token" * args.token_by_token
    return {
        "command": f"python benchmarks/errata.py --steps {args.steps} --seeds {' '.join(map(str, seeds))}" + options,
        "date": datetime.date.today().isoformat(),
        "device": f"one thread of a CPU ({platform.machine()})",
        "python": platform.python_version(),
        "torch": version("torch"),
        "texts": {"train": n_train, "test": n_test},
        "sizes": {"vocab_size": VOCABULARY, **SIZES},
        "steps": args.steps,
        "batch_tokens": BATCH_TOKENS,
        "lr": args.lr,
        "seeds": seeds,
        "faults": faults,
    }


def merged(old: dict, new: dict) -> dict:
    """The old record with what the rows of the new one have, and a note for each merge of which these are."""
    for what in ("steps", "batch_tokens", "lr", "seeds", "texts"):
        if old[what] != new[what]:
            raise SystemExit(f"--merge: the file has {what} {old[what]}, this run {new[what]}")
    pairs = zip(old["faults"][RIGHT]["losses"], new["faults"][RIGHT]["losses"], strict=True)
    apart = max(abs(before - now) for before, now in pairs)
    if apart > 1e-4:
        raise SystemExit(f"--merge: the right model's losses are up to {apart:.5f} from those of the file")
    note = {key: new[key] for key in ("command", "date", "torch", "cpu_seconds")}
    rows = {name: old["faults"].get(name, {}) | row for name, row in new["faults"].items()}
    return old | {"sizes": new["sizes"], "faults": old["faults"] | rows, "merged": [*old.get("merged", []), note]}


def write(result: dict, path: Path) -> None:
    path.write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
