"""Execute a class's submissions several at a time, ahead of `nbgrader autograde`, which takes them one by one."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import nbformat
from nbformat import NotebookNode
from nbgrader.apps.baseapp import NbGrader
from nbgrader.converters import Autograde

from attncourse.grading import warm
from attncourse.grading.course import environment
from attncourse.grading.preprocessors import ExecuteOrReplay


def execute_ahead(app: NbGrader, workers: int, done: Callable[[], None] = lambda: None) -> None:
    """Put into the cache what `nbgrader autograde` is about to ask it for.

    `app` is nbgrader's application for `autograde --assignment=aNN`; `workers` kernels run at a time. `done` is called
    after each submission, from any thread. What fails here is not lost: autograde executes what it does not find.
    """
    running: set[ExecuteOrReplay] = set()
    zygote = warm.Zygote() if warm.available() else None
    kernels = {"kernel_manager_class": warm.manager_of(zygote)} if zygote else {}

    def execute(notebook: NotebookNode, submission: Path, given: Path) -> None:
        step = ExecuteOrReplay(parent=app, **kernels)
        running.add(step)
        try:
            with tempfile.TemporaryDirectory() as folder:
                for files in (submission, given):  # as autograde does: the course's files win
                    shutil.copytree(files, folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns("*.ipynb"))
                step.preprocess(notebook, {"metadata": {"path": folder}})
        finally:
            running.discard(step)

    def finish(task: Future) -> None:
        if not task.cancelled() and task.exception():
            app.log.warning("Not executed ahead: %s", task.exception())
        done()

    with contextlib.chdir(app.coursedir.root), environment(NBGRADER_EXECUTION="autograde"):
        converter = Autograde(coursedir=app.coursedir, parent=app)
        converter.init_notebooks()
        given = Path(app.coursedir.format_path(app.coursedir.source_directory, ".", app.coursedir.assignment_id))
        pool = ThreadPoolExecutor(workers)
        try:
            for path in sorted(path for paths in converter.assignments.values() for path in paths):
                pool.submit(execute, sanitised(converter, path), Path(path).parent, given).add_done_callback(finish)
            pool.shutdown()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            for step in running.copy():
                step.kill()
            raise
        finally:
            if zygote:
                zygote.close()


def sanitised(converter: Autograde, path: str) -> NotebookNode:
    """A submitted notebook as autograde hands it to execution: outputs cleared, locked cells and checks restored."""
    converter.exporter = converter.exporter_class(config=converter.config)
    converter._init_preprocessors()
    resources = converter.init_single_notebook_resources(path)
    text, _ = converter.exporter.from_filename(path, resources=resources)
    return nbformat.reads(text, as_version=4)
