"""Before a class is converted: each submission's folder holds nothing dangerous, and a notebook of the right name.

Nothing is lost: what is taken out of a submission's folder goes to grading/<assignment>/originals/<student>/, and what
was done is noted in the submission's record (see `lessonkit.grading.submission.records`).
"""

from __future__ import annotations

import glob
import hashlib
import os
import re
import shutil
import stat
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path

import nbformat
from nbformat.v4 import new_markdown_cell, new_notebook
from nbgrader.api import Gradebook, MissingEntry
from nbgrader.coursedir import CourseDirectory
from nbgrader.utils import parse_utc

from commandkit.files import write_whole
from lessonkit.grading.repair.archive import OPENED, notebook_in
from lessonkit.grading.repair.cells import belongs
from lessonkit.grading.repair.reading import MAX_BYTES, OURS, Unreadable, kind_of, read, read_bytes
from lessonkit.grading.repair.released import Released
from lessonkit.grading.submission.execution import BOOKKEEPING
from lessonkit.grading.submission.records import grading_folder, records_of

MAX_BYTES_BESIDE = 100_000_000  # of the files beside the notebook, together
# Files and folders of a submission. nbgrader needs the square of them, twice: seconds for these, minutes for 5,000.
MAX_ENTRIES = 500
MAX_PATH = 1_000  # bytes of a path below a submission's folder: the system takes 4,096 of a whole one
NOTEBOOK = re.compile(r"\.ipynb(\.txt|\.json)?$", re.IGNORECASE)  # browsers and mail programs add the second
ARCHIVE = re.compile(r"\.(zip|tar|tgz|gz|bz2|xz|7z|rar)$", re.IGNORECASE)


def prepare(coursedir: CourseDirectory, assignment: str) -> dict[str, list[str]]:
    """Make the submissions of an assignment fit to be converted; return what was done, by student.

    Of the students that `coursedir.student_id` matches. What cannot be read gets a notebook that says why. Running it
    again changes nothing more.
    """
    with Gradebook(coursedir.db_url, coursedir.course_id) as gradebook:
        try:
            expected = sorted(notebook.name for notebook in gradebook.find_assignment(assignment).notebooks)
        except MissingEntry:
            return {}  # nbgrader says so itself
    found = {}
    for student, folder in _submissions(coursedir, assignment):
        try:
            found[student] = _Submission(coursedir, assignment, student, folder, expected).prepare()
        except OSError as error:
            coursedir.log.warning("Cannot prepare the submission of %s: %s", student, error)
    return found


def notes(coursedir: CourseDirectory, assignment: str, student: str) -> list[str]:
    """What `prepare` has done to a student's submission, a sentence each."""
    return records_of(Path(coursedir.root), assignment).of(student)["repaired"]["notes"]


def _submissions(coursedir: CourseDirectory, assignment: str) -> Iterator[tuple[str, Path]]:
    """As nbgrader finds them, also where there is no notebook."""
    step = coursedir.submitted_directory
    pattern = re.compile(coursedir.format_path(step, "(?P<student>.*)", assignment, escape=True))
    for path in sorted(glob.glob(coursedir.format_path(step, coursedir.student_id, assignment))):
        match = pattern.fullmatch(path)
        if match and is_text(match["student"]):
            yield match["student"], Path(path)


