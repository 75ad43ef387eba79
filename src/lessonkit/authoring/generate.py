"""`nbgrader generate_assignment`, without its database and without touching what is there."""

import logging
import tempfile
from pathlib import Path

from commandkit.commands import typed
from commandkit.errors import CommandError, require_extra

with require_extra(typed("build"), "dev"):
    from nbformat.notebooknode import NotebookNode
    from nbgrader.converters import GenerateAssignment, NbGraderException
    from nbgrader.coursedir import CourseDirectory
    from traitlets.config import Config
    from traitlets.config.loader import PyFileConfigLoader
    from traitlets.log import get_logger


def generate(root: Path, assignment: str) -> dict[str, bytes]:
    """What nbgrader releases to students for `assignment`: the files of solutions/aNN without answers and hidden tests.

    Keys are paths below assignments/aNN. Uses the course's nbgrader_config.py. Raises CommandError.
    """
    with tempfile.TemporaryDirectory() as scratch:
        config = Config()
        if (root / "nbgrader_config.py").exists():
            config.merge(PyFileConfigLoader("nbgrader_config.py", str(root)).load_config())
        config.CourseDirectory.root = str(root)
        config.CourseDirectory.source_directory = "solutions"
        config.CourseDirectory.release_directory = scratch
        config.CourseDirectory.assignment_id = assignment
        config.SaveCells.enabled = False
        config.GenerateAssignment.no_database = True
        log = logging.getLogger(get_logger().name)
        level = log.level
        log.setLevel(logging.ERROR)
        try:
            GenerateAssignment(coursedir=CourseDirectory(config=config), config=config).start()
        except NbGraderException as error:
            raise CommandError(f"nbgrader generate_assignment {assignment}: {error}") from error
        finally:
            log.setLevel(level)
        made = Path(scratch, assignment)
        return {path.relative_to(made).as_posix(): path.read_bytes() for path in made.rglob("*") if path.is_file()}


def holds_work(notebook: NotebookNode) -> bool:
    """Whether a released notebook has been worked in: run, or answered."""
    return any(
        cell.get("outputs")
        or cell.get("execution_count")
        or (cell.metadata.get("nbgrader", {}).get("solution") and "raise NotImplementedError" not in cell.source)
        for cell in notebook.cells
        if cell.cell_type == "code"
    )
