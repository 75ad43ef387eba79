"""`lessonkit build`: make the notebooks from the lessons' sources, or say which are not what their source builds to."""

import argparse
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from tqdm import tqdm

from commandkit.commands import typed
from commandkit.errors import CommandError, require_extra
from commandkit.files import write_whole
from lessonkit.authoring import pages
from lessonkit.authoring.checkout import OURS, Checkout, Target, choose, open_course

with require_extra(typed("build"), "dev"):
    import nbformat

    from lessonkit.authoring.generate import generate, holds_work


def drifts(checkout: Checkout, targets: Sequence[Target]) -> Iterator[tuple[Path, str, str]]:
    """Each notebook that is not what its source builds to: its path, what is wrong, the command that mends it."""
    for target in targets:
        mend = typed(f"build {target.name}")
        if problem := target.drift():
            # The assignment is generated from this notebook: whatever it holds now, the same command makes it anew.
            yield target.built, problem, mend
        elif target.assignment:
            for path in _stale_files(checkout, target.assignment):
                problem = "differs from its generation" if (checkout.root / path).exists() else "is missing"
                yield path, problem, mend


def orphans(checkout: Checkout) -> Iterator[tuple[Path, str, str]]:
    """Notebooks that have no source, as `drifts` gives them. They are the author's to delete."""
    targets = checkout.targets()
    known = {target.built for target in targets}
    known |= {Path("assignments", *target.built.parts[1:]) for target in targets if target.assignment}
    for folder in ("lectures", "solutions", "assignments"):
        for path in sorted((checkout.root / folder).rglob("*.ipynb")):
            relative = path.relative_to(checkout.root)
            hidden = any(part.startswith(".") for part in relative.parts)
            if relative not in known and not hidden and not _is_exam(path):
                yield relative, "has no source among the lessons", f"rm {relative}"


def _is_exam(path: Path) -> bool:
    """Whether the command `exam` has made this notebook."""
    try:
        return "exam" in nbformat.read(path, as_version=4).metadata.get(OURS, {})
    except (OSError, ValueError):
        return False


def _stale_files(checkout: Checkout, assignment: str) -> dict[Path, bytes]:
    """The files of assignments/aNN that are not what nbgrader generates, with what they should hold."""
    folder = Path("assignments", assignment)
    generated = {folder / name: data for name, data in generate(checkout.root, assignment).items()}
    return {path: data for path, data in generated.items() if not _holds(checkout.root / path, data)}


def build(checkout: Checkout, targets: Sequence[Target], force: bool = False) -> int:
    """Build what is not as its source says, or with `force` everything; return how many files were written.

    Raises CommandError at the first that fails; the notebooks before it are done, and it keeps its old self.
    """
    for target in targets:
        _ = target.source  # a slip in the last one shows before the first runs
    written = 0
    for target in targets:
        if force or target.drift():
            start = time.perf_counter()
            cells = sum(bool(c.cell_type == "code" and c.source.strip()) for c in target.source.notebook.cells)
            with tqdm(total=cells, desc=str(target.built), unit="cell", leave=False, disable=None) as bar:
                target.build(bar)
            print(f"{target.built}  {time.perf_counter() - start:.1f} s", flush=True)
            written += 1
        if target.assignment:
            written += _release(checkout, target.assignment, force)
    return written


def _release(checkout: Checkout, assignment: str, force: bool) -> int:
    stale = _stale_files(checkout, assignment)
    for path in stale:
        existing = checkout.root / path
        if path.suffix == ".ipynb" and existing.exists() and not force and holds_work(nbformat.read(existing, 4)):
            raise CommandError(
                f"{path} holds somebody's work: copy it elsewhere, then run {typed('build')} --force {assignment}"
            )
    for path, data in stale.items():
        write_whole(checkout.root / path, data)
        print(path, flush=True)
    return len(stale)


def _holds(path: Path, data: bytes) -> bool:
    # A clone on Windows may have its line ends converted.
    return path.is_file() and path.read_bytes().replace(b"\r\n", b"\n") == data.replace(b"\r\n", b"\n")



EXAMPLES = """
PROGRAM build               # what is not as its source says
PROGRAM build a03           # one assignment; 03 is its lecture
PROGRAM build --check       # execute nothing, list what is out of date
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("names", nargs="*", metavar="NAME", help="03_cross_attention, 03, a03 (default: all of them)")
    parser.add_argument("--check", action="store_true", help="execute nothing; list notebooks that are out of date")
    parser.add_argument("--force", action="store_true", help="execute all again; overwrite answers in assignments")


def _pages(checkout: Checkout) -> Iterator[tuple[Path, str, str]]:
    for page, _ in pages.stale(checkout):
        yield page, "has tables that are not what the lessons say", typed("build")


def main(args: argparse.Namespace) -> int:
    checkout = open_course(Path.cwd())
    targets = choose(checkout, args.names)
    if args.check:
        found = [*drifts(checkout, targets), *(orphans(checkout) if not args.names else []), *_pages(checkout)]
        for path, problem, mend in found:
            print(f"{path} {problem}\n    mend: {mend}")
        if not found:
            print(f"every notebook is what its source builds to (sources: {len(targets)})")
        return 1 if found else 0
    start = time.perf_counter()
    written = build(checkout, targets, args.force)
    for page, text in pages.stale(checkout):
        write_whole(checkout.root / page, text)
        print(page)
        written += 1
    print(f"sources: {len(targets)}, files written: {written}, seconds: {time.perf_counter() - start:.1f}")
    return 0
