"""An assignment as a page to read: what each exercise asks, with its hints folded. It is done in its notebook."""

import re
from collections.abc import Callable, Sequence

from nbformat.notebooknode import NotebookNode
from nbformat.v4 import new_markdown_cell

from lessonkit.exercises.exercise import Exercise

CODE = re.compile(r"(`[^`]+`)")
TO_DO = """
```{{tip}}
This page is for reading. To do the assignment, [download its notebook](path:{notebook}) and open it where the course
is installed: there, the checks run.
```
"""


def for_reading(notebook: NotebookNode, exercises: Sequence[Exercise], download: str) -> NotebookNode:
    """The released notebook with the hints of each exercise below its check; `download` is where it lies itself."""
    title, _, rest = notebook.cells[0].source.partition("\n")
    notebook.cells[0].source = title + "\n" + TO_DO.format(notebook=download) + rest
    return below_checks(notebook, exercises, lambda exercise: "\n\n".join(folded(exercise.hints)))


def below_checks(
    notebook: NotebookNode, exercises: Sequence[Exercise], said: Callable[[Exercise], str]
) -> NotebookNode:
    """The notebook with Markdown below the check of each exercise: what `said` says of it."""
    by_check = {f"check-{exercise.name}": exercise for exercise in exercises}
    cells = []
    for cell in notebook.cells:
        cells.append(cell)
        exercise = by_check.get(cell.metadata.get("nbgrader", {}).get("grade_id", ""))
        if exercise is not None:
            cells.append(new_markdown_cell(said(exercise)))
    notebook.cells = cells
    return notebook


def as_markdown(hint: str) -> str:
    """A hint is text for a terminal: of its signs, only code and stress are Markdown."""
    return "".join(part if i % 2 else re.sub(r"[<$]", r"\\\g<0>", part) for i, part in enumerate(CODE.split(hint)))


def folded(hints: Sequence[str]) -> list[str]:
    """Markdown of each hint, to be unfolded."""
    return [
        f'<details class="hint"><summary>Hint {number} of {len(hints)}</summary>\n\n{as_markdown(hint)}\n\n</details>'
        for number, hint in enumerate(hints, start=1)
    ]
