"""A Chromium to lay pages out in, to measure them and to test them."""

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from commandkit.errors import CommandError

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Playwright

NAMES = ("chromium", "chromium-browser", "google-chrome")


def launch(playwright: "Playwright", args: Sequence[str] = ()) -> "Browser":
    """Playwright's own, or the system's. Raises CommandError where there is neither."""
    own = playwright.chromium.executable_path
    found = own if Path(own).exists() else next(filter(None, map(shutil.which, NAMES)), None)
    if found is None:
        raise CommandError("no Chromium: `apt-get install chromium`, or `playwright install chromium`")
    return playwright.chromium.launch(executable_path=found, args=[*args])
