"""The whole web book, built once a run, and a window that opens its pages without a network."""

import os
from pathlib import Path

import pytest

from commandkit.files import locked

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def book(chromium, tmp_path_factory):
    """The whole book: most of a minute of one core, for the first of the run's processes that asks."""
    pytest.importorskip("myst_nb", reason="the extra 'site' is not installed")
    from lessonkit.authoring.build import open_course
    from lessonkit.authoring.site.command import site
    from lessonkit.authoring.site.npm import NoPackage

    folder = tmp_path_factory.getbasetemp()
    run = folder.parent if os.environ.get("PYTEST_XDIST_WORKER") else folder  # what the run's processes share
    with locked(run / "book.lock"):
        if not (run / "book").exists():
            try:
                site(open_course(ROOT), run / "book")
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
