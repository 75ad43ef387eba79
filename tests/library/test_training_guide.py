"""docs/training.md: its program runs, and it names no flag that the command lacks."""

import argparse
import re
from pathlib import Path

from attncourse.training import command, generating, scoring, translating

GUIDE = (Path(__file__).parents[2] / "docs" / "training.md").read_text("utf-8")
OTHER_PROGRAMS = {
    *("--nproc-per-node", "--nnodes", "--rdzv-backend", "--rdzv-endpoint", "--index-url"),
    *("--only", "--length"),  # of the benchmark
}


def test_the_program_of_the_guide_runs(capsys):
    (program,) = re.findall(r"```python\n(.*?)```", GUIDE, re.DOTALL)
    exec(compile(program, "docs/training.md", "exec"), {})
    assert re.fullmatch(r"loss \d\.\d\d nats a token, [\d,]+ tokens a second\n", capsys.readouterr().out)


def test_the_guide_names_no_flag_that_the_command_lacks():
    named = set(re.findall(r"(?<=[ `])--[a-z-]+", GUIDE)) - OTHER_PROGRAMS
    known = set()
    for module in (command, generating, scoring, translating):
        parser = argparse.ArgumentParser()
        module.add_arguments(parser)
        known |= set(parser._option_string_actions)
    assert len(named) > 20 and named <= known
