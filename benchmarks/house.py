"""The house in figures: its rooms with their lines, the floors that they stand on, and the arrows between them.

    python benchmarks/house.py [FOLDER] [--json]

FOLDER is a checkout (default: this one). A room is a folder of Python files below src, or a file that stands in a
package itself. The lessons are one room: they are alike, and none knows another. An arrow goes from a room to one that
it imports, wherever in its code. A room's floor is one above the highest that it imports; rooms that import each other
are in a circle, and have none, nor has what rests on them. A package's face, its own __init__.py, is no room.
"""

import argparse
import ast
import json
import re
from collections.abc import Iterator
from pathlib import Path

COURSE = Path(__file__).parents[1]
LESSON = re.compile(r"l\d\d_\w+")


def room_of(module: tuple[str, ...], packages: set[tuple[str, ...]]) -> str:
    """The room in which a module stands."""
    if len(module) > 1 and LESSON.fullmatch(module[1]):
        return f"{module[0]}/lNN"
    is_folder = module in packages
    return "/".join(module if is_folder or len(module) == 2 else module[:-1])


def imported(path: Path, package: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """What a file imports, as dotted parts: the modules, and the names that may be modules."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (tuple(alias.name.split(".")) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            start = package[: len(package) + 1 - node.level] if node.level else ()
            base = (*start, *(node.module.split(".") if node.module else ()))
            yield from ((*base, alias.name) for alias in node.names)


def house(src: Path) -> tuple[dict[str, tuple[int, int]], set[tuple[str, str]]]:
    """Of each room its lines and its files, and the arrows between the rooms."""
    files = {path.relative_to(src).with_suffix("").parts: path for path in sorted(src.rglob("*.py"))}
    packages = {name[:-1] for name in files}
    modules = {name[:-1] if name[-1] == "__init__" else name for name in files}
    rooms: dict[str, tuple[int, int]] = {}
    arrows = set()
    for name, path in files.items():
        if name[1:] == ("__init__",):
            continue
        room = room_of(name[:-1] if name[-1] == "__init__" else name, packages)
        lines, count = rooms.get(room, (0, 0))
        rooms[room] = lines + len(path.read_text(encoding="utf-8").splitlines()), count + 1
        for target in imported(path, name[:-1]):
            known = next((target[:n] for n in range(len(target), 0, -1) if target[:n] in modules), None)
            if known and len(known) > 1 and room_of(known, packages) != room:
                arrows.add((room, room_of(known, packages)))
    return rooms, arrows


def floors(rooms: dict[str, tuple[int, int]], arrows: set[tuple[str, str]]) -> dict[str, int]:
    """The floor of each room that is in no circle, and rests on none."""
    found: dict[str, int] = {}
    while True:
        ready = [
            room
            for room in rooms
            if room not in found and all(target in found for source, target in arrows if source == room)
        ]
        if not ready:
            return found
        for room in ready:
            below = [found[target] for source, target in arrows if source == room]
            found[room] = 1 + max(below, default=0)


def parts_of_lessons(src: Path) -> dict[str, int]:
    """Lines of the lessons by what they are: lecture, assignment, exercises, figures, errata, the rest."""
    found: dict[str, int] = {}
    for path in sorted(path for path in src.rglob("*.py") if LESSON.fullmatch(path.relative_to(src).parts[1])):
        inside = path.relative_to(src).parts[2:]
        part = inside[0].removesuffix(".py") if inside[0] != "__init__.py" else "question"
        found[part] = found.get(part, 0) + len(path.read_text(encoding="utf-8").splitlines())
    return dict(sorted(found.items(), key=lambda item: -item[1]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", nargs="?", type=Path, default=COURSE)
    parser.add_argument("--json", action="store_true", help="print one JSON object as the last line")
    args = parser.parse_args()
    rooms, arrows = house(args.folder / "src")
    standing = floors(rooms, arrows)
    print(f"{'room':<44}{'lines':>7}{'files':>7}{'floor':>7}{'imports':>9}")
    for room in sorted(rooms, key=lambda room: (standing.get(room, 99), room)):
        lines, files = rooms[room]
        floor = standing.get(room, "circle")
        print(f"{room:<44}{lines:>7}{files:>7}{floor:>7}{sum(source == room for source, _ in arrows):>9}")
    parts = parts_of_lessons(args.folder / "src")
    for part, lines in parts.items():
        print(f"{'  of the lessons: ' + part:<44}{lines:>7}")
    total = {
        "rooms": len(rooms),
        "floors": max(standing.values(), default=0),
        "arrows": len(arrows),
        "in_a_circle": len(rooms) - len(standing),
        "lines": sum(lines for lines, _ in rooms.values()),
        "lines_of_tests": _lines(args.folder / "tests"),
        "lines_of_benchmarks": _lines(args.folder / "benchmarks"),
    }
    print("\n" + ", ".join(f"{count:,} {what.replace('_', ' ')}" for what, count in total.items()))
    if args.json:
        print(json.dumps({**total, "by_room": {room: lines for room, (lines, _) in rooms.items()}, "lessons": parts}))


def _lines(folder: Path) -> int:
    return sum(len(path.read_text(encoding="utf-8").splitlines()) for path in folder.rglob("*.py"))


if __name__ == "__main__":
    main()
