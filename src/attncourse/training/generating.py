"""`attncourse generate`: what a trained language model writes, after a prompt or from nothing."""

import argparse
from pathlib import Path

import torch

from attncourse.data import BOS
from attncourse.decoding import greedy, sample
from attncourse.training.runs import load_run, newest_run
from commandkit.errors import CommandError, require_extra

with require_extra("attncourse generate", "train"):
    import safetensors  # noqa: F401

EXAMPLES = """
PROGRAM generate "The cat" --run runs/mine
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("prompt", nargs="?", default="", help="how the text begins, in quotes (default: nothing)")
    parser.add_argument("--run", type=Path, metavar="DIR", help="the run's folder (default: the newest under runs/)")
    parser.add_argument("--count", type=int, default=1, help="how many texts (default: 1)")
    parser.add_argument("--max-length", type=int, default=100, help="tokens to write at most (default: 100)")
    parser.add_argument("--temperature", type=float, default=1.0,
                        help="below 1 the probable becomes more probable; 0: greedy (default: 1)")  # fmt: skip
    parser.add_argument("--top-k", type=int, help="draw among the k most probable tokens alone")
    parser.add_argument("--top-p", type=float, help="draw among the fewest tokens that have this probability together")
    parser.add_argument("--seed", type=int, help="draw the same texts again (default: others each time)")


def main(args: argparse.Namespace) -> int:
    """Print the texts, prompt included, an empty line between two."""
    for name, value in (("--count", args.count), ("--max-length", args.max_length)):
        if value < 1:
            raise CommandError(f"{name}: got {value}, expected 1 or more")
    if args.temperature == 0 and (args.top_k is not None or args.top_p is not None or args.count > 1):
        raise CommandError("--temperature: got 0, which draws nothing; leave out --top-k, --top-p and --count")
    run = load_run(args.run or newest_run("language model"), task="language model")
    prompt = [BOS, *run.source.encode(args.prompt)]
    source, lengths = torch.tensor([prompt] * args.count), torch.full((args.count,), len(prompt))
    draws = torch.Generator()
    draws.seed() if args.seed is None else draws.manual_seed(args.seed)
    try:
        if args.temperature == 0:
            written = greedy(run.model, source, lengths, args.max_length)
        else:
            how = args.temperature, args.top_k, args.top_p
            written = sample(run.model, source, lengths, args.max_length, *how, generator=draws)
    except ValueError as error:
        raise CommandError(str(error)) from error
    print("\n\n".join(run.source.decode([*prompt, *row]) for row in written.tokens.tolist()))
    return 0
