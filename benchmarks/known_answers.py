"""Does an answer that the course knows ever get other points than it deserves? Each is judged on many seeds. Goal: 0.

    python benchmarks/known_answers.py [--wrong] [--only a03 ...] [--exercise NAME ...] [--seeds 600] [--first 10000]
                                       [--minutes M] [--json]

Right answers are each exercise's solution and its alternatives: none may ever lose a point. With --wrong, the slips:
each fails the aspects that it says, no others, on every seed (60 unless told). Where it fails another as well, a
learner pays for a mistake that was not made; where it passes one, a class gets different points for the same code.

A seed draws sizes and numbers; a grader draws three that nobody knows beforehand. What departs is a fault of the
aspect: it compares where float32 cannot tell, or its inputs do not always show what it looks for. The exercises that
take least come first; after so many minutes those that were not begun are listed, and one that was begun ends with the
seeds that it got.
"""

import argparse
import json
import platform
import time
from importlib.metadata import version
from typing import Any

import torch

from attncourse_lessons import course as lessons
from lessonkit.exercises.exercise import Exercise
from lessonkit.exercises.judge import judge, observe_known
from lessonkit.exercises.observe import observe

Known = dict[str, tuple[Any, set[str]]]
"""An answer and the aspects that it fails, by name."""


def right_answers(exercise: Exercise) -> Known:
    """The solution and the alternatives."""
    found: Known = {"the solution": (exercise.as_answer(exercise.solution), set())} if exercise.solution else {}
    return found | {code.name: (code.answer, set()) for code in exercise.alternatives}


def wrong_answers(exercise: Exercise) -> Known:
    """The misconceptions, and their variants."""
    codes = [*exercise.misconceptions, *exercise.variants]
    return {f"{code.name} ({number})": (code.answer, set(code.fails)) for number, code in enumerate(codes, start=1)}


def departures(exercise: Exercise, answer: Any, fails: set[str], seed: int) -> dict[str, str]:
    """The aspects that the answer fails on this seed and should not, or should and does not, and what is said there."""
    if fails:
        seen = observe_known(exercise, answer, seed)
    else:
        trusted = isinstance(exercise.reference, type) and not exercise.writes_init  # a class of ours may not call ours
        seen = observe(exercise, answer, seed, trusted=trusted)
    verdict = judge(exercise, seen, seed, name=False)
    return {
        line.name: line.message if line.name not in fails else "passed"
        for line in verdict.aspects
        if line.ok == (line.name in fails)
    }


def judged(exercise: Exercise, answers: Known, seeds: range, until: float) -> dict[str, Any]:
    """What became of the answers to an exercise, as JSON data."""
    faults, seen = [], 0
    for seed in seeds:
        for name, (answer, fails) in answers.items():
            for aspect, said in departures(exercise, answer, fails, seed).items():
                faults.append({"answer": name, "seed": seed, "aspect": aspect, "said": said})
        seen += 1
        if time.perf_counter() > until:
            break
    return {"exercise": exercise.name, "answers": len(answers), "seeds": seen, "departures": faults}


def cost(exercise: Exercise, answers: Known) -> float:
    """Seconds of the processor that one seed takes, the first calls left out."""
    times = []
    for seed in (1, 2):
        start = time.process_time()
        for answer, fails in answers.values():
            departures(exercise, answer, fails, seed)
        times.append(time.process_time() - start)
    return times[-1]


def shown(faults: list[dict[str, Any]]) -> list[str]:
    """A line for each answer and aspect: on how many seeds, the first of them, and what was said there."""
    groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for fault in faults:
        groups.setdefault((fault["answer"], fault["aspect"]), []).append(fault)
    return [
        f"{len(group)} of the seeds, first {group[0]['seed']}: {answer}: {aspect}: {group[0]['said']}"
        for (answer, aspect), group in groups.items()
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    known = lessons.assignments()
    parser.add_argument("--wrong", action="store_true", help="the slips in place of the right answers")
    parser.add_argument("--only", nargs="+", default=known, choices=known, metavar="aNN", help="these alone")
    parser.add_argument("--exercise", nargs="+", choices=lessons.all_exercises(), metavar="NAME", help="these of them")
    parser.add_argument("--seeds", type=int, help="on how many seeds (600, of slips 60)")
    parser.add_argument("--first", type=int, default=10_000, help="the first of them")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="stop after so many")
    parser.add_argument("--json", action="store_true", help="print one JSON object as the last line")
    args = parser.parse_args()

    torch.set_num_threads(1)
    until = time.perf_counter() + 60 * args.minutes
    seeds = range(args.first, args.first + (args.seeds or (60 if args.wrong else 600)))
    chosen = [e for a in args.only for e in lessons.exercises_of(a) if e.name in (args.exercise or [e.name])]
    chosen = [e for e in chosen if not e.metric]  # what is measured trains a model
    answers = {e: wrong_answers(e) if args.wrong else right_answers(e) for e in chosen}
    rows, left = [], sorted(chosen, key=lambda exercise: cost(exercise, answers[exercise]))
    print(f"{'':<32}{'answers':>8}{'seeds':>7}{'departures':>12}")
    while left and time.perf_counter() < until:
        exercise = left.pop(0)
        row = judged(exercise, answers[exercise], seeds, until)
        rows.append(row)
        print(f"{row['exercise']:<32}{row['answers']:>8}{row['seeds']:>7}{len(row['departures']):>12}", flush=True)
        for line in shown(row["departures"]):
            print(f"      {line}", flush=True)
    judgements = sum(row["answers"] * row["seeds"] for row in rows)
    count = sum(len(row["departures"]) for row in rows)
    print(f"{judgements} judgements of {len(rows)} exercises: {count} departures")
    if left:
        print("not run: " + ", ".join(exercise.name for exercise in left))
    if args.json:
        result = {"exercises": rows, "not run": [exercise.name for exercise in left]}
        print(json.dumps(result | {"python": platform.python_version(), "torch": version("torch")}, ensure_ascii=False))


if __name__ == "__main__":
    main()
