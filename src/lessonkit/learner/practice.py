"""`lessonkit practice`: a round of drills in a terminal, one after another; and how many there are."""

import argparse
import json
import sys
from collections import Counter

from tqdm import tqdm

from commandkit.errors import CommandError
from commandkit.files import write_whole
from lessonkit.course import Course, the_course
from lessonkit.exercises.drill import Question, cards, kept_proofs, prove
from lessonkit.exercises.practice import LETTERS, as_text
from lessonkit.kernel import Misuse

EXAMPLES = """
PROGRAM practice          # what is weakest
PROGRAM practice a04
PROGRAM practice --count  # the drills of each lesson
PROGRAM practice --prove  # after a new slip: which lines can be asked for
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("assignment", nargs="?", help="such as a04 (default: all of them, the weakest first)")
    parser.add_argument("--count", action="store_true", help="print how many drills there are, by lesson, and end")
    parser.add_argument("--prove", action="store_true", help="for authors: write drills.json anew, and end")


def main(args: argparse.Namespace) -> int:
    course = the_course()
    try:
        if args.count:
            print(counted(course))
        elif args.prove:
            _prove(course)
        else:
            _round(course, args.assignment)
    except Misuse as error:
        raise CommandError(str(error)) from None
    return 0


def counted(course: Course) -> str:
    """The drills of each lesson, by what they ask, and how many of all the exercises have one."""
    heads = ("", "lines", "aspects", "others", "all", "exercises")
    rows: list[tuple] = []
    for assignment in course.assignments():
        kinds: Counter[str] = Counter()
        practised = 0
        for card in cards(course, [assignment]):
            practised += card.exercise is not None
            kinds.update(_kind(asked) for asked in card.questions)
        every = len(course.exercises_of(assignment))
        rows.append((assignment, kinds["lines"], kinds["aspects"], kinds["others"], kinds.total(), practised, every))
    columns = list(zip(*rows, strict=True))
    rows.append(("all", *map(sum, columns[1:])))
    lines = ["{:<6}{:>8}{:>9}{:>8}{:>7}   {}".format(*heads)]
    lines += [f"{row[0]:<6}{row[1]:>8}{row[2]:>9}{row[3]:>8}{row[4]:>7}   {row[5]} of {row[6]}" for row in rows]
    return "\n".join(lines)


def _kind(asked: object) -> str:
    return "others" if not isinstance(asked, Question) else "lines" if asked.kind == "line" else "aspects"


def _prove(course: Course) -> None:
    exercises = course.all_exercises()
    proofs = kept_proofs(course)  # stopped early, it keeps what is new, and what was known of those not reached
    try:
        for name, exercise in tqdm(exercises.items(), unit="exercise", leave=False, disable=None):
            proofs[name] = prove(exercise, proofs.get(name, {}), tqdm.write)
    finally:
        proofs = {name: proofs[name] for name in exercises if proofs.get(name)}
        rows = [f"  {json.dumps(name)}: {json.dumps(lines)}" for name, lines in proofs.items()]
        write_whole(course.folder / "drills.json", "{\n" + ",\n".join(rows) + "\n}\n")
    print(f"drills.json: lines can be asked for in {sum(map(len, proofs.values()))} slips of {len(proofs)} exercises")


def _round(course: Course, assignment: str | None) -> None:
    practice = course.practice_round(assignment, keeps=True)
    if not practice.drills:
        print(practice)
        return
    for number, drill in enumerate(practice.drills, start=1):
        print(as_text(number, drill))
        if (letter := _letter(len(drill.options))) is None:
            break
        print(f"\n{practice.answer(number, letter)}\n")
    good = sum(place == practice.drills[number - 1].right for number, place in practice.given.items())
    print(f"Right: {good} of {len(practice.given)}. {practice.note}")


def _letter(options: int) -> str | None:
    """What is typed: one of the letters; None at the end."""
    known = LETTERS[:options]
    while True:
        print(f"Which one, {known[0]} to {known[-1]} (q ends)? ", end="", flush=True)
        typed = sys.stdin.readline()
        if not typed or typed.strip().lower() == "q":
            print()
            return None
        if len(typed.strip()) == 1 and typed.strip().lower() in known:
            return typed.strip().lower()
