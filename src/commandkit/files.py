"""Files that are there whole or not at all, whatever happens on the way: Ctrl-C, a full disk, a power cut."""

import contextlib
import os
import tempfile
from pathlib import Path


def write_whole(path: Path, content: str | bytes, mode: int = 0o644) -> None:
    """Write `content` (text as UTF-8) to `path`, whose folder is made if it is missing.

    Whoever reads the file finds what was there before or all of the new, after a power cut too. Raises OSError.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, scratch = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name[:100]}-", suffix=".part")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content.encode() if isinstance(content, str) else content)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(scratch, mode)  # mkstemp's files are private
        replace(scratch, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(scratch)
        raise


def replace(made: str | Path, path: Path) -> None:
    """Put a finished file or folder at `path`; once this returns, a power cut cannot undo it."""
    os.replace(made, path)
    with contextlib.suppress(OSError):  # Windows opens no folders
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
