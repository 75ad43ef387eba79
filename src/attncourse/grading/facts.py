"""What the grader noticed about a submission beside its points: for the report, one file each."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from nbformat import NotebookNode

from attncourse.grading.execution import Job, Record, write_whole

# Names that an answer has no use for: ways around the watch on forbidden calls, and out of the notebook.
UNUSUAL = re.compile(
    r"(^|\.)(setprofile|settrace|_getframe|get_objects|get_referrers|ctypes|__subclasses__|__globals__|__closure__)($|\.)"
    r"|^torch\.(ops|jit|_)|^(sys\.)?modules$|^sys\.meta_path"
)


MAX_SOURCE = 50_000  # characters of a cell; a longer one is itself worth reading


def unusual(cells: Sequence[Mapping[str, Any]]) -> list[str]:
    """Names in the learner's own cells that a person should look at, a sentence for each: no accusation.

    The names that the assignment's exercises forbid are among them, so that a call which the watch on the calls has
    missed is seen here.
    """
    from attncourse import exercises  # torch with it

    known = exercises.by_name()
    forbidden = {name for cell in cells if cell["exercise"] in known for name in known[cell["exercise"]].forbidden}
    last = {name.rpartition(".")[2] for name in forbidden if name.startswith("torch.")}
    found: dict[str, None] = {}
    for cell in cells:
        if len(cell["source"]) > MAX_SOURCE:
            found[f"a cell of {len(cell['source'])} characters"] = None
        for name in _names(cell["source"]) if not cell["exercise"] else ():
            if UNUSUAL.search(name) or name.rpartition(".")[2] in last:
                found[f"uses `{name[:100]}` in `{cell['grade_id'] or 'a cell of its own'}`"] = None
    return list(found)


def _names(source: str) -> Iterator[str]:
    """The names in a cell's code, dotted as they are written; none where it does not parse, or is far too long."""
    if len(source) > MAX_SOURCE:
        return
    code = re.sub(r"^\s*[%!].*$", "", source, flags=re.MULTILINE)  # IPython's own
    try:
        nodes = list(ast.walk(ast.parse(code)))
    except Exception:  # of many kinds, for code made to break a parser
        return
    inner = {id(node.value) for node in nodes if isinstance(node, ast.Attribute)}
    for node in nodes:
        if isinstance(node, ast.Attribute | ast.Name) and id(node) not in inner:
            parts: list[str] = []
            part: ast.expr = node
            while isinstance(part, ast.Attribute):
                parts.append(part.attr)
                part = part.value
            parts += [part.id] if isinstance(part, ast.Name) else []
            yield ".".join(reversed(parts))
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def write_facts(folder: Path, where: Mapping[str, str], notebook: NotebookNode, job: Job, record: Record) -> None:
    """Write `folder`/<student>.json. `where` is nbgrader's: the student and the notebook."""
    noted = notebook.metadata.get("attncourse")
    noted = noted if isinstance(noted, dict) else {}
    facts: dict[str, Any] = {
        "student": where["student"],
        "notebook": where["notebook"],
        "seconds": record["seconds"],
        "peak_mb": record["peak_mb"],
        "ended": record["ended"],
        "repairs": list(noted.get("repairs", [])),
        "flags": list(record["flags"]),
        "unusual": unusual(job["cells"]),
        "sandbox": record["sandbox"],
        "cells": [
            {"grade_id": cell["grade_id"], "seconds": executed["seconds"]}
            for cell, executed in zip(job["cells"], record["cells"], strict=True)
        ],
        "graded_at": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    write_whole(folder / f"{where['student']}.json", json.dumps(facts, indent=1))
