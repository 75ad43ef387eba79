"""Small slips lose points: a sample of the mutants of every right answer is judged by the exercise's check."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARK = Path(__file__).parents[2] / "benchmarks" / "mutants.py"


@pytest.mark.slow
def test_a_small_slip_in_a_right_answer_loses_points():
    command = [sys.executable, str(BENCHMARK), "--per-exercise", "1", "--trials", "30", "--processes", "1", "--json"]
    printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    rows = json.loads(printed.splitlines()[-1])["exercises"]
    assert sum(row["killed"] for row in rows) > 0.8 * sum(row["mutants"] for row in rows)
    assert {row["exercise"]: row["missed"] for row in rows if row["missed"]} == {}
    assert {row["exercise"]: row["late"] for row in rows if row["late"]} == {}
