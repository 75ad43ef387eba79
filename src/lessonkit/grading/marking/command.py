"""`lessonkit mark aNN`: the page on which written answers are marked, in the browser."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import secrets
import signal
import socket
import tempfile
import webbrowser
from collections.abc import Callable
from html import escape
from pathlib import Path

from commandkit.commands import typed
from commandkit.errors import CommandError, require_extra
from commandkit.files import write_whole

with require_extra(typed("mark"), "grading"):
    from nbgrader.coursedir import CourseDirectory
    from tornado.httpserver import HTTPServer
    from tornado.netutil import bind_sockets

    from lessonkit.authoring.site import npm
    from lessonkit.grading.gradebook.nbgrader_app import application as nbgrader_application
    from lessonkit.grading.gradebook.nbgrader_app import find_course
    from lessonkit.grading.marking.marks import opened, try_to_write
    from lessonkit.grading.marking.server import Marking, application
    from lessonkit.grading.submission.records import grading_folder

PORT = 8873  # the same at every start: what a browser has kept of a comment, because the server was away, is by address

EXAMPLES = """
PROGRAM mark a03
PROGRAM mark a03 --question why-mask-first --hide-names
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("assignment", help="such as a03")
    parser.add_argument(
        "--course", type=Path, default=Path(), metavar="DIR", help="the course's folder (default: here)"
    )
    parser.add_argument("--question", metavar="NAME", help="the question to begin with (default: the first that waits)")
    parser.add_argument("--hide-names", action="store_true", help="send no names to the page")
    parser.add_argument("--port", type=int, metavar="N", help=f"where to listen (default: {PORT}, or a free one)")
    parser.add_argument("--no-browser", action="store_true", help="print the address, and open no browser")


def main(args: argparse.Namespace) -> int:
    """Serve the page until Ctrl-C. CommandError where there is nothing to mark, or marks could not be kept."""
    coursedir = nbgrader_application(find_course(args.course), "autograde").coursedir
    marking = Marking.of(coursedir, args.assignment, hide_names=args.hide_names)
    counted = _something_to_mark(coursedir, marking)
    number = _first(marking, args.question, [one["of"] - one["marked"] for one in counted])
    with opened(coursedir) as gradebook:  # better now than at the first mark
        try_to_write(gradebook)
    with tempfile.TemporaryDirectory() as folder:
        marking.mathjax = _mathjax(Path(folder))
        with contextlib.suppress(KeyboardInterrupt):
            asyncio.run(_serve(marking, args.port, lambda at: _announce(at, number, args, marking)))
    print("\nstopped: what was saved is in the gradebook")
    return 0


def _something_to_mark(coursedir: CourseDirectory, marking: Marking) -> list[dict[str, int]]:
    """How far marking is, question by question. CommandError where nobody has handed in, or nothing is graded."""
    counted = marking.progress()
    if any(one["of"] or one["automatic"] for one in counted):
        return counted
    name = marking.assignment
    folders = coursedir.format_path(coursedir.submitted_directory, "*", name)
    handed_in = len(list(Path(coursedir.root).glob(str(Path(folders).relative_to(coursedir.root)))))
    if handed_in:
        raise CommandError(
            f"nothing of {name} is graded yet ({handed_in} handed in): run `{typed('grade')} {name}` first"
        )
    raise CommandError(f"nobody has handed in {name}: there is nothing in {folders}")


def _first(marking: Marking, wanted: str | None, waiting: list[int]) -> int:
    """The number of the question to begin with, from 1. CommandError for one that there is not."""
    names = [question.name for question in marking.questions]
    if wanted is not None:
        if wanted not in names:
            raise CommandError(f"{marking.assignment} has no written question {wanted!r}; it has: {', '.join(names)}")
        return 1 + names.index(wanted)
    return 1 + next((i for i, count in enumerate(waiting) if count), 0)


def _mathjax(folder: Path) -> Path | None:
    """MathJax, where building the web book has fetched it; nothing is fetched while somebody waits to mark."""
    if not npm.is_kept(npm.MATHJAX):
        print("Formulas are shown as they were typed: `" + typed("site") + "` fetches what typesets them, once.")
        return None
    npm.put(npm.MATHJAX, folder)
    return folder / Path(npm.MATHJAX.file).name


async def _serve(marking: Marking, port: int | None, ready: Callable[[str], object]) -> None:
    token = secrets.token_urlsafe()
    sockets = _listen(port)
    at = sockets[0].getsockname()[1]
    server = HTTPServer(application(marking, token, at), max_body_size=1_000_000)
    server.add_sockets(sockets)
    shown = ready(f"http://127.0.0.1:{at}/?token={token}")
    stopped = asyncio.Event()
    with contextlib.suppress(NotImplementedError):  # Windows
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopped.set)
    try:
        await stopped.wait()
    finally:
        server.stop()
        if isinstance(shown, Path):
            shown.unlink(missing_ok=True)


def _listen(port: int | None) -> list[socket.socket]:
    """On this machine alone. CommandError where the port that was asked for is taken."""
    try:
        return bind_sockets(PORT if port is None else port, "127.0.0.1")
    except (OSError, OverflowError) as error:
        if port is None:
            return bind_sockets(0, "127.0.0.1")
        raise CommandError(f"cannot listen on port {port} ({error}): choose another with --port") from None


def _announce(address: str, number: int, args: argparse.Namespace, marking: Marking) -> Path | None:
    address += f"&q={number}"
    print(f"Marking {marking.assignment}: {address}")
    print("Every mark is in the gradebook at once. Stop with Ctrl-C.", flush=True)
    if args.no_browser:
        return None
    # Through a file that is only ours: what a browser is started with, everybody on this machine can read.
    page = grading_folder(Path(marking.coursedir.root), marking.assignment) / "marking.html"
    try:
        write_whole(page, f'<!DOCTYPE html><meta http-equiv="refresh" content="0; url={escape(address)}">', 0o600)
    except OSError:
        return None
    webbrowser.open(page.as_uri())
    return page
