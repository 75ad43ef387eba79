"""The command `attncourse`: the kit's commands, and training."""

import sys
from collections.abc import Sequence

from commandkit.commands import run
from lessonkit import cli

COMMANDS = {
    **cli.COMMANDS,
    "train": ("attncourse.training.command", "train a Transformer to translate, on a laptop or on GPUs"),
    "translate": ("attncourse.training.translating", "translate a sentence with a trained run"),
    "evaluate": ("attncourse.training.scoring", "score a trained run on two files of sentences"),
}


def main(argv: Sequence[str] | None = None) -> int:
    return run("attncourse", "A course on attention and the Transformer.", COMMANDS, argv)


if __name__ == "__main__":
    sys.exit(main())
