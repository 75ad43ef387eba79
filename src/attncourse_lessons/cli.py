"""The command `attncourse`: the kit's commands, and training."""

import sys
from collections.abc import Sequence

from commandkit.commands import run
from lessonkit import cli

COMMANDS = {
    **cli.COMMANDS,
    "train": ("attncourse.training.command", "train a translator or a language model, on a laptop or on GPUs"),
    "translate": ("attncourse.training.translating", "translate a sentence with a trained run"),
    "generate": ("attncourse.training.generating", "let a trained language model write"),
    "evaluate": ("attncourse.training.scoring", "score a trained run on files that it has not seen"),
}


def main(argv: Sequence[str] | None = None) -> int:
    return run("attncourse", "A course on attention and the Transformer.", COMMANDS, argv)


if __name__ == "__main__":
    sys.exit(main())
