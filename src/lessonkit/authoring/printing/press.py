"""From a page of HTML to a PDF: Chromium lays it out, and the PDF says what stands on which page."""

import io
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from commandkit.commands import typed
from commandkit.errors import CommandError, require_extra
from lessonkit.authoring import chromium
from lessonkit.authoring.site import npm

with require_extra(typed("print"), "print"):
    from playwright.sync_api import Error, Page, sync_playwright
    from pypdf import PdfReader

PATIENCE = 10 * 60 * 1000  # milliseconds for thousands of formulas on a slow machine
ROUNDS = 4  # a number of three digits may move a line, and the line a page
FILL = """
pages => {
  for (const link of document.querySelectorAll("a.page")) {
    link.textContent = pages[link.getAttribute("href").slice(1)] ?? "?";
  }
}
"""


@contextmanager
def opened(content: str) -> Iterator[Page]:
    """A document in Chromium, its formulas typeset, without a network. CommandError where there is no Chromium."""
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        npm.put(npm.MATHJAX, Path(folder))
        file = Path(folder, "paper.html")
        file.write_text(content, encoding="utf-8")
        browser = chromium.launch(playwright)
        try:
            page = browser.new_page()
            page.context.set_offline(True)
            page.set_default_timeout(PATIENCE)
            page.goto(file.as_uri())
            page.evaluate("MathJax.startup.promise")
            page.evaluate("Promise.all([...document.images].map(it => it.decode()))")
            yield page
        except Error as error:
            raise CommandError(f"Chromium could not lay out the pages: {error.message.splitlines()[0]}") from error
        finally:
            browser.close()


def printed(page: Page) -> bytes:
    """The PDF of an opened document as it stands, with bookmarks for its headings."""
    return page.pdf(prefer_css_page_size=True, print_background=True, outline=True, tagged=True)


def numbered(page: Page) -> bytes:
    """The PDF in which each `a.page` says on which page its target stands."""
    known: dict[str, int] = {}
    for _ in range(ROUNDS):
        page.evaluate(FILL, known)
        made = printed(page)
        if (found := places(made)) == known:
            if lost := page.locator("a.page").filter(has_text="?").count():
                raise CommandError(f"{lost} page numbers of the book lead nowhere")
            return made
        known = found
    raise CommandError("the page numbers never settle: each print moves what the last one counted")


def places(made: bytes) -> dict[str, int]:
    """The page, from 1, of each place of a PDF that a link in it leads to."""
    reader = PdfReader(io.BytesIO(made))
    pages = {name: reader.get_destination_page_number(place) for name, place in reader.named_destinations.items()}
    return {name.removeprefix("/"): number + 1 for name, number in pages.items() if number is not None}


def length(made: bytes) -> int:
    """How many pages a PDF has."""
    return len(PdfReader(io.BytesIO(made)).pages)
