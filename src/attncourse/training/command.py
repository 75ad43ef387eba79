"""`attncourse train`: a profile's model on number words or on captions, in a folder from which it can go on."""

import argparse
import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from tqdm import tqdm

from commandkit.errors import CommandError, require_extra

with require_extra("attncourse train", "train"):
    import sacrebleu  # noqa: F401
    import safetensors  # noqa: F401

from attncourse.data import Pair, encode_pairs
from attncourse.data.multi30k import Split3
from attncourse.training.distributed import DistributedContext, distributed_context
from attncourse.training.evaluation import BEST_BY, final_metrics, make_evaluate
from attncourse.training.profiles import DATA, PROFILES, load_corpora, make_run_config, settings, train_tokenizers
from attncourse.training.runs import (
    METRICS,
    Run,
    load_run,
    load_run_config,
    load_tokenizers,
    save_config,
    save_run_config,
    write_json,
)
from attncourse.training.trainer import CHECKPOINT, NonFiniteLoss, Progress, train
from attncourse.transformer import EncoderDecoder

LANGUAGES = ("de", "en", "fr")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--profile", choices=PROFILES, default="cpu", help="how large a model, and for how long")
    parser.add_argument(
        "--data", choices=DATA, help="number-words (the default of cpu) needs no download; multi30k (of gpu and base)"
    )
    parser.add_argument("--source", choices=LANGUAGES, default="de", help="translate from this language (default: de)")
    parser.add_argument("--target", choices=LANGUAGES, default="en", help="translate to this language (default: en)")
    parser.add_argument("--to", type=Path, metavar="DIR", help="the run's folder (default: runs/PROFILE-DATA-…)")
    known = parser.add_mutually_exclusive_group()
    known.add_argument("--resume", action="store_true", help="go on with the run in that folder, as it was planned")
    known.add_argument("--overwrite", action="store_true", help="begin anew where that folder holds a run")
    parser.add_argument("--steps", type=int, help="in place of the profile's, or of a resumed run's")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", help="cpu, cuda, cuda:1 … (default: a GPU where there is one)")
    parser.add_argument("--shard", action="store_true", help="under torchrun: split the parameters too (FSDP2)")


def main(args: argparse.Namespace) -> int:
    """Train; print the final metrics, the score last. 0, or 130 after Ctrl-C (the run can be resumed)."""
    if args.source == args.target:
        raise CommandError(f"--source and --target: got {args.source} for both, expected two languages")
    with distributed_context(args.device) as processes:
        try:
            return _run(args, processes)
        except ValueError as error:
            raise CommandError(str(error)) from error


