"""`attncourse evaluate`: how well a trained run translates two files, or foretells a text, that it has never seen."""

import argparse
import json
from pathlib import Path

from commandkit.errors import CommandError, require_extra

with require_extra("attncourse evaluate", "train"):
    import sacrebleu  # noqa: F401
    import safetensors  # noqa: F401

from attncourse.data import read_parallel, read_texts
from attncourse.training.checkpoints import write_whole
from attncourse.training.evaluation import describe_metrics, final_metrics, text_metrics
from attncourse.training.own_text import PAIRS
from attncourse.training.runs import Run, load_run, newest_run

EXAMPLES = """
PROGRAM evaluate --source test.de --target test.en
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", nargs="?", type=Path, metavar="RUN", help="the run's folder (default: the newest)")
    for name, what in (("source", "sentences, one a line"), ("target", "their translations, line by line")):
        parser.add_argument(f"--{name}", type=Path, metavar="FILE", help=what)
    parser.add_argument("--text", type=Path, metavar="FILE", help="of a language model: texts that empty lines part, "
                                                                  "or a text a line")  # fmt: skip
    parser.add_argument("--beams", type=int, default=5, help="how many hypotheses are kept (1: greedy; default: 5)")
    parser.add_argument("--translations", type=Path, metavar="FILE", help="keep what the run wrote, one a line")
    parser.add_argument("--device", default="cpu", help="cpu, cuda, mps … (default: cpu)")
    parser.add_argument("--json", action="store_true", help="print one JSON object in place of the lines")


def main(args: argparse.Namespace) -> int:
    """Print the loss, chrF, the share exactly right and BLEU with its signature, which comes last.

    Of a language model, the loss, bits a byte and, last, perplexity.
    """
    if args.beams < 1:
        raise CommandError(f"--beams: got {args.beams}, expected 1 or more")
    folder = args.run or newest_run("language model" if args.text else "translation")
    run = load_run(folder, args.device)
    try:
        if run.run_config.task_name == "language model":
            if args.text is None or args.source or args.target or args.translations:
                raise CommandError(f"{folder}: is a language model; expected --text FILE, and no pairs")
            measured = text_metrics(run.model, read_texts(args.text), *run.tokenizers)
        else:
            if args.text or not (args.source and args.target):
                raise CommandError(f"{folder}: translates; expected --source FILE and --target FILE")
            measured = _score_pairs(run, args)
    except FileNotFoundError as error:
        raise CommandError(f"{error.filename}: there is no such file") from error
    print(json.dumps(measured) if args.json else describe_metrics(measured))
    return 0


def _score_pairs(run: Run, args: argparse.Namespace) -> dict[str, float | int | str]:
    pairs = read_parallel(args.source, args.target)
    if not pairs:
        raise CommandError(f"{args.source} and {args.target}: hold no sentence, expected one a line")
    most = run.model.max_positions
    for n, pair in enumerate(pairs, start=1):
        tokens = max(len(run.source.encode(pair.source)), 1 + len(run.target.encode(pair.target)))
        if most is not None and tokens > most:
            raise CommandError(f"sentence {n}: got {tokens} tokens, expected at most {most}, the model's positions")
    measured, written = final_metrics(run.model, PAIRS, pairs, run.source, run.target, args.beams)
    if args.translations:
        write_whole(args.translations, ("\n".join(written) + "\n").encode())
    return measured
