"""Executed notebooks kept under a hash of everything that can change what their cells print."""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import os
import platform
import tempfile
from pathlib import Path
from typing import Any

from nbformat import NotebookNode, from_dict

import attncourse

# nbgrader puts these beside a submission; no cell depends on them.
BOOKKEEPING = {"timestamp.txt", "submission_secret.txt"}

Record = dict[str, Any]


def fingerprint(notebook: NotebookNode, folder: Path, settings: dict[str, Any]) -> str:
    """A hash over the code cells, the files beside them, the kernel's environment and the execution's settings.

    What the learner wrote in words is left out: editing it must not execute anything again.
    """
    files = sorted(p for p in folder.rglob("*") if p.is_file() and p.name not in BOOKKEEPING and p.suffix != ".ipynb")
    content = {
        "cells": [[cell.source, cell.metadata.get("tags", [])] for cell in _code(notebook)],
        "kernel": notebook.metadata.get("kernelspec", {}).get("name"),
        "files": {path.relative_to(folder).as_posix(): _digest(path) for path in files},
        "environment": environment(),
        "settings": settings,
    }
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode("utf-8", "surrogatepass")).hexdigest()


def environment() -> dict[str, str]:
    """What a check's result depends on outside the notebook: versions, and the package's own source."""
    package = Path(attncourse.__file__).parent
    source = hashlib.sha256()
    for path in sorted(package.rglob("*.py")):
        source.update(f"{path.relative_to(package).as_posix()} {_digest(path)}\n".encode())
    return {
        "python": platform.python_version(),
        "torch": importlib.metadata.version("torch"),
        "attncourse": f"{attncourse.__version__} {source.hexdigest()}",
        "mode": os.environ.get("NBGRADER_EXECUTION", ""),
    }


def record(notebook: NotebookNode) -> Record:
    """What execution added to a notebook."""
    return {
        "cells": [[cell.execution_count, cell.outputs] for cell in _code(notebook)],
        "metadata": {
            name: notebook.metadata[name] for name in ("language_info", "widgets") if name in notebook.metadata
        },
    }


def replay(notebook: NotebookNode, executed: Record) -> None:
    """Give a notebook the outputs of an execution of the same cells, in place."""
    for cell, (count, outputs) in zip(_code(notebook), executed["cells"], strict=True):
        cell.execution_count, cell.outputs = count, [from_dict(output) for output in outputs]
    notebook.metadata.update(from_dict(executed["metadata"]))


class Cache:
    """A folder of records, one file each. Any number of processes may read and write it at once."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def get(self, key: str) -> Record | None:
        """The record, or None where there is none or its file is damaged."""
        try:
            return json.loads(self._path(key).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None

    def put(self, key: str, executed: Record) -> None:
        """Keep a record: it is either there whole or not at all."""
        self.folder.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=self.folder, suffix=".part")
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                json.dump(executed, file)
            os.replace(name, self._path(key))
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise

    def _path(self, key: str) -> Path:
        return self.folder / f"{key}.json"


def _code(notebook: NotebookNode) -> list[NotebookNode]:
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
