"""`python -m attncourse.training train` is `attncourse train`: for launchers that want a module, as torchrun does."""

import sys

from commandkit.commands import run

COMMANDS = {
    "train": ("attncourse.training.command", "train a Transformer to translate, on a laptop or on GPUs"),
    "translate": ("attncourse.training.translating", "translate a sentence with a trained run"),
    "evaluate": ("attncourse.training.scoring", "score a trained run on two files of sentences"),
}

if __name__ == "__main__":
    groups = {"commands": COMMANDS}
    sys.exit(run("python -m attncourse.training", "Train a Transformer, and translate with it.", groups))