class _Submission:
    """One student's folder, while it is prepared."""

    def __init__(
        self, coursedir: CourseDirectory, assignment: str, student: str, folder: Path, expected: Sequence[str]
    ) -> None:
        self.db_url, self.assignment, self.folder, self.expected = coursedir.db_url, assignment, folder, expected
        self.student, self.records = student, records_of(Path(coursedir.root), assignment)
        self.originals = grading_folder(Path(coursedir.root), assignment) / "originals" / student
        self.notes: list[str] = []
        self.instead: dict[str, str] = {}  # what stood in the place of an expected notebook
        self.archive: str | None = None  # that the notebook was in

    def prepare(self) -> list[str]:
        before = self.records.of(self.student)["repaired"]
        if before["files"] is not None and before["files"] == _listing(self.folder):
            return before["notes"]
        plan = list(self._unwanted())
        if before["files"] is None:  # stopped on the way: what is gone already cannot be noticed any more
            self.notes = before["notes"] + self.notes
            self.instead = before["instead"] | self.instead
            self.archive = before["archive"]
        self.notes = list(dict.fromkeys(self.notes))
        placed = before["placed"]
        self._save(None, placed)
        for path in reversed(plan):  # what is in a folder before the folder
            self._move_to_originals(path)
        self.folder.mkdir(exist_ok=True)
        for name in self.expected:
            digest = self._provide(name, placed.get(name))
            if digest:
                placed[name] = digest
        self.notes = list(dict.fromkeys(self.notes))
        self._save(_listing(self.folder), placed)
        return self.notes

    def _unwanted(self) -> Iterator[Path]:
        """What must not stay, noted: what is no file, what cannot be read, what is too much."""
        if self.folder.is_symlink() or not self.folder.is_dir():
            kind = kind_of(self.folder.lstat().st_mode)
            self.notes.append(f"{kind} was handed in in place of the submission's folder: not opened")
            self.instead = dict.fromkeys(self.expected, kind)
            yield self.folder
            return
        files: list[tuple[int, Path]] = []
        everything = list(islice(_walk(self.folder), MAX_ENTRIES + 1))
        if len(everything) > MAX_ENTRIES:
            self.notes.append(f"there were more than {MAX_ENTRIES} files and folders: left out, but for the notebooks")
            top = sorted(path for path in self.folder.iterdir())
            everything = self._few(top)
            yield from sorted({*top} - {*everything})
        too_deep = {path.relative_to(self.folder).parts[0] for path in everything if _is_too_long(path, self.folder)}
        for name in sorted(too_deep):
            self.notes.append(f"`{shown(name)}` holds folders in folders, too deep to be read: left out")
            yield self.folder / name
        for path in everything:
            if path.relative_to(self.folder).parts[0] in too_deep:
                continue
            found = path.lstat()
            kind, place = kind_of(found.st_mode), self._expected_at(path)
            if not is_text(path.name):
                self.notes.append(f"`{self._relative(path)}` has a name that is no text (UTF-8): left out")
                yield path
            elif stat.S_ISDIR(found.st_mode):
                if place:
                    self.instead[place] = kind
                    yield path
                elif path.parent == self.folder and path.name in BOOKKEEPING:  # nbgrader would open it
                    self.notes.append(f"`{path.name}` was {kind}: left out")
                    yield path
            elif not stat.S_ISREG(found.st_mode):
                target = f" to {shown(os.readlink(path))}" if path.is_symlink() else ""
                self.notes.append(f"`{self._relative(path)}` was {kind}{target}: not opened")
                if place:
                    self.instead[place] = kind
                yield path
            elif not os.access(path, os.R_OK):
                self.notes.append(f"`{self._relative(path)}` may not be read: left out")
                yield path
            elif path == self.folder / "timestamp.txt" and not _is_time(path):
                self.notes.append("`timestamp.txt` holds no time, so it is not known when this was handed in")
                yield path
            elif NOTEBOOK.search(path.name) and found.st_size > MAX_BYTES:
                too_large = f"{found.st_size / 1e6:,.0f} MB, and {MAX_BYTES / 1e6:g} MB are allowed"
                self.notes.append(f"`{self._relative(path)}` has {too_large}: left out")
                if place:
                    self.instead[place] = f"a file of {too_large} (clear its outputs),"
                yield path
            elif not place:
                files.append((found.st_size, path))
        total = sum(size for size, _ in files)
        for size, path in sorted(files, reverse=True):
            if total <= MAX_BYTES_BESIDE:
                break
            total -= size
            self.notes.append(f"`{self._relative(path)}` ({size / 1e6:,.0f} MB) was left out: the files are too large")
            yield path

    def _few(self, top: Sequence[Path]) -> list[Path]:
        """What stays where there is far too much: the notebook, some files that may be it, and the time."""
        needed = [path for path in top if self._expected_at(path) or path.name in BOOKKEEPING]
        return [*needed, *[path for path in top if self._is_candidate(path)][:20]]

    def _move_to_originals(self, path: Path) -> None:
        """Take something out of the submission, and keep it; of what is no file, keep what it was."""
        try:
            mode = path.lstat().st_mode
            target = os.readlink(path) if stat.S_ISLNK(mode) else ""
        except FileNotFoundError:
            return  # in a folder that is gone already, or another process was faster
        kept = self.originals / (path.relative_to(self.folder) if path != self.folder else path.name)
        if stat.S_ISREG(mode) or stat.S_ISDIR(mode):
            kept.parent.mkdir(parents=True, exist_ok=True)
            shutil.move(path, _free(kept))
            return
        words = f"{kind_of(mode)}{' to ' + target if target else ''}\n".encode(errors="surrogateescape")
        write_whole(_free(kept.with_name(kept.name + ".was.txt")), words)
        path.unlink(missing_ok=True)

    def _provide(self, name: str, ours: str | None) -> str | None:
        """Make sure that there is a notebook of this name. Returns the file's digest, if it was put there by us."""
        target = self.folder / f"{name}.ipynb"
        others = [path for path in _walk(self.folder) if self._is_candidate(path)]
        there = _digest(target) if target.is_file() else None
        if there and there != ours:
            if others:
                self.notes.append(f"there is more than the notebook `{target.name}`; not graded: {self._names(others)}")
            return None
        chosen, reason = self._choose(name, others)
        content = chosen.read_bytes() if chosen else None
        if chosen:
            self.notes.append(f"the notebook was handed in as `{self._relative(chosen)}`")
        elif not reason:
            content, reason = self._open_archive(name)
        if content is not None:
            if there and there != hashlib.sha256(content).hexdigest() and not _is_placeholder(target):
                self._move_to_originals(target)
            write_whole(target, content)
        elif there is None or _is_placeholder(target):
            write_whole(target, _placeholder(reason))
        return _digest(target)

    def _choose(self, name: str, candidates: list[Path]) -> tuple[Path | None, str]:
        """The file that is this notebook under another name, or why there is none.

        Neither where there is one archive, which may hold it.
        """
        distinct = list({_digest(path): path for path in reversed(candidates)}.values())
        if len(distinct) == 1 and len(self.expected) == 1:
            return distinct[0], ""
        released = Released.load(self.db_url, name, self.assignment)
        fitting = [path for path in distinct if _belongs(path, released)]
        if len(fitting) == 1:
            return fitting[0], ""
        if name in self.instead:
            return None, f"{self.instead[name]} was handed in in place of the notebook"
        if len(fitting or distinct) > 1:
            names = self._names(fitting or distinct)
            return None, f"there is no {name}.ipynb, and several notebooks could be it: {names}"
        files = sorted(self._relative(path) for path in _walk(self.folder) if path.is_file())
        files = [file for file in files if file not in ("timestamp.txt", *(f"{name}.ipynb" for name in self.expected))]
        archives = self._archives()
        if len(archives) > 1:
            names = self._names(archives)
            return None, f"{len(archives)} archives were handed in ({names}): hand in the notebook itself"
        if archives and OPENED.search(archives[0].name):
            return None, ""
        if archives:
            what = f"an archive was handed in ({self._relative(archives[0])})"
            return None, f"{what}, of a kind that is not opened: hand in the notebook itself"
        there = f"; there is {', '.join(files[:5])}{' and more' if len(files) > 5 else ''}" if files else ""
        return None, f"there is no notebook {name}.ipynb in the submission{there}"

    def _open_archive(self, name: str) -> tuple[bytes | None, str]:
        """The notebook that is in the one archive, or why it is not to be had."""
        (path,) = self._archives()
        try:
            inside, content = notebook_in(path)
        except Unreadable as reason:
            return None, shown(str(reason), 300)
        if len(self.expected) > 1 and not _belongs(content, Released.load(self.db_url, name, self.assignment)):
            return None, f"there is no notebook {name}.ipynb in the archive {self._relative(path)}"
        self.archive = self._relative(path)
        self.notes.append(f"the notebook was handed in in the archive `{self.archive}`, as `{shown(inside)}`")
        return content, ""

    def _archives(self) -> list[Path]:
        return [path for path in _walk(self.folder) if ARCHIVE.search(path.name) and path.is_file()]

    def _expected_at(self, path: Path) -> str | None:
        there = path.parent == self.folder and path.suffix == ".ipynb" and path.stem in self.expected
        return path.stem if there else None

    def _is_candidate(self, path: Path) -> bool:
        hidden = any(part.startswith((".", "__")) for part in path.relative_to(self.folder).parts)
        return bool(NOTEBOOK.search(path.name)) and path.is_file() and not hidden and self._expected_at(path) is None

    def _relative(self, path: Path) -> str:
        return shown(path.relative_to(self.folder).as_posix())

    def _names(self, paths: Sequence[Path]) -> str:
        return ", ".join(f"`{self._relative(path)}`" for path in sorted(paths)[:5]) + (" ..." if len(paths) > 5 else "")

    def _save(self, files: dict[str, str] | None, placed: dict[str, str]) -> None:
        with self.records.changing(self.student) as record:
            record["repaired"] = {
                "files": files, "placed": placed, "notes": self.notes, "instead": self.instead, "archive": self.archive
            }  # fmt: skip


