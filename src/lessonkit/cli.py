"""The command `lessonkit`: what can be done with any course, in its folder. A course may have a command of its own."""

import sys
from collections.abc import Sequence

from commandkit.commands import run

COMMANDS = {
    "demo": ("lessonkit.grading.demo.command", "grade a class of made-up submissions and show what each one gets"),
    "grade": ("lessonkit.grading.engine.grade", "grade a class's submissions, many at a time and in a sandbox"),
    "doctor": ("lessonkit.doctor", "check this machine, and say what would mend it"),
    "report": ("lessonkit.grading.report.command", "show the grades of a class, student by exercise"),
    "build": ("lessonkit.authoring.build", "build the notebooks from the lessons' sources"),
    "site": ("lessonkit.authoring.site.command", "build the web book from the executed notebooks and docs"),
    "release": ("lessonkit.authoring.release", "put together what a student gets, without the solutions"),
}


def main(argv: Sequence[str] | None = None) -> int:
    return run("lessonkit", "A kit for courses of notebooks with checked exercises.", COMMANDS, argv)


if __name__ == "__main__":
    sys.exit(main())
