"""`lessonkit lab`: JupyterLab in the learner's own folder, work/, which is made if it is not there."""

import argparse
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

from commandkit.errors import CommandError, how_to_install
from lessonkit.course import the_course
from lessonkit.kernel import COURSE
from lessonkit.learner.folder import START, Folder, find_root

EXAMPLES = """
PROGRAM lab
PROGRAM lab --no-browser --port=8890
"""
PASSES_ON = True
EXTENSION = "lessonkit.learner.server"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = f"{parser.prog} [-h] [options of jupyter lab]"


def command(folder: Folder) -> list[str]:
    """How JupyterLab is started in a learner's folder."""
    extensions = Path(__file__).parent / "labextensions"
    settings = {
        "ServerApp.root_dir": str(folder.work),
        "ServerApp.contents_manager_class": f"{EXTENSION}.Contents",
        "ServerApp.jpserver_extensions": f"{{'{EXTENSION}': True}}",
        "LabApp.default_url": f"/lab/tree/{START}",
        "LabApp.extra_labextensions_path": str(extensions),
    }
    return [sys.executable, "-m", "jupyterlab", *(f"--{name}={value}" for name, value in settings.items())]


def main(args: argparse.Namespace) -> int:
    if find_spec("jupyterlab") is None:
        raise CommandError(f"JupyterLab is not installed: {how_to_install('lab')}")
    folder = Folder(find_root(Path.cwd()))
    folder.prepare()
    print(f"Your own copies are in {folder.work}: what you write stays there.", flush=True)
    # Jupyter's settings and its kernel are this environment's, whatever lies in the user's folder.
    environment = os.environ | {"JUPYTER_PREFER_ENV_PATH": "1", COURSE: the_course().package}
    try:
        return subprocess.call([*command(folder), *args.passed_on], cwd=folder.work, env=environment)
    except KeyboardInterrupt:  # JupyterLab has heard it, too
        return 130
