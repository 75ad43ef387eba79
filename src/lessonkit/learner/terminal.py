"""`lessonkit progress` and `lessonkit hint`: what a notebook shows, in a terminal."""

import argparse

from commandkit.errors import CommandError
from lessonkit.course import the_course
from lessonkit.kernel import Misuse

EXAMPLES = """
PROGRAM progress
PROGRAM progress a02
PROGRAM hint soft_lookup
PROGRAM hint soft_lookup 2
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    if parser.prog.endswith(" hint"):
        parser.add_argument("exercise", help="its name, as in its check")
        which = "1 nudges, the last nearly tells (default: 1)"
        parser.add_argument("number", nargs="?", type=int, default=1, help=which)
    else:
        parser.add_argument("assignment", nargs="?", help="such as a02 (default: all of them)")


def main(args: argparse.Namespace) -> int:
    course = the_course()
    try:
        if hasattr(args, "exercise"):
            course.hint(args.exercise, args.number)
        else:
            print(course.progress(args.assignment))
    except Misuse as error:
        raise CommandError(str(error)) from None
    return 0
