"""The command `attncourse`: the kit's commands, and training."""

import os
import sys
from collections.abc import Sequence

from attncourse import __version__
from commandkit.commands import flat, run
from lessonkit import cli
from lessonkit.kernel import COURSE

GROUPS = {
    **cli.GROUPS,
    "train and use models": {
        "train": ("attncourse.training.command", "train a translator or a language model, on a laptop or on GPUs"),
        "translate": ("attncourse.training.translating", "translate a sentence with a trained run"),
        "generate": ("attncourse.training.generating", "let a trained language model write"),
        "evaluate": ("attncourse.training.scoring", "score a trained run on files that it has not seen"),
    },
}
COMMANDS = flat(GROUPS)


def main(argv: Sequence[str] | None = None) -> int:
    os.environ.setdefault(COURSE, "attncourse_lessons")
    return run("attncourse", "A course on attention and the Transformer.", GROUPS, argv, __version__)


if __name__ == "__main__":
    sys.exit(main())
