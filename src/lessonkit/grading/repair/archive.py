"""A notebook that was handed in inside an archive: the one that is in it, read within limits by `unpack.py`."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

from lessonkit.grading.repair import unpack
from lessonkit.grading.repair.reading import MAX_BYTES, Unreadable, read_bytes

OPENED = re.compile(r"\.(zip|tar|tar\.gz|tgz)$", re.IGNORECASE)
MAX_ARCHIVE = 20_000_000  # bytes of the archive itself
SECONDS = 10.0  # an honest one takes a tenth of one


def notebook_in(path: Path) -> tuple[str, bytes]:
    """The name and the bytes of the one notebook in an archive. Unreadable, with the reason, if it is not to be had."""
    try:
        data = read_bytes(path, MAX_ARCHIVE)
        program = [sys.executable, "-I", unpack.__file__, str(MAX_BYTES)]
        done = subprocess.run(program, input=data, capture_output=True, timeout=SECONDS, check=True)
        line, _, content = done.stdout.partition(b"\n")
        said = json.loads(line)
        if "name" in said:
            return str(said["name"]), content
        reason = str(said["refused"])
    except Unreadable as known:
        reason = str(known)
    except subprocess.SubprocessError:
        reason = "which takes too long to open"
    raise Unreadable(f"an archive was handed in ({path.name}), {reason}: hand in the notebook itself")
