"""Does a right answer ever lose points? Every one that the course knows is judged on many seeds. The goal is 0.

    python benchmarks/right_answers.py [--only a03 ...] [--exercise NAME ...] [--seeds 600] [--first 10000]
                                       [--minutes M] [--json]

The right answers are each exercise's solution and its alternatives. A seed draws sizes and numbers; a grader draws
three that nobody knows beforehand. One that costs a right answer a point is a fault of the aspect: it compares where
float32 cannot tell, or its inputs do not always show what it looks for. The exercises that take least come first; after
so many minutes those that were not begun are listed, and one that was begun ends with the seeds that it got.
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
from lessonkit.exercises.judge import judge
from lessonkit.exercises.observe import observe


def right_answers(exercise: Exercise) -> dict[str, Any]:
    """The solution and the alternatives, by name."""
    found = {"the solution": exercise.as_answer(exercise.solution)} if exercise.solution else {}
    return found | {code.name: code.answer for code in exercise.alternatives}


def lost(exercise: Exercise, answer: Any, seed: int) -> dict[str, str]:
    """The aspects in which a right answer loses points on this seed, and what is said of them."""
    trusted = isinstance(exercise.reference, type) and not exercise.writes_init  # a class of ours may not call ours
    verdict = judge(exercise, observe(exercise, answer, seed, trusted=trusted), seed, name=False)
    return {line.name: line.message for line in verdict.aspects if not line.ok}


def judged(exercise: Exercise, seeds: range, until: float) -> dict[str, Any]:
    """What became of the right answers to an exercise, as JSON data."""
    answers, faults, seen = right_answers(exercise), [], 0
    for seed in seeds:
        for name, answer in answers.items():
            for aspect, said in lost(exercise, answer, seed).items():
                faults.append({"answer": name, "seed": seed, "aspect": aspect, "said": said})
        seen += 1
        if time.perf_counter() > until:
            break
    return {"exercise": exercise.name, "answers": len(answers), "seeds": seen, "lost": faults}


def cost(exercise: Exercise) -> float:
    """Seconds of the processor that one seed takes, the first calls left out."""
    times = []
    for seed in (1, 2):
        start = time.process_time()
        for answer in right_answers(exercise).values():
            lost(exercise, answer, seed)
        times.append(time.process_time() - start)
    return times[-1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    known = lessons.assignments()
    parser.add_argument("--only", nargs="+", default=known, choices=known, metavar="aNN", help="these alone")
    parser.add_argument("--exercise", nargs="+", choices=lessons.all_exercises(), metavar="NAME", help="these of them")
    parser.add_argument("--seeds", type=int, default=600, help="on how many seeds")
    parser.add_argument("--first", type=int, default=10_000, help="the first of them")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="stop after so many")
    parser.add_argument("--json", action="store_true", help="print one JSON object as the last line")
    args = parser.parse_args()

    torch.set_num_threads(1)
    until = time.perf_counter() + 60 * args.minutes
    chosen = [e for a in args.only for e in lessons.exercises_of(a) if e.name in (args.exercise or [e.name])]
    chosen = [e for e in chosen if not e.metric]  # what is measured trains a model
    rows, left = [], sorted(chosen, key=cost)
    print(f"{'':<32}{'answers':>8}{'seeds':>7}{'lost':>6}")
    while left and time.perf_counter() < until:
        row = judged(left.pop(0), range(args.first, args.first + args.seeds), until)
        rows.append(row)
        print(f"{row['exercise']:<32}{row['answers']:>8}{row['seeds']:>7}{len(row['lost']):>6}", flush=True)
        for fault in row["lost"][:5]:
            print(f"      seed {fault['seed']}, {fault['answer']}: {fault['aspect']}: {fault['said']}", flush=True)
    judgements = sum(row["answers"] * row["seeds"] for row in rows)
    print(f"{judgements} judgements of {len(rows)} exercises: {sum(len(row['lost']) for row in rows)} points lost")
    if left:
        print("not run: " + ", ".join(exercise.name for exercise in left))
    if args.json:
        result = {"exercises": rows, "not run": [exercise.name for exercise in left]}
        print(json.dumps(result | {"python": platform.python_version(), "torch": version("torch")}, ensure_ascii=False))


if __name__ == "__main__":
    main()
