"""`attncourse train`: a profile's model on number words, captions or text of one's own.

It learns in a folder from which it can go on: to translate, or, on texts alone, as a language model.
"""

import argparse
import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import nn
from tqdm import tqdm

from commandkit.errors import CommandError, require_extra

with require_extra("attncourse train", "train"):
    import sacrebleu  # noqa: F401
    import safetensors  # noqa: F401

from attncourse.data import Tokenizer, encode_pairs
from attncourse.data.multi30k import Split3
from attncourse.training.distributed import DistributedContext, distributed_context
from attncourse.training.evaluation import BEST_BY, describe_metrics, make_evaluate
from attncourse.training.hardware import is_out_of_memory, settle_precision
from attncourse.training.own_text import PAIRS, TEXTS, Files, own_text
from attncourse.training.persistence import CHECKPOINT, FREE
from attncourse.training.prediction import describe, predict
from attncourse.training.profiles import DATA, PROFILES, load_corpora, make_run_config, settings, train_tokenizers
from attncourse.training.progress import NonFiniteLoss, Progress
from attncourse.training.recipe import Recipe
from attncourse.training.runs import (
    METRICS,
    Run,
    RunConfig,
    load_run,
    load_run_config,
    load_tokenizers,
    save_config,
    save_run_config,
    write_json,
)
from attncourse.training.trainer import train

LANGUAGES = ("de", "en", "fr")
# Fields of the recipe and of the model that can be said in place of the profile's.
RECIPE: dict[str, dict[str, Any]] = {
    "steps": {"type": int, "help": "updates; of a resumed run, too, unless its learning rate follows a cosine"},
    "lr": {"type": float, "help": "the highest learning rate"},
    "warmup": {"type": int, "help": "steps until the learning rate is at its highest"},
    "batch_tokens": {"type": int, "help": "tokens of a micro-batch, padding included: what decides about memory"},
    "accumulate": {"type": int, "help": "micro-batches that are added up for a step"},
    "weight_decay": {"type": float, "help": "of matrices alone"},
    "label_smoothing": {"type": float, "help": "the share of the truth that all tokens get alike"},
    "ema": {"type": float, "help": "evaluate an average of the weights with this decay; 0: none"},
    "evaluate_every": {"type": int, "help": "steps between two evaluations"},
    "save_every": {"type": int, "help": "steps between two checkpoints (default: as evaluate-every)"},
    "patience": {"type": int, "help": "stop after so many evaluations in a row that were not the best"},
    "precision": {"choices": ("auto", "float32", "bf16", "fp16"), "help": "auto: 16 bits on a CUDA GPU"},
    "compile": {"action": argparse.BooleanOptionalAction, "help": "compile the model (on a GPU: needs Triton)"},
    "activation_checkpointing": {
        "action": argparse.BooleanOptionalAction, "help": "less memory for a forward pass more",
    },
}  # fmt: skip
MODEL: dict[str, dict[str, Any]] = {
    "d_model": {"type": int, "help": "width"},
    "n_layers": {"type": int, "help": "blocks in the encoder, and as many in the decoder"},
    "n_heads": {"type": int, "help": "heads of attention"},
    "d_ff": {"type": int, "help": "width of the feed-forward networks"},
    "dropout": {"type": float, "help": "share of the numbers that dropout takes out"},
}

