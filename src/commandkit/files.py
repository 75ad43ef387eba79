"""Files that are there whole or not at all, whatever happens on the way: Ctrl-C, a full disk, a power cut."""

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any


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


@contextlib.contextmanager
def locked(path: Path, wait: bool = True) -> Iterator[None]:
    """Hold a lock, which the system gives back when this process ends. BlockingIOError if held and not waited for."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+") as file:
        _lock(file, wait)
        yield


def _lock(file: Any, wait: bool) -> None:
    try:
        import fcntl
    except ImportError:  # Windows
        import msvcrt

        try:
            msvcrt.locking(file.fileno(), msvcrt.LK_LOCK if wait else msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined]
        except OSError as error:
            raise BlockingIOError(str(error)) from None
    else:
        fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
