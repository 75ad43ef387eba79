"""A Chromium to measure in."""

from collections.abc import Iterator
from contextlib import contextmanager

from playwright.sync_api import Browser, sync_playwright

from commandkit.errors import CommandError
from lessonkit.authoring.chromium import launch


@contextmanager
def chromium() -> Iterator[Browser]:
    """Playwright's own, or the system's. SystemExit where there is none."""
    with sync_playwright() as playwright:
        try:
            browser = launch(playwright)
        except CommandError as missing:
            raise SystemExit(str(missing)) from None
        yield browser
        browser.close()
