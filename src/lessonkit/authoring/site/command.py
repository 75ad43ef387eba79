"""`lessonkit site`: the course as a web book, which opens from a folder and needs no network."""

import argparse
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Collection
from pathlib import Path

from commandkit.commands import typed
from commandkit.errors import CommandError, require_extra
from commandkit.files import replace

with require_extra(typed("site"), "site"):
    import myst_nb  # noqa: F401
    import sphinx_book_theme  # noqa: F401

    from lessonkit.authoring import solutions
    from lessonkit.authoring.checkout import Checkout, open_course
    from lessonkit.authoring.site import bar, check, formulas, npm, readable, sources

BUILT = ".buildinfo"  # Sphinx's own mark of a folder that it wrote
MOST_FAULTS = 20      # are shown


def site(
    checkout: Checkout, to: Path, solved: Collection[str] | None = None, slides: Path | None = None
) -> int:
    """Build the web book of the course into the folder `to`; return how many pages it has.

    With the solutions of the assignments in `solved`, or with all of them; with the lessons' slides where `slides` is
    the folder that has them (04/index.html).

    `to` keeps its old self until the new one is whole. Raises CommandError for a folder that holds something else, for
    what Sphinx warns of, and for a broken link, a picture without words or something loaded from elsewhere.
    """
    to = to.absolute()
    if to.exists() and not (to / BUILT).is_file() and not (to.is_dir() and not any(to.iterdir())):
        raise CommandError(f"{to} holds something that is not a site: name another folder, or take it away")
    to.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=to.parent, prefix=f".{to.name}-") as scratch:
        source, made = Path(scratch, "source"), Path(scratch, "site")
        source.mkdir()
        sources.Sources(checkout.root, source, checkout.course, solved, slides).assemble()
        in_pages = formulas.node() is None  # then a script in the pages typesets formulas
        if in_pages:
            print("Formulas are left to a script of the pages: install Node (node) for pages that need none.")
            npm.put(npm.MATHJAX, source / "_static")
        npm.keep(npm.MATHJAX)  # for the page on which written answers are marked
        _sphinx(source, made, Path(scratch, "doctrees"))
        if not in_pages:
            formulas.typeset(made)
        readable.finish(made)
        if slides is not None:
            shutil.copytree(slides, made / bar.SLIDES)
        if found := list(check.faults(made)):
            more = [f"and {len(found) - MOST_FAULTS} more"] if len(found) > MOST_FAULTS else []
            raise CommandError("\n  ".join(["the site has faults:", *found[:MOST_FAULTS], *more]))
        shutil.copymode(to.parent, made)  # that of a temporary folder is private
        _swap(made, to, Path(scratch, "old"))
    return len(list(to.rglob("*.html")))


def _sphinx(source: Path, made: Path, notes: Path) -> None:
    """Build `made` from `source`; `notes` takes what Sphinx keeps for itself, which no reader needs."""
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-j", "auto", "-b", "html", "-d", str(notes)]
    if not sys.stdout.isatty():
        command.append("-q")
    if subprocess.run([*command, source, made]).returncode:
        raise CommandError("Sphinx found something wrong, see above: the site is as it was")


def _swap(made: Path, to: Path, old: Path) -> None:
    """Put `made` in the place of `to`, which goes to `old`, or leave all as it was."""
    try:
        if to.exists():
            replace(to, old)
        replace(made, to)
    except BaseException:
        if old.exists() and not to.exists():
            replace(old, to)
        raise


def _open(root: Path) -> Checkout:
    """Raises CommandError where `root` is no course, or the package that is imported is another one's."""
    if not (root / "docs" / "conf.py").is_file():
        raise CommandError(
            f"no course here (looked for docs/conf.py in {root}): run it in the folder that holds pyproject.toml"
        )
    return open_course(root)

EXAMPLES = """
PROGRAM site
PROGRAM site --to book --solutions-until a05
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--to", type=Path, default=Path("build/site"), metavar="DIR", help="default: build/site")
    parser.add_argument("--slides", type=Path, metavar="DIR", help="the lessons' slides (04/index.html), to be linked")
    which = solutions.add_arguments(parser)
    which.add_argument("--without-solutions", action="store_true", help="with no solution (default: with all)")


def main(args: argparse.Namespace) -> int:
    start = time.perf_counter()
    checkout = _open(Path.cwd())
    if args.slides is not None and not any(args.slides.glob("*/index.html")):
        raise CommandError(f"--slides: {args.slides} has no slides of a lesson (looked for 00/index.html and the like)")
    solved = [] if args.without_solutions else solutions.chosen(args, checkout)
    count = site(checkout, args.to, solved, args.slides)
    print(f"{args.to}/index.html: {count} pages in {time.perf_counter() - start:.0f} s")
    return 0
