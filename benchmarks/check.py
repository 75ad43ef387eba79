"""How long a learner waits: `import attncourse`, and each exercise's check. Goals: 0.1 s and 0.5 s.

    python benchmarks/check.py [--repeats 5] [--json]

A check is timed on a right answer and on every misconception, first call included: that is the one a learner waits for.
"""

import argparse
import json
import platform
import statistics
import subprocess
import sys
import time

IMPORT_GOAL, CHECK_GOAL = 0.1, 0.5


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


def check_seconds(repeats: int) -> dict[str, float]:
    """The slowest check of each exercise, over all answers that the course knows: the median of fresh processes."""
    code = """
import json, time
from attncourse import check
from attncourse_lessons import course as lessons
slowest = {}
for assignment in lessons.assignments():
    for exercise in lessons.exercises_of(assignment):
        if exercise.metric:  # it trains a model
            continue
        for known in exercise.alternatives + exercise.misconceptions:
            start = time.perf_counter()
            check(exercise.name, known.answer)
            slowest[exercise.name] = max(slowest.get(exercise.name, 0), time.perf_counter() - start)
print(json.dumps(slowest))
"""
    runs = [
        json.loads(subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout)
        for _ in range(repeats)
    ]
    return {name: statistics.median(run[name] for run in runs) for name in runs[0]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=5, help="fresh processes of which the median is taken")
    parser.add_argument("--json", action="store_true", help="print one JSON object as the last line")
    args = parser.parse_args()

    imported, checks = import_seconds(args.repeats), check_seconds(args.repeats)
    print(f"{'':<32}{'seconds':>9}{'goal':>7}")
    print(f"{'import attncourse adds':<32}{imported:>9.3f}{IMPORT_GOAL:>7}")
    for name, seconds in checks.items():
        print(f"{'check ' + name:<32}{seconds:>9.3f}{CHECK_GOAL:>7}")
    if args.json:
        result = {
            "import_seconds": imported,
            "slowest_check_seconds": max(checks.values()),
            "checks": checks,
            "python": platform.python_version(),
            "machine": platform.machine(),
        }
        print(json.dumps(result))


if __name__ == "__main__":
    main()
