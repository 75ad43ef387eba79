"""A Chromium to measure in."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Browser, sync_playwright


@contextmanager
def chromium() -> Iterator[Browser]:
    """Playwright's own, or the system's, as tests/conftest.py looks for it. SystemExit where there is none."""
    with sync_playwright() as playwright:
        own = playwright.chromium.executable_path
        names = ("chromium", "chromium-browser", "google-chrome")
        found = own if Path(own).exists() else next(filter(None, map(shutil.which, names)), None)
        if found is None:
            raise SystemExit("no Chromium: `apt-get install chromium`, or `playwright install chromium`")
        root = hasattr(os, "geteuid") and os.geteuid() == 0
        browser = playwright.chromium.launch(executable_path=found, args=["--no-sandbox"] if root else [])
        yield browser
        browser.close()
