"""`lessonkit doctor`: look at this machine, and say what would mend what does not work."""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from commandkit.errors import CommandError, how_to_install

DISTRIBUTION = "attncourse"  # with which the kit is installed, and what it needs
FOUND, WARNING, BROKEN = "✓", "!", "✗"
SERVER_EXTENSIONS = ("formgrader", "validate_assignment", "assignment_list", "course_list")
TORCH = """
import torch
a = torch.randn(64, 64, dtype=torch.float64)
error = (a @ torch.linalg.inv(a) - torch.eye(64)).abs().max().item()
metal = "Metal" if torch.backends.mps.is_available() else ""
gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else metal
print(torch.__version__, error < 1e-6, torch.get_num_threads(), torch.version.cuda or "", gpu, sep="|")
"""


@dataclass(frozen=True)
class Finding:
    """One line: what was found, and how to mend it. BROKEN findings make the doctor's exit status 1."""

    mark: str
    what: str
    fix: str = ""

    def __str__(self) -> str:
        return f"{self.mark} {self.what}" + (f"\n    {self.fix}" if self.fix else "")

EXAMPLES = """
PROGRAM doctor
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--course", type=Path, default=Path(), metavar="DIR", help="the course's folder (default: here)"
    )


def main(args: argparse.Namespace) -> int:
    """Print a line for each finding; 1 if something that the course needs is broken, else 0."""
    broken = 0
    for finding in examine(args.course):
        broken += finding.mark == BROKEN
        encoding = sys.stdout.encoding or "utf-8"
        print(str(finding).encode(encoding, "replace").decode(encoding), flush=True)
    print(f"\n{broken} to mend" if broken else "\nEverything that the course needs is there.")
    return 1 if broken else 0


def examine(folder: Path = Path()) -> Iterator[Finding]:
    """Every check's findings. A check that fails itself is a finding, and the others go on."""
    for check in CHECKS:
        try:
            yield from check(folder)
        except Exception as error:
            name = check.__name__.strip("_").replace("_", " ")
            yield Finding(
                BROKEN, f"{name}: could not be checked ({type(error).__name__}: {error})", how_to_install("lab")
            )


def _python(folder: Path) -> Iterator[Finding]:
    version = ".".join(map(str, sys.version_info[:3]))
    if sys.version_info < (3, 11):  # noqa: UP036
        yield Finding(BROKEN, f"Python {version}: the course needs 3.11 or newer", "make setup PYTHON=python3.11")
    elif sys.prefix == sys.base_prefix and "CONDA_PREFIX" not in os.environ:
        yield Finding(WARNING, f"Python {version}, in no environment of its own ({sys.prefix})", "better: make setup")
    else:
        yield Finding(FOUND, f"Python {version} ({sys.prefix})")


def _packages(folder: Path) -> Iterator[Finding]:
    """What pyproject.toml asks for: the core and `lab` are needed by everybody, `grading` by who grades."""
    from packaging.requirements import Requirement

    requirements = [Requirement(text) for text in importlib.metadata.requires(DISTRIBUTION) or []]
    for extra, needed in (("", True), ("lab", True), ("grading", False)):
        asked = [
            r
            for r in requirements
            if (r.marker is None if not extra else r.marker and r.marker.evaluate({"extra": extra}))
        ]
        wrong: list[str] = []
        fine: list[str] = []
        for requirement in asked:
            try:
                version = importlib.metadata.version(requirement.name)
            except importlib.metadata.PackageNotFoundError:
                wrong.append(f"{requirement.name} is missing")
                continue
            suits = requirement.specifier.contains(version, prereleases=True)
            (fine if suits else wrong).append(
                f"{requirement.name} {version}" + ("" if suits else f" is not {requirement.specifier}")
            )
        title = f"extra '{extra}'" if extra else "packages"
        if wrong:
            yield Finding(BROKEN if needed else WARNING, f"{title}: {', '.join(wrong)}", how_to_install(extra or "lab"))
        else:
            yield Finding(FOUND, f"{title}: {', '.join(fine)}")


