"""The program of an autograder: grade the submission in a folder, and write what the place wants to read.

    python -m lessonkit.grading.export.run gradescope BUNDLE SUBMISSION RESULTS.json
    python -m lessonkit.grading.export.run github BUNDLE SUBMISSION
    python -m lessonkit.grading.export.run classroom50 BUNDLE SUBMISSION RESULT.json

The exit status is 0 where the points were written; for `github`, which has no other way to say it, 0 where all of them
were given and 1 where not. It is 2 where nothing could be graded, which is never a submission's fault.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from commandkit.errors import CommandError
from commandkit.files import write_whole
from lessonkit.grading.engine import pool
from lessonkit.grading.export import results
from lessonkit.grading.export.bundle import opened
from lessonkit.grading.export.one import Graded, grade_one, how_here


def main(argv: Sequence[str]) -> int:
    where, bundle, submission, *to = argv
    try:
        settings, released = opened(Path(bundle))
        graded = grade_one(settings, released, Path(submission), how_here())
    except (CommandError, pool.WorkerLost) as error:
        print(f"error: nothing was graded: {error}", file=sys.stderr)
        return 2
    finally:
        pool.end()
    if where == "github":
        return _tell_github(graded)
    if where == "gradescope":
        data = results.gradescope(graded, settings.visibility)
    else:
        data = results.classroom50(graded, os.environ)
    write_whole(Path(to[0]), json.dumps(data, indent=1, ensure_ascii=False))
    print(f"{graded.told}; the submission ran in the sandbox {graded.sandbox!r}")
    return 0


def _tell_github(graded: Graded) -> int:
    print(results.log(graded))
    for variable, text in (
        ("GITHUB_OUTPUT", f"result={results.runner(graded)}\n"),
        ("GITHUB_STEP_SUMMARY", results.summary(graded)),
    ):
        if os.environ.get(variable):
            with open(os.environ[variable], "a", encoding="utf-8") as file:
                file.write(text)
    return 0 if graded.complete and not graded.problem else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
