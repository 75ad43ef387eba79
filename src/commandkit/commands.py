"""A program of several commands: one parser; each command's code is imported when it is called."""

import argparse
import importlib
import os
import sys
from collections.abc import Mapping, Sequence

from commandkit.errors import OURS, CommandError, how_to_install

# command -> (module, one line of help). The module gives `add_arguments(parser)` and `main(args) -> int`, the exit
# status. It is imported for its own command alone, so it may import what it needs at its top, inside `needs`.
Commands = Mapping[str, tuple[str, str]]

_program = "lessonkit"


def typed(words: str) -> str:
    """How the reader of a message types a command: `lessonkit build a03`, or with the name of the program that runs."""
    return f"{_program} {words}"


def run(program: str, description: str, commands: Commands, argv: Sequence[str] | None = None) -> int:
    """Run one command; return its exit status: 0, 1 (it said what is wrong), 2 (a wrong command line), 130 (Ctrl-C)."""
    global _program
    _program = program
    arguments = list(sys.argv[1:] if argv is None else argv)
    parser = argparse.ArgumentParser(prog=program, description=description)
    parsers = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    chosen = next((word for word in arguments if not word.startswith("-")), None)
    try:
        for name, (module, summary) in commands.items():
            command = parsers.add_parser(name, help=summary, description=summary[0].upper() + summary[1:] + ".")
            if name == chosen:
                importlib.import_module(module).add_arguments(command)
        args = parser.parse_args(arguments)
        return importlib.import_module(commands[args.command][0]).main(args)
    except CommandError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] in OURS:
            raise
        print(f"error: {error.name} is not installed: {how_to_install('dev')}", file=sys.stderr)
        return 1
    except BrokenPipeError:  # `| head` has read enough; Python would complain again when it flushes at its end
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr)
        return 130
