"""How long a learner waits: `import attncourse`, and each exercise's check.

    python benchmarks/check.py [--only a03 ...] [--repeats 3] [--json]

A check is timed on every right answer that the course knows and on every misconception, first call included: that is
the one a learner waits for. Of each exercise the slowest counts, in seconds of the processor, which a busy machine
lengthens less. The goals are 0.1 s for the import, 0.5 s for a right answer, and 1 s for a wrong one.
"""

import argparse
import json
import platform
import statistics
import subprocess
import sys
import time

from attncourse_lessons import course as lessons

IMPORT_GOAL, RIGHT_GOAL, WRONG_GOAL = 0.1, 0.5, 1.0


def import_seconds(repeats: int) -> float:
    """What `import attncourse` adds to a bare start of Python: the difference of medians."""

    def median(code: str) -> float:
        times = []
        for _ in range(repeats):
            start = time.perf_counter()
            subprocess.run([sys.executable, "-c", code], check=True)
            times.append(time.perf_counter() - start)
        return statistics.median(times)

    return max(0.0, median("import attncourse") - median("pass"))


def check_seconds(assignments: list[str], repeats: int) -> dict[str, dict[str, float]]:
    """The slowest check of each exercise, over all answers that the course knows: the median of fresh processes."""
    code = """
import json, sys, time
import torch
from attncourse_lessons import course as lessons
from lessonkit.course import VISIBLE_SEEDS
from lessonkit.exercises.judge import judge_on_seeds
from lessonkit.exercises.observe import observe
torch.set_num_threads(1)
slowest = {}
for assignment in sys.argv[1:]:
    for exercise in lessons.exercises_of(assignment):
        if exercise.metric:  # it trains a model
            continue
        rows, seeds = {}, VISIBLE_SEEDS[:exercise.seeds]
        slowest[exercise.name] = rows
        ours = isinstance(exercise.reference, type) and not exercise.writes_init  # a class of ours may not call ours
        for kind, known in (("right", exercise.alternatives), ("wrong", exercise.misconceptions)):
            for code in known:
                start = time.process_time()
                judge_on_seeds(exercise, (observe(exercise, code.answer, s, trusted=ours) for s in seeds), seeds)
                rows[kind] = max(rows.get(kind, 0), time.process_time() - start)
print(json.dumps(slowest))
"""
    command = [sys.executable, "-c", code, *assignments]
    printed = [subprocess.run(command, check=True, capture_output=True, text=True).stdout for _ in range(repeats)]
    runs = [json.loads(text) for text in printed]
    return {
        name: {kind: statistics.median(run[name][kind] for run in runs) for kind in ("right", "wrong")}
        for name in runs[0]
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    known = lessons.assignments()
    parser.add_argument("--only", nargs="+", default=known, choices=known, metavar="aNN", help="these alone")
    parser.add_argument("--repeats", type=int, default=3, help="fresh processes of which the median is taken")
    parser.add_argument("--json", action="store_true", help="print one JSON object as the last line")
    args = parser.parse_args()

    imported, checks = import_seconds(args.repeats), check_seconds(args.only, args.repeats)
    print(f"import attncourse adds {imported:.3f} s (goal {IMPORT_GOAL})\n")
    print(f"{'check of':<32}{'right':>9}{'wrong':>9}")
    for name, seconds in checks.items():
        late = seconds["right"] > RIGHT_GOAL or seconds["wrong"] > WRONG_GOAL
        print(f"{name:<32}{seconds['right']:>9.3f}{seconds['wrong']:>9.3f}{'  over' if late else ''}")
    for kind, goal in (("right", RIGHT_GOAL), ("wrong", WRONG_GOAL)):
        times = sorted(seconds[kind] for seconds in checks.values())
        middle, over = statistics.median(times), sum(seconds > goal for seconds in times)
        print(f"{kind}: half below {middle:.3f} s, the slowest {times[-1]:.3f} s; {over} over {goal} s")
    if args.json:
        result = {
            "import_seconds": imported,
            "slowest_check_seconds": {k: max(s[k] for s in checks.values()) for k in ("right", "wrong")},
            "checks": checks,
            "python": platform.python_version(),
            "machine": platform.machine(),
        }
        print(json.dumps(result))


if __name__ == "__main__":
    main()
