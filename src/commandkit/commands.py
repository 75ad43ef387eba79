"""A program of several commands: one parser; each command's code is imported when it is called."""

import argparse
import difflib
import importlib
import os
import sys
import textwrap
from collections.abc import Mapping, Sequence

from commandkit.errors import OURS, CommandError, how_to_install

# command -> (module, one line of help). The module gives `add_arguments(parser)` and `main(args) -> int`, the exit
# status, and may give EXAMPLES, lines for its help, and PASSES_ON = True: what its parser does not know is then handed
# on as `args.passed_on`. It is imported for its own command alone, so it may import what it needs at its top.
Commands = Mapping[str, tuple[str, str]]
Groups = Mapping[str, Commands]  # what somebody wants to do, such as "learn" -> the commands for it

_program = "lessonkit"
_commands: Commands = {}


def typed(words: str) -> str:
    """How the reader of a message types a command: `lessonkit build a03`, or with the name of the program that runs."""
    return f"{_program} {words}"


def flat(groups: Groups) -> dict[str, tuple[str, str]]:
    """All commands of all groups."""
    return {name: command for commands in groups.values() for name, command in commands.items()}


def run(
    program: str, description: str, groups: Groups, argv: Sequence[str] | None = None, version: str | None = None
) -> int:
    """Run one command; return its exit status: 0, 1 (it said what is wrong), 2 (a wrong command line), 130 (Ctrl-C)."""
    global _program, _commands
    _program, _commands = program, flat(groups)
    arguments = list(sys.argv[1:] if argv is None else argv)
    try:
        parser, parsers = _parsers(program, description, groups, version)
        chosen = next((word for word in arguments if not word.startswith("-")), None)
        if chosen is not None and chosen not in _commands:
            parser.error(f"invalid choice: {chosen!r}.{_like(chosen)}")
        module = importlib.import_module(_commands[chosen][0]) if chosen else None
        if chosen and module:
            command = parsers[chosen]
            command.epilog = _examples(getattr(module, "EXAMPLES", ""))
            module.add_arguments(command)
        args, unknown = parser.parse_known_args(arguments)
        assert chosen and module  # else the parser has ended it
        if unknown and not getattr(module, "PASSES_ON", False):
            parsers[chosen].error(f"unrecognized arguments: {' '.join(unknown)}")
        args.passed_on = unknown
        return module.main(args)
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


def _parsers(
    program: str, description: str, groups: Groups, version: str | None
) -> tuple[argparse.ArgumentParser, dict[str, argparse.ArgumentParser]]:
    """The program's parser, whose help lists the commands by group, and that of each command."""
    parts = [description]
    for title, commands in groups.items():
        lines = (f"  {name:<12}{summary}" for name, (_, summary) in commands.items())
        parts.append("\n".join([f"{title}:", *lines]))
    parser = argparse.ArgumentParser(
        prog=program,
        usage=f"{program} [-h] {'[--version] ' if version else ''}COMMAND ...",
        description="\n\n".join(parts),
        epilog=f"{program} COMMAND --help says more of one of them, with examples.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    if version:
        parser.add_argument("--version", action="version", version=f"{program} {version}")
    sub = parser.add_subparsers(dest="command", metavar="COMMAND", required=True, help=argparse.SUPPRESS, prog=program)
    parsers = {}
    for name, (_, summary) in flat(groups).items():
        said = "\n".join(textwrap.wrap(summary[0].upper() + summary[1:] + ".", 78))
        parsers[name] = sub.add_parser(
            name, description=said, formatter_class=argparse.RawDescriptionHelpFormatter
        )
    return parser, parsers


def _examples(lines: str) -> str | None:
    if not lines:
        return None
    return "examples:\n" + textwrap.indent(textwrap.dedent(lines).strip().replace("PROGRAM", _program), "  ")


def _like(name: str) -> str:
    close = difflib.get_close_matches(name, _commands, n=1)
    return f" Did you mean {close[0]!r}?" if close else f" The commands are: {', '.join(_commands)}."
