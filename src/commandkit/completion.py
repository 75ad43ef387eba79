"""`… completion bash`: a script that lets the shell complete commands and options with the Tab key."""

import argparse
import contextlib
import importlib

from commandkit import commands
from commandkit.errors import CommandError

EXAMPLES = """
PROGRAM completion bash >> ~/.bashrc
PROGRAM completion zsh >> ~/.zshrc
PROGRAM completion fish > ~/.config/fish/completions/PROGRAM.fish
"""

BASH = """_{program}() {{
  local words
  case "$COMP_CWORD:${{COMP_WORDS[1]}}" in
    1:*) words="{names}" ;;
{cases}
  esac
  COMPREPLY=($(compgen -W "$words" -- "${{COMP_WORDS[COMP_CWORD]}}"))
}}
complete -o default -F _{program} {program}
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", choices=["bash", "zsh", "fish"])


def options() -> dict[str, list[str]]:
    """The options of every command; none of one that needs what is not installed."""
    found: dict[str, list[str]] = {}
    for name, (module, _) in commands._commands.items():
        parser = argparse.ArgumentParser()
        with contextlib.suppress(ImportError, CommandError):
            importlib.import_module(module).add_arguments(parser)
        choices = [str(word) for each in parser._actions if not each.option_strings for word in each.choices or ()]
        long = [option for each in parser._actions for option in each.option_strings if option.startswith("--")]
        found[name] = choices + long
    return found


def main(args: argparse.Namespace) -> int:
    program, found = commands._program, options()
    if args.shell == "fish":
        for name, words in found.items():
            summary = commands._commands[name][1].replace("'", "")
            print(f"complete -c {program} -n __fish_use_subcommand -f -a {name} -d '{summary}'")
            for word in words:
                given = f"-l {word[2:]}" if word.startswith("--") else f"-a {word}"
                print(f"complete -c {program} -n '__fish_seen_subcommand_from {name}' {given}")
        return 0
    if args.shell == "zsh":
        print("autoload -U +X compinit && compinit\nautoload -U +X bashcompinit && bashcompinit")
    cases = "\n".join(f'    *:{name}) words="{" ".join(words)}" ;;' for name, words in found.items())
    print(BASH.format(program=program, names=" ".join(found), cases=cases), end="")
    return 0
