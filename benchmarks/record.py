"""What a benchmark keeps: where and with what it was measured, and how the file is written."""

import argparse
import json
import platform
import re
import time
from importlib.metadata import version
from pathlib import Path


def about(benchmark: str, command: str, packages: tuple[str, ...] = ("torch", "attncourse")) -> dict:
    """The first entries of a record that was made on the CPU, with one thread."""
    return {
        "benchmark": benchmark,
        "command": command,
        "date": time.strftime("%Y-%m-%d"),
        "device": "cpu",
        "device_name": f"{platform.machine()}, 1 thread",
        "versions": {name: version(name) for name in packages} | {"python": platform.python_version()},
    }


def standing(file: Path, **same: object) -> dict:
    """The record in a file, to put newly measured parts into. ValueError where it was made with other settings."""
    record = json.loads(file.read_text(encoding="utf-8"))
    for name, value in same.items():
        if record[name] != value:
            raise ValueError(f"{file}: its {name} are {record[name]}, got {value}: measure everything anew")
    return record


def as_text(result: dict, depth: int) -> str:
    """JSON; what lies `depth` levels deep, such as a run, is one line."""
    text = json.dumps(result, indent=1, ensure_ascii=False)
    return re.sub(rf"\n {{{depth + 1},}}|\n {{{depth}}}(?=[\]}}])", " ", text) + "\n"


def output_arguments(parser: argparse.ArgumentParser) -> None:
    """Add `--save FILE` and `--json`."""
    parser.add_argument("--save", type=Path, metavar="FILE", help="keep the JSON object in this file, too")
    parser.add_argument("--json", action="store_true", help="print one JSON object as the last line")


def hand_over(result: dict, args: argparse.Namespace, depth: int) -> None:
    """Do with the result what `output_arguments` asked for; `depth` is `as_text`'s."""
    if args.save:
        args.save.write_text(as_text(result, depth), encoding="utf-8")
    if args.json:
        print(json.dumps(result, ensure_ascii=False))
