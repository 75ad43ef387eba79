"""A kernel as a learner has it, beside the file of its notebook, and what a cell shows there."""

import os
import re
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import nbformat
from jupyter_client.manager import start_new_kernel
from nbformat.v4 import new_code_cell, new_notebook

PATIENCE = 120


@dataclass
class Shown:
    """What a cell showed: printed text, the text of its value or display, HTML, and the error as it is read."""

    printed: str = ""
    value: str = ""
    html: str = ""
    error: str = ""

    @property
    def all(self) -> str:
        return "\n".join(filter(None, [self.printed, self.value, self.error]))


class Kernel:
    def __init__(self, client, notebook: Path) -> None:
        self.client, self.notebook = client, notebook

    def __call__(self, source: str, cell: str | None = None, shown: dict[str, str] | None = None) -> Shown:
        """Run a cell; `cell` is the notebook's id of it. `shown` is what stands in the notebook: cells' text by id."""
        content = {"code": source, "silent": False, "store_history": True, "user_expressions": {},
                   "allow_stdin": False, "stop_on_error": True}  # fmt: skip
        metadata = {"cellId": cell} if cell else {}
        if shown is not None:  # as JupyterLab's extension of ours tells
            metadata["lessonkit"] = [{"id": i, "cell_type": "code", "source": text} for i, text in shown.items()]
        message = self.client.session.msg("execute_request", content, metadata=metadata)
        self.client.shell_channel.send(message)
        told = Shown()
        while True:
            heard = self.client.get_iopub_msg(timeout=PATIENCE)
            if heard["parent_header"].get("msg_id") != message["header"]["msg_id"]:
                continue
            content = heard["content"]
            match heard["msg_type"]:
                case "status" if content["execution_state"] == "idle":
                    break
                case "stream":
                    told.printed += content["text"]
                case "execute_result" | "display_data":
                    told.value += content["data"].get("text/plain", "")
                    told.html += content["data"].get("text/html", "")
                case "error":
                    told.error = re.sub(r"\x1b\[[0-9;]*m", "", "\n".join(content["traceback"]))
        self.client.get_shell_msg(timeout=PATIENCE)
        return told

    def save(self, *sources: str, ids: tuple[str, ...] = ()) -> None:
        """Write the notebook's file: code cells, with ids c0, c1, …"""
        ids = ids or tuple(f"c{number}" for number in range(len(sources)))
        cells = [new_code_cell(source, id=name) for source, name in zip(sources, ids, strict=True)]
        nbformat.write(new_notebook(cells=cells), self.notebook)


@contextmanager
def learners_kernel(folder: Path):
    """A kernel whose notebook is `folder/mine.ipynb`; what its checks give is kept in `folder/progress`."""
    notebook = folder / "mine.ipynb"
    environment = {name: value for name, value in os.environ.items() if name != "NBGRADER_EXECUTION"}
    environment |= {"JPY_SESSION_NAME": str(notebook), "LESSONKIT_PROGRESS": str(folder / "progress"),
                    "IPYTHONDIR": str(folder / "ipython")}  # fmt: skip
    # Where the course is installed, this lies in etc/ipython.
    config = Path(__file__).parents[2] / "src/lessonkit/learner/ipython_kernel.json"
    manager, client = start_new_kernel(startup_timeout=PATIENCE, kernel_name="python3", env=environment, cwd=folder,
                                       extra_arguments=[f"--config={config}"])  # fmt: skip
    try:
        yield Kernel(client, notebook)
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)
