"""Run a notebook in a fresh kernel, and keep only outputs that are fit to be committed."""

import copy
import hashlib
import json
import os
import re
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from commandkit.commands import typed
from commandkit.errors import CommandError, require_extra
from lessonkit.authoring import widgets
from lessonkit.authoring.source import NOTEBOOK_METADATA, Source
from lessonkit.mimetype import VERDICT

with require_extra(typed("build"), "dev"):
    import nbformat
    from nbclient import NotebookClient
    from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError
    from nbformat.notebooknode import NotebookNode

CELL_TIMEOUT = 600  # seconds; a lecture as a whole has 60


def execute(source: Source, folder: Path, root: Path, on_cell: Callable[[], object]) -> NotebookNode:
    """The executed notebook of `source`, run in `folder`, of the course's folder `root`.

    `on_cell` is called as each code cell ends. Raises CommandError, with the line of the source, when a cell fails,
    writes to stderr, shows a path of this machine, or is a check that does not get all its points.
    """
    notebook = copy.deepcopy(source.notebook)
    running = 0

    def started(cell: NotebookNode, cell_index: int) -> None:
        nonlocal running
        running = cell_index

    # What a library writes past the notebook is shown if the kernel dies; until then it would tear the progress bar.
    with tempfile.TemporaryDirectory() as ipython, tempfile.TemporaryFile("w+") as log:
        client = NotebookClient(
            notebook,
            kernel_name="python3",
            timeout=CELL_TIMEOUT,
            extra_arguments=["--log-level=ERROR"],                    # the kernel's remarks on its transport
            resources={"metadata": {"path": str(folder)}},
            record_timing=False,
            store_widget_state=True,
            coalesce_streams=True,
            on_cell_start=started,
            on_cell_executed=lambda **_: on_cell(),
        )
        try:
            client.execute(env=_environment(root, ipython), stderr=log)
        except Exception as error:
            if getattr(client, "_async_cleanup_kernel_future", None):  # nbclient caught Ctrl-C and ended the kernel
                raise KeyboardInterrupt from None
            log.seek(0)
            match error:
                case CellExecutionError():
                    problem = _error(source, notebook, running)
                case CellTimeoutError():
                    problem = f"{source.where(running)}: the cell ran for more than {CELL_TIMEOUT} s"
                case DeadKernelError():
                    problem = f"{source.where(running)}: the kernel died in this cell\n{log.read()}".rstrip()
                case _:
                    raise
            raise CommandError(problem) from None
    widgets = notebook.metadata.get("widgets")
    notebook.metadata = nbformat.from_dict(NOTEBOOK_METADATA | ({"widgets": widgets} if widgets else {}))
    _inspect(source, notebook, private=[root, Path.home(), Path(ipython)])
    return _stable(notebook, source.path.stem)


def full_marks(cell: NotebookNode) -> str | None:
    """What is wrong with an executed check cell: None if its verdict gives all the points."""
    verdicts = [output.data[VERDICT] for output in cell.outputs if VERDICT in output.get("data", {})]
    if not verdicts:
        return "the check shows no verdict"
    verdict = verdicts[-1]
    if verdict["points"] == verdict["out_of"]:
        return None
    return f"the solution gets {verdict['points']:g} of {verdict['out_of']:g} points for {verdict['exercise']}"


def is_check(cell: NotebookNode) -> bool:
    """Whether this is an autograded check, of an exercise."""
    grader = cell.metadata.get("nbgrader", {})
    return bool(grader.get("grade")) and not grader.get("solution")


def _environment(root: Path, ipython: str) -> dict[str, str]:
    """The kernel's environment: what would make one author's outputs differ from another's is taken out."""
    environment = {name: value for name, value in os.environ.items() if name != "NBGRADER_EXECUTION"}
    paths = [str(root / "src"), *filter(None, [os.environ.get("PYTHONPATH")])]
    return environment | {
        "PYTHONPATH": os.pathsep.join(paths),
        "PYTHONHASHSEED": "0",
        "IPYTHONDIR": ipython,                                        # no start-up files of the author
        "LESSONKIT_PROGRESS": "",                                    # an author's points are not a learner's
        "TQDM_DISABLE": "1",                                          # a bar at its end teaches nothing
        "PYDEVD_DISABLE_FILE_VALIDATION": "1",                        # the debugger's warning goes to stderr
    }


def _error(source: Source, notebook: NotebookNode, index: int) -> str:
    """The source line that failed, and the traceback."""
    output = next(o for o in notebook.cells[index].outputs if o.output_type == "error")
    traceback = re.sub(r"\x1b\[[0-9;]*m", "", "\n".join(output.traceback))
    # The last frame in this cell; a syntax error has its line in another place.
    count = notebook.cells[index].execution_count
    frames = re.findall(rf"Cell In\[{count}\], line (\d+)", traceback)
    line = int(frames[-1]) if frames else 0
    return f"{source.where(index, line)}: {output.ename}: {output.evalue}\n{traceback}"


def _inspect(source: Source, notebook: NotebookNode, private: list[Path]) -> None:
    """Raise CommandError for the first output that must not be committed."""
    paths = re.compile("|".join(rf"(?<![\w./]){re.escape(str(path))}(?![\w-])" for path in private))
    for index, cell in enumerate(notebook.cells):
        for output in cell.get("outputs", []):
            if output.output_type == "stream" and output.name == "stderr":
                raise CommandError(
                    f"{source.where(index)}: the cell writes to stderr, and a reader would see it:\n{output.text}"
                )
            found = next(filter(None, map(paths.search, _texts(output))), None)
            if found:
                raise CommandError(
                    f"{source.where(index)}: the output shows a path of this machine ({found[0]}): make it relative"
                )
        if is_check(cell) and (problem := full_marks(cell)):
            text = cell.outputs[-1].get("data", {}).get("text/plain", "") if cell.outputs else ""
            raise CommandError(f"{source.where(index)}: {problem}\n{text}".rstrip())


def _texts(output: NotebookNode) -> Iterator[str]:
    if output.output_type == "stream":
        yield output.text
    for mimetype, data in output.get("data", {}).items():
        if mimetype.startswith("text/") or mimetype in ("image/svg+xml", VERDICT):
            yield data if isinstance(data, str) else json.dumps(data)


def _stable(notebook: NotebookNode, name: str) -> NotebookNode:
    """Without what differs from run to run and says nothing: memory addresses, and the widgets' random ids."""
    text = json.dumps(notebook, ensure_ascii=False)
    text = re.sub(r"\bat 0x[0-9a-f]{6,16}\b", "at 0x…", text)
    random_ids = [model for model in widgets.saved(notebook) if re.fullmatch(r"[0-9a-f]{32}", model)]
    for number, model in enumerate(random_ids):
        text = text.replace(model, hashlib.sha256(f"{name} {number}".encode()).hexdigest()[:32])
    return nbformat.from_dict(json.loads(text))


def outputs_hash(notebook: NotebookNode) -> str:
    """Tells outputs that somebody edited, or made by running the notebook by hand, from those the build made."""
    made: list[Any] = [cell.outputs for cell in notebook.cells if cell.cell_type == "code"]
    made.append(notebook.metadata.get("widgets"))
    return hashlib.sha256(json.dumps(made, sort_keys=True).encode()).hexdigest()[:16]
