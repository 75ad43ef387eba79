"""What was graded, in the words and the format of the place where the class lives."""

from __future__ import annotations

import base64
import json
import secrets
from collections.abc import Mapping
from datetime import UTC, datetime
from html import escape
from typing import Any

from lessonkit.grading.export.one import Graded, Line

Data = dict[str, Any]


def gradescope(graded: Graded, visibility: str) -> Data:
    """`results.json`: https://gradescope-autograders.readthedocs.io/en/latest/specs/ (Output format).

    One test for each aspect. Everything is of the format "text": the card quotes what a submission says of itself, its
    errors above all, and the usual format of the output at the top is HTML. An extension's tests are worth nothing and
    may earn something, so that its points come on top.
    """
    tests = [
        {
            "name": _named(line),
            "name_format": "text",
            "score": line.points,
            "max_score": 0.0 if line.extra else line.out_of,
            "status": "passed" if line.ok else "failed",
            "output": line.words,
            "output_format": "text",
            "visibility": visibility,
        }
        for line in graded.lines
    ]
    return {
        "score": graded.points,
        "execution_time": round(graded.seconds),
        "output": "\n".join(_remarks(graded)),
        "output_format": "text",
        "visibility": visibility,
        "stdout_visibility": "hidden",
        "tests": tests,
        "leaderboard": [{"name": name, "value": value} for name, value in graded.metrics.items()],
        "extra_data": {"assignment": graded.assignment, "sandbox": graded.sandbox},
    }


def runner(graded: Graded) -> str:
    """The output `result` of a step, for GitHub's own reporter of grades, in base64.

    As its runners give it and its reporter adds it up: https://github.com/classroom-resources/autograding-command-grader
    and https://github.com/classroom-resources/autograding-grading-reporter.
    """
    tests = [
        {
            "name": _named(line),
            "status": "pass" if line.ok else "fail",
            "score": line.points,
            "message": line.words,
            "test_code": f'check("{line.exercise}", {line.exercise})',
            "filename": "",
            "line_no": 0,
            "duration": 0,
        }
        for line in graded.lines
    ]
    status = "pass" if graded.complete and not graded.problem else "fail"
    result = {"version": 1, "status": status, "max_score": graded.out_of, "tests": tests}
    return base64.b64encode(json.dumps(result).encode()).decode()


def log(graded: Graded) -> str:
    """What a step prints. GitHub would take a line such as "::error::" for an order: not what a submission says."""
    token = secrets.token_hex(16)
    lines = [f"::stop-commands::{token}", *_remarks(graded)]
    for line in graded.lines:
        lines.append(f"{'✓' if line.ok else '✗'} {line.points:g}/{line.out_of:g}  {_named(line)}: {line.words}")
    points = f"::notice title=Autograding complete::{graded.assignment}: {graded.told}"
    return "\n".join([*lines, f"::{token}::", points])


def summary(graded: Graded) -> str:
    """A step's summary, in GitHub's Markdown."""
    rows = [
        f"| {'✓' if line.ok else '✗'} | `{line.exercise}` | {escape(line.aspect)} "
        f"| {line.points:g} of {line.out_of:g}{' extra' if line.extra else ''} | {_in_a_cell(line.words)} |"
        for line in graded.lines
    ]
    title = f"### {graded.assignment}: {graded.told}"
    said = [_in_a_cell(remark) for remark in _remarks(graded)]
    return "\n".join([title, "", *said, "", "| | exercise | aspect | points | |", "|---|---|---|---|---|", *rows, ""])


def classroom50(graded: Graded, environment: Mapping[str, str]) -> Data:
    """`result.json`: https://github.com/foundation50/classroom50/wiki/Advanced-Autograding (The result.json contract).

    It counts in whole points: where an aspect is worth half a one, everything counts twice.
    """
    twice = any(not line.out_of.is_integer() for line in graded.lines)
    tests = [
        {
            "test-name": _named(line),
            "passed": line.ok,
            "score": round(line.points * (1 + twice)),
            "max-score": 0 if line.extra else round(line.out_of * (1 + twice)),
            "output": line.words,
        }
        for line in graded.lines
    ]
    commit = environment.get("COMMIT_URL", "")
    return {
        "schema": "classroom50/result/v1",
        "classroom": environment.get("CLASSROOM", ""),
        "assignment": environment.get("ASSIGNMENT", ""),
        "submission": environment.get("SUBMISSION_TAG", ""),
        "commit": commit,
        "release": environment.get("RELEASE_URL", ""),
        "review": environment.get("REVIEW_URL") or commit,
        "datetime": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "score": sum(test["score"] for test in tests),
        "max-score": sum(test["max-score"] for test in tests),
        "tests": tests,
    }


def _named(line: Line) -> str:
    return f"{line.exercise}: {line.aspect}{' (extra credit)' if line.extra else ''}"


def _remarks(graded: Graded) -> list[str]:
    """What is to be said beside the tests."""
    if graded.problem:
        return [f"This submission could not be graded: {graded.problem}."]
    told = [f"{graded.assignment}: {graded.told}."]
    if graded.by_hand:
        questions = ", ".join(f"{name} ({points:g})" for name, points in graded.by_hand.items())
        told.append(f"A person marks what was written in words: {questions}.")
    return [*told, *(f"Repaired: {repair}." for repair in graded.repairs)]


def _in_a_cell(text: str) -> str:
    """Text for a cell of a Markdown table, in which nothing of it is Markdown or HTML."""
    plain = escape(" ".join(text.split()), quote=False)
    return "".join(f"\\{char}" if char in "\\|[]!" else char for char in plain)
