"""`lessonkit reset a02`: begin an assignment or a lecture anew; what was there is kept."""

import argparse
from pathlib import Path

from commandkit.errors import CommandError
from lessonkit.learner.folder import Folder, find_root

EXAMPLES = """
PROGRAM reset a02       # the assignment
PROGRAM reset 02        # the lecture
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", help="an assignment such as a02, or a lecture such as 02")


def main(args: argparse.Namespace) -> int:
    folder = Folder(find_root(Path.cwd()))
    folder.prepare()
    try:
        fresh, kept = folder.reset(args.name)
    except OSError as error:
        raise CommandError(f"{error.filename or folder.work}: {error.strerror or error}") from error
    print(f"{fresh.relative_to(folder.root)} is as it was given.")
    if kept:
        print(f"What you had is in {kept.relative_to(folder.root)}.")
    return 0
