"""What a Jupyter server does for a learner: their folder fills as they open notebooks, and Validate is ours.

`lessonkit lab` starts a server with both. Where the course is installed, every server has the second. In a learner's
folder JupyterLab opens the start page, and has none of nbgrader's tools for teachers.
"""

from __future__ import annotations

import asyncio
import json
from html import escape
from pathlib import Path
from typing import Any

from jupyter_server.base.handlers import JupyterHandler
from jupyter_server.services.contents.largefilemanager import AsyncLargeFileManager
from jupyter_server.utils import url_path_join
from tornado import web

from commandkit.errors import CommandError
from lessonkit.course import the_course
from lessonkit.exercises.overview import Line, NotChecked, Overview, run
from lessonkit.learner.folder import START, Folder

NBGRADER = "@jupyter/nbgrader"
FOR_TEACHERS = ("formgrader", "course-list", "create-assignment")  # plugins of its extension of JupyterLab
OF_AN_EXCHANGE = ("menu", "assignment-list")  # the menu has but the lists, and what is for teachers

class Contents(AsyncLargeFileManager):
    """Jupyter's files, and in a learner's folder a notebook of the course when it is first asked for."""

    async def get(self, path: str, *more: Any, **named: Any) -> Any:
        self._give(path)
        return await super().get(path, *more, **named)

    async def file_exists(self, path: str) -> bool:
        self._give(path)
        return await super().file_exists(path)

    def _give(self, path: str) -> None:
        folder = Folder.at(Path(self.root_dir))
        if folder:
            try:
                folder.give(path.strip("/"))
            except OSError as error:
                self.log.warning("%s could not be copied: %s", path, error)


class Validate(JupyterHandler):
    """nbgrader's Validate button asks here: the notebook as the grader would repair it, with the total."""

    @web.authenticated
    async def post(self) -> None:
        root = Path(self.settings["server_root_dir"]).expanduser().resolve()
        asked = self.get_argument("path", None) or (self.get_json_body() or {}).get("path", "")
        path = (root / str(asked)).resolve()
        if not path.is_relative_to(root):
            raise web.HTTPError(403, "that is outside of the server's folder")
        try:
            found = await asyncio.to_thread(run, the_course().package, path, lambda: None, lambda text: None)
            answer = {"success": True, "value": {"failed": failed} if (failed := complaints(found)) else {}}
        except (NotChecked, CommandError) as error:
            answer = {"success": False, "value": f"{error}."}
        self.finish(json.dumps(answer))


def complaints(found: Overview) -> list[dict[str, str]]:
    """What the button's window shows, a piece for the total and each exercise with something to do; empty if none."""
    open_ = [line for line in found.lines if line.problem and not (line.extra and not line.points)]
    if not open_:
        return []
    told = [(found.total, "\n".join(found.remarks)), *((_head(line), line.problem) for line in open_)]
    return [{"source": head, "error": escape(said), "raw_error": said} for head, said in told]


def _head(line: Line) -> str:
    worth = f"{line.out_of:g} by hand" if line.points is None else f"{line.points:g} of {line.out_of:g}"
    return f"{line.name}: {worth}"


def learners_page(config: dict[str, Any]) -> dict[str, Any]:
    """JupyterLab's settings of its page, as they are for a learner."""
    without = [*FOR_TEACHERS, *(() if exchange() else OF_AN_EXCHANGE)]
    disabled = [*config.get("disabledExtensions", []), *(f"{NBGRADER}:{plugin}" for plugin in without)]
    return config | {"disabledExtensions": disabled, "lessonkitStart": START}


def exchange() -> Path | None:
    """The folder in which nbgrader hands assignments out and takes them in, by its settings; None if there is none."""
    from nbgrader.apps import NbGrader
    from nbgrader.exchange.default import Exchange

    app = NbGrader()
    app.load_config_file()
    root = Path(Exchange(config=app.config).root)
    return root if root.is_dir() else None


def _load_jupyter_server_extension(server: Any) -> None:
    """Called by the server before nbgrader's own extension, by the names' order: the first handler of a path wins."""
    settings = server.web_app.settings
    server.web_app.add_handlers(".*$", [(url_path_join(settings["base_url"], "/assignments/validate"), Validate)])
    if Folder.at(Path(server.root_dir)):
        before = settings.get("page_config_hook", lambda handler, config: config)
        settings["page_config_hook"] = lambda handler, config: learners_page(before(handler, config))


def _jupyter_server_extension_points() -> list[dict[str, str]]:
    return [{"module": "lessonkit.learner.server"}]
