"""`attncourse translate`: a sentence by a trained run, and where the model looked while it wrote."""

import argparse
import sys
from pathlib import Path

from commandkit.errors import CommandError, require_extra

with require_extra("attncourse translate", "train"):
    import safetensors  # noqa: F401

from attncourse.decoding import beam_translate, translate
from attncourse.training.checkpoints import write_whole
from attncourse.training.runs import load_run, newest_run

EXAMPLES = """
PROGRAM translate "einundzwanzig"
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("text", nargs="*", help="what to translate, in quotes; without it, the lines of standard input")
    parser.add_argument("--run", type=Path, metavar="DIR", help="the run's folder (default: the newest under runs/)")
    parser.add_argument("--beams", type=int, default=4, help="how many hypotheses are kept (1: greedy; default: 4)")
    parser.add_argument("--alignment", type=Path, metavar="FILE.png",
                        help="draw where the model looked (one sentence, greedily) into this file")  # fmt: skip


def main(args: argparse.Namespace) -> int:
    """Print one translation a line."""
    texts = args.text or _standard_input()
    for n, text in enumerate(texts, start=1):
        if not text.strip():
            raise CommandError(f"text {n}: got an empty line, expected a sentence")
        if any("\ud800" <= letter <= "\udfff" for letter in text):  # what Python makes of bytes that are no UTF-8
            raise CommandError(f"text {n}: not UTF-8; save it as UTF-8, then try again")
    if not texts:
        raise CommandError("text: got none, expected a sentence")
    if args.beams < 1:
        raise CommandError(f"--beams: got {args.beams}, expected 1 or more")
    run = load_run(args.run or newest_run(), task="translation")
    most = run.model.max_positions
    for n, text in enumerate(texts, start=1):
        if most is not None and (tokens := len(run.source.encode(text))) > most:
            raise CommandError(f"text {n}: got {tokens} tokens, expected at most {most}, which are the model's "
                               "positions: translate it sentence by sentence")  # fmt: skip
    if args.alignment is None:
        print("\n".join(beam_translate(run.model, texts, run.source, run.target, args.beams)))
        return 0
    if len(texts) != 1:
        raise CommandError(f"--alignment: got {len(texts)} sentences, expected one")
    from attncourse.viz.figures import alignment_figure
    from attncourse.viz.style import png

    (written,) = translate(run.model, texts, run.source, run.target)
    drawn = alignment_figure(written.weights.numpy(), written.source_pieces, written.target_pieces)
    write_whole(args.alignment, png(drawn))
    print(written.text)
    return 0


def _standard_input() -> list[str]:
    try:
        return [line.rstrip("\n") for line in sys.stdin]
    except UnicodeDecodeError as error:
        raise CommandError(f"standard input: not UTF-8 ({error.reason}); save it as UTF-8, then try again") from error

