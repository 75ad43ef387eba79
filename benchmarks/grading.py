"""How fast a class is graded, and whom a hostile submission holds up.

    python benchmarks/grading.py [--what stock sizes hostile] [--submissions 100] [--workers 1 2] [--json]
                                 [--sizes 50 100 200] [--cell-seconds 15]

`stock`: N submissions of assignment 03, the example class's over and over, are graded in one run on one machine: by
nbgrader as it comes, with no config of ours, and by ours with each number of workers, from an empty cache and with its
start. Both must give the same points. Submissions that crash are left out: stock nbgrader stops at them. Goal: twelve
times as fast, on two cores.

`sizes`: classes of several sizes, each by ours with the most workers. Goal: the time grows as the class does.

`hostile`: N such submissions alone, and then with all troublemakers of tests/kit among them, evenly, whose loops take
their cells' whole time. Goal: everybody has the same points, and nobody waits more than ten seconds for one of them.
"""

import argparse
import itertools
import json
import math
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import nbformat
import numpy as np
import psutil
from nbgrader.api import Gradebook

from attncourse_lessons import course as lessons
from lessonkit.grading.demo import command as demo
from lessonkit.grading.demo.example_class import make_class
from lessonkit.grading.submission.answers import answer, solutions

COURSE = Path(__file__).parents[1]
ASSIGNMENT = "a03"
GOAL, DELAY_GOAL = 12, 10  # times stock; seconds that others wait for a submission


def make_course(root: Path, n: int, stock: bool = False) -> None:
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


def run(root: Path, *command: str, may_end_with: int = 0) -> float:
    """Run a command of this environment in `root`; its wall time in seconds."""
    scripts = Path(sys.executable).parent
    env = {**os.environ, "PATH": f"{scripts}{os.pathsep}{os.environ['PATH']}"}
    start = time.perf_counter()
    done = subprocess.run([str(scripts / command[0]), *command[1:]], cwd=root, env=env, capture_output=True, text=True)
    if done.returncode not in (0, may_end_with):
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


def troublemakers() -> list[Any]:
    """What the tests of hostile submissions hand in."""
    sys.path.insert(0, str(COURSE / "tests" / "kit"))
    import test_hostile
    import test_hostile_system

    return [*test_hostile.ALL.values(), *test_hostile_system.ALL.values()]


def hand_in_trouble(root: Path, n: int) -> int:
    """Put the troublemakers between the `n` students; how many they are."""
    trouble = troublemakers()
    from hostile_class import Class

    room = Class.__new__(Class)  # of a course that is there
    room.root, room.handed_in = root, {}
    name = next((root / "solutions" / ASSIGNMENT).glob("*.ipynb")).name
    room.source = nbformat.read(root / "solutions" / ASSIGNMENT / name, as_version=4)
    room.release = nbformat.read(root / "assignments" / ASSIGNMENT / name, as_version=4)
    room.model = solutions(room.source)
    for number, one in enumerate(trouble):
        room.hand_in(f"student{number * n // len(trouble):04}-trouble{number:03}", one)
    return len(trouble)


def when_graded(root: Path, since: float) -> dict[str, float]:
    """Seconds until each student's graded notebook was written."""
    pages = (root / "autograded").glob(f"*/{ASSIGNMENT}/*.ipynb")
    return {page.parts[-3]: page.stat().st_mtime - since for page in pages}


def beside_stock(folder: Path, n: int, workers: list[int]) -> dict[str, Any]:
    stock, ours = folder / "stock", folder / "ours"
    make_course(stock, n, stock=True)
    make_course(ours, n)
    print(f"{n} submissions of {ASSIGNMENT}, {os.cpu_count()} cores\n\n{'':<30}{'a minute':>10}{'ratio':>8}")
    stock_per_minute = 60 * n / run(stock, "nbgrader", "autograde", ASSIGNMENT)
    print(f"{'nbgrader autograde':<30}{stock_per_minute:>10.1f}{1:>8.1f}", flush=True)
    rates = {}
    with PeakMemory() as peak:
        for number in workers:
            for left in ("grading", "autograded"):
                shutil.rmtree(ours / left, ignore_errors=True)
            rates[number] = 60 * n / run(ours, "attncourse", "grade", ASSIGNMENT, "--workers", str(number))
            row = f"attncourse grade, {number} worker{'s' * (number > 1)}"
            print(f"{row:<30}{rates[number]:>10.1f}{rates[number] / stock_per_minute:>8.1f}", flush=True)
    best = max(rates.values())
    expected, got = points(stock), points(ours)
    equal = expected == got and len(got) == n * len(lessons.exercises_of(ASSIGNMENT))
    print(f"\ngoal {GOAL}; points equal: {'yes' if equal else 'NO'}; a worker had at most {peak.mb:.0f} MB")
    return {
        "stock_per_minute": stock_per_minute,
        "ours_per_minute": best,
        "ratio": best / stock_per_minute,
        "by_workers": {str(number): rate for number, rate in rates.items()},
        "scores_equal": equal,
        "peak_worker_mb": peak.mb,
        "submissions": n,
    }