def shown(name: str, most: int = 120) -> str:
    """A file's name as it can be printed and saved."""
    printable = "".join(letter if letter.isprintable() else "�" for letter in name)
    return printable if len(printable) <= most else printable[: most - 1] + "…"


def is_text(name: str) -> bool:
    """Whether the bytes of a file's name are UTF-8. What is not cannot be kept in a gradebook, nor printed."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def _listing(folder: Path) -> dict[str, str]:
    """What is in a submission's folder, and when it was handed in: as much as tells one submission from the next."""
    if folder.is_symlink() or not folder.is_dir():
        return {".": "no folder"}
    content = {}
    for path in islice(_walk(folder), MAX_ENTRIES + 1):
        if _is_too_long(path, folder):
            return {".": "too deep"}
        found = path.lstat()
        content[path.relative_to(folder).as_posix()] = f"{stat.S_IFMT(found.st_mode):o} {found.st_size}"
        if stat.S_ISDIR(found.st_mode):  # its size depends on the file system
            content[path.relative_to(folder).as_posix()] = "folder"
        elif path == folder / "timestamp.txt" and stat.S_ISREG(found.st_mode) and found.st_size < 1000:
            content["timestamp.txt"] = path.read_bytes().decode(errors="replace")
    return content


def _walk(folder: Path) -> Iterator[Path]:
    """Everything in a folder, parents first; links are not followed."""
    for parent, folders, files in os.walk(folder):
        yield from (Path(parent, name) for name in sorted([*folders, *files]))


