"""Where a learner works: `work/`, beside the course's own notebooks, which stay as they were given.

A notebook is copied there when it is first opened. What a learner has changed is never written over; what they have not
is replaced when the course's own is newer.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import time
from pathlib import Path, PurePosixPath

from commandkit.errors import CommandError
from commandkit.files import replace, write_whole

WORK, RECORD, BACKUP = "work", ".given.json", "backup"
START = "START.md"
GIVEN = (START, "docs", "lectures", "assignments")  # of the course's folder: what may be opened in work/


def find_root(start: Path) -> Path:
    """The course's folder, `start` or the nearest above it. CommandError if there is none."""
    start = start.resolve()
    for folder in (start, *start.parents):
        if (folder / RECORD).is_file():  # a learner's own
            continue
        if (folder / START).is_file() and (folder / "lectures").is_dir() and (folder / "assignments").is_dir():
            return folder
    missing = f"{START} and lectures/ are missing"
    raise CommandError(f"there is no course in {start} or above it ({missing}): cd into its folder")


class Folder:
    """A learner's folder, `work/` of the course in `root`."""

    def __init__(self, root: Path) -> None:
        self.root, self.work = root, root / WORK

    @classmethod
    def at(cls, work: Path) -> Folder | None:
        """The learner's folder that `work` is; None for any other folder."""
        return cls(work.parent) if work.name == WORK and (work / RECORD).is_file() else None

    def prepare(self) -> None:
        """Make it, with its start page. CommandError where that cannot be."""
        try:
            if not (self.work / RECORD).is_file():
                write_whole(self.work / RECORD, "{}\n")
            self.give(START)
        except OSError as error:
            raise CommandError(f"{self.work}: cannot be written: {error.strerror or error}") from error

    def give(self, path: str) -> bool:
        """Copy a file of the course to the same place in work/, where the learner has none of their own there.

        With a notebook of an assignment comes what lies beside it. Returns whether something was copied.
        """
        relative = PurePosixPath(path)
        if relative.is_absolute() or ".." in relative.parts or not relative.parts or relative.parts[0] not in GIVEN:
            return False
        source = self.root / relative
        if not source.is_file() or any(part.startswith(".") for part in relative.parts):
            return False
        if relative.parts[0] != "assignments":
            return self._copy(relative)
        beside = [each for each in sorted(source.parent.iterdir()) if each.is_file() and not each.name.startswith(".")]
        return any([self._copy(relative.with_name(each.name)) for each in beside])

    def reset(self, name: str) -> tuple[Path, Path | None]:
        """Begin an assignment, or a lecture, anew: its notebook as it is given, and where the learner's own now lies.

        `name` is a02 or 02. None for the second where there was nothing of their own. CommandError for an unknown one.
        """
        found = sorted(self.root.glob(f"assignments/{name}/{name}_*.ipynb")) or sorted(
            self.root.glob(f"lectures/{name}_*.ipynb")
        )
        if not found:
            known = ", ".join(path.name for path in sorted((self.root / "assignments").iterdir()) if path.is_dir())
            raise CommandError(f"there is no {name!r} here; there are {known}, and their lectures by number")
        relative = PurePosixPath(found[0].relative_to(self.root).as_posix())
        mine, kept = self.work / relative, None
        if mine.is_file() and not self._untouched(relative):
            kept = self._free(self.work / BACKUP / f"{mine.stem}_{time.strftime('%Y-%m-%d_%H-%M-%S')}{mine.suffix}")
            kept.parent.mkdir(parents=True, exist_ok=True)
            replace(mine, kept)
        else:
            mine.unlink(missing_ok=True)
        self._copy(relative)
        return mine, kept

    @staticmethod
    def _free(path: Path) -> Path:
        """The path, or one like it where nothing lies yet."""
        number, free = 1, path
        while free.exists():
            number, free = number + 1, path.with_stem(f"{path.stem}_{number + 1}")
        return free

    def _copy(self, relative: PurePosixPath) -> bool:
        mine, data = self.work / relative, (self.root / relative).read_bytes()
        if mine.exists() and (mine.read_bytes() == data or not self._untouched(relative)):
            return False
        write_whole(mine, data)
        given = self._given()
        given.pop(str(relative), None)
        if not _worked_in(relative, data):  # what somebody wrote into the course's own notebook is theirs here, too
            given[str(relative)] = _digest(data)
        write_whole(self.work / RECORD, json.dumps(given, indent=1) + "\n")
        return True

    def _untouched(self, relative: PurePosixPath) -> bool:
        """Whether a file of work/ is, to the byte, what was once copied there."""
        return self._given().get(str(relative)) == _digest((self.work / relative).read_bytes())

    def _given(self) -> dict[str, str]:
        with contextlib.suppress(OSError, ValueError):
            found = json.loads((self.work / RECORD).read_text(encoding="utf-8"))
            return found if isinstance(found, dict) else {}
        return {}


def _worked_in(relative: PurePosixPath, data: bytes) -> bool:
    """Whether an assignment's notebook was run or answered; one that cannot be read counts as such."""
    if relative.parts[0] != "assignments" or relative.suffix != ".ipynb":
        return False
    try:
        cells = [cell for cell in json.loads(data)["cells"] if cell["cell_type"] == "code"]
        answers = [cell for cell in cells if cell["metadata"].get("nbgrader", {}).get("solution")]
        ran = any(cell.get("outputs") or cell.get("execution_count") for cell in cells)
        return ran or any("raise NotImplementedError" not in "".join(cell["source"]) for cell in answers)
    except (ValueError, KeyError, TypeError, AttributeError):
        return True


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:32]
