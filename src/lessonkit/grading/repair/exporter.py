"""Reading submissions: what cannot be read becomes a notebook that says so, and is graded as such."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from nbconvert.exporters import NotebookExporter
from nbformat import NotebookNode
from nbgrader.coursedir import CourseDirectory
from traitlets import Bool, Float

from lessonkit.grading.gradebook import patches as nbgrader_patches
from lessonkit.grading.repair import folder
from lessonkit.grading.repair.reading import MAX_BYTES, OURS, Unreadable, read, read_bytes
from lessonkit.grading.repair.released import Released, unanswered


def unreadable(notebook: NotebookNode) -> str | None:
    """Why the submission behind this notebook could not be read; None if it could."""
    ours = notebook.metadata.get(OURS)
    reason = ours.get("unreadable") if isinstance(ours, dict) else None
    return reason if isinstance(reason, str) else None


class SubmissionExporter(NotebookExporter):
    """Reads a submitted notebook. One that cannot be read comes out as the assignment's graded cells, unanswered.

    The submitted file is left as it is.
    """

    # What comes out is validated; after each of the fifteen steps too, it took a tenth of what nbgrader takes.
    optimistic_validation = Bool(True).tag(config=True)
    max_megabytes = Float(MAX_BYTES / 1e6, help="A submitted notebook larger than this is not opened.").tag(config=True)

    def from_filename(self, filename: str, resources: Any = None, **kw: Any) -> Any:
        path, resources = Path(filename), dict(resources or {})
        resources["metadata"] = {"name": path.stem, "path": str(path.parent)}
        try:
            return self._from_bytes(read_bytes(path, int(self.max_megabytes * 1e6)), resources, **kw)
        except Unreadable as reason:
            return self._refuse(str(reason), resources, **kw)

    def from_file(self, file_stream: Any, resources: Any = None, **kw: Any) -> Any:
        text = file_stream.read()
        return self._from_bytes(text.encode() if isinstance(text, str) else text, dict(resources or {}), **kw)

    def _from_bytes(self, data: bytes, resources: dict[str, Any], **kw: Any) -> Any:
        try:
            notebook, notes = read(data)
        except Unreadable as reason:
            return self._refuse(str(reason), resources, **kw)
        return self._hand_on(notebook, resources, notes, **kw)

    def _refuse(self, reason: str, resources: dict[str, Any], **kw: Any) -> Any:
        where = resources["nbgrader"]
        self.log.warning("Cannot read %s of %s: %s", where["notebook"], where["student"], reason)
        notebook = unanswered(reason, Released.load(where["db_url"], where["notebook"], where["assignment"]))
        return self._hand_on(notebook, resources, [], reason, **kw)

    def _hand_on(
        self, notebook: NotebookNode, resources: dict[str, Any], notes: list[str], reason: str | None = None, **kw: Any
    ) -> Any:
        """To the preprocessors, with what `Repair` needs to know; a second pass, without it, has no use for that."""
        where = resources.get("nbgrader")
        if where:
            course = getattr(self.parent, "coursedir", None) or CourseDirectory(config=self.config)
            release = course.format_path(course.release_directory, ".", where["assignment"])
            resources[OURS] = {
                "notes": [*folder.notes(course, where["assignment"], where["student"]), *notes],
                "unreadable": reason,
                "release": str(Path(release) / f"{where['notebook']}.ipynb"),
            }
        return self.from_notebook_node(notebook, resources=resources, **kw)


nbgrader_patches.before_notebooks_are_listed(SubmissionExporter, folder.prepare)
