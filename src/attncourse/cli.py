"""The command `attncourse`: one parser; each command's code is imported when it is called."""

import argparse
import importlib
import sys
from collections.abc import Sequence

from attncourse._needs import CommandError

# command -> (module, one line of help). The module gives `add_arguments(parser)` and `main(args) -> int`, the exit
# status. It is imported for its own command alone, so it may import what it needs at its top, inside `needs`.
COMMANDS = {
    "demo": ("attncourse.grading.demo", "grade a class of made-up submissions and show what each one gets"),
    "grade": ("attncourse.grading.grade", "grade a class's submissions, many at a time and in a sandbox"),
    "doctor": ("attncourse.doctor", "check this machine, and say what would mend it"),
    "report": ("attncourse.grading.report.command", "show the grades of a class, student by exercise"),
    "train": ("attncourse.training.command", "train a Transformer to translate, on a laptop or on GPUs"),
    "translate": ("attncourse.training.translating", "translate a sentence with a trained run"),
    "build": ("attncourse.authoring.build", "build the notebooks from src/notebooks"),
    "site": ("attncourse.authoring.site.command", "build the web book from the executed notebooks and docs"),
    "release": ("attncourse.authoring.release", "put together what a student gets, without the solutions"),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; return its exit status: 0, 1 (it said what is wrong), 2 (a wrong command line), 130 (Ctrl-C)."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    parser = argparse.ArgumentParser(prog="attncourse", description="A course on attention and the Transformer.")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    chosen = next((word for word in arguments if not word.startswith("-")), None)
    try:
        for name, (module, summary) in COMMANDS.items():
            command = commands.add_parser(name, help=summary, description=summary[0].upper() + summary[1:] + ".")
            if name == chosen:
                importlib.import_module(module).add_arguments(command)
        args = parser.parse_args(arguments)
        return importlib.import_module(COMMANDS[args.command][0]).main(args)
    except CommandError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] == "attncourse":
            raise
        print(f"error: {error.name} is not installed: pip install -c constraints.txt -e '.[dev]'", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
