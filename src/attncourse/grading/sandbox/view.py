"""What a learner's process sees of the package: what an assignment's cells may import, and no reference answer."""

from __future__ import annotations

import ast
import shutil
from pathlib import Path

import attncourse

# What checks, grades or writes notebooks. What the learner's process runs on of the first two, it has in memory.
NEVER = ("attncourse.exercises", "attncourse.grading", "attncourse.authoring", "attncourse.cli", "attncourse.doctor")


def build_view(assignment: str, folder: Path) -> tuple[str, ...]:
    """Copy into `folder` the modules of the package that may be seen; the names of those that may not.

    Hidden is every module that an exercise of the assignment forbids, and every one that imports such a module.
    """
    package = Path(attncourse.__file__).parent
    modules = {_name(path, package): path for path in sorted(package.rglob("*.py"))}
    never = (*NEVER, *forbidden_modules(assignment, package))
    hidden = {name for name in modules if _below(name, never)}
    imports = {name: _imports(path) for name, path in modules.items()}
    before = -1
    while before != len(hidden):
        before = len(hidden)
        hidden |= {name for name, used in imports.items() if any(_below(u, hidden) for u in used)} - {"attncourse"}
    for name, path in modules.items():
        if name not in hidden:
            for file in {path, *path.parent.glob(f"{path.stem}.*")}:
                target = folder / "attncourse" / file.relative_to(package)
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(file, target)
    return tuple(sorted(hidden - {"attncourse.exercises"}))


def forbidden_modules(assignment: str, package: Path) -> set[str]:
    """The package's own names that the exercises of an assignment forbid, read from its text and not imported."""
    path = next((package / "exercises").glob(f"{assignment}_*.py"), None)
    if path is None:  # an assignment of the instructor's own
        return set()
    nodes = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
    texts = {node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)}
    named = {text for text in texts if text.startswith("attncourse.") and " " not in text}
    used = _imports(path) - {"attncourse"}
    # What the exercises' own file imports may be the reference, whether it is forbidden by name or not.
    return {name for name in named | used if not name.startswith("attncourse.exercises")}


def _imports(path: Path) -> set[str]:
    """The package's modules, and names in them, that a file imports anywhere."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return {name for name in found if name.partition(".")[0] == "attncourse"}


def _below(name: str, tops: set[str] | tuple[str, ...]) -> bool:
    """Whether a dotted name is one of `tops` or lies in one."""
    parts = name.split(".")
    return any(".".join(parts[:n]) in tops for n in range(1, len(parts) + 1))


def _name(path: Path, package: Path) -> str:
    parts = ("attncourse", *path.relative_to(package).with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
