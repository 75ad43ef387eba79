"""Does the search find the line? Wrong answers with one mistake each, whose faulty line is known, are given to it.

    python benchmarks/repair.py [--draw N] [--exercise NAME ...] [--seconds 10] [--show] [--json]

The answers are those of one draw, `unseen_N.py`, the latest unless told. A line is right if it is one that is marked
there; it is `named` if it is told at all, be it as another that would do. It is told because a step there mends the
answer, or because right numbers there mend it: the last lines say how many of either. Seconds are the processor's, so
that a busy machine does not shorten the search; a learner's are the clock's.
"""

import argparse
import inspect
import json
import platform
import time
from importlib import import_module
from importlib.metadata import version
from types import ModuleType
from typing import Any

import unseen

from attncourse_lessons import course
from lessonkit.course import VISIBLE_SEEDS
from lessonkit.exercises import repair


def answers(module: ModuleType) -> dict[str, list[Any]]:
    """The wrong answers with one mistake, by exercise."""
    found: dict[str, list[Any]] = {}
    for name, value in unseen.answers_in(module).items():
        if unseen.mistakes(value) == 1:
            found.setdefault(name.partition("__")[0], []).append(value)
    return found


def marked(answer: Any) -> set[int]:
    """The lines of the file at which the answer is wrong."""
    lines, first = inspect.getsourcelines(answer)
    return {first + i for i, line in enumerate(lines) if line.rstrip().endswith("# here")}


def searched(name: str, answer: Any, seconds: float) -> dict[str, Any]:
    """What the search says of an answer, as JSON data."""
    exercise = course.exercise(name)
    seeds = VISIBLE_SEEDS[: exercise.seeds]
    found = repair.where(exercise, unseen.handed_in(answer), seeds, seconds=seconds)
    place = found.place if found else None
    return {
        "answer": answer.__name__.partition("__")[2],
        "wrong": found is not None,
        "line": place.line if place else None,
        "right": place is not None and place.line in marked(answer),
        "named": place is not None and bool(set(found.lines) & marked(answer)),
        "piece": place.piece if place else None,
        "by": None if place is None else "numbers" if found and found.by_numbers else "step",
        "tried": found.tried if found else 0,
        "seconds": round(found.seconds, 2) if found else 0.0,
        "complete": found.complete if found else True,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    draws = unseen.draws()
    parser.add_argument("--draw", type=int, choices=draws, default=draws[-1], help="whose answers")
    parser.add_argument("--exercise", nargs="+", metavar="NAME")
    parser.add_argument("--seconds", type=float, default=repair.SECONDS, help="for each search")
    parser.add_argument("--show", action="store_true", help="print every answer")
    parser.add_argument("--json", action="store_true", help="print one JSON object as the last line")
    args = parser.parse_args()

    repair.clock = time.process_time
    repair.HANGS = 10 * repair.HANGS
    known = answers(import_module(f"unseen_{args.draw}"))
    rows: dict[str, list[dict]] = {}
    if unknown := [name for name in args.exercise or () if name not in known]:
        parser.error(f"draw {args.draw} has no {', '.join(unknown)}; it has {', '.join(known)}")
    print(f"{'':<32}{'wrong':>7}{'a line':>8}{'right':>7}{'named':>7}{'seconds':>9}")
    for name in args.exercise or known:
        rows[name] = [searched(name, answer, args.seconds) for answer in known[name]]
        _print(name, rows[name])
        for row in rows[name] if args.show else ():
            said = "no line" if row["line"] is None else "right" if row["right"] else "another line"
            print(f"      {row['answer']:<44}{said:<14}{row['tried']:>6}{row['seconds']:>7.1f} s  {row['piece'] or ''}")
    every = [row for own in rows.values() for row in own]
    _print("all", every)
    for way in ("step", "numbers"):
        told = [row["right"] for row in every if row["by"] == way]
        print(f"by {way}: {len(told)} lines, {sum(told)} right")
    if args.json:
        print(json.dumps({"exercises": rows, "python": platform.python_version(), "torch": version("torch")}))


def _print(title: str, rows: list[dict]) -> None:
    wrong = [row for row in rows if row["wrong"]]
    lines = [row for row in wrong if row["line"] is not None]
    seconds = sorted(row["seconds"] for row in wrong)
    middle = seconds[len(seconds) // 2] if seconds else 0.0
    right, named = (sum(row[key] for row in lines) for key in ("right", "named"))
    print(f"{title:<32}{len(wrong):>7}{len(lines):>8}{right:>7}{named:>7}{middle:>9.1f}", flush=True)


if __name__ == "__main__":
    main()
