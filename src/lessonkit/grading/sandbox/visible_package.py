"""What a learner's process sees of a course's packages: what an assignment's cells may import, and no right answer."""

from __future__ import annotations

import ast
import shutil
from collections.abc import Iterable
from pathlib import Path

from lessonkit.course import Course, folder_of


def packages_of(course: Course) -> tuple[str, ...]:
    """Every package that a submission must see the view's copy of, or nothing of."""
    return *course.library, "commandkit", "lessonkit", course.package


def build_view(course: Course, assignment: str, folder: Path) -> tuple[str, ...]:
    """Copy into `folder` the modules of the course's library that may be seen; the names of those that may not.

    Hidden is every module that an exercise of the assignment forbids, and every one that imports such a module.
    """
    modules = {name: path for package in course.library for name, path in _modules(package)}
    forbidden = forbidden_modules(course, assignment)
    hidden = {name for name in modules if _below(name, forbidden)}
    imports = {name: _imports(path, course.library) for name, path in modules.items()}
    before = -1
    while before != len(hidden):
        before = len(hidden)
        hidden |= {name for name, used in imports.items() if any(_below(u, hidden) for u in used)} - {*course.library}
    for name, path in [*modules.items(), *_modules("commandkit")]:
        if name not in hidden:
            _copy(path, folder_of(name.partition(".")[0]), folder)
    for package in ("lessonkit", course.package):  # nothing of them; what of the kit it runs on, it has in memory
        (folder / package).mkdir()
        (folder / package / "__init__.py").touch()
    return tuple(sorted(hidden))


def forbidden_modules(course: Course, assignment: str) -> set[str]:
    """The library's own names that the exercises of an assignment forbid, read from their text and not imported."""
    if assignment not in course.assignments():  # one of the instructor's own
        return set()
    found: set[str] = set()
    for path in sorted((course.lesson(assignment).folder / "exercises").rglob("*.py")):
        nodes = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        texts = {node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)}
        named = {text for text in texts if text.partition(".")[0] in course.library and " " not in text}
        # What the exercises' own files import may be the reference, whether it is forbidden by name or not.
        found |= named | _imports(path, course.library)
    return found - {*course.library}


def imported_by_cells(course: Course, assignment: str) -> set[str]:
    """Modules of the library, and names in them, that the notebook of an assignment imports as it is handed out."""
    if assignment not in course.assignments():
        return set()
    source = course.lesson(assignment).folder / "assignment.py"
    return _imports(source, course.library) if source.is_file() else set()


def _copy(path: Path, package: Path, folder: Path) -> None:
    """A module and what lies beside it under its name, at the same place below `folder`."""
    for file in {path, *path.parent.glob(f"{path.stem}.*")}:
        target = folder / package.name / file.relative_to(package)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(file, target)


def _modules(package: str) -> Iterable[tuple[str, Path]]:
    """A package's modules: their dotted names and their files."""
    folder = folder_of(package)
    for path in sorted(folder.rglob("*.py")):
        parts = (package, *path.relative_to(folder).with_suffix("").parts)
        yield ".".join(parts[:-1] if parts[-1] == "__init__" else parts), path


def _imports(path: Path, packages: Iterable[str]) -> set[str]:
    """Modules of these packages, and names in them, that a file imports anywhere."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return {name for name in found if name.partition(".")[0] in packages} - {*packages}


def _below(name: str, tops: set[str]) -> bool:
    """Whether a dotted name is one of `tops` or lies in one."""
    parts = name.split(".")
    return any(".".join(parts[:n]) in tops for n in range(1, len(parts) + 1))
