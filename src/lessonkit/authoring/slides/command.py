"""`lessonkit slides`: the lectures' slides, in one folder that opens without a network."""

import argparse
import re
import tempfile
from collections.abc import Sequence
from pathlib import Path

from commandkit.commands import typed
from commandkit.errors import CommandError, require_extra
from commandkit.files import replace, write_whole
from lessonkit.authoring import widgets
from lessonkit.authoring.checkout import Checkout, Target, open_course
from lessonkit.authoring.deck import Slide, deck
from lessonkit.authoring.slides.page import HERE, Page, notebook
from lessonkit.course import folder_of

with require_extra(typed("slides"), "site"):
    import nbformat

    from lessonkit.authoring.site import npm

SHARED = "_deck"  # what the decks share, and the mark of a folder of ours
OWN = ("slides.css", "slides.js", "theme.js")
INDEX = """<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>Slides</title><link rel="stylesheet" href="_deck/slides.css"><script src="_deck/theme.js"></script></head>
<body><main style="max-width: 900px; margin: 40px auto; padding: 0 20px"><h1>Slides</h1>
<p>F full screen · O overview · S speaker's window with notes · D light or dark · ? all keys</p>
<ul>
{rows}
</ul></main></body></html>
"""


def lectures(checkout: Checkout, names: Sequence[str]) -> list[Target]:
    """The lectures that `names` mean, all of them for no name. CommandError where one has no slides, or is none."""
    known = {target.lesson.number: target for target in checkout.targets() if not target.is_assignment}
    if unknown := [name for name in names if name not in known]:
        raise CommandError(f"no lecture {unknown[0]!r}; the lectures are: {', '.join(known)}")
    chosen = [known[name] for name in names] if names else [each for each in known.values() if each.source.slides]
    for target in chosen:
        if not target.source.slides:
            raise CommandError(f"{target.path} has no slides: a slide is a cell # %% [raw] slide")
    return chosen


def read_deck(target: Target) -> tuple[list[Slide], nbformat.NotebookNode]:
    """The slides of a lecture, and its built notebook. CommandError where that is missing or another one's."""
    path = target.checkout.root / target.built
    if not path.is_file():
        raise CommandError(f"{target.built} is missing: run {typed('build')} {target.lesson.number} first")
    built = nbformat.read(path, as_version=4)
    return deck(target.source, built), built


def slides(checkout: Checkout, to: Path, names: Sequence[str] = ()) -> dict[str, list[Slide]]:
    """Write the decks of the lectures `names` into the folder `to`; return the slides of each, by its number.

    Other lectures' decks that are there stay. A deck keeps its old self until the new one is whole. Raises CommandError
    for a folder that holds something else, and for what `deck` refuses.
    """
    if to.exists() and not (to / SHARED).is_dir() and (not to.is_dir() or any(to.iterdir())):
        raise CommandError(f"{to} holds something that is not slides: name another folder, or take it away")
    chosen = lectures(checkout, names)
    (to / SHARED).mkdir(parents=True, exist_ok=True)
    for package in (npm.MATHJAX, *npm.REVEAL):
        npm.put(package, to / SHARED)
    for name in OWN:
        write_whole(to / SHARED / name, (HERE / name).read_bytes())
    if checkout.course.widgets:
        package_name, name = checkout.course.widgets
        write_whole(to / SHARED / "widgets.js", (folder_of(package_name) / name).read_bytes())
    written = {target.lesson.number: _write(target, to) for target in chosen}
    _index(checkout, to)
    return written


def _write(target: Target, to: Path) -> list[Slide]:
    number = target.lesson.number
    shown, built = read_deck(target)
    page = Page(shown, widgets.saved(built))
    with tempfile.TemporaryDirectory(dir=to, prefix=f".{number}-") as scratch:
        made = Path(scratch, number)
        made.mkdir()
        (made / "index.html").write_text(page.html(), encoding="utf-8")
        for name, picture in page.pictures.items():
            (made / name).write_bytes(picture)
        nbformat.write(notebook(shown, built), made / f"{number}_{target.lesson.name}.ipynb")
        if (to / number).exists():
            replace(to / number, Path(scratch, "old"))
        replace(made, to / number)
    return shown


def _index(checkout: Checkout, to: Path) -> None:
    """The list of the decks that are there."""
    rows = []
    for lesson in checkout.course.lessons:
        page = to / lesson.number / "index.html"
        if page.is_file() and (title := re.search("<title>(.*?)</title>", page.read_text(encoding="utf-8"))):
            rows.append(f'<li><a href="{lesson.number}/index.html">{title[1]}</a></li>')
    write_whole(to / "index.html", INDEX.format(rows="\n".join(rows)))


EXAMPLES = """
PROGRAM slides 04
PROGRAM slides --to lecture-hall    # of every lecture that has slides
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("names", nargs="*", metavar="NN", help="the lectures, such as 04 (default: all with slides)")
    parser.add_argument("--to", type=Path, default=Path("build/slides"), metavar="DIR", help="default: build/slides")


def main(args: argparse.Namespace) -> int:
    for number, shown in slides(open_course(Path.cwd()), args.to, args.names).items():
        minutes = sum(slide.seconds for slide in shown) / 60
        print(f"{args.to / number / 'index.html'}: {len(shown)} slides, about {minutes:.0f} minutes with their notes")
    return 0
