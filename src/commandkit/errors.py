"""Errors that a command prints as one line: what the user can mend, and an extra that is not installed."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

# An import that fails in these is a bug, and no package that somebody has to install.
OURS = ("commandkit", "lessonkit", "attncourse", "attncourse_lessons")


class CommandError(Exception):
    """What the user can mend; the message is one line that says how. `attncourse` prints it without a traceback."""


class MissingExtra(CommandError, ImportError):
    """A package of one of our extras is not installed."""


def how_to_install(extra: str = "") -> str:
    """What to type for an extra, or for what is always needed: in a checkout its versions, of a wheel its name."""
    wanted = f"[{extra}]" if extra else ""
    if (Path(__file__).parents[2] / "constraints.txt").is_file():
        return f"pip install -c constraints.txt -e '.{wanted}'"
    return f"pip install 'attncourse{wanted}'"


@contextmanager
def require_extra(what: str, extra: str) -> Iterator[None]:
    """Turn a failed import inside the block into one line that names the extra.

    `with needs("attncourse build", "dev"): import jupytext`.  Raises MissingExtra.
    An import that fails inside a package of ours is a bug and passes through.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] in OURS:
            raise
        raise MissingExtra(
            f"{what} needs the extra '{extra}' (no {error.name} here): {how_to_install(extra)}"
        ) from error