def _is_too_long(path: Path, folder: Path) -> bool:
    return len(os.fsencode(path)) - len(os.fsencode(folder)) > MAX_PATH


def _is_time(path: Path) -> bool:
    try:
        text = path.read_text().strip() if path.stat().st_size < 1000 else "no time"
        return not text or bool(parse_utc(text))
    except (OSError, ValueError, OverflowError, TypeError, AttributeError):
        return False


def _belongs(notebook: Path | bytes, released: Released) -> bool:
    try:
        return belongs(read(read_bytes(notebook) if isinstance(notebook, Path) else notebook)[0], released)
    except Unreadable:
        return False


def _placeholder(reason: str) -> bytes:
    cell = new_markdown_cell(f"This notebook was put here because {reason}.", id="reason")
    return nbformat.writes(new_notebook(cells=[cell], metadata={OURS: {"placeholder": reason}})).encode()


def _is_placeholder(path: Path) -> bool:
    try:
        return "placeholder" in nbformat.read(path, as_version=4).metadata.get(OURS, {})
    except (OSError, ValueError, AttributeError):
        return False


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _free(path: Path) -> Path:
    """The path, or one like it where there is nothing yet."""
    free, number = path, 2
    while os.path.lexists(free):
        free, number = path.with_name(f"{path.name}.{number}"), number + 1
    return free