def _torch(folder: Path) -> Iterator[Finding]:
    """In a process of its own: a build for another processor does not raise, it crashes."""
    run = subprocess.run([sys.executable, "-c", TORCH], capture_output=True, text=True, timeout=120)
    if run.returncode:
        reason = (run.stderr.strip().splitlines() or [f"exit status {run.returncode}"])[-1]
        yield Finding(BROKEN, f"torch does not work: {reason}", how_to_install("lab"))
        return
    version, right, threads, cuda, gpu = run.stdout.strip().split("|")
    if right != "True":
        yield Finding(
            BROKEN, f"torch {version} computes wrong numbers on this machine", "install another build of torch"
        )
    cores = os.cpu_count() or 1
    build = f"{_build(version, cuda)}, {_gigabytes('torch', 'triton', 'nvidia')} GB"
    yield Finding(FOUND, f"torch {version} ({build}) computes, on {threads} threads ({cores} cores)")
    yield Finding(FOUND, f"GPU: {gpu}" if gpu else "GPU: none that torch can use; the course does not need one")


def _build(version: str, cuda: str) -> str:
    return f"the build for CUDA {cuda}" if cuda else "the build for CPUs" if sys.platform != "darwin" else "with Metal"


def _gigabytes(*packages: str) -> str:
    """What these folders of the environment take on the disk, as far as they are there."""
    site = Path(sysconfig.get_paths()["purelib"])
    files = (path for name in packages for path in (site / name).rglob("*") if path.is_file())
    return f"{sum(path.stat().st_size for path in files) / 1e9:.1f}"


def _kernel(folder: Path) -> Iterator[Finding]:
    from jupyter_client.kernelspec import KernelSpecManager

    spec = KernelSpecManager().get_kernel_spec("python3")
    command = spec.argv[0]
    program = sys.executable if command in ("python", "python3") else shutil.which(command) or command
    if Path(program).parent == Path(sys.executable).parent:
        yield Finding(FOUND, "Jupyter's kernel python3 is this environment's")
    else:
        fix = f"jupyter kernelspec remove python3  (it lies in {spec.resource_dir})"
        yield Finding(BROKEN, f"Jupyter's kernel python3 starts {program}, not this environment's Python", fix)


def _extensions(folder: Path) -> Iterator[Finding]:
    """nbgrader in JupyterLab: the server's part and the browser's."""
    from jupyter_core.paths import jupyter_config_path, jupyter_path

    enabled: dict[str, bool] = {}
    for place in reversed(jupyter_config_path()):  # the first of them has the last word
        files = [
            *sorted(Path(place, "jupyter_server_config.d").glob("*.json")),
            Path(place, "jupyter_server_config.json"),
        ]
        for path in files:
            enabled |= _json(path).get("ServerApp", {}).get("jpserver_extensions", {})
    off = [name for name in SERVER_EXTENSIONS if not enabled.get(f"nbgrader.server_extensions.{name}")]
    command = "jupyter server extension enable --sys-prefix --py nbgrader"
    yield (
        Finding(BROKEN, f"nbgrader's server extensions are off: {', '.join(off)}", command)
        if off
        else Finding(FOUND, "nbgrader's server extensions are on (formgrader, Validate, assignment list)")
    )
    there = any(
        Path(place, "@jupyter", "nbgrader", "package.json").is_file() for place in jupyter_path("labextensions")
    )
    disabled: dict[str, bool] = {}
    for place in reversed(jupyter_config_path()):
        listed = _json(Path(place, "labconfig", "page_config.json")).get("disabledExtensions", {})
        disabled |= dict.fromkeys(listed, True) if isinstance(listed, list) else listed
    off = [name for name, value in disabled.items() if value and name.startswith("@jupyter/nbgrader")]
    if not there:
        yield Finding(BROKEN, "nbgrader's JupyterLab extension is missing", how_to_install("lab"))
    elif off:
        yield Finding(
            BROKEN, f"nbgrader's JupyterLab extension is disabled: {off[0]}", f"jupyter labextension enable {off[0]}"
        )
    else:
        yield Finding(FOUND, "nbgrader's JupyterLab extension is on")