def _run(args: argparse.Namespace, processes: DistributedContext) -> int:
    name = args.data or ("number-words" if args.profile == "cpu" else "multi30k")
    folder = args.to or Path("runs", f"{args.profile}-{name}-{args.source}-{args.target}")
    if args.resume:
        run_config = load_run_config(folder)
        tokenizers = load_tokenizers(folder, run_config.model)
        corpora = _corpora(run_config.data, processes)
        if args.steps not in (None, run_config.recipe.steps):
            if run_config.recipe.schedule == "cosine":
                planned = f"{run_config.recipe.steps} steps, at the end of which its learning rate is 0"
                raise CommandError(f"--steps: got {args.steps} for a run planned for {planned}; begin anew for another")
            run_config = run_config._replace(recipe=replace(run_config.recipe, steps=args.steps))
            if processes.is_main:
                save_config(folder, run_config)
    else:
        if (folder / CHECKPOINT).exists() and not args.overwrite:
            raise CommandError(f"{folder} holds a run: --resume goes on with it, --overwrite begins anew")
        data, _, _ = settings(args.profile, name)
        data |= {"source": args.source, "target": args.target}
        corpora = _corpora(data, processes)
        tokenizers = processes.broadcast_from_main(lambda: train_tokenizers(data, corpora.train))
        changes = {"seed": args.seed, "shard": args.shard} | ({"steps": args.steps} if args.steps is not None else {})
        run_config = make_run_config(args.profile, name, args.source, args.target, tokenizers, **changes)
        if processes.is_main:
            save_run_config(folder, run_config, *tokenizers, processes.device)
            (folder / METRICS).unlink(missing_ok=True)            # of a run that this one overwrites
    torch.manual_seed(run_config.recipe.seed)
    model = EncoderDecoder(run_config.model).to(processes.device)
    size = sum(p.numel() for p in model.parameters())
    if processes.is_main:
        what = run_config.data
        print(f"{what['name']} {what['source']} → {what['target']}, {len(corpora.train):,} pairs; "
              f"{size:,} parameters on {processes.count} × {processes.device}; in {folder}")  # fmt: skip
    pairs = encode_pairs(corpora.train, *tokenizers)
    best_by = BEST_BY[run_config.data["name"]]
    with _Bar(run_config.recipe.steps, best_by, processes.is_main) as bar:
        try:
            progress = train(
                model, pairs, run_config.recipe, folder,
                evaluate=make_evaluate(run_config.data["name"], corpora.val, *tokenizers),
                best_by=best_by, resume=args.resume, processes=processes, listeners=[bar.show],
            )  # fmt: skip
        except NonFiniteLoss as error:
            raise CommandError(f"{error}\n{_quote([corpora.train[i] for i in error.pairs])}") from error
    if progress.ended == "interrupted":
        if processes.is_main:
            goes_on = f"attncourse train --resume --to {folder}"
            print(f"stopped at step {progress.step}; go on with: {goes_on}", file=sys.stderr)
        return 130
    if processes.is_main:
        _report(load_run(folder, processes.device), folder, corpora.test, progress)
    return 0


def _corpora(data: dict[str, Any], processes: DistributedContext) -> Split3:
    if processes.count > 1:                                      # one process downloads, the others find the files
        processes.broadcast_from_main(lambda: load_corpora(data) and None)
    return load_corpora(data)


def _report(run: Run, folder: Path, test: list[Pair], progress: Progress) -> None:
    name = run.run_config.data["name"]
    measured = final_metrics(run.model, name, test, run.source, run.target)
    measured |= {"steps": progress.step, "seconds": progress.seconds, "target_tokens": progress.tokens}
    write_json(folder / METRICS, {"test": measured, "best_validation": progress.best, "ended": progress.ended})
    print(f"{progress.step} steps and their evaluations in {progress.seconds:.0f} s, "
          f"{progress.tokens / progress.seconds:,.0f} target tokens a second")  # fmt: skip
    print(f"test loss {measured['loss']:.3f} nats a token")
    if name == "multi30k":
        print(f"chrF {measured['chrf']:.1f}  {measured['chrf_signature']}")
        print(f"BLEU {measured['bleu_lowercase']:.1f}  {measured['bleu_lowercase_signature']}")
        print(f"BLEU {measured['bleu']:.1f}  {measured['bleu_signature']}")
    else:
        print(f"exactly right {measured['exact']:.1%} of {measured['pairs']}")


def _quote(pairs: list[Pair]) -> str:
    shown = [f"  {json.dumps(pair.source, ensure_ascii=False)}" for pair in pairs[:3]]
    return "\n".join(["among them:", *shown]) if shown else ""


class _Bar:
    """A line of progress in a terminal: steps, loss, learning rate, the best score so far."""

    def __init__(self, steps: int, best_by: str, wanted: bool):
        self.best_by = best_by
        self.bar = tqdm(total=steps, unit="step", dynamic_ncols=True, disable=None if wanted else True)

    def __enter__(self) -> "_Bar":
        return self

    def __exit__(self, *error) -> None:
        self.bar.close()

    def show(self, progress: Progress) -> None:
        last = progress.steps[-1]
        said = {"loss": f"{last.loss:.3f}", "lr": f"{last.lr:.1e}"}
        if progress.best:
            said[f"best {self.best_by}"] = f"{progress.best[self.best_by]:.3g}"
        if not self.bar.n:                                        # what a resumed run had done before took no time now
            self.bar.initial = self.bar.n = self.bar.last_print_n = progress.step - 1
        self.bar.set_postfix(said, refresh=False)
        self.bar.update(progress.step - self.bar.n)
