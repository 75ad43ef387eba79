"""`lessonkit questions`: the question bank, counted, or written for Moodle, Canvas or a sheet of paper."""

import argparse
import re
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path

from commandkit.errors import CommandError
from commandkit.files import write_whole
from lessonkit.authoring.checkout import open_course
from lessonkit.authoring.questions import exports
from lessonkit.authoring.questions.bank import questions
from lessonkit.course import Course

FORMATS: Mapping[str, Callable[..., str | bytes]] = {
    ".xml": exports.moodle,
    ".zip": exports.canvas,
    ".md": exports.markdown,
}
EXAMPLES = """
PROGRAM questions
PROGRAM questions --lessons 00-07 --seed 7 --to questions.xml
PROGRAM questions --lessons 04 --to questions.zip
"""


def titles(course: Course) -> dict[str, str]:
    """The lectures' titles by the lessons' numbers, as their sources have them."""
    found = {}
    for lesson in course.lessons:
        text = (lesson.folder / "lecture.py").read_text("utf-8")
        heading = re.search(r"^# # Lecture @\w+ · ([^:\n]+)", text, re.MULTILINE)
        found[lesson.number] = heading[1].strip() if heading else ""
    return found


def add_arguments(parser: argparse.ArgumentParser) -> None:
    of = "of these lessons, such as 04, 00-07 or 00-03,07 (default: all)"
    parser.add_argument("--lessons", metavar="NN-NN", help=of)
    parser.add_argument("--seed", type=int, default=0, help="other numbers, other mistakes, another order (default: 0)")
    help = "questions.xml for Moodle, .zip for Canvas (QTI 1.2), .md for a sheet with its answers"
    parser.add_argument("--to", type=Path, metavar="FILE", help=help)


def main(args: argparse.Namespace) -> int:
    checkout = open_course(Path.cwd())
    course, to = checkout.course, args.to
    if to is not None and to.suffix not in FORMATS:
        raise CommandError(f"{to}: its name must end in {', '.join(FORMATS)}, which says what it is for")
    found = questions(course, course.numbers(args.lessons) if args.lessons else None, args.seed)
    count = Counter((question.lesson, question.generated) for question in found)
    named = titles(course)
    if to is None:
        for lesson in sorted({question.lesson for question in found}):
            made, written = count[lesson, True], count[lesson, False]
            print(f"{lesson}  {made:3} generated  {written:3} written  {named[lesson]}")
    else:
        content = FORMATS[to.suffix](found, named, course.distribution)
        try:
            write_whole(to.absolute(), content)
        except OSError as error:
            raise CommandError(f"{to}: cannot be written: {error.strerror or error}") from error
    where = f"{to}: " if to else ""
    minutes = sum(question.minutes for question in found)
    print(f"{where}{len(found)} questions, {sum(q.points for q in found)} points, about {minutes:.0f} minutes")
    return 0
