"""A JupyterLab of the tests' own, on this machine's loopback, and what a person does in its notebooks."""

import json
import os
import re
import secrets
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

import psutil
import pytest
from matplotlib import get_cachedir

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
Locator, Page, expect = playwright.Locator, playwright.Page, playwright.expect
COURSE = Path(__file__).parents[2]
PATIENCE = 90  # seconds: both cores may be busy with other tests
SETTINGS = {
    "apputils-extension/notification": {"fetchNews": "false", "checkForUpdates": False},
    "docmanager-extension/plugin": {"autosave": False},  # it can meet a test's own saving
    "notebook-extension/tracker": {"windowingMode": "none"},  # cells out of sight are drawn, too
}
expect.set_options(timeout=1000 * PATIENCE)


class Lab(NamedTuple):
    """A running JupyterLab."""

    address: str
    token: str

    def visit(self, page: Page, path: str) -> Page:
        """Go to a path of the server, logged in."""
        page.set_default_timeout(1000 * PATIENCE)
        page.request.get(f"{self.address}/lab?token={self.token}")  # sets the cookie; the formgrader's pages do not
        page.goto(f"{self.address}/{path}")
        return page

    def open(self, page: Page, notebook: str) -> Page:
        """Open a notebook in a JupyterLab without other documents, and wait for its kernel."""
        self.visit(page, f"lab/workspaces/{secrets.token_hex(4)}/tree/{notebook}")
        # What is run while the kernel is still connecting is lost: not the cells' mark of being idle, but this one.
        expect(page.locator("#jp-main-statusbar")).to_contain_text("Python 3 (ipykernel) | Idle")
        return page


@contextmanager
def running(folder: Path, home: Path, flags: Sequence[str] = ()) -> Iterator[Lab]:
    """JupyterLab on `folder`. Settings, histories and what a learner's checks gave are kept in `home`."""
    places = {name: home / name.lower() for name in ("JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR")}
    places |= {"HOME": home, "IPYTHONDIR": home / "ipython", "LESSONKIT_PROGRESS": home / "progress"}
    for name, values in SETTINGS.items():
        file = places["JUPYTER_CONFIG_DIR"] / "lab/user-settings/@jupyterlab" / f"{name}.jupyterlab-settings"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(values))
    overrides = home / "settings/overrides.d"
    overrides.mkdir(parents=True, exist_ok=True)
    shutil.copy(COURSE / "src/lessonkit/authoring/jupyterlab.json5", overrides)  # the installed copy may be old
    token = secrets.token_hex()
    environment = {name: str(place) for name, place in places.items()} | {"JUPYTER_TOKEN": token}
    environment["MPLCONFIGDIR"] = get_cachedir()  # the list of fonts is there, and takes seconds to make
    environment["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    server = subprocess.Popen(
        [sys.executable, "-m", "jupyterlab", "--no-browser", "--ip=127.0.0.1", "--port=0", "--allow-root",
         f"--LabApp.app_settings_dir={overrides.parent}", *flags],
        cwd=folder,
        env=os.environ | environment,
        stderr=subprocess.PIPE,
        text=True,
    )
    watchdog = threading.Timer(PATIENCE, server.kill)
    watchdog.start()
    try:
        said = []
        for line in server.stderr:
            said.append(line)
            if address := re.search(r"http://127\.0\.0\.1:\d+", line):
                break
        else:
            raise RuntimeError("JupyterLab did not start:\n" + "".join(said))
        watchdog.cancel()
        # Read on, or the pipe fills up and the server waits.
        threading.Thread(target=said.extend, args=(server.stderr,), daemon=True).start()
        yield Lab(address[0], token)
    finally:
        watchdog.cancel()
        kernels = psutil.Process(server.pid).children(recursive=True) if server.poll() is None else []
        server.terminate()
        with suppress(subprocess.TimeoutExpired):
            server.wait(PATIENCE)
        for process in (*kernels, server):
            with suppress(psutil.NoSuchProcess):
                process.kill()
        server.wait()


def faults(place: Locator) -> list[tuple[str, str]]:
    """What axe-core finds in a part of a page: the serious and the critical, and where."""
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="axe-playwright-python is not installed")
    place.evaluate("place => place.id = 'under-test'")
    found = axe.Axe().run(place.page, context="#under-test").response["violations"]
    serious = [fault for fault in found if fault["impact"] in ("serious", "critical")]
    return [(fault["id"], node["html"]) for fault in serious for node in fault["nodes"]]


def cell(page: Page, text: str) -> Locator:
    """The code cell in which the text stands."""
    return page.locator(".jp-CodeCell").filter(has=page.locator(".jp-InputArea", has_text=text))


def run(code: Locator) -> Locator:
    """Run a cell and wait until it has ended: its output."""
    code.locator(".cm-content").click()
    before = code.locator(".jp-InputPrompt").inner_text()
    code.page.keyboard.press("Shift+Enter")
    expect(code.locator(".jp-InputPrompt")).not_to_have_text(before)
    expect(code.locator(".jp-InputPrompt")).to_have_text(re.compile(r"\[\d+\]:"))
    return code.locator(".jp-Cell-outputArea")


def write(code: Locator, source: str) -> None:
    """Put the source in place of what stands in a cell."""
    code.locator(".cm-content").click()
    code.page.keyboard.press("ControlOrMeta+a")
    code.page.keyboard.insert_text(source)
