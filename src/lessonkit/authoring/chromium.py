"""A Chromium to lay pages out in, to measure them and to test them."""

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from commandkit.errors import CommandError

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Playwright

# The shell first: the same engine, without windows that nobody sees, which take as long to open as a page.
NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")


def launch(playwright: "Playwright", args: Sequence[str] = ()) -> "Browser":
    """Playwright's own, or the system's. Raises CommandError where there is neither."""
    own = Path(playwright.chromium.executable_path).exists()  # then Playwright knows where its shell is, too
    found = None if own else next(filter(None, map(shutil.which, NAMES)), None)
    if not own and found is None:
        raise CommandError("no Chromium: `apt-get install chromium-headless-shell`, or `playwright install chromium`")
    return playwright.chromium.launch(executable_path=found, args=[*args])
