"""Every test starts from the same seed, and every test process uses one thread, as do the processes that it starts.

Two workers with two threads each would fight over two cores.
"""

import itertools
import os
import signal
from pathlib import Path

import pytest
import torch

from commandkit.errors import CommandError
from commandkit.files import locked
from lessonkit.authoring.chromium import launch

pytest.register_assert_rewrite("hostile_class", "small_class")  # an assertion there says what it compared, too

torch.set_num_threads(1)
os.environ.setdefault("OMP_NUM_THREADS", "1")  # of kernels, graders' workers, training runs
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # a shell's background job ignores Ctrl-C, which tests send
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser):
    parser.addoption("--all", action="store_true", help="run the slow tests, too, and known answers on all their seeds")


# What takes longest comes first, so that at the end of a run no process waits for another.
LONGEST = (
    "lessons/test_graders.py",
    "browser/test_site_in_browser.py",
    "kit/test_cluster.py",
    "kit/test_hostile_system.py",
    "kit/test_hostile_outside.py",
    "kit/test_grading.py",
    "lessons/test_every_assignment.py",
    "browser/test_readable_in_browser.py",  # when the other one has made the book
    "browser/test_lectures_in_browser.py",
    "library/test_trainer.py",
    "kit/test_toy_course.py",
    "kit/test_lines.py",
    "kit/test_hostile.py",
    "kit/test_autograders.py",
    "browser/test_formgrader_in_browser.py",
    "browser/test_marking_in_browser.py",
    "browser/test_student_in_browser.py",
    "kit/test_nbgrader_loop.py",
    "kit/test_faults.py",
    "lessons/test_mutants.py",
    "lessons/test_drills.py",
    "browser/test_practice_in_browser.py",
)


def pytest_collection_modifyitems(config, items):
    """Leave out what is slow, and put first what takes longest; the cells of a lecture keep their order."""
    if not config.getoption("all"):
        slow = [item for item in items if item.get_closest_marker("slow")]
        config.hook.pytest_deselected(items=slow)
        items[:] = [item for item in items if item not in set(slow)]
    place = {config.rootpath / "tests" / name: number for number, name in enumerate(LONGEST)}
    items.sort(key=lambda item: place.get(item.path, -1 if item.path.suffix == ".ipynb" else len(place)))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """Keep together what shares costly fixtures and cached observations: a file, or the tests of an exercise."""
    from xdist.scheduler import LoadScopeScheduling

    class Together(LoadScopeScheduling):
        def _split_scope(self, nodeid):
            file, _, test = nodeid.partition("::")
            exercise = test.partition("[")[2].partition(":")[0].rstrip("]")
            return f"{file}::{exercise}" if file.endswith("test_graders.py") else file

    config.option.loadscopereorder = False  # they are in order
    return Together(config, log)


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(0)


@pytest.fixture(autouse=True)
def program(monkeypatch):
    """Messages name the course's own command, whichever ran before in this process."""
    monkeypatch.setattr("commandkit.commands._program", "attncourse")


@pytest.fixture
def shown(monkeypatch):
    """The words of the figures that were shown."""
    said = []
    monkeypatch.setattr("attncourse.viz.style.display", lambda data, metadata, raw: said.append(data["text/plain"]))
    return said

# A Chromium to test in: Playwright's own, or the system's. Where there is none those tests are skipped, and say so.


@pytest.fixture(scope="module")  # a started Playwright keeps an event loop running: not longer than it is needed
def chromium():
    api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    with api.sync_playwright() as playwright:
        try:  # nothing is loaded from elsewhere
            browser = launch(playwright, ["--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"])
        except CommandError as missing:
            (pytest.fail if os.environ.get("CI") else pytest.skip)(str(missing))
        yield browser
        browser.close()


@pytest.fixture
def new_page(chromium):
    """A page in a window of its own, which must not have complained when the test is over."""
    contexts, complaints = [], []

    def hear(said):
        # JupyterLab warns of a plugin that took long: the machine was busy.
        if said.type in ("error", "warning") and not said.text.endswith("ms to activate."):
            complaints.append(said.text)

    def failed(request):
        if request.failure != "net::ERR_ABORTED":  # broken off by the page itself, which went elsewhere
            complaints.append(request.url)

    def opened(**context):
        contexts.append(chromium.new_context(**context))
        page = contexts[-1].new_page()
        page.on("console", hear)
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("requestfailed", failed)
        return page

    yield opened
    found = [*complaints]  # not what breaks off when a window is closed
    for context in contexts:
        context.close()
    assert found == []


@pytest.fixture
def open_page(new_page, tmp_path):
    """Open HTML as a file, without a network."""
    names = (f"page{number}.html" for number in itertools.count())

    def open_html(html: str, **context):
        file = tmp_path / next(names)
        file.write_text(html, encoding="utf-8")
        page = new_page(accept_downloads=True, **context)
        page.context.set_offline(True)
        page.set_default_timeout(10_000)
        page.goto(file.as_uri())
        page.wait_for_selector("html[data-ready]")
        return page

    return open_html


# The whole web book, and a window that opens its pages.


@pytest.fixture(scope="module")
def book(chromium, tmp_path_factory):
    """The whole book: most of a minute of one core, for the first of the run's processes that asks."""
    pytest.importorskip("myst_nb", reason="the extra 'site' is not installed")
    from lessonkit.authoring.checkout import open_course
    from lessonkit.authoring.site.command import site
    from lessonkit.authoring.site.npm import NoPackage

    folder = tmp_path_factory.getbasetemp()
    run = folder.parent if os.environ.get("PYTEST_XDIST_WORKER") else folder  # what the run's processes share
    with locked(run / "book.lock"):
        if not (run / "book").exists():
            try:
                site(open_course(Path(__file__).parents[1]), run / "book")
            except NoPackage as error:
                (pytest.fail if os.environ.get("CI") else pytest.skip)(str(error))
    return run / "book"


@pytest.fixture
def visit(new_page, book):
    """Open a page of the book without a network; it must neither complain nor ask for something elsewhere."""
    elsewhere = []

    def opened(name, width=1280, **context):
        page = new_page(viewport={"width": width, "height": 800}, **context)
        page.context.set_offline(True)
        page.set_default_timeout(20_000)
        page.on("request", lambda asked: elsewhere.append(asked.url) if asked.url.startswith("http") else None)
        page.goto(f"{book.as_uri()}/{name}")
        return page

    yield opened
    assert elsewhere == []
