"""What the grader noticed about a submission beside its points: for the report, one file each."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from nbformat import NotebookNode

from attncourse.grading.execution import Job, Record, write_whole


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
        "sandbox": record["sandbox"],
        "cells": [
            {"grade_id": cell["grade_id"], "seconds": executed["seconds"]}
            for cell, executed in zip(job["cells"], record["cells"], strict=True)
        ],
        "graded_at": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    write_whole(folder / f"{where['student']}.json", json.dumps(facts, indent=1))