EXAMPLES = """
PROGRAM train
PROGRAM train --text mine.txt --to runs/mine
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--profile", choices=PROFILES, default="cpu", help="how large a model, and for how long")
    parser.add_argument(
        "--data", choices=DATA, help="number-words (cpu's default) needs no download; multi30k (the others' default)"
    )
    languages = f"a language ({', '.join(LANGUAGES)}), or a file of your own with one sentence a line"
    parser.add_argument("--source", default="de", help=f"translate from this: {languages} (default: de)")
    parser.add_argument("--target", default="en", help="translate to this: alike; line n is line n's translation "
                                                       "(default: en)")  # fmt: skip
    parser.add_argument("--text", type=Path, metavar="FILE", help="train a language model on this file: texts that "
                                                                  "empty lines part, or a text a line")  # fmt: skip
    for part, what in (("valid", "choose the weights by"), ("test", "score at the end")):
        parser.add_argument(
            f"--{part}-source", type=Path, metavar="FILE",
            help=f"own text: {what} these files (default: a part of the training text, held out)",
        )  # fmt: skip
        parser.add_argument(f"--{part}-target", type=Path, metavar="FILE", help="and their translations")
        parser.add_argument(f"--{part}-text", type=Path, metavar="FILE", help="alike, of a language model")
    parser.add_argument("--to", type=Path, metavar="DIR", help="the run's folder (default: runs/PROFILE-DATA-…)")
    known = parser.add_mutually_exclusive_group()
    known.add_argument("--resume", action="store_true", help="go on with the run in that folder, as it was planned")
    known.add_argument("--overwrite", action="store_true", help="begin anew where that folder holds a run")
    known.add_argument("--predict", action="store_true", help="say what the run would take, and train nothing")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", help="cpu, cuda, cuda:1, mps … (default: a GPU where there is one)")
    parser.add_argument("--shard", action="store_true", help="under torchrun: split the parameters too (FSDP2)")
    own = parser.add_argument_group("in place of what the profile says")
    for name, how in (RECIPE | MODEL | {"vocab_size": {"type": int, "help": "tokens that there are, at most"}}).items():
        own.add_argument(_flag(name), **how)


def main(args: argparse.Namespace) -> int:
    """Train; print the final metrics, the score last. 0, or 130 after Ctrl-C (the run can be resumed)."""
    if args.source == args.target and not args.text:
        raise CommandError(f"--source and --target: got {args.source} for both, expected two languages, or two files")
    with distributed_context(args.device) as processes:
        try:
            return _run(args, processes)
        except ValueError as error:
            raise CommandError(str(error)) from error


def _run(args: argparse.Namespace, processes: DistributedContext) -> int:
    folder, run_config, tokenizers, corpora = (_go_on if args.resume else _begin)(args, processes)
    if args.predict:
        if processes.is_main:
            print(describe(predict(run_config, run_config.task.encode(corpora.train, *tokenizers))))
        return 0
    torch.manual_seed(run_config.recipe.seed)
    model = run_config.task.model(run_config.model).to(processes.device)
    size = sum(p.numel() for p in model.parameters())
    if processes.is_main:
        what = run_config.data
        names = f"{what['source']} → {what['target']}" if "target" in what else what["source"]
        examples = f"{len(corpora.train):,} {run_config.task.examples}"
        print(f"{what['name']} {names}, {examples}; {size:,} parameters on {processes.count} × {processes.device}; "
              f"in {folder}")  # fmt: skip
    try:
        progress = _train(model, run_config, tokenizers, corpora, folder, args.resume, processes)
        if progress.ended != "interrupted" and processes.is_main:
            _report(load_run(folder, processes.device), folder, corpora.test, progress)
    except NonFiniteLoss as error:
        if run_config.task.in_pieces:
            raise CommandError(str(error)) from error
        raise CommandError(f"{error}\n{_quote([corpora.train[i].source for i in error.examples])}") from error
    except Exception as error:
        if not is_out_of_memory(error):
            raise
        raise CommandError(_what_to_do_without_memory(run_config.recipe, processes.device, folder)) from error
    if progress.ended == "interrupted":
        if processes.is_main:
            goes_on = f"attncourse train --resume --to {folder}"
            print(f"stopped at step {progress.step}; go on with: {goes_on}", file=sys.stderr)
        return 130
    return 0


def _begin(
    args: argparse.Namespace, processes: DistributedContext
) -> tuple[Path, RunConfig, tuple[Tokenizer, ...], Split3[Any]]:
    """The plan of a new run, written into its folder; its tokenizers and its pairs."""
    name, described, stem = _which_data(args)
    folder = args.to or Path("runs", f"{args.profile}-{stem}")
    if (folder / CHECKPOINT).exists() and not args.overwrite and not args.predict:
        raise CommandError(f"{folder} holds a run: --resume goes on with it, --overwrite begins anew")
    data, _, _ = settings(args.profile, name)
    data |= described | _given(args, ["vocab_size"])
    corpora = _corpora(data, processes)
    tokenizers = processes.broadcast_from_main(lambda: train_tokenizers(data, corpora.train))
    changes = {"seed": args.seed, "shard": args.shard} | _given(args, RECIPE)
    run_config = make_run_config(args.profile, name, tokenizers, data, _given(args, MODEL), **changes)
    if not args.predict:
        settle_precision(run_config.recipe.precision, processes.device)
    corpora = _that_fit(corpora, run_config, tokenizers, processes)
    if processes.is_main and not args.predict:
        save_run_config(folder, run_config, tokenizers, processes.device)
        (folder / METRICS).unlink(missing_ok=True)                # of a run that this one overwrites
    return folder, run_config, tokenizers, corpora


def _go_on(
    args: argparse.Namespace, processes: DistributedContext
) -> tuple[Path, RunConfig, tuple[Tokenizer, ...], Split3[Any]]:
    """The plan of the run in the folder, with what may change; its tokenizers and its pairs."""
    folder = args.to or Path("runs", f"{args.profile}-{_which_data(args)[2]}")
    run_config = load_run_config(folder)
    changes = _given(args, [*RECIPE, *MODEL, "vocab_size"])
    if fixed := [name for name in changes if name not in FREE]:
        raise CommandError(f"{_flag(fixed[0])}: is settled in a run that is resumed; begin anew for another")
    planned = run_config.recipe
    if changes.get("steps", planned.steps) != planned.steps and planned.schedule == "cosine":
        said = f"{planned.steps} steps, after which its learning rate is 0"
        raise CommandError(f"--steps: got {args.steps} for a run planned for {said}; begin anew for another")
    if run_config.data["name"] not in BEST_BY:
        raise CommandError(f"{folder}: was trained from Python; there, train(..., resume=True) goes on with it")
    tokenizers = load_tokenizers(folder, run_config)
    corpora = _that_fit(_corpora(run_config.data, processes), run_config, tokenizers, processes)
    if changes:
        run_config = run_config._replace(recipe=replace(planned, **changes))
        if processes.is_main:
            save_config(folder, run_config)
    return folder, run_config, tokenizers, corpora


def _which_data(args: argparse.Namespace) -> tuple[str, dict[str, Any], str]:
    """The name of the data, what a plan says of it, and how a folder is called after it.

    Raises CommandError for what is neither a language nor a file.
    """
    files = [value for value in (args.source, args.target) if value not in LANGUAGES]
    if args.text:
        return _which_text(args, files)
    if alone := [part for part in ("valid", "test") if getattr(args, f"{part}_text")]:
        raise CommandError(f"--{alone[0]}-text: belongs to a language model; name its text by --text")
    parts = {}
    for part in ("valid", "test"):
        pair = getattr(args, f"{part}_source"), getattr(args, f"{part}_target")
        if (pair[0] is None) != (pair[1] is None):
            raise CommandError(f"--{part}-source and --{part}-target: got one of them, expected both")
        parts[part] = None if pair[0] is None else pair
    if not files:
        if given := [part for part, pair in parts.items() if pair]:
            raise CommandError(f"--{given[0]}-source: belongs to text of your own; name it by --source and --target")
        name = args.data or ("number-words" if args.profile == "cpu" else "multi30k")
        return name, {"source": args.source, "target": args.target}, f"{name}-{args.source}-{args.target}"
    for flag, value in (("--source", args.source), ("--target", args.target)):
        if value in files and not Path(value).is_file():
            expected = f"a language ({', '.join(LANGUAGES)}) or a file with one sentence a line"
            raise CommandError(f"{flag}: got {value!r}, expected {expected}")
    if len(files) == 1:
        got = f"{args.source} and {args.target}"
        raise CommandError(f"--source and --target: got {got}, expected two languages or two files")
    if args.data:
        raise CommandError(f"--data: got {args.data} beside files of your own; leave one of them out")
    train_files: Files = (Path(args.source), Path(args.target))
    described = own_text(train_files, parts["valid"], parts["test"], args.seed)
    return PAIRS, described, f"{train_files[0].name}-{train_files[1].name}"


def _which_text(args: argparse.Namespace, files: list[str]) -> tuple[str, dict[str, Any], str]:
    """As `_which_data`, for a language model."""
    if args.data or files:
        other = f"--data {args.data}" if args.data else f"files to translate ({', '.join(files)})"
        raise CommandError(f"--text: got {args.text} beside {other}; leave one of them out")
    for part in ("valid", "test"):
        if getattr(args, f"{part}_source") or getattr(args, f"{part}_target"):
            raise CommandError(f"--{part}-source: belongs to pairs; for a language model, --{part}-text")
    valid, test = ((path,) if path else None for path in (args.valid_text, args.test_text))
    return TEXTS, own_text((args.text,), valid, test, args.seed), args.text.name


def _corpora(data: dict[str, Any], processes: DistributedContext) -> Split3[Any]:
    if processes.count > 1:                                      # one process downloads, the others find the files
        processes.broadcast_from_main(lambda: load_corpora(data) and None)
    return load_corpora(data)


def _that_fit(
    corpora: Split3[Any], run_config: RunConfig, tokenizers: tuple[Tokenizer, ...], processes: DistributedContext
) -> Split3[Any]:
    """The pairs without those of one's own text that are longer than the model's positions; it is said how many."""
    most = run_config.model.max_positions
    if run_config.data["name"] != PAIRS or most is None:
        return corpora
    kept = []
    for pairs in corpora:
        encoded = encode_pairs(pairs, *tokenizers)
        fit = [max(len(pair.source), len(pair.target) + 1) <= most for pair in encoded]
        kept.append([pair for pair, fits in zip(pairs, fit, strict=True) if fits])
    left_out = sum(map(len, corpora)) - sum(map(len, kept))
    if left_out and processes.is_main:
        print(f"left out: {left_out:,} pairs of more than {most} tokens")
    for name, pairs in zip(("training", "validation", "test"), kept, strict=True):
        if not pairs:
            raise CommandError(f"no {name} pair has at most {most} tokens; give one sentence a line")
    return Split3(*kept)


def _train(
    model: nn.Module,
    run_config: RunConfig,
    tokenizers: tuple[Tokenizer, ...],
    corpora: Split3[Any],
    folder: Path,
    resume: bool,
    processes: DistributedContext,
) -> Progress:
    name, recipe = run_config.data["name"], run_config.recipe
    examples = run_config.task.encode(corpora.train, *tokenizers)
    evaluate = make_evaluate(name, corpora.val, *tokenizers)
    with _Bar(recipe.steps, BEST_BY[name], processes.is_main) as bar:
        return train(
            model, examples, recipe, folder, evaluate, BEST_BY[name], resume, processes=processes, listeners=[bar.show]
        )


def _report(run: Run, folder: Path, test: list[Any], progress: Progress) -> None:
    measured = run.run_config.task.metrics(run.model, run.run_config.data["name"], test, *run.tokenizers)
    measured |= {"steps": progress.step, "seconds": progress.seconds, "target_tokens": progress.tokens}
    write_json(folder / METRICS, {"test": measured, "best_validation": progress.best, "ended": progress.ended})
    print(f"{progress.step} steps and their evaluations in {progress.seconds:.0f} s, {_how_fast(progress)}")
    print(describe_metrics(measured))


def _how_fast(progress: Progress) -> str:
    """Of the last step: tokens a second; and utilisation and memory, where they are known."""
    last = progress.steps[-1]
    said = [f"at the end {last.tokens_per_second or 0:,.0f} target tokens a second without evaluations"]
    if last.mfu is not None:
        said.append(f"{last.mfu:.0%} of the GPU's FLOPs (MFU)")
    if last.peak_memory is not None:
        said.append(f"at most {last.peak_memory / 1e9:.1f} GB of its memory")
    return ", ".join(said)


def _what_to_do_without_memory(recipe: Recipe, device: torch.device, folder: Path) -> str:
    half, twice = max(1, recipe.batch_tokens // 2), 2 * recipe.accumulate
    less = [f"begin anew with --batch-tokens {half} --accumulate {twice}, which makes steps of the same size"]
    if not recipe.activation_checkpointing and (folder / CHECKPOINT).exists():
        less.insert(0, f"go on with --resume --activation-checkpointing --to {folder}")
    elif not recipe.activation_checkpointing:
        less.append("add --activation-checkpointing")
    return f"{device}: out of memory with micro-batches of {recipe.batch_tokens} tokens: {', or '.join(less)}"


def _given(args: argparse.Namespace, names: Any) -> dict[str, Any]:
    """What was said on the command line, of these."""
    return {name: getattr(args, name) for name in names if getattr(args, name) is not None}


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def _quote(sentences: list[str]) -> str:
    shown = [f"  {json.dumps(sentence, ensure_ascii=False)}" for sentence in sentences[:3]]
    return "\n".join(["among them:", *shown]) if shown else ""


class _Bar:
    """A line of progress in a terminal: steps, loss, learning rate, how fast it goes, the best score so far."""

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
        if last.tokens_per_second is not None:
            said["tokens/s"] = f"{last.tokens_per_second:,.0f}"
        if last.mfu is not None:
            said["MFU"] = f"{last.mfu:.0%}"
        if last.peak_memory is not None:
            said["GB"] = f"{last.peak_memory / 1e9:.1f}"
        if progress.best:
            said[f"best {self.best_by}"] = f"{progress.best[self.best_by]:.3g}"
        if not self.bar.n:                                        # what a resumed run had done before took no time now
            self.bar.initial = self.bar.n = self.bar.last_print_n = progress.step - 1
        self.bar.set_postfix(said, refresh=False)
        self.bar.update(progress.step - self.bar.n)
