"""How much of a cluster's time Dask's scheduling takes: sleeps through the executor of `attncourse grade --cluster`.

    python benchmarks/dask_scheduling.py [--workers 1 2 4 8] [--seconds 0.2] [--jobs 40] [--json]

Work that sleeps needs no processor, so that one machine can stand for many: what is missing to the ideal, workers /
seconds jobs a second, is the price of scheduling and of the network. It says nothing about how fast real submissions
are executed: benchmarks/grading.py measures that. Each worker has one thread and its own process. As in grading, no
more than twice as many jobs as there are workers wait for one.
"""

import argparse
import contextlib
import json
import os
import platform
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, wait
from importlib.metadata import version
from pathlib import Path

from distributed import Client

from lessonkit.grading.engine import cluster


@contextlib.contextmanager
def machines(n: int) -> Iterator[str]:
    """A scheduler and `n` workers, each a process in its own folder, on the loopback: the scheduler's address."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    address = f"tcp://127.0.0.1:{port}"
    processes: list[subprocess.Popen] = []

    def start(folder: Path, program: str, *words: str) -> None:
        folder.mkdir()
        command = [sys.executable, "-m", f"distributed.cli.{program}", "--no-dashboard", *words]
        env = {**os.environ, "OMP_NUM_THREADS": "1"}
        processes.append(subprocess.Popen(command, cwd=folder, env=env, stderr=subprocess.DEVNULL))

    with tempfile.TemporaryDirectory() as root:
        try:
            start(Path(root, "scheduler"), "dask_scheduler", "--host=127.0.0.1", f"--port={port}", "--no-show")
            for i in range(n):
                start(Path(root, f"worker{i}"), "dask_worker", address, "--nthreads=1", "--no-nanny")
            with Client(address, timeout=120, set_as_default=False) as client:
                client.wait_for_workers(n, timeout=120)
            yield address
        finally:
            for process in processes:
                process.kill()
            for process in processes:
                process.wait()


def jobs_a_second(address: str, n_workers: int, seconds: float, n_jobs: int) -> float:
    """How many sleeps of `seconds` come back a second, once every worker has begun."""
    with cluster.executor(address) as (executor, _):
        wait([executor.submit(time.sleep, 0.01) for _ in range(4 * n_workers)])
        running: set[Future] = set()
        begun = time.perf_counter()
        for _ in range(n_jobs):
            if len(running) == 2 * n_workers:
                running = wait(running, return_when=FIRST_COMPLETED).not_done
            running.add(executor.submit(time.sleep, seconds))
        wait(running)
        return n_jobs / (time.perf_counter() - begun)


def dask_efficiency(n_workers: list[int], seconds: float = 0.2, jobs: int = 40) -> dict[int, dict[str, float]]:
    """For each number of workers, jobs a second and what part that is of the ideal; `jobs` sleeps a worker."""
    found = {}
    for n in n_workers:
        with machines(n) as address:
            rate = jobs_a_second(address, n, seconds, n * jobs)
        found[n] = {"per_second": rate, "efficiency": rate * seconds / n}
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2, 4, 8], help="with one thread each")
    parser.add_argument("--seconds", type=float, default=0.2, help="that a job sleeps: a submission takes about that")
    parser.add_argument("--jobs", type=int, default=40, help="jobs for each worker")
    parser.add_argument("--json", action="store_true", help="print one JSON object as the last line")
    args = parser.parse_args()

    found = dask_efficiency(args.workers, args.seconds, args.jobs)
    print(f"{'workers':>7}{'jobs/s':>9}{'ideal':>9}{'efficiency':>12}   (sleeps of {args.seconds:g} s)")
    for n, row in found.items():
        print(f"{n:>7}{row['per_second']:>9.1f}{n / args.seconds:>9.1f}{row['efficiency']:>11.0%}")
    if args.json:
        result = {
            "sleep_seconds": args.seconds,
            "sleep_bound_efficiency": {str(n): row["efficiency"] for n, row in found.items()},
            "sleep_bound_per_second": {str(n): row["per_second"] for n, row in found.items()},
            "dask": version("distributed"),
            "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
            "python": platform.python_version(),
            "machine": platform.machine(),
        }
        print(json.dumps(result))


if __name__ == "__main__":
    main()
