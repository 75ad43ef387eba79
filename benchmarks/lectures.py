"""How long the course's notebooks run: each lecture (goal 60 s), each assignment (goal 10 s once torch is there).

    python benchmarks/lectures.py [00 01 …] [--json]

A notebook runs as a reader runs it, in a kernel of its own, one after the other; the kernel's start is part of it. An
assignment is run with its solutions, and what is left out are its first code cell, which imports torch, and
`check_all()`, which would run the notebook once more.
"""

import argparse
import json
import os
import platform
import time
from pathlib import Path

import nbformat
from nbclient import NotebookClient

COURSE = Path(__file__).parents[1]
LECTURE_GOAL, TOTAL_GOAL, ASSIGNMENT_GOAL = 60, 600, 10  # seconds; the total is that of all the lectures


def seconds(path: Path) -> tuple[float, float]:
    """Seconds to run a notebook from starting its kernel, and seconds since the end of its first code cell."""
    notebook = nbformat.read(path, as_version=4)
    notebook.cells = [cell for cell in notebook.cells if "check_all()" not in cell.source.splitlines()]
    first_done: list[float] = []
    client = NotebookClient(
        notebook,
        kernel_name="python3",
        timeout=600,
        extra_arguments=["--log-level=ERROR"],  # its remarks on the transport would tear the table
        resources={"metadata": {"path": str(path.parent)}},
        on_cell_executed=lambda **_: first_done.append(time.perf_counter()),
    )
    began = time.perf_counter()
    client.execute(env={**os.environ, "TQDM_DISABLE": "1"})
    ended = time.perf_counter()
    return ended - began, ended - first_done[0]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("numbers", nargs="*", help="such as 00 03 (default: all)")
    parser.add_argument("--json", action="store_true", help="print one JSON object as the last line")
    args = parser.parse_args()

    def wanted(pattern: str, prefix: str) -> list[Path]:
        found = sorted(COURSE.glob(pattern))
        return [path for path in found if not args.numbers or path.name.removeprefix(prefix)[:2] in args.numbers]

    print(f"{'':<36}{'seconds':>9}{'goal':>7}")
    lectures, assignments = {}, {}
    for path in wanted("lectures/*.ipynb", ""):
        lectures[path.stem] = round(seconds(path)[0], 1)
        print(f"{path.stem:<36}{lectures[path.stem]:>9.1f}{LECTURE_GOAL:>7}", flush=True)
    for path in wanted("solutions/*/*.ipynb", "a"):
        assignments[path.stem] = round(seconds(path)[1], 1)
        print(f"{path.stem:<36}{assignments[path.stem]:>9.1f}{ASSIGNMENT_GOAL:>7}", flush=True)
    total = round(sum(lectures.values()), 1)
    print(f"{'all these lectures':<36}{total:>9.1f}{TOTAL_GOAL:>7}")
    if args.json:
        result = {
            "total_seconds": total,
            "slowest_seconds": max(lectures.values(), default=0.0),
            "lectures": lectures,
            "assignments": assignments,
            "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
            "python": platform.python_version(),
            "machine": platform.machine(),
        }
        print(json.dumps(result))


if __name__ == "__main__":
    main()