def by_size(folder: Path, sizes: list[int], workers: int) -> dict[str, Any]:
    print(f"\nclasses of {ASSIGNMENT}, {workers} workers\n\n{'submissions':>12}{'seconds':>10}{'each':>8}")
    seconds = {}
    for n in sizes:
        make_course(folder / f"class{n}", n)
        seconds[n] = run(folder / f"class{n}", "attncourse", "grade", ASSIGNMENT, "--workers", str(workers))
        print(f"{n:>12}{seconds[n]:>10.1f}{seconds[n] / n:>8.2f}", flush=True)
        shutil.rmtree(folder / f"class{n}")
    result: dict[str, Any] = {"seconds_by_size": {str(n): each for n, each in seconds.items()}}
    if len(sizes) > 1:
        slope, start = np.polyfit(list(seconds), list(seconds.values()), 1)
        off = max(abs(each - start - slope * n) / each for n, each in seconds.items())
        print(f"\na start of {start:.1f} s and {slope:.3f} s a submission: off by at most {100 * off:.0f} %")
        result |= {"start_seconds": start, "seconds_each": slope, "off_the_line": off}
    return result


def among_troublemakers(folder: Path, n: int, workers: int, cell_seconds: int) -> dict[str, Any]:
    root = folder / "hostile"
    make_course(root, n)
    with (root / "nbgrader_config.py").open("a") as config:
        config.write(f"\nc.ExecuteOrReplay.timeout = {cell_seconds}\n")
    began = time.time()
    run(root, "attncourse", "grade", ASSIGNMENT, "--workers", str(workers))
    alone, right = when_graded(root, began), points(root)
    for left in ("executions", "records"):
        shutil.rmtree(root / "grading" / ASSIGNMENT / left)
    shutil.rmtree(root / "autograded")
    hostile = hand_in_trouble(root, n)
    began = time.time()
    run(root, "attncourse", "grade", ASSIGNMENT, "--workers", str(workers), may_end_with=1)
    beside, got = when_graded(root, began), points(root)
    equal = right == {place: score for place, score in got.items() if place[0] in alone}
    last_alone, last = (max(times[student] for student in alone) for times in (alone, beside))
    times = sorted(beside[student] for student in alone)
    gap = max(later - before for before, later in itertools.pairwise(times))
    delay = (last - last_alone) / hostile
    print(
        f"\n{n} honest submissions, {workers} workers: the last is graded after {last_alone:.0f} s; among {hostile} "
        f"troublemakers after {last:.0f} s, and all after {max(beside.values()):.0f} s\n"
        f"delay for each troublemaker {delay:.2f} s (goal {DELAY_GOAL}); longest time in which no honest one was done "
        f"{gap:.1f} s, with {math.ceil(hostile / n)} troublemakers between two of them; "
        f"points unchanged: {'yes' if equal else 'NO'}"
    )
    return {
        "honest": n,
        "hostile": hostile,
        "honest_alone_seconds": last_alone,
        "honest_beside_seconds": last,
        "all_seconds": max(beside.values()),
        "delay_each_seconds": delay,
        "longest_gap_seconds": gap,
        "points_unchanged": equal,
        "cell_seconds": cell_seconds,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--what", nargs="+", choices=("stock", "sizes", "hostile"), default=["stock"])
    parser.add_argument("--submissions", type=int, default=100, help="how many each grader gets")
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2], help="how many at a time, one run for each")
    parser.add_argument("--sizes", type=int, nargs="+", default=[50, 100, 200, 350, 500], help="of classes")
    parser.add_argument("--cell-seconds", type=int, default=15, help="what a troublemaker's cell may take")
    parser.add_argument("--json", action="store_true", help="print one JSON object as the last line")
    args = parser.parse_args()
    result: dict[str, Any] = {"cores": os.cpu_count(), "python": platform.python_version()}
    with tempfile.TemporaryDirectory() as folder:
        if "stock" in args.what:
            result |= beside_stock(Path(folder), args.submissions, args.workers)
        if "sizes" in args.what:
            result |= by_size(Path(folder), args.sizes, max(args.workers))
        if "hostile" in args.what:
            result |= among_troublemakers(Path(folder), args.submissions, max(args.workers), args.cell_seconds)
    if args.json:
        print(json.dumps(result))


if __name__ == "__main__":
    main()
