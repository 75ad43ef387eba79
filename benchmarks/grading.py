"""How fast a class is graded: stock `nbgrader autograde` beside `attncourse grade`. Goal: ten times, on two cores.

    python benchmarks/grading.py [--submissions 100] [--workers 1 2] [--json]

N submissions of assignment 03, the example class's over and over, are graded in one run on one machine: by nbgrader as
it comes, with no config of ours, and by ours with each number of workers, from an empty cache and with its start. Both
must give the same points. Submissions that crash are left out: stock nbgrader stops at them.
"""

import argparse
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import nbformat
import psutil
from nbgrader.api import Gradebook

from attncourse_lessons import course as lessons
from lessonkit.grading.demo import command as demo
from lessonkit.grading.demo.example_class import make_class
from lessonkit.grading.submission.answers import answer, solutions

COURSE = Path(__file__).parents[1]
ASSIGNMENT = "a03"
GOAL, MEMORY_GOAL = 10, 500  # times stock; MB a worker


def make_course(root: Path, n: int, stock: bool) -> None:
    """A course of `n` submissions in `root`. Stock: without a config but for the names of two folders."""
    demo.prepare(root, COURSE, ASSIGNMENT)
    if stock:
        (root / "nbgrader_config.py").write_text(
            "c = get_config()\n"
            "c.CourseDirectory.source_directory, c.CourseDirectory.release_directory = 'solutions', 'assignments'\n"
        )
    run(root, "nbgrader", "generate_assignment", ASSIGNMENT)
    name = next((root / "solutions" / ASSIGNMENT).glob("*.ipynb")).name
    source = nbformat.read(root / "solutions" / ASSIGNMENT / name, as_version=4)
    release = nbformat.read(root / "assignments" / ASSIGNMENT / name, as_version=4)
    honest = [
        student
        for student in make_class(lessons.exercises_of(ASSIGNMENT), solutions(source))
        if student.answers is not None and all(loss.misconception for loss in student.losses.values())
    ]
    for i in range(n):
        folder = root / "submitted" / f"student{i:04}" / ASSIGNMENT
        folder.mkdir(parents=True)
        notebook = answer(source, release, honest[i % len(honest)].answers or {})
        notebook.cells.append(nbformat.v4.new_code_cell(f"# {i}"))  # no two alike: a second one would be replayed
        nbformat.write(notebook, folder / name)


def run(root: Path, *command: str) -> float:
    """Run a command of this environment in `root`; its wall time in seconds."""
    scripts = Path(sys.executable).parent
    env = {**os.environ, "PATH": f"{scripts}{os.pathsep}{os.environ['PATH']}"}
    start = time.perf_counter()
    done = subprocess.run([str(scripts / command[0]), *command[1:]], cwd=root, env=env, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(command)} failed:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return time.perf_counter() - start


def points(root: Path) -> dict[tuple[str, str], float]:
    """What the gradebook holds for each student and check; of extra credit, which stock nbgrader leaves out, 0."""
    with Gradebook(f"sqlite:///{root / 'gradebook.db'}") as gradebook:
        return {
            (submission.student.id, grade.name): grade.auto_score
            for submission in gradebook.assignment_submissions(ASSIGNMENT)
            for notebook in submission.notebooks
            for grade in notebook.grades
            if grade.name.startswith("check-")
        }


class PeakMemory:
    """Watches the workers' memory: the most that one worker with its processes had, shared pages divided, in MB."""

    def __enter__(self) -> "PeakMemory":
        self.mb, self._done = 0.0, threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._done.wait(0.25):
            for process in psutil.Process().children(recursive=True):
                try:
                    if "lessonkit.grading.sandbox.observer" in process.cmdline() and _is_first(process):
                        family = [process, *process.children(recursive=True)]
                        self.mb = max(self.mb, sum(_pss(one) for one in family) / 2**20)
                except psutil.Error:
                    continue


def _is_first(process: psutil.Process) -> bool:
    """Whether it is a worker and not one of its forks, which have the same command line."""
    parent = process.parent()
    return parent is None or "lessonkit.grading.sandbox.observer" not in parent.cmdline()


def _pss(process: psutil.Process) -> int:
    try:
        return process.memory_full_info().pss
    except psutil.Error:
        return 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--submissions", type=int, default=100, help="how many each grader gets")
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2], help="how many at a time, one run for each")
    parser.add_argument("--json", action="store_true", help="print one JSON object as the last line")
    args = parser.parse_args()
    n = args.submissions

    with tempfile.TemporaryDirectory() as folder:
        stock, ours = Path(folder) / "stock", Path(folder) / "ours"
        make_course(stock, n, stock=True)
        make_course(ours, n, stock=False)
        print(f"{n} submissions of {ASSIGNMENT}, {os.cpu_count()} cores\n\n{'':<30}{'a minute':>10}{'ratio':>8}")
        stock_per_minute = 60 * n / run(stock, "nbgrader", "autograde", ASSIGNMENT)
        print(f"{'nbgrader autograde':<30}{stock_per_minute:>10.1f}{1:>8.1f}", flush=True)
        rates = {}
        with PeakMemory() as peak:
            for workers in args.workers:
                for left in ("grading", "autograded"):
                    shutil.rmtree(ours / left, ignore_errors=True)
                seconds = run(ours, "attncourse", "grade", ASSIGNMENT, "--workers", str(workers))
                rates[workers] = 60 * n / seconds
                row = f"attncourse grade, {workers} worker{'s' * (workers > 1)}"
                print(f"{row:<30}{rates[workers]:>10.1f}{rates[workers] / stock_per_minute:>8.1f}", flush=True)
        best = max(rates.values())
        expected, got = points(stock), points(ours)
        equal = expected == got and len(got) == n * len(lessons.exercises_of(ASSIGNMENT))
    print(f"\ngoal {GOAL}; points equal: {'yes' if equal else 'NO'}; a worker had at most {peak.mb:.0f} MB")
    if args.json:
        result = {
            "stock_per_minute": stock_per_minute,
            "ours_per_minute": best,
            "ratio": best / stock_per_minute,
            "by_workers": {str(workers): rate for workers, rate in rates.items()},
            "scores_equal": equal,
            "peak_worker_mb": peak.mb,
            "submissions": n,
            "cores": os.cpu_count(),
            "python": platform.python_version(),
        }
        print(json.dumps(result))


if __name__ == "__main__":
    main()