def _alembic(folder: Path) -> Iterator[Finding]:
    beside = Path(sys.executable).parent
    if shutil.which("alembic"):
        yield Finding(FOUND, "alembic is on PATH (nbgrader calls it to make a gradebook)")
    elif shutil.which("alembic", path=str(beside)):
        yield Finding(FOUND, "alembic is not on PATH, but the course's nbgrader_config.py finds it beside Python")
    else:
        yield Finding(BROKEN, "alembic is missing: nbgrader cannot make a gradebook", how_to_install("lab"))


def _exchange(folder: Path) -> Iterator[Finding]:
    """A missing exchange is a fault where somebody chose its place: the course can be taken and graded without one."""
    if sys.platform == "win32":
        yield Finding(WARNING, "nbgrader has no exchange on Windows: hand in and collect files by other means")
        return
    from nbgrader.exchange.default import Exchange

    from lessonkit.grading.gradebook.nbgrader_app import application, find_course

    try:
        app = application(find_course(folder), "list")
    except CommandError as error:
        yield Finding(WARNING, f"nbgrader's exchange: not looked at, because {error}")
        return
    root = Exchange(coursedir=app.coursedir, parent=app).root
    chosen = "root" in app.config.get("Exchange", {})
    make = f"mkdir -p {root} && chmod ugo+rwx {root}"
    if not os.path.isdir(root):
        what = f"nbgrader's exchange {root} does not exist"
        if chosen:
            yield Finding(BROKEN, what, make)
        else:
            yield Finding(WARNING, f"{what}: needed to hand in and to collect on this machine", f"if you do: {make}")
    elif not os.access(root, os.W_OK | os.X_OK):
        yield Finding(BROKEN, f"nbgrader's exchange {root} cannot be written", f"chmod ugo+rwx {root}  (as its owner)")
    else:
        yield Finding(FOUND, f"nbgrader's exchange: {root}")


def _sandbox(folder: Path) -> Iterator[Finding]:
    """Only who grades needs them."""
    from lessonkit.grading.engine.pool import KERNEL, how_to_execute

    try:
        how = how_to_execute()
    except CommandError as error:
        yield Finding(WARNING, f"grading: {error}")
        return
    if how == KERNEL:
        yield Finding(WARNING, "grading: on this system submissions run without a sandbox: grade people that you trust")
    else:
        yield Finding(FOUND, "grading: submissions run in a sandbox (bubblewrap, landlock, seccomp)")


def _data(folder: Path) -> Iterator[Finding]:
    place = os.environ.get("ATTNCOURSE_DATA")
    if not place:
        return
    if os.path.isdir(place) and os.access(place, os.W_OK):
        yield Finding(FOUND, f"data: {place} (ATTNCOURSE_DATA)")
    else:
        yield Finding(
            BROKEN,
            f"ATTNCOURSE_DATA is {place}, which is no folder that can be written",
            f"mkdir -p {place}, or unset it",
        )


def _disk(folder: Path) -> Iterator[Finding]:
    free = shutil.disk_usage(folder).free / 1e9
    if free < 0.2:
        yield Finding(BROKEN, f"{free:.1f} GB free where the course lies: notebooks cannot be saved", "make room")
    elif free < 2:
        yield Finding(
            WARNING, f"{free:.1f} GB free where the course lies: too little for the data sets and a class", "make room"
        )
    else:
        yield Finding(FOUND, f"{free:.0f} GB free where the course lies")


def _json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


CHECKS: tuple[Callable[[Path], Iterator[Finding]], ...] = (
    _python,
    _packages,
    _torch,
    _kernel,
    _extensions,
    _alembic,
    _exchange,
    _sandbox,
    _data,
    _disk,
)
